"""Networks in NumPy against loops and differences, their kernels against Jacobians, KKT gaps against known cases."""

import functools
import math

import numpy as np
import pytest

import fastmargin as fm
import reproduce as rp
from figures import networks, studies

pytestmark = pytest.mark.usefixtures("cache")

# Of everything one: a stride, two pools, a convolution without, a dense layer on 2 x 2 pixels and one on a single one.
SMALL = [
    networks.Layer(2, 3, 1, 2, True),
    networks.Layer(3, 3, 1, 1, True),
    networks.Layer(4, 3, 1),
    networks.Layer(5, 2),
    networks.Layer(10),
]
WITHOUT_BIASES = networks.without_biases(SMALL)
SIZE = 16


def images(n, seed=0, size=SIZE):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, size, size, 3)), rng.integers(0, 10, n)


def small_weights(seed=1, layers=SMALL):
    """Weights in float64."""
    weights = networks.initial_weights(layers, 3, np.random.default_rng(seed))
    return [W.astype(float) for W in weights]


def loss(layers, weights, x, y):
    outputs = networks.forward(layers, weights, x)[0]
    return np.mean(np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(y)), y])


def slopes_by_differences(function, weights, h=1e-5):
    """The derivatives of a function of the weights by each of them, arrays (parameters, ...), one for each layer."""

    def derivative(W, i):
        kept = W.flat[i]
        values = []
        for shift in (h, -h):
            W.flat[i] = kept + shift
            values.append(function())
        W.flat[i] = kept
        return (values[0] - values[1]) / (2 * h)

    return [np.array([derivative(W, i) for i in range(W.size)]) for W in weights]


# ----------------------------------------------------------------------------------------------------------------------
# The network
# ----------------------------------------------------------------------------------------------------------------------


def test_the_initial_weights_fill_their_interval():
    layers = networks.ALEXNET
    weights = networks.initial_weights(layers, 3, np.random.default_rng(3))
    for W, fan_in in zip(weights, (27, 144, 432, 864, 576, 256, 512, 512), strict=True):
        assert W.dtype == np.float32 and W.shape[0] == fan_in + 1
        for part in (W[:-1], W[-1]):  # biases like weights
            for end in (part.max(), -part.min()):
                assert 1 - 10 / part.size < np.sqrt(fan_in) * end <= 1 + 1e-6
        assert W.size < 1000 or abs(3 * fan_in * np.mean(W**2) - 1) < 10 / np.sqrt(
            W.size
        )  # uniform: variance 1/3


def layer_by_loops(layer, W, x, last):
    """One layer on one image, pixel by pixel."""
    padded = np.pad(x, ((layer.padding,) * 2, (layer.padding,) * 2, (0, 0)))
    count = (padded.shape[0] - layer.side) // layer.stride + 1
    y = np.empty((count, count, layer.channels))
    for i, j in np.ndindex(count, count):
        window = padded[i * layer.stride :, j * layer.stride :][: layer.side, : layer.side]
        y[i, j] = window.ravel() @ W[:-1] + W[-1]
    y = y if last else np.maximum(y, 0)
    if layer.pooled:
        half = count // 2
        y = y[: 2 * half, : 2 * half].reshape(half, 2, half, 2, -1).max(axis=(1, 3))
    return y


def test_forward_is_the_network_of_loops():
    layers = SMALL
    weights = small_weights()
    (x, _) = images(3)
    outputs, _ = networks.forward(layers, weights, x)
    for image, output in zip(x, outputs, strict=True):
        for layer, W in zip(layers, weights, strict=True):
            image = layer_by_loops(layer, W, image, layer is layers[-1])
        np.testing.assert_allclose(image.ravel(), output, rtol=1e-13)


@pytest.mark.parametrize("layers", [SMALL, WITHOUT_BIASES])
def test_the_gradient_is_that_of_finite_differences(layers):
    weights = small_weights(layers=layers)
    (x, y) = images(3)
    outputs, passes = networks.forward(layers, weights, x)
    deltas = networks.backward(layers, weights, passes, networks.loss_slopes(outputs, y)[:, None])
    expected = slopes_by_differences(lambda: loss(layers, weights, x, y), weights)
    for layer, W, seen, delta, slopes in zip(
        layers, weights, passes, deltas, expected, strict=True
    ):
        found = networks.gradient(layer, seen, delta)
        assert found.shape == W.shape
        np.testing.assert_allclose(found.ravel(), slopes, rtol=0, atol=1e-8 * np.abs(slopes).max())
    assert np.abs(expected[0]).max() > 1e-4  # it comes down to the first layer


