"""Kernels: Gram matrices, cross matrices and scores by their formulas; what points and parameters may be."""

import itertools
import math

import naive
import numpy as np
import pytest
from instances import EPS, layouts, meet, rotate, rows_of, two_classes

import fastmargin as fm

KERNELS = {
    f"{kernel} {params}": (kernel, params, formula) for kernel, params, formula in naive.KERNELS
}
NORMALIZE = ["unit", "max", None]
all_kernels = pytest.mark.parametrize("kernel, params, formula", KERNELS.values(), ids=KERNELS)


@pytest.mark.filterwarnings("ignore:all labels")
@rotate("name, n, normalize, signed", KERNELS, [1, 70, 530], NORMALIZE, [True, False], crossed=2)
def test_gram_is_its_formula(name, n, normalize, signed):
    kernel, params, formula = KERNELS[name]
    X, y = two_classes(max(n, 2), 3, seed=n)
    X = X[:n] + 0.3
    y = y[:n]
    K = naive.normalised(formula(X, X, X), normalize)
    sign = np.outer(y, y) if signed else 1.0
    options = {"kernel": kernel, "normalize": normalize, **params}
    G = np.asarray(fm.gram(X, y if signed else None, **options))
    slack = 3e-15
    np.testing.assert_allclose(G, sign * K, rtol=3e-14, atol=slack * K.diagonal().max())
    assert np.array_equal(G, G.T)
    if n < 100:
        assert np.linalg.eigvalsh(G).min() >= -n * EPS * np.linalg.norm(G, 2)
    if normalize == "unit":
        assert (G.diagonal() == 1.0).all()
    if normalize == "max":
        assert abs(G.diagonal().max() - 1.0) <= 2 * EPS


