"""What other packages say, each part skipped without its package: scikit-learn on ridge and intercept, SciPy's sparse
matrices and arrays and pandas' frames as points."""

import math
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
import warnings
from fractions import Fraction
from pathlib import Path

import exact
import numpy as np
import pytest
from instances import EPS, check_raises, meet, rotate, rows_of, same_result, threads, two_classes

import fastmargin as fm
from figures import studies

# Where a tolerance is out of reach, by as much as it does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore:the margin is known to be .* as far as rounding")

NORMALIZE = ["unit", "max", None]
all_normalize = pytest.mark.parametrize("normalize", NORMALIZE)


@pytest.fixture
def datasets():
    return pytest.importorskip("sklearn.datasets")


@pytest.fixture
def linear_svc():
    return pytest.importorskip("sklearn.svm").LinearSVC


def linear_models():
    from sklearn.linear_model import LogisticRegression, Perceptron
    from sklearn.svm import SVC, LinearSVC

    return (
        SVC(kernel="linear", C=1e10),
        LinearSVC(C=1e4, max_iter=100_000),
        LogisticRegression(C=1e6, max_iter=100_000),
        Perceptron(),
    )


@pytest.mark.parametrize("number", range(4))
def test_the_margin_that_a_model_of_scikit_learn_has(datasets, number):
    """In the lines of the manual; the model's own values say the same, to their digits."""
    X, kind = datasets.load_iris(return_X_y=True)
    y = np.where(kind == 0, 1, -1)
    model = linear_models()[number].fit(X, y)
    G = fm.features(X, y, normalize=None, intercept="free")
    margin, upper = fm.separator_margin(G, np.append(model.coef_, model.intercept_))
    best = fm.max_margin(G)
    own = (y * model.decision_function(X)).min() / np.linalg.norm(model.coef_)
    assert margin == pytest.approx(own, rel=1e-9)
    assert 0.1 * best.lower < margin <= upper <= best.upper * (1.0 + 1e-9)
    assert (margin > 0.999 * best.lower) == (number == 0)  # which is the one that maximises it