def test_an_epoch_is_a_step_for_each_minibatch_in_turn():
    layers = SMALL
    weights = small_weights()
    (x, y) = images(6)  # batches of 4 and 2
    expected = [W.copy() for W in weights]
    for batch in (slice(4), slice(4, 6)):
        slopes = slopes_by_differences(
            lambda batch=batch: loss(layers, expected, x[batch], y[batch]), expected
        )
        for W, slope in zip(expected, slopes, strict=True):
            W -= 0.1 * slope.reshape(W.shape)
    networks.descend(layers, weights, x, y, 0.1, 4)
    for W, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(W, other, rtol=0, atol=1e-8)


def test_without_biases_the_network_is_homogeneous():
    layers = WITHOUT_BIASES
    weights = small_weights(layers=layers)
    (x, _) = images(3)
    outputs = networks.forward(layers, weights, x)[0]
    degree = len(layers)
    np.testing.assert_allclose(
        networks.forward(layers, [2 * W for W in weights], x)[0], 2**degree * outputs, rtol=1e-12
    )


def test_training_learns_and_is_decided_by_its_seed():
    x, y = images(12)
    x = x.astype(np.float32)
    reached = networks.train(SMALL, x, y, (0, 3, 200), 5, 0.1, 4)
    assert list(reached) == [0, 3, 200] and reached[200][0].dtype == np.float32
    layers = SMALL
    start, end = (loss(layers, reached[epoch], x, y) for epoch in (0, 200))
    assert start > 2 and end < 0.8 * start  # by how much, rounding decides in so few steps
    for W, again, other in zip(
        reached[3],
        networks.train(SMALL, x, y, (3,), 5, 0.1, 4)[3],
        networks.train(SMALL, x, y, (3,), 6, 0.1, 4)[3],
        strict=True,
    ):
        assert np.array_equal(W, again) and not np.allclose(W, other)
    for W, first in zip(
        reached[0], networks.initial_weights(layers, 3, np.random.default_rng(5)), strict=True
    ):
        assert np.array_equal(W, first)  # a copy: training has not moved it


# ----------------------------------------------------------------------------------------------------------------------
# The kernel
# ----------------------------------------------------------------------------------------------------------------------


def jacobian(layers, weights, x):
    """df_c(x)/dw by differences, (n, classes, parameters): exact where no ReLU or pool switches between the two."""
    by_layer = slopes_by_differences(lambda: networks.forward(layers, weights, x)[0], weights)
    return np.moveaxis(np.concatenate(by_layer), 0, -1)


@pytest.mark.parametrize("layers", [SMALL, WITHOUT_BIASES])
@pytest.mark.parametrize("few", [0, 1, 10**6])
def test_the_kernel_is_that_of_the_jacobian(few, layers, monkeypatch):
    """The network is linear in each single weight between its kinks, so that differences are exact but for rounding."""
    monkeypatch.setattr(networks, "FEW", few)
    monkeypatch.setattr(networks, "BLOCK", 2)
    weights = small_weights(layers=layers)
    (x, _) = images(3, seed=2)
    (others, _) = images(2, seed=3)
    expected = np.einsum(
        "ncw,mcw->nm", *(jacobian(layers, weights, points) for points in (x, others))
    )
    K, outputs = networks.tangent_kernel(layers, weights, x, others)
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(outputs, networks.forward(layers, weights, x)[0], rtol=1e-12)


def test_the_kernel_in_float32_is_that_in_float64_to_its_digits():
    x = images(7, size=32)[0].astype(np.float32)
    layers = networks.ALEXNET
    weights = networks.initial_weights(layers, 3, np.random.default_rng(0))
    K, _ = networks.tangent_kernel(layers, weights, x, x[:4])
    precise, _ = networks.tangent_kernel(
        layers, [W.astype(float) for W in weights], x.astype(float), x[:4].astype(float)
    )
    assert K.dtype == np.float32 and precise.dtype == np.float64
    np.testing.assert_allclose(K, precise, rtol=1e-5)
    assert not np.array_equal(K, precise)


