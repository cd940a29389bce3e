"""What is no label and what is no number is refused where it enters, by every function alike."""

import datetime
import decimal
import pickle
import re
import tempfile
import warnings
from fractions import Fraction

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
# INTEGERS THAT NO DOUBLE HOLDS
# ======================================================================================================

STAMP = 1_700_000_000_000_000_000  # nanoseconds; 256 apart from the next double
POINTS_THERE = [[0, 3], [70, -5], [140, 2], [75, 8]]
CLASSES = [1, -1, -1, 1]
NEW = [[0, 3], [35, 3], [36, 3], [10**6, 0]]


def moved(rows, offsets):
    """The rows as integers, with an offset added to each column."""
    return [[x + o for x, o in zip(row, offsets, strict=True)] for row in rows]


def objects(rows, make):
    return np.array([[make(x) for x in row] for row in rows], dtype=object)


def in_file(rows):
    with tempfile.TemporaryFile() as file:
        points = np.memmap(file, np.int64, shape=(len(rows), len(rows[0])))
    points[:] = rows
    return points


class MixedFrame:
    """A data frame of columns of several types, which NumPy turns into floats; columns are read by their number."""

    def __init__(self, rows):
        self.columns = ["time", "other"]
        self.arrays = [
            np.array([row[0] for row in rows]),
            np.array([row[1] for row in rows], dtype=np.float64),
        ]
        self.dtypes = [array.dtype for array in self.arrays]
        self.shape = len(rows), 2

    def __getitem__(self, index):
        rows, k = index
        return self.arrays[k][rows]

    def __array__(self, dtype=None, copy=None):
        return np.column_stack(self.arrays).astype(np.float64 if dtype is None else dtype)


EXACT = {  # a type of integers, and the offsets of two columns
    "int64": (lambda rows: np.array(rows, dtype=np.int64), (STAMP, -(2**61) - 1)),
    "file": (in_file, (STAMP, -(2**61) - 1)),
    "near the ends": (lambda rows: np.array(rows, dtype=np.int64), (2**63 - 10**7, 10 - 2**63)),
    "uint64": (lambda rows: np.array(rows, dtype=np.uint64), (2**64 - 10**7, 2**53 + 7)),
    "objects": (lambda rows: objects(rows, int), (STAMP + 1, 10**30 + 1)),
    "numpy integers": (lambda rows: objects(rows, np.int64), (STAMP + 1, STAMP)),
    "lists": (lambda rows: rows, (2**63 + 1, -STAMP)),
    "lists with floats": (lambda rows: [[x, float(z)] for x, z in rows], (STAMP + 1, 0)),
    "frame": (MixedFrame, (STAMP + 1, 0)),
    "fractions": (lambda rows: objects(rows, Fraction), (STAMP + 1, -(10**30))),
    "decimals": (lambda rows: objects(rows, decimal.Decimal), (STAMP + 1, 10**30 + 1)),
    "longdouble": (lambda rows: np.array(rows, dtype=np.longdouble), (2**61 + 1, -(2**60) + 1)),
}
if np.finfo(np.longdouble).nmant < 60:
    del EXACT["longdouble"]  # where it is no more than a double


def free(X, y=CLASSES, make=fm.features, **options):
    return make(X, y, normalize=None, intercept="free", **options)


def of_gram(G, new):
    result = fm.max_margin(G)
    return np.asarray(G), (result.lower, result.upper), G.decision_function(result, new)


def of_fit(model, X, new):
    model.fit(X, CLASSES)
    return model.interval_, model.decision_function(new), model.predict(new)


def of_pairs(X, new):
    K = fm.gram(X, kernel="laplacian", gamma=0.01)
    G = fm.pair_gram(K, [0, 1, 2, 0], 3)
    return of_gram(G, new)


