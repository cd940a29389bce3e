"""Diagonal descent, with inertia and without, its step length, and the homotopic subgradient comparator.

Notation of the paper: alpha = -u, w_t = Z' alpha, D(u) = ||w||^2 / 2 + sum u, and s(t) is the schedule in
lambda_t = lam0 s(t).  On separable data w* = f / rho has margins >= 1, c* = -u* = p / rho^2 for the p of max_margin,
and D(u*) = -||w*||^2 / 2 = -1 / (2 rho^2).
"""

import itertools
import math
from functools import cache

import naive
import numpy as np
import pytest
from instances import (
    EPS,
    PLAIN,
    PLANTED,
    UNTIED,
    cross_polytope,
    dense,
    every_plain,
    feasible,
    form,
    rotate,
    scale_of,
    toy,
)

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")

ACCELS = (3.0, 4.5, 10.0, 50.0)
# at a margin of 1e-3 the exact solver's w* is not precise enough to compare with
SEPARABLE = [name for name, (Z, rho) in PLANTED.items() if rho >= 0.01 and len(Z) < 100]
INFEASIBLE = [name for name, (_, rho) in PLANTED.items() if rho <= 0]

all_schedules = pytest.mark.parametrize("lam", naive.SCHEDULES)
all_separable = pytest.mark.parametrize("name", SEPARABLE)
INSTANCES = {key: UNTIED[key] for key in ("separable, margin 0.3", "overlapping", "scale 5")}


def top_eigenvalue(G):
    return np.linalg.eigvalsh(G)[-1]


def safe_step(Z):
    return 1.0 / np.linalg.svd(Z, compute_uv=False)[0] ** 2


def descend(G, accel=None, **options):
    """Diagonal descent where accel is None, else inertial descent."""
    if accel is None:
        return fm.diagonal_descent(G, **options)
    return fm.inertial_diagonal_descent(G, accel=accel, **options)


def own_step(G):
    """The step of step=None, which is alpha after one step in a wide box, and the products to find it."""
    result = fm.diagonal_descent(G, max_iter=1, lam0=1e-300, trace_at=[1])
    assert result.n_iter == 1 and np.ptp(result.alpha) == 0.0
    return result.alpha[0], result.trace["products"][-1] - 1


def whole_run(algorithm, G, steps, **options):
    """All iterates 0..steps, and the result."""
    result = algorithm(G, max_iter=steps, trace_at=range(steps + 1), keep_iterates=True, **options)
    assert np.array_equal(result.trace["iteration"], np.arange(result.n_iter + 1))
    assert result.n_iter == steps
    assert np.array_equal(result.alpha, result.iterates[-1])
    return result.iterates, result


def dual(Z, alphas):
    """D at the rows of alphas, in extended precision: the sums of the test would err more than the method does."""
    alphas = np.asarray(alphas, np.longdouble)
    W = alphas @ np.asarray(Z, np.longdouble)
    return 0.5 * (W * W).sum(axis=1) - alphas.sum(axis=1)


def dual_size(Z, alphas):
    """What the terms of D add up to in absolute value: its rounding error is a few EPS of that."""
    W = alphas @ Z
    return np.einsum("tj,tj->t", W, W) + np.abs(alphas).sum(axis=1)


def optimum(Z):
    """(w*, c*) from the exact solver."""
    best = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-12)
    w = Z.T @ best.p
    return w / (w @ w), best.p / (w @ w)


def planted_separator(name):
    """w* from the geometry of the instance alone."""
    Z, rho = PLANTED[name]
    if name == "one point":
        direction = Z[0]
    elif name == "copies":
        direction = np.array([2.0, 1.0]) / np.sqrt(5.0)  # halves the angle between the two rows
    elif name == "shifted cross-polytope":
        direction = np.full(Z.shape[1], Z.shape[1] ** -0.5)
    else:
        direction = np.eye(Z.shape[1])[0]
    return direction / rho


def boxes(lam, lam0, steps):
    """1 / lambda_t at index t = 0..steps; the start has no box of its own."""
    return np.concatenate(
        ([np.inf], [1.0 / (lam0 * naive.SCHEDULES[lam](t)) for t in range(1, steps + 1)])
    )


# ======================================================================================================
# THE ITERATIONS, AGAINST NAIVE TWINS
# ======================================================================================================


@cache
def twin_path(name, algorithm, steps, **own):
    """alpha_t, t = 0..steps, by the paper's formulas."""
    twin = naive.TWINS[algorithm](INSTANCES[name], **own)
    return np.array([alpha for alpha, _, _ in itertools.islice(twin, steps + 1)])


