"""What every algorithm stands on: kernels, products, prox maps, the certificate, the driver, checks of the input."""

import ast
import doctest
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import njit
from planted import (
    ALGORITHMS,
    COLUMN_ALGORITHMS,
    EPS,
    LOOPS,
    PLANTED,
    REPRESENTATIONS,
    dense,
    exact_interval,
    feasible,
    run,
    scale_of,
    two_classes,
)

import fastmargin as fm

SOURCE = Path(fm.__file__)


@pytest.fixture
def threads():
    """numba.set_num_threads for one test."""
    before = numba.get_num_threads()
    yield numba.set_num_threads
    numba.set_num_threads(before)


def rows_of(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


# ======================================================================================================
# KERNELS
# ======================================================================================================

def scale_gamma(X):
    return 1.0 / (X.shape[1] * X.var())


def euclidean(A, B):
    return ((A[:, None] - B[None]) ** 2).sum(axis=2)


KERNELS = [  # name, parameters, K(A, B) given the training points X
    ("linear", {}, lambda A, B, X: A @ B.T),
    ("poly", {}, lambda A, B, X: (scale_gamma(X) * (A @ B.T) + 1.0) ** 3),
    ("poly", {"gamma": 0.7, "coef0": 0.5, "degree": 2}, lambda A, B, X: (0.7 * (A @ B.T) + 0.5) ** 2),
    ("rbf", {}, lambda A, B, X: np.exp(-scale_gamma(X) * euclidean(A, B))),
    ("rbf", {"gamma": "scale"}, lambda A, B, X: np.exp(-scale_gamma(X) * euclidean(A, B))),
    ("rbf", {"gamma": 0.3}, lambda A, B, X: np.exp(-0.3 * euclidean(A, B))),
    ("rbf", {"sigma2": 2.0}, lambda A, B, X: np.exp(-euclidean(A, B) / 4.0)),
    ("laplacian", {"gamma": 0.2}, lambda A, B, X: np.exp(-0.2 * np.abs(A[:, None] - B[None]).sum(axis=2))),
    ("laplacian", {}, lambda A, B, X: np.exp(-scale_gamma(X) * np.abs(A[:, None] - B[None]).sum(axis=2))),
]
all_kernels = pytest.mark.parametrize("kernel, params, formula", KERNELS, ids=[f"{k[0]} {k[1]}" for k in KERNELS])
all_normalize = pytest.mark.parametrize("normalize", ["unit", "max", None])


def normalised(K, normalize):
    d = K.diagonal()
    return K / {"unit": np.sqrt(np.outer(d, d)), "max": d.max(), None: 1.0}[normalize]


@all_kernels
@all_normalize
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("n", [1, 70, 530])  # 512 rows are computed at a time
def test_gram_is_its_formula(kernel, params, formula, normalize, signed, n):
    X, y = two_classes(max(n, 2), 3, seed=n)
    X, y = X[:n] + 0.3, y[:n]
    K = normalised(formula(X, X, X), normalize)
    sign = np.outer(y, y) if signed else 1.0
    G = fm.gram(X, y if signed else None, kernel=kernel, normalize=normalize, **params)
    np.testing.assert_allclose(G, sign * K, rtol=3e-14, atol=3e-15 * K.diagonal().max())
    assert np.array_equal(G, G.T)
    assert n > 100 or np.linalg.eigvalsh(G).min() >= -n * EPS * np.linalg.norm(G, 2)
    if normalize == "unit":
        assert (G.diagonal() == 1.0).all()
    if normalize == "max":
        assert abs(G.diagonal().max() - 1.0) <= 2 * EPS
    half = fm.gram(X, y if signed else None, kernel=kernel, normalize=normalize, dtype=np.float32, **params)
    assert half.dtype == np.float32 and G.dtype == np.float64
    assert np.array_equal(half, G.astype(np.float32))


@all_kernels
@all_normalize
def test_decision_function_is_y_times_the_margins(kernel, params, formula, normalize):
    X, y = two_classes(60, 4, seed=3)
    alpha = np.random.default_rng(4).normal(size=60)
    alpha[::3] = 0.0  # these rows are skipped
    G = fm.gram(X, y, kernel=kernel, normalize=normalize, **params)
    f = fm.decision_function(alpha, X, y, X, kernel=kernel, normalize=normalize, **params)
    size = np.abs(alpha).sum() * G.diagonal().max()
    np.testing.assert_allclose(y * f, G @ alpha, rtol=0, atol=1e-14 * size)
    if kernel == "linear":
        Z = fm.features(X, y, normalize=normalize)
        np.testing.assert_allclose(Z.rows @ (Z.rows.T @ alpha), y * f, rtol=0, atol=1e-14 * size)


@all_kernels
@all_normalize
@pytest.mark.parametrize("many", [1, 700])
def test_decision_function_at_new_points(kernel, params, formula, normalize, many):
    X, y = two_classes(40, 3, seed=5)
    new = rows_of(many, 3, seed=6) + 0.5
    alpha = rows_of(1, 40, seed=7)[0]
    K, train, own = formula(new, X, X), formula(X, X, X).diagonal(), formula(new, new, X).diagonal()
    K = {"unit": K / np.sqrt(np.outer(own, train)), "max": K / train.max(), None: K}[normalize]
    f = fm.decision_function(alpha, X, y, new, kernel=kernel, normalize=normalize, **params)
    np.testing.assert_allclose(f, K @ (alpha * y), rtol=0, atol=2e-14 * np.abs(K).max() * np.abs(alpha).sum())
    assert not fm.decision_function(np.zeros(40), X, y, new, kernel=kernel, normalize=normalize, **params).any()


@all_kernels
def test_kernel_matrix_is_its_formula(kernel, params, formula):
    A, B = rows_of(33, 5, 8) + 1.0, rows_of(7, 5, 9)
    K = fm.kernel_matrix(A, B, kernel=kernel, **params)
    np.testing.assert_allclose(K, formula(A, B, A), rtol=3e-14, atol=1e-14)


def test_rbf_far_from_the_origin():
    # ||x||^2 is 1e16 times the distances: without centring, every digit would cancel.
    X = np.random.default_rng(0).integers(-8, 8, (50, 4)) / 8.0
    far = X + np.array([1e8, -1e8, 1e7, 0.0])  # these sums are exact
    exact = np.exp(-0.5 * euclidean(X, X))
    for got in (fm.gram(far, kernel="rbf", gamma=0.5), fm.kernel_matrix(far, far, kernel="rbf", gamma=0.5)):
        np.testing.assert_allclose(got, exact, rtol=1e-6)  # the mean itself is rounded to 1e-8
    f = fm.decision_function(np.ones(50), far, np.ones(50), far, kernel="rbf", gamma=0.5)
    np.testing.assert_allclose(f, exact.sum(axis=1), rtol=1e-6)


@all_normalize
def test_features_are_the_linear_gram(normalize):
    X, y = two_classes(90, 6, seed=10)
    Z = fm.features(X, y, normalize=normalize)
    G = fm.gram(X, y, kernel="linear", normalize=normalize)
    assert Z.shape() == (90, 6)
    np.testing.assert_allclose(Z.dense(), G, rtol=0, atol=2e-15 * G.diagonal().max())
    np.testing.assert_allclose(Z.diagonal(), G.diagonal(), rtol=4e-15)
    np.testing.assert_allclose(Z.rows * np.linalg.norm(X, axis=1)[:, None],
                               (y * np.linalg.norm(Z.rows, axis=1))[:, None] * X, rtol=1e-14)


def test_constant_points_have_a_kernel():
    assert np.array_equal(fm.gram(np.full((4, 3), 2.0), kernel="rbf"), np.ones((4, 4)))


# ======================================================================================================
# PROX MAPS
# ======================================================================================================

def exact_projection(v):
    """Projection onto the simplex by sorting, in exact arithmetic."""
    v = [Fraction(float(x)) for x in v]
    cumulated, tau = Fraction(0), None
    for k, x in enumerate(sorted(v, reverse=True), 1):
        cumulated += x
        if x > (cumulated - 1) / k:
            tau = (cumulated - 1) / k
    return np.array([float(max(x - tau, Fraction(0))) for x in v])


def extended_entropy(g, mu, q):
    """q_i exp(-g_i / mu) / sum in extended precision, with exact differences of g."""
    low = min(Fraction(float(x)) for x, weight in zip(g, q, strict=True) if weight > 0)
    exponent = np.array([float(max((low - Fraction(float(x))) / Fraction(mu), -10**5)) if weight > 0 else -np.inf
                         for x, weight in zip(g, q, strict=True)], np.longdouble)  # below -10^5, exp is 0 all the same
    p = np.exp(exponent) * np.asarray(q, np.longdouble)
    return (p / p.sum()).astype(np.float64)


def shapes(n, seed):
    """Vectors of order 1 with and without ties."""
    rng = np.random.default_rng(seed)
    yield rng.normal(size=n)
    yield rng.integers(-2, 3, n) / 4.0  # ties
    yield np.zeros(n)
    yield np.sort(rng.normal(size=n) / 100)
    yield -np.sort(rng.normal(size=n) / 100)
    yield np.where(np.arange(n) == n // 2, 1.0, 1.0 - 1e-9)
    yield -rng.exponential(1.0, n) ** 4


SIZES = [1, 2, 3, 7, 40]
SCALES = [1.0, 1e-3, 1e9, 1e300, 1e-300]


def check_simplex(p, slack=0.0):
    assert (p >= 0).all()
    assert abs(p.sum() - 1.0) <= (4 + p.size) * EPS + slack


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("n", SIZES)
def test_project_simplex_is_exact(n, scale):
    for v in shapes(n, n):
        for shift in (0.0, 1e9, -1e16):
            w = scale * v + shift
            p = fm.project_simplex(w)
            check_simplex(p)
            np.testing.assert_allclose(p, exact_projection(w), rtol=0, atol=(3 + n) * EPS)


@pytest.mark.parametrize("n", [1000, 20000])
def test_project_simplex_of_long_vectors(n):
    for spread in (1e-6, 1e-2, 1.0, 1e3):
        v = spread * np.random.default_rng(n).normal(size=n)
        s = np.sort(v.astype(np.longdouble))[::-1]
        taus = (np.cumsum(s) - 1) / np.arange(1, n + 1)
        exact = np.maximum(v - taus[np.flatnonzero(s > taus)[-1]], 0)
        for order in (np.arange(n), np.argsort(v), np.argsort(-v)):
            p = fm.project_simplex(v[order])
            np.testing.assert_allclose(p, exact[order].astype(float), rtol=0, atol=30 * EPS)
            check_simplex(p)


@pytest.mark.parametrize("n", range(2, 13))
def test_project_simplex_of_many_short_vectors(n):
    """Every order in which the O(n) method can meet its entries: kept, dropped, postponed and taken back."""
    rng = np.random.default_rng(n)
    spread = np.repeat([0.05, 0.3, 1.0, 3.0], 150)[:, None]
    for v in (rng.normal(size=(600, n)) * spread, rng.integers(-4, 5, (600, n)) / 4.0 * spread):
        s = -np.sort(-v, axis=1)
        taus = (np.cumsum(s, axis=1) - 1) / np.arange(1, n + 1)
        exact = np.maximum(v - taus[np.arange(600), (s > taus).sum(axis=1) - 1, None], 0)
        got = np.array([fm.project_simplex(row) for row in v])
        np.testing.assert_allclose(got, exact, rtol=0, atol=16 * n * EPS)


@pytest.mark.parametrize("v, exact", [
    ([-1.7e308, 1.7e308, 1.7e308], [0, 0.5, 0.5]),  # the differences overflow
    ([1.7e308, -1.7e308, 1.7e308], [0.5, 0, 0.5]),
    ([1e300, 0, -1e300], [1, 0, 0]),
    ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]),
    ([1e16, 1e16, 0], [0.5, 0.5, 0]),
    ([5e-324, 0], [0.5, 0.5]),
])
def test_project_simplex_at_the_extremes(v, exact):
    assert np.array_equal(fm.project_simplex(v), exact)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_projection_inside_loops_takes_minus_infinity(where):
    v, out = np.array([0.25, 0.25, 0.25, 0.25]), np.empty(4)
    v[where] = -np.inf
    fm._project_simplex(v, out)
    np.testing.assert_allclose(out, np.where(np.isinf(v), 0.0, 1 / 3), rtol=4 * EPS)


