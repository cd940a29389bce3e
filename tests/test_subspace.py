"""subspace_perceptron: the inequalities that its theorems rest on, along runs; its parts; properties of real runs."""

import math
from typing import NamedTuple

import naive
import numpy as np
import pytest
from instances import EPS, PLANTED, dense, every_representation, feasible, form, scale_of, uneven

import fastmargin as fm

# The parts of the loop: what is proved of one step is measured at one step.
SPAN = fm._Span
EXTEND = fm._extend
MINIMIZE = fm._minimize
NEGLIGIBLE = fm._negligible
NEW_SPAN = fm._new_span
SETTLE = fm._settle

pytestmark = pytest.mark.usefixtures("one_thread")
LONG = np.longdouble
TILT = math.log(2.0) - 0.5
TAU = 0.5
THETA = 0.04


def gram_of(kind, Z):
    G = form(kind, Z)
    return G if isinstance(G, fm.Gram) else fm.Gram(G)


def coordinates_of(G):
    """Numbers of a vector of the basis that are kept besides its weights and margins."""
    return G._width if isinstance(G, fm.Gram) and G._has_rows else 0


def falling(n, d, rho, seed):
    """Rows of margin rho along the first axis; along the others they fall like 1/j, so that runs last."""
    return feasible(n, d, rho, seed)[0] * np.r_[1.0, 1.0 / np.arange(1, d)]


def unseparable(n, d, seed):
    """Rows of which a mixture is 0."""
    Z = np.random.default_rng(seed).normal(size=(n, d)) / np.arange(1, d + 1) ** 0.5
    return Z - np.random.default_rng(seed + 1).dirichlet(np.ones(n)) @ Z


# ======================================================================================================
# THE THEOREMS, ALONG RUNS
# ======================================================================================================


class Step(NamedTuple):
    """What a product left, in units of sqrt(s)."""

    r: float
    q: np.ndarray  # what was multiplied
    W: np.ndarray  # the basis, by its coordinates
    y: np.ndarray
    next_q: np.ndarray
    x: np.ndarray  # Z'p
    mean: np.ndarray  # the mixture of the phase
    best: float
    mu: float
    first: float
    total: float
    tilted: bool


def steps_of(monkeypatch, Z, **options):
    """The result, and a `Step` for every product; Z in the units of the steps."""
    Z = Z / math.sqrt(scale_of(fm.features(Z, 1, normalize=None)))
    steps = []

    def spy(span, alpha, u, r):
        q = span.q.copy()
        SETTLE(span, alpha, u, r)
        W = span.coordinates.copy()
        steps.append(
            Step(
                r,
                q,
                W,
                span.y.copy(),
                span.q.copy(),
                span.mixtures[0] @ Z,
                span.mixtures[1].copy(),
                *map(float, (span.lower[0], span.mu[0], span.phase_mu[0], span.phase_sum[0])),
                bool(span.tilt.any()),
            )
        )

    monkeypatch.setattr(fm, SETTLE.__name__, spy)
    return Z, fm.subspace_perceptron(fm.features(Z, 1, normalize=None), **options), steps


def phi(Z, W, y, mu=0.0):
    """The objective of the docstring, from the rows themselves; and b = P Z'p at its weights, by coordinates."""
    A = np.asarray(Z, LONG) @ W.T
    x = TILT * (1 - (A**2).sum(axis=1)) - A @ y
    top = x.max()
    weights = np.exp(x - top)
    return mu * (y @ y) / 2 + top + np.log(weights.sum()), A.T @ (weights / weights.sum())


def products(n, e):
    """After so many products a margin of e is found, or there is none of e, proved."""
    return math.floor(((2 * (math.log(n) + TILT) + 0.25) / (0.96 * e)) ** (2 / 3)) + 1


