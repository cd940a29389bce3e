"""What is no label and what is no number is refused where it enters, by every function alike."""

import datetime
import decimal
import re

import numpy as np
import pytest
from instances import check_raises

import fastmargin as fm

X = np.array([[0.0, 1.0], [1.0, 0.5], [3.0, -1.0], [4.0, 2.0]])
Y = np.array([1, 1, -1, -1])
K = fm.gram(X)


def fitted():
    return fm.MaxMarginClassifier(C=1.0).fit(X, Y)


# ======================================================================================================
# LABELS THAT ARE MISSING
# ======================================================================================================


class NAType:
    """What pandas has for a missing value, by name: it has no truth value."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


class NaTType(NAType):
    """The missing date of pandas, by name."""


class Column:
    """As much of a column of another library as is read: it becomes an array of objects."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=object)


DAY = np.datetime64("2020-01-01")
MISSING = {  # four labels each, the third of which is missing
    "nan": [1, 1, np.nan, -1],
    "single precision": np.float32([1, 1, np.nan, -1]),
    "complex": [1, 1, complex(0.0, np.nan), -1],
    "None": [1, 1, None, -1],
    "masked": np.ma.array([1, 1, -1, -1], mask=[False, False, True, False]),
    "masked text": np.ma.array(["a", "a", "b", "b"], mask=[False, False, True, False]),
    "masked entry": np.array([1, 1, np.ma.masked, -1], dtype=object),
    "missing date": np.array([DAY, DAY, np.datetime64("NaT"), DAY + 1]),
    "missing duration": np.array([1, 1, "NaT", 2], dtype="m8[s]"),
    "date object": np.array([DAY, DAY, np.datetime64("NaT"), DAY + 1], dtype=object),
    "NA": [1, 1, NAType(), -1],
    "NaT": Column([datetime.date(2020, 1, 1)] * 2 + [NaTType(), datetime.date(2021, 1, 1)]),
    "nan beside text": ["a", "a", np.nan, "b"],
    "nan beside bytes": (b"a", b"a", np.nan, b"b"),
    "category": Column(["a", "a", np.nan, "b"]),
    "nan object": np.array([1, 1, np.float32("nan"), -1], dtype=object),
    "decimal": [decimal.Decimal(1), decimal.Decimal(1), decimal.Decimal("nan"), decimal.Decimal(2)],
}
LABELLED = {  # every function that is given labels, and what it calls them
    "gram": (lambda y: fm.gram(X, y), "y"),
    "gram, float32": (lambda y: fm.gram(X, y, dtype=np.float32), "y"),
    "precomputed": (lambda y: fm.gram(np.eye(4), y, kernel="precomputed", normalize=None), "y"),
    "features": (lambda y: fm.features(X, y), "y"),
    "free": (lambda y: fm.features(X, y, intercept="free"), "y"),
    "lazy_gram": (lambda y: fm.lazy_gram(X, y), "y"),
    "signed": (lambda y: K.signed(y), "y"),
    "FreeGram": (lambda y: fm.FreeGram(fm.DenseGram(np.eye(4)), y), "labels"),
    "pair_gram": (lambda y: fm.pair_gram(K, y, 2), "labels"),
    "norm_margin": (lambda y: fm.norm_margin(X, "l1", labels=y, max_iter=3), "labels"),
    "contradiction": (lambda y: fm.contradiction(X, y), "y"),
    "classifier": (lambda y: fm.MaxMarginClassifier().fit(X, y), "y"),
    "score": (lambda y: fitted().score(X, y), "y"),
}


@pytest.mark.parametrize("function", LABELLED)
@pytest.mark.parametrize("case", MISSING)
def test_missing_labels_are_refused_by_name_and_row(function, case):
    call, name = LABELLED[function]
    words = [f"Input {name} contains NaN", "row 2", "leave such points out"]
    check_raises(lambda: call(MISSING[case]), ValueError, words)


