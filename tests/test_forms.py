"""Points as users have them: sparse, in files, behind products, with noise (a ridge), off the origin (an intercept)."""

import copy
import functools
import os
import pickle
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from instances import (
    BY_ROWS,
    PLANTED,
    Csr,
    Products,
    Rows,
    Symmetric,
    check_raises,
    dense,
    in_file,
    meet,
    rows_of,
    same_answer,
    same_result,
    two_classes,
)

import fastmargin as fm

ROOT = Path(__file__).resolve().parents[1]


# ======================================================================================================
# ROWS IN OTHER FORMS
# ======================================================================================================


@pytest.mark.parametrize("kind", [kind for kind in BY_ROWS if kind != "features"])
@pytest.mark.parametrize("name", ["momentum", "batch_perceptron", "max_margin"])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_algorithms_walk_as_on_the_rows(kind, name, ridge):
    Z, _ = PLANTED["unequal weights"]
    Z = np.column_stack((Z, 0.0 * Z))
    G, twin = (make(Z) for make in (BY_ROWS[kind], BY_ROWS["features"]))
    if ridge:
        G = G.with_ridge(ridge)
        twin = fm.features(np.column_stack((Z, np.sqrt(ridge) * np.eye(len(Z)))), 1, normalize=None)
    one, two = (fm.ALGORITHMS[name](problem, max_iter=50) for problem in (G, twin))
    assert one.status == two.status and one.lower > 0
    if name == "max_margin":  # the interval determines the answer, rounding the way to it
        same_answer(one, two, twin.dense())
        return
    assert one.n_iter == two.n_iter
    assert one.upper == pytest.approx(two.upper, rel=1e-9)
    if ridge:  # the rows with a ridge as coordinates have no slacks to choose
        assert two.lower * (1.0 - 1e-9) <= one.lower <= one.upper
    else:
        assert one.lower == pytest.approx(two.lower, rel=1e-9)
    np.testing.assert_allclose(one.alpha, two.alpha, rtol=0, atol=1e-8 * np.abs(two.alpha).max())


FRESH = """
import sys, numpy as np, fastmargin as fm
G = fm.features(np.eye(3), 1, normalize=None).with_ridge(0.5)
G = fm.pair_gram(fm.features(np.eye(3)), np.arange(3), 3) if sys.argv[1] == "pairs" else G
print(fm.momentum(G, max_iter=2).status)
"""


@pytest.mark.dear
@pytest.mark.parametrize("kind", ["ridge", "pairs"])
def test_a_fresh_process_may_begin_with_a_composite(kind):
    """Code from the cache on disk needs Numba's threads to be there when it is loaded, in whatever order, which depends
    on the hashes of strings: else LLVM ends the process."""
    for _ in range(2):  # the second time all of it is in the cache
        subprocess.run(
            [sys.executable, "-c", FRESH, kind],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "3"},
        )


@pytest.mark.parametrize("size", [128, 256])
def test_bounds_of_sparse_rows_allow_for_many_columns(size):
    """Rows (1, t, ..., t) that share their first column alone: ||w||^2 is a sum of far more terms than a row has, each
    of them less than 1 holds.  rho^2 = 1 + t^2 at the uniform weights, by symmetry."""
    n = size
    t = 181 / 128 * 2.0**-27 * size
    columns = np.column_stack((np.zeros(n, dtype=np.int64), 1 + np.arange(n * n).reshape(n, n)))
    X = np.zeros((n, n * n + 1))
    np.put_along_axis(X, columns, np.r_[1.0, np.full(n, t)], axis=1)
    G = BY_ROWS["sparse"](X)
    p = np.full(n, 1.0 / n)
    for precise in (False, True):
        lower, upper = fm.certificate(G, p, p, precise=precise)
        assert Fraction(lower) ** 2 <= 1 + Fraction(t) ** 2 <= Fraction(upper) ** 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8])
@pytest.mark.parametrize("intercept", [0.0, 2.5])
def test_features_of_a_sparse_matrix(dtype, intercept):
    X = np.random.default_rng(0).integers(-3, 4, (30, 8)).astype(dtype)
    X[X < 2] = 0
    X[:, 3] = 0
    X[4] = 0
    y = np.where(np.arange(30) % 3, 1, -1)
    for normalize in ("max", None, "unit"):
        if normalize == "unit":
            X[~X.any(axis=1), 1] = 1  # an empty row has no direction
        G = fm.features(Csr(X), y, normalize=normalize, intercept=intercept)
        want = fm.features(X, y, normalize=normalize, intercept=intercept)
        assert G.store.work == np.count_nonzero(X)
        np.testing.assert_allclose(G.dense(), want.dense(), rtol=0, atol=1e-14)


