"""The certified interval: weak duality, rounding, what every algorithm returns, matrices that allow no certificate."""

import functools
import math
import re
from fractions import Fraction

import exact
import naive
import numpy as np
import pytest
from instances import (
    BY_ROWS,
    CALLS,
    EASY,
    EPS,
    EVERYWHERE,
    PLANTED,
    REPRESENTATIONS,
    UNTIED,
    accepts,
    algorithm_of,
    check_raises,
    every_representation,
    feasible,
    form,
    free,
    in_turn,
    meet,
    operator,
    pair_rows,
    rotate,
    run,
    scale_of,
    sparse,
)

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")


def as_gram(G):
    return G if isinstance(G, fm.Gram) else fm.Gram(G)


def check_interval(kind, Z, alpha, p, lower, upper, rho=None, recurrences=0.0):
    """lower <= min (G alpha)_i / ||alpha||_G and ||p||_G <= upper without any slack, G as stored, in extended
    precision; and no further away than the stated rounding, and that of recurrences in their place.  A lower may pass
    alpha's own margin on its way to rho."""
    G = form(kind, Z)
    s = scale_of(G)
    root = math.sqrt(scale_of(G))
    margins, square, length, _ = as_gram(G).rounding()
    if recurrences:
        margins, square, length = (
            margins + recurrences,
            2.0 * (margins + recurrences),
            length + recurrences,
        )
    interval = naive.dense_interval if kind == "dense" else naive.interval
    least, norm = (
        interval(G if kind == "dense" else Z, alpha, p)
        if alpha.any()
        else (-root, interval(G if kind == "dense" else Z, p, p)[1])
    )
    least = -root if math.isnan(least) else least  # 0 / 0
    assert (
        -root * (1 + margins + 9 * EPS) <= lower <= max(least, -root, 0.0 if rho is None else rho)
    )
    blur = len(Z) * float(np.finfo(naive.LONG).eps) * root  # of the extended precision itself
    assert (
        norm - blur
        <= upper
        <= math.sqrt(norm**2 + 4.1 * square * s) + 2.1 * length * root + (8 + len(Z)) * EPS * norm
    )
    total = np.abs(alpha).sum()
    size = np.linalg.norm(Z.T @ (alpha / total)) if total else 0.0
    if size > 1e3 * max(math.sqrt(square * s), length * root):
        spread = (4.1 * square * s / size**2 + 4.1 * length * root / size + 16 * EPS) * abs(least)
        assert least - lower <= 2.1 * margins * s / size + spread


@rotate("case, kind", PLANTED, REPRESENTATIONS)
def test_certificate_is_weak_duality(case, kind):
    Z, rho = PLANTED[case]
    G = REPRESENTATIONS[kind](Z)
    n = len(Z)
    rng = np.random.default_rng(0)
    points = [*np.eye(n)[:5], np.full(n, 1 / n), *rng.dirichlet(np.full(n, 0.1), 10)]
    alphas = [*points, *rng.normal(size=(10, n)), 1e200 * rng.normal(size=n), -np.ones(n)]
    for alpha in alphas if n < 100 else alphas[3::6]:
        for p in points[::3]:
            lower, upper = fm.certificate(G, alpha, p)
            check_interval(kind, Z, alpha, p, lower, upper)
            precise = fm.certificate(G, alpha, p, precise=True)
            assert precise[0] <= rho * (1 + 4 * EPS) + drift(kind, Z, rho) and precise[1] <= upper
            assert precise[0] >= lower


WITH_ROWS = ["features", "sparse", "mapped"]


def exact_margin(rows, w):
    """The signed square of min_i <z_i, w> / ||w||, in rationals."""
    whole, unit = exact.integers(np.vstack((rows, w)))
    d = len(w)
    *rows, w = [whole[i : i + d] for i in range(0, len(whole), d)]
    return exact.signed_square(min(exact.dot(z, w) for z in rows)) * unit**2 / exact.dot(w, w)


@pytest.mark.parametrize("kind", WITH_ROWS)
@pytest.mark.parametrize("scale", [1.0, 1e-98, 1e98])
def test_the_margin_of_a_separator_holds_in_exact_arithmetic(kind, scale):
    """For weights of many sizes, good separators and bad ones; and it is as narrow as it says, and below rho."""
    for seed in range(6):
        Z = (
            feasible(9, 6, 0.2, seed)[0]
            if seed % 2
            else np.random.default_rng(seed).normal(size=(9, 6))
        )
        Z = scale * Z
        G = BY_ROWS[kind](Z)
        best = fm.max_margin(fm.features(Z, 1, normalize=None))
        root = math.sqrt(scale_of(fm.features(Z, 1, normalize=None)))
        good = Z.T @ best.alpha
        for w in (
            good,
            1e99 * (good / np.abs(good).max()),
            1e-98 * (Z[0] / root),
            np.eye(6)[2],
            np.random.default_rng(seed).normal(size=6).astype(np.float32),
            -good,
        ):
            lower, upper = fm.separator_margin(G, w)
            assert exact.holds(exact_margin(Z, w), lower, upper)
            assert lower <= best.upper and upper - lower <= 2.1 * (9 + 6 + 8) * EPS * root
        lower, upper = fm.separator_margin(G, good)
        if best.status == "certified":
            assert lower >= best.lower * (1.0 - 1e-9)


@rotate("kind, classes", WITH_ROWS, [2, 3, 5], crossed=3)
def test_the_margin_of_a_separator_of_classes_holds_in_exact_arithmetic(kind, classes):
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, 12)
    X = rng.normal(size=(12, 20))
    pairs = fm.pair_gram(BY_ROWS[kind](X), labels, classes)
    best = fm.max_margin(pairs, tol=1e-9)
    rows = np.array(pair_rows(X.tolist(), labels, classes))
    found = (best.alpha @ rows).reshape(classes, 20)
    common = rng.normal(size=20)  # of all scores, which cancels in their differences
    for W in (
        rng.normal(size=(classes, 20)),
        found,
        1e-99 * np.eye(classes, 20),
        common + 2.0**-40 * rng.normal(size=(classes, 20)),
    ):
        lower, upper = fm.separator_margin(pairs, W)
        square = exact_margin(rows, W.ravel()) / 2
        assert exact.holds(square, lower, upper)
        assert lower <= best.upper and upper - lower <= 1e-13 * math.sqrt(scale_of(pairs))
    assert best.status == "certified"
    assert fm.separator_margin(pairs, found)[0] >= best.lower * (1 - 1e-9)


@pytest.mark.parametrize("intercept", [0.0, "free"])
@pytest.mark.parametrize("make", [fm.gram, fm.lazy_gram])
def test_the_margin_of_weights_of_points_holds_in_exact_arithmetic(make, intercept):
    """Of integers under a polynomial kernel, whose entries are integers, too; of few points, of one, and of all."""
    rng = np.random.default_rng(5)
    X = rng.integers(-6, 7, size=(9, 3))
    y = np.array([1, -1, 1, 1, -1, -1, 1, -1, 1])
    K = (X @ X.T + 1) ** 2
    G = make(X, y, kernel="poly", gamma=1, coef0=1, degree=2, normalize=None, intercept=intercept)
    best = fm.max_margin(G)
    for support in ([4, 0, 7], [2], np.arange(9)):
        weights = rng.integers(1, 50, size=len(support)) * y[support]
        norm2 = int(weights @ K[np.ix_(support, support)] @ weights)
        f = K[:, support] @ weights
        biases = [0, -300, 7] if intercept == "free" else [0]
        for bias in biases:
            least = int((y * (f + bias)).min())
            square = Fraction(exact.signed_square(least), norm2)
            for scale in (1.0, 1e-95):
                w = scale * np.append(weights, [bias] if intercept == "free" else [])
                lower, upper = fm.separator_margin(G, w, support=support)
                assert scale != 1.0 or exact.holds(square, lower, upper)
                assert lower <= best.upper
                assert upper - lower <= 1e-12 * math.sqrt(K.max())
                assert (lower + upper) / 2 == pytest.approx(least / math.sqrt(norm2), rel=1e-9)
        if intercept == "free":
            chosen = fm.separator_margin(G, weights, support=support)[0]  # by the best bias
            assert chosen >= lower


