"""G: its two operations in every representation, a foreign one, too; all algorithms on all of them; what it
knows of itself, labels, kernel and scores."""

import copy
import functools
import itertools
import pickle
import tracemalloc
import warnings

import naive
import numba
import numpy as np
import pytest
from instances import (
    BY_ROWS,
    CALLS,
    EASY,
    EPS,
    PLANTED,
    REPRESENTATIONS,
    UNTIED,
    Own,
    Products,
    Symmetric,
    check_raises,
    claims,
    dense,
    every_call,
    every_loop,
    form,
    forms,
    layouts,
    mapped,
    meet,
    rotate,
    rows_of,
    run,
    same_answer,
    same_result,
    sparse,
    threads,
    two_classes,
)

import fastmargin as fm

# ======================================================================================================
# OPERATIONS
# ======================================================================================================

BEFORE_TIES = 3  # iterations of calls in which rounding chooses between ties
ODD_SIZES = [1, 2, 3, 5, 8, 31, 64, 511, 512, 513, 600, 1501]


def with_rows():
    """{name: a G of 30 points that has rows}."""
    Z = rows_of(30, 4)
    Z[np.random.default_rng(0).random(Z.shape) < 0.5] = 0.0
    y = np.where(np.arange(30) % 2, 1, -1)
    labels = np.arange(30) % 3
    return {
        "features": fm.features(Z, 1, normalize=None),
        "sparse": sparse(Z),
        "mapped": mapped(Z),
        "constant": fm.features(Z + 1.0, y, intercept=2.0),
        "free": fm.features(Z, y, normalize=None, intercept="free"),
        "pairs": fm.pair_gram(fm.features(Z, 1, normalize=None), labels, 3),
        "pairs of sparse": fm.pair_gram(sparse(Z), labels, 3),
    }


@pytest.mark.parametrize("kind", with_rows())
def test_coordinates_are_rows_whose_inner_products_are_g(kind):
    """Those of some points are those of all; a ridge is no part of them."""
    G = with_rows()[kind]
    Z = G.coordinates()
    np.testing.assert_allclose(Z @ Z.T, G.dense(), atol=1e-12)
    index = np.array([5, 2, 11])
    np.testing.assert_array_equal(G.coordinates(index), Z[index])
    np.testing.assert_array_equal(G.with_ridge(2.0).coordinates(), Z)
    assert len(Z) == len(G)


def random_gram(kind, n, seed=0):
    """(representation, its rows or matrix) of random data; large enough for threads if n = 600."""
    if kind in BY_ROWS:
        Z = rows_of(n, 500 if n == 600 else 1 + n % 23, seed)
        if kind == "sparse":
            Z[np.random.default_rng(seed).random(Z.shape) < (0.1 if n == 600 else 0.6)] = 0.0
        return BY_ROWS[kind](Z), Z
    A = dense(rows_of(n, n, seed))
    return fm.Gram(A), A


def product(G, v):
    m = np.full(len(G), np.nan)
    fm.product(G, v, m)
    return m


ALL_KINDS = ["dense", *BY_ROWS]
KINDS = pytest.mark.parametrize("kind", ALL_KINDS)


def check_close(got, want, size, n):
    """|got - want| within the rounding of a sum of n terms of which ``size`` is the sum of absolute values."""
    assert (np.abs(got - want) <= (4 + np.sqrt(n)) * EPS * size).all()


