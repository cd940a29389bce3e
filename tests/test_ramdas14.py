"""ramdas14: every lemma and bound along real runs, every algorithm against a twin written from the paper.

Each twin recomputes its products in extended precision at every step; the module carries them by recurrences in double
precision.  A bound is asserted with the paper's own constants, and s = max_i G_ii where the paper has 1.
"""

import itertools
import math
from typing import NamedTuple

import naive
import numpy as np
import pytest
from instances import (
    CALLS,
    EPS,
    PLAIN,
    PLANTED,
    UNTIED,
    algorithm_of,
    cross_polytope,
    dense,
    feasible,
    form,
    planted_l1,
    rotate,
    run,
    uneven,
)

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = np.longdouble
GAMMAS = (1.3, 2.0, 4.0)


INSTANCES = {
    **PLANTED,
    "random, infeasible": (UNTIED["around the origin"], -0.0),
}  # its inradius is not known
SMALL = [
    name for name, (Z, _) in INSTANCES.items() if len(Z) < 100 and name != "random, infeasible"
]
FEASIBLE = [name for name in SMALL if INSTANCES[name][1] > 0.0]
INFEASIBLE = [name for name in SMALL if INSTANCES[name][1] <= 0.0]
INRADIUS = [
    name
    for name in SMALL
    if INSTANCES[name][1] < 0.0
    and np.linalg.matrix_rank(INSTANCES[name][0]) == INSTANCES[name][0].shape[1]
]


# --- runs and twins -------------------------------------------------------------------------------------


class Record(NamedTuple):
    alpha: np.ndarray
    p: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    result: fm.Result


def record(name, G, max_iter, **own):
    """All iterates; p_k can be seen by a callback alone."""
    seen = {}
    result = run(
        name,
        G,
        max_iter=max_iter,
        trace_at=range(max_iter + 1),
        keep_iterates=True,
        callback=lambda r: seen.update({r.n_iter: (r.alpha, r.p, r.lower, r.upper, r.status)}),
        **own,
    )
    alpha, p, lower, upper, status = zip(*seen.values(), strict=True)
    assert np.array_equal(result.trace["iteration"], np.arange(result.n_iter + 1))
    assert np.array_equal(result.iterates, np.array(alpha))
    assert np.array_equal(result.trace["lower"], lower)
    assert np.array_equal(result.trace["upper"], upper)
    assert set(status[:-1]) <= {"running"} and status[-1] == result.status != "running"
    return Record(np.array(alpha), np.array(p), np.array(lower), np.array(upper), result)


def squared_length(Z):
    """s = max_i ||z_i||^2."""
    return float(np.einsum("ij,ij->i", Z, Z).max())


ALGORITHMS = ("perceptron", "nkp", "von_neumann", "frank_wolfe", "snkp", "snkpvn", "isnkpvn")
OURS = [name for name in CALLS if algorithm_of(name) in ALGORITHMS]
SMOOTHED = [name for name in OURS if CALLS[name].cost == "product"]
COLUMNS = [name for name in OURS if CALLS[name].cost == "column"]


def twin_of(name, Z, steps, **own):
    """What the paper says: iterates 0..steps at most."""
    return itertools.islice(
        naive.TWINS[algorithm_of(name)](Z, **{**CALLS[name].own, **own}), steps + 1
    )


def measure(path, twin):
    """Distances of alpha_k (relative to its largest weight) and of p_k from the twin's, and the twin's flags.

    A run ends where ||p||_G is 0 to the last bit, on which the twin, being more precise, goes on.
    """
    steps = list(twin)
    if path.upper[-1] == 0.0:
        steps = steps[: len(path.p)]
    a, p, flags = zip(*steps, strict=True)
    assert path.result.n_iter == len(a) - 1
    scale = np.maximum(1.0, np.abs(path.alpha).max(axis=1))
    return (
        np.abs(path.alpha - np.array(a)).max(axis=1) / scale,
        np.abs(path.p - np.array(p)).max(axis=1),
        flags,
    )


# where the uniform weights are no witness, so that the runs are long; where no two margins tie by symmetry
LONG_RUNS = [
    "feasible, odd n",
    "small margin",
    "margin 1e-3",
    "uneven",
    "opposite labels",
    "lopsided",
    "lopsided, shifted",
    "shifted, infeasible",
    "every point with both labels",
]
NO_TIES = ["feasible, odd n", "random, infeasible"]