def test_no_labels_at_all():
    for call in (lambda: fm.contradiction(X, None), lambda: fm.pair_gram(K, None, 2)):
        check_raises(call, ValueError, ["label", "None"])
    one = fitted()
    check_raises(lambda: one.score(X[:1], None), ValueError, ["y", "None"])


def test_a_mask_that_hides_nothing_leaves_labels_that_can_be_compared():
    y = np.ma.array([1, 1, -1, -1], mask=False)
    assert fm.contradiction(X[[0, 1, 0, 2]], y) == (0, 2)
    assert np.array_equal(fm.MaxMarginClassifier().fit(X, y).predict(X), y.data)


@pytest.mark.parametrize(
    "one, other",
    [
        (1, "1"),
        (1, -1),
        ("a", b"a"),
        ("a", "a\0"),
        (True, False),
        (2**53 + 1, 2.0**53),
        (2**64 + 1, 2**64),
        (1j, -1j),
        (frozenset("a"), frozenset("b")),
        (DAY, DAY + 1),
        (np.timedelta64(1, "s"), np.timedelta64(2, "s")),
        (datetime.date(2020, 1, 1), "2020-01-01"),
        (decimal.Decimal("0.1"), 0.1),
    ],
)
def test_labels_are_compared_as_they_were_given(one, other):
    """In a list, too, of which NumPy would make an array of text or of floats."""
    points = X[[0, 1, 0]]
    assert fm.contradiction(points, [one, one, other]) == (0, 2)
    assert fm.contradiction(points, [one, other, one]) is None


def test_labels_of_several_types_are_no_classes():
    check_raises(
        lambda: fm.MaxMarginClassifier().fit(X, [1, 1, "a", "a"]), TypeError, ["y", "one type"]
    )


# ======================================================================================================
# DATES AND DURATIONS
# ======================================================================================================


class Frame:
    """A data frame whose columns are of one type, which NumPy would turn into counts."""

    def __init__(self, values):
        self.columns = ["begin", "end"]
        self.dtypes = [values.dtype] * 2
        self.shape = values.shape
        self.values = values

    def __getitem__(self, name):
        return self.values[:, self.columns.index(name)]

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


DAYS = np.array([[3, 1], [2, 5], [7, 4], [1, 8]])
DURATIONS = DAYS.astype("m8[D]").astype("m8[ns]")
DATES = np.datetime64("2000-01-01") + DURATIONS
UNDATED = np.where(np.eye(4, 2, -1, dtype=bool), np.datetime64("NaT"), DATES)
# Forms of a table of dates or durations.
FORMS = {
    "array": lambda T: T,
    "seconds": lambda T: T.astype(T.dtype.str.replace("ns", "s")),
    "frame": Frame,
    "list": lambda T: [list(row) for row in T],
    "objects": lambda T: np.array([list(row) + [None] for row in T], dtype=object)[:, :2],
    "python": lambda T: T.astype(T.dtype.str.replace("ns", "us")).astype(object),
}
POINTS = {  # every function that is given points, and what it calls them
    "gram": (lambda T: fm.gram(T, Y), "X"),
    "callable": (lambda T: fm.gram(T, Y, kernel=lambda A, B: A @ B.T), "X"),
    "features": (lambda T: fm.features(T, Y), "X"),
    "lazy_gram": (lambda T: fm.lazy_gram(T, Y), "X"),
    "kernel_matrix": (lambda T: fm.kernel_matrix(X, T), "B"),
    "W": (lambda T: fm.gram(X, Y, kernel="ntk", W=T), "W"),
    "Xnew": (lambda T: fm.gram(X, Y).decision_function(np.ones(4), T), "Xnew"),
    "FeatureGram": (lambda T: fm.FeatureGram(T), "rows"),
    "contradiction": (lambda T: fm.contradiction(T, Y), "X"),
    "winnow": (lambda T: fm.winnow(T, eta=0.1, max_iter=3), "Z"),
    "norm_margin": (lambda T: fm.norm_margin(T, "l1", max_iter=3), "Z"),
    "fit": (lambda T: fm.MaxMarginClassifier().fit(T, Y), "X"),
    "predict": (lambda T: fitted().predict(T), "X"),
    "values of a kernel": (lambda T: fm.gram(X, Y, kernel=lambda A, B: T), "kernel(A, B)"),
}


