"""Representations of G: the two operations on those of the module, all algorithms on all of them and on a foreign one,
and loops of one's own."""

import functools
import math
import tracemalloc
from typing import NamedTuple

import naive
import numba
import numpy as np
import pytest
from instances import (
    BY_ROWS,
    CALLS,
    EASY,
    ENDURING,
    EPS,
    PLANTED,
    REPRESENTATIONS,
    SAMPLED,
    UNTIED,
    Own,
    Products,
    Symmetric,
    check_raises,
    claims,
    dense,
    every_call,
    every_loop,
    every_representation,
    form,
    forms,
    layouts,
    mapped,
    rotate,
    rows_of,
    run,
    same_result,
    scale_of,
    sparse,
    threads,
    two_classes,
)

import fastmargin as fm

# ======================================================================================================
# OPERATIONS
# ======================================================================================================

BEFORE_TIES = 3  # iterations of calls in which rounding chooses between ties
ODD_SIZES = [*range(1, 10), 31, 33, 64, 511, 512, 513, 514, 515, 600, 1501]


def with_rows():
    """{name: a G of 30 points that has rows}."""
    Z = rows_of(30, 4)
    Z[np.random.default_rng(0).random(Z.shape) < 0.5] = 0.0
    y = np.where(np.arange(30) % 2, 1, -1)
    labels = np.arange(30) % 3
    return {
        "features": fm.FeatureGram(Z),
        "sparse": sparse(Z),
        "mapped": mapped(Z),
        "constant": fm.features(Z + 1.0, y, intercept=2.0),
        "free": fm.features(Z, y, normalize=None, intercept="free"),
        "pairs": fm.pair_gram(fm.FeatureGram(Z), labels, 3),
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
    return fm.DenseGram(A), A


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
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_products(kind, n, ridge):
    G, A = random_gram(kind, n)
    ridge = ridge * (np.arange(n) % 3)
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
            assert type(part) is (fm.FeatureGram if kind == "mapped" else type(G))
            np.testing.assert_allclose(part.dense(), full[np.ix_(rows, rows)], **close)
            assert part.scale == part.diagonal().max()


def test_a_ridge_adds_to_that_of_g():
    """Nothing of the G that it is added to changes."""
    G = fm.FeatureGram(EASY)
    once = G.with_ridge(0.5)
    twice = once.with_ridge(np.arange(len(EASY)) / len(EASY))
    np.testing.assert_allclose(twice.dense(), once.dense() + np.diag(np.arange(40) / 40))
    np.testing.assert_allclose(once.dense(), G.dense() + 0.5 * np.eye(40))
    assert np.all(once.ridge == 0.5) and G.ridge == 0.0 and G.with_ridge(0.0).ridge == 0.0
    assert G.scale < once.scale < twice.scale


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
    yield "dense", G, G.matrix
    yield "symmetric operator", Products(Symmetric(G.matrix)), G.matrix
    G = fm.pair_gram(fm.gram(X), np.arange(37) % 3, 3)
    yield "pairs", G, G.dense()


def add_one_by_one(G, index, weights, m):
    for i, weight in zip(index, weights, strict=True):
        fm.add_column(G, i, weight, m)


@pytest.mark.parametrize("kept", [10**6, 200])  # room for all columns, and for five
def test_blocks_and_columns_are_those_of_g(kept, monkeypatch):
    monkeypatch.setattr(fm, "_KEPT", kept)
    rng = np.random.default_rng(1)
    for name, G, whole in wholes():
        n = len(whole)
        s = np.abs(whole).max()
        rows = rng.permutation(n)[:11]
        columns = rng.permutation(n)[:20]
        np.testing.assert_allclose(
            G.block(rows, columns), whole[np.ix_(rows, columns)], atol=1e-13 * s, err_msg=name
        )
        add = functools.partial(add_one_by_one, G)
        if not np.any(G.ridge):  # the solver has the ridge itself
            add = fm._adder(G) or add
        m = rows_of(1, n, 3)[0]
        total = np.zeros(n)
        before = m.copy()
        for count in (3, 11, 30, n):
            index = rng.permutation(n)[:count]
            weights = rng.normal(size=count)
            add(index, weights, m)
            total += whole[:, index] @ weights
        np.testing.assert_allclose(m, before + total, atol=1e-12 * s, err_msg=name)


@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_precise_products_state_an_error_by_the_number_of_terms(kind):
    """Sums of k terms in twofold precision are off by (k u)^2, u = 2^-53, at most: too little for any other test."""
    for n, d in ((2, 700), (700, 2)):
        rounding = BY_ROWS[kind](rows_of(n, d))._precise(np.full(n, 1.0 / n))[2]
        assert 1.0 <= rounding.margins / ((n + d) * 2.0**-53) ** 2 <= 9.0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 34])
