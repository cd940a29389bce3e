"""The classifier and the model tuple: what they find is what the functions find, without scikit-learn."""

import copy
import functools
import inspect
import math
import operator
import pickle
import re
import tracemalloc
import warnings
from fractions import Fraction

import exact
import numpy as np
import pytest
from instances import check_raises, meet, rotate, two_classes

import fastmargin as fm

# Where a tolerance is out of reach, by as much as it does not matter here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the margin is known to be .* as far as rounding"),
    pytest.mark.usefixtures("one_thread"),
]

RNG = np.random.default_rng(3)
X3 = np.vstack([RNG.normal(size=(25, 3)) + 6.0 * centre for centre in np.eye(3)])
Y3 = np.repeat(["a", "b", "c"], 25)
X2, Y2 = two_classes(60, 4, gap=4.0)
NEW = {4: RNG.normal(size=(40, 4)), 3: 3.0 * RNG.normal(size=(40, 3))}
KERNELS = {
    "linear": {},
    "poly": {"gamma": 0.5, "coef0": 0.5, "degree": 2},
    "rbf": {"gamma": 0.3},
    "rbf, sigma2": {"sigma2": 2.0},
    "rbf, scale": {},
    "laplacian": {"gamma": 0.2},
    "ntk": {},
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
every_normalize = pytest.mark.parametrize("normalize", ["unit", "max", None])
every_intercept = pytest.mark.parametrize("c", [0.0, 1.0, 2.5])


def of_kernel(kernel):
    return {"kernel": kernel.split(",")[0], **KERNELS[kernel]}


def classifier(c, C=math.inf, **options):
    return fm.MaxMarginClassifier(
        fit_intercept=c > 0.0, intercept_scaling=c or 1.0, C=C, loss="squared_hinge", **options
    )


# ======================================================================================================
# WHAT IS FOUND
# ======================================================================================================


@every_kernel
@every_normalize
@every_intercept
def test_two_classes_are_those_of_max_margin_and_decision_function(kernel, normalize, c):
    """The same interval as `max_margin`, scores in the proportion of `decision_function`, at least 1 in the right
    direction on the training points and 1 at the least."""
    options = of_kernel(kernel)
    chosen = classifier(c, normalize=normalize, **options).fit(X2, Y2)
    options.update(normalize=normalize, intercept=c)
    G = fm.gram(X2, Y2, **options)
    result = fm.max_margin(G, tol=1e-6)
    assert chosen.status_ == "certified"
    assert result.status == "certified"
    assert chosen.margin_ == chosen.interval_[0]
    assert meet(chosen.result_, result)
    scores = chosen.decision_function(NEW[4])
    theirs = G.decision_function(result, NEW[4])
    np.testing.assert_allclose(
        scores, theirs / (result.lower * result.upper), rtol=0, atol=1e-2 * np.abs(scores).max()
    )
    exact = chosen.result_.alpha / (chosen.result_.lower * chosen.result_.upper)
    theirs = G.decision_function(exact, NEW[4])
    np.testing.assert_allclose(scores, theirs, rtol=0, atol=1e-9 * np.abs(scores).max())
    assert (Y2 * chosen.decision_function(X2)).min() == pytest.approx(1.0, rel=1e-5)
    assert np.array_equal(chosen.predict(NEW[4]), np.where(scores > 0, 1, -1))
    assert chosen.score(X2, Y2) == 1.0


@every_kernel
@every_normalize
@every_intercept
def test_scores_are_what_the_attributes_say(kernel, normalize, c):
    """f(x) = sum_i dual_coef_i K(x_i, x) + intercept_, over sqrt(K(x, x) + c^2) under "unit"."""
    for X, y in ((X2, Y2), (X3, Y3)):
        options = of_kernel(kernel)
        chosen = classifier(c, normalize=normalize, **options).fit(X, y)
        new = NEW[X.shape[1]]
        if kernel == "rbf, scale":
            options["gamma"] = 1.0 / (X.shape[1] * X.var())
        sums = chosen.dual_coef_ @ fm.kernel_matrix(chosen.support_vectors_, new, **options)
        scores = (sums + chosen.intercept_[:, None]).T
        if normalize == "unit":
            scores /= np.sqrt(c * c + fm.kernel_matrix(new, new, **options).diagonal())[:, None]
        scores = scores[:, 0] if y is Y2 else scores
        np.testing.assert_allclose(
            chosen.decision_function(new), scores, rtol=0, atol=1e-10 * np.abs(scores).max()
        )
        assert np.array_equal(chosen.support_vectors_, X[chosen.support_])
        assert chosen.dual_coef_.any(axis=0).all()
        assert chosen.n_support_.tolist() == [
            np.sum(y[chosen.support_] == label) for label in chosen.classes_
        ]
        if kernel == "linear" and normalize != "unit":
            np.testing.assert_allclose(
                scores.T,
                (new @ chosen.coef_.T + chosen.intercept_).T.reshape(scores.T.shape),
                rtol=0,
                atol=1e-10 * np.abs(scores).max(),
            )


@pytest.mark.parametrize("normalize", ["max", None])
@pytest.mark.parametrize("offset", [300, 1999, 4321, 7000])
@pytest.mark.parametrize("c", [1.0, None])
def test_a_small_margin_is_that_of_the_coefficients(offset, normalize, c):
    """Of integers far from 0, by fractions: the dual coefficients are so large that their rounding would hide it."""
    X = offset + np.array([[0.0], [1.0], [2.0], [3.0]])
    sign = (-1, -1, 1, 1)
    chosen = fm.MaxMarginClassifier(
        "linear", normalize=normalize, intercept_scaling=c, C=math.inf
    ).fit(X, sign)
    w = Fraction(float(chosen.coef_[0, 0]))
    b = Fraction(float(chosen.intercept_[0]))
    least = min(s * (w * (offset + k) + b) for k, s in enumerate(sign))
    reach = math.hypot(offset + 3, c or 0.0)
    scale = 1.0 if normalize is None else reach
    rho = (
        0.5 / math.hypot(offset + 1.5, 1.0) / scale if c else 0.5 / scale
    )  # a free intercept has the half distance
    assert chosen.status_ == "certified"
    assert rho * (1 - 1e-12) <= chosen.interval_[1] <= rho * (1 + 1e-6)
    assert chosen.margin_ >= rho * (1 - 1e-6)
    assert float(least) == pytest.approx(1.0, rel=2e-6)
    assert float(least) / math.hypot(w, b if c else 0.0) / scale >= chosen.margin_ * (1 - 1e-10)


@pytest.mark.parametrize("offset", [100, 2000])
@pytest.mark.parametrize(
    "points, y",
    [([[0], [1], [2], [3], [4], [5]], [0, 0, 1, 1, 2, 2]), ([[0, 0], [1, 0], [0, 3]], [0, 1, 2])],
)
def test_small_margins_of_several_classes_are_those_of_the_coefficients(points, y, offset):
    X = offset + np.array(points)
    chosen = fm.MaxMarginClassifier("linear", C=math.inf).fit(X, y)
    rows = [[Fraction(int(v)) for v in x] + [Fraction(1)] for x in X]
    W = [
        [Fraction(float(v)) for v in row]
        for row in np.column_stack((chosen.coef_, chosen.intercept_))
    ]
    scores = [[sum(a * b for a, b in zip(w, x, strict=True)) for w in W] for x in rows]
    least = min(
        (row[i] - row[j]) / 2 for row, i in zip(scores, y, strict=True) for j in range(3) if j != i
    )
    length = math.sqrt(sum(v * v for w in W for v in w) / 2)
    assert float(least) == pytest.approx(1.0, rel=1e-6)
    assert float(least) / length >= chosen.margin_ * (1 - 1e-9) > 0.0


@every_kernel
@every_normalize
def test_classes_all_at_once_are_those_of_pair_gram(kernel, normalize):
    options = of_kernel(kernel)
    labels = np.unique(Y3, return_inverse=True)[1]
    chosen = fm.MaxMarginClassifier(normalize=normalize, C=math.inf, **options).fit(X3, Y3)
    options.update(normalize=normalize, intercept=1.0)
    G = fm.pair_gram(fm.gram(X3, **options), labels, 3)
    result = fm.max_margin(G, tol=1e-6)
    assert chosen.status_ == "certified"
    assert chosen.score(X3, Y3) == 1.0
    assert meet(chosen.result_, result)
    alpha = chosen.result_.alpha / (chosen.result_.lower * chosen.result_.upper)
    scores = chosen.decision_function(NEW[3])
    theirs = G.decision_function(alpha, NEW[3])
    np.testing.assert_allclose(scores, theirs, rtol=0, atol=1e-9 * np.abs(scores).max())
    assert np.array_equal(chosen.predict(NEW[3]), np.array(["a", "b", "c"])[scores.argmax(axis=1)])
    own = chosen.decision_function(X3)
    others = np.where(labels[:, None] == np.arange(3), -np.inf, own).max(axis=1)
    assert ((own[np.arange(75), labels] - others) / 2).min() == pytest.approx(1.0, rel=1e-5)


@every_normalize
def test_a_kernel_as_a_matrix_or_as_a_function_has_the_scores_of_its_name(normalize):
    by_name = fm.MaxMarginClassifier("rbf", gamma=0.3, normalize=normalize).fit(X2, Y2)
    function = functools.partial(fm.kernel_matrix, gamma=0.3)
    by_function = fm.MaxMarginClassifier(function, normalize=normalize).fit(X2, Y2)
    scores = by_name.decision_function(NEW[4])
    np.testing.assert_allclose(by_function.decision_function(NEW[4]), scores, rtol=0, atol=1e-3)
    by_matrix = fm.MaxMarginClassifier("precomputed", normalize=normalize)
    K = fm.kernel_matrix(X2, X2, gamma=0.3)
    new = fm.kernel_matrix(X2, NEW[4], gamma=0.3).T
    if normalize == "unit":
        check_raises(lambda: by_matrix.fit(K, Y2), ValueError, ["normalize"])
    else:
        np.testing.assert_allclose(
            by_matrix.fit(K, Y2).decision_function(new), scores, rtol=0, atol=1e-3
        )
        assert by_matrix.support_vectors_.shape == (0, 0)


def test_a_kernel_matrix_in_a_file_is_scaled_by_its_own_diagonal(tmp_path):
    """One of more rows than mapped points are read at a time: f was 3.5 times what it should be."""
    X, y = two_classes(1100, 3, gap=9.0)
    X *= np.linspace(0.2, 1.0, 1100)[:, None]
    K = X @ X.T
    np.save(tmp_path / "K.npy", K)
    chosen = fm.MaxMarginClassifier("precomputed", normalize="max", C=math.inf).fit(
        np.load(tmp_path / "K.npy", mmap_mode="r"), y
    )
    assert chosen.status_ == "certified"
    assert (y * chosen.decision_function(K)).min() == pytest.approx(1.0, rel=1e-5)


def test_many_points_need_no_matrix():
    n = 12_000
    y = np.repeat([0, 1], n // 2)
    X = np.random.default_rng(0).normal(size=(n, 2)) + 6.0 * y[:, None]
    chosen = fm.MaxMarginClassifier(gamma=0.1, tol=0.1)
    chosen.fit(X[::3], y[::3])  # compiles, which would take much longer while memory is traced
    tracemalloc.start()
    try:
        chosen.fit(X, y)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 0.5 * 8 * n * n
    assert chosen.status_ == "certified" and chosen.score(X[::50], y[::50]) == 1.0


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_where_a_bias_alone_is_optimal_f_is_constant_with_a_warning(kernel):
    """One point among its mirror images, which are of the other class."""
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]])
    y = np.array([0, 0, 0, 0, 1])
    if kernel == "rbf":  # all points are equal for it
        X = np.ones((5, 1))
    with pytest.warns(UserWarning, match="f is constant.*larger C"):
        chosen = fm.MaxMarginClassifier(kernel, gamma=1.0, C=1.0).fit(X, y)
    assert chosen.support_.size == 0 and (chosen.predict(X) == 0).all()
    assert np.ptp(chosen.decision_function(X)) == 0.0
    assert chosen.interval_[1] == pytest.approx(0.5, rel=1e-5)  # the objective is 2 C


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("tol", [1e-6, 1e-3])
@pytest.mark.parametrize("C", [1e-4, 1e-3, 1e-2, 0.1, 10.0])
def test_the_interval_is_that_of_the_classifier_itself(C, tol, loss):
    """For few points of a class and a small C, too, where the bias decides: the objective of f is what lower proves."""
    for seed in range(6):
        rng = np.random.default_rng([95, seed])
        y = np.where(rng.random(200) < 0.12, 1.0, -1.0)
        X = rng.normal(size=(200, 4)) + 0.7 * rng.normal(size=4) * (y[:, None] > 0)
        chosen = fm.MaxMarginClassifier("linear", C=C, tol=tol, loss=loss).fit(X, y)
        w = chosen.coef_[0]
        slacks = np.maximum(1.0 - y * chosen.decision_function(X), 0.0)
        losses = slacks if loss == "hinge" else slacks**2
        objective = 0.5 * w @ w + C * losses.sum()
        assert 1.0 / np.sqrt(2.0 * objective) >= chosen.interval_[0] * (1.0 - 1e-9)
        assert 1.0 / np.sqrt(2.0 * objective) <= chosen.interval_[1] * (1.0 + 1e-9)