def first_example():
    """The points of the README, their labels, and G."""
    X = np.random.default_rng(0).normal(size=(500, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    return X, y, fm.gram(X, y, kernel="rbf", intercept="free")


def of_the_manual(row):
    """The numbers in the rows of the manual's table that match."""
    text = (Path(fm.__file__).parent / "figures" / "MANUAL.md").read_text(encoding="utf-8")
    return np.array(re.findall(row, text, re.MULTILINE), dtype=float)


SVC_ROW = r"^\|SVC.*?\|(0\.\d+) to (0\.\d+)\|"


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
def test_svc_on_the_first_example_of_the_readme(linear_svc, tol):
    """By its weights it has a margin that no surface has; what its surface has, by its own values, is less."""
    from sklearn.svm import SVC

    claims, holds = of_the_manual(SVC_ROW)
    X, y, G = first_example()
    upper = fm.max_margin(G, tol=1e-9).upper
    svc = SVC(C=1e10, gamma=G.kernel.gamma, tol=tol).fit(X, y)
    c, points = svc.dual_coef_[0], X[svc.support_]
    length = math.sqrt(c @ fm.kernel_matrix(points, points, gamma=G.kernel.gamma) @ c)
    rounding = 5.1e-9
    assert upper < claims[0] - rounding <= 1.0 / length <= claims[1] + rounding
    own = (y * svc.decision_function(X)).min() / length
    assert holds[0] - rounding <= own <= holds[1] + rounding
    assert 99.35 < 100.0 * own / upper < 99.45


def quadratic_program(K, y):
    """What PIQP finds for the a of least a'Ka / 2 - sum a, a >= 0, y'a = 0."""
    from piqp import DenseSolver

    n = len(y)
    solver = DenseSolver()
    solver.setup(K, np.full(n, -1.0), A=y[None].astype(float), b=np.zeros(1), x_l=np.zeros(n))
    solver.solve()
    return solver.result


@pytest.mark.parametrize("single", [False, True])
def test_the_cause_of_what_svc_loses_on_the_first_example_of_the_readme(single):
    """PIQP comes to the largest margin, and from kernel values in single precision to both numbers of SVC."""
    pytest.importorskip("piqp")
    X, y, G = first_example()
    K = np.asarray(fm.gram(X))
    seen = K.astype(np.float32).astype(np.float64) if single else K
    found = quadratic_program(seen * np.outer(y, y), y)
    c = y * np.maximum(found.x, 0.0)
    claim = 1.0 / math.sqrt(c @ K @ c)
    weights = np.append(c, found.y)
    margin, _ = fm.separator_margin(G, weights, support=np.arange(len(y)))
    upper = fm.max_margin(G, tol=1e-9).upper
    if single:
        for value, (least, most) in zip((claim, margin), of_the_manual(SVC_ROW), strict=True):
            assert least - 5.1e-9 <= value <= most + 5.1e-9
    else:
        assert [round(margin, 8)] == of_the_manual(r"^\|PIQP.*?\|(0\.\d+)\|")
        assert upper * (1.0 - 1e-6) < margin <= upper  # PIQP has a tolerance of its own


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_margin_that_a_support_vector_machine_has_by_its_kernel(linear_svc, kernel):
    from sklearn.svm import SVC

    X = np.random.default_rng(0).normal(size=(80, 2))
    X = X[np.abs(X[:, 0] * X[:, 1]) > 0.2]
    y = np.where(X[:, 0] * X[:, 1] > 0.0, 1, -1)
    parameters = {"gamma": 0.7, "coef0": 1.0, "degree": 2} if kernel == "poly" else {"gamma": 0.7}
    model = SVC(kernel=kernel, C=1e10, **parameters).fit(X, y)
    G = fm.gram(X, y, kernel=kernel, normalize=None, intercept="free", **parameters)
    weights = np.append(model.dual_coef_, model.intercept_)
    margin, upper = fm.separator_margin(G, weights, support=model.support_)
    K = fm.kernel_matrix(X[model.support_], X[model.support_], kernel=kernel, **parameters)
    length = math.sqrt(model.dual_coef_[0] @ K @ model.dual_coef_[0])
    assert margin == pytest.approx((y * model.decision_function(X)).min() / length, rel=1e-6)
    assert 0.9 * fm.max_margin(G).lower < margin <= fm.max_margin(G).upper


# ======================================================================================================
# RIDGE
# ======================================================================================================
#
# The soft-margin SVM with squared slacks, min ||w||^2 / 2 + C sum_i max(0, 1 - y_i <w, x_i>)^2, is the hard-margin
# problem of the rows (z_i, sqrt(r) e_i) with r = 1/(2C), for the separator (w, xi / sqrt(r)): G + r I.  So its optimum
# is 1/(2 rho^2), at w = sum_i beta_i y_i x_i and slacks xi = r beta, beta = p / rho^2 with p the dual optimum.


def standardised(X):
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)


def breast_cancer(datasets):
    X, label = datasets.load_breast_cancer(return_X_y=True)
    return standardised(X), 2 * label - 1


def digits(datasets):
    X, label = datasets.load_digits(return_X_y=True)
    chosen = np.isin(label, (3, 8))
    return X[chosen] / 16.0, np.where(label[chosen] == 8, 1, -1)


def wine(datasets):
    X, label = datasets.load_wine(return_X_y=True)
    return standardised(X[label < 2]), 2 * label[label < 2] - 1


every_set = pytest.mark.parametrize("load", [breast_cancer, digits, wine])


def objective(X, y, w, ridge):
    """||w||^2 / 2 + sum_i max(0, 1 - y_i <w, x_i>)^2 / (2r), exactly."""
    rows, unit = exact.integers(y[:, None] * X)
    weights, unit_of_w = exact.integers(w)
    d = len(weights)
    slacks = (
        1 - unit * unit_of_w * exact.dot(rows[i : i + d], weights) for i in range(0, len(rows), d)
    )
    hinge = sum(slack**2 for slack in slacks if slack > 0)
    return exact.dot(weights, weights) * unit_of_w**2 / 2 + hinge / (2 * Fraction(ridge))


def optimum_between(result):
    """(low, high), rationals, of 1/(2 rho^2)."""
    return 1 / (2 * Fraction(result.upper) ** 2), 1 / (2 * Fraction(result.lower) ** 2)


def off_the_minimum(value, low):
    """The most that a separator of this value is from the best: value - minimum >= ||w - best||^2 / 2."""
    return math.sqrt(2.0 * float(value - low))


def peer(linear_svc, X, y, ridge, weights=None, **options):
    """LIBLINEAR's solution.  It does not reach a tolerance of 1e-12: shrinking ends it far from the optimum."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where it has not converged
        return linear_svc(
            loss="squared_hinge",
            dual=True,
            tol=1e-10,
            max_iter=100_000,
            C=1.0 / (2.0 * ridge),
            random_state=0,
            **options,
        ).fit(X, y, sample_weight=weights)


@every_set
@pytest.mark.parametrize(
    "ridge, intercept", [(8.0, 0.0), (1.0, 0.0), (0.1, 0.0), (1.0, 1.0), (1.0, 0.125), (1.0, 10.0)]
)
def test_ridge_and_intercept_are_those_of_liblinear(load, ridge, intercept, datasets, linear_svc):
    """LinearSVC's objective and ours, in exact arithmetic, against the certified interval; the coefficients, of which
    that of a constant feature is part of the norm; scores."""
    X, y = load(datasets)
    G = fm.features(X, y, normalize=None, intercept=intercept, ridge=ridge)
    result = fm.max_margin(G, tol=1e-12)
    assert result.status == "certified"
    low, high = optimum_between(result)
    assert low <= high <= low * Fraction(1 + 3e-12)
    beta = result.p / (result.lower * result.upper)
    scaling = intercept or 1.0
    A = np.column_stack((X, np.full(len(X), intercept)))
    w = A.T @ (y * beta)
    theirs = peer(linear_svc, X, y, ridge, fit_intercept=intercept > 0, intercept_scaling=scaling)
    other = np.append(theirs.coef_[0], theirs.intercept_ / scaling)
    values = [objective(A, y, separator, ridge) for separator in (w, other)]
    assert low <= values[0] <= high
    assert low <= values[1] <= high * Fraction(1 + 1e-13)  # 4e-15 above low, at most, was seen
    close = sum(off_the_minimum(value, low) for value in values)
    assert np.linalg.norm(w - other) <= close
    slacks = np.maximum(0.0, 1.0 - y * (A @ w))
    # Half of it is a part of the gap.
    assert ((slacks - ridge * beta) ** 2).sum() / ridge <= 2.0 * float(high - low)
    new = X[::7] + 0.25
    lengths = np.hypot(np.linalg.norm(new, axis=1), intercept)
    scores = G.decision_function(beta, new)
    assert (np.abs(scores - theirs.decision_function(new)) <= lengths * close).all()


@all_normalize
@pytest.mark.parametrize("ridge", [1.0, 0.01])
def test_ridge_with_a_gaussian_kernel_meets_the_optimality_conditions(normalize, ridge, datasets):
    """y f + r beta = 1, or beta = 0 and y f > 1, up to what the interval leaves; scores know of no ridge."""
    X, y = wine(datasets)
    y[::9] *= -1  # label noise
    G = fm.gram(X, y, kernel="rbf", gamma=0.05, normalize=normalize, ridge=ridge)
    result = fm.max_margin(G, tol=1e-10)
    beta = result.p / (result.lower * result.upper)
    scores = G.decision_function(beta, X)
    plain = G @ beta - ridge * beta
    np.testing.assert_allclose(y * scores, plain, rtol=0, atol=1e-12)
    slacks = np.maximum(0.0, 1.0 - plain)
    objective = 0.5 * beta @ plain + (slacks**2).sum() / (2.0 * ridge)
    # What it is above the dual value of beta
    gap = ((slacks - ridge * beta) ** 2).sum() / (2.0 * ridge) + beta @ np.maximum(0.0, plain - 1.0)
    assert result.status == "certified" and beta.min() >= 0.0 and gap <= 4e-10 * objective
    assert objective == pytest.approx(0.5 / result.lower**2, rel=1e-9)


# ======================================================================================================
# INTERCEPT
# ======================================================================================================


@pytest.mark.parametrize("make", [fm.gram, fm.lazy_gram, fm.features])
@pytest.mark.parametrize("seed", range(4))
def test_plain_slacks_are_those_of_svc(make, seed, datasets):
    """Weights, bias and scores are SVC's; neither objective is below our least one, and SVC's is at it, to its digits:
    LIBSVM keeps its kernel in single precision."""
    rng = np.random.default_rng([90, seed])
    n = int(rng.integers(30, 300))
    X, kinds = datasets.make_classification(
        n, 4, n_redundant=0, flip_y=0.2, class_sep=0.5, random_state=seed
    )
    y = np.where(kinds == 1, 1, -1)
    C = 10.0 ** rng.uniform(-2, 1)
    weights = rng.uniform(1.0, 3.0, n) if seed % 2 else np.ones(n)
    options = {} if make is fm.features else {"kernel": "rbf", "gamma": 0.3}
    kernel = options or {"kernel": "linear"}
    svm = pytest.importorskip("sklearn.svm")
    svc = svm.SVC(C=C, tol=1e-10, **kernel).fit(X, y, sample_weight=weights)
    G = make(X, y, normalize=None, intercept="free", cost=C * weights, **options)
    result = fm.max_margin(G, tol=1e-9)
    assert result.status == "certified"
    assert np.all(result.alpha <= C * weights * (1.0 + 1e-3))
    theirs = np.append(svc.dual_coef_[0], svc.intercept_)
    low, high = fm.separator_margin(G, theirs, support=svc.support_)
    assert low <= result.upper and high > result.lower * (1.0 - 1e-5)
    if make is fm.features:
        ends = fm.separator_margin(G, np.append(svc.coef_, svc.intercept_))
        assert ends[0] <= high and low <= ends[1]
    f = G.decision_function(result, X)
    np.testing.assert_allclose(f, svc.decision_function(X), atol=1e-3)
    assert abs(result.bias - svc.intercept_[0]) < 1e-3
    by_weights = G.decision_function(result.alpha, X)
    np.testing.assert_allclose(by_weights, f, atol=1e-3)
    slacks = np.maximum(1.0 - y * svc.decision_function(X), 0.0)
    dual = np.zeros(n)
    dual[svc.support_] = svc.dual_coef_[0]
    norm2 = (y * dual) @ (G @ (y * dual))
    objective = 0.5 * norm2 + C * weights @ slacks
    assert 1.0 / np.sqrt(2.0 * objective) == pytest.approx(low, rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_the_classifier_with_plain_slacks_is_svc(seed, datasets):
    """The same coefficients, bias and scores, to the digits of LIBSVM, whose kernel is in single precision."""
    rng = np.random.default_rng([92, seed])
    kernel = ("linear", "rbf", "poly")[seed % 3]
    n = int(rng.integers(30, 300))
    X, y = datasets.make_classification(
        n, 4, n_redundant=0, flip_y=0.2, class_sep=0.5, random_state=seed
    )
    weights = rng.uniform(1.0, 3.0, n)
    C = 10.0 ** rng.uniform(-2, 1)
    options = {"C": C, "gamma": 0.3, "coef0": 1.0, "degree": 2, "class_weight": {0: 2.0}}
    ours = fm.MaxMarginClassifier(kernel, loss="hinge", tol=1e-9, **options)
    ours.fit(X, y, weights)
    svm = pytest.importorskip("sklearn.svm")
    tol = 1e-5 if kernel == "linear" else 1e-7  # LIBSVM takes minutes for less
    theirs = svm.SVC(kernel=kernel, tol=tol, **options).fit(X, y, weights)
    assert ours.status_ == "certified"
    scores = ours.decision_function(X)
    np.testing.assert_allclose(scores, theirs.decision_function(X), atol=1e-3)
    assert abs(ours.intercept_[0] - theirs.intercept_[0]) < 1e-3
    dual = np.zeros((2, n))
    dual[0, ours.support_] = ours.dual_coef_[0]
    dual[1, theirs.support_] = theirs.dual_coef_[0]
    if kernel == "linear":  # of few columns: many weights may give one plane
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    else:
        assert np.array_equal(ours.support_, np.sort(theirs.support_))
        np.testing.assert_allclose(*dual, atol=1e-3 * C)
    # The objective is at its least value, up to tol.
    slacks = np.maximum(1.0 - (2 * y - 1) * scores, 0.0)
    norm2 = dual[0] @ (scores - ours.intercept_[0])
    objective = 0.5 * norm2 + C * (weights * np.where(y == 0, 2.0, 1.0)) @ slacks
    lower, upper = ours.interval_
    assert lower * (1.0 - 1e-8) <= 1.0 / np.sqrt(2.0 * objective) <= upper * (1.0 + 1e-12)


@pytest.mark.parametrize("make", [fm.gram, fm.features])
def test_copies_of_points_are_one_point_with_the_sum_of_their_costs(make):
    rng = np.random.default_rng(91)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] + rng.normal(size=40) > 0.0, 1, -1)
    copies = rng.integers(1, 4, 40)
    index = np.repeat(np.arange(40), copies)
    options = {"gamma": 0.3} if make is fm.gram else {}
    for options["intercept"] in (0.0, 1.0, "free"):
        one = fm.max_margin(make(X, y, cost=0.3 * copies, **options), tol=1e-9)
        many = fm.max_margin(make(X[index], y[index], cost=0.3, **options), tol=1e-9)
        assert one.status == many.status == "certified"
        assert meet(one, many)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("offset", [0.0, 10.0, 100.0])
def test_a_free_bias_is_that_of_libsvm(kernel, offset, datasets):
    """Iris 0 vs 1: margin, plane and scores of SVC with a large C, wherever the origin is."""
    X, names = datasets.load_iris(return_X_y=True)
    X = X[:100]
    y = names[:100]
    options = {
        "rbf": {"gamma": 0.5},
        "poly": {"gamma": 1e-2, "coef0": 1.0, "degree": 2},
        "linear": {},
    }[kernel]
    X = X + (offset if kernel != "poly" else 0.0)
    ours = fm.MaxMarginClassifier(kernel, C=math.inf, tol=1e-8, **options).fit(X, y)
    theirs = (
        pytest.importorskip("sklearn.svm").SVC(kernel=kernel, C=1e10, tol=1e-9, **options).fit(X, y)
    )
    sign = np.where(y == 1, 1.0, -1.0)
    rate = (
        1e-6 if kernel != "linear" else 4e-3 if offset > 10.0 else 1e-3
    )  # of LIBSVM, which loses digits
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=20 * rate
    )
    assert (sign * ours.decision_function(X)).min() == pytest.approx(1.0, abs=1e-7)
    if kernel == "linear":
        assert ours.margin_ == pytest.approx(0.8175557692, rel=1e-8)
        assert (
            ours.margin_
            <= 1.0 / np.linalg.norm(ours.coef_) * (1 + 1e-9)
            <= ours.interval_[1] * (1 + 1e-8)
        )
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=rate)


@pytest.mark.parametrize("package", ["sklearn", "piqp"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_other_solvers_find_the_same_margin_by_our_certificate(package, kernel):
    pytest.importorskip(package)
    X, y = two_classes(60, 5, gap=4.0)
    G = studies.margin_gram(X, y, kernel)

    def gap(X, y):
        """That of G by the dual weights of these points, as heavy in both classes."""
        if package == "sklearn":
            weights = studies.dual_weights(studies.svc(X, y, kernel=kernel, gamma="auto"), len(y))
        else:
            scale = {"gamma": "auto"} if kernel == "rbf" else {}
            K = np.asarray(fm.gram(X, y, kernel=kernel, normalize="max", **scale))
            weights = np.maximum(quadratic_program(K, y).x, 0.0)
        for sign in (-1, 1):
            weights[G.labels == sign] /= weights[G.labels == sign].sum()
        return studies.dual_gap(G, weights)

    assert -1e-9 < gap(X, y) < 1e-5
    assert gap(X[::-1], y[::-1]) > 1e-3  # other points, other weights


INTERVALS = {"unit": 3.492334e-4, "max": 6.769682e-5, None: 1.392517e-3}  # of rho, with intercept=1


@all_normalize
def test_standardised_breast_cancer_data_need_an_intercept(normalize, datasets):
    """Once their mean is the origin no hyperplane through it separates them, and the witness proves it; with an
    intercept there is a margin.  As they come, only divided by their deviations, they have one without."""
    X, y = breast_cancer(datasets)
    without = fm.features(X, y, normalize=normalize)
    result = fm.max_margin(without)
    reach = math.sqrt(without.diagonal().max())
    assert result.status == "infeasible" and result.lower <= 0.0 and result.upper <= 1e-9 * reach
    G = fm.features(X, y, normalize=normalize, intercept=1.0)
    with_one = fm.max_margin(G)
    assert with_one.status == "certified"
    assert with_one.lower == pytest.approx(INTERVALS[normalize], rel=1e-5)
    assert (y * G.decision_function(with_one, X) > 0.0).all()
    raw = datasets.load_breast_cancer().data
    assert (
        fm.max_margin(fm.features(raw / raw.std(axis=0), y, normalize=normalize), tol=1e-6).status
        == "certified"
    )
    softened = fm.max_margin(fm.features(X, y, normalize=normalize, ridge=1.0))
    assert softened.status == "certified"


# ======================================================================================================
# SPARSE POINTS
# ======================================================================================================

FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
DTYPES = [np.float64, np.float32, np.int64, np.int8, np.uint16, np.bool_]


def holes(n=23, d=9, seed=0):
    """Small integers, two thirds of them zero, with an empty row and an empty column in the middle."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-9, 10, (n, d)) * (rng.random((n, d)) < 1 / 3)
    X[:, 0] = np.arange(n) % 4 + 1
    X[n // 2] = 0
    X[:, d // 2] = 0
    return X


LABELS = np.where(np.arange(23) % 3 == 1, -1, 1)


def parts(S):
    """All that a sparse matrix holds, copied, to the bit."""
    if S.format == "dok":
        return S.shape, S.dtype, list(S.items())
    names = ("data", "indices", "indptr", "row", "col", "rows", "offsets")
    arrays = [(name, np.asarray(getattr(S, name))) for name in names if hasattr(S, name)]
    return (
        S.shape,
        S.dtype,
        [(name, a.dtype, a.tolist() if a.dtype == object else a.tobytes()) for name, a in arrays],
    )


def same_products(G, F):
    """A sparse G against features of the same points: sizes, operations and methods, to rounding."""
    n = len(F)
    assert (G.n, G.d) == (F.n, F.d)
    close = {"rtol": 0, "atol": 8 * n * EPS * F.scale}
    np.testing.assert_allclose(G.diagonal(), F.diagonal(), rtol=(4 + math.sqrt(F.d)) * EPS)
    np.testing.assert_allclose(G.dense(), F.dense(), **close)
    np.testing.assert_allclose(
        G.coordinates(), F.coordinates(), rtol=0, atol=8 * EPS * math.sqrt(F.scale)
    )
    index = np.array([n - 1, 0, n // 2])
    np.testing.assert_allclose(G.restrict(index).dense(), F.restrict(index).dense(), **close)
    V = rows_of(n, 2, 1)
    v = np.ascontiguousarray(V[:, 0])
    share = v / np.abs(v).sum()
    outputs = []
    for H in (G, F):
        m = np.full(n, np.nan)
        column = np.zeros(n)
        fm.product(H, v, m)
        fm.add_column(H, n // 3, 0.5, column)
        size, precise, _ = H._measured(share, precise=True)
        parts = m, column, (H @ V).ravel(), precise, [size]
        outputs.append(np.concatenate(parts) / F.scale)
    np.testing.assert_allclose(*outputs, rtol=0, atol=40 * n * EPS)


def check_sparse(S, y=LABELS, **options):
    """As X.toarray(), and S is left as it was, with no memory in common."""
    before = parts(S)
    X = S.toarray()
    for normalize in ("max", None):
        G = fm.features(S, y, normalize=normalize, **options)
        assert parts(S) == before
        same_products(G, fm.features(X, y, normalize=normalize, **options))
        for name in ("data", "indices", "indptr", "row", "col"):
            own = getattr(S, name, None)
            if isinstance(own, np.ndarray) and own.dtype != object:
                assert not any(np.shares_memory(own, part) for part in G.store.arrays[:3])


@pytest.mark.parametrize("container", ["matrix", "array"])
@pytest.mark.parametrize("kind", FORMATS)
def test_sparse_points_of_every_format_are_those_of_arrays(kind, container, sp):
    for dtype in DTYPES:
        X = holes()
        X = (np.abs(X) if dtype in (np.uint16, np.bool_) else X).astype(dtype)
        S = getattr(sp, f"{kind}_{container}")(X)
        assert S.dtype == dtype and S.format == kind
        check_sparse(S)
    check_sparse(getattr(sp, f"{kind}_{container}")(holes() / 7.0), intercept=0.5)


@pytest.mark.parametrize("kind", ["bsr", "coo", "csc", "csr"])
def test_sparse_indices_may_have_64_bits(kind, sp):
    S = getattr(sp, f"{kind}_array")(holes() / 7.0)
    if kind == "coo":
        S.coords = tuple(index.astype(np.int64) for index in S.coords)
    else:
        S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    assert all(
        index.dtype == np.int64 for index in (S.coords if kind == "coo" else (S.indices, S.indptr))
    )
    check_sparse(S)
    check_sparse(S, intercept=2.0)
    G = fm.features(S, LABELS, normalize="max")
    F = fm.features(S.toarray(), LABELS, normalize="max")
    one = fm.momentum(G, max_iter=50)
    two = fm.momentum(F, max_iter=50)
    np.testing.assert_allclose(one.alpha, two.alpha, rtol=1e-9, atol=1e-12)
    assert fm.momentum(
        fm.features(sp.csr_array(S), LABELS, normalize="max"), max_iter=50
    ).lower == pytest.approx(one.lower, abs=1e-12)


def test_sparse_entries_may_be_out_of_order_repeated_or_zero(sp):
    """Indices in any order, entries given twice, stored zeros, entries that cancel, and room that is not used."""
    rng = np.random.default_rng(4)
    row = rng.integers(0, 23, 90)
    column = rng.integers(0, 9, 90)
    value = rng.integers(-3, 4, 90) / 4.0  # some of them zero; their sums are exact
    twice = sp.coo_array(
        (
            np.r_[value, value[:40], -value[50:60]],
            (np.r_[row, row[:40], row[50:60]], np.r_[column, column[:40], column[50:60]]),
        ),
        shape=(23, 9),
    )
    assert (np.unique(9 * twice.row + twice.col).size < twice.nnz) and (twice.data == 0.0).any()
    check_sparse(twice)
    order = np.argsort(twice.row, kind="stable")
    starts = np.searchsorted(twice.row[order], np.arange(24))
    for index in (np.int32, np.int64):
        csr = sp.csr_array((23, 9))
        csr.data = np.r_[
            twice.data[order], np.full(5, np.nan)
        ]  # beyond the last row nothing is read
        csr.indices = np.r_[twice.col[order], np.full(5, 99)].astype(index)
        csr.indptr = starts.astype(index)
        assert not csr.has_sorted_indices and not csr.has_canonical_format
        np.testing.assert_array_equal(csr.toarray(), twice.toarray())
        check_sparse(csr)
    csc = sp.csc_array(twice)
    csc.indices = csc.indices[::-1].copy()  # another matrix, whose columns are not in order
    csc.data[::3] = 0.0
    csc.has_sorted_indices = False
    check_sparse(csc)


@pytest.mark.parametrize("n, d", [(1, 1), (1, 5), (5, 1), (700, 3), (3, 700)])
def test_sparse_points_of_any_shape_are_those_of_arrays(n, d, sp):
    X = rows_of(n, d, n) * (np.random.default_rng(d).random((n, d)) < 0.5)
    X[0, 0] = 1.0
    check_sparse(sp.csr_array(X), None)
    check_sparse(sp.coo_matrix(X), None, intercept=3.0)


def test_sparse_products_in_parts_have_the_bits_of_one_thread(sp):
    """Beyond 2^18 entries these are shared among threads; rows of all lengths, and the same bits on one thread."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 400)) * (rng.random((900, 400)) < np.linspace(1.0, 0.6, 900)[:, None])
    X[100:130] = 0.0
    S = sp.csr_array(X)
    y = np.where(rng.random(900) < 0.5, 1, -1)
    assert S.nnz > 1 << 18
    check_sparse(S, y)
    G = fm.features(S, y, normalize="max", ridge=0.5)
    results = []
    for count in (1, 2):
        with threads(count):
            results.append(fm.momentum(G, max_iter=20))
    same_result(*results)
    plain = fm.momentum(fm.features(X, y, normalize="max", ridge=0.5), max_iter=20)
    assert (results[0].lower, results[0].upper) == pytest.approx(
        (plain.lower, plain.upper), rel=1e-9
    )


@pytest.mark.filterwarnings("ignore:all labels")
def test_sparse_points_that_are_all_zero_have_the_margin_of_arrays(sp):
    """As of dense ones: with an intercept a margin is defined."""
    Z = np.zeros((4, 3))
    for X in (Z, sp.csr_array(Z)):
        result = fm.max_margin(fm.features(X, np.ones(4), normalize=None, intercept=2.0))
        assert result.lower <= 2.0 <= result.upper <= 2.0 * (1.0 + 1e-9)


def scattered(n, d, share, seed=0):
    """Rows of small integers, most of them 0, none empty."""
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 6, (n, d)) * (rng.random((n, d)) < share).astype(np.float64)
    X[np.arange(n), rng.integers(0, d, n)] = 1.0
    return X


@pytest.mark.parametrize("share", [0.005, 0.3])
@pytest.mark.parametrize(
    "kernel, params",
    [
        ("linear", {}),
        ("poly", {"degree": 2}),
        ("rbf", {}),
        ("rbf", {"gamma": 1e9}),
        ("laplacian", {"gamma": 0.1}),
        ("ntk", {}),
    ],
)
def test_kernels_of_sparse_points_are_those_of_dense_ones(kernel, params, share, sp):
    """Few entries or many, and gammas at which inner products would cancel; points and new points, sparse or dense."""
    X = scattered(70, 400, share)
    new = scattered(9, 400, share, 1)
    y = np.repeat([1, -1], 35)
    S = sp.csr_array(X)
    options = {"kernel": kernel, **params}
    dense = fm.gram(X, y, **options)
    G = fm.gram(sp.coo_matrix(X), y, **options)
    np.testing.assert_allclose(G, dense, rtol=1e-12, atol=1e-13)
    lazy = fm.lazy_gram(S, y, **options)
    other = fm.lazy_gram(X, y, **options)
    np.testing.assert_allclose(lazy.dense(), dense, rtol=1e-12, atol=1e-13)
    v = np.cos(np.arange(70))
    m = lazy @ v
    column = np.zeros(70)
    fm.add_column(lazy, 3, 1.0, column)
    np.testing.assert_allclose(m, dense @ v, rtol=0, atol=1e-12)
    np.testing.assert_allclose(column, np.asarray(dense)[3], rtol=1e-12, atol=1e-13)
    assert lazy.rounding().margins <= other.rounding().margins
    K = fm.kernel_matrix(X, new, **options)
    scores = dense.decision_function(v, new)
    for B in (new, sp.csc_array(new)):
        for A in (X, S):
            np.testing.assert_allclose(fm.kernel_matrix(A, B, **options), K, rtol=1e-12, atol=1e-13)
        for H in (dense, G, lazy, other):
            np.testing.assert_allclose(H.decision_function(v, B), scores, rtol=0, atol=1e-11)


def test_sparse_points_far_from_the_origin_of_free_planes(sp):
    X = scattered(40, 30, 0.2)
    y = np.repeat([1, -1], 20)
    X[:, 0] += 1e9
    for make in (fm.gram, fm.lazy_gram):
        options = {"kernel": "linear", "normalize": None, "intercept": "free", "ridge": 0.5}
        dense, sparse = (
            fm.max_margin(make(Z, y, **options), tol=1e-9) for Z in (X, sp.csr_array(X))
        )
        assert sparse.status == "certified" and meet(sparse, dense)


@pytest.mark.parametrize("C", [np.inf, 1.0])
@pytest.mark.parametrize("far", [False, True])
def test_sparse_columns_of_any_unit_and_origin_are_certified_as_dense_ones(C, far, sp):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) * [1e4, 1e-4, 1.0, 1.0, 1.0]
    y = X @ [1e-4, 1e4, 0.3, -0.5, 1.0] > 0.0
    if far:
        X = np.column_stack((np.round(X[:, 2:] * 64.0) + [1e15, 0.0, 0.0], X[:, 1]))
        y = X[:, :3] @ [1.0, 0.3, -0.5] > 1e15
    chosen = []
    for points in (X, sp.csr_array(X)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            chosen.append(fm.MaxMarginClassifier("linear", C=C).fit(points, y))
    dense, sparse = chosen
    assert dense.status_ == sparse.status_ == "certified"
    assert meet(sparse.result_, dense.result_)
    new = np.vstack((X, np.zeros(X.shape[1])))  # a far column of new points may have zeros
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(new)),
        dense.decision_function(new),
        rtol=1e-3,
        atol=0.0,
    )
    if C == np.inf:
        assert sparse.score(sp.csr_array(X), y) == 1.0


def test_wide_sparse_points_are_never_made_dense(sp):
    """A million columns: 600 rows of them would take 4.8 GB."""
    rng = np.random.default_rng(0)
    S = sp.random_array((600, 10**6), density=5e-5, format="csr", rng=rng)
    y = np.where(np.asarray(S.sum(axis=1)).ravel() > np.median(np.asarray(S.sum(axis=1))), 1, 0)
    for kernel in ("rbf", "poly"):
        tracemalloc.start()
        chosen = fm.MaxMarginClassifier(kernel, C=1.0).fit(S, y)
        chosen.predict(S[:50])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert chosen.status_ == "certified" and peak < 2e8 and sp.issparse(chosen.support_vectors_)


def test_raw_columns_of_breast_cancer_have_the_margin_that_the_readme_names(datasets):
    X, y = datasets.load_breast_cancer(return_X_y=True)
    chosen = fm.MaxMarginClassifier("linear", C=math.inf).fit(X, y)
    assert chosen.status_ == "certified"
    assert f"{chosen.margin_:.4e}" == "4.1371e-05"
    assert chosen.score(X, y) == 1.0


@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_sparse_points_that_are_all_equal_have_a_scale(gamma, sp):
    for X in (np.zeros((4, 3)), np.eye(3)[[0, 0, 1, 1]]):
        options = {"normalize": None, "gamma": gamma}
        np.testing.assert_allclose(
            fm.gram(sp.csr_array(X), **options), fm.gram(X, **options), rtol=1e-14
        )


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("offset", [0.0, 2.0**39])
def test_gamma_of_sparse_points_is_that_of_dense_ones(offset, share, sp):
    rng = np.random.default_rng(0)
    X = (offset + rng.integers(1, 9, (30, 3))) * (rng.random((30, 3)) <= share)
    y = np.repeat([0, 1], 15)
    weights = rng.random(30)
    dense, sparse = (
        fm.MaxMarginClassifier("rbf", C=1.0, loss="squared_hinge").fit(points, y, weights)
        for points in (X, sp.csr_array(X))
    )
    want = dense.decision_function(X)
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(X)), want, rtol=1e-6, atol=1e-6 * np.abs(want).max()
    )


def test_sparse_signed_rows_are_told_who_takes_them(sp):
    Z = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    with pytest.warns(UserWarning, match="have their signs already"):
        G = fm.features(sp.csr_array(Z), np.ones(3), normalize=None)
    assert np.array_equal(G.dense(), fm.features(Z, 1, normalize=None).dense())


# ======================================================================================================
# PANDAS
# ======================================================================================================

FRAME_LABELS = np.array([1, -1, 1, -1])
TAKERS = {  # everything that takes points, and what an error calls them
    "features": (lambda X: fm.features(X, FRAME_LABELS, normalize=None).coordinates(), "X"),
    "gram": (lambda X: fm.gram(X, FRAME_LABELS, kernel="poly"), "X"),
    "lazy_gram": (lambda X: fm.lazy_gram(X, FRAME_LABELS), "X"),
    "kernel_matrix, A": (lambda X: fm.kernel_matrix(X, np.ones((2, X.shape[1]))), "A"),
    "kernel_matrix, B": (lambda X: fm.kernel_matrix(np.eye(X.shape[1]), X), "B"),
    **{
        f"{make.__name__}, Xnew": (
            lambda X, make=make: make(1.0 + np.eye(2, X.shape[1])).decision_function(
                [1.0, -1.0], X
            ),
            "Xnew",
        )
        for make in (fm.features, fm.gram, fm.lazy_gram)
    },
    "winnow": (lambda X: fm.winnow(X, eta=0.1, max_iter=3).alpha, "Z"),
}
every_taker = pytest.mark.parametrize("taker", TAKERS)


def frame(pd, **columns):
    """Two columns of floats, labelled rows, and other columns."""
    return pd.DataFrame(
        {"height": [0.5, -1.0, 2.0, 1.5], "width": [1.0, 3.0, -2.0, 0.25], **columns},
        index=["p", "q", "r", "s"],
    )


GOOD_COLUMNS = {
    "float32": lambda pd: np.float32([1, 2, 3, 4]),
    "int64": lambda pd: np.array([1, 2, 3, 4]),
    "uint8": lambda pd: np.array([1, 2, 3, 4], dtype=np.uint8),
    "bool": lambda pd: np.array([True, False, True, True]),
    "Int64": lambda pd: pd.array([1, 2, 3, 4], dtype="Int64"),
    "UInt8": lambda pd: pd.array([1, 2, 3, 4], dtype="UInt8"),
    "Float64": lambda pd: pd.array([1.5, 2, 3, 4], dtype="Float64"),
    "boolean": lambda pd: pd.array([True, False, True, True], dtype="boolean"),
    "Sparse": lambda pd: pd.arrays.SparseArray([0.0, 1.0, 0.0, 2.0]),
}


@every_taker
def test_frames_of_any_numeric_type_are_their_numbers(taker, pd):
    """Every numeric type by itself beside floats, and all of them together; the frame is left alone."""
    call, _ = TAKERS[taker]
    columns = {name: make(pd) for name, make in GOOD_COLUMNS.items()}
    for some in ({}, *({name: column} for name, column in columns.items()), columns):
        X = frame(pd, **some)
        plain = np.column_stack([np.asarray(X[name], dtype=np.float64) for name in X])
        before = X.copy(deep=True)
        assert np.array_equal(call(X), call(plain)), list(some)
        pd.testing.assert_frame_equal(X, before)


def test_names_of_columns_are_no_obstacle(pd):
    """Numbers, pairs, and the same name twice are no obstacle."""
    values = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]])
    want = fm.features(values, [1, -1]).coordinates()
    levels = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    for names in ([0, 1, 2], ["a", "a", "b"], [None, 1, "x"], levels):
        X = pd.DataFrame(values, columns=names)
        assert np.array_equal(fm.features(X, [1, -1]).coordinates(), want)
        mixed = pd.concat([X.iloc[:, :2], X.iloc[:, 2:].astype(int)], axis=1)
        assert np.array_equal(fm.features(mixed, [1, -1]).coordinates(), want)
        flags = pd.concat([X.iloc[:, 1:], X.iloc[:, :1].astype(bool)], axis=1)
        assert np.array_equal(
            fm.features(flags, [1, -1]).coordinates(),
            fm.features(values[:, [1, 2, 0]], [1, -1]).coordinates(),
        )


NAMES = {  # three names of columns in fit, and another one
    "text": (["a", "b", "c"], "z"),
    "default": ([0, 1, 2], 9),
    "numbers": ([3, 7, 5], 9),
    "pairs": ([("a", "p"), ("a", "q"), ("b", "p")], ("z", "z")),
}


def in_columns(pd, names):
    """Two points in a frame, of which columns must not be crossed."""
    columns = pd.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else names
    return pd.DataFrame([[0.0, 1.0, 2.0], [3.0, 4.0, -5.0]], columns=columns)


@pytest.mark.parametrize("kind", NAMES)
def test_other_columns_than_in_fit_are_refused_with_a_remedy(kind, pd):
    """With the names that are unseen or missing, of any type; an array has no names."""
    (first, second, third), new = NAMES[kind]
    X = in_columns(pd, NAMES[kind][0])
    model = fm.MaxMarginClassifier("linear").fit(X, [0, 1])
    for known in (X, X.to_numpy()):
        assert model.predict(known).tolist() == [0, 1]
    wider = X.copy()
    wider[new] = 0.0
    for other, words in (
        (X[[third, second, first]], "must be in the same order"),
        (wider[[new, third, first, second]], f"unseen at fit time:\n- {new}\n"),
    ):
        with pytest.raises(ValueError, match="should match those that were passed") as caught:
            model.predict(other)
        message = str(caught.value)
        names = {"model": model, "X": other, "X_of_fit": X}
        assert words in message
        assert model.predict(eval(message.rpartition("give ")[2], names)).tolist() == [0, 1]
    for other, words in (
        (wider[[new, second, third]], [f"unseen at fit time:\n- {new}", f"missing:\n- {first}"]),
        (X[[first, second]], [f"missing:\n- {third}", "X.rename", "X.to_numpy()"]),
    ):
        check_raises(lambda other=other: model.score(other, [0, 1]), ValueError, words)


def test_many_other_columns_are_not_all_listed(pd):
    X = pd.DataFrame(np.eye(9), columns=list("abcdefghi"))
    model = fm.MaxMarginClassifier().fit(X, [0, 1, 0, 1, 0, 1, 0, 1, 0])
    with pytest.raises(ValueError, match=r"unseen at fit time:\n(- \w{2}\n){5}- \.\.\.\n"):
        model.predict(X.add_suffix("2"))


def test_columns_with_names_of_several_types_are_refused_with_a_remedy(pd):
    X = in_columns(pd, ["a", "b", 0])
    for call in (
        lambda X: fm.MaxMarginClassifier("linear").fit(X, [0, 1]),
        lambda X: fm.MaxMarginClassifier("linear").fit(X.to_numpy(), [0, 1]).predict(X),
    ):
        with pytest.raises(TypeError, match=r"\['int', 'str'\]") as caught:
            call(X)
        names = {"X": X.copy()}
        exec(str(caught.value).rpartition("make all of them text, ")[2], names)
        call(names["X"])


@pytest.mark.parametrize("one, other", [("text", "default"), ("numbers", "text")])
def test_names_that_cannot_be_compared_are_a_warning(one, other, pd):
    X = in_columns(pd, NAMES[one][0])
    model = fm.MaxMarginClassifier("linear").fit(X, [0, 1])
    with pytest.warns(UserWarning, match="feature names.*X.to_numpy()") as caught:
        assert model.predict(X.set_axis(NAMES[other][0], axis=1)).tolist() == [0, 1]
    assert [warning.filename for warning in caught] == [__file__]


def test_names_of_columns_are_checked_as_scikit_learn_checks_them(pd, sklearn):
    from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

    check_dataframe_column_names_consistency("classifier", fm.MaxMarginClassifier(C=1.0))


def test_series_are_taken_as_labels_and_weights(pd):
    X = frame(pd)
    y = FRAME_LABELS
    want = fm.features(X.to_numpy(), y).coordinates()
    for dtype in ("int64", "int8", "float64", "Int64", "Float64"):
        s = pd.Series(y, index=X.index, name="label").astype(dtype)
        before = s.copy(deep=True)
        assert np.array_equal(fm.features(X, s).coordinates(), want)
        one = fm.gram(X, s)
        two = fm.gram(X.to_numpy(), y)
        assert np.array_equal(one, two) and np.array_equal(fm.gram(X).signed(s), two)
        assert np.array_equal(one.decision_function(s, X), two.decision_function(y, X.to_numpy()))
        pd.testing.assert_series_equal(s, before)
    G = pd.DataFrame(np.asarray(fm.gram(X, y)), index=X.index, columns=X.index)
    assert fm.max_margin(G).lower == fm.max_margin(fm.gram(X, y)).lower


# ======================================================================================================
# CLASSIFIER
# ======================================================================================================


@pytest.fixture
def sklearn():
    return pytest.importorskip("sklearn")


def iris(datasets):
    X, label = datasets.load_iris(return_X_y=True)
    return standardised(X[label != 1]), label[label != 1] - 1


def linnerud(datasets):
    """Exercises against physiology: whether a person is heavier than the median, from chin-ups, sit-ups and jumps."""
    X, weight = datasets.load_linnerud(return_X_y=True)
    return standardised(X), np.where(weight[:, 0] > np.median(weight[:, 0]), 1, -1)


FIVE_SETS = [breast_cancer, digits, wine, iris, linnerud]
five_sets = pytest.mark.parametrize("load", FIVE_SETS)
HARD = {"C": 1e10, "tol": 1e-10}


CHECKS = """
import warnings
import fastmargin as fm
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator

warnings.simplefilter("ignore")
warnings.simplefilter("error", SkipTestWarning)
check_estimator(fm.MaxMarginClassifier())
check_estimator(fm.MaxMarginClassifier("linear", loss="squared_hinge"))
"""


def test_a_compiled_kernel_of_scikit_learn_is_taken_as_a_callable(sklearn):
    """It takes no read-only points."""
    from sklearn.metrics.pairwise import chi2_kernel

    X = np.abs(np.random.default_rng(0).normal(size=(60, 5)))
    y = np.repeat([0, 1], 30)
    G = fm.gram(X, 2.0 * y - 1.0, kernel=chi2_kernel)
    np.testing.assert_allclose(
        G, np.outer(2.0 * y - 1.0, 2.0 * y - 1.0) * chi2_kernel(X), rtol=1e-12
    )
    chosen = fm.MaxMarginClassifier(chi2_kernel, C=math.inf).fit(X, y)
    assert chosen.status_ == "certified" and chosen.score(X, y) == 1.0


def test_checks_of_scikit_learn_pass_but_one_of_hard_margins(sklearn):
    """Its `check_estimator`, where one that skips itself fails; one does, unless SciPy was started so."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKS],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
    )
    assert done.returncode == 0, f"{done.stdout[-200:]} {done.stderr[-2000:]}"


@five_sets
@pytest.mark.parametrize("C, c", [(0.1, 8.0), (10.0, 0.0), (10.0, 1.0)])
def test_soft_margins_are_those_of_linear_svc(load, C, c, datasets, linear_svc):
    """The same problem, with and without intercept: coefficients, scores, predictions."""
    X, y = load(datasets)
    ours = fm.MaxMarginClassifier(
        "linear",
        C=C,
        fit_intercept=c > 0,
        intercept_scaling=c or 1.0,
        tol=1e-12,
        loss="squared_hinge",
    ).fit(X, y)
    theirs = peer(linear_svc, X, y, 0.5 / C, fit_intercept=c > 0, intercept_scaling=c or 1.0)
    size = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6 * size)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-6 * size)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    assert ours.coef_.shape == theirs.coef_.shape


@rotate(
    "load, class_weight, weighted",
    FIVE_SETS,
    [None, "balanced", {-1: 0.3, 1: 5.0}, {1: 0.02}],
    [False, True],
    crossed=2,
)
def test_weighted_margins_are_those_of_linear_svc(
    load, class_weight, weighted, datasets, linear_svc
):
    """Weights of points and of classes, some of them 0."""
    X, y = load(datasets)
    weights = (
        np.round(np.random.default_rng(len(X)).exponential(size=len(X)), 1) if weighted else None
    )
    ours = fm.MaxMarginClassifier(
        "linear",
        C=0.5,
        class_weight=class_weight,
        intercept_scaling=1.0,
        tol=1e-12,
        loss="squared_hinge",
    )
    ours.fit(X, y, weights)
    if (
        class_weight == "balanced"
    ):  # older releases of scikit-learn count points there, where newer ones add weights
        counts = {
            label: np.sum(np.ones(len(y)) if weights is None else weights, where=y == label)
            for label in set(y)
        }
        class_weight = {
            label: sum(counts.values()) / (len(counts) * count) for label, count in counts.items()
        }
    theirs = peer(linear_svc, X, y, 1.0, weights, class_weight=class_weight)
    size = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-6 * size)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-6 * size)


def test_boosting_takes_the_classifier_as_it_takes_linear_svc(datasets, linear_svc):
    """AdaBoost, by weights of points, which sum to 1: each predictor is LinearSVC's; others go on while they help."""
    from sklearn.ensemble import AdaBoostClassifier

    def boosted(model):
        return AdaBoostClassifier(model, n_estimators=40, random_state=0).fit(X, y)

    X, y = datasets.make_moons(200, noise=0.3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ours = boosted(
            fm.MaxMarginClassifier(
                "linear", C=10.0, intercept_scaling=1.0, tol=1e-10, loss="squared_hinge"
            )
        )
        theirs = boosted(linear_svc(C=10.0, dual=True, tol=1e-9, max_iter=10**6))
        assert len(ours.estimators_) == len(theirs.estimators_) >= 2
        for one, two in zip(ours.estimators_, theirs.estimators_, strict=True):
            np.testing.assert_allclose(
                one.coef_, two.coef_, rtol=0, atol=1e-6 * np.abs(two.coef_).max()
            )
        for options in ({"kernel": "rbf", "C": 1e4}, {"kernel": "poly", "C": 200.0}):
            many = boosted(fm.MaxMarginClassifier(loss="squared_hinge", **options))
            assert len(many.estimators_) >= 5 and many.score(X, y) >= 0.9


@five_sets
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "rbf"},
        {"kernel": "rbf", "gamma": 0.5},
        {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0},
    ],
)
def test_hard_margins_are_those_of_svc(load, options, datasets):
    """Neither penalises its bias.  Scores are of the same scale."""
    svm = pytest.importorskip("sklearn.svm")
    X, y = load(datasets)
    theirs = svm.SVC(**options, **HARD).fit(X, y)
    ours = fm.MaxMarginClassifier(C=math.inf, **options).fit(X, y)
    new = np.vstack([X, X[::-1] + 0.25 * X.std()])
    scores = theirs.decision_function(new)
    np.testing.assert_allclose(
        ours.decision_function(new), scores, rtol=0, atol=2e-4 * np.abs(scores).max()
    )
    sure = np.abs(scores) > 4e-4 * np.abs(scores).max()
    assert np.array_equal(ours.predict(new)[sure], theirs.predict(new)[sure])
    assert ours.status_ == "certified"