def drift(kind, Z, rho):
    """How far rho(G) may be from rho(Z) where G = Z Z' was rounded to d digits' worth: |rho^2 - rho'^2| <= d eps s."""
    error = Z.shape[1] * EPS * scale_of(form(kind, Z)) * (kind != "features")
    return min(math.sqrt(error), error / rho) if rho > 0 else math.sqrt(error)


@every_representation
def test_weights_of_length_0_are_certified_by_the_root_of_the_scale(kind):
    Z, _ = feasible(20, 4, 0.3)
    G = REPRESENTATIONS[kind](3.0 * Z)
    p = np.full(20, 0.05)
    lower, upper = fm.certificate(G, np.zeros(20), p)
    root = math.sqrt(scale_of(G))
    assert -root * (1 + 1e-13) <= lower <= -root and 0.9 <= upper  # rho = 0.9
    twins = REPRESENTATIONS[kind](np.array([[1.0, 0.0], [-1.0, 0.0]]))
    lower, upper = fm.certificate(twins, [1.0, 1.0], [0.5, 0.5])
    assert lower == pytest.approx(-1.0) and 0.0 < upper <= 1e-7


@every_representation
def test_a_precise_certificate_is_as_narrow_as_it_says(kind):
    for Z, rho in PLANTED.values():
        if rho > 0.0:
            G = form(kind, Z)
            s = scale_of(form(kind, Z))
            p = fm.max_margin(G, tol=1e-12).p
            lower, upper = fm.certificate(G, p, p, precise=True)
            width = (
                3 * EPS * s / rho**2 + 3 * drift(kind, Z, rho) / rho
                if kind != "features"
                else EPS * s / rho**2
            )
            assert upper - lower <= (width + 1e-12) * rho, (rho, upper - lower)


@pytest.mark.parametrize("d", [2, 784, 10**4, 10**6])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_long_rows_do_not_make_the_certificate_contradict_itself(n, d):
    # m_i and ||w||^2 are sums of d terms, added in different orders
    for seed in range(3 if d < 10**6 else 1):
        Z = fm.features(np.random.default_rng(seed).random((n, d)), np.ones(n))
        p = fm.max_margin(Z, tol=1e-11).p
        lower, upper = fm.certificate(Z, p, p, precise=True)
        assert 0.0 < upper - lower <= 1e-11


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call.rows])
def test_an_indefinite_matrix_gives_no_certificate(name):
    for G in (
        [[1.0, 1.5], [1.5, 1.0]],  # a 2x2 minor
        [[1.0, 0.0], [0.0, -1.0]],
        [[0.0, 1.0], [1.0, 0.0]],
        1.4 * np.eye(3) - 0.4 - 0.3 * np.ones((3, 3)),
    ):  # every 2x2 minor is positive, (1, 1, 1) is negative
        if algorithm_of(name) in ("frank_wolfe", "max_margin") and len(G) == 3:
            continue  # these end at (1, 1, 0), of length 0, and meet (1, 1, 1) never
        for c in (1.0, 1e-6, 1e6):
            with pytest.raises(ValueError, match=r"\bG\b"):
                run(name, c * np.array(G), max_iter=200)


@pytest.mark.parametrize(
    "diagonal, other, dtype",
    [
        (1e20, 5e20, np.float32),
        (1e-25, 5e-25, np.float32),
        (1e200, 1e250, np.float64),
        (1e-200, 1e-180, np.float64),
    ],
)
def test_minors_of_any_size_are_seen(diagonal, other, dtype):
    """Their squares over- or underflow."""
    G = np.array([[diagonal, other], [other, diagonal]], dtype)
    check_raises(lambda: fm.certificate(G, [1, 1], [0.5, 0.5]), ValueError, ["row 1"])


def test_weak_duality_finds_an_indefinite_matrix_out():
    """alpha'G alpha and p'Gp are both positive, but alpha's margins, 1.12 ||alpha||_G, exceed ||p||_G = 0.25."""
    G = np.array([[1.0, -0.92, 0.6], [-0.92, 1.0, 0.78], [0.6, 0.78, 1.0]])
    alpha = np.linalg.solve(G, np.ones(3))
    p = np.array([0.43, 0.57, 0.0])
    assert alpha @ G @ alpha > 0.1 and p @ G @ p > 0.01
    with pytest.raises(ValueError, match=r"\bG\b"):
        fm.certificate(G, alpha, p)


def test_float32_weights_are_a_distribution():
    for n in (3, 7, 1000):
        p = np.full(n, 1 / n, np.float32)  # its sum misses 1 by the rounding of float32
        assert fm.certificate(np.eye(n), p, p)[1] == pytest.approx(n**-0.5, rel=1e-6)


def test_certificate_leaves_its_input_alone():
    alpha = np.arange(40.0)
    p = np.full(40, 1 / 40)
    for kind in REPRESENTATIONS:
        G = form(kind, EASY.copy())
        fm.certificate(G, alpha, p)
        assert np.array_equal(alpha, np.arange(40.0)) and np.array_equal(p, np.full(40, 1 / 40))
        assert np.array_equal(np.asarray(G), np.asarray(form(kind, EASY)))


# ======================================================================================================
# WHERE ROUNDING BITES
# ======================================================================================================


def test_no_lower_end_is_above_minus_the_root_of_the_true_scale():
    """-sqrt(s), below which no margin falls, is that of an s that was itself rounded, stored or summed."""
    stored = np.array([[1.0, -1.0], [-1.0, 1.0]])  # of this matrix times 1 + 2^-54, for one
    z = np.full(10**5, 0.9999 * 2.0**-27)  # squares that vanish beside 1, one by one
    z[0] = 1.0
    for G, square in (
        (stored, 1 + Fraction(1, 2**54)),
        (
            fm.features(np.array([z, -z]), 1, normalize=None),
            1 + (z.size - 1) * Fraction(float(z[1])) ** 2,
        ),
    ):
        for alpha in (
            [0.0, 0.0],
            [1.0, 0.0],
            [1.0, -1.0],
        ):  # no direction, rho's, and one of length 0 or s
            for precise in (False, True):
                lower, _ = fm.certificate(G, alpha, [0.5, 0.5], precise=precise)
                assert lower < 0 and Fraction(lower) ** 2 >= square


def test_weights_of_either_sign_have_a_precise_certificate():
    G = fm.features([[3.0, 0.0], [1.0, 0.0]], [1, 1], normalize=None)
    lower, upper = fm.certificate(G, [1.0, -1.0], [0.5, 0.5], precise=True)
    assert lower <= 1.0 <= 2.0 <= upper