# ======================================================================================================
# IN A FILE
# ======================================================================================================


def on_disk(path, X, mode="r"):
    np.save(path, X)
    return np.load(path, mmap_mode=mode)


@pytest.mark.parametrize("dtype, mode", [(np.float32, "r"), (np.float64, "r+"), (np.float32, "c")])
def test_points_in_a_file_are_those_in_memory(tmp_path, dtype, mode):
    X, y = two_classes(700, 400, 30.0)  # enough for threads
    X = X.astype(dtype)
    file = on_disk(tmp_path / "X.npy", X, mode)
    for normalize in ("unit", "max", None):
        G = fm.features(file, y, normalize=normalize)
        want = fm.features(X, y, normalize=normalize)
        assert np.shares_memory(G.store.rows, file)
        assert (G.n, G.d) == (want.n, want.d)
        np.testing.assert_allclose(G.diagonal(), want.diagonal(), rtol=1e-13)
        one = fm.momentum(G, max_iter=30)
        two = fm.momentum(want, max_iter=30)
        np.testing.assert_allclose((one.lower, one.upper), (two.lower, two.upper), rtol=1e-11)
    part = file[5:50]  # begins within a page
    one, two = (fm.features(points, y[5:50]) for points in (part, X[5:50]))
    same_answer(fm.max_margin(one), fm.max_margin(two), two.dense())


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "laplacian", "ntk"])
def test_lazy_entries_of_points_in_a_file(tmp_path, kernel):
    X, y = two_classes(90, 6, 2.0)
    for dtype in (np.float32, np.float64):
        file = on_disk(tmp_path / f"{np.dtype(dtype).name}.npy", X.astype(dtype))
        G, want = (fm.lazy_gram(points, y, kernel=kernel) for points in (file, np.array(file)))
        assert np.shares_memory(G.store.prepared.rows, file)
        assert not np.shares_memory(want.store.prepared.rows, file)
        np.testing.assert_allclose(G.dense(), want.dense(), rtol=0, atol=1e-12)
        one = fm.momentum(G, max_iter=40)
        two = fm.momentum(want, max_iter=40)
        np.testing.assert_allclose((one.lower, one.upper), (two.lower, two.upper), rtol=1e-6)


def test_the_scale_of_points_in_a_file_is_that_of_points_in_memory(tmp_path):
    """Of several blocks whose means differ: gamma="scale" takes it."""
    X = rows_of(3000, 700) + np.linspace(-5.0, 5.0, 3000)[:, None]
    G, want = (
        fm.lazy_gram(points, gamma="scale", kernel="poly")
        for points in (on_disk(tmp_path / "X.npy", X), X)
    )
    assert G.kernel.gamma == pytest.approx(want.kernel.gamma, rel=1e-13)


def test_what_is_written_to_a_private_copy_stays():
    """Pages of a file may be read again, those that were changed in memory may not be given up."""
    Z = rows_of(3000, 700)  # 17 MB: several windows
    for mode in ("r+", "c"):
        with tempfile.NamedTemporaryFile() as file:
            np.save(file, np.zeros_like(Z))
            file.flush()
            X = np.load(file.name, mmap_mode=mode)
            X[:] = Z
            v = np.ones(len(Z)) / len(Z)
            for _ in range(2):
                m = fm.features(X, 1, normalize=None) @ v
                np.testing.assert_allclose(m, Z @ (v @ Z), rtol=0, atol=1e-11)
            assert np.array_equal(X, Z)


@pytest.mark.parametrize("row", [3, 2999])
def test_errors_name_the_row_of_a_file(tmp_path, row):
    X = np.ones((3000, 700), dtype=np.float32)
    X[row, 5] = np.nan
    file = on_disk(tmp_path / "X.npy", X)
    words = ["X must be finite", f"row {row} has nan", f"X[{row}, 5]"]
    for make in (fm.features, fm.lazy_gram):
        check_raises(lambda make=make, file=file: make(file), ValueError, words)
    X[row] = 0.0
    file = on_disk(tmp_path / "X.npy", X)
    check_raises(lambda: fm.features(file), ValueError, [f"row {row} of X has K(x, x) = 0"])


def test_files_in_other_layouts_are_copied(tmp_path):
    X, y = two_classes(40, 5, 3.0)
    want = fm.features(X, y).dense()
    for number, other in enumerate((np.asfortranarray(X), X.astype(">f8"))):
        G = fm.features(on_disk(tmp_path / f"{number}.npy", other), y)
        assert np.array_equal(G.dense(), want)


# ======================================================================================================
# BEHIND PRODUCTS
# ======================================================================================================