def wide_column(seed, n, d):
    """Points of which one column is 1e5 to 1e7 times as wide as the others, and their labels."""
    rng = np.random.default_rng([98, seed, n])
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1, -1)
    X[:, 0] *= 10.0 ** rng.uniform(5, 7)
    return X, y


def excess_of(chosen, X, y, C):
    """How far SVC's objective is above its proven least value, in exact arithmetic; relative to this value."""
    w = list(map(Fraction, chosen.coef_[0].tolist()))
    b = Fraction(float(chosen.intercept_[0]))
    slacks = (
        1 - int(label) * (exact.dot(w, map(Fraction, row)) + b)
        for label, row in zip(y, X.tolist(), strict=True)
    )
    objective = exact.dot(w, w) / 2 + Fraction(C) * sum(slack for slack in slacks if slack > 0)
    return float(2 * objective * Fraction(chosen.interval_[1]) ** 2 - 1)


@pytest.mark.parametrize("n, d", [(20, 30), (150, 3), (60, 8)])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_wide_column_is_no_obstacle_and_the_model_is_what_was_certified(n, d, size):
    """Rounding alpha once more, or the weights of points instead of coordinates, would cost up to 100 %."""
    for seed in range(4):
        X, y = wide_column(seed, n, d)
        C = size * 1e10 / np.square(X).sum(axis=1).max()
        chosen = fm.MaxMarginClassifier("linear", C=C).fit(X, y)
        assert chosen.status_ == "certified" and chosen.support_.size
        last = chosen.result_.trace[-1]
        assert (last["lower"], last["upper"]) == chosen.interval_
        assert -1e-9 < excess_of(chosen, X, y, C) < 2.1e-6


