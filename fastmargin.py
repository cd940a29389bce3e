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
nothing changes when s = 1 and every guarantee holds for any G.

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

Contents (search for the banner)
    RESULT AND INPUT        Result, checks of what users pass
    KERNELS                 kernel_matrix, gram, decision_function
    REPRESENTATIONS OF G    dense arrays, features; the operations that a loop may ask of G
    PROX MAPS               entropy_prox, l2_prox, project_simplex
    CERTIFICATE AND DRIVER  certificate; how a loop is taken from checkpoint to checkpoint
    RAMDAS14                perceptron, nkp, von_neumann, snkp, snkpvn, isnkpvn, winnow
    JI21                    gradient_descent, normalized_gradient_descent, momentum, batch_perceptron
    APIDOPOULOS22           diagonal_descent, inertial_diagonal_descent, homotopic_subgradient
    EXACT SOLVER            max_margin
"""

import math
import operator
import time
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.extending import overload

__version__ = "0.1.0"

# Flags of the hot loops.  A sum may be reordered and fused, which the error bounds allow for; NaN and
# infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz"}

_EPS = float(np.finfo(np.float64).eps)
_PARTS = 8  # of a product in parallel: a fixed number, so that the result is the same on any number of threads
_SERIAL = 1 << 18  # entries of an array below which starting threads costs more than reading it


# ======================================================================================================
# RESULT AND INPUT
# ======================================================================================================

class Result(NamedTuple):
    """What every algorithm returns.

    alpha      (n,) weights of the predictor f = sum_i alpha_i y_i phi(x_i); its scale is the algorithm's own
    p          (n,) point of the simplex, the dual certificate
    lower      min_i (G alpha)_i / ||alpha||_G, or -sqrt(s) where ||alpha||_G cannot be told from 0
    upper      ||p||_G;  lower <= rho <= upper, up to the rounding stated in `certificate`
    status     "separated"   G alpha > 0 was reached and the algorithm stops there
               "certified"   upper - lower <= tol * upper
               "infeasible"  ||p||_G <= eps: no margin above eps exists
               "max_iter"    none of these within max_iter iterations
               ("running"    in the partial results that a callback sees)
    n_iter     number of updates made; iteration 0 is the start
    trace      structured array, a row per checkpoint: iteration, products (G-vector products spent by the
               iterations, a column counting 1/n; certificates are not counted), seconds (likewise without
               certificates and without compilation), lower, upper
    iterates   (checkpoints, n) alpha at every row of the trace, or None
    """

    alpha: np.ndarray
    p: np.ndarray
    lower: float
    upper: float
    status: str
    n_iter: int
    trace: np.ndarray
    iterates: np.ndarray | None


_TRACE = np.dtype([("iteration", np.int64), ("products", np.float64), ("seconds", np.float64),
                   ("lower", np.float64), ("upper", np.float64)])


def _real_array(a, name, ndim):
    """A finite float array of the given dimension (float32 stays float32); otherwise an error that says where."""
    a = np.asarray(a)
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
        where = tuple(int(k) for k in np.argwhere(~np.isfinite(a))[0])
        raise ValueError(f"{name} must be finite; row {where[0]} has {a[where]} at {name}{list(where)}")
    return a


def _points(X, name="X"):
    """A C-ordered float64 copy or view of finite rows, whose squared distances are finite as well."""
    X = np.ascontiguousarray(_real_array(X, name, 2), dtype=np.float64)
    with np.errstate(over="ignore"):
        reach = 4.0 * np.einsum("ij,ij->i", X, X)
    if not np.isfinite(reach).all():
        raise ValueError(f"row {np.argmin(np.isfinite(reach))} of {name} is too large: squared distances overflow; "
                         "rescale the points")
    return X


def _labels(y, n):
    y = _real_array(y, "y", 1).astype(np.float64)
    if y.size != n:
        raise ValueError(f"X has {n} rows and y has {y.size} labels; they must agree")
    wrong = np.flatnonzero(np.abs(y) != 1)
    if wrong.size:
        raise ValueError(f"labels must be -1 or +1; y[{wrong[0]}] is {y[wrong[0]]:g}")
    return y


def _choice(value, name, options):
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")
    return value


def _number(value, name, low=0.0, *, closed=False):
    """A finite number above ``low`` (or at it, when ``closed``)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(number) or number < low or (number == low and not closed):
        raise ValueError(f"{name} must be finite and {'at least' if closed else 'above'} {low:g}; got {value!r}")
    return number


def _count(value, name, low=0):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, bool) or number < low:
        raise ValueError(f"{name} must be an integer of at least {low}; got {value!r}")
    return number


# ======================================================================================================
# KERNELS
# ======================================================================================================

_LINEAR, _POLY, _RBF, _LAPLACIAN = range(4)
_KERNELS = {"linear": (), "poly": ("gamma", "coef0", "degree"), "rbf": ("gamma", "sigma2"), "laplacian": ("gamma",)}
_NORMALIZE = ("unit", "max", None)
_BLOCK = 512  # rows of a Gram matrix that are computed at a time


class _Kernel(NamedTuple):
    code: int
    gamma: float
    coef0: float
    degree: int
    center: np.ndarray  # subtracted from the points: distances do not change, their rounding shrinks


def _kernel(kernel, X, params):
    """Resolve a kernel name and its keywords against the training points X."""
    _choice(kernel, "kernel", tuple(_KERNELS))
    unknown = set(params) - set(_KERNELS[kernel])
    if unknown:
        raise TypeError(f"kernel {kernel!r} takes {', '.join(_KERNELS[kernel]) or 'no parameters'}; "
                        f"got {', '.join(sorted(unknown))}")
    if "sigma2" in params:
        if "gamma" in params:
            raise ValueError("give gamma or sigma2 = 1/(2 gamma), not both")
        gamma = 0.5 / _number(params["sigma2"], "sigma2")
    elif isinstance(params.get("gamma", "scale"), str):
        _choice(params.get("gamma", "scale"), "gamma", ("scale",))
        gamma = 1.0 / (X.shape[1] * (X.var() or 1.0))
    else:
        gamma = _number(params["gamma"], "gamma")
    shift_invariant = kernel in ("rbf", "laplacian")
    return _Kernel(code=list(_KERNELS).index(kernel), gamma=gamma,
                   coef0=_number(params.get("coef0", 1.0), "coef0", closed=True),
                   degree=_count(params.get("degree", 3), "degree", 1),
                   center=X.mean(axis=0) if shift_invariant else np.zeros(X.shape[1]))


@njit(cache=True, parallel=True, fastmath=_FAST)
def _finish_kernel(dots, squares_a, squares_b, code, gamma, coef0, degree):
    """Turn inner products <a_i, b_j> into kernel values, in place."""
    for i in prange(dots.shape[0]):
        row = dots[i]
        if code == _POLY:
            for j in range(row.size):
                row[j] = (gamma * row[j] + coef0) ** degree
        elif code == _RBF:
            for j in range(row.size):
                row[j] = math.exp(-gamma * max(squares_a[i] + squares_b[j] - 2.0 * row[j], 0.0))


@njit(cache=True, parallel=True, fastmath=_FAST)
def _laplacian(A, B, gamma, out):
    """out_ij = exp(-gamma ||a_i - b_j||_1)."""
    for i in prange(A.shape[0]):
        a = A[i]
        for j in range(B.shape[0]):
            b = B[j]
            distance = 0.0
            for k in range(a.size):
                distance += abs(a[k] - b[k])
            out[i, j] = math.exp(-gamma * distance)


def _kernel_block(kernel, A, B):
    """K(a_i, b_j) for points that are already centred."""
    if kernel.code == _LAPLACIAN:
        out = np.empty((len(A), len(B)))
        _laplacian(A, B, kernel.gamma, out)
        return out
    out = A @ B.T
    if kernel.code != _LINEAR:
        _finish_kernel(out, np.einsum("ij,ij->i", A, A), np.einsum("ij,ij->i", B, B),
                       kernel.code, kernel.gamma, kernel.coef0, kernel.degree)
    return out


def _kernel_diagonal(kernel, X):
    """K(x_i, x_i) for points that are already centred."""
    if kernel.code in (_RBF, _LAPLACIAN):
        return np.ones(len(X))
    squares = np.einsum("ij,ij->i", X, X)
    return squares if kernel.code == _LINEAR else (kernel.gamma * squares + kernel.coef0) ** kernel.degree


def _normalizers(diagonal, normalize, name="X", reference=None):
    """c with c_i c_j K_ij normalised.  ``reference`` is the training diagonal, for new points under "max"."""
    if normalize not in _NORMALIZE:
        raise ValueError(f"normalize must be one of {', '.join(map(repr, _NORMALIZE))}; got {normalize!r}")
    if not np.isfinite(diagonal).all():
        row = np.flatnonzero(~np.isfinite(diagonal))[0]
        raise ValueError(f"K(x, x) overflows at row {row} of {name}; rescale the points")
    if normalize == "unit":
        flat = np.flatnonzero(diagonal <= 0)
        if flat.size:
            raise ValueError(f"row {flat[0]} of {name} has K(x, x) = {diagonal[flat[0]]:g}; "
                             'normalize="unit" needs K(x, x) > 0')
        return 1.0 / np.sqrt(diagonal)
    if normalize == "max":
        top = (diagonal if reference is None else reference).max()
        if top <= 0:
            raise ValueError('every row of X has K(x, x) = 0; normalize="max" needs one above 0')
        return np.full(diagonal.size, 1.0 / math.sqrt(top))
    return np.ones(diagonal.size)