EXACTLY = {  # what does not change when all points are shifted, of points and new ones
    "gram": lambda X, new: of_gram(free(X, make=fm.gram, kernel="linear"), new)[1:],
    "lazy_gram": lambda X, new: of_gram(free(X, make=fm.lazy_gram, kernel="linear"), new)[1:],
    "features": lambda X, new: of_gram(free(X), new)[1:],
    "ridge": lambda X, new: of_gram(free(X, ridge=3.0), new)[1:],
    "signed": lambda X, new: of_gram(free(X, None).signed(CLASSES), new)[1:],
    "rbf": lambda X, new: of_gram(fm.gram(X, CLASSES, gamma=1e-4), new),
    "scale": lambda X, new: of_gram(fm.lazy_gram(X, CLASSES, gamma=1e-4, intercept=1.0), new),
    "laplacian": lambda X, new: of_gram(free(X, make=fm.gram, kernel="laplacian", gamma=0.01), new),
    "max": lambda X, new: of_gram(fm.lazy_gram(X, CLASSES, gamma=1e-4, normalize="max"), new),
    "kernel_matrix": lambda X, new: (fm.kernel_matrix(X, new, gamma=1e-4),),
    "kernel_matrix, laplacian": lambda X, new: (
        fm.kernel_matrix(X, new, kernel="laplacian", gamma=0.01),
    ),
    "pair_gram": of_pairs,
    "fit": lambda X, new: of_fit(fm.MaxMarginClassifier("linear", tol=1e-9), X, new),
    "soft fit": lambda X, new: of_fit(fm.MaxMarginClassifier("linear", C=0.1), X, new),
    "fit of rbf": lambda X, new: of_fit(fm.MaxMarginClassifier(gamma=1e-4), X, new),
    "contradiction": lambda X, new: (fm.contradiction(X, CLASSES) is None,),
}


@pytest.mark.parametrize("entry", EXACTLY)
@pytest.mark.parametrize("kind", EXACT)
def test_a_shift_of_integers_changes_nothing(kind, entry):
    make, offsets = EXACT[kind]
    found = EXACTLY[entry](make(moved(POINTS_THERE, offsets)), make(moved(NEW, offsets)))
    wanted = EXACTLY[entry](np.array(POINTS_THERE, dtype=float), np.array(NEW, dtype=float))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", EXACT)
def test_the_margin_of_time_stamps(kind):
    """It is that of the points as given, in exact rationals."""
    make, (o, other) = EXACT[kind]
    X = make([[o, other], [o + 70, other], [o + 140, other]])
    y = [1, -1, -1]
    plane = Fraction(o) + 35
    for G in (free(X, y), *(free(X, y, f, kernel="linear") for f in (fm.gram, fm.lazy_gram))):
        result = fm.max_margin(G)
        assert result.status == "certified" and result.lower <= 35 <= result.upper
        near = make([[int(plane) + k, other] for k in (-1, 0, 1)])
        scores = G.decision_function(result, near)
        assert scores[0] > 1e-9 > abs(scores[1]) and scores[2] < -1e-9
        # The bias is that of the points as given, as well as a float can be.
        slope = (scores[0] - scores[2]) / 2
        np.testing.assert_allclose(G.bias(result), slope * float(plane), rtol=1e-9)
    model = fm.MaxMarginClassifier("linear").fit(X, y)
    assert model.interval_[0] <= 35 <= model.interval_[1] and model.status_ == "certified"
    assert model.predict(near)[[0, 2]].tolist() == [1, -1]
    np.testing.assert_allclose(model.intercept_[0], float(plane) / 35, rtol=1e-12)


@pytest.mark.parametrize("kind", EXACT)
def test_contradiction_compares_what_was_given(kind):
    make, (o, other) = EXACT[kind]
    X = make([[o, other], [o + 1, other], [o, other]])
    assert fm.contradiction(X, [1, 2, 1]) is None
    assert fm.contradiction(X, [1, 2, 2]) == (0, 2)


def test_contradiction_of_several_types():
    assert fm.contradiction([[STAMP], [Fraction(STAMP)], [float(STAMP)]], [1, 1, 2]) == (0, 2)
    assert fm.contradiction([[decimal.Decimal("0.1")], [0.1]], [1, 2]) is None
    assert fm.contradiction(np.array([[0.0], [-0.0]], dtype=np.longdouble), [1, 2]) == (0, 1)


