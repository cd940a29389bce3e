"""max_margin against enumeration, against instances of known margin, by its optimality conditions, on real data."""

import math

import naive
import numpy as np
import pytest
from instances import (
    EPS,
    PLANTED,
    cross_polytope,
    dense,
    every_instance,
    every_representation,
    feasible,
    form,
    mnist_sample,
    scale_of,
    simplex,
    two_classes,
)

import fastmargin as fm

tolerances = pytest.mark.parametrize("tol", [1e-3, 1e-9, 1e-12])


def reachable(kind, tol, s, rho):
    """The tolerance, unless G does not allow as little: 6 u s / rho^2 over a dense G, with room for those of Z Z'."""
    return max(tol, 2e-15 * s / rho**2 if kind != "features" else 2e-15 * math.sqrt(s) / rho)


def check_answer(Z, result, tol, kind):
    """What a certified answer promises, recomputed from the rows in extended precision."""
    s, n = (Z**2).sum(axis=1).max(), len(Z)
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


@every_representation
@tolerances
@pytest.mark.parametrize("seed", range(40))
def test_against_enumeration(seed, kind, tol):
    """Random small problems of every sort; the least norm over all affinely independent supports."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    Z = rng.normal(size=(n, d)) + rng.choice([0.0, 1.0, 4.0])
    if seed % 3 == 0:
        Z = np.round(Z)  # ties, copies, rows of zeros
    if seed % 4 == 1:
        Z = Z / np.linalg.norm(Z, axis=1)[:, None]
    if not Z.any():
        Z[0] = 1.0
    G = form(kind, Z)
    exact, s = naive.least_norm(Z), scale_of(G)
    result = fm.max_margin(G, tol=tol)
    if exact > 1e-6 * np.sqrt(s):
        check_answer(Z, result, tol, kind)
        assert abs(result.upper**2 - exact**2) <= 2 * tol * exact**2 + 30 * EPS * s
    else:
        assert result.status == "infeasible" and result.upper <= 3e-8 * np.sqrt(s)
        assert np.linalg.norm(Z.T @ result.p) <= 1e-7 * np.sqrt(s)


@every_representation
@pytest.mark.parametrize("seed", range(60))
def test_two_points_on_a_thin_angle(seed, kind):
    """The violator lies within a thousandth of the margin, and alone outside the support: no round may pass it by."""
    angle = 10.0 ** -(1 + seed / 15)
    Z = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]) * np.array([[1.0], [1.0 + (seed % 3) * angle**2 / 9]])
    exact = naive.least_norm(Z)
    result = fm.max_margin(form(kind, Z), tol=1e-12)
    check_answer(Z, result, 1e-12, kind)
    assert abs(result.lower - exact) <= 1e-11 and abs(result.upper - exact) <= 1e-11


@every_representation
@tolerances
@every_instance
def test_planted(case, kind, tol):
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
        assert result.status == "infeasible"
        assert result.upper <= (1e-9 if kind == "features" else 3e-8) * np.sqrt(s)
        assert np.linalg.norm(Z.T @ result.p) <= 1e-7 * np.sqrt(s)
        assert result.lower <= 0


@every_representation
@pytest.mark.parametrize("rho", [1e-2, 1e-3, 1e-4])
def test_tiny_margins(kind, rho):
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
        np.column_stack((np.ones(50), np.sin(np.arange(50)))) @ np.linalg.qr(np.random.default_rng(0).normal(
            size=(10, 2)))[0].T, 1.0),
    "a regular polygon around the foot": (np.column_stack((np.full(64, 0.2), np.cos(np.arange(64) * np.pi / 32),
                                                           np.sin(np.arange(64) * np.pi / 32))), 0.2),
}


@every_representation
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_faces(case, kind):
    Z, rho = DEGENERATE[case]
    result = fm.max_margin(form(kind, Z), tol=1e-12)
    check_answer(Z, result, 1e-12, kind)
    assert abs(result.upper - rho) <= 1e-12


@every_representation
@pytest.mark.parametrize("case", [cross_polytope(20), simplex(30), cross_polytope(12, 0.2), cube(5)], ids=range(4))
def test_witnesses_of_infeasibility(case, kind):
    Z = case[0] if case[1] < 0 else case[0] - 2 * np.eye(5)[0]  # the cube around the origin
    result = fm.max_margin(form(kind, Z))
    assert result.status == "infeasible" and np.linalg.norm(Z.T @ result.p) <= 1e-7
    assert result.lower < 0


@every_representation
def test_duplicates(kind):
    Z, rho = feasible(30, 5, 0.3, seed=6)
    twice = np.vstack((Z, Z, Z[:7]))
    result = fm.max_margin(form(kind, twice), tol=1e-12)
    check_answer(twice, result, 1e-12, kind)
    assert abs(result.upper - rho) <= 1e-12
    both = np.vstack((Z, -Z[4]))  # one point with both labels
    result = fm.max_margin(form(kind, both))
    assert result.status == "infeasible" and np.linalg.norm(both.T @ result.p) <= 1e-7


@every_representation
def test_one_point_and_one_class(kind):
    result = fm.max_margin(form(kind, np.array([[3.0, 4.0]])), tol=1e-12)
    assert (result.status, result.n_iter) == ("certified", 0)
    assert 5.0 - 1e-13 <= result.lower <= 5.0 <= result.upper <= 5.0 + 1e-13
    X = np.random.default_rng(1).random((40, 3)) + 0.2
    Z = fm.features(X, np.ones(40)).rows
    check_answer(Z, fm.max_margin(form(kind, Z), tol=1e-12), 1e-12, kind)


@every_representation
def test_a_row_of_zeros_is_a_witness(kind):
    Z = np.vstack((feasible(10, 3, 0.5)[0], np.zeros(3)))
    result = fm.max_margin(form(kind, Z))
    assert result.status == "infeasible" and 0.0 < result.upper <= 3e-8 and result.p[-1] == 1.0


@pytest.mark.parametrize("tol", [1e-9, 1e-12])
def test_every_point_a_support_vector(tol):
    """A narrow Gaussian kernel: G is nearly the identity, and rho nearly 1/sqrt(n)."""
    X, y = two_classes(800, 5, seed=7)
    G = fm.gram(X, y, kernel="rbf", gamma=3.0)
    result = fm.max_margin(G, tol=tol)
    assert result.status == "certified" and (result.p > 0).sum() > 700
    exact = np.linalg.solve(G, np.ones(800))
    if (exact > 0).all():
        np.testing.assert_allclose(result.p, exact / exact.sum(), rtol=1e-6)
    m = G @ result.p
    assert m.min() >= result.upper**2 * (1 - 2 * tol) and p_level(result.p, m) <= 2 * tol * result.upper**2


def p_level(p, m):
    return float(p @ m - m.min())


def test_all_weights_are_those_of_the_linear_system():
    G = fm.gram(np.random.default_rng(2).normal(size=(300, 8)) * 4, kernel="rbf", gamma=0.5)
    exact = np.linalg.solve(G, np.ones(300))
    assert (exact > 0).all()
    result = fm.max_margin(G, tol=1e-12)
    np.testing.assert_allclose(result.p, exact / exact.sum(), rtol=1e-8)
    assert result.upper == pytest.approx(1 / np.sqrt(exact.sum()), rel=1e-13)


def test_float32_gram():
    X, y = two_classes(300, 6, gap=8.0, seed=3)
    wide, half = (fm.gram(X, y, kernel="linear", dtype=dtype) for dtype in (np.float64, np.float32))
    a, b = fm.max_margin(wide, tol=1e-9), fm.max_margin(half, tol=1e-3)
    assert a.status == b.status == "certified"
    assert abs(a.upper**2 - b.upper**2) <= 2e-3 * a.upper**2 + np.finfo(np.float32).eps
    rbf = fm.gram(X, y, kernel="rbf", dtype=np.float32, gamma=1.0)
    assert fm.max_margin(rbf, tol=1e-3).status == "certified" and fm.max_margin(rbf, tol=1e-6).status == "rounding"


@every_representation
@pytest.mark.parametrize("d", [3, 40])
@pytest.mark.parametrize("n", [300, 1200])
@pytest.mark.parametrize("gap", [0.5, 4.0, 9.0])
def test_random_classes(n, d, gap, kind):
    """More points than a working set holds; separable or not."""
    X, y = two_classes(n, d, gap, seed=n + d)
    Z = fm.features(X, y).rows
    for tol in (1e-9, 1e-12):
        result = fm.max_margin(form(kind, Z), tol=tol)
        if result.status == "infeasible":
            assert np.linalg.norm(Z.T @ result.p) <= 1e-7
            p = fm.momentum(fm.FeatureGram(Z), max_iter=3000)
            assert p.lower <= 1e-7  # and no other method finds a separator
        elif result.status == "rounding":
            assert kind != "features" and tol * result.upper**2 <= 2e-15 and result.lower > 0.0
        else:
            check_answer(Z, result, tol, kind)


@every_representation
def test_agrees_with_momentum(kind):
    X, y = two_classes(150, 10, gap=7.0, seed=11)
    Z = fm.features(X, y, normalize="max").rows
    G = form(kind, Z)
    result = fm.max_margin(G, tol=1e-12)
    slow = fm.momentum(G, max_iter=20_000)
    assert slow.lower <= result.upper * (1 + 1e-14) and result.lower <= slow.upper * (1 + 1e-14)
    assert result.status == "certified" and slow.upper - slow.lower <= 1e-4 * result.upper


@every_representation
@pytest.mark.parametrize("digits", [(0, 1), (3, 5)])
def test_mnist_sample(digits, kind):
    """The bundled images; the sample of 3 against 5 is small enough to be separable, which the certificate tells."""
    X, y = mnist_sample(*digits)
    Z = fm.features(X, y, normalize="max").rows
    G = form(kind, Z)
    result = fm.max_margin(G, tol=1e-9)
    if digits == (0, 1):
        assert result.status == "certified"
    if result.status == "certified":
        check_answer(Z, result, 1e-9, kind)
        rough = fm.momentum(G, max_iter=300)
        assert rough.lower <= result.upper and result.lower <= rough.upper
    else:
        assert result.status == "infeasible" and np.linalg.norm(Z.T @ result.p) <= 1e-7


def test_dense_and_features_agree():
    X, y = two_classes(400, 20, gap=8.0, seed=5)
    Z = fm.features(X, y).rows
    a, b = (fm.max_margin(G, tol=1e-12) for G in (fm.FeatureGram(Z), dense(Z)))
    assert a.upper == pytest.approx(b.upper, rel=1e-11) and np.abs(Z.T @ (a.p - b.p)).max() <= 1e-9


@every_representation
@pytest.mark.parametrize("shift", [0.0, 0.3, 1.5])
@pytest.mark.parametrize("seed", range(6))
def test_the_solve_on_the_support_ends_on_a_level_face(seed, shift, kind):
    """From any point of the simplex: never uphill, never outside, and at the end all margins on the face agree.

    Most starts hold points that must leave the face, so that steps without the ratio test would be cut and go astray.
    """
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(30, 8)) + shift
    G, scale = fm._representation(form(kind, Z))
    p = rng.dirichlet(np.full(30, 0.5))
    norms = []
    for rounds in range(40):
        q, _ = fm._solve_on_support(G, scale, p.copy(), rounds)
        assert q.min() >= 0 and abs(q.sum() - 1) <= 1e-14 and not np.any((p == 0) & (q > 0))
        norms.append(np.linalg.norm(Z.T @ q))
    assert np.all(np.diff(norms) <= 1e-9 * norms[0])
    margins = (Z @ (Z.T @ q))[q > 0]
    assert np.ptp(margins) <= 1e-10 * scale
