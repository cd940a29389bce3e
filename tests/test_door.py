"""What is refused where it enters: a call, its error, and words of the argument, of the place and of the remedy.

Every function that is given points, numbers, labels or a matrix is tried on what is none.  A remedy that is a line of
Python is run as it stands in the message.
"""

import datetime
import decimal
import itertools
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from instances import (
    BY_ROWS,
    CALLS,
    REPRESENTATIONS,
    Own,
    algorithm_of,
    check_raises,
    in_file,
    rotate,
    rows_of,
    run,
)

import fastmargin as fm

X = np.array([[0.0, 1.0], [1.0, 0.5], [3.0, -1.0], [4.0, 2.0]])
Y = np.array([1, 1, -1, -1])
K = fm.gram(X)
WHOLE = np.array([[3, 1], [2, 5], [7, 4], [1, 8]])
EYE = np.eye(4)
NAN = float("nan")
INF = float("inf")
OWN = {"kernel": "precomputed"}


class LinearSVC:
    """A model of another library, as much of it as is looked at."""

    def predict(self, X):
        """Never called."""


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


def beside(functions, cases, whole):
    """All functions refuse by the same code: those that are whole meet every case, the others each fifth, in turn."""
    rows = itertools.product(enumerate(functions), enumerate(cases))
    chosen = [(f, case) for (i, f), (k, case) in rows if f in whole or (i + k) % 5 == 0]
    return pytest.mark.parametrize("function, case", chosen)


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
    "Xnew": (lambda T: fm.gram(X, Y).decision_function(np.ones(4), T), "Xnew"),
    "Xnew of rows": (lambda T: fm.features(X, Y).decision_function(np.ones(4), T), "Xnew"),
    "signed rows": (lambda T: fm.features(T, 1, normalize=None), "X"),
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
NO_POINTS = {  # a table, its error, and words of the place and of the remedy
    "int64": (LONG, ValueError, "row 0 column 0 beyond 2**53 subtract an offset"),
    "uint64": (LONG.astype(np.uint64), ValueError, "row 0 beyond 2**53 subtract an offset"),
    "Python's": (with_entry(10**30), ValueError, "row 2 beyond 2**53 subtract an offset"),
    "list": (LONG.tolist(), ValueError, "row 0 beyond 2**53 subtract an offset"),
    "list with floats": ([[x, 0.5] for x, _ in LONG.tolist()], ValueError, "row 0, column 0 2**53"),
    "dates": (DATES, TypeError, "row 0 date in seconds"),
    "date objects": (DATES.astype("M8[us]").astype(object), TypeError, "row 0 date in seconds"),
    "durations": (DURATIONS, TypeError, "row 0 duration in seconds"),
    "one duration": (with_entry(np.timedelta64(1, "s")), TypeError, "row 2 duration in seconds"),
    "missing date": (UNDATED[[1, 0, 2, 3]], TypeError, "row 0 missing dropna()"),
    "None": (with_entry(None), TypeError, "row 2, column 1 missing SimpleImputer dropna()"),
    "NA": (with_entry(NAType()), TypeError, "row 2, column 1 missing dropna()"),
    "NaT": (with_entry(NaTType()), TypeError, "row 2, column 1 missing dropna()"),
    "text": (WHOLE.astype(str), (TypeError, ValueError), "numbers"),
    "one text": (with_entry("five"), TypeError, "row 2, column 1 'five' pandas.get_dummies"),
    "decimals": (with_entry(decimal.Decimal("0.1")), TypeError, "row 2 0.1 dtype=float"),
    "fractions": (with_entry(Fraction(1, 3)), TypeError, "row 2 Fraction dtype=float"),
    "dict": (with_entry({}), TypeError, "row 2 {} argument must be a string or a real number"),
    "complex": (WHOLE + 1j, ValueError, "row 0, column 0 Complex data not supported np.real"),
    "masked": (np.ma.array(WHOLE, mask=WHOLE == 7), TypeError, "masked filled(0.0)"),
    "nan": (np.where(WHOLE == 4, np.nan, WHOLE), ValueError, "finite row 2 nan isfinite"),
    "inf": (np.where(WHOLE == 4, -np.inf, WHOLE), ValueError, "finite row 2 inf isfinite"),
    "single nan": (np.float32(np.where(WHOLE == 4, np.nan, 1)), ValueError, "finite row 2"),
    "too large": (2e100 * WHOLE, ValueError, "row 3 column 1 rescale"),
    "too small": (1e-102 * WHOLE, ValueError, "row 3 rescale"),
}
if np.finfo(np.longdouble).nmant > 52:
    longer = WHOLE.astype(np.longdouble)
    NO_POINTS["longdouble"] = (longer, TypeError, "row 0 longdouble dtype=float")


@beside(POINTS, NO_POINTS, whole=["features", "tables", "values of a kernel"])
def test_what_is_no_table_of_points_is_refused(function, case):
    call, name = POINTS[function]
    table, error, words = NO_POINTS[case]
    if function == "values of a kernel" and case.startswith("too"):
        return  # of which K is a matrix
    if function == "tables":
        if case in ("masked", "list with floats"):
            return  # which NumPy has changed
        words = re.sub(r"column \d|isfinite", "", words)
    check_raises(lambda: call(table), error, f"{name} {words}")