@KINDS
@pytest.mark.parametrize("n", ODD_SIZES)
def test_products_are_those_of_g(kind, n):
    G, A = random_gram(kind, n)
    ridge = 0.3 * (np.arange(n) % 3)
    G = G.with_ridge(ridge)
    v = rows_of(1, n, 1)[0]
    v[::5] = 0.0
    m = product(G, v)
    if kind in BY_ROWS:
        want = A @ (A.T @ v)
        size = np.abs(A) @ (np.abs(A.T) @ np.abs(v))
    else:
        want = A @ v
        size = np.abs(A) @ np.abs(v)
    check_close(m, want + ridge * v, size + ridge * np.abs(v), n + A.shape[1])
    assert np.array_equal(G @ v, m)
    for i in {0, n // 2, n - 1}:
        before = m.copy()
        fm.add_column(G, i, -1.7, m)
        column = A @ A[i] if kind in BY_ROWS else A[i].copy()
        size = np.abs(A) @ np.abs(A[i]) if kind in BY_ROWS else np.abs(A[i])
        column[i] += ridge[i]
        size[i] += ridge[i]
        check_close(m, before - 1.7 * column, np.abs(before) + 1.7 * size, A.shape[1])


@KINDS
@pytest.mark.parametrize("n", [5, 70, 600])
def test_any_number_of_threads_gives_the_same_bits(kind, n):
    G, _ = random_gram(kind, n)
    v = rows_of(1, n, 1)[0]
    results = []
    for count in (1, 2):
        with threads(count):
            m = product(G, v)
            fm.add_column(G, n - 1, 0.3, m)
            results.append(np.concatenate((m, (G @ np.column_stack((v, m))).ravel())))
    assert np.array_equal(*results)


@KINDS
def test_the_methods_tell_the_truth(kind):
    """n, diagonal, scale, block, restrict and dense, against the definition, with a ridge and without."""
    bare, A = random_gram(kind, 17)
    of_points = A @ A.T if kind in BY_ROWS else A
    assert bare.d == (None if kind == "dense" else A.shape[1])
    for ridge in (np.zeros(17), np.arange(17.0)):
        G = bare.with_ridge(ridge)
        full = of_points + np.diag(ridge)
        close = {"rtol": 0, "atol": 40 * EPS * np.abs(full).max()}
        assert len(G) == G.n == 17
        np.testing.assert_allclose(G.dense(), full, **close)
        np.testing.assert_allclose(G.diagonal(), full.diagonal(), rtol=8 * EPS)
        assert G.scale == G.diagonal().max()
        assert G.diagonal().dtype == np.float64 and 0.0 < G.rounding().margins < 1e-3
        rows = np.array([11, 2, 5])
        columns = np.array([2, 16, 0, 11])
        np.testing.assert_allclose(G.block(rows, columns), full[np.ix_(rows, columns)], **close)
        if kind != "operator":
            part = G.restrict(rows)
            assert type(part.store) is type(G.store)
            np.testing.assert_allclose(part.dense(), full[np.ix_(rows, rows)], **close)
            assert part.scale == part.diagonal().max()


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "ntk"])
@pytest.mark.parametrize("make", [fm.gram, fm.lazy_gram])
def test_points_of_length_1_have_diagonal_entries_1_in_every_block(make, kernel):
    X = np.random.default_rng(34).normal(size=(30, 3))
    G = make(X, kernel=kernel, normalize="unit").with_ridge(0.25)
    some = np.array([3, 1, 4, 15, 9, 26])
    assert (G.block(some, some).diagonal() == 1.25).all()
    assert (G.dense().diagonal() == 1.25).all()


@pytest.mark.parametrize("make", [fm.gram, fm.features, fm.lazy_gram])
def test_a_cost_stays_with_its_points(make):
    """In part of the points, with labels, in a copy and in what is printed; the entries of G know nothing of it."""
    rng = np.random.default_rng(90)
    X = rng.normal(size=(6, 2))
    y = np.array([1, -1, 1, -1, 1, -1])
    cost = np.arange(1.0, 7.0)
    bare = make(X, y)
    G = make(X, y, cost=cost)
    np.testing.assert_array_equal(np.asarray(G), np.asarray(bare))
    np.testing.assert_array_equal(G.restrict([4, 1]).cost, [5.0, 2.0])
    np.testing.assert_array_equal(make(X, cost=cost).signed(y).cost, cost)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(G)).cost, cost)
    np.testing.assert_array_equal(bare.with_cost(3.0).with_cost(cost).cost, cost)
    assert "cost=1 to 6" in repr(G) and "cost" not in repr(bare) and bare.cost == np.inf
    for both in (
        lambda: make(X, y, cost=1.0, ridge=1.0),
        lambda: bare.with_ridge(1.0).with_cost(1.0),
        lambda: G.with_ridge(1.0),
        lambda: fm.pair_gram(make(X, cost=1.0), [0, 1, 2, 0, 1, 2], 3),
    ):
        with pytest.raises(ValueError, match="ridge.* cost"):
            both()


@pytest.mark.parametrize("name", [name for name in fm.ALGORITHMS if name != "max_margin"])
def test_algorithms_of_the_papers_take_no_cost(name):
    G = fm.features([[1.0, 0.0], [0.0, 1.0]], [1, -1], cost=1.0)
    with pytest.raises(ValueError, match="G has a cost, which this algorithm"):
        fm.ALGORITHMS[name](G)


def test_a_ridge_adds_to_that_of_g():
    """Nothing of the G that it is added to changes."""
    G = fm.features(EASY, 1, normalize=None)
    once = G.with_ridge(0.5)
    twice = once.with_ridge(np.arange(len(EASY)) / len(EASY))
    np.testing.assert_allclose(twice.dense(), once.dense() + np.diag(np.arange(40) / 40))
    np.testing.assert_allclose(once.dense(), G.dense() + 0.5 * np.eye(40))
    assert np.all(once.ridge == 0.5) and G.ridge == 0.0 and G.with_ridge(0.0).ridge == 0.0
    assert G.scale < once.scale < twice.scale


@KINDS
def test_a_ridge_adds_to_the_rounding(kind):
    """Its products take what those of G take, and more."""
    G = random_gram(kind, 17)[0]
    ridged = G.with_ridge(0.5)
    before = np.array(G.rounding()) * (1 - 1e-9)
    share = G.scale / ridged.scale
    assert np.all(np.array(ridged.rounding().scaled(1.0 / share)) >= before)
    assert ridged.rounding().margins > share * G.rounding().margins


