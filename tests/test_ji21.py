"""ji21: each algorithm against its naive twin, Theorem 3.1 along real runs, the dual form, rates, the logistic loss;
adaptive sampling: its samples, Theorem 4.1, long runs."""

import math

import naive
import numba
import numpy as np
import pytest
from instances import (
    CALLS,
    EPS,
    EVERYWHERE,
    PLAIN,
    PLANTED,
    UNTIED,
    algorithm_of,
    dense,
    every_plain,
    form,
    in_turn,
    rotate,
    rows_of,
    run,
    scale_of,
)

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")


# Parts of loops that nothing public gives alone, at margins of any size.
DRAW = fm._draw


@numba.njit
def draw(m, uniform):
    return DRAW(m, uniform, np.empty(m.size))


ALGORITHMS = (
    "gradient_descent",
    "normalized_gradient_descent",
    "momentum",
    "batch_perceptron",
    "adaptive_sampling",
)
OURS = [name for name in CALLS if algorithm_of(name) in ALGORITHMS and CALLS[name].noise <= 1e-10]
STEPS = {
    "gradient_descent": 0.3,
    "gradient_descent, logistic": 5.0,
    "normalized_gradient_descent": 0.5,
    "normalized_gradient_descent, sqrt": 2.0,
    "normalized_gradient_descent, norm": 3.0,
}


def partials(G, T, **options):
    """Partial results of momentum after t = 0, ..., T iterations, whose p are mu_t."""
    seen = []
    fm.momentum(G, max_iter=T, trace_at=range(T), callback=seen.append, **options)
    return seen


@in_turn(
    [(name, kind) for name, kind in EVERYWHERE if name in OURS],
    ["separable", "not separable", "scale 50"],
)
def test_iterates_are_those_of_the_naive_twin(name, kind, case):
    Z = UNTIED[case]
    T = 300
    G = form(kind, Z)
    s = scale_of(form(kind, Z))
    square = fm._checked(G).rounding().square
    for step in {None, STEPS.get(name)}:
        extra = {} if step is None else {"step": step}
        seen = []
        result = run(name, G, max_iter=T, trace_at=range(T), callback=seen.append, **extra)
        assert len(result.trace) == result.n_iter + 1
        assert (result.n_iter == T) == (result.status == "max_iter")
        twin = naive.TWINS[algorithm_of(name)](Z, **{**CALLS[name].own, **extra})
        for partial, (alpha, p, flag) in zip(seen, twin, strict=False):
            assert flag == ("infeasible" if partial.status == "infeasible" else "")
            # relative to the largest weight: rounding reaches all weights alike, through the margins
            size = float(np.abs(alpha).max())
            np.testing.assert_allclose(
                partial.alpha, alpha.astype(float), rtol=0, atol=1e-11 * size + 1e-300
            )
            np.testing.assert_allclose(partial.p, p.astype(float), rtol=0, atol=1e-11)
            if size:
                lower, upper = naive.interval(Z, alpha, p)
                # a negative margin is divided by the least that ||alpha||_G can be
                blur = (
                    square * s * np.abs(partial.alpha).sum() ** 2 / np.sum((partial.alpha @ Z) ** 2)
                )
                spread = (
                    np.sqrt(s) * np.abs(partial.alpha).sum() / np.linalg.norm(partial.alpha @ Z)
                )
                recurrences = (
                    20.0
                    * EPS
                    * partial.n_iter
                    * spread
                    * (np.sqrt(s) + abs(lower) * (1.0 + spread))
                )
                assert abs(partial.lower - lower) <= 1e-10 * np.sqrt(s) + 2.0 * blur * abs(
                    min(lower, 0.0)
                ) + (recurrences if CALLS[name].held else 0.0)
                assert abs(partial.upper**2 - upper**2) <= 1e-11 * s
            else:
                assert partial.lower == pytest.approx(-np.sqrt(s), rel=1e-13)


# ======================================================================================================
# THEOREM 3.1 AND THE DUAL FORM OF MOMENTUM
# ======================================================================================================