@rotate("accel, lam, kind", [None, 0.5, 3.0, 10.0], naive.SCHEDULES, PLAIN, crossed=2)
def test_the_iterations_are_the_papers(accel, lam, kind):
    for name, Z in INSTANCES.items():
        step = safe_step(Z)
        for lam0 in (0.05, 4.0 / step):  # a wide box, and one that is narrower than a step at first
            for options in ({}, {"restart": True})[: 1 if accel is None else 2]:
                got, _ = whole_run(
                    lambda G, **o: descend(G, accel, **o),
                    form(kind, Z),
                    120,
                    lam=lam,
                    lam0=lam0,
                    step=step,
                    **options,
                )
                want = twin_path(
                    name,
                    "diagonal_descent",
                    120,
                    lam=lam,
                    lam0=lam0,
                    step=step,
                    accel=accel,
                    **options,
                )
                # Diagonal descent is nonexpansive, so that errors add up at most; inertia multiplies them.
                slack = (
                    (0.5 if accel is None else 20.0)
                    * EPS
                    * (np.arange(121)[:, None] + 4.0)
                    * float(want.max())
                )
                assert (np.abs(got - want) <= slack).all(), (name, lam0, options)


def test_the_box_bites_where_it_should():
    # Otherwise the twins above would agree on a method that had no box.
    Z = INSTANCES["overlapping"]
    step = safe_step(Z)
    for lam in naive.SCHEDULES:
        alphas, _ = whole_run(
            fm.diagonal_descent, dense(Z), 60, lam=lam, lam0=4.0 / step, step=step
        )
        box = boxes(lam, 4.0 / step, 60)[1:, None]
        at_the_bound = np.abs(alphas[1:] - box) <= 4 * EPS * box
        assert at_the_bound[0].all() and box[0] < step  # u_1 = -min(gamma, 1/lambda_1)
        assert at_the_bound.sum() > alphas.shape[1] and not at_the_bound.all()


@rotate("exponents, kind", [(0.25, 0.5), (0.5, 0.5), (0.1, 0.9), (0.7, 0.05), (1e-3, 1e-3)], PLAIN)
def test_the_homotopic_iterations_are_their_formula(exponents, kind):
    a, b = exponents
    for name, Z in INSTANCES.items():
        got, result = whole_run(fm.homotopic_subgradient, form(kind, Z), 400, a=a, b=b)
        want = twin_path(name, "homotopic_subgradient", 400, a=a, b=b)
        size = np.maximum.accumulate(np.abs(want).max(axis=1))[:, None]
        assert (
            np.abs(got - want) <= 8 * EPS * np.arange(401)[:, None] * size.astype(float)
        ).all(), name
        assert (got >= 0.0).all() and result.alpha.any()


@pytest.mark.parametrize("accel", [None, 7.0])
@all_schedules
def test_lam_by_name_callable_and_array_agree(accel, lam):
    Z = INSTANCES["overlapping"]
    seen = []

    def schedule(t):
        seen.append(t)
        return float(naive.SCHEDULES[lam](float(t)))

    values = [schedule(t) for t in range(1, 121)]
    seen.clear()
    options = dict(max_iter=120, lam0=9.0)
    by_name = descend(dense(Z), accel, lam=lam, **options)
    by_callable = descend(dense(Z), accel, lam=schedule, **options)
    assert seen == list(range(1, 121)) and all(type(t) is int for t in seen)
    longer = np.concatenate(
        (values, [np.nan, -1.0])
    )  # what lies beyond max_iter is nobody's business
    for array in (np.array(values), values, tuple(values), longer, np.repeat(values, 2)[::2]):
        before = np.array(array)
        by_array = descend(dense(Z), accel, lam=array, **options)
        assert np.array_equal(by_array.alpha, by_callable.alpha)
        assert np.array_equal(before, array, equal_nan=True)  # nothing is written there
    np.testing.assert_allclose(
        by_name.alpha, by_callable.alpha, rtol=0, atol=1e-12 * by_name.alpha.max()
    )


def test_a_schedule_is_asked_as_the_run_goes_on():
    """For each iteration once, in order, for about as many as are made, and on from where a start ended."""
    asked = []

    def lam(t):
        asked.append(t)
        return 1.0 / t

    G = np.diag([1.0, 2.0, 9.0])
    result = fm.diagonal_descent(G, lam=lam, tol=1e-6, max_iter=10**9)
    assert result.status == "certified" and result.n_iter > 20
    assert asked == list(range(1, len(asked) + 1))
    assert result.n_iter <= len(asked) <= 2 * result.n_iter + 1
    asked.clear()
    fm.diagonal_descent(G, lam=lam, max_iter=10, start=result)
    assert asked == list(range(result.n_iter + 1, result.n_iter + 11))


@every_plain
def test_enormous_accel_is_no_inertia(kind):
    G = form(kind, INSTANCES["overlapping"])
    plain = fm.diagonal_descent(G, max_iter=200)
    assert np.array_equal(
        fm.inertial_diagonal_descent(G, max_iter=200, accel=1e300).alpha, plain.alpha
    )
    assert not np.array_equal(
        fm.inertial_diagonal_descent(G, max_iter=200, accel=1e3).alpha, plain.alpha
    )