@pytest.mark.parametrize("function", POINTS)
@pytest.mark.parametrize("form", FORMS)
def test_points_that_are_dates_or_durations(function, form):
    call, name = POINTS[function]
    place = ["column 'begin'"] if form == "frame" else []
    for table, kind in ((DATES, "date"), (DURATIONS, "duration"), (UNDATED, "date")):
        words = [f"{name} must hold real numbers", "row 0", kind, *place]
        check_raises(lambda table=table: call(FORMS[form](table)), TypeError, words)


@pytest.mark.parametrize("form", FORMS)
def test_the_remedy_counts_seconds(form):
    """It is right as it stands in the message, and gives new points the numbers that they had among others."""
    for table in (DATES, DURATIONS):
        given = FORMS[form](table)
        with pytest.raises(TypeError) as caught:
            fm.gram(given, Y)
        remedy = re.search(r"in seconds: (.*)$", str(caught.value))[1]
        seconds = eval(remedy, {"np": np, "X": given})
        want = 86400.0 * (DAYS[:, 0] if form == "frame" else DAYS)
        assert seconds.dtype == np.float64 and np.array_equal(seconds, want)
        if form != "frame":
            assert np.array_equal(eval(remedy, {"np": np, "X": given[1:]}), want[1:])


def test_a_missing_date_is_missing():
    for form in ("array", "objects", "python"):
        given = FORMS[form](UNDATED[1:])
        words = ["X must hold real numbers", "row 0, column 0", "missing"]
        check_raises(lambda given=given: fm.gram(given, Y[1:]), TypeError, words)


VECTORS = {  # every function that is given a number for each point, and what it calls them
    "ridge": (lambda v: fm.gram(X, Y, ridge=v), "ridge"),
    "RidgeGram": (lambda v: fm.RidgeGram(K, v), "ridge"),
    "sample_weight": (lambda v: fm.MaxMarginClassifier(C=1.0).fit(X, Y, v), "sample_weight"),
    "score": (lambda v: fitted().score(X, Y, v), "sample_weight"),
    "alpha": (lambda v: fm.certificate(np.eye(4), v, np.full(4, 0.25)), "alpha"),
    "p": (lambda v: fm.certificate(np.eye(4), np.ones(4), v), "p"),
    "result": (lambda v: fm.gram(X, Y).decision_function(v, X), "result"),
    "separator": (lambda v: fm.separator_margin(fm.FeatureGram(np.eye(4)), v), "w"),
    "v": (lambda v: fm.project_simplex(v), "v"),
    "g": (lambda v: fm.entropy_prox(v, 1.0), "g"),
    "q": (lambda v: fm.l2_prox(np.ones(4), 1.0, v), "q"),
    "product": (lambda v: K @ v, "v"),
    "trace_at": (lambda v: fm.perceptron(fm.gram(X, Y), max_iter=9, trace_at=v), "trace_at"),
    "y": (lambda v: fm.gram(X, v), "y"),
    "labels": (lambda v: fm.pair_gram(K, v, 9), "labels"),
}


@pytest.mark.parametrize("function", VECTORS)
def test_vectors_of_dates_or_durations(function):
    call, name = VECTORS[function]
    for table in (DATES, DURATIONS):
        v = table[:, 0]
        for given in (v, list(v), np.array([*v, None], dtype=object)[:4]):
            check_raises(lambda given=given: call(given), TypeError, [name, "real numbers"])