@rotate("case, kind", PLANTED, PLAIN)
def test_theorem_3_1_momentum_closes_the_gap_like_ln_t_over_t_squared(case, kind):
    Z, rho = PLANTED[case]
    G = form(kind, Z)
    s = scale_of(G)
    n = len(Z)
    trace = fm.momentum(G, max_iter=200, trace_at=range(201)).trace
    t = trace["iteration"]
    norms = np.linalg.norm([result.p @ Z for result in partials(G, 200)], axis=1)
    positive = max(rho, 0.0)
    # a dense G cannot tell ||p||_G^2 from zero below the rounding of its entries
    slack = (40 + 8 * n) * EPS * s
    assert (trace["upper"] ** 2 >= positive**2 - slack).all()
    assert (
        np.square(norms) <= positive**2 + 8 * s * max(np.log(n), 0) / (t + 1.0) ** 2 + slack
    ).all()
    if rho > 0:
        r = rho / np.sqrt(s)
        bound = r - 4 * (1 + np.log(n)) * (1 + 2 * np.log(t + 1.0)) / (r * (t + 1.0) ** 2)
        assert (trace["lower"] >= np.sqrt(s) * bound - 8 * (sum(Z.shape) + 8) * EPS * s / rho).all()


@rotate("case, kind", [name for name, (_, rho) in PLANTED.items() if rho <= 0], PLAIN, crossed=2)
def test_the_moves_of_momentum_where_nothing_separates(case, kind):
    """sum_{t<T} (t+2) ||v_t||^2 <= 4 s ln n, so that one of the moves v_0, ..., v_{T-1} has ||v_t||^2 <= 8 s ln(n) /
    (T (T+3)).  Proof: "Momentum without a separator" in figures/THEOREMS.md.
    """
    Z, _ = PLANTED[case]
    G = form(kind, Z)
    s = scale_of(G)
    ln = math.log(len(Z))
    T = 300
    moves = np.diff(
        fm.momentum(G, max_iter=T, trace_at=range(T), keep_iterates=True).iterates, axis=0
    )
    t = np.arange(T)
    squares = np.square(moves / moves.sum(axis=1, keepdims=True) @ Z).sum(axis=1)
    slack = (40 + 8 * len(Z)) * EPS * s
    assert (np.cumsum((t + 2) * squares) <= 4 * s * ln + slack * (t + 1) ** 2).all()
    assert (np.minimum.accumulate(squares) <= 8 * s * ln / ((t + 1) * (t + 4)) + slack).all()


@rotate("case, kind", [name for name, (_, rho) in PLANTED.items() if rho <= 0], PLAIN, crossed=2)
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_momentum_is_done_within_the_root_of_8_ln_n_over_eps(case, kind, scale):
    Z = scale * PLANTED[case][0]
    G = form(kind, Z)
    for eps in (0.5, 0.1, 0.01, 1e-3, 1e-4):
        eps *= np.sqrt(scale_of(G))
        bound = math.sqrt(8 * scale_of(G) * math.log(len(Z))) / eps
        result = fm.momentum(G, eps=eps, max_iter=20 * math.ceil(bound), trace_at=[])
        assert result.status == "infeasible" and result.n_iter <= bound
        looked = fm.momentum(
            G, eps=eps, max_iter=20 * math.ceil(bound), trace_at=range(min(result.n_iter, 300))
        )
        assert looked.n_iter == result.n_iter and np.array_equal(looked.p, result.p)
        assert naive.norm(Z, result.p) <= result.upper <= eps


def psi_of(xi):
    """psi(xi) = l^{-1}(sum_i l(xi_i)) of the logistic loss, by rows: ln(e^total - 1)."""
    total = np.logaddexp(0, xi).sum(axis=-1)
    return np.where(
        total < 1e-8,
        np.logaddexp.reduce(xi, axis=-1),
        total + np.log(-np.expm1(-np.maximum(total, 1e-9))),
    )


