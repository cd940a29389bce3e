"""Tables as they come: unscaled columns, far origins, outliers, weights over many orders.  The right value of each."""

import math
import re
import warnings
from fractions import Fraction

import exact
import numpy as np
import pytest
from instances import check_raises, free, in_file, meet, pair_rows, threads

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")

FAR = (0.0, 1e3, 1e7, 1e9, 1e12)


def fitted(X, y, weights=None, loss="squared_hinge", **options):
    """A classifier that was fitted without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return fm.MaxMarginClassifier(loss=loss, **options).fit(X, y, weights)


# ======================================================================================================
# FAR ORIGINS
# ======================================================================================================


@pytest.mark.parametrize("offset", FAR)
def test_a_constant_column_far_from_0_changes_no_margin(offset):
    """Four points on a line: the hard margin is 1/2, the soft one sqrt(1/2) at C = 1, wherever the origin is."""
    X = np.column_stack((np.arange(4.0), np.full(4, offset)))
    y = [0, 0, 1, 1]
    for C, rho in ((np.inf, 0.5), (1.0, np.sqrt(0.5))):
        chosen = fitted(X, y, kernel="linear", C=C)
        assert chosen.status_ == "certified" and chosen.score(X, y) == 1.0
        assert chosen.interval_[0] <= rho <= chosen.interval_[1]
        np.testing.assert_allclose(
            X @ chosen.coef_[0] + chosen.intercept_[0],
            chosen.decision_function(X),
            atol=1e-15 * (1.0 + offset),
        )


def representations(X, y):
    """A free intercept in all that take linear points."""
    options = {"normalize": None, "intercept": "free"}
    yield fm.features(X, y, **options)
    yield fm.gram(X, y, kernel="linear", **options)
    yield fm.lazy_gram(X, y, kernel="linear", **options)
    yield fm.features(X, y, ridge=1e-12, **options)


def test_far_points_lose_no_digits():
    """Small integers + 2^50: differences are exact, and so are margins, in every representation."""
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1], 6)
    X = rng.integers(-9, 10, (12, 2)).astype(np.float64)
    X[:6, 0] += 23.0
    halves = [
        [int(a - b) for a, b in zip(X[i], X[j], strict=True)]
        for i in range(6)
        for j in range(6, 12)
    ]
    square = exact.margin_squared(exact.of_rows(halves)) / 4
    for offset in (0.0, 2.0**20, 2.0**40, 2.0**48):
        for G in representations(X + offset, y):
            result = fm.max_margin(G, tol=1e-9)
            assert result.status == "certified"
            assert exact.holds(square, result.lower, result.upper)
            assert fm.momentum(G, tol=1e-2, max_iter=20_000).status == "certified"


def test_the_origin_is_subtracted_exactly():
    """Differences of the rows that are kept are those of the points, to the last bit, and far columns become small."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 4)) * 10.0 ** np.arange(-2.0, 2.0) + np.array([0.0, 1e6, -1e9, 3.0])
    y = np.repeat([1.0, -1.0], 15)
    rows = y[:, None] * fm.features(X, y, normalize=None, intercept="free").coordinates()
    assert np.array_equal(rows[:, 0], X[:, 0])
    for column, moved in zip(X.T.tolist(), rows.T.tolist(), strict=True):
        for x, m in zip(column, moved, strict=True):
            assert Fraction(x) - Fraction(column[0]) == Fraction(m) - Fraction(moved[0])
    assert (np.abs(rows) <= 4.0 * np.ptp(X, axis=0)).all()


# ======================================================================================================
# COLUMNS IN DIFFERENT UNITS
# ======================================================================================================


def exact_square(X, y, C, free):
    """rho^2 of points of rationals, with slacks of weight C."""
    rows = [[int(s) * Fraction(x) for x in row] for s, row in zip(y, X.tolist(), strict=True)]
    G = [[exact.dot(row, other) for other in rows] for row in rows]
    if C < np.inf:
        for i in range(len(G)):
            G[i][i] += 1 / (2 * Fraction(C))
    return exact.margin_squared(exact.gram_of(G, tuple(y.tolist()) if free else ()))


