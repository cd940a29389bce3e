"""Planes that need not pass through the origin: what is found of half the distance of two convex hulls, from other
origins and by other algorithms.  That bounds and statuses hold is a matter of test_exact_rationals.py."""

import re
from fractions import Fraction

import exact
import numpy as np
import pytest
from exact import (
    FREE_CALLS,
    exact_gram,
    exact_interval,
    faults,
    given,
    is_beyond,
    margin_squared,
    of_rows,
    place_of,
    random_problems,
    sides_of,
)
from instances import CALLS, Own, algorithm_of, check_raises, meet, run, without_margin

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")


KINDS = {
    "features": lambda Z, y: fm.features(y[:, None] * Z, y, normalize=None, intercept="free"),
    "dense": lambda Z, y: fm.gram(
        y[:, None] * Z, y, kernel="linear", normalize=None, intercept="free"
    ),
    "lazy": lambda Z, y: fm.lazy_gram(
        y[:, None] * Z, y, kernel="linear", normalize=None, intercept="free"
    ),
}


@pytest.mark.parametrize(
    "algorithm", [fm.momentum, fm.gradient_descent, fm.normalized_gradient_descent]
)
def test_a_first_step_from_equal_classes_is_that_without_a_bias(algorithm):
    """Because b = 0 has the least risk at alpha = 0."""
    rng = np.random.default_rng(82)
    y = np.repeat([-1.0, 1.0], 8)
    Z = rng.normal(size=(16, 3))
    K = fm.gram(Z @ Z.T, kernel="precomputed", normalize=None, intercept="free").signed(y)
    one = algorithm(K, max_iter=1).alpha
    other = algorithm(K.dense(), max_iter=1).alpha
    np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("cost", [np.inf, 1.0])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_the_normal_and_the_bias_of_a_plane_are_those_of_the_points_as_given(shift, cost):
    """The bias of a result belongs to the points minus G.origin."""
    rng = np.random.default_rng(81)
    y = np.repeat([-1.0, 1.0], 30)
    X = rng.normal(size=(60, 2)) + 4.0 * y[:, None] + shift
    G = fm.features(X, y, normalize=None, intercept="free", cost=cost)
    assert (G.origin is None) == (shift == 0.0)
    result = fm.max_margin(G)
    w = result.alpha @ G.coordinates()
    b = result.bias - (0.0 if G.origin is None else w @ G.origin)
    np.testing.assert_allclose(X @ w + b, G.decision_function(result, X), atol=1e-9)


def both_classes(rng, n):
    return np.append([1.0, -1.0], rng.choice([-1.0, 1.0], n - 2))


@pytest.mark.parametrize("base", ["features", "dense", "linear", "sparse", "mapped", "own"])
def test_margins_are_found_and_certified(base):
    """What is not is near the digits; and the bound of a random p is no further away than that."""
    rng = np.random.default_rng(1)
    seen = []
    for problem in random_problems(len(base), 60, {f"free over {base}": ["max_margin"]}):
        if is_beyond(problem):
            continue
        G = given(problem)
        of_integers = exact_gram(problem, place_of(G))
        rho2 = margin_squared(of_integers)
        result = fm.max_margin(G, tol=1e-9, max_iter=30)
        p = rng.random(len(G)) ** 3
        for side in sides_of(of_integers):
            p[side] *= 0.5 / p[side].sum()
        for precise in (False, True):
            upper = fm.certificate(G, p, p, precise=precise)[1]
            of_p = float(exact_interval(of_integers, p, p)[1])
            assert of_p <= Fraction(upper) ** 2 and upper**2 <= of_p * (1 + 1e-9) + 1e-6 * G.scale
        if problem.family.startswith("far"):
            continue  # rounding may hide their margins
        if rho2 > 1e-6 * G.scale:
            seen.append(result.status == "certified")
        elif rho2 == 0:
            seen.append(result.status == without_margin(G))
    assert np.mean(seen) >= 0.85 and len(seen) > 10  # else by rounding


