"""Laws: what holds of the margin of every G, each on random problems of all kinds, whose literals a failure prints.

Two intervals that are about one margin must meet; that each holds it is a matter of test_exact_rationals.py.
"""

import itertools

import numpy as np
import pytest
from exact import EVERYTHING, KINDS, POLYNOMIALS, given, is_beyond, problems
from instances import meet, run, same_result

import fastmargin as fm

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:all labels"),  # of one class, as are some by chance
]

OF_DISTANCES = ("rbf", "laplacian")  # whose gamma follows the points
NOT_LINEAR = (*OF_DISTANCES, *POLYNOMIALS)


def kernel_of(kind):
    return kind.split(" over ")[-1].partition(" ")[0]


def kinds(*without):
    """Every kind of G that the solver takes, but for those of some bases or layers."""
    return {
        kind: ["max_margin"]
        for kind in KINDS
        if not {kernel_of(kind), *kind.split(" over ")[:-1]}.intersection(without)
    }


def solved(problem):
    return fm.max_margin(given(problem), tol=1e-9)


def gram(problem):
    G = given(problem)
    return G if isinstance(G, fm.Gram) else fm.Gram(G)


def may_be(G, index):
    """Tell whether some of the points have a margin that is defined."""
    classes = 1 if G.free_labels is None else np.unique(G.free_labels[index]).size - 1
    return classes == 1 and G.diagonal()[index].any()


@problems(100, kinds("own", "single", "operator", "symmetric"))
def test_adding_a_point_never_raises_the_margin(problem):
    if not is_beyond(problem):
        G = gram(problem)
        whole = fm.max_margin(G, tol=1e-9)
        for left in range(len(G)):
            others = np.delete(np.arange(len(G)), left)
            if may_be(G, others):
                assert whole.lower <= fm.max_margin(G.restrict(others), tol=1e-9).upper, left


@problems(100)
def test_a_rotation_keeps_the_margin(problem):
    """Of coordinates that change places and signs, and by the reflection I - vv'/2, v = (1, 1, 1, 1)."""
    if is_beyond(problem):
        return
    one = solved(problem)
    rows = np.array(problem.rows)
    d = rows.shape[1]
    rng = np.random.default_rng(d)
    turn = np.eye(d, dtype=int)[rng.permutation(d)] * rng.choice([-1, 1], d)
    assert meet(one, solved(problem._replace(rows=(rows @ turn).tolist())))
    if d == 4 and kernel_of(problem.kind) not in NOT_LINEAR and np.abs(rows).max() < 2**50:
        ridges = [4.0 * r for r in problem.ridges]
        twice = (rows @ (2 * np.eye(4, dtype=int) - 1)).tolist()
        two = solved(problem._replace(rows=twice, ridges=ridges))
        assert meet(one, two._replace(lower=two.lower / 2, upper=two.upper / 2))


@problems(100, kinds(*POLYNOMIALS))
def test_scaling_scales_the_margin(problem):
    """By a power of two, to the bit; kernels of distances, whose gamma follows the points, stay as they are."""
    factor = 1.0 if kernel_of(problem.kind) in OF_DISTANCES else 4.0
    ridges = [factor**2 * r for r in problem.ridges]
    other = problem._replace(power=problem.power + 2, ridges=ridges)
    if not (is_beyond(problem) or is_beyond(other)):
        one, two = solved(problem), solved(other)
        assert (two.lower, two.upper) == (factor * one.lower, factor * one.upper)
        assert two.status == one.status and np.array_equal(two.p, one.p)


@problems(100, kinds("own", "single", "operator", "symmetric", "ridge"))
def test_copies_and_the_order_of_points_change_nothing(problem):
    if not is_beyond(problem):
        G = gram(problem)
        one = fm.max_margin(G, tol=1e-9)
        order = np.random.default_rng(len(G)).permutation(len(G))
        for index in (order, [*order, order[0], order[0]], [*order, *order]):
            assert meet(one, fm.max_margin(G.restrict(index), tol=1e-9)), index


@problems(12, EVERYTHING, seeds=range(4))
def test_intervals_of_all_algorithms_meet(problem):
    """Those of every checkpoint, for each algorithm that takes this kind."""
    if problem.kind == "rows" or is_beyond(problem):
        return
    best = solved(problem)
    for name in EVERYTHING[problem.kind]:
        if "1e6" not in name:  # long steps may overflow, and say so
            trace = run(name, given(problem), max_iter=40).trace
            assert best.lower <= trace["upper"].min() and trace["lower"].max() <= best.upper, name


@pytest.mark.filterwarnings("ignore:no margin", "ignore:the margin is known")
@problems(30, {kind: ["max_margin"] for kind in ("features", "free over features")})
def test_relabelling_and_back_gives_the_same_bits(problem):
    """With both labels exchanged G is the same, a bias and all scores have the other sign; names of classes are none of
    a classifier's business, but for their order."""
    X, y = problem.X(), problem.signs()
    if is_beyond(problem) or np.ptp(y) == 0.0:
        return
    for make, intercept in itertools.product((fm.gram, fm.lazy_gram, fm.features), (0.0, "free")):
        K = make(X, normalize=None, intercept=intercept)
        one, other, back = (fm.max_margin(K.signed(labels)) for labels in (y, -y, y))
        same_result(back, one)
        same_result(other._replace(bias=-other.bias), one)
    scores = [
        fm.MaxMarginClassifier(loss="squared_hinge").fit(X, classes).decision_function(X)
        for classes in (y, np.where(y > 0.0, "high", "below"), np.where(y > 0.0, "a", "b"))
    ]
    assert np.array_equal(scores[0], scores[1]) and np.array_equal(scores[0], -scores[2])