def in_units(seed, low, high, n=9):
    """Small integers in columns whose units are far apart, two classes that a plane with a bias separates or not."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-9, 10, (n, 3)).astype(np.float64)
    y = np.where(X @ rng.integers(1, 5, 3) + rng.integers(-3, 4, n) * (seed % 2) > 0, 1, -1)
    y[:2] = 1, -1
    return X * 2.0 ** rng.integers(low, high, 3), y


@pytest.mark.parametrize("C", [1.0, 2.0**20, np.inf])
@pytest.mark.parametrize("units", [(-12, 13), (-20, 30)])
@pytest.mark.parametrize("seed", range(8))
def test_the_interval_of_columns_in_different_units_holds_in_exact_arithmetic(seed, units, C):
    """And it is narrow where units are up to seven decades apart."""
    X, y = in_units(seed, *units)
    scale = (X**2).sum(axis=1).max()
    if C < np.inf and scale * C > 5e15:
        words = [f"C={C:g} must be from", "C=inf"]
        check_raises(
            lambda: fm.MaxMarginClassifier("linear", C=C, loss="squared_hinge").fit(X, y),
            ValueError,
            words,
        )
        return
    square = exact_square(X, y, C, free=True)
    chosen = fm.MaxMarginClassifier("linear", C=C, loss="squared_hinge")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen.fit(X, y)
    except ValueError as error:
        above = re.search(r"a margin above (\S+):", str(error))[1]
        assert C == np.inf and square <= Fraction(float(above)) ** 2
        assert square == 0 or units != (-12, 13)
        return
    assert exact.holds(square, *chosen.interval_)
    if square > 0 and units == (-12, 13):
        assert chosen.status_ == "certified"


@pytest.mark.parametrize("seed", range(12))
def test_the_margin_of_a_separator_and_its_slacks_holds_in_exact_arithmetic(seed):
    """1 / sqrt(||w||^2 + sum_i xi_i^2 / r_i) for integers w and b, of either sign and any scale."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-9, 10, (7, 2))
    y = np.append([1, -1], rng.choice([-1, 1], 5))
    ridge = 2.0 ** rng.integers(-30, 30, 7)
    G = fm.features(X, y, normalize=None, intercept="free", ridge=ridge)
    w = rng.integers(1, 9, 2)
    b = int(rng.integers(-9, 10))
    scale = 2.0 ** rng.integers(-8, 4)
    slacks = [
        max(0, 1 - Fraction(scale) * int(s) * (int(x @ w) + b)) for s, x in zip(y, X, strict=True)
    ]
    terms = [xi**2 / Fraction(r) for xi, r in zip(slacks, ridge, strict=True)]
    square = 1 / (Fraction(scale) ** 2 * int(w @ w) + sum(terms))
    lower, upper = fm.separator_margin(G, scale * np.append(w, b))
    assert exact.holds(square, lower, upper) and upper - lower <= 1e-14 * upper
    assert lower <= fm.max_margin(G).upper


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("exponent", [-330, -200, 200, 330])
def test_the_margin_of_a_separator_of_any_size_that_is_taken_holds(exponent):
    """Without a ridge its size does not matter; with one, the slacks are those of exact arithmetic."""
    X = np.array([[1.0, 2.0], [-3.0, 1.0], [2.0, -1.0]])
    y = [1, -1, 1]
    w = np.array([3.0, -1.0, 2.0])
    tiny_or_huge = np.ldexp(w, exponent)
    for intercept, size in ((0.0, 2), (1.0, 3), ("free", 2), ("free", 3)):
        G = fm.features(X, y, normalize=None, intercept=intercept)
        lower, upper = fm.separator_margin(G, tiny_or_huge[:size])
        assert fm.separator_margin(G, w[:size]) == pytest.approx((lower, upper), rel=1e-14)
    G = fm.features(X, y, normalize=None, intercept="free", ridge=0.5)
    *head, bias = map(Fraction, tiny_or_huge.tolist())
    square = exact.dot(head, head)
    for sign, point in zip(y, X.tolist(), strict=True):
        margin = sign * (exact.dot(head, map(Fraction, point)) + bias)
        square += 2 * max(0, 1 - margin) ** 2
    assert exact.holds(1 / square, *fm.separator_margin(G, tiny_or_huge))


