"""Bounds and statuses against exact rationals, on random problems of small integers; no tolerance anywhere.

As a program it takes as many problems as one likes, and prints those that fail as literals to paste, with a summary:

    python tests/test_exact_rationals.py --problems 1000000 --jobs 2 --seed 0
"""

import argparse
import math
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # run as a program, it finds tests/ by itself and no more

import exact
import numba
import numpy as np
import pytest
from exact import Problem, faults, floats_around, judge, of_rows, problems, random_problems
from instances import CALLS, Own, algorithm_of, form, free, pair_rows, run, some

import fastmargin as fm

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:all labels"),  # of one class, as are some by chance
]


ON_GRAMS = [name for name, call in CALLS.items() if not call.rows]


# ======================================================================================================
# THE ORACLE ITSELF
# ======================================================================================================


def determinant(M):
    """By the first row."""
    return (
        sum(
            (-1) ** j * a * determinant([row[:j] + row[j + 1 :] for row in M[1:]])
            for j, a in enumerate(M[0])
            if a
        )
        if M
        else 1
    )


def brute_force(G):
    """min over the simplex of p'Gp: on each support, by Cramer's rule, the point whose (Gp)_i agree there."""
    best = None
    for size in range(1, len(G) + 1):
        for S in combinations(range(len(G)), size):
            M = [[G[s][t] + 1 for t in S] for s in S]
            D = determinant(M)
            if D:
                weights = [
                    determinant([row[:j] + [1] + row[j + 1 :] for row in M]) for j in range(size)
                ]
                if min(weights) * D >= 0:
                    p = [Fraction(w, sum(weights)) for w in weights]
                    square = sum(
                        p[a] * p[b] * G[s][t] for a, s in enumerate(S) for b, t in enumerate(S)
                    )
                    best = square if best is None else min(best, square)
    return best


def test_the_least_norm_is_that_of_the_best_support():
    problems = [problem for problem in random_problems(1, 600) if len(problem.rows) <= 5]
    families = {problem.family.removeprefix("far ") for problem in problems}
    assert families == set(exact.FAMILIES)
    for problem in problems:
        G = of_rows(problem.Z())
        square, p = exact.least_norm(G.entries)
        assert square == brute_force(G.entries), problem
        assert exact.weigh(G, p)[1] == square * sum(p) ** 2 and min(p) >= 0


def test_the_margin_in_rationals_is_that_known_by_geometry():
    identity = np.eye(4, dtype=int)
    hadamard = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    planted = np.array([[3, 1, -7, 2], [3, -1, 7, -2], [3, 4, 4, 4], [3, -4, -4, -4], [5, 9, 0, 9]])
    for Z, square in {
        "planted": (planted, 9),
        "turned": (planted @ hadamard, 36),
        "copies": (np.tile(planted, (2, 1)), 9),
        "one point": ([[3, 4]], 25),
        "a segment": ([[1, 0], [0, 1]], Fraction(1, 2)),
        "an end": ([[1, 1], [2, 5]], 2),
        "cross-polytope": (np.vstack((identity, -identity)), Fraction(-1, 4)),
        "simplex": (5 * np.eye(5) - 1, Fraction(-5, 4)),
        "on a line": ([[1, 2], [-3, -6]], -5),
        "on the boundary": ([[1, 0], [-1, 0], [0, 1]], 0),
        "a row of zeros": ([[0, 0], [1, 2]], 0),
        "zeros on a line": ([[0, 0], [1, 2], [-1, -2]], -5),
        "at a corner": ([[0, 0, 0], [1, 2, 3], [3, 2, 1]], 0),
    }.values():
        for power in (-450, 0, 200):
            scaled = np.ldexp(np.asarray(Z, dtype=np.float64), power)
            assert exact.signed_square_of_margin(of_rows(scaled)) == square * Fraction(2) ** (
                2 * power
            )
            assert exact.margin_squared(of_rows(scaled)) == max(square, 0) * Fraction(2) ** (
                2 * power
            )


def test_the_depth_is_that_of_the_best_direction():
    """In the plane, where all directions can be tried."""
    angles = np.linspace(0.0, 2.0 * math.pi, 20_001)
    circle = np.vstack((np.cos(angles), np.sin(angles)))
    deep = 0
    for problem in random_problems(2, 800):
        Z = np.array(problem.rows, dtype=np.float64)
        if Z.shape[1] == 2 and np.linalg.matrix_rank(Z) == 2:
            best = (Z @ circle).min(axis=0).max()
            size = np.abs(Z).max()
            square = float(exact.signed_square_of_margin(of_rows(Z)))
            assert (
                -1e-3 * size <= best - math.copysign(math.sqrt(abs(square)), square) <= 1e-12 * size
            )
            deep += square < 0.0
    assert deep > 10