@pytest.mark.parametrize("loss", ["exp", "logistic", "logistic, as printed"])
@pytest.mark.parametrize("case", [name for name, (Z, rho) in PLANTED.items() if rho > 0])
def test_momentum_on_any_loss_closes_the_gap_without_ln_t(case, loss):
    """Section 5.1 and appendix C, with constants: rho ||w_t|| + psi(-Z w_t) <= psi(0) and rho t(t+3)/4 <= beta ||w_t||,
    hence gap <= 4 beta psi(0)/(rho t(t+3)), where psi is beta-smooth: beta = 1 and psi(0) = ln n for the exponential
    loss, where Theorem 3.1 has another factor 1 + 2 ln(t+1); beta = n, psi(0) = ln(2^n - 1) for the logistic one.  At
    margins larger by c = ln n it has beta = e/(e-1), as the next tests say, and psi(-c) + c in place of psi(0).
    Proof: "Momentum without a logarithm" in figures/THEOREMS.md.
    """
    Z, rho = PLANTED[case]
    n = len(Z)
    root = np.sqrt(scale_of(fm.features(Z, 1, normalize=None)))
    Z = Z / root
    rho = rho / root
    shift = np.log(n) if loss == "logistic" else 0.0
    beta = {"exp": 1, "logistic": np.e / (np.e - 1), "logistic, as printed": n}[loss]
    result = fm.momentum(
        fm.features(Z, 1, normalize=None),
        loss=loss.partition(",")[0],
        shifted=loss == "logistic",
        max_iter=1000,
        trace_at=range(1001),
        keep_iterates=True,
    )
    t = np.arange(1, 1001)
    w = result.iterates[1:] @ Z
    m = w @ Z.T
    size = np.linalg.norm(w, axis=1)
    now = np.logaddexp.reduce(-m, axis=1) if loss == "exp" else psi_of(-m - shift) + shift
    psi = np.log(n) if loss == "exp" else psi_of(np.full(n, -shift)) + shift
    slack = 1e-12 * (1 + size)
    assert (rho * size + now <= psi + slack).all()
    assert (rho * t * (t + 3) / 4 <= beta * size + slack).all()
    assert (rho - m.min(axis=1) / size <= 4 * beta * psi / (rho * t * (t + 3)) + 1e-12).all()


BETA = np.e / (np.e - 1)


@pytest.mark.parametrize("n", [1, 2, 5, 40, 2000])
def test_psi_is_smooth_where_the_losses_add_up_to_one(n):
    """D(x, y) = psi(x) - psi(y) - <q_y, x - y> >= ||q_x - q_y||_1^2 / (2 beta), beta = e/(e-1), q = grad psi, between
    points of sum l <= 1; and no smaller beta will do where n is large, half of all entries go up and half down."""
    rng = np.random.default_rng(n)
    tightest = 0.0
    level = np.log(np.expm1(np.longdouble(1) / n))  # at which n losses add up to 1
    for trial in range(400):
        x, y = np.full((2, n), level)
        if trial % 4 == 0:
            y = x + rng.permutation(np.resize([0.01, -0.01], n))
        else:
            share = rng.dirichlet(np.full(n, [0.03, 1.0, 30.0][trial % 4 - 1]), 2) * rng.choice(
                [1, 0.9, 1e-3], (2, 1)
            )
            x, y = np.log(np.expm1(np.maximum(share, 1e-300)).astype(np.longdouble))
        top = [np.logaddexp(0, point).sum() for point in (x, y)]
        x, y = (
            point if total <= 1 else point - total + 1
            for point, total in zip((x, y), top, strict=True)
        )
        (psi_x, psi_y) = psi_of(np.array((x, y)))
        (p, q) = (naive.logistic_weights(-point)[0] for point in (x, y))
        apart = np.abs(p - q).sum()
        between = psi_x - psi_y - q @ (x - y)
        assert between >= apart**2 / (2 * BETA) - 1e-15
        tightest = max(tightest, apart**2 / (2 * BETA) / between if between > 1e-9 else 0.0)
    assert tightest > (0.95 if n == 2000 else 0.0) or n == 1  # there psi is the identity


@pytest.mark.parametrize("case", PLANTED)
def test_the_shifted_losses_never_add_up_to_more_than_at_first(case):
    """S_t <= S_0 < 1, separable or not: psi(xi_t) <= psi(xi_0) - ||mu_t||_G^2 (t+1)^2 / (8 beta), s = 1, where xi_t =
    -Z w_t - ln n and p_t, normalised, is not longer than mu_t.

    Proof: "The shifted logistic loss" in figures/THEOREMS.md.
    """
    Z, _ = PLANTED[case]
    Z, n = Z / np.sqrt(scale_of(fm.features(Z, 1, normalize=None))), len(Z)
    seen = partials(fm.features(Z, 1, normalize=None), 200, loss="logistic")
    t = np.arange(201)
    xi = -np.array([partial.alpha for partial in seen]) @ Z @ Z.T - np.log(n)
    sums = np.logaddexp(0, xi).sum(axis=1)
    psi = psi_of(xi)
    assert sums[0] < 1 and (sums <= sums[0] * (1 + 1e-13)).all()
    fallen = (
        np.linalg.norm(np.array([partial.p for partial in seen]) @ Z, axis=1) ** 2
        * (t + 1.0) ** 2
        / (8 * BETA)
    )
    assert (psi[1:] <= psi[0] - fallen[1:] + 1e-11 * (1 + np.abs(psi[1:]))).all()


