"""Networks of ReLU in NumPy: layers, passes in both directions, training, tangent kernels.

Images, and what the layers make of them, are arrays (n, height, width, channels). Every layer is a convolution,
y = P W + b, with the patches P of its inputs; a dense layer has one patch, the whole image. All layers but the last are
followed by ReLU. W and b are one array, (fan_in + 1, channels), whose last row is b.

Slopes are derivatives of r functions at once, along an axis before the channels: (n, height, width, r, channels). For
training there is one function, the loss; for the tangent kernel there are all outputs.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

# ======================================================================================================================
# Layers
# ======================================================================================================================


class Layer(NamedTuple):
    """Patches of side x side pixels at every stride-th place, with zeros around the image; perhaps a 2 x 2 pool."""

    channels: int
    side: int = 1
    padding: int = 0
    stride: int = 1
    pooled: bool = False
    biased: bool = True


def without_biases(layers):
    """Return the layers without b. Such a network is homogeneous: weights c w have the outputs c^layers f(w)."""
    return [layer._replace(biased=False) for layer in layers]


ALEXNET = [  # for images of 32 x 32 pixels, with a quarter of its channels
    Layer(16, 3, 1, 2, True),
    Layer(48, 3, 1, 1, True),
    Layer(96, 3, 1),
    Layer(64, 3, 1),
    Layer(64, 3, 1, 1, True),
    Layer(512, 2),
    Layer(512),
    Layer(10),
]


def initial_weights(layers, channels, rng):
    """Draw W and b of each layer, uniform in +-1/sqrt(fan_in), for images of so many channels; float32."""
    weights = []
    for layer in layers:
        fan_in = layer.side**2 * channels
        bound = 1 / math.sqrt(fan_in)
        channels = layer.channels
        weights.append(rng.uniform(-bound, bound, (fan_in + 1, channels)).astype(np.float32))
    return weights


def patches_of(layer, x):
    """Cut images (n, size, size, channels) into patches (n, count, count, side x side x channels)."""
    p = layer.padding
    x = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (layer.side, layer.side), axis=(1, 2))
    patches = np.moveaxis(windows[:, :: layer.stride, :: layer.stride], 3, -1)
    return patches.reshape(*patches.shape[:3], -1)


def images_of(layer, patches, size):
    """Apply the adjoint of patches_of to patches with an axis r before the last: (n, size, size, r, channels)."""
    n, count, _, r, _ = patches.shape
    p = layer.padding
    patches = patches.reshape(n, count, count, r, layer.side, layer.side, -1)
    x = np.zeros((n, size + 2 * p, size + 2 * p, r, patches.shape[-1]), patches.dtype)
    for i, j in np.ndindex(layer.side, layer.side):
        rows = slice(i, i + count * layer.stride, layer.stride)
        columns = slice(j, j + count * layer.stride, layer.stride)
        x[:, rows, columns] += patches[:, :, :, :, i, j]
    return x[:, p : p + size, p : p + size]


def pool(y):
    """Return the largest of every 2 x 2 pixels, and which of the four it is, the first of equals."""
    corners = np.stack([y[:, i::2, j::2] for i, j in np.ndindex(2, 2)])
    return corners.max(axis=0), corners.argmax(axis=0)


def unpool(delta, chosen):
    """Apply the adjoint of the pool that chose so to (n, height, width, ...): (n, 2 height, 2 width, r, channels)."""
    n, height, width, r, channels = delta.shape
    out = np.empty((n, 2 * height, 2 * width, r, channels), delta.dtype)
    for k, (i, j) in enumerate(np.ndindex(2, 2)):
        out[:, i::2, j::2] = delta * (chosen == k)[:, :, :, None]
    return out


# ======================================================================================================================
# Passes
# ======================================================================================================================


class Pass(NamedTuple):
    """What a layer saw of n images: its inputs, their patches (n, height, width, fan_in), the pixels its pool chose."""

    inputs: np.ndarray
    patches: np.ndarray
    chosen: np.ndarray | None


def forward(layers, weights, x):
    """Return the outputs (n, classes) for images x, and the Pass of each layer."""
    passes = []
    for layer, W in zip(layers, weights, strict=True):
        patches = patches_of(layer, x)
        y = np.tensordot(patches, W[:-1], 1) + layer.biased * W[-1]
        chosen = None
        if layer.pooled:  # before ReLU, with which it commutes: a quarter of the pixels is left
            y, chosen = pool(y)
        passes.append(Pass(x, patches, chosen))
        x = np.maximum(y, 0)
    return y.reshape(len(y), -1), passes


def backward(layers, weights, passes, slopes):
    """Return the slopes of r functions by P W + b of each layer, given those by the outputs, (n, r, classes)."""
    delta = slopes[:, None, None]
    deltas = []
    for layer, W, seen in zip(reversed(layers), reversed(weights), reversed(passes), strict=True):
        if seen.chosen is not None:
            delta = unpool(delta, seen.chosen)
        deltas.append(delta)
        if seen is not passes[0]:
            delta = images_of(layer, np.tensordot(delta, W[:-1].T, 1), seen.inputs.shape[1])
            delta *= (seen.inputs > 0)[:, :, :, None]  # ReLU of the layer before
    return deltas[::-1]


def gradient(layer, seen, delta):
    """Return the gradient of one function, summed over the images, by W and b of a layer, given slopes with r = 1."""
    patches, delta = (array.reshape(-1, array.shape[-1]) for array in (seen.patches, delta))
    return np.vstack((patches.T @ delta, layer.biased * delta.sum(axis=0)))


def at_positions(layer, seen, delta):
    """Return patches with a 1 for b, (n, positions, fan_in + 1), and slopes, (n, positions, r x channels)."""
    n, count = delta.shape[:2]
    patches = seen.patches.reshape(n, count**2, -1)
    constant = np.full((n, count**2, 1), layer.biased, patches.dtype)
    return np.concatenate((patches, constant), axis=2), delta.reshape(n, count**2, -1)


def image_gradients(layer, seen, delta):
    """Return the gradients of r functions of each image by W and b of a layer, (n, fan_in + 1, r x channels)."""
    patches, slopes = at_positions(layer, seen, delta)
    return patches.swapaxes(1, 2) @ slopes


# ======================================================================================================================
# Training
# ======================================================================================================================


def loss_slopes(outputs, y):
    """Return the slopes of the mean cross-entropy by the outputs: (softmax - the class y, one-hot) / n."""
    slopes = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    slopes /= slopes.sum(axis=1, keepdims=True)
    slopes[np.arange(len(y)), y] -= 1
    return slopes / len(y)


def descend(layers, weights, X, y, step, size):
    """Make one pass of SGD over the images in their order, a step for each batch of a size, on `weights` in place."""
    for start in range(0, len(X), size):
        batch = slice(start, start + size)
        outputs, passes = forward(layers, weights, X[batch])
        deltas = backward(layers, weights, passes, loss_slopes(outputs, y[batch])[:, None])
        for layer, W, seen, delta in zip(layers, weights, passes, deltas, strict=True):
            W -= step * gradient(layer, seen, delta)


def train(layers, X, y, epochs, seed, step, batch):
    """Return {epoch: weights} at each of the given epochs, by SGD with these steps and batches; 0 is the start."""
    rng = np.random.default_rng(seed)
    weights = initial_weights(layers, X.shape[3], rng)
    reached = {}
    for epoch in range(max(epochs) + 1):
        if epoch > 0:
            order = rng.permutation(len(X))
            descend(layers, weights, X[order], y[order], step, batch)
        if epoch in epochs:
            reached[epoch] = [W.copy() for W in weights]
    return reached


# Steps of full batches. A function of these (length, u) returns the move of this length after the gradients -u so far.


def steepest_moves(norm, momentum, size):
    """Move along the steepest direction in a norm for the running mean of the u."""
    mean = np.zeros(size)

    def move(length, u):
        mean[:] = momentum * mean + (1 - momentum) * u
        return length * norm.steepest(mean)

    return move


def adam_moves(size):
    """Move as Adam does: beta = (0.9, 0.99), no epsilon."""
    mean, square = np.zeros((2, *size))
    counts = itertools.count(1)

    def move(length, u):
        t = next(counts)
        mean[:] += 0.1 * (u - mean)
        square[:] += 0.01 * (u * u - square)
        spread = np.sqrt(square / (1 - 0.99**t)) + 1e-150
        return length * mean / (1 - 0.9**t) / spread

    return move


# ======================================================================================================================
# The tangent kernel
#
# K is the sum over the layers of <dy/d(W, b), dy'/d(W, b)>. This is the sum over the positions s and t of two images of
# <delta_s, delta'_t> (<patch_s, patch'_t> + 1). With many positions it is cheaper to sum over them first.
# ======================================================================================================================

FEW = 16  # positions
BLOCK = 32  # images at a time, so that what is made of them stays in the caches


def layer_factors(layer, seen, delta):
    """Return arrays (n, positions, numbers); layer_kernel makes a layer's part of K of those of two sets of images.

    Of few positions they are the patches and the slopes, else the gradients, which are summed over the positions.
    """
    if delta.shape[1] ** 2 <= FEW:
        return at_positions(layer, seen, delta)
    return [image_gradients(layer, seen, delta).reshape(len(delta), 1, -1)]


def layer_kernel(ours, theirs):
    """Return a layer's part of K, (n, m): the products of the factors, multiplied, summed over pairs of positions."""
    products = [np.tensordot(one, other, (2, 2)) for one, other in zip(ours, theirs, strict=True)]
    return math.prod(products).sum(axis=(1, 3))


def linearise(layers, weights, x):
    """Return the outputs for images x and the factors of each layer for all outputs."""
    outputs, passes = forward(layers, weights, x)
    slopes = np.tile(np.eye(outputs.shape[1], dtype=outputs.dtype), (len(x), 1, 1))
    deltas = backward(layers, weights, passes, slopes)
    return outputs, list(map(layer_factors, layers, passes, deltas))


def tangent_kernel(layers, weights, X, X_train):
    """Return K(x, x') = sum over outputs c of <df_c(x)/dw, df_c(x')/dw>, (n, m), without a Jacobian, and all f_c(x)."""
    theirs = linearise(layers, weights, X_train)[1]
    rows = []
    for start in range(0, len(X), BLOCK):
        outputs, ours = linearise(layers, weights, X[start : start + BLOCK])
        rows.append((sum(map(layer_kernel, ours, theirs)), outputs))
    K, outputs = map(np.concatenate, zip(*rows, strict=True))
    return K, outputs