def test_a_tolerance_is_met_exactly():
    """1 - 1 * (1 - 2^-53) <= tol * 1 holds where tol is above 2^-53 by more than rounding, and not below."""
    u = 2.0**-53
    for tol, status in ((u * (1.0 + 1e-14), "certified"), (math.nextafter(u, 0.0), "max_iter")):
        result = fm.drive(
            np.eye(2),
            lambda G, k, until, alpha: until,
            (np.ones(2),),
            lambda alpha: (alpha, alpha),
            max_iter=0,
            tol=tol,
            interval=lambda *_: fm.Bounds(1.0 - u, 1.0, 0.0),
        )
        assert result.status == status


# ======================================================================================================
# WHAT EVERY ALGORITHM RETURNS
# ======================================================================================================

AT = np.unique(np.r_[0:41, np.logspace(1, np.log10(300), 25).astype(int)])


TRACED = {
    **PLANTED,
    "around the origin": (UNTIED["around the origin"], None),
}  # whose rho is not known


@in_turn(EVERYWHERE, TRACED, times=2)
def test_every_row_of_every_trace_holds_rho(name, kind, case):
    """-sqrt(s) <= lower <= rho <= upper <= sqrt(s), and both are what alpha and p say by the definition, recomputed in
    extended precision (Lemmas 2 and 3 of ramdas14); or the rows are refused."""
    Z, rho = TRACED[case]
    if accepts(name, Z):
        check_trace(name, kind, Z, rho)
    else:
        check_raises(lambda: run(name, form(kind, Z)), ValueError, ["row"])


def check_trace(name, kind, Z, rho):
    if CALLS[name].rows:
        return check_l1_trace(name, Z)
    G = form(kind, Z)
    seen = []
    options = {} if CALLS[name].cost is None else {"trace_at": AT}
    result = run(name, G, max_iter=300, callback=seen.append, keep_iterates=True, **options)
    # A loop that halts where it stood calls back again, with sharper bounds.
    last_of = {partial.n_iter: partial for partial in seen}
    assert len(seen) <= len(last_of) + 1
    for row, partial, alpha in zip(result.trace, last_of.values(), result.iterates, strict=True):
        assert np.array_equal(partial.alpha, alpha)
        lower = partial.lower
        upper = partial.upper
        assert (row["lower"], row["upper"]) == (lower, upper)
        p = partial.p
        assert CALLS[name].signed or (alpha >= 0.0).all()
        assert (p >= 0.0).all()
        assert abs(p.sum() - 1.0) <= (8 if partial.n_iter <= 40 else max(8, len(Z))) * EPS
        fresh = partial.status != "running" or fm.certificate(G, alpha, p) == (lower, upper)
        slack = 0.0
        if CALLS[name].held and not fresh:
            slack = 8.1 * EPS * (partial.n_iter + 1)
        check_interval(kind, Z, alpha, p, lower, upper, rho, slack)
        if rho is not None:
            slack = 4 * EPS * abs(rho) + drift(kind, Z, rho)
            assert lower <= max(rho, 0.0) + slack and rho - slack <= upper
    lower, upper = fm.certificate(G, result.alpha, result.p)
    slack = (
        4 * EPS * upper
    )  # products by rows of the support, as max_margin makes them, round otherwise
    assert lower - slack <= result.lower and result.upper <= upper + slack


def check_l1_trace(name, Z):
    """The same for rho_1 = max_w min_i (Zw)_i = min_p max_j (Z'p)_j, which any two runs bracket."""
    seen = []
    result = run(name, Z, max_iter=300, trace_at=AT, callback=seen.append, keep_iterates=True)
    for partial, alpha in zip(seen, result.iterates, strict=True):
        assert np.array_equal(partial.alpha, alpha)
        assert (alpha >= 0.0).all()
        assert (partial.p >= 0.0).all()
        assert abs(alpha.sum() - 1.0) <= 8 * EPS and abs(partial.p.sum() - 1.0) <= 8 * EPS
        exact = naive.l1_interval(Z, alpha, partial.p)
        assert partial.lower <= exact[0] and exact[1] <= partial.upper
        assert (partial.lower, partial.upper) == pytest.approx(
            exact, rel=0, abs=4 * (4 + sum(Z.shape)) * EPS
        )
    other = run(name, Z, max_iter=300, eta=0.5)
    assert max(result.trace["lower"].max(), other.trace["lower"].max()) <= min(
        result.trace["upper"].min(), other.trace["upper"].min()
    )


@every_representation
def test_the_last_interval_of_a_run_with_a_tolerance_is_a_precise_one(kind):
    G = form(kind, PLANTED["small margin"][0])
    for options, precise in (({}, False), ({"tol": 1e-9}, True)):
        result = fm.momentum(G, max_iter=20, **options)
        assert (result.lower, result.upper) == fm.certificate(
            G, result.alpha, result.p, precise=precise
        )
    assert fm.certificate(G, result.alpha, result.p)[1] > result.upper


def shares(alphas):
    """Weights up to their unit, which is the algorithm's own: of sum 1."""
    total = alphas.sum(axis=1, keepdims=True)
    return np.divide(alphas, total, out=np.zeros_like(alphas), where=total > 0.0)


@in_turn(EVERYWHERE, ["separable", "uneven", "lopsided, shifted"])
def test_units_do_not_matter(name, kind, case):
    """Rows and c times the rows: the same p and, up to its unit, alpha; lower / c and upper / c.  To the bit where c is
    a power of two; where margins tie, and how many rounds `max_margin` takes, rounding decides for any other c."""
    Z = UNTIED[case] if case in UNTIED else PLANTED[case][0]
    call = CALLS[name]
    plain = run(name, form(kind, Z), max_iter=120, keep_iterates=True)
    for c in (
        2.0**-40,
        2.0,
        4.0,
        2.0**60,
        2.0**100,
        2.0**-150,
        *((3.0,) if case in UNTIED and call.cost else ()),
    ):
        own = {key: c**power * call.own[key] for key, power in call.units.items()}
        scaled = run(name, form(kind, c * Z), max_iter=120, keep_iterates=True, **own)
        slack = 0.0 if c != 3.0 and call.cost else 1e-9
        np.testing.assert_allclose(scaled.p, plain.p, rtol=0, atol=slack)
        np.testing.assert_allclose(
            shares(scaled.iterates), shares(plain.iterates), rtol=0, atol=slack
        )
        if (
            name == "gradient_descent, step 1e6"
        ):  # squares of its weights overflow in some units: fresh products then
            slack = 1e-6
        for field in ("lower", "upper"):
            unit = 1.0 if call.rows else c
            np.testing.assert_allclose(
                scaled.trace[field] / unit, plain.trace[field], rtol=slack, atol=0
            )
        assert scaled.status == plain.status and scaled.n_iter == plain.n_iter


# ======================================================================================================
# WHAT WAS FALSE ONCE
# ======================================================================================================


def test_an_interval_holds_where_a_ridge_is_far_above_a_kernel_on_demand():
    """||p||^2 came from a plain sum of n terms, ridge and all, whose rounding nothing covered."""
    n = 3000
    ridge = 8.7e15
    rng = np.random.default_rng(0)
    G = fm.lazy_gram(rng.normal(size=(n, 1)), rng.choice([-1, 1], n), ridge=ridge)
    result = fm.max_margin(G, tol=1e-9)
    weights = exact.integers(result.p)[0]
    norm = Fraction(exact.dot(weights, weights), sum(weights) ** 2)
    assert result.status == "certified"
    assert (
        Fraction(result.lower) ** 2 <= (Fraction(ridge) + 1) / n
    )  # rho^2, as no entry of K exceeds 1
    assert Fraction(result.upper) ** 2 >= norm * Fraction(ridge)