def representation_and_rows(name, kind):
    Z, _ = INSTANCES[name]
    return form(kind, Z), Z


# --- iterates against the twins -------------------------------------------------------------------------


@rotate("algorithm, name, kind", SMOOTHED, LONG_RUNS, PLAIN, crossed=2)
def test_smoothed_iterates_are_the_papers(algorithm, name, kind):
    G, Z = representation_and_rows(name, kind)
    path = record(algorithm, G, 300)
    alpha_error, p_error, flags = measure(path, twin_of(algorithm, Z, 300))
    k = np.arange(len(flags))
    assert (alpha_error <= EPS * (2 + k)).all() and (p_error <= EPS * (2 + k)).all()
    assert flags[-1] == ("" if path.result.status == "max_iter" else path.result.status)
    if algorithm.startswith("isnkpvn"):  # for the others alpha = p is a coincidence
        restarts = [
            k for k in range(len(flags) - 1) if np.array_equal(path.alpha[k + 1], path.p[k])
        ]
        assert restarts == [k for k in range(len(flags)) if flags[k] == "restart"]


@rotate("center, kind", ["vertex", "random", "a zero weight"], PLAIN)
def test_snkpvn_from_any_center(center, kind):
    G, Z = representation_and_rows("lopsided, shifted", kind)
    n = len(Z)
    q = {
        "vertex": np.eye(n)[3],
        "random": np.random.default_rng(1).dirichlet(np.ones(n)),
        "a zero weight": np.arange(n) / (n * (n - 1) / 2),
    }[center]
    kept = q.copy()
    path = record("snkpvn", G, 400, delta=1e-3, q=q)
    alpha_error, p_error, flags = measure(path, twin_of("snkpvn", Z, 400, q=q))
    assert max(alpha_error.max(), p_error.max()) <= 40 * EPS and np.array_equal(q, kept)
    assert np.array_equal(path.alpha[0], q) and path.result.status == flags[-1] == "infeasible"


@rotate("algorithm, name, kind", COLUMNS, NO_TIES, PLAIN, crossed=2)
def test_column_iterates_are_the_papers(algorithm, name, kind):
    G, Z = representation_and_rows(name, kind)
    path = record(algorithm, G, 400)
    alpha_error, p_error, flags = measure(path, twin_of(algorithm, Z, 400))
    k = np.arange(len(flags))
    assert (alpha_error <= EPS * (2 + k / 4)).all() and (p_error <= EPS * (2 + k / 4)).all()
    assert flags[-1] == ("" if path.result.status == "max_iter" else path.result.status)


def test_ties_go_to_the_first_row():
    """nkp and perceptron start where all margins are 0."""
    Z, _ = INSTANCES["random, infeasible"]
    for name in ("nkp", "nkp, on", "perceptron", "perceptron, worst"):
        path = record(name, dense(Z), 1)
        assert np.array_equal(path.alpha[0], np.zeros(len(Z)))
        assert np.array_equal(path.alpha[1], np.eye(len(Z))[0])
        assert np.array_equal(path.p[0], np.full(len(Z), 1.0 / len(Z)))


# --- Frank-Wolfe from a vertex --------------------------------------------------------------------------


@rotate("name, kind", [*LONG_RUNS, "random, infeasible", "copies"], PLAIN)
def test_pairwise_steps_are_exact(name, kind):
    """Each goes to the minimum on its segment, whichever of the points that tie up to rounding it takes."""
    Z, _ = INSTANCES[name]
    G = naive.gram(Z)
    s = squared_length(Z)
    path = record("frank_wolfe", form(kind, Z), 80, eps=1e-6)
    for p, new in itertools.pairwise(path.p):
        p = np.asarray(p, LONG)
        m = G @ p
        slack = 1e-13 * s
        used = np.where(p > 0.0, m, -np.inf)
        error = math.inf
        for j, a in itertools.product(
            np.flatnonzero(m <= m.min() + slack), np.flatnonzero(used >= used.max() - slack)
        ):
            made = naive.exchanged(G, p, j, a)
            error = min(error, np.abs(G @ (made - new)).max() / s)
        assert error <= 1e-13


# --- the lemmas -----------------------------------------------------------------------------------------


def loss(Z, alpha):
    """(L(alpha), G alpha, ||alpha||_G^2) in extended precision."""
    w = np.asarray(alpha, LONG) @ np.asarray(Z, LONG)
    m = w @ Z.T
    return -m.min(axis=-1) + (w * w).sum(axis=-1) / 2, m, (w * w).sum(axis=-1)