def test_the_scale_of_gamma_is_that_of_the_points_as_given():
    for offsets in ((STAMP, STAMP), (STAMP, -STAMP), (10**30 + 1, 0)):
        rows = moved(POINTS_THERE, offsets)
        entries = [Fraction(x) for row in rows for x in row]
        mean = sum(entries) / len(entries)
        variance = sum((x - mean) ** 2 for x in entries) / len(entries)
        for G in (fm.gram(rows, CLASSES), fm.lazy_gram(rows, CLASSES, kernel="laplacian")):
            np.testing.assert_allclose(G.kernel.gamma, float(1 / (2 * variance)), rtol=1e-12)
        model = fm.MaxMarginClassifier(C=1.0).fit(rows, CLASSES)
        np.testing.assert_allclose(model.kernel_.gamma, float(1 / (2 * variance)), rtol=1e-12)


def test_only_columns_that_lose_something_are_shifted():
    X = [[STAMP + 1, 5, 2.5], [STAMP + 3, 6, -0.1]]
    G = free(X, [1, -1])
    assert G.shift.tolist() == [STAMP, 0, 0] and not G.shift.flags.writeable
    assert pickle.loads(pickle.dumps(G)).shift.tolist() == [STAMP, 0, 0]
    assert free([[STAMP, 5], [STAMP + 256, 6]], [1, -1]).shift is None  # these are doubles
    assert fm.gram(X, [1, -1]).restrict(np.array([1])).shift.tolist() == [STAMP, 0, 0]


@pytest.mark.parametrize("C", [np.inf, 0.1])
def test_new_points_may_be_integers_where_the_points_are_floats(C):
    """256 k + STAMP are doubles, and what is between them is scored where it is."""
    X = STAMP + 256.0 * np.array([[0.0], [1.0], [3.0]])
    new = [[STAMP + k] for k in (0, 1, 127, 129, 256)]
    wanted = 1.0 - np.array([0, 1, 127, 129, 256]) / 128.0
    y = [1, -1, -1]
    for G in (free(X, y), free(X, y, fm.gram, kernel="linear")):
        scores = G.decision_function(fm.max_margin(G), new)
        np.testing.assert_allclose(scores / scores[0], wanted, atol=1e-10)
    scores = fm.MaxMarginClassifier("linear", C=C).fit(X, y).decision_function(new)
    np.testing.assert_allclose(scores / scores[0], wanted, atol=1e-10 if C > 1.0 else 1e-4)
    K = fm.kernel_matrix(X, new, gamma=1e-3)
    apart = np.subtract.outer([0, 256, 768], [0, 1, 127, 129, 256])
    np.testing.assert_allclose(K, np.exp(-1e-3 * apart**2.0), rtol=1e-10)
    scores = fm.gram(X, y, gamma=1e-3).decision_function([1.0, 0.0, 0.0], new)
    np.testing.assert_allclose(scores, K[0], rtol=1e-10)


def test_new_points_may_be_floats_where_the_points_are_integers():
    G = free([[STAMP], [STAMP + 70], [STAMP + 140]], [1, -1, -1])
    result = fm.max_margin(G)
    unit = G.decision_function(result, [[STAMP + 34]])[0]
    new = [STAMP + 256.0, STAMP - 512.0, 0.5, 1e100]
    wanted = [float(STAMP + 35 - Fraction(x)) for x in new]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # far points lose in proportion to their distance
        scores = G.decision_function(result, [[Fraction(x) + 1] for x in new])
        np.testing.assert_allclose(scores / unit, [x - 1.0 for x in wanted], rtol=1e-12)
        scores = G.decision_function(result, np.array(new)[:, None])
    np.testing.assert_allclose(scores / unit, wanted, rtol=1e-12)


def test_a_separator_may_bring_an_integer_bias():
    for o in (STAMP, 10**30 + 1, 10**40 + 1):
        G = free([[o], [o + 70]], [1, -1])
        lower, upper = fm.separator_margin(G, [-1, o + 30])
        assert lower <= 30 <= upper < lower + 1e-9
        lower, upper = fm.separator_margin(G, [-1.0])
        assert lower <= 35 <= upper < lower + 1e-9
    with pytest.raises(ValueError, match=r"w must be finite.*row 1 has nan"):
        fm.separator_margin(G, [1.0, np.nan])


