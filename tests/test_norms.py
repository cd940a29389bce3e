"""Margins in other norms: exact margins of small integer data, certificates in rationals, the loops against others."""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from instances import check_raises, meet, mnist_sample, pair_rows, rotate

import fastmargin as fm

NAMES = tuple(fm.NORMS)
POLYHEDRAL = ("l1", "linf")


# ======================================================================================================
# EXACT MARGINS
# ======================================================================================================


def game_value(A):
    """The value max_y min_i (A y)_i over the simplex, of rationals, by the simplex method with Bland's rule.

    It is minus the value min_y max_i of -A, and with B = shift - A > 0 that is 1 / max sum y under B y <= 1, y >= 0.
    """
    shift = 1 + max(map(max, A))
    n = len(A)
    m = len(A[0])
    # The last row holds the negative prices, the last column the bounds.
    table = [
        [shift - Fraction(x) for x in row] + [Fraction(i == k) for k in range(n)] + [Fraction(1)]
        for i, row in enumerate(A)
    ]
    table.append([Fraction(-1)] * m + [Fraction(0)] * (n + 1))
    basis = list(range(m, m + n))
    while True:
        entering = next((j for j, price in enumerate(table[-1][:-1]) if price < 0), None)
        if entering is None:
            return shift - 1 / table[-1][-1]
        ratios = [
            (row[-1] / row[entering], basis[i], i)
            for i, row in enumerate(table[:-1])
            if row[entering] > 0
        ]
        leaving = min(ratios)[2]
        basis[leaving] = entering
        pivot = table[leaving][entering]
        table[leaving] = [x / pivot for x in table[leaving]]
        for i, row in enumerate(table):
            if i != leaving and row[entering] != 0:
                factor = row[entering]
                table[i] = [x - factor * y for x, y in zip(row, table[leaving], strict=True)]


def corners(norm, d):
    """The corners of the ball: rho is the value of the game of rows against corners."""
    if norm == "linf":
        return list(itertools.product((-1, 1), repeat=d))
    return [tuple(sign * (j == k) for k in range(d)) for j in range(d) for sign in (-1, 1)]


def exact_margin(norm, rows):
    balls = corners(norm, len(rows[0]))
    return game_value([[sum(map(lambda x, y: x * y, z, v)) for v in balls] for z in rows])


def exact_size(norm, v):
    return sum(map(abs, v)) if norm == "l1" else max(map(abs, v))


def dual_of(norm):
    return {"l1": "linf", "linf": "l1"}[norm]


def rationals(v):
    return [Fraction(x) for x in np.ravel(v).tolist()]


def faults(norm, rows, result, rho):
    """What exact arithmetic finds wrong with a Result for the rows of margin rho."""
    w = rationals(result.alpha)
    p = rationals(result.p)
    least = min(sum(x * y for x, y in zip(z, w, strict=True)) for z in rows)
    image = [sum(a * z[j] for a, z in zip(p, rows, strict=True)) for j in range(len(w))]
    size = exact_size(norm, w)
    lower = Fraction(result.lower)
    upper = Fraction(result.upper)
    found = []
    if lower > max(least, 0) / (size or 1):
        found.append("lower is above the margin of w")
    if upper < exact_size(dual_of(norm), image) / sum(p):
        found.append("upper is below the norm of Z'p")
    if not lower <= rho <= upper:
        found.append(f"rho = {float(rho)} is not in the interval")
    if (result.status == "infeasible") != (rho == 0):
        found.append(f"the status is {result.status}, rho = {float(rho)}")
    if result.status == "certified" and upper - lower > Fraction(1, 10**6) * upper:
        found.append("certified with too large a gap")
    return found


def random_rows(rng):
    n, d = rng.integers(1, 6), rng.integers(1, 4)
    Z = rng.integers(-3, 4, size=(n, d))
    if rng.random() < 0.3:
        Z = np.abs(Z)  # a margin, or none by a row of zeros
    if rng.random() < 0.2:
        Z[-1] = Z[0]
    Z[0, 0] = Z[0, 0] or 1
    return Z


