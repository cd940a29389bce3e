"""The projection onto the simplex and the two prox maps: exact at every scale, inside compiled code as well."""

import math

import naive
import numpy as np
import pytest
from instances import EPS, rows_of
from numba import njit

import fastmargin as fm


def shapes(n, seed):
    """Vectors of order 1 with and without ties."""
    rng = np.random.default_rng(seed)
    yield rng.normal(size=n)
    yield rng.integers(-2, 3, n) / 4.0  # ties
    yield np.zeros(n)
    yield np.sort(rng.normal(size=n) / 100)
    yield -np.sort(rng.normal(size=n) / 100)
    yield np.where(np.arange(n) == n // 2, 1.0, 1.0 - 1e-9)
    yield -(rng.exponential(1.0, n) ** 4)


SIZES = [1, 2, 3, 7, 40]
SCALES = [1.0, 1e-3, 1e9, 1e190, 1e-300]


def check_simplex(p, slack=0.0):
    assert (p >= 0).all()
    assert abs(p.sum() - 1.0) <= (4 + p.size) * EPS + slack


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("n", SIZES)
def test_project_simplex_is_exact(n, scale):
    for v in shapes(n, n):
        for shift in (0.0, 1e9, -1e16):
            w = scale * v + shift
            p = fm.project_simplex(w)
            check_simplex(p)
            np.testing.assert_allclose(p, naive.exact_projection(w), rtol=0, atol=(3 + n) * EPS)


@pytest.mark.parametrize("n", [1000, 20000])
def test_project_simplex_of_long_vectors_is_that_of_sorting(n):
    for spread in (1e-6, 1e-2, 1.0, 1e3):
        v = spread * np.random.default_rng(n).normal(size=n)
        s = np.sort(v.astype(np.longdouble))[::-1]
        taus = (np.cumsum(s) - 1) / np.arange(1, n + 1)
        exact = np.maximum(v - taus[np.flatnonzero(s > taus)[-1]], 0)
        for order in (np.arange(n), np.argsort(v), np.argsort(-v)):
            p = fm.project_simplex(v[order])
            np.testing.assert_allclose(p, exact[order].astype(float), rtol=0, atol=30 * EPS)
            check_simplex(p)


@pytest.mark.parametrize("n", [8000, 40000])
def test_project_simplex_where_rounding_decides_the_support(n):
    """Many entries at or next to the threshold, where large sums or a step past the goal would lose digits."""
    near = np.random.default_rng(n).normal(size=n // 4)
    for spread in (0.0, 1e-15, 1e-14, 1e-13):
        for ones, tau in ((1, 1e-9 - 1), (3, -1 / 3), (n // 16, -16 / n), (n // 4, -4 / n)):
            v = np.r_[np.zeros(ones), spread * near + tau, np.full(n // 2, -5.0)]
            s = v.astype(np.longdouble)
            s.sort()
            taus = (np.cumsum(s[::-1]) - 1) / np.arange(1, v.size + 1)
            exact = np.maximum(v - taus[s[::-1] > taus][-1], 0).astype(float)
            for shift in (
                n // 2,
                n // 4,
            ):  # at the front are some of the least, or of those near the threshold
                p = fm.project_simplex(np.roll(v, shift))
                np.testing.assert_allclose(p, np.roll(exact, shift), rtol=0, atol=EPS)
                assert abs(math.fsum(p) - 1.0) <= n * EPS


@pytest.mark.parametrize("base", [1.01, 1.1, 2.0, 100.0])
def test_project_simplex_takes_few_rounds(base, n=400):
    """Where supports shrink slowly; the rounds are limited, and so a result would be wrong if they did not suffice."""
    powers = base ** -np.arange(n, dtype=float)
    for v in (-powers, powers - 1.0, -np.cumsum(powers), np.cumsum(powers) / powers.sum() - 1.0):
        np.testing.assert_allclose(
            fm.project_simplex(v), naive.exact_projection(v), rtol=0, atol=2 * EPS
        )


@pytest.mark.parametrize(
    "v, exact",
    [
        ([-1.7e308, 1.7e308, 1.7e308], [0, 0.5, 0.5]),  # the differences overflow
        ([1.7e308, -1.7e308, 1.7e308], [0.5, 0, 0.5]),
        ([1e300, 0, -1e300], [1, 0, 0]),
        ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]),
        ([1e16, 1e16, 0], [0.5, 0.5, 0]),
        ([5e-324, 0], [0.5, 0.5]),
    ],
)
def test_project_simplex_is_exact_at_the_extremes(v, exact):
    assert np.array_equal(fm.project_simplex(v), exact)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_projection_inside_loops_takes_minus_infinity(where):
    v = np.array([0.25, 0.25, 0.25, 0.25])
    v[where] = -np.inf
    np.testing.assert_allclose(call_projection(v), np.where(np.isinf(v), 0.0, 1 / 3), rtol=4 * EPS)


def distributions(n, seed):
    rng = np.random.default_rng(seed)
    yield np.full(n, 1.0 / n)
    yield (lambda q: q / q.sum())(rng.exponential(1.0, n))
    q = rng.exponential(1.0, n)
    q[rng.random(n) < 0.5] = 0.0
    q[seed % n] = 1.0
    yield q / q.sum()
    yield np.eye(n)[seed % n]


MUS = [1.0, 0.37, 1e-12, 1e-300, 1e12, 1e300]


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("n", SIZES)
def test_entropy_prox_is_the_softmax(n, mu):
    for scale in SCALES:
        for g in shapes(n, n):
            for q in distributions(n, n):
                p = fm.entropy_prox(scale * g, mu, q)
                check_simplex(p)
                # an exponent x is rounded to eps |x|, and exp(x) |x| <= 1/e
                np.testing.assert_allclose(
                    p, naive.exact_entropy_prox(scale * g, mu, q), rtol=0, atol=(8 + n) * EPS
                )
                assert not p[q == 0].any()
            assert np.array_equal(
                fm.entropy_prox(scale * g, mu), fm.entropy_prox(scale * g, mu, np.full(n, 1.0 / n))
            )


@pytest.mark.parametrize("mu", MUS)
@pytest.mark.parametrize("n", SIZES)
def test_l2_prox_is_the_projection(n, mu):
    for scale in SCALES:
        for g in shapes(n, n + 1):
            for q in (*distributions(n, n), rows_of(1, n)[0]):
                p = fm.l2_prox(scale * g, mu, q)
                check_simplex(p)
                # q - g/mu, within 3 of its maximum where it counts, is rounded to a few eps
                np.testing.assert_allclose(
                    p, naive.exact_l2_prox(scale * g, mu, q), rtol=0, atol=(16 + n) * EPS
                )


@njit
def call_proxes(g, mu, q):
    return (
        fm.project_simplex(g),
        fm.entropy_prox(g, mu),
        fm.entropy_prox(g, mu, q),
        fm.entropy_prox(g, mu, None),
        fm.l2_prox(g, mu, q),
    )


def test_prox_maps_inside_compiled_code_have_the_values_of_python():
    for g in shapes(25, 0):
        for q in distributions(25, 1):
            uniform = fm.entropy_prox(g, 0.3)
            expected = (
                fm.project_simplex(g),
                uniform,
                fm.entropy_prox(g, 0.3, q),
                uniform,
                fm.l2_prox(g, 0.3, q),
            )
            for got, want in zip(call_proxes(g, 0.3, q), expected, strict=True):
                assert np.array_equal(got, want)


@njit
def call_projection(v):
    return fm.project_simplex(v)


@pytest.mark.parametrize(
    "make", [np.float32, np.int64, lambda v: np.repeat(v, 2)[::2], lambda v: v[::-1]]
)
def test_projection_inside_compiled_code_takes_any_array(make):
    v = (
        np.random.default_rng(0).integers(-90, 9, 500).astype(float)
    )  # few are near the largest: the rest is left out
    assert np.array_equal(call_projection(make(v)), fm.project_simplex(make(v)))


@pytest.mark.parametrize(
    "call",
    [
        lambda g, q: fm.project_simplex(g),
        lambda g, q: fm.entropy_prox(g, 0.5, q),
        lambda g, q: fm.entropy_prox(g, 0.5),
        lambda g, q: fm.l2_prox(g, 0.5, q),
    ],
)
def test_prox_maps_leave_their_input_alone(call):
    g = np.array([0.3, -1.0, 2.0])
    q = np.array([0.5, 0.25, 0.25])
    before = g.copy(), q.copy()
    out = call(g, q)
    assert not np.shares_memory(out, g) and not np.shares_memory(out, q)
    assert np.array_equal(g, before[0]) and np.array_equal(q, before[1])
    for same in (g.astype(np.float32), list(g), np.repeat(g, 2)[::2]):
        np.testing.assert_allclose(call(same, q), out, atol=2e-7)


@pytest.mark.parametrize("n", [203, 60_000])
@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_softmax_of_margins_far_below_and_above(n, direction):
    """Of +-1e5: naive exponentials overflow or vanish."""
    m = direction * np.linspace(1e5, -1e5, n)
    q = np.empty(n)
    log_total = fm._softmax(m, q)
    exact = np.exp(m.min() - m)
    np.testing.assert_allclose(q, exact / exact.sum(), rtol=1e-13, atol=0)
    assert log_total == pytest.approx(1e5 + np.log(exact.sum()), rel=1e-14)