@pytest.mark.parametrize("name", FREE_CALLS)
def test_algorithms_agree_with_the_hulls(name):
    """Those that take a free intercept close in on the exact margin, at every checkpoint from both sides."""
    rng = np.random.default_rng(5)
    X = rng.integers(-9, 10, (8, 2)).astype(float)
    y = np.repeat([1.0, -1.0], 4)
    X[:4, 0] = 14 + abs(X[:4, 0])
    Z = y[:, None] * X
    wanted = {"gradient_descent": 0.3, "normalized_gradient_descent, sqrt": 0.8}
    rho = float(margin_squared(of_rows(Z, map(int, y)))) ** 0.5
    for kind in ("features", "dense"):
        result = run(name, KINDS[kind](Z, y), tol=1e-3, max_iter=4000)
        assert not faults(of_rows(Z, map(int, y)), result, tol=1e-3)
        assert result.status == "certified" or wanted.get(name, 0.9) * rho < result.lower


@pytest.mark.parametrize("ridge", [0.0, 0.5])
@pytest.mark.parametrize(
    "name", [name for name, call in CALLS.items() if name not in FREE_CALLS and not call.rows]
)
def test_algorithms_without_a_free_intercept_refuse_it_and_name_those_that_have_it(name, ridge):
    """Before anything is said: no partial result of theirs would be true."""
    X = np.array([[3.0, 1.0], [4.0, 0.0], [9.0, 9.0], [1.0, -2.0]])
    y = [1, -1, -1, -1]
    for G in (fm.features(X, y, intercept="free", ridge=ridge), Own(X, np.array(y, dtype=float))):
        shown = []
        with pytest.raises(ValueError, match=r"\bintercept\b") as caught:
            run(name, G, max_iter=3, callback=shown.append)
        assert not shown
        remedies = set(re.findall(r"\w+", str(caught.value))).intersection(fm.ALGORITHMS)
        assert remedies and remedies <= {algorithm_of(taker) for taker in FREE_CALLS}


@pytest.mark.parametrize("kind", ["features", "dense", "lazy"])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_rows_moved_from_the_origin_have_the_same_margin_plane_and_scores(kind, ridge):
    """Rows moved by up to a thousand times their size have the same margin, plane and scores, to the digits left."""
    rng = np.random.default_rng(3)
    y = np.repeat([1.0, -1.0], 30)
    X = rng.normal(size=(60, 4)) + 1.5 * y[:, None]
    options = {"normalize": None, "intercept": "free"}
    make = {
        "features": fm.features,
        "dense": lambda X, y, **rest: fm.gram(X, y, kernel="linear", **rest),
        "lazy": lambda X, y, **rest: fm.lazy_gram(X, y, kernel="linear", **rest),
    }[kind]
    new = rng.normal(size=(9, 4))
    found = []
    for offset in (0.0, 10.0, 1000.0):
        G = make(X + offset, y, ridge=ridge, **options)
        result = fm.max_margin(G, tol=1e-6)
        scores = G.decision_function(result, new + offset)
        found.append((result, scores / result.upper))
    (first, scores) = found[0]
    others = found[1:]
    for other, moved in others:
        assert meet(first, other)
        assert other.status == "certified"
        np.testing.assert_allclose(moved, scores, atol=2e-2)


def test_two_points_have_half_of_their_distance():
    """Two points: half their distance, after no step; and the plane is half-way."""
    G = fm.features([[5.0, 1.0], [2.0, -3.0]], [1, -1], normalize=None, intercept="free")
    result = fm.max_margin(G, tol=1e-12)
    assert result.status == "certified" and result.lower == pytest.approx(2.5, rel=1e-12)
    assert abs(G.decision_function(result, [[3.5, -1.0]])[0]) < 1e-12


@pytest.mark.parametrize("kind", ["features", "lazy"])
def test_a_run_goes_on_where_it_ended(kind):
    rng = np.random.default_rng(2)
    y = np.repeat([1.0, -1.0], 150)
    Z = rng.normal(size=(300, 299))
    G = KINDS[kind](Z, y)
    whole = fm.max_margin(G, tol=1e-13, max_iter=4)
    part = fm.max_margin(G, tol=1e-13, max_iter=1)
    rest = fm.max_margin(G, tol=1e-13, max_iter=3, start=part)
    assert rest.n_iter == whole.n_iter > 1 and np.array_equal(rest.p, whole.p)