# ----------------------------------------------------------------------------------------------------------------------
# ji21:fig4
# ----------------------------------------------------------------------------------------------------------------------


def test_predictors_see_features_of_length_1(monkeypatch):
    """The kernel <z, z'> of unit vectors z, each times a length: the margin is that of the unit vectors."""
    rng = np.random.default_rng(0)
    y, y_test = (rng.integers(0, 10, n) for n in (128, 500))
    Z, Z_test = (
        np.eye(10)[labels] + 0.3 * rng.normal(size=(len(labels), 10)) for labels in (y, y_test)
    )
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    long, longer = (np.exp(rng.normal(size=(n, 1))) * 100 for n in (128, 500))
    outputs = np.eye(10)[(y_test + (np.arange(500) < 200)) % 10]  # a network that errs 200 times
    X, X_test = (rng.normal(size=(n, 32, 32, 3)).astype(np.float32) for n in (128, 500))

    def tangent_kernel(layers, weights, points, X_train):
        if len(points) == 128:
            return (long * Z) @ (long * Z).T, np.eye(10)[y]
        return (longer * Z_test) @ (long * Z).T, outputs

    monkeypatch.setattr(networks, "tangent_kernel", tangent_kernel)
    monkeypatch.setattr(networks, "train", lambda *_: {0: None, 8: None})
    rows = rp.kernel_rows(("with biases", 4), 2**13, (0, 8), 0.1, 16, X, y, X_test, y_test)
    assert [row["epoch"] for row in rows] == [0, 8]
    best = fm.max_margin(fm.pair_gram(Z @ Z.T, y, 10))
    assert best.lower > 0
    T = np.zeros((10, 128))
    pairs = [(i, j) for i in range(128) for j in range(10) if j != y[i]]
    for weight, (i, j) in zip(best.alpha, pairs, strict=True):
        T[y[i], i] += weight
        T[j, i] -= weight
    error = np.mean((Z_test @ (T @ Z).T).argmax(axis=1) != y_test)
    assert 0 < error < 0.5
    for row in rows:
        assert row["kernel_error"] == pytest.approx(error, abs=2 / 500)
        assert row["network_error"] == 0.4
        assert row["change"] == 0
        assert row["sampling_error"][-1] == pytest.approx(error, abs=0.05)


def test_the_error_of_a_change_is_that_of_pairs(monkeypatch):
    """Of images that were right and are wrong, or the other way round: pairs tell more than two samples."""
    rng = np.random.default_rng(0)
    y, y_test = (rng.integers(0, 10, n) for n in (128, 1000))
    wrong = rng.random(1000) < 0.7
    other = np.where(rng.random(1000) < 0.9, wrong, rng.random(1000) < 0.5)
    epochs = iter((wrong, other))
    X, X_test = (np.zeros((n, 1)) for n in (128, 1000))

    def tangent_kernel(layers, weights, points, X_train):
        if len(points) == 128:
            return np.eye(10)[y] @ np.eye(10)[y].T, np.eye(10)[y]
        labels = (y_test + next(epochs)) % 10
        return np.eye(10)[labels] @ np.eye(10)[y].T, np.eye(10)[labels]

    monkeypatch.setattr(networks, "tangent_kernel", tangent_kernel)
    monkeypatch.setattr(networks, "train", lambda *_: {0: None, 8: None})
    first, last = rp.kernel_rows(("with biases", 4), 64, (0, 8), 0.1, 16, X, y, X_test, y_test)
    assert (first["change"], first["change_error"]) == (0, 0)
    assert (first["kernel_error"], last["kernel_error"]) == (wrong.mean(), other.mean())
    change = last["change"]
    doubt = last["change_error"]
    assert change == pytest.approx(other.mean() - wrong.mean(), abs=1e-12)
    assert doubt == pytest.approx(np.sqrt((np.mean(wrong != other) - change**2) / 999), rel=1e-12)
    assert doubt < np.sqrt(wrong.var() / 1000 + other.var() / 1000)


# ----------------------------------------------------------------------------------------------------------------------
# The KKT gap
# ----------------------------------------------------------------------------------------------------------------------

TWO_LAYERS = networks.without_biases([networks.Layer(3), networks.Layer(1)])


