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
nothing changes when s = 1 and every guarantee holds for any G.  A *kernel* is K(x, x'), never a piece of
compiled code.

Threads.  Large arrays are shared among Numba's threads, NUMBA_NUM_THREADS or numba.set_num_threads(k) of them;
results do not depend on their number.  Threads that wait sleep, so that other work may have the core; with
OMP_WAIT_POLICY=ACTIVE in the environment, before the first call, they spin.

Sources, by the key used below:
    ramdas14       A. Ramdas, J. Pena, Margins, Kernels and Non-linear Smoothed Perceptrons, ICML 2014
    ji21           Z. Ji, N. Srebro, M. Telgarsky, Fast Margin Maximization via Dual Acceleration, ICML 2021
    apidopoulos22  V. Apidopoulos, T. Poggio, L. Rosasco, S. Villa, Iterative regularization in
                   classification via hinge loss diagonal descent, arXiv 2212.12675, 2022

Example
-------
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
    5.1  operations         Representation, Rounding, register, lift, margins, add_column, softmax_pass, square,
                            table_margins
    5.2  ridge              RidgeGram
    5.3  dense              DenseGram, gram
    5.4  rows               FeatureGram
    5.5  sparse             SparseGram
    5.6  mapped             MappedGram, features
    5.7  lazy               LazyGram, lazy_gram
    5.8  pairs              PairGram, pair_gram
    5.9  operators          OperatorGram, operator_gram
    5.10 models             Model, model
    6    certificate        certificate
    7    driver             Run, prepare, drive, ALGORITHMS, RUNNING, SEPARATED, INFEASIBLE, EXHAUSTED, CERTIFIED
    8    algorithms
    8.1  ramdas14           perceptron, nkp, von_neumann, snkp, snkpvn, isnkpvn, winnow
    8.2  ji21               gradient_descent, normalized_gradient_descent, momentum, batch_perceptron, adaptive_sampling
    8.3  apidopoulos22      diagonal_descent, inertial_diagonal_descent, homotopic_subgradient
    8.4  own methods        subspace_perceptron
    9    exact solver       max_margin
    10   classifier         MaxMarginClassifier
"""

import contextlib
import decimal
import functools
import inspect
import itertools
import math
import mmap
import operator
import os
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
from numba import config, get_num_threads, njit, objmode, set_num_threads, threading_layer, typeof, types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.errors import TypingError
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic, is_jitted, lower_builtin, overload, register_jitable, type_callable

__version__ = "0.1.0"
__all__ = [
    "ALGORITHMS", "CERTIFIED", "DenseGram", "EXHAUSTED", "FeatureGram", "INFEASIBLE", "LazyGram", "MappedGram",
    "MaxMarginClassifier", "Model", "OperatorGram", "PairGram", "RUNNING", "Representation", "Result", "RidgeGram",
    "Rounding", "Run", "SEPARATED", "SparseGram", "adaptive_sampling", "add_column", "batch_perceptron",
    "certificate", "decision_function", "diagonal_descent", "drive", "entropy_prox", "features", "gradient_descent",
    "gram", "homotopic_subgradient", "inertial_diagonal_descent", "isnkpvn", "kernel_matrix", "l2_prox",
    "lazy_gram", "lift", "margins", "max_margin", "model", "momentum", "nkp", "normalized_gradient_descent",
    "operator_gram", "pair_gram", "perceptron", "prepare", "project_simplex", "register", "snkp", "snkpvn",
    "softmax_pass", "square", "subspace_perceptron", "table_margins", "von_neumann", "winnow",
]


def __dir__():
    """What tab completion shows: the toolkit, and not the modules that it imports."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


# Flags of the hot loops.  A sum may be reordered and fused, which the error bounds allow for; NaN and
# infinity keep their meaning.  `_dot` and `_softmax` are inlined by force besides: else the version of them that a loop
# runs, and with it the last digit, would depend on whether the loop was just compiled or comes from the cache.
_FAST = {"reassoc", "contract", "nsz"}

_EPS = float(np.finfo(np.float64).eps)
_PARTS = 8  # of a product in parallel: a fixed number, so that the result is the same on any number of threads
_CACHED = 1 << 14  # entries of rows that the caches of a core hold beside other things
_SERIAL = 1 << 18  # entries of an array below which waking threads costs more than reading it
_EXPENSIVE = 8  # entries that are read in the time of an exponential, or of one from a random place


def _can_cache():
    """Whether compiled code can be kept on disk; if not, say so once, since Numba refuses to go on."""
    try:
        probe = njit(_can_cache, cache=True)
        if is_jitted(probe):  # a module in a zip file is given a folder that nobody has tried to write to
            os.makedirs(probe.stats.cache_path, exist_ok=True)
            tempfile.TemporaryFile(dir=probe.stats.cache_path).close()
    except (OSError, RuntimeError):
        warnings.warn("fastmargin can write to no folder for compiled code and will compile anew in every process; set "
                      "NUMBA_CACHE_DIR to a folder that it can write to", RuntimeWarning, stacklevel=3)
        return False
    return True


_CACHE = _can_cache()


class _LinkedLibrary(JITCodeLibrary):
    """Code that is linked into its callers as it is: they optimise it and make machine code of it."""

    @property
    def codegen(self):
        return self

    def set_env(self, name, environment):
        """Of Python objects, which need machine code to hold them, and of which such functions make no use."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalized = True


class _LinkedDispatcher(CPUDispatcher):
    """What compiled code calls compiled, and Python runs as it stands."""

    def __call__(self, *args):
        return self.py_func(*args)


class _LinkedCompiler(Compiler):
    """What makes such code."""

    def __init__(self, typing_context, target_context, library, *rest):
        super().__init__(typing_context, target_context, _LinkedLibrary(target_context.codegen(), "linked"), *rest)


_LINKED = {"pipeline_class": _LinkedCompiler}  # options of overloads, too


def _linked(function=None, **options):
    """As njit, for functions that compiled code alone calls; Python runs them interpreted.

    Numba optimises each function by itself and once more, with all that it calls, for every level of calls above it,
    and makes machine code of it every time: twice the work of doing this where the calls from Python come in.
    """
    if function is None:
        return functools.partial(_linked, **options)
    if config.DISABLE_JIT:
        return function
    options = {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
    return _LinkedDispatcher(function, targetoptions=options, **_LINKED)


_LOCK = threading.RLock()  # of Numba's threads, where their layer serves one caller at a time
_layer = None  # of threads, once they are there
_alone = False  # whether this process was forked from one that had started the threads, which the child is without


def _after_fork():
    global _alone
    with contextlib.suppress(ValueError):  # no threads had been started: the child may start its own
        threading_layer()
        _alone = True


if hasattr(os, "register_at_fork"):  # where there is fork
    os.register_at_fork(after_in_child=_after_fork)


_WAITING = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"  # what OpenMP lets a user choose


def _start_threads():
    """Start Numba's threads, which sleep while they wait, unless the user has chosen otherwise.

    OpenMP's own choice is that they spin, which holds up whoever needs the core: OpenBLAS after it, another process.
    It reads the choice once, when it is loaded; other libraries and child processes are not to inherit ours.
    """
    chosen = any(name in os.environ for name in _WAITING)
    if not chosen:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    try:
        get_num_threads()
    finally:
        if not chosen:
            del os.environ["OMP_WAIT_POLICY"]
    return threading_layer()


def _enter(code, *args):
    """Call compiled code whose routines may share their work among Numba's threads.

    Here the threads are started, which code from the cache does not do by itself, and crashes.  A forked child has none
    of them and must not ask for them: OpenMP would end it.  The layer "workqueue" ends a process that comes from two
    threads of Python at once, so there they take turns.
    """
    global _layer
    if _alone:
        set_num_threads(1)
        return code(*args)
    if _layer is None:
        _layer = _start_threads()
    if _layer != "workqueue" or not is_jitted(code):
        return code(*args)
    with _LOCK:
        return code(*args)


@contextlib.contextmanager
def _others_turn():
    """Let other threads have their turn while code that `_enter` called, and is in no parallel routine, runs Python.

    That may wait for them.
    """
    depth = 0
    with contextlib.suppress(RuntimeError):  # once this thread holds it no more
        while True:
            _LOCK.release()
            depth += 1
    try:
        yield
    finally:
        for _ in range(depth):
            _LOCK.acquire()


def _share(count, part, arguments, work):
    """part(index, *arguments) for every index below count, in compiled code shared among Numba's threads, unless the
    work, in entries that are read or operations of their cost, is too little for that."""
    for index in range(count):
        part(index, *arguments)


@type_callable(_share)
def _type_share(context):
    def typer(count, part, arguments, work):
        context.resolve_function_type(part, (types.int64, *arguments), {})
        return types.none

    return typer


@lower_builtin(_share, types.Integer, types.Callable, types.BaseTuple, types.Integer)
def _lower_share(context, builder, signature, values):
    """By the function that shares the work of Numba's own parallel loops, which take seconds to compile: they compile
    their body several times, and another loop would be needed for a single thread.
    """
    get_num_threads()  # the names of what is called here are known once the threads are there
    ir, (_, part, kinds, _) = cgutils.ir, signature.args
    module, convention, steps = builder.module, context.call_conv, (types.int64, types.voidptr)
    word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    packed = ir.LiteralStructType([context.get_value_type(kind) for kind in kinds] + [ir.IntType(32)])
    places = [(ir.IntType(32)(0), ir.IntType(32)(k)) for k in range(len(kinds) + 1)]

    step = ir.Function(module, convention.get_function_type(types.none, steps), module.get_unique_name("step"))
    step.linkage = "internal"
    within = ir.IRBuilder(step.append_basic_block())
    index, pointer = convention.get_arguments(step)
    pointer = within.bitcast(pointer, packed.as_pointer())
    call = context.typing_context.resolve_function_type(part, (types.int64, *kinds), {})
    given = [within.load(within.gep(pointer, place)) for place in places[:-1]]
    context.get_function(part, call)(within, [index, *given])
    convention.return_value(within, context.get_dummy_value())

    # It is called as a gufunc is, for dimensions[0] indices from arguments[0] - data on.
    kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), word.as_pointer(), word.as_pointer(), byte])
    some = ir.Function(module, kind, module.get_unique_name("some"))
    some.linkage = "internal"
    some.attributes.add("noinline")  # one copy, so that it makes no difference who calls it
    within = ir.IRBuilder(some.append_basic_block())
    starts, dimensions, _, data = some.args
    first = within.sub(within.ptrtoint(within.load(starts), word), within.ptrtoint(data, word))
    with cgutils.for_range(within, within.load(dimensions)) as loop:
        status, _ = convention.call_function(within, step, types.none, steps, [within.add(first, loop.index), data])
        with cgutils.if_unlikely(within, status.is_error):
            within.store(status.code, within.gep(within.bitcast(data, packed.as_pointer()), places[-1]))
    within.ret_void()

    room, data = cgutils.alloca_once(builder, packed), cgutils.alloca_once(builder, byte)
    for place, value in zip(places, [*cgutils.unpack_tuple(builder, values[2]), ir.IntType(32)(0)], strict=True):
        builder.store(value, builder.gep(room, place))
    start = builder.bitcast(room, byte)
    builder.store(start, data)
    count = cgutils.alloca_once_value(builder, context.cast(builder, values[0], signature.args[0], types.int64))
    single = cgutils.alloca_once_value(builder, word(1))
    arguments = [data, count, single, start]

    def outside(name, result, *kinds):
        return cgutils.get_or_insert_function(module, ir.FunctionType(result, kinds), name)

    threads = builder.call(outside("get_num_threads", word), [])
    work = context.cast(builder, values[3], signature.args[3], types.int64)
    enough = builder.icmp_signed(">=", work, word(_SERIAL))
    with builder.if_else(builder.and_(enough, builder.icmp_signed(">", threads, word(1)))) as (several, one):
        with several:
            # Memory that a part allocates takes the interpreter's lock where `tracemalloc` watches.
            is_locked = builder.call(outside("PyGILState_Check", ir.IntType(32)), [])
            is_locked = builder.icmp_signed("!=", is_locked, ir.IntType(32)(0))
            state = cgutils.alloca_once(builder, byte)
            with builder.if_then(is_locked):
                builder.store(builder.call(outside("PyEval_SaveThread", byte), []), state)
            builder.call(outside("numba_parallel_for", ir.VoidType(), *[byte] * 5, *[word] * 3),
                         [builder.bitcast(value, byte) for value in (some, *arguments)] + [word(0), word(1), threads])
            with builder.if_then(is_locked):
                builder.call(outside("PyEval_RestoreThread", ir.VoidType(), byte), [builder.load(state)])
        with one:
            builder.call(some, arguments)
    failed = builder.icmp_signed("!=", builder.load(builder.gep(room, places[-1])), ir.IntType(32)(0))
    with cgutils.if_unlikely(builder, failed):
        convention.return_user_exc(builder, MemoryError, ("a part of the work failed",))
    return context.get_dummy_value()


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
        lower <= min_i (G alpha)_i / ||alpha||_G <= rho <= ||p||_G <= upper, rounded outwards (see
        `certificate`).  -sqrt(s) where ||alpha||_G cannot be told from 0.
    status : str
        "separated": lower > 0, that is G alpha > 0, and the algorithm stops there;
        "certified": upper - lower <= tol * upper;
        "infeasible": upper <= eps, no margin above eps exists;
        "rounding": one of these holds as far as can be seen, but rounding leaves it unproved, and more iterations would
        not help: use features instead of a dense G, float64 instead of float32, or a larger tol or eps;
        "max_iter": none of these within max_iter iterations;
        "stopped": the callback returned True;
        "running": not yet over, in the partial results that a callback sees.
    n_iter : int
        Number of updates made; iteration 0 is before the first.  Those of ``start`` count.
    trace : structured array
        A row per checkpoint of this call, the first at its start, with the fields iteration, products (G-vector
        products spent by the iterations, a column counting 1/n; certificates are not counted), seconds (likewise
        without certificates and without compilation), lower, upper.  These last come from fresh products where the run
        ends; before, from what the loop holds, where it holds enough, widened by what its recurrences may err.
    iterates : array, shape (checkpoints, n), or None
        alpha at every row of the trace, with keep_iterates=True; None in partial results.
    state : tuple
        What the algorithm remembers, for ``start=result``; nothing to look into.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.max_margin(fm.features([[3.0, 4.0]], [1], normalize=None))
    Result('certified': 5 <= rho <= 5, relative gap 8.3e-15, 0 iterations, n = 1, 1 checkpoint)
    """

    alpha: np.ndarray
    p: np.ndarray
    lower: float
    upper: float
    status: str
    n_iter: int
    trace: np.ndarray
    iterates: np.ndarray | None
    state: tuple

    def __repr__(self):
        gap = f"{(self.upper - self.lower) / self.upper:.2g}" if self.upper > 0.0 else "undefined"
        rows = len(self.trace)
        return (f"Result({self.status!r}: {self.lower:.6g} <= rho <= {self.upper:.6g}, relative gap {gap}, "
                f"{self.n_iter} iterations, n = {self.p.size}, {rows} checkpoint{'s' * (rows != 1)})")


_TRACE = np.dtype([("iteration", np.int64), ("products", np.float64), ("seconds", np.float64),
                   ("lower", np.float64), ("upper", np.float64)])


def _is_sparse(a):
    return hasattr(a, "tocsr")


def _array(a, name):
    """What every array that a user passes goes through first."""
    if _is_sparse(a):
        raise TypeError(f"{name} is sparse; only features(X, y) takes sparse points, for the linear kernel: pass "
                        f"{name}.toarray() if memory allows")
    if isinstance(a, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose hidden entries would be used: fill or drop the masked "
                        "entries and pass a plain array")
    plain = np.asarray(a)
    return _of_columns(a, plain, name) if plain.dtype.kind not in "fiub" and hasattr(a, "dtypes") else plain


def _of_columns(frame, plain, name):
    """The numbers of a data frame, or of one column, where columns have no common type of number."""
    dtypes, numbers = np.atleast_1d(frame.dtypes), np.empty(plain.shape)
    wrong = [k for k, dtype in enumerate(dtypes) if getattr(dtype, "kind", "O") not in "fiub"]
    columns, gaps = [] if wrong else zip(np.atleast_2d(plain.T), np.atleast_2d(numbers.T), strict=True), ""
    for k, (column, out) in enumerate(columns):
        try:
            out[:] = column
        except (TypeError, ValueError):
            wrong, gaps = [k], " and missing values"
    if wrong:
        column = f"column {frame.columns[wrong[0]]!r}" if hasattr(frame, "columns") else "it"
        raise TypeError(f"{name} must hold real numbers; {column} has dtype {dtypes[wrong[0]]}{gaps}")
    return numbers


def _real_array(a, name, ndim, first=0):
    """A finite float array of the given dimension (float32 stays float32); otherwise an error that says where, for an
    array that is the rows from ``first`` on."""
    labels = getattr(a, "columns", None)
    a = _array(a, name)
    if a.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {a.dtype}")
    if a.dtype not in (np.float32, np.float64):
        a = a.astype(np.float64)
    if a.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {a.shape}")
    if a.size == 0:
        raise ValueError(f"{name} is empty, shape {a.shape}")
    # A finite sum proves that all entries are finite and makes no temporary; an overflowing one proves nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        total = a.sum()
    if not np.isfinite(total) and not np.isfinite(a).all():
        where = [int(k) for k in np.argwhere(~np.isfinite(a))[0]]
        value, where[0] = a[tuple(where)], where[0] + first
        column = "" if labels is None else f", in column {labels[where[1]]!r}"
        raise ValueError(f"{name} must be finite, without NaN or inf; row {where[0]} has {value} at "
                         f"{name}{where}{column}")
    return a


def _points(X, name="X", kernel=None, first=0):
    """A C-ordered float64 copy or view of finite rows, whose squared distances are finite as well.

    Rows of a precomputed kernel are no points: they stay as they are.
    """
    X = _real_array(X, name, 2, first)
    if isinstance(kernel, str) and kernel == "precomputed":
        return X
    X = np.ascontiguousarray(X, dtype=np.float64)
    with np.errstate(over="ignore"):
        reach = 4.0 * np.einsum("ij,ij->i", X, X)
    if not np.isfinite(reach).all():
        raise ValueError(f"row {first + np.argmin(np.isfinite(reach))} of {name} is too large: squared distances "
                         "overflow; rescale the points")
    return X


def _is_mapped(X, dtype=None):
    """Whether X is memory-mapped in a layout that can be read in place, as the dtype given, if any."""
    return (isinstance(X, np.memmap) and X.dtype in (np.float32, np.float64) and (dtype is None or dtype == X.dtype)
            and X.ndim == 2 and X.size > 0 and X.flags.c_contiguous)


def _shares_pages(X):
    return isinstance(X, np.memmap) and X.mode in ("r", "r+", "w+")


_PAGE, _WINDOW = mmap.PAGESIZE, 1 << 22  # bytes of a file that are given back at a time


def _advise(address, size):
    """Tell the system that these pages of a file are not needed; interpreted, nothing."""


if hasattr(mmap, "MADV_DONTNEED"):
    _madvise = types.ExternalFunction("madvise", types.int32(types.uintp, types.uintp, types.int32))
    _DONTNEED = int(mmap.MADV_DONTNEED)

    @overload(_advise)
    def _advise_compiled(address, size):
        return lambda address, size: _madvise(address, size, _DONTNEED)
else:
    @overload(_advise)
    def _advise_compiled(address, size):
        return lambda address, size: None


@njit(cache=_CACHE)
def _give_back(rows, i, stop):
    """Let go of the pages of windows that end within rows i..stop-1: the system keeps them as it sees fit, and they do
    not count as memory of this process.  Pages that the array shares with others are left alone."""
    begin, size = np.int64(rows.ctypes.data), rows.shape[1] * rows.itemsize
    end = begin + rows.shape[0] * size
    first, last = (begin + i * size) // _WINDOW * _WINDOW, (begin + stop * size) // _WINDOW * _WINDOW
    first = max(first, -(-begin // _PAGE) * _PAGE)
    last = min(last, end // _PAGE * _PAGE)
    if first < last:
        _advise(first, last - first)


def _blocks(X):
    """(first row, checked rows in float64) of points, mapped ones a few at a time; else, of checked points, all."""
    mapped = _is_mapped(X)
    few = max(1, (1 << 20) // X.shape[1]) if mapped else len(X)
    for first in range(0, len(X), few):
        block = X[first:first + few]
        yield first, _points(block, first=first) if mapped else block
        if mapped and _shares_pages(X):
            _give_back(np.asarray(X), first, first + len(block))


def _variance(X):
    """Var X, in one pass."""
    count, mean, total = 0, 0.0, 0.0
    for _, block in _blocks(X):
        share, change = block.size / (count + block.size), block.mean() - mean
        total += block.size * (block.var() + (1.0 - share) * change**2)
        mean += share * change
        count += block.size
    return total / count


def _labels(y, n):
    y = _real_array(y, "y", 1).astype(np.float64)
    if y.size != n:
        raise ValueError(f"X has {n} rows and y has {y.size} labels; they must agree")
    wrong = np.flatnonzero(np.abs(y) != 1)
    if wrong.size:
        raise ValueError(f"labels must be -1 or +1; y[{wrong[0]}] is {y[wrong[0]]:g}")
    return y


def _class_labels(y, n, n_classes):
    """Labels 0 to n_classes - 1 as integers, and their number of classes."""
    n_classes = _count(n_classes, "n_classes", 2)
    y = _real_array(y, "labels", 1)
    if y.size != n:
        raise ValueError(f"there are {n} points and {y.size} labels; they must agree")
    wrong = np.flatnonzero((y < 0) | (y >= n_classes) | (y != np.round(y)))
    if wrong.size:
        raise ValueError(f"labels must be integers from 0 to {n_classes - 1}; labels[{wrong[0]}] is {y[wrong[0]]:g}")
    return y.astype(np.int64), n_classes


def _choice(value, name, options):
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")
    return value


def _number(value, name, low=0.0, *, closed=False, infinite=False):
    """A finite number above ``low`` (or at it, when ``closed``; or inf, when ``infinite``)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if infinite and number == math.inf:
        return number
    if not math.isfinite(number) or number < low or (number == low and not closed):
        raise ValueError(f"{name} must be finite and {'at least' if closed else 'above'} {low:g}"
                         f"{', or inf' if infinite else ''}; got {value!r}")
    return number


def _refuse_overflow(*numbers, place=""):
    if not all(np.isfinite(part).all() for part in numbers):
        raise FloatingPointError(f"the iterates or their margins are not finite{place}: they overflowed, or G was "
                                 "written to during the run; rescale G, or give a smaller step to an algorithm that "
                                 "takes one")


def _dtype(dtype):
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    return dtype


def _count(value, name, low=0):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, bool) or number < low:
        raise ValueError(f"{name} must be an integer of at least {low}; got {value!r}")
    if number > 2**53:
        raise ValueError(f"{name} must be at most 2**53, got {value!r}")
    return number


# ======================================================================================================
# 2 vectors
# ======================================================================================================

@njit(cache=_CACHE, fastmath=_FAST, forceinline=True)
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@_linked
def _copy(a, b):
    """The first entries of b <- a; b[:] = a would compile the text of an error about shapes, for seconds."""
    for i in range(a.size):
        b[i] = a[i]


@_linked
def _add(a, b, c):
    """c <- a + b."""
    for i in range(c.size):
        c[i] = a[i] + b[i]


@_linked
def _least(v):
    """v.min(), which Numba compiles as a loop over arrays of any shape, for half a second; NaN if there is one."""
    low, missing = math.inf, False
    for i in range(v.size):
        low = v[i] if v[i] < low else low
        missing |= v[i] != v[i]
    return math.nan if missing else low


@_linked
def _exceeds(v, floor):
    """Whether all of v are above ``floor``."""
    for i in range(v.size):
        if not v[i] > floor:
            return False
    return True


@_linked(fastmath=_FAST)
def _total(v):
    """v.sum(), which likewise compiles for long."""
    total = 0.0
    for i in range(v.size):
        total += v[i]
    return total


@njit(cache=_CACHE, fastmath=_FAST, forceinline=True)
def _softmax(m, q):
    """q <- softmax(-m); returns ln sum_i exp(-m_i)."""
    low = _least(m)
    total = 0.0
    for i in range(m.size):
        q[i] = math.exp(low - m[i])
    for i in range(m.size):  # by itself: beside a store, how it is summed would depend on where the arrays lie
        total += q[i]
    for i in range(m.size):
        q[i] /= total
    return math.log(total) - low


@_linked(fastmath=False, forceinline=True)  # unless told, it takes on the flags of whoever calls it first
def _add_exactly(high, low, a, b):
    """(high, low) + a b for a sum kept in two parts: what the product and the addition round off goes to ``low``.

    Knuth's sum and Dekker's product, as in T. Ogita, S. Rump, S. Oishi, SIAM J. Sci. Comput. 26, 2005.
    """
    product = a * b
    total = high + product
    split_a, split_b = 134217729.0 * a, 134217729.0 * b  # 2^27 + 1: halves of 26 bits, whose products are exact
    a_high, b_high = split_a - (split_a - a), split_b - (split_b - b)
    a_low, b_low = a - a_high, b - b_high
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    part = total - high
    return total, low + (lost + ((high - (total - part)) + (product - part)))


@njit(cache=_CACHE)
def _precise_dot(a, b):
    """(high, low): <a, b> = high + low to twice the working precision."""
    high, low = 0.0, 0.0
    for i in range(a.size):
        high, low = _add_exactly(high, low, a[i], b[i])
    return high, low


@_linked(fastmath=_FAST, forceinline=True)
def _add_multiple(c, a, b):
    """b <- b + c a."""
    for i in range(a.size):
        b[i] += c * a[i]


@_linked
def _part(n, part):
    """Start and stop of one of the parts of n rows; all but the last hold a multiple of four."""
    groups = n // 4
    stop = n if part == _PARTS - 1 else 4 * (groups * (part + 1) // _PARTS)
    return 4 * (groups * part // _PARTS), stop


@_linked(fastmath=_FAST)
def _combine_rows_between(matrix, index, weights, start, stop, out):
    """Entries start..stop-1 of out <- out + sum_k weights_k matrix[index_k], eight rows at a time."""
    n = index.size
    for first in range(start, stop, 1024):
        total, end, k = out[first:min(first + 1024, stop)], min(first + 1024, stop), 0
        while k + 8 <= n:
            i = index[k:k + 8]
            a, b, c = matrix[i[0], first:end], matrix[i[1], first:end], matrix[i[2], first:end]
            d, e, f = matrix[i[3], first:end], matrix[i[4], first:end], matrix[i[5], first:end]
            g, h = matrix[i[6], first:end], matrix[i[7], first:end]
            va, vb, vc, vd = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
            ve, vf, vg, vh = weights[k + 4], weights[k + 5], weights[k + 6], weights[k + 7]
            for j in range(total.size):
                total[j] += ((a[j] * va + b[j] * vb + c[j] * vc + d[j] * vd)
                             + (e[j] * ve + f[j] * vf + g[j] * vg + h[j] * vh))
            k += 8
        while k < n:
            a, va = matrix[index[k], first:end], weights[k]
            for j in range(total.size):
                total[j] += a[j] * va
            k += 1


@_linked
def _combine_rows_part(part, matrix, index, weights, out):
    start, stop = _part(out.size, part)
    _combine_rows_between(matrix, index, weights, start, stop, out)


@njit(cache=_CACHE)
def _combine_rows(matrix, index, weights, out):
    """out <- out + sum_k weights_k matrix[index_k]."""
    _share(_PARTS, _combine_rows_part, (matrix, index, weights, out), index.size * out.size)


# ======================================================================================================
# 3 simplex
# ======================================================================================================

def _distribution(q, name, n):
    """Check that q is a point of the simplex of R^n, up to rounding."""
    q = _real_array(q, name, 1)
    slack = 1e-9 if q.dtype == np.float64 else 1e-5
    q = q.astype(np.float64)
    if q.size != n or q.min() < 0.0 or abs(q.sum() - 1.0) > slack:
        raise ValueError(f"{name} must be {n} non-negative weights that sum to 1; "
                         f"got {q.size} with minimum {q.min():g} and sum {q.sum():.12g}")
    return q


def _weights(alpha):
    """p = alpha / sum alpha for alpha >= 0; uniform where alpha = 0."""
    alpha = np.ldexp(alpha, -math.frexp(float(alpha.max()))[1])  # exact but for underflow, and the sum cannot overflow
    total = alpha.sum()
    return alpha / total if total > 0.0 else np.full(alpha.size, 1.0 / alpha.size)


@_linked(fastmath=False, forceinline=True)  # as for `_add_exactly`
def _excess(x, top, tau):
    """What exceeds tau; the difference from ``top`` must come first, so that nothing cancels at large |x|."""
    return max((x - top) - tau, 0.0)


@njit(cache=_CACHE, fastmath=_FAST)
def _sum_excess(v, top, tau):
    """The sum of what exceeds tau, and how many entries do; without a branch, which would often be mispredicted."""
    total, count = 0.0, 0
    for i in range(v.size):
        x = _excess(v[i], top, tau)
        total += x
        count += x > 0.0
    return total, count


@njit(cache=_CACHE)
def _simplex_tau(v, top, tau):
    """The threshold at which the excess of v sums to 1, from tau on; tau itself if nothing exceeds it.

    Newton's method, which is Michelot's: exact once the support stays as it is, if the step that led there came from
    a sum near 1 and lost no digits.  Each round divides the product of the support and of what the sum has above 1 by
    at least four, so that there are O(log n) of them.
    """
    count, before = 0, tau
    for _ in range(100):
        total, left = _sum_excess(v, top, tau)
        if left == 0:  # as of NaN
            break
        if total > 1.0 and left < v.size // 4:  # tau is not too large: what it excludes is out for good
            kept, k = np.empty(left + 1, v.dtype), 0
            for i in range(v.size):
                kept[k] = v[i]  # stays if k moves on
                k += _excess(v[i], top, tau) > 0.0
            v = kept[:left]
        last, before, tau = before, tau, tau + (total - 1.0) / left
        if left == count and abs(total - 1.0) <= left * _EPS or tau == last:  # rounding may move it to and fro
            break
        count = left
    return tau


@njit(cache=_CACHE)
def _project_simplex(v, out):
    """out <- argmin_{p in Delta} ||p - v||; entries of v may be -infinity, its maximum must be finite.

    All is relative to the maximum, so that nothing cancels at large |v|.
    """
    n, quarter = v.size, (v.size + 3) // 4
    a, b, c, d = v[:quarter], v[n // 4:], v[n // 2:], v[n - quarter:]
    top = v[0]
    for i in range(quarter):  # four at a time, since every maximum waits for the one before
        top = max(max(max(a[i], b[i]), max(c[i], d[i])), top)
    tau = _simplex_tau(v, top, _simplex_tau(v[:n // 64], top, -1.0))  # that of a part is below, often by little
    for i in range(n):
        out[i] = _excess(v[i], top, tau)


def project_simplex(v):
    """Euclidean projection onto the simplex: argmin_{p in Delta} ||p - v||_2, exactly.

    Parameters
    ----------
    v : array, shape (n,)
        Any finite vector.

    Returns
    -------
    p : array, shape (n,)
        max(v - tau, 0) for the one tau at which it sums to 1.

    Raises
    ------
    ValueError
        v is empty, not finite or not a vector (checked in calls from Python; compiled callers vouch for it).

    Notes
    -----
    A few passes, O(log n) at worst, no sort; nothing cancels or overflows at any |v|.  Callable inside njit as well.

    References
    ----------
    C. Michelot, A finite algorithm for finding the projection of a point onto the canonical simplex of R^n, Journal of
    Optimization Theory and Applications 50, 1986.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.project_simplex([1.0, 0.5, -3.0])
    array([0.75, 0.25, 0.  ])
    """
    out = _real_array(v, "v", 1).astype(np.float64)
    _project_simplex(out, out)
    return out


@overload(project_simplex)
def _project_simplex_compiled(v):
    def project(v):
        out = np.empty(v.size)
        _project_simplex(v, out)
        return out
    return project


@_linked
def _fall(low, g, mu):
    """(low - g) / mu, also where the difference of two finite numbers overflows."""
    difference = low - g
    return difference / mu if difference > -np.inf else 2.0 * ((0.5 * low - 0.5 * g) / mu)


@njit(cache=_CACHE)
def _entropy_prox(g, mu, q, out):
    """out_i <- q_i exp(-g_i / mu) / sum, in logarithms, relative to the least g_i with q_i > 0."""
    low = np.inf
    for i in range(g.size):
        if q[i] > 0.0 and g[i] < low:
            low = g[i]
    top = -np.inf
    for i in range(g.size):
        out[i] = _fall(low, g[i], mu) + math.log(q[i]) if q[i] > 0.0 else -np.inf
        top = max(top, out[i])
    total = 0.0
    for i in range(g.size):
        out[i] = math.exp(out[i] - top)
        total += out[i]
    for i in range(g.size):
        out[i] /= total


def entropy_prox(g, mu, q=None):
    """Entropy prox map: argmin_{p in Delta} <g, p> + mu KL(p || q), p_i proportional to q_i exp(-g_i / mu).

    Parameters
    ----------
    g : array, shape (n,)
        Any finite vector.
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

    Notes
    -----
    Exact at any scale: nothing overflows, and mu -> 0 gives q restricted to the least g_i.  Callable inside
    njit as well.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.entropy_prox([0.0, np.log(3.0)], 1.0)
    array([0.75, 0.25])
    """
    g = _real_array(g, "g", 1).astype(np.float64)
    mu = _number(mu, "mu")
    q = np.full(g.size, 1.0 / g.size) if q is None else _distribution(q, "q", g.size)
    out = np.empty(g.size)
    _entropy_prox(g, mu, q, out)
    return out


@overload(entropy_prox)
def _entropy_prox_compiled(g, mu, q=None):
    if q is None or isinstance(q, types.Omitted) or q is types.none:
        def prox(g, mu, q=None):
            out = np.empty(g.size)
            _entropy_prox(g, mu, np.full(g.size, 1.0 / g.size), out)
            return out
    else:
        def prox(g, mu, q=None):
            out = np.empty(g.size)
            _entropy_prox(g, mu, q, out)
            return out
    return prox


@njit(cache=_CACHE)
def _l2_prox(g, mu, q, out):
    """out <- project_simplex(q - g / mu); g is shifted first, so that g / mu cannot overflow upwards."""
    low = _least(g)
    for i in range(g.size):
        out[i] = q[i] + _fall(low, g[i], mu)
    _project_simplex(out, out)


def l2_prox(g, mu, q):
    """Euclidean prox map: argmin_{p in Delta} <g, p> + (mu/2) ||p - q||^2  =  project_simplex(q - g / mu).

    Parameters
    ----------
    g : array, shape (n,)
        Any finite vector.
    mu : float
        Smoothing parameter, above 0, in units of g.
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

    Notes
    -----
    Exact at any scale.  Callable inside njit as well.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.l2_prox([0.0, 1.0], 4.0, [0.5, 0.5])
    array([0.625, 0.375])
    """
    g = _real_array(g, "g", 1).astype(np.float64)
    q = _real_array(q, "q", 1).astype(np.float64)
    if q.size != g.size:
        raise ValueError(f"g has {g.size} entries and q has {q.size}; they must agree")
    mu = _number(mu, "mu")
    out = np.empty(g.size)
    _l2_prox(g, mu, q, out)
    return out


@overload(l2_prox)
def _l2_prox_compiled(g, mu, q):
    def prox(g, mu, q):
        out = np.empty(g.size)
        _l2_prox(g, mu, q, out)
        return out
    return prox


_ENTROPY, _L2 = range(2)


@njit(cache=_CACHE)
def _prox(which, g, mu, q, out):
    if which == _ENTROPY:
        _entropy_prox(g, mu, q, out)
    else:
        _l2_prox(g, mu, q, out)


# ======================================================================================================
# 4 kernels
# ======================================================================================================

_LINEAR, _POLY, _RBF, _LAPLACIAN, _NTK, _PRECOMPUTED, _NTK_LIMIT, _CALLABLE = range(8)
_KERNELS = {"linear": (), "poly": ("gamma", "coef0", "degree"), "rbf": ("gamma", "sigma2"), "laplacian": ("gamma",),
            "ntk": ("W",), "precomputed": ()}
_NORMALIZE = ("unit", "max", None)
_NORMAL = float(np.finfo(np.float64).tiny)  # below which numbers have fewer digits
_BLOCK = 512  # rows of a kernel matrix that are computed at a time
_AT_ONCE = 1 << 23  # entries of one that are computed at a time: 64 MB
_MULTIPLICATIONS = 1 << 31  # for entries of a Gram matrix, in one call of compiled code
_WIDE, _TALL = 32, 16  # columns and rows of one that compiled code evaluates at a time


class _Formula(NamedTuple):
    """What compiled code needs to know of a kernel."""

    code: int
    gamma: float
    coef0: float
    degree: int
    dimension: int  # of the points
    width: int  # of the network of _NTK
    offset: float  # added to every value: the square of the intercept


class _Kernel(NamedTuple):
    formula: _Formula
    center: np.ndarray | None  # subtracted from the points: distances do not change, their rounding shrinks
    W: np.ndarray | None  # of _NTK
    function: Callable | None  # of _CALLABLE


class _Prepared(NamedTuple):
    """Points as kernels read them; arrays with a row for each, without columns where a kernel needs none."""

    rows: np.ndarray  # (n, d) the points; their numbers, (n,), where columns of a precomputed matrix are meant
    squares: np.ndarray  # (n,) ||x_i||^2
    hidden: np.ndarray  # (n, width) relu(W x_i) / sqrt(width), of _NTK
    gates: np.ndarray  # (n, words) uint64, a bit for each w_j'x_i > 0


def _kernel(kernel, X, params):
    """Resolve a kernel's name, or a callable, and its keywords against the training points X."""
    named = not callable(kernel)
    if named:
        _choice(kernel, "kernel", tuple(_KERNELS))
    accepted = _KERNELS[kernel] if named else ()
    if kernel == "precomputed" and X.shape[0] != X.shape[1]:
        raise ValueError('kernel="precomputed" takes the square kernel matrix of the training points in place of the '
                         f"points; got shape {X.shape}")
    unknown = set(params) - {*accepted, "intercept"}
    if unknown:
        raise TypeError(f"kernel {kernel!r} takes {', '.join((*accepted, 'intercept'))}; "
                        f"got {', '.join(sorted(unknown))}")
    if "sigma2" in params:
        if "gamma" in params:
            raise ValueError("give gamma or sigma2 = 1/(2 gamma), not both")
        gamma = 0.5 / _number(params["sigma2"], "sigma2")
        if gamma == math.inf:
            raise ValueError(f"sigma2 is too small, gamma = 1/(2 sigma2) overflows; got {params['sigma2']!r}")
    elif isinstance(params.get("gamma", "scale"), str):
        _choice(params.get("gamma", "scale"), "gamma", ("scale",))
        gamma = _gamma_of_scale(X) if "gamma" in accepted else 1.0
    else:
        gamma = _number(params["gamma"], "gamma")
    code, W = list(_KERNELS).index(kernel) if named else _CALLABLE, None
    if code == _NTK and params.get("W") is None:
        code = _NTK_LIMIT
    elif code == _NTK:
        W = _points(params["W"], "W")
        if W.shape[1] != X.shape[1]:
            raise ValueError(f"W must have a row for each hidden unit and a column for each of the {X.shape[1]} of X; "
                             f"got shape {W.shape}")
    intercept = _number(params.get("intercept", 0.0), "intercept", closed=True)
    formula = _Formula(code, gamma, _number(params.get("coef0", 1.0), "coef0", closed=True),
                       _count(params.get("degree", 3), "degree", 1), X.shape[1], 0 if W is None else len(W),
                       _number(intercept * intercept, "the square of the intercept", closed=True))
    centred = kernel in ("rbf", "laplacian") and not _is_mapped(X)
    return _Kernel(formula, X.mean(axis=0) if centred else None, W,
                   None if named else kernel)


def _gamma_of_scale(X):
    """1 / (d Var X); where Var X = 0, 1 / d."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = X.shape[1] * float(_variance(X))
    if spread < _NORMAL and all((block == X[0, 0]).all() for _, block in _blocks(X)):
        spread = float(X.shape[1])
    if not _NORMAL <= spread < math.inf:
        raise ValueError(f'gamma="scale" is 1 / (d Var X), and d Var X {"under" if spread < 1.0 else "over"}flows; '
                         "rescale the points, or give gamma")
    return 1.0 / spread


def _prepared(kernel, X):
    hidden, gates = np.empty((len(X), 0)), np.empty((len(X), 0), dtype=np.uint64)
    if kernel.center is not None:
        X = X - kernel.center
    if kernel.W is not None:
        hidden = X @ kernel.W.T
        bits = np.zeros((len(X), -(-len(kernel.W) // 64) * 64), dtype=np.bool_)
        bits[:, :len(kernel.W)] = hidden > 0.0
        gates = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
        hidden = np.maximum(hidden, 0.0, out=hidden)
        hidden /= math.sqrt(len(kernel.W))
    squares = np.zeros(len(X)) if kernel.formula.code == _PRECOMPUTED else np.einsum("ij,ij->i", X, X)
    return _Prepared(X, squares, hidden, gates)


def _columns(kernel, points):
    """The training points on the right of `_kernel_block`: themselves, or their numbers."""
    return points._replace(rows=np.arange(len(points.rows))) if kernel.formula.code == _PRECOMPUTED else points


def _without_zeros(points):
    """Without the coordinates that are zero in every point, of which no kernel's values take notice."""
    used = points.rows.any(axis=0)
    return points if used.all() else points._replace(rows=points.rows.compress(used, axis=1))


def _take(points, index):
    """Some of the points, by numbers, mask or slice."""
    return _Prepared(*(part[index] for part in points))


@register_jitable(**_LINKED)
def _popcount(x):
    """Bits that are set, by the sum in each pair, four, eight; compiled to one instruction where there is one."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@_linked(fastmath={"contract"})
def _exponentiate(values):
    """e^x for contiguous values x <= 0, in place, to one unit in the last place; 0 where it is below 3e-308.

    e^x = 2^k e^r with |r| <= log(2) / 2: the last bits of x / log(2) + 1.5 2^52 are k, and are added to the exponent
    of e^r, which is its Taylor polynomial of degree 13.  So written, that is vector code, which `math.exp` is not.
    """
    shifted = np.empty_like(values)
    for j in range(values.size):
        x = values[j]
        shifted[j] = 6755399441055744.0 if x < -708.0 else x * 1.4426950408889634 + 6755399441055744.0
        k = shifted[j] - 6755399441055744.0
        r = x - k * 0.69314718036912381649 - k * 1.90821492927058770002e-10
        e = 1.0 / 6227020800.0
        e = e * r + 1.0 / 479001600.0
        e = e * r + 1.0 / 39916800.0
        e = e * r + 1.0 / 3628800.0
        e = e * r + 1.0 / 362880.0
        e = e * r + 1.0 / 40320.0
        e = e * r + 1.0 / 5040.0
        e = e * r + 1.0 / 720.0
        e = e * r + 1.0 / 120.0
        e = e * r + 1.0 / 24.0
        e = e * r + 1.0 / 6.0
        e = e * r + 0.5
        values[j] = 0.0 if x < -708.0 else e * r * r + r + 1.0
    bits, powers = values.view(np.int64), shifted.view(np.int64)
    for j in range(bits.size):
        bits[j] += powers[j] << 52


@_linked(fastmath=_FAST)
def _log_rbf_row(row, a, squares_b, gamma):
    """Turn <x, b_j> in ``row`` into -gamma ||x - b_j||^2, in place; a = ||x||^2."""
    for j in range(row.size):
        distance = a + squares_b[j] - 2.0 * row[j]
        row[j] = -gamma * (distance if distance > 0.0 else 0.0)


@_linked(fastmath=_FAST)
def _finish_row(row, hidden, a, gates_a, squares_b, gates_b, formula):
    """Turn <x, b_j> in ``row``, and <h(x), h(b_j)> in ``hidden``, into K(x, b_j), in place; a = ||x||^2."""
    if formula.code == _POLY:
        for j in range(row.size):
            row[j] = (formula.gamma * row[j] + formula.coef0) ** formula.degree
    elif formula.code == _RBF:
        _log_rbf_row(row, a, squares_b, formula.gamma)
        _exponentiate(row)
    elif formula.code == _NTK:
        for j in range(row.size):
            overlap = 0
            for k in range(gates_a.size):
                overlap += np.int64(_popcount(gates_a[k] & gates_b[j, k]))
            row[j] = hidden[j] + row[j] * (overlap / formula.width)
    elif formula.code == _NTK_LIMIT:
        level = 1.0 - 2.0 * (formula.dimension + 8.0) * _EPS  # a cosine that may be 1, as for copies of a point
        root = math.sqrt(a)
        for j in range(row.size):
            length = root * math.sqrt(squares_b[j])  # of which the square would leave the range of numbers
            cosine = row[j] / length if length > 0.0 else 0.0
            theta = math.acos(max(cosine, -1.0)) if cosine < level else 0.0
            row[j] = length * (math.sin(theta) + 2.0 * (math.pi - theta) * math.cos(theta)) / (2.0 * math.pi)


@_linked
def _finish_kernel_row(i, dots, hidden, A, B, formula):
    _finish_row(dots[i], hidden[i], A.squares[i], A.gates[i], B.squares, B.gates, formula)


@njit(cache=_CACHE)
def _finish_kernel(dots, hidden, A, B, formula):
    """Turn inner products <a_i, b_j>, and <h(a_i), h(b_j)>, into kernel values, in place."""
    _share(dots.shape[0], _finish_kernel_row, (dots, hidden, A, B, formula), _EXPENSIVE * dots.size)


@_linked(fastmath=_FAST)
def _laplacian_row(a, B, gamma, row):
    for j in range(row.size):
        b = B[j]
        distance = 0.0
        for k in range(a.size):
            distance += abs(a[k] - b[k])
        row[j] = -gamma * distance
    _exponentiate(row)


@_linked
def _laplacian_of(i, A, B, gamma, out):
    _laplacian_row(A[i], B, gamma, out[i])


@njit(cache=_CACHE)
def _laplacian(A, B, gamma, out):
    """out_ij = exp(-gamma ||a_i - b_j||_1)."""
    _share(A.shape[0], _laplacian_of, (A, B, gamma, out), A.shape[0] * B.size)


@_linked
def _pack_panel(A, index, everything, runs, out):
    """Pack the columns of A that are not zero in all rows of ``index``, or ``everything``, by fours in a row.

    out[k _WIDE + r] <- A[index[r], k-th of them], zero beyond index.size; runs[t] <- [start, stop), a stretch of them.
    Returns how many stretches there are.
    """
    count, k = 0, 0
    for start in range(0, A.shape[1], 4):
        stop, seen = min(start + 4, A.shape[1]), everything
        for r in range(index.size):
            row = A[index[r]]
            for column in range(start, stop):
                seen |= row[column] != 0.0
        if not seen:
            continue
        if count == 0 or runs[count - 1, 1] != start:
            runs[count, 0] = start
            count += 1
        runs[count - 1, 1] = stop
        for column in range(start, stop):
            packed = out[k * _WIDE:(k + 1) * _WIDE]
            packed[:] = 0.0
            for r in range(index.size):
                packed[r] = A[index[r], column]
            k += 1
    return count


@_linked(fastmath=_FAST)
def _dot_tile(a, b, c, d, runs, B, tile):
    """tile <- the inner products of four points with _WIDE, packed, over the columns of ``runs``."""
    tile[:] = 0.0
    k, wide = np.uint64(0), np.uint64(_WIDE)  # unsigned, as all indices here: none counts from the end
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    for t in range(runs.shape[0]):
        start, stop = np.uint64(runs[t, 0]), np.uint64(runs[t, 1])
        whole = stop - (stop - start) % four
        for p in range(start, whole, four):
            v = B[k:k + four * wide]
            q, r, s = p + one, p + two, p + three
            a0, a1, a2, a3, b0, b1, b2, b3 = a[p], a[q], a[r], a[s], b[p], b[q], b[r], b[s]
            c0, c1, c2, c3, d0, d1, d2, d3 = c[p], c[q], c[r], c[s], d[p], d[q], d[r], d[s]
            for j in range(_WIDE):
                w, x, y, z = v[j], v[_WIDE + j], v[2 * _WIDE + j], v[3 * _WIDE + j]
                tile[j] += a0 * w + a1 * x + a2 * y + a3 * z
                tile[_WIDE + j] += b0 * w + b1 * x + b2 * y + b3 * z
                tile[2 * _WIDE + j] += c0 * w + c1 * x + c2 * y + c3 * z
                tile[3 * _WIDE + j] += d0 * w + d1 * x + d2 * y + d3 * z
            k += four * wide
        for p in range(whole, stop):
            v, a0, b0, c0, d0 = B[k:k + wide], a[p], b[p], c[p], d[p]
            for j in range(_WIDE):
                tile[j] += a0 * v[j]
                tile[_WIDE + j] += b0 * v[j]
                tile[2 * _WIDE + j] += c0 * v[j]
                tile[3 * _WIDE + j] += d0 * v[j]
            k += wide


@_linked(fastmath=_FAST)
def _distance_tile(a, b, c, d, B, tile):
    """tile <- the l1 distances of four points from _WIDE, packed."""
    tile[:] = 0.0
    for k in range(a.size):
        v = B[k * _WIDE:(k + 1) * _WIDE]
        a0, b0, c0, d0 = a[k], b[k], c[k], d[k]
        for j in range(_WIDE):
            tile[j] += abs(a0 - v[j])
            tile[_WIDE + j] += abs(b0 - v[j])
            tile[2 * _WIDE + j] += abs(c0 - v[j])
            tile[3 * _WIDE + j] += abs(d0 - v[j])


class _Panel(NamedTuple):
    """Up to _WIDE columns of G, packed, with room for _TALL of their entries each."""

    rows: np.ndarray  # (d _WIDE,)
    hidden: np.ndarray  # (width _WIDE,)
    row_runs: np.ndarray  # (d / 8 + 1, 2)
    hidden_runs: np.ndarray  # (width / 8 + 1, 2)
    counts: np.ndarray  # (2,) how many of these runs there are
    squares: np.ndarray  # (_WIDE,)
    gates: np.ndarray  # (_WIDE, words)
    weights: np.ndarray  # (separators, _WIDE)
    sums: np.ndarray  # (separators, _WIDE)
    tile: np.ndarray  # (_TALL _WIDE,)
    hidden_tile: np.ndarray  # (_TALL _WIDE,)


@_linked
def _new_panel(points, separators):
    d, width = points.rows.shape[1], points.hidden.shape[1]
    return _Panel(np.empty(d * _WIDE), np.empty(width * _WIDE), np.zeros((d // 8 + 1, 2), dtype=np.int64),
                  np.zeros((width // 8 + 1, 2), dtype=np.int64), np.zeros(2, dtype=np.int64), np.zeros(_WIDE),
                  np.zeros((_WIDE, points.gates.shape[1]), dtype=np.uint64), np.zeros((separators, _WIDE)),
                  np.zeros((separators, _WIDE)), np.empty(_TALL * _WIDE), np.empty(_TALL * _WIDE))


@_linked
def _fill_panel(points, formula, index, W, panel):
    """Differences of coordinates need those that are zero, products do not."""
    panel.counts[0] = _pack_panel(points.rows, index, formula.code == _LAPLACIAN, panel.row_runs, panel.rows)
    if formula.code == _NTK:
        panel.counts[1] = _pack_panel(points.hidden, index, False, panel.hidden_runs, panel.hidden)
    panel.weights[:] = 0.0
    panel.sums[:] = 0.0
    for j in range(index.size):
        panel.squares[j] = points.squares[index[j]]
        _copy(points.gates[index[j]], panel.gates[j])
        for c in range(W.shape[0]):
            panel.weights[c, j] = W[c, index[j]]


@_linked
def _evaluate_tile(points, formula, i, panel):
    """panel.tile <- K of the points i to i + _TALL - 1, beyond the end the last again, with those of the panel."""
    tile, hidden, last = panel.tile, panel.hidden_tile, points.squares.size - 1
    rows, wide, runs = points.rows, points.hidden, panel.row_runs[:panel.counts[0]]
    for r in range(0, _TALL, 4):
        start, stop = r * _WIDE, (r + 4) * _WIDE
        a, b, c, d = min(i + r, last), min(i + r + 1, last), min(i + r + 2, last), min(i + r + 3, last)
        if formula.code == _LAPLACIAN:
            _distance_tile(rows[a], rows[b], rows[c], rows[d], panel.rows, tile[start:stop])
        else:
            _dot_tile(rows[a], rows[b], rows[c], rows[d], runs, panel.rows, tile[start:stop])
        if formula.code == _NTK:
            _dot_tile(wide[a], wide[b], wide[c], wide[d], panel.hidden_runs[:panel.counts[1]], panel.hidden,
                      hidden[start:stop])
    if formula.code == _LAPLACIAN:
        for k in range(tile.size):
            tile[k] *= -formula.gamma
    elif formula.code == _RBF:  # not by rows, which are short: exponentials of all at once
        for r in range(_TALL):
            row, a = tile[r * _WIDE:(r + 1) * _WIDE], points.squares[min(i + r, last)]
            _log_rbf_row(row, a, panel.squares, formula.gamma)
    elif formula.code != _LINEAR:
        for r in range(_TALL):
            start, stop, k = r * _WIDE, (r + 1) * _WIDE, min(i + r, last)
            _finish_row(tile[start:stop], hidden[start:stop], points.squares[k], points.gates[k], panel.squares,
                        panel.gates, formula)
    if formula.code in (_RBF, _LAPLACIAN):
        _exponentiate(tile)


@_linked
def _kernel_rows_part(part, A, formula, index, B, out):
    panel, none, n = _new_panel(A, 0), np.empty((0, 0)), B.squares.size
    first, stop = _part(n, part)
    for start in range(0, index.size, _WIDE):
        some = index[start:start + _WIDE]
        _fill_panel(A, formula, some, none, panel)
        for i in range(first, stop, _TALL):
            _evaluate_tile(B, formula, i, panel)
            for j in range(some.size):
                for r in range(min(_TALL, stop - i)):
                    out[start + j, i + r] = panel.tile[r * _WIDE + j]


@njit(cache=_CACHE)
def _kernel_rows(A, formula, index, B, out):
    """out[k, j] <- K(a_index_k, b_j), without the intercept."""
    _share(_PARTS, _kernel_rows_part, (A, formula, index, B, out), out.size * (formula.dimension + formula.width))


@_linked
def _gram_part(part, before, points, formula, c, out):
    """The columns of a panel at the left of G and of one at the right, as much work for every part after those before.
    """
    n, panel, none = c.size, _new_panel(points, 0), np.empty((0, 0))
    panels, part = (n + _WIDE - 1) // _WIDE, part + before
    for which in range(1 + (2 * part + 1 < panels)):
        start = _WIDE * (panels - 1 - part if which else part)
        index = np.arange(start, min(start + _WIDE, n))
        _fill_panel(points, formula, index, none, panel)
        for i in range(start, n, _TALL):
            _evaluate_tile(points, formula, i, panel)
            for r in range(min(_TALL, n - i)):
                for j in range(min(index.size, i + r - start + 1)):
                    value = c[i + r] * c[start + j] * (panel.tile[r * _WIDE + j] + formula.offset)
                    out[i + r, start + j] = value
                    out[start + j, i + r] = value


@njit(cache=_CACHE)
def _gram_parts(start, stop, points, formula, c, out):
    cost = 2 * _WIDE * c.size * (formula.dimension + formula.width)
    _share(stop - start, _gram_part, (start, points, formula, c, out), (stop - start) * cost)


def _fill_gram(points, formula, c, out):
    """out_ij <- c_i c_j K(x_i, x_j), exactly symmetric; in calls of a fraction of a second, so that Ctrl-C is answered.
    """
    n, cost = c.size, formula.dimension + formula.width + 200
    parts, step = -(-n // (2 * _WIDE)), _PARTS * max(1, _MULTIPLICATIONS // (_WIDE * n * cost * _PARTS))
    for start in range(0, parts, step):
        _enter(_gram_parts, start, min(start + step, parts), points, formula, c, out)


def _read_only(A):
    A = A.view()
    A.flags.writeable = False
    return A


def _kernel_block(kernel, A, B):
    """K(a_i, b_j) for `_prepared` points; the b_j are `_columns` where B holds training points."""
    block, offset = _block_without_intercept(kernel, A, B), kernel.formula.offset
    return block + offset if offset else block


def _block_without_intercept(kernel, A, B):
    code = kernel.formula.code
    if code == _PRECOMPUTED:
        return A.rows[:, B.rows]
    if code == _CALLABLE:
        try:
            values = kernel.function(_read_only(A.rows), _read_only(B.rows))
        except ValueError as error:
            if "buffer source array is read-only" not in str(error):
                raise
            values = kernel.function(A.rows.copy(), B.rows.copy())  # for compiled code that asks for no less
        out = _real_array(values, "kernel(A, B)", 2)
        if out.shape != (len(A.rows), len(B.rows)):
            raise ValueError("kernel(A, B) must have shape (len(A), len(B)) = "
                             f"{len(A.rows), len(B.rows)}, got {out.shape}")
        return out
    if code == _LAPLACIAN:
        out = np.empty((len(A.rows), len(B.rows)))
        _enter(_laplacian, A.rows, B.rows, kernel.formula.gamma, out)
        return out
    out = A.rows @ B.rows.T
    if code != _LINEAR:
        _enter(_finish_kernel, out, A.hidden @ B.hidden.T if code == _NTK else out, A, B, kernel.formula)
    return out


def _kernel_diagonal(kernel, points):
    """K(x_i, x_i) for `_prepared` points, training ones or new."""
    return _diagonal_without_intercept(kernel, points) + kernel.formula.offset


def _diagonal_without_intercept(kernel, points):
    formula, squares = kernel.formula, points.squares
    if formula.code == _PRECOMPUTED:
        return points.rows.diagonal()
    if formula.code == _CALLABLE:
        few = 32  # of the values in a block only the diagonal is used
        blocks = (_take(points, slice(k, k + few)) for k in range(0, len(points.rows), few))
        return np.concatenate([_block_without_intercept(kernel, block, block).diagonal() for block in blocks])
    if formula.code in (_RBF, _LAPLACIAN):
        return np.ones(len(squares))
    if formula.code == _POLY:
        return (formula.gamma * squares + formula.coef0) ** formula.degree
    if formula.code == _NTK:
        gates = np.unpackbits(points.gates.view(np.uint8), axis=1).sum(axis=1)
        return (np.einsum("ij,ij->i", points.hidden, points.hidden, dtype=np.float64)
                + squares * (gates / formula.width))
    return squares


def _normalizers(diagonal, normalize, name="X", reference=None):
    """c with c_i c_j K_ij normalised.  ``reference`` is the training diagonal, for new points under "max"."""
    if normalize is not None:
        _choice(normalize, "normalize", _NORMALIZE)
    if not np.isfinite(diagonal).all():
        row = np.flatnonzero(~np.isfinite(diagonal))[0]
        raise ValueError(f"K(x, x) overflows at row {row} of {name}; rescale the points")
    top = (diagonal if reference is None else reference).max()
    if 0.0 < top < _NORMAL:
        raise ValueError(f"every row of X has K(x, x) below {_NORMAL:.1g}, where digits are lost; rescale the points")
    if normalize == "unit":
        flat = np.flatnonzero(diagonal < _NORMAL)
        if flat.size:
            raise ValueError(f"row {flat[0]} of {name} has K(x, x) = {diagonal[flat[0]]:g}; "
                             f'normalize="unit" needs K(x, x) > 0, {_NORMAL:.1g} at least')
        return 1.0 / np.sqrt(diagonal)
    if normalize == "max":
        if top <= 0:
            raise ValueError('every row of X has K(x, x) = 0; normalize="max" needs one above 0')
        return np.full(diagonal.size, 1.0 / math.sqrt(top))
    return np.ones(diagonal.size)


def kernel_matrix(A, B, *, kernel="rbf", **params):
    """Cross matrix K(a_i, b_j), unsigned and not normalised.

    Parameters
    ----------
    A : array, shape (k, d)
        The training points, on which gamma="scale" is resolved; for kernel="precomputed" (k, k), their matrix.
    B : array, shape (m, d)
        Other points; for kernel="precomputed" (m, k), the values K(b_j, a_i).
    kernel : str or callable
        As in `gram`.
    **params
        The kernel's parameters, as in `gram`.

    Returns
    -------
    K : array, shape (k, m)

    Raises
    ------
    ValueError
        Values are not finite, the numbers of columns differ, or a parameter is out of range.
    TypeError
        The kernel does not take one of the parameters.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.kernel_matrix([[1.0, 0.0], [0.0, 2.0]], [[3.0, 1.0]], kernel="linear")
    array([[3.],
           [2.]])
    """
    A, B = _points(A, "A", kernel), _points(B, "B", kernel)
    if A.shape[1] != B.shape[1]:
        raise ValueError(f"A has {A.shape[1]} columns and B has {B.shape[1]}; they must agree")
    kernel = _kernel(kernel, A, params)
    if kernel.formula.code == _PRECOMPUTED:
        return B.T + kernel.formula.offset
    return _kernel_block(kernel, _prepared(kernel, A), _prepared(kernel, B))


def _pairs(labels, n_classes):
    """(point, right, wrong): the pairs of a point with each class that is not its own, point by point."""
    right = np.repeat(labels, n_classes - 1)
    wrong = np.tile(np.arange(n_classes - 1), len(labels))
    return np.repeat(np.arange(len(labels)), n_classes - 1), right, wrong + (wrong >= right)


def _class_weights(alpha, labels, n_classes):
    """(k, n_classes, n): T of `pair_gram` for each of k weights of the pairs."""
    T, (point, _, wrong) = np.zeros((len(alpha), n_classes, len(labels))), _pairs(labels, n_classes)
    T[:, wrong, point] = -alpha
    T[:, labels, np.arange(len(labels))] = alpha.reshape(len(alpha), len(labels), -1).sum(axis=2)
    return T


def _kernel_sums(kernel, weights, X, Xnew):
    """sum_i weights_ci K(x_i, x), (k, m), for weights (k, n) and `_prepared` points; not normalised."""
    support, sums = weights.any(axis=0), np.zeros((len(weights), len(Xnew.rows)))
    if support.any():
        columns, weights = _take(_columns(kernel, X), support), weights[:, support]
        step = min(_BLOCK, max(1, _AT_ONCE // weights.shape[1]))
        for start in range(0, len(Xnew.rows), step):
            rows = slice(start, start + step)
            sums[:, rows] = weights @ _kernel_block(kernel, _take(Xnew, rows), columns).T
    return sums


def decision_function(alpha, X, y, Xnew, *, kernel="rbf", normalize="unit", n_classes=None, **params):
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
    kernel : str or callable
        What made G, as in `gram`; for `features`, "linear".
    normalize : {"unit", "max", None}
        What made G, as in `gram`.
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
    ValueError
        Values are not finite, lengths differ, a parameter is out of range, or normalize="unit" meets a point with
        K(x, x) <= 0, or a precomputed kernel, which does not tell K(x, x) of new points.
    TypeError
        The kernel does not take one of the parameters.

    Examples
    --------
    >>> import fastmargin as fm
    >>> X, y = [[2.0, 0.0], [-1.0, 1.0]], [1, -1]
    >>> alpha = fm.max_margin(fm.features(X, y)).alpha
    >>> fm.decision_function(alpha, X, y, [[5.0, 0.0], [0.0, 3.0]], kernel="linear") > 0
    array([ True, False])
    """
    X, Xnew = _points(X, "X", kernel), _points(Xnew, "Xnew", kernel)
    alpha = _array(alpha, "alpha")
    many = alpha.ndim == 2
    alpha = np.atleast_2d(_real_array(alpha, "alpha", 1 + many))
    if n_classes is None:
        y, count = _labels(y, len(X)), len(X)
    else:
        y, n_classes = _class_labels(y, len(X), n_classes)
        count = len(X) * (n_classes - 1)
    if alpha.shape[1] != count:
        raise ValueError(f"alpha has {alpha.shape[1]} weights, and {len(X)} rows of X have {count}; they must agree")
    if X.shape[1] != Xnew.shape[1]:
        raise ValueError(f"X has {X.shape[1]} columns and Xnew has {Xnew.shape[1]}; they must agree")
    kernel = _kernel(kernel, X, params)
    precomputed = kernel.formula.code == _PRECOMPUTED
    X, Xnew = _prepared(kernel, X), _prepared(kernel, Xnew)
    diagonal = _kernel_diagonal(kernel, X)
    if n_classes is None:
        weights = alpha * y
    else:
        weights = _class_weights(alpha, y, n_classes).reshape(-1, len(y))
    weights *= _normalizers(diagonal, normalize)
    if precomputed and normalize == "unit":
        raise ValueError('normalize="unit" needs K(x, x) of the new points, which a precomputed kernel does not tell; '
                         'give G and the scores normalize="max" or None')
    new = np.ones(len(Xnew.rows)) if precomputed else _kernel_diagonal(kernel, Xnew)
    normalizer = _normalizers(new, normalize, "Xnew", diagonal)
    scores = _kernel_sums(kernel, weights, X, Xnew)
    scores *= normalizer
    if n_classes is not None:
        scores = scores.reshape(len(alpha), n_classes, len(new)).swapaxes(1, 2)
    return scores if many else scores[0]


# ======================================================================================================
# 5 representations of G
# ======================================================================================================

# ------------------------------------------------------------------------------------------------------
# 5.1 operations
# ------------------------------------------------------------------------------------------------------
#
# Loops are written once, over anything that can do the operations below.  Each is an ordinary function to
# the interpreter and, to the compiler, an overload that is resolved by the type of G while a loop is compiled.  Shapes
# are checked in calls from Python; compiled callers vouch for them.  A class hierarchy cannot do this, because compiled
# code calls no methods of Python objects, and what Numba offers instead (jitclass) is neither cached on disk nor a
# plain tuple of arrays; functools.singledispatch is opaque to the compiler altogether.

class Representation(Protocol):
    """What a representation of G is: a NamedTuple of arrays and numbers with these methods, and `register`.

    It factors G = Z Z' by *coordinates*: w = Z' v stands for sum_i v_i z_i.  With explicit features w is that
    vector, of length d; a dense G has no features at hand, so there w is v itself and Z w is read as G v.
    Loops call `lift`, `margins`, `add_column`, `softmax_pass` and `square`, compiled, and those over pairs call
    `table_margins`; the methods are called from Python, once per run or round.  `block`, `adder`, `moments`, `precise`
    and `separator` may be missing: `max_margin` then takes longer, or numbers are less accurate.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.FeatureGram([[1.0, 2.0], [0.0, 1.0]]).checked().shape()
    (2, 2)
    """

    def checked(self):
        """Itself, in the layout that its routines expect; raises ValueError or TypeError for bad values."""

    def shape(self):
        """(points, coordinates): the lengths of v and of w = Z' v."""

    def diagonal(self):
        """(n,) float64 array of G_ii."""

    def rounding(self):
        """The `Rounding` of the routines registered for it."""

    def restrict(self, index):
        """G on some of the points, an array of their numbers, in the same representation."""

    def dense(self):
        """G itself, (n, n); asked of a few points at a time."""

    def block(self, rows, columns):
        """G at some rows and columns, arrays of their numbers; by default by way of `restrict` and `dense`."""

    def adder(self):
        """A function ``add(index, weights, m)``, m <- m + sum_k weights_k G e_index_k for distinct points, with the
        errors of `margins`, where a few columns cost less than a product; it may keep those that it has seen."""

    def moments(self, index):
        """sum_i z_i z_i' over some points, (d, d), where there are rows z_i of few coordinates."""

    def precise(self, v):
        """(v' G v, G v, `Rounding`) in twice the working precision, for ||v||_1 <= 1."""

    def separator(self, v):
        """Z'v with the rounding of its last digits alone, where rows are at hand."""


_OPTIONAL = ("block", "adder", "moments", "precise", "separator")
_METHODS = [name for name, method in vars(Representation).items()
            if callable(method) and not name.startswith("_") and name not in _OPTIONAL]


def _block(G, rows, columns):
    """As `Representation.block`, of any representation."""
    if hasattr(G, "block"):
        return G.block(rows, columns)
    points = np.concatenate((columns, rows))
    return G.restrict(points).dense()[columns.size:, :columns.size]


def _add_by_product(G, index, weights, m):
    """m <- m + sum_k weights_k G e_index_k, of any representation, by a product."""
    n, dimension = G.shape()
    v, w, product = np.zeros(n), np.empty(dimension), np.empty(n)
    v[index] = weights
    lift(G, v, w)
    margins(G, w, product)
    m += product


_UNIT = 2.0**-53  # the largest relative error of one operation in double precision
_LAST = 8.0 * _UNIT  # and of a few in a row, as in a square root and a quotient


@register_jitable(**_LINKED)
def _gamma(k, unit=_UNIT):
    """k u / (1 - k u), u = 2^-53: the largest relative error of a term in a sum that saw k operations, in any order."""
    return k * unit / (1.0 - k * unit) if k * unit < 1.0 else math.inf


class Rounding(NamedTuple):
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
    Since |G_ij| <= s, sum_j |G_ij v_j| <= s: a sum of n rounded terms, in whatever order, errs by at most gamma_n s
    with gamma_k = k u / (1 - k u) and u = 2^-53, and by one rounding of the entries more where G itself was rounded
    when it was stored.  Over rows, w errs by gamma_n sqrt(s) in length and <z_i, w> by gamma_d sqrt(s) ||w|| more.  A
    factor of 1.01 stands for all products of such errors, for the rounding of s itself (and of G, which may leave
    |G_ij| above s), and, where s > 1e-285, for underflow.

    References
    ----------
    N. Higham, Accuracy and Stability of Numerical Algorithms, SIAM 2002, section 3.1.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.Rounding.of_entries(1000, 0.0).square, fm.Rounding.of_rows(1000, 100).square
    (2.2605917138210118e-13, 0.0)
    """

    margins: float
    square: float
    length: float

    @classmethod
    def of_entries(cls, n, unit):
        """Of sums over the n entries of a row of G, which are themselves known to a relative ``unit``."""
        margins = 1.01 * (_gamma(n + 8) + unit)
        return cls(margins, 2.0 * margins, 0.0)

    @classmethod
    def of_rows(cls, n, d):
        """Of w = Z'v and <z_i, w> by the n rows of Z, (n, d), known exactly or as products of two numbers."""
        error = 1.01 * _gamma(n + d + 8)
        return cls(error, 0.0, error)


_OPERATIONS = {}


class _Bound(NamedTuple):
    """A representation with the addresses of its compiled routines, as the driver gives it to compiled loops.

    Numba compiles whatever a function calls into it once more; so every loop would hold its own copy of the routines,
    and of what these call, and take as long to compile.  None: this one is not called, or inlined.
    """

    representation: tuple
    lift: int | None = None
    margins: int | None = None
    add_column: int | None = None
    softmax_pass: int | None = None
    square: int | None = None
    table_margins: int | None = None


def _machine_types(signature):
    """Of the arguments after G, as the routines of an operation are compiled."""
    names = list(inspect.signature(signature).parameters)[1:]
    return [types.int64 if name == "i" else types.float64 if name == "c" else
            types.float64[:, ::1] if name.isupper() else types.float64[::1] for name in names]


def _call_at(returns):
    """Make compiled code that calls other compiled code at an address; exceptions pass through."""
    @intrinsic
    def call_at(typing_context, address, arguments):
        wanted = [types.int64 if isinstance(kind, types.Integer) else types.float64 if isinstance(kind, types.Float)
                  else kind for kind in arguments]

        def generate(context, builder, signature, values):
            convention = context.call_conv
            given = [context.cast(builder, value, *kinds) for value, *kinds in
                     zip(cgutils.unpack_tuple(builder, values[1]), arguments, wanted, strict=True)]
            code = builder.inttoptr(values[0], convention.get_function_type(returns, wanted).as_pointer())
            status, value = convention.call_function(builder, code, returns, wanted, given)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return value

        return returns(address, arguments), generate

    return call_at


_CALL_AT = {None: _call_at(types.none), float: _call_at(types.float64)}


@functools.cache
def _address(operation, representation, G):
    """Of the machine code for G of this numba type; None where that returns something else than it should."""
    routine, arguments = _kept_off_disk(G, operation.routines[representation]), (G, *_machine_types(operation))
    _enter(routine.compile, arguments)  # what is loaded from the cache may ask for the threads
    code = routine.overloads[arguments]
    if code.signature.return_type != (types.float64 if operation.__annotations__ else types.none):
        return None
    return code.library.get_pointer_to_function(code.fndesc.llvm_func_name)


@functools.cache
def _operations_called(function, representation):
    """Names of the operations that have compiled routines and are called by a function or by functions it mentions."""
    found, ahead, seen = set(), [function], set()
    while ahead:
        code = ahead.pop()
        code = getattr(code, "py_func", code)
        if code in seen:
            continue
        seen.add(code)
        for name in code.__code__.co_names:
            called = code.__globals__.get(name, _OPERATIONS.get(name))  # fastmargin.lift leaves the attribute's name
            if hasattr(called, "routines"):
                name, called = called.__name__, called.routines[representation]
                if is_jitted(called):
                    found.add(name)
                    continue
            if is_jitted(called) or inspect.isfunction(called):
                ahead.append(called)
    return found


def _bound(G, *functions):
    """G for functions that are compiled."""
    called = set().union(*(_operations_called(function, type(G)) for function in functions))
    G = _with_bound_parts(G)
    machine_type = typeof(G)
    return _Bound(G, **{name: _address(_OPERATIONS[name], type(G), machine_type) for name in called})


def _with_bound_parts(G):
    """G for its own routines: what it is made of is bound."""
    parts = {name: part for name, part in zip(G._fields, G, strict=True) if type(part) in lift.routines}
    if not parts:
        return G
    routines = [call.routines[type(G)] for call in _OPERATIONS.values() if is_jitted(call.routines[type(G)])]
    return G._replace(**{name: _bound(part, *routines) for name, part in parts.items()})


def _is_ours(G):
    """Whether a representation, or a numba type of one, and whatever it is made of, is of this module."""
    if isinstance(G, tuple):
        return type(G).__module__ == __name__ and all(_is_ours(part) for part in G if isinstance(part, tuple))
    return G.instance_class.__module__ == __name__ and all(
        _is_ours(part) for part in G.types if isinstance(part, types.BaseNamedTuple))


@functools.cache
def _uncached(code):
    return njit(code.py_func)


def _kept_off_disk(G, code):
    """Compiled code of this module, in a version that is never on disk where G brings in code of another file."""
    return _uncached(code) if is_jitted(code) and code.__module__ == __name__ and not _is_ours(G) else code


def _unregistered(kind):
    name = f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else kind
    return (f"{name} is not a registered representation of G: register the class first, or take the G of "
            "prepare(G, max_iter)")


def _operation(signature):
    """Make a function that dispatches on the representation, when compiled and when interpreted alike."""
    routines, names = {}, list(inspect.signature(signature).parameters)[1:]

    @functools.wraps(signature)
    def call(G, *args):
        if type(G) not in routines:
            raise TypeError(_unregistered(type(G)))
        n, dimension = G.shape()
        for name, value in zip(names, args, strict=True):
            size = {"v": n, "m": n, "q": n, "w": dimension, "u": dimension}.get(name.lower())
            if size is None:
                pass
            elif name.isupper() and not (isinstance(value, np.ndarray) and value.shape == (len(args[0]), size)):
                raise ValueError(f"{name} must be an array of shape ({len(args[0])}, {size}), got {np.shape(value)}")
            elif name.islower() and not (isinstance(value, np.ndarray) and value.shape == (size,)):
                raise ValueError(f"{name} must be an array of shape ({size},), got {np.shape(value)}")
            if name == "i" and not 0 <= value < n:
                raise IndexError(f"i must be the number of one of {n} points, got {value}")
        routine = _kept_off_disk(G, routines[type(G)])
        return _enter(routine, _with_bound_parts(G) if is_jitted(routine) else G, *args)

    @overload(call, strict=False, jit_options=_LINKED)
    def choose(G, *args):
        representation, place = getattr(G, "instance_class", None), None
        if representation is _Bound:
            representation, place = G.types[0].instance_class, _Bound._fields.index(signature.__name__)
        if representation not in routines:
            raise TypingError(_unregistered(representation or str(G)))
        routine = _kept_off_disk(G, routines[representation])
        if place is None or not is_jitted(routine):
            def pass_on(G, *args):
                return routine(G, *args)
        elif G.types[place] == types.int64 and all(
                given == wanted for given, wanted in zip(args, _machine_types(signature), strict=True)
                if isinstance(wanted, types.Array)):
            call_at = _CALL_AT[signature.__annotations__.get("return")]

            def pass_on(G, *args):
                return call_at(G[place], (G.representation, *args))
        else:
            def pass_on(G, *args):
                return routine(G.representation, *args)

        # Numba tells machine code apart by this name, the types and a counter that begins anew in every process: under
        # one name, what one process has cached for lift would be taken for margins, of the same types, by another.
        pass_on.__qualname__ = signature.__name__
        return pass_on

    call.routines = routines
    _OPERATIONS[signature.__name__] = call
    return call


@_operation
def lift(G, v, w):
    """w <- Z' v, the coordinates of sum_i v_i z_i; `lift` and `margins` together are one product G v.

    Parameters
    ----------
    G : representation
        Of n points in d coordinates, as `prepare` returns it.
    v : array, shape (n,)
    w : array, shape (d,)
        Overwritten.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> w = np.empty(2)
    >>> fm.lift(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), np.array([2.0, 1.0]), w)
    >>> w
    array([2., 5.])
    """


@_operation
def margins(G, w, m):
    """m <- Z w, the margins of the separator with coordinates w.

    Parameters
    ----------
    G : representation
        Of n points in d coordinates, as `prepare` returns it.
    w : array, shape (d,)
    m : array, shape (n,)
        Overwritten.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> m = np.empty(2)
    >>> fm.margins(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), np.array([2.0, 5.0]), m)
    >>> m
    array([12.,  5.])
    """


@_operation
def add_column(G, i, c, m):
    """m <- m + c G e_i: one column, a product's n-th part.

    Parameters
    ----------
    G : representation
        Of n points in d coordinates, as `prepare` returns it.
    i : int
        Number of the point.
    c : float
    m : array, shape (n,)
        Changed in place.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> m = np.zeros(2)
    >>> fm.add_column(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), 1, 10.0, m)
    >>> m
    array([20., 10.])
    """


@_operation
def softmax_pass(G, w, m, q, u) -> float:
    """m <- Z w, q <- softmax(-m), u <- Z' q: one product, and over features one reading of Z.

    Parameters
    ----------
    G : representation
        Of n points in d coordinates, as `prepare` returns it.
    w : array, shape (d,)
    m, q : array, shape (n,)
        Overwritten.
    u : array, shape (d,)
        Overwritten.

    Returns
    -------
    float
        ln sum_i exp(-m_i).

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> m, q, u = np.empty((3, 2))
    >>> log_total = fm.softmax_pass(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])), np.zeros(2), m, q, u)
    >>> q, u
    (array([0.5, 0.5]), array([0.5, 1.5]))
    """


@_operation
def square(G, v, w, m) -> float:
    """v' G v, given w = Z' v and m = G v: no product.

    Parameters
    ----------
    G : representation
        Of n points in d coordinates, as `prepare` returns it.
    v : array, shape (n,)
    w : array, shape (d,)
    m : array, shape (n,)

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.square(fm.FeatureGram(np.eye(2)), np.array([3.0, 4.0]), np.array([3.0, 4.0]), np.array([3.0, 4.0]))
    25.0
    """


@_operation
def table_margins(G, W, M):
    """M <- W Z', the margins of several separators at once, one a row.

    Parameters
    ----------
    G : representation
        Of n points in d coordinates, as `prepare` returns it.
    W : array, shape (k, d)
    M : array, shape (k, n)
        Overwritten.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> M = np.empty((2, 3))
    >>> fm.table_margins(fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0]])), np.eye(2), M)
    >>> M
    array([[1., 0., 1.],
           [2., 1., 0.]])
    """


@register_jitable(**_LINKED)
def _one_by_one(G, W, M):
    for c in range(W.shape[0]):
        margins(G, W[c], M[c])


@register_jitable(**_LINKED)
def _three_step_pass(G, w, m, q, u):
    margins(G, w, m)
    log_total = _softmax(m, q)
    lift(G, q, u)
    return log_total


@register_jitable(**_LINKED)
def _inner_product(G, v, w, m):
    return _dot(v, m)


def register(representation, *, lift=None, margins=None, add_column=None, softmax_pass=None, square=None,
             table_margins=None):
    """Make a class a representation of G: every algorithm runs on it, none changed.

    Parameters
    ----------
    representation : type
        A NamedTuple class with the methods of `Representation`.
    lift, margins, add_column : callable
        Its routines, called as ``lift(G, v, w)`` and so on: compiled with njit, or compiled here.  What they do is
        documented with the operations of the same name.
    softmax_pass, square, table_margins : callable, optional
        By default `margins`, a softmax and `lift`; <v, m>; and `margins` of one row after the other.

    Raises
    ------
    TypeError
        The class is no NamedTuple, a method or routine is missing or takes other parameters, or the class is registered
        already (what has been compiled for it would not change; define the class anew, under the same name if you
        like).
    ValueError
        A routine is cached on disk.

    Notes
    -----
    Numba's disk cache notices changes of the file that a function stands in, but not of the functions it calls, which
    are compiled into it.  So that nothing outlives a change, routines registered here may not be cached on disk, and
    a loop of this module over a class of another module never is; what they call should not be, either.

    Examples
    --------
    The README holds a complete representation.

    >>> import fastmargin as fm
    >>> fm.register(tuple)
    Traceback (most recent call last):
      ...
    TypeError: register(tuple): a representation is a NamedTuple class
    """
    name = getattr(representation, "__name__", repr(representation)).partition("#")[0]
    if not (isinstance(representation, type) and issubclass(representation, tuple)
            and hasattr(representation, "_fields")):
        raise TypeError(f"register({name}): a representation is a NamedTuple class")
    routines = {"lift": lift, "margins": margins, "add_column": add_column,
                "softmax_pass": _three_step_pass if softmax_pass is None else softmax_pass,
                "square": _inner_product if square is None else square,
                "table_margins": _one_by_one if table_margins is None else table_margins}
    missing = [f"the routine {key}" for key, routine in routines.items() if routine is None]
    missing += [f"the method {key}" for key in _METHODS if not callable(getattr(representation, key, None))]
    if missing:
        raise TypeError(f"register({name}) lacks {', '.join(missing)}")
    if representation in _OPERATIONS["lift"].routines:
        raise TypeError(f"register({name}): the class is registered already, and what has been compiled for it would "
                        "not change; define the class anew")
    for key, routine in routines.items():
        if not (is_jitted(routine) or inspect.isfunction(routine)):
            raise TypeError(f"register({name}): {key} must be a function, plain or compiled with njit; got {routine!r}")
        _never_stale(routine, key)
        wanted = inspect.signature(_OPERATIONS[key])
        try:
            inspect.signature(getattr(routine, "py_func", routine)).bind(*wanted.parameters)
        except TypeError as error:
            raise TypeError(f"register({name}): {key} is called as {key}{wanted}: {error}") from None
    same_name = sum(other.__name__.partition("#")[0] == name for other in _OPERATIONS["lift"].routines)
    if same_name:  # Numba tells named tuples apart by name and fields alone, and would mix up what it compiled
        representation.__name__ = f"{name}#{same_name + 1}"
    for key, routine in routines.items():
        plain = routine.__module__ != __name__ and not is_jitted(routine)
        _OPERATIONS[key].routines[representation] = njit(routine) if plain else routine


def _never_stale(function, name):
    """A function, unless it stands in another file and is cached on disk there: see `register`, Notes."""
    if function.__module__ != __name__ and is_jitted(function) and function.stats.cache_path is not None:
        raise ValueError(f"{name} is cached on disk, where it would outlive changes of the functions it calls; "
                         "compile it with njit, without cache=True")
    return function


# ------------------------------------------------------------------------------------------------------
# 5.2 ridge
# ------------------------------------------------------------------------------------------------------

class RidgeGram(NamedTuple):
    """G + r I over another representation, what ``ridge=r`` makes of it.  The methods are those of `Representation`.

    Coordinates are those of G, and then sqrt(r) v.

    Attributes
    ----------
    base : representation
        G.
    ridge : float
        r.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.features([[3.0, 4.0], [0.0, 1.0]], [1, 1], normalize=None, ridge=0.5).dense()
    array([[25.5,  4. ],
           [ 4. ,  1.5]])
    """

    base: tuple
    ridge: float

    def checked(self):
        return RidgeGram(self.base.checked(), _number(self.ridge, "ridge"))

    def shape(self):
        n, dimension = self.base.shape()
        return n, n + dimension

    def diagonal(self):
        return self.base.diagonal() + self.ridge

    def rounding(self):
        """Beside what the base does, in its own s, r v_i errs by a few units, and the sum of their squares by n; where
        the base takes a square from m, it is given m - r v, of which a few are lost."""
        rounding, n = self.base.rounding(), self.base.shape()[0]
        return Rounding(rounding.margins + _gamma(16), rounding.square + (_gamma(16) if rounding.square else 0.0),
                        rounding.length + _gamma(n + 16))

    def restrict(self, index):
        return self._replace(base=self.base.restrict(index))

    def dense(self):
        G = self.base.dense().astype(np.float64)
        G[np.diag_indices_from(G)] += self.ridge
        return G

    def block(self, rows, columns):
        return _block(self.base, rows, columns) + self.ridge * (rows[:, None] == columns)

    @property
    def mirrored(self):
        return self.base.mirrored

    @property
    def adder(self):
        """As of the base, where it has it."""
        adder = self.base.adder

        def with_ridge():
            add_to_base = adder()

            def add(index, weights, m):
                add_to_base(index, weights, m)
                m[index] += self.ridge * weights

            return add

        return with_ridge

    @property
    def precise(self):
        """As of the base, where it has it."""
        products = self.base.precise

        def precise(v):
            size, m, rounding = products(v)
            terms, s = self.ridge * v, float(self.diagonal().max())
            lost = _LAST * float(max(np.abs(m).max(), np.abs(terms).max())) / s  # where the terms cancel
            return (size + self.ridge * sum(_precise_dot(v, v)), m + terms,
                    rounding._replace(margins=rounding.margins + lost))

        return precise


def _with_ridge(G, ridge):
    ridge = _number(ridge, "ridge", closed=True)
    return RidgeGram(G, ridge) if ridge else G


@njit(cache=_CACHE)
def _ridge_lift(G, v, w):
    d, root = w.size - v.size, math.sqrt(G.ridge)
    lift(G.base, v, w[:d])
    for i in range(v.size):
        w[d + i] = root * v[i]


@njit(cache=_CACHE)
def _ridge_margins(G, w, m):
    d, root = w.size - m.size, math.sqrt(G.ridge)
    margins(G.base, w[:d], m)
    for i in range(m.size):
        m[i] += root * w[d + i]


@njit(cache=_CACHE)
def _ridge_add_column(G, i, c, m):
    add_column(G.base, i, c, m)
    m[i] += c * G.ridge


@njit(cache=_CACHE)
def _ridge_square(G, v, w, m):
    rest = np.empty(m.size)
    for i in range(m.size):
        rest[i] = m[i] - G.ridge * v[i]
    return square(G.base, v, w[:w.size - v.size], rest) + G.ridge * _dot(v, v)


@njit(cache=_CACHE)
def _ridge_table_margins(G, W, M):
    n, root = M.shape[1], math.sqrt(G.ridge)
    d = W.shape[1] - n
    of_base = np.empty((W.shape[0], d))
    for c in range(W.shape[0]):
        _copy(W[c, :d], of_base[c])
    table_margins(G.base, of_base, M)
    for c in range(W.shape[0]):
        for i in range(n):
            M[c, i] += root * W[c, d + i]


register(RidgeGram, lift=_ridge_lift, margins=_ridge_margins, add_column=_ridge_add_column, square=_ridge_square,
         table_margins=_ridge_table_margins)


# ------------------------------------------------------------------------------------------------------
# 5.3 dense
# ------------------------------------------------------------------------------------------------------

class DenseGram(NamedTuple):
    """A symmetric (n, n) matrix, C-ordered, float64 or float32; products read its upper triangle alone.

    Algorithms make it of a plain array by themselves, of a Fortran-ordered one by transposing it.  The methods are
    those of `Representation`.

    Attributes
    ----------
    matrix : array, shape (n, n)
        G.
    mirrored : bool
        Whether G is known to be symmetric to the last bit, so that rows may be read for columns.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.DenseGram(np.eye(3)).shape()
    (3, 3)
    """

    matrix: np.ndarray
    mirrored: bool = False

    def checked(self):
        G = DenseGram(*_symmetric(self.matrix, "G"))
        if 0.0 < G.diagonal().max() < np.finfo(G.matrix.dtype).tiny:
            raise ValueError(f"max_i G_ii is {G.diagonal().max():g}, too small to have all digits of {G.matrix.dtype}; "
                             "rescale G")
        return G

    def shape(self):
        return self.matrix.shape

    def diagonal(self):
        return self.matrix.diagonal().astype(np.float64)

    def rounding(self):
        return Rounding.of_entries(len(self.matrix), 0.5 * float(np.finfo(self.matrix.dtype).eps))

    def restrict(self, index):
        return DenseGram(np.ascontiguousarray(self.matrix[np.ix_(index, index)]), self.mirrored)

    def dense(self):
        return self.matrix

    def block(self, rows, columns):
        out = np.empty((len(rows), len(columns)), self.matrix.dtype)
        _enter(_gather, self.matrix, rows, columns, out)
        return out

    def adder(self):
        def add(index, weights, m):
            if 2 * len(index) > m.size:  # a product reads half of G
                _add_by_product(self, index, weights, m)
            else:
                _enter(_combine_rows, self.matrix, index, weights, m)

        return add

    def precise(self, v):
        n, m = v.size, np.empty(v.size)
        size = _dense_precise(self.matrix, v, m)
        margins = 1.01 * (0.5 * float(np.finfo(self.matrix.dtype).eps) + _UNIT + _gamma(2 * n + 8)**2)
        return size, m, Rounding(margins, 2.0 * margins, 0.0)


def _symmetric(given, name):
    """(a C-ordered float matrix without visible flaw, whether it is symmetric to the last bit); else an error that says
    where the flaw is."""
    matrix = _array(given, name)
    if matrix.ndim != 2 or not matrix.size or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be a square matrix of real numbers"
                         f"{' or a representation such as features() makes' * (name == 'G')}; "
                         f"got shape {matrix.shape} and dtype {matrix.dtype}")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    given = matrix
    # A symmetric matrix is its own transpose: a Fortran-ordered one needs no copy.
    matrix = matrix.T if matrix.flags.f_contiguous else np.ascontiguousarray(matrix)
    diagonal = matrix.diagonal().astype(np.float64)
    slack = 1e3 * float(np.finfo(matrix.dtype).eps) * float(np.abs(diagonal).max())
    sound, mirrored = False, False
    if np.isfinite(diagonal).all() and diagonal.min() >= 0.0:
        bits = matrix.view(np.uint64 if matrix.dtype == np.float64 else np.uint32)
        keys = np.random.default_rng(0).integers(0, 2**32, (2, len(matrix)), np.uint64)
        found = np.zeros((_PARTS, 8), dtype=np.uint64)
        with np.errstate(over="ignore"):  # of integers, in interpreted code
            _enter(_inspect_parts, matrix, bits, np.sqrt(diagonal), slack, keys, found)
        large, *differences = found.sum(axis=0)[:3]
        mirrored = not any(differences)
        sound = mirrored and large == 0
    i, j, kind = (-1, -1, 0) if sound else _find_flaw(matrix, slack)
    if i >= 0:
        flaw = ("must be finite", f"must be symmetric (take ({name} + {name}.T) / 2)",
                "must be positive semi-definite")[kind]
        entries = (f"{name}[{a}, {b}] = {given[a, b]}" for a, b in dict.fromkeys(((i, j), (j, i), (i, i), (j, j))))
        raise ValueError(f"{name} {flaw}; row {i} has {', '.join(entries)}")
    return matrix, mirrored


# A matrix is checked in one reading, four rows at a time.  Whether it is symmetric to the last bit tells a sum over all
# entries of b_ij r_i s_j above the diagonal and -b_ij s_i r_j below, modulo 2^64, for the bits b_ij of G_ij, folded to
# 32, and random r and s: it is 0 if b is symmetric, and else all but surely not.

_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(32)


@_linked(forceinline=True)
def _fold(bits):
    return (np.uint64(bits) ^ (np.uint64(bits) >> _HALF)) & _LOW


@_linked(fastmath=_FAST)
def _weigh_four(a, b, c, d, keys):
    """sum_k fold(bits_k) keys_k of four rows of bits, for keys below 2^32."""
    of_a, of_b, of_c, of_d = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    for k in range(keys.size):
        key = keys[k] & _LOW
        of_a += _fold(a[k]) * key
        of_b += _fold(b[k]) * key
        of_c += _fold(c[k]) * key
        of_d += _fold(d[k]) * key
    return of_a, of_b, of_c, of_d


@_linked(fastmath=_FAST)
def _count_large(row, most, roots, slack):
    """Entries of a row that are not finite, or above what 2x2 minors allow."""
    count = 0
    for k in range(row.size):
        count += np.int64(not abs(row[k]) <= most * roots[k] + slack)
    return count


@_linked
def _inspect_part(part, matrix, bits, roots, slack, keys, found):
    """Add to found: entries that are too large, the sum of the bits, and pairs near the diagonal that differ."""
    n = roots.size
    start, stop = _part(n, part)
    for i in range(start, stop, 4):
        a, b, c, d, end = i, min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1), min(i + 4, n)
        above = _weigh_four(bits[a, end:], bits[b, end:], bits[c, end:], bits[d, end:], keys[1, end:])
        below = _weigh_four(bits[a, :i], bits[b, :i], bits[c, :i], bits[d, :i], keys[0, :i])
        for r in range(i, end):
            found[part, 0] += np.uint64(_count_large(matrix[r, i:], roots[r] * (1.0 + 5e-7), roots[i:], slack))
            found[part, 1] += keys[0, r] * above[r - i] - keys[1, r] * below[r - i]
            for k in range(i, r):
                found[part, 2] += np.uint64(bits[r, k] != bits[k, r])


@njit(cache=_CACHE)
def _inspect_parts(matrix, bits, roots, slack, keys, found):
    _share(_PARTS, _inspect_part, (matrix, bits, roots, slack, keys, found), matrix.size)


@njit(cache=_CACHE)
def _find_flaw(matrix, slack):
    """First (i, j, kind) at which a matrix is not finite (0), not symmetric (1) or has a 2x2 minor below 0 (2)."""
    n, top = matrix.shape[0], 0.0
    for i in range(n):
        top = max(top, float(matrix[i, i]))
    unit = 1.0 / top if top > 0.0 else 1.0  # squares of the entries themselves could over- or underflow
    floor = (slack * unit)**2
    for row in range(0, n, 64):  # tiles, for the sake of the mirrored entries
        for column in range(0, row + 1, 64):
            for i in range(row, min(row + 64, n)):
                for j in range(column, min(column + 64, i + 1)):
                    a, b = matrix[i, j], matrix[j, i]
                    if not (math.isfinite(a) and math.isfinite(b)):
                        return i, j, 0
                    if abs(a - b) > slack:
                        return i, j, 1
                    minor = (unit * matrix[i, i]) * (unit * matrix[j, j]) * (1.0 + 1e-6) + floor
                    if (unit * a)**2 > minor or matrix[i, i] < 0.0:
                        return i, j, 2
    return -1, -1, 0


@_linked
def _gather_part(part, matrix, rows, columns, out):
    start, stop = _part(rows.size, part)
    for a in range(start, stop):
        row = matrix[rows[a]]
        for b in range(columns.size):
            out[a, b] = row[columns[b]]


@njit(cache=_CACHE)
def _gather(matrix, rows, columns, out):
    _share(_PARTS, _gather_part, (matrix, rows, columns, out), _EXPENSIVE * out.size)


def _check_callable(block, diagonal, start):
    """Refuse a callable kernel whose values among the points from ``start`` on are no kernel's."""
    slack = 1e-5 * np.abs(diagonal).max()
    i, j, kind = _find_flaw(block, slack)
    if i >= 0:
        raise ValueError(f"kernel(A, B) must be {('finite', 'symmetric', 'positive semi-definite')[kind]}; for rows "
                         f"{start + i} and {start + j} of X it gives {block[np.ix_([i, j], [i, j])].tolist()}")
    wrong = np.flatnonzero(np.abs(block.diagonal() - diagonal) > slack)
    if wrong.size:
        i = wrong[0]
        raise ValueError(f"kernel(A, B) must not depend on the other points; for row {start + i} of X it gives K(x, x) "
                         f"= {diagonal[i]:g}, and {block[i, i]:g} among {len(block)} points")


@_linked
def _place_tile(tile, block, start, c, out):
    for i in range(max(start, 64 * tile), start + block.shape[0]):
        for j in range(64 * tile, min(64 * tile + 64, i + 1)):
            value = c[i] * c[j] * block[i - start, j]
            out[i, j] = value
            out[j, i] = value


@njit(cache=_CACHE)
def _place_block(block, start, c, out):
    """out[i, j] = out[j, i] = c_i c_j block[i - start, j] for the rows of one block and all j <= i, in tiles."""
    _share((start + block.shape[0] + 63) // 64, _place_tile, (block, start, c, out), 2 * block.size)


def gram(X, y=None, *, kernel="rbf", normalize="unit", dtype=np.float64, ridge=0.0, **params):
    """Dense signed Gram matrix G_ij = y_i y_j K(x_i, x_j) / normalisation + r [i = j], exactly symmetric.

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
        f(x) = m^(-1/2) sum_j a_j relu(w_j'x) in both layers, a_j = +-1; without W its limit of infinite width for
        w_j ~ N(0, I), ||x|| ||x'|| (sin t + 2 (pi - t) cos t) / (2 pi) with t the angle between x and x';
        "precomputed": X is the matrix;
        or a symmetric, positive semi-definite function ``kernel(A, B)`` of two sets of points, (k, d) and (m, d),
        read-only, or copies where compiled code refuses such, that returns the values K(a_i, b_j), (k, m).
    normalize : {"unit", "max", None}
        "unit" divides K_ij by sqrt(K_ii K_jj), so that G_ii = 1 (ramdas14); "max" divides by max_i K_ii, so that
        G_ii <= 1 (ji21); None leaves K as it is.
    dtype : {float64, float32}
        float32 takes half the memory; sums over n stay in float64.
    ridge : float
        r >= 0, added to G_ii: the hard-margin problem of G + r I is the soft-margin SVM with squared slacks and
        C = 1/(2r).
    **params
        gamma, a number or "scale" (the default), 1 / (d Var X); sigma2 in its place for "rbf", with
        gamma = 1/(2 sigma2); coef0 = 1 and degree = 3 for "poly"; W, (m, d), or None for "ntk".
        For every kernel intercept = 0: c makes it K + c^2, as if all points had a constant feature c.

    Returns
    -------
    G : array, shape (n, n)
        Memory: the matrix and, of a callable or precomputed kernel, a block of 512 rows.

    Raises
    ------
    ValueError
        Values are not finite, labels are not -1 or +1, lengths differ, K(x, x) <= 0 under "unit", a parameter, or
        what "scale" stands for, is out of range, or a precomputed or callable kernel is not symmetric or has the wrong
        shape.
    TypeError
        The kernel does not take one of the parameters.

    Notes
    -----
    Of a callable kernel the values among every 512 points in a row are checked for symmetry; others are taken from
    below the diagonal.

    References
    ----------
    "ntk": A. Jacot, F. Gabriel, C. Hongler, NeurIPS 2018; its limit is half the sum of the arc-cosine kernel of degree
    1 and <x, x'> times that of degree 0: Y. Cho, L. Saul, NeurIPS 2009.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.gram([[1.0, 1.0], [0.0, 2.0]], [1, -1], kernel="linear", normalize=None)
    array([[ 2., -2.],
           [-2.,  4.]])
    >>> fm.gram([[1.0], [2.0]], kernel=lambda A, B: 1.0 + A @ B.T, normalize=None)
    array([[2., 3.],
           [3., 5.]])
    """
    X = _points(X, "X", kernel)
    sign = np.ones(len(X)) if y is None else _labels(y, len(X))
    dtype, ridge = _dtype(dtype), _number(ridge, "ridge", closed=True)
    kernel = _kernel(kernel, X, params)
    if kernel.formula.code == _PRECOMPUTED:
        X, _ = _symmetric(X, "X")
    X = _prepared(kernel, X)
    diagonal, columns = _kernel_diagonal(kernel, X), _columns(kernel, X)
    normalizer = _normalizers(diagonal, normalize)
    n = len(diagonal)
    out = np.empty((n, n), dtype)
    if kernel.formula.code not in (_PRECOMPUTED, _CALLABLE):
        _fill_gram(_without_zeros(X), kernel.formula, sign * normalizer, out)
    else:
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            block = _kernel_block(kernel, _take(X, slice(start, stop)), _take(columns, slice(stop)))
            if kernel.formula.code == _CALLABLE:
                _check_callable(np.ascontiguousarray(block[:, start:]), diagonal[start:stop], start)
            _enter(_place_block, block, start, sign * normalizer, out)
    np.fill_diagonal(out, (1.0 if normalize == "unit" else diagonal * normalizer**2) + ridge)
    return out


_STREAMS = 8  # rows of a triangle that are read at once: those that `_symmetric_rows` writes out


@_linked(fastmath=_FAST)
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
                total += matrix[min(r, k), max(r, k)] * v[k]
            out[r] += total
        if j < n:
            a, b, c, d = matrix[i, j:], matrix[i + 1, j:], matrix[i + 2, j:], matrix[i + 3, j:]
            e, f, g, h = matrix[i + 4, j:], matrix[i + 5, j:], matrix[i + 6, j:], matrix[i + 7, j:]
            va, vb, vc, vd = v[i], v[i + 1], v[i + 2], v[i + 3]
            ve, vf, vg, vh = v[i + 4], v[i + 5], v[i + 6], v[i + 7]
            right, tail = v[j:], out[j:]
            sa, sb, sc, sd, se, sf, sg, sh = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
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
                tail[k] += (a[k] * va + b[k] * vb + c[k] * vc + d[k] * vd
                            + e[k] * ve + f[k] * vf + g[k] * vg + h[k] * vh)
            out[i] += sa
            out[i + 1] += sb
            out[i + 2] += sc
            out[i + 3] += sd
            out[i + 4] += se
            out[i + 5] += sf
            out[i + 6] += sg
            out[i + 7] += sh
        i = j


@_linked
def _symmetric_table_rows(matrix, W, start, stop, M):
    """The same for every row of W and M, a few rows of the matrix at a time, which the caches keep."""
    few = 2 * _STREAMS if W.shape[0] > 1 else matrix.shape[0]
    for i in range(start, stop, few):
        for c in range(W.shape[0]):
            _symmetric_rows(matrix, W[c], i, min(i + few, stop), M[c])


@_linked
def _symmetric_part(part, matrix, W, parts):
    n = W.shape[1]
    blocks = n / _STREAMS  # whole ones, or rows would be read twice
    start = _STREAMS * int(round(blocks * (1.0 - math.sqrt(1.0 - part / _PARTS))))
    stop = _STREAMS * int(round(blocks * (1.0 - math.sqrt(1.0 - (part + 1) / _PARTS)))) if part + 1 < _PARTS else n
    _symmetric_table_rows(matrix, W, start, stop, parts[part])


@_linked
def _add_parts(parts, M):
    """M <- the sum of the parts, of which each may have columns that M has not."""
    for c in range(M.shape[0]):
        for i in range(M.shape[1]):
            M[c, i] = 0.0
            for part in range(_PARTS):
                M[c, i] += parts[part, c, i]


@njit(cache=_CACHE)
def _dense_lift(G, v, w):
    _copy(v, w)


@_linked
def _dense_products(G, W, M):
    """In parts of the triangle of equal area; G is read once for all rows of W."""
    if G.matrix.size < _SERIAL:
        M[:] = 0.0
        _symmetric_table_rows(G.matrix, W, 0, W.shape[1], M)
    else:
        parts = np.zeros((_PARTS, W.shape[0], W.shape[1]))
        _share(_PARTS, _symmetric_part, (G.matrix, W, parts), G.matrix.size)
        _add_parts(parts, M)


@njit(cache=_CACHE)
def _dense_table_margins(G, W, M):
    _dense_products(G, W, M)


@njit(cache=_CACHE)
def _dense_margins(G, w, m):
    _dense_products(G, np.expand_dims(w, 0), np.expand_dims(m, 0))


@njit(cache=_CACHE, fastmath=_FAST)
def _dense_add_column(G, i, c, m):
    row = G.matrix[i]
    for k in range(m.size):
        m[k] += c * row[k]


@njit(cache=_CACHE)
def _dense_precise(matrix, v, m):
    """m <- G v, each sum rounded once; returns v' G v.  Columns of weight zero are not read."""
    low = np.zeros(m.size)
    m[:] = 0.0
    for j in range(v.size):
        if v[j] != 0.0:
            for i in range(j):
                m[i], low[i] = _add_exactly(m[i], low[i], float(matrix[i, j]), v[j])
            for i in range(j, v.size):
                m[i], low[i] = _add_exactly(m[i], low[i], float(matrix[j, i]), v[j])
    for i in range(m.size):
        m[i] += low[i]
    high, rest = _precise_dot(v, m)
    return high + rest


register(DenseGram, lift=_dense_lift, margins=_dense_margins, add_column=_dense_add_column,
         table_margins=_dense_table_margins)


def _representation(G):
    """Check what a user passed as G and return (representation, s)."""
    if type(G) not in lift.routines:
        if isinstance(G, tuple) and hasattr(G, "_fields"):
            raise TypeError(_unregistered(type(G)))
        G = DenseGram(G)
    G = G.checked()
    scale = float(G.diagonal().max())
    if not (math.isfinite(scale) and scale > 0.0):
        raise ValueError(f"max_i G_ii is {scale:g}; it must be above 0 and finite, or no margin is defined")
    if not 1e-285 < scale < 1e285:
        raise ValueError(f"max_i G_ii is {scale:g}: products would leave the range of double precision; rescale G")
    return G, scale


# ------------------------------------------------------------------------------------------------------
# 5.4 rows
# ------------------------------------------------------------------------------------------------------

class FeatureGram(NamedTuple):
    """G = Z Z' by its rows z_i = y_i x_i / scale, made by `features`.  The methods are those of `Representation`.

    Attributes
    ----------
    rows : array, shape (n, d)
        Z.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.FeatureGram(np.array([[1.0, 2.0], [0.0, 1.0]])).dense()
    array([[5., 2.],
           [2., 1.]])
    """

    rows: np.ndarray

    def checked(self):
        rows = self.rows
        if type(rows) is np.ndarray and rows.dtype == np.float64 and rows.ndim == 2 and rows.flags.c_contiguous and (
                rows.size and np.isfinite(self.diagonal()).all()):
            return self  # by one reading on all threads
        return FeatureGram(np.ascontiguousarray(_real_array(rows, "G.rows", 2), dtype=np.float64))

    def shape(self):
        return self.rows.shape

    def diagonal(self):
        squares = np.empty(len(self.rows))
        _enter(_squares_of_rows, self.rows, squares)
        return squares

    def rounding(self):
        return Rounding.of_rows(*self.rows.shape)

    def restrict(self, index):
        return FeatureGram(self.rows[index])

    def dense(self):
        return self.rows @ self.rows.T

    def block(self, rows, columns):
        return self.rows[rows] @ self.rows[columns].T

    def moments(self, index):
        rows = self.rows[index]
        return rows.T @ rows

    def precise(self, v):
        m, error = np.empty(v.size), _gamma(2 * sum(self.rows.shape) + 16)**2
        return _feature_precise(self.rows, v, m), m, Rounding(2.0 * error, 8.0 * error, 0.0)

    def separator(self, v):
        return _feature_separator(self.rows, v).sum(axis=0)


@_linked
def _squares_part(part, Z, squares):
    start, stop = _part(squares.size, part)
    for i in range(start, stop):
        squares[i] = _dot(Z[i], Z[i])


@njit(cache=_CACHE)
def _squares_of_rows(Z, squares):
    _share(_PARTS, _squares_part, (Z, squares), Z.size)


@_linked(fastmath=_FAST)
def _four_dots(a, b, c, d, w):
    sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
    for k in range(w.size):
        x = w[k]
        sa += a[k] * x
        sb += b[k] * x
        sc += c[k] * x
        sd += d[k] * x
    return sa, sb, sc, sd


@_linked(fastmath=_FAST)
def _add_four(a, b, c, d, va, vb, vc, vd, out):
    for k in range(out.size):
        out[k] += a[k] * va + b[k] * vb + c[k] * vc + d[k] * vd


@_linked(fastmath=_FAST)
def _add_row_dots_between(Z, w, c, m, i, stop):
    while i + 4 <= stop:
        sa, sb, sc, sd = _four_dots(Z[i], Z[i + 1], Z[i + 2], Z[i + 3], w)
        m[i] += c * sa
        m[i + 1] += c * sb
        m[i + 2] += c * sc
        m[i + 3] += c * sd
        i += 4
    while i < stop:
        sa, _, _, _ = _four_dots(Z[i], Z[i], Z[i], Z[i], w)
        m[i] += c * sa
        i += 1


@_linked(fastmath=_FAST)
def _add_weighted_rows(Z, v, i, stop, out):
    """out <- out + sum_i v_i z_i over rows i..stop-1; rows of weight zero are not read."""
    while i + 4 <= stop:
        if v[i] != 0.0 or v[i + 1] != 0.0 or v[i + 2] != 0.0 or v[i + 3] != 0.0:
            _add_four(Z[i], Z[i + 1], Z[i + 2], Z[i + 3], v[i], v[i + 1], v[i + 2], v[i + 3], out)
        i += 4
    while i < stop:
        _add_four(Z[i], Z[i], Z[i], Z[i], v[i], 0.0, 0.0, 0.0, out)
        i += 1


@_linked
def _feature_add_dots(G, w, m, start):
    _add_row_dots_between(G.rows[start:], w, 1.0, m, 0, m.size)


@_linked
def _feature_add_rows(G, v, start, out):
    _add_weighted_rows(G.rows[start:], v, 0, v.size, out)


@_linked
def _feature_dimension(G):
    return G.rows.shape[1]


def _by_representation(signature):
    """A step of routines that several representations share: a function that is one of its own for each."""
    steps = {}

    @functools.wraps(signature)
    def call(G, *args):
        return steps[type(G)](G, *args)

    @overload(call, strict=False, jit_options=_LINKED)
    def choose(G, *args):
        step = steps[G.instance_class]

        def pass_on(G, *args):
            return step(G, *args)

        pass_on.__qualname__ = signature.__name__  # as in `_operation`
        return pass_on

    call.steps = steps
    return call


@_by_representation
def _add_dots(G, w, m, start):
    """m_k <- m_k + <z_(start + k), w> for all k."""


@_by_representation
def _add_rows(G, v, start, out):
    """out <- out + sum_k v_k z_(start + k); rows of weight zero are not read."""


@_by_representation
def _dimension(G):
    """d."""


def _register_rows(representation, add_dots, add_rows, dimension):
    """Register a representation by rows; its first field holds the entries that a product reads."""
    _add_dots.steps[representation] = add_dots
    _add_rows.steps[representation] = add_rows
    _dimension.steps[representation] = dimension
    register(representation, lift=_row_lift, margins=_row_margins, add_column=_row_add_column,
             softmax_pass=_row_softmax_pass, square=_row_square)


@_linked
def _dots_part(part, G, w, m):
    start, stop = _part(m.size, part)
    _add_dots(G, w, m[start:stop], start)


@_linked
def _rows_part(part, G, v, parts):
    start, stop = _part(v.size, part)
    _add_rows(G, v[start:stop], start, parts[part])


@_linked(fastmath=_FAST)
def _scale(c, v):
    for k in range(v.size):
        v[k] *= c


@_linked(fastmath=_FAST)
def _fused(G, w, m, q, start, few, out):
    """m_k <- <z_(start + k), w>, q_k <- exp(level - m_k), out <- out + sum_k q_k z_(start + k), in one reading: ``few``
    rows at a time, which the caches keep.

    Returns the level, at most 30 above the least of these m_k: when they fall below that, what is summed is rescaled.
    """
    level, levels = np.inf, np.empty(m.size // few + 1)
    for first in range(0, m.size, few):
        some, weights = m[first:first + few], q[first:first + few]
        some[:] = 0.0
        _add_dots(G, w, some, start + first)
        low = _least(some)
        if low < level - 30.0:
            if level < np.inf:
                _scale(math.exp(low - level), out)
            level = low
        levels[first // few] = level
        for k in range(some.size):
            weights[k] = math.exp(level - some[k])
        _add_rows(G, weights, start + first, out)
    for first in range(0, m.size, few):
        if levels[first // few] != level:
            _scale(math.exp(level - levels[first // few]), q[first:first + few])
    return level


@_linked
def _fused_part(part, G, w, m, q, few, parts, levels):
    start, stop = _part(m.size, part)
    levels[part] = _fused(G, w, m[start:stop], q[start:stop], start, few, parts[part])


@_linked(fastmath=_FAST)
def _add_scaled_parts(parts, scales, u):
    """u <- u + the sum of the parts, each times its scale."""
    for part in range(scales.size):
        scale = scales[part]
        for k in range(u.size):
            u[k] += scale * parts[part, k]


@njit(cache=_CACHE)
def _row_lift(G, v, w):
    w[:] = 0.0
    if G[0].size < _SERIAL:
        _add_rows(G, v, 0, w)
    else:
        parts = np.zeros((_PARTS, w.size))
        _share(_PARTS, _rows_part, (G, v, parts), G[0].size)
        _add_scaled_parts(parts, np.ones(_PARTS), w)


@_linked
def _add_product(G, w, m):
    """m <- m + Z w."""
    if G[0].size < _SERIAL:
        _add_dots(G, w, m, 0)
    else:
        _share(_PARTS, _dots_part, (G, w, m), G[0].size)


@njit(cache=_CACHE)
def _row_margins(G, w, m):
    m[:] = 0.0
    _add_product(G, w, m)


@njit(cache=_CACHE)
def _row_add_column(G, i, c, m):
    row = np.zeros(_dimension(G))
    _add_rows(G, np.full(1, c), i, row)
    _add_product(G, row, m)


@njit(cache=_CACHE, fastmath=_FAST)
def _row_softmax_pass(G, w, m, q, u):
    n, size = m.size, G[0].size
    count, few = 1 if size < _SERIAL else _PARTS, max(4, _CACHED * n // max(size, 1) // 4 * 4)
    parts, levels, total = np.zeros((count, u.size)), np.empty(count), 0.0
    if count == 1:
        levels[0] = _fused(G, w, m, q, 0, few, parts[0])
    else:
        _share(_PARTS, _fused_part, (G, w, m, q, few, parts, levels), size)
    level = _least(levels)
    for part in range(count):
        start, stop = _part(n, part) if count > 1 else (0, n)
        levels[part] = math.exp(level - levels[part])
        for k in range(start, stop):
            q[k] *= levels[part]
            total += q[k]
    _scale(1.0 / total, q)
    _scale(1.0 / total, levels)
    u[:] = 0.0
    _add_scaled_parts(parts, levels, u)
    return math.log(total) - level


@njit(cache=_CACHE)
def _row_square(G, v, w, m):
    return _dot(w, w)


@njit(cache=_CACHE)
def _precise_margins(Z, w, rest, m):
    """m <- Z (w + rest), each sum rounded once, for a rest that is small beside w."""
    for i in range(m.size):
        high, low = _precise_dot(Z[i], w)
        m[i] = high + (low + _dot(Z[i], rest))


@njit(cache=_CACHE)
def _feature_separator(Z, v):
    """Z' v in two parts, (2, d)."""
    parts = np.zeros((2, Z.shape[1]))
    w, rest = parts
    for i in range(v.size):
        if v[i] != 0.0:
            for k in range(w.size):
                w[k], rest[k] = _add_exactly(w[k], rest[k], Z[i, k], v[i])
    return parts


@njit(cache=_CACHE)
def _feature_precise(Z, v, m):
    """m <- Z Z' v, with Z' v kept in two parts and each sum rounded once; returns v' Z Z' v."""
    w, rest = _feature_separator(Z, v)
    _precise_margins(Z, w, rest, m)
    high, low = _precise_dot(w, w)
    return high + (low + 2.0 * _dot(w, rest))


_register_rows(FeatureGram, _feature_add_dots, _feature_add_rows, _feature_dimension)


# ------------------------------------------------------------------------------------------------------
# 5.5 sparse
# ------------------------------------------------------------------------------------------------------

class SparseGram(NamedTuple):
    """G = Z Z' by the non-zeros of the rows z_i = y_i x_i / scale, made by `features` of a sparse X.  The methods are
    those of `Representation`.

    Attributes
    ----------
    values, columns : array, shape (non-zeros,)
        Entries of Z, row by row, and their columns, in ascending order within a row; unsigned, once checked.
    starts : array, shape (n + 1,)
        Row i holds the entries from starts[i] to starts[i + 1] - 1.
    dimension : int
        d.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.SparseGram(np.array([1.0, 2.0, 1.0]), np.array([0, 1, 1]), np.array([0, 2, 3]), 2).dense()
    array([[5., 2.],
           [2., 1.]])
    """

    values: np.ndarray
    columns: np.ndarray
    starts: np.ndarray
    dimension: int

    def checked(self):
        values = np.zeros(0)
        if np.size(self.values):
            values = _real_array(self.values, "G.values", 1).astype(np.float64, copy=False)
        columns, starts = np.asarray(self.columns), np.ascontiguousarray(self.starts, dtype=np.int64)
        if columns.dtype.kind not in "iu" or columns.shape != values.shape:
            raise ValueError("G.columns must be integers, one for each of G.values")
        if starts.ndim != 1 or starts.size < 2 or starts[0] != 0 or starts[-1] != values.size or (
                np.diff(starts) < 0).any():
            raise ValueError("G.starts must go up from 0 to the number of G.values")
        if columns.size and not 0 <= columns.min() <= columns.max() < self.dimension:
            raise ValueError(f"G.columns must be from 0 to {self.dimension - 1}")
        ascending = columns[1:] > columns[:-1]
        ascending[starts[(starts > 0) & (starts < columns.size)] - 1] = True
        if not ascending.all():
            raise ValueError("G.columns must ascend within every row")
        columns = np.ascontiguousarray(columns, dtype=np.uint32 if self.dimension <= 2**32 else np.uint64)
        return SparseGram(np.ascontiguousarray(values), columns, starts, int(self.dimension))

    def shape(self):
        return self.starts.size - 1, self.dimension

    def diagonal(self):
        squares = np.add.reduceat(np.append(self.values**2, 0.0), self.starts[:-1])
        squares[np.diff(self.starts) == 0] = 0.0  # where reduceat takes what follows
        return squares

    def rounding(self):
        """A margin is a sum over the non-zeros of a row, ||w||^2 one over all columns that there are."""
        n = self.starts.size - 1
        rows, columns = (Rounding.of_rows(n, size) for size in (int(np.diff(self.starts).max()), self.dimension))
        return rows._replace(length=columns.length)

    def restrict(self, index):
        index = np.arange(self.starts.size - 1)[index]
        lengths = np.diff(self.starts)[index]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        entries = np.arange(starts[-1]) + np.repeat(self.starts[index] - starts[:-1], lengths)
        return SparseGram(self.values[entries], self.columns[entries], starts, self.dimension)

    def dense(self):
        every = np.arange(self.starts.size - 1)
        return self.block(every, every)

    def block(self, rows, columns):
        out = np.zeros((rows.size, columns.size))
        _enter(_sparse_block, self, rows, columns, out)
        return out

    def moments(self, index):
        total = np.zeros((self.dimension, self.dimension))
        for start in range(0, len(index), _BLOCK):
            part = self.restrict(index[start:start + _BLOCK])
            rows = np.zeros(part.shape())
            rows[np.repeat(np.arange(len(rows)), np.diff(part.starts)), part.columns] = part.values
            total += rows.T @ rows
        return total

    def precise(self, v):
        n, d = self.shape()
        m, error = np.empty(v.size), _gamma(2 * (n + d) + 16)**2
        return _sparse_precise(self, v, m), m, Rounding(2.0 * error, 8.0 * error, 0.0)

    def separator(self, v):
        return _sparse_separator(self, v).sum(axis=0)


def _sparse_points(X):
    """A copy of a SciPy sparse matrix or array in compressed rows, finite, by its own methods."""
    X = X.tocsr(copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"X must have 2 dimensions and be not empty, got shape {X.shape}")
    if X.data.dtype.kind not in "fiub":
        raise TypeError(f"X must hold real numbers, got dtype {X.data.dtype}")
    wrong = np.flatnonzero(~np.isfinite(X.data))
    if wrong.size:
        row = np.searchsorted(X.indptr, wrong[0], side="right") - 1
        raise ValueError(f"X must be finite, without NaN or inf; row {row} has {X.data[wrong[0]]} at "
                         f"X[{row}, {X.indices[wrong[0]]}]")
    return X


def _sparse_features(X, y, normalize, intercept):
    X = _sparse_points(X)
    values, starts = X.data.astype(np.float64), X.indptr.astype(np.int64)
    y = _labels(y, X.shape[0])
    G = SparseGram(values, X.indices, starts, int(X.shape[1]))
    if intercept:
        ends = G.starts[1:]
        G = SparseGram(np.insert(values, ends, intercept), np.insert(G.columns, ends, G.dimension),
                       G.starts + np.arange(G.starts.size), G.dimension + 1)
    with np.errstate(over="ignore"):
        squares = G.diagonal()
    scale = y * _normalizers(squares, normalize)
    return G._replace(values=G.values * np.repeat(scale, np.diff(G.starts)))


@_linked
def _sparse_row(G, i):
    start, stop = G.starts[i], G.starts[i + 1]
    return G.values[start:stop], G.columns[start:stop]


@_linked(fastmath=_FAST)
def _sparse_add_dots(G, w, m, start):
    for i in range(m.size):
        values, columns = _sparse_row(G, start + i)
        total = 0.0
        for k in range(values.size):
            total += values[k] * w[columns[k]]
        m[i] += total


@_linked(fastmath=_FAST)
def _sparse_add_rows(G, v, start, out):
    for i in range(v.size):
        weight = v[i]
        if weight != 0.0:
            values, columns = _sparse_row(G, start + i)
            for k in range(values.size):
                out[columns[k]] += weight * values[k]


@_linked
def _sparse_dimension(G):
    return G.dimension


_register_rows(SparseGram, _sparse_add_dots, _sparse_add_rows, _sparse_dimension)


@_linked
def _sparse_block_part(part, G, rows, columns, out):
    dense = np.zeros(G.dimension)
    start, stop = _part(rows.size, part)
    for a in range(start, stop):
        values, places = _sparse_row(G, rows[a])
        for k in range(values.size):
            dense[places[k]] = values[k]
        for b in range(columns.size):
            _sparse_add_dots(G, dense, out[a, b:b + 1], columns[b])
        for k in range(values.size):
            dense[places[k]] = 0.0


@njit(cache=_CACHE)
def _sparse_block(G, rows, columns, out):
    """out <- G at some rows and columns, where out is zero."""
    _share(_PARTS, _sparse_block_part, (G, rows, columns, out), out.size * (G.values.size // (G.starts.size - 1) + 1))


@njit(cache=_CACHE)
def _sparse_separator(G, v):
    """As `_feature_separator`."""
    parts = np.zeros((2, G.dimension))
    w, rest = parts
    for i in range(v.size):
        if v[i] != 0.0:
            values, columns = _sparse_row(G, i)
            for k in range(values.size):
                j = columns[k]
                w[j], rest[j] = _add_exactly(w[j], rest[j], values[k], v[i])
    return parts


@njit(cache=_CACHE)
def _sparse_precise(G, v, m):
    """As `_feature_precise`."""
    w, rest = _sparse_separator(G, v)
    for i in range(m.size):
        values, columns = _sparse_row(G, i)
        high, low, small = 0.0, 0.0, 0.0
        for k in range(values.size):
            high, low = _add_exactly(high, low, values[k], w[columns[k]])
            small += values[k] * rest[columns[k]]
        m[i] = high + (low + small)
    high, low = _precise_dot(w, w)
    return high + (low + 2.0 * _dot(w, rest))


# ------------------------------------------------------------------------------------------------------
# 5.6 mapped
# ------------------------------------------------------------------------------------------------------

class MappedGram(NamedTuple):
    """G = Z Z' for rows z_i = c_i (x_i, b) of points x_i that stay in a file, made by `features` of a memory-mapped X.

    Nothing is added to the points where b = 0.  The methods are those of `Representation`.

    Attributes
    ----------
    rows : array, shape (n, d)
        The x_i.
    c : array, shape (n,)
        Signs times normalisers.
    entries : array, shape (n,)
        G_ii.
    intercept : float
        b.
    shared : bool
        Whether what has been read may be given back to the system: the pages are those of the file, not a private copy.

    Examples
    --------
    >>> import tempfile, numpy as np, fastmargin as fm
    >>> X = np.memmap(tempfile.TemporaryFile(), np.float32, shape=(2, 2))
    >>> X[:] = [[1.0, 2.0], [0.0, 1.0]]
    >>> fm.features(X, [1, -1], normalize=None).dense()
    array([[ 5., -2.],
           [-2.,  1.]])
    """

    rows: np.ndarray
    c: np.ndarray
    entries: np.ndarray
    intercept: float
    shared: bool

    def checked(self):
        return self

    def shape(self):
        return self.c.size, self.rows.shape[1] + (self.intercept != 0.0)

    def diagonal(self):
        return self.entries

    def rounding(self):
        return Rounding.of_rows(*self.shape())

    def restrict(self, index):
        rows = self.rows[index].astype(np.float64)
        if self.intercept:
            rows = np.column_stack((rows, np.full(len(rows), self.intercept)))
        return FeatureGram(rows * self.c[index][:, None])

    def dense(self):
        return self.restrict(slice(None)).dense()

    def block(self, rows, columns):
        return self.restrict(rows).rows @ self.restrict(columns).rows.T


def _mapped_features(X, y, normalize, intercept):
    y = _labels(y, len(X))
    squares = np.concatenate([np.einsum("ij,ij->i", block, block) for _, block in _blocks(X)]) + intercept * intercept
    normalizer = _normalizers(squares, normalize)
    return MappedGram(np.asarray(X), y * normalizer, squares * normalizer**2, intercept, _shares_pages(X))


@_linked
def _mapped_add_dots(G, w, m, start):
    d = G.rows.shape[1]
    shift, step, dots = 0.0, max(1, _WINDOW // (d * G.rows.itemsize)), np.zeros(m.size)
    if w.size > d:
        shift = G.intercept * w[d]
    for i in range(0, m.size, step):
        stop = min(i + step, m.size)
        _add_row_dots_between(G.rows[start:], w[:d], 1.0, dots, i, stop)
        for k in range(i, stop):
            m[k] += G.c[start + k] * (dots[k] + shift)
        if G.shared:
            _give_back(G.rows, start + i, start + stop)


@_linked
def _mapped_add_rows(G, v, start, out):
    d, weights, total = G.rows.shape[1], np.empty(v.size), 0.0
    step = max(1, _WINDOW // (d * G.rows.itemsize))
    for k in range(v.size):
        weights[k] = G.c[start + k] * v[k]
        total += weights[k]
    for i in range(0, v.size, step):
        stop = min(i + step, v.size)
        _add_weighted_rows(G.rows[start:], weights, i, stop, out[:d])
        if G.shared:
            _give_back(G.rows, start + i, start + stop)
    if out.size > d:
        out[d] += G.intercept * total


@_linked
def _mapped_dimension(G):
    return G.rows.shape[1] + (1 if G.intercept != 0.0 else 0)


_register_rows(MappedGram, _mapped_add_dots, _mapped_add_rows, _mapped_dimension)


def features(X, y, *, normalize="unit", intercept=0.0, ridge=0.0):
    """G = Z Z' + r I for the linear kernel, by its rows z_i = y_i x_i / scale; G itself is never formed.

    Parameters
    ----------
    X : array or SciPy sparse matrix or array, shape (n, d)
        The points.  Memory-mapped ones (`numpy.memmap`, ``numpy.load(..., mmap_mode="r")``) of type float32 or float64
        in C order are not copied but read from the file in every product, and must not change.
    y : array, shape (n,)
        Their labels, -1 or +1.
    normalize : {"unit", "max", None}
        "unit" divides x_i by ||x_i||, "max" by max_i ||x_i||, None by 1.
    intercept : float
        Not 0: all points get it as one more feature, the last, before they are normalised.
    ridge : float
        r >= 0, added to G_ii: the hard-margin problem of G + r I is the soft-margin SVM with squared slacks and
        C = 1/(2r).

    Returns
    -------
    G : FeatureGram, SparseGram or MappedGram; RidgeGram over it if r > 0
        A product reads Z, or its non-zeros, twice (once inside `softmax_pass`), a column once.

    Raises
    ------
    ValueError
        Values are not finite, labels are not -1 or +1, lengths differ, or a row is zero under "unit".

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.features([[3.0, 4.0], [0.0, -2.0]], [1, -1]).rows
    array([[ 0.6,  0.8],
           [-0. ,  1. ]])
    """
    intercept = _number(intercept, "intercept", closed=True)
    if _is_sparse(X):
        return _with_ridge(_sparse_features(X, y, normalize, intercept), ridge)
    if _is_mapped(X):
        return _with_ridge(_mapped_features(X, y, normalize, intercept), ridge)
    X = _points(X)
    y = _labels(y, len(X))
    if intercept:
        X = np.column_stack((X, np.full(len(X), intercept)))
    scale = y * _normalizers(np.einsum("ij,ij->i", X, X), normalize)
    return _with_ridge(FeatureGram(X * scale[:, None]), ridge)


# ------------------------------------------------------------------------------------------------------
# 5.7 lazy
# ------------------------------------------------------------------------------------------------------

_KEPT = 1 << 25  # entries of columns that `max_margin` keeps: 0.25 GB


class LazyGram(NamedTuple):
    """G_ij = c_i c_j K(x_i, x_j), evaluated on demand, made by `lazy_gram`.  The methods are those of `Representation`.

    Attributes
    ----------
    points : tuple of arrays with n rows
        The x_i, centred where K depends on distances alone, without coordinates that are then zero in all of them,
        and what K needs of each.
    c : array, shape (n,)
        Signs times normalisers.
    entries : array, shape (n,)
        G_ii.
    formula : tuple
        Of the kernel, with its parameters.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.lazy_gram([[1.0, 2.0], [0.0, 1.0]], [1, -1], kernel="linear", normalize=None).dense()
    array([[ 5., -2.],
           [-2.,  1.]])
    """

    points: _Prepared
    c: np.ndarray
    entries: np.ndarray
    formula: _Formula

    def checked(self):
        return self

    def shape(self):
        return self.c.size, self.c.size

    def diagonal(self):
        return self.entries

    def rounding(self):
        reach = self.formula.gamma * float(self.points.squares.max())
        return Rounding.of_entries(self.c.size, _evaluation_error(self.formula, reach))

    def restrict(self, index):
        return LazyGram(_take(self.points, index), self.c[index], self.entries[index], self.formula)

    def dense(self):
        G = np.empty((self.c.size, self.c.size))
        _fill_gram(self.points, self.formula, self.c, G)
        np.fill_diagonal(G, self.entries)
        return G

    def block(self, rows, columns):
        out = np.empty((len(rows), len(columns)))
        _enter(_kernel_rows, self.points, self.formula, rows, _take(self.points, columns), out)
        out += self.formula.offset
        out *= self.c[columns]
        out *= self.c[rows][:, None]
        return out

    def adder(self):
        """Columns of K are kept while there is room for them."""
        n = self.c.size
        kept, places, count = np.empty((min(n, _KEPT // n), n)), np.full(n, -1), 0

        def add(index, weights, m):
            nonlocal count
            new = index[places[index] < 0][:len(kept) - count]
            _enter(_kernel_rows, self.points, self.formula, new, self.points, kept[count:count + new.size])
            places[new] = np.arange(count, count + new.size)
            count += new.size
            known, total = places[index] >= 0, np.zeros(n)
            scaled = weights[known] * self.c[index[known]]
            _enter(_combine_rows, kept, places[index[known]], scaled, total)
            m += self.c * (total + self.formula.offset * scaled.sum())
            if not known.all():
                _add_by_product(self, index[~known], weights[~known], m)

        return add


def _evaluation_error(formula, reach):
    """A bound of |computed - true| of a normalised kernel value in units of s, for stored points, in any order of sums.

    ``reach`` is gamma max ||x||^2.  An inner product of d terms errs by gamma_d ||x|| ||x'||, and what follows by a few
    units in the last place.  The arc cosine turns an error e of a cosine into at most pi sqrt(e / 2) near an angle of
    0, and the limit kernel grows by at most 0.75 ||x|| ||x'|| times that.
    """
    error = _gamma(formula.dimension + formula.width + 16)
    if formula.code == _POLY:
        return 1.01 * (formula.degree * error + _gamma(2 * formula.degree + 8))
    if formula.code == _RBF:
        return 1.01 * (4.0 * reach * error + _gamma(16))
    if formula.code == _NTK_LIMIT:
        return 2.0 * math.sqrt(5.0 * error)
    return 1.01 * error


def lazy_gram(X, y=None, *, kernel="rbf", normalize="unit", dtype=None, ridge=0.0, **params):
    """G_ij = y_i y_j K(x_i, x_j) / normalisation, as `gram`, of which nothing is kept: entries are evaluated on demand.

    Parameters
    ----------
    X : array, shape (n, d)
        The points; memory-mapped ones may stay in their file, as with `features`, but what has been read counts as
        memory of the process until the system takes it back.
    y : array, shape (n,), optional
        Labels, -1 or +1; None gives the unsigned matrix.
    kernel : str
        "linear", "poly", "rbf", "laplacian" or "ntk", as in `gram`.
    normalize : {"unit", "max", None}
        As in `gram`.
    dtype : {float64, float32}, optional
        In which the points are stored: by default float64, or what the file holds.  Points of a file that holds another
        are copied.  Whatever is summed, over coordinates or points, is summed in float64.
    ridge : float
        As in `gram`.
    **params
        The kernel's parameters, as in `gram`.

    Returns
    -------
    G : LazyGram; RidgeGram over it if r > 0
        Memory: the points, and for "ntk" the hidden layer; during a product 8 n doubles (times n_classes under
        `pair_gram`).  A column reads the points once; a product evaluates the kernel n^2 / 2 times, or n times for each
        non-zero weight if that is less, and for "ntk" goes through the network's gates, in O(n d m), if that is less.

    Raises
    ------
    ValueError, TypeError
        As `gram`; and for a kernel that is a matrix or a function, which `gram` takes.

    Notes
    -----
    G is that of the points as they are stored; certificates allow for the rounding of every evaluation.  float32 halves
    the memory, and the time of a column on data beyond the caches.  What costs a product nothing: coordinates that are
    the same in all points, where K depends on distances; elsewhere, fours of coordinates that are zero in 32 points at
    a time.  No columns are kept, but for up to 0.25 GB of them during a call of `max_margin`.

    Examples
    --------
    >>> import fastmargin as fm
    >>> X, y = [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]], [1, 1, -1]
    >>> fm.momentum(fm.lazy_gram(X, y), tol=1e-3).status
    'certified'
    """
    if callable(kernel) or kernel == "precomputed":
        raise ValueError(f"lazy_gram evaluates kernels in compiled code, and takes their names; got {kernel!r}, which "
                         "gram(X, y, kernel=...) takes")
    dtype = None if dtype is None else _dtype(dtype)
    mapped = _is_mapped(X, dtype)
    X = X if mapped else _points(X)
    dtype = X.dtype if dtype is None else dtype
    sign = np.ones(len(X)) if y is None else _labels(y, len(X))
    kernel = _kernel(kernel, X, params)
    points = []
    for first, block in _blocks(X):
        rows, _, hidden, gates = _prepared(kernel, block)
        with np.errstate(over="ignore"):
            rows, hidden = rows.astype(dtype, copy=False), hidden.astype(dtype, copy=False)
        squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        if not np.isfinite(squares).all():
            raise ValueError(f"row {first + np.argmin(np.isfinite(squares))} of X is too large for {dtype}; rescale "
                             "the points")
        points.append(_Prepared(rows[:0] if mapped else rows, squares, hidden, gates))
    points = _Prepared(*map(np.concatenate, zip(*points, strict=True)))
    points = points._replace(rows=np.asarray(X)) if mapped else _without_zeros(points)
    diagonal = _kernel_diagonal(kernel, points)
    normalizer = _normalizers(diagonal, normalize)
    return _with_ridge(LazyGram(points, sign * normalizer, diagonal * normalizer**2, kernel.formula), ridge)


@_linked
def _kernel_column_part(part, points, formula, i, column):
    start, stop = _part(column.size, part)
    row, entries = points.rows[i].astype(np.float64), column[start:stop]
    if formula.code == _LAPLACIAN:
        _laplacian_row(row, points.rows[start:stop], formula.gamma, entries)
        return
    entries[:] = 0.0
    _add_row_dots_between(points.rows[start:stop], row, 1.0, entries, 0, stop - start)
    hidden = np.zeros(stop - start)
    if formula.code == _NTK:
        _add_row_dots_between(points.hidden[start:stop], points.hidden[i].astype(np.float64), 1.0, hidden, 0,
                              stop - start)
    _finish_row(entries, hidden, points.squares[i], points.gates[i], points.squares[start:stop],
                points.gates[start:stop], formula)


@njit(cache=_CACHE)
def _lazy_add_column(G, i, c, m):
    column = np.empty(m.size)
    _share(_PARTS, _kernel_column_part, (G.points, G.formula, i, column),
           m.size * (G.formula.dimension + G.formula.width))
    for k in range(m.size):
        m[k] += c * G.c[i] * G.c[k] * (column[k] + G.formula.offset)


@_linked(fastmath=_FAST)
def _add_tile(panel, i, mirrored, W, M):
    """What the tile contributes to the margins of the points from i on and, if ``mirrored``, of those of the panel."""
    once, tile = 1.0 if mirrored else 0.0, panel.tile
    for c in range(W.shape[0]):
        weights, sums = panel.weights[c], panel.sums[c]
        for r in range(_TALL):
            row, weight, total = tile[r * _WIDE:(r + 1) * _WIDE], once * W[c, i + r], 0.0
            for j in range(_WIDE):
                total += row[j] * weights[j]
                sums[j] += row[j] * weight
            M[c, i + r] += total


@_linked
def _kernel_part(part, points, formula, columns, symmetric, W, parts):
    """What every _PARTS-th panel of ``columns`` of K contributes; W and the parts have room for _TALL points."""
    n, panel, M = points.squares.size, _new_panel(points, W.shape[0]), parts[part]
    for start in range(part * _WIDE, columns.size, _PARTS * _WIDE):
        index = columns[start:start + _WIDE]
        _fill_panel(points, formula, index, W, panel)
        for i in range(start if symmetric else 0, n, _TALL):
            _evaluate_tile(points, formula, i, panel)
            _add_tile(panel, i, symmetric and i >= start + _WIDE, W, M)
        for c in range(W.shape[0]):
            for j in range(index.size):
                M[c, index[j]] += panel.sums[c, j]


@_linked
def _add_through_rows(Z, rows, weighted, W, M):
    """M_ci <- M_ci + <z_i, sum_j W_cj z_j> for i in ``rows``, summing over the j of ``rows`` that are ``weighted``."""
    four, v, totals = np.zeros((4, Z.shape[1])), np.zeros(4), np.zeros((W.shape[0], Z.shape[1]))
    some = rows[weighted[rows]]
    for start in range(0, some.size, 4):
        index = some[start:start + 4]
        for r in range(index.size):
            _copy(Z[index[r]], four[r])
        for c in range(W.shape[0]):
            v[:] = 0.0
            for r in range(index.size):
                v[r] = W[c, index[r]]
            _add_four(four[0], four[1], four[2], four[3], v[0], v[1], v[2], v[3], totals[c])
    for start in range(0, rows.size, 4):
        index = rows[start:start + 4]
        for r in range(index.size):
            _copy(Z[index[r]], four[r])
        for c in range(W.shape[0]):
            v[0], v[1], v[2], v[3] = _four_dots(four[0], four[1], four[2], four[3], totals[c])
            for r in range(index.size):
                M[c, index[r]] += v[r]


@_linked
def _tangent_part(part, points, width, weighted, W, parts):
    """What the hidden layer (part 0) and every _PARTS-th gate of _NTK contribute: K is the inner product of the
    hidden layers and, for every gate, that of the points where it is open for both, over the width."""
    everyone, scaled, M = np.arange(points.squares.size), W / width, parts[part]
    if part == 0:
        _add_through_rows(points.hidden, everyone, weighted, W, M)
    for gate in range(part, width, _PARTS):
        bit = np.uint64(1) << np.uint64(gate % 64)
        is_open = (points.gates[:, gate // 64] & bit) != 0
        _add_through_rows(points.rows, np.flatnonzero(is_open), weighted, scaled, M)


@_linked
def _lazy_products(G, W, M):
    """Through the features of _NTK where that takes fewer operations; else by panels of the columns with a weight, or,
    where these are more than half, of all columns, and of G the lower triangle."""
    n, formula = G.c.size, G.formula
    weighted, scaled = np.zeros(n, dtype=np.bool_), np.zeros((W.shape[0], n + _TALL - 1))
    for c in range(W.shape[0]):
        for i in range(n):
            weighted[i] |= W[c, i] != 0.0
            scaled[c, i] = W[c, i] * G.c[i]
    columns, parts = np.flatnonzero(weighted), np.zeros((_PARTS, W.shape[0], n + _TALL - 1))
    through_features = 0.5 * formula.width * formula.dimension * W.shape[0] * (n + columns.size)
    by_entries = (formula.dimension + formula.width) * min(columns.size, 0.5 * n) * n
    if formula.code == _NTK and through_features < by_entries:
        _share(_PARTS, _tangent_part, (G.points, formula.width, weighted, scaled, parts), int(through_features))
    else:
        symmetric = 2 * columns.size > n
        columns = np.arange(n) if symmetric else columns
        _share(_PARTS, _kernel_part, (G.points, formula, columns, symmetric, scaled, parts), int(by_entries))
    _add_parts(parts, M)
    for c in range(W.shape[0]):
        same = formula.offset * scaled[c].sum()
        for i in range(n):
            M[c, i] = G.c[i] * (M[c, i] + same)


@njit(cache=_CACHE)
def _lazy_table_margins(G, W, M):
    _lazy_products(G, W, M)


@njit(cache=_CACHE)
def _lazy_margins(G, w, m):
    _lazy_products(G, np.expand_dims(w, 0), np.expand_dims(m, 0))


register(LazyGram, lift=_dense_lift, margins=_lazy_margins, add_column=_lazy_add_column,
         table_margins=_lazy_table_margins)


# ------------------------------------------------------------------------------------------------------
# 5.8 pairs
# ------------------------------------------------------------------------------------------------------

class PairGram(NamedTuple):
    """The multiclass reduction, made by `pair_gram`: a point of G is a pair (x_i, j) of a point and a wrong class.

    The pair stands for the row x_i (x) (e_{y_i} - e_j) / sqrt(2); such rows are never written down.  Coordinates are
    a table of those that K has for each class, (n_classes, n) where K is a matrix, row by row, times sqrt(2).  The
    methods are those of `Representation`.

    Attributes
    ----------
    K : representation
        Of the unsigned kernel matrix of the points.
    point, right, wrong : array, shape (pairs,)
        i, y_i and j of each pair.
    n_points, n_classes : int

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.pair_gram(np.eye(2), [0, 1], 3).shape()
    (4, 6)
    """

    K: tuple
    point: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    n_points: int
    n_classes: int

    def checked(self):
        return self._replace(K=self.K.checked())

    def shape(self):
        return self.point.size, self.n_classes * self.K.shape()[1]

    def diagonal(self):
        return self.K.diagonal()[self.point]

    def rounding(self):
        """T adds n_classes - 1 weights up, v'm has a term for every pair."""
        margins = 1.01 * (self.K.rounding().margins + _gamma(self.n_classes + 8))
        return Rounding(margins, margins + 1.01 * _gamma(self.point.size + 8), 0.0)

    def restrict(self, index):
        points, place = np.unique(self.point[index], return_inverse=True)
        return PairGram(self.K.restrict(points), place.astype(self.point.dtype), self.right[index], self.wrong[index],
                        points.size, self.n_classes)

    def dense(self):
        every = np.arange(self.point.size)
        return self.block(every, every)

    def block(self, rows, columns):
        sides = [np.unique(self.point[index], return_inverse=True) for index in (rows, columns)]
        (points, place), (others, other_place) = sides
        K = np.ascontiguousarray(_block(self.K, points, others), dtype=np.float64)
        out = np.empty((len(place), len(other_place)))
        _pair_block(K, place, self.right[rows], self.wrong[rows], other_place, self.right[columns],
                    self.wrong[columns], out)
        return out

    @property
    def precise(self):
        """As of K, where K has it; the sums of weights are kept in two parts, the second of which is all but 0.

        A margin is half the difference of two scores, each of which was rounded twice, to a relative u.  Where they
        cancel, that is not a matter of the margin's own last digits: it errs by up to 2 u max_ci |f_c(x_i)|, which is
        added to the errors of K's products with room for ||v||_1 >= 1/2.
        """
        products = self.K.precise

        def precise(v):
            (T, rest), w = _parted_class_weights(self, v), np.empty(self.K.shape()[1])
            squares, scores = [], np.empty_like(T)
            for c in range(self.n_classes):
                size, scores[c], rounding = products(T[c])
                squares.append(size)
                if rest[c].any():
                    m = np.empty(self.n_points)
                    lift(self.K, rest[c], w)
                    margins(self.K, w, m)
                    squares.append(2.0 * float(T[c] @ m))
                    scores[c] += m
            m = 0.5 * (scores[self.right, self.point] - scores[self.wrong, self.point])
            blur, lost = _gamma(2 * v.size + 16)**2, float(_LAST * np.abs(scores).max() / self.diagonal().max())
            return 0.5 * math.fsum(squares), m, Rounding(rounding.margins + blur + lost, rounding.square + 2.0 * blur,
                                                         rounding.length * math.sqrt(2.0))

        return precise


def pair_gram(K, labels, n_classes, *, ridge=0.0):
    """Multiclass problems as binary ones: G = Z Z' + r I for the rows z_(i,j) = x_i (x) (e_{y_i} - e_j) / sqrt(2), one
    for each point and each class j other than its own.

    Parameters
    ----------
    K : array, shape (n, n), or representation
        Unsigned kernel matrix of the points: ``gram(X)``, ``lazy_gram(X)``; or ``features(X, np.ones(n))``.
    labels : array, shape (n,)
        Integers from 0 to n_classes - 1.
    n_classes : int
        At least 2.
    ridge : float
        r >= 0, as in `gram`: a slack for every pair.

    Returns
    -------
    G : PairGram; RidgeGram over it if r > 0
        Of n (n_classes - 1) pairs, point by point, the wrong classes in order.  A product is one with K for all classes
        together, a column one column of K, and about a pass over the pairs each.

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
    >>> import fastmargin as fm
    >>> X, labels = [[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [0, 1, 2]
    >>> K = fm.lazy_gram(X, kernel="linear")
    >>> alpha = fm.max_margin(fm.pair_gram(K, labels, 3)).alpha
    >>> fm.decision_function(alpha, X, labels, X, kernel="linear", n_classes=3).argmax(axis=1)
    array([0, 1, 2])
    """
    K, _ = _representation(K)
    labels, n_classes = _class_labels(labels, K.shape()[0], n_classes)
    pairs = (part.astype(np.int32) for part in _pairs(labels, n_classes))
    return _with_ridge(PairGram(K, *pairs, labels.size, n_classes), ridge)


@njit(cache=_CACHE)
def _pair_lift(G, v, w):
    T = np.zeros((G.n_classes, G.n_points))
    for k in range(v.size):
        T[G.right[k], G.point[k]] += v[k]
        T[G.wrong[k], G.point[k]] -= v[k]
    W = w.reshape(G.n_classes, w.size // G.n_classes)
    for c in range(G.n_classes):
        lift(G.K, T[c], W[c])


@njit(cache=_CACHE)
def _pair_margins(G, w, m):
    scores = np.empty((G.n_classes, G.n_points))
    table_margins(G.K, w.reshape(G.n_classes, w.size // G.n_classes), scores)
    for k in range(m.size):
        m[k] = 0.5 * (scores[G.right[k], G.point[k]] - scores[G.wrong[k], G.point[k]])


@_linked
def _agreement(right, wrong, other_right, other_wrong):
    """<e_y - e_j, e_y' - e_j'>."""
    return int(right == other_right) + int(wrong == other_wrong) - int(right == other_wrong) - int(wrong == other_right)


@njit(cache=_CACHE)
def _pair_add_column(G, i, c, m):
    column = np.zeros(G.n_points)
    add_column(G.K, G.point[i], 0.5 * c, column)
    for k in range(m.size):
        m[k] += _agreement(G.right[i], G.wrong[i], G.right[k], G.wrong[k]) * column[G.point[k]]


@njit(cache=_CACHE)
def _pair_block(K, point, right, wrong, other, other_right, other_wrong, out):
    """out <- the entries of pairs, whose points are given by their places in K."""
    for i in range(point.size):
        row = K[point[i]]
        for k in range(other.size):
            out[i, k] = 0.5 * _agreement(right[i], wrong[i], other_right[k], other_wrong[k]) * row[other[k]]


@njit(cache=_CACHE)
def _add_weights(row, column, v, T, rest):
    """T + rest, a table of sums kept in two parts, plus v_k at (row_k, column_k) for all k."""
    for k in range(v.size):
        i, j = row[k], column[k]
        T[i, j], rest[i, j] = _add_exactly(T[i, j], rest[i, j], 1.0, v[k])


def _parted_class_weights(G, v):
    """T of `pair_gram` in two parts, (2, n_classes, n)."""
    parts = np.zeros((2, G.n_classes, G.n_points))
    for sign, of in ((1.0, G.right), (-1.0, G.wrong)):
        _add_weights(of, G.point, sign * v, *parts)
    return parts


register(PairGram, lift=_pair_lift, margins=_pair_margins, add_column=_pair_add_column)


# ------------------------------------------------------------------------------------------------------
# 5.9 operators
# ------------------------------------------------------------------------------------------------------

_ENGINES = {}  # compiled code knows an operator by its number here
_NUMBERS = itertools.count()


class OperatorGram(NamedTuple):
    """G by products that another library computes, made by `operator_gram`.  The methods are those of `Representation`.

    Attributes
    ----------
    number : int
        Of the operator among those of this process.
    symmetric : bool
        Whether the operator is G itself, or Z.
    n, dimension : int
    entries : array, shape (n,)
        G_ii.
    unit : float
        Largest relative error of one operation.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> class Rows:
    ...     shape = 2, 2
    ...     Z = np.array([[1.0, 2.0], [0.0, 1.0]])
    ...     def matvec(self, w): return self.Z @ w
    ...     def rmatvec(self, v): return v @ self.Z
    >>> fm.operator_gram(Rows()).dense()
    array([[5., 2.],
           [2., 1.]])
    """

    number: int
    symmetric: bool
    n: int
    dimension: int
    entries: np.ndarray
    unit: float

    def __reduce__(self):
        return _of_operator, (_ENGINES[self.number], *self[1:])

    def checked(self):
        return self

    def shape(self):
        return self.n, self.dimension

    def diagonal(self):
        return self.entries

    def rounding(self):
        error = 1.01 * _gamma(self.n + (0 if self.symmetric else self.dimension) + 8, self.unit)
        return Rounding(error, 2.0 * error, 0.0) if self.symmetric else Rounding(error, 0.0, error)

    def restrict(self, index):
        index = np.arange(self.n)[index]
        rows = np.array([_operate(self.number, not self.symmetric, e) for e in _units(self.n, index)])
        return DenseGram(rows[:, index]) if self.symmetric else FeatureGram(rows)

    def dense(self):
        return self.restrict(slice(None)).dense()

    def block(self, rows, columns):
        out = np.empty((len(rows), len(columns)))
        for k, e in enumerate(_units(self.n, rows)):
            w = e if self.symmetric else _operate(self.number, True, e)
            out[k] = _operate(self.number, False, w)[columns]
        return out


def _units(n, index):
    for i in index:
        e = np.zeros(n)
        e[i] = 1.0
        yield e


def _of_operator(A, *rest):
    """The operator is kept for as long as the representation is, which is told by its array."""
    G = OperatorGram(next(_NUMBERS), *rest)
    _ENGINES[G.number] = A
    weakref.finalize(G.entries, _ENGINES.pop, G.number)
    return G


def _operate(number, transposed, x):
    """A x or A'x, by the operator's own methods."""
    A = _ENGINES[number]
    name = "rmatvec" if transposed else "matvec"
    _refuse_overflow(x)
    with _others_turn():
        out = _real_array(getattr(A, name)(x), f"what {name} returns", 1)
    size = A.shape[1 if transposed else 0]
    if out.size != size:
        raise ValueError(f"{name} of an operator of shape {tuple(A.shape)} must return {size} numbers, not {out.size}")
    return np.ascontiguousarray(out, dtype=np.float64)


def operator_gram(A, *, diagonal=None, unit=_UNIT, ridge=0.0):
    """G = Z Z' + r I for an operator Z, or a symmetric operator G: products by another library, a cluster, a GPU.

    Parameters
    ----------
    A : object
        Follows the protocol of SciPy's LinearOperator: ``A.shape``, (n, d); ``A.matvec(w)``, Z w, (n,);
        ``A.rmatvec(v)``, Z'v, (d,).  The rows of Z are z_i = y_i x_i.  Without ``rmatvec``, or if that raises
        NotImplementedError, A is G itself, (n, n), symmetric and positive semi-definite, with ``A.matvec(v)`` = G v.
        What it is given is an array of the algorithm's, to be neither changed nor kept.
    diagonal : array, shape (n,), optional
        G_ii = ||z_i||^2 without the ridge; by default from n products, one for each.
    unit : float
        Largest relative error of one operation in A's arithmetic: 2^-24 where A computes in single precision.
    ridge : float
        r >= 0, as in `gram`.

    Returns
    -------
    G : OperatorGram; RidgeGram over it if r > 0
        A product calls ``rmatvec`` and ``matvec`` once each, or ``matvec`` once; so does a column, and a row of the
        working set of `max_margin`.

    Raises
    ------
    ValueError, TypeError
        A has no such methods or a shape that does not fit; the diagonal is not finite and non-negative.

    Notes
    -----
    Errors that A raises, and Ctrl-C, pass through the algorithms.  Certificates trust A to sum n and d terms, in
    whatever order, with errors of at most ``unit`` each.  The README holds a recipe for a cluster.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> class Matrix:
    ...     shape = 2, 2
    ...     def matvec(self, v): return np.array([[2.0, 1.0], [1.0, 2.0]]) @ v
    >>> fm.momentum(fm.operator_gram(Matrix()), tol=1e-6).status
    'certified'
    """
    shape = getattr(A, "shape", ())
    if len(shape) != 2 or not callable(getattr(A, "matvec", None)) or 0 in shape:
        raise TypeError("A must have a shape (n, d), n and d at least 1, and a method matvec, like a LinearOperator of "
                        "SciPy, which scipy.sparse.linalg.aslinearoperator makes of a matrix")
    n, dimension = (int(size) for size in shape)
    unit, symmetric = _number(unit, "unit"), not callable(getattr(A, "rmatvec", None))
    if not symmetric:
        try:
            A.rmatvec(np.zeros(n))
        except NotImplementedError:
            symmetric = True
    if symmetric and n != dimension:
        raise ValueError(f"A has no rmatvec, so it is G itself, which is square; its shape is {(n, dimension)}")
    G = _of_operator(A, symmetric, n, dimension, np.zeros(n), unit)
    if diagonal is None:
        products = (_operate(G.number, not symmetric, e) for e in _units(n, range(n)))
        diagonal = np.array([row[i] if symmetric else row @ row for i, row in enumerate(products)])
    diagonal = _real_array(diagonal, "diagonal", 1)
    if diagonal.size != n or diagonal.min() < 0.0:
        raise ValueError(f"diagonal must hold {n} numbers of at least 0")
    G.entries[:] = diagonal
    return _with_ridge(G, ridge)


@njit(cache=_CACHE)
def _operator_product(number, transposed, x, out):
    with objmode(product="float64[::1]"):
        product = _operate(number, transposed, x)
    _copy(product, out)


@njit(cache=_CACHE)
def _operator_lift(G, v, w):
    if G.symmetric:
        _copy(v, w)
    else:
        _operator_product(G.number, True, v, w)


@njit(cache=_CACHE)
def _operator_margins(G, w, m):
    _operator_product(G.number, False, w, m)


@njit(cache=_CACHE)
def _operator_add_column(G, i, c, m):
    e, w, column = np.zeros(m.size), np.empty(G.dimension), np.empty(m.size)
    e[i] = c
    _operator_lift(G, e, w)
    _operator_margins(G, w, column)
    for k in range(m.size):
        m[k] += column[k]


@njit(cache=_CACHE)
def _operator_square(G, v, w, m):
    return _dot(v, m) if G.symmetric else _dot(w, w)


register(OperatorGram, lift=_operator_lift, margins=_operator_margins, add_column=_operator_add_column,
         square=_operator_square)


# ------------------------------------------------------------------------------------------------------
# 5.10 models
# ------------------------------------------------------------------------------------------------------

class Model(NamedTuple):
    """Labelled points and the kernel that compares them, made by `model`: what G and the scores of new points share.

    Attributes
    ----------
    X, y : arrays, shapes (n, d), (n,)
    kernel : str or callable
    normalize : {"unit", "max", None}
    n_classes : int or None
    params : dict
        Of the kernel.

    Examples
    --------
    >>> import fastmargin as fm
    >>> points = fm.model([[2.0, 0.0], [-1.0, 1.0]], [1, -1], kernel="linear")
    >>> alpha = fm.max_margin(points.gram()).alpha
    >>> points.decision_function(alpha, [[5.0, 0.0], [0.0, 3.0]]) > 0
    array([ True, False])
    """

    X: np.ndarray
    y: np.ndarray
    kernel: str | Callable
    normalize: str | None
    n_classes: int | None
    params: dict

    def gram(self, *, dtype=np.float64, ridge=0.0):
        """G, dense, by `gram`."""
        return self._represented(functools.partial(gram, kernel=self.kernel, dtype=dtype), ridge)

    def lazy_gram(self, *, dtype=None, ridge=0.0):
        """G, evaluated on demand, by `lazy_gram`."""
        return self._represented(functools.partial(lazy_gram, kernel=self.kernel, dtype=dtype), ridge)

    def features(self, *, ridge=0.0):
        """G by its rows, by `features`, for the linear kernel."""
        if self.kernel != "linear":
            raise ValueError(f'features are those of the kernel "linear", got {self.kernel!r}')
        return self._represented(features, ridge)

    def decision_function(self, alpha, Xnew):
        """Scores of new points, by `decision_function`."""
        return decision_function(alpha, self.X, self.y, Xnew, kernel=self.kernel, normalize=self.normalize,
                                 n_classes=self.n_classes, **self.params)

    def _represented(self, make, ridge):
        """With ``n_classes`` that of the pairs."""
        if self.n_classes is None:
            return make(self.X, self.y, normalize=self.normalize, ridge=ridge, **self.params)
        K = make(self.X, np.ones(len(self.y)), normalize=self.normalize, **self.params)
        return pair_gram(K, self.y, self.n_classes, ridge=ridge)


def model(X, y, *, kernel="rbf", normalize="unit", n_classes=None, **params):
    """Points, labels and kernel in one, so that G and the scores of new points cannot be of different ones.

    Parameters
    ----------
    X, y, kernel, normalize, n_classes, **params
        As in `gram` and `decision_function`; with ``n_classes`` G is that of `pair_gram`.

    Returns
    -------
    model : Model
        With the methods gram, lazy_gram, features and decision_function.  Nothing is checked or computed before these
        are called.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.model([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]], [0, 1, 2], kernel="linear", n_classes=3).gram().shape()
    (6, 9)
    """
    return Model(X, y, kernel, normalize, n_classes, params)


# ======================================================================================================
# 6 certificate
# ======================================================================================================

def _squares_and_margins(G, scale, *points):
    """[(v' G v, G v), ...] at points with ||v||_1 <= 1.

    Raises ValueError where a square is negative beyond rounding.
    """
    n, dimension = G.shape()
    W, M = np.empty((len(points), dimension)), np.empty((len(points), n))
    for v, w in zip(points, W, strict=True):
        lift(G, v, w)
    table_margins(G, W, M)
    sizes = [square(G, v, w, m) for v, w, m in zip(points, W, M, strict=True)]
    _refuse_negative(min(sizes), G.rounding().square * scale)
    return [(max(size, 0.0), m) for size, m in zip(sizes, M, strict=True)]


def _refuse_negative(size, rounding):
    if size < -rounding:
        raise ValueError(f"G is not positive semi-definite: v'Gv = {size:g} at a v with ||v||_1 <= 1")


def _unit_range(v):
    """v times the power of two, exact but for underflow, that brings ||v||_1 into [1/2, 1]."""
    v = np.ldexp(v, -math.frexp(float(np.abs(v).max()))[1])  # first the largest entry: the sum might overflow
    return np.ldexp(v, -math.frexp(float(np.abs(v).sum()))[1])


class _Bounds(NamedTuple):
    """Of (G v)_i and ||v||_G at some v."""

    least: float  # <= min_i (G v)_i
    shortest: float  # <= ||v||_G
    longest: float  # >= ||v||_G
    margin: float  # min_i (G v)_i as computed
    length: float  # ||v||_G as computed


@register_jitable(**_LINKED)
def _widen(margin, size, total, scale, rounding):
    """`_Bounds` by min_i (G v)_i and ||v||_G^2 as computed, where ||v||_1 = total."""
    blur, root = rounding.square * scale * total**2, rounding.length * math.sqrt(scale) * total
    return _Bounds(margin - _LAST * abs(margin) - rounding.margins * scale * total,
                   (1.0 - _LAST) * math.sqrt(max(size * (1.0 - _LAST) - blur, 0.0)) - root,
                   (1.0 + _LAST) * math.sqrt(size + blur) + root, margin, math.sqrt(size))


@register_jitable(**_LINKED)
def _lower(bounds, trivial):
    """At most min_i (G v)_i / ||v||_G; ``trivial`` always is."""
    length = bounds.longest if bounds.least > 0.0 else bounds.shortest
    lower = max(trivial, bounds.least / length) if length > 0.0 else trivial
    return lower - _LAST * abs(lower)


@register_jitable(**_LINKED)
def _upper(bounds, total, terms):
    """At least ||v||_G / ||v||_1, where the total was summed over so many terms."""
    return bounds.longest / total * (1.0 + _LAST + _gamma(terms))


def _bounds(G, scale, points, precise, products):
    """`_Bounds` at each of the points."""
    if precise:
        known = [G.precise(v) for v in points]
        for size, _, rounding in known:
            _refuse_negative(size, rounding.square * scale)
    else:
        known = [(size, m, G.rounding()) for size, m in products(G, scale, *points)]
    return [_widen(float(m.min()), max(size, 0.0), float(np.abs(v).sum()), scale, rounding)
            for v, (size, m, rounding) in zip(points, known, strict=True)]


def _interval(G, scale, alpha, p, precise=False, products=_squares_and_margins):
    """lower and upper of `certificate`, for checked input, and how much of upper - lower is due to rounding."""
    precise = precise and hasattr(G, "precise")
    trivial = -math.sqrt(scale) * (1.0 + G.rounding().margins + _LAST)  # by Cauchy-Schwarz, for every alpha
    points = [_unit_range(v) for v in ((p, alpha) if alpha is not p and alpha.any() else (p,))]
    bounds = _bounds(G, scale, points, precise, products)
    total = math.fsum(points[0]) if precise else float(points[0].sum())
    upper = _upper(bounds[0], total, 0 if precise else p.size)
    if not alpha.any():
        return trivial, upper, 0.0
    gap, bounds = bounds[0].length / total, bounds[-1]
    lower = _lower(bounds, trivial)
    if lower > upper:
        raise ValueError(f"G is not positive semi-definite: weak duality fails, {lower:g} <= rho <= {upper:g}")
    # So written that margins of NaN, which leave lower as it is, show in what is returned.
    gap -= lower if bounds.margin <= 0.0 or bounds.length == 0.0 else bounds.margin / bounds.length
    return lower, upper, upper - lower - max(gap, 0.0)


class _Goal(NamedTuple):
    """What a loop needs to bound rho by what it holds, and to halt once that meets the tolerance."""

    tol: float  # 0: none
    scale: float
    rounding: Rounding  # of what the loop takes for a product and for a square, but for the recurrences


def _goal(run, *, dots=True, columns=False):
    """The goal of a run whose loop takes v' G v as the sum of v_i (G v)_i (else by `square`) and G v by products.

    By columns that would be of another matrix where G is not symmetric to the last bit: then nothing can be held.
    """
    rounding = run.G.rounding()
    if dots:
        of_sum = 1.01 * _gamma(run.G.shape()[0] + 8)
        rounding = rounding._replace(square=max(rounding.square, rounding.margins + of_sum))
    if columns and not _is_mirrored(run.G):
        rounding = rounding._replace(margins=math.inf)
    return _Goal(run.tol or 0.0, run.scale, rounding)


def _is_mirrored(G):
    """Whether G and all that it is made of are symmetric to the last bit."""
    return getattr(G, "mirrored", True) and all(_is_mirrored(part) for part in G if type(part) in lift.routines)


@_linked
def _hold(goal, k, n, primal, dual, held):
    """held <- (lower, upper, what rounding adds to upper - lower) at iteration k; whether that meets the tolerance.

    ``primal`` is (min_i (G alpha)_i, ||alpha||_G^2, ||alpha||_1), ``dual`` (||p||_G^2, ||p||_1, reach) for any p >= 0,
    as the loop holds them.  Beside the errors of a product these have at most 16 roundings an iteration of terms that
    come to s ||alpha||_1, or to sqrt(s) ||alpha||_1 in length.  In G p the errors of a product, and 16 roundings, are
    those of a vector of ||.||_1 = reach.
    """
    least, size, total = primal
    dual_size, dual_total, reach = dual
    held[0], held[1], held[2] = -math.inf, math.inf, math.inf
    drift, few, (unit, of_square, of_length) = _gamma(16.0 * k), _gamma(16.0), goal.rounding
    if not (1e-250 < goal.scale * total**2 < 1e250 and 1e-250 < goal.scale * dual_total**2 < 1e250
            and unit + drift < 1.0):
        return False  # squares might over- or underflow; alpha = 0 says nothing
    blow_up, rounding = reach / dual_total, Rounding(unit + drift, of_square + 2.02 * drift, of_length + drift)
    bounds = _widen(least, max(size, 0.0), total, goal.scale, rounding)
    lower = _lower(bounds, -math.sqrt(goal.scale) * (1.0 + rounding.margins + _LAST))
    gap = bounds.margin / bounds.length if bounds.margin > 0.0 and bounds.length > 0.0 else lower
    rounding = Rounding(0.0, blow_up * (of_square + 2.02 * few) + 2.02 * drift, of_length + drift)
    bounds = _widen(0.0, max(dual_size, 0.0), dual_total, goal.scale, rounding)
    upper = _upper(bounds, dual_total, n)
    held[0], held[1], held[2] = lower, upper, upper - lower - max(bounds.length / dual_total - gap, 0.0)
    return upper - lower <= goal.tol * upper


@_linked
def _meets(goal, k, until, alpha, m, held):
    """Whether alpha >= 0 and p = alpha / sum alpha meet the tolerance, by m = G alpha.

    Without a tolerance the interval is looked at, and held, only where a call of the loop ends.
    """
    if k < until and goal.tol == 0.0:
        return False
    size, total = _dot(alpha, m), _total(alpha)
    return _hold(goal, k, m.size, (_least(m), size, total), (size, total, total), held)


def _nothing():
    """What a loop holds before it has looked."""
    return np.array([-math.inf, math.inf, math.inf])


def certificate(G, alpha, p, *, precise=False):
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
        Use products in twice the working precision, which cost several times as much, where the representation has
        them.

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
    The rho bounded is that of the stored rows; with a dense G that of every positive semi-definite matrix whose entries
    round to the stored ones (of the upper triangle, which is what products read), G itself among them if it is one: a
    float32 G stands for all that was lost in storing it.

    A power of two brings ||v||_1 to at most 1, exactly but for underflow, and the errors of a product are bounded
    beforehand (see `Rounding`):

        lower = (min_i m_i - margins s) / (sqrt(r^2 + square s) + length sqrt(s))   if the numerator is positive,
                else over the least that ||alpha||_G can be, and never below -sqrt(s), which always holds;
        upper = (sqrt(r^2 + square s) + length sqrt(s)) / (sum p - gamma_n).

    Near the optimum this widens the interval, relative to rho and with u = 2^-53, by about

        3 n u s / rho^2                         with a dense G (float32: 6e-8 in place of n u, where that is larger),
        (n + d) u (s / rho^2 + 2 sqrt(s) / rho) with features;
        6 u s / rho^2                           with a dense G and ``precise`` (float32: 2e-7 s / rho^2);
        40 u                                    with features and ``precise``, plus what the rounding of alpha to double
                                                precision takes from its margins: up to u s / rho^2.

    With a dense G upper never falls below 2.1e-8 sqrt(s) (float32: 3.4e-4 sqrt(s)): for margins as small as that use
    features, and float64 rather than float32.

    References
    ----------
    Weak duality: Lemma 3 of ramdas14; Gordan's alternative: its Theorem 2.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> lower, upper = fm.certificate(np.eye(4), np.ones(4), np.full(4, 0.25))
    >>> lower < 0.5 < upper, upper - lower < 1e-13
    (True, True)
    """
    G, scale = _representation(G)
    n = G.shape()[0]
    alpha = _real_array(alpha, "alpha", 1).astype(np.float64)
    if alpha.size != n:
        raise ValueError(f"alpha has {alpha.size} weights and G has {n} points; they must agree")
    return _interval(G, scale, alpha, _distribution(p, "p", n), precise)[:2]


def _operator_norm(G):
    """A bound above the largest eigenvalue of G, by about 3 % and all but surely, and the products it took.

    Lanczos, the power iteration that makes use of its past: from a random start, k steps miss a fraction e of the
    largest eigenvalue with probability at most 1.65 sqrt(n) exp(-sqrt(e) (2k - 1)), whatever the spectrum
    (Kuczynski & Wozniakowski, SIAM J. Matrix Anal. Appl. 13, 1992): 5e-8 at n = 10^4, k = 64, e = 0.03.  No vectors are
    kept: where rounding spoils their orthogonality, eigenvalues that were found are found again (A. Greenbaum, Linear
    Algebra and its Applications 113, 1989).
    """
    n, dimension = G.shape()
    scale = G.diagonal().max()  # taken out, so that no square of G's entries can over- or underflow
    steps, diagonal, beside = min(64, n), [], []
    v, before = np.random.default_rng(0).standard_normal(n), np.zeros(n)
    w, m = np.empty(dimension), np.empty(n)
    for k in range(steps):
        size = math.sqrt(_dot(v, v))
        if k and size <= 1e-13 * max(diagonal + beside):  # an invariant subspace: its largest eigenvalue is exact
            break
        v /= size
        lift(G, v, w)
        margins(G, w, m)
        m /= scale
        diagonal.append(_dot(v, m))
        beside.append(size if k else 0.0)
        m -= diagonal[k] * v
        m -= beside[k] * before
        before, v, m = v, m, before
    return scale * _largest_eigenvalue(diagonal, beside) / (1.0 - 0.03), len(diagonal)


def _largest_eigenvalue(diagonal, beside):
    """Of a tridiagonal matrix, whose row i has ``beside``_i before the diagonal, from above, by bisection.

    LAPACK would do, but the threads of its BLAS wait for more work after a call, and hold ours up for tens of products.
    """
    low, high = max(diagonal), 3.0 * max(map(abs, diagonal + beside))
    while low < (middle := 0.5 * (low + high)) < high:
        pivot = math.inf
        for a, b in zip(diagonal, beside, strict=True):
            pivot = middle - a - b * b / pivot
            if pivot <= 0.0:
                break
        low, high = (low, middle) if pivot > 0.0 else (middle, high)
    return high


# ======================================================================================================
# 7 driver
# ======================================================================================================
#
# An algorithm is a loop, compiled or not,
#
#     loop(G, k, until, *state, *parameters) -> (k, flag)
#
# that takes the state, arrays changed in place, from iteration k to iteration ``until`` at the latest; what it
# must remember beside arrays lies in arrays of one entry, since compiled code cannot rebind what it was given.
# Nothing else may decide where it goes: then a run can be cut anywhere and resumed, bit for bit.

RUNNING, SEPARATED, INFEASIBLE, EXHAUSTED, CERTIFIED = range(5)  # a loop's answer: go on, or halt for this reason


class Run(NamedTuple):
    """A checked G with the checked run options: what `prepare` makes and `drive` takes.

    Attributes
    ----------
    G : representation
    scale : float
        s = max_i G_ii.
    tol : float or None
    checkpoints : array of int
        Iterations at which a certificate is computed, the first and the last of the run among them.
    keep_iterates : bool
    callback : callable or None
    start : Result or None

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.prepare(np.eye(2), max_iter=3).checkpoints
    array([0, 1, 2, 3])
    """

    G: tuple
    scale: float
    tol: float | None
    checkpoints: np.ndarray
    keep_iterates: bool
    callback: Callable | None
    start: Result | None


def prepare(G, max_iter, tol=None, trace_at=None, keep_iterates=False, callback=None, start=None):
    """Check G and the run options of an algorithm, before anything is computed or compiled.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    max_iter, tol, trace_at, keep_iterates, callback, start
        The run options, with their meaning as in every algorithm.

    Returns
    -------
    run : Run
        run.G is the representation that loops are given.

    Raises
    ------
    ValueError, TypeError
        As every algorithm.

    Examples
    --------
    >>> import numpy as np, fastmargin as fm
    >>> fm.prepare(np.eye(2), max_iter=10, tol=0)
    Traceback (most recent call last):
      ...
    ValueError: tol must be finite and above 0; got 0
    """
    max_iter = _count(max_iter, "max_iter")
    tol = None if tol is None else _number(tol, "tol")
    first = _first_iteration(start)
    checkpoints = _checkpoints(first, first + max_iter, trace_at)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    return Run(*_representation(G), tol, checkpoints, bool(keep_iterates), callback, start)


def _first_iteration(start):
    if not (start is None or isinstance(start, Result)):
        raise TypeError(f"start must be a Result or None, got {type(start).__name__}")
    return 0 if start is None else start.n_iter


def _checkpoints(first, last, trace_at):
    """Iterations at which a certificate is computed: 16 a decade or trace_at, with the first and the last."""
    if trace_at is None:
        decades = math.log10(max(last, 1))
        points = np.unique(np.round(np.logspace(0, decades, math.ceil(16 * decades) + 1)).astype(np.int64))
    else:
        points = _array(trace_at, "trace_at").ravel()
        if points.dtype.kind not in "iu" or points.min(initial=0) < 0:  # find the one to name; an empty list is fine
            points = np.array([_count(int(k) if isinstance(k, float) and k.is_integer() else k, "each of trace_at")
                               for k in points.tolist()], dtype=np.int64)
    return np.unique(np.concatenate(([first], points[(points > first) & (points < last)], [last])))


def _first_weights(alpha, *_):
    return alpha, _weights(alpha)


def drive(run, loop, state, solution=None, *, parameters=(), products=float, interval=None, held=None, spent=0.0,
          eps=0.0):
    """Take an algorithm from checkpoint to checkpoint, certify each, and wrap up the Result.

    Parameters
    ----------
    run : Run
        From `prepare`.
    loop : callable
        ``loop(G, k, until, *state, *parameters) -> (k, flag)``: goes from iteration k to iteration ``until`` at the
        latest, changes the arrays of the state in place, and returns the iteration reached with RUNNING, or with
        SEPARATED, INFEASIBLE, EXHAUSTED or CERTIFIED where it halts.  Of these, CERTIFIED is believed where fresh
        products confirm that the interval meets the tolerance; else the loop is sent on, and must advance.  Compiled
        with njit, without cache=True, or plain Python.
    state : tuple
        Arrays and NamedTuples of arrays: all that the loop changes, at iteration 0.  With a ``start`` they are
        overwritten by what it ended with.  To tell its G from another, `table_margins` is called once per run, of G
        restricted to 16 points; of an operator, which is not restricted at less cost, of G itself.
    solution : callable, optional
        ``solution(*state) -> (alpha, p)``, the primal and dual point, p non-negative, which the driver copies; one
        array for both saves a product.  By default alpha >= 0 is the first of the state, and p = alpha / sum alpha.
    parameters : tuple, optional
        What else the loop is given: numbers, arrays that it only reads, NamedTuples.
    products : callable, optional
        G-vector products that k iterations cost, by default k.
    interval : callable, optional
        ``interval(G, s, alpha, p, precise) -> (lower, upper, blur)`` by fresh products, with what rounding adds to
        upper - lower, all of them finite; by default as `certificate`.
    held : array, shape (3,), optional
        One of the state, in which the loop leaves (lower, upper, blur) of the iteration that it reaches: a proven
        interval from what it holds, for a checkpoint without products.  Only where rounding makes a hundredth of it,
        or of upper, and at the end of the run, is one computed by fresh products.
    spent : float, optional
        Seconds of set-up before iteration 0.
    eps : float, optional
        "infeasible" is believed of the loop at upper <= eps, as "separated" is at lower > 0.

    Returns
    -------
    result : Result

    Raises
    ------
    FloatingPointError
        The iterates overflowed, or G was written to during the run.
    TypeError, ValueError
        The start is of another loop or another G, the loop or the solution returns something else, G turns out not to
        be positive semi-definite, or the loop is cached on disk (see `register`, Notes).

    Notes
    -----
    The loop is entered for about 0.2 s at a time, so that Ctrl-C is answered; its state makes the result
    independent of where it was cut.

    Examples
    --------
    The perceptron that takes the row of least margin (the README has a longer one).

    >>> import numpy as np, numba, fastmargin as fm
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
        raise TypeError("drive takes the Run that prepare(G, ...) returns, a callable loop and a tuple, (array,) for a "
                        f"single one; got {type(run).__name__}, {type(loop).__name__}, {type(state).__name__}")
    arrays = _arrays(state)
    first, last = run.checkpoints[[0, -1]].tolist()
    origin = getattr(loop, "__qualname__", type(loop).__name__), run.G.shape(), run.scale, _sample(run.G)
    seconds = spent if run.start is None else spent + _resume(run.start, origin, arrays,
                                                                                 run.G.rounding().margins)
    loop = _never_stale(_kept_off_disk(run.G, loop), "loop")
    G = _bound(run.G, loop) if is_jitted(loop) else run.G
    try:
        k, flag = _advance(loop, G, first, first, state + parameters)  # compiles, outside the clock
    except TypingError:  # of a loop that reads fields of G
        G = run.G
        k, flag = _advance(loop, G, first, first, state + parameters)
    rows, iterates, shown, steps, refuted = [], [], np.empty(run.checkpoints.size, dtype=_TRACE), 1, None
    certified = functools.partial(_certified, run, interval or _interval, eps)
    for checkpoint in run.checkpoints:
        status = "running"
        while status == "running":
            while k < checkpoint and flag == RUNNING:
                begin = time.perf_counter()
                k, flag = _advance(loop, G, k, min(checkpoint, k + steps), state + parameters)
                elapsed = time.perf_counter() - begin
                seconds += elapsed
                steps = max(1, 2 * steps if elapsed < 0.1 else steps // 2 if elapsed > 0.4 else steps)
                if flag == CERTIFIED and k == refuted:
                    raise ValueError(f"the loop {origin[0]} says CERTIFIED at iteration {k} again, where fresh "
                                     "products do not confirm it; it must advance")
            bounds = _on_the_way(run, held, flag, eps) if k < last else None
            if bounds is None or run.keep_iterates or run.callback is not None:
                alpha, p = _primal_and_dual(solution or _first_weights, state, k)
            lower, upper, status = bounds or certified(k, flag, alpha, p)
            if flag == CERTIFIED:  # believed, or not
                flag, refuted = RUNNING, k
            if k == checkpoint:
                break
        rows.append((k, products(k), seconds, lower, upper))
        if run.keep_iterates:
            iterates.append(alpha.copy())
        if run.callback is not None:
            shown[len(rows) - 1] = rows[-1]  # in a table of its own: a callback may do what it likes with it
            answer = run.callback(Result(alpha.copy(), p.copy(), lower, upper, status, int(k), shown[:len(rows)], None,
                                         _State(*origin, [a.copy() for a in arrays])))
            if status == "running" and isinstance(answer, (bool, np.bool_)) and answer:
                lower, upper, status = certified(k, flag, alpha, p)  # what is returned comes from fresh products
                rows[-1] = (*rows[-1][:3], lower, upper)
                status = "stopped" if status == "running" else status
        if status != "running":
            return Result(alpha.copy(), p.copy(), lower, upper, status, int(k), np.array(rows, dtype=_TRACE),
                          np.array(iterates) if run.keep_iterates else None,
                          _State(*origin, [a.copy() for a in arrays]))


class _State(NamedTuple):
    """What `drive` needs of a Result to go on from it."""

    loop: str
    shape: tuple
    scale: float
    sample: np.ndarray
    arrays: list


_SAMPLED = 16  # points by which one G is told from another


def _sample(G):
    """Margins of a random separator at some of the points: of G among these alone, as far as that costs no product."""
    n, rng = G.shape()[0], np.random.default_rng(0)
    index = np.unique(rng.integers(n, size=_SAMPLED))
    G, index = (G, index) if _has_operator(G) else (G.restrict(index), slice(None))
    n, dimension = G.shape()
    W, M = rng.uniform(-1.0, 1.0, (1, dimension)) / dimension, np.empty((1, n))
    table_margins(G, W, M)
    return M[0, index]


def _has_operator(G):
    return isinstance(G, OperatorGram) or any(_has_operator(part) for part in G if type(part) in lift.routines)


def _arrays(state):
    """The arrays of a state in order, those in NamedTuples too."""
    found = []
    for part in state:
        if not isinstance(part, (np.ndarray, tuple)):
            raise TypeError(f"the state of a loop consists of arrays; {part!r} belongs to its parameters")
        found += _arrays(part) if isinstance(part, tuple) else [part]
    return found


def _resume(start, origin, arrays, rounding):
    """Fill the arrays of a state with those that ``start`` ended with; returns the seconds it took."""
    *before, scale, sample, held = start.state
    *now, wanted, seen = origin
    slack = max(1e-9, 4.0 * rounding) * np.abs(seen).max()
    differs = np.shape(sample) != seen.shape or not (np.abs(sample - seen) <= slack).all()
    if (before != now or abs(scale - wanted) > 1e-12 * wanted or differs
            or [(a.shape, a.dtype) for a in held] != [(a.shape, a.dtype) for a in arrays]):
        raise ValueError("start must be a Result of the same algorithm on the same G, with the same memory if it has "
                         f"one; its loop, shape of G and largest G_ii are {start.state[:3]}, this call's {origin[:3]}"
                         f"{', and entries of G differ' if differs and before == now else ''}")
    for array, source in zip(arrays, held, strict=True):
        array[...] = source
    return float(start.trace["seconds"][-1])


def _advance(loop, G, k, until, arguments):
    """(k, flag) after a call of the loop, if that is what it returned."""
    answer = _enter(loop, G, k, until, *arguments)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], (int, np.integer))
            and not isinstance(answer[1], (bool, np.bool_)) and answer[1] in range(CERTIFIED + 1)):
        raise TypeError("a loop must return (k, flag), flag one of RUNNING, SEPARATED, INFEASIBLE, EXHAUSTED, "
                        f"CERTIFIED; got {answer!r}")
    if not k <= answer[0] <= until or (answer[1] == RUNNING and answer[0] != until):
        raise ValueError(f"a loop sent from iteration {k} to {until} must get there or halt; it returned {answer}")
    return answer


def _primal_and_dual(solution, state, k):
    """(alpha, p) of a state, if they can be certified."""
    alpha, p = solution(*state)
    _refuse_overflow(alpha, p, place=f" at iteration {k}")
    if not (p.min() >= 0.0 and p.sum() > 0.0):
        raise ValueError("p must have weights of at least 0, not all 0; give drive a solution(*state) -> (alpha, p) "
                         "with such a p, for alpha / sum alpha is one only where alpha >= 0")
    return alpha, p


def _on_the_way(run, held, flag, eps):
    """(lower, upper, "running") by the interval held, if that decides nothing and rounding makes little of it."""
    if held is not None and flag == RUNNING:
        lower, upper, blur = held.tolist()
        if upper > eps and min(upper, upper - lower) > 100.0 * blur and not upper - lower <= (run.tol or 0.0) * upper:
            return lower, upper, "running"
    return None


def _certified(run, interval, eps, k, flag, alpha, p):
    """(lower, upper, status) at iteration k: what the loop says counts where the interval proves it.

    Where the interval fails by what rounding adds to it, or it is the last, a precise one is tried; if that fails by
    rounding again, more iterations are of no use.
    """
    last = k == run.checkpoints[-1]
    for precise in (False, True):
        lower, upper, blur = interval(run.G, run.scale, alpha, p, precise)
        _refuse_overflow(lower, upper, blur, place=f" at iteration {k}")
        gap = 0.0 if run.tol is None else run.tol * upper
        if upper <= 0.0 or (upper <= eps and (flag == INFEASIBLE or (precise and flag != SEPARATED))):
            return lower, upper, "infeasible"
        if flag == SEPARATED and lower > 0.0:
            return lower, upper, "separated"
        if run.tol is not None and Fraction(upper) - Fraction(lower) <= Fraction(run.tol) * Fraction(upper):
            return lower, upper, "certified"
        on = run.tol is None or upper - lower > blur + max(blur, gap) or (precise and blur <= gap)
        if flag in (RUNNING, CERTIFIED) and on and (precise or not last or run.tol is None):
            return lower, upper, "max_iter" if last else "running"
    return lower, upper, "rounding"


ALGORITHMS = {}

_RUN_OPTIONS = """\
    Returns
    -------
    result : Result
        With the certified interval lower <= rho <= upper of its alpha and p.

    Other Parameters
    ----------------
    max_iter : int
        Updates at most, beside those of ``start``.
    tol : float, optional
        Stop as "certified" at upper - lower <= tol * upper: seen at checkpoints and, where the loop holds an interval,
        at every iteration.
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
        margins of a random separator at 16 points of G differ; a G changed at other points alone goes unnoticed.

    Raises
    ------
    ValueError, TypeError
        Naming the argument: G not finite, square, symmetric, positive semi-definite where that shows, or zero;
        parameters out of range.
    FloatingPointError
        The iterates overflowed, or G was written to during the run.

"""


def _algorithm(function):
    """Enter an algorithm into ALGORITHMS and complete its docstring with what all of them share."""
    ALGORITHMS[function.__name__] = function
    if function.__doc__ is not None:  # python -OO has none
        own, notes, rest = function.__doc__.partition("    Notes\n    -----\n")
        function.__doc__ = own + _RUN_OPTIONS + notes + rest
    return function


# ======================================================================================================
# 8 algorithms
# ======================================================================================================

# ------------------------------------------------------------------------------------------------------
# 8.1 ramdas14
# ------------------------------------------------------------------------------------------------------

def _least_visible(run):
    """The least margin, at ||alpha||_1 = 1, that rounding cannot make of 0, neither here nor in `_interval`."""
    return 4.0 * run.G.rounding().margins * run.scale


def _separating_margin(run, stop):
    """The margin, at ||alpha||_1 = 1, above which the run ends as "separated"; infinite where it is to go on."""
    if stop is None:
        return math.inf
    _choice(stop, "stop", ("separated",))
    return _least_visible(run)


@register_jitable(**_LINKED)
def _is_separated(G, alpha, w, m, floor):
    """Whether G alpha > floor.  m follows a recurrence; where it says so, a fresh product (not counted) confirms it."""
    if not _exceeds(m, floor):
        return False
    lift(G, alpha, w)
    margins(G, w, m)
    return _exceeds(m, floor)


class _Threshold(NamedTuple):
    """At ||p||_G <= eps a run is infeasible; with the `Rounding` of G, in the units of G."""

    eps: float
    square: float
    length: float


def _threshold(run, eps):
    rounding = run.G.rounding()
    return _Threshold(eps, rounding.square * run.scale, rounding.length * math.sqrt(run.scale))


@register_jitable(**_LINKED)
def _is_small(G, p, w, m, threshold):
    """Whether ||p||_G <= eps, by a product (not counted) that makes w = Z'p and m = G p anew: what recurrences say is
    confirmed with room for rounding, if rounding leaves any.
    """
    lift(G, p, w)
    margins(G, w, m)
    eps, blur, root = threshold
    size = max(square(G, p, w, m), 0.0)
    hopeless = math.sqrt(blur) + root > 0.5 * eps
    return size <= eps * eps and (hopeless or 1.000001 * (math.sqrt(size + blur) + root) <= eps)


_CYCLIC, _WORST = range(2)


@njit(cache=_CACHE)
def _perceptron_loop(G, k, until, alpha, w, m, position, held, rule, least, goal):
    """position[0] is the row from which the cyclic rule looks on."""
    n, first = m.size, k
    while True:
        if _is_separated(G, alpha, w, m, least * k):
            return k, SEPARATED
        if _meets(goal, k, until, alpha, m, held) and k > first:
            return k, CERTIFIED
        if k >= until:
            return k, RUNNING
        if rule == _WORST:
            i = np.argmin(m)
        else:
            i = position[0]
            while m[i] > least * k:
                i = (i + 1) % n
            position[0] = (i + 1) % n
        alpha[i] += 1.0
        add_column(G, i, 1.0, m)
        k += 1


@_algorithm
def perceptron(G, *, rule="cyclic", max_iter=100_000, tol=None, trace_at=None, keep_iterates=False, callback=None,
               start=None):
    """The perceptron (ramdas14, Algorithm 1): while some (G alpha)_i <= 0, up to rounding, alpha_i <- alpha_i + 1.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    rule : {"cyclic", "worst"}
        Take the next such row in cyclic order, or the one of least margin.

    Notes
    -----
    Stops as "separated" after at most s / rho^2 updates.  p = alpha / sum alpha.  One column per iteration.

    References
    ----------
    ramdas14, section 2; the bound: Block 1962, Novikoff 1962.

    Examples
    --------
    >>> import fastmargin as fm
    >>> result = fm.perceptron(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]))
    >>> result.status, result.n_iter
    ('separated', 1)
    """
    rule = {"cyclic": _CYCLIC, "worst": _WORST}[_choice(rule, "rule", ("cyclic", "worst"))]
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    alpha, m = np.zeros((2, n))
    held = _nothing()
    state = alpha, np.zeros(dimension), m, np.zeros(1, dtype=np.int64), held
    return drive(run, _perceptron_loop, state, parameters=(rule, _least_visible(run), _goal(run, columns=True)),
                 products=lambda k: k / n, held=held)


@njit(cache=_CACHE)
def _nkp_loop(G, k, until, alpha, w, m, held, least, goal):
    first = k
    while True:
        if _is_separated(G, alpha, w, m, least):
            return k, SEPARATED
        if _meets(goal, k, until, alpha, m, held) and k > first:
            return k, CERTIFIED
        if k >= until:
            return k, RUNNING
        i = np.argmin(m)
        theta = 1.0 / (k + 1.0)
        for j in range(m.size):
            alpha[j] *= 1.0 - theta
            m[j] *= 1.0 - theta
        alpha[i] += theta
        add_column(G, i, theta, m)
        k += 1


@_algorithm
def nkp(G, *, stop="separated", max_iter=100_000, tol=None, trace_at=None, keep_iterates=False, callback=None,
        start=None):
    """Normalized kernel perceptron (ramdas14, Algorithms 2 and 3): alpha_0 = 0,
    alpha <- (1 - theta_k) alpha + theta_k e_i with i = argmin_i (G alpha)_i and theta_k = 1/(k+1).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    stop : {"separated", None}
        End at G alpha > 0, or go on towards the maximum margin.

    Notes
    -----
    A subgradient method for L(alpha) = max_p -<alpha, p>_G + ||alpha||_G^2 / 2, whose minimum is -rho^2/2
    (Lemma 3).  Stops as "separated" within s / rho^2 iterations.  p = alpha.  One column per iteration.

    References
    ----------
    ramdas14, sections 2.1 and 3.

    Examples
    --------
    >>> import fastmargin as fm
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> fm.nkp(G).status, fm.nkp(G, stop=None, tol=0.01).status
    ('separated', 'certified')
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    alpha, m = np.zeros((2, n))
    held = _nothing()
    return drive(run, _nkp_loop, (alpha, np.zeros(dimension), m, held), products=lambda k: k / n, held=held,
                 parameters=(_separating_margin(run, stop), _goal(run, columns=True)))


@njit(cache=_CACHE)
def _von_neumann_loop(G, k, until, p, w, m, held, diagonal, threshold, goal):
    first = k
    while True:
        size = _dot(p, m)
        if size <= threshold.eps * threshold.eps and _is_small(G, p, w, m, threshold):
            return k, INFEASIBLE
        if _meets(goal, k, until, p, m, held) and k > first:
            return k, CERTIFIED
        if k >= until:
            return k, RUNNING
        j = np.argmin(m)
        gain, rest = size - m[j], diagonal[j] - m[j]  # <p - z_j, p> and <z_j - p, z_j>: their sum is ||p - z_j||^2
        move = 0.0 if gain <= 0.0 else 1.0 if rest <= 0.0 else gain / (gain + rest)
        for i in range(p.size):
            p[i] *= 1.0 - move
            m[i] *= 1.0 - move
        p[j] += move
        add_column(G, j, move, m)
        k += 1


def _dual_only(p, *_):
    return p, p


@_algorithm
def von_neumann(G, *, eps, max_iter=100_000, tol=None, trace_at=None, keep_iterates=False, callback=None, start=None):
    """Normalized von Neumann algorithm (ramdas14, Algorithm 5), Frank-Wolfe for min_p ||p||_G: p_0 = 1/n,
    p <- (1 - lambda) p + lambda e_j with j = argmin_j (Gp)_j and lambda in [0, 1] by exact line search.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    eps : float
        Stop as "infeasible" at ||p||_G <= eps; above 0, not scaled by sqrt(s).

    Notes
    -----
    If rho <= 0 it stops within s / eps^2 iterations.  alpha = p.  One column per iteration, one product at the start.

    References
    ----------
    ramdas14, section 5; the bound: Dantzig 1992.

    Examples
    --------
    >>> import fastmargin as fm
    >>> G = fm.FeatureGram([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]])
    >>> fm.von_neumann(G, eps=0.01).status
    'infeasible'
    """
    eps = _number(eps, "eps")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    p = np.full(n, 1.0 / n)
    (_, m), = _squares_and_margins(run.G, run.scale, p)
    held = _nothing()
    return drive(run, _von_neumann_loop, (p, np.zeros(dimension), m, held), _dual_only, held=held,
                 parameters=(run.G.diagonal(), _threshold(run, eps), _goal(run, columns=True)),
                 products=lambda k: 1.0 + k / n, eps=eps)


class _Point(NamedTuple):
    """Weights v with their images w = Z' v and m = G v, which can follow a linear recurrence of v without a product."""

    v: np.ndarray
    w: np.ndarray
    m: np.ndarray


class _Call(NamedTuple):
    """One call of SNKPVN within ISNKPVN; the arrays of one entry change from call to call."""

    center: np.ndarray  # (n,) of the prox map
    norm: np.ndarray  # (1,) ||center||_G
    age: np.ndarray  # (1,) iterations of the call so far


class _Smoothing(NamedTuple):
    prox: int  # _ENTROPY or _L2
    mu0: float
    gamma: float  # 0: no call after the first
    threshold: _Threshold
    least: float  # margin


@njit(cache=_CACHE)
def _smoothed_loop(G, k, until, alpha, p, q, call, held, smoothing, goal):
    """SNKP, SNKPVN and ISNKPVN; q = p_mu(alpha) for the current mu and alpha.

    alpha.m, p.w and p.m follow recurrences; alpha.w is scratch.  At ||p||_G < delta the run halts or, while
    gamma > 0 and delta >= eps, goes over into the next call, centred at p.
    """
    prox, mu0, gamma, (eps, blur, root), least = smoothing
    first = k
    while True:
        if _is_separated(G, alpha.v, alpha.w, alpha.m, least):
            return k, SEPARATED
        norm = math.sqrt(max(square(G, p.v, p.w, p.m), 0.0))
        delta = max(call.norm[0], eps) / gamma if gamma > 0.0 else eps
        ends = norm < delta
        if ends and (gamma == 0.0 or delta < eps):
            if _is_small(G, p.v, p.w, p.m, _Threshold(delta, blur, root)):
                return k, INFEASIBLE
            ends = False
        if k >= until or goal.tol > 0.0:
            primal = _least(alpha.m), _dot(alpha.v, alpha.m), _total(alpha.v)
            if _hold(goal, k, alpha.m.size, primal, (norm * norm, _total(p.v), 1.0), held) and k > first:
                return k, CERTIFIED
        if k >= until:
            return k, RUNNING
        theta = 2.0 / (call.age[0] + 3.0)
        if ends:
            theta = 1.0
            call.age[0] = -1
            call.norm[0] = norm
            _copy(p.v, call.center)
            _copy(p.v, alpha.v)
            _copy(p.m, alpha.m)
        else:
            for i in range(alpha.m.size):
                alpha.v[i] = (1.0 - theta) * (alpha.v[i] + theta * p.v[i]) + theta * theta * q.v[i]
                alpha.m[i] = (1.0 - theta) * (alpha.m[i] + theta * p.m[i]) + theta * theta * q.m[i]
        call.age[0] += 1
        mu = 2.0 * mu0 / ((call.age[0] + 1.0) * (call.age[0] + 2.0))
        _prox(prox, alpha.m, mu, call.center, q.v)
        lift(G, q.v, q.w)
        margins(G, q.w, q.m)
        for i in range(p.m.size):
            p.v[i] = (1.0 - theta) * p.v[i] + theta * q.v[i]
            p.m[i] = (1.0 - theta) * p.m[i] + theta * q.m[i]
        for i in range(p.w.size):
            p.w[i] = (1.0 - theta) * p.w[i] + theta * q.w[i]
        k += 1


def _both_points(alpha, p, *_):
    return alpha.v, p.v


def _smoothed(run, center, prox, *, gamma=0.0, eps=0.0, stop="separated"):
    """The run behind snkp, snkpvn and isnkpvn."""
    n, dimension = run.G.shape()
    center = np.full(n, 1.0 / n) if center is None else center
    mu0 = 2.0 * run.scale * (1.0 if prox == _ENTROPY else n)
    smoothing = _Smoothing(prox, mu0, gamma, _threshold(run, eps), _separating_margin(run, stop))
    (size, m), = _squares_and_margins(run.G, run.scale, center)
    alpha, p = _Point(center.copy(), np.zeros(dimension), m), _Point(np.empty(n), np.empty(dimension), np.empty(n))
    _prox(prox, m, mu0, center, p.v)
    lift(run.G, p.v, p.w)
    margins(run.G, p.w, p.m)
    q = _Point(p.v.copy(), p.w.copy(), p.m.copy())
    call, held = _Call(center, np.array([math.sqrt(size)]), np.zeros(1, dtype=np.int64)), _nothing()
    return drive(run, _smoothed_loop, (alpha, p, q, call, held), _both_points,
                 parameters=(smoothing, _goal(run)), products=lambda k: k + 2.0, held=held, eps=eps)


@_algorithm
def snkp(G, *, stop="separated", max_iter=10_000, tol=None, trace_at=None, keep_iterates=False, callback=None,
         start=None):
    """Smoothed normalized kernel perceptron (ramdas14, Algorithm 4).

    alpha_0 = 1/n, mu_0 = 2s, p_mu(alpha) = entropy_prox(G alpha, mu), p_0 = p_{mu_0}(alpha_0); with theta_k = 2/(k+3)

        alpha <- (1 - theta)(alpha + theta p) + theta^2 p_mu(alpha),  mu <- (1 - theta) mu,
        p     <- (1 - theta) p + theta p_mu(alpha)   at the new mu and alpha;   mu_k = 4s/((k+1)(k+2)).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    stop : {"separated", None}
        End at G alpha > 0, or go on towards the maximum margin.

    Notes
    -----
    Stops as "separated" within 2 sqrt(2 s ln n) / rho iterations (Theorem 1).  Along the run
    L(alpha_k) - mu_k ln n <= L_{mu_k}(alpha_k) <= -||p_k||_G^2 / 2 (Lemmas 4 and 5).  One product per
    iteration, two at the start.

    References
    ----------
    ramdas14, section 4.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.snkp(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).status
    'separated'
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    return _smoothed(run, None, _ENTROPY, stop=stop)


@_algorithm
def snkpvn(G, *, delta, q=None, max_iter=10_000, tol=None, trace_at=None, keep_iterates=False, callback=None,
           start=None):
    """Smoothed normalized kernel perceptron - von Neumann (ramdas14, Algorithm 6): `snkp` with alpha_0 = q,
    mu_0 = 2 n s and the prox p_mu(alpha) = l2_prox(G alpha, mu, q).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    delta : float
        Stop as "infeasible" at ||p||_G < delta; above 0, not scaled by sqrt(s).
    q : array, shape (n,), optional
        Centre of the prox map, in the simplex; by default uniform.

    Notes
    -----
    Stops as "separated" at G alpha > 0 as well.  Along the run
    -||p_k||_G^2 / 2 >= L^q_{mu_k}(alpha_k) >= L(alpha_k) - mu_k (Lemma 8) and, if rho <= 0,
    ||p_k||_G <= (2 sqrt(2 n s)/(k+1)) min(1, ||q||_G / |rho|) (Lemma 9; the paper's last line drops a sqrt 2).
    One product per iteration, two at the start.

    References
    ----------
    ramdas14, section 6.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.snkpvn(fm.FeatureGram([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]), delta=0.01).status
    'infeasible'
    """
    delta = _number(delta, "delta")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    return _smoothed(run, None if q is None else _distribution(q, "q", run.G.shape()[0]), _L2, eps=delta)


@_algorithm
def isnkpvn(G, *, eps, gamma=2.0, prox="l2", max_iter=100_000, tol=None, trace_at=None, keep_iterates=False,
            callback=None, start=None):
    """Iterated SNKPVN (ramdas14, Algorithm 7): q_0 = 1/n, delta_t = max(||q_t||_G, eps) / gamma,
    q_{t+1} = SNKPVN(q_t, delta_t).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    eps : float
        Stop as "infeasible" once delta_t < eps, with ||p||_G < eps; above 0, not scaled by sqrt(s).
    gamma : float
        Factor by which delta_t falls from call to call, above 1.
    prox : {"l2", "entropy"}
        "entropy" is the paper's open question, an experiment without a guarantee: the prox is KL(p || q_t) with
        mu_0 = 2s.

    Notes
    -----
    Stops as "separated" at G alpha > 0 as well.  For s = 1 it takes at most O(sqrt(n)/rho log(1/rho)) iterations if
    rho > eps, and O(min(sqrt(n)/eps, sqrt(n)/|rho|) log(1/eps)) if rho <= 0 or eps > rho (Theorem 4).  The paper has
    no eps in delta_t; it matters only for a q_t that is a certificate already.  Iterations are summed over the calls
    and a restart counts as one: one product per iteration, two at the start.

    References
    ----------
    ramdas14, section 6.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.isnkpvn(fm.FeatureGram([[1.0, 0.5], [-1.0, 0.5], [0.0, -1.0]]), eps=1e-6).status
    'infeasible'
    """
    prox = {"l2": _L2, "entropy": _ENTROPY}[_choice(prox, "prox", ("l2", "entropy"))]
    gamma, eps = _number(gamma, "gamma", 1.0), _number(eps, "eps")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    return _smoothed(run, None, prox, gamma=gamma, eps=eps)


@njit(cache=_CACHE)
def _winnow_loop(G, k, until, w, m, hits, score, Z, eta, least):
    """score = -eta * (sum of the rows taken), w = softmax(-score), m = Z w."""
    while True:
        if _exceeds(m, least):
            return k, SEPARATED
        if k >= until:
            return k, RUNNING
        i = np.argmin(m)
        hits[i] += 1.0
        for j in range(w.size):
            score[j] -= eta * Z[i, j]
        _softmax(score, w)
        margins(G, w, m)
        k += 1


def _l1_rounding(G):
    """Of (Zw)_i and (Z'p)_j, for rows that were divided by ||x_i||_inf, and w by a sum."""
    n, d = G.shape()
    return _gamma(n + 2 * d + 8)


def _l1_interval(G, scale, w, p, precise):
    """As `_interval`, for |z_ij| <= 1, w and p in the simplex and either order of the sums; precise changes nothing."""
    blur = _l1_rounding(G)
    lower, upper = float((G.rows @ w).min()), float((p @ G.rows).max())
    return lower - blur, upper + blur, 2.0 * blur


def _primal_and_hits(w, m, hits, *_):
    return w, _weights(hits)


@_algorithm
def winnow(Z, *, eta, max_iter=100_000, tol=None, trace_at=None, keep_iterates=False, callback=None, start=None):
    """Winnow (Littlestone 1991; ramdas14, section 2.2): multiplicative weights for the l1-margin

        rho_1 = max_{w in Delta_d} min_i (Z w)_i  =  min_{p in Delta_n} max_j (Z'p)_j

    of signed rows z_i = y_i x_i, each scaled by ||x_i||_inf here.  While some (Zw)_i <= 0: w_j <- w_j
    exp(eta z_ij) / sum with i of least margin.

    Parameters
    ----------
    Z : array, shape (n, d)
        The signed rows, none of them zero; not a Gram matrix.
    eta : float
        Learning rate, above 0.

    Notes
    -----
    In the result alpha is w, (d,), p counts the rows taken, and lower = min_i (Zw)_i <= rho_1 <= max_j (Z'p)_j =
    upper.  Stops as "separated", after at most 2 ln(d) / rho_1^2 updates with eta = rho_1 (the paper's
    ln(n) / rho_1^2 up to the constant; n there is the dimension); upper <= 0 ends it as "infeasible".  An iteration
    reads Z once and counts as one product.

    References
    ----------
    ramdas14, section 2.2; N. Littlestone, Redundant noisy attributes, attribute errors, and linear-threshold learning
    using Winnow, COLT 1991.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.winnow([[1.0, -0.5, 0.2], [0.5, 1.0, -0.1]], eta=0.3).status
    'separated'
    """
    Z = _points(Z, "Z")
    eta = _number(eta, "eta")
    size = np.abs(Z).max(axis=1)
    if size.min() == 0.0:
        raise ValueError(f"row {np.argmin(size)} of Z is zero; it cannot be scaled by its largest entry")
    run = prepare(FeatureGram(Z / size[:, None]), max_iter, tol, trace_at, keep_iterates, callback, start)
    n, d = run.G.shape()
    w, least = np.full(d, 1.0 / d), 2.0 * _l1_rounding(run.G)
    return drive(run, _winnow_loop, (w, run.G.rows @ w, np.zeros(n), np.zeros(d)), _primal_and_hits,
                 parameters=(run.G.rows, eta, least), interval=_l1_interval)


# ------------------------------------------------------------------------------------------------------
# 8.2 ji21
# ------------------------------------------------------------------------------------------------------

_EXP, _LOGISTIC = range(2)
_RISK, _CONSTANT, _SQRT = range(3)


@njit(cache=_CACHE)
def _logistic_weights(m, q):
    """q <- grad psi(-m) for psi(xi) = l^{-1}(sum_i l(xi_i)), l(z) = ln(1 + e^z); returns ln l'(psi(-m)).

    l'(psi) = 1 - exp(-sum l).  From margins of 37 on, l(z) = e^z to rounding, and q is the softmax.
    """
    if _least(m) > 37.0:
        return _softmax(m, q)
    total = 0.0
    for i in range(m.size):
        total += max(-m[i], 0.0) + math.log1p(math.exp(-abs(m[i])))
    slope = -math.expm1(-total)
    for i in range(m.size):
        small = math.exp(-abs(m[i]))
        q[i] = (small if m[i] > 0.0 else 1.0) / ((1.0 + small) * slope)
    return math.log(slope)


@register_jitable(**_LINKED)
def _dual_pass(G, w, loss, m, q, u):
    """m <- Z w, q <- grad psi(-m), u <- Z' q, one product; returns ln l'(psi(-m)), so that l'(-m_i) = q_i l'(psi)."""
    if loss == _EXP:
        return softmax_pass(G, w, m, q, u)
    margins(G, w, m)
    log_slope = _logistic_weights(m, q)
    lift(G, q, u)
    return log_slope


@njit(cache=_CACHE)
def _gradient_loop(G, k, until, alpha, w, m, q, u, log_slope, held, loss, schedule, step, goal):
    """alpha <- alpha + theta_k q_k and w = Z' alpha alike; m, q, u and log_slope[0] belong to the current w."""
    while k < until:
        theta = step
        if schedule == _RISK:
            theta *= math.exp(min(log_slope[0], 300.0)) / m.size
        elif schedule == _SQRT:
            theta /= math.sqrt(k + 1.0)
        for i in range(alpha.size):
            alpha[i] += theta * q[i]
        for i in range(w.size):
            w[i] += theta * u[i]
        log_slope[0] = _dual_pass(G, w, loss, m, q, u)
        k += 1
        if _meets(goal, k, until, alpha, m, held):
            return k, CERTIFIED
    return k, RUNNING


def _first_pass(run, loss):
    """What `_dual_pass` gives at w = 0, where all margins are 0: (m, q, u) and ln l'(psi)."""
    n, dimension = run.G.shape()
    m, q, u = np.zeros(n), np.empty(n), np.empty(dimension)
    log_slope = (_softmax if loss == _EXP else _logistic_weights)(m, q)
    lift(run.G, q, u)
    return m, q, u, log_slope


def _descend(run, loss, schedule, step):
    """The run behind gradient_descent and normalized_gradient_descent."""
    n, dimension = run.G.shape()
    m, q, u, log_slope = _first_pass(run, loss)
    held = _nothing()
    return drive(run, _gradient_loop, (np.zeros(n), np.zeros(dimension), m, q, u, np.array([log_slope]), held),
                 parameters=(loss, schedule, step / run.scale, _goal(run)), held=held)


@_algorithm
def gradient_descent(G, *, step=1.0, loss="exp", max_iter=1000, tol=None, trace_at=None, keep_iterates=False,
                     callback=None, start=None):
    """Gradient descent on the empirical risk R(w) = (1/n) sum_i l(-m_i), m = G alpha:
    alpha_i <- alpha_i + (step/s) l'(-m_i) / n.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    step : float
        Step length in units of 1/s, above 0.
    loss : {"exp", "logistic"}
        l(z) = e^z, or l(z) = ln(1 + e^z).

    Notes
    -----
    Weights are kept on a log scale, and a gradient longer than e^300 is cut to it, so nothing overflows.  The margin
    grows towards rho at the rate 1/ln t.  p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    ji21, section 3.1; the rate: Soudry et al., JMLR 19, 2018.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.gradient_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0
    True
    """
    loss = {"exp": _EXP, "logistic": _LOGISTIC}[_choice(loss, "loss", ("exp", "logistic"))]
    step = _number(step, "step")
    return _descend(prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start), loss, _RISK, step)


@_algorithm
def normalized_gradient_descent(G, *, step=1.0, schedule="constant", max_iter=1000, tol=None, trace_at=None,
                                keep_iterates=False, callback=None, start=None):
    """Gradient descent on the exponential risk with the gradient divided by the risk:
    alpha <- alpha + theta_t q_t, q_t = softmax(-G alpha).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    step : float
        Step length in units of 1/s, above 0.
    schedule : {"constant", "sqrt"}
        theta_t = step/s, with margin rate 1/t; or theta_t = (step/s) / sqrt(t + 1), with ln t / sqrt t.

    Notes
    -----
    It is mirror descent with the entropy on the dual.  p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    ji21, section 3.1; the rates: Ji & Telgarsky 2019 ("constant"), Nacson et al. 2018 ("sqrt").

    Examples
    --------
    >>> import fastmargin as fm
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> fm.normalized_gradient_descent(G, tol=0.01).status
    'certified'
    """
    schedule = {"constant": _CONSTANT, "sqrt": _SQRT}[_choice(schedule, "schedule", ("constant", "sqrt"))]
    step = _number(step, "step")
    return _descend(prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start), _EXP, schedule, step)


@_linked
def _momentum_step(x, g, q, beta, step):
    """g <- beta (g + q), x <- x + step (g + q)."""
    for i in range(x.size):
        g[i] = beta * (g[i] + q[i])
        x[i] += step * (g[i] + q[i])


@njit(cache=_CACHE)
def _momentum_loop(G, k, until, alpha, g, q, w, gw, u, m, move, held, loss, step, goal):
    """(g, q) are weights, (gw, u) = (Z' g, Z' q) their coordinates; q belongs to the current w.

    The interval held is that of alpha and of the last move g + q: the image of the next one is not at hand.
    """
    while k < until:
        beta, looks = k / (k + 1.0), k + 1 >= until or goal.tol > 0.0
        _momentum_step(alpha, g, q, beta, step)
        _momentum_step(w, gw, u, beta, step)
        if looks:
            _add(g, q, move.v)
            _add(gw, u, move.w)
            _copy(m, move.m)
        _dual_pass(G, w, loss, m, q, u)
        k += 1
        if looks:
            for i in range(m.size):
                move.m[i] = (m[i] - move.m[i]) / step  # errs by what both margins err, for the many moves up to now
            primal = _least(m), square(G, alpha, w, m), _total(alpha)
            dual = square(G, move.v, move.w, move.m), _total(move.v), 2.1 * primal[2] / step
            if _hold(goal, k, m.size, primal, dual, held):
                return k, CERTIFIED
    return k, RUNNING


def _momentum_points(alpha, g, q, *_):
    return alpha, _weights(g + q)


@_algorithm
def momentum(G, *, loss="exp", max_iter=1000, tol=None, trace_at=None, keep_iterates=False, callback=None, start=None):
    """Margin maximization by momentum, which is Nesterov's method on the dual (ji21, Algorithm 1):

        g_t = beta_t (g_{t-1} + Z' q_t),   w_{t+1} = w_t + theta (g_t + Z' q_t),   q_{t+1} = softmax(-Z w_{t+1})

    with w_0 = g_{-1} = 0, q_0 = 1/n, beta_t = t/(t+1), theta = 1/s.  p is the dual iterate mu_t, Z' mu_t = 2 g_t/t.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    loss : {"exp", "logistic"}
        "logistic" takes q_t = grad psi, psi = l^{-1}(sum l), l(z) = ln(1 + e^z), and theta = 1/(n s); q_t is then not
        normalised and mu_t is divided by its sum.

    Notes
    -----
    Theorem 3.1, for loss="exp", rho in units of sqrt(s):
        gamma(w_t) >= rho - 4 (1 + ln n) (1 + 2 ln(t+1)) / (rho (t+1)^2)   on separable data
        rho+^2 <= ||mu_t||_G^2 <= rho+^2 + 8 ln(n) / (t+1)^2               always
    One product per iteration.

    References
    ----------
    ji21, section 3; "logistic": section 5.1, with its rate.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.momentum(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-3).status
    'certified'
    """
    loss = {"exp": _EXP, "logistic": _LOGISTIC}[_choice(loss, "loss", ("exp", "logistic"))]
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    step = 1.0 / run.scale if loss == _EXP else 1.0 / (n * run.scale)
    alpha, g = np.zeros((2, n))
    w, gw = np.zeros((2, dimension))
    m, q, u, _ = _first_pass(run, loss)
    move, held = _Point(np.zeros(n), np.zeros(dimension), np.zeros(n)), _nothing()
    return drive(run, _momentum_loop, (alpha, g, q, w, gw, u, m, move, held), _momentum_points,
                 parameters=(loss, step, _goal(run, dots=False)), held=held)


@njit(cache=_CACHE)
def _batch_perceptron_loop(G, k, until, alpha, total, hits, m, norm2, diagonal, step):
    """norm2[0] = ||w||^2; ``total`` is the sum of the iterates, ``hits`` counts the rows taken."""
    while k < until:
        i = np.argmin(m)
        eta = step / math.sqrt(k + 1.0)
        norm2[0] += eta * (2.0 * m[i] + eta * diagonal[i])
        shrink = 1.0 / math.sqrt(max(1.0, norm2[0]))  # by rounding it may be below 0
        norm2[0] *= shrink * shrink
        add_column(G, i, eta, m)
        alpha[i] += eta
        for j in range(m.size):
            m[j] *= shrink
            alpha[j] *= shrink
            total[j] += alpha[j]
        hits[i] += 1.0
        k += 1
    return k, RUNNING


def _last_and_hits(alpha, total, hits, *_):
    return alpha, _weights(hits)


def _average_and_hits(alpha, total, hits, *_):
    return total, _weights(hits)


@_algorithm
def batch_perceptron(G, *, averaged=True, max_iter=1000, tol=None, trace_at=None, keep_iterates=False, callback=None,
                     start=None):
    """Batch perceptron (Cotter, Shalev-Shwartz & Srebro 2012): supergradient ascent on the least margin,

        w <- P_{||w|| <= 1}(w + eta_t z_i),   i = argmin_i m_i,   eta_t = 1 / sqrt(s t).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    averaged : bool
        alpha is the sum of the iterates, so that lower is the margin of their average; or it is the last.

    Notes
    -----
    p counts how often each row was taken; while lower >= 0, upper - lower = O(sqrt(s/t)), the regret of the
    ascent over t.  One column per iteration.

    References
    ----------
    A. Cotter, S. Shalev-Shwartz, N. Srebro, The kernelized stochastic batch perceptron, ICML 2012; ji21,
    section 1.1 and appendix F.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.batch_perceptron(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0.9
    True
    """
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n = run.G.shape()[0]
    alpha, total, hits, m = np.zeros((4, n))
    return drive(run, _batch_perceptron_loop, (alpha, total, hits, m, np.zeros(1)),
                 _average_and_hits if averaged else _last_and_hits,
                 parameters=(run.G.diagonal(), 1.0 / math.sqrt(run.scale)), products=lambda k: k / n)


@_linked
def _exponentials(part, m, low, sums):
    """sums_part <- sum_i exp(low - m_i) over one of the parts."""
    start, stop = _part(m.size, part)
    total = 0.0
    for i in range(start, stop):
        total += math.exp(low - m[i])
    sums[part] = total


@_linked
def _draw(m, uniform):
    """i with probability softmax(-m)_i, for a uniform number in [0, 1): the distribution function inverted."""
    low, sums = _least(m), np.empty(_PARTS)
    _share(_PARTS, _exponentials, (m, low, sums), _EXPENSIVE * m.size)
    level, chosen = uniform * sums.sum(), 0
    for part in range(_PARTS):
        if sums[part] > 0.0:
            chosen = part
            if level < sums[part]:
                break
            level -= sums[part]
    start, stop = _part(m.size, chosen)
    last = start
    for i in range(start, stop):
        weight = math.exp(low - m[i])
        if weight > 0.0:
            last = i
            if level < weight:
                break
            level -= weight
    return last  # by rounding the sum may fall short of the level: then it is the last of any weight


@njit(cache=_CACHE)
def _sampling_loop(G, k, until, alpha, g, drawn, m, gm, column, held, uniforms, momentum, step, goal):
    """As `_momentum_loop`, with margins gm of g and ``column`` of ``drawn`` = e_i in place of coordinates."""
    while k < until:
        i = _draw(m, uniforms[k])
        beta = k / (k + 1.0) if momentum else 0.0
        drawn[i] = 1.0
        column[:] = 0.0
        add_column(G, i, 1.0, column)
        _momentum_step(alpha, g, drawn, beta, step)
        _momentum_step(m, gm, column, beta, step)
        drawn[i] = 0.0
        k += 1
        if _meets(goal, k, until, alpha, m, held):
            return k, CERTIFIED
    return k, RUNNING


@_algorithm
def adaptive_sampling(G, *, momentum=True, step=1.0, seed=0, max_iter=1000, tol=None, trace_at=None,
                      keep_iterates=False, callback=None, start=None):
    """Adaptive sampling (ji21, Algorithm 2): `momentum` with Z'q_t replaced by one row z_i, drawn with probability q_t,

        g_t = beta_t (g_{t-1} + z_i),   w_{t+1} = w_t + theta (g_t + z_i),   i ~ q_t = softmax(-Z w_t).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    momentum : bool
        beta_t = t/(t+1), which works well and has no proof; or beta_t = 0, which is what Theorem 4.1 is about.
    step : float
        theta in units of 1/s, above 0.
    seed : int
        Of the samples, at least 0: the same seed gives the same run, on any number of threads.

    Notes
    -----
    Theorem 4.1, for momentum=False and step = sqrt(ln(n) / T), with rho in units of sqrt(s): after T iterations, with
    probability at least 1 - 2 delta,

        gamma(w_T) >= rho - (1.5 sqrt(ln(n) / T) + sqrt(2 ln(1/delta) / T)) / rho - 1 / sqrt(delta T)

    (the constants as its proof gives them).  Samples are exact: q_t is summed afresh at every iteration, in O(n).
    p = alpha / sum alpha.  One column per iteration.

    References
    ----------
    ji21, section 4.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.adaptive_sampling(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=0.02).status
    'certified'
    """
    step, seed = _number(step, "step"), _count(seed, "seed")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n = run.G.shape()[0]
    uniforms = (np.random.PCG64(seed).random_raw(int(run.checkpoints[-1])) >> np.uint64(11)) * 2.0**-53
    alpha, g, drawn, m, gm, column = np.zeros((6, n))
    held = _nothing()
    return drive(run, _sampling_loop, (alpha, g, drawn, m, gm, column, held), products=lambda k: k / n, held=held,
                 parameters=(uniforms, bool(momentum), step / run.scale, _goal(run, columns=True)))


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
    """lambda_t = lam0 s(t) for t = 1..steps; s by name, callable or array."""
    t = np.arange(1.0, steps + 1.0)
    if isinstance(lam, str):
        values = _SCHEDULES[_choice(lam, "lam", tuple(_SCHEDULES))](t)
    elif callable(lam):
        values = np.array([float(lam(int(k))) for k in t])
    else:
        values = _array(lam, "lam").astype(np.float64)
        if values.ndim != 1 or values.size < steps:
            raise ValueError(f"lam must hold a value for each of {steps} iterations; got shape {values.shape}")
        values = values[:steps]
    wrong = np.flatnonzero(~(values >= 0.0))
    if wrong.size:
        raise ValueError(f"lam must be at least 0; at t = {wrong[0] + 1} it is {values[wrong[0]]:g}")
    return lam0 * values


@njit(cache=_CACHE)
def _hinge_descent_loop(G, k, until, alpha, previous, z, w, m, of_alpha, largest, held, found, bounds, step, accel,
                        goal):
    """alpha = -u of the paper; bounds[k] = 1 / lambda_{k+1}.  accel = inf is the method without inertia.

    m = G z at the point z of the next step, and of_alpha = G alpha follows from it; largest[0] is the largest
    ||alpha||_1 so far, to which its errors are in proportion.  step 0 stands for found[0].
    """
    step = step if step > 0.0 else found[0]
    while k < until:
        inertia = (k + 2.0) / (k + 2.0 + accel)
        for i in range(z.size):
            previous[i] = alpha[i]
            alpha[i] = min(max(z[i] + step * (1.0 - m[i]), 0.0), bounds[k])
            z[i] = alpha[i] + inertia * (alpha[i] - previous[i])
        lift(G, z, w)
        margins(G, w, m)
        for i in range(m.size):
            of_alpha[i] = (m[i] + inertia * of_alpha[i]) / (1.0 + inertia)
        k += 1
        total = _total(alpha)
        largest[0] = max(largest[0], total)
        if k >= until or goal.tol > 0.0:
            size, reach = _dot(alpha, of_alpha), 3.0 * largest[0]  # ||z||_1 <= reach
            if _hold(goal, k, m.size, (_least(of_alpha), size, reach), (size, total, reach), held):
                return k, CERTIFIED
    return k, RUNNING


def _hinge_descent(G, lam, lam0, accel, step, run_options):
    """The run behind diagonal_descent and inertial_diagonal_descent."""
    step, lam0 = 0.0 if step is None else _number(step, "step"), _number(lam0, "lam0")
    run = prepare(G, *run_options)
    with np.errstate(divide="ignore", over="ignore"):
        bounds = 1.0 / _penalties(lam, lam0, run.checkpoints[-1])
    n, dimension = run.G.shape()
    found, spent = np.array([step, 0.0]), 0.0  # the step, and the products that it took to find it
    if step == 0.0 and run.start is None:
        _squares_and_margins(run.G, run.scale, np.full(n, 1.0 / n))  # compiles, outside the clock
        begin = time.perf_counter()
        norm, products = _operator_norm(run.G)
        found[:], spent = (1.0 / norm, products), time.perf_counter() - begin
    alpha, previous, z, m, of_alpha = np.zeros((5, n))
    held = _nothing()
    return drive(run, _hinge_descent_loop,
                 (alpha, previous, z, np.zeros(dimension), m, of_alpha, np.zeros(1), held, found),
                 parameters=(bounds, step, accel, _goal(run)), products=lambda k: found[1] + k, held=held,
                 spent=spent)


@_algorithm
def diagonal_descent(G, *, lam="1/t", lam0=1.0, step=None, max_iter=1000, tol=None, trace_at=None,
                     keep_iterates=False, callback=None, start=None):
    """Hinge-loss diagonal descent (apidopoulos22, Algorithm 1): projected gradient on the dual of
    min_w (1/lambda_t) sum_i max(0, 1 - m_i) + ||w||^2 / 2, one step for each lambda_t,

        u_0 = 0,   u_t = clip(u_{t-1} - gamma G u_{t-1} - gamma, -1/lambda_t, 0),   w_t = -Z'u_t;   alpha = -u.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    lam : str, callable or array
        s(t) in lambda_t = lam0 s(t): "1/log(1+t)", "1/sqrt(t)", "1/t", "1/t^2", "2^-t", a callable of t, or an
        array with s(t) at [t - 1]; not negative (0: the bound is infinite), in the theory non-increasing.
    lam0 : float
        Above 0, in the units of G.
    step : float, optional
        gamma itself, not in units of 1/s; by default that of ``start`` or 1/||G||_op on the safe side, from a Lanczos
        run of at most 64 products, which the trace counts as spent before iteration 0.

    Notes
    -----
    For gamma <= 1/||G||_op and non-increasing lambda_t, D_t(u_t) = ||w_t||^2 / 2 + sum_i u_t,i never increases
    (Lemma 5.3), and on separable data w_t -> w*, the separator of least norm with margins >= 1, rho = 1/||w*||,
    linearly once lambda_t <= 1/||u*|| (Theorem 5.1).  p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    apidopoulos22, sections 4 and 5.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.diagonal_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-9).status
    'certified'
    """
    return _hinge_descent(G, lam, lam0, math.inf, step, (max_iter, tol, trace_at, keep_iterates, callback, start))


@_algorithm
def inertial_diagonal_descent(G, *, lam="1/t", lam0=1.0, accel=10.0, step=None, max_iter=1000, tol=None,
                              trace_at=None, keep_iterates=False, callback=None, start=None):
    """Inertial diagonal descent (apidopoulos22, Algorithm 2): the step of `diagonal_descent` taken from
    z_t = u + (t/(t + accel)) (u - u_previous).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    lam, lam0 : str, callable or array, and float
        lambda_t = lam0 s(t), as in `diagonal_descent`.
    accel : float
        The paper's alpha, above 0.
    step : float, optional
        As in `diagonal_descent`.

    Notes
    -----
    Theorem 5.2, for accel >= 3 and lambda_t <= 1/||u*|| from t = 1 on: ||w_t - w*|| <= C/(t + accel - 1) with
    C = (accel - 1) (||w_0||^2 - ||w*||^2 + 2 ||u_0 - u*||_1 + ||u_0 - u*||^2 / gamma)^{1/2}.
    p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    apidopoulos22, sections 4 and 5.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.inertial_diagonal_descent(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-4).status
    'certified'
    """
    accel = _number(accel, "accel")
    return _hinge_descent(G, lam, lam0, accel, step, (max_iter, tol, trace_at, keep_iterates, callback, start))


@njit(cache=_CACHE)
def _homotopic_loop(G, k, until, alpha, w, m, a, b, scale):
    n = m.size
    while k < until:
        t = k + 1.0
        step, penalty = t ** -b, t ** -a
        lift(G, alpha, w)
        margins(G, w, m)
        for i in range(n):
            alpha[i] *= 1.0 - step * penalty
            if m[i] < 1.0:
                alpha[i] += step / (n * scale)
        k += 1
    return k, RUNNING


@_algorithm
def homotopic_subgradient(G, *, a=0.25, b=0.5, max_iter=1000, tol=None, trace_at=None, keep_iterates=False,
                          callback=None, start=None):
    """Homotopic subgradient method (Molitor, Needell & Ward 2021), the comparator of apidopoulos22: subgradient
    steps on (1/n) sum_i max(0, 1 - m_i) + (lambda_t / 2) ||w||^2 with a vanishing penalty,

        alpha <- (1 - eta_t lambda_t) alpha + (eta_t / n) [m_i < 1],   lambda_t = s t^-a,  eta_t = t^-b / s.

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    a, b : float
        Exponents above 0 with a + b <= 1, so that the shrinkage sums to infinity.

    Notes
    -----
    p = alpha / sum alpha.  One product per iteration.

    References
    ----------
    D. Molitor, D. Needell, R. Ward, Bias of homotopic gradient descent for the hinge loss, Applied Mathematics &
    Optimization 84, 2021.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.homotopic_subgradient(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])).lower > 0
    True
    """
    a, b = _number(a, "a"), _number(b, "b")
    if a + b > 1.0:
        raise ValueError(f"a + b must be at most 1; got {a:g} + {b:g}")
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    alpha, m = np.zeros((2, n))
    return drive(run, _homotopic_loop, (alpha, np.zeros(dimension), m), parameters=(a, b, run.scale))


# ------------------------------------------------------------------------------------------------------
# 8.4 own methods
# ------------------------------------------------------------------------------------------------------

_CHUNK = 128  # active rows that are gathered at a time: their margins stay in the cache
_NEWTON_STEPS = 40  # at most


class _Span(NamedTuple):
    """The span of past u_j = Z'q_j, with an orthonormal basis v_0, v_1, ...; lengths are in units of sqrt(s).

    Each v_j comes with a generator, the point that brought it: g_j = sum_{i <= j} points[j, i] v_i.  The last two rows
    of ``points`` are dual points that are no generators: the best mixture of those not kept, whose weights are ``old``,
    and the newest.  Their last column is the length of what the span leaves out of them as rounding.
    """

    size: np.ndarray  # (1,) vectors so far
    weights: np.ndarray  # (memory, n) of the generators
    coordinates: np.ndarray  # (memory, dimension) of the basis where inner products are taken by them, else (0, ...)
    margins: np.ndarray  # (memory, n) of the basis
    points: np.ndarray  # (memory + 2, memory + 1)
    share: np.ndarray  # (memory + 2,) of each point in the best dual mixture
    is_dual: np.ndarray  # (memory + 2,) whether its weights are in the simplex
    old: np.ndarray  # (n,)


class _Pace(NamedTuple):
    mu: np.ndarray  # (1,) in units of s
    share: np.ndarray  # (1,) of the gap that mu is
    idle: np.ndarray  # (1,) products in a row that left the span and both bounds as they were


class _SubspaceSetting(NamedTuple):
    unit: float  # sqrt(s)
    by_coordinates: bool  # how inner products are taken
    negligible: float  # square of a length that rounding may make of 0
    least: float  # margin that separates
    threshold: _Threshold


@_linked
def _combine(A, k, c, out):
    """out <- sum_{j < k} c_j A_j."""
    out[:] = 0.0
    _add_weighted_rows(A, c, 0, k, out)


@_linked
def _in_generators(points, k, c, a):
    """a with sum_j a_j g_j = sum_j c_j v_j, by back substitution."""
    for i in range(k - 1, -1, -1):
        total = c[i]
        for j in range(i + 1, k):
            total -= a[j] * points[j, i]
        a[i] = total / points[i, i]


@register_jitable(**_LINKED)
def _extend(G, q, span, unit, by_coordinates, negligible, w, m, t):
    """One product: u = Z'q is split into sum_j t_j v_j and a rest, which becomes the next vector of the basis.

    Returns the square of the rest, 0 where it is negligible; m then holds the margins of u / sqrt(s).
    """
    k, n = span.size[0], q.size
    full = k == min(n, w.size)
    t[:] = 0.0
    part = np.zeros(t.size)
    if by_coordinates:
        lift(G, q, w)
        for i in range(w.size):
            w[i] /= unit
        u = w.copy()
        for _ in range(2):
            part[:k] = 0.0
            _add_row_dots_between(span.coordinates, w, 1.0, part, 0, k)
            for j in range(k):
                t[j] += part[j]
                part[j] = -part[j]
            _add_weighted_rows(span.coordinates, part, 0, k, w)
        size = _dot(w, w)
        grows = size > negligible and not full
        if grows:
            for i in range(w.size):
                w[i] /= math.sqrt(size)
            _copy(w, span.coordinates[k])
        else:
            _copy(u, w)
        margins(G, w, m)
        for i in range(n):
            m[i] /= unit
        if grows:
            _copy(m, span.margins[k])
    else:
        rest, a = q.copy(), np.empty(t.size)
        for again in range(2):
            part[:k] = 0.0
            _add_row_dots_between(span.margins, rest, 1.0, part, 0, k)
            _in_generators(span.points, k, part, a)
            for j in range(k):
                t[j] += part[j]
                part[j] = -part[j]
                a[j] = -a[j]
            _add_weighted_rows(span.weights, a, 0, k, rest)
            if again:
                _add_weighted_rows(span.margins, part, 0, k, m)
            else:
                lift(G, rest, w)
                margins(G, w, m)
                for i in range(n):
                    m[i] /= unit * unit
        size = max(_dot(rest, m), 0.0)
        grows = size > negligible and not full
        if grows:
            for i in range(n):
                span.margins[k, i] = m[i] / math.sqrt(size)
        else:
            _add_weighted_rows(span.margins, t, 0, k, m)
    t[k if grows else t.size - 1] = math.sqrt(size)
    if not grows:
        return 0.0
    _copy(q, span.weights[k])
    _copy(t, span.points[k])
    span.is_dual[k] = True
    span.size[0] = k + 1
    return size


@_linked
def _smooth(m, mu, q):
    """q <- softmax(-m/mu); returns mu ln sum_i exp(-m_i/mu)."""
    low, total = _least(m), 0.0
    for i in range(m.size):
        q[i] = math.exp((low - m[i]) / mu)
        total += q[i]
    for i in range(m.size):
        q[i] /= total
    return mu * math.log(total) - low


@_linked
def _slope(span, c, q, g):
    """g <- M'q; returns the length of the gradient c - g over that of g."""
    k = span.size[0]
    g[:k] = 0.0
    _add_row_dots_between(span.margins, q, 1.0, g, 0, k)
    total, rest = 0.0, 0.0
    for j in range(k):
        total += g[j] * g[j]
        rest += (c[j] - g[j]) * (c[j] - g[j])
    return math.sqrt(rest / total) if total > 0.0 else math.inf if rest > 0.0 else 0.0


@_linked
def _hessian(span, q, g, mu, H):
    """Lower triangle of I + M' (diag q - q q') M / mu, from the rows that matter."""
    k, n = span.size[0], q.size
    for a in range(k):
        for b in range(a + 1):
            H[a, b] = 1.0 if a == b else 0.0
    gathered, index, root = np.empty((k, _CHUNK)), np.empty(_CHUNK, dtype=np.int64), np.empty(_CHUNK)
    floor, count = 1e-9 / n, 0
    for i in range(n):
        if q[i] > floor:
            index[count] = i
            root[count] = math.sqrt(q[i] / mu)
            count += 1
        if count == _CHUNK or (i == n - 1 and count > 0):
            for a in range(k):
                row = span.margins[a]
                for b in range(count):
                    gathered[a, b] = root[b] * (row[index[b]] - g[a])
                for b in range(count, _CHUNK):
                    gathered[a, b] = 0.0
            for a in range(k):
                _add_row_dots_between(gathered, gathered[a], 1.0, H[a], 0, a + 1)
            count = 0


@_linked
def _cholesky(H, k):
    """H <- its lower factor, in place; False where H is not positive definite as computed."""
    for a in range(k):
        for b in range(a + 1):
            total = H[a, b] - _dot(H[a, :b], H[b, :b])
            if a > b:
                H[a, b] = total / H[b, b]
            elif total > 0.0:
                H[a, a] = math.sqrt(total)
            else:
                return False
    return True


@_linked
def _forward(L, k, x):
    """x <- L^-1 x."""
    for a in range(k):
        x[a] = (x[a] - _dot(L[a, :a], x[:a])) / L[a, a]


@_linked
def _backward(L, k, x):
    """x <- L'^-1 x."""
    for a in range(k - 1, -1, -1):
        x[a] /= L[a, a]
        _add_multiple(-x[a], L[a, :a], x[:a])


@njit(cache=_CACHE)
def _solve(L, k, x):
    """x <- (L L')^-1 x."""
    _forward(L, k, x)
    _backward(L, k, x)


@_linked
def _minimize(span, c, mu, shrink, accuracy, m, q):
    """Damped Newton steps for c = argmin ||c||^2 / 2 + mu ln sum_i exp(-(M c)_i / mu), from c or from shrink c.

    The latter is the better start where there is no margin: then c is of the order of mu.  Ends with m = M c and q =
    softmax(-m / mu), at ||c - M'q|| <= accuracy ||M'q|| if it returns True.
    """
    k, n = span.size[0], q.size
    H, g, step = np.empty((k, k)), np.empty(k), np.empty(k)
    move, trial, weights = np.empty(n), np.empty(n), np.empty(n)
    _combine(span.margins, k, c, m)
    value = _smooth(m, mu, q) + 0.5 * _dot(c[:k], c[:k])
    for i in range(n):
        trial[i] = shrink * m[i]
    new = _smooth(trial, mu, weights) + 0.5 * shrink * shrink * _dot(c[:k], c[:k])
    if new < value:
        value = new
        _copy(trial, m)
        _copy(weights, q)
        for j in range(k):
            c[j] *= shrink
    for _ in range(_NEWTON_STEPS):
        if _slope(span, c, q, g) <= accuracy:
            return True
        _hessian(span, q, g, mu, H)
        if not _cholesky(H, k):
            return False
        for j in range(k):
            step[j] = g[j] - c[j]
        _solve(H, k, step)
        decrease = 0.0
        for j in range(k):
            decrease += step[j] * (g[j] - c[j])
        _combine(span.margins, k, step, move)
        length, found = 1.0, False
        for _ in range(60):
            for i in range(n):
                trial[i] = m[i] + length * move[i]
            new = _smooth(trial, mu, weights)
            for j in range(k):
                new += 0.5 * (c[j] + length * step[j])**2
            if new <= value - 1e-4 * length * decrease + 4.0 * _EPS * abs(value):
                found = True
                break
            length *= 0.5
        if not found:
            return False
        value = new
        _copy(trial, m)
        _copy(weights, q)
        for j in range(k):
            c[j] += length * step[j]
    return _slope(span, c, q, g) <= accuracy


@_linked
def _mix(span, accuracy, x):
    """The least-norm mixture x of the dual points, by Wolfe's algorithm from the shares given; returns ||x||^2.

    Stops where no mixture has a square below ||x||^2 - 2 accuracy, or where rounding leaves no smaller one to be found.
    """
    k, total = span.size[0], span.points.shape[0]
    support, change, level = np.empty(total, dtype=np.int64), np.empty(total), np.empty(total)
    before, g, H = np.empty(total), np.zeros(total), np.empty((k + 2, k + 2))
    _combine(span.points, total, span.share, x)
    value = _dot(x, x)
    for _ in range(2 * k + 10):
        g[:] = 0.0
        _add_row_dots_between(span.points, x, 1.0, g, 0, total)
        enters = -1
        for j in range(total):
            if span.is_dual[j] and (enters < 0 or g[j] < g[enters]):
                enters = j
        if value - g[enters] <= accuracy:
            break
        _copy(span.share, before)
        while True:  # to the least-norm point of the affine hull, or to where a share vanishes on the way
            count, size = 0, 0.0
            for j in range(total):
                if span.share[j] > 0.0 or j == enters:
                    support[count] = j
                    size = max(size, _dot(span.points[j], span.points[j]))
                    count += 1
            for a in range(count):
                for b in range(a + 1):
                    H[a, b] = _dot(span.points[support[a]], span.points[support[b]]) + size
                H[a, a] += 1e-14 * size
            if not _cholesky(H, count):
                break
            for a in range(count):
                change[a], level[a] = g[support[a]], 1.0
            _solve(H, count, change)
            _solve(H, count, level)
            ratio, move, leaves = change[:count].sum() / level[:count].sum(), 1.0, -1
            for a in range(count):
                change[a] = ratio * level[a] - change[a]
                if change[a] < 0.0 and span.share[support[a]] < -move * change[a]:
                    move, leaves = -span.share[support[a]] / change[a], a
            for a in range(count):
                span.share[support[a]] = max(span.share[support[a]] + move * change[a], 0.0)
            if leaves < 0:
                break
            span.share[support[leaves]] = 0.0
            enters = -1 if support[leaves] == enters else enters
            _combine(span.points, total, span.share, x)
            g[:] = 0.0
            _add_row_dots_between(span.points, x, 1.0, g, 0, total)
        whole = span.share.sum()
        for j in range(total):
            span.share[j] /= whole
        _combine(span.points, total, span.share, x)
        if not _dot(x, x) < value:
            _copy(before, span.share)
            _combine(span.points, total, before, x)
            break
        value = _dot(x, x)
    return value


@_linked
def _mixture_weights(span, q, p):
    """p <- the weights of the best dual mixture; q are those of the newest point."""
    k, total = span.size[0], span.share.size
    _combine(span.weights, k, span.share, p)
    low, high = span.share[total - 2], span.share[total - 1]
    for i in range(p.size):
        p[i] += low * span.old[i] + high * q[i]
    whole = p.sum()
    for i in range(p.size):
        p[i] /= whole


@_linked
def _fix_mixture(span, q, x):
    """The best mixture becomes a point of its own, which stands for all that are not kept."""
    p = np.empty(q.size)
    _mixture_weights(span, q, p)
    old = span.share.size - 2
    _copy(p, span.old)
    _copy(x, span.points[old])
    span.share[:] = 0.0
    span.share[old] = 1.0
    span.is_dual[old] = True
    span.is_dual[old + 1] = False


@_linked
def _change_basis(A, table):
    """The first rows of the table <- A times as many rows as A has columns."""
    moved = np.empty((A.shape[0], table.shape[1]))
    for j in range(A.shape[0]):
        _combine(table, A.shape[1], A[j], moved[j])
    for j in range(A.shape[0]):
        _copy(moved[j], table[j])


@_linked
def _compress(span, best, c, x, q, negligible):
    """Keep of the span the point of the best lower bound, the current one, the best mixture, and the latest points."""
    k, n = span.size[0], q.size
    kept = max(4, k // 2)
    _fix_mixture(span, q, x)
    A, points, weights = np.zeros((kept, k)), np.zeros((kept, k + 1)), np.empty((kept, n))
    part, rest, a, count = np.empty(kept), np.empty(k), np.empty(k), 0
    is_dual = np.zeros(kept, dtype=np.bool_)
    first = (best, c, x)
    for target in range(kept):
        latest = k - kept + target
        point = first[target] if target < 3 else span.points[latest]
        _copy(point[:k], rest)
        coordinates = np.zeros(k)
        for _ in range(2):
            for j in range(count):
                part[j] = _dot(A[j], rest)
                coordinates[j] += part[j]
            for j in range(count):
                for i in range(k):
                    rest[i] -= part[j] * A[j, i]
        size = _dot(rest, rest)
        if size <= negligible:
            continue
        length = math.sqrt(size)
        for i in range(k):
            A[count, i] = rest[i] / length
        coordinates[count] = length
        _copy(coordinates, points[count])
        if target < 3:
            _in_generators(span.points, k, point, a)
            _combine(span.weights, k, a, weights[count])
        else:
            _copy(span.weights[latest], weights[count])
        is_dual[count] = target >= 3 and span.is_dual[latest]
        count += 1
    _change_basis(A[:count], span.margins)
    if span.coordinates.shape[0] > 0:
        _change_basis(A[:count], span.coordinates)
    for point in first:
        for j in range(count):
            rest[j] = _dot(A[j], point[:k])
        point[:k] = 0.0
        _copy(rest[:count], point)
    span.points[:] = 0.0
    for j in range(count):
        _copy(weights[j], span.weights[j])
        _copy(points[j], span.points[j])
    _copy(x, span.points[k])
    span.is_dual[:k] = False
    _copy(is_dual[:count], span.is_dual)
    span.size[0] = count


@_linked
def _better(c, m, negligible, best, bound):
    """Keep c if its margins m prove more than those of ``best``, and its length is not all rounding."""
    size = _dot(c, c)
    if size > negligible and _least(m) / math.sqrt(size) > bound[0]:
        bound[0] = _least(m) / math.sqrt(size)
        _copy(c, best)


@_linked
def _finish(span, c, mu, floor, negligible, m, q, best, bound):
    """Smaller and smaller mu, at no product, while the problem in the span is solved for each; returns the last mu."""
    g, trial, weights, after = np.empty(span.size[0]), c.copy(), q.copy(), m.copy()
    last = mu
    while mu > floor and _minimize(span, trial, mu, 1.0, 1e-7, after, weights):
        _copy(trial, c)
        _copy(after, m)
        _copy(weights, q)
        last = mu
        _better(c, m, negligible, best, bound)
        _slope(span, c, q, g)
        size = _dot(c, c)
        if size <= negligible or math.sqrt(_dot(g, g)) - _least(m) / math.sqrt(size) <= 1e-14:
            break
        mu *= 0.25
    return last


@njit(cache=_CACHE)
def _subspace_loop(G, k, until, alpha, p, q, w, m, best, c, x, bound, pace, span, setting):
    """c and best are the coordinates of w_k and alpha, x those of p; bound = (L, U); all in units of sqrt(s)."""
    unit, by_coordinates, negligible, least, threshold = setting
    n, memory, newest = q.size, c.size, c.size + 1
    t, a = np.empty(memory + 1), np.empty(memory)
    while True:
        ends = bound[0] > 0.0 and least < math.inf
        small = bound[1] * unit <= threshold.eps
        if ends or small or k >= until:
            a[:] = 0.0
            _in_generators(span.points, span.size[0], best, a)
            _combine(span.weights, span.size[0], a, alpha)
            _mixture_weights(span, q, p)
        if ends:
            _combine(span.margins, span.size[0], best, m)
            total = 0.0
            for i in range(n):
                m[i] *= unit * unit
                total += abs(alpha[i])
            if _is_separated(G, alpha, w, m, least * total):
                return k, SEPARATED
        if small and threshold.eps > 0.0 and _is_small(G, p, w, m, threshold):
            return k, INFEASIBLE
        if k >= until:
            return k, RUNNING
        if span.size[0] == memory and memory < min(n, w.size):
            _compress(span, best, c, x, q, negligible)
        size = _extend(G, q, span, unit, by_coordinates, negligible, w, m, t)
        k += 1
        if size == 0.0 and pace.idle[0] > 1:
            continue
        lower, upper = bound[0], bound[1]
        _copy(t, span.points[newest])
        span.is_dual[newest] = size == 0.0
        if upper == math.inf:
            span.share[:] = 0.0
            span.share[0 if size > 0.0 else newest] = 1.0
        if size == 0.0:
            _better(t[:memory], m, negligible, best, bound)
        bound[1] = math.sqrt(_mix(span, 0.01 * (upper**2 - max(lower, 0.0)**2), x))
        if span.share[newest] > 0.0:
            _fix_mixture(span, q, x)
        gap, floor = bound[1]**2 - max(bound[0], 0.0)**2, 1e-12 * bound[1]
        if size > 0.0:
            pace.share[0] = 0.5 * pace.share[0] if size < 0.05 * gap else min(1.0, 2.0 * pace.share[0])
        if floor > 0.0 and span.size[0] > 0:
            mu = max(pace.share[0] * gap / math.log(max(n, 2)), floor)
            _minimize(span, c, mu, mu / pace.mu[0], 0.05, m, q)
            _better(c, m, negligible, best, bound)
            pace.mu[0] = _finish(span, c, mu, floor, negligible, m, q, best, bound) if size == 0.0 else mu
        pace.idle[0] = pace.idle[0] + 1 if size == 0.0 and bound[0] == lower and bound[1] == upper else 0


def _has_coordinates(G):
    """Whether squares are those of coordinates, so that inner products can be, too; else by weights and margins."""
    n, dimension = G.shape()
    w = np.arange(1.0, dimension + 1.0)
    return math.isclose(square(G, np.zeros(n), w, np.zeros(n)), w @ w, rel_tol=1e-12)


def _negligible(G):
    """The square of a length, in units of sqrt(s), that may be all rounding."""
    rounding = G.rounding()
    return 16.0 * rounding.square + (100.0 * rounding.length)**2


def _new_span(memory, n, dimension, by_coordinates):
    """Nothing yet; the best mixture is uniform."""
    span = _Span(np.zeros(1, dtype=np.int64), np.zeros((memory, n)),
                 np.zeros((memory if by_coordinates else 0, dimension)), np.zeros((memory, n)),
                 np.zeros((memory + 2, memory + 1)), np.zeros(memory + 2), np.zeros(memory + 2, dtype=np.bool_),
                 np.full(n, 1.0 / n))
    span.share[memory] = 1.0
    return span


def _subspace_points(alpha, p, *_):
    return alpha, _weights(p)


@_algorithm
def subspace_perceptron(G, *, eps=0.0, memory=200, stop=None, max_iter=1000, tol=None, trace_at=None,
                        keep_iterates=False, callback=None, start=None):
    """Subspace perceptron: the smoothed objective over the span of all past products.  With q_0 = 1/n,

        f_mu(w) = ||w||^2 / 2 + mu ln sum_i exp(-<z_i, w> / mu),
        w_k = argmin of f_mu over span(Z'q_0, ..., Z'q_{k-1}),   q_k = softmax(-Z w_k / mu),   mu = (U^2 - L^2) / ln n.

    L is the best margin in the span so far, or 0, and U = ||p||_G; mu is halved for as long as the part of Z'q_k
    outside the span is short, and doubled back.  alpha is the point of margin L and may have weights of either sign.
    p is the least-norm mixture of the q_j kept, to 1 % of U^2 - L^2 (Wolfe's algorithm).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.
    eps : float
        Stop as "infeasible" at ||p||_G <= eps, not scaled by sqrt(s); 0: never.
    memory : int
        Vectors of the basis kept, at least 5, and at most min(n, d).  The run holds 2 n memory numbers with a dense G
        and (2 n + d) memory with features, and so does its result; ``start`` must have been made with the same.  When
        it is full, the span is cut down to that of half as many points: the one of the best lower bound, w_k, p, and
        the latest Z'q_j.  Neither bound is lost.
    stop : {None, "separated"}
        Go on towards the maximum margin, or end at G alpha > 0.

    Notes
    -----
    Proved, for fixed mu and exact minimisation.  f_mu is smooth with constant C = 1 + s/mu and strongly convex with
    constant 1; let e_k = f_mu(w_k) - min f_mu and w* the minimiser.  The gradients g_k = w_k - Z'q_k are orthogonal to
    the span and so to each other; hence w_k = w* for some k <= rank Z.  The argument of ORTH: take l_0 = 1,
    l_k^2 - l_{k-1}^2 = l_k and S = sum_{k < N} l_k e_k.  As e_k <= -<g_k, w*>, and as w_k - g_k / C is in the next
    span, so that ||g_k||^2 <= 2 C (e_k - e_{k+1}),

        S^2 <= 2 C ||w*||^2 sum_{k < N} l_k^2 (e_k - e_{k+1}) = 2 C ||w*||^2 (S - l_{N-1}^2 e_N),

    which bounds e_N; with l_{N-1} >= (N + 1) / 2

        e_k <= 2 C ||w*||^2 / (k + 1)^2,    e_{k+i} <= 4 C e_k / (i + 1)^2.

    The second is the first with w_k - w* for w*, ||w_k - w*||^2 <= 2 e_k.  It is a linear rate: e_k is halved every
    sqrt(8 C) products.  Where the span is cut, the first is lost and the second begins anew.

    f_mu(w) < 0 proves Zw > 0.  With mu <= rho^2 / (4 ln n), f_mu(0) = mu ln n <= -min f_mu, so that
    ||w*||^2 <= 2 (f_mu(0) - min f_mu) <= -4 min f_mu, and the first rate gives f_mu(w_k) < 0 once (k + 1)^2 > 8 C.  It
    holds from any start in the span: without rho, mu = s / (4 ln n), quartered every sqrt(8 C) products, separates
    within 23 sqrt(s ln n) / rho + 4 (2 + log2(sqrt(s) / rho)), the order of `snkp`.  A bound of order rho^(-2/3), which
    is as low as one can be up to logarithms (Kornowski & Shamir), is not proved.

    Heuristic: the rule for mu above, in place of that schedule; and damped Newton steps until the gradient is 5 % of
    the part of Z'q in the span, in place of the minimum.  Where Z'q_k lies in the span but for rounding, as after
    rank Z products, the problem in the span is solved for mu down to 1e-12 U sqrt(s) at once.  The interval depends on
    none of this.  One product per iteration.

    References
    ----------
    Inspired by ORTH: A. Nemirovski, Orth-method for smooth convex optimization, Izvestia AN SSSR, Tekhnicheskaya
    Kibernetika 2, 1982; and by sequential subspace optimisation: G. Narkiss, M. Zibulevsky, Technion report CCIT 559,
    2005.  The lower bound: G. Kornowski, O. Shamir, COLT 2025; a method that meets it, not this one: I. Karmarkar, L.
    O'Carroll, A. Sidford, COLT 2026.  The mixture: P. Wolfe, Mathematical Programming 11, 1976.

    Examples
    --------
    >>> import fastmargin as fm
    >>> G = fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1])
    >>> fm.subspace_perceptron(G, tol=1e-6).status, fm.subspace_perceptron(G, stop="separated").n_iter
    ('certified', 1)
    """
    eps, memory = _number(eps, "eps", closed=True), _count(memory, "memory", 5)
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n, dimension = run.G.shape()
    memory, uniform = min(memory, n, dimension), np.full(n, 1.0 / n)
    setting = _SubspaceSetting(math.sqrt(run.scale), _has_coordinates(run.G), _negligible(run.G),
                               _separating_margin(run, stop), _threshold(run, eps))
    span = _new_span(memory, n, dimension, setting.by_coordinates)
    best, c = np.zeros((2, memory))
    pace = _Pace(np.ones(1), np.ones(1), np.zeros(1, dtype=np.int64))
    return drive(run, _subspace_loop,
                 (np.zeros(n), uniform.copy(), uniform, np.zeros(dimension), np.zeros(n), best, c, np.zeros(memory + 1),
                  np.array([-np.inf, np.inf]), pace, span), _subspace_points, parameters=(setting,), eps=eps)


# ======================================================================================================
# 9 exact solver
# ======================================================================================================
#
# min c'Gc / 2 - 1'c over c >= 0, which p = c / sum c solves along with min ||p||_G.  In units where G_ii = 1, that is
# for x_i = c_i root_i and H_ij = s G_ij / (root_i root_j) with root_i^2 = G_ii / s, the gradient is
# g_i = (u_i - 1) / root_i with u = G c / s; c and u are kept, in double precision.  A round is one of these stages:
#
#     blocks       the points that violate optimality most, a block of them at a time, by rows of G, on all points;
#     working set  the support and the points of least margin, in single precision, refined;
#     faces        Newton steps on the support within a working set, by one Cholesky factor kept through all changes.
#
# With a dense G they come in this order.  Elsewhere a row costs about as much as a product: there faces come first, as
# long as the support is small, and blocks last, where it is too large for anything else.  With a ridge over rows of few
# coordinates, points may support the margin in any number, and steps on the coordinates take the place of working sets.

_GREEDY = 128  # points in a block where rows are at hand
_BROAD = 12_000  # and elsewhere: 0.6 GB in single precision
_FACE = 3000  # largest support that is given faces; twice as large where blocks get nowhere
_PIVOT = 1e-8  # of H below which a point counts as dependent on those before it
_FINITE = _FAST | {"nnan"}  # for loops that choose by comparing; what they are given is finite
_SAMPLE = 128  # points of a working set of which nothing is known yet
_FEW = 256  # largest support for which faces come first
_NEWTON = 50  # steps on the coordinates
_BLOCKS, _SMALL_FACES, _COORDINATES, _WORKING_SET, _FACES = range(5)


@njit(cache=_CACHE)
def _rescale(c, u):
    """The best multiple of c, in place; returns its relative gap 1 - sum c min u / c'u and ||p||_G / sqrt(s)."""
    total, square, low = 0.0, 0.0, np.inf
    for i in range(c.size):
        total += c[i]
        square += c[i] * u[i]
        low = min(low, u[i])
    if not square > 1e-300 * total:
        return np.inf, 0.0
    factor = total / square
    for i in range(c.size):
        c[i] *= factor
        u[i] *= factor
    return 1.0 - low * factor, math.sqrt(square) / total


@njit(cache=_CACHE)
def _worst_violators(c, u, roots, block):
    """Fill ``block`` with the points of largest max(-g, min(g, x)), up to ties of four bits, in ascending order."""
    n, scores, counts = c.size, np.empty(c.size, dtype=np.float32), np.zeros(4096, dtype=np.int64)
    for i in range(n):
        g = (u[i] - 1.0) / roots[i]
        scores[i] = abs(max(-g, min(g, c[i] * roots[i])))
    bins = scores.view(np.int32)
    for i in range(n):
        bins[i] >>= 19  # sign, exponent and four bits: in the order of the scores
        counts[bins[i]] += 1
    bar, above = 4095, 0
    while bar > 0 and above + counts[bar] <= block.size:
        above += counts[bar]
        bar -= 1
    found, ties = 0, block.size - above
    for i in range(n):
        if bins[i] > bar or (bins[i] == bar and ties > 0):
            ties -= bins[i] == bar
            block[found] = i
            found += 1


@_linked(fastmath=_FINITE)
def _largest(scores, n):
    """Index of the largest of n scores of at least 0, found by stretches of 64; there are zeros up to the last one."""
    top, place = np.float32(-1.0), 0
    for start in range(0, n, 64):
        most = np.float32(0.0)
        for k in range(64):
            most = max(most, scores[start + k])
        if most > top:
            top, place = most, start
    for k in range(place, place + 64):
        if scores[k] == top:
            return k
    return place


@_linked(fastmath=_FINITE)
def _pair_steps(H, x, g, moves, most):
    """At most ``most`` steps in two coordinates i, j of x >= 0 on x'Hx / 2 - b'x, H_ii = 1; g, kept up to date, is
    the gradient, and ``moves`` adds up what x, which may be much larger, changes by.  Returns how many there were.

    i violates optimality most; j is the largest (g_j - g_i r)^2 / (1 - r^2), r = H_ij, which is what the pair gains
    over i alone, to two terms of the series, as far as x_j allows.
    """
    n, one, zero = x.size, np.float32(1.0), np.float32(0.0)
    scores = np.zeros(n + 64, dtype=np.float32)
    for k in range(n):
        scores[k] = max(-g[k], min(g[k], x[k]))
    for step in range(most):
        i = _largest(scores, n)
        if not scores[i] > zero:
            return step
        row, slope = H[i], g[i]
        for k in range(n):
            r = row[k]
            reach, square = min(g[k] - slope * r, x[k]), r * r
            scores[k] = reach * reach * (one + square) * (one + square * square)
        scores[i] = zero
        j = _largest(scores, n)
        r, other, a, b = row[j], g[j], x[i], x[j]
        if scores[j] > zero:
            shrink = one / max(one - r * r, np.float32(1e-6))
            move, change = (r * other - slope) * shrink, (r * slope - other) * shrink
            if a + move < zero or b + change < zero:  # the better of the two edges
                move, change = -a, max(-b, r * a - other)
                edge = max(-a, r * b - slope)
                if (slope * move + other * change + np.float32(0.5) * (move * move + change * change)
                        + r * move * change > slope * edge - other * b
                        + np.float32(0.5) * (edge * edge + b * b) - r * edge * b):
                    move, change = edge, -b
            x[j] = max(b + change, zero)
            moves[j] += change
        else:
            j, move, change = i, max(-slope, -a), zero
        x[i] = max(a + move, zero)
        moves[i] += move
        mirror = H[j]
        for k in range(n):
            now = g[k] + (move * row[k] + change * mirror[k])
            g[k] = now
            scores[k] = max(-now, min(now, x[k]))
    return most


@_linked(fastmath=_FAST)
def _working_gap(x, g, roots):
    """The relative gap within a working set."""
    total, square, low = 0.0, 0.0, np.inf
    for k in range(x.size):
        u, weight = 1.0 + g[k] * roots[k], x[k] / roots[k]
        total += weight
        square += weight * u
        low = min(low, u)
    return 1.0 - total * low / square if square > 0.0 else np.inf


@njit(cache=_CACHE)
def _step_to(H, x, g, moves, roots, target, most):
    """Pair steps until the gap within the working set is down to ``target``; returns whether fewer than most did."""
    few, done = max(16, x.size // 8), 0
    while done < most:
        steps = _pair_steps(H, x, g, moves, min(few, most - done))
        done += steps
        if steps < few or _working_gap(x, g, roots) <= target:
            return done < most
    return False


@_linked
def _drop(L, P, k, at):
    """Take a point out of the face P and of its Cholesky factor L, by rotations; returns how many are left."""
    for a in range(at, k - 1):
        P[a] = P[a + 1]
        _copy(L[a + 1, :a + 2], L[a, :a + 2])
    for a in range(at, k - 1):
        size = math.hypot(L[a, a], L[a, a + 1])
        cosine, sine = L[a, a] / size, L[a, a + 1] / size
        for b in range(a, k - 1):
            left, right = L[b, a], L[b, a + 1]
            L[b, a], L[b, a + 1] = cosine * left + sine * right, cosine * right - sine * left
    return k - 1


@_linked
def _blocking(x, P, k, d, t):
    """(t, at): the longest step along d, t at most, that keeps x >= 0 on the face, and which of it stops it, or -1."""
    at = -1
    for a in range(k):
        if d[a] < 0.0 and x[P[a]] < -t * d[a]:
            t, at = x[P[a]] / -d[a], a
    return t, at


class _Face(NamedTuple):
    """Of a working set: H and its points, and the Cholesky factor of those that are in the face."""

    H: np.ndarray  # float64, as the factor, with room for more points
    L: np.ndarray
    P: np.ndarray  # points of the face, in the order of L
    inside: np.ndarray
    roots: np.ndarray
    z: np.ndarray  # scratch, as d
    d: np.ndarray


@_linked
def _append(face, x, g, k, i, eps):
    """Bring point i into the face of k points; returns (k, changes, whether x is now a witness of infeasibility).

    Where it depends on those inside, x moves first along the direction v = e_i - H_PP^-1 H_Pi in which H is flat, to
    the first zero, whose point is dropped.  g holds on the face, and at i.
    """
    H, L, P, inside, roots, z, d = face
    changes, row = 0, H[i]
    while True:
        changes += 1
        for a in range(k):
            z[a] = row[P[a]]
        _forward(L, k, z)
        pivot = row[i] - _dot(z[:k], z[:k])
        if pivot <= _PIVOT:
            _copy(z[:k], d[:k])
            _backward(L, k, d)
            slope, total = g[i], 1.0 / roots[i]
            for a in range(k):
                d[a] = -d[a]
                slope += d[a] * g[P[a]]
                total += d[a] / roots[P[a]]
            up = not slope > 0.0
            if not up:
                for a in range(k):
                    d[a] = -d[a]
            t, at = _blocking(x, P, k, d, np.inf if up else x[i])
            if t == np.inf:
                if total > 0.0 and math.sqrt(max(pivot, 0.0)) <= eps * total:
                    x[:] = 0.0
                    for a in range(k):
                        x[P[a]] = d[a]
                    x[i] = 1.0
                    return k, changes, True
            elif not t * pivot > abs(slope):
                for a in range(k):
                    x[P[a]] = max(x[P[a]] + t * d[a], 0.0)
                if at < 0:
                    x[i] = 0.0
                    return k, changes, False
                x[i] = x[i] + t if up else max(x[i] - t, 0.0)
                x[P[at]], inside[P[at]] = 0.0, False
                k = _drop(L, P, k, at)
                continue
        _copy(z[:k], L[k, :k])
        L[k, k], P[k], inside[i] = math.sqrt(max(pivot, 1e-16)), i, True
        return k + 1, changes, False


@_linked
def _face_gradient(face, x, g, k):
    """g <- H x - b for x that is zero outside the face."""
    for i in range(x.size):
        g[i] = -1.0 / face.roots[i]
    for a in range(k):
        face.d[a] = x[face.P[a]]
    _combine_rows_between(face.H, face.P[:k], face.d[:k], 0, x.size, g)


@njit(cache=_CACHE)
def _on_face(face, order, x, g, k, most, tol, eps):
    """Optimal x >= 0 on a working set, in at most ``most`` changes of the face; returns (k, changes, witness).

    Newton steps to the first zero, whose point is dropped, until one is full; then the worst violators enter.
    """
    H, L, P, inside, roots, _, d = face
    m, changes = x.size, 0
    for i in order:
        if x[i] > 0.0 and not inside[i]:
            g[i] = _dot(H[i, :m], x) - 1.0 / roots[i]
            k, more, witness = _append(face, x, g, k, i, eps)
            changes += more
            if witness:
                return k, changes, True
    _face_gradient(face, x, g, k)
    while changes < most:
        changes += 1
        for a in range(k):
            d[a] = -g[P[a]]
        _solve(L, k, d)
        t, at = _blocking(x, P, k, d, 1.0)
        for a in range(k):
            x[P[a]] = max(x[P[a]] + t * d[a], 0.0)
            g[P[a]] *= 1.0 - t
        if at >= 0:
            x[P[at]], inside[P[at]] = 0.0, False
            k = _drop(L, P, k, at)
            continue
        _face_gradient(face, x, g, k)
        slopes = np.zeros(m)
        for a in range(m):
            if not inside[a]:
                slopes[a] = g[a]
        least = _least(slopes)
        if not least < 0.0 or _working_gap(x, g, roots) <= tol:
            break
        for _ in range(1 + k // 32):
            i = np.argmin(slopes)
            if slopes[i] > 0.1 * least:
                break
            slopes[i] = 0.0
            g[i] = _dot(H[i, :m], x) - 1.0 / roots[i]
            k, more, witness = _append(face, x, g, k, i, eps)
            changes += more
            if witness:
                return k, changes, True
    return k, changes, False


def _minimizing_step(m, rise, ridge, slope, curvature):
    """The t > 0 of least slope t + curvature t^2 / 2 + sum_i max(0, 1 - m_i - t rise_i)^2 / (2 ridge).

    Where it falls at t = 0, by Newton steps on the derivative, which is piecewise linear, between known bounds.
    """
    t, low, high = 1.0, 0.0, math.inf
    for _ in range(100):
        active = m + t * rise < 1.0
        part = rise[active]
        root = (((1.0 - m[active]) @ part) / ridge - slope) / (curvature + part @ part / ridge)
        if abs(root - t) <= 1e-12 * t:
            break
        low, high = (t, high) if root > t else (low, t)
        t = root if low < root < high else 0.5 * (low + high)
    return t


def _widened(A, size):
    """A square array of that many rows that begins with A."""
    wider = np.empty((size, size), A.dtype)
    wider[:len(A), :len(A)] = A
    return wider


class _WorkingSet:
    """Points W, and H among them."""

    def __init__(self, solver, dtype, c, u):
        """The support, and half as many again of least margin."""
        self.solver, self.H, self.placed = solver, np.empty((0, 0), dtype), 0
        self.inside, self.points = np.zeros(c.size, dtype=bool), np.empty(0, dtype=np.int64)
        support = np.flatnonzero(c)
        self.add(support)
        if support.size == 1:  # nothing is known yet
            self.add(np.setdiff1d(np.arange(0, c.size, -(-c.size // _SAMPLE)), support))
        self.add_least(u, support.size // 2 + 64)

    def add(self, points):
        self.points = np.concatenate((self.points, points))
        self.inside[points] = True

    def add_least(self, u, most, below=np.inf):
        """Add the points outside of u below a bound, ``most`` of them at most, the least; returns whether any."""
        found = np.flatnonzero(~self.inside & (u < below))
        if found.size > most:
            found = np.sort(found[np.argpartition(u[found], most)[:most]])
        self.add(found)
        return found.size > 0

    def place(self):
        """H for the points added since."""
        m = self.points.size
        if m > len(self.H):
            size, room = m + m // 2 + 64, self.solver.room
            if 2 * size > room >= m:  # at once, as what is not used takes no memory, and a copy takes that of both
                size = room
            self.H = _widened(self.H[:self.placed, :self.placed], size)
        if m > self.placed:
            self.solver.place(self.points, self.placed, self.H)
        self.placed = m


class _Exact:
    """The rounds of `max_margin`, and what they need of G.

    A stage returns the one to go on with; faces return whether they found the optimum of a closed working set, beyond
    which there is rounding alone.
    """

    def __init__(self, G, scale, tol, eps):
        self.G, self.scale, self.tol, self.eps = G, scale, 0.8 * tol, eps
        self.roots = np.sqrt(G.diagonal() / scale)
        self.adder, self.last, self.reads = _adder(G), None, np.zeros(1)
        rows = isinstance(G, RidgeGram) and hasattr(G.base, "moments") and G.ridge >= 1e-8 * scale
        self.few_coordinates = rows and G.base.shape()[1] <= min(self.roots.size, _FACE)
        n, at_hand = self.roots.size, hasattr(G, "mirrored")
        self.block, self.turns = (_GREEDY, 4 * n // min(_GREEDY, n) + 1) if at_hand else (_BROAD, 4)
        # Of working sets: steps for a point, the largest support, and the most points.
        self.patience, self.largest, self.room = (4, _FACE, math.inf) if at_hand else (32, 2 * _FACE, _BROAD)

    def place(self, points, start, H):
        """Rows and columns of H from ``start`` on."""
        factors, step = 1.0 / (math.sqrt(self.scale) * self.roots[points]), max(1, _AT_ONCE // points.size)
        for first in range(start, points.size, step):
            rows = points[first:first + step]
            block = _block(self.G, rows, points[:first + rows.size])
            self.reads[0] += block.size
            _enter(_place_block, block, first, factors, H)

    def count(self, index):
        """Entries of G that it takes to combine some columns."""
        self.reads[0] += self.roots.size * (index.size if self.adder else self.roots.size)

    def combine(self, index, weights, u):
        """u <- u + G_index weights / s."""
        self.count(index)
        if self.adder:
            self.adder(index, weights / self.scale, u)
        else:
            _add_by_product(self.G, index, weights / self.scale, u)

    def products(self, G, scale, *points):
        """As `_squares_and_margins`, by `product`."""
        return [self.product(G, scale, v) for v in points]

    def product(self, G, scale, v):
        """(v' G v, G v) by columns of the support where these are at hand, and of the last v at no cost."""
        if self.last is None or not np.array_equal(v, self.last[0]):
            if self.adder:
                m, support = np.zeros(v.size), np.flatnonzero(v)
                self.adder(support, v[support], m)
                size = _dot(v, m)
                _refuse_negative(size, G.rounding().square * scale)
                self.last = v, max(size, 0.0), m
            else:
                self.last = v, *_squares_and_margins(G, scale, v)[0]
        return self.last[1:]

    def refresh(self, c, u):
        """u <- G c / s."""
        self.count(np.flatnonzero(c))
        v = _unit_range(c)
        np.multiply(self.product(self.G, self.scale, v)[1], c.max() / v.max() / self.scale, out=u)

    def change(self, c, u, points, weights):
        """c and u for new weights of some points, outside of which c is zero."""
        moves = weights - c[points]
        moved = np.flatnonzero(moves)
        c[points] = weights
        if self.adder and 5 * moved.size <= 4 * np.count_nonzero(weights):
            self.combine(points[moved], moves[moved], u)
        else:
            self.refresh(c, u)

    def steps(self, c, u, points, H, target, most):
        """New weights of some points by pair steps in single precision; (weights, whether it took fewer than most)."""
        roots = self.roots[points]
        x, g = (c[points] * roots).astype(np.float32), ((u[points] - 1.0) / roots).astype(np.float32)
        moves = np.zeros_like(x)
        enough = _step_to(H, x, g, moves, roots, target, most)
        weights = np.maximum(c[points] + moves / roots, 0.0)
        weights[x == 0.0] = 0.0
        if not np.isfinite(weights).all():  # rows too much alike for single precision, where steps run away
            return c[points], False
        return weights, enough

    def is_small(self, c, most):
        """Whether a support of at most so many points is worth more than blocks."""
        return np.count_nonzero(c) <= min(most, max(c.size // 2, 4 * _GREEDY))

    def over_blocks(self, c, u):
        """For up to four products' worth of rows, or four blocks."""
        n, size = c.size, min(self.block, c.size)
        block, H = np.empty(size, dtype=np.int64), np.empty((size, size), dtype=np.float32)
        seen, target = np.zeros(n, dtype=bool), self.tol
        for turn in range(self.turns):
            gap, norm = _rescale(c, u)
            if turn == 0 and gap <= self.tol:
                target = 0.1 * gap
            if gap <= target or norm <= self.eps:
                return _FACES if self.is_small(c, _FACE) else _BLOCKS
            _worst_violators(c, u, self.roots, block)
            if turn and 5 * np.count_nonzero(~seen[block]) < size and self.is_small(c, self.largest):
                return _WORKING_SET
            seen[block] = True
            self.place(block, 0, H)
            moves = self.steps(c, u, block, H, 0.1 * gap, self.patience * size // 8)[0] - c[block]
            moved = np.flatnonzero(moves)
            self.combine(block[moved], moves[moved], u)
            c[block] += moves
        return _BLOCKS

    def on_working_set(self, c, u):
        """Until the pair steps crawl."""
        W, gap = _WorkingSet(self, np.float32, c, u), _rescale(c, u)[0]
        closed = False
        while np.count_nonzero(c) <= self.largest:
            W.place()
            m = W.points.size
            target = max(0.5 * self.tol, (0.03 if closed else 0.1) * gap)
            weights, enough = self.steps(c, u, W.points, W.H, target, self.patience * m)
            self.change(c, u, W.points, weights)
            before, (gap, norm) = gap, _rescale(c, u)
            if gap <= self.tol or norm <= self.eps or (gap > 0.3 * before and (closed or not enough)):
                return _FACES if np.count_nonzero(c) <= _FACE else _BLOCKS
            if m >= self.room:
                break
            closed = not W.add_least(u, min(max(96, m // 4), self.room - m), 1.0 - 0.25 * self.tol)
        return _BLOCKS

    def on_faces(self, c, u, most=np.inf):
        """As long as at most ``most`` points are in the face."""
        W, k, changes = _WorkingSet(self, np.float64, c, u), 0, 0
        rough = not _rescale(c, u)[0] <= self.tol
        face = _Face(W.H, np.empty((0, 0)), np.empty(0, np.int64), np.empty(0, np.bool_), *np.empty((3, 0)))
        while True:
            W.place()
            points, roots, size = W.points, self.roots[W.points], len(W.H)
            more = size - face.P.size
            if more:
                face = face._replace(H=W.H, L=_widened(face.L, size), P=np.append(face.P, np.zeros(more, np.int64)),
                                     inside=np.append(face.inside, np.zeros(more, np.bool_)), z=np.empty(size),
                                     d=np.empty(size))
            face = face._replace(roots=roots)
            x, g = c[points] * roots, np.empty(points.size)
            k, steps, witness = _on_face(face, np.argsort(-x), x, g, k, 5 * points.size + 500, 0.5 * self.tol, self.eps)
            if not 0.0 < x.sum() < np.inf:  # by rounding
                return True
            self.change(c, u, points, x / roots)
            if witness:
                return False
            gap, norm = _rescale(c, u)
            changes += steps
            if norm <= self.eps or (rough and gap <= self.tol) or changes > 20 * points.size + 5000 or k > most:
                return False
            if not W.add_least(u, max(96, points.size // 4), 1.0 - 0.25 * self.tol):
                break
        if hasattr(self.G, "precise"):
            order = points[face.P[:k]]
            weights = self.refine(c[order], order, face.L)
            c[:] = 0.0
            self.change(c, u, order, weights)
        return True

    def on_coordinates(self, c, u):
        """Newton steps on min_w ||w||^2 / 2 + sum_i max(0, 1 - <z_i, w>)^2 / (2 r), for rows z_i and a ridge r.

        At the minimum c / s = max(0, 1 - Zw) / r.  A step solves d equations, however many points have a part in them.
        """
        base, ridge = self.G.base, self.G.ridge
        n, d = base.shape()
        w, pull, m, rise, before = *np.empty((2, d)), *np.empty((2, n)), None
        lift(base, c / self.scale, w)
        for _ in range(_NEWTON):
            margins(base, w, m)
            active = m < 1.0
            c[:] = np.where(active, (1.0 - m) / ridge, 0.0)
            if before is not None and np.array_equal(active, before):
                break
            H, before = base.moments(np.flatnonzero(active)) / ridge, active
            H.flat[::d + 1] += 1.0
            lift(base, c, pull)
            step = np.linalg.solve(H, pull - w)
            margins(base, step, rise)
            w += _minimizing_step(m, rise, ridge, w @ step, step @ step) * step
            self.reads[0] += 2 * n * n + np.count_nonzero(active) * d / 2  # as what is computed in the time
        c *= self.scale
        self.refresh(c, u)

    def refine(self, weights, points, L):
        """Newton steps on a face by products in twice the working precision, while these help."""
        part, roots, spread = self.G.restrict(points), self.roots[points], np.inf
        for _ in range(10):
            total = 2.0 ** math.frexp(weights.sum())[1]
            g = (part.precise(weights / total)[1] * (total / self.scale) - 1.0) / roots
            if not np.abs(g).max() < 0.5 * spread:
                break  # rounding rules
            spread = np.abs(g).max()
            _solve(L, g.size, g)
            better = weights - g / roots
            if not better.min() > 0.0:
                break
            weights = better
        return weights

    def interval(self, G, scale, alpha, p, precise):
        """As `_interval`, by the products of the round where these are certain."""
        products = self.products if _is_mirrored(G) else _squares_and_margins
        return _interval(G, scale, alpha, p, precise, products)

    def rounds(self, G, k, until, c, u, stage, reads):
        """The loop that the driver is given."""
        self.reads = reads
        while k < until:
            k += 1
            if math.sqrt(max(float((c * u).sum()), 0.0)) <= 0.63 * self.eps * c.sum():  # the rest is for rounding
                return k, INFEASIBLE
            self.adder, self.last = _adder(self.G), None
            begin, before, ended = c.copy(), stage[0], False
            gap = _rescale(c, u)[0]
            if before == _BLOCKS:
                stage[0], ended = self.over_blocks(c, u), gap <= self.tol
            elif before == _SMALL_FACES:
                ended, stage[0] = self.on_faces(c, u, _FEW), _COORDINATES if self.few_coordinates else _WORKING_SET
            elif before == _COORDINATES:
                self.on_coordinates(c, u)
                stage[0] = _WORKING_SET
            elif before == _WORKING_SET:
                stage[0] = self.on_working_set(c, u)
            else:
                ended = self.on_faces(c, u)
            c /= c.sum()
            self.refresh(c, u)
            if math.sqrt(self.last[1] / self.scale) <= 0.63 * self.eps * self.last[0].sum():
                return k, INFEASIBLE
            halved = 1.0 - u.min() * c.sum() / _dot(c, u) < 0.5 * gap  # of c as it is returned
            if (ended and not halved) or (stage[0] == before and np.array_equal(c, begin)):
                return k, EXHAUSTED  # the next round would do the same
            if stage[0] == before == _BLOCKS and not halved and np.count_nonzero(c) <= 2 * _FACE:
                stage[0] = _FACES
        return k, RUNNING


def _adder(G):
    return G.adder() if hasattr(G, "adder") else None


@_algorithm
def max_margin(G, *, max_iter=100, tol=1e-9, trace_at=None, keep_iterates=False, callback=None, start=None):
    """The maximum margin to any tolerance, by greedy blocks, working sets and Newton steps.

    Solves min c'Gc / 2 - sum c over c >= 0, of which p = c / sum c is the dual point.  An iteration is one of four
    stages: (1) pair steps on blocks of the points that violate optimality most, until the support settles; (2) pair
    steps on the support and the points of least margin, in single precision and refined in double; (3) where these
    crawl, Newton steps on the support with a ratio test, by one Cholesky factor; (4) in place of (2), where a ridge of
    at least 1e-8 s lies over rows of at most 3,000 coordinates, Newton steps on the coordinates of the separator.  Only
    a dense G, whose rows are at hand, begins with (1); elsewhere a support of up to 256 points begins with (3).

    Parameters
    ----------
    G : array, shape (n, n), or representation
        Signed Gram matrix.

    Notes
    -----
    Stops as "certified" at upper - lower <= tol * upper; as "infeasible" at upper <= 1e-9 sqrt(s) (a dense G: 3e-8
    sqrt(s); one evaluated on demand: 1.5 times what rounding leaves of ||p||_G), with the witness p; as "rounding"
    where neither can be proved: tol is out of reach below about 1e-15 s / rho^2 with a dense G (float32: 2e-7 s /
    rho^2, and no data are infeasible) and 1e-16 s / rho^2 with features, for want of digits of alpha.
    alpha = p: at the optimum the primal and dual points coincide.  trace_at: every stage by default; `products` counts
    entries of G read / n^2.  Memory beside G: up to three squares of one and a half times the support, and of a G that
    is evaluated on demand 0.25 GB of its columns; without them, each stage takes a product for every working set.  A
    support of more than 3,000 points, or 6,000 where G is not dense, is left to (1), with blocks of 128 points where G
    is dense and of up to 12,000 elsewhere, 0.6 GB.

    References
    ----------
    The second-order choice of pairs: R.-E. Fan, P.-H. Chen, C.-J. Lin, JMLR 6, 2005; steps on a face with a ratio test:
    P. Wolfe, Mathematical Programming 11, 1976; their factor: P. Gill, G. Golub, W. Murray, M. Saunders, Mathematics of
    Computation 28, 1974; steps on the coordinates: O. Mangasarian, Optimization Methods and Software 17, 2002.

    Examples
    --------
    >>> import fastmargin as fm
    >>> fm.max_margin(fm.features([[2.0, 1.0], [1.0, 3.0], [-1.0, -1.0]], [1, 1, -1]), tol=1e-12).status
    'certified'
    """
    tol = _number(tol, "tol")
    first = _first_iteration(start)
    trace_at = range(first, first + _count(max_iter, "max_iter") + 1) if trace_at is None else trace_at
    run = prepare(G, max_iter, tol, trace_at, keep_iterates, callback, start)
    n = run.G.shape()[0]
    blur = math.sqrt(run.G.rounding().square)
    eps = 1e-9 if blur == 0.0 else 3e-8 if hasattr(run.G, "precise") else max(3e-8, 1.5 * blur)
    solver = _Exact(run.G, run.scale, tol, eps)
    c, u, shortest = np.zeros(n), np.zeros(n), np.argmin(solver.roots)
    c[shortest] = 1.0
    solver.refresh(c, u)
    reads = np.zeros(1)
    stage = np.array([_BLOCKS if hasattr(run.G, "mirrored") else _SMALL_FACES])
    return drive(run, solver.rounds, (c, u, stage, reads), _dual_only, products=lambda k: reads[0] / n**2,
                 interval=solver.interval, eps=eps * math.sqrt(run.scale))


# ======================================================================================================
# 10 classifier
# ======================================================================================================
#
# What scikit-learn expects of an estimator, without its base classes: parameters by name, attributes, and errors and
# warnings in the words that its users and its own checks look for.

_FEW_POINTS = 10_000  # up to which algorithms that make products are given a dense G
_SOFT = 1e4  # C max_i K(x_i, x_i) of the margin that stands in where there is no hard one


def _known_as(name, otherwise):
    """An exception or warning of scikit-learn, where that is loaded."""
    return getattr(sys.modules.get("sklearn.exceptions"), name, otherwise)


class _NotFittedError(ValueError, AttributeError):
    """Where scikit-learn is not loaded."""


def _rounded_up(number):
    """A number of one digit that is not less."""
    return f"{decimal.Context(prec=1, rounding=decimal.ROUND_CEILING).create_decimal(number):e}"


def _between(lower, upper):
    """An interval in words, by its relative width too where its ends print alike."""
    low, high = f"{lower:.3g}", f"{upper:.3g}"
    return f"between {low} and {high}{f', a relative gap of {1.0 - lower / upper:.2g},' if low == high else ''}"


def _column_names(X):
    """Names of the columns of a data frame, where all are strings."""
    names = np.asarray(getattr(X, "columns", ()), dtype=object)
    return names if names.size and all(isinstance(name, str) for name in names) else None


def _listed(names, kind):
    few = sorted(names)[:5] + ["..."] * (len(names) > 5)
    return f"Feature names {kind}:\n" + "".join(f"- {name}\n" for name in few) if names else ""


def _table(X, owner):
    """Points for a kernel: rows of float64, a matrix in compressed rows, or what is mapped from a file."""
    if not (_is_sparse(X) or hasattr(X, "dtypes") or isinstance(X, np.ndarray)):
        X = np.asarray(X)
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "O":
        X = X.astype(np.float64)
    if kind == "c":
        raise ValueError(f"Complex data not supported by {owner}")
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead, of shape {X.shape}. Reshape your "
                         "data: a row for each point, a column for each feature")
    for size, kind in zip(X.shape, ("sample", "feature"), strict=True):
        if not size:
            raise ValueError(f"Found array with 0 {kind}(s) (shape={X.shape}) while a minimum of 1 is required by "
                             f"{owner}.")
    if _is_sparse(X):
        return _sparse_points(X)
    return X if _is_mapped(X) else _points(X)


def _targets(y, n):
    """(classes, the number of each point's class)."""
    if y is None:
        raise ValueError("MaxMarginClassifier requires y to be passed, but the target y is None")
    if np.ma.is_masked(y):
        raise ValueError("y must not be masked; leave out what has no label")
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
                      "(n_samples, ), for example using ravel().",
                      _known_as("DataConversionWarning", UserWarning), stacklevel=3)
        y = y.ravel()
    if y.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {y.shape} instead.")
    if y.size != n:
        raise ValueError(f"X has {n} rows and y has {y.size} labels; they must agree")
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError("Input y contains NaN, infinity or a value too large for dtype('float64').")
    try:
        if (y != y).any():
            raise ValueError("Input y contains NaN")
        if y.dtype.kind == "f" and (y != np.round(y)).any():
            raise ValueError("Unknown label type: continuous. y must hold the classes of the points")
        classes, labels = np.unique(y, return_inverse=True)
    except TypeError:
        raise TypeError("y must hold labels of one type, which can be sorted") from None
    if classes.size < 2:
        raise ValueError("y must hold at least two classes; got 1 class")
    return classes, labels


def _self_products(kernel, X):
    """K(x, x) of points, sparse ones with the linear kernel."""
    if _is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.multiply(X).sum(axis=1)).ravel() + kernel.formula.offset
    kernel = kernel._replace(center=None)
    return np.concatenate([_kernel_diagonal(kernel, _prepared(kernel, block)) for _, block in _blocks(X)])


def _separators(G, alpha, least):
    """Z' v / least for the rows under G and the weights v of every class, (k, d), to the last digits if at hand."""
    rows, parts = G.base if isinstance(G, RidgeGram) else G, alpha[None, None]
    if isinstance(rows, PairGram):
        rows, parts = rows.K, _parted_class_weights(rows, alpha)
    if hasattr(rows, "separator"):
        return sum(np.array([rows.separator(v) for v in part]) for part in parts) / least
    W = np.empty((parts.shape[1], rows.shape()[1]))
    for v, w in zip(parts[0] / least, W, strict=True):
        lift(rows, v, w)
    return W


def _contradiction(X, labels):
    """(i, j) of two equal points of different classes, or None."""
    seen = {}
    for i in range(X.shape[0]):
        row = (X[[i]].toarray() if _is_sparse(X) else X[i]) + 0.0  # of the two zeros, one
        j = seen.setdefault(hash(row.tobytes()), i)
        if labels[i] != labels[j] and not (X[[i]] != X[[j]]).sum():
            return j, i
    return None


class MaxMarginClassifier:
    """Certified maximum margins behind the interface of scikit-learn, which it works with and does without.

    The margin of two classes is the largest rho for which some f of norm 1 has y_i f(x_i) >= rho for all i, and that of
    more, all at once, the largest for which (f_{y_i}(x_i) - f_j(x_i)) / 2 >= rho for j != y_i and class functions with
    sum_c ||f_c||^2 = 2, the margin of `pair_gram`.

    Parameters
    ----------
    kernel : str or callable
        As in `gram`.  For "precomputed", `fit` takes the kernel matrix of the training points and `predict` the values
        K(x, x_i), (m, n).  Sparse X stay so with "linear"; other kernels take them as dense arrays.
    gamma, coef0, degree, sigma2, W
        Parameters of the kernel, as in `gram`; those that it does not have are not looked at.
    C : float
        Weight of the squared slacks in ||f||^2 / 2 + C sum_i max(0, 1 - y_i f(x_i))^2; of several classes in
        sum_c ||f_c||^2 / 4 + C sum_{i, j != y_i} max(0, 1 - (f_{y_i}(x_i) - f_j(x_i)) / 2)^2.  inf: the hard margin.
    fit_intercept : bool
        Whether K is K + c^2, as if all points had a constant feature c = intercept_scaling.
    intercept_scaling : float
        c.  LinearSVC has the same convention; the bias of SVC is not penalised, which is the limit of large c, but
        for the digits that are lost where c^2 is many times K(x, x).
    normalize : {"unit", "max", None}
        As in `gram`.
    algorithm : str
        "exact", which is `max_margin`, or the name of another of `ALGORITHMS` (but `winnow`, whose margin is another).
        eps and delta, where one has to be given, are tol sqrt(s), below which margins count as none.
    tol : float
        Relative width of the certified interval at which to stop.
    max_iter : int, optional
        By default that of the algorithm.
    random_state : int, numpy.random.Generator or RandomState, optional
        Of `adaptive_sampling`; None is 0.
    dtype : {float64, float32}
        In which a dense G, or the points of one evaluated on demand, are kept.
    verbose : bool
        Print the interval at every checkpoint.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    interval_ : (float, float)
        lower <= rho <= upper, certified as in `certificate`; with C finite for the margin of G + I / (2 C).
    margin_ : float
        lower; with C = inf the predictor has it at least, but for the rounding of its coefficients.
    status_ : str
        As in `Result`.
    result_ : Result
        Of the algorithm, with its trace.
    n_iter_ : int
    support_ : array of int, shape (k,)
        Points with a part in the predictor.
    support_vectors_ : array or sparse matrix, shape (k, d)
        (0, 0) of a precomputed kernel.
    dual_coef_, intercept_ : arrays, shapes (1, k), (1,) for two classes, else (n_classes, k), (n_classes,)
        f(x) = sum_i dual_coef_i K(x_i, x) + intercept_, over sqrt(K(x, x) + c^2) under "unit".
    coef_ : array, shape (1, d) or (n_classes, d)
        Of the linear kernel: f(x) = <coef_, x> + intercept_, over the same.
    n_features_in_ : int
    feature_names_in_ : array of str, shape (d,)
        Where X was a data frame with names.

    Notes
    -----
    f has the scale of a support vector machine: the least (G alpha)_i is 1, where a margin was found.

    Where points cannot be separated, and C = inf, no f is better than f = 0.  A warning then states what was proved,
    `interval_` and `result_` hold it, and the predictor is that of the C it names, about 1e4 / max_i G_ii.  So too for
    a larger C, where rounding hides what it adds to G.

    There is no sample_weight: how often a point occurs does not change a margin.

    Memory: the kernel "linear" needs no G; of a matrix or a function it is dense; of other kernels "exact" evaluates it
    on demand, and so do other algorithms above 10,000 points.

    References
    ----------
    Attributes and their shapes follow scikit-learn's SVC and LinearSVC.

    Examples
    --------
    >>> import fastmargin as fm
    >>> X, y = [[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 1.0]], ["low", "low", "high", "high"]
    >>> model = fm.MaxMarginClassifier("linear").fit(X, y)
    >>> model.predict([[0.0, 0.0], [9.0, 0.0]])
    array(['low', 'high'], dtype='<U4')
    >>> model.status_, round(model.margin_, 6)  # 1 / sqrt(3)
    ('certified', 0.57735)
    """

    _estimator_type = "classifier"

    def __init__(self, kernel="rbf", *, gamma="scale", coef0=1.0, degree=3, sigma2=None, W=None, C=math.inf,
                 fit_intercept=True, intercept_scaling=1.0, normalize=None, algorithm="exact", tol=1e-6, max_iter=None,
                 random_state=None, dtype=np.float64, verbose=False):
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.sigma2 = sigma2
        self.W = W
        self.C = C
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.algorithm = algorithm
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def __repr__(self):
        defaults = inspect.signature(type(self)).parameters
        changed = (f"{name}={value!r}" for name, value in self.get_params().items()
                   if value is not defaults[name].default and repr(value) != repr(defaults[name].default))
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep=True):
        """The parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params):
        """Change parameters by name; returns self."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: "
                                 f"{list(known)}.")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self):
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # whoever asks has it
        return Tags(estimator_type="classifier", target_tags=TargetTags(required=True), transformer_tags=None,
                    classifier_tags=ClassifierTags(), regressor_tags=None,
                    input_tags=InputTags(sparse=True, pairwise=self._takes("precomputed")))

    def _more_tags(self):
        """The same, before scikit-learn 1.6."""
        return {"requires_y": True, "pairwise": self._takes("precomputed")}

    def get_metadata_routing(self):
        """What scikit-learn's routing of metadata asks of an estimator: that `score` takes a sample_weight."""
        from sklearn.utils.metadata_routing import MetadataRequest
        if hasattr(self, "_metadata_request"):  # the name that `clone` copies
            return self._metadata_request
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="sample_weight", alias=None)
        return request

    def set_score_request(self, *, sample_weight):
        """Whether, or by which name, scikit-learn hands a sample_weight on to `score`; returns self."""
        request = self.get_metadata_routing()
        request.score.add_request(param="sample_weight", alias=sample_weight)
        self._metadata_request = request
        return self

    def _takes(self, kernel):
        return isinstance(self.kernel, str) and self.kernel == kernel

    def _parameters(self):
        """What the kernel's functions are called with."""
        accepted = _KERNELS.get(self.kernel, ()) if isinstance(self.kernel, str) else ()
        params = {name: getattr(self, name) for name in accepted if getattr(self, name) is not None}
        if "sigma2" in params and isinstance(self.gamma, str):
            del params["gamma"]
        params["intercept"] = _number(self.intercept_scaling, "intercept_scaling") if self.fit_intercept else 0.0
        return params

    def fit(self, X, y):
        """Find the maximum margin of the rows of X, (n, d), with the classes y, (n,), of any type; returns self.

        Raises
        ------
        ValueError, TypeError
            As `gram` of X and of the parameters; y holds fewer than two classes, or numbers that are none.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        names, X = _column_names(X), _table(X, type(self).__name__)
        self.classes_, labels = _targets(y, X.shape[0])
        self.n_features_in_ = X.shape[1]
        if names is not None:
            self.feature_names_in_ = names
        linear = self._takes("linear")
        if _is_sparse(X) and not linear:
            X = X.toarray()
        ridge = 0.5 / _number(self.C, "C", infinite=True)
        if self.normalize == "unit" and self._takes("precomputed"):
            raise ValueError('normalize="unit" needs K(x, x) of new points, which a precomputed kernel does not tell')
        name = _choice(self.algorithm, "algorithm", ("exact", *(name for name in ALGORITHMS if name != "winnow")))
        algorithm = max_margin if name == "exact" else ALGORITHMS[name]
        params = self._parameters()
        kernel = _kernel(self.kernel, X, params)
        if "gamma" in params:
            params["gamma"] = kernel.formula.gamma
        count = None if self.classes_.size == 2 else self.classes_.size
        problem = model(X, 2.0 * labels - 1.0 if count is None else labels, kernel=self.kernel, n_classes=count,
                        normalize=self.normalize, **params)
        if linear:
            G = problem.features(ridge=ridge)
        elif callable(self.kernel) or self._takes("precomputed") or (
                algorithm is not max_margin and X.shape[0] <= _FEW_POINTS):
            G = problem.gram(ridge=ridge, dtype=self.dtype)
        else:
            G = problem.lazy_gram(ridge=ridge, dtype=self.dtype)
        alpha, least = self._solve(algorithm, G, X, labels)
        weights = alpha / least
        T = (weights * problem.y)[None] if count is None else _class_weights(weights[None], labels, count)[0]
        normalizers = _normalizers(_self_products(kernel, X), self.normalize)
        T *= normalizers if self.normalize == "unit" else normalizers**2  # new points have "max" in common with these
        self.support_ = np.flatnonzero(T.any(axis=0))
        self.dual_coef_ = T[:, self.support_]
        if _is_sparse(X):
            self.support_vectors_ = X[self.support_]
        else:
            own = slice(0, 0) if self._takes("precomputed") else slice(None)
            self.support_vectors_ = np.asarray(X[self.support_][own, own], dtype=np.float64)
        self.intercept_ = kernel.formula.offset * self.dual_coef_.sum(axis=1)
        if linear:  # not by the dual coefficients, as rounding these can be all that a small margin is
            W = _separators(G, alpha, least)
            if self.normalize != "unit":
                W *= normalizers[0]
            self.coef_ = W[:, :X.shape[1]].copy()
            self.intercept_ = params["intercept"] * W[:, X.shape[1]:].sum(axis=1)
        self._kernel = kernel
        return self

    def _solve(self, algorithm, G, X, labels):
        """(weights of the predictor, by what to divide them); sets the attributes of the certificate.

        So divided, the least margin is 1, where there is one.
        """
        G, scale = _representation(G)
        smallest = _number(self.tol, "tol") * math.sqrt(scale)
        given = {"max_iter": self.max_iter, "seed": self._seed(), "callback": _report if self.verbose else None,
                 "eps": smallest, "delta": smallest}
        accepted = inspect.signature(algorithm).parameters
        options = {key: value for key, value in given.items() if key in accepted and value is not None
                   and (key not in ("eps", "delta") or accepted[key].default is inspect.Parameter.empty)}
        result = algorithm(G, tol=self.tol, **options)
        self.result_, self.status_, self.n_iter_ = result, result.status, result.n_iter
        interval, soft = (result.lower, result.upper), float(f"{_SOFT / scale:.0e}")
        if result.lower <= 0.0 and result.status in ("infeasible", "rounding") and self.C > soft:
            warnings.warn(f"no margin above {_rounded_up(result.upper)} exists; {self._witness(X, labels, result.p)}; "
                          f"try C={soft:g}, with which the predictor was fitted, or less", UserWarning, stacklevel=3)
            hard, G = G, _with_ridge(G.base if isinstance(G, RidgeGram) else G, 0.5 / soft)
            result = max_margin(G, tol=self.tol)
            interval = certificate(hard, result.alpha, self.result_.p)[0], interval[1]
        elif result.status in ("max_iter", "rounding"):
            more = 2 * max(result.n_iter, accepted["max_iter"].default)
            remedy = (f"after {result.n_iter} iterations: give max_iter={more}, say, or" if result.status == "max_iter"
                      else "as far as rounding lets it be proved: give a smaller C, float64 in place of float32, or")
            warnings.warn(f"the margin is known to be {_between(*interval)} {remedy} a larger tol",
                          _known_as("ConvergenceWarning", UserWarning), stacklevel=3)
        self.interval_, self.margin_ = interval, interval[0]
        alpha = result.alpha
        if np.array_equal(alpha, result.p) and result.lower > 0.0:
            least = result.lower * result.upper  # min_i (G p)_i / ||p||_G times ||p||_G
        else:
            alpha = _unit_range(alpha)
            (size, m), = _squares_and_margins(G, scale, alpha)
            least = m.min() if m.min() > 0.0 else math.sqrt(size)
        return alpha, least if least > 0.0 else 1.0

    def _seed(self):
        state = 0 if self.random_state is None else self.random_state
        draw = getattr(state, "integers", getattr(state, "randint", None))  # a Generator's, a RandomState's
        return _count(state, "random_state") if draw is None else int(draw(2**31 - 1))

    def _witness(self, X, labels, p):
        """The points that leave no margin, in words."""
        pair = _contradiction(X, labels)
        points = np.flatnonzero(p) if pair is None else np.array(pair)
        if pair is None and self.classes_.size > 2:
            points = np.unique(points // (self.classes_.size - 1))
        if points.size > 6:
            return f"a mixture of {points.size} points allows no larger one"
        *others, last = map(str, points)
        if not others:
            return f"the point {last} allows no larger one"
        claim = "allow no larger one" if pair is None else "contradict each other"
        return f"the points {', '.join(others)} and {last} {claim}"

    def _checked(self, X):
        """New points, as those of `fit`."""
        name, known = type(self).__name__, getattr(self, "feature_names_in_", None)
        if not hasattr(self, "dual_coef_"):
            raise _known_as("NotFittedError", _NotFittedError)(f"This {name} is not fitted yet; call fit first")
        names, X = _column_names(X), _table(X, name)
        if (names is None) != (known is None):
            have, was = ("does not have valid", "with") if names is None else ("has", "without")
            warnings.warn(f"X {have} feature names, but {name} was fitted {was} feature names", stacklevel=3)
        elif names is not None and not np.array_equal(names, known):
            other = _listed(set(names) - set(known), "unseen at fit time") + _listed(
                set(known) - set(names), "seen at fit time, yet now missing")
            raise ValueError("The feature names should match those that were passed during fit.\n"
                             + (other or "Feature names must be in the same order as they were in fit.\n"))
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {self.n_features_in_} features as "
                             "input")
        return X.toarray() if _is_sparse(X) and not self._takes("linear") else X

    def decision_function(self, X):
        """f(x) for the rows of X, (m, d): (m,), positive for classes_[1], or (m, n_classes) of more than two."""
        return self._scores(self._checked(X))

    def _scores(self, X):
        kernel = self._kernel
        if self._takes("linear"):
            scores = X @ self.coef_.T
        elif self._takes("precomputed"):
            scores = X[:, self.support_] @ self.dual_coef_.T
        else:
            plain = kernel._replace(formula=kernel.formula._replace(offset=0.0))
            points = _prepared(plain, self.support_vectors_)
            scores = np.concatenate([_kernel_sums(plain, self.dual_coef_, points, _prepared(plain, block)).T
                                     for _, block in _blocks(X)])
        scores = scores + self.intercept_
        if self.normalize == "unit":
            scores *= _normalizers(_self_products(kernel, X), "unit")[:, None]
        return scores[:, 0] if self.classes_.size == 2 else scores

    def predict(self, X):
        """The classes of the rows of X, (m, d): (m,)."""
        scores = self._scores(self._checked(X))
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def score(self, X, y, sample_weight=None):
        """The share of the rows of X, (m, d), that are predicted to be of the classes y, (m,); weighted, if asked."""
        guesses = self.predict(X)
        for name, given in (("y", y), ("sample_weight", sample_weight)):
            if np.size(given) != guesses.size and not (name == "sample_weight" and given is None):
                raise ValueError(f"X has {guesses.size} rows and {name} {np.size(given)} entries; they must agree")
        return float(np.average(guesses == np.ravel(y), weights=sample_weight))


def _report(partial):
    print(f"{partial.n_iter:>8} iterations: {partial.lower:.6g} <= rho <= {partial.upper:.6g}")
