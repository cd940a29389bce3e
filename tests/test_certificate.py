"""The certified interval: weak duality, rounding, what every algorithm returns, matrices that allow no certificate."""

import math

import naive
import numpy as np
import pytest
from instances import (
    CALLS,
    EASY,
    EPS,
    LOOPS,
    PLANTED,
    REPRESENTATIONS,
    UNTIED,
    accepts,
    check_raises,
    dense,
    every_call,
    every_instance,
    every_representation,
    everywhere,
    feasible,
    form,
    forms,
    planted_l1,
    run,
    scale_of,
    threads,
    two_classes,
)

import fastmargin as fm


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On instances this small, threads only wait for each other; that they change no bit is tested elsewhere."""
    with threads(1):
        yield


@every_representation
@every_instance
def test_certificate_is_weak_duality(case, kind):
    Z, rho = PLANTED[case]
    G, n = REPRESENTATIONS[kind](Z), len(Z)
    s = scale_of(G)
    rng = np.random.default_rng(0)
    points = [*np.eye(n)[:5], np.full(n, 1 / n), *rng.dirichlet(np.full(n, 0.1), 10)]
    for alpha in (*points, *rng.normal(size=(10, n)), 1e200 * rng.normal(size=n), -np.ones(n)):
        for p in points[::3]:
            lower, upper = fm.certificate(G, alpha, p)
            size = np.linalg.norm(Z.T @ alpha / np.abs(alpha).sum())
            slack = 30 * EPS * s / size if size > 0 else 0
            assert lower <= rho + slack and rho <= upper + 1e-7 * np.sqrt(s) * (rho <= 0)
            if size > 1e-6 * np.sqrt(s):
                exact = naive.interval(Z, alpha, p)
                assert abs(lower - exact[0]) <= slack + 30 * EPS * s / size**2 * abs(exact[0]) * (kind == "dense")
                square_slack = 30 * EPS * s if kind == "dense" else 30 * EPS * np.sqrt(s) * (exact[1] + EPS)
                assert abs(upper**2 - exact[1] ** 2) <= square_slack
            else:
                assert lower <= rho


@every_representation
def test_certificate_without_a_direction(kind):
    Z, _ = feasible(20, 4, 0.3)
    G = REPRESENTATIONS[kind](3.0 * Z)
    p = np.full(20, 0.05)
    lower, upper = fm.certificate(G, np.zeros(20), p)
    assert lower == -np.sqrt(scale_of(G)) and 0.9 <= upper  # rho = 0.9
    pair = np.zeros(20)
    pair[:2] = 1.0
    twins = REPRESENTATIONS[kind](np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert fm.certificate(twins, [1.0, 1.0], [0.5, 0.5]) == (-1.0, 0.0)


@pytest.mark.parametrize("d", [2, 784, 10**4, 10**6])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_long_rows_do_not_make_the_certificate_contradict_itself(n, d):
    # m_i and ||w||^2 are sums of d terms, added in different orders
    for seed in range(3):
        Z = fm.features(np.random.default_rng(seed).random((n, d)), np.ones(n))
        p = fm.max_margin(Z, tol=1e-11).p
        lower, upper = fm.certificate(Z, p, p)
        assert abs(upper - lower) <= 1e-11


@pytest.mark.parametrize("G", [
    [[1.0, 1.5], [1.5, 1.0]],  # a 2x2 minor
    [[1.0, 0.0], [0.0, -1.0]],
    [[0.0, 1.0], [1.0, 0.0]],
    1.4 * np.eye(3) - 0.4 - 0.3 * np.ones((3, 3)),  # every 2x2 minor is positive, (1, 1, 1) is negative
])
@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call.rows])
def test_an_indefinite_matrix_gives_no_certificate(G, name):
    for c in (1.0, 1e-6, 1e6):
        with pytest.raises(ValueError, match="positive semi-definite"):
            run(name, c * np.array(G), max_iter=200)


def test_weak_duality_finds_an_indefinite_matrix_out():
    """alpha'G alpha and p'Gp are both positive, but alpha's margins, 1.12 ||alpha||_G, exceed ||p||_G = 0.25."""
    G = np.array([[1.0, -0.92, 0.6], [-0.92, 1.0, 0.78], [0.6, 0.78, 1.0]])
    alpha, p = np.linalg.solve(G, np.ones(3)), np.array([0.43, 0.57, 0.0])
    assert alpha @ G @ alpha > 0.1 and p @ G @ p > 0.01
    with pytest.raises(ValueError, match="positive semi-definite"):
        fm.certificate(G, alpha, p)