def test_a_row_of_zeros_is_the_witness_from_any_weights_to_begin_with():
    for G in (
        fm.features(np.array([[1.0, 0.0], [0.0, 0.0], [2.0, 1.0]]), 1, normalize=None),
        np.diag([1.0, 0.0, 2.0]),
    ):
        for start in ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]):
            result = fm.max_margin(G, start=start)
            assert result.status == "infeasible" and result.p.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("offset", [0, 1000, 10**6, 10**8])
@pytest.mark.parametrize("make", [fm.features, functools.partial(fm.gram, kernel="linear")])
def test_lower_is_that_of_the_plane_of_the_weights_from_any_origin(make, offset):
    """sum_i alpha_i y_i x_i of the points as given, in exact arithmetic, not of those from the origin of G."""
    rng = np.random.default_rng(offset)
    for n in (4, 5, 7):
        X = rng.integers(-9, 10, (n, 2)) + np.rint(offset * rng.normal(size=2))
        y = np.where(np.arange(n) % 2, 1, -1)
        X[:, 0] += 20.0 * y
        G = make(X, y, normalize=None, intercept="free")
        for result in (fm.max_margin(G), fm.momentum(G, max_iter=300)):
            weights = list(map(Fraction, (y * result.alpha).tolist()))
            assert sum(weights) == 0
            rows = [list(map(Fraction, row)) for row in X.tolist()]
            w = [exact.dot(weights, column) for column in zip(*rows, strict=True)]
            scores = np.array([exact.dot(w, row) for row in rows])
            margin = (scores[y > 0].min() - scores[y < 0].max()) / 2
            assert 0.0 < result.lower
            assert Fraction(result.lower) ** 2 <= exact.signed_square(margin) / exact.dot(w, w)


def test_a_few_long_points_cost_no_digits_of_the_others():
    """Each error is relative to the length of its own point: at weights that leave the long ones little to say."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.where(X[:, 0] > 0.0, 1, -1)
    long = X.copy()
    long[:2] *= 1e6 / np.linalg.norm(X[:2], axis=1)[:, None]
    for points in (X, long):
        for make in (fm.features, functools.partial(fm.gram, kernel="linear")):
            for intercept in (0.0, 1.0):
                G = make(points, y, normalize=None, intercept=intercept)
                result = fm.max_margin(G, tol=1e-7)
                assert result.status == "certified", (make, intercept)
                lower, upper = fm.certificate(G, result.alpha, result.p)
                assert upper - lower <= 1e-6 * upper


@pytest.mark.parametrize(
    "rows, ridge, alpha",
    [
        ([[0.0], [6e76], [5e76]], 4e137, [1.0, 2.05e-313, 1.44e-313]),
        ([[0.0], [3e93], [1e93]], 1.7e187, [-8e-58, 1.0e286, 2.5e286]),
        ([[0.0], [1e70], [1e70]], 2.4e124, [-2.4e-146, 1e181, 1e180]),
    ],
)
def test_weights_that_underflow_beside_others_are_counted(rows, ridge, alpha):
    """A power of two takes digits of the smallest weights; a point without length has nothing else."""
    G = fm.features(rows, 1, normalize=None).with_ridge(ridge)
    n = len(rows)
    wanted = exact.gram_of(
        [
            [
                Fraction(a[0]) * Fraction(b[0]) + (i == j) * Fraction(ridge)
                for j, b in enumerate(rows)
            ]
            for i, a in enumerate(rows)
        ]
    )
    p = np.full(n, 1.0 / n)
    for precise in (False, True):
        lower, _ = fm.certificate(G, alpha, p, precise=precise)
        assert exact.signed_square(Fraction(lower)) <= exact.exact_interval(wanted, alpha, p)[0]


class Precise(exact.Single):
    """Rows in single precision with products in double precision for certificates."""

    def _precise(self, v):
        w = v @ self.Z
        return w @ w, self.Z @ w, fm.Rounding.of_rows(*self.Z.shape)


def test_precise_products_narrow_the_intervals_of_single_precision():
    """Of random Fourier features."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12, 2))
    angles = X @ rng.normal(size=(2, 40)) + rng.uniform(0.0, 2.0 * np.pi, 40)
    Z = (rng.choice([-1, 1], (12, 1)) * np.cos(angles)).astype(np.float32).astype(np.float64)
    widths = {}
    for make in (exact.Single, Precise):
        result = fm.max_margin(make(Z), tol=1e-9)
        assert not exact.faults(exact.of_rows(Z), result, tol=1e-9, eps=1.0)
        widths[make] = result.upper - result.lower
    assert 100 * widths[Precise] < widths[exact.Single]


def test_the_stated_rounding_covers_rows_that_are_themselves_rounded():
    """`Rounding.of_rows(rows=...)` covers a G of other rows than the stored ones."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        Z = np.round(rng.normal(size=(6, 3)) * 2.0**30)
        stored = fm.features(Z.astype(np.float32).astype(np.float64), 1, normalize=None)
        v = rng.normal(size=6)
        v /= 1.01 * np.abs(v).sum()
        m = stored @ v
        rows = [list(map(Fraction, row)) for row in Z.tolist()]
        w = [exact.dot(map(Fraction, v.tolist()), column) for column in zip(*rows, strict=True)]
        true = np.array([float(exact.dot(row, w)) for row in rows])
        s = (Z**2).sum(axis=1).max()
        assert np.abs(m - true).max() <= fm.Rounding.of_rows(6, 3, rows=2.0**-24).margins * s
        assert np.abs(m - true).max() > fm.Rounding.of_rows(6, 3).margins * s


@pytest.mark.parametrize("precise", [False, True])
def test_certificates_of_weights_over_all_decades_hold_in_exact_arithmetic(precise):
    """Small weights count for nothing beside large ones, but must not make a bound false, or raise."""
    Z = np.array([[3.0, 1.0], [2.0, -5.0], [7.0, 7.0], [1.0, 4.0]])
    G = exact.of_rows(Z)
    square = exact.signed_square_of_margin(G)
    rng = np.random.default_rng(0)
    for _ in range(40):
        alpha = rng.choice([-1.0, 1.0], 4) * 10.0 ** rng.uniform(-300.0, 300.0, 4)
        p = 10.0 ** rng.uniform(-310.0, 0.0, 4)
        p /= p.sum()
        ends = fm.certificate(fm.features(Z, 1, normalize=None), alpha, p, precise=precise)
        assert not exact.interval_faults(G, square, *ends, alpha, p)


def test_the_margin_of_a_separator_with_its_own_bias_holds_and_the_best_bias_is_no_worse():
    """Of (d + 1,) the last is the bias; of (d,) the best is taken, which is at least as good."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        X = rng.integers(-9, 10, (7, 2)) + 1000 * rng.integers(0, 2, 2)
        y = np.append([1, -1], rng.choice([-1, 1], 5))
        G = fm.features(X, y, normalize=None, intercept="free")
        w = rng.integers(1, 9, 2)
        b = int(rng.integers(-5000, 5000))
        least = min(int(sign) * (int(x @ w) + b) for x, sign in zip(X, y, strict=True))
        square = Fraction(exact.signed_square(least), int(w @ w))
        lower, upper = fm.separator_margin(G, [*w, b])
        assert exact.holds(square, lower, upper)
        assert upper - lower < 1e-9 and fm.separator_margin(G, w)[1] >= lower


