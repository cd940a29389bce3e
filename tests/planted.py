"""Instances whose margin is known exactly, random data, and high-precision twins, shared by all test files.

Every instance is a pair (Z, rho): rows z_i = y_i x_i, and rho = max over unit w in the span of the rows of
min_i <z_i, w> (negative: minus the distance from the origin to the boundary of the hull within the rows' span).
"""

import lzma
from pathlib import Path

import numpy as np

import fastmargin as fm

EPS = np.finfo(np.float64).eps
DATA = Path(__file__).resolve().parent / "data"


def feasible(n, d, rho, seed=0, far=0.25):
    """Unit rows (rho, sqrt(1 - rho^2) u): the u come in pairs +-u, so the least-norm point is (rho, 0), exactly.

    A share ``far`` of the rows lies farther from the boundary, and is no support vector.
    """
    rng = np.random.default_rng(seed)
    height = np.full(n, rho)
    beyond = min(int(far * n), n - 2) // 2 * 2 + n % 2
    height[n - beyond:] = rng.uniform(min(1.0, 1.5 * rho), 1.0, beyond)
    u = rng.normal(size=(n, d - 1))
    u /= np.linalg.norm(u, axis=1)[:, None]
    pairs = (n - beyond) // 2
    u[pairs:2 * pairs] = -u[:pairs]
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


def cross_polytope(d, shift=0.0):
    """+-e_i + shift u, u = (1, ..., 1)/sqrt(d).  The nearest facet has normal -u at distance 1/sqrt(d) from the centre,
    so for shift >= 0 the margin is shift - 1/sqrt(d): infeasible, on the boundary, or feasible."""
    return np.vstack((np.eye(d), -np.eye(d))) + shift / np.sqrt(d), shift - 1.0 / np.sqrt(d)


def simplex(d):
    """The d + 1 vertices of a regular simplex on the unit sphere around its centre: inradius 1/d."""
    Z = np.eye(d + 1) - 1.0 / (d + 1)
    return Z / np.sqrt(d / (d + 1.0)), -1.0 / d


def opposite_labels(n, d, seed=0):
    """A feasible set in R^(d-1) and one point of either label at +-e_d: no margin, but some w errs nowhere: rho = 0."""
    Z, _ = feasible(n - 2, d - 1, 0.3, seed)
    Z = np.column_stack((Z, np.zeros(n - 2)))
    return np.vstack((Z[:n // 2], np.eye(d)[-1], Z[n // 2:], -np.eye(d)[-1])), 0.0


def on_the_boundary():
    """The origin is the centroid of a facet of a cross-polytope, in numbers that floating point holds exactly."""
    return np.vstack((np.eye(4), -np.eye(4))) + 0.25, 0.0


PLANTED = {
    "feasible": feasible(40, 7, 0.4, 1),
    "feasible, odd n": feasible(37, 5, 0.1, 2),
    "feasible, n > 512": feasible(601, 9, 0.2, 3),
    "unequal weights": unequal_weights(6, 0.4),
    "small margin": feasible(30, 6, 0.01, 4),
    "feasible, scale 7": (7.0 * feasible(24, 4, 0.5, 5)[0], 3.5),
    "shifted cross-polytope": cross_polytope(5, 0.8),
    "cross-polytope": cross_polytope(6),
    "cross-polytope, scale 1/8": (cross_polytope(4)[0] / 8, -1 / 16),
    "simplex": simplex(5),
    "shifted, infeasible": cross_polytope(3, 0.3),
    "opposite labels": opposite_labels(21, 5),
    "on the boundary": on_the_boundary(),
    "one point": (np.array([[0.6, 0.8]]), 1.0),
    "one dimension": (np.array([[0.5], [2.0], [1.0]]), 0.5),
    "one dimension, infeasible": (np.array([[0.5], [-2.0], [1.0]]), -1.0),
    "copies": (np.tile([[0.6, 0.8], [1.0, 0.0]], (3, 1)), np.sqrt(0.8)),
    "a row of zeros": (np.array([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]), 0.0),
}

# name -> what a test calls on G; all share the run options
ALGORITHMS = {
    "gradient_descent": (fm.gradient_descent, {}),
    "gradient_descent, logistic": (fm.gradient_descent, {"loss": "logistic"}),
    "gradient_descent, step 1e6": (fm.gradient_descent, {"step": 1e6}),
    "normalized_gradient_descent": (fm.normalized_gradient_descent, {}),
    "normalized_gradient_descent, sqrt": (fm.normalized_gradient_descent, {"schedule": "sqrt"}),
    "momentum": (fm.momentum, {}),
    "momentum, logistic": (fm.momentum, {"loss": "logistic"}),
    "batch_perceptron": (fm.batch_perceptron, {}),
    "batch_perceptron, last": (fm.batch_perceptron, {"averaged": False}),
    "max_margin": (fm.max_margin, {"tol": 1e-12}),
}
COLUMN_ALGORITHMS = ("batch_perceptron", "batch_perceptron, last")
LOOPS = [name for name in ALGORITHMS if name != "max_margin"]  # an iteration of max_margin is a round of its own


def run(name, G, **options):
    algorithm, own = ALGORITHMS[name]
    return algorithm(G, **{**own, **options})


def dense(Z):
    G = Z @ Z.T
    return 0.5 * (G + G.T)


REPRESENTATIONS = {"dense": dense, "features": fm.FeatureGram}


def scale_of(G):
    return float((np.einsum("ij,ij->i", G.rows, G.rows) if isinstance(G, fm.FeatureGram) else np.diag(G)).max())


def two_classes(n, d, gap=1.0, seed=0):
    """Gaussian classes around +-gap (1, ..., 1)/sqrt(d): X, y."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    return rng.normal(size=(n, d)) + gap * y[:, None] / np.sqrt(d), y


def exact_interval(Z, alpha, p):
    """(lower, upper) of alpha and p in extended precision, by the definition."""
    Z, alpha, p = (np.asarray(a, np.longdouble) for a in (Z, alpha, p))
    w, v = Z.T @ (alpha / np.abs(alpha).max()), Z.T @ (p / p.sum())
    return float((Z @ w).min() / np.sqrt(w @ w)), float(np.sqrt(v @ v))


def least_norm(Z):
    """min_{p in Delta} ||Z'p|| by enumeration of the supports of at most rank + 1 affinely independent rows."""
    n, d = Z.shape
    best = np.inf
    for code in range(1, 2**n):
        S = Z[[i for i in range(n) if code >> i & 1]]
        if len(S) > d + 1:
            continue
        edges = (S[1:] - S[0]).T
        c, _, rank, _ = np.linalg.lstsq(edges, -S[0], rcond=1e-10)
        if rank == len(S) - 1 and (c >= 0).all() and c.sum() <= 1:
            best = min(best, np.linalg.norm(S[0] + edges @ c))
    return best


def mnist_sample(a, b):
    """Images and labels (-1 for a, +1 for b) of two digits from the bundled sample of MNIST."""
    def idx(name, header):
        with lzma.open(DATA / "mnist" / f"train-{name}-ubyte.xz") as file:
            return np.frombuffer(file.read(), np.uint8)[header:]
    labels = idx("labels-idx1", 8)
    images = idx("images-idx3", 16).reshape(len(labels), -1)
    chosen = np.isin(labels, (a, b))
    return images[chosen] / 255.0, np.where(labels[chosen] == b, 1, -1)