@pytest.mark.parametrize("norm", POLYHEDRAL)
@pytest.mark.parametrize("seed", range(40))
def test_intervals_hold_the_exact_margins_of_rows(norm, seed):
    rows = random_rows(np.random.default_rng(seed)).tolist()
    result = fm.norm_margin(rows, norm)
    assert not faults(norm, rows, result, exact_margin(norm, rows)), (rows, result)


@pytest.mark.parametrize("norm", POLYHEDRAL)
@pytest.mark.parametrize("seed", range(15))
def test_intervals_hold_the_exact_margins_of_classes(norm, seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 4))
    X = rng.integers(-3, 4, size=(rng.integers(k, 5), 2))
    X[0, 0] = 1
    labels = np.arange(len(X)) % k
    rows = pair_rows(X.tolist(), labels.tolist(), k)
    result = fm.norm_margin(X, norm, labels=labels)
    assert not faults(norm, rows, result, exact_margin(norm, rows)), (X, result)


@pytest.mark.parametrize("k", (3, 4))
def test_one_point_of_each_class_on_an_axis_has_the_known_margin(k):
    """By symmetry the best table is a I + b 11'."""
    known = {
        "l1": 1 / k,
        "l2": 1 / math.sqrt(k - 1),
        "linf": 2.0,
        "spectral": 1.0,
        "nuclear": 1 / (k - 1),
    }
    for norm, rho in known.items():
        result = fm.norm_margin(np.eye(k), norm, labels=np.arange(k))
        assert result.status == "certified"
        assert result.lower <= rho * (1 + 1e-15) and rho * (1 - 1e-15) <= result.upper, norm


def test_two_classes_are_a_binary_problem():
    """The best table is (w, -w): its norms are those of w, doubled in l1, times sqrt(2) in l2 and both others."""
    rng = np.random.default_rng(0)
    labels = np.arange(12) % 2
    X = rng.normal(size=(12, 5)) + 2.0 * np.where(labels == 0, 1, -1)[:, None]
    Z = np.where(labels == 0, 1, -1)[:, None] * X
    factors = {"l1": 1.0, "l2": math.sqrt(2), "linf": 2.0, "spectral": math.sqrt(2)}
    for norm, factor in (factors | {"nuclear": math.sqrt(2)}).items():
        single = fm.norm_margin(Z, norm)
        table = fm.norm_margin(X, norm, labels=labels)
        assert single.status == table.status == "certified"
        assert table.alpha.shape == (2, 5)
        assert table.lower == pytest.approx(factor * single.lower, rel=2e-6), norm


def test_l2_is_the_margin_of_features():
    Z = mnist_rows()
    other = fm.max_margin(fm.features(Z, 1, normalize=None))
    for norm in ("l2", "spectral", "nuclear"):  # of a vector they are one
        result = fm.norm_margin(Z, norm)
        assert result.status == "certified"
        assert meet(result, other)


@functools.cache
def mnist_rows(n=150):
    """Signed rows of the bundled sample."""
    X, y = mnist_sample(3, 5)
    return (y[:, None] * X)[:n]


# ======================================================================================================
# NORMS
# ======================================================================================================


def tables(rng):
    for shape in ((6,), (1, 4), (3, 5), (5, 3)):
        yield rng.normal(size=shape)
        yield np.round(2.0 * rng.normal(size=shape))
        yield np.zeros(shape)
    yield np.outer([1.0, -2.0], [3.0, 0.0, 1.0])