def wholes():
    """(name, representation, G) of all that have blocks or columns of their own."""
    X, y = two_classes(37, 5, seed=2)
    for kind in BY_ROWS:
        G, Z = random_gram(kind, 37)
        yield kind, G, Z @ Z.T
    for name, make in {
        "lazy": fm.lazy_gram,
        "lazy, ridge": functools.partial(fm.lazy_gram, ridge=0.5),
        "ridge": functools.partial(fm.features, ridge=0.5),
    }.items():
        G = make(X, y, intercept=0.3)
        kernel = "linear" if name == "ridge" else "rbf"
        whole = np.array(fm.gram(X, y, kernel=kernel, intercept=0.3))
        if "ridge" in name:
            whole += 0.5 * np.eye(37)
        yield name, G, whole
    G = fm.gram(X, y)
    yield "dense", G, np.asarray(G)
    yield "symmetric operator", Products(Symmetric(np.asarray(G))), np.asarray(G)
    G = fm.pair_gram(fm.gram(X), np.arange(37) % 3, 3)
    yield "pairs", G, G.dense()


def test_blocks_and_columns_are_those_of_g():
    rng = np.random.default_rng(1)
    for name, G, whole in wholes():
        n = len(whole)
        rows = rng.permutation(n)[:11]
        columns = rng.permutation(n)[:20]
        close = {"atol": 1e-12 * np.abs(whole).max(), "err_msg": name}
        np.testing.assert_allclose(G.block(rows, columns), whole[np.ix_(rows, columns)], **close)
        m = np.zeros(n)
        for i in (*columns, *columns[:5]):
            fm.add_column(G, i, 0.5, m)
        weights = 0.5 * (np.bincount(columns, minlength=n) + np.bincount(columns[:5], minlength=n))
        np.testing.assert_allclose(m, whole @ weights, **close)


@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_precise_products_state_an_error_by_the_number_of_terms(kind):
    """Sums of k terms in twofold precision are off by (k u)^2, u = 2^-53, at most: too little for any other test."""
    for n, d in ((2, 700), (700, 2)):
        rounding = BY_ROWS[kind](rows_of(n, d))._precise(np.full(n, 1.0 / n))[2]
        assert 1.0 <= rounding.margins / ((n + d) * 2.0**-53) ** 2 <= 9.0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 34])
def test_a_last_bit_of_asymmetry_is_averaged_away_anywhere(n):
    A = dense(rows_of(n, 3, n))
    assert np.shares_memory(fm.Gram(A).store.matrix, A)
    for i, j in np.ndindex(n, n):
        if i != j:
            B = A.copy()
            B[i, j] = np.nextafter(B[i, j], 9.0)
            assert np.array_equal(fm.Gram(B).dense(), 0.5 * (B + B.T))
            B[i, j] = B[j, i] = 2.0 * np.abs(A).max()
            check_raises(lambda B=B: fm.Gram(B), ValueError, ["G"])


@pytest.mark.parametrize("normalize", ["unit", "max", None])
def test_features_without_labels_are_the_points(normalize, tmp_path):
    X = rows_of(9, 4)
    y = np.where(np.arange(9) % 2, 1.0, -1.0)
    np.save(tmp_path / "X.npy", X)
    for given in (
        X,
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        pytest.importorskip("scipy.sparse").csr_array(X),
    ):
        constant = 0.0 if isinstance(given, np.memmap) else 0.5
        bare = fm.features(given, normalize=normalize, intercept=constant)
        told = fm.features(given, y, normalize=normalize, intercept=constant)
        assert np.array_equal(y[:, None] * bare.dense() * y, told.dense())
        assert bare.coordinates().shape == (9, 4 + (constant != 0.0)) and bare.d == 4


# ======================================================================================================
# ALL ALGORITHMS ON ALL REPRESENTATIONS
# ======================================================================================================


@rotate("name, layout", CALLS, layouts(np.eye(2)))
def test_layouts_and_types_of_input_change_no_answer(name, layout):
    """Bit for bit where they are converted; float32 is kept, by loops of its own, and so is a matrix in any layout: by
    these sums may be rounded in another order."""
    rng = np.random.default_rng(0)
    Z = rng.integers(-9, 9, (25, 4)).astype(float)
    Z[:, 0] += 10  # integers, so that every type holds them; separable
    noise = CALLS[name].noise
    for kind in forms(name):
        # The entries of the matrix are integers that int8 does not hold.
        if kind not in ("dense", "rows", "features") or (kind, layout) == ("dense", "int8"):
            continue
        if (kind, layout) == ("features", "list"):
            continue
        given = dense(Z) if kind == "dense" else Z
        other = layouts(given)[layout]
        if kind != "dense":
            given, other = (form(kind, rows) for rows in (given, other))
        if kind != "dense" and layout != "float32":
            same_result(*(run(name, G, max_iter=20) for G in (given, other)))
        elif name == "max_margin":
            same_answer(*(run(name, G) for G in (given, other)), dense(Z))
        else:
            most, rtol = (BEFORE_TIES, 1e-11) if noise == 1.0 else (20, max(1e-11, noise))
            same_result(*(run(name, G, max_iter=most) for G in (given, other)), rtol=rtol)