@njit(cache=True, parallel=True)
def _place_block(block, start, c, out):
    """out[i, j] = out[j, i] = c_i c_j block[i - start, j] for the rows of one block and all j <= i, in tiles."""
    rows = block.shape[0]
    stop = start + rows
    for tile in prange((stop + 63) // 64):
        for i in range(max(start, 64 * tile), stop):
            for j in range(64 * tile, min(64 * tile + 64, i + 1)):
                value = c[i] * c[j] * block[i - start, j]
                out[i, j] = value
                out[j, i] = value


def gram(X, y=None, *, kernel="rbf", normalize="unit", dtype=np.float64, **params):
    """Dense signed Gram matrix G_ij = y_i y_j K(x_i, x_j) / normalisation, exactly symmetric.

    X          (n, d) points; y (n,) labels +-1, or None for the unsigned matrix
    kernel     "linear"     <x, x'>
               "poly"       (gamma <x, x'> + coef0)^degree             coef0=1, degree=3
               "rbf"        exp(-gamma ||x - x'||^2)                   or sigma2, with gamma = 1/(2 sigma2)
               "laplacian"  exp(-gamma ||x - x'||_1)
               gamma is a number or "scale" (the default): 1 / (d Var X)
    normalize  "unit"  divides K_ij by sqrt(K_ii K_jj), so G_ii = 1 (ramdas14)
               "max"   divides by max_i K_ii, so G_ii <= 1 (ji21)
               None    leaves K as it is
    dtype      float64, or float32 for half the memory; sums over n stay in float64
    Returns    (n, n) array.  Memory: the matrix and a block of 512 rows.
    Raises     ValueError for non-finite values, labels other than +-1, unequal lengths, K(x, x) <= 0 under
               "unit", parameters out of range; TypeError for a parameter that the kernel does not take.
    """
    X = _points(X)
    sign = np.ones(len(X)) if y is None else _labels(y, len(X))
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}")
    kernel = _kernel(kernel, X, params)
    X = X - kernel.center
    diagonal = _kernel_diagonal(kernel, X)
    normalizer = _normalizers(diagonal, normalize)
    out = np.empty((len(X), len(X)), dtype)
    for start in range(0, len(X), _BLOCK):
        stop = min(start + _BLOCK, len(X))
        _place_block(_kernel_block(kernel, X[start:stop], X[:stop]), start, sign * normalizer, out)
    np.fill_diagonal(out, 1.0 if normalize == "unit" else diagonal * normalizer**2)
    return out


def kernel_matrix(A, B, *, kernel="rbf", **params):
    """Cross matrix K(a_i, b_j), (len(A), len(B)), unsigned and not normalised.

    Kernels and parameters as in `gram`; gamma="scale" is resolved on A, so pass the training points as A.
    """
    A, B = _points(A, "A"), _points(B, "B")
    if A.shape[1] != B.shape[1]:
        raise ValueError(f"A has {A.shape[1]} columns and B has {B.shape[1]}; they must agree")
    kernel = _kernel(kernel, A, params)
    return _kernel_block(kernel, A - kernel.center, B - kernel.center)


def decision_function(alpha, X, y, Xnew, *, kernel="rbf", normalize="unit", **params):
    """f(x) = sum_i alpha_i y_i K(x_i, x), normalised as in `gram`, for every row x of Xnew: (len(Xnew),).

    alpha, X, y are the weights and the training set; kernel, normalize and params must be those that made G
    (for `features`: kernel="linear").
    """
    X, Xnew = _points(X), _points(Xnew, "Xnew")
    y = _labels(y, len(X))
    alpha = _real_array(alpha, "alpha", 1)
    if alpha.size != len(X):
        raise ValueError(f"alpha has {alpha.size} weights for {len(X)} rows of X; they must agree")
    if X.shape[1] != Xnew.shape[1]:
        raise ValueError(f"X has {X.shape[1]} columns and Xnew has {Xnew.shape[1]}; they must agree")
    kernel = _kernel(kernel, X, params)
    X, Xnew = X - kernel.center, Xnew - kernel.center
    diagonal = _kernel_diagonal(kernel, X)
    weights = alpha * y * _normalizers(diagonal, normalize)
    normalizer = _normalizers(_kernel_diagonal(kernel, Xnew), normalize, "Xnew", diagonal)
    support = weights != 0
    X, weights = X[support], weights[support]
    out = np.empty(len(Xnew))
    for start in range(0, len(Xnew), _BLOCK):
        out[start:start + _BLOCK] = _kernel_block(kernel, Xnew[start:start + _BLOCK], X) @ weights
    return normalizer * out


# ======================================================================================================
# REPRESENTATIONS OF G
# ======================================================================================================
#
# A representation is a NamedTuple of arrays.  It factors G = Z Z' by *coordinates*: w = Z' v stands for
# sum_i v_i z_i.  With explicit features w is that vector, of length d; a dense G has no features at hand,
# so there w is v itself and Z w is read as G v.  Loops ask G for
#
#     _lift(G, v, w)                     w <- Z' v
#     _margins(G, w, m)                  m <- Z w;  _lift and _margins together are one product G v
#     _softmax_pass(G, w, m, q, u)       m <- Z w, q <- softmax(-m), u <- Z' q: one product, and over
#                                        features one reading of Z; returns ln sum_i exp(-m_i)
#     _add_column(G, i, c, m)            m <- m + c G e_i: one column
#     _square(G, v, w, m)                v' G v, given w = Z' v and m = G v: no product
#
# and wrappers ask its methods for what is needed once per run.  A new representation registers its
# kernels under the five names and has the methods of FeatureGram; no algorithm changes.

def _operation(signature):
    """An operation on G, dispatched on the representation when compiled and when interpreted alike."""
    kernels = {}

    def call(G, *args):
        return kernels[type(G)](G, *args)

    @overload(call, strict=False)
    def choose(G, *args):
        kernel = kernels[G.instance_class]
        return lambda G, *args: kernel(G, *args)

    def register(representation):
        def add(kernel):
            kernels[representation] = kernel
            return kernel
        return add

    call.register = register
    call.kernels = kernels
    call.__name__ = signature.__name__
    call.__doc__ = signature.__doc__
    return call


@_operation
def _lift(G, v, w):
    """w <- Z' v."""


@_operation
def _margins(G, w, m):
    """m <- Z w."""


@_operation
def _softmax_pass(G, w, m, q, u):
    """m <- Z w, q <- softmax(-m), u <- Z' q; returns ln sum_i exp(-m_i)."""


@_operation
def _add_column(G, i, c, m):
    """m <- m + c G e_i."""


@_operation
def _square(G, v, w, m):
    """v' G v, given w = Z' v and m = G v."""


class _DenseGram(NamedTuple):
    """A symmetric (n, n) matrix, C-ordered, float64 or float32; products read its upper triangle alone."""

    matrix: np.ndarray

    def checked(self):
        """Itself in the layout that the kernels expect, or an error that says what is wrong."""
        matrix = self.matrix
        if matrix.ndim != 2 or not matrix.size or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "fiub":
            raise ValueError("G must be a square matrix of real numbers or a representation such as features() makes; "
                             f"got shape {matrix.shape} and dtype {matrix.dtype}")
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        # A symmetric matrix is its own transpose: a Fortran-ordered one needs no copy.
        matrix = matrix.T if matrix.flags.f_contiguous else np.ascontiguousarray(matrix)
        slack = 1e3 * float(np.finfo(matrix.dtype).eps) * float(np.abs(matrix.diagonal()).max())
        i, j, kind = _find_flaw(matrix, slack)
        if i >= 0:
            flaw = ("must be finite", "must be symmetric (take (G + G.T) / 2)", "must be positive semi-definite")[kind]
            a, b = self.matrix[i, j], self.matrix[j, i]
            raise ValueError(f"G {flaw}; row {i} has G[{i}, {j}] = {a}, G[{j}, {i}] = {b}, "
                             f"G[{i}, {i}] = {matrix[i, i]}, G[{j}, {j}] = {matrix[j, j]}")
        return _DenseGram(matrix)

    def shape(self):
        """(points, coordinates)."""
        return self.matrix.shape

    def diagonal(self):
        return self.matrix.diagonal().astype(np.float64)

    def resolution(self):
        """The smallest ||p||_G / sqrt(s), p in the simplex, that rounding leaves distinct from zero."""
        return 2.0 * math.sqrt(np.finfo(self.matrix.dtype).eps)

    def restrict(self, index):
        """G on some of the points, in the same representation."""
        return _DenseGram(np.ascontiguousarray(self.matrix[np.ix_(index, index)]))

    def dense(self):
        return self.matrix


class FeatureGram(NamedTuple):
    """G = Z Z' by its rows z_i = y_i x_i / scale, (n, d); made by `features`."""

    rows: np.ndarray

    def checked(self):
        return FeatureGram(np.ascontiguousarray(_real_array(self.rows, "G.rows", 2), dtype=np.float64))

    def shape(self):
        return self.rows.shape

    def diagonal(self):
        return np.einsum("ij,ij->i", self.rows, self.rows)

    def resolution(self):
        return 4.0 * _EPS

    def restrict(self, index):
        return FeatureGram(self.rows[index])

    def dense(self):
        return self.rows @ self.rows.T


def features(X, y, *, normalize="unit"):
    """G = Z Z' for the linear kernel, by its rows z_i = y_i x_i / scale; G itself is never formed.

    X (n, d), y (n,) labels +-1.  normalize="unit" divides x_i by ||x_i||, "max" by max_i ||x_i||, None by 1.
    A product reads Z twice (once inside `_softmax_pass`), a column once.  Raises as `gram` does.
    """
    X = _points(X)
    y = _labels(y, len(X))
    return FeatureGram(X * (y * _normalizers(np.einsum("ij,ij->i", X, X), normalize))[:, None])


@njit(cache=True)
def _find_flaw(matrix, slack):
    """First (i, j, kind) at which a matrix is not finite (0), not symmetric (1) or has a 2x2 minor below 0 (2)."""
    n = matrix.shape[0]
    for row in range(0, n, 64):  # tiles, for the sake of the mirrored entries
        for column in range(0, row + 1, 64):
            for i in range(row, min(row + 64, n)):
                for j in range(column, min(column + 64, i + 1)):
                    a, b = matrix[i, j], matrix[j, i]
                    if not (math.isfinite(a) and math.isfinite(b)):
                        return i, j, 0
                    if abs(a - b) > slack:
                        return i, j, 1
                    if a * a > matrix[i, i] * matrix[j, j] * (1.0 + 1e-6) + slack * slack or matrix[i, i] < 0.0:
                        return i, j, 2
    return -1, -1, 0


def _representation(G):
    """Check what a user passed as G and return (representation, s)."""
    # A compiled loop that comes from the on-disk cache does not start the threads of the parallel kernels
    # it calls, and crashes if nobody has; this does.
    get_num_threads()
    if type(G) not in _margins.kernels:
        G = _DenseGram(np.asarray(G))
    G = G.checked()
    scale = float(G.diagonal().max())
    if not (math.isfinite(scale) and scale > 0.0):
        raise ValueError(f"max_i G_ii is {scale:g}; it must be above 0 and finite, or no margin is defined")
    return G, scale