@pytest.mark.parametrize(
    "name, least", [("load_digits", 0.98), ("load_breast_cancer", 0.95), ("load_wine", 0.95)]
)
def test_in_the_place_of_svc_in_a_pipeline(name, least, datasets, sklearn):
    """All classes; string labels, frames, the tools around an estimator."""
    from sklearn.base import clone, is_classifier
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = getattr(datasets, name)()
    y = np.array([f"class {label}" for label in data.target])
    X, Xnew, y, ynew = train_test_split(data.data, y, test_size=0.3, random_state=0, stratify=y)
    chosen = make_pipeline(
        StandardScaler(), fm.MaxMarginClassifier(C=10.0, loss="squared_hinge")
    ).set_output(transform="default")
    assert is_classifier(chosen[-1]) and chosen.fit(X, y).score(Xnew, ynew) >= least
    assert np.array_equal(pickle.loads(pickle.dumps(chosen)).predict(Xnew), chosen.predict(Xnew))
    assert clone(chosen).get_params()["maxmarginclassifier__C"] == 10.0
    grid = {"maxmarginclassifier__C": [0.01, 10.0], "maxmarginclassifier__gamma": ["scale", 10.0]}
    search = GridSearchCV(chosen, grid, cv=3, error_score="raise").fit(X[:300], y[:300])
    assert search.best_params_["maxmarginclassifier__gamma"] == "scale"
    assert cross_val_score(chosen, X, y, cv=3, error_score="raise").min() >= least - 0.05
    sure = CalibratedClassifierCV(chosen, cv=3).fit(X, y).predict_proba(Xnew)
    np.testing.assert_allclose(sure.sum(axis=1), 1.0)
    assert "MaxMarginClassifier" in repr(chosen) and chosen._repr_html_()