@pytest.mark.parametrize(
    "algorithm, defaults",
    [
        (fm.diagonal_descent, {"lam": "1/t", "lam0": 1.0}),
        (fm.inertial_diagonal_descent, {"lam": "1/t", "lam0": 1.0, "accel": 10.0}),
        (fm.homotopic_subgradient, {"a": 0.25, "b": 0.5}),
    ],
)
def test_defaults_are_the_values_that_are_documented(algorithm, defaults):
    G = 1e-3 * dense(INSTANCES["overlapping"])  # small, so that steps are long and the boxes bite
    result = algorithm(G)
    assert result.n_iter == 1000
    assert np.array_equal(
        result.alpha,
        algorithm(G, max_iter=1000, step=None, **defaults).alpha
        if "lam" in defaults
        else algorithm(G, max_iter=1000, **defaults).alpha,
    )
    brief = algorithm(G, max_iter=5, **defaults).alpha
    assert np.array_equal(algorithm(G, max_iter=5).alpha, brief)


# ======================================================================================================
# THE PAPER'S LEMMAS AND THEOREMS
# ======================================================================================================


@rotate("name, lam", PLANTED, naive.SCHEDULES)
def test_lemma_5_3_the_dual_never_increases(name, lam):
    Z, _ = PLANTED[name]
    G = dense(Z)
    steps = 100
    rng = np.random.default_rng(0)
    for step in (None, 1.0 / top_eigenvalue(G)):
        for lam0 in (0.1, 30.0):
            alphas, _ = whole_run(fm.diagonal_descent, G, steps, lam=lam, lam0=lam0, step=step)
            gamma = step or own_step(G)[0]
            made = len(alphas) - 1
            box = boxes(lam, lam0, made)
            assert (alphas >= 0.0).all() and (alphas.max(axis=1) <= box * (1.0 + 4 * EPS)).all()
            D = dual(Z, alphas)
            size = dual_size(Z, alphas)
            slack = 2 * EPS * (size[1:] + size[:-1])
            moved = ((alphas[1:] - alphas[:-1]) ** 2).sum(axis=1)
            assert (D[1:] <= D[:-1] - moved / (2.0 * gamma) + slack).all(), (step, lam0)  # (A.25)
            # (5.15): against any point of the box, here random ones and a corner
            reach = np.minimum(box[1:], 2.0 * alphas.max() + 1.0)[:, None]
            for share in (rng.random((made, len(Z))), np.ones((made, len(Z)))):
                other = share * reach
                left = D[1:] + ((alphas[1:] - other) ** 2).sum(axis=1) / (2.0 * gamma)
                right = dual(Z, other) + ((alphas[:-1] - other) ** 2).sum(axis=1) / (2.0 * gamma)
                rounding = 32 * EPS * (dual_size(Z, other) + (other**2).sum(axis=1) / gamma)
                assert (left <= right + slack + rounding).all(), (step, lam0)


ALONG_A_RUN = {
    "diagonal": fm.diagonal_descent,
    "inertial": lambda G, **options: fm.inertial_diagonal_descent(G, accel=3.0, **options),
    "homotopic": lambda G, lam=None, lam0=None, **options: fm.homotopic_subgradient(G, **options),
}


@all_separable
@pytest.mark.parametrize("algorithm", ALONG_A_RUN)
def test_lemma_5_2_the_dual_gap_bounds_the_distance(name, algorithm):
    Z, rho = PLANTED[name]
    separators = {"planted": planted_separator(name), "exact solver": optimum(Z)[0]}
    alphas, _ = whole_run(ALONG_A_RUN[algorithm], dense(Z), 100, lam="1/t", lam0=3.0)
    gap = dual(Z, alphas) + 0.5 / rho**2
    slack = 32 * EPS * (dual_size(Z, alphas) + 1.0 / rho**2)
    for source, w in separators.items():
        # an error of w* enters as <w_t - w*, error>: for the solver's w* that is all its tolerance leaves
        error = 0.0 if source == "planted" else 1e-12 / rho**2
        distance = ((alphas @ Z - w) ** 2).sum(axis=1)
        assert (0.5 * distance <= gap + slack + error).all(), source
    assert gap[0] == 0.5 / rho**2
    assert (gap[1:] < gap[0]).all()


def check_directions(Z, w, alphas, distance, late):
    """Lemma A.4: where ||w_t|| >= ||w*||/2, so from t* = ``late`` on, what bounds ||w_t - w*|| at t = 1, 2, ... bounds
    the angle gap and the margin gap.  (A.13) and (5.6) print ||w*||^2 where (5.9) and the units have ||w*||: of rows
    (rho, +-1) and w = w* + (0, e) the margin gap is rho e nearly, and (A.13) grants sqrt(8) rho^2 e."""
    W = alphas[1:] @ Z
    rho = 1.0 / np.linalg.norm(w)
    size = np.linalg.norm(W, axis=1)
    half = 2.0 * size * rho >= 1.0 - 1e-12
    assert half[np.arange(1, len(alphas)) >= late].all()
    angle = 1.0 - rho * W @ w / size
    margin = rho - (W @ Z.T).min(axis=1) / size
    assert (angle <= (rho * distance) ** 2 + 1e-14)[half].all()
    assert (margin <= 2.0 * rho * np.linalg.norm(Z) * distance + 1e-12 / rho)[half].all()


