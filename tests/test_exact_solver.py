"""max_margin against enumeration, against instances of known margin, by its optimality conditions, on real data."""

import functools
import itertools
import math
import tracemalloc

import exact
import naive
import numpy as np
import pytest
from exact import margin_squared, of_rows
from instances import (
    BY_ROWS,
    EPS,
    PLANTED,
    REPRESENTATIONS,
    Csr,
    check_raises,
    compiled,
    cross_polytope,
    dense,
    every_representation,
    feasible,
    form,
    meet,
    mnist_sample,
    off_the_best,
    rotate,
    rows_of,
    same_result,
    scale_of,
    sparse,
    two_classes,
    without_margin,
)

import fastmargin as fm

append = compiled(fm._append)

TOLERANCES = [1e-3, 1e-9, 1e-12]


def reachable(kind, tol, s, rho):
    """The tolerance, unless G does not allow as little: 6 u s / rho^2 over a dense G, with room for those of Z Z', and
    up to u s / rho^2 over features, where the weights are rounded."""
    return max(tol, (2e-16 if kind == "features" else 2e-15) * s / rho**2)


def check_answer(Z, result, tol, kind):
    """What a certified answer promises, recomputed from the rows in extended precision."""
    s = (Z**2).sum(axis=1).max()
    n = len(Z)
    p = result.p
    assert result.status == "certified", (result.status, result.lower, result.upper)
    assert result.upper - result.lower <= tol * result.upper
    assert (p >= 0).all() and abs(p.sum() - 1) <= (4 + np.sqrt(n)) * EPS
    assert np.array_equal(result.alpha, p)
    lower, upper = naive.interval(Z, p, p)
    slack = 4 * (sum(Z.shape) + 10) * EPS * s / upper  # the rounding stated in `certificate`
    assert abs(lower - result.lower) <= slack and abs(upper - result.upper) <= slack
    # optimality: the support's margins are level at ||p||, no margin is below it, up to what the gap allows
    m = Z @ (Z.T @ p)
    gap = upper * (upper - lower) + upper * slack
    assert m.min() >= upper**2 - gap - slack * upper
    assert p @ (m - m.min()) <= gap + slack * upper  # complementarity
    assert (np.diff(result.trace["upper"]) <= slack).all()


def check_answer_where_all_support(G, v, result, tol):
    """The same where the answer is known, because all margins of v > 0 are 1: rho^2 is 1 / sum v, and p is as near to
    v / sum v as the interval leaves it."""
    rho = float(1.0 / np.sqrt(v.sum()))
    best = v / v.sum()
    assert best.min() > 0.0
    assert result.status == "certified" and result.upper - result.lower <= tol * result.upper
    assert result.lower <= rho <= result.upper
    off = result.p - best
    assert np.sqrt(off @ (G @ off)) <= off_the_best(result.upper**2, result.lower)


@rotate("seed, kind, tol", range(40), REPRESENTATIONS, TOLERANCES)
def test_the_margin_is_the_least_norm_over_all_supports(seed, kind, tol):
    """Random small problems of every sort; the least norm over all affinely independent supports."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    d = int(rng.integers(1, 6))
    Z = rng.normal(size=(n, d)) + rng.choice([0.0, 1.0, 4.0])
    if seed % 3 == 0:
        Z = np.round(Z)  # ties, copies, rows of zeros
    if seed % 4 == 1:
        Z = Z / np.linalg.norm(Z, axis=1)[:, None]
    if not Z.any():
        Z[0] = 1.0
    G = form(kind, Z)
    exact = naive.least_norm(Z)
    s = scale_of(G)
    result = fm.max_margin(G, tol=tol)
    if exact > 1e-6 * np.sqrt(s):
        check_answer(Z, result, tol, kind)
        assert abs(result.upper**2 - exact**2) <= 2 * tol * exact**2 + 30 * EPS * s
    else:
        zeros = not Z.any(axis=1).all()  # a row of zeros is a proof, however entries are rounded
        assert result.status == ("infeasible" if zeros else without_margin(G))
        assert result.upper <= 3e-8 * np.sqrt(s)
        assert np.linalg.norm(Z.T @ result.p) <= 1e-7 * np.sqrt(s)


@rotate("seed, kind", range(60), REPRESENTATIONS)
def test_two_points_on_a_thin_angle_both_have_their_weight(seed, kind):
    """The violator lies within a thousandth of the margin, and alone outside the support: no round may pass it by."""
    angle = 10.0 ** -(1 + seed / 15)
    Z = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]) * np.array(
        [[1.0], [1.0 + (seed % 3) * angle**2 / 9]]
    )
    exact = naive.least_norm(Z)
    result = fm.max_margin(form(kind, Z), tol=1e-12)
    check_answer(Z, result, 1e-12, kind)
    assert abs(result.lower - exact) <= 1e-11 and abs(result.upper - exact) <= 1e-11


@rotate("case, kind, tol", PLANTED, REPRESENTATIONS, TOLERANCES, crossed=2)
def test_a_planted_margin_is_found_to_the_tolerance(case, kind, tol):
    Z, rho = PLANTED[case]
    G = form(kind, Z)
    s = scale_of(G)
    if rho > 0:
        tol = reachable(kind, tol, s, rho)
    result = fm.max_margin(G, tol=tol)
    if rho > 0:
        check_answer(Z, result, tol, kind)
        assert abs(result.upper**2 - rho**2) <= 2 * tol * rho**2 + 4 * (sum(Z.shape) + 10) * EPS * s
        assert abs(result.lower - rho) <= tol * rho + 4 * (sum(Z.shape) + 10) * EPS * s / rho
    else:
        assert result.status == ("infeasible" if case == "a row of zeros" else without_margin(G))
        assert result.upper <= (1e-9 if kind == "features" else 3e-8) * np.sqrt(s)
        assert np.linalg.norm(Z.T @ result.p) <= 1e-7 * np.sqrt(s)
        assert result.lower <= 0


@every_representation
@pytest.mark.parametrize("rho", [1e-2, 1e-3, 1e-4])
def test_tiny_margins_are_found_until_rounding_is_said_to_hide_them(kind, rho):
    """tol stands above the conditioning of a dense G, and at it "rounding" says so."""
    Z, _ = feasible(80, 6, rho, seed=3)
    tol = reachable(kind, 1e-12, 1.0, rho)
    result = fm.max_margin(form(kind, Z), tol=tol)
    check_answer(Z, result, tol, kind)
    assert abs(result.upper**2 - rho**2) <= 2 * tol * rho**2 + 400 * EPS
    assert abs(result.lower - rho) <= tol * rho + 400 * EPS / rho
    if kind != "features":
        assert fm.max_margin(form(kind, Z), tol=tol / 10).status == "rounding"


def cube(d):
    """Vertices of a cube at distance 1 from the origin: 2^(d-1) support vectors, far more than the weights need."""
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * d)).reshape(d, -1).T
    corners[:, 0] += 2.0
    return corners, 1.0


DEGENERATE = {
    "cube": cube(6),
    "facet of a cross-polytope": cross_polytope(7, 1.5),
    "copies of two points": (np.repeat([[1.0, 0.2], [1.0, -0.3]], 25, axis=0), 1.0),
    "one class, all equal": (np.tile([[0.3, 0.4]], (30, 1)), 0.5),
    "a segment through the foot": (np.column_stack((np.ones(41), np.linspace(-1, 1, 41))), 1.0),
    "a plane of rank two in ten dimensions": (
        np.column_stack((np.ones(50), np.sin(np.arange(50))))
        @ np.linalg.qr(np.random.default_rng(0).normal(size=(10, 2)))[0].T,
        1.0,
    ),
    "a regular polygon around the foot": (
        np.column_stack(
            (
                np.full(64, 0.2),
                np.cos(np.arange(64) * np.pi / 32),
                np.sin(np.arange(64) * np.pi / 32),
            )
        ),
        0.2,
    ),
}


@every_representation
@pytest.mark.parametrize("case", DEGENERATE)
def test_margins_with_more_points_on_a_face_than_it_needs_are_found(case, kind):
    Z, rho = DEGENERATE[case]
    result = fm.max_margin(form(kind, Z), tol=1e-12)
    check_answer(Z, result, 1e-12, kind)
    assert abs(result.upper - rho) <= 1e-12


@every_representation
@pytest.mark.parametrize("offset", [3000.0, 4000.0, 6000.0, 1e5])
def test_intervals_hold_for_points_too_much_alike_for_single_precision(kind, offset):
    """Far from 0: intervals hold the margin, and nothing overflows."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        X = rng.normal(size=(60, 4))
        y = np.where(X[:, 0] > 0, 1.0, -1.0)
        X[:, 0] += 0.3 * y
        Z = y[:, None] * np.column_stack((X + offset, np.ones(60)))
        result = fm.max_margin(form(kind, Z), tol=1e-6)
        assert exact.holds(margin_squared(of_rows(Z)), result.lower, result.upper)


