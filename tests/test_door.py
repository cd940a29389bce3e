"""What is refused where it enters: a call, its error, and words of the argument, of the place and of the remedy.

Every function that is given points, numbers, labels or a matrix is tried on everything that is none.  A remedy that is
a line of Python is run as it stands in the message.
"""

import datetime
import decimal
import re
from fractions import Fraction

import numpy as np
import pytest
from instances import check_raises, run

import fastmargin as fm

X = np.array([[0.0, 1.0], [1.0, 0.5], [3.0, -1.0], [4.0, 2.0]])
Y = np.array([1, 1, -1, -1])
K = fm.gram(X)
WHOLE = np.array([[3, 1], [2, 5], [7, 4], [1, 8]])


def fitted():
    return fm.MaxMarginClassifier(C=1.0).fit(X, Y)


class Frame:
    """A data frame, as much of it as is read."""

    def __init__(self, *columns):
        self.columns = ["begin", "end"]
        self.arrays = [np.asarray(column) for column in columns]
        self.dtypes = [array.dtype for array in self.arrays]
        self.shape = len(columns[0]), 2

    def __getitem__(self, index):
        if isinstance(index, str):
            return self.arrays[self.columns.index(index)]
        rows, k = index
        return self.arrays[k][rows]

    def __array__(self, dtype=None, copy=None):
        return np.column_stack(self.arrays)


class Column:
    """A column of another library, which becomes an array of objects."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=object)


class NAType:
    """What pandas has for a missing value, by name: it has no truth value."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


class NaTType(NAType):
    """The missing date of pandas, by name."""


def objects(table):
    return np.array(table.tolist(), dtype=object)


def with_entry(value, table=WHOLE):
    """The table as objects, with a value in row 2, column 1."""
    changed = objects(table)
    changed[2, 1] = value
    return changed


# ======================================================================================================
# POINTS
# ======================================================================================================

