"""Exact rationals: the margin of a small problem, and whether a Result keeps its word, without a tolerance.

Floats are rationals.  G is written as unit * (a matrix of integers), a `Gram`, and all that is asked of it is answered
in integers.  Margins and norms are square roots of rationals: they are compared through their signed squares, x |x|,
which keep the order.
"""

import decimal
import inspect
import math
import sys
import zlib
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import NamedTuple

import numpy as np
import pytest
from instances import BY_ROWS, CALLS, Own, Products, Symmetric, algorithm_of, free

import fastmargin as fm


def signed_square(x):
    return x * abs(x)


def integers(a):
    """(integers without a common factor, unit) with a = unit * integers, entry by entry in C order."""
    a = np.asarray(a)
    a = a if a.dtype == object else a.astype(np.float64)
    ratios = [x.as_integer_ratio() for x in a.ravel().tolist()]
    common = max(below for _, below in ratios)  # denominators of floats are powers of two
    whole = [above * (common // below) for above, below in ratios]
    factor = math.gcd(*whole) or 1
    return [x // factor for x in whole], Fraction(factor, common)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


class Gram(NamedTuple):
    """G = unit * entries, of integers without a common factor; with the signs of two classes that of a free intercept:
    margins are those with the best b, and p has half its weight in each class.  With a ridge the margin of alpha is no
    bound: a certificate gives it the best slacks."""

    entries: list
    unit: Fraction
    signs: tuple = ()
    has_ridge: bool = False


def gram_of(G, signs=()):
    """The `Gram` of a matrix of rationals."""
    common = math.lcm(*(x.denominator for row in G for x in row))
    whole = [[x.numerator * (common // x.denominator) for x in row] for row in G]
    factor = math.gcd(*(x for row in whole for x in row)) or 1
    return Gram(
        [[x // factor for x in row] for row in whole], Fraction(factor, common), tuple(signs)
    )


def integer_gram(Z):
    """(G, unit) with Z Z' = unit^2 G, G of integers."""
    whole, unit = integers(Z)
    d = len(whole) // len(Z)
    rows = [whole[i : i + d] for i in range(0, len(whole), d)]
    return [[dot(a, b) for b in rows] for a in rows], unit


def of_rows(Z, signs=()):
    """The `Gram` Z Z'."""
    G, unit = integer_gram(Z)
    return Gram(G, unit**2, tuple(signs))


def hull(G):
    """Pairs (i, j), and the matrix of integers of the z_i + z_j, twice the points from whose hull the origin is rho
    away: of i in one class and j in the other; without signs of i = j."""
    n = range(len(G.entries))
    E = G.entries
    pairs = [(i, j) for i in n for j in n if (G.signs[i] > 0 > G.signs[j] if G.signs else i == j)]
    sums = [[a + b for a, b in zip(E[i], E[j], strict=True)] for i, j in pairs]
    return pairs, [[row[i] + row[j] for i, j in pairs] for row in sums]


# ======================================================================================================
# THE MARGIN
# ======================================================================================================


def solve(M, B):
    """(X, D), integers with M X = D B and D = det M > 0, for M positive semi-definite; None where M is singular.

    Gauss-Jordan elimination without fractions (Bareiss): every division is exact.  Without pivoting, because a zero
    on the diagonal of what is left of a semi-definite matrix means that it is singular.
    """
    rows = [[*a, *b] for a, b in zip(M, B, strict=True)]
    previous = 1
    for k in range(len(rows)):
        pivot_row = rows[k]
        pivot = pivot_row[k]
        if pivot == 0:
            return None
        for i, row in enumerate(rows):
            if i != k:
                factor = row[k]
                rows[i] = [
                    (pivot * x - factor * y) // previous
                    for x, y in zip(row, pivot_row, strict=True)
                ]
        previous = pivot
    return [row[len(rows) :] for row in rows], previous


def least_norm(G):
    """(min_{p in the simplex} p'Gp, integer weights of a minimiser) by Wolfe's algorithm, for G of integers.

    ``support`` stays affinely independent and the point is the least of its affine hull, so that p'Gp falls from one
    support to the next and none comes twice.  It ends at (Gp)_i >= p'Gp for all i, which proves the minimum.
    """
    support = [min(range(len(G)), key=lambda i: G[i][i])]
    weights = [1]
    while True:
        total = sum(weights)
        g = [sum(w * row[s] for w, s in zip(weights, support, strict=True)) for row in G]
        square = sum(w * g[s] for w, s in zip(weights, support, strict=True))
        worst = min(range(len(G)), key=g.__getitem__)
        if g[worst] * total >= square:  # both sides times total^2
            assert min(weights) > 0
            p = [0] * len(G)
            for s, w in zip(support, weights, strict=True):
                p[s] = w
            return Fraction(square, total**2), p
        support = [*support, worst]
        weights = [*weights, 0]
        while True:
            # G + 1 1' has the same least point on {sum p = 1}, and is positive definite where points are independent.
            target, _ = solve(
                [[G[s][t] + 1 for t in support] for s in support], [[1] for _ in support]
            )
            target = [x for (x,) in target]
            now = sum(weights)
            then = sum(target)
            ahead = [
                (w * then, t * now) for w, t in zip(weights, target, strict=True)
            ]  # to one denominator
            falling = [(a, b) for a, b in ahead if b < 0]
            if falling:  # go as far as the simplex reaches: to the least a / (a - b)
                a0, b0 = min(falling, key=lambda ab: Fraction(ab[0], ab[0] - ab[1]))
                target = [a0 * b - b0 * a for a, b in ahead]
            support = [s for s, t in zip(support, target, strict=True) if t]
            weights = [t for t in target if t]
            factor = math.gcd(*weights)
            weights = [w // factor for w in weights]
            if not falling:
                break


def best_point(G):
    """A p of least norm, to the last digits."""
    pairs, points = hull(G)
    weights = least_norm(points)[1]
    p = [0] * len(G.entries)
    for pair, weight in zip(pairs, weights, strict=True):
        for i in pair:
            p[i] += weight
    return np.array([x / sum(p) for x in p])


def basis_of(G):
    """As many rows as are independent."""
    basis = ()
    for i in range(len(G)):
        if solve([[G[s][t] for t in (*basis, i)] for s in (*basis, i)], [[]] * (len(basis) + 1)):
            basis = *basis, i
    return basis


def depth_squared(G):
    """The squared distance from the origin, a point of the hull, to the boundary of the hull within the rows' span.

    A basis T of the rows fixes a hyperplane <z_t, w> = 1 through its points, and for each j in T one through the
    others and the origin.  Facets are those that leave all rows on one side.
    """
    least = None
    basis = basis_of(G)
    for T in combinations(range(len(G)), len(basis)):
        inverse = solve([[G[s][t] for t in T] for s in T], [[int(s == t) for t in T] for s in T])
        if inverse is None:
            continue
        X, D = inverse
        against = [
            [dot([row[t] for t in T], column) for column in zip(*X, strict=True)] for row in G
        ]
        if any(all(a[j] >= 0 for a in against) for j in range(len(T))):
            return Fraction(0)
        if all(sum(a) <= D for a in against):
            square = Fraction(D, sum(map(sum, X)))
            least = square if least is None else min(least, square)
    return least


def margin_squared(G):
    """rho^2 of a `Gram` of strictly separable points, else 0: the squared distance from the origin to their hull."""
    return least_norm(hull(G)[1])[0] * G.unit / 4


FACETS = 500  # candidates, beyond which no facet of a hull is looked for


def signed_square_of_margin(G):
    """rho |rho|, where rho < 0 is minus the distance from the origin to the boundary of the hull around it; 0 where
    that would take long.

    With a free intercept it is 0 if some w in the span of the rows is orthogonal to all that the classes differ by.
    """
    points = hull(G)[1]
    square = least_norm(points)[0]
    if not square:
        rank = len(basis_of(points))
        if math.comb(len(points), rank) <= FACETS and (
            not G.signs or rank == len(basis_of(G.entries))
        ):
            square = -depth_squared(points)
    return square * G.unit / 4


# ======================================================================================================
# PLAIN SLACKS
# ======================================================================================================


def objective_with_cost(G, cost, alpha, bias=0):
    """P = alpha'G alpha / 2 + sum_i C_i max(0, 1 - (G alpha)_i - b y_i), for a `Gram` and rationals."""
    m = [G.unit * dot(row, alpha) for row in G.entries]
    signs = G.signs or [0] * len(m)
    slacks = [max(0, 1 - m_i - bias * y_i) for m_i, y_i in zip(m, signs, strict=True)]
    return Fraction(dot(alpha, m)) / 2 + dot(cost, slacks)


def least_objective_with_cost(G, cost):
    """The least P of a `Gram`: of 3^n guesses which weights are 0, which at their cost, and which between, the first
    one that solves the problem, which equal primal and dual objectives prove."""
    n = len(G.entries)
    signs = G.signs
    for kinds in product((0, 1, 2), repeat=n):
        inside = [i for i in range(n) if kinds[i] == 2]
        alpha = [cost[i] if kinds[i] == 1 else Fraction(0) for i in range(n)]
        rest = [1 - G.unit * dot(G.entries[i], alpha) for i in inside]
        rows = [[G.unit * G.entries[i][j] for j in inside] for i in inside]
        if signs and inside:
            rows = [[*row, Fraction(signs[i])] for row, i in zip(rows, inside, strict=True)]
            rows.append([*(Fraction(signs[i]) for i in inside), Fraction(0)])
            rest.append(-dot(signs, alpha))
        solution = solve_rationals(rows, rest)
        if solution is None:
            continue
        for i, x in zip(inside, solution, strict=False):
            alpha[i] = x
        if not all(0 <= x <= c for x, c in zip(alpha, cost, strict=True)):
            continue
        if signs and dot(signs, alpha):
            continue
        biases = [0]
        if signs:
            m = [G.unit * dot(row, alpha) for row in G.entries]
            biases = [y * (1 - m_i) for y, m_i in zip(signs, m, strict=True)]
        dual = sum(alpha) - G.unit * dot(alpha, [dot(row, alpha) for row in G.entries]) / 2
        if any(objective_with_cost(G, cost, alpha, b) == dual for b in biases):
            return dual
    raise AssertionError("some guess solves the problem")


def solve_rationals(rows, b):
    """x with rows x = b, by elimination; None where there are none or many."""
    rows = [[*map(Fraction, row), Fraction(x)] for row, x in zip(rows, b, strict=True)]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i, row in enumerate(rows):
            if i != k and row[k]:
                rows[i] = [x - row[k] * y for x, y in zip(row, rows[k], strict=True)]
    return [row[-1] for row in rows]


def holds_with_cost(P, lower, upper):
    """True if lower <= 1 / sqrt(2 P) <= upper, which may be infinite."""
    is_above = upper == math.inf or signed_square(Fraction(upper)) * 2 * P >= 1
    return is_above and signed_square(Fraction(lower)) * 2 * P <= 1


# ======================================================================================================
# WHETHER A RESULT KEEPS ITS WORD
# ======================================================================================================


def sides_of(G):
    """Numbers of the points in each class, or of all."""
    return (
        [np.flatnonzero(np.array(G.signs) == side) for side in (1, -1)]
        if G.signs
        else [np.arange(len(G.entries))]
    )


def weigh(G, v):
    """(min_i (Gv)_i, v'Gv, sum v) for integers v, in units of G."""
    m = [dot(row, v) for row in G.entries]
    sides = (
        [[x for x, sign in zip(m, G.signs, strict=True) if sign == side] for side in (1, -1)]
        if G.signs
        else [m]
    )
    return Fraction(sum(map(min, sides)), len(sides)), dot(m, v), sum(v)


def mixture(G, p):
    """Integer weights of p; with signs of the p that has half its weight in each class, as p has in each of them."""
    weights = integers(p)[0]
    if not G.signs:
        return weights
    totals = {
        side: sum(w for w, sign in zip(weights, G.signs, strict=True) if sign == side)
        for side in (1, -1)
    }
    return [w * totals[-sign] for w, sign in zip(weights, G.signs, strict=True)]


def holds(square, lower, upper):
    """True if lower <= rho <= upper, for rho |rho| = square."""
    return signed_square(Fraction(lower)) <= square <= signed_square(Fraction(upper))


def floats_around(square):
    """The floats next to the root of a signed square: the greatest that is not above it, the least not below it."""
    over = abs(square).numerator
    under = abs(square).denominator
    shift = 2 * ((under.bit_length() - over.bit_length()) // 2 + 64)
    root = math.isqrt((over << shift) // under if shift >= 0 else over // (under << -shift))
    low = math.copysign(float(root / Fraction(2) ** (shift // 2)), square)
    while signed_square(Fraction(low)) > square:
        low = math.nextafter(low, -math.inf)
    while signed_square(Fraction(math.nextafter(low, math.inf))) <= square:
        low = math.nextafter(low, math.inf)
    return low, low if signed_square(Fraction(low)) == square else math.nextafter(low, math.inf)


def exact_interval(G, alpha, p):
    """Signed squares of min_i (G alpha)_i / ||alpha||_G, None where ||alpha||_G = 0, and of ||p||_G / sum p."""
    least, size, _ = weigh(G, integers(alpha)[0])
    _, norm, total = weigh(G, mixture(G, p))
    return Fraction(signed_square(least), size) * G.unit if size else None, Fraction(
        norm, total**2
    ) * G.unit


STATUSES = {"separated", "certified", "infeasible", "max_iter", "rounding"}


def interval_faults(G, signed, lower, upper, alpha, p):
    """What is wrong with an interval of alpha and p, for rho |rho|."""
    if not all(np.isfinite(x).all() for x in (alpha, p, lower, upper)):
        return ["not finite"]
    least, size, _ = weigh(G, integers(alpha)[0])
    weights = integers(p)[0]
    if min(weights) < 0 or not sum(weights):
        return ["p outside the simplex"]
    if G.signs and 2**40 * abs(dot(weights, G.signs)) > sum(weights):
        return ["p has not half its weight in each class"]
    _, norm, total = weigh(G, mixture(G, p))
    low, high = (signed_square(Fraction(float(x))) for x in (lower, upper))
    found = {
        "lower > rho": low > signed,
        "upper < rho": high < max(signed, 0),
        "lower > margin of alpha": not G.has_ridge and low * size > signed_square(least) * G.unit,
        "lower > 0 without G alpha > 0": low > 0 and least <= 0,
        "upper < norm of p": high * total**2 < norm * G.unit,
    }
    return [what for what, is_so in found.items() if is_so]


def faults(G, result, *, tol=None, eps=0.0, signed=None):
    """All that is wrong with a Result for a `Gram`, in a few words each; [] if nothing is.

    ``eps`` is what the call promised of "infeasible", ``signed`` rho |rho| where it is known.
    """
    signed = signed_square_of_margin(G) if signed is None else signed
    found = interval_faults(G, signed, result.lower, result.upper, result.alpha, result.p)
    if (
        getattr(result, "separator", None) is not None
    ):  # whose margin lower bounds, not that of alpha
        found = [fault for fault in found if "alpha" not in fault]
    if found == ["not finite"]:
        return found
    found += trace_faults(result.trace, signed, max(signed, 0), signed_square)
    least = weigh(G, integers(result.alpha)[0])[0]
    return [*found, *status_faults(result, least, max(signed, 0), tol, eps)]


def trace_faults(trace, most, least, measure):
    """What is wrong with a trace, which an interrupt may find empty, for measures of rho."""
    if not len(trace):
        return []
    lower, upper = (
        measure(Fraction(float(x))) for x in (trace["lower"].max(), trace["upper"].min())
    )
    return ["trace: lower > rho"] * (lower > most) + ["trace: upper < rho"] * (upper < least)


def over_decades(rng, n):
    """Numbers from 1e-307 to 8e307, three of which may add up to more than there is."""
    return 10.0 ** rng.uniform(-307.0, 307.9, n)


def certificate_faults(G, signed, given, result, seed=0):
    """What is wrong with `certificate` at the points of a result, at others, and at the best, which are nearly one."""
    n = len(G.entries)
    rng = np.random.default_rng(seed)
    best = best_point(G)
    sides = sides_of(G)
    with np.errstate(under="ignore"):
        smaller = over_decades(rng, n) * 1e-320  # many of them denormal
    for side in sides:
        smaller[rng.choice(side)] = 1.0
    points = {
        "its result": (result.alpha, result.p),
        "the best": (best, best),
        "random weights": (rng.normal(size=n), rng.dirichlet(np.ones(n))),
        "weights that cancel": ((-1.0) ** np.arange(n), np.full(n, 1.0 / n)),
        "equal weights": np.full((2, n), 1.0 / n),
        "weights over decades": (over_decades(rng, n) * rng.choice([-1.0, 1.0], n), smaller),
    }
    for _, p in list(points.values())[2:] if G.signs else ():
        for side in sides:
            p[side] *= 0.5 / p[side].sum()
    found = []
    for (where, (alpha, p)), precise in product(points.items(), (False, True)):
        try:
            words = interval_faults(
                G, signed, *fm.certificate(given, alpha, p, precise=precise), alpha, p
            )
        except Exception as error:
            words = [f"raised {type(error).__name__}: {error}"]
        found += [f"{'precise ' * precise}certificate of {where}: {word}" for word in words]
    return found


def status_faults(result, least, square, tol, eps):
    """What is wrong with the status, for min_i (G alpha)_i and rho^2 (0 where rho < 0)."""
    found = {
        "not a status": result.status not in STATUSES,
        "separated: G alpha > 0 is false": result.status == "separated" and least <= 0,
        "separated: lower <= 0": result.status == "separated" and not result.lower > 0.0,
        "infeasible: rho > eps": result.status == "infeasible" and square > Fraction(eps) ** 2,
        "infeasible: upper > eps": result.status == "infeasible" and result.upper > eps,
        "certified: gap > tol": result.status == "certified"
        and (
            tol is None
            or Fraction(result.upper) - Fraction(result.lower)
            > Fraction(tol) * Fraction(result.upper)
        ),
    }
    return [what for what, is_so in found.items() if is_so]


def l1_faults(Z, result, *, tol=None, eps=0.0):
    """The same for rho_1 = max_w min_i (Zw)_i = min_p max_j (Z'p)_j, w and p in their simplices, of rows whose largest
    entry is a power of two, by which they are divided.  The two points of the result stand in for rho_1."""
    Z = np.asarray(Z, dtype=np.float64)
    Z = Z / np.abs(Z).max(axis=1)[:, None]
    whole, unit = integers(Z)
    whole = np.array(whole, dtype=object).reshape(Z.shape)
    if not all(np.isfinite(x).all() for x in (result.alpha, result.p, result.lower, result.upper)):
        return ["not finite"]
    w, p = (integers(x)[0] for x in (result.alpha, result.p))
    if min(*w, *p) < 0 or not sum(w) or not sum(p):
        return ["a point outside its simplex"]
    least = min(dot(row, w) for row in whole) * unit / sum(w)
    most = max(dot(column, p) for column in whole.T) * unit / sum(p)
    found = {
        "lower > margin of w": Fraction(result.lower) > least,
        "upper < max_j (Z'p)_j": Fraction(result.upper) < most,
    }
    return [
        *(what for what, is_so in found.items() if is_so),
        *trace_faults(result.trace, most, least, Fraction),
        *status_faults(result, least, signed_square(max(least, 0)), tol, eps),
    ]


# ======================================================================================================
# PROBLEMS
# ======================================================================================================


class Problem(NamedTuple):
    """Rows 2^power * rows in a representation, and a call: its repr can be pasted.

    The representation is a base, and what lies over it: "ridge over pairs over sparse".  What is tried: "watched", that
    all partial results are judged; "stopped at n", besides that the callback stops at its n-th call; or "interrupted at
    n", that Ctrl-C comes at the n-th line of the module that is run: then a run goes on from the last of them.
    """

    family: str
    rows: list
    power: int
    kind: str
    algorithm: str
    options: dict
    labels: list = ()  # of the points under "pairs"; (): all of them are of the first of two classes
    n_classes: int = 2
    ridges: list = ()  # of the points of the G below, in turn
    sides: list = ()  # -1 or 1, of the points of the G below "free", in turn
    trial: str = ""

    def Z(self):
        Z = np.ldexp(np.array(self.rows, dtype=np.float64), self.power)
        return Z.astype(np.float32).astype(np.float64) if self.kind.endswith("single") else Z

    def layers(self):
        """What lies over the base, from the inside, and the base."""
        *layers, base = self.kind.split(" over ")
        return layers[::-1], base

    def ridge(self, n):
        """r_i of so many points."""
        return [self.ridges[i % len(self.ridges)] for i in range(n)]

    def classes(self, n):
        """The signs of a free intercept, of so many points."""
        return [self.sides[i % len(self.sides)] for i in range(n)]

    def signs(self):
        """Labels y_i of points x_i = y_i z_i, where two classes are not a matter of pairs."""
        n = len(self.rows)
        return (
            np.ones(n)
            if "pairs" in self.kind
            else np.array(self.classes(n), dtype=float)
            if self.sides
            else ((-1.0) ** np.arange(n))
        )

    def X(self):
        """The points x_i = y_i z_i."""
        return self.signs()[:, None] * self.Z()

    def pairs(self):
        """(point, its class, another class) of each pair, in the order of `pair_gram`."""
        labels = self.labels or [0] * len(self.rows)
        return [(i, y, j) for i, y in enumerate(labels) for j in range(self.n_classes) if j != y]


POLYNOMIALS = {
    "poly": {"gamma": 2.0, "coef0": 3.0, "degree": 3},
    "cubic": {"gamma": 0.25, "coef0": 0.0, "degree": 3},
}
DIGITS = decimal.Context(prec=80)  # of kernels by distances: in place of all


def gamma_of(kernel, X):
    """A power of two, by which the largest gamma ||x - x'|| is about 1."""
    ranges = np.ptp(X, axis=0)
    scale = math.frexp(float(ranges.max()) or float(np.abs(X).max()))[1]
    power = -scale * (2 if kernel == "rbf" else 1)
    return math.ldexp(1.0, min(power, 1000))  # of points beyond, which are refused


def by_distances(kernel, X):
    """K, to many digits."""
    gamma = Fraction(gamma_of(kernel, X))
    rows = [[Fraction(x) for x in row] for row in X.tolist()]

    def entry(a, b):
        apart = [abs(x - z) for x, z in zip(a, b, strict=True)]
        total = gamma * (dot(apart, apart) if kernel == "rbf" else sum(apart))
        return Fraction(
            DIGITS.exp(DIGITS.divide(decimal.Decimal(-total.numerator), total.denominator))
        )

    return [[entry(a, b) for b in rows] for a in rows]


def base_gram(problem, origin=None):
    """G of the base, rationals, of points from another origin where one is given."""
    Z = problem.Z()
    y = problem.signs()
    base = problem.layers()[1]
    kernel = base.partition(" ")[0]
    if kernel in ("rbf", "laplacian"):
        K = by_distances(kernel, problem.X())
        return [[int(y[i] * y[j]) * x for j, x in enumerate(row)] for i, row in enumerate(K)]
    if origin is not None:
        rows = [
            [
                Fraction(x) - int(sign) * Fraction(o)
                for x, o in zip(row, origin.tolist(), strict=True)
            ]
            for row, sign in zip(Z.tolist(), y.tolist(), strict=True)
        ]
        return [[dot(a, b) for b in rows] for a in rows]
    G, unit = integer_gram(Z)
    G = [[x * unit**2 for x in row] for row in G]
    if base in POLYNOMIALS:
        gamma, coef0, degree = map(Fraction, POLYNOMIALS[problem.layers()[1]].values())
        y = [int(sign) for sign in problem.signs()]
        G = [
            [y[i] * y[j] * (gamma * y[i] * y[j] * x + coef0) ** degree for j, x in enumerate(row)]
            for i, row in enumerate(G)
        ]
    return G


def exact_gram(problem, origin=None):
    """The `Gram` that a problem is about, by its definition."""
    G = base_gram(problem, origin)
    signs = ()
    for layer in problem.layers()[0]:
        if layer == "ridge":
            ridge = problem.ridge(len(G))
            G = [
                [x + (i == j) * Fraction(ridge[i]) for j, x in enumerate(row)]
                for i, row in enumerate(G)
            ]
        elif layer == "free":
            signs = problem.classes(len(G))
        else:
            G = [
                [
                    G[i][k] * ((y == z) - (y == b) - (a == z) + (a == b)) / 2
                    for k, z, b in problem.pairs()
                ]
                for i, y, a in problem.pairs()
            ]
    return gram_of(G, signs)._replace(has_ridge="ridge" in problem.layers()[0])


def rounded(G):
    return np.array([[float(x) for x in row] for row in G])


MATRICES = {  # of G: the promise is about every matrix that rounds to the stored one, of an operator about that
    "dense": rounded,
    "symmetric": lambda G: Products(Symmetric(rounded(G))),
}


class Single(Own):
    """The same in single precision."""

    unit = 2.0**-24

    def _product(self, v):
        Z = self.Z.astype(np.float32)
        return Z @ (Z.T @ v.astype(np.float32))


POINTS = {  # of points and labels, which are None where pairs take the points without signs
    **{
        kind: lambda X, y, make=make: make(X if y is None else y[:, None] * X)
        for kind, make in {**BY_ROWS, "own": Own, "single": Single}.items()
    },
    "linear": lambda X, y: fm.lazy_gram(X, y, kernel="linear", normalize=None),
    **{
        kind: lambda X, y, options=options: fm.lazy_gram(
            X, y, kernel="poly", normalize=None, **options
        )
        for kind, options in POLYNOMIALS.items()
    },
    **{
        kind: lambda X, y, kind=kind: fm.lazy_gram(
            X, y, kernel=kind, normalize=None, gamma=gamma_of(kind, X)
        )
        for kind in ("rbf", "laplacian")
    },
}


MADE = {  # with a free intercept, of points and labels: from an origin of their own
    "rows made": lambda X, y: fm.features(X, y, normalize=None, intercept="free"),
    "lazy made": lambda X, y: fm.lazy_gram(X, y, kernel="linear", normalize=None, intercept="free"),
}
BASES = [*MATRICES, *POINTS]
USUAL = [
    "dense",
    "features",
    "pairs over dense",
]  # on which every algorithm is tried in an ordinary run
KINDS = [
    over + base
    for over in (
        "",
        "ridge over ",
        "pairs over ",
        "ridge over pairs over ",
        "free over ",
        "ridge over free over ",
    )
    for base in BASES
] + [over + base for over in ("free over ", "ridge over free over ") for base in MADE]


def given(problem):
    """What the algorithm is handed."""
    layers, base = problem.layers()
    if base == "rows":
        return problem.Z()
    y = None if "pairs" in layers else problem.signs()
    X = problem.Z() if y is None else problem.X()
    if base in MADE:
        G = MADE[base](X, y)
        layers.remove("free")
    elif base in MATRICES:
        G = MATRICES[base](base_gram(problem))
    else:
        G = POINTS[base](X, y)
    for layer in layers:
        if layer == "pairs":
            G = fm.pair_gram(G, problem.labels or [0] * len(problem.rows), problem.n_classes)
            continue
        G = fm.Gram(G) if isinstance(G, np.ndarray) else G
        if layer == "ridge":
            G = G.with_ridge(problem.ridge(len(G)))
        else:
            signs = np.array(problem.classes(len(G)), dtype=float)
            G = free(G, signs)
    return G


def promises(problem, G):
    """(tol, eps): what a call on G promises of "certified" and "infeasible"."""
    eps = problem.options.get("eps", problem.options.get("delta", 0.0))
    if problem.algorithm == "max_margin":
        G = fm.Gram(G) if isinstance(G, np.ndarray) else G
        square = G.rounding().square
        of_base = G._changed(ridge=0.0).scale
        eps = (1e-9 if square == 0.0 else 3e-8) * math.sqrt(
            of_base
        )  # over the lengths that p mixes
        if square > 0.0 and G._precise(np.zeros(len(G))) is None:
            eps = max(eps, 1.5 * math.sqrt(square * G.scale))
    return problem.options.get("tol"), eps


def judge(problem):
    """(status, faults) of one problem.  Long steps may overflow, and say so; every other exception is a fault, for the
    problems are good ones."""
    try:
        return _judged(problem)
    except Exception as error:
        if isinstance(error, FloatingPointError) and problem.options.get("step", 0.0) >= 1e6:
            return "overflowed", []
        return "raised", [f"raised {type(error).__name__}: {error}"]


def place_of(G):
    """The point o, exactly, if the rows of a linear G are those of x_i - o; else None."""
    origin = getattr(G, "origin", None)
    return None if origin is None else np.array([Fraction(x) for x in origin.tolist()])


def is_beyond(problem):
    """True for numbers that are refused: points, K(x, x) or G of a size beyond what squares and products allow, a ridge
    far from G.  A size of 0 is refused where it is that of all points."""
    layers, base = problem.layers()
    size = float(np.abs(problem.Z()).max())
    is_own = base in MATRICES or base in ("own", "single", "operator")
    if size and not is_own and not fm._POINTS[0] <= size <= fm._POINTS[1]:
        return True
    if problem.kind == "rows":
        return False
    origin = None
    if base in MADE:
        origin = np.array([Fraction(x) for x in fm._origin(problem.X()).tolist()])
    G = base_gram(problem, origin)
    largest = max(G[i][i] for i in range(len(G)))
    for layer in layers:
        if not fm._ENTRIES[0] <= largest <= fm._ENTRIES[1]:
            return True
        if layer == "ridge":
            below = layers[: layers.index(layer)]
            count = len(problem.pairs()) if "pairs" in below else len(problem.rows)
            ridge = [Fraction(r) for r in problem.ridge(count)]
            if any(r and not fm._RATIOS[0] <= r / largest <= fm._RATIOS[1] for r in ridge):
                return True
            largest += max(ridge)
    return not fm._ENTRIES[0] <= largest <= fm._ENTRIES[1]


REFUSED = "must be from", "ridge is"  # words of what is refused, with the remedy


def refusal(problem):
    """(status, faults) of a problem that is refused."""
    try:
        getattr(fm, problem.algorithm)(given(problem), **problem.options)
    except ValueError as error:
        said = any(word in str(error) for word in REFUSED)
        return "refused", [] if said else [f"refused for {error}"]
    return "beyond", ["was answered, though it is beyond the door"]


def _judged(problem):
    if is_beyond(problem):
        return refusal(problem)
    G = given(problem)
    (tol, eps) = promises(problem, G)
    gram = None if problem.kind == "rows" else exact_gram(problem, place_of(G))
    signed = None if gram is None else signed_square_of_margin(gram)
    found = []
    kept = []
    how, _, where = problem.trial.partition(" at ")

    def judged(result):
        if result.status in ("running", "stopped"):
            result = result._replace(status="max_iter")
        return (
            l1_faults(G, result, tol=tol, eps=eps)
            if gram is None
            else faults(gram, result, tol=tol, eps=eps, signed=signed)
        )

    def look(partial):
        kept.append(partial)
        if (partial.lower, partial.upper) != tuple(partial.trace[["lower", "upper"]][-1]):
            found.append("partial result: not the bounds of its trace")
        if len(found) < 4:
            found.extend(f"partial result: {word}" for word in judged(partial))
        return how == "stopped" and len(kept) == int(where)

    def call(**options):
        return getattr(fm, problem.algorithm)(G, **{**problem.options, **options})

    options = {"callback": look} if how else {}
    try:
        if how == "interrupted":
            call(max_iter=0)  # compiles
            result = interrupted_at(int(where), lambda: call(**options))
        else:
            result = call(**options)
    except KeyboardInterrupt:
        if kept:
            found += continuation_faults(call, judged, kept[-1])
        return "interrupted", found
    found += judged(result)
    if how == "stopped" and result.status == "stopped":
        found += continuation_faults(call, judged, result)
    if gram is not None:
        found += certificate_faults(gram, signed, G, result, zlib.crc32(repr(problem).encode()))
    return result.status, list(dict.fromkeys(found))


def interrupted_at(lines, call):
    """Make a call that KeyboardInterrupt ends before the so many-th line of the module that it runs."""
    left = [lines]

    def of_the_module(frame, event, _):
        if frame.f_code.co_filename != fm.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return of_the_module

    before = sys.gettrace()
    sys.settrace(of_the_module)
    try:
        return call()
    finally:
        sys.settrace(before)


def continuation_faults(call, judged, part):
    """What is wrong with a run that goes on from a partial result: that is one of a run of so many iterations, and what
    follows is that of a run of all of them."""
    found = []
    few = 7
    whole = call(max_iter=part.n_iter, trace_at=[])
    if whole.n_iter != part.n_iter or not np.array_equal(whole.alpha, part.alpha):
        found.append("partial result: alpha is not that of n_iter iterations")
    rest = call(max_iter=few, start=part)
    found += [f"going on: {word}" for word in judged(rest)]
    rest = call(max_iter=few, start=part, trace_at=[])
    whole = call(max_iter=part.n_iter + few, trace_at=[])
    if rest.n_iter == whole.n_iter and not np.array_equal(whole.alpha, rest.alpha):
        found.append("going on: not as a whole run")
    return found


def _entries(rng, n, d):
    return rng.integers(
        -(reach := int(rng.choice([2, 9, 100, 10**6]))), reach, (n, d), endpoint=True
    )


def _anything(rng, n, d):
    return _entries(rng, n, d)


def _separable(rng, n, d):
    w = rng.integers(-9, 10, d)
    Z = _entries(rng, n, d)
    return Z * np.where(Z @ w < 0, -1, 1)[:, None]


def _planted(rng, n, d):
    """Rows (h, v) and (h, -v), and others beyond: rho = h."""
    Z = _entries(rng, n, d)
    height = 1 + int(abs(Z[0, 0]))
    Z[:, 0] = height + abs(Z[:, 0]) * (rng.random(n) < 0.3)
    if d > 1 and n > 1:
        Z[:2, 0] = height
        Z[1, 1:] = -Z[0, 1:]
    return Z[rng.permutation(n)]


def _rank_one(rng, n, d):
    Z = np.outer(rng.integers(-9, 10, n), rng.integers(-999, 1000, d))
    return np.abs(Z) if rng.random() < 0.5 else Z


def _duplicates(rng, n, d):
    return _separable(rng, n, d)[rng.integers(0, max(1, n // 2), n)]


def _opposite_duplicates(rng, n, d):
    Z = _separable(rng, n, d)
    Z[n // 2 : 2 * (n // 2)] = -Z[: n // 2]
    return Z[rng.permutation(n)]


def _collinear(rng, n, d):
    start, along = rng.integers(-999, 1000, (2, d))
    return start + np.outer(rng.integers(-99, 100, n), along)


def _sum_to_zero(rng, n, d):
    Z = _entries(rng, n, d)
    Z[-1] = (
        -(rng.integers(1, 4, n - 1) if rng.random() < 0.5 else np.ones(n - 1, dtype=int)) @ Z[:-1]
    )
    return Z


def _margin_of_zero(rng, n, d):
    """As above in some coordinates, 0 in the others: the last row is orthogonal to the sum."""
    Z = _sum_to_zero(rng, n, d)
    Z[-1] *= rng.integers(0, 2, d)
    return Z


def _zero_rows(rng, n, d):
    Z = _separable(rng, n, d)
    Z[rng.integers(0, n, max(1, n // 3))] = 0
    return Z


def _nearly_infeasible(rng, n, d):
    """The origin is among all coordinates but the last, which lies far below them."""
    reach = int(10.0 ** rng.uniform(4.0, 7.6))  # d reach^2 < 2^53
    Z = rng.integers(-reach, reach, (n, d), endpoint=True)
    if rng.random() < 0.3 and n > 2:
        Z[-1] = -Z[:-1].sum(axis=0) // (n - 1)
    Z[:, -1] = rng.integers(0 if rng.random() < 0.2 else 1, 4, n)
    return Z


def _on_the_boundary(rng, n, d):
    """Opposite rows in a subspace, all others on one side of it or in it."""
    Z = _entries(rng, n, d)
    Z[:, -1] = np.abs(Z[:, -1])
    Z[:2, -1] = 0
    Z[1] = -Z[0]
    return Z[rng.permutation(n)]


def _one_point(rng, n, d):
    return _entries(rng, 1, d)


def _power_of_2(rng, low, high):
    return int(2.0 ** rng.uniform(low, high))


def _near_ties(rng, n, d):
    """Two large scores that nearly agree: permutations of (a + h, a - h, b)."""
    a = _power_of_2(rng, 10, 52)
    b = _power_of_2(rng, 0, 52)
    h = _power_of_2(rng, 0, 12)
    rows = np.array(list(permutations((a + h, a - h, b))))
    return rows if rng.random() < 0.5 else rows[rng.integers(0, 6, n)]


def _near_ties_of_one_sign(rng, n, d):
    """The same in the linear form: rows (a + h, h - a), whose sum is all of the margin."""
    a = _power_of_2(rng, 10, 52)
    h = _power_of_2(rng, 0, 12)
    rows = np.array([(a + h, h - a), (h - a, a + h), (-a, a + h), (a, h - a)])
    return np.column_stack(
        (rows[rng.integers(0, 4, n)], rng.integers(-h, h, (n, d), endpoint=True))
    )


def _nearly_opposite(rng, n, d):
    Z = rng.integers(-(reach := _power_of_2(rng, 10, 52)), reach, (n, d), endpoint=True)
    Z[n // 2 : 2 * (n // 2)] = -Z[: n // 2]
    return Z + rng.integers(-3, 4, (n, d))


def _huge_common_part(rng, n, d):
    return rng.integers(-(reach := _power_of_2(rng, 10, 52)), reach, d) + rng.integers(
        -9, 10, (n, d)
    )


FAMILIES = {
    "anything": _anything,
    "separable": _separable,
    "planted": _planted,
    "rank one": _rank_one,
    "duplicates": _duplicates,
    "opposite duplicates": _opposite_duplicates,
    "collinear": _collinear,
    "sum to zero": _sum_to_zero,
    "margin of zero": _margin_of_zero,
    "zero rows": _zero_rows,
    "nearly infeasible": _nearly_infeasible,
    "on the boundary": _on_the_boundary,
    "one point": _one_point,
    "near ties": _near_ties,
    "near ties of one sign": _near_ties_of_one_sign,
    "nearly opposite": _nearly_opposite,
    "huge common part": _huge_common_part,
}
OPTIONS = {  # what is tried for an option of this name, where the call leaves it open
    "rule": ["cyclic", "worst"],
    "stop": ["separated", None],
    "averaged": [True, False],
    "loss": ["exp", "logistic"],
    "schedule": ["constant", "sqrt"],
    "prox": ["l2", "entropy"],
    "gamma": [1.1, 2.0, 4.0],
    "accel": [3.0, 10.0, 50.0],
    "lam": ["1/log(1+t)", "1/sqrt(t)", "1/t", "1/t^2", "2^-t"],
    "a": [0.1, 0.25, 0.5],
    "b": [0.25, 0.5],
    "restart": [True, False],
    "shifted": [True, False],
    "variant": ["pairwise", "plain"],
    "seed": [0, 1, 2],
    "memory": [1.0, 500.0, 1e9],
    "tol": [0.5, 1e-2, 1e-6, 1e-9, 1e-12, 1e-15],
}


FREE_CALLS = [
    "max_margin",
    "momentum",
    "momentum, eps",
    "gradient_descent",
    "gradient_descent, step 1e6",
    "normalized_gradient_descent",
    "normalized_gradient_descent, sqrt",
]  # of a free intercept
EVERYTHING = {
    kind: FREE_CALLS
    if "free" in kind
    else [name for name in CALLS if CALLS[name].rows == (kind == "rows")]
    for kind in (*KINDS, "rows")
}
# Beside the usual kinds an ordinary run has a third of the others, with one call each: every base over or under some of
# the layers, in turn.
ORDINARY = {
    kind: calls if kind in (*USUAL, "rows") else [calls[k % len(calls)]]
    for k, (kind, calls) in enumerate(EVERYTHING.items())
    if kind in (*USUAL, "rows") or (k % len(BASES) + k // len(BASES)) % 3 == 0
}
TRIALS = ["", "watched", "stopped", "interrupted"]
SOLVED = {kind: ["max_margin"] for kind in KINDS}  # what laws are about


def random_problem(rng, calls=ORDINARY, trials=TRIALS):
    """One of the ``calls`` on a kind."""
    family = str(rng.choice(list(FAMILIES)))
    usual = [kind for kind in (*USUAL, "rows") if kind in calls]
    kind = str(rng.choice(usual if usual and rng.random() < 0.4 else list(calls)))
    n_classes = int(rng.choice([2, 3, 3, 3, 4, 6])) if "pairs" in kind else 2
    rows = np.zeros((1, 1), dtype=np.int64)
    free = "free" in kind
    while not rows.any() or free and len(rows) * (n_classes - 1) < 2:
        many = free and not any(
            word in kind for word in ("pairs", "ridge", "rbf", "laplacian", *POLYNOMIALS)
        )
        n = int(rng.integers(9, 30)) if many and rng.random() < 0.3 else int(rng.integers(2, 9))
        rows = FAMILIES[family](rng, n, int(rng.integers(1, 5)))[: max(n, 12) // (n_classes - 1)]
        family = "anything" if free and len(rows) == 1 else family
    sides = random_sides(rng, len(rows) * (n_classes - 1)) if free else []
    if free and "pairs" not in kind and rng.random() < 0.7:
        family = f"far {family}"
        rows = far_off(rng, rows, np.array(sides))
    if (
        kind == "rows"
    ):  # these are divided by their largest entry: a power of two, so that nothing is rounded
        rows = rows[rows.any(axis=1)]
        for row in rows:
            j = np.abs(row).argmax()
            row[j] = math.copysign(2 ** int(abs(row[j]) - 1).bit_length(), row[j])
    labels = []
    if "pairs" in kind and rng.random() < 0.85:
        labels = (
            rng.integers(0, n_classes, len(rows))
            if rng.random() < 0.3
            else rows.argmax(axis=1) % n_classes
        )
    power = random_power(rng, int(np.abs(rows).max()).bit_length())
    if kind.endswith("single"):  # about 1, so that weights are in its range, too
        power = -int(np.abs(rows).max()).bit_length()
    problem = Problem(
        family, rows.tolist(), power, kind, "", {}, list(map(int, labels)), n_classes, sides=sides
    )
    if "ridge" in kind:
        problem = problem._replace(ridges=random_ridges(rng, problem))
    while not fits(problem):
        problem = problem._replace(power=int(0.9 * problem.power))
    if kind.endswith("symmetric") and any(float(x) != x for row in base_gram(problem) for x in row):
        problem = problem._replace(
            kind=kind.replace("symmetric", "operator")
        )  # the promise is about what is stored
    name = str(rng.choice(calls.get(problem.kind, calls[kind])))
    trial = str(rng.choice(trials))
    if trial == "interrupted":
        trial += f" at {int(10.0 ** rng.uniform(2.0, 4.5))}"  # lines
    if trial == "stopped":
        trial += f" at {rng.integers(1, 9)}"  # calls of the callback
    options = random_options(rng, name, problem)
    if "start" in options and " at " in trial:
        del options["start"]
    return problem._replace(algorithm=algorithm_of(name), options=options, trial=trial)


def random_sides(rng, n):
    """Labels of two classes: as many in each, by chance, or one to three points in one of them."""
    how = rng.random()
    sides = np.full(n, rng.choice([-1, 1]))
    if n < 12 and how < 0.3:
        sides[::2] *= -1
    elif n < 12 and how < 0.6:
        sides = rng.choice([-1, 1], n)
    else:
        sides[rng.integers(0, n, rng.choice([1, 1, 3]))] *= -1
    if abs(sides.sum()) == n:
        sides[rng.integers(n)] *= -1
    return sides.tolist()


def far_off(rng, rows, sides):
    """Rows of points y_i z_i whose origin is 1e3 to 1e12 times their spread away, as far as integers are exact."""
    spread = int(np.abs(rows).max())
    offset = min(spread * 10.0 ** rng.uniform(3.0, 12.0), 2.0**52 - spread)
    return (
        rows
        if offset < spread
        else rows
        + sides[:, None] * rng.integers(-int(offset), int(offset), rows.shape[1], endpoint=True)
    )


def random_power(rng, bits):
    """A power of two for rows of so many bits: none, one that leaves them within the door, or anyone."""
    how = rng.random()
    if how < 0.4:
        return 0
    if how < 0.9:
        return int(rng.integers(-332 + min(bits, 26), 332 - bits))
    return int(rng.integers(-520, 460))


def random_ridges(rng, problem):
    """Around the size of G or, one time in ten, anywhere in the range of numbers."""
    diagonal = base_gram(problem)
    scale = max(diagonal[i][i] for i in range(len(diagonal)))
    count = 1 if rng.random() < 0.5 else 3
    power = scale.numerator.bit_length() - scale.denominator.bit_length()
    usual = problem.kind.endswith("single") or rng.random() < 0.9
    powers = power + rng.integers(-50, 30, count) if usual else rng.integers(-940, 940, count)
    powers = np.clip(powers, -1000, 940)
    return [math.ldexp(float(rng.integers(0 < k, 4)), int(power)) for k, power in enumerate(powers)]


def fits(problem):
    """Tell whether floats hold the numbers of a problem, and squares of what they hold."""
    if problem.kind == "rows":
        return abs(problem.power) < 400
    G = exact_gram(problem)
    largest = G.unit * max(G.entries[i][i] for i in range(len(G.entries)))
    return Fraction(1, 2**946) < largest < 2**946


def random_options(rng, name, problem):
    """The call's own options, and what it leaves open by chance: numbers with a unit in that of the rows."""
    call = CALLS[name]
    rows = problem.kind == "rows"
    G = of_rows(problem.Z()) if rows else exact_gram(problem)
    size = math.sqrt(G.unit * max(G.entries[i][i] for i in range(len(G.entries))))
    options = {
        "max_iter": int(10.0 ** rng.uniform(0.0, 3.3)) if rng.random() < 0.9 else 0,
        **call.own,
    }
    for option, power_of_c in call.units.items():
        options[option] = float(size**power_of_c * 10.0 ** rng.uniform(-12.0, 0.5))
    if call.witness and rng.random() < 0.5 and (square := margin_squared(G)):
        options[call.witness] = floats_around(square)[0] * (
            1.0 - 0.5 ** int(rng.integers(1, 40))
        )  # just below rho
    for option in inspect.signature(getattr(fm, algorithm_of(name))).parameters:
        if (
            option in OPTIONS
            and (option == "tol" or option not in call.own)
            and rng.random() < 0.6
            and not (G.signs and option == "loss")
        ):
            choices = OPTIONS[option]
            options[option] = choices[rng.integers(len(choices))]
        if option == "eps" and option not in options and rng.random() < 0.4:
            options[option] = float(size * 10.0 ** rng.uniform(-12.0, 0.5))
    for option in ("eps", "delta"):
        if options.get(option) == 0.0:  # in the unit of the rows it underflowed
            options[option] = sys.float_info.min
    if rng.random() < 0.25:
        options["trace_at"] = []
    if name == "max_margin" and rng.random() < 0.3:
        options["start"] = (
            over_decades(rng, len(G.entries)) * rng.integers(0, 2, len(G.entries))
        ).tolist()
    return options


def random_problems(seed, count, calls=ORDINARY, trials=TRIALS):
    rng = np.random.default_rng(seed)
    return [random_problem(rng, calls, trials) for _ in range(count)]


def problems(count, calls=SOLVED, trials=("",), seeds=(0,)):
    """Make of a law, a function of a `Problem` that asserts, the test that it holds for so many of each seed.

    Where it fails, the literals of the first problems are in the message, to be pasted.
    """

    def test_of(law):
        @pytest.mark.parametrize("seed", seeds)
        def test(seed):
            wrong = []
            for problem in random_problems(seed, count, calls, trials):
                try:
                    law(problem)
                except Exception as error:
                    wrong.append(f"{type(error).__name__}: {error}\n    {problem}")
            assert not wrong, f"{len(wrong)} of {count} problems:\n" + "\n".join(wrong[:5])

        test.__name__ = law.__name__
        test.__doc__ = law.__doc__
        test.__module__ = law.__module__
        return test

    return test_of