def test_weights_beyond_the_range_of_numbers_leave_points_infeasible():
    rows = np.array([[2e-155, 1.0], [1e-155, -1.0], [-3e-155, 1.0]])
    result = fm.max_margin(fm.features(rows, 1, normalize=None))
    assert result.status == "infeasible" and result.lower <= 0.0


@pytest.mark.parametrize("start", [8947, 8993])
def test_an_interval_holds_for_points_that_rounding_does_not_tell_apart(start):
    """Faces that lose all their points by rounding: what was known before is given."""
    rows = np.array([[s * (start + k), s] for k, s in enumerate((-1.0, -1.0, 1.0, 1.0))])
    result = fm.max_margin(fm.features(rows, 1, normalize=None))
    assert result.lower <= 0.5 / math.hypot(start + 1.5, 1.0) <= result.upper * (1 + 1e-12)


def unlike_columns(n, d):
    """Rows of three classes, one column of which is a million times as long as the others."""
    X = rows_of(n, d, seed=1)
    X[:, 0] *= 1e6
    return fm.pair_gram(fm.features(X, normalize=None), np.arange(n) % 3, 3)


def test_the_search_by_coordinates_calls_back_and_can_be_stopped():
    """It follows the end of the run; what a callback does to the partial result changes nothing."""
    G = unlike_columns(30, 20)
    alone = fm.max_margin(G)
    assert alone.status == "certified" and alone.separator is not None
    seen = []

    def watch(partial):
        seen.append((partial.status, partial.separator is not None))
        if partial.separator is not None:
            partial.separator[:] = np.nan
        partial.p[:] = partial.alpha[:] = np.nan

    same_result(fm.max_margin(G, callback=watch), alone)
    assert ("rounding", False) in seen and seen[-1] == ("running", True)
    stopped = fm.max_margin(G, callback=lambda partial: partial.separator is not None)
    assert stopped.status == "stopped" and not stopped.note
    assert alone.lower > stopped.lower and stopped.upper >= alone.lower


def test_rounding_is_not_taken_for_a_proof():
    """Where entries are rounded, a witness says nothing of margins below what is hidden."""
    rng = np.random.default_rng(3)
    X = np.column_stack((1e6 + np.arange(6.0), np.ones(6)))
    y = [-1, -1, -1, 1, 1, 1]
    rho = 0.5 / math.hypot(1e6 + 2.5, 1.0)
    assert fm.max_margin(fm.features(X, y, normalize=None), tol=1e-6).lower == pytest.approx(
        rho, rel=1e-6
    )
    hidden = fm.max_margin(fm.gram(X, y, kernel="linear", normalize=None))
    assert hidden.status == "rounding" and hidden.lower <= rho <= hidden.upper
    assert "features(X, y)" in hidden.note and hidden.note in repr(hidden)
    opposite = np.vstack((rng.normal(size=(5, 3)), np.ones((1, 3)), -np.ones((1, 3))))
    assert fm.max_margin(fm.features(opposite, 1, normalize=None)).status == "infeasible"
    zeros = fm.features([[2.0], [0.0], [0.0]], [1, 1, -1], normalize=None, intercept="free")
    assert fm.max_margin(zeros).status == "infeasible"


@pytest.mark.parametrize("classes", (0, 3))
def test_a_first_point_of_zeros_without_a_ridge_is_the_witness(classes):
    """What asks the first point alone for precise products divides by its scale, which is 0."""
    G = fm.features([[0.0, 0.0], [94.0, -96.0], [16.0, 67.0]], 1, normalize=None)
    ridge = np.array([0.0, 1e9, 6e9])
    if classes:
        G = fm.pair_gram(G, [0, 1, 0], classes)
        ridge = np.repeat(ridge, 2)
    result = fm.max_margin(G.with_ridge(ridge), tol=1e-12)
    assert result.status == "infeasible" and result.p[0] > 0.999


@rotate("n, d, gap, kind", [300, 1200], [3, 40], [0.5, 4.0, 9.0], REPRESENTATIONS, crossed=2)
def test_random_classes_are_certified_or_have_no_separator(n, d, gap, kind):
    """More points than a working set holds; separable or not."""
    X, y = two_classes(n, d, gap, seed=n + d)
    Z = fm.features(X, y).coordinates()
    for tol in (1e-9, 1e-12):
        result = fm.max_margin(form(kind, Z), tol=tol)
        if result.lower <= 0.0:
            assert np.linalg.norm(Z.T @ result.p) <= 1e-7
            p = fm.momentum(fm.features(Z, 1, normalize=None), max_iter=3000)
            assert p.lower <= 1e-7  # and no other method finds a separator
        else:
            check_answer(Z, result, tol, kind)


# ======================================================================================================
# WHAT IT MUST SURVIVE
# ======================================================================================================


@rotate("n, kind", [*range(1, 18), 31, 32, 33, 63, 64, 65], REPRESENTATIONS)
def test_margins_are_certified_at_any_size_around_that_of_blocks(n, kind):
    """Sizes around those of blocks and parts."""
    check_answer(np.eye(n), fm.max_margin(form(kind, np.eye(n)), tol=1e-12), 1e-12, kind)
    lengths = 1.0 + np.arange(n)[:, None]
    tol = reachable(kind, 1e-12, n**2, 1.0)
    result = fm.max_margin(form(kind, lengths * [[0.6, 0.8]]), tol=tol)
    assert result.status == "certified"
    assert abs(result.upper - 1.0) <= tol
    assert abs(result.p[0] - 1.0) <= tol
    Z = rows_of(n, 3, seed=n) + [1.0, 2.0, 3.0]
    result = fm.max_margin(form(kind, Z), tol=1e-9)
    if margin_squared(of_rows(Z)):
        check_answer(Z, result, 1e-9, kind)
    else:
        assert result.status == without_margin(form(kind, Z))