def signed_points(problem, n, rng):
    """Random images for a network of the figure, with both labels."""
    layers = studies.KKT_NETWORKS[problem]
    size = layers[0].side if problem != "MNIST, convolutional" else 14
    X = rng.normal(size=(n, size, size, 2 if size == 1 else 1))
    return layers, X, np.where(np.arange(n) % 2, 1.0, -1.0)


def random_theta(shapes, rng):
    return np.concatenate([rng.normal(size=shape).ravel() / shape[0] ** 0.5 for shape in shapes])


def three_units(lengths):
    """Three points at 120 degrees, the unit j along x_j with the last weight y_j / lengths[j]: m = 1, and no kink."""
    angles = 2 * np.pi * np.arange(3) / 3 + 0.1
    X = np.column_stack((np.cos(angles), np.sin(angles)))
    y = np.array([1.0, -1.0, 1.0])
    theta = np.concatenate(((lengths * X.T).ravel(), y / lengths))
    return X[:, None, None], y, theta


def gaps_of(layers, X, y, theta, tol=1e-6):
    """{norm: (lower, upper)}, Z and m."""
    margins, Z, _ = studies.tangent_rows(layers, theta, X, y)
    shapes = studies.layer_shapes(layers, X.shape[-1])
    gaps = {name: studies.kkt_gap(name, shapes, Z, theta, tol) for name in studies.KKT_NORMS}
    return gaps, Z, margins.min()


@pytest.mark.parametrize("problem", studies.KKT_NETWORKS)
def test_tangent_rows_are_derivatives(problem):
    """Finite differences along any direction, and Euler: Z theta = L y f."""
    rng = np.random.default_rng(1)
    layers, X, y = signed_points(problem, 6, rng)
    shapes = studies.layer_shapes(layers, X.shape[-1])
    theta = random_theta(shapes, rng)
    margins, Z, kinks = studies.tangent_rows(layers, theta, X, y)
    assert kinks == 0
    assert np.allclose(Z @ theta, len(layers) * margins, rtol=1e-12, atol=1e-12)
    h = 1e-6
    for _ in range(5):
        v = rng.normal(size=theta.shape)
        ahead, behind = (studies.tangent_rows(layers, theta + t * v, X, y)[0] for t in (h, -h))
        assert np.allclose((ahead - behind) / (2 * h), Z @ v, rtol=1e-5, atol=1e-5)
    c = 1.7
    longer = studies.tangent_rows(layers, c * theta, X, y)
    assert np.allclose(longer[0], c ** len(layers) * margins, rtol=1e-12)
    assert np.allclose(longer[1], c ** (len(layers) - 1) * Z, rtol=1e-12)


@pytest.mark.parametrize("method", studies.TRAINERS)
@pytest.mark.parametrize("problem", ["plane, two layers", "MNIST, convolutional"])
def test_a_step_goes_along_the_gradient_of_the_loss(problem, method):
    """The first steps have the length that is relative to N(theta), later ones that of the loss."""
    layers, X, y = signed_points(problem, 6, np.random.default_rng(2))
    shapes = studies.layer_shapes(layers, X.shape[-1])
    name, momentum = studies.TRAINERS[method]
    norm = studies.network_norm(name, shapes)
    run = studies.train_homogeneous(method, layers, X, y, [1, 2, 600, 601], 0)
    seen = dict(run)
    for t, is_relative in ((1, True), (600, False)):
        before = seen[t]
        step = seen[t + 1] - before
        margins, Z, _ = studies.tangent_rows(layers, before, X, y)
        q = np.exp(margins.min() - margins)
        u = q @ Z / q.sum()
        by_loss = 1 / ((t + 1) ** 0.5 * norm.dual(u))
        by_size = studies.LONGEST_MOVE * norm.value(before)
        assert (by_size < by_loss) == is_relative
        if method == "Adam":
            assert (step @ u > 0) or t > 1
            continue
        length = norm.value(step)
        assert length == pytest.approx(min(by_loss, by_size), rel=1e-6)
        if momentum == 0:
            assert step @ u == pytest.approx(length * norm.dual(u), rel=1e-6)