@njit(cache=True, fastmath=_FAST)
def _inner(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(cache=True, fastmath=_FAST)
def _softmax(m, q):
    """q <- softmax(-m); returns ln sum_i exp(-m_i)."""
    low = m.min()
    total = 0.0
    for i in range(m.size):
        q[i] = math.exp(low - m[i])
        total += q[i]
    for i in range(m.size):
        q[i] /= total
    return math.log(total) - low


# --- dense ---------------------------------------------------------------------------------------------

@njit(cache=True, fastmath=_FAST)
def _symmetric_rows(matrix, v, start, stop, out):
    """Add to ``out`` what rows start..stop-1 of the upper triangle contribute to G v.

    Four rows are read at once: each entry serves out_i and, mirrored, out_j, and the four sums hide the
    latency of the additions.
    """
    n = v.size
    i = start
    while i < stop:
        j = min(i + 4, n)
        for r in range(i, j):
            total = 0.0
            for k in range(i, j):
                total += matrix[min(r, k), max(r, k)] * v[k]
            out[r] += total
        if j < n:
            a, b, c, d = matrix[i, j:], matrix[i + 1, j:], matrix[i + 2, j:], matrix[i + 3, j:]
            va, vb, vc, vd = v[i], v[i + 1], v[i + 2], v[i + 3]
            right, tail = v[j:], out[j:]
            sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
            for k in range(right.size):
                x = right[k]
                sa += a[k] * x
                sb += b[k] * x
                sc += c[k] * x
                sd += d[k] * x
                tail[k] += a[k] * va + b[k] * vb + c[k] * vc + d[k] * vd
            out[i] += sa
            out[i + 1] += sb
            out[i + 2] += sc
            out[i + 3] += sd
        i = j


@njit(cache=True, parallel=True, fastmath=_FAST)
def _symmetric_product(matrix, v, out):
    """out <- G v, in parts of the triangle of equal area."""
    n = v.size
    parts = np.zeros((_PARTS, n))
    for part in prange(_PARTS):
        start = 4 * int(round(0.25 * n * (1.0 - math.sqrt(1.0 - part / _PARTS))))
        stop = 4 * int(round(0.25 * n * (1.0 - math.sqrt(1.0 - (part + 1) / _PARTS)))) if part + 1 < _PARTS else n
        _symmetric_rows(matrix, v, start, stop, parts[part])
    for i in range(n):
        out[i] = 0.0
        for part in range(_PARTS):
            out[i] += parts[part, i]


@_lift.register(_DenseGram)
@njit(cache=True)
def _dense_lift(G, v, w):
    w[:] = v


@_margins.register(_DenseGram)
@njit(cache=True)
def _dense_margins(G, w, m):
    if G.matrix.size < _SERIAL:
        m[:] = 0.0
        _symmetric_rows(G.matrix, w, 0, m.size, m)
    else:
        _symmetric_product(G.matrix, w, m)


@_softmax_pass.register(_DenseGram)
@njit(cache=True)
def _dense_softmax_pass(G, w, m, q, u):
    _dense_margins(G, w, m)
    log_total = _softmax(m, q)
    u[:] = q
    return log_total


@_add_column.register(_DenseGram)
@njit(cache=True, fastmath=_FAST)
def _dense_add_column(G, i, c, m):
    row = G.matrix[i]
    for k in range(m.size):
        m[k] += c * row[k]


@_square.register(_DenseGram)
@njit(cache=True)
def _dense_square(G, v, w, m):
    return _inner(v, m)


# --- features ------------------------------------------------------------------------------------------

@njit(cache=True, fastmath=_FAST)
def _four_dots(a, b, c, d, w):
    sa, sb, sc, sd = 0.0, 0.0, 0.0, 0.0
    for k in range(w.size):
        x = w[k]
        sa += a[k] * x
        sb += b[k] * x
        sc += c[k] * x
        sd += d[k] * x
    return sa, sb, sc, sd


@njit(cache=True, fastmath=_FAST)
def _add_four(a, b, c, d, va, vb, vc, vd, out):
    for k in range(out.size):
        out[k] += a[k] * va + b[k] * vb + c[k] * vc + d[k] * vd


@njit(cache=True)
def _part(n, part):
    """Start and stop of one of the parts of n rows; all but the last hold a multiple of four."""
    groups = n // 4
    stop = n if part == _PARTS - 1 else 4 * (groups * (part + 1) // _PARTS)
    return 4 * (groups * part // _PARTS), stop


@njit(cache=True, fastmath=_FAST)
def _add_row_dots_part(Z, w, c, m, i, stop):
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


@njit(cache=True, parallel=True)
def _add_row_dots_parallel(Z, w, c, m):
    for part in prange(_PARTS):
        start, stop = _part(Z.shape[0], part)
        _add_row_dots_part(Z, w, c, m, start, stop)


@njit(cache=True)
def _add_row_dots(Z, w, c, m):
    """m <- m + c Z w."""
    if Z.size < _SERIAL:
        _add_row_dots_part(Z, w, c, m, 0, m.size)
    else:
        _add_row_dots_parallel(Z, w, c, m)


@_margins.register(FeatureGram)
@njit(cache=True)
def _feature_margins(G, w, m):
    m[:] = 0.0
    _add_row_dots(G.rows, w, 1.0, m)


@_add_column.register(FeatureGram)
@njit(cache=True)
def _feature_add_column(G, i, c, m):
    _add_row_dots(G.rows, G.rows[i], c, m)


@njit(cache=True, fastmath=_FAST)
def _add_weighted_rows(Z, v, i, stop, out):
    """out <- out + sum_i v_i z_i over rows i..stop-1; rows of weight zero are not read."""
    while i + 4 <= stop:
        if v[i] != 0.0 or v[i + 1] != 0.0 or v[i + 2] != 0.0 or v[i + 3] != 0.0:
            _add_four(Z[i], Z[i + 1], Z[i + 2], Z[i + 3], v[i], v[i + 1], v[i + 2], v[i + 3], out)
        i += 4
    while i < stop:
        _add_four(Z[i], Z[i], Z[i], Z[i], v[i], 0.0, 0.0, 0.0, out)
        i += 1


@njit(cache=True, parallel=True)
def _weighted_rows_parallel(Z, v, u):
    parts = np.zeros((_PARTS, u.size))
    for part in prange(_PARTS):
        start, stop = _part(v.size, part)
        _add_weighted_rows(Z, v, start, stop, parts[part])
    for part in range(_PARTS):
        for k in range(u.size):
            u[k] += parts[part, k]


@_lift.register(FeatureGram)
@njit(cache=True)
def _feature_lift(G, v, w):
    w[:] = 0.0
    if G.rows.size < _SERIAL:
        _add_weighted_rows(G.rows, v, 0, v.size, w)
    else:
        _weighted_rows_parallel(G.rows, v, w)


@_square.register(FeatureGram)
@njit(cache=True)
def _feature_square(G, v, w, m):
    return _inner(w, w)


@njit(cache=True, fastmath=_FAST)
def _fused_part(Z, w, m, i, stop, out):
    """m_i <- <z_i, w> and out <- out + sum_i exp(low - m_i) z_i over rows i..stop-1, in one reading.

    Returns low, the least of these m_i; the sum is rescaled whenever the running minimum falls.
    """
    low = np.inf
    while i < stop:
        whole = i + 4 <= stop
        b, c, d = (i + 1, i + 2, i + 3) if whole else (i, i, i)
        ma, mb, mc, md = _four_dots(Z[i], Z[b], Z[c], Z[d], w)
        m[i], m[b], m[c], m[d] = ma, mb, mc, md
        least = min(min(ma, mb), min(mc, md))
        if least < low:
            if low < np.inf:
                shrink = math.exp(least - low)
                for k in range(out.size):
                    out[k] *= shrink
            low = least
        ea = math.exp(low - ma)
        eb, ec, ed = 0.0, 0.0, 0.0
        if whole:
            eb, ec, ed = math.exp(low - mb), math.exp(low - mc), math.exp(low - md)
        if ea + eb + ec + ed > 0.0:
            _add_four(Z[i], Z[b], Z[c], Z[d], ea, eb, ec, ed, out)
        i += 4 if whole else 1
    return low


@njit(cache=True, parallel=True)
def _fused_parallel(Z, w, m, u):
    """As `_fused_part` over all rows, with the sum in u."""
    parts, lows = np.zeros((_PARTS, u.size)), np.empty(_PARTS)
    for part in prange(_PARTS):
        start, stop = _part(m.size, part)
        lows[part] = _fused_part(Z, w, m, start, stop, parts[part])
    low = lows.min()
    for part in range(_PARTS):
        shrink = math.exp(low - lows[part])
        for k in range(u.size):
            u[k] += shrink * parts[part, k]


@_softmax_pass.register(FeatureGram)
@njit(cache=True)
def _feature_softmax_pass(G, w, m, q, u):
    u[:] = 0.0
    if G.rows.size < _SERIAL:
        _fused_part(G.rows, w, m, 0, m.size, u)
    else:
        _fused_parallel(G.rows, w, m, u)
    log_total = _softmax(m, q)
    largest = q.max()  # that of the least margin, whose row has weight 1 in u so far
    for k in range(u.size):
        u[k] *= largest
    return log_total


# ======================================================================================================
# PROX MAPS OF THE SIMPLEX
# ======================================================================================================

@njit(cache=True)
def _project_simplex(v, out):
    """out <- argmin_{p in Delta} ||p - v||; entries of v may be -infinity, its maximum must be finite.

    Condat's filter (Mathematical Programming 158, 2016) keeps the entries above a threshold that only
    rises, then Michelot's rounds end on the exact support.  All is relative to the maximum, so that nothing
    cancels at large |v|.
    """
    n = v.size
    top = v.max()
    kept = np.empty(n)  # kept values in front, postponed ones at the back
    count, back = 1, n
    kept[0] = max(v[0] - top, -2.0)  # -2 is out of reach already, and finite
    tau = kept[0] - 1.0
    for i in range(1, n):
        x = v[i] - top
        if x > tau:
            tau += (x - tau) / (count + 1)
            if tau <= x - 1.0:  # x alone reaches the sum: the ones kept so far can hardly matter
                for k in range(count - 1, -1, -1):  # downwards: the two ends of ``kept`` may overlap
                    back -= 1
                    kept[back] = kept[k]
                count = 0
                tau = x - 1.0
            kept[count] = x
            count += 1
    for k in range(back, n):
        x = kept[k]
        if x > tau:
            kept[count] = x
            count += 1
            tau += (x - tau) / count
    while True:
        total = 0.0
        for k in range(count):
            total += kept[k]
        tau = (total - 1.0) / count
        left = 0
        for k in range(count):
            if kept[k] > tau:
                kept[left] = kept[k]
                left += 1
        if left == count:
            break
        count = left
    for i in range(n):
        out[i] = max((v[i] - top) - tau, 0.0)


@njit(cache=True)
def _fall(low, g, mu):
    """(low - g) / mu, also where the difference of two finite numbers overflows."""
    difference = low - g
    return difference / mu if difference > -np.inf else 2.0 * ((0.5 * low - 0.5 * g) / mu)


@njit(cache=True)
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


@njit(cache=True)
def _l2_prox(g, mu, q, out):
    """out <- project_simplex(q - g / mu); g is shifted first, so that g / mu cannot overflow upwards."""
    low = g.min()
    for i in range(g.size):
        out[i] = q[i] + _fall(low, g[i], mu)
    _project_simplex(out, out)


def project_simplex(v):
    """argmin_{p in Delta} ||p - v||_2, exactly, for v (n,); O(n) expected.  Callable inside njit as well.

    Raises ValueError where v is empty or not finite (from Python; compiled callers vouch for that).
    """
    v = _real_array(v, "v", 1).astype(np.float64)
    out = np.empty(v.size)
    _project_simplex(v, out)
    return out


def entropy_prox(g, mu, q=None):
    """argmin_{p in Delta} <g, p> + mu KL(p || q):  p_i proportional to q_i exp(-g_i / mu).

    g (n,), mu > 0, q (n,) in the simplex (None: uniform, so that p = softmax(-g / mu)).  Exact at any scale:
    nothing overflows, and mu -> 0 gives q restricted to the least g_i.  Callable inside njit as well.
    Raises ValueError for non-finite g, mu <= 0, or a q that is not in the simplex.
    """
    g = _real_array(g, "g", 1).astype(np.float64)
    mu = _number(mu, "mu")
    q = np.full(g.size, 1.0 / g.size) if q is None else _distribution(q, "q", g.size)
    out = np.empty(g.size)
    _entropy_prox(g, mu, q, out)
    return out


def l2_prox(g, mu, q):
    """argmin_{p in Delta} <g, p> + (mu/2) ||p - q||^2  =  project_simplex(q - g / mu).

    g (n,), mu > 0, q (n,) any finite centre.  Exact at any scale; callable inside njit as well.
    Raises ValueError for non-finite g or q, unequal lengths, mu <= 0.
    """
    g = _real_array(g, "g", 1).astype(np.float64)
    q = _real_array(q, "q", 1).astype(np.float64)
    if q.size != g.size:
        raise ValueError(f"g has {g.size} entries and q has {q.size}; they must agree")
    mu = _number(mu, "mu")
    out = np.empty(g.size)
    _l2_prox(g, mu, q, out)
    return out


@overload(project_simplex)
def _project_simplex_compiled(v):
    def project(v):
        out = np.empty(v.size)
        _project_simplex(v, out)
        return out
    return project


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


@overload(l2_prox)
def _l2_prox_compiled(g, mu, q):
    def prox(g, mu, q):
        out = np.empty(g.size)
        _l2_prox(g, mu, q, out)
        return out
    return prox


def _distribution(q, name, n):
    """Check that q is a point of the simplex of R^n, up to rounding."""
    q = _real_array(q, name, 1)
    slack = 1e-9 if q.dtype == np.float64 else 1e-5
    q = q.astype(np.float64)
    if q.size != n or q.min() < 0.0 or abs(q.sum() - 1.0) > slack:
        raise ValueError(f"{name} must be {n} non-negative weights that sum to 1; "
                         f"got {q.size} with minimum {q.min():g} and sum {q.sum():.12g}")
    return q


# ======================================================================================================
# CERTIFICATE AND DRIVER
# ======================================================================================================

_RUNNING, _SEPARATED, _INFEASIBLE, _EXHAUSTED = range(4)
_STATUS = ("running", "separated", "infeasible", "max_iter")


def _square_and_margins(G, scale, v):
    """(v' G v, G v) for ||v||_1 = 1.  Raises ValueError where the square is negative beyond rounding."""
    n, dimension = G.shape()
    w, m = np.empty(dimension), np.empty(n)
    _lift(G, v, w)
    _margins(G, w, m)
    square = _square(G, v, w, m)
    if square < -_rounding(G, scale):
        raise ValueError(f"G is not positive semi-definite: v'Gv = {square:g} at a v with ||v||_1 = 1")
    return max(square, 0.0), m


def _rounding(G, scale):
    """A bound on the error of v' G v for ||v||_1 = 1."""
    return 2.0 * G.shape()[0] * G.resolution() ** 2 * scale


def _interval(G, scale, alpha, p):
    """lower and upper of `certificate`, for checked input.  Two products, one where ``alpha is p``."""
    square, m = _square_and_margins(G, scale, p / p.sum())
    upper = math.sqrt(square)
    size = np.abs(alpha).sum()
    if alpha is not p and size > 0.0:
        square, m = _square_and_margins(G, scale, alpha / size)
    if size == 0.0 or square <= G.resolution() ** 2 * scale:
        return -math.sqrt(scale), upper
    lower = float(m.min()) / math.sqrt(square)
    slack = 4.0 * sum(G.shape()) * max(_EPS, G.resolution() ** 2) * scale / math.sqrt(square)
    if lower > math.sqrt(upper**2 + 8.0 * _rounding(G, scale)) + slack:
        raise ValueError(f"G is not positive semi-definite: weak duality fails, {lower:g} <= rho <= {upper:g}")
    return min(lower, upper), upper


def certificate(G, alpha, p):
    """The certified interval: lower = min_i (G alpha)_i / ||alpha||_G  <=  rho  <=  ||p||_G = upper.

    alpha (n,), any weights; p (n,), a point of the simplex.  Two products, independent of any algorithm.

    Rounding.  A product over n points carries a relative error of at most n eps (eps = 2.2e-16; 1.2e-7 is
    the rounding of a float32 G's own entries), in practice a few eps.  With a dense G, upper^2 = p'Gp is
    off by a few eps s, so relative to rho by about eps s / rho^2, and an upper below 3e-8 sqrt(s) (float32:
    7e-4 sqrt(s)) cannot be told from zero.  With features, upper = ||Z'p|| is off by a few eps sqrt(s).  For
    ||alpha||_1 = 1, lower is off by a few eps s / ||alpha||_G, and with a dense G by a few |lower| eps s /
    ||alpha||_G^2 more; where ||alpha||_G cannot be told from zero, lower is -sqrt(s), which always holds.
    At an optimum, where both ends agree to rounding, lower is cut at upper.

    Raises ValueError for bad shapes or values, or where G turns out not to be positive semi-definite.
    """
    G, scale = _representation(G)
    n = G.shape()[0]
    alpha = _real_array(alpha, "alpha", 1).astype(np.float64)
    if alpha.size != n:
        raise ValueError(f"alpha has {alpha.size} weights and G has {n} points; they must agree")
    return _interval(G, scale, alpha, _distribution(p, "p", n))


def _weights(alpha):
    """p = alpha / sum alpha for alpha >= 0; uniform where alpha = 0."""
    total = alpha.sum()
    return alpha / total if total > 0.0 else np.full(alpha.size, 1.0 / alpha.size)


def _checkpoints(max_iter, trace_at):
    """Iterations at which a certificate is computed: 16 a decade or trace_at, with 0 and max_iter."""
    if trace_at is None:
        decades = math.log10(max(max_iter, 1))
        points = np.unique(np.round(np.logspace(0, decades, math.ceil(16 * decades) + 1)).astype(np.int64))
    else:
        points = np.unique(np.array([_count(k, "trace_at") for k in np.ravel(trace_at)], dtype=np.int64))
    return np.unique(np.concatenate(([0], points[points <= max_iter], [max_iter])))


def _drive(interval, advance, solution, max_iter, tol, trace_at, keep_iterates, callback, *,
           products=lambda k: float(k), spent=0.0, eps=0.0):
    """Take an algorithm from checkpoint to checkpoint, certify each, and wrap up the Result.

    interval(alpha, p)             (lower, upper), by fresh products
    advance(k, stop) -> (k, flag)  runs the compiled loop from iteration k to ``stop`` at the latest
    solution() -> (alpha, p)       the state's primal and dual point, new arrays
    products(k)                    G-vector products that k iterations cost
    spent                          seconds of set-up before iteration 0
    eps                            ||p||_G at or below which the status is "infeasible"

    The loop is entered for about 0.2 s at a time, so that Ctrl-C is answered; its state makes the result
    independent of where it was cut.
    """
    max_iter = _count(max_iter, "max_iter")
    tol = None if tol is None else _number(tol, "tol")
    rows, iterates = [], []
    seconds, steps = spent, 1
    k, flag = advance(0, 0)  # compiles, outside the clock
    for checkpoint in _checkpoints(max_iter, trace_at):
        while k < checkpoint and flag == _RUNNING:
            begin = time.perf_counter()
            k, flag = advance(k, min(checkpoint, k + steps))
            elapsed = time.perf_counter() - begin
            seconds += elapsed
            steps = max(1, 2 * steps if elapsed < 0.1 else steps // 2 if elapsed > 0.4 else steps)
        alpha, p = solution()
        if not (np.isfinite(alpha).all() and np.isfinite(p).all()):
            raise FloatingPointError(f"the iterates overflowed by iteration {k}; use a smaller step")
        lower, upper = interval(alpha, p)
        rows.append((k, products(k), seconds, lower, upper))
        if keep_iterates:
            iterates.append(alpha)
        status = _STATUS[flag]
        if upper <= eps and lower <= 0.0:
            status = "infeasible"
        elif tol is not None and upper - lower <= tol * upper and flag != _SEPARATED:
            status = "certified"
        elif flag == _RUNNING and checkpoint == max_iter:
            status = "max_iter"
        if callback is not None or status != "running":
            result = Result(alpha, p.copy() if p is alpha else p, lower, upper, status, k, np.array(rows, dtype=_TRACE),
                            np.array(iterates) if keep_iterates else None)
            if callback is not None:
                callback(result)
            if status != "running":
                return result


# ======================================================================================================
# RAMDAS14: PERCEPTRONS, SMOOTHED PERCEPTRONS, VON NEUMANN
# ======================================================================================================

@njit(cache=True)
def _is_separated(G, alpha, w, m):
    """Whether G alpha > 0.  m follows a recurrence; where it says so, a fresh product (not counted) confirms it."""
    if m.min() <= 0.0:
        return False
    _lift(G, alpha, w)
    _margins(G, w, m)
    return m.min() > 0.0


@njit(cache=True)
def _fresh_norm(G, p, w, m):
    """||p||_G by a product (not counted), with w = Z'p and m = G p made anew: it confirms what recurrences say."""
    _lift(G, p, w)
    _margins(G, w, m)
    return math.sqrt(max(_square(G, p, w, m), 0.0))


_CYCLIC, _WORST = range(2)


@njit(cache=True)
def _perceptron_loop(G, k, stop, rule, position, alpha, w, m):
    """position[0] is the row from which the cyclic rule looks on."""
    n = m.size
    while True:
        if _is_separated(G, alpha, w, m):
            return k, _SEPARATED
        if k >= stop:
            return k, _RUNNING
        if rule == _WORST:
            i = np.argmin(m)
        else:
            i = position[0]
            while m[i] > 0.0:
                i = (i + 1) % n
            position[0] = (i + 1) % n
        alpha[i] += 1.0
        _add_column(G, i, 1.0, m)
        k += 1


def perceptron(G, *, max_iter=100_000, rule="cyclic", tol=None, trace_at=None, keep_iterates=False, callback=None,
               seed=None):
    """The perceptron (Algorithm 1): while some (G alpha)_i <= 0, alpha_i <- alpha_i + 1.

    rule "cyclic" takes the next such row in cyclic order, "worst" the one of least margin.  Stops as
    "separated" after at most max_i G_ii / rho^2 updates (Block 1962, Novikoff 1962).  p = alpha / sum alpha.
    One column per iteration.  Run options and errors as in `gradient_descent`.
    """
    rule = {"cyclic": _CYCLIC, "worst": _WORST}[_choice(rule, "rule", ("cyclic", "worst"))]
    G, scale = _representation(G)
    n, dimension = G.shape()
    alpha, m = np.zeros((2, n))
    w, position = np.zeros(dimension), np.zeros(1, dtype=np.int64)

    def advance(k, stop):
        return _perceptron_loop(G, k, stop, rule, position, alpha, w, m)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), _weights(alpha)), max_iter, tol,
                  trace_at, keep_iterates, callback, products=lambda k: k / n)


@njit(cache=True)
def _nkp_loop(G, k, stop, halts, alpha, w, m):
    while True:
        if halts and _is_separated(G, alpha, w, m):
            return k, _SEPARATED
        if k >= stop:
            return k, _RUNNING
        i = np.argmin(m)
        theta = 1.0 / (k + 1.0)
        for j in range(m.size):
            alpha[j] *= 1.0 - theta
            m[j] *= 1.0 - theta
        alpha[i] += theta
        _add_column(G, i, theta, m)
        k += 1


def nkp(G, *, max_iter=100_000, stop="separated", tol=None, trace_at=None, keep_iterates=False, callback=None,
        seed=None):
    """Normalized kernel perceptron (Algorithms 2 and 3): alpha <- (1 - theta_k) alpha + theta_k e_i with
    i = argmin_i (G alpha)_i, theta_k = 1/(k+1), alpha_0 = 0.

    A subgradient method for L(alpha) = max_p -<alpha, p>_G + ||alpha||_G^2 / 2, whose minimum is -rho^2/2
    (Lemma 3).  stop="separated" ends at G alpha > 0, within s/rho^2 iterations; stop=None goes on towards
    the maximum margin.  p = alpha.  One column per iteration.  Run options and errors as in `gradient_descent`.
    """
    if stop is not None:
        _choice(stop, "stop", ("separated",))
    G, scale = _representation(G)
    n, dimension = G.shape()
    alpha, m = np.zeros((2, n))
    w, halts = np.zeros(dimension), stop is not None

    def advance(k, stop):
        return _nkp_loop(G, k, stop, halts, alpha, w, m)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), _weights(alpha)), max_iter, tol,
                  trace_at, keep_iterates, callback, products=lambda k: k / n)


