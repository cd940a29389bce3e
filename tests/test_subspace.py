"""subspace_perceptron: the theory at fixed mu, along a path made of the parts of the loop; and properties of real runs.

Along that path the minimum over the span is found to the last digits, which the loop, for the sake of time, does not.
"""

import itertools
import math
from typing import NamedTuple

import naive
import numpy as np
import pytest
from instances import PLANTED, dense, every_representation, feasible, form, scale_of, uneven

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")
LONG = np.longdouble


# ======================================================================================================
# THE THEORY, AT FIXED MU
# ======================================================================================================

class Step(NamedTuple):
    alpha: np.ndarray
    q: np.ndarray


def path(G, mu, steps):
    """alpha_k and q_k by the parts of the loop; mu in units of s, one for all steps or an array of as many."""
    run = fm.prepare(G, 1)
    n, dimension = run.G.shape()
    span = fm._new_span(min(steps, n, dimension), n, dimension, fm._has_coordinates(run.G))
    q = span.weights[-1]
    found = [Step(np.zeros(n), q.copy())]
    for level in np.broadcast_to(mu, steps):
        fm._extend(run.G, span, math.sqrt(run.scale), fm._negligible(run.G))
        k = span.size[0]
        span.c[:k], _, q[:], _ = fm._minimize(span.margins[:k], span.c[:k], level, 1.0, 1e-13)
        found.append(Step(fm._in_generators(span, span.c[:k]) @ span.weights[:k], q.copy()))
    return found


def objective(Z, alpha, mu):
    w = np.asarray(Z, LONG).T @ alpha
    x = -(Z @ w) / mu
    return w @ w / 2 + mu * (x.max() + np.log(np.exp(x - x.max()).sum()))


def gradient(Z, step):
    return np.asarray(Z, LONG).T @ (step.alpha - step.q)


FIXED = {"feasible": feasible(60, 12, 0.1, 3)[0], "uneven": 7.0 * uneven(40, 9, 0.05, 2)[0],
         "small margin": feasible(40, 10, 1e-3, 5)[0], "infeasible": np.random.default_rng(7).normal(size=(50, 8))}
fixed = pytest.mark.parametrize("case, mu", list(itertools.product(FIXED, (0.1, 0.01, 1e-3))))


@every_representation
@fixed
def test_gradients_are_orthogonal(case, mu, kind):
    """Each is orthogonal to all earlier ones and to the points that span what was minimised over."""
    Z = FIXED[case]
    s = scale_of(form("features", Z))
    steps = path(form(kind, Z), mu, 7)
    g = np.array([gradient(Z, step) for step in steps])
    u = np.array([np.asarray(Z, LONG).T @ step.q for step in steps])
    for k in range(1, len(g)):
        assert np.abs(g[:k] @ g[k]).max() <= 1e-10 * s and np.abs(u[:k] @ g[k]).max() <= 1e-10 * s
    assert np.abs(g[0]).max() > 1e-3 * math.sqrt(s)


@fixed
def test_the_objective_stays_below_the_bounds(case, mu):
    """e_k <= 2 C ||w*||^2 / (k + 1)^2, C = 1 + s / mu, at every k, and with any start in the span."""
    Z = FIXED[case]
    G = fm.FeatureGram(Z)
    s, rank = scale_of(G), np.linalg.matrix_rank(Z)
    steps = path(G, mu, rank + 1)
    values = np.array([objective(Z, step.alpha, mu * s) for step in steps])
    best, C = values[-1], 1.0 + 1.0 / mu
    assert np.linalg.norm(gradient(Z, steps[-1]).astype(float)) <= 1e-11 * math.sqrt(s)  # the minimum of all
    error, k = values - best, np.arange(len(values))
    length = (Z.T @ steps[-1].alpha) @ (Z.T @ steps[-1].alpha)
    slack = 1e-13 * s
    assert (error >= -slack).all() and (np.diff(error) <= slack).all()
    assert (error[1:] <= 2 * C * length / (k[1:] + 1)**2 + slack).all() and error[0] <= C * length / 2 + slack
    later = path(G, np.where(k[1:] <= 3, 30 * mu, mu), rank + 1)[4:]  # from where another mu has led
    error = np.array([objective(Z, step.alpha, mu * s) for step in later]) - best
    assert (error <= 2 * C * length / np.arange(1, len(error) + 1)**2 + slack).all()


@fixed
def test_the_linear_rate(case, mu):
    """e_{k+i} <= 4 C e_k / (i + 1)^2 at every k and i."""
    Z = FIXED[case]
    s, rank = scale_of(form("features", Z)), np.linalg.matrix_rank(Z)
    values = np.array([objective(Z, step.alpha, mu * s) for step in path(fm.FeatureGram(Z), mu, rank + 1)])
    error, k, C, slack = values - values[-1], np.arange(len(values)), 1.0 + 1.0 / mu, 1e-13 * s
    for first in k:
        assert (error[first:] <= 4 * C * error[first] / (k[first:] - first + 1)**2 + slack).all()