def distributions(n, seed):
    rng = np.random.default_rng(seed)
    yield np.full(n, 1.0 / n)
    yield (lambda q: q / q.sum())(rng.exponential(1.0, n))
    q = rng.exponential(1.0, n)
    q[rng.random(n) < 0.5] = 0.0
    q[seed % n] = 1.0
    yield q / q.sum()
    yield np.eye(n)[seed % n]


MUS = [1.0, 0.37, 1e-12, 1e-300, 1e12, 1e300]


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("n", SIZES)
def test_entropy_prox_is_the_softmax(n, mu):
    for scale in SCALES:
        for g in shapes(n, n):
            for q in distributions(n, n):
                p = fm.entropy_prox(scale * g, mu, q)
                check_simplex(p)
                # an exponent x is rounded to eps |x|, and exp(x) |x| <= 1/e
                np.testing.assert_allclose(p, extended_entropy(scale * g, mu, q), rtol=0, atol=(8 + n) * EPS)
                assert not p[q == 0].any()
            assert np.array_equal(fm.entropy_prox(scale * g, mu), fm.entropy_prox(scale * g, mu, np.full(n, 1.0 / n)))


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("n", SIZES)
def test_l2_prox_is_the_projection(n, mu):
    for scale in SCALES:
        for g in shapes(n, n + 1):
            for q in (*distributions(n, n), rows_of(1, n)[0]):
                p = fm.l2_prox(scale * g, mu, q)
                check_simplex(p)
                low = min(Fraction(float(x)) for x in scale * g)
                exact = [Fraction(float(b)) - (Fraction(float(a)) - low) / Fraction(mu)
                         for a, b in zip(scale * g, q, strict=True)]
                exact = [float(max(x, Fraction(-10**9))) for x in exact]  # that far below, an entry is 0 for sure
                # q - g/mu, within 3 of its maximum where it counts, is rounded to a few eps
                np.testing.assert_allclose(p, exact_projection(exact), rtol=0, atol=(16 + n) * EPS)