def test_names_of_columns_pass_through_a_pipeline(pd, datasets, sklearn):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = datasets.load_wine(as_frame=True)
    chosen = make_pipeline(StandardScaler(), fm.MaxMarginClassifier()).set_output(
        transform="pandas"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen.fit(data.data, data.target).score(data.data, data.target) == 1.0
    assert list(chosen[-1].feature_names_in_) == list(data.data.columns)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_sparse_points_are_classified_as_dense_ones(kernel, sp, datasets):
    data = datasets.load_digits()
    X = data.data / 16.0
    y = data.target
    dense_one = fm.MaxMarginClassifier(kernel, C=math.inf).fit(X[:300], y[:300])
    for make in (sp.csr_matrix, sp.csc_array):
        chosen = fm.MaxMarginClassifier(kernel, C=math.inf).fit(make(X[:300]), y[:300])
        np.testing.assert_allclose(
            chosen.decision_function(make(X[300:])),
            dense_one.decision_function(X[300:]),
            rtol=0,
            atol=1e-4,
        )
        assert sp.issparse(chosen.support_vectors_) == (kernel in ("linear", "poly", "rbf"))
        for normalize in ("unit", "max"):
            few = fm.MaxMarginClassifier(kernel, normalize=normalize, C=math.inf).fit(
                make(X[:99]), y[:99]
            )
            assert few.score(X[:99], y[:99]) == 1.0


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
@pytest.mark.parametrize("normalize", ["unit", "max", None])
def test_sparse_points_of_narrow_numbers_do_not_overflow(dtype, normalize, sp, datasets):
    X, y = datasets.load_digits(return_X_y=True)
    X = 7.0 * X[:200]  # up to 112, of which the squares do not fit into a byte
    chosen = fm.MaxMarginClassifier("linear", normalize=normalize, C=math.inf).fit(
        sp.csr_matrix(X.astype(dtype)), y[:200]
    )
    dense_one = fm.MaxMarginClassifier("linear", normalize=normalize, C=math.inf).fit(X, y[:200])
    np.testing.assert_allclose(
        chosen.decision_function(sp.csr_array(X.astype(dtype))),
        dense_one.decision_function(X),
        rtol=0,
        atol=1e-4,
    )
    assert chosen.score(X, y[:200]) == 1.0


def test_sparse_contradictions_are_named(sp):
    X = sp.csr_matrix(np.array([[0.0, 1.0], [2.0, 0.0], [2.0, 0.0]]))
    with pytest.raises(ValueError, match=r"\b1\b.*\b2\b.*\bcontradict"):
        fm.MaxMarginClassifier("linear", C=math.inf).fit(X, [0, 0, 1])


def test_a_kernel_matrix_is_cut_by_rows_and_columns(sklearn, datasets):
    """In cross-validation, which the tag `pairwise` asks for."""
    from sklearn.model_selection import cross_val_score

    X, y = wine(datasets)
    by_name = cross_val_score(fm.MaxMarginClassifier(gamma=0.1, C=1.0), X, y, cv=4)
    K = fm.kernel_matrix(X, X, gamma=0.1)
    by_matrix = cross_val_score(fm.MaxMarginClassifier("precomputed", C=1.0), K, y, cv=4)
    assert np.array_equal(by_name, by_matrix)


def test_errors_and_warnings_are_those_of_scikit_learn_where_it_is_loaded(sklearn):
    from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

    X, y = two_classes(30, 2, gap=4.0)
    with pytest.raises(NotFittedError):
        fm.MaxMarginClassifier().predict(X)
    with pytest.warns(DataConversionWarning):
        fm.MaxMarginClassifier().fit(X, y[:, None])
    with pytest.warns(ConvergenceWarning):
        fm.MaxMarginClassifier("precomputed", tol=1e-16).fit(X @ X.T, y)