@pytest.mark.parametrize("rho", [0.6, 0.4, 0.3])
def test_products_to_separation(rho):
    """At mu = rho^2 / (4 ln n): once f_mu < 0, which 8 + 32 s ln(n) / rho^2 < (k + 1)^2 gives."""
    Z, n = feasible(80, 60, rho, 1)[0], 80
    mu = rho**2 / (4 * math.log(n))
    for k, step in enumerate(path(fm.FeatureGram(Z), mu, 60)):
        below, separated = objective(Z, step.alpha, mu) < 0, (Z @ (Z.T @ step.alpha)).min() > 0
        assert separated or not below
        promised = (k + 1)**2 > 8 + 32 * math.log(n) / rho**2
        assert below or not promised
    assert promised


@every_representation
@fixed
def test_the_minimum_after_rank_products(case, mu, kind):
    """A gradient orthogonal to the span of rank Z vectors is 0, or as long as what the span leaves out as rounding."""
    Z = FIXED[case]
    s, rank = scale_of(form("features", Z)), np.linalg.matrix_rank(Z)
    last = path(form(kind, Z), mu, rank)[-1]
    slack = max(1e-10, math.sqrt(fm._negligible(fm.prepare(form(kind, Z), 0).G)))
    assert np.linalg.norm(gradient(Z, last).astype(float)) <= slack * math.sqrt(s)


@every_representation
@pytest.mark.parametrize("case", FIXED)
def test_iterates_are_those_of_the_twin(case, kind):
    Z, mu = FIXED[case], 0.02
    s = scale_of(form("features", Z))
    for ours, (alpha, q, _) in zip(path(form(kind, Z), mu, 6), naive.subspace_perceptron(Z, mu * s), strict=False):
        difference = np.asarray(Z, LONG).T @ (ours.alpha - alpha)
        assert np.linalg.norm(difference.astype(float)) <= 1e-11 * math.sqrt(s)
        np.testing.assert_allclose(ours.q, q.astype(float), rtol=0, atol=1e-10)


# ======================================================================================================
# RUNS
# ======================================================================================================

NAMES = ("alpha", "p", *fm._Span._fields)


def state_of(result):
    return dict(zip(NAMES, result.state[-1], strict=True))


def falling(n, d, rho, seed):
    """Rows of margin rho along the first axis; along the others they fall like 1/j, so that runs last."""
    return feasible(n, d, rho, seed)[0] * np.r_[1.0, 1.0 / np.arange(1, d)]


LONGER = falling(300, 60, 1e-3, 8)


@every_representation
@pytest.mark.parametrize("memory", [200, 12])
def test_the_basis_stays_orthonormal(kind, memory):
    """By coordinates, and with a dense G by weights and margins; margins and generators belong to the basis."""
    G = form(kind, LONGER)
    unit = math.sqrt(scale_of(G))
    for iterations in (5, 11, 12, 13, 30, 58):
        state = state_of(fm.subspace_perceptron(G, memory=memory, max_iter=iterations))
        k = int(state["size"][0])
        assert iterations - 10 <= k <= iterations if iterations <= memory else 5 <= k <= memory
        M, R, Q = state["margins"][:k], state["points"][:k, :k], state["weights"][:k]
        assert not np.triu(R, 1).any() and (R.diagonal() > 0).all()
        if kind == "features":
            W = state["coordinates"][:k]
            assert np.abs(W @ W.T - np.eye(k)).max() <= 1e-10
            assert np.abs(W @ G.rows.T / unit - M).max() <= 1e-10
            assert np.abs(Q @ G.rows / unit - R @ W).max() <= 1e-10
        else:
            P, shortest = np.linalg.solve(R, Q), R.diagonal().min()  # what a short rest has lost, its square tells
            assert np.abs(P @ M.T - np.eye(k)).max() <= max(1e-10, 1e-18 / shortest**2)
            assert np.abs(P @ dense(LONGER) / unit**2 - M).max() <= 1e-13 / shortest


@every_representation
@pytest.mark.parametrize("memory", [5, 6, 9, 20])
def test_no_bound_is_lost_when_the_span_is_cut_down(kind, memory):
    """lower never falls and ||p||_G never rises, and the run gets where it gets with more memory."""
    G, slack = form(kind, LONGER), 1e-9 if kind == "features" else 1e-6
    result = fm.subspace_perceptron(G, memory=memory, max_iter=120, trace_at=range(121))
    assert (np.diff(result.trace["lower"][1:]) >= -slack * result.upper).all()
    assert (np.diff(result.trace["upper"]) <= slack * result.upper).all()
    assert result.lower > 0.0
    plain = fm.subspace_perceptron(G, max_iter=120)
    assert plain.upper <= result.upper * (1 + slack) and plain.lower >= result.lower * (1 - slack)
    assert memory < 20 or result.upper <= 1.2 * plain.upper


@pytest.mark.parametrize("rho, most", [(0.003, 1.01), (0.01, 1.002)])
def test_float32_gets_as_far_as_its_rounding(rho, most):
    """What the span leaves out as rounding counts as length: else a mixture would be taken for shorter than it is."""
    Z = falling(400, 200, rho, 0)
    result = fm.subspace_perceptron((Z @ Z.T).astype(np.float32), max_iter=150, trace_at=range(151))
    assert (np.diff(result.trace["upper"]) <= 0.005 * rho).all()
    assert 0.999 * rho <= result.lower and result.upper <= most * rho