@pytest.mark.parametrize("prox", ["entropy", "l2"])
def test_prox_differences_beyond_the_largest_number(prox):
    g, mu, q = [1.7e308, -1.7e308], 1.7e308, [0.5, 0.5]
    exact = {"entropy": [1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))], "l2": [0.0, 1.0]}[prox]
    np.testing.assert_allclose(getattr(fm, prox + "_prox")(g, mu, q), exact, rtol=4 * EPS)


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("mu", [0.01, 1.0, 50.0])
def test_prox_maps_satisfy_their_variational_inequality(n, mu):
    rng = np.random.default_rng(n)
    for g in shapes(n, n + 2):
        for q in distributions(n, n + 1):
            others = np.vstack((np.eye(n), rng.dirichlet(np.full(n, 0.5), 20), q))
            p = fm.l2_prox(g, mu, q)
            slope = g + mu * (p - q)
            assert ((others - p) @ slope).min() >= -20 * EPS * (np.abs(g).max() + mu)
            p = fm.entropy_prox(g, mu, q)
            inside = q > 0  # elsewhere KL is infinite
            if (p[inside] > 0).all():
                slope = g[inside] + mu * np.log(p[inside] / q[inside])
                feasible_others = others[~others[:, ~inside].any(axis=1)][:, inside]
                assert ((feasible_others - p[inside]) @ slope).min() >= -100 * EPS * (np.abs(g).max() + mu)
            v = fm.project_simplex(g)
            assert ((others - v) @ (v - g)).min() >= -20 * EPS * (np.abs(g).max() + 1)


@njit
def call_proxes(g, mu, q):
    return fm.project_simplex(g), fm.entropy_prox(g, mu), fm.entropy_prox(g, mu, q), fm.entropy_prox(g, mu, None), \
        fm.l2_prox(g, mu, q)


def test_prox_maps_inside_compiled_code():
    for g in shapes(25, 0):
        for q in distributions(25, 1):
            uniform = fm.entropy_prox(g, 0.3)
            expected = fm.project_simplex(g), uniform, fm.entropy_prox(g, 0.3, q), uniform, fm.l2_prox(g, 0.3, q)
            for got, want in zip(call_proxes(g, 0.3, q), expected, strict=True):
                assert np.array_equal(got, want)


@pytest.mark.parametrize("n", [1, 2, 9, 50])
def test_inner_prox_maps_may_write_over_their_input(n):
    for g in shapes(n, 3):
        for q in distributions(n, 2):
            for inner, args in ((fm._project_simplex, ()), (fm._entropy_prox, (0.2, q)), (fm._l2_prox, (0.2, q))):
                fresh, same, plain = np.empty(n), g.copy(), np.empty(n)
                inner(g, *args, fresh)
                inner(same, *args, same)
                inner.py_func(g, *args, plain)
                assert np.array_equal(fresh, same)
                np.testing.assert_allclose(plain, fresh, rtol=0, atol=4 * EPS)


@pytest.mark.parametrize("call", [lambda g, q: fm.project_simplex(g), lambda g, q: fm.entropy_prox(g, 0.5, q),
                                  lambda g, q: fm.entropy_prox(g, 0.5), lambda g, q: fm.l2_prox(g, 0.5, q)])
def test_prox_maps_leave_their_input_alone(call):
    g, q = np.array([0.3, -1.0, 2.0]), np.array([0.5, 0.25, 0.25])
    before = g.copy(), q.copy()
    out = call(g, q)
    assert not np.shares_memory(out, g) and not np.shares_memory(out, q)
    assert np.array_equal(g, before[0]) and np.array_equal(q, before[1])
    for same in (g.astype(np.float32), list(g), np.repeat(g, 2)[::2]):
        np.testing.assert_allclose(call(same, q), out, atol=2e-7)


# ======================================================================================================
# PRODUCTS
# ======================================================================================================

ODD_SIZES = [*range(1, 10), 31, 33, 64, 511, 512, 513, 514, 515, 1501]


def representation(kind, n, seed=0):
    """(representation, G in extended precision by its rows or matrix) of random data."""
    if kind == "features":
        Z = rows_of(n, 1 + n % 23, seed)
        return fm.FeatureGram(Z), Z
    A = rows_of(n, n, seed)
    A = (A + A.T).astype(np.float32 if kind == "float32" else np.float64)
    return fm.DenseGram(A), A


def product(G, v):
    n, d = G.shape()
    w, m = np.full(d, np.nan), np.full(n, np.nan)
    fm.lift(G, v, w)
    fm.margins(G, w, m)
    return w, m


KINDS = pytest.mark.parametrize("kind", ["float64", "float32", "features"])


def check_close(got, want, size, n):
    """|got - want| within the rounding of a sum of n terms of which ``size`` is the sum of absolute values."""
    assert (np.abs(got - want) <= (4 + np.sqrt(n)) * EPS * size).all()