def test_precise_products_of_features_are_within_their_bound():
    """In exact arithmetic, for rows c_i x_i that are no numbers themselves, and weights at which they cancel."""
    X = np.array([[3000001, 1000000], [6000001, 2000001], [2999999, 1000001], [1000003, -7]])
    G = fm.features(X, [1, -1, -1, 1])
    v = np.array([0.3, 0.2, 0.1, 1e-9])
    norm2, m, rounding = G._measured(v, precise=True)
    rows = [
        [Fraction(c) * x for x in row] for c, row in zip(G._c.tolist(), X.tolist(), strict=True)
    ]
    weights = list(map(Fraction, v.tolist()))
    w = [exact.dot(weights, column) for column in zip(*rows, strict=True)]
    s = Fraction(scale_of(G))
    for got, row in zip(m.tolist(), rows, strict=True):
        want = exact.dot(row, w)
        error = Fraction(4 * EPS) * abs(want) + Fraction(rounding.margins) * s
        assert abs(Fraction(got) - want) <= error
    want = exact.dot(w, w)
    assert abs(Fraction(norm2) - want) <= Fraction(4 * EPS) * want
    assert rounding.margins < 1e-28 and want < Fraction(1, 10**3)


@pytest.mark.parametrize("make", [fm.features, fm.gram])
def test_a_p_that_is_nearly_balanced_bounds_the_margin_with_a_cost(make):
    """With w = 0 and the bias 1 the 5 points of the smaller class have slacks 2, so that rho >= 1 / sqrt(2 10 C)."""
    y = np.repeat([1, -1], [10, 5])
    X = np.random.default_rng(0).normal(size=(15, 2))
    C = 2.0**-40  # so small that the length of Z'p hardly counts
    for surplus in (0.0, 1e-6):
        p = np.where(y > 0, 0.5 * (1.0 + surplus), 1.0)
        G = make(X, y, intercept="free", cost=C)
        _, upper = fm.certificate(G, np.zeros(15), p / p.sum())
        assert Fraction(upper) ** 2 * 20 * Fraction(C) >= 1


def test_precise_products_of_a_matrix_keep_the_digits_that_cancel():
    """In exact arithmetic, for normalisers and weights whose products are no doubles."""
    X = np.array([[3001, 1000], [6001, 2001], [2999, 1001], [103, -7]])
    K = X @ X.T
    G = fm.gram(K.astype(float), [1, -1, -1, 1], kernel="precomputed", normalize="unit")
    v = np.array([0.3, 0.2, 0.1, 1e-9])
    v[0] = -(np.asarray(G)[1, 1:3] @ v[1:3]) / np.asarray(G)[1, 0]  # so that entry 1 of G v cancels
    norm2, m, _ = G._measured(v, precise=True)
    weights = [Fraction(c) * Fraction(a) for c, a in zip(G._c.tolist(), v.tolist(), strict=True)]
    exact_m = [
        Fraction(c) * exact.dot(weights, map(int, row))
        for c, row in zip(G._c.tolist(), K, strict=True)
    ]
    assert abs(exact_m[1]) < 1e-9
    for got, want in zip(m.tolist(), exact_m, strict=True):
        assert abs(Fraction(got) - want) <= Fraction(4 * EPS) * abs(want)
    square = exact.dot(map(Fraction, v.tolist()), exact_m)
    assert abs(Fraction(norm2) - square) <= Fraction(4 * EPS) * abs(square)


def test_the_margin_of_a_bias_at_an_origin_where_all_digits_cancel_holds_in_exact_arithmetic():
    """<w, origin> cancels from 1e24 down to 1; what is left of twice the working precision is in the interval."""
    o = [1.2584102866145718e24, 2.228499918042849e24, 1.3320970370818472e24, 1098163273.164956]
    X = [[*o, v] for v in (1.0, 2.0, -1.0, -3.0)]
    y = [1, 1, -1, -1]
    head = [1.024658250742765, 1.2070523882483435, -2.9872873525801156, 0.011686757923943449, 1.0]
    G = fm.features(X, y, normalize=None, intercept="free")
    for bias in (4.0054925582510265e-10, 1.0, -1e8):
        w = list(map(Fraction, head))
        least = min(
            label * (exact.dot(w, map(Fraction, row)) + Fraction(bias))
            for row, label in zip(X, y, strict=True)
        )
        square = exact.signed_square(least) / exact.dot(w, w)
        assert exact.holds(square, *fm.separator_margin(G, [*head, bias]))


@pytest.mark.parametrize("of_points", [-90, 0, 90])
@pytest.mark.parametrize("of_separator", [-99, 0, 99])
@pytest.mark.parametrize("of_ridge", [-15, 0, 15])
def test_a_soft_margin_holds_in_exact_arithmetic_at_every_size(of_points, of_separator, of_ridge):
    """1 / sqrt(||w||^2 + sum_i xi_i^2 / r_i) for powers of ten near the ends of what the door takes."""
    X = np.array([[1.0, 2.0], [3.0, -1.0], [-2.0, 1.0]]) * 10.0**of_points
    w = np.array([1.0, -1.0]) * 10.0**of_separator
    ridge = np.array([1.0, 2.0, 3.0]) * 10.0 ** (2 * of_points + of_ridge)
    lower, upper = fm.separator_margin(fm.features(X, 1, normalize=None).with_ridge(ridge), w)
    w = [Fraction(x) for x in w]
    square = exact.dot(w, w)
    for row, r in zip(X, ridge, strict=True):
        slack = max(1 - exact.dot(w, map(Fraction, row)), 0)
        square += slack * slack / Fraction(r)
    assert lower > 0.0 and exact.holds(1 / square, lower, upper)
    assert upper - lower <= 1e-12 * upper


@every_representation
def test_points_at_zero_have_the_margin_of_their_ridge(kind):
    """Alone, when they are restricted to: then no point has a length."""
    Z = np.vstack((np.eye(3), np.zeros((2, 3))))
    whole = form(kind, Z)
    whole = whole if isinstance(whole, fm.Gram) else fm.Gram(whole)
    G = whole.with_ridge(np.full(5, 0.5)).restrict([3, 4])
    lower, upper = fm.certificate(G, np.ones(2), np.full(2, 0.5))
    assert lower <= 0.5 <= upper <= lower + 1e-12
    for name in ("momentum", "snkp", "diagonal_descent", "max_margin"):
        result = run(name, G, max_iter=20)
        assert result.lower <= 0.5 <= result.upper
    assert result.status == "certified"


# ======================================================================================================
# WITNESSES
# ======================================================================================================