def test_random_labels_are_separated_until_one_contradicts_another():
    """A Gaussian kernel on points with labels at random: separable, all support; one point twice, and it is not."""
    X = rows_of(700, 3)
    y = np.sign(rows_of(700, 1, 9)[:, 0])
    for G in (fm.gram(X, y, gamma=20.0), fm.lazy_gram(X, y, gamma=20.0)):
        result = fm.max_margin(G, tol=1e-6)
        assert result.status == "certified" and (result.p > 0).mean() > 0.5
    X = np.vstack((X, X[5:6]))
    y = np.append(y, -y[5])
    for G in (fm.gram(X, y, gamma=20.0), fm.lazy_gram(X, y, gamma=20.0)):
        result = fm.max_margin(G)
        assert result.upper <= 1e-5 and set(np.flatnonzero(result.p > 1e-3)) == {5, 700}


# The one table of constants that tests replace: with these small problems go the ways of those that take hours, and the
# tests over it ask for the answer alone.
ROOMS = {
    "usual": {},
    "small sets": {"_LARGEST_FACE": 20, "_FEW": 10, "_LARGEST_SET": 60},
    "no sets": {"_LARGEST_SET": 100, "_FULL": 0.005, "_FEW_POINTS": 0, "_EVALUATED": 256},
    "full sets": {"_FULL": 0.005, "_AT_ONCE": 5000, "_FEW_POINTS": 0},
    "few turns": {"_TURNS": 4, "_ITERATIONS_LEFT": 0, "_FEW": 5, "_CLOSER": 1e-9},
    "one full set": {"_LARGEST_SET": 150, "_FEW": 10},
    "no table": {"_MOST_COORDINATES": 5, "_WRITTEN_DOWN": 0, "_FULL": 0.005},
}


def give_room(name, monkeypatch):
    for limit, value in ROOMS[name].items():
        monkeypatch.setattr(fm, limit, value)


def noisy(n, seed=0):
    """Points with labels of which a quarter is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, np.where(rng.random(n) < 0.25, -1, 1) * np.where(X[:, 0] > 0.0, 1, -1)


def five_classes(n, width):
    """(points, labels) of five classes; one point in each is 0."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 5
    X = (
        rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.5)
        + 2.0 * np.eye(5, width)[labels]
    )
    X[:5] = 0.0
    return X, labels


def of_classes(make):
    """G of pairs, of a function that makes K of the points."""

    def pairs(ridge, intercept):
        X, labels = five_classes(120, 20)
        return fm.pair_gram(make(X), labels, 5, ridge=ridge)

    return pairs


def of_noise(make, **kernel):
    return lambda **options: make(*noisy(400), **kernel, **options)


def of_counts(make):
    """Points of more coordinates than there are points, most of them 0."""

    def rows(**options):
        X = np.random.default_rng(0).poisson(0.1, size=(300, 400)).astype(float)
        y = np.where(X[:, :5].sum(axis=1) + X[:, 5] > 0.0, 1, -1)
        return fm.features(make(X), y, normalize=None, **options)

    return rows


WAYS = {  # G of points that slacks separate
    "dense": of_noise(fm.gram, gamma=0.2),
    "lazy": of_noise(fm.lazy_gram, gamma=0.2),
    "poly": of_noise(fm.lazy_gram, kernel="poly", degree=2),
    "laplacian": of_noise(fm.lazy_gram, kernel="laplacian"),
    "rows": of_noise(fm.features),
    "wide rows": of_counts(np.asarray),
    "wide sparse rows": of_counts(Csr),
    "pairs": of_classes(lambda X: fm.gram(X, gamma=0.3)),
    "lazy pairs": of_classes(lambda X: fm.lazy_gram(X, gamma=0.3)),
    "pairs of rows": of_classes(lambda X: fm.features(X, 1, normalize=None)),
    "pairs of sparse rows": of_classes(sparse),
}


@rotate(
    "kind, room, ridge, intercept", WAYS, ROOMS, [0.05, 5.0, "unequal"], [0.0, "free"], crossed=2
)
def test_every_way_leads_to_the_optimum(kind, room, ridge, intercept, monkeypatch):
    """Whatever limits leave to methods: a certified answer, by whose weights primal and dual objectives are level, and
    bit for bit the same one where the run is cut."""
    usual = WAYS[kind](ridge=0.0, intercept=0.0)
    n = len(usual)
    ridge = np.geomspace(0.05, 5.0, n) if ridge == "unequal" else ridge
    G = WAYS[kind](ridge=ridge, intercept=intercept)
    give_room(room, monkeypatch)
    result = fm.max_margin(G, tol=1e-6)
    assert result.status == "certified"
    g = G.dense() @ result.p
    y = G.free_labels
    if y is not None:
        g += 0.5 * (g[y < 0].min() - g[y > 0].min()) * y
    assert duality_gap(g - ridge * result.p, ridge, result.p) <= 4e-6
    again = fm.max_margin(G, tol=1e-6, start=fm.max_margin(G, tol=1e-6, max_iter=1))
    assert again.n_iter == result.n_iter and np.array_equal(again.p, result.p)


HARD = {  # G of points that have a margin
    "dense": lambda X, y: fm.gram(X, y, gamma=2.0),
    "lazy": lambda X, y: fm.lazy_gram(X, y, gamma=2.0),
    "rows": lambda X, y: fm.features(np.column_stack((X, 2.0 * np.eye(len(X)))), y),
    "sparse rows": lambda X, y: fm.features(Csr(np.column_stack((X, 2.0 * np.eye(len(X))))), y),
    "pairs": lambda X, y: fm.pair_gram(fm.gram(X, gamma=2.0), np.arange(len(y)) % 4, 4),
    "lazy pairs": lambda X, y: fm.pair_gram(fm.lazy_gram(X, gamma=2.0), np.arange(len(y)) % 4, 4),
}


@rotate("kind, room", HARD, ROOMS, crossed=2)
def test_every_way_leads_to_the_margin(kind, room, monkeypatch):
    """With a support that is larger than sets and faces may be; from weights of all points, too."""
    G = HARD[kind](*two_classes(150, 4, seed=3))
    usual = fm.max_margin(G, tol=1e-6)
    give_room(room, monkeypatch)
    result = fm.max_margin(G, tol=1e-6)
    warm = fm.max_margin(G, tol=1e-6, start=np.ones(len(G)))
    assert result.status == warm.status == usual.status == "certified" and meet(result, warm, usual)
    assert (result.p > 0).sum() > 60
    for cut in range(1, result.n_iter):
        again = fm.max_margin(G, tol=1e-6, start=fm.max_margin(G, tol=1e-6, max_iter=cut))
        assert again.n_iter == result.n_iter and np.array_equal(again.p, result.p)


@every_representation
@pytest.mark.parametrize("rho", [0.2, -0.3])
def test_a_run_begins_with_the_weights_of_another_problem(kind, rho):
    """Good or bad ones: the answer is the same; the first interval is theirs, the status that of this problem."""
    Z = feasible(40, 7, 0.2, 3)[0] if rho > 0.0 else cross_polytope(20)[0]
    G = form(kind, Z)
    n = len(Z)
    cold = fm.max_margin(G)
    other = fm.max_margin(form(kind, Z + 0.1)).alpha
    rng = np.random.default_rng(0)
    for start in (
        other,
        cold.alpha,
        1e200 * rng.random(n),
        1e-200 * np.eye(n)[3],
        np.zeros(n),
        np.ones(n, int),
        list(other),
    ):
        given = np.array(start)
        warm = fm.max_margin(G, start=start)
        assert warm.status == cold.status and np.array_equal(given, start)
        assert meet(warm, cold)
        if given.any() and warm.n_iter > 0:  # else the row is that of more precise products
            alpha = given / given.sum()
            wanted = fm.certificate(G, alpha, alpha, precise=warm.n_iter == 0)
            assert (warm.trace["lower"][0], warm.trace["upper"][0]) == pytest.approx(
                wanted, rel=1e-9, abs=1e-12
            )
        first = fm.max_margin(G, start=start, max_iter=1)
        whole = fm.max_margin(G, start=first) if first.status == "max_iter" else first
        assert whole.n_iter == warm.n_iter and np.array_equal(whole.alpha, warm.alpha)