def test_adam_moves_as_its_authors_say():
    rng = np.random.default_rng(3)
    move = networks.adam_moves((4,))
    first, second = np.zeros((2, 4))
    for t in range(1, 30):
        u = rng.normal(size=4)
        first = 0.9 * first + 0.1 * u
        second = 0.99 * second + 0.01 * u**2
        expected = 0.3 * (first / (1 - 0.9**t)) / np.sqrt(second / (1 - 0.99**t))
        assert np.allclose(move(0.3, u), expected, rtol=1e-12)


def test_the_largest_layer_is_a_norm():
    rng = np.random.default_rng(4)
    shapes = [(5, 3), (3, 4), (4, 1)]
    norm = studies.largest_layer(shapes)
    size = sum(a * b for a, b in shapes)
    for _ in range(20):
        v, u = rng.normal(size=(2, size))
        tables = studies.tables_of(shapes, v)
        assert np.array_equal(np.concatenate([W.ravel() for W in tables]), v)
        exact = max(np.linalg.norm(W, 2) for W in tables)
        assert exact <= norm.value(v) <= exact * (1 + 1e-10)
        assert v @ u <= norm.value(v) * norm.dual(u)
        steepest = norm.steepest(u)
        assert norm.value(steepest) <= 1 + 1e-10
        assert steepest @ u == pytest.approx(norm.dual(u), rel=1e-9)
        x = 0.3 * v
        nearest = norm.project(x)
        assert norm.value(nearest) <= 1 + 1e-10
        for other in (steepest, x / max(1, norm.value(x))):
            assert (x - nearest) @ (other - nearest) <= 1e-9
        assert np.linalg.norm(steepest) <= norm.radius((size,)) * (1 + 1e-10)
        for name in studies.KKT_NORMS[1:]:
            least = studies.size_from_below(name, shapes, v)
            value = studies.network_norm(name, shapes).value(v)
            assert value * (1 - 1e-8) <= least <= value


def test_a_kkt_point_has_no_gap():
    """Units of equal parts are a KKT point in l2: w_j = x_j and a_j = y_j, with the multipliers 1."""
    X, y, theta = three_units(np.ones(3))
    gaps, Z, m = gaps_of(TWO_LAYERS, X, y, theta)
    assert m == pytest.approx(1)
    assert np.allclose(Z.sum(axis=0), theta)  # so the condition holds with multipliers 1
    lower, upper = gaps["length of all weights"]
    assert 0 <= lower <= upper <= 2e-6
    for name in ("largest weight", "largest layer"):
        assert gaps[name][0] > 0.01, name


def test_a_point_that_is_no_kkt_point_has_a_gap():
    """One unit and the point (1, 0): w = (1/2, 0) and a = 2 have the row (2, 0, 1/2), whose dual norms are known."""
    layers = networks.without_biases([networks.Layer(1), networks.Layer(1)])
    X = np.array([[[[1.0, 0.0]]]])
    gaps, Z, m = gaps_of(layers, X, np.ones(1), np.array([0.5, 0.0, 2.0]))
    assert np.array_equal(Z, [[2.0, 0.0, 0.5]])
    assert m == 1
    for name, exact in zip(studies.KKT_NORMS, (1 - 2 / 4.25, 1 - 2 / 5, 1 - 2 / 5), strict=True):
        lower, upper = gaps[name]
        assert lower <= exact <= upper <= lower + 3e-6, name
    balanced, _, _ = gaps_of(layers, X, np.ones(1), np.array([1.0, 0.0, 1.0]))
    assert all(upper <= 2e-6 for _, upper in balanced.values())


def test_units_at_the_kink_are_counted():
    corners = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    layers = networks.without_biases([networks.Layer(4), networks.Layer(1)])
    y = corners.prod(axis=1)
    theta = np.concatenate((corners.T.ravel(), y))
    X = np.vstack((corners, [[0.0, 0.0]]))[:, None, None]
    margins, _, kinks = studies.tangent_rows(layers, theta, X, np.append(y, 1.0))
    assert np.array_equal(margins, [2.0, 2.0, 2.0, 2.0, 0.0])
    assert (
        kinks == 8
    )  # every unit is at 0 for two corners; that it is at 0 for the point 0 is no kink