def test_weights_that_rounding_brings_to_0_do_not_end_a_fit():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(20, 30))
    y = np.where(X[:, 0] + rng.normal(size=20) > 0, 1, -1)
    X[:, 0] *= 1e6
    chosen = fm.MaxMarginClassifier("linear", C=1e-3).fit(X, y)
    assert chosen.status_ == "certified" and excess_of(chosen, X, y, 1e-3) < 2.1e-6


@pytest.mark.parametrize("C", [1e-6, 1e-7])
def test_a_small_C_whose_weights_are_all_but_at_their_bounds_is_certified(C):
    """The slacks of the larger class differ by C alone, which single precision does not see."""
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1], [350, 200])
    X = rng.normal(size=(550, 10)) + y[:, None]
    chosen = fm.MaxMarginClassifier("linear", C=C).fit(X, y)
    assert chosen.status_ == "certified" and excess_of(chosen, X, y, C) < 2.1e-6


# ======================================================================================================
# WEIGHTS
# ======================================================================================================

TIMES = RNG.integers(0, 4, 80)
NOISY = RNG.normal(size=(80, 2))
NOISY_CLASSES = {
    2: np.where(NOISY[:, 0] + RNG.normal(size=80) > 0, "yes", "no"),
    3: np.array(["a", "b", "c"])[
        np.argmax(NOISY @ RNG.normal(size=(2, 3)) + RNG.normal(size=(80, 3)), axis=1)
    ],
}