def test_for_the_exponential_loss_a_shift_is_nothing():
    G = dense(UNTIED["separable"])
    runs = [fm.momentum(G, max_iter=50, shifted=shifted).alpha for shifted in (True, False)]
    assert np.array_equal(*runs)


@rotate("case, kind", ["separable", "not separable", "scale 50"], PLAIN)
@pytest.mark.parametrize("name, first, ahead", [("snkp", 0.5, 2), ("momentum", 1.0, 3)])
def test_snkp_is_momentum_with_other_steps(name, first, ahead, case, kind):
    """One recursion with two lengths of steps: a = alpha/mu of SNKP at k, alpha of momentum at t = k+1."""
    Z = UNTIED[case]
    T = 300
    G = form(kind, Z)
    s = scale_of(form(kind, Z))
    seen = []
    if name == "snkp":
        fm.snkp(G, stop=None, max_iter=T, trace_at=range(T), callback=seen.append)
    else:
        seen = partials(G, T)
    for partial, (a, p) in zip(
        seen[name == "momentum" :], naive.accelerated(Z, first, ahead), strict=False
    ):
        k = partial.n_iter
        alpha = partial.alpha * ((k + 1) * (k + 2) / (4 * s) if name == "snkp" else 1.0)
        np.testing.assert_allclose(alpha, a.astype(float), rtol=0, atol=1e-11 * float(a.max()))
        np.testing.assert_allclose(partial.p, p.astype(float), rtol=0, atol=1e-11)
    assert len(seen) == T + 1