@pytest.mark.parametrize("accel", ACCELS)
@all_separable
def test_theorem_5_2_inertial_distances_fall_with_its_constant(name, accel):
    Z, rho = PLANTED[name]
    w = planted_separator(name)
    c = optimum(Z)[1]
    G = dense(Z)
    gamma = 1.0 / top_eigenvalue(G)
    steps = 200
    start = 0.5 / rho**2  # D(u_0) - D(u*)
    far = (c @ c) / (2.0 * gamma)
    C = (accel - 1.0) * math.sqrt(-(w @ w) + 2.0 * c.sum() + (c @ c) / gamma)
    k = np.arange(1, steps + 1)
    for lam in ("1/log(1+t)", "1/t", "2^-t"):
        lam0 = 1.0 / (
            naive.SCHEDULES[lam](1) * np.linalg.norm(c)
        )  # lambda_1 = 1 / ||u*||: u* is in every box
        alphas, _ = whole_run(
            fm.inertial_diagonal_descent, G, steps, accel=accel, lam=lam, lam0=lam0, step=gamma
        )
        distance = np.linalg.norm(alphas @ Z - w, axis=1)[1:]
        gap = dual(Z, alphas) + start
        slack = 32 * EPS * (dual_size(Z, alphas) + 1.0 / rho**2) + 2e-12 / rho**2
        assert (distance <= C / (k + accel - 1.0) + np.sqrt(slack[1:])).all(), lam
        check_directions(Z, w, alphas, C / k, 2.0 * C * rho - accel + 1.0)  # (5.8), (5.9), (5.25)
        # The Lyapunov function of "Inertial diagonal descent" in figures/THEOREMS.md never increases, and begins at
        # most where the proof says.
        theta = (np.arange(steps + 1) + accel) / (accel - 1.0)
        ahead = theta[1:, None] * alphas[1:] - (theta[1:, None] - 1.0) * alphas[:-1] - c
        energy = theta[1:] ** 2 * gap[1:] + (ahead**2).sum(axis=1) / (2.0 * gamma)
        rounding = (
            4 * theta[1:] ** 2 * slack[1:]
            + 64 * EPS * theta[1:] ** 2 * (alphas[1:] ** 2).sum(axis=1) / gamma
        )
        assert (energy[1:] <= energy[:-1] + rounding[1:]).all(), lam
        assert energy[0] <= theta[1] * (theta[1] - 1.0) * start + far + rounding[0], lam


@all_separable
def test_theorem_5_1_distances_to_the_solution_never_increase(name):
    # (5.15) at u = u*: the iterates are Fejer monotone once the box holds u*.
    Z, rho = PLANTED[name]
    c = optimum(Z)[1]
    gamma = 1.0 / top_eigenvalue(dense(Z))
    alphas, _ = whole_run(
        fm.diagonal_descent, dense(Z), 150, lam0=1.0 / np.linalg.norm(c), step=gamma
    )
    away = ((alphas - c) ** 2).sum(axis=1) / (2.0 * gamma)
    gap = dual(Z, alphas) + 0.5 / rho**2
    slack = 32 * EPS * (dual_size(Z, alphas) + (c @ c) / gamma + 1.0 / rho**2) + 1e-12 / rho**2
    assert (gap[1:] + away[1:] <= away[:-1] + slack[1:]).all()
    # and therefore D(u_t) - D(u*) <= ||u*||^2 / (2 gamma t)
    assert (gap[1:] <= away[0] / np.arange(1, 151) + slack[1:]).all()


def linear_fit(t, e):
    slope, level = np.polyfit(t, np.log(e), 1)
    return slope, np.abs(np.log(e) - slope * t - level).max()


RATES = {  # rows, (first and last iteration of the fit): after the support has settled, before rounding
    "toy": (toy(), (1000, 3000)),
    "toy, other points": (toy(60, 1), (1000, 2500)),
    "feasible, odd n": (feasible(37, 5, 0.1, 2)[0], (250, 500)),
    "cross-polytope": (cross_polytope(5, 0.8)[0], (100, 250)),
}