def test_the_margin_with_a_free_intercept_is_that_of_the_best_direction():
    """In the plane: half the width of the slab between the classes, negative where they overlap."""
    angles = np.linspace(0.0, 2.0 * math.pi, 20_001)
    circle = np.vstack((np.cos(angles), np.sin(angles)))
    seen = []
    for problem in random_problems(2, 1000, {"free over features": exact.FREE_CALLS}):
        Z = np.array(problem.rows, dtype=np.float64)
        y = np.array(problem.sides)
        if (
            Z.shape[1] == 2
            and len(Z) < 9
            and not problem.family.startswith("far")
            and np.linalg.matrix_rank(Z) == 2
        ):
            m = Z @ circle
            size = np.abs(Z).max()
            best = 0.5 * (m[y > 0].min(axis=0) + m[y < 0].min(axis=0)).max()
            square = float(exact.signed_square_of_margin(of_rows(Z, problem.sides)))
            assert (
                -1e-3 * size <= best - math.copysign(math.sqrt(abs(square)), square) <= 1e-12 * size
            ), problem
            seen.append(np.sign(square))
    assert min(seen.count(sign) for sign in (-1.0, 0.0, 1.0)) > 1


def test_the_margin_in_rationals_with_a_free_intercept_is_that_known_by_geometry():
    for X, y, square in (
        ([[10, 1], [12, 0]], [1, -1], Fraction(5, 4)),
        ([[7], [9], [3]], [1, 1, -1], 4),
        ([[0, 0], [2, 2], [0, 3]], [1, 1, -1], Fraction(9, 8)),
        ([[0, 0], [4, 0], [1, 3], [3, 3]], [1, 1, -1, -1], Fraction(9, 4)),
        ([[1, 1], [1, 1]], [1, -1], 0),
        ([[0], [2], [1]], [1, 1, -1], Fraction(-1, 4)),
        (
            [[0, 1], [2, 1], [1, 1]],
            [1, 1, -1],
            0,
        ),  # of one class and the other on a line: that has a normal
    ):
        Z = np.array(y)[:, None] * np.array(X)
        for origin in (0, 10**9):
            G = of_rows(np.array(y)[:, None] * (np.array(X) + origin), y)
            on_a_line = np.linalg.matrix_rank(Z) == 1 and origin == 0
            assert exact.signed_square_of_margin(G) == (
                square if square >= 0 or on_a_line or Z.shape[1] == 1 else 0
            )
            assert exact.margin_squared(G) == max(square, 0)
            p = exact.best_point(G)
            assert p[np.array(y) > 0].sum() == 0.5 == p[np.array(y) < 0].sum()


def test_a_call_is_given_the_gram_matrix_that_is_judged():
    """Exactly where the numbers are small integers, else to the digits that a double has."""
    kinds = set()
    exactly = 0
    for problem in (
        problem
        for k, (kind, calls) in enumerate(exact.EVERYTHING.items())
        for problem in random_problems((4, k), 7, {kind: calls})
    ):
        Z = problem.Z()
        kinds.add(problem.kind)
        if not problem.kind.endswith("single"):
            assert [Fraction(x) for x in Z.ravel().tolist()] == [
                x * Fraction(2) ** problem.power for row in problem.rows for x in row
            ], problem
        if problem.kind == "rows":
            assert np.array_equal(np.frexp(np.abs(Z).max(axis=1))[0], np.full(len(Z), 0.5)), problem
            continue
        if exact.is_beyond(problem):
            continue
        given = exact.given(problem)
        G = exact.exact_gram(problem, exact.place_of(given))
        held = np.asarray(given)
        wanted = np.array([[float(x * G.unit) for x in row] for row in G.entries])
        digits = 1e-5 if problem.kind.endswith("single") else 1e-14
        np.testing.assert_allclose(
            held, wanted, rtol=0.0, atol=digits * wanted.max(), err_msg=repr(problem)
        )
        if wanted.max() < 2**24 and np.array_equal(wanted, np.rint(wanted)):
            exactly += 1
            assert np.array_equal(held, wanted), problem
    assert kinds == {"rows", *exact.KINDS} and exactly > 20


def test_floats_around_a_rational_are_the_nearest_on_either_side():
    for x in (0.1, 3.0, 1e-130, 1e60, -0.1, -7.0, 2.0**-450):
        assert floats_around(exact.signed_square(Fraction(x))) == (x, x)
    for square in (
        Fraction(2),
        Fraction(-2),
        Fraction(1, 3),
        Fraction(10**60 + 1),
        Fraction(-1, 3**500),
    ):
        low, high = floats_around(square)
        assert exact.signed_square(Fraction(low)) < square < exact.signed_square(Fraction(high))
        assert high == math.nextafter(low, math.inf)


# ======================================================================================================
# THE JUDGE
# ======================================================================================================


def a_result(alpha, p, lower, upper, trace):
    """With one row in the trace, of the given bounds."""
    row = np.array([(0, 0.0, 0.0, *trace)], dtype=fm.max_margin(np.eye(2)).trace.dtype)
    return fm.Result(np.asarray(alpha), np.asarray(p), lower, upper, "max_iter", 0, row, None, ())


