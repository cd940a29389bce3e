"""ramdas14: every lemma and bound along real runs, every algorithm against a twin written from the paper.

Each twin recomputes its products in extended precision at every step; the module carries them by recurrences in double
precision.  A bound is asserted with the paper's own constants, and s = max_i G_ii where the paper has 1.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
import planted
import pytest
from planted import EPS, REPRESENTATIONS

import fastmargin as fm

LONG = np.longdouble
GAMMAS = (1.3, 2.0, 4.0)


# --- instances ------------------------------------------------------------------------------------------

def uneven(n, d, rho, seed=0):
    """Rows (rho, t u) in pairs +-u, of lengths t that differ from pair to pair: margin rho, no common norm."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n // 2, d - 1)) * rng.uniform(0.3, 3.0, (n // 2, 1))
    return np.column_stack((np.full(2 * len(u), rho), np.vstack((u, -u)))), rho


def lopsided(d, copies=7, shift=0.0):
    """A cross-polytope with rows repeated and doubled: the uniform weights are no witness; inradius as without."""
    Z, rho = planted.cross_polytope(d, shift)
    return np.vstack((Z, np.repeat(Z[:2], copies, axis=0), 2.0 * Z[:1])), rho


def copies_with_opposite_labels(n, d, seed=0):
    """Points in general position, all of them with both labels and some of them twice: p = (e_i + e_j)/2 has norm 0,
    so rho <= 0; 0 is all that is said of it."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    return np.vstack((Z, -Z, Z[:3]))[rng.permutation(2 * n + 3)], 0.0


def planted_l1(n, d, idle, rho, seed=0):
    """Rows rho 1 +- u with <u, 1> = 0 in pairs, of largest entry 1, and ``idle`` columns that cancel in pairs:
    the uniform weights on both sides prove that the l1-margin is rho."""
    rng = np.random.default_rng(seed)
    half = rng.uniform(-1.0, 1.0, (n // 2, d // 2))
    half[:, 0] = 1.0
    u = (1.0 - rho) * rng.permuted(np.hstack((half, -half)), axis=1)
    noise = rng.uniform(-1.0, 1.0, (n // 2, idle))
    return np.vstack((np.hstack((rho + u, noise)), np.hstack((rho - u, -noise))))


INSTANCES = {
    **planted.PLANTED,
    "uneven": uneven(30, 5, 0.3, 1),
    "lopsided": lopsided(4),
    "lopsided, shifted": lopsided(3, 5, 0.3),
    "every point with both labels": copies_with_opposite_labels(12, 4),
}
SMALL = [name for name, (Z, _) in INSTANCES.items() if len(Z) < 100]
FEASIBLE = [name for name in SMALL if INSTANCES[name][1] > 0.0]
INFEASIBLE = [name for name in SMALL if INSTANCES[name][1] <= 0.0]
INRADIUS = [name for name in SMALL if INSTANCES[name][1] < 0.0 and np.linalg.matrix_rank(INSTANCES[name][0])
            == INSTANCES[name][0].shape[1]]
SAMPLE = ["feasible", "feasible, odd n", "uneven", "opposite labels", "lopsided", "one point", "a row of zeros"]


# --- runs and twins -------------------------------------------------------------------------------------

class Run(NamedTuple):
    alpha: np.ndarray
    p: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    result: fm.Result


def record(algorithm, G, max_iter, **own):
    """All iterates; p_k can be seen by a callback alone."""
    seen = []
    result = algorithm(G, max_iter=max_iter, trace_at=range(max_iter + 1), keep_iterates=True,
                       callback=lambda r: seen.append((r.alpha, r.p, r.lower, r.upper, r.status)), **own)
    alpha, p, lower, upper, status = zip(*seen, strict=True)
    assert np.array_equal(result.trace["iteration"], np.arange(result.n_iter + 1))
    assert np.array_equal(result.iterates, np.array(alpha))
    assert np.array_equal(result.trace["lower"], lower) and np.array_equal(result.trace["upper"], upper)
    assert set(status[:-1]) <= {"running"} and status[-1] == result.status != "running"
    return Run(np.array(alpha), np.array(p), np.array(lower), np.array(upper), result)


def exact_gram(Z):
    Z = np.asarray(Z, LONG)
    return Z @ Z.T


def exact_norm(Z, p):
    return float(np.sqrt(((np.asarray(p, LONG) @ np.asarray(Z, LONG)) ** 2).sum()))


def scale_of(Z):
    return float(np.einsum("ij,ij->i", Z, Z).max())


def softmax_prox(g, mu, q):
    p = q * np.exp((g.min() - g) / mu)
    return p / p.sum()


def sorted_projection(v):
    """Projection onto the simplex by sorting."""
    v = v - v.max()
    u = np.sort(v)[::-1]
    excess = np.cumsum(u) - 1
    k = np.flatnonzero(u * np.arange(1, v.size + 1) > excess)[-1]
    return np.maximum(v - excess[k] / (k + 1), 0)


def euclidean_prox(g, mu, q):
    return sorted_projection(q - g / mu)


PROX = {"entropy": softmax_prox, "l2": euclidean_prox}


def smoothed_twin(Z, steps, prox, q=None, delta=-1.0, gamma=None, eps=None):
    """Algorithms 4, 6 and 7; yields (alpha_k, p_k, flag) with flag "restart" where p_k becomes the next centre."""
    G, n = exact_gram(Z), len(Z)
    mu0 = G.diagonal().max() * (2 if prox == "entropy" else 2 * n)
    q = np.full(n, 1 / LONG(n)) if q is None else np.asarray(q, LONG)
    prox = PROX[prox]
    if gamma is not None:
        delta = np.sqrt(q @ G @ q) / gamma
    alpha, mu, inner = q, mu0, 0
    p = prox(G @ alpha, mu, q)
    for _ in range(steps + 1):
        norm = np.sqrt(max(p @ G @ p, 0))
        if (G @ alpha).min() > 0:
            yield alpha, p, "separated"
            return
        if norm < delta and (gamma is None or delta < eps):
            yield alpha, p, "infeasible"
            return
        if norm < delta:
            yield alpha, p, "restart"
            q, delta, alpha, mu, inner = p, norm / gamma, p, mu0, 0
            p = prox(G @ alpha, mu, q)
            continue
        yield alpha, p, ""
        theta = 2 / LONG(inner + 3)
        alpha = (1 - theta) * (alpha + theta * p) + theta**2 * prox(G @ alpha, mu, q)
        mu = (1 - theta) * mu
        p = (1 - theta) * p + theta * prox(G @ alpha, mu, q)
        inner += 1


def perceptron_twin(Z, steps, rule):
    G, n, last = exact_gram(Z), len(Z), -1
    alpha = np.zeros(n, LONG)
    for _ in range(steps + 1):
        m = G @ alpha
        wrong = [i % n for i in range(last + 1, last + 1 + n) if m[i % n] <= 0]
        yield alpha, alpha / alpha.sum() if alpha.any() else np.full(n, 1 / LONG(n)), "" if wrong else "separated"
        if not wrong:
            return
        last = wrong[0] if rule == "cyclic" else int(np.argmin(m))
        alpha = alpha + np.eye(n)[last]


def nkp_twin(Z, steps, stop):
    G, n = exact_gram(Z), len(Z)
    alpha = np.zeros(n, LONG)
    for k in range(steps + 1):
        m = G @ alpha
        done = stop == "separated" and m.min() > 0
        yield alpha, alpha if k else np.full(n, 1 / LONG(n)), "separated" if done else ""
        if done:
            return
        theta = 1 / LONG(k + 1)
        alpha = (1 - theta) * alpha + theta * np.eye(n)[np.argmin(m)]


def von_neumann_twin(Z, steps, eps):
    G, n = exact_gram(Z), len(Z)
    p = np.full(n, 1 / LONG(n))
    for _ in range(steps + 1):
        m = G @ p
        if p @ m <= eps**2:
            yield p, p, "infeasible"
            return
        yield p, p, ""
        j = int(np.argmin(m))
        direction = np.eye(n)[j] - p
        curvature = direction @ G @ direction
        if curvature > 0:
            p = p + min(max(-(direction @ m) / curvature, 0), 1) * direction


# name -> (algorithm, its arguments, twin, the twin's arguments); delta = eps = None stand for a fraction of sqrt(s)
SMOOTHED = {
    "snkp": (fm.snkp, {}, {"prox": "entropy"}),
    "snkpvn": (fm.snkpvn, {"delta": 1e-3}, {"prox": "l2", "delta": 1e-3}),
    "isnkpvn": (fm.isnkpvn, {"eps": 1e-3}, {"prox": "l2", "gamma": 2.0, "eps": 1e-3}),
    "isnkpvn, gamma 4": (fm.isnkpvn, {"eps": 1e-3, "gamma": 4.0}, {"prox": "l2", "gamma": 4.0, "eps": 1e-3}),
    "isnkpvn, entropy": (fm.isnkpvn, {"eps": 1e-3, "gamma": 1.5, "prox": "entropy"},
                         {"prox": "entropy", "gamma": 1.5, "eps": 1e-3}),
}
COLUMNS = {
    "perceptron": (fm.perceptron, {}, perceptron_twin, {"rule": "cyclic"}),
    "perceptron, worst": (fm.perceptron, {"rule": "worst"}, perceptron_twin, {"rule": "worst"}),
    "nkp": (fm.nkp, {}, nkp_twin, {"stop": "separated"}),
    "nkp, on": (fm.nkp, {"stop": None}, nkp_twin, {"stop": None}),
    "von_neumann": (fm.von_neumann, {"eps": 1e-3}, von_neumann_twin, {"eps": 1e-3}),
}
ALGORITHMS = {name: spec[:2] for name, spec in {**SMOOTHED, **COLUMNS}.items()}


def measure(run, twin):
    """Distances of alpha_k (relative to its largest weight) and of p_k from the twin's, and the twin's flags.

    A run ends where ||p||_G is 0 to the last bit, on which the twin, being more precise, goes on.
    """
    steps = list(twin)
    if run.upper[-1] == 0.0:
        steps = steps[:len(run.p)]
    a, p, flags = zip(*steps, strict=True)
    assert run.result.n_iter == len(a) - 1
    scale = np.maximum(1.0, np.abs(run.alpha).max(axis=1))
    return (np.abs(run.alpha - np.array(a)).max(axis=1) / scale, np.abs(run.p - np.array(p)).max(axis=1), flags)


RNG = np.random.default_rng(7)
INSTANCES["random, infeasible"] = RNG.normal(size=(33, 4)), -0.0
INSTANCES["margin 1e-3"] = planted.feasible(31, 6, 1e-3, 6)
# where the uniform weights are no witness, so that the runs are long; where no two margins tie by symmetry
LONG_RUNS = ["feasible, odd n", "small margin", "margin 1e-3", "uneven", "opposite labels", "lopsided",
             "lopsided, shifted", "shifted, infeasible", "every point with both labels"]
NO_TIES = ["feasible, odd n", "random, infeasible"]


def representation_and_rows(name, kind):
    Z, _ = INSTANCES[name]
    return REPRESENTATIONS[kind](Z), Z


# --- iterates against the twins -------------------------------------------------------------------------

@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", LONG_RUNS)
@pytest.mark.parametrize("algorithm", SMOOTHED)
def test_smoothed_iterates_are_the_papers(algorithm, name, kind):
    G, Z = representation_and_rows(name, kind)
    call, own, paper = SMOOTHED[algorithm]
    run = record(call, G, 300, **own)
    alpha_error, p_error, flags = measure(run, smoothed_twin(Z, 300, **paper))
    k = np.arange(len(flags))
    assert (alpha_error <= EPS * (2 + k)).all() and (p_error <= EPS * (2 + k)).all()
    assert flags[-1] == ("" if run.result.status == "max_iter" or run.upper[-1] == 0.0 else run.result.status)
    restarts = [k for k in range(len(flags) - 1) if np.array_equal(run.alpha[k + 1], run.p[k])]
    assert restarts == [k for k in range(len(flags)) if flags[k] == "restart"]


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("center", ["vertex", "random", "a zero weight"])
def test_snkpvn_from_any_center(center, kind):
    G, Z = representation_and_rows("lopsided, shifted", kind)
    n = len(Z)
    q = {"vertex": np.eye(n)[3], "random": np.random.default_rng(1).dirichlet(np.ones(n)),
         "a zero weight": np.arange(n) / (n * (n - 1) / 2)}[center]
    kept = q.copy()
    run = record(fm.snkpvn, G, 400, delta=1e-3, q=q)
    alpha_error, p_error, flags = measure(run, smoothed_twin(Z, 400, "l2", q, 1e-3))
    assert max(alpha_error.max(), p_error.max()) <= 40 * EPS and np.array_equal(q, kept)
    assert np.array_equal(run.alpha[0], q) and run.result.status == flags[-1] == "infeasible"


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", NO_TIES)
@pytest.mark.parametrize("algorithm", COLUMNS)
def test_column_iterates_are_the_papers(algorithm, name, kind):
    G, Z = representation_and_rows(name, kind)
    call, own, twin, paper = COLUMNS[algorithm]
    run = record(call, G, 400, **own)
    alpha_error, p_error, flags = measure(run, twin(Z, 400, **paper))
    k = np.arange(len(flags))
    assert (alpha_error <= EPS * (2 + k / 4)).all() and (p_error <= EPS * (2 + k / 4)).all()
    assert flags[-1] == ("" if run.result.status == "max_iter" else run.result.status)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_float32_storage_keeps_float64_accumulation(algorithm):
    """The same float32 numbers, stored in double: the same iterates to double precision."""
    Z, _ = INSTANCES["random, infeasible"]
    G = planted.dense(Z).astype(np.float32)
    call, own = ALGORITHMS[algorithm]
    single, double = record(call, G, 150, **own), record(call, G.astype(np.float64), 150, **own)
    assert single.result.n_iter == double.result.n_iter and single.result.status == double.result.status
    scale = np.maximum(1.0, np.abs(double.alpha).max())
    assert np.abs(single.alpha - double.alpha).max() <= 100 * EPS * scale
    assert np.abs(single.p - double.p).max() <= 100 * EPS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["uneven", "lopsided, shifted"])
def test_iterates_do_not_depend_on_units(algorithm, name):
    """Multiplying G by a power of four (and eps, delta by its root) changes no bit of alpha and p."""
    Z, _ = INSTANCES[name]
    G = planted.dense(Z)
    call, own = ALGORITHMS[algorithm]
    plain = record(call, G, 120, **own)
    for power in (-40, 1, 60):
        c = 2.0**power
        scaled = record(call, c * c * G, 120, **{key: c * value if key in ("eps", "delta") else value
                                                 for key, value in own.items()})
        assert np.array_equal(plain.alpha, scaled.alpha) and np.array_equal(plain.p, scaled.p)
        assert np.array_equal(c * plain.lower, scaled.lower) and np.array_equal(c * plain.upper, scaled.upper)
        assert plain.result.status == scaled.result.status


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_result_does_not_depend_on_checkpoints(algorithm):
    G, _ = representation_and_rows("lopsided, shifted", "features")
    call, own = ALGORITHMS[algorithm]
    results = [call(G, max_iter=77, trace_at=at, **own) for at in ([], None, range(78))]
    for other in results[1:]:
        assert np.array_equal(results[0].alpha, other.alpha) and np.array_equal(results[0].p, other.p)
        assert results[0].status == other.status and results[0].n_iter == other.n_iter


def test_ties_go_to_the_first_row():
    """nkp and perceptron start where all margins are 0."""
    Z, _ = INSTANCES["random, infeasible"]
    for call, own in ((fm.nkp, {}), (fm.nkp, {"stop": None}), (fm.perceptron, {}), (fm.perceptron, {"rule": "worst"})):
        run = record(call, planted.dense(Z), 1, **own)
        assert np.array_equal(run.alpha[0], np.zeros(len(Z))) and np.array_equal(run.alpha[1], np.eye(len(Z))[0])
        assert np.array_equal(run.p[0], np.full(len(Z), 1.0 / len(Z)))


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", LONG_RUNS + ["random, infeasible", "feasible", "copies", "one dimension"])
def test_von_neumann_line_search_is_exact(name, kind):
    """The next point is the best of a fine grid on a segment to the row of least margin; ||p_k||_G never grows."""
    G, Z = representation_and_rows(name, kind)
    run = record(fm.von_neumann, G, 100, eps=1e-6)
    W = np.asarray(run.p, LONG) @ Z
    squares = (W * W).sum(axis=1)
    s = scale_of(Z)
    assert (np.diff(squares) <= 4 * EPS * s).all()
    grid = np.linspace(0, 1, 1001)[:, None]
    for k in range(len(W) - 1):
        moved = np.flatnonzero(run.p[k + 1] > run.p[k] * (1 + 1e-12) + 1e-15)
        assert len(moved) <= 1
        m = Z @ W[k]
        for j in moved:
            assert m[j] <= m.min() + 40 * EPS * s
            points = (1 - grid) * W[k] + grid * Z[j]
            assert squares[k + 1] <= (points * points).sum(axis=1).min() + 40 * EPS * s


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
    p = sorted_projection(q - m / mu)
    return -(m @ p) - mu / 2 * ((p - q) ** 2).sum() + square / 2


def excessive_gaps(Z, run, prox, q):
    """L_{mu_k}(alpha_k), -||p_k||^2/2, L(alpha_k) and mu_k along a run of snkp or snkpvn."""
    n, k = len(Z), np.arange(len(run.p), dtype=LONG)
    mu = 4 * scale_of(Z) * (1 if prox == "entropy" else n) / ((k + 1) * (k + 2))
    L, m, squares = loss(Z, run.alpha)
    smooth = np.array([smoothed_loss(m[i], squares[i], mu[i], q, prox) for i in range(len(mu))])
    return smooth, -loss(Z, run.p)[2] / 2, L, mu


def centers(n):
    return {"uniform": np.full(n, 1.0 / n), "vertex": np.eye(n)[n // 2],
            "random": np.random.default_rng(n).dirichlet(np.ones(n))}


@pytest.mark.parametrize("name", SMALL)
def test_lemmas_4_and_5_along_snkp(name):
    Z, _ = INSTANCES[name]
    n = len(Z)
    run = record(fm.snkp, planted.dense(Z), 150)
    smooth, upper, L, mu = excessive_gaps(Z, run, "entropy", np.full(n, 1.0 / n))
    slack = 8 * EPS * scale_of(Z)
    assert (smooth <= upper + slack).all() and (smooth >= L - mu * math.log(n) - slack).all()


@pytest.mark.parametrize("center", centers(3))
@pytest.mark.parametrize("name", SMALL)
def test_lemma_8_along_snkpvn(name, center):
    Z, _ = INSTANCES[name]
    q = centers(len(Z))[center]
    run = record(fm.snkpvn, planted.dense(Z), 150, delta=1e-8 * math.sqrt(scale_of(Z)), q=q)
    smooth, upper, L, mu = excessive_gaps(Z, run, "l2", q)
    slack = 8 * EPS * scale_of(Z)
    assert (smooth <= upper + slack).all() and (smooth >= L - mu - slack).all()


@pytest.mark.parametrize("center", centers(3))
@pytest.mark.parametrize("name", INRADIUS)
def test_lemma_9_with_the_root_of_two(name, center):
    """||p_k||_G <= 2 sqrt(2 n s)/(k+1) min(1, ||q||_G/|rho|) where the hull holds a ball of radius |rho|."""
    Z, rho = INSTANCES[name]
    n, s, q = len(Z), scale_of(Z), centers(len(Z))[center]
    run = record(fm.snkpvn, Z @ Z.T, 200, delta=1e-7 * math.sqrt(s), q=q)
    k = np.arange(len(run.p))
    norm_q = np.linalg.norm(q @ Z)
    bound = 2 * math.sqrt(2 * n * s) / (k + 1) * min(1.0, norm_q / abs(rho))
    assert (np.linalg.norm(run.p @ Z, axis=1) <= bound + 4 * EPS * math.sqrt(s)).all()
    if n <= 8:
        smooth, _, _, mu = excessive_gaps(Z, run, "l2", q)
        assert (smooth >= -mu / 2 * witness_distance(Z, q[None])[0] ** 2 - 1e-13 * mu - 8 * EPS * s).all()


def witness_distance(Z, points):
    """Distance of each point to {p in Delta: Z'p = 0}: the least over all supports of the distance to the flat."""
    n, d = Z.shape
    best = np.full(len(points), np.inf)
    for code in range(1, 2**n):
        on = np.array([bool(code >> i & 1) for i in range(n)])
        A, b = np.vstack((Z[on].T, np.ones(on.sum()))), np.append(np.zeros(d), 1.0)
        inverse = np.linalg.pinv(A, rcond=1e-10)
        if np.abs(A @ (inverse @ b) - b).max() > 1e-10:
            continue
        w = np.zeros_like(points)
        w[:, on] = points[:, on] - (points[:, on] @ A.T - b) @ inverse.T
        inside = w.min(axis=1) >= -1e-12
        best[inside] = np.minimum(best, np.linalg.norm(points - w, axis=1))[inside]
    return best


@pytest.mark.parametrize("name", [name for name in INRADIUS if len(INSTANCES[name][0]) <= 8])
def test_lemma_7(name):
    """dist(p, witnesses) <= min(sqrt 2, sqrt 2 ||p||_G/|rho|) for the iterates, the vertices and random points."""
    Z, rho = INSTANCES[name]
    n, rng = len(Z), np.random.default_rng(3)
    run = record(fm.snkpvn, planted.dense(Z), 60, delta=1e-6, q=np.eye(n)[0])
    points = np.vstack((run.p, run.alpha, np.eye(n), rng.dirichlet(np.full(n, 0.5), 40)))
    points /= points.sum(axis=1)[:, None]
    distance = witness_distance(Z, points)
    assert (distance <= np.sqrt(2) * np.minimum(1.0, np.linalg.norm(points @ Z, axis=1) / abs(rho)) + 1e-12).all()
    if name == "simplex":  # where the centre is the only witness
        assert np.allclose(distance, np.linalg.norm(points - 1.0 / n, axis=1), rtol=0, atol=1e-12)
    if name == "cross-polytope, scale 1/8":  # where p_i = p_{i+d} are all witnesses
        assert np.allclose(distance, np.linalg.norm(points[:, :n // 2] - points[:, n // 2:], axis=1) / np.sqrt(2),
                           rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ("nkp, on", "von_neumann")])
def test_lemma_1_halting_at_the_first_separator(algorithm, name):
    """L(alpha) < 0 implies G alpha > 0: all iterates but the last have L >= 0 and a margin <= 0, to rounding."""
    Z, _ = INSTANCES[name]
    call, own = ALGORITHMS[algorithm]
    run = record(call, planted.dense(Z), 150, **own)
    L, m, _ = loss(Z, run.alpha)
    slack = 8 * EPS * scale_of(Z) * np.abs(run.alpha).sum(axis=1)
    assert (L[:-1] >= -slack[:-1]).all() and (m.min(axis=1) <= slack)[:-1].all()
    assert (run.result.status == "separated") <= (m[-1].min() > 0.0)
    if m[-1].min() > slack[-1] and run.result.n_iter < 150:
        assert run.result.status == "separated"


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lemmas_2_and_3_at_every_checkpoint(algorithm, name, kind):
    """-sqrt(s) <= lower <= rho <= upper <= sqrt(s), and both are what alpha and p say by the definition."""
    Z, rho = INSTANCES[name]
    if name == "random, infeasible":
        rho = -math.inf  # its inradius is not known: lower is compared with the definition only
    call, own = ALGORITHMS[algorithm]
    root = math.sqrt(scale_of(Z))
    run = record(call, REPRESENTATIONS[kind](Z), 40, **own)
    assert (run.alpha >= 0.0).all() and (run.p >= 0.0).all() and np.abs(run.p.sum(axis=1) - 1.0).max() <= 8 * EPS
    tiny = 40 * EPS * root
    assert (run.upper <= root + tiny).all() and (run.lower >= -root - tiny).all()
    for alpha, p, lower, upper in zip(run.alpha, run.p, run.lower, run.upper, strict=True):
        size = alpha.sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            least, norm = planted.exact_interval(Z, alpha if size else p, p)
        unit = np.linalg.norm(alpha @ Z) / size if size else 0.0
        if kind == "dense":
            assert abs(upper**2 - norm**2) <= 16 * EPS * root**2
        else:
            assert abs(upper - norm) <= tiny
        assert upper >= rho - tiny * max(1.0, root / max(rho, 1e-4 * root))
        if unit > 1e-6 * root:
            assert abs(lower - least) <= tiny * (root / unit) ** 2
            assert rho == -math.inf or lower <= rho + tiny * (root / unit) ** 2


@pytest.mark.parametrize("name", LONG_RUNS + ["feasible", "copies", "cross-polytope", "simplex"])
def test_nkp_goes_on_to_the_maximum_margin(name):
    """With w* the least-norm point of the hull, <w_k - w*, z_i - w*> <= 0 for the row that is added (both w* and w_k
    lie in the hull), so k ||w_k - w*||^2 <= s - rho+^2: hence the two bounds."""
    Z, rho = INSTANCES[name]
    rho, s = max(rho, 0.0), scale_of(Z)
    run = record(fm.nkp, planted.dense(Z), 300, stop=None)
    k = np.arange(1, len(run.p))
    distance = np.sqrt((s - rho**2) / k)
    norms, least = np.linalg.norm(run.p @ Z, axis=1)[1:], (run.p @ Z @ Z.T).min(axis=1)[1:]
    assert (norms <= rho + distance + 1e-14 * math.sqrt(s)).all()
    assert (least >= rho**2 - math.sqrt(s) * distance - 1e-14 * s).all()


# --- iteration bounds -----------------------------------------------------------------------------------

THEOREM = [(planted.feasible(n, d, rho, n), scale) for n, d in ((10, 3), (100, 8), (1000, 30))
           for rho in (0.3, 0.1, 0.03, 0.01) for scale in (1.0, 7.0)]
THEOREM += [(uneven(n, 5, rho, n), 1.0) for n in (10, 200) for rho in (0.3, 0.03)]
THEOREM = [(scale * Z, scale * rho) for (Z, rho), scale in THEOREM]


@pytest.mark.parametrize("Z, rho", THEOREM)
def test_iterations_to_separate(Z, rho):
    """Theorem 1 and the perceptron's bound, which the normalised one shares."""
    n, s = len(Z), scale_of(Z)
    G = fm.FeatureGram(Z) if n <= 100 else planted.dense(Z)
    bounds = {fm.snkp: 2 * math.sqrt(2 * s * math.log(n)) / rho, fm.perceptron: s / rho**2, fm.nkp: s / rho**2,
              fm.snkpvn: 2 * math.sqrt(2 * n * s) / rho}
    for algorithm, bound in bounds.items():
        for own in ({"rule": "cyclic"}, {"rule": "worst"}) if algorithm is fm.perceptron else (
                {"delta": rho / 2},) if algorithm is fm.snkpvn else ({},):
            result = algorithm(G, max_iter=math.ceil(bound) + 1, trace_at=[], **own)
            assert result.status == "separated" and result.n_iter <= bound
            assert 0.0 < result.lower <= rho * (1 + 1e-9) and (Z @ (Z.T @ result.alpha)).min() > 0.0


@pytest.mark.parametrize("scale", [1.0, 0.01])
@pytest.mark.parametrize("name", ["lopsided", "lopsided, shifted", "opposite labels", "every point with both labels",
                                  "random, infeasible", "on the boundary", "one dimension, infeasible"])
def test_von_neumann_reaches_eps_in_s_over_eps_squared(name, scale):
    Z = scale * INSTANCES[name][0]
    s = scale_of(Z)
    for eps in (0.5, 0.1, 0.03, 0.01):
        eps *= math.sqrt(s)
        run = record(fm.von_neumann, planted.dense(Z), 2000, eps=eps)
        norms = np.linalg.norm(run.p @ Z, axis=1)
        k = np.arange(len(norms))
        assert (norms[1:] <= np.sqrt(s / k[1:]) * (1 + 1e-12)).all() and (norms[:-1] > eps * (1 - 1e-9)).all()
        if run.result.n_iter < 2000:
            assert run.result.status == "infeasible" and norms[-1] <= eps * (1 + 1e-9) and len(k) - 1 <= s / eps**2


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("Z, rho", THEOREM[::3])
def test_theorem_4_feasible(Z, rho, gamma):
    """Each call takes at most 2 sqrt(2 n s)/rho steps; fewer than log(||q_0||_G/rho)/log(gamma) calls return."""
    n, s = len(Z), scale_of(Z)
    for fraction in (0.1, 0.9):
        result = fm.isnkpvn(planted.dense(Z), eps=fraction * rho, gamma=gamma, max_iter=100_000)
        assert result.status == "separated"
    if n > 100:
        return
    run = record(fm.isnkpvn, planted.dense(Z), 1000, eps=rho / 2, gamma=gamma)
    calls = lengths_of_calls(run)
    assert run.result.status == "separated" and max(calls) <= 2 * math.sqrt(2 * n * s) / rho
    returned = len(calls) - 1
    assert returned == 0 or returned < math.log(np.linalg.norm(Z.mean(axis=0)) / rho) / math.log(gamma)


def lengths_of_calls(run):
    """Iterations of each call of SNKPVN in a run of isnkpvn: a new call starts at alpha = p."""
    starts = [0] + [k + 1 for k in range(len(run.p) - 1) if np.array_equal(run.alpha[k + 1], run.p[k])]
    return [stop - start for start, stop in zip(starts, [k - 1 for k in starts[1:]] + [len(run.p) - 1], strict=True)]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("name", ["lopsided", "lopsided, shifted", "shifted, infeasible", "opposite labels",
                                  "every point with both labels", "random, infeasible"])
def test_theorem_4_infeasible(name, scale, gamma):
    """Call t takes at most 2 gamma sqrt(2 n s) min(1/||q_t||_G, 1/|rho|) steps; calls return until delta_t < eps."""
    Z, rho = INSTANCES[name]
    Z, rho = scale * Z, scale * rho
    n, s, eps = len(Z), scale_of(Z), 1e-3 * scale
    run = record(fm.isnkpvn, fm.FeatureGram(Z), 2500, eps=eps, gamma=gamma)
    assert run.result.status == "infeasible" and run.result.upper < eps
    calls = lengths_of_calls(run)
    starts = np.cumsum([0] + [c + 1 for c in calls[:-1]])
    norms = np.linalg.norm(run.alpha[starts] @ Z, axis=1)
    assert (norms[1:] < norms[:-1] / gamma * (1 + 1e-12)).all()
    assert (norms[:-1] / gamma >= eps * (1 - 1e-12)).all() and norms[-1] / gamma < eps
    inverse = np.minimum(1 / norms, 1 / abs(rho) if rho else math.inf)
    assert (np.array(calls) <= 2 * gamma * math.sqrt(2 * n * s) * inverse).all()
    assert len(calls) <= math.log(norms[0] / eps) / math.log(gamma) + 1


# --- Gordan's alternative -------------------------------------------------------------------------------

HALTING = {
    **{f"perceptron, {rule}": (fm.perceptron, {"rule": rule}) for rule in ("cyclic", "worst")},
    "nkp": (fm.nkp, {}),
    "snkp": (fm.snkp, {}),
    "snkpvn": (fm.snkpvn, {"delta": 1.0}),
    "isnkpvn": (fm.isnkpvn, {"eps": 1.0}),
    "isnkpvn, gamma 1.1": (fm.isnkpvn, {"eps": 1.0, "gamma": 1.1}),
    "isnkpvn, entropy": (fm.isnkpvn, {"eps": 1.0, "prox": "entropy"}),
    "von_neumann": (fm.von_neumann, {"eps": 1.0}),
}


def halting(algorithm, G, eps, max_iter):
    call, own = HALTING[algorithm]
    own = {key: value * eps if key in ("eps", "delta") else value for key, value in own.items()}
    return call(G, max_iter=max_iter, trace_at=[], **own)


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("algorithm", HALTING)
def test_one_side_of_the_alternative(algorithm, name, kind):
    """Feasible: never "infeasible" below rho.  Infeasible: never "separated", and a promised witness is given."""
    Z, rho = INSTANCES[name]
    root = math.sqrt(scale_of(Z))
    eps = 0.9 * rho if rho > 0.0 else 1e-2 * root
    result = halting(algorithm, REPRESENTATIONS[kind](Z), eps, 12_000 if rho <= 0.0 else math.ceil((root / rho) ** 2))
    if rho > 0.0:
        assert result.status == ("max_iter" if algorithm == "von_neumann" else "separated")
        assert result.lower <= rho * (1 + 1e-9) and result.upper >= rho * (1 - 1e-9)
    else:
        gives_witness = algorithm.startswith(("snkpvn", "isnkpvn", "von_neumann"))
        assert result.status == "infeasible" if gives_witness else result.status in ("infeasible", "max_iter")
        if gives_witness:
            assert exact_norm(Z, result.p) <= eps
        elif result.status == "infeasible":
            assert result.upper == 0.0


@pytest.mark.parametrize("algorithm", HALTING)
@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-9])
def test_nearly_infeasible(algorithm, gap):
    """A margin of gap and eps above it: either side may come first, each is true; eps below it leaves only one."""
    Z, rho = planted.cross_polytope(4, 0.5 + gap)
    Z = np.vstack((Z, 1.5 * Z[:3]))
    for eps in (0.1, gap / 2):
        result = halting(algorithm, fm.FeatureGram(Z), eps, 3000)
        if result.status == "separated":
            assert 0.0 < planted.exact_interval(Z, result.alpha, result.p)[0] <= rho * (1 + 1e-6)
        elif result.status == "infeasible":
            assert eps > gap and rho * (1 - 1e-6) <= exact_norm(Z, result.p) <= eps
        else:
            assert result.status == "max_iter"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_opposite_labels_are_never_separated(kind, seed):
    """rho = 0 exactly, one pair z, -z among points that lie on one side of a plane through z; rounding must not make
    both margins positive."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(2, 6)), int(rng.integers(3, 20))
    z, u = rng.normal(size=(2, d))
    u -= (z @ u) / (z @ z) * z
    A = rng.normal(size=(4 * n, d))
    A = A[np.abs(A @ u) > 0.1][:n] * 1.0
    A *= np.sign(A @ u)[:, None]
    half = len(A) // 2
    G = REPRESENTATIONS[kind](np.vstack((A[:half], z, A[half:], -z)))
    for algorithm in HALTING:
        assert halting(algorithm, G, 1e-6, 600).status != "separated"


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("eps", [1e-1, 1e-3, 1e-5])
def test_halting_norms_are_real(eps, kind):
    Z, _ = INSTANCES["random, infeasible"]
    for algorithm in ("snkpvn", "isnkpvn", "isnkpvn, gamma 1.1", "isnkpvn, entropy"):
        result = halting(algorithm, REPRESENTATIONS[kind](Z), eps, 20_000)
        assert result.status == "infeasible"
        assert exact_norm(Z, result.p) < eps and result.upper < eps


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", ["copies", "one point", "shifted cross-polytope"])
def test_separated_at_the_start(name, kind):
    G, Z = representation_and_rows(name, kind)
    for algorithm in ("snkp", "snkpvn", "isnkpvn", "isnkpvn, entropy"):
        result = halting(algorithm, G, 1e-3, 100)
        assert result.status == "separated" and result.n_iter == 0 and result.lower > 0.0
    assert fm.snkp(G, max_iter=0).status == "separated"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_iterations(algorithm):
    call, own = ALGORITHMS[algorithm]
    result = call(planted.dense(INSTANCES["lopsided"][0]), max_iter=0, **own)
    assert result.status == "max_iter" and result.n_iter == 0 and len(result.trace) == 1


@pytest.mark.parametrize("name", ["feasible", "feasible, odd n", "uneven", "one point"])
@pytest.mark.parametrize("tol", [0.2, 0.05])
def test_nkp_without_stop_certifies(name, tol):
    result = fm.nkp(planted.dense(INSTANCES[name][0]), stop=None, tol=tol)
    assert result.status == "certified" and abs(result.upper - result.lower) <= tol * result.upper


# --- products, and a representation of one's own --------------------------------------------------------

class CountingGram(NamedTuple):
    """A dense G that counts: lifts, products, columns, softmax passes."""

    matrix: np.ndarray
    counts: np.ndarray

    def checked(self):
        return self

    def shape(self):
        return self.matrix.shape

    def diagonal(self):
        return self.matrix.diagonal().copy()

    def resolution(self):
        return 2.0 * math.sqrt(EPS)

    def restrict(self, index):
        return CountingGram(np.ascontiguousarray(self.matrix[np.ix_(index, index)]), self.counts)

    def dense(self):
        return self.matrix


@numba.njit
def counting_lift(G, v, w):
    G.counts[0] += 1
    w[:] = v


@numba.njit
def counting_margins(G, w, m):
    G.counts[1] += 1
    fm.margins(fm.DenseGram(G.matrix), w, m)


@numba.njit
def counting_add_column(G, i, c, m):
    G.counts[2] += 1
    fm.add_column(fm.DenseGram(G.matrix), i, c, m)


@numba.njit
def counting_softmax_pass(G, w, m, q, u):
    G.counts[3] += 1
    return fm.softmax_pass(fm.DenseGram(G.matrix), w, m, q, u)


fm.register(CountingGram, lift=counting_lift, margins=counting_margins, add_column=counting_add_column,
            softmax_pass=counting_softmax_pass)


FOREIGN = {**ALGORITHMS, **planted.ALGORITHMS}


@pytest.mark.parametrize("name", ["lopsided, shifted", "feasible, odd n"])
@pytest.mark.parametrize("algorithm", FOREIGN)
def test_a_new_representation_needs_no_change(algorithm, name):
    """The results of the dense G whose kernels it borrows, up to the order of additions, which inlining may change; for
    the algorithms of ramdas14, as many products and columns as the trace claims, two products a certificate aside."""
    matrix = planted.dense(INSTANCES[name][0])
    call, own = FOREIGN[algorithm]
    plain = call(matrix, max_iter=25, trace_at=[], **own)
    G = CountingGram(matrix, np.zeros(4, dtype=np.int64))
    other = call(G, max_iter=25, trace_at=[], **own)
    for one, two in zip(plain[:4], other[:4], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-11, atol=1e-14)
    assert plain.status == other.status and plain.n_iter == other.n_iter
    lifts, products, columns, passes = G.counts
    assert lifts + products + columns + passes > 0
    n, k, claimed = len(matrix), other.n_iter, other.trace["products"][-1]
    certificates = 2 if k == 0 else 4
    if algorithm in SMOOTHED:
        separated = other.status == "separated"  # a separator is confirmed by a product, each time it is looked at
        assert lifts == products and claimed == k + 2 and columns == passes == 0
        assert products - certificates - claimed == 0 or separated and products - certificates - claimed <= 3
    elif algorithm in COLUMNS:
        start = 1 if algorithm == "von_neumann" else 0
        assert columns == k and claimed == pytest.approx(start + k / n, rel=1e-15) and passes == 0
        if other.status != "separated":
            # one certificate of p = alpha costs a product less, and so does alpha = 0; "infeasible" is confirmed by one
            spent = 2 + (other.status == "infeasible") if algorithm == "von_neumann" else 3
            assert products == start + spent


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_products_in_the_trace(algorithm):
    Z, _ = INSTANCES["random, infeasible"]
    call, own = ALGORITHMS[algorithm]
    trace = call(planted.dense(Z), max_iter=60, trace_at=[0, 1, 7, 30], **own).trace
    step, start = (1.0, 2.0) if algorithm in SMOOTHED else (1 / len(Z), float(algorithm == "von_neumann"))
    assert np.allclose(trace["products"], start + step * trace["iteration"], rtol=1e-14, atol=0)
    assert (np.diff(trace["seconds"]) >= 0).all() and trace["iteration"][0] == 0


# --- winnow ---------------------------------------------------------------------------------------------

WINNOW = [(n, d, idle, rho) for n, d, idle in ((20, 4, 0), (50, 10, 30), (200, 6, 200)) for rho in (0.4, 0.1, 0.03)]


def winnow_twin(Z, eta, steps):
    """(w_k, rows taken); the weights are multiplied, not summed in logarithms."""
    Z = np.asarray(Z, LONG)
    Z = Z / np.abs(Z).max(axis=1)[:, None]
    w, hits = np.full(Z.shape[1], 1 / LONG(Z.shape[1])), np.zeros(len(Z))
    for _ in range(steps + 1):
        m = Z @ w
        yield w, hits.copy(), m.min() > 0
        if m.min() > 0:
            return
        i = int(np.argmin(m))
        hits[i] += 1
        w = w * np.exp(eta * Z[i])
        w = w / w.sum()


@pytest.mark.parametrize("n, d, idle, rho", WINNOW)
def test_winnow_on_a_known_l1_margin(n, d, idle, rho):
    Z = planted_l1(n, d, idle, rho, seed=n)
    kept = Z.copy()
    bound = 2 * math.log(d + idle) / rho**2
    run = record(fm.winnow, Z, math.ceil(bound), eta=rho)
    assert run.result.status == "separated" and run.result.n_iter <= bound and (Z @ run.result.alpha).min() > 0.0
    assert run.result.alpha.shape == (d + idle,) and run.result.p.shape == (n,) and np.array_equal(Z, kept)
    assert (run.lower <= rho + 8 * EPS).all() and (run.upper >= rho - 8 * EPS).all()
    assert np.allclose(run.lower, (Z @ run.alpha.T).min(axis=0), rtol=0, atol=8 * EPS)
    assert np.allclose(run.upper, (run.p @ Z).max(axis=1), rtol=0, atol=8 * EPS)
    assert np.abs(run.alpha.sum(axis=1) - 1).max() <= 8 * EPS and (run.alpha >= 0).all()
    w, hits, done = zip(*winnow_twin(Z, rho, math.ceil(bound)), strict=True)
    assert len(w) == len(run.alpha) and done[-1] and not any(done[:-1])
    k = np.arange(len(w))[:, None]
    assert (np.abs(run.alpha - np.array(w)) <= EPS * (8 + k)).all()
    assert np.abs(run.p[1:] - np.array(hits)[1:] / k[1:]).max(initial=0.0) <= 4 * EPS
    assert np.array_equal(run.result.trace["products"], run.result.trace["iteration"])


def test_winnow_scales_its_rows():
    Z = planted_l1(20, 6, 3, 0.1)
    factors = 2.0 ** np.random.default_rng(0).integers(-30, 30, (20, 1))
    plain, scaled = fm.winnow(Z, eta=0.1), fm.winnow(factors * Z, eta=0.1)
    assert np.array_equal(plain.alpha, scaled.alpha) and (plain.lower, plain.upper) == (scaled.lower, scaled.upper)


def test_winnow_when_no_weights_separate():
    """rho_1 < 0: some max_j (Z'p)_j <= 0 proves it, within a few updates."""
    Z = np.array([[1.0, -0.5], [-1.0, 0.25], [0.2, -1.0]])  # columns 0 and 1, rows 1 and 2: w = (25, 24)/49
    value = (-1.0 * -1.0 - 0.25 * 0.2) / (-1.0 - 1.0 - 0.25 - 0.2)
    result = fm.winnow(Z, eta=0.05, max_iter=4000)
    assert result.lower <= value <= result.upper <= 0.0 and result.status == "infeasible"
    huge = fm.winnow(Z, eta=1e6, max_iter=500)
    assert np.isfinite(huge.alpha).all() and huge.lower <= value <= huge.upper


# --- bad input ------------------------------------------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize("algorithm, own, word", [
    (fm.perceptron, {"rule": "best"}, "rule"), (fm.perceptron, {"rule": None}, "rule"),
    (fm.nkp, {"stop": "never"}, "stop"), (fm.nkp, {"stop": True}, "stop"),
    *((fm.von_neumann, {"eps": eps}, "eps") for eps in (0.0, -1.0, NAN, math.inf)),
    *((fm.snkpvn, {"delta": delta}, "delta") for delta in (0.0, -1.0, NAN)),
    *((fm.isnkpvn, {"eps": eps}, "eps") for eps in (0.0, -1.0, NAN)),
    *((fm.isnkpvn, {"eps": 0.1, "gamma": gamma}, "gamma") for gamma in (1.0, 0.5, -2.0, NAN, math.inf)),
    (fm.isnkpvn, {"eps": 0.1, "prox": "l1"}, "prox"), (fm.isnkpvn, {"eps": 0.1, "prox": None}, "prox"),
    *((fm.winnow, {"eta": eta}, "eta") for eta in (0.0, -1.0, NAN)),
    (fm.winnow, {"eta": 1.0, "max_iter": -1}, "max_iter"), (fm.snkp, {"tol": 0.0}, "tol"),
])
def test_bad_arguments_are_named(algorithm, own, word):
    with pytest.raises(ValueError, match=word):
        algorithm(np.eye(3), **own)