@rotate(
    "kernel, options, count",
    ["linear", "rbf", "callable", "precomputed"],
    [{}, {"class_weight": "balanced"}],
    [2, 3],
    crossed=2,
)
def test_a_weight_of_k_is_a_point_that_occurs_k_times(kernel, options, count):
    """Or not at all: k = 0.  Support vectors have their numbers among all points that were given."""
    y = NOISY_CLASSES[count]
    often = np.repeat(np.arange(80), TIMES)
    K = functools.partial(fm.kernel_matrix, gamma=0.5)
    points, new = (
        (K(NOISY, NOISY), K(NEW[4][:, :2], NOISY))
        if kernel == "precomputed"
        else (NOISY, NEW[4][:, :2])
    )
    columns = often if kernel == "precomputed" else slice(None)
    plain, one, two = (
        fm.MaxMarginClassifier(
            K if kernel == "callable" else kernel,
            **{"C": 2.0, "gamma": 0.5, "tol": 1e-9, **options},
        )
        for _ in range(3)
    )
    one.fit(points, y, TIMES)
    two.fit(points[often][:, columns], y[often])
    ours = one.decision_function(new)
    theirs = two.decision_function(new[:, columns])
    assert one.status_ == two.status_ == "certified" and one.n_features_in_ == points.shape[1]
    assert meet(one.result_, two.result_)
    close = 1e-6 * np.abs(theirs).max()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=close)
    assert np.abs(plain.fit(points, y).decision_function(new) - ours).max() > 2 * close
    assert TIMES[one.support_].all()
    assert np.array_equal(
        one.support_vectors_, (points[:0, :0] if kernel == "precomputed" else points[one.support_])
    )


@pytest.mark.parametrize("C, is_weighted", [(0.1, False), (3.0, True), (100.0, False)])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_slacks_meet_the_conditions_of_the_soft_margin(kernel, C, is_weighted):
    """xi_i = max(0, 1 - y_i f(x_i)) is beta_i / (2 C w_i) for f = sum_i beta_i y_i K(x_i, .), w_i the weight of the
    point times that of its class, or 1 for a class without one, and beta is 0 where there is none, up to what the
    certified interval leaves."""
    y = NOISY_CLASSES[2]
    weights = RNG.uniform(0.01, 5.0, 80) if is_weighted else np.ones(80)
    share = 0.2 if is_weighted else 1.0
    chosen = fm.MaxMarginClassifier(
        kernel, gamma=2.0, C=C, class_weight={"yes": share}, tol=1e-8, loss="squared_hinge"
    )
    chosen.fit(NOISY, y, weights)
    sign = np.where(y == "yes", 1.0, -1.0)
    beta = np.zeros(80)
    beta[chosen.support_] = chosen.dual_coef_[0] * sign[chosen.support_]
    ridge = 0.5 / (C * weights * np.where(y == "yes", share, 1.0))
    m = sign * chosen.decision_function(NOISY)
    slack = np.maximum(0.0, 1.0 - m)
    objective = 0.5 * (beta @ m + slack @ (slack / ridge))
    errors = slack - ridge * beta
    gap = 0.5 * errors @ (errors / ridge) + beta @ np.maximum(0.0, m - 1.0)
    assert gap <= 4.0 * chosen.tol * objective
    assert (beta >= 0).all() and slack.max() > 0.1 and chosen.status_ == "certified"


def test_balanced_classes_weigh_alike():
    """By the weights of their points; whole-number labels are the dict's keys, whatever their type."""
    weights = RNG.uniform(0.5, 2.0, 80)
    labels = np.unique(NOISY_CLASSES[3], return_inverse=True)[1]
    shares = {c: weights.sum() / (3.0 * weights[labels == c].sum()) for c in range(3)}
    for X, kernel in ((NOISY, "rbf"), (NOISY, "linear")):
        fits = [
            fm.MaxMarginClassifier(kernel, C=1.0, gamma=0.5, class_weight=given).fit(X, y, weights)
            for given, y in (
                ("balanced", labels),
                (shares, labels),
                ({**shares, 9: 1.0}, labels.astype(float)),
            )
        ]
        of_points = weights * np.take(list(shares.values()), labels)
        fits.append(fm.MaxMarginClassifier(kernel, C=1.0, gamma=0.5).fit(X, labels, of_points))
        for other in fits[1:]:
            np.testing.assert_allclose(other.dual_coef_, fits[0].dual_coef_, rtol=1e-9)


@pytest.mark.parametrize("form", ["sparse", "mapped"])
def test_points_without_weight_are_left_out_of_every_form(form, tmp_path):
    X = X2.astype(np.float32)
    y = np.where(Y2 > 0, 1, 0)
    kept = RNG.random(60) < 0.5
    wanted = fm.MaxMarginClassifier("linear", C=1.0).fit(X[kept], y[kept])
    if form == "sparse":
        given = pytest.importorskip("scipy.sparse").csr_array(X)
    else:
        np.save(tmp_path / "X.npy", X)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    chosen = fm.MaxMarginClassifier("linear", C=1.0).fit(given, y, kept)
    np.testing.assert_allclose(chosen.coef_, wanted.coef_, rtol=1e-6)
    assert np.array_equal(chosen.support_, np.flatnonzero(kept)[wanted.support_])


def test_a_hard_margin_is_that_of_all_points_of_positive_weight():
    wanted = fm.MaxMarginClassifier(gamma=0.3, C=math.inf).fit(X2, Y2).decision_function(NEW[4])
    for class_weight in (None, "balanced", {1: 100.0}):
        chosen = fm.MaxMarginClassifier(gamma=0.3, class_weight=class_weight, C=math.inf).fit(
            X2, Y2, RNG.uniform(0.1, 9.0, 60)
        )
        assert np.array_equal(chosen.decision_function(NEW[4]), wanted)