def honest(G, alpha, p):
    """A result with the narrowest bounds that hold of alpha and p, and a trace of the narrowest that hold of rho."""
    lower, upper = exact.exact_interval(G, alpha, p)
    rho = exact.signed_square_of_margin(G)
    if lower is None:
        lower = -G.unit * max(row[i] for i, row in enumerate(G.entries))
    return a_result(
        alpha,
        p,
        floats_around(lower)[0],
        floats_around(upper)[1],
        (floats_around(rho)[0], floats_around(max(rho, 0))[1]),
    )


def up(x):
    return math.nextafter(x, math.inf)


def down(x):
    return math.nextafter(x, -math.inf)


def test_the_judge_accepts_the_narrowest_true_bounds_and_nothing_narrower():
    rng = np.random.default_rng(0)
    for problem in random_problems(3, 40):
        if problem.kind == "rows":
            continue
        G = exact.exact_gram(problem)
        best = exact.best_point(G)
        alpha, p = rng.normal(size=(2, len(best))) if rng.random() < 0.5 else (best, best)
        p = np.abs(p)
        for side in exact.sides_of(G):
            p[side] /= p[side].sum() * (2.0 if G.signs else 1.0)
        result = honest(G, alpha, p)
        assert faults(G, result) == [], problem
        if not G.has_ridge and exact.exact_interval(G, result.alpha, result.p)[0] is not None:
            assert "lower > margin of alpha" in faults(
                G, result._replace(lower=up(result.lower))
            ), problem
            wrong = result.lower + 1e-12 * abs(result.lower) if result.lower else 5e-324
            assert "lower > margin of alpha" in faults(G, result._replace(lower=wrong)), problem
        assert "upper < norm of p" in faults(G, result._replace(upper=down(result.upper))), problem
        rho = exact.signed_square_of_margin(G)
        assert "lower > rho" in faults(G, result._replace(lower=up(floats_around(rho)[0]))), problem
        assert "upper < rho" in faults(
            G, result._replace(upper=down(floats_around(max(rho, 0))[1]))
        ), problem
        trace = result.trace.copy()
        trace["lower"] = up(trace["lower"][0])
        assert faults(G, result._replace(trace=trace)) == ["trace: lower > rho"], problem
        trace = result.trace.copy()
        trace["upper"] = down(trace["upper"][0])
        assert faults(G, result._replace(trace=trace)) == ["trace: upper < rho"], problem


def test_the_judge_accepts_a_status_only_with_its_proof():
    G = of_rows([[1.0, 2.0], [1.0, -2.0]])
    alpha = np.array([1.0, 1.0])
    result = honest(G, alpha, alpha / 2)
    assert (result.lower, result.upper) == (1.0, 1.0)
    for status, options, words in (
        ("separated", {}, []),
        ("rounding", {}, []),
        ("certified", {"tol": 1e-15}, []),
        ("infeasible", {"eps": 1.0}, []),
        ("infeasible", {"eps": down(1.0)}, ["infeasible: rho > eps", "infeasible: upper > eps"]),
        ("certified", {}, ["certified: gap > tol"]),
        ("running", {}, ["not a status"]),
    ):
        assert faults(G, result._replace(status=status), **options) == words
    loose = result._replace(lower=0.0, status="certified")
    assert faults(G, loose, tol=0.5) == ["certified: gap > tol"] and faults(G, loose, tol=1.0) == []
    assert faults(G, loose._replace(status="separated")) == ["separated: lower <= 0"]
    still = result._replace(alpha=np.zeros(2), lower=-3.0, status="separated")
    assert faults(G, still) == ["separated: G alpha > 0 is false", "separated: lower <= 0"]
    for p in ([1.5, -0.5], [0.0, 0.0]):
        assert faults(G, result._replace(p=np.array(p), upper=9.0)) == ["p outside the simplex"]
    assert faults(G, result._replace(upper=math.nan)) == ["not finite"]


def test_the_judge_asks_for_half_of_the_weight_in_each_class():
    """Points 1 and 5 of one class, 0 of the other: b is the best, and p has half its weight in each class."""
    G = of_rows([[1.0], [5.0], [0.0]], (1, 1, -1))
    result = honest(G, np.array([1.0, 0.0, 1.0]), np.array([0.5, 0.0, 0.5]))
    assert (result.lower, result.upper) == (0.5, 0.5) and not faults(G, result)
    assert "lower > rho" in faults(G, result._replace(lower=up(0.5)))
    assert faults(G, result._replace(p=np.array([0.25, 0.25, 0.5]))) == ["upper < norm of p"]
    for p in ([0.5, 0.5, 0.0], [0.6, 0.0, 0.4], [0.5, 0.0, 0.5 + 1e-10]):
        assert faults(G, result._replace(p=np.array(p))) == [
            "p has not half its weight in each class"
        ]