@KINDS
@pytest.mark.parametrize("n", ODD_SIZES)
def test_products(kind, n):
    G, A = representation(kind, n)
    v = rows_of(1, n, 1)[0]
    v[::5] = 0.0
    w, m = product(G, v)
    if kind == "features":
        check_close(w, A.T @ v, np.abs(A.T) @ np.abs(v), n)
        check_close(m, A @ w, np.abs(A) @ np.abs(w), n)
    else:
        A = A.astype(np.float64)
        assert np.array_equal(w, v)
        check_close(m, A @ v, np.abs(A) @ np.abs(v), n)
    for i in {0, n // 2, n - 1}:
        before = m.copy()
        fm.add_column(G, i, -1.7, m)
        column = A @ A[i] if kind == "features" else A[i]
        size = np.abs(A) @ np.abs(A[i]) if kind == "features" else np.abs(A[i])
        check_close(m, before - 1.7 * column, np.abs(before) + 1.7 * size, A.shape[1])


@KINDS
@pytest.mark.parametrize("n", ODD_SIZES)
@pytest.mark.parametrize("size", [2.0, 1e8, 0.025])
def test_softmax_pass(kind, n, size):
    G, A = representation(kind, n)
    A = A.astype(np.float64)
    w = size * rows_of(1, A.shape[1], 2)[0]
    m, q, u = np.full(n, np.nan), np.full(n, np.nan), np.full(A.shape[1], np.nan)
    log_total = fm.softmax_pass(G, w, m, q, u)
    check_close(m, A @ w, np.abs(A) @ np.abs(w), A.shape[1])
    # q and u belong to the m that was computed
    exponent = m.min() - m.astype(np.longdouble)
    total = np.exp(exponent).sum()
    exact = (np.exp(exponent) / total).astype(float)
    np.testing.assert_allclose(q, exact, rtol=0, atol=(4 + np.sqrt(n)) * EPS)
    check_simplex(q)
    assert abs(log_total - float(np.log(total) - np.longdouble(m.min()))) <= 8 * EPS * (1 + abs(m.min()))
    if kind == "features":
        check_close(u, A.T @ exact, 4 * np.abs(A.T) @ exact, n)
    else:
        assert np.array_equal(u, q)


def test_softmax_pass_far_below_and_above():
    # Margins of +-1e5: naive exponentials overflow or vanish, and running minima fall in every chunk.
    for direction in (1.0, -1.0):
        Z = direction * np.linspace(1e5, -1e5, 203)[:, None]
        m, q, u = np.empty(203), np.empty(203), np.empty(1)
        log_total = fm.softmax_pass(fm.FeatureGram(Z), np.ones(1), m, q, u)
        assert q[np.argmin(m)] == 1.0 and u[0] == -1e5 and log_total == 1e5


@KINDS
@pytest.mark.parametrize("n", [5, 70, 600])
def test_any_number_of_threads_gives_the_same_bits(kind, n, threads):
    G, A = representation(kind, n)
    v = rows_of(1, n, 1)[0]
    results = []
    for count in (1, 2):
        threads(min(count, numba.config.NUMBA_NUM_THREADS))
        w, m = product(G, v)
        q, u = np.empty(n), np.empty(A.shape[1])
        total = fm.softmax_pass(G, w, m, q, u)
        fm.add_column(G, n - 1, 0.3, m)
        results.append(np.concatenate((w, m, q, u, [total])))
    assert np.array_equal(*results)


@pytest.mark.parametrize("representation_", REPRESENTATIONS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_on_one_thread_gives_the_same_bits(name, representation_, threads):
    G = REPRESENTATIONS[representation_](PLANTED["feasible, n > 512"][0])
    results = []
    for count in (1, 2):
        threads(min(count, numba.config.NUMBA_NUM_THREADS))
        results.append(run(name, G, max_iter=30))
    same_result(*results)


def layouts(A):
    """The same numbers in other clothes."""
    wide = np.zeros((2 * A.shape[0], 3 * A.shape[1]))
    wide[::2, 1::3] = A
    return {"Fortran": np.asfortranarray(A), "strided": wide[::2, 1::3], "reversed": A[::-1, ::-1].copy()[::-1, ::-1],
            "integer": A.astype(np.int64), "int8": A.astype(np.int8), "float32": A.astype(np.float32),
            "list": A.tolist(), "big-endian": A.astype(">f8")}


@pytest.mark.parametrize("layout", layouts(np.eye(2)))
def test_layouts_and_types_of_input(layout):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, (25, 4)).astype(float)
    y = np.where(rng.random(25) < 0.5, 1, -1)
    X[:, 0] += 10 * y  # integers, so that every type holds them; separable
    given = layouts(X)[layout]
    label = {"int8": y.astype(np.int8), "float32": y.astype(np.float32), "list": y.tolist()}.get(layout, y)
    alpha = np.arange(25)
    for kernel in ("linear", "rbf", "laplacian", "poly"):
        assert np.array_equal(fm.gram(given, label, kernel=kernel), fm.gram(X, y, kernel=kernel))
        assert np.array_equal(fm.decision_function(alpha, given, label, given, kernel=kernel),
                              fm.decision_function(alpha, X, y, X, kernel=kernel))
    assert np.array_equal(fm.features(given, label).rows, fm.features(X, y).rows)
    exact = dense(y[:, None] * X)  # integers
    if layout != "int8":
        for name in ALGORITHMS:
            same_result(run(name, layouts(exact)[layout], max_iter=20), run(name, exact, max_iter=20), rtol=1e-11)
            if not isinstance(given, list):
                same_result(run(name, fm.FeatureGram(layouts(y[:, None] * X)[layout]), max_iter=20),
                            run(name, fm.FeatureGram(y[:, None] * X), max_iter=20))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_inputs_are_neither_changed_nor_returned(name):
    Z = PLANTED["feasible"][0].copy()
    G = dense(Z)
    before = Z.copy(), G.copy()
    for given in (G, fm.FeatureGram(Z), np.asfortranarray(G)):
        result = run(name, given, max_iter=25, keep_iterates=True)
        for out in (result.alpha, result.p, result.iterates):
            assert not np.shares_memory(out, Z) and not np.shares_memory(out, G)
    alpha, p = result.alpha.copy(), result.p.copy()
    fm.certificate(G, alpha, p)
    assert np.array_equal(alpha, result.alpha) and np.array_equal(p, result.p)
    assert np.array_equal(Z, before[0]) and np.array_equal(G, before[1])
    X, y = two_classes(20, 3)
    kept = X.copy(), y.copy()
    fm.gram(X, y), fm.features(X, y), fm.kernel_matrix(X, X), fm.decision_function(np.ones(20), X, y, X)
    assert np.array_equal(X, kept[0]) and np.array_equal(y, kept[1])


@pytest.mark.parametrize("name", LOOPS)
def test_dense_and_features_walk_together(name):
    X, y = two_classes(70, 5, gap=4.0)
    Z = fm.features(X, y)
    a, b = (run(name, G, max_iter=300, trace_at=range(300), keep_iterates=True) for G in (Z, dense(Z.rows)))
    scale = np.abs(b.iterates).max(axis=1, keepdims=True) + 1e-300
    # step 1e6 amplifies the rounding of the first margins a millionfold
    slack = 1e-6 if "1e6" in name else 1e-11
    assert (np.abs(a.iterates - b.iterates) <= slack * scale).all()
    for field in ("lower", "upper"):
        np.testing.assert_allclose(a.trace[field], b.trace[field], rtol=0, atol=10 * slack)


# ======================================================================================================
# CERTIFICATE
# ======================================================================================================

@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_certificate_is_weak_duality(case, kind):
    Z, rho = PLANTED[case]
    G, n = REPRESENTATIONS[kind](Z), len(Z)
    s = scale_of(G)
    rng = np.random.default_rng(0)
    points = [*np.eye(n)[:5], np.full(n, 1 / n), *rng.dirichlet(np.full(n, 0.1), 10)]
    for alpha in (*points, *rng.normal(size=(10, n)), 1e200 * rng.normal(size=n), -np.ones(n)):
        for p in points[::3]:
            lower, upper = fm.certificate(G, alpha, p)
            size = np.linalg.norm(Z.T @ alpha / np.abs(alpha).sum())
            slack = 30 * EPS * s / size if size > 0 else 0
            assert lower <= rho + slack and rho <= upper + 1e-7 * np.sqrt(s) * (rho <= 0)
            if size > 1e-6 * np.sqrt(s):
                exact = exact_interval(Z, alpha, p)
                assert abs(lower - exact[0]) <= slack + 30 * EPS * s / size**2 * abs(exact[0]) * (kind == "dense")
                square_slack = 30 * EPS * s if kind == "dense" else 30 * EPS * np.sqrt(s) * (exact[1] + EPS)
                assert abs(upper**2 - exact[1] ** 2) <= square_slack
            else:
                assert lower <= rho


@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_certificate_without_a_direction(kind):
    Z, _ = feasible(20, 4, 0.3)
    G = REPRESENTATIONS[kind](3.0 * Z)
    p = np.full(20, 0.05)
    lower, upper = fm.certificate(G, np.zeros(20), p)
    assert lower == -np.sqrt(scale_of(G)) and 0.9 <= upper  # rho = 0.9
    pair = np.zeros(20)
    pair[:2] = 1.0
    twins = REPRESENTATIONS[kind](np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert fm.certificate(twins, [1.0, 1.0], [0.5, 0.5]) == (-1.0, 0.0)


@pytest.mark.parametrize("d", [2, 784, 10**4, 10**6])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_long_rows_do_not_make_the_certificate_contradict_itself(n, d):
    # m_i and ||w||^2 are sums of d terms, added in different orders
    for seed in range(3):
        Z = fm.features(np.random.default_rng(seed).random((n, d)), np.ones(n))
        p = fm.max_margin(Z, tol=1e-11).p
        lower, upper = fm.certificate(Z, p, p)
        assert abs(upper - lower) <= 1e-11


@pytest.mark.parametrize("G", [
    [[1.0, 1.5], [1.5, 1.0]],  # a 2x2 minor
    [[1.0, 0.0], [0.0, -1.0]],
    [[0.0, 1.0], [1.0, 0.0]],
    1.4 * np.eye(3) - 0.4 - 0.3 * np.ones((3, 3)),  # every 2x2 minor is positive, (1, 1, 1) is negative
    [[1.0, -0.9, -0.9], [-0.9, 1.0, -0.9], [-0.9, -0.9, 1.0]],
])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_indefinite_matrix_gives_no_certificate(G, name):
    for c in (1.0, 1e-6, 1e6):
        with pytest.raises(ValueError, match="positive semi-definite"):
            run(name, c * np.array(G), max_iter=200)


def test_weak_duality_finds_an_indefinite_matrix_out():
    """alpha'G alpha and p'Gp are both positive, but alpha's margins, 1.12 ||alpha||_G, exceed ||p||_G = 0.25."""
    G = np.array([[1.0, -0.92, 0.6], [-0.92, 1.0, 0.78], [0.6, 0.78, 1.0]])
    alpha, p = np.linalg.solve(G, np.ones(3)), np.array([0.43, 0.57, 0.0])
    assert alpha @ G @ alpha > 0.1 and p @ G @ p > 0.01
    with pytest.raises(ValueError, match="positive semi-definite"):
        fm.certificate(G, alpha, p)


# ======================================================================================================
# DRIVER
# ======================================================================================================

def same_result(a, b, rtol=0.0):
    """Equal but for the clock."""
    assert (a.status, a.n_iter) == (b.status, b.n_iter)
    for field in ("alpha", "p", "lower", "upper", "iterates"):
        x, y = getattr(a, field), getattr(b, field)
        if rtol and x is not None:
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(x).max())
        else:
            assert (x is None and y is None) or np.array_equal(x, y), field
    assert np.array_equal(a.trace["iteration"], b.trace["iteration"])


EASY = PLANTED["feasible"][0]
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
every_loop = pytest.mark.parametrize("name", LOOPS)


@every_algorithm
@pytest.mark.parametrize("max_iter", [0, 1, 2, 137])
def test_default_trace(name, max_iter):
    result = run(name, EASY @ EASY.T, max_iter=max_iter)
    at = result.trace["iteration"]
    assert at[0] == 0 and at[-1] == result.n_iter and (np.diff(at) > 0).all()
    assert (np.diff(result.trace["seconds"]) >= 0).all() and (np.diff(result.trace["products"]) > 0).all()
    assert result.trace["products"][0] == result.trace["seconds"][0] == 0
    if name in LOOPS:
        assert result.n_iter == max_iter and result.status == "max_iter"
        assert (at[1:] <= 10 ** (1 / 16) * at[:-1] + 1).all()  # 16 a decade, rounded
        assert len(at) == max_iter + 1 or len(at) < 32
    last = result.trace[-1]
    assert (last["lower"], last["upper"]) == (result.lower, result.upper)
    assert result.iterates is None and result.trace.dtype == fm._TRACE


@every_loop
def test_trace_at_and_iterates(name):
    """Row k of a long run is the answer of a run of k iterations."""
    at = [40, 3, 3, 0, 17, 400]
    long = run(name, EASY @ EASY.T, max_iter=60, trace_at=at, keep_iterates=True)
    assert long.trace["iteration"].tolist() == [0, 3, 17, 40, 60]
    cost = 1.0 / len(EASY) if name in COLUMN_ALGORITHMS else 1.0
    np.testing.assert_allclose(long.trace["products"], long.trace["iteration"] * cost, rtol=4 * EPS)
    for row, alpha in zip(long.trace, long.iterates, strict=True):
        short = run(name, EASY @ EASY.T, max_iter=int(row["iteration"]))
        assert np.array_equal(short.alpha, alpha) and short.n_iter == row["iteration"]
        assert (short.lower, short.upper) == (row["lower"], row["upper"])
        again = fm.certificate(EASY @ EASY.T, short.alpha, short.p)
        assert again == pytest.approx((short.lower, short.upper), rel=1e-13)
    assert np.array_equal(long.iterates[-1], long.alpha)
    for other in (range(61), np.array([60]), np.arange(0, 61, 7), 5, []):
        same_result(long._replace(trace=long.trace[-1:], iterates=None),
                    (lambda r: r._replace(trace=r.trace[-1:]))(run(name, EASY @ EASY.T, max_iter=60, trace_at=other)))


def test_max_margin_rounds_are_rows():
    Z, _ = PLANTED["feasible, n > 512"]
    long = fm.max_margin(fm.FeatureGram(Z), tol=1e-12, keep_iterates=True)
    assert long.trace["iteration"].tolist() == list(range(long.n_iter + 1))
    for k in range(long.n_iter):
        short = fm.max_margin(fm.FeatureGram(Z), tol=1e-12, max_iter=k)
        assert short.n_iter == k and short.status == "max_iter" and np.array_equal(short.alpha, long.iterates[k])


@every_algorithm
@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_the_cuts_of_the_driver_do_not_matter(name, kind, monkeypatch):
    G = REPRESENTATIONS[kind](EASY)
    plain = run(name, G, max_iter=80, keep_iterates=True)
    for tick in (0.0, 0.2, 1.0):  # pretend that every entry into the loop took this long
        clock = iter(tick * np.arange(10**6))
        monkeypatch.setattr(fm.time, "perf_counter", lambda clock=clock: next(clock))
        cut = run(name, G, max_iter=80, keep_iterates=True)
        same_result(cut, plain)
        assert np.array_equal(cut.trace[["products", "lower", "upper"]], plain.trace[["products", "lower", "upper"]])
        if tick == 1.0 and name in LOOPS:  # one iteration per entry: the clock ticks once for each
            np.testing.assert_allclose(cut.trace["seconds"], cut.trace["iteration"], rtol=1e-9)


@every_algorithm
def test_tol_stops_at_the_first_checkpoint_that_meets_it(name):
    G = EASY @ EASY.T
    free = run(name, G, max_iter=400, **({"tol": 1e-12} if name == "max_margin" else {}))
    gaps = (free.trace["upper"] - free.trace["lower"]) / free.trace["upper"]
    tol = float(np.sort(gaps)[len(gaps) // 2])
    first = int(np.argmax(gaps <= tol))
    result = run(name, G, max_iter=400, tol=tol)
    assert result.status == "certified" and result.n_iter == free.trace["iteration"][first]
    assert len(result.trace) == first + 1 and result.upper - result.lower <= tol * result.upper
    assert (gaps[:first] > tol).all()


@every_algorithm
def test_callback_sees_every_checkpoint(name):
    seen = []
    result = run(name, EASY @ EASY.T, max_iter=50, callback=seen.append, keep_iterates=True)
    assert [partial.n_iter for partial in seen] == result.trace["iteration"].tolist()
    assert [partial.status for partial in seen] == ["running"] * (len(seen) - 1) + [result.status]
    for k, partial in enumerate(seen):
        assert isinstance(partial, fm.Result) and len(partial.trace) == k + 1 and partial.iterates is None
        assert np.array_equal(partial.trace, result.trace[:k + 1])
        assert np.array_equal(partial.alpha, result.iterates[k])
        assert (partial.lower, partial.upper) == tuple(result.trace[["lower", "upper"]][k])


@every_algorithm
@pytest.mark.parametrize("exception", [KeyboardInterrupt, ZeroDivisionError])
def test_exceptions_of_the_callback_come_through(name, exception):
    calls = []

    def callback(partial):
        calls.append(partial.n_iter)
        if partial.n_iter >= 1:
            raise exception

    with pytest.raises(exception):
        run(name, EASY @ EASY.T, max_iter=50, callback=callback)
    assert calls == [0, 1]


@every_algorithm
def test_results_do_not_share_memory_with_the_run(name):
    """Someone who overwrites what a callback is given does not disturb the run."""
    def vandal(partial):
        if partial.status == "running":
            partial.alpha[:] = partial.p[:] = np.nan
            partial.trace["lower"] = np.nan

    same_result(*(run(name, EASY @ EASY.T, max_iter=50, trace_at=range(51), callback=callback)
                  for callback in (None, vandal)))


@every_algorithm
def test_repeated_runs_give_the_same_bits(name):
    same_result(run(name, EASY @ EASY.T, max_iter=40), run(name, EASY @ EASY.T, max_iter=40))


@every_algorithm
@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_opposite_points_are_infeasible_at_once(name, kind):
    result = run(name, REPRESENTATIONS[kind](np.array([[1.0, 0.0], [-1.0, 0.0]])), max_iter=50)
    assert result.status == "infeasible" and result.upper == 0.0 and result.lower <= 0.0
    assert np.array_equal(result.p, [0.5, 0.5]) and result.trace["iteration"][-1] == result.n_iter


# ======================================================================================================
# BAD INPUT
# ======================================================================================================

X3, Y3 = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]]), np.array([1, -1, 1])
ZERO, NAN, INF = X3.copy(), X3.copy(), X3.copy()
ZERO[1], NAN[2, 1], INF[1, 0] = 0.0, np.nan, -np.inf
ASKEW, HOLE = 2.0 * np.eye(3), np.eye(3)
ASKEW[2, 0], HOLE[1, 2] = 0.5, np.nan
UNIFORM = np.full(3, 1 / 3)