POINTS = {  # every function that is given points, and what it calls them
    "gram": (lambda T: fm.gram(T, Y), "X"),
    "callable": (lambda T: fm.gram(T, Y, kernel=lambda A, B: A @ B.T), "X"),
    "features": (lambda T: fm.features(T, Y), "X"),
    "lazy_gram": (lambda T: fm.lazy_gram(T, Y), "X"),
    "kernel_matrix": (lambda T: fm.kernel_matrix(X, T), "B"),
    "training points": (lambda T: fm.kernel_matrix(T, X), "A"),
    "W": (lambda T: fm.gram(X, Y, kernel="ntk", W=T), "W"),
    "Xnew": (lambda T: fm.gram(X, Y).decision_function(np.ones(4), T), "Xnew"),
    "Xnew of rows": (lambda T: fm.features(X, Y).decision_function(np.ones(4), T), "Xnew"),
    "FeatureGram": (lambda T: fm.FeatureGram(T), "rows"),
    "contradiction": (lambda T: fm.contradiction(T, Y), "X"),
    "winnow": (lambda T: fm.winnow(T, eta=0.1, max_iter=3), "Z"),
    "norm_margin": (lambda T: fm.norm_margin(T, "l1", max_iter=3), "Z"),
    "tables": (lambda T: fm.norm_margin(np.asarray(T)[:, None], "nuclear", max_iter=3), "Z"),
    "fit": (lambda T: fm.MaxMarginClassifier().fit(T, Y), "X"),
    "predict": (lambda T: fitted().predict(T), "X"),
    "values of a kernel": (lambda T: fm.gram(X, Y, kernel=lambda A, B: T), "kernel(A, B)"),
}
STAMP = 1_700_000_000_000_000_000
DURATIONS = WHOLE.astype("m8[D]").astype("m8[ns]")
DATES = np.datetime64("2000-01-01") + DURATIONS
UNDATED = np.where(np.eye(4, 2, -1, dtype=bool), np.datetime64("NaT"), DATES)
LONG = STAMP + WHOLE
NO_POINTS = {  # a table, its error, and words of the place, of what is there, and of the remedy
    "int64": (LONG, ValueError, ["row 0", "column 0", "beyond 2**53", "subtract an offset"]),
    "uint64": (LONG.astype(np.uint64), ValueError, ["row 0", "beyond 2**53", "subtract an offset"]),
    "Python's": (with_entry(10**30), ValueError, ["row 2", "beyond 2**53", "subtract an offset"]),
    "list": (LONG.tolist(), ValueError, ["row 0", "beyond 2**53", "subtract an offset"]),
    "list with floats": (
        [[x, 0.5] for x, _ in LONG.tolist()],
        ValueError,
        ["row 0, column 0", "2**53"],
    ),
    "dates": (DATES, TypeError, ["row 0", "date", "in seconds"]),
    "date objects": (
        DATES.astype("M8[us]").astype(object),
        TypeError,
        ["row 0", "date", "in seconds"],
    ),
    "durations": (DURATIONS, TypeError, ["row 0", "duration", "in seconds"]),
    "one duration": (
        with_entry(np.timedelta64(1, "s")),
        TypeError,
        ["row 2", "duration", "in seconds"],
    ),
    "missing date": (UNDATED[[1, 0, 2, 3]], TypeError, ["row 0", "missing", "dropna()"]),
    "None": (with_entry(None), TypeError, ["row 2, column 1", "missing", "dropna()"]),
    "NA": (with_entry(NAType()), TypeError, ["row 2, column 1", "missing", "dropna()"]),
    "NaT": (with_entry(NaTType()), TypeError, ["row 2, column 1", "missing", "dropna()"]),
    "text": (WHOLE.astype(str), (TypeError, ValueError), ["numbers"]),
    "one text": (with_entry("five"), TypeError, ["row 2, column 1", "'five'", "dtype=float"]),
    "decimals": (with_entry(decimal.Decimal("0.1")), TypeError, ["row 2", "0.1", "dtype=float"]),
    "fractions": (with_entry(Fraction(1, 3)), TypeError, ["row 2", "Fraction", "dtype=float"]),
    "dict": (
        with_entry({}),
        TypeError,
        ["row 2", "{}", "argument must be a string or a real number"],
    ),
    "complex": (WHOLE + 1j, (TypeError, ValueError), ["np.real"]),
    "masked": (np.ma.array(WHOLE, mask=WHOLE == 7), TypeError, ["masked", "filled(0.0)"]),
    "nan": (
        np.where(WHOLE == 4, np.nan, WHOLE),
        ValueError,
        ["finite", "row 2", "nan", "isfinite"],
    ),
    "inf": (
        np.where(WHOLE == 4, -np.inf, WHOLE),
        ValueError,
        ["finite", "row 2", "inf", "isfinite"],
    ),
    "single nan": (np.float32(np.where(WHOLE == 4, np.nan, 1)), ValueError, ["finite", "row 2"]),
    "too large": (
        2e100 * WHOLE,
        ValueError,
        ["1.6e+101", "row 3", "column 1", "1e-100 to 1e+100", "rescale"],
    ),
    "too small": (1e-102 * WHOLE, ValueError, ["8e-102", "row 3", "1e-100 to 1e+100", "rescale"]),
}
if np.finfo(np.longdouble).nmant > 52:
    longer = WHOLE.astype(np.longdouble)
    NO_POINTS["longdouble"] = (longer, TypeError, ["row 0", "longdouble", "dtype=float"])


@pytest.mark.parametrize("function", POINTS)
@pytest.mark.parametrize("case", NO_POINTS)
def test_what_is_no_table_of_points(function, case):
    call, name = POINTS[function]
    table, error, words = NO_POINTS[case]
    if function == "values of a kernel" and case.startswith("too"):
        return  # of which K is a matrix
    if function == "tables":
        if case in ("masked", "list with floats"):
            return  # which NumPy has changed
        words = [word for word in words if "column" not in word and "isfinite" not in word]
    check_raises(lambda: call(table), error, [name, *words])


FRAMES = {  # a frame whose first column is none of numbers, its error and words
    "integers": (Frame(LONG[:, 0], [0.5, 1, 2, 3]), ValueError, ["row 0", "beyond 2**53"]),
    "dates": (Frame(DATES[:, 0], DATES[:, 1]), TypeError, ["row 0", "date", "in seconds"]),
    "durations": (Frame(DURATIONS[:, 0], DURATIONS[:, 1]), TypeError, ["row 0", "duration"]),
    "text": (Frame(["a", "b", "a", "b"], ["1", "2", "3", "4"]), TypeError, ["row 0", "'a'"]),
    "missing": (Frame([1, None, 2, 3], [1.0, 2.0, 3.0, 4.0]), TypeError, ["row 1", "missing"]),
}