def test_a_separator_has_no_slack_where_the_ridge_is_0():
    X = [[1.0], [2.0], [4.0]]
    y = [-1, 1, 1]
    G = fm.features(X, y, normalize=None, intercept="free", ridge=[1.0, 0.0, 1.0])
    lower, upper = fm.separator_margin(G, [1.0, -1.5])
    assert lower == 0.0 < upper < 1e-300
    lower, upper = fm.separator_margin(G, [2.0, -3.0])  # margins 1, 1 and 5
    assert lower <= 0.5 <= upper


def test_the_margin_of_a_separator_of_classes_and_its_slacks_is_that_of_its_rows():
    """With the class weights of a soft margin the interval closes on it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    labels = rng.integers(0, 3, 60)
    G = fm.pair_gram(fm.features(X, normalize=None), labels, 3, ridge=0.5)
    best = fm.max_margin(G, tol=1e-12)
    rows = pair_rows(X.tolist(), labels, 3)
    W = (best.alpha @ rows).reshape(3, 3) / best.upper**2
    lower, upper = fm.separator_margin(G, W)
    assert lower <= best.upper
    assert lower == pytest.approx(best.lower, rel=1e-9)
    assert upper - lower <= 1e-13 * upper


@pytest.mark.parametrize("intercept", [0.0, "free"])
@pytest.mark.parametrize("d, C", [(2, 1.0), (2, 100.0), (20, 100.0)])
def test_a_soft_margin_beside_a_huge_column_is_certified_in_a_few_iterations(d, C, intercept):
    """Its weights lack the digits, whatever steps follow: the coordinates of the separator have them."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, d))
    y = np.where(X[:, 1] + 0.7 * rng.normal(size=800) > 0.3, 1, -1)
    X[:, 0] *= 1e6
    G = fm.features(X, y, normalize=None, intercept=intercept, ridge=0.5 / C)
    result = fm.max_margin(G)
    assert result.status == "certified" and result.n_iter <= 10


def test_raw_columns_of_any_unit_are_certified():
    """Heavy tails, 60 units, and a column in millionths: soft and hard margins, to 1e-6, without a warning."""
    rng = np.random.default_rng(0)
    heavy = rng.lognormal(2.0, 2.5, (3000, 8)).round()
    of_heavy = np.log1p(heavy[:, 0]) - np.log1p(heavy[:, 1]) + rng.normal(size=3000) > 0.0
    wide = np.column_stack((1e6 * rng.normal(size=500), rng.random(500)))
    units = rng.normal(size=(3000, 60)) * 10.0 ** rng.uniform(-3.0, 3.0, 60)
    of_units = units @ (1.0 / units.std(axis=0)) + 3.0 * rng.normal(size=3000) > 0.0
    noisy = wide[:, 1] + 0.3 * rng.normal(size=500) > 0.5
    for X, y in (
        (heavy, of_heavy),
        (rng.standard_t(2, (3000, 8)), of_heavy),
        (wide, wide[:, 1] > 0.5),
        (wide, noisy),
        (units, of_units),
    ):
        chosen = fitted(X, y, kernel="linear", C=1.0)
        assert chosen.interval_[0] >= chosen.interval_[1] * (1.0 - 1e-6)
        assert chosen.status_ == "certified"
        sign = np.where(y, 1.0, -1.0)
        f = chosen.decision_function(X)
        objective = 0.5 * np.sum(chosen.coef_**2) + np.sum(np.maximum(0.0, 1.0 - sign * f) ** 2)
        assert objective == pytest.approx(0.5 / chosen.margin_**2, rel=1e-5)
    chosen = fitted(wide, wide[:, 1] > 0.5, kernel="linear", C=np.inf, tol=1e-4)
    assert chosen.score(wide, wide[:, 1] > 0.5) == 1.0
    G = fm.features(wide, np.where(wide[:, 1] > 0.5, 1, -1), normalize=None, intercept="free")
    assert fm.separator_margin(G, chosen.coef_[0])[0] >= chosen.margin_ * (1.0 - 1e-9)