@every_call
def test_inputs_are_neither_changed_nor_returned(name):
    Z = PLANTED["feasible"][0].copy()
    for kind in forms(name):
        arrays = [dense(Z), np.asfortranarray(dense(Z))] if kind == "dense" else [Z]
        for array in arrays:
            before = array.copy()
            given = array if kind in ("dense", "rows") else form(kind, array)
            for rounds in (0, 25):
                result = run(name, given, max_iter=rounds, keep_iterates=True)
                for out in (result.alpha, result.p, result.iterates):
                    assert not np.shares_memory(out, array)
                    out[:] = np.nan
                assert not np.shares_memory(result.alpha, result.p)
            assert np.array_equal(array, before)


@every_loop
def test_a_run_on_one_thread_gives_the_same_bits(name, kind):
    G = form(kind, PLANTED["feasible, n > 512"][0])
    results = []
    for count in (1, 2):
        with threads(count):
            results.append(run(name, G, max_iter=30))
    same_result(*results)


# ======================================================================================================
# A FOREIGN REPRESENTATION
# ======================================================================================================


class Counting(Own):
    """A class of one's own that counts products and columns."""

    products = 0
    columns = 0

    def _product(self, v):
        self.products += 1
        return super()._product(v)

    def _add_column(self, i, c, m):
        self.columns += 1
        m += c * (self.Z @ self.Z[i])


@rotate(
    "name, case",
    [name for name, call in CALLS.items() if not call.rows],
    ["separable", "not separable"],
)
def test_a_new_representation_needs_no_change(name, case):
    """The results of `features`, up to the rounding of products; and as many products and columns as the trace claims,
    but for those of certificates.  `max_margin`, which reads rows of `features`, goes another way to one margin."""
    Z = UNTIED[case]
    n = len(Z)
    call = CALLS[name]
    G = Counting(Z)
    seen = []
    other = run(name, G, max_iter=25, trace_at=[], callback=seen.append)
    plain = run(name, form("features", Z), max_iter=25, trace_at=[])
    made = G.products + G.columns / n
    assert made > 0.0 and meet(plain, other)
    if call.cost:
        assert (plain.status, plain.n_iter) == (other.status, other.n_iter)
        claimed = other.trace["products"]
        assert claims(name, n, claimed, [partial.n_iter for partial in seen])
        # a certificate takes at most a product for p and one for alpha, and an end is confirmed by some
        assert claimed[-1] <= made + 1e-9 and made <= claimed[-1] + 2 * len(seen) + 4
        most, rtol = (BEFORE_TIES, 1e-9) if call.noise == 1.0 else (25, max(1e-9, call.noise))
        plain, other = (run(name, given, max_iter=most) for given in (form("features", Z), G))
        for one, two in zip(plain[:2], other[:2], strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=rtol * np.abs(two).max())


def test_defaults_of_a_class_with_four_things_are_the_operations_of_rows():
    """A class with four things, and rows: the same operations, blocks and sums, with a ridge and without."""
    Z = UNTIED["overlapping"]
    n, _ = Z.shape
    v = rows_of(1, n)[0]
    V = rows_of(n, 3, 5)
    some = np.array([5, 1, 9])
    others = np.array([0, 9, 4, 2])
    for ridge in (0.0, 0.5, np.arange(n) / n):
        outputs = []
        for G in (Own(Z).with_ridge(ridge), fm.features(Z, 1, normalize=None).with_ridge(ridge)):
            column = np.ones(n)
            fm.add_column(G, 3, -0.7, column)
            numbers = product(G, v), G @ V, column, G.block(some, others), G.dense()
            outputs.append(np.concatenate([array.ravel() for array in numbers]))
        np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-12, atol=1e-13)


@numba.njit
def count_by_fields(G, k, until, alpha, w, m):
    while k < until:
        fm.product(G, w[::-1], m)
        alpha[0] += G.store.matrix[0, 0]
        k += 1
    return k