@pytest.mark.parametrize("case", RATES)
@pytest.mark.parametrize("lam", ["1/sqrt(t)", "1/t", "2^-t"])
def test_theorem_5_1_convergence_is_linear_at_the_predicted_rate(case, lam):
    Z, (first, last) = RATES[case]
    G = dense(Z)
    gamma = 1.0 / top_eigenvalue(G)
    w = np.array([0.5, 0.5]) if case.startswith("toy") else optimum(Z)[0]
    t = np.arange(first, last + 1, (last - first) // 20)
    result = fm.diagonal_descent(
        G, max_iter=last, lam=lam, lam0=4.0, step=gamma, trace_at=t, keep_iterates=True
    )
    kept = np.isin(result.trace["iteration"], t)
    alphas = result.iterates[kept]
    face = alphas[-1] > 0.0
    assert ((alphas > 0.0) == face).all()
    eigenvalues = np.linalg.eigvalsh(G[np.ix_(face, face)])
    mu = eigenvalues[eigenvalues > 1e-12 * eigenvalues[-1]][0]
    slope, misfit = linear_fit(t, np.linalg.norm(alphas @ Z - w, axis=1))
    assert abs(slope / math.log1p(-gamma * mu) - 1.0) <= 1e-3
    assert misfit <= 1e-3
    if case.startswith("toy"):  # the margin gap falls by the same factor
        W = alphas @ Z
        slope, misfit = linear_fit(
            t, 1.0 / np.linalg.norm(w) - (W @ Z.T).min(axis=1) / np.linalg.norm(W, axis=1)
        )
        assert abs(slope / math.log1p(-gamma * mu) - 1.0) <= 1e-3 and misfit <= 1e-3


def planted_face(n, condition, seed):
    """n rows of margin 1 for w* = e_1, with G = 1 1' + B, B u* = 0, and n rows of margin 2; gamma mu of Theorem 5.1."""
    rng = np.random.default_rng(seed)
    u = rng.dirichlet(np.full(n, 3.0))
    Q = np.linalg.qr(np.column_stack((u, rng.normal(size=(n, n - 1)))))[0][:, 1:]
    face = np.column_stack((np.ones(n), Q * np.geomspace(1.0, condition**-0.5, n - 1)))
    Z = np.vstack((face, 2.0 * face))
    return Z, np.linalg.eigvalsh(face @ face.T)[0] / np.linalg.norm(Z, 2) ** 2


def away_from_the_first_axis(Z, algorithm, T, **options):
    """||w_t - w*||, t = 1, ..., T."""
    alphas, _ = whole_run(
        algorithm,
        fm.features(Z, 1, normalize=None),
        T,
        lam0=1e-6,
        step=np.linalg.norm(Z, 2) ** -2,
        **options,
    )
    return np.linalg.norm(alphas[1:] @ Z - np.eye(Z.shape[1])[0], axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("accel", [3.0, 5.0, 10.0])
def test_peaks_of_inertial_descent_fall_by_the_power_and_the_rate_of_their_envelope(accel, seed):
    """t^(-accel/2) (1 - gamma mu)^(t/2): the peaks of ||w_t - w*|| over it change neither with t nor with ln t."""
    Z, contraction = planted_face(3, 6.0, seed)  # the slowest modes are far apart
    T = 2500
    away = away_from_the_first_axis(Z, fm.inertial_diagonal_descent, T, accel=accel)
    t = np.arange(1.0, T + 1.0)
    peaks = np.flatnonzero((away[1:-1] > away[:-2]) & (away[1:-1] >= away[2:])) + 1
    peaks = peaks[(peaks > 300) & (away[peaks] > 1e-12)]
    exponential = 0.5 * t * math.log1p(-contraction)
    power = -0.5 * accel * np.log(t)
    assert np.ptp(exponential[peaks]) > 1.0 and np.ptp(power[peaks]) > 1.0 and len(peaks) > 5
    assert np.polyfit(t[peaks], np.log(away[peaks]) - power[peaks], 1)[0] == pytest.approx(
        0.5 * math.log1p(-contraction), rel=0.05
    )
    assert np.polyfit(np.log(t[peaks]), np.log(away[peaks]) - exponential[peaks], 1)[
        0
    ] == pytest.approx(-0.5 * accel, rel=0.05)


@pytest.mark.parametrize("condition", [2.0, 10.0, 50.0])
@pytest.mark.parametrize("accel", [3.0, 10.0])
def test_with_restarts_the_rate_is_that_of_the_root(accel, condition):
    """Half of sqrt(gamma mu) a step or more, which neither method without restarts gets."""
    Z, contraction = planted_face(8, condition, 1)
    T = int(60 / math.sqrt(contraction))
    taken = {}
    for restart in (False, True):
        away = away_from_the_first_axis(
            Z, fm.inertial_diagonal_descent, T, accel=accel, restart=restart
        )
        taken[restart] = (away < 1e-10).argmax() if away.min() < 1e-10 else T
    plain = away_from_the_first_axis(Z, fm.diagonal_descent, T)
    assert 0 < taken[True] < math.log(1e10) / (0.5 * math.sqrt(contraction))
    assert plain[taken[True]] > 1e-8
    assert taken[True] < 0.8 * taken[False]


@rotate("name, restart, lam", PLANTED, [True, False], naive.SCHEDULES)
@pytest.mark.parametrize("accel", [1.0, 3.0, 10.0])
def test_the_energy_never_increases(name, accel, restart, lam):
    """E_t = D(u_t) + ||u_t - u_{t-1}||^2 / (2 gamma), with restarts and without, any non-increasing lambda_t.

    Proof: (5.15) against u_t gives D(u_{t+1}) + ||u_{t+1} - u_t||^2 / (2 gamma) <= D(u_t) + ||z_t - u_t||^2 / (2
    gamma), and z_t - u_t is beta_t <= 1 times the last move, or 0.  On separable data, once lambda_t lets u* into the
    box, w_t -> w* with restarts, too.  After the last restart this is Theorem 5.2.  If there is no last one: the first
    move after each is a step of the gradient, and E then falls by (1 - beta^2) ||move||^2 / (2 gamma), beta <= 2/(2 +
    a), so that these moves go to 0; a limit of points that they leave minimises D; E goes to D there, as it is at most
    D(u_t) after a restart at u_t and never increases; and D - D(u*) bounds ||w_t - w*||^2 / 2 (Lemma 5.2).
    """
    Z, _ = PLANTED[name]
    gamma = 1.0 / top_eigenvalue(dense(Z))
    for lam0 in (0.1, 30.0):
        alphas, _ = whole_run(
            fm.inertial_diagonal_descent,
            dense(Z),
            150,
            accel=accel,
            restart=restart,
            lam=lam,
            lam0=lam0,
            step=gamma,
        )
        moves = (np.diff(alphas, axis=0) ** 2).sum(axis=1) / (2.0 * gamma)
        energy = dual(Z, alphas)[1:] + moves
        rounding = dual_size(Z, alphas)[1:] + moves + (alphas[1:] ** 2).sum(axis=1) / gamma
        assert (np.diff(energy) <= 8 * EPS * (rounding[1:] + rounding[:-1])).all()


def test_the_toy_set_is_the_papers():
    Z = toy()
    w, _ = optimum(Z)
    np.testing.assert_allclose(w, [0.5, 0.5], rtol=0, atol=1e-13)
    m = Z @ w
    assert (np.abs(m[:4] - 1.0) <= 1e-13).all() and (m[4:] > 1.1).all()
    for accel in (None, 10.0, 30.0, 50.0):
        result = descend(dense(Z), accel, max_iter=1000, lam0=4.0)
        assert np.linalg.norm(Z.T @ result.alpha - w) <= 5e-3
        assert abs(result.alpha.sum() - 0.5) <= 5e-3  # sum c* = ||w*||^2


@rotate("accel, lam, kind", [None, 3.0, 10.0], naive.SCHEDULES, PLAIN, crossed=2)
def test_the_limit_is_the_maximum_margin(accel, lam, kind):
    for name in (
        "feasible",
        "feasible, scale 7",
        "shifted cross-polytope",
        "one dimension",
        "copies",
    ):
        Z, rho = PLANTED[name]
        G = form(kind, Z)
        result = descend(G, accel, max_iter=3000, lam=lam, lam0=0.3 * scale_of(G), trace_at=[])
        w = planted_separator(name)
        tol = 1e-12 if accel is None else 1e-7  # inertia oscillates: no linear rate
        np.testing.assert_allclose(Z.T @ result.alpha, w, rtol=0, atol=tol * np.linalg.norm(w))
        assert abs(result.alpha.sum() * rho**2 - 1.0) <= 10 * tol
        assert abs(np.linalg.norm(w) * rho - 1.0) <= 1e-14
        assert rho - result.lower <= 10 * tol * rho and result.upper - rho <= 10 * tol * rho
        np.testing.assert_allclose(result.p, result.alpha / result.alpha.sum(), rtol=4 * EPS)


@pytest.mark.parametrize("lam", [0.05, 1.0, 40.0])
@pytest.mark.parametrize("accel", [None, 3.0])
def test_a_constant_penalty_solves_the_penalised_hinge_loss(lam, accel):
    # min_w (1/lambda) sum max(0, 1 - m_i) + ||w||^2 / 2 and its dual: no gap, and complementary slackness
    Z = INSTANCES["overlapping"]
    alpha = descend(dense(Z), accel, max_iter=20_000, lam=np.full(20_000, lam), trace_at=[]).alpha
    w = Z.T @ alpha
    m = Z @ w
    primal = np.maximum(0.0, 1.0 - m).sum() / lam + 0.5 * w @ w
    assert abs(primal + dual(Z, alpha[None])[0]) <= 1e-9 * primal
    assert (alpha <= (1.0 + EPS) / lam).all() and (alpha == 1.0 / lam).any()
    assert (m[alpha == 0.0] >= 1.0 - 1e-6).all() and (m[alpha == 1.0 / lam] <= 1.0 + 1e-6).all()
    inside = (alpha > 0.0) & (alpha < 1.0 / lam)
    assert (np.abs(m[inside] - 1.0) <= 1e-6).all()


@pytest.mark.parametrize("a, b", [(0.25, 0.5), (0.5, 0.5), (0.3, 0.3)])
def test_homotopic_subgradient_approaches_the_maximum_margin(a, b):
    for Z, rho in (
        PLANTED["feasible"],
        PLANTED["feasible, scale 7"],
        PLANTED["shifted cross-polytope"],
        PLANTED["one point"],
        (toy(), math.sqrt(2.0)),
    ):
        result = fm.homotopic_subgradient(dense(Z), max_iter=30_000, a=a, b=b, trace_at=[10, 1000])
        gap = 1.0 - result.trace["lower"] / rho
        assert gap[3] <= (0.06 if len(Z) == 80 else 2e-3) and gap[3] <= 0.1 * gap[0]


@pytest.mark.parametrize("lengths", [(0.5, -0.25), (0.4, -0.7, 0.2), (0.9, -0.1)])
def test_homotopic_subgradient_is_no_slower_than_its_rate(lengths):
    """Section 5.1: "approximately of order t^(-1/6)" (Molitor et al. 2021); no constant is stated.  That is from where
    the penalty is exact, t^(1/4) >= s n max c*: after a few steps here, but 6e8 on "unequal weights"."""
    Z = np.column_stack((np.ones(len(lengths)), lengths))
    t = np.unique(np.logspace(2, 5, 60).astype(int))
    result = fm.homotopic_subgradient(dense(Z), max_iter=100_000, trace_at=t, keep_iterates=True)
    W = result.iterates[1:] @ Z
    away = np.linalg.norm(W / np.linalg.norm(W, axis=1)[:, None] - [1.0, 0.0], axis=1)
    assert linear_fit(np.log(t), away)[0] < -1.0 / 6.0 and away[-1] < 0.05


# ======================================================================================================
# STEP LENGTH
# ======================================================================================================


def turned(eigenvalues, seed=0):
    n = len(eigenvalues)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))
    G = (Q * np.asarray(eigenvalues)) @ Q.T
    return 0.5 * (G + G.T)