@pytest.mark.parametrize("slacks", ["cost", "ridge"])
def test_weights_to_begin_with_count_although_a_point_with_slacks_is_zero(slacks):
    """A row of zeros is a witness only without slacks."""
    X, y = two_classes(40, 3, 0.5, 0)
    X[7] = 0.0
    G = fm.features(X, y, normalize=None, **{slacks: 1.0})
    alpha = np.random.default_rng(0).random(40)
    warm = fm.max_margin(G, start=alpha, tol=1e-6)
    wanted = fm.certificate(G, alpha, alpha / alpha.sum())
    assert (warm.trace["lower"][0], warm.trace["upper"][0]) == pytest.approx(wanted, rel=1e-9)
    assert warm.status == "certified" and meet(warm, fm.max_margin(G, tol=1e-6))


def test_a_start_of_another_problem_or_algorithm_is_refused_with_a_remedy():
    for other in (fm.max_margin(np.eye(3)), fm.momentum(np.eye(4), max_iter=3)):
        check_raises(
            lambda other=other: fm.max_margin(np.eye(4), start=other),
            ValueError,
            ["same algorithm and shape", "start=result.alpha"],
        )


@pytest.mark.parametrize("r", [0.0, 0.5, -0.5])
def test_a_clipped_step_is_the_minimum_of_its_pair(r):
    """Of x'Hx / 2 - v'x along (1, -1): nothing violates afterwards."""
    H = np.zeros((2, 2 + 64), np.float32)
    H[:, :2] = [[1.0, r], [r, 1.0]]
    x = np.zeros(2)
    v = np.array([1.0, -1.0], np.float32)
    steps, worst = fm._clipped_steps(
        H, x, v, np.full(2, -9.0), np.full(2, 9.0), np.float32(1e-6), 1
    )
    assert steps == 1 and worst <= 1e-6
    np.testing.assert_allclose(x, [1.0 / (1.0 - r), -1.0 / (1.0 - r)], rtol=1e-6)


@pytest.mark.parametrize("C", [1e3, 1e4])
def test_noise_and_a_large_cost_are_certified(C):
    """Turns of clipped steps that gain slowly go on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=1000) > 0.0, 1, -1)
    result = fm.max_margin(fm.gram(X, y, kernel="rbf", cost=C), tol=1e-3)
    assert result.status == "certified"


def test_a_start_of_other_slacks_is_refused_with_a_remedy():
    """A method for plain slacks cannot go on without them, nor one for rows of a soft margin with a hard one."""
    X, y = two_classes(400, 3, 0.5, 0)
    G = fm.gram(X, y, intercept="free")
    soft = fm.features(X, y, ridge=1.0)
    for hard, other in ((G, G.with_cost(1.0)), (fm.features(X, y), soft)):
        partial = fm.max_margin(other, max_iter=1, tol=1e-15)
        check_raises(
            lambda hard=hard, partial=partial: fm.max_margin(hard, start=partial),
            ValueError,
            ["start must be a Result for the same G", "start=result.alpha"],
        )


@pytest.mark.parametrize("kind", ["dense", "features", "lazy"])
def test_good_weights_to_begin_with_save_work(kind):
    """Along a path of ridges, each from the last one's weights: by the entries of G that are read."""
    X, y = mnist_sample(3, 5)
    base = {"dense": fm.gram, "lazy": fm.lazy_gram, "features": fm.features}[kind](X[:300], y[:300])
    alpha = None
    read = {"cold": 0.0, "warm": 0.0}
    for ridge in np.logspace(-3, -1, 5):
        G = base.with_ridge(ridge)
        for way, start in (("cold", None), ("warm", alpha)):
            result = fm.max_margin(G, tol=1e-6, start=start)
            read[way] += result.trace["products"][-1]
            assert result.status == "certified"
        alpha = result.alpha
    assert read["warm"] < 0.8 * read["cold"], read