def test_a_duration_is_no_number():
    for unit in ("ns", "s"):
        second = np.timedelta64(1, unit)
        for value in (second, np.array(second), np.datetime64(1, unit)):
            for call, name in (
                (lambda value=value: fm.gram(X, Y, ridge=value), "ridge"),
                (lambda value=value: fm.gram(X, Y, gamma=value), "gamma"),
                (lambda value=value: fm.features(X, Y, intercept=value), "intercept"),
                (lambda value=value: fm.MaxMarginClassifier(C=value).fit(X, Y), "C"),
                (lambda value=value: fm.max_margin(K.signed(Y), tol=value), "tol"),
            ):
                check_raises(call, TypeError, [name, "number"])


@pytest.mark.parametrize("table", [DATES, DURATIONS], ids=["dates", "durations"])
def test_dates_are_labels_where_labels_may_be_of_any_type(table):
    y = table[[0, 0, 1, 1], 0]
    chosen = fm.MaxMarginClassifier().fit(X, y)
    assert np.array_equal(chosen.predict(X), y) and chosen.score(X, y) == 1.0
    assert fm.contradiction(X[[0, 1, 0]], y[1:]) == (0, 2)
    with pytest.raises(TypeError, match=r"\by\b") as caught:
        fm.gram(X, y)
    remedy = re.search(r"np\.where\(.*\)", str(caught.value))[0]
    assert np.array_equal(eval(remedy, {"np": np, "y": y}), Y)
    assert "in seconds" not in str(caught.value)


# ======================================================================================================
# WHAT WAS MEANT
# ======================================================================================================


@pytest.mark.parametrize(
    "call",
    [
        fm.gram,
        fm.features,
        fm.lazy_gram,
        fm.contradiction,
        lambda X, y: fm.MaxMarginClassifier().fit(X, y),
    ],
    ids=["gram", "features", "lazy_gram", "contradiction", "fit"],
)
@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist], ids=["arrays", "lists"])
def test_points_and_labels_that_are_swapped(call, form):
    check_raises(
        lambda: call(form(Y), form(X)), ValueError, ["X and y", "swapped", "(4,)", "(4, 2)"]
    )


@pytest.mark.parametrize("intercept", [True, False, None, np.bool_(True)])
@pytest.mark.parametrize("make", [fm.gram, fm.features, fm.lazy_gram])
def test_an_intercept_that_is_a_truth_value(make, intercept):
    check_raises(
        lambda: make(X, Y, intercept=intercept),
        TypeError,
        ["intercept", '"free"', "0.0", str(intercept)],
    )


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: fm.gram(X, Y, C=1.0), ["C", "ridge=1/(2*C)", "MaxMarginClassifier"]),
        (lambda: fm.lazy_gram(X, Y, C=1.0), ["C", "ridge=1/(2*C)", "MaxMarginClassifier"]),
        (lambda: fm.max_margin(K.signed(Y), C=1.0), ["'C'", "ridge=1/(2*C)"]),
        (lambda: fm.momentum(K.signed(Y), intercept="free"), ["'intercept'", "gram"]),
        (lambda: fm.perceptron(K.signed(Y), kernel="rbf"), ["'kernel'", "gram"]),
        (lambda: fm.gram(X, "rbf"), ["y", "'rbf'", "label", "names"]),
    ],
)
def test_options_in_the_wrong_place(call, words):
    check_raises(call, TypeError, words)


def test_low_rank_and_a_diagonal():
    """Features with the rest of the diagonal as a ridge are the matrix of both."""
    rest = np.array([0.5, 0.0, 1.0, 2.0])
    G = fm.features(X, Y, normalize=None, ridge=rest)
    np.testing.assert_allclose(np.asarray(G), np.outer(Y, Y) * (X @ X.T) + np.diag(rest))


# ======================================================================================================
# THE ENDS OF THE RANGE OF NUMBERS
# ======================================================================================================