@pytest.mark.parametrize("make", [fm.features, fm.gram, fm.lazy_gram])
def test_points_of_one_class_are_no_part_of_a_plane(make):
    kernel = {} if make is fm.features else {"kernel": "linear"}
    for ridge in (0.0, 0.5):
        G = make(
            [[1.0, 2.0], [2.0, 1.0], [-1.0, 0.0]],
            [1, 1, -1],
            intercept="free",
            ridge=ridge,
            **kernel,
        )
        check_raises(lambda G=G: G.restrict(np.array([0, 1])), ValueError, ["both classes"])
        assert fm.max_margin(G.restrict(np.array([0, 2]))).lower > 0.0


@pytest.mark.parametrize("make", [fm.features, fm.gram, fm.lazy_gram])
@pytest.mark.parametrize(
    "X, y, ridge",
    [
        ([[-1.0], [0.0], [0.0]], [-1, -1, 1], [1e12, 2e12, 0.0]),
        ([[0.0], [0.0], [0.0], [1.0]], [1, -1, -1, 1], [1.0, 0.0, 0.0, 2.0]),
    ],
)
def test_the_margin_is_exact_with_half_of_the_points_at_the_origin_and_one_without_a_ridge(
    make, X, y, ridge
):
    kernel = {} if make is fm.features else {"kernel": "linear"}
    rows = [[s * Fraction(x) for x in row] for s, row in zip(y, X, strict=True)]
    G = [
        [exact.dot(a, b) + (i == j) * Fraction(ridge[i]) for j, b in enumerate(rows)]
        for i, a in enumerate(rows)
    ]
    rho2 = exact.margin_squared(exact.gram_of(G, y))
    for offset in (0.0, 1.0, 3.0):
        G = make(np.array(X) + offset, y, normalize=None, intercept="free", ridge=ridge, **kernel)
        result = fm.max_margin(G, tol=1e-8)
        assert result.status == "certified"
        assert Fraction(result.lower) ** 2 <= rho2 <= Fraction(result.upper) ** 2


@pytest.mark.parametrize("origin", [0.0, 1.0])
def test_mirrored_points_lose_no_digits(origin):
    """Of o + x and o - x in the two classes the best plane passes through o: it is found as well as one through 0.

    The margin is so small that the last digits come from products in twice the working precision.
    """
    rng = np.random.default_rng(4)
    X = np.round(rng.normal(size=(40, 8)) * 2.0**20) / 2.0**20
    X[:, 0] = np.round(10.0 * (1.0 + rng.random(40))) / 2.0**20
    y = np.repeat([1.0, -1.0], 40)
    plain = fm.max_margin(fm.features(np.vstack((X, -X)), y, normalize=None), tol=1e-15)
    result = fm.max_margin(
        fm.features(np.vstack((origin + X, origin - X)), y, normalize=None, intercept="free"),
        tol=1e-15,
    )
    assert meet(plain, result)
    assert result.upper - result.lower <= 4.0 * (plain.upper - plain.lower) < 1e-5 * plain.upper


@pytest.mark.parametrize("make", [fm.gram, fm.lazy_gram])
@pytest.mark.parametrize("n, offset, gamma, ridge", [(60, 0.0, 0.1, 0.05), (200, 2.0, 0.3, 0.5)])
def test_slacks_and_a_free_intercept_are_solved_in_a_few_products(make, n, offset, gamma, ridge):
    """What the solver keeps is of a moved origin, from the first step to the last: else it creeps."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, 3)) + offset
    y = both_classes(rng, n)
    G = make(X, y, gamma=gamma, intercept="free", ridge=ridge)
    result = fm.max_margin(G, tol=1e-8)
    assert result.status == "certified" and result.trace["products"][-1] <= 20.0


def test_columns_on_demand_follow_the_origin():
    """A kernel on demand, of which columns are added: no round is lost beside a matrix of the same kernel."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(1500, 5))
    y = both_classes(rng, 1500)
    X[:, 0] += 2.0 * y
    options = {"gamma": 0.1, "intercept": "free", "ridge": 0.05}
    dense, lazy = (
        fm.max_margin(make(X, y, **options), tol=1e-8) for make in (fm.gram, fm.lazy_gram)
    )
    assert dense.status == lazy.status == "certified"
    assert meet(lazy, dense) and lazy.n_iter <= dense.n_iter + 1