def test_a_last_bit_of_asymmetry_is_averaged_away_anywhere(n):
    A = dense(rows_of(n, 3, n))
    assert np.shares_memory(fm.DenseGram(A).matrix, A)
    for i, j in np.ndindex(n, n):
        if i != j:
            B = A.copy()
            B[i, j] = np.nextafter(B[i, j], 9.0)
            assert np.array_equal(fm.DenseGram(B).matrix, 0.5 * (B + B.T))
            B[i, j] = B[j, i] = 2.0 * np.abs(A).max()
            check_raises(lambda B=B: fm.DenseGram(B), ValueError, ["G"])


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


@pytest.mark.parametrize("normalize", ["unit", "max", None])
def test_features_are_the_linear_gram(normalize):
    X, y = two_classes(90, 6, seed=10)
    Z = fm.features(X, y, normalize=normalize)
    G = fm.gram(X, y, kernel="linear", normalize=normalize)
    assert (len(Z), Z.d) == (90, 6)
    np.testing.assert_allclose(Z.dense(), G.matrix, rtol=0, atol=2e-15 * G.diagonal().max())
    np.testing.assert_allclose(Z.diagonal(), G.diagonal(), rtol=4e-15)
    np.testing.assert_allclose(
        Z.coordinates() * np.linalg.norm(X, axis=1)[:, None],
        (y * np.linalg.norm(Z.coordinates(), axis=1))[:, None] * X,
        rtol=1e-14,
    )


# ======================================================================================================
# ALL ALGORITHMS ON ALL REPRESENTATIONS
# ======================================================================================================


@pytest.mark.parametrize(
    "name, layout",
    [
        (name, layout)
        for name in CALLS
        for layout in layouts(np.eye(2))
        if layout != "float32" or name in SAMPLED  # as loops are compiled anew for it
    ],
)
def test_layouts_and_types_of_input(name, layout):
    rng = np.random.default_rng(0)
    Z = rng.integers(-9, 9, (25, 4)).astype(float)
    Z[:, 0] += 10  # integers, so that every type holds them; separable
    for kind in forms(name):
        if kind == "dense":
            exact = dense(Z)  # integers that int8 does not hold
            if layout != "int8":
                one = run(name, layouts(exact)[layout], max_iter=20)
                same_result(one, run(name, exact, max_iter=20), rtol=1e-11)
        elif kind == "rows" or (kind == "features" and layout != "list"):
            same_result(
                run(name, form(kind, layouts(Z)[layout]), max_iter=20),
                run(name, form(kind, Z), max_iter=20),
            )


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


@pytest.mark.parametrize(
    "name", [name for name, call in CALLS.items() if call.cost and not call.rows]
)
def test_dense_and_features_walk_together(name):
    X, y = two_classes(70, 5, gap=4.0)
    Z = fm.features(X, y)
    a, b = (
        run(name, G, max_iter=300, trace_at=range(300), keep_iterates=True)
        for G in (Z, dense(Z.coordinates()))
    )
    assert (a.status, a.n_iter) == (b.status, b.n_iter)
    same = slice(None)
    slack = CALLS[name].noise
    if slack == 1.0:  # until there are ties; and they arrive at one point
        same = [*range(min(BEFORE_TIES, len(b.iterates))), -1]
        slack = 1e-11
    scale = np.abs(b.iterates).max(axis=1, keepdims=True) + 1e-300
    assert (np.abs(a.iterates - b.iterates) <= slack * scale)[same].all()
    for field in ("lower", "upper"):
        np.testing.assert_allclose(
            a.trace[field][same], b.trace[field][same], rtol=0, atol=10 * slack
        )


