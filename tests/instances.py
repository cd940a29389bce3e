"""The one registry of the tests: instances, representations, and the calls of algorithms that generic tests make.

An instance is a pair (Z, rho): rows z_i = y_i x_i, and rho = max over unit w in the span of the rows of min_i <z_i, w>
(negative: minus the distance from the origin to the boundary of the hull within the rows' span), known exactly.

Generic tests run over `everywhere`: every call in CALLS on a matrix and on rows, a few calls on the other
REPRESENTATIONS; or, where they are about the driver, over `driven`: every call on a matrix, a few on the others.
Instances and options are not crossed with these but take turns (`in_turn`, `rotate`): every algorithm, every
representation and every instance comes up.  What is dearer carries the marker `dear`, and is left to `.ci/run release`.
A new algorithm needs an entry in CALLS (a test fails without), a new representation a line in REPRESENTATIONS, or,
where it can be held against another, in BY_ROWS, whose operations are tested and a few algorithms.
"""

import contextlib
import itertools
import lzma
import math
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest

import fastmargin as fm

EPS = np.finfo(np.float64).eps
DATA = Path(__file__).resolve().parent / "data"


# ======================================================================================================
# INSTANCES OF KNOWN MARGIN
# ======================================================================================================


def feasible(n, d, rho, seed=0, far=0.25):
    """Unit rows (rho, sqrt(1 - rho^2) u): the u come in pairs +-u, so the least-norm point is (rho, 0), exactly.

    A share ``far`` of the rows lies farther from the boundary, and is no support vector.
    """
    rng = np.random.default_rng(seed)
    height = np.full(n, rho)
    beyond = min(int(far * n), n - 2) // 2 * 2 + n % 2
    height[n - beyond :] = rng.uniform(min(1.0, 1.5 * rho), 1.0, beyond)
    u = rng.normal(size=(n, d - 1))
    u /= np.linalg.norm(u, axis=1)[:, None]
    pairs = (n - beyond) // 2
    u[pairs : 2 * pairs] = -u[:pairs]
    Z = np.column_stack((height, np.sqrt(1.0 - height**2)[:, None] * u))
    return Z[rng.permutation(n)], rho


def unequal_weights(d, rho, seed=0):
    """Rows (rho, v_i) with sum_i p_i v_i = 0 for one p only, whose weights differ, and as many rows farther away."""
    rng = np.random.default_rng(seed)
    p = np.linspace(1.0, 5.0, d) / d
    v = rng.normal(size=(d, d - 1))
    v[-1] = -p[:-1] @ v[:-1] / p[-1]
    far = np.column_stack((rng.uniform(2 * rho, 3 * rho, d), rng.normal(size=(d, d - 1)) / d))
    return np.vstack((np.column_stack((np.full(d, rho), v)), far)), rho


def uneven(n, d, rho, seed=0):
    """Rows (rho, t u) in pairs +-u, of lengths t that differ from pair to pair: margin rho, no common norm."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n // 2, d - 1)) * rng.uniform(0.3, 3.0, (n // 2, 1))
    return np.column_stack((np.full(2 * len(u), rho), np.vstack((u, -u)))), rho


def cross_polytope(d, shift=0.0):
    """+-e_i + shift u, u = (1, ..., 1)/sqrt(d).  The nearest facet has normal -u at distance 1/sqrt(d) from the centre,
    so for shift >= 0 the margin is shift - 1/sqrt(d): infeasible, on the boundary, or feasible."""
    return np.vstack((np.eye(d), -np.eye(d))) + shift / np.sqrt(d), shift - 1.0 / np.sqrt(d)


def lopsided(d, copies=7, shift=0.0):
    """A cross-polytope with rows repeated and doubled: the uniform weights are no witness; inradius as without."""
    Z, rho = cross_polytope(d, shift)
    return np.vstack((Z, np.repeat(Z[:2], copies, axis=0), 2.0 * Z[:1])), rho


def simplex(d):
    """The d + 1 vertices of a regular simplex on the unit sphere around its centre: inradius 1/d."""
    Z = np.eye(d + 1) - 1.0 / (d + 1)
    return Z / np.sqrt(d / (d + 1.0)), -1.0 / d


def opposite_labels(n, d, seed=0):
    """A feasible set in R^(d-1) and one point of either label at +-e_d: no margin, but some w errs nowhere: rho = 0."""
    Z, _ = feasible(n - 2, d - 1, 0.3, seed)
    Z = np.column_stack((Z, np.zeros(n - 2)))
    return np.vstack((Z[: n // 2], np.eye(d)[-1], Z[n // 2 :], -np.eye(d)[-1])), 0.0


def copies_with_opposite_labels(n, d, seed=0):
    """Points in general position, all of them with both labels and some of them twice: p = (e_i + e_j)/2 has norm 0,
    so rho <= 0; 0 is all that is said of it."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    return np.vstack((Z, -Z, Z[:3]))[rng.permutation(2 * n + 3)], 0.0