@njit(cache=True)
def _von_neumann_loop(G, k, stop, eps, diagonal, p, w, m):
    while True:
        square = _inner(p, m)
        if square <= eps * eps and _fresh_norm(G, p, w, m) <= eps:
            return k, _INFEASIBLE
        if k >= stop:
            return k, _RUNNING
        j = np.argmin(m)
        gain = square - m[j]
        move = min(gain / (gain - m[j] + diagonal[j]), 1.0) if gain > 0.0 else 0.0
        for i in range(p.size):
            p[i] *= 1.0 - move
            m[i] *= 1.0 - move
        p[j] += move
        _add_column(G, j, move, m)
        k += 1


def von_neumann(G, *, eps, max_iter=100_000, tol=None, trace_at=None, keep_iterates=False, callback=None, seed=None):
    """Normalized von Neumann algorithm (Algorithm 5), Frank-Wolfe for min_p ||p||_G: p_0 = 1/n;
    p <- (1 - lambda) p + lambda e_j with j = argmin_j (Gp)_j and lambda in [0, 1] by exact line search.

    Stops as "infeasible" at ||p||_G <= eps, within s/eps^2 iterations if rho <= 0 (Dantzig 1992).  alpha = p.
    One column per iteration, one product at the start.  Run options and errors as in `gradient_descent`.
    """
    eps = _number(eps, "eps")
    G, scale = _representation(G)
    n, dimension = G.shape()
    p, w, diagonal = np.full(n, 1.0 / n), np.zeros(dimension), G.diagonal()
    _, m = _square_and_margins(G, scale, p)

    def advance(k, stop):
        return _von_neumann_loop(G, k, stop, eps, diagonal, p, w, m)

    def solution():
        alpha = p.copy()
        return alpha, alpha

    return _drive(partial(_interval, G, scale), advance, solution, max_iter, tol, trace_at, keep_iterates, callback,
                  products=lambda k: 1.0 + k / n)