def table_of_integers(seed):
    """A small table whose labels a plane gives, or all but those of points on it, or all but one, or chance."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 13)), int(rng.integers(1, 5))
    size = int(rng.choice([1, 2, 9]))
    X = rng.integers(-size, size + 1, (n, d)).astype(np.float64)
    X[0, 0] = size
    scores = X @ rng.integers(-3, 4, d) + rng.integers(-2, 3)
    y = np.where(scores > 0.0, 1, -1)
    chance = rng.choice([-1, 1], n)
    kind = seed % 4
    if kind == 1:
        y[scores == 0.0] = chance[scores == 0.0]
    if kind == 2:
        y[1] *= -1
    if kind == 3:
        y = chance
    y[:2] = 1, -1
    return X, y


def has_margin(X, y, is_free):
    """Whether points of rationals can be separated, in exact arithmetic."""
    rows = [[int(s) * Fraction(x) for x in row] for s, row in zip(y, X.tolist(), strict=True)]
    if is_free:
        rows = [[*row, int(s)] for s, row in zip(y, rows, strict=True)]
    if not any(map(any, rows)):
        return False
    return exact.margin_squared(exact.of_rows(rows)) > 0


def of_table(X, y, is_free):
    return fm.features(X, y, normalize=None, intercept="free" if is_free else 0.0)


@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_witnesses_are_strict_where_exact_arithmetic_finds_no_separator_and_only_there(
    seed, is_free
):
    X, y = table_of_integers(seed)
    G = of_table(X, y, is_free)
    found = fm.witnesses(G, fm.max_margin(G))
    if has_margin(X, y, is_free):
        assert found is None
        return
    index = found.indices
    assert found.strict and not has_margin(X[index], y[index], is_free)
    assert index.size <= X.shape[1] + 1 + is_free and (np.diff(index) > 0).all()
    assert (found.weights > 0.0).all() and found.weights.sum() == pytest.approx(1.0, abs=1e-15)
    mixture = found.weights @ (y[index, None] * X[index])
    assert np.abs(mixture).max() <= 1e-13 * np.abs(X).max()
    assert found.upper <= 1e-12 * np.abs(X).max()


@pytest.mark.parametrize("seed", [2, 3, 7, 11])
def test_any_result_leads_to_witnesses(seed):
    """One that is far from the optimum, one whose own points have a margin, and weights of all points."""
    X, y = table_of_integers(seed)
    G = of_table(X, y, False)
    assert not has_margin(X, y, False)
    for given in (
        fm.von_neumann(G, eps=0.1),
        fm.perceptron(G, max_iter=1),
        fm.momentum(G, max_iter=3),
        np.full(len(y), 1.0 / len(y)),
        np.eye(len(y))[0],
    ):
        found = fm.witnesses(G, given)
        assert found.strict and not has_margin(X[found.indices], y[found.indices], False)
        assert found.indices.size <= X.shape[1] + 1  # by Caratheodory's theorem


HIDDEN = 2.0 ** np.arange(20, 50, 3)


@pytest.mark.parametrize("size", HIDDEN)
def test_a_margin_that_rounding_hides_is_no_strict_proof(size):
    """z = (a + 1, a) has the separator (1, -1), whatever a is, with a margin of 1e-12 and less of the lengths."""
    a = size * np.array([3.0, -1.0, -5.0, 2.0])
    for rows in (np.column_stack((a + 1.0, a)), np.column_stack((a + 1.0, a, 2.0 * a - 3.0))):
        assert has_margin(rows, np.ones(4, int), False)
        found = fm.witnesses(fm.features(rows, 1, normalize=None), np.full(4, 0.25))
        assert found is None or not found.strict


@pytest.mark.parametrize("seed", range(12))
def test_elimination_finds_the_mixtures_of_fractions(seed):
    """One free point, or several, which keep their weights where these leave the others weights above 0."""
    rng = np.random.default_rng(seed)
    k, d = 7, 1 + seed % 6
    rows = rng.integers(-5, 6, (k, d)).astype(np.float64)
    weights = rng.integers(1, 9, k).astype(np.float64)
    rows = np.vstack((rows, -(weights @ rows)))
    weights = np.append(weights, 1.0)
    p = fm._proved(fm.features(rows, 1, normalize=None), np.arange(k + 1), weights)
    assert p @ rows == pytest.approx(np.zeros(d), abs=1e-13)
    assert p == pytest.approx(
        weights / weights.sum(), rel=1e-12
    )  # they are a mixture of 0 as they are
    skew = fm._proved(
        fm.features(rows, 1, normalize=None),
        np.arange(k + 1),
        weights * rng.uniform(0.99, 1.01, k + 1),
    )
    assert skew is None or (skew.min() >= 0.0 and abs(skew @ rows).max() <= 1e-13)
    assert d > 4 or skew is not None


@pytest.mark.parametrize("exponent", range(31, 40))
def test_a_bias_belongs_to_the_rows_of_the_elimination(exponent):
    """+ at 0 and 2^k, - at 2^k + 1, twice: through the origin they are dependent, and a bias separates them."""
    x = np.array([0.0, 2.0**exponent, 2.0**exponent + 1.0])
    G = free(fm.features(np.column_stack((x, x)) * [[1], [1], [-1]], 1, normalize=None), [1, 1, -1])
    found = fm.witnesses(G, [0.25, 0.25, 0.5])
    assert found is None or not found.strict


def test_the_elimination_is_that_of_the_true_rows():
    """Its columns are exact, each in a unit of its own, with labels under a free intercept."""
    X = np.array([[1.0, 2.0], [0.1, -3.0], [2.0, 2.0]])
    y = np.array([1, -1, 1])
    signs = [1, -1, 1]
    exactly = [[Fraction(x) for x in row] for row in X.tolist()]
    every = np.arange(3)

    def check(G, columns):
        found, _ = fm._exact_columns(G, every)
        assert len(found) == len(columns)
        for ours, column in zip(found, columns, strict=True):
            unit = Fraction(ours[0]) / column[0]
            assert unit != 0 and [unit * x for x in column] == ours

    rows = [
        [s * x for s, x in zip(signs, column, strict=True)] for column in zip(*exactly, strict=True)
    ]
    for normalize in (None, "max"):
        options = {"normalize": normalize, "intercept": "free"}
        for G in (fm.features(X, y, **options), fm.gram(X, y, kernel="linear", **options)):
            check(G, [*rows, signs])
    check(fm.features(X, y, normalize="unit"), rows)
    G = fm.features(X, y, normalize="unit", intercept="free")
    held = [
        [x * Fraction(c) for x, c in zip(column, np.abs(G._c).tolist(), strict=True)]
        for column in rows
    ]
    check(G, [*held, signs])
    mixed = fm.features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], 1, normalize=None)
    assert fm._proved(mixed, every, np.full(3, 1.0 / 3.0)) is None


@pytest.mark.parametrize("d", [5, 40])
def test_witnesses_in_general_position_and_in_a_subspace(d):
    """d + 1 points around 0 are strict in any number; with one more column, that is 1 in all of them, none are."""
    rng = np.random.default_rng(d)
    rows = rng.integers(-9, 10, (d, d)) + 20.0 * np.eye(d)
    rows = np.vstack((rows, -rows.sum(axis=0)))
    every = np.full(d + 1, 1.0 / (d + 1))
    found = fm.witnesses(fm.features(rows, 1, normalize=None), every)
    assert found.strict and found.indices.size == d + 1
    flat = fm.witnesses(fm.features(np.hstack((rows, rows)), 1, normalize=None), every)
    assert flat.strict  # by elimination: rows in a subspace have no other proof
    hidden = fm.features(np.hstack((2.0**40 * rows + 1.0, 2.0**40 * rows)), 1, normalize=None)
    tilted = fm.witnesses(hidden, every)
    assert tilted is None or not tilted.strict


def test_witnesses_in_every_representation():
    """The numbers are those of the points, whichever form holds them."""
    X, y = table_of_integers(3)
    options = {"kernel": "linear", "normalize": None}
    for G in (
        fm.features(X.astype(np.float32), y, normalize="max"),
        fm.gram(X, y, **options),
        fm.lazy_gram(X, y, **options),
        fm.features(y[:, None] * X, 1, normalize=None),
        BY_ROWS["sparse"](y[:, None] * X),
    ):
        found = fm.witnesses(G, np.full(len(y), 1.0 / len(y)))
        assert found.strict and not has_margin(X[found.indices], y[found.indices], False)


def test_witnesses_ask_for_rows_with_a_remedy():
    X, y = table_of_integers(3)
    Z = y[:, None] * X
    p = np.full(len(y), 1.0 / len(y))
    for G in (
        Z @ Z.T + 1e-18 * np.eye(len(Z)),  # no point is at 0, which would be strict
        fm.gram(X, y, kernel="poly"),
        fm.lazy_gram(X, y, kernel="rbf"),
        operator(Z),
    ):
        check_raises(lambda G=G: fm.witnesses(G, p), ValueError, ["G", "features(X, y)"])


@pytest.mark.parametrize("kind", ["unit", "max", None])
def test_weights_of_witnesses_prove_it_of_normalised_rows(kind):
    """Of these points 3 balance each other, with weights of their own for every normalisation."""
    rows = [[1.0, 0.0], [0.0, 3.0], [-1.0, -1.0], [5.0, -7.0]]
    G = fm.features(rows, [1, 1, 1, -1], normalize=kind)
    found = fm.witnesses(G, np.array([0.3, 0.2, 0.5, 0.0]))
    assert found.strict and found.indices.tolist() == [0, 1, 2]
    assert np.abs(found.weights @ G.coordinates(found.indices)).max() <= 1e-15
    assert found.upper <= 1e-12


def test_witnesses_of_pairs_of_classes():
    X = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [1.0, 1.0], [9.0, 9.0]])
    classes = np.array([0, 0, 1, 1, 2, 2])
    pairs = fm.pair_gram(fm.features(X, normalize=None, intercept=1.0), classes, 3)
    found = fm.witnesses(pairs, fm.max_margin(pairs))
    assert found.strict
    rows = [pairs.coordinates()[i] * np.sqrt(2.0) for i in found.indices]
    assert not has_margin(np.array(rows).round(12), np.ones(len(rows), int), False)


def test_points_that_have_a_ridge_are_no_witnesses():
    X = np.array([[1.0], [2.0], [3.0], [-1.0]])
    for ridge, left in (([0.0, 1.0, 0.0, 0.0], [0, 3]), ([1.0, 0.0, 1.0, 0.0], [1, 3])):
        G = fm.features(X, 1, normalize=None).with_ridge(ridge)
        found = fm.witnesses(G, np.full(4, 0.25))
        assert found.strict and set(found.indices) <= {i for i in range(4) if ridge[i] == 0.0}
        assert left[1] in found.indices
    assert fm.witnesses(fm.features(X, [1, 1, -1, -1], ridge=0.5), np.full(4, 0.25)) is None
    # Two opposite points, of which one has a ridge
    G = fm.features([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.1], [1.0, 0.1]], 1, normalize=None)
    p = [0.5, 0.5, 0.0, 0.0]
    assert set(fm.witnesses(G, p).indices) == {0, 1}
    assert fm.witnesses(G.with_ridge([0.0, 0.5, 0.0, 0.0]), p) is None
    # A row of zeros that has one, and points too small for the solver beside those that have one
    G = fm.features([[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0], [3.0, 1.0]], 1, normalize=None)
    assert fm.witnesses(G.with_ridge([0.0, 0.0, 1.0, 0.0]), p).indices.tolist() == [0, 1]
    G = fm.features([[1e-145], [1.0], [-1.0]], 1, normalize=None).with_ridge([0.0, 1.0, 1.0])
    for p in ([1.0, 0.0, 0.0], [0.5, 0.25, 0.25]):
        assert fm.witnesses(G, p) is None


@pytest.mark.parametrize("intercept", ["free", 0.0, 1.0])
@pytest.mark.parametrize("exponent", [-325, -300, 300, 325])
def test_witnesses_do_not_depend_on_the_unit_of_points(exponent, intercept):
    """Two points and their reflections; the labels of a free intercept are columns of their own."""
    X = np.array([[-6, -2, -5], [-5, -7, 7], [5, 7, -7], [9, -1, 4], [-9, 1, -4]])
    y = np.array([-1, 1, 1, -1, -1])
    G = fm.features(np.ldexp(X, exponent), y, normalize=None, intercept=intercept)
    found = fm.witnesses(G, fm.max_margin(G))
    assert found.strict and found.indices.tolist() == ([3, 4] if intercept == 0.0 else [1, 2, 3, 4])


@pytest.mark.parametrize("make", [fm.gram, fm.lazy_gram, fm.features])
@pytest.mark.parametrize("least, intercept", [(0.0, "free"), (1e-144, "free"), (1e-144, 0.0)])
def test_points_at_zero_or_near_it_of_either_class_are_witnesses(make, least, intercept):
    """Their matrix, alone, is 0 or below what the solver takes."""
    options = {} if make is fm.features else {"kernel": "linear"}
    X = [[3.0], [2.0], [least], [least]]
    G = make(X, [1, -1, 1, -1], normalize=None, intercept=intercept, **options)
    found = fm.witnesses(G, [0.0, 0.0, 0.5, 0.5])
    assert found.strict and found.indices.sum() % 2 == 1  # one of each class
    assert least or (found.indices.tolist() == [2, 3] and found.upper < 1e-25)


@pytest.mark.parametrize(
    "make",
    [
        BY_ROWS["features"],
        sparse,
        lambda Z: fm.Gram(Z @ Z.T),
        lambda Z: fm.gram(Z, kernel="linear", normalize=None).signed(np.ones(len(Z))),
        lambda Z: fm.pair_gram(fm.features(Z, normalize=None), np.zeros(len(Z)), 2),
        lambda Z: fm.pair_gram(Z @ Z.T, np.zeros(len(Z)), 2),
    ],
    ids=["rows", "sparse", "matrix", "kernel matrix", "pairs", "pairs of a matrix"],
)
def test_a_row_of_zeros_is_a_strict_witness_by_itself(make):
    """Also beside points that prove the same together, and from weights that leave it out."""
    G = make(np.array([[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0], [3.0, 1.0]]))
    for p in ([0.0, 0.0, 1.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25] * 4, fm.nkp(G, max_iter=9)):
        found = fm.witnesses(G, p)
        assert found.strict and found.indices.tolist() == [2] and found.weights.tolist() == [1.0]
        assert found.upper < 1e-15


def test_a_point_near_zero_is_no_witness_by_itself():
    for least in (1e-170, 5e-324):
        found = fm.witnesses(
            fm.features([[1.0], [-1.0], [least]], 1, normalize=None), np.ones(3) / 3
        )
        assert found.strict and found.indices.tolist() in ([0, 1], [1, 2])


def test_witnesses_hundreds_of_decades_apart_are_proved():
    """z_0 + 2^600 (3/5) z_1 is (0, 2^300), opposite to z_2; and two opposite points in either order."""
    opposite = np.array([[3 * 2.0**61, 2.0**61], [-3.0, -1.0]])
    for rows in (opposite, opposite[::-1]):
        assert fm.witnesses(fm.features(rows, 1, normalize=None), [0.5, 0.5]).strict
    Z = np.array([[3 * 2.0**300, 2.0**300], [-5 * 2.0**-300, 0.0], [0.0, -(2.0**-300)]])
    G = fm.features(Z, 1, normalize=None)
    found = fm.witnesses(G, fm.max_margin(G))
    assert found.strict and found.indices.tolist() == [0, 1, 2]


def test_the_points_of_a_result_have_a_proof_where_fewer_have_none():
    """By floating-point numbers two points would do; -2 lies between the others."""
    G = fm.features([[-6e8], [5.0], [-2.0]], [1, 1, -1], normalize=None, intercept="free")
    found = fm.witnesses(G, fm.max_margin(G))
    assert found.strict and found.indices.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", [0, 30, 43])
def test_points_whose_factor_cancels_are_tried_as_a_witness(seed):
    """Of 100 tables of normal numbers one or two have a face whose last pivot is rounding alone."""
    rng = np.random.default_rng(seed)
    for _ in range(100):
        n = int(rng.integers(4, 10))
        X = rng.normal(size=(n, int(rng.integers(1, 5))))
        y = rng.choice([-1, 1], n)
        G = fm.features(y[:, None] * X, 1, normalize=None)
        result = fm.max_margin(G)
        assert result.status == ("certified" if has_margin(X, y, False) else "infeasible")
        if result.status == "infeasible":
            assert fm.witnesses(G, result).strict


def test_a_result_of_other_points_does_not_hide_witnesses():
    """It separates its own points; those of G are judged by themselves."""
    X = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [1.0, 1.0]]
    free = {"normalize": None, "intercept": "free"}
    other = fm.max_margin(fm.features(X, [1, -1, 1, 1], **free))
    assert other.lower > 0.0
    assert fm.witnesses(fm.features(X, [1, 1, 1, -1], **free), other).strict
    assert fm.witnesses(fm.features(X, [1, 1, -1, 1], **free), other) is None


def test_witnesses_say_what_they_prove(monkeypatch):
    found = fm.witnesses(fm.features([[1.0], [2.0], [-1.0]], 1, normalize=None), [0.5, 0.0, 0.5])
    assert repr(found) == "Witnesses(no separator, by 2 witnesses: 0, 2)"
    found = fm.witnesses(fm.features([[0.0], [1.0]], 1, normalize=None), [0.5, 0.5])
    assert repr(found) == "Witnesses(no separator, by 1 witness: 0)"
    G = fm.features([[1.0], [2.0]], 1, normalize=None)
    assert fm.witnesses(G, fm.max_margin(G)) is None
    monkeypatch.setattr(fm, "_MOST_EXACT", 1)  # more are not proved
    found = fm.witnesses(fm.features([[1.0], [-1.0]], 1, normalize=None), [0.5, 0.5])
    assert repr(found).startswith("Witnesses(no margin above ") and found.upper < 1e-15


@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("share", [1.0, 30.0])
def test_lower_has_the_best_slacks_of_the_weights(is_free, share):
    """It was that of the slacks r_i alpha_i, however much better others were."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0.0, 1.0, -1.0)
    ridge = share * rng.uniform(0.5, 2.0, 60)
    intercept = "free" if is_free else 0.0
    G = fm.features(X, y, normalize=None, ridge=ridge, intercept=intercept)
    best = fm.max_margin(G, tol=1e-12)
    for noise in (1e-4, 1e-2):
        alpha = best.alpha * (1.0 + noise * rng.uniform(-1.0, 1.0, 60))
        lower, _ = fm.certificate(G, alpha, best.p)
        m = G @ alpha
        b = -(m[y > 0.0].min() - m[y < 0.0].min()) / 2.0 if is_free else 0.0
        strict = (m + b * y).min() / np.sqrt(alpha @ m)
        w = (alpha * y) @ X / best.lower**2 / best.alpha.sum()
        multiples = np.geomspace(0.5, 2.0, 3001)
        bias = b / best.lower**2 / best.alpha.sum()
        separators = [np.append(t * w, t * bias) if is_free else t * w for t in multiples]
        of_multiples = max(fm.separator_margin(G, w)[0] for w in separators)
        assert strict < of_multiples <= lower * (1.0 + 1e-12)
        assert lower == pytest.approx(of_multiples, rel=1e-6)
        assert 1.0 - lower / best.upper < 0.1 * (1.0 - strict / best.upper)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ridge", [0.0, 2e-16])