def on_the_edge(n, d, seed):
    """0 on the boundary of the hull: pairs that cancel, and rows of a small margin along the first axis."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    Z[:, 0] = np.abs(Z[:, 0]) * 10.0 ** -rng.uniform(0, 4)
    pairs = n // 5
    Z[:pairs, 0] = 0.0
    Z[pairs : 2 * pairs] = -Z[:pairs] * rng.uniform(0.1, 1.0, (pairs, 1))
    return Z


CASES = {
    "feasible": feasible(60, 12, 0.1, 3)[0],
    "uneven": 7.0 * uneven(40, 9, 0.05, 2)[0],
    "small margin": feasible(40, 10, 1e-3, 5)[0],
    "falling": falling(300, 60, 3e-3, 8),
    "narrow": falling(200, 150, 3e-4, 2),
    "chain": np.eye(40) - np.eye(40, k=-1),
    "no margin": unseparable(80, 30, 7),
    "no margin, wide": unseparable(50, 45, 1),
    "two rows": np.array([[1.0], [-0.5]]),
    "one row": np.array([[3.0, 4.0]]),
    "no minimum": np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]),
    "on the edge": on_the_edge(57, 9, 5),
    "few rows": np.random.default_rng(63).normal(
        size=(9, 10)
    ),  # a phase ends by its sum, and nearly does not
}
WITHOUT_MARGIN = ("no margin", "no margin, wide", "two rows", "no minimum", "on the edge")
every_case = pytest.mark.parametrize("case", CASES)


@every_case
def test_the_first_theorem_holds_step_by_step(case, monkeypatch):
    """(i), (ii), (b), sum r <= R, what a step does to ||Z'p||, and the bound, until a separator is found."""
    Z, result, steps = steps_of(monkeypatch, CASES[case], max_iter=60, stop="separated")
    n = len(Z)
    k = 0
    R = (math.log(n) + TILT) / TAU
    d = 1.0 - THETA
    value = math.log(n) + TILT
    sum_r = 0.0
    late = []
    length = math.inf
    slack = 1e-10
    for k, step in enumerate(steps):
        if math.sqrt(step.x @ step.x) < 1e-8:  # from here on rounding is all there is
            break
        before = steps[k - 1].y if k else np.zeros(0)
        start, _ = phi(Z, step.W, np.append(before, TAU) if step.r > 0 else before)  # y_k + tau v_k
        assert start <= value - TAU * step.r + slack  # (b)
        now = length
        shorter = math.sqrt(step.x @ step.x)
        few = k == 0 or step.r**2 >= d * THETA * now**2
        t = step.r if few else math.sqrt(d * THETA) * now
        late += [] if few else [t]
        assert few or shorter <= math.sqrt(THETA) * now * (1 + 1e-9)
        assert shorter**-2 >= (now**-2 + d * d / (t * t)) * (1 - 1e-9)  # (c)
        sum_r = sum_r + step.r
        length = shorter
        assert sum(late) <= 0.25
        assert length <= (sum_r + sum(late)) / d * (k + 1) ** -1.5 * (1 + 1e-9)  # (d)
        if step.best > 0:  # and y has gone on from there
            assert step is steps[-1] and result.status == "separated"
            assert k + 1 <= products(n, fm.max_margin(fm.features(Z, 1, normalize=None)).lower)
            break
        value, b = phi(Z, step.W, step.y)
        assert value <= start + slack  # (i)
        assert np.sqrt(b @ b) <= THETA * length * (1 + 1e-9)  # (ii)
        assert value >= -slack and sum_r <= R + slack  # (a)
        assert length <= (R + 0.25) / d * (k + 1) ** -1.5  # the theorem
    assert (case in WITHOUT_MARGIN) == (result.status != "separated")


@pytest.mark.parametrize("seed", [None, *range(40)])
def test_the_gradient_in_the_span_becomes_as_short_as_it_must(seed, monkeypatch):
    """(ii), where phi has no minimum, and gradients of length 0.04 ||p||_G are far out or far below the Hessian."""
    Z = (
        PLANTED["opposite labels"][0]
        if seed is None
        else on_the_edge(20 + 2 * seed, 2 + seed % 13, seed)
    )
    Z, _, steps = steps_of(monkeypatch, Z, max_iter=25 + Z.shape[1])
    checked = 0
    for step in steps:
        length = math.sqrt(step.x @ step.x)
        if length < 1e-8 or step.best > 0:
            break
        b = step.W @ (step.next_q @ Z)
        assert np.sqrt(b @ b) <= THETA * length * (1 + 1e-5)
        checked += 1
    assert checked > 2