POINTS = {  # how a set of points may be wrong, and what the message says
    "nan": (NAN, Y3, ValueError, ["X must be finite", "row 2", "nan"]),
    "inf": (INF, Y3, ValueError, ["X must be finite", "row 1", "-inf"]),
    "label 0": (X3, [1, 0, -1], ValueError, ["labels", "y[1]", "0"]),
    "label 2": (X3, [1, -1, 2], ValueError, ["labels", "y[2]", "2"]),
    "label nan": (X3, [1, np.nan, 1], ValueError, ["y must be finite", "row 1"]),
    "lengths": (X3, [1, -1], ValueError, ["X has 3", "y has 2"]),
    "zero row": (ZERO, Y3, ValueError, ["row 1", "X", "K(x, x)"]),
    "empty": (np.empty((0, 2)), [], ValueError, ["X is empty"]),
    "no columns": (np.empty((3, 0)), Y3, ValueError, ["X is empty"]),
    "one-dimensional": (X3[0], Y3, ValueError, ["X", "2 dimension", "(2,)"]),
    "y matrix": (X3, [Y3], ValueError, ["y", "1 dimension", "(1, 3)"]),
    "text": (np.array([["a", "b"]] * 3), Y3, TypeError, ["X", "real numbers"]),
    "complex": (X3 * 1j, Y3, TypeError, ["X", "real numbers", "complex"]),
    "object": (np.array([[1, None]] * 3), Y3, TypeError, ["X", "real numbers", "object"]),
    "text labels": (X3, ["a", "b", "a"], TypeError, ["y", "real numbers"]),
    "overflow": (X3 * 1e200, Y3, ValueError, ["row 0", "overflow"]),
}