def smoothed_loss(m, square, mu, q, prox):
    """L_mu: a log-sum-exp, or the value at an independent projection."""
    if prox == "entropy":
        low = m.min()
        return mu * np.log((q * np.exp((low - m) / mu)).sum()) - low + square / 2
    p = naive.sorted_projection(q - m / mu)
    return -(m @ p) - mu / 2 * ((p - q) ** 2).sum() + square / 2


def excessive_gaps(Z, path, prox, q):
    """L_{mu_k}(alpha_k), -||p_k||^2/2, L(alpha_k) and mu_k along a run of snkp or snkpvn."""
    n = len(Z)
    k = np.arange(len(path.p), dtype=LONG)
    mu = 4 * squared_length(Z) * (1 if prox == "entropy" else n) / ((k + 1) * (k + 2))
    L, m, squares = loss(Z, path.alpha)
    smooth = np.array([smoothed_loss(m[i], squares[i], mu[i], q, prox) for i in range(len(mu))])
    return smooth, -loss(Z, path.p)[2] / 2, L, mu


def centers(n):
    return {
        "uniform": np.full(n, 1.0 / n),
        "vertex": np.eye(n)[n // 2],
        "random": np.random.default_rng(n).dirichlet(np.ones(n)),
    }


@pytest.mark.parametrize("name", SMALL)
def test_lemmas_4_and_5_the_excessive_gap_holds_along_snkp(name):
    Z, _ = INSTANCES[name]
    n = len(Z)
    path = record("snkp", dense(Z), 150)
    smooth, upper, L, mu = excessive_gaps(Z, path, "entropy", np.full(n, 1.0 / n))
    slack = 8 * EPS * squared_length(Z)
    assert (smooth <= upper + slack).all() and (smooth >= L - mu * math.log(n) - slack).all()


@rotate("name, kind", [*SMALL, "random, infeasible"], PLAIN, crossed=2)
def test_what_snkp_certifies_without_a_separator(name, kind):
    """||p_k||_G^2 <= rho+^2 + 8 s ln(n) / ((k+1)(k+2)), where rho <= 0 a certificate that no margin exists.

    Proof: "SNKP without a separator" in figures/THEOREMS.md.
    """
    Z, rho = INSTANCES[name]
    path = record("snkp, on", form(kind, Z), 300)
    s = squared_length(Z)
    k = np.arange(len(path.p))
    bound = max(rho, 0.0) ** 2 + 8 * s * math.log(len(Z)) / ((k + 1) * (k + 2))
    assert (np.square(path.p @ Z).sum(axis=1) <= bound + (8 + len(Z)) * EPS * s).all()


@rotate("name, kind", [*INFEASIBLE, "random, infeasible"], PLAIN, crossed=2)
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_snkp_is_done_within_the_root_of_8_ln_n_over_eps(name, kind, scale):
    Z = scale * INSTANCES[name][0]
    for eps in (0.5, 0.1, 0.01, 1e-3, 1e-4):
        eps *= math.sqrt(squared_length(Z))
        bound = math.sqrt(8 * squared_length(Z) * math.log(len(Z))) / eps
        result = fm.snkp(form(kind, Z), eps=eps, max_iter=20 * math.ceil(bound), trace_at=[])
        assert result.status == "infeasible" and result.n_iter <= bound
        assert naive.norm(Z, result.p) <= result.upper <= eps


@rotate("name, center", SMALL, centers(3))
def test_lemma_8_the_excessive_gap_holds_along_snkpvn(name, center):
    Z, _ = INSTANCES[name]
    q = centers(len(Z))[center]
    path = record("snkpvn", dense(Z), 150, delta=1e-8 * math.sqrt(squared_length(Z)), q=q)
    smooth, upper, L, mu = excessive_gaps(Z, path, "l2", q)
    slack = 8 * EPS * squared_length(Z)
    assert (smooth <= upper + slack).all() and (smooth >= L - mu - slack).all()


@pytest.mark.parametrize("center", centers(3))
@pytest.mark.parametrize("name", INRADIUS)
def test_lemma_9_lengths_fall_like_1_over_k_with_the_root_of_two(name, center):
    """||p_k||_G <= 2 sqrt(2 n s)/(k+1) min(1, ||q||_G/|rho|) where the hull holds a ball of radius |rho|."""
    Z, rho = INSTANCES[name]
    n = len(Z)
    s = squared_length(Z)
    q = centers(len(Z))[center]
    path = record("snkpvn", Z @ Z.T, 200, delta=1e-7 * math.sqrt(s), q=q)
    k = np.arange(len(path.p))
    norm_q = np.linalg.norm(q @ Z)
    bound = 2 * math.sqrt(2 * n * s) / (k + 1) * min(1.0, norm_q / abs(rho))
    assert (np.linalg.norm(path.p @ Z, axis=1) <= bound + 4 * EPS * math.sqrt(s)).all()
    if n <= 8:
        smooth, _, _, mu = excessive_gaps(Z, path, "l2", q)
        assert (
            smooth
            >= -mu / 2 * naive.witness_distance(Z, q[None])[0] ** 2 - 1e-13 * mu - 8 * EPS * s
        ).all()


@pytest.mark.parametrize("times", [1.01, 2.0, 20.0])
@pytest.mark.parametrize("name", FEASIBLE)
def test_lemma_9_snkpvn_ends_where_there_is_a_margin_below_delta(name, times):
    """||p_k||_G^2 <= rho^2 + 2 mu_k, so that a separator, or a p shorter than delta, is there within 4 sqrt(n s)/delta.

    Proof: "SNKPVN at a margin below delta" in figures/THEOREMS.md.
    """
    Z, rho = INSTANCES[name]
    n = len(Z)
    s = squared_length(Z)
    delta = times * rho
    for q in centers(n).values():
        path = record(
            "snkpvn", dense(Z), math.ceil(4 * math.sqrt(n * s) / delta) + 1, delta=delta, q=q
        )
        k = np.arange(len(path.p))
        assert (
            ((path.p @ Z) ** 2).sum(axis=1)
            <= rho**2 + 8 * n * s / ((k + 1) * (k + 2)) + 8 * EPS * s
        ).all()
        assert path.result.status in ("separated", "infeasible")
        assert path.result.n_iter <= 4 * math.sqrt(n * s) / delta


@pytest.mark.parametrize(
    "name", [name for name in SMALL if INSTANCES[name][1] < 0.0 and len(INSTANCES[name][0]) <= 8]
)
def test_lemma_7_the_length_bounds_the_distance_to_witnesses(name):
    """dist(p, witnesses) <= min(sqrt 2, sqrt 2 ||p||_G/|rho|) for the iterates, the vertices and random points."""
    Z, rho = INSTANCES[name]
    n = len(Z)
    rng = np.random.default_rng(3)
    path = record("snkpvn", dense(Z), 60, delta=1e-6, q=np.eye(n)[0])
    points = np.vstack((path.p, path.alpha, np.eye(n), rng.dirichlet(np.full(n, 0.5), 40)))
    points /= points.sum(axis=1)[:, None]
    distance = naive.witness_distance(Z, points)
    assert (
        distance
        <= np.sqrt(2) * np.minimum(1.0, np.linalg.norm(points @ Z, axis=1) / abs(rho)) + 1e-12
    ).all()
    if name == "simplex":  # where the centre is the only witness
        assert np.allclose(distance, np.linalg.norm(points - 1.0 / n, axis=1), rtol=0, atol=1e-12)
    if name == "cross-polytope, scale 1/8":  # where p_i = p_{i+d} are all witnesses
        assert np.allclose(
            distance,
            np.linalg.norm(points[:, : n // 2] - points[:, n // 2 :], axis=1) / np.sqrt(2),
            rtol=0,
            atol=1e-12,
        )


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("algorithm", [name for name in OURS if CALLS[name].halts])
def test_lemma_1_halting_at_the_first_separator(algorithm, name):
    """L(alpha) < 0 implies G alpha > 0: all iterates but the last have L >= 0 and a margin <= 0, to rounding."""
    Z, _ = INSTANCES[name]
    path = record(algorithm, dense(Z), 150)
    L, m, _ = loss(Z, path.alpha)
    slack = 8 * EPS * squared_length(Z) * np.abs(path.alpha).sum(axis=1)
    assert (L[:-1] >= -slack[:-1]).all() and (m.min(axis=1) <= slack)[:-1].all()
    assert (path.result.status == "separated") <= (m[-1].min() > 0.0)
    if m[-1].min() > slack[-1] and path.result.n_iter < 150:
        assert path.result.status == "separated"


@pytest.mark.parametrize("name", LONG_RUNS + ["feasible", "copies", "cross-polytope", "simplex"])
def test_nkp_goes_on_to_the_maximum_margin(name):
    """With w* the least-norm point of the hull, <w_k - w*, z_i - w*> <= 0 for the row that is added (both w* and w_k
    lie in the hull), so k ||w_k - w*||^2 <= s - rho+^2: hence the two bounds."""
    Z, rho = INSTANCES[name]
    rho = max(rho, 0.0)
    s = squared_length(Z)
    path = record("nkp, on", dense(Z), 300)
    k = np.arange(1, len(path.p))
    distance = np.sqrt((s - rho**2) / k)
    norms = np.linalg.norm(path.p @ Z, axis=1)[1:]
    least = (path.p @ Z @ Z.T).min(axis=1)[1:]
    assert (norms <= rho + distance + 1e-14 * math.sqrt(s)).all()
    assert (least >= rho**2 - math.sqrt(s) * distance - 1e-14 * s).all()


# --- iteration bounds -----------------------------------------------------------------------------------

THEOREM = [
    (feasible(n, d, rho, n), scale)
    for n, d in ((10, 3), (100, 8), (1000, 30))
    for rho in (0.3, 0.1, 0.03, 0.01)
    for scale in (1.0, 7.0)
]
THEOREM += [(uneven(n, 5, rho, n), 1.0) for n in (10, 200) for rho in (0.3, 0.03)]
THEOREM = [(scale * Z, scale * rho) for (Z, rho), scale in THEOREM]


@pytest.mark.parametrize("Z, rho", THEOREM)
def test_theorem_1_points_are_separated_within_the_proved_iterations(Z, rho):
    """Theorem 1 and the perceptron's bound, which the normalised one shares."""
    n = len(Z)
    s = squared_length(Z)
    G = fm.features(Z, 1, normalize=None) if n <= 100 else dense(Z)
    bounds = {
        fm.snkp: 2 * math.sqrt(2 * s * math.log(n)) / rho,
        fm.perceptron: s / rho**2,
        fm.nkp: s / rho**2,
        fm.snkpvn: 2 * math.sqrt(2 * n * s) / rho,
    }
    for algorithm, bound in bounds.items():
        for own in (
            ({"rule": "cyclic"}, {"rule": "worst"})
            if algorithm is fm.perceptron
            else ({"delta": rho / 2},)
            if algorithm is fm.snkpvn
            else ({},)
        ):
            result = algorithm(G, max_iter=math.ceil(bound) + 1, trace_at=[], **own)
            assert result.status == "separated" and result.n_iter <= bound
            assert 0.0 < result.lower <= rho * (1 + 1e-9) and (Z @ (Z.T @ result.alpha)).min() > 0.0


@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize(
    "name",
    [
        "lopsided",
        "lopsided, shifted",
        "opposite labels",
        "every point with both labels",
        "random, infeasible",
        "on the boundary",
        "one dimension, infeasible",
    ],
)
def test_von_neumann_reaches_eps_in_s_over_eps_squared(name, scale):
    Z = scale * INSTANCES[name][0]
    s = squared_length(Z)
    for eps in (0.5, 0.1, 0.03, 0.01):
        eps *= math.sqrt(s)
        path = record("von_neumann", dense(Z), 2000, eps=eps)
        norms = np.linalg.norm(path.p @ Z, axis=1)
        k = np.arange(len(norms))
        assert (norms[1:] <= np.sqrt(s / k[1:]) * (1 + 1e-12)).all()
        assert (norms[:-1] > eps * (1 - 1e-9)).all()
        if path.result.n_iter < 2000:
            assert path.result.status == "infeasible"
            assert norms[-1] <= eps * (1 + 1e-9)
            assert len(k) - 1 <= s / eps**2


@pytest.mark.parametrize("Z, rho", THEOREM)
def test_von_neumann_separates_in_s_over_rho_squared(Z, rho):
    """Epelman & Freund 2000.  Where the row has a margin of 0 or less, 1/||w||^2 grows by 1/s or more: the height of a
    triangle with a right or an obtuse angle at the origin."""
    s = squared_length(Z)
    steps = math.ceil(s / rho**2)
    result = fm.von_neumann(
        fm.features(Z, 1, normalize=None),
        eps=rho / 2,
        stop="separated",
        max_iter=steps,
        trace_at=range(steps),
        keep_iterates=True,
    )
    inverse = 1.0 / np.square(np.asarray(result.iterates, LONG) @ Z).sum(axis=1)
    assert result.status == "separated" and (Z @ (Z.T @ result.p)).min() > 0.0
    assert (np.diff(inverse) >= (1 - 1e-9) / s).all()


@pytest.mark.parametrize("name", INRADIUS)
def test_von_neumann_converges_linearly_where_the_hull_holds_a_ball(name):
    """Epelman & Freund 2000: ||p_k||_G <= (1 - rho^2/s)^(k/2) ||p_0||_G, hence the 2 (s/rho^2) ln(||p_0||_G/eps)."""
    Z, rho = INSTANCES[name]
    path = record(
        "von_neumann",
        fm.features(Z, 1, normalize=None),
        1500,
        eps=1e-6 * math.sqrt(squared_length(Z)),
        stop="separated",
    )
    norms = np.linalg.norm(path.p @ Z, axis=1)
    bound = (1 - rho**2 / squared_length(Z)) ** (np.arange(len(norms)) / 2) * norms[0]
    assert (norms <= bound * (1 + 1e-9) + 1e-15).all() and path.result.status == "infeasible"


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("Z, rho", THEOREM[::3])
def test_theorem_4_isnkpvn_separates_within_the_proved_steps(Z, rho, gamma):
    """Each call takes at most 2 sqrt(2 n s)/rho steps; fewer than log(||q_0||_G/rho)/log(gamma) calls return."""
    n = len(Z)
    s = squared_length(Z)
    for fraction in (0.1, 0.9):
        result = fm.isnkpvn(dense(Z), eps=fraction * rho, gamma=gamma, max_iter=100_000)
        assert result.status == "separated"
    if n > 100:
        return
    path = record("isnkpvn", dense(Z), 1000, eps=rho / 2, gamma=gamma)
    calls = lengths_of_calls(path)
    assert path.result.status == "separated" and max(calls) <= 2 * math.sqrt(2 * n * s) / rho
    returned = len(calls) - 1
    assert returned == 0 or returned < math.log(np.linalg.norm(Z.mean(axis=0)) / rho) / math.log(
        gamma
    )


@pytest.mark.parametrize("gamma", [1.3, 2.0])
@pytest.mark.parametrize("name", [*FEASIBLE, *INFEASIBLE])
def test_the_entropy_prox_has_a_logarithm_where_l2_has_n(name, gamma):
    """Call t, from a centre q of D = -ln min_i q_i, takes at most 2 sqrt(2 D s) / max(rho, delta_t) steps, and k steps
    raise D by at most 1 + ln((k+1)(k+2)/2).

    Proof: "ISNKPVN with the entropy prox" in figures/THEOREMS.md.
    """
    Z, rho = INSTANCES[name]
    s = squared_length(Z)
    eps = rho / 2 if rho > 0 else 1e-3 * math.sqrt(s)
    path = record("isnkpvn, entropy", fm.features(Z, 1, normalize=None), 3000, eps=eps, gamma=gamma)
    calls = lengths_of_calls(path)
    starts = np.cumsum([0] + [c + 1 for c in calls[:-1]])
    centers = path.alpha[starts]
    D = -np.log(centers.min(axis=1))
    delta = np.maximum(np.linalg.norm(centers @ Z, axis=1), eps) / gamma
    assert path.result.status == ("separated" if rho > 0 else "infeasible")
    assert (np.array(calls) <= 2 * np.sqrt(2 * s * D) / np.maximum(delta, rho)).all()
    k = np.array(calls[:-1])
    assert D[0] == pytest.approx(math.log(len(Z)))
    assert (np.diff(D) <= 1 + np.log((k + 1) * (k + 2) / 2)).all()


@pytest.mark.parametrize("prox", ["l2", "entropy"])
@pytest.mark.parametrize("name", ["small margin", "margin 1e-3", "lopsided", "shifted, infeasible"])
def test_copies_of_all_points_change_nothing(name, prox):
    """Neither prox tells n points from n copies of each, whose weights are 1/n of theirs."""
    Z, rho = INSTANCES[name]
    few, many = (
        fm.isnkpvn(
            fm.features(rows, 1, normalize=None),
            prox=prox,
            eps=abs(rho) / 3,
            max_iter=20,
            trace_at=range(20),
        )
        for rows in (Z, np.tile(Z, (7, 1)))
    )
    np.testing.assert_allclose(
        7 * many.p.reshape(7, -1), np.tile(few.p, (7, 1)), rtol=1e-6, atol=1e-9
    )
    assert many.n_iter == few.n_iter > 0


def lengths_of_calls(path):
    """Iterations of each call of SNKPVN in a run of isnkpvn: a new call starts at alpha = p."""
    starts = [0] + [
        k + 1 for k in range(len(path.p) - 1) if np.array_equal(path.alpha[k + 1], path.p[k])
    ]
    return [
        stop - start
        for start, stop in zip(starts, [k - 1 for k in starts[1:]] + [len(path.p) - 1], strict=True)
    ]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize(
    "name",
    [
        "lopsided",
        "lopsided, shifted",
        "shifted, infeasible",
        "opposite labels",
        "every point with both labels",
        "random, infeasible",
    ],
)
def test_theorem_4_isnkpvn_proves_infeasibility_within_the_proved_steps(name, scale, gamma):
    """Call t takes at most 2 gamma sqrt(2 n s) min(1/||q_t||_G, 1/|rho|) steps; calls return until delta_t < eps."""
    Z, rho = INSTANCES[name]
    Z = scale * Z
    rho = scale * rho
    n = len(Z)
    s = squared_length(Z)
    eps = 1e-3 * scale
    path = record("isnkpvn", fm.features(Z, 1, normalize=None), 2500, eps=eps, gamma=gamma)
    assert path.result.status == "infeasible" and path.result.upper < eps
    calls = lengths_of_calls(path)
    starts = np.cumsum([0] + [c + 1 for c in calls[:-1]])
    norms = np.linalg.norm(path.alpha[starts] @ Z, axis=1)
    assert (norms[1:] < norms[:-1] / gamma * (1 + 1e-12)).all()
    assert (norms[:-1] / gamma >= eps * (1 - 1e-12)).all() and norms[-1] / gamma < eps
    inverse = np.minimum(1 / norms, 1 / abs(rho) if rho else math.inf)
    assert (np.array(calls) <= 2 * gamma * math.sqrt(2 * n * s) * inverse).all()
    assert len(calls) <= math.log(norms[0] / eps) / math.log(gamma) + 1
    assert sum(calls) <= 2 * math.sqrt(2 * n * s) / eps * (
        gamma + gamma / (gamma - 1)
    )  # 8 sqrt(2 n s)/eps for gamma 2


# --- Gordan's alternative -------------------------------------------------------------------------------

HALTING = [name for name in OURS if CALLS[name].halts or CALLS[name].witness]
HALTING += ["isnkpvn, gamma 1.1"]


def halting(name, G, eps, max_iter):
    """The call, with its delta or eps, which promise a witness, at eps."""
    gamma = {"gamma": 1.1} if name == "isnkpvn, gamma 1.1" else {}
    name = name if name in CALLS else algorithm_of(name)
    own = {CALLS[name].witness: eps} if CALLS[name].witness else {}
    return run(name, G, max_iter=max_iter, trace_at=[], **gamma, **own)


@rotate("algorithm, name, kind", HALTING, INSTANCES, PLAIN, crossed=2)
def test_a_separator_or_a_certificate_is_found_whichever_exists(algorithm, name, kind):
    """Feasible: never "infeasible" below rho.  Infeasible: never "separated", and a promised witness is given."""
    Z, rho = INSTANCES[name]
    root = math.sqrt(squared_length(Z))
    eps = 0.9 * rho if rho > 0.0 else 1e-2 * root
    halts = algorithm not in CALLS or CALLS[algorithm].halts
    max_iter = math.ceil((root / rho) ** 2) if rho > 0.0 and halts else 12_000
    result = halting(algorithm, form(kind, Z), eps, max_iter)
    if rho > 0.0:
        assert result.status == ("separated" if halts else "max_iter")
        assert result.lower <= rho * (1 + 1e-9) and result.upper >= rho * (1 - 1e-9)
    else:
        gives_witness = CALLS[algorithm if algorithm in CALLS else algorithm_of(algorithm)].witness
        assert result.status == ("infeasible" if gives_witness else "max_iter")
        if gives_witness:
            assert naive.norm(Z, result.p) <= eps


@pytest.mark.parametrize("algorithm", HALTING)
@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-9])
def test_nearly_infeasible_points_end_on_a_true_side(algorithm, gap):
    """A margin of gap and eps above it: either side may come first, each is true; eps below it leaves only one."""
    Z, rho = cross_polytope(4, 0.5 + gap)
    Z = np.vstack((Z, 1.5 * Z[:3]))
    for eps in (0.1, gap / 2):
        result = halting(algorithm, fm.features(Z, 1, normalize=None), eps, 3000)
        if result.status == "separated":
            assert 0.0 < naive.interval(Z, result.alpha, result.p)[0] <= rho * (1 + 1e-6)
        elif result.status == "infeasible":
            assert eps > gap and rho * (1 - 1e-6) <= naive.norm(Z, result.p) <= eps
        else:
            assert result.status == "max_iter"


@rotate("seed, kind", range(12), PLAIN)
def test_opposite_labels_are_never_separated(seed, kind):
    """rho = 0 exactly, one pair z, -z among points that lie on one side of a plane through z; rounding must not make
    both margins positive."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 6))
    n = int(rng.integers(3, 20))
    z, u = rng.normal(size=(2, d))
    u -= (z @ u) / (z @ z) * z
    A = rng.normal(size=(4 * n, d))
    A = A[np.abs(A @ u) > 0.1][:n] * 1.0
    A *= np.sign(A @ u)[:, None]
    half = len(A) // 2
    G = form(kind, np.vstack((A[:half], z, A[half:], -z)))
    for algorithm in HALTING:
        assert halting(algorithm, G, 1e-6, 600).status != "separated"


# --- winnow ---------------------------------------------------------------------------------------------

WINNOW = [
    (n, d, idle, rho)
    for n, d, idle in ((20, 4, 0), (50, 10, 30), (200, 6, 200))
    for rho in (0.4, 0.1, 0.03)
]


@pytest.mark.parametrize("n, d, idle, rho", WINNOW)
def test_winnow_separates_within_its_bound_at_a_known_l1_margin(n, d, idle, rho):
    Z = planted_l1(n, d, idle, rho, seed=n)
    kept = Z.copy()
    bound = 2 * math.log(d + idle) / rho**2
    path = record("winnow", Z, math.ceil(bound), eta=rho)
    assert path.result.status == "separated"
    assert path.result.n_iter <= bound
    assert (Z @ path.result.alpha).min() > 0.0
    assert path.result.alpha.shape == (d + idle,)
    assert path.result.p.shape == (n,)
    assert np.array_equal(Z, kept)
    assert (path.lower <= rho).all() and (path.upper >= rho).all()
    slack = 2 * sum(Z.shape) * EPS
    assert np.allclose(path.lower, (Z @ path.alpha.T).min(axis=0), rtol=0, atol=slack)
    assert np.allclose(path.upper, (path.p @ Z).max(axis=1), rtol=0, atol=slack)
    assert np.abs(path.alpha.sum(axis=1) - 1).max() <= 8 * EPS and (path.alpha >= 0).all()
    w, p, flags = zip(*twin_of("winnow", Z, math.ceil(bound), eta=rho), strict=True)
    assert len(w) == len(path.alpha) and flags[-1] == "separated" and not any(flags[:-1])
    k = np.arange(len(w))[:, None]
    assert (np.abs(path.alpha - np.array(w)) <= EPS * (8 + k)).all()
    assert np.abs(path.p - np.array(p)).max() <= 4 * EPS
    assert np.array_equal(path.result.trace["products"], path.result.trace["iteration"])


def test_winnow_does_not_depend_on_the_lengths_of_rows():
    Z = planted_l1(20, 6, 3, 0.1)
    factors = 2.0 ** np.random.default_rng(0).integers(-30, 30, (20, 1))
    plain = fm.winnow(Z, eta=0.1)
    scaled = fm.winnow(factors * Z, eta=0.1)
    assert np.array_equal(plain.alpha, scaled.alpha)
    assert (plain.lower, plain.upper) == (scaled.lower, scaled.upper)


def test_winnow_proves_that_no_weights_separate():
    """rho_1 < 0: some max_j (Z'p)_j <= 0 proves it, within a few updates."""
    Z = np.array(
        [[1.0, -0.5], [-1.0, 0.25], [0.2, -1.0]]
    )  # columns 0 and 1, rows 1 and 2: w = (25, 24)/49
    value = (-1.0 * -1.0 - 0.25 * 0.2) / (-1.0 - 1.0 - 0.25 - 0.2)
    result = fm.winnow(Z, eta=0.05, max_iter=4000)
    assert result.lower <= value <= result.upper <= 0.0 and result.status == "infeasible"
    huge = fm.winnow(Z, eta=1e6, max_iter=500)
    assert np.isfinite(huge.alpha).all() and huge.lower <= value <= huge.upper
