"""Gram matrices that are never formed: those evaluated on demand, and those of the pairs of a multiclass problem."""

import math
import resource
import sys
import tracemalloc
from fractions import Fraction
from functools import partial

import naive
import numpy as np
import pytest
from instances import (
    EPS,
    dense,
    meet,
    pair_rows,
    rows_of,
    same_answer,
    same_result,
    scale_of,
    threads,
    two_classes,
)

import fastmargin as fm


def units(d, width, seed=0):
    return rows_of(width, d, seed)


LAZY = {  # name -> (kernel, its parameters for points in d dimensions)
    "linear": lambda d: ("linear", {}),
    "poly": lambda d: ("poly", {"degree": 4, "coef0": 0.5}),
    "rbf": lambda d: ("rbf", {}),
    "rbf, narrow": lambda d: ("rbf", {"gamma": 3.0}),
    "laplacian": lambda d: ("laplacian", {"gamma": 0.4}),
    "ntk": lambda d: ("ntk", {}),
}
every_lazy = pytest.mark.parametrize("name", LAZY)
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])  # of the points


def lazy(name, n, d, dtype=np.float64, normalize="unit", blank=False, signed=True):
    """(G, its matrix in extended precision, by the points that it holds)."""
    X, y = two_classes(n, d, seed=n + d)
    X += 0.1
    if blank:  # many zeros, also in whole blocks of coordinates
        X[np.random.default_rng(n).random((n, d)) < 0.6] = 0.0
        X[:, ::3] = 0.0
        X[:, 0] += 1.0 + np.arange(n) % 7
    kernel, params = LAZY[name](d)
    X = X.astype(dtype)
    G = fm.lazy_gram(X, y if signed else None, kernel=kernel, normalize=normalize, **params)
    rows = G.store.prepared.rows.astype(naive.LONG)
    if kernel in ("rbf", "laplacian"):  # gamma is that of all points, which are held centred
        gamma = naive.LONG(G.kernel.gamma)
        distances = (
            naive.squared_distances(rows, rows)
            if kernel == "rbf"
            else np.abs(rows[:, None] - rows).sum(axis=2)
        )
        K = np.exp(-gamma * distances)
    elif kernel == "ntk":
        K = naive.tangent_limit(rows, rows)
    elif kernel == "poly":
        K = (naive.LONG(G.kernel.gamma) * (rows @ rows.T) + params["coef0"]) ** params["degree"]
    else:
        K = rows @ rows.T
    return G, np.outer(G._c, G._c) * K


def product(G, v):
    m = np.full(len(G), np.nan)
    fm.product(G, v, m)
    return m


# ======================================================================================================
# EVALUATED ON DEMAND
# ======================================================================================================