@pytest.mark.parametrize("case", POINTS)
@pytest.mark.parametrize("call", [
    lambda X, y: fm.gram(X, y, kernel="linear"),
    lambda X, y: fm.features(X, y),
    lambda X, y: fm.decision_function(np.ones(3), X, y, [[1.0, 1.0]], kernel="linear"),
], ids=["gram", "features", "decision_function"])
def test_bad_points(case, call):
    X, y, error, words = POINTS[case]
    check_raises(lambda: call(X, y), error, words)


def check_raises(call, error, words):
    with pytest.raises(error) as caught, np.errstate(all="ignore"):
        call()
    message = str(caught.value)
    assert all(word in message for word in words), f"{words} not all in {message!r}"


new = {"kernel": "linear"}
BAD_CALLS = [  # call, exception, words of the message
    (lambda: fm.gram(X3, Y3, kernel="cubic"), ValueError, ["kernel", "'cubic'", "'rbf'"]),
    (lambda: fm.gram(X3, Y3, kernel=None), ValueError, ["kernel", "None"]),
    (lambda: fm.gram(X3, Y3, normalize="l2"), ValueError, ["normalize", "'l2'", "'unit'"]),
    (lambda: fm.features(X3, Y3, normalize="l2"), ValueError, ["normalize", "'l2'"]),
    (lambda: fm.gram(X3, Y3, kernel="linear", gamma=1.0), TypeError, ["'linear'", "gamma"]),
    (lambda: fm.gram(X3, Y3, kernel="rbf", degree=2), TypeError, ["'rbf'", "degree", "sigma2"]),
    (lambda: fm.gram(X3, Y3, gamma=1.0, sigma2=1.0), ValueError, ["gamma", "sigma2", "both"]),
    (lambda: fm.gram(X3, Y3, gamma=-1.0), ValueError, ["gamma", "-1"]),
    (lambda: fm.gram(X3, Y3, gamma=0.0), ValueError, ["gamma", "0.0"]),
    (lambda: fm.gram(X3, Y3, gamma=np.nan), ValueError, ["gamma", "nan"]),
    (lambda: fm.gram(X3, Y3, gamma="auto"), ValueError, ["gamma", "'auto'", "'scale'"]),
    (lambda: fm.gram(X3, Y3, gamma=[1.0, 2.0]), TypeError, ["gamma", "number"]),
    (lambda: fm.gram(X3, Y3, sigma2=0.0), ValueError, ["sigma2", "0.0"]),
    (lambda: fm.gram(X3, Y3, sigma2=np.inf), ValueError, ["sigma2", "inf"]),
    (lambda: fm.gram(X3, Y3, kernel="poly", coef0=-1.0), ValueError, ["coef0", "-1"]),
    (lambda: fm.gram(X3, Y3, kernel="poly", degree=0), ValueError, ["degree", "0"]),
    (lambda: fm.gram(X3, Y3, kernel="poly", degree=2.0), TypeError, ["degree", "integer", "2.0"]),
    (lambda: fm.gram(X3, Y3, kernel="poly", degree=True), ValueError, ["degree", "True"]),
    (lambda: fm.gram(X3, Y3, dtype=np.int32), ValueError, ["dtype", "int32"]),
    (lambda: fm.gram(X3 * 1e200, Y3, kernel="rbf"), ValueError, ["X", "overflow"]),
    (lambda: fm.gram(X3 * 1e200, Y3, kernel="rbf", gamma=1.0), ValueError, ["X", "overflow"]),
    (lambda: fm.gram(0 * X3, Y3, kernel="linear", normalize="max"), ValueError, ["every row", "X"]),
    (lambda: fm.kernel_matrix(NAN, X3), ValueError, ["A must be finite", "row 2"]),
    (lambda: fm.kernel_matrix(X3, INF), ValueError, ["B must be finite", "row 1"]),
    (lambda: fm.kernel_matrix(X3, X3[:, :1]), ValueError, ["A has 2", "B has 1"]),
    (lambda: fm.decision_function(np.ones(2), X3, Y3, X3), ValueError, ["alpha has 2", "3 rows of X"]),
    (lambda: fm.decision_function([1, np.nan, 1], X3, Y3, X3), ValueError, ["alpha must be finite", "row 1"]),
    (lambda: fm.decision_function(np.ones(3), X3, Y3, X3[:, :1]), ValueError, ["X has 2", "Xnew has 1"]),
    (lambda: fm.decision_function(np.ones(3), X3, Y3, NAN), ValueError, ["Xnew must be finite", "row 2"]),
    (lambda: fm.decision_function(np.ones(3), X3, Y3, ZERO, **new), ValueError, ["row 1 of Xnew"]),
    (lambda: fm.project_simplex([1.0, np.nan]), ValueError, ["v must be finite", "row 1"]),
    (lambda: fm.project_simplex([]), ValueError, ["v is empty"]),
    (lambda: fm.project_simplex([[1.0]]), ValueError, ["v", "1 dimension"]),
    (lambda: fm.project_simplex(["a"]), TypeError, ["v", "real numbers"]),
    (lambda: fm.entropy_prox([np.inf, 1.0], 1.0), ValueError, ["g must be finite", "row 0"]),
    (lambda: fm.entropy_prox([0.0, 1.0], 0.0), ValueError, ["mu", "0.0"]),
    (lambda: fm.entropy_prox([0.0, 1.0], np.nan), ValueError, ["mu", "nan"]),
    (lambda: fm.entropy_prox([0.0, 1.0], "x"), TypeError, ["mu", "'x'"]),
    (lambda: fm.entropy_prox([0.0, 1.0], 1.0, [0.5, 0.6]), ValueError, ["q", "sum 1.1"]),
    (lambda: fm.entropy_prox([0.0, 1.0], 1.0, [1.5, -0.5]), ValueError, ["q", "-0.5"]),
    (lambda: fm.entropy_prox([0.0, 1.0], 1.0, UNIFORM), ValueError, ["q", "2", "3"]),
    (lambda: fm.l2_prox([0.0, np.nan], 1.0, [0.5, 0.5]), ValueError, ["g must be finite", "row 1"]),
    (lambda: fm.l2_prox([0.0, 1.0], 1.0, [np.nan, 0.5]), ValueError, ["q must be finite", "row 0"]),
    (lambda: fm.l2_prox([0.0, 1.0], 1.0, UNIFORM), ValueError, ["g has 2", "q has 3"]),
    (lambda: fm.l2_prox([0.0, 1.0], -1.0, [0.5, 0.5]), ValueError, ["mu", "-1"]),
    (lambda: fm.certificate(np.eye(3), np.ones(2), UNIFORM), ValueError, ["alpha has 2", "3 points"]),
    (lambda: fm.certificate(np.eye(3), [1, 2, np.inf], UNIFORM), ValueError, ["alpha must be finite", "row 2"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), np.ones(3)), ValueError, ["p", "sum 3"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), [1.5, -0.5, 0]), ValueError, ["p", "-0.5"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), [0.5, 0.5]), ValueError, ["p", "2"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), [np.nan, 0.5, 0.5]), ValueError, ["p must be finite", "row 0"]),
]