@pytest.mark.parametrize("C", [np.inf, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_one_column_1e8_times_as_wide_as_another_is_certified(seed, C):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rng.integers(30, 400), rng.integers(2, 12)))
    y = X @ rng.normal(size=X.shape[1]) + (C < np.inf) * rng.normal(size=len(X)) > 0.0
    X *= 10.0 ** rng.uniform(-4.0, 4.0, X.shape[1])
    X[:, :2] *= [1e4, 1e-4] / np.abs(X[:, :2]).max(axis=0)
    assert fitted(X, y, kernel="linear", C=C).status_ == "certified"


def test_columns_of_other_units_are_warned_of():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.random(50), 1e6 * rng.normal(size=50)))
    with pytest.warns(UserWarning, match="bring columns to one scale"):
        fm.MaxMarginClassifier("linear", C=1.0, tol=1e-15).fit(X, X[:, 0] > 0.5)


# ======================================================================================================
# DISTANCES THAT CANCEL
# ======================================================================================================


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_incomes_beside_ages_learn_any_labels_with_the_margin_of_right_angles(kernel):
    """K is all but the identity: any labels are learned, and rho is that of n points at right angles, slacks 1/2."""
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.lognormal(13.0, 1.5, 300), rng.integers(18, 80, 300)))
    y = rng.integers(0, 2, 300)
    chosen = fitted(X, y, kernel=kernel, gamma=1.0, C=1.0)
    assert chosen.status_ == "certified" and chosen.score(X, y) == 1.0
    assert chosen.margin_ == pytest.approx(
        np.sqrt(1.5 / 4 * (1.0 / np.sum(y) + 1.0 / np.sum(1 - y))), rel=1e-5
    )


def test_values_of_far_points_are_those_of_differences():
    """Against exact differences, to a few units in the last place; by inner products not a digit is right."""
    rng = np.random.default_rng(2)
    X = np.round(rng.normal(size=(20, 3)) * 1e3) + 1e9 * np.arange(1, 4)
    for gamma in (1e-6, 1e-2):
        K = fm.kernel_matrix(X * [1.0, 1e3, 1e-3], X * [1.0, 1e3, 1e-3], kernel="rbf", gamma=gamma)
        rows = [list(map(Fraction, x)) for x in (X * [1.0, 1e3, 1e-3]).tolist()]
        squares = [
            [float(sum((a - b) ** 2 for a, b in zip(x, z, strict=True))) for z in rows]
            for x in rows
        ]
        wanted = np.exp(-gamma * np.array(squares))
        np.testing.assert_allclose(K, wanted, rtol=1e-9, atol=1e-13)
        G = fm.lazy_gram(X * [1.0, 1e3, 1e-3], kernel="rbf", gamma=gamma)
        assert np.abs(G.dense() - wanted).max() <= G.rounding().margins + 1e-14


def test_mapped_points_are_treated_as_loaded_ones():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 5))
    y = rng.integers(0, 2, 80)
    for offset in (0.0, 1.7e9):
        one, two = (
            fitted(points, y, kernel="rbf", gamma=0.05, C=1.0)
            for points in (in_file(X + offset), X + offset)
        )
        assert one.status_ == two.status_ == "certified"
        np.testing.assert_allclose(
            one.decision_function(X + offset), two.decision_function(X + offset), atol=1e-4
        )
        assert one.score(X + offset, y) == two.score(X + offset, y) > 0.6