def test_the_judge_sees_a_state_of_another_iteration():
    """A state that is not that of n_iter iterations shows by alpha; what alpha does not show, on the way on."""
    given = Own(np.array([[3.0, 1.0], [2.0, -5.0], [7.0, 7.0]]))
    G = of_rows(given.Z)

    def judged(result):
        return faults(G, result._replace(status="max_iter"))

    def found(part):
        return exact.continuation_faults(call, judged, part)

    def call(**options):
        return fm.momentum(given, **{"max_iter": 50, **options})

    part = call(max_iter=5)
    assert found(part) == []
    wrong = found(part._replace(n_iter=4))
    assert "partial result: alpha is not that of n_iter iterations" in wrong
    assert "going on: not as a whole run" in wrong
    *origin, arrays = part.state
    moved = part._replace(state=(*origin, [array + (k == 1) for k, array in enumerate(arrays)]))
    assert "going on: not as a whole run" in found(moved)
    kept = []
    with pytest.raises(KeyboardInterrupt):
        exact.interrupted_at(400, lambda: call(callback=kept.append))
    assert found(kept[-1]) == [] and exact.interrupted_at(10**6, call).n_iter == 50


def test_the_judge_accepts_no_narrower_bounds_of_l1_margins():
    Z = np.array([[1.0, -0.5, 0.25], [0.5, 1.0, -0.25], [-0.25, 0.5, 1.0]])
    weights = [0.5, 0.25, 0.25]
    bounds = (0.25, 0.5625)
    result = a_result(weights, weights, *bounds, bounds)._replace(status="separated")
    assert exact.l1_faults(Z, result) == []
    assert exact.l1_faults(-Z, a_result(weights, weights, -0.4375, -0.125, (-0.4375, -0.125))) == []
    assert exact.l1_faults(Z, result._replace(lower=up(0.25))) == ["lower > margin of w"]
    assert exact.l1_faults(Z, result._replace(upper=down(0.5625))) == ["upper < max_j (Z'p)_j"]


# ======================================================================================================
# PROBLEMS
# ======================================================================================================

CHUNKS = 40
CHUNK = 50  # problems in all tests; the ordinary ones have 16 chunks


@problems(CHUNK, exact.ORDINARY, exact.TRIALS, some(range(CHUNKS), range(16)))
def test_no_interval_or_status_on_random_problems_is_false(problem):
    verdict = judge(problem)
    assert not verdict[1], verdict


def describe(problem, status, found):
    return f"{status}: {'; '.join(found)}\n    {problem}"


