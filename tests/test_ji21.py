"""ji21: each algorithm against five lines of NumPy, Theorem 3.1 along real runs, the dual form, rates, certificates."""

import numpy as np
import pytest
from planted import (
    ALGORITHMS,
    EPS,
    LOOPS,
    PLANTED,
    REPRESENTATIONS,
    dense,
    exact_interval,
    run,
    scale_of,
    two_classes,
)

import fastmargin as fm


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def logistic_weights(m):
    """grad psi(-m), psi = l^{-1}(sum l), l(z) = ln(1 + e^z), in extended precision: l'(-m_i) / l'(psi)."""
    m = np.asarray(m, np.longdouble)
    if m.min() > 100:  # l(z) = e^z and l'(psi) = psi, to e^-100
        shifted = np.exp(m.min() - m)
        return shifted / shifted.sum(), np.log(shifted.sum()) - m.min()
    total = np.logaddexp(np.longdouble(0), -m).sum()
    # l'(psi) = 1 - e^-total;  l'(-m) = 1 / (1 + e^m)
    log_slope = np.log(-np.expm1(-total))
    return np.exp(-np.logaddexp(np.longdouble(0), m) - log_slope), log_slope


# ======================================================================================================
# NAIVE TWINS: generators of (alpha_t, p_t)
# ======================================================================================================

def twin_gradient_descent(G, s, step=1.0, loss="exp"):
    alpha = np.zeros(len(G))
    while True:
        yield alpha.copy(), alpha / alpha.sum() if alpha.any() else np.full(len(G), 1 / len(G))
        m = G @ alpha
        alpha += step / s * (np.exp(-m) if loss == "exp" else 1 / (1 + np.exp(m))) / len(G)


def twin_normalized(G, s, step=1.0, schedule="constant"):
    alpha, t = np.zeros(len(G)), 0
    while True:
        yield alpha.copy(), alpha / alpha.sum() if t else np.full(len(G), 1 / len(G))
        alpha += step / s / (np.sqrt(t + 1) if schedule == "sqrt" else 1) * softmax(-G @ alpha)
        t += 1


def twin_momentum(G, s, loss="exp"):
    n = len(G)
    alpha, g, t = np.zeros(n), np.zeros(n), 0
    while True:
        q = softmax(-G @ alpha) if loss == "exp" else logistic_weights(G @ alpha)[0].astype(float)
        yield alpha.copy(), (g + q) / (g + q).sum()
        g = t / (t + 1) * (g + q)
        alpha = alpha + (1 if loss == "exp" else 1 / n) / s * (g + q)
        t += 1


def twin_batch_perceptron(G, s, averaged=True):
    n = len(G)
    w, total, hits = np.zeros(n), np.zeros(n), np.zeros(n)
    for t in range(1, 10**9):
        yield (total if averaged else w).copy(), hits / max(hits.sum(), 1) if t > 1 else np.full(n, 1 / n)
        i = np.argmin(G @ w)
        w[i] += 1 / np.sqrt(s * t)
        w /= max(1.0, np.sqrt(w @ G @ w))
        total += w
        hits[i] += 1


TWINS = {
    "gradient_descent": (twin_gradient_descent, {}),
    "gradient_descent, logistic": (twin_gradient_descent, {"loss": "logistic"}),
    "normalized_gradient_descent": (twin_normalized, {}),
    "normalized_gradient_descent, sqrt": (twin_normalized, {"schedule": "sqrt"}),
    "momentum": (twin_momentum, {}),
    "momentum, logistic": (twin_momentum, {"loss": "logistic"}),
    "batch_perceptron": (twin_batch_perceptron, {}),
    "batch_perceptron, last": (twin_batch_perceptron, {"averaged": False}),
}
STEPS = {"gradient_descent": 0.3, "gradient_descent, logistic": 5.0, "normalized_gradient_descent": 0.5,
         "normalized_gradient_descent, sqrt": 2.0}


