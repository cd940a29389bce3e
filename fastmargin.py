"""fastmargin: certified margins by perceptrons, dual acceleration and diagonal descent.

One problem.  Points x_i with labels y_i in {-1, +1} and a kernel K give the signed Gram matrix
G_ij = y_i y_j K(x_i, x_j).  Weights alpha in R^n stand for f = sum_i alpha_i y_i phi(x_i), so that
y_i f(x_i) = (G alpha)_i and ||f||^2 = alpha' G alpha =: ||alpha||_G^2.  The margin and its dual are

    rho  = max_{||alpha||_G = 1}  min_i (G alpha)_i                             (primal)
    rho+ = min_{p in Delta_n}  ||p||_G      rho+ = rho if rho > 0, else 0       (dual)

and for every alpha with ||alpha||_G > 0 and every p in the simplex Delta_n

    min_i (G alpha)_i / ||alpha||_G  <=  rho  <=  ||p||_G                       (weak duality)

so every algorithm here, at every iteration, carries an interval ``lower <= rho <= upper``.  A p with
||p||_G <= eps proves that no margin above eps exists (Gordan's alternative).

Conventions.  With linear features G = Z Z', rows z_i = y_i x_i, and w = Z' alpha is the separator;
m = G alpha = Z w are the margins, the larger the better.  s = max_i G_ii is the scale: where a paper
assumes ||x_i|| <= 1, steps are in units of 1/s here and smoothing parameters in units of s, so that
every guarantee holds for any G.  A *kernel* is K(x, x'), never a piece of compiled code.

Threads.  Large arrays are shared among Numba's threads (NUMBA_NUM_THREADS, numba.set_num_threads); results do not
depend on their number.  Threads that wait sleep, or spin if OMP_WAIT_POLICY=ACTIVE is in the environment at first.

Sources, by the key used below:
    ramdas14       A. Ramdas, J. Pena, Margins, Kernels and Non-linear Smoothed Perceptrons, ICML 2014
    ji21           Z. Ji, N. Srebro, M. Telgarsky, Fast Margin Maximization via Dual Acceleration, ICML 2021
    apidopoulos22  V. Apidopoulos, T. Poggio, L. Rosasco, S. Villa, Iterative regularization in
                   classification via hinge loss diagonal descent, arXiv 2212.12675, 2022

Example, whose imports those of all other docstrings assume
-----------------------------------------------------------
>>> import numpy as np, fastmargin as fm
>>> X = np.array([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]]); y = np.array([1, 1, -1])
>>> G = fm.gram(X, y, kernel="linear", normalize="max")
>>> result = fm.momentum(G, max_iter=200, tol=1e-2)
>>> result.status, result.lower <= fm.max_margin(G).lower <= result.upper
('certified', True)

Contents (search for the number and title, as in "# 5.4 rows"; what a room needs stands above it)
    1    result and input   Result
    2    vectors
    3    simplex            project_simplex, entropy_prox, l2_prox
    4    kernels            kernel_matrix, decision_function
    5    representations of G
    5.1  operations         Representation, Rounding, lift, margins, add_column, softmax_pass, square, table_margins
    5.2  ridge and offset   RidgeGram, FreeGram
    5.3  dense              DenseGram, gram
    5.4  rows               FeatureGram
    5.5  sparse             SparseGram
    5.6  mapped             MappedGram, features
    5.7  lazy               LazyGram, lazy_gram
    5.8  pairs              PairGram, pair_gram
    6    certificate        certificate, separator_margin, contradiction
    7    driver             Run, prepare, drive, ALGORITHMS, RUNNING, SEPARATED, INFEASIBLE, EXHAUSTED, CERTIFIED
    8    algorithms
    8.1  ramdas14           perceptron, nkp, von_neumann, frank_wolfe, snkp, snkpvn, isnkpvn, winnow
    8.2  ji21               gradient_descent, normalized_gradient_descent, momentum, batch_perceptron, adaptive_sampling
    8.3  apidopoulos22      diagonal_descent, inertial_diagonal_descent, homotopic_subgradient
    8.4  own methods        subspace_perceptron
    9    exact solver       max_margin
    10   classifier         MaxMarginClassifier
"""

from __future__ import annotations

import contextlib
import decimal
import functools
import importlib
import inspect
import itertools
import math
import operator
import os
import re
import sys
import tempfile
import threading
import time
import warnings
from collections import namedtuple
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numba import get_num_threads, njit, prange, threading_layer
from numba.extending import is_jitted, overload, register_jitable
from numpy.typing import ArrayLike, DTypeLike

__version__ = "1.0.0"
__all__ = [
    "ALGORITHMS",
    "CERTIFIED",
    "DenseGram",
    "EXHAUSTED",
    "FeatureGram",
    "FreeGram",
    "INFEASIBLE",
    "LazyGram",
    "MappedGram",
    "MaxMarginClassifier",
    "PairGram",
    "RUNNING",
    "Representation",
    "Result",
    "RidgeGram",
    "Rounding",
    "Run",
    "SEPARATED",
    "SparseGram",
    "adaptive_sampling",
    "add_column",
    "batch_perceptron",
    "certificate",
    "contradiction",
    "decision_function",
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
    "lift",
    "margins",
    "max_margin",
    "momentum",
    "nkp",
    "normalized_gradient_descent",
    "pair_gram",
    "perceptron",
    "prepare",
    "project_simplex",
    "separator_margin",
    "snkp",
    "snkpvn",
    "softmax_pass",
    "square",
    "subspace_perceptron",
    "table_margins",
    "von_neumann",
    "winnow",
]


def __dir__():
    """List the toolkit for tab completion, without the modules that it imports."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


Array: TypeAlias = np.ndarray
GramLike: TypeAlias = "ArrayLike | Representation"  # what algorithms take as G
Callback: TypeAlias = "Callable[[Result], object] | None"
_Decorated = TypeVar("_Decorated", bound=Callable)

_FAST = {
    "reassoc",
    "contract",
    "nsz",
}  # sums may be reordered and fused; NaN and infinity keep their meaning
_EPS = float(np.finfo(np.float64).eps)
_PARTS = 8  # of a product in parallel: a fixed number, so that the result is the same on any number of threads
_CACHED = 1 << 14  # entries of rows that the caches of a core hold beside other things
_SERIAL = 1 << 18  # entries of an array below which waking threads costs more than reading it

try:  # whether compiled code can be kept on disk: if not, Numba would refuse to go on
    _CACHE = True
    _probe = njit(__dir__, cache=True)
    if is_jitted(
        _probe
    ):  # a module in a zip file is given a folder that nobody has tried to write to
        os.makedirs(_probe.stats.cache_path, exist_ok=True)
        tempfile.TemporaryFile(dir=_probe.stats.cache_path).close()
except (OSError, RuntimeError):
    _CACHE = False
    warnings.warn(
        "fastmargin can write to no folder for compiled code and will compile anew in every process; set "
        "NUMBA_CACHE_DIR to a folder that it can write to",
        RuntimeWarning,
        stacklevel=2,
    )
_FOLDER = _probe.stats.cache_path if _CACHE and is_jitted(_probe) else None  # of compiled code
_PATIENCE = 2.0  # seconds after which a call that compiles says so

_LOCK = threading.RLock()  # of Numba's threads, where their layer serves one caller at a time
_PROCESS = os.getpid()  # the one that has the threads: forked children are without
_WAITING = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"  # what OpenMP lets a user choose


@functools.cache
def _threads():
    """Start Numba's threads, which sleep while they wait, unless the user has chosen otherwise; return their layer.

    OpenMP would let them spin, which holds up whoever needs the core.  It reads the choice as it is loaded; other
    libraries and child processes are not to inherit ours.
    """
    chosen = any(name in os.environ for name in _WAITING)
    try:
        os.environ |= {} if chosen else {"OMP_WAIT_POLICY": "PASSIVE"}
        get_num_threads()
    finally:
        if not chosen:
            os.environ.pop("OMP_WAIT_POLICY", None)
    return threading_layer()


def _enter(code, *args):
    """Call compiled code that may share its work among Numba's threads.

    OpenMP would end a forked child that asked for threads, which it is without.  The layer "workqueue" would end a
    process that comes from two threads of Python at once, so there they take turns.
    """
    if os.getpid() != _PROCESS:
        return code(
            *(arg._replace(threads=False) if hasattr(arg, "threads") else arg for arg in args)
        )
    with _LOCK if _threads() == "workqueue" else contextlib.nullcontext():
        return code(*args)


def _for_threads(loop):
    """Compile a function that loops over `prange` for Numba's threads and, under a name of its own, for one alone.

    Sums that must be the same in both are compiled functions by themselves.
    """
    alone = type(loop)(loop.__code__, loop.__globals__)
    alone.__qualname__ = f"{loop.__name__}_alone"  # by which compiled code is kept on disk
    return njit(loop, cache=_CACHE, fastmath=_FAST, parallel=True), njit(
        alone, cache=_CACHE, fastmath=_FAST
    )


def _enter_by_size(work, code, *args):
    """Call what `_for_threads` compiled, for threads if so much work, in entries read, is worth them."""
    return _enter(code[work < _SERIAL or os.getpid() != _PROCESS], *args)


def _with_underflow(function: _Decorated) -> _Decorated:
    """Let numbers underflow to 0 in a public function, whatever np.seterr says: a weight of 1e-400 is none."""

    @functools.wraps(function)
    def call(*args, **options):
        with np.errstate(under="ignore"):
            return function(*args, **options)

    return call


# ======================================================================================================
# 1 result and input
# ======================================================================================================


class Result(NamedTuple):
    """What every algorithm returns.

    Attributes
    ----------
    alpha : array, shape (n,)
        Weights of the predictor f = sum_i alpha_i y_i phi(x_i); the scale is the algorithm's own.  (d,) from `winnow`.
    p : array, shape (n,)
        Point of the simplex, the dual certificate.
    lower, upper : float
        lower <= min_i (G alpha)_i / ||alpha||_G <= rho <= ||p||_G <= upper, rounded outwards (see `certificate`);
        lower is -sqrt(s) where ||alpha||_G cannot be told from 0.
    status : str
        "separated": lower > 0, that is G alpha > 0, and the algorithm stops there;
        "certified": upper - lower <= tol * upper;
        "infeasible": upper <= eps, no margin above upper exists, of which p is the proof.  The points may still be
        separable by less than that: lower > 0 proves that they are, and only equal points with opposite labels (see
        `contradiction`) prove that they are not, by any kernel.  eps is an option of the algorithm, or in its notes;
        "rounding": one of these holds as far as can be seen, but rounding leaves it unproved: use features instead of a
        dense G, float64 instead of float32, or a larger tol or eps.  lower > 0 proves separability all the same;
        "max_iter": none of these within max_iter iterations;
        "stopped": the callback returned True;
        "running": not yet over, in the partial results that a callback sees.
    n_iter : int
        Number of updates made, those of ``start`` included; iteration 0 is before the first.
    trace : structured array
        A row per checkpoint of this call, the first at its start: iteration, products (G-vector products of the
        iterations, a column counting 1/n), seconds (of the iterations, without compilation), lower, upper.  These come
        from fresh products where the run ends; before, from what the loop holds, where it holds enough, widened by
        what its recurrences may err.  Certificates count as no product and take no seconds.
    iterates : array, shape (checkpoints, n), or None
        alpha at every row of the trace, with keep_iterates=True; None in partial results.
    state : tuple
        What the algorithm remembers, for ``start=result``.

    Examples
    --------
    >>> fm.max_margin(fm.features([[3.0, 4.0]], [1], normalize=None))
    Result('certified': 4.99999 <= rho <= 5.00001, relative gap 8.3e-15, 0 iterations, n = 1, 1 checkpoint)
    >>> fm.max_margin(fm.features([[1.0], [-1.0]], [1, 1]))
    Result('infeasible': no margin above 1.3e-15, 1 iteration, n = 2, 2 checkpoints)
    """

    alpha: Array
    p: Array
    lower: float
    upper: float
    status: str
    n_iter: int
    trace: Array
    iterates: Array | None
    state: tuple

    def __repr__(self) -> str:
        low = _written(self.lower, 6, _DOWN)
        rows = len(self.trace)
        if self.status == "infeasible":
            proved = f"no margin above {_written(self.upper, 2, _UP)}"
        else:
            gap = (
                f"{(self.upper - self.lower) / self.upper:.2g}" if self.upper > 0.0 else "undefined"
            )
            proved = f"{low} <= rho <= {_written(self.upper, 6, _UP)}, relative gap {gap}"
        if self.lower > 0.0 and self.status not in ("separated", "certified"):
            proved += f", separable: rho >= {low}" if self.status == "infeasible" else ", separable"
        return (
            f"Result({self.status!r}: {proved}, {self.n_iter} iteration{'s' * (self.n_iter != 1)}, "
            f"n = {self.p.size}, {rows} checkpoint{'s' * (rows != 1)})"
        )


def _is_result(start):
    """Return True for a Result, also one that the module made before it was loaded anew."""
    return getattr(start, "_fields", None) == Result._fields


_DOWN = decimal.ROUND_FLOOR
_UP = decimal.ROUND_CEILING


def _written(number, digits, rounding):
    """Write a number in so many digits, rounded down or up, so that a bound stays one."""
    rounded = decimal.Context(prec=digits, rounding=rounding).create_decimal_from_float(
        float(number)
    )
    return f"{float(rounded):.{digits}g}"


_TRACE = np.dtype(
    [("iteration", "i8"), ("products", "f8"), ("seconds", "f8"), ("lower", "f8"), ("upper", "f8")]
)


def _is_sparse(a):
    return hasattr(a, "tocsr")


def _array(a, name):
    """Return an array or data frame that a user passes as a plain array; refuse sparse and masked ones."""
    if _is_sparse(a):
        raise TypeError(
            f"{name} is sparse, which only points may be: pass {name}.toarray() if memory allows"
        )
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array: fill or drop the masked entries and pass a plain one"
        )
    if hasattr(a, "_fields"):
        kinds = "an array or of a subclass of Representation" if name == "G" else "an array"
        raise TypeError(f"{name} must be {kinds}, got {type(a).__name__}")
    plain = np.asarray(a)
    is_table = plain.dtype.kind == "O" or (hasattr(a, "dtypes") and plain.dtype.kind not in "fiub")
    if not (is_table and plain.size and plain.ndim):
        return plain
    numbers = np.empty(plain.shape)  # of a data frame of several types, or of Python's objects
    for k, (column, out) in enumerate(
        zip(np.atleast_2d(plain.T), np.atleast_2d(numbers.T), strict=True)
    ):
        wrong = _first_that_is_no_number(column, out)
        if wrong is not None:
            row, value = wrong
            where = (
                f"row {row}"
                if plain.ndim == 1
                else f"row {row}, column {getattr(a, 'columns', range(k + 1))[k]!r}"
            )
            dtype = f", of dtype {np.atleast_1d(a.dtypes)[k]}," if hasattr(a, "dtypes") else ""
            raise TypeError(f"{name} must hold real numbers; {where}{dtype} has {value}")
    return numbers


def _first_that_is_no_number(values, out):
    """Set ``out`` to the values; return the place of the first that is no real number, and what it is, or None."""
    for i, value in enumerate(values):
        if isinstance(value, (complex, np.complexfloating)) and value.imag == 0.0:
            value = value.real  # of a table with complex numbers in another column
        if isinstance(value, (str, bytes, complex, np.complexfloating)):
            return i, repr(value)
        if _is_missing(value):
            return i, "a missing value"
        try:
            out[i] = value
        except (TypeError, ValueError) as error:
            return i, f"{value!r}: {error}"
    return None


def _is_missing(value):
    """Return True for None and what pandas has in its place."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _real_array(a, name, ndim, first=0):
    """Return a finite float array of this dimension, float32 or float64; errors count rows from ``first`` on."""
    labels = getattr(a, "columns", None)
    a = _array(a, name)
    if a.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {a.dtype}")
    if a.dtype not in (np.float32, np.float64):
        a = a.astype(np.float64)
    if a.ndim != ndim:
        raise ValueError(
            f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {a.shape}"
        )
    if a.size == 0:
        raise ValueError(f"{name} is empty, shape {a.shape}")
    is_finite = np.isfinite(a)
    if not is_finite.all():
        row, *rest = np.argwhere(~is_finite)[0].tolist()
        column = "" if labels is None else f", in column {labels[rest[0]]!r}"
        raise ValueError(
            f"{name} must be finite, without NaN or inf; row {first + row} has {a[(row, *rest)]} at "
            f"{name}{[first + row, *rest]}{column}"
        )
    return a


def _vector(v, name, n=None):
    """Return a copy of a finite vector in float64, of n entries if that is said."""
    v = _real_array(v, name, 1).astype(np.float64)
    if n not in (None, v.size):
        raise ValueError(f"{name} must have {n} entries, got {v.size}")
    return v


_OF_INNER_PRODUCTS = "linear", "poly", "rbf"  # kernels, for which sparse points stay so


def _sparse_points(X, name="X"):
    """Return a finite copy of a SciPy sparse matrix or array in compressed rows, by its own methods."""
    X = X.tocsr(copy=True)
    X.sum_duplicates()  # which puts columns in ascending order, too
    X.eliminate_zeros()
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"{name} must have 2 dimensions and be not empty, got shape {X.shape}")
    if X.data.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {X.data.dtype}")
    wrong = np.flatnonzero(~np.isfinite(X.data))
    if wrong.size:
        row = np.searchsorted(X.indptr, wrong[0], side="right") - 1
        place = f"{name}[{row}, {X.indices[wrong[0]]}]"
        raise ValueError(f"{name} must be finite; row {row} has {X.data[wrong[0]]} at {place}")
    return X


def _squares(X):
    """Return ||x_i||^2, summed in float64, of rows, dense or sparse."""
    if _is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def _points(X, name="X", kernel=None, first=0):
    """Return finite rows, C-ordered in float64, with finite squared distances; those of a precomputed kernel stay.

    Sparse points stay so for kernels that are functions of inner products, and become dense for others.
    """
    if _is_sparse(X) and kernel is not None:
        X = _sparse_points(X, name).astype(np.float64)
        if isinstance(kernel, str) and kernel in _OF_INNER_PRODUCTS:
            if not np.isfinite(4.0 * _squares(X)).all():
                raise ValueError(f"a row of {name} is too large: its square overflows")
            return X
        X = X.toarray()
    X = _real_array(X, name, 2, first)
    if isinstance(kernel, str) and kernel == "precomputed":
        return X
    X = np.ascontiguousarray(X, dtype=np.float64)
    with np.errstate(over="ignore"):
        reach = 4.0 * np.einsum("ij,ij->i", X, X)
    if not np.isfinite(reach).all():
        raise ValueError(
            f"row {first + np.argmin(np.isfinite(reach))} of {name} is too large: its square overflows"
        )
    return X


def _is_mapped(X, dtype=None):
    """Tell whether X is memory-mapped in a layout that can be read in place, as the dtype given, if any."""
    return (
        isinstance(X, np.memmap)
        and X.dtype in (np.float32, np.float64)
        and (dtype is None or dtype == X.dtype)
        and X.ndim == 2
        and X.size > 0
        and X.flags.c_contiguous
    )


def _rows(X):
    """Return checked points, sparse ones in compressed rows; mapped ones, which `_blocks` checks, as they are."""
    if _is_sparse(X):
        return _sparse_points(X)
    return X if _is_mapped(X) else _points(X)


def _blocks(X):
    """Yield (first row, checked rows in float64): of mapped points a few at a time, of checked ones all."""
    mapped = _is_mapped(X)
    n = X.shape[0]
    few = max(1, (1 << 20) // X.shape[1]) if mapped else n
    for first in range(0, n, few):
        block = X[first : first + few]
        yield first, _points(block, first=first) if mapped else block


def _ranges(X):
    """Return the least and the largest entry of each column, (2, d), of checked points, mapped or sparse ones too."""
    if not _is_sparse(X):
        low = functools.reduce(np.minimum, (block.min(axis=0) for _, block in _blocks(X)))
        high = functools.reduce(np.maximum, (block.max(axis=0) for _, block in _blocks(X)))
        return low, high
    n, d = X.shape
    low = np.full(d, math.inf)
    high = np.full(d, -math.inf)
    np.minimum.at(low, X.indices, X.data)
    np.maximum.at(high, X.indices, X.data)
    has_zeros = np.bincount(X.indices, minlength=d) < n
    return np.where(has_zeros, np.minimum(low, 0.0), low), np.where(
        has_zeros, np.maximum(high, 0.0), high
    )


def _origin(X):
    """Return a point o, (d,), within the ranges of columns that are narrow beside their distance from 0; 0 elsewhere.

    There x and o are within a factor of 2 of each other, so that x - o is exact (P. Sterbenz, Floating-Point
    Computation, 1974), and no longer than the range of the column.  Sparse points have no zeros in such columns.
    """
    low, high = _ranges(X)
    middle = 0.5 * low + 0.5 * high
    is_far = high - low <= np.abs(middle) / 3.0
    return np.where(
        is_far & (high > low).any(), middle, 0.0
    )  # of equal points nothing would be left


def _labels(y, n, name="y", allowed=(-1, 1)):
    """Return labels of n points in float64; without any, +1 for all."""
    if y is None and name == "y":
        return np.ones(n)
    y = _vector(y, name, n)
    wrong = np.flatnonzero(~np.isin(y, allowed))
    if wrong.size:
        wanted = "-1 or +1" if name == "y" else f"integers from 0 to {allowed[-1]}"
        raise ValueError(f"labels must be {wanted}; {name}[{wrong[0]}] is {y[wrong[0]]:g}")
    return y


def _choice(value, name, options):
    if not isinstance(value, str | None) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")
    return value


def _number(value, name, low=0.0, *, closed=False, infinite=False):
    """Return a finite number above ``low`` (or at it, when ``closed``; or inf, when ``infinite``)."""
    try:
        number = math.ldexp(value, 0)  # float(value) would read text
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not (
        low < number < math.inf or (closed and number == low) or (infinite and number == math.inf)
    ):
        raise ValueError(
            f"{name} must be finite and {'at least' if closed else 'above'} {low:g}"
            f"{', or inf' if infinite else ''}; got {value!r}"
        )
    return number


def _amounts(values, name, n):
    """Return n finite numbers of at least 0 in float64; one number stands for n times itself."""
    if np.asarray(values).ndim == 0:
        return np.full(n, _number(values, name, closed=True))
    values = _vector(values, name, n)
    if values.min() < 0.0:
        raise ValueError(f"{name} must hold numbers of at least 0, the least is {values.min():g}")
    return values


def _refuse_overflow(*numbers, place=""):
    if not all(np.isfinite(part).all() for part in numbers):
        raise FloatingPointError(
            f"the iterates or their margins are not finite{place}: they overflowed, or G was "
            "written to during the run; rescale G, or give a smaller step"
        )


def _count(value, name, low=0):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, bool) or not low <= number <= 2**53:
        raise ValueError(f"{name} must be an integer from {low} to 2**53; got {value!r}")
    return number


# ======================================================================================================
# 2 vectors
# ======================================================================================================
#
# Steps that loops take are compiled by themselves, so that loops which run as Python source are as fast; what compiled
# code alone calls is compiled into its callers.


@njit(cache=_CACHE, fastmath=_FAST)
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(cache=_CACHE)
def _copy(a, b):
    """The first entries of b <- a; b[:] = a would compile the text of an error about shapes, for seconds."""
    for i in range(a.size):
        b[i] = a[i]


@njit(cache=_CACHE)
def _combine(a, x, b, y):
    """x <- a x + b y."""
    for i in range(x.size):
        x[i] = a * x[i] + b * y[i]


@njit(cache=_CACHE)
def _scale(c, v):
    """v <- c v."""
    for i in range(v.size):
        v[i] *= c


@njit(cache=_CACHE)
def _least(v):
    """Return v.min(), NaN if there is one; Numba compiles that as a loop over arrays of any shape, for long."""
    low = math.inf
    missing = False
    for i in range(v.size):
        low = v[i] if v[i] < low else low
        missing |= v[i] != v[i]
    return math.nan if missing else low


@njit(cache=_CACHE)
def _exceeds(v, floor):
    """Tell whether all of v are above ``floor``."""
    for i in range(v.size):
        if not v[i] > floor:
            return False
    return True


@njit(cache=_CACHE, fastmath=_FAST)
def _total(v):
    """Return v.sum(), which likewise compiles for long."""
    total = 0.0
    for i in range(v.size):
        total += v[i]
    return total


@njit(cache=_CACHE, fastmath=_FAST)
def _softmax(m, q):
    """q <- softmax(-m); returns ln sum_i exp(-m_i)."""
    low = _least(m)
    for i in range(m.size):
        q[i] = math.exp(low - m[i])
    total = _total(
        q
    )  # by itself: beside a store, how it is summed would depend on where the arrays lie
    for i in range(m.size):
        q[i] /= total
    return math.log(total) - low


@register_jitable(fastmath=False)  # unless told, it takes on the flags of whoever calls it first
def _add_exactly(high, low, a, b):
    """Return (high, low) + a b, a sum in two parts: ``low`` collects what the product and the addition round off.

    Knuth's sum and Dekker's product, as in T. Ogita, S. Rump, S. Oishi, SIAM J. Sci. Comput. 26, 2005.
    """
    product = a * b
    total = high + product
    split_a = 134217729.0 * a
    split_b = 134217729.0 * b  # 2^27 + 1: halves of 26 bits, whose products are exact
    a_high = split_a - (split_a - a)
    b_high = split_b - (split_b - b)
    a_low = a - a_high
    b_low = b - b_high
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    part = total - high
    return total, low + (lost + ((high - (total - part)) + (product - part)))


@njit(cache=_CACHE)
def _precise_dot(a, b):
    """Return (high, low): <a, b> = high + low to twice the working precision."""
    high = 0.0
    low = 0.0
    for i in range(a.size):
        high, low = _add_exactly(high, low, a[i], b[i])
    return high, low


@register_jitable
def _part(n, part, count):
    """Return start and stop of one of so many parts of n rows; all but the last hold a multiple of four."""
    return n // 4 * part // count * 4, n if part + 1 == count else n // 4 * (part + 1) // count * 4


@_for_threads
def _combine_rows(matrix, index, weights, out):
    """out <- out + sum_k weights_k matrix[index_k], four rows at a time."""
    n = index.size
    for block in prange((out.size + 511) // 512):
        start = 512 * np.int64(block)
        stop = min(start + 512, out.size)
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


# ======================================================================================================
# 3 simplex
# ======================================================================================================


def _distribution(q, name, n):
    """Check that q is a point of the simplex of R^n, up to rounding."""
    q = _real_array(q, name, 1)
    slack = 1e-9 if q.dtype == np.float64 else 1e-5
    q = q.astype(np.float64)
    if q.size != n or q.min() < 0.0 or abs(q.sum() - 1.0) > slack:
        raise ValueError(
            f"{name} must be {n} weights >= 0, sum 1; got {q.size}, least {q.min():g}, sum {q.sum():.9g}"
        )
    return q


def _offset(signs, m):
    """Return the b for which m + b y is as large as can be in its least entry, y the signs of two classes."""
    return 0.5 * float(m[signs < 0.0].min() - m[signs > 0.0].min())


def _weights(alpha, signs=None):
    """Return p = alpha / sum alpha for alpha >= 0; uniform where alpha = 0, within each class of these signs."""
    alpha = np.ldexp(
        alpha, -math.frexp(float(alpha.max()))[1]
    )  # exact but for underflow, and the sum cannot overflow
    if not alpha.any():
        alpha = (
            np.ones(alpha.size) if signs is None else 1.0 - signs.mean() * signs
        )  # as much in either class
    return alpha / alpha.sum()


@register_jitable(fastmath=False)  # as for `_add_exactly`
def _excess(x, top, tau):
    """Return the excess over tau; the difference from ``top`` must come first, so that nothing cancels at large |x|."""
    return max((x - top) - tau, 0.0)


@njit(cache=_CACHE, fastmath=_FAST)
def _simplex_tau(v, top, tau):
    """Return the threshold at which the excess of v sums to 1, from tau on; tau itself if nothing exceeds it.

    Newton's method, exact once the support stays, if the last step came from a sum near 1 and lost no digits.  Each
    round divides the product of the support and of what the sum has above 1 by at least four: O(log n) rounds.
    """
    count = 0
    before = tau
    for _ in range(100):
        total = 0.0
        left = 0
        for i in range(v.size):  # without a branch, which would be mispredicted
            x = _excess(v[i], top, tau)
            total += x
            left += x > 0.0
        if left == 0:  # as of NaN
            break
        if (
            total > 1.0 and left < v.size // 4
        ):  # tau is not too large: what it excludes is out for good
            kept = np.empty(left + 1, v.dtype)
            k = 0
            for i in range(v.size):
                kept[k] = v[i]  # stays if k moves on
                k += _excess(v[i], top, tau) > 0.0
            v = kept[:left]
        last = before
        before = tau
        tau = tau + (total - 1.0) / left
        if (
            left == count and abs(total - 1.0) <= left * _EPS or tau == last
        ):  # rounding may move it to and fro
            break
        count = left
    return tau


@njit(cache=_CACHE)
def _project_simplex(v, out):
    """out <- argmin_{p in Delta} ||p - v||; v may have entries of -infinity, but its maximum is finite."""
    n = v.size
    quarter = (v.size + 3) // 4
    a = v[:quarter]
    b = v[n // 4 :]
    c = v[n // 2 :]
    d = v[n - quarter :]
    top = v[0]
    for i in range(quarter):  # four at a time, since every maximum waits for the one before
        top = max(max(max(a[i], b[i]), max(c[i], d[i])), top)
    tau = _simplex_tau(
        v, top, _simplex_tau(v[: n // 64], top, -1.0)
    )  # that of a part is below, often by little
    for i in range(n):
        out[i] = _excess(v[i], top, tau)
    return out


def project_simplex(v: ArrayLike) -> Array:
    """Euclidean projection onto the simplex: argmin_{p in Delta} ||p - v||_2, exactly.

    A few passes, O(log n) at worst, no sort (C. Michelot, Journal of Optimization Theory and Applications 50, 1986).
    Callable inside njit as well.

    Parameters
    ----------
    v : array, shape (n,), finite

    Returns
    -------
    p : array, shape (n,)
        max(v - tau, 0) for the one tau at which it sums to 1.

    Raises
    ------
    ValueError
        v is empty, not finite or not a vector (checked in calls from Python; compiled callers vouch for it).

    Examples
    --------
    >>> fm.project_simplex([1.0, 0.5, -3.0])
    array([0.75, 0.25, 0.  ])
    """
    v = _vector(v, "v")
    return _project_simplex(v, v)


overload(project_simplex)(
    lambda v: lambda v: _project_simplex(v, np.empty(v.size))
)  # for compiled callers


@register_jitable
def _fall(low, g, mu):
    """Return (low - g) / mu, also where the difference of two finite numbers overflows."""
    difference = low - g
    return difference / mu if difference > -np.inf else 2.0 * ((0.5 * low - 0.5 * g) / mu)


@njit(cache=_CACHE)
def _entropy_prox(g, mu, q, out):
    """out_i <- q_i exp(-g_i / mu) / sum, in logarithms, relative to the least g_i with q_i > 0."""
    low = np.inf
    for i in range(g.size):
        if q[i] > 0.0 and g[i] < low:
            low = g[i]
    for i in range(g.size):
        out[i] = -(_fall(low, g[i], mu) + math.log(q[i])) if q[i] > 0.0 else np.inf
    _softmax(out, out)
    return out


def entropy_prox(g: ArrayLike, mu: float, q: ArrayLike | None = None) -> Array:
    """Entropy prox map: argmin_{p in Delta} <g, p> + mu KL(p || q), p_i proportional to q_i exp(-g_i / mu).

    Nothing overflows, and mu -> 0 gives q restricted to the least g_i.  Callable inside njit as well.

    Parameters
    ----------
    g : array, shape (n,), finite
    mu : float
        Smoothing parameter, above 0, in units of g.
    q : array, shape (n,), optional
        Centre, in the simplex; by default uniform, so that p = softmax(-g / mu).

    Returns
    -------
    p : array, shape (n,)
        In the simplex, zero where q is.

    Raises
    ------
    ValueError
        g is not finite, mu <= 0, or q is not in the simplex (checked in calls from Python).

    Examples
    --------
    >>> fm.entropy_prox([0.0, np.log(3.0)], 1.0)
    array([0.75, 0.25])
    """
    g = _vector(g, "g")
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
    """out <- project_simplex(q - g / mu); g is shifted first, so that g / mu cannot overflow upwards."""
    low = _least(g)
    for i in range(g.size):
        out[i] = q[i] + _fall(low, g[i], mu)
    return _project_simplex(out, out)


def l2_prox(g: ArrayLike, mu: float, q: ArrayLike) -> Array:
    """Euclidean prox map: argmin_{p in Delta} <g, p> + (mu/2) ||p - q||^2  =  project_simplex(q - g / mu).

    Nothing overflows.  Callable inside njit as well.

    Parameters
    ----------
    g, mu
        As in `entropy_prox`.
    q : array, shape (n,)
        Centre, any finite vector.

    Returns
    -------
    p : array, shape (n,)
        In the simplex.

    Raises
    ------
    ValueError
        g or q is not finite, their lengths differ, or mu <= 0 (checked in calls from Python).

    Examples
    --------
    >>> fm.l2_prox([0.0, 1.0], 4.0, [0.5, 0.5])
    array([0.625, 0.375])
    """
    g = _vector(g, "g")
    return _l2_prox(g, _number(mu, "mu"), _vector(q, "q", g.size), np.empty(g.size))


overload(l2_prox)(lambda g, mu, q: lambda g, mu, q: _l2_prox(g, mu, q, np.empty(g.size)))


_ENTROPY, _L2 = range(2)


@njit(cache=_CACHE)
def _prox(which, g, mu, q, out):
    if which == _ENTROPY:
        _entropy_prox(g, mu, q, out)
    else:
        _l2_prox(g, mu, q, out)


# Faces
#
# Minimize x'Hx / 2 - b'x over x >= 0, of gradient g = Hx - b, for b_i = 1 / root_i.  A face is a tuple (roots, L, P,
# inside): the Cholesky factor L of H on its k points P, in this order, with room for more; and which of all these are.
#
# A Newton step on the face goes to the first zero at most, and drops that point.  Where a point i depends on those
# inside, x moves along v = e_i - H_PP^-1 H_Pi, in which H is flat, to the first zero; that point is dropped, and i
# tried again; but if the minimum along v comes before, i enters.  Where nothing stops v, it is a witness of
# infeasibility, or i enters.

_PIVOT = 1e-8  # of H below which a point counts as dependent on those before it


def _widened(A, size):
    """Return a square array of that many rows that begins with A."""
    wider = np.empty((size, size), A.dtype)
    wider[: len(A), : len(A)] = A
    return wider


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
def _blocking(x, P, k, d, t):
    """Return the longest step along d, t at most, that keeps x >= 0 on the face, and which of it stops it, or -1."""
    at = -1
    for a in range(k):
        if d[a] < 0.0 and x[P[a]] < -t * d[a]:
            t = x[P[a]] / -d[a]
            at = a
    return t, at


@register_jitable
def _move(face, x, k, d, t, at):
    """Move x by t d on the face, drop its point ``at`` unless that is -1, and return how many are left."""
    _, L, P, inside = face
    for a in range(k):
        x[P[a]] = max(x[P[a]] + t * d[a], 0.0)
    if at < 0:
        return k
    x[P[at]] = 0.0
    inside[P[at]] = False
    for a in range(at, k - 1):
        P[a] = P[a + 1]
        for b in range(a + 2):
            L[a, b] = L[a + 1, b]
    for a in range(at, k - 1):  # rotations make L a triangle again
        size = math.hypot(L[a, a], L[a, a + 1])
        cosine = L[a, a] / size
        sine = L[a, a + 1] / size
        for b in range(a, k - 1):
            left = L[b, a]
            right = L[b, a + 1]
            L[b, a] = cosine * left + sine * right
            L[b, a + 1] = cosine * right - sine * left
    return k - 1


@register_jitable
def _append(face, row, x, g, k, i, eps):
    """Bring point i, with this row of H, into the face, given g there and at i; return its size, -1 for a witness."""
    (roots, L, P, inside) = face
    d = np.empty(k)
    while True:
        z = L[k]
        for a in range(k):
            z[a] = row[P[a]]
        _forward(L, k, z)
        pivot = row[i] - _dot(z[:k], z[:k])
        if pivot <= _PIVOT:
            for a in range(k):
                d[a] = -row[P[a]]
            _solve(L, k, d)
            slope = g[i]
            total = 1.0 / roots[i]
            for a in range(k):
                slope += d[a] * g[P[a]]
                total += d[a] / roots[P[a]]
            sign = -1.0 if slope > 0.0 else 1.0  # downhill
            for a in range(k):
                d[a] *= sign
            longest = np.inf if sign > 0.0 else x[i]
            t, at = _blocking(x, P, k, d, longest)
            if t == np.inf:
                if total > 0.0 and math.sqrt(max(pivot, 0.0)) <= eps * total:
                    x[:] = 0.0
                    x[i] = 1.0
                    _move(face, x, k, d, 1.0, -1)
                    return -1
            elif not t * pivot > abs(slope):
                x[i] = max(x[i] + sign * t, 0.0)
                k = _move(face, x, k, d, t, at)
                if at < 0:
                    return k
                continue
        z[k] = math.sqrt(max(pivot, 1e-16))
        P[k] = i
        inside[i] = True
        return k + 1


@register_jitable
def _descend(face, x, g, k):
    """Make Newton steps to the minimum on the face, given g there; return its number of points and of steps."""
    (_, L, P, _) = face
    d = np.empty(k)
    at = 0
    left = 1.0
    steps = 0
    while at >= 0:
        for a in range(k):
            d[a] = -left * g[P[a]]
        _solve(L, k, d)
        t, at = _blocking(x, P, k, d, 1.0)
        k = _move(face, x, k, d, t, at)
        left = left * (1.0 - t)
        steps = steps + 1
    return k, steps


# ======================================================================================================
# 4 kernels
# ======================================================================================================

_KERNELS = {
    "linear": (),
    "poly": ("gamma", "coef0", "degree"),
    "rbf": ("gamma", "sigma2"),
    "laplacian": ("gamma",),
    "ntk": ("W",),
    "precomputed": (),
}
_NORMAL = float(np.finfo(np.float64).tiny)  # below which numbers have fewer digits
_AT_ONCE = 1 << 20  # entries of a kernel matrix that are computed at a time: 8 MB


class _Prepared(namedtuple("_Prepared", "rows squares hidden gates")):
    """Points as kernels read them.

    rows, squares : array or sparse, (n, d), and array, (n,), the points and ||x_i||^2
    hidden, gates : arrays, shape (n, width), relu(W x_i) / sqrt(width) and, in float32, 1 where W x_i > 0, else 0
    """

    def take(self, index):
        """Return some of the points, by numbers, mask or slice."""
        return _Prepared(*(part[index] for part in self))


def _without_zeros(points):
    """Return points without the coordinates that are zero in all of them, of which no kernel's values take notice."""
    used = points.rows.any(axis=0) if not _is_sparse(points.rows) else np.True_
    return points if used.all() else points._replace(rows=points.rows.compress(used, axis=1))


def _product(A, B):
    """Return A B', summed in float64, of rows, dense or sparse."""
    A = A.astype(np.float64, copy=False)
    B = B.astype(np.float64, copy=False)
    if _is_sparse(A) and _is_sparse(B):
        return _sparse_product(A, B)
    return np.asarray(A @ B.T)


_SPARSE = 0.03  # share of entries that are not 0, below which products skip the others


def _sparse_product(A, B):
    """Return A B' of sparse rows; of A made dense, and some rows of B at a time, where these have few zeros."""
    if B.nnz <= _SPARSE * B.shape[0] * B.shape[1]:
        return np.ascontiguousarray((B @ A.T).toarray().T)
    out = np.empty((A.shape[0], B.shape[0]))
    dense = A.toarray()
    for rows in _slices(B.shape[0], B.shape[1]):
        out[:, rows] = dense @ B[rows].toarray().T
    return out


class _Kernel(
    namedtuple("_Kernel", "name gamma coef0 degree dimension offset center is_far W function")
):
    """A kernel with its parameters, resolved against the training points.

    name : str, of `_KERNELS`; "ntk limit" for "ntk" without W; "callable"
    gamma, coef0, degree : float, float, int
    dimension : int, terms of an inner product: columns of the points, or the most entries of a sparse one
    offset : float, added to every value: the square of the intercept
    center : array, shape (d,), or None, subtracted from the points, see `_origin`: distances do not change
    is_far : bool, of "rbf": distances come from differences of coordinates, as inner products would cancel
    W : array, shape (width, d), of "ntk"; elsewhere without rows
    function : callable or None, of "callable"
    """

    def prepare(self, X, dtype=np.float64):
        """Prepare checked rows X for `block`, stored in this dtype."""
        if self.name == "precomputed":
            return _Prepared(X, np.zeros(len(X)), X[:, :0], X[:, :0])
        if _is_sparse(X) and (self.is_far or self.center is not None):
            X = X.toarray()
        X = X if self.center is None else X - self.center
        hidden = X @ self.W.T
        gates = (hidden > 0.0).astype(np.float32)
        hidden *= gates
        hidden /= math.sqrt(max(1, len(self.W)))
        with np.errstate(over="ignore"):
            X = X.astype(dtype, copy=False)
            hidden = hidden.astype(dtype, copy=False)
        return _Prepared(X, _squares(X), hidden, gates)

    def block(self, A, B, product=_product):
        """Return K(a_i, b_j) for prepared points; of a precomputed K, the b_j are the first of the training points."""
        if self.name == "precomputed":
            values = A.rows[:, : len(B.rows)]
        elif self.name == "callable":
            values = self._called(A.rows, B.rows)
        elif self.name == "laplacian" or self.is_far:
            values = np.empty((A.squares.size, B.squares.size))
            is_squared = self.name == "rbf"
            _enter_by_size(
                values.size * self.dimension, _decay, self.gamma, A.rows, B.rows, is_squared, values
            )
        else:
            values = product(A.rows, B.rows)
        if self.name == "poly":
            values *= self.gamma
            values += self.coef0
            base = values.copy()
            for _ in range(self.degree - 1):
                values *= base
        elif self.name == "rbf" and not self.is_far:
            squared = self.gamma * (
                1.0 - (self.dimension + 8.0) * _EPS
            )  # rounded up, K is 1 for copies of a point
            values *= 2.0 * self.gamma
            values -= squared * A.squares[:, None]
            values -= squared * B.squares
            np.minimum(values, 0.0, out=values)
            np.exp(values, out=values)
        elif self.name == "ntk":
            values *= product(A.gates, B.gates)
            values /= len(self.W)
            values += product(A.hidden, B.hidden)
        elif self.name == "ntk limit":
            lengths = np.sqrt(A.squares)[:, None] * np.sqrt(
                B.squares
            )  # a product might leave the range of numbers
            cosines = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0.0)
            cosines[cosines >= 1.0 - 2.0 * (self.dimension + 8.0) * _EPS] = (
                1.0  # it may be, as for copies of a point
            )
            angles = np.arccos(np.maximum(cosines, -1.0))
            values = (
                lengths * (np.sin(angles) + 2.0 * (np.pi - angles) * np.cos(angles)) / (2.0 * np.pi)
            )
        return values + self.offset if self.offset else values

    def _called(self, A, B):
        """Return the checked values of a function that a user gave as the kernel; it may write to its copies."""
        values = _real_array(self.function(A.copy(), B.copy()), "kernel(A, B)", 2)
        if values.shape != (len(A), len(B)):
            raise ValueError(
                f"kernel(A, B) must have shape (len(A), len(B)) = {len(A), len(B)}, got {values.shape}"
            )
        return values

    def diagonal(self, points):
        """Return K(x_i, x_i) for prepared points, training ones or new."""
        values = points.squares
        hidden = points.hidden
        if self.name == "precomputed":
            values = points.rows.diagonal()
        elif self.name == "callable":
            blocks = np.array_split(
                points.rows, len(values) // 32 + 1
            )  # of whose values only the diagonal is used
            values = np.concatenate([self._called(block, block).diagonal() for block in blocks])
        elif self.name in ("rbf", "laplacian"):
            values = np.ones(len(values))
        elif self.name == "poly":
            values = (self.gamma * values + self.coef0) ** self.degree
        elif self.name == "ntk":
            values = np.einsum("ij,ij->i", hidden, hidden, dtype=np.float64) + values * (
                points.gates.sum(axis=1, dtype=np.float64) / len(self.W)
            )
        return values + self.offset

    def sums(self, weights, X, Xnew):
        """Return sum_i weights_ci K(x_i, x), (k, m), for weights (k, n) and prepared points; not normalised."""
        sums = np.zeros((len(weights), Xnew.squares.size))
        if weights.any():
            support = slice(None) if self.name == "precomputed" else weights.any(axis=0)
            weights = weights[:, support]
            X = X.take(support)
            for rows in _slices(Xnew.squares.size, weights.shape[1]):
                sums[:, rows] = weights @ self.block(Xnew.take(rows), X).T
        return sums


def _slices(n, width):
    """Yield slices of n rows, as many rows of this width as are computed at a time."""
    step = max(1, _AT_ONCE // width)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _kernel(kernel, X, params, weights=1.0, is_moved=False):
    """Resolve a kernel's name, or a callable, and its keywords against the training points X, weighted.

    ``is_moved`` says that G does not change where "linear" is taken from another origin.
    """
    name = "callable" if callable(kernel) else _choice(kernel, "kernel", tuple(_KERNELS))
    accepted = (*_KERNELS.get(name, ()), "intercept")
    unknown = sorted(set(params) - set(accepted))
    if unknown:
        raise TypeError(f"kernel {kernel!r} takes {', '.join(accepted)}; got {', '.join(unknown)}")
    if name == "precomputed" and X.shape[0] != X.shape[1]:
        raise ValueError(
            f'kernel="precomputed" takes the square matrix of the training points; got shape {X.shape}'
        )
    W = np.empty((0, X.shape[1]))
    if params.get("W") is not None:
        W = _points(params["W"], "W")
        if W.shape[1] != X.shape[1]:
            raise ValueError(
                f"W must have a row for each hidden unit, of {X.shape[1]} columns; got shape {W.shape}"
            )
    elif name == "ntk":
        name = "ntk limit"
    gamma = _gamma_of(params, X, weights) if "gamma" in accepted else 1.0
    coef0 = _number(params.get("coef0", 1.0), "coef0", closed=True)
    intercept = (
        0.0 if _is_free(params) else _number(params.get("intercept", 0.0), "intercept", closed=True)
    )
    offset = _number(intercept * intercept, "the square of the intercept", closed=True)
    center = None
    dimension = X.shape[1]
    is_sparse = _is_sparse(X)
    if is_sparse:
        dimension = int(np.diff(X.indptr).max())
    if name == "linear" and is_moved and not _is_mapped(X):
        center = _origin(X)
        center = None if is_sparse and not center.any() else center
    if name in ("rbf", "laplacian") and not (_is_mapped(X) or is_sparse):
        center = _origin(X)
        center = np.where(center == 0.0, X.mean(axis=0), center)
    is_far = name == "rbf" and _distance_error(gamma, dimension, _largest_square(X, center)) > _FAR
    degree = _count(params.get("degree", 3), "degree", 1)
    function = kernel if callable(kernel) else None
    return _Kernel(name, gamma, coef0, degree, dimension, offset, center, is_far, W, function)


_FAR = 1e-10  # the largest error of a value of "rbf" for which distances come from inner products


def _distance_error(gamma, d, largest):
    """Bound the error of gamma ||x - x'||^2 by inner products of d terms, for ||x||^2, ||x'||^2 <= largest."""
    return 8.0 * gamma * largest * (d + 16.0) * 0.51 * _EPS


def _largest_square(X, center):
    """Return max_i ||x_i - center||^2, center None for 0."""
    moved = (block if center is None else block - center for _, block in _blocks(X))
    with np.errstate(over="ignore"):
        return max(float(_squares(block).max()) for block in moved)


def _is_free(params):
    """Tell whether these keywords ask for planes that need not pass through the origin."""
    intercept = params.get("intercept", 0.0)
    return isinstance(intercept, str) and _choice(intercept, "intercept", ("free",)) == "free"


def _gamma_of(params, X, weights):
    """Return gamma, by itself, by sigma2, "auto", 1 / d, or the scale of X: 1 / (d Var X); where Var X = 0, 1 / d."""
    gamma = params.get("gamma", "scale")
    if "sigma2" in params:
        if "gamma" in params:
            raise ValueError("give gamma or sigma2 = 1/(2 gamma), not both")
        return _number(0.5 / _number(params["sigma2"], "sigma2"), "gamma = 1/(2 sigma2)")
    if not isinstance(gamma, str):
        return _number(gamma, "gamma")
    if _choice(gamma, "gamma", ("scale", "auto")) == "auto":
        return 1.0 / X.shape[1]
    variance, is_constant = _variance(X, np.broadcast_to(weights, X.shape[0]))
    spread = X.shape[1] * variance
    if spread < _NORMAL and is_constant:
        spread = float(X.shape[1])
    if not _NORMAL <= spread < math.inf:
        raise ValueError(
            f'gamma="scale" is 1 / (d Var X), and d Var X {"under" if spread < 1.0 else "over"}flows; '
            "rescale the points, or give gamma"
        )
    return 1.0 / spread


def _variance(X, weights):
    """Return the variance of the entries of weighted rows, zeros of sparse ones too, and whether all are equal."""
    if _is_sparse(X):
        of_rows = np.asarray(X.mean(axis=1)).ravel()
        mean = weights @ of_rows / weights.sum()
        squares = (
            _squares(X) / X.shape[1] - 2.0 * mean * of_rows + mean * mean
        )  # the mean of (x_ij - mean)^2 in a row
        return max(float(weights @ squares / weights.sum()), 0.0), X.nnz == 0
    with np.errstate(over="ignore", invalid="ignore"):
        mean = (
            sum(weights[k : k + len(block)] @ block.mean(axis=1) for k, block in _blocks(X))
            / weights.sum()
        )
        total = sum(
            weights[k : k + len(block)] @ ((block - mean) ** 2).mean(axis=1)
            for k, block in _blocks(X)
        )
    return float(total / weights.sum()), all((block == X[0, 0]).all() for _, block in _blocks(X))


@njit(cache=_CACHE, fastmath=_FAST)
def _absolute_distance(a, b):
    """Return ||a - b||_1; by itself, since how it is summed would depend on the code around it."""
    total = 0.0
    for k in range(a.size):
        total += abs(np.float64(a[k]) - b[k])
    return total


@njit(cache=_CACHE, fastmath=_FAST)
def _squared_distance(a, b):
    """Return ||a - b||_2^2; by itself, as `_absolute_distance`."""
    total = 0.0
    for k in range(a.size):
        difference = np.float64(a[k]) - b[k]
        total += difference * difference
    return total


@_for_threads
def _decay(gamma, A, B, is_squared, out):
    """out_ij <- exp(-gamma ||a_i - b_j||_1), or of ||a_i - b_j||_2^2."""
    for i in prange(len(A)):
        a = A[i]
        for j in range(len(B)):
            distance = _squared_distance(a, B[j]) if is_squared else _absolute_distance(a, B[j])
            out[i, j] = math.exp(-gamma * distance)


_TILE = 128  # rows and columns of a matrix that are mirrored, or compared with their mirror images, at a time
_ABOVE_DIAGONAL = ~np.tri(_TILE, dtype=bool)


def _mirror(start, stop, out):
    """out_ji <- out_ij for the rows i from start to stop - 1 and all j < i, a few rows at a time, which caches keep."""
    for first in range(start, stop, _TILE):
        last = min(first + _TILE, stop)
        out[:first, first:last] = out[first:last, :first].T
        tile = out[first:last, first:last]
        np.copyto(tile, tile.T, where=_ABOVE_DIAGONAL[: last - first, : last - first])


def _normalizers(diagonal, normalize, name="X", reference=None):
    """Return c with c_i c_j K_ij normalised.  ``reference`` is the training diagonal, for new points under "max"."""
    _choice(normalize, "normalize", ("unit", "max", None))
    top = (diagonal if reference is None else reference).max()
    if not np.isfinite(diagonal).all():
        raise ValueError(
            f"K(x, x) overflows at row {np.argmin(np.isfinite(diagonal))} of {name}; rescale the points"
        )
    if top < _NORMAL and (top > 0.0 or normalize == "max"):
        raise ValueError(
            f"every row of X has K(x, x) below {_NORMAL:.1g}, where digits are lost; rescale the points"
        )
    if normalize is None:
        return np.ones(diagonal.size)
    if normalize == "max":
        return np.full(diagonal.size, 1.0 / math.sqrt(top))
    if diagonal.min() < _NORMAL:
        row = np.argmax(diagonal < _NORMAL)
        raise ValueError(
            f'row {row} of {name} has K(x, x) = {diagonal[row]:g}; normalize="unit" needs {_NORMAL:.1g}'
        )
    return 1.0 / np.sqrt(diagonal)


def _problem(X, kernel, normalize, params):
    """Prepare checked points; return the kernel, the points, K(x_i, x_i) and c with G_ij = y_i y_j c_i c_j K_ij."""
    kernel = _kernel(kernel, X, params, is_moved=_is_free(params) and normalize is None)
    points = kernel.prepare(X)
    diagonal = kernel.diagonal(points)
    return kernel, points, diagonal, _normalizers(diagonal, normalize)


@_with_underflow
def kernel_matrix(
    A: ArrayLike, B: ArrayLike, *, kernel: str | Callable = "rbf", **params: Any
) -> Array:
    """Cross matrix K(a_i, b_j), unsigned and not normalised.

    Parameters
    ----------
    A : array, shape (k, d)
        The training points, on which gamma="scale" is resolved; for kernel="precomputed" (k, k), their matrix.
    B : array, shape (m, d)
        Other points; for kernel="precomputed" (m, k), the values K(b_j, a_i).
    kernel, **params
        As in `gram`.

    Returns
    -------
    K : array, shape (k, m)

    Raises
    ------
    ValueError, TypeError
        As `gram`; and the numbers of columns differ.

    Examples
    --------
    >>> fm.kernel_matrix([[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0]], kernel="linear")
    array([[3.],
           [2.]])
    """
    A = _points(A, "A", kernel)
    B = _points(B, "B", kernel)
    if A.shape[1] != B.shape[1]:
        raise ValueError(f"A has {A.shape[1]} columns and B has {B.shape[1]}; they must agree")
    kernel = _kernel(kernel, A, params)
    return kernel.block(kernel.prepare(B), kernel.prepare(A)).T.copy()


def _pairs(labels, n_classes):
    """Return (point, right, wrong): the pairs of a point with each class that is not its own, point by point."""
    point, wrong = np.nonzero(labels[:, None] != np.arange(n_classes))
    return point, labels[point], wrong


def _class_weights(alpha, labels, n_classes):
    """Return T of `pair_gram`, (k, n_classes, n), for each of k weights of the pairs."""
    T = np.zeros((len(alpha), n_classes, len(labels)))
    (point, _, wrong) = _pairs(labels, n_classes)
    T[:, wrong, point] = -alpha
    T[:, labels, np.arange(len(labels))] = alpha.reshape(len(alpha), len(labels), -1).sum(axis=2)
    return T


@_with_underflow
def decision_function(
    alpha: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    Xnew: ArrayLike,
    *,
    kernel: str | Callable,
    normalize: str | None = "unit",
    n_classes: int | None = None,
    **params: Any,
) -> Array:
    """Scores f(x) = sum_i alpha_i y_i K(x_i, x), normalised as in `gram`, for every row x of Xnew; with ``n_classes``
    those of all classes, f_c(x) = sum_i T_ci K(x_i, x) with the class weights T of `pair_gram`.

    Parameters
    ----------
    alpha : array, shape (n,) or (k, n)
        Weights, such as Result.alpha, or k times weights, such as Result.iterates.  With ``n_classes`` those of the
        pairs of `pair_gram`, n (n_classes - 1) in place of n.
    X : array, shape (n, d)
        The training points; for kernel="precomputed" (n, n), their kernel matrix.
    y : array, shape (n,)
        Their labels, -1 or +1; with ``n_classes`` 0 to n_classes - 1.
    Xnew : array, shape (m, d)
        The points to score; for kernel="precomputed" (m, n), the values K(x, x_i).
    kernel, normalize
        What made G, as in `gram`; for `features` "linear".  The weights do not tell, so the kernel has no default.
    n_classes : int, optional
        Of a multiclass problem.
    **params
        The kernel's parameters, as in `gram`.

    Returns
    -------
    scores : array, shape (m,) or (m, n_classes)
        Positive where label +1 is predicted; or the largest in a row is that of the class predicted.  For k times
        weights k such arrays, (k, m) or (k, m, n_classes).

    Raises
    ------
    ValueError, TypeError
        As `gram`; lengths differ; or normalize="unit" meets a precomputed kernel, which does not tell K(x, x) of Xnew.

    Examples
    --------
    >>> X, y = [[2.0, 0.0], [-1.0, 1.0]], [1, -1]
    >>> alpha = fm.max_margin(fm.features(X, y)).alpha
    >>> fm.decision_function(alpha, X, y, [[5.0, 0.0], [0.0, 3.0]], kernel="linear") > 0
    array([ True, False])
    """
    X = _points(X, "X", kernel)
    Xnew = _points(Xnew, "Xnew", kernel)
    many = np.ndim(alpha) == 2
    alpha = np.atleast_2d(_real_array(alpha, "alpha", 1 + many))
    if n_classes is None:
        y = _labels(y, X.shape[0])
        pairs = X.shape[0]
    else:
        n_classes = _count(n_classes, "n_classes", 2)
        y = _labels(y, X.shape[0], "labels", range(n_classes)).astype(np.int64)
        pairs = y.size * (n_classes - 1)
    if alpha.shape[1] != pairs:
        raise ValueError(
            f"alpha has {alpha.shape[1]} weights, and {y.size} rows of X have {pairs}; they must agree"
        )
    if X.shape[1] != Xnew.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and Xnew has {Xnew.shape[1]}; they must agree"
        )
    if kernel == "precomputed" and normalize == "unit":
        raise ValueError(
            'normalize="unit" needs K(x, x) of new points, which a precomputed kernel does not tell'
        )
    kernel, points, diagonal, normalizer = _problem(X, kernel, normalize, params)
    weights = (
        alpha * y if n_classes is None else _class_weights(alpha, y, n_classes).reshape(-1, len(y))
    )
    new = kernel.prepare(Xnew)
    of_new = np.ones(Xnew.shape[0]) if kernel.name == "precomputed" else kernel.diagonal(new)
    scores = kernel.sums(weights * normalizer, points, new) * _normalizers(
        of_new, normalize, "Xnew", diagonal
    )
    if n_classes is not None:
        scores = scores.reshape(len(alpha), n_classes, Xnew.shape[0]).swapaxes(1, 2)
    elif _is_free(params):
        known = kernel.sums(weights * normalizer, points, points) * normalizer
        scores += np.array([[_offset(y, y * f)] for f in known])
    return scores if many else scores[0]


# ======================================================================================================
# 5 representations of G
# ======================================================================================================

# ------------------------------------------------------------------------------------------------------
# 5.1 operations
# ------------------------------------------------------------------------------------------------------
#
# Loops are written once, over anything that can do the operations below.  Over dense, feature and sparse G, which are
# named tuples of arrays, operations are compiled functions, and loops run compiled from end to end.  Any other G is an
# object with methods, over which the same loop runs as its own Python source: a product costs much more than that.


@register_jitable
def _three_step_pass(G, w, m, q, u):
    margins(G, w, m)
    log_total = _softmax(m, q)
    lift(G, q, u)
    return log_total


@register_jitable
def _inner_product(G, v, w, m):
    return _dot(v, m)


@register_jitable
def _one_by_one(G, W, M):
    for c in range(W.shape[0]):
        margins(G, W[c], M[c])


def _image(G, v):
    """Return G v, of any representation."""
    w = np.empty(G.shape()[1])
    m = np.empty(v.size)
    lift(G, v, w)
    margins(G, w, m)
    return m


def _add_by_product(G, index, weights, m):
    """m <- m + sum_k weights_k G e_index_k, by a product."""
    v = np.zeros(m.size)
    v[index] = weights
    m += _image(G, v)


class Representation:
    """What a representation of G is: an object with four methods.  ``shape()`` returns (points, coordinates), the
    lengths of v and of w = Z' v, and ``diagonal()`` the G_ii; ``lift(v, w)`` and ``margins(w, m)`` are the operations.

    It factors G = Z Z' by *coordinates*: w = Z' v stands for sum_i v_i z_i.  With explicit features w is that
    vector, of length d; a dense G has no features at hand, so there w is v itself and Z w is read as G v.

    The other methods have defaults that make do with these four; overriding them makes G faster, `rounding` bounds
    tighter.  Where ``access`` is not "products", ``restrict(index)``, G on some of the points, is needed, too.  Two
    more help where a class has them: ``precise(v)``, (v' G v, G v, `Rounding`) in twice the working precision for
    ||v||_1 <= 1, and ``separator(v)``, Z'v likewise.

    The G of which ``lower <= rho <= upper`` holds is that of exact arithmetic on what these methods hold: on the stored
    entries, or stored rows.  How far products may be from it is what `rounding` says.  By default they are sums over
    points and coordinates, in any order, of which every operation errs by ``unit`` at most, relative to its result.
    **A class that computes in single precision must set unit = 2.0**-24**, or its intervals may be false.  Where G is
    meant to be that of other rows than the stored ones, `rounding` must say so: see `Rounding.of_rows`.

    Attributes
    ----------
    access : {"products", "computed", "stored"}, what it takes to have some entries of G
    unit : float, the largest relative error of one operation in `lift` and `margins`: 2^-53, that of double precision
    signs : None, or array, shape (n,), labels -1 and +1 of two classes in each of which p has half its weight, so that
        margins may be changed by any b y: those of planes that need not pass through the origin (see `FreeGram`)

    Examples
    --------
    >>> class Rows(fm.Representation):
    ...     def __init__(self, Z): self.Z = Z
    ...     def shape(self): return self.Z.shape
    ...     def diagonal(self): return (self.Z**2).sum(axis=1)
    ...     def lift(self, v, w): w[:] = self.Z.T @ v
    ...     def margins(self, w, m): m[:] = self.Z @ w
    >>> fm.momentum(Rows(np.array([[2.0, 1.0], [1.0, 3.0]])), tol=1e-3).status
    'certified'
    """

    access = "products"
    routines = {}  # compiled operations by name, of the kinds that have them
    signs: Array | None = None
    ridge: Array | float = 0.0
    unit: float = 2.0**-53

    add_column = _add_by_product
    square = _inner_product
    table_margins = _one_by_one

    def softmax_pass(self, w: Array, m: Array, q: Array, u: Array) -> float:
        """Take a softmax in each class, of weight 1/2, if G has signs: b is at the least ln sum_i exp(-m_i - b y_i)."""
        if self.signs is None:
            return _three_step_pass(self, w, m, q, u)
        margins(self, w, m)
        logs = []
        for side in (self.signs > 0.0, self.signs < 0.0):
            part = np.empty(np.count_nonzero(side))
            logs.append(_softmax(m[side], part))
            q[side] = 0.5 * part
        m += 0.5 * (logs[0] - logs[1]) * self.signs
        lift(self, q, u)
        return math.log(2.0) + 0.5 * sum(logs)

    def checked(self) -> Representation:
        """Return itself, in the layout that its operations expect; raise ValueError or TypeError for bad values."""
        return self

    def rounding(self) -> Rounding:
        """Return the `Rounding` of its operations; by default of sums over points and coordinates in any order, of
        operations that err by ``unit``."""
        n, dimension = self.shape()
        margins = Rounding.of_rows(n, dimension, self.unit).margins
        return Rounding(margins, margins + 1.01 * _gamma(n + 8), 0.0)

    def dense(self) -> Array:
        """Return G itself, (n, n); asked of a few points at a time."""
        every = np.arange(self.shape()[0])
        return self.block(every, every)

    def block(self, rows: Array, columns: Array) -> Array:
        """Return G at some rows and columns, arrays of their numbers."""
        out = np.zeros((rows.size, self.shape()[0]))
        for k, i in enumerate(rows):
            self.add_column(i, 1.0, out[k])
        return out[:, columns]

    def adder(self) -> Callable | None:
        """Return ``add(index, weights, m)``, m <- m + sum_k weights_k G e_index_k for distinct points, which may keep
        columns that it has seen; None where that costs as much as a product."""
        return None

    def precise(self, v: Array) -> tuple[float, Array, Rounding] | None:
        """Return (v'Gv, G v, their `Rounding`) in twice the working precision, for ||v||_1 <= 1; None if it cannot."""
        return None

    def precise_dots(self, w: Array) -> Array | None:
        """Return all <z_i, w>, each sum rounded once; None if it cannot."""
        return None

    def separator(self, v: Array) -> Array | None:
        """Return Z'v in twice the working precision; None if it cannot."""
        return None

    def without_ridge(self) -> Representation:
        """Return G without the diagonal that `RidgeGram` adds."""
        return self

    def without_shift(self) -> Representation:
        """Return G without its ridge and its free intercept."""
        return self

    def points_gram(self) -> Representation:
        """Return the Gram matrix of the points: K for the pairs of `PairGram`."""
        return self


_SMALLEST = 1e-285
_LARGEST = 1e285  # of s: beyond, products of entries and weights may leave the range of numbers
_UNIT = 2.0**-53  # the largest relative error of one operation in double precision
_LAST = 8.0 * _UNIT  # and of a few in a row, as in a square root and a quotient


def _gamma(k, unit=_UNIT):
    """Return k u / (1 - k u): the largest relative error of a term in a sum that saw k operations, in any order."""
    return k * unit / (1.0 - k * unit) if k * unit < 1.0 else math.inf


class Rounding(namedtuple("Rounding", "margins square length")):
    """A-priori bounds on the errors of a product, in units of s = max_i G_ii, at any v with ||v||_1 <= 1.

    With (w, m) = (Z'v, G v) from `lift` and `margins` and r^2 from `square`, as computed,

        |m_i - (G v)_i| <= margins s,
        sqrt(max(r^2 - square s, 0)) - length sqrt(s) <= ||v||_G <= sqrt(r^2 + square s) + length sqrt(s),

    up to a few units in the last place of m_i and r^2 themselves.

    Attributes
    ----------
    margins, square, length : float

    Notes
    -----
    Since |G_ij| <= s, a sum of n rounded terms G_ij v_j, in whatever order, errs by at most gamma_n s, with gamma_k =
    k u / (1 - k u) and u = 2^-53, and by one rounding more where G itself was rounded when it was stored.  Over rows, w
    errs by gamma_n sqrt(s) in length and <z_i, w> by gamma_d sqrt(s) ||w|| more.  A factor of 1.01 stands for products
    of errors, for the rounding of s and, where s > 1e-285, for underflow.

    References
    ----------
    N. Higham, Accuracy and Stability of Numerical Algorithms, SIAM 2002, section 3.1.

    Examples
    --------
    >>> fm.Rounding.of_entries(1000, 0.0).square, fm.Rounding.of_rows(1000, 100).square
    (2.2605917138210118e-13, 0.0)
    """

    @classmethod
    def of_entries(cls, n: int, unit: float) -> Rounding:
        """Of sums over the n entries of a row of G, which are themselves known to a relative ``unit``."""
        margins = 1.01 * (_gamma(n + 8) + unit)
        return cls(margins, 2.0 * margins, 0.0)

    @classmethod
    def of_rows(cls, n: int, d: int, unit: float = _UNIT, rows: float = 0.0) -> Rounding:
        """Of w = Z'v and <z_i, w> by the n rows of Z, (n, d), known exactly or as products of two numbers.

        ``unit`` is the largest relative error of one operation, 2^-53 in double and 2^-24 in single precision.
        ``rows`` is that of each row, ||stored z_i - z_i|| <= rows ||z_i||, where G is of other rows than the stored.
        ``square`` is to be <w, w> of the w that `lift` gives, summed in double precision.
        """
        error = 1.01 * (_gamma(n + d + 8, unit) + 2.0 * rows)
        return cls(error, 0.0, error)

    def scaled(self, share: float) -> Rounding:
        """Return the same bounds in units of a larger s, of which the present one is this share."""
        return Rounding(self.margins * share, self.square * share, self.length * math.sqrt(share))


def _operation(signature: _Decorated) -> _Decorated:
    """Make a function that runs the operation of this name of any representation, compiled or as a method."""
    name = signature.__name__
    names = list(inspect.signature(signature).parameters)[1:]

    @functools.wraps(signature)
    def call(G, *args):
        if not isinstance(G, Representation):
            raise TypeError(
                f"{type(G).__name__} is no representation of G: take the G of prepare(G, max_iter)"
            )
        n, dimension = G.shape()
        for key, value in zip(names, args, strict=True):
            size = {"v": n, "m": n, "q": n, "w": dimension, "u": dimension}.get(key.lower())
            wanted = (size,) if key.islower() else (len(args[0]), size)
            if size is not None and not (isinstance(value, np.ndarray) and value.shape == wanted):
                raise ValueError(f"{key} must be an array of shape {wanted}, got {np.shape(value)}")
            if key == "i" and not 0 <= value < n:
                raise IndexError(f"i must be the number of one of {n} points, got {value}")
        routine = G.routines.get(name)
        return getattr(G, name)(*args) if routine is None else _enter(routine, G, *args)

    @overload(call, strict=False)
    def choose(G, *args):
        routine = G.instance_class.routines[name]

        def pass_on(G, *args):
            return routine(G, *args)

        # Numba tells machine code apart by this name, the types and a counter that begins anew in every process: under
        # one name, what one process has cached for lift would be taken for margins, of the same types, by another.
        pass_on.__qualname__ = name
        return pass_on

    return call


@_operation
def lift(G: Representation, v: Array, w: Array) -> None:
    """w <- Z' v, the coordinates of sum_i v_i z_i; `lift` and `margins` together are one product G v.

    Parameters
    ----------
    G : representation of n points in d coordinates
    v, w : arrays, shapes (n,), (d,); w is overwritten

    Examples
    --------
    >>> w = np.empty(2)
    >>> fm.lift(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), np.array([2.0, 1.0]), w)
    >>> w
    array([2., 5.])
    """


@_operation
def margins(G: Representation, w: Array, m: Array) -> None:
    """m <- Z w, the margins of the separator with coordinates w.

    Parameters
    ----------
    G : representation of n points in d coordinates
    w, m : arrays, shapes (d,), (n,); m is overwritten

    Examples
    --------
    >>> m = np.empty(2)
    >>> fm.margins(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), np.array([2.0, 5.0]), m)
    >>> m
    array([12.,  5.])
    """


@_operation
def add_column(G: Representation, i: int, c: float, m: Array) -> None:
    """m <- m + c G e_i: one column, a product's n-th part.

    Parameters
    ----------
    G : representation of n points
    i : int, the number of the point
    c : float
    m : array, shape (n,), changed in place

    Examples
    --------
    >>> m = np.zeros(2)
    >>> fm.add_column(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), 1, 10.0, m)
    >>> m
    array([20., 10.])
    """


@_operation
def softmax_pass(G: Representation, w: Array, m: Array, q: Array, u: Array) -> float:
    """m <- Z w, q <- softmax(-m), u <- Z' q: one product, and over features one reading of Z.

    Parameters
    ----------
    G : representation of n points in d coordinates
    w, m, q, u : arrays, shapes (d,), (n,), (n,), (d,); all but w are overwritten

    Returns
    -------
    float
        ln sum_i exp(-m_i).

    Examples
    --------
    >>> m, q, u = np.empty((3, 2))
    >>> log_total = fm.softmax_pass(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), np.zeros(2), m, q, u)
    >>> q, u
    (array([0.5, 0.5]), array([0.5, 1.5]))
    """


@_operation
def square(G: Representation, v: Array, w: Array, m: Array) -> float:
    """v' G v, given w = Z' v and m = G v: no product.

    Parameters
    ----------
    G : representation of n points in d coordinates
    v, w, m : arrays, shapes (n,), (d,), (n,)

    Examples
    --------
    >>> fm.square(fm.FeatureGram(np.eye(2)), np.array([3.0, 4.0]), np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    25.0
    """


@_operation
def table_margins(G: Representation, W: Array, M: Array) -> None:
    """M <- W Z', the margins of several separators at once, one a row.

    Parameters
    ----------
    G : representation of n points in d coordinates
    W, M : arrays, shapes (k, d), (k, n); M is overwritten

    Examples
    --------
    >>> M = np.empty((2, 3))
    >>> fm.table_margins(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])), np.eye(2), M)
    >>> M
    array([[1., 0., 1.],
           [2., 1., 0.]])
    """


_DEFAULTS = {
    "softmax_pass": njit(_three_step_pass, cache=_CACHE),
    "square": njit(_inner_product, cache=_CACHE),
    "table_margins": njit(_one_by_one, cache=_CACHE),
}


# ------------------------------------------------------------------------------------------------------
# 5.2 ridge and offset
# ------------------------------------------------------------------------------------------------------


class RidgeGram(Representation):
    """G + diag(r) over another representation, what ``ridge=r`` makes of it; coordinates: those of G, sqrt(r_i) v_i.

    Attributes
    ----------
    base : representation, G
    ridge : array, shape (n,), r; given as such, or as one number for all

    Examples
    --------
    >>> fm.features([[3.0, 4.0], [0.0, 1.0]], [1, 1], normalize=None, ridge=[0.5, 2.0]).dense()
    array([[25.5,  4. ],
           [ 4. ,  3. ]])
    """

    def __init__(self, base: Representation, ridge: ArrayLike) -> None:
        self.base = base
        self.ridge = _amounts(ridge, "ridge", base.shape()[0])
        self.access = base.access
        self.signs = base.signs
        self._roots = np.sqrt(self.ridge)

    def checked(self) -> Representation:
        return RidgeGram(self.base.checked(), self.ridge)

    def without_ridge(self) -> Representation:
        return self.base

    def without_shift(self) -> Representation:
        return self.base.without_shift()

    def shape(self) -> tuple[int, int]:
        n, dimension = self.base.shape()
        return n, n + dimension

    def diagonal(self) -> Array:
        return self.base.diagonal() + self.ridge

    def _of_base(self, rounding):
        """Return bounds in units of the base's s in units of this one; both are larger where numbers underflow."""
        scale = float(self.diagonal().max())
        of_base = max(float(self.base.diagonal().max()), _SMALLEST)
        return rounding.scaled(max(of_base / scale, 1e-280))

    def rounding(self) -> Rounding:
        """Add a few units of the base's s to its errors, since |r_i v_i| <= |m_i| + s."""
        (unit, of_square, of_length) = self.base.rounding()
        lost = _gamma(16)
        return self._of_base(
            Rounding(unit + lost, of_square + (lost if of_square else 0.0), of_length)
        )

    def lift(self, v: Array, w: Array) -> None:
        lift(self.base, v, w[: -v.size])
        np.multiply(v, self._roots, out=w[-v.size :])

    def margins(self, w: Array, m: Array) -> None:
        margins(self.base, w[: -m.size], m)
        m += self._roots * w[-m.size :]

    def add_column(self, i: int, c: float, m: Array) -> None:
        add_column(self.base, i, c, m)
        m[i] += c * self.ridge[i]

    def square(self, v: Array, w: Array, m: Array) -> float:
        terms = self._roots * w[-v.size :]
        return square(self.base, v, w[: -v.size], m - terms) + sum(_precise_dot(terms, v))

    def restrict(self, index: Array) -> Representation:
        return RidgeGram(self.base.restrict(index), self.ridge[index])

    def block(self, rows: Array, columns: Array) -> Array:
        return self.base.block(rows, columns) + self.ridge[columns] * (rows[:, None] == columns)

    def adder(self) -> Callable | None:
        add_to_base = self.base.adder()

        def add(index, weights, m):
            add_to_base(index, weights, m)
            m[index] += self.ridge[index] * weights

        return None if add_to_base is None else add

    def precise(self, v: Array) -> tuple[float, Array, Rounding] | None:
        products = self.base.precise(v)
        if products is None:
            return None
        size, m, rounding = products
        terms = self.ridge * v
        rounding = self._of_base(rounding)
        lost = _LAST * float(np.abs(m).max() / self.diagonal().max())  # where the terms cancel
        return (
            size + sum(_precise_dot(terms, v)),
            m + terms,
            rounding._replace(margins=rounding.margins + lost),
        )


def _with_offset(G, signs, params, origin=None):
    """Free the planes from the origin if the keywords ask for it; that of G is a point of the user's coordinates."""
    if not _is_free(params):
        return G
    if np.ptp(signs) == 0.0:
        raise ValueError('intercept="free" takes labels y of both classes, -1 and +1')
    return FreeGram(G, signs, origin)


def _with_ridge(G, ridge):
    ridged = RidgeGram(G, ridge)
    return ridged if ridged.ridge.any() else G


_TAKES_FREE = (
    "`max_margin`, and `momentum`, `gradient_descent` and `normalized_gradient_descent` by default"
)


class FreeGram(Representation):
    """G of planes that need not pass through the origin, what ``intercept="free"`` makes.

    Here p ranges over the mixtures with y'p = 0, half of whose weight is in each class.  For these ||p||_G is half the
    distance of a point of one convex hull from one of the other, wherever the origin is: G may be changed by any
    h y' + y h', margins by any b y, and

        rho = max_{w, b} min_i y_i (<w, x_i> + b) / ||w|| = min_p ||p||_G.

    Attributes
    ----------
    base : representation, G
    signs : array, shape (n,), y
    origin : array, shape (d,), or None, from which the rows of G are taken: near points that are far from 0, so that
        what they have in common is not rounded.  Inner products with it are exact differences; None for 0

    Notes
    -----
    `softmax_pass` makes one softmax in each class, with weight 1/2 each: the gradient of ln sum_i exp(-m_i - b y_i),
    minimised over b, which is as smooth as without b.  Those take it that work by such mixtures:
    `max_margin`, and `momentum`, `gradient_descent` and `normalized_gradient_descent` by default.  The logistic loss,
    divide_by="norm" and all other algorithms go by single points or by other mixtures; `prepare` refuses it to them.

    Examples
    --------
    >>> G = fm.features([[10.0, 1.0], [12.0, 0.0]], [1, -1], normalize=None, intercept="free")
    >>> round(fm.max_margin(G).lower, 6)  # sqrt(5) / 2
    1.118034
    """

    def __init__(self, base: Representation, signs: ArrayLike, origin: Array | None = None) -> None:
        self.base = base = base.checked()
        self.origin = origin
        self.signs = _labels(signs, base.shape()[0], "signs")
        self.access = base.access
        for name in ("shape", "diagonal", "rounding", "block", "adder", "precise"):
            setattr(self, name, getattr(base, name))
        for operation in (lift, margins, add_column, square, table_margins):
            setattr(self, operation.__name__, functools.partial(operation, base))

    def without_shift(self) -> Representation:
        return self.base

    def restrict(self, index: Array) -> Representation:
        return FreeGram(self.base.restrict(index), self.signs[index], self.origin)


# ------------------------------------------------------------------------------------------------------
# 5.3 dense
# ------------------------------------------------------------------------------------------------------


class DenseGram(Representation, namedtuple("DenseGram", "matrix threads", defaults=(True,))):
    """A symmetric (n, n) matrix, C-ordered, float64 or float32.

    Algorithms make it of a plain array.  One not symmetric to the last bit is copied, its upper triangle mirrored.

    Attributes
    ----------
    matrix : array, shape (n, n), G
    threads : bool, whether large products may be shared among threads

    Examples
    --------
    >>> fm.DenseGram(np.eye(3)).shape()
    (3, 3)
    """

    access = "stored"

    def checked(self) -> Representation:
        G = self._replace(matrix=_symmetric(self.matrix, "G"))
        if 0.0 < G.diagonal().max() < np.finfo(G.matrix.dtype).tiny:
            raise ValueError(
                f"max_i G_ii is {G.diagonal().max():g}, too small for {G.matrix.dtype}; rescale G"
            )
        return G

    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def diagonal(self) -> Array:
        return self.matrix.diagonal().astype(np.float64)

    def rounding(self) -> Rounding:
        return Rounding.of_entries(len(self.matrix), 0.5 * float(np.finfo(self.matrix.dtype).eps))

    def restrict(self, index: Array) -> Representation:
        return self._replace(matrix=self.block(index, index))

    def block(self, rows: Array, columns: Array) -> Array:
        return self.matrix[rows[:, None], columns]

    def adder(self) -> Callable | None:
        def add(index, weights, m):
            if 2 * len(index) > m.size:  # a product reads half of G
                _add_by_product(self, index, weights, m)
            else:
                _enter_by_size(len(index) * m.size, _combine_rows, self.matrix, index, weights, m)

        return add

    def precise(self, v: Array) -> tuple[float, Array, Rounding]:
        n = v.size
        m = np.empty(v.size)
        size = _dense_precise(self.matrix, v, m)
        margins = 1.01 * (
            0.5 * float(np.finfo(self.matrix.dtype).eps) + _UNIT + _gamma(2 * n + 8) ** 2
        )
        return size, m, Rounding(margins, 2.0 * margins, 0.0)


def _symmetric(given, name):
    """Return a C-ordered float matrix without visible flaw, symmetric to the last bit, or say where the flaw is."""
    matrix = _array(given, name)
    if (
        matrix.ndim != 2
        or not matrix.size
        or matrix.shape[0] != matrix.shape[1]
        or matrix.dtype.kind not in "fiub"
    ):
        raise ValueError(
            f"{name} must be a square matrix of real numbers; got shape {matrix.shape} of {matrix.dtype}"
        )
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    given = matrix
    # A symmetric matrix is its own transpose: a Fortran-ordered one needs no copy.
    matrix = matrix.T if matrix.flags.f_contiguous else np.ascontiguousarray(matrix)
    slack = 1e3 * float(np.finfo(matrix.dtype).eps) * float(np.abs(matrix.diagonal()).max())
    flaw, is_symmetric = _first_flaw(matrix, slack)
    if flaw is not None:
        i, j, kind = flaw
        demand = (
            "must be finite",
            f"must be symmetric (take ({name} + {name}.T) / 2)",
            "must be positive semi-definite",
        )[kind]
        entries = (
            f"{name}[{a}, {b}] = {given[a, b]}"
            for a, b in dict.fromkeys(((i, j), (j, i), (i, i), (j, j)))
        )
        raise ValueError(f"{name} {demand}; row {i} has {', '.join(entries)}")
    if not is_symmetric:
        matrix = matrix.copy()
        _mirror(0, len(matrix), matrix.T)
    return matrix


def _first_flaw(matrix, slack):
    """Return (i, j, kind) of an entry that is not finite (0), not symmetric (1) or in a 2x2 minor below 0 (2), or None;
    and whether the matrix is symmetric to the last bit."""
    n = len(matrix)
    diagonal = matrix.diagonal().astype(np.float64)
    with np.errstate(invalid="ignore"):
        roots = np.sqrt(diagonal)  # NaN, which no comparison passes, where it is below 0
    found = np.zeros((-(-n // _TILE), 2), np.int64)
    _enter_by_size(matrix.size, _survey, matrix, roots, slack, found)
    differ, wrong = found.sum(axis=0)
    for rows in _slices(n, n) if wrong or not np.isfinite(diagonal).all() else ():
        a = matrix[rows, : rows.stop]
        b = matrix[: rows.stop, rows].T
        with np.errstate(invalid="ignore"):
            flaws = np.array(
                [
                    ~(np.isfinite(a) & np.isfinite(b)),
                    np.abs(a - b) > slack,
                    (diagonal[rows, None] < 0.0)
                    | (np.abs(a) > 1.0000005 * roots[rows, None] * roots[: rows.stop] + slack),
                ]
            )
        places = np.argwhere(np.tril(flaws.any(axis=0), rows.start))
        if places.size:
            i, j = places[0].tolist()
            return (rows.start + i, j, int(np.argmax(flaws[:, i, j]))), False
    return None, not differ


@_for_threads
def _survey(matrix, roots, slack, found):
    """Count the entries that differ from their mirror images, and those that no positive semi-definite matrix has.

    Each row of tiles takes half of the others, in a circle, so that all have as much to do.
    """
    n = roots.size
    count = len(found)
    for tile in prange(count):
        k = np.int64(tile)
        differ = 0
        wrong = 0
        for turn in range(count // 2 + 1):
            first = _TILE * ((k + turn) % count)
            last = min(first + _TILE, n)
            for i in range(_TILE * k, min(_TILE * k + _TILE, n)):
                a = matrix[i, first:last]
                b = matrix[first:last, i]
                r = roots[first:last]
                most = 1.0000005 * roots[i]
                for j in range(a.size):
                    differ += a[j] != b[j]
                for j in range(a.size):  # each loop by itself becomes vector instructions
                    wrong += not abs(a[j]) <= most * r[j] + slack
                for j in range(a.size if differ else 0):
                    wrong += not abs(a[j] - b[j]) <= slack
        found[k, 0] = differ
        found[k, 1] = wrong


def _check_callable(block, diagonal, start):
    """Refuse a callable kernel whose values among the points from ``start`` on are no kernel's."""
    slack = 1e-5 * np.abs(diagonal).max()
    flaw, _ = _first_flaw(block, slack)
    if flaw is not None:
        i, j, kind = flaw
        raise ValueError(
            f"kernel(A, B) must be {('finite', 'symmetric', 'positive semi-definite')[kind]}; for rows "
            f"{start + i} and {start + j} of X it gives {block[np.ix_([i, j], [i, j])].tolist()}"
        )
    wrong = np.flatnonzero(np.abs(block.diagonal() - diagonal) > slack)
    if wrong.size:
        raise ValueError(
            f"kernel(A, B) must not depend on other points, as K(x, x) of row {start + wrong[0]} does"
        )


@_with_underflow
def gram(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    kernel: str | Callable = "rbf",
    normalize: str | None = "unit",
    dtype: DTypeLike = np.float64,
    ridge: ArrayLike = 0.0,
    **params: Any,
) -> Array | FreeGram:
    """Dense signed Gram matrix G_ij = y_i y_j K(x_i, x_j) / normalisation + r_i [i = j], exactly symmetric.

    Parameters
    ----------
    X : array, shape (n, d)
        The points; for kernel="precomputed" (n, n), the matrix K(x_i, x_j).
    y : array, shape (n,), optional
        Labels, -1 or +1; None gives the unsigned matrix.
    kernel : str or callable
        "linear": <x, x'>;
        "poly": (gamma <x, x'> + coef0)^degree;
        "rbf": exp(-gamma ||x - x'||^2);
        "laplacian": exp(-gamma ||x - x'||_1);
        "ntk": (1/m) sum_j (relu(w_j'x) relu(w_j'x') + <x, x'> [w_j'x > 0] [w_j'x' > 0]), the tangent kernel of
        f(x) = m^(-1/2) sum_j a_j relu(w_j'x) in both layers, a_j = +-1; without W its limit for w_j ~ N(0, I), m
        infinite, ||x|| ||x'|| (sin t + 2 (pi - t) cos t) / (2 pi) with t the angle between x and x';
        "precomputed": X is the matrix;
        or a symmetric, positive semi-definite function ``kernel(A, B)`` of two sets of points, (k, d) and (m, d),
        copies, that returns the values K(a_i, b_j), (k, m).
    normalize : {"unit", "max", None}
        "unit" divides K_ij by sqrt(K_ii K_jj), so that G_ii = 1 (ramdas14), the default of all functions, whose sources
        have ||x_i|| <= 1; "max" divides by max_i K_ii, so that G_ii <= 1 (ji21); None leaves K as it is, the default of
        `MaxMarginClassifier`, as of every support vector machine.
    dtype : {float64, float32}
        float32 takes half the memory; sums over n stay in float64.
    ridge : float or array, shape (n,)
        r_i >= 0, added to G_ii: hard margins of G + diag(r) are those of the SVM with squared slacks, which weigh
        C_i = 1/(2 r_i).  One number r stands for all.
    **params
        gamma, a number, "scale" (the default), 1 / (d Var X), or "auto", 1 / d; sigma2 in its place for "rbf", with
        gamma = 1/(2 sigma2); coef0 = 1 and degree = 3 for "poly"; W, (m, d), or None for "ntk".
        For every kernel intercept = 0: c makes it K + c^2, as if all points had a constant feature c; "free" lets
        planes pass anywhere: f + b, with b at no cost, has the margin, half the distance of two convex hulls.

    Returns
    -------
    G : array, shape (n, n); with a free intercept FreeGram over it

    Raises
    ------
    ValueError
        Values are not finite, labels are not -1 or +1, lengths differ, K(x, x) <= 0 under "unit", a parameter is out of
        range, or a precomputed or callable kernel is not symmetric (blocks on the diagonal show it) or of wrong shape.
    TypeError
        The kernel does not take one of the parameters.

    References
    ----------
    "ntk": A. Jacot, F. Gabriel, C. Hongler, NeurIPS 2018; its limit is half the sum of the arc-cosine kernel of degree
    1 and <x, x'> times that of degree 0: Y. Cho, L. Saul, NeurIPS 2009.

    Examples
    --------
    >>> fm.gram([[1.0, 1.0], [0.0, 2.0]], [1, -1], kernel="linear", normalize=None)
    array([[ 2., -2.],
           [-2.,  4.]])
    >>> fm.gram([[1.0], [2.0]], kernel=lambda A, B: 1.0 + A @ B.T, normalize=None)
    array([[2., 3.],
           [3., 5.]])
    """
    X = _points(X, "X", kernel)
    n = X.shape[0]
    sign = _labels(y, n)
    dtype = _choice(np.dtype(dtype).name, "dtype", ("float64", "float32"))
    ridge = _amounts(ridge, "ridge", n)
    if isinstance(kernel, str) and kernel == "precomputed" and n == X.shape[1]:
        X = _symmetric(X, "X")
    kernel, points, diagonal, normalizer = _problem(X, kernel, normalize, params)
    if kernel.name not in ("precomputed", "callable"):
        points = _without_zeros(points)
    entries = 1.0 if normalize == "unit" else diagonal * normalizer**2
    out = _signed_gram(kernel, points, diagonal, sign * normalizer, entries + ridge, dtype)
    return _with_offset(DenseGram(out), sign, params, kernel.center) if _is_free(params) else out


def _signed_gram(kernel, points, diagonal, c, entries, dtype):
    """Return c_i c_j K(x_i, x_j), exactly symmetric, with these entries on the diagonal."""
    out = np.empty((c.size, c.size), dtype)
    for rows in _slices(c.size, c.size):
        block = kernel.block(points.take(rows), points.take(slice(rows.stop)))
        if kernel.name == "callable":
            _check_callable(
                np.ascontiguousarray(block[:, rows.start :]), diagonal[rows], rows.start
            )
        np.multiply(
            block * c[: rows.stop], c[rows, None], out=out[rows, : rows.stop], casting="same_kind"
        )
    _mirror(0, c.size, out)
    np.fill_diagonal(out, entries)
    return out


_STREAMS = 8  # rows of a triangle that are read at once: those that `_symmetric_rows` writes out


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


def _add_triangles(matrix, W, parts):
    """Add to each part what its rows of the upper triangle, of equal area, contribute to W G.

    Where W has several rows, a few rows of the matrix at a time serve them all, which the caches keep.
    """
    n = W.shape[1]
    count = len(parts)
    few = 2 * _STREAMS if W.shape[0] > 1 else n
    blocks = n / _STREAMS  # whole ones, or rows would be read twice
    for part in prange(count):
        k = np.int64(part)
        start = _STREAMS * int(round(blocks * (1.0 - math.sqrt(1.0 - k / count))))
        stop = (
            _STREAMS * int(round(blocks * (1.0 - math.sqrt(1.0 - (k + 1) / count))))
            if k + 1 < count
            else n
        )
        for i in range(start, stop, few):
            for c in range(W.shape[0]):
                _symmetric_rows(matrix, W[c], i, min(i + few, stop), parts[k, c])


_add_triangles_in_parallel, _add_triangles_alone = _for_threads(_add_triangles)


@njit(cache=_CACHE)
def _dense_table_margins(G, W, M):
    parts = np.zeros((1 if G.matrix.size < _SERIAL else _PARTS, W.shape[0], W.shape[1]))
    if G.threads and len(parts) > 1:
        _add_triangles_in_parallel(G.matrix, W, parts)
    else:
        _add_triangles_alone(G.matrix, W, parts)
    M[:] = 0.0
    for part in range(len(parts)):
        for c in range(W.shape[0]):
            _combine(1.0, M[c], 1.0, parts[part, c])


@njit(cache=_CACHE)
def _dense_margins(G, w, m):
    _dense_table_margins(G, np.expand_dims(w, 0), np.expand_dims(m, 0))


@njit(cache=_CACHE)
def _dense_lift(G, v, w):
    _copy(v, w)


@njit(cache=_CACHE)
def _dense_add_column(G, i, c, m):
    _combine(1.0, m, c, G.matrix[i])


@njit(cache=_CACHE)
def _dense_precise(matrix, v, m):
    """m <- G v, each sum rounded once; returns v' G v.  Columns of weight zero are not read."""
    low = np.zeros(m.size)
    m[:] = 0.0
    for j in range(v.size):
        if v[j] != 0.0:
            for i in range(m.size):
                m[i], low[i] = _add_exactly(m[i], low[i], float(matrix[j, i]), v[j])
    for i in range(m.size):
        m[i] += low[i]
    high, rest = _precise_dot(v, m)
    return high + rest


DenseGram.routines = {
    **_DEFAULTS,
    "lift": _dense_lift,
    "margins": _dense_margins,
    "add_column": _dense_add_column,
    "table_margins": _dense_table_margins,
}


def _representation(G):
    """Check what a user passed as G and return (representation, s)."""
    G = (G if isinstance(G, Representation) else DenseGram(G)).checked()
    scale = float(G.diagonal().max())
    if not _SMALLEST < scale < _LARGEST:
        raise ValueError(
            f"max_i G_ii is {scale:g}; it must be above 0, from {_SMALLEST:g} to {_LARGEST:g}: rescale G"
        )
    return G, scale


# ------------------------------------------------------------------------------------------------------
# 5.4 rows
# ------------------------------------------------------------------------------------------------------


class _RowGram(Representation):
    """Hold what representations by rows have in common."""

    access = "computed"

    def precise(self, v: Array) -> tuple[float, Array, Rounding]:
        m = np.empty(v.size)
        error = _gamma(2 * sum(self.shape()) + 16) ** 2
        return (
            _precise_margins(self, v, m, self.shape()[1]),
            m,
            Rounding(2.0 * error, 0.0, 2.0 * error),
        )

    def precise_dots(self, w: Array) -> Array:
        """Return <z_i, w>, each sum rounded once."""
        m = np.empty(self.shape()[0])
        _precise_dots(self, w, np.zeros(w.size), m)
        return m

    def separator(self, v: Array) -> Array:
        return _precise_lift(self, v, self.shape()[1]).sum(axis=0)


class FeatureGram(_RowGram, namedtuple("FeatureGram", "rows threads", defaults=(True,))):
    """G = Z Z' by its rows z_i = y_i x_i / scale, made by `features`.

    Attributes
    ----------
    rows : array, shape (n, d), Z
    threads : bool, as in `DenseGram`

    Examples
    --------
    >>> fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])).dense()
    array([[5., 2.],
           [2., 1.]])
    """

    def checked(self) -> Representation:
        return self._replace(
            rows=np.ascontiguousarray(_real_array(self.rows, "G.rows", 2), dtype=np.float64)
        )

    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def diagonal(self) -> Array:
        return np.einsum("ij,ij->i", self.rows, self.rows)

    def rounding(self) -> Rounding:
        return Rounding.of_rows(*self.rows.shape)

    def restrict(self, index: Array) -> Representation:
        return self._replace(rows=self.rows[index])

    def block(self, rows: Array, columns: Array) -> Array:
        return self.rows[rows] @ self.rows[columns].T


# Kinds of rows bring three operations of their own; the rest is written once for all of them.


@_operation
def _row(G, i):
    """Return the entries of z_i and their columns."""


@_operation
def _set_dots(G, w, m, start):
    """m_k <- <z_(start + k), w> for all k."""


@_operation
def _add_rows(G, v, start, out):
    """out <- out + sum_k v_k z_(start + k); rows of weight zero are not read."""


@njit(cache=_CACHE)
def _feature_row(G, i):
    return G.rows[i], np.arange(G.rows.shape[1], dtype=np.uint32)


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
def _feature_set_dots(G, w, m, start):
    Z = G.rows
    whole = m.size - m.size % 4
    for k in range(0, whole, 4):
        i = start + k
        m[k], m[k + 1], m[k + 2], m[k + 3] = _four_dots(Z[i], Z[i + 1], Z[i + 2], Z[i + 3], w)
    for k in range(whole, m.size):
        row = Z[start + k]
        m[k], _, _, _ = _four_dots(row, row, row, row, w)


@njit(cache=_CACHE, fastmath=_FAST)
def _feature_add_rows(G, v, start, out):
    Z = G.rows
    whole = v.size - v.size % 4  # by entries: views of the rows would be counted as references
    for k in range(0, whole, 4):
        i = start + k
        a = v[k]
        b = v[k + 1]
        c = v[k + 2]
        d = v[k + 3]
        if a != 0.0 or b != 0.0 or c != 0.0 or d != 0.0:
            for j in range(out.size):
                out[j] += Z[i, j] * a + Z[i + 1, j] * b + Z[i + 2, j] * c + Z[i + 3, j] * d
    for k in range(whole, v.size):
        if v[k] != 0.0:
            for j in range(out.size):
                out[j] += Z[start + k, j] * v[k]


@njit(cache=_CACHE, parallel=True)
def _dots_in_parts(G, w, m):
    for part in prange(_PARTS):
        start, stop = _part(m.size, np.int64(part), _PARTS)
        _set_dots(G, w, m[start:stop], start)


@njit(cache=_CACHE)
def _row_margins(G, w, m):
    if G[0].size < _SERIAL or not G.threads:
        _set_dots(G, w, m, 0)
    else:
        _dots_in_parts(G, w, m)


def _add_parts(G, v, parts):
    """Add to each part the sum of v_i z_i over its rows."""
    for part in prange(len(parts)):
        start, stop = _part(v.size, np.int64(part), len(parts))
        _add_rows(G, v[start:stop], start, parts[part])


_add_parts_in_parallel, _add_parts_alone = _for_threads(_add_parts)


@njit(cache=_CACHE)
def _row_lift(G, v, w):
    parts = np.zeros((1 if G[0].size < _SERIAL else _PARTS, w.size))
    if G.threads and len(parts) > 1:
        _add_parts_in_parallel(G, v, parts)
    else:
        _add_parts_alone(G, v, parts)
    w[:] = 0.0
    for part in range(len(parts)):
        _combine(1.0, w, 1.0, parts[part])


@njit(cache=_CACHE)
def _fused_part(G, w, m, q, few, part, parts, levels):
    """In one reading of a part of the rows: m_k <- <z_k, w>, q_k <- exp(level - m_k), parts <- sum_k q_k z_k.

    A few rows at a time, which the caches keep.  The level, which is left last in ``levels``, is at most 30 above the
    least of these m_k: when they fall below that, what is summed is rescaled.
    """
    begin, end = _part(m.size, part, len(parts))
    level = np.inf
    out = parts[part]
    before = levels[part]
    for start in range(begin, end, few):
        some = m[start : min(start + few, end)]
        weights = q[start : min(start + few, end)]
        _set_dots(G, w, some, start)
        low = _least(some)
        if low < level - 30.0:
            if level < np.inf:
                _scale(math.exp(low - level), out)
            level = low
        before[(start - begin) // few] = level
        for k in range(some.size):
            weights[k] = math.exp(level - some[k])
        _add_rows(G, weights, start, out)
    for start in range(begin, end, few):
        if before[(start - begin) // few] != level:
            _scale(
                math.exp(level - before[(start - begin) // few]), q[start : min(start + few, end)]
            )
    before[-1] = level


@njit(cache=_CACHE, parallel=True)
def _fused_in_parts(G, w, m, q, few, parts, levels):
    for part in prange(_PARTS):
        _fused_part(G, w, m, q, few, np.int64(part), parts, levels)


@njit(cache=_CACHE)
def _row_softmax_pass(G, w, m, q, u):
    n = m.size
    count = 1 if G[0].size < _SERIAL else _PARTS
    few = max(4, _CACHED * n // max(G[0].size, 1) // 4 * 4)
    # Threads that allocate memory may wait for the interpreter, and it for them.
    parts = np.zeros((count, u.size))
    levels = np.empty((count, (n // count + 4) // few + 2))
    if count > 1 and G.threads:
        _fused_in_parts(G, w, m, q, few, parts, levels)
    else:
        for part in range(count):
            _fused_part(G, w, m, q, few, part, parts, levels)
    level = _least(levels[:, -1].copy())
    u[:] = 0.0
    for part in range(count):
        start, stop = _part(n, part, count)
        factor = math.exp(level - levels[part, -1])
        _scale(factor, q[start:stop])
        _combine(1.0, u, factor, parts[part])
    total = _total(q)
    _scale(1.0 / total, q)
    _scale(1.0 / total, u)
    return math.log(total) - level


@njit(cache=_CACHE)
def _row_square(G, v, w, m):
    return _dot(w, w)


@njit(cache=_CACHE)
def _feature_add_column(G, i, c, m):
    column = np.empty(m.size)
    _row_margins(G, G.rows[i], column)
    _combine(1.0, m, c, column)


@njit(cache=_CACHE)
def _precise_lift(G, v, dimension):
    """Return Z' v in two parts, (2, d)."""
    parts = np.zeros((2, dimension))
    w, rest = parts
    for i in range(v.size):
        if v[i] != 0.0:
            values, columns = _row(G, i)
            for k in range(values.size):
                j = columns[k]
                w[j], rest[j] = _add_exactly(w[j], rest[j], values[k], v[i])
    return parts


@njit(cache=_CACHE)
def _precise_dots(G, w, rest, m):
    """m <- Z (w + rest), each sum rounded once; ``rest`` is what rounding left of w."""
    for i in range(m.size):
        values, columns = _row(G, i)
        high = 0.0
        low = 0.0
        small = 0.0
        for k in range(values.size):
            high, low = _add_exactly(high, low, values[k], w[columns[k]])
            small += values[k] * rest[columns[k]]
        m[i] = high + (low + small)


@njit(cache=_CACHE)
def _precise_margins(G, v, m, dimension):
    """m <- Z Z' v, with Z' v kept in two parts and each sum rounded once; returns v' Z Z' v."""
    w, rest = _precise_lift(G, v, dimension)
    _precise_dots(G, w, rest, m)
    high, low = _precise_dot(w, w)
    return high + (low + 2.0 * _dot(w, rest) + _dot(rest, rest))


_BY_ROWS = {
    **_DEFAULTS,
    "lift": _row_lift,
    "margins": _row_margins,
    "softmax_pass": _row_softmax_pass,
    "square": _row_square,
}
FeatureGram.routines = {
    **_BY_ROWS,
    "add_column": _feature_add_column,
    "_set_dots": _feature_set_dots,
    "_add_rows": _feature_add_rows,
    "_row": _feature_row,
}


# ------------------------------------------------------------------------------------------------------
# 5.5 sparse
# ------------------------------------------------------------------------------------------------------


class SparseGram(
    _RowGram, namedtuple("SparseGram", "values columns starts dimension threads", defaults=(True,))
):
    """G = Z Z' by the non-zeros of the rows z_i = y_i x_i / scale, made by `features` of a sparse X.

    Attributes
    ----------
    values, columns : arrays, entries of Z, row by row, and their columns, in ascending order within a row
    starts : array, shape (n + 1,), row i holds the entries from starts[i] to starts[i + 1] - 1
    dimension : int, d
    threads : bool, as in `DenseGram`

    Examples
    --------
    >>> fm.SparseGram(np.array([1.0, 2.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3]), 2).dense()
    array([[5., 2.],
           [2., 1.]])
    """

    def checked(self) -> Representation:
        values = _real_array(self.values, "G.values", 1) if np.size(self.values) else np.zeros(0)
        columns = np.asarray(self.columns)
        starts = np.ascontiguousarray(self.starts, dtype=np.int64)
        if columns.dtype.kind not in "iu" or columns.shape != values.shape:
            raise ValueError("G.columns must be integers, one for each of G.values")
        if (
            starts.ndim != 1
            or starts.size < 2
            or starts[0] != 0
            or starts[-1] != values.size
            or (np.diff(starts) < 0).any()
        ):
            raise ValueError("G.starts must go up from 0 to the number of G.values")
        if columns.size and not 0 <= columns.min() <= columns.max() < self.dimension:
            raise ValueError(f"G.columns must be from 0 to {self.dimension - 1}")
        ascending = columns[1:] > columns[:-1]
        ascending[starts[(starts > 0) & (starts < columns.size)] - 1] = True
        if not ascending.all():
            raise ValueError("G.columns must ascend within every row")
        index = np.uint32 if self.dimension <= 2**32 else np.uint64
        columns = np.ascontiguousarray(columns, dtype=index)
        values = np.ascontiguousarray(values, dtype=np.float64)
        return self._replace(
            values=values, columns=columns, starts=starts, dimension=int(self.dimension)
        )

    def shape(self) -> tuple[int, int]:
        return self.starts.size - 1, self.dimension

    def diagonal(self) -> Array:
        squares = np.add.reduceat(np.append(self.values**2, 0.0), self.starts[:-1])
        squares[np.diff(self.starts) == 0] = 0.0  # where reduceat takes what follows
        return squares

    def rounding(self) -> Rounding:
        """A margin is a sum over the non-zeros of a row, ||w||^2 one over all columns that there are."""
        n = self.starts.size - 1
        rows, columns = (
            Rounding.of_rows(n, size) for size in (int(np.diff(self.starts).max()), self.dimension)
        )
        return rows._replace(length=columns.length)

    def restrict(self, index: Array) -> Representation:
        index = np.arange(self.starts.size - 1)[index]
        lengths = np.diff(self.starts)[index]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        entries = np.arange(starts[-1]) + np.repeat(self.starts[index] - starts[:-1], lengths)
        return self._replace(
            values=self.values[entries], columns=self.columns[entries], starts=starts
        )

    def block(self, rows: Array, columns: Array) -> Array:
        out = np.empty((len(rows), len(columns)))
        others = self.restrict(columns)
        for some in _slices(len(rows), self.dimension):
            part = self.restrict(rows[some])
            with_zeros = np.zeros(part.shape())
            with_zeros[
                np.repeat(np.arange(len(with_zeros)), np.diff(part.starts)), part.columns
            ] = part.values
            table_margins(others, with_zeros, out[some])
        return out


@njit(cache=_CACHE)
def _sparse_row(G, i):
    start = G.starts[i]
    stop = G.starts[i + 1]
    return G.values[start:stop], G.columns[start:stop]


@njit(cache=_CACHE, fastmath=_FAST)
def _sparse_set_dots(G, w, m, start):
    for i in range(m.size):
        values, columns = _sparse_row(G, start + i)
        total = 0.0
        for k in range(values.size):
            total += values[k] * w[columns[k]]
        m[i] = total


@njit(cache=_CACHE, fastmath=_FAST)
def _sparse_add_rows(G, v, start, out):
    for i in range(v.size):
        weight = v[i]
        if weight != 0.0:
            values, columns = _sparse_row(G, start + i)
            for k in range(values.size):
                out[columns[k]] += weight * values[k]


@njit(cache=_CACHE)
def _sparse_add_column(G, i, c, m):
    row = np.zeros(G.dimension)
    column = np.empty(m.size)
    _sparse_add_rows(G, np.ones(1), i, row)
    _row_margins(G, row, column)
    _combine(1.0, m, c, column)


SparseGram.routines = {
    **_BY_ROWS,
    "add_column": _sparse_add_column,
    "_set_dots": _sparse_set_dots,
    "_add_rows": _sparse_add_rows,
    "_row": _sparse_row,
}


# ------------------------------------------------------------------------------------------------------
# 5.6 mapped
# ------------------------------------------------------------------------------------------------------


class MappedGram(Representation, namedtuple("MappedGram", "rows c entries intercept origin")):
    """G = Z Z' for rows z_i = c_i (x_i - o, b), c_i (x_i - o) if b = 0, of x_i that stay in a file, made by `features`.

    Attributes
    ----------
    rows : array, shape (n, d), the x_i
    c, entries : arrays, shape (n,), signs times normalisers and G_ii
    intercept : float, b
    origin : array, shape (d,), o

    Examples
    --------
    >>> import tempfile
    >>> X = np.memmap(tempfile.TemporaryFile(), np.float32, shape=(2, 2))
    >>> X[:] = [[1.0, 2.0], [0.0, 1.0]]
    >>> fm.features(X, [1, -1], normalize=None).dense()
    array([[ 5., -2.],
           [-2.,  1.]])
    """

    access = "computed"

    def shape(self) -> tuple[int, int]:
        n, d = self.rows.shape
        return n, d + (self.intercept != 0.0)

    def diagonal(self) -> Array:
        return self.entries

    def rounding(self) -> Rounding:
        return Rounding.of_rows(*self.shape())

    def _parts(self):
        """Yield (slice, rows x_i - o) of all points, at once where o = 0, else as many as are computed at a time."""
        if self.origin.any():
            for part in _slices(*self.rows.shape):
                yield part, FeatureGram(self.rows[part] - self.origin)
        else:
            yield slice(None), FeatureGram(self.rows)

    def lift(self, v: Array, w: Array) -> None:
        d = self.rows.shape[1]
        weights = self.c * v
        w[:] = 0.0
        sums = np.empty(d)
        for part, rows in self._parts():
            lift(rows, weights[part], sums)
            w[:d] += sums
        w[d:] = self.intercept * weights.sum()

    def margins(self, w: Array, m: Array) -> None:
        d = self.rows.shape[1]
        for part, rows in self._parts():
            margins(rows, w[:d], m[part])
        m += self.intercept * w[d:].sum()
        m *= self.c

    def square(self, v: Array, w: Array, m: Array) -> float:
        return _dot(w, w)

    def restrict(self, index: Array) -> Representation:
        rows = self.rows[index] - self.origin
        rows = (
            np.column_stack((rows, np.full(len(rows), self.intercept))) if self.intercept else rows
        )
        return FeatureGram(rows * self.c[index][:, None])

    def block(self, rows: Array, columns: Array) -> Array:
        return self.restrict(rows).rows @ self.restrict(columns).rows.T


@_with_underflow
def features(
    X: Any,
    y: ArrayLike | None = None,
    *,
    normalize: str | None = "unit",
    intercept: float | str = 0.0,
    ridge: ArrayLike = 0.0,
) -> Representation:
    """G = Z Z' + diag(r) for the linear kernel, by its rows z_i = y_i x_i / scale; G itself is never formed.

    Parameters
    ----------
    X : array or SciPy sparse matrix or array, shape (n, d)
        The points.  Memory-mapped ones (`numpy.memmap`, ``numpy.load(..., mmap_mode="r")``) of type float32 or float64
        in C order are not copied but read from the file in every product, and must not change.
    y : array, shape (n,), optional
        Their labels, -1 or +1; without them z_i = x_i / scale, as for `pair_gram`.
    normalize : {"unit", "max", None}
        "unit" divides x_i by ||x_i||, "max" by max_i ||x_i||, None by 1.  Of points as they are, margins need None.
        With None and a free intercept rows are taken from a point near them, where they are far from 0, exactly.
    intercept : float or "free"
        Not 0: all points get it as one more feature, the last, before they are normalised.  "free": as in `gram`.
    ridge : float or array, shape (n,)
        As in `gram`.

    Returns
    -------
    G : FeatureGram, SparseGram or MappedGram; FreeGram over it with a free intercept, RidgeGram unless r = 0
        A product reads Z, or its non-zeros, twice (once inside `softmax_pass`), a column once.

    Raises
    ------
    ValueError
        Values are not finite, labels are not -1 or +1, lengths differ, or a row is zero under "unit".

    Examples
    --------
    >>> fm.features([[3.0, 4.0], [0.0, -2.0]], [1, -1]).rows
    array([[ 0.6,  0.8],
           [-0. ,  1. ]])
    """
    params = {"intercept": intercept}
    constant = 0.0 if _is_free(params) else _number(intercept, "intercept", closed=True)
    X = _rows(X)
    y = _labels(y, X.shape[0])
    origin = _origin(X) if _is_free(params) and normalize is None else np.zeros(X.shape[1])
    if _is_sparse(X):
        if origin.any():
            X.data = X.data - origin[X.indices]
        G = SparseGram(
            X.data.astype(np.float64), X.indices, X.indptr.astype(np.int64), int(X.shape[1])
        )
        if constant:
            ends = G.starts[1:]
            G = SparseGram(
                np.insert(G.values, ends, constant),
                np.insert(G.columns, ends, G.dimension),
                G.starts + np.arange(G.starts.size),
                G.dimension + 1,
            )
        with np.errstate(over="ignore"):
            scale = y * _normalizers(G.diagonal(), normalize)
        G = G._replace(values=G.values * np.repeat(scale, np.diff(G.starts)))
    elif _is_mapped(X):
        moved = (block - origin for _, block in _blocks(X))
        squares = (
            np.concatenate([np.einsum("ij,ij->i", block, block) for block in moved])
            + constant * constant
        )
        normalizer = _normalizers(squares, normalize)
        G = MappedGram(np.asarray(X), y * normalizer, squares * normalizer**2, constant, origin)
    else:
        if constant:
            X = np.column_stack((X, np.full(len(X), constant)))
        elif origin.any():
            X = X - origin
        G = FeatureGram(X * (y * _normalizers(np.einsum("ij,ij->i", X, X), normalize))[:, None])
    return _with_ridge(_with_offset(G, y, params, origin), ridge)


# ------------------------------------------------------------------------------------------------------
# 5.7 lazy
# ------------------------------------------------------------------------------------------------------

_KEPT = 1 << 25  # entries of columns that `max_margin` keeps: 0.25 GB
_EVALUATED = 1024  # rows and columns of G that a product evaluates at a time


class LazyGram(Representation, namedtuple("LazyGram", "kernel points c entries")):
    """G_ij = c_i c_j K(x_i, x_j), evaluated on demand, made by `lazy_gram`.

    Attributes
    ----------
    kernel : tuple, K with its parameters
    points : tuple of arrays, the x_i, centred where K depends on distances alone, and what K needs of each
    c, entries : arrays, shape (n,), signs times normalisers and G_ii

    Examples
    --------
    >>> fm.lazy_gram([[1.0, 2.0], [0.0, 1.0]], [1, -1], kernel="linear", normalize=None).dense()
    array([[ 5., -2.],
           [-2.,  1.]])
    """

    access = "computed"

    def shape(self) -> tuple[int, int]:
        return self.c.size, self.c.size

    def diagonal(self) -> Array:
        return self.entries

    def rounding(self) -> Rounding:
        """An inner product of d terms errs by gamma_d ||x|| ||x'||, what follows by a few units in the last place.

        Where distances come from differences, gamma ||x - x'||^2 has a relative error of gamma_d, of which exp makes
        less.

        The arc cosine makes at most pi sqrt(e / 2) of an error e, the limit kernel 0.75 ||x|| ||x'|| times that.
        """
        kernel = self.kernel
        error = _gamma(kernel.dimension + len(kernel.W) + 16)
        if kernel.name == "poly":
            error = kernel.degree * error + _gamma(2 * kernel.degree + 8)
        elif kernel.name == "rbf" and not kernel.is_far:
            error = _distance_error(
                kernel.gamma, kernel.dimension, self.points.squares.max()
            ) + _gamma(16)
        elif kernel.name == "ntk limit":
            error = 2.0 * math.sqrt(5.0 * error)
        return Rounding.of_entries(self.c.size, 1.01 * error)

    def lift(self, v: Array, w: Array) -> None:
        w[:] = v

    def margins(self, w: Array, m: Array) -> None:
        self.table_margins(w[None], m[None])

    def add_column(self, i: int, c: float, m: Array) -> None:
        column = self.kernel.block(self.points, self.points.take(slice(i, i + 1)), _column_product)[
            :, 0
        ]
        _combine(1.0, m, c * self.c[i], column * self.c)

    def table_margins(self, W: Array, M: Array) -> None:
        """Go by the gates of "ntk", the columns with a weight, or the lower triangle, whichever is least work."""
        n = self.c.size
        d = self.kernel.dimension
        width = len(self.kernel.W)
        scaled = W * self.c
        support = np.count_nonzero(W.any(axis=0))
        entries = n * min(support, 0.5 * n)
        M[:] = 0.0
        if self.kernel.name == "ntk" and 2 * len(W) * n * width * d < entries * (d + 2 * width):
            self._add_through_gates(scaled, M)
        elif 2 * support <= n:
            M[:] = self.kernel.sums(scaled, self.points, self.points)
        else:
            tiles = [slice(start, start + _EVALUATED) for start in range(0, n, _EVALUATED)]
            for k, rows in enumerate(tiles):
                for columns in tiles[: k + 1]:
                    block = self.kernel.block(self.points.take(rows), self.points.take(columns))
                    M[:, columns] += scaled[:, rows] @ block
                    if columns is not rows:
                        M[:, rows] += scaled[:, columns] @ block.T
        M *= self.c

    def _add_through_gates(self, W, M):
        """M <- M + W K: K is the inner product of the hidden layers and, for every gate, that of the points where it is
        open for both, over the width."""
        points = self.points
        width = len(self.kernel.W)
        for w, m in zip(W, M, strict=True):
            sums = np.zeros((width, points.rows.shape[1]))
            of_hidden = np.zeros(width)
            for rows in _slices(w.size, width):
                sums += (points.gates[rows] * w[rows, None]).T @ points.rows[rows]
                of_hidden += w[rows] @ points.hidden[rows]
            for rows in _slices(w.size, width):
                through = points.gates[rows] @ sums
                m[rows] += (
                    np.einsum("ij,ij->i", through, points.rows[rows]) / width
                    + points.hidden[rows] @ of_hidden
                )
            m += self.kernel.offset * w.sum()

    def restrict(self, index: Array) -> Representation:
        return LazyGram(self.kernel, self.points.take(index), self.c[index], self.entries[index])

    def dense(self) -> Array:
        return _signed_gram(
            self.kernel, self.points, self.entries, self.c, self.entries, np.float64
        )

    def block(self, rows: Array, columns: Array) -> Array:
        block = self.kernel.block(self.points.take(rows), self.points.take(columns))
        return block * self.c[columns] * self.c[rows, None]

    def adder(self) -> Callable | None:
        """Keep columns of K while there is room for them."""
        n = self.c.size
        kept = np.empty((min(n, _KEPT // n), n))
        places = np.full(n, -1)
        count = 0

        def add(index, weights, m):
            nonlocal count
            if 2 * np.count_nonzero(places[index] < 0) > n:  # a product evaluates half of G
                return _add_by_product(self, index, weights, m)
            new = index[places[index] < 0][: len(kept) - count]
            for some in _slices(new.size, n):
                kept[count + some.start : count + some.stop] = self.kernel.block(
                    self.points.take(new[some]), self.points
                )
            places[new] = np.arange(count, count + new.size)
            count += new.size
            known = places[index] >= 0
            total = np.zeros(n)
            _enter_by_size(
                index.size * n,
                _combine_rows,
                kept,
                places[index[known]],
                weights[known] * self.c[index[known]],
                total,
            )
            m += self.c * total
            if not known.all():
                _add_by_product(self, index[~known], weights[~known], m)

        return add


def _column_product(A, b):
    """Return A b' for a single row b, in float64, without a copy of a dense A."""
    if _is_sparse(A):
        return _product(A, b)
    out = np.empty((len(A), 1))
    margins(FeatureGram(A), b[0].astype(np.float64), out[:, 0])
    return out


@_with_underflow
def lazy_gram(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    kernel: str = "rbf",
    normalize: str | None = "unit",
    dtype: DTypeLike = None,
    ridge: ArrayLike = 0.0,
    **params: Any,
) -> Representation:
    """G_ij = y_i y_j K(x_i, x_j) / normalisation, as `gram`, of which nothing is kept: entries are evaluated on demand.

    Parameters
    ----------
    X : array, shape (n, d)
        The points; memory-mapped ones stay in their file, as with `features`.
    y : array, shape (n,), optional
        Labels, -1 or +1; None gives the unsigned matrix.
    kernel : str
        "linear", "poly", "rbf", "laplacian" or "ntk", as in `gram`.
    normalize : {"unit", "max", None}
        As in `gram`.
    dtype : {float64, float32}, optional
        Of the stored points: by default the file's, or float64; a file of another is copied.  Sums are in float64.
    ridge : float or array, shape (n,)
        As in `gram`.
    **params
        The kernel's parameters, as in `gram`.

    Returns
    -------
    G : LazyGram; FreeGram over it with a free intercept, RidgeGram unless r = 0
        Memory: the points, and for "ntk" the hidden layer and its gates; during a product a few blocks of 8 MB, during
        `max_margin` 0.25 GB of columns.  A product evaluates the kernel n^2 / 2 times, or n times for each non-zero
        weight, or for "ntk" goes through the network's gates, in O(n d m), whichever is least.

    Raises
    ------
    ValueError, TypeError
        As `gram`; and for a kernel that is a matrix or a function, which `gram` takes.

    Notes
    -----
    G is that of the points as they are stored; certificates allow for the rounding of every evaluation.

    Examples
    --------
    >>> X, y = [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], [1, 1, -1]
    >>> fm.momentum(fm.lazy_gram(X, y), tol=1e-3).status
    'certified'
    """
    if callable(kernel) or kernel == "precomputed":
        raise ValueError(
            f"lazy_gram takes kernels by name; got {kernel!r}, which gram(X, y, kernel=...) takes"
        )
    dtype = (
        None if dtype is None else _choice(np.dtype(dtype).name, "dtype", ("float64", "float32"))
    )
    mapped = _is_mapped(X, dtype)
    X = X if mapped else _points(X, "X", kernel)
    dtype = X.dtype if dtype is None else dtype
    sign = _labels(y, X.shape[0])
    kernel = _kernel(kernel, X, params, is_moved=_is_free(params) and normalize is None)
    prepared = (kernel.prepare(block, dtype) for _, block in _blocks(X))
    parts = [part._replace(rows=part.rows[:0]) if mapped else part for part in prepared]
    points = (
        parts[0] if len(parts) == 1 else _Prepared(*map(np.concatenate, zip(*parts, strict=True)))
    )
    large = np.flatnonzero(~np.isfinite(points.squares))
    if large.size:
        raise ValueError(f"row {large[0]} of X is too large for {dtype}; rescale the points")
    points = points._replace(rows=np.asarray(X)) if mapped else _without_zeros(points)
    diagonal = kernel.diagonal(points)
    normalizer = _normalizers(diagonal, normalize)
    G = LazyGram(kernel, points, sign * normalizer, diagonal * normalizer**2)
    return _with_ridge(_with_offset(G, sign, params, kernel.center), ridge)


# ------------------------------------------------------------------------------------------------------
# 5.8 pairs
# ------------------------------------------------------------------------------------------------------


class PairGram(Representation):
    """The multiclass reduction, made by `pair_gram`: a point of G is a pair (x_i, j) of a point and a wrong class.

    The pair stands for the row x_i (x) (e_{y_i} - e_j) / sqrt(2); such rows are never written down.  Coordinates are
    a table of those that K has for each class, (n_classes, n) where K is a matrix, row by row, times sqrt(2).

    Attributes
    ----------
    K : representation of the unsigned kernel matrix of the points
    point, right, wrong : arrays, shape (pairs,), i, y_i and j
    n_points, n_classes : int

    Examples
    --------
    >>> fm.pair_gram(np.eye(2), [0, 1], 3).shape()
    (4, 6)
    """

    def __init__(
        self, K: Representation, point: Array, right: Array, wrong: Array, n_classes: int
    ) -> None:
        self.K = K
        self.point = point
        self.right = right
        self.wrong = wrong
        self.n_points = K.shape()[0]
        self.n_classes = n_classes
        self.access = "products" if K.access == "products" else "computed"

    def points_gram(self) -> Representation:
        return self.K

    def shape(self) -> tuple[int, int]:
        return self.point.size, self.n_classes * self.K.shape()[1]

    def diagonal(self) -> Array:
        return self.K.diagonal()[self.point]

    def rounding(self) -> Rounding:
        """T adds n_classes - 1 weights up, v'm has a term for every pair."""
        margins = 1.01 * (self.K.rounding().margins + _gamma(self.n_classes + 8))
        return Rounding(margins, margins + 1.01 * _gamma(self.point.size + 8), 0.0)

    def lift(self, v: Array, w: Array) -> None:
        for weights, part in zip(
            self._class_weights(v)[0], w.reshape(self.n_classes, -1), strict=True
        ):
            lift(self.K, weights, part)

    def margins(self, w: Array, m: Array) -> None:
        scores = np.empty((self.n_classes, self.n_points))
        table_margins(self.K, w.reshape(self.n_classes, -1), scores)
        _score_differences(self.point, self.right, self.wrong, scores, m)

    def add_column(self, i: int, c: float, m: Array) -> None:
        column = np.zeros((1, self.n_points))
        i = slice(i, i + 1)
        add_column(self.K, self.point[i][0], c, column[0])
        _add_pair_block(
            column,
            np.zeros(1, np.int32),
            self.right[i],
            self.wrong[i],
            self.point,
            self.right,
            self.wrong,
            m[None],
        )

    def restrict(self, index: Array) -> Representation:
        points, place = np.unique(self.point[index], return_inverse=True)
        K = self.K.restrict(points)
        place = place.astype(np.int32)
        return PairGram(K, place, self.right[index], self.wrong[index], self.n_classes)

    def block(self, rows: Array, columns: Array) -> Array:
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

    def _class_weights(self, v):
        """Return T of `pair_gram` in two parts, (2, n_classes, n): the sums, and what rounding takes from them."""
        parts = np.zeros((2, self.n_classes, self.n_points))
        _add_pair_weights(self.point, self.right, self.wrong, v, *parts)
        return parts

    def precise(self, v: Array) -> tuple[float, Array, Rounding] | None:
        """Do as K does, with the sums of weights in two parts, the second of which is all but 0.

        A margin, half the difference of two rounded scores, errs by up to 2 u max_ci |f_c(x_i)| more.
        """
        (T, rest) = self._class_weights(v)
        squares = []
        scores = np.empty_like(T)
        for c in range(self.n_classes):
            products = self.K.precise(T[c])
            if products is None:
                return None
            size, scores[c], rounding = products
            squares.append(size)
            if rest[c].any():
                m = _image(self.K, rest[c])
                squares.append(2.0 * float(T[c] @ m))
                scores[c] += m
        m = np.empty(v.size)
        _score_differences(self.point, self.right, self.wrong, scores, m)
        blur = _gamma(2 * v.size + 16) ** 2
        lost = float(_LAST * np.abs(scores).max() / self.diagonal().max())
        return (
            0.5 * math.fsum(squares),
            m,
            Rounding(
                rounding.margins + blur + lost,
                rounding.square + 2.0 * blur,
                rounding.length * math.sqrt(2.0),
            ),
        )


def pair_gram(
    K: GramLike, labels: ArrayLike, n_classes: int, *, ridge: ArrayLike = 0.0
) -> Representation:
    """Multiclass problems as binary ones: G = Z Z' + diag(r) for the rows z_(i,j) = x_i (x) (e_{y_i} - e_j) / sqrt(2),
    one for each point and each class j other than its own.

    Parameters
    ----------
    K : array, shape (n, n), or representation
        Unsigned kernel matrix of the points: ``gram(X)``, ``lazy_gram(X)`` or ``features(X)``.
    labels : array, shape (n,)
        Integers from 0 to n_classes - 1.
    n_classes : int
        At least 2.
    ridge : float or array, shape (n (n_classes - 1),)
        As in `gram`: a slack for every pair.

    Returns
    -------
    G : PairGram; RidgeGram over it unless r = 0
        Of n (n_classes - 1) pairs, point by point, wrong classes in order.  A product is one with K for all classes.

    Raises
    ------
    ValueError
        K is refused, or labels are not such integers, one for each point.

    Notes
    -----
    Weights alpha of the pairs make a table of class weights, T_ci = sum_j alpha_(i,j) ([c = y_i] - [c = j]), with the
    scores f_c = sum_i T_ci K(x_i, .) of the classes, which `decision_function` gives, and (G alpha)_(i,j) is half of
    f_{y_i}(x_i) - f_j(x_i).  Theorem 5.1: the margin of G is 1/sqrt(2) times the multiclass margin,

        rho = max_T min_{i, j != y_i} (f_{y_i}(x_i) - f_j(x_i)) / (sqrt(2) ||f||),    ||f||^2 = sum_c ||f_c||^2,

    ||z_(i,j)|| = ||x_i||, and what is guaranteed of `momentum` holds with n (n_classes - 1) for n.  With two classes G
    is the signed Gram matrix of the binary problem.

    References
    ----------
    ji21, section 5.2.

    Examples
    --------
    >>> X, labels = [[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [0, 1, 2]
    >>> K = fm.lazy_gram(X, kernel="linear")
    >>> alpha = fm.max_margin(fm.pair_gram(K, labels, 3)).alpha
    >>> fm.decision_function(alpha, X, labels, X, kernel="linear", n_classes=3).argmax(axis=1)
    array([0, 1, 2])
    """
    K, _ = _representation(K)
    n_classes = _count(n_classes, "n_classes", 2)
    labels = _labels(labels, K.shape()[0], "labels", range(n_classes)).astype(np.int64)
    pairs = (part.astype(np.int32) for part in _pairs(labels, n_classes))
    return _with_ridge(PairGram(K, *pairs, n_classes), ridge)


@njit(cache=_CACHE)
def _add_pair_weights(point, right, wrong, v, T, rest):
    """T + rest <- T + rest + the class weights of pairs with weights v."""
    for k in range(v.size):
        i = point[k]
        c = right[k]
        j = wrong[k]
        T[c, i], rest[c, i] = _add_exactly(T[c, i], rest[c, i], 1.0, v[k])
        T[j, i], rest[j, i] = _add_exactly(T[j, i], rest[j, i], -1.0, v[k])


@njit(cache=_CACHE)
def _score_differences(point, right, wrong, scores, m):
    """m_k <- (f_right - f_wrong) / 2 at the point of every pair."""
    for k in range(m.size):
        m[k] = 0.5 * (scores[right[k], point[k]] - scores[wrong[k], point[k]])


@njit(cache=_CACHE)
def _add_pair_block(K, point, right, wrong, other, other_right, other_wrong, out):
    """out <- out + the entries of pairs, whose points are given by their places in K."""
    for i in range(point.size):
        row = K[point[i]]
        for k in range(other.size):
            same = int(right[i] == other_right[k]) + int(wrong[i] == other_wrong[k])
            crossed = int(right[i] == other_wrong[k]) + int(wrong[i] == other_right[k])
            out[i, k] += (
                0.5 * (same - crossed) * row[other[k]]
            )  # <e_y - e_j, e_y' - e_j'> / 2 of the classes


# ======================================================================================================
# 6 certificate
# ======================================================================================================


def _squares_and_margins(G, scale, *points):
    """Return [(v' G v, G v), ...] at points with ||v||_1 <= 1."""
    n, dimension = G.shape()
    W = np.empty((len(points), dimension))
    M = np.empty((len(points), n))
    for v, w in zip(points, W, strict=True):
        lift(G, v, w)
    table_margins(G, W, M)
    blur = G.rounding().square * scale
    return [
        (_nonnegative(square(G, v, w, m), blur), m) for v, w, m in zip(points, W, M, strict=True)
    ]


def _nonnegative(size, blur):
    """Return v'Gv, or 0 where it is negative by rounding; refuse a G for which it is by more."""
    if size < -blur:
        raise ValueError(
            f"G is not positive semi-definite: v'Gv = {size:g} at a v with ||v||_1 <= 1"
        )
    return max(size, 0.0)


def _unit_range(v):
    """Return v times the power of two, exact but for underflow, that brings ||v||_1 into [1/2, 1]."""
    v = np.ldexp(
        v, -math.frexp(float(np.abs(v).max()))[1]
    )  # first the largest entry: the sum might overflow
    return np.ldexp(v, -math.frexp(float(np.abs(v).sum()))[1])


class _Seen(namedtuple("_Seen", "least size total rounding")):
    """Products at some v, as computed: min_i (G v)_i, ||v||_G^2, ||v||_1 and the `Rounding` of the first two."""

    def lengths(self, scale):
        """Return ||v||_G as computed, the least and the most that it can be."""
        blur = self.rounding.square * scale * self.total * self.total
        root = self.rounding.length * math.sqrt(scale) * self.total
        size = max(self.size, 0.0)
        return (
            math.sqrt(size),
            (1.0 - _LAST) * math.sqrt(max(size * (1.0 - _LAST) - blur, 0.0)) - root,
            (1.0 + _LAST) * math.sqrt(size + blur) + root,
        )


def _bracket(scale, alpha, p, total, terms, unit):
    """Return lower, upper, and what rounding adds to upper - lower, by alpha and p / total, a sum of so many terms."""
    length, _, longest = p.lengths(scale)
    gap = length / total
    upper = longest / total * (1.0 + _LAST + _gamma(terms))
    length, shortest, longest = alpha.lengths(scale)
    least = alpha.least - _LAST * abs(alpha.least) - alpha.rounding.margins * scale * alpha.total
    extreme = longest if least > 0.0 else shortest
    lower = -math.sqrt(scale) * (1.0 + unit + _LAST)  # by Cauchy-Schwarz, for every alpha
    lower = max(lower, least / extreme) if extreme > 0.0 else lower
    lower -= _LAST * abs(lower)
    # So written that margins of NaN, which leave lower as it is, show in what is returned.
    gap -= lower if alpha.least <= 0.0 or length == 0.0 else alpha.least / length
    return lower, upper, upper - lower - max(gap, 0.0)


def _interval(G, scale, alpha, p, precise=False, products=_squares_and_margins):
    """Return lower and upper of `certificate`, for checked input, and how much of upper - lower is due to rounding."""
    points = [_unit_range(v) for v in ((p, alpha) if alpha is not p and alpha.any() else (p,))]
    known = [G.precise(v) for v in points] if precise else [None]
    total = math.fsum(points[0])
    terms = 0
    if known[0] is None:
        known = [(*at, G.rounding()) for at in products(G, scale, *points)]
        total = float(points[0].sum())
        terms = p.size
    if G.signs is not None:
        tilt = abs(
            math.fsum(G.signs * points[0])
        )  # the p of half its weight in each class is so far away, in ||.||_1
        if tilt > 1e-6:
            raise ValueError(
                "p must have half its weight in each class, as that of momentum and max_margin has"
            )
        known = [_with_best_bias(G.signs, scale, tilt, *at) for at in known]
    seen = [
        _Seen(
            float(m.min()),
            _nonnegative(size, rounding.square * scale),
            float(np.abs(v).sum()),
            rounding,
        )
        for v, (size, m, rounding) in zip(points, known, strict=True)
    ]
    of_alpha = seen[-1] if alpha.any() else _Seen(0.0, 0.0, 0.0, G.rounding())
    lower, upper, blur = map(
        float, _bracket(scale, of_alpha, seen[0], total, terms, G.rounding().margins)
    )
    if lower > upper:
        raise ValueError(
            f"G is not positive semi-definite: weak duality fails, {lower:g} <= rho <= {upper:g}"
        )
    return lower, upper, blur


def _with_best_bias(signs, scale, tilt, size, m, rounding):
    """Return (v'Gv, G v + b y, `Rounding`) for the best b, where v is ``tilt`` away from half its weight in each class.

    Bounds of m are up to a few units in the last place of each m_i.  The sum with b y cancels what m_i have in common,
    as for points far from the origin, so that these units must be counted here, and those of the sum.
    """
    lost = 2.0 * _LAST * float(np.abs(m).max()) / scale
    return (
        size,
        m + _offset(signs, m) * signs,
        rounding._replace(margins=rounding.margins + lost, length=rounding.length + 4.0 * tilt),
    )


_TARGET = 6  # entry of a loop's report: the relative gap at which it halts


@njit(cache=_CACHE)
def _closes(report, least, size, total, dual_size, dual_total, reach):
    """Fill a loop's report (see `drive`), without room for rounding; return whether the gap is down to its target."""
    report[0] = least
    report[1] = size
    report[2] = total
    report[3] = dual_size
    report[4] = dual_total
    report[5] = reach
    if not (size > 0.0 and dual_total > 0.0):
        return False
    return math.sqrt(max(dual_size, 0.0)) / dual_total * (
        1.0 - report[_TARGET]
    ) <= least / math.sqrt(size)


@njit(cache=_CACHE)
def _meets(k, until, alpha, m, report):
    """Report on alpha >= 0 and p = alpha / sum alpha by m = G alpha; return whether the gap is down to the target."""
    if k < until and report[_TARGET] == 0.0:  # nobody looks
        return False
    size = _dot(alpha, m)
    total = _total(alpha)
    return _closes(report, _least(m), size, total, size, total, total)


def _has_coordinates(G):
    """Tell whether squares are those of coordinates, so that inner products can be, too."""
    n, dimension = G.shape()
    w = np.arange(1.0, dimension + 1.0)
    return math.isclose(square(G, np.zeros(n), w, np.zeros(n)), w @ w, rel_tol=1e-12)


@_with_underflow
def certificate(
    G: GramLike, alpha: ArrayLike, p: ArrayLike, *, precise: bool = False
) -> tuple[float, float]:
    """The certified interval: lower <= min_i (G alpha)_i / ||alpha||_G  <=  rho  <=  ||p||_G <= upper.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix, as for every algorithm.
    alpha : array, shape (n,)
        Any weights.
    p : array, shape (n,)
        A point of the simplex; it is divided by its sum.
    precise : bool
        Use products in twice the working precision, several times as dear, where the representation has them.

    Returns
    -------
    lower, upper : float
        By two products, independent of any algorithm, and rounded outwards: the inequalities hold in exact arithmetic.

    Raises
    ------
    ValueError
        Shapes or values are bad, or G turns out not to be positive semi-definite.

    Notes
    -----
    With a free intercept p must have half its weight in each class, and lower is that of the best b.

    The rho bounded is that of the stored rows; with a dense G that of every positive semi-definite matrix whose upper
    triangle rounds to the stored one, G among them if it is one: a float32 G stands for all that storing it lost.

    A power of two brings ||v||_1 to at most 1.  With r = ||v||_G as computed and the `Rounding` of a product

        lower = (min_i m_i - margins s) / (sqrt(r^2 + square s) + length sqrt(s))   if the numerator is positive,
                else over the least that ||alpha||_G can be, and never below -sqrt(s), which always holds;
        upper = (sqrt(r^2 + square s) + length sqrt(s)) / (sum p - gamma_n).

    Near the optimum this widens the interval, relative to rho, u = 2^-53 and s that below a RidgeGram, by about

        3 n u s / rho^2                         with a dense G (float32: 6e-8 in place of n u, where that is larger),
        (n + d) u (s / rho^2 + 2 sqrt(s) / rho) with features;
        6 u s / rho^2                           with a dense G and ``precise`` (float32: 2e-7 s / rho^2);
        40 u + up to u s / rho^2                with features and ``precise``, the second by the rounding of alpha.

    With a dense G upper never falls below 2.1e-8 sqrt(s) (float32: 3.4e-4 sqrt(s)): use features for smaller margins.

    References
    ----------
    Weak duality: Lemma 3 of ramdas14; Gordan's alternative: its Theorem 2.

    Examples
    --------
    >>> lower, upper = fm.certificate(np.eye(4), np.ones(4), np.full(4, 0.25))
    >>> lower < 0.5 < upper, upper - lower < 1e-13
    (True, True)
    """
    G, scale = _representation(G)
    n = G.shape()[0]
    return _interval(G, scale, _vector(alpha, "alpha", n), _distribution(p, "p", n), precise)[:2]


@_with_underflow
def separator_margin(G: Representation, w: ArrayLike) -> tuple[float, float]:
    """The margin of a separator that one already has: an interval around min_i <z_i, w> / ||w||, at most rho.

    Parameters
    ----------
    G : FeatureGram, SparseGram or MappedGram of rows z_i; PairGram over one of these
        Made by `features`, or by `pair_gram` of such; with a ridge or without.  Rows are those of G: give
        ``normalize=None`` for points as they are.
    w : array, shape (d,); of pairs (n_classes, d), a row for each class
        Not 0.  With ``intercept=c`` the last of d is b / c, for the bias b.  With a free intercept (d,) is a direction,
        and the margin is that of its best bias; (d + 1,) is w and, last, its own bias b, which has no part in ||w||.

    Returns
    -------
    lower, upper : float
        lower <= min_i (<z_i, w> + y_i b) / ||w|| <= upper, b = 0 unless the intercept is free, for the rows and the w
        that are stored: computed in floating point, rounded outward by a proven bound; and
        lower <= rho.  Of pairs the margin is min (f_{y_i}(x_i) - f_j(x_i)) / (sqrt(2) ||w||), f_c(x) = <w_c, x>.
        With a ridge the scale of w matters: the margin is 1 / sqrt(N + sum_i xi_i^2 / r_i), where xi_i =
        max(0, 1 - <z_i, w> - y_i b) and N = ||w||^2, for pairs ||w||^2 / 2.  N + sum_i xi_i^2 / r_i is twice the
        objective of a soft margin.

    Raises
    ------
    TypeError, ValueError
        G has no coordinates, as a dense one; w is of another shape, not finite, or 0.

    Notes
    -----
    The interval is a few units in the last place of the largest <z_i, w> or bias wide, over ||w||.  It is
    2 (n + d) u sqrt(s) wide, u = 2^-53, for rows in a mapped file and those of other libraries.
    Over the upper end of `max_margin`, lower is a certified share of the maximum margin.  A representation of your own
    says that its coordinates are the z_i by a method ``square(v, w, m)`` that returns <w, w>.

    Examples
    --------
    >>> G = fm.features([[3.0, 0.0], [0.0, -4.0]], [1, -1], normalize=None)
    >>> lower, upper = fm.separator_margin(G, [1.0, 1.0])  # 3 / sqrt(2)
    >>> lower <= 2.1213203435596427 <= upper, round(lower / fm.max_margin(G).upper, 6)  # of 12 / 5
    (True, 0.883883)
    """
    G, _ = _representation(G)
    ridge = G.ridge if isinstance(G, RidgeGram) else None
    G = G.without_ridge()
    several = isinstance(G, PairGram)
    rows = G.points_gram()
    if not _has_coordinates(rows):
        raise TypeError(f"w needs coordinates, {type(rows).__name__} has none: take features(X, y)")
    w = _real_array(w, "w", 1 + several)
    wanted = (G.n_classes, rows.shape()[1]) if several else rows.shape()[1:]
    has_bias = G.signs is not None and w.shape == (wanted[0] + 1,)
    bias = 0.0
    if has_bias:
        bias = float(w[-1])
        w = w[:-1]
    if w.shape != wanted or not w.any():
        or_with_bias = f", or {(wanted[0] + 1,)} with a bias," if G.signs is not None else ""
        raise ValueError(
            f"w must have shape {wanted}{or_with_bias} and not be 0, got shape {w.shape}"
        )
    if ridge is not None and G.signs is not None and not has_bias:
        raise ValueError(
            f"with a ridge and a free intercept w must have shape {(wanted[0] + 1,)}: give the bias, too"
        )
    from_origin = 0.0
    if has_bias and G.origin is not None:
        from_origin = sum(_precise_dot(w.astype(np.float64), G.origin))  # rows are x_i - o
    of_rows = bias + from_origin if has_bias else None
    return _of_separator(G, ridge, w, of_rows, abs(from_origin))


def _of_separator(G, ridge, w, bias, cancelled):
    """Return `separator_margin` for the bias that belongs to the rows; None stands for the best one.

    ``cancelled`` is the size of what was added up to this bias, which its rounding is in proportion to.
    """
    exponent = math.frexp(float(np.abs(w).max()))[1]
    w = np.ldexp(w.astype(np.float64), -exponent)
    goal = math.ldexp(1.0, -exponent)
    length = math.sqrt(
        sum(_precise_dot(w.ravel(), w.ravel())) * (0.5 if isinstance(G, PairGram) else 1.0)
    )
    m, lost, error = _margins_of(G, w)
    if G.signs is not None:
        bias = _offset(G.signs, m) if bias is None else math.ldexp(bias, -exponent)
        lost = max(abs(bias), math.ldexp(cancelled, -exponent))
        m += bias * G.signs
    if ridge is None:
        least = float(m.min()) / length
        blur = _LAST * (abs(least) + lost / length) + error
        return least - blur, least + blur
    blur = _LAST * (np.abs(m) + lost) + error * length
    lower, upper = (
        _with_slacks(length / goal, np.maximum(goal - m + sign * blur, 0.0) / goal, ridge)
        for sign in (1.0, -1.0)
    )
    if upper < _NORMAL:  # where numbers lose digits
        return 0.0, _NORMAL
    return lower * (1.0 - _LAST), upper * (1.0 + _LAST)


def _margins_of(G, w):
    """Return <z_i, w>, the size of what cancelled in it, and a bound of its error over ||w||.

    To this error come a few units in the last place of <z_i, w> and of what cancelled.
    """
    rows = G.without_shift().points_gram()
    m = np.empty(G.shape()[0])
    root = math.sqrt(float(G.diagonal().max()))
    dots = [rows.precise_dots(separator) for separator in np.atleast_2d(w)]
    if dots[0] is None:
        margins(G, w.ravel(), m)
        return m, 0.0, G.rounding().margins * root
    error = 2.0 * _gamma(2 * rows.shape()[1] + 16) ** 2 * root
    if not isinstance(G, PairGram):
        return dots[0], 0.0, error
    scores = np.array(dots)
    _score_differences(G.point, G.right, G.wrong, scores, m)
    return m, float(np.abs(scores).max()), error


def _with_slacks(length, slacks, ridge):
    """Return 1 / sqrt(length^2 + sum_i slack_i^2 / r_i), which may overflow; 0 with a slack where there is no ridge."""
    with np.errstate(over="ignore", divide="ignore"):
        terms = np.divide(slacks, np.sqrt(ridge), out=np.zeros_like(slacks), where=slacks > 0.0)
    largest = max(float(terms.max()), length)
    if largest == math.inf:
        return 0.0
    return 1.0 / (largest * math.sqrt((length / largest) ** 2 + math.fsum((terms / largest) ** 2)))


def contradiction(X: Any, y: ArrayLike) -> tuple[int, int] | None:
    """Two equal points with different labels, which no kernel separates: rho <= 0, whatever rounding does.

    It is the one proof that there is no margin at all.  "infeasible" says that there is none above some eps.

    Parameters
    ----------
    X : array or SciPy sparse matrix or array, shape (n, d)
    y : array, shape (n,)
        Labels of any type.

    Returns
    -------
    pair : (i, j), i < j, or None
        The numbers of two such rows, the first that there are.

    Raises
    ------
    ValueError, TypeError
        X is not finite, or lengths differ.

    Examples
    --------
    >>> fm.contradiction([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]], ["a", "b", "b"])
    (0, 2)
    """
    X = _rows(X)
    y = np.asarray(y)
    seen = {}
    if y.shape != (X.shape[0],):
        raise ValueError(
            f"y must have a label for each of {X.shape[0]} rows of X, got shape {y.shape}"
        )

    def key(i):
        if not _is_sparse(X):
            return (X[i] + 0.0).tobytes()  # of the two zeros, one
        part = slice(X.indptr[i], X.indptr[i + 1])
        return X.indices[part].tobytes() + X.data[part].tobytes()

    for i in range(len(y)):
        j = seen.setdefault(hash(key(i)), i)
        if y[i] != y[j] and key(i) == key(j):
            return j, i
    return None


def _operator_norm(G):
    """Return a bound above the largest eigenvalue of G, by about 3 % and all but surely, and the products it took.

    Lanczos: k steps miss a fraction e of it with probability at most 1.65 sqrt(n) exp(-sqrt(e) (2k - 1)), whatever the
    spectrum (Kuczynski & Wozniakowski, SIAM J. Matrix Anal. Appl. 13, 1992): 5e-8 at n = 10^4, k = 64, e = 0.03.  No
    vectors are kept: rounding repeats eigenvalues (A. Greenbaum, Linear Algebra and its Applications 113, 1989).
    """
    n = G.shape()[0]
    scale = G.diagonal().max()  # taken out, so that no square of G's entries can over- or underflow
    T = np.zeros((min(64, n), min(64, n)))  # tridiagonal and symmetric; its lower half
    v = np.random.default_rng(0).standard_normal(n)
    before = np.zeros(n)
    for k in range(len(T)):
        size = float(np.linalg.norm(v))
        if k and size <= 1e-13 * T.max():  # an invariant subspace: its largest eigenvalue is exact
            T = T[:k, :k]
            break
        v /= size
        m = _image(G, v) / scale
        T[k, k] = v @ m
        m -= T[k, k] * v
        if k:
            T[k, k - 1] = size
            m -= size * before
        before = v
        v = m
    return scale * np.linalg.eigvalsh(T)[-1] / (1.0 - 0.03), len(T)


# ======================================================================================================
# 7 driver
# ======================================================================================================
#
# An algorithm is a loop,
#
#     loop(G, k, until, *state, *parameters) -> (k, flag)
#
# that takes the state, arrays changed in place, from iteration k to iteration ``until`` at the latest; what it
# must remember beside arrays lies in arrays of one entry, since compiled code cannot rebind what it was given.
# Nothing else may decide where it goes: then a run can be cut anywhere and resumed, bit for bit.  Its body consists of
# scalar logic, operations and compiled steps, never of a loop over elements, so that it is fast as Python source, too.

RUNNING, SEPARATED, INFEASIBLE, EXHAUSTED, CERTIFIED = range(
    5
)  # a loop's answer: go on, or halt for this reason


class Run(namedtuple("Run", "G scale tol checkpoints keep_iterates callback start")):
    """A checked G with the checked run options: what `prepare` makes and `drive` takes.

    Attributes
    ----------
    G : representation
    scale : float, s = max_i G_ii
    tol : float or None
    checkpoints : array of int, iterations of certificates, the first and the last of the run among them
    keep_iterates : bool
    callback : callable or None
    start : Result or None

    Examples
    --------
    >>> fm.prepare(np.eye(2), max_iter=3).checkpoints
    array([0, 1, 2, 3])
    """


@_with_underflow
def prepare(
    G: GramLike,
    max_iter: int,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
    *,
    free_intercept: bool = False,
) -> Run:
    """Check G and the run options of an algorithm, before anything is computed or compiled.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    max_iter : int
        Updates at most, beside those of ``start``.
    tol : float, optional
        Stop as "certified" at upper - lower <= tol * upper: seen at checkpoints, at once if the loop has an interval.
    trace_at : array of int, optional
        Iterations to certify and trace; by default 16 a decade.  The first and the last are always in.
    keep_iterates : bool
        Keep alpha at every checkpoint, in Result.iterates.
    callback : callable, optional
        Called with the partial Result (status "running" until the last) at every checkpoint, which it may change:
        alpha and p are its own, and the trace is a table kept for callbacks alone; lower and upper are as in the trace.
        Returning True ends the run as "stopped".
    start : Result, optional
        Go on from where this Result of the same algorithm on the same G ended, a partial one included: T1 iterations
        and then T2 are T1 + T2, bit for bit.  Other options are those of this call.  Refused where shape, scale or the
        margins of some separator at 16 points of G differ; a G changed at other points alone goes unnoticed.
    free_intercept : bool
        Whether the loop takes a G with a free intercept (see `FreeGram`): its p must have half its weight in each
        class, as the q of `softmax_pass` has.

    Returns
    -------
    run : Run
        run.G is the representation that loops are given.

    Raises
    ------
    ValueError, TypeError
        Naming the argument: G not finite, square, symmetric, positive semi-definite where that shows, or zero; a free
        intercept that the algorithm does not take; parameters out of range.
    FloatingPointError
        The iterates overflowed, or G was written to during the run.

    Examples
    --------
    >>> fm.prepare(2.0 * np.eye(2), max_iter=3).scale
    2.0
    """
    max_iter = _count(max_iter, "max_iter")
    tol = None if tol is None else _number(tol, "tol")
    if not (start is None or _is_result(start)):
        raise TypeError(f"start must be a Result or None, got {type(start).__name__}")
    first = 0 if start is None else start.n_iter
    last = first + max_iter
    if trace_at is None:
        decades = math.log10(max(last, 1))
        points = np.unique(
            np.round(np.logspace(0, decades, math.ceil(16 * decades) + 1)).astype(np.int64)
        )
    else:
        points = _array(trace_at, "trace_at").ravel()
        if (
            points.dtype.kind not in "iu" or points.min(initial=0) < 0
        ):  # find the one to name; an empty list is fine
            whole = (
                int(k) if isinstance(k, float) and k.is_integer() else k for k in points.tolist()
            )
            points = np.array([_count(k, "each of trace_at") for k in whole], dtype=np.int64)
    checkpoints = np.unique(
        np.concatenate(([first], points[(points > first) & (points < last)], [last]))
    )
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    G, scale = _representation(G)
    if G.signs is not None and not free_intercept:
        raise ValueError(
            f'this algorithm takes no G with intercept="free": {_TAKES_FREE} do.  Give G intercept=1.0 '
            "for a penalised bias, or leave it out"
        )
    return Run(G, scale, tol, checkpoints, bool(keep_iterates), callback, start)


@_with_underflow
def drive(
    run: Run,
    loop: Callable,
    state: tuple,
    solution: Callable | None = None,
    *,
    parameters: tuple = (),
    products: Callable[[int], float] = float,
    interval: Callable | None = None,
    report: Array | None = None,
    reported: Callable | None = None,
    by_square: bool = False,
    spent: float = 0.0,
    eps: float = 0.0,
) -> Result:
    """Take an algorithm from checkpoint to checkpoint, certify each, and wrap up the Result.

    Parameters
    ----------
    run : Run
        From `prepare`.
    loop : callable
        ``loop(G, k, until, *state, *parameters) -> (k, flag)``: goes from iteration k to iteration ``until`` at the
        latest, changes the arrays of the state in place, and returns the iteration reached with RUNNING, or with
        SEPARATED, INFEASIBLE, EXHAUSTED or CERTIFIED where it halts.  CERTIFIED is believed where fresh products
        confirm it; else the loop is sent on, and must advance.  It is plain Python or compiled with njit, without
        cache=True.  Over a G that is neither dense nor by rows a compiled loop runs as its Python source; functions
        of G that it calls must then be plain or register_jitable.
    state : tuple
        Arrays and NamedTuples of arrays: all that the loop changes, at iteration 0.  A ``start`` overwrites them.  One
        that grows does so by its own ``resize``, along the first axis.
    solution : callable, optional
        ``solution(*state) -> (alpha, p)``, the primal and dual point, p non-negative, which the driver copies; one
        array for both saves a product.  By default alpha >= 0 is the first of the state, and p = alpha / sum alpha.
    parameters : tuple, optional
        What else the loop is given: numbers, arrays that it only reads, NamedTuples.
    products : callable, optional
        G-vector products that k iterations cost, by default k.
    interval : callable, optional
        ``interval(G, s, alpha, p, precise) -> (lower, upper, blur)``, finite, by fresh products, with what rounding
        adds to upper - lower; by default as `certificate`.
    report : array, shape (7,), optional
        One of the state, in which the loop leaves (min_i (G alpha)_i, ||alpha||_G^2, ||alpha||_1, ||p||_G^2, ||p||_1,
        reach) of the iteration that it reaches, for any p >= 0 with G p from vectors of ||.||_1 <= reach, up to 16
        roundings an iteration.  Products are left to the end of the run, and to where rounding makes a hundredth of
        this interval or of upper.  The last entry is the relative gap, 0 for none, at which to halt as CERTIFIED; it
        is halved where that proves premature.
    reported : callable, optional
        ``reported(*state) -> (alpha, p)``, the points that the report is about, where they are not those of
        ``solution``: what a callback is given, and what is certified where the loop halts.
    by_square : bool, optional
        The squares in the report come from `square`; else from inner products of n terms, which may err by more.
    spent : float, optional
        Seconds of set-up before iteration 0.
    eps : float, optional
        "infeasible" is believed of the loop at upper <= eps, as "separated" is at lower > 0.

    Returns
    -------
    result : Result
        With the certified interval lower <= rho <= upper of its alpha and p.  "infeasible" says that no margin above
        upper exists, not that the points cannot be separated.

    Raises
    ------
    FloatingPointError
        The iterates overflowed, or G was written to during the run.
    TypeError, ValueError
        The start, the loop or the solution is not as above; G turns out not to be positive semi-definite.

    Notes
    -----
    The loop is entered for about 0.2 s at a time, so that Ctrl-C is answered; where it is cut changes nothing.  The
    first argument of the KeyboardInterrupt is the Result, "stopped", of iteration n_iter, certified by fresh products;
    its trace ends at the last checkpoint.  It is a ``start`` where the loop is compiled.  One that runs as Python
    source may have been interrupted between two changes of its state: then the Result is that of the last entry, and
    is refused as a start.

    Examples
    --------
    The perceptron that takes the row of least margin (the README has a longer one).

    >>> import numba
    >>> @numba.njit
    ... def worst_row(G, k, until, alpha, m):
    ...     while k < until:
    ...         i = np.argmin(m)
    ...         if m[i] > 0.0:
    ...             return k, fm.SEPARATED
    ...         alpha[i] += 1.0
    ...         fm.add_column(G, i, 1.0, m)
    ...         k += 1
    ...     return k, fm.RUNNING
    >>> run = fm.prepare(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), max_iter=100)
    >>> fm.drive(run, worst_row, (np.zeros(3), np.zeros(3)), products=lambda k: k / 3).status
    'separated'
    """
    if not (isinstance(run, Run) and callable(loop) and isinstance(state, tuple)):
        raise TypeError(
            "drive takes the Run that prepare(G, ...) returns, a loop and a tuple such as (array,); got "
            f"{type(run).__name__}, {type(loop).__name__}, {type(state).__name__}"
        )
    arrays = _arrays(state)
    first, last = run.checkpoints[[0, -1]].tolist()
    origin = (
        getattr(loop, "__qualname__", type(loop).__name__),
        run.G.shape(),
        run.scale,
        _sample(run.G),
    )
    seconds = (
        spent
        if run.start is None
        else spent + _resume(run.start, origin, arrays, run.G.rounding().margins)
    )
    if report is not None:
        report[_TARGET] = run.tol or 0.0
    loop = loop if run.G.routines else getattr(loop, "py_func", loop)
    is_compiled = is_jitted(loop)
    answers = []
    k, flag = _advance(
        loop, run.G, first, first, state + parameters, answers
    )  # compiles, outside the clock
    rows = []
    iterates = []
    shown = np.empty(run.checkpoints.size, dtype=_TRACE)
    steps = 1
    refuted = None
    known = None  # the iteration that alpha and p are of
    certified = functools.partial(_certified, run, interval or _interval, eps)

    def result(trace, kept, is_whole=True):
        return Result(
            alpha.copy(),
            p.copy(),
            lower,
            upper,
            status,
            int(k),
            trace,
            kept,
            (*origin, [a.copy() for a in arrays] if is_whole else None),
        )

    try:
        for checkpoint in run.checkpoints:
            status = "running"
            while status == "running":
                while k < checkpoint and flag == RUNNING:
                    if not is_compiled:
                        entry = k, *map(np.copy, _primal_and_dual(solution, state, k, run.G.signs))
                    begin = time.perf_counter()
                    k, flag = _advance(
                        loop, run.G, k, min(checkpoint, k + steps), state + parameters, answers
                    )
                    elapsed = time.perf_counter() - begin
                    seconds += elapsed
                    if elapsed < 0.1:
                        steps *= 2
                    elif elapsed > 0.4:
                        steps = max(1, steps // 2)
                    if flag == CERTIFIED and k == refuted:
                        raise ValueError(
                            f"the loop {origin[0]} says CERTIFIED at iteration {k} again; it must advance"
                        )
                bounds = _on_the_way(run, k, report, by_square, flag, eps) if k < last else None
                if bounds is None or run.keep_iterates or run.callback is not None:
                    points = (
                        reported or solution if bounds is not None or flag != RUNNING else solution
                    )
                    alpha, p = _primal_and_dual(points, state, k, run.G.signs)
                    known = k
                lower, upper, status = bounds or certified(k, flag, alpha, p)
                if flag == CERTIFIED:  # believed, or not
                    flag = RUNNING
                    refuted = k
                    if report is not None:
                        report[_TARGET] *= 0.5
                if k == checkpoint:
                    break
            rows.append((k, products(k), seconds, lower, upper))
            if run.keep_iterates:
                iterates.append(alpha.copy())
            if run.callback is not None:
                shown[len(rows) - 1] = rows[
                    -1
                ]  # in a table of its own: a callback may do what it likes with it
                answer = run.callback(result(shown[: len(rows)], None))
                if status == "running" and isinstance(answer, (bool, np.bool_)) and answer:
                    lower, upper, status = certified(
                        k, flag, alpha, p
                    )  # what is returned comes from fresh products
                    rows[-1] = (*rows[-1][:3], lower, upper)
                    status = "stopped" if status == "running" else status
            if status != "running":
                kept = np.array(iterates) if run.keep_iterates else None
                return result(np.array(rows, dtype=_TRACE), kept)
    except KeyboardInterrupt as interrupt:  # with what is certified by then
        is_whole = is_compiled or bool(answers)
        status = "stopped"
        if is_whole:
            k = answers[0][0] if answers else k
            if known != k:
                points = reported if reported and k > 0 else solution
                alpha, p = _primal_and_dual(points, state, k, run.G.signs)
        else:
            k, alpha, p = entry
        lower, upper, _ = (interval or _interval)(run.G, run.scale, alpha, p, False)
        interrupt.args = (result(np.array(rows, dtype=_TRACE), None, is_whole), *interrupt.args)
        raise


_SAMPLED = 16  # points by which one G is told from another


def _sample(G):
    """Return margins of some separator at some points: of G among these alone, unless that costs products."""
    n = G.shape()[0]
    index = np.unique(np.arange(_SAMPLED) * n // _SAMPLED)
    if G.access != "products":
        G = G.restrict(index)
        index = slice(None)
    n, dimension = G.shape()
    w = np.cos(np.arange(dimension)) / dimension
    m = np.empty(n)
    margins(G, w, m)
    return m[index]


def _arrays(state):
    """Return the arrays of a state in order, those in NamedTuples too."""
    found = []
    for part in state:
        if not isinstance(part, (np.ndarray, tuple)):
            raise TypeError(
                f"the state of a loop consists of arrays; {part!r} belongs to its parameters"
            )
        found += _arrays(part) if isinstance(part, tuple) else [part]
    return found


def _resume(start, origin, arrays, rounding):
    """Fill the arrays of a state with those that ``start`` ended with; returns the seconds it took."""
    *before, scale, sample, held = start.state
    if held is None:
        raise ValueError(
            "start was interrupted within an iteration, so that its state cannot go on; max_margin also "
            "takes weights, start=result.alpha"
        )
    *now, wanted, seen = origin
    slack = max(1e-9, 4.0 * rounding) * np.abs(seen).max()
    differs = np.shape(sample) != seen.shape or not (np.abs(sample - seen) <= slack).all()
    if (
        before != now
        or abs(scale - wanted) > 1e-12 * wanted
        or differs
        or [(a.shape[1:], a.dtype) for a in held] != [(a.shape[1:], a.dtype) for a in arrays]
    ):
        raise ValueError(
            "start must be a Result of the same algorithm on the same G; loop, shape and max_i G_ii are "
            f"{start.state[:3]}, not {origin[:3]}{', and entries of G differ' * differs}; "
            "max_margin also takes weights, start=result.alpha"
        )
    for array, source in zip(arrays, held, strict=True):
        if array.shape != source.shape:
            array.resize(source.shape, refcheck=False)
        array[...] = source
    return float(
        start.trace["seconds"].max(initial=0.0)
    )  # no row yet, if it was interrupted at its start


def _take_down(answers, loop, *args):
    """Append what the loop returns to a list.

    Ctrl-C is raised between two instructions of Python: if it came while compiled code ran, when that has returned and
    its answer has no name yet.  Here no instruction lies between the return and the list.
    """
    answers.extend(itertools.starmap(loop, [args]))


def _advance(loop, G, k, until, arguments, answers):
    """Return (k, flag) after a call of the loop, if that is what it returned; ``answers`` is empty during the call."""
    answers.clear()
    if is_jitted(loop):
        _enter(_take_down, answers, loop, G, k, until, *arguments)
    else:
        _take_down(answers, loop, G, k, until, *arguments)
    (answer,) = answers
    if not (
        isinstance(answer, tuple)
        and len(answer) == 2
        and isinstance(answer[0], (int, np.integer))
        and not isinstance(answer[1], (bool, np.bool_))
        and answer[1] in range(CERTIFIED + 1)
    ):
        raise TypeError(
            f"a loop must return (k, flag), with a flag from RUNNING to CERTIFIED; got {answer!r}"
        )
    if not k <= answer[0] <= until or (answer[1] == RUNNING and answer[0] != until):
        raise ValueError(
            f"a loop sent from iteration {k} to {until} must get there or halt; it returned {answer}"
        )
    return answer


def _primal_and_dual(solution, state, k, signs):
    """Return (alpha, p) of a state, if they can be certified."""
    if solution is None:
        alpha = state[0]
        p = _weights(alpha, signs)
    else:
        alpha, p = solution(*state)
    _refuse_overflow(alpha, p, place=f" at iteration {k}")
    if not (p.min() >= 0.0 and p.sum() > 0.0):
        raise ValueError(
            "p must have weights of at least 0, not all 0: give drive a solution(*state) -> (alpha, p)"
        )
    return alpha, p


def _on_the_way(run, k, report, by_square, flag, eps):
    """Return the loop's own interval, if it ends nothing and rounding is under 1 % of it; else None.

    Beside the errors of a product, and of squares as sums of n terms unless `square` took them, a report has at most 16
    roundings an iteration of terms that come to s ||alpha||_1, or to sqrt(s) ||alpha||_1 in length.  In G p the errors
    of a product, and 16 roundings, are those of a vector of ||.||_1 = reach.
    """
    if report is None or flag != RUNNING:
        return None
    least, size, total, dual_size, dual_total, reach, _ = report.tolist()
    (unit, of_square, of_length) = run.G.rounding()
    n = run.G.shape()[0]
    scale = run.scale
    if not by_square:
        of_square = max(of_square, unit + 1.01 * _gamma(n + 8))
    drift = _gamma(16.0 * k)
    few = _gamma(16.0)
    squares = (
        scale * total * total,
        scale * dual_total * dual_total,
    )  # "**" would raise where these overflow
    if not (1e-250 < min(squares) and max(squares) < 1e250 and unit + drift < 1.0):
        return None  # squares might over- or underflow; alpha = 0 says nothing
    alpha = _Seen(
        least, size, total, Rounding(unit + drift, of_square + 2.02 * drift, of_length + drift)
    )
    of_square = reach / dual_total * (of_square + 2.02 * few) + 2.02 * drift
    p = _Seen(0.0, dual_size, dual_total, Rounding(0.0, of_square, of_length + drift))
    lower, upper, blur = _bracket(scale, alpha, p, dual_total, n, unit + drift)
    if (
        upper > eps
        and min(upper, upper - lower) > 100.0 * blur
        and not upper - lower <= (run.tol or 0.0) * upper
    ):
        return lower, upper, "running"
    return None


def _certified(run, interval, eps, k, flag, alpha, p):
    """Return (lower, upper, status) at iteration k: what the loop says counts where the interval proves it.

    Where the interval fails by what rounding adds to it, or it is the last, a precise one is tried; if that fails by
    rounding again, more iterations are of no use.
    """
    last = k == run.checkpoints[-1]
    for precise in (False, True):
        lower, upper, blur = interval(run.G, run.scale, alpha, p, precise)
        _refuse_overflow(lower, upper, blur, place=f" at iteration {k}")
        gap = 0.0 if run.tol is None else run.tol * upper
        if upper <= 0.0 or (
            upper <= eps and (flag == INFEASIBLE or (precise and flag != SEPARATED))
        ):
            return lower, upper, "infeasible"
        if flag == SEPARATED and lower > 0.0:
            return lower, upper, "separated"
        if run.tol is not None and Fraction(upper) - Fraction(lower) <= Fraction(
            run.tol
        ) * Fraction(upper):
            return lower, upper, "certified"
        on = run.tol is None or upper - lower > blur + max(blur, gap) or (precise and blur <= gap)
        if flag in (RUNNING, CERTIFIED) and on and (precise or not last or run.tol is None):
            return lower, upper, "max_iter" if last else "running"
    return lower, upper, "rounding"


ALGORITHMS = {}


def _files_kept():
    """Return how many files the folder of compiled code has: new code shows at once.  It may have been removed."""
    try:
        return len(os.listdir(_FOLDER))
    except OSError:
        return 0


def _algorithm(function: _Decorated) -> _Decorated:
    """Enter an algorithm into ALGORITHMS, with what `prepare` and `drive` say in its docstring, and a note where it
    compiles."""
    if function.__doc__ is not None:  # python -OO has none
        head, title, own = function.__doc__.partition("    Parameters\n    ----------\n")
        own, notes, rest = own.partition("    Notes\n")
        parts = re.split(
            "    (?=G :|max_iter :|free_intercept :|Returns|Raises|Examples)", prepare.__doc__
        )
        of_G, options, _, _, raised = parts[1:6]
        returned = re.split("    (?=Returns|Raises)", drive.__doc__)[1]
        if not own.startswith(("    G :", "    Z :")):
            own = f"    {of_G}{own}"
        function.__doc__ = (
            f"{head}{title}{own}    {returned}    Other Parameters\n    ----------------\n    {options}"
            f"    {raised}{notes}{rest}"
        )

    @functools.wraps(function)
    def algorithm(*args, **options):
        with np.errstate(under="ignore"):  # as `_with_underflow`
            if not (_FOLDER and sys.stderr and sys.stderr.isatty()):
                return function(*args, **options)
            known = _files_kept()
            note = threading.Timer(
                _PATIENCE,
                lambda: (
                    _files_kept() > known
                    and print(
                        f"fastmargin: compiling {function.__name__}, once; kept in {_FOLDER}",
                        file=sys.stderr,
                    )
                ),
            )
            note.start()
            try:
                return function(*args, **options)
            finally:
                note.cancel()

    ALGORITHMS[function.__name__] = algorithm
    return algorithm


# ======================================================================================================
# 8 algorithms
# ======================================================================================================

# ------------------------------------------------------------------------------------------------------
# 8.1 ramdas14
# ------------------------------------------------------------------------------------------------------


def _separating_margin(run, stop="separated"):
    """Return the margin, at ||alpha||_1 = 1, of "separated", which rounding cannot make of 0; infinite to go on."""
    going_on = _choice(stop, "stop", ("separated", None)) is None
    return math.inf if going_on else 4.0 * run.G.rounding().margins * run.scale


@register_jitable
def _is_separated(G, alpha, w, m, floor):
    """Tell whether G alpha > floor: what m, which follows a recurrence, says, a product (not counted) confirms."""
    if not _exceeds(m, floor):
        return False
    lift(G, alpha, w)
    margins(G, w, m)
    return _exceeds(m, floor)


def _blurs(run):
    """Return what rounding may make of ||p||_G^2, and of ||p||_G beside that, at points of the simplex."""
    rounding = run.G.rounding()
    return rounding.square * run.scale, rounding.length * math.sqrt(run.scale)


@register_jitable
def _is_small(G, p, w, m, eps, blurs):
    """Tell whether ||p||_G <= eps, with room for rounding if there is any, by a product (not counted) in w and m."""
    lift(G, p, w)
    margins(G, w, m)
    size = max(square(G, p, w, m), 0.0)
    (blur, root) = blurs
    hopeless = math.sqrt(blur) + root > 0.5 * eps
    return size <= eps * eps and (hopeless or 1.000001 * (math.sqrt(size + blur) + root) <= eps)


@njit(cache=_CACHE)
def _next_row(m, i, level):
    """Return the first row from i on, in cyclic order, whose margin is not above the level."""
    while m[i] > level:
        i = (i + 1) % m.size
    return i


@njit(cache=_CACHE)
def _perceptron_loop(G, k, until, alpha, w, m, position, report, cyclic, least):
    """Take the next row of margin 0 or less from position[0] on, or the worst row; ||alpha||_1 = k."""
    first = k
    while True:
        if _is_separated(G, alpha, w, m, least * k):  # inf * 0 is NaN, which nothing exceeds
            return k, SEPARATED
        if _meets(k, until, alpha, m, report) and k > first:
            return k, CERTIFIED
        if k >= until:
            return k, RUNNING
        i = _next_row(m, position[0], least * k) if cyclic else np.argmin(m)
        position[0] = (i + 1) % m.size
        alpha[i] += 1.0
        add_column(G, i, 1.0, m)
        k += 1


def _take_rows(run, cyclic, least, solution=None):
    """Run perceptron or nkp."""
    n, dimension = run.G.shape()
    alpha, w, m, report = map(np.zeros, (n, dimension, n, 7))
    return drive(
        run,
        _perceptron_loop,
        (alpha, w, m, np.zeros(1, np.int64), report),
        solution,
        parameters=(cyclic, least),
        products=lambda k: k / n,
        report=report,
    )


@_algorithm
def perceptron(
    G: GramLike,
    *,
    rule: str = "cyclic",
    max_iter: int = 100_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """The perceptron (ramdas14, Algorithm 1): while some (G alpha)_i <= 0, up to rounding, alpha_i <- alpha_i + 1.

    Parameters
    ----------
    rule : {"cyclic", "worst"}
        Take the next such row in cyclic order, or the one of least margin.

    Notes
    -----
    Stops as "separated" after at most s / rho^2 updates (Block 1962, Novikoff 1962).  p = alpha / sum alpha.
    One column per iteration.

    Examples
    --------
    >>> fm.perceptron(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).status
    'separated'
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    return _take_rows(
        run, _choice(rule, "rule", ("cyclic", "worst")) == "cyclic", _separating_margin(run)
    )


@_algorithm
def nkp(
    G: GramLike,
    *,
    stop: str | None = "separated",
    max_iter: int = 100_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Normalized kernel perceptron (ramdas14, sections 2.1 and 3): alpha_0 = 0,
    alpha <- (1 - theta_k) alpha + theta_k e_i with i = argmin_i (G alpha)_i and theta_k = 1/(k+1).

    Parameters
    ----------
    stop : {"separated", None}
        End at G alpha > 0, or go on towards the maximum margin.

    Notes
    -----
    `perceptron` with rule="worst", scaled: k alpha_k counts the rows taken.  A subgradient method for
    L(alpha) = max_p -<alpha, p>_G + ||alpha||_G^2 / 2, whose minimum is -rho^2/2 (Lemma 3).  Stops as "separated"
    within s / rho^2 iterations.  p = alpha.  One column per iteration.

    Examples
    --------
    >>> fm.nkp(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), stop=None, tol=0.01).status
    'certified'
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    return _take_rows(
        run,
        False,
        _separating_margin(run, stop),
        lambda alpha, *_: (alpha / max(alpha.sum(), 1.0), _weights(alpha)),
    )


@register_jitable
def _ends(G, k, first, until, p, w, m, report, eps, blurs, least):
    """Tell why a run with alpha = p is over, by m = G p, and ||p||_G^2; m may be made afresh."""
    if _is_separated(G, p, w, m, least):
        return SEPARATED, 0.0
    if _dot(p, m) <= eps * eps and _is_small(G, p, w, m, eps, blurs):
        return INFEASIBLE, 0.0
    size = _dot(p, m)  # again, as m may be another
    return CERTIFIED if _meets(k, until, p, m, report) and k > first else RUNNING, size


@njit(cache=_CACHE)
def _von_neumann_loop(G, k, until, p, w, m, report, diagonal, eps, blurs, least):
    first = k
    while True:
        flag, size = _ends(G, k, first, until, p, w, m, report, eps, blurs, least)
        if flag != RUNNING or k >= until:
            return k, flag
        j = np.argmin(m)
        gain = size - m[j]
        rest = diagonal[j] - m[j]  # <p - z_j, p> and <z_j - p, z_j>: their sum is ||p - z_j||^2
        move = 0.0
        if gain > 0.0:
            move = gain / (gain + max(rest, 0.0))
        _scale(1.0 - move, p)
        _scale(1.0 - move, m)
        p[j] += move
        add_column(G, j, move, m)
        k += 1


@_algorithm
def von_neumann(
    G: GramLike,
    *,
    eps: float | None = None,
    stop: str | None = None,
    max_iter: int = 100_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Normalized von Neumann algorithm (ramdas14, section 5), Frank-Wolfe for min_p ||p||_G: p_0 = 1/n,
    p <- (1 - lambda) p + lambda e_j with j = argmin_j (Gp)_j and lambda in [0, 1] by exact line search.

    Parameters
    ----------
    eps : float, optional
        Stop as "infeasible" at ||p||_G <= eps; above 0, not scaled by sqrt(s); by default 1e-6 sqrt(s).
    stop : {"separated", None}
        End at Gp > 0, too, or go on.

    Notes
    -----
    If rho <= 0 it stops within s / eps^2 iterations (Dantzig 1992), and within 2 (s / rho^2) ln(||p_0||_G / eps); if
    rho > 0, Gp > 0 within s / rho^2 (Epelman & Freund 2000).  alpha = p.  One product, then a column per iteration.

    Examples
    --------
    >>> fm.von_neumann(fm.FeatureGram([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]), eps=0.01).status
    'infeasible'
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    if eps is None:
        eps = 1e-6 * math.sqrt(run.scale)
    eps = _number(eps, "eps")
    n, dimension = run.G.shape()
    p = np.full(n, 1.0 / n)
    w = np.zeros(dimension)
    report = np.zeros(7)
    ((_, m),) = _squares_and_margins(run.G, run.scale, p)
    return drive(
        run,
        _von_neumann_loop,
        (p, w, m, report),
        lambda p, *_: (p, p),
        report=report,
        eps=eps,
        parameters=(run.G.diagonal(), eps, _blurs(run), _separating_margin(run, stop)),
        products=lambda k: 1.0 + k / n,
    )


class _Active(NamedTuple):
    """Keep points that p has had, the columns of G at these, and the face of those that it has."""

    points: np.ndarray  # (k,)
    columns: np.ndarray  # (k, n)
    order: np.ndarray  # which of the points are in the face, in the order of its factor
    factor: np.ndarray  # the Cholesky factor of H there, row by row


@njit(cache=_CACHE, fastmath=_FAST)
def _exchange(p, m, entering, leaving, j, a, size, toward, away):
    """Move p towards e_j, away from e_a, or both, as far as ||p||_G falls and p >= 0 holds; m = G p follows."""
    rest = int(away) - int(toward)  # the direction is toward e_j - away e_a + rest p
    slope = toward * m[j] - away * m[a] + rest * size
    bend = (
        toward * (entering[j] + 2.0 * rest * m[j])
        + away * (leaving[a] - 2.0 * rest * m[a])
        - 2.0 * toward * away * entering[a]
        + rest * rest * size
    )
    most = 1.0
    if away:
        most = p[a]
        if not toward:
            most /= max(1.0 - p[a], _UNIT)
    t = 0.0
    if slope < 0.0:
        t = most
        if -slope < most * bend:
            t = -slope / bend
    for i in range(p.size):
        p[i] += t * rest * p[i]
        m[i] += t * (rest * m[i] + toward * entering[i] - away * leaving[i])
    p[j] += t * toward
    p[a] = 0.0 if away and t == most else max(p[a] - t * away, 0.0)


@njit(cache=_CACHE, fastmath=_FAST)
def _correct(face, row, x, g, k, i):
    """Bring point i into the face, unless it is there, and x to the minimum; return how many points the face has."""
    if not face[3][i]:
        k = _append(face, row, x, g, k, i, -1.0)
    return _descend(face, x, g, k)[0]


def _to_affine_minimizer(p, m, active, i, size, scale):
    """Bring p to the minimum on a face, by Wolfe's minor cycles, once its i-th point has entered.

    H = G / s + 1 is definite on affinely independent points; x = p / (1 + ||p||_G^2 / s) is optimal where p is.
    """
    points, columns, order, factor = active
    n = points.size
    k = order.size
    unit = 1.0 / (1.0 + size / scale)
    P = np.zeros(n, np.int64)
    inside = np.zeros(n, np.bool_)
    L = _widened(factor.reshape(k, k), n)
    P[:k] = order
    inside[order] = True
    x = unit * p[points]
    g = unit * (m[points] / scale + 1.0) - 1.0
    k = _correct((np.ones(n), L, P, inside), columns[i, points] / scale + 1.0, x, g, k, i)
    order.resize(k, refcheck=False)
    factor.resize(k * k, refcheck=False)
    order[:] = P[:k]
    factor[:] = np.tril(L[:k, :k]).ravel()
    p[:] = m[:] = 0.0
    p[points] = x / x.sum()
    _enter_by_size(k * m.size, _combine_rows, columns, order, p[points[order]], m)


def _frank_wolfe_loop(G, k, until, p, m, active, report, variant, scale, eps, blurs, least):
    points = active.points
    columns = active.columns
    first = k
    w = np.empty(G.shape()[1])
    while True:
        flag, size = _ends(G, k, first, until, p, w, m, report, eps, blurs, least)
        if flag != RUNNING or k >= until:
            return k, flag
        j = int(m.argmin())
        if not (points == j).any():
            points.resize(points.size + 1, refcheck=False)
            columns.resize((points.size, m.size), refcheck=False)
            points[-1] = j
            add_column(G, j, 1.0, columns[-1])
        i = int((points == j).argmax())
        if variant == "corrected":
            _to_affine_minimizer(p, m, active, i, size, scale)
        else:
            worst = int(np.where(p[points] > 0.0, m[points], -math.inf).argmax())
            a = int(points[worst])
            toward = variant == "pairwise" or size - m[j] >= m[a] - size
            _exchange(
                p,
                m,
                columns[i],
                columns[worst],
                j,
                a,
                size,
                toward,
                variant == "pairwise" or not toward,
            )
        k += 1


@_algorithm
def frank_wolfe(
    G: GramLike,
    *,
    variant: str = "corrected",
    eps: float | None = None,
    stop: str | None = None,
    max_iter: int = 100_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Frank-Wolfe for min_p ||p||_G with an active set, the points of weight p_i > 0: p_0 = e_i of least G_ii, then
    j = argmin_i (Gp)_i, a = argmax of (Gp)_i over the active set, and a move that can also take weights back.

    Parameters
    ----------
    variant : {"corrected", "pairwise", "away"}
        "corrected": j becomes active, and p goes towards the affine minimiser of the active set; where a weight comes
        to 0 on the way, its point is dropped, and p goes on from there.
        "pairwise": p <- p + t (e_j - e_a), with t in [0, p_a] by exact line search.
        "away": p <- p + t (e_j - p), t <= 1, or p + t (p - e_a), t <= p_a / (1 - p_a), the steeper, by line search.
    eps : float, optional
        Stop as "infeasible" at ||p||_G <= eps; above 0, not scaled by sqrt(s); by default 1e-6 sqrt(s).
    stop : {"separated", None}
        End at Gp > 0, too, or go on.

    Notes
    -----
    "corrected" is Wolfe's algorithm for the point of least norm: in exact arithmetic it ends at the optimum after
    finitely many iterations, since ||p||_G falls, and p is the affine minimiser of another set after each.  The active
    set is affinely independent, at most rank G + 1 points.  An iteration takes O(k n + k^2) operations beside the
    column, k the active points.  The others converge linearly, at rates that depend on the width of the polytope.
    alpha = p.  A column is read, and counted, once, and kept: n numbers each, and for "corrected" twice k^2 more.

    References
    ----------
    P. Wolfe, Mathematical Programming 11, 1976; as a corrective step of Frank-Wolfe: J. Halbey, S. Rakotomandimby,
    M. Besancon, S. Designolle, S. Pokutta, arXiv 2506.02635, 2025; the other variants, and their linear convergence:
    S. Lacoste-Julien, M. Jaggi, NeurIPS 2015.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> fm.frank_wolfe(G, tol=1e-9).status, fm.frank_wolfe(G, variant="pairwise", tol=1e-9).status
    ('certified', 'certified')
    """
    variant = _choice(variant, "variant", ("corrected", "pairwise", "away"))
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    if eps is None:
        eps = 1e-6 * math.sqrt(run.scale)
    eps = _number(eps, "eps")
    diagonal = run.G.diagonal()
    p = np.zeros(diagonal.size)
    columns = np.zeros((1, diagonal.size))
    first = int(
        (diagonal <= (1.0 + 1e-9) * diagonal.min()).argmax()
    )  # of points of one length, but for rounding
    p[first] = 1.0
    add_column(run.G, first, 1.0, columns[0])
    root = math.sqrt(columns[0, first] / run.scale + 1.0)
    active = _Active(np.array([first]), columns, np.zeros(1, np.int64), np.array([root]))
    report = np.zeros(7)
    return drive(
        run,
        _frank_wolfe_loop,
        (p, columns[0].copy(), active, report),
        lambda p, *_: (p, p),
        parameters=(variant, run.scale, eps, _blurs(run), _separating_margin(run, stop)),
        report=report,
        products=lambda k: active.points.size / p.size,
        eps=eps,
    )


class _Point(NamedTuple):
    """Weights v with their images w = Z' v and m = G v, which can follow a linear recurrence of v without a product."""

    v: np.ndarray
    w: np.ndarray
    m: np.ndarray


@njit(cache=_CACHE)
def _smoothed_step(theta, v, p, q):
    """v <- (1 - theta)(v + theta p) + theta^2 q."""
    for i in range(v.size):
        v[i] = (1.0 - theta) * (v[i] + theta * p[i]) + theta * theta * q[i]


@njit(cache=_CACHE)
def _smoothed_loop(
    G, k, until, alpha, p, q, center, length, age, report, prox, mu0, gamma, eps, blurs, least
):
    """Iterate SNKP, SNKPVN or ISNKPVN; q = p_mu(alpha) for the current mu and alpha.

    alpha.m, p.w and p.m follow recurrences; alpha.w is scratch.  The current call of SNKPVN has its prox centred at
    ``center``, of ||center||_G = length[0], and is in iteration age[0].  At ||p||_G < delta the run halts or, while
    gamma > 0 and delta >= eps, goes over into the next call, centred at p.
    """
    first = k
    while True:
        if _is_separated(G, alpha.v, alpha.w, alpha.m, least):
            return k, SEPARATED
        norm = math.sqrt(max(square(G, p.v, p.w, p.m), 0.0))
        delta = max(length[0], eps) / gamma if gamma > 0.0 else eps
        ends = norm < delta
        if ends and (gamma == 0.0 or delta < eps):
            if _is_small(G, p.v, p.w, p.m, delta, blurs):
                return k, INFEASIBLE
            ends = False
        if k >= until or report[_TARGET] > 0.0:
            size = _dot(alpha.v, alpha.m)
            if (
                _closes(
                    report, _least(alpha.m), size, _total(alpha.v), norm * norm, _total(p.v), 1.0
                )
                and k > first
            ):
                return k, CERTIFIED
        if k >= until:
            return k, RUNNING
        theta = 2.0 / (age[0] + 3.0)
        if ends:
            theta = 1.0
            age[0] = -1
            length[0] = norm
            _copy(p.v, center)
            _copy(p.v, alpha.v)
            _copy(p.m, alpha.m)
        else:
            _smoothed_step(theta, alpha.v, p.v, q.v)
            _smoothed_step(theta, alpha.m, p.m, q.m)
        age[0] += 1
        mu = 2.0 * mu0 / ((age[0] + 1.0) * (age[0] + 2.0))
        _prox(prox, alpha.m, mu, center, q.v)
        lift(G, q.v, q.w)
        margins(G, q.w, q.m)
        _combine(1.0 - theta, p.v, theta, q.v)
        _combine(1.0 - theta, p.m, theta, q.m)
        _combine(1.0 - theta, p.w, theta, q.w)
        k += 1


def _smoothed(run, center, prox, *, gamma=0.0, eps=0.0, stop="separated"):
    """Run snkp, snkpvn or, with gamma > 0, isnkpvn."""
    n, dimension = run.G.shape()
    center = np.full(n, 1.0 / n) if center is None else center
    mu0 = 2.0 * run.scale * (1.0 if prox == _ENTROPY else n)
    parameters = prox, mu0, gamma, eps, _blurs(run), _separating_margin(run, stop)
    ((size, m),) = _squares_and_margins(run.G, run.scale, center)
    alpha = _Point(center.copy(), np.zeros(dimension), m)
    p = _Point(*map(np.empty, (n, dimension, n)))
    _prox(prox, m, mu0, center, p.v)
    lift(run.G, p.v, p.w)
    margins(run.G, p.w, p.m)
    report = np.zeros(7)
    state = (
        alpha,
        p,
        _Point(*map(np.copy, p)),
        center,
        np.array([math.sqrt(size)]),
        np.zeros(1, np.int64),
        report,
    )
    return drive(
        run,
        _smoothed_loop,
        state,
        lambda alpha, p, *_: (alpha.v, p.v),
        parameters=parameters,
        products=lambda k: k + 2.0,
        report=report,
        eps=eps,
    )


@_algorithm
def snkp(
    G: GramLike,
    *,
    eps: float = 0.0,
    stop: str | None = "separated",
    max_iter: int = 10_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Smoothed normalized kernel perceptron (ramdas14, section 4, Algorithm 4).

    alpha_0 = 1/n, mu_0 = 2s, p_mu(alpha) = entropy_prox(G alpha, mu), p_0 = p_{mu_0}(alpha_0); with theta_k = 2/(k+3)

        alpha <- (1 - theta)(alpha + theta p) + theta^2 p_mu(alpha),  mu <- (1 - theta) mu,
        p     <- (1 - theta) p + theta p_mu(alpha)   at the new mu and alpha;   mu_k = 4s/((k+1)(k+2)).

    Parameters
    ----------
    eps : float
        Stop as "infeasible", that is no margin above eps exists, at ||p||_G < eps; not scaled by sqrt(s); 0: never.
    stop : {"separated", None}
        End at G alpha > 0, or go on towards the maximum margin.

    Notes
    -----
    Stops as "separated" within 2 sqrt(2 s ln n) / rho iterations (Theorem 1).  Along the run
    L(alpha_k) - mu_k ln n <= L_{mu_k}(alpha_k) <= -||p_k||_G^2 / 2 (Lemmas 4 and 5).  As L >= -rho+^2 / 2 (Lemma 3),
    ||p_k||_G^2 <= rho+^2 + 8 s ln(n) / ((k+1)(k+2)): if rho <= 0 it stops as "infeasible" within sqrt(8 s ln n) / eps
    iterations.  The paper proves that of SNKPVN with n in place of ln n.  One product per iteration, two at the start.

    It is `momentum` but for the length of steps.  With a = alpha/mu the prox is q = softmax(-G a), and as
    theta/((1 - theta) mu) = (k+2)/(2s) at step k, dividing alpha by mu gives
        nu = (1 - theta) p + theta q,   a <- a + tau nu,   p <- (1 - theta) p + theta softmax(-G a),   p_0 = q_0,
    with tau_k = (k+2)/(2s) from a_0 = 1/(2ns).  In `momentum` the dual iterate mu_t and alpha follow the same lines at
    t = k+1, as g_t + q_t = (t+2)/2 nu: with tau_k = (k+3)/(2s), from a_0 = 1/(ns), where its first step leads.

    Examples
    --------
    >>> fm.snkp(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).status
    'separated'
    """
    eps = _number(eps, "eps", closed=True)
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    return _smoothed(run, None, _ENTROPY, eps=eps, stop=stop)


@_algorithm
def snkpvn(
    G: GramLike,
    *,
    delta: float | None = None,
    q: ArrayLike | None = None,
    max_iter: int = 10_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Smoothed normalized kernel perceptron - von Neumann (ramdas14, section 6, Algorithm 6): `snkp` with alpha_0 = q,
    mu_0 = 2 n s and the prox p_mu(alpha) = l2_prox(G alpha, mu, q).

    Parameters
    ----------
    delta : float, optional
        Stop as "infeasible" at ||p||_G < delta; above 0, not scaled by sqrt(s); by default 1e-6 sqrt(s).
    q : array, shape (n,), optional
        Centre of the prox map, in the simplex; by default uniform.

    Notes
    -----
    Along the run -||p_k||_G^2 / 2 >= L^q_{mu_k}(alpha_k) >= L(alpha_k) - mu_k (Lemma 8).  So, if rho > 0, it stops as
    "separated" within 2 sqrt(2 n s) / rho iterations, unless ||p||_G < delta before.  If rho <= 0,
    ||p_k||_G <= (2 sqrt(2 n s)/(k+1)) min(1, ||q||_G / |rho|) (Lemma 9; the paper's last line drops a sqrt 2), and it
    stops as "infeasible" within 2 sqrt(2 n s) / delta iterations, or ||q||_G / |rho| times as many if these are fewer.
    For 0 < rho < delta, which the paper counts to Lemma 9, there are no witnesses, on which its proof rests.  What
    holds is ||p_k||_G^2 <= rho^2 + 2 mu_k, mu_k = 4 n s/((k+1)(k+2)), so that it stops, either way, within
    4 sqrt(n s) / delta iterations.  One product per iteration, two at the start.

    Examples
    --------
    >>> fm.snkpvn(fm.FeatureGram([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]), delta=0.01).status
    'infeasible'
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    if delta is None:
        delta = 1e-6 * math.sqrt(run.scale)
    delta = _number(delta, "delta")
    if q is not None:
        q = _distribution(q, "q", run.G.shape()[0])
    return _smoothed(run, q, _L2, eps=delta)


@_algorithm
def isnkpvn(
    G: GramLike,
    *,
    eps: float | None = None,
    gamma: float = 2.0,
    prox: str = "l2",
    max_iter: int = 100_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Iterated SNKPVN (ramdas14, section 6, Algorithm 7): q_0 = 1/n, delta_t = max(||q_t||_G, eps) / gamma,
    q_{t+1} = SNKPVN(q_t, delta_t).

    Parameters
    ----------
    eps : float, optional
        Stop as "infeasible" at ||p||_G < eps, once delta_t < eps; not scaled by sqrt(s); by default 1e-6 sqrt(s).
    gamma : float
        Factor by which delta_t falls from call to call, above 1.
    prox : {"l2", "entropy"}
        "entropy", the paper's open question: the prox is KL(p || q_t), with mu_0 = 2s.

    Notes
    -----
    Stops as "separated", too.  Theorem 4, with the constants of its proof, for s = 1 and gamma = 2, beside an iteration
    for each restart: at most (2 sqrt(2n) / rho) log2(2/rho) iterations if rho > eps; (4 sqrt(2n) / |rho|) log2(2/eps),
    and 8 sqrt(2n) / eps, if rho <= 0.  For 0 < rho <= eps call t takes 4 sqrt(n) / delta_t at most, as in `snkpvn`.
    The paper has no eps in delta_t, which matters where q_t is a certificate already.  One product per iteration,
    restarts among them, two at the start.

    With prox="entropy" and s = 1, call t takes at most 2 sqrt(2 D_t) / rho iterations, or 2 sqrt(2 D_t) / delta_t if
    rho <= 0.  Here D_0 = ln(n), and a call of k iterations adds 1 + ln((k+1)(k+2)/2) to D_t >= -ln min_i (q_t)_i.  So
    n gives way to ln n, up to logarithms, in sqrt(n)/rho and sqrt(n)/eps, but not in sqrt(n)/|rho|: with 0 on the
    boundary of the hull it is seen to take 1/sqrt(eps) where prox="l2" takes log(1/eps).

    Examples
    --------
    >>> fm.isnkpvn(fm.FeatureGram([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]), eps=1e-6).status
    'infeasible'
    """
    prox = {"l2": _L2, "entropy": _ENTROPY}[_choice(prox, "prox", ("l2", "entropy"))]
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    gamma = _number(gamma, "gamma", 1.0)
    if eps is None:
        eps = 1e-6 * math.sqrt(run.scale)
    eps = _number(eps, "eps")
    return _smoothed(run, None, prox, gamma=gamma, eps=eps)


@njit(cache=_CACHE)
def _winnow_loop(G, k, until, w, m, hits, score, Z, eta, least):
    """Keep score = -eta * (sum of the rows taken), w = softmax(-score), m = Z w."""
    while True:
        if _exceeds(m, least):
            return k, SEPARATED
        if k >= until:
            return k, RUNNING
        i = np.argmin(m)
        hits[i] += 1.0
        _combine(1.0, score, -eta, Z[i])
        _softmax(score, w)
        margins(G, w, m)
        k += 1


@_algorithm
def winnow(
    Z: ArrayLike,
    *,
    eta: float = 0.1,
    max_iter: int = 100_000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Winnow (Littlestone 1991; ramdas14, section 2.2): multiplicative weights for the l1-margin

        rho_1 = max_{w in Delta_d} min_i (Z w)_i  =  min_{p in Delta_n} max_j (Z'p)_j

    of signed rows z_i = y_i x_i, each scaled by ||x_i||_inf here.  While some (Zw)_i <= 0: w_j <- w_j
    exp(eta z_ij) / sum with i of least margin.

    Parameters
    ----------
    Z : array, shape (n, d)
        The signed rows, none of them zero; not a Gram matrix.
    eta : float
        Learning rate, above 0 and, for the guarantee, below 2 rho_1; rho_1 is best.

    Notes
    -----
    alpha is w, (d,), p counts the rows taken, and lower = min_i (Zw)_i <= rho_1 <= max_j (Z'p)_j = upper; upper <= 0 is
    "infeasible".  Stops as "separated", after at most 2 ln(d) / rho_1^2 updates with eta = rho_1 (the paper's bound up
    to the constant).  An iteration reads Z once and counts as one product.

    Examples
    --------
    >>> fm.winnow([[1.0, -0.5, 0.2], [0.5, 1.0, -0.1]], eta=0.3).status
    'separated'
    """
    Z = _points(Z, "Z")
    eta = _number(eta, "eta")
    size = np.abs(Z).max(axis=1)
    if size.min() == 0.0:
        raise ValueError(
            f"row {np.argmin(size)} of Z is zero; it cannot be scaled by its largest entry"
        )
    run = prepare(
        FeatureGram(Z / size[:, None]), max_iter, tol, trace_at, keep_iterates, callback, start
    )
    n, d = run.G.shape()
    w = np.full(d, 1.0 / d)
    blur = _gamma(n + 2 * d + 8)  # of z_i / ||x_i||_inf and w / sum, sums in any order

    def interval(G, scale, w, p, precise):
        lower = float((G.rows @ w).min())
        upper = float((p @ G.rows).max())
        return lower - blur, upper + blur, 2.0 * blur

    return drive(
        run,
        _winnow_loop,
        (w, run.G.rows @ w, np.zeros(n), np.zeros(d)),
        interval=interval,
        solution=lambda w, m, hits, _: (w, _weights(hits)),
        parameters=(run.G.rows, eta, 2.0 * blur),
    )


# ------------------------------------------------------------------------------------------------------
# 8.2 ji21
# ------------------------------------------------------------------------------------------------------

_RISK, _CONSTANT, _SQRT = range(3)


@njit(cache=_CACHE)
def _logistic_weights(m, shift, q):
    """q <- grad psi(xi), xi = -m - shift; return ln l'(psi).

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


@register_jitable
def _dual_pass(G, w, logistic, shift, m, q, u):
    """m <- Z w, q <- grad psi(xi), xi = -m - shift, u <- Z' q, one product; return ln l'(psi).

    Then l'(xi_i) = q_i l'(psi).
    """
    if not logistic:
        return softmax_pass(G, w, m, q, u)
    margins(G, w, m)
    log_slope = _logistic_weights(m, shift, q)
    lift(G, q, u)
    return log_slope


@njit(cache=_CACHE)
def _gradient_loop(G, k, until, alpha, w, m, q, u, log_slope, report, logistic, schedule, step):
    """alpha <- alpha + theta_k q_k and w = Z' alpha alike; m, q, u and log_slope[0] belong to the current w."""
    while k < until:
        theta = step
        if schedule == _RISK:
            theta *= math.exp(min(log_slope[0], 300.0)) / m.size
        elif schedule == _SQRT:
            theta /= math.sqrt(k + 1.0)
        _combine(1.0, alpha, theta, q)
        _combine(1.0, w, theta, u)
        log_slope[0] = _dual_pass(G, w, logistic, 0.0, m, q, u)
        k += 1
        if _meets(k, until, alpha, m, report):
            return k, CERTIFIED
    return k, RUNNING


def _at_rest(run, logistic, shift=0.0):
    """Return the state of `_gradient_loop` at w = 0, where all margins are 0."""
    n, dimension = run.G.shape()
    alpha, w, m, q, u, log_slope, report = map(np.zeros, (n, dimension, n, n, dimension, 1, 7))
    log_slope[0] = _logistic_weights(m, shift, q) if logistic else _softmax(m, q)
    if run.G.signs is not None:
        log_slope[0] = softmax_pass(run.G, w, m, q, u)
    lift(run.G, q, u)
    return alpha, w, m, q, u, log_slope, report


@_algorithm
def gradient_descent(
    G: GramLike,
    *,
    step: float = 1.0,
    loss: str = "exp",
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Gradient descent (ji21, section 3.1) on the empirical risk R(w) = (1/n) sum_i l(-m_i), m = G alpha:
    alpha_i <- alpha_i + (step/s) l'(-m_i) / n.

    Parameters
    ----------
    step : float
        Step length in units of 1/s, above 0.
    loss : {"exp", "logistic"}
        l(z) = e^z, or l(z) = ln(1 + e^z).

    Notes
    -----
    Weights are kept on a log scale, and a gradient longer than e^300 is cut to it, so nothing overflows.  The margin
    grows towards rho at the rate 1/ln t (Soudry et al. 2018).  p = alpha / sum alpha.  One product per iteration.

    Examples
    --------
    >>> fm.gradient_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0
    True
    """
    logistic = _choice(loss, "loss", ("exp", "logistic")) == "logistic"
    step = _number(step, "step")
    run = prepare(
        G, max_iter, tol, trace_at, keep_iterates, callback, start, free_intercept=not logistic
    )
    state = _at_rest(run, logistic)
    return drive(
        run, _gradient_loop, state, parameters=(logistic, _RISK, step / run.scale), report=state[-1]
    )


@njit(cache=_CACHE)
def _unit_step_loop(G, k, until, alpha, m, q, u, image, report, schedule, step):
    """alpha <- alpha + theta_k q / ||q||_G and m = G alpha alike: image = G q is the product that ||q||_G takes."""
    while k < until:
        _softmax(m, q)
        lift(G, q, u)
        margins(G, u, image)
        size = square(G, q, u, image) * (k + 1.0 if schedule == _SQRT else 1.0)
        theta = step / math.sqrt(size) if size > 0.0 else 0.0  # a gradient of 0 moves nothing
        _combine(1.0, alpha, theta, q)
        _combine(1.0, m, theta, image)
        k += 1
        if _meets(k, until, alpha, m, report):
            return k, CERTIFIED
    return k, RUNNING


@_algorithm
def normalized_gradient_descent(
    G: GramLike,
    *,
    step: float = 1.0,
    schedule: str = "constant",
    divide_by: str = "risk",
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Gradient descent on the exponential risk R(f) = (1/n) sum_i exp(-m_i), m = G alpha, with the gradient divided by
    the risk (ji21, section 3.1), or by its own norm (apidopoulos22, section 6.2):

        alpha <- alpha + theta_t q_t,   or   alpha <- alpha + theta_t q_t / ||q_t||_G,   q_t = softmax(-G alpha).

    Parameters
    ----------
    step : float
        Step length in units of 1/s, or of 1/sqrt(s) with divide_by="norm", above 0.
    schedule : {"constant", "sqrt"}
        theta_t = step/s, with margin rate 1/t (Ji & Telgarsky 2019); or theta_t = (step/s) / sqrt(t + 1), with
        ln t / sqrt t (Nacson et al. 2018, who divide by the norm).  The s is sqrt(s) with divide_by="norm".
    divide_by : {"risk", "norm"}
        The gradient is -R(f) g with g = sum_i q_i y_i phi(x_i), so that its norm is R(f) ||q||_G.

    Notes
    -----
    Divided by the risk it is mirror descent with the entropy on the dual; by the norm, f moves by theta_t each time,
    by up to sqrt(s) / rho times as much.  p = alpha / sum alpha.  One product per iteration.

    A constant step may be large.  Divided by the risk, with s = 1, f moves by step g, and convexity of ln R gives
    ||f_{t+1} - u||^2 <= ||f_t - u||^2 + 2 step (ln R(u) - ln R(f_t)) + step^2.  With u of length step rho T along the
    best separator, ln R(u) <= -step rho^2 T; so the best of T iterates has ln R(f_t) <= -(step / 2) (rho^2 T - 1), and
    one separates the points within (1 + 2 ln(n) / step) / rho^2 iterations.  Zhang et al. show it of the logistic
    loss, with steps that adapt to the risk: exp(-Theta(step)) after 1 / rho^2 iterations, and that fewer, up to a
    constant, will not do for any first-order method on some sets of exp(O(1 / rho^2)) points.

    References
    ----------
    R. Zhang, J. Wu, L. Lin, P. Bartlett, arXiv 2504.04105, 2025.

    Examples
    --------
    >>> fm.normalized_gradient_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0.9
    True
    """
    schedule = {"constant": _CONSTANT, "sqrt": _SQRT}[
        _choice(schedule, "schedule", ("constant", "sqrt"))
    ]
    by_norm = _choice(divide_by, "divide_by", ("risk", "norm")) == "norm"
    step = _number(step, "step")
    run = prepare(
        G, max_iter, tol, trace_at, keep_iterates, callback, start, free_intercept=not by_norm
    )
    alpha, _, m, q, u, _, report = state = _at_rest(run, False)
    if by_norm:
        return drive(
            run,
            _unit_step_loop,
            (alpha, m, q, u, np.zeros_like(m), report),
            report=report,
            parameters=(schedule, step / math.sqrt(run.scale)),
        )
    return drive(
        run, _gradient_loop, state, parameters=(False, schedule, step / run.scale), report=report
    )


@njit(cache=_CACHE)
def _momentum_step(x, g, q, beta, step):
    """g <- beta (g + q), x <- x + step (g + q)."""
    for i in range(x.size):
        g[i] = beta * (g[i] + q[i])
        x[i] += step * (g[i] + q[i])


@njit(cache=_CACHE)
def _momentum_loop(
    G, k, until, alpha, g, q, w, gw, u, m, move, report, logistic, shift, step, eps, blurs
):
    """Move alpha and w alike: (g, q) are weights, (gw, u) = (Z' g, Z' q) their coordinates; q belongs to the current w.

    The interval reported is that of alpha and of the last move g + q, p = nu_{k-1}: the image of the next one is not at
    hand.  At ||p||_G <= eps the run halts.
    """
    while True:
        if (
            eps > 0.0 and report[4] > 0.0 and report[3] <= (eps * report[4]) ** 2
        ):  # (||p||_1, ||p||_G^2) of the last move
            blur, root = blurs
            if _is_small(
                G,
                move.v,
                move.w,
                move.m,
                eps * report[4],
                (blur * report[4] ** 2, root * report[4]),
            ):
                return k, INFEASIBLE
        if k >= until:
            return k, RUNNING
        beta = k / (k + 1.0)
        looks = k + 1 >= until or report[_TARGET] > 0.0 or eps > 0.0
        _momentum_step(alpha, g, q, beta, step)
        _momentum_step(w, gw, u, beta, step)
        if looks:
            _copy(g, move.v)
            _copy(gw, move.w)
            _combine(1.0, move.v, 1.0, q)
            _combine(1.0, move.w, 1.0, u)
            _copy(m, move.m)
        _dual_pass(G, w, logistic, shift, m, q, u)
        k += 1
        if looks:
            _combine(
                -1.0 / step, move.m, 1.0 / step, m
            )  # errs by what both margins err, for the many moves up to now
            size = square(G, alpha, w, m)
            total = _total(alpha)
            dual_size = square(G, move.v, move.w, move.m)
            if _closes(
                report, _least(m), size, total, dual_size, _total(move.v), 2.1 * total / step
            ):
                return k, CERTIFIED


@_algorithm
def momentum(
    G: GramLike,
    *,
    loss: str = "exp",
    shifted: bool = True,
    eps: float = 0.0,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Margin maximization by momentum, which is Nesterov's method on the dual (ji21, section 3, Algorithm 1):

        g_t = beta_t (g_{t-1} + Z' q_t),   w_{t+1} = w_t + theta (g_t + Z' q_t),   q_{t+1} = softmax(-Z w_{t+1})

    with w_0 = g_{-1} = 0, q_0 = 1/n, beta_t = t/(t+1), theta = 1/s.  p is the dual iterate mu_t, Z' mu_t = 2 g_t/t; in
    callbacks, and where eps or tol ends the run, it is mostly that of the last move, nu_{t-1}, whose norm is at hand.

    Parameters
    ----------
    loss : {"exp", "logistic"}
        "logistic" takes q_t = grad psi, psi = l^{-1}(sum l), l(z) = ln(1 + e^z), at margins larger by ln n, and
        theta = (1 - 1/e)/s; q_t is then not normalised and mu_t is divided by its sum (section 5.1).
    shifted : bool
        False is section 5.1 as it is printed: the logistic loss at the margins themselves, theta = 1/(n s).
    eps : float
        Stop as "infeasible", that is no margin above eps exists, at ||p||_G <= eps; not scaled by sqrt(s); 0: never.

    Notes
    -----
    Theorem 3.1, for loss="exp", rho in units of sqrt(s):
        gamma(w_t) >= rho - 4 (1 + ln n) (1 + 2 ln(t+1)) / (rho (t+1)^2)   on separable data
        rho+^2 <= ||mu_t||_G^2 <= rho+^2 + 8 ln(n) / (t+1)^2               always
    The first holds without its ln t (proof in tests/test_ji21.py; the rate 1/t^2 is that of Wang et al.):
        gamma(w_t) >= rho - 4 ln(n) / (rho t (t+3)).
    If rho <= 0, eps > 0 ends it within max(1, sqrt(8 s ln n) / eps) iterations: it is compared with the moves nu_t =
    (t mu_t + 2 q_t) / (t+2), of which sum_{t<T} (t+2) ||nu_t||_G^2 <= 4 s ln n (proof in tests/test_ji21.py).
    For loss="logistic" S_t = sum_i l(-m_i - ln n) <= S_0 < 1 always, and on separable data, with b = e/(e-1) in place
    of the n of section 5.1,
        gamma(w_t) >= rho - 4 b ln((e-1) n) / (rho t (t+3)).
    Proof, s = 1.  On {S <= 1}, v'(hess psi) v <= sum_i l''/(1 - e^-S) max v^2 <= S/(1 - e^-S) max v^2 <= b max v^2.
    This set has a convex image under grad psi: q = (1 - e^-l)/c, c = 1 - e^-S, solves F(q, c) = ln(1 - c) -
    sum_i ln(1 - c q_i) = 0; F is convex in q and above 0 for smaller c, below for larger, so S <= 1 is F(q, 1 - 1/e)
    <= 0.  Hence D_psi(x, y) >= ||grad psi(x) - grad psi(y)||_1^2 / (2 b) between points of it, all that the proof of
    Theorem 3.1 asks.  Going a part of step t, psi rises by ||mu_t||_G^2 t (t+2)/(8 b) at most: not at all for t = 0,
    and from t = 1 on by less than the ||mu_t||_G^2 (t+1)^2/(8 b) or more that it has fallen since t = 0.  So S cannot
    pass S_0 on the way.  One product per iteration.

    References
    ----------
    G. Wang, R. Hanashiro, E. Guha, J. Abernethy, On accelerated perceptrons and beyond, ICLR 2023.

    Examples
    --------
    >>> fm.momentum(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-3).status
    'certified'
    """
    logistic = _choice(loss, "loss", ("exp", "logistic")) == "logistic"
    eps = _number(eps, "eps", closed=True)
    run = prepare(
        G, max_iter, tol, trace_at, keep_iterates, callback, start, free_intercept=not logistic
    )
    n, dimension = run.G.shape()
    step = 1.0 / run.scale
    if logistic:
        step *= -math.expm1(-1.0) if shifted else 1.0 / n
    shift = math.log(n) if shifted else 0.0
    alpha, w, m, q, u, _, report = _at_rest(run, logistic, shift)
    g = np.zeros(n)
    gw = np.zeros(dimension)
    move = _Point(*map(np.zeros, (n, dimension, n)))
    return drive(
        run,
        _momentum_loop,
        (alpha, g, q, w, gw, u, m, move, report),
        report=report,
        by_square=True,
        eps=eps,
        solution=lambda alpha, g, q, *_: (alpha, _weights(g + q)),
        reported=lambda alpha, *rest: (alpha, _weights(rest[-2].v)),
        parameters=(logistic, shift, step, eps, _blurs(run)),
    )


@njit(cache=_CACHE)
def _batch_perceptron_loop(G, k, until, alpha, total, hits, m, norm2, diagonal, step):
    """Keep norm2[0] = ||w||^2, in ``total`` the sum of the iterates, in ``hits`` how often each row was taken."""
    while k < until:
        i = np.argmin(m)
        eta = step / math.sqrt(k + 1.0)
        norm2[0] += eta * (2.0 * m[i] + eta * diagonal[i])
        shrink = 1.0 / math.sqrt(max(1.0, norm2[0]))  # by rounding it may be below 0
        norm2[0] *= shrink * shrink
        add_column(G, i, eta, m)
        alpha[i] += eta
        _scale(shrink, m)
        _scale(shrink, alpha)
        _combine(1.0, total, 1.0, alpha)
        hits[i] += 1.0
        k += 1
    return k, RUNNING


@_algorithm
def batch_perceptron(
    G: GramLike,
    *,
    averaged: bool = True,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Batch perceptron (Cotter et al., ICML 2012; ji21, section F): supergradient ascent on the least margin,

        w <- P_{||w|| <= 1}(w + eta_t z_i),   i = argmin_i m_i,   eta_t = 1 / sqrt(s t).

    Parameters
    ----------
    averaged : bool
        alpha is the sum of the iterates, so that lower is the margin of their average; or it is the last.

    Notes
    -----
    p counts the rows taken; while lower >= 0, upper - lower = O(sqrt(s/t)).  One column per iteration.

    Examples
    --------
    >>> fm.batch_perceptron(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0.9
    True
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n = run.G.shape()[0]
    alpha, total, hits, m = np.zeros((4, n))
    return drive(
        run,
        _batch_perceptron_loop,
        (alpha, total, hits, m, np.zeros(1)),
        lambda alpha, total, hits, *_: (total if averaged else alpha, _weights(hits)),
        parameters=(run.G.diagonal(), 1.0 / math.sqrt(run.scale)),
        products=lambda k: k / n,
    )


@njit(cache=_CACHE)
def _draw(m, uniform, weights):
    """Return i with probability softmax(-m)_i, for a uniform number in [0, 1): the distribution function inverted."""
    low = _least(m)
    total = 0.0
    last = 0
    for i in range(m.size):
        weights[i] = math.exp(low - m[i])
        total += weights[i]
    level = uniform * total
    for i in range(m.size):
        if weights[i] > 0.0:
            last = i
            if level < weights[i]:
                break
            level -= weights[i]
    return (
        last  # by rounding the sum may fall short of the level: then it is the last of any weight
    )


@njit(cache=_CACHE)
def _sampling_loop(G, k, until, alpha, g, drawn, m, gm, column, report, uniforms, momentum, step):
    """Do as `_momentum_loop`, with margins gm of g and ``column`` of ``drawn`` = e_i in place of coordinates."""
    while k < until:
        i = _draw(m, uniforms[k], column)
        beta = k / (k + 1.0) if momentum else 0.0
        drawn[i] = 1.0
        column[:] = 0.0
        add_column(G, i, 1.0, column)
        _momentum_step(alpha, g, drawn, beta, step)
        _momentum_step(m, gm, column, beta, step)
        drawn[i] = 0.0
        k += 1
        if _meets(k, until, alpha, m, report):
            return k, CERTIFIED
    return k, RUNNING


@_algorithm
def adaptive_sampling(
    G: GramLike,
    *,
    momentum: bool = True,
    step: float = 1.0,
    seed: int = 0,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Adaptive sampling (ji21, section 4): `momentum` with Z'q_t replaced by one row z_i, drawn with probability q_t,

        g_t = beta_t (g_{t-1} + z_i),   w_{t+1} = w_t + theta (g_t + z_i),   i ~ q_t = softmax(-Z w_t).

    Parameters
    ----------
    momentum : bool
        beta_t = t/(t+1); or beta_t = 0, which is what Theorem 4.1 is about.
    step : float
        theta in units of 1/s, above 0.
    seed : int
        Of the samples, at least 0: the same seed gives the same run, on any number of threads.

    Notes
    -----
    Margins are in units of sqrt(s).  Theorem 4.1, for momentum=False, step = sqrt(ln(n) / T): with probability
    1 - 2 delta,

        gamma(w_T) >= rho - (1.5 sqrt(ln(n) / T) + sqrt(2 ln(1/delta) / T)) / rho - 1 / sqrt(delta T)

    (constants as in its proof).  With momentum, which the paper leaves open, the mean of gamma(w_T) is, for every step,

        at least rho - 4 (ln(n) + T (step + ln cosh(step))) / (step rho T (T+3)).

    Proof: rho ||w_T|| + psi(-Z w_T) is at most ln(n) + sum_t (step/2 ||z_{t+1} - z_t||^2 - KL(q_{t+1} || q_t)) and a
    martingale, z_t the row drawn.  The rate 1/(rho T) is that of coresets (Gaertner & Jaggi), the best for weights on T
    points, on all data: of n unit rows with inner products c, T < n give a margin of at most c / sqrt(c + (1-c)/T), all
    give sqrt(c + (1-c)/n).  What is new is that this method has it.  p = alpha / sum alpha.  One column per iteration.

    References
    ----------
    B. Gaertner, M. Jaggi, Coresets for polytope distance, SoCG 2009.

    Examples
    --------
    >>> fm.adaptive_sampling(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=0.02).status
    'certified'
    """
    step = _number(step, "step")
    seed = _count(seed, "seed")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n = run.G.shape()[0]
    uniforms = (
        np.random.PCG64(seed).random_raw(int(run.checkpoints[-1])) >> np.uint64(11)
    ) * 2.0**-53
    *state, report = map(np.zeros, (n, n, n, n, n, n, 7))
    return drive(
        run,
        _sampling_loop,
        (*state, report),
        products=lambda k: k / n,
        report=report,
        parameters=(uniforms, bool(momentum), step / run.scale),
    )


# ------------------------------------------------------------------------------------------------------
# 8.3 apidopoulos22
# ------------------------------------------------------------------------------------------------------

_SCHEDULES = {
    "1/log(1+t)": lambda t: 1.0 / np.log1p(t),
    "1/sqrt(t)": lambda t: 1.0 / np.sqrt(t),
    "1/t": lambda t: 1.0 / t,
    "1/t^2": lambda t: 1.0 / t**2,
    "2^-t": lambda t: np.exp2(-t),
}


def _penalties(lam, lam0, steps):
    """Return lambda_t = lam0 s(t) for t = 1..steps; s by name, callable or array."""
    if isinstance(lam, str):
        lam = _SCHEDULES[_choice(lam, "lam", tuple(_SCHEDULES))](np.arange(1.0, steps + 1.0))
    elif callable(lam):
        lam = [float(lam(t)) for t in range(1, steps + 1)]
    values = _array(lam, "lam").astype(np.float64)
    if values.ndim != 1 or values.size < steps:
        raise ValueError(
            f"lam must hold a value for each of {steps} iterations; got shape {values.shape}"
        )
    wrong = np.flatnonzero(~(values[:steps] >= 0.0))
    if wrong.size:
        raise ValueError(
            f"lam must be at least 0; at t = {wrong[0] + 1} it is {values[wrong[0]]:g}"
        )
    return lam0 * values[:steps]


@njit(cache=_CACHE)
def _projected_step(alpha, previous, z, m, step, bound):
    """previous <- alpha, alpha <- clip(z + step (1 - m), 0, bound); returns <z - alpha, alpha - previous>."""
    uphill = 0.0
    for i in range(z.size):
        previous[i] = alpha[i]
        alpha[i] = min(max(z[i] + step * (1.0 - m[i]), 0.0), bound)
        uphill += (z[i] - alpha[i]) * (alpha[i] - previous[i])
    return uphill


@njit(cache=_CACHE)
def _extrapolate(alpha, previous, inertia, z):
    """z <- alpha + inertia (alpha - previous)."""
    for i in range(z.size):
        z[i] = alpha[i] + inertia * (alpha[i] - previous[i])


@njit(cache=_CACHE)
def _hinge_descent_loop(
    G,
    k,
    until,
    alpha,
    previous,
    z,
    w,
    m,
    of_alpha,
    largest,
    age,
    report,
    found,
    bounds,
    step,
    accel,
    restart,
):
    """Step in alpha = -u of the paper; bounds[k] = 1 / lambda_{k+1}.  accel = inf is the method without inertia.

    m = G z at the point z of the next step, and of_alpha = G alpha follows from it; largest[0] is the largest
    ||alpha||_1 so far, to which its errors are in proportion; age[0] counts steps since the last restart.  step 0
    stands for found[0].
    """
    step = step if step > 0.0 else found[0]
    while k < until:
        uphill = _projected_step(alpha, previous, z, m, step, bounds[k]) > 0.0
        age[0] = 0 if restart and uphill else age[0] + 1
        inertia = (age[0] + 1.0) / (age[0] + 1.0 + accel) if age[0] > 0 else 0.0
        _extrapolate(alpha, previous, inertia, z)
        lift(G, z, w)
        margins(G, w, m)
        _combine(inertia / (1.0 + inertia), of_alpha, 1.0 / (1.0 + inertia), m)
        k += 1
        total = _total(alpha)
        largest[0] = max(largest[0], total)
        if k >= until or report[_TARGET] > 0.0:
            size = _dot(alpha, of_alpha)
            reach = 3.0 * largest[0]  # ||z||_1 <= reach
            if _closes(report, _least(of_alpha), size, reach, size, total, reach):
                return k, CERTIFIED
    return k, RUNNING


def _hinge_descent(G, lam, lam0, accel, restart, step, *run_options):
    """Run diagonal_descent or inertial_diagonal_descent."""
    step = 0.0 if step is None else _number(step, "step")
    lam0 = _number(lam0, "lam0")
    run = prepare(G, *run_options)
    with np.errstate(divide="ignore", over="ignore"):
        bounds = 1.0 / _penalties(lam, lam0, run.checkpoints[-1])
    n, dimension = run.G.shape()
    found = np.array([step, 0.0])
    spent = 0.0  # the step, and the products that it took to find it
    if step == 0.0 and run.start is None:
        _squares_and_margins(run.G, run.scale, np.full(n, 1.0 / n))  # compiles, outside the clock
        begin = time.perf_counter()
        norm, products = _operator_norm(run.G)
        found[:] = (1.0 / norm, products)
        spent = time.perf_counter() - begin
    *state, report = map(np.zeros, (n, n, n, dimension, n, n, 1, 1, 7))
    return drive(
        run,
        _hinge_descent_loop,
        (*state, report, found),
        parameters=(bounds, step, accel, restart),
        report=report,
        products=lambda k: found[1] + k,
        spent=spent,
    )


@_algorithm
def diagonal_descent(
    G: GramLike,
    *,
    lam: Callable | ArrayLike = "1/t",
    lam0: float = 1.0,
    step: float | None = None,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Hinge-loss diagonal descent (apidopoulos22, section 4, Algorithm 1): projected gradient on the dual of
    min_w (1/lambda_t) sum_i max(0, 1 - m_i) + ||w||^2 / 2, one step for each lambda_t,

        u_0 = 0,   u_t = clip(u_{t-1} - gamma G u_{t-1} - gamma, -1/lambda_t, 0),   w_t = -Z'u_t;   alpha = -u.

    Parameters
    ----------
    lam : str, callable or array
        s(t) in lambda_t = lam0 s(t): "1/log(1+t)", "1/sqrt(t)", "1/t", "1/t^2", "2^-t", a callable of t, or an
        array with s(t) at [t - 1]; not negative (0: no bound), in the theory non-increasing.
    lam0 : float
        Above 0, in the units of G.
    step : float, optional
        gamma itself, not in units of 1/s; by default that of ``start``, or 1/||G||_op on the safe side, by at most 64
        products, which the trace counts as spent before iteration 0.

    Notes
    -----
    For gamma <= 1/||G||_op and non-increasing lambda_t, D_t(u_t) = ||w_t||^2 / 2 + sum_i u_t,i never increases
    (Lemma 5.3), and on separable data w_t -> w*, the separator of least norm with margins >= 1, rho = 1/||w*||,
    linearly once lambda_t <= 1/||u*|| (Theorem 5.1).  If that holds from t = 1 on, (5.4) with its constants is
        ||w_t - w*|| <= ||w*|| (1 + gamma mu)^(-t/2),   mu = 1 / (8 H^2 (A^2 + 2)),
        A = 3 ||w*|| / sqrt(2) + 2 sqrt(2) ||G||_op^(1/2) ||u*||,
    H the Hoffman constant of (5.3).  This mu is tiny; the distance is seen to fall as (1 - gamma nu)^t, nu the least
    positive eigenvalue of G on the face of u*.  p = alpha / sum alpha.  One product per iteration.

    Examples
    --------
    >>> fm.diagonal_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-9).status
    'certified'
    """
    return _hinge_descent(
        G, lam, lam0, math.inf, False, step, max_iter, tol, trace_at, keep_iterates, callback, start
    )


@_algorithm
def inertial_diagonal_descent(
    G: GramLike,
    *,
    lam: Callable | ArrayLike = "1/t",
    lam0: float = 1.0,
    accel: float = 10.0,
    step: float | None = None,
    restart: bool = False,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Inertial diagonal descent (apidopoulos22, section 4, Algorithm 2): the step of `diagonal_descent` taken from
    z_t = u + (t/(t + accel)) (u - u_previous).

    Parameters
    ----------
    lam, lam0 : str, callable or array, and float
        lambda_t = lam0 s(t), as in `diagonal_descent`.
    accel : float
        The paper's alpha, above 0.
    step : float, optional
        As in `diagonal_descent`.
    restart : bool
        Begin anew from u, at t = 1, where inertia led uphill: <z - u, u - u_previous> > 0.  False is the paper's.

    Notes
    -----
    Theorem 5.2, for accel >= 3, gamma <= 1/||G||_op and lambda_t <= 1/||u*|| from t = 1 on that do not rise:
    ||w_t - w*|| <= C/(t + accel - 1) with
    C = (accel - 1) (||w_0||^2 - ||w*||^2 + 2 ||u_0 - u*||_1 + ||u_0 - u*||^2 / gamma)^{1/2}.
    Of the algorithm as it is listed, which begins with u_0 = u_1, our own proof (in tests/test_apidopoulos22.py) gives
    this C for accel >= 2 + sqrt(5) = 4.24, and up to sqrt(2) times as much for 3 <= accel < 4.24.

    Once the face of u* is found, the error of u along an eigenvector of G on the face, of eigenvalue mu, follows
        e_t = q (1 + beta_t) e_{t-1} - q beta_t e_{t-2},   q = 1 - gamma mu,   beta_t = t/(t + accel)
    (mu = 0 does not move w).  With P_t = q^t beta_1 ... beta_t and e_t = P_t^{1/2} v_t this is v_t = 2 q^{1/2} v_{t-1}
    - v_{t-2}, up to O(1/t^2) of these terms, so that v_t stays bounded and turns by arccos q^{1/2} a step.  Hence
    ||w_t - w*|| has the envelope t^(-accel/2) (1 - gamma mu)^(t/2) of the least mu > 0, half of the exponential rate
    of `diagonal_descent`; near the solution FISTA, too, is slower than ISTA (Tao et al.).  With restarts, which are
    those of O'Donoghue & Candes, it is measured to fall by 0.5 to 1.2 (gamma mu)^{1/2} a step.  R-linear rates, with
    restarts and without, are proved where the objective is strongly convex (Bao et al.), which D need not be.

    For gamma <= 1/||G||_op and lambda_t that do not rise, D(u_t) + ||u_t - u_{t-1}||^2 / (2 gamma) never increases,
    with restarts or without; so on separable data w_t -> w* with restarts, too.
    p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    B. O'Donoghue, E. Candes, Adaptive restart for accelerated gradient schemes, Found. Comput. Math. 15, 2015;
    S. Tao, D. Boley, S. Zhang, Local linear convergence of ISTA and FISTA on the LASSO problem, arXiv 1501.02888, 2015;
    C. Bao, L. Chen, J. Li, Z. Shen, Accelerated gradient methods with gradient restart: global linear convergence,
    arXiv 2401.07672, 2024.

    Examples
    --------
    >>> fm.inertial_diagonal_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-4).status
    'certified'
    """
    accel = _number(accel, "accel")
    restart = bool(restart)
    return _hinge_descent(
        G, lam, lam0, accel, restart, step, max_iter, tol, trace_at, keep_iterates, callback, start
    )


@njit(cache=_CACHE)
def _penalised_step(alpha, m, shrink, gain):
    """alpha <- shrink alpha + gain [m < 1]."""
    for i in range(m.size):
        alpha[i] = shrink * alpha[i] + (gain if m[i] < 1.0 else 0.0)


@njit(cache=_CACHE)
def _homotopic_loop(G, k, until, alpha, w, m, a, b, scale):
    while k < until:
        t = k + 1.0
        step = t**-b
        penalty = t**-a
        lift(G, alpha, w)
        margins(G, w, m)
        _penalised_step(alpha, m, 1.0 - step * penalty, step / (m.size * scale))
        k += 1
    return k, RUNNING


@_algorithm
def homotopic_subgradient(
    G: GramLike,
    *,
    a: float = 0.25,
    b: float = 0.5,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Homotopic subgradient method (Molitor, Needell & Ward 2021), the comparator of apidopoulos22: subgradient
    steps on (1/n) sum_i max(0, 1 - m_i) + (lambda_t / 2) ||w||^2 with a vanishing penalty,

        alpha <- (1 - eta_t lambda_t) alpha + (eta_t / n) [m_i < 1],   lambda_t = s t^-a,  eta_t = t^-b / s.

    Parameters
    ----------
    a, b : float
        Exponents above 0 with a + b <= 1, so that the shrinkage sums to infinity.

    Notes
    -----
    p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    D. Molitor, D. Needell, R. Ward, Bias of homotopic gradient descent for the hinge loss, Appl. Math. Optim. 84, 2021.

    Examples
    --------
    >>> fm.homotopic_subgradient(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0
    True
    """
    a = _number(a, "a")
    b = _number(b, "b")
    if a + b > 1.0:
        raise ValueError(f"a + b must be at most 1; got {a:g} + {b:g}")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    return drive(
        run, _homotopic_loop, tuple(map(np.zeros, (n, dimension, n))), parameters=(a, b, run.scale)
    )


# ------------------------------------------------------------------------------------------------------
# 8.4 own methods
# ------------------------------------------------------------------------------------------------------
#
# After every product the problem in the span of all past ones is solved.  `_extend` makes the product, `_minimize`
# solves that problem by Newton's method, and `_settle` keeps the mixtures and chooses mu as the theorems allow.

_TAU = 0.5  # the step along a new direction, from which the descent begins
_LAMBDA = -math.log(1.0 - _TAU) - _TAU  # of the tilt
_THETA = 0.04  # part of ||p||_G that the gradient in the span may have while nothing is separated
_NEWTON_STEPS = 40  # in a row that do not halve the gradient: rounding lets it get no shorter
_RECENT = 14  # products that the shortest mixture is looked for among


class _Span(NamedTuple):
    """Keep the span of past Z'q, by an orthonormal basis v_0, v_1, ..., and points in it; lengths in units of sqrt(s).

    What has an entry for every v_j grows with the basis.
    """

    coordinates: (
        np.ndarray
    )  # (k, dimension) of v_j where inner products are taken by them, else (k, 0)
    margins: np.ndarray  # (k, n) Z v_j
    weights: np.ndarray  # (k, n), of which Z' makes v_j
    y: np.ndarray  # (k,) the minimiser
    points: (
        np.ndarray
    )  # (1 + k, 16) the shortest mixture, that of a phase, recent Z'q; first, what v_j leave out
    shares: np.ndarray  # (16, n) their weights
    q: np.ndarray  # (n,) of the next product
    tilt: np.ndarray  # (n,) 1 - sum_j <z_i, v_j>^2
    best: np.ndarray  # (1,) L, the margin of alpha
    mu: np.ndarray  # (1,) 0 until the points are separated
    first: np.ndarray  # (1,) mu where the phase began
    total: np.ndarray  # (1,) sum of 1 / r^2 over the phase


def _new_span(n, dimension):
    """Make the span of nothing."""
    grows = map(np.zeros, ((0, dimension), (0, n), (0, n), 0, (1, 2 + _RECENT)))
    return _Span(
        *grows,
        np.full((2 + _RECENT, n), 1.0 / n),
        np.full(n, 1.0 / n),
        np.ones(n),
        np.full(1, -np.inf),
        np.zeros(1),
        np.full(1, np.inf),
        np.zeros(1),
    )


def _negligible(G):
    """Bound the square of a length, in units of sqrt(s), that may be all rounding, also of what is taken from it."""
    rounding = G.rounding()
    return 16.0 * rounding.square + (100.0 * max(rounding.length, _gamma(G.shape()[0]))) ** 2


def _extend(G, span, unit, negligible):
    """Spend a product on u = Z'q, whose rest beyond the span joins the basis; return u, and its length r or 0.

    Gram-Schmidt twice: by coordinates, or by weights and margins with the product between the two.
    """
    q = span.q
    w = np.empty(G.shape()[1])
    m = np.empty(span.q.size)
    d = span.coordinates.shape[1]
    if d:
        lift(G, q, w)
        w /= unit
        t = span.coordinates @ w
        w -= t @ span.coordinates
        again = span.coordinates @ w
        w -= again @ span.coordinates
        margins(G, w, m)
        m /= unit
        size = w @ w
        rest = q - (t + again) @ span.weights
    else:
        t = span.margins @ q
        rest = q - t @ span.weights
        m = _image(G, rest) / (unit * unit)
        again = span.margins @ rest
        rest -= again @ span.weights
        m -= again @ span.margins
        size = max(rest @ m, 0.0)
    t += again
    r = math.sqrt(size)
    if size <= negligible or t.size == min(m.size, w.size):
        return np.append(r, t), 0.0
    for array, row in zip(span[:5], (w[:d] / r, m / r, rest / r, _TAU, 0.0), strict=True):
        array.resize((len(array) + 1, *array.shape[1:]), refcheck=False)
        array[-1] = row
    np.maximum(span.tilt - span.margins[-1] ** 2, 0.0, out=span.tilt)
    return np.concatenate(([0.0], t, [r])), r


def _minimize(span, alpha, mu, accuracy):
    """Take Newton steps on phi(y) = mu ||y||^2 / 2 + ln sum_i exp(lambda tilt_i - (M'y)_i), M the margins of the basis.

    They end at a gradient of length ``accuracy`` or less, with mu = 0 also at the first y that separates, and where
    rounding lets the gradient get no shorter.  After another mu they begin at the better of y and what stands for the
    same mu y.  Sets q = softmax(lambda tilt - M'y), keeps the best alpha, and returns phi(y).
    """
    y = span.y
    M = span.margins
    q = span.q
    trial = np.empty(span.q.size)
    m = y @ M
    shift = _LAMBDA * span.tilt
    scale = span.mu[0] / mu if span.mu[0] > 0.0 else 1.0
    value = 0.5 * mu * (y @ y) + _softmax(m - shift, q)
    new = 0.5 * mu * scale**2 * (y @ y) + _softmax(scale * m - shift, trial)
    if new < value:
        y *= scale
        m *= scale
        q[:] = trial
        value = new
    span.mu[0] = mu
    ridge = 1e-9
    length = 1.0
    shortest = math.inf
    idle = 0
    while idle < _NEWTON_STEPS:
        mean = M @ q
        downhill = mean - mu * y
        slope = downhill @ downhill
        if slope <= accuracy**2 or (mu == 0.0 and m.min() > 0.0):
            break
        idle = 0 if slope < 0.25 * shortest else idle + 1
        shortest = min(shortest, slope)
        if length < 1.0:  # with mu = 0 the Hessian may be 0, where one point has all weight
            ridge = min(1e-9, 10.0 * ridge)
        elif idle > 0:  # or far below its trace along the gradient, where phi has no minimum
            ridge *= 0.1
        active = np.flatnonzero(
            q > min(1e-9, 0.1 * accuracy) / q.size
        )  # the columns that matter to the Hessian
        columns = M.take(active, axis=1)
        columns -= mean[:, None]
        columns *= np.sqrt(q[active])
        H = columns @ columns.T
        raised = mu if mu > 0.0 else ridge * (H.trace() + slope)
        H.flat[:: len(H) + 1] += max(raised, 4.0 * _EPS * H.trace())
        step = np.linalg.solve(H, downhill)
        move = step @ M
        decrease = step @ downhill
        length = 1.0
        while length > 1e-18:
            new = 0.5 * mu * np.sum((y + length * step) ** 2) + _softmax(
                m + length * move - shift, trial
            )
            if new <= value - 0.25 * length * decrease + 4.0 * _EPS * abs(value):
                break
            length *= 0.5
        else:
            break
        y += length * step
        m += length * move
        q[:] = trial
        value = new
    size = math.sqrt(y @ y)
    if size > 0.0 and m.min() > span.best[0] * size:
        span.best[0] = m.min() / size
        alpha[:] = (y / size) @ span.weights
    return value


@njit(cache=_CACHE)
def _shortest(K):
    """Return weights of a short mixture of points with inner products K, by exchanges.

    They begin at the shorter of the first two, and first go towards the last, as the theorems ask.
    """
    away = 0 if K[0, 0] <= K[1, 1] else 1
    c = np.zeros(len(K))
    g = K[away].copy()
    to = len(K) - 1
    c[away] = 1.0
    for _ in range(1000):
        rise = g[away] - g[to]
        bend = K[to, to] - 2.0 * K[to, away] + K[away, away]
        share = min(c[away], max(rise, 0.0) / max(bend, 1e-300))
        c[to] += share
        c[away] -= share
        g += share * (K[to] - K[away])
        to = g.argmin()
        away = np.where(c > 0.0, g, -np.inf).argmax()
        if g[away] - g[to] <= 1e-9 * g[away]:
            break
    return c


def _mix(span, q, u, r):
    """Take u = Z'q into the mean of a phase, with weight 1 / r^2, and among the points of which p is the shortest."""
    points = span.points
    shares = span.shares
    if u.size <= 1 + (r > 0.0):
        points[:] = u[:, None]  # the first is all there is
        shares[:] = q
    points[:, 2:-1] = points[:, 3:]
    shares[2:-1] = shares[3:]
    points[:, -1] = u
    shares[-1] = q
    if span.mu[0] > 0.0:
        weight = 1.0 / max(r * r, 1e-300)
        span.total[0] += weight
        points[:, 1] += weight / span.total[0] * (u - points[:, 1])
        shares[1] += weight / span.total[0] * (q - shares[1])
    c = _shortest(points.T @ points)
    x = points @ c
    if x @ x < points[:, 0] @ points[:, 0]:
        points[:, 0] = x
        shares[0] = c @ shares
        shares[0] /= shares[0].sum()


def _settle(span, alpha, u, r):
    """Take u = Z'q into the mixtures, and y and q to the minimum over the span, at the mu that the theorems allow."""
    bound = math.log(span.q.size) + _LAMBDA
    mu = span.mu[0]
    _mix(span, span.q, u, r)
    size = span.points[:, 0] @ span.points[:, 0]
    floor = 1e-12 * math.sqrt(size)  # of mu, below which margins have no digits
    if span.y.size == 0 or floor < 1e-28 or (0.0 < mu <= floor and r == 0.0):
        return  # there is nothing left but rounding
    if mu == 0.0:
        _minimize(span, alpha, 0.0, _THETA * math.sqrt(size))
        if not span.best[0] > 0.0:
            return
        span.mu[0] = math.sqrt(
            size / (span.y @ span.y)
        )  # with which y stands for a separator of this length
    if mu <= floor:
        span.first[0] = mu = math.inf
    gap = size - span.best[0] ** 2
    ends = span.total[0] > 9.0 / (bound * span.first[0])
    if ends:
        mu = min(mu, 0.5 * span.first[0])
    mu = max(min(mu, gap / bound), floor)
    if gap <= 0.02 * size:
        span.tilt[:] = 0.0  # below 1 % what it promises is less than what it costs
    while True:
        if mu <= 0.5 * span.first[0]:
            span.first[0] = mu
            span.total[0] = 0.0
        value = _minimize(span, alpha, mu, math.sqrt(bound * mu / 32.0))
        if mu <= floor or (r > 0.0 and (4.0 * r * r > gap or mu * value + 0.5 * size > bound * mu)):
            break
        mu *= 0.5


def _cut(span):
    """Cut the span down to that of the mixtures and the minimiser."""
    span.points[:, 2:] = span.points[:, :1]
    span.shares[2:] = span.shares[0]
    basis = np.linalg.qr(np.column_stack((span.points[1:, :2], span.y)))[0].T
    rows = [basis @ array for array in span[:4]]
    rows.append(np.vstack((span.points[:1], basis @ span.points[1:])))
    for array, kept in zip(span[:5], rows, strict=True):
        array.resize(kept.shape, refcheck=False)
        array[:] = kept
    span.tilt[:] = np.maximum(1.0 - (span.margins**2).sum(axis=0), 0.0)


def _subspace_loop(G, k, until, alpha, span, unit, memory, negligible, least, eps, blurs):
    """Bring Z'q into the span by a product; p, mu, y and the next q follow at no product."""
    n, dimension = G.shape()
    w = np.empty(dimension)
    m = np.empty(n)
    while True:
        m[:] = math.inf  # so that a product decides
        if (
            span.best[0] > 0.0
            and least < math.inf
            and _is_separated(G, alpha, w, m, least * np.abs(alpha).sum())
        ):
            return k, SEPARATED
        length = unit * math.sqrt(span.points[:, 0] @ span.points[:, 0])
        if 0.0 < eps >= length and k > 0 and _is_small(G, span.shares[0], w, m, eps, blurs):
            return k, INFEASIBLE
        if k >= until:
            return k, RUNNING
        if memory <= span.y.size < min(n, dimension):
            _cut(span)
        _settle(span, alpha, *_extend(G, span, unit, negligible))
        k += 1


@_algorithm
def subspace_perceptron(
    G: GramLike,
    *,
    eps: float = 0.0,
    memory: float = 1e9,
    stop: str | None = None,
    max_iter: int = 1000,
    tol: float | None = None,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | None = None,
) -> Result:
    """Subspace perceptron: after N products a separator, or a certificate ||p||_G = O(ln(n) sqrt(s) / N^(3/2)).

    Keeps the span V_k of all past Z'p_j and solves the problem in it afresh at no product, with weights tilted by what
    V_k explains of each point.  P_k projects on V_k, lambda = ln 2 - 1/2, mu = 0 until the points are separated, and

        phi_k(y) = mu ||y||^2 / 2 + ln sum_i exp(lambda T_k(i) - <z_i, y>)  on V_k,   T_k(i) = 1 - ||P_k z_i||^2,
        p_k = softmax(lambda T_k - Z y_k) for y_k near its minimum,   b_k = P_k Z'p_k,   r_k v_k = Z'p_k - b_k,

    lengths in units of sqrt(s); v_k, a unit vector, joins the span.  p is the shortest mixture found of p, of the last
    14 p_j and of their mean since mu was halved, with weights 1/r_j^2; first it goes towards p_k as far as that is
    shorter.  alpha is the y_k of the largest margin; its weights may have either sign.  Once there is a margin, with L
    that of alpha, U = ||p||_G and Lambda = ln n + lambda, mu falls: it is at most (U^2 - L^2) / Lambda, and halved
    where the theory or a short r_k allow it.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    eps : float
        Stop as "infeasible" at ||p||_G <= eps, not scaled by sqrt(s); 0: never.
    memory : float
        Bytes for the basis, at least five vectors of 16 n, with features 16 n + 8 d; the p_j have 128 n.  A larger
        span is cut down to that of p, the mean and y_k.  No bound is lost, but the theorems end there.
    stop : {None, "separated"}
        Go on towards the maximum margin, or end at G alpha > 0.

    Notes
    -----
    Theorem.  After N products either Z y_N > 0 or ||p||_G <= (R + 1/4) / (0.96 N^(3/2)), R = 2 (ln n + lambda).  So
    after floor(((R + 1/4) / (0.96 e))^(2/3)) + 1 products either the points are separated or no margin is as large as
    e, and ||p||_G < e proves it, where `snkp` and `momentum` take (8 ln n)^(1/2) / e.  Up to logarithms, no
    deterministic method that sees Z by products alone does with fewer on all data (Kornowski & Shamir).

    Proof.  y_k is a point of V_k with (i) phi_k(y_k) <= phi_k(y_{k-1} + v_{k-1} / 2), or phi_k(y_{k-1}) if r_{k-1} = 0,
    and (ii) ||b_k|| <= theta ||x_{k-1}||, where theta = 1/25, x = Z'p.  A descent from there comes to one or to a
    separator: phi_k is convex and smooth, -b_k its gradient.  If phi_k is bounded below, gradients become as short as
    one likes; if not, phi_k falls below 0, and by (a) Z y > 0 there.
    (a) If <z_i, y> <= 0 for an i, then phi_k(y) >= 0, for T_k >= 0.  And phi_0 = ln n + lambda.
    (b) -ln(1 - a/2) - a/2 = sum_{j > 1} (a/2)^j / j <= lambda a^2 for |a| <= 1, so exp(-a/2 - lambda a^2) <= 1 - a/2.
    With a_i = <z_i, v_k> and p = p_k: T_{k+1} = T_k - a^2 and sum_i p_i a_i = <Z'p, v_k> = r_k, so
    phi_{k+1}(y_k + v_k/2) = phi_k(y_k) + ln sum_i p_i exp(-a_i/2 - lambda a_i^2) <= phi_k(y_k) - r_k/2.  If y_N does
    not separate, (a) and (i) thus give sum_{k < N} r_k <= R.
    (c) x_{k-1} and b_k lie in V_k, and v_k is orthogonal to it.  With d = 1 - theta, a share c of p_k makes ||x_k||^2
    at most (1 - c d)^2 ||x_{k-1}||^2 + c^2 r_k^2.  If r_k^2 >= d theta ||x_{k-1}||^2, the best c is at most 1 and gives
    1/||x_k||^2 >= 1/||x_{k-1}||^2 + d^2 / t_k^2 with t_k = r_k, as x_0 = r_0 v_0 does.  Otherwise c = 1 gives
    ||x_k|| <= theta^(1/2) ||x_{k-1}||, which is the same with t_k = (d theta)^(1/2) ||x_{k-1}||; of these t_k each is
    at most theta^(1/2) times the one before, so that they sum to (d theta)^(1/2) / (1 - theta^(1/2)) < 1/4 at most.
    (d) By Hoelder N = sum t_k^(2/3) t_k^(-2/3) <= (sum t_k)^(2/3) (sum t_k^-2)^(1/3) <= ((R + 1/4) / (d ||x||))^(2/3),
    x = x_{N-1}.  And every p in the simplex has ||Z'p|| >= rho.

    From the separator on, upper - lower <= eps upper within 200 (R^2 / (eps rho^2))^(1/3) + log2(28 / (eps rho^2)) + 1
    products more, for 0.0101 <= eps <= 1/2 and n >= 4 (figures/README.md has the proof).  Where the gap is below 1 %
    there is no tilt and no claim.  The span takes O(k (n + d)) operations beside product k, and Newton steps O(k^2 n).
    One product per iteration.

    The theorems are about exact arithmetic.  A piece r_k v_k that may be all rounding is left out: r_k below some
    1e-14 (n + d) with features, 6e-8 n^(1/2) with a dense G, 1e-3 in float32.  Newton steps stop short of (ii) where
    rounding asks for it, with features seen at ||p||_G < 1e-8 sqrt(s) alone.

    References
    ----------
    A. Nemirovski, Izvestia AN SSSR, Tekhnicheskaya Kibernetika 2, 1982 (ORTH); G. Narkiss, M. Zibulevsky, Technion
    report CCIT 559, 2005 (a span of few directions); the inequality of (b): N. Cesa-Bianchi, Y. Mansour, G. Stoltz,
    Machine Learning 66, 2007; the lower bound: G. Kornowski, O. Shamir, COLT 2025; other methods that meet it:
    I. Karmarkar, L. O'Carroll, A. Sidford, STOC 2026, and, two with random numbers, COLT 2026.

    Examples
    --------
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> fm.subspace_perceptron(G, tol=1e-6).status, fm.subspace_perceptron(G, stop="separated").n_iter
    ('certified', 1)
    """
    eps = _number(eps, "eps", closed=True)
    memory = _number(memory, "memory")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    span = _new_span(n, dimension * _has_coordinates(run.G))
    most = max(5, int(memory / (8.0 * (2 * n + span.coordinates.shape[1]))))
    parameters = (
        math.sqrt(run.scale),
        most,
        _negligible(run.G),
        _separating_margin(run, stop),
        eps,
        _blurs(run),
    )
    return drive(
        run,
        _subspace_loop,
        (np.zeros(n), span),
        lambda alpha, span: (alpha, span.shares[0]),
        parameters=parameters,
        eps=eps,
    )


# ======================================================================================================
# 9 exact solver
# ======================================================================================================
#
# Minimize x'Hx / 2 - b'x over x >= 0: then p = c / sum c has the least ||p||_G.  Here root_i^2 = G_ii / s,
# x_i = c_i root_i, b_i = 1 / root_i and H_ij = G_ij / (s root_i root_j), so that H_ii = 1.  Keep c and u = G c / s in
# double precision, which give the gradient g_i = (u_i - 1) / root_i and the interval.  A round is one of four stages,
# each of which returns why it ends:
#
#     working set  make pair steps on the support and the points of least margin, in single precision; add violators;
#     faces        make Newton steps on the support in a working set, by an updated Cholesky factor; add violators;
#     Newton       make Newton steps on the separator, where there is a ridge, by its coordinates or by products;
#     blocks       make pair steps on the points that violate optimality most, a block of them at a time.
#
# `_first_stage` and `_next_stage` choose among them: pair steps on a working set; faces where these crawl, and first of
# all for rows without a ridge; Newton steps, or else blocks, where the support is too large.

_NARROW_BLOCK = 128  # points in a block where rows are at hand
_WIDE_BLOCK = 12_000  # and elsewhere: 0.6 GB in single precision
_AT_HAND = 20_000  # points of which Newton steps keep the kernel: 1.6 GB
_FEW_SLACK = (
    1000  # support beyond which, if it is a sixteenth and most have slacks, Newton steps take over
)
_LARGEST_FACE = 3000  # largest support that is given faces; twice as large where blocks get nowhere
_FIRST_FACE = 256  # largest support for which faces come first
_ROOM_FOR_PAIRS = 1 << 26  # entries of the rows of pairs that Newton steps write down
_LONGEST_STAGE = (
    10**10
)  # entries of factors that Newton steps may have read when a stage asks, between two walks
_PROBES = 128  # points of a working set of which nothing is known yet
_FINITE = _FAST | {"nnan"}  # for loops that choose by comparing; what they are given is finite
_BLOCKS, _FIRST_FACES, _NEWTON, _WORKING_SET, _FACES = range(5)


class _Dual:
    """Hold the problem in these units, read G for the stages, and count the entries read."""

    def __init__(self, G, scale, tol, eps):
        self.G = G
        self.scale = scale
        self.tol = 0.8 * tol
        self.eps = eps
        self.n = G.shape()[0]
        self.ridge = G.ridge
        self.diagonal = G.diagonal()
        self.narrow = G.access == "stored" and G.signs is None
        self.roots = np.sqrt(self.diagonal / scale)
        self.signs = G.signs
        self.sides = [np.arange(self.n)]
        if self.signs is not None:
            self.shift = np.zeros(self.n)
            self.sides = [np.flatnonzero(self.signs == sign) for sign in (1.0, -1.0)]
        self.block = min(self.n, (_WIDE_BLOCK, _NARROW_BLOCK)[self.narrow])
        self.largest = (
            _LARGEST_FACE if self.narrow else 2 * _LARGEST_FACE
        )  # support of a working set
        self.room = math.inf if self.narrow else _WIDE_BLOCK  # points in a working set
        self.patience = 4 if self.narrow else 32  # pair steps for each of them
        self.adder = G.adder()
        self.last = None
        self.reads = np.zeros(1)
        self.kept = (None, None)
        self.base = G.without_shift()
        of_base = float(self.base.diagonal().max())
        least = np.min(self.ridge)
        self.has_ridge = least > 0.0
        self.few = _has_few_coordinates(self.base) and least > max(1e-20 * of_base, 1e-200)
        smooth = self.few or (self.has_ridge and least >= 1e-8 * of_base)
        self.beyond = (
            _NEWTON if smooth else _BLOCKS
        )  # the stage for a support too large for working sets
        self.largest_face = (
            max(_FIRST_FACE, 2 * self.base.shape()[1]) if self.few else _LARGEST_FACE
        )

    def has_slacks(self, u):
        """Tell whether there is a ridge for Newton steps, and most points have slacks, so that these are best."""
        return self.beyond == _NEWTON and 2 * np.count_nonzero(u < 1.0) > self.n

    def begin(self, c, u, reads):
        """Forget what was read, on which no round may depend, and bring a free origin onto the plane of c, which, with
        its u, is as `finish` left it.

        The best plane is the best of those through a point o of it.  So o = Z'v is where the plane of c passes midway
        between the classes, and k (y'p)^2, k = 20 (max_i ||x_i - o||^2 + min_i r_i), is laid over ||p||_G^2.  The least
        ridge, not the largest: points of little weight must not take the digits of the others.  That is a proximal step
        on b: on a face F it divides y'p by 1 + k y_F' G_FF^-1 y_F, which is 21 or more by the Cauchy-Schwarz
        inequality, if G_FF is definite and F has a point of the least ridge.  Without a ridge G_FF may be singular: no
        factor is proved, and in 18,087 stages none was below 64.
        """
        self.adder = self.G.adder()
        self.last = None
        self.reads = reads
        if self.signs is not None:
            y = self.signs
            ridge = self.ridge
            m = u * self.scale - ridge * c
            b = _offset(y, u) * self.scale
            size = c @ m
            middle = (y * c) @ m
            v = (y - ((middle + b) / size if size > _EPS * self.scale else 0.0)) * c
            m = self.product(v)[1] - ridge * v
            self.shift = 0.5 * (v @ m) * y - m
            least = (
                8.0 * self.G.rounding().margins * self.scale
            )  # what rounding may leave of ||x_i - o||^2
            farthest = max((self.diagonal - ridge + 2.0 * y * self.shift).max(), least)
            self.shift += 10.0 * (farthest + np.min(ridge)) * y
            self.roots = np.sqrt(
                np.maximum(self.diagonal + 2.0 * y * self.shift, least) / self.scale
            )
            u += b / self.scale * y
            self.last = None

    def finish(self, c, u):
        """Bring c into the set that p ranges over, and u up to date from the origin of G."""
        for side in self.sides:
            c[side] /= len(self.sides) * c[side].sum()
        if self.signs is None:
            self.refresh(c, u)
        else:
            self.shift[:] = 0.0
            self.last = None
            self.refresh(c, u)
            u += _offset(self.signs, u) * self.signs

    def shifted(self, points, weights, at=slice(None)):
        """Return what the shift h of a free origin adds to products, at some points: that of G + h y' + y h'."""
        if self.signs is None:
            return 0.0
        y = self.signs
        h = self.shift
        return h[at] * (y[points] @ weights) + y[at] * (h[points] @ weights)

    def at_hand(self, c, u):
        """Return (points, G on them without its ridge): all points or those that matter, in single precision if it is
        evaluated on demand, and then the upper triangle alone, as products ask for no more; None if there is no room.
        """
        points = np.arange(self.n)
        G = self.base
        if not isinstance(G.points_gram(), LazyGram):
            return points, G
        near = np.flatnonzero((c > 0.0) | (u < 1.0))
        points = near if 2 * near.size < self.n else points
        if not np.array_equal(points, self.kept[0]):
            self.kept = (None, None)
            G = G.restrict(points)
            K = G.points_gram()
            n = K.shape()[0]
            if n > _AT_HAND:
                return points, None
            matrix = np.empty((n, n), np.float32)
            for rows in _slices(n, n):
                first = max(0, rows.start - _STREAMS) if G is K else 0
                columns = slice(first, n)
                matrix[rows, columns] = K.block(rows, columns)
            if G is not K:
                G.K = _SingleGram(matrix)
            self.kept = points, DenseGram(matrix) if G is K else G
        return self.kept

    def place(self, points, start, H):
        """Fill in H among the points, from row and column ``start`` on."""
        roots = self.roots[points]
        step = max(1, _AT_ONCE // points.size)
        for first in range(start, points.size, step):
            rows = points[first : first + step]
            stop = first + rows.size
            target = H[first:stop, :stop]
            block = self.G.block(rows, points[:stop])
            columns = points[:stop]
            if self.signs is not None:
                block += np.outer(self.shift[rows], self.signs[columns])
                block += np.outer(self.signs[rows], self.shift[columns])
            np.divide(block, self.scale * roots[:stop], out=target, casting="same_kind")
            target /= roots[first:stop, None]
            self.reads[0] += target.size
            _mirror(first, stop, H)

    def product(self, v):
        """Return (v'Gv, G v), by columns of the support if G has an adder; keep those of the last v."""
        if self.last is None or not np.array_equal(v, self.last[0]):
            if self.adder:
                m = np.zeros(self.n)
                support = np.flatnonzero(v)
                w = np.empty(self.G.shape()[1])
                self.adder(support, v[support], m)
                lift(
                    self.G, v, w
                )  # a copy, beside the share of a ridge, which `square` takes in twice the precision
                self.last = (
                    v,
                    _nonnegative(square(self.G, v, w, m), self.G.rounding().square * self.scale),
                    m,
                )
            else:
                self.last = v, *_squares_and_margins(self.G, self.scale, v)[0]
        return self.last[1:]

    def refresh(self, c, u):
        """Set u to G c / s."""
        self.reads[0] += self.n * (np.count_nonzero(c) if self.adder else self.n)
        v = _unit_range(c)
        np.multiply(
            self.product(v)[1] + self.shifted(slice(None), v), c.max() / v.max() / self.scale, out=u
        )

    def change(self, c, u, points, weights):
        """Give some points new weights, bring u up to date, afresh if most of the support changes, and `_rescale`."""
        moves = weights - c[points]
        moved = np.flatnonzero(moves)
        c[points] = weights
        if self.adder and moved.size <= 0.8 * np.count_nonzero(c):
            self.reads[0] += self.n * moved.size
            self.adder(points[moved], moves[moved] / self.scale, u)
            u += self.shifted(points[moved], moves[moved] / self.scale)
        else:
            self.refresh(c, u)
        return _rescale(c, u)


class _SingleGram(Representation):
    """A kernel matrix whose products with the weights of all classes are one product of matrices, in its precision."""

    def __init__(self, matrix):
        self.matrix = matrix

    def shape(self):
        return self.matrix.shape

    def lift(self, v, w):
        w[:] = v

    def margins(self, w, m):
        np.matmul(w.astype(self.matrix.dtype), self.matrix, out=m, casting="unsafe")

    table_margins = margins


def _rescale(c, u):
    """Bring c and u to the best multiple of c; return its relative gap 1 - min u and ||p||_G / sqrt(s)."""
    total = float(c.sum())
    size = _dot(c, u)
    if not size > 1e-300 * total:
        return np.inf, 0.0
    c *= total / size
    u *= total / size
    return 1.0 - float(u.min()), math.sqrt(size) / total


@register_jitable
def _gap(x, g, roots):
    """Return the relative gap within a working set."""
    total = 0.0
    size = 0.0
    low = np.inf
    for k in range(x.size):
        u = 1.0 + g[k] * roots[k]
        weight = x[k] / roots[k]
        total += weight
        size += weight * u
        low = min(low, u)
    return 1.0 - total * low / size if size > 0.0 else np.inf


# Pair steps
#
# A step goes to the minimum in two coordinates i, j.  i violates optimality most; j is the largest
# (g_j - g_i r)^2 / (1 - r^2), r = H_ij, the gain of the pair over i alone, to two terms of the series, as far as x_j
# allows.  Where both bounds stop the pair, the minimum is on the edge x_i = 0, if g_i >= 0 there, or else on x_j = 0.


@register_jitable
def _argmax(scores, n):
    """Find the largest of n scores of at least 0 by stretches of 64, the last of which goes on in zeros."""
    place = 0
    top = np.float32(0.0)
    for start in range(0, n, 64):
        most = np.float32(0.0)
        for k in range(start, start + 64):
            most = max(most, scores[k])
        if most > top:
            place = start
            top = most
    while scores[place] < top:
        place += 1
    return place


@njit(cache=_CACHE, fastmath=_FINITE)
def _pair_steps(H, x, g, moves, roots, target, most):
    """Make at most ``most`` pair steps, until the gap is ``target``, with g kept up to date; return how many."""
    n = x.size
    one = np.float32(1.0)
    zero = np.float32(0.0)  # moves: what x, which may be much larger, changes by
    scores = np.zeros(n + 64, dtype=np.float32)
    few = max(16, n // 8)
    i = 0
    j = 0
    move = zero
    change = zero
    for step in range(most + 1):
        row = H[i]
        mirror = H[j]
        for k in range(n):
            now = g[k] + (move * row[k] + change * mirror[k])
            g[k] = now
            scores[k] = max(-now, min(now, x[k]))
        i = _argmax(scores, n)
        if (
            step == most
            or not scores[i] > zero
            or (step > 0 and step % few == 0 and _gap(x, g, roots) <= target)
        ):
            break
        row = H[i]
        slope = g[i]
        a = x[i]
        for k in range(n):
            r = row[k]
            reach = min(g[k] - slope * r, x[k])
            r2 = r * r
            scores[k] = reach * reach * (one + r2) * (one + r2 * r2)
        scores[i] = zero
        j = _argmax(scores, n)
        r = other = b = zero
        if scores[j] > zero:
            r = row[j]
            other = g[j]
            b = x[j]
        shrink = one / max(one - r * r, np.float32(1e-6))
        move = (r * other - slope) * shrink
        change = (r * slope - other) * shrink
        if a + move < zero or b + change < zero:
            move = -a
            change = max(-b, r * a - other)
            if slope + move + r * change < zero:
                move = max(-a, r * b - slope)
                change = -b
        x[j] = max(x[j] + change, zero)
        x[i] = max(a + move, zero)
        moves[j] += change
        moves[i] += move
    return step


def _by_pairs(dual, c, u, points, H, target, most):
    """Change some points by steps in single precision; return (gap, norm, whether fewer than ``most`` sufficed)."""
    roots = dual.roots[points]
    x, g, moves = np.array(
        (c[points] * roots, (u[points] - 1.0) / roots, 0.0 * roots), dtype=np.float32
    )
    steps = _pair_steps(H, x, g, moves, roots, target, most)
    if not np.isfinite(x).all():  # rows too much alike for single precision, where steps run away
        return *_rescale(c, u), False
    weights = np.where(x > 0.0, np.maximum(c[points] + moves / roots, 0.0), 0.0)
    return *dual.change(c, u, points, weights), steps < most


# Blocks


def _violations(c, u, roots):
    """Return max(-g, min(g, x)), and -g where x = 0, which puts points of no violation in order."""
    g = (u - 1.0) / roots
    return np.where(c > 0.0, np.maximum(-g, np.minimum(g, c * roots)), -g)


def _over_blocks(dual, c, u, gap):
    """Make pair steps on blocks for four products' worth of columns; return why they end."""
    n = dual.n
    size = dual.block
    seen = np.zeros(dual.n, dtype=bool)
    ended = gap <= dual.tol
    target = 0.1 * gap if ended else dual.tol
    H = np.empty((size, size), np.float32)
    few = max(n // 2, 4 * _NARROW_BLOCK)  # a larger support is left to blocks
    for turn in range(4 * n // size + 1):
        block = np.sort(np.argpartition(_violations(c, u, dual.roots), -size)[-size:])
        if (
            turn
            and 5 * np.count_nonzero(~seen[block]) < size
            and np.count_nonzero(c) <= min(few, dual.largest)
        ):
            return "settled"
        seen[block] = True
        dual.place(block, 0, H)
        gap, norm, _ = _by_pairs(dual, c, u, block, H, 0.1 * gap, dual.patience * size // 8)
        if gap <= target or norm <= dual.eps:
            return "near"
    return "crawls"


# Working sets


def _grown(dual, points, H, u, most, below=np.inf):
    """Add points of u below a bound, at most so many, the least; return (points, H)."""
    outside = u.copy()
    outside[points] = np.inf
    found = np.flatnonzero(outside < below)
    found = np.sort(found[np.argsort(u[found])[:most]])
    placed = points.size if H.size else 0
    points = np.append(points, found)
    if points.size > len(H):
        H = _widened(
            H[:placed, :placed], max(points.size, min(3 * points.size // 2 + 64, dual.room))
        )
    dual.place(points, placed, H)
    return points, H


def _working_set(dual, dtype, c, u):
    """Return (points, H): the support, and half as many points of least margin."""
    points = support = np.flatnonzero(c)
    if support.size <= len(dual.sides):  # nothing is known yet
        points = np.union1d(support, np.arange(0, dual.n, -(-dual.n // _PROBES)))
    return _grown(dual, points, np.empty((0, 0), dtype), u, support.size // 2 + 64)


def _on_working_set(dual, c, u, gap):
    """Make pair steps on a working set that grows; return why they end."""
    (points, H) = _working_set(dual, np.float32, c, u)
    closed = False
    while np.count_nonzero(c) <= dual.largest:
        if np.count_nonzero(c) > max(_FEW_SLACK, dual.n // 16) and dual.has_slacks(u):
            return "large"
        m = points.size
        before = gap
        target = max(0.5 * dual.tol, (0.03 if closed else 0.1) * gap)
        gap, norm, enough = _by_pairs(dual, c, u, points, H, target, dual.patience * m)
        if gap <= dual.tol or norm <= dual.eps:
            return "near"
        if gap > 0.3 * before and (closed or not enough):
            return "crawls"
        if m >= dual.room:
            return "large"
        points, H = _grown(
            dual, points, H, u, min(max(96, m // 4), dual.room - m), 1.0 - 0.25 * dual.tol
        )
        closed = points.size == m
    return "large"


# Faces
#
# A round makes Newton steps on the faces of a working set, with room for more points.  After a full step the worst
# violators enter.


@njit(cache=_CACHE, fastmath=_FAST)
def _walk_faces(H, face, wish, x, g, k, most, tol, eps):
    """Minimize over a working set by about ``most`` changes; enter ``wish`` < 0 first; return (k or -1, changes)."""
    roots, _, P, inside = face
    m = x.size
    changes = 0
    few = x.size
    bar = 0.0
    while True:
        for _ in range(few):
            i = np.argmin(wish)
            if not wish[i] < bar:
                break
            wish[i] = 0.0
            g[i] = _dot(H[i, :m], x) - 1.0 / roots[i]
            k = _append(face, H[i], x, g, k, i, eps)
            changes = changes + 1
            if k < 0:
                return k, changes
        k, steps = _descend(face, x, g, k)
        changes += steps
        for i in range(m):
            g[i] = -1.0 / roots[i]
        for a in range(k):
            row = H[P[a]]
            weight = x[P[a]]
            for i in range(m):
                g[i] += weight * row[i]
        for i in range(m):
            wish[i] = 0.0 if inside[i] else g[i]
        few = 1 + k // 32
        bar = 0.1 * wish[np.argmin(wish)]
        if not bar < 0.0 or changes >= most or _gap(x, g, roots) <= tol:
            return k, changes


def _on_faces(dual, c, u, gap, most=np.inf):
    """Make Newton steps while at most ``most`` points are in the face, until only rounding is left; return why."""
    points, H = _working_set(dual, np.float64, c, u)
    rough = gap > dual.tol
    L = np.empty((0, 0))
    P = np.empty(0, np.int64)
    norm = np.inf
    work = 0
    while True:
        m = points.size
        k = P.size
        roots = dual.roots[points]
        inside = np.bincount(P, minlength=m) > 0
        L = _widened(L[:k, :k], m)
        P = np.append(P, np.zeros(m - k, np.int64))
        x = c[points] * roots
        g = (u[points] - 1.0) / roots
        k, steps = _walk_faces(
            H,
            (roots, L, P, inside),
            np.where(inside, 0.0, -x),
            x,
            g,
            k,
            5 * m + 500,
            0.5 * dual.tol,
            dual.eps,
        )
        if not 0.0 < x.sum() < np.inf:  # by rounding
            return "ended"
        before = norm
        (gap, norm) = dual.change(c, u, points, x / roots)
        crawls = steps >= 5 * m + 500 and norm > 0.9 * before
        work = work + steps * k * k
        if (
            k < 0
            or k > most
            or norm <= dual.eps
            or (rough and gap <= dual.tol)
            or crawls
            or work > _LONGEST_STAGE
        ):
            is_lost = (
                crawls and norm * norm <= 64.0 * m * _EPS
            )  # which the factor cannot tell from 0
            return "ended" if is_lost else "crawls"
        P = P[:k]
        points, H = _grown(dual, points, H, u, max(96, m // 4), 1.0 - 0.25 * dual.tol)
        if points.size == m:
            break
    weights = _refined(dual, c[points[P]], points[P], L)
    if weights is not None:
        dual.change(c, u, points[P], weights)
    return "ended"


def _refined(dual, weights, points, L):
    """Return the weights after Newton steps on a face by products in twice the working precision, while these help.

    Return None if G has no such products.
    """
    if dual.G.precise(np.zeros(dual.n)) is None:
        return None
    part = dual.G.restrict(points)
    roots = dual.roots[points]
    spread = np.inf
    for _ in range(10):
        total = 2.0 ** math.frexp(weights.sum())[1]
        m = part.precise(weights / total)[1] + dual.shifted(points, weights / total, points)
        g = (m * (total / dual.scale) - 1.0) / roots
        size = np.abs(g).max()
        step = g.copy()
        _solve(L, g.size, step)
        if not (size < 0.5 * spread and (weights - step / roots).min() > 0.0):
            break
        weights = weights - step / roots
        spread = size
    return weights


# Newton steps
#
# For the ridge r minimize ||w||^2 / 2 + sum_i max(0, 1 - <z_i, w>)^2 / (2 r_i) over w = sum_i v_i z_i, which c_i =
# s max(0, 1 - <z_i, w>) / r_i attains.  A step takes equations in the coordinates, where these are few, or a few dozen
# products.


def _minimizing_step(m, rise, ridge, slope, curvature):
    """Minimize slope t + curvature t^2 / 2 + sum_i max(0, 1 - m_i - t rise_i)^2 / (2 ridge_i), falling at t = 0."""
    t = 1.0
    low = 0.0
    high = math.inf
    for _ in range(
        100
    ):  # Newton steps on the derivative, which is piecewise linear, between known bounds
        part = np.where(m + t * rise < 1.0, rise, 0.0) / ridge
        root = ((1.0 - m) @ part - slope) / (curvature + rise @ part)
        if abs(root - t) <= 1e-12 * t:
            break
        if root > t:
            low = t
        else:
            high = t
        t = root if low < root < high else 0.5 * (low + high)
    return t


def _has_few_coordinates(G):
    """Tell whether Newton steps go by coordinates: fewer than the points, and of pairs of classes in 0.5 GB."""
    rows = G.points_gram()
    if not isinstance(rows, FeatureGram):
        return False
    n, d = G.shape()
    return d < min(n, _LARGEST_FACE) and (rows is G or n * d <= _ROOM_FOR_PAIRS)


def _coordinates(G):
    """Return the rows z of G, those of pairs written down: x_i (x) (e_{y_i} - e_j) / sqrt(2)."""
    if not isinstance(G, PairGram):
        return G.rows
    rows = np.zeros((G.point.size, G.n_classes, G.K.shape()[1]))
    pairs = np.arange(G.point.size)
    rows[pairs, G.right] = math.sqrt(0.5) * G.K.rows[G.point]
    rows[pairs, G.wrong] = -rows[pairs, G.right]
    return rows.reshape(pairs.size, -1)


def _with_bias(rows, signs):
    """Return (rows, penalty): with a free intercept the bias is a coordinate more, without a part in ||w||^2."""
    penalty = np.ones(rows.shape[1])
    if signs is None:
        return rows, penalty
    return np.column_stack((rows, signs)), np.append(penalty, 0.0)


def _newton_in_coordinates(rows, ridge, penalty, w):
    """Minimize sum_j penalty_j w_j^2 / 2 + sum_i max(0, 1 - <z_i, w>)^2 / (2 r_i) over w, from this one on.

    Return w, the weights max(0, 1 - <z_i, w>) / r_i and the number of steps.  Equations are solved for columns scaled
    to unit length, so that those of any unit solve alike; they are definite by rounding, too.
    """
    m = rows @ w
    kept = w
    value = math.inf
    steps = 0
    while steps < 200:
        slacks = np.maximum(1.0 - m, 0.0)
        before = value
        value = (penalty * w) @ w + slacks @ (slacks / ridge)
        if not value < before:
            break
        active = slacks > 0.0
        part = rows[active] / np.sqrt(ridge[active])[:, None]
        lengths = np.sqrt(penalty + np.einsum("ij,ij->j", part, part))
        lengths[lengths == 0.0] = 1.0
        part /= lengths
        equations = np.diag(penalty / lengths**2 + 4.0 * _EPS * w.size) + part.T @ part
        downhill = (slacks / ridge) @ rows - penalty * w
        step = np.linalg.solve(equations, downhill / lengths) / lengths
        if not downhill @ step > 0.0:
            break
        t = _minimizing_step(m, rows @ step, ridge, (penalty * w) @ step, (penalty * step) @ step)
        kept = w
        w = w + t * step
        m = rows @ w
        steps += 1
    w = w if value < before else kept
    return w, np.maximum(1.0 - rows @ w, 0.0) / ridge, steps


def _conjugate_gradients(product, stiffness, downhill, image, accuracy):
    """Solve step + stiffness G step = downhill to a relative accuracy; given products with G, and G downhill, return
    (step, G step, k), k the products that it took."""
    step = np.zeros(downhill.size)
    rise = np.zeros(downhill.size)
    left = downhill.copy()
    way = downhill.copy()
    m = image.copy()
    first = size = downhill @ image
    for k in range(1, 201):  # noqa: B007 - in the inner product of G, for which the equations are symmetric
        bend = way + stiffness * m
        length = size / (bend @ m)
        step += length * way
        rise += length * m
        left -= length * bend
        ahead = product(left)
        before = size
        size = left @ ahead
        if size <= accuracy**2 * first:
            break
        way *= size / before
        way += left
        m *= size / before
        m += ahead
    return step, rise, k


def _by_newton_steps(dual, c, u, gap):
    """Minimize by Newton steps, as far as what is at hand can tell; return why they end."""
    points, G = dual.at_hand(c, u)
    if G is None:
        return "large"
    if dual.few:
        rows, penalty = _with_bias(_coordinates(G), dual.signs)
        _, pull, steps = _newton_in_coordinates(
            rows, dual.G.ridge, penalty, penalty * (c / dual.scale @ rows)
        )
        dual.reads[0] += (2 * steps + 1) * dual.n**2
        if all(
            pull[side].any() for side in dual.sides
        ):  # not so where slacks are less than rounding
            c[:] = pull * dual.scale
        return "near"
    n = points.size
    ridge = dual.G.ridge[points]
    v = c[points] / dual.scale
    active = c[points] > 0.0
    error = math.inf
    m = u[points] - ridge * v
    goal = 0.3 * dual.tol
    if G is dual.kept[1]:
        goal = max(goal, 1e-3 * min(1.0, gap))  # the rest is for G in double precision

    def product(v):
        return _image(G, v) + dual.shifted(points, v, points)

    for _ in range(200):
        before = active
        active = m < 1.0
        last = error
        pull = np.maximum(1.0 - m, 0.0) / ridge
        downhill = pull - v
        stiffness = active / ridge
        image = product(downhill)
        error = np.abs(image).max()
        changed = np.count_nonzero(active != before)
        k = 1
        if error <= goal or (
            error > 0.5 * last and not changed
        ):  # u = 1 + image where active, or no less
            break
        accuracy = min(
            0.1, max(changed / n, 0.5 * goal / error)
        )  # of use before the active points change
        step, rise, k = _conjugate_gradients(product, stiffness, downhill, image, accuracy)
        dual.reads[0] += (k + 1) * n * n
        t = _minimizing_step(m, rise, ridge, v @ rise, step @ rise)
        v += t * step
        m += t * rise
    c[points] = pull * dual.scale
    return "near"


def _by_coordinates(G, tol):
    """Return (w, bias, p, lower, upper) of G with few coordinates by Newton steps on the separator itself, or None.

    Where columns have different units no weights in double precision give the best separator, but its coordinates do.
    A hard margin is the limit of soft ones with smaller and smaller ridges; from w, its least margin 1, the weights of
    the points on the margin solve w = Z'c.
    """
    whole = G
    ridge = G.ridge if isinstance(G, RidgeGram) else None
    scale = float(G.diagonal().max())
    G = G.without_ridge()
    base = G.without_shift()
    rows, penalty = _with_bias(_coordinates(base), G.signs)
    sides = [slice(None)] if G.signs is None else [G.signs > 0.0, G.signs < 0.0]
    w = np.zeros(penalty.size)
    best = None
    least = -math.inf
    mixture = None
    most = math.inf
    ridges = (
        [ridge]
        if ridge is not None
        else [np.full(len(rows), scale * 10.0**-k) for k in range(2, 32, 2)]
    )
    if (
        ridge is None
        and not (rows @ _newton_in_coordinates(rows, ridges[-1], penalty, w)[0]).min() > 0.0
    ):
        return None  # all but no weight on ||w||, and still some point is on the wrong side
    for given in ridges:
        w, p, _ = _newton_in_coordinates(rows, given, penalty, w)
        if ridge is None:
            m = rows @ w
            if not m.min() > 0.0:
                continue
            w = w / m.min()
            near = np.flatnonzero(p)
            if near.size <= w.size:
                p[near] = np.maximum(_weights_of(rows[near], penalty * w), 0.0)
        W = w[penalty > 0.0]
        W = math.sqrt(2.0) * W.reshape(base.n_classes, -1) if isinstance(base, PairGram) else W
        if not W.any() or not all(p[side].any() for side in sides):
            continue
        bias = float(w[-1]) if G.signs is not None else 0.0
        lower = _of_separator(G, ridge, W, bias, 0.0)[0]
        for side in sides:
            p[side] = _mixture(p[side], 1.0 / len(sides))
        upper = certificate(whole, p, p, precise=True)[1]
        if lower > least:
            best = (W, bias)
            least = lower
        if upper < most:
            mixture = p
            most = upper
        if most - least <= tol * most:
            break
    return None if best is None else (*best, mixture, least, most)


def _mixture(weights, total):
    """Return the weights scaled to this sum, to the last bit: as multiples of 2^-54, which add up without rounding."""
    p = np.round(weights * (2.0**54 * total / weights.sum())) / 2.0**54
    p[np.argmax(p)] += total - math.fsum(p)
    return p


def _weights_of(rows, w):
    """Return the weights c of rows with w = rows' c, by least squares in columns of length 1."""
    lengths = np.sqrt(np.einsum("ij,ij->j", rows, rows))
    lengths[lengths == 0.0] = 1.0
    return np.linalg.lstsq((rows / lengths).T, w / lengths, rcond=None)[0]


# Rounds


def _on_first_faces(dual, c, u, gap):
    """Go on faces while they are small."""
    return _on_faces(dual, c, u, gap, _FIRST_FACE)


_STAGES = (
    _over_blocks,
    _on_first_faces,
    _by_newton_steps,
    _on_working_set,
    _on_faces,
)  # as numbered above


def _first_stage(dual):
    """Choose where to begin without weights: with Newton steps where coordinates are few; on faces where points are
    few, and over rows without a ridge, where small faces pay; else on a working set."""
    if dual.few and dual.base.shape()[1] <= _FIRST_FACE:
        return _NEWTON
    if dual.n <= _FIRST_FACE:
        return _FACES
    return _WORKING_SET if dual.narrow or dual.has_ridge else _FIRST_FACES


def _next_stage(dual, stage, reason, u, support, halved):
    """Choose the stage after one that ended for a reason, and whether it halved the gap.

    Pair steps go on a working set, then faces where these crawl.  Newton steps, or blocks, follow where the support is
    too large.
    """
    small = support <= _LARGEST_FACE
    if stage == _FIRST_FACES or reason == "settled":
        return _WORKING_SET
    if stage == _NEWTON:
        after = _FACES if support <= dual.largest_face else _BLOCKS
        return _NEWTON if halved and reason != "large" else after
    if stage == _FACES:
        return _FACES
    if stage == _WORKING_SET and reason == "near" and dual.signs is not None and halved:
        return _WORKING_SET  # from a better origin
    if reason == "large" or not small or (reason == "crawls" and dual.has_slacks(u)):
        return dual.beyond
    return _FACES


def _exact_rounds(G, k, until, c, u, stage, reads, dual):
    """Go through a stage at every iteration: the loop that the driver is given."""
    while k < until:
        k += 1
        if math.sqrt(max(_dot(c, u), 0.0)) <= 0.63 * dual.eps * c.sum():  # the rest is for rounding
            return k, INFEASIBLE
        dual.begin(c, u, reads)
        start = c.copy()
        before = stage[0]
        (gap, norm) = _rescale(c, u)
        reason = _STAGES[before](dual, c, u, gap)
        is_lost = not all(c[side].any() for side in dual.sides)  # by rounding
        if is_lost:
            c[:] = start
        dual.finish(c, u)
        if is_lost:
            return k, EXHAUSTED
        shortest = math.sqrt(dual.last[1] / dual.scale) / dual.last[0].sum()
        if shortest <= 0.63 * dual.eps:
            return k, INFEASIBLE
        now = 1.0 - u.min() * c.sum() / _dot(c, u)  # of c as it is returned
        halved = now < 0.5 * gap
        support = np.count_nonzero(c)
        stage[0] = _next_stage(dual, before, reason, u, support, halved)
        if before == _NEWTON and dual.few and stage[0] == _BLOCKS:
            return k, EXHAUSTED  # of so many points on so few coordinates nothing else sees more
        if stage[0] == _BLOCKS != before and support > dual.largest:
            warnings.warn(
                f"max_margin may take long: {support} points are in the support, too many for working sets; "
                "noisy points ask for a soft margin, by a ridge or a finite C, or for a larger tol; a "
                "callback shows the interval",
                stacklevel=8,
            )
        ended = reason == "ended" or (before == _BLOCKS and gap <= dual.tol)
        ended |= before == _FACES and now > 0.9 * gap and shortest > (1.0 - dual.tol) * norm
        if (ended and not halved and shortest > 0.95 * norm) or (
            stage[0] == before and np.array_equal(c, start)
        ):
            return k, EXHAUSTED  # the next round would do the same
        crawls = stage[0] == before in (_BLOCKS, _WORKING_SET) and not halved
        if crawls and support <= 2 * _LARGEST_FACE:
            stage[0] = _FACES
    return k, RUNNING


@_algorithm
def max_margin(
    G: GramLike,
    *,
    max_iter: int = 100,
    tol: float = 1e-9,
    trace_at: ArrayLike | None = None,
    keep_iterates: bool = False,
    callback: Callback = None,
    start: Result | ArrayLike | None = None,
) -> Result:
    """The maximum margin to any tolerance, by working sets and Newton steps.

    Solves min c'Gc / 2 - sum c over c >= 0, of which p = c / sum c is the dual point.  An iteration is one of four
    stages: (1) pair steps on the support and the points of least margin, in single precision and refined in double;
    (2) where these crawl, Newton steps on the support with a ratio test, by one Cholesky factor; (3) where there is a
    ridge of at least 1e-8 s, a `RidgeGram`, and most points have slacks or the support is too large for (1), Newton
    steps on the separator by conjugate gradients; in its coordinates where these are fewer than the points and 3,000,
    with any ridge, and first of all where they are 256 or fewer; (4) without such a ridge, pair steps on blocks of the
    points that violate optimality most.  Rows without a ridge, and up to 256 points, begin with (2).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.

    Notes
    -----
    Stops as "certified" at upper - lower <= tol * upper; as "infeasible", that is no margin above eps exists, of which
    p is the proof, at upper <= eps = 1e-9 sqrt(s) (a dense G: 3e-8 sqrt(s); one evaluated on demand, and other
    libraries' products: at least 1.5 times what rounding leaves of ||p||_G); as "rounding" where neither can be
    proved: tol is out of reach below about 1e-15 s / rho^2 with a dense G (float32: 2e-7 s / rho^2, and no data are
    infeasible) and 1e-16 s / rho^2 with features, for want of digits of alpha.  Here s is that of G without the ridge,
    if it is a RidgeGram.
    With a free intercept every stage begins at an origin on the plane found before, and penalises the bias from there;
    once the support has settled, what is left of y'p falls by a factor of 21 or more a stage that is solved: proved
    with a ridge, without one seen (64 or more in 18,087 stages).
    start may also be n weights of at least 0, as the alpha of a problem of as many points, at another ridge or epoch.
    The run is a new one, which begins with them; nothing else is taken over, and certificates are of this G.

    alpha = p: at the optimum the primal and dual points coincide.  trace_at: every stage by default; `products` counts
    entries of G read / n^2.

    Memory beside G: up to three squares of one and a half times the support, and of a G evaluated on demand 0.25 GB of
    its columns; without them, each stage takes a product for every working set.  A support of more than 3,000 points,
    or 6,000 where G is not dense or the intercept is free, is left to (3), or without a ridge to (4), with blocks of
    128 points where it is 3,000 and of up to 12,000 elsewhere, 0.6 GB.  Of a kernel evaluated on demand (3) keeps a
    matrix in single precision, of the points that matter: 1.6 GB for 20,000 of them; more are left to (4).  Double
    precision corrects it, by one product for about three digits.  Pairs of few coordinates have their rows written
    down, up to 0.5 GB.

    References
    ----------
    The second-order choice of pairs: R.-E. Fan, P.-H. Chen, C.-J. Lin, JMLR 6, 2005; steps on a face with a ratio test:
    P. Wolfe, Mathematical Programming 11, 1976; their factor: P. Gill, G. Golub, W. Murray, M. Saunders, Mathematics of
    Computation 28, 1974; (3): O. Mangasarian, Optimization Methods and Software 17, 2002; O. Chapelle, Neural
    Computation 19, 2007.

    Examples
    --------
    >>> fm.max_margin(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-12).status
    'certified'
    """
    tol = _number(tol, "tol")
    weights = None
    if not _is_result(start) and np.ndim(start) == 1:
        weights = start
        start = None
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start, free_intercept=True)
    if trace_at is None:
        run = run._replace(checkpoints=np.arange(run.checkpoints[0], run.checkpoints[-1] + 1))
    blur = math.sqrt(run.G.rounding().square)
    # A ridge, however large, is not rounded.
    of_base = max(float(run.G.without_ridge().diagonal().max()), _SMALLEST)
    eps = (1e-9 if blur == 0.0 else 3e-8) * (math.sqrt(of_base) / math.sqrt(run.scale))
    if blur > 0.0 and run.G.precise(np.zeros(run.G.shape()[0])) is None:
        eps = max(eps, 1.5 * blur)
    if np.min(run.G.ridge) > 0.0:  # rho is at least (sum_i 1 / r_i)^(-1/2)
        with np.errstate(over="ignore"):
            eps = min(eps, 0.5 / math.sqrt((run.scale / run.G.ridge).sum()))
    dual = _Dual(run.G, run.scale, tol, eps)
    reads = np.zeros(1)
    c, u = np.zeros((2, dual.n))
    begin = _first_stage(dual)
    if weights is not None:
        c = _weights(_amounts(weights, "start", dual.n))
        support = np.count_nonzero(weights)
        if dual.signs is None and not dual.diagonal.all():
            c[:] = 0.0  # a row of zeros is a witness by itself: begin there
        begin = _BLOCKS
        if support <= 2 * _FIRST_FACE:
            begin = _FACES
        elif support <= dual.largest:
            begin = _WORKING_SET
    for side in dual.sides:
        if not c[side].any():
            c[side[np.argmin(dual.diagonal[side])]] = 1.0
    dual.finish(c, u)
    interval = functools.partial(
        _interval, products=lambda G, scale, *points: [dual.product(v) for v in points]
    )
    return drive(
        run,
        _exact_rounds,
        (c, u, np.array([begin]), reads),
        lambda c, *_: (c, c),
        parameters=(dual,),
        interval=interval,
        products=lambda k: reads[0] / dual.n**2,
        eps=eps * math.sqrt(run.scale),
    )


# ======================================================================================================
# 10 classifier
# ======================================================================================================
#
# The classifier follows scikit-learn's conventions for estimators without importing its base classes.  Where
# scikit-learn is loaded, errors and warnings are of its types; their words are those that its own checks look for.

# Above so many points, algorithms other than the exact solver evaluate G on demand, too.
_DENSE_POINTS = 10_000
# These algorithms take a free intercept.
_FREE = ("exact", "max_margin", "momentum", "gradient_descent", "normalized_gradient_descent")
# Points below this share of the largest weight are left out of a soft margin.
_NEGLIGIBLE = 2.0**-44
# Where rounding hides the soft margin of a larger C, one with C max_i G_ii equal to this number stands in.
_SOFT = 1e4


def _known_as(name, otherwise):
    """Return the exception or warning of scikit-learn with this name, or ``otherwise`` if that is not loaded."""
    return getattr(sys.modules.get("sklearn.exceptions"), name, otherwise)


class _NotFittedError(ValueError, AttributeError):
    """Replace scikit-learn's NotFittedError where scikit-learn is not loaded."""


class _TrainingSet(NamedTuple):
    """The points that `fit` learns from.

    given : array or sparse, (n, d), all points
    X : array or sparse, (k, d), the points whose weight is not negligible; their kernel matrix if that is given
    kept : array, (k,), their rows in ``given``
    labels : array, (k,), the position of each one's class in classes_
    weights : array, (k,), their sample weights
    weight_left_out : float, the total sample weight of the other points
    """

    given: Any
    X: Any
    kept: Array
    labels: Array
    weights: Array
    weight_left_out: float


class _Solution(NamedTuple):
    """f = sum_i weights_i y_i K(x_i, .) + bias, scaled to the least margin 1 where a margin was found.

    weights : array, one for each row of G
    bias : float
    separator : array, (1, dimension) or (n_classes, dimension), Z' weights of the linear kernel; None of others
    """

    weights: Array
    bias: float
    separator: Array | None


def _column_names(X):
    """Return the column names of a data frame if all are strings, else None."""
    names = np.asarray(getattr(X, "columns", ()), dtype=object)
    return names if names.size and all(isinstance(name, str) for name in names) else None


def _targets(y, n):
    """Return the sorted classes and the position of each point's class among them."""
    if y is None:
        raise ValueError("MaxMarginClassifier requires y to be passed, but the target y is None")
    if np.ma.is_masked(y):
        raise ValueError("y must not be masked; leave out the points without a label")
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; give y.ravel()",
            _known_as("DataConversionWarning", UserWarning),
            stacklevel=5,
        )
        y = y.ravel()
    if y.shape != (n,):
        raise ValueError(
            f"y should be a 1d array with a label for each of {n} rows of X, got shape {y.shape}"
        )
    if y.dtype.kind == "O":
        missing = [i for i, label in enumerate(y) if _is_missing(label)]
        if missing:
            raise ValueError(
                f"Input y contains NaN or None: label {missing[0]} is missing; leave such points out"
            )
    is_real = y.dtype.kind == "f"
    try:
        if (y != y).any() or (is_real and np.isinf(y).any()):
            raise ValueError(
                "Input y contains NaN, infinity or a value too large for dtype('float64')."
            )
        if is_real and (y != np.round(y)).any():
            raise ValueError(
                "Unknown label type: continuous. y must hold the classes of the points"
            )
        return np.unique(y, return_inverse=True)
    except TypeError:
        raise TypeError("y must hold labels of one type, which can be sorted") from None


def _class_factors(given, classes, totals):
    """Return the factor by which `class_weight` multiplies C in each class; totals are the classes' sample weights."""
    if isinstance(given, str) and given == "balanced":
        return totals.sum() / (classes.size * totals)
    names = classes.tolist()
    given = {} if given is None else given
    if not hasattr(given, "keys") or (set(names) - set(given) and set(given) - set(names)):
        raise ValueError(
            f'class_weight must be None, "balanced" or a dict of weights by class, {names}; got {given!r}'
        )
    return np.array([_number(given.get(name, 1.0), f"class_weight[{name!r}]") for name in names])


def _self_products(kernel, X):
    """Return K(x, x) for all rows of X."""
    # Kernels with a center depend on distances alone, so that it does not matter here.
    kernel = kernel._replace(center=None)
    return np.concatenate([kernel.diagonal(kernel.prepare(block)) for _, block in _blocks(X)])


def _separators(G, alpha):
    """Return Z'v for the rows z_i of points and the weights v of each class, (classes, d), precise if G can."""
    G = G.without_shift()
    rows = G.points_gram()
    parts = G._class_weights(alpha) if isinstance(G, PairGram) else alpha[None, None]
    if rows.separator(parts[0][0]) is not None:
        return sum(np.array([rows.separator(v) for v in part]) for part in parts)
    W = np.empty((parts.shape[1], rows.shape()[1]))
    for v, w in zip(parts[0], W, strict=True):
        lift(rows, v, w)
    return W


class MaxMarginClassifier:
    """Classifier of largest margin, with a certified interval around the margin.

    It is an estimator for scikit-learn's pipelines and searches, and works without scikit-learn, too.  For two classes,
    y_i = -1 where the class is classes_[0] and +1 where it is classes_[1].  More classes are told apart all at once, by
    a function f_c for each class c.  The hard margin, C = inf, is

        rho = max_f min_i y_i f(x_i)  over ||f|| = 1  for two classes,
        rho = max_f min_{i, c != y_i} (f_{y_i}(x_i) - f_c(x_i)) / 2  over sum_c ||f_c||^2 = 2  for more,

    where ||f|| is the norm that belongs to the kernel.  A soft margin, C < inf, minimizes the objective

        ||f||^2 / 2 + C sum_i w_i max(0, 1 - y_i f(x_i))^2  for two classes,
        sum_c ||f_c||^2 / 4 + C sum_{i, c != y_i} w_i max(0, 1 - (f_{y_i}(x_i) - f_c(x_i)) / 2)^2  for more.

    Parameters
    ----------
    kernel : str or callable
        "linear", "poly", "rbf", "laplacian", "ntk", "precomputed" or a function, as in `gram`.  With "precomputed" X is
        the kernel matrix of the training points, (n, n), in `fit`, and holds K(x, x_i), (m, n), in `predict`.
    gamma, coef0, degree, sigma2, W
        Parameters of the kernel, as in `gram`.  Those that the kernel does not take are ignored.
    C : float
        Weight of the squared slacks; inf for the hard margin.
    class_weight : dict, "balanced" or None
        w_i is the sample_weight of the point, 1 by default, times the weight of its class.  The weight of a class is 1
        if the dict does not name it.  "balanced" is (sum of all sample weights) / (n_classes (their sum in the class)).
    fit_intercept : bool
        True adds a bias to f.
    intercept_scaling : float or None
        None leaves the bias of two classes free, as SVC does: ||f|| does not include it, and rho does not depend on the
        origin.  A number c adds the constant feature c to all points, as LinearSVC does: the kernel is K + c^2, and
        ||f|| includes the bias.  For several classes, and algorithms that take no free bias (see `FreeGram`), None
        stands for 1.
    normalize : {None, "unit", "max"}
        As in `gram`.  None, the default, leaves K as it is.
    algorithm : str
        "exact", which is `max_margin`, or any name in `ALGORITHMS` but "winnow", whose margin is another.
    tol : float
        The algorithm stops at upper - lower <= tol upper.  If it has an option eps or delta, the smallest margin of
        interest, that is tol sqrt(max_i G_ii).
    max_iter : int or None
        The most iterations; None stands for the default of the algorithm.
    random_state : int, Generator, RandomState or None
        Seed of "adaptive_sampling"; None stands for 0.
    dtype : {float64, float32}
        Type in which a dense G is stored, or the points if G is evaluated on demand.
    verbose : bool
        True prints the interval at every checkpoint of the algorithm.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
        The classes, sorted.
    class_weight_ : array, shape (n_classes,)
        The weight of each class.
    interval_ : (float, float)
        lower <= rho <= upper, certified as in `certificate`.  With C < inf this is the margin of G + diag(1/(2 C w_i)),
        and the least value of the objective is 1 / (2 rho^2).
    margin_ : float
        lower.  With C = inf the predictor has at least this margin, up to the rounding of its coefficients.
    status_, n_iter_, result_ : str, int, Result
        How the search ended, as in `Result`; its number of iterations; and all that the algorithm returned.
    support_, n_support_ : array of int, shape (k,); array of int, shape (n_classes,)
        The numbers of the points with a part in f, and how many of them each class has.
    support_vectors_ : array or sparse, shape (k, d)
        These points; of a precomputed kernel none, (0, 0).
    dual_coef_, intercept_ : arrays, shapes (1, k) and (1,), or for several classes (n_classes, k) and (n_classes,)
        f(x) = sum_i dual_coef_i K(x_i, x) + intercept_.  Under "unit" this is divided by sqrt(K(x, x) + c^2), except
        for a free bias.
    coef_ : array, shape (1, d) or (n_classes, d)
        Of the linear kernel: coef_ x is the sum in f(x).
    n_features_in_, feature_names_in_ : int, array of str
        d, and the names of the columns if X was a data frame with names.
    shape_fit_, fit_status_ : (n, d), int
        As in SVC: the shape of X, and 0 if the margin is certified to tol, else 1.

    See Also
    --------
    max_margin : The solver behind "exact".
    gram, features, lazy_gram, pair_gram : The representations of G that `fit` chooses from.
    separator_margin : The certified margin of a separator that is already known.
    contradiction : Two equal points with different labels.

    Notes
    -----
    f has the scale of a support vector machine: with a hard margin, the least y_i f(x_i) is 1.

    Points that cannot be separated have no hard margin.  Then a warning says what was proved, `interval_` and `result_`
    hold it, and f is that of a soft margin, with the C that the warning names, about 1 / max_i G_ii.  This also happens
    for C above 1e4 / max_i G_ii if rounding hides the soft margin.

    A point of sample_weight k counts as k copies of it, also for gamma="scale".  A soft margin leaves out points with
    less than 2^-44 of the largest weight; `interval_` holds for all points (proof: "Points left out of a soft margin"
    in figures/README.md).  A hard margin depends on weights only through which of them are 0.

    With several classes G has n (n_classes - 1) rows, and a product costs n_classes products with the kernel matrix.
    Expect seconds for 2,000 points of 100 classes.

    If the kernel is "linear", and there are fewer columns than points and than 3,000, columns may have any units: where
    no weights of points in double precision give the separator, its coordinates are found and certified, as in
    `separator_margin`.  Then `interval_` is narrower than the interval of `result_`.

    Memory: "linear" needs the points alone.  G is stored for a kernel matrix or function.  For other kernels "exact"
    evaluates G on demand, and so do the other algorithms above 10,000 points.  Sparse X stay sparse with "linear",
    "poly" and "rbf", and become dense with other kernels.

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

    def __init__(
        self,
        kernel: str | Callable = "rbf",
        *,
        gamma: float | str = "scale",
        coef0: float = 1.0,
        degree: int = 3,
        sigma2: float | None = None,
        W: ArrayLike | None = None,
        C: float = math.inf,
        class_weight: dict | str | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float | None = None,
        normalize: str | None = None,
        algorithm: str = "exact",
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: Any = None,
        dtype: DTypeLike = np.float64,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.sigma2 = sigma2
        self.W = W
        self.C = C
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.algorithm = algorithm
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if repr(value) != repr(defaults[name].default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; if ``deep``, also those of a kernel object, under the names kernel__name."""
        params = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        if deep and hasattr(self.kernel, "get_params") and not isinstance(self.kernel, type):
            of_kernel = self.kernel.get_params(deep=True)
            params.update({f"kernel__{name}": value for name, value in of_kernel.items()})
        return params

    def set_params(self, **params: Any) -> MaxMarginClassifier:
        """Set parameters by name, those of a kernel object as kernel__name; return self.

        Raises ValueError for a name that `get_params` does not list.
        """
        known = self.get_params()
        of_kernel = {}
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}, which has {list(known)}"
                )
            if name.startswith("kernel__"):
                of_kernel[name.removeprefix("kernel__")] = value
            else:
                setattr(self, name, value)
        if of_kernel:
            self.kernel.set_params(**of_kernel)
        return self

    def __sklearn_tags__(self):
        # Only scikit-learn asks for tags, so that it can be imported here.
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=ClassifierTags(),
            regressor_tags=None,
            input_tags=InputTags(sparse=True, pairwise=self._takes("precomputed")),
        )

    def get_metadata_routing(self) -> Any:
        """Return scikit-learn's request for metadata: whether `fit` and `score` ask for a sample_weight."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=type(self).__name__)
        for method in (request.fit, request.score):
            method.add_request(param="sample_weight", alias=None)
        # `clone` copies an attribute of this name.
        return getattr(self, "_metadata_request", request)

    def set_fit_request(self, *, sample_weight: bool | str | None) -> MaxMarginClassifier:
        """Tell scikit-learn whether, or under which name, to pass a sample_weight to `fit`; return self."""
        return self._request("fit", sample_weight)

    def set_score_request(self, *, sample_weight: bool | str | None) -> MaxMarginClassifier:
        """Tell scikit-learn whether, or under which name, to pass a sample_weight to `score`; return self."""
        return self._request("score", sample_weight)

    def _request(self, method, alias):
        self._metadata_request = self.get_metadata_routing()
        getattr(self._metadata_request, method).add_request(param="sample_weight", alias=alias)
        return self

    def _takes(self, kernel):
        return isinstance(self.kernel, str) and self.kernel == kernel

    def _table(self, X):
        """Return checked points: rows of float64, a sparse matrix in compressed rows, or a mapped file as it is."""
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        kind = getattr(getattr(X, "dtype", None), "kind", "")
        if kind == "c":
            raise ValueError("Complex data not supported")
        is_text = kind in "US" or (kind == "O" and X.size and isinstance(X.flat[0], str))
        if callable(self.kernel) and is_text:
            raise ValueError(
                "a kernel function is given rows of numbers: for other objects compute its matrix, and "
                'give kernel="precomputed"'
            )
        if len(X.shape) != 2:
            raise ValueError(
                f"Reshape your data: X must have a row for each point, got shape {X.shape}"
            )
        if 0 in X.shape:
            found = "0 feature(s)" if X.shape[0] else "0 sample(s)"
            raise ValueError(f"X has {found} (shape={X.shape}) while a minimum of 1 is required.")
        if _is_sparse(X):
            return _points(X, "X", self.kernel)
        if _is_mapped(X) and not self._takes("precomputed"):
            return X
        return _points(X)

    @_with_underflow
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> MaxMarginClassifier:
        """Find the largest margin of labeled points.

        Parameters
        ----------
        X : array, data frame, SciPy sparse matrix or memory-mapped array, shape (n, d)
            The points; for a precomputed kernel (n, n), its matrix.
        y : array, shape (n,)
            Their classes: numbers, strings or other labels that can be sorted.
        sample_weight : array, shape (n,), or None
            Weights of at least 0, which multiply those of the classes.  Points of weight 0 are left out.

        Returns
        -------
        self : MaxMarginClassifier

        Raises
        ------
        ValueError, TypeError
            As `gram`; a parameter is out of range; y holds numbers that are no classes, or fewer than two classes of
            positive weight; or weights are negative or not finite.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        # 1. Read the points, their classes and their weights.
        data = self._read(X, y, sample_weight)
        # 2. Represent the kernel matrix.
        G = self._represent(data)
        # 3. Find the margin.
        solution = self._solve(G, data)
        # 4. Turn the solution into coefficients.
        self._set_predictor(data, solution)
        return self

    def _read(self, X, y, sample_weight):
        """Return the `_TrainingSet`, and set the attributes that describe it."""
        names = _column_names(X)
        given = self._table(X)
        n, d = given.shape
        classes, labels = _targets(y, n)
        self.n_features_in_ = d
        self.shape_fit_ = (n, d)
        if names is not None:
            self.feature_names_in_ = names
        _number(self.C, "C", infinite=True)
        if sample_weight is None:
            sample_weight = 1.0
        weights = _amounts(sample_weight, "sample_weight", n)
        lightest = 0.0 if self.C == math.inf else _NEGLIGIBLE * weights.max()
        kept = np.flatnonzero(weights >= max(_NORMAL, lightest))
        left_out = math.fsum(np.delete(weights, kept))
        self.classes_, labels = np.unique(classes[labels[kept]], return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(
                "y must hold at least two classes, of points whose weight is not zero, or negligible; got "
                f"{self.classes_.size} class{'es' * (not kept.size)}"
            )
        X = given
        if kept.size < n:
            X = self._table(given[np.ix_(kept, kept) if self._takes("precomputed") else kept])
            weights = weights[kept]
        totals = np.bincount(labels, weights)
        self.class_weight_ = _class_factors(self.class_weight, self.classes_, totals)
        return _TrainingSet(given, X, kept, labels, weights, left_out)

    def _kernel_options(self, data):
        """Return the keywords of `gram` that belong to the kernel and the intercept, with gamma as a number."""
        if callable(self.kernel):
            accepted = ()
        else:
            accepted = _KERNELS[_choice(self.kernel, "kernel", tuple(_KERNELS))]
        options = {
            name: getattr(self, name) for name in accepted if getattr(self, name) is not None
        }
        if "sigma2" in options and isinstance(self.gamma, str):
            del options["gamma"]
        if "gamma" in accepted:
            # "scale" depends on the sample weights, which representations do not know.
            options["gamma"] = _gamma_of(options, data.X, data.weights)
            options.pop("sigma2", None)
        intercept = 1.0
        if self.intercept_scaling is not None:
            intercept = _number(self.intercept_scaling, "intercept_scaling")
        elif self.classes_.size == 2 and self.algorithm in _FREE:
            intercept = "free"
        options["intercept"] = intercept if self.fit_intercept else 0.0
        return options

    def _represent(self, data):
        """Return G without slacks; set the kernel, with its parameters, and the origin of the rows of a linear G."""
        is_linear = self._takes("linear")
        is_precomputed = self._takes("precomputed")
        if self.normalize == "unit" and is_precomputed:
            raise ValueError(
                'normalize="unit" needs K(x, x) of new points, which a precomputed kernel does not tell'
            )
        X = data.X
        n_classes = self.classes_.size
        signs = 2.0 * data.labels - 1.0 if n_classes == 2 else None
        others = [name for name in ALGORITHMS if name != "winnow"]
        _choice(self.algorithm, "algorithm", ("exact", *others))
        options = self._kernel_options(data)
        if is_linear:
            G = features(X, signs, normalize=self.normalize, **options)
            self._kernel = _kernel(self.kernel, X, options)
        else:
            is_dense = is_precomputed or callable(self.kernel)
            if self.algorithm not in ("exact", "max_margin") and X.shape[0] <= _DENSE_POINTS:
                is_dense = True
            make = gram if is_dense else lazy_gram
            form = {"kernel": self.kernel, "normalize": self.normalize, "dtype": self.dtype}
            G = make(X, signs, **form, **options)
            self._kernel = (
                _kernel(self.kernel, X, options) if is_dense else G.without_shift().kernel
            )
        is_free = options["intercept"] == "free"
        self._origin = G.origin if is_linear and is_free else np.zeros(X.shape[1])
        return G if n_classes == 2 else pair_gram(G, data.labels, n_classes)

    def _solve(self, G, data):
        """Return the `_Solution`; set the attributes that certify it, and warn where they prove less than was asked."""
        base, scale = _representation(G)
        ridge = 0.5 / (data.weights * self.class_weight_[data.labels])
        ridge = np.repeat(ridge, self.classes_.size - 1)
        G = _with_ridge(base, ridge / self.C)
        # 1. Run the algorithm.
        algorithm = max_margin if self.algorithm == "exact" else ALGORITHMS[self.algorithm]
        result = algorithm(G, **self._options(algorithm, scale))
        self.result_ = result
        self.n_iter_ = result.n_iter
        self.interval_ = (result.lower, result.upper)
        self.status_ = result.status
        if self.status_ == "infeasible" and self.C < math.inf:
            # A soft margin is never 0, but rounding may hide it.
            self.status_ = "rounding"
        # 2. Where weights of points prove too little, try the coordinates of a linear separator.
        solution = None
        if self.status_ != "certified" and algorithm is max_margin and self._takes("linear"):
            solution = self._solve_in_coordinates(G)
        # 3. Without a margin, fall back on a soft one.
        soft_C = 1.0 / scale if self.C == math.inf else _SOFT / scale
        soft_C = float(f"{soft_C:.0e}")
        is_hidden = self.interval_[0] <= 0.0 and result.status in ("infeasible", "rounding")
        if is_hidden and self.C > soft_C:
            message = self._advice_without_margin(data, soft_C)
            warnings.warn(message, UserWarning, stacklevel=4)
            hard = G
            G = _with_ridge(base, ridge / soft_C)
            result = max_margin(G, tol=self.tol)
            lower = certificate(hard, result.alpha, self.result_.p)[0]
            self.interval_ = (lower, self.result_.upper)
        elif self.status_ in ("max_iter", "rounding"):
            message = self._advice_on_interval(algorithm, data.X)
            warnings.warn(message, _known_as("ConvergenceWarning", UserWarning), stacklevel=4)
        if data.weight_left_out > 0.0 and self.interval_[0] > 0.0:
            self.interval_ = self._interval_of_all(data)
        self.margin_ = self.interval_[0]
        self.fit_status_ = int(self.status_ != "certified")
        # 4. Scale the solution.
        return self._scaled(G, scale, result) if solution is None else solution

    def _options(self, algorithm, scale):
        """Return the keywords that this algorithm takes, for a G with max_i G_ii = scale."""
        state = 0 if self.random_state is None else self.random_state
        # A Generator draws by `integers`, a RandomState by `randint`.
        draw = getattr(state, "integers", getattr(state, "randint", None))
        seed = _count(state, "random_state") if draw is None else int(draw(2**31 - 1))
        smallest = _number(self.tol, "tol") * math.sqrt(scale)
        accepted = inspect.signature(algorithm).parameters
        options = {"tol": self.tol}
        if self.max_iter is not None:
            options["max_iter"] = self.max_iter
        if self.verbose:
            options["callback"] = print
        if "seed" in accepted:
            options["seed"] = seed
        for name in ("eps", "delta"):
            if name in accepted and accepted[name].default is None:
                options[name] = smallest
        return options

    def _solve_in_coordinates(self, G):
        """Return the `_Solution` by its coordinates, and set its interval, if that proves more; else None."""
        if not _has_few_coordinates(G.without_shift()):
            return None
        found = _by_coordinates(G, self.tol)
        if found is None:
            return None
        W, bias, p, lower, upper = found
        if lower <= max(self.result_.lower, 0.0):
            return None
        most = min(upper, self.result_.upper)
        self.interval_ = (lower, most)
        self.status_ = "certified" if most - lower <= self.tol * most else "rounding"
        return _Solution(p / (lower * upper), bias, np.atleast_2d(W))

    def _advice_without_margin(self, data, C):
        """Name the points that leave no margin, and a C for which there is one."""
        pair = contradiction(data.X, data.labels)
        if pair is None:
            # Each point has a row of G for every other class.
            rows = np.flatnonzero(self.result_.p)
            points = data.kept[np.unique(rows // (self.classes_.size - 1))]
            named = f"the points {points.tolist()}" if points.size <= 6 else f"{points.size} points"
            witness = f"a mixture of {named} allows no larger one"
        else:
            i, j = data.kept[list(pair)]
            witness = f"the points {i} and {j} contradict each other"
        return (
            f"no margin above {_written(self.result_.upper, 1, _UP)} exists; {witness}; try C={C:g}, "
            "with which the predictor was fitted, or less"
        )

    def _advice_on_interval(self, algorithm, X):
        """Say what is known of the margin, and what would narrow the interval."""
        if self.status_ == "max_iter":
            default = inspect.signature(algorithm).parameters["max_iter"].default
            more = 2 * max(self.n_iter_, default)
            remedy = f"after {self.n_iter_} iterations: give max_iter={more}, say, or"
        else:
            remedy = "as far as rounding lets it be proved: give a smaller C, float64 in place of float32, or"
        columns = ""
        if self._takes("linear") and not _is_sparse(X):
            widths = np.ptp(X[:_DENSE_POINTS], axis=0)
            narrow = np.argmin(np.where(widths > 0.0, widths, np.inf))
            wide = np.argmax(widths)
            names = getattr(self, "feature_names_in_", range(widths.size))
            if widths[wide] > 1e3 * widths[narrow]:
                columns = (
                    ", or bring columns to one scale: "
                    f"column {names[wide]} is far wider than {names[narrow]}"
                )
        lower, upper = self.interval_
        gap = f", a relative gap of {1.0 - lower / upper:.2g}," if lower > 0.99 * upper else ""
        return (
            f"the margin is known to be between {_written(lower, 3, _DOWN)} and {_written(upper, 3, _UP)}"
            f"{gap} {remedy} a larger tol{columns}"
        )

    def _interval_of_all(self, data):
        """Return the interval that also holds for the points that were left out: its lower end is smaller.

        Proof: "Points left out of a soft margin" in figures/README.md.
        """
        lower, upper = self.interval_
        reach = 1.0
        if self.normalize != "unit":
            given = data.given
            if self._origin.any() and not _is_sparse(given):
                given = given - self._origin
            products = _self_products(self._kernel, given)
            largest = products[data.kept].max() if self.normalize == "max" else 1.0
            reach = math.sqrt(products.max() / largest)
        weight = data.weight_left_out * self.class_weight_.max() * (self.classes_.size - 1)
        added = 8.0 * self.C * weight * (lower + reach) ** 2
        return lower * ((1.0 - _LAST) / math.sqrt(1.0 + added)), upper

    def _scaled(self, G, scale, result):
        """Return the `_Solution` that an algorithm found."""
        alpha = result.alpha
        length = result.upper
        bias = 0.0
        if G.signs is not None or not np.array_equal(alpha, result.p):
            alpha = _unit_range(alpha)
            products = G.precise(alpha)
            if products is None:
                products = _squares_and_margins(G, scale, alpha)[0]
            norm2, m, *_ = products
            length = math.sqrt(max(norm2, 0.0))
            if G.signs is not None:
                bias = _offset(G.signs, m)
        least = length * result.lower if result.lower > 0.0 else length
        if least == 0.0:
            least = 1.0
        separator = _separators(G, alpha) / least if self._takes("linear") else None
        return _Solution(alpha / least, bias / least, separator)

    def _set_predictor(self, data, solution):
        """Set the coefficients of f in the coordinates of the points that the user gave."""
        X = data.X
        n, d = X.shape
        n_classes = self.classes_.size
        if n_classes == 2:
            coefficients = (solution.weights * (2.0 * data.labels - 1.0))[None]
        else:
            coefficients = _class_weights(solution.weights[None], data.labels, n_classes)[0]
        normalizers = np.ones(n)
        if self.normalize is not None:
            normalizers = _normalizers(_self_products(self._kernel, X), self.normalize)
        # Under "max" all points have the same normalizer, new ones too; under "unit" new ones have their own.
        common = 1.0 if self.normalize == "unit" else normalizers[0]
        coefficients *= normalizers * common
        support = np.flatnonzero(coefficients.any(axis=0))
        self.support_ = data.kept[support]
        self.n_support_ = np.bincount(data.labels[support], minlength=n_classes)
        self.dual_coef_ = coefficients[:, support]
        vectors = X[:0, :0] if self._takes("precomputed") else X[support]
        self.support_vectors_ = vectors if _is_sparse(X) else np.array(vectors, dtype=np.float64)
        offset = self._kernel.offset
        self._bias = offset * self.dual_coef_.sum(axis=1) + solution.bias
        self.intercept_ = self._bias
        if self._takes("linear"):
            # The sum over dual coefficients may cancel so far that rounding hides a small margin.
            W = solution.separator * common
            self.coef_ = W[:, :d].copy()
            self._bias = math.sqrt(offset) * W[:, d:].sum(axis=1) + solution.bias
            self.intercept_ = self._bias - self.coef_ @ self._origin

    @_with_underflow
    def decision_function(self, X: Any) -> Array:
        """Return f(x) for new points.

        Parameters
        ----------
        X : array, data frame, SciPy sparse matrix or memory-mapped array, shape (m, d)
            The points; for a precomputed kernel (m, n), the values K(x, x_i) for all n training points.

        Returns
        -------
        scores : array, shape (m,) or (m, n_classes)
            Positive where classes_[1] is predicted; with several classes, the largest score in a row is that of the
            predicted class.

        Raises
        ------
        NotFittedError
            `fit` has not been called.  Without scikit-learn the error is a ValueError and an AttributeError.
        ValueError
            The number of columns or their names differ from those in `fit`, or values are not finite.
        """
        if not hasattr(self, "dual_coef_"):
            raise _known_as("NotFittedError", _NotFittedError)(
                f"This {type(self).__name__} is not fitted yet; call fit first"
            )
        names = _column_names(X)
        X = self._table(X)
        self._check_columns(names, X.shape[1])
        kernel = self._kernel
        bias = self.intercept_
        if self._takes("linear") and self._origin.any() and not _is_sparse(X):
            # From an origin near the points, less is rounded.
            bias = self._bias
            scores = (X - self._origin) @ self.coef_.T
        elif self._takes("linear"):
            scores = X @ self.coef_.T
        elif self._takes("precomputed"):
            scores = X[:, self.support_] @ self.dual_coef_.T
        else:
            plain = kernel._replace(offset=0.0)
            vectors = plain.prepare(self.support_vectors_)
            blocks = (plain.prepare(block) for _, block in _blocks(X))
            sums = [plain.sums(self.dual_coef_, vectors, block).T for block in blocks]
            scores = np.concatenate(sums)
        if self.normalize != "unit":
            scores = scores + bias
        else:
            factors = _normalizers(_self_products(kernel, X), "unit")[:, None]
            if kernel.offset > 0.0:
                # The bias is a constant feature, which is normalized with the others.
                scores = (scores + bias) * factors
            else:
                scores = scores * factors + bias
        return scores[:, 0] if self.classes_.size == 2 else scores

    def _check_columns(self, names, count):
        """Raise ValueError or warn where the columns of new points are not those of `fit`."""
        known = getattr(self, "feature_names_in_", None)
        estimator = type(self).__name__
        if (names is None) != (known is None):
            have = "does not have valid" if names is None else "has"
            was = "with" if names is None else "without"
            warnings.warn(
                f"X {have} feature names, but {estimator} was fitted {was} feature names",
                stacklevel=4,
            )
        elif names is not None and not np.array_equal(names, known):
            changes = {
                "unseen at fit time": set(names) - set(known),
                "seen at fit time, yet now missing": set(known) - set(names),
            }
            message = "The feature names should match those that were passed during fit.\n"
            if not any(changes.values()):
                message += "Feature names must be in the same order as they were in fit.\n"
            for kind, found in changes.items():
                if found:
                    listed = sorted(found)[:5] + ["..."] * (len(found) > 5)
                    message += "\n- ".join([f"Feature names {kind}:", *listed]) + "\n"
            raise ValueError(message)
        if count != self.n_features_in_:
            values = ""
            if self._takes("precomputed"):
                values = "; of a precomputed kernel K(x, x_i) for each training point"
            raise ValueError(
                f"X has {count} features, but {estimator} is expecting {self.n_features_in_} features as "
                f"input{values}"
            )

    def predict(self, X: Any) -> Array:
        """Return the predicted classes, (m,), of the rows of X, (m, d); errors are those of `decision_function`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0.0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of the rows of X, (m, d), that are predicted to be of their classes y, (m,).

        sample_weight, (m,), weighs the rows.  Raises ValueError if lengths differ, and the errors of `predict`.
        """
        guesses = self.predict(X)
        given = {"y": y}
        if sample_weight is not None:
            given["sample_weight"] = sample_weight
        for name, values in given.items():
            if np.size(values) != guesses.size:
                raise ValueError(
                    f"X has {guesses.size} rows and {name} {np.size(values)} entries; they must agree"
                )
        return float(np.average(guesses == np.ravel(y), weights=sample_weight))


def _fill_cache():
    """Compile what the usual calls need, print a line for each step, and say where the code is kept."""
    # Products with so many points are shared among threads, and points so far apart have a margin.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1500)
    X = rng.normal(size=(1500, 200)) + 6.0 * np.eye(3, 200)[labels]
    signs = np.where(labels > 0, 1, -1)
    print("compiling gram and features", flush=True)
    representations = (gram(X[:50], signs[:50]), gram(X, signs), features(X, signs))
    for name, algorithm in ALGORITHMS.items():
        print(f"compiling {name}", flush=True)
        for G in representations:
            algorithm(X if name == "winnow" else G, max_iter=3)
    for kernel, C in itertools.product(("rbf", "linear"), (1.0, math.inf)):
        print(f"compiling MaxMarginClassifier({kernel!r}, C={C})", flush=True)
        for classes in (labels, labels > 0):
            MaxMarginClassifier(kernel, C=C).fit(X, classes).predict(X)
    print(f"compiled code is in {_FOLDER or 'memory alone: see NUMBA_CACHE_DIR'}")


# `python -m` runs this file as `__main__`: compile under the module's own name, by which other processes look for code.
if __name__ == "__main__":
    importlib.import_module(__spec__.name if __spec__ else "fastmargin")._fill_cache()