def message_of(caught):
    """The one warning."""
    (only,) = caught
    return str(only.message)


def refused(X, y, weights=None, kernel="rbf", **options):
    """The points that an error names, in order: of a hard margin that does not exist, with a finite C that fits."""
    model = fm.MaxMarginClassifier(kernel, C=math.inf, **options)
    with pytest.raises(ValueError, match="give a finite C") as caught:
        model.fit(X, y, weights)
    assert not [name for name in vars(model) if name.endswith("_")]
    message = str(caught.value)
    C = float(re.search(r"\bC=([\d.e+-]*\d)", message)[1])
    assert model.set_params(C=C).fit(X, y, weights).status_ == "certified"
    return [int(k) for k in re.findall(r"(?<![\w.=+-])\d+(?!\w|\.\d)", message)]


def bounds(text):
    """The numbers with an exponent or decimals."""
    return [float(x) for x in re.findall(r"(?<![\w.=-])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)", text)]


def test_the_tangent_kernel_is_certified_for_many_points(monkeypatch):
    """Values on demand are off by 1e-7, and so are stored."""
    monkeypatch.setattr(fm, "_STORED_POINTS", 20)
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = fm.MaxMarginClassifier("ntk").fit(X, X[:, 0] * X[:, 1] > 0.0)
    assert model.status_ == "certified"


def test_points_of_a_witness_keep_their_numbers():
    X = np.array([[0.0], [5.0], [6.0], [1.0], [9.0], [1.0]])
    weights = np.array([0.0, 1.0, 0.5, 3.0, 1.0, 1.0])
    assert refused(X, [0, 0, 1, 0, 1, 1], weights, gamma=1.0) == [3, 5]
    X = [[0.0, 5.0], [0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    assert refused(X, [1, 1, 2, 1, 2], [0.0, 1.0, 1.0, 1.0, 1.0], "linear") == [1, 2, 3, 4]


# ======================================================================================================
# NO MARGIN
# ======================================================================================================


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("labels", [["u", "v"], ["u", "v", "w"]])
def test_contradictions_are_named(kernel, labels):
    rng = np.random.default_rng(0)
    y = np.array(labels)[rng.integers(0, len(labels), 40)]
    X = rng.normal(size=(40, 60)) + 3.0 * (y[:, None] == "u")
    one = np.flatnonzero(y == "u")[3]
    other = np.flatnonzero(y == "v")[2]
    X[other] = X[one]
    assert refused(X, y, kernel=kernel) == sorted([one, other])


def test_contradictions_that_rounding_hides_are_not_called_infeasible():
    """A matrix, whose entries are rounded, proves no data infeasible: the fit stays, with an interval that holds."""
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0], [3.0, 3.0]])
    with pytest.warns(UserWarning, match="a finite C") as caught:
        chosen = fm.MaxMarginClassifier("precomputed", C=math.inf).fit(
            fm.kernel_matrix(X, X), [0, 0, 1, 1, 0]
        )
    assert caught[0].filename == __file__
    assert chosen.status_ == "rounding" and chosen.margin_ <= 0.0 <= chosen.interval_[1] <= 1e-3
    assert np.isfinite(chosen.dual_coef_).all()


def test_a_few_points_without_a_margin_are_named():
    X = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    assert refused(X, [1, 1, 2, 2], kernel="linear") == [0, 1, 2, 3]
    assert refused([*X, [40.0, 40.0]], list("aabbc"), kernel="linear") == [0, 1, 2, 3]


@pytest.mark.parametrize("kernel, count", [("linear", 2), ("linear", 3), ("poly", 2)])
def test_one_point_without_a_margin_is_named(kernel, count):
    options = {"kernel": kernel, "coef0": 0.0, "degree": 1, "fit_intercept": False}
    X = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]
    assert refused(X, [0, 1, count - 1], **options) == [0]


@pytest.mark.parametrize("offset", [20_000, 10**6])
def test_only_equal_points_contradict_each_other(offset):
    """These are separated, by a margin of 0.5 / offset: rounding hides it from a kernel, but not from coordinates."""
    X = np.column_stack((offset + np.arange(4.0), np.ones(4)))
    rho = 0.5 / math.hypot(offset + 1.5, 1.0)
    with pytest.warns(UserWarning, match="rounding"):
        hidden = fm.MaxMarginClassifier("precomputed", fit_intercept=False, C=math.inf).fit(
            X @ X.T, [0, 0, 1, 1]
        )
    assert hidden.interval_[1] >= rho * (1 - 1e-12)
    chosen = fm.MaxMarginClassifier("linear", fit_intercept=False, C=math.inf).fit(X, [0, 0, 1, 1])
    assert chosen.interval_[0] <= rho * (1 + 1e-12) and rho * (1 - 1e-12) <= chosen.interval_[1]
    assert chosen.score(X, [0, 0, 1, 1]) == 1.0 and chosen.status_ == "certified"
    assert (
        fm.MaxMarginClassifier("linear", C=math.inf).fit(X, [0, 0, 1, 1]).score(X, [0, 0, 1, 1])
        == 1.0
    )


@pytest.mark.parametrize("C", [1e13, 2e13])
def test_a_weight_too_large_for_rounding_is_said_to_be_so(C):
    """A soft margin is positive for all data, though rounding may hide it."""
    X = np.arange(1000.0)[:, None] % 6
    y = RNG.integers(0, 2, 1000)
    with pytest.warns(UserWarning, match="a smaller C"):
        chosen = fm.MaxMarginClassifier(C=C, loss="squared_hinge").fit(X, y)
    assert chosen.interval_[0] <= 0.0 < chosen.interval_[1] and chosen.status_ == "rounding"