def random_rows(case):
    """Rows without ties: where two margins are equal, rounding chooses the row a perceptron takes."""
    X, y = two_classes(60, 6, {"separable": 6.0, "not separable": 1.0, "scale 50": 5.0}[case], seed=1)
    return y[:, None] * X * (7.0 if case == "scale 50" else 1.0)


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("case", ["separable", "not separable", "scale 50"])
@pytest.mark.parametrize("name", TWINS)
def test_iterates_are_those_of_the_naive_twin(name, case, kind):
    Z = random_rows(case)
    G, T = REPRESENTATIONS[kind](Z), 300
    twin, own = TWINS[name]
    for step in {None, STEPS.get(name)}:
        extra = {} if step is None else {"step": step}
        seen = []
        result = run(name, G, max_iter=T, trace_at=range(T), keep_iterates=True, callback=seen.append, **extra)
        assert len(result.trace) == T + 1
        for partial, (alpha, p) in zip(seen, twin(dense(Z), scale_of(G), **own, **extra), strict=False):
            # relative to the largest weight: rounding reaches all weights alike, through the margins
            np.testing.assert_allclose(partial.alpha, alpha, rtol=0, atol=1e-11 * np.abs(alpha).max() + 1e-300)
            np.testing.assert_allclose(partial.p, p, rtol=0, atol=1e-11)
            if alpha.any():
                lower, upper = exact_interval(Z, alpha, p)
                s = scale_of(G)
                assert abs(partial.lower - lower) <= 1e-11 * np.sqrt(s)
                assert abs(partial.upper**2 - upper**2) <= 1e-11 * s
            else:
                assert partial.lower == -np.sqrt(scale_of(G))


# ======================================================================================================
# THEOREM 3.1 AND THE DUAL FORM OF MOMENTUM
# ======================================================================================================