@pytest.mark.parametrize("eps", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_a_certificate_takes_no_more_products_than_proved(eps, seed):
    Z = unseparable(150, 100, seed)
    Z /= np.linalg.norm(Z, axis=1).max()
    result = fm.subspace_perceptron(fm.features(Z, 1, normalize=None), eps=eps)
    assert result.status == "infeasible" and result.upper <= eps
    assert result.n_iter <= products(150, eps)


@pytest.mark.parametrize("rho", [0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4])
def test_a_separator_takes_no_more_products_than_proved(rho):
    for Z in (falling(300, 200, rho, 0), feasible(300, 200, rho, 1)[0]):
        s = scale_of(fm.features(Z, 1, normalize=None))
        margin = fm.max_margin(fm.features(Z, 1, normalize=None)).lower / math.sqrt(s)
        result = fm.subspace_perceptron(fm.features(Z, 1, normalize=None), stop="separated")
        assert result.status == "separated"
        assert result.n_iter <= products(300, margin)


def f_at(Z, W, w, mu):
    """f of the second theorem at a point w, in the span or not, from the rows themselves."""
    x = TILT * (1 - ((Z @ W.T) ** 2).sum(axis=1)) - np.asarray(Z, LONG) @ w / mu
    return w @ w / 2 + mu * np.logaddexp.reduce(x)


SEPARABLE = ["feasible", "small margin", "falling", "narrow", "chain", "few rows"]


@pytest.mark.parametrize("case", [*SEPARABLE, "margin 1e-3", "unequal weights"])
def test_the_second_theorem_holds_phase_by_phase(case, monkeypatch):
    """From separation to 1 %: how phases begin, what ends them, what each promises, how long it takes."""
    Z, _, steps = steps_of(
        monkeypatch, CASES[case] if case in CASES else PLANTED[case][0], max_iter=300, tol=1e-3
    )
    bound = math.log(len(Z)) + TILT
    best = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-13)
    R = 2 * bound
    rho = best.lower
    shortest = best.p @ Z
    slack = 1e-9 * rho**2
    first = next(k for k, step in enumerate(steps) if step.best > 0)
    begun = []
    phase = []
    G = None
    mu = None
    L = None
    ended = 0
    for k, step in enumerate(steps[first:]):  # step.r is of the point of the step before
        if not step.tilted:
            break
        before = G
        mu_before = mu
        L_before = L
        w = step.mu * step.y @ step.W
        mu = step.mu
        m = step.first
        U = math.sqrt(step.x @ step.x)
        L = step.best
        relative = 1 - L / U
        if relative >= 0.0101:
            assert (
                k
                <= 200 * (R * R / (relative * rho**2)) ** (1 / 3)
                + math.log2(28 / (relative * rho**2))
                + 1
            )
            assert len(begun) <= 1 + math.log2(28 / (relative * rho**2))
        assert U <= np.linalg.norm(step.mean @ Z) * (1 + 1e-9)
        if step.r == 0.0:  # the span holds all rows: the next product is at a mu near 0
            assert before <= 1.02 * bound * mu_before + slack
            assert U**2 <= rho**2 + 2.04 * bound * mu_before
            assert bound * begun[-1] > rho**2 / 16 or U**2 - L**2 <= 14 * bound * begun[-1]
            ended += 1
            break
        f = f_at(Z, step.W, w, mu)
        size = math.sqrt(w @ w)
        residual = step.W @ (step.next_q @ Z - w)
        G = f + rho**2 / 2
        # the code, and the facts that the proof begins with
        assert residual @ residual <= bound * mu / 32 * (1 + 1e-9)
        assert (w - shortest) @ (w - shortest) / 2 - slack <= G
        assert f_at(Z, step.W, shortest, mu) <= bound * mu - rho**2 / 2 + slack
        assert L >= rho - G / size - slack and size >= rho - math.sqrt(2 * G + slack)
        assert m / 2 < mu <= m <= 1 / bound
        if k == 0:
            assert G <= 1.52 * bound * m + slack  # (a)
            begun.append(m)
            continue
        assert mu <= (U**2 - L_before**2) / bound * (1 + 1e-9)
        assert G <= before + bound * mu / 64 + slack
        total = sum(past**-2 for past in phase) + step.r**-2
        if m == begun[-1]:  # the phase goes on
            phase.append(step.r)
            assert total == pytest.approx(step.total, rel=1e-9)
            assert total <= 9 / (bound * m)
            assert step.r >= mu_before / 2
            assert G <= before - mu_before * step.r / 4 + slack  # (c)
            assert sum(phase) <= 16 * R and len(phase) <= 13.3 * (R * R / (bound * m)) ** (1 / 3)
        else:  # it has ended, and others with it, perhaps
            last = begun[-1]
            ended = ended + 1
            if total > 9 / (bound * last):
                assert before <= 1.98 * bound * last + slack  # (b)
                mean = step.mean @ Z
                assert mean @ mean <= rho**2 + 6.1 * bound * last + slack  # (d)
            assert m <= last / 2 and G <= 4 * bound * m + slack  # (a)
            if bound * last <= rho**2 / 16:
                assert U**2 - L**2 <= 14 * bound * last  # (d)
            begun.append(m)
            phase = []
    assert ended > 0


