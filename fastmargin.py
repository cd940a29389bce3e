"""fastmargin: certified margins by perceptrons, dual acceleration and diagonal descent.

Version 4.0.0.  figures/THEOREMS.md of the repository "fastmargin" has the proofs of its own theorems.
SPDX-License-Identifier: MIT.  Copyright (c) 2026 The fastmargin authors.  This file is the whole library.  You may copy
it into any project.

Where to begin.  Make G from points and labels, compute its maximum margin, and score new points:

>>> import numpy as np, fastmargin as fm
>>> X = np.array([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]])
>>> G = fm.gram(X, [1, 1, -1], kernel="rbf", intercept="free")  # or fm.features, for the linear kernel
>>> result = fm.max_margin(G)
>>> print(f"{result.status}: {result.lower:.6f} <= margin <= {result.upper:.6f}")
certified: 0.631878 <= margin <= 0.631878
>>> G.decision_function(result, [[2.0, 2.0], [-2.0, 0.0]]).round(3)
array([ 0.435, -0.219])

fm.MaxMarginClassifier does this in the style of scikit-learn.  fm.separator_margin certifies the margin of a model that
you have.  help(fm.max_margin) shows formulas, guarantees, errors and examples, and so does the help of every other
public name.  The examples run after the same imports.

One problem.  Points x_i with labels y_i in {-1, +1} and a kernel K give the signed Gram matrix
G_ij = y_i y_j K(x_i, x_j).  Weights alpha in R^n define the predictor f = sum_i alpha_i y_i phi(x_i), so that
y_i f(x_i) = (G alpha)_i and ||f||^2 = alpha' G alpha =: ||alpha||_G^2.  The margin and its dual are

    rho  = max_{||alpha||_G = 1}  min_i (G alpha)_i                             (primal)
    rho+ = min_{p in Delta_n}  ||p||_G      rho+ = rho if rho > 0, else 0       (dual)

and for every alpha with ||alpha||_G > 0 and every p in the simplex Delta_n

    min_i (G alpha)_i / ||alpha||_G  <=  rho  <=  ||p||_G                       (weak duality)

Every algorithm computes such an interval, ``lower <= rho <= upper``, at every checkpoint.  A p with
||p||_G <= eps proves that no margin above eps exists (Gordan's alternative).

Conventions.  s = max_i G_ii is the scale.  If a paper assumes ||x_i|| <= 1, steps are in units of 1/s here, and
smoothing parameters are in units of s, so that the guarantee holds for any G.  The word *kernel* means K(x, x'), never
compiled code.

Notation
--------
n, d          number of points, number of coordinates
x_i, y_i      points in R^d, the rows of X; labels, -1 or +1
K, G          K(x_i, x_j) = <phi(x_i), phi(x_j)>, the kernel matrix; G, the signed Gram matrix
c_i           sign y_i times the normaliser of x_i: G_ij = c_i c_j K(x_i, x_j)
Z, z_i        G = Z Z'; the rows z_i = c_i x_i of linear features, and c_i phi(x_i) of other kernels
alpha, p, q   weights of the points: any alpha in R^n; p and q in the simplex Delta_n
w, u          coordinates of the separators: w = Z' alpha, u = Z' q
m             margins m = G alpha = Z w
rho, s        the margin; the scale max_i G_ii
mu            smoothing parameter of a prox map
gamma         parameter of the kernels "rbf", "laplacian" and "poly"; option of `isnkpvn`
unit          the largest relative error of one operation: 2^-53 in double precision, 2^-24 in single

Threads.  Numba's threads share the work on large arrays (NUMBA_NUM_THREADS, numba.set_num_threads).  Results do not
depend on the number of threads.

Sources, by the key used below:
    ramdas14       A. Ramdas, J. Pena, Margins, Kernels and Non-linear Smoothed Perceptrons, ICML 2014
    ji21           Z. Ji, N. Srebro, M. Telgarsky, Fast Margin Maximization via Dual Acceleration, ICML 2021
    apidopoulos22  V. Apidopoulos, T. Poggio, L. Rosasco, S. Villa, Iterative regularization in
                   classification via hinge loss diagonal descent, arXiv 2212.12675, 2022

Contents (search for the number and title, such as "# 5.3 rows")
    1    result and input   Result
    2    vectors
    3    simplex            project_simplex, entropy_prox, l2_prox
    4    kernels            Kernel, kernel_matrix
    5    G
    5.1  Gram               Gram, Rounding, product, add_column
    5.2  a matrix
    5.3  rows
    5.4  sparse rows
    5.5  features           features
    5.6  any kernel         gram, lazy_gram
    5.7  pairs              pair_gram
    6    certificate        Bounds, certificate, separator_margin, contradiction
    7    driver             RunOptions, drive
    8    algorithms
    8.1  ramdas14           perceptron, nkp, von_neumann, frank_wolfe, snkp, snkpvn, isnkpvn, winnow
    8.2  ji21               gradient_descent, normalized_gradient_descent, momentum, batch_perceptron, adaptive_sampling
    8.3  apidopoulos22      diagonal_descent, inertial_diagonal_descent, homotopic_subgradient
    8.4  own methods        subspace_perceptron
    8.5  other norms        Norm, NORMS, norm_margin, norm_certificate, steepest_descent
    9    exact solver
    9.1  problem
    9.2  working sets
    9.3  pair steps
    9.4  clipped pairs
    9.5  faces
    9.6  Newton steps on the separator
    9.7  low rank
    9.8  steps on one weight after another
    9.9  methods            max_margin, ALGORITHMS
    9.10 witnesses          Witnesses, witnesses
    10   classifier         MaxMarginClassifier
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import importlib
import inspect
import itertools
import math
import operator
import os
import sys
import threading
import time
import types
import warnings
from collections import namedtuple
from collections.abc import Callable
from fractions import Fraction
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack, cast

import numpy as np
from numba import get_num_threads, njit, prange, threading_layer
from numba.extending import is_jitted, overload, register_jitable
from numpy.typing import ArrayLike, DTypeLike, NDArray

__version__ = "4.0.0"
__all__ = [
    "ALGORITHMS",
    "Gram",
    "MaxMarginClassifier",
    "NORMS",
    "Norm",
    "Result",
    "RunOptions",
    "adaptive_sampling",
    "add_column",
    "batch_perceptron",
    "certificate",
    "contradiction",
    "diagonal_descent",
    "drive",
    "entropy_prox",
    "features",
    "frank_wolfe",
    "gradient_descent",
    "gram",
    "homotopic_subgradient",
    "inertial_diagonal_descent",
    "isnkpvn",
    "kernel_matrix",
    "l2_prox",
    "lazy_gram",
    "max_margin",
    "momentum",
    "nkp",
    "norm_certificate",
    "norm_margin",
    "normalized_gradient_descent",
    "pair_gram",
    "perceptron",
    "product",
    "project_simplex",
    "separator_margin",
    "snkp",
    "snkpvn",
    "steepest_descent",
    "subspace_perceptron",
    "von_neumann",
    "winnow",
    "witnesses",
]


# Public types that functions return.  They are not in __all__, so that help(fastmargin) stays short.
_RETURNED = [
    "Bounds",
    "Kernel",
    "Rounding",
    "Witnesses",
]


def __dir__():
    """List the public names for tab completion, without the modules that this one imports."""
    return [*__all__, *_RETURNED, *(name for name in globals() if name.startswith("__"))]


Array: TypeAlias = NDArray[Any]
GramLike: TypeAlias = "ArrayLike | Gram"  # the types that algorithms take as G
Callback: TypeAlias = "Callable[[Result], object] | None"

# Flags of compiled code: sums may be reordered and fused; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz"}
_EPS = float(np.finfo(np.float64).eps)
_PARTS = 8  # parts of a product in parallel: a fixed number, so that results do not depend on the number of threads
_SERIAL = 1 << 18  # if an array has fewer entries, waking threads costs more than reading it


# Numba keeps compiled code on disk.  If it can write to no folder, it raises an error for cache=True.
try:
    njit(__dir__, cache=True)
    _CACHE = True
except (OSError, RuntimeError):
    _CACHE = False
    warnings.warn(
        "Numba can write to none of its folders for compiled code, so that fastmargin compiles again in every "
        "process: set the environment variable NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )

_LOCK = threading.RLock()  # held if the threading layer serves one caller at a time
_PROCESS = os.getpid()  # the process that has Numba's threads; its forked children have none
# Environment variables that choose how threads wait
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


@functools.cache
def _threading_layer():
    """Start Numba's threads and return the name of their layer.

    By default, threads that wait spin, which slows down any other process that needs the core.  OMP_WAIT_POLICY lets
    them sleep, and OpenMP reads it when it is loaded.  The variable is removed afterwards, so that other libraries and
    child processes do not inherit it.
    """
    has_chosen = any(name in os.environ for name in _WAITING)
    try:
        if not has_chosen:
            os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        get_num_threads()
    finally:
        if not has_chosen:
            os.environ.pop("OMP_WAIT_POLICY", None)
    return threading_layer()


def _enter(code, *args):
    """Call compiled code that may share its work among Numba's threads.

    A forked child has no threads, and OpenMP would end the child if it asked for threads.  The layer "workqueue" would
    end a process in which two Python threads ask at once, so that a lock makes them take turns.
    """
    if os.getpid() != _PROCESS:
        alone = [arg._replace(threads=False) if hasattr(arg, "threads") else arg for arg in args]
        return code(*alone)
    with _LOCK if _threading_layer() == "workqueue" else contextlib.nullcontext():
        return code(*args)


def _twins(function, **flags):
    """Compile a function with a loop over `prange` twice: for one thread, and for several."""
    in_parallel = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    # Numba keeps compiled code under this name.
    in_parallel.__qualname__ = f"{function.__qualname__}_in_parallel"
    alone = njit(cache=_CACHE, **flags)(function)
    return alone, njit(cache=_CACHE, parallel=True, **flags)(in_parallel)


def _enter_by_size(work, alone, in_parallel, *args):
    """Call ``in_parallel`` if ``work``, the number of entries read, is worth waking threads; else ``alone``."""
    if work < _SERIAL or os.getpid() != _PROCESS:
        alone(*args)
    else:
        _enter(in_parallel, *args)


# ======================================================================================================
# 1 result and input
# ======================================================================================================


class Result(NamedTuple):
    """What every algorithm returns: weights, and the interval that they prove for the margin.

    Attributes
    ----------
    alpha : array, shape (n,)
        Weights of the predictor f = sum_i alpha_i y_i phi(x_i); their scale depends on the algorithm.  With a cost it
        is that of the f whose objective proves lower.  For `winnow`, `norm_margin` and `steepest_descent`, alpha is the
        separator w, (d,) or (k, d).
    p : array, shape (n,)
        Dual certificate, a point of the simplex: no margin is above ||p||_G; with a cost see `Gram.with_cost`.
    lower, upper : float
        lower <= min_i (G alpha)_i / ||alpha||_G <= rho <= ||p||_G <= upper, rounded outwards (see `certificate`).
        If ||alpha||_G is 0 up to rounding, lower is -sqrt(s) with s = max_i G_ii.  With a ridge, lower may be larger
        than the quotient, because `certificate` chooses the best slacks for alpha.  If there is a ``separator``, lower
        bounds the margin of the separator, not that of alpha.  With a cost, lower and upper bound rho_C of
        `Gram.with_cost`; then lower > 0 does not prove that the points are separable.
    status : str
        "separated": lower > 0, that is G alpha > 0, and the algorithm stops there;
        "certified": upper - lower <= tol * upper;
        "infeasible": upper <= eps, so that p proves that no margin above upper exists; eps is an option of the
        algorithm, or its docstring defines eps.  The points may still be separable with a smaller margin; lower > 0
        proves that they are.  Only equal points with opposite labels (see `contradiction`) prove that no kernel
        separates them;
        "rounding": one of the above seems to hold, but rounding prevents a proof, or no further step of the algorithm
        narrows the interval; see ``note``.  As above, lower > 0 proves that the points are separable;
        "max_iter": none of the above held within max_iter iterations;
        "stopped": the callback returned True;
        "running": the run continues; only a callback sees this status.
    n_iter : int
        Number of updates made, including those of ``start``.  Iteration 0 is the state before the first update.
    trace : structured array
        One row per checkpoint of this call; the first row is its start.  The fields are iteration; products, the number
        of products G v so far, where a column of G counts 1/n whatever it costs; seconds, the time of the iterations so
        far, without compilation; lower; and upper.  Certificates add neither products nor seconds.  The interval of the
        last row comes from fresh products.  Intervals of earlier rows may come from vectors that the loop updates; they
        are then widened by the errors that these updates may have made.  Each row has the interval of its own iterate.
        It may be wider than the interval of an earlier row; both hold.
    iterates : array, shape (checkpoints, n), or None
        With keep_iterates=True, alpha at every row of the trace.  None in the partial results that a callback sees.
    state : tuple
        (name of the algorithm, arrays of its loop); ``start=result`` continues from these arrays.
    separator : array, shape (d,), for pairs (n_classes, d), or None
        The coordinates of the separator, if `max_margin` found one that weights in double precision cannot represent,
        as for columns of very different scales.  `Gram.decision_function` then takes it in place of alpha.
    note : str
        If the status is "rounding": the gap to which rounding limits the interval, and a more precise G, if there is
        one.
    bias : float
        The bias of alpha, or of the separator, with which lower is proved; 0 unless the intercept is free.  It belongs
        to the points minus `Gram.origin`: for the points themselves the bias of w is bias - <w, origin>.

    See Also
    --------
    certificate : the interval for any alpha and p.
    Gram.decision_function : the values f(x) at new points.

    Examples
    --------
    >>> fm.max_margin(fm.features([[3.0, 4.0]], 1, normalize=None))
    Result('certified': 4.99999 <= rho <= 5.00001, relative gap 8.7e-15, 0 iterations, n = 1, 1 checkpoint)
    >>> fm.max_margin(fm.features([[1.0], [2.0]], [1, -1]))
    Result('infeasible': no margin above 1.4e-15, 1 iteration, n = 2, 2 checkpoints)
    """

    alpha: Array
    p: Array
    lower: float
    upper: float
    status: str
    n_iter: int
    trace: Array
    iterates: Array | None
    state: tuple[Any, ...]
    separator: Array | None = None
    note: str = ""
    bias: float = 0.0

    def __repr__(self) -> str:
        low = _written(self.lower, 6, _DOWN)
        if self.status == "infeasible":
            claim = f"no margin above {_written(self.upper, 2, _UP)}"
            if self.lower > 0.0:
                claim += f", rho >= {low}"
        else:
            gap = "undefined"
            if self.upper > 0.0:
                gap = f"{(self.upper - self.lower) / self.upper:.2g}"
            claim = f"{low} <= rho <= {_written(self.upper, 6, _UP)}, relative gap {gap}"
            if self.note:
                claim += f"; {self.note}"
        iterations = _counted(self.n_iter, "iteration")
        checkpoints = _counted(len(self.trace), "checkpoint")
        return f"Result({self.status!r}: {claim}, {iterations}, n = {self.p.size}, {checkpoints})"


def _warn(message, category=UserWarning):
    """Warn at the line of the user's program that called into this module."""
    decorator = np.errstate.__enter__.__code__.co_filename
    passed = (_warn.__code__.co_filename, contextlib.__file__, functools.__file__, decorator)
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename in passed:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _refuse_version(version):
    """Refuse a model that another version saved; ``version`` is None if the model stores no version."""
    if version != __version__:
        by = (
            f"fastmargin {version}"
            if version
            else "an earlier fastmargin, which stored no version,"
        )
        raise ValueError(f"the model was saved by {by} and this is {__version__}: fit it anew")


def _is_result(start):
    """Return True for a Result, also if an earlier import of this module made it."""
    return getattr(start, "_fields", None) == Result._fields


_DOWN = -1.0
_UP = 1.0


def _written(number, digits, direction):
    """Write a bound with this many digits, rounded _DOWN or _UP, so that it stays a bound."""
    shown = f"{number:.{digits}g}"
    if (float(shown) - number) * direction < 0.0:
        unit = 10.0 ** (math.floor(math.log10(abs(number))) + 1 - digits)
        shown = f"{number + direction * unit:.{digits}g}"
    return shown


def _counted(number, noun):
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}es" if noun.endswith("s") else f"{number} {noun}s"


_TRACE = np.dtype(
    [("iteration", "i8"), ("products", "f8"), ("seconds", "f8"), ("lower", "f8"), ("upper", "f8")]
)


# The door: functions that check what a user passes.  They take float64, float32, integers and booleans, dense or
# sparse.  They return finite floats; points and matrices have a size at which squares, products and roots neither
# overflow nor lose digits.  Other input raises an error that names the entry and gives a line of Python that helps.

_WHOLE = 2**53  # beyond this, double precision cannot represent every integer
_POINTS = (1e-100, 1e100)  # the range of max_ij |x_ij|, the size of points
_ENTRIES = (1e-200, 1e200)  # the range of max_i G_ii, a square of lengths
_MARGINS = (0.0, 1e200)  # the range of max_i |(G alpha)_i|; all margins may be 0
_TINY = float(np.finfo(np.float64).tiny)  # smaller positive numbers have fewer digits
_RATIOS = (1e-16, 1e16)  # the range of a ridge over max_i G_ii, and of one weight over another


def _is_sparse(a):
    return hasattr(a, "tocsr")


def _is_mapped(a):
    """Return True for an array that lies in a mapped file, or a view of one."""
    while isinstance(a, np.ndarray):
        if isinstance(a, np.memmap):
            return True
        a = a.base
    return False


def _plain(a, name):
    """Return an array, list or data frame as a plain array of any type."""
    if _is_sparse(a):
        raise TypeError(
            f"{name} is sparse, but only points may be sparse: pass {name}.toarray() if memory allows"
        )
    # Neither a named tuple nor a Gram is a table of points.
    kinds = "an array or a Gram" if name == "G" else "an array"
    if hasattr(a, "_fields") or hasattr(a, "free_labels"):
        remedy = ": give the rows y_i x_i, y[:, None] * X" if name == "Z" else ""
        raise TypeError(f"{name} must be {kinds}, got {type(a).__name__}{remedy}")
    if hasattr(a, "predict"):
        remedy = ": give np.append(model.coef_, model.intercept_)" if name == "w" else ""
        raise TypeError(f"{name} must be {kinds}, not the model {type(a).__name__}{remedy}")
    try:
        plain = np.asarray(a)
    except ValueError as error:
        raise ValueError(f"{name} must have rows of one length: {error}") from None
    if plain.ndim == 0 and plain.dtype.kind in "OSU":
        is_row = hasattr(a, "__iter__") and not isinstance(a, str | bytes | dict)
        remedy = f": give list({name})" if is_row else ""
        if name != "G":
            kinds = "an array, a list or a data frame"
        raise TypeError(f"{name} must be {kinds}, got {type(a).__name__}{remedy}")
    return plain


def _numbers(given, name):
    """Return an array, list or data frame of real numbers as a plain array in float64 or float32."""
    plain = _plain(given, name)
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array: leave out the masked entries, or fill them in, as {name}.filled(0.0) does"
        )
    kind = plain.dtype.kind
    if kind not in "fiub" or plain.dtype.itemsize > 8 or _may_be_promoted(plain, given):
        if hasattr(given, "columns") and plain.ndim == 2:
            columns = zip(given.columns, _columns_of(given), strict=True)
            parts = [_numbers(column, f"{name}[{label!r}]") for label, column in columns]
            return np.column_stack(parts)
        if kind in "fiub" and isinstance(given, list | tuple):
            plain = np.array(given, dtype=object)
        return _numbers_of_objects(plain, name)
    if (
        kind in "iu"
        and plain.size
        and not -_WHOLE <= int(plain.min()) <= int(plain.max()) <= _WHOLE
    ):
        return _numbers_of_objects(plain, name)
    return plain if plain.dtype in (np.float32, np.float64) else plain.astype(np.float64)


def _may_be_promoted(plain, given):
    """Return True if a list or data frame has several types, so that NumPy may have rounded large integers."""
    is_mixed = isinstance(given, list | tuple)
    if hasattr(given, "columns"):
        kinds = {getattr(dtype, "kind", "O") for dtype in getattr(given, "dtypes", "O")}
        is_mixed = not kinds <= set("fb")
    return is_mixed and plain.dtype.kind == "f" and bool((np.abs(plain) >= _WHOLE).any())


def _columns_of(frame):
    """Return the columns of a data frame as plain arrays."""
    count = len(frame.columns)
    if hasattr(frame, "iloc"):
        return [np.asarray(frame.iloc[:, k]) for k in range(count)]
    return [np.asarray(frame[:, k]) for k in range(count)]


def _numbers_of_objects(plain, name):
    """Return an array of objects in float64; raise an error for the first that is not a number in double precision."""
    numbers = np.empty(plain.shape)
    for index, value in np.ndenumerate(plain):
        wrong = _no_number(value, name)
        if wrong is not None:
            error, what, remedy = wrong
            raise error(f"{name} must hold real numbers; {_place(index)} has {what}: {remedy}")
        numbers[index] = value
    return numbers


def _place(index):
    """Name an entry by its row and column; in tables (n, k, d) a column has two numbers."""
    if len(index) < 2:
        return f"row {index[0]}" if index else "it"
    column = index[1] if len(index) == 2 else index[1:]
    return f"row {index[0]}, column {column}"


def _no_number(value, name):
    """Return None for a number in double precision, else (error, what the value is, a line of Python that helps)."""
    kind = _kind_of_time(value)
    if _is_missing(value):
        table = f"pandas.DataFrame({name.partition('[')[0]})"  # name may be that of one column
        remedy = f"{_IMPUTER}keep the rows that have all values, {table}.dropna()"
        return TypeError, "a missing value", remedy
    if kind == "duration":
        seconds = f'np.asarray({name}, "m8[us]") / np.timedelta64(1, "s")'
        return TypeError, f"a duration, {value}", f"in seconds: {seconds}"
    if kind == "date":
        # The day does not depend on the data, so that new points are counted from the same day.
        since = f'np.asarray({name}, "M8[us]") - np.datetime64("2000-01-01")'
        return TypeError, f"a date, {value}", f'in seconds: ({since}) / np.timedelta64(1, "s")'
    if isinstance(value, (int, np.integer)):
        if -_WHOLE <= value <= _WHOLE:
            return None
        rounded = f"np.asarray({name}, dtype=float)"
        offset = f"A = np.array({name}, dtype=object); A - A.min(axis=0)"
        remedy = (
            f"round them, {rounded}; or, for time stamps and the like, subtract an offset in their own type, from "
            f"new points too: {offset}"
        )
        return ValueError, f"the integer {value}, beyond 2**53", remedy
    if isinstance(value, (np.bool_, float, np.float32, np.float16)):
        return None
    if isinstance(value, (complex, np.complexfloating)):
        # The checks of scikit-learn expect the first words.
        parts = f"np.column_stack((np.real({name}), np.imag({name})))"
        remedy = f"Complex data not supported, give both parts, {parts}"
        return ValueError, f"the complex number {value}", remedy
    what = f"{str(value) if isinstance(value, str) else value!r:.80}"
    try:
        float(value)
    except (TypeError, ValueError) as error:
        what = f"{what} ({error})"
    categories = "for categories make columns of 0 and 1, as pandas.get_dummies does"
    return TypeError, what, f"{categories}; for numbers give np.asarray({name}, dtype=float)"


def _is_missing(value):
    """Return True for None, for a masked entry, and for missing values of pandas and missing dates."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    is_nothing = value is None or value is np.ma.masked
    return is_nothing or type(value).__name__ in ("NAType", "NaTType")


def _kind_of_time(value):
    """Return "date", "duration" or "".  NumPy would turn a date or a duration into a count of its unit."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M" or isinstance(value, datetime.date) or type(value).__name__ == "Period":
        return "date"
    return "duration" if kind == "m" or isinstance(value, datetime.timedelta) else ""


def _array(given, name, ndim, sizes=None):
    """Return a finite array of ``ndim`` dimensions in float64 or float32, with a size of 0 or within ``sizes``."""
    numbers = _numbers(given, name)
    are_points = ndim == 2 and sizes is _POINTS
    if numbers.size == 0:
        what = "feature" if len(numbers) else "sample"  # the words of scikit-learn
        raise ValueError(
            f"{name} is empty: 0 {what}(s) (shape={numbers.shape}) while a minimum of 1 is required."
        )
    if numbers.ndim != ndim:
        remedy = ""
        if ndim == 1 and numbers.ndim == 2 and 1 in numbers.shape:
            remedy = f": give np.ravel({name})"
        if ndim == 2 and numbers.ndim == 1:
            remedy = (
                f". Reshape your data: np.reshape({name}, (-1, 1)) if it is one feature, or "
                f"np.reshape({name}, (1, -1)) if it is one point"
            )
        if are_points and numbers.ndim > 2:
            remedy = f": make a row of each image or table, np.reshape({name}, (len({name}), -1))"
        raise ValueError(
            f"{name} must have {_counted(ndim, 'dimension')}, got shape {numbers.shape}{remedy}"
        )
    size = _size_of(numbers)
    if not math.isfinite(size):
        index = np.argwhere(~np.isfinite(numbers))[0].tolist()
        columns = getattr(given, "columns", None)
        column = "" if columns is None or ndim < 2 else f", in column {columns[index[1]]!r}"
        value = numbers[tuple(index)]
        imputer = _IMPUTER if are_points and math.isnan(value) else ""
        raise ValueError(
            f"{name} must be finite, without NaN or inf; row {index[0]} has {value} at "
            f"{name}{index}{column}: {imputer}{_finite_rows(given, name, ndim)}"
        )
    if not _is_within(size, sizes):
        index = np.unravel_index(np.abs(numbers).argmax(), numbers.shape)
        _refuse_size(size, name, _place([int(i) for i in index]), sizes)
    return numbers


_IMPUTER = "fill it in, as scikit-learn's SimpleImputer does, or "


def _finite_rows(given, name, ndim):
    """Return the line of Python that keeps the rows without NaN and inf."""
    if ndim == 1:
        return "fill it in, or leave this point out of all arrays"
    table = name if hasattr(given, "shape") else f"np.asarray({name})"
    # NumPy would turn nullable columns into objects.
    numbers = f"{name}.astype(float)" if hasattr(given, "columns") else table
    axis = 1 if ndim == 2 else (1, 2)
    labels = ", and the same rows of y" if name == "X" else ""
    return f"keep the other rows, {table}[np.isfinite({numbers}).all(axis={axis})]{labels}"


def _size_of(numbers):
    """Return the largest absolute value of an array: NaN if an entry is NaN, and 0 if the array is empty."""
    if numbers.size == 0:
        return 0.0
    return float(np.maximum(-numbers.min(), numbers.max()))


def _is_within(size, sizes):
    """Return True if squares and products of this size stay in the range of double precision, and for 0."""
    return sizes is None or size == 0.0 or sizes[0] <= size <= sizes[1]


def _refuse_size(size, name, place, sizes, table="{}"):
    """Refuse numbers of this size; ``table`` is the form of the array in the remedy."""
    alike = " all points alike" if name in ("X", "Xnew", "A", "B") else ""
    table = table.format(name)
    raise ValueError(
        f"the largest absolute value of {name} is {size:.3g}, in {place}, and must be from {sizes[0]:g} to "
        f"{sizes[1]:g}: rescale{alike}, {table} / np.abs({table}).max()"
    )


def _vector(v, name, n=None, sizes=None):
    """Return a copy of a finite vector in float64, of n entries unless n is None, and within ``sizes``."""
    v = _array(v, name, 1, sizes).astype(np.float64)
    if n not in (None, v.size):
        raise ValueError(f"{name} must have {n} entries, got {v.size}")
    return v


def _points(X, name="X"):
    """Return finite points in float64 or float32: C-ordered rows, or a copy of sparse ones in compressed rows."""
    if _is_sparse(X):
        return _sparse_points(X, name)
    return np.ascontiguousarray(_array(X, name, 2, _POINTS))


def _sparse_points(X, name="X"):
    """Return a checked copy of a SciPy sparse matrix or array in compressed rows; SciPy itself is not imported."""
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"{name} must have 2 dimensions and not be empty, got shape {X.shape}")
    if X.dtype.kind not in "fiub" or X.dtype.itemsize > 8:
        remedy = f"give {name}.astype(np.float64)"
        if X.dtype.kind == "c":
            remedy = f"give both parts, scipy.sparse.hstack(({name}.real, {name}.imag))"
        raise TypeError(f"{name} must hold real numbers, got dtype {X.dtype}: {remedy}")
    X = X.copy() if X.format == "coo" else X.tocsr(copy=True)
    count = X.nnz
    largest = 0.0  # of integers
    if X.dtype.kind in "iu":
        # Entries at the same place are added up, and a sum in a small type overflows.
        X.data = _sparse_floats(X, name)
        largest = _size_of(X.data[:count])
    X = X.tocsr()
    X.sum_duplicates()  # sorts the columns of each row, too
    if X.nnz < count and largest * (1 + count - X.nnz) >= _WHOLE:
        raise ValueError(
            f"{name} has integers at one place whose sum may be beyond 2**53: round them, "
            f"{name}.astype(np.float64)"
        )
    if X.dtype == np.bool_:
        X = X.astype(np.float64)
    X.eliminate_zeros()
    size = _size_of(X.data)
    if not math.isfinite(size):
        k = np.flatnonzero(~np.isfinite(X.data))[0]
        imputer = _IMPUTER if math.isnan(X.data[k]) else ""
        raise ValueError(
            f"{name} must be finite, without NaN or inf; {_sparse_place(X, k)} has {X.data[k]}: {imputer}keep the "
            f"other rows, {name}.tocsr()[np.isfinite(np.ravel({name}.sum(axis=1)))]"
        )
    if not _is_within(size, _POINTS):
        place = _sparse_place(X, np.abs(X.data).argmax())
        _refuse_size(size, name, place, _POINTS, "{}.tocsr()")
    return X


def _sparse_floats(X, name):
    """Return the entries of a sparse table of integers in float64."""
    entries = X.data[: X.nnz]
    is_large = (entries > _WHOLE) | (entries < -_WHOLE)
    if is_large.any():
        k = is_large.argmax()
        place = _place((X.row[k], X.col[k])) if X.format == "coo" else _sparse_place(X, k)
        raise ValueError(
            f"{name} must hold real numbers; {place} has the integer {entries[k]}, beyond 2**53: round them, "
            f"{name}.astype(np.float64)"
        )
    return X.data.astype(np.float64)


def _sparse_place(X, k):
    row = np.searchsorted(X.indptr, k, side="right") - 1
    return _place((row, X.indices[k]))


def _objects(X):
    """Return points that are not rows of numbers, such as texts or graphs, as an array of objects, (n,); else None."""
    is_list = isinstance(X, list | tuple) and len(X) > 0
    if is_list and isinstance(X[0], list | tuple | np.ndarray | float | np.number | int):
        return None
    is_column = getattr(X, "ndim", 0) == 1 and np.asarray(X).dtype.kind in "OSU"
    if not (is_list or is_column):
        return None
    objects = np.empty(len(X), dtype=object)
    for i, x in enumerate(X):
        objects[i] = x
    return objects


def _width_of(X):
    """Return the number of columns of checked points, or None for objects."""
    return X.shape[1] if len(X.shape) == 2 else None


def _squares(X):
    """Return ||x_i||^2 for dense or sparse rows, summed in float64."""
    if _is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


_AT_ONCE = 1 << 20  # entries of points or of a kernel matrix that are handled at a time: 8 MB


def _slices(n, width):
    """Yield slices of n rows of this width, with about `_AT_ONCE` entries each."""
    step = max(1, _AT_ONCE // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _ranges(X):
    """Return (low, high), (d,) each: the least and the largest entry of each column of checked points."""
    if not _is_sparse(X):
        return X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    n, d = X.shape
    low = np.full(d, math.inf)
    high = np.full(d, -math.inf)
    np.minimum.at(low, X.indices, X.data)
    np.maximum.at(high, X.indices, X.data)
    has_zeros = np.bincount(X.indices, minlength=d) < n
    low[has_zeros] = np.minimum(low[has_zeros], 0.0)
    high[has_zeros] = np.maximum(high[has_zeros], 0.0)
    return low, high


def _origin(X):
    """Return a point o, (d,): the middle of each column whose range is narrow compared to its distance from 0; 0 in
    the other columns.

    In a narrow column x and o are within a factor of 2 of each other, so that x - o is exact (P. Sterbenz,
    Floating-Point Computation, 1974) and at most as large as the range of the column.  A narrow column of sparse points
    has no zeros.
    """
    low, high = _ranges(X)
    middle = 0.5 * (low + high)
    is_far = high - low <= np.abs(middle) / 3.0
    # If all points are equal, moving them would make zeros of them.
    return np.where(is_far & (high > low).any(), middle, 0.0)


# Equal rows


def _row_key(X):
    """Return a function from the number of a point to its key; equal points have equal keys.

    Points are rows of a plain or sparse array, or objects.  Objects that cannot be hashed count as different.
    """
    if _width_of(X) is None:

        def object_key(i):
            try:
                hash(X[i])
            except TypeError:
                return id(X[i])
            return X[i]

        return object_key
    if not _is_sparse(X):
        return lambda i: (X[i] + 0.0).tobytes()  # -0.0 + 0.0 is 0.0

    def key(i):
        entries = slice(X.indptr[i], X.indptr[i + 1])
        return X.indices[entries].tobytes(), X.data[entries].tobytes()

    return key


def _first_copies(X, labels):
    """Return (first, place): the numbers of the first of all equal points of a class, in order, and for each point the
    index in ``first`` of its copy.

    X are checked points; labels, (n,), are whole numbers.
    """
    key = _row_key(X)
    place = np.arange(len(labels))
    seen = {}
    for i in _perhaps_repeated(X).tolist():
        place[i] = seen.setdefault((labels[i], key(i)), i)
    return np.unique(place, return_inverse=True)


def _perhaps_repeated(X):
    """Return the numbers of some points, among them all that equal another point."""
    if _width_of(X) is None:
        return np.arange(len(X))
    # Different weights of columns keep apart rows of word counts that have equal totals.
    sums = X @ np.sqrt(np.arange(X.shape[1])) if _is_sparse(X) else X.sum(axis=1, dtype=np.float64)
    in_order = np.sort(sums)
    repeated = in_order[1:][in_order[1:] == in_order[:-1]]
    return np.flatnonzero(np.isin(sums, repeated))  # equal points have equal sums


# Labels


def _dimensions(a):
    """Return the number of dimensions of an array or of lists; None for anything else."""
    if isinstance(a, list | tuple):
        return 2 if len(a) and isinstance(a[0], list | tuple | np.ndarray) else 1
    return len(a.shape) if hasattr(a, "shape") else None


def _refuse_swapped(X, y):
    """Refuse points that have the shape of labels, labels that have the shape of points, and points in columns."""
    shape = getattr(X, "shape", ())
    if len(shape) == 2 and _dimensions(y) == 1 and len(y) == shape[1] != shape[0]:
        raise ValueError(
            f"X must have a row for each point; it has {shape[0]} rows, and y has {len(y)} labels: give X.T if the "
            "columns are the points"
        )
    if _is_sparse(X) or not (_is_sparse(y) or _dimensions(y) == 2) or _dimensions(X) != 1:
        return
    raise ValueError(
        f"X must have a row for each point, and y must have a label for each point; got the shapes {np.shape(X)} and "
        f"{np.shape(y)}: X and y seem to be swapped"
    )


def _known_labels(y, name="y"):
    """Return labels of any type as an array of their shape; an error names the row of a missing label."""
    if y is None:
        raise ValueError(f"{name} should be a 1d array with a label for each point, got None")
    if isinstance(y, str):
        raise TypeError(
            f"{name} must have a label for each point, got {y!r}: give options by their names"
        )
    labels = _plain(y, name)
    if isinstance(y, list | tuple) and labels.dtype.kind != "O":
        # Beside text, NumPy turns NaN into "nan" and 1 into "1".  Then the labels are kept as objects.
        as_given = np.array(y, dtype=object)
        if (as_given != labels.astype(object)).any():
            labels = as_given
    is_masked = np.zeros(labels.shape, dtype=bool)
    if isinstance(y, np.ma.MaskedArray):
        is_masked |= np.ma.getmaskarray(y)
    is_missing = is_masked | _are_missing(labels)
    if is_missing.any():
        index = tuple(np.argwhere(is_missing)[0])
        value = "a masked one" if is_masked[index] else labels[index]
        raise ValueError(
            f"Input {name} contains NaN, None or masked labels: row {index[0]} has {value}; leave such points out"
        )
    _refuse_one_hot(labels, name)
    return labels


def _refuse_one_hot(labels, name):
    """Refuse a table that has a column for each class, and a single 1 in each row."""
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "biufO":
        return
    is_one = labels == 1
    if (is_one | (labels == 0)).all() and (is_one.sum(axis=1) == 1).all():
        raise ValueError(
            f"{name} is one-hot, with a column for each class: give the numbers of the classes, "
            f"np.asarray({name}).argmax(axis=1)"
        )


def _kinds(labels):
    """Return the kinds of labels in an array, (n,): labels of two kinds are never equal."""
    some = labels if labels.dtype.kind == "O" else labels[:1]  # all are of one type
    return {_kind(label) for label in {type(label): label for label in some}.values()}


def _kind(label):
    if isinstance(label, str):
        return "text"
    if isinstance(label, bytes):
        return "bytes"
    if isinstance(label, (complex, np.complexfloating)):
        return "complex numbers"
    # The module `numbers` counts durations as integers.
    is_number = isinstance(label, Number | np.bool_) and not isinstance(label, np.timedelta64)
    return "numbers" if is_number else _kind_of_time(label) or type(label).__name__


def _are_missing(labels):
    """Return which labels of an array are NaN or missing."""
    kind = labels.dtype.kind
    if kind in "fcmM":
        return np.isnan(labels)
    if kind in "biuUS":
        return np.zeros(labels.shape, dtype=bool)
    # NaN, in whatever type, differs from itself.
    found = [_is_missing(label) or np.any(label != label) for label in labels.astype(object).flat]
    return np.array(found, dtype=bool).reshape(labels.shape)


def _labels(y, n, name="y", allowed=(-1, 1)):
    """Return the labels of n points in float64; +1 for every point if y is None."""
    if y is None and name == "y":
        return np.ones(n)
    known = _known_labels(y, name)
    is_sign = allowed == (-1, 1)
    try:
        labels = _vector(y, name, n)
    except TypeError:
        remedy = f": np.unique({name}, return_inverse=True)[1] has their numbers"
        if is_sign:
            remedy = _sign_remedy(y, name)
        if not remedy:
            raise
        raise TypeError(f"{name} must hold real numbers, got dtype {known.dtype}{remedy}") from None
    is_allowed = np.abs(labels) == 1.0
    if not is_sign:  # ``allowed`` is a range, which may be too long for a list
        is_allowed = (labels == np.floor(labels)) & (labels >= 0.0) & (labels <= allowed[-1])
    if not is_allowed.all():
        wrong = np.flatnonzero(~is_allowed)
        first = f"; {name}[{wrong[0]}] is {labels[wrong[0]]:g}"
        if is_sign:
            raise ValueError(f"{name} must hold labels -1 or +1{first}{_sign_remedy(y, name)}")
        if (np.abs(labels) == 1.0).all():
            first += f"; -1 and +1 become 0 and 1 by (np.asarray({name}) + 1) // 2"
        raise ValueError(f"{name} must hold integers from 0 to {allowed[-1]}{first}")
    return labels


def _of_both_classes(y):
    """Return the labels of a problem with a free intercept, which needs both classes."""
    if np.ptp(y) == 0.0:
        raise ValueError(
            'intercept="free" needs points of both classes, with labels -1 and +1; these points are of one class'
        )
    return y


def _signs(y, n, is_free=False):
    """Return the labels of n points as signs; warn of a single class, because its margin is hardly ever wanted."""
    y = _labels(y, n)
    if is_free:
        return _of_both_classes(y)
    if np.ptp(y) == 0.0:
        _warn(
            f"all labels y are {y[0]:+g}, and the margin of one class is that of its points to the origin: give both "
            "classes; or, if rows Z have their signs already, features(Z, 1, normalize=None)"
        )
    return y


def _sign_remedy(y, name):
    """Return the end of an error: how to map two values to -1 and +1, or what to do with fewer or more values."""
    try:
        values = np.unique(np.asarray(y))
    except (TypeError, ValueError):  # the values have no order
        return ""
    if isinstance(y, np.ma.MaskedArray):
        return ""
    if values.size < 2:
        return f"; {name} has no other value: give points of both classes"
    if values.size > 2:
        return f"; {name} has {values.size} values: use pair_gram for several classes"
    if values.dtype.kind in "mM":  # ``tolist`` turns dates into types that depend on their unit
        low, high = values.astype(str).tolist()
        largest = f"np.asarray({name}).max()"
    else:
        low, high = values.tolist()
        largest = repr(high)
    remedy = f"np.where(np.asarray({name}) == {largest}, 1, -1)"
    return f"; {name} has {low!r} and {high!r}: pass {remedy}"


def _choice(value, name, options):
    if not isinstance(value, str | None) or value not in options:
        got = repr(value) if np.ndim(value) == 0 else type(value).__name__
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {got}")
    return value


def _meant(unknown):
    """Return the end of an error about unknown options: where the first known one of them belongs, or ""."""
    for name in unknown:
        if name == "C":
            return (
                "; for slacks give cost=C, or ridge=1/(2*C) if slacks are squared; C is an option of "
                "MaxMarginClassifier"
            )
        if name == "W":
            return '; for a network of finite width give a function as kernel, see "A kernel" in figures/MANUAL.md'
        if name == "fit_intercept":
            return '; for a bias give intercept="free"'
        if name == "kernel":
            return "; kernel belongs to G: give it to gram or lazy_gram"
        if name in ("normalize", "intercept", "ridge", "cost"):
            return f"; {name} belongs to G: give it to gram, features or lazy_gram"
    return ""


_Public = TypeVar("_Public", bound=Callable[..., Any])


def _with_remedies(function: _Public, options: frozenset[str] = frozenset()) -> _Public:
    """Let a function name the remedy if its arguments are too many or unknown, where Python's own error names none.

    ``options`` are the names that ``**options`` of the function takes.
    """
    parameters = inspect.signature(function).parameters.values()
    by_position = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
    own = [p.name for p in parameters if p.kind != p.VAR_KEYWORD]
    known = list(dict.fromkeys([*own, *sorted(options)]))

    @functools.wraps(function)
    def checked(*args, **named):
        if len(args) > len(by_position):
            remedy = "; give gram(X, y) or features(X, y) in place of X, y" * (by_position == ["G"])
            raise TypeError(
                f"{function.__name__}() takes {' and '.join(by_position)} by position, and other arguments by "
                f"name{remedy}"
            )
        for name in named:
            if name not in known:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}; it takes "
                    f"{', '.join(known[:-1])} and {known[-1]}{_meant([name])}"
                )
        return function(*args, **named)

    return cast(_Public, checked)


def _number(value, name, low=0.0, *, closed=False, infinite=False):
    """Return a finite number above ``low``; ``closed`` admits ``low`` itself, ``infinite`` admits inf."""
    try:
        number = math.ldexp(value, 0)  # float(value) would accept text
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, bool) or _kind_of_time(value):
        raise TypeError(f"{name} must be a number, got {value!r}")
    is_end = (closed and number == low) or (infinite and number == math.inf)
    if not is_end and not low < number < math.inf:
        bound = "at least" if closed else "above"
        infinity = ", or inf" if infinite else ""
        raise ValueError(f"{name} must be finite and {bound} {low:g}{infinity}; got {value!r}")
    return number


def _amounts(values, name, n):
    """Return n finite numbers >= 0 in float64; a single number is repeated."""
    if np.asarray(values).ndim == 0:
        return np.full(n, _number(values, name, closed=True))
    values = _vector(values, name, n)
    if values.min() < 0.0:
        raise ValueError(f"{name} must hold numbers of at least 0; the least is {values.min():g}")
    return values


def _places(index, n, name="index"):
    """Return the numbers of the points that an array of numbers, a slice, or a mask with n entries selects."""
    if isinstance(index, slice):
        places = np.arange(n)[index]
    else:
        places = _plain(index, name)
        if places.dtype == np.bool_ and places.shape == (n,):
            places = np.flatnonzero(places)
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
        raise TypeError(
            f"{name} must be an array of numbers of points, such as [0], or a mask of {_counted(n, 'point')}; got an "
            f"array of {places.dtype} of shape {places.shape}"
        )
    if places.size == 0:
        raise ValueError(f"{name} must select at least one point, and selects none")
    is_outside = (places < -n) | (places >= n)
    if is_outside.any():
        raise IndexError(
            f"{name} must hold numbers of points, from 0 to {n - 1}, or from -{n} to -1 to count from the end; got "
            f"{places[is_outside.argmax()]}"
        )
    places = places.astype(np.int64)
    return np.where(places < 0, places + n, places)


def _refuse_overflow(*numbers, place=""):
    if not all(np.isfinite(array).all() for array in numbers):
        raise FloatingPointError(
            f"the iterates or their margins are not finite{place}: they overflowed, or G was "
            "written to during the run: rescale G, or give a smaller step"
        )


def _integer(value, name):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def _count(value, name, low=0):
    number = _integer(value, name)
    if isinstance(value, bool) or not low <= number <= 2**53:
        raise ValueError(f"{name} must be an integer from {low} to 2**53; got {value!r}")
    return number


# ======================================================================================================
# 2 vectors
# ======================================================================================================
#
# Functions that algorithms call in their loops are compiled one by one, with njit: they are fast even where the loop
# itself runs as Python source.  Functions that only compiled code calls are register_jitable: they are compiled into
# their callers.


@njit(cache=_CACHE, fastmath=_FAST)
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(cache=_CACHE)
def _copy(a, b):
    """b[: a.size] <- a.  Numba would compile an error about shapes into b[:] = a, which takes seconds."""
    for i in range(a.size):
        b[i] = a[i]


@njit(cache=_CACHE)
def _combine(a, x, b, y):
    """x <- a x + b y."""
    for i in range(x.size):
        x[i] = a * x[i] + b * y[i]


@njit(cache=_CACHE)
def _multiply(c, v):
    """v <- c v."""
    for i in range(v.size):
        v[i] *= c


@njit(cache=_CACHE)
def _least(v):
    """Return the least entry, or NaN if there is one.  Numba takes long to compile v.min(), which serves all shapes."""
    low = math.inf
    has_nan = False
    for i in range(v.size):
        low = v[i] if v[i] < low else low
        has_nan |= v[i] != v[i]
    return math.nan if has_nan else low


@njit(cache=_CACHE)
def _exceeds(v, floor):
    """Return True if every entry of v is above ``floor``."""
    for i in range(v.size):
        if not v[i] > floor:
            return False
    return True


@njit(cache=_CACHE, fastmath=_FAST)
def _total(v):
    """Return the sum of the entries.  Numba takes long to compile v.sum()."""
    total = 0.0
    for i in range(v.size):
        total += v[i]
    return total


@njit(cache=_CACHE, fastmath=_FAST)
def _norm1(v):
    """Return ||v||_1."""
    total = 0.0
    for i in range(v.size):
        total += abs(v[i])
    return total


@njit(cache=_CACHE, fastmath=_FAST)
def _softmax(m, q):
    """q <- softmax(-m); return ln sum_i exp(-m_i)."""
    low = _least(m)
    for i in range(m.size):
        q[i] = math.exp(low - m[i])
    # The sum has a loop of its own: in the loop above, its order would depend on where the arrays lie in memory.
    total = _total(q)
    for i in range(m.size):
        q[i] /= total
    return math.log(total) - low


def _unit_range(v):
    """Return v times the power of two that brings ||v||_1 into [1/2, 1]."""
    # The largest entry comes first, because the sum of all entries might overflow.
    v = np.ldexp(v, -np.frexp(np.abs(v).max())[1])
    return np.ldexp(v, -np.frexp(np.abs(v).sum())[1])


def _frozen(array):
    """Return a read-only view of an array, so that loops are compiled for one type of array."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


@register_jitable(fastmath=False)  # by default it would inherit the flags of its first caller
def _add_exactly(high, low, a, b):
    """Return (high, low) with high + low = the given high + low + a b; low collects the rounding errors.

    Knuth's sum and Dekker's product, as in T. Ogita, S. Rump, S. Oishi, SIAM J. Sci. Comput. 26, 2005.
    """
    product = a * b
    total = high + product
    # The factor 2^27 + 1 splits a number into halves of 26 bits, whose products are exact.
    split_a = 134217729.0 * a
    split_b = 134217729.0 * b
    a_high = split_a - (split_a - a)
    b_high = split_b - (split_b - b)
    a_low = a - a_high
    b_low = b - b_high
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    added = total - high
    return total, low + (lost + ((high - (total - added)) + (product - added)))


@njit(cache=_CACHE)
def _precise_dot(a, b):
    """Return (high, low): <a, b> = high + low to twice the working precision."""
    high = 0.0
    low = 0.0
    for i in range(a.size):
        high, low = _add_exactly(high, low, a[i], b[i])
    return high, low


@njit(cache=_CACHE)
def _renormalize(high, low):
    """Keep the value of high + low, and make ``low`` its rounding error: at most half a unit in the last place of
    ``high``.

    After sums that cancel, high and low may be of the same size.  Then high low would not be small beside high^2.
    """
    for i in range(high.size):
        total = high[i] + low[i]
        added = total - high[i]
        low[i] = (high[i] - (total - added)) + (low[i] - added)
        high[i] = total


# Loops that several threads share are compiled twice by `_twins`, over one compiled step: for one thread, and for
# several.  The step is the same code in both, so that results do not depend on the number of threads.

_STRETCH = 512  # entries of a vector that a step of `_combine_rows` updates; they fit into a cache


@njit(cache=_CACHE)
def _combine_stretch(matrix, index, weights, out, stretch):
    """Do `_combine_rows` for one stretch of ``out``, four rows at a time."""
    n = index.size
    start = _STRETCH * stretch
    stop = min(start + _STRETCH, out.size)
    total = out[start:stop]
    for k in range(0, n - 3, 4):
        a = matrix[index[k], start:stop]
        b = matrix[index[k + 1], start:stop]
        c = matrix[index[k + 2], start:stop]
        d = matrix[index[k + 3], start:stop]
        va = weights[k]
        vb = weights[k + 1]
        vc = weights[k + 2]
        vd = weights[k + 3]
        for j in range(total.size):
            total[j] += (a[j] * va + b[j] * vb) + (c[j] * vc + d[j] * vd)
    for k in range(n - n % 4, n):
        _combine(1.0, total, weights[k], matrix[index[k], start:stop])


def _combine_stretches(matrix, index, weights, out):
    for stretch in prange(-(-out.size // _STRETCH)):
        _combine_stretch(matrix, index, weights, out, np.int64(stretch))


_combine_stretches, _combine_stretches_in_parallel = _twins(_combine_stretches)


def _combine_rows(matrix, index, weights, out):
    """out <- out + sum_k weights_k matrix[index_k]."""
    twins = _combine_stretches, _combine_stretches_in_parallel
    _enter_by_size(index.size * out.size, *twins, matrix, index, weights, out)


# BLAS wakes its threads even for short products.  If another process needs a core, the threads wait for each other,
# many times longer than the product takes.
_SHORT = 1 << 24  # if a product has fewer multiplications, one thread is about as fast


@register_jitable(fastmath=_FAST)
def _four_dots(a, b, c, d, w):
    sa = 0.0
    sb = 0.0
    sc = 0.0
    sd = 0.0
    for k in range(w.size):
        x = w[k]
        sa += a[k] * x
        sb += b[k] * x
        sc += c[k] * x
        sd += d[k] * x
    return sa, sb, sc, sd


@njit(cache=_CACHE)
def _row_dots(rows, first, k, v, out):
    """out_i <- the sum of the first k terms of <rows_i, v>, for the rows from ``first`` on, four at a time."""
    v = v[:k]
    whole = len(rows) - (len(rows) - first) % 4
    for i in range(first, whole, 4):
        # Numba would not know that a row of rows[:, :k] is contiguous.
        dots = _four_dots(rows[i, :k], rows[i + 1, :k], rows[i + 2, :k], rows[i + 3, :k], v)
        out[i], out[i + 1], out[i + 2], out[i + 3] = dots
    for i in range(whole, len(rows)):
        row = rows[i, :k]
        # The sums are those above, so that a row gives the same bits at every place.
        out[i], _, _, _ = _four_dots(row, row, row, row, v)


@njit(cache=_CACHE)
def _short_product(A, B, out):
    for i in range(len(A)):
        _row_dots(B, 0, A.shape[1], A[i], out[i])


def _table_product(A, B):
    """Return A B' for two tables in C order.  The last bits depend on their sizes."""
    if len(A) * B.size >= _SHORT:
        return A @ B.T
    out = np.empty((len(A), len(B)))
    _short_product(A, B, out)
    return out


# ======================================================================================================
# 3 simplex
# ======================================================================================================


def _distribution(q, name, n):
    """Return q in float64; refuse it unless it is a point of the simplex of R^n up to rounding."""
    q = _array(q, name, 1)
    slack = 1e-9 if q.dtype == np.float64 else 1e-5
    q = q.astype(np.float64)
    if q.size != n or q.min() < 0.0:
        raise ValueError(
            f"{name} must hold {n} weights >= 0; got {q.size} weights, the least is {q.min():g}"
        )
    if abs(q.sum() - 1.0) > slack:
        raise ValueError(
            f"the sum of {name} must be 1; got {q.sum():.17g}: give {name} / {name}.sum()"
        )
    return q


@njit(cache=_CACHE)
def _best_bias(signs, m):
    """Return the bias b that maximises min_i (m + b y)_i, where y are the signs of two classes."""
    low_negative = math.inf
    low_positive = math.inf
    has_nan = False
    for i in range(m.size):
        has_nan |= m[i] != m[i]
        if signs[i] < 0.0:
            low_negative = min(low_negative, m[i])
        else:
            low_positive = min(low_positive, m[i])
    return math.nan if has_nan else 0.5 * (low_negative - low_positive)


def _least_hinge_loss(m, cost, y):
    """Return (b, pull): the bias that minimises sum_i cost_i max(0, 1 - m_i - b y_i), and a subgradient with y'pull =
    0.

    As m_i rises, the sum falls at the rate pull_i.  Without signs y there is no bias, and b = 0.
    """
    if y is None:
        return 0.0, np.where(m < 1.0, cost, 0.0)
    # The slack of point i ends at b = y_i - y_i m_i: there the slope of the sum, as a function of b, rises by cost_i.
    ends = y * (1.0 - m)
    order = np.argsort(ends)
    is_plus = y[order] > 0.0
    costs = cost[order]
    slope = np.cumsum(costs) - costs[is_plus].sum()
    flat = 1e-12 * slope[-1]
    k = int(np.argmax(slope >= -flat))
    above = np.arange(m.size) > k
    pulls = np.where(above == is_plus, costs, 0.0)
    pulls[k] = np.clip(slope[k] if is_plus[k] else costs[k] - slope[k], 0.0, costs[k])
    pull = np.empty(m.size)
    pull[order] = pulls
    # If the sum is flat at its minimum, as when all support vectors are at their cost, take the middle, as LIBSVM does.
    last = k + 1 if abs(slope[k]) <= flat and k + 1 < m.size else k
    return 0.5 * float(ends[order[k]] + ends[order[last]]), pull


def _weights(alpha, signs=None):
    """Return p = alpha / sum alpha for alpha >= 0.

    If alpha = 0, p is uniform; with signs, it is uniform in each class, and both classes weigh the same.
    """
    # A power of two scales exactly, apart from underflow; then the sum cannot overflow.
    exponent = math.frexp(float(alpha.max()))[1]
    alpha = np.ldexp(alpha, -exponent)
    if not alpha.any():
        alpha = np.ones(alpha.size) if signs is None else 1.0 - signs.mean() * signs
    return alpha / alpha.sum()


def _balanced(alpha, signs):
    """Return weights near alpha >= 0 with sum_i y_i alpha_i = 0 in exact arithmetic, for the signs y of two classes.

    The excess of the sum is subtracted from one weight of each exponent in turn, the largest exponent first.  At most
    half a unit in the last place of that weight is left each time.  If weights are more than a factor of 2^53 apart, an
    excess may be left at the end.
    """
    terms = (signs * alpha).tolist()
    excess = math.fsum(terms)
    if excess == 0.0 or not math.isfinite(excess):
        return alpha
    alpha = alpha.copy()
    # Write the exact sum as a sum of a few numbers; each rounds what the numbers before it leave.
    total = []
    part = excess
    while part != 0.0:
        total.append(part)
        part = math.fsum(itertools.chain(terms, (-known for known in total)))
    exponents = np.frexp(alpha)[1]
    _, one_of_each = np.unique(
        np.where(alpha > 0.0, -exponents, np.iinfo(np.int32).max), return_index=True
    )
    for i in one_of_each:
        changed = alpha[i] - signs[i] * excess
        if changed > 0.0:
            total += [-signs[i] * alpha[i], signs[i] * changed]
            alpha[i] = changed
            excess = math.fsum(total)
        if excess == 0.0:
            break
    return alpha


@register_jitable(fastmath=False)  # by default it would inherit the flags of its first caller
def _excess(x, top, tau):
    """Return the excess of x over top + tau.  x - top must come first: it is exact where x is large and near top."""
    return max((x - top) - tau, 0.0)


# No flags may reorder these sums: LLVM inlines this function into some of its callers only, and there it would sum in
# another order.  Then a process that compiles and a process that reads the cache would differ in their last digits.
@njit(cache=_CACHE)
def _project_simplex(v, out):
    """out <- argmin_{p in Delta} ||p - v||; v may have entries of -infinity, but its maximum is finite.

    Newton's method finds the tau at which the excesses of v over max v + tau sum to 1.  tau is exact once the support
    no longer changes, if the last step came from a sum near 1 and lost no digits.
    """
    top = v[0]
    for i in range(v.size):
        top = max(top, v[i])
    # The largest entry alone has the excess 1 here, so that tau is not above the solution.
    tau = -1.0
    previous_count = 0
    previous_tau = tau
    for _ in range(100):
        # 1. Sum the excesses.  The loop has no branch, which would be mispredicted.
        total = 0.0
        count = 0
        for i in range(v.size):
            excess = _excess(v[i], top, tau)
            total += excess
            count += excess > 0.0
        if count == 0:  # v has NaN
            break
        # 2. Make the Newton step.  If rounding moves tau back and forth between two values, end the search, too.
        next_tau = tau + (total - 1.0) / count
        is_exact = count == previous_count and abs(total - 1.0) <= count * _EPS
        is_last = is_exact or next_tau == previous_tau
        previous_count = count
        previous_tau = tau
        tau = next_tau
        if is_last:
            break
    for i in range(v.size):
        out[i] = _excess(v[i], top, tau)
    return out


def project_simplex(v: ArrayLike) -> Array:
    """Project v onto the simplex Delta: argmin_{p in Delta} ||p - v||_2, exactly.

    Delta is the set of p >= 0 in R^n with sum 1.  The projection is p_i = max(v_i - tau, 0) for the one tau at which
    these sum to 1.  Newton's method finds tau without a sort, in a few passes over v, and O(log n) at worst: Lemma 1,
    "Passes of the projection onto the simplex" in figures/THEOREMS.md.  You may call project_simplex in functions that
    njit compiles; there v is not checked.

    Parameters
    ----------
    v : array, shape (n,)
        Any finite vector; it is not modified.

    Returns
    -------
    p : array, shape (n,)
        The point of the simplex nearest to v.

    Raises
    ------
    TypeError
        v does not hold real numbers.
    ValueError
        v is empty, not finite or not a vector.

    See Also
    --------
    l2_prox, entropy_prox : smoothed minimisers over the simplex.

    References
    ----------
    C. Michelot, Journal of Optimization Theory and Applications 50, 1986.

    Examples
    --------
    >>> fm.project_simplex([1.0, 0.5, -3.0])
    array([0.75, 0.25, 0.  ])
    """
    v = _vector(v, "v")
    return _project_simplex(v, v)


# Compiled callers of a public function run the code that is given to `overload`.
overload(project_simplex)(lambda v: lambda v: _project_simplex(v, np.empty(v.size)))


@njit(cache=_CACHE)
def _entropy_prox(g, mu, q, out):
    """out_i <- q_i exp(-g_i / mu) / sum; the least g_i with q_i > 0 is subtracted first, so that nothing overflows."""
    low = np.inf
    for i in range(g.size):
        if q[i] > 0.0 and g[i] < low:
            low = g[i]
    for i in range(g.size):
        out[i] = -((low - g[i]) / mu + math.log(q[i])) if q[i] > 0.0 else np.inf
    _softmax(out, out)
    return out


def entropy_prox(g: ArrayLike, mu: float, q: ArrayLike | None = None) -> Array:
    """Take the softmax of -g / mu, weighted by q: argmin_{p in Delta} <g, p> + mu KL(p || q), the entropy prox map.

    KL(p || q) = sum_i p_i ln(p_i / q_i), so that p_i is proportional to q_i exp(-g_i / mu).  As mu -> 0, p_i tends to 0
    unless g_i is the least of those with q_i > 0.  You may call entropy_prox in functions that njit compiles; there the
    arguments are not checked.

    Parameters
    ----------
    g : array, shape (n,)
        Any finite vector, such as the margins G alpha, with entries up to 1e200.
    mu : float
        Smoothing parameter, above 0, in units of g.
    q : array, shape (n,), optional
        Centre, a point of the simplex.  By default it is uniform, and p = softmax(-g / mu).

    Returns
    -------
    p : array, shape (n,)
        Point of the simplex, with p_i = 0 where q_i = 0.

    Raises
    ------
    ValueError, TypeError
        g is not a finite vector of real numbers, mu is not a finite number above 0, or q is not in the simplex of R^n.

    See Also
    --------
    l2_prox : the prox map with the squared Euclidean distance in place of KL.
    snkp, isnkpvn : algorithms that use this prox map.

    Examples
    --------
    >>> fm.entropy_prox([0.0, np.log(3.0)], 1.0)
    array([0.75, 0.25])
    """
    g = _vector(g, "g", sizes=_MARGINS)
    mu = _number(mu, "mu")
    q = np.full(g.size, 1.0 / g.size) if q is None else _distribution(q, "q", g.size)
    return _entropy_prox(g, mu, q, np.empty(g.size))


@overload(entropy_prox)
def _compiled_entropy_prox(g, mu, q=None):
    def code(g, mu, q=None):
        center = np.full(g.size, 1.0 / g.size) if q is None else q
        return _entropy_prox(g, mu, center, np.empty(g.size))

    return code


@njit(cache=_CACHE)
def _l2_prox(g, mu, q, out):
    """out <- project_simplex(q - g / mu).  The least g_i is subtracted first, so that no entry overflows to
    +infinity."""
    low = _least(g)
    for i in range(g.size):
        out[i] = q[i] + (low - g[i]) / mu
    return _project_simplex(out, out)


def l2_prox(g: ArrayLike, mu: float, q: ArrayLike) -> Array:
    """Find argmin_{p in Delta} <g, p> + (mu/2) ||p - q||^2, the Euclidean prox map of the simplex Delta.

    The minimiser is project_simplex(q - g / mu).  You may call l2_prox in functions that njit compiles; there the
    arguments are not checked.

    Parameters
    ----------
    g : array, shape (n,)
        Any finite vector, such as the margins G alpha, with entries up to 1e200.
    mu : float
        Smoothing parameter, above 0, in units of g.
    q : array, shape (n,)
        Centre, any finite vector.

    Returns
    -------
    p : array, shape (n,)
        Point of the simplex.

    Raises
    ------
    ValueError, TypeError
        g or q is not a finite vector of real numbers, their lengths differ, or mu is not a finite number above 0.

    See Also
    --------
    entropy_prox : the prox map with the Kullback-Leibler divergence in place of the distance.
    snkpvn, isnkpvn : algorithms that use this prox map.

    Examples
    --------
    >>> fm.l2_prox([0.0, 1.0], 4.0, [0.5, 0.5])
    array([0.625, 0.375])
    """
    g = _vector(g, "g", sizes=_MARGINS)
    mu = _number(mu, "mu")
    q = _vector(q, "q", g.size)
    return _l2_prox(g, mu, q, np.empty(g.size))


overload(l2_prox)(lambda g, mu, q: lambda g, mu, q: _l2_prox(g, mu, q, np.empty(g.size)))


_ENTROPY, _L2 = range(2)


@njit(cache=_CACHE)
def _prox(which, g, mu, q, out):
    """out <- entropy_prox(g, mu, q) or l2_prox(g, mu, q)."""
    if which == _ENTROPY:
        _entropy_prox(g, mu, q, out)
    else:
        _l2_prox(g, mu, q, out)


# ======================================================================================================
# 4 kernels
# ======================================================================================================

_UNIT = 2.0**-53  # the largest relative error of one operation in double precision


def _sum_error(k, unit=_UNIT):
    """Return k unit / (1 - k unit), a bound of the relative error of a term of a sum after k operations on it."""
    return k * unit / (1.0 - k * unit) if k * unit < 1.0 else math.inf


class _Prepared(namedtuple("_Prepared", "rows squares")):
    """Points in the form that kernels read.

    rows : array or sparse, shape (n, d), the points
    squares : array, shape (n,), ||x_i||^2
    """

    def take(self, index):
        """Return the points that numbers, a mask or a slice select."""
        return _Prepared(self.rows[index], self.squares[index])

    def astype(self, dtype):
        return _Prepared(self.rows.astype(dtype), self.squares.astype(dtype))

    def terms(self):
        """Return the most terms that an inner product has: columns, or entries of a sparse row."""
        return int(np.diff(self.rows.indptr).max()) if _is_sparse(self.rows) else self.rows.shape[1]


def _inner_products(A, B, out):
    """out <- A B' for dense or sparse rows, in the precision of ``out``; products of sparse rows are summed in
    float64."""
    dtype = out.dtype
    if _is_sparse(A) or _is_sparse(B):
        products = A.astype(np.float64) @ B.astype(np.float64).T
        out[:] = products.toarray() if _is_sparse(products) else products
    elif len(A) == 1:  # without a copy of B, and without waking the threads of BLAS
        _row_dots(np.asarray(B), 0, A.shape[1], A[0].astype(dtype), out[0])
    else:
        np.matmul(A.astype(dtype, copy=False), B.T.astype(dtype, copy=False), out=out)


_EVALUATED = 1024  # rows and columns of a kernel matrix that a product evaluates at a time


class _KernelFields(NamedTuple):
    """What a `Kernel` holds."""

    name: str
    gamma: float = 1.0
    coef0: float = 1.0
    degree: int = 3
    center: Array | None = None
    function: Callable[..., Any] | None = None


def _undefined(thing, method, purpose):
    """Return an error about a method that a class of your own must define."""
    return f"{type(thing).__name__} has no {method}: define it to {purpose}"


class Kernel(_KernelFields):
    """A kernel with its parameters as numbers, such as ``G.kernel``.

    Each kernel is a subclass, and `_KERNELS` lists the kernels that have names.  ``takes`` names the parameters.
    ``takes_sparse`` is True if sparse points stay sparse.  ``of_distances`` is True if K(x, x') depends on x - x' alone
    and K(x, x) = 1.  A subclass defines three methods: `_fill` computes values, `diagonal` computes K(x, x), and
    `rounding` bounds the error of a value.

    Attributes
    ----------
    name : str
        "linear", "poly", "rbf", "laplacian", "ntk", "precomputed", or "callable" for a function.
    gamma, coef0, degree : float, float, int
        gamma is a number, also if it was given as "scale", "auto" or sigma2.
    center : array, shape (d,), or None
        A point near the training points, if these are far from 0.  It is subtracted from all points, which changes no
        distance; for training points the differences are exact.  Kernels of distances have a center, and so does
        "linear" with a free intercept and normalize=None.
    function : callable, or None for a named kernel

    Examples
    --------
    >>> fm.gram([[0.0, 1.0], [2.0, 1.0]], [1, -1], sigma2=2.0).kernel
    rbf(gamma=0.25)
    """

    takes = ()
    takes_sparse = False
    of_distances = False

    def __new__(cls, *fields: Any, **named: Any) -> Kernel:
        if len(fields) > len(cls._fields):  # pickle reads a model that 2.0.0 saved
            _refuse_version(None)
        return super().__new__(cls, *fields, **named)

    def __repr__(self) -> str:
        names = [name for name in self._fields if name in self.takes]
        given = [f"{name}={getattr(self, name):.6g}" for name in names]
        return f"{self.name}({', '.join(given)})" if given else self.name

    @classmethod
    def _read(cls, X, name):
        """Return checked points as the kernel takes them; errors call them ``name``."""
        X = _points(X, name)
        return X.toarray() if _is_sparse(X) and not cls.takes_sparse else X

    def prepare(self, X: Any) -> _Prepared:
        """Prepare checked rows X for `block`."""
        if self.center is not None:
            X = (X.toarray() if _is_sparse(X) else X) - self.center
        return _Prepared(X, _squares(X))

    def _fill(self, A, B, out):
        """out_ij <- K(a_i, b_j), in the precision of ``out``."""
        raise NotImplementedError(_undefined(self, "_fill(A, B, out)", "write K(a_i, b_j) to out"))

    def diagonal(self, points: _Prepared) -> Array:
        """Return K(x_i, x_i) for prepared points, training or new ones."""
        raise NotImplementedError(_undefined(self, "diagonal(points)", "return all K(x_i, x_i)"))

    def rounding(self, points: _Prepared) -> float:
        """Bound the error of a value K(x, x') of these points, over sqrt(K(x, x) K(x', x'))."""
        raise NotImplementedError(
            _undefined(self, "rounding(points)", "return a bound on the error of a value")
        )

    def block(self, A: _Prepared, B: _Prepared) -> Array:
        """Return K(a_i, b_j) for prepared points A and B.

        If K is precomputed, the b_j are the first training points; only the number of points of B matters.
        """
        out = np.empty((A.squares.size, B.squares.size))
        self._fill(A, B, out)
        return out

    def sums(self, weights: Array, X: _Prepared, Xnew: _Prepared) -> Array:
        """Return sum_i weights_ci K(x_i, x), (k, m), for weights (k, n) and m prepared points x.

        Values, and sums over some of the points, are in the precision of the weights; these sums are added in double
        precision.  Columns of points without weights are not evaluated.  If Xnew is X, and more than half of the points
        have weights, each K(x_i, x_j) is evaluated for one of (i, j) and (j, i).
        """
        support = weights.any(axis=0)
        count = np.count_nonzero(support)
        is_own = Xnew is X and 2 * count > support.size
        if count < support.size and not is_own:
            weights = weights[:, support]
            X = X.take(support)
        sums = np.zeros((len(weights), Xnew.squares.size))
        if count:
            self._add_sums(weights, X, Xnew, is_own, sums)
        return sums

    def _add_sums(self, weights, X, Xnew, is_own, sums):
        """sums_cj += sum_i weights_ci K(x_i, x_j).  If ``is_own``, only one half of the values is evaluated."""
        n = X.squares.size
        m = Xnew.squares.size
        for start in range(0, m, _EVALUATED):
            rows = slice(start, min(start + _EVALUATED, m))
            points = Xnew.take(rows)
            for first in range(0, rows.stop if is_own else n, _EVALUATED):
                columns = slice(first, min(first + _EVALUATED, n))
                values = np.empty((rows.stop - start, columns.stop - first), weights.dtype)
                self._fill(points, X.take(columns), values)
                sums[:, rows] += weights[:, columns] @ values.T
                if is_own and first < start:  # the mirror image
                    sums[:, columns] += weights[:, rows] @ values


class _Linear(Kernel):
    """<x, x'>, whose error is at most e ||x|| ||x'|| with e = `_sum_error`(d + 16) for d terms."""

    takes_sparse = True

    def _fill(self, A, B, out):
        _inner_products(A.rows, B.rows, out)

    def diagonal(self, points):
        return points.squares

    def rounding(self, points):
        return _sum_error(points.terms() + 16)


class _Polynomial(Kernel):
    """(gamma <x, x'> + coef0)^degree, by degree - 1 products."""

    takes = ("gamma", "coef0", "degree")
    takes_sparse = True

    def _fill(self, A, B, out):
        _inner_products(A.rows, B.rows, out)
        out *= self.gamma
        out += self.coef0
        base = out.copy()
        for _ in range(self.degree - 1):
            out *= base

    def diagonal(self, points):
        return (self.gamma * points.squares + self.coef0) ** self.degree

    def rounding(self, points):
        return self.degree * _sum_error(points.terms() + 16) + _sum_error(2 * self.degree + 8)


class _Decay(Kernel):
    """exp(-gamma t) for the distance t = ||x - x'||_1, or with ``is_squared`` ||x - x'||_2^2, by differences.

    A difference and its square err by 3 units, and the sum over d of them by d - 1 more.  The scale -gamma / ln 2 and
    its product with t err by 3.  So the exponent errs by (d + 5) gamma t units, and as gamma t exp(-gamma t) <= 1 / e
    and the power of 2 errs by 3 units, K errs by (d + 5) / e + 3: `_sum_error`(d + 16) covers this, wherever the points
    lie.  For two copies of a point K is exactly 1.
    """

    of_distances = True
    is_squared = False

    def _fill(self, A, B, out):
        scale = out.dtype.type(-self.gamma / math.log(2.0))
        _fill_with_distances(scale, A.rows, B.rows, self.is_squared, out)

    def _add_sums(self, weights, X, Xnew, is_own, sums):
        scale = weights.dtype.type(-self.gamma / math.log(2.0))
        _add_sums_of_decays(scale, Xnew.rows, X.rows, self.is_squared, weights, is_own, sums)

    def diagonal(self, points):
        return np.ones(points.squares.size)

    def rounding(self, points):
        return _sum_error(points.terms() + 16)


class _Laplacian(_Decay):
    """exp(-gamma ||x - x'||_1)."""

    takes = ("gamma",)


_FEW_COORDINATES = 128  # up to this number, differences take about as long as inner products


class _Gaussian(_Decay):
    """exp(-gamma ||x - x'||^2).

    For few coordinates, distances come from differences.  For more, they come from inner products, whose error is
    e = `_sum_error`(d + 16) times the squared lengths of the points.  Then ||x||^2 is reduced by that error, so that K
    is rounded upwards; in double precision K is exactly 1 for two copies of a point.
    """

    takes = ("gamma", "sigma2")
    takes_sparse = True
    is_squared = True

    def prepare(self, X):
        if _is_sparse(X) and X.shape[1] <= _FEW_COORDINATES:
            X = X.toarray()
        return super().prepare(X)

    def _fill(self, A, B, out):
        if self._has_differences(A):
            super()._fill(A, B, out)
            return
        _inner_products(A.rows, B.rows, out)
        half = 0.5 - (0.5 * max(A.terms(), B.terms()) + 4.0) * _EPS
        out -= (half * A.squares).astype(out.dtype)[:, None]
        out -= (half * B.squares).astype(out.dtype)
        np.minimum(out, 0.0, out=out)
        _powers(out.ravel(), out.dtype.type(2.0 * self.gamma / math.log(2.0)))

    def _add_sums(self, weights, X, Xnew, is_own, sums):
        by = _Decay if self._has_differences(X) else Kernel
        by._add_sums(self, weights, X, Xnew, is_own, sums)

    @staticmethod
    def _has_differences(points):
        return points.rows.shape[1] <= _FEW_COORDINATES

    def rounding(self, points):
        if self._has_differences(points):
            return super().rounding(points)
        # ||x - x'||^2 is at most 4 max ||x||^2, with an error of e times that; K is rounded upwards by as much again.
        error = _sum_error(points.terms() + 16)
        of_squares = 8.0 * self.gamma * float(points.squares.max()) * error
        return 1.02 * of_squares + _sum_error(16)


class _TangentLimit(Kernel):
    """||x|| ||x'|| (sin t + 2 (pi - t) cos t) / (2 pi) for the angle t.

    With the directions u = x / ||x|| and v = x' / ||x'||, D = ||u - v||^2 and S = ||u + v||^2, both by differences,
    t = 2 atan2(sqrt(D), sqrt(S)), cos t = (S - D) / (S + D), and sin t = 2 sqrt(S D) / (S + D).  An arc cosine would
    lose half of the digits near 0 and pi.

    The computed u has a length of 1 up to d / 2 + 2 units, and its direction errs by one unit.  Vectors of lengths a
    and b change t by at most |a - b|, so this is an error of d + 6 units in t.  D and S err by d + 2 units of
    themselves, which changes t, cos t and sin t by at most as much.  With their own operations t, cos t and sin t err
    by at most 2 d + 16 units, the bracket over 2 pi by 1.5 times that, and the lengths and the last products add d + 8.
    """

    def _fill(self, A, B, out):
        u = self._directions(A)
        v = self._directions(B)
        zero = out.dtype.type(0.0)
        D = np.empty(out.shape, out.dtype)
        S = np.empty(out.shape, out.dtype)
        _fill_with_distances(zero, u, v, True, D)
        _fill_with_distances(zero, u, -v, True, S)
        total = np.maximum(D + S, np.finfo(out.dtype).tiny)  # 0 for two points of length 0
        angles = 2.0 * np.arctan2(np.sqrt(D), np.sqrt(S))
        out[:] = 2.0 * np.sqrt(S * D) / total + 2.0 * (np.pi - angles) * (S - D) / total
        # The root of ||a||^2 ||b||^2 would be simpler, but this product might overflow or underflow.
        out *= np.sqrt(A.squares)[:, None] / (2.0 * np.pi)
        out *= np.sqrt(B.squares)

    @staticmethod
    def _directions(points):
        """Return x / ||x||, and 0 for points of length 0."""
        lengths = np.sqrt(points.squares)[:, None]
        return np.divide(points.rows, lengths, out=np.zeros(points.rows.shape), where=lengths > 0.0)

    def diagonal(self, points):
        return points.squares

    def rounding(self, points):
        return _sum_error(4 * points.terms() + 32)


class _Given(Kernel):
    """A precomputed kernel: the row of a point holds its values K(x, x')."""

    @classmethod
    def _read(cls, X, name):
        return _array(X.toarray() if _is_sparse(X) else X, name, 2)

    def prepare(self, X):
        return _Prepared(X, np.zeros(len(X)))

    def _fill(self, A, B, out):
        out[:] = A.rows[:, : B.squares.size]

    def diagonal(self, points):
        return points.rows.diagonal().astype(np.float64)

    def rounding(self, points):
        return 0.0


class _Function(_Given):
    """A function of two sets of points: rows of numbers, or lists of objects.  Its values are taken as they are."""

    def __repr__(self):
        return getattr(self.function, "__qualname__", repr(self.function))

    @classmethod
    def _read(cls, X, name):
        objects = _objects(X)
        return super(_Given, cls)._read(X, name) if objects is None else objects

    def _fill(self, A, B, out):
        out[:] = self._called(A.rows, B.rows)

    def _called(self, A, B):
        """Return the checked values of the function.  It gets copies of the points, because it may write to them."""
        given = [P.tolist() if P.ndim == 1 else np.array(P, dtype=np.float64) for P in (A, B)]
        values = _array(self.function(*given), "kernel(A, B)", 2)
        if values.shape != (len(A), len(B)):
            raise ValueError(
                f"kernel(A, B) must have shape (len(A), len(B)) = {len(A), len(B)}, got {values.shape}"
            )
        return values

    def table(self, points):
        """Return all K(x_i, x_j), as the function gives them."""
        blocks = (points.rows[rows] for rows in _slices(len(points.rows), len(points.rows)))
        return np.concatenate([self._called(block, points.rows) for block in blocks])

    def diagonal(self, points):
        # The blocks are small, because only their diagonals are used.
        blocks = np.array_split(points.rows, len(points.rows) // 32 + 1)
        diagonals = [self._called(block, block).diagonal() for block in blocks]
        return np.concatenate(diagonals).astype(np.float64)


# If you add a name, add it to the docstrings of `Kernel`, `gram`, `lazy_gram` and `MaxMarginClassifier`, to
# figures/MANUAL.md, and to `KERNELS` in tests/naive.py and `exact_kernel` in tests/test_kernels.py.
_KERNELS = {
    "linear": _Linear,
    "poly": _Polynomial,
    "rbf": _Gaussian,
    "laplacian": _Laplacian,
    "ntk": _TangentLimit,
    "precomputed": _Given,
}
_LINEAR = _Linear("linear")


def _kernel_class(kernel):
    """Return the class of a kernel that is a name, a function, or a `Kernel` of your own."""
    if isinstance(kernel, Kernel):
        return type(kernel)
    if callable(kernel):
        return _Function
    return _KERNELS[_choice(kernel, "kernel", tuple(_KERNELS))]


def _kernel(kernel, X, params, may_move=False):
    """Return the `Kernel` of a name or callable with its parameters; training points X determine gamma and the center.

    ``may_move`` allows "linear" to choose another origin, which changes the values of K.
    """
    kind = _kernel_class(kernel)
    unknown = sorted(set(params) - set(kind.takes))
    if unknown:
        takes = ", ".join((*kind.takes, "intercept"))
        meant = _meant(unknown)
        if callable(kernel):
            meant = "; bind the parameters of a function by functools.partial"
        raise TypeError(
            f"kernel={kernel!r} does not take {', '.join(unknown)}; it takes {takes}{meant}"
        )
    if isinstance(kernel, Kernel):
        return kernel
    if kind is _Function:
        return _Function("callable", function=kernel)
    if kind is _Given and X.shape[0] != X.shape[1]:
        raise ValueError(
            f'kernel="precomputed" needs the square matrix of the training points; got shape {X.shape}'
        )
    gamma = 1.0
    if "gamma" in kind.takes:
        gamma = _gamma_of(params.get("gamma", "scale"), params.get("sigma2"), X)
    coef0 = _number(params.get("coef0", 1.0), "coef0", closed=True)
    degree = _count(params.get("degree", 3), "degree", 1)
    return kind(kernel, gamma, coef0, degree, _center(kind, X, may_move))


def _center(kind, X, may_move):
    """Return the point that is subtracted from all points to lose fewer digits, or None to leave them in place."""
    is_linear = kind is _Linear and may_move
    reads_distances = kind.of_distances and not (_is_sparse(X) or _is_mapped(X))
    if not (is_linear or reads_distances):
        return None
    origin = _origin(X)
    if not origin.any():
        return None
    _refuse_moving(X, 'intercept="free" subtracts a point near the others')
    return origin


def _refuse_moving(X, why):
    """Refuse to move points in a mapped file, because they are read in place and not copied."""
    if _is_mapped(X):
        raise ValueError(
            f"X lies in a mapped file, and {why}: load X, X = np.array(X), or write the moved points to a file"
        )


def _is_free(intercept):
    """Return True for intercept="free": planes need not pass through the origin."""
    return isinstance(intercept, str) and intercept == "free"


def _constant(intercept):
    """Return the constant feature of an intercept; 0 if the intercept is free."""
    is_text = isinstance(intercept, str) and intercept != "free"
    if intercept is None or isinstance(intercept, bool | np.bool_) or is_text:
        error = ValueError if is_text else TypeError
        raise error(
            'intercept must be "free" for a bias of any size, a number c > 0 for a constant feature c of all points, '
            f"or 0.0 for planes through the origin; got {intercept!r}"
        )
    if _is_free(intercept):
        return 0.0
    return _constant_feature(_number(intercept, "intercept", closed=True), "intercept")


def _constant_feature(constant, name):
    """Return a constant feature; refuse a size that points may not have."""
    if not _is_within(constant, _POINTS):
        low, high = _POINTS
        or_zero = "0, or " if name == "intercept" else ""
        raise ValueError(
            f"{name} must be {or_zero}from {low:g} to {high:g}; got {constant:g}: give about the length of the points"
        )
    return constant


def _gamma_of(gamma, sigma2, X, weights=None):
    """Return gamma: a number, 1/(2 sigma2), 1/d for "auto", 1/(d Var X) for "scale", or 1 if all of X is equal.

    If sigma2 is given, it replaces "auto" and "scale".  ``weights`` are the weights of the rows of X in Var X.
    """
    if not isinstance(gamma, str):
        if sigma2 is not None:
            raise ValueError("give gamma or sigma2 = 1/(2 gamma), not both")
        return _number(gamma, "gamma")
    _choice(gamma, "gamma", ("scale", "auto"))
    if sigma2 is not None:
        sigma2 = _number(sigma2, "sigma2")
        return _number(0.5 / sigma2, "gamma = 1/(2 sigma2)")
    d = X.shape[1]
    if gamma == "auto":
        return 1.0 / d
    spread = d * _variance(X, weights)
    return 1.0 / spread if spread > 0.0 else 1.0


def _variance(X, weights=None):
    """Return the variance of the entries of X, zeros included; a row of weight k counts as k rows."""
    n, d = X.shape
    if X.max() == X.min():  # where a rounded mean would leave a variance above 0
        return 0.0
    if weights is None:
        weights = np.ones(n)
    shares = weights / (d * weights.sum())
    mean = float(shares @ np.asarray(X.sum(axis=1, dtype=np.float64)).ravel())
    if not _is_sparse(X):
        return float(shares @ (np.subtract(X, mean, dtype=np.float64) ** 2).sum(axis=1))
    of_entries = np.repeat(shares, np.diff(X.indptr))
    spread = np.subtract(X.data, mean, dtype=np.float64)
    return float(of_entries @ spread**2 + (1.0 - of_entries.sum()) * mean**2)


def _powers_of_two(real, integer, digits, degree):
    """Compile row_j <- 2^(scale row_j), for scale row_j <= 0, in a precision with this many digits.

    2^y is 2^k 2^r with k the whole number nearest to y.  Both k and r = y - k are exact.  The Taylor polynomial of 2^r
    errs by 6e-18 of it (degree 13) or 8e-9 (degree 7), which is less than 0.2 units.  In Horner's rule the last sum
    rounds once, the steps before it err by less than 4 units of their term, and this is at most 0.42 of 2^r.  The
    power 2^k is exact.  So 2^y errs by 3 units at most, and 2^0 is exactly 1.  A result below the smallest normal
    number is replaced by that number.

    This compiles to vector instructions, and the loop over the terms is unrolled.  Flags that reorder sums would break
    the rounding of y to k.

    real, integer : types of one size
    """
    terms = tuple(real(math.log(2.0) ** k / math.factorial(k)) for k in range(degree, -1, -1))
    # Numbers of this size have no fractional digits.  Their last bits are k, which is added to the exponent.
    whole = real(1.5 * 2.0**digits)
    lowest = real(2.0 - 2.0 ** (8 * np.dtype(real).itemsize - 2 - digits))

    def powers(row, scale):
        for j in range(row.size):
            y = max(scale * row[j], lowest)
            rounded = real(y + whole)
            r = y - (rounded - whole)
            value = terms[0]
            for term in terms[1:]:
                value = value * r + term
            k = integer(rounded.view(integer) << digits)
            row[j] = integer(real(value).view(integer) + k).view(real)

    # Numba keeps compiled code under this name: processes that fill a cache at once must not mix up the precisions.
    powers.__qualname__ = f"powers_of_two_in_{np.dtype(real).name}"
    return njit(cache=_CACHE, fastmath={"contract"})(powers)


_single_powers = _powers_of_two(np.float32, np.int32, 23, 7)
_double_powers = _powers_of_two(np.float64, np.int64, 52, 13)


def _powers(row, scale):
    """row_j <- 2^(scale row_j), for scale row_j <= 0, in plain and in compiled code."""
    code = _single_powers if row.itemsize == 4 else _double_powers
    code(row, scale)


@overload(_powers, strict=False)
def _choose_powers(row, scale):
    code = _single_powers if row.dtype.bitwidth == 32 else _double_powers

    def powers(row, scale):
        code(row, scale)

    return powers


# Blocks of distances
#
# Distances are sums of differences, for 32 rows against a line of 512 columns.  Such a block stays in a near cache from
# the first coordinate to the sums, also the sums of its mirror image.

_LINE = 512  # columns of a block
_ROWS = 32  # rows of a block, which are read by twos
_CHUNK = 32  # coordinates of a line, read by fours, that all rows of a block read at a time
_SHARES = 16  # shares of a product: a fixed number, as `_PARTS`


@register_jitable(fastmath={"contract"})
def _add_terms(total, x, line, j, is_squared):
    """Return a sum with the terms of four coordinates x of a row and of column j of a line."""
    p = x[0] - line[0, j]
    q = x[1] - line[1, j]
    r = x[2] - line[2, j]
    s = x[3] - line[3, j]
    if is_squared:
        return total + p * p + q * q + r * r + s * s
    return total + abs(p) + abs(q) + abs(r) + abs(s)


@njit(cache=_CACHE, fastmath={"contract"})  # its bits do not depend on its callers
def _add_to_two(a, b, x, y, line, is_squared):
    for j in range(a.size):
        a[j] = _add_terms(a[j], x, line, j, is_squared)
        b[j] = _add_terms(b[j], y, line, j, is_squared)


@njit(cache=_CACHE)
def _block_of_distances(scale, rows, start, stop, line, size, is_squared, some, block):
    """block_ij <- 2^(scale distance) of the rows from start to stop - 1 from the first ``size`` columns of a line.

    If the scale is 0, block_ij is the distance.  ``some`` is work space for the rows.
    """
    count = stop - start
    for i in range(count):
        _copy(rows[start + i], some[i])
        for j in range(size):
            block[i, j] = 0.0
    width = some.shape[1]
    for first in range(0, width, _CHUNK):
        for i in range(0, count, 2):
            for k in range(first, min(first + _CHUNK, width), 4):
                x = some[i, k : k + 4]
                y = some[i + 1, k : k + 4]
                columns = line[k : k + 4]
                _add_to_two(block[i, :size], block[i + 1, :size], x, y, columns, is_squared)
    if scale != 0.0:
        for i in range(count):
            _powers(block[i, :size], scale)


@njit(cache=_CACHE, fastmath=_FAST)
def _line_dot(a, b):
    """Return a'b of a line, which is not empty, in the precision of its entries."""
    total = a[0] * b[0]
    for j in range(1, a.size):
        total += a[j] * b[j]
    return total


@njit(cache=_CACHE, fastmath=_FAST)
def _add_multiple(out, x, row):
    for j in range(out.size):
        out[j] += x * row[j]


@njit(cache=_CACHE)
def _sum_share(number, scale, rows, lines, is_squared, weights, is_own, sums, images):
    """Add the terms of a share of the rows to ``sums``, and the terms of their mirror images to ``images``."""
    n = weights.shape[1]
    some = np.zeros((_ROWS, lines.shape[1]), lines.dtype)
    block = np.zeros((_ROWS, _LINE), lines.dtype)
    image = np.zeros(_LINE, lines.dtype)
    for first in range(0, n, _LINE):
        line = lines[first // _LINE]
        for start in range(number * _ROWS, len(rows), _SHARES * _ROWS):
            if is_own and start < first:
                continue
            stop = min(start + _ROWS, len(rows))
            last = min(first + _LINE, stop if is_own else n)
            size = last - first
            _block_of_distances(scale, rows, start, stop, line, size, is_squared, some, block)
            below = min(size, start - first) if is_own else 0  # columns that have a mirror image
            for c in range(len(weights)):
                for i in range(start, stop):
                    sums[c, i] += _line_dot(block[i - start, :size], weights[c, first:last])
                if below > 0:
                    image[:] = 0.0
                    for i in range(start, stop):
                        _add_multiple(image[:below], weights[c, i], block[i - start, :below])
                    for j in range(below):
                        images[c, first + j] += image[j]


def _sum_shares(scale, rows, lines, is_squared, weights, is_own, sums, images):
    for number in prange(len(images)):
        share = np.int64(number)
        _sum_share(share, scale, rows, lines, is_squared, weights, is_own, sums, images[number])


_sum_shares, _sum_shares_in_parallel = _twins(_sum_shares)


def _add_sums_of_decays(scale, A, B, is_squared, weights, is_own, sums):
    """sums_ci += sum_j weights_cj 2^(scale distance of a_i and b_j).  If ``is_own``, one half of the values is
    evaluated."""
    lines = _lines(B, weights.dtype)
    rows = _frozen(np.ascontiguousarray(A, weights.dtype))
    images = np.zeros((_SHARES, len(weights), len(B) if is_own else 0))
    work = sums.shape[1] * lines.size
    weights = _frozen(np.ascontiguousarray(weights))
    given = scale, rows, lines, is_squared, weights, is_own, sums, images
    _enter_by_size(work, _sum_shares, _sum_shares_in_parallel, *given)
    if is_own:
        sums += images.sum(axis=0)


def _lines(X, dtype):
    """Return points as lines, (lines, coordinates, 512), padded with zeros to a multiple of 4 coordinates."""
    n, d = X.shape
    lines = np.zeros((-(-n // _LINE), d + -d % 4, _LINE), dtype)
    for line, first in zip(lines, range(0, n, _LINE), strict=True):
        points = X[first : first + _LINE]
        line[:d, : len(points)] = points.T
    return lines


@njit(cache=_CACHE)
def _fill_line(number, scale, rows, lines, is_squared, out):
    some = np.zeros((_ROWS, lines.shape[1]), lines.dtype)
    block = np.zeros((_ROWS, _LINE), lines.dtype)
    first = number * _LINE
    size = min(_LINE, out.shape[1] - first)
    for start in range(0, len(rows), _ROWS):
        stop = min(start + _ROWS, len(rows))
        _block_of_distances(scale, rows, start, stop, lines[number], size, is_squared, some, block)
        for i in range(start, stop):
            _copy(block[i - start, :size], out[i, first : first + size])


def _fill_lines(scale, rows, lines, is_squared, out):
    for number in prange(len(lines)):
        _fill_line(np.int64(number), scale, rows, lines, is_squared, out)


_fill_lines, _fill_lines_in_parallel = _twins(_fill_lines)


@njit(cache=_CACHE, fastmath=_FAST)
def _fill_row(scale, x, rows, is_squared, out):
    """out_j <- 2^(scale distance) of one point from row j.  For one point, this takes less time than to make lines."""
    for j in range(out.size):
        row = rows[j]
        total = x[0] - x[0]
        for k in range(x.size):
            term = x[k] - row[k]
            total += term * term if is_squared else abs(term)
        out[j] = total
    if scale != 0.0:
        _powers(out, scale)


def _fill_with_distances(scale, A, B, is_squared, out):
    """out_ij <- 2^(scale distance) of a_i and b_j, in the precision of ``out``; if the scale is 0, the distance."""
    if len(A) == 1:
        _fill_row(scale, A[0].astype(out.dtype), np.asarray(B), is_squared, out[0])
        return
    lines = _lines(B, out.dtype)
    rows = _frozen(np.ascontiguousarray(A, out.dtype))
    given = scale, rows, lines, is_squared, out
    # Threads pay from about 2^22 operations on; 16 operations count as one entry that is read.
    work = len(A) * lines.size // 16
    _enter_by_size(work, _fill_lines, _fill_lines_in_parallel, *given)


_TILE = 128  # rows and columns of a matrix that are mirrored, or compared with their mirror images, at a time
_ABOVE_DIAGONAL = ~np.tri(_TILE, dtype=bool)


def _mirror(start, stop, out):
    """out_ji <- out_ij for the rows i from start to stop - 1 and all j < i, in tiles that fit into caches."""
    for first in range(start, stop, _TILE):
        last = min(first + _TILE, stop)
        out[:first, first:last] = out[first:last, :first].T
        tile = out[first:last, first:last]
        np.copyto(tile, tile.T, where=_ABOVE_DIAGONAL[: last - first, : last - first])


def _normalizers(diagonal, normalize, name="X"):
    """Return c such that c_i c_j K_ij is normalised, from K_ii; errors call the points ``name``."""
    _choice(normalize, "normalize", ("unit", "max", None))
    largest = diagonal.max()
    low, high = _ENTRIES
    is_zero = largest == 0.0 and normalize != "max"
    if not (low <= largest <= high or is_zero):
        row = diagonal.argmax()
        raise ValueError(
            f"the largest K(x, x) is {diagonal[row]:g}, of row {row} of {name}, and must be from {low:g} to {high:g}: "
            f"rescale, {name} / np.abs({name}).max(), or give other parameters, such as a smaller gamma"
        )
    if normalize is None:
        return np.ones(diagonal.size)
    if normalize == "max":
        return np.full(diagonal.size, 1.0 / math.sqrt(largest))
    if diagonal.min() < low:
        row = np.argmax(diagonal < low)
        count = np.count_nonzero(diagonal < low)
        others = f", like {_counted(count - 1, 'other row')}" if count > 1 else ""
        raise ValueError(
            f'row {row} of {name} has K(x, x) = {diagonal[row]:g}{others}, but normalize="unit" divides by its square '
            'root: leave out such rows, or give normalize="max" or None, or a constant intercept'
        )
    return 1.0 / np.sqrt(diagonal)


def kernel_matrix(
    A: ArrayLike,
    B: ArrayLike,
    *,
    kernel: str | Callable[[Any, Any], Any] = "rbf",
    intercept: float = 0.0,
    **params: Any,
) -> Array:
    """Evaluate a kernel between two sets of points: K(a_i, b_j), without signs and without normalisation.

    Parameters
    ----------
    A : array, shape (k, d)
        The training points, which determine gamma="scale".  For kernel="precomputed", their kernel matrix, (k, k).
    B : array, shape (m, d)
        Other points.  For kernel="precomputed", the values K(b_j, a_i), (m, k).
    kernel, intercept, **params
        The kernel and its parameters, as in `gram`.

    Returns
    -------
    K : array, shape (k, m)
        K_ij = K(a_i, b_j).

    Raises
    ------
    ValueError, TypeError
        A, B, the kernel or a parameter is not as `gram` needs it; or A and B have different numbers of columns.

    See Also
    --------
    gram : the signed, normalised matrix of one set of points.
    Gram.decision_function : the scores of new points.

    Examples
    --------
    >>> fm.kernel_matrix([[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0]], kernel="linear")
    array([[3.],
           [2.]])
    """
    kind = _kernel_class(kernel)
    A = kind._read(A, "A")
    B = kind._read(B, "B")
    _refuse_other_columns(B, "B", _width_of(A), "A has")
    kernel = _kernel(kernel, A, params)
    values = kernel.block(kernel.prepare(B), kernel.prepare(A)).T
    return values + _constant(intercept) ** 2


# Scores of new points
#
# Scores are sums f_j(x) = sum_i alpha_ji c_i K(x_i, x), times the normaliser of x.  A Gram makes one of two objects,
# once, from the weights: `_KernelScores` holds the points of the support, `_LinearScores` the separators.


def _new_points(X, kernel, d):
    """Return checked new points as a kernel reads them."""
    X = kernel._read(X, "Xnew")
    _refuse_other_columns(X, "Xnew", d, "the points of G have")
    return X


def _refuse_other_columns(X, name, d, whose):
    """Refuse checked points whose number of columns is not d; d is None for objects."""
    columns = _width_of(X)
    if columns == d:
        return
    if None in (columns, d):
        kinds = [f"{'no' if k is None else k} columns of numbers" for k in (columns, d)]
        raise ValueError(f"{name} has {kinds[0]}, and {whose} {kinds[1]}: give points of one kind")
    raise ValueError(f"{name} has {columns} columns, and {whose} {d} columns: give {d} columns")


class _KernelScores(NamedTuple):
    """f_j(x) = sum_i coefficients_ji K(x_i, x), times the normaliser of x.

    kernel, points : the kernel, and the points of the support as it reads them
    places : array of int, their numbers among the training points
    coefficients : array, shape (j, k)
    normalize : the option
    common : factor of all scores: 1 / max_i K(x_i, x_i)^(1/2) for normalize="max", else 1, times the multiple t of the
        weights of a classifier
    d : int, columns of new points, or None for objects
    offset : float, the square of a constant feature, which is added to all K(x, x')
    """

    kernel: Kernel
    points: _Prepared
    places: Array
    coefficients: Array
    normalize: str | None
    common: float
    d: int
    offset: float

    def __call__(self, X):
        """Return the scores of new points, (m, j)."""
        X = _new_points(X, self.kernel, self.d)
        if self.kernel.name == "precomputed":
            if self.normalize == "unit":
                raise ValueError(
                    'normalize="unit" needs K(x, x) of new points, and a precomputed kernel lacks them: make G with '
                    'normalize="max" or None'
                )
            sums = (X[:, self.places] + self.offset) @ self.coefficients.T
            return self.common * sums
        new = self.kernel.prepare(X)
        scores = self.kernel.sums(self.coefficients, self.points, new).T
        scores += self.offset * self.coefficients.sum(axis=1)
        if self.normalize == "unit":
            diagonal = self.kernel.diagonal(new) + self.offset
            scores *= _normalizers(diagonal, "unit", "Xnew")[:, None]
        return self.common * scores


class _LinearScores(NamedTuple):
    """f_j(x) = <w_j, (x - origin, constant)>, times the normaliser of x.

    separators : array, shape (j, d), or (j, d + 1) with a constant
    origin : array, shape (d,)
    constant : float
    normalize, common : as in `_KernelScores`
    """

    separators: Array
    origin: Array
    constant: float
    normalize: str | None
    common: float

    def __call__(self, X):
        """Return the scores of new points, (m, j)."""
        d = self.origin.size
        X = _new_points(X, _LINEAR, d)
        scores = self._products(X, self.separators[:, :d].T)
        scores += self.constant * self.separators[:, d:].sum(axis=1)
        if self.normalize == "unit":
            squares = _squares(X) + self.constant**2
            scores *= _normalizers(squares, "unit", "Xnew")[:, None]
        return self.common * scores

    def _products(self, X, W):
        """Return (X - origin) W.  Columns whose origin is 0 stay sparse."""
        is_far = self.origin != 0.0
        if not is_far.any():
            return X @ W
        far = X[:, is_far].toarray() if _is_sparse(X) else X[:, is_far]
        return (far - self.origin[is_far]) @ W[is_far] + X[:, ~is_far] @ W[~is_far]


# ======================================================================================================
# 5 G
# ======================================================================================================

# ------------------------------------------------------------------------------------------------------
# 5.1 Gram
# ------------------------------------------------------------------------------------------------------
#
# A `Gram` holds signs, normalisers, a constant feature, a ridge or a cost, and labels.  It is a layer over a store,
# which holds the values K_ij = <phi(x_i), phi(x_j)> of the points and nothing else.  A store is a matrix, rows, sparse
# rows, a kernel on demand, or pairs of a point and a wrong class over another `Gram`.
#
# A loop is written once, for any G, with two operations: `product` and `add_column`.  If the store is a matrix, rows or
# sparse rows, both operations are compiled, and the compiled loop takes ``G.arrays``, a named tuple of arrays and
# numbers.  Any other G has methods only, and the same loop runs as Python source: there a product costs much more than
# the interpreter.

_LARGEST_COPY = 1 << 31  # bytes above which `numpy.asarray` of a G without a matrix is refused


def _at(values, index):
    """Return the values of some points; one number or None, which holds for all points, is returned as it is."""
    return values[index] if isinstance(values, np.ndarray) else values


class Gram:
    """The signed Gram matrix G of points, G_ij = c_i c_j (K_ij + constant^2) + [i = j] r_i.

    c_i is a sign times a normaliser, constant is a constant feature, and r is a ridge.

    `gram`, `features`, `lazy_gram` and `pair_gram` make a Gram from points.  ``Gram(matrix)`` makes one from a matrix
    that has its signs already; algorithms do so with a plain array.  It checks every entry: make it once if you pass
    one array to several algorithms.  An array in float64 that is symmetric to the last bit is not copied; do not change
    it while G is in use.  If the asymmetry is at most 1e-6 of the largest diagonal entry, as in single precision, the
    array is averaged with its transpose, and intervals hold for this average.

    *A class of your own* is a subclass of Gram that computes products in any library.  It sets ``unit``, ``n`` and
    ``d``, and defines ``_diagonal()`` and ``_product(v)`` of G without its ridge.  All algorithms run on it.  By
    default, products count as sums over n points and d coordinates, in any order, in which each operation has a
    relative error of at most ``unit``: 2.0**-53 in double and 2.0**-24 in single precision.  Nothing checks this: if
    ``unit`` is too small, intervals are false.  If the errors of your products are different, return your own
    `Rounding` from ``_rounding()``.  If you can compute more precisely, return (v'Gv, G v, their `Rounding`) for
    ||v||_1 <= 1 from ``_precise(v)``; then certificates are as narrow as these numbers allow.

    *Facts* are the attributes below.  Constructors set them once; do not change them.  A G that has a kernel and no
    labels is an unsigned K: `pair_gram` and `signed` take it, and algorithms refuse it.

    The intervals lower <= rho <= upper hold for the exact G of the stored numbers.

    Attributes
    ----------
    n : int, the number of points
    d : int, the number of columns of the points; None for objects, or if your class defines `_rounding`
    store : the values K_ij; the store of pairs has ``K``, the Gram of the points, ``n_classes``, and arrays with an
        entry for each pair: ``point``, its point; ``right``, the class of the point; ``wrong``, another class
    labels : array, shape (n,), -1 or +1, or None if they are not known; for pairs, the classes of the points
    kernel : Kernel, or None if it is not known: the kernel with its parameters as numbers
    normalize : {"unit", "max", None}, as in `gram`
    intercept : float or "free", as in `gram`
    ridge : array, shape (n,), or 0.0
    cost : array, shape (n,), or inf for no slacks: C_i, the cost of a slack of 1, see `with_cost`
    origin : array, shape (d,), or None for 0; it is subtracted from the points x_i
    unit : float, the largest relative error of one operation in a product
    scale : float, s = max_i G_ii

    Notes
    -----
    *A free intercept.*  p ranges over the points of the simplex with y'p = 0: each class has half of the weight.  For
    such p, ||p||_G is half the distance between a point of one convex hull and a point of the other.  It does not
    depend on the origin: you may replace G by G + h y' + y h' for any h, and margins m by m + b y for any b.  The
    margin is

        rho = max_{w, b} min_i y_i (<w, x_i> + b) / ||w|| = min_p ||p||_G.

    `max_margin` takes such a G, and so do `momentum`, `gradient_descent` and `normalized_gradient_descent` with their
    default options.  These algorithms minimise over b, too: `momentum` and `normalized_gradient_descent` take the
    gradient of min_b ln sum_i exp(-m_i - b y_i), which is a softmax in each class, with weight 1/2, and
    `gradient_descent` that of min_b sum_i exp(-m_i - b y_i) / n.

    Examples
    --------
    >>> fm.Gram(np.eye(3))
    <Gram over a matrix: 3 points>
    >>> class Rows(fm.Gram):
    ...     unit = 2.0**-53
    ...     def __init__(self, Z):
    ...         self.Z = Z
    ...         self.n, self.d = Z.shape
    ...     def _diagonal(self): return (self.Z**2).sum(axis=1)
    ...     def _product(self, v): return self.Z @ (self.Z.T @ v)
    >>> G = Rows(np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> G @ np.array([1.0, 0.0]), round(fm.max_margin(G).lower, 6)
    (array([5., 5.]), 2.236068)
    """

    n: int
    d: int | None = None
    labels: Array | None = None
    kernel: Kernel | None = None
    normalize: str | None = None
    intercept: float | str = 0.0
    ridge: Array | float = 0.0
    cost: Array | float = math.inf
    origin: Array | None = None
    unit: float | None = None
    store: Any = None
    _c: Array | float = 1.0  # signs times normalisers; 1.0 for 1 everywhere
    _constant = 0.0  # a feature that all points have
    _points: Any = None  # the store that scores new points, which is another one over a matrix
    _common = 1.0  # a factor of all scores if normalize="max"

    def __init__(self, matrix: ArrayLike | None = None) -> None:
        if matrix is None and type(self) is not Gram:  # a class of your own may need no numbers
            return
        if isinstance(matrix, Gram):
            raise TypeError("matrix must be an array, got a Gram, which algorithms take as it is")
        _refuse_orders(matrix, "G")
        vars(self).update(vars(Gram._over(_Matrix(*_symmetric(matrix, "G")))))

    @classmethod
    def _over(cls, store, **facts):
        """Return the G over a store, with these facts, which need no check."""
        G = object.__new__(Gram)
        vars(G).update(facts, n=store.n, unit=store.unit, store=store)
        return G

    # The methods that a class of your own may define

    def _diagonal(self):
        """Return all G_ii without the ridge, (n,)."""
        if self.normalize == "unit":
            return np.ones(self.n)
        return self._c**2 * (self._values.squares + self._constant**2)

    def _product(self, v):
        """Return G v without the ridge."""
        return self._products(v[None])[0]

    def _rounding(self):
        """Return the `Rounding` of products without the ridge."""
        return self._values.rounding(self)

    def _precise(self, v):
        """Return (v'Gv, G v, their `Rounding`) for ||v||_1 <= 1, more precisely than `_plain_product`, or None."""
        return self._values.precise(self, v)

    def _relative_lengths(self):
        """Return the l_i to which the `Rounding` is relative, (n,), at most 1.

        If the error of an entry G_ij is proportional to sqrt(G_ii G_jj), as in all stores of this module, l_i =
        sqrt(G_ii / max_j G_jj).  Then a few long points cost no digits of the other points.
        """
        return np.ones(self.n) if self._is_own else _lengths_of(self._diagonal())

    # The store, and the layer above it

    @property
    def _is_own(self):
        return not isinstance(self.store, _Store)

    @property
    def _values(self):
        """The store; a class of your own is its own store."""
        return _Own(self) if self._is_own else self.store

    @functools.cached_property
    def arrays(self) -> _Arrays | None:
        """The argument G of compiled loops; None if the store has no compiled operations."""
        if self._values.arrays is None:
            return None
        above = (self._spread(self._c), self._constant, self._spread(self.ridge))
        return _Arrays(self._values.arrays, *above)

    @functools.cached_property
    def scale(self) -> float:
        """s = max_i G_ii."""
        return _scale_of(self)

    @property
    def free_labels(self) -> Array | None:
        """The labels y if the intercept is free, so that a bias b adds b y to margins; else None."""
        return self.labels if _is_free(self.intercept) else None

    @property
    def _has_ridge(self):
        return isinstance(self.ridge, np.ndarray)

    @property
    def _has_cost(self):
        return isinstance(self.cost, np.ndarray)

    def _spread(self, values):
        """Return c or the ridge as a read-only array, (n,)."""
        return _frozen(np.ascontiguousarray(np.broadcast_to(values, self.n), np.float64))

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        parts = [self._values.counts()]
        if self.d is not None:
            parts[0] += f" in {_counted(self.d, 'dimension')}"
        if self.kernel is not None:
            parts += [repr(self.kernel), f"normalize={self.normalize!r}"]
            if self.labels is None:
                parts.append("without labels")
        if self.intercept != 0.0:
            parts.append(f"intercept={self.intercept!r}")
        for name in ("ridge", "cost"):
            amounts = getattr(self, name)
            if isinstance(amounts, np.ndarray):
                ends = sorted({np.min(amounts), np.max(amounts)})
                parts.append(f"{name}=" + " to ".join(f"{end:g}" for end in ends))
        return f"<{self._kind()}: {', '.join(parts)}>"

    def _kind(self):
        return type(self).__name__ if self._is_own else f"Gram over {self._values.kind}"

    # Products and entries; methods with an underscore leave out the ridge

    def _products(self, V):
        """Return G v for each row v of V, (k, n)."""
        scaled = V * self._c
        return self._signed_sums(self._values.products(scaled), scaled)

    def _signed_sums(self, sums, scaled):
        """Return the products of G by those of the store with ``scaled`` = V c."""
        if self._constant:
            sums = sums + self._constant**2 * scaled.sum(axis=-1, keepdims=True)
        return sums * self._c

    def _plain_product(self, v):
        """Return (v'Gv, G v) for ||v||_1 <= 1; `_rounding` bounds their errors."""
        if self._has_rows and not _is_pairs(self):
            w = self._lift(v)
            return float(_dot(w, w)), self._margins(w)
        m = self._product(v)
        return float(_dot(v, m)), m

    def _block(self, rows, columns):
        block = self._values.block(rows, columns)
        if self._constant:
            block += self._constant**2
        if isinstance(self._c, np.ndarray):
            # c_i c_j comes first, so that the block is symmetric to the last bit.
            block *= self._c[rows, None] * self._c[columns]
        return block

    def _add_column(self, i, c, m):
        """m <- m + c G e_i."""
        m += c * self._column(i)

    def _column(self, i):
        return _at(self._c, i) * self._c * (self._values.column(i) + self._constant**2)

    def diagonal(self) -> Array:
        """Return all G_ii, (n,)."""
        return self._diagonal() + self.ridge

    def __matmul__(self, v: ArrayLike) -> Array:
        """Return G v for v of shape (n,) or (n, k)."""
        v = _array(v, "v", min(max(np.ndim(v), 1), 2)).astype(np.float64)
        if len(v) != self.n:
            raise ValueError(f"v must have {self.n} rows, as G has; got shape {v.shape}")
        if v.ndim == 2:
            return self._products(np.ascontiguousarray(v.T)).T + np.reshape(self.ridge, (-1, 1)) * v
        out = np.empty(self.n)
        product(self, v, out)
        return out

    def block(self, rows: ArrayLike | slice, columns: ArrayLike | slice) -> Array:
        """Return the entries of G in these rows and columns; choose them as in `restrict`."""
        rows = _places(rows, self.n, "rows")
        columns = _places(columns, self.n, "columns")
        block = self._block(rows, columns)
        is_diagonal = rows[:, None] == columns
        if self.normalize == "unit":
            block[is_diagonal] = 1.0
        if self._has_ridge:
            block = block + self.ridge[columns] * is_diagonal
        return block

    def dense(self) -> Array:
        """Return the matrix G, (n, n): the read-only matrix of the store if G is equal to it, or else a new matrix."""
        matrix = self._values.dense()
        if self._constant == 0.0 and np.all(self._c == 1.0) and not self._has_ridge:
            return matrix
        if not matrix.flags.writeable:
            matrix = matrix.copy()
        c = self._spread(self._c)
        for rows in _slices(self.n, self.n):
            matrix[rows] += self._constant**2
            matrix[rows] *= c[rows, None] * c
        if self.normalize == "unit":
            np.fill_diagonal(matrix, 1.0)
        matrix.flat[:: self.n + 1] += self.ridge
        return matrix

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> Array:
        """Return the matrix, (n, n), as `dense` does; a matrix that is not stored may take at most 2 GB."""
        if self._values.access != "stored" and 8 * self.n**2 > _LARGEST_COPY:
            raise MemoryError(
                f"G of {self.n} points would take {8 * self.n**2 / 2**30:.3g} GB as an array: call "
                "G.block(rows, columns) for a part of it, or G.dense() for all of it"
            )
        matrix = self.dense()
        is_new = matrix.flags.writeable
        if dtype is not None and np.dtype(dtype) != matrix.dtype:
            is_new = True
            matrix = matrix.astype(dtype)
        if is_new and copy is False:
            raise ValueError(
                f"copy must not be False: an array of {matrix.dtype} with the entries of G is a copy"
            )
        return matrix.copy() if copy and not is_new else matrix

    # Products, and bounds on their errors

    def rounding(self) -> Rounding:
        """Return the `Rounding` of products.

        A ridge adds 16 roundings of its |r_i v_i|.  These are at most |m_i| + s l_i t, as |m_i - r_i v_i| <= s l_i t.
        """
        return self._rounding_with_ridge

    @functools.cached_property
    def _rounding_with_ridge(self):
        own = self._rounding()
        if not self._has_ridge:
            return own
        of_ridge = _sum_error(16)
        square = own.square + of_ridge if own.square else 0.0
        return Rounding(own.margins + of_ridge, square, own.length).scaled(self._share())

    def _share(self):
        """Return max_i G_ii without the ridge over that with it."""
        return float(self._diagonal().max()) / self.scale

    def _error_of_squares(self):
        """Bound how far below 0 rounding may bring v'Gv / s for ||v||_1 <= 1, also the rounding of kernel values."""
        # A matrix has the errors with which the kernel of its points was evaluated.
        of_points = 0.0 if self._points is None else self._points.error
        return max(self.rounding().square, self._values.error, of_points)

    def _measured(self, v, precise=False):
        """Return (v'Gv, G v, their `Rounding`) for ||v||_1 <= 1, in twice the precision if ``precise`` and G can."""
        more = self._precise(v) if precise else None
        if more is None:
            norm2, m = self._plain_product(v)
            rounding = self.rounding()
        else:
            norm2, m, rounding = more
        if not self._has_ridge:
            return norm2, m, rounding
        terms = self.ridge * v
        m = m + terms
        if more is not None:
            rounding = rounding.scaled(self._share())
            # If m - terms and terms cancel, the last rounding of m - terms counts.
            rounding = rounding._replace(
                lost=rounding.lost + _LAST * np.abs(m - terms) / self.scale
            )
        return norm2 + sum(_precise_dot(terms, v)), m, rounding

    # Coordinates, if the store has rows: z_i = c_i (x_i, constant); for pairs, coordinates for each class

    @property
    def _more_precise(self):
        """The call that makes a more precise G from these points, or "" if there is none."""
        is_linear = self.kernel is not None and self.kernel.name == "linear"
        return "features(X, y)" if is_linear and not self._has_rows else ""

    @property
    def _has_rows(self):
        return self._values.has_rows

    @property
    def _width(self):
        return self._values.width + (self._constant != 0.0)

    def coordinates(self, index: Any = slice(None)) -> Array:
        """Return the rows z_i of some points, (k, width), in float64.

        Parameters
        ----------
        index : array of int, array of bool, shape (n,), or slice
            The numbers of k points; by default all of them.

        Raises
        ------
        TypeError
            G has no rows: it is over a matrix or a kernel on demand, or it is of a class of your own.
        """
        if not self._has_rows:
            raise TypeError(
                f"{self._kind()} has no coordinates: make G by features(X, y) for the linear kernel, or use "
                "G.block(rows, columns) for entries of G"
            )
        index = _places(index, self.n)
        rows = self._with_constant(self._values.coordinates(index), self._constant)
        return rows * np.reshape(_at(self._c, index), (-1, 1))

    def _with_constant(self, W, last):
        """Return rows W with the coordinate ``last`` of the constant feature appended, if there is one."""
        return np.column_stack((W, np.broadcast_to(last, len(W)))) if self._constant else W

    def _lift(self, v):
        """Return w = Z'v; for pairs w = sqrt(2) Z'v, so that ||w||^2 = 2 v'Gv."""
        return self._lifts(v[None])[0]

    def _lifts(self, V):
        """Return `_lift` of each row v of V, (k, width)."""
        scaled = V * self._c
        return self._with_constant(self._values.lifts(scaled), self._constant * scaled.sum(axis=1))

    def _margins(self, w):
        """Return Z w; for pairs sqrt(1/2) Z w."""
        return self._table(w[None])[0]

    def _table(self, W):
        """Return `_margins` of each row w of W, (k, n)."""
        m = self._values.margins(W[:, : self._values.width])
        if self._constant:
            m += self._constant * W[:, -1:]
        return m * self._c

    def _separators(self, alpha, precise=True):
        """Return `_lift` of each row of alpha, (k, width); ``precise``: in twice the working precision."""
        return self._values.separators(self, alpha) if precise else self._lifts(alpha)

    def _precise_margins(self, w):
        """Return <z_i, w>, each sum rounded once."""
        m = np.empty(self.n)
        _precise_dots(self.arrays, w, np.zeros(w.size), m)
        return m

    # Other Grams of the same points

    def _changed(self, **attributes):
        """Return a copy with these attributes, which are not checked, and without values that are computed from
        others."""
        twin = object.__new__(type(self))
        vars(twin).update(self.__getstate__(), **attributes)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without those that are computed from others."""
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(type(self), name, None), functools.cached_property)
        }

    def _alone(self):
        """Return G without its ridge, its cost and its free intercept."""
        return self._changed(ridge=0.0, cost=math.inf, intercept=_constant(self.intercept))

    def restrict(self, index: ArrayLike | slice) -> Gram:
        """Return G on some of the points, with their labels.

        Parameters
        ----------
        index : array of int, array of bool, shape (n,), or slice
            The numbers of the points, in any order; or a mask of the n points; or a slice of them.  Over pairs they
            are those of pairs: for some of the points make pair_gram(K.restrict(index), labels[index], n_classes).

        Raises
        ------
        TypeError
            index is none of these.
        IndexError
            index holds a number that no point has.
        ValueError
            index is empty; or the intercept is free, and these points are of one class.
        NotImplementedError
            G is of a class of your own, which does not define ``_restrict(index)``.
        """
        index = _places(index, self.n)
        if self.free_labels is not None:
            _of_both_classes(self.labels[index])
        return self._restrict(index)

    def _restrict(self, index):
        store = self._values.restrict(index)
        points = store if self._points is self.store else self._points
        if points is not store and points is not None:
            points = points.restrict(index)
        G = self._changed(
            n=store.n,
            store=store,
            labels=None if _is_pairs(self) else _at(self.labels, index),
            ridge=_at(self.ridge, index),
            cost=_at(self.cost, index),
            _c=_at(self._c, index),
            _points=points,
        )
        if _is_pairs(self):
            return G._changed(d=store.K.d, labels=store.labels)
        if self.kernel is not None and self.kernel.name == "precomputed":
            return G._changed(d=store.n)  # new points have a column for each point
        return G

    def with_ridge(self, ridge: ArrayLike) -> Gram:
        """Return G + diag(r), the Gram matrix of a soft margin with squared slacks and the weights C_i = 1/(2 r_i).

        Nothing is evaluated again, and no matrix is copied.

        Parameters
        ----------
        ridge : float or array, shape (n,)
            r_i: 0, or from 1e-16 to 1e16 times max_i G_ii without a ridge.  It is added to a ridge that G has.

        Raises
        ------
        ValueError, TypeError
            r_i is not a number in this range, or G has a cost, for plain slacks.

        Examples
        --------
        >>> fm.features([[3.0, 4.0], [0.0, 1.0]], [1, -1], normalize=None).with_ridge([0.5, 2.0]).dense()
        array([[25.5, -4. ],
               [-4. ,  3. ]])
        """
        ridge = _amounts(ridge, "ridge", self.n)
        _refuse_ridge(ridge, self._alone().scale)
        ridge = ridge + self.ridge
        if ridge.any() and self._has_cost:
            raise ValueError(_ONE_KIND_OF_SLACKS)
        return self._changed(ridge=ridge if ridge.any() else 0.0)

    def with_cost(self, cost: ArrayLike) -> Gram:
        """Return G with plain slacks, each with the cost C_i: the soft margin of the hinge loss, as in SVC.

        The entries of G do not change, but the margin does: `certificate`, `separator_margin` and `max_margin` then
        bound rho_C.  With f = sum_i alpha_i y_i phi(x_i), and with b = 0 unless the intercept is free,

            rho_C = 1 / sqrt(2 P),   P = min_{f, b} ||f||^2 / 2 + sum_i C_i max(0, 1 - y_i f(x_i) - y_i b).

        rho_C is always above 0.  It never rises as C grows, and it tends to the margin without slacks if that is above
        0 (Theorem 17, "Plain slacks" in figures/THEOREMS.md).  To give a point a weight, multiply its C_i by the
        weight; copies of a point are equivalent to one point with the sum of their costs.

        Parameters
        ----------
        cost : float or array, shape (n,)
            C_i, from 1e-16 / max_i G_ii to 1e16 / max_i G_ii.  It replaces a cost that G has.

        Raises
        ------
        ValueError
            G has a ridge, for squared slacks; or C_i is out of range.

        Examples
        --------
        >>> G = fm.features([[2.0], [1.0], [-1.0]], [1, -1, -1], normalize=None).with_cost(0.25)
        >>> G
        <Gram over rows: 3 points in 1 dimension, linear, normalize=None, cost=0.25>
        >>> lower, upper = fm.certificate(G, [1.0, 0.0, 1.0], [0.4, 0.2, 0.4])
        >>> round(lower, 3), round(upper, 3)
        (0.894, 1.079)
        """
        cost = _amounts(cost, "cost", self.n)
        if self._has_ridge:
            raise ValueError(_ONE_KIND_OF_SLACKS)
        _refuse_cost(cost, self.scale)
        return self._changed(cost=cost)

    def signed(self, y: ArrayLike) -> Gram:
        """Return G with the entries y_i y_j K_ij, from a K that was made without labels.

        Nothing is evaluated again or copied, so that many labelings of the same points need one K.

        Parameters
        ----------
        y : array, shape (n,)
            Labels, -1 or +1.

        Returns
        -------
        G : Gram over the same store, with the intercept and the ridge or cost of K

        Raises
        ------
        ValueError, TypeError
            This G has labels already, or it is of a class of your own; y is not as in `gram`.

        Examples
        --------
        >>> K = fm.gram([[1.0, 1.0], [0.0, 2.0]], kernel="linear", normalize=None)
        >>> np.asarray(K.signed([1, -1]))
        array([[ 2., -2.],
               [-2.,  4.]])
        """
        if self.labels is not None:
            raise ValueError(
                f"this G has labels already: make K = {self._values.made_by}(X, ...) without y, and call K.signed(y)"
            )
        if self._is_own:
            raise TypeError(
                f"{type(self).__name__} does not take labels y: make it from rows that have their signs"
            )
        y = _signs(y, self.n, _is_free(self.intercept))
        return self._changed(_c=self._c * y, labels=y)

    # Scores of new points

    def decision_function(self, result: Result | ArrayLike, Xnew: Any) -> Array:
        """Return scores of new points, f(x) = sum_i alpha_i y_i K(x_i, x) + bias; sign f(x) is the predicted label.

        K is normalised as in `gram`: divided by sqrt(K(x_i, x_i) K(x, x)) for "unit", by max_i K(x_i, x_i) for "max".
        A constant intercept is part of K.  For pairs there is a score for each class, f_c(x) = sum_i T_ci K(x_i, x)
        with the class coefficients T of `pair_gram`; the class with the largest score is predicted.

        Parameters
        ----------
        result : Result, or array, shape (n,) or (k, n)
            The Result of an algorithm for this G, or weights alpha, or k rows of weights, such as Result.iterates.
            If the intercept is free, weights get their best bias, which takes a product: it maximises the least margin
            or, with a cost, minimises the cost of the slacks.
        Xnew : array, data frame, SciPy sparse matrix or mapped array, shape (m, d)
            The points to score.  For kernel="precomputed", the values K(x, x_i), (m, n).  For a function of objects, a
            list of objects.

        Returns
        -------
        scores : array, shape (m,), or (m, n_classes) for pairs
            k rows of weights give k such arrays, (k, m) or (k, m, n_classes).

        Raises
        ------
        ValueError, TypeError
            Xnew is not finite or has another number of columns than the points; the weights are not those of this G;
            G does not know its kernel; or normalize="unit" and the kernel is precomputed, so that K(x, x) of new points
            is unknown.

        Warns
        -----
        UserWarning
            The result is "infeasible" and has lower <= 0: its weights bound every margin from above, and do not
            separate.

        See Also
        --------
        MaxMarginClassifier : an estimator that stores its training data and scores new points

        Examples
        --------
        >>> G = fm.features([[2.0, 0.0], [-1.0, 1.0]], [1, -1])
        >>> G.decision_function(fm.max_margin(G), [[5.0, 0.0], [0.0, 3.0]]) > 0
        array([ True, False])
        """
        alpha, has_rows = self._given_weights(result)
        is_result = _is_result(result)
        if is_result and result.status == "infeasible" and result.lower <= 0.0:
            _warn(
                "the result is infeasible: its weights prove that every margin is small, and do not separate the "
                "points; for a soft margin make G with ridge=1/(2*C) or cost=C"
            )
        if is_result and result.separator is not None:
            predictor = self._scores_of(result.separator.ravel()[None])
        else:
            predictor = self._scores(alpha)
        scores = predictor(Xnew)
        # For pairs, each row of weights has a score for each class.
        scores = scores.reshape(len(scores), len(alpha), -1).swapaxes(0, 1)
        if not _is_pairs(self):
            scores = scores[:, :, 0]
        if self.free_labels is not None:
            biases = [result.bias] if is_result else [self._best_bias(v) for v in alpha]
            scores = scores + np.array(biases)[:, None]
        return scores if has_rows else scores[0]

    def _scores(self, alpha):
        """Return the function that scores new points for k rows of weights alpha: X -> f(X), (m, k), without a bias."""
        if self._points is None:
            raise TypeError(
                f"{self._kind()} does not know the kernel that scores new points: make G from the points, by gram, "
                "features or lazy_gram"
            )
        return self._points.scores(self, alpha)

    def _scores_of(self, W):
        """Return the function that scores new points by separators W, (k, width), without a bias."""
        return self._values.scores_of(self, W)

    def _best_bias(self, alpha):
        """Return the b that maximises min_i (G alpha)_i + b y_i or, with a cost, minimises the cost of the slacks of
        alpha."""
        if not alpha.any():
            return 0.0
        v = _unit_range(alpha)
        largest = np.abs(v).argmax()
        factor = alpha[largest] / v[largest]
        m = self._measured(v, precise=True)[1]
        if self._has_cost:
            return _least_hinge_loss(factor * m, self.cost, self.free_labels)[0]
        return _best_bias(self.free_labels, m) * factor

    def _given_weights(self, result):
        """Return the checked weights of a Result, or given weights, as rows (k, n), and whether they were rows."""
        alpha = result.alpha if _is_result(result) else result
        has_rows = np.ndim(alpha) == 2
        alpha = np.atleast_2d(_array(alpha, "result", 1 + has_rows)).astype(np.float64)
        if alpha.shape[1] != self.n:
            raise ValueError(
                f"result must be of this G: it has {alpha.shape[1]} weights, and G has {_counted(self.n, 'row')}"
            )
        if _is_result(result) and result.separator is not None:
            width = self._width if self._has_rows else 0
            if result.separator.size != width:
                raise ValueError(
                    f"result must be of this G: it has a separator of {result.separator.size} coordinates, and "
                    f"{self._kind()} has {width}: take the G of the run"
                )
        return alpha, has_rows


# The largest relative error of the few operations after a product, such as a root and a quotient
_LAST = 8.0 * _UNIT


def _lengths_of(diagonal):
    """Return the larger of sqrt(G_ii / max_j G_jj) and 1e-24, which keeps underflow far below rounding."""
    largest = diagonal.max()
    if largest == 0.0:  # all points are 0, and have a ridge
        return np.full(diagonal.size, 1e-24)
    return np.sqrt(np.maximum(diagonal / largest, 1e-48))


_ONE_KIND_OF_SLACKS = (
    "G takes a ridge, for squared slacks, or a cost, for plain slacks, but not both: leave one out"
)


class _Store:
    """The values K_ij = <phi(x_i), phi(x_j)> of n points, without signs; a `Gram` is a layer over a store.

    Attributes
    ----------
    n, squares, kind, unit : number of points; K_ii, (n,); a name for messages; largest relative error of an operation
    access : whether a single entry comes from "products", is "computed", or is "stored"
    made_by : the function that makes a Gram over it
    work : the number of entries that a product reads or evaluates
    error : how far below 0 errors of entries may bring v'Kv / max_i K_ii for ||v||_1 <= 1
    arrays : the named tuple that compiled operations take, or None
    has_rows : True if it has rows x_i of ``width`` coordinates; then it has `lifts`, `margins`, `coordinates`,
        `separators` and `scores_of`
    """

    unit = _UNIT
    access = "computed"
    made_by = "gram"
    error = 0.0
    arrays = None
    has_rows = False
    precise_products = False  # True if `precise` has more digits than `products`

    def products(self, V):
        """Return V K, (k, n)."""
        raise NotImplementedError

    def block(self, rows, columns):
        """Return some entries of K, a new array."""
        raise NotImplementedError

    def column(self, i):
        return self.block(np.array([i]), np.arange(self.n))[0]

    def dense(self):
        """Return K, a new array or a read-only array."""
        every = np.arange(self.n)
        return self.block(every, every)

    def restrict(self, index):
        """Return the store of some points."""
        raise NotImplementedError

    def rounding(self, G):
        """Return the `Rounding` of products of G, which is over this store."""
        raise NotImplementedError

    def precise(self, G, v):
        """Return what `Gram._precise` does."""
        return None

    def counts(self):
        return _counted(self.n, "point")


class _Own(_Store):
    """The store of a class of your own: its methods."""

    access = "products"

    def __init__(self, G):
        self.G = G
        self.n = G.n
        self.unit = G.unit
        self.work = float(G.n) * (G.d or G.n)

    def products(self, V):
        if type(self.G)._product is Gram._product:
            raise NotImplementedError(
                _undefined(self.G, "_product(v)", "return G v without the ridge")
            )
        return np.array([self.G._product(v) for v in V])

    @property
    def squares(self):
        raise NotImplementedError(
            _undefined(self.G, "_diagonal()", "return all G_ii without the ridge")
        )

    def column(self, i):
        v = np.zeros(self.n)
        v[i] = 1.0
        return self.products(v[None])[0]

    def block(self, rows, columns):
        return np.array([self.column(i)[columns] for i in rows])

    def restrict(self, index):
        raise NotImplementedError(
            _undefined(self.G, "_restrict(index)", "return the G of these points")
        )

    def rounding(self, G):
        if G.d is None:
            raise TypeError(
                f"{type(G).__name__} gives no d: set self.d to the number of columns over which its products sum, or "
                "return a Rounding from _rounding()"
            )
        margins = Rounding.of_rows(G.n, G.d, G.unit).margins
        return Rounding(margins, margins + 1.01 * _sum_error(G.n + 8), 0.0)


class Rounding(NamedTuple):
    """Bounds on the rounding errors of a product, known before it is computed.

    Let v have ||v||_1 <= 1.  Let m be the computed G v, and let r^2 be the computed v'Gv, which is <w, w> with w = Z'v
    for rows, and v'm for any other G.  With s = max_i G_ii, l_i = sqrt(G_ii / max_j G_jj) without the ridge (1 in a
    class of your own), and t = sum_i l_i |v_i|, which is at most 1,

        |m_i - (G v)_i| <= margins s l_i t + lost_i s,
        sqrt(max(r^2 - square s t^2, 0)) - length sqrt(s) t <= ||v||_G <= sqrt(r^2 + square s t^2) + length sqrt(s) t,

    up to a few units in the last place of m_i and r^2.

    Attributes
    ----------
    margins, square, length : float
    lost : float, or array of shape (n,), by default 0

    Notes
    -----
    A sum of n rounded terms G_ij v_j, in any order, has an error of at most e_n s l_i t, because |G_ij| <= s l_i l_j.
    Here e_k = k unit / (1 - k unit).  If G was rounded when it was stored, one more rounding is added.  With rows, w
    has an error of at most e_n sqrt(s) t in length, and <z_i, w> one of e_d sqrt(s) l_i ||w||.  A factor of 1.01
    covers products of errors, the rounding of s, and underflow: k numbers that underflow lose at most k 2^-1074, and a
    length at most its root, while s >= 1e-200 and l_i >= 1e-24 (Theorem 16, "Rounding in a certificate" in
    figures/THEOREMS.md).

    References
    ----------
    N. Higham, Accuracy and Stability of Numerical Algorithms, SIAM 2002, section 3.1.

    Examples
    --------
    >>> fm.Rounding.of_entries(1000, 0.0).square, fm.Rounding.of_rows(1000, 100).square
    (2.2605917138210118e-13, 0.0)
    """

    margins: float
    square: float
    length: float
    lost: Array | float = 0.0

    @classmethod
    def of_entries(cls, n: int, entries: float) -> Rounding:
        """Return the bounds of sums over the n entries of a row of G; ``entries`` bounds the error of each over s."""
        margins = 1.01 * (_sum_error(n + 8) + entries)
        return cls(margins, 2.0 * margins, 0.0)

    @classmethod
    def of_rows(cls, n: int, d: int, unit: float = _UNIT, rows: float = 0.0) -> Rounding:
        """Return the bounds of w = Z'v and <z_i, w> for Z, (n, d), with entries that are products of two numbers.

        ``unit`` is the largest relative error of one operation: 2^-53 in double and 2^-24 in single precision.
        ``rows`` bounds the error of a stored row, ||stored z_i - z_i|| <= rows ||z_i||, if G is meant to be that of
        other rows than the stored ones.  v'Gv must be computed as <w, w>, summed in double precision.
        """
        error = 1.01 * (_sum_error(n + d + 8, unit) + 2.0 * rows)
        return cls(error, 0.0, error)

    def scaled(self, share: float) -> Rounding:
        """Return the same bounds in units of a larger s; ``share`` is the present s over the larger one."""
        return Rounding(
            self.margins * share,
            self.square * share,
            self.length * math.sqrt(share),
            self.lost * share,
        )


def _bring(operation, name):
    """Let compiled code call an operation: it calls the function of this name of the named tuple G."""

    # Numba calls `choose` with types.  It compiles the function that `choose` returns into the caller.
    @overload(operation, strict=False)
    def choose(G, *args):
        code = getattr(G.instance_class, name)

        def pass_on(G, *args):
            return code(G, *args)

        # Numba tells machine code apart by this name, the types and a counter that begins anew in every process.
        # Under one name for all, a process would take for one operation what another has cached for another.
        pass_on.__qualname__ = name
        return pass_on


def product(G: Gram, v: Array, out: Array) -> None:
    """Compute out <- G v, in plain and in compiled code.

    Parameters
    ----------
    G : Gram of n points; in a compiled loop, the G that `drive` passes to it
    v, out : arrays of float64, shape (n,); out is overwritten

    Raises
    ------
    TypeError, ValueError
        G is not a Gram; or v or out is not such an array, or out is read-only.

    Examples
    --------
    >>> out = np.empty(2)
    >>> fm.product(fm.Gram(np.array([[5.0, 2.0], [2.0, 1.0]])), np.array([2.0, 1.0]), out)
    >>> out
    array([12.,  5.])
    """
    if not isinstance(G, Gram):
        _step_of(G, "product")(G, v, out)
        return
    _refuse_other_arrays(G.n, v=v)
    _refuse_other_arrays(G.n, writes=True, out=out)
    if G.arrays is not None:
        _enter(type(G.arrays).product, G.arrays, v, out)
    else:
        out[:] = G._product(v) + G.ridge * v


def add_column(G: Gram, i: int, c: float, m: Array) -> None:
    """Add a column of G to margins, m <- m + c G e_i, in plain and in compiled code.

    For a matrix, this costs 1/n of a product; for rows, it costs about half of a product.

    Parameters
    ----------
    G : Gram of n points; in a compiled loop, the G that `drive` passes to it
    i : int, the number of the point, from 0 to n - 1
    c : float
    m : array of float64, shape (n,), changed in place

    Raises
    ------
    TypeError, ValueError, IndexError
        G is not a Gram; m is not such an array, or is read-only; c is not finite; or no point has the number i.

    Examples
    --------
    >>> m = np.zeros(2)
    >>> fm.add_column(fm.Gram(np.array([[5.0, 2.0], [2.0, 1.0]])), 1, 10.0, m)
    >>> m
    array([20., 10.])
    """
    if not isinstance(G, Gram):
        _step_of(G, "add_column")(G, i, c, m)
        return
    _refuse_other_arrays(G.n, writes=True, m=m)
    i = _integer(i, "i")
    if not 0 <= i < G.n:
        raise IndexError(f"i must be the number of one of {_counted(G.n, 'point')}, got {i}")
    c = _number(c, "c", -math.inf)
    if G.arrays is not None:
        _enter(type(G.arrays).add_column, G.arrays, i, c, m)
        return
    G._add_column(i, c, m)
    if G._has_ridge:
        m[i] += c * G.ridge[i]


def _step_of(G, name):
    """Return the operation of a named tuple, for compiled code that runs as Python source."""
    step = getattr(type(G), name, None)
    if step is None:
        raise TypeError(f"G must be a Gram, got {type(G).__name__}: give Gram(G) for a matrix")
    return step


_bring(product, "product")
_bring(add_column, "add_column")


# The argument G of compiled loops


class _Arrays(namedtuple("_Arrays", "store c constant ridge threads", defaults=(True,))):
    """A `Gram` in compiled code: the arrays of its store, signs times normalisers, constant and ridge.

    ``threads`` says whether threads may share large products.
    """


def _of_store(name):
    """Return a function of (S, ...) for compiled code; it calls the function of this name of the named tuple S."""

    def step(S, *args):
        return getattr(type(S), name)(S, *args)

    _bring(step, name)
    return step


_multiply_store = _of_store("multiply")  # (S, v, out, threads): out <- K v
_column_of = _of_store("column")  # (S, i) -> column i of K
_row_of = _of_store("row")  # (S, i) -> (values, columns): the entries of x_i in these columns
_set_dots = _of_store("set_dots")  # (S, w, m, start): m_k <- <x_(start + k), w> for all k
# (S, v, start, w): w <- w + sum_k v_k x_(start + k); rows of weight zero are not read
_add_rows = _of_store("add_rows")


@njit(cache=_CACHE, fastmath=_FAST)
def _gram_product(G, v, out):
    scaled = np.empty(v.size)
    for i in range(v.size):
        scaled[i] = G.c[i] * v[i]
    _multiply_store(G.store, scaled, out, G.threads)
    added = 0.0
    if G.constant != 0.0:
        added = G.constant * G.constant * _total(scaled)
    for i in range(v.size):
        out[i] = G.c[i] * (out[i] + added) + G.ridge[i] * v[i]


@njit(cache=_CACHE, fastmath=_FAST)
def _gram_add_column(G, i, c, m):
    column = _column_of(G.store, i)
    weight = c * G.c[i]
    added = G.constant * G.constant
    for j in range(m.size):
        m[j] += weight * (G.c[j] * (column[j] + added))
    m[i] += c * G.ridge[i]


_Arrays.product = _gram_product
_Arrays.add_column = _gram_add_column


def _refuse_other_arrays(n, writes=False, **vectors):
    """Refuse all but arrays of n numbers in float64: compiled code would read beyond the end of a shorter array."""
    for name, v in vectors.items():
        if not isinstance(v, np.ndarray):
            raise TypeError(f"{name} must be an array, got {type(v).__name__}")
        if v.shape != (n,) or v.dtype != np.float64:
            raise ValueError(
                f"{name} must be an array of float64 of shape {(n,)}; got {v.dtype} of shape {v.shape}"
            )
        if writes and not v.flags.writeable:
            raise ValueError(f"{name} is read-only: give an array that can be changed")


def _gram_of(G):
    """Return G if it is a Gram, else the Gram over the matrix G."""
    return G if isinstance(G, Gram) else Gram(G)


def _refuse_unsigned(G, name):
    """Refuse a kernel matrix K if the function needs labels."""
    if G.kernel is not None and G.labels is None:
        raise ValueError(
            f"{name} must have labels, but this is a K made without y: give {G._values.made_by}(X, y, ...) or "
            "K.signed(y)"
        )


def _refuse_ridge(ridge, scale):
    """Refuse a ridge so large or so small that rounding hides G or the ridge; scale is max_i G_ii."""
    low, high = (limit * scale for limit in _RATIOS)
    is_wrong = (ridge != 0.0) & ((ridge < low) | (ridge > high))
    if is_wrong.any():
        i = int(np.argmax(is_wrong))
        raise ValueError(
            f"ridge is {ridge[i]:g} at row {i}, and must be 0, or from {low:g} to {high:g}, which is "
            f"{_RATIOS[0]:g} and {_RATIOS[1]:g} times max_i G_ii without a ridge: give "
            f"np.where(ridge < {low:g}, 0.0, np.minimum(ridge, {high:g}))"
        )


def _refuse_cost(cost, scale):
    """Refuse a cost of 0, or one so small or so large that rounding hides it or G; scale is max_i G_ii."""
    low, high = (limit / scale for limit in _RATIOS)
    is_wrong = (cost < low) | (cost > high)
    if is_wrong.any():
        i = int(np.argmax(is_wrong))
        raise ValueError(
            f"cost is {cost[i]:g} at row {i}, and must be from {low:g} to {high:g}, which is {_RATIOS[0]:g} and "
            f"{_RATIOS[1]:g} over max_i G_ii: give np.clip(cost, {low:g}, {high:g})"
        )


def _checked(G):
    """Return the G of a user as a `Gram`; refuse a G without signs or without a declared precision."""
    G = _gram_of(G)
    _refuse_unsigned(G, "G")
    if G.unit is None:
        raise TypeError(
            f"{type(G).__name__} must declare the precision of its products: set unit = 2.0**-53 for double precision, "
            "or 2.0**-24 for single precision"
        )
    if _is_free(G.intercept) and (G.labels is None or set(np.unique(G.labels)) != {-1, 1}):
        raise ValueError('G.labels must hold both labels -1 and +1, because G has intercept="free"')
    return G


def _scale_of(G):
    """Return s = max_i G_ii; refuse an s at which squares or products might leave the range of double precision."""
    scale = float(G.diagonal().max())
    low, high = _ENTRIES
    if not low <= scale <= high:
        raise ValueError(
            f"max_i G_ii is {scale:g}, and must be from {low:g} to {high:g}: rescale G, or the points, "
            "X / np.abs(X).max(), unless all are 0, so that nothing separates them"
        )
    return scale


def _is_pairs(G):
    """Return True for a G over pairs of a point and a wrong class."""
    return isinstance(G.store, _Pairs)


def _points_gram(G):
    """Return the Gram of the points: K for pairs, else G."""
    return G.store.K if _is_pairs(G) else G


# ------------------------------------------------------------------------------------------------------
# 5.2 a matrix
# ------------------------------------------------------------------------------------------------------


class _MatrixArrays(namedtuple("_MatrixArrays", "matrix")):
    pass


class _Matrix(_Store):
    """A matrix of the values, (n, n), symmetric to the last bit.

    The solver's copies are in single precision, and may have only the upper triangle that products read.
    """

    kind = "a matrix"
    access = "stored"
    precise_products = True

    def __init__(self, matrix, error=0.0):
        self.matrix = _frozen(matrix)
        self.n = len(matrix)
        self.work = 0.5 * matrix.size
        self.error = error

    @property
    def arrays(self):
        return _MatrixArrays(_frozen(self.matrix))

    @property
    def squares(self):
        return self.matrix.diagonal().astype(np.float64)

    def products(self, V):
        if len(V) == 1:
            out = np.empty(V.shape)
            _enter(_multiply_store, self.arrays, V[0], out[0], os.getpid() == _PROCESS)
            return out
        return np.matmul(V.astype(self.matrix.dtype), self.matrix).astype(np.float64)

    def column(self, i):
        return self.matrix[i]

    def block(self, rows, columns):
        return self.matrix[rows[:, None], columns]

    def dense(self):
        return _frozen(self.matrix)  # pickle drops the read-only flag

    def restrict(self, index):
        return _Matrix(self.block(index, index), self.error)

    def rounding(self, G):
        return Rounding.of_entries(self.n, self._error_of_entries(G))

    def _error_of_entries(self, G):
        """Bound the rounding of an entry of `Gram.dense`: then certificates hold for all matrices that round to it."""
        is_exact = G._constant == 0.0 and np.all(np.abs(G._c) == 1.0)
        return _UNIT if is_exact else 6.0 * _UNIT

    def precise(self, G, v):
        m = np.empty(v.size)
        norm2 = _dense_precise(G.arrays, v, m)
        entries = self._error_of_entries(G)
        margins = 1.01 * (_UNIT + entries + _sum_error(2 * v.size + 8) ** 2)
        return norm2, m, Rounding(margins, 2.0 * margins, 0.0)


def _symmetric(given, name):
    """Return (matrix, error); raise an error for the first visible flaw of the given matrix.

    The returned matrix is C-ordered, in float64, and symmetric to the last bit.  For ||v||_1 <= 1, the rounding that
    made the given matrix asymmetric brings v'Gv at most ``error`` times the largest diagonal entry below 0.
    """
    given = _numbers(given, name)
    if given.ndim != 2 or given.size == 0 or given.shape[0] != given.shape[1]:
        remedy = ""
        if name == "G":
            remedy = "; for points give gram(X, y) or features(X, y); for pair_gram leave y out"
        raise ValueError(
            f"{name} must be a square matrix of real numbers; got shape {given.shape}{remedy}"
        )
    # A symmetric matrix is its own transpose, so that a Fortran-ordered one needs no copy.
    rows = given.T if given.flags.f_contiguous else given
    matrix = np.ascontiguousarray(rows, np.float64)
    slack = _ASYMMETRY * float(np.abs(matrix.diagonal()).max())
    with np.errstate(invalid="ignore"):
        # The root of a negative entry is NaN, and no comparison with NaN is true.
        roots = np.sqrt(matrix.diagonal())
    asymmetry = 0.0
    for start in range(0, len(matrix), _TILE):
        stop = start + _TILE
        left = matrix[start:stop, :stop]
        with np.errstate(invalid="ignore"):
            apart = np.abs(left - matrix[:stop, start:stop].T)
            above = np.abs(left) - (1.0 + _ASYMMETRY) * roots[start:stop, None] * roots[:stop]
        if not (apart.max() <= slack and above.max() <= slack):
            is_wrong = ~((apart <= slack) & (above <= slack))
            is_gross = apart > _GROSS * np.abs(left).max()
            # If rows and columns are in different orders, the matrix is not semi-definite either: name the asymmetry.
            i, j = np.argwhere(np.tril(is_gross if is_gross.any() else is_wrong, start))[0].tolist()
            _refuse_entry(given, name, start + i, j, slack, is_gross.any())
        asymmetry = max(asymmetry, float(apart.max()))
    if asymmetry > 0.0:
        matrix = matrix + matrix.T
        matrix *= 0.5
    # An asymmetry above 1e-12 of the largest diagonal entry is more than double precision leaves.  Then the errors of
    # entries may be several times the asymmetry.
    is_single = given.dtype == np.float32 or asymmetry > 1e-6 * slack
    error = 4.0 * _ASYMMETRY * is_single
    _refuse_indefinite(matrix, name, max(error, 1e-6 * _ASYMMETRY))
    return matrix, error


# The largest |G_ij - G_ji| / max_i |G_ii| that counts as rounding, namely of kernels in single precision
_ASYMMETRY = 1e-6
# An asymmetry above this share of the largest |G_ij| is not rounding, not even in half precision.
_GROSS = 1e-2


def _refuse_orders(K, name):
    """Refuse a data frame whose rows and columns have the same names in different orders."""
    rows = list(getattr(K, "index", ())) if hasattr(K, "columns") else []
    if rows and rows != list(K.columns) and set(rows) == set(K.columns):
        raise ValueError(
            f"{name} has rows and columns in different orders: give {name}.loc[{name}.columns]"
        )


def _refuse_entry(given, name, i, j, slack, is_gross):
    """Raise an error that says what is wrong with an entry of a kernel matrix."""
    a = float(given[i, j])
    b = float(given[j, i])
    if not (math.isfinite(a) and math.isfinite(b)):
        demand = "finite, without NaN or inf"
    elif is_gross and name.isidentifier():  # the values of a function have the order of its points
        demand = (
            f"symmetric to {_ASYMMETRY:g} of its largest diagonal entry, and is far from it: give rows and columns the "
            f"same order, as {name}.loc[{name}.columns] does for a data frame"
        )
    elif not abs(a - b) <= slack:
        demand = (
            f"symmetric to {_ASYMMETRY:g} of its largest diagonal entry: compute it in double precision, or give "
            f"({name} + {name}.T) / 2"
        )
    else:
        demand = "positive semi-definite, as every kernel matrix is"
    places = dict.fromkeys(((i, j), (j, i), (i, i), (j, j)))
    entries = ", ".join(f"{name}[{row}, {column}] = {given[row, column]}" for row, column in places)
    raise ValueError(f"{name} must be {demand}; row {i} has {entries}")


# The matrices of up to this many points are factored, because that takes little time: n^3 / 3 operations.
_MOST_FACTORED = 2000


def _refuse_indefinite(matrix, name, error):
    """Refuse a matrix whose least eigenvalue is below 0, by more than what an ``error`` of its entries explains.

    ``error`` is relative to the largest entry of the diagonal.
    """
    n = len(matrix)
    largest = float(matrix.diagonal().max())
    if n > _MOST_FACTORED or not _is_within(largest, _ENTRIES):  # the size is refused elsewhere
        return
    allowed = n * error * largest
    try:
        np.linalg.cholesky(matrix + allowed * np.eye(n))
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(matrix)[0])
        if least >= -allowed:
            return
        shift = f"{_written(-1.01 * least, 2, _UP)} * np.eye(len"
        remedy = f"give {name} + {shift}({name}))"
        if not name.isidentifier():
            remedy = (
                f"give another kernel, or K + {shift}(K)) for the matrix K of its values, with "
                'kernel="precomputed"'
            )
        raise ValueError(
            f"{name} must be positive semi-definite, and has the eigenvalue {least:.3g}: {remedy}"
        ) from None


_STREAMS = 8  # rows of a triangle that `_symmetric_rows` reads at once


@njit(cache=_CACHE, fastmath=_FAST)
def _symmetric_rows(matrix, v, start, stop, out):
    """Add to ``out`` what rows start..stop-1 of the upper triangle contribute to G v.

    Eight rows are read at once: each entry serves out_i and, mirrored, out_j, and that many streams keep the memory
    busy and hide the latency of the additions.
    """
    n = v.size
    i = start
    while i < stop:
        j = min(i + _STREAMS, n)
        for r in range(i, j):
            total = 0.0
            for k in range(i, j):
                total += matrix[r, k] * v[k]
            out[r] += total
        if j < n:
            a = matrix[i, j:]
            b = matrix[i + 1, j:]
            c = matrix[i + 2, j:]
            d = matrix[i + 3, j:]
            e = matrix[i + 4, j:]
            f = matrix[i + 5, j:]
            g = matrix[i + 6, j:]
            h = matrix[i + 7, j:]
            va = v[i]
            vb = v[i + 1]
            vc = v[i + 2]
            vd = v[i + 3]
            ve = v[i + 4]
            vf = v[i + 5]
            vg = v[i + 6]
            vh = v[i + 7]
            right = v[j:]
            tail = out[j:]
            sa = 0.0
            sb = 0.0
            sc = 0.0
            sd = 0.0
            se = 0.0
            sf = 0.0
            sg = 0.0
            sh = 0.0
            for k in range(right.size):
                x = right[k]
                sa += a[k] * x
                sb += b[k] * x
                sc += c[k] * x
                sd += d[k] * x
                se += e[k] * x
                sf += f[k] * x
                sg += g[k] * x
                sh += h[k] * x
                tail[k] += (
                    a[k] * va
                    + b[k] * vb
                    + c[k] * vc
                    + d[k] * vd
                    + e[k] * ve
                    + f[k] * vf
                    + g[k] * vg
                    + h[k] * vh
                )
            for r, total in enumerate((sa, sb, sc, sd, se, sf, sg, sh)):
                out[i + r] += total
        i = j


@register_jitable
def _triangle_start(n, part, count):
    """Return the first row of one of ``count`` parts of the upper triangle, which have equal areas."""
    share = 1.0 - math.sqrt(1.0 - part / count)
    return _STREAMS * int(round(n / _STREAMS * share))  # whole blocks, or rows would be added twice


def _add_triangles(matrix, v, parts):
    """Add to each part what its rows of the upper triangle contribute to G v."""
    for part in prange(len(parts)):
        start = _triangle_start(v.size, np.int64(part), len(parts))
        stop = v.size
        if part + 1 < len(parts):
            stop = _triangle_start(v.size, np.int64(part + 1), len(parts))
        _symmetric_rows(matrix, v, start, stop, parts[part])


_add_triangles, _add_triangles_in_parallel = _twins(_add_triangles)


@njit(cache=_CACHE)
def _symmetric_product(S, v, out, threads):
    """out <- the matrix times v; only the upper triangle is read."""
    count = 1 if S.matrix.size < _SERIAL else _PARTS
    parts = np.zeros((count, v.size))
    if threads and count > 1:
        _add_triangles_in_parallel(S.matrix, v, parts)
    else:
        _add_triangles(S.matrix, v, parts)
    _copy(parts[0], out)
    for part in range(1, count):
        _combine(1.0, out, 1.0, parts[part])


@njit(cache=_CACHE)
def _column_of_matrix(S, i):
    return S.matrix[i]


@njit(cache=_CACHE)
def _dense_precise(G, v, m):
    """m <- G v without the ridge, each sum rounded once; returns v' G v.  Columns of weight zero are not read."""
    matrix = G.store.matrix
    low = np.zeros(m.size)
    m[:] = 0.0
    total = 0.0
    rest = 0.0
    for j in range(v.size):
        if v[j] != 0.0:
            weight, lost = _add_exactly(0.0, 0.0, G.c[j], v[j])
            total, rest = _add_exactly(total, rest, G.c[j], v[j])
            for i in range(m.size):
                entry = float(matrix[j, i])
                m[i], low[i] = _add_exactly(m[i], low[i], entry, weight)
                low[i] += entry * lost
    added = G.constant * G.constant * (total + rest)
    for i in range(m.size):
        m[i] = G.c[i] * (m[i] + (low[i] + added))
    high, low_of_all = _precise_dot(v, m)
    return high + low_of_all


_MatrixArrays.multiply = _symmetric_product
_MatrixArrays.column = _column_of_matrix


# ------------------------------------------------------------------------------------------------------
# 5.3 rows
# ------------------------------------------------------------------------------------------------------


class _RowArrays(namedtuple("_RowArrays", "rows n width")):
    pass


class _Rows(_Store):
    """Dense points as rows x_i, (n, d), in float64 or float32; the rows may lie in a mapped file.

    ``origin`` was subtracted from the points; it is None for 0.
    """

    kind = "rows"
    made_by = "features"
    has_rows = True
    precise_products = True

    def __init__(self, rows, origin=None):
        self.rows = _frozen(rows)
        self.n, self.width = rows.shape
        self.origin = origin
        self.squares = _squares(rows)

    @property
    def work(self):
        return float(self.rows.size)

    @property
    def arrays(self):
        return _RowArrays(_frozen(self.rows), self.n, self.width)

    def lifts(self, V):
        """Return V X, (k, width)."""
        W = np.zeros((len(V), self.width))
        if len(V) == 1 or len(V) * self.work < _SHORT:
            _lift_rows(self.arrays, np.ascontiguousarray(V), W)
        else:
            for some in _slices(self.n, self.width):
                W += V[:, some] @ self.rows[some].astype(np.float64, copy=False)
        return W

    def margins(self, W):
        """Return W X', (k, n)."""
        m = np.empty((len(W), self.n))
        if len(W) == 1 or len(W) * self.work < _SHORT:
            _dot_rows(self.arrays, np.ascontiguousarray(W), m)
        else:
            for some in _slices(self.n, self.width):
                m[:, some] = W @ self.rows[some].astype(np.float64, copy=False).T
        return m

    def products(self, V):
        return self.margins(self.lifts(V))

    def coordinates(self, index):
        """Return some x_i in float64, (k, width), a new array."""
        return self.rows[index].astype(np.float64)

    def block(self, rows, columns):
        left = self.coordinates(rows)
        right = left if rows is columns else self.coordinates(columns)
        return left @ right.T

    def restrict(self, index):
        return type(self)(self.rows[index], self.origin)

    def rounding(self, G):
        return Rounding.of_rows(self.n, self.width + 1)

    def precise(self, G, v):
        m = np.empty(v.size)
        error = _sum_error(2 * (self.n + G._width) + 16) ** 2
        norm2 = _precise_product(G.arrays, v, m, G._width)
        return norm2, m, Rounding(2.0 * error, 0.0, 2.0 * error)

    def separators(self, G, alpha):
        """Return Z'v for each row v of alpha, in twice the working precision."""
        return np.array([_precise_lift(G.arrays, v, G._width).sum(axis=0) for v in alpha])

    def scores(self, G, alpha):
        # For many rows, such as all iterates of a run, precise sums would take as long as the run.
        return self.scores_of(G, G._separators(alpha, precise=len(alpha) == 1))

    def scores_of(self, G, W):
        origin = np.zeros(self.width) if self.origin is None else self.origin
        return _LinearScores(W, origin, G._constant, G.normalize, G._common)


@njit(cache=_CACHE)
def _dense_row(S, i):
    values = np.empty(S.width)
    _copy(S.rows[i], values)
    return values, np.arange(S.width, dtype=np.uint32)


@njit(cache=_CACHE, fastmath=_FAST)
def _dense_set_dots(S, w, m, start):
    for k in range(m.size):
        total = 0.0
        for j in range(w.size):
            total += S.rows[start + k, j] * w[j]
        m[k] = total


@njit(cache=_CACHE, fastmath=_FAST)
def _dense_add_rows(S, v, start, w):
    for k in range(v.size):
        weight = v[k]
        if weight != 0.0:
            for j in range(w.size):
                w[j] += weight * S.rows[start + k, j]


_RowArrays.row = _dense_row
_RowArrays.set_dots = _dense_set_dots
_RowArrays.add_rows = _dense_add_rows


# ------------------------------------------------------------------------------------------------------
# 5.4 sparse rows
# ------------------------------------------------------------------------------------------------------


class _SparseArrays(namedtuple("_SparseArrays", "values columns starts n width")):
    pass


class _SparseRows(_Rows):
    """Sparse points as a SciPy matrix in compressed rows; SciPy computes blocks and products with tables."""

    kind = "sparse rows"

    def __init__(self, rows, origin=None):
        self.rows = rows.astype(np.float64, copy=False)
        self.n, self.width = rows.shape
        self.origin = origin
        self.squares = _squares(self.rows)
        self.starts = self.rows.indptr.astype(np.int64)

    @property
    def work(self):
        return float(self.rows.nnz)

    @property
    def arrays(self):
        X = self.rows
        # Compiled code tests whether an index is negative, unless its type is unsigned.
        unsigned = np.uint32 if X.indices.itemsize == 4 else np.uint64
        arrays = X.data, X.indices.view(unsigned), self.starts
        return _SparseArrays(*map(_frozen, arrays), self.n, self.width)

    def lifts(self, V):
        if len(V) > 1:
            return np.ascontiguousarray((self.rows.T @ V.T).T)
        return super().lifts(V)

    def margins(self, W):
        if len(W) > 1:
            return np.ascontiguousarray((self.rows @ W.T).T)
        return super().margins(W)

    def coordinates(self, index):
        return self.rows[index].toarray()

    def block(self, rows, columns):
        return (self.rows[rows] @ self.rows[columns].T).toarray()

    def rounding(self, G):
        """Bound a margin as a sum over the non-zeros of a row, and ||w||^2 as a sum over all columns."""
        longest = int(np.diff(self.rows.indptr).max())
        length = Rounding.of_rows(self.n, self.width + 1).length
        return Rounding.of_rows(self.n, longest + 1)._replace(length=length)


@njit(cache=_CACHE)
def _sparse_row(S, i):
    start = S.starts[i]
    stop = S.starts[i + 1]
    return S.values[start:stop], S.columns[start:stop]


@njit(cache=_CACHE, fastmath=_FAST)
def _sparse_set_dots(S, w, m, start):
    for k in range(m.size):
        values, columns = _sparse_row(S, start + k)
        total = 0.0
        for j in range(values.size):
            total += values[j] * w[columns[j]]
        m[k] = total


@njit(cache=_CACHE, fastmath=_FAST)
def _sparse_add_rows(S, v, start, w):
    for k in range(v.size):
        weight = v[k]
        if weight != 0.0:
            values, columns = _sparse_row(S, start + k)
            for j in range(values.size):
                w[columns[j]] += weight * values[j]


_SparseArrays.row = _sparse_row
_SparseArrays.set_dots = _sparse_set_dots
_SparseArrays.add_rows = _sparse_add_rows


# Dense and sparse rows each have the three steps above.  They share all other steps.


@njit(cache=_CACHE)
def _lift_rows(S, V, W):
    """W <- W + V X."""
    for c in range(len(V)):
        _add_rows(S, V[c], 0, W[c])


@njit(cache=_CACHE)
def _dot_rows(S, W, M):
    """M <- W X'."""
    for c in range(len(W)):
        _set_dots(S, W[c], M[c], 0)


@njit(cache=_CACHE)
def _multiply_rows(S, v, out, threads):
    w = np.zeros(S.width)
    _add_rows(S, v, 0, w)
    _set_dots(S, w, out, 0)


@njit(cache=_CACHE)
def _column_of_rows(S, i):
    w = np.zeros(S.width)
    column = np.empty(S.n)
    _add_rows(S, np.ones(1), i, w)
    _set_dots(S, w, column, 0)
    return column


for _arrays in (_RowArrays, _SparseArrays):
    _arrays.multiply = _multiply_rows
    _arrays.column = _column_of_rows


@njit(cache=_CACHE)
def _precise_lift(G, v, width):
    """Return Z'v in two parts, (2, width)."""
    parts = np.zeros((2, width))
    w, rest = parts
    for i in range(v.size):
        if v[i] != 0.0:
            weight, lost = _add_exactly(0.0, 0.0, G.c[i], v[i])
            values, columns = _row_of(G.store, i)
            for k in range(values.size):
                j = columns[k]
                w[j], rest[j] = _add_exactly(w[j], rest[j], values[k], weight)
                rest[j] += values[k] * lost
            if G.constant != 0.0:
                w[-1], rest[-1] = _add_exactly(w[-1], rest[-1], G.constant, weight)
                rest[-1] += G.constant * lost
    _renormalize(w, rest)
    return parts


@njit(cache=_CACHE)
def _precise_dots(G, w, rest, m):
    """m <- Z (w + rest), each sum rounded once; ``rest`` is the rounding error of w."""
    for i in range(m.size):
        values, columns = _row_of(G.store, i)
        high = 0.0
        low = 0.0
        small = 0.0
        for k in range(values.size):
            high, low = _add_exactly(high, low, values[k], w[columns[k]])
            small += values[k] * rest[columns[k]]
        if G.constant != 0.0:
            high, low = _add_exactly(high, low, G.constant, w[-1])
            small += G.constant * rest[-1]
        m[i] = G.c[i] * (high + (low + small))


@njit(cache=_CACHE)
def _precise_product(G, v, m, width):
    """m <- Z Z' v, with Z' v kept in two parts and each sum rounded once; return v' Z Z' v."""
    w, rest = _precise_lift(G, v, width)
    _precise_dots(G, w, rest, m)
    high, low = _precise_dot(w, w)
    return high + (low + 2.0 * _dot(w, rest) + _dot(rest, rest))


# ------------------------------------------------------------------------------------------------------
# 5.5 features
# ------------------------------------------------------------------------------------------------------


def _points_and_signs(X, y, kernel, intercept):
    """Return checked points as a kernel reads them, and their labels as signs, or None without labels."""
    X = _training_points(X, y, kernel)
    return X, None if y is None else _signs(y, X.shape[0], _is_free(intercept))


def _training_points(X, y, kernel):
    """Return checked points as a kernel reads them; y only shows whether X and y are swapped."""
    _refuse_swapped(X, y)
    kind = _kernel_class(kernel)
    if kind is _Given:
        _refuse_orders(X, "X")
    return kind._read(X, "X")


@_with_remedies
def features(
    X: Any,
    y: ArrayLike | None = None,
    *,
    normalize: str | None = "unit",
    intercept: float | str = 0.0,
    ridge: ArrayLike = 0.0,
    cost: ArrayLike = math.inf,
) -> Gram:
    """Make G from points and labels for the linear kernel, in the memory of the points: dense, sparse, or on disk.

    G = Z Z' + diag(r), with the rows z_i = c_i x_i and c_i = y_i / length.  The matrix G is never formed.

    Parameters
    ----------
    X : array or SciPy sparse matrix or array, shape (n, d)
        The points.  An array in float64 or float32 and C order is not copied, so it must not change while G is in use.
        Memory-mapped points (`numpy.memmap`, ``numpy.load(..., mmap_mode="r")``) are read from the file in every
        product, and cannot be moved to another origin.
    y : array, shape (n,), or 1, optional
        The labels, -1 or +1; or the number 1, for rows that have their signs already.  None gives the unsigned K, with
        c_i = 1 / length: see `pair_gram` and `Gram.signed`.
    normalize : {"unit", "max", None}
        The length: ||x_i|| for "unit", max_i ||x_i|| for "max", and 1 for None.  Only None gives margins in the units
        of X.
    intercept : float or "free"
        A number c other than 0 is appended to all points as a constant feature, before they are normalised.
        "free": as in `gram`.  With normalize=None the rows are then x_i - o for a point o near the points, if these are
        far from 0; the differences are exact.
    ridge : float or array, shape (n,)
        As in `gram`.  For approximate features F of a kernel K, such as Nystroem features or random features,
        ``features(F, y, normalize=None, ridge=K_ii - ||f_i||^2)`` restores the diagonal of K.
    cost : float or array, shape (n,)
        As in `gram`.

    Returns
    -------
    G : Gram over rows or sparse rows
        A product reads X, or its non-zeros, twice; a column reads it once.

    Raises
    ------
    ValueError
        Points are not valid (see the Notes of `gram`); labels are not -1 or +1; lengths differ; a row is 0 and
        normalize="unit"; or mapped points would have to be moved.

    See Also
    --------
    gram, lazy_gram : other kernels.  separator_margin : the margin of a separator that you have.

    Examples
    --------
    >>> fm.features([[3.0, 4.0], [0.0, -2.0]], [1, -1]).coordinates()
    array([[ 0.6,  0.8],
           [-0. ,  1. ]])
    """
    kernel = _LINEAR
    if isinstance(y, Number) and y == 1:  # the rows have signs, and no labels are known
        kernel = y = None
    X, signs = _points_and_signs(X, y, "linear", intercept)
    origin = _origin(X) if _is_free(intercept) and normalize is None else None
    rows = _store_of_rows(X, origin)
    return _gram_over(rows, rows, kernel, rows.width, signs, normalize, intercept, ridge, cost)


def _store_of_rows(X, origin=None):
    """Return the store of checked points minus an origin."""
    if origin is not None and not origin.any():
        origin = None
    if _is_sparse(X):
        if origin is not None:
            X = X.astype(np.float64)
            X.data -= origin[X.indices]
        return _SparseRows(X, origin)
    if origin is not None:
        _refuse_moving(X, 'intercept="free" subtracts a point near the others')
        X = X - origin
    return _Rows(X, origin)


# ------------------------------------------------------------------------------------------------------
# 5.6 any kernel
# ------------------------------------------------------------------------------------------------------


class _OnDemand(_Store):
    """A kernel, and the points as it reads them; values are evaluated when they are needed, and are not kept.

    Attributes
    ----------
    kernel : Kernel
    prepared : the points, minus ``kernel.center`` if it has one, and their squared lengths
    width : int, columns of the points, or None for objects
    used : array of int, or None: the columns of the points that are kept; the others are 0 in all of them
    """

    kind = "a kernel on demand"
    made_by = "lazy_gram"

    def __init__(self, kernel, prepared, width, used=None):
        self.kernel = kernel
        self.prepared = prepared
        self.width = width
        self.used = used
        self.n = prepared.squares.size
        self.work = 0.5 * self.n**2

    @functools.cached_property
    def squares(self):
        return self.kernel.diagonal(self.prepared)

    @property
    def origin(self):
        return self.kernel.center if self.kernel.name == "linear" else None

    @property
    def error(self):
        return self.rounding(None).square

    def products(self, V):
        return self.kernel.sums(V, self.prepared, self.prepared)

    def block(self, rows, columns):
        return self.kernel.block(self.prepared.take(rows), self.prepared.take(columns))

    def dense(self):
        n = self.n
        out = _empty_matrix(n)
        for rows in _slices(n, n):
            left = slice(rows.stop)
            out[rows, left] = self.block(rows, left)
        _mirror(0, n, out)
        np.fill_diagonal(out, self.squares)
        return out

    def restrict(self, index):
        return _OnDemand(self.kernel, self.prepared.take(index), self.width, self.used)

    def rounding(self, G):
        return Rounding.of_entries(self.n, 1.01 * self.kernel.rounding(self.prepared))

    def without_zeros(self):
        """Return the store without coordinates that are 0 in all points; these change no value of a named kernel."""
        rows = self.prepared.rows
        is_named = type(self.kernel) in _KERNELS.values()
        if not is_named or _is_sparse(rows) or _is_mapped(rows):
            return self
        is_used = rows.any(axis=0)
        if is_used.all():
            return self
        prepared = self.prepared._replace(rows=rows.compress(is_used, axis=1))
        return _OnDemand(self.kernel, prepared, self.width, np.flatnonzero(is_used))

    def scores(self, G, alpha):
        places = np.flatnonzero(alpha.any(axis=0))
        points = self.prepared.take(places)
        if self.used is not None:  # new points have all coordinates
            rows = np.zeros((places.size, self.width), points.rows.dtype)
            rows[:, self.used] = points.rows
            points = points._replace(rows=rows)
        coefficients = alpha[:, places] * _at(G._c, places)
        return _KernelScores(
            self.kernel,
            points,
            places,
            coefficients,
            G.normalize,
            G._common,
            G.d,
            G._constant**2,
        )


def _refuse_beyond_memory(size, what):
    """Raise MemoryError if the machine has less memory than ``size`` bytes; ``what`` is the message, with {} for the
    size."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not known on this system
        return
    if size > memory:
        raise MemoryError(what.format(f"{size / 2**30:.3g} GB"))


def _empty_matrix(n):
    """Return a matrix that is not filled yet; raise MemoryError if it is larger than the memory of the machine."""
    what = (
        f"the matrix of {n} points takes {{}}: use lazy_gram(X, y, ...), which evaluates entries when they are needed, "
        'or features(X, y) if kernel="linear"'
    )
    _refuse_beyond_memory(8 * n * n, what)
    try:
        return np.empty((n, n))
    except MemoryError:
        raise MemoryError(what.format(f"{8 * n * n / 2**30:.3g} GB")) from None


def _kernel_and_points(X, kernel, normalize, intercept, params):
    """Return (the `Kernel`, points as it reads them); a free intercept without normalisation allows another origin."""
    may_move = _is_free(intercept) and normalize is None
    kernel = _kernel(kernel, X, params, may_move)
    points = kernel.prepare(X)
    is_shared = points.rows is X and isinstance(X, np.ndarray) and not _is_mapped(X)
    if is_shared and kernel.name != "precomputed":
        points = points._replace(rows=X.copy())  # the user cannot write to this copy
    return kernel, points


def _gram_over(store, points, kernel, d, signs, normalize, intercept, ridge, cost):
    """Return the `Gram` over a store; ``signs`` is None for K, and ``points`` is the store that scores new points."""
    constant = _constant(intercept)
    c = _normalizers(store.squares + constant**2, normalize)
    G = Gram._over(
        store,
        d=d,
        labels=signs,
        kernel=kernel,
        normalize=normalize,
        intercept=constant,
        origin=points.origin,
        _c=c if signs is None else c * signs,
        _constant=constant,
        _points=points,
        _common=float(c[0]) if normalize == "max" else 1.0,
    )
    if _is_free(intercept):
        G = G._changed(intercept="free")
    return _softened(G, ridge, cost)


def _softened(G, ridge, cost):
    """Return G with a ridge or a cost, if one is given."""
    if not (isinstance(ridge, float) and ridge == 0.0):
        G = G.with_ridge(ridge)
    return G if isinstance(cost, float) and cost == math.inf else G.with_cost(cost)


def gram(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    kernel: str | Kernel | Callable[[Any, Any], Any] = "rbf",
    normalize: str | None = "unit",
    intercept: float | str = 0.0,
    ridge: ArrayLike = 0.0,
    cost: ArrayLike = math.inf,
    **params: Any,
) -> Gram:
    """Make G from points and labels as a matrix, for any kernel; without labels, make the kernel matrix K.

    G_ij = y_i y_j K(x_i, x_j) / normalisation, plus r_i on the diagonal.  It is exactly symmetric.

    Parameters
    ----------
    X : array, shape (n, d)
        The points; for kernel="precomputed", the matrix K(x_i, x_j), (n, n); for a function also a list of n objects.
    y : array, shape (n,), optional
        Labels, -1 or +1; None gives the unsigned matrix K.
    kernel : str, callable or Kernel
        "linear": <x, x'>;
        "poly": (gamma <x, x'> + coef0)^degree;
        "rbf": exp(-gamma ||x - x'||^2);
        "laplacian": exp(-gamma ||x - x'||_1);
        "ntk": ||x|| ||x'|| (sin t + 2 (pi - t) cos t) / (2 pi), with t the angle between x and x', the limit for
        w_j ~ N(0, I) and m -> infinity of the tangent kernel of f(x) = m^(-1/2) sum_j a_j relu(w_j'x) in both layers,
        with a_j = +-1;
        an instance of your own subclass of `Kernel`, which defines `_fill`, `diagonal` and `rounding`;
        "precomputed": X is the matrix;
        a function ``kernel(A, B)`` that returns the values K(a_i, b_j), (k, m), for two sets of points, (k, d) and
        (m, d), which are copies in float64.  It must be symmetric and positive semi-definite, which is checked for up
        to 2000 points.  Points may also be texts, graphs or other objects: X is then a list of them, and the function
        gets lists of them.
        For a matrix or a function, an asymmetry of up to 1e-6 of the largest K(x, x), as in single precision, is
        averaged away, and intervals hold for the averaged matrix.
    normalize : {"unit", "max", None}
        "unit" divides K_ij by sqrt(K_ii K_jj), so that G_ii = 1 (ramdas14).  "max" divides by max_i K_ii, so that
        G_ii <= 1 (ji21).  None leaves K as it is.  The default is "unit" in all functions, because the papers assume
        ||x_i|| <= 1; it is None in `MaxMarginClassifier`, as in other support vector machines.
    intercept : float or "free"
        A number c replaces K by K + c^2, as if all points had a constant feature c, before K is normalised.  "free"
        adds a bias b to f without a penalty, so that planes need not pass through the origin; the margin is then half
        the distance between the convex hulls of the two classes.
    ridge : float or array, shape (n,)
        r_i, added to G_ii: 0, or from 1e-16 to 1e16 times max_i G_ii.  One number holds for all points.  The hard
        margin of G + diag(r) is the soft margin of G with squared slacks and the weights C_i = 1/(2 r_i).
    cost : float or array, shape (n,)
        C_i of the soft margin with plain slacks, see `Gram.with_cost`; not together with a ridge.  The default is inf,
        for no slacks.
    **params
        gamma: a number, "scale" (the default), which is 1 / (d Var X), or "auto", which is 1 / d.
        sigma2: for "rbf" in place of gamma, with gamma = 1/(2 sigma2).
        coef0 = 1 and degree = 3: for "poly".

    Returns
    -------
    G : Gram over a matrix
        ``numpy.asarray(G)`` is the signed matrix.  G keeps its labels, its kernel and the points, so that
        ``G.decision_function`` scores new points.  Without y, G is the unsigned K: see `pair_gram` and `Gram.signed`.

    Raises
    ------
    ValueError
        Values are not finite; labels are not -1 or +1; lengths differ; some K(x, x) <= 0 and normalize="unit"; a
        parameter is out of range; or the matrix of a precomputed or callable kernel has a wrong shape, or is not
        symmetric to 1e-6 of its largest diagonal entry.
    TypeError
        The kernel does not take one of the parameters; or points or labels do not hold numbers.
    MemoryError
        The matrix is larger than the memory of the machine.

    See Also
    --------
    features : rows of the linear kernel, without G.  lazy_gram : G on demand.  pair_gram : several classes.

    Notes
    -----
    *Valid points* are arrays, lists, data frames and SciPy sparse matrices of float64, float32, integers or booleans.
    Integers beyond 2^53 (such as time stamps in nanoseconds), dates, durations, text, complex numbers, and values that
    are masked, missing or not finite raise an error that names the entry and a remedy.  The largest absolute value of
    all points must be from 1e-100 to 1e100; so must a constant intercept other than 0.  The largest K(x, x) must be
    from 1e-200 to 1e200.  These rules hold in all functions that take points.

    References
    ----------
    "ntk": A. Jacot, F. Gabriel, C. Hongler, NeurIPS 2018.  Its limit is half the sum of two kernels, the arc-cosine
    kernel of degree 1, and <x, x'> times that of degree 0: Y. Cho, L. Saul, NeurIPS 2009.

    Examples
    --------
    >>> G = fm.gram([[1.0, 1.0], [0.0, 2.0]], [1, -1], kernel="linear", normalize=None)
    >>> G
    <Gram over a matrix: 2 points in 2 dimensions, linear, normalize=None>
    >>> np.asarray(G)
    array([[ 2., -2.],
           [-2.,  4.]])
    >>> np.asarray(fm.gram([[1.0], [2.0]], kernel=lambda A, B: 1.0 + A @ B.T, normalize=None))
    array([[2., 3.],
           [3., 5.]])
    """
    X, signs = _points_and_signs(X, y, kernel, intercept)
    is_given = isinstance(kernel, str) and kernel == "precomputed"
    if is_given and X.shape[0] == X.shape[1]:  # `_kernel_and_points` refuses other shapes
        values, error = _symmetric(np.array(X), "X")  # the user cannot write to this copy
    kernel, prepared = _kernel_and_points(X, kernel, normalize, intercept, params)
    if is_given:  # new points are given by their kernel values
        prepared = prepared._replace(rows=np.empty((len(X), 0)))
    is_function = isinstance(kernel, _Function)
    if is_function:
        values, error = _symmetric(kernel.table(prepared), "kernel(X, X)")
    on_demand = _OnDemand(kernel, prepared, _width_of(X))  # scores new points
    if not (is_given or is_function):
        values, error = on_demand.without_zeros().dense(), 0.0
    matrix = _Matrix(values, error)
    return _gram_over(
        matrix, on_demand, kernel, _width_of(X), signs, normalize, intercept, ridge, cost
    )


def lazy_gram(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    kernel: str | Kernel = "rbf",
    normalize: str | None = "unit",
    intercept: float | str = 0.0,
    ridge: ArrayLike = 0.0,
    cost: ArrayLike = math.inf,
    **params: Any,
) -> Gram:
    """Make G from points and labels for any kernel, and evaluate its entries on demand.

    G_ij = y_i y_j K(x_i, x_j) / normalisation, as in `gram`.  G keeps no entries: use it if a matrix exceeds the
    memory.

    Parameters
    ----------
    X : array, shape (n, d)
        The points; memory-mapped points stay in their file, as with `features`.
    y : array, shape (n,), optional
        Labels, -1 or +1; None gives the unsigned K.
    kernel : str or Kernel
        "linear", "poly", "rbf", "laplacian", "ntk", or an instance of your own subclass of `Kernel`, as in `gram`.
    normalize : {"unit", "max", None}
        As in `gram`.
    intercept : float or "free"
        As in `gram`.
    ridge, cost : float or array, shape (n,)
        As in `gram`.
    **params
        The kernel's parameters, as in `gram`.

    Returns
    -------
    G : Gram over a kernel on demand
        It keeps the points.  A product needs memory for a copy of the points and for 128 bytes per point (for pairs,
        per point and class), or for a few blocks of 8 MB.  `max_margin` keeps 0.25 GB of columns.  A product evaluates
        the kernel n^2 / 2 times, or n times for each non-zero weight if that is less.

    Raises
    ------
    ValueError, TypeError
        As in `gram`; or the kernel is a matrix or a function, which only `gram` takes.

    See Also
    --------
    gram : the matrix itself.  features : rows of the linear kernel.

    Notes
    -----
    Intervals hold for the exact G of the stored points: certificates allow for the rounding of every kernel value.
    This rounding grows with d: it is about 1e-14 of G_ii for ten coordinates, and 1e-12 for "rbf" of 800 coordinates.

    Examples
    --------
    >>> X, y = [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], [1, 1, -1]
    >>> round(fm.max_margin(fm.lazy_gram(X, y)).lower, 5)
    0.60868
    """
    if callable(kernel) or kernel == "precomputed":
        raise ValueError(
            f"lazy_gram takes the name of a kernel or a Kernel, and not kernel={kernel!r}: use gram(X, y, kernel=...)"
        )
    X, signs = _points_and_signs(X, y, kernel, intercept)
    kernel, prepared = _kernel_and_points(X, kernel, normalize, intercept, params)
    store = _OnDemand(kernel, prepared, X.shape[1]).without_zeros()
    return _gram_over(store, store, kernel, store.width, signs, normalize, intercept, ridge, cost)


# ------------------------------------------------------------------------------------------------------
# 5.7 pairs
# ------------------------------------------------------------------------------------------------------


class _Pairs(_Store):
    """Pairs (x_i, j) of a point and a wrong class, over the unsigned `Gram` K of the points.

    The row of a pair is x_i (x) (e_{y_i} - e_j) / sqrt(2); it is never formed.  A separator has the coordinates of K
    for each class, one class after the other, times sqrt(2).

    Attributes
    ----------
    K : Gram of the points
    labels : array of int, shape (n_points,), the classes of the points
    n_classes : int
    point, right, wrong : arrays of int, shape (n,), i, y_i and j
    """

    made_by = "pair_gram"

    def __init__(self, K, labels, n_classes, point, wrong):
        self.K = K
        self.labels = labels
        self.n_classes = n_classes
        self.point = point
        self.right = labels[point].astype(np.int32)
        self.wrong = wrong
        self.n = point.size
        self.unit = K.unit
        self.kind = f"pairs over {K._values.kind if not K._is_own else K._kind()}"
        self.access = "products" if K._values.access == "products" else "computed"
        self.work = n_classes * K._values.work
        self.has_rows = K._has_rows
        # The places of the scores f_{y_i}(x_i) and f_j(x_i) in a flattened table (n_classes, n_points)
        self._places = [c.astype(np.int64) * len(K) + point for c in (self.right, wrong)]

    @classmethod
    def of_labels(cls, K, labels, n_classes):
        point, wrong = np.nonzero(labels[:, None] != np.arange(n_classes))
        return cls(K, labels, n_classes, point.astype(np.int32), wrong.astype(np.int32))

    @property
    def n_points(self):
        return len(self.K)

    @property
    def squares(self):
        return self.K.diagonal()[self.point]

    @property
    def error(self):
        """The bound of `_Store`: v'Gv is half the sum of T_c'KT_c over the classes, and the ||T_c||_1 add up to 2."""
        return 2.0 * self.K._error_of_squares()

    def counts(self):
        points = _counted(self.n_points, "point")
        return f"{_counted(self.n, 'pair')} of {self.n_classes} classes of {points}"

    def class_coefficients(self, V):
        """Return the class coefficients T of `pair_gram` for each row of V, (k n_classes, n_points)."""
        size = self.n_classes * self.n_points
        right, wrong = self._places
        tables = [np.bincount(right, v, size) - np.bincount(wrong, v, size) for v in V]
        return np.reshape(tables, (-1, self.n_points))

    def differences(self, scores):
        """Return the margins of the pairs, half the differences of k tables of scores, (k, n)."""
        flat = scores.reshape(-1, self.n_classes * self.n_points)
        right, wrong = self._places
        return 0.5 * (flat.take(right, axis=1) - flat.take(wrong, axis=1))

    def products(self, V):
        return self.differences(self.K._products(self.class_coefficients(V)))

    def column(self, i):
        column = np.zeros((1, self.n_points))
        add_column(self.K, int(self.point[i]), 1.0, column[0])
        out = np.zeros((1, self.n))
        i = slice(i, i + 1)
        pair = np.zeros(1, np.int32), self.right[i], self.wrong[i]
        _add_pair_block(column, *pair, self.point, self.right, self.wrong, out)
        return out[0]

    def block(self, rows, columns):
        points, place = np.unique(self.point[rows], return_inverse=True)
        others, other = np.unique(self.point[columns], return_inverse=True)
        K = np.ascontiguousarray(self.K.block(points, others), np.float64)
        out = np.zeros((rows.size, columns.size))
        _add_pair_block(
            K,
            place.astype(np.int32),
            self.right[rows],
            self.wrong[rows],
            other.astype(np.int32),
            self.right[columns],
            self.wrong[columns],
            out,
        )
        return out

    def restrict(self, index):
        points, place = np.unique(self.point[index], return_inverse=True)
        K = self.K.restrict(points)
        return _Pairs(
            K, self.labels[points], self.n_classes, place.astype(np.int32), self.wrong[index]
        )

    def rounding(self, G):
        """Bound the errors: an entry of T is a sum of n_classes - 1 weights, and v'm has a term for every pair."""
        margins = 1.01 * (self.K.rounding().margins + _sum_error(self.n_classes + 8))
        return Rounding(margins, margins + 1.01 * _sum_error(self.n + 8), 0.0)

    def precise(self, G, v):
        """Do the same as K for the computed class coefficients; their n_classes - 2 additions change w and margins.

        A margin is half the difference of two rounded scores.  This adds up to 2 max_c |f_c(x_i)| 2^-53 to its error.
        """
        T = self.class_coefficients(v[None])
        squares = []
        lost = np.zeros(self.n_points)
        scores = np.empty_like(T)
        for c in range(self.n_classes):
            products = self.K._precise(T[c])
            if products is None:
                return None
            size, scores[c], rounding = products
            lost = np.maximum(lost, rounding.lost)
            squares.append(size)
        m = self.differences(scores)[0]
        of_weights = 1.01 * _sum_error(self.n_classes - 2)
        error = _sum_error(2 * v.size + 16) ** 2
        lost += _LAST * np.abs(scores).max(axis=0) / (G._diagonal().max() or 1.0)
        return (
            0.5 * math.fsum(squares),
            m,
            Rounding(
                rounding.margins + error + of_weights,
                rounding.square + 2.0 * error,
                rounding.length * math.sqrt(2.0) + of_weights,
                lost[self.point],
            ),
        )

    # If K has rows, the row of a pair has the coordinates of each class, one class after the other.

    @property
    def width(self):
        return self.n_classes * self.K._width

    def lifts(self, V):
        return self.K._lifts(self.class_coefficients(V)).reshape(len(V), -1)

    def margins(self, W):
        return self.differences(self.K._table(W.reshape(len(W) * self.n_classes, -1)))

    def coordinates(self, index):
        """Return the rows x_i (x) (e_{y_i} - e_j) / sqrt(2) of some pairs, (k, n_classes K._width)."""
        points = math.sqrt(0.5) * self.K.coordinates(self.point[index])
        return _pair_rows(points, self.right[index], self.wrong[index], self.n_classes)

    def separators(self, G, alpha):
        return self.K._separators(self.class_coefficients(alpha)).reshape(len(alpha), -1)

    def scores(self, G, alpha):
        if self.has_rows:
            return self.scores_of(G, G._separators(alpha, precise=len(alpha) == 1))
        return self.K._scores(self.class_coefficients(alpha))

    def scores_of(self, G, W):
        return self.K._scores_of(W.reshape(len(W) * self.n_classes, -1))


def pair_gram(
    K: GramLike,
    labels: ArrayLike,
    n_classes: int,
    *,
    ridge: ArrayLike = 0.0,
    cost: ArrayLike = math.inf,
) -> Gram:
    """Make G from points of several classes; every algorithm runs on it.

    G = Z Z' + diag(r) states the multiclass problem as a binary one, with a row for each point and wrong class.

    The rows are z_(i,j) = x_i (x) (e_{y_i} - e_j) / sqrt(2), for all classes j other than the class y_i of x_i.

    Parameters
    ----------
    K : array, shape (n, n), or Gram
        Unsigned kernel matrix of the points: ``gram(X)``, ``lazy_gram(X)`` or ``features(X)``.
    labels : array, shape (n,)
        Integers from 0 to n_classes - 1.
    n_classes : int
        At least 2.
    ridge, cost : float or array, shape (n (n_classes - 1),)
        As in `gram`, for a slack of every pair.

    Returns
    -------
    G : Gram over pairs
        It has n (n_classes - 1) pairs, ordered by point and then by wrong class.  A product takes one product with K
        for each class.

    Raises
    ------
    ValueError
        K has labels, a free intercept, a ridge or a cost; or labels are not such integers, one for each point.

    Notes
    -----
    Weights alpha of the pairs give a table of class coefficients, T_ci = sum_j alpha_(i,j) ([c = y_i] - [c = j]).  The
    scores of the classes are f_c = sum_i T_ci K(x_i, .); ``G.decision_function`` returns them.  (G alpha)_(i,j) is half
    of f_{y_i}(x_i) - f_j(x_i).  By Theorem 5.1 of ji21 the margin of G is 1/sqrt(2) times the multiclass margin:

        rho = max_T min_{i, j != y_i} (f_{y_i}(x_i) - f_j(x_i)) / (sqrt(2) ||f||),    ||f||^2 = sum_c ||f_c||^2.

    As ||z_(i,j)|| = ||x_i||, the guarantees of `momentum` hold with n (n_classes - 1) in place of n.  With two
    classes G is the signed Gram matrix of the binary problem.

    References
    ----------
    ji21, section 5.2.

    Examples
    --------
    >>> X, labels = [[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [0, 1, 2]
    >>> G = fm.pair_gram(fm.lazy_gram(X, kernel="linear"), labels, 3)
    >>> G.decision_function(fm.max_margin(G), X).argmax(axis=1)
    array([0, 1, 2])
    """
    K = _gram_of(K)
    if K.labels is not None:
        raise ValueError(
            f"K must be unsigned, but it has labels already: make K = {K._values.made_by}(X, ...) without y"
        )
    if _is_free(K.intercept):
        raise ValueError(
            'K must not have intercept="free", which needs two classes: make K with intercept=1.0, or with none'
        )
    if K._has_ridge or K._has_cost:
        raise ValueError(
            "K must have no ridge and no cost: give the ridge or cost of the pairs to pair_gram itself"
        )
    n_classes = _count(n_classes, "n_classes", 2)
    labels = _labels(labels, len(K), "labels", range(n_classes)).astype(np.int64)
    _refuse_beyond_memory(
        64 * len(K) * n_classes,  # three numbers for each pair, and its weights and margins
        f"the pairs of {len(K)} points and n_classes = {n_classes} classes take {{}}: number only the classes that "
        "occur, np.unique(labels, return_inverse=True)[1]",
    )
    _scale_of(K)
    pairs = _Pairs.of_labels(K, labels, n_classes)
    facts = {name: getattr(K, name) for name in ("d", "kernel", "normalize", "intercept", "origin")}
    return _softened(Gram._over(pairs, labels=labels, _points=pairs, **facts), ridge, cost)


def _pair_rows(points, right, wrong, n_classes):
    """Return the rows x_i (x) (e_{y_i} - e_j), (pairs, n_classes d), of points, (pairs, d)."""
    rows = np.zeros((len(points), n_classes, points.shape[1]))
    each = np.arange(len(points))
    rows[each, right] = points
    rows[each, wrong] = -points
    return rows.reshape(len(points), -1)


@njit(cache=_CACHE)
def _add_pair_block(K, point, right, wrong, other, other_right, other_wrong, out):
    """out <- out + the entries of pairs, whose points are given by their places in K."""
    for i in range(point.size):
        row = K[point[i]]
        for k in range(other.size):
            same = int(right[i] == other_right[k]) + int(wrong[i] == other_wrong[k])
            crossed = int(right[i] == other_wrong[k]) + int(wrong[i] == other_right[k])
            # The factor is <e_y - e_j, e_y' - e_j'> / 2 for the classes.
            out[i, k] += 0.5 * (same - crossed) * row[other[k]]


# ======================================================================================================
# 6 certificate
# ======================================================================================================


# Rounding.  A product computes G v and ||v||_G^2; the `Rounding` of G bounds the errors of these numbers.  A
# `_BoundedProduct` holds margins and a length with these bounds.  `_ends` moves each by its bound in the direction in
# which lower <= rho <= upper stays true, and divides them.  The few operations after the product, a root, a quotient
# and a difference, err by `_LAST` at most, relative to their result.  So upper - lower is the gap of the computed
# numbers plus ``blur``, the width due to these bounds.
#
# With a cost, `_with_plain_slacks` has lower, 1 / sqrt(2 P) for a multiple of alpha and a bias, and `_upper_end` has
# upper, 1 / sqrt(2 D) for a multiple of p at which no weight exceeds its cost.  No term of P is below 0, and D is at
# least half of its first term, so that no digits cancel.


class Bounds(NamedTuple):
    """An interval that some alpha and p prove for the margin rho; the option ``interval`` of `drive` returns one.

    Attributes
    ----------
    lower, upper : float, lower <= rho <= upper
    blur : float, the part of upper - lower that is due to rounding; lower counts only if its margin is above 0
    bias : float, the best bias of multiple alpha; 0 unless the intercept is free
    multiple : float, with a cost, the best multiple of alpha, which proves lower unless 0 proves more; 1 without a cost

    Examples
    --------
    >>> fm.Bounds(0.4, 0.5, blur=1e-15)
    Bounds(lower=0.4, upper=0.5, blur=1e-15, bias=0.0, multiple=1.0)
    """

    lower: float
    upper: float
    blur: float
    bias: float = 0.0
    multiple: float = 1.0


class _BoundedProduct(NamedTuple):
    """The product G v of weights v, or the margins of any separator w, with a bias b and bounds on rounding errors.

    m, error : the computed margins, (n,), and bounds on their errors
    length, shortest, longest : the computed ||v||_G, or ||w||, a lower bound and an upper bound
    bias : b, which m includes
    """

    m: Array
    error: Array | float
    length: float
    shortest: float
    longest: float
    bias: float = 0.0

    def as_computed(self):
        return self._replace(error=0.0, shortest=self.length, longest=self.length)


def _no_product(n):
    return _BoundedProduct(np.zeros(n), 0.0, 0.0, 0.0, 0.0)


def _bounded_product(G, norm2, m, rounding, reach, relative_lengths=1.0, bias=None):
    """Return the `_BoundedProduct` of weights v by the computed ||v||_G^2 and G v; without a bias, take the best one.

    ``reach`` is sum_i l_i |v_i|, or a bound on it, for the ``relative_lengths`` l_i.
    """
    scale = G.scale
    # 1. The margins
    error = _LAST * np.abs(m) + scale * rounding.lost
    error += scale * (rounding.margins * reach) * relative_lengths
    if G.free_labels is not None:
        # For points far from the origin, m + b y cancels, but the errors of the m_i remain.  The caller may keep its m,
        # so that this is a new array.
        bias = _best_bias(G.free_labels, m) if bias is None else bias
        m = m + bias * G.free_labels
        error += _LAST * np.abs(m)
    # 2. The length
    norm2 = max(norm2, 0.0)
    square_error = rounding.square * scale * reach * reach
    length_error = rounding.length * reach * math.sqrt(scale)
    least2 = max(norm2 * (1.0 - _LAST) - square_error, 0.0)
    shortest = (1.0 - _LAST) * math.sqrt(least2) - length_error
    longest = (1.0 + _LAST) * math.sqrt(norm2 + square_error) + length_error
    return _BoundedProduct(m, error, math.sqrt(norm2), shortest, longest, bias or 0.0)


def _ends(bounded, soft=None, goal=1.0):
    """Return an interval around the margin of a `_BoundedProduct`, rounded outwards.

    The margin is min_i m_i / ||w||.  With a function ``soft`` it is soft(||w|| / goal, xi / goal), where xi are the
    slacks with which all margins reach ``goal``.
    """
    m, error, _, shortest, longest, _ = bounded
    if soft is None:
        # If a margin is below 0, its quotient is the lowest at the shortest length.
        least = (m - error).min()
        most = (m + error).min()
        under = shortest if least <= 0.0 else longest
        over = longest if most <= 0.0 else shortest
        lower = least / under if under > 0.0 else -math.inf
        upper = most / over if over > 0.0 else math.inf
        return lower - _LAST * abs(lower), upper + _LAST * abs(upper)
    with np.errstate(over="ignore", invalid="ignore"):
        largest_slacks = np.maximum(goal - m + error, 0.0) / goal
        least_slacks = np.maximum(goal - m - error, 0.0) / goal
        lower = soft(longest / goal, largest_slacks)
        upper = soft(shortest / goal, least_slacks)
    if upper < _TINY:  # Such numbers have fewer digits.
        return 0.0, _TINY
    return lower * (1.0 - _LAST), upper * (1.0 + _LAST)


@njit(cache=_CACHE, error_model="numpy")
def _with_slacks(length, slacks, ridge):
    """Return 1 / sqrt(length^2 + sum_i slack_i^2 / r_i), or 0 if a point without a ridge has a slack.

    Return 0, too, if the length and all slacks are 0, which only underflow causes.
    """
    terms = np.zeros(slacks.size)
    largest = length
    for i in range(slacks.size):
        if slacks[i] > 0.0:
            terms[i] = slacks[i] / math.sqrt(ridge[i])
            largest = max(largest, terms[i])
    if largest == 0.0 or largest == math.inf:
        return 0.0
    # All terms are divided by the largest, so that no square can overflow.
    for i in range(slacks.size):
        terms[i] /= largest
    high, low = _precise_dot(terms, terms)
    return 1.0 / (largest * math.sqrt((length / largest) ** 2 + (high + low)))


def _margin_with_slacks(G):
    """Return the margin with slacks as a function of ||w|| and the slacks; None if G has no ridge and no cost."""
    if G._has_ridge:
        return lambda length, slacks: _with_slacks(length, slacks, G._spread(G.ridge))
    if G._has_cost:  # 1 / sqrt(length^2 + 2 sum_i cost_i slack_i)
        roots = np.sqrt(2.0 * G.cost)
        ones = np.ones(G.n)
        return lambda length, slacks: _with_slacks(length, roots * np.sqrt(slacks), ones)
    return None


@njit(cache=_CACHE, fastmath=_FAST, error_model="numpy")
def _minimizing_step(m, rise, ridge, slope, curvature, width=math.inf):
    """Return the t that minimises slope t + curvature t^2 / 2 + sum_i loss_i(1 - m_i - t rise_i), which falls at 0.

    The loss of a slack x is 0 below 0, x^2 / (2 ridge_i) up to ``width``, and linear from there.  The method is
    Newton's for the zero of the derivative, which is piecewise linear, between known bounds of the zero.
    """
    t = 1.0
    low = 0.0
    high = math.inf
    for _ in range(100):
        fall = -slope
        bend = curvature
        for i in range(m.size):
            slack = 1.0 - (m[i] + t * rise[i])
            if slack > 0.0:
                pull = rise[i] / ridge[i]
                if slack < width:
                    fall += (1.0 - m[i]) * pull
                    bend += rise[i] * pull
                else:
                    fall += width * pull
        root = fall / bend
        if abs(root - t) <= 1e-10 * t:
            t = root  # one more step: a large C multiplies the square of the error of t
            break
        if root > t:
            low = t
        else:
            high = t
        # If only linear losses fall, the root is infinite; high is infinite at first, too.
        t = root if low < root < high else min(0.5 * (low + high), 4.0 * t)
    return t


def _with_squared_slacks(G, v, bounded):
    """Return [] or [(w, soft, goal)] for `_ends`: v without its ridge, and the goal of its best slacks.

    With a ridge, v has the coordinates (w, sqrt(r_i) v_i).  The coordinates sqrt(r_i) v_i are slacks r_i v_i, but other
    slacks are feasible, too: the slacks that bring all margins of w, which are m_i - r_i v_i, to ``goal``.  The proven
    m_i must be above 0, so that lower > 0 means G v > 0.
    """
    m, error, length, _, longest, _ = bounded
    total = _total(v)
    if not (np.all(G.ridge) and (m - error).min() > 0.0 and min(length, total) > 0.0):
        return []
    # 1. v without its ridge; no shortest length is needed.
    of_slacks = G.ridge * v
    square = sum(_precise_dot(of_slacks, v))
    error = error + _LAST * (np.abs(m) + np.abs(of_slacks))
    longest = math.sqrt(max(longest * longest * (1.0 + _LAST) - square * (1.0 - _LAST), 0.0))
    length = math.sqrt(max(length * length - square, 0.0))
    w = bounded._replace(
        m=m - of_slacks, error=error, length=length, shortest=0.0, longest=longest * (1.0 + _LAST)
    )
    # 2. The best goal, by Newton steps from where margins are near 1.  Any other goal costs only width.
    unit = bounded.length**2 / total
    least = (w.m - w.error) / unit if unit > 0.0 else np.zeros(m.size)
    if not 0.0 < (least / G.ridge).sum() < math.inf:
        return []
    t = _minimizing_step(np.zeros(m.size), least, G.ridge, 0.0, (w.longest / unit) ** 2)
    return [(w, _margin_with_slacks(G), unit / t)] if 0.0 < t < math.inf else []


def _best_multiple(m, norm2, cost, y, t):
    """Return the t >= 0 of least t^2 norm2 / 2 + min_b sum_i cost_i max(0, 1 - t m_i - b y_i), from a guess t.

    The least sum is convex and piecewise linear in t.  Take two of its pieces, sum - t rise, one on either side of the
    best t.  The larger piece is a lower bound.  The next t minimises this bound: it is the minimiser of a piece, or the
    t at which the pieces meet.
    """
    best = 0.0
    least = math.inf
    bound = 0.0
    pieces = [None, None]  # (sum, rise) where the objective falls, and where it rises
    for _ in range(200):
        _, pull = _least_hinge_loss(t * m, cost, y)
        piece = (float(pull.sum()), float(pull @ m))
        value = 0.5 * t * t * norm2 + (piece[0] - t * piece[1])
        if value < least:
            best, least = t, value
        side = int(t * norm2 >= piece[1])
        if pieces[side] == piece or least <= (1.0 + 1e-13) * bound:
            break
        pieces[side] = piece
        t = max(piece[1] / norm2, 0.0)
        if None not in pieces:
            (falling, steepest), (rising, flattest) = pieces
            t = max(flattest / norm2, 0.0)
            if steepest > flattest:
                t = max(t, min((falling - rising) / (steepest - flattest), steepest / norm2))
        bound = 0.5 * t * t * norm2 + max(of[0] - t * of[1] for of in pieces if of is not None)
    return best


def _with_plain_slacks(G, v, bounded):
    """Return [(w, soft, goal), ...] for `_ends`: w = 0 and the separator v, each with a bias and two goals.

    Any bias and any goal are valid: the best ones only make the interval narrow.  If C is large, slacks that are
    rounding errors cost much: so goals that are smaller by 2^-48 are tried, too.
    """
    proven = bounded.m - bounded.error
    square = bounded.longest**2 * (1.0 + _LAST)
    guess = _largest_multiple(G, v) if v.any() else 1.0
    goals = []
    if square > 0.0 and v.any():
        guess = min(float(np.abs(v).sum()) / square, guess)
        t = _best_multiple(proven, square, G.cost, G.free_labels, guess)
        goals = [1.0 / t] if t > 0.0 else []
    tried = [(_no_product(v.size), 1.0 / guess), *((bounded, goal) for goal in goals)]
    soft = _margin_with_slacks(G)
    found = []
    for w, goal in tried:
        w = _with_least_hinge_loss(G, w, goal)
        found += [(w, soft, goal), (w, soft, goal * (1.0 - 2.0**-48))]
    return found


def _with_least_hinge_loss(G, w, goal):
    """Return a `_BoundedProduct` with the bias of the least slacks with which its margins reach ``goal``."""
    bias = goal * _least_hinge_loss((w.m - w.error) / goal, G.cost, G.free_labels)[0]
    if bias == 0.0:
        return w
    m = w.m + bias * G.free_labels
    error = w.error + _LAST * (np.abs(m) + abs(bias))
    return w._replace(m=m, error=error, bias=w.bias + bias)


def _product_of(G, alpha, precise):
    """Return (v, its `_BoundedProduct`) for weights alpha, where v is alpha times a power of two."""
    v = _unit_range(alpha)
    return v, _fresh_product(G, v, *G._measured(v, precise))


def _lower_with_cost(G, alpha, precise):
    """Return (lower, bias) for weights alpha as they are, at no other multiple."""
    v, bounded = _product_of(G, alpha, precise)
    i = np.argmax(np.abs(v))
    goal = float(v[i] / alpha[i])  # a power of two
    w = _with_least_hinge_loss(G, bounded, goal)
    return _ends(w, _margin_with_slacks(G), goal)[0], w.bias / goal


def _lower_end(G, v, bounded):
    """Return (lower, computed, bias, multiple): the largest margin that weights v prove, the computed margin, and the
    bias and the multiple of v that prove it."""
    # 1. min_i (G v)_i / ||v||_G, or with slacks
    if G._has_cost:
        found = _with_plain_slacks(G, v, bounded)
    else:
        found = [(bounded,), *_with_squared_slacks(G, v, bounded)]
    lowers = [_ends(*of)[0] for of in found]
    best = int(np.argmax(lowers))  # the place of a NaN, if there is one, because a NaN must show

    # 2. At least -sqrt(s), by Cauchy-Schwarz for every v
    floor = -math.sqrt(G.scale) * (1.0 + G.rounding().margins + 2.0 * _LAST)
    lower = float(np.maximum(lowers[best], floor))

    # 3. A computed margin of at most 0 decides nothing, and its rounding would only ask for more products.
    computed = max(_ends(w.as_computed(), *others)[0] for w, *others in found)
    computed = computed if computed > 0.0 else lower
    if not G._has_cost:
        return lower, computed, found[best][0].bias, 1.0
    # 4. The f with this objective: 0 v if no multiple of v is better than w = 0, the first two that are found
    best = 2 + int(np.argmax(lowers[2:])) if found[2:] else best
    w, _, goal = found[best]
    return lower, computed, w.bias / goal, 1.0 / goal if found[2:] else 0.0


def _largest_multiple(G, v):
    """Return the largest t at which no t |v_i| exceeds its cost."""
    if not G._has_cost:
        return math.inf
    weights = np.abs(v)
    is_used = weights > 0.0
    return (1.0 - _LAST) * float((G.cost[is_used] / weights[is_used]).min(initial=math.inf))


def _upper_end(total, length, multiple):
    """Return 1 / sqrt(2 D) for D = t total - t^2 length^2 / 2 at the best t <= multiple.

    D <= P for weights t v of this length and sum if none of them exceeds its cost.  If G has no cost, ``multiple`` is
    infinite, and 1 / sqrt(2 D) is length / total.
    """
    if not multiple * length * length < total:
        return length / total
    return 1.0 / math.sqrt(multiple * (2.0 * total - multiple * length * length))


def _fresh_product(G, v, norm2, m, rounding, bias=None):
    """Return the `_BoundedProduct` of a v with ||v||_1 <= 1 from the v'Gv and G v of a product.

    Raise ValueError if v'Gv is further below 0 than the errors of the kernel explain.
    """
    if norm2 < -rounding.square * G.scale:
        rounding = rounding._replace(square=G._error_of_squares())
    if norm2 < -rounding.square * G.scale:
        raise ValueError(
            f"G is not positive semi-definite: v'Gv = {norm2:g} for a v with ||v||_1 <= 1; give another kernel, or a "
            "ridge"
        )
    lengths = G._relative_lengths()
    return _bounded_product(G, norm2, m, rounding, float(lengths @ np.abs(v)), lengths, bias)


def _from_fresh_products(G, alpha, p, rounding, precise, multiply):
    """Return (alpha, its `_BoundedProduct`), (p, its `_BoundedProduct`) and a lower bound on sum p, by fresh products.

    alpha and p are scaled to ||v||_1 <= 1.  With a free intercept the sum is that of the balanced p.
    """
    # 1. alpha takes no product of its own if it is 0 or is p.
    vectors = [_unit_range(p)]
    if alpha is not p and alpha.any():
        vectors.append(_unit_range(alpha))

    # 2. Multiply, in twice the working precision if ``precise`` and G can.
    if precise or multiply is None:
        found = [G._measured(v, precise) for v in vectors]
    else:
        found = [(*multiply(v), rounding) for v in vectors]

    # 3. With a free intercept, p is tilt = |y'p| away, in ||.||_1, from having half of its weight in each class.
    tilt = 0.0
    if G.free_labels is not None:
        tilt = abs(sum(_precise_dot(G.free_labels, vectors[0])))
        if tilt > 1e-6:
            raise ValueError(
                'p must have half of its weight in each class for intercept="free", as the p of momentum and of '
                "max_margin has"
            )
    # Relative to sum p >= 1/2, this distance is at most 2 tilt; the factor 4 covers rounding.  alpha needs no such
    # allowance, and bears it.
    seen = [
        (v, _fresh_product(G, v, norm2, m, own._replace(length=own.length + 4.0 * tilt)))
        for v, (norm2, m, own) in zip(vectors, found, strict=True)
    ]
    # p is balanced by smaller weights, so that no weight exceeds its cost; its sum falls by tilt.
    total = math.fsum(vectors[0]) - tilt
    return seen[-1] if alpha.any() else (alpha, _no_product(G.n)), seen[0], total


def _from_held_products(G, alpha, p, rounding, held, drift):
    """Do the same as `_from_fresh_products` with the products ``held`` of a loop.

    Return None if squares may leave the range of double precision.  Errors are relative to ||v||_1; relative lengths of
    points would take longer.
    """
    total = _total(p)
    size = _norm1(alpha)
    squares = [G.scale * number * number for number in (total, size or total)]
    margins = rounding.margins + drift
    if not (1e-250 < min(squares) and max(squares) < 1e250 and margins < 1.0):
        return None
    # The error of v'm, a sum of n terms, is that of the m_i plus that of the sum.
    sums = 1.01 * _sum_error(p.size + 8)
    tilt = 0.0
    if G.free_labels is not None:
        tilt = abs(_dot(G.free_labels, p)) / total + sums
    rounding = Rounding(margins, margins + sums, 4.0 * tilt)
    of_alpha, of_p = held
    p_bounded = _bounded_product(G, _dot(p, of_p), of_p, rounding, total)
    alpha_bounded = (
        p_bounded
        if alpha is p
        else _bounded_product(G, _dot(alpha, of_alpha), of_alpha, rounding, size)
    )
    total *= (1.0 - _sum_error(p.size)) * (1.0 - tilt)
    return (alpha, alpha_bounded), (p, p_bounded), total


def _interval(G, alpha, p, precise=False, held=None, drift=0.0, multiply=None):
    """Return the `Bounds` that weights alpha, and p >= 0 of any sum, prove; the input is checked already.

    Without ``held``, the products are fresh.  ``held`` is (G alpha, G p) as a loop has updated them: errors of entries
    may be larger than those of a product by ``drift`` s ||.||_1.  If ``multiply`` is given, multiply(v) returns
    (v'Gv, G v) in place of G, unless ``precise`` is True.
    """
    rounding = G.rounding()
    if held is None:
        found = _from_fresh_products(G, alpha, p, rounding, precise, multiply)
    else:
        found = _from_held_products(G, alpha, p, rounding, held, drift)
        if found is None:
            return Bounds(-math.inf, math.inf, math.inf)
    (v, of_alpha), (u, of_p), total = found
    # 1. The ends, and blur: their distance minus that of the computed ends
    largest = _largest_multiple(G, u)
    upper = float(_upper_end(total, of_p.longest, largest) * (1.0 + _LAST))
    lower, computed, bias, multiple = _lower_end(G, v, of_alpha)
    gap = max(float(_upper_end(total, of_p.length, largest)) - computed, 0.0)
    if lower > upper and held is None:
        raise ValueError(
            f"G is not positive semi-definite: lower = {lower:g} exceeds upper = {upper:g}; give another kernel, or a "
            "ridge"
        )
    # 2. v is a multiple of alpha.
    if v.any():
        i = np.abs(v).argmax()
        if G._has_cost:
            multiple *= float(v[i]) / float(alpha[i])
        else:
            bias *= float(alpha[i]) / float(v[i])
    return Bounds(lower, upper, upper - lower - gap, float(bias), float(multiple))


def certificate(
    G: GramLike, alpha: ArrayLike, p: ArrayLike, *, precise: bool = False
) -> tuple[float, float]:
    """Prove an interval around the maximum margin rho from any weights alpha and p.

    lower <= min_i (G alpha)_i / ||alpha||_G  <=  rho  <=  ||p||_G <= upper, where ||v||_G = sqrt(v' G v).  With a cost,
    rho is rho_C of `Gram.with_cost`, see the Notes.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix, as for every algorithm.
    alpha : array, shape (n,)
        Any weights.
    p : array, shape (n,)
        A point of the simplex.  Its sum must be 1 up to rounding, and p is divided by its sum.  With a free intercept,
        half of its weight must be in each class.
    precise : bool
        Use products in twice the working precision if G has them.  They take several times longer.

    Returns
    -------
    lower, upper : float
        The interval, from two products and independent of any algorithm.  It is rounded outwards: the inequalities hold
        in exact arithmetic (Theorem 16, "Rounding in a certificate" in figures/THEOREMS.md).  With a free intercept,
        lower is the margin with the best bias b.  With a ridge, lower is larger if other slacks are better, see the
        Notes.

    Raises
    ------
    ValueError, TypeError
        G, alpha or p has a wrong shape or wrong values, or G turns out not to be positive semi-definite.

    See Also
    --------
    separator_margin : the margin of a separator w that is given by its coordinates
    contradiction : two equal points with different labels, a proof that rho <= 0
    Rounding : the bounds on the errors of a product

    Notes
    -----
    The interval holds for rho of the stored rows.  With a dense G, it holds for rho of every positive semi-definite
    matrix that rounds to the stored one.

    With e = 2^-53, s = max_i G_ii, and d coordinates, rounding widens the interval near the optimum, relative to rho,
    by about

        3 n e s / rho^2                         with a dense G,
        (n + d) e (s / rho^2 + 2 sqrt(s) / rho) with features;
        6 e s / rho^2                           with a dense G and ``precise``;
        40 e + up to e s / rho^2                with features and ``precise``; the second term is the rounding of alpha.

    With a ridge r, the slacks of alpha are r_i alpha_i, but f = sum_i alpha_i y_i phi(x_i) may have other slacks.  If G
    alpha > 0 and all r_i > 0, lower is the larger of min_i (G alpha)_i / ||alpha||_G and

        max_t 1 / sqrt(t^2 ||f||^2 + sum_i max(0, 1 - t y_i f(x_i))^2 / r_i)  <=  rho.

    Near the optimum, the relative distance of this bound from rho is of the order of the square of that of the first.

    With a cost C, for every p in the simplex, with half of its weight in each class if the intercept is free,

        max_{t, b} 1 / sqrt(t^2 ||f||^2 + 2 sum_i C_i max(0, 1 - t y_i f(x_i) - y_i b))  <=  rho_C
            <=  1 / sqrt(2 t - t^2 ||p||_G^2)  at  t = min(1 / ||p||_G^2, min_i C_i / p_i).

    At the optimum both bounds are rho_C (Theorem 17, "Plain slacks" in figures/THEOREMS.md).

    In the widths above, s is that of G without its ridge, and all points have about one length.  If lengths differ,
    read sqrt(s) as sum_i p_i sqrt(G_ii) and, once in lower, as the length of the point of least margin.  lower is never
    below -sqrt(s), up to rounding.  With a dense G, upper is never below 2.1e-8 sum_i p_i sqrt(G_ii): use features for
    smaller margins.

    References
    ----------
    Weak duality: Lemma 3 of ramdas14; Gordan's alternative: its Theorem 2.

    Examples
    --------
    >>> lower, upper = fm.certificate(np.eye(4), np.ones(4), np.full(4, 0.25))
    >>> print(f"{lower:.6f} <= rho <= {upper:.6f}, {upper - lower:.0e} apart")
    0.500000 <= rho <= 0.500000, 1e-14 apart
    """
    G = _checked(G)
    n = len(G)
    return _interval(G, _vector(alpha, "alpha", n), _distribution(p, "p", n), precise)[:2]


def separator_margin(
    G: Gram, w: ArrayLike, *, support: ArrayLike | None = None
) -> tuple[float, float]:
    """Certify the margin of a separator that you have: an interval around min_i (<z_i, w> + y_i b) / ||w||.

    z_i are the rows of G, y_i are the labels, and b is a bias, which is 0 unless the intercept is free.

    Parameters
    ----------
    G : Gram over rows z_i, or over pairs of such points; with ``support`` any G of two classes
        `features` makes it, or `pair_gram` from `features`, with or without a ridge or a cost.  w refers to the rows of
        G: make G with ``normalize=None`` if w refers to the points themselves.  With ``support``, `gram` or `lazy_gram`
        makes G, without a ridge.
    w : array, shape (d,); for pairs (n_classes, d), a row for each class; with ``support`` (k,)
        The separator, not 0.  With ``intercept=c``, its last entry is b / c for a bias b.  With a free intercept, an
        array (d,) is a direction w, which gets its best bias b; an array (d + 1,) is w and, last, your own bias b,
        which is no part of ||w||.
    support : array of int, shape (k,), optional
        The numbers of k points.  Then w has the weights y_i alpha_i of f(x) = sum_i y_i alpha_i K(x_i, x) + b, such as
        ``dual_coef_`` of a support vector machine; with a free intercept its shape is (k + 1,), with b last.

    Returns
    -------
    lower, upper : float
        lower <= min_i (<z_i, w> + y_i b) / ||w|| <= upper for the rows and the w that are stored, rounded outwards by a
        proven bound; and lower <= rho, the maximum margin.  For pairs, and with slacks, see the Notes.

    Raises
    ------
    TypeError, ValueError
        G has no rows, as if it is a matrix, and no ``support`` is given; w has another shape, is not finite, or is 0;
        its largest absolute value is not from 1e-100 to 1e100, or its bias is more than 1e100 times as large.  With
        ``support``: support holds a point twice, or a number that no point has (an IndexError); G does not know its
        labels, or has a ridge, pairs of a point and a wrong class, points that were moved, or a kernel that normalize
        has changed; the points cancel, so that ||w|| is 0 up to rounding.

    See Also
    --------
    certificate : the interval of weights alpha and p, for any G
    max_margin : lower divided by its upper end is a certified share of the maximum margin

    Notes
    -----
    For pairs, the margin is min (f_{y_i}(x_i) - f_j(x_i)) / (sqrt(2) ||w||) over points i and classes j other than y_i,
    with f_c(x) = <w_c, x>.

    With a ridge r, the scale of w matters.  With the slacks xi_i = max(0, 1 - <z_i, w> - y_i b), the margin is

        1 / sqrt(N + sum_i xi_i^2 / r_i),   N = ||w||^2;
        for pairs xi = max(0, 1 - (f_{y_i}(x_i) - f_j(x_i)) / 2) and N = ||w||^2 / 2,

    where N + sum_i xi_i^2 / r_i is twice the objective of a soft margin.  With a cost C it is 1 / sqrt(2 P), with the
    same xi and the objective P = N / 2 + sum_i C_i xi_i, which `sklearn.svm.SVC` minimises.  Let q be lower divided by
    the upper end of `max_margin`.  Then the least objective is at least q^2 times that of w.

    The interval is as wide as a few units in the last place of the largest <z_i, w> or bias, over ||w||.  With
    ``support``, it is as wide as that of a product, see `certificate`.

    Examples
    --------
    >>> G = fm.features([[3.0, 0.0], [0.0, -4.0]], [1, -1], normalize=None)
    >>> lower, upper = fm.separator_margin(G, [1.0, 1.0])
    >>> round(lower, 6), round(upper, 6)  # 3 / sqrt(2)
    (2.12132, 2.12132)
    >>> round(lower / fm.max_margin(G).upper, 6)  # a share of the maximum margin
    0.883883

    Points with weights, as in a support vector machine, and the bias 0.5:

    >>> G = fm.gram([[0.0], [1.0], [3.0]], [-1, 1, 1], gamma=1.0, intercept="free")
    >>> lower, upper = fm.separator_margin(G, [-1.0, 1.0, 0.5], support=[0, 1])
    >>> round(lower, 6), round(fm.max_margin(G).lower, 6)
    (0.117505, 0.517753)
    """
    if support is not None:
        return _margin_of_weights(G, w, support)

    # 1. Take G apart: its slacks, pairs of a point and a wrong class, and rows.
    G = _checked(G)
    soft = _margin_with_slacks(G)
    rows = _points_gram(G)
    if not rows._has_rows:
        raise TypeError(
            f"w needs a G with rows, and {rows._kind()} has none: if w has weights of points, give their numbers as "
            "support, such as svc.support_; if w has coordinates, make G by features(X, y)"
        )
    d = rows._width
    shape = (G.store.n_classes, d) if _is_pairs(G) else (d,)

    # 2. Take w apart: with a free intercept, a bias may follow w.
    w, bias = _weights_and_bias(G, w, shape)
    _refuse_no_bias(G, soft, w, bias)
    if bias is None:
        return _margin_of_coordinates(G, soft, w, None)
    if G.normalize is not None:
        raise ValueError(
            f"G has normalize={G.normalize!r}, which divides the points but not the bias, the last entry of w: make G "
            "with normalize=None"
        )
    high, low, error = _at_origin(G, w)
    return _margin_of_coordinates(G, soft, w, (bias, high, low), error)


def _refuse_no_bias(G, soft, w, bias):
    """Refuse a w without a bias if G has slacks and a free intercept, because slacks depend on the bias."""
    if soft is not None and G.free_labels is not None and bias is None:
        raise ValueError(
            f"w must have shape {(w.size + 1,)} for a G with slacks and a free intercept: append the bias to w"
        )


def _weights_and_bias(G, w, shape):
    """Return a checked w of this shape in float64, and the bias that stands last if the intercept is free, or None."""
    w = _numbers(w, "w").astype(np.float64)
    bias = None
    if G.free_labels is not None and w.shape == (shape[0] + 1,):
        bias = float(w[-1])
        w = w[:-1]
    _refuse_other_shape(G, w, shape)
    w = _array(w, "w", len(shape), _POINTS)
    largest = _POINTS[1] * _size_of(w)
    if bias is not None and not abs(bias) <= largest:
        raise ValueError(
            f"the bias, which is the last entry of w, must be finite and at most {largest:.3g}, which is "
            f"{_POINTS[1]:g} times the largest absolute value of the other entries; got {bias:g}"
        )
    return w, bias


def _refuse_other_shape(G, w, shape):
    """Refuse a w, without its bias, that has another shape or is 0; the error names the shape with a bias, too."""
    if w.shape == shape and w.any():
        return
    with_bias = "" if G.free_labels is None else f", or {(shape[0] + 1,)} with a bias,"
    has_biases = len(shape) == 2 and w.shape == (shape[0], shape[1] + 1)
    remedy = (
        "; for a bias of each class make K by features(X, normalize=None, intercept=1.0)"
        * has_biases
    )
    if len(shape) == 1 and w.shape in ((1, shape[0] + 1), (shape[0] + 1, 1)):
        remedy = ": give np.ravel(w)"
    if w.ndim != len(shape) and w.size == math.prod(shape):
        remedy = f": np.reshape(w, {shape})"
    if w.shape == shape[::-1] != shape:
        remedy = ": give w.T"
    if G.free_labels is None and w.shape == (shape[0] + 1,):
        remedy = '; for a bias make G with normalize=None and intercept="free"'
    got = f"shape {w.shape}" if w.any() else "zeros"
    raise ValueError(f"w must have shape {shape}{with_bias} and not be 0; got {got}{remedy}")


def _margin_of_weights(G, w, support):
    """Return `separator_margin` for the weights w of the points ``support``; a bias may follow the weights."""
    # 1. Refuse a G whose kernel is not that of the weights.
    G = _checked(G)
    kernel = G.kernel
    if _is_pairs(G):
        raise ValueError(
            "support needs a G of two classes: of several classes give coordinates, a row of w for each class"
        )
    if G._has_ridge:
        raise ValueError("support needs a G without a ridge")
    if G.labels is None:
        raise ValueError("G must have labels if support is given: make G by gram(X, y)")
    is_linear = kernel is not None and kernel.name == "linear"
    if G.origin is not None or (is_linear and kernel.center is not None):
        raise ValueError(
            "G must not have moved its points if support is given: make G by "
            'features(X, y, normalize=None, intercept="free"), and give w = coef_ without support'
        )
    if G.normalize is not None and not kernel.of_distances:
        raise ValueError(
            f"G has normalize={G.normalize!r}, so that its kernel is not that of the weights w: make G with "
            "normalize=None"
        )

    # 2. Take w apart.
    n = len(G)
    support = _places(support, n, "support")
    if len(set(support.tolist())) != len(support):
        raise ValueError(
            "support must hold each point once: add up the weights of a repeated point"
        )
    w, bias = _weights_and_bias(G, w, support.shape)
    alpha = np.zeros(n)
    alpha[support] = w * G.labels[support]

    # 3. Margins and length, by one product with weights of ||v||_1 <= 1; the factor is a power of two.
    v = _unit_range(alpha)
    largest = np.abs(alpha).argmax()
    goal = v[largest] / alpha[largest]
    if bias is not None:
        bias *= goal
    soft = _margin_with_slacks(G)
    _refuse_no_bias(G, soft, w, bias)
    separator = _fresh_product(G, v, *G._measured(v, precise=True), bias)
    if not separator.shortest > 0.0:
        raise ValueError("w is 0 up to rounding: its points cancel")
    return tuple(map(float, _ends(separator, soft, goal)))


def _at_origin(G, w):
    """Return (high, low, error): <w, o> = high + low, in twice the working precision, and a bound on its error.

    o is the origin, which was subtracted from the stored rows of G.
    """
    if G.origin is None:
        return 0.0, 0.0, 0.0
    high, low = _precise_dot(w, G.origin)
    error = _sum_error(2 * w.size + 16) ** 2 * float(np.abs(w) @ np.abs(G.origin))
    return high, low, error


def _margin_of_coordinates(G, soft, w, bias, bias_error=0.0):
    """Return `separator_margin` for coordinates w.

    The sum of the numbers in ``bias`` is the bias for the stored rows, up to ``bias_error``; None is for the best bias.
    """
    # 1. Bring w near 1 by a power of two, which is exact; margins of 1 become margins of ``goal``.
    exponent = math.frexp(float(np.abs(w).max()))[1]
    w = np.ldexp(w.astype(np.float64), -exponent)
    goal = math.ldexp(1.0, -exponent)
    norm2 = sum(_precise_dot(w.ravel(), w.ravel()))
    if _is_pairs(G):
        norm2 *= 0.5
    length = math.sqrt(norm2)

    # 2. Scale the bias, too, and round it once.
    if bias is not None:
        bias = math.fsum(part * goal for part in bias)

    # 3. Margins with their bias, and the largest term of these sums.
    if _is_pairs(G) and soft is None:
        G = _near_the_least(G, w)
    m, term, error = _margins_of(G, w)
    if G.free_labels is not None:
        if bias is None:
            bias = _best_bias(G.free_labels, m)
        term = abs(bias)  # pairs have no bias; their term is that of the scores
        m += bias * G.free_labels
        error += bias_error * goal / length

    # 4. The least margin decides or, with slacks, all margins.
    error = _LAST * (np.abs(m) + term) + error * length
    return tuple(map(float, _ends(_BoundedProduct(m, error, length, length, length), soft, goal)))


def _near_the_least(G, w):
    """Return G on the pairs whose margins may be the least according to plain sums; only these need precise sums."""
    m = G._margins(w.ravel())
    error = G._rounding().margins * float(np.linalg.norm(w)) * math.sqrt(float(G._diagonal().max()))
    return G._restrict(np.flatnonzero(m <= m.min() + 4.0 * error))


def _margins_of(G, w):
    """Return <z_i, w>, the largest term that cancelled in it, and a bound on its error over ||w||.

    A few units in the last place of <z_i, w> and of the largest term add to this error.
    """
    rows = _points_gram(G)
    error = 2.0 * _sum_error(2 * rows._width + 16) ** 2 * math.sqrt(float(G._diagonal().max()))
    if not _is_pairs(G):
        return rows._precise_margins(w), 0.0, error
    scores = np.array([rows._precise_margins(separator) for separator in w])
    return G.store.differences(scores)[0], float(np.abs(scores).max()), error


def contradiction(X: Any, y: ArrayLike) -> tuple[int, int] | None:
    """Find two equal points with different labels.  No kernel separates them, so that rho <= 0 in exact arithmetic.

    The status "infeasible" only says that no margin is above some eps.  For the linear kernel, `witnesses` proves
    more.

    Parameters
    ----------
    X : array or SciPy sparse matrix or array, shape (n, d), or list of n texts or other objects
        A list of lists or tuples is read as rows of numbers.  For points that only have a kernel, give the rows of
        their kernel matrix.
    y : array, shape (n,)
        Labels of any type that can be compared by ``!=``.

    Returns
    -------
    pair : (i, j), i < j, or None
        The numbers of two such rows; j is the first row that contradicts an earlier one.

    Raises
    ------
    ValueError, TypeError
        X is not finite, a label is missing, or lengths differ.

    See Also
    --------
    certificate : an upper bound on rho from weights p

    Examples
    --------
    >>> fm.contradiction([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]], ["a", "b", "b"])
    (0, 2)
    """
    _refuse_swapped(X, y)
    X = _Function._read(X, "X")
    y = _known_labels(y)
    if y.shape != (X.shape[0],):
        raise ValueError(
            f"y must have a label for each of {X.shape[0]} rows of X, got shape {y.shape}"
        )
    key = _row_key(X)
    first = {}
    for i in range(len(y)):
        j = first.setdefault(key(i), i)
        if y[i] != y[j]:
            return j, i
    return None


def _operator_norm(G):
    """Return an upper bound on the largest eigenvalue of G, about 3 % above it, and the number of products taken.

    The bound fails with a probability of 5e-8 at n = 10^4.  By Lanczos' method, k steps miss a fraction e of the
    eigenvalue with probability at most 1.65 sqrt(n) exp(-sqrt(e) (2k - 1)), whatever the spectrum (Kuczynski &
    Wozniakowski, SIAM J. Matrix Anal. Appl. 13, 1992); here k = 64 and e = 0.03.  No vectors are kept: rounding then
    only repeats eigenvalues (A. Greenbaum, Linear Algebra and its Applications 113, 1989).
    """
    n = G.n
    scale = G.scale  # products are divided by it, so that no square can over- or underflow
    steps = min(64, n)
    T = np.zeros((steps, steps))  # tridiagonal and symmetric; its lower half
    v = np.random.default_rng(0).standard_normal(n)
    previous = np.zeros(n)
    for k in range(steps):
        length = float(np.linalg.norm(v))
        if k and length <= 1e-13 * T.max():
            T = T[:k, :k]  # This space is invariant: its largest eigenvalue is exact.
            break
        v /= length
        m = (G @ v) / scale
        T[k, k] = v @ m
        m -= T[k, k] * v
        if k:
            T[k, k - 1] = length
            m -= length * previous
        previous = v
        v = m
    return scale * np.linalg.eigvalsh(T)[-1] / (1.0 - 0.03), len(T)


# ======================================================================================================
# 7 driver
# ======================================================================================================
#
# An algorithm is a loop, as its paper prints it, and one call of `drive`.  The loop
#
#     loop(G, k, until, *state, *parameters) -> k
#
# goes from iteration k to iteration ``until`` at the latest, changes the arrays of the state in place, and returns the
# iteration reached.  A number that it must remember is in an array of one entry, because compiled code cannot rebind
# its arguments.  The loop depends on its arguments alone, so that a run can be cut at any iteration and resumed, bit
# for bit.  The body of a loop consists of scalar arithmetic, the operations `product` and `add_column`, and compiled
# steps.  It has no loop over entries, so that it is fast as Python source, too.  The loops of `subspace_perceptron`,
# `norm_margin`, `steepest_descent` and `max_margin` are Python functions instead, with objects as parameters.

_TAKES_FREE = (
    '`max_margin`, `momentum` or `gradient_descent` with loss="exp", or `normalized_gradient_descent` with '
    'divide_by="risk"'
)

# An iteration may add this share of s ||v||_1 to the error of a G v that a loop updates: 16 roundings.
_DRIFT = 16.0 * _UNIT


class _Options(TypedDict, total=False):
    """The options of an algorithm that has its own tol and start."""

    trace_at: ArrayLike | None
    keep_iterates: bool
    callback: Callback


class RunOptions(_Options, total=False):
    """The options that every algorithm takes by name, as the type of its ``**options``.

    Besides these, every algorithm has ``max_iter``, an int: the largest number of updates in this call, without the
    updates of ``start``.

    Attributes
    ----------
    tol : float, optional
        Stop as "certified" at the first checkpoint where upper - lower <= tol * upper.
    trace_at : array of int, optional
        Checkpoints: the iterations to certify and to trace.  By default 16 per decade, and every iteration of
        `max_margin`.  The first and the last iteration are always among them.
    keep_iterates : bool
        Keep alpha at every checkpoint, in Result.iterates.
    callback : callable, optional
        Called at every checkpoint with a partial Result, which the callback may keep and change.  The status of the
        partial Result is "running" until the last.  If the run turns out to end at a checkpoint, the callback is called
        there again.  If the callback returns True, the run ends as "stopped".  If `max_margin` continues with a search
        by coordinates, it calls the callback after every separator that does not end it.
    start : Result, optional
        Continue from this Result, which may be partial, of the same algorithm.  G must be the same, which is not
        checked.  T1 iterations and then T2 iterations are the same as T1 + T2 iterations, bit for bit.  Other options
        are those of this call.  To begin a new run near a known solution, give `max_margin` n weights >= 0, such as
        alpha for another ridge; give `norm_margin` a pair (w, p); give `steepest_descent` a w.

    Examples
    --------
    >>> options: fm.RunOptions = {"tol": 0.1, "callback": lambda partial: partial.lower > 0.5}
    >>> fm.momentum(np.eye(2), max_iter=100, **options).status
    'certified'
    """

    tol: float | None
    start: Result | None


def _algorithm(function: _Public) -> _Public:
    """Let an algorithm refuse options that neither it nor `RunOptions` has; `drive` would name itself."""
    return _with_remedies(function, RunOptions.__optional_keys__)


def _alpha_alone(alpha, m, *_):
    """Return the solution of a method whose p is alpha, see `drive`."""
    return alpha, alpha, m, m


def drive(
    G: GramLike,
    loop: Callable[..., int],
    state: tuple[Array, ...],
    solution: Callable[..., tuple[Array, ...]] = _alpha_alone,
    parameters: tuple[Any, ...] | Callable[[int, int], tuple[Any, ...]] = (),
    *,
    max_iter: int,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
    eps: float | Callable[[Array], float] = 0.0,
    separates: bool = False,
    takes_free: bool = False,
    takes_cost: bool = False,
    products: Callable[[int], float] = float,
    interval: Callable[..., Bounds] | None = None,
    spent: float = 0.0,
    name: str | None = None,
) -> Result:
    """Run a loop of your own from checkpoint to checkpoint, certify the margin at each, and return the Result.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    loop : callable
        ``loop(G, k, until, *state, *parameters) -> k``, plain Python or compiled with njit.  It goes from iteration k
        to iteration ``until`` at the latest, changes the arrays of the state in place, and returns the iteration
        reached.  It *halts* by returning less than ``until``; then the run ends, and fresh products decide its status.
        If G has no compiled operations, as over a kernel on demand, a compiled loop runs as its Python source.  The
        loop is entered once with ``until`` = k, which compiles it.
    state : tuple of arrays
        All arrays that the loop changes, as they are at iteration 0.  ``start`` overwrites them.  A loop may enlarge an
        array by the array's own ``resize``, along the first axis.
    solution : callable
        ``solution(*state) -> (alpha, p)``, or ``(alpha, p, G alpha, G p)`` if the loop keeps these.  p >= 0 may have
        any sum.  If alpha is p, return one array twice.  With G alpha and G p, most checkpoints take no product; then
        an iteration may add at most 16 roundings to the errors of their entries, relative to s ||alpha||_1 and s
        ||p||_1.  The default is for a state that begins with alpha and G alpha; p is alpha.
    parameters : tuple or callable
        Other arguments of the loop: numbers, arrays that it only reads, functions of Python source.
        ``parameters(k, until)`` returns the arguments for iterations k to ``until``, such as one number for each
        iteration.
    max_iter : int
        The largest number of updates in this call.
    tol, trace_at, keep_iterates, callback, start : as in `RunOptions`
    eps : float or callable
        The run ends as "infeasible" if upper <= eps, or upper <= eps(p); in any case if upper <= 0.
    separates : bool
        True if the run ends as "separated" when lower > 0.
    takes_free : bool
        True if G may have a free intercept; then p must have weight in each class, and each half is scaled to 1/2.
    takes_cost : bool
        True if G may have a cost; then the interval is that of rho_C, see `Gram.with_cost`.
    products : callable
        ``products(k)`` is the number of products G v that k iterations cost.
    interval : callable, optional
        ``interval(G, alpha, p, precise) -> Bounds`` in place of that of `certificate`.
    spent : float
        Seconds of set-up before iteration 0.
    name : str, optional
        Name of the algorithm, which must be that of ``start``; by default that of the loop.

    Returns
    -------
    result : Result
        With the certified interval lower <= rho <= upper of its alpha and p.

    Raises
    ------
    ValueError, TypeError
        G is not finite, not square, not symmetric, zero, or turns out not to be positive semi-definite; G has a free
        intercept or a cost that the algorithm does not take; an option is out of range; or start is of another
        algorithm or shape.  The message names the argument.
    FloatingPointError
        The iterates overflowed.

    Notes
    -----
    An entry into the loop takes about 0.2 s, so that Ctrl-C is answered; results do not depend on the entries.

    Examples
    --------
    The perceptron that takes the row of least margin:

    >>> import numba
    >>> @numba.njit
    ... def worst_row(G, k, until, alpha, m):
    ...     while k < until and not m.min() > 0.0:
    ...         i = np.argmin(m)
    ...         alpha[i] += 1.0
    ...         fm.add_column(G, i, 1.0, m)
    ...         k += 1
    ...     return k
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> state = tuple(np.zeros((2, 3)))
    >>> fm.drive(G, worst_row, state, max_iter=100, separates=True).status
    'separated'
    """
    # 1. Check the input, and compile the loop by an entry of no iterations, which is not timed.
    G = _checked(G)
    if G.free_labels is not None and not takes_free:
        raise ValueError(
            f'G has intercept="free", which this algorithm does not take: use {_TAKES_FREE}; or '
            "make G with intercept=1.0, for a penalised bias, or without an intercept"
        )
    if G._has_cost and not takes_cost:
        raise ValueError(
            "G has a cost, which this algorithm does not take: use `max_margin`, or a G with a ridge"
        )
    if tol is not None:
        tol = _number(tol, "tol")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    name = name or _plainly(getattr(loop, "__name__", type(loop).__name__))
    k = 0
    seconds = spent
    if start is not None:
        k, seconds = _resume(start, name, state, solution)
    last = k + _count(max_iter, "max_iter")
    checkpoints = _checkpoints(k, last, trace_at)
    enter = _runner(G, loop, state, parameters)
    enter(k, k)
    chunk = 1
    trace = np.empty(16, dtype=_TRACE)
    count = 0  # rows of the trace
    iterates = []
    goals = _Goals(tol, eps, separates)

    def result(status, kept=None):
        note = _note_on_rounding(G, bounds) if status == "rounding" else ""
        return Result(
            alpha=bounds.multiple * alpha,
            p=p.copy(),
            lower=bounds.lower,
            upper=bounds.upper,
            status=status,
            n_iter=k,
            trace=trace[:count].copy(),
            iterates=kept,
            state=(name, [array.copy() for array in state]),
            note=note,
            bias=bounds.bias,
        )

    with np.errstate(under="ignore"):
        for checkpoint in checkpoints:
            # 2. Go to the checkpoint, or until the loop halts, which may be at the last row of the trace.
            before = k
            k, elapsed, chunk = _advance(enter, k, checkpoint, chunk)
            seconds += elapsed
            has_halted = k < checkpoint
            is_same_row = count > 0 and k == before

            # 3. Bound the margin by the products of the loop, unless this decides something or rounding shows.
            alpha, p, *held = solution(*state)
            bounds = None
            status = "running"
            if held and interval is None and not has_halted and k < last:
                bounds = _interval(G, alpha, p, held=held, drift=_DRIFT * (k + 1))
                if not goals.are_far(bounds, p):
                    bounds = None
            is_fresh = bounds is None
            if is_fresh or keep_iterates or callback is not None:
                alpha, p = _in_form(alpha, p, G.free_labels, k)
            if is_fresh:
                bounds, status = _certified(G, alpha, p, interval, goals, has_halted, k, last)

            # 4. Add a row to the trace, and call the callback.
            count += not is_same_row
            if count > trace.size:
                trace = np.resize(trace, 2 * count)
            trace[count - 1] = (k, products(k), seconds, bounds.lower, bounds.upper)
            if keep_iterates and not is_same_row:
                iterates.append(alpha.copy())
            if callback is not None:
                stops = _is_true(callback(result(status)))
                if stops and status == "running":
                    bounds, status = _certified(G, alpha, p, interval, goals, has_halted, k, last)
                    trace[count - 1] = (k, products(k), seconds, bounds.lower, bounds.upper)
                    if status == "running":
                        status = "stopped"
            if status != "running":
                break
    kept = np.array(iterates) if keep_iterates else None
    return result(status, kept)


def _is_true(answer):
    """Return True if the answer of a callback ends the run."""
    return isinstance(answer, (bool, np.bool_)) and bool(answer)


def _plainly(name):
    """Return the name of a loop without the marks of a function of this module: "momentum" for "_momentum_loop"."""
    return name.removeprefix("_").removesuffix("_loop")


def _resume(start, name, state, solution):
    """Fill the arrays of a state with the last arrays of ``start``; return its iteration and its seconds."""
    if not _is_result(start):
        raise TypeError(
            f"start must be a Result of an earlier run, or None; got {type(start).__name__}"
        )
    their_name, held = start.state
    alpha, p, *_ = solution(*state)
    is_same = (
        their_name == name
        and start.alpha.shape == alpha.shape
        and start.p.shape == p.shape
        and [(a.shape[1:], a.dtype) for a in held] == [(a.shape[1:], a.dtype) for a in state]
    )
    if not is_same:
        raise ValueError(
            f"start must be a Result of the same algorithm and shape: this is {name} for {p.size} points, "
            f"and start is of {their_name or 'a classifier'} for {start.p.size} points; to begin a new run "
            "from its weights, give start=result.alpha to max_margin and steepest_descent, or "
            "start=(result.alpha, result.p) to norm_margin"
        )
    for array, source in zip(state, held, strict=True):
        if array.shape != source.shape:
            array.resize(source.shape, refcheck=False)
        array[...] = source
    return start.n_iter, float(start.trace["seconds"][-1])


def _checkpoints(first, last, trace_at):
    """Return ``first``, ``last`` and the iterations between them at which to certify, in ascending order."""
    if isinstance(trace_at, range) and trace_at.step == 1:  # may be too long for an array
        inside = range(max(trace_at.start, first + 1), min(trace_at.stop, last))
    elif trace_at is None:
        # They do not depend on ``last``: a run that ends before it does not depend on max_iter.
        count = math.ceil(16.0 * math.log10(max(last, 1)))
        inside = np.unique(np.round(10.0 ** (np.arange(count) / 16.0)).astype(np.int64))
    else:
        points = _numbers(trace_at, "trace_at").ravel()
        # Read them one by one, so that an error names the number.  Floats that are whole numbers are valid.
        whole = (int(k) if k.is_integer() else k for k in points.tolist())
        inside = np.unique([_count(k, "each of trace_at") for k in whole])
    between = (int(k) for k in inside if first < k < last)
    end = [last] if last > first else []
    return itertools.chain([first], between, end)


def _runner(G, loop, state, parameters):
    """Return a function that sends the loop from iteration k to ``until``, and returns the iteration reached."""
    is_compiled = G.arrays is not None and is_jitted(loop)
    if not is_compiled:
        loop = getattr(loop, "py_func", loop)

    def enter(k, until):
        others = parameters(k, until) if callable(parameters) else parameters
        if is_compiled:
            reached = _enter(loop, G.arrays, k, until, *state, *others)
        else:
            reached = loop(G, k, until, *state, *others)
        if not (isinstance(reached, (int, np.integer)) and k <= reached <= until):
            raise ValueError(
                f"loop must return the iteration that it reached, from k = {k} to until = {until} (if they are "
                f"equal, it makes no iteration); got {reached!r}"
            )
        return int(reached)

    return enter


def _advance(enter, k, checkpoint, chunk):
    """Run the loop to the checkpoint, or until it halts, by entries of about 0.2 s.

    Return the iteration reached, the seconds taken, and the number of iterations of the next entry.
    """
    seconds = 0.0
    while k < checkpoint:
        until = min(checkpoint, k + chunk)
        begin = time.perf_counter()
        k = enter(k, until)
        elapsed = time.perf_counter() - begin
        seconds += elapsed
        if k < until:
            break
        if elapsed < 0.1:
            chunk *= 2
        elif elapsed > 0.4:
            chunk = max(1, chunk // 2)
    return k, seconds, chunk


def _in_form(alpha, p, signs, k):
    """Return alpha and p as a Result has them: finite, balanced if the intercept is free, and p in the simplex."""
    _refuse_overflow(alpha, p, place=f" at iteration {k}")
    if not p.min() >= 0.0:
        raise ValueError("solution(*state) -> (alpha, p) must return p with weights of at least 0")
    if signs is not None:  # then the plane of alpha does not depend on the origin of G
        balanced = _balanced(alpha, signs)
        p = balanced if p is alpha else p
        alpha = balanced
    # A sum that differs from 1 by the rounding of updates is kept: then alpha and p may be one array, which saves a
    # product.
    if abs(_total(p) - 1.0) > min(_DRIFT * (k + 1), 1e-12):
        p = _weights(p, signs)
    return alpha, p


class _Goals(NamedTuple):
    """The conditions that end a run, see `drive`."""

    tol: float | None
    eps: float | Callable[[Array], float]
    separates: bool

    def status(self, bounds, p):
        """Return the status that bounds prove; "running" if none."""
        if self.separates and bounds.lower > 0.0:
            return "separated"
        eps = self.eps(p) if callable(self.eps) else self.eps
        if bounds.upper <= max(eps, 0.0):
            return "infeasible"
        if self.tol is not None and _is_closed(bounds.lower, bounds.upper, self.tol):
            return "certified"
        return "running"

    def are_far(self, bounds, p):
        """Return True if bounds from the products of a loop decide nothing, and rounding is at most 1 % of them."""
        is_sharp = min(bounds.upper, bounds.upper - bounds.lower) > 100.0 * bounds.blur
        return is_sharp and self.status(bounds, p) == "running"

    def hides(self, bounds):
        """Return True if the computed gap is closed, or is no wider than rounding."""
        if self.tol is None:
            return False
        gap = bounds.upper - bounds.lower - bounds.blur
        return gap <= max(bounds.blur, self.tol * bounds.upper)


def _certified(G, alpha, p, interval, goals, has_halted, k, last):
    """Return (bounds, status) from fresh products, or from more precise products if rounding may hide the answer.

    The last iteration of a run with a tol takes more precise products, too, because plain products may just miss tol.
    If rounding hides the answer even then, the run ends, because more iterations are of no use.
    """
    certify = interval or _interval
    for precise in (False, True):
        bounds = certify(G, alpha, p, precise)
        _refuse_overflow(*bounds, place=f" at iteration {k}")
        status = goals.status(bounds, p)
        if status != "running":
            return bounds, status
        is_hidden = has_halted or goals.hides(bounds)
        is_last_chance = k == last and goals.tol is not None
        if not (is_hidden or is_last_chance):
            break
    if has_halted or (is_hidden and bounds.blur > goals.tol * bounds.upper):
        return bounds, "rounding"
    return bounds, "max_iter" if k == last else "running"


def _is_closed(lower, upper, tol):
    """Return True if upper - lower <= tol upper, with a reserve for the rounding of both sides."""
    return upper - lower <= tol * upper * (1.0 - _LAST)


def _note_on_rounding(G, bounds):
    """Return a note on the limits that rounding sets, and on a G that would be more precise."""
    if bounds.lower > 0.0 and bounds.upper - bounds.lower > 10.0 * bounds.blur:
        return "further steps do not narrow the interval"
    note = f"rounding hides margins below {_written(bounds.upper, 2, _UP)}"
    if bounds.lower > 0.0:
        note = f"rounding limits the relative gap to {bounds.blur / bounds.upper:.1g}"
    return f"{note}; {G._more_precise} would show more" if G._more_precise else note


def _first_iteration(options):
    """Return the iteration at which a run with these options starts."""
    return getattr(options.get("start"), "n_iter", 0)


# ======================================================================================================
# 8 algorithms
# ======================================================================================================

# ------------------------------------------------------------------------------------------------------
# 8.1 ramdas14
# ------------------------------------------------------------------------------------------------------


# Each loop keeps m = G alpha for an alpha whose ||alpha||_1 is known, and halts as soon as m shows that the run is
# done.  A column or a product that is added to m brings its own error.  In addition, an iteration rounds the weights
# and m, and each rounding changes an entry of m - G alpha by at most 2^-53 s ||alpha||_1.  An iteration makes 2 such
# roundings in the perceptron, 5 in NKP and von Neumann's algorithm, 7 in pairwise steps, 4 in gradient descents, and 10
# in the smoothed methods and momentum.  `drive` allows 16.  Factors such as 1 - theta multiply alpha and m alike, and
# with them the errors of earlier iterations.  Pairwise steps subtract columns that were added before.  A column is
# computed in the same way each time, so that subtracting it also removes its error.


def _floor(G, stop="separated"):
    """Return (a, b): once all m_i > (a + b (k + 1)) ||alpha||_1, fresh products will prove that alpha separates.

    If ``stop`` is None, a is inf, which no m_i exceeds.
    """
    if _choice(stop, "stop", ("separated", None)) is None:
        return math.inf, 0.0
    return 4.0 * G.rounding().margins * G.scale, _DRIFT * G.scale


@njit(cache=_CACHE)
def _floor_at(floor, k, total):
    """Return the floor of margins m = G alpha at iteration k, ||alpha||_1 = total."""
    a, b = floor
    return (a + b * (k + 1)) * total


def _least_square(G, eps):
    """Return the p'Gp, for p in the simplex, at or below which fresh products will prove ||p||_G <= eps.

    It is eps^2 less what rounding may hide, but at least (eps/2)^2.
    """
    if eps == 0.0:
        return -math.inf  # no p'Gp is that small, so that the run never stops here
    rounding = G.rounding()
    error = 2.0 * (rounding.square + rounding.margins + _sum_error(len(G) + 8)) * G.scale
    length = max(eps - 1.1 * rounding.length * math.sqrt(G.scale), 0.0)
    return max(length * length - error, 0.25 * eps * eps)


def _accuracy(G, eps, name="eps"):
    """Check the length ||p||_G at which a run stops as "infeasible", and return it; the default is 1e-6 sqrt(s)."""
    if eps is None:
        eps = 1e-6 * math.sqrt(G.scale)
    return _number(eps, name)


@njit(cache=_CACHE)
def _next_row(m, i, floor):
    """Return the first row, from i on in cyclic order, whose margin is not above the floor."""
    while m[i] > floor:
        i = (i + 1) % m.size
    return i


@njit(cache=_CACHE)
def _perceptron_loop(G, k, until, alpha, m, place, cyclic, floor):
    """Run Algorithm 1 of ramdas14; m = G alpha, ||alpha||_1 = k, and place[0] is the row after the last updated one."""
    while k < until:
        least = _floor_at(floor, k, k)
        if _exceeds(m, least):
            return k
        i = _next_row(m, place[0], least) if cyclic else np.argmin(m)
        alpha[i] += 1.0
        add_column(G, i, 1.0, m)
        place[0] = (i + 1) % m.size
        k += 1
    return k


@_algorithm
def perceptron(
    G: GramLike,
    *,
    rule: str = "cyclic",
    max_iter: int = 100_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator by the perceptron.

    While some margin m_i = (G alpha)_i is 0 or less, an update sets alpha_i <- alpha_i + 1 for such an i (ramdas14,
    Algorithm 1).

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    rule : {"cyclic", "worst"}
        How an update chooses i: "cyclic" takes the next i in cyclic order with m_i <= 0, up to rounding; "worst" takes
        the i of the least m_i.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    nkp : Updates the rows that rule="worst" does, and can go on towards the maximum margin.

    Notes
    -----
    The run starts at alpha = 0, and p = alpha / sum alpha.  If rho > 0, the run stops as "separated" after at most s /
    rho^2 updates (Block 1962, Novikoff 1962).  An iteration costs one column.

    Examples
    --------
    >>> result = fm.perceptron(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]))
    >>> result.status, result.n_iter
    ('separated', 1)
    """
    cyclic = _choice(rule, "rule", ("cyclic", "worst")) == "cyclic"
    G = _checked(G)
    n = len(G)
    alpha, m = np.zeros((2, n))
    return drive(
        G,
        _perceptron_loop,
        (alpha, m, np.zeros(1, np.int64)),
        parameters=(cyclic, _floor(G)),
        max_iter=max_iter,
        separates=True,
        products=lambda k: k / n,
        **options,
    )


@njit(cache=_CACHE)
def _nkp_loop(G, k, until, alpha, m, floor):
    """Run the method of section 3 of ramdas14; m = G alpha, and sum alpha = 1 from k = 1 on."""
    while k < until and not _exceeds(m, _floor_at(floor, k, 1.0)):
        theta = 1.0 / (k + 1.0)
        i = np.argmin(m)
        _multiply(1.0 - theta, alpha)
        _multiply(1.0 - theta, m)
        alpha[i] += theta
        add_column(G, i, theta, m)
        k += 1
    return k


@_algorithm
def nkp(
    G: GramLike,
    *,
    stop: str | None = "separated",
    max_iter: int = 100_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator, or go on towards the maximum margin, with one column of G per iteration.

    This is the normalized kernel perceptron (ramdas14, sections 2.1 and 3): for k = 0, 1, ..., with theta_k = 1/(k+1),

        alpha <- (1 - theta_k) alpha + theta_k e_i,   i = argmin_i (G alpha)_i,   alpha_0 = 0.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    stop : {"separated", None}
        "separated" stops the run once G alpha > 0; None goes on towards the maximum margin.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    perceptron : With rule="worst" it updates the same rows.
    snkp : The smoothed method, whose bound is proportional to 1/rho instead of 1/rho^2.

    Notes
    -----
    k alpha_k counts how often each row was updated.  p = alpha, except that p is uniform at k = 0.  The method is a
    subgradient method for L(alpha) = ||alpha||_G^2 / 2 - min_p <alpha, p>_G, p in the simplex, whose minimum is
    -rho^2/2 if rho > 0 (Lemma 3 of the paper).  If rho > 0, the run stops as "separated" within s / rho^2 iterations.
    An iteration costs one column.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> fm.nkp(G).status, round(fm.nkp(G, stop=None, tol=0.01).lower, 2)
    ('separated', 0.92)
    """
    G = _checked(G)
    n = len(G)
    return drive(
        G,
        _nkp_loop,
        tuple(np.zeros((2, n))),
        parameters=(_floor(G, stop),),
        max_iter=max_iter,
        separates=stop is not None,
        products=lambda k: k / n,
        **options,
    )


@njit(cache=_CACHE)
def _von_neumann_loop(G, k, until, p, m, diagonal, goal, floor):
    """Run the method of section 5 of ramdas14; m = G p."""
    while k < until:
        norm2 = _dot(p, m)
        if norm2 <= goal or _exceeds(m, _floor_at(floor, k, 1.0)):
            return k
        j = np.argmin(m)
        # Along the segment from Z'p to z_j, ||.||^2 / 2 has the slope -fall at Z'p and the slope rise at z_j.
        fall = norm2 - m[j]
        rise = diagonal[j] - m[j]
        step = 0.0
        if fall > 0.0:
            step = fall / (fall + max(rise, 0.0))
        _multiply(1.0 - step, p)
        _multiply(1.0 - step, m)
        p[j] += step
        add_column(G, j, step, m)
        k += 1
    return k


@_algorithm
def von_neumann(
    G: GramLike,
    *,
    eps: float | None = None,
    stop: str | None = None,
    max_iter: int = 100_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Prove that no margin is above eps, or approach the maximum margin, with one column of G per iteration.

    This is the normalized von Neumann algorithm (ramdas14, section 5), the Frank-Wolfe method for min_p ||p||_G:

        p <- (1 - lambda) p + lambda e_j,   j = argmin_j (G p)_j,   p_0 = 1/n,

    where an exact line search gives lambda in [0, 1].

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    eps : float, optional
        The run stops as "infeasible" once ||p||_G <= eps.  eps is absolute, not a multiple of sqrt(s), and above 0; the
        default is 1e-6 sqrt(s).
    stop : {"separated", None}
        "separated" also stops the run once G p > 0; None does not.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    frank_wolfe : Starts at a vertex, and by default takes pairwise steps, which converge linearly.

    Notes
    -----
    alpha = p.  If rho <= 0, the run stops as "infeasible" within s / eps^2 iterations (Dantzig 1992), and if rho < 0
    also within 2 (s / rho^2) ln(||p_0||_G / eps).  If rho > 0, G p > 0 after at most s / rho^2 iterations (Epelman &
    Freund 2000).  The start costs one product, and an iteration costs one column.

    Examples
    --------
    >>> Z = [[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]
    >>> G = fm.features(Z, 1, normalize=None)
    >>> result = fm.von_neumann(G, eps=0.01)
    >>> result.status, round(result.upper, 12)  # no margin above it
    ('infeasible', 0.0)
    """
    G = _checked(G)
    eps = _accuracy(G, eps)
    n = len(G)
    p = np.full(n, 1.0 / n)
    m = np.empty(n)
    product(G, p, m)
    return drive(
        G,
        _von_neumann_loop,
        (p, m),
        lambda p, m: (p, p, m, m),
        (G.diagonal(), _least_square(G, eps), _floor(G, stop)),
        max_iter=max_iter,
        eps=eps,
        separates=stop is not None,
        products=lambda k: 1.0 + k / n,
        **options,
    )


@njit(cache=_CACHE)
def _largest_active(p, m):
    """Return the i with the largest m_i among those with p_i > 0."""
    a = np.argmax(p)
    for i in range(m.size):
        if p[i] > 0.0 and m[i] > m[a]:
            a = i
    return a


@njit(cache=_CACHE)
def _frank_wolfe_loop(G, k, until, p, m, direction, goal, floor):
    """Run Algorithm 2 of Lacoste-Julien & Jaggi 2015; m = G p, and direction = G (e_j - e_a)."""
    while k < until and _dot(p, m) > goal and not _exceeds(m, _floor_at(floor, k, 1.0)):
        j = np.argmin(m)
        a = _largest_active(p, m)
        direction.fill(0.0)
        add_column(G, j, 1.0, direction)
        add_column(G, a, -1.0, direction)
        # As a function of t, ||p + t (e_j - e_a)||_G^2 / 2 has the slope -fall at t = 0, and this curvature.
        fall = m[a] - m[j]
        curvature = direction[j] - direction[a]
        step = p[a]
        if fall < step * curvature:
            step = fall / curvature
        p[j] += step
        p[a] = max(p[a] - step, 0.0)
        _combine(1.0, m, step, direction)
        k += 1
    return k


@_algorithm
def frank_wolfe(
    G: GramLike,
    *,
    variant: str = "pairwise",
    eps: float | None = None,
    stop: str | None = None,
    max_iter: int = 100_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Approach the maximum margin with two columns of G per iteration, by moving weight from one point to another.

    This is the Frank-Wolfe method with pairwise steps for min_p ||p||_G, p in the simplex.  It starts at p_0 = e_i,
    where i has the least G_ii.  An iteration moves weight from a = argmax (G p)_i over the i with p_i > 0 to
    j = argmin_i (G p)_i,

        p <- p + t (e_j - e_a),

    where an exact line search gives t in [0, p_a].

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    variant : {"pairwise", "plain"}
        "pairwise" takes the steps above.  "plain" starts at the same p_0 and moves from p towards e_j, as `von_neumann`
        does.
    eps : float, optional
        The run stops as "infeasible" once ||p||_G <= eps.  eps is absolute, not a multiple of sqrt(s), and above 0; the
        default is 1e-6 sqrt(s).
    stop : {"separated", None}
        "separated" also stops the run once G p > 0; None does not.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    von_neumann : The plain method, which starts at the centre of the simplex.
    max_margin : The solver to try first; its steps on faces are Wolfe's method.

    Notes
    -----
    alpha = p.  "pairwise" converges linearly, at a rate that depends on the pyramidal width of the polytope of the
    points (Lacoste-Julien & Jaggi).  An iteration of "pairwise" costs two columns, an iteration of "plain" one, and the
    start one.

    References
    ----------
    S. Lacoste-Julien, M. Jaggi, NeurIPS 2015.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> result = fm.frank_wolfe(G, tol=1e-9)
    >>> result.status, round(result.lower, 6)
    ('certified', 0.92388)
    """
    is_pairwise = _choice(variant, "variant", ("pairwise", "plain")) == "pairwise"
    G = _checked(G)
    eps = _accuracy(G, eps)
    diagonal = G.diagonal()
    n = diagonal.size
    # The first of the shortest points: rounding must not choose among points of one length.
    i = int((diagonal <= (1.0 + 1e-9) * diagonal.min()).argmax())
    p, m, direction = np.zeros((3, n))
    p[i] = 1.0
    add_column(G, i, 1.0, m)
    limits = (_least_square(G, eps), _floor(G, stop))
    if is_pairwise:
        loop = _frank_wolfe_loop
        state = (p, m, direction)
        parameters = limits
    else:
        loop = _von_neumann_loop
        state = (p, m)
        parameters = (diagonal, *limits)
    return drive(
        G,
        loop,
        state,
        lambda p, m, *_: (p, p, m, m),
        parameters,
        max_iter=max_iter,
        eps=eps,
        separates=stop is not None,
        products=lambda k: (1.0 + (1.0 + is_pairwise) * k) / n,
        **options,
    )


@njit(cache=_CACHE)
def _smoothed_step(theta, v, p, q):
    """Set v <- (1 - theta)(v + theta p) + theta^2 q."""
    for i in range(v.size):
        v[i] = (1.0 - theta) * (v[i] + theta * p[i]) + theta * theta * q[i]


@njit(cache=_CACHE)
def _snkp_loop(G, k, until, alpha, m, p, Gp, q, Gq, center, mu0, goal, floor, prox):
    """Run Algorithm 4 or 6 of ramdas14; m = G alpha, and q = p_mu(alpha) for the current mu and alpha."""
    while k < until and _dot(p, Gp) > goal and not _exceeds(m, _floor_at(floor, k, 1.0)):
        theta = 2.0 / (k + 3.0)
        _smoothed_step(theta, alpha, p, q)
        _smoothed_step(theta, m, Gp, Gq)
        mu = 2.0 * mu0 / ((k + 2.0) * (k + 3.0))
        _prox(prox, m, mu, center, q)
        product(G, q, Gq)
        _combine(1.0 - theta, p, theta, q)
        _combine(1.0 - theta, Gp, theta, Gq)
        k += 1
    return k


@njit(cache=_CACHE)
def _isnkpvn_loop(
    G, k, until, alpha, m, p, Gp, q, Gq, center, length, age, mu0, eps, gamma, share, floor, prox
):
    """Run Algorithm 7 of ramdas14: calls of SNKPVN, where the prox of a call has its centre at the start of the call.

    length[0] is ||center||_G, and the current call is in its iteration age[0].  Once ||p||_G < delta, the next call
    begins.  In the last call, which has delta < eps, the run halts once ||p||_G^2 <= share delta^2: the share leaves
    room for rounding.
    """
    while k < until and not _exceeds(m, _floor_at(floor, k, 1.0)):
        norm2 = max(_dot(p, Gp), 0.0)
        delta = max(length[0], eps) / gamma
        if delta < eps and norm2 <= share * delta * delta:
            return k
        theta = 2.0 / (age[0] + 3.0)
        if delta >= eps and norm2 < delta * delta:
            length[0] = math.sqrt(norm2)
            age[0] = -1
            theta = 1.0  # so that p becomes q below
            _copy(p, center)
            _copy(p, alpha)
            _copy(Gp, m)
        else:
            _smoothed_step(theta, alpha, p, q)
            _smoothed_step(theta, m, Gp, Gq)
        age[0] += 1
        mu = 2.0 * mu0 / ((age[0] + 1.0) * (age[0] + 2.0))
        _prox(prox, m, mu, center, q)
        product(G, q, Gq)
        _combine(1.0 - theta, p, theta, q)
        _combine(1.0 - theta, Gp, theta, Gq)
        k += 1
    return k


def _begin_smoothed(G, center, mu0, prox):
    """Return the state of SNKP at alpha = center, which is alpha, m, p, Gp, q and Gq; it takes two products."""
    m, p, Gp = np.empty((3, len(G)))
    product(G, center, m)
    _prox(prox, m, mu0, center, p)
    product(G, p, Gp)
    return center.copy(), m, p, Gp, p.copy(), Gp.copy()


def _alpha_and_p(alpha, m, p, Gp, *_):
    """Return the solution of a smoothed method, as `drive` asks for it."""
    return alpha, p, m, Gp


@_algorithm
def snkp(
    G: GramLike,
    *,
    eps: float = 0.0,
    stop: str | None = "separated",
    max_iter: int = 10_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator in fewer iterations than the perceptrons need, or prove that no margin is above eps.

    This is the smoothed normalized kernel perceptron (ramdas14, section 4, Algorithm 4).  Let p_mu(alpha) =
    entropy_prox(G alpha, mu) and theta_k = 2/(k+3).  The method starts at alpha_0 = 1/n, mu_0 = 2s and p_0 =
    p_{mu_0}(alpha_0), and an iteration sets

        alpha <- (1 - theta_k) (alpha + theta_k p) + theta_k^2 p_mu(alpha),
        mu    <- (1 - theta_k) mu,                             so that mu_k = 4s / ((k+1) (k+2)),
        p     <- (1 - theta_k) p + theta_k p_mu(alpha),        at the new mu and alpha.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    eps : float
        The run stops as "infeasible" once ||p||_G < eps, which proves that no margin above eps exists.  eps is
        absolute, not a multiple of sqrt(s); 0 never stops the run.
    stop : {"separated", None}
        "separated" stops the run once G alpha > 0; None goes on towards the maximum margin.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    momentum : The same recursion with other step lengths (Theorem 6, "SNKP is momentum", in figures/THEOREMS.md).
    snkpvn : The method with the Euclidean prox instead of the entropy prox.

    Notes
    -----
    If rho > 0, the run stops as "separated" within 2 sqrt(2 s ln n) / rho iterations (Theorem 1 of the paper).

    Let L be the loss that `nkp` minimises, and L_mu its smooth version in the paper.  Along the run
    L(alpha_k) - mu_k ln n <= L_{mu_k}(alpha_k) <= -||p_k||_G^2 / 2 (Lemmas 4 and 5 of the paper).  Hence, with
    rho+ = max(rho, 0),

        ||p_k||_G^2 <= rho+^2 + 8 s ln(n) / ((k+1) (k+2)),

    and if rho <= 0, the run stops as "infeasible" within sqrt(8 s ln n) / eps iterations (Theorem 3, "SNKP without a
    separator", in figures/THEOREMS.md).  An iteration costs one product, and the start costs two.

    Examples
    --------
    >>> result = fm.snkp(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]))
    >>> result.status, round(result.lower, 2)
    ('separated', 0.91)
    """
    eps = _number(eps, "eps", closed=True)
    G = _checked(G)
    center = np.full(len(G), 1.0 / len(G))
    return drive(
        G,
        _snkp_loop,
        _begin_smoothed(G, center, 2.0 * G.scale, _ENTROPY),
        _alpha_and_p,
        (center, 2.0 * G.scale, _least_square(G, eps), _floor(G, stop), _ENTROPY),
        max_iter=max_iter,
        eps=eps,
        separates=stop is not None,
        products=lambda k: k + 2.0,
        **options,
    )


@_algorithm
def snkpvn(
    G: GramLike,
    *,
    delta: float | None = None,
    q: ArrayLike | None = None,
    max_iter: int = 10_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator, or a p with ||p||_G < delta, which proves that no margin is as large as delta.

    This is the smoothed normalized kernel perceptron-von Neumann method (ramdas14, section 6, Algorithm 6): `snkp` with
    the prox p_mu(alpha) = l2_prox(G alpha, mu, q), alpha_0 = q and mu_0 = 2 n s.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    delta : float, optional
        The run stops as "infeasible" once ||p||_G < delta.  delta is absolute, not a multiple of sqrt(s), and above 0;
        the default is 1e-6 sqrt(s).
    q : array, shape (n,), optional
        Centre of the prox map, a point of the simplex; the default is 1/n.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    isnkpvn : Calls this method again and again, with smaller and smaller delta.

    Notes
    -----
    The run also stops as "separated" once G alpha > 0.  Let mu_k = 4 n s / ((k+1) (k+2)), let L be the loss that `nkp`
    minimises, and let L^q_mu be its smooth version in the paper.  Lemmas 8 and 9 of the paper are

        -||p_k||_G^2 / 2 >= L^q_{mu_k}(alpha_k) >= L(alpha_k) - mu_k                                    (Lemma 8)
        ||p_k||_G <= (2 sqrt(2 n s) / (k+1)) min(1, ||q||_G / |rho|)   if rho <= 0                      (Lemma 9)

    where the last line of the paper's proof of Lemma 9 drops a factor sqrt(2).  The number of iterations is bounded:

    - If rho >= delta, the run stops as "separated" within 2 sqrt(2 n s) / rho iterations.
    - If rho <= 0, it stops as "infeasible" within (2 sqrt(2 n s) / delta) min(1, ||q||_G / |rho|) iterations.
    - If 0 < rho < delta, it stops as one of the two within 4 sqrt(n s) / delta iterations.  The paper treats this case
      in Lemma 9, but the proof of Lemma 9 needs rho <= 0.  Our proof is that of Theorem 4, "SNKPVN at a margin below
      delta", in figures/THEOREMS.md.

    An iteration costs one product, and the start costs two.

    Examples
    --------
    >>> Z = [[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]
    >>> G = fm.features(Z, 1, normalize=None)
    >>> result = fm.snkpvn(G, delta=0.01)
    >>> result.status, round(result.upper, 12)  # no margin above it
    ('infeasible', 0.0)
    """
    G = _checked(G)
    n = len(G)
    delta = _accuracy(G, delta, "delta")
    center = np.full(n, 1.0 / n) if q is None else _distribution(q, "q", n)
    mu0 = 2.0 * n * G.scale
    return drive(
        G,
        _snkp_loop,
        _begin_smoothed(G, center, mu0, _L2),
        _alpha_and_p,
        (center, mu0, _least_square(G, delta), _floor(G), _L2),
        max_iter=max_iter,
        eps=delta,
        separates=True,
        products=lambda k: k + 2.0,
        name="snkpvn",
        **options,
    )


@_algorithm
def isnkpvn(
    G: GramLike,
    *,
    eps: float | None = None,
    gamma: float = 2.0,
    prox: str = "l2",
    max_iter: int = 100_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator, or prove that no margin is above eps.

    This is iterated SNKPVN (ramdas14, section 6, Algorithm 7).  It calls `snkpvn` again and again, and each call has
    the p of the call before as its centre q_t,

        q_{t+1} = SNKPVN(q_t, delta_t),   delta_t = max(||q_t||_G, eps) / gamma,   q_0 = 1/n.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    eps : float, optional
        The run stops as "infeasible" once delta_t < eps and ||p||_G < delta_t.  eps is absolute, not a multiple of
        sqrt(s), and above 0; the default is 1e-6 sqrt(s).
    gamma : float
        Divisor of ||q_t||_G in delta_t, above 1.  From call to call delta_t falls by more than this factor, until it is
        eps / gamma.
    prox : {"l2", "entropy"}
        "l2" is the prox of `snkpvn`.  "entropy", which the paper leaves open, has the prox term KL(p || q_t) and
        mu_0 = 2s.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    snkp : One run with the entropy prox, without restarts.
    momentum : The same recursion as `snkp`, with other step lengths.

    Notes
    -----
    The run also stops as "separated" once G alpha > 0.  For s = 1 and gamma = 2, Theorem 4 of the paper, with the
    constants of its proof, bounds the number of iterations; each restart takes one iteration more.

    - If rho > eps, the bound is (2 sqrt(2n) / rho) log2(2/rho).
    - If rho <= 0, the bound is the lesser of (4 sqrt(2n) / |rho|) log2(2/eps) and 8 sqrt(2n) / eps.
    - If 0 < rho <= eps, call t takes at most 4 sqrt(n) / delta_t iterations, as in `snkpvn`.

    The paper's delta_t is ||q_t||_G / gamma.  The eps in ours makes a difference only if q_t is a certificate already.

    With prox="entropy" and s = 1, call t takes at most 2 sqrt(2 D_t) / rho iterations if rho > 0, and at most
    2 sqrt(2 D_t) / delta_t iterations if rho <= 0.  Here D_0 = ln(n), and a call of k iterations adds
    1 + ln((k+1)(k+2)/2) to D_t, so that D_t >= -ln min_i (q_t)_i (Theorem 5, "ISNKPVN with the entropy prox", in
    figures/THEOREMS.md).  So in sqrt(n)/rho and sqrt(n)/eps the entropy prox has ln n in place of n, up to logarithms.
    In sqrt(n)/|rho| it does not: in experiments with 0 on the boundary of the hull it takes of the order of 1/sqrt(eps)
    iterations, and prox="l2" of the order of log(1/eps).  An iteration or a restart costs one product, and the start
    costs two.

    Examples
    --------
    >>> Z = [[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]
    >>> G = fm.features(Z, 1, normalize=None)
    >>> result = fm.isnkpvn(G, eps=1e-6)
    >>> result.status, round(result.upper, 12)  # no margin above it
    ('infeasible', 0.0)
    """
    prox = {"l2": _L2, "entropy": _ENTROPY}[_choice(prox, "prox", ("l2", "entropy"))]
    G = _checked(G)
    n = len(G)
    eps = _accuracy(G, eps)
    gamma = _number(gamma, "gamma", 1.0)
    center = np.full(n, 1.0 / n)
    mu0 = 2.0 * G.scale if prox == _ENTROPY else 2.0 * n * G.scale
    alpha, m, *others = _begin_smoothed(G, center, mu0, prox)
    length = np.array([math.sqrt(max(_dot(center, m), 0.0))])

    def last_delta(p):
        """Return the delta of the current call if this call is the last one, else 0."""
        delta = max(length[0], eps) / gamma
        return delta if delta < eps else 0.0

    return drive(
        G,
        _isnkpvn_loop,
        (alpha, m, *others, center, length, np.zeros(1, np.int64)),
        _alpha_and_p,
        (mu0, eps, gamma, _least_square(G, eps / gamma) * (gamma / eps) ** 2, _floor(G), prox),
        max_iter=max_iter,
        eps=last_delta,
        separates=True,
        products=lambda k: k + 2.0,
        **options,
    )


@njit(cache=_CACHE)
def _winnow_margins(rows, w, m):
    """Set m <- rows w."""
    for i in range(m.size):
        m[i] = _dot(rows[i], w)


@njit(cache=_CACHE)
def _winnow_loop(G, k, until, w, m, hits, score, rows, eta, floor):
    """Run Winnow (ramdas14, section 2.2); score = -eta (sum of the rows taken), and m = Z w."""
    while k < until and not _exceeds(m, floor):
        i = np.argmin(m)
        hits[i] += 1.0
        _combine(1.0, score, -eta, rows[i])
        _softmax(score, w)
        _winnow_margins(rows, w, m)
        k += 1
    return k


@_algorithm
def winnow(
    Z: ArrayLike,
    *,
    eta: float = 0.1,
    max_iter: int = 100_000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator w >= 0 of points with many coordinates, of which few matter.

    This is Winnow (Littlestone 1991; ramdas14, section 2.2): multiplicative weights for the l1-margin

        rho_1 = max_{w in Delta_d} min_i (Z w)_i  =  min_{p in Delta_n} max_j (Z'p)_j

    of the signed rows z_i = y_i x_i, each of which is divided by ||x_i||_inf.  While some (Z w)_i <= 0, an update takes
    the i of the least (Z w)_i, multiplies each w_j by exp(eta z_ij), and divides w by its sum.

    Parameters
    ----------
    Z : array, shape (n, d)
        The signed rows, none of them zero; not a Gram matrix.
    eta : float
        Learning rate, above 0.  The guarantee needs eta < 2 rho_1, and the bound is smallest at eta = rho_1.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    perceptron : Additive updates, for the margin in the Euclidean norm.

    Notes
    -----
    alpha is w, of shape (d,), and p counts how often each row was taken.  The interval is lower = min_i (Z w)_i <=
    rho_1 <= max_j (Z'p)_j = upper, rounded outwards, and the run ends as "infeasible" if upper <= 0.  If eta = rho_1,
    the run stops as "separated" after at most 2 ln(d) / rho_1^2 updates, which is the bound of the paper up to the
    constant.  An iteration reads Z once and counts as one product.

    Examples
    --------
    >>> result = fm.winnow([[1.0, -0.5, 0.2], [0.5, 1.0, -0.1]], eta=0.3)
    >>> result.status, result.alpha.round(3)
    ('separated', array([0.333, 0.333, 0.333]))
    """
    Z = _array(Z, "Z", 2, _POINTS)
    eta = _number(eta, "eta")
    largest = np.abs(Z).max(axis=1)
    if largest.min() == 0.0:
        raise ValueError(
            f"row {np.argmin(largest)} of Z is zero, so that no w gives it a margin above 0: leave it out"
        )
    rows = _frozen(np.ascontiguousarray(Z / largest[:, None], dtype=np.float64))
    n, d = rows.shape
    w = np.full(d, 1.0 / d)
    # This covers the errors of z_i / ||x_i||_inf, of w / sum, and of inner products, whose sums may be in any order.
    blur = _sum_error(n + 2 * d + 8)

    def interval(G, w, p, precise):
        lower = float((rows @ w).min())
        upper = float((p @ rows).max())
        return Bounds(lower - blur, upper + blur, 2.0 * blur)

    return drive(
        Gram._over(_Rows(rows)),
        _winnow_loop,
        (w, rows @ w, np.zeros(n), np.zeros(d)),
        lambda w, m, hits, score: (w, hits),
        (rows, eta, 2.0 * blur),
        max_iter=max_iter,
        separates=True,
        interval=interval,
        **options,
    )


# ------------------------------------------------------------------------------------------------------
# 8.2 ji21
# ------------------------------------------------------------------------------------------------------

_DECAYS = {"constant": 0.0, "sqrt": 0.5}  # steps theta_t = theta / (t + 1)^decay


@njit(cache=_CACHE)
def _logistic_weights(m, shift, q):
    """Set q <- grad psi(xi), xi = -m - shift; return ln l'(psi).

    psi(xi) = l^{-1}(sum_i l(xi_i)) for the logistic loss l(z) = ln(1 + e^z).
    """
    if _least(m) + shift > 37.0:  # l(z) = e^z to rounding
        return _softmax(m, q) - shift
    total = 0.0
    for i in range(m.size):
        total += max(-m[i] - shift, 0.0) + math.log1p(math.exp(-abs(m[i] + shift)))
    slope = -math.expm1(-total)  # l'(psi) = 1 - exp(-sum l)
    for i in range(m.size):
        small = math.exp(-abs(m[i] + shift))
        q[i] = (small if m[i] + shift > 0.0 else 1.0) / ((1.0 + small) * slope)
    return math.log(slope)


@njit(cache=_CACHE)
def _softmax_by_class(m, y, q):
    """Set q to a softmax(-m) in each class, each with the weight 1/2; return min_b ln sum_i exp(-m_i - b y_i).

    This is softmax(-m - b y) for the minimising bias b, at which both classes have the same weight.
    """
    log_total = math.log(2.0)
    for sign in (-1.0, 1.0):
        low = math.inf
        for i in range(m.size):
            if y[i] == sign and m[i] < low:
                low = m[i]
        total = 0.0
        for i in range(m.size):
            if y[i] == sign:
                q[i] = math.exp(low - m[i])
                total += q[i]
        for i in range(m.size):
            if y[i] == sign:
                q[i] *= 0.5 / total
        log_total += 0.5 * (math.log(total) - low)
    return log_total


@njit(cache=_CACHE)
def _loss_weights(m, logistic, shift, y, q):
    """Set q <- grad psi(xi); return ln l'(psi), where l'(xi_i) = q_i l'(psi).

    For the logistic loss xi = -m - shift.  For the exponential loss xi = -m, and ``shift`` is not read.  If the
    intercept is free, y has the labels, otherwise it has no entries.  Only the exponential loss takes a free intercept.
    """
    if logistic:
        return _logistic_weights(m, shift, q)
    if y.size > 0:
        return _softmax_by_class(m, y, q)
    return _softmax(m, q)


def _free_labels_of(G):
    """Return the labels y if the intercept is free, otherwise an array without entries."""
    return np.zeros(0) if G.free_labels is None else np.array(G.free_labels, dtype=np.float64)


@njit(cache=_CACHE)
def _gradient_descent_loop(G, k, until, alpha, m, q, Gq, logistic, y, step):
    """Run alpha_i <- alpha_i + step l'(-m_i) / n; m = G alpha follows."""
    while k < until:
        log_slope = _loss_weights(m, logistic, 0.0, y, q)
        product(G, q, Gq)
        gain = step * math.exp(min(log_slope, 300.0)) / m.size
        _combine(1.0, alpha, gain, q)
        _combine(1.0, m, gain, Gq)
        k += 1
    return k


@_algorithm
def gradient_descent(
    G: GramLike,
    *,
    step: float = 1.0,
    loss: str = "exp",
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Run gradient descent, and certify at each checkpoint how close its margin is to the maximum.

    This is gradient descent (ji21, section 3.1) on the empirical risk (1/n) sum_i l(-m_i), m = G alpha:

        alpha_i <- alpha_i + (step/s) l'(-m_i) / n,   alpha_0 = 0.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    step : float
        Step length in units of 1/s, above 0.
    loss : {"exp", "logistic"}
        l(z) = e^z, or l(z) = ln(1 + e^z).
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    normalized_gradient_descent : The faster method, which divides the gradient by the risk.

    Notes
    -----
    p = alpha / sum alpha.  If rho > 0, the margin tends to rho with a gap of order 1/ln t, for steps that are small
    enough (Soudry et al. 2018), and for any step with loss="logistic" (Wu, Braverman & Lee 2023).  A longer step with
    loss="exp" may stay at a smaller margin.  A free intercept needs loss="exp"; a step then follows the gradient of the
    least risk over all biases, which differs from gradient descent in (w, b).  If sum_i l'(-m_i) exceeds e^300, e^300
    takes its place, so that nothing overflows.  An iteration costs one product.

    Examples
    --------
    >>> round(fm.gradient_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower, 2)
    0.92
    """
    logistic = _choice(loss, "loss", ("exp", "logistic")) == "logistic"
    step = _number(step, "step")
    G = _checked(G)
    return drive(
        G,
        _gradient_descent_loop,
        tuple(np.zeros((4, len(G)))),
        parameters=(logistic, _free_labels_of(G), step / G.scale),
        max_iter=max_iter,
        takes_free=not logistic,
        **options,
    )


@njit(cache=_CACHE)
def _normalized_gradient_descent_loop(G, k, until, alpha, m, q, Gq, y, by_norm, decay, step):
    """Run alpha <- alpha + theta_k q, or alpha + theta_k q / ||q||_G; m = G alpha follows."""
    while k < until:
        _loss_weights(m, False, 0.0, y, q)
        product(G, q, Gq)
        theta = step / (k + 1.0) ** decay
        if by_norm:
            norm2 = _dot(q, Gq)
            # If the gradient is 0, the step is 0.
            theta = theta / math.sqrt(norm2) if norm2 > 0.0 else 0.0
        _combine(1.0, alpha, theta, q)
        _combine(1.0, m, theta, Gq)
        k += 1
    return k


@_algorithm
def normalized_gradient_descent(
    G: GramLike,
    *,
    step: float = 1.0,
    schedule: str = "constant",
    divide_by: str = "risk",
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Run gradient descent with normalised steps, and certify how close its margin is to the maximum.

    The method descends on the exponential risk R = (1/n) sum_i exp(-m_i), m = G alpha.  It divides the gradient by R
    (ji21, section 3.1), or by the gradient's norm (apidopoulos22, section 6.2):

        alpha <- alpha + theta_t q_t,   or   alpha <- alpha + theta_t q_t / ||q_t||_G,   q_t = softmax(-G alpha).

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    step : float
        Step length, above 0, in units of 1/s; with divide_by="norm" in units of 1/sqrt(s).
    schedule : {"constant", "sqrt"}
        "constant" is theta_t = step/s, for which the gap of the margin is of order 1/t (Ji & Telgarsky 2019).  "sqrt"
        is theta_t = (step/s) / sqrt(t + 1), for which the gap is of order ln(t) / sqrt(t) (Nacson et al. 2018, who
        divide by the norm).  With divide_by="norm" both have sqrt(s) in place of s.
    divide_by : {"risk", "norm"}
        What the gradient is divided by.  The gradient with respect to f is -R g, where g = sum_i q_i y_i phi(x_i), and
        its norm is R ||q||_G.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    momentum : Adds momentum, which makes the gap of the margin of order 1/t^2.

    Notes
    -----
    p = alpha / sum alpha.  With divide_by="risk" the method is mirror descent with the entropy on the dual.  With
    divide_by="norm" f moves by theta_t in each iteration, up to sqrt(s) / rho times as far as with divide_by="risk".
    An iteration costs one product.

    A constant step may be large.  Let rho > 0, s = 1 and divide_by="risk".  Then one of the first
    (1 + 2 ln(n) / step) / rho^2 iterates separates the points, and the least risk R of T iterates has
    ln R <= -(step / 2) (rho^2 T - 1) (Theorem 10, "Normalised steps of any length", in figures/THEOREMS.md).  Zhang et
    al. prove for the logistic loss, and for a broad class of losses, that steps which adapt to the risk bring it to
    exp(-Theta(step)) after 1 / rho^2 iterations.  They also prove that on some sets of exp(O(1 / rho^2)) points every
    first-order method needs as many iterations to separate the points, up to a constant.

    References
    ----------
    R. Zhang, J. Wu, L. Lin, P. Bartlett, arXiv 2504.04105, 2025.

    Examples
    --------
    >>> round(fm.normalized_gradient_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower, 2)
    0.92
    """
    decay = _DECAYS[_choice(schedule, "schedule", tuple(_DECAYS))]
    by_norm = _choice(divide_by, "divide_by", ("risk", "norm")) == "norm"
    step = _number(step, "step")
    G = _checked(G)
    return drive(
        G,
        _normalized_gradient_descent_loop,
        tuple(np.zeros((4, len(G)))),
        parameters=(
            _free_labels_of(G),
            by_norm,
            decay,
            step / (math.sqrt(G.scale) if by_norm else G.scale),
        ),
        max_iter=max_iter,
        takes_free=not by_norm,
        **options,
    )


@njit(cache=_CACHE)
def _momentum_step(alpha, g, m, Gg, q, Gq, beta, step):
    """Set g <- beta (g + q) and alpha <- alpha + step (g + q), and update their products Gg and m in the same way."""
    for i in range(m.size):
        g[i] = beta * (g[i] + q[i])
        Gg[i] = beta * (Gg[i] + Gq[i])
        alpha[i] += step * (g[i] + q[i])
        m[i] += step * (Gg[i] + Gq[i])


@njit(cache=_CACHE, fastmath=_FAST)
def _square_of_p(g, q, Gg, Gq):
    """Return ||p||_G^2 for p = (g + q) / ||g + q||_1."""
    total = 0.0
    norm2 = 0.0
    for i in range(g.size):
        total += g[i] + q[i]
        norm2 += (g[i] + q[i]) * (Gg[i] + Gq[i])
    return norm2 / (total * total)


@njit(cache=_CACHE)
def _momentum_loop(G, k, until, alpha, g, m, Gg, q, Gq, logistic, shift, y, step, goal):
    """Run Algorithm 1 of ji21; m = G alpha, Gg = G g, and q has the weights of the loss at m.

    Z'g is the paper's g_{k-1} at the beginning of iteration k.

    If ``goal`` is above 0, the loop halts once ||p_k||_G^2 <= goal.
    """
    while k < until:
        if goal > 0.0 and _square_of_p(g, q, Gg, Gq) <= goal:
            return k
        beta = k / (k + 1.0)
        _momentum_step(alpha, g, m, Gg, q, Gq, beta, step)
        _loss_weights(m, logistic, shift, y, q)
        product(G, q, Gq)
        k += 1
    return k


@_algorithm
def momentum(
    G: GramLike,
    *,
    loss: str = "exp",
    shifted: bool = True,
    eps: float = 0.0,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find the maximum margin with one product with G per iteration, and no columns of G.

    This is margin maximisation by momentum, which is Nesterov's method on the dual (ji21, section 3, Algorithm 1):

        g_t = beta_t (g_{t-1} + Z' q_t),   w_{t+1} = w_t + theta (g_t + Z' q_t),   q_{t+1} = softmax(-Z w_{t+1})

    with w_0 = g_{-1} = 0, q_0 = 1/n, beta_t = t/(t+1) and theta = 1/s.  p is the dual iterate p_t, which is mu_t in the
    paper: g_{t-1} + Z' q_t = Z' v for some weights v >= 0, and p_t = v / sum v.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    loss : {"exp", "logistic"}
        "exp" is the method above.  "logistic" has q_t = grad psi at xi_i = -m_i - ln n, the margins raised by ln n,
        where psi(xi) = l^{-1}(sum_i l(xi_i)) and l(z) = ln(1 + e^z), and theta = (1 - 1/e)/s.  The sum of this q_t may
        be above 1 (section 5.1 of the paper).
    shifted : bool
        Used only with loss="logistic".  False runs section 5.1 as it is printed, with xi_i = -m_i and theta = 1/(n s).
    eps : float
        The run stops as "infeasible" once ||p_t||_G <= eps, which proves that no margin above eps exists.  eps is
        absolute, not a multiple of sqrt(s); 0 never stops the run.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    snkp : The same recursion with other step lengths.
    adaptive_sampling : Replaces Z' q_t by one row, which is drawn from the distribution q_t.

    Notes
    -----
    Let margin(w) = min_i <z_i, w> / ||w||, let rho+ = max(rho, 0), and let margins and ||p_t||_G be in units of
    sqrt(s).  With loss="exp",

        margin(w_t) >= rho - 4 (1 + ln n) (1 + 2 ln(t+1)) / (rho (t+1)^2)   if rho > 0      (Theorem 3.1 of the paper)
        margin(w_t) >= rho - 4 ln(n) / (rho t (t+3))                        if rho > 0      (Theorem 7)
        rho+^2 <= ||p_t||_G^2 <= rho+^2 + 8 ln(n) / (t+1)^2                 always          (Theorem 3.1 of the paper)

    Theorem 7, "Momentum without a logarithm", is in figures/THEOREMS.md; the rate 1/t^2 is that of Wang et al.  So if
    rho <= 0 and eps > 0, the run ends within sqrt(8 s ln n) / eps iterations.  With loss="logistic", shifted=True and
    b = e/(e-1),

        margin(w_t) >= rho - 4 b ln((e-1) n) / (rho t (t+3))                if rho > 0      (Theorem 9)

    and sum_i l(-m_i - ln n) < 1 for every t, whether the points are separable or not (Theorem 9, "The shifted logistic
    loss").  An iteration costs one product, and so does the start.

    References
    ----------
    G. Wang, R. Hanashiro, E. Guha, J. Abernethy, On accelerated perceptrons and beyond, ICLR 2023.

    Examples
    --------
    >>> result = fm.momentum(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-3)
    >>> result.status, round(result.lower, 3), round(result.upper, 3)
    ('certified', 0.924, 0.925)
    """
    logistic = _choice(loss, "loss", ("exp", "logistic")) == "logistic"
    eps = _number(eps, "eps", closed=True)
    G = _checked(G)
    n = len(G)
    y = _free_labels_of(G)
    shift = math.log(n) if shifted else 0.0
    step = 1.0 / G.scale
    if logistic:
        step *= -math.expm1(-1.0) if shifted else 1.0 / n
    alpha, g, m, Gg, q, Gq = np.zeros((6, n))
    _loss_weights(m, logistic, shift, y, q)
    product(G, q, Gq)
    return drive(
        G,
        _momentum_loop,
        (alpha, g, m, Gg, q, Gq),
        lambda alpha, g, m, Gg, q, Gq: (alpha, g + q, m, Gg + Gq),
        (logistic, shift, y, step, _least_square(G, eps)),
        max_iter=max_iter,
        eps=eps,
        takes_free=not logistic,
        products=lambda k: k + 1.0,
        **options,
    )


@njit(cache=_CACHE)
def _batch_perceptron_loop(
    G, k, until, alpha, m, total, total_m, hits, hits_m, norm2, column, diagonal, step
):
    """Run w_k = P(w_{k-1} + eta_k z_i).

    ``total`` is the sum of the iterates, and ``hits`` counts how often each row was taken.  m, total_m and hits_m are
    the products of alpha, total and hits with G, and norm2[0] = ||w||^2.
    """
    while k < until:
        i = np.argmin(m)
        eta = step / math.sqrt(k + 1.0)
        norm2[0] += eta * (2.0 * m[i] + eta * diagonal[i])
        shrink = 1.0 / math.sqrt(max(1.0, norm2[0]))  # rounding may make norm2 negative
        norm2[0] *= shrink * shrink
        column.fill(0.0)
        add_column(G, i, 1.0, column)
        alpha[i] += eta
        _combine(1.0, m, eta, column)
        _multiply(shrink, alpha)
        _multiply(shrink, m)
        _combine(1.0, total, 1.0, alpha)
        _combine(1.0, total_m, 1.0, m)
        hits[i] += 1.0
        _combine(1.0, hits_m, 1.0, column)
        k += 1
    return k


@_algorithm
def batch_perceptron(
    G: GramLike,
    *,
    averaged: bool = True,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Raise the least margin, with one column of G per iteration: that of the point of least margin.

    This is the batch perceptron (Cotter et al., ICML 2012; ji21, appendix F), supergradient ascent on the least margin:

        w_t = P(w_{t-1} + eta_t z_i),   i = argmin_i <z_i, w_{t-1}>,   eta_t = 1 / sqrt(s t),   w_0 = 0,

    where P is the projection onto the unit ball.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    averaged : bool
        If True, alpha is the sum of the iterates, so that lower is the margin of their average.  If False, alpha is the
        last iterate.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    adaptive_sampling : Draws the row at random, at the same cost.

    Notes
    -----
    p counts how often each row was taken.  With averaged=True, and if lower >= 0 after t iterations, upper -
    lower = O(sqrt(s/t)).  An iteration costs one column.

    Examples
    --------
    >>> round(fm.batch_perceptron(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower, 2)
    0.92
    """
    G = _checked(G)
    n = len(G)

    def solution(alpha, m, total, total_m, hits, hits_m, norm2, column):
        if averaged:
            return total, hits, total_m, hits_m
        return alpha, hits, m, hits_m

    *vectors, column = np.zeros((7, n))
    return drive(
        G,
        _batch_perceptron_loop,
        (*vectors, np.zeros(1), column),
        solution,
        (G.diagonal(), 1.0 / math.sqrt(G.scale)),
        max_iter=max_iter,
        products=lambda k: k / n,
        **options,
    )


@njit(cache=_CACHE)
def _draw(m, uniform, weights):
    """Return i with probability softmax(-m)_i for a uniform number in [0, 1), by inverting the distribution function.

    If the weights do not add up to the level because of rounding, the last i of positive weight is returned.
    """
    low = _least(m)
    total = 0.0
    for i in range(m.size):
        weights[i] = math.exp(low - m[i])
        total += weights[i]
    level = uniform * total
    last = 0
    for i in range(m.size):
        if weights[i] > 0.0:
            last = i
            if level < weights[i]:
                break
            level -= weights[i]
    return last


@njit(cache=_CACHE)
def _adaptive_sampling_loop(G, k, until, alpha, g, m, Gg, drawn, column, uniforms, momentum, step):
    """Run the method of section 4 of ji21: `_momentum_loop` with ``drawn`` = e_i and ``column`` = G e_i for q and G
    q."""
    first = k
    while k < until:
        i = _draw(m, uniforms[k - first], column)  # the weights use the memory of ``column``
        beta = k / (k + 1.0) if momentum else 0.0
        drawn[i] = 1.0
        column.fill(0.0)
        add_column(G, i, 1.0, column)
        _momentum_step(alpha, g, m, Gg, drawn, column, beta, step)
        drawn[i] = 0.0
        k += 1
    return k


@_algorithm
def adaptive_sampling(
    G: GramLike,
    *,
    momentum: bool = True,
    step: float = 1.0,
    seed: int = 0,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find the maximum margin with one column of G per iteration, which is drawn at random.

    This is adaptive sampling (ji21, section 4): `momentum` with one row z_i, where i is drawn from q_t, in place of
    Z'q_t:

        g_t = beta_t (g_{t-1} + z_i),   w_{t+1} = w_t + theta (g_t + z_i),   i ~ q_t = softmax(-Z w_t).

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    momentum : bool
        If True, beta_t = t/(t+1).  If False, beta_t = 0, as in Theorem 4.1 of the paper.
    step : float
        theta in units of 1/s, above 0.
    seed : int
        Seed of the samples, at least 0.  The same seed gives the same run on any number of threads.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    momentum : Takes all rows in each step, at the cost of one product.

    Notes
    -----
    p = alpha / sum alpha.  An iteration costs one column.  Let margin(w) = min_i <z_i, w> / ||w||, let margins be in
    units of sqrt(s), and let rho > 0.  With momentum=False and step = sqrt(ln(n) / T), Theorem 4.1 of the paper, with
    the constants of its proof, says that with probability 1 - 2 delta

        margin(w_T) >= rho - (1.5 sqrt(ln(n) / T) + sqrt(2 ln(1/delta) / T)) / rho - 1 / sqrt(delta T).

    The paper leaves the rate with momentum open.  For every step > 0

        mean of margin(w_T) >= rho - 4 (ln(n) + T (step + ln cosh(step))) / (step rho T (T+3))

    by Theorem 11, "Sampling with momentum", in figures/THEOREMS.md.  The gap of order 1/(rho T) is that of coresets
    (Gaertner & Jaggi).  On some data no weights on T points do better: if all n rows have length 1 and inner products
    c, T < n of them give a margin of at most c / sqrt(c + (1-c)/T), and all n give sqrt(c + (1-c)/n).

    References
    ----------
    B. Gaertner, M. Jaggi, Coresets for polytope distance, SoCG 2009.

    Examples
    --------
    >>> result = fm.adaptive_sampling(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=0.02)
    >>> result.status, round(result.lower, 2), round(result.upper, 2)
    ('certified', 0.92, 0.94)
    """
    step = _number(step, "step")
    seed = _count(seed, "seed")
    G = _checked(G)
    n = len(G)

    def parameters(k, until):
        bits = np.random.PCG64(seed).advance(k).random_raw(until - k)
        uniforms = (bits >> np.uint64(11)) * 2.0**-53
        return uniforms, bool(momentum), step / G.scale

    return drive(
        G,
        _adaptive_sampling_loop,
        tuple(np.zeros((6, n))),
        lambda alpha, g, m, Gg, drawn, column: (alpha, alpha, m, m),
        parameters,
        max_iter=max_iter,
        products=lambda k: k / n,
        **options,
    )


# ------------------------------------------------------------------------------------------------------
# 8.3 apidopoulos22
# ------------------------------------------------------------------------------------------------------

_LAMBDAS = {
    "1/log(1+t)": lambda t: 1.0 / np.log1p(t),
    "1/sqrt(t)": lambda t: 1.0 / np.sqrt(t),
    "1/t": lambda t: 1.0 / t,
    "1/t^2": lambda t: 1.0 / t**2,
    "2^-t": lambda t: np.exp2(-t),
}


def _bounds(lam, lam0, max_iter, options):
    """Return a function of (k, until) that gives 1 / lambda_t, lambda_t = lam0 s(t), for t = k + 1 to ``until``.

    ``lam`` gives s by name, as a callable, or as the array of all s(t) from t = 1 on.
    """
    lam0 = _number(lam0, "lam0")
    if isinstance(lam, str) and lam in _LAMBDAS:
        schedule = _LAMBDAS[lam]
    elif callable(lam):

        def schedule(t):
            return np.array([float(lam(int(number))) for number in t])

    else:
        last = _first_iteration(options) + _count(max_iter, "max_iter")
        is_list = not isinstance(lam, str) and np.ndim(lam) == 1
        if not is_list or len(lam) < last:
            got = f"shape {np.shape(lam)}" if np.ndim(lam) else repr(lam)
            raise ValueError(
                f"lam must be one of {', '.join(map(repr, _LAMBDAS))}, or a callable that returns s(t), or a list of "
                f"at least {last} values, one for each iteration; got {got}"
            )
        values = _numbers(lam, "lam")
        values = _nonnegative_values(values[:last].astype(np.float64), 0)

        def schedule(t):
            return values[t.astype(np.int64) - 1]

    def bounds(k, until):
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            return 1.0 / (lam0 * _nonnegative_values(schedule(np.arange(k + 1.0, until + 1.0)), k))

    return bounds


def _nonnegative_values(values, k):
    """Return the values s(t), for t = k + 1, k + 2, ...; raise an error if one is negative."""
    wrong = np.flatnonzero(~(values >= 0.0))
    if wrong.size:
        i = wrong[0]
        raise ValueError(f"lam must be at least 0; at t = {k + i + 1} it is {values[i]:g}")
    return values


@njit(cache=_CACHE)
def _projected_step(z, mz, step, bound, alpha):
    """Set alpha <- clip(z + step (1 - mz), 0, bound); return <z - alpha, alpha - the alpha before>."""
    uphill = 0.0
    for i in range(z.size):
        before = alpha[i]
        alpha[i] = min(max(z[i] + step * (1.0 - mz[i]), 0.0), bound)
        uphill += (z[i] - alpha[i]) * (alpha[i] - before)
    return uphill


@njit(cache=_CACHE)
def _extrapolate(alpha, previous, inertia, z):
    """Set z <- alpha + inertia (alpha - previous), and then previous <- alpha."""
    for i in range(z.size):
        z[i] = alpha[i] + inertia * (alpha[i] - previous[i])
        previous[i] = alpha[i]


def _descent_step(G, step, options):
    """Return the array (step, number of products that it took to find the step), and the seconds that it took.

    If ``step`` is None, it is a little less than 1 / ||G||_op.  A run with a ``start`` has the step of the start.
    """
    if step is not None:
        return np.array([_number(step, "step"), 0.0]), 0.0
    if options.get("start") is not None:
        return np.zeros(2), 0.0
    G @ np.zeros(len(G))  # compile the product before the clock starts
    begin = time.perf_counter()
    norm, products = _operator_norm(G)
    return np.array([1.0 / norm, products]), time.perf_counter() - begin


@njit(cache=_CACHE)
def _diagonal_descent_loop(G, k, until, alpha, m, found, bounds, step):
    """Run Algorithm 1 of apidopoulos22 with alpha = -u; m = G alpha, and bounds has 1 / lambda_t from t = k + 1 on.

    If ``step`` is 0, found[0] is the step.
    """
    first = k
    if step == 0.0:
        step = found[0]
    else:
        found[0] = step  # for a run that goes on from this one
    while k < until:
        _projected_step(alpha, m, step, bounds[k - first], alpha)
        product(G, alpha, m)
        k += 1
    return k


@njit(cache=_CACHE)
def _inertial_diagonal_descent_loop(
    G,
    k,
    until,
    alpha,
    previous,
    m,
    previous_m,
    z,
    mz,
    age,
    found,
    bounds,
    step,
    accel,
    restart,
):
    """Run Algorithm 2 of apidopoulos22 with alpha = -u; bounds, step and found are those of `_diagonal_descent_loop`.

    ``previous`` is alpha one step ago, and z is the point from which a step starts.  m, previous_m and mz are the
    products of alpha, previous and z with G. age[0] counts the steps since the last restart.
    """
    first = k
    if step == 0.0:
        step = found[0]
    else:
        found[0] = step  # for a run that goes on from this one
    while k < until:
        age[0] += 1.0
        inertia = age[0] / (age[0] + accel)
        _extrapolate(alpha, previous, inertia, z)
        _extrapolate(m, previous_m, inertia, mz)
        uphill = _projected_step(z, mz, step, bounds[k - first], alpha)
        product(G, alpha, m)
        if restart and uphill > 0.0:
            age[0] = 0.0
            _copy(alpha, previous)
            _copy(m, previous_m)
        k += 1
    return k


@_algorithm
def diagonal_descent(
    G: GramLike,
    *,
    lam: Callable[[Any], Any] | ArrayLike = "1/t",
    lam0: float = 1.0,
    step: float | None = None,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Descend on the hinge loss towards the maximum margin; if labels may be wrong, stop early.

    This is hinge-loss diagonal descent (apidopoulos22, section 4, Algorithm 1).  For each lambda_t it takes one
    projected gradient step on the dual of min_w (1/lambda_t) sum_i max(0, 1 - m_i) + ||w||^2 / 2, where m = Z w are the
    margins:

        u_0 = 0,   u_t = clip(u_{t-1} - gamma G u_{t-1} - gamma, -1/lambda_t, 0),   w_t = -Z'u_t.

    The result has alpha = -u and p = alpha / sum alpha.  An iteration costs one product.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    lam : str, callable or array
        s(t) in lambda_t = lam0 s(t): "1/log(1+t)", "1/sqrt(t)", "1/t", "1/t^2", "2^-t", a callable of t, or an array
        that has s(t) at index t - 1.  No s(t) may be negative; 0 leaves u without a lower bound.
    lam0 : float
        Factor of s(t), above 0, in the units of G.
    step : float, optional
        gamma itself, not in units of 1/s.  The default is the step of ``start``, or without a start a little less than
        1/||G||_op, where ||G||_op is the largest eigenvalue of G. At most 64 products find it; the trace counts them
        before iteration 0.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    inertial_diagonal_descent : The same steps with inertia.
    momentum : Another method with one product per iteration, which is faster if G is ill conditioned.
    max_margin : The exact solver.

    Notes
    -----
    Theorems, lemmas and equations are those of apidopoulos22.  Let gamma <= 1/||G||_op, and let lambda_t never rise.
    Then D(u_t) = ||w_t||^2 / 2 + sum_i u_{t,i} never increases (Lemma 5.3).  If the data are separable, w_t tends to
    w*, the separator of least norm with margins >= 1, and rho = 1/||w*||.  Let u* be a minimiser of D over u <= 0.  The
    convergence is linear once lambda_t <= 1/||u*|| (Theorem 5.1).  If lambda_t <= 1/||u*|| from t = 1 on, then

        ||w_t - w*|| <= ||w*|| (1 + gamma mu)^(-t/2),   mu = 1 / (8 H^2 (A^2 + 2)),
        A = 3 ||w*|| / sqrt(2) + 2 sqrt(2) ||G||_op^(1/2) ||u*||,   H the Hoffman constant of (5.3).

    This is (5.4) with the constants that "Departures from the papers" in figures/THEOREMS.md repairs.  This mu is tiny.
    In experiments the distance falls as (1 - gamma nu)^t, where nu is the least positive eigenvalue of G on the face of
    u*, the points with u*_i < 0.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> result = fm.diagonal_descent(G, tol=1e-9)
    >>> result.status, round(result.lower, 6)
    ('certified', 0.92388)
    """
    G = _checked(G)
    bounds = _bounds(lam, lam0, max_iter, options)
    found, spent = _descent_step(G, step, options)
    alpha, m = np.zeros((2, len(G)))
    return drive(
        G,
        _diagonal_descent_loop,
        (alpha, m, found),
        parameters=lambda k, until: (bounds(k, until), step or 0.0),
        max_iter=max_iter,
        products=lambda k: found[1] + k,
        spent=spent,
        **options,
    )


@_algorithm
def inertial_diagonal_descent(
    G: GramLike,
    *,
    lam: Callable[[Any], Any] | ArrayLike = "1/t",
    lam0: float = 1.0,
    accel: float = 10.0,
    step: float | None = None,
    restart: bool = False,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Descend on the hinge loss as `diagonal_descent` does, with inertia.

    This is inertial diagonal descent (apidopoulos22, section 4, Algorithm 2).  It takes the steps of `diagonal_descent`
    from a point z_t that inertia has moved ahead of u_{t-1}:

        z_t = u_{t-1} + (t/(t + accel)) (u_{t-1} - u_{t-2}),   u_t = clip(z_t - gamma G z_t - gamma, -1/lambda_t, 0),

    with w_t = -Z'u_t and u_0 = u_{-1} = 0.  The result has alpha = -u and p = alpha / sum alpha.  An iteration costs
    one product.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    lam, lam0 : str, callable or array, and float
        lambda_t = lam0 s(t), as in `diagonal_descent`.
    accel : float
        The paper's alpha, above 0.
    step : float, optional
        gamma, as in `diagonal_descent`.
    restart : bool
        If True, the method begins anew from u_t whenever inertia has led uphill, that is if <z_t - u_t, u_t -
        u_{t-1}> > 0: it counts t from 1 again, and its first step has no inertia.  False is the method of the paper.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    diagonal_descent : The same steps without inertia; it describes lam, lam0 and step.
    momentum : Another method with one product per iteration, which is faster if G is ill conditioned.
    max_margin : The exact solver.

    Notes
    -----
    Let gamma <= 1/||G||_op, where ||G||_op is the largest eigenvalue of G, and let lambda_t never rise.  Let u* be a
    minimiser of D(u) = ||Z'u||^2 / 2 + sum_i u_i over u <= 0, and w* = -Z'u*.  If the data are separable, w* is the
    separator of least norm with margins >= 1.  Theorems 12 and 13 and Proposition 1 are those of "Inertial diagonal
    descent" in figures/THEOREMS.md.

    - *Rate.*  Let the data be separable, accel >= 3, lambda_t <= 1/||u*|| from t = 1 on, and
      C = (accel - 1) (||w_0||^2 - ||w*||^2 + 2 ||u_0 - u*||_1 + ||u_0 - u*||^2 / gamma)^{1/2}.  Theorem 5.2 of the
      paper has ||w_t - w*|| <= C/(t + accel - 1), in a count of steps that begins with u_0 = u_1.  In the count of
      steps above, and without restarts, ||w_t - w*|| <= C/(t + accel) if accel >= 2 + sqrt(5) = 4.24, and sqrt(2) times
      as much if 3 <= accel < 4.24 (Theorem 12).
    - *Convergence.*  D(u_t) + ||u_t - u_{t-1}||^2 / (2 gamma) never increases, with restarts and without.  If the data
      are separable and lambda_t comes down to 1/||u*|| or less, w_t tends to w* in both cases (Theorem 13).
    - *Linear rate without restarts.*  Once the support is the face of u*, the points with u*_i < 0, and stays so,
      ||w_t - w*|| is at most a constant times t^(-accel/2) (1 - gamma nu)^(t/2), where nu is the least positive
      eigenvalue of G on this face (Proposition 1).  This is half the exponential rate of `diagonal_descent`.
    - *Linear rate with restarts.*  We measure it and do not prove it: ln ||w_t - w*|| falls by 0.5 to 1.2 times
      (gamma nu)^{1/2} per step.

    References
    ----------
    B. O'Donoghue, E. Candes, Adaptive restart for accelerated gradient schemes, Found. Comput. Math. 15, 2015.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> result = fm.inertial_diagonal_descent(G, tol=1e-4)
    >>> result.status, round(result.lower, 3)
    ('certified', 0.924)
    """
    accel = _number(accel, "accel")
    G = _checked(G)
    bounds = _bounds(lam, lam0, max_iter, options)
    found, spent = _descent_step(G, step, options)
    vectors = np.zeros((6, len(G)))
    return drive(
        G,
        _inertial_diagonal_descent_loop,
        (*vectors, np.zeros(1), found),
        lambda alpha, previous, m, *_: (alpha, alpha, m, m),
        lambda k, until: (bounds(k, until), step or 0.0, accel, bool(restart)),
        max_iter=max_iter,
        products=lambda k: found[1] + k,
        spent=spent,
        **options,
    )


@njit(cache=_CACHE)
def _penalised_step(alpha, m, shrink, gain):
    """Set alpha <- shrink alpha + gain [m < 1]."""
    for i in range(m.size):
        alpha[i] = shrink * alpha[i] + (gain if m[i] < 1.0 else 0.0)


@njit(cache=_CACHE)
def _homotopic_subgradient_loop(G, k, until, alpha, m, a, b, scale):
    """Run alpha <- (1 - eta_t lambda_t) alpha + (eta_t / n) [m < 1].

    m = G alpha, step = s eta_t, and penalty = lambda_t / s.
    """
    while k < until:
        step = (k + 1.0) ** -b
        penalty = (k + 1.0) ** -a
        _penalised_step(alpha, m, 1.0 - step * penalty, step / (m.size * scale))
        product(G, alpha, m)
        k += 1
    return k


@_algorithm
def homotopic_subgradient(
    G: GramLike,
    *,
    a: float = 0.25,
    b: float = 0.5,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Take subgradient steps on the hinge loss with a vanishing penalty, for comparison with `diagonal_descent`.

    This is the homotopic subgradient method (Molitor, Needell & Ward 2021), with which apidopoulos22 compares its
    methods.  It takes subgradient steps on (1/n) sum_i max(0, 1 - m_i) + (lambda_t / 2) ||w||^2, where m = G alpha = Z
    w are the margins:

        alpha_i <- (1 - eta_t lambda_t) alpha_i + (eta_t / n) [m_i < 1],   lambda_t = s t^-a,  eta_t = t^-b / s,

    where s = max_i G_ii, and [m_i < 1] is 1 if m_i < 1 and 0 otherwise.  The run starts at alpha = 0.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    a, b : float
        Exponents above 0 with a + b <= 1, so that the sum of all eta_t lambda_t is infinite.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    diagonal_descent, inertial_diagonal_descent : The methods of apidopoulos22.

    Notes
    -----
    p = alpha / sum alpha.  An iteration costs one product.

    References
    ----------
    D. Molitor, D. Needell, R. Ward, Bias of homotopic gradient descent for the hinge loss, Appl. Math. Optim. 84, 2021.

    Examples
    --------
    >>> result = fm.homotopic_subgradient(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]))
    >>> round(result.lower, 4), round(result.upper, 4)
    (0.9239, 0.9239)
    """
    a = _number(a, "a")
    b = _number(b, "b")
    if a + b > 1.0:
        raise ValueError(f"a + b must be at most 1; got {a:g} + {b:g}")
    G = _checked(G)
    return drive(
        G,
        _homotopic_subgradient_loop,
        tuple(np.zeros((2, len(G)))),
        parameters=(a, b, G.scale),
        max_iter=max_iter,
        **options,
    )


# ------------------------------------------------------------------------------------------------------
# 8.4 own methods
# ------------------------------------------------------------------------------------------------------
#
# After every product `subspace_perceptron` solves the problem in the span of all past products, which takes no product.
# An iteration is
#
#   1. `_extend` makes the product Z'q.  Its component outside the span becomes a new vector of the basis.
#   2. `_mix` sets p to the shortest mixture of p, the last q and their mean.  ||p||_G bounds the margin from above.
#   3. `_settle` chooses mu as the theorems allow.  `_minimize` minimises phi over the span, which gives y and the next
#      q.

_TAU = 0.5  # the descent begins with a step of this length along the new vector of the basis
_KAPPA = -math.log(1.0 - _TAU) - _TAU  # the weight of the tilt
_THETA = 0.04  # a descent with mu = 0 ends once the gradient is at most this times ||p||_G
_NEWTON_STEPS = 40  # a descent ends after so many steps that do not halve the gradient: what is left is rounding

# The columns of the small problem, which finds the shortest mixture p of some p_j from their Z'p_j
_SHORTEST = 0  # p itself
_MEAN = 1  # the mean of the q of this phase, with weights 1 / r^2
_FIRST_RECENT = 2  # the recent q are from this column on; the last column has the latest
_COLUMNS = 16


class _Span(NamedTuple):
    """The span of past Z'q, as an orthonormal basis v_0, v_1, ..., and points in it; lengths are in units of sqrt(s).

    The first five arrays grow with the basis.  The first four have a row for each v_j.
    """

    # (k, d) the v_j themselves if G has coordinates, else (k, 0): then weights and margins give the inner products
    coordinates: np.ndarray
    margins: np.ndarray  # (k, n) Z v_j
    weights: np.ndarray  # (k, n) v_j = Z' weights_j
    y: np.ndarray  # (k,) the minimiser of phi
    # (1 + k, 16) the columns of the small problem; row 0 has the lengths of the components outside the basis
    points: np.ndarray
    mixtures: np.ndarray  # (16, n) their weights p_j: points_j = Z'p_j
    q: np.ndarray  # (n,) the weights of the next product
    tilt: np.ndarray  # (n,) 1 - sum_j <z_i, v_j>^2
    lower: np.ndarray  # (1,) L, the margin of alpha
    mu: np.ndarray  # (1,) the mu of phi; 0 until the points are separated
    phase_mu: np.ndarray  # (1,) the mu with which the phase began; inf before the first phase
    phase_sum: np.ndarray  # (1,) the sum of 1 / r^2 over the products of the phase


def _new_span(n, d):
    """Return an empty span, for n rows of d coordinates."""
    return _Span(
        coordinates=np.zeros((0, d)),
        margins=np.zeros((0, n)),
        weights=np.zeros((0, n)),
        y=np.zeros(0),
        points=np.zeros((1, _COLUMNS)),
        mixtures=np.full((_COLUMNS, n), 1.0 / n),
        q=np.full(n, 1.0 / n),
        tilt=np.ones(n),
        lower=np.full(1, -np.inf),
        mu=np.zeros(1),
        phase_mu=np.full(1, np.inf),
        phase_sum=np.zeros(1),
    )


def _negligible(G):
    """Return the squared length, in units of s, below which a component may be rounding alone, after Gram-Schmidt."""
    rounding = G.rounding()
    return 16.0 * rounding.square + (100.0 * max(rounding.length, _sum_error(G.n))) ** 2


def _extend(G, span, sqrt_s, negligible):
    """Make the product u = Z'q and let its component outside the span join the basis.

    Return u in the new basis, and the length r of that component.  If the component may be rounding alone, it does not
    join the basis: entry 0 of u has its length, and r is 0.
    """
    # 1. The product, and Gram-Schmidt twice: u = sum_j t_j v_j + (the component), which is Z' residual.
    q = span.q
    d = span.coordinates.shape[1]
    if d:
        w = G._lift(q) / sqrt_s
        t = span.coordinates @ w
        w -= t @ span.coordinates
        correction = span.coordinates @ w
        w -= correction @ span.coordinates
        m = G._margins(w) / sqrt_s
        norm2 = w @ w
        residual = q - (t + correction) @ span.weights
    else:
        t = span.margins @ q
        residual = q - t @ span.weights
        w = residual
        m = np.empty(q.size)
        product(G, residual, m)
        m /= sqrt_s * sqrt_s
        correction = span.margins @ residual
        residual -= correction @ span.weights
        m -= correction @ span.margins
        norm2 = max(residual @ m, 0.0)
    t += correction
    r = math.sqrt(norm2)
    if norm2 <= negligible or t.size == min(m.size, w.size):
        return np.append(r, t), 0.0

    # 2. The component is r times the next v_j.
    rows = (w[:d] / r, m / r, residual / r, _TAU, 0.0)
    for array, row in zip(span[:5], rows, strict=True):
        array.resize((len(array) + 1, *array.shape[1:]), refcheck=False)
        array[-1] = row
    np.maximum(span.tilt - span.margins[-1] ** 2, 0.0, out=span.tilt)
    return np.concatenate(([0.0], t, [r])), r


def _newton_step(M, q, mean, downhill, mu, damping, least_weight):
    """Return the Newton step for phi, whose gradient is -downhill; M has the margins of the basis, and ``mean`` is M q.

    The Hessian is mu I + M diag(q) M' - mean mean'.  The step computes it from the points whose weight is above the
    least weight.  With mu = 0 the Hessian is damped: it may be 0 if one point has all the weight, and if phi has no
    minimum, it may be far smaller along the gradient than its trace.
    """
    active = np.flatnonzero(q > least_weight)
    columns = M.take(active, axis=1)
    columns -= mean[:, None]
    columns *= np.sqrt(q[active])
    H = columns @ columns.T
    trace = H.trace()
    added = mu if mu > 0.0 else damping * (trace + downhill @ downhill)
    H.flat[:: len(H) + 1] += max(added, 4.0 * _EPS * trace)
    return np.linalg.solve(H, downhill)


def _minimize(span, alpha, mu, accuracy):
    """Minimise phi(y) = mu ||y||^2 / 2 + ln sum_i exp(lambda tilt_i - (M'y)_i), where M has the margins of the basis.

    Newton steps end once the gradient has the length ``accuracy`` or less, or rounding keeps it from getting shorter.
    With mu = 0 they also end at the first y that separates the points.  Set y, mu and q = softmax(lambda tilt - M'y),
    keep the alpha of the largest margin, and return phi(y).
    """
    y = span.y
    M = span.margins
    q = span.q
    new_q = np.empty(q.size)
    tilt = _KAPPA * span.tilt

    def phi(norm2, m, q):
        """Return phi at the y with ||y||^2 = norm2 and M'y = m, and set q."""
        return 0.5 * mu * norm2 + _softmax(m - tilt, q)

    # 1. Begin at y.  If mu has changed, begin at the multiple of y that has the same mu y, if phi is smaller there.
    m = y @ M
    factor = span.mu[0] / mu if span.mu[0] > 0.0 else 1.0
    value = phi(y @ y, m, q)
    new_value = phi(factor**2 * (y @ y), factor * m, new_q)
    if new_value < value:
        y *= factor
        m *= factor
        q[:] = new_q
        value = new_value
    span.mu[0] = mu

    damping = 1e-9
    share = 1.0  # the share of the last Newton step that was taken
    shortest2 = math.inf  # the least ||gradient||^2 so far
    stalled = 0  # number of steps in a row that did not halve the gradient
    while stalled < _NEWTON_STEPS:
        # 2. The gradient.
        mean = M @ q
        downhill = mean - mu * y
        slope2 = downhill @ downhill
        if slope2 <= accuracy**2 or (mu == 0.0 and m.min() > 0.0):
            break
        stalled = 0 if slope2 < 0.25 * shortest2 else stalled + 1
        shortest2 = min(shortest2, slope2)

        # 3. The Newton step.  It is damped more after a step that was too long, and less after a step that gained
        #    little.
        if share < 1.0:
            damping = min(1e-9, 10.0 * damping)
        elif stalled > 0:
            damping *= 0.1
        least_weight = min(1e-9, 0.1 * accuracy) / q.size
        step = _newton_step(M, q, mean, downhill, mu, damping, least_weight)

        # 4. Halve the step until phi falls by a quarter of what the slope promises.
        m_step = step @ M
        promise = step @ downhill
        share = 1.0
        while share > 1e-18:
            new_value = phi(np.sum((y + share * step) ** 2), m + share * m_step, new_q)
            if new_value <= value - 0.25 * share * promise + 4.0 * _EPS * abs(value):
                break
            share *= 0.5
        if share <= 1e-18:
            break
        y += share * step
        m += share * m_step
        q[:] = new_q
        value = new_value

    # 5. Keep the alpha of the largest margin.
    y_length = math.sqrt(y @ y)
    if y_length > 0.0 and m.min() > span.lower[0] * y_length:
        span.lower[0] = m.min() / y_length
        alpha[:] = (y / y_length) @ span.weights
    return value


@njit(cache=_CACHE)
def _shortest(K):
    """Return the weights c of a short mixture of points, whose inner products are K: c'Kc is close to its minimum.

    The search begins at the shorter of the first two points.  An exchange moves weight from the point of the largest
    (K c)_j to that of the least (K c)_j, by exact line search.  The theorems need the first exchange to go to the last
    point.
    """
    leaving = 0 if K[0, 0] <= K[1, 1] else 1
    entering = len(K) - 1
    c = np.zeros(len(K))
    c[leaving] = 1.0
    g = K[leaving].copy()  # K c
    for _ in range(1000):
        slope = g[leaving] - g[entering]
        distance2 = K[entering, entering] - 2.0 * K[entering, leaving] + K[leaving, leaving]
        share = min(c[leaving], max(slope, 0.0) / max(distance2, 1e-300))
        c[entering] += share
        c[leaving] -= share
        g += share * (K[entering] - K[leaving])
        entering = g.argmin()
        leaving = np.where(c > 0.0, g, -np.inf).argmax()
        if g[leaving] - g[entering] <= 1e-9 * g[leaving]:
            break
    return c


def _mix(span, u, r):
    """Enter u = Z'q into the columns of the small problem, and find the shortest mixture of the columns."""
    # 1. The first product fills all columns.  A later product becomes the last column, and the oldest product leaves.
    points = span.points
    mixtures = span.mixtures
    if u.size <= 1 + (r > 0.0):
        points[:] = u[:, None]
        mixtures[:] = span.q
    points[:, _FIRST_RECENT:-1] = points[:, _FIRST_RECENT + 1 :]
    mixtures[_FIRST_RECENT:-1] = mixtures[_FIRST_RECENT + 1 :]
    points[:, -1] = u
    mixtures[-1] = span.q

    # 2. The mean of the phase, with weights 1 / r^2.
    if span.mu[0] > 0.0:
        weight = 1.0 / max(r * r, 1e-300)
        span.phase_sum[0] += weight
        share = weight / span.phase_sum[0]
        points[:, _MEAN] += share * (u - points[:, _MEAN])
        mixtures[_MEAN] += share * (span.q - mixtures[_MEAN])

    # 3. The shortest mixture, unless rounding makes it longer than the previous p.
    c = _shortest(points.T @ points)
    x = points @ c
    if x @ x < points[:, _SHORTEST] @ points[:, _SHORTEST]:
        points[:, _SHORTEST] = x
        mixtures[_SHORTEST] = c @ mixtures
        mixtures[_SHORTEST] /= mixtures[_SHORTEST].sum()


def _next_mu(span, mu, gap2, Lambda, least_mu):
    """Return the mu of the next minimum; the proof of Theorem 2 in figures/THEOREMS.md defines the phases.

    The next mu is at most mu, and at most gap2 / Lambda with gap2 = U^2 - L^2, but never below ``least_mu``.  If the
    phase ends by its sum, the next mu is at most half of the mu with which the phase began.  Before the first phase,
    and once mu is ``least_mu``, where only rounding is left, the gap alone determines the next mu.
    """
    if mu <= least_mu:
        mu = math.inf
        span.phase_mu[0] = math.inf
    if span.phase_sum[0] > 9.0 / (Lambda * span.phase_mu[0]):
        mu = min(mu, 0.5 * span.phase_mu[0])
    return max(min(mu, gap2 / Lambda), least_mu)


def _settle(span, alpha, u, r):
    """Solve the problem in the span, after a product u = Z'q: set p, mu, y and q.

    r is the length of the component of u outside the old span.  "Subspace perceptron" in figures/THEOREMS.md has the
    theorems, and the phases in which mu falls.  U and L are the ends of the interval, in units of sqrt(s).
    """
    # 1. Take q into the mixture p; U is the length of Z'p.
    _mix(span, u, r)
    upper2 = span.points[:, _SHORTEST] @ span.points[:, _SHORTEST]

    # 2. Change nothing if only rounding is left: at a mu below ``least_mu`` margins have no correct digits.
    mu = span.mu[0]
    upper = math.sqrt(upper2)
    least_mu = 1e-12 * upper
    is_exhausted = 0.0 < mu <= least_mu and r == 0.0
    if span.y.size == 0 or upper < 1e-16 or is_exhausted:
        return

    # 3. Until the points are separated, minimise with mu = 0.  The first mu after that makes ||mu y|| = U.
    if mu == 0.0:
        _minimize(span, alpha, 0.0, _THETA * upper)
        if not span.lower[0] > 0.0:
            return
        span.mu[0] = math.sqrt(upper2 / (span.y @ span.y))

    # 4. Choose mu.  Below a gap of 1 % the tilt costs more than the theorem promises.
    Lambda = math.log(span.q.size) + _KAPPA
    gap2 = upper2 - span.lower[0] ** 2
    mu = _next_mu(span, mu, gap2, Lambda, least_mu)
    if gap2 <= 0.02 * upper2:
        span.tilt[:] = 0.0

    # 5. Minimise.  Halve mu and minimise again if r is 0, or if the minimum ends the phase and r is short: then the
    #    span already has what matters at this mu.
    while True:
        if mu <= 0.5 * span.phase_mu[0]:
            span.phase_mu[0] = mu
            span.phase_sum[0] = 0.0
        value = _minimize(span, alpha, mu, math.sqrt(Lambda * mu / 32.0))
        ends_phase = mu * value + 0.5 * upper2 <= Lambda * mu
        is_short = 4.0 * r * r <= gap2
        goes_on = r == 0.0 or (ends_phase and is_short)
        if mu <= least_mu or not goes_on:
            return
        mu *= 0.5


def _cut(span):
    """Cut the span down to the span of the shortest mixture, the mean of the phase and the minimiser."""
    span.points[:, _FIRST_RECENT:] = span.points[:, :1]
    span.mixtures[_FIRST_RECENT:] = span.mixtures[_SHORTEST]
    basis = np.linalg.qr(np.column_stack((span.points[1:, :_FIRST_RECENT], span.y)))[0].T
    rows = [basis @ array for array in span[:4]]
    rows.append(np.vstack((span.points[:1], basis @ span.points[1:])))
    for array, kept in zip(span[:5], rows, strict=True):
        array.resize(kept.shape, refcheck=False)
        array[:] = kept
    span.tilt[:] = np.maximum(1.0 - (span.margins**2).sum(axis=0), 0.0)


def _subspace_perceptron_loop(G, k, until, alpha, *arrays_and_parameters):
    """Bring Z'q into the span by one product per iteration; p, mu, y and the next q take no product.

    ``memory`` is the largest number of vectors in the basis.
    """
    count = len(_Span._fields)
    span = _Span(*arrays_and_parameters[:count])
    sqrt_s, memory, negligible, stops, eps = arrays_and_parameters[count:]
    dimension = span.coordinates.shape[1] or G.n
    while k < until:
        # 1. If the span says that the run is done, halt if a fresh product confirms it.  That product is not counted.
        p = span.mixtures[_SHORTEST]
        shortest = span.points[:, _SHORTEST]
        is_short = k > 0 and sqrt_s * math.sqrt(shortest @ shortest) <= eps
        if is_short or (stops and span.lower[0] > 0.0):
            bounds = _interval(G, alpha, p)
            if (stops and bounds.lower > 0.0) or bounds.upper <= eps:
                return k

        # 2. Make room in the basis, make the product, and solve the problem in the span.
        if memory <= span.y.size < min(G.n, dimension):
            _cut(span)
        u, r = _extend(G, span, sqrt_s, negligible)
        _settle(span, alpha, u, r)
        k += 1
    return k


@_algorithm
def subspace_perceptron(
    G: GramLike,
    *,
    eps: float = 0.0,
    memory: float = 1e9,
    stop: str | None = None,
    max_iter: int = 1000,
    **options: Unpack[RunOptions],
) -> Result:
    """Find a separator in few products if margins are small and memory can hold a vector per product.

    After N products the subspace perceptron has a separator, or a certificate ||p||_G = O(ln(n) sqrt(s) / N^(3/2)).

    The method keeps the span V_k of all past products Z'p_j, as an orthonormal basis v_0, ..., v_{k-1}.  After each
    product it solves the problem in V_k again, which takes no product.  The weights are tilted by T_k, the part of each
    row z_i outside the span.  Let lengths be in units of sqrt(s), s = max_i G_ii, let P_k be the projection on V_k, let
    kappa = ln 2 - 1/2, and let mu = 0 until the points are separated.  Then

        phi_k(y) = mu ||y||^2 / 2 + ln sum_i exp(kappa T_k(i) - <z_i, y>)  on V_k,   T_k(i) = 1 - ||P_k z_i||^2,
        p_k = softmax(kappa T_k - Z y_k) for y_k near the minimum,   r_k v_k = Z'p_k - P_k Z'p_k,   ||v_k|| = 1.

    alpha has the weights of the y_k of the largest margin L; they may have either sign.  p is a short mixture of p, of
    the last 14 p_j, and of the mean of the p_j since mu was halved, with weights 1/r_j^2.  From the first separator on,
    mu is at most (U^2 - L^2) / (ln n + kappa), where U = ||p||_G, and the method halves mu whenever the theory allows
    it.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix.
    eps : float
        The run stops as "infeasible" once ||p||_G <= eps.  eps is absolute, not a multiple of sqrt(s); 0 never stops
        the run.
    memory : float
        Bytes for the basis, which always has room for five vectors.  A vector takes 16 n bytes, or 16 n + 8 d with
        features.  The p_j take another 128 n bytes.  Once the basis is full, the span is cut down to the span of p, the
        mean and y_k.  The bounds found so far remain, but the theorems do not hold from there on.
    stop : {None, "separated"}
        None goes on towards the maximum margin; "separated" stops the run once G alpha > 0.
    max_iter : int
        Largest number of updates in this call.
    **options : tol, trace_at, keep_iterates, callback, start; see `RunOptions`

    See Also
    --------
    snkp, momentum : Take of the order of 1 / rho products, and keep no basis.
    max_margin : The exact solver, which is faster if G can give rows.

    Notes
    -----
    Both theorems are proved in "Subspace perceptron" in figures/THEOREMS.md.  In both, ||p||_G, rho, e, lower and upper
    are in units of sqrt(s).

    Theorem 1.  Let R = 2 (ln n + kappa).  After N products either one of y_1, ..., y_N separates the points, or ||p||_G
    <= (R + 1/4) / (0.96 N^(3/2)).  So after floor(((R + 1/4) / (0.96 e))^(2/3)) + 1 products either the points are
    separated, or ||p||_G < e proves that no margin is as large as e.  `snkp` and `momentum` take (8 ln n)^(1/2) / e
    products for that.  Up to logarithms, every deterministic method that uses products with Z alone needs as many
    products as this method on some data (Kornowski & Shamir).

    Theorem 2.  Let rho > 0, rho^2 >= 1e-8 (ln n + kappa), n >= 4 and 0.0101 <= g <= 1/2, and let no r_k be 0 before the
    span holds all points.  Once there is a separator, upper - lower <= g upper within 200 (R^2 / (g rho^2))^(1/3) +
    log2(28 / (g rho^2)) + 1 further products.  From a relative gap of 1.005 % on, the method has no tilt, and the
    theorem claims nothing.

    The theorems are about exact arithmetic.  A component r_k v_k that may be rounding alone does not join the basis:
    with features one with r_k below about 1e-14 (n + d), with a dense G one below about 6e-8 n^(1/2).  Newton steps may
    stop before the gradient is as short as Theorem 1 needs; with features we saw this only at ||p||_G < 1e-8 sqrt(s).

    An iteration costs one product.  In addition, iteration k takes O(k (n + d)) operations, and each of its Newton
    steps takes O(k^2 n).

    References
    ----------
    A. Nemirovski, Izvestia AN SSSR, Tekhnicheskaya Kibernetika 2, 1982 (ORTH); G. Narkiss, M. Zibulevsky, Technion
    report CCIT 559, 2005 (a span of few directions); the lower bound: G. Kornowski, O. Shamir, COLT 2025; other methods
    that meet it: I. Karmarkar, L. O'Carroll, A. Sidford, STOC 2026, and, two with random numbers, COLT 2026.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> result = fm.subspace_perceptron(G, tol=1e-6)
    >>> result.status, result.n_iter, round(result.lower, 5)
    ('certified', 4, 0.92388)
    """
    eps = _number(eps, "eps", closed=True)
    memory = _number(memory, "memory")
    stops = _choice(stop, "stop", ("separated", None)) is not None
    G = _checked(G)
    n = G.n
    has_coordinates = G._has_rows and not G._has_ridge
    d = G._width if has_coordinates else 0
    most = max(5, int(memory / (8.0 * (2 * n + d))))
    return drive(
        G,
        _subspace_perceptron_loop,
        (np.zeros(n), *_new_span(n, d)),
        lambda alpha, *arrays: (alpha, _Span(*arrays).mixtures[_SHORTEST]),
        (math.sqrt(G.scale), most, _negligible(G), stops, eps),
        max_iter=max_iter,
        eps=eps,
        separates=stops,
        **options,
    )


# ------------------------------------------------------------------------------------------------------
# 8.5 other norms
# ------------------------------------------------------------------------------------------------------
#
# The margin in a norm N is the value of a game: w in the ball N(w) <= 1 plays against p in the simplex, and the payoff
# is <w, Z'p>.  The same loops serve all norms.  For several classes, and for rows (n, k, d), w and Z'p are tables, (k,
# d).


class Norm(NamedTuple):
    """Define a norm N of your own by five functions.

    N is a norm of vectors, (d,), or of tables, (k, d).  The dict NORMS has the norms that fastmargin names.

    Attributes
    ----------
    value : callable, w -> N(w), rounded up
    dual : callable, u -> N*(u) = max_{N(v) <= 1} <v, u>, rounded up
    project : callable, w -> argmin_{N(v) <= 1} ||v - w||_2; `steepest_descent` does not use it
    steepest : callable, u -> a v with N(v) <= 1 and <v, u> = N*(u)
    radius : callable, shape -> the largest ||v||_2 over the v of this shape with N(v) <= 1, or a larger number

    See Also
    --------
    norm_margin, steepest_descent : Take a norm.

    Notes
    -----
    Certificates rely on ``value``, ``dual`` and ``radius``: they are false if one of these functions
    returns too small a number.  If your function may round down, multiply what it returns by 1 + 1e-12.

    Examples
    --------
    The norm max_j |w_j| / c_j, whose ball is a box:

    >>> c = np.array([1.0, 2.0])
    >>> box = fm.Norm(
    ...     value=lambda w: 1.000001 * np.abs(w / c).max(),
    ...     dual=lambda u: 1.000001 * np.abs(c * u).sum(),
    ...     project=lambda w: np.clip(w, -c, c),
    ...     steepest=lambda u: c * np.sign(u),
    ...     radius=lambda shape: 5.0**0.5,
    ... )
    >>> round(fm.norm_margin([[1.0, 0.0], [0.0, 1.0]], box, tol=1e-4).upper, 2)  # w = (1, 2)
    1.0
    """

    value: Callable[[Array], float]
    dual: Callable[[Array], float]
    project: Callable[[Array], Array]
    steepest: Callable[[Array], Array]
    radius: Callable[[tuple[int, ...]], float]

    def __repr__(self) -> str:
        for name, norm in NORMS.items():
            if norm is self:
                return f"<Norm {name}>"
        return f"<Norm by {', '.join(self._fields)}>"


def _sum_of_sizes(w):
    return float(np.abs(w).sum()) * (1.0 + _sum_error(w.size + 8))


def _length(w):
    largest = _largest(w) or 1.0  # taken out, so that no square can under- or overflow
    return largest * float(np.linalg.norm(w / largest)) * (1.0 + _sum_error(w.size + 8))


def _largest(w):
    return float(np.abs(w).max())


def _project_l1(w):
    sizes = np.abs(w).ravel()
    if sizes.sum() <= 1.0:
        return w.copy()
    return np.sign(w) * _project_simplex(sizes, sizes).reshape(w.shape)


def _largest_sign(u):
    v = np.zeros_like(u)
    largest = np.abs(u).argmax()
    v.flat[largest] = np.sign(u.flat[largest])
    return v


_L1_NORM = Norm(_sum_of_sizes, _largest, _project_l1, _largest_sign, lambda shape: 1.0)
_LINF_NORM = Norm(
    value=_largest,
    dual=_sum_of_sizes,
    project=lambda w: np.clip(w, -1.0, 1.0),
    steepest=np.sign,
    radius=lambda shape: math.sqrt(math.prod(shape)),
)
_L2_NORM = Norm(
    value=_length,
    dual=_length,
    project=lambda w: w / max(_length(w), 1.0),
    steepest=lambda u: u / max(_length(u), _TINY),
    radius=lambda shape: 1.0,
)


def _singular_values(W):
    """Return the singular values of W rounded up, so that neither their maximum nor their sum is below the true one.

    Proof: Theorem 18, "Singular values, rounded up", in figures/THEOREMS.md.
    """
    W = np.atleast_2d(W)
    U, S, V = np.linalg.svd(W, full_matrices=False)
    error = S.size * _sum_error(max(W.shape) + 16)
    one = np.eye(S.size)
    bend = max(np.linalg.norm(U.T @ U - one), np.linalg.norm(V @ V.T - one)) + error
    residual = np.linalg.norm(W - (U * S) @ V) + error * S[0]
    return (1.0 + 2.0 * bend) * S + 2.0 * residual


def _of_singular_values(norm):
    """Return the norm N(W) = norm(singular values of W)."""

    def through(change):
        def changed(W):
            U, S, V = np.linalg.svd(np.atleast_2d(W), full_matrices=False)
            S[S <= 4.0 * _EPS * max(W.shape) * S[0]] = 0.0  # rounding, which has no direction
            return ((U * change(S)) @ V).reshape(W.shape)

        return changed

    return Norm(
        value=lambda W: norm.value(_singular_values(W)),
        dual=lambda W: norm.dual(_singular_values(W)),
        project=through(norm.project),
        steepest=through(norm.steepest),
        radius=lambda shape: norm.radius((min(shape) if len(shape) > 1 else 1,)),
    )


NORMS = {
    "l1": _L1_NORM,
    "l2": _L2_NORM,
    "linf": _LINF_NORM,
    "spectral": _of_singular_values(_LINF_NORM),
    "nuclear": _of_singular_values(_L1_NORM),
}


@njit(cache=_CACHE)
def _eliminate(L, x):
    """Set x <- A^-1 x by Crout's elimination with exchanges of rows; return False if A is singular.

    L is A when it is given, and is overwritten.  A = L U.  U is stored transposed, so that all sums are over rows.
    """
    n = x.size
    U = np.empty((n, n))
    sums = np.empty(n)
    for j in range(n):
        # 1. Column j of L, whose largest entry becomes the pivot.
        _row_dots(L, j, j, U[j], sums)
        pivot = j
        for i in range(j, n):
            L[i, j] -= sums[i]
            if abs(L[i, j]) > abs(L[pivot, j]):
                pivot = i
        if L[pivot, j] == 0.0:
            return False
        if pivot != j:
            for k in range(n):
                L[j, k], L[pivot, k] = L[pivot, k], L[j, k]
            x[j], x[pivot] = x[pivot], x[j]
        # 2. Row j of U, whose diagonal is 1.
        _row_dots(U, j + 1, j, L[j], sums)
        for i in range(j + 1, n):
            U[i, j] = (L[j, i] - sums[i]) / L[j, j]
        # 3. The entry of L^-1 x.
        x[j] = (x[j] - _dot(L[j, :j], x[:j])) / L[j, j]
    for j in range(n - 1, -1, -1):
        _combine(1.0, x[:j], -x[j], U[j, :j])
    return True


def _solution(A, b):
    """Return A^-1 b, or an array of NaN if A is singular; A may be overwritten."""
    if len(A) ** 3 >= 3 * _SHORT:
        try:
            return np.linalg.solve(A, b)
        except np.linalg.LinAlgError:
            return np.full(b.size, np.nan)
    x = b.copy()
    return x if _eliminate(A, x) else np.full(b.size, np.nan)


class _Play(NamedTuple):
    """A pair of strategies (w, p), and their products with Z."""

    w: np.ndarray
    p: np.ndarray  # (n,)
    m: np.ndarray  # (n,) Z w
    u: np.ndarray  # Z'p, of the shape of w


class _Game(NamedTuple):
    """The rows z_i as a Gram, and the norm.  The rows of pairs are those of `pair_gram` times sqrt(2)."""

    G: Gram
    norm: Norm
    shape: tuple  # of w
    scale: float  # 2 for pairs, otherwise 1: Z w is `scale` times what G._margins returns
    power: float  # a power of two: G has the rows z_i / power, whose lengths are at most 1
    # A bound on the rounding error of <z_i, w> / ||w||_2 and of the length of Z'p, both divided by `power`
    error: float

    def margins(self, w):
        return self.scale * self.G._margins(w.ravel())

    def image(self, p):
        return self.G._lift(p).reshape(self.shape)

    def play(self, w, p):
        return _Play(w, p, self.margins(w), self.image(p))

    def longest_row(self):
        """Return a bound on all N*(z_i)."""
        length = self.power * math.sqrt(self.scale * float(self.G.diagonal().max()))
        return self.norm.radius(self.shape) * length

    def rows(self, index):
        """Return some z_i, divided by `power`, as an array."""
        return math.sqrt(self.scale) * self.G.coordinates(index)

    def bracket(self, play):
        """Return the `Bounds` of w and p, rounded outwards."""
        w, p, m, u = play
        radius = self.norm.radius(self.shape)
        total = float(p.sum()) * (1.0 - _sum_error(p.size + 16))
        upper = float(self.norm.dual(u)) / total + self.error * radius
        lower = 0.0  # the lower end of w = 0
        size = float(self.norm.value(w))
        if size > 0.0:
            least = float(m.min()) - self.error * float(np.linalg.norm(w))
            lower = max(lower, least / size * (1.0 - _LAST))
        if lower > upper:
            raise ValueError(
                f"norm violates weak duality, {lower:g} <= rho <= {upper:g}: its value, dual or radius returns too "
                "small a number; round up what they return"
            )
        blur = 2.0 * self.power * self.error * radius
        return Bounds(self.power * lower, self.power * upper, blur)

    def interval(self, G, w, p, precise):
        """Return the `bracket` of fresh products, for `drive`."""
        if w.any():
            w = _unit_range(w.ravel()).reshape(w.shape)
        return self.bracket(self.play(w, p))


def _signed_rows(Z, labels):
    """Return the checked rows, (n, d), and the shape of one z_i; tables are returned as rows of k d entries."""
    dimensions = 2 if _is_sparse(Z) else _dimensions(Z)
    if isinstance(Z, list | tuple) and dimensions == 2:
        dimensions = 1 + _dimensions(Z[0])
    if dimensions != 3:
        if dimensions not in (None, 2):
            raise ValueError(
                f"Z must have shape (n, d), or (n, k, d) for signed tables; got {np.shape(Z)}"
            )
        rows = _points(Z, "Z")
        return rows, rows.shape[1:]
    if labels is not None:
        raise ValueError(
            f"labels cannot go with Z of shape {np.shape(Z)}, which holds tables that have their signs already: leave "
            "labels out, or give points of shape (n, d)"
        )
    tables = _array(Z, "Z", 3, _POINTS)
    return np.ascontiguousarray(tables.reshape(len(tables), -1)), tables.shape[1:]


def _norm_game(Z, norm, labels, n_classes=2):
    """Return the `_Game` of the rows Z, or of the pairs of points Z and labels, with at least n_classes classes."""
    if not isinstance(norm, Norm):
        norm = NORMS[_choice(norm, "norm", tuple(NORMS))]
    rows, shape = _signed_rows(Z, labels)
    store = _store_of_rows(rows)
    _normalizers(store.squares, None, "Z")  # refuses rows that are too long or too short
    power = 2.0 ** math.frexp(math.sqrt(float(store.squares.max())))[1]
    G = Gram._over(store, d=store.width, _c=np.full(store.n, 1.0 / power))
    scale = 1.0
    if labels is not None:
        n_classes = max(
            n_classes, 1 + int(_vector(_known_labels(labels, "labels"), "labels").max())
        )
        G = pair_gram(G, labels, n_classes)
        shape = (n_classes, *shape)
        scale = 2.0
    G = _checked(G)
    error = 1.01 * scale * G.rounding().margins * math.sqrt(G.scale)
    return _Game(G, norm, shape, scale, power, error)


def _given_separator(w, name, game):
    """Check the separator w that a user gives, and return it in float64."""
    w = _array(w, name, len(game.shape)).astype(np.float64)
    if w.shape != game.shape:
        remedy = f": give {name}.T" if w.shape == game.shape[::-1] else ""
        if w.shape == (*game.shape[:-1], game.shape[-1] + 1):
            remedy = (
                ": for a bias, which the norm then counts, append a column of ones to the points"
            )
        raise ValueError(f"{name} must have shape {game.shape}, got {w.shape}{remedy}")
    return w


def _given_play(start, game):
    """Return (w, p) of a start=(w, p), with w divided by N(w) and p by its sum."""
    if not (isinstance(start, tuple | list) and len(start) == 2):
        raise TypeError(
            "start must be a Result, or a pair (w, p) of a separator and weights of the rows, such as "
            f"(result.alpha, result.p); got {type(start).__name__}"
        )
    w = _given_separator(start[0], "w of start", game)
    p = _distribution(start[1], "p of start", game.G.n)
    if w.any():
        w = _unit_range(w.ravel()).reshape(w.shape)
        w /= game.norm.value(w)
    return w, p / p.sum()


_EXPLICIT = 64  # explicit steps at the beginning, which shrink the support of p, unless w is given
_SYSTEMS = 40  # an implicit step is given up after so many Newton steps
_LARGEST_SYSTEM = 1500  # unknowns of a Newton step
_LARGEST_TABLE = 1 << 25  # entries of the rows that a Newton step reads
_LONGEST = 1e7  # the largest sqrt(tau sigma) ||Z||: beyond, rounding would hide the identity
_WARM = 100.0  # sqrt(tau sigma) ||Z|| of the first step from a given w and p; this step is implicit
# Entries of a pace: sqrt(tau sigma) ||Z||, the products so far, and the iterations before the first implicit step
_LENGTH, _PRODUCTS, _FIRST = range(3)


def _explicit_step(game, play, tau, sigma):
    """Return the play after a primal-dual step (Chambolle & Pock 2011)."""
    w = game.norm.project(play.w + tau * play.u)
    m = game.margins(w)
    p = play.p - sigma * (2.0 * m - play.m)
    _project_simplex(p, p)
    return _Play(w, p, m, game.image(p))


def _implicit_step(game, play, tau, sigma, pace):
    """Solve w = P(w_0 + tau Z'p), p = P_Delta(p_0 - sigma Z w) by semismooth Newton steps, from the play (w_0, p_0).

    P is the projection onto the ball N <= 1, and P_Delta the projection onto the simplex.  Return the new play, or None
    if the equations are too large or a step does not shorten the residual.
    """
    norm = game.norm
    ratio = math.sqrt(tau / sigma)

    def reply(w):
        """Return the play of w, with x = w_0 + tau Z'p, P(x), and the residual w - P(x)."""
        m = game.margins(w)
        p = play.p - sigma * m
        _project_simplex(p, p)
        u = game.image(p)
        pace[_PRODUCTS] += 1.0
        x = play.w + tau * u
        v = norm.project(x)
        return _Play(w, p, m, u), x, v, w - v

    new, x, v, residual = reply(play.w)
    for _ in range(_SYSTEMS):
        # 1. Stop once the residual is short compared to the move.  With a looser bound some runs cycled.
        length = np.linalg.norm(residual)
        move = max(np.linalg.norm(new.w - play.w), ratio * np.linalg.norm(new.p - play.p))
        if length <= 1e-3 * move:
            return new

        # 2. The derivative of p is -sigma times the rows of its support, with their mean taken out.
        support = np.flatnonzero(new.p)
        unknowns = min(support.size, x.size)
        if unknowns > _LARGEST_SYSTEM or support.size * x.size > _LARGEST_TABLE:
            return None
        rows = game.rows(support)
        rows -= rows.mean(axis=0)
        has_few = support.size <= x.size
        directions = rows
        if not has_few:
            columns = np.ascontiguousarray(rows.T)
            directions = _table_product(columns, columns)

        # 3. The derivative of P along these directions, by difference quotients.
        images = np.empty_like(directions)
        spacing = 1e-7 * np.linalg.norm(x)
        for direction, image in zip(directions, images, strict=True):
            h = spacing / max(np.linalg.norm(direction), _TINY)
            image[:] = (norm.project(x + h * direction.reshape(x.shape)) - v).ravel() / h

        # 4. The Newton step.  The unknowns are rows @ step if the support is small, and otherwise the step itself.
        r = residual.ravel()
        system = _table_product(rows, images) if has_few else images.T.copy()
        system *= tau * sigma
        system.flat[:: len(system) + 1] += 1.0
        known = _table_product(rows, r[None])[:, 0] if has_few else r
        solution = _solution(system, -known)
        step = -r
        _combine_rows(images, np.arange(len(images)), -tau * sigma * solution, step)
        step = step.reshape(x.shape)

        # 5. Halve the step until the residual is shorter.
        share = 1.0
        trial = reply(new.w + step)
        while not np.linalg.norm(trial[-1]) <= (1.0 - 0.1 * share) * length:
            share *= 0.5
            if share < 0.05:
                return None
            trial = reply(new.w + share * step)
        new, x, v, residual = trial
    return None


def _norm_margin_loop(
    G, k, until, w, p, m, u, best_w, best_p, best_m, best_u, pace, game, size, tol, eps
):
    """Make explicit steps at first, and then proximal point steps; ``best`` has the w and the p with the best
    bounds."""
    norm = game.norm
    play = _Play(w, p, m, u)
    best = _Play(best_w, best_p, best_m, best_u)
    lower, upper, *_ = game.bracket(best)
    while k < until and upper > eps and not (k > 0 and _is_closed(lower, upper, tol)):
        # 1. tau / sigma balances the length of w, scaled to N(w) = 1, with that of p.
        length = norm.radius(game.shape)
        if play.w.any():
            length = np.linalg.norm(play.w) / norm.value(play.w)
        balance = length / np.linalg.norm(play.p)

        # 2. The step.  If Newton's method fails, an explicit step replaces it, and the next implicit step is shorter.
        new = None
        if k >= pace[_FIRST]:
            begin = pace[_PRODUCTS]
            stride = pace[_LENGTH] / size
            new = _implicit_step(game, play, stride * balance, stride / balance, pace)
            if new is None:
                pace[_LENGTH] = max(1.0, 0.25 * pace[_LENGTH])
            elif pace[_PRODUCTS] - begin < 8.0:
                pace[_LENGTH] = min(1.5 * pace[_LENGTH], _LONGEST)
        if new is None:
            new = _explicit_step(game, play, balance / size, 1.0 / (balance * size))
            pace[_PRODUCTS] += 1.0
        k += 1

        # 3. Keep the better bounds.
        new_lower, new_upper, *_ = game.bracket(new)
        for target, source in zip(play, new, strict=True):
            target[:] = source
        if new_lower > lower:
            lower = new_lower
            best.w[:] = new.w
            best.m[:] = new.m
        if new_upper < upper:
            upper = new_upper
            best.p[:] = new.p
            best.u[:] = new.u
    return k


@_algorithm
def norm_margin(
    Z: Any,
    norm: str | Norm,
    *,
    labels: ArrayLike | None = None,
    eps: float | None = None,
    max_iter: int = 1000,
    tol: float | None = 1e-6,
    start: Result | tuple[ArrayLike, ArrayLike] | None = None,
    **options: Unpack[_Options],
) -> Result:
    """Find the largest margin in the norm of an optimiser: "l1", "l2", "linf", "spectral", "nuclear", or your own.

    The largest margin of the signed rows z_i in the norm N, and its dual, are

        rho_N = max_{N(w) <= 1} min_i <z_i, w> = min_{p in Delta} N*(Z'p),   N*(u) = max_{N(v) <= 1} <v, u>.

    Optimisers tend to the largest margin in their own norms: sign descent in "linf", coordinate descent and boosting in
    "l1", gradient descent in "l2", spectral descent and Muon in "spectral" (Fan, Schmidt & Thrampoulidis 2025), and
    Adam without its epsilon in "linf" (Zhang, Zou & Cao 2024).

    Parameters
    ----------
    Z : array or SciPy sparse matrix or array, shape (n, d); array, shape (n, k, d)
        The signed rows z_i = y_i x_i, or the points x_i if ``labels`` are given.  Rows of shape (n, k, d) are signed
        tables: then w is a table, (k, d), and <z_i, w> is the sum of the products of their entries.
    norm : {"l1", "l2", "linf", "spectral", "nuclear"} or Norm
        "spectral" is the largest singular value of a table w, and "nuclear" is the sum of its singular values; for a
        vector both are ||w||_2.  "l1", "l2" and "linf" are norms of the entries, so that "l2" of a table is the
        Frobenius norm.
    labels : array, shape (n,), optional
        Classes y_i, integers from 0 to k - 1.  If they are given, w is a table, (k, d), the margin is
        min_{i, j != y_i} <w_{y_i} - w_j, x_i>, and p has a weight for each pair (i, j), as in `pair_gram`; the rows z_i
        are those of the pairs.  Leave labels out if Z holds signed tables.
    eps : float, optional
        The run stops as "infeasible" once upper <= eps.  The default is 1e-9 R max_i ||z_i||_2, where R is the radius
        of the ball N <= 1, the largest ||v||_2 with N(v) <= 1.
    max_iter : int
        Largest number of updates in this call.
    tol : float, optional
        The run stops as "certified" once upper - lower <= tol * upper.
    start : Result or (w, p), optional
        A Result to go on from, see `RunOptions`, or a pair to begin with, see the Notes.
    **options : trace_at, keep_iterates, callback; see `RunOptions`

    See Also
    --------
    max_margin : The solver for "l2" and for kernels.
    steepest_descent : The descent that tends to this margin.
    norm_certificate : The interval that any w and p prove.

    Notes
    -----
    alpha is the separator w.  0 <= lower <= rho_N <= upper, because w = 0 is allowed.  The first 64 iterations are
    primal-dual steps (Chambolle & Pock 2011).  After them iteration k is, if possible, a proximal point step,

        w_{k+1} = P(w_k + tau_k Z'p_{k+1}),   p_{k+1} = P_Delta(p_k - sigma_k Z w_{k+1}),

    where P projects onto the ball N <= 1, and P_Delta onto the simplex.  Semismooth Newton steps solve these equations,
    until the residual is 1e-3 of the move.  Rockafellar (1976) proves convergence for exact steps; we claim no rate.
    tau_k sigma_k grows while few Newton steps are needed, and tau_k / sigma_k balances the lengths of w and p.  If the
    equations are too large or Newton's method fails, iteration k is a primal-dual step.  A Newton step takes one or a
    few products with Z and Z', and a table of the rows that support p.

    If the columns of Z have very different units, the method takes many steps, as every first-order method does:
    standardise the columns.  If many points bound the margin, for example because labels are wrong, "l1" and "linf" are
    slow.  These two margins are linear programs, and a solver of linear programs may then be several times as fast.
    There is no bias.  A column of the y_i in Z adds one, and N includes it.

    *Labels and signs.* If ``labels`` name two classes, w has the rows w_0 and w_1, and N includes both.  Compared to
    the margin of the signed rows, the margin is 2^(1/2) times as large in "l2", twice as large in "linf", and the same
    in "l1".  In "l2" it is 2^(1/2) times the margin of `pair_gram`.

    *Weights as start.*  ``start=(w, p)`` begins a new run with w / N(w) and p, such as the alpha and the p of another
    epoch of a training run, with the same number of rows.  The first step of this run is a long proximal point step.

    References
    ----------
    C. Fan, M. Schmidt, C. Thrampoulidis, NeurIPS 2025, arXiv 2502.04664; A. Chambolle, T. Pock, Journal of Mathematical
    Imaging and Vision 40, 2011; R. T. Rockafellar, SIAM Journal on Control and Optimization 14, 1976.

    Examples
    --------
    >>> result = fm.norm_margin([[3.0, 1.0], [1.0, 2.0]], "linf")
    >>> result.status, round(result.lower, 5), result.alpha.round(5)  # w = (1, 1)
    ('certified', 3.0, array([1., 1.]))

    Signed tables, and a start with the w and the p of a similar problem:

    >>> Z = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
    >>> table = fm.norm_margin(Z, "nuclear")
    >>> round(table.lower, 5), fm.norm_margin(1.01 * Z, "nuclear", start=(table.alpha, table.p)).n_iter
    (1.5, 0)
    """
    weights = None
    if not (start is None or _is_result(start)):
        weights = start
        start = None
    game = _norm_game(Z, norm, labels)
    begin = time.perf_counter()
    if eps is None:
        eps = 1e-9 * game.longest_row()
    eps = _number(eps, "eps", closed=True)
    if tol is not None:
        tol = _number(tol, "tol")
    largest, products = _operator_norm(game.G)
    n = len(game.G)
    if weights is None:
        p = np.full(n, 1.0 / n)
        w = np.array(game.norm.steepest(game.image(p)), dtype=np.float64)
        pace = np.array([1.0, products + 1.0, _EXPLICIT])
    else:
        w, p = _given_play(weights, game)
        pace = np.array([_WARM, products + 1.0, 0.0])
    play = game.play(w, p)
    # The certificate may differ from the bounds of the loop in the last digit.
    aim = 0.0 if tol is None else (1.0 - 1e-9) * tol
    return drive(
        game.G,
        _norm_margin_loop,
        (*play, *map(np.copy, play), pace),
        lambda *state: (state[4], state[5]),
        (game, math.sqrt(game.scale * largest), aim, eps),
        max_iter=max_iter,
        tol=tol,
        start=start,
        eps=eps,
        products=lambda k: float(pace[_PRODUCTS]),
        interval=game.interval,
        spent=time.perf_counter() - begin,
        **options,
    )


def norm_certificate(
    Z: Any,
    norm: str | Norm,
    w: ArrayLike,
    p: ArrayLike,
    *,
    labels: ArrayLike | None = None,
) -> tuple[float, float]:
    """Prove an interval around rho_N, the largest margin in a norm N as in `norm_margin`, from any w and p.

    Parameters
    ----------
    Z, norm : as in `norm_margin`
    w : array, shape (d,), or (k, d) with tables or labels
        Any separator, such as the weights of a trained layer.  k may be larger than the number of classes that labels
        name.
    p : array, shape (n,), or one entry for each pair if labels are given
        Weights of at least 0; they are divided by their sum.
    labels : as in `norm_margin`

    Returns
    -------
    lower, upper : float
        max(min_i <z_i, w> / N(w), 0) and N*(Z'p), rounded outwards.

    Raises
    ------
    ValueError, TypeError
        Z, norm or labels is not as in `norm_margin`, w or p has a wrong shape, or p is not in the simplex.

    See Also
    --------
    certificate : The interval in the norm of a kernel.

    Examples
    --------
    >>> lower, upper = fm.norm_certificate([[3.0, 1.0], [1.0, 2.0]], "linf", [1.0, 0.5], [0.0, 1.0])
    >>> round(lower, 6), round(upper, 6)
    (2.0, 3.0)
    """
    n_classes = 2
    if labels is not None:
        n_classes = max(2, len(_array(w, "w", 2)))
    game = _norm_game(Z, norm, labels, n_classes)
    w = _given_separator(w, "w", game)
    p = _distribution(p, "p", len(game.G))
    return game.interval(game.G, w, p, False)[:2]


def _descent_weights(m, logistic, q):
    """Set q to the weights of the rows in the gradient of the risk at the margins m, divided by their sum."""
    if logistic:
        _logistic_weights(m, 0.0, q)
        q /= q.sum()
    else:
        _softmax(m, q)


def _steepest_descent_loop(G, k, until, w, m, q, mean, p, game, logistic, decay, step, momentum):
    """Go along the steepest direction for the running mean of Z'q; p is the sum of theta q / N*(Z'q)."""
    norm = game.norm
    while k < until:
        u = game.image(q)
        mean *= momentum
        mean += (1.0 - momentum) * u
        theta = step / (k + 1.0) ** decay
        w += theta * norm.steepest(mean)
        p += theta * q / max(norm.dual(u), _EPS)
        m[:] = game.power * game.margins(w)
        _refuse_overflow(m, place=f" at iteration {k + 1}")
        _descent_weights(m, logistic, q)
        k += 1
    return k


@_algorithm
def steepest_descent(
    Z: Any,
    norm: str | Norm,
    *,
    labels: ArrayLike | None = None,
    step: float = 1.0,
    schedule: str = "sqrt",
    momentum: float = 0.0,
    loss: str = "exp",
    max_iter: int = 1000,
    tol: float | None = None,
    start: Result | ArrayLike | None = None,
    **options: Unpack[_Options],
) -> Result:
    """Run sign, spectral or coordinate descent, and certify how close its margin is to the largest in its norm.

    This is normalised steepest descent in any norm N:

        w <- w + theta_t argmax_{N(v) <= 1} <v, g_t>,   g_t = Z'q_t,   w_0 = 0.

    q_t is proportional to the l'(-<z_i, w>) and has the sum 1, so that -g_t is proportional to the gradient of the risk
    sum_i l(-<z_i, w>).  "l2" is gradient descent, "linf" sign descent, "l1" coordinate descent (boosting), and
    "spectral" spectral descent.  With momentum "linf" is signum, and "spectral" is Muon.

    Parameters
    ----------
    Z, norm, labels : as in `norm_margin`
    step : float
        Step length, above 0, in units of 1/(R sqrt(s)), where s = max_i ||z_i||_2^2, and R is the radius of the ball
        N <= 1.
    schedule : {"sqrt", "constant"}
        "sqrt" is theta_t = step / sqrt(t + 1), "constant" is theta_t = step.
    momentum : float
        At least 0 and below 1.  If it is above 0, g_t is the running mean momentum g_{t-1} + (1 - momentum) Z'q_t.
    loss : {"exp", "logistic"}
        l(z) = e^z, or l(z) = ln(1 + e^z).
    max_iter : int
        Largest number of updates in this call.
    tol : float, optional
        The run stops as "certified" at the first checkpoint with upper - lower <= tol * upper.
    start : Result or array, optional
        A Result to go on from, see `RunOptions`, or a w to begin with, see the Notes.
    **options : trace_at, keep_iterates, callback; see `RunOptions`

    See Also
    --------
    norm_margin : Finds the largest margin, to which this descent tends.
    normalized_gradient_descent : Descent in "l2" for any G, with divide_by="norm".
    winnow : Multiplicative updates on the simplex, not in the ball of "l1".

    Notes
    -----
    alpha is w, and p is the mean of the q_t with weights theta_t / N*(Z'q_t).  With schedule="sqrt" the margin tends to
    rho_N, and the gap is of order 1 / sqrt(t) up to logarithms (Fan, Schmidt & Thrampoulidis 2025).  An iteration costs
    one product.  `winnow` is not the entropy case of this method: it moves by the row of least margin, and its w is in
    the simplex.

    *Weights as start.*  ``start=w`` begins a new run at t = 0 with w_0 = w, of shape (d,) or (k, d), such as a trained
    layer or the alpha of other rows.  q_0 belongs to the margins of this w.

    References
    ----------
    C. Fan, M. Schmidt, C. Thrampoulidis, NeurIPS 2025, arXiv 2502.04664.

    Examples
    --------
    >>> result = fm.steepest_descent([[3.0, 1.0], [1.0, 2.0]], "linf")
    >>> result.alpha.round(3), round(result.lower, 2), round(result.upper, 2)
    (array([13.819, 13.819]), 3.0, 3.05)
    """
    logistic = _choice(loss, "loss", ("exp", "logistic")) == "logistic"
    decay = _DECAYS[_choice(schedule, "schedule", tuple(_DECAYS))]
    step = _number(step, "step")
    momentum = _number(momentum, "momentum", closed=True)
    if momentum >= 1.0:
        raise ValueError(f"momentum must be below 1, got {momentum:g}")
    given = None
    if not (start is None or _is_result(start)):
        given = start
        start = None
    game = _norm_game(Z, norm, labels)
    n = len(game.G)
    w, mean = np.zeros((2, *game.shape))
    m, p = np.zeros((2, n))
    q = np.full(n, 1.0 / n)
    if given is not None:
        w = _given_separator(given, "start", game)
        m[:] = game.power * game.margins(w)
        _refuse_overflow(m, place=" at the start")
        _descent_weights(m, logistic, q)
    return drive(
        game.G,
        _steepest_descent_loop,
        (w, m, q, mean, p),
        lambda w, m, q, mean, p: (w, p),
        (game, logistic, decay, step / game.longest_row(), momentum),
        max_iter=max_iter,
        tol=tol,
        start=start,
        interval=game.interval,
        **options,
    )


# ======================================================================================================
# 9 exact solver
# ======================================================================================================
#
# Scale.  The weights alpha >= 0 have p = alpha / sum alpha.  Margins are in units of s: m = G alpha / s.  The length of
# point i is length_i = sqrt(G_ii / s), so that the longest point has length 1, until `begin` moves the origin.
#
# Problem.  Minimise alpha' m / 2 - sum alpha over alpha >= 0; then p has the least ||p||_G in the simplex.  At the
# minimum m_i = 1 if alpha_i > 0, and m_i >= 1 otherwise; a point with m_i < 1 is a violator.  The best multiple of an
# alpha is the one with alpha' m = sum alpha.  Its relative gap is 1 - min_i m_i, and ||p||_G = sqrt(s / sum alpha).
#
# In points of length 1 the same problem is: minimise x'Hx / 2 - b'x over x >= 0, with x_i = alpha_i length_i,
# b_i = 1 / length_i and H_ij = G_ij / (s length_i length_j), so that H_ii = 1.  Its gradient is
# g_i = (m_i - 1) / length_i.
#
# With a cost, alpha_i <= s C_i holds as well.  The best multiple is then that of the dual objective, at which no weight
# exceeds its cost.  The relative gap takes the primal objective at the same multiple.  `certificate` looks for the best
# multiple of the primal, so that its gap is at most as large; at the optimum both are the same.
#
# Methods.  An iteration of the loop, `_max_margin_loop`, runs one method of `_METHODS` on the problem, and the driver
# certifies what the method leaves:
#
#     descent        steps on one weight after another, over rows with slacks; over pairs, on all weights of one point
#     Newton steps   in the coordinates of the separator, if every point has slacks
#     clipped pairs  with a cost: pair steps within bounds, in single precision, on working sets
#     small faces    Newton steps on the faces of a working set, with an updated Cholesky factor: for few points, and
#                    first for a hard margin whose entries are evaluated or whose intercept is free
#     pair steps     in single precision, on a working set that takes in violators until none is left
#     low rank       Newton steps by conjugate gradients, with a preconditioner of low rank
#     large faces    Newton steps on faces of a larger support
#     clipped faces  with a cost: Newton steps on faces of few points, with a new factor each time
#
# With a cost, `_polish` follows every method: a Newton step on the face of the points between 0 and their cost, if they
# are few.
#
# A method returns "next" if it knows that another run of it cannot help, and otherwise "again".  The method runs again
# if it returned "again" and the iteration has gained.  Otherwise the next method of the list runs that takes the
# problem.  The run ends at the end of the list.

# Limits and shares.  After a semicolon a comment says what other values did: "64 x1.07" says
# that the value 64 takes 1.07 times as long, as a geometric mean over the problems on which it made a difference; reads
# and iterations changed by similar factors.  We measured 33 problems of 50 to 5,000 points: pairs of MNIST digits with
# rbf, linear and polynomial kernels, blobs, and noisy labels; hard and soft margins; dense, by rows, sparse, on demand,
# and pairs of a point and a wrong class; some with a free intercept.

# Sizes:
#   number of unknowns up to which solving the equations at once is faster than steps on one unknown after another;
#   64 x1.07 (up to x2.6), 1,024 x1.29 (up to x3.3)
_FEW = 256
#   largest support for which faces keep a factor in double precision, which takes half a minute
_LARGEST_FACE = 6000
#   most points whose matrix is kept in single precision: 1.6 GB
_LARGEST_SET = 20_000
#   share of a working set that the support may take, so that violators have room
_FULL = 0.75
#   least number of violators that may join at a time, if a quarter of the set, or at first half of it, is less.  More
#   make fewer turns of larger sets; 24 x1.03, 384 x1.14
_FEWEST_VIOLATORS = 96
#   most points of pairs, and most rows with more columns than rows, whose matrix is kept in double precision: 0.13 GB
_FEW_POINTS = 4000
#   coordinates in which Newton steps solve equations must be fewer: 0.07 GB, and a second per step
_MOST_COORDINATES = 3000
#   most entries of features, of sparse rows, or of pairs, that are written to memory with their zeros: 0.5 GB
_WRITTEN_DOWN = 1 << 26
#   most entries of the columns that are kept of a kernel on demand: 0.25 GB
_KEPT = 1 << 25
#   the low rank has this times sqrt(2 r) features, if a product reads r entries per point, r = n / 2 for a kernel.
#   More take fewer products and larger equations; n = 50,000 and C = 1: 8 x1.29
_LANDMARKS = 5
#   least ridge, in units of the largest G_ii without ridge, that conjugate gradients and descent can take
_LEAST_RIDGE = 1e-8

# Goals:
#   share of tol that a run aims at, so that the certificate has room for rounding; 0.5 x1.02 to x1.07, 0.95 x1.00
_AIM = 0.8
#   share of eps at which a witness is taken, so that ||p||_G^2 and the error (eps / 1.5)^2 of rounding stay below eps^2
_WITNESS = 0.63
#   ||p||_G / sqrt(s) that ends a run as "infeasible", if squares are sums over coordinates
_EPS_OF_ROWS = 1e-9
#   ||p||_G / sqrt(s) that ends a run, if squares are computed from entries: 2 sqrt(2^-52).  Over pairs of rows, more
#   precise products prove it, and the run ends as "infeasible"; the entries of a matrix have too few digits for that
_EPS_OF_ENTRIES = 3e-8
#   share of the gap, or of the worst violation, that steps on a set leave.  Less takes more steps and fewer products;
#   0.03 x1.00, 0.3 x1.1
_LEFT = 0.1
#   an iteration has gained if it multiplies the gap or the norm by less than this, or lower / upper by more than its
#   inverse; 0.95 x1.00
_GAINED = 0.9
#   pair steps are slow if they leave more than this share of the gap, and then other methods follow; 0.1 and 0.6 made a
#   difference to few problems, up to x1.3
_CLOSER = 0.3
#   share of the duality gap, and of the goal, that conjugate gradients leave on the active points, before other points
#   become active; 0.05 and 0.2 up to x13.  With several classes, share of the squared residual
_ACTIVE_SHARE = 0.01

# Work:
#   steps per point of a set, before all margins are computed again.  More steps take fewer products.  Pair steps: 1
#   x1.05 and 16 x1.07 for stored entries, 128 up to x3.9 for others.  Changes of the face: 1 to 20 made a difference of
#   5 % to one problem
_STEPS_PER_POINT = 8
#   sweeps of working sets over all points in an iteration, if no set can hold the support.  More sweeps take fewer
#   certificates; 1 x1.02
_SWEEPS = 4
#   entries of factors that an iteration reads, roughly: Ctrl-C and callbacks wait at most 10 s
_LONGEST_WALK = 10**10
#   first size of a set of clipped steps, which grows if more than half of it is between 0 and the cost; 20,000 up to
#   x10 for pairs of several classes, 2,000 up to x2
_CLIPPED_SET = 5000
#   clipped steps per point
_CLIPPED_STEPS = 100
#   a set of clipped steps shrinks once fewer than this share of its points may move
_SHRINKS = 0.7
#   turns of descent in an iteration; after each turn all margins are computed again
_TURNS = 8
#   passes over the active points in a turn; more passes take fewer products
_PASSES = 5
#   limit of passes in a turn over the entries of few points; 10 x1.6 if 4 % of the points are active
_MOST_PASSES = 100
#   descent goes on if its rate of convergence would close the gap within so many iterations
_ITERATIONS_LEFT = 5
#   limit of Newton steps, and of conjugate gradient steps in each, so that every run ends
_MOST_NEWTON_STEPS = 200
#   limit of steps, or of turns, in a row without a smaller gap
_PATIENT_STEPS = 10
#   seconds after which a run warns that it takes long
_SILENCE = 20.0
#   multiplications in the search for the coordinates of a separator, after a run: about a second
_LONGEST_SEARCH = 2 * 10**9

# Penalties of a free bias:
#   k of `_Problem.begin`.  With a larger k origins settle faster and digits are lost; 5 x1.13, 80 x1.07
_BIAS_PENALTY = 20.0
#   penalty in descent, over the median of ||x_i||^2.  With a larger one the bias settles faster and takes more steps;
#   1 x2, 0.01 x1
_SMALL_PENALTY = 0.1


_FINITE = _FAST | {"nnan"}  # for loops over finite numbers that choose by comparing


# ------------------------------------------------------------------------------------------------------
# 9.1 problem
# ------------------------------------------------------------------------------------------------------


class _Aims(NamedTuple):
    """The goals of a run.

    gap : the `_relative_gap` of all points
    set_gap : the `_relative_gap` of a working set; points with smaller violations do not join the set
    eps : the ||p||_G / sqrt(s), over `_Problem.reach` of p, at which the run ends; the driver then takes p as a proof
    that there is no margin, unless rounding is too large, see `_proof_of_no_margin`
    """

    gap: float
    set_gap: float
    eps: float

    def after(self, gap):
        """Return the aims of an iteration that begins with this gap: the iteration leaves at most half of the gap.

        If the gap is small enough already, the run goes on because the certificate has refused it.
        """
        gap = min(self.gap, 0.5 * gap)
        return self._replace(gap=gap, set_gap=0.5 * gap)

    def are_met_by_witness(self, problem, alpha, m):
        """Return True if alpha proves that there is no margin, whatever rounding may add to its norm."""
        norm = math.sqrt(max(_dot(alpha, m), 0.0))
        return norm <= _WITNESS * self.eps * problem.reach(alpha)


def _aims(problem, tol):
    """Return the `_Aims` of a run with this tol."""
    # The part of ||p||_G that rounding may hide, in units of sqrt(s)
    hidden = math.sqrt(problem.G.rounding().square)
    eps = _EPS_OF_ROWS if hidden == 0.0 else _EPS_OF_ENTRIES
    eps *= math.sqrt(problem.base_scale / problem.scale)
    if hidden > 0.0 and not problem.has_precise_products:
        eps = max(eps, 1.5 * hidden)
    if problem.cost is not None:
        eps = -1.0  # with a cost there always is a margin
    if problem.has_every_ridge:  # rho is at least (sum_i 1 / r_i)^(-1/2)
        eps = min(eps, 0.5 / math.sqrt((problem.scale / problem.ridge).sum()))
    return _Aims(gap=_AIM * tol, set_gap=0.5 * _AIM * tol, eps=eps)


class _Problem:
    """G as the solver scales it; the solver reads entries, columns and products of it, and it counts what is read.

    With a free intercept and without a cost, the solver reads G + h y' + y h' in place of G, where h belongs to an
    origin that `begin` chooses.

    Attributes
    ----------
    G, scale : the Gram and s
    n, diagonal, ridge : the number of points, the G_ii, and the r_i, which are 0 without a ridge
    has_ridge, has_every_ridge : True if some r_i is not 0; True if no r_i is 0
    cost : the largest alpha_i, which are s C_i, or None without a cost
    base : G without its ridge and its free intercept
    base_scale : the largest entry of base
    is_of_pairs : True if base has pairs
    is_sparse, is_on_demand : True if base, or the points of its pairs, have sparse rows; a kernel evaluated on demand
    has_precise_products : True if base computes products in more than double precision
    is_in_coordinates : True if Newton steps solve equations in the coordinates of the separator
    takes_products : True if conjugate gradients can solve the equations of Newton steps, by products
    descent : how steps on one weight after another read this problem, a key of ``_DESCENTS``, or None if they cannot
    free_labels : y if the intercept is free, else None
    shift : h, or None for 0, as before `begin` and after `finish`
    origin_weights, penalty : the v of the origin Z'v, and the k, that `begin` chose; None and 0.0 before
    sides : index arrays of points, each of which has the same share of the weight: all points, or the two classes
    lengths : the length_i of the G that is read
    relative_lengths : the lengths that rounding errors of G are relative to, see `Rounding`
    reads : array of one entry, an estimate of the number of entries of G that have been read; a product counts as n^2,
        even if it reads half of a matrix, and a step on one weight as n
    matrix : the entries of base if it has at most 4,000 rows, and at least as many columns; else None
    adder : what `_adder` returns, which keeps columns, or None
    last : the last product (v, v'Gv, G v), or None
    kept : what `_at_hand` returned last, or (None, None)
    turns : the number of calls of `gap`
    end_of_silence : the time, on the clock of `time.monotonic`, at which the run warns that it takes long; inf
    afterwards
    """

    def __init__(self, G, scale):
        self.G = G
        self.scale = scale
        self.n = G.n
        self.diagonal = G.diagonal()
        self.ridge = G._spread(G.ridge)
        self.has_ridge = bool(self.ridge.any())
        self.has_every_ridge = bool(self.ridge.all())
        self.cost = G.cost * scale if G._has_cost else None
        self.base = G._alone()
        self.base_scale = float(self.base.diagonal().max())
        points = _points_gram(self.base)
        store = points._values
        self.is_of_pairs = _is_pairs(G)
        self.is_sparse = isinstance(store, _SparseRows)
        self.is_on_demand = isinstance(store, _OnDemand)
        self.has_precise_products = (
            store.precise_products or type(points)._precise is not Gram._precise
        )
        self.free_labels = G.free_labels
        self.shift = None
        self.origin_weights = None
        self.penalty = 0.0
        self.sides = [np.arange(self.n)]
        if self.free_labels is not None:
            self.sides = [np.flatnonzero(self.free_labels == sign) for sign in (1.0, -1.0)]
        self.lengths = np.sqrt(self.diagonal / scale)
        self.relative_lengths = G._relative_lengths()
        self.reads = np.zeros(1)
        self.adder = _adder(self.base)
        self.last = None
        self.kept = (None, None)
        self.turns = 0
        self.end_of_silence = math.inf
        # What the methods of the list ask of a problem
        has_enough = self.ridge.min() >= _LEAST_RIDGE * self.base_scale
        is_narrow = points._has_rows and points._width <= _FEW
        width = self.base._width if self.base._has_rows else math.inf
        if not self.is_of_pairs:
            has_few = _has_few_coordinates(self.base)
        elif self.cost is None:
            has_few = _has_few_coordinates_a_class(self.base)
        else:  # the equations are those of all classes at once
            has_few = width <= _FEW and _has_few_coordinates(self.base)
        # Products with wide sparse rows are cheaper than equations.
        has_few = has_few and width < self.n and (is_narrow or not self.is_sparse)
        self.is_in_coordinates = has_few and (self.has_every_ridge or self.cost is not None)
        fits = not self.is_on_demand or _is_in_single_range(points)
        self.takes_products = has_enough and fits and not self.is_in_coordinates
        self.descent = None
        by_rows = isinstance(store, _Rows) and store.work <= _WRITTEN_DOWN
        has_enough_slacks = has_enough or self.cost is not None
        if self.n > _FEW and not (self.is_in_coordinates and is_narrow):
            if not self.is_of_pairs:
                self.descent = "rows" if by_rows and has_enough_slacks else None
            else:
                is_large = self.n > _LARGEST_SET
                is_cheap = points.n > _FEW_POINTS or store.work <= points.n**2
                has_entries = store.access != "products" and points.n <= _FEW_POINTS
                # For three classes with a cost clipped pairs are faster.
                has_many_costs = self.cost is not None and self.base.store.n_classes > 3
                if by_rows and is_cheap and (has_enough_slacks or is_large):
                    self.descent = "rows of points"
                elif has_entries and (has_enough or is_large or has_many_costs):
                    self.descent = "entries"

    @functools.cached_property
    def matrix(self):
        """The entries of base if it has at most 4,000 rows, and at least as many columns; else None."""
        base = self.base
        n = self.n
        if not isinstance(base.store, _Rows) or n > min(base._width, _FEW_POINTS):
            return None
        every = np.arange(n)
        return _frozen(base.block(every, every))

    def block(self, rows, columns):
        """Return the entries of G in these rows and columns."""
        if self.matrix is None:
            return self.G.block(rows, columns)
        of_ridge = self.ridge[columns] * (rows[:, None] == columns)
        return self.matrix[rows[:, None], columns] + of_ridge

    def begin(self, alpha, m):
        """Forget what earlier iterations read, so that a run can be cut between any two iterations; move a free origin.

        alpha and m must be as `finish` leaves them.  With a free intercept the new origin o = Z'v lies on the plane of
        alpha, midway between the classes.  The solver reads G from this origin and adds k y y' to it, which penalises
        the bias at o: k = 20 max(median_i ||x_i - o||^2 + min_i r_i, 2^-52 s).  Lemma 2, "The origin of a free
        intercept", in figures/THEOREMS.md says how fast the origin settles.
        """
        self.adder = _adder(self.base)
        self.last = None
        if self.free_labels is None or self.cost is not None:
            return
        y = self.free_labels
        # 1. The plane of alpha: its margins without the ridge, and the bias.  `finish` has added the best bias to m, so
        #    that only what rounding leaves of the bias is left.
        separator_margins = m * self.scale - self.ridge * alpha
        b = _best_bias(y, m) * self.scale
        norm2 = alpha @ separator_margins
        to_plane = 0.0
        if norm2 > _EPS * self.scale:
            to_plane = ((y * alpha) @ separator_margins + b) / norm2
        # 2. The origin on it.  With h = ||o||^2 y / 2 - Z o, <z_i - y_i o, z_j - y_j o> = G_ij + h_i y_j + y_i h_j.
        v = (y - to_plane) * alpha
        scaled = _unit_range(v)  # v may be long if rounding hides the plane
        largest = np.abs(v).argmax()
        of_origin = self.product(scaled)[1] * (v[largest] / scaled[largest]) - self.ridge * v
        self.shift = 0.5 * (v @ of_origin) * y - of_origin
        self.origin_weights = v
        # 3. The penalty of the bias; rounding may leave as little as ``least`` of ||x_i - o||^2.
        reaches = self.relative_lengths + self.reach(np.abs(v))
        least = 8.0 * self.G.rounding().margins * self.scale * reaches**2
        squares = np.maximum(self.diagonal - self.ridge + 2.0 * y * self.shift, least)
        middle = np.partition(squares, self.n // 2)[self.n // 2]
        # The last term keeps the penalty above 0 if half of the points lie at the origin and one has no ridge.
        self.penalty = _BIAS_PENALTY * max(middle + self.ridge.min(), _EPS * self.scale)
        self.shift += 0.5 * self.penalty * y
        self.lengths = np.sqrt(np.maximum(self.diagonal + 2.0 * y * self.shift, least) / self.scale)
        # Make m that of the shifted G. The plane goes through o and y'alpha = 0, so that the shift adds the bias b
        # alone.
        m += b / self.scale * y

    def finish(self, alpha, m):
        """Scale alpha to p, and compute m again, from the origin of G."""
        for side in self.sides:
            alpha[side] /= len(self.sides) * alpha[side].sum()
        if self.free_labels is None:
            self.refresh(alpha, m)
            return
        alpha[:] = _balanced(alpha, self.free_labels)
        self.shift = None
        self.last = None
        self.refresh(alpha, m)
        m += _best_bias(self.free_labels, m) * self.free_labels

    def from_shift(self, points, weights, at=slice(None)):
        """Return what h y' + y h' adds, at the points ``at``, to a product with the weights of some points."""
        if self.shift is None:
            return 0.0
        y = self.free_labels
        h = self.shift
        return h[at] * (y[points] @ weights) + y[at] * (h[points] @ weights)

    def gap(self, alpha, m):
        """Return the relative gap of these weights; after some time, warn once that the run takes long.

        The time counts from the second call on, because by then the first method has been compiled.
        """
        self.turns += 1
        if self.turns == 2:
            self.end_of_silence = time.monotonic() + _SILENCE
        elif time.monotonic() > self.end_of_silence:
            self.end_of_silence = math.inf
            has_slacks = self.has_ridge or self.cost is not None
            _warn(
                f"max_margin has run for {_SILENCE:g} s: give {'a smaller C' if has_slacks else 'a finite C'} or a "
                "larger tol for a shorter run, or a callback to see the interval"
            )
        if self.cost is not None:
            return _gap_with_cost(alpha, m, self.cost, self.free_labels)
        return _relative_gap(alpha, m, self.ridge / self.scale)

    def place(self, points, start, H, divisors):
        """Set H_ab <- G_ij / (s divisors_i divisors_j) among the points, from row and column ``start`` on."""
        h = np.zeros(points.size)
        y = h
        if self.shift is not None:
            h = self.shift[points]
            y = self.free_labels[points]
        factors = 1.0 / (divisors[points] * math.sqrt(self.scale))
        step = max(1, _AT_ONCE // points.size)
        for first in range(start, points.size, step):
            stop = min(first + step, points.size)
            block = self.block(points[first:stop], points[:stop])
            _place_block(block, h, y, factors, first, H)
            self.reads[0] += block.size
        _mirror(start, points.size, H)

    def product(self, v):
        """Return (v'Gv, G v), with G itself, for ||v||_1 <= 1; keep the result.

        If there is an adder, the product adds the columns of the support.
        """
        if self.last is not None and np.array_equal(v, self.last[0]):
            return self.last[1:]
        if self.adder is None:
            norm2, image, _ = self.G._measured(v)
        else:
            image = np.zeros(self.n)
            support = np.flatnonzero(v)
            self.adder(support, v[support], image)
            norm2 = float(_dot(v, image))
            if self.has_ridge:
                of_ridge = self.ridge * v
                norm2 += sum(_precise_dot(of_ridge, v))
                image += of_ridge
        self.last = (v, norm2, image)
        return norm2, image

    def refresh(self, alpha, m):
        """Set m to G alpha / s."""
        if not alpha.any():
            m[:] = 0.0
            return
        columns = np.count_nonzero(alpha) if self.adder else self.n
        self.reads[0] += self.n * columns
        v = _unit_range(alpha)
        image = self.product(v)[1] + self.from_shift(slice(None), v)
        m[:] = image * (alpha.max() / v.max() / self.scale)

    def reach(self, p):
        """Return sum_i p_i l_i for the relative lengths l_i: ||p||_G counts as small if it is small compared to
        this."""
        return float(p @ self.relative_lengths)

    def change(self, alpha, m, points, weights):
        """Give some points new weights and update m, or compute m again if that reads no more columns.

        Bring alpha and m to the best multiple, and return ||p||_G / sqrt(s); with a cost change no multiple and return
        0.
        """
        moves = weights - alpha[points]
        alpha[points] = weights
        moved = np.flatnonzero(moves)
        has_columns = self.adder is not None or self.matrix is not None
        if has_columns and moved.size < np.count_nonzero(alpha):
            self.reads[0] += self.n * moved.size
            points = points[moved]
            moves = moves[moved] / self.scale
            if self.adder is not None:
                self.adder(points, moves, m)
            else:
                m += moves @ self.matrix[points]
            m[points] += self.ridge[points] * moves
            m += self.from_shift(points, moves)
        else:
            self.refresh(alpha, m)
        return _rescale(alpha, m) if self.cost is None else 0.0

    def rescale(self, alpha, m):
        """Bring alpha and m to the best multiple; return ||p||_G / sqrt(s), or 0 with a cost."""
        if self.cost is None:
            return _rescale(alpha, m)
        t = _dual_multiple(alpha, m, self.cost)
        alpha *= t
        m *= t
        self.snap(alpha)
        return 0.0

    def snap(self, alpha):
        """Set weights to their cost if only rounding keeps them below it."""
        np.copyto(alpha, self.cost, where=alpha >= self.cost * (1.0 - 1e-12))


def _dual_multiple(alpha, m, cost):
    """Return the t of the largest dual objective at which no t alpha_i exceeds its cost C_i."""
    used = alpha > 0.0
    if not used.any():
        return 1.0
    largest = float((cost[used] / alpha[used]).min())
    total = float(alpha.sum())
    norm2 = float(_dot(alpha, m))
    return total / norm2 if largest * norm2 > total else largest


def _gap_with_cost(alpha, m, cost, y):
    """Return 1 - lower / upper at the best multiple of alpha in the dual, which bounds the gap of a certificate."""
    t = _dual_multiple(alpha, m, cost)
    norm2 = t * t * float(_dot(alpha, m))
    _, pull = _least_hinge_loss(t * m, cost, y)
    primal = 0.5 * norm2 + float(pull @ (1.0 - t * m))
    dual = t * float(alpha.sum()) - 0.5 * norm2
    return 1.0 - math.sqrt(max(dual, 0.0) / primal) if primal > 0.0 else math.inf


@njit(cache=_CACHE, fastmath=_FAST)
def _place_block(block, h, y, factors, first, H):
    """Set H_ab <- (G_ij + h_i y_j + y_i h_j) c_i c_j among points, for a block of G whose first row is
    a = ``first``."""
    for k in range(block.shape[0]):
        a = first + k
        out = H[a]
        for b in range(block.shape[1]):
            entry = block[k, b] + (h[a] * y[b] + y[a] * h[b])
            out[b] = entry * factors[a] * factors[b]


@njit(cache=_CACHE, fastmath=_FAST)
def _relative_gap(alpha, m, ridge):
    """Return 1 - lower / upper for the interval that the best multiple of alpha proves; m = G alpha.

    As in `certificate`, lower comes from the least margin.  If every point has a ridge and all m_i > 0, lower may also
    come from the best slacks; the narrower interval counts.  ``ridge`` is in the units of m / alpha.
    """
    total = 0.0
    norm2 = 0.0
    low = np.inf
    least = np.inf
    for i in range(alpha.size):
        total += alpha[i]
        norm2 += alpha[i] * m[i]
        low = min(low, m[i])
        least = min(least, ridge[i])
    if not norm2 > 1e-300 * total * total:
        return np.inf
    t = total / norm2
    gap = 1.0 - t * low
    if not (low > 0.0 and least > 0.0):
        return gap
    # The share is (the objective of w with its slacks - the dual objective of alpha) / (the objective of w).
    difference = 0.0
    objective = 0.0
    for i in range(alpha.size):
        a = t * alpha[i]
        of_w = t * m[i] - ridge[i] * a
        slack = max(0.0, 1.0 - of_w)
        error = slack - ridge[i] * a
        difference += 0.5 * error * error / ridge[i] + a * max(of_w - 1.0, 0.0)
        objective += 0.5 * (a * of_w + slack * slack / ridge[i])
    share = difference / objective
    if share < 1.0:
        gap = min(gap, share / (1.0 + math.sqrt(1.0 - share)))  # 1 - sqrt(1 - share)
    return gap


def _rescale(alpha, m):
    """Bring alpha and m to the best multiple; return ||p||_G / sqrt(s)."""
    total = float(alpha.sum())
    norm2 = _dot(alpha, m)
    # Below this ||p||_G^2 the multiple may overflow.  total * total may overflow, too, unless the small factor comes
    # first.
    if not norm2 > 1e-300 * total * total:
        return 0.0
    alpha *= total / norm2
    m *= total / norm2
    return math.sqrt(norm2) / total


def _adder(G):
    """Return a function ``add(index, weights, m)`` that sets m <- m + sum_k weights_k G e_index_k, for distinct points.

    Return None if columns cost as much as products.
    """
    if isinstance(G.store, _Matrix):
        return functools.partial(_add_columns_of_matrix, G)
    if isinstance(G.store, _OnDemand):
        return functools.partial(_add_kept_columns, G, {})
    return None


def _add_by_product(G, index, weights, m):
    v = np.zeros(G.n)
    v[index] = weights
    m += G @ v


def _add_columns_of_matrix(G, index, weights, m):
    if 2 * len(index) > m.size:  # more than a product, which reads half of G
        _add_by_product(G, index, weights, m)
    else:
        scaled = weights * _at(G._c, index)
        total = np.zeros(m.size)
        _combine_rows(G.store.matrix, index, scaled, total)
        m += G._signed_sums(total, scaled)


def _add_kept_columns(G, kept, index, weights, m):
    """Add columns of G.  The dictionary ``kept`` keeps those that it has room for, so that they are evaluated once."""
    is_new = np.array([i not in kept for i in index.tolist()], dtype=bool)
    if 2 * np.count_nonzero(is_new) > G.n:  # a product evaluates half of G
        _add_by_product(G, index, weights, m)
        return
    new = index[is_new]
    for some in _slices(max(0, min(new.size, _KEPT // G.n - len(kept))), G.n):
        kept.update(zip(new[some].tolist(), G.block(new[some], np.arange(G.n)), strict=True))
    is_left = np.array([i not in kept for i in index.tolist()], dtype=bool)
    for i, weight in zip(index[~is_left].tolist(), weights[~is_left].tolist(), strict=True):
        _combine(1.0, m, weight, kept[i])
    if is_left.any():
        _add_by_product(G, index[is_left], weights[is_left], m)


def _has_few_coordinates(base):
    """Return True if Newton steps can work on the rows of a G without ridge: the equations and the rows are small.

    With their zeros the rows must fit into 0.5 GB, or have no more entries than a product reads.
    """
    if not base._has_rows:
        return False
    d = base._width
    return d < _MOST_COORDINATES and base.n * d <= max(base.store.work, _WRITTEN_DOWN)


def _has_few_coordinates_a_class(pairs):
    """Return True if Newton steps can work on the rows of the points: the matrices of all classes are small as well."""
    pairs = pairs.store
    if not _has_few_coordinates(pairs.K):
        return False
    return pairs.n_classes * pairs.K._width**2 <= _WRITTEN_DOWN


class _SingleBlocks:
    """Blocks of a G that is evaluated on demand, for some of its points, in single precision.

    Attributes
    ----------
    kernel : Kernel
    points : the prepared points
    c : signs times normalisers
    offset : the square of the constant feature
    """

    def __init__(self, G, points):
        self.kernel = G.kernel
        self.points = G.store.prepared.take(points).astype(np.float32)
        self.c = G._spread(G._c)[points].astype(np.float32)
        self.offset = G._constant**2

    def product(self, rows, columns, v):
        """Return the block times v, summed in double precision; if ``rows is columns``, half of it is evaluated."""
        points = self.points.take(rows)
        others = points if rows is columns else self.points.take(columns)
        weights = self.c[columns] * v.astype(np.float32)
        sums = self.kernel.sums(weights[None], others, points)[0]
        return self.c[rows] * (sums + self.offset * weights.sum(dtype=np.float64))


_SAMPLE_OF_RANGE = 16  # points whose entries are evaluated in both precisions


def _is_in_single_range(K):
    """Return True if entries evaluated in single precision are right to 1e-3 at a few points."""
    diagonal = K.diagonal()
    spread = np.linspace(0, diagonal.size - 1, _SAMPLE_OF_RANGE).astype(np.int64)
    some = np.unique(np.append(spread, diagonal.argmax()))
    wanted = K.block(some, some).sum(axis=1, dtype=np.float64)
    with np.errstate(all="ignore"):
        every = np.arange(some.size)
        found = _SingleBlocks(K, some).product(every, every, np.ones(some.size))
    return bool((np.abs(found - wanted) <= 1e-3 * diagonal.max() * some.size).all())


# ------------------------------------------------------------------------------------------------------
# 9.2 working sets
# ------------------------------------------------------------------------------------------------------


def _widened(A, size):
    """Return a square array of that many rows that begins with A."""
    wider = np.empty((size, size), A.dtype)
    wider[: len(A), : len(A)] = A
    return wider


def _violations(alpha, m, lengths):
    """Return max(-g, min(g, x)), or -g if x = 0, which also orders the points that do not violate."""
    g = (m - 1.0) / lengths
    return np.where(alpha > 0.0, np.maximum(-g, np.minimum(g, alpha * lengths)), -g)


def _with_least_margins(points, m, divisor, below, largest):
    """Return the points of a set and those of least m_i < below that join it.

    At most 1 / divisor of the set joins at a time, or `_FEWEST_VIOLATORS` if that is more.  The set has at most
    ``largest`` points.
    """
    most = min(max(_FEWEST_VIOLATORS, points.size // divisor), max(0, largest - points.size))
    outside = m.copy()
    outside[points] = np.inf
    found = np.flatnonzero(outside < below)
    found = np.sort(found[np.argsort(m[found])[:most]])
    return np.append(points, found)


def _matrix_among(problem, points, placed, H, largest):
    """Return H among these points; the given H is that among the first ``placed`` of them.

    If H has too few rows, it gets room for more points, up to ``largest``.
    """
    if points.size > len(H):
        room = max(points.size, min(3 * points.size // 2 + 64, largest))
        H = _widened(H[:placed, :placed], room)
    problem.place(points, placed, H, problem.lengths)
    return H


def _first_working_set(problem, alpha, m, H, largest):
    """Return (points, H): all points if they are few, else the support and points of least margin.

    The points of least margin are half as many as the support, or `_FEWEST_VIOLATORS` if that is more.  A support of
    one point per side says nothing about the solution yet, and some points drawn evenly from all points join it.  If
    the support is too large for a set of ``largest`` points, the worst violators replace it.  H grows if it has too few
    rows.
    """
    if problem.n <= _FEW:
        every = np.arange(problem.n)
        return every, _matrix_among(problem, every, 0, H, problem.n)
    support = np.flatnonzero(alpha)
    points = support
    if support.size <= len(problem.sides):  # nothing is known yet
        points = np.union1d(support, np.arange(0, problem.n, -(-problem.n // _FEWEST_VIOLATORS)))
    if points.size > _FULL * largest:
        violations = _violations(alpha, m, problem.lengths)
        most = min(_LARGEST_FACE, largest, problem.n)
        points = np.sort(np.argpartition(violations, -most)[-most:])
    points = _with_least_margins(points, m, 2, math.inf, largest)
    return points, _matrix_among(problem, points, 0, H, largest)


# ------------------------------------------------------------------------------------------------------
# 9.3 pair steps
# ------------------------------------------------------------------------------------------------------
#
# A step goes to the minimum in two coordinates i and j.  i is the worst violator.  With r = H_ij, the pair gains
# (g_j - g_i r)^2 / (1 - r^2) more than i alone, and j has the largest such gain.  The code replaces 1 / (1 - r^2) by
# (1 + r^2) (1 + r^4), and g_j - g_i r by at most x_j, since x_j cannot fall by more.  If a bound stops the pair, the
# minimum is on the edge x_i = 0 if g_i >= 0 there, and otherwise on the edge x_j = 0.


_VECTOR = 64  # scores whose maximum compiles to vector instructions


@register_jitable
def _argmax(scores, n):
    """Return the index of the largest of n scores >= 0; after the scores the array has at least `_VECTOR` zeros.

    Maxima over stretches of `_VECTOR` scores compile to vector instructions.
    """
    place = 0
    top = np.float32(0.0)
    for start in range(0, n, _VECTOR):
        most = np.float32(0.0)
        for k in range(start, start + _VECTOR):
            most = max(most, scores[k])
        if most > top:
            place = start
            top = most
    while scores[place] < top:
        place += 1
    return place


@njit(cache=_CACHE, fastmath=_FINITE)
def _pair_steps(H, x, g, moves, lengths, ridge, target, most):
    """Make at most ``most`` pair steps, until the gap is ``target``; return how many.

    x, g and ``moves`` change in place; g is the gradient.  ``moves`` adds up the changes of x, because x may be so
    large that rounding hides them.
    """
    n = x.size
    zero = np.float32(0.0)
    one = np.float32(1.0)
    scores = np.zeros(n + _VECTOR, dtype=np.float32)
    period = max(16, n // 8)  # number of steps after which the gap is computed
    i = 0
    j = 0
    move_i = zero
    move_j = zero
    for step in range(most + 1):
        # 1. Bring g up to date and find the worst violator i.
        row_i = H[i]
        row_j = H[j]
        for k in range(n):
            slope = g[k] + (move_i * row_i[k] + move_j * row_j[k])
            g[k] = slope
            scores[k] = max(-slope, min(slope, x[k]))
        i = _argmax(scores, n)
        if step == most or not scores[i] > zero:
            break
        if step > 0 and step % period == 0:
            if _relative_gap(x / lengths, 1.0 + g * lengths, ridge) <= target:
                break
        # 2. Find the j with which i gains most.
        row_i = H[i]
        slope_i = g[i]
        x_i = x[i]
        for k in range(n):
            r = row_i[k]
            fall = min(g[k] - slope_i * r, x[k])
            r2 = r * r
            scores[k] = fall * fall * (one + r2) * (one + r2 * r2)
        scores[i] = zero
        j = _argmax(scores, n)
        r = zero
        slope_j = zero
        x_j = zero
        if scores[j] > zero:
            r = row_i[j]
            slope_j = g[j]
            x_j = x[j]
        # 3. Go to the minimum of the pair, within the bounds.
        shrink = one / max(one - r * r, np.float32(1e-6))
        move_i = (r * slope_j - slope_i) * shrink
        move_j = (r * slope_i - slope_j) * shrink
        if x_i + move_i < zero or x_j + move_j < zero:
            move_i = -x_i
            move_j = max(-x_j, r * x_i - slope_j)
            if slope_i + move_i + r * move_j < zero:
                move_i = max(-x_i, r * x_j - slope_i)
                move_j = -x_j
        x[j] = max(x[j] + move_j, zero)
        x[i] = max(x_i + move_i, zero)
        moves[j] += move_j
        moves[i] += move_i
    return step


def _solve_by_pair_steps(H, lengths, ridge, alpha, m, target, most):
    """Make at most ``most`` pair steps on a working set, until its gap is ``target``; return (new weights, steps).

    H is in single precision.  The other arrays have the points of the working set, are in double precision, and do not
    change.
    """
    with np.errstate(over="ignore"):
        x = (alpha * lengths).astype(np.float32)
        g = ((m - 1.0) / lengths).astype(np.float32)
    moves = np.zeros(lengths.size, np.float32)
    steps = _pair_steps(H, x, g, moves, lengths, ridge, target, most)
    if not np.isfinite(x).all():
        # For single precision the numbers are too large, or the rows too similar.
        return alpha, most
    return np.where(x > 0.0, np.maximum(alpha + moves / lengths, 0.0), 0.0), steps


def _by_pair_steps(problem, aims, alpha, m, gap):
    """Make pair steps on a working set that takes in violators until none is left.

    If the support is too large for the set, the weights outside the set do not change.
    """
    # The system allocates rows only as they are written.  The extra columns keep the distance of rows from being a
    # power of 2, which is bad for caches.
    room = min(problem.n, _LARGEST_SET)
    H = np.empty((room, room + 16), np.float32)
    points, H = _first_working_set(problem, alpha, m, H, _LARGEST_SET)
    is_complete = False  # True if no point outside the set is a violator
    slow_turns = 0
    best = gap
    points_left = _SWEEPS * problem.n
    while True:
        # 1. Solve on the working set, and bring all margins up to date.
        size = points.size
        # A factor for faces costs as much as size / 3 steps per point.  Pair steps may take a twentieth of that.
        most = max(_STEPS_PER_POINT, size // 64) * size
        aim = max(aims.set_gap, _LEFT * gap)
        ridge = problem.ridge[points] / problem.scale
        given = (problem.lengths[points], ridge, alpha[points], m[points])
        weights, steps = _solve_by_pair_steps(H, *given, aim, most)
        if not 0.0 < weights.sum() < math.inf:
            return "next"
        problem.change(alpha, m, points, weights)
        gap = problem.gap(alpha, m)
        if gap <= aims.gap or aims.are_met_by_witness(problem, alpha, m):
            return "again"
        # 2. The worst violators join the set.  If the set has no room for them, they make another set.
        support = np.count_nonzero(alpha)
        if support > _FULL * _LARGEST_SET or size >= _LARGEST_SET:
            if problem.takes_products:
                return "next"
            points_left -= size
            if points_left <= 0:
                return "again"
            points, H = _first_working_set(problem, alpha, m, H, _LARGEST_SET)
        else:
            slow_turns += (is_complete or steps >= most) and gap > _CLOSER * best
            if slow_turns == 2:
                return "next"
            points = _with_least_margins(points, m, 4, 1.0 - aims.set_gap, _LARGEST_SET)
            H = _matrix_among(problem, points, size, H, _LARGEST_SET)
            is_complete = points.size == size
        best = min(best, gap)


# ------------------------------------------------------------------------------------------------------
# 9.4 clipped pairs
# ------------------------------------------------------------------------------------------------------
#
# With a cost, 0 <= alpha_i <= s C_i, and y'alpha = 0 if the intercept is free.  In this part the symbols are:
#
#     x_i         y_i alpha_i
#     low, high   the bounds of x: 0 and s C_i if y_i = 1, -s C_i and 0 if y_i = -1
#     H_ij        y_i y_j G_ij / s
#     v_i         y_i (1 - m_i), which is minus the gradient
#
# A step raises x_i and lowers x_j by the same amount, as far as their bounds allow, so that the sum of x stays as it
# is.  Until the minimum is reached, the largest v_i whose x_i may rise exceeds the least v_j whose x_j may fall; the
# bias lies between these two, and their difference is the violation of this pair.  Without a free intercept all y_i are
# 1, and one more x, which has no row and no bounds, balances the sum of the others.

# The size of a mask, which is added to v.  Compiled code might take the product of a mask and a large number for 0.
_FAR = np.float32(1e30)


@njit(cache=_CACHE, fastmath=_FINITE)
def _clipped_steps(H, x, v, low, high, most_violation, most):
    """Make at most ``most`` steps on pairs within bounds, until no pair violates by more than ``most_violation``.

    Return (number of steps, worst violation).

    x, in double precision, and v change in place.
    """
    n = x.size
    zero = np.float32(0.0)
    two = np.float32(2.0)
    flat = np.float32(1e-6)
    least = np.float32(1e-30)
    scores = np.zeros(n + _VECTOR, np.float32)
    rises = np.empty(n, np.float32)  # 0 if x may rise, else -_FAR
    falls = np.empty(n, np.float32)  # 0 if x may fall, else _FAR
    diagonal = np.empty(n, np.float32)
    for k in range(n):
        rises[k] = zero if x[k] < high[k] else -_FAR
        falls[k] = zero if x[k] > low[k] else _FAR
        diagonal[k] = H[k, k]
    i = 0
    j = 0
    move = zero
    worst = zero
    for step in range(most + 1):
        # 1. Bring v up to date and find the i that violates most.
        row_i = H[i]
        row_j = H[j]
        floor = _FAR
        for k in range(n):
            slope = v[k] - move * (row_i[k] - row_j[k])
            v[k] = slope
            floor = min(floor, slope + falls[k])
        for k in range(n):
            scores[k] = max(v[k] + rises[k] - floor, zero)
        i = _argmax(scores, n)
        worst = scores[i]
        if step == most or not worst > most_violation:
            break
        # 2. Find the j with which i gains most.
        row_i = H[i]
        v_i = v[i]
        square_i = diagonal[i]
        for k in range(n):
            fall = max(v_i - v[k] - falls[k], zero)
            squares = square_i + diagonal[k]
            scores[k] = fall * fall / max(squares - two * row_i[k], flat * squares + least)
        j = _argmax(scores, n)
        # 3. Go to the minimum of the pair, within the bounds.
        squares = square_i + diagonal[j]
        curvature = max(squares - two * row_i[j], flat * squares + least)
        rise = high[i] - x[i]
        fall_j = x[j] - low[j]
        t = min(np.float64(v_i - v[j]) / np.float64(curvature), min(rise, fall_j))
        x[i] = high[i] if t >= rise else x[i] + t
        x[j] = low[j] if t >= fall_j else x[j] - t
        rises[i] = zero if x[i] < high[i] else -_FAR
        falls[i] = zero
        rises[j] = zero
        falls[j] = zero if x[j] > low[j] else _FAR
        move = np.float32(t)
    return step, worst


def _ends_of_pairs(x, v, low, high):
    """Return the largest v_i whose x_i may rise, and the least v_i whose x_i may fall."""
    return v.max(where=x < high, initial=-np.inf), v.min(where=x > low, initial=np.inf)


def _may_move(x, v, low, high):
    """Return a mask of the x that may be in a violating pair at the current v."""
    top, floor = _ends_of_pairs(x, v, low, high)
    return ((x < high) & (v >= floor)) | ((x > low) & (v <= top))


def _solve_by_clipped_pairs(H, x, v, low, high, most_violation, most):
    """Return x after about ``most`` steps on pairs, or fewer if none violates by more than ``most_violation`` before.

    The steps are over fewer and fewer points.
    """
    x = x.copy()
    points = np.arange(x.size)
    # Subtract the bias from v, so that single precision has the digits of the differences.
    v = (v - np.clip(0.5 * sum(_ends_of_pairs(x, v, low, high)), -_FAR, _FAR)).astype(np.float32)
    inside = (x.copy(), v, low, high)
    total = 0
    while True:
        steps, worst = _clipped_steps(
            H, *inside, np.float32(most_violation), max(1000, points.size)
        )
        total += steps
        x[points] = inside[0]
        if worst <= most_violation or steps == 0 or total > most:
            return x
        stays = _may_move(*inside)
        if np.count_nonzero(stays) < _SHRINKS * points.size:
            points = points[stays]
            H = np.ascontiguousarray(H[np.ix_(stays, stays)])
            inside = tuple(part[stays] for part in inside)


def _odds(gap):
    """Return (upper - lower) / lower for a relative gap; it tells gaps near 1 apart."""
    return gap / (1.0 - gap) if gap < 1.0 else math.inf


def _worst_pairs(x, v, low, high, most):
    """Return at most ``most`` of the x that may move: the worst violators, and any x without bounds."""
    may_move = _may_move(x, v, low, high)
    points = np.flatnonzero(may_move)
    if points.size <= most:
        return points
    top, floor = _ends_of_pairs(x, v, low, high)
    violations = np.maximum(np.where(x < high, v - floor, 0.0), np.where(x > low, top - v, 0.0))
    violations[np.isinf(high)] = np.inf
    return np.sort(points[np.argpartition(-violations[points], most)[:most]])


def _box(problem, alpha, m, points=slice(None)):
    """Return (signs, x, v, low, high) of some points; the signs are y, or 1 without a free intercept."""
    signs = np.ones(problem.n) if problem.free_labels is None else problem.free_labels
    signs = signs[points]
    ends = signs * problem.cost[points]
    x = signs * alpha[points]
    v = signs * (1.0 - m[points])
    return signs, x, v, np.minimum(ends, 0.0), np.maximum(ends, 0.0)


def _by_clipped_pairs(problem, aims, alpha, m, gap):
    """Make clipped pair steps on points that may move, until none violates; the first set is spread over all points."""
    n = problem.n
    signs, x, v, low, high = _box(problem, alpha, m)
    # The last x has no row; without a free intercept it has no bounds either.
    end = math.inf if problem.free_labels is None else 0.0
    x = np.append(x, 0.0)
    v = np.append(v, 0.0)
    low = np.append(low, -end)
    high = np.append(high, end)
    room = min(n, _CLIPPED_SET)
    H = np.zeros((room + 1, room + 17), np.float32)
    placed = np.empty(0, np.int64)
    points = np.append(np.arange(room) * n // room, n)
    most_violation = min(0.1, 100.0 * aims.gap)
    most = _CLIPPED_STEPS * n  # then margins are computed again: single precision loses digits
    best = _odds(gap)
    patience = _PATIENT_STEPS
    while True:
        # 1. Make steps on these points, and compute all margins.
        if not np.isin(points, placed).all():
            rows = points[points < n]
            problem.place(rows, 0, H, signs)
            H[rows.size] = 0.0
            H[:, rows.size] = 0.0
            placed = np.append(rows, n)
        places = np.searchsorted(placed, points)
        Q = H if places.size == len(H) else H[np.ix_(places, places)]
        given = (x[points], v[points], low[points], high[points])
        x[points] = _solve_by_clipped_pairs(Q, *given, most_violation, most)
        problem.change(alpha, m, np.arange(n), np.abs(x[:n]))
        # 2. Decide whether to go on.
        gap = problem.gap(alpha, m)
        if gap <= aims.gap:
            return "again"
        patience -= 1
        if _odds(gap) < _GAINED * best:
            best = _odds(gap)
            patience = _PATIENT_STEPS
        if patience == 0:
            return "next"
        # 3. Choose the violation to stop at, and the next points.
        v[:n] = signs * (1.0 - m)
        if np.subtract(*_ends_of_pairs(x, v, low, high)) <= 2.0 * most_violation:
            most_violation *= max(min(0.5 * aims.gap / gap, 0.5), 0.05)
        if 2 * np.count_nonzero((low < x) & (x < high)) > room and room < min(n, _LARGEST_SET):
            room = min(n, 2 * room, _LARGEST_SET)
            H = np.zeros((room + 1, room + 17), np.float32)
            placed = placed[:0]
        points = _worst_pairs(x, v, low, high, room)


# ------------------------------------------------------------------------------------------------------
# 9.5 faces
# ------------------------------------------------------------------------------------------------------
#
# Minimise x'Hx / 2 - b'x over x >= 0, where b_i = 1 / length_i and H_ii = 1.  The gradient is g = Hx - b.  Only the k
# points on the face may have x_i > 0.  A face is a tuple (lengths, L, P, inside):
#
#     lengths     the length_i of all points
#     P[:k]       the points on the face, in the order in which they entered
#     L[:k, :k]   the Cholesky factor of H on them, in this order
#     inside      which of all points are on the face
#
# L and P have room for more points.  `_descend` goes to the minimum on the face.  `_append` brings another point in.
# After a full step the worst violators of the working set enter the face.
#
# A point may *depend* on the points of the face: H is then flat in a direction that moves only this point and the face,
# and the factor has no row for this point.  x moves along this direction until a point of the face has x_i = 0; that
# point leaves the face.

_PIVOT = 1e-8  # a point whose pivot is at most this depends on the points of the face


@register_jitable
def _forward(L, k, x):
    """Set x to L^-1 x."""
    for a in range(k):
        x[a] = (x[a] - _dot(L[a, :a], x[:a])) / L[a, a]


@njit(cache=_CACHE, fastmath=_FAST)
def _solve(L, k, x):
    """Set x to (L L')^-1 x."""
    _forward(L, k, x)
    for a in range(k - 1, -1, -1):
        x[a] /= L[a, a]
        row = L[a]
        last = x[a]
        for b in range(a):
            x[b] -= last * row[b]


@register_jitable
def _ratio_test(x, P, k, d, t):
    """Return the longest step along d, at most t, that keeps x >= 0, and the place in P that stops it, or -1."""
    blocking = -1
    for a in range(k):
        if d[a] < 0.0 and x[P[a]] < -t * d[a]:
            t = x[P[a]] / -d[a]
            blocking = a
    return t, blocking


@register_jitable
def _move(face, x, k, d, t, leaving):
    """Move x by t d; the point at the place ``leaving`` leaves the face, unless ``leaving`` is -1.  Return the new
    k."""
    _, L, P, inside = face
    for a in range(k):
        x[P[a]] = max(x[P[a]] + t * d[a], 0.0)
    if leaving < 0:
        return k
    x[P[leaving]] = 0.0
    inside[P[leaving]] = False
    # Without its row L has an entry above the diagonal in each of the rows that follow; rotations clear them.
    for a in range(leaving, k - 1):
        P[a] = P[a + 1]
        for b in range(a + 2):
            L[a, b] = L[a + 1, b]
    for a in range(leaving, k - 1):
        length = math.hypot(L[a, a], L[a, a + 1])
        cosine = L[a, a] / length
        sine = L[a, a + 1] / length
        for b in range(a, k - 1):
            left = L[b, a]
            right = L[b, a + 1]
            L[b, a] = cosine * left + sine * right
            L[b, a + 1] = cosine * right - sine * left
    return k - 1


@register_jitable
def _pivot(face, row, k, i):
    """Write the row of the factor for point i, except its last entry; return the square of the last entry.

    This square is the squared distance of point i, which has length 1, to the span of the points on the face.
    """
    _, L, P, _ = face
    z = L[k]
    for a in range(k):
        z[a] = row[P[a]]
    _forward(L, k, z)
    return row[i] - _dot(z[:k], z[:k])


@register_jitable
def _flat_direction(face, row, g, k, i, d):
    """Set d to the move on the face that goes with a move of x_i by ``sign``; return (sign, slope, total).

    The direction is e_i - H_PP^-1 H_Pi, along which H is flat, times the sign that makes it a descent direction.  For a
    step of +1 in x_i, ``slope`` is the change of the objective, and ``total`` is the change of sum x.
    """
    _, L, P, _ = face
    for a in range(k):
        d[a] = -row[P[a]]
    _solve(L, k, d)
    slope = g[i]
    total = 1.0
    for a in range(k):
        slope += d[a] * g[P[a]]
        total += d[a]
    sign = -1.0 if slope > 0.0 else 1.0
    for a in range(k):
        d[a] *= sign
    return sign, slope, total


@register_jitable
def _append(face, row, x, g, k, i, eps):
    """Bring point i into the face, given its row of H, and g on the face and at i; return the new k, or -1 for a
    witness.

    A witness is an x with x'Hx <= (eps sum x)^2; if -1 is returned, x is one.
    """
    _, L, P, inside = face
    d = np.empty(k)
    while True:
        pivot = _pivot(face, row, k, i)
        if not pivot <= _PIVOT:
            break
        # 1. Point i depends on those of the face.  Find how far x >= 0 allows to go in the flat direction.
        sign, slope, total = _flat_direction(face, row, g, k, i, d)
        longest = np.inf if sign > 0.0 else x[i]
        t, blocking = _ratio_test(x, P, k, d, longest)
        # 2. If nothing bounds the step, the direction is a witness, or else i enters.
        if t == np.inf:
            if total > 0.0 and math.sqrt(max(pivot, 0.0)) <= eps * total:
                x[:] = 0.0
                x[i] = 1.0
                _move(face, x, k, d, 1.0, -1)
                return -1
            break
        # 3. If the minimum comes before the bound, i enters.
        if t * pivot > abs(slope):
            break
        # 4. Go to the bound.  A point leaves the face, and i is tried again; or x_i itself is 0.
        x[i] = max(x[i] + sign * t, 0.0)
        k = _move(face, x, k, d, t, blocking)
        if blocking < 0:
            return k
    # 5. Enter.
    L[k, k] = math.sqrt(max(pivot, 1e-16))
    P[k] = i
    inside[i] = True
    return k + 1


@register_jitable
def _descend(face, x, g, k):
    """Make Newton steps to the minimum on the face, given g there; return the new k and the number of steps.

    A step goes to the minimum, or to the first zero of x on the way; then the point with this zero leaves the face.
    """
    _, L, P, _ = face
    d = np.empty(k)
    remainder = 1.0  # a step t d leaves 1 - t of the gradient on the face
    blocking = 0
    steps = 0
    while blocking >= 0:
        for a in range(k):
            d[a] = -remainder * g[P[a]]
        _solve(L, k, d)
        t, blocking = _ratio_test(x, P, k, d, 1.0)
        k = _move(face, x, k, d, t, blocking)
        remainder = remainder * (1.0 - t)
        steps = steps + 1
    return k, steps


@njit(cache=_CACHE, fastmath=_FAST)
def _walk_faces(H, face, ridge, price, x, g, k, most, tol, eps):
    """Minimize over a working set by about ``most`` changes of the face; return (k, changes).

    k is the number of points on the face, or -1 for a witness.  A point whose price is below 0 may enter the face, the
    lowest price first.  At first these are all points that are given such a price; later the price is the gradient.
    """
    lengths, _, P, inside = face
    n = x.size
    changes = 0
    batch = n
    bar = 0.0
    while True:
        # 1. Let a batch of points enter.
        largest = k
        for _ in range(batch):
            i = np.argmin(price)
            if not price[i] < bar:
                break
            price[i] = 0.0
            g[i] = _dot(H[i, :n], x) - 1.0 / lengths[i]
            k = _append(face, H[i], x, g, k, i, eps)
            changes = changes + 1
            largest = largest + 1
            if k < 0:
                return k, changes
        # 2. Go to the minimum on the face.
        k, steps = _descend(face, x, g, k)
        changes += steps
        # 3. Find the violators.
        for i in range(n):
            g[i] = -1.0 / lengths[i]
        for a in range(k):
            row = H[P[a]]
            weight = x[P[a]]
            for i in range(n):
                g[i] += weight * row[i]
        for i in range(n):
            price[i] = 0.0 if inside[i] else g[i]
        # As long as no point leaves the face, the batches grow.
        batch = 2 * batch if k == largest and batch < n else 1
        bar = _LEFT * price[np.argmin(price)]
        if not bar < 0.0 or changes >= most:
            return k, changes
        if _relative_gap(x / lengths, 1.0 + g * lengths, ridge) <= tol:
            return k, changes


def _solve_on_faces(H, lengths, ridge, alpha, m, L, P, most, tol, eps):
    """Make about ``most`` changes of the face in a working set, until its gap is tol or a witness shows.

    L is the Cholesky factor of H on the points P, which are the face at the beginning.  The other points of the support
    enter first.  Return (new weights, L, P, changes, is_witness), where a witness has ||p||_G <= eps sqrt(s).
    """
    size = lengths.size
    k = P.size
    L = _widened(L[:k, :k], size)
    inside = np.bincount(P, minlength=size) > 0
    P = np.append(P, np.zeros(size - k, np.int64))
    x = alpha * lengths
    g = (m - 1.0) / lengths
    price = np.where(inside, 0.0, -x)
    face = (lengths, L, P, inside)
    k, changes = _walk_faces(H, face, ridge, price, x, g, k, most, tol, eps)
    return x / lengths, L, P[: max(k, 0)], changes, k < 0


def _by_faces(problem, aims, alpha, m, gap, largest):
    """Make Newton steps on faces of at most ``largest`` points, in a working set that takes in violators.

    The next working set takes over the Cholesky factor L of the face P.
    """
    largest_set = int(_LARGEST_FACE / _FULL)
    points, H = _first_working_set(problem, alpha, m, np.empty((0, 0)), largest_set)
    L = np.empty((0, 0))
    P = np.empty(0, np.int64)
    norm = math.inf
    is_refused = False  # True once a product has refused a witness
    work = 0
    while True:
        # 1. Solve on the working set, and bring all margins up to date.
        size = points.size
        most = _STEPS_PER_POINT * size
        # Below this norm the factor takes all weights for witnesses.  Only a product can tell.
        eps = aims.eps if is_refused else max(aims.eps, math.sqrt(size * _UNIT))
        ridge = problem.ridge[points] / problem.scale
        given = (H, problem.lengths[points], ridge, alpha[points], m[points])
        weights, L, P, steps, is_witness = _solve_on_faces(*given, L, P, most, aims.set_gap, eps)
        if not 0.0 < weights.sum() < math.inf:
            return "next"
        previous = (alpha.copy(), m.copy(), norm)
        norm = problem.change(alpha, m, points, weights)
        gap = problem.gap(alpha, m)
        # 2. Stop at a witness.  Undo the step if the product refuses the witness.
        reach = problem.reach(alpha) / alpha.sum()
        is_slow = steps >= most and norm > _GAINED * previous[2]
        # The factor cannot distinguish a norm below this from 0.
        if is_slow and norm * norm <= 64.0 * size * _EPS * reach * reach:
            return "next"
        if norm <= aims.eps * reach or (is_witness and is_refused):
            return "again"
        work += steps * P.size**2
        if is_witness:
            is_refused = True
            alpha[:], m[:], norm = previous
            continue
        # 3. Stop at the goal, or if more steps on this set would not help.
        if gap <= aims.gap:
            if problem.free_labels is not None:
                _balance(problem, alpha, points[P], P, H, L, aims.gap)
            return "again"
        if is_slow or work > _LONGEST_WALK:
            return "again"
        if size >= largest_set or P.size > largest:
            return "next"
        # 4. The worst violators join.
        points = _with_least_margins(points, m, 4, 1.0 - aims.set_gap, largest_set)
        H = _matrix_among(problem, points, size, H, largest_set)
        if points.size == size:
            _refine(problem, alpha, m, points[P], L)
            return "again"


def _balance(problem, alpha, points, P, H, L, tol):
    """Go to the minimum on a face among the weights with y'alpha = 0, unless it has weights below 0.

    At this minimum the penalty of the bias is 0, so that a better origin would not change it.  ``points`` are the
    points on the face.  They have the indices P in the working set, and L is the Cholesky factor of H on them.
    """
    lengths = problem.lengths[points]
    a = problem.free_labels[points] / lengths
    x = 1.0 / lengths
    _solve(L, P.size, x)
    flat = a.copy()
    _solve(L, P.size, flat)
    bias = (a @ x) / (a @ flat)
    x -= bias * flat
    # If points depend linearly on others, the factor is that of another matrix.
    residual = (H[np.ix_(P, P)] @ x - 1.0 / lengths + bias * a) * lengths
    if np.abs(residual).max() <= tol and x.min() >= 0.0:
        alpha[points] = x / lengths


def _refine(problem, alpha, m, points, L):
    """Make Newton steps on a face with products in twice the working precision, if G has them, while they help."""
    # A representation with access "products" may have no way to restrict itself to the points of a face.
    if not problem.has_precise_products or problem.G._values.access == "products":
        return
    # By rounding a face may have points of one class only.
    if problem.free_labels is not None and np.ptp(problem.free_labels[points]) == 0.0:
        return
    G = problem.G.restrict(points)
    lengths = problem.lengths[points]
    weights = alpha[points]
    error = np.inf
    for _ in range(10):
        previous = error
        total = 2.0 ** math.frexp(weights.sum())[1]
        v = weights / total
        image = G._measured(v, precise=True)[1] + problem.from_shift(points, v, points)
        g = (image * (total / problem.scale) - 1.0) / lengths
        error = np.abs(g).max()
        step = g.copy()
        _solve(L, g.size, step)
        refined = weights - step / lengths
        if not (error < 0.5 * previous and refined.min() > 0.0):
            break
        weights = refined
    problem.change(alpha, m, points, weights)


# Clipped faces
#
# With a cost, the weight of a point is 0, its cost, or in between; then the point is on the face.  The symbols are
# those of section 9.4, and Q has the H_ij of the points on the face in double precision.  Pair steps run
# first, and find most of the face.  So faces of few points change only a few times, and each time their equations are
# solved from scratch.


def _step_on_face(Q, v, x, low, high, excess):
    """Move x towards the minimum on the face, as far as its bounds allow; return (x, True if the minimum is reached).

    With a free intercept the sum of x falls by ``excess``; otherwise ``excess`` is None.  If Q is singular and v has a
    part outside the range of Q, x moves along this part: the objective has no minimum there, and x moves until a bound
    stops it.
    """
    k = v.size
    A = Q
    b = v
    slope = np.abs(v).max()
    if excess is not None:
        A = np.ones((k + 1, k + 1))
        A[:k, :k] = Q
        A[k, k] = 0.0
        b = np.append(v, -excess)
        slope = np.abs(v - v.mean()).max()
    rounding = 64.0 * _EPS * (1.0 + np.abs(x).sum())  # a bound on the rounding error of v
    least = 1e-9 * slope + rounding
    solution = _solution(A.copy(), b)
    if not np.abs(b - A @ solution).max() <= least:  # A is singular
        solution = np.linalg.lstsq(A, b, rcond=None)[0]
    move = solution[:k]
    rest = (b - A @ solution)[:k]
    farthest = 1.0
    if np.abs(rest).max() > least:
        move = rest
        farthest = math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(move > 0.0, (high - x) / move, (low - x) / move)
    room[move == 0.0] = math.inf
    t = min(farthest, float(room.min()))
    if t == math.inf:  # the move is 0 up to rounding
        return x, True
    moved = np.clip(x + t * move, low, high)
    moved = np.where(room <= t, np.where(move > 0.0, high, low), moved)
    return moved, t == farthest


def _minimize_on_face(problem, alpha, m, points):
    """Go towards the minimum on the face of these points, as far as bounds allow; return True if this reaches it."""
    is_free = problem.free_labels is not None
    if points.size <= is_free:
        return True
    signs, x, v, low, high = _box(problem, alpha, m, points)
    Q = problem.block(points, points) / problem.scale
    Q *= signs[:, None] * signs
    excess = float(problem.free_labels @ alpha) if is_free else None
    x, is_reached = _step_on_face(Q, v, x, low, high, excess)
    problem.change(alpha, m, points, np.abs(x))
    return is_reached


def _polish(problem, alpha, m):
    """Go towards the minimum on the face of the points between 0 and their cost, if these points are few."""
    points = np.flatnonzero((alpha > 0.0) & (alpha < problem.cost))
    if points.size <= _FEW:
        _minimize_on_face(problem, alpha, m, points)


def _by_clipped_faces(problem, aims, alpha, m, gap):
    """Make Newton steps on faces of few points; at the minimum on a face the worst violator enters it."""
    is_free = problem.free_labels is not None
    is_inside = (alpha > 0.0) & (alpha < problem.cost)
    for _ in range(_STEPS_PER_POINT * _FEW):
        # 1. A step on the face
        points = np.flatnonzero(is_inside)
        if points.size > _FEW:
            return "next"
        is_lowest = _minimize_on_face(problem, alpha, m, points)
        is_inside[points] = (alpha[points] > 0.0) & (alpha[points] < problem.cost[points])
        # 2. At the minimum on the face the worst violator enters.  If the intercept is free and the face is empty, the
        #    worst pair enters.
        if not is_lowest:
            continue
        gap = problem.gap(alpha, m)
        if gap <= aims.gap:
            return "again"
        _, x, v, low, high = _box(problem, alpha, m)
        rises = np.where(~is_inside & (x < high), v, -np.inf)
        falls = np.where(~is_inside & (x > low), v, np.inf)
        i = int(np.argmax(rises))
        j = int(np.argmin(falls))
        bias = 0.0
        if is_free:
            bias = (
                float(np.median(v[is_inside])) if is_inside.any() else 0.5 * (rises[i] + falls[j])
            )
        entering = i if rises[i] - bias >= bias - falls[j] else j
        if not max(rises[i] - bias, bias - falls[j]) > 0.0:
            return "next"  # only rounding is left
        is_inside[entering] = True
        if is_free and np.count_nonzero(is_inside) == 1:
            is_inside[[i, j]] = True
    return "again"


# ------------------------------------------------------------------------------------------------------
# 9.6 Newton steps on the separator
# ------------------------------------------------------------------------------------------------------
#
# For the ridge r minimise ||w||^2 / 2 + sum_i max(0, 1 - <z_i, w>)^2 / (2 r_i) over w = sum_i v_i z_i.  At the minimum
# v_i = alpha_i / s = max(0, 1 - <z_i, w>) / r_i.  A step solves equations in the coordinates of w if these are few, and
# otherwise takes a few dozen products.  Pairs have a w for each class, and one system of equations for all classes:
# products read the rows of the points, and the equations of single classes are the preconditioner.


def _with_bias(rows, signs):
    """Return (rows, penalty); a free intercept adds a coordinate for the bias, which is not part of ||w||^2."""
    penalty = np.ones(rows.shape[1])
    if signs is None:
        return rows, penalty
    return np.column_stack((rows, signs)), np.append(penalty, 0.0)


def _newton_in_coordinates(rows, ridge, penalty, w, most=_MOST_NEWTON_STEPS, width=math.inf):
    """Minimize sum_j penalty_j w_j^2 / 2 + sum_i loss_i(1 - <z_i, w>) over w, starting at the given w.

    The loss of a slack x is 0 below 0, x^2 / (2 r_i) up to ``width``, and linear from there on.  Return (w, weights,
    steps) after at most ``most`` steps, where weights_i are the slopes of the losses.  The columns are scaled to length
    1 in the equations, so that the units of columns do not matter.  A small multiple of the identity keeps the
    equations definite.
    """
    m = _row_margins(rows, w)
    value = math.inf
    previous_w = w
    steps = 0
    while True:
        slacks = np.maximum(1.0 - m, 0.0)
        weights = np.minimum(slacks, width) / ridge
        previous = value
        # Twice the objective
        value = (penalty * w) @ w + weights @ (2.0 * slacks - ridge * weights)
        if not value < previous:
            w = previous_w
            break
        if steps == min(most, _MOST_NEWTON_STEPS):
            break
        # 1. The direction
        active = np.flatnonzero((slacks > 0.0) & (slacks < width))
        columns = rows[active] / np.sqrt(ridge[active])[:, None]
        lengths = np.sqrt(penalty + np.einsum("ij,ij->j", columns, columns))
        lengths[lengths == 0.0] = 1.0
        columns = np.ascontiguousarray((columns / lengths).T)
        definite = np.diag(penalty / lengths**2 + 4.0 * _EPS * w.size)
        downhill = -penalty * w
        _combine_rows(rows, np.flatnonzero(weights), weights[weights > 0.0], downhill)
        equations = definite + _table_product(columns, columns)
        direction = np.linalg.solve(equations, downhill / lengths) / lengths
        if not downhill @ direction > _EPS * value:
            break
        # 2. The step along it
        rise = _row_margins(rows, direction)
        pull = penalty * direction
        slope = (penalty * w) @ direction
        t = _minimizing_step(m, rise, ridge, slope, pull @ direction, width)
        previous_w = w
        w = w + t * direction
        m = _row_margins(rows, w)
        steps += 1
    slacks = np.maximum(1.0 - _row_margins(rows, w), 0.0)
    return w, np.minimum(slacks, width) / ridge, steps


def _row_margins(rows, w):
    """Return rows @ w; one thread computes a short product."""
    return _table_product(w[None], rows)[0]


def _objective(m, norm2, ridge):
    """Return ||f||^2 / 2 + sum_i max(0, 1 - m_i)^2 / (2 r_i)."""
    slacks = np.maximum(1.0 - m, 0.0)
    return 0.5 * (norm2 + _dot(slacks, slacks / ridge))


def _duality_gap(v, m, ridge):
    """Return the objective of sum_i v_i z_i with the best slacks, less the dual objective of v, for v >= 0 and m = G v.

    No term of this sum is negative.
    """
    slacks = np.maximum(1.0 - m, 0.0)
    errors = slacks - ridge * v
    return 0.5 * _dot(errors, errors / ridge) + _dot(v, np.maximum(m - 1.0, 0.0))


def _preconditioned_conjugate_gradients(product, precondition, measure, b, residual, goal):
    """Solve A b = c, starting at a b whose residual is given; ``product(v)`` is A v.  Return (b, residual).

    The iteration ends once the residual e has ``measure(e, precondition(e))`` <= goal.
    """
    image = precondition(residual)
    direction = image
    norm2 = residual @ image
    for _ in range(_MOST_NEWTON_STEPS):
        if measure(residual, image) <= goal or not norm2 > 0.0:
            break
        bent = product(direction)
        t = norm2 / (direction @ bent)
        b = b + t * direction
        residual = residual - t * bent
        image = precondition(residual)
        previous = norm2
        norm2 = residual @ image
        direction = image + norm2 / previous * direction
    return b, residual


def _newton_on_classes(G, ridge, w, tol, most, few):
    """Minimize ||w||^2 / 4 + sum_i max(0, 1 - m_i)^2 / (2 r_i) over the separators of the classes, for pairs of rows.

    w has the separators one after another, as `Gram._lift` returns them, and m_i are the margins of the pairs.
    Conjugate gradients solve the equations; the equations of each class alone are the preconditioner.  Return (weights,
    steps), where weights_i = max(0, 1 - m_i) / r_i, once the relative gap of the weights is tol, or at most ``few`` of
    them are above 0.
    """
    rows = G.store.K.coordinates()
    m = G._margins(w)
    value = math.inf
    steps = 0
    while steps < most:
        slacks = np.maximum(1.0 - m, 0.0)
        weights = slacks / ridge
        previous = value
        value = 0.5 * _dot(w, w) + _dot(slacks, weights)
        if not value < previous or np.count_nonzero(weights) <= few:
            break
        image = G._lift(weights)
        of_weights = G._margins(image) + ridge * weights
        if _relative_gap(weights, of_weights, ridge) <= tol:
            break
        # 1. The direction
        shares = (slacks > 0.0) / ridge
        inverses = np.linalg.inv(
            _blocks_of_classes(rows, 0.5 * np.abs(G.store.class_coefficients(shares[None])))
        )
        downhill = image - w

        def product(u, shares=shares):
            return u + G._lift(shares * G._margins(u))

        def precondition(u, inverses=inverses):
            return np.einsum("cij,cj->ci", inverses, u.reshape(len(inverses), -1)).ravel()

        goal = _ACTIVE_SHARE * _dot(downhill, precondition(downhill))
        direction, _ = _preconditioned_conjugate_gradients(
            product, precondition, _dot, np.zeros(w.size), downhill, goal
        )
        # 2. The step along it
        rise = G._margins(direction)
        slope = 0.5 * _dot(w, direction)
        t = _minimizing_step(m, rise, ridge, slope, 0.5 * _dot(direction, direction))
        w = w + t * direction
        m = m + t * rise
        steps += 1
    return weights, steps


def _blocks_of_classes(rows, shares):
    """Return the matrices I + sum_i shares_ci x_i x_i' of all classes c, (classes, d, d)."""
    d = rows.shape[1]
    blocks = np.empty((len(shares), d, d))
    for block, of_class in zip(blocks, shares, strict=True):
        active = np.flatnonzero(of_class)
        columns = np.ascontiguousarray(rows[active].T) * np.sqrt(of_class[active])
        block[:] = _table_product(columns, columns)
        block.flat[:: d + 1] += 1.0
    return blocks


def _by_newton_steps(problem, aims, alpha, m, gap):
    """Make Newton steps in the coordinates of the separator, or of the separators of several classes."""
    if problem.cost is not None:
        return _by_widths(problem, aims, alpha, m, gap)
    base = problem.base
    word = "again"
    if problem.is_of_pairs:
        w = base._lift(alpha / problem.scale)
        # With fewer slacks these equations become harder to solve, and faces become faster.
        few = 2 * _FEW
        weights, steps = _newton_on_classes(
            base, problem.ridge, w, aims.gap, _MOST_NEWTON_STEPS, few
        )
        if np.count_nonzero(weights) <= few:
            word = "next"
    else:
        rows, penalty = _with_bias(base.coordinates(), problem.free_labels)
        w = penalty * (alpha / problem.scale @ rows)
        _, weights, steps = _newton_in_coordinates(rows, problem.ridge, penalty, w)
    problem.reads[0] += (2 * steps + 1) * problem.n**2
    if all(weights[side].any() for side in problem.sides):  # else all slacks are rounding
        alpha[:] = weights * problem.scale
    return word


def _by_widths(problem, aims, alpha, m, gap):
    """Make Newton steps for plain slacks: minimise losses of smaller and smaller ``width``, each from the last minimum.

    A point whose slack is below the width has a weight below its cost, so that the loss has the ridge width / C.  The
    gap falls with the width, until rounding shows: the rounding errors of slacks are divided by the width.
    """
    rows, penalty = _with_bias(problem.base.coordinates(), problem.free_labels)
    w = penalty * (alpha / problem.scale @ rows)
    cost = problem.cost / problem.scale
    width = min(1.0, gap)
    best = math.inf
    word = "again"
    while True:
        w, weights, steps = _newton_in_coordinates(rows, width / cost, penalty, w, width=width)
        problem.reads[0] += (2 * steps + 1) * problem.n**2
        if not all(weights[side].any() for side in problem.sides):
            word = "next"
            break
        previous = alpha.copy()
        alpha[:] = weights * problem.scale
        problem.snap(alpha)
        problem.refresh(alpha, m)
        gap = problem.gap(alpha, m)
        if gap <= aims.gap:
            break
        if not gap < _GAINED * best:
            alpha[:] = previous
            problem.refresh(alpha, m)
            word = "next"
            break
        best = gap
        width *= max(_LEFT, 0.5 * aims.gap / gap)
    return word


def _with_rounded_weights(G, result, tol):
    """Return the result of a G with a cost, with the lower that its alpha proves as it is rounded.

    The driver certifies the best multiple of weights, and rounds this multiple last.  A large C makes much of that
    rounding, and of slacks of points on the margin, which a slightly longer alpha does not have.
    """
    lower = 0.0
    alpha = result.alpha
    bias = result.bias
    for stretch, precise in itertools.product((1.0, 1.0 + 2.0**-46), (False, True)):
        weights = stretch * result.alpha
        proved, its_bias = _lower_with_cost(G, weights, precise)
        if proved > lower:
            lower = proved
            alpha = weights
            bias = its_bias
        if lower >= result.lower or _is_closed(lower, result.upper, tol):
            break
    trace = result.trace.copy()
    trace["lower"][-1] = lower
    result = result._replace(alpha=alpha, bias=bias, lower=lower, trace=trace)
    if result.status != "certified" or _is_closed(lower, result.upper, tol):
        return result
    note = _note_on_rounding(G, Bounds(lower, result.upper, result.upper - lower))
    return result._replace(status="rounding", note=note)


def _search_for_separator(problem, tol, result, callback):
    """Return a result with the coordinates of the separator, which Newton steps find.

    Return the given result if this proves no more.  If columns have different units, it may be that no weights in
    double precision give the best separator; its coordinates may still do so.  A hard margin is the limit of soft
    margins with smaller and smaller ridges, and plain slacks are the limit of losses of smaller and smaller width, see
    `_by_widths`.  Without slacks, if w has the least margin 1, the weights alpha of the points on the margin
    solve w = Z'alpha.
    """
    G = problem.G
    K = _points_gram(G)
    rows, penalty = _with_bias(G.coordinates(), G.free_labels)
    w = np.zeros(penalty.size)
    most = _LONGEST_SEARCH // (rows.size * w.size)  # steps in all
    losses = [(problem.ridge, math.inf)]  # the ridge and the width of each
    is_hard = not problem.has_ridge and problem.cost is None
    if problem.cost is not None:
        cost = problem.cost / problem.scale
        losses = [(10.0**-k / cost, 10.0**-k) for k in range(16)]
    elif is_hard:
        losses = [(np.full(G.n, problem.scale * 10.0**-k), math.inf) for k in range(2, 32, 2)]
        separator, _, steps = _newton_in_coordinates(rows, losses[-1][0], penalty, w, most)
        most -= steps
        if not _separates(rows @ separator):  # although the slacks have nearly all the weight
            return result
    best = result._replace(trace=result.trace.copy())
    is_stopped = False
    for ridge, width in losses:
        # 1. The separator and the weights
        w, p, steps = _newton_in_coordinates(rows, ridge, penalty, w, most, width)
        most -= steps
        if is_hard:
            m = rows @ w
            if not _separates(m):
                continue
            w = w / m.min()
            support = np.flatnonzero(p)
            if support.size <= w.size:
                p[support] = np.maximum(_weights_of(rows[support], penalty * w), 0.0)
        W = w[penalty > 0.0]
        if K is not G:  # pairs: a row for each class
            W = math.sqrt(2.0) * W.reshape(-1, K._width)
        if not W.any() or not all(p[side].any() for side in problem.sides):
            continue
        # 2. Certify them.
        bias = 0.0 if G.free_labels is None else float(w[-1])
        lower = _margin_of_coordinates(G, _margin_with_slacks(G), W, (bias,))[0]
        if lower > max(best.lower, 0.0):
            best = best._replace(lower=lower, separator=W, bias=bias)
            if problem.cost is not None:
                best = best._replace(alpha=problem.scale * p)
        for side in problem.sides:
            p[side] /= len(problem.sides) * p[side].sum()
        upper = certificate(G, p, p, precise=True)[1]
        if upper < best.upper:
            best = best._replace(p=p, upper=upper)
        best.trace["lower"][-1] = best.lower
        best.trace["upper"][-1] = best.upper
        if _is_closed(best.lower, best.upper, tol) or most == 0:
            break
        # 3. Call the callback.  It gets a copy, because it may keep and change its argument.
        if callback is not None and _is_true(
            callback(copy.deepcopy(best)._replace(status="running"))
        ):
            is_stopped = True
            break
    # Without slacks an upper end alone decides nothing: the status may be "infeasible".
    if best.separator is None and (is_hard or best.upper == result.upper):
        return result
    # 4. The end of the run
    note = ""
    if _is_closed(best.lower, best.upper, tol):
        status = "certified"
    elif is_stopped:
        status = "stopped"
    else:
        status = "rounding"
        note = _note_on_rounding(G, Bounds(best.lower, best.upper, best.upper - best.lower))
    return best._replace(status=status, note=note)


def _separates(m):
    """Return True if all margins are above 0; a margin so far below the others that its square vanishes counts as 0."""
    return bool(m.min() > 1e-100 * m.max())


def _may_search(problem, status):
    """Return True if `_search_for_separator` can take G; if there probably is no margin, only if it is cheap."""
    if not _has_few_coordinates(problem.base):
        return False
    n = problem.n
    d = problem.base._width
    is_cheap = status == "rounding" or n * d * d <= (1 << 28)
    return is_cheap and (np.all(problem.ridge) or not np.any(problem.ridge))


def _weights_of(rows, w):
    """Return the alpha with w = rows' alpha, by least squares with columns scaled to length 1."""
    lengths = np.sqrt(np.einsum("ij,ij->j", rows, rows))
    lengths[lengths == 0.0] = 1.0
    return np.linalg.lstsq((rows / lengths).T, w / lengths, rcond=None)[0]


# ------------------------------------------------------------------------------------------------------
# 9.7 low rank
# ------------------------------------------------------------------------------------------------------
#
# Newton steps by products; the products with a kernel on demand are in single precision.  A few features approximate G
# well.  Some points S have G_SS = Q e Q', and F = G_nS Q e^(-1/2) has the coordinates of all points in the span of S
# (Nystroem features), so that F F' is near G.  The squared lengths outside this span, diag(G - F F'), count as a ridge:
# R' = R + diag(G - F F').
#
# (1) Newton steps in these features minimise ||w||^2 / 2 + sum_i max(0, 1 - (F w)_i)^2 / (2 r'_i).  f = F w is a
#     function of the whole space, with the norm ||w||.
# (2) Let A = {i : m_i < 1} be the active points of f.  Conjugate gradients solve (G_AA + R_A) b = 1 for their weights
#     b, with the preconditioner F_A F_A' + R'_A.  Its inverse needs only the equations I + F_A' R'_A^-1 F_A of (1).
# (3) If b without its negative weights has a small duality gap, it is the answer.  The gap is the objective of the f of
#     these weights with the best slacks, less their dual objective.
# (4) Otherwise an exact line search goes from f towards sum_i b_i z_i, and (2) follows again, from the weights b.  Of f
#     the margins and the norm are kept, and not the weights, because those of (1) are huge and of both signs.


def _at_hand(problem, alpha, m):
    """Return (points, G): the points that Newton steps change, and the base on these points, or None if it is too
    large.

    A kernel that is evaluated on demand is kept as a matrix in single precision.  The matrix has only the points of the
    support and those with slacks, if these are fewer than half of all points.  If there are no pairs, it has only the
    upper triangle, which products read.
    """
    points = np.arange(problem.n)
    if not problem.is_on_demand:
        return points, problem.base
    needed = np.flatnonzero((alpha > 0.0) | (m < 1.0))
    if 2 * needed.size < problem.n:
        points = needed
    if np.array_equal(points, problem.kept[0]):
        return problem.kept
    problem.kept = (None, None)
    G = problem.base._restrict(points)
    K = _points_gram(G)
    n = K.n
    if n > _LARGEST_SET:
        return points, None if G is K else G
    matrix = np.empty((n, n), np.float32)
    every = np.arange(n)
    step = max(_AT_ONCE // n, 256)
    for start in range(0, n, step):
        first = max(0, start - _STREAMS) if G is K else 0
        rows = every[start : start + step]
        matrix[rows, first:] = K.block(rows, every[first:])
    matrix = Gram._over(_Matrix(matrix))
    if G is not K:
        pairs = G.store
        store = _Pairs(matrix, pairs.labels, pairs.n_classes, pairs.point, pairs.wrong)
        matrix = Gram._over(store)
    G = matrix
    problem.kept = (points, G)
    return problem.kept


def _nystroem_features(problem, points):
    """Return (F, missed) for these k points: the features F, (k, rank), and missed = diag(G - F F'), (k,).

    G is the one that the solver reads.  A fixed seed draws the points S. With a free intercept the solver reads G from
    an origin o = Z'v, where v is `_Problem.origin_weights`, and penalises the bias.  So y_i F'v is subtracted from
    row i of F, where F'v is o in the features, and the bias is one more column.  v is not 0 on the support, so that
    ``points`` must include all of the support, as the points of `_at_hand` do.
    """
    n = points.size
    entries = min(problem.base._values.work, 0.5 * n * n)  # what a product reads
    few = math.ceil(_LANDMARKS * math.sqrt(2.0 * entries / n))
    size = min(n, few, max(1, _WRITTEN_DOWN // n))
    # 1. The features of S, without those whose eigenvalues have few correct digits
    S = points[np.sort(np.random.default_rng(0).choice(n, size, replace=False))]
    values, vectors = np.linalg.eigh(problem.base.block(S, S))
    is_large = values > 1e-10 * values[-1]
    to_features = vectors[:, is_large] / np.sqrt(values[is_large])
    rank = np.count_nonzero(is_large)
    # 2. The features of all points
    is_free = problem.free_labels is not None
    F = np.empty((n, rank + 1 if is_free else rank))
    for some in _slices(n, size):
        F[some, :rank] = problem.base.block(points[some], S) @ to_features
    problem.reads[0] += n * size
    # 3. The origin and the bias
    diagonal = (problem.diagonal - problem.ridge)[points]
    if is_free:
        y = problem.free_labels[points]
        F[:, :rank] -= np.outer(y, problem.origin_weights[points] @ F[:, :rank])
        F[:, rank] = math.sqrt(problem.penalty) * y
        diagonal = diagonal + 2.0 * y * problem.shift[points]
    missed = diagonal - np.einsum("ij,ij->i", F, F)
    return F, np.maximum(missed, 0.0)


class _LowRank:
    """G approximated by F F', with the ridge r', and the equations of its active points.

    Attributes
    ----------
    F, ridge : the features, and r'
    active : a mask of the active points
    equations : I + F_A' R'_A^-1 F_A, which `activate` updates
    """

    def __init__(self, F, ridge):
        self.F = F
        self.ridge = ridge
        self.active = np.zeros(ridge.size, dtype=bool)
        self.equations = np.eye(F.shape[1])

    def activate(self, active):
        """Make these points the active ones."""
        for sign, points in ((1.0, active & ~self.active), (-1.0, self.active & ~active)):
            changed = np.flatnonzero(points)
            for some in _slices(changed.size, self.F.shape[1]):
                index = changed[some]
                rows = self.F[index] / np.sqrt(self.ridge[index])[:, None]
                self.equations += sign * (rows.T @ rows)
        self.active = active

    def scaled_equations(self):
        """Return (lengths, equations): the equations are divided by the lengths on both sides.

        A small multiple of the identity keeps them definite if small ridges lose digits.
        """
        lengths = np.sqrt(np.maximum(self.equations.diagonal(), 1.0))
        equations = self.equations / np.outer(lengths, lengths)
        equations.flat[:: lengths.size + 1] += 4.0 * _EPS * lengths.size
        return lengths, equations

    def minimize(self):
        """Make the Newton steps (1); return the margins and the squared norm of f."""
        w = np.zeros(self.F.shape[1])
        m = np.zeros(self.ridge.size)
        for _ in range(_MOST_NEWTON_STEPS):
            slacks = np.maximum(1.0 - m, 0.0)
            weights = slacks / self.ridge
            self.activate(slacks > 0.0)
            downhill = weights @ self.F - w
            lengths, equations = self.scaled_equations()
            step = np.linalg.solve(equations, downhill / lengths) / lengths
            if not downhill @ step > 1e-4 * (w @ w + slacks @ weights):
                break
            rise = self.F @ step
            w += step * _minimizing_step(m, rise, self.ridge, w @ step, step @ step)
            m = self.F @ w
        return m, w @ w

    def preconditioner(self):
        """Return the function that multiplies by (F_A F_A' + R'_A)^-1."""
        lengths, equations = self.scaled_equations()
        inverse = np.linalg.inv(equations) / np.outer(lengths, lengths)
        active = self.active
        ridge = self.ridge[active]

        def precondition(v):
            weights = np.zeros(active.size)
            weights[active] = v / ridge
            lifted = inverse @ (weights @ self.F)
            return (v - (self.F @ lifted)[active]) / ridge

        return precondition


def _newton_on_active_points(product, ridge, low_rank, v, image, share):
    """Make the Newton steps (2) to (4) from the weights v with G v = ``image``, or from (1) if that is better.

    ``product(rows, columns, v)`` multiplies by a block of G. Return weights b >= 0 whose duality gap is at most
    ``share`` times the objective, and whose margins are positive.  If the gap stops falling before, return the best
    weights found.
    """
    every = np.arange(ridge.size)
    # 1. f by its margins and its squared norm
    m = image
    norm2 = v @ image
    start, start_norm2 = low_rank.minimize()
    if _objective(start, start_norm2, ridge) < _objective(m, norm2, ridge):
        m = start
        norm2 = start_norm2
        v = np.maximum(1.0 - m, 0.0) / ridge
        image = product(every, every, v)
    best = np.maximum(1.0 - m, 0.0) / ridge
    aim = _ACTIVE_SHARE
    gaps = []
    for _ in range(_MOST_NEWTON_STEPS):
        # 2. The weights of the active points; conjugate gradients start at the previous weights.
        active = m < 1.0
        inside = np.flatnonzero(active)
        outside = np.flatnonzero(~active)
        r = ridge[inside]
        b = v[inside]
        residual = 1.0 - image[inside] - r * b
        left = outside[v[outside] != 0.0]
        if left.size:
            residual += product(inside, left, v[left])
        low_rank.activate(active)
        objective = _objective(m, norm2, ridge)
        error = min(objective, residual @ (residual / r))
        b, residual = _preconditioned_conjugate_gradients(
            lambda u, inside=inside, r=r: product(inside, inside, u) + r * u,
            low_rank.preconditioner(),
            lambda e, _, r=r: e @ (e / r),  # twice the duality gap of b, if b >= 0
            b,
            residual,
            max(_ACTIVE_SHARE * error, aim * share * objective),
        )
        v = np.zeros(ridge.size)
        v[inside] = b
        image = np.empty(ridge.size)
        image[inside] = 1.0 - residual - r * b
        if outside.size:
            image[outside] = product(outside, inside, b)
        # 3. Without the negative weights, is the duality gap small enough?
        negative = np.flatnonzero(v < 0.0)
        weights = np.maximum(v, 0.0)
        of_weights = image
        if negative.size:
            of_weights = image - product(every, negative, v[negative])
        gap = _duality_gap(weights, of_weights, ridge)
        if gap < min(gaps, default=math.inf):
            best = weights
        elif gaps:
            aim *= 0.1
        gaps.append(gap)
        is_separator = (of_weights + ridge * weights).min() > 0.0
        if gap <= share * objective and is_separator:
            break
        if len(gaps) > _PATIENT_STEPS and min(gaps[-_PATIENT_STEPS:]) > min(gaps[:-_PATIENT_STEPS]):
            break
        # 4. The step towards them
        slope = v @ m - norm2
        curvature = norm2 - 2.0 * (v @ m) + v @ image
        t = _minimizing_step(m, image - m, ridge, slope, curvature)
        m = m + t * (image - m)
        norm2 += t * (2.0 * slope + t * curvature)
    return best


def _by_low_rank(problem, aims, alpha, m, gap):
    """Make Newton steps by products, with a preconditioner of low rank."""
    points, G = _at_hand(problem, alpha, m)
    if G is None:
        blocks = _SingleBlocks(problem.base, points)
    ridge = _frozen(problem.ridge[points])

    def product(rows, columns, v):
        if G is None:
            problem.reads[0] += rows.size * columns.size
            image = blocks.product(rows, columns, v)
        else:
            problem.reads[0] += points.size**2
            of_all = np.zeros(points.size)
            of_all[columns] = v
            image = (G @ of_all)[rows]
        return image + problem.from_shift(points[columns], v, points[rows])

    F, missed = _nystroem_features(problem, points)
    low_rank = _LowRank(F, _frozen(ridge + missed))
    v = alpha[points] / problem.scale
    image = m[points] - ridge * v
    weights = _newton_on_active_points(product, ridge, low_rank, v, image, aims.gap)
    alpha[points] = weights * problem.scale
    return "again"


# ------------------------------------------------------------------------------------------------------
# 9.8 steps on one weight after another
# ------------------------------------------------------------------------------------------------------
#
# With a ridge r the minimum over v_i alone is at max(0, v_i - g_i / (G_ii + r_i)), where g_i = <z_i, w> + r_i v_i - 1
# and w = sum_i v_i z_i; with a cost it is at most C_i.  w is kept, so that a step reads only the row z_i.  A large
# penalty of the free bias, which couples all points, would make these steps slow.
#
# The pairs of a point i have the entries K_ii (1 + [c = d]) / 2 of G among them.  Let t be the sum of the old weights
# of these pairs, and t' the sum of the new ones.  The minimum over all these weights at once is v_ic = max(0, 1 -
# m_ic + K_ii (t + v_ic) / 2 - K_ii t' / 2) / (K_ii / 2 + r_ic), or the cost if that is less.  So only the number t' is
# unknown.  The margins m_ic are half the differences of the scores of the classes at x_i.  If K has rows, the
# separators of the classes are kept, and a step reads only the row x_i.  Otherwise the scores of all points are kept,
# and a step reads row i of K.


@njit(cache=_CACHE)
def _pass_over_rows(G, order, ridge, cost, diagonal, v, w, y, bias, penalty):
    """Make a step on each of these points, in this order; update w with v, and keep bias[1] = penalty y'v.

    The bias is bias[0] + bias[1]; without a free intercept y is 0.
    """
    dot = np.empty(1)
    move = np.empty(1)
    own = w[: G.store.width]  # the coordinates without the constant feature
    for i in order:
        _set_dots(G.store, own, dot, i)
        if G.constant != 0.0:
            dot[0] += G.constant * w[-1]
        g = G.c[i] * dot[0] + y[i] * (bias[0] + bias[1]) + ridge[i] * v[i] - 1.0
        weight = min(max(0.0, v[i] - g / diagonal[i]), cost[i])
        change = weight - v[i]
        if change != 0.0:
            v[i] = weight
            bias[1] += penalty * y[i] * change
            move[0] = G.c[i] * change
            _add_rows(G.store, move, i, own)
            if G.constant != 0.0:
                w[-1] += move[0] * G.constant


@njit(cache=_CACHE, fastmath=_FINITE)
def _step_on_point(right, half, inverses, cost, scores, v, moves):
    """Minimize over the weights v of one point, of class ``right`` and with K_ii / 2 = ``half``, each up to its cost.

    ``scores`` has the scores of the classes at the point.  ``inverses`` has 1 / (K_ii / 2 + r_ic), and 0 for a pair
    that does not exist.  ``moves`` becomes the change of the class coefficients.  Return True if a weight has changed.
    """
    before = 0.0
    for c in range(v.size):
        before += v[c]
    for c in range(v.size):
        goal = 1.0 - 0.5 * (scores[right] - scores[c]) + half * (before + v[c])
        moves[c] = goal * inverses[c]
    # The weights are moves_c - half inverses_c total, within their bounds, where the total is the sum of these weights.
    # That sum falls as the total rises.  Without a cost it is convex in the total, so that Newton steps rise to the
    # solution once they are below it.  With a cost a Newton step may leave the interval that is known to contain the
    # solution: then the middle of the interval replaces the step.
    total = before
    low = 0.0
    high = np.inf
    for _ in range(2 * v.size + 60):
        pull = 0.0
        slope = 1.0
        for c in range(v.size):
            share = half * inverses[c]
            if moves[c] - share * total >= cost[c]:
                pull += cost[c]
            elif moves[c] > share * total:
                pull += moves[c]
                slope += share
        previous = total
        total = pull / slope
        if abs(total - previous) <= 4.0 * _EPS * total:
            break
        if total > previous:
            low = previous
        else:
            high = previous
        if not low <= total <= high:
            total = 0.5 * (low + high)
    moved = False
    move = 0.0
    for c in range(v.size):
        weight = min(max(0.0, moves[c] - half * inverses[c] * total), cost[c])
        moves[c] = v[c] - weight
        moved |= moves[c] != 0.0
        move -= moves[c]
        v[c] = weight
    moves[right] = move
    return moved


@njit(cache=_CACHE)
def _pass_over_points(K, labels, order, halves, inverses, cost, v, scores):
    """Make `_step_on_point` on these points, in this order; update the scores, (classes, points).

    v, ``inverses`` and ``cost`` are tables (points, classes).
    """
    classes = v.shape[1]
    of_point = np.empty(classes)
    moves = np.empty(classes)
    for i in order:
        for c in range(classes):
            of_point[c] = scores[c, i]
        if _step_on_point(labels[i], halves[i], inverses[i], cost[i], of_point, v[i], moves):
            for c in range(classes):
                if moves[c] != 0.0:
                    _combine(1.0, scores[c], moves[c], K[i])


@njit(cache=_CACHE, fastmath=_FAST)
def _pass_over_rows_of_points(K, labels, order, halves, inverses, cost, v, W):
    """Make the steps of `_pass_over_points` with the rows of K; update the separators, the columns of W."""
    classes = v.shape[1]
    scores = np.empty(classes)
    moves = np.empty(classes)
    for i in order:
        factor = K.c[i]
        values, columns = _row_of(K.store, i)
        for c in range(classes):
            scores[c] = 0.0
            if K.constant != 0.0:
                scores[c] = factor * K.constant * W[-1, c]
        for k in range(values.size):
            x = factor * values[k]
            j = columns[k]
            for c in range(classes):
                scores[c] += x * W[j, c]
        if _step_on_point(labels[i], halves[i], inverses[i], cost[i], scores, v[i], moves):
            for k in range(values.size):
                x = factor * values[k]
                j = columns[k]
                for c in range(classes):
                    W[j, c] += x * moves[c]
            if K.constant != 0.0:
                for c in range(classes):
                    W[-1, c] += factor * K.constant * moves[c]


def _entries_among(K, points, known_points, known):
    """Return the entries of a representation K among some points, (k, k), in double precision.

    ``known`` has the entries among ``known_points``, which are not evaluated again.  Both lists of points ascend.
    """
    if isinstance(K.store, _Matrix) and points.size == len(K):
        return np.asarray(K.dense(), np.float64)  # no copy of a matrix in double precision
    is_known = np.isin(points, known_points)
    old = np.flatnonzero(is_known)
    new = np.flatnonzero(~is_known)
    place = np.searchsorted(known_points, points[old])
    out = np.empty((points.size, points.size))
    out[np.ix_(old, old)] = known[np.ix_(place, place)]
    if new.size:
        block = K.block(points[new], points)
        out[new] = block
        out[:, new] = block.T
    return out


def _class_table(v, labels):
    """Return the class coefficients, (classes, points), of the table v, (points, classes), of weights of pairs."""
    T = -v.T
    T[labels, np.arange(labels.size)] += v.sum(axis=1)
    return T


def _by_rows(problem, v):
    """Return the function ``run(active, v)`` that makes steps on one weight after another, in random order.

    It returns the number of its passes over the active points.

    With a free intercept this is the method of multipliers: the steps penalise y'v, and after each pass the bias takes
    over the derivative of this penalty.  The bias begins with the best one for v.
    """
    base = problem.base
    rows = base.arrays
    y = np.zeros(problem.n)
    penalty = 0.0
    bias = np.zeros(2)
    if problem.free_labels is not None:
        y = problem.free_labels
        penalty = _SMALL_PENALTY * float(np.median(problem.diagonal - problem.ridge))
        bias[0] = _best_bias(y, base._margins(base._lift(v)) + problem.ridge * v)
        bias[1] = penalty * float(y @ v)
    diagonal = problem.diagonal + penalty
    cost = problem.G._spread(problem.G.cost)
    rng = np.random.default_rng(0)

    def run(active, v):
        points = np.flatnonzero(active)
        w = base._lift(v)
        for _ in range(_PASSES):
            order = rng.permutation(points)
            _pass_over_rows(rows, order, problem.ridge, cost, diagonal, v, w, y, bias, penalty)
            bias[0] += bias[1]
        return _PASSES

    return run


def _tables_of_pairs(problem):
    """Return the tables, (points, classes), of K_ii / 2 + r_ic and of the costs; without a pair they are inf and 0."""
    base = problem.base.store
    pairs = (base.point, base.wrong)
    curvatures = np.full((base.n_points, base.n_classes), np.inf)
    # If a point is 0 and has no ridge, this floor makes its weights as large as they may be.
    halves = np.maximum(0.5 * base.K.diagonal(), 1e-30 * problem.scale)
    curvatures[pairs] = halves[base.point] + problem.ridge
    cost = np.zeros(curvatures.shape)
    cost[pairs] = problem.G._spread(problem.G.cost)
    return curvatures, cost


def _by_rows_of_points(problem, v):
    """Return a function as `_by_rows` does, whose steps are on all weights of one point of pairs at a time."""
    base = problem.base.store
    rows = base.K.arrays
    pairs = (base.point, base.wrong)
    halves = 0.5 * base.K.diagonal()
    curvatures, cost = _tables_of_pairs(problem)
    inverses = 1.0 / curvatures
    rng = np.random.default_rng(0)

    def run(active, v):
        points = np.flatnonzero(np.bincount(base.point[active]))
        table = np.zeros(cost.shape)
        table[pairs] = v
        W = np.ascontiguousarray(problem.base._lift(v).reshape(base.n_classes, -1).T)
        for _ in range(_PASSES):
            order = rng.permutation(points)
            given = rows, base.labels, order, halves, inverses, cost, table, W
            _pass_over_rows_of_points(*given)
        v[:] = table[pairs]
        return _PASSES

    return run


def _by_entries(problem, v):
    """Return a function as `_by_rows_of_points` does, whose steps read the entries of K among the active points.

    These entries are stored, so that it makes at least twice as many passes.
    """
    base = problem.base.store
    pairs = (base.point, base.wrong)
    curvatures, cost = _tables_of_pairs(problem)
    rng = np.random.default_rng(0)
    held = np.empty(0, np.int64)
    entries = np.empty((0, 0))  # of K among these points

    def run(active, v):
        nonlocal held, entries
        points = np.flatnonzero(np.bincount(base.point[active], minlength=base.n_points))
        if 2 * points.size < held.size or not np.isin(points, held).all():
            entries = _entries_among(base.K, points, held, entries)
            problem.reads[0] += entries.size
            held = points
        table = np.zeros(cost.shape)
        table[pairs] = v
        inside = table[held]
        labels = base.labels[held]
        halves = 0.5 * entries.diagonal()
        inverses = 1.0 / curvatures[held]
        costs = cost[held]
        scores = _class_table(inside, labels) @ entries
        # Few points take as many passes as cost what the product after them costs, up to a limit.
        passes = min(max(2 * _PASSES, (base.n_points // held.size) ** 2), _MOST_PASSES)
        places = np.searchsorted(held, points)
        for _ in range(passes):
            order = rng.permutation(places)
            given = entries, labels, order, halves, inverses, costs, inside, scores
            _pass_over_points(*given)
        table[held] = inside
        v[:] = table[pairs]
        return passes

    return run


_DESCENTS = {"rows": _by_rows, "rows of points": _by_rows_of_points, "entries": _by_entries}


def _by_descent(problem, aims, alpha, m, gap):
    """Make turns of steps over the active points, in random order; a fresh product ends each turn and its errors."""
    start = alpha.copy()
    v = alpha / problem.scale
    run = _DESCENTS[problem.descent](problem, v)
    odds = []  # after each turn
    for _ in range(_TURNS):
        # 1. Steps
        active = (v > 0.0) | (m < 1.0)
        passes = run(active, v)
        if not 0.0 < v.sum() < math.inf:
            return "next"
        problem.reads[0] += passes * problem.n * np.count_nonzero(active)
        # 2. Compute the margins, with half of the weight in each class and with the best bias if the intercept is free.
        alpha[:] = v * problem.scale
        if problem.free_labels is not None and all(alpha[side].any() for side in problem.sides):
            total = alpha.sum()
            for side in problem.sides:
                alpha[side] *= 0.5 * total / alpha[side].sum()
        problem.refresh(alpha, m)
        if problem.free_labels is not None:
            m += _best_bias(problem.free_labels, m) * problem.free_labels
        gap = problem.gap(alpha, m)
        if gap <= aims.gap:
            return "again"
        odds.append(_odds(gap))
    # 3. Would this rate of convergence close the gap soon?  Far from the solution the gap stays near 1 while
    #    upper / lower falls, so that the rate is that of the odds.
    half = _TURNS // 2
    if min(odds) < math.inf:
        rate = (min(odds) / min(odds[:half])) ** (1.0 / half)
        if min(odds) * rate ** (_ITERATIONS_LEFT * _TURNS) <= aims.gap:
            return "again"
    if not problem.has_every_ridge and problem.cost is None:
        # On the way the support may be all points, which is too large for the methods that follow.
        alpha[:] = start
    return "next"


# ------------------------------------------------------------------------------------------------------
# 9.9 methods
# ------------------------------------------------------------------------------------------------------


class _Method(NamedTuple):
    """A method of the solver.

    name : the name that section 9 gives the method
    takes : ``takes(problem, support)`` returns True if the method takes a problem whose weights have this support size
    run : ``run(problem, aims, alpha, m, gap)`` changes alpha, which has this gap, and returns "again" or "next"
    """

    name: str
    takes: Callable[[Any, int], bool]
    run: Callable[..., str]


def _starts_on_faces(problem, support):
    """Return True for few points, and for a hard margin whose support is small so far if pair steps would cost more.

    Pair steps cost more if entries are evaluated, or if the intercept is free: they leave its origin to the next
    iteration.
    """
    costs_more = problem.G._values.access != "stored" or problem.free_labels is not None
    is_first = not problem.has_every_ridge and costs_more and support <= _FEW
    is_small = problem.n <= _FEW and not problem.is_in_coordinates
    return problem.cost is None and (is_small or is_first)


def _takes_pair_steps(problem, support):
    """Return True for many points without a cost, unless Newton steps are cheaper.

    Newton steps are cheaper in coordinates, and if the support is too large for a working set.
    """
    is_beyond_sets = problem.takes_products and support > _FULL * _LARGEST_SET
    has_cost = problem.cost is not None
    return not (has_cost or problem.n <= _FEW or problem.is_in_coordinates or is_beyond_sets)


def _takes_clipped_pairs(problem, support):
    return problem.cost is not None and not problem.is_in_coordinates


def _takes_large_faces(problem, support):
    return problem.cost is None and support <= _LARGEST_FACE


_METHODS = (
    _Method("descent", lambda problem, _: problem.descent is not None, _by_descent),
    _Method("Newton steps", lambda problem, _: problem.is_in_coordinates, _by_newton_steps),
    _Method("clipped pairs", _takes_clipped_pairs, _by_clipped_pairs),
    _Method("small faces", _starts_on_faces, lambda *given: _by_faces(*given, _FEW)),
    _Method("pair steps", _takes_pair_steps, _by_pair_steps),
    _Method("low rank", lambda problem, _: problem.takes_products, _by_low_rank),
    _Method("large faces", _takes_large_faces, lambda *given: _by_faces(*given, _LARGEST_FACE)),
    _Method("clipped faces", lambda problem, _: problem.cost is not None, _by_clipped_faces),
)


def _next_method(problem, alpha, method):
    """Return the index of the first method, from ``method`` on, that takes the problem, or the length of the list."""
    support = np.count_nonzero(alpha)
    while method < len(_METHODS) and not _METHODS[method].takes(problem, support):
        method += 1
    return method


def _are_zero(G, points):
    """Return True if some points are 0 as far as entries tell; if only underflow makes a square 0, return False."""
    rows = G.coordinates(points) if G._has_rows else G.block(points, np.arange(G.n))
    return not rows.any()


def _proof_of_no_margin(problem, eps, p):
    """Return the upper end at which the witness p counts as a proof; 0 if p is no witness, or may be one by
    rounding."""
    support = np.flatnonzero(p)
    is_hard = not problem.ridge[support].any()
    if support.size <= len(problem.sides) and is_hard and _are_zero(problem.base, support):
        return math.inf
    bound = eps * problem.reach(p) * math.sqrt(problem.scale)
    v = _unit_range(p)
    norm2, _ = problem.product(v)
    if norm2 > (1.001 * bound * v.sum()) ** 2:
        return 0.0
    rounding = problem.G._measured(v, precise=True)[2]
    least = 2.0 * (math.sqrt(rounding.square) + rounding.length)
    return bound if eps > least else 0.0


def _max_margin_loop(G, k, until, alpha, m, method, reads, problem, aims):
    """Run one method of the list in every iteration; this is the loop that `max_margin` gives to the driver.

    ``method`` and ``reads`` are arrays of one entry: the index of the method of the next iteration, and the `reads` of
    the problem, which the driver keeps in the state.
    """
    # A method that takes G takes it with a support of 0, because only large supports are refused.
    if method[0] < len(_METHODS) and not _METHODS[method[0]].takes(problem, 0):
        raise ValueError(
            f"start must be a Result for the same G; its run ended in {_METHODS[method[0]].name}, which this G does "
            "not take: to begin a new run from its weights, give start=result.alpha"
        )
    while k < until and method[0] < len(_METHODS):
        if aims.are_met_by_witness(problem, alpha, m):
            break
        k += 1
        # 1. Begin with the best multiple of the weights, and with a new origin if the intercept is free.
        start = alpha.copy()
        gap = problem.gap(alpha, m)
        problem.begin(alpha, m)
        norm = problem.rescale(alpha, m)
        # 2. Run the method, and take a fresh product, with which the driver certifies.
        word = _METHODS[method[0]].run(problem, aims.after(gap), alpha, m, gap)
        if problem.cost is not None:
            _polish(problem, alpha, m)
        if not all(alpha[side].any() for side in problem.sides):  # by rounding
            alpha[:] = start
        problem.finish(alpha, m)
        # 3. Decide whether the method goes on.  If the gap is above 1, lower is below 0, and its rise does not count.
        new_gap = problem.gap(alpha, m)
        has_gained = (
            new_gap < _GAINED * gap
            or math.sqrt(max(_dot(alpha, m), 0.0)) < _GAINED * norm
            or 0.0 < 1.0 - gap < _GAINED * (1.0 - new_gap)
        )
        if word == "next" or not has_gained or np.array_equal(alpha, start):
            method[0] = _next_method(problem, alpha, method[0] + 1)
    return k


@_algorithm
def max_margin(
    G: GramLike,
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    start: Result | ArrayLike | None = None,
    **options: Unpack[_Options],
) -> Result:
    """Find the maximum margin to any tolerance: the algorithm to try first.

    alpha = p is the point of the simplex with the least ||p||_G: at the optimum the primal and the dual point coincide.
    An iteration minimises alpha' G alpha / 2 - sum_i alpha_i over alpha >= 0 by one method.  The next iteration uses
    the same method as long as that helps.  Then the next method of this list that takes G follows:

    - *Descent*: steps on one weight after another, in random order.  It takes G with rows and slacks.  It takes G over
      pairs, with rows, or of at most 4,000 points, if there are slacks or more than 20,000 pairs: then a step changes
      all weights of a point.  The method of multipliers adjusts a free bias.  Rows of at most 256 coordinates are left
      to Newton steps, and three classes with a kernel and a cost to clipped pairs, which are faster.
    - *Newton steps* in the coordinates of the separator, if every point has slacks and there are fewer than 3,000
      coordinates, and fewer coordinates than points; over pairs with a cost at most 256, counted over all classes.
      Over pairs the equations of each class alone are the preconditioner.  Plain slacks are the limit of a loss that
      is quadratic up to a smaller and smaller width.
    - *Clipped pairs*, with a cost: pair steps within bounds on the points that may move, 5,000 at first.
    - *Small faces*, without a cost: Newton steps on the faces of a working set, which has the support and points of
      least margin: for at most 256 points, and, while the support is that small, for a hard margin whose entries are
      evaluated or whose intercept is free.
    - *Pair steps*, without a cost, on a working set, in single precision, corrected in double precision.
    - *Low rank*: Newton steps by conjugate gradients with a preconditioner of low rank, if every point has a ridge.
      They take the place of pair steps if no working set can hold the support.
    - *Large faces*, without a cost: Newton steps on faces of at most 6,000 points.
    - *Clipped faces*, with a cost: Newton steps on at most 256 weights between 0 and their cost.

    With a cost, every iteration ends with one such Newton step, if at most 256 weights are between 0 and their cost.

    Parameters
    ----------
    G : array, shape (n, n), or Gram
        Signed Gram matrix: from `gram` if n^2 entries fit into memory, and from `lazy_gram` for more points.  For the
        linear kernel use `features`, which reaches the smallest tol.
    max_iter : int
        Largest number of iterations in this call.
    tol : float
        The run stops as "certified" once upper - lower <= tol * upper.
    start : Result or array, optional
        A Result to go on from, see `RunOptions`, or weights to begin with, see the Notes.
    **options : trace_at, keep_iterates, callback; see `RunOptions`

    See Also
    --------
    MaxMarginClassifier : Fits points and labels, with a soft margin by default.
    subspace_perceptron, momentum : Take fewer products if a rough margin is enough.
    separator_margin : Certifies the margin of a separator that you have.

    Notes
    -----
    *How a run ends.*  Here G_ii is without the ridge.

    - "certified": upper - lower <= tol * upper.
    - "infeasible": p proves that there is no margin above 1e-9 sum_i p_i sqrt(G_ii); over pairs 3e-8 takes the place of
      1e-9.  Only `features`, and `pair_gram` over them, allow this proof, except for points that are 0.
    - "rounding": neither can be proved.  With features a tol below about 1e-16 s / rho^2 is out of reach.  With a
      matrix or a kernel on demand a tol below 1e-15 s / rho^2 is.  The entries of these are rounded, which may hide
      margins below 2e-8 sum_i p_i sqrt(G_ii): the same points may have a small margin with features.

    *Columns of different units.* If the run would end as "rounding" or "infeasible", and the rows have fewer than 3,000
    coordinates, Newton steps search for the coordinates of the separator.  If they prove more than weights do, they are
    the `Result.separator`.  A step takes n d^2 multiplications, and a search often takes 100 to 400 steps.  It ends
    after 2e9 multiplications, about a second.  It calls the callback after every separator that does not end it.

    *Noisy labels* leave a large support.  With a ridge, which is a soft margin, such problems take a few iterations.
    Without a ridge, a support of more than 15,000 points is left to pair steps, on sets of 6,000 to 20,000 points.
    After 20 s a UserWarning says how to shorten the run.

    *With a ridge* the interval has the best slacks of alpha, as `certificate` says, so that descent, Newton steps and
    the low rank need half the digits.

    *With a cost* alpha, or the ``separator``, and ``bias`` are those of the f whose objective proves lower:
    f(x) = sum_i alpha_i y_i K(x_i, x) + bias.  As tol falls, y_i alpha_i become the ``dual_coef_`` of
    `sklearn.svm.SVC`, and ``bias`` its ``intercept_`` for the points minus `Gram.origin`; alpha_i may exceed C_i as
    long as there is a gap.  The iterates that keep_iterates keeps have the sum 1.  With a cost there always is a
    margin, so that no run ends as "infeasible".

    *Weights as start.*  If ``start`` is an array of n weights of at least 0, a new run begins with these weights.  They
    may be the alpha of the same points at another ridge or cost.  If a point without slacks is 0 and the intercept
    is not free, the run begins with this point instead, because it proves that there is no margin.

    *Trace.*  ``products`` is an estimate: the number of entries of G that were read, divided by n^2.  A step on one
    weight counts as a column of G, although it may read only the row of a point.

    *Free intercept.* Every iteration reads G from an origin on the last plane, and penalises the bias from there.  With
    a ridge, an iteration that is solved exactly divides what is left of y'p by 21 or more, once the support and the
    origin have settled (Lemma 2, "The origin of a free intercept", in figures/THEOREMS.md).

    *Memory beyond G.*  The matrix of a working set in single precision has at most 20,000 points and takes 1.6 GB.  Two
    matrices of the support in double precision, which replace it, have at most 8,000 points and take 1 GB.  Columns of
    a G evaluated on demand take 0.25 GB.  For a kernel evaluated on demand the low rank keeps the matrix of the points
    that have slacks in single precision, 1.6 GB for 20,000 points; for more points it evaluates the kernel in every
    product.  The features of the low rank, and the rows that Newton steps write out of sparse points and of pairs, take
    up to 0.5 GB.

    References
    ----------
    The second-order choice of pairs: R.-E. Fan, P.-H. Chen, C.-J. Lin, JMLR 6, 2005; steps on a face with a ratio test:
    P. Wolfe, Mathematical Programming 11, 1976; the factor of these steps: P. Gill, G. Golub, W. Murray, M. Saunders,
    Mathematics of Computation 28, 1974; Newton steps, also those of the low rank: O. Mangasarian, Optimization Methods
    and Software 17, 2002; O. Chapelle, Neural Computation 19, 2007; the features of low rank: C. Williams, M. Seeger,
    NIPS 2000; such features as a preconditioner: A. Rudi, L. Carratino, L. Rosasco, NIPS 2017; descent: C.-J. Hsieh,
    K.-W. Chang, C.-J. Lin, S. Keerthi, S. Sundararajan, ICML 2008; descent over pairs: S. Keerthi, S. Sundararajan,
    K.-W. Chang, C.-J. Hsieh, C.-J. Lin, KDD 2008.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1], normalize=None)
    >>> result = fm.max_margin(G, tol=1e-12)
    >>> result.status, round(result.lower, 9)  # sqrt(2)
    ('certified', 1.414213562)
    """
    # 1. The problem, with a checkpoint at every iteration
    tol = _number(tol, "tol")
    weights = None
    if not _is_result(start) and np.ndim(start) == 1:
        weights = start
        start = None
    if options.get("trace_at") is None:
        options["trace_at"] = range(2**53)
    G = _checked(G)
    problem = _Problem(G, G.scale)
    aims = _aims(problem, tol)
    # 2. The weights to begin with
    alpha = np.zeros(problem.n)
    m = np.zeros(problem.n)
    if weights is not None:
        alpha = _weights(_amounts(weights, "start", problem.n))
        if problem.free_labels is None and problem.cost is None and not problem.lengths.all():
            # A row that is 0 relative to the largest is a witness by itself, unless it has slacks: begin there.
            alpha[:] = 0.0
    for side in problem.sides:
        if not alpha[side].any():
            alpha[side[np.argmin(problem.diagonal[side])]] = 1.0
    problem.finish(alpha, m)
    problem.reads[0] = 0.0  # the first product does not count
    # 3. The run.  Its certificates reuse the product with which an iteration ends.
    interval = functools.partial(_interval, multiply=problem.product)
    result = drive(
        G,
        _max_margin_loop,
        (alpha, m, np.array([_next_method(problem, alpha, 0)]), problem.reads),
        lambda alpha, *_: (alpha, alpha),
        (problem, aims),
        max_iter=max_iter,
        tol=tol,
        start=start,
        eps=0.0 if G._has_cost else functools.partial(_proof_of_no_margin, problem, aims.eps),
        takes_free=True,
        takes_cost=True,
        products=lambda k: problem.reads[0] / problem.n**2,
        interval=interval,
        **options,
    )
    # 4. If the weights have too few digits, search for the coordinates of the separator.
    if G._has_cost and result.alpha.any():
        result = _with_rounded_weights(G, result, tol)
    if result.status in ("rounding", "infeasible") and _may_search(problem, result.status):
        return _search_for_separator(problem, tol, result, options.get("callback"))
    return result


# The algorithms for the margin of G, by name
ALGORITHMS = {
    algorithm.__name__: algorithm
    for algorithm in (
        perceptron,
        nkp,
        von_neumann,
        frank_wolfe,
        snkp,
        snkpvn,
        isnkpvn,
        gradient_descent,
        normalized_gradient_descent,
        momentum,
        batch_perceptron,
        adaptive_sampling,
        diagonal_descent,
        inertial_diagonal_descent,
        homotopic_subgradient,
        subspace_perceptron,
        max_margin,
    )
}


# ------------------------------------------------------------------------------------------------------
# 9.10 witnesses
# ------------------------------------------------------------------------------------------------------
#
# A p >= 0 with p != 0 and Z'p = 0 proves that nothing separates the points with p_i > 0.
#
# (1) `max_margin` finds a p with a small Z'p.  Whether points can be separated does not depend on units.  So
#     `max_margin` gets the rows in units in which first columns, and then rows, have sizes near 1.  Its last faces
#     leave weights only on linearly independent points, which are few.
# (2) The z_i have rational entries.  Elimination in integers solves Z'p = 0 for these few points.  If p >= 0, this is
#     the proof, however imprecise (1) was.

_MOST_ENTRIES = 1 << 26  # the most entries of rows that are computed to find witnesses: 0.5 GB


class Witnesses(NamedTuple):
    """Points whose weights prove that there is no margin; `witnesses` returns them.

    Attributes
    ----------
    indices : array of int, shape (k,), ascending
        The indices of the points.  If G has pairs, the indices of the pairs, as in ``point``, ``right`` and ``wrong``
        of ``G.store``.
    weights : array, shape (k,)
        The weights p of these points, all above 0, with the sum 1.
    upper : float
        The upper end of `certificate` for p: no margin is above it.
    strict : bool
        True if it is proved that nothing separates these points, with any margin.  False if it is only proved that no
        margin is above ``upper``.

    Examples
    --------
    >>> found = fm.witnesses(fm.features([[2.0], [3.0], [1.0]], [1, 1, -1], normalize=None), [0.5, 0.0, 0.5])
    >>> found.indices, found.weights.round(3), found.strict
    (array([0, 2]), array([0.333, 0.667]), True)
    """

    indices: Array
    weights: Array
    upper: float
    strict: bool

    def __repr__(self) -> str:
        points = f"{_counted(len(self.indices), 'witness')}: {_first_of(self.indices)}"
        claim = "no separator"
        if not self.strict:
            claim = f"no margin above {_written(self.upper, 2, _UP)}"
        return f"Witnesses({claim}, by {points})"


def _first_of(indices):
    """Return a text with the first few of some indices."""
    shown = ", ".join(map(str, indices[:8]))
    return shown + (", ..." if len(indices) > 8 else "")


# Elimination is skipped above this number of witnesses, and above this product of their number and the bits of an
# entry.  At these limits it takes about 6 s.  The number of operations grows with the cube of the number of witnesses,
# and the integers grow in proportion to this number and to the bits.
_MOST_EXACT = 200
_MOST_BITS = 6500


def witnesses(G: GramLike, result: Result | ArrayLike) -> Witnesses | None:
    """Find a few points that prove that no separator exists, from a result that found no separator.

    Gordan's alternative: either some w has all margins <z_i, w> above 0, or some p >= 0 with p != 0 has Z'p = 0.  With
    a free intercept z_i stands for (z_i, y_i), and w for (w, b).  The points with p_i > 0 are the witnesses.  A p from
    floating-point arithmetic has a small Z'p instead of 0, and proves only that there is no margin above ||Z'p||.  If
    possible, this function proves that some p on the same points has Z'p = 0.

    Parameters
    ----------
    G : Gram
        A Gram of the linear kernel, from `features`, `gram` or `lazy_gram`, or of pairs, from `pair_gram`.
    result : Result, or array, shape (n,)
        The Result of an algorithm for G, or a point of the simplex.

    Returns
    -------
    witnesses : Witnesses, or None if the result or `max_margin` has a separator
        The witnesses are among the points with p_i > 0 if these points cannot be separated, and otherwise among all
        points.  For points in d dimensions there are at most d + 1 witnesses, and d + 2 with a free intercept.  If
        rounding hides the proof by so few points, the witnesses may be all points with p_i > 0.

        ``strict`` is True if no separator exists in exact arithmetic for the numbers that G holds.  It can be True for
        up to 200 witnesses, or up to about 95 if their numbers have all the digits of a double.  It is False if the
        proof fails, for example because the points have a margin that is too small for `max_margin` to find.

    Raises
    ------
    ValueError
        The result has another number of points than G, or p is not a point of the simplex.  Or the result has no
        separator, and G does not hold the rows of its points: an array does not, and a kernel other than the linear one
        does not.  For such a G only a zero on the diagonal can be a witness.

    See Also
    --------
    contradiction : Finds two equal points with different labels, for any kernel.
    certificate : Gives the upper end for any p.

    Notes
    -----
    Elimination in integers finds a p >= 0 with Z'p = 0 (Theorem 19, "Witnesses", in figures/THEOREMS.md).  It takes 0.3
    s for 60 witnesses and 1.5 s for 90, and less if their numbers are short.  G holds the points times their
    normalisers, which are rounded.  This makes no difference without a free intercept or with normalize="max", except
    for sparse points, which hold rounded products.

    A point that has a ridge is always separated, and so is a point with a cost.  Such points are never witnesses.

    References
    ----------
    P. Gordan, Mathematische Annalen 6, 1873; few points suffice: C. Caratheodory, Rendiconti del Circolo Matematico di
    Palermo 32, 1911.

    Examples
    --------
    >>> X = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [1.0, 1.0]]
    >>> G = fm.features(X, [1, 1, 1, -1], normalize=None, intercept="free")
    >>> fm.witnesses(G, fm.max_margin(G))
    Witnesses(no separator, by 4 witnesses: 0, 1, 2, 3)
    """
    G = _checked(G)
    if _is_result(result):
        p = _distribution(result.p, "result", len(G))
        # A result of another G may separate its own points alone.
        if result.lower > 0.0 and _weights_separate(G, _vector(result.alpha, "result", len(G))):
            return None
    else:
        p = _distribution(result, "result", len(G))
    points = G._changed(ridge=0.0)
    may_be = np.broadcast_to((np.asarray(G.ridge) == 0.0) & np.isinf(G.cost), p.shape)
    # 1. A row of zeros is a witness by itself.
    zeros = _zero_rows(points, np.flatnonzero(may_be & (points.diagonal() == 0.0)))
    if G.free_labels is None and zeros.size:
        chosen = np.zeros(len(G))
        chosen[zeros[0]] = 1.0
        return Witnesses(zeros[:1], np.ones(1), certificate(G, chosen, chosen)[1], True)
    # 2. Look among the points of the result, and then among all points.  Rounding may choose points that give no proof
    #    although all points of the result together give one.
    tried = []
    for among in (may_be & (p > 0.0), may_be):
        weights = _mixture_near_zero(points, np.flatnonzero(among))
        if weights is not None:
            tried.append(weights)
        elif among is may_be:
            return None
        proved = _proved_weights(points, weights)
        if proved is not None:
            break
    if proved is None and may_be[p > 0.0].all():
        tried.append(p)
        proved = _proved_weights(points, p)
    if proved is not None:
        tried = [proved]
    # 3. Without a proof take the first weights, unless others prove much more.
    best = None
    for chosen in tried:
        if G.free_labels is not None:
            is_plus = G.free_labels > 0.0
            totals = np.where(is_plus, chosen[is_plus].sum(), chosen[~is_plus].sum())
            if not totals.all():  # by rounding
                continue
            chosen = 0.5 * chosen / totals
        upper = certificate(G, chosen, chosen, precise=True)[1]
        if best is None or upper < 0.5 * best.upper:
            index = np.flatnonzero(chosen)
            best = Witnesses(index, chosen[index], upper, proved is not None)
    return best


def _weights_separate(G, alpha):
    """Return True if these weights have a margin above 0 for sure."""
    _, bounded = _product_of(G, alpha, precise=True)
    return _ends(bounded)[0] > 0.0


def _zero_rows(G, index):
    """Return the indices among these whose rows are 0 in the numbers that G holds, as far as G holds rows or
    entries."""
    if _is_pairs(G):
        points = G.store.point[index]
        return index[np.isin(points, _zero_rows(G.store.K, points))]
    if isinstance(G.store, _Matrix) and G._points is None:
        return index[G.diagonal()[index] == 0.0]
    of_points = _rows_of(G, index)
    if of_points is None:
        return index[:0]
    rows, c = of_points
    return index[~rows.any(axis=1) | (c == 0.0)]


def _mixture_near_zero(G, index):
    """Return weights of some points whose mixture is about 0, or None if these points have a margin.

    Whether there is a separator depends neither on the units of columns nor on the lengths of rows.  So both are scaled
    to sizes near 1.
    """
    if not index.size or (G.free_labels is not None and np.ptp(G.free_labels[index]) == 0.0):
        return None
    rows, factors = _balanced_rows(G, index)
    best = max_margin(Gram._over(_Rows(rows)))
    if best.lower > 0.0:
        return None
    weights = np.zeros(len(G))
    weights[index] = best.p * factors
    return weights / weights.sum()


def _proved_weights(G, weights):
    """Return the weights of `_proved` for the points that have weights, or None if there are none."""
    if weights is None:
        return None
    index = np.flatnonzero(weights)
    proved = _proved(G, index, weights[index])
    if proved is None:
        return None
    of_all = np.zeros(len(G))
    of_all[index] = proved
    return of_all


def _rows_of(K, index):
    """Return (rows, c) of some points, without rounding, with z_i = c_i rows_i; return None if K has no rows.

    The common factor sqrt(1/2) of pairs is left out.
    """
    if _is_pairs(K) and K.d is not None:
        pairs = K.store
        of_points = None
        if index.size * pairs.n_classes * K.d <= _MOST_ENTRIES:
            of_points = _rows_of(pairs.K, pairs.point[index])
        if of_points is None:
            return None
        rows, c = of_points
        return _pair_rows(rows, pairs.right[index], pairs.wrong[index], pairs.n_classes), c
    points = K.store if K._points is None else K._points
    c = K._spread(K._c)[index]
    if isinstance(points, _Rows) and index.size * K._width <= _MOST_ENTRIES:
        return K._with_constant(points.coordinates(index), K._constant), c
    is_linear = isinstance(points, _OnDemand) and K.kernel.name == "linear"
    if is_linear and index.size * (K.d + 1) <= _MOST_ENTRIES:
        return K._with_constant(_numbers_of(points, index), K._constant), c
    return None


def _numbers_of(store, index):
    """Return some points of a kernel on demand, (k, d), as the kernel reads them."""
    rows = store.prepared.take(index).rows
    return rows.toarray() if _is_sparse(rows) else np.asarray(rows)


def _balanced_rows(G, index):
    """Return (rows, factors): the rows of some points times these factors, powers of 2.

    Columns are multiplied by powers of 2, too, so that their largest entries, and then the lengths of rows, are near 1.
    Columns of zeros are left out.  The factor of a row of zeros is 0.
    """
    of_points = _rows_of(G, index)
    if of_points is None:
        raise ValueError(
            "G must hold the rows of its points, of a linear kernel, to prove that there is no separator, and at most "
            f"{_MOST_ENTRIES:,} entries of them: for planes give features(X, y), of fewer points if there are more; "
            "for other kernels contradiction(X, y) finds equal points with different labels"
        )
    rows, c = of_points
    rows = rows * c[:, None]
    if G.free_labels is not None:
        rows = np.column_stack((rows, G.free_labels[index]))
    rows = rows[:, rows.any(axis=0)]
    columns = np.frexp(np.abs(rows).max(axis=0, initial=0.0))[1]
    exponents = np.where(rows != 0.0, np.frexp(rows)[1] - columns, -1000).max(axis=1, initial=-1000)
    factors = np.where(rows.any(axis=1), np.ldexp(1.0, -exponents), 0.0)
    # Multiply by both powers at once: after one of them alone an entry might underflow.
    return np.ldexp(rows, -columns - exponents[:, None]), factors


def _exact_columns(G, index):
    """Return (columns, lengths): integers, (number of columns, k), with Z'p = 0 if and only if columns @ (p
    lengths) = 0.

    The integers are the columns of Z, each in a unit of its own, after rows have been divided by the lengths.
    """
    rows, c = _rows_of(G, index)
    rows = [[Fraction(x) for x in row] for row in rows[:, rows.any(axis=0)].tolist()]
    lengths = np.ones(index.size)
    if G.free_labels is None:  # then a weight can make up for the length of a row, which is rounded
        lengths = np.abs(c)
        c = np.sign(c)
    columns = [
        [x * Fraction(factor) for x, factor in zip(column, c.tolist(), strict=True)]
        for column in zip(*rows, strict=True)
    ]
    if G.free_labels is not None:
        columns.append([Fraction(label) for label in G.free_labels[index].tolist()])
    whole = []
    for column in columns:
        unit = math.lcm(*(x.denominator for x in column))
        numbers = [int(x * unit) for x in column]
        common = math.gcd(*numbers) or 1
        whole.append([x // common for x in numbers])
    return whole, lengths


def _proved(G, index, weights):
    """Return weights p >= 0 of witnesses, near these weights, whose exact values have Z'p = 0; None if none are found.

    N has a row for each free point: the solution x of x'Z = 0, for the columns of Z so far, in which this point has the
    weight ``last`` and the other free points have the weight 0.  Each column takes the freedom of one point, if it can.
    The divisions have no remainder (Theorem 19, "Witnesses", in figures/THEOREMS.md; E. Bareiss, Mathematics of
    Computation 22, 1968).
    """
    k = index.size
    if not 0 < k <= _MOST_EXACT:
        return None
    columns, lengths = _exact_columns(G, index)
    weights = weights * lengths
    if k * max((x.bit_length() for column in columns for x in column), default=0) > _MOST_BITS:
        return None
    N = np.array([[int(i == j) for j in range(k)] for i in range(k)], dtype=object)
    free = np.arange(k)
    last = 1
    for column in columns:
        v = N @ np.array(column, dtype=object)
        can_balance = np.flatnonzero(v)
        if not can_balance.size:
            continue
        heaviest = can_balance[np.argmax(weights[free[can_balance]])]
        row = N[heaviest]
        pivot = v[heaviest]
        others = np.arange(free.size) != heaviest
        N = (pivot * N[others] - np.outer(v[others], row)) // last
        free = free[others]
        last = pivot
    # Free points keep their weights.  There is no proof if no point is free, or if another point needs a negative
    # weight.
    kept = [int(Fraction(x) * 2**1074) for x in weights[free].tolist()]  # not rounded
    x = (1 if last > 0 else -1) * (np.array(kept, dtype=object) @ N)
    if not free.size or min(x) < 0 or not any(x):
        return None
    total = sum(x)
    proved = np.array([float(Fraction(weight, total)) for weight in x]) / lengths
    return proved / proved.sum()


# ======================================================================================================
# 10 classifier
# ======================================================================================================
#
# The classifier follows scikit-learn's conventions for estimators without importing its base classes.  If scikit-learn
# is loaded, errors and warnings have its types.  Some messages have the words that scikit-learn's estimator checks look
# for.

# For more points than this, G of "poly", "rbf" and "laplacian" is evaluated on demand.
_STORED_POINTS = 3000


def _known_as(name, otherwise):
    """Return scikit-learn's exception or warning of this name, or ``otherwise`` if scikit-learn is not loaded."""
    return getattr(sys.modules.get("sklearn.exceptions"), name, otherwise)


class _NotFittedError(ValueError, AttributeError):
    """Replace scikit-learn's NotFittedError if scikit-learn is not loaded."""


class _TrainingSet(NamedTuple):
    """The points that `fit` learns from: points whose weight is not 0, and the first of equal points in a class.

    X : array or sparse, (k, d), the points; their kernel matrix if it is precomputed
    rows : array of int, (k,), the indices of these points among all points
    labels : array of int, (k,), the index of the class of each point in classes_
    weights : array, (k,), the sample weights; a point that stands for equal points has the sum of their weights
    """

    X: Any
    rows: Array
    labels: Array
    weights: Array


def _column_names(X):
    """Return the column names of a data frame as a list, which is empty if X is not a data frame."""
    names = list(getattr(X, "columns", ()))
    if names and len({isinstance(name, str) for name in names}) > 1:
        types = sorted({type(name).__name__ for name in names})
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{types} as feature name / column name types: make all of them text, X.columns = X.columns.astype(str)"
        )
    return names


def _refuse_columns(names, known, columns):
    """Raise an error, in the words of scikit-learn, for column names that differ from those in fit.

    ``columns`` is the Python expression for the names in fit.
    """
    lines = ["The feature names should match those that were passed during fit."]
    seen, given = set(known), set(names)
    unseen = [name for name in names if name not in seen]
    missing = [name for name in known if name not in given]
    for which, those in (
        ("unseen at fit time", unseen),
        ("seen at fit time, yet now missing", missing),
    ):
        if those:
            lines.append(f"Feature names {which}:")
            lines += [f"- {name}" for name in those[:5]] + ["- ..."] * (len(those) > 5)
    if not unseen and not missing:
        lines.append("Feature names must be in the same order as they were in fit.")
    remedy = f"give X[list({columns})]"
    if missing:
        remedy = f"rename columns, X.rename(columns=...), or {_SAME_COLUMNS}"
    lines.append(f"Remedy: {remedy}")
    raise ValueError("\n".join(lines))


_SAME_COLUMNS = "give X.to_numpy() if these are the columns of fit, in order"
_OF_MEASURED = (
    "of measured numbers make two classes by a threshold, np.asarray(y) > np.median(y), or take a "
    "regressor"
)


def _class_labels(y, n):
    """Check that labels may be classes of n points, and return them, (n,)."""
    y = _known_labels(y)
    if y.ndim == 2 and y.shape[1] == 1:
        _warn(
            "A column-vector y was passed when a 1d array was expected; give y.ravel()",
            _known_as("DataConversionWarning", UserWarning),
        )
        y = y.ravel()
    if y.shape != (n,):
        raise ValueError(
            f"y should be a 1d array with a label for each of {n} rows of X, got shape {y.shape}"
        )
    if _kinds(y) == {"numbers"}:
        with np.errstate(invalid="ignore"):
            is_between = y % 1 != 0  # true for infinite numbers as well
        if is_between.any():
            i = is_between.argmax()
            raise ValueError(
                f"Unknown label type: continuous. y[{i}] is {y[i]}, which is not a class label: {_OF_MEASURED}; if "
                "such numbers are classes, give np.unique(y, return_inverse=True)[1], as LabelEncoder does"
            )
    return y


def _targets(y, n):
    """Return the sorted classes, and the index of each point's class among them."""
    y = _class_labels(y, n)
    try:
        classes, labels = np.unique(y, return_inverse=True)
    except TypeError:
        types = " and ".join(sorted({type(label).__name__ for label in y.tolist()}))
        raise TypeError(
            f"y must hold labels of one type, which can be sorted; it holds {types}: give text, as in "
            "[str(label) for label in y]"
        ) from None
    if n > 20 and classes.size > n / 2:  # as in scikit-learn
        _warn(
            f"y has {classes.size} classes for {n} points, fewer than two points per class: {_OF_MEASURED}"
        )
    return classes, labels


def _sample_weights(given, n):
    """Return checked weights of n points; None stands for weights of 1."""
    return _amounts(1.0 if given is None else given, "sample_weight", n)


def _class_factors(given, classes, totals):
    """Return the factors by which `class_weight` multiplies C; ``totals`` has the sum of sample weights of each
    class."""
    if isinstance(given, str) and given == "balanced":
        return totals.sum() / (classes.size * totals)
    names = classes.tolist()
    given = {} if given is None else given
    if not hasattr(given, "keys"):
        raise ValueError(
            f'class_weight must be None, "balanced" or a dict of weights by class, {names}; got {given!r}'
        )
    # As in scikit-learn, unknown classes are an error only if a known one is missing.
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    if missing and unknown:
        raise ValueError(
            f"class_weight names {unknown}, which y does not hold, and not {missing}, which y holds: "
            "give each class of y a weight, under the label that it has in y"
        )
    return np.array([_number(given.get(name, 1.0), f"class_weight[{name!r}]") for name in names])


def _refuse_weights(weights):
    """Raise an error if weights differ so much that rounding would hide the least of them."""
    least = weights.min()
    largest = weights.max()
    floor = _RATIOS[0] * largest
    if least < floor:
        raise ValueError(
            f"sample_weight times class_weight ranges from {least:g} to {largest:g}, more than a factor of "
            f"{_RATIOS[1]:g}: leave lighter points out, with a sample_weight of 0 for each product below "
            f"{_written(floor, 2, _UP)}, or give a class_weight whose values differ less"
        )


_PROBABILITIES = "for probabilities use CalibratedClassifierCV(model) of sklearn.calibration"
_ONLY_OF_PEERS = {
    "probability": _PROBABILITIES,
    "decision_function_shape": "with more than two classes decision_function has a column for each class",
    "break_ties": "predict always takes the class of the largest decision_function",
    "max_iter": "tol ends a search; for a number of iterations use max_margin(gram(X, y), max_iter=...)",
    "cache_size": "the memory is given in the docstring, and has no parameter",
    "shrinking": "the solver chooses the points that it works on",
    "random_state": "nothing here is random",
    "verbose": "status_, n_iter_ and interval_ say how the search ended",
    "penalty": "||f||^2 is always penalised; for a linear f that is penalised in another norm use norm_margin",
    "dual": "a fit always solves both the primal and the dual problem",
    "multi_class": "several classes are always one problem, with f for each class",
}
_Init = TypeVar("_Init", bound=Callable[..., None])


def _remedy(name, known):
    """Return what an error says about a parameter that a classifier with the ``known`` ones does not have."""
    return _ONLY_OF_PEERS.get(name, f"its parameters are {list(known)}")


def _naming_remedies(init: _Init) -> _Init:
    """Make the constructor's error say what replaces a parameter that it does not have."""

    @functools.wraps(init)
    def checked(self, *args, **params):
        known = inspect.signature(type(self)).parameters
        for name in params:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no {name!r}: {_remedy(name, known)}")
        init(self, *args, **params)

    return checked


def _blank(kind, version):
    """Return a classifier without attributes; `pickle` sets its saved state next."""
    _refuse_version(version)
    return kind.__new__(kind)


class MaxMarginClassifier:
    """Classify with the largest margin, as SVC does, and prove an interval around this margin.

    The classifier is an estimator for scikit-learn's pipelines and searches, and also works without scikit-learn.  Two
    classes have y_i = -1 for classes_[0] and y_i = +1 for classes_[1].  More classes are one problem, with a function
    f_c for each class c.  The hard margin, C = inf, is

        rho = max_f min_i y_i f(x_i)  over ||f|| = 1  for two classes,
        rho = max_f min_{i, c != y_i} (f_{y_i}(x_i) - f_c(x_i)) / 2  over sum_c ||f_c||^2 = 2  for more,

    where ||f|| is the norm of the kernel's function space.  A soft margin, C < inf, which is the default, minimises

        ||f||^2 / 2 + C sum_i w_i l(y_i f(x_i))  for two classes,
        sum_c ||f_c||^2 / 4 + C sum_{i, c != y_i} w_i l((f_{y_i}(x_i) - f_c(x_i)) / 2)  for more,

    with the hinge loss l(m) = max(0, 1 - m), as SVC does, or with its square, as LinearSVC does by default.

    The parameters define the problem, and `max_margin` solves it.  To choose an algorithm, its number of iterations or
    a callback, use the functions that take ``gram(X, y)``, such as `momentum`.

    Parameters
    ----------
    kernel : str or callable
        "linear", "poly", "rbf", "laplacian", "ntk", "precomputed" or a function, as in `gram`.  With "precomputed" X is
        the kernel matrix of the training points, (n, n), in `fit`, and has the K(x, x_i), (m, n), in `predict`.
    gamma, coef0, degree, sigma2
        Parameters of the kernel, as in `gram`.  Parameters that the kernel does not take are ignored.
    normalize : {None, "unit", "max"}
        As in `gram`.  None, the default, does not change K.
    fit_intercept : bool
        If True, f has a bias.
    intercept_scaling : float or None
        None leaves the bias of two classes free, as SVC does: ||f|| does not include it, and rho does not depend on the
        origin.  A number c adds the constant feature c to all points, as LinearSVC does: the kernel is K + c^2, and
        ||f|| includes the bias.  For more than two classes None stands for 1; then f depends on the origin, so bring
        the columns near 0, or give a larger c.
    C : float
        Weight of the loss, above 0; inf is the hard margin.  C has the units of 1 / max_i G_ii, where G_ii is
        K(x_i, x_i) + c^2 after normalisation, and c is the constant feature, or 0 without one.
    loss : {"hinge", "squared_hinge"}
        The loss l of a soft margin.
    class_weight : dict, "balanced" or None
        w_i is the sample_weight of the point, 1 by default, times the weight of its class.  The weight of a class is 1
        if the dict does not name it.  "balanced" is (sum of all sample weights) / (n_classes (their sum in the class)).
    tol : float
        The solver stops once upper - lower <= tol * upper.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
        The classes, sorted.
    class_weight_ : array, shape (n_classes,)
        The weight of each class.
    interval_ : (float, float)
        lower <= rho <= upper, certified as in `certificate`.  If C < inf, rho is the margin of G with the cost C w_i
        for the hinge loss, and of G + diag(1/(2 C w_i)) for its square, and the least value of the objective is 1 / (2
        rho^2).
    margin_ : float
        lower.  If C = inf, the predictor has at least this margin, up to the rounding of its coefficients.
    status_, n_iter_, result_ : str, int, Result
        How the search ended, as in `Result`; its number of iterations; and the Result of `max_margin`, for the points
        of positive weight, where the first of equal points in a class stands for all of them.
    support_, n_support_ : array of int, shape (k,); array of int, shape (n_classes,)
        The indices of the points that contribute to f, and the number of such points in each class.  The first of equal
        points in a class has the contribution of all of them.
    support_vectors_ : array or sparse, shape (k, d)
        The points of support_.  For a precomputed kernel this is empty, (0, 0); for objects it is an array of objects,
        (k,).
    dual_coef_, intercept_ : arrays, shapes (1, k) and (1,), or for several classes (n_classes, k) and (n_classes,)
        f(x) = sum_i dual_coef_i K(x_i, x) + intercept_.  With normalize="unit" this is divided by sqrt(K(x, x) + c^2),
        except for a free bias.  dual_coef_i is t a_i times the normaliser of x_i, which is 1 if normalize is None.
        Here a_i is y_i result_.p_i for two classes, and the class coefficient T_ci of `pair_gram` for several, and
        t > 0 is one number.  For two classes with the hinge loss t |a_i| is at most C w_i, up to a factor that tends to
        1 as tol falls.
    coef_ : array, shape (1, d) or (n_classes, d)
        Only with the linear kernel: coef_ x is the sum in f(x), and coef_ is sum_i dual_coef_i x_i, which is summed in
        more than double precision.  Where columns are far longer than their spread, the dual_coef_ themselves have too
        few digits.  The same holds if result_.separator is not None: coef_ then is this separator in the units of X.
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    n_features_in_, feature_names_in_ : int, array of str
        n_features_in_ is d, unless the points are objects.  feature_names_in_ has the names of the columns if X was a
        data frame whose column names are text.  Column names of any type are compared with those of later data frames.

    See Also
    --------
    max_margin : The solver.
    gram, features, lazy_gram, pair_gram : The representations of G that `fit` chooses from.
    separator_margin : Certifies the margin of a separator that you have.
    contradiction : Finds two equal points with different labels.

    Notes
    -----
    f has the scale of a support vector machine: with a hard margin, the least y_i f(x_i) is 1.

    Points that cannot be separated have no hard margin.  Then `fit` raises an error that names points that prove this,
    and suggests a finite C. If rounding hides whether there is a hard margin, a warning gives the interval that is
    proved.

    A point of sample_weight k counts as k copies of it, for gamma="scale" as well.  Copies count as one point with the
    sum of their weights (Lemma 3, "Copies of a point", in figures/THEOREMS.md).  Points of a precomputed kernel or in a
    mapped file are not compared, and each counts as one point.  At a given gamma, a hard margin depends only on which
    weights are 0.  Weights times class weights that are not 0 must be within a factor of 1e16 of each other.  C w_i
    max_i G_ii must be between 1e-16 and 1e16, and for the squared hinge loss between half of these limits.

    With several classes G has n (n_classes - 1) rows, and a product costs n_classes products with the kernel matrix.
    2,000 points of 100 classes took about a second.

    If the kernel is "linear" and X has fewer than 3,000 columns, the columns may have different units.  If no weights
    of points in double precision give the separator, `fit` finds its coordinates and certifies them, as
    `separator_margin` does.  Then `interval_` is the interval of these coordinates, which are ``result_.separator``,
    and it is narrower than the interval that ``result_.alpha`` proves.  If one column is up to 1e8 times as wide as
    another, tol=1e-6 was reached in every trial; with larger factors rounding may hide more.  This includes sparse X
    that have up to 2^26 entries with their zeros.

    Only the version of this module that saved a model, by `pickle` and the like, can read it.

    Memory: "linear" needs only the points.  G is stored for "precomputed", a function and "ntk", and for other kernels
    up to 3,000 points, which take 72 MB.  For more points G is evaluated on demand.  The model keeps what scores new
    points, and does not keep G. Sparse X stay sparse with "linear", "poly" and, if they have more than 128 columns,
    "rbf"; with other kernels they become dense.

    Examples
    --------
    >>> X, y = [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 1.0]], ["low", "low", "high", "high"]
    >>> model = fm.MaxMarginClassifier("linear").fit(X, y)
    >>> model.predict([[0.0, 0.0], [9.0, 0.0]])
    array(['low', 'high'], dtype='<U4')
    >>> model.status_, round(model.margin_, 6)  # half of sqrt(2)
    ('certified', 0.707107)
    """

    _estimator_type = "classifier"

    @_naming_remedies
    def __init__(
        self,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        *,
        gamma: float | str = "scale",
        coef0: float = 1.0,
        degree: int = 3,
        sigma2: float | None = None,
        normalize: str | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float | None = None,
        C: float = 1.0,
        loss: str = "hinge",
        class_weight: dict[Any, float] | str | None = None,
        tol: float = 1e-6,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.sigma2 = sigma2
        self.normalize = normalize
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.C = C
        self.loss = loss
        self.class_weight = class_weight
        self.tol = tol

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.  No parameter has parameters of its own, so that ``deep`` changes nothing."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> MaxMarginClassifier:
        """Set parameters by name, and return self; raise ValueError for a name that `get_params` does not list."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}: {_remedy(name, known)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self):
        # Only scikit-learn asks for tags, so that it is installed and can be imported here.
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=ClassifierTags(),
            regressor_tags=None,
            input_tags=InputTags(sparse=True, pairwise=self._has_kernel("precomputed")),
        )

    def _has_kernel(self, kernel):
        return isinstance(self.kernel, str) and self.kernel == kernel

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> MaxMarginClassifier:
        """Find the largest margin of labeled points.

        Parameters
        ----------
        X : array, data frame, SciPy sparse matrix or memory-mapped array, shape (n, d)
            The points.  For a precomputed kernel X is its matrix, (n, n); for a function X may be a list of n objects.
        y : array, shape (n,)
            The classes of the points: numbers, strings or other labels that can be sorted.
        sample_weight : array, shape (n,), or None
            Weights of at least 0, which multiply the class weights.  Points of weight 0 are left out.

        Returns
        -------
        self : MaxMarginClassifier

        Raises
        ------
        ValueError, TypeError
            The errors of `gram`; a parameter is out of range; y has numbers that are no classes, or fewer than two
            classes of positive weight; weights are negative or not finite; only some of the column names of a data
            frame are text; or C is inf, and points prove that nothing separates the classes.

        Warns
        -----
        UserWarning
            `max_margin` has not certified the margin to twice tol; a bias alone is optimal to tol; or there are more
            than 20 points, and more than half as many classes as points.
        """
        self._forget_fit()
        try:
            # 1. Read the points, their classes and their weights.
            data = self._read(X, y, sample_weight)
            # 2. Represent the kernel matrix.
            G = self._represent(data)
            # 3. Find the margin.
            G, result = self._solve(G, data)
            # 4. Turn the solution into coefficients.
            self._set_predictor(G, data, result)
        except BaseException:  # also Ctrl-C
            self._forget_fit()
            raise
        return self

    def _forget_fit(self):
        """Delete the attributes that `fit` sets, so that a fit that fails leaves none."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _read(self, X, y, sample_weight):
        """Return the `_TrainingSet`, and set the attributes that describe it."""
        self._names_ = _column_names(X)
        X = _training_points(X, y, self.kernel)
        n = X.shape[0]
        if _width_of(X) is not None:
            self.n_features_in_ = X.shape[1]
        if self._names_ and isinstance(self._names_[0], str):
            self.feature_names_in_ = np.array(self._names_, dtype=object)
        classes, labels = _targets(y, n)
        weights = _sample_weights(sample_weight, n)
        # 1. Leave out points of weight 0.
        rows = np.flatnonzero(weights)
        if rows.size < n:
            X = X[np.ix_(rows, rows) if self._has_kernel("precomputed") else rows]
            weights = weights[rows]
            present, labels = np.unique(labels[rows], return_inverse=True)
            classes = classes[present]
        if classes.size < 2:
            of_weight = " among the points whose weight is not zero" if rows.size < n else ""
            raise ValueError(
                f"y must hold at least two classes{of_weight}; got {_counted(classes.size, 'class')}"
            )
        # 2. Count equal points of a class as one point.
        if not (self._has_kernel("precomputed") or _is_mapped(X)):
            first, place = _first_copies(X, labels)
            if first.size < rows.size:
                X = X[first]
                rows = rows[first]
                labels = labels[first]
                weights = np.bincount(place, weights)
        # 3. Compute the weights of the classes.
        self.classes_ = classes
        self.class_weight_ = _class_factors(
            self.class_weight, classes, np.bincount(labels, weights)
        )
        _refuse_weights(weights * self.class_weight_[labels])
        return _TrainingSet(X, rows, labels, weights)

    def _intercept(self):
        """Return the ``intercept`` with which G is made."""
        if not self.fit_intercept:
            return 0.0
        if self.intercept_scaling is None:
            return "free" if self.classes_.size == 2 else 1.0
        scaling = _number(self.intercept_scaling, "intercept_scaling")
        return _constant_feature(scaling, "intercept_scaling")

    def _represent(self, data):
        """Return G without slacks."""
        if self.normalize == "unit" and self._has_kernel("precomputed"):
            raise ValueError(
                'normalize="unit" needs K(x, x) of new points, which a precomputed kernel does not have: '
                "normalise the matrices that you give, and leave normalize out"
            )
        X = data.X
        n_classes = self.classes_.size
        signs = 2.0 * data.labels - 1.0 if n_classes == 2 else None
        form = {"normalize": self.normalize, "intercept": self._intercept()}
        if self._has_kernel("linear"):
            if _is_free(form["intercept"]) and _is_mapped(X):
                X = np.array(X)  # a copy in memory, from which a point is subtracted
            G = features(X, signs, **form)
        else:
            params = {name: getattr(self, name) for name in _kernel_class(self.kernel).takes}
            if "gamma" in params:
                # "scale" depends on the sample weights, which representations do not know.
                sigma2 = params.pop("sigma2", None)
                params["gamma"] = _gamma_of(self.gamma, sigma2, X, data.weights)
            # To evaluate "ntk" for every product would take too long.
            is_stored = callable(self.kernel) or self.kernel in ("precomputed", "ntk")
            make = gram if is_stored or X.shape[0] <= _STORED_POINTS else lazy_gram
            G = make(X, signs, kernel=self.kernel, **form, **params)
        return G if n_classes == 2 else pair_gram(G, data.labels, n_classes)

    def _solve(self, hard, data):
        """Return G and the `Result` for f; set the certified attributes, and warn if the interval is wider than asked.

        ``hard`` is G without slacks.
        """
        C = _number(self.C, "C", infinite=True)
        _choice(self.loss, "loss", ("hinge", "squared_hinge"))
        weights = data.weights * self.class_weight_[data.labels]
        G = hard
        if C < math.inf:
            self._refuse_C(weights, hard.scale)
            G = self._with_slacks(hard, weights, C)
        result = max_margin(G, tol=self.tol)
        if C == math.inf and not result.lower > 0.0:
            self._refuse_no_margin(data, result, 1.0 / (hard.scale * weights.mean()))
        self.result_ = result
        self.n_iter_ = result.n_iter
        self.interval_ = (result.lower, result.upper)
        self.margin_ = result.lower
        # Without a margin fit has ended above.  With slacks there is one, however small.
        self.status_ = "rounding" if result.status == "infeasible" else result.status
        # A gap just above tol is no reason to warn.
        if result.upper - result.lower > 2.0 * self.tol * result.upper:
            _warn(self._advice_on_interval(), _known_as("ConvergenceWarning", UserWarning))
        return G, result

    def _with_slacks(self, hard, weights, C):
        """Return G with slacks whose weights are C times the weights of the points."""
        weights = np.repeat(weights, self.classes_.size - 1)
        if self.loss == "hinge":
            return hard.with_cost(C * weights)
        return hard.with_ridge(0.5 / weights / C)

    def _refuse_C(self, weights, scale):
        """Raise an error for a C so small that rounding hides its slacks, or so large that rounding hides the
        points."""
        low, high = (limit / scale * (1.0 if self.loss == "hinge" else 0.5) for limit in _RATIOS)
        # Round the limits inwards, so that the costs or ridges are in range, too, whichever way they are rounded.
        least = low / weights.min() * (1.0 + _LAST)
        largest = high / weights.max() * (1.0 - _LAST)
        if not least <= self.C <= largest:
            remedy = ", or C=inf, the hard margin" if self.C > largest else ""
            raise ValueError(
                f"C={self.C:g} must be from {_written(least, 2, _UP)} to {_written(largest, 2, _DOWN)}, because "
                f"max_i G_ii is {scale:g}: give a C in this range{remedy}; if columns have different units, use "
                "StandardScaler() first"
            )

    def _refuse_no_margin(self, data, result, suggested):
        """Raise an error if a mixture of points, or two contradicting points, prove that nothing separates the classes.

        Two equal points of different classes prove it whatever rounding hides, unless they are rows of a precomputed
        kernel.  The message suggests a C.
        """
        is_proved = result.status == "infeasible"
        equal = None
        if is_proved or result.status == "rounding":
            equal = contradiction(data.X, data.labels)
        if equal is not None:
            i, j = data.rows[list(equal)]
            witness = f"the points {i} and {j} contradict each other"
            is_proved = is_proved or not self._has_kernel("precomputed")
        else:
            # Each point has a row of G for every other class.
            used = np.flatnonzero(result.p) // (self.classes_.size - 1)
            points = data.rows[np.unique(used)]
            named = f"the points {points.tolist()}" if points.size <= 6 else f"{points.size} points"
            witness = f"a mixture of {named} proves it"
        if is_proved:
            raise ValueError(
                f"no function separates the classes with a margin above {_written(result.upper, 1, _UP)}: {witness}; "
                f"give a finite C, such as C={float(f'{suggested:.0e}'):g}, and choose it by cross-validation; to "
                "study points without a margin, use max_margin and witnesses"
            )

    def _advice_on_interval(self):
        """Return a text that says what is known of the margin, and what would narrow the interval."""
        lower, upper = self.interval_
        smaller = "a finite C" if self.C == math.inf else "a smaller C"
        remedy = f"give {smaller}" + " or a larger tol" * (lower > 0.0)
        if self.status_ == "max_iter":
            remedy = f"after {_counted(self.n_iter_, 'iteration')}: {remedy}"
        else:
            remedy = f"as far as rounding lets it be proved: {remedy}"
            if not self._has_kernel("precomputed"):
                remedy += ", and bring columns to one scale and near 0, as StandardScaler does, if they are not"
        gap = 1.0 - lower / upper
        digits = max(3, 2 - math.floor(math.log10(gap))) if gap > 0.0 else 17
        return (
            f"the margin is known to be between {_written(lower, digits, _DOWN)} and {_written(upper, digits, _UP)}, a "
            f"relative gap of {gap:.2g}, {remedy}"
        )

    def _set_predictor(self, G, data, result):
        """Keep what scores new points, and set the coefficients of f for the points that the user gave."""
        X = data.X
        n_classes = self.classes_.size
        # A G over pairs has no constant feature of its own: that of its K is in the intercept.
        constant = _constant(G.intercept)
        self.kernel_ = G.kernel
        # 1. Keep what scores new points.  The sums over points are multiplied by the scale, and not the weights: the
        #    terms of a sum may cancel so far that rounding the weights once more would hide a small margin.
        alpha, multiple = self._weights_and_multiple(G, result)
        if result.separator is None:
            scores = G._scores(alpha[None])
            scale = multiple
        else:
            scores = G._scores_of(result.separator.ravel()[None])
            scale = 1.0
        self._scores_ = scores._replace(common=scale * scores.common)
        self._bias_ = scale * result.bias
        # 2. Set the coefficients: f(x) = multiple common sum_i coefficients_i K(x_i, x) + intercept.
        if self._has_kernel("linear"):
            if n_classes == 2:
                table = (alpha * (2.0 * data.labels - 1.0))[None]
            else:
                table = G.store.class_coefficients(alpha[None])
            support = np.flatnonzero(table.any(axis=0))
            # In the other branch, too, coefficients are those of K(x_i, x): they have the normaliser of x_i.
            coefficients = scores.common * table[:, support]
            if self.normalize == "unit":
                coefficients /= np.sqrt(_squares(X[support]) + constant**2)
            d = X.shape[1]
            W = self._scores_.common * self._scores_.separators
            self.coef_ = W[:, :d].copy()
            moved = [sum(_at_origin(G, w)[:2]) for w in self.coef_]
            of_constant = constant * W[:, d:].sum(axis=1) - np.array(moved)
        else:
            support = scores.places
            coefficients = scores.coefficients
            of_constant = constant**2 * self._scores_.common * coefficients.sum(axis=1)
            if self._has_kernel("precomputed"):
                # New rows also have K(x, x_i) for the points that were left out.
                self._scores_ = self._scores_._replace(
                    places=data.rows[support], d=self.n_features_in_
                )
        self.dual_coef_ = multiple * scores.common * coefficients
        self.intercept_ = of_constant + self._bias_
        # 3. Set the points of the support.
        if support.size == 0:
            _warn(
                "f is constant: to tol, no function of X has a smaller objective than a bias, so that all points are "
                'predicted as one class; give a larger C, another kernel or class_weight="balanced"'
            )
        self.support_ = data.rows[support]
        self.n_support_ = np.bincount(data.labels[support], minlength=n_classes)
        vectors = X[:0, :0] if self._has_kernel("precomputed") else X[support]
        is_kept = _is_sparse(X) or _width_of(X) is None
        self.support_vectors_ = vectors if is_kept else np.array(vectors, dtype=np.float64)

    def _weights_and_multiple(self, G, result):
        """Return (v, t): f has the weights t v.

        Without slacks t makes the least margin of f equal to 1: that of p is lower ||p||_G, and ||p||_G is upper.
        With a cost alpha has the scale of f, and t is 1.  With squared slacks t minimises the objective with the slacks
        max(0, 1 - t m_i), for the margins m without the ridge, because at a large C the slacks r_i v_i have lost their
        digits.
        """
        if G._has_cost:
            return result.alpha, 1.0
        p = result.p
        multiple = 1.0 / (result.upper * (result.lower if result.lower > 0.0 else result.upper))
        if result.separator is not None or not G._has_ridge:
            return p, multiple
        norm2, m, _ = G._measured(p, precise=True)
        if G.free_labels is not None:
            m = m + result.bias * G.free_labels
        of_slacks = G.ridge * p
        margins = m - of_slacks
        # Otherwise the best f is 0, which predicts no class; then t stays as it is.
        if margins @ (1.0 / G.ridge) > 0.0:
            norm2 = max(norm2 - of_slacks @ p, 0.0)
            multiple = _minimizing_step(np.zeros(m.size), margins, G.ridge, 0.0, norm2)
        return p, multiple

    def decision_function(self, X: Any) -> Array:
        """Return f(x) for new points.

        Parameters
        ----------
        X : array, data frame, SciPy sparse matrix or memory-mapped array, shape (m, d)
            The points.  For a precomputed kernel X has K(x, x_i) for all n training points, (m, n).

        Returns
        -------
        scores : array, shape (m,) or (m, n_classes)
            For two classes, f(x) is positive if classes_[1] is predicted.  For several classes, a row has the f_c(x),
            and the class with the largest score is predicted.

        Raises
        ------
        NotFittedError
            `fit` has not been called.  Without scikit-learn the error is a ValueError and an AttributeError.
        ValueError
            The number, the names or the order of the columns differ from those in `fit`, or values are not finite.

        Warns
        -----
        UserWarning
            The column names are text in `fit` and not here, or the other way round.
        """
        if not hasattr(self, "dual_coef_"):
            raise _known_as("NotFittedError", _NotFittedError)(
                f"This {type(self).__name__} is not fitted yet; call fit first"
            )
        self._check_columns(_column_names(X))
        X = self.kernel_._read(X, "X")
        d = getattr(self, "n_features_in_", None)
        if None in (d, _width_of(X)):
            _refuse_other_columns(X, "X", d, "the points of fit have")
        elif X.shape[1] != d:
            values = ""
            if self._has_kernel("precomputed"):
                values = "; of a precomputed kernel K(x, x_i) for each training point"
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {d} features "
                f"as input{values}"
            )
        scores = self._scores_(X) + self._bias_
        return scores[:, 0] if self.classes_.size == 2 else scores

    def _check_columns(self, names):
        """Raise an error if column names or their order differ from those in fit; an array without names is
        accepted."""
        known = self._names_
        if not names or not known or names == known:
            return
        is_text = isinstance(names[0], str)
        was_text = isinstance(known[0], str)
        if is_text == was_text:
            columns = "model.feature_names_in_" if is_text else "X_of_fit.columns"
            _refuse_columns(names, known, columns)
        has = "has feature names" if is_text else "does not have valid feature names"
        was = "with" if was_text else "without"
        _warn(f"X {has}, but {type(self).__name__} was fitted {was} feature names: {_SAME_COLUMNS}")

    def predict(self, X: Any) -> Array:
        """Return the predicted classes, (m,), of the rows of X, (m, d); raise the errors of `decision_function`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0.0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of the rows of X, (m, d), whose predicted classes are y, (m,).

        If sample_weight, (m,), is given, each row counts with its weight.  Raise ValueError if lengths differ, a label
        is missing or cannot be a class, a weight is below 0 or all are 0; TypeError if labels and classes_ are of
        different kinds, such as text and numbers; and the errors of `predict`.
        """
        guesses = self.predict(X)
        truth = _class_labels(y, guesses.size)
        strange = sorted(_kinds(truth) - _kinds(self.classes_))
        if strange:
            known = ", ".join(_kinds(self.classes_))
            raise TypeError(
                f"y holds {', '.join(strange)}, and classes_ holds {known}, which are never equal: give y the type "
                "that it had in fit, np.asarray(y).astype(type(model.classes_[0]))"
            )
        weights = _sample_weights(sample_weight, guesses.size)
        if not weights.any():
            raise ValueError("sample_weight must hold a number above 0: all are 0")
        return float(np.average(guesses == truth, weights=weights))

    if not TYPE_CHECKING:  # a type checker would accept any name as an attribute

        def __getattr__(self, name):
            """Raise an error that says what an attribute needs, or what replaces one that only SVC has."""
            remedy = ""
            if name in ("predict_proba", "predict_log_proba"):
                remedy = f": {_PROBABILITIES}"
            if name == "coef_" and not self._has_kernel("linear"):
                remedy = ": coef_ is only available when using a linear kernel"
            elif name.endswith("_") and not name.startswith("_") and "classes_" not in vars(self):
                remedy = ": call fit first"
            message = f"This {type(self).__name__!r} has no attribute {name!r}{remedy}"
            raise AttributeError(message, name=name, obj=self)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a saved model holds: all but the state of the solver, which only ``start`` would need."""
        held = {**vars(self), "version": __version__}
        if "result_" in held:
            held["result_"] = held["result_"]._replace(state=("", []))
        return held

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` returned; raise ValueError for a model of another version."""
        held = dict(state)
        _refuse_version(held.pop("version", None))
        vars(self).update(held)

    def __reduce__(self) -> tuple[Any, ...]:
        # The version comes first, because another version may not know the parts of the state.
        return _blank, (type(self), __version__), self.__getstate__()


def _fill_cache():
    """Compile what the usual calls need, and print a line for each step and where the compiled code is kept."""
    # With so many points threads share a product, and points so far apart have a margin.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 1500)
    X = rng.normal(size=(1500, 300)) + 6.0 * np.eye(4, 300)[labels]
    signs = np.where(labels > 0, 1, -1)
    print("compiling gram and features", flush=True)
    representations = (gram(X[:50], signs[:50]), gram(X, signs), features(X, signs))
    for name, algorithm in ALGORITHMS.items():
        print(f"compiling {name}", flush=True)
        for G in representations:
            algorithm(G, max_iter=3)
    print("compiling winnow", flush=True)
    winnow(X, max_iter=3)
    for kernel, C in itertools.product(("rbf", "linear"), (1.0, math.inf)):
        print(f"compiling MaxMarginClassifier({kernel!r}, C={C})", flush=True)
        # Few columns and few rows have other compiled code: a Gaussian kernel summed line by line, and a stored matrix.
        for points in (X, X[:, :20], X[:100, :20], X[:100]):
            for classes in (labels, labels > 0):
                MaxMarginClassifier(kernel, C=C).fit(points, classes[: len(points)]).predict(points)
    kept = _dot.stats.cache_path if _CACHE else "memory alone: see NUMBA_CACHE_DIR"
    print(f"compiled code is in {kept}")


# `python -m` runs this file as `__main__`.  Compile under the module's own name, because other processes look for
# compiled code under this name.
if __name__ == "__main__":
    importlib.import_module(__spec__.name if __spec__ else "fastmargin")._fill_cache()