def test_float32_weights_are_a_distribution():
    for n in (3, 7, 1000):
        p = np.full(n, 1 / n, np.float32)  # its sum misses 1 by the rounding of float32
        assert fm.certificate(np.eye(n), p, p)[1] == pytest.approx(n**-0.5, rel=1e-6)


def test_certificate_leaves_its_input_alone():
    alpha, p = np.arange(40.0), np.full(40, 1 / 40)
    for kind in REPRESENTATIONS:
        G = form(kind, EASY.copy())
        fm.certificate(G, alpha, p)
        assert np.array_equal(alpha, np.arange(40.0)) and np.array_equal(p, np.full(40, 1 / 40))
        assert np.array_equal(np.asarray(getattr(G, "rows", G)), np.asarray(getattr(form(kind, EASY), "rows", G)))


# ======================================================================================================
# WHAT EVERY ALGORITHM RETURNS
# ======================================================================================================

AT = np.unique(np.r_[0:41, np.logspace(1, np.log10(300), 25).astype(int)])


@everywhere
@every_instance
def test_every_row_of_every_trace_holds_rho(case, name, kind):
    """-sqrt(s) <= lower <= rho <= upper <= sqrt(s), and both are what alpha and p say by the definition, recomputed in
    extended precision (Lemmas 2 and 3 of ramdas14)."""
    check_trace(name, kind, *PLANTED[case])


@everywhere
def test_every_row_is_what_alpha_and_p_say(name, kind):
    """Also where rho is not known, among rows on all sides of the origin."""
    check_trace(name, kind, UNTIED["around the origin"], None)


def check_trace(name, kind, Z, rho):
    if CALLS[name].rows:
        return check_l1_trace(name, Z) if accepts(name, Z) else None
    G, infeasible = form(kind, Z), rho is None or rho <= 0.0
    s, root, seen = scale_of(G), math.sqrt(scale_of(G)), []
    options = {} if CALLS[name].cost is None else {"trace_at": AT}
    result = run(name, G, max_iter=300, callback=seen.append, keep_iterates=True, **options)
    for row, partial, alpha in zip(result.trace, seen, result.iterates, strict=True):
        assert np.array_equal(partial.alpha, alpha) and (row["lower"], row["upper"]) == (partial.lower, partial.upper)
        lower, upper, p, size = partial.lower, partial.upper, partial.p, alpha.sum()
        assert (alpha >= 0.0).all() and (p >= 0.0).all() and abs(p.sum() - 1.0) <= (
            8 if partial.n_iter <= 40 else max(8, len(Z))) * EPS
        with np.errstate(invalid="ignore", divide="ignore"):
            least, norm = naive.interval(Z, alpha if size else p, p)
        unit = np.linalg.norm(alpha @ Z) / size if size else 0.0  # of the separator, where ||alpha||_1 = 1
        assert upper <= root * (1 + 4 * EPS) and lower >= -root - 30 * EPS * (s / unit if unit > 1e-12 * root else 0.0)
        assert infeasible or upper**2 >= rho**2 - 16 * EPS * s
        if kind == "dense":
            assert abs(upper**2 - norm**2) <= 16 * EPS * s
        else:
            assert abs(upper - norm) <= 40 * EPS * root
        if unit > 1e-12 * root:
            # min (G alpha)_i is rounded to a few eps s ||alpha||_1, then divided by ||alpha||_G; of a dense G,
            # alpha'G alpha itself is rounded to eps s ||alpha||_1^2, which bends a lower below 0
            if rho is not None:
                slack = 30 * EPS * s / unit + (abs(rho) * 4 * EPS * s / unit**2 if kind == "dense" else 0.0)
                assert lower <= rho + slack
            assert unit <= 1e-6 * root or abs(lower - least) <= 40 * EPS * root * (root / unit) ** 2
        elif rho is not None:
            assert lower <= rho + 30 * EPS * root
    again = fm.certificate(G, result.alpha, result.p)
    assert again == pytest.approx((result.lower, result.upper), rel=1e-9, abs=1e-7 * root * infeasible)