@every_representation
@pytest.mark.parametrize("case", ["feasible", "small margin", "falling", "no margin"])
@pytest.mark.parametrize("mu", [0.1, 1e-3])
def test_iterates_are_those_of_the_twin(case, mu, kind):
    """The parts of the loop, at fixed mu and to the last digits."""
    Z = CASES[case] / math.sqrt(scale_of(fm.features(CASES[case], 1, normalize=None)))
    G = gram_of(kind, Z)
    n = len(G)
    slack = max(1e-9, 100.0 * math.sqrt(NEGLIGIBLE(G)))  # of what is left out as rounding
    span = NEW_SPAN(n, coordinates_of(G))
    for k, (alpha, q, _) in zip(range(6), naive.subspace_perceptron(Z, mu), strict=False):
        if k:
            EXTEND(G, span, math.sqrt(G.scale), NEGLIGIBLE(G))
            MINIMIZE(span, np.empty(n), mu, 1e-12)
        difference = np.asarray(Z, LONG).T @ (span.y @ span.weights - alpha)
        assert np.linalg.norm(difference.astype(float)) <= slack * max(1.0, np.linalg.norm(span.y))
        np.testing.assert_allclose(span.q, q.astype(float), rtol=0, atol=slack)


# ======================================================================================================
# RUNS
# ======================================================================================================

NAMES = ("alpha", *SPAN._fields)


def vectors(G, count):
    """Bytes for so many vectors of the basis."""
    return count * 8 * (2 * len(G) + coordinates_of(G))


def state_of(result):
    return dict(zip(NAMES, result.state[-1], strict=True))


LONGER = falling(300, 60, 1e-3, 8)


@every_representation
@pytest.mark.parametrize("memory", [200, 12])
def test_the_basis_stays_orthonormal(kind, memory):
    """By coordinates, and with a dense G by weights and margins; margins, weights, mixture and tilt belong to it."""
    G = form(kind, LONGER)
    unit = math.sqrt(scale_of(G))
    for iterations in (5, 11, 12, 13, 30, 58):
        state = state_of(fm.subspace_perceptron(G, memory=vectors(G, memory), max_iter=iterations))
        M = state["margins"]
        N = state["weights"]
        p = state["mixtures"][0]
        k = len(state["y"])
        assert iterations - 10 <= k <= iterations if iterations <= memory else 4 <= k <= memory
        inner = N @ (dense(LONGER) / unit**2)
        assert (
            np.abs(inner - M).max() <= 1e-6
        )  # the certificate sees what rounding has done to the weights
        assert np.abs(inner @ N.T - np.eye(k)).max() <= 1e-6
        assert np.abs(state["points"][1:, 0] - M @ p).max() <= (
            1e-9 if kind == "features" else 1e-6
        )
        assert (
            np.abs(state["tilt"] - (1.0 - (M**2).sum(axis=0))).max() <= 1e-9
            or not state["tilt"].any()
        )
        if kind == "features":
            W = state["coordinates"]
            assert np.abs(W @ W.T - np.eye(k)).max() <= 1e-10
            assert np.abs(W @ G.coordinates().T / unit - M).max() <= 1e-10