@pytest.mark.parametrize("name", NAMES)
def test_norms_are_dual_to_each_other(name):
    norm = fm.NORMS[name]
    rng = np.random.default_rng(0)
    for u in tables(rng):
        v = norm.steepest(u)
        assert norm.value(v) <= 1 + 1e-12
        assert np.vdot(v, u) == pytest.approx(norm.dual(u), rel=1e-12, abs=1e-300)
        for _ in range(5):
            w = norm.project(3.0 * rng.normal(size=u.shape))
            assert norm.value(w) <= 1 + 1e-12
            assert np.vdot(w, u) <= norm.dual(u) * (1 + 1e-12)
            assert np.linalg.norm(w) <= norm.radius(u.shape) * (1 + 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_projections_meet_their_variational_inequality(name):
    """v = P(w) if and only if <w - v, z - v> <= 0 for the z of the ball; the largest is N*(w - v) - <w - v, v>."""
    norm = fm.NORMS[name]
    rng = np.random.default_rng(1)
    for w in tables(rng):
        for scale in (0.01, 1.0, 100.0):
            v = norm.project(scale * w)
            rest = scale * w - v
            assert norm.value(v) <= 1 + 1e-12
            slack = 1e-12 * (1 + norm.dual(rest))
            assert norm.dual(rest) - np.vdot(rest, v) <= slack, (name, w)


def test_singular_values_are_rounded_up():
    """For W of two rows the largest squared and the sum squared are known by the trace and determinant of W W'."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        m = int(rng.integers(1, 6))
        W = rng.integers(-9, 10, size=(2, m)) * 2.0 ** rng.integers(-30, 30, size=(2, 1))
        if rng.random() < 0.3:
            W[1] = rng.integers(-3, 4) * W[0]
        a, b = (rationals(row) for row in W)
        trace = sum(x * x for x in a + b)
        cross = sum(x * y for x, y in zip(a, b, strict=True))
        determinant = sum(x * x for x in a) * sum(x * x for x in b) - cross * cross
        for table in (W, W.T):
            largest = Fraction(fm.NORMS["spectral"].value(table)) ** 2
            total = Fraction(fm.NORMS["nuclear"].value(table)) ** 2
            assert 2 * largest >= trace and largest * (largest - trace) + determinant >= 0
            assert total >= trace and (total - trace) ** 2 >= 4 * determinant
            assert float(total) <= (1 + 1e-12) * float(trace + 2 * determinant**0.5)


def test_a_norm_of_ones_own_has_the_margin_of_scaled_columns():
    """Weights in a box: the margin in "linf" of scaled columns."""
    Z = mnist_rows()
    Z = Z[:, Z.any(axis=0)]
    c = 2.0 ** np.random.default_rng(0).integers(-2, 3, size=Z.shape[1])
    linf = fm.NORMS["linf"]
    box = fm.Norm(
        value=lambda w: linf.value(w / c),
        dual=lambda u: linf.dual(c * u),
        project=lambda w: np.clip(w, -c, c),
        steepest=lambda u: c * np.sign(u),
        radius=lambda shape: float(np.linalg.norm(c)),
    )
    ours = fm.norm_margin(Z, box)
    other = fm.norm_margin(Z * c, "linf")
    assert ours.status == other.status == "certified"
    assert meet(ours, other)


# ======================================================================================================
# CERTIFICATES
# ======================================================================================================


@pytest.mark.parametrize("seed", range(60))
def test_any_w_and_p_give_a_true_interval(seed):
    rng = np.random.default_rng(seed)
    norm = POLYHEDRAL[seed % 2]
    rows = random_rows(rng) * 2.0 ** rng.integers(-40, 40)
    n, d = rows.shape
    w = rng.normal(size=d) * 10.0 ** rng.integers(-200, 200)
    if seed % 3 == 0:
        w = np.sign(np.abs(rows).sum(axis=0) + 0.5)
    p = rng.dirichlet(np.ones(n))
    lower, upper = fm.norm_certificate(rows, norm, w, p)
    exact = [rationals(row) for row in rows]
    assert lower >= 0.0
    sizes = rationals(w)
    least = min(sum(x * y for x, y in zip(z, sizes, strict=True)) for z in exact)
    margin = max(least, 0) / exact_size(norm, sizes)
    weights = rationals(p)
    image = [sum(a * z[j] for a, z in zip(weights, exact, strict=True)) for j in range(d)]
    size = exact_size(dual_of(norm), image) / sum(weights)
    assert lower <= margin <= lower + 1e-12 * float(np.abs(rows).max())
    assert size <= upper <= size + 1e-12 * float(np.abs(rows).max())
    assert lower <= exact_margin(norm, exact) <= upper


# ======================================================================================================
# RUNS
# ======================================================================================================


def labelled(k=4, n=40, d=6):
    rng = np.random.default_rng(2)
    labels = np.arange(n) % k
    return 4.0 * np.eye(k, d)[labels] + rng.normal(size=(n, d)) / 3.0, labels


def runs():
    """Calls that make a Result from options."""
    Z = mnist_rows()
    X, labels = labelled()
    for norm in NAMES:
        yield norm, lambda norm=norm, **options: fm.norm_margin(Z[:60], norm, **options)
        yield (
            f"{norm}, classes",
            lambda norm=norm, **options: fm.norm_margin(X, norm, labels=labels, **options),
        )
        yield (
            f"{norm}, descent",
            lambda norm=norm, **options: fm.steepest_descent(
                X, norm, labels=labels, momentum=0.5, **options
            ),
        )


RUNS = dict(runs())


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_bit_for_bit(name):
    call = RUNS[name]
    whole = call(max_iter=70, tol=1e-12)
    part = call(max_iter=31, tol=1e-12)
    rest = call(max_iter=39, tol=1e-12, start=part)
    assert (whole.alpha == rest.alpha).all() and (whole.p == rest.p).all()
    assert (whole.lower, whole.upper) == (rest.lower, rest.upper)
    assert whole.trace["products"][-1] == rest.trace["products"][-1]


@rotate("name, power", RUNS, (-320, -40, 200, 320))
def test_margins_do_not_depend_on_the_unit(name, power):
    """Times a power of two, all numbers are the same but for the power."""
    norm = name.split(",")[0]
    X, labels = labelled()
    Z = X * np.where(labels % 2 == 0, 1.0, -1.0)[:, None]
    call = fm.steepest_descent if "descent" in name else fm.norm_margin
    options = {"labels": labels} if "classes" in name else {}
    given = X if options else np.repeat(Z, 3, axis=0)
    one = call(given, norm, max_iter=200, **options)
    other = call(given * 2.0**power, norm, max_iter=200, **options)
    assert one.n_iter == other.n_iter and one.status == other.status
    assert other.lower == one.lower * 2.0**power and other.upper == one.upper * 2.0**power


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("step", (1e-323, 2.3e-162, 1e-165, 1e-20, 1e100, 1e160))
def test_steps_of_any_length_have_true_intervals(norm, step):
    for rows in ([[1.0]], [[0.7, 0.7]], [[1e-24], [-1e-24]], [[1.0, 1e-170], [-1.0, 1e-170]]):
        result = fm.steepest_descent(rows, norm, step=step, max_iter=3, tol=1e-6)
        rho = {"[[1.0]]": Fraction(1)}.get(str(rows), 0)
        if rows == [[0.7, 0.7]]:
            rho = Fraction(0.7) * (1 if norm == "l1" else 2 if norm == "linf" else 0)
        if rho:
            assert result.lower <= rho <= result.upper
        assert 0.0 <= result.lower <= result.upper


@pytest.mark.parametrize("norm", NAMES)
def test_a_run_goes_on_where_rounding_hides_the_gap(norm):
    for rows in (np.eye(2), [[1.0, 1.0]], [[1.0], [-1.0]], [[3.0, 1.0], [1.0, 2.0]]):
        result = fm.norm_margin(rows, norm, tol=None, eps=0.0, max_iter=400)
        assert result.lower <= result.upper < np.inf


def test_where_rounding_ends_a_run_does_not_depend_on_max_iter():
    Z = np.array([[2.0, -2e6, 0.1], [0.0, 2e6, 0.2], [0.0, 3e6, -0.1]])
    ends = [
        fm.norm_margin(Z, "nuclear", labels=[2, 0, 1], tol=1e-9, max_iter=most)
        for most in (200, 500, 777, 1000)
    ]
    assert {end.status for end in ends} == {"rounding"}
    assert len({(end.n_iter, end.lower, end.upper) for end in ends}) == 1


def test_a_norm_may_have_other_units_and_whole_numbers():
    """A box of 1e-10, whose steepest direction is of integers."""
    small = fm.Norm(
        value=lambda w: 1e10 * np.abs(w).max(),
        dual=lambda u: 1.000001e-10 * np.abs(u).sum(),
        project=lambda w: np.clip(w, -1e-10, 1e-10),
        steepest=lambda u: 1e-10 * np.sign(u),
        radius=lambda shape: 1e-10 * math.sqrt(shape[0]),
    )
    assert fm.norm_margin([[3.0, 1.0], [1.0, 2.0]], small, tol=1e-5).status == "certified"
    assert fm.norm_margin([[1.0], [-1.0]], small).status == "infeasible"
    whole = fm.NORMS["l1"]._replace(steepest=lambda u: np.array([1, 0]))
    assert fm.norm_margin([[3.0, 1.0], [1.0, 2.0]], whole).status == "certified"


def test_a_layer_may_have_more_classes_than_the_labels():
    X, labels = labelled(3)
    w = np.zeros((5, 6))
    w[:3, :3] = np.eye(3)
    p = np.full(40 * 4, 1 / 160)
    lower, upper = fm.norm_certificate(X, "spectral", w, p, labels=labels)
    assert 0.0 < lower <= upper
    alone = fm.norm_margin(X, "l2", labels=np.zeros(40))  # class 1 has no points
    assert alone.alpha.shape == (2, 6)


def test_sparse_rows_and_rows_in_a_file_have_the_interval_of_arrays(tmp_path):
    Z = mnist_rows()
    other = fm.norm_margin(Z, "l1")
    np.save(tmp_path / "rows.npy", Z)
    for rows in (sparse_matrix(Z), np.load(tmp_path / "rows.npy", mmap_mode="r")):
        result = fm.norm_margin(rows, "l1")
        assert result.status == "certified"
        assert meet(result, other)


def sparse_matrix(Z):
    """What has the attributes of a SciPy matrix in compressed rows."""
    return pytest.importorskip("scipy.sparse").csr_matrix(Z)


@pytest.mark.parametrize("limit", ("_LARGEST_SYSTEM", "_LARGEST_TABLE"))
def test_equations_that_are_too_large_leave_explicit_steps(monkeypatch, limit):
    monkeypatch.setattr(fm, limit, 0)
    Z = mnist_rows()
    result = fm.norm_margin(Z, "l2", tol=1e-2)
    assert result.status == "certified"


@pytest.mark.parametrize("norm", NAMES)
def test_more_points_than_coordinates_are_certified(norm):
    """The smaller of the two systems is that of the coordinates."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 3)) + 3.0
    Z = Z[Z.sum(axis=1) > 1.0]
    result = fm.norm_margin(Z, norm)
    assert result.status == "certified"
    assert fm.norm_margin(np.vstack((Z, -Z[:1])), norm).status == "infeasible"


def test_products_are_counted(monkeypatch):
    """Each is one with Z', too; those of certificates, one a checkpoint, do not count."""
    Z = mnist_rows(40)
    calls = []
    lift = fm.Gram._lift
    monkeypatch.setattr(fm.Gram, "_lift", lambda *args: calls.append(1) or lift(*args))
    result = fm.norm_margin(Z, "linf", max_iter=100, tol=1e-9)
    counted = result.trace["products"]
    assert (
        np.diff(counted[result.trace["iteration"] <= 32]) >= 1
    ).all()  # later ones may be implicit
    spent = (
        counted[-1] - counted[0]
    )  # what is spent before on the norm of Z has products of its own
    assert spent <= len(calls) <= spent + 2 * len(result.trace) + 2


def test_copies_of_points_change_no_margin():
    Z = mnist_rows(15)
    one = fm.norm_margin(Z, "linf")
    many = fm.norm_margin(np.repeat(Z, 7, axis=0), "linf")
    assert many.status == "certified"
    assert meet(one, many)


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("copies", (1, 8))
def test_newton_steps_get_to_twelve_digits_soon(norm, copies):
    """With 8 copies of each row the support of p is larger than the coordinates: then theirs is the smaller system."""
    rng = np.random.default_rng(3)
    Z = np.repeat(rng.normal(size=(5, 6)) + 2.0, copies, axis=0)
    result = fm.norm_margin(Z, norm, tol=1e-12)
    assert result.status == "certified" and result.n_iter <= 150  # thousands without


# ======================================================================================================
# DESCENT
# ======================================================================================================


@pytest.mark.parametrize("norm, seed", [("l1", 34), ("linf", 2013), ("l1", 2230), ("linf", 2576)])
def test_steps_do_not_cycle(norm, seed):
    """Between two plays, as they did here where a Newton step ended at a residual of a tenth of the move."""
    rng = np.random.default_rng(seed)
    Z = rng.integers(-3000, 6000, size=(rng.integers(2, 8), rng.integers(2, 6)))
    assert fm.norm_margin(Z, norm, max_iter=200).status == "certified"


@pytest.mark.parametrize("schedule", ("sqrt", "constant"))
def test_steepest_descent_in_l2_is_normalized_gradient_descent(schedule):
    Z = mnist_rows()
    ours = fm.steepest_descent(Z, "l2", schedule=schedule, max_iter=50)
    G = fm.features(Z, 1, normalize=None)
    other = fm.normalized_gradient_descent(G, schedule=schedule, divide_by="norm", max_iter=50)
    np.testing.assert_allclose(ours.alpha, Z.T @ other.alpha, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.p, other.p, rtol=1e-9)
    assert ours.upper == pytest.approx(other.upper, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("momentum, loss", [(0.0, "exp"), (0.9, "exp"), (0.9, "logistic")])
def test_steepest_descent_is_its_formula(name, momentum, loss):
    X, labels = labelled()
    rows = np.array(pair_rows(X.tolist(), labels.tolist(), 4))
    norm = fm.NORMS[name]
    options = {"momentum": momentum, "loss": loss, "max_iter": 30}
    ours = fm.steepest_descent(X, name, labels=labels, **options)
    w, mean = np.zeros((2, 4, 6))
    step = 1.0 / (np.linalg.norm(rows, axis=1).max() * norm.radius((4, 6)))
    for k in range(30):
        m = rows @ w.ravel()
        q = np.exp(m.min() - m) if loss == "exp" else 1.0 / (1.0 + np.exp(m))
        mean = momentum * mean + (1.0 - momentum) * (q / q.sum() @ rows).reshape(4, 6)
        w += step / math.sqrt(k + 1.0) * norm.steepest(mean)
    np.testing.assert_allclose(ours.alpha, w, rtol=1e-9, atol=1e-12)


def test_coordinate_descent_moves_one_coordinate():
    Z = mnist_rows()
    runs = fm.steepest_descent(
        Z, "l1", max_iter=20, trace_at=np.arange(20), keep_iterates=True
    ).iterates
    assert (np.count_nonzero(np.diff(runs, axis=0), axis=1) == 1).all()


@pytest.mark.parametrize("name", NAMES)
def test_steepest_descent_tends_to_the_margin_in_its_norm(name):
    X, labels = labelled()
    rho = fm.norm_margin(X, name, labels=labels)
    shares = [
        fm.steepest_descent(X, name, labels=labels, step=10.0, max_iter=most).lower / rho.upper
        for most in (100, 1000, 10_000)
    ]
    assert shares[0] < shares[1] < shares[2] < 1.0
    assert shares[2] > 0.95


# ======================================================================================================
# TABLES
# ======================================================================================================


def signed_tables(n=40, k=3, d=4, seed=0):
    """Random tables on one side of a plane."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, k, d))
    sides = np.sign(np.einsum("nkd,kd->n", Z, rng.normal(size=(k, d))))
    return sides[:, None, None] * Z


@pytest.mark.parametrize("norm", ("l1", "l2", "linf"))
def test_tables_in_a_norm_of_entries_are_their_rows_written_out(norm):
    Z = signed_tables()
    rows = Z.reshape(len(Z), -1)
    for call in (fm.norm_margin, functools.partial(fm.steepest_descent, max_iter=50)):
        table = call(Z, norm)
        flat = call(rows, norm)
        assert table.alpha.shape == (3, 4)
        assert np.array_equal(table.alpha.ravel(), flat.alpha)
        assert np.array_equal(table.p, flat.p)
        assert (table.lower, table.upper) == (flat.lower, flat.upper)
        bounds = fm.norm_certificate(Z, norm, table.alpha, table.p)
        assert bounds == fm.norm_certificate(rows, norm, flat.alpha, flat.p)


@pytest.mark.parametrize("norm, of_entries", [("spectral", "linf"), ("nuclear", "l1")])
@pytest.mark.parametrize("seed", range(10))
def test_diagonal_tables_have_the_margin_of_their_diagonals(norm, of_entries, seed):
    """Leaving the diagonal of w alone makes neither norm larger: so it may be diagonal, and its norm is that of it."""
    rows = random_rows(np.random.default_rng(seed))
    Z = rows[:, :, None] * np.eye(rows.shape[1])
    rho = exact_margin(of_entries, rows.tolist())
    result = fm.norm_margin(Z, norm)
    assert result.status == ("certified" if rho else "infeasible")
    assert result.lower <= rho <= result.upper
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=Z.shape[1:]))[0] for _ in range(2))
    turned = fm.norm_margin(U @ Z @ V, norm)
    assert turned.lower <= float(rho) * (1 + 1e-12) and float(rho) * (1 - 1e-12) <= turned.upper


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("shape", ((2, 2), (2, 5), (4, 3)))
def test_the_margin_of_two_tables_is_a_minimum_over_an_interval(norm, shape):
    """rho = min_t N*(t z_1 + (1 - t) z_2), a convex function of t, with N* by NumPy's singular values."""
    duals = {
        "l1": lambda u: np.abs(u).max(),
        "l2": np.linalg.norm,
        "linf": lambda u: np.abs(u).sum(),
        "spectral": lambda u: np.linalg.norm(u, "nuc"),
        "nuclear": lambda u: np.linalg.norm(u, 2),
    }
    first, second = np.random.default_rng(sum(shape)).normal(size=(2, *shape))

    def value(t):
        return duals[norm](t * first + (1 - t) * second)

    low, high = 0.0, 1.0
    for _ in range(200):
        left = low + (high - low) / 3
        right = high - (high - low) / 3
        if value(left) < value(right):
            high = right
        else:
            low = left
    result = fm.norm_margin(np.stack((first, second)), norm)
    assert result.status == "certified" and result.alpha.shape == shape
    assert result.lower <= value(low) * (1 + 1e-12) and value(low) * (1 - 1e-9) <= result.upper


@pytest.mark.parametrize("norm", NAMES)
def test_tables_of_pairs_are_a_problem_of_classes(norm):
    X, labels = labelled(3)
    Z = np.reshape(pair_rows(X.tolist(), labels.tolist(), 3), (-1, 3, 6))
    table = fm.norm_margin(Z, norm)
    pairs = fm.norm_margin(X, norm, labels=labels)
    assert table.status == pairs.status == "certified"
    assert meet(table, pairs)
    descent = fm.steepest_descent(Z, norm, max_iter=20)
    np.testing.assert_allclose(
        descent.alpha,
        fm.steepest_descent(X, norm, labels=labels, max_iter=20).alpha,
        rtol=1e-9,
        atol=1e-12,
    )


def test_tables_from_lists_and_in_single_precision():
    Z = np.round(4.0 * signed_tables())
    result = fm.norm_margin(Z, "nuclear")
    for given in (Z.tolist(), Z.astype(np.float32), Z.astype(int), Z.astype(object)):
        other = fm.norm_margin(given, "nuclear")
        assert np.array_equal(other.alpha, result.alpha) and other.upper == result.upper


# ======================================================================================================
# WEIGHTS AS START
# ======================================================================================================


def moved(Z):
    """The rows of another epoch: each entry has changed by about 1 %."""
    return Z * (1.0 + 0.01 * np.random.default_rng(5).normal(size=Z.shape))


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("form", ("rows", "tables", "classes"))
def test_weights_lead_to_the_same_margin_in_fewer_steps(norm, form):
    options = {}
    Z = mnist_rows(60) if form == "rows" else signed_tables()
    if form == "classes":
        Z, options["labels"] = labelled()
    before = fm.norm_margin(Z, norm, **options)
    other = moved(Z)
    fresh = fm.norm_margin(other, norm, **options)
    warm = fm.norm_margin(other, norm, start=(before.alpha, before.p), **options)
    assert warm.status == fresh.status == "certified"
    assert meet(warm, fresh)
    assert warm.n_iter < 0.5 * fresh.n_iter
    assert warm.trace["products"][-1] < fresh.trace["products"][-1]
    again = fm.norm_margin(other, norm, start=(warm.alpha, warm.p), **options)
    assert again.status == "certified" and again.n_iter == 0


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("scale", (0.0, 1e-200, -1.0, 1e200))
def test_any_weights_lead_to_the_margin(norm, scale):
    """Also those of no separator, or of another length; a Result of such a run goes on bit for bit."""
    Z = signed_tables()
    fresh = fm.norm_margin(Z, norm)
    for p in (np.eye(len(Z))[3], np.full(len(Z), 1 / len(Z))):
        start = (scale * fresh.alpha, p)
        result = fm.norm_margin(Z, norm, start=start)
        assert result.status == "certified"
        assert meet(result, fresh)
        part = fm.norm_margin(Z, norm, start=start, max_iter=3, tol=1e-12)
        rest = fm.norm_margin(Z, norm, start=part, max_iter=4, tol=1e-12)
        whole = fm.norm_margin(Z, norm, start=start, max_iter=7, tol=1e-12)
        assert np.array_equal(rest.alpha, whole.alpha) and np.array_equal(rest.p, whole.p)


@pytest.mark.parametrize("norm", NAMES)
def test_a_descent_goes_on_from_a_separator(norm):
    Z = signed_tables()
    before = fm.steepest_descent(Z, norm, max_iter=300)
    other = moved(Z)
    rho = fm.norm_margin(other, norm)
    runs = [
        fm.steepest_descent(
            other, norm, start=start, max_iter=30, trace_at=[0, 1, 30], keep_iterates=True
        )
        for start in (None, before.alpha)
    ]
    fresh, warm = runs
    assert np.array_equal(warm.iterates[0], before.alpha)
    q = np.exp(-np.einsum("nkd,kd->n", other, before.alpha))
    gradient = np.einsum("n,nkd->kd", q / q.sum(), other)
    length = np.linalg.norm(other, axis=(1, 2)).max() * fm.NORMS[norm].radius((3, 4))
    step = fm.NORMS[norm].steepest(gradient) / length
    np.testing.assert_allclose(warm.iterates[1], before.alpha + step, rtol=1e-9, atol=1e-12)
    assert fresh.lower < warm.lower <= rho.upper
    for loss in ("exp", "logistic"):
        zero = fm.steepest_descent(Z, norm, start=np.zeros((3, 4)), max_iter=20, loss=loss)
        plain = fm.steepest_descent(Z, norm, max_iter=20, loss=loss)
        np.testing.assert_allclose(zero.alpha, plain.alpha, rtol=1e-12)


def test_a_start_of_another_problem_or_method_is_refused_with_a_remedy():
    start = fm.norm_margin(np.eye(3), "l1")
    words = ["start", "same algorithm and shape", "start=(result.alpha, result.p) to norm_margin"]
    check_raises(lambda: fm.norm_margin(np.eye(4), "l1", start=start), ValueError, words)
    words = ["start", "start=result.alpha to max_margin and steepest_descent"]
    check_raises(lambda: fm.steepest_descent(np.eye(3), "l1", start=start), ValueError, words)