@rotate(
    "name, gap, normalize",
    [name for name, call in CALLS.items() if not call.rows],
    [1.0, 6.0],
    ["unit", "max", None],
    crossed=2,
)
def test_gram_and_features_give_the_same_answer(name, gap, normalize):
    X, y = two_classes(40, 5, gap, 21)
    X *= np.linspace(1.0, 4.0, 40)[:, None]
    one = run(name, fm.gram(X, y, kernel="linear", normalize=normalize), max_iter=200)
    two = run(name, fm.features(X, y, normalize=normalize), max_iter=200)
    s = scale_of(fm.features(X, y, normalize=normalize))
    slack = 1e-6 * math.sqrt(s)
    if CALLS[name].noise == 1.0 and one.status == two.status == "infeasible":
        slack = CALLS[name].own["eps"]  # at which rounding chooses how far a run gets
    assert one.upper == pytest.approx(two.upper, abs=slack)
    if (
        one.upper > slack
    ):  # else both rest where there is no margin, and rounding chooses the direction
        assert one.lower == pytest.approx(two.lower, abs=slack)


@every_loop
def test_repeated_runs_give_the_same_bits(name, kind):
    G = form(kind, ENDURING)
    same_result(run(name, G, max_iter=40), run(name, G, max_iter=40))


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


class CountingGram(fm.Gram):
    """A dense G that counts products and columns."""

    unit = 2.0**-53

    def __init__(self, matrix):
        self.matrix = matrix
        self.held = fm.DenseGram(matrix)
        self.n = len(matrix)
        self.products = 0
        self.columns = 0

    def _diagonal(self):
        return self.matrix.diagonal().copy()

    def _rounding(self):
        return self.held.rounding()

    def _relative_lengths(self):
        return self.held._relative_lengths()

    def _restrict(self, index):
        return self.held.restrict(index)  # of which a product is none of G

    def _block(self, rows, columns):
        return self.matrix[np.ix_(rows, columns)]

    def _precise(self, v):
        return self.held._precise(v)

    def _product(self, v):
        self.products += 1
        return product(self.held, v)

    def _add_column(self, i, c, m):
        self.columns += 1
        fm.add_column(self.held, i, c, m)


@pytest.mark.parametrize("case", ["lopsided, shifted", "feasible, odd n"])
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call.rows])
def test_a_new_representation_needs_no_change(name, case):
    """The results of the dense G whose kernels it borrows, up to the order of additions, which inlining may change; and
    as many products and columns as the trace claims, but for those of certificates.  `max_margin`, which reads
    rows of a dense G, goes another way to the same margin."""
    matrix = dense(PLANTED[case][0])
    call = CALLS[name]
    plain = run(name, matrix, max_iter=25, trace_at=[])
    G = CountingGram(matrix)
    seen = []
    other = run(name, G, max_iter=25, trace_at=[], callback=seen.append)
    assert plain.status == other.status
    most, rtol = (BEFORE_TIES, 1e-11) if call.noise == 1.0 else (25, max(1e-11, call.noise))
    for one, two in zip(
        *(
            (result.lower, result.upper) if call.cost is None else result[:4]
            for result in (
                run(name, given, max_iter=most) for given in (matrix, CountingGram(matrix))
            )
        ),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=1e-14)
    assert plain.n_iter == other.n_iter or call.cost is None
    made = G.products + G.columns / len(matrix)
    claimed = other.trace["products"]
    assert made > 0.0
    if call.cost:
        assert claims(name, len(matrix), claimed, [partial.n_iter for partial in seen])
        # a certificate takes at most a product for p and one for alpha, and an end is confirmed by some
        assert claimed[-1] <= made + 1e-9 and made <= claimed[-1] + 2 * len(seen) + 4


@pytest.mark.parametrize("case", ["separable", "overlapping", "uneven"])
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call.rows])
def test_four_things_are_enough(name, case):
    Z = PLANTED["uneven"][0] if case == "uneven" else UNTIED[case]
    most = (
        BEFORE_TIES if CALLS[name].noise == 1.0 and case == "overlapping" else 60
    )  # there they come to rest at 0
    one, two = (run(name, make(Z), max_iter=most, trace_at=[]) for make in (Own, fm.FeatureGram))
    slack = 1e-8 * math.sqrt(scale_of(fm.FeatureGram(Z))) if case != "overlapping" else 1e-6
    assert one.lower == pytest.approx(two.lower, abs=slack)
    assert one.upper == pytest.approx(two.upper, abs=slack)
    assert one.status == two.status or (name, one.status) == (
        "max_margin",
        "rounding",
    )  # it has no precise products