@pytest.mark.parametrize("seed", range(2))
def test_a_wide_network_has_the_margin_of_the_infinite_one(seed):
    """The tangent kernel of Figure 3 at width m is within 1/sqrt(m) of its limit: "narrower widths were similar"."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 6))
    y = np.where(rng.random(40) < 0.5, 1, -1)
    of_width = lambda W: lambda A, B: naive.tangent_kernel(W, A, B)  # noqa: E731
    limit = fm.max_margin(fm.gram(X, y, kernel="ntk")).lower
    widths = np.array([100, 1600, 6400])
    errors = [
        np.mean(
            [
                abs(
                    fm.max_margin(fm.gram(X, y, kernel=of_width(rng.normal(size=(m, 6))))).lower
                    / limit
                    - 1
                )
                for _ in range(8)
            ]
        )
        for m in widths
    ]
    assert (errors * np.sqrt(widths) < 1.5).all()
    assert errors[2] < errors[1] < errors[0]
    assert limit > 0.05


@rotate("case, kind", ["separable", "not separable", "scale 50"], PLAIN)
def test_momentum_is_nesterov_on_the_dual(case, kind):
    """mu_t is p, and Z'mu_t = 2 g_t / t."""
    Z = UNTIED[case]
    T = 200
    size = np.sqrt(scale_of(form(kind, Z)))
    for t, (partial, point) in enumerate(
        zip(partials(form(kind, Z), T), naive.nesterov_on_the_dual(Z), strict=False)
    ):
        w, g, mu = (a.astype(float) for a in point)
        np.testing.assert_allclose(
            partial.p, mu, rtol=0, atol=1e-10
        )  # the multiplicative form adds T logarithms up
        if t:
            assert abs(partial.upper**2 - (2 * np.linalg.norm(g) / t) ** 2) <= 1e-10 * size**2
            np.testing.assert_allclose(Z.T @ partial.p, 2 * g / t, rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(
            Z.T @ partial.alpha, w, rtol=0, atol=1e-10 * (np.linalg.norm(w) + 1)
        )


# ======================================================================================================
# LOGISTIC LOSS, EXTREMES
# ======================================================================================================


@rotate(
    "case, kind, loss, step",
    ["cross-polytope", "opposite labels", "feasible", "shifted, infeasible"],
    PLAIN,
    ["exp", "logistic"],
    [1e6, 1e-6],
    crossed=2,
)
def test_gradient_descent_never_overflows(case, kind, loss, step):
    Z, rho = PLANTED[case]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = fm.gradient_descent(form(kind, Z), step=step, loss=loss, max_iter=300)
    assert np.isfinite(result.alpha).all()
    assert (result.alpha >= 0).all()
    assert np.isfinite(result.upper)
    assert result.lower <= max(rho, 0) + 1e-9


# ======================================================================================================
# STEPS OF EQUAL LENGTH
# ======================================================================================================


@rotate(
    "case, kind, step",
    [case for case in UNTIED if "separable" in case and "not" not in case] + ["scale 50"],
    PLAIN,
    [0.3, 1.0, 3.0],
    crossed=2,
)
def test_divided_by_the_norm_every_step_has_its_length(case, kind, step):
    """v = exp(-m), alpha <- alpha + step v / (sqrt(s t) ||v||_G): the predictor moves by step / sqrt(s t), whatever its
    margins are.  On data without a margin it turns about its end, where rounding is amplified without bound."""
    Z = UNTIED[case]
    T = 60
    G = form(kind, Z)
    own = {"step": step, "schedule": "sqrt", "divide_by": "norm"}
    result = fm.normalized_gradient_descent(
        G, max_iter=T, trace_at=range(T), keep_iterates=True, **own
    )
    lengths = np.linalg.norm(np.diff(result.iterates, axis=0) @ Z, axis=1)
    wanted = step / np.sqrt(scale_of(G) * np.arange(1.0, T + 1.0))
    np.testing.assert_allclose(lengths, wanted, rtol=1e-10)
    assert np.array_equal(result.trace["products"], np.arange(T + 1.0))
    for alpha, (twin, *_) in zip(
        result.iterates, naive.normalized_gradient_descent(Z, **own), strict=False
    ):
        np.testing.assert_allclose(
            alpha, twin.astype(float), rtol=0, atol=1e-11 * float(np.abs(twin).max())
        )


@rotate(
    "case, kind, schedule, step",
    [
        "cross-polytope",
        "opposite labels",
        "simplex",
        "feasible",
        "a row of zeros",
        "small margin",
        "shifted, infeasible",
    ],
    PLAIN,
    ["constant", "sqrt"],
    [1e6, 1.0, 1e-6, 1e30],
    crossed=2,
)
def test_steps_divided_by_the_norm_never_overflow(case, kind, schedule, step):
    """Where the gradient vanishes, at once (cross-polytope) or in the end (a row of zeros), the run rests there."""
    Z, rho = PLANTED[case]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = fm.normalized_gradient_descent(
            form(kind, Z), step=step, schedule=schedule, divide_by="norm", max_iter=300
        )
    assert np.isfinite(result.alpha).all()
    assert (result.alpha >= 0).all()
    assert np.isfinite(result.upper)
    size = np.sqrt(scale_of(form(kind, Z)))
    assert result.lower <= max(rho, 0) + 1e-9 * size
    assert max(rho, 0) <= result.upper * (1 + 1e-12) + 1e-12 * size


# ======================================================================================================
# OBJECTIVES, RATES, SCALE
# ======================================================================================================


@pytest.mark.parametrize(
    "name", ["gradient_descent", "normalized_gradient_descent", "gradient_descent, logistic"]
)
@pytest.mark.parametrize(
    "case",
    [
        "feasible",
        "feasible, scale 7",
        "opposite labels",
        "shifted, infeasible",
        "one dimension, infeasible",
        "unequal weights",
    ],
)
def test_the_risk_never_grows(name, case):
    """With step 1 the risk (for the normalised method its logarithm) is smooth enough for plain descent."""
    G = dense(PLANTED[case][0])
    result = run(name, G, max_iter=200, trace_at=range(200), keep_iterates=True)
    margins = result.iterates @ G
    each = np.logaddexp(0, -margins) if "logistic" in name else np.exp(-margins)
    risk = each.mean(axis=1)
    assert (risk[1:] <= risk[:-1] * (1 + 50 * EPS)).all() and risk[-1] < risk[0] * (1 - 1e-9)


def slope(t, gap, start, stop):
    inside = (t >= start) & (t <= stop)
    return np.polyfit(np.log(t[inside]), np.log(gap[inside]), 1)[0]


def test_margins_converge_at_their_rates():
    """Margin gaps on one planted instance: 1/t^2 for momentum, 1/t for normalised steps, slower for the rest.

    With unequal dual weights, that is: m_i must tend to t rho^2 - ln p_i, and the 1/t is the spread of the logarithms.
    """
    Z, rho = PLANTED["unequal weights"]
    G = fm.features(Z, 1, normalize=None)
    at = np.unique(np.logspace(0, np.log10(3000), 60).astype(int))
    gaps = {
        name: rho - run(name, G, max_iter=3000, trace_at=at).trace["lower"][1:] for name in OURS
    }
    found = {name: slope(at.astype(float), gap, 100, 3000) for name, gap in gaps.items()}
    assert found["momentum"] < -1.5, found
    assert -1.3 < found["normalized_gradient_descent"] < -0.7, found
    assert -0.8 < found["normalized_gradient_descent, sqrt"] < -0.3, found
    assert found["momentum"] < found["batch_perceptron"] < 0, found
    # the plain gradient's margin gains like 1/ln t: last of all
    last = {name: gap[-1] for name, gap in gaps.items()}
    assert last["momentum"] < last["normalized_gradient_descent"] < last["gradient_descent"], last


@every_plain
def test_the_batch_perceptron_has_the_regret_of_projected_ascent(kind):
    """lower >= upper - O(sqrt(s/t)): projected ascent with steps 1/sqrt(s t) has regret at most 3 sqrt(s t)
    (diameter 2: 4/(2 eta_t) + s/2 sum eta_t <= 2 sqrt(s t) + sqrt(s t)), and ||sum w|| <= t."""
    for case in ("feasible", "feasible, scale 7", "shifted cross-polytope", "small margin"):
        Z, rho = PLANTED[case]
        G = form(kind, Z)
        trace = fm.batch_perceptron(G, max_iter=2000).trace[1:]
        least = rho - 3 * np.sqrt(scale_of(G) / trace["iteration"])
        assert (trace["upper"] - trace["lower"] >= -1e-12).all()
        assert (np.maximum(trace["lower"], 0) >= least - 1e-12).all()
        assert (trace["upper"] <= rho + 3 * np.sqrt(scale_of(G) / trace["iteration"]) + 1e-12).all()


# ======================================================================================================
# ADAPTIVE SAMPLING
# ======================================================================================================


@pytest.mark.parametrize("n", [1, 2, 7, 40, 1001])
def test_samples_have_the_distribution_q(n):
    """Chi-square over 50,000 samples, rare points taken together; the bound is exceeded once in 1e9 tests."""
    m = 2.0 * rows_of(1, n, n)[0] + 1e3
    samples = 50_000
    uniforms = np.random.default_rng(n).random(samples)
    drawn = np.bincount([draw(m, u) for u in uniforms], minlength=n)
    expected = samples * naive.softmax(-m)
    rare = expected < 10.0
    drawn, expected = (np.append(a[~rare], a[rare].sum()) for a in (drawn, expected))
    drawn = drawn[expected > 0]
    expected = expected[expected > 0]
    chi2 = ((drawn - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    assert chi2 <= freedom + 2 * np.sqrt(21 * freedom) + 42  # Laurent & Massart 2000, at exp(-21)


def test_the_seed_alone_decides_what_is_sampled():
    Z = UNTIED["separable"]
    one, two, other = (
        fm.adaptive_sampling(fm.features(Z, 1, normalize=None), seed=seed, max_iter=50).alpha
        for seed in (7, 7, 8)
    )
    assert np.array_equal(one, two) and not np.array_equal(one, other)


@every_plain
@pytest.mark.parametrize("momentum", [True, False])
def test_a_long_run_of_adaptive_sampling_neither_overflows_nor_drifts(kind, momentum):
    Z, rho = PLANTED["feasible, scale 7"]
    with np.errstate(all="raise", under="ignore"):
        result = fm.adaptive_sampling(
            form(kind, Z), momentum=momentum, max_iter=100_000, trace_at=[]
        )
    assert 0.98 * rho < result.lower <= rho * (1 + 1e-12)
    assert rho * (1 - 1e-12) <= result.upper < 1.02 * rho


@pytest.mark.parametrize("case", ["feasible", "uneven", "unequal weights", "feasible, n > 512"])
def test_theorem_4_1_adaptive_sampling_keeps_its_bounds_with_high_probability(case):
    """Each bound may fail with probability 2 delta = 0.02: of 40 runs more than 6 with probability below 1e-5."""
    Z, rho = PLANTED[case]
    s = scale_of(fm.features(Z, 1, normalize=None))
    delta = 0.01
    runs = 40
    r = rho / np.sqrt(s)
    n = len(Z)
    for T in (100, 1000, 3000):
        theta = np.sqrt(np.log(n) / T)
        bound = r - (1.5 * theta + np.sqrt(2 * np.log(1 / delta) / T)) / r - 1 / np.sqrt(delta * T)
        lower = [
            fm.adaptive_sampling(
                fm.features(Z, 1, normalize=None),
                momentum=False,
                step=theta,
                seed=seed,
                max_iter=T,
                trace_at=[],
            ).lower
            for seed in range(runs)
        ]
        assert (np.array(lower) < np.sqrt(s) * bound).sum() <= 6


def test_plain_adaptive_sampling_closes_the_gap_like_1_over_sqrt_T():
    Z, rho = PLANTED["unequal weights"]
    G = fm.features(Z, 1, normalize=None)
    T = np.array([100, 300, 1000, 3000, 10_000, 30_000])

    gaps = [
        np.mean(
            [
                rho
                - fm.adaptive_sampling(
                    G,
                    momentum=False,
                    step=np.sqrt(np.log(len(Z)) / t),
                    seed=seed,
                    max_iter=t,
                    trace_at=[],
                ).lower
                for seed in range(12)
            ]
        )
        for t in T
    ]
    assert -0.7 < slope(T, np.array(gaps), 100, 30_000) < -0.4


def rows_drawn(alpha, step):
    """Return the rows that a run with momentum drew: (t+1)(alpha_{t+1} - alpha_t)/step is sum_{j<t} j e_j + (2t+1) e_t,
    e_j the row drawn at j."""
    drawn = []
    total = np.zeros(alpha.shape[1])
    for t, move in enumerate(np.diff(alpha, axis=0) / step):
        rest = (t + 1) * move - total
        i = int(np.argmax(rest))
        rest[i] -= 2 * t + 1
        assert np.abs(rest).max() <= 1e-9 * (t + 1) ** 2
        drawn.append(i)
        total[i] += t
    return drawn


SAMPLED = ["feasible", "uneven", "unequal weights", "feasible, scale 7"]


@pytest.mark.parametrize("step", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("case", SAMPLED)
def test_sampling_with_momentum_keeps_what_momentum_keeps_up_to_its_noise(case, step):
    """With momentum, along every run, s = 1, z_t the row drawn at w_t, N_t = (w_{t+1} - w_t)/step and psi = lse:

        rho ||w_T|| + psi(-Z w_T) <= ln n + sum_{t<T} (step/2 ||z_{t+1} - z_t||^2 - KL(q_{t+1} || q_t)
                                                       + step <z_{t+1} - Z'q_{t+1}, N_t>),
        ||w_T|| >= step rho T(T+3)/4.

    The last term is a martingale.  Given the past of z_t, the mean of the others is, by Gibbs' variational principle,
    at most ln sum_ij q_i q_j exp(step/2 ||z_i - z_j||^2) <= ln((1 + e^(2 step))/2) = step + ln cosh(step), since
    ||z_i - z_j||^2 <= 4 has a mean of at most 2.  As gamma(w) ||w|| >= -psi(-Z w), in the mean

        rho - gamma(w_T) <= 4 (ln n + T (step + ln cosh step)) / (step rho T(T+3)).

    Proof: "Sampling with momentum" in figures/THEOREMS.md.
    """
    Z, rho = PLANTED[case]
    root = np.sqrt(scale_of(fm.features(Z, 1, normalize=None)))
    T = 250
    Z = Z / root
    rho = rho / root
    alpha = fm.adaptive_sampling(
        fm.features(Z, 1, normalize=None),
        step=step,
        seed=5,
        max_iter=T + 1,
        trace_at=range(T + 2),
        keep_iterates=True,
    ).iterates
    z = Z[rows_drawn(alpha, step)]
    w = alpha[:-1] @ Z
    m, size, q = (
        w @ Z.T,
        np.linalg.norm(w, axis=1),
        np.array([naive.softmax(-m) for m in w @ Z.T]).astype(float),
    )
    psi = np.logaddexp.reduce(-m, axis=1)
    fall = m[1:] - m[:-1] + (psi[1:] - psi[:-1])[:, None]  # ln(q_t / q_{t+1})
    kl = -np.sum(q[1:] * fall, axis=1)
    noise = step / 2 * np.sum((z[1:] - z[:-1]) ** 2, axis=1) - kl
    martingale = np.sum((z[1:] - q[1:] @ Z) * np.diff(w, axis=0), axis=1)
    slack = 1e-10 * (1 + size[1:])
    assert (
        rho * size[1:] + psi[1:] <= np.log(len(Z)) + np.cumsum(noise + martingale) + slack
    ).all()
    assert kl.min() >= 0
    t = np.arange(1, T + 1)
    assert (size[1:] >= step * rho * t * (t + 3) / 4 - slack).all()
    squares = np.sum((Z[:, None] - Z) ** 2, axis=2)
    assert (
        np.einsum("ti,ij,tj->t", q, np.exp(step / 2 * squares), q)
        <= (1 + np.exp(2 * step)) / 2 + 1e-12
    ).all()


@pytest.mark.parametrize("case", SAMPLED)
def test_the_mean_gap_of_sampling_with_momentum_is_below_its_bound(case):
    """A mean over 40 runs, which is below half of the bound on all data seen: no accident puts it above."""
    Z, rho = PLANTED[case]
    root = np.sqrt(scale_of(fm.features(Z, 1, normalize=None)))
    T = np.array([10, 100, 1000])
    for step in (0.3, 1.0):
        gaps = [
            rho
            - fm.adaptive_sampling(
                fm.features(Z, 1, normalize=None), step=step, seed=seed, max_iter=1000, trace_at=T
            ).trace["lower"][1:]
            for seed in range(40)
        ]
        bound = (
            4
            * (np.log(len(Z)) + T * (step + np.log(np.cosh(step))))
            / (step * rho / root * T * (T + 3))
        )
        assert (np.mean(gaps, axis=0) / root <= bound).all()


@pytest.mark.parametrize("c", [0.1, 0.5, 0.9])
def test_no_weights_on_the_columns_read_do_better_on_equicorrelated_rows(c):
    """On T < n rows the best weights are equal, by symmetry and convexity; sampling comes within a third of their gap.

    The best weights on all rows read nothing here: this bounds weights on the rows read, not all that could be known.
    """
    n = 200
    G = c + (1 - c) * np.eye(n)
    rho = np.sqrt(c + (1 - c) / n)
    for T in (1, 10, 50, 150):
        least = 1 - c / np.sqrt(c + (1 - c) / T) / rho
        mean, _ = fm.certificate(G, np.repeat([1.0, 0.0], [T, n - T]), np.full(n, 1 / n))
        assert 1 - mean / rho == pytest.approx(least, rel=1e-9)
        for algorithm in (fm.nkp, fm.batch_perceptron, fm.adaptive_sampling):
            own = {"stop": None} if algorithm is fm.nkp else {}
            gap = 1 - algorithm(G, max_iter=T, trace_at=[], **own).lower / rho
            assert gap >= least * (1 - 1e-9)
        assert gap <= 4 / 3 * least + 1e-9


@pytest.mark.parametrize("step", [0.3, 10.0, 100.0])
def test_a_step_of_any_length_lowers_the_risk_within_1_over_rho_squared(step):
    """ln R <= -(step / 2) (rho^2 T / s - 1) at the best of T iterates, so that by then they separate.

    Proof: "Normalised steps of any length" in figures/THEOREMS.md.
    """
    for case in ("feasible", "feasible, odd n", "uneven"):
        Z, rho = PLANTED[case]
        n = len(Z)
        s = np.square(Z).sum(axis=1).max()
        T = math.ceil((1 + 2 * math.log(n) / step) * s / rho**2) + 1
        run = fm.normalized_gradient_descent(
            fm.features(Z, 1, normalize=None),
            step=step,
            max_iter=T,
            trace_at=range(T),
            keep_iterates=True,
        )
        m = run.iterates @ Z @ Z.T
        low = m.min(axis=1)
        risks = np.log(np.mean(np.exp(low[:, None] - m), axis=1)) - low
        t = np.arange(T + 1)
        assert (
            np.minimum.accumulate(risks)[:-1] <= -step / 2 * (rho**2 / s * t[1:] - 1) + 1e-9
        ).all()
        assert low.max() > 0.0