@pytest.mark.filterwarnings("ignore:all labels")  # of one point
@every_lazy
@every_dtype
@pytest.mark.parametrize(
    "n, d, blank", [(1, 3, False), (3, 1, False), (31, 4, False), (70, 5, True), (131, 9, True)]
)
def test_products_and_columns_are_within_the_stated_rounding(name, n, d, blank, dtype):
    for normalize in ("unit", "max", None):
        G, exact = lazy(name, n, d, dtype, normalize, blank)
        s = scale_of(G)
        bound = G.rounding().margins
        assert bound < 2e-12
        reach = G.kernel.gamma * G.store.prepared.squares.max()
        slack = s * min(bound, 2e-14 * (1.0 + reach))
        np.testing.assert_allclose(G.diagonal(), exact.diagonal().astype(float), rtol=1e-14)
        np.testing.assert_allclose(G.dense(), exact.astype(float), rtol=0, atol=slack)
        for share in (1.0, 0.7, 0.2):  # all of G, its lower triangle; or the columns with a weight
            v = rows_of(1, n, 1)[0]
            v[int(math.ceil(share * n)) :] = 0.0
            v /= np.abs(v).sum()
            assert np.abs(product(G, v) - exact @ v).max() <= slack
        for i in {0, n // 2, n - 1}:
            m = np.ones(n)
            fm.add_column(G, i, -0.5, m)
            assert np.abs(m - (1.0 - 0.5 * exact[:, i])).max() <= slack + EPS
        index = np.arange(n)[::-2]
        part = G.restrict(index)
        assert type(part.store) is type(G.store)
        assert np.abs(part.dense() - exact[np.ix_(index, index)]).max() <= slack
        assert (
            np.abs(
                product(part, np.full(len(index), 1.0 / len(index)))
                - exact[np.ix_(index, index)].mean(axis=1)
            ).max()
            <= slack
        )


@every_lazy
def test_products_with_many_weights_are_those_of_each(name):
    for n, d, k in ((90, 3, 1), (90, 3, 7), (300, 2, 2), (40, 30, 9)):
        G, exact = lazy(name, n, d, signed=False)
        for share in (1.0, 0.1):
            W = rows_of(k, n, 3)
            W[:, int(share * n) :] = 0.0
            M = (G @ W.T).T
            size = np.abs(W).sum(axis=1).max()
            assert np.abs(M - W @ exact).max() <= G.rounding().margins * scale_of(G) * size
            if k == 1:
                assert np.array_equal(product(G, W[0]), M[0])


def test_a_product_by_columns_holds_few_entries_at_a_time():
    """And nothing fails where no point has a weight, so that there are no columns."""
    n = 20_000
    G = fm.lazy_gram(rows_of(n, 3))
    for count in (1000, 0):
        W = np.zeros((2, n))
        W[:, :count] = rows_of(2, count)
        tracemalloc.start()
        try:
            M = (G @ W.T).T
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 0.2 * 8 * n * 1000
        assert np.isfinite(M).all() and M.any() == (count > 0)


@pytest.mark.parametrize("count", [1100, 600, 500, 10])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])  # by differences, and by inner products
def test_a_product_evaluates_half_of_the_matrix_or_the_columns_with_weights(
    kernel, count, monkeypatch
):
    n = 1100
    monkeypatch.setattr(fm, "_EVALUATED", 128)
    G = fm.lazy_gram(rows_of(n, 3), kernel=kernel)
    v = np.zeros(n)
    v[:count] = 1.0
    wanted = product(G, v)
    sizes = []
    fill = fm._Polynomial._fill
    block = fm._block_of_distances

    def filling(kernel, A, B, out):
        sizes.append(out.size)
        fill(kernel, A, B, out)

    def in_block(scale, rows, start, stop, line, size, *rest):
        sizes.append((stop - start) * size)
        block(scale, rows, start, stop, line, size, *rest)

    monkeypatch.setattr(fm._Polynomial, "_fill", filling)
    # Compiled loops run as source, so that what they call can be counted.
    monkeypatch.setattr(fm, "_block_of_distances", in_block)
    monkeypatch.setattr(fm, "_sum_share", fm._sum_share.py_func)
    monkeypatch.setattr(
        fm, "_enter_by_size", lambda work, alone, in_parallel, *args: alone.py_func(*args)
    )
    np.testing.assert_allclose(product(G, v), wanted, rtol=1e-12)
    largest = fm._ROWS if kernel == "rbf" else fm._EVALUATED  # of the blocks on the diagonal
    assert 0 < sum(sizes) <= ((n**2 + n * largest) / 2 if 2 * count > n else n * count)


@every_lazy
@pytest.mark.parametrize("d", [6, 40])
def test_new_points_have_coordinates_that_are_0_in_all_points(name, d):
    """These are not kept; in new points they count."""
    X, y = two_classes(30, d)
    X[:, [0, 3]] = 0.0
    new = rows_of(5, d, 1)
    kernel, params = LAZY[name](d)
    options = {"kernel": kernel, "normalize": None, **params}
    v = rows_of(1, 30, 2)[0]
    found = fm.lazy_gram(X, y, **options).decision_function(v, new)
    wanted = (v * y) @ fm.kernel_matrix(X, new, kernel=kernel, **params)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


@every_lazy
def test_lazy_results_do_not_depend_on_threads(name):
    G, _ = lazy(name, 400, 6)
    results = []
    for count in (1, 2):
        with threads(count):
            m = product(G, np.full(400, 0.01))
            fm.add_column(G, 399, 2.0, m)
            results.append(m)
    assert np.array_equal(*results)


@every_lazy
@pytest.mark.parametrize("normalize", ["unit", "max"])
def test_lazy_and_dense_give_the_same_answer(name, normalize):
    X, y = two_classes(60, 4, 3.0, 2)
    kernel, params = LAZY[name](4)
    one, two = (
        make(X, y, kernel=kernel, normalize=normalize, **params) for make in (fm.lazy_gram, fm.gram)
    )
    for algorithm in (fm.momentum, fm.batch_perceptron, fm.max_margin):
        a = algorithm(one, max_iter=60)
        b = algorithm(two, max_iter=60)
        np.testing.assert_allclose((a.lower, a.upper), (b.lower, b.upper), rtol=1e-6)