_ENTROPY, _L2 = range(2)


@njit(cache=True)
def _smoothed_prox(prox, m, mu, center, q):
    if prox == _ENTROPY:
        _entropy_prox(m, mu, center, q)
    else:
        _l2_prox(m, mu, center, q)


@njit(cache=True)
def _smoothed_loop(G, k, stop, prox, mu0, gamma, eps, inner, delta, center, alpha, p, q, m, gp, gq, wp, wq):
    """SNKP, SNKPVN and ISNKPVN: m = G alpha, gp = G p and gq = G q obey the recurrences of alpha, p and q.

    q = p_mu(alpha) for the current mu and alpha.  inner[0] counts the iterations since the last restart.
    At ||p||_G < delta[0] it stops, or, while gamma > 0 and delta[0] >= eps, restarts from center = p.
    """
    while True:
        if _is_separated(G, alpha, wq, m):
            return k, _SEPARATED
        norm = math.sqrt(max(_square(G, p, wp, gp), 0.0))
        restart = norm < delta[0]
        if restart and (gamma == 0.0 or delta[0] < eps):
            if _fresh_norm(G, p, wp, gp) < delta[0]:
                return k, _INFEASIBLE
            restart = False
        if k >= stop:
            return k, _RUNNING
        theta = 2.0 / (inner[0] + 3.0)
        if restart:
            theta = 1.0
            inner[0] = -1
            delta[0] = max(norm, eps) / gamma
            center[:] = p
            alpha[:] = p
            m[:] = gp
        else:
            for i in range(m.size):
                alpha[i] = (1.0 - theta) * (alpha[i] + theta * p[i]) + theta * theta * q[i]
                m[i] = (1.0 - theta) * (m[i] + theta * gp[i]) + theta * theta * gq[i]
        inner[0] += 1
        _smoothed_prox(prox, m, 2.0 * mu0 / ((inner[0] + 1.0) * (inner[0] + 2.0)), center, q)
        _lift(G, q, wq)
        _margins(G, wq, gq)
        for i in range(m.size):
            p[i] = (1.0 - theta) * p[i] + theta * q[i]
            gp[i] = (1.0 - theta) * gp[i] + theta * gq[i]
        for i in range(wp.size):
            wp[i] = (1.0 - theta) * wp[i] + theta * wq[i]
        k += 1


def _smoothed(G, q, prox, gamma, eps, delta, run):
    """The run behind snkp, snkpvn and isnkpvn; delta None starts at ||q||_G / gamma."""
    G, scale = _representation(G)
    n, dimension = G.shape()
    center = np.full(n, 1.0 / n) if q is None else _distribution(q, "q", n)
    mu0 = 2.0 * scale * (1.0 if prox == _ENTROPY else n)
    square, m = _square_and_margins(G, scale, center)
    alpha, p = center.copy(), np.empty(n)
    _smoothed_prox(prox, m, mu0, center, p)
    wp, gp = np.empty(dimension), np.empty(n)
    _lift(G, p, wp)
    _margins(G, wp, gp)
    q, gq, wq = p.copy(), gp.copy(), wp.copy()
    inner = np.zeros(1, dtype=np.int64)
    delta = np.array([max(math.sqrt(square), eps) / gamma if delta is None else delta])

    def advance(k, stop):
        return _smoothed_loop(G, k, stop, prox, mu0, gamma, eps, inner, delta, center, alpha, p, q, m, gp, gq, wp, wq)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), p.copy()), *run,
                  products=lambda k: k + 2.0)