# Rows are read by twos, and coordinates by fours.
@rotate("name, n, d", KERNELS, [2, 16, 17, 33, 97], [1, 4, 7, 30], crossed=2)
def test_gram_is_its_formula_where_stretches_of_coordinates_are_0(name, n, d):
    kernel, params, formula = KERNELS[name]
    rng = np.random.default_rng(n + 100 * d)
    used = (
        rng.random((-(-n // 32), -(-d // 4))).repeat(32, axis=0)[:n].repeat(4, axis=1)[:, :d] < 0.5
    )
    used[:, 0] = True
    X = np.where(used, rng.integers(-8, 9, (n, d)) / 4, 0.0)
    X = np.concatenate((X, -X))
    n = 2 * n  # whose mean is 0: what is zero stays so where kernels centre the points
    K = formula(X, X, X)
    slack = 1e-14
    G = np.asarray(fm.gram(X, kernel=kernel, normalize=None, **params))
    np.testing.assert_allclose(G, K, rtol=3e-14, atol=slack * K.diagonal().max())
    lazy = fm.lazy_gram(X, kernel=kernel, normalize=None, **params)
    assert np.array_equal(lazy.dense(), G) and np.array_equal(G, G.T)
    some = rng.permutation(n)[: max(1, n // 2)]
    v = rng.normal(size=n)
    m = lazy @ v
    np.testing.assert_allclose(
        lazy.block(some, np.arange(n)), G[some], rtol=3e-14, atol=slack * K.diagonal().max()
    )
    np.testing.assert_allclose(m, G @ v, rtol=0, atol=slack * K.diagonal().max() * np.abs(v).sum())


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "ntk"])
@pytest.mark.parametrize("n", [1, 64, 65, 2100])
def test_gram_in_many_blocks_has_the_values_of_single_rows(kernel, n):
    """The same values as a row at a time."""
    X = rows_of(n, 5)
    options = {"gamma": 0.3} if kernel in ("rbf", "laplacian") else {}
    K = np.asarray(fm.gram(X, kernel=kernel, normalize=None, **options))
    assert np.array_equal(K, K.T)
    for i in {0, n // 3, n // 2, n - 1}:
        row = fm.kernel_matrix(X, X[i : i + 1], kernel=kernel, **options).ravel()
        np.testing.assert_allclose(K[i], row, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("power", [-320, -250, 250, 320])
@pytest.mark.parametrize("kernel", ["linear", "ntk"])
def test_kernels_of_degree_two_scale_with_the_points(kernel, power):
    X, _ = two_classes(40, 3, seed=0)
    for make in (fm.gram, fm.lazy_gram):
        K = make(X, kernel=kernel, normalize=None)
        scaled = make(np.ldexp(X, power), kernel=kernel, normalize=None)
        assert np.array_equal(scaled, np.ldexp(K, 2 * power))


@rotate("name, normalize, many", KERNELS, NORMALIZE, [1, 700], crossed=2)
def test_scores_are_their_formula_at_new_points_and_at_those_of_g(name, normalize, many):
    """At the points of G they are y times its margins; points without a weight are skipped."""
    kernel, params, formula = KERNELS[name]
    X, y = two_classes(40, 3, seed=5)
    new = rows_of(many, 3, seed=6) + 0.5
    alpha = rows_of(1, 40, seed=7)[0]
    alpha[::3] = 0.0
    K = formula(new, X, X)
    train = formula(X, X, X).diagonal()
    own = formula(new, new, X).diagonal()
    K = {"unit": K / np.sqrt(np.outer(own, train)), "max": K / train.max(), None: K}[normalize]
    G = fm.gram(X, y, kernel=kernel, normalize=normalize, **params)
    size = max(np.abs(K).max(), G.diagonal().max()) * np.abs(alpha).sum()
    slack = 2e-14
    np.testing.assert_allclose(
        G.decision_function(alpha, new), K @ (alpha * y), rtol=0, atol=slack * size
    )
    np.testing.assert_allclose(
        y * G.decision_function(alpha, X), G @ alpha, rtol=0, atol=slack * size
    )
    assert not G.decision_function(np.zeros(40), new).any()


@all_kernels
def test_kernel_matrix_is_its_formula(kernel, params, formula):
    A = rows_of(33, 5, 8) + 1.0
    B = rows_of(7, 5, 9)
    K = fm.kernel_matrix(A, B, kernel=kernel, **params)
    slack = 1e-14
    np.testing.assert_allclose(K, formula(A, B, A), rtol=3e-14, atol=slack)


@pytest.mark.parametrize("dtype, lowest", [(np.float64, -1022.0), (np.float32, -126.0)])
@pytest.mark.parametrize("scale", [-1.0, -0.7, -3.0])
def test_compiled_powers_of_two_have_their_digits(dtype, lowest, scale):
    """Three units, and one of the product with the scale, which a power multiplies by |y| ln 2; exactly 1 at 0."""
    x = np.append(np.linspace(0.0, -lowest, 100_001), np.geomspace(1e-20, 1.0, 1001)) / -scale
    x = x.astype(dtype)
    values = x.copy()
    fm._powers(values, dtype(scale))
    y = x.astype(naive.LONG) * naive.LONG(dtype(scale))
    unit = np.finfo(dtype).eps / 2
    exact = np.exp2(np.maximum(y, lowest))
    assert (np.abs(values - exact) <= 1.01 * (3.0 - y * np.log(2.0)) * unit * exact).all()
    if scale == -1.0:  # where the product is exact
        assert (np.abs(values - exact) <= 3.0 * unit * exact).all()
    outside = np.array([0.0, 10.0 * lowest / scale], dtype)
    fm._powers(outside, dtype(scale))
    assert outside[0] == 1.0 and outside[1] == np.exp2(dtype(lowest))


@pytest.mark.parametrize(
    "options", [{"gamma": 0.3}, {"gamma": 30.0, "intercept": 0.5}, {"kernel": "poly"}]
)
@pytest.mark.parametrize("n, d", [(20, 3), (530, 3), (1300, 6), (300, 130)])
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_products_on_demand_are_those_of_the_matrix(options, n, d, share):
    """One half of it is evaluated, or the columns that have weights; line by line where coordinates are few."""
    X, y = two_classes(n, d)
    rng = np.random.default_rng(1)
    G = fm.lazy_gram(X, y, **options)
    W = rng.normal(size=(3, n)) * (rng.random(n) < share)
    M = (G @ W.T).T
    wanted = W @ np.asarray(fm.gram(X, y, **options))
    np.testing.assert_allclose(M, wanted, rtol=0, atol=1e-13 * np.abs(W).sum(axis=1).max())


@pytest.mark.parametrize("d", [4, 40, 200])  # by differences, and by inner products
def test_rbf_loses_no_digits_far_from_the_origin(d):
    # ||x||^2 is 1e16 times the distances: without centring, every digit would cancel.
    X = np.random.default_rng(0).integers(-8, 8, (50, d)) / 8.0
    far = X + np.tile([1e8, -1e8, 1e7, 0.0], d // 4)  # these sums are exact
    exact = np.exp(-2.0 / d * naive.squared_distances(X, X))
    K = fm.gram(far, kernel="rbf", gamma=2.0 / d)
    rtol = 1e-14 if d <= fm._FEW_COORDINATES else 2e-13
    for got in (K, fm.kernel_matrix(far, far, kernel="rbf", gamma=2.0 / d)):
        np.testing.assert_allclose(got, exact, rtol=rtol)
    f = K.decision_function(np.ones(50), far)
    np.testing.assert_allclose(f, exact.sum(axis=1), rtol=rtol)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_gamma_auto_is_one_over_the_dimension(kernel):
    X, y = two_classes(20, 5)
    assert np.array_equal(
        fm.gram(X, y, kernel=kernel, gamma="auto"), fm.gram(X, y, kernel=kernel, gamma=0.2)
    )
    ours, same = (
        fm.MaxMarginClassifier(kernel, gamma=gamma, C=1.0).fit(X, y) for gamma in ("auto", 0.2)
    )
    assert np.array_equal(ours.dual_coef_, same.dual_coef_)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_sparse_points_have_the_kernel_of_dense_ones(kernel, share):
    """Of few entries, and of many, in more rows than are read at a time."""
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=(n, 500)) * (rng.random((n, 500)) < share) for n in (3, 2500))
    found = fm.kernel_matrix(sparse.csr_array(A), sparse.csr_array(B), kernel=kernel)
    wanted = fm.kernel_matrix(A, B, kernel=kernel)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    back = fm.kernel_matrix(sparse.csr_array(B), sparse.csr_array(A), kernel=kernel)
    wanted = fm.kernel_matrix(B, A, kernel=kernel)
    np.testing.assert_allclose(back, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


def test_constant_points_have_a_kernel():
    for value in (2.0, 0.0, 1e-90):
        assert np.array_equal(fm.gram(np.full((4, 3), value), kernel="rbf"), np.ones((4, 4)))


# ======================================================================================================
# KERNELS OF ONE'S OWN
# ======================================================================================================


@pytest.mark.filterwarnings("ignore:all labels")
@rotate("name, normalize, n", KERNELS, NORMALIZE, [1, 70, 530], crossed=2)
def test_callable_and_precomputed_kernels_agree_with_the_named(name, normalize, n):
    kernel, params, formula = KERNELS[name]
    X, y = two_classes(max(n, 2), 3, seed=n)
    X = X[:n] + 0.3
    y = y[:n]
    new = rows_of(15, 3, seed=6) + 0.5

    def function(A, B):
        return formula(A, B, X)

    K = formula(X, X, X)
    cross = formula(new, X, X)
    G = fm.gram(X, y, kernel=kernel, normalize=normalize, **params)
    slack = 6e-15
    close = dict(rtol=6e-14, atol=slack * np.abs(K).max())
    own = fm.gram(X, y, kernel=function, normalize=normalize)
    given = fm.gram(K, y, kernel="precomputed", normalize=normalize)
    for matrix in (np.asarray(own), np.asarray(given)):
        assert np.array_equal(matrix, matrix.T)
    np.testing.assert_allclose(own, G, **close)
    np.testing.assert_allclose(given, G, **close)
    named = fm.kernel_matrix(X, new, kernel=kernel, **params)
    np.testing.assert_allclose(
        fm.kernel_matrix(X, new, kernel=function), named, rtol=6e-14, atol=slack * np.abs(K).max()
    )
    assert np.array_equal(fm.kernel_matrix(K, cross, kernel="precomputed"), cross.T)
    alpha = rows_of(1, n, seed=7)[0]
    alpha[1::3] = 0.0  # these points are skipped
    scores = G.decision_function(alpha, new)
    bound = (
        10.0
        * slack
        * max(np.abs(K).max(), np.abs(cross).max())
        * np.abs(alpha).sum()
        / (K.diagonal().min() if normalize == "unit" else 1.0)
    )
    np.testing.assert_allclose(own.decision_function(alpha, new), scores, rtol=0, atol=bound)
    if normalize != "unit":
        np.testing.assert_allclose(
            given.decision_function(alpha, cross), scores, rtol=0, atol=bound
        )


def linear(A, B):
    return A @ B.T


def test_callable_kernels_may_return_what_an_array_holds():
    X = np.random.default_rng(0).integers(-9, 9, (20, 4)) + 0.0
    y = np.repeat([1, -1], 10)
    plain = fm.gram(X, y, kernel="linear", normalize=None)
    for kernel in (
        linear,
        lambda A, B: linear(A, B).tolist(),
        lambda A, B: linear(A, B).astype(np.float32),
        lambda A, B: linear(A, B).astype(np.int64),
        lambda A, B: np.asfortranarray(linear(A, B)),
    ):
        assert np.array_equal(fm.gram(X, y, kernel=kernel, normalize=None), plain)


def test_copies_of_a_point_are_told_by_the_kernel():
    """K(x, x) = 1 exactly, whatever rounding makes of a distance by inner products: so contradictions are witnesses."""
    for seed, d in itertools.product(range(5), (1, 3, 19, 300)):
        X = np.random.default_rng(seed).normal(size=(40, d)) * 10.0**seed
        X[20:] = X[:20]
        gamma = 0.3 / d / 10.0 ** (2 * seed)
        for make in (fm.gram, fm.lazy_gram, lambda X, gamma: fm.kernel_matrix(X, X, gamma=gamma)):
            K = np.asarray(make(X, gamma=gamma))
            assert (K[np.arange(20), np.arange(20, 40)] == 1.0).all()
    y = np.repeat([1, -1], 20)
    assert fm.max_margin(fm.gram(X, y, gamma=gamma)).upper <= 3e-8


def adversarial(d):
    """Points that are equal, close, parallel or antiparallel, at the origin, or far from all others."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(10, d))
    apart = 10.0 ** rng.uniform(-16.0, -1.0, size=(10, 1)) * rng.normal(size=(10, d))
    return np.concatenate((X, X, X * (1.0 + apart), -X * (1.0 + apart), 3.0 * X, np.zeros((1, d))))


def exact_kernel(kernel, X):
    """K(x, x') in extended precision, by the parameters of a `Kernel`."""
    X = X.astype(naive.LONG)
    gamma = naive.LONG(kernel.gamma)
    if kernel.name == "linear":
        return X @ X.T
    if kernel.name == "poly":
        return (gamma * (X @ X.T) + naive.LONG(kernel.coef0)) ** kernel.degree
    if kernel.name == "rbf":
        return np.exp(-gamma * ((X[:, None] - X) ** 2).sum(axis=2))
    if kernel.name == "laplacian":
        return np.exp(-gamma * np.abs(X[:, None] - X).sum(axis=2))
    assert kernel.name == "ntk"
    return naive.tangent_limit(X, X)


@pytest.mark.parametrize("origin", [0.0, 1.0, 1e8])
@pytest.mark.parametrize("d", [1, 2, 10, 65, 128, 129, 200])
@pytest.mark.parametrize("kernel", [name for name in fm._KERNELS if name != "precomputed"])
def test_entries_are_within_their_stated_rounding(kernel, d, origin):
    """Of every kernel, at points where digits cancel, and for a very small and a very large gamma."""
    X = adversarial(d) + origin
    for gamma in ("scale", 1e-8, 1e8) if "gamma" in fm._KERNELS[kernel].takes else (None,):
        params = {} if gamma is None else {"gamma": gamma}
        G = fm.lazy_gram(X, kernel=kernel, normalize=None, **params)
        precise = exact_kernel(G.kernel, X)
        roots = np.sqrt(precise.diagonal())
        lengths = np.where(roots > 0.0, roots, 1.0)
        bound = 1.01 * G.kernel.rounding(G.store.prepared)
        error = np.abs(np.asarray(G) - precise) / np.outer(lengths, lengths)
        block = np.abs(G.block(np.arange(51), np.arange(51)) - precise)
        assert error.max() <= bound
        assert (block / np.outer(lengths, lengths)).max() <= bound
        if kernel in ("laplacian", "ntk") or (kernel == "rbf" and d <= fm._FEW_COORDINATES):
            assert bound < 1e-13  # wherever the points lie
        if kernel == "rbf" and gamma == "scale" and origin == 0.0:
            assert bound < 1e-11


@pytest.mark.parametrize("n", [2, 300])
def test_the_limit_of_ntk_is_certified(n):
    X = np.eye(2) if n == 2 else np.random.default_rng(0).normal(size=(n, 2))
    y = np.where(X[:, 0] > X[:, 1], 1, -1)
    options = {"kernel": "ntk", "normalize": None, "intercept": "free"}
    stored = fm.max_margin(fm.gram(X, y, **options), tol=1e-6)
    lazy = fm.max_margin(fm.lazy_gram(X, y, **options), tol=1e-6)
    assert stored.status == lazy.status == "certified"
    assert meet(lazy, stored)


def shared_letters(A, B):
    assert isinstance(A, list) and isinstance(B, list)
    return [[len(set(a) & set(b)) + float(a == b) for b in B] for a in A]


class Word:
    """An object that has a length, and of which NumPy would make an array of letters."""

    def __init__(self, text):
        self.text = text

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return self.text[i]

    def __eq__(self, other):
        return self.text == other.text

    __hash__ = None


WORDS = ["walk", "talk", "sing", "ring", "alkali", "zinc", "ink", "lark"]
KINDS_OF_WORDS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "objects": lambda words: np.array(words, dtype=object),
    "graphs": lambda words: [Word(text) for text in words],
}


@pytest.mark.parametrize("normalize", NORMALIZE)
@pytest.mark.parametrize("kind", KINDS_OF_WORDS)
def test_points_of_a_function_may_be_of_any_kind(kind, normalize):
    """As a precomputed kernel: the matrix, products, scores of new points, classes and support vectors."""
    made = KINDS_OF_WORDS[kind]
    y = np.array([1, 1, -1, -1, 1, -1])
    train = made(WORDS[:6])
    K = np.array(shared_letters(WORDS, WORDS))
    own = K.diagonal()
    if normalize == "unit":
        K = K / np.sqrt(np.outer(own, own))
    if normalize == "max":
        K = K / own[:6].max()
    G = fm.gram(train, y, kernel=shared_letters, normalize=normalize)
    np.testing.assert_allclose(G, np.outer(y, y) * K[:6, :6], rtol=1e-14)
    alpha = np.array([1.0, 0.0, 2.0, 0.5, 0.0, 1.0])
    f = G.decision_function(alpha, made(WORDS))
    np.testing.assert_allclose(f, K[:, :6] @ (alpha * y), rtol=1e-13)
    some = G.restrict([0, 2, 5]).decision_function(alpha[[0, 2, 5]], made(WORDS[6:]))
    np.testing.assert_allclose(some, K[6:, [0, 2, 5]] @ (alpha * y)[[0, 2, 5]], rtol=1e-13)
    for labels in (y, np.array([0, 1, 2, 2, 0, 1])):
        chosen = fm.MaxMarginClassifier(shared_letters, normalize=normalize).fit(train, labels)
        if normalize is None:
            given = fm.MaxMarginClassifier("precomputed").fit(K[:6, :6], labels)
            assert np.array_equal(chosen.predict(made(WORDS)), given.predict(K[:, :6]))
        assert chosen.status_ == "certified" and chosen.score(train, labels) == 1.0
        assert list(chosen.support_vectors_) == [train[i] for i in chosen.support_]


def test_equal_texts_count_as_one_and_contradict_each_other():
    labels = ["a", "b", "a", "b"]
    words = ["walk", "sing", "talk", "ring"]
    once = fm.MaxMarginClassifier(shared_letters, C=1.0).fit(words, labels, [2.0, 1.0, 1.0, 1.0])
    twice = fm.MaxMarginClassifier(shared_letters, C=1.0).fit(
        [*words, "walk"], [*labels, "a"], np.ones(5)
    )
    assert np.array_equal(once.dual_coef_, twice.dual_coef_) and twice.support_.max() < 4
    assert fm.contradiction([*words, "talk"], [*labels, "b"]) == (2, 4)
    with pytest.raises(ValueError, match="points 2 and 4 contradict"):
        fm.MaxMarginClassifier(shared_letters, C=math.inf).fit([*words, "talk"], [*labels, "b"])


def test_rows_of_numbers_and_objects_are_told_apart():
    numbers = np.eye(4)
    y = [1, -1, 1, -1]
    G = fm.gram(WORDS[:4], y, kernel=shared_letters)
    rows = fm.gram(numbers, y, kernel=linear)
    with pytest.raises(ValueError, match="Xnew has 4 columns of numbers"):
        G.decision_function(np.ones(4), numbers)
    with pytest.raises(ValueError, match="Xnew has no columns of numbers"):
        rows.decision_function(np.ones(4), WORDS)
    with pytest.raises(ValueError, match="B has no columns of numbers"):
        fm.kernel_matrix(numbers, WORDS, kernel=linear)
    with pytest.raises(ValueError, match="X has no columns of numbers"):
        fm.MaxMarginClassifier(linear).fit(numbers, y).predict(WORDS)
    with pytest.raises(TypeError, match="X must hold real numbers"):
        fm.gram(WORDS[:4], y, kernel="rbf")


def test_callable_kernels_are_given_copies():
    """Compiled ones may refuse what they cannot write to."""

    def careless(A, B):
        values = A @ B.T
        A[:] = B[:] = np.nan
        return values

    X = rows_of(700, 3)
    before = X.copy()
    plain = fm.gram(X, kernel=lambda A, B: A @ B.T)
    np.testing.assert_allclose(fm.gram(X, kernel=careless), plain, rtol=0, atol=1e-14)
    assert np.array_equal(X, before)


def test_float32_accuracy_is_enough_for_a_precomputed_or_callable_kernel():
    X, y = two_classes(60, 5)
    K = (X @ X.T).astype(np.float32)
    K[3, 7] *= np.float32(1 + 2e-7)
    G = fm.gram(K, y, kernel="precomputed", normalize=None)
    np.testing.assert_allclose(
        G, fm.gram(X, y, kernel="linear", normalize=None), rtol=1e-5, atol=1e-5
    )
    huge = fm.gram(np.eye(3) * 1e200, kernel="precomputed", normalize=None)
    assert np.array_equal(huge, np.eye(3) * 1e200)


def test_no_weights_give_no_scores_with_a_callable_kernel():
    assert not fm.gram(np.eye(3), kernel=linear).decision_function(np.zeros(3), np.eye(3)).any()


def test_precomputed_input_is_neither_changed_nor_returned():
    X, y = two_classes(20, 3)
    K = linear(X, X)
    before = K.copy()
    for labels in (y, None):
        G = fm.gram(K, labels, kernel="precomputed", normalize=None)
        for out in (np.asarray(G), G.decision_function(y, K)):
            assert not np.shares_memory(out, K)
    out = fm.kernel_matrix(K, K, kernel="precomputed")
    assert not np.shares_memory(out, K)
    out[:] = np.nan
    assert np.array_equal(K, before)


# ======================================================================================================
# INPUT
# ======================================================================================================


@pytest.mark.parametrize("layout", layouts(np.eye(2)))
def test_layouts_and_types_of_points_change_no_value(layout):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, (25, 4)).astype(float)
    y = np.where(rng.random(25) < 0.5, 1, -1)
    given = layouts(X)[layout]
    label = {"int8": y.astype(np.int8), "float32": y.astype(np.float32), "list": y.tolist()}.get(
        layout, y
    )
    alpha = np.arange(25)
    for kernel in ("linear", "rbf", "laplacian", "poly"):
        one = fm.gram(given, label, kernel=kernel)
        two = fm.gram(X, y, kernel=kernel)
        assert np.array_equal(one, two) and np.array_equal(one.labels, two.labels)
        assert np.array_equal(one.decision_function(alpha, given), two.decision_function(alpha, X))
        assert np.array_equal(
            fm.kernel_matrix(given, given, kernel=kernel), fm.kernel_matrix(X, X, kernel=kernel)
        )
    assert np.array_equal(fm.features(given, label).coordinates(), fm.features(X, y).coordinates())
    K = X @ X.T + 0.0  # integers of at most 324, which int8 does not hold
    if layout != "int8":
        assert np.array_equal(
            fm.gram(layouts(K)[layout], label, kernel="precomputed", normalize=None),
            np.outer(y, y) * K,
        )


def test_points_are_left_alone():
    X, y = two_classes(20, 3)
    kept = X.copy(), y.copy()
    fm.kernel_matrix(X, X)
    for make in (fm.gram, fm.features, fm.lazy_gram):
        make(X, y).decision_function(np.ones(20), X)
    assert np.array_equal(X, kept[0]) and np.array_equal(y, kept[1])


X3 = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
Y3 = np.array([1, -1, 1])


@rotate("name, normalize, intercept", KERNELS, NORMALIZE, [0.0, 1.5, "free"], crossed=2)
def test_some_of_the_points_score_as_all_do_whose_other_weights_are_0(name, normalize, intercept):
    kernel, params, _ = KERNELS[name]
    X, y = two_classes(20, 3, seed=1)
    G = fm.gram(X, y, kernel=kernel, normalize=normalize, intercept=intercept, **params)
    index = np.array([7, 0, 3, 11, 18])
    some = G.restrict(index)
    alpha = np.zeros(20)
    alpha[index] = 1.0 + np.arange(5)
    new = rows_of(4, 3, seed=2)
    found = some.decision_function(alpha[index], new)
    wanted = G.decision_function(alpha, new)
    if intercept == "free":  # the best bias is another one
        found -= found[0]
        wanted -= wanted[0]
    np.testing.assert_allclose(
        found, wanted, rtol=1e-10, atol=1e-12 * np.abs(G.diagonal()).max() * alpha.sum()
    )


def test_some_of_the_points_of_a_precomputed_kernel_take_the_values_of_these():
    K = linear(X3, X3)
    G = fm.gram(K, Y3, kernel="precomputed", normalize=None)
    some = G.restrict(np.array([2, 0]))
    want = G.decision_function([3.0, 0.0, 5.0], K)
    assert np.array_equal(some.decision_function([5.0, 3.0], K[:, [2, 0]]), want)
    with pytest.raises(ValueError, match="Xnew"):
        some.decision_function([5.0, 3.0], K)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 3e7])
def test_gamma_of_equal_points_is_1(value):
    """As in scikit-learn: their variance is 0, and not what a rounded mean leaves of it."""
    X = np.full((10, 3), value)
    assert fm.gram(X).kernel.gamma == 1.0
    assert fm.MaxMarginClassifier().fit(X, np.arange(10) % 3 == 0).kernel_.gamma == 1.0