def test_copies_with_opposite_labels_are_never_separated():
    X = np.repeat(rows_of(20, 3), 2, axis=0)
    y = np.tile([1, -1], 20)
    for kernel, params in (LAZY[name](3) for name in LAZY):
        result = fm.max_margin(fm.lazy_gram(X, y, kernel=kernel, **params))
        assert result.lower <= 0.0 and result.status == "rounding", (kernel, result)
        assert result.upper <= 1e-3


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_nothing_as_large_as_g_is_kept():
    """15,000 points: G would take 1.8 GB."""
    X, y = two_classes(15_000, 5, seed=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = fm.adaptive_sampling(fm.lazy_gram(X, y), max_iter=200)
    assert result.upper > result.lower
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 5e8


# ======================================================================================================
# THE TANGENT KERNEL
# ======================================================================================================


def gradient_features(X, W, a):
    """df/d(a, W) of f(x) = m^{-1/2} sum_j a_j relu(w_j'x), a row for each point."""
    hidden = X @ W.T
    layer = (hidden > 0)[:, :, None] * X[:, None, :] * a[:, None]
    return np.hstack((np.maximum(hidden, 0.0), layer.reshape(len(X), -1))) / math.sqrt(len(W))


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 200])
def test_the_tangent_kernel_is_the_gram_matrix_of_gradients(width):
    X = rows_of(40, 6, 1)
    new = rows_of(9, 6, 2)
    W = units(6, width)
    W[0] = 0.0  # a unit on the edge everywhere: relu'(0) = 0
    a = np.where(np.random.default_rng(3).random(width) < 0.5, -1.0, 1.0)
    F = gradient_features(X, W, a)
    F_new = gradient_features(new, W, a)
    kernel = partial(naive.tangent_kernel, W)
    G = fm.gram(X, kernel=kernel, normalize=None)
    np.testing.assert_allclose(G, F @ F.T, rtol=0, atol=1e-13)
    alpha = rows_of(1, 40, 4)[0]
    np.testing.assert_allclose(
        G.decision_function(alpha, new), F_new @ (alpha @ F), rtol=0, atol=1e-11
    )


def test_the_limit_is_half_the_sum_of_two_arc_cosine_kernels():
    """Of degree 1, and <x, x'> times that of degree 0 (Cho & Saul 2009); copies of a point count as such."""
    X = rows_of(30, 4, 5)
    X[7], X[8], X[9] = X[6], -X[6], 3.0 * X[6]
    got = fm.kernel_matrix(X, X, kernel="ntk")
    np.testing.assert_allclose(
        got, naive.tangent_limit(X, X).astype(float), rtol=0, atol=1e-14 * got.max()
    )
    assert got[6, 7] == got[6, 6] == got[7, 7] and got[6, 8] == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(got.diagonal(), (X**2).sum(axis=1), rtol=1e-14)


def test_wide_networks_tend_to_the_limit():
    X = rows_of(30, 5, 6)
    limit = np.asarray(fm.gram(X, kernel="ntk"))
    errors = [
        np.abs(
            np.asarray(fm.gram(X, kernel=partial(naive.tangent_kernel, units(5, width, 7)))) - limit
        ).max()
        for width in (100, 10_000, 400_000)
    ]
    assert errors[2] < 0.01 and errors[2] < 0.3 * errors[1] < 0.1 * errors[0]


# ======================================================================================================
# PAIRS
# ======================================================================================================


def explicit_rows(X, labels, n_classes):
    return np.array(pair_rows(X.tolist(), labels, n_classes)) / math.sqrt(2.0)