@pytest.mark.dear
def test_a_margin_that_rounding_hides_ends_the_run():
    """Labels at random over a smooth kernel: rounds that shorten ||p||_G by little come to an end, long before 100."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1700, 4))
    y = np.where(rng.random(1700) < 0.3, 1, -1)
    result = fm.max_margin(fm.gram(X, y, gamma=0.2))
    assert result.status == "rounding" and result.n_iter <= 12 and result.upper <= 2e-6


# ======================================================================================================
# WHAT IT READS
# ======================================================================================================


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_on_demand_only_columns_of_the_support_are_evaluated(ridge, monkeypatch):
    X, y = two_classes(3000, 5, gap=6.0, seed=4)
    whole = 0
    seen = set()
    evaluate = fm.Kernel.block

    def counted(kernel, A, B, *rest):
        nonlocal whole
        if len(B.rows) == len(X):
            whole += len(A.rows)
            seen.update(row.tobytes() for row in A.rows)
        return evaluate(kernel, A, B, *rest)

    G = fm.lazy_gram(X, y, gamma=0.01, ridge=ridge)
    monkeypatch.setattr(fm.Kernel, "block", counted)
    result = fm.max_margin(G, tol=1e-6)
    points = G.store.prepared.rows
    support = {points[i].tobytes() for i in np.flatnonzero(result.p)}
    assert result.status == "certified" and support <= seen
    assert whole <= 3 * len(seen) and len(seen) <= 3 * len(support) + 100 and len(support) < 500


@pytest.mark.parametrize("kind", ["features", "sparse", "mapped"])
def test_over_rows_nothing_of_n_by_n_is_formed(kind):
    X, y = two_classes(20_000, 4, gap=9.0, seed=6)
    G = BY_ROWS[kind](fm.features(X, y, intercept=1.0).coordinates())
    fm.max_margin(G)
    tracemalloc.start()
    try:
        assert fm.max_margin(G).status == "certified"
        assert tracemalloc.get_traced_memory()[1] < 0.02 * 8 * 20_000**2
    finally:
        tracemalloc.stop()


# ======================================================================================================
# ITS PARTS
# ======================================================================================================


def unit_gram(m, rank, seed):
    Z = rows_of(m, rank, seed)
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    return dense(Z)


@pytest.mark.parametrize("seed", range(8))
def test_pair_steps_go_down_and_stay_inside(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 200)) if seed else 1
    H = unit_gram(m, 1 + m // 3, seed)
    roots = rng.uniform(0.5, 1.0, m)
    x = np.where(rng.random(m) < 0.5, rng.random(m), 0.0)
    H32 = H.astype(np.float32)
    x32 = x.astype(np.float32)
    g32 = (H @ x - 1 / roots).astype(np.float32)
    moves = np.zeros(m, dtype=np.float32)
    before = 0.5 * x @ H @ x - (x / roots).sum()
    for _ in range(30):
        steps = fm._pair_steps(H32, x32, g32, moves, roots, np.zeros(m), -np.inf, 5)
        now = x32.astype(float)
        after = 0.5 * now @ H @ now - (now / roots).sum()
        assert (x32 >= 0).all() and after <= before + 1e-5 * (1 + abs(before))
        np.testing.assert_allclose(g32, H @ now - 1 / roots, atol=2e-4)
        np.testing.assert_allclose(moves, now - x, atol=2e-5)
        before = after
        if steps < 5:
            break
    assert m > 1 or steps < 5


def working_set(n, rank, seed):
    """(H, lengths, alpha, m) of n points, as inner solvers take them, and the rows Z of the points."""
    rng = np.random.default_rng(seed)
    Z = rows_of(n, rank, seed) + 1.5
    lengths = rng.uniform(0.5, 1.0, n)
    H = dense(Z / np.linalg.norm(Z, axis=1)[:, None])
    Z *= (lengths / np.linalg.norm(Z, axis=1))[:, None]
    alpha = rng.random(n) * (rng.random(n) < 0.5)
    alpha[0] = 1.0
    return H, lengths, alpha, Z @ (Z.T @ alpha), Z


def relative_gap(Z, alpha):
    m = Z @ (Z.T @ alpha)
    return 1.0 - alpha.sum() * m.min() / (alpha @ m)


@pytest.mark.parametrize("seed", range(12))
def test_both_inner_solvers_close_the_gap_of_a_working_set(seed):
    """By arrays alone, which stay as they are: weights >= 0 whose norm is that of enumeration or of the other."""
    n = 7 if seed < 6 else 150
    H, lengths, alpha, m, Z = working_set(n, 20, seed)
    given = [array.copy() for array in (H, lengths, alpha, m)]
    by_pairs, steps = fm._solve_by_pair_steps(
        H.astype(np.float32), lengths, np.zeros(n), alpha, m, 1e-4, 1000 * n
    )
    nothing = (np.empty((0, 0)), np.empty(0, np.int64))
    on_faces, L, P, changes, is_witness = fm._solve_on_faces(
        H, lengths, np.zeros(n), alpha, m, *nothing, 10_000, 1e-12, 1e-9
    )
    for before, after in zip(given, (H, lengths, alpha, m), strict=True):
        np.testing.assert_array_equal(before, after)
    assert 0 < steps < 1000 * n and by_pairs.min() >= 0.0 and relative_gap(Z, by_pairs) <= 2e-3
    assert 0 < changes < 10_000 and on_faces.min() >= 0.0 and relative_gap(Z, on_faces) <= 1e-10
    assert not is_witness and set(P.tolist()) >= set(np.flatnonzero(on_faces).tolist())
    L = np.tril(L[: P.size, : P.size])
    np.testing.assert_allclose(L @ L.T, H[np.ix_(P, P)], atol=1e-10)
    norms = [np.linalg.norm(Z.T @ weights) / weights.sum() for weights in (by_pairs, on_faces)]
    assert norms[1] * (1.0 - 1e-12) <= norms[0] <= norms[1] * (1.0 + 2e-3)
    if n == 7:
        assert norms[1] == pytest.approx(naive.least_norm(Z), rel=1e-10)


def test_an_inner_solver_tells_a_witness():
    Z = np.vstack((np.eye(4), -np.ones((1, 4)))) / 2.0
    lengths = np.linalg.norm(Z, axis=1)
    H = dense(Z / lengths[:, None])
    alpha = np.eye(5)[0]
    nothing = (np.empty((0, 0)), np.empty(0, np.int64))
    weights, *_, is_witness = fm._solve_on_faces(
        H, lengths, np.zeros(5), alpha, Z @ Z[0], *nothing, 10_000, 1e-12, 1e-6
    )
    assert is_witness and np.linalg.norm(Z.T @ weights) <= 1e-6 * weights.sum()


def test_weights_beyond_single_precision_are_given_back():
    H, lengths, alpha, m, _ = working_set(20, 5, 0)
    alpha *= 1e300
    weights, steps = fm._solve_by_pair_steps(
        H.astype(np.float32), lengths, np.zeros(20), alpha, m, 1e-4, 100
    )
    assert np.array_equal(weights, alpha) and steps == 100


@pytest.mark.parametrize("intercept", [0.0, "free"])
def test_the_worst_violators_join_a_working_set(intercept):
    """Those of least margin below the bound, in order, and their entries of H are put beside the old ones."""
    X, y = two_classes(50, 60, seed=3)
    G = fm.features(X, y, intercept=intercept)
    scale = G.diagonal().max()
    problem = fm._Problem(G, scale)
    m = np.random.default_rng(0).permutation(50) / 50.0
    points = np.array([3, 7, 20])
    nothing = np.empty((0, 0))
    points = fm._with_least_margins(points, m, 4, math.inf, 13)
    H = fm._matrix_among(problem, points, 0, nothing, 13)
    outside = np.setdiff1d(np.arange(50), [3, 7, 20])
    wanted = np.sort(outside[np.argsort(m[outside])[:10]])
    assert np.array_equal(points, np.append([3, 7, 20], wanted))
    points = fm._with_least_margins(points, m, 4, 0.5, 50)
    H = fm._matrix_among(problem, points, 13, H, 50)
    assert set(points.tolist()) == {3, 7, 20} | set(np.flatnonzero(m < 0.5).tolist()) | set(wanted)
    entries = G.dense()[np.ix_(points, points)]
    roots = np.sqrt(np.diag(entries))
    H = H[: points.size, : points.size]
    np.testing.assert_allclose(H, entries / np.outer(roots, roots), atol=1e-12)


def test_a_long_run_says_so_at_the_line_that_asks_for_it(monkeypatch):
    """Once, with what takes less time; also where the classifier calls the solver."""
    X, y = two_classes(300, 4, gap=3.0, seed=5)
    G = fm.lazy_gram(X, y, gamma=2.0)
    classify = functools.partial(fm.MaxMarginClassifier, "rbf", gamma=2.0)
    for call, remedy in (
        (lambda: fm.max_margin(G), "a finite C"),
        (lambda: fm.max_margin(G.with_ridge(1e-3)), "a smaller C"),
        (lambda: classify(C=math.inf).fit(X, y), "a finite C"),
        (lambda: classify(C=10.0).fit(X, y), "a smaller C"),
        (lambda: classify(C=10.0).fit(X, np.arange(300) % 3), "a smaller C"),
    ):
        with monkeypatch.context() as clock:
            clock.setattr(fm.time, "monotonic", itertools.count(0.0, 30.0).__next__)
            with pytest.warns(UserWarning, match=f"has run for .* {remedy}") as told:
                call()
        assert [warning.filename for warning in told] == [__file__]


def face_of(roots, m):
    return roots, np.empty((m, m)), np.zeros(m, np.int64), np.zeros(m, np.bool_)


@pytest.mark.parametrize("kind", ["features", "sparse"])
@pytest.mark.parametrize(
    "ridge",
    [1e-5, 1e-2, 1.0, 1e3, np.geomspace(1e-3, 1.0, 700), np.append(np.full(699, 0.1), 1e12)],
)  # times s
def test_a_ridge_over_rows_leads_to_the_optimum(kind, ridge):
    """Where all points support the margin, so that it is known."""
    Z = rows_of(700, 6, 3)
    ridge = ridge * float((Z**2).sum(axis=1).max())
    result = fm.max_margin(BY_ROWS[kind](Z).with_ridge(ridge), tol=1e-9)
    G = naive.gram(Z) + ridge * np.eye(700)
    check_answer_where_all_support(G, naive.level_weights(Z, ridge), result, 1e-9)


def objective(rows, ridge, penalty, w, width):
    """||w||^2 / 2, without what is not penalised, and losses: squares up to the width, then linear."""
    slacks = np.maximum(1.0 - rows @ w, 0.0)
    squares = np.minimum(slacks, width)
    return 0.5 * (penalty * w) @ w + (slacks - 0.5 * squares) @ (squares / ridge)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("ridge", [0.1, 10.0, np.geomspace(1e-3, 10.0, 200)])
@pytest.mark.parametrize("width", [math.inf, 0.5])
def test_newton_steps_in_coordinates_end_at_the_minimum(ridge, bias, width):
    """The gradient is 0 there, and the objective above in every direction; the weights are those of its slacks."""
    rng = np.random.default_rng(1)
    rows = rows_of(200, 6, 3) + 1.0  # some slacks are 0, some not
    signs = np.where(np.arange(200) % 3, 1.0, -1.0) if bias else None
    rows, penalty = fm._with_bias(rows, signs)
    ridge = np.broadcast_to(ridge, 200).astype(float)
    w, weights, steps = fm._newton_in_coordinates(
        rows, ridge, penalty, np.zeros(6 + bias), width=width
    )
    assert 1 <= steps <= 30
    np.testing.assert_allclose(
        weights, np.clip(1.0 - rows @ w, 0.0, width) / ridge, rtol=1e-9, atol=1e-12
    )
    assert fm._newton_in_coordinates(rows, ridge, penalty, np.zeros(6 + bias), most=1)[2] == 1
    np.testing.assert_allclose(weights @ rows, penalty * w, atol=1e-9 * np.abs(w).max())
    least = objective(rows, ridge, penalty, w, width)
    for _ in range(20):
        other = w + 1e-3 * rng.normal(size=w.size)
        assert objective(rows, ridge, penalty, other, width) > least


def test_newton_steps_count_their_products(monkeypatch):
    """Steps in coordinates by two products each and one more."""
    steps = []
    newton = fm._newton_in_coordinates

    def counted(*args):
        result = newton(*args)
        steps.append(result[2])
        return result

    monkeypatch.setattr(fm, "_newton_in_coordinates", counted)
    Z = rows_of(300, 6, 3) + 1.0
    scale = float((Z**2).sum(axis=1).max())
    G = fm.features(Z, 1, normalize=None).with_ridge(0.1)
    problem = fm._Problem(G, scale)
    alpha = np.eye(1, 300)[0]
    m = np.empty(300)
    problem.refresh(alpha, m)
    fm._rescale(alpha, m)
    reads = problem.reads[0]
    fm._by_newton_steps(problem, fm._aims(problem, 1e-9), alpha, m, math.inf)
    expected = 2 * steps[0] + 1
    assert expected > 3 and problem.reads[0] - reads == expected * 300**2
    assert fm.max_margin(fm.features(Z, 1, normalize=None), start=alpha).trace["products"][0] == 0.0


@pytest.mark.parametrize("intercept", [0.0, "free"])
@pytest.mark.parametrize("ridge", [0.5, 5e-4])
def test_noisy_points_of_few_coordinates_take_few_products(intercept, ridge):
    """Most points support, and equations in the coordinates are solved however small the ridge is."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 8)) + 3.0
    y = np.where(X[:, 0] + rng.normal(size=3000) > 3.0, 1, -1)
    result = fm.max_margin(
        fm.features(X, y, normalize=None, ridge=ridge, intercept=intercept), tol=1e-8
    )
    assert result.status == "certified" and result.trace["products"][-1] <= 40
    assert np.count_nonzero(result.p) > 1000