@pytest.mark.parametrize("loop", [count_by_fields, count_by_fields.py_func])
def test_a_loop_may_read_fields_and_pass_views(loop):
    """Compiled, and as its Python source."""
    G = fm.Gram(dense(PLANTED["feasible, odd n"][0]))
    n = len(G)
    state = np.zeros(n), np.ones(n), np.zeros(n)
    result = fm.drive(G, loop, state, lambda alpha, w, m: (alpha, w), max_iter=5, trace_at=[])
    assert result.n_iter == 5
    assert np.array_equal(result.alpha, [5.0 * G.store.matrix[0, 0]] + (n - 1) * [0.0])
    np.testing.assert_allclose(state[2], G.store.matrix.sum(axis=1), atol=1e-12)


class Failing(Counting):
    def _product(self, v):
        if self.products > 3:
            raise ArithmeticError("gone")
        return super()._product(v)


@pytest.mark.parametrize("pairs", [False, True])
def test_errors_of_methods_pass_through_loops(pairs):
    G = Failing(PLANTED["feasible, odd n"][0])
    problem = fm.pair_gram(G, np.arange(len(G)) % 3, 3) if pairs else G
    with pytest.raises(ArithmeticError, match="gone"):
        fm.momentum(problem, max_iter=100, trace_at=[])


@pytest.mark.parametrize("kind", ["dense", "features", "lazy"])
def test_memory_can_be_traced(kind):
    """tracemalloc has Numba's threads, too, wait for the interpreter when they allocate: nobody may hold it then."""
    X, y = two_classes(600, 30, gap=3.0, seed=1)
    G = {**REPRESENTATIONS, **BY_ROWS, "lazy": lambda Z: fm.lazy_gram(Z, y)}[kind](
        fm.features(X, y).coordinates()
    )
    calls = (
        lambda: fm.momentum(G, max_iter=3).alpha,
        lambda: fm.max_margin(G, max_iter=3).alpha,
        lambda: fm.gram(X, y),
    )
    before = [call() for call in calls]
    tracemalloc.start()
    try:
        assert all(
            np.array_equal(call(), answer) for call, answer in zip(calls, before, strict=True)
        )
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("zeros", [0.0, 0.9, 1.0])
def test_products_with_a_table_may_leave_out_zeros(zeros, n=601):
    """The same products, and the same bits with any number of threads."""
    rng = np.random.default_rng(0)
    G = fm.gram(rows_of(n, 5))
    W = rows_of(7, n, 1) * (rng.random((7, n)) >= zeros)
    outputs = []
    for count in (1, 2):
        with threads(count):
            outputs.append((G @ W.T).T)
    np.testing.assert_allclose(outputs[0], W @ G.dense(), atol=1e-12)
    assert np.array_equal(*outputs)


# ======================================================================================================
# LABELS, KERNEL, SCORES
# ======================================================================================================

RNG = np.random.default_rng(55)
X = RNG.normal(size=(30, 4)) + 0.3
Y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.6, 1, -1)
CLASSES = RNG.integers(0, 3, 30)
NEW = RNG.normal(size=(7, 4))


def function(A, B):
    """A kernel of one's own, which pickle can name."""
    return (1.0 + A @ B.T) ** 2


def distances(A, B):
    return ((A[:, None] - B[None]) ** 2).sum(axis=2)


SCALE = 1.0 / (4 * X.var())
# The options of a kernel, its values, its name and its parameters as numbers
KERNELS = {
    "linear": ({"kernel": "linear"}, lambda A, B: A @ B.T, {}),
    "poly": (
        {"kernel": "poly", "gamma": 0.5, "degree": 2},
        lambda A, B: (0.5 * A @ B.T + 1.0) ** 2,
        {"gamma": 0.5, "coef0": 1.0, "degree": 2},
    ),
    "rbf": (
        {"kernel": "rbf"},
        lambda A, B: np.exp(-SCALE * distances(A, B)),
        {"gamma": pytest.approx(SCALE)},
    ),
    "rbf, sigma2": (
        {"kernel": "rbf", "sigma2": 2.0},
        lambda A, B: np.exp(-0.25 * distances(A, B)),
        {"gamma": 0.25},
    ),
    "laplacian": (
        {"kernel": "laplacian", "gamma": "auto"},
        lambda A, B: np.exp(-0.25 * np.abs(A[:, None] - B[None]).sum(axis=2)),
        {"gamma": 0.25},
    ),
    "ntk": ({"kernel": "ntk"}, naive.tangent_limit, {}),
    "callable": ({"kernel": function}, function, {}),
    "precomputed": ({"kernel": "precomputed"}, None, {}),
}


def makers(name):
    """The functions that make a G of this kernel, from X and labels."""
    options, _, _ = KERNELS[name]
    points = X
    if name == "precomputed":
        points = function(X, X)
    found = {"gram": lambda y=None, **more: fm.gram(points, y, **options, **more)}
    if name not in ("callable", "precomputed"):
        found["lazy_gram"] = lambda y=None, **more: fm.lazy_gram(points, y, **options, **more)
    if name == "linear":
        found["features"] = lambda y=None, **more: fm.features(points, y, **more)
    return found