def classes(n, d, k, gap=4.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.concatenate((np.arange(k), rng.integers(0, k, n - k)))
    return rng.normal(size=(n, d)) + gap * rng.normal(size=(k, d))[labels], labels


BASES = {
    "dense": lambda X: X @ X.T,
    "lazy": lambda X: fm.lazy_gram(X, kernel="linear", normalize=None),
    "features": lambda X: fm.features(X, normalize=None),
}
every_base = pytest.mark.parametrize("base", BASES)
every_count = pytest.mark.parametrize("n, d, k", [(1, 1, 2), (2, 3, 5), (30, 4, 3), (23, 6, 10)])


@every_base
@every_count
def test_pairs_are_the_explicit_rows(base, n, d, k):
    X, labels = classes(max(n, k), d, k)
    X = X[:n]
    labels = labels[:n]
    Z = explicit_rows(X, labels, k)
    G = fm.pair_gram(BASES[base](X), labels, k)
    exact = Z @ Z.T
    s = scale_of(fm.features(Z, 1, normalize=None))
    assert len(G) == n * (k - 1) == len(Z)
    np.testing.assert_allclose(G.dense(), exact, rtol=0, atol=1e-14 * s)
    np.testing.assert_allclose(G.diagonal(), exact.diagonal(), rtol=1e-13)
    v = rows_of(1, len(Z), 2)[0]
    v /= np.abs(v).sum()
    assert np.abs(product(G, v) - exact @ v).max() <= G.rounding().margins * s < 1e-12 * s
    for i in {0, len(Z) // 2, len(Z) - 1}:
        m = np.ones(len(Z))
        fm.add_column(G, i, 3.0, m)
        np.testing.assert_allclose(m, 1.0 + 3.0 * exact[:, i], rtol=0, atol=1e-13 * s)
    index = np.random.default_rng(3).permutation(len(Z))[: -(-len(Z) // 2)]
    part = G.restrict(index)
    np.testing.assert_allclose(part.dense(), exact[np.ix_(index, index)], rtol=0, atol=1e-14 * s)
    u = np.full(len(index), 1.0 / len(index))
    np.testing.assert_allclose(
        product(part, u), exact[np.ix_(index, index)] @ u, rtol=0, atol=1e-13 * s
    )


@pytest.mark.parametrize("k", [2, 5])
def test_precise_products_of_pairs_are_within_their_bound(k):
    """In exact arithmetic, on integers, with weights whose sums are not representable."""
    rng = np.random.default_rng(k)
    X = rng.integers(-5, 6, (9, 3))
    labels = np.concatenate((np.arange(k), rng.integers(0, k, 9 - k)))
    G = fm.pair_gram((X @ X.T).astype(float), labels, k)
    v = rng.normal(size=9 * (k - 1)) * 10.0 ** rng.integers(-9, 1, 9 * (k - 1))
    v /= 2.0 * np.abs(v).sum()
    size, m, rounding = G._measured(v, precise=True)
    entries = [[Fraction(2 * float(g)).limit_denominator(1) / 2 for g in row] for row in G.dense()]
    exact = [sum(g * Fraction(float(a)) for g, a in zip(row, v, strict=True)) for row in entries]
    square = sum(a * Fraction(float(b)) for a, b in zip(exact, v, strict=True))
    s = Fraction(scale_of(G))
    lost = rounding.margins + rounding.lost
    for got, want, bound in zip(m, exact, lost, strict=True):
        assert abs(Fraction(float(got)) - want) <= Fraction(float(bound)) * s
    assert abs(Fraction(size) - square) <= Fraction(rounding.square) * s
    assert lost.max() < 1e-15 and rounding.square < 1e-15
    assert fm.pair_gram(fm.lazy_gram(X), labels, k)._precise(v) is None


@every_base
@pytest.mark.parametrize(
    "name",
    [
        "momentum",
        "adaptive_sampling",
        "batch_perceptron",
        "snkp",
        "max_margin",
        "diagonal_descent",
        "subspace_perceptron",
    ],
)
def test_algorithms_walk_on_pairs_as_on_explicit_rows(base, name):
    X, labels = classes(26, 5, 4)
    pairs = fm.pair_gram(BASES[base](X), labels, 4)
    rows = fm.features(explicit_rows(X, labels, 4), 1, normalize=None)
    one, two = (fm.ALGORITHMS[name](G, max_iter=40) for G in (pairs, rows))
    assert one.lower > 0
    if name == "max_margin":  # the interval determines the answer, rounding the way to it
        same_answer(one, two, rows.dense())
        return
    assert one.n_iter == two.n_iter
    noise = 1e-6 if name == "subspace_perceptron" else 1e-9
    np.testing.assert_allclose((one.lower, one.upper), (two.lower, two.upper), rtol=noise)
    if noise < 1e-6:
        np.testing.assert_allclose(
            one.alpha, two.alpha, rtol=0, atol=noise * np.abs(two.alpha).max()
        )


@pytest.mark.parametrize("k", [2, 3, 6])
def test_theorem_5_1_the_margin_of_classes_is_a_binary_one_over_the_root_of_two(k):
    """The binary margin is the multiclass one over sqrt(2), for every table of weights; momentum's guarantee holds."""
    X, labels = classes(40, 5, k, seed=k)
    K = fm.gram(X, kernel="linear", normalize="max")
    rows = X / np.linalg.norm(X, axis=1).max()
    G = fm.pair_gram(K, labels, k)
    Z = explicit_rows(rows, labels, k)
    rho = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-12)
    assert rho.status == "certified"
    found = fm.max_margin(G)
    assert meet(found, rho) and found.status == "certified"
    result = fm.momentum(G, max_iter=300, trace_at=range(300), keep_iterates=True)
    t = result.trace["iteration"]
    n = len(Z)
    bound = rho.lower - 4 * (1 + math.log(n)) * (1 + 2 * np.log(t + 1)) / (
        rho.lower * (t + 1.0) ** 2
    )
    assert (result.trace["lower"] >= bound - 1e-12).all()
    scores = G.decision_function(result.iterates[1:], X)
    own = np.take_along_axis(scores, labels[None, :, None], axis=2)
    others = np.where(np.arange(k) == labels[:, None], -np.inf, scores)
    multiclass = (own[:, :, 0] - others.max(axis=2)).min(axis=1)
    separators = result.iterates[1:] @ Z
    size = math.sqrt(2.0) * np.linalg.norm(separators, axis=1)  # ||f||
    np.testing.assert_allclose(
        multiclass / (math.sqrt(2.0) * size), result.trace["lower"][1:], rtol=0, atol=1e-10
    )


@every_base
def test_two_classes_are_the_binary_problem(base):
    X, labels = classes(40, 4, 2)
    y = np.where(labels == 1, 1, -1)
    pairs = fm.pair_gram(BASES[base](X), labels, 2)
    binary = dense(y[:, None] * X)
    np.testing.assert_allclose(pairs, binary, rtol=0, atol=1e-13)
    for algorithm in (fm.momentum, fm.batch_perceptron):
        same_result(
            algorithm(pairs, max_iter=50, trace_at=[]),
            algorithm(binary, max_iter=50, trace_at=[]),
            rtol=1e-9,
        )
    result = fm.momentum(pairs)
    if base != "dense":  # which does not know the kernel
        two = pairs.decision_function(result, X)
        one = fm.features(X, y, normalize=None).decision_function(result, X)
        np.testing.assert_allclose(
            0.5 * (two[:, 1] - two[:, 0]), one, rtol=0, atol=1e-12 * np.abs(one).max()
        )


@pytest.mark.parametrize("normalize", ["unit", "max", None])
def test_half_of_the_differences_of_scores_are_the_margins_of_pairs(normalize):
    """Half of their differences at the points are the margins of the pairs."""
    X, labels = classes(30, 4, 3, gap=1.0)
    G = fm.pair_gram(fm.gram(X, kernel="rbf", normalize=normalize), labels, 3)
    alphas = rows_of(5, 60, 4)
    alphas[:, :20] = 0.0
    scores = G.decision_function(alphas, X)
    own = scores[:, G.store.point, G.store.right]
    other = scores[:, G.store.point, G.store.wrong]
    np.testing.assert_allclose((G @ alphas.T).T, 0.5 * (own - other), rtol=0, atol=1e-12)


@every_base
def test_some_of_the_pairs_score_as_all_do_whose_other_weights_are_0(base):
    """In any order, and where some points have lost some of their pairs."""
    if base == "dense":
        pytest.skip("an array does not know the kernel")
    X, labels = classes(12, 4, 3)
    G = fm.pair_gram(BASES[base](X), labels, 3)
    for index in (np.arange(24)[::-1], np.arange(0, 24, 2), np.array([5, 1, 7])):
        alpha = np.zeros(24)
        alpha[index] = 1.0 + np.arange(len(index))
        found = G.restrict(index).decision_function(alpha[index], X)
        want = G.decision_function(alpha, X)
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-12 * np.abs(want).max())


def test_labels_that_contradict_each_other_leave_no_margin_that_entries_show():
    X, labels = classes(20, 3, 3)
    X[5] = X[4]
    labels[4] = 0
    labels[5] = 2
    result = fm.max_margin(fm.pair_gram(fm.gram(X), labels, 3))
    assert result.status == "rounding" and result.lower <= 0.0 and result.upper < 1e-7


def test_restricted_pairs_of_a_given_matrix_take_values_at_their_points():
    X = np.random.default_rng(0).normal(size=(9, 2))
    K = X @ X.T + 1.0
    pairs = fm.pair_gram(fm.gram(K, kernel="precomputed", normalize=None), np.arange(9) % 3, 3)
    some = pairs.restrict(np.flatnonzero(pairs.store.point < 5))
    assert some.d == 5
    weights = np.arange(1.0, 11.0)
    sums = np.zeros((5, 3))
    np.add.at(sums, (some.store.point, some.store.right), weights)
    np.subtract.at(sums, (some.store.point, some.store.wrong), weights)
    scores = some.decision_function(weights, K[:, :5])
    np.testing.assert_allclose(scores, K[:, :5] @ sums, rtol=1e-12)