def with_top_vector(v, top, n):
    """Eigenvalue ``top`` on v and 1 on all of its complement."""
    v = np.asarray(v, float) / np.linalg.norm(v)
    return np.eye(n) + (top - 1.0) * np.outer(v, v)


def marchenko_pastur(n, d, seed=0):
    Z = np.random.default_rng(seed).normal(size=(n, d))
    return dense(Z)


def alternating(n):
    return (-1.0) ** np.arange(n)


def isolated_where_the_start_is_least(n=700):
    """1 above a bulk that ends at 0.955 and is dense there, on the point that a normal start all but misses."""
    eigenvalues = 0.955 * np.sin(np.linspace(0, np.pi / 2, n))
    eigenvalues[np.argmin(np.abs(np.random.default_rng(0).standard_normal(n)))] = 1.0
    return np.diag(eigenvalues)


MATRICES = {
    "n = 1": np.array([[3.7]]),
    "n = 2, singular": np.array([[1.0, -1.0], [-1.0, 1.0]]),
    "n = 2, equal": 5.0 * np.eye(2),
    "n = 3": turned([1.0, 1.0 + 1e-12, 1e-9]),
    "identity": np.eye(300),
    "identity but one": np.diag(np.r_[np.ones(299), 1.02]),
    "rank one": np.outer(alternating(200), alternating(200)),
    "rank two, close": turned(np.r_[1.0, 1.0 - 1e-12, np.zeros(198)]),
    "zeros but one": np.diag(np.r_[np.zeros(150), 2.0, np.zeros(149)]),
    "gap 1e-12": turned(np.r_[1.0, 1.0 - 1e-12, np.linspace(0, 0.9, 198)]),
    "cluster at the top": turned(np.r_[1.0 - 1e-10 * np.arange(50), np.linspace(0, 0.5, 150)]),
    "two clusters": turned(np.r_[np.full(5, 1.0), np.full(195, 0.9)]),
    "one huge": turned(np.r_[1e12, np.ones(199)]),
    "one huge, one class": with_top_vector(np.ones(200), 1e8, 200),
    "top orthogonal to ones": with_top_vector(alternating(200), 1.5, 200),
    "top orthogonal to the labels": with_top_vector(np.r_[1.0, -1.0, np.zeros(198)], 1.5, 200),
    "top is the last unit vector": with_top_vector(np.eye(200)[-1], 1.5, 200),
    "ones on top of ones": with_top_vector(np.ones(200), 1.5, 200),
    "uniform": turned(np.linspace(0, 1, 300)),
    "crowded at the top": turned(np.cos(np.linspace(0, np.pi / 2, 300))),
    "sparse at the top": turned(np.linspace(0, 1, 300) ** 6),
    "geometric": turned(0.9 ** np.arange(200)),
    "flat": marchenko_pastur(300, 6000),
    "square": marchenko_pastur(300, 300),
    "tall": marchenko_pastur(300, 30),
    "blocks": np.kron(np.eye(40), np.full((5, 5), 1.0)) + np.diag(np.r_[np.zeros(199), 0.05]),
    "blocks, one larger": np.kron(np.diag(np.r_[np.ones(39), 1.1]), np.full((5, 5), 1.0)),
    "n > 512, parallel product": marchenko_pastur(520, 600),
    "planted, scale 7": dense(PLANTED["feasible, scale 7"][0]),
    "toy": dense(toy()),
}