# fmt: off
WRONG_ONCE = [
    # Scores of classes nearly agree: of (1, ..., 1), all in the first of them, they are 6h (x_c - (x_1 + x_2 + x_3)/3).
    Problem(
        "permutations",
        [list(x) for x in permutations(scores)],
        0,
        kind,
        name,
        {"tol": 1e-5},
        [0, 0, 1, 2, 1, 2],
        3,
    )
    for scores, kind, name in (
        ((33444647272430, 33444647267648, 768710934), "pairs over features", "subspace_perceptron"),
        ((6049807378, 6049807376, 19281131), "pairs over sparse", "max_margin"),
    )
] + [
    # A ridge of 16 decades left the equations of a low rank singular.
    Problem(
        "far nearly infeasible",
        [
            [1624211145439, 1193419155698, -1271935513983, 1207363467742],
            [-1624211134904, -1193419168359, 1271935523908, -1207363467740],
            [1624211154788, 1193419153392, -1271935522136, 1207363467742],
        ],
        0,
        "ridge over free over rbf",
        "max_margin",
        {"max_iter": 28, "tol": 1e-12},
        ridges=[64.0, 268435456.0, 5.960464477539063e-08],
        sides=[1, -1, 1],
    ),
    # A ridge of 366 decades leaves a point without a length next to the largest; weights to begin with are others'.
    Problem("huge common part", [[-798583920066, 1334188799802], [-798583920066, 1334188799816]],
        -402, "ridge over pairs over sparse", "max_margin", {"max_iter": 100, "tol": 1e-15, "start":
        [0.0, 1e194, 1e-122, 1e275]}, [1, 1], 3, [2e-197, 1.5e169, 2.6e64]),
    Problem("opposite", [[232338], [-232340]], 0, "pairs over sparse", "max_margin", {"tol": 1e-6},
        [0, 1], 3),
    # lower was that of other weights than alpha.
    Problem("planted", [[4, -2, -1, 2], [3, 1, 0, -1], [3, -2, 1, -2], [3, -1, 1, 2], [3, -1, 0,
        1]], 104, "features", "gradient_descent", {"max_iter": 6, "step": 1e6, "tol": 1e-15}),
    # A row is at no distance from the point, as computed, that it is to improve.
    Problem("one dimension", [[2**28 + 3], [2**28]], 0, "features", "von_neumann", {"max_iter": 3,
        "eps": 1e-3}),
    Problem("one dimension", [[-70749835145798], [-70749835145789], [-70749835145785],
        [-70749835145789], [-70749835145782]], -123, "features", "von_neumann", {"max_iter": 11,
        "eps": 2.8e-33}),
    # A free intercept takes from margins what they have in common, whose rounding was not counted.
    Problem("far", [[1763204], [1763192], [-1763173], [-1763141]], 0, "free over features",
        "momentum", {"tol": 1e-9, "max_iter": 8}, sides=[1, 1, -1, -1]),
    Problem("far", [[2107712, 2095095], [-2103124, -2087066], [2089360, 2103124]], 0,
        "free over features", "max_margin", {"tol": 1e-13}, sides=[1, -1, 1]),
    Problem("far", [[5.2], [-5.3]], 0, "free over features", "max_margin", {"tol": 1e-9}, sides=[1,
        -1]),
    Problem("far duplicates", [[-54864], [54857], [-54864], [54857], [-54864]], 135,
        "ridge over free over poly", "max_margin", {"tol": 1e-6}, ridges=[9.293855677986144e282],
        sides=[1, -1, 1, -1, 1]),
    # A ridge so far above the rest that bounds in units of it underflow.
    Problem("anything", [[65], [-30], [59], [-72], [21], [18]], -132, "ridge over free over dense",
        "max_margin", {}, ridges=[4.92e260, 7.11e-161, 6.2e-120], sides=[-1, 1, 1, -1, 1, -1]),
    # A run that ends before its first iteration, and one that Ctrl-C ends within an iteration.
    Problem("stopped", [[1], [2], [3]], 0, "free over linear", "momentum", {}, sides=[-1, 1, 1],
        trial="stopped at 1"),
    Problem("interrupted", [[0], [-9], [0]], 0, "free over dense", "normalized_gradient_descent",
        {}, sides=[-1, -1, 1], trial="interrupted at 1535"),
    # Far from the origin rounding left some point no length at the origin that a stage begins with.
    Problem("far anything", [[-460743917], [460743914], [-460743917], [460743918], [-460743917],
        [460743917], [-460743915], [460743914]], -293, "free over sparse", "max_margin", {"tol":
        1e-12}, sides=[-1, 1, -1, 1, -1, 1, -1, 1]),
    # A product that confirms what the loop holds replaced it, but not the length that had been taken from it.
    Problem("margin of zero", [[886235], [482372], [-312236], [580853], [-267286], [436632],
        [746474], [0]], -20, "ridge over single", "frank_wolfe", {"eps": 3.946832187253389e-08,
        "stop": None, "tol": 0.5}, ridges=[1.4210854715202004e-14], trial="stopped at 4"),
    # Z'p cancelled in both parts of its double precision, so that their product was not small against its square.
    Problem("far nearly opposite", [[-3555863495263767], [3555863489369293], [3555863500552814],
        [-3555863492401447], [-3555863489369292], [3555863487112399]], -349, "free over rows made",
        "gradient_descent", {"max_iter": 8, "tol": 0.5}, sides=[1, -1, -1, 1, 1, -1],
        trial="watched"),
    # ||p||_G^2 in twice the working precision was below the normal range, where numbers have few digits.
    Problem("rank one", [[1846], [7384], [8307], [1846], [2769], [1846], [-2769], [2769]], -485,
        "features", "frank_wolfe", {"max_iter": 1, "eps": 3.635047059968293e-143, "tol": 1e-15}),
    Problem("nearly opposite", [[1322931452, -1277835269, 3486005880, -3026111593], [-802952150,
        -1536987781, 3643215246, -1875348511], [-2788480948, 3004269276, -2718106247, -1999038839],
        [-511972139, 2439687778, 780835343, -705868541], [-1322931451, 1277835268, -3486005877,
        3026111590], [802952145, 1536987779, -3643215249, 1875348512], [2788480947, -3004269273,
        2718106246, 1999038839], [511972140, -2439687776, -780835340, 705868536]], -495, "features",
        "perceptron", {"max_iter": 3, "tol": 0.5}),
    # Iterates overflow before the library that multiplies by them says so.
    Problem("overflow", [[-346220, 322930], [-593056, 161538]], -423, "pairs over symmetric",
        "gradient_descent", {"max_iter": 21, "step": 1e6, "tol": 0.5, "trace_at": []}, [2, 0], 6),
    # A step of 1e6 s^-1 at s = 2^-576, or 2^-614: the sum of weights overflows.
    Problem("large weights", [[6], [-6], [-1], [1], [1]], -288, "features", "gradient_descent",
        {"max_iter": 122, "step": 1e6}),
    Problem("large weights", [[-59157, 561313, 340798, 175133], [582865, 752540, 41163, 99371],
        [-568584, 108362, 318546, 627164], [340437, 963171, 186890, 775759], [-471490, 900939,
        334277, 873545], [-487478, -51740, 246106, 0], [487478, 51740, -246106, 0]], -307, "dense",
        "gradient_descent", {"max_iter": 13, "step": 1e6}),
    # rho = 2.475488255 among rows of length 3e5 was called infeasible.
    *(Problem("nearly infeasible", [[82020, 153963, 3], [-255124, 200296, 1], [-176977, -81950, 3],
        [-108096, 178695, 2], [94666, -174371, 3]], 0, kind, "max_margin", {"tol": 1e-9}) for kind
        in ("dense", "features")),
    # A plane that single precision hides is no proof of an indefinite matrix: its origin is far away.
    Problem("rank one", [[470, -43], [1410, -129], [3290, -301], [3290, -301], [-1410, 129], [-4230,
        387]], 24, "free over dense", "max_margin", {"max_iter": 196, "tol": 1e-12, "start": [0.0,
        4.440614793211335e-139, 7.84e-41, 0.0, 9.98e-48, 1.27e-62]}, sides=[1, -1, 1, -1, 1, -1]),
]
# fmt: on