def test_a_symmetric_operator_has_the_answers_of_its_matrix():
    G = dense(PLANTED["unequal weights"][0])
    given = Products(Symmetric(G))
    assert np.array_equal(given.dense(), G) and np.array_equal(given.diagonal(), G.diagonal())
    same_answer(fm.max_margin(given), fm.max_margin(G), G)
    for algorithm in (fm.momentum, fm.batch_perceptron):
        one = algorithm(given, max_iter=40)
        two = algorithm(G, max_iter=40)
        assert one.status == two.status
        np.testing.assert_allclose((one.lower, one.upper), (two.lower, two.upper), rtol=1e-9)


def test_an_operator_can_be_copied_with_its_representation():
    Z, _ = PLANTED["feasible"]
    G = Products(Rows(Z)).with_ridge(0.1)
    want = fm.momentum(G, max_iter=3)
    for again in (
        copy.deepcopy(G),
        pickle.loads(pickle.dumps(G)),
        copy.copy(Products(Rows(Z))).with_ridge(0.1),
    ):
        same_result(fm.momentum(again, max_iter=3), want)


# ======================================================================================================
# WITH NOISE: A RIDGE
# ======================================================================================================

X, Y = two_classes(40, 6, 1.0, 3)  # the classes overlap
RIDGED = {
    "gram": lambda **options: fm.gram(X, Y, **options),
    "gram, linear": lambda **options: fm.gram(X, Y, kernel="linear", normalize=None, **options),
    "features": lambda **options: fm.features(X, Y, **options),
    "sparse": lambda **options: fm.features(Csr(X), Y, **options),
    "mapped": lambda **options: fm.features(in_file(X), Y, **options),
    "lazy": lambda **options: fm.lazy_gram(X, Y, **options),
    "pairs": lambda **options: fm.pair_gram(fm.gram(X), (Y + 1) // 2, 2, **options),
    "operator": lambda ridge=0.0: Products(Rows(Y[:, None] * X)).with_ridge(ridge),
    "symmetric operator": lambda ridge=0.0: Products(Symmetric(dense(X))).with_ridge(ridge),
}


@pytest.mark.parametrize("name", RIDGED)
@pytest.mark.parametrize(
    "ridge",
    [1e-6, 30.0, np.random.default_rng(0).permutation(np.geomspace(0.01, 30.0, 40))],
    ids=["small", "large", "of each point"],
)
def test_a_ridge_is_added_to_the_diagonal(name, ridge):
    """Of the matrix, of both operations, and of the interval of the maximum margin."""
    G = RIDGED[name](ridge=ridge)
    exact = np.asarray(RIDGED[name]()) + ridge * np.eye(40)
    np.testing.assert_allclose(G, exact, rtol=1e-12, atol=1e-13)
    assert np.array_equal(np.broadcast_to(G.ridge, 40), np.broadcast_to(ridge, 40))
    size = exact.diagonal().max()
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-12 * size)
    n = len(G)
    v = rows_of(1, n, 4)[0]
    V = rows_of(n, 3, 4)
    np.testing.assert_allclose(G.diagonal(), exact.diagonal(), rtol=1e-12)
    assert G.scale == G.diagonal().max()
    m = np.empty(n)
    fm.product(G, v, m)
    close(m, exact @ v)
    close(G @ V, exact @ V)
    fm.add_column(G, 7, -2.0, m)
    close(m, exact @ v - 2.0 * exact[:, 7])
    some = np.array([5, 1, 30])
    part = exact[np.ix_(some, some)]
    np.testing.assert_allclose(G.block(some, some), part, rtol=1e-12, atol=1e-13)
    if "operator" not in name:
        np.testing.assert_allclose(G.restrict(some).dense(), part, rtol=1e-12, atol=1e-13)
    one = fm.max_margin(G)
    two = fm.max_margin(exact)
    least = np.min(ridge)
    assert one.status == "certified" or (one.status == "rounding" and least < 1e-3)
    assert one.upper >= np.sqrt(least / n)
    assert meet(one, two)
    assert one.upper - one.lower <= (1e-8 if least > 1e-3 else 1e-2) * one.upper


def test_a_ridge_of_zero_changes_nothing():
    for make in RIDGED.values():
        assert type(make()) is type(make(ridge=0.0))
        assert type(make()) is type(make(ridge=np.zeros(40)))