def check_step(G, top):
    """For the largest eigenvalue of G."""
    step, products = own_step(G)
    assert 1 <= products <= min(64, len(fm._checked(G)))
    assert 1.0 / 1.04 <= step * top <= 1.0 + 2 * EPS
    return step


@pytest.mark.parametrize("name", MATRICES)
def test_the_step_never_exceeds_one_over_the_norm(name):
    matrix = MATRICES[name].copy()
    if not matrix.sum():  # uniform weights would be a solution
        matrix[0] *= -1.0
        matrix[:, 0] *= -1.0
    root = np.linalg.eigh(matrix)
    top = root.eigenvalues[-1]
    step = check_step(matrix, top)
    for factor in (2.0**40, 2.0**-40):  # powers of two change no digit
        assert own_step(factor * matrix)[0] == step / factor
    half = matrix.astype(np.float32)
    if not np.array_equal(half, matrix):
        top = top_eigenvalue(half.astype(np.float64))
    check_step(half, top)
    # With that step, the descent descends.
    Z = root.eigenvectors * np.sqrt(np.maximum(root.eigenvalues, 0.0))
    alphas, _ = whole_run(fm.diagonal_descent, matrix, 30, lam="2^-t")
    D = dual(Z, alphas)
    size = dual_size(Z, alphas)
    assert (np.diff(D) <= 64 * EPS * (size[1:] + size[:-1])).all() and (D[1:] < 0.0).all()