def values(name, A, B, normalize, c):
    """K(a_i, b_j), normalised, from the formula."""
    kernel = KERNELS[name][1] or function
    constant = 0.0 if c == "free" else c * c
    K = kernel(A, B) + constant
    if normalize == "unit":
        own = [
            np.array([kernel(p[None], p[None])[0, 0] + constant for p in points])
            for points in (A, B)
        ]
        return K / np.sqrt(np.outer(*own))
    if normalize == "max":
        return K / max(kernel(p[None], p[None])[0, 0] + constant for p in X)
    return K


EVERY = [
    (name, maker, normalize, c)
    for name in KERNELS
    for maker in makers(name)
    for normalize in ("unit", "max", None)
    for c in (0.0, 1.5, "free")
]


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("name, maker, normalize, c", EVERY)
def test_facts_and_scores_are_those_of_the_formula(name, maker, normalize, c, ridge):
    """Labels, parameters, matrix, bias and scores of new points, of every kernel, normalisation and intercept."""
    G = makers(name)[maker](Y, normalize=normalize, intercept=c, ridge=ridge)
    assert np.array_equal(G.labels, Y)
    assert G.kernel.name == name.split(",")[0]
    for parameter, value in KERNELS[name][2].items():
        assert getattr(G.kernel, parameter) == value
    assert (G.normalize, G.intercept, len(G)) == (normalize, c, 30)
    matrix = Y[:, None] * values(name, X, X, normalize, c) * Y + ridge * np.eye(30)
    if not (c == "free" and normalize is None and name == "linear"):  # from another origin
        np.testing.assert_allclose(np.asarray(G), matrix, atol=1e-11 * np.abs(matrix).max())
    alpha = RNG.random((2, 30))
    for side in (Y > 0, Y < 0):  # from another origin, f is the same if both classes weigh the same
        alpha[:, side] /= alpha[:, side].sum(axis=1)[:, None]
    new = function(NEW, X) if name == "precomputed" else NEW
    if name == "precomputed" and normalize == "unit":
        return
    scores = values(name, NEW, X, normalize, c) @ (alpha * Y).T
    biases = np.zeros(2)
    if c == "free":
        m = matrix @ alpha.T
        biases = 0.5 * (m[Y < 0].min(axis=0) - m[Y > 0].min(axis=0))
    size = 1e-11 * (np.abs(scores).max() + np.abs(biases).max())
    found = G.decision_function(alpha, new)
    np.testing.assert_allclose(found, (scores + biases).T, rtol=0, atol=size)
    np.testing.assert_allclose(G.decision_function(alpha[1], new), found[1], rtol=0, atol=size)


@pytest.mark.parametrize("c", [0.0, 1.5])
@pytest.mark.parametrize("normalize", ["unit", "max", None])
@pytest.mark.parametrize("name", KERNELS)
def test_pairs_score_each_class(name, normalize, c):
    """f_c(x) = sum_i T_ci K(x_i, x) with the class weights T of the pairs."""
    if name == "precomputed" and normalize == "unit":
        return  # which K(x, x) of new points would be needed for
    for maker, make in makers(name).items():
        K = make(normalize=normalize, intercept=c)
        G = fm.pair_gram(K, CLASSES, 3, ridge=0.1)
        assert np.array_equal(G.labels, CLASSES) and G.kernel.name == name.split(",")[0]
        alpha = RNG.random((2, 60))
        T = np.zeros((2, 3, 30))
        for k, (i, j) in enumerate((i, j) for i in range(30) for j in range(3) if j != CLASSES[i]):
            T[:, CLASSES[i], i] += alpha[:, k]
            T[:, j, i] -= alpha[:, k]
        new = function(NEW, X) if name == "precomputed" else NEW
        scores = np.einsum("kci,mi->kmc", T, values(name, NEW, X, normalize, c))
        found = G.decision_function(alpha, new)
        assert found.shape == (2, 7, 3), maker
        close = {"rtol": 0.0, "atol": 1e-11 * np.abs(scores).max()}
        np.testing.assert_allclose(found, scores, **close)
        np.testing.assert_allclose(G.decision_function(alpha[1], new), found[1], **close)