REMEDIES = {  # a table, the words before the remedy, and what it makes of the table
    "int64": (LONG, "own type, from new points too: ", WHOLE - WHOLE.min(axis=0)),
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
    "nan": (np.where(WHOLE == 4, np.nan, WHOLE), "keep the other rows, ", WHOLE[[0, 1, 3]]),
    "images": (np.arange(16).reshape(4, 2, 2), "image or table, ", np.arange(16).reshape(4, 4)),
    "images in a list": (
        np.arange(32).reshape(4, 2, 2, 2).tolist(),
        "image or table, ",
        np.arange(32).reshape(4, 8),
    ),
    "nan in a list": (
        np.where(WHOLE == 4, np.nan, WHOLE).tolist(),
        "keep the other rows, ",
        WHOLE[[0, 1, 3]],
    ),
    "too large": (2e100 * WHOLE, "rescale all points alike, ", WHOLE / 8),
    "too small": (1e-102 * WHOLE, "rescale all points alike, ", WHOLE / 8),
    "large list": ((2e100 * WHOLE).tolist(), "rescale all points alike, ", WHOLE / 8),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_a_remedy_is_a_line_of_python(case):
    given, before, wanted = REMEDIES[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        fm.gram(given, np.ones(4), kernel="linear", normalize=None)
    remedy = str(caught.value).rpartition(before)[2]
    names = {"np": np, "X": given}
    *before, last = remedy.removesuffix(", and the same rows of y").split("; ")
    exec("; ".join(before), names)
    found = eval(last, names)
    np.testing.assert_allclose(np.asarray(found, dtype=float), wanted, rtol=1e-15)
    fm.contradiction(found, np.ones(len(found)))  # it is taken now


@pytest.mark.parametrize("value", [NAN, INF])
def test_an_imputer_is_named_for_missing_values_of_points_alone(value):
    """It fills in no infinite values, and no values of a kernel."""
    points = np.where(WHOLE == 4, value, WHOLE)
    for table, options, wanted in ((points, {}, value is NAN), (EYE + value, OWN, False)):
        with pytest.raises(ValueError, match="finite") as caught:
            fm.gram(table, Y, **options)
        assert ("SimpleImputer" in str(caught.value)) == wanted


def test_seconds_of_new_points_are_counted_from_the_same_day():
    with pytest.raises(TypeError) as caught:
        fm.gram(DATES, Y)
    remedy = str(caught.value).rpartition("in seconds: ")[2]
    assert np.array_equal(eval(remedy, {"np": np, "X": DATES[1:]}), 86400.0 * WHOLE[1:])


def test_the_same_numbers_are_taken_in_every_form():
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
    assert np.array_equal(
        fm.features(WHOLE > 2, normalize=None).store.rows, (WHOLE > 2).astype(float)
    )
    edge = np.array([[2**53, -(2**53)], [1, 0]])
    assert np.array_equal(fm.features(edge, 1, normalize=None).store.rows, edge.astype(np.float64))
    assert np.array_equal(
        fm.features(edge.tolist(), 1, normalize=None).store.rows, edge.astype(np.float64)
    )
    for size in (1e-100, 1e100):
        assert fm.max_margin(fm.features([[size, 0.0]], 1, normalize=None)).lower > 0.99 * size


@pytest.mark.parametrize("shape", [(4,), (4, 2, 1), (0, 2), (4, 0)])
def test_tables_of_another_shape_are_refused(shape):
    for name in ("gram", "features", "lazy_gram"):
        with pytest.raises(ValueError, match=r"X (must have 2 dimensions|is empty)"):
            getattr(fm, name)(np.ones(shape), np.ones(shape[0]))


# ======================================================================================================
# VECTORS AND NUMBERS
# ======================================================================================================

VECTORS = {  # every function that is given a number for each point, and what it calls them
    "ridge": (lambda v: fm.gram(X, Y, ridge=v), "ridge"),
    "with_ridge": (lambda v: K.with_ridge(v), "ridge"),
    "sample_weight": (lambda v: fm.MaxMarginClassifier(C=1.0).fit(X, Y, v), "sample_weight"),
    "score": (lambda v: fitted().score(X, Y, v), "sample_weight"),
    "alpha": (lambda v: fm.certificate(np.eye(4), v, np.full(4, 0.25)), "alpha"),
    "p": (lambda v: fm.certificate(np.eye(4), np.ones(4), v), "p"),
    "result": (lambda v: fm.gram(X, Y).decision_function(v, X), "result"),
    "separator": (lambda v: fm.separator_margin(fm.features(np.eye(4), 1, normalize=None), v), "w"),
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


@beside(VECTORS, NO_VECTORS, whole=["y", "ridge", "alpha"])
def test_what_is_no_vector_is_refused(function, case):
    call, name = VECTORS[function]
    check_raises(lambda: call(NO_VECTORS[case]), (TypeError, ValueError), [name])


NO_NUMBERS = {
    "second": np.timedelta64(1, "s"),
    "array": np.array(np.timedelta64(1, "ns")),
    "date": np.datetime64(1, "s"),
    "text": "1.0",
    "complex": 1j,
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_what_is_no_number_is_refused(case):
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
    "ridge below": (lambda: ridged(1e-16), "ridge np.where"),
    "ridge above": (lambda: ridged(1e17), "ridge np.minimum"),
    "one of many": (lambda: ridged([0.0, 1e-20]), "ridge row 1"),
    "with_ridge": (lambda: fm.Gram(np.eye(2)).with_ridge(1e-20), "ridge"),
    "pairs": (lambda: fm.pair_gram(np.eye(2), [0, 1], 2, ridge=1e30), "ridge"),
    "cost below": (lambda: with_cost(1e-17), "cost np.clip"),
    "cost above": (lambda: with_cost(1e16), "cost np.clip"),
    "no cost": (lambda: with_cost(0.0), "cost is 0 at row 0"),
    "one cost of many": (lambda: with_cost([1.0, 0.0]), "cost row 1"),
    "cost below 0": (lambda: with_cost(-1.0), "cost -1"),
    "cost not finite": (lambda: with_cost([1.0, np.inf]), "cost inf"),
    "cost of pairs": (lambda: fm.pair_gram(np.eye(2), [0, 1], 2, cost=1e30), "cost"),
    "large C": (lambda: fit(C=1e16), "C C=inf"),
    "small C": (lambda: fit(C=1e-20), "C"),
    "large C of squares": (lambda: squared(C=1e16), "C C=inf"),
    "small C of squares": (lambda: squared(C=1e-20), "C"),
    "loss": (lambda: fit(loss="log"), "loss log hinge squared_hinge"),
    "weights": (lambda: fit([1.0, 1e-17]), "sample_weight leave lighter points out"),
    "hard weights": (lambda: fit([1e20, 1.0], C=np.inf), "sample_weight"),
    "class_weight": (lambda: fit(class_weight={0: 1e-9, 1: 1e9}), "class_weight"),
}


def with_cost(cost):
    return fm.features(SHORT, [1, -1], normalize=None, cost=cost)


def ridged(ridge):
    return fm.features(SHORT, [1, -1], normalize=None, ridge=ridge)


def fit(weights=None, C=1.0, **options):
    model = fm.MaxMarginClassifier("linear", C=C, intercept_scaling=1e-9, **options)
    return model.fit(SHORT, [0, 1], weights)


def squared(C):
    return fit(C=C, loss="squared_hinge")


@pytest.mark.parametrize("case", RATIOS)
def test_ratios_that_rounding_hides_are_refused(case):
    call, words = RATIOS[case]
    check_raises(call, ValueError, words)


@pytest.mark.filterwarnings("ignore:no margin", "ignore:the margin is known")
@pytest.mark.parametrize("weights", [None, [1.0, 3e-7]])
def test_bounds_that_an_error_names_are_taken(weights):
    """Those of C as printed, also where G_ii makes them round numbers; what is left out by the floor of weights."""
    # With the first two, 1/(2 C) at the bound is rounded out of its range.
    for size in (5e4, 4.166666666666667, *np.random.default_rng(0).uniform(0.1, 10.0, 20)):
        K = size * np.eye(2)
        model = fm.MaxMarginClassifier("precomputed", C=1e40, fit_intercept=False)
        with pytest.raises(ValueError) as caught:
            model.fit(K, [0, 1], weights)
        named = re.search(r"from (\S+) to (\S+), because max_i G_ii", str(caught.value)).groups()
        for bound, beyond in zip(map(float, named), (0.8, 1.25), strict=True):
            model.set_params(C=bound).fit(K, [0, 1], weights)
            with pytest.raises(ValueError, match=r"\bC=.* must be"):
                model.set_params(C=beyond * bound).fit(K, [0, 1], weights)


def test_weights_above_the_floor_that_an_error_names_are_taken():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 40)
    weights = 10.0 ** rng.uniform(-20.0, 0.0, 40)
    y[:2] = 0
    weights[:2] = 1.4, 1.2e-16  # the floor is 1.4e-13
    model = fm.MaxMarginClassifier(C=1.0, class_weight={0: 1e3, 1: 1e-2})
    with pytest.raises(ValueError) as caught:
        model.fit(rng.normal(size=(40, 2)), y, weights)
    floor = float(re.search(r"below ([^ ,]+),", str(caught.value))[1])
    is_kept = weights * np.where(y, 1e-2, 1e3) >= floor
    assert 2 < np.count_nonzero(is_kept) < 40
    model.fit(rng.normal(size=(40, 2)), y, np.where(is_kept, weights, 0.0))


def test_ratios_that_rounding_leaves_are_taken():
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
    "vector": (np.ones(3), "(3,)"),
    "empty": (np.empty((0, 0)), "(0, 0)"),
    "infinite": (np.diag([1.0, np.inf]), "finite row 1"),
    "list": ([[1, 0], [1, 1]], "symmetric row 1"),
    "Fortran": (TILTED.T, "symmetric row 1"),
    "minor": (np.array([[1.0, 1.1], [1.1, 1.0]]), "positive semi-definite row 1"),
    "not finite": (np.array([[1.0, np.nan], [0.0, 1.0]]), "finite row"),
    "not symmetric": (TILTED, "symmetric row 1 double precision / 2"),
    "not square": (np.ones((2, 3)), "square (2, 3)"),
    "indefinite": (np.array([[1.0, 2.0], [2.0, 1.0]]), "positive semi-definite row 1"),
    "negative": (-np.eye(2), "positive semi-definite row 0"),
    "integers": (np.array([[2**60, 0], [0, 1]]), "row 0 beyond 2**53"),
}
TAKES_MATRIX = {  # every function that is given a matrix, and what it calls it
    **{name: (lambda M, name=name: run(name, M), "G") for name in fm.ALGORITHMS},
    "certificate": (lambda M: fm.certificate(M, [1.0, 1.0], [0.5, 0.5]), "G"),
    "Gram": (fm.Gram, "G"),
    "pair_gram": (lambda M: fm.pair_gram(M, [0, 1], 2), "G"),
    "precomputed": (lambda M: fm.gram(M, [1, -1], kernel="precomputed", normalize=None), "X"),
    "callable": (
        lambda M: fm.gram(X[:2], [1, -1], kernel=lambda A, B: M, normalize=None),
        "kernel",
    ),
}


@beside(TAKES_MATRIX, MATRICES, whole=["Gram", "certificate", "precomputed", "callable"])
def test_what_is_no_kernel_matrix_is_refused(function, case):
    call, name = TAKES_MATRIX[function]
    matrix, words = MATRICES[case]
    if case in ("not square", "vector", "empty") and name != "G":
        name = "shape"
        words = ""
    check_raises(lambda: call(matrix), ValueError, f"{name} {words}")


@pytest.mark.parametrize("size", [1e-201, 1e201, 0.0])
def test_a_matrix_of_a_size_beyond_what_products_allow_is_refused(size):
    words = "max_i G_ii rescale unless all are 0"
    check_raises(lambda: fm.momentum(size * np.eye(2)), ValueError, words)
    if size:
        long = np.sqrt(size)
        points = [[long, 0.0], [0.0, long]]
        options = {"kernel": "linear", "normalize": None}
        for call in (
            lambda: fm.max_margin(fm.features(points, 1, normalize=None)),
            lambda: fm.gram(points, [1, -1], **options),
            lambda: fm.lazy_gram(points, [1, -1], **options),
        ):
            check_raises(call, ValueError, ["must be from", "rescale"])


def test_rows_and_columns_in_different_orders_are_told_to_be_put_in_one():
    """The mean with the transpose would be no kernel matrix; of a small asymmetry it is one."""
    values = np.exp(-np.square(np.arange(4.0)[:, None] - np.arange(4.0)))
    for order in itertools.permutations(range(4)):
        shuffled = values[list(order)]
        if not np.array_equal(shuffled, shuffled.T):
            words = ["symmetric to 1e-06", "same order", "X.loc[X.columns]"]
            check_raises(lambda K=shuffled: fm.gram(K, Y, **OWN), ValueError, words)
    small = values + 1e-3 * np.triu(np.ones((4, 4)), 1)
    check_raises(lambda: fm.gram(small, Y, **OWN), ValueError, ["(X + X.T) / 2"])
    kernel = lambda A, B: np.triu(np.ones((4, 4)))  # noqa: E731
    check_raises(lambda: fm.gram(X, Y, kernel=kernel), ValueError, ["symmetric", "/ 2"])


def test_an_asymmetry_of_single_precision_is_averaged_away():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 5)) + 2.0
    single = (Z.astype(np.float32) @ Z.T.astype(np.float32)) * (1.0 + 1e-7 * rng.random((30, 30)))
    kept = np.asarray(fm.Gram(single))
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
    assert (
        abs(fm.max_margin(G).upper - fm.max_margin(fm.features(Z, 1, normalize=None)).upper) < 1e-5
    )


def test_points_with_both_labels_have_no_margin_under_a_kernel_in_single_precision():
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


def test_mapped_points_are_read_in_place_or_refused():
    points = in_file(X)
    assert np.shares_memory(fm.features(points, Y).store.rows, points)
    assert np.shares_memory(fm.lazy_gram(points, Y).store.prepared.rows, points)
    one, two = (fm.features(given, Y, intercept=1.0) for given in (points, np.array(points)))
    assert np.shares_memory(one.store.rows, points)
    assert np.array_equal(one.dense(), two.dense())
    away = in_file(X + 1e6)
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
    "pair_gram": (lambda y: fm.pair_gram(K, y, 2), "labels"),
    "norm_margin": (lambda y: fm.norm_margin(X, "l1", labels=y, max_iter=3), "labels"),
    "contradiction": (lambda y: fm.contradiction(X, y), "y"),
    "classifier": (lambda y: fm.MaxMarginClassifier().fit(X, y), "y"),
    "score": (lambda y: fitted().score(X, y), "y"),
}


@beside(LABELLED, MISSING, whole=["gram", "classifier", "contradiction"])
def test_missing_labels_are_refused_by_name_and_row(function, case):
    call, name = LABELLED[function]
    words = [f"Input {name} contains NaN", "row 2", "leave such points out"]
    check_raises(lambda: call(MISSING[case]), ValueError, words)