@every_representation
@pytest.mark.parametrize("memory", [5, 6, 9, 20])
def test_no_bound_is_lost_when_the_span_is_cut_down(kind, memory):
    """lower never falls and ||p||_G never rises, and the run gets where it gets with more memory."""
    G = form(kind, LONGER)
    slack = 1e-9 if kind == "features" else 1e-6
    result = fm.subspace_perceptron(G, memory=vectors(G, memory), max_iter=120, trace_at=range(121))
    assert (np.diff(result.trace["lower"][1:]) >= -slack * result.upper).all()
    assert (np.diff(result.trace["upper"]) <= slack * result.upper).all()
    assert result.lower > 0.0
    plain = fm.subspace_perceptron(G, max_iter=120)
    assert plain.upper <= result.upper * (1 + slack) and plain.lower >= result.lower * (1 - slack)
    assert memory < 20 or result.upper <= 1.2 * plain.upper


def test_what_no_product_can_improve_costs_no_more_than_its_product():
    """After rank Z products and a few more the bounds stand still, and so does the rest of the state."""
    G = fm.features(LONGER, 1, normalize=None)
    early, late = (fm.subspace_perceptron(G, max_iter=k) for k in (75, 300))
    ends = (early.lower, early.upper)
    assert (late.lower, late.upper) == pytest.approx(ends, rel=4 * EPS, abs=0.0)
    np.testing.assert_allclose(state_of(late)["q"], state_of(early)["q"], rtol=1e-9, atol=1e-12)
    assert early.upper - early.lower <= 1e-6 * early.upper  # what rounding leaves of it


@pytest.mark.parametrize("rows", [[-2.0, 1.0, -1.0], [0.0, -2.0, 0.0, 2.0, 1.0, -1.0, 2.0]])
def test_rows_that_cancel_exactly_divide_nothing_by_zero(rows):
    """The best mixture is 0 to the last bit, so that no mu is in proportion to its length."""
    Z = np.array(rows)[:, None]
    for G in (fm.features(Z, 1, normalize=None), Z @ Z.T):
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
def test_separable_points_end_as_separated_and_others_as_infeasible(case, kind):
    """Separable sets end as separated, others as infeasible where the accuracy is within reach."""
    Z, rho = PLANTED[case]
    G = form(kind, Z)
    eps = (1e-9 if kind == "features" else 1e-6) * math.sqrt(scale_of(G))
    result = fm.subspace_perceptron(G, eps=eps, stop="separated", max_iter=40)
    assert result.status == ("separated" if rho > 0 else "infeasible")
    assert rho <= 0 or (result.lower > 0 and (dense(Z) @ result.alpha).min() > 0)
    assert rho > 0 or result.upper <= eps


def test_a_few_products_separate_what_takes_snkp_hundreds():
    G = fm.features(feasible(2000, 200, 0.01)[0], 1, normalize=None)
    ours = fm.subspace_perceptron(G, stop="separated")
    theirs = fm.snkp(G)
    assert ours.status == theirs.status == "separated" and 10 * ours.n_iter < theirs.n_iter


@pytest.mark.parametrize("power", [-320, -100, 100, 200])
@every_representation
def test_a_power_of_two_scales_every_bit(kind, power):
    """All arithmetic is in units of s."""
    Z = PLANTED["small margin"][0]
    plain = fm.subspace_perceptron(form(kind, Z), max_iter=12, eps=1e-9)
    scaled = fm.subspace_perceptron(
        form(kind, np.ldexp(Z, power)), max_iter=12, eps=math.ldexp(1e-9, power)
    )
    assert np.array_equal(plain.alpha, scaled.alpha) and np.array_equal(plain.p, scaled.p)
    assert scaled.lower == math.ldexp(plain.lower, power)
    assert scaled.upper == math.ldexp(plain.upper, power)