def duality_gap(m, ridge, p):
    """The relative gap of ||f||^2 + sum_i max(0, 1 - y_i f(x_i))^2 / r_i and its dual, about twice that of the margin.

    f is the best multiple of that with the weights p, of sum 1, and the margins m_i.
    """
    norm2 = p @ m + p @ (ridge * p)
    primal = p @ m / norm2**2 + (np.maximum(1.0 - m / norm2, 0.0) ** 2 / ridge).sum()
    return 1.0 - 1.0 / norm2 / primal


@pytest.mark.parametrize("intercept", [0.0, "free"])
@pytest.mark.parametrize("active", [0.3, 1.0])
def test_low_rank_preconditions_and_misses_what_it_says(active, intercept):
    """F F' + diag(missed) has the diagonal of G, and the preconditioner is the inverse of its active part."""
    X, y = noisy(300)
    G = fm.lazy_gram(X, y, gamma=0.2, ridge=0.1, intercept=intercept)
    problem = fm._Problem(G, 1.1)
    alpha = np.where(np.arange(300) < 100, 1.0, 0.0)
    m = np.zeros(300)
    problem.finish(alpha, m)
    problem.begin(alpha, m)
    points = np.arange(300)
    F, missed = fm._nystroem_features(problem, points)
    read = fm.lazy_gram(X, y, gamma=0.2).dense()
    if intercept == "free":
        read += np.outer(problem.shift, y) + np.outer(y, problem.shift)
    assert F.shape[1] < 100
    np.testing.assert_allclose((F**2).sum(axis=1) + missed, read.diagonal(), rtol=1e-9)
    assert np.linalg.eigvalsh(read - F @ F.T).min() > -1e-8 * len(F)
    assert missed.mean() < 0.3
    low_rank = fm._LowRank(F, 0.1 + missed)
    chosen = np.random.default_rng(0).random(300) < active
    low_rank.activate(~chosen)
    low_rank.activate(chosen)
    v = np.sin(np.arange(np.count_nonzero(chosen)))
    wanted = np.linalg.solve((F @ F.T + np.diag(0.1 + missed))[np.ix_(chosen, chosen)], v)
    np.testing.assert_allclose(
        low_rank.preconditioner()(v), wanted, rtol=0, atol=1e-6 * np.abs(wanted).max()
    )


def test_low_rank_starts_at_the_minimum_over_its_features():
    rng = np.random.default_rng(1)
    F = rng.normal(size=(400, 7))
    ridge = rng.uniform(0.5, 2.0, 400)
    m, norm2 = fm._LowRank(F, ridge).minimize()
    w, _, _ = fm._newton_in_coordinates(F, ridge, np.ones(7), np.zeros(7))
    np.testing.assert_allclose(m, F @ w, atol=0.05)
    assert fm._objective(m, norm2, ridge) <= fm._objective(F @ w, w @ w, ridge) * (1 + 1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"gamma": 0.3},
        {"gamma": 30.0, "intercept": 0.5},
        {"kernel": "poly", "normalize": "max"},
        {"kernel": "ntk", "normalize": None},
    ],
)
def test_products_in_single_precision_are_those_of_the_kernel(options):
    """Of more rows and columns than are evaluated at a time."""
    n = 1130
    X, y = noisy(n)
    G = fm.lazy_gram(X, y, **options)
    blocks = fm._SingleBlocks(G, np.arange(n))
    rows = np.arange(n - 100)
    columns = np.arange(20, n)
    v = np.cos(np.arange(float(n)))
    dense = G.dense()
    size = np.abs(dense).max()
    for others in (rows, columns):
        found = blocks.product(rows, others, v[others])
        wanted = dense[np.ix_(rows, others)] @ v[others]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-4 * size)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("kind", ["features", "sparse"])
def test_descents_go_on_with_the_bias_that_they_came_to(kind, C):
    """Counts, most of them 0.  Descents that began anew with a bias of 0 came to the same gap again and again."""
    counts = np.random.default_rng(0).poisson(0.05, size=(500, 400)).astype(float)
    y = np.where(counts[:, :8].sum(axis=1) > 0.0, 1, -1)
    X = counts if kind == "features" else Csr(counts)
    free = {"normalize": None, "intercept": "free", "ridge": 0.5 / C}
    result = fm.max_margin(fm.features(X, y, **free))
    assert result.status == "certified" and result.trace["products"][-1] <= 150.0
    other = fm.max_margin(fm.gram(counts, y, kernel="linear", **free))
    assert meet(result, other)