def test_many_points_are_counted():
    rng = np.random.default_rng(0)
    (count,) = refused(rng.normal(size=(200, 10)), rng.integers(0, 2, 200), kernel="linear")
    assert 10 <= count <= 12  # not more than coordinates and the bias ask for


@pytest.mark.parametrize("number", [3e-9, np.nextafter(3e-9, 1.0), 9.99e-4, 0.1, 0.2, 1.00001])
def test_a_result_shows_an_interval_that_holds(number):
    """As printed it holds, too: 0.2 as it is stored is above 0.2."""
    result = fm.max_margin(np.eye(2))
    for lower, upper in ((0.5 * number, number), (number, 2.0 * number)):
        below, above = bounds(repr(result._replace(lower=lower, upper=upper)))[:2]
        assert 0.99 * lower <= below <= lower and upper <= above <= 1.01 * upper
    above = bounds(repr(result._replace(lower=0.0, upper=number, status="infeasible")))[0]
    assert number <= above <= 2.0 * number


def test_too_few_iterations_are_a_warning(monkeypatch):
    """It has an interval that holds, and f is that of the weights found so far."""
    monkeypatch.setattr(fm, "max_margin", functools.partial(fm.max_margin, max_iter=0))
    with pytest.warns(UserWarning, match="after 0 iterations: give a smaller C") as caught:
        chosen = fm.MaxMarginClassifier(tol=1e-15).fit(X3, Y3)
    below, above, gap = bounds(message_of(caught))[:3]
    lower, upper = chosen.interval_
    assert below <= lower <= upper <= above
    assert gap == pytest.approx(1.0 - lower / upper, rel=0.1)
    assert chosen.status_ == "max_iter" and np.isfinite(chosen.decision_function(X3)).all()


@pytest.mark.parametrize("C", [np.inf, 1.0])
def test_what_rounding_hides_is_a_warning(C):
    """A short interval is told by its relative width, too."""
    model = fm.MaxMarginClassifier("precomputed", C=C, tol=1e-16)
    with pytest.warns(UserWarning, match=r"\btol\b") as caught:
        model.fit(fm.kernel_matrix(X2, X2), Y2)
    below, above, gap = bounds(message_of(caught))[:3]
    lower, upper = model.interval_
    assert below <= lower <= upper <= above
    assert gap == pytest.approx(1.0 - lower / upper, rel=0.1)
    assert model.status_ == "rounding" and model.margin_ > 0.0


@pytest.mark.parametrize("status", ["rounding", "max_iter"])
@pytest.mark.parametrize("factor", [1.5, 2.5])
def test_a_tolerance_missed_by_a_factor_below_two_is_no_warning(factor, status, monkeypatch):
    """A search over a grid would be full of them."""
    found = fm.max_margin

    def nearly(G, tol):
        result = found(G, tol=0.1 * tol)
        lower = result.upper * (1.0 - factor * tol)
        return result._replace(lower=lower, status=status)

    monkeypatch.setattr(fm, "max_margin", nearly)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = fm.MaxMarginClassifier().fit(X2, Y2)
    assert len(caught) == (factor > 2.0) and chosen.status_ == status


# ======================================================================================================
# INTERFACE
# ======================================================================================================


def exact_objective(model, X, y, weights):
    """||f||^2 / 2 + C sum_i w_i slack_i^2 of the fitted function, in rationals; for several classes that of pairs."""
    rows = [[Fraction(x) for x in row] for row in X.tolist()]
    W, b = (
        [[Fraction(x) for x in row] for row in np.atleast_2d(a).tolist()]
        for a in (model.coef_, model.intercept_)
    )
    classes = model.classes_.tolist()
    scores = [
        [sum(map(operator.mul, w, x)) + c for w, c in zip(W, b[0], strict=True)] for x in rows
    ]
    squares = sum(x * x for w in W for x in w)
    total = Fraction(0)
    if len(classes) == 2:
        margins = [
            [s[0] if label == classes[1] else -s[0]] for s, label in zip(scores, y, strict=True)
        ]
    else:
        margins = [
            [
                (s[classes.index(label)] - s[c]) / 2
                for c in range(len(classes))
                if classes[c] != label
            ]
            for s, label in zip(scores, y, strict=True)
        ]
        squares = (squares + sum(c * c for c in b[0])) / 2  # of the constant feature 1, too
    for point, weight in zip(margins, weights.tolist(), strict=True):
        total += Fraction(weight) * sum(max(Fraction(0), 1 - m) ** 2 for m in point)
    return squares / 2 + Fraction(model.C) * total


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_fitted_function_attains_what_is_certified(n_classes, seed):
    """Up to a C at which f is a sum of terms that cancel but for their last digits."""
    rng = np.random.default_rng(seed)
    for _ in range(25):
        n = int(rng.integers(n_classes, 9))
        X = rng.integers(-4, 5, (n, int(rng.integers(1, 4)))).astype(np.float64)
        X[0, 0] = 4.0
        y = rng.permutation(np.arange(n) % n_classes)
        weights = 10.0 ** rng.uniform(-6.0, 0.0, n) if rng.random() < 0.4 else np.ones(n)
        free = n_classes == 3 or rng.random() < 0.5
        C = float(10.0 ** rng.uniform(0.0, 13.0))
        model = fm.MaxMarginClassifier("linear", C=C, fit_intercept=free, loss="squared_hinge")
        model.fit(X, y, sample_weight=weights)
        if model.status_ == "certified":
            least = 1 / (2 * Fraction(model.interval_[1]) ** 2)
            assert exact_objective(model, X, y, weights) <= (1 + 3 * Fraction(model.tol)) * least