def snkp(G, *, max_iter=10_000, tol=None, trace_at=None, keep_iterates=False, callback=None, seed=None):
    """Smoothed normalized kernel perceptron (Algorithm 4): alpha_0 = 1/n, mu_0 = 2s, p_mu(alpha) =
    entropy_prox(G alpha, mu), p_0 = p_{mu_0}(alpha_0); with theta_k = 2/(k+3)

        alpha <- (1 - theta)(alpha + theta p) + theta^2 p_mu(alpha),  mu <- (1 - theta) mu,
        p     <- (1 - theta) p + theta p_mu(alpha)   at the new mu and alpha;   mu_k = 4s/((k+1)(k+2)).

    Stops as "separated" at G alpha > 0, within 2 sqrt(2 s ln n)/rho iterations (Theorem 1).  Along the run
    L(alpha_k) - mu_k ln n <= L_{mu_k}(alpha_k) <= -||p_k||_G^2 / 2 (Lemmas 4 and 5).  One product per
    iteration, two at the start.  Run options and errors as in `gradient_descent`.
    """
    return _smoothed(G, None, _ENTROPY, 0.0, 0.0, 0.0, (max_iter, tol, trace_at, keep_iterates, callback))


def snkpvn(G, *, delta, q=None, max_iter=10_000, tol=None, trace_at=None, keep_iterates=False, callback=None,
           seed=None):
    """Smoothed normalized kernel perceptron - von Neumann (Algorithm 6): `snkp` with alpha_0 = q (default 1/n),
    mu_0 = 2 n s and the prox p_mu(alpha) = l2_prox(G alpha, mu, q).

    Stops as "separated" at G alpha > 0 or as "infeasible" at ||p||_G < delta.  Along the run
    -||p_k||_G^2 / 2 >= L^q_{mu_k}(alpha_k) >= L(alpha_k) - mu_k (Lemma 8) and, if rho <= 0,
    ||p_k||_G <= (2 sqrt(2 n s)/(k+1)) min(1, ||q||_G / |rho|) (Lemma 9; the paper's last line drops a sqrt 2).
    One product per iteration, two at the start.  Raises ValueError for a q outside the simplex, delta <= 0;
    other errors and run options as in `gradient_descent`.
    """
    return _smoothed(G, q, _L2, 0.0, 0.0, _number(delta, "delta"),
                     (max_iter, tol, trace_at, keep_iterates, callback))


def isnkpvn(G, *, eps, gamma=2.0, prox="l2", max_iter=100_000, tol=None, trace_at=None, keep_iterates=False,
            callback=None, seed=None):
    """Iterated SNKPVN (Algorithm 7): q_0 = 1/n; delta_t = max(||q_t||_G, eps) / gamma; q_{t+1} = SNKPVN(q_t, delta_t).

    The paper has no eps in delta_t; it matters only for a q_t that is a certificate already.

    Stops as "separated", or as "infeasible" once delta_t < eps, with ||p||_G < eps.  For s = 1 it takes at most
    O(sqrt(n)/rho log(1/rho)) iterations if rho > eps, and O(min(sqrt(n)/eps, sqrt(n)/|rho|) log(1/eps)) if
    rho <= 0 or eps > rho (Theorem 4).
    prox="entropy" is the paper's open question, an experiment without a guarantee: the prox is KL(p || q_t)
    with mu_0 = 2s.  Iterations are summed over the calls and a restart counts as one: one product per
    iteration, two at the start.  Raises ValueError for eps <= 0, gamma <= 1 or an unknown prox; other errors
    and run options as in `gradient_descent`.
    """
    prox = {"l2": _L2, "entropy": _ENTROPY}[_choice(prox, "prox", ("l2", "entropy"))]
    return _smoothed(G, None, prox, _number(gamma, "gamma", 1.0), _number(eps, "eps"), None,
                     (max_iter, tol, trace_at, keep_iterates, callback))


@njit(cache=True)
def _winnow_loop(Z, k, stop, eta, score, w, hits, m):
    """score = -eta * (sum of the rows taken), w = softmax(-score), m = Z w."""
    while True:
        if m.min() > 0.0:
            return k, _SEPARATED
        if k >= stop:
            return k, _RUNNING
        i = np.argmin(m)
        hits[i] += 1.0
        for j in range(w.size):
            score[j] -= eta * Z[i, j]
        _softmax(score, w)
        m[:] = 0.0
        _add_row_dots(Z, w, 1.0, m)
        k += 1


def winnow(Z, *, eta, max_iter=100_000, tol=None, trace_at=None, keep_iterates=False, callback=None, seed=None):
    """Winnow (Littlestone 1991; ramdas14, section 2.2): multiplicative weights for the l1-margin

        rho_1 = max_{w in Delta_d} min_i (Z w)_i  =  min_{p in Delta_n} max_j (Z'p)_j

    of signed rows z_i = y_i x_i, each scaled by ||x_i||_inf here.  While some (Zw)_i <= 0: w_j <- w_j
    exp(eta z_ij) / sum with i of least margin.  Stops as "separated"; at most 2 ln(d)/rho_1^2 updates with
    eta = rho_1 (the paper's ln(n)/rho_1^2 up to the constant; n there is the dimension).

    Z (n, d).  In the result alpha is w, (d,), p counts the rows taken, and lower = min_i (Zw)_i <= rho_1 <=
    max_j (Z'p)_j = upper; upper <= 0 ends it as "infeasible".  An iteration reads Z once and counts as one product.
    Raises ValueError for a zero row or eta <= 0; other errors and run options as in `gradient_descent`.
    """
    Z = _points(Z, "Z")
    eta = _number(eta, "eta")
    size = np.abs(Z).max(axis=1)
    if size.min() == 0.0:
        raise ValueError(f"row {np.argmin(size)} of Z is zero; it cannot be scaled by its largest entry")
    Z = Z / size[:, None]
    n, d = Z.shape
    get_num_threads()  # as in _representation
    score, w, hits = np.zeros(d), np.full(d, 1.0 / d), np.zeros(n)
    m = Z @ w

    def interval(alpha, p):
        return float((Z @ alpha).min()), float((p @ Z).max())

    def advance(k, stop):
        return _winnow_loop(Z, k, stop, eta, score, w, hits, m)

    return _drive(interval, advance, lambda: (w.copy(), _weights(hits)), max_iter, tol, trace_at, keep_iterates,
                  callback)


# ======================================================================================================
# JI21: MARGIN MAXIMIZATION BY DUAL ACCELERATION
# ======================================================================================================

_EXP, _LOGISTIC = range(2)
_RISK, _CONSTANT, _SQRT = range(3)


@njit(cache=True)
def _logistic_weights(m, q):
    """q <- grad psi(-m) for psi(xi) = l^{-1}(sum_i l(xi_i)), l(z) = ln(1 + e^z); returns ln l'(psi(-m)).

    l'(psi) = 1 - exp(-sum l).  From margins of 37 on, l(z) = e^z to rounding, and q is the softmax.
    """
    if m.min() > 37.0:
        return _softmax(m, q)
    total = 0.0
    for i in range(m.size):
        total += max(-m[i], 0.0) + math.log1p(math.exp(-abs(m[i])))
    slope = -math.expm1(-total)
    for i in range(m.size):
        small = math.exp(-abs(m[i]))
        q[i] = (small if m[i] > 0.0 else 1.0) / ((1.0 + small) * slope)
    return math.log(slope)


@njit(cache=True)
def _dual_pass(G, w, loss, m, q, u):
    """m <- Z w, q <- grad psi(-m), u <- Z' q, one product; returns ln l'(psi(-m)), so that l'(-m_i) = q_i l'(psi)."""
    if loss == _EXP:
        return _softmax_pass(G, w, m, q, u)
    _margins(G, w, m)
    log_slope = _logistic_weights(m, q)
    _lift(G, q, u)
    return log_slope


@njit(cache=True)
def _gradient_loop(G, k, stop, loss, schedule, step, alpha, w, m, q, u):
    """alpha <- alpha + theta_k q_k and w = Z' alpha alike, until iteration ``stop``."""
    while k < stop:
        log_slope = _dual_pass(G, w, loss, m, q, u)
        theta = step
        if schedule == _RISK:
            theta *= math.exp(min(log_slope, 300.0)) / m.size
        elif schedule == _SQRT:
            theta /= math.sqrt(k + 1.0)
        for i in range(alpha.size):
            alpha[i] += theta * q[i]
        for i in range(w.size):
            w[i] += theta * u[i]
        k += 1
    return k, _RUNNING


def _descend(G, loss, schedule, step, run):
    """The run behind gradient_descent and normalized_gradient_descent."""
    G, scale = _representation(G)
    n, dimension = G.shape()
    step = _number(step, "step") / scale
    alpha, m, q = np.zeros((3, n))
    w, u = np.zeros((2, dimension))

    def advance(k, stop):
        return _gradient_loop(G, k, stop, loss, schedule, step, alpha, w, m, q, u)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), _weights(alpha)), *run)


def gradient_descent(G, *, max_iter=1000, step=1.0, loss="exp", tol=None, trace_at=None, keep_iterates=False,
                     callback=None, seed=None):
    """Gradient descent on the empirical risk R(w) = (1/n) sum_i l(-m_i), m = G alpha:
    alpha_i <- alpha_i + (step/s) l'(-m_i) / n.

    loss "exp" has l(z) = e^z, "logistic" has l(z) = ln(1 + e^z).  Weights are kept on a log scale, and a
    gradient longer than e^300 is cut to it, so nothing overflows.  The margin grows towards rho at the rate
    1/ln t (Soudry et al. 2018).  p = alpha / sum alpha.  One product per iteration.

    Run options, common to all algorithms:
    max_iter       updates at most
    tol            stop as "certified" at the first checkpoint with upper - lower <= tol * upper
    trace_at       iterations to certify and trace; by default 16 a decade.  0 and the last are always in
    keep_iterates  keep alpha at every checkpoint, in Result.iterates
    callback       called with the partial Result (status "running" until the last) at every checkpoint
    seed           for the algorithms that sample; the others are deterministic and ignore it
    Raises ValueError (TypeError) naming the argument: G not finite, square, symmetric, positive
    semi-definite where that shows, or zero; parameters out of range.  FloatingPointError if iterates overflow.
    Source: ji21, section 3.1.
    """
    loss = (_EXP, _LOGISTIC)[("exp", "logistic").index(_choice(loss, "loss", ("exp", "logistic")))]
    return _descend(G, loss, _RISK, step, (max_iter, tol, trace_at, keep_iterates, callback))