def check_l1_trace(name, Z):
    """The same for rho_1 = max_w min_i (Zw)_i = min_p max_j (Z'p)_j, which any two runs bracket."""
    seen = []
    result = run(name, Z, max_iter=300, trace_at=AT, callback=seen.append, keep_iterates=True)
    for partial, alpha in zip(seen, result.iterates, strict=True):
        assert np.array_equal(partial.alpha, alpha) and (alpha >= 0.0).all() and (partial.p >= 0.0).all()
        assert abs(alpha.sum() - 1.0) <= 8 * EPS and abs(partial.p.sum() - 1.0) <= 8 * EPS
        exact = naive.l1_interval(Z, alpha, partial.p)
        assert (partial.lower, partial.upper) == pytest.approx(exact, rel=0, abs=8 * EPS)
    other = run(name, Z, max_iter=300, eta=0.5)
    assert max(result.trace["lower"].max(), other.trace["lower"].max()) <= min(
        result.trace["upper"].min(), other.trace["upper"].min()) + 16 * EPS


@pytest.mark.parametrize("rho", [0.4, 0.03])
def test_the_l1_margin_is_bracketed(rho):
    Z = planted_l1(50, 10, 30, rho)
    for name in [name for name, call in CALLS.items() if call.rows]:
        trace = run(name, Z, max_iter=500).trace
        assert (trace["lower"] <= rho + 8 * EPS).all() and (trace["upper"] >= rho - 8 * EPS).all()


@everywhere
def test_opposite_points_are_infeasible_at_once(name, kind):
    result = run(name, form(kind, np.array([[1.0, 0.0], [-1.0, 0.0]])), max_iter=50)
    assert result.status == "infeasible" and result.upper == 0.0 and result.lower <= 0.0
    assert np.array_equal(result.p, [0.5, 0.5]) and result.trace["iteration"][-1] == result.n_iter


@everywhere
def test_one_point(name, kind):
    """Nothing to choose: both ends are the length of the row, whatever it is, as soon as alpha is not 0."""
    result = run(name, form(kind, np.array([[3.0, 4.0]])), max_iter=400)
    assert result.p.tolist() == [1.0]
    if not CALLS[name].rows:
        assert (result.lower, result.upper) == pytest.approx((5.0, 5.0), rel=4 * EPS)


def shares(alphas):
    """Weights up to their unit, which is the algorithm's own: of sum 1."""
    total = alphas.sum(axis=1, keepdims=True)
    return np.divide(alphas, total, out=np.zeros_like(alphas), where=total > 0.0)


@everywhere
@pytest.mark.parametrize("case", ["separable", "uneven", "lopsided, shifted"])
def test_units_do_not_matter(case, name, kind):
    """Rows and c times the rows: the same p and, up to its unit, alpha; lower / c and upper / c.  To the bit where c is
    a power of two; where margins tie, rounding decides for any other c."""
    Z, call = UNTIED[case] if case in UNTIED else PLANTED[case][0], CALLS[name]
    plain = run(name, form(kind, Z), max_iter=120, keep_iterates=True)
    for c in (2.0**-40, 2.0, 4.0, 2.0**60, 2.0**100, 2.0**-150, *((3.0,) if case in UNTIED else ())):
        own = {key: c**power * call.own[key] for key, power in call.units.items()}
        scaled = run(name, form(kind, c * Z), max_iter=120, keep_iterates=True, **own)
        slack = 0.0 if c != 3.0 and call.cost else 1e-9
        np.testing.assert_allclose(scaled.p, plain.p, rtol=0, atol=slack)
        np.testing.assert_allclose(shares(scaled.iterates), shares(plain.iterates), rtol=0, atol=slack)
        for field in ("lower", "upper"):
            unit = 1.0 if call.rows else c
            np.testing.assert_allclose(scaled.trace[field] / unit, plain.trace[field], rtol=slack, atol=0)
        assert scaled.status == plain.status and scaled.n_iter == plain.n_iter


