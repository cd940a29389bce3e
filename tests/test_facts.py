"""A representation knows what it is: its facts, its scores of new points, and what it refuses."""

import copy
import itertools
import pickle

import naive
import numpy as np
import pytest
from instances import Own

import fastmargin as fm

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


@pytest.mark.parametrize("name, maker, normalize, c", EVERY)
def test_facts_and_scores_are_those_of_the_formula(name, maker, normalize, c):
    """Labels, parameters, matrix, bias and scores of new points, of every kernel, normalisation and intercept."""
    G = makers(name)[maker](Y, normalize=normalize, intercept=c)
    assert np.array_equal(G.labels, Y)
    assert G.kernel.name == name.split(",")[0]
    for parameter, value in KERNELS[name][2].items():
        assert getattr(G.kernel, parameter) == value
    assert (G.normalize, G.intercept, len(G)) == (normalize, c, 30)
    matrix = Y[:, None] * values(name, X, X, normalize, c) * Y
    if not (c == "free" and normalize is None and name == "linear"):  # from another origin
        np.testing.assert_allclose(np.asarray(G), matrix, atol=1e-11 * np.abs(matrix).max())
    alpha = RNG.random((2, 30))
    for side in (Y > 0, Y < 0):  # from another origin, f is the same if both classes weigh the same
        alpha[:, side] /= alpha[:, side].sum(axis=1)[:, None]
    new = function(NEW, X) if name == "precomputed" else NEW
    if name == "precomputed" and normalize == "unit":
        with pytest.raises(ValueError, match="precomputed"):
            G.decision_function(alpha[0], new)
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


@pytest.mark.parametrize("name", ["linear", "rbf", "callable", "precomputed"])
def test_pairs_score_each_class(name):
    """f_c(x) = sum_i T_ci K(x_i, x) with the class weights T of the pairs."""
    for maker, make in makers(name).items():
        K = make(normalize=None)
        G = fm.pair_gram(K, CLASSES, 3, ridge=0.1)
        assert np.array_equal(G.labels, CLASSES) and G.kernel.name == name
        alpha = RNG.random((2, 60))
        T = np.zeros((2, 3, 30))
        for k, (i, j) in enumerate((i, j) for i in range(30) for j in range(3) if j != CLASSES[i]):
            T[:, CLASSES[i], i] += alpha[:, k]
            T[:, j, i] -= alpha[:, k]
        new = function(NEW, X) if name == "precomputed" else NEW
        scores = np.einsum("kci,mi->kmc", T, values(name, NEW, X, None, 0.0))
        found = G.decision_function(alpha, new)
        assert found.shape == (2, 7, 3), maker
        close = {"rtol": 0.0, "atol": 1e-11 * np.abs(scores).max()}
        np.testing.assert_allclose(found, scores, **close)
        np.testing.assert_allclose(G.decision_function(alpha[1], new), found[1], **close)


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


def test_scores_of_a_result_take_no_product(monkeypatch):
    """Its bias is known; that of other weights takes one."""
    G = fm.lazy_gram(X, Y, intercept="free")
    result = fm.max_margin(G)
    monkeypatch.setattr(fm.LazyGram, "_products", None)
    G.decision_function(result, NEW)
    with pytest.raises(TypeError):
        G.decision_function(result.alpha, NEW)


REPRESENTATIONS = {  # a name that repr shows, and a G
    "DenseGram": lambda: fm.gram(X, Y),
    "LazyGram": lambda: fm.lazy_gram(X, Y),
    "FeatureGram": lambda: fm.features(X, Y, intercept=2.0),
    "DenseGram, ridge": lambda: fm.gram(X, Y, ridge=0.5),
    "LazyGram, free": lambda: fm.lazy_gram(X, Y, intercept="free"),
    "FeatureGram, ridge and free": lambda: fm.features(
        X, Y, intercept="free", ridge=0.5, normalize=None
    ),
    "PairGram over DenseGram": lambda: fm.pair_gram(fm.gram(X), CLASSES, 3),
    "PairGram over FeatureGram, ridge": lambda: fm.pair_gram(fm.features(X), CLASSES, 3, ridge=1.0),
    "DenseGram, K": lambda: fm.gram(X),
}