@pytest.mark.parametrize("pairs", [False, True])
def test_scores_keep_their_digits_where_weights_cancel(pairs):
    """Two copies of a point with opposite weights, however large, change no score."""
    points = np.vstack((X[:1], X))
    if pairs:
        G = fm.pair_gram(fm.features(points), np.append(CLASSES[0], CLASSES), 3)
    else:
        G = fm.features(points, np.append(Y[0], Y))
    each = len(G) // len(points)  # the weights of a point
    alpha = RNG.random(len(G))
    alpha[:each] = 0.0
    alpha[each : 2 * each] = 0.0
    scores = G.decision_function(alpha, NEW)
    alpha[:each] = 1e17
    alpha[each : 2 * each] = -1e17
    np.testing.assert_allclose(G.decision_function(alpha, NEW), scores, rtol=0, atol=1e-12)


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_the_bias_belongs_to_the_points_as_they_are_given(far):
    """f(x) = <w, x> + f(0), wherever the origin of the rows is; and both classes have the same least margin."""
    points = X + far
    for make in (fm.features, lambda *a, **o: fm.gram(*a, kernel="linear", **o)):
        G = make(points, Y, normalize=None, intercept="free", ridge=0.1)
        result = fm.max_margin(G)
        scores = G.decision_function(result, np.vstack((np.zeros((1, 4)), points)))
        w = (Y * result.alpha) @ (points - far)  # the weights of the classes are alike
        np.testing.assert_allclose(
            scores[1:], points @ w + scores[0], rtol=0, atol=1e-13 * (1.0 + far) * np.abs(w).sum()
        )
        if not far:
            m = Y * scores[1:] + 0.1 * result.alpha
            assert m[Y > 0].min() == pytest.approx(m[Y < 0].min(), abs=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_bias_of_a_result_is_the_best_of_its_weights(ridge):
    """With slacks it is that of the matrix with its ridge; the bias of weights alone is the same one."""
    G = fm.gram(X, Y, intercept="free", ridge=ridge)
    assert fm.max_margin(fm.gram(X, Y, ridge=ridge)).bias == 0.0
    for result in (fm.max_margin(G), fm.momentum(G, max_iter=30)):
        m = np.asarray(G) @ result.alpha
        bias = 0.5 * (m[Y < 0].min() - m[Y > 0].min())
        assert result.bias == pytest.approx(bias, rel=1e-9)
        np.testing.assert_allclose(
            G.decision_function(result.alpha, NEW), G.decision_function(result, NEW), rtol=1e-9
        )


OBJECTS = {  # a name that repr shows, and a G
    "Gram over a matrix": lambda: fm.gram(X, Y),
    "Gram over a kernel on demand": lambda: fm.lazy_gram(X, Y),
    "Gram over rows": lambda: fm.features(X, Y, intercept=2.0),
    "Gram over a matrix, ridge": lambda: fm.gram(X, Y, ridge=0.5),
    "Gram over a kernel on demand, free": lambda: fm.lazy_gram(X, Y, intercept="free"),
    "Gram over rows, ridge and free": lambda: fm.features(
        X, Y, intercept="free", ridge=0.5, normalize=None
    ),
    "Gram over pairs over a matrix": lambda: fm.pair_gram(fm.gram(X), CLASSES, 3),
    "Gram over pairs over rows, ridge": lambda: fm.pair_gram(fm.features(X), CLASSES, 3, ridge=1.0),
    "Gram over a matrix, K": lambda: fm.gram(X),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_representation_is_an_object_of_python(kind):
    """len, @, asarray, repr on one line, pickle and copy."""
    G = OBJECTS[kind]()
    n = len(G)
    assert isinstance(G, fm.Gram) and G.n == n and G.d == 4
    matrix = np.asarray(G)
    assert matrix.shape == (n, n) and np.array_equal(matrix, matrix.T)
    v = RNG.normal(size=(n, 3))
    size = np.abs(matrix).max() * np.abs(v).sum()
    rounding = G.rounding().margins * size
    np.testing.assert_allclose(G @ v, matrix @ v, rtol=0, atol=rounding + 1e-12 * size)
    np.testing.assert_allclose(G @ v[:, 0], (G @ v)[:, 0], rtol=0, atol=1e-13 * size)
    shown = repr(G)
    assert "\n" not in shown and len(shown) < 200
    assert kind.partition(",")[0] in shown
    assert ("ridge=" in shown) == ("ridge" in kind) and ("'free'" in shown) == ("free" in kind)
    assert repr(G.kernel) in shown
    for twin in (pickle.loads(pickle.dumps(G)), copy.copy(G), copy.deepcopy(G)):
        assert repr(twin) == shown
        assert np.array_equal(np.asarray(twin), matrix)
        assert np.array_equal(twin @ v[:, 0], G @ v[:, 0])


def test_the_matrix_is_held_and_not_copied():
    G = fm.gram(X)
    matrix = G.store.matrix
    assert np.shares_memory(np.asarray(G), matrix) and not np.asarray(G).flags.writeable
    assert not np.shares_memory(np.array(G), matrix)
    assert np.shares_memory(G.signed(Y).store.matrix, matrix)
    assert np.asarray(G, dtype=np.float32).dtype == np.float32
    plain = np.eye(3)
    assert np.shares_memory(fm.Gram(plain).store.matrix, plain) and plain.flags.writeable


def test_the_points_of_a_gram_are_its_own():
    """Who writes to the points afterwards changes neither the matrix nor the scores."""
    for name in ("linear", "poly", "rbf", "laplacian", "ntk", "callable"):
        for maker, make in makers(name).items():
            if maker == "features":  # reads X in place, as it says
                continue
            G = make(Y)
            alpha = fm.max_margin(G.with_ridge(1.0)).alpha
            before = G.decision_function(alpha, NEW), G @ alpha
            kept = X.copy()
            X[:] = 0.0
            after = G.decision_function(alpha, NEW), G @ alpha
            X[:] = kept
            for a, b in zip(before, after, strict=True):
                assert np.array_equal(a, b), (name, maker)


# ======================================================================================================
# K OR G, NEVER A GUESS
# ======================================================================================================


@pytest.mark.parametrize("maker", ["gram", "lazy_gram", "features", "ridge", "array"])
def test_many_labelings_of_one_kernel_matrix(maker, monkeypatch):
    """G of K has the bits of G made from the labels at once, and the kernel is not evaluated again."""
    make = {
        "gram": fm.gram,
        "lazy_gram": fm.lazy_gram,
        "features": fm.features,
        "ridge": lambda *a, **o: fm.gram(*a, ridge=0.5, **o),
        "array": lambda *a, **o: fm.Gram(np.asarray(fm.gram(*a, **o))),
    }[maker]
    for y in (Y, -Y, np.where(X[:, 2] > 0, 1, -1)):
        for intercept in (0.0, "free") if maker != "array" else (0.0,):
            K = make(X, intercept=intercept)
            at_once = make(X, y, intercept=intercept)
            with monkeypatch.context() as patch:
                patch.setattr(fm.Kernel, "block", None)
                G = K.signed(y)
            assert np.array_equal(np.asarray(G), np.asarray(at_once))
            assert np.array_equal(G.labels, y) and G.intercept == intercept
            if maker != "array":
                assert repr(G) == repr(at_once)
                alpha = RNG.random(30)
                found = G.decision_function(alpha, NEW)
                assert np.array_equal(found, at_once.decision_function(alpha, NEW))
        assert K.labels is None


def test_many_labelings_far_from_the_origin():
    """K knows that its planes may lie anywhere, and is made from an origin near the points."""
    for make in (
        fm.features,
        lambda *a, **o: fm.gram(*a, kernel="linear", **o),
        lambda *a, **o: fm.lazy_gram(*a, kernel="linear", **o),
    ):
        K = make(X + 1e8, normalize=None, intercept="free")
        found = fm.max_margin(K.signed(Y).with_ridge(0.5))
        near = fm.max_margin(fm.features(X, Y, normalize=None, intercept="free", ridge=0.5))
        assert found.status == "certified"
        assert found.lower == pytest.approx(near.lower, rel=1e-6)


def test_one_class_is_told(recwarn):
    """All labels +1: the margin is that of the points to the origin, and a warning at the caller's line says so."""
    calls = [
        lambda y: fm.gram(X, y),
        lambda y: fm.lazy_gram(X, y),
        lambda y: fm.features(X, y),
        lambda y: fm.gram(X).signed(y),
    ]
    for call, y in itertools.product(calls, (np.ones(30), -np.ones(30))):
        recwarn.clear()
        call(y)
        (warning,) = recwarn.list
        assert "one class" in str(warning.message) and warning.filename == __file__
        recwarn.clear()
        call(Y)
        assert not recwarn.list
    fm.features(X, 1, normalize=None)
    fm.max_margin(X @ X.T + np.eye(30))
    assert not recwarn.list


# ======================================================================================================
# THE CLASSIFIER
# ======================================================================================================


def test_a_pickled_classifier_holds_what_it_needs():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1500, 10))
    labels = points[:, 0] + 0.3 * rng.normal(size=1500) > 0
    chosen = fm.MaxMarginClassifier(C=1.0, tol=0.05).fit(points, labels)
    kept = pickle.dumps(chosen)
    assert len(kept) < 600_000
    twin = pickle.loads(kept)
    assert np.array_equal(twin.decision_function(points), chosen.decision_function(points))
    assert repr(twin.kernel_) == repr(chosen.kernel_) and "gamma" in repr(twin.kernel_)
    assert twin.interval_ == chosen.interval_
    with pytest.raises(ValueError, match="start"):
        fm.max_margin(fm.gram(points, np.where(labels, 1, -1)), start=twin.result_)


def test_scores_of_a_result_without_a_separator_are_said_to_be_such():
    """Of weights and of a result with a margin they are silent."""
    overlapping = fm.features([[1.0, 0.0], [2.0, 0.0], [-1.0, 1.0]], [1, -1, 1])
    result = fm.max_margin(overlapping)
    assert result.status == "infeasible"
    with pytest.warns(UserWarning, match="ridge"):
        overlapping.decision_function(result, np.eye(2))
    separable = fm.features(np.eye(2), [1, -1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overlapping.decision_function(result.alpha, np.eye(2))
        separable.decision_function(fm.max_margin(separable), np.eye(2))