def test_a_large_C_on_two_points_has_the_known_minimum():
    """The minimum of w^2 / 2 + C ((1 + 3 w)^2 + (1 - 2 w)^2) tends to -1/13."""
    for C in (1e6, 1e10, 1e12, 1e13):
        model = fm.MaxMarginClassifier(
            "linear", C=C, fit_intercept=False, loss="squared_hinge"
        ).fit([[-3.0], [-2.0]], [1, 0])
        assert model.status_ == "certified" and abs(model.coef_[0, 0] * 13.0 + 1.0) < 1e-4


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
def test_the_scale_of_gamma_is_that_of_the_weighted_points(kernel):
    times = RNG.integers(0, 4, 60)
    gamma = 1.0 / (X2.shape[1] * np.repeat(X2, times, axis=0).var())
    scores = [
        fm.MaxMarginClassifier(kernel, gamma=given, C=1.0).fit(X2, Y2, times).decision_function(X2)
        for given in ("scale", gamma)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-8, atol=1e-8 * np.abs(scores[1]).max())


def test_parameters_are_read_and_set_by_name():
    weights = {"a": 2.0}
    chosen = fm.MaxMarginClassifier("ntk", C=2.0, class_weight=weights, loss="squared_hinge")
    assert chosen.get_params()["class_weight"] is weights
    assert chosen.set_params(C=3.0, kernel="rbf", gamma=0.5, class_weight=None) is chosen
    assert repr(chosen) == "MaxMarginClassifier(gamma=0.5, C=3.0, loss='squared_hinge')"
    assert repr(fm.MaxMarginClassifier(C=1.0, loss="hinge")) == "MaxMarginClassifier()"


def test_documented_parameters_are_those_of_the_signature():
    text = inspect.getdoc(fm.MaxMarginClassifier).split("----------\n")[1].split("\n\n")[0]
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    documented = [name for line in lines for name in line.partition(" : ")[0].strip().split(", ")]
    assert documented == list(fm.MaxMarginClassifier().get_params())


def test_warnings_point_at_the_line_of_the_caller():
    for call in (
        lambda: fm.MaxMarginClassifier(C=math.inf).fit(X2, Y2[:, None]),
        lambda: fm.MaxMarginClassifier("precomputed", C=math.inf).fit(np.ones((2, 2)), [0, 1]),
        lambda: fm.MaxMarginClassifier("precomputed", tol=1e-16, C=math.inf).fit(X2 @ X2.T, Y2),
    ):
        with pytest.warns(UserWarning) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


def test_copies_predict_the_same():
    for options in ({}, {"kernel": "linear"}, {"kernel": "ntk"}):
        chosen = fm.MaxMarginClassifier(**options).fit(X2, Y2)
        for twin in (pickle.loads(pickle.dumps(chosen)), copy.deepcopy(chosen)):
            assert np.array_equal(twin.decision_function(NEW[4]), chosen.decision_function(NEW[4]))


def made(kind, *arguments):
    return kind.__new__(kind, *arguments)