def test_many_points_of_classes_take_no_matrix(monkeypatch):
    """Steps read rows, so that the points may be any number: no block of G or of K is evaluated."""
    rng = np.random.default_rng(0)
    n = 4100
    labels = rng.integers(0, 6, n)
    X = rng.normal(size=(n, 300)) * (rng.random((n, 300)) < 0.01) + 2.0 * np.eye(6, 300)[labels]
    monkeypatch.setattr(fm.Gram, "_block", None)
    G = fm.pair_gram(BY_ROWS["sparse"](X), labels, 6, ridge=0.5)
    result = fm.max_margin(G)
    assert result.status == "certified"


@pytest.mark.parametrize("seed", range(4))
def test_newton_steps_on_classes_end_at_the_minimum(seed, monkeypatch):
    """A product is the derivative of the gradient, and blocks are its part in one class; the minimum is that of G."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 60)
    X = rng.normal(size=(60, 3)) + 0.5 * np.eye(4, 3)[labels]
    ridge = 10.0 ** rng.uniform(-2.0, 1.0, 180)
    G = fm.pair_gram(fm.features(X, 1, normalize=None), labels, 4)
    w = rng.normal(size=12)

    def gradient(w):
        weights = np.maximum(1.0 - G._margins(w), 0.0) / ridge
        return w - G._lift(weights)

    solve = fm._preconditioned_conjugate_gradients
    seen = []

    def watched(product, precondition, *given):
        seen.append((product, precondition))
        return solve(product, precondition, *given)

    monkeypatch.setattr(fm, "_preconditioned_conjugate_gradients", watched)
    weights, steps = fm._newton_on_classes(G, ridge, w, 1e-12, 200, 0)
    assert len(seen) == steps
    product, precondition = seen[0]
    for u in np.eye(12):
        assert product(u) == pytest.approx(
            (gradient(w + 1e-7 * u) - gradient(w - 1e-7 * u)) / 2e-7, abs=1e-5
        )
        block = slice(3 * (u.argmax() // 3), 3 * (u.argmax() // 3) + 3)
        inside = np.zeros(12)
        inside[block] = product(u)[block]
        assert precondition(inside) == pytest.approx(u, abs=1e-10)
    p = weights / weights.sum()
    m = G @ p
    assert duality_gap(m, ridge, p) < 1e-9


@pytest.mark.parametrize("kind", ["features", "sparse"])
@pytest.mark.parametrize("seed", range(6))
def test_a_step_on_a_weight_is_its_minimum(kind, seed):
    """Within its cost; the separator and the bias that a penalty keeps small follow the weights."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(12, 4)) * (rng.random((12, 4)) < 0.7)
    y = rng.choice([-1.0, 1.0], 12)
    ridge = 10.0 ** rng.uniform(-2.0, 1.0, 12)
    cost = np.full(12, np.inf) if seed % 2 else 10.0 ** rng.uniform(-2.0, 1.0, 12)
    v = np.minimum(np.maximum(rng.normal(size=12), 0.0), cost)
    w = Z.T @ v
    penalty = 0.7
    bias = np.array([0.3, penalty * (y @ v)])
    diagonal = (Z**2).sum(axis=1) + ridge + penalty
    for i in (0, 3, 5):
        point = np.array([i])
        given = BY_ROWS[kind](Z).arrays, point, ridge, cost, diagonal, v, w, y, bias, penalty
        fm._pass_over_rows(*given)
        np.testing.assert_allclose(w, Z.T @ v, atol=1e-12)
        assert bias[1] == pytest.approx(penalty * (y @ v), abs=1e-12) and 0.0 <= v[i] <= cost[i]
        slope = Z[i] @ w + y[i] * bias.sum() + ridge[i] * v[i] - 1.0
        assert (slope >= -1e-10 or v[i] == cost[i]) and (slope <= 1e-10 or v[i] == 0.0)


@pytest.mark.parametrize("way", ["entries", "rows", "sparse"])
@pytest.mark.parametrize("seed", range(12))
def test_a_step_on_a_point_is_its_minimum(way, seed):
    """No weight of the point can do better, the weights of others stay, and scores are those of the weights; with a
    ridge, for a hard margin, or with a cost."""
    rng = np.random.default_rng(seed)
    n = 12
    classes = int(rng.integers(2, 9))
    F = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.7)
    F[3] = 0.0
    K = F @ F.T
    labels = rng.integers(0, classes, n)
    ridge = 10.0 ** rng.uniform(-2.0, 1.0, (n, classes))
    cost = np.full((n, classes), np.inf)
    if seed % 2:
        ridge[np.arange(n) != 3] = 0.0  # a hard margin
    if seed >= 6:
        ridge[:] = 0.0
        cost = 10.0 ** rng.uniform(-2.0, 1.0, (n, classes))
    ridge[np.arange(n), labels] = np.inf
    ridge[5, (labels[5] + 1) % classes] = np.inf
    v = np.where(ridge < np.inf, np.maximum(rng.normal(size=(n, classes)), 0.0), 0.0)
    halves = 0.5 * np.diagonal(K)
    inverses = 1.0 / (halves[:, None] + ridge + 1e-300)
    rows = {"rows": fm.features(F, 1, normalize=None), "sparse": BY_ROWS["sparse"](F)}
    scores = fm._class_table(v, labels) @ K
    W = np.ascontiguousarray((fm._class_table(v, labels) @ F).T)
    for i in (0, 3, 5):
        before = v.copy()
        given = labels, np.array([i]), halves, inverses, cost, v
        if way == "entries":
            fm._pass_over_points(K, *given, scores)
        else:
            fm._pass_over_rows_of_points(rows[way].arrays, *given, W)
            scores = (F @ W).T
        np.testing.assert_allclose(scores, fm._class_table(v, labels) @ K, atol=1e-10)
        assert np.array_equal(np.delete(v, i, 0), np.delete(before, i, 0))
        exists = ridge[i] < np.inf
        assert (v[i] >= 0.0).all() and not v[i][~exists].any()
        m = 0.5 * (scores[labels[i], i] - scores[:, i])[exists]
        slope = m + ridge[i][exists] * v[i][exists] - 1.0
        weights, bounds = v[i][exists], cost[i][exists]
        assert (weights <= bounds).all()
        assert slope[weights < bounds].min(initial=0.0) >= -1e-10
        assert slope[weights > 0.0].max(initial=0.0) <= 1e-10