def test_a_range_of_integers_may_include_zero():
    """From an origin in double precision, 0 and a time stamp are both at exact distances."""
    result = fm.max_margin(free([[0], [STAMP + 1], [STAMP + 71]], [1, -1, -1]))
    assert result.lower <= Fraction(STAMP + 1, 2) <= result.upper
    G = fm.gram([[0], [STAMP + 1], [STAMP + 71]], [1, 1, -1], gamma=1e-3)
    np.testing.assert_allclose(np.asarray(G)[1, 2], -np.exp(-4.9), rtol=1e-12)
    G = fm.gram([[0], [STAMP + 1], [STAMP + 71]], [1, 1, -1], kernel="laplacian", gamma=0.1)
    np.testing.assert_allclose(np.asarray(G)[1, 2], -np.exp(-7.0), rtol=1e-12)


def test_points_that_are_all_equal_stay_so():
    X = [[STAMP + 1, 2**60 + 1]] * 3
    assert fm.max_margin(free(X, [1, -1, -1])).upper < 1e-9
    assert (fm.kernel_matrix(X, X) == 1.0).all()


HELD_BY_NONE = {  # where a shift would change the result, of points and of labels; and what the points are called
    "gram": (lambda X: fm.gram(X, CLASSES, kernel="linear"), "X"),
    "poly": (lambda X: fm.gram(X, CLASSES, kernel="poly"), "X"),
    "ntk": (lambda X: fm.lazy_gram(X, CLASSES, kernel="ntk"), "X"),
    "callable": (lambda X: fm.gram(X, CLASSES, kernel=lambda A, B: A @ B.T), "X"),
    "features": (lambda X: fm.features(X, CLASSES), "X"),
    "unit": (lambda X: fm.features(X, CLASSES, intercept="free"), "X"),
    "constant": (lambda X: fm.features(X, CLASSES, normalize=None, intercept=1.0), "X"),
    "kernel_matrix": (lambda X: fm.kernel_matrix(X, [[1, 2]], kernel="linear"), "A"),
    "second": (lambda X: fm.kernel_matrix([[1, 2]], X, kernel="poly"), "B"),
    "pair_gram": (lambda X: fm.pair_gram(fm.features(X), [0, 1, 2, 0], 3), "X"),
    "winnow": (lambda X: fm.winnow(X, max_iter=3), "Z"),
    "norm_margin": (lambda X: fm.norm_margin(X, "l1", max_iter=3), "Z"),
    "fit": (
        lambda X: fm.MaxMarginClassifier("linear", C=1.0, fit_intercept=False, tol=0.9).fit(
            X, CLASSES
        ),
        "X",
    ),
}