def normalized_gradient_descent(G, *, max_iter=1000, step=1.0, schedule="constant", tol=None, trace_at=None,
                                keep_iterates=False, callback=None, seed=None):
    """Gradient descent on the exponential risk with the gradient divided by the risk:
    alpha <- alpha + theta_t q_t, q_t = softmax(-G alpha).

    schedule "constant": theta_t = step/s, margin rate 1/t (Ji & Telgarsky 2019); "sqrt": theta_t =
    (step/s) / sqrt(t + 1), rate ln t / sqrt t (Nacson et al. 2018).  It is mirror descent with the entropy
    on the dual.  p = alpha / sum alpha.  One product per iteration.  Run options and errors as in
    `gradient_descent`.  Source: ji21, section 3.1.
    """
    schedule = {"constant": _CONSTANT, "sqrt": _SQRT}[_choice(schedule, "schedule", ("constant", "sqrt"))]
    return _descend(G, _EXP, schedule, step, (max_iter, tol, trace_at, keep_iterates, callback))


@njit(cache=True)
def _momentum_step(x, g, q, beta, step):
    """g <- beta (g + q), x <- x + step (g + q)."""
    for i in range(x.size):
        g[i] = beta * (g[i] + q[i])
        x[i] += step * (g[i] + q[i])


@njit(cache=True)
def _momentum_loop(G, k, stop, loss, step, alpha, g, q, w, gw, u, m):
    """(g, q) are weights, (gw, u) = (Z' g, Z' q) their coordinates; q belongs to the current w."""
    while k < stop:
        beta = k / (k + 1.0)
        _momentum_step(alpha, g, q, beta, step)
        _momentum_step(w, gw, u, beta, step)
        _dual_pass(G, w, loss, m, q, u)
        k += 1
    return k, _RUNNING


def momentum(G, *, max_iter=1000, loss="exp", tol=None, trace_at=None, keep_iterates=False, callback=None,
             seed=None):
    """Margin maximization by momentum, which is Nesterov's method on the dual (ji21, Algorithm 1):

        g_t = beta_t (g_{t-1} + Z' q_t),   w_{t+1} = w_t + theta (g_t + Z' q_t),   q_{t+1} = softmax(-Z w_{t+1})

    with w_0 = g_{-1} = 0, q_0 = 1/n, beta_t = t/(t+1), theta = 1/s.  p is the dual iterate mu_t, Z' mu_t = 2 g_t/t.

    Guarantees (Theorem 3.1), rho in units of sqrt(s):
        gamma(w_t) >= rho - 4 (1 + ln n) (1 + 2 ln(t+1)) / (rho (t+1)^2)   on separable data
        rho+^2 <= ||mu_t||_G^2 <= rho+^2 + 8 ln(n) / (t+1)^2               always
    loss="logistic" takes q_t = grad psi, psi = l^{-1}(sum l), l(z) = ln(1 + e^z), and theta = 1/(n s); q_t is
    then not normalised and mu_t is divided by its sum.  One product per iteration.  Run options and errors
    as in `gradient_descent`.
    """
    _choice(loss, "loss", ("exp", "logistic"))
    G, scale = _representation(G)
    n, dimension = G.shape()
    step = 1.0 / scale if loss == "exp" else 1.0 / (n * scale)
    loss = _EXP if loss == "exp" else _LOGISTIC
    alpha, g, q, m = np.zeros((4, n))
    w, gw, u = np.zeros((3, dimension))
    (_softmax(m, q) if loss == _EXP else _logistic_weights(m, q))  # at w = 0 all margins are 0
    _lift(G, q, u)

    def advance(k, stop):
        return _momentum_loop(G, k, stop, loss, step, alpha, g, q, w, gw, u, m)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), _weights(g + q)), max_iter, tol,
                  trace_at, keep_iterates, callback)


@njit(cache=True)
def _batch_perceptron_loop(G, k, stop, step, diagonal, alpha, total, hits, m, square):
    """square[0] = ||w||^2; ``total`` is the sum of the iterates, ``hits`` counts the rows taken."""
    while k < stop:
        i = np.argmin(m)
        eta = step / math.sqrt(k + 1.0)
        square[0] += eta * (2.0 * m[i] + eta * diagonal[i])
        shrink = 1.0 / max(1.0, math.sqrt(square[0]))
        square[0] *= shrink * shrink
        _add_column(G, i, eta, m)
        alpha[i] += eta
        for j in range(m.size):
            m[j] *= shrink
            alpha[j] *= shrink
            total[j] += alpha[j]
        hits[i] += 1.0
        k += 1
    return k, _RUNNING


def batch_perceptron(G, *, max_iter=1000, averaged=True, tol=None, trace_at=None, keep_iterates=False,
                     callback=None, seed=None):
    """Batch perceptron (Cotter, Shalev-Shwartz & Srebro 2012): supergradient ascent on the least margin,

        w <- P_{||w|| <= 1}(w + eta_t z_i),   i = argmin_i m_i,   eta_t = 1 / sqrt(s t).

    alpha is the sum of the iterates, so lower is the margin of their average (averaged=False: of the last).  p
    counts how often each row was taken; while lower >= 0, upper - lower = O(sqrt(s/t)), the regret of the
    ascent over t.  One column per iteration.  Run options and errors as in `gradient_descent`.
    """
    G, scale = _representation(G)
    n = G.shape()[0]
    step, diagonal, square = 1.0 / math.sqrt(scale), G.diagonal(), np.zeros(1)
    alpha, total, hits, m = np.zeros((4, n))

    def advance(k, stop):
        return _batch_perceptron_loop(G, k, stop, step, diagonal, alpha, total, hits, m, square)

    def solution():
        return (total if averaged else alpha).copy(), _weights(hits)

    return _drive(partial(_interval, G, scale), advance, solution, max_iter, tol, trace_at, keep_iterates, callback,
                  products=lambda k: k / n)


# ======================================================================================================
# APIDOPOULOS22: HINGE-LOSS DIAGONAL DESCENT
# ======================================================================================================

_SCHEDULES = {
    "1/log(1+t)": lambda t: 1.0 / np.log1p(t),
    "1/sqrt(t)": lambda t: 1.0 / np.sqrt(t),
    "1/t": lambda t: 1.0 / t,
    "1/t^2": lambda t: 1.0 / t**2,
    "2^-t": lambda t: np.exp2(-t),
}


def _penalties(lam, lam0, steps):
    """lambda_t = lam0 s(t) for t = 1..steps; s by name, callable or array."""
    lam0 = _number(lam0, "lam0")
    t = np.arange(1.0, steps + 1.0)
    if isinstance(lam, str):
        values = _SCHEDULES[_choice(lam, "lam", tuple(_SCHEDULES))](t)
    elif callable(lam):
        values = np.array([float(lam(int(k))) for k in t])
    else:
        values = np.asarray(lam, dtype=np.float64)
        if values.ndim != 1 or values.size < steps:
            raise ValueError(f"lam must hold a value for each of {steps} iterations; got shape {values.shape}")
        values = values[:steps]
    wrong = np.flatnonzero(~(values >= 0.0))
    if wrong.size:
        raise ValueError(f"lam must be at least 0; at t = {wrong[0] + 1} it is {values[wrong[0]]:g}")
    return lam0 * values


def _operator_norm(G):
    """An upper bound on the largest eigenvalue of G, above it by 3 % at most, and the products it took.

    Lanczos, the power iteration that keeps its past: from a random start, k steps miss a fraction e of the
    largest eigenvalue with probability at most 1.65 sqrt(n) exp(-sqrt(e) (2k - 1)), whatever the spectrum
    (Kuczynski & Wozniakowski, SIAM J. Matrix Anal. Appl. 13, 1992): 5e-8 at n = 10^4, k = 64, e = 0.03.
    """
    n, dimension = G.shape()
    scale = G.diagonal().max()  # taken out, so that no square of G's entries can over- or underflow
    steps = min(64, n)
    basis, T = np.zeros((steps, n)), np.zeros((steps, steps))
    v = np.random.default_rng(0).standard_normal(n)
    w, m = np.empty(dimension), np.empty(n)
    for k in range(steps):
        size = np.linalg.norm(v)
        if k and size <= 1e-13 * np.abs(T).max():  # an invariant subspace: its largest eigenvalue is exact
            steps = k
            break
        basis[k] = v / size
        _lift(G, basis[k], w)
        _margins(G, w, m)
        m /= scale
        T[k, :k + 1] = basis[:k + 1] @ m
        T[:k + 1, k] = T[k, :k + 1]
        v = m - T[k, :k + 1] @ basis[:k + 1]
        v -= (basis[:k + 1] @ v) @ basis[:k + 1]  # orthogonal to working precision, not only in theory
    return scale * np.linalg.eigvalsh(T[:steps, :steps])[-1] / (1.0 - 0.03), steps


@njit(cache=True)
def _diagonal_loop(G, k, stop, step, accel, bounds, alpha, previous, z, w, m):
    """alpha = -u of the paper; bounds[k] = 1 / lambda_{k+1}.  accel = inf is the method without inertia."""
    while k < stop:
        t = k + 1.0
        inertia = t / (t + accel)
        for i in range(z.size):
            z[i] = alpha[i] + inertia * (alpha[i] - previous[i])
            previous[i] = alpha[i]
        _lift(G, z, w)
        _margins(G, w, m)
        for i in range(z.size):
            alpha[i] = min(max(z[i] + step * (1.0 - m[i]), 0.0), bounds[k])
        k += 1
    return k, _RUNNING


def _diagonal(G, lam, lam0, accel, step, run):
    """The run behind diagonal_descent and inertial_diagonal_descent."""
    with np.errstate(divide="ignore", over="ignore"):
        bounds = 1.0 / _penalties(lam, lam0, _count(run[0], "max_iter"))
    G, scale = _representation(G)
    n, dimension = G.shape()
    if step is None:
        _square_and_margins(G, scale, np.full(n, 1.0 / n))  # compiles, outside the clock
        begin = time.perf_counter()
        norm, setup = _operator_norm(G)
        step, spent = 1.0 / norm, time.perf_counter() - begin
    else:
        step, setup, spent = _number(step, "step"), 0, 0.0
    alpha, previous, z, m = np.zeros((4, n))
    w = np.zeros(dimension)

    def advance(k, stop):
        return _diagonal_loop(G, k, stop, step, accel, bounds, alpha, previous, z, w, m)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), _weights(alpha)), *run,
                  products=lambda k: float(setup + k), spent=spent)