@pytest.mark.parametrize("intercept", [0.0, "free"])
def test_a_matrix_that_the_kernel_rounds_is_not_refused(seed, ridge, intercept):
    """Values of points that nearly agree are rounded upwards: v'Gv may be below what rounding of entries explains."""
    X = np.round(np.random.default_rng(seed).normal(size=(200, 1)) * 3.0, 2)
    y = np.resize([1, -1], 200)
    G = fm.gram(X, y, gamma=1.0, ridge=ridge, intercept=intercept)
    on_demand = fm.lazy_gram(X, y, gamma=1.0, ridge=ridge, intercept=intercept)
    found = fm.max_margin(G)
    other = fm.max_margin(on_demand)
    assert meet(found, other)


def indefinite(A, B):
    """Values of no kernel, although every 2x2 minor is positive; of three points the least eigenvalue is -0.8."""
    return np.where(A == B.T, 1.0, -0.9)


INDEFINITE = indefinite(np.arange(3.0)[:, None], np.arange(3.0)[:, None])


@pytest.mark.parametrize(
    "make",
    {
        "array": lambda K: fm.Gram(K),
        "precomputed": lambda K: fm.gram(K, [1, 1, -1], kernel="precomputed", normalize=None),
        "pairs": lambda K: fm.pair_gram(K, [0, 1, 2], 3),
    }.values(),
)
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_an_indefinite_matrix_is_refused_with_a_shift_that_mends_it(make, scale):
    K = scale * INDEFINITE
    with pytest.raises(ValueError, match="positive semi-definite") as caught:
        make(K)
    line = re.search(r"give (.*)$", str(caught.value))[1]
    mended = eval(line, {"np": np, "G": K, "X": K})
    make(mended)
    assert np.linalg.eigvalsh(mended)[0] < 0.02 * scale  # no more than it takes


def test_a_function_that_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match='positive semi-definite.*kernel="precomputed"'):
        fm.gram(np.arange(3.0)[:, None], [1, 1, -1], kernel=indefinite)


def test_a_matrix_of_subnormal_numbers_is_refused_for_its_size():
    """Rounding gives it an eigenvalue below 0, which no shift by a multiple of the identity need mend."""
    v = np.random.default_rng(0).normal(size=13)
    check_raises(lambda: fm.momentum(3e-316 * np.outer(v, v)), ValueError, ["max_i", "rescale"])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_matrix_of_rank_1_is_not_refused_for_the_rounding_of_its_entries(dtype):
    v = np.random.default_rng(0).normal(size=300)
    fm.Gram(np.outer(v, v).astype(dtype))


def test_a_large_matrix_is_refused_where_a_product_shows_that_it_is_indefinite(monkeypatch):
    monkeypatch.setattr(fm, "_MOST_FACTORED", 2)
    G = fm.Gram(INDEFINITE)
    p = np.full(3, 1 / 3)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        fm.certificate(G, p, p)