def test_defaults_are_what_they_say():
    """A class with four things, and FeatureGram: the same operations, blocks and sums, with a ridge and without."""
    Z = UNTIED["overlapping"]
    n, _ = Z.shape
    v = rows_of(1, n)[0]
    V = rows_of(n, 3, 5)
    some = np.array([5, 1, 9])
    others = np.array([0, 9, 4, 2])
    for ridge in (0.0, 0.5, np.arange(n) / n):
        outputs = []
        for G in (Own(Z).with_ridge(ridge), fm.FeatureGram(Z).with_ridge(ridge)):
            column = np.ones(n)
            fm.add_column(G, 3, -0.7, column)
            numbers = product(G, v), G @ V, column, G.block(some, others), G.dense()
            outputs.append(np.concatenate([array.ravel() for array in numbers]))
        np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-12, atol=1e-13)
        share = v / np.abs(v).sum()
        np.testing.assert_allclose(
            Own(Z).with_ridge(ridge)._measured(share)[0], share @ product(G, share), rtol=1e-12
        )


def test_what_a_class_lacks_is_an_error():
    for lacking in ("_diagonal", "_product"):
        kind = type("Lacking", (Own,), {lacking: getattr(fm.Gram, lacking)})
        with pytest.raises(NotImplementedError, match=f"Lacking has no {lacking}"):
            fm.momentum(kind(np.eye(3)), max_iter=3)
    with pytest.raises(TypeError, match=r"Lacking must say .*: unit = 2\.0\*\*-53"):
        fm.momentum(type("Lacking", (Own,), {"unit": None})(np.eye(3)), max_iter=3)
    with pytest.raises(NotImplementedError, match="Own has no _restrict"):
        Own(np.eye(3)).restrict([0, 1])


@numba.njit
def count_by_fields(G, k, until, alpha, w, m):
    while k < until:
        fm.product(G, w[::-1], m)
        alpha[0] += G.matrix[0, 0]
        k += 1
    return k


@pytest.mark.parametrize("make", [fm.DenseGram, CountingGram])
def test_a_loop_may_read_fields_and_pass_views(make):
    """Compiled, and as its Python source."""
    G = make(dense(PLANTED["feasible, odd n"][0]))
    n = len(G.matrix)
    state = np.zeros(n), np.ones(n), np.zeros(n)
    result = fm.drive(
        G, count_by_fields, state, lambda alpha, w, m: (alpha, w), max_iter=5, trace_at=[]
    )
    assert result.n_iter == 5 and np.array_equal(
        result.alpha, [5.0 * G.matrix[0, 0]] + (n - 1) * [0.0]
    )
    np.testing.assert_allclose(state[2], G.matrix.sum(axis=1), atol=1e-12)


class FailingGram(CountingGram):
    def _product(self, v):
        if self.products > 3:
            raise ArithmeticError("gone")
        return super()._product(v)


@pytest.mark.parametrize("pairs", [False, True])
def test_errors_of_methods_pass_through_loops(pairs):
    matrix = dense(PLANTED["feasible, odd n"][0])
    G = FailingGram(np.abs(matrix))
    problem = fm.pair_gram(G, np.arange(len(matrix)) % 3, 3) if pairs else G
    with pytest.raises(ArithmeticError, match="gone"):
        fm.momentum(problem, max_iter=100, trace_at=[])


def test_operations_called_from_python_check_shapes():
    G = fm.FeatureGram(np.arange(12.0).reshape(4, 3))
    v = np.ones(4)
    for call, words in (
        (lambda: fm.product(G, np.ones(5), v), ["v", "(4,)", "(5,)"]),
        (lambda: fm.product(G, [1.0] * 4, v), ["v", "array of shape (4,)"]),
        (lambda: fm.product(G, v, np.ones(300)), ["out", "(4,)", "(300,)"]),
        (lambda: fm.add_column(G, 0, 1.0, np.ones(3)), ["m", "(4,)", "(3,)"]),
    ):
        check_raises(call, ValueError, words)
    for i in (-1, 4):
        check_raises(lambda i=i: fm.add_column(G, i, 1.0, v), IndexError, ["i", "4 points", str(i)])