def diagonal_descent(G, *, max_iter=1000, lam="1/t", lam0=1.0, step=None, tol=None, trace_at=None,
                     keep_iterates=False, callback=None, seed=None):
    """Hinge-loss diagonal descent (Algorithm 1): projected gradient on the dual of
    min_w (1/lambda_t) sum_i max(0, 1 - m_i) + ||w||^2 / 2, one step for each lambda_t,

        u_0 = 0,   u_t = clip(u_{t-1} - gamma G u_{t-1} - gamma, -1/lambda_t, 0),   w_t = -Z'u_t;   alpha = -u.

    lam    s(t) in lambda_t = lam0 s(t): "1/log(1+t)", "1/sqrt(t)", "1/t", "1/t^2", "2^-t", a callable of t, or an
           array with s(t) at [t - 1]; not negative (0: the bound is infinite), in the theory non-increasing
    step   gamma itself, not in units of 1/s; by default 1/||G||_op on the safe side, from a Lanczos run of at
           most 64 products, which the trace counts as spent before iteration 0
    For gamma <= 1/||G||_op and non-increasing lambda_t, D_t(u_t) = ||w_t||^2 / 2 + sum_i u_t,i never increases
    (Lemma 5.3), and on separable data w_t -> w*, the separator of least norm with margins >= 1, rho = 1/||w*||,
    linearly once lambda_t <= 1/||u*|| (Theorem 5.1).
    p = alpha / sum alpha.  One product per iteration.  Run options and errors as in `gradient_descent`.
    """
    return _diagonal(G, lam, lam0, math.inf, step, (max_iter, tol, trace_at, keep_iterates, callback))


def inertial_diagonal_descent(G, *, max_iter=1000, lam="1/t", lam0=1.0, accel=10.0, step=None, tol=None,
                              trace_at=None, keep_iterates=False, callback=None, seed=None):
    """Inertial diagonal descent (Algorithm 2): the step of `diagonal_descent` taken from
    z_t = u + (t/(t + accel)) (u - u_previous).

    Theorem 5.2, for accel >= 3 and lambda_t <= 1/||u*|| from t = 1 on: ||w_t - w*|| <= C/(t + accel - 1) with
    C = (accel - 1) (||w_0||^2 - ||w*||^2 + 2 ||u_0 - u*||_1 + ||u_0 - u*||^2 / gamma)^{1/2}.
    accel > 0.  One product per iteration.  Everything else as in `diagonal_descent`.
    """
    return _diagonal(G, lam, lam0, _number(accel, "accel"), step, (max_iter, tol, trace_at, keep_iterates, callback))


@njit(cache=True)
def _homotopic_loop(G, k, stop, a, b, scale, alpha, w, m):
    n = m.size
    while k < stop:
        t = k + 1.0
        step, penalty = t ** -b, t ** -a
        _lift(G, alpha, w)
        _margins(G, w, m)
        for i in range(n):
            alpha[i] *= 1.0 - step * penalty
            if m[i] < 1.0:
                alpha[i] += step / (n * scale)
        k += 1
    return k, _RUNNING


def homotopic_subgradient(G, *, max_iter=1000, a=0.25, b=0.5, tol=None, trace_at=None, keep_iterates=False,
                          callback=None, seed=None):
    """Homotopic subgradient method (Molitor, Needell & Ward 2021), the comparator of apidopoulos22: subgradient
    steps on (1/n) sum_i max(0, 1 - m_i) + (lambda_t / 2) ||w||^2 with a vanishing penalty,

        alpha <- (1 - eta_t lambda_t) alpha + (eta_t / n) [m_i < 1],   lambda_t = s t^-a,  eta_t = t^-b / s.

    a, b > 0 with a + b <= 1, so that the shrinkage sums to infinity.  p = alpha / sum alpha.  One product per
    iteration.  Run options and errors as in `gradient_descent`.
    """
    a, b = _number(a, "a"), _number(b, "b")
    if a + b > 1.0:
        raise ValueError(f"a + b must be at most 1; got {a:g} + {b:g}")
    G, scale = _representation(G)
    n, dimension = G.shape()
    alpha, m = np.zeros((2, n))
    w = np.zeros(dimension)

    def advance(k, stop):
        return _homotopic_loop(G, k, stop, a, b, scale, alpha, w, m)

    return _drive(partial(_interval, G, scale), advance, lambda: (alpha.copy(), _weights(alpha)), max_iter, tol,
                  trace_at, keep_iterates, callback)


# ======================================================================================================
# EXACT SOLVER
# ======================================================================================================

@njit(cache=True)
def _pairwise_steps(H, p, g, max_steps, tol):
    """Steps on min_{p in Delta} p'Hp / 2 that move weight between two points; g = H p is kept up to date.

    i has the least g; j, among p_j > 0, gives the largest decrease on the segment (second-order choice of
    SMO, in the setting of Mitchell, Dem'yanov & Malozemov).  Stops at max_{p_j > 0} g_j - min g <= tol.
    """
    n = p.size
    for step in range(max_steps):
        i = np.argmin(g)
        j, best, top = i, 0.0, g[i]
        for k in range(n):
            slope = g[k] - g[i]
            if p[k] > 0.0 and slope > 0.0:
                top = max(top, g[k])
                curvature = max(H[i, i] + H[k, k] - 2.0 * H[i, k], 1e-300)
                move = min(slope / curvature, p[k])
                gain = move * (slope - 0.5 * curvature * move)
                if gain > best:
                    j, best = k, gain
        if top - g[i] <= tol or j == i:
            return step
        curvature = max(H[i, i] + H[j, j] - 2.0 * H[i, j], 1e-300)
        move = min((g[j] - g[i]) / curvature, p[j])
        p[j] = p[j] - move if move < p[j] else 0.0
        p[i] += move
        for k in range(n):
            g[k] += move * (H[i, k] - H[j, k])
    return max_steps


def _solve_on_support(G, scale, p, max_rounds):
    """Newton steps for min p'Gp / 2 on the face of Delta where p > 0, with a ratio test at its boundary.

    The step minimises over delta with sum delta = 0, under a small ridge on delta_i^2 / p_i that picks, on a
    face where G is singular, the correction that the weights can bear.  Residuals come from fresh products,
    so repeated steps refine each other.  Returns p and the number of entries of G read.
    """
    reads, spread = 0, np.inf
    for _ in range(max_rounds):
        support = np.flatnonzero(p > 0.0)
        face, weights = G.restrict(support), p[support]
        square, g = _square_and_margins(face, scale, weights)
        if not g.max() - g.min() < 0.5 * spread:
            break  # the last full step did not level the margins any further: rounding rules
        root = np.sqrt(weights)
        system = root[:, None] * face.dense() * root
        system[np.diag_indices_from(system)] += 1e-13 * np.trace(system)
        newton, level = np.linalg.solve(system, np.column_stack((root * g, root))).T
        delta = root * (level * (root @ newton) / (root @ level) - newton)
        falling = delta < 0.0
        ratios = np.full(len(delta), np.inf)
        ratios[falling] = weights[falling] / -delta[falling]
        move = min(1.0, ratios.min())
        weights = np.maximum(weights + move * delta, 0.0)
        weights[ratios <= move] = 0.0
        reads += support.size**2
        spread = g.max() - g.min() if move == 1.0 else np.inf
        p = np.zeros_like(p)
        p[support] = weights / weights.sum()
    return p, reads


def max_margin(G, *, tol=1e-9, max_iter=100, trace_at=None, keep_iterates=False, callback=None, seed=None):
    """The maximum margin to any tolerance, by pairwise steps and solves on the support of a working set.

    An iteration is one round: (1) margins of all points, one product; (2) the working set: the support and
    the worst violators; (3) pairwise steps (second-order choice) there; (4) where these crawl, Newton steps
    on the support with a ratio test.  ||p||_G never grows.

    Returns status "certified" at upper - lower <= tol * upper, tol down to 1e-12 where the conditioning
    eps s / rho^2 lets it; "infeasible" at lower <= 0 and upper <= 1e-9 sqrt(s) (a dense G: 3e-8 sqrt(s),
    in float32 7e-4 sqrt(s), the least that rounding leaves visible), with the witness p; "max_iter" if
    rounding stops progress before either.
    alpha = p: at the optimum the primal and dual points coincide.  trace_at: every round by default;
    `products` counts entries of G read / n^2.  Other options and errors as in `gradient_descent`.
    """
    G, scale = _representation(G)
    tol = _number(tol, "tol")
    trace_at = range(_count(max_iter, "max_iter") + 1) if trace_at is None else trace_at
    n = G.shape()[0]
    p, reads = np.zeros(n), 0
    p[np.argmin(G.diagonal())] = 1.0

    def advance(k, stop):
        nonlocal p, reads
        if k == stop:
            _pairwise_steps(np.ones((1, 1)), np.ones(1), np.ones(1), 0, 0.0)  # compiles, outside the clock
            return k, _RUNNING
        square, m = _square_and_margins(G, scale, p)
        support = np.flatnonzero(p > 0.0)
        violators = np.argsort(m, kind="stable")[:max(200, support.size)]
        working = np.union1d(support, violators)
        part, weights = G.restrict(working), p[working]
        H = part.dense().astype(np.float64, copy=False)
        most = 20 * working.size + 1000
        steps = _pairwise_steps(H, weights, m[working], most, 0.5 * tol * square)
        reads += working.size**2 + 2 * working.size * steps
        if steps == most:
            weights, solved = _solve_on_support(part, scale, weights / weights.sum(), 30)
            reads += solved
        before, p = p, np.zeros(n)
        p[working] = weights
        return k + 1, _EXHAUSTED if np.array_equal(p, before) else _RUNNING

    def solution():
        alpha = p.copy()
        return alpha, alpha

    return _drive(partial(_interval, G, scale), advance, solution, max_iter, tol, trace_at, keep_iterates, callback,
                  products=lambda k: k + reads / n**2, eps=max(1e-9, G.resolution()) * math.sqrt(scale))