@pytest.mark.parametrize("entry", HELD_BY_NONE)
@pytest.mark.parametrize("kind", EXACT)
def test_elsewhere_equal_points_are_refused_and_losses_are_said(kind, entry):
    make, offsets = EXACT[kind]
    call, name = HELD_BY_NONE[entry]
    close = moved([[8, 3], [9, 3], [8, 3], [30, 1]], offsets)
    remedy = "subtract a number near them"
    with pytest.raises(ValueError) as caught:
        call(make(close))
    message = str(caught.value)
    assert message.startswith(f"rows 0 and 1 of {name} differ, but they are equal in double")
    assert "column" in message and remedy in message and 'intercept="free"' in message
    apart = moved([[2**55 + 1, 3], [-(2**54), 2], [7, 7], [-(2**57), 4]], (offsets[0] // 4, 0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(make(apart) if kind not in ("uint64",) else make([[abs(x) for x in r] for r in apart]))
    said = [w for w in caught if "is rounded to double precision" in str(w.message)]
    assert len(said) == 1 and said[0].filename == __file__
    column = "'time'" if kind == "frame" and entry not in ("fit",) else "0"
    assert re.search(rf"{name} is .* column {column} loses up to \d+", str(said[0].message))
    assert remedy in str(said[0].message)


def test_the_loss_is_the_largest_one():
    with pytest.warns(UserWarning, match="column 1 loses up to 116, and 1 other column;"):
        fm.features(np.array([[2**53 + 1, STAMP + 140], [5, 7]]), [1, -1])
    with pytest.warns(UserWarning, match="w is rounded .*: it loses up to 1;"):
        fm.separator_margin(fm.FeatureGram([[1.0, -1.0]]), [2**53 + 1, 1])


MATRICES = {
    "G": lambda K: fm.max_margin(K),
    "precomputed": lambda K: fm.gram(K, [1, -1], kernel="precomputed"),
    "FeatureGram": lambda K: fm.FeatureGram(K),
    "alpha": lambda K: fm.certificate(np.eye(2), K[0], [0.5, 0.5]),
    "v": lambda K: fm.FeatureGram(np.eye(2)) @ K,
    "Xnew": lambda K: fm.features(np.eye(2), [1, -1]).decision_function([1.0, 1.0], K),
    "predict": lambda K: (
        fm.MaxMarginClassifier("poly", C=1.0).fit(np.eye(2), [1, -1]).decision_function(K)
    ),
}


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("make", [np.array, lambda K: objects(K, int)])
def test_other_arrays_are_rounded_with_a_warning(name, make):
    with pytest.warns(UserWarning, match="is rounded to double precision: .* loses up to 1"):
        MATRICES[name](make([[2**53 + 1, 1], [1, 2**53 + 3]]))


def test_what_is_ordinary_rounding_is_silent():
    tenths = objects([["0.1"], ["0.2"], ["0.35"]], decimal.Decimal)
    thirds = objects([[1], [5], [7]], lambda x: Fraction(x, 3))
    y = [1, -1, -1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X in (tenths, thirds, np.array([[1], [5], [7]], dtype=np.longdouble) / 3):
            for G in (free(X, y), fm.features(X, y), fm.gram(X, y)):
                assert G.shift is None
        for X in (np.array([[2**53], [-(2**53)], [5]]), [[2.0**80], [1.0], [2]]):
            assert fm.features(X, y).shift is None
        # Factors: weights and ridge
        huge = [2**53 + 1, 2**60 + 1, 2**60 + 7]
        fm.features(X, y, ridge=huge)
        fm.MaxMarginClassifier(C=1.0).fit(X, y, sample_weight=huge)


def test_differences_that_vanish_are_losses_too():
    """Seconds with nanoseconds: whole numbers lose nothing, and what is told apart by 1e-9 is."""
    X = objects([["1700000000.000000001"], ["1700000000.000000003"]], decimal.Decimal)
    result = fm.max_margin(free(X, [1, -1]))
    assert abs(result.lower - 1e-9) < 1e-17 and result.status == "certified"
    with pytest.raises(ValueError, match="rows 0 and 1 of X differ"):
        fm.features(X, [1, -1])
    # Where no difference vanishes, it is that of the decimals all the same.
    X = objects([["1700000000.1"], ["1700000000.2"]], decimal.Decimal)
    lower = fm.max_margin(free(X, [1, -1])).lower
    assert lower <= Fraction(1, 20) and abs(lower - 0.05) < 1e-14


def test_a_range_that_no_shift_brings_into_doubles():
    X = np.array([[2**63 - 1], [2**63 - 2], [-(2**63) + 1], [-(2**63) + 2]])
    for call in (free, fm.gram):
        with pytest.raises(ValueError, match="rows (0 and 1|2 and 3) .* write it as two"):
            call(X, CLASSES)


def test_integers_in_single_precision():
    X = np.array([[2**24, 0], [2**24 + 1, 0], [0, 3]], dtype=np.int32)
    options = {"kernel": "linear", "dtype": np.float32}
    y = [1, -1, 1]
    with pytest.raises(ValueError, match=r"rows 0 and 1 of X .* single .* take dtype=np.float64"):
        fm.lazy_gram(X, y, normalize=None, **options)
    with pytest.warns(UserWarning, match="single precision: column 0 loses up to 1;"):
        fm.lazy_gram(X + [[0, 0], [2, 0], [0, 0]], y, normalize=None, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        free(
            X[:2], [1, -1], fm.lazy_gram, **options
        )  # near each other: from an origin of their own
        fm.lazy_gram(X + 0.5, y, normalize=None, **options)  # no integers
        fm.gram(X, y, normalize=None, **options)  # the matrix is rounded, the points are not


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


# ======================================================================================================
# TABLES
# ======================================================================================================

ON_TABLES = {  # every function that is given signed tables
    "norm_margin": lambda Z, **options: fm.norm_margin(Z, "nuclear", max_iter=3, **options),
    "norm_certificate": lambda Z, **options: fm.norm_certificate(
        Z, "nuclear", np.ones(np.shape(Z)[1:]), np.full(len(Z), 1 / len(Z)), **options
    ),
    "steepest_descent": lambda Z, **options: fm.steepest_descent(Z, "l2", max_iter=3, **options),
}


@pytest.mark.parametrize("function", ON_TABLES)
def test_tables_are_refused_by_name_and_with_a_remedy(function):
    call = ON_TABLES[function]
    tables = np.ones((4, 2, 3))
    bad = tables.copy()
    bad[1, 0, 2] = np.nan
    dates = np.full((4, 2, 3), np.datetime64("2024-01-01"))
    words = tables.astype(object)
    words[2, 1, 0] = "five"
    for given, error, said in (
        (np.ones((4, 2, 3, 1)), ValueError, ["Z", "(n, d)", "(n, k, d)", "(4, 2, 3, 1)"]),
        (np.ones((4, 0, 3)), ValueError, ["Z", "empty", "(4, 0, 3)"]),
        (bad, ValueError, ["Z", "finite", "row 1", "Z[1, 0, 2]"]),
        (dates, TypeError, ["Z", "real numbers", "column (0, 0)", "date", "in seconds"]),
        (words, TypeError, ["Z", "real numbers", "row 2, column (1, 0)", "'five'"]),
        (1e200 * tables, ValueError, ["row 0 of Z", "too large"]),
        (0.0 * tables, ValueError, ["G"]),
    ):
        check_raises(lambda given=given: call(given), error, said)
    said = ["Z", "(4, 2, 3)", "signs already", "leave labels out"]
    check_raises(lambda: call(tables, labels=[0, 1, 0, 1]), ValueError, said)


@pytest.mark.parametrize("function", ON_TABLES)
def test_digits_of_tables_that_are_no_doubles(function):
    call = ON_TABLES[function]
    close = np.array([[[2**60, 1]], [[2**60 + 1, 1]]])
    said = ["rows 0 and 1 of Z differ", "equal in double", "column (0, 0)", "subtract a number"]
    check_raises(lambda: call(close), ValueError, said)
    with pytest.warns(
        UserWarning, match=r"Z is rounded to double precision: column \(0, 0\) loses"
    ):
        call(np.array([[[2**60 + 1, 1]], [[2**61, 1]]]))


OVERLAPPING = fm.features([[1.0, 0.0], [2.0, 0.0], [-1.0, 1.0]], [1, -1, 1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fm.gram(np.eye(3), [0, 1, 2]), "pair_gram"),
        (lambda: fm.gram(np.eye(3), ["a", "b", "c"]), "pair_gram"),
        (lambda: fm.norm_margin(OVERLAPPING, "linf"), r"y\[:, None\] \* X"),
        (lambda: fm.steepest_descent(OVERLAPPING, "linf"), r"y\[:, None\] \* X"),
        (lambda: fm.norm_margin(np.eye(2), "l2", labels=[-1, 1]), r"\(y \+ 1\) // 2"),
        (
            lambda: fm.separator_margin(
                fm.pair_gram(fm.features(np.eye(3)), [0, 1, 2], 3), np.ones((3, 4))
            ),
            r"intercept=1\.0",
        ),
    ],
)
def test_an_error_names_what_takes_the_argument(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_scores_of_a_result_without_a_separator_are_said_to_be_such():
    """Of weights and of a result with a margin they are silent."""
    result = fm.max_margin(OVERLAPPING)
    assert result.status == "infeasible"
    with pytest.warns(UserWarning, match="ridge"):
        OVERLAPPING.decision_function(result, np.eye(2))
    separable = fm.features(np.eye(2), [1, -1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OVERLAPPING.decision_function(result.alpha, np.eye(2))
        separable.decision_function(fm.max_margin(separable), np.eye(2))


def test_restrict_is_g_on_some_of_the_points():
    G = fm.gram(np.array([[1.0, 0.0], [2.0, 1.0], [-1.0, 1.0]]), [1, -1, 1])
    index = np.array([2, 0])
    part = G.restrict(index)
    assert np.array_equal(np.asarray(part), np.asarray(G)[np.ix_(index, index)])
    assert part.labels.tolist() == [1, 1]