# ======================================================================================================
# WEIGHTS AND MIXED UNITS
# ======================================================================================================


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("decay", [0.5, 0.1, 1e-3])
def test_weights_that_decay_leave_the_margin_of_the_heavy_points(kernel, decay):
    """What the lightest points add is nothing: the interval holds the margin of those of 1e-10 of the weight."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=240) > 0).astype(int)
    weights = decay ** (np.arange(240) / 4)
    weights[weights < 1e-16] = 0.0
    options = {"kernel": kernel, "C": 1.0, "tol": 1e-8}
    options |= {"gamma": 0.3} if kernel == "rbf" else {}
    heavy = weights > 1e-10
    chosen = fitted(X, y, weights, **options)
    few = fitted(X[heavy], y[heavy], weights[heavy], **options)
    assert chosen.status_ == few.status_ == "certified"
    assert meet(chosen.result_, few.result_._replace(lower=few.margin_ * (1.0 - 1e-6)))
    np.testing.assert_allclose(chosen.decision_function(X), few.decision_function(X), atol=1e-3)


def test_a_soft_margin_is_never_infeasible():
    """What has no proof has a warning, at every C."""
    rng = np.random.default_rng(0)
    X = np.column_stack((1e6 * rng.normal(size=400), rng.random(400)))
    y = (X[:, 0] / 1e6 + X[:, 1] + rng.normal(size=400) > 0.5).astype(int)
    for C in (1e-12, 1e-6, 1.0, 1e2):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            chosen = fm.MaxMarginClassifier("linear", C=C).fit(X, y)
        assert chosen.status_ == "certified" or (
            chosen.status_ in ("rounding", "max_iter") and found
        )


# ======================================================================================================
# CONVENTIONS
# ======================================================================================================


def test_points_far_shorter_than_the_constant_feature_are_warned_of():
    """The bias of several classes is penalised: then points of 1e-13 are lost beside the constant 1."""
    rng = np.random.default_rng(0)
    points = 1e-13 * rng.normal(size=(60, 3))
    labels = np.argmax(points, axis=1)
    with pytest.warns(UserWarning, match="one scale|finite C") as told:
        fm.MaxMarginClassifier("linear", C=math.inf).fit(points, labels)
    model = fm.MaxMarginClassifier("linear", intercept_scaling=3e-13, C=math.inf).fit(
        points, labels
    )
    assert len(told) == 1 and model.status_ == "certified"


def test_a_row_without_length_has_a_class_beside_a_constant():
    X = [[0.0, 1.0], [1.0, 0.5], [3.0, -1.0], [4.0, 2.0]]
    new = [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    with_constant = fm.MaxMarginClassifier("linear", normalize="unit", intercept_scaling=1.0, C=1.0)
    assert with_constant.fit(X, [1, 1, -1, -1]).predict(new).size == 3


def test_points_that_are_all_0_have_a_soft_margin():
    """With a constant feature in a linear kernel, or with another kernel, slacks have a margin."""
    X = np.zeros((4, 2))
    y = [0, 1, 0, 1]
    chosen = fitted(X, y, kernel="linear", C=1.0, intercept_scaling=1.0)
    assert chosen.margin_ > 0.0 and fitted(X, y, C=1.0).margin_ > 0.0


def test_far_columns_have_the_margin_of_near_ones_in_parallel():
    """Large enough for threads, near the origin in a file, and far from it."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(4000, 80))
    y = np.where(Z[:, 0] > 0, 1.0, -1.0)
    Z[:, 0] += 3.0 * y
    with threads(2):
        near = fm.max_margin(free(fm.features(in_file(y[:, None] * Z), 1, normalize=None), y))
        far = fm.max_margin(fm.features(Z + 1e8, y, normalize=None, intercept="free"))
    assert near.status == far.status == "certified"
    assert near.lower == pytest.approx(far.lower, rel=1e-6)


@pytest.mark.parametrize("tiny", [1e-300, 1e-180, 1e-120])
def test_entries_whose_squares_are_nothing_beside_the_others(tiny):
    """As probabilities of events that do not happen: the interval holds, whatever the status."""
    for X, y in (([[tiny], [1.0]], [1, 1]), ([[tiny, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, 1, -1])):
        rows = [[s * Fraction(x) for x in row] for s, row in zip(y, X, strict=True)]
        rho2 = exact.margin_squared(exact.of_rows(rows))
        for algorithm in (fm.max_margin, fm.momentum):
            result = algorithm(fm.features(np.array(y)[:, None] * np.array(X), 1, normalize=None))
            assert exact.holds(rho2, result.lower, result.upper)