class Unknown(NamedTuple):
    rows: np.ndarray


@pytest.mark.parametrize(
    "G",
    [np.eye(2), Unknown(np.eye(2)), (np.eye(2),), 3.0],
    ids=["array", "class", "tuple", "float"],
)
def test_operations_on_what_is_no_representation(G):
    """An error that names the type and says what to do."""
    v, m = np.zeros((2, 2))
    for call in (lambda: fm.product(G, v, m), lambda: fm.add_column(G, 0, 1.0, m)):
        check_raises(call, TypeError, [type(G).__name__, "Gram"])
    if isinstance(G, Unknown):
        check_raises(lambda: fm.snkp(G), TypeError, ["G"])


# ======================================================================================================
# A LOOP OF ONE'S OWN
# ======================================================================================================


@numba.njit
def softmax(m, q):
    q[:] = np.exp(m.min() - m)
    q /= q.sum()


@numba.njit
def heavy_ball(G, k, until, alpha, m, v, q, Gv, step, beta):
    """Normalised gradient steps with constant inertia; m = G alpha, v is the velocity."""
    while k < until:
        softmax(m, q)
        v *= beta
        v += step * q
        alpha += v
        fm.product(G, v, Gv)
        m += Gv
        k += 1
    return k


def call_heavy_ball(G, loop=heavy_ball, **options):
    state = tuple(np.zeros((5, len(G))))
    scale = np.asarray(G).diagonal().max()
    return fm.drive(
        G,
        loop,
        state,
        lambda alpha, m, *_: (alpha, alpha, m, m),
        (0.5 / scale, 0.7),
        **options,
    )


@every_representation
@pytest.mark.parametrize("case", ["separable", "not separable", "scale 50"])
def test_a_foreign_loop_on_every_representation(kind, case):
    Z = UNTIED[case]
    G = form(kind, Z)
    seen = []
    result = call_heavy_ball(G, max_iter=150, trace_at=range(151), callback=seen.append)
    for partial, (alpha, p, _) in zip(seen, naive.heavy_ball(Z, 0.5, 0.7), strict=False):
        size = float(np.abs(alpha).max())
        np.testing.assert_allclose(
            partial.alpha, alpha.astype(float), rtol=0, atol=1e-11 * size + 1e-300
        )
        np.testing.assert_allclose(partial.p, p.astype(float), rtol=0, atol=1e-11)
    assert (
        len(seen) == 151
        and result.status == "max_iter"
        and (result.trace["products"] == np.arange(151)).all()
    )
    again = fm.certificate(G, result.alpha, result.p)
    assert again == pytest.approx((result.lower, result.upper), rel=1e-12)
    short = call_heavy_ball(G, max_iter=150, trace_at=[])
    assert np.array_equal(short.alpha, result.alpha) and short.lower == result.lower
    resumed = call_heavy_ball(G, max_iter=90, start=seen[60])
    assert np.array_equal(resumed.alpha, result.alpha) and resumed.n_iter == 150
    plain = call_heavy_ball(
        G, heavy_ball.py_func, max_iter=20
    )  # interpreted, the operations as well
    compiled = call_heavy_ball(G, max_iter=20)
    np.testing.assert_allclose(plain.alpha, compiled.alpha, rtol=1e-10)
    if case == "separable":
        assert call_heavy_ball(G, max_iter=3000, tol=0.02).status == "certified"


@pytest.mark.parametrize("kind", ["dense", "features", "sparse", "pairs", "lazy"])
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


@pytest.mark.parametrize("n", [30, 601])
@pytest.mark.parametrize("zeros", [0.0, 0.9, 1.0])
def test_products_with_a_table_may_leave_out_zeros(n, zeros):
    """The same products, and the same bits with any number of threads."""
    rng = np.random.default_rng(0)
    G = fm.gram(rows_of(n, 5))
    W = rows_of(7, n, 1) * (rng.random((7, n)) >= zeros)
    outputs = []
    for count in (1, 2):
        with threads(count):
            outputs.append((G @ W.T).T)
    np.testing.assert_allclose(outputs[0], W @ G.matrix, atol=1e-12)
    assert np.array_equal(*outputs)