def trained_examples():
    """Networks that separate their points, but are not yet at KKT points, and the three units at one."""
    rng = np.random.default_rng(5)
    corners = rng.choice([-1.0, 1.0], (12, 2))
    X = (corners * rng.uniform(0.3, 1.0, (12, 2)))[:, None, None]
    y = corners.prod(axis=1)
    for method in ("gradient descent", "Adam", "Muon"):
        for hidden in ([networks.Layer(32)], [networks.Layer(16), networks.Layer(16)]):
            layers = networks.without_biases([*hidden, networks.Layer(1)])
            *_, (_, theta) = studies.train_homogeneous(method, layers, X, y, [200], 0)
            yield layers, X, y, theta
    for lengths in (np.ones(3), np.array([1.0, 1.3, 0.8])):
        yield TWO_LAYERS, *three_units(lengths)


def test_the_gap_in_l2_bounds_the_kkt_conditions():
    """Point 4 of "KKT gap of a homogeneous network" in figures/THEOREMS.md, in both directions."""
    rng = np.random.default_rng(6)
    cases = 0
    for layers, X, y, theta in trained_examples():
        L = len(layers)
        m = studies.tangent_rows(layers, theta, X, y)[0].min()
        assert m > 0
        theta = theta * m ** (-1 / L)
        margins, Z, _ = studies.tangent_rows(layers, theta, X, y)
        assert margins.min() == pytest.approx(1)
        size = np.linalg.norm(theta)
        best = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-10)
        delta = 1 - L / (size * best.upper)
        u = best.p @ Z
        rho = np.linalg.norm(u)
        weights = best.p * (u @ theta) / rho**2
        distance = np.linalg.norm(theta - weights @ Z)
        slack = weights @ (margins - 1)
        assert distance <= math.sqrt(2 * delta - delta**2) * size + 1e-6
        assert slack <= delta * size**2 / L + 1e-7
        for _ in range(20):
            other = weights * rng.uniform(0.9, 1.1, len(y))
            e = np.linalg.norm(theta - other @ Z) / size
            if e < 1:
                s = other @ (margins - 1)
                bound = 1 - math.sqrt(1 - e**2) + L * s / ((1 - e) * size**2)
                assert delta <= bound + 1e-9
                cases += 1
    assert cases > 50


def size_over_margin(norm, layers, X, y, theta):
    """ln(N(theta) / m^(1/L)), which the margin problem minimizes."""
    m = studies.tangent_rows(layers, theta, X, y)[0].min()
    return math.log(norm.value(theta)) - math.log(m) / len(layers)


def test_the_gap_bounds_the_rise_of_the_normalised_margin():
    """Point 5 there: along the best separator of the rows ln(N / m^(1/L)) falls at least at the rate that the gap says.

    At a KKT point it falls in no direction.
    """
    rng = np.random.default_rng(7)
    h = 1e-7
    falls = {name: 0 for name in studies.KKT_NORMS}
    for layers, X, y, theta in trained_examples():
        shapes = studies.layer_shapes(layers, X.shape[-1])
        gaps, Z, _ = gaps_of(layers, X, y, theta)
        for name in studies.KKT_NORMS:
            norm = studies.network_norm(name, shapes)
            objective = functools.partial(size_over_margin, norm, layers, X, y)
            lower, upper = gaps[name]
            if upper <= 2e-6:
                for v in rng.normal(size=(20, theta.size)):
                    assert objective(theta + h * v) >= objective(theta) - 1e-9
                continue
            w = fm.norm_margin(Z, norm, tol=1e-6).alpha
            w = w / norm.value(w)
            rate = (objective(theta + h * w) - objective(theta)) / h
            assert rate <= -0.99 * lower / ((1 - lower) * norm.value(theta)), name
            falls[name] += 1
    assert min(falls.values()) >= 6


def test_gaps_of_trained_networks_are_certified_and_short(quick):
    table = quick.table("kkt")
    assert (table["lower"] >= 0).all()
    assert (table["lower"] <= table["upper"]).all()
    assert (table["upper"] < 1).all()
    assert (table["upper"] - table["lower"] <= 0.031).all()
    assert set(table["problem"]) == set(studies.KKT_NETWORKS)
    assert set(table["method"]) == set(studies.TRAINERS)
    assert set(table["own"]) == set(table["norm"]) == set(studies.KKT_NORMS)
    assert table["kinks"].sum() == 0