@pytest.mark.parametrize("name", [name for name in CALLS if "dense" in forms(name)])
@pytest.mark.parametrize("data", ["rbf", "linear"])
def test_float32_storage_changes_g_by_its_rounding_only(name, data):
    """Sums over n are in float64: storing the same numbers in float64 changes nothing but the order of additions."""
    if data == "rbf":
        X, y = two_classes(600, 8, gap=4.0, seed=2)
        wide, half = (fm.gram(X, y, kernel="rbf", dtype=dtype) for dtype in (np.float64, np.float32))
    else:
        wide = dense(UNTIED["around the origin"])
        half = wide.astype(np.float32)
    a, b = (run(name, G, max_iter=40) for G in (wide, half))
    s = scale_of(wide)
    if a.status == b.status and b.status != "infeasible":
        assert max(abs(a.lower - b.lower), abs(a.upper - b.upper)) <= 1e-5 * math.sqrt(s)
    if name in LOOPS and CALLS[name].noise <= 1e-10:
        options = {"max_iter": 150, "trace_at": range(151)} if data == "linear" else {"max_iter": 40}
        b, exact = (run(name, G, keep_iterates=True, **options) for G in (half, half.astype(np.float64)))
        assert exact.n_iter == b.n_iter and exact.status == b.status
        size = max(1.0, np.abs(exact.iterates).max())
        assert np.abs(b.iterates - exact.iterates).max() <= 100 * EPS * size
        assert np.abs(b.p - exact.p).max() <= 100 * EPS
        if b.upper > 7e-4 * math.sqrt(s):  # what float32 can tell from zero
            assert max(abs(b.lower - exact.lower), abs(b.upper - exact.upper)) <= 1e-12 * math.sqrt(s)


# ======================================================================================================
# BAD INPUT
# ======================================================================================================

X3 = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
NAN = X3.copy()
NAN[2, 1] = np.nan
UNIFORM = np.full(3, 1 / 3)
ASKEW, HOLE = 2.0 * np.eye(3), np.eye(3)
ASKEW[2, 0], HOLE[1, 2] = 0.5, np.nan