@pytest.mark.parametrize("algorithm, own, word", [
    (fm.von_neumann, {"eps": "small"}, "eps"), (fm.isnkpvn, {"eps": 1.0, "gamma": None}, "gamma"),
    (fm.winnow, {"eta": None}, "eta"), (fm.snkp, {"max_iter": 2.5}, "max_iter")])
def test_bad_types_are_named(algorithm, own, word):
    with pytest.raises(TypeError, match=word):
        algorithm(np.eye(3), **own)


@pytest.mark.parametrize("q", [[0.5, 0.5], [0.5, 0.5, 0.5], [0.5, 0.6, -0.1], [NAN, 0.5, 0.5], [[1.0, 0.0, 0.0]], []])
def test_bad_centers(q):
    with pytest.raises(ValueError, match="q"):
        fm.snkpvn(np.eye(3), delta=0.1, q=q)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bad_matrices(algorithm):
    call, own = ALGORITHMS[algorithm]
    for matrix, word in ((np.array([[1.0, NAN], [NAN, 1.0]]), "finite"), (np.array([[1.0, 0.5], [0.4, 1.0]]), "symm"),
                         (np.zeros((2, 2)), "above 0"), (np.ones((2, 3)), "square"), (np.ones((0, 0)), "square")):
        with pytest.raises(ValueError, match=word):
            call(matrix, **own)


@pytest.mark.parametrize("Z, word", [([[1.0, NAN]], "row 0"), ([[1.0, 2.0], [0.0, 0.0]], "row 1"), ([[]], "empty"),
                                     ([1.0, 2.0], "dimensions")])
def test_bad_rows_for_winnow(Z, word):
    with pytest.raises(ValueError, match=word):
        fm.winnow(Z, eta=0.1)