def test_slacks_of_a_ridge_meet_the_conditions_of_the_soft_margin():
    """With f of the maximum margin, min 1/2 ||f||^2 + C sum_i max(0, 1 - y_i f(x_i))^2 = 1 / (2 rho^2), C = 1/(2 r)."""
    for ridge in (0.01, 1.0, 100.0, np.geomspace(0.01, 100.0, 40)):
        G = fm.gram(X, Y, ridge=ridge)
        plain = np.asarray(G) - ridge * np.eye(40)
        result = fm.max_margin(G, tol=1e-12)
        beta = result.p / result.upper**2
        m = plain @ beta
        slack = np.maximum(0.0, 1.0 - m)
        value = 0.5 * beta @ m + (0.5 / ridge * slack**2).sum()
        # What it is above the dual value of beta: 0 where slack = r beta, and beta = 0 where m > 1
        gap = (0.5 / ridge * (slack - ridge * beta) ** 2).sum() + beta @ np.maximum(0.0, m - 1.0)
        assert gap <= 4e-12 * value
        assert value == pytest.approx(0.5 / result.lower**2, rel=1e-9)


@pytest.mark.parametrize("name", ["gram", "features", "sparse", "lazy", "pairs"])
def test_a_ridge_of_many_orders_of_magnitude_leaves_the_others_their_digits(name):
    """A point of almost no weight has a huge r_i, of which rounding must not take its measure, nor "infeasible"."""
    plain = RIDGED[name]()
    without = fm.max_margin(plain.restrict(np.arange(39)).with_ridge(0.1), tol=1e-9)
    for last in (1e6, 1e10, 1e15):
        G = plain.with_ridge(np.append(np.full(39, 0.1), last))
        for precise in (False, True):
            result = fm.max_margin(G, tol=1e-9)
            lower, upper = fm.certificate(G, result.alpha, result.p, precise=precise)
            assert result.status == "certified"
            assert 0.0 < upper * (1.0 - 1e-9) <= lower <= without.upper
            assert lower == pytest.approx(without.lower, rel=max(10.0 / last, 2e-9))


# ======================================================================================================
# OFF THE ORIGIN: AN INTERCEPT
# ======================================================================================================

KERNELS = {
    "linear": {},
    "poly": {"degree": 2},
    "rbf": {},
    "laplacian": {},
    "ntk": {},
    "precomputed": {},
    "callable": {},
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("normalize", ["unit", "max", None])
def test_an_intercept_is_a_constant_feature(kernel, normalize):
    params = KERNELS[kernel]
    c = 1.7
    if kernel == "callable":
        kernel = lambda A, B: (A @ B.T + 1.0) ** 2  # noqa: E731
    given = X @ X.T if kernel == "precomputed" else X
    K = fm.kernel_matrix(given, given, kernel=kernel, **params)
    moved = fm.kernel_matrix(given, given, kernel=kernel, intercept=c, **params)
    np.testing.assert_allclose(moved, K + c**2, rtol=1e-12)
    squares = moved.diagonal()
    squares = {"unit": squares, "max": squares.max(), None: 1.0}[normalize]
    factor = Y / np.sqrt(squares)
    want = np.outer(factor, factor) * moved
    size = np.abs(want).max()
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-11 * size)
    options = {"kernel": kernel, "normalize": normalize, "intercept": c, **params}
    close(fm.gram(given, Y, **options), want)
    if isinstance(kernel, str) and kernel != "precomputed":
        alpha = rows_of(1, 40, 6)[0]
        G = fm.lazy_gram(X, Y, **options)
        close(G.dense(), want)
        m = G @ alpha
        close(m, want @ alpha)
        fm.add_column(G, 3, 2.0, m)
        close(m, want @ alpha + 2.0 * want[:, 3])


@pytest.mark.parametrize(
    "make",
    [fm.features, lambda X, y, **options: fm.features(Csr(X), y, **options)],
    ids=["features", "sparse"],
)
@pytest.mark.parametrize("normalize", ["unit", "max", None])
def test_the_intercept_of_features_is_a_column(make, normalize):
    G = make(X, Y, normalize=normalize, intercept=0.8)
    want = fm.features(np.column_stack((X, np.full(40, 0.8))), Y, normalize=normalize)
    assert (G.n, G.d, want.d) == (40, 6, 7)
    np.testing.assert_allclose(G.dense(), want.dense(), rtol=0, atol=1e-13 * want.diagonal().max())
    np.testing.assert_allclose(G.coordinates(), want.coordinates(), rtol=1e-13)


def test_points_beside_the_origin_need_an_intercept():
    points = rows_of(60, 3) / 10 + 5.0
    y = np.where(points[:, 0] > 5.0, 1, -1)
    points[:, 0] += 0.05 * y
    far = np.array([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]])
    assert fm.max_margin(fm.features(np.vstack((points, far)), np.append(y, (1, -1)))).lower <= 0.0
    G = fm.features(points, y, normalize=None, intercept=5.0)
    result = fm.max_margin(G)
    assert result.status == "certified"
    assert (y * G.decision_function(result, points) > 0).all()