@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_every_representation_is_an_object_of_python(kind):
    """len, @, asarray, repr on one line, pickle and copy."""
    G = REPRESENTATIONS[kind]()
    n = len(G)
    assert isinstance(G, fm.Gram) and G.n == n and G.d == 4
    matrix = np.asarray(G)
    assert matrix.shape == (n, n) and np.array_equal(matrix, matrix.T)
    v = RNG.normal(size=(n, 3))
    size = np.abs(matrix).max() * np.abs(v).sum()
    rounding = G.rounding().margins * size
    np.testing.assert_allclose(G @ v, matrix @ v, rtol=0, atol=rounding + 1e-12 * size)
    np.testing.assert_allclose(G @ v[:, 0], (G @ v)[:, 0], rtol=0, atol=1e-13 * size)
    with pytest.raises(ValueError, match="v must"):
        G @ v[1:]
    shown = repr(G)
    assert "\n" not in shown and len(shown) < 200
    assert kind.partition(",")[0] in shown
    assert ("ridge=" in shown) == ("ridge" in kind) and ("'free'" in shown) == ("free" in kind)
    assert repr(G.kernel) in shown
    for twin in (pickle.loads(pickle.dumps(G)), copy.copy(G), copy.deepcopy(G)):
        assert repr(twin) == shown
        assert np.array_equal(np.asarray(twin), matrix)
        assert np.array_equal(twin @ v, G @ v)


def test_what_g_is_shows():
    G = fm.features(X, Y, normalize=None, intercept="free", ridge=0.25)
    for part in ("FeatureGram", "ridge=0.25", "'free'", "linear", "30"):
        assert part in repr(G)
    assert "ridge=0.5 to 2" in repr(fm.FeatureGram(np.eye(3)).with_ridge([0.5, 1.0, 2.0]))
    assert "without labels" in repr(fm.gram(X)) and "without labels" not in repr(fm.gram(X, Y))
    assert "3 classes" in repr(fm.pair_gram(fm.gram(X), CLASSES, 3))


def test_the_matrix_is_held_and_not_copied():
    G = fm.gram(X, Y)
    assert np.shares_memory(np.asarray(G), G.matrix) and not np.asarray(G).flags.writeable
    assert not np.shares_memory(np.array(G), G.matrix)
    assert np.asarray(G, dtype=np.float32).dtype == np.float32
    plain = np.eye(3)
    assert np.shares_memory(fm.DenseGram(plain).matrix, plain) and plain.flags.writeable


def test_a_matrix_that_is_not_held_has_a_limit():
    """Above it the error has the bytes; nothing is evaluated."""
    G = fm.lazy_gram(np.arange(40_000.0)[:, None], kernel="linear", normalize=None)
    with pytest.raises(MemoryError, match="11.9 GB"):
        np.asarray(G)


def test_a_matrix_beyond_the_memory_is_refused_with_a_remedy():
    with pytest.raises(MemoryError, match="lazy_gram"):
        fm.gram(np.zeros((2_000_000, 1)), kernel="laplacian", gamma=1.0)


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


# --- K or G, never a guess --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in fm.ALGORITHMS if name != "winnow"])
def test_algorithms_refuse_a_matrix_without_labels(name):
    """A kernel matrix without labels has a margin of its own, which nobody asked for."""
    for K in (fm.gram(X), fm.lazy_gram(X), fm.features(X), fm.gram(X, ridge=1.0)):
        with pytest.raises(ValueError, match="(gram|lazy_gram|features)\\(X, y, ...\\)"):
            fm.ALGORITHMS[name](K)
        with pytest.raises(ValueError, match="y"):
            fm.certificate(K, np.ones(30), np.full(30, 1 / 30))


def test_signs_are_not_applied_twice():
    """pair_gram of a G that has labels was certified to have 0.3555 where the margin is 0.1099."""
    for G in (fm.gram(X, Y), fm.lazy_gram(X, Y), fm.features(X, Y), fm.gram(X, Y, ridge=1.0)):
        with pytest.raises(ValueError, match="pair_gram takes K"):
            fm.pair_gram(G, CLASSES, 3)
        with pytest.raises(ValueError, match="labels already"):
            G.signed(Y)