@pytest.mark.parametrize("seed", range(8))
def test_the_gap_of_weights_is_that_of_their_certificate(seed):
    """1 - lower / upper at any multiple of the weights, by the least margin; slacks are not better than the best."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(20, 5)) + np.array([4.0, 0.0, 0.0, 0.0, 0.0])
    alpha = rng.uniform(size=20)
    slack = rng.uniform(0.5, 2.0, 20)
    for ridge in (np.zeros(20), slack, np.append(np.ones(19), 0.0)):
        G = fm.features(Z, 1, normalize=None).with_ridge(ridge)
        rough = alpha / alpha.sum()
        best = fm.max_margin(G, tol=1e-12).p
        for p in (rough, best + 1e-3 * rough, best + 1e-6 * rough):
            lower, upper = fm.certificate(G, p, p / p.sum())
            for factor in (1e-3, 1.0, 1e5):
                found = fm._relative_gap(factor * p, factor * (G @ p), ridge)
                assert found >= (1.0 - 1e-6) * (1.0 - lower / upper)
                if ridge is not slack or p is not rough:  # else multiples matter
                    assert found <= 1.1 * (1.0 - lower / upper)


@pytest.mark.parametrize("seed", range(8))
def test_the_minimizing_step_is_one(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    ridge = 10.0 ** rng.uniform(-4, 2, n)
    m = rng.normal(size=n)
    rise = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=n)
    curvature = rng.uniform(1e-3, 10.0)
    slope = np.maximum(0.0, 1.0 - m) @ (rise / ridge) - rng.uniform(
        0.1, 100.0
    )  # so that it falls at 0

    def derivative(t):
        return slope + curvature * t - np.maximum(0.0, 1.0 - m - t * rise) @ (rise / ridge)

    t = fm._minimizing_step(m, rise, ridge, slope, curvature)
    assert derivative(0.0) < 0.0 < t
    assert derivative(t * (1 - 1e-6)) < 0.0 < derivative(t * (1 + 1e-6))


@pytest.mark.parametrize("seed", range(4))
def test_a_dependent_point_comes_in_downhill(seed):
    """H is flat along its direction: the wrong sign of it would show in the objective alone, and be mended later."""
    m = 20
    rng = np.random.default_rng(seed)
    roots = rng.uniform(0.5, 1.0, m)
    Z = rows_of(m, 3, seed) + 1.5
    H = dense(Z / np.linalg.norm(Z, axis=1)[:, None])
    x = rng.random(m)
    g = np.zeros(m)
    k = 0
    face = face_of(roots, m)
    value = 0.5 * x @ H @ x - (x / roots).sum()
    for i in range(m):
        g[i] = H[i] @ x - 1 / roots[i]
        k = append(face, H[i], x, g, k, i, 0.0)
        before = value
        value = 0.5 * x @ H @ x - (x / roots).sum()
        assert k >= 0 and (x >= 0).all() and value <= before + 1e-9 * (1 + abs(before))
    assert k <= 3


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ridge", [0.0, 0.01, 1.0])
def test_a_free_intercept_of_few_points_takes_one_iteration(ridge, seed):
    """On the face weights go to the minimum with y'alpha = 0, whatever the origin is: no other origin need follow."""
    X, y = noisy(80, seed)
    result = fm.max_margin(fm.gram(X, y, gamma=1.0, intercept="free", ridge=ridge), tol=1e-9)
    assert result.status == "certified" and result.n_iter == 1


def test_faces_grow_faster_where_no_point_leaves():
    """Of the identity all points enter, by a number of steps that grows with the logarithm of theirs."""
    n = 256
    x = np.zeros(n)
    price = np.zeros(n)
    price[0] = -1.0
    given = np.eye(n), face_of(np.ones(n), n), np.zeros(n), price, x, -np.ones(n)
    k, changes = fm._walk_faces(*given, 0, 10 * n, 0.0, 0.0)
    assert k == n and changes <= n + 12 and np.allclose(x, 1.0)


def test_features_of_no_rank_leave_the_optimum_to_be_found():
    """Features of points that are all 0, but for one that is not drawn."""
    X = np.zeros((1100, 1))
    X[0] = 1.0
    y = np.resize([1, -1], 1100)
    lazy = fm.lazy_gram(X, y, kernel="linear", normalize=None, ridge=1.0)
    result = fm.max_margin(lazy)
    other = fm.max_margin(fm.features(X, y, normalize=None, ridge=1.0))
    assert result.status == "certified"
    assert meet(result, other)


@pytest.mark.parametrize("kernel, size", [("rbf", 1e-30), ("poly", 1e7), ("linear", 1e25)])
def test_kernels_that_single_precision_cannot_hold_take_no_newton_steps(kernel, size, monkeypatch):
    """Such values leave Newton steps, which are in single precision, to other methods."""
    X, y = noisy(300)
    gamma = {"rbf": 1.0 / size**2, "poly": 1.0}
    options = {"gamma": gamma[kernel]} if kernel in gamma else {}
    points = {"kernel": kernel, "normalize": None, "ridge": 1.0} | options
    if kernel != "rbf":
        points["ridge"] = 0.0
        points["ridge"] = float(fm.gram(X * size, y, **points).diagonal().max())
    give_room("no sets", monkeypatch)
    result = fm.max_margin(fm.lazy_gram(X * size, y, **points), tol=1e-3)
    other = fm.max_margin(fm.gram(X * size, y, **points), tol=1e-3)
    assert result.status == other.status == "certified"
    assert meet(result, other)


@pytest.mark.parametrize("ridge", [1.0, 1e6])
def test_a_row_of_zeros_is_no_witness_beside_a_ridge(ridge):
    """Its G_ii is the ridge, and rho of these two points is about (2 / ridge)^(-1/2)."""
    for G in (
        fm.Gram([[1.0, 0.0], [0.0, 0.0]]).with_ridge(ridge),
        fm.gram([[1.0], [0.0]], [1, -1], kernel="linear", normalize=None, ridge=ridge),
        fm.lazy_gram([[1.0], [0.0]], [1, -1], kernel="linear", normalize=None, ridge=ridge),
    ):
        assert fm.max_margin(G, max_iter=0).status == "max_iter"
        result = fm.max_margin(G)
        # The minimum of p'Gp over p = (q, 1 - q)
        rho2 = ridge * (1.0 + ridge) / (1.0 + 2.0 * ridge)
        assert result.status == "certified" and result.lower**2 <= rho2 * (1 + 1e-12)
        assert result.upper**2 >= rho2 * (1 - 1e-12)


@pytest.mark.parametrize(
    "X, y", [([-6e11, 5e3, -2.0], [1, 1, -1]), ([1, 8e9, 10, 0], [-1, -1, 1, -1])]
)
def test_a_mixture_that_cancels_ends_in_rounding(X, y):
    """Nothing is divided by its square, which is 0."""
    with np.errstate(all="raise"):
        result = fm.max_margin(fm.features(np.transpose([X]), y, normalize=None, intercept="free"))
    assert result.status == "rounding" and result.lower <= 0.0 <= result.upper


@pytest.mark.parametrize("largest", [1e20, 1e40])
def test_opposite_points_far_below_the_largest_have_no_margin(largest):
    """Each point has an error in proportion to its own length."""
    G = fm.Gram([[largest, 0.0, 0.0], [0.0, 27.0, -27.0], [0.0, -27.0, 27.0]])
    result = fm.max_margin(G)
    assert result.status == "rounding" and result.lower <= 0.0 <= result.upper <= 1e-6


def test_a_run_that_rounding_ends_resumes_to_its_end():
    """Nothing follows its last iteration, and a run that was cut there knows it."""
    for seed in (8, 12, 20, 27):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(36, 6))
        y = np.where(X @ rng.normal(size=6) > 0.0, 1, -1)
        X *= 10.0 ** rng.integers(-6, 7, 6)
        G = fm.gram(X, y, kernel="linear", normalize="max", intercept="free")
        whole = fm.max_margin(G, tol=1e-10)
        assert whole.status == "rounding"
        for cut in range(1, whole.n_iter + 1):
            part = fm.max_margin(G, tol=1e-10, max_iter=cut)
            resumed = fm.max_margin(G, tol=1e-10, start=part)
            assert resumed.n_iter == whole.n_iter and resumed.status == whole.status
            assert np.array_equal(resumed.alpha, whole.alpha)


@pytest.mark.parametrize("intercept", [0.0, "free"])
def test_wide_rows_of_which_some_have_a_ridge_are_certified(intercept):
    """Their entries are kept without the ridge."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 60))
        y = rng.choice([-1, 1], 40)
        ridge = rng.random(40) * (rng.random(40) < 0.5)
        G = fm.features(X, y, normalize=None, ridge=ridge, intercept=intercept)
        assert fm.max_margin(G).status == "certified"