@pytest.mark.parametrize("function", [name for name in POINTS if name != "tables"])
@pytest.mark.parametrize("case", FRAMES)
def test_a_column_of_a_frame_is_named(function, case):
    call, name = POINTS[function]
    frame, error, words = FRAMES[case]
    check_raises(lambda: call(frame), error, [f"{name}['begin']", *words])


def test_an_entry_of_a_frame_that_is_not_finite_is_named():
    words = ["X", "row 1", "nan", "column 'end'"]
    check_raises(lambda: fm.gram(Frame([1.0, 2.0], [3.0, np.nan]), [1, -1]), ValueError, words)


REMEDIES = {  # a table, the words before the remedy, and what it makes of the table
    "int64": (LONG, "own type, from new points too: ", WHOLE - WHOLE.min(axis=0)),
    "uint64": (
        LONG.astype(np.uint64),
        "own type, from new points too: ",
        WHOLE - WHOLE.min(axis=0),
    ),
    "list": (LONG.tolist(), "own type, from new points too: ", WHOLE - WHOLE.min(axis=0)),
    "mixed list": (
        [[x, 0.5] for x in LONG[:, 0].tolist()],
        "new points too: ",
        [[2, 0], [1, 0], [6, 0], [0, 0]],
    ),
    "dates": (DATES, "in seconds: ", 86400.0 * WHOLE),
    "durations": (DURATIONS, "in seconds: ", 86400.0 * WHOLE),
    "complex": (WHOLE + 1j, "both parts, ", np.column_stack((WHOLE, np.ones((4, 2))))),
    "text": (WHOLE.astype(str), "give ", WHOLE),
    "decimals": (with_entry(decimal.Decimal("0.5")), "give ", np.where(WHOLE == 4, 0.5, WHOLE)),
    "nan": (np.where(WHOLE == 4, np.nan, WHOLE), "keep the others, ", WHOLE[[0, 1, 3]]),
    "too large": (2e100 * WHOLE, "rescale, ", WHOLE / 8),
    "too small": (1e-102 * WHOLE, "rescale, ", WHOLE / 8),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_a_remedy_is_a_line_of_python(case):
    given, before, wanted = REMEDIES[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        fm.gram(given, np.ones(4), kernel="linear", normalize=None)
    remedy = str(caught.value).rpartition(before)[2]
    names = {"np": np, "X": given}
    *before, last = remedy.split("; ")
    exec("; ".join(before), names)
    found = eval(last, names)
    np.testing.assert_allclose(np.asarray(found, dtype=float), wanted, rtol=1e-15)
    fm.contradiction(found, np.ones(len(found)))  # it is taken now


def test_seconds_of_new_points_are_counted_from_the_same_day():
    with pytest.raises(TypeError) as caught:
        fm.gram(DATES, Y)
    remedy = str(caught.value).rpartition("in seconds: ")[2]
    assert np.array_equal(eval(remedy, {"np": np, "X": DATES[1:]}), 86400.0 * WHOLE[1:])


def test_what_is_taken():
    """The same numbers in every form."""
    nullable = Frame(objects(WHOLE[:, 0]), WHOLE[:, 1].astype(np.float64))
    wanted = fm.features(WHOLE.astype(np.float64), Y)
    forms = {
        "list": WHOLE.tolist(),
        "frame": Frame(WHOLE[:, 0], WHOLE[:, 1]),
        "mixed frame": Frame(WHOLE[:, 0], WHOLE[:, 1].astype(np.float32)),
        "nullable": nullable,
        "objects": objects(WHOLE),
        **{kind: WHOLE.astype(kind) for kind in ("int8", "uint16", "int64", "float16", "float32")},
    }
    for name, form in forms.items():
        assert np.array_equal(np.asarray(fm.features(form, Y)), np.asarray(wanted)), name
    assert np.array_equal(fm.features(WHOLE > 2, normalize=None).rows, (WHOLE > 2).astype(float))
    edge = np.array([[2**53, -(2**53)], [1, 0]])
    assert np.array_equal(fm.FeatureGram(edge).rows, edge.astype(np.float64))
    assert np.array_equal(fm.FeatureGram(edge.tolist()).rows, edge.astype(np.float64))
    for size in (1e-100, 1e100):
        assert fm.max_margin(fm.FeatureGram([[size, 0.0]])).lower > 0.99 * size


@pytest.mark.parametrize("shape", [(4,), (4, 2, 1), (0, 2), (4, 0)])
def test_tables_of_another_shape(shape):
    for name in ("gram", "features", "lazy_gram"):
        with pytest.raises(ValueError, match=r"X (must have 2 dimensions|is empty)"):
            getattr(fm, name)(np.ones(shape), np.ones(shape[0]))


# ======================================================================================================
# VECTORS AND NUMBERS
# ======================================================================================================

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
NO_VECTORS = {
    "dates": DATES[:, 0],
    "list of dates": list(DATES[:, 0]),
    "durations": DURATIONS[:, 0],
    "objects": np.array([*DURATIONS[:, 0], None], dtype=object)[:4],
    "text": ["a", "b", "a", "b"],
    "complex": [1j, 1, 1, 1],
    "integers": [2**60 + 1, 1, 1, 1],
}


@pytest.mark.parametrize("function", VECTORS)
@pytest.mark.parametrize("case", NO_VECTORS)
def test_what_is_no_vector(function, case):
    call, name = VECTORS[function]
    check_raises(lambda: call(NO_VECTORS[case]), (TypeError, ValueError), [name])


NO_NUMBERS = {
    "second": np.timedelta64(1, "s"),
    "array": np.array(np.timedelta64(1, "ns")),
    "date": np.datetime64(1, "s"),
    "text": "1.0",
    "None": None,
    "complex": 1j,
}


@pytest.mark.parametrize("case", [case for case in NO_NUMBERS if case != "None"])
def test_what_is_no_number(case):
    value = NO_NUMBERS[case]
    for call, name in (
        (lambda: fm.gram(X, Y, ridge=value), "ridge"),
        (lambda: fm.gram(X, Y, gamma=value), "gamma"),
        (lambda: fm.features(X, Y, intercept=value), "intercept"),
        (lambda: fm.MaxMarginClassifier(C=value).fit(X, Y), "C"),
        (lambda: fm.max_margin(K.signed(Y), tol=value), "tol"),
    ):
        check_raises(call, (TypeError, ValueError), [name])


S = 4.0  # of these points with normalize=None; a ridge may be 4e-16 to 4e16
SHORT = np.array([[2.0, 0.0], [0.0, 1.0]])
RATIOS = {  # a ridge, a weight or a C beside which rounding hides the rest
    "ridge below": (lambda: ridged(1e-16), ["ridge", "1e-16", "4e-16", "np.where"]),
    "ridge above": (lambda: ridged(1e17), ["ridge", "1e+17", "4e+16", "np.minimum"]),
    "one of many": (lambda: ridged([0.0, 1e-20]), ["ridge", "row 1", "1e-20"]),
    "RidgeGram": (lambda: fm.RidgeGram(np.eye(2), 1e-20), ["ridge", "1e-20"]),
    "pairs": (lambda: fm.pair_gram(np.eye(2), [0, 1], 2, ridge=1e30), ["ridge", "1e+30"]),
    "large C": (lambda: fit(C=1e16), ["C=1e+16", "too large", "C=inf"]),
    "small C": (lambda: fit(C=1e-20), ["C=1e-20", "too small", "least"]),
    "weights": (lambda: fit([1.0, 1e-17]), ["sample_weight", "1e-17", "leave lighter points out"]),
    "hard weights": (lambda: fit([1e20, 1.0], C=np.inf), ["sample_weight", "1e+20"]),
    "class_weight": (lambda: fit(class_weight={0: 1e-9, 1: 1e9}), ["class_weight", "1e-09"]),
}


def ridged(ridge):
    return fm.features(SHORT, [1, -1], normalize=None, ridge=ridge)


def fit(weights=None, C=1.0, **options):
    model = fm.MaxMarginClassifier("linear", C=C, intercept_scaling=1e-9, **options)
    return model.fit(SHORT, [0, 1], weights)


@pytest.mark.parametrize("case", RATIOS)
def test_ratios_that_rounding_hides(case):
    call, words = RATIOS[case]
    check_raises(call, ValueError, words)


def test_ratios_that_are_taken():
    for ridge in (4.1e-16, 3.9e16, [0.0, 1.0], 0.0):
        assert fm.max_margin(ridged(ridge)).lower > 0.0
    for options in (
        {"C": 1e15},
        {"C": 1e-15},
        {"weights": [1e-3, 1e12]},
        {"weights": [1e300, 1e299], "C": 1e-300},
    ):
        assert fit(**options).margin_ > 0.0


# ======================================================================================================
# MATRICES
# ======================================================================================================

TILTED = np.array([[1.0, 0.5], [0.5 + 1e-5, 1.0]])
MATRICES = {  # a matrix that is no G, and words
    "vector": (np.ones(3), ["(3,)"]),
    "empty": (np.empty((0, 0)), ["(0, 0)"]),
    "infinite": (np.diag([1.0, np.inf]), ["finite", "row 1"]),
    "list": ([[1, 0], [1, 1]], ["symmetric to 1e-06", "row 1"]),
    "Fortran": (TILTED.T, ["symmetric to 1e-06", "row 1"]),
    "minor": (np.array([[1.0, 1.1], [1.1, 1.0]]), ["positive semi-definite", "row 1"]),
    "not finite": (np.array([[1.0, np.nan], [0.0, 1.0]]), ["finite", "row"]),
    "not symmetric": (TILTED, ["symmetric to 1e-06", "row 1", "double precision", "/ 2"]),
    "not square": (np.ones((2, 3)), ["square", "(2, 3)"]),
    "indefinite": (np.array([[1.0, 2.0], [2.0, 1.0]]), ["positive semi-definite", "row 1"]),
    "negative": (-np.eye(2), ["positive semi-definite", "row 0"]),
    "integers": (np.array([[2**60, 0], [0, 1]]), ["row 0", "beyond 2**53"]),
}
TAKES_MATRIX = {  # every function that is given a matrix, and what it calls it
    **{name: (lambda M, name=name: run(name, M), "G") for name in fm.ALGORITHMS},
    "certificate": (lambda M: fm.certificate(M, [1.0, 1.0], [0.5, 0.5]), "G"),
    "DenseGram": (fm.DenseGram, "G"),
    "pair_gram": (lambda M: fm.pair_gram(M, [0, 1], 2), "G"),
    "precomputed": (lambda M: fm.gram(M, [1, -1], kernel="precomputed", normalize=None), "X"),
    "callable": (
        lambda M: fm.gram(X[:2], [1, -1], kernel=lambda A, B: M, normalize=None),
        "kernel",
    ),
}


@pytest.mark.parametrize("function", TAKES_MATRIX)
@pytest.mark.parametrize("case", MATRICES)
def test_what_is_no_kernel_matrix(function, case):
    call, name = TAKES_MATRIX[function]
    matrix, words = MATRICES[case]
    if case in ("not square", "vector", "empty") and name != "G":
        name = "shape"
        words = []
    if case == "negative" and function == "callable":
        name = "K(x, x)"
        words = ["-1"]
    check_raises(lambda: call(matrix), ValueError, [name, *words])


@pytest.mark.parametrize("size", [1e-201, 1e201, 0.0])
def test_a_matrix_of_a_size_beyond_what_products_allow(size):
    words = ["max_i G_ii", f"{size:g}", "1e-200 to 1e+200", "rescale"]
    check_raises(lambda: fm.momentum(size * np.eye(2)), ValueError, words)
    if size:
        long = np.sqrt(size)
        points = [[long, 0.0], [0.0, long]]
        options = {"kernel": "linear", "normalize": None}
        for call in (
            lambda: fm.max_margin(fm.FeatureGram(points)),
            lambda: fm.gram(points, [1, -1], **options),
            lambda: fm.lazy_gram(points, [1, -1], **options),
        ):
            check_raises(call, ValueError, ["must be from", "rescale"])


def test_an_asymmetry_of_single_precision_is_averaged_away():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 5)) + 2.0
    single = (Z.astype(np.float32) @ Z.T.astype(np.float32)) * (1.0 + 1e-7 * rng.random((30, 30)))
    kept = np.asarray(fm.DenseGram(single))
    assert np.array_equal(kept, kept.T) and kept.dtype == np.float64
    np.testing.assert_allclose(kept, (single + single.T) / 2, rtol=1e-15)
    result = fm.max_margin(single)
    v = result.alpha
    assert result.lower <= (kept @ v).min() / np.sqrt(v @ kept @ v) * (1.0 + 1e-12)
    G = fm.gram(
        Z,
        np.ones(30),
        kernel=lambda A, B: A.astype(np.float32) @ B.T.astype(np.float32),
        normalize=None,
    )
    assert abs(fm.max_margin(G).upper - fm.max_margin(fm.FeatureGram(Z)).upper) < 1e-5