@pytest.mark.parametrize("function", LABELLED)
@pytest.mark.parametrize("kind", [float, bool, object, np.uint8])
def test_one_hot_labels_are_told_to_be_numbers(function, kind):
    call, name = LABELLED[function]
    table = np.eye(3, dtype=kind)[[0, 2, 1, 2]]
    with pytest.raises(ValueError, match="one-hot") as caught:
        call(table)
    remedy = str(caught.value).rpartition("numbers of the classes, ")[2]
    for form in (table, table.tolist()):
        assert eval(remedy, {"np": np, name: form}).tolist() == [0, 2, 1, 2]
    for other in (np.ones((4, 2)), np.full((4, 2), 0.5), np.zeros((4, 2)), [["a", "b"]] * 4):
        with pytest.raises((TypeError, ValueError)) as caught:
            call(other)
        assert "one-hot" not in str(caught.value)


NO_SIGNS = {  # labels that are not -1 or +1, their error and words
    "zeros and ones": ([0, 1, 0, 1], ValueError, "-1 or +1 y[0] is 0 np.where"),
    "uint8": (np.array([0, 1, 0, 1], np.uint8), ValueError, "y[0] is 0 np.where"),
    "floats": ([1.5, -1.0, 1.5, -1.0], ValueError, "y[0] is 1.5 np.where"),
    "booleans": ([True, False, True, True], ValueError, "y[1] is 0 np.where"),
    "text": (["a", "b", "a", "b"], TypeError, "'a' and 'b' np.where"),
    "objects": (np.array(["b", "a", "b", "a"], object), TypeError, "'a' and 'b' np.where"),
    "one other": ([0, 0, 0, 0], ValueError, "y[0] is 0 no other value both classes"),
    "masked": (np.ma.array(["a", "b", "a", "b"]), TypeError, "y masked"),
    "dates": (DATES[[0, 0, 1, 1], 0], TypeError, "real numbers np.where"),
    "three": ([0, 1, 2, 1], ValueError, "3 values pair_gram"),
    "three words": (["a", "b", "c", "a"], TypeError, "3 values pair_gram"),
    "too few": ([1, -1, 1], ValueError, "4 entries got 3"),
    "swapped": (X, ValueError, "y"),
}


@pytest.mark.parametrize("function", ["gram", "features", "free", "lazy_gram", "signed"])
@pytest.mark.parametrize("case", NO_SIGNS)
def test_labels_that_are_no_signs_are_refused_with_a_remedy(function, case):
    labels, error, words = NO_SIGNS[case]
    check_raises(lambda: LABELLED[function][0](labels), error, words)
    with pytest.raises(error) as caught:
        LABELLED[function][0](labels)
    remedy = re.search(r"np\.where\(.*, 1, -1\)", str(caught.value))
    assert bool(remedy) == ("np.where" in words or case == "dates")
    if remedy:
        low = np.asarray(labels) == min(labels)
        assert np.array_equal(eval(remedy[0], {"np": np, "y": labels}), np.where(low, -1, 1))


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


CLASSES = {  # three forms of the same classes, which are equal
    "numbers": ([0, 0, 1, 1], [False, False, True, True], [0.0, 0.0, 1.0, 1.0]),
    "text": (["0", "0", "1", "1"], np.array(["0", "0", "1", "1"], object), np.array(list("0011"))),
    "bytes": ([b"0", b"0", b"1", b"1"], np.array([b"0", b"0", b"1", b"1"], object), (b"0",) * 4),
    "date": (np.array([0, 0, 1, 1], "M8[D]"), [DAY] * 4, np.array([0, 0, 1, 1], "M8[s]")),
    "duration": (np.array([0, 0, 1, 1], "m8[D]"), np.array([0, 0, 1, 1], "m8[D]").astype(object)),
}


@pytest.mark.parametrize("known", CLASSES)
@pytest.mark.parametrize("given", CLASSES)
def test_labels_of_another_type_than_classes_have_no_score(known, given):
    """They are never equal, so that a score would be 0; labels beside those of the right type are told, too."""
    model = fm.MaxMarginClassifier().fit(X, CLASSES[known][0])
    for y in CLASSES[given]:
        if given == known:
            assert model.score(X, y) in (0.0, 0.5, 1.0)
            continue
        words = ["y holds", given, "classes_", known]
        check_raises(lambda y=y: model.score(X, y), TypeError, words)
        mixed = np.array([*CLASSES[known][0]], dtype=object)
        mixed[1] = np.asarray(y, dtype=object)[1]
        check_raises(lambda y=mixed: model.score(X, y), TypeError, words)
    if {known, given} == {"numbers", "text"}:
        with pytest.raises(TypeError) as caught:
            model.score(X, CLASSES[given][0])
        remedy = str(caught.value).rpartition("had in fit, ")[2]
        y = eval(remedy, {"np": np, "model": model, "y": CLASSES[given][0]})
        assert model.score(X, y) == model.score(X, CLASSES[known][0]) == 1.0


MEASURED = {  # numbers that name no classes
    "list": [0.5, 1.0, 2.25, 2.0],
    "objects": np.array([1, 0.5, 2, 2.25], dtype=object),
    "decimals": [decimal.Decimal("0.5"), 1, decimal.Decimal("2.25"), 2],
    "fractions": [Fraction(1, 2), Fraction(1), Fraction(9, 4), Fraction(2)],
    "infinite objects": np.array([1, INF, 1, 1], dtype=object),
    "single precision": np.float32([0.5, 1.0, 2.25, 2.0]),
}


@pytest.mark.parametrize("case", MEASURED)
def test_measured_numbers_are_no_classes(case):
    y = MEASURED[case]
    words = ["Unknown label type: continuous", "np.median", "regressor", "LabelEncoder"]
    for call in (lambda: fm.MaxMarginClassifier().fit(X, y), lambda: fitted().score(X, y)):
        check_raises(call, ValueError, words)
    if not case.startswith("infinite"):
        above = np.asarray(y) > np.median(y)
        numbers = np.unique(y, return_inverse=True)[1]
        for classes in (above, numbers):
            assert fm.MaxMarginClassifier().fit(X, classes).score(X, classes) == 1.0