def test_the_step_allows_for_an_eigenvalue_that_the_start_hardly_meets():
    check_step(isolated_where_the_start_is_least(), 1.0)


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 1), (1, 3), (200, 3), (3, 200), (150, 150), (700, 40)]
)
def test_the_step_over_rows_is_one_over_the_norm(shape):
    Z = np.random.default_rng(1).normal(size=shape)
    check_step(fm.features(Z, 1, normalize=None), 1.0 / safe_step(Z))


@pytest.mark.parametrize("power", [-190, -160, 160, 190])
def test_the_step_is_one_over_the_norm_at_extreme_scales(power):
    # Squares of the entries of G leave the range of floating point long before G does.
    Z, rho = PLANTED["feasible"]
    c = 10.0 ** (power / 2)
    step = own_step(fm.features(c * Z, 1, normalize=None))[0] * c * c
    assert 1.0 / 1.04 <= step / safe_step(Z) <= 1.0 + 1e-12
    for kind in PLAIN:
        result = fm.diagonal_descent(form(kind, c * Z), lam0=c * c, max_iter=300, trace_at=[])
        assert rho - result.lower / c <= 1e-9 and result.upper / c - rho <= 1e-9


def test_the_starting_vector_is_no_special_one():
    # A start with a zero component along the top eigenvector would miss it altogether.
    for seed in range(40):
        v = np.random.default_rng(seed).integers(-2, 3, 90)
        if v.any():
            check_step(with_top_vector(v, 1.5, 90), 1.5)


@every_plain
@pytest.mark.parametrize("accel", [None, 3.0])
def test_step_none_is_that_step(kind, accel):
    G = form(kind, INSTANCES["overlapping"])
    step, _ = own_step(G)
    automatic = descend(G, accel, max_iter=100)
    assert np.array_equal(automatic.alpha, descend(G, accel, max_iter=100, step=step).alpha)
    assert not np.array_equal(
        automatic.alpha, descend(G, accel, max_iter=100, step=0.999 * step).alpha
    )


# ======================================================================================================
# WITHOUT A MARGIN, AND COUNTS OF PRODUCTS
# ======================================================================================================


def allowed_rounding(upper, scale, rho):
    """Of a dense G, with p = alpha: m is off by a few EPS s, ||p||_G^2 too, and lower is m / ||p||_G."""
    upper = np.maximum(upper, math.sqrt(EPS * scale))
    return 16 * EPS * scale * (1.0 / upper + abs(rho) / upper**2)


@rotate("name, kind", INFEASIBLE, PLAIN)
def test_infeasible_data_give_a_vanishing_upper_bound(name, kind):
    Z, rho = PLANTED[name]
    root = np.sqrt((Z**2).sum(axis=1).max())
    rounding = fm._checked(form(kind, Z)).rounding()
    floor = (
        1.01 * (np.sqrt(rounding.square) + rounding.length) * root
    )  # what rounding adds where ||p||_G = 0
    for accel in (None, 10.0):
        for lam in ("1/t", "2^-t"):
            result = descend(form(kind, Z), accel, lam=lam, lam0=root**2, max_iter=3000)
            upper = result.trace["upper"]
            assert np.isfinite(result.alpha).all()
            assert result.lower <= rho + allowed_rounding(result.upper, root**2, rho)
            assert upper[-1] <= 0.03 * root and upper[-1] <= 0.5 * upper[:10].max() + floor


# ======================================================================================================
# EXTREME SCHEDULES
# ======================================================================================================


@pytest.mark.filterwarnings("error")
@every_plain
@pytest.mark.parametrize("accel", [None, 3.0])
def test_schedules_that_leave_the_range_of_floating_point_end_at_the_margin(kind, accel):
    Z, rho = PLANTED["feasible"]
    G = form(kind, Z)
    zeros = np.r_[1.0, 0.0, 5e-324, 1e-310, np.zeros(4996)]
    free = descend(G, accel, lam=np.zeros(5000), max_iter=5000, trace_at=[])
    for options in (
        {"lam": "2^-t"},
        {"lam": "2^-t", "lam0": 1e-308},
        {"lam": "1/t^2", "lam0": 1e-308},
        {"lam": zeros},
        {"lam": lambda t: 0.0},
        {"lam": lambda t: 0},
        {"lam": "1/t", "lam0": 5e-324},
    ):
        result = descend(G, accel, max_iter=5000, trace_at=[], **options)
        assert np.isfinite(result.alpha).all() and abs(result.lower - rho) <= 1e-6
        np.testing.assert_allclose(result.alpha @ Z, free.alpha @ Z, rtol=0, atol=1e-6)
    # A penalty beyond the range is a box of no width: alpha = 0, and the certificate is that of the start.
    result = descend(G, accel, lam=lambda t: 1e10, lam0=1e308, max_iter=20)
    assert not result.alpha.any() and result.lower == pytest.approx(-1.0, rel=1e-13)