def test_points_with_both_labels_under_a_kernel_in_single_precision():
    """v'Gv may be below 0 by the rounding of values, which is no indefinite kernel."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        Z = rng.normal(size=(6, 40)).astype(np.float32)
        twice = np.vstack((Z, Z))
        y = np.repeat([1, -1], 6)
        G = fm.gram(twice, y, kernel=lambda A, B: np.float32(A) @ np.float32(B).T, normalize=None)
        assert fm.max_margin(G).lower <= 0.0


# ======================================================================================================
# FILES
# ======================================================================================================


def in_file(tmp_path, points):
    np.save(tmp_path / "points.npy", points)
    return np.load(tmp_path / "points.npy", mmap_mode="r")


def test_mapped_points_are_read_in_place_or_refused(tmp_path):
    points = in_file(tmp_path, X)
    assert np.shares_memory(fm.features(points, Y).rows, points)
    assert np.shares_memory(fm.lazy_gram(points, Y).points.rows, points)
    words = ["mapped file", "adds a column", "X = np.array(X)"]
    check_raises(lambda: fm.features(points, Y, intercept=1.0), ValueError, words)
    away = in_file(tmp_path, X + 1e6)
    free = {"normalize": None, "intercept": "free"}
    for call in (
        lambda: fm.features(away, Y, **free),
        lambda: fm.lazy_gram(away, Y, kernel="linear", **free),
    ):
        check_raises(call, ValueError, ["mapped file", "subtracts a point", "X = np.array(X)"])
    for scaling in (None, 1.0):  # the classifier loads them
        model = fm.MaxMarginClassifier("linear", C=1e-6, intercept_scaling=scaling)
        scores = model.fit(away, Y).decision_function(away)
        assert np.array_equal(scores, model.fit(X + 1e6, Y).decision_function(away))


# ======================================================================================================
# LABELS
# ======================================================================================================

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
}
LABELLED = {  # every function that is given labels, and what it calls them
    "gram": (lambda y: fm.gram(X, y), "y"),
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


NO_SIGNS = {  # labels that are not -1 or +1, their error and words
    "zeros and ones": ([0, 1, 0, 1], ValueError, ["-1 or +1", "y[0] is 0", "np.where"]),
    "text": (["a", "b", "a", "b"], TypeError, ["'a' and 'b'", "np.where"]),
    "dates": (DATES[[0, 0, 1, 1], 0], TypeError, ["real numbers", "np.where"]),
    "three": ([0, 1, 2, 1], ValueError, ["3 values", "pair_gram"]),
    "three words": (["a", "b", "c", "a"], TypeError, ["3 values", "pair_gram"]),
    "too few": ([1, -1, 1], ValueError, ["4 entries", "got 3"]),
    "swapped": (X, ValueError, ["y"]),
}


@pytest.mark.parametrize("function", ["gram", "features", "free", "lazy_gram", "signed"])
@pytest.mark.parametrize("case", NO_SIGNS)
def test_labels_that_are_no_signs(function, case):
    labels, error, words = NO_SIGNS[case]
    check_raises(lambda: LABELLED[function][0](labels), error, words)
    with pytest.raises(error) as caught:
        LABELLED[function][0](labels)
    remedy = re.search(r"np\.where\(.*, 1, -1\)", str(caught.value))
    if remedy:
        low = np.asarray(labels) == min(labels)
        assert np.array_equal(eval(remedy[0], {"np": np, "y": labels}), np.where(low, -1, 1))


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


@pytest.mark.parametrize("table", [DATES, DURATIONS], ids=["dates", "durations"])
def test_dates_are_labels_where_labels_may_be_of_any_type(table):
    y = table[[0, 0, 1, 1], 0]
    chosen = fm.MaxMarginClassifier().fit(X, y)
    assert np.array_equal(chosen.predict(X), y) and chosen.score(X, y) == 1.0
    assert fm.contradiction(X[[0, 1, 0]], y[1:]) == (0, 2)


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