@pytest.mark.parametrize(
    "problem", WRONG_ONCE, ids=lambda problem: f"{problem.algorithm}, {problem.kind}"
)
def test_no_interval_or_status_that_was_false_once_is_false(problem):
    verdict = judge(problem)
    assert not verdict[1], describe(problem, *verdict)


@pytest.mark.parametrize("name", ["gradient_descent", "momentum"])
def test_bounds_hold_where_rounding_is_as_large_as_the_number_of_pairs_allows(name):
    """n copies of x = 1 are all of the first of C = n classes: by symmetry p is uniform, rho^2 = C / (2 (C - 1)), and
    n (C - 1) equal terms, the largest that there can be, are rounded one like the other."""
    n = 800
    G = fm.pair_gram(fm.features(np.ones((n, 1)), 1, normalize=None), np.zeros(n), n)
    trace = run(name, G, max_iter=8, trace_at=range(9)).trace
    below, above = floats_around(Fraction(n, 2 * (n - 1)))
    assert trace["lower"].max() <= below and trace["upper"].min() >= above


@pytest.mark.dear
def test_bounds_hold_where_operations_are_not_fused(tmp_path):
    """On the least of processors, sums are rounded more often and in another order than on one with wide vectors."""
    environment = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    for command in (
        [
            __file__,
            "--problems",
            "300",
            "--twins",
            "0",
            "--kinds",
            "features",
            "pairs over features",
            "--algorithms",
            "momentum",
            "gradient_descent",
            "max_margin",
        ],
        [
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            __file__,
            "-k",
            test_bounds_hold_where_rounding_is_as_large_as_the_number_of_pairs_allows.__name__,
        ],
    ):
        program = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True
        )
        assert program.returncode == 0, program.stdout + program.stderr


@pytest.mark.parametrize("power", [0, 90])
@pytest.mark.parametrize(
    "name, kind",
    [
        (name, kind)
        for name, kind in product(CALLS, ("dense", "features"))
        if CALLS[name].held and (CALLS[name].cost or not CALLS[name].halts)
    ],
)
def test_what_a_loop_holds_is_proven_of_its_iterates(name, kind, power):
    """After hundreds of recurrences, and to eleven digits: bounds of the very alpha and p that a callback is given, not
    of rho alone."""
    rows = [[7, 3, 1], [5, -9, 2], [6, 1, -8], [8, 2, 3], [9, -4, 5], [3, 6, -2], [11, -2, -7]]
    call = CALLS[name]
    if call.halts:
        rows.append([-13, 1, 4])  # no margin
    own = {key: call.own[key] * 2.0 ** (power * grows) for key, grows in call.units.items()}
    G = form(kind, np.array(rows) * 2.0**power)
    unscaled = of_rows(rows)
    slack = []

    def look(partial):
        if partial.status == "running":
            lower, upper = exact.exact_interval(unscaled, partial.alpha, partial.p)
            square = [
                exact.signed_square(Fraction(bound)) / 4**power
                for bound in (partial.lower, partial.upper)
            ]
            assert (lower is None or square[0] <= lower) and upper <= square[1]
            slack.append(float(square[1] - upper))

    for max_iter in (30, 600):
        run(
            name,
            G,
            max_iter=max_iter,
            callback=look,
            trace_at=range(max_iter - 25, max_iter),
            **own,
        )
    assert (
        len(slack) >= 20 and min(slack) > 0.0 and max(slack) < 1e-8
    )  # of 174, the largest squared length