def test_plain_arrays_and_own_classes_are_taken_as_they_are():
    matrix = np.asarray(fm.gram(X, Y))
    by_array = fm.max_margin(matrix)
    for G in (fm.DenseGram(matrix), fm.gram(X, Y)):
        assert fm.max_margin(G).lower == by_array.lower
    K = np.asarray(fm.gram(X))
    pairs = fm.pair_gram(K, CLASSES, 3)
    assert np.array_equal(np.asarray(pairs), np.asarray(fm.pair_gram(fm.gram(X), CLASSES, 3)))


@pytest.mark.parametrize("maker", ["gram", "lazy_gram", "features", "ridge", "array"])
def test_many_labelings_of_one_kernel_matrix(maker, monkeypatch):
    """G of K has the bits of G made from the labels at once, and the kernel is not evaluated again."""
    make = {
        "gram": fm.gram,
        "lazy_gram": fm.lazy_gram,
        "features": fm.features,
        "ridge": lambda *a, **o: fm.gram(*a, ridge=0.5, **o),
        "array": lambda *a, **o: fm.DenseGram(np.asarray(fm.gram(*a, **o))),
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
    with pytest.raises(ValueError, match="y"):
        make(X).signed(Y[1:])


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
        with pytest.raises(ValueError, match="free"):
            fm.pair_gram(K, CLASSES, 3)
        with pytest.raises(ValueError, match="y"):
            fm.max_margin(K)


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
    fm.FeatureGram(X)
    fm.max_margin(X @ X.T + np.eye(30))
    assert not recwarn.list
    for make in (fm.gram, fm.lazy_gram, fm.features):
        with pytest.raises(ValueError, match="both classes"):
            make(X, np.ones(30), intercept="free")
        with pytest.raises(ValueError, match="both classes"):
            make(X, intercept="free").signed(np.ones(30))


# --- a class of one's own ---------------------------------------------------------------------------------


def test_four_things_are_enough_and_facts_are_optional():
    Z = Y[:, None] * X
    G = Own(Z)
    assert G.labels is None and G.kernel is None and len(G) == 30
    np.testing.assert_allclose(G @ np.ones(30), Z @ Z.sum(axis=0))
    np.testing.assert_allclose(np.asarray(G), Z @ Z.T)
    assert "Own" in repr(G) and "30 points" in repr(G)
    assert fm.momentum(G, max_iter=10).lower <= fm.momentum(fm.FeatureGram(Z), max_iter=10).upper
    with pytest.raises(TypeError, match="kernel"):
        G.decision_function(np.ones(30), NEW)
    ridged = Own(Z, Y).with_ridge(1.0)
    theirs = fm.features(X, Y, normalize=None, intercept="free", ridge=1.0)
    ours = fm.max_margin(ridged)
    result = fm.max_margin(theirs)
    assert ours.lower <= result.upper and result.lower <= ours.upper
    assert ours.status == result.status == "certified"


# --- the classifier ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", function, "precomputed"])
@pytest.mark.parametrize("labels", [Y, CLASSES], ids=["two classes", "three"])
def test_the_scores_of_the_classifier_are_those_of_g(kernel, labels):
    """The same function, up to a factor."""
    points = function(X, X) if kernel == "precomputed" else X
    new = function(NEW, X) if kernel == "precomputed" else NEW
    chosen = fm.MaxMarginClassifier(kernel, C=1.0).fit(points, labels)
    options = {"normalize": None, "kernel": kernel}
    if labels is Y:
        G = fm.gram(points, labels, **options, intercept="free", ridge=0.5)
    else:
        G = fm.pair_gram(fm.gram(points, **options, intercept=1.0), labels, 3, ridge=0.5)
    theirs = G.decision_function(chosen.result_, new)
    ours = chosen.decision_function(new)
    factor = (ours * theirs).sum() / (theirs * theirs).sum()
    np.testing.assert_allclose(ours, factor * theirs, atol=1e-6 * np.abs(ours).max())
    assert chosen.kernel_.name == G.kernel.name


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