def test_what_no_product_can_improve_costs_no_more_than_its_product():
    """After rank Z products and a few more the bounds stand still, and so does the rest of the state."""
    G = fm.FeatureGram(LONGER)
    early, late = (fm.subspace_perceptron(G, max_iter=k) for k in (75, 300))
    assert state_of(late)["idle"] == 2 and (late.lower, late.upper) == (early.lower, early.upper)
    assert early.upper - early.lower <= 1e-6 * early.upper  # what rounding leaves of it


@pytest.mark.parametrize("rows", [[-2.0, 1.0, -1.0], [0.0, -2.0, 0.0, 2.0, 1.0, -1.0, 2.0]])
def test_rows_that_cancel_exactly_divide_nothing_by_zero(rows):
    """The best mixture is 0 to the last bit, so that no mu is in proportion to its length."""
    Z = np.array(rows)[:, None]
    for G in (fm.FeatureGram(Z), Z @ Z.T):
        result = fm.subspace_perceptron(G, max_iter=30)
        assert result.status == "max_iter" and result.lower <= -1.0 and 0.0 <= result.upper <= 1e-6


@pytest.mark.parametrize("kind, tol", [("features", 1e-9), ("dense", 1e-6)])
@pytest.mark.parametrize("case", [name for name, (_, rho) in PLANTED.items() if rho > 0])
def test_exact_soon_after_rank_products(case, kind, tol):
    """The span is all there is: two rounds more, one to see it and one to be certified, and some for rounding."""
    Z, rho = PLANTED[case]
    result = fm.subspace_perceptron(form(kind, Z), tol=tol, trace_at=range(60), max_iter=60)
    assert result.status == "certified" and result.n_iter <= np.linalg.matrix_rank(Z) + 5
    assert result.lower <= rho * (1 + 1e-15) and rho * (1 - 1e-15) <= result.upper


@every_representation
@pytest.mark.parametrize("case", PLANTED)
def test_statuses(case, kind):
    """Separable sets end as separated, others as infeasible where the accuracy is within reach."""
    Z, rho = PLANTED[case]
    G = form(kind, Z)
    eps = (1e-9 if kind == "features" else 1e-6) * math.sqrt(scale_of(G))
    result = fm.subspace_perceptron(G, eps=eps, stop="separated", max_iter=40)
    assert result.status == ("separated" if rho > 0 else "infeasible")
    assert rho <= 0 or (result.lower > 0 and (dense(Z) @ result.alpha).min() > 0)
    assert rho > 0 or result.upper <= eps


def test_a_few_products_separate_what_takes_snkp_hundreds():
    G = fm.FeatureGram(feasible(2000, 200, 0.01)[0])
    ours, theirs = fm.subspace_perceptron(G, stop="separated"), fm.snkp(G)
    assert ours.status == theirs.status == "separated" and 10 * ours.n_iter < theirs.n_iter


@pytest.mark.parametrize("power", [-450, -100, 100, 200])
@every_representation
def test_any_scale(kind, power):
    """All arithmetic is in units of s."""
    Z = PLANTED["small margin"][0]
    plain = fm.subspace_perceptron(form(kind, Z), max_iter=12, eps=1e-9)
    scaled = fm.subspace_perceptron(form(kind, np.ldexp(Z, power)), max_iter=12, eps=math.ldexp(1e-9, power))
    assert np.array_equal(plain.alpha, scaled.alpha) and np.array_equal(plain.p, scaled.p)
    assert scaled.lower == math.ldexp(plain.lower, power) and scaled.upper == math.ldexp(plain.upper, power)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_mixture_is_the_least(seed):
    """Wolfe's algorithm against the enumeration of all supports, from any shares; repeated points do no harm."""
    rng = np.random.default_rng(seed)
    count, d = 7, int(rng.integers(2, 7))
    points = rng.normal(size=(count, d)) + rng.uniform(0, 2, d) * (seed % 3)
    points[-1] = points[0]
    span = fm._new_span(count, 3, 3, False)
    span.size[0] = count
    span.points[:count, :d] = points
    span.is_dual[:count], span.share[:] = True, 0.0
    span.share[int(rng.integers(count))] = 1.0
    value = fm._mix(span, 1e-13)
    assert (span.share >= 0).all() and span.share.sum() == pytest.approx(1.0, abs=1e-14)
    x = span.share[:count] @ points
    assert math.sqrt(value) == pytest.approx(naive.least_norm(points[:-1]), abs=1e-6)
    assert x @ x == pytest.approx(value, abs=1e-13)


def test_what_the_parameters_must_be():
    for options, error in (({"memory": 4}, ValueError), ({"memory": 2.5}, TypeError), ({"eps": -1.0}, ValueError),
                           ({"stop": "never"}, ValueError), ({"stop": True}, ValueError)):
        with pytest.raises(error, match=next(iter(options))):
            fm.subspace_perceptron(np.eye(2), **options)