@pytest.mark.parametrize(
    "y", [np.arange(30), np.arange(30).astype(str), np.arange(30).astype(object)]
)
def test_too_many_classes_are_told_before_they_are_told_apart(y, monkeypatch):
    """At once: 300 classes of one point each took 10 seconds."""
    monkeypatch.setattr(fm, "max_margin", None)
    points = np.random.default_rng(0).normal(size=(30, 2))
    with (
        pytest.warns(UserWarning, match="classes for 30 points.*regressor"),
        pytest.raises(TypeError),
    ):
        fm.MaxMarginClassifier().fit(points, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for few, labels in ((20, y[:20]), (30, np.arange(30) // 2)):
            with pytest.raises(TypeError):
                fm.MaxMarginClassifier().fit(points[:few], labels)


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
def test_points_and_labels_that_are_swapped_are_refused_as_such(call, form):
    check_raises(
        lambda: call(form(Y), form(X)), ValueError, ["X and y", "swapped", "(4,)", "(4, 2)"]
    )


# ======================================================================================================
# ONE CALL EACH
# ======================================================================================================

ZERO = np.array([[2.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 3.0]])  # rows without length
UNIFORM = np.full(4, 0.25)
FLAT = {"kernel": "linear", "normalize": None}


def linear(A, B):
    return A @ B.T


def single(A, B):
    return (A @ B.T).astype(np.float32)


def scores(points, new, weights=(1.0, 1.0, 1.0, 1.0), **options):
    return fm.gram(points, Y, **{"normalize": None, **options}).decision_function(weights, new)


def chosen(points=X, y=Y, weights=None, **options):
    return fm.MaxMarginClassifier(**options).fit(points, y, weights)


def on_tables(Z, **options):
    return fm.norm_margin(Z, "nuclear", max_iter=3, **options)


def norm_certificate(w=(1.0, 1.0), p=UNIFORM, Z=X, **options):
    return fm.norm_certificate(Z, "l1", w, p, **options)


def certified(alpha=UNIFORM, p=UNIFORM):
    return fm.certificate(EYE, alpha, p)


def lacking(**changes):
    return type("Lacking", (Own,), changes)(EYE)


def without_d():
    G = Own(EYE)
    G.d = None
    return G


REFUSED = (TypeError, ValueError, IndexError)
POINTS_FAR = X + 100.0
FREE = {"normalize": None, "intercept": "free"}
TABLES = np.ones((4, 2, 3))
ROWS = fm.features(X, 1, normalize=None)
PAIRS = fm.pair_gram(fm.features(EYE), [0, 1, 2, 0], 3)
RESULT = fm.perceptron(fm.Gram(EYE), max_iter=1)


def refused(error, words, *calls):
    """Rows of the table: calls whose error has these words."""
    return [(error, words, call) for call in calls]


def each(function, error, **options):
    """Rows of the table: calls with one option of a list, whose error names it."""
    return [
        (error, name, lambda name=name, value=value: function(**{name: value}))
        for name, values in options.items()
        for value in values
    ]


def some(function, *args, **others):
    """A function of further options."""
    return lambda **options: function(*args, **{**others, **options})


of_gram = some(fm.gram, X, Y)
of_poly = some(fm.gram, X, Y, kernel="poly")
of_classifier = some(chosen)
NOT_POSITIVE = [0.0, -1.0, NAN, INF]

REFUSALS = {  # by what is wrong: calls, their error, and words of the argument, the place and the remedy
    "kernel": [
        *each(of_gram, ValueError, kernel=["cubic", None], normalize=["l2"], sigma2=[1e-320]),
        *each(of_gram, ValueError, gamma=[*NOT_POSITIVE[:3], "wide"], sigma2=[0.0, INF]),
        *each(of_gram, TypeError, gamma=[[1.0, 2.0]], degree=[2]),
        *each(of_poly, ValueError, coef0=[-1.0], degree=[0, True]),
        *each(of_poly, TypeError, degree=[2.0]),
        *each(some(fm.gram, EYE, Y, **OWN), TypeError, gamma=[1.0]),
        (ValueError, "K(x, x) parameters", lambda: of_poly(coef0=1e90)),
        (ValueError, "gamma sigma2 both", lambda: of_gram(gamma=1.0, sigma2=1.0)),
        (TypeError, "gamma 'linear'", lambda: of_gram(kernel="linear", gamma=1.0)),
        (TypeError, "gamma 'ntk'", lambda: fm.lazy_gram(X, kernel="ntk", gamma=1.0)),
        (TypeError, "W function MANUAL.md", lambda: of_gram(kernel="ntk", W=EYE)),
        (TypeError, "gamma functools.partial", lambda: of_gram(kernel=linear, gamma=1.0)),
        (ValueError, "lazy_gram gram(X, y", lambda: fm.lazy_gram(X, kernel="precomputed")),
        (ValueError, "lazy_gram gram(X, y", lambda: fm.lazy_gram(X, kernel=linear)),
        (ValueError, "kernel", lambda: of_gram(kernel=lambda A, B: A)),
        (ValueError, "kernel", lambda: of_gram(kernel=lambda A, B: np.ones(4))),
        (ValueError, "kernel", lambda: fm.kernel_matrix(X, X, kernel=lambda A, B: A)),
        (ValueError, "kernel", lambda: scores(X, X, kernel=lambda A, B: linear(A, B)[:3, :3])),
    ],
    "other options of G": [
        (TypeError, "C cost=C ridge=1/(2*C) MaxMarginClassifier", lambda: of_gram(C=1.0)),
        (TypeError, "C ridge=1/(2*C)", lambda: fm.lazy_gram(X, Y, C=1.0)),
        (TypeError, "y 'rbf' label names", lambda: fm.gram(X, "rbf")),
        (ValueError, "p", lambda: fm.certificate(fm.features(X, Y, **FREE), *EYE[:2])),
        *each(of_gram, TypeError, intercept=[True, np.bool_(False), None], ridge=["much", None]),
        *each(of_gram, ValueError, intercept=["none", -1.0, NAN, INF, 1e120, 1e-120]),
        *each(of_gram, ValueError, ridge=[-1.0, NAN, INF, [1.0], -np.arange(4.0)]),
        (ValueError, "ridge np.ravel(ridge)", lambda: of_gram(ridge=np.ones((4, 1)))),
        (ValueError, "ridge row 0 fill", lambda: of_gram(ridge=np.full(4, NAN))),
        *each(some(fm.features, X, Y), ValueError, intercept=[-1.0], ridge=[-1.0]),
        *each(some(fm.lazy_gram, X, Y), ValueError, intercept=[-1.0], ridge=[-1.0]),
    ],
    "what is no array": [
        (TypeError, "X array", lambda: fm.gram(None, Y)),
        (TypeError, "X array", lambda: fm.gram("hello", Y)),
        (TypeError, "X array", lambda: fm.gram({"a": [1.0]}, Y)),
        (TypeError, "X array list(X)", lambda: fm.gram({1.0, 2.0}, Y)),
        (TypeError, "X array list(X)", lambda: fm.gram(iter(X), Y)),
        (ValueError, "X one length", lambda: fm.gram([[1, 2], [3]], Y)),
        (ValueError, "X one length", lambda: fm.gram([[1, 2], 3], Y)),
        (ValueError, "X empty", lambda: fm.gram([], Y)),
        (TypeError, "y array set list(y)", lambda: fm.gram(X, {1, -1})),
        (ValueError, "y one length", lambda: fm.gram(X, [[1], [1, 2], 3, 4])),
        (TypeError, "G array NoneType", lambda: fm.momentum(None)),
        (ValueError, "X np.reshape(X, (-1, 1))", lambda: fm.gram(X[:, 0], Y)),
        (TypeError, "result masked", lambda: scores(X, X, np.ma.ones(4))),
    ],
    "beyond the memory": [
        (
            MemoryError,
            "lazy_gram",
            lambda: fm.gram(np.zeros((2_000_000, 1)), kernel="laplacian", gamma=1.0),
        ),
        (MemoryError, "GB", lambda: np.asarray(fm.lazy_gram(np.arange(40_000.0)[:, None], **FLAT))),
        (
            MemoryError,
            "classes np.unique(labels, return_inverse=True)",
            lambda: fm.pair_gram(K, [0, 1, 0, 1], 10**10),
        ),
    ],
    "other sizes": [
        (ValueError, "A B 2 columns", lambda: fm.kernel_matrix(X, X[:, :1])),
        (ValueError, "A B", lambda: fm.kernel_matrix(EYE, X, **OWN)),
        (ValueError, "Xnew", lambda: scores(X, X[:, :1])),
        (ValueError, "Xnew", lambda: scores(EYE, X, **OWN)),
        (ValueError, "result 2 weights", lambda: scores(X, X, np.ones(2))),
        (ValueError, "result row 1", lambda: scores(X, X, [1, NAN, 1, 1])),
        (ValueError, "precomputed", lambda: fm.gram(X, Y, **OWN)),
        (ValueError, "precomputed square", lambda: fm.kernel_matrix(X, X, **OWN)),
        (ValueError, "y 4 entries", lambda: fm.gram(EYE, [1, -1], **OWN)),
        (ValueError, "label 4 rows", lambda: fm.contradiction(X, [1, 2, 3])),
        (ValueError, "alpha 4 entries", lambda: certified([1, 1])),
        (ValueError, "alpha row 2", lambda: certified([1, 2, INF, 1])),
        (ValueError, "sum of p p / p.sum()", lambda: certified(p=np.ones(4))),
        (ValueError, "p", lambda: certified(p=[1.5, -0.5, 0, 0])),
        (ValueError, "p 4 weights", lambda: certified(p=[0.5, 0.5])),
        (ValueError, "p row 0", lambda: certified(p=[NAN, 1, 0, 0])),
    ],
    "points without length": [
        (
            ValueError,
            'row 1 of X K(x, x) 1 other row leave out normalize="max"',
            lambda: fm.features(ZERO, Y),
        ),
        (ValueError, "row 1 of X K(x, x)", lambda: fm.lazy_gram(ZERO, Y, kernel="linear")),
        (ValueError, "row 1 of X K(x, x)", lambda: fm.gram(ZERO, Y, kernel=single)),
        (ValueError, "row 1 of X K(x, x)", lambda: fm.gram(linear(ZERO, ZERO), Y, **OWN)),
        (ValueError, "row 1 of Xnew", lambda: scores(X, ZERO, normalize="unit", kernel="linear")),
        (ValueError, "row 1 of Xnew", lambda: scores(X, ZERO, normalize="unit", kernel=linear)),
        (ValueError, "K(x, x) X", lambda: fm.features(0 * EYE, Y, normalize="max")),
        (ValueError, "K(x, x) X", lambda: fm.gram(0 * EYE, Y, kernel=single, normalize="max")),
        (ValueError, "K(x, x) X", lambda: fm.gram(0 * EYE, Y, normalize="max", **OWN)),
        (ValueError, "max_i G_ii", lambda: chosen(0 * X, kernel="linear")),
        (ValueError, "max_i G_ii", lambda: fm.max_margin(fm.features(0 * X, Y, normalize=None))),
        (ValueError, "max_i G_ii", lambda: fm.features(0 * X, Y, normalize=None, ridge=1.0)),
        (ValueError, "X", lambda: fm.features(1e-110 * EYE, Y, normalize=None)),
        (
            ValueError,
            "row 3 of X K(x, x)",
            lambda: fm.features(np.diag([1.0, 1.0, 1.0, 1e-110]), Y),
        ),
        (ValueError, "normalize new points", lambda: scores(EYE, EYE, normalize="unit", **OWN)),
    ],
    "points in place of G, and G in place of points": [
        (
            TypeError,
            "momentum() G by position gram(X, y) features(X, y)",
            lambda: fm.momentum(X, Y),
        ),
        (ValueError, "(4, 2) gram(X, y) or features(X, y)", lambda: fm.momentum(X)),
        *refused(
            TypeError,
            "X Gram",
            lambda: fm.gram(K.signed(Y), Y),
            lambda: fm.features(K),
            lambda: fm.lazy_gram(fm.features(X, Y), Y),
            lambda: fm.gram(fm.lazy_gram(X)),
            lambda: fitted().fit(K.signed(Y), Y),
        ),
        (TypeError, "Z Gram y[:, None] * X", lambda: fm.winnow(fm.features(X, Y))),
        (TypeError, "G Gram model LinearSVC", lambda: fm.separator_margin(LinearSVC(), ROWS)),
        (ValueError, "X 3 rows 4 labels X.T", lambda: fm.features(np.ones((3, 4)), Y)),
        (ValueError, "X 3 rows 4 labels X.T", lambda: fitted().fit(np.ones((3, 4)), Y)),
        (TypeError, "features() X and y", lambda: fm.features(X, Y, "linear")),
        (TypeError, "features() 'C' cost=C", lambda: fm.features(X, Y, C=1.0)),
        (TypeError, "features() 'kernel' gram lazy_gram", lambda: fm.features(X, Y, kernel="rbf")),
        (TypeError, 'intercept="free"', lambda: fm.gram(X, Y, fit_intercept=True)),
        (ValueError, 'intercept "free" number', lambda: fm.gram(X, Y, intercept="yes")),
        (ValueError, "norm 'l1' ndarray", lambda: fm.norm_margin(X, Y)),
    ],
    "labels": [
        (ValueError, "label None", lambda: fm.contradiction(X, None)),
        (ValueError, "label None", lambda: fm.pair_gram(K, None, 2)),
        (ValueError, "y None", lambda: fitted().score(X[:1], None)),
        (ValueError, "y np.ravel(y)", lambda: fm.gram(X, [Y])),
        (ValueError, "labels K.signed(y)", lambda: fm.max_margin(fm.gram(X, intercept="free"))),
        (ValueError, "labels -1 and +1", lambda: fm.max_margin(Own(X, [1, 1, 1, 1]))),
        (ValueError, "labels -1 and +1", lambda: fm.max_margin(Own(X, [2, -1, 1, 1]))),
        (ValueError, "labels already", lambda: fm.pair_gram(fm.gram(X, Y), [0, 1, 0, 1], 2)),
        (ValueError, "labels already", lambda: fm.gram(X, Y).signed(Y)),
        (ValueError, "free", lambda: fm.pair_gram(fm.gram(X, **FREE), Y > 0, 2)),
        (ValueError, "both classes", lambda: fm.gram(X, np.ones(4), **FREE)),
        (ValueError, "both classes", lambda: fm.gram(X, **FREE).signed(np.ones(4))),
        *(  # a kernel matrix has a margin of its own, which nobody asked for
            (
                ValueError,
                f"{make.__name__}(X, y, ...)",
                lambda make=make: fm.certificate(make(X), UNIFORM, UNIFORM),
            )
            for make in (fm.gram, fm.lazy_gram, fm.features)
        ),
        *(
            (ValueError, "gram(X, y, ...)", lambda name=name: fm.ALGORITHMS[name](fm.gram(X)))
            for name in fm.ALGORITHMS
        ),
        (ValueError, "labels[2] 0 to 1", lambda: fm.pair_gram(EYE, [0, 1, 2, 0], 2)),
        (ValueError, "labels[1]", lambda: fm.pair_gram(EYE, [0, -1, 1, 0], 2)),
        (ValueError, "labels[1]", lambda: fm.pair_gram(EYE, [0, 0.5, 1, 0], 2)),
        (ValueError, "labels 4 entries", lambda: fm.pair_gram(EYE, [0, 1], 2)),
        (ValueError, "n_classes", lambda: fm.pair_gram(EYE, [0, 0, 0, 0], 1)),
        (TypeError, "n_classes", lambda: fm.pair_gram(EYE, [0, 1, 0, 1], 2.0)),
        (TypeError, "labels np.unique", lambda: fm.pair_gram(EYE, list("abca"), 3)),
        (ValueError, "labels (np.asarray(labels) + 1) // 2", lambda: fm.pair_gram(EYE, Y, 2)),
        (
            ValueError,
            "labels (np.asarray(labels) + 1) // 2",
            lambda: fm.norm_margin(EYE, "l2", labels=Y),
        ),
        (TypeError, "Z y[:, None] * X", lambda: fm.norm_margin(fm.features(X, Y), "linf")),
        (TypeError, "Z y[:, None] * X", lambda: fm.steepest_descent(fm.features(X, Y), "l2")),
        (
            ValueError,
            "result 4 weights",
            lambda: fm.pair_gram(fm.gram(EYE), [0, 1, 2, 0], 3).decision_function(UNIFORM, EYE),
        ),
    ],
    "classifier": [
        *each(of_classifier, ValueError, C=[0.0, -INF, NAN], tol=[0.0], kernel=["sigmoid"]),
        *each(of_classifier, ValueError, intercept_scaling=[0.0, 1e120], normalize=["l1"]),
        *each(of_classifier, ValueError, gamma=[-1.0], class_weight=["equal", 3.0, {1: 0.0}]),
        *each(of_classifier, ValueError, class_weight=[{1: 2.0, 7: 1.0}]),
        *each(of_classifier, TypeError, class_weight=[{-1: "1"}], algorithm=["momentum"]),
        *each(of_classifier, ValueError, y=[None, Y[1:], np.ones((4, 2))]),
        (TypeError, "y one type", lambda: chosen(y=[1, 1, "a", "a"])),
        (ValueError, "at least two classes", lambda: chosen(y=np.ones(4))),
        (ValueError, "Reshape your data (-1, 1)", lambda: chosen(X[0])),
        (ValueError, "X 0 feature(s)", lambda: chosen(X[:, :0])),
        (ValueError, "X 0 sample(s)", lambda: chosen(X[:0], Y[:0])),
        (TypeError, "X row 0", lambda: chosen(["one two", "three"], [0, 1])),
        (ValueError, "y 4 rows", lambda: fitted().score(X, [1])),
        (ValueError, "sample_weight 4 entries", lambda: fitted().score(X, Y, [1.0])),
        (ValueError, "sample_weight -1", lambda: fitted().score(X, Y, [1.0, -1.0, 1.0, 1.0])),
        (ValueError, "sample_weight 0", lambda: fitted().score(X, Y, np.zeros(4))),
        (AttributeError, "classes_ fit", lambda: fm.MaxMarginClassifier().classes_),
        (ValueError, "1 features 2 features", lambda: fitted().predict(X[:, 1:])),
        (ValueError, "X each training point", lambda: chosen(EYE, **OWN).predict(EYE[:, 1:])),
        (ValueError, "normalize new points", lambda: chosen(EYE, normalize="unit", **OWN)),
        (ValueError, "fit", lambda: fm.MaxMarginClassifier().predict(X)),
        (ValueError, "fit", lambda: fm.MaxMarginClassifier().decision_function(X)),
        (AttributeError, "fit", lambda: fm.MaxMarginClassifier().score(X, Y)),
        (AttributeError, "coef_ linear kernel", lambda: fitted().coef_),
        (AttributeError, "CalibratedClassifierCV", lambda: fitted().predict_proba(X)),
        (AttributeError, "CalibratedClassifierCV", lambda: fitted().predict_log_proba(X)),
        (TypeError, "'probability' CalibratedClassifierCV", lambda: chosen(probability=True)),
        (TypeError, "'max_iter' max_margin(gram(X, y), max_iter=...)", lambda: chosen(max_iter=9)),
        (TypeError, "'random_state' random", lambda: chosen(random_state=0)),
        (TypeError, "'dual' primal", lambda: chosen(dual=False)),
        (TypeError, "'slack' 'kernel' 'C'", lambda: chosen(slack=1.0)),
        (
            ValueError,
            "'probability' CalibratedClassifierCV",
            lambda: fm.MaxMarginClassifier().set_params(probability=True),
        ),
        (
            ValueError,
            "class_weight ['spam'] [1]",
            lambda: chosen(class_weight={-1: 2.0, "spam": 1.0}),
        ),
        (ValueError, "'c' 'C'", lambda: fm.MaxMarginClassifier().set_params(c=1.0)),
        (ValueError, "gamma sigma2 both", lambda: chosen(gamma=0.1, sigma2=1.0)),
        *refused(
            ValueError,
            "sample_weight",
            *(
                lambda w=w: chosen(weights=w)
                for w in (np.ones(3), np.ones((4, 1)), [1, -2, 1, 1], [1, NAN, 1, 1])
            ),
        ),
        (ValueError, "two classes", lambda: chosen(weights=np.zeros(4))),
        (ValueError, "two classes", lambda: chosen(weights=Y > 0)),
    ],
    "separators": [
        *(
            (REFUSED, words, lambda G=G, w=w: fm.separator_margin(G, w))
            for words, G, *separators in (
                ("w rows over a matrix features", fm.gram(X, Y), np.ones(4)),
                ("rows on demand", fm.lazy_gram(X, Y), np.ones(4)),
                ("rows Own support", Own(X), np.ones(2)),
                ('intercept="free" normalize=None', fm.features(X, Y), np.ones(3)),
                ("bias normalize=None", fm.features(X, Y, intercept="free"), np.ones(3)),
                ("w np.ravel(w)", fm.features(X, Y, **FREE), np.ones((1, 3))),
                ("w w.T", PAIRS, np.ones((4, 3))),
                ("w np.reshape(w, (3, 4))", PAIRS, np.ones(12)),
                ("w model LinearSVC coef_ intercept_", ROWS, LinearSVC()),
                ("rows over a matrix", fm.pair_gram(K, Y > 0, 2), np.ones((2, 4))),
                ("w", ROWS, np.ones(3), np.ones((1, 2)), np.zeros(2), [1.0, NAN], NAN, 1.0),
                ("w bias", fm.features(X, Y, **FREE), np.ones(4)),
                ("bias", fm.features(X, Y, **FREE), [1e-50, 0, 1e60], [1.0, 0, NAN]),
                ("bias", fm.features(X, Y, ridge=1.0, **FREE), np.ones(2)),
                ("w rescale w / np.abs(w).max()", ROWS, [1e-110, 0]),
                ("w rescale", ROWS.with_ridge(1.0), [1e110, 0]),
                ("w intercept=1.0", PAIRS, np.ones((3, 5))),
            )
            for w in separators
        ),
        *(
            (TypeError, f"{words} coordinates features(X, y)", lambda G=G: G.coordinates())
            for words, G in (
                ("Gram over a matrix", fm.gram(X, Y, kernel="linear")),
                ("Gram over a kernel on demand", fm.lazy_gram(X, Y)),
                ("Gram over pairs over a matrix", fm.pair_gram(K, Y > 0, 2)),
                ("Own", Own(X)),
            )
        ),
        *refused(
            ValueError,
            "result separator 2 coordinates G of the run",
            *(
                lambda G=G: G.decision_function(RESULT._replace(separator=np.ones(2)), X)
                for G in (fm.gram(X, Y, kernel="linear"), fm.features(X, Y, intercept=1.0), Own(X))
            ),
        ),
        *(
            (REFUSED, words, lambda G=G, w=w, at=at: fm.separator_margin(G, w, support=at))
            for words, G, w, at in (
                ("w", fm.gram(X, Y), [1.0], [0, 1]),
                ("w", fm.gram(X, Y), [0.0, 0.0], [0, 1]),
                ("w", fm.gram(X, Y), [1.0, NAN], [0, 1]),
                ("w", fm.gram(X, Y), NAN, [0, 1]),
                ("w row 0 rescale", fm.gram(X, Y), [1e200, 1.0], [0, 1]),
                ("support once", fm.gram(X, Y), [1.0, 1.0], [1, 1]),
                ("support once", fm.gram(X, Y), [1.0, 1.0], [-1, 3]),
                ("support", fm.gram(X, Y), [1.0, 1.0], [0.0, 1.0]),
                ("support 0 to 3", fm.gram(X, Y), [1.0, 1.0], [0, 4]),
                ("bias", fm.gram(X, Y, **FREE), [1e-3, -1e-3, 1e308], [0, 1]),
                ("bias", fm.gram(X, Y, **FREE), np.ones(4), [0, 1]),
                ("ridge", fm.gram(X, Y, ridge=1.0), [1.0], [0]),
                ("two classes", fm.pair_gram(K, Y > 0, 2), [1.0], [0]),
                ("labels gram(X, y)", EYE, [1.0], [0]),
                ("normalize=None", fm.gram(X, Y, kernel="poly"), [1.0], [0]),
                ("coef_", fm.gram(POINTS_FAR, Y, kernel="linear", **FREE), [1.0], [0]),
                ("coef_", fm.features(POINTS_FAR, Y, **FREE), [1.0], [0]),
                ("w cancel", fm.gram(X[[0, 0, 1]], [1, -1, 1]), [1.0, -1.0], [0, 1]),
            )
        ),
    ],
    "tables and norms": [
        (ValueError, "Z (n, k, d)", lambda: on_tables(np.ones((4, 2, 3, 1)))),
        (ValueError, "Z empty", lambda: on_tables(np.ones((4, 0, 3)))),
        (
            ValueError,
            "Z finite row 1 Z[1, 0, 2]",
            lambda: on_tables(np.where(np.arange(24).reshape(4, 2, 3) == 8, NAN, 1.0)),
        ),
        (TypeError, "row 2 column (1, 0)", lambda: on_tables(with_entry("five", TABLES))),
        (ValueError, "G", lambda: on_tables(0.0 * TABLES)),
        *refused(
            ValueError,
            "Z leave labels out",
            lambda: on_tables(TABLES, labels=[0, 1, 0, 1]),
            lambda: norm_certificate(TABLES[0], Z=TABLES, labels=Y > 0),
        ),
        (ValueError, "Z finite row 0", lambda: norm_certificate(Z=NAN * X)),
        (ValueError, "Z finite row 0", lambda: fm.steepest_descent(NAN * X, "l2")),
        (ValueError, "w", lambda: norm_certificate(np.ones(3))),
        (ValueError, "w 2 dimensions", lambda: norm_certificate(labels=Y > 0)),
        (ValueError, "p 4 weights", lambda: norm_certificate(p=[0.5, 0.5])),
        (
            ValueError,
            "weak duality dual",
            lambda: fm.norm_margin(X, fm.NORMS["l2"]._replace(dual=lambda u: 0.5 * abs(u).max())),
        ),
        *each(some(fm.norm_margin, X), ValueError, norm=["l3", 2]),
        *each(some(fm.norm_margin, X, "l1"), ValueError, labels=[[0, 1]]),
        (TypeError, "norm_margin() Z and norm by position", lambda: fm.norm_margin(X, "l1", Y)),
    ],
    "weights to begin with": [
        *each(
            some(fm.max_margin, EYE), ValueError, start=[np.ones(3), [1, 1, 1, -1], [1, 1, 1, NAN]]
        ),
        *each(some(fm.max_margin, EYE), TypeError, start=[3.0, np.ones((4, 1)), "ones"]),
        (
            TypeError,
            "start (result.alpha, result.p) ndarray",
            lambda: fm.norm_margin(EYE, "l1", start=np.ones(4)),
        ),
        *each(
            some(fm.norm_margin, EYE, "l1"),
            ValueError,
            start=[(np.ones(2), UNIFORM), (UNIFORM, UNIFORM[:2]), (UNIFORM, -UNIFORM)],
        ),
        *each(
            some(fm.steepest_descent, EYE, "l1"), ValueError, start=[np.ones(2), np.full(4, INF)]
        ),
    ],
    "parts of a loop": [
        (TypeError, "ndarray Gram", lambda: fm.product(EYE, UNIFORM, np.ones(4))),
        (TypeError, "tuple Gram", lambda: fm.add_column((EYE,), 0, 1.0, np.ones(4))),
        *(
            row
            for missing in ("_diagonal", "_product")
            for row in refused(
                NotImplementedError,
                f"Lacking has no {missing}",
                lambda name=missing: fm.momentum(lacking(**{name: getattr(fm.Gram, name)})),
            )
        ),
        (TypeError, "Own gives no d _rounding()", lambda: fm.momentum(without_d())),
        (TypeError, "Lacking unit = 2.0**-53", lambda: fm.momentum(lacking(unit=None))),
        (NotImplementedError, "Own has no _restrict", lambda: Own(EYE).restrict([0, 1])),
    ],
    "vectors": [
        (ValueError, "v", lambda: K @ np.ones(3)),
        (ValueError, "result", lambda: fm.witnesses(np.eye(2), np.ones(3) / 3)),
        (ValueError, "result", lambda: fm.witnesses(np.eye(2), [2.0, -1.0])),
        (ValueError, "v row 1", lambda: fm.project_simplex([1.0, NAN])),
        (ValueError, "v empty", lambda: fm.project_simplex([])),
        (ValueError, "v 1 dimension", lambda: fm.project_simplex([[1.0]])),
        (ValueError, "g row 0", lambda: fm.entropy_prox([INF, 1.0], 1.0)),
        (ValueError, "g rescale", lambda: fm.entropy_prox([1e201, 1.0], 1.0)),
        (ValueError, "g rescale", lambda: fm.l2_prox([0.0, -1e201], 1.0, [0.5, 0.5])),
        (ValueError, "g row 1", lambda: fm.l2_prox([0.0, NAN], 1.0, [0.5, 0.5])),
        *each(some(fm.entropy_prox, [0.0, 1.0]), ValueError, mu=[0.0, NAN]),
        *each(some(fm.entropy_prox, [0.0, 1.0]), TypeError, mu=["x"]),
        *each(some(fm.l2_prox, [0.0, 1.0], q=[0.5, 0.5]), ValueError, mu=[-1.0]),
        *each(some(fm.l2_prox, [0.0, 1.0], 1.0), ValueError, q=[[NAN, 0.5], UNIFORM]),
        *each(some(fm.entropy_prox, [0.0, 1.0], 1.0), ValueError, q=[[1.5, -0.5], UNIFORM]),
        (ValueError, "q q / q.sum()", lambda: fm.entropy_prox([0.0, 1.0], 1.0, [0.5, 0.6])),
    ],
    "options of algorithms": [
        *each(some(fm.nkp, EYE), ValueError, stop=[True]),
        *each(some(fm.von_neumann, EYE), ValueError, stop=["never"], eps=NOT_POSITIVE),
        *each(some(fm.von_neumann, EYE), TypeError, eps=["small"]),
        *each(some(fm.frank_wolfe, EYE), ValueError, variant=["lazy"], stop=["never"]),
        *each(some(fm.frank_wolfe, EYE), ValueError, eps=NOT_POSITIVE),
        *each(some(fm.snkp, EYE), ValueError, eps=NOT_POSITIVE[1:], tol=[0.0]),
        *each(some(fm.snkpvn, EYE), ValueError, delta=NOT_POSITIVE[:3]),
        *each(
            some(fm.snkpvn, EYE, delta=0.1),
            ValueError,
            q=[[1, 0], [0.5, 0.5, 0.5, 0], [0.5, 0.6, -0.1, 0], [NAN, 1, 0, 0], [EYE[0]], []],
        ),
        *each(some(fm.isnkpvn, EYE), ValueError, eps=NOT_POSITIVE[:3], prox=["l1", None]),
        *each(some(fm.isnkpvn, EYE), ValueError, gamma=[1.0, 0.5, -2.0, NAN, INF]),
        *each(some(fm.isnkpvn, EYE), TypeError, gamma=[None]),
        *each(some(fm.momentum, EYE), ValueError, eps=NOT_POSITIVE[1:], loss=["hinge"]),
        *each(
            some(fm.diagonal_descent, EYE, max_iter=10),
            ValueError,
            lam=["1/t^3", np.ones((10, 1)), 0.5, np.ones(9), None],
            lam0=[0.0, NAN, INF],
            step=[0.0, NAN, INF],
        ),
        *each(some(fm.inertial_diagonal_descent, EYE), ValueError, accel=[0.0, NAN, INF]),
        *each(some(fm.homotopic_subgradient, EYE, a=0.5), ValueError, b=[0.0, 0.501]),
        *each(some(fm.homotopic_subgradient, EYE), ValueError, a=[0.0, 1.0]),
        *each(some(fm.norm_margin, EYE, "l1"), ValueError, eps=[-1.0]),
        *each(some(fm.steepest_descent, EYE, "l1"), ValueError, momentum=[1.0], schedule=["risk"]),
        *each(some(fm.winnow, EYE), ValueError, eta=NOT_POSITIVE[:3]),
        *each(some(fm.winnow, EYE), TypeError, eta=[None]),
        *each(some(fm.adaptive_sampling, EYE), ValueError, step=[0], seed=[-1]),
        *each(some(fm.gradient_descent, EYE), ValueError, loss=["hinge"], step=[0, INF]),
        *each(
            some(fm.normalized_gradient_descent, EYE),
            ValueError,
            schedule=["linear"],
            divide_by=["loss"],
            step=[-1],
        ),
        *each(
            some(fm.subspace_perceptron, EYE),
            ValueError,
            memory=[0],
            eps=[-1.0],
            stop=["never", True],
        ),
        *each(some(fm.subspace_perceptron, EYE), TypeError, memory=["1 GB"]),
        *refused(
            ValueError,
            "lam at least 0 t = 5",
            *(
                lambda lam=lam: fm.diagonal_descent(EYE, lam=lam, max_iter=10)
                for lam in (
                    np.where(np.arange(10) == 4, -1e-300, 1.0),
                    np.where(np.arange(10) == 4, NAN, 1.0),
                    lambda t: 4.5 - t,
                    lambda t: NAN if t == 5 else 1.0,
                )
            ),
        ),
    ],
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_refusal_names_the_argument_the_place_and_the_remedy(wrong):
    for error, words, call in REFUSALS[wrong]:
        check_raises(call, error, words.split())


OPTIONS = [  # by error: bad values of the options of every run
    (ValueError, {"max_iter": [-1, True, 2**70], "tol": [-1.0, 0.0, NAN, INF]}),
    (TypeError, {"max_iter": [2.5, "a", None], "tol": ["a"], "callback": [3, "f", False]}),
    (ValueError, {"trace_at": [[1, -2]]}),
    (TypeError, {"trace_at": [[1, 1.5], "ab", np.ma.ones(2)], "start": [3, EYE]}),
]
BAD_OPTIONS = [
    (name, value, error)
    for error, options in OPTIONS
    for name, values in options.items()
    for value in values
]


@rotate("name, bad", CALLS, BAD_OPTIONS)
def test_run_options_are_refused_by_name(name, bad):
    """Every algorithm by the same function: each of them is given one."""
    option, value, error = bad
    check_raises(lambda: run(name, EYE, **{option: value}), error, [option])


@pytest.mark.parametrize("name", CALLS)
def test_an_option_that_no_algorithm_has_is_refused_in_the_name_of_the_algorithm(name):
    """``separates`` is an option of `drive`, which each of them calls."""
    for options in ({"colour": 1}, {"separates": True}):
        [option] = options
        words = [f"{algorithm_of(name)}()", f"'{option}'", "callback", "max_iter"]
        check_raises(lambda options=options: run(name, EYE, **options), TypeError, words)


@pytest.mark.parametrize("where", [0, -1])
def test_an_asymmetric_callable_kernel_is_refused_in_every_block(where):
    """Of which each has 8 MB at most."""
    points = rows_of(1500, 3)
    blocks = []

    def straight(A, B):
        if len(A) > 32:  # 32 at a time for the diagonal
            blocks.append(len(A) * len(B))
        return linear(A, B)

    fm.gram(points, kernel=straight)
    assert max(blocks) <= 1 << 20
    at = range(len(blocks))[where]
    blocks.clear()

    def askew(A, B):
        values = straight(A, B)
        if len(A) > 32 and len(blocks) == at + 1:
            values[1, len(B) - len(A)] += 0.5
        return values

    check_raises(lambda: fm.gram(points, kernel=askew), ValueError, ["kernel"])


# ======================================================================================================
# POINTS BY THEIR NUMBERS
# ======================================================================================================

KINDS = {
    **REPRESENTATIONS,
    "dense": lambda Z: fm.Gram(Z @ Z.T),
    **BY_ROWS,
    "lazy": lambda Z: fm.lazy_gram(Z, normalize=None, kernel="linear").signed(Y),
}
NO_PLACES = {
    "a table": ([[0, 1]], TypeError, "array of numbers of points (1, 2)"),
    "None": (None, TypeError, "NoneType"),
    "a number": (2, TypeError, "array of numbers of points [0]"),
    "text": ("a", TypeError, "str"),
    "floats": ([0.0], TypeError, "array of numbers of points float64"),
    "nothing": ([], ValueError, "at least one point"),
    "an empty mask": ([False] * 4, ValueError, "at least one point"),
    "a short mask": ([True, False], TypeError, "mask of 4 points (2,)"),
    "beyond the end": ([0, 4], IndexError, "0 to 3 4"),
    "before the start": ([-5], IndexError, "-4 to -1 -5"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", NO_PLACES)
def test_what_chooses_no_points_is_refused(kind, case):
    index, error, words = NO_PLACES[case]
    G = KINDS[kind](EYE)
    check_raises(lambda: G.restrict(index), error, f"index {words}")
    check_raises(lambda: G.block(index, [0]), error, f"rows {words}")
    check_raises(lambda: G.block([0], index), error, f"columns {words}")
    if kind in BY_ROWS and kind != "operator":  # which has no rows to show
        check_raises(lambda: G.coordinates(index), error, f"index {words}")


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_chosen_as_entries_of_an_array_are(kind):
    Z = np.array([[3.0, 1.0], [2.0, 5.0], [7.0, 4.0], [1.0, 8.0]]) * Y[:, None]
    G = KINDS[kind](Z)
    every = np.arange(4)
    for index in ([2, 0], [-1, 0], slice(1, 3), slice(None, None, -1), range(2), (1, 1), Y > 0):
        chosen = every[list(index) if isinstance(index, range | tuple) else index]
        np.testing.assert_array_equal(G.block(index, [3]), G.block(chosen, np.array([3])))
        if kind in BY_ROWS and kind != "operator":  # which has no rows to show
            np.testing.assert_array_equal(G.coordinates(index), G.coordinates(chosen))
        if kind == "operator":  # a class of one's own without `_restrict`
            continue
        part = G.restrict(index)
        np.testing.assert_allclose(part.dense(), G.block(chosen, chosen), rtol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_that_no_product_can_use_are_refused(kind):
    G = KINDS[kind](EYE)
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    v = np.ones(4)
    for call, error, words in (
        (lambda: fm.product(G, v, read_only), ValueError, ["out", "read-only"]),
        (lambda: fm.product(G, v.astype(int), v), ValueError, ["v", "float64", "int64"]),
        (lambda: fm.product(G, v, v.astype(np.float32)), ValueError, ["out", "float32"]),
        (lambda: fm.product(G, list(v), v), TypeError, ["v", "list"]),
        (lambda: fm.add_column(G, 0, 1.0, read_only), ValueError, ["m", "read-only"]),
        (lambda: fm.add_column(G, 0, 1.0, np.zeros(3)), ValueError, ["m", "(4,)", "(3,)"]),
        (lambda: fm.add_column(G, 0.5, 1.0, v), TypeError, ["i", "0.5"]),
        (lambda: fm.add_column(G, 4, 1.0, v), IndexError, ["i", "4 points", "4"]),
        (lambda: fm.add_column(G, 0, "a", v), TypeError, ["c", "'a'"]),
        (lambda: fm.add_column(G, 0, NAN, v), ValueError, ["c", "nan"]),
    ):
        check_raises(call, error, words)


# ======================================================================================================
# SPARSE POINTS
# ======================================================================================================


FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]
NO_SPARSE = {  # a table as it is made sparse, its error and words
    "nan": (np.where(WHOLE == 4, NAN, WHOLE), ValueError, "finite row 2, column 1 nan"),
    "inf": (np.where(WHOLE == 4, -INF, WHOLE), ValueError, "finite row 2, column 1 -inf"),
    "complex": (WHOLE + 1j, TypeError, "complex128 both parts"),
    "integers": (LONG, ValueError, "row 0, column 0 beyond 2**53"),
    "too large": (2e100 * WHOLE, ValueError, "row 3, column 1 rescale"),
    "too small": (1e-102 * WHOLE, ValueError, "row 3, column 1 rescale"),
    "no rows": (np.ones((0, 2)), ValueError, "empty (0, 2)"),
    "no columns": (np.ones((3, 0)), ValueError, "empty (3, 0)"),
}


@beside(FORMATS, NO_SPARSE, whole=["csr"])
def test_what_is_no_sparse_table_is_refused(function, case, sp):
    table, error, words = NO_SPARSE[case]
    S = getattr(sp, f"{function}_array")(table)
    for call in (fm.features, fm.gram, fm.lazy_gram):
        check_raises(lambda call=call: call(S), error, f"X {words}")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "case, before", [("nan", "the other rows, "), ("complex", "parts, "), ("too large", "alike, ")]
)
def test_a_remedy_of_sparse_points_is_a_line_of_python(kind, case, before, sp):
    S = getattr(sp, f"{kind}_array")(NO_SPARSE[case][0])
    with pytest.raises((TypeError, ValueError)) as caught:
        fm.features(S)
    remedy = str(caught.value).rpartition(before)[2]
    found = eval(remedy, {"np": np, "X": S, "scipy": pytest.importorskip("scipy")})
    wanted = {
        "nan": WHOLE[[0, 1, 3]],
        "complex": np.hstack((WHOLE, np.ones((4, 2)))),
        "too large": WHOLE / 8,
    }
    np.testing.assert_allclose(found.toarray(), wanted[case])


@pytest.mark.parametrize("kind", FORMATS)
def test_sparse_integers_that_floats_would_merge_are_refused(kind, sp):
    """2^53 and 2^53 + 1 become one number in float64: as equal points they would contradict each other."""
    S = getattr(sp, f"{kind}_array")(np.array([[2**53], [2**53 + 1]]))
    words = ["X", "row 1, column 0", "X.astype(np.float64)"]
    for call in (
        lambda: fm.contradiction(S, [1, -1]),
        lambda: fm.features(S, [1, -1]),
        lambda: fm.MaxMarginClassifier("linear").fit(S, [1, -1]),
    ):
        check_raises(call, ValueError, words)


@pytest.mark.parametrize("container", ["coo", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64, np.float32, np.float64])
def test_entries_at_one_place_stand_for_their_sum_in_every_type(container, dtype, sp):
    entries = np.array([100, 100, 3], dtype)
    at = np.array([0, 0, 1])
    S = {
        "coo": lambda: sp.coo_array((entries, (at, 0 * at)), shape=(2, 1)),
        "csr": lambda: sp.csr_array((entries, 0 * at, [0, 2, 3]), shape=(2, 1)),
        "csc": lambda: sp.csc_array((entries, at, [0, 3]), shape=(2, 1)),
    }[container]()
    np.testing.assert_array_equal(
        fm.features(S, [1, -1], normalize=None).coordinates(), [[200.0], [-3.0]]
    )


def test_sums_of_entries_at_one_place_that_floats_would_round_are_refused(sp):
    at = np.zeros(3, int)
    for entries in ([2**53, 1, -1], [-(2**52), -(2**52), -1], [2**53, 2**53, 2**53]):
        S = sp.coo_array((np.array(entries), (at, at)), shape=(1, 1))
        check_raises(lambda S=S: fm.features(S), ValueError, ["X", "one place", "2**53"])
        assert fm.features(S.astype(np.float64), normalize=None).scale > 0.0


def test_sparse_rows_of_one_dimension_are_refused(sp):
    for S in (sp.coo_array(X[0]), sp.csr_array(X[0]), sp.dok_array(X[0])):
        if len(S.shape) == 1:  # older versions of SciPy make a row of it
            check_raises(lambda S=S: fm.features(S), ValueError, ["X", "2 dimensions"])


def test_sparse_points_are_refused_as_arrays_are(sp):
    S = sp.csr_array(ZERO)
    for call, error, words in (
        (lambda: fm.features(S, Y), ValueError, ["row 1 of X", "normalize"]),
        (lambda: fm.features(0 * S, Y, normalize="max"), ValueError, ["X"]),
        (lambda: fm.max_margin(fm.features(0 * S, Y, normalize=None)), ValueError, ["G"]),
        (lambda: fm.features(0 * S, Y, normalize=None, ridge=1.0), ValueError, ["G_ii"]),
    ):
        check_raises(call, error, words)


ARRAYS_ONLY = {  # a sparse S of 4 rows and 4 columns where only arrays will do -> what the message calls it
    "gram, labels": (lambda S: fm.gram(EYE, S), "y"),
    "features, labels": (lambda S: fm.features(EYE, S), "y"),
    "decision_function": (lambda S: fm.gram(EYE).decision_function(S, EYE), "result"),
    "signed": (lambda S: fm.gram(EYE).signed(S), "y"),
    "pair_gram, K": (lambda S: fm.pair_gram(S, [0, 1, 0, 1], 2), "G"),
    "pair_gram, labels": (lambda S: fm.pair_gram(EYE, S, 2), "labels"),
    "certificate, G": (lambda S: fm.certificate(S, UNIFORM, UNIFORM), "G"),
    "certificate, alpha": (lambda S: fm.certificate(EYE, S, UNIFORM), "alpha"),
    "certificate, p": (lambda S: fm.certificate(EYE, UNIFORM, S), "p"),
    "momentum": (lambda S: fm.momentum(S), "G"),
    "snkpvn, q": (lambda S: fm.snkpvn(EYE, delta=0.1, q=S), "q"),
    "project_simplex": (lambda S: fm.project_simplex(S), "v"),
    "entropy_prox": (lambda S: fm.entropy_prox(S, 1.0), "g"),
    "l2_prox": (lambda S: fm.l2_prox(UNIFORM, 1.0, S), "q"),
    "Gram": (lambda S: fm.Gram(S), "G"),
    "values of a kernel": (lambda S: fm.gram(EYE, kernel=lambda A, B: S), "kernel(A, B)"),
    **{
        name: (lambda S, name=name: run(name, S), "Z" if CALLS[name].rows else "G")
        for name in CALLS
    },
}


@pytest.mark.parametrize("call", ARRAYS_ONLY)
def test_sparse_is_refused_where_only_arrays_will_do(call, sp):
    """With the remedy, and before anything is computed."""
    make, name = ARRAYS_ONLY[call]
    for S in (sp.csr_array(EYE), sp.csc_matrix(EYE), sp.lil_array(EYE)):
        words = [f"{name} is sparse", f"{name}.toarray()"]
        check_raises(lambda S=S: make(S), TypeError, words)


# ======================================================================================================
# PANDAS
# ======================================================================================================


BAD_COLUMNS = {  # a column of a frame that holds no numbers, and words; every function names columns of such frames
    "Int64 with NA": (lambda pd: pd.array([1, None, 3, 4], dtype="Int64"), "row 1"),
    "Float64 with NA": (lambda pd: pd.array([1.5, None, 3, 4], dtype="Float64"), "row 1"),
    "boolean with NA": (lambda pd: pd.array([True, None, True, False], dtype="boolean"), "row 1"),
    "object, text": (lambda pd: np.array(["a", "b", "c", "d"], dtype=object), "row 0"),
    "object, None": (lambda pd: np.array([1, None, 3, 4], dtype=object), "row 1 missing"),
    "str": (lambda pd: ["a", "b", "c", "d"], "row 0 pandas.get_dummies"),
    "string": (lambda pd: pd.array(["a", "b", "c", "d"], dtype="string"), "row 0"),
    "digits": (lambda pd: pd.array(["1", "2", "3", "4"], dtype="string"), "row 0 dtype=float"),
    "category": (lambda pd: pd.Categorical(["a", "b", "a", "b"]), "row 0 pandas.get_dummies"),
    "complex": (lambda pd: 1j * np.arange(4.0), "row 0 complex"),
    "nan": (lambda pd: [1.0, 2.0, NAN, 4.0], "finite row 2 nan isfinite"),
    "inf": (lambda pd: [1.0, 2.0, INF, 4.0], "finite row 2 inf isfinite"),
}


@pytest.mark.parametrize("column", BAD_COLUMNS)
@pytest.mark.parametrize("mixed", [False, True])
def test_columns_that_are_no_numbers_are_named(column, mixed, pd):
    """The error says which column, also beside integers and flags."""
    make, words = BAD_COLUMNS[column]
    others = {"flag": [True, False, True, True], "count": [1, 2, 3, 4]} if mixed else {}
    frame = pd.DataFrame({"height": [0.5, -1.0, 2.0, 1.5], "hair colour": make(pd), **others})
    for call in (fm.features, fm.gram, fm.lazy_gram):
        check_raises(
            lambda call=call: call(frame, Y), (TypeError, ValueError), f"X hair colour {words}"
        )


def test_a_frame_is_taken_without_the_rows_that_are_refused(pd):
    """The remedies keep nullable columns, too."""
    nullable = pd.array([True, True, None, True], dtype="boolean")
    for column, error, kept in (
        ([1.0, 2.0, 3.0, INF], ValueError, [0, 2]),
        (nullable, TypeError, [0, 3]),
    ):
        frame = pd.DataFrame(
            {"a": pd.array([1, None, 3, 4], dtype="Int64"), "b": [True] * 4, "c": column}
        )
        with pytest.raises(error) as caught:
            fm.gram(frame)
        remedy = re.search(
            r"(keep the other rows|all values), (.*?)(, and the same rows of y)?$",
            str(caught.value),
        )[2]
        found = eval(remedy, {"np": np, "pandas": pd, "X": frame})
        assert found.index.tolist() == kept and len(fm.gram(found)) == 2


def test_a_frame_tells_whether_its_rows_and_columns_are_in_one_order(pd):
    """As a kernel matrix of training points; rows of new points have orders and names of their own."""
    names = list("pqrs")
    values = pd.DataFrame(np.exp(-np.square(X[:, :1] - X[:, 0])), index=names, columns=names)
    shuffled = values.loc[["q", "p", "r", "s"]]
    model = fm.MaxMarginClassifier("precomputed").fit(values, Y)
    assert model.predict(shuffled).tolist() == [1, 1, -1, -1]
    for name, call in {
        "X": lambda K: fm.gram(K, Y, **OWN),
        "G": fm.max_margin,
        "X of fit": lambda K: fm.MaxMarginClassifier("precomputed").fit(K, Y),
    }.items():
        with pytest.raises(ValueError, match="different orders") as caught:
            call(shuffled)
        remedy = str(caught.value).rpartition("give ")[2]
        assert eval(remedy, {name[0]: shuffled}).equals(values)
        for unnamed in (values.set_axis(range(4), axis=1), values.reset_index(drop=True)):
            call(unnamed)


def test_series_as_points_and_frames_as_labels_are_refused(pd):
    frame = pd.DataFrame(X, columns=["height", "width"])
    check_raises(lambda: fm.features(frame["height"], Y), ValueError, ["X", "np.reshape"])
    check_raises(lambda: fm.features(frame.iloc[:0], []), ValueError, ["X", "empty"])
    check_raises(
        lambda: fm.features(frame, pd.DataFrame({"label": Y})), ValueError, ["y", "np.ravel(y)"]
    )
    for labels in (pd.Series(Y > 0), pd.Series([0, 1, 0, 1])):
        check_raises(
            lambda labels=labels: fm.features(frame, labels), ValueError, ["y", "np.where"]
        )
    text = pd.Series(["a", "b", "a", "b"])
    for labels in (text, text.astype("category"), text.astype("string")):
        check_raises(lambda labels=labels: fm.features(frame, labels), TypeError, ["y", "np.where"])


TIMES = {  # columns of four dates or durations
    "dates": lambda pd: pd.Series(pd.date_range("2020-01-01", periods=4)),
    "dates of a zone": lambda pd: pd.Series(pd.date_range("2020-01-01", periods=4, tz="UTC")),
    "nanoseconds": lambda pd: pd.Series(pd.date_range("2020-01-01", periods=4).as_unit("ns")),
    "periods": lambda pd: pd.Series(pd.period_range("2020-01-01", periods=4, freq="D")),
    "objects": lambda pd: pd.Series(pd.date_range("2020-01-01", periods=4)).astype(object),
    "durations": lambda pd: pd.Series(pd.to_timedelta([7305, 7306, 7307, 7308], unit="D")),
}


@pytest.mark.parametrize("kind", TIMES)
def test_columns_of_dates_are_refused_with_a_remedy(kind, pd):
    """The remedy makes numbers of them, the same in each."""
    column = TIMES[kind](pd)
    for frame in (
        pd.DataFrame({"born": column}),
        pd.DataFrame({"born": column, "height": [1.0, 2.0, 3.0, 4.0]}),
        pd.DataFrame({"born": column, "died": column}),
    ):
        words = ["X['born'] must hold real numbers", "row 0"]
        check_raises(lambda frame=frame: fm.features(frame, Y), TypeError, words)
        with pytest.raises(TypeError) as caught:
            fm.gram(frame)
        remedy = re.search(r"in seconds: (.*)$", str(caught.value))[1]
        seconds = eval(remedy, {"np": np, "X": frame})
        assert np.array_equal(seconds, 86400.0 * np.arange(7305, 7309))
    column[1] = pd.NaT
    for frame in (pd.DataFrame({"born": column}), pd.DataFrame({"born": column[1:]})):
        check_raises(lambda frame=frame: fm.gram(frame), TypeError, ["'born'"])
    for call in (lambda: fm.gram(EYE, ridge=column), lambda: chosen(weights=column)):
        check_raises(call, TypeError, ["real numbers", "row 0"])


MISSING_OF_PANDAS = {  # the third of four is missing
    "Int64": lambda pd: pd.Series([1, 1, None, -1], dtype="Int64"),
    "Float64": lambda pd: pd.array([1, 1, None, -1], dtype="Float64"),
    "boolean": lambda pd: pd.array([True, True, None, False], dtype="boolean"),
    "string": lambda pd: pd.Series(["a", "a", None, "b"], dtype="string"),
    "text": lambda pd: pd.Series(["a", "a", None, "b"]),
    "category": lambda pd: pd.Series(["a", "a", None, "b"], dtype="category"),
    "category of numbers": lambda pd: pd.Categorical([1, 1, None, -1]),
    "date": lambda pd: pd.to_datetime(["2020-01-01", "2020-01-01", None, "2021-01-01"]),
    "duration": lambda pd: pd.to_timedelta(["1 s", "1 s", None, "2 s"]),
    "list of NA": lambda pd: ["a", "a", pd.NA, "b"],
    "list of NaT": lambda pd: [1, 1, pd.NaT, -1],
}


@pytest.mark.parametrize("kind", MISSING_OF_PANDAS)
def test_missing_labels_of_pandas_are_refused(kind, pd):
    y = MISSING_OF_PANDAS[kind](pd)
    for call, name in LABELLED.values():
        words = [f"Input {name} contains NaN", "row 2"]
        check_raises(lambda call=call: call(y), ValueError, words)