class Saved:
    """What another version saved: a class, its arguments and its state."""

    def __init__(self, *parts):
        self.parts = parts

    def __reduce__(self):
        kind, arguments, *state = self.parts
        return made, (kind, *arguments), *state


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_models_of_another_version_are_refused_with_both(kernel, monkeypatch):
    """Also where their parts are unknown by now; a model without a version is one of an earlier one."""
    own = fm.__version__
    model = fm.MaxMarginClassifier(kernel).fit(X2, Y2)
    for one in (model, fm.MaxMarginClassifier(kernel)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            saved = pickle.dumps(one, protocol)
            assert vars(pickle.loads(saved)).keys() == vars(one).keys()
            with monkeypatch.context() as patch:
                patch.setattr(fm, "__version__", "99.1.2")
                for name in ("Kernel", "_KernelScores", "_LinearScores", "Result"):
                    patch.delattr(fm, name)
                words = [own, "99.1.2", "fit it anew"]
                check_raises(lambda saved=saved: pickle.loads(saved), ValueError, words)
        earlier = pickle.dumps(Saved(fm.MaxMarginClassifier, (), vars(one)))
        words = ["stored no version", own, "fit it anew"]
        check_raises(lambda saved=earlier: pickle.loads(saved), ValueError, words)


def test_a_kernel_of_2_0_0_is_refused_as_one_of_another_version():
    """It had 12 fields, and is read before the state of its model is."""
    fields = ("rbf", 0.5, 1.0, 3, 4, 0.0, None, False, None, None, 2.0**-53, 0.0)
    saved = pickle.dumps(Saved(fm.MaxMarginClassifier, (), {"kernel_": Saved(fm.Kernel, fields)}))
    check_raises(lambda: pickle.loads(saved), ValueError, ["stored no version", "fit it anew"])


def test_what_is_missing_is_no_attribute():
    model = fm.MaxMarginClassifier().fit(X2, Y2)
    for name in ("predict_proba", "predict_log_proba", "coef_", "probability", "transform"):
        assert not hasattr(model, name) and not hasattr(fm.MaxMarginClassifier, name)
    assert hasattr(model.set_params(kernel="linear").fit(X2, Y2), "coef_")


def test_fitting_again_forgets_what_was():
    chosen = fm.MaxMarginClassifier("linear").fit(X2, Y2)
    again = chosen.set_params(kernel="rbf").fit(X3, Y3)
    fresh = fm.MaxMarginClassifier("rbf").fit(X3, Y3)
    assert again is chosen and set(vars(again)) == set(vars(fresh)) and again.n_features_in_ == 3


def test_a_fit_that_fails_leaves_nothing_of_the_one_before():
    chosen = fm.MaxMarginClassifier().fit(X2, Y2)
    with pytest.raises(ValueError):
        chosen.fit(X2, np.ones(len(Y2)))
    assert set(vars(chosen)) == set(chosen.get_params())


@pytest.mark.parametrize("label", [(0, 7), (True, False), (-1.0, 2.0), ("x", "yy"), (b"x", b"y")])
def test_labels_of_any_type_are_predicted_in_their_type(label):
    y = np.array(label)[(Y2 > 0).astype(int)]
    chosen = fm.MaxMarginClassifier().fit(X2, y)
    assert np.array_equal(chosen.predict(X2), y) and chosen.classes_.dtype == y.dtype
    assert chosen.score(X2, list(y)) == 1.0
    assert chosen.score(X2, y[::-1], sample_weight=y == y[::-1]) == 1.0


def test_lists_and_numbers_of_other_types_have_the_same_scores():
    X = np.round(4.0 * X2)
    scores = fm.MaxMarginClassifier().fit(X, Y2).decision_function(X[:5])
    for form in (
        X.tolist(),
        X.astype(np.int32),
        X.astype(np.float32),
        np.asfortranarray(X),
        X.astype(object),
    ):
        chosen = fm.MaxMarginClassifier().fit(form, Y2.tolist())
        assert np.array_equal(chosen.decision_function(form[:5]), scores)


def test_a_column_of_labels_is_taken_with_a_warning():
    with pytest.warns(UserWarning, match=r"\by\b"):
        assert fm.MaxMarginClassifier().fit(X2, Y2[:, None]).score(X2, Y2) == 1.0


def with_copies(rng, n_classes, is_sparse):
    """300 points of 40 distinct ones, labels that sometimes contradict, and weights."""
    distinct = rng.normal(size=(40, 3)) * (rng.random((40, 3)) < 0.7)
    which = rng.integers(40, size=300)
    X = distinct[which] * rng.choice([1.0, -0.0], size=(300, 3), p=[0.9, 0.1])
    y = (which + (rng.random(300) < 0.1)) % n_classes
    points = pytest.importorskip("scipy.sparse").csr_array(X) if is_sparse else X
    return X, points, y, rng.uniform(0.5, 2.0, 300)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kernel, n_classes", [("rbf", 2), ("linear", 2), ("rbf", 3)])
def test_copies_are_one_point_with_the_sum_of_their_weights(kernel, n_classes, is_sparse):
    """The function is optimal for all points as given, and the first of all copies in a class stands for them."""
    X, points, y, weights = with_copies(np.random.default_rng(0), n_classes, is_sparse)
    model = fm.MaxMarginClassifier(kernel, gamma=0.7, C=3.0, tol=1e-9, loss="squared_hinge")
    model.fit(points, y, sample_weight=weights)
    options = {"kernel": kernel, "normalize": None, **({"gamma": 0.7} if kernel == "rbf" else {})}
    ridge = np.repeat(1.0 / (6.0 * weights), n_classes - 1)
    if n_classes == 2:
        G = fm.gram(X, 2.0 * y - 1.0, intercept="free", ridge=ridge, **options)
    else:
        G = fm.pair_gram(fm.gram(X, intercept=1.0, **options), y, n_classes, ridge=ridge)
    of_all = fm.max_margin(G, tol=1e-9)
    assert model.interval_ == pytest.approx((of_all.lower, of_all.upper), rel=3e-9)
    rows = [(label, *row) for label, row in zip(y.tolist(), (X + 0.0).tolist(), strict=True)]
    first = [i for i, row in enumerate(rows) if rows.index(row) == i]
    assert model.result_.p.size == len(first) * (n_classes - 1)
    assert set(model.support_) <= set(first)
    coefficients = np.zeros((model.dual_coef_.shape[0], 300))
    coefficients[:, model.support_] = model.dual_coef_
    K = fm.kernel_matrix(X, X, **{key: options[key] for key in options if key != "normalize"})
    scores = coefficients @ K + model.intercept_[:, None]
    np.testing.assert_allclose(scores.T.squeeze(), model.decision_function(points), atol=1e-8)
    assert model.n_support_.tolist() == np.bincount(y[model.support_], minlength=n_classes).tolist()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_equal_points_are_those_of_equal_entries(is_sparse):
    """0 and -0 are equal; points of one sum are not, nor are copies in another class one point."""
    X = np.array([[1.0, 0.0], [1.0, -0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    X = np.vstack((X, X[3]))  # twice in either class
    y = np.array([0, 0, 1, 1, 1, 0, 1])
    points = pytest.importorskip("scipy.sparse").csr_array(X) if is_sparse else X
    model = fm.MaxMarginClassifier(C=1.0).fit(points, y)
    assert model.result_.p.size == 4 and model.support_.tolist() == [0, 2, 3, 5]
    assert fm.contradiction(points, y) == (0, 3)
    assert fm.contradiction(points[1:3], y[1:3]) is None


def test_copies_that_contradict_have_no_hard_margin():
    X, points, y, _ = with_copies(np.random.default_rng(0), 2, False)
    i, j = refused(points, y)
    assert np.array_equal(X[i], X[j]) and y[i] != y[j]
