"""Our own studies: figures beyond the three papers, drawn by `python reproduce.py NAME` as the papers' are.

How a figure is written stands in reproduce.py, section Figures.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

import fastmargin as fm
from figures.networks import (
    Layer,
    adam_moves,
    backward,
    forward,
    gradient,
    image_gradients,
    initial_weights,
    steepest_moves,
    without_biases,
)
from reproduce import (
    BLUE,
    LOOKS,
    SKY,
    figure,
    groups,
    in_processes,
    plain,
    spaced,
    where,
)


def quadrants(run):
    """Draw 500 points of the plane, labelled by the sign of the product of their coordinates."""
    X = run.rng().normal(size=(500, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1, -1)


@figure(
    "front",
    "momentum knows the margin to {percent} % after {slow} products, max_margin to nine digits after {fast} of one",
    minutes=0.05,
    height=2.8,
    steps=10_000,
    quick={"steps": 1000},
)
def front(run, steps):
    """Data: 500 points of the plane, labelled by the sign of x₁x₂, Gaussian kernel. A product reads the 500 × 500
    matrix; max_margin reads only some of its entries. Largest margin ρ: what the best separator keeps from all points.

    Points of N(0, 1), γ = 1/(d Var X), K(x, x) = 1, seed {seed}; a product counts as n² entries of G.
    """
    X, y = quadrants(run)
    G = fm.gram(X, y, kernel="rbf")
    slow = fm.momentum(G, max_iter=steps, trace_at=spaced(steps)).trace[1:]
    exact = fm.max_margin(G, tol=1e-9).trace[-1:]
    for method, trace in (("momentum", slow), ("max_margin", exact)):
        yield {
            "method": method,
            "products": trace["products"],
            "lower": trace["lower"],
            "upper": trace["upper"],
        }


@front.draw
def _(table, ax):
    slow = where(table, method="momentum")
    exact = where(table, method="max_margin")
    x = slow["products"]
    band = {"color": SKY, "alpha": 0.3, "linewidth": 0}
    ax.fill_between(x, slow["lower"], slow["upper"], label="momentum: ρ lies in here", **band)
    for end in ("lower", "upper"):
        ax.plot(x, slow[end], color=BLUE, linestyle="-")
    ends = np.append(exact["products"], x[-1])
    margin = exact["lower"][0]
    look = LOOKS["max_margin"] | {"marker": "o", "markevery": [0]}
    ax.plot(ends, [margin, margin], label="max_margin: ρ from here on", **look)
    ax.set(xscale="log", xlim=(0.1, x[-1]), ylim=(-2 * margin, 6 * margin))
    ax.set(xlabel="products: kernel matrix times vector", ylabel="largest margin ρ")
    plain(ax.xaxis)


@front.numbers
def _(table):
    slow = where(table, method="momentum")
    exact = where(table, method="max_margin")
    gap = 1 - slow["lower"][-1] / slow["upper"][-1]
    return {
        "percent": f"{100 * gap:.2g}",
        "slow": f"{slow['products'][-1]:,.0f}",
        "fast": f"{exact['products'][0]:.2g}",
    }


# ======================================================================================================================
# Attention
#
# Attention gives the tokens x_t of a sequence the weights s = softmax(X W z) for a query z. Training makes it select
# one token a of each sequence i. The rows (x_(i,a) - x_(i,t)) z_i', for t != a, have the margins by which it does.
# ======================================================================================================================

SELECTORS = {  # the norm of each; the last one trains the factors of W = K Q'
    "gradient descent": "ℓ2",
    "sign descent": "ℓ∞",
    "spectral descent": "spectral",
    "descent on K and Q": "nuclear",
}
TOKEN_NORMS = {"ℓ2": "l2", "ℓ∞": "linf", "spectral": "spectral", "nuclear": "nuclear"}
SETTLED = 0.99  # attention of the chosen tokens, from which on a run has selected one
PACE = 10.0  # a step changes a margin by at most PACE / sqrt(t)
WARM_UP = 100  # steps that grow, so that the first ones select no token yet


class Sequences(NamedTuple):
    """Sequences of tokens, their queries and labels, and the head h(x) = sum_j c_j f(<u_j, x>), f(s) = s or max(s, 0).

    X : array, shape (n, T, d)
    z : array, shape (n, d)
    y : array, shape (n,), -1 or 1
    U, c : arrays, shapes (width, d), (width,)
    is_linear : bool
    """

    X: np.ndarray
    z: np.ndarray
    y: np.ndarray
    U: np.ndarray
    c: np.ndarray
    is_linear: bool

    def head(self, points):
        """Return h and its gradient at points, (n, d)."""
        hidden = points @ self.U.T
        gates = np.ones(hidden.shape) if self.is_linear else 1.0 * (hidden > 0)
        return (gates * hidden) @ self.c, (gates * self.c) @ self.U


def unit(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def drawn_sequences(tokens, d, is_linear, rng):
    """Draw tokens and queries on the sphere. To one token of each sequence y v is added, v the head's direction.

    Under the ReLU head it is 3 y v: with y v most runs attend to mixtures of tokens to the end.
    """
    X = unit(rng.normal(size=(tokens, tokens, d)))
    z = unit(rng.normal(size=(tokens, d)))
    y = rng.choice((-1.0, 1.0), tokens)
    v = unit(rng.normal(size=d))
    size = 1.0 if is_linear else 3.0
    X[np.arange(tokens), rng.integers(tokens, size=tokens)] += size * y[:, None] * v
    if is_linear:
        return Sequences(X, z, y, v[None], np.ones(1), True)
    U = rng.normal(size=(4 * d, d)) / math.sqrt(d)
    return Sequences(X, z, y, U, np.sign(U @ v) / math.sqrt(4 * d), False)


def image_sequences(images, y, d, rng):
    """Make sequences of images: tokens are 16 patches, in their first d principal components, plus random positions.

    A query is the mean token. The head is that of the soft margin of these, C = 1.
    """
    n = len(images)
    patches = images.reshape(n, 4, 7, 4, 7).swapaxes(2, 3).reshape(n * 16, 49)
    patches = patches - patches.mean(axis=0)
    components = np.linalg.svd(patches, full_matrices=False)[2][:d]
    X = (patches @ components.T).reshape(n, 16, d)
    X /= np.linalg.norm(X, axis=2).max()
    X += unit(rng.normal(size=(16, d)))
    means = X.mean(axis=1)
    G = fm.features(means, y, normalize=None, ridge=0.5)
    v = unit(G.separators(fm.max_margin(G).alpha[None])[0])
    return Sequences(X, unit(means), y.astype(float), v[None], np.ones(1), True)


def token_margins(W, sequences):
    """Return the token with the most attention in each sequence, and how far the logits of the others are below."""
    logits = np.einsum("ntd,nd->nt", sequences.X, sequences.z @ W.T)
    return logits.argmax(axis=1), logits.max(axis=1, keepdims=True) - logits


def attention_gradient(W, sequences):
    """Return (g, low): minus the gradient of the mean logistic loss of y h(X's) is g e^-low.

    The entry of the chosen token is minus the sum of the others, and e^-low is left out: so nothing cancels or
    underflows when the attention is all but on one token.
    """
    X, z, y = sequences[:3]
    each = np.arange(len(X))
    chosen, m = token_margins(W, sequences)
    small = np.exp(-m)
    total = small.sum(axis=1)
    attended = np.einsum("nt,ntd->nd", small / total[:, None], X)
    value, slope = sequences.head(attended)
    pull = y / (1.0 + np.exp(y * value)) / len(y)
    gains = np.einsum("ntd,nd->nt", X, pull[:, None] * slope)
    mean = (small * gains).sum(axis=1) / total
    m[each, chosen] = np.inf
    low = m.min()
    small = np.exp(low - m)
    of_logits = small * (gains - mean[:, None]) / total[:, None]
    of_logits[each, chosen] = -of_logits.sum(axis=1)
    return np.einsum("nt,ntd->nd", of_logits, X).T @ z, low


def trained_attention(optimiser, sequences, steps, seed):
    """Return W after these steps of an optimiser, from W = 0, or from small random K and Q."""
    norm = TOKEN_NORMS[SELECTORS[optimiser]]
    X, z = sequences[:2]
    d = X.shape[2]
    apart = (X[:, :, None] - X[:, None]).reshape(-1, d)
    p = 1 if norm == "linf" else 2  # of the dual norm of a row, which has rank 1
    longest = np.linalg.norm(apart, p, axis=1).max() * np.linalg.norm(z, p, axis=1).max()
    pace = PACE / longest
    W = np.zeros((d, d))
    K, Q = 0.1 / math.sqrt(d) * np.random.default_rng(seed).normal(size=(2, d, d))
    for t in range(1, steps + 1):
        step = min(1.0, t / WARM_UP) / math.sqrt(t)
        if norm == "nuclear":
            g, _ = attention_gradient(K @ Q.T, sequences)
            slopes = np.stack((g @ Q, g.T @ K))
            K, Q = (K, Q) + math.sqrt(pace) * step * slopes / np.linalg.norm(slopes)
        else:
            g, _ = attention_gradient(W, sequences)
            W += pace * step * fm.NORMS[norm].steepest(g)
    return K @ Q.T if norm == "nuclear" else W


def token_rows(sequences, chosen):
    """Return the rows (x_a - x_t) z' of all sequences and t != a, (n (T - 1), d, d)."""
    X, z = sequences[:2]
    sequence, other = np.nonzero(np.arange(X.shape[1]) != chosen[:, None])
    apart = X[sequence, chosen[sequence]] - X[sequence, other]
    return apart[:, :, None] * z[sequence][:, None, :]


def selection_rows(job, steps, tol):
    """Train attention, job = (problem, seed, sequences), and return the rows: shares of the largest margins."""
    problem, seed, sequences = job
    known = {}
    start = {}
    rows = []
    for optimiser, own in SELECTORS.items():
        W = trained_attention(optimiser, sequences, steps, seed)
        chosen, m = token_margins(W, sequences)
        attention = 1.0 / np.exp(-m).sum(axis=1).max()
        Z = token_rows(sequences, chosen)
        tokens = chosen.tobytes()
        if tokens not in known:
            known[tokens] = {
                norm: fm.norm_margin(Z, name, tol=tol, start=start.get(norm))
                for norm, name in TOKEN_NORMS.items()
            }
            start = {norm: (best.alpha, best.p) for norm, best in known[tokens].items()}
        for norm, best in known[tokens].items():
            margin, _ = fm.norm_certificate(Z, TOKEN_NORMS[norm], W, best.p)
            row = {
                "problem": problem,
                "optimiser": optimiser,
                "own": own,
                "norm": norm,
                "seed": seed,
                "settled": int(attention >= SETTLED),
                "share": margin / best.upper,
            }
            rows.append(row)
    return rows


@figure(
    "attention",
    "Attention comes nearest to the largest margin of its tokens in its optimiser's norm, in {own} of {settled} runs",
    minutes=7,
    data="mnist",
    panels=(1, 3),
    height=2.9,
    seeds=10,
    tokens=32,
    images=64,
    components=32,
    steps=3000,
    tol=1e-3,
    quick={"seeds": 2, "tokens": 8, "images": 8, "components": 8, "steps": 400, "tol": 1e-1},
)
def attention(run, seeds, tokens, images, components, steps, tol):
    """Data: random tokens or patches of MNIST digits, {seeds} draws. Cells: margin of the tokens that attention settles
    on, in a norm of its matrix W = KQᵀ, as a share of the largest possible; framed: the norm of the optimiser's steps.

    Margin: the least lead of the score of the chosen token of a sequence over another's, ÷ the norm of W. Medians of
    the runs that settle, with 99 % of the attention on one token in every sequence, rounded down; largest margins are
    certified to {tol:g}. Loss: the mean of ln(1 + exp(−y h(Xᵀ softmax(X W z)))) with a fixed head h. Random: {tokens}
    sequences of as many tokens, tokens and queries z on the sphere, {seeds} draws from seed {seed} on. Linear head: ⟨v,
    x⟩, y v added to one token; ReLU head: {tokens} × 4 units whose signs agree with v, 3 y v added. MNIST 3 vs 5:
    {images} images a draw, 16 patches in {components} principal components plus random positions; queries: mean tokens;
    head: their soft margin, C = 1. {steps:,} steps of 10 min(1, t/100)/(longest row √t) from W = 0; those of K and Q
    are the root of the length, from small random ones.
    """
    X, y, *_ = run.mnist(3, 5)
    order = np.random.default_rng(5).permutation(len(y))
    jobs = []
    for k in range(seeds):
        seed = run.seed + k
        for head in ("linear", "ReLU"):
            is_linear = head == "linear"
            rng = np.random.default_rng((seed, tokens, is_linear))
            sequences = drawn_sequences(tokens, tokens, is_linear, rng)
            jobs.append((f"{head} head, {tokens} tokens", seed, sequences))
        few = order[images * k : images * (k + 1)]
        sequences = image_sequences(X[few], y[few], components, np.random.default_rng(seed))
        jobs.append(("MNIST patches, 16 tokens", seed, sequences))
    for rows in in_processes(run, selection_rows, jobs, steps, tol):
        yield from rows


@attention.draw
def _(table, *axes):
    """Draw a table of median shares for each problem: rows are optimisers, columns norms."""
    for ax, (problem, part) in zip(axes, groups(table, "problem"), strict=True):
        optimisers = groups(part, "optimiser")
        norms = [norm for norm, _ in groups(part, "norm")]
        shares = np.full((len(optimisers), len(norms)), math.nan)
        for i, j in np.ndindex(shares.shape):
            runs = where(optimisers[i][1], norm=norms[j], settled=1)
            if len(runs["share"]):
                shares[i, j] = math.floor(100 * np.median(runs["share"])) / 100
                frame = {"facecolor": "none"} if norms[j] == runs["own"][0] else None
                ax.text(j, i, f"{shares[i, j]:.2f}", ha="center", va="center", bbox=frame)
        ax.imshow(shares, cmap="Greys", vmin=0, vmax=2, aspect="auto")
        ax.grid(False)
        ax.set_xticks(range(len(norms)), norms, fontsize=8)
        ax.set_yticks(range(len(optimisers)), [optimiser for optimiser, _ in optimisers])
        settled = where(part, norm=norms[0])["settled"]
        ax.set(title=f"{problem}:\n{sum(settled):.0f} of {len(settled)} runs settle")
        ax.set(xlabel="norm of the margin", ylabel="optimiser")
        ax.label_outer()


@attention.numbers
def _(table):
    runs = where(table, settled=1)
    own = runs["share"][runs["norm"] == runs["own"]]
    largest = runs["share"].reshape(len(own), -1).max(axis=1)
    return {"own": f"{sum(own == largest)}", "settled": f"{len(own)}"}


# ======================================================================================================================
# The KKT gap of networks
#
# Networks without biases are homogeneous: f(c theta) = c^L f(theta) for c > 0, with L layers. The tangent rows of theta
# are z_i = y_i df(x_i)/dtheta. Up to its length, a theta that separates the points is a KKT point of the margin problem
# in a norm N exactly if it has the largest margin of its own tangent rows: see "KKT gap of a homogeneous network" in
# figures/THEOREMS.md. theta is a vector; the norm "largest layer" is the largest spectral norm of a layer.
# ======================================================================================================================

KKT_NETWORKS = {
    "plane, two layers": without_biases([Layer(32), Layer(1)]),
    "MNIST, two layers": without_biases([Layer(32, 14), Layer(1)]),
    "MNIST, three layers": without_biases([Layer(32, 14), Layer(16), Layer(1)]),
    "MNIST, convolutional": without_biases([Layer(8, 4, stride=2), Layer(16, 6), Layer(1)]),
}
KKT_NORMS = ("length of all weights", "largest weight", "largest layer")
TRAINERS = {  # the norm of each, and its momentum
    "gradient descent": ("length of all weights", 0.0),
    "gradient descent with momentum": ("length of all weights", 0.9),
    "sign descent": ("largest weight", 0.0),
    "Adam": ("largest weight", 0.9),
    "spectral descent": ("largest layer", 0.0),
    "Muon": ("largest layer", 0.9),
}
LONGEST_MOVE = 0.01  # of a step, over N(theta)


def layer_shapes(layers, channels):
    """Return the shapes of the weights of each layer, for images of so many channels."""
    shapes = []
    for layer in layers:
        shapes.append((layer.side**2 * channels, layer.channels))
        channels = layer.channels
    return shapes


def tables_of(shapes, theta):
    """Return the weights of each layer, views of theta."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(theta, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def largest_layer(shapes):
    """Return the norm of theta that is the largest spectral norm of a layer: its dual is the sum of nuclear norms."""
    layer = fm.NORMS["spectral"]

    def each(change):
        return lambda v: np.concatenate([change(W).ravel() for W in tables_of(shapes, v)])

    return fm.Norm(
        value=lambda v: max(map(layer.value, tables_of(shapes, v))),
        dual=lambda u: sum(map(layer.dual, tables_of(shapes, u))) * (1 + 1e-12),
        project=each(layer.project),
        steepest=each(layer.steepest),
        radius=lambda _: math.hypot(*map(layer.radius, shapes)) * (1 + 1e-12),
    )


def network_norm(name, shapes):
    if name == "largest layer":
        return largest_layer(shapes)
    return fm.NORMS["l2" if name == "length of all weights" else "linf"]


def size_from_below(name, shapes, theta):
    """Return a number below the largest weight or the largest layer of theta, by 1e-9 of it at most."""
    if name == "largest weight":
        return np.abs(theta).max()
    sizes = []
    for W in tables_of(shapes, theta):
        v = np.linalg.svd(W, full_matrices=False)[2][0]
        sizes.append(np.linalg.norm(W @ v) / np.linalg.norm(v))
    return max(sizes) * (1 - 1e-9)


def network_pass(layers, theta, X, y):
    """Return the margins y f, and the Pass of each layer and its weights for `backward`."""
    shapes = layer_shapes(layers, X.shape[-1])
    weights = [np.vstack((W, np.zeros(W.shape[1]))) for W in tables_of(shapes, theta)]
    outputs, passes = forward(layers, weights, X)
    return y * outputs[:, 0], passes, weights


def tangent_rows(layers, theta, X, y):
    """Return y f, the rows z_i = y_i df(x_i)/dtheta, and how many units are at the kink of ReLU.

    A unit whose inputs are all 0 is at none: they are 0 near theta as well.
    """
    margins, passes, weights = network_pass(layers, theta, X, y)
    deltas = backward(layers, weights, passes, y[:, None, None])
    rows = []
    kinks = 0
    for layer, W, seen, delta in zip(layers, weights, passes, deltas, strict=True):
        rows.append(image_gradients(layer, seen, delta)[:, :-1].reshape(len(X), -1))
        if layer is not layers[-1]:
            at_zero = np.tensordot(seen.patches, W[:-1], 1) == 0
            kinks += np.sum(at_zero & seen.patches.any(axis=-1, keepdims=True))
    return margins, np.hstack(rows), kinks


def train_homogeneous(method, layers, X, y, looks, seed):
    """Yield theta_t at these t: full batches, loss ln sum_i exp(-y_i f(x_i)).

    With the gradient -u a step has the length min(1 / (sqrt(t) N*(u)), LONGEST_MOVE N(theta)): so it lowers the loss by
    1 / sqrt(t) at most, to first order.
    """
    name, momentum = TRAINERS[method]
    norm = network_norm(name, layer_shapes(layers, X.shape[-1]))
    start = initial_weights(layers, X.shape[-1], np.random.default_rng(seed))
    theta = np.concatenate([W[:-1].ravel() for W in start]).astype(float)
    move = steepest_moves(norm, momentum, theta.shape)
    if method == "Adam":
        move = adam_moves(theta.shape)
    for t in range(1, looks[-1] + 1):
        margins, passes, weights = network_pass(layers, theta, X, y)
        q = np.exp(margins.min() - margins)
        slopes = y * q / q.sum()
        deltas = backward(layers, weights, passes, slopes[:, None, None])
        parts = map(gradient, layers, passes, deltas)
        u = np.concatenate([part[:-1].ravel() for part in parts])
        length = 1 / (math.sqrt(t) * norm.dual(u))
        theta += move(min(length, LONGEST_MOVE * norm.value(theta)), u)
        if t in looks:
            yield t, theta.copy()


def kkt_gap(name, shapes, Z, theta, tol):
    """Return the certified ends of 1 - min_i <z_i, theta> / (N(theta) rho_N(Z)), for a theta that separates the rows.

    rho_N is the largest margin. An upper end of min_i <z_i, theta> comes from its margin in l2.
    """
    G = fm.FeatureGram(Z)
    low, high = fm.separator_margin(G, theta)
    if name == "length of all weights":
        best = fm.max_margin(G, tol=tol)
    else:
        best = fm.norm_margin(Z, network_norm(name, shapes), tol=tol)
        low, _ = fm.norm_certificate(Z, network_norm(name, shapes), theta, best.p)
        most = high * fm.NORMS["l2"].value(theta)
        high = most / size_from_below(name, shapes, theta) * (1 + 1e-12)
    least_rho = max(best.lower, low)
    return max(0.0, 1 - high / least_rho - 1e-15), 1 - low / best.upper + 1e-15


def kkt_rows(job, looks, tol, points):
    """Train a network, job = (problem, method, seed), and return the rows: its gaps in all norms, once it separates."""
    problem, method, seed = job
    layers = KKT_NETWORKS[problem]
    X, y = points[problem.partition(",")[0]]
    shapes = layer_shapes(layers, X.shape[-1])
    rows = []
    for t, theta in train_homogeneous(method, layers, X, y, looks, seed):
        margins, Z, kinks = tangent_rows(layers, theta, X, y)
        for norm in KKT_NORMS if margins.min() > 0 else ():
            lower, upper = kkt_gap(norm, shapes, Z, theta, tol)
            row = {
                "problem": problem,
                "norm": norm,
                "method": method,
                "own": TRAINERS[method][0],
                "seed": seed,
                "t": t,
                "lower": lower,
                "upper": upper,
                "kinks": kinks,
            }
            rows.append(row)
    return rows


@figure(
    "kkt",
    "In each norm the two optimisers that step in it reach the smallest KKT gaps",
    minutes=12,
    data="mnist",
    panels=(4, 3),
    height=1.7,
    points=100,
    images=200,
    seeds=3,
    steps=10_000,
    tol=3e-3,
    quick={"points": 20, "images": 20, "seeds": 1, "steps": 200, "tol": 3e-2},
)
def kkt(run, points, images, seeds, steps, tol):
    """Data: {points} points of the plane, {images} images of MNIST 3 vs 5; ReLU networks. KKT gap: 0 where a network is
    stationary (KKT) for the largest margin in the panel's norm. Legend: the norm of the steps; thick: it is the
    panel's.

    Medians of {seeds} networks, seeds from {seed} on. Layer: by its spectral norm. Plane: 0.3 < |x₁|, |x₂| < 1, label
    the sign of x₁x₂. MNIST at half its size, 14 × 14, pixels in [0, 1]. No biases; two layers have 32 units, three have
    32 and 16, the convolutional network 8 filters of 4 × 4 pixels at every second one and 16 of 6 × 6, at first uniform
    in ±1/√(fan-in). Loss: ln Σ exp(−y f), full batches. Steps, in the optimiser's norm N: the shorter one of 1/(√t
    N*(gradient)) and 0.01 N(θ). Momentum 0.9; Adam: β = (0.9, 0.99), no epsilon. Margins of tangent rows are known to
    {tol:g} of themselves; drawn are upper ends, once a network separates. Column kinks: units at a kink of ReLU.
    """
    rng = run.rng()
    corners = rng.choice([-1.0, 1.0], (points, 2))
    plane = corners * rng.uniform(0.3, 1.0, (points, 2))
    X, y, *_ = run.mnist(3, 5)
    few = rng.permutation(len(y))[:images]
    halved = X[few].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    data = {
        "plane": (plane[:, None, None], corners.prod(axis=1)),
        "MNIST": (halved[..., None], y[few].astype(float)),
    }
    looks = spaced(steps, 3)
    looks = looks[looks >= 100].tolist()
    jobs = list(itertools.product(KKT_NETWORKS, TRAINERS, range(run.seed, run.seed + seeds)))
    for rows in in_processes(run, kkt_rows, jobs, looks, tol, data):
        yield from rows


@kkt.draw
def _(table, *axes):
    """Draw a row for each network and a column for each norm."""
    for k, ax in enumerate(axes):
        ax.sharex(axes[0])
        ax.sharey(axes[3 * (k // 3)])
    panels = iter(axes)
    for problem, part in groups(table, "problem"):
        for norm, of_norm in groups(part, "norm"):
            ax = next(panels)
            for method, runs in groups(of_norm, "method"):
                own = runs["own"][0]
                look = LOOKS[method] | {"linewidth": 1}
                if own == norm:
                    look |= {"linewidth": 2.3, "label": f"{method}: {own}"}
                steps = np.unique(runs["t"])
                gaps = [np.median(where(runs, t=t)["upper"]) for t in steps]
                ax.loglog(steps, gaps, **look)
            plain(ax.xaxis, 100, 1000, 10_000)
            plain(ax.yaxis)
            ax.set(ylabel=f"{problem}\nKKT gap", xlabel="step")
            ax.label_outer()
    for ax, norm in zip(axes, KKT_NORMS, strict=False):
        ax.set_title(f"norm: {norm}")


@kkt.numbers
def _(table):
    ends = where(table, t=table["t"].max())
    cases = dict.fromkeys(zip(ends["problem"], ends["norm"], ends["seed"], strict=True))
    apart = 0
    for problem, norm, seed in cases:
        rows = where(ends, problem=problem, norm=norm, seed=seed)
        own = rows["own"] == norm
        apart += rows["upper"][own].max() < rows["lower"][~own].min()
    return {"apart": f"{apart} of {len(cases)}"}