@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("case", PLANTED)
def test_theorem_3_1(case, kind):
    Z, rho = PLANTED[case]
    G = REPRESENTATIONS[kind](Z)
    s, n = scale_of(G), len(Z)
    trace = fm.momentum(G, max_iter=500, trace_at=range(501)).trace
    t = trace["iteration"]
    positive = max(rho, 0.0)
    # a dense G cannot tell ||p||_G^2 from zero below the rounding of its entries
    slack = 40 * EPS * s
    assert (trace["upper"] ** 2 >= positive**2 - slack).all()
    assert (trace["upper"] ** 2 <= positive**2 + 8 * s * max(np.log(n), 0) / (t + 1.0) ** 2 + slack).all()
    if rho > 0:
        r = rho / np.sqrt(s)
        bound = r - 4 * (1 + np.log(n)) * (1 + 2 * np.log(t + 1.0)) / (r * (t + 1.0) ** 2)
        assert (trace["lower"] >= np.sqrt(s) * bound - 20 * EPS * s / rho).all()


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("case", ["separable", "not separable", "scale 50"])
def test_momentum_is_nesterov_on_the_dual(case, kind):
    """lambda_t = 2/(t+2), nu_t = (1-lambda_t) mu_t + lambda_t q_t, q_{t+1} ~ q_t exp(-G nu_t / (lambda_t s)),
    mu_{t+1} = (1-lambda_t) mu_t + lambda_t q_{t+1}, mu_0 = q_0 = 1/n: then mu_t is p, and Z'mu_t = 2 g_t / t."""
    Z = random_rows(case)
    G, n, T = REPRESENTATIONS[kind](Z), len(Z), 200
    K, s = dense(Z), scale_of(G)
    seen = []
    fm.momentum(G, max_iter=T, trace_at=range(T), callback=seen.append)
    log_q, mu, g, w = np.zeros(n), np.full(n, 1 / n), np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    for t, partial in enumerate(seen):
        np.testing.assert_allclose(partial.p, mu, rtol=0, atol=1e-10)  # the multiplicative form adds T logarithms up
        q, size = softmax(log_q), np.sqrt(s)
        step = Z.T @ q
        g = t / (t + 1) * (g + step)
        if t:
            assert abs(partial.upper - 2 * np.linalg.norm(g) / t) <= 1e-10 * size
            np.testing.assert_allclose(Z.T @ partial.p, 2 * g / t, rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(Z.T @ partial.alpha, w, rtol=0, atol=1e-10 * (np.linalg.norm(w) + 1))
        w = w + (g + step) / s
        lam = 2 / (t + 2)
        nu = (1 - lam) * mu + lam * q
        log_q = log_q - K @ nu / (lam * s)
        mu = (1 - lam) * mu + lam * softmax(log_q)


# ======================================================================================================
# LOGISTIC LOSS, EXTREMES
# ======================================================================================================

MARGINS = [
    [0.0], [0.0, 0.0], [1e3, -1e3], [1e3, 1e3 + 1], [1e6, -1e6], [-1e6, -1e6], [1e6, 1e6], [-1e6, -1e6 + 1, 3.0],
    [36.9, 40.0], [37.1, 40.0, 50.0], [36.999999, 37.000001], [-40.0, 40.0], [20.0, 21.0, 22.0], [700.0, 720.0, 750.0],
    [-750.0, 750.0], [5.0, 36.0, 800.0], list(np.linspace(-5, 5, 50)), list(np.linspace(30, 45, 50)),
    list(np.linspace(-1e3, 1e3, 101)),
]


@pytest.mark.parametrize("margins", MARGINS, ids=str)
def test_logistic_weights(margins):
    m, q = np.array(margins), np.empty(len(margins))
    log_slope = fm._logistic_weights(m, q)
    exact, exact_log = logistic_weights(m)
    normal = exact > 1e-300
    # an exponent of size x loses eps x; between margins of 37 and e^-37 against 1 lies the rounding of one eps
    np.testing.assert_allclose(q[normal], exact[normal].astype(float), rtol=(20 + np.abs(m).max() / 4) * EPS)
    assert (q[~normal] <= 1e-299).all() and (q >= 0).all()
    assert abs(log_slope - float(exact_log)) <= 8 * EPS * (1 + abs(float(exact_log)))
    again = np.empty(len(m))
    if m.max() < 700:  # Python's own exp raises where the compiled one gives infinity
        assert abs(fm._logistic_weights.py_func(m, again) - log_slope) <= 4 * EPS * (1 + abs(log_slope))
        np.testing.assert_allclose(again, q, rtol=20 * EPS, atol=1e-300)


@pytest.mark.parametrize("loss", ["exp", "logistic"])
@pytest.mark.parametrize("case", ["cross-polytope", "opposite labels", "feasible", "shifted, infeasible"])
@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("step", [1e6, 1e-6])
def test_gradient_descent_never_overflows(case, kind, loss, step):
    Z, rho = PLANTED[case]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        result = fm.gradient_descent(REPRESENTATIONS[kind](Z), step=step, loss=loss, max_iter=300)
    assert np.isfinite(result.alpha).all() and (result.alpha >= 0).all() and np.isfinite(result.upper)
    assert result.lower <= max(rho, 0) + 1e-9


def test_gradient_descent_with_a_long_step_on_asymmetric_infeasible_data():
    Z = np.array([[1.0, 0.1], [-0.9, 0.3], [0.2, -1.0], [0.1, 0.7]])  # the long steps never cancel
    for kind in REPRESENTATIONS.values():
        for step in (1e2, 1e6, 1e30):
            result = fm.gradient_descent(kind(Z), step=step, max_iter=500)
            assert np.isfinite(result.alpha).all() and result.lower < 0 and result.n_iter == 500


# ======================================================================================================
# OBJECTIVES, RATES, SCALE
# ======================================================================================================

@pytest.mark.parametrize("name", ["gradient_descent", "normalized_gradient_descent", "gradient_descent, logistic"])
@pytest.mark.parametrize("case", ["feasible", "feasible, scale 7", "opposite labels", "shifted, infeasible",
                                  "one dimension, infeasible", "unequal weights"])
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
    G = fm.FeatureGram(Z)
    at = np.unique(np.logspace(0, np.log10(3000), 60).astype(int))
    gaps = {name: rho - run(name, G, max_iter=3000, trace_at=at).trace["lower"][1:] for name in LOOPS}
    found = {name: slope(at.astype(float), gap, 100, 3000) for name, gap in gaps.items()}
    assert found["momentum"] < -1.5, found
    assert -1.3 < found["normalized_gradient_descent"] < -0.7, found
    assert -0.8 < found["normalized_gradient_descent, sqrt"] < -0.3, found
    assert found["momentum"] < found["batch_perceptron"] < 0, found
    # the plain gradient's margin gains like 1/ln t: last of all
    last = {name: gap[-1] for name, gap in gaps.items()}
    assert last["momentum"] < last["normalized_gradient_descent"] < last["gradient_descent"], last


@pytest.mark.parametrize("kind", REPRESENTATIONS)
def test_batch_perceptron_regret(kind):
    """lower >= upper - O(sqrt(s/t)): projected ascent with steps 1/sqrt(s t) has regret at most 3 sqrt(s t)
    (diameter 2: 4/(2 eta_t) + s/2 sum eta_t <= 2 sqrt(s t) + sqrt(s t)), and ||sum w|| <= t."""
    for case in ("feasible", "feasible, scale 7", "shifted cross-polytope", "small margin"):
        Z, rho = PLANTED[case]
        G = REPRESENTATIONS[kind](Z)
        trace = fm.batch_perceptron(G, max_iter=2000).trace[1:]
        least = rho - 3 * np.sqrt(scale_of(G) / trace["iteration"])
        assert (trace["upper"] - trace["lower"] >= -1e-12).all()
        assert (np.maximum(trace["lower"], 0) >= least - 1e-12).all()
        assert (trace["upper"] <= rho + 3 * np.sqrt(scale_of(G) / trace["iteration"]) + 1e-12).all()


@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_scale_does_not_matter(name, kind):
    """G and c G: the same p and lower / sqrt(c); to the bit where c is a power of four."""
    Z = random_rows("separable")
    plain = run(name, REPRESENTATIONS[kind](Z), max_iter=60)
    for root in (2.0**-30, 4.0, 2.0**100, 2.0**-150, 3.0):
        scaled = run(name, REPRESENTATIONS[kind](root * Z), max_iter=60)
        exact = root != 3.0
        slack = 0 if exact and name in LOOPS and "logistic" not in name else 1e-9
        np.testing.assert_allclose(scaled.p, plain.p, rtol=0, atol=slack)
        for field in ("lower", "upper"):
            np.testing.assert_allclose(scaled.trace[field] / root, plain.trace[field], rtol=slack, atol=0)
        assert scaled.status == plain.status


# ======================================================================================================
# CERTIFICATES OF EVERY ALGORITHM
# ======================================================================================================

@pytest.mark.parametrize("kind", REPRESENTATIONS)
@pytest.mark.parametrize("case", PLANTED)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_row_of_every_trace_holds_rho(name, case, kind):
    Z, rho = PLANTED[case]
    G = REPRESENTATIONS[kind](Z)
    s = scale_of(G)
    result = run(name, G, max_iter=300, keep_iterates=True)
    norms = np.linalg.norm(result.iterates @ Z, axis=1)
    sizes = np.abs(result.iterates).sum(axis=1)
    # min (G alpha)_i is rounded to a few eps s ||alpha||_1, then divided by ||alpha||_G
    ratio = np.divide(sizes, norms, out=np.zeros_like(norms), where=norms > 1e-12 * sizes)
    slack = 30 * EPS * s * ratio
    if kind == "dense":  # alpha'G alpha itself is rounded to eps s ||alpha||_1^2: it bends a lower below 0
        slack += abs(rho) * 4 * EPS * s * ratio**2
    assert (result.trace["lower"] <= rho + slack).all()
    assert (result.trace["lower"] >= -np.sqrt(s) - slack).all()
    assert (result.trace["upper"] ** 2 >= max(rho, 0) ** 2 - 30 * EPS * s).all()
    assert (result.trace["upper"] <= np.sqrt(s) * (1 + 4 * EPS)).all()
    assert (result.p >= 0).all() and abs(result.p.sum() - 1) <= len(Z) * EPS
    assert (result.alpha >= 0).all()
    again = fm.certificate(G, result.alpha, result.p)
    assert again == pytest.approx((result.lower, result.upper), rel=1e-9, abs=1e-7 * np.sqrt(s) * (rho <= 0))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_float32_storage_changes_g_by_its_rounding_only(name):
    X, y = two_classes(600, 8, gap=4.0, seed=2)
    wide, half = (fm.gram(X, y, kernel="rbf", dtype=dtype) for dtype in (np.float64, np.float32))
    a, b = (run(name, G, max_iter=40) for G in (wide, half))
    exact = run(name, half.astype(np.float64), max_iter=40)
    assert abs(a.lower - b.lower) <= 1e-5 and abs(a.upper - b.upper) <= 1e-5
    # sums over n are in float64: storing the same numbers in float64 changes nothing but the order of additions
    if name in LOOPS and "1e6" not in name:
        np.testing.assert_allclose(b.alpha, exact.alpha, rtol=1e-10)
        assert abs(b.lower - exact.lower) <= 1e-12 and abs(b.upper - exact.upper) <= 1e-12