BAD = {  # kind -> what may be wrong: what is given, exception, words of the message
    "dense": {
        "not square": (np.ones((2, 3)), ValueError, ["G", "square", "(2, 3)"]),
        "vector": (np.ones(3), ValueError, ["G", "square", "(3,)"]),
        "empty": (np.empty((0, 0)), ValueError, ["G", "(0, 0)"]),
        "none": (None, ValueError, ["G", "square matrix", "shape ()"]),
        "text": (np.array([["a"]]), ValueError, ["G", "real numbers"]),
        "complex": (1j * np.eye(2), ValueError, ["G", "complex"]),
        "nan": (HOLE, ValueError, ["G must be finite", "row 2", "nan"]),
        "nan on the diagonal": (np.diag([1.0, np.nan]), ValueError, ["G must be finite", "row 1", "nan"]),
        "inf": (np.diag([1.0, np.inf]), ValueError, ["G must be finite", "row 1", "inf"]),
        "asymmetric, Fortran": (ASKEW.T, ValueError, ["G must be symmetric", "G[2, 0] = 0.0,"]),
        "asymmetric, transposed": (ASKEW.T.copy(), ValueError, ["G must be symmetric", "G[2, 0] = 0.0,",
                                                                   "G[0, 2] = 0.5"]),
        "asymmetric": (ASKEW, ValueError, ["G must be symmetric", "row 2", "G[2, 0] = 0.5", "G[0, 2] = 0"]),
        "asymmetric list": ([[1, 0], [1, 1]], ValueError, ["G must be symmetric", "G[1, 0] = 1", "G[0, 1] = 0"]),
        "minor": (np.eye(4)[:, ::-1] * 1.1 + np.eye(4), ValueError, ["G must be positive semi-definite", "row 2"]),
        "negative": (np.diag([1.0, -1e-3]), ValueError, ["G must be positive semi-definite", "row 1"]),
        "zero": (np.zeros((2, 2)), ValueError, ["G_ii", "0"]),
    },
    "features": {
        "rows nan": (fm.FeatureGram(NAN), ValueError, ["G.rows must be finite", "row 2"]),
        "rows zero": (fm.FeatureGram(0 * X3), ValueError, ["G_ii", "0"]),
        "rows empty": (fm.FeatureGram(np.empty((0, 2))), ValueError, ["G.rows is empty"]),
        "rows vector": (fm.FeatureGram(np.ones(3)), ValueError, ["G.rows", "2 dimensions"]),
        "rows text": (fm.FeatureGram(np.array([["a"]])), TypeError, ["G.rows", "real numbers"]),
        "rows overflow": (fm.FeatureGram(X3 * 1e200), ValueError, ["G_ii", "inf"]),
    },
    "rows": {
        "nan": (NAN, ValueError, ["Z must be finite", "row 2"]),
        "row of zeros": (np.array([[1.0, 2.0], [0.0, 0.0]]), ValueError, ["row 1 of Z is zero"]),
        "empty": (np.empty((0, 2)), ValueError, ["Z is empty"]),
        "no columns": ([[]], ValueError, ["Z is empty"]),
        "vector": (np.ones(3), ValueError, ["Z", "2 dimensions"]),
        "none": (None, TypeError, ["Z", "real numbers"]),
        "text": (np.array([["a"]]), TypeError, ["Z", "real numbers"]),
        "complex": (1j * X3, TypeError, ["Z", "complex"]),
        "overflow": (X3 * 1e200, ValueError, ["row 0 of Z", "too large"]),
        "a representation": (fm.FeatureGram(X3), ValueError, ["Z", "2 dimensions"]),
    },
}


@everywhere
def test_bad_matrices(name, kind):
    for given, error, words in BAD.get(kind, {}).values():
        check_raises(lambda given=given: run(name, given), error, words)


@every_representation
def test_bad_matrices_for_the_certificate(kind):
    for given, error, words in BAD.get(kind, {}).values():
        check_raises(lambda given=given: fm.certificate(given, UNIFORM, UNIFORM), error, words)


@pytest.mark.parametrize("call, error, words", [
    (lambda: fm.certificate(np.eye(3), np.ones(2), UNIFORM), ValueError, ["alpha has 2", "3 points"]),
    (lambda: fm.certificate(np.eye(3), [1, 2, np.inf], UNIFORM), ValueError, ["alpha must be finite", "row 2"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), np.ones(3)), ValueError, ["p", "sum 3"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), [1.5, -0.5, 0]), ValueError, ["p", "-0.5"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), [0.5, 0.5]), ValueError, ["p", "2"]),
    (lambda: fm.certificate(np.eye(3), np.ones(3), [np.nan, 0.5, 0.5]), ValueError, ["p must be finite", "row 0"]),
])
def test_bad_calls(call, error, words):
    check_raises(call, error, words)


@every_call
def test_asymmetry_of_rounding_is_accepted(name):
    G = dense(EASY)
    G[3, 5] += 4 * EPS
    if "dense" in forms(name):
        assert run(name, G, max_iter=30).n_iter <= 30
        assert fm.max_margin(G).status == "certified"