def separated_twins(seed):
    """Points that are given twice, with opposite labels, under kernels: the calls that separate them, of how many."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1 + seed % 4, int(rng.integers(1, 4))))
    y = np.repeat([1, -1], len(X))
    wrong = []
    count = 0
    for kernel in ("rbf", "poly"):
        G = fm.gram(np.vstack((X, X)), y, kernel=kernel)
        for name in ON_GRAMS:
            result = run(name, G, max_iter=300)
            count += 1
            if result.status == "separated" or result.lower > 0.0:
                wrong.append(f"points given twice, seed {seed}: {kernel}, {name}: {result}")
    return wrong, count


@pytest.mark.parametrize("seed", range(8))
def test_points_with_both_labels_are_never_separated(seed):
    wrong, count = separated_twins(seed)
    assert count >= 2 * len(fm.ALGORITHMS) and not wrong, "\n" + "\n".join(wrong)


def test_class_weights_that_are_rounded_cost_digits_of_margins():
    """Three classes, and points nearly on a line: a class weight is a sum of two weights, which rounding changes."""
    X = np.array([[28541.0, 12468.0], [25888.0, 11404.0], [-5190.0, -1060.0]])
    labels = [1, 0, 0]
    G = fm.pair_gram(fm.features(X, normalize=None), labels, 3)
    exact_G = of_rows(np.array(pair_rows(X.tolist(), labels, 3)))
    exact_G = exact_G._replace(unit=exact_G.unit / 2)
    square = exact.signed_square_of_margin(exact_G)
    p = exact.best_point(exact_G)
    for precise in (False, True):
        ends = fm.certificate(G, p, p, precise=precise)
        assert not exact.interval_faults(exact_G, square, *ends, p, p)


# ======================================================================================================
# PLAIN SLACKS
# ======================================================================================================


def random_problem_with_cost(rng):
    """(G of fastmargin, exact `Gram`, costs): rows of small integers, with copies, ties and zeros; the intercept free
    or not, one class nearly empty or not; costs from 1e-8 to 1e8 over s, of all points or one for each; or of pairs."""
    if rng.random() < 0.25:
        return random_pairs_with_cost(rng)
    n = int(rng.integers(2, 6))
    Z = rng.integers(-3, 4, (n, int(rng.integers(1, 4)))).astype(float)
    Z[0, 0] = Z[0, 0] or 1.0
    if rng.random() < 0.3:
        Z[-1] = Z[0] * rng.choice([-1.0, 1.0])
    Z *= 2.0 ** rng.integers(-30, 30)
    signs = ()
    if rng.random() < 0.5:
        signs = np.where(rng.random(n) < rng.choice([0.2, 0.5]), 1.0, -1.0)
        signs[:2] = 1.0, -1.0
    cost = 10.0 ** rng.uniform(-8, 8) * np.ones(n)
    if rng.random() < 0.3:
        cost *= 10.0 ** rng.uniform(-2, 2, n)
    cost /= (Z**2).sum(axis=1).max()
    G = fm.features(Z, 1, normalize=None) if rng.random() < 0.7 else fm.Gram(Z @ Z.T)
    if len(signs):
        G = free(G, signs)
    exact_G = of_rows(Z, [int(y) for y in signs])
    return G.with_cost(cost), exact_G, list(map(Fraction, cost.tolist()))


def random_pairs_with_cost(rng):
    """The same of the pairs of two or three points of three classes, with a cost for each pair."""
    n_points = int(rng.integers(2, 4))
    X = rng.integers(-3, 4, (n_points, 2)).astype(float)
    X[0, 0] = X[0, 0] or 1.0
    labels = rng.integers(0, 3, n_points)
    cost = 10.0 ** rng.uniform(-8, 8) * 10.0 ** rng.uniform(0, 2, 2 * n_points)
    K = fm.features(X, normalize=None) if rng.random() < 0.7 else fm.Gram(X @ X.T)
    G = fm.pair_gram(K, labels, 3, cost=cost)
    exact_G = of_rows(np.array(pair_rows(X.tolist(), labels, 3)))
    return G, exact_G._replace(unit=exact_G.unit / 2), list(map(Fraction, cost.tolist()))


def random_weights(rng, G):
    """Weights alpha of any kind, and p, as `certificate` takes them."""
    n = len(G)
    alpha = rng.normal(size=n) * 10.0 ** rng.uniform(-6, 6) * (rng.random(n) < 0.8)
    p = rng.exponential(size=n) * (rng.random(n) < 0.8) + 1e-6
    if G.free_labels is not None:
        for side in (1.0, -1.0):
            p[G.free_labels == side] /= 2.0 * p[G.free_labels == side].sum()
    return alpha, p / p.sum()


def faults_with_cost(seed):
    """What is false of certificates, of `max_margin` and of `separator_margin` on a random problem, in a few words."""
    rng = np.random.default_rng([90, seed])
    G, exact_G, cost = random_problem_with_cost(rng)
    least = exact.least_objective_with_cost(exact_G, cost)
    found = []
    for precise in (False, True):
        alpha, p = random_weights(rng, G)
        if not exact.holds_with_cost(least, *fm.certificate(G, alpha, p, precise=precise)):
            found.append("certificate")
    result = fm.max_margin(G, tol=1e-6)
    if not exact.holds_with_cost(least, result.lower, result.upper):
        found.append("max_margin")
    if result.status == "certified" and result.upper - result.lower > 1e-6 * result.upper:
        found.append("status")
    if result.separator is None:  # the objective of alpha and the bias is what lower proves
        alpha_of_f = list(map(Fraction, result.alpha.tolist()))
        P = exact.objective_with_cost(exact_G, cost, alpha_of_f, Fraction(result.bias))
        if not exact.holds_with_cost(P, result.lower, math.inf):
            found.append("model")
    if hasattr(G.store, "n_classes"):  # of pairs
        return found
    # A separator by the weights of all points, and a bias
    bias = float(rng.normal()) if G.free_labels is not None else None
    w = alpha / np.abs(alpha).max() if alpha.any() else np.ones(len(G))
    w = w * 10.0 ** rng.uniform(-2, 2) / G.scale
    labeled = G._changed(labels=np.ones(len(G)) if bias is None else G.labels)
    given = (labeled.labels * w).tolist() + ([] if bias is None else [bias])
    try:
        ends = fm.separator_margin(labeled, given, support=np.arange(len(G)))
    except ValueError as error:
        assert "its points cancel" in str(error)
        return found
    P = exact.objective_with_cost(
        exact_G, cost, list(map(Fraction, w.tolist())), Fraction(bias or 0.0)
    )
    if not exact.holds_with_cost(P, *ends):
        found.append("separator_margin")
    return found


@pytest.mark.parametrize("seed", some(range(20), range(4)))
def test_no_interval_with_a_cost_is_false(seed):
    wrong = {
        number: found
        for number in range(50 * seed, 50 * seed + 50)
        if (found := faults_with_cost(number))
    }
    assert not wrong


def test_most_problems_with_a_cost_are_certified():
    """To six digits: an interval that is only true says nothing."""
    rng = np.random.default_rng(91)
    statuses = [fm.max_margin(random_problem_with_cost(rng)[0]).status for _ in range(100)]
    assert statuses.count("certified") >= 95


# ======================================================================================================
# AS A PROGRAM
# ======================================================================================================


def judge_chunk(what):
    """What is wrong in a chunk, and how many problems of each (family, kind, algorithm, status) it had."""
    numba.set_num_threads(1)
    problems = random_problems(*what)
    verdicts = [(problem, *judge(problem)) for problem in problems]
    return [verdict for verdict in verdicts if verdict[2]], Counter(
        (problem.family, problem.kind, problem.algorithm, status) for problem, status, _ in verdicts
    )


def main():
    parser = argparse.ArgumentParser(description="Random problems against exact rationals.")
    parser.add_argument("--problems", type=int, default=CHUNKS * CHUNK)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kinds", nargs="+", default=list(exact.EVERYTHING), help="representations"
    )
    parser.add_argument("--algorithms", nargs="+", default=[*fm.ALGORITHMS, "winnow"])
    parser.add_argument(
        "--trials",
        nargs="+",
        default=exact.TRIALS,
        help="watched, stopped, interrupted, or '' for none",
    )
    parser.add_argument(
        "--show", type=int, default=5, help="problems printed of each fault and algorithm, at most"
    )
    parser.add_argument(
        "--twins", type=int, default=36, help="seeds of points given twice, 50 runs each"
    )
    args = parser.parse_args()
    size = 500
    calls = {
        kind: [name for name in exact.EVERYTHING[kind] if algorithm_of(name) in args.algorithms]
        for kind in args.kinds
    }
    calls = {kind: names for kind, names in calls.items() if names}
    chunks = [
        ((args.seed, k), min(size, args.problems - k), calls, args.trials)
        for k in range(0, args.problems, size)
    ]
    done = 0
    wrong = 0
    tally = Counter()
    bad = Counter()
    kinds = Counter()
    shown = Counter()
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for found, counts in pool.imap(judge_chunk, chunks):
            done = done + sum(counts.values())
            wrong = wrong + len(found)
            tally += counts
            for problem, status, words in found:
                what = [
                    word.partition(":")[0] if word.startswith("raised") else word for word in words
                ]
                bad[problem.family, problem.kind, problem.algorithm, status] += 1
                kinds.update(what)
                shown.update((word, problem.algorithm) for word in what)
                if min(shown[word, problem.algorithm] for word in what) <= args.show:
                    print(describe(problem, status, words))
            print(
                f"\r{done} of {args.problems} problems, {wrong} wrong",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    for seed in range(args.seed, args.seed + args.twins):
        twins, count = separated_twins(seed)
        wrong += len(twins)
        tally["points given twice", "dense", "", ""] += count
        bad["points given twice", "dense", "", ""] += len(twins)
        print(*twins[: args.show], sep="\n", end="\n" * bool(twins))
    for column in range(4):
        totals = Counter()
        wrongs = Counter()
        for of, into in ((tally, totals), (bad, wrongs)):
            for key, count in of.items():
                into[key[column]] += count
        print(
            f"\n{('family', 'representation', 'algorithm', 'status')[column]:34}{'problems':>10}{'wrong':>10}"
        )
        for key in sorted(filter(None, totals)):
            print(f"{key:34}{totals[key]:10}{wrongs[key]:10}")
    print(f"\n{'fault':50}{'problems':>10}")
    for word, count in kinds.most_common():
        print(f"{word:50}{count:10}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