@pytest.mark.parametrize("call, error, words", BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_bad_calls(call, error, words):
    check_raises(call, error, words)


MATRICES = {
    "not square": (np.ones((2, 3)), ValueError, ["G", "square", "(2, 3)"]),
    "vector": (np.ones(3), ValueError, ["G", "square", "(3,)"]),
    "empty": (np.empty((0, 0)), ValueError, ["G", "(0, 0)"]),
    "none": (None, ValueError, ["G", "square matrix", "shape ()"]),
    "text": (np.array([["a"]]), ValueError, ["G", "real numbers"]),
    "complex": (1j * np.eye(2), ValueError, ["G", "complex"]),
    "nan": (HOLE, ValueError, ["G must be finite", "row 2", "nan"]),
    "nan on the diagonal": (np.diag([1.0, np.nan]), ValueError, ["G must be finite", "row 1", "nan"]),
    "inf": (np.diag([1.0, np.inf]), ValueError, ["G must be finite", "row 1", "inf"]),
    "asymmetric, Fortran": (ASKEW.T, ValueError, ["G must be symmetric", "G[2, 0] = 0.0,"]),
    "asymmetric, transposed": (ASKEW.T.copy(), ValueError, ["G must be symmetric", "G[2, 0] = 0.0,", "G[0, 2] = 0.5"]),
    "asymmetric": (ASKEW, ValueError, ["G must be symmetric", "row 2", "G[2, 0] = 0.5", "G[0, 2] = 0"]),
    "minor": (np.eye(4)[:, ::-1] * 1.1 + np.eye(4), ValueError, ["G must be positive semi-definite", "row 2"]),
    "negative": (np.diag([1.0, -1e-3]), ValueError, ["G must be positive semi-definite", "row 1"]),
    "zero": (np.zeros((2, 2)), ValueError, ["G_ii", "0"]),
    "rows nan": (fm.FeatureGram(NAN), ValueError, ["G.rows must be finite", "row 2"]),
    "rows zero": (fm.FeatureGram(0 * X3), ValueError, ["G_ii", "0"]),
    "rows empty": (fm.FeatureGram(np.empty((0, 2))), ValueError, ["G.rows is empty"]),
    "rows vector": (fm.FeatureGram(np.ones(3)), ValueError, ["G.rows", "2 dimensions"]),
    "rows text": (fm.FeatureGram(np.array([["a"]])), TypeError, ["G.rows", "real numbers"]),
    "rows overflow": (fm.FeatureGram(X3 * 1e200), ValueError, ["G_ii", "inf"]),
}
OPTIONS = [  # bad run options
    ({"max_iter": -1}, ValueError, ["max_iter", "-1"]), ({"max_iter": 2.5}, TypeError, ["max_iter", "2.5"]),
    ({"max_iter": "a"}, TypeError, ["max_iter", "'a'"]), ({"max_iter": None}, TypeError, ["max_iter", "None"]),
    ({"max_iter": True}, ValueError, ["max_iter", "True"]),
    ({"tol": -1.0}, ValueError, ["tol", "-1"]), ({"tol": 0.0}, ValueError, ["tol", "0"]),
    ({"tol": np.nan}, ValueError, ["tol", "nan"]), ({"tol": "a"}, TypeError, ["tol", "'a'"]),
    ({"trace_at": [1, -2]}, ValueError, ["trace_at", "-2"]), ({"trace_at": [1.5]}, TypeError, ["trace_at", "1.5"]),
    ({"trace_at": "ab"}, TypeError, ["trace_at"]),
]


@every_algorithm
@pytest.mark.parametrize("case", MATRICES)
def test_bad_matrices(name, case):
    G, error, words = MATRICES[case]
    check_raises(lambda: run(name, G), error, words)
    check_raises(lambda: fm.certificate(G, UNIFORM, UNIFORM), error, words)


@every_algorithm
@pytest.mark.parametrize("options, error, words", OPTIONS, ids=[str(o[0]) for o in OPTIONS])
def test_bad_options(name, options, error, words):
    check_raises(lambda: run(name, np.eye(3), **options), error, words)


@pytest.mark.parametrize("call, words", [
    (lambda: fm.gradient_descent(np.eye(2), loss="hinge"), ["loss", "'hinge'", "'logistic'"]),
    (lambda: fm.momentum(np.eye(2), loss="hinge"), ["loss", "'hinge'"]),
    (lambda: fm.normalized_gradient_descent(np.eye(2), schedule="linear"), ["schedule", "'linear'", "'sqrt'"]),
    (lambda: fm.gradient_descent(np.eye(2), step=0), ["step", "0"]),
    (lambda: fm.gradient_descent(np.eye(2), step=np.inf), ["step", "inf"]),
    (lambda: fm.normalized_gradient_descent(np.eye(2), step=-1), ["step", "-1"]),
])
def test_bad_parameters(call, words):
    check_raises(call, ValueError, words)


def test_asymmetry_of_rounding_is_accepted():
    G = dense(EASY)
    G[3, 5] += 4 * EPS
    assert fm.max_margin(G).status == "certified"


def test_float32_weights_are_a_distribution():
    for n in (3, 7, 1000):
        p = np.full(n, 1 / n, np.float32)  # its sum misses 1 by the rounding of float32
        assert fm.certificate(np.eye(n), p, p)[1] == pytest.approx(n**-0.5, rel=1e-6)


# ======================================================================================================
# THE MODULE
# ======================================================================================================

def test_imports_are_numpy_numba_and_the_standard_library():
    names = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names <= {"numpy", "numba"} | set(sys.stdlib_module_names)


def test_the_examples_of_the_docstrings():
    tested = doctest.testmod(fm)
    assert tested.attempted > 0 and tested.failed == 0


def python(code, folder, **environment):
    """Run code in a new interpreter that sees only what is in ``folder``; its output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(folder), **environment})
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A folder with a copy of the module and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(SOURCE, folder)
    return folder


def test_import_compiles_nothing_and_needs_no_scipy(alone, tmp_path):
    code = ("import sys, fastmargin; from pathlib import Path\n"
            "assert Path(fastmargin.__file__).parent == Path.cwd(), fastmargin.__file__\n"
            "print('scipy' in sys.modules, 'sklearn' in sys.modules)")
    assert python(code, alone, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["False", "False"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_loops_from_the_cache_start_their_own_threads(alone, tmp_path):
    """A compiled loop read from the cache once crashed in the parallel product, whose threads nobody had started:
    gradient_descent is compiled by a process that has the product from the cache, then run by one that has both."""
    code = ("import sys\nsys.modules['scipy'] = None  # whoever imports it fails\n"
            "import numpy as np, fastmargin as fm\n"
            "Z = np.random.default_rng(0).normal(size=(600, 5)) + [3, 0, 0, 0, 0]\n"
            "result = fm.{}(Z @ Z.T, max_iter=20)\nprint(result.lower, result.upper)")
    outputs = [python(code.format(name), alone, NUMBA_CACHE_DIR=str(tmp_path))
               for name in ("momentum", "gradient_descent", "gradient_descent")]
    assert outputs[1] == outputs[2] and outputs[0] != outputs[1]
    assert [path for path in tmp_path.rglob("*.nbc")]


def test_interpreted_runs_agree(alone):
    """Every loop and kernel as Python runs it, without the compiler: the dispatch works there as well."""
    cases = ["feasible", "feasible, odd n", "shifted cross-polytope", "one point", "one dimension"]
    code = ("import numpy as np, fastmargin as fm\nfrom planted import ALGORITHMS, PLANTED, REPRESENTATIONS, run\n"
            f"for case in {cases}:\n    for name in ALGORITHMS:\n        for kind in REPRESENTATIONS.values():\n"
            "            result = run(name, kind(PLANTED[case][0]), max_iter=7)\n"
            "            print(repr(float(result.lower)), repr(float(result.upper)))")
    shutil.copy(Path(__file__).parent / "planted.py", alone)
    lines = iter(python(code, alone, NUMBA_DISABLE_JIT="1").splitlines())
    for case in cases:
        for name in ALGORITHMS:
            for kind in REPRESENTATIONS.values():
                result = run(name, kind(PLANTED[case][0]), max_iter=7)
                got = [float(word) for word in next(lines).split()]
                np.testing.assert_allclose(got, [result.lower, result.upper], rtol=1e-9)