def on_the_boundary():
    """The origin is the centroid of a facet of a cross-polytope, in numbers that floating point holds exactly."""
    return np.vstack((np.eye(4), -np.eye(4))) + 0.25, 0.0


def planted_l1(n, d, idle, rho, seed=0):
    """Rows rho 1 +- u with <u, 1> = 0 in pairs, of largest entry 1, and ``idle`` columns that cancel in pairs:
    the uniform weights on both sides prove that the l1-margin is rho."""
    rng = np.random.default_rng(seed)
    half = rng.uniform(-1.0, 1.0, (n // 2, d // 2))
    half[:, 0] = 1.0
    u = (1.0 - rho) * rng.permuted(np.hstack((half, -half)), axis=1)
    noise = rng.uniform(-1.0, 1.0, (n // 2, idle))
    return np.vstack((np.hstack((rho + u, noise)), np.hstack((rho - u, -noise))))


PLANTED = {
    "feasible": feasible(40, 7, 0.4, 1),
    "feasible, odd n": feasible(37, 5, 0.1, 2),
    "feasible, n > 512": feasible(601, 9, 0.2, 3),
    "unequal weights": unequal_weights(6, 0.4),
    "uneven": uneven(30, 5, 0.3, 1),
    "small margin": feasible(30, 6, 0.01, 4),
    "margin 1e-3": feasible(31, 6, 1e-3, 6),
    "feasible, scale 7": (7.0 * feasible(24, 4, 0.5, 5)[0], 3.5),
    "shifted cross-polytope": cross_polytope(5, 0.8),
    "cross-polytope": cross_polytope(6),
    "cross-polytope, scale 1/8": (cross_polytope(4)[0] / 8, -1 / 16),
    "simplex": simplex(5),
    "shifted, infeasible": cross_polytope(3, 0.3),
    "lopsided": lopsided(4),
    "lopsided, shifted": lopsided(3, 5, 0.3),
    "opposite labels": opposite_labels(21, 5),
    "every point with both labels": copies_with_opposite_labels(12, 4),
    "on the boundary": on_the_boundary(),
    "one point": (np.array([[0.6, 0.8]]), 1.0),
    "one dimension": (np.array([[0.5], [2.0], [1.0]]), 0.5),
    "one dimension, infeasible": (np.array([[0.5], [-2.0], [1.0]]), -1.0),
    "copies": (np.tile([[0.6, 0.8], [1.0, 0.0]], (3, 1)), np.sqrt(0.8)),
    "a row of zeros": (np.array([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]), 0.0),
}
EASY = PLANTED["feasible"][0]
ENDURING = PLANTED["opposite labels"][
    0
]  # no call halts here within its first 150 iterations, max_margin aside


# ======================================================================================================
# OTHER DATA
# ======================================================================================================


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def two_classes(n, d, gap=1.0, seed=0):
    """Gaussian classes around +-gap (1, ..., 1)/sqrt(d): X, y."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    return rng.normal(size=(n, d)) + gap * y[:, None] / np.sqrt(d), y


def signed(X, y):
    return y[:, None] * X


def toy(n=80, seed=0):
    """Rows of section 6.1 of apidopoulos22: w* = (1/2, 1/2), support vectors +-(1/2, 3/2), +-(3/2, 1/2), others
    farther."""
    rng = np.random.default_rng(seed)
    height = np.sqrt(2.0) + rng.uniform(0.3, 2.0, n - 4)
    along = rng.normal(size=n - 4)
    others = np.column_stack((height + along, height - along)) / np.sqrt(2.0)
    return np.vstack(([[0.5, 1.5], [1.5, 0.5], [0.5, 1.5], [1.5, 0.5]], others))


# Rows without ties, on which no bound is met exactly: rounding cannot flip a decision, so that iterates can be compared
# with those of a twin.  Of their margins, the sign is known.
UNTIED = {
    "separable": signed(*two_classes(60, 6, 6.0, 1)),
    "not separable": signed(*two_classes(60, 6, 1.0, 1)),
    "scale 50": 7.0 * signed(*two_classes(60, 6, 5.0, 1)),
    "separable, margin 0.3": feasible(26, 5, 0.3, 11)[0],
    "overlapping": signed(*two_classes(30, 4, 0.7, 12)),
    "scale 5": 5.0 * feasible(21, 4, 0.2, 13)[0],
    "around the origin": np.random.default_rng(7).normal(size=(33, 4)),
}


def mnist_sample(a, b):
    """Images and labels (-1 for a, +1 for b) of two digits from the bundled sample of MNIST."""

    def idx(name, header):
        with lzma.open(DATA / "mnist" / f"train-{name}-ubyte.xz") as file:
            return np.frombuffer(file.read(), np.uint8)[header:]

    labels = idx("labels-idx1", 8)
    images = idx("images-idx3", 16).reshape(len(labels), -1)
    chosen = np.isin(labels, (a, b))
    return images[chosen] / 255.0, np.where(labels[chosen] == b, 1, -1)


# ======================================================================================================
# REPRESENTATIONS
# ======================================================================================================


def dense(Z):
    G = Z @ Z.T
    return 0.5 * (G + G.T)


def free(G, y):
    """A representation or a matrix with a free intercept, for labels y."""
    G = G if isinstance(G, fm.Gram) else fm.Gram(G)
    return G._changed(labels=np.asarray(y, dtype=float), intercept="free")


def pairs(Z):
    """A problem of two classes in which all points are of the first: its pairs stand for the rows themselves."""
    return fm.pair_gram(dense(Z), np.zeros(len(Z)), 2)


def pair_rows(X, labels, k):
    """The rows x (x) (e_y - e_j), in the order of the pairs."""
    rows = []
    for x, y in zip(X, labels, strict=True):
        for j in range(k):
            if j != y:
                row = [0] * (k * len(x))
                row[y * len(x) : (y + 1) * len(x)] = x
                row[j * len(x) : (j + 1) * len(x)] = [-value for value in x]
                rows.append(row)
    return rows


def features(Z):
    """By rows that have their signs already."""
    return fm.features(Z, 1, normalize=None)


def sparse(Z):
    """By the non-zeros of the rows."""
    return features(Csr(Z))


class Csr:
    """What `features` uses of a sparse matrix of SciPy, whose own are in test_peers.py."""

    format = "csr"

    def __init__(self, X):
        X = np.asarray(X)
        self.shape = X.shape
        rows, self.indices = np.nonzero(X)
        self.data = X[rows, self.indices]
        self.indptr = np.concatenate(([0], np.count_nonzero(X, axis=1).cumsum()))

    @property
    def dtype(self):
        return self.data.dtype

    @property
    def nnz(self):
        return self.data.size

    @property
    def T(self):  # noqa: N802
        return Csr(self.toarray().T)

    def toarray(self):
        X = np.zeros(self.shape, self.dtype)
        X[np.repeat(np.arange(self.shape[0]), np.diff(self.indptr)), self.indices] = self.data
        return X

    def tocsr(self, copy=False):
        return Csr(self.toarray()) if copy else self

    def astype(self, dtype, copy=True):
        return Csr(self.toarray().astype(dtype)) if copy or dtype != self.dtype else self

    def __getitem__(self, index):
        return Csr(self.toarray()[index])

    def __matmul__(self, other):
        if isinstance(other, Csr):
            return Csr(self.toarray() @ other.toarray())
        return self.toarray() @ other

    def multiply(self, other):
        return Csr(self.toarray() * other.toarray())

    def sum(self, axis):
        return self.toarray().sum(axis)

    def sum_duplicates(self):
        pass

    def eliminate_zeros(self):
        pass


def in_file(X, dtype=np.float64):
    """Points in a file, which is gone as soon as nothing refers to it."""
    with tempfile.TemporaryFile() as file:
        points = np.memmap(file, dtype, shape=np.shape(X))
    points[:] = X
    return points


def mapped(Z, dtype=np.float64):
    return features(in_file(Z, dtype))


class Rows:
    """Z as an operator."""

    def __init__(self, Z):
        self.Z = np.asarray(Z)
        self.shape = np.shape(Z)

    def matvec(self, w):
        return self.Z @ w

    def rmatvec(self, v):
        return v @ self.Z


class Symmetric:
    """G as an operator."""

    def __init__(self, G):
        self.G = G
        self.shape = G.shape

    def matvec(self, v):
        return self.G @ v


class Products(fm.Gram):
    """G = Z Z' by the products of an operator, or G itself by one that is symmetric: a user's own class."""

    def __init__(self, operator, unit=2.0**-53):
        self.operator = operator
        self.unit = unit
        self.n, self.d = operator.shape

    def _diagonal(self):
        return np.array([e @ self._product(e) for e in np.eye(self.n)])

    def _product(self, v):
        if hasattr(self.operator, "rmatvec"):
            return self.operator.matvec(self.operator.rmatvec(v))
        return self.operator.matvec(v)


class Own(fm.Gram):
    """A user's own class of four things: rows Z by NumPy; with signs it has a free intercept by itself."""

    unit = 2.0**-53

    def __init__(self, Z, signs=None):
        self.Z = Z
        self.n, self.d = Z.shape
        if signs is not None:
            self.labels = signs
            self.intercept = "free"

    def _diagonal(self):
        return (self.Z**2).sum(axis=1)

    def _product(self, v):
        return self.Z @ (self.Z.T @ v)


def operator(Z):
    return Products(Rows(Z))


PLAIN = {"dense": dense, "features": features}  # of the rows Z: every algorithm runs on these
REPRESENTATIONS = {**PLAIN, "pairs": pairs}
BY_ROWS = {"features": features, "sparse": sparse, "mapped": mapped, "operator": operator}


def scale_of(G):
    """s = max_i G_ii of a matrix or a representation."""
    return G.scale if isinstance(G, fm.Gram) else float(np.diag(G).max())


def without_margin(G):
    """What `max_margin` says where there is no margin: entries that are rounded may hide a small one."""
    G = G if isinstance(G, fm.Gram) else fm.Gram(G)
    _, _, rounding = G._measured(np.eye(1, len(G))[0], precise=True)
    return "infeasible" if rounding.square + rounding.length < 1e-20 else "rounding"


# ======================================================================================================
# CALLS OF ALGORITHMS
# ======================================================================================================


class Call(NamedTuple):
    """A call that generic tests make, and what they must know of it.  The algorithm is the name up to the comma."""

    own: dict = {}  # its own options
    cost: str | None = (
        "product"  # of an iteration: "product", "column" (1/n), "two columns", or None: a round, at no
    )
    # fixed cost, of finitely many
    start: float | str | None = (
        0.0  # products before iteration 0, or "column"; None: up to 64, of Lanczos
    )
    halts: bool = False  # as "separated" as soon as all margins are positive
    witness: str | None = None  # which of its options promises "infeasible" at ||p||_G below it
    units: dict = {}  # option -> power of c with which it grows when the rows grow by c
    noise: float = (
        1e-11  # how far runs of 300 iterations part where products are rounded differently
    )
    dual: bool = False  # alpha and p are one point
    rows: bool = False  # takes the rows Z, scales them, and certifies their l1-margin
    signed: bool = False  # weights alpha of either sign
    sampled: bool = False  # takes rows at random
    held: bool = True  # rows of the trace but the last come from what the loop holds


_COLUMN = {"cost": "column", "halts": True}
_VERTEX = {"start": "column", "witness": "eps", "units": {"eps": 1}, "dual": True}
_SMOOTHED = {"start": 2.0, "halts": True}
_DESCENT = {"start": None, "units": {"lam0": 2}}
CALLS = {
    "perceptron": Call(**_COLUMN),
    "perceptron, worst": Call({"rule": "worst"}, **_COLUMN),
    "nkp": Call(**_COLUMN),
    "nkp, on": Call({"stop": None}, cost="column"),
    "von_neumann": Call(
        {"eps": 1e-3}, cost="column", start=1.0, witness="eps", units={"eps": 1}, dual=True
    ),
    "von_neumann, halting": Call(
        {"eps": 1e-3, "stop": "separated"},
        start=1.0,
        witness="eps",
        units={"eps": 1},
        dual=True,
        **_COLUMN,
    ),
    # After an exact step the two points that took part tie, so that rounding chooses between them.
    "frank_wolfe": Call({"eps": 1e-12}, cost="two columns", noise=1.0, **_VERTEX),
    "frank_wolfe, plain": Call({"eps": 1e-3, "variant": "plain"}, cost="column", **_VERTEX),
    "frank_wolfe, halting": Call(
        {"eps": 1e-12, "stop": "separated"}, cost="two columns", halts=True, noise=1.0, **_VERTEX
    ),
    "snkp": Call(**_SMOOTHED),
    "snkp, on": Call({"stop": None}, start=2.0),
    "snkp, eps": Call({"eps": 1e-3}, witness="eps", units={"eps": 1}, **_SMOOTHED),
    "snkpvn": Call({"delta": 1e-3}, witness="delta", units={"delta": 1}, **_SMOOTHED),
    "isnkpvn": Call({"eps": 1e-3}, witness="eps", units={"eps": 1}, **_SMOOTHED),
    "isnkpvn, gamma 4": Call(
        {"eps": 1e-3, "gamma": 4.0}, witness="eps", units={"eps": 1}, **_SMOOTHED
    ),
    "isnkpvn, entropy": Call(
        {"eps": 1e-3, "gamma": 1.5, "prox": "entropy"}, witness="eps", units={"eps": 1}, **_SMOOTHED
    ),
    "winnow": Call({"eta": 0.05}, halts=True, rows=True, held=False),
    "gradient_descent": Call(),
    "gradient_descent, logistic": Call({"loss": "logistic"}),
    "gradient_descent, step 1e6": Call(
        {"step": 1e6}, noise=1e-6
    ),  # amplifies the rounding of the first margins
    "normalized_gradient_descent": Call(),
    "normalized_gradient_descent, sqrt": Call({"schedule": "sqrt"}),
    # Longer steps turn about where the risk is least, and amplify rounding without bound.
    "normalized_gradient_descent, norm": Call(
        {"divide_by": "norm", "schedule": "sqrt", "step": 0.1}
    ),
    "momentum": Call(start=1.0),
    "momentum, eps": Call({"eps": 1e-3}, start=1.0, witness="eps", units={"eps": 1}),
    "momentum, logistic": Call({"loss": "logistic"}, start=1.0),
    "momentum, logistic as printed": Call({"loss": "logistic", "shifted": False}, start=1.0),
    "batch_perceptron": Call(cost="column"),
    "batch_perceptron, last": Call({"averaged": False}, cost="column"),
    "adaptive_sampling": Call({"seed": 4}, cost="column", sampled=True),
    "adaptive_sampling, plain": Call(
        {"momentum": False, "step": 0.3, "seed": 5}, cost="column", sampled=True
    ),
    "diagonal_descent": Call({"lam0": 1.0}, **_DESCENT),
    "diagonal_descent, 2^-t": Call({"lam": "2^-t", "lam0": 1.0}, **_DESCENT),
    "diagonal_descent, 1/log(1+t)": Call({"lam": "1/log(1+t)", "lam0": 1.0}, **_DESCENT),
    "inertial_diagonal_descent": Call({"lam0": 1.0}, **_DESCENT),
    "inertial_diagonal_descent, restarts": Call(
        {"lam0": 1.0, "accel": 3.0, "restart": True}, **_DESCENT
    ),
    "homotopic_subgradient": Call(),
    "subspace_perceptron": Call(signed=True, noise=1e-7, held=False),
    "subspace_perceptron, halting": Call(
        {"stop": "separated", "memory": 1.0, "eps": 0.0},
        halts=True,
        units={"eps": 1},
        signed=True,
        noise=1e-7,
        held=False,
    ),
    "max_margin": Call({"tol": 1e-12}, cost=None, dual=True, held=False),
}
LOOPS = [
    name for name, call in CALLS.items() if call.cost
]  # others end after a few rounds of their own


def claims(name, n, products, k):
    """Tell whether a call's products, before its iterations and after k of them, are what they cost on n points."""
    call = CALLS[name]
    first = products[0]
    each = {"column": 1.0 / n, "two columns": 2.0 / n}.get(call.cost, 1.0)
    started = 1.0 <= first <= 64.0
    if call.start is not None:
        started = first == (1.0 / n if call.start == "column" else call.start)
    return started and np.allclose(products - first, each * np.asarray(k), rtol=1e-12, atol=1e-12)


def algorithm_of(name):
    return name.partition(",")[0]


# One of each sort: columns, products, a span of its own in two forms, rounds.
SAMPLED = ["von_neumann", "momentum", "subspace_perceptron, halting", "max_margin"]


def forms(name):
    """What a call is given in generic tests: representations of G, or the rows themselves.

    A loop knows its representation by a few operations alone.  So pairs, over which loops run as their Python source,
    meet one call of each sort.
    """
    if CALLS[name].rows:
        return ["rows"]
    return list(REPRESENTATIONS if name in SAMPLED else PLAIN)


def form(kind, Z):
    """The rows Z in one of the `forms`."""
    return Z if kind == "rows" else REPRESENTATIONS[kind](Z)


def run(name, G, **options):
    """One call, on what `form` made."""
    return getattr(fm, algorithm_of(name))(G, **{**CALLS[name].own, **options})


def accepts(name, Z):
    """Every algorithm takes a row of zeros but those that scale the rows."""
    return not CALLS[name].rows or Z.any(axis=1).all()


EVERYWHERE = [(name, kind) for name in CALLS for kind in forms(name)]
DRIVEN = [(name, kind) for name, kind in EVERYWHERE if kind in ("dense", "rows") or name in SAMPLED]

every_call = pytest.mark.parametrize("name", CALLS)
every_representation = pytest.mark.parametrize("kind", REPRESENTATIONS)
every_plain = pytest.mark.parametrize("kind", PLAIN)
everywhere = pytest.mark.parametrize("name, kind", EVERYWHERE)
every_loop = pytest.mark.parametrize(
    "name, kind", [(name, kind) for name, kind in EVERYWHERE if name in LOOPS]
)
driven = pytest.mark.parametrize("name, kind", DRIVEN)
driven_loops = pytest.mark.parametrize(
    "name, kind", [(name, kind) for name, kind in DRIVEN if name in LOOPS]
)


# ======================================================================================================
# TAKING TURNS
# ======================================================================================================


def rotate(names, *axes, crossed=1):
    """Parametrize a test: the first axes crossed, each combination with one value of every other axis, in turn.

    Neighbours along a crossed axis meet different values, as in a Latin square, and the other axes come up in all
    combinations if there are rows enough.
    """
    axes = [list(axis) for axis in axes]
    rows = []
    for places in itertools.product(*(range(len(axis)) for axis in axes[:crossed])):
        row = [axis[place] for axis, place in zip(axes, places, strict=False)]
        turn = sum(places)
        for axis in axes[crossed:]:
            row.append(axis[turn % len(axis)])
            turn //= len(axis)
        rows.append(row)
    return pytest.mark.parametrize(names, rows)


def some(names, chosen):
    """The names for `parametrize`, where all but those chosen are dear."""
    return [
        name if name in chosen else pytest.param(name, marks=pytest.mark.dear) for name in names
    ]


def in_turn(pairs, cases, times=1):
    """Parametrize a test of (name, kind, case): each pair of a call and a representation with so many of the cases.

    A call meets different cases on each representation, and a representation all of them if there are calls enough.
    """
    cases = list(cases)
    rows = []
    places = {name: i for i, name in enumerate(CALLS)}
    stride = max(1, len(cases) // (times * len(REPRESENTATIONS)))
    for name, kind in pairs:
        for meeting in range(times * len(REPRESENTATIONS)):
            row = name, kind, cases[(places[name] + stride * meeting) % len(cases)]
            if (
                kind in ("rows", list(REPRESENTATIONS)[meeting % len(REPRESENTATIONS)])
                and row not in rows
            ):
                rows.append(row)
    return pytest.mark.parametrize("name, kind, case", rows)


@contextlib.contextmanager
def threads(count):
    """Numba's threads, as many as there are at most."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def compiled(function):
    """A function that compiled code alone calls, for calls from Python."""
    return numba.njit(lambda *args: function(*args))


def same_rows(name, held, fresh, same_p=True):
    """Rows of two traces of which one comes from what the loop holds, up to the rounding that this is widened by.

    Not ``same_p``: they share alpha alone, as where a run ends with another p than it shows on its way.
    """
    assert np.array_equal(held[["iteration", "products"]], fresh[["iteration", "products"]])
    for side in ("lower", "upper") if same_p else ("lower",):
        np.testing.assert_allclose(
            held[side], fresh[side], rtol=1e-8, atol=1e-7 * (fresh["lower"].min() <= 0.0)
        )
    if not CALLS[name].held:
        assert np.array_equal(held["upper"], fresh["upper"])
        assert np.array_equal(held["lower"], fresh["lower"])


def same_result(a, b, rtol=0.0):
    """Equal but for the clock."""
    assert (a.status, a.n_iter) == (b.status, b.n_iter)
    for field in ("alpha", "p", "lower", "upper", "iterates"):
        x = getattr(a, field)
        y = getattr(b, field)
        if rtol and x is not None:
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(x).max())
        else:
            assert (x is None and y is None) or np.array_equal(x, y), field
    if a.trace is not None:
        assert np.array_equal(a.trace["iteration"], b.trace["iteration"])


def off_the_best(square, lower):
    """The most that a p is from the best in ||.||_G, by ||p||_G^2 and a bound on rho.

    ||p - best||_G^2 <= ||p||_G^2 - rho^2, because of a convex set the best point is the one next to the origin: an
    interval of relative width tol determines p, and the margins, to the root of tol alone.
    """
    return math.sqrt(max(square - max(lower, 0.0) ** 2, 0.0))


def meet(*results):
    """True if there is a margin that is in the intervals of all results."""
    return max(result.lower for result in results) <= min(result.upper for result in results)


def same_answer(one, two, G):
    """Intervals that meet, and points as near to each other in ||.||_G as both intervals leave them."""
    assert one.status == two.status and meet(one, two)
    off = one.p - two.p
    most = sum(off_the_best(result.upper**2, result.lower) for result in (one, two))
    assert math.sqrt(max(off @ (G @ off), 0.0)) <= most


def layouts(A):
    """The same numbers in other clothes."""
    wide = np.zeros((2 * A.shape[0], 3 * A.shape[1]))
    wide[::2, 1::3] = A
    return {
        "Fortran": np.asfortranarray(A),
        "strided": wide[::2, 1::3],
        "reversed": A[::-1, ::-1].copy()[::-1, ::-1],
        "integer": A.astype(np.int64),
        "int8": A.astype(np.int8),
        "float32": A.astype(np.float32),
        "list": A.tolist(),
        "big-endian": A.astype(">f8"),
    }


def check_raises(call, error, words):
    """The error names each of the words: the argument, and the row or the remedy where there is one.

    Words in one string are split at spaces.
    """
    words = words.split() if isinstance(words, str) else words
    with pytest.raises(error) as caught, np.errstate(all="ignore"):
        call()
    message = str(caught.value)
    letter = "[a-zA-Z0-9]"
    whole = {word: rf"(?<!{letter}){re.escape(word.strip())}(?!{letter})" for word in words}
    missing = [word for word, pattern in whole.items() if not re.search(pattern, message)]
    assert not missing, f"{missing} not in {message!r}"