@pytest.mark.filterwarnings("error:overflow")
def test_wide_columns_in_single_precision(tmp_path):
    """The width of a column may overflow where its ends do not."""
    wide = np.array([[-3e38, 1.0], [3e38, 2.0], [1e38, -1.0], [-2e38, 3.0]], np.float32)
    np.save(tmp_path / "wide.npy", wide)
    mapped = np.load(tmp_path / "wide.npy", mmap_mode="r")
    form = {"normalize": None, "intercept": "free"}
    for points in (wide, mapped):
        expected = fm.features(wide.astype(np.float64), Y, **form)
        assert np.array_equal(fm.features(points, Y, **form), expected)
        with pytest.warns(UserWarning, match="column 0 is far wider than 1"):
            fm.MaxMarginClassifier("linear").fit(points, Y)


@pytest.mark.filterwarnings("error:overflow")
@pytest.mark.parametrize("kernel", ["linear", "poly", "ntk"])
def test_a_kernel_matrix_beyond_single_precision(kernel):
    options = {"kernel": kernel, "dtype": np.float32}
    if kernel == "poly":
        options["gamma"] = 1.0
    points = 1e30 * X
    for largest in ("unit", "max"):
        assert np.isfinite(np.asarray(fm.gram(points, Y, normalize=largest, **options))).all()
    check_raises(
        lambda: fm.gram(points, Y, normalize=None, **options),
        ValueError,
        ["row 3 of X", "float32", "dtype=np.float64", "rescale"],
    )


@pytest.mark.parametrize("C", [1.0, np.inf])
def test_weights_that_are_no_numbers_of_full_precision(C):
    fit = fm.MaxMarginClassifier(C=C).fit
    for weights in (np.full(4, 1e-320), [1.0, 1.0, 1e-320, 1e-320]):
        check_raises(
            lambda weights=weights: fit(X, Y, weights),
            ValueError,
            ["sample_weight", "1e-320", "multiply all weights"],
        )
    with pytest.raises(ValueError, match="two classes") as caught:
        fit(X, Y, [1.0, 1.0, 0.0, 0.0])
    assert "multiply" not in str(caught.value)


def test_coefficients_of_columns_are_those_of_the_linear_kernel():
    model = fm.MaxMarginClassifier()
    check_raises(lambda: model.coef_, AttributeError, ["coef_", "fit"])
    assert model.set_params(kernel="linear").fit(X, Y).coef_.shape == (1, 2)
    model.set_params(kernel="rbf").fit(X, Y)
    assert not hasattr(model, "coef_")
    check_raises(lambda: model.coef_, AttributeError, ['kernel="linear"', "rbf", "dual_coef_"])


def test_points_far_shorter_than_the_constant_feature():
    """The bias of several classes is penalised: then points of 1e-13 are lost beside the constant 1."""
    rng = np.random.default_rng(0)
    points = 1e-13 * rng.normal(size=(60, 3))
    labels = np.argmax(points, axis=1)
    with pytest.warns(UserWarning, match=r"intercept_scaling=[1-9]e-13") as told:
        fm.MaxMarginClassifier("linear").fit(points, labels)
    model = fm.MaxMarginClassifier("linear", intercept_scaling=3e-13).fit(points, labels)
    assert len(told) == 1 and model.status_ == "certified"
    with pytest.warns(UserWarning) as told:
        fm.MaxMarginClassifier("linear", algorithm="momentum", max_iter=1).fit(
            1e13 * points, labels
        )
    assert "intercept_scaling" not in str(told[0].message)


def test_a_row_without_length_is_named_with_its_remedy():
    new = [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    remedy = ["row 1", "1 other row", 'normalize="max"', "leave out"]
    model = fm.MaxMarginClassifier("linear", normalize="unit", C=1.0).fit(X, Y)
    check_raises(lambda: model.predict(new), ValueError, remedy)
    check_raises(lambda: fm.features(new, [1, -1, 1]), ValueError, remedy)
    with_constant = fm.MaxMarginClassifier("linear", normalize="unit", intercept_scaling=1.0, C=1.0)
    assert with_constant.fit(X, Y).predict(new).size == 3
