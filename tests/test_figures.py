"""What the figures of the papers rest on: planted data that are what they claim, and numbers that follow from them."""

import itertools
import math
import re
import shutil
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import reproduce as rp
from figures import harness

pytestmark = pytest.mark.usefixtures("cache")


# ======================================================================================================
# RAMDAS14
# ======================================================================================================


@pytest.mark.parametrize("r", [1, 2, 10])
def test_section_2_2_has_the_margin_that_its_points_prove(r):
    """In rational numbers: a plane's least distance and the shortest vector of the hull are both 0.02^(1/2)/r."""
    Z = rp.two_lines(r)
    assert len(Z) == 100
    exact = [[Fraction(float(entry)).limit_denominator(1000) for entry in row] for row in Z]
    assert np.allclose(np.array(exact, dtype=float), Z, rtol=1e-15)
    squares = [a * a + b * b for a, b in exact]
    assert min(squares) == Fraction(1, r * r)
    assert max(squares) == r * r
    least = min(b - a for a, b in exact)  # times the length of (-1, 1)
    assert least**2 / 2 == Fraction(2, 100) / r**2
    plus, minus = (Fraction(1, r) * x for x in (Fraction(6, 10), Fraction(8, 10)))
    assert [plus, minus] in exact
    assert [-minus, -plus] in exact
    middle = (plus - minus) / 2
    assert 2 * middle**2 == Fraction(2, 100) / r**2


def test_the_bound_of_section_2_2_is_50_r4_and_its_mistakes_are_fewer(quick):
    table = quick.table("ramdas14:example")
    raw, scaled = (rows for _, rows in harness.groups(table, "points"))
    assert raw["bound"] == pytest.approx(50 * raw["r"] ** 4, rel=3e-9)
    assert scaled["bound"] == pytest.approx(50, rel=3e-9)
    assert (table["mistakes"] <= table["bound"]).all()


def test_a_planted_margin_is_the_largest():
    rng = np.random.default_rng(0)
    for Z in (
        harness.planted_margin(60, 20, 0.07, rng),
        harness.planted_power_law(60, 20, 0.07, rng),
        harness.planted_power_law(10, 20, 0.07, rng),  # whose hull would miss 0
    ):
        best = harness.fm.max_margin(harness.fm.features(Z, 1, normalize=None), tol=1e-9)
        assert best.lower == pytest.approx(0.07, rel=1e-8)
        assert (Z * Z).sum(axis=1).max() <= 1 + 1e-14


def test_a_planted_hull_holds_a_ball_of_its_radius_and_no_larger_one():
    """Its facets, a choice of one corner of each axis, are planes <w, x> = 1 at the distance 1/||w||."""
    d = 4
    Z, radius = rp.planted_inradius(60, d, 0.1, np.random.default_rng(0))
    assert np.linalg.norm(Z, axis=1).max() == pytest.approx(1)
    distances = []
    for signs in itertools.product((0, d), repeat=d):
        w = np.linalg.solve(Z[np.arange(d) + signs], np.ones(d))
        assert (Z @ w).max() <= 1 + 1e-12
        distances.append(1 / np.linalg.norm(w))
    assert min(distances) == pytest.approx(radius, rel=1e-12)


@pytest.mark.parametrize("key", ["ramdas14:theorem1", "ramdas14:theorem4"])
def test_no_count_of_iterations_exceeds_what_is_proved(key, quick):
    table = quick.table(key)
    proved = np.isfinite(table["bound"])
    assert 2 <= len(set(table["method"][proved])) < len(set(table["method"]))
    assert (table["iterations"] <= table["bound"])[proved].all()


# ======================================================================================================
# JI21
# ======================================================================================================


def test_the_batch_perceptron_pays_a_column_where_the_others_pay_a_product(quick):
    table = quick.table("ji21:fig1")
    n = int(re.search(r"Data: ([\d,]+) images", table.caption)[1].replace(",", ""))
    for name, run in harness.groups(table, "method"):
        cost = 1 / n if name == "batch perceptron" else 1.0
        start = 1.0 if name == "momentum" else 0.0
        assert np.allclose(run["products"], start + cost * run["t"], rtol=1e-12)


def test_no_margin_is_larger_than_the_largest_and_momentum_keeps_to_its_bound(quick):
    table = quick.table("ji21:fig1")
    assert (table["margin"] <= table["largest"] * (1 + 1e-9)).all()
    momentum = harness.where(table, method="momentum")
    assert (momentum["largest"] - momentum["margin"] <= momentum["bound"]).all()


def test_the_slope_of_a_power_is_found():
    t = np.unique(np.geomspace(1, 10_000, 100).round())
    table = {"method": np.full(len(t), "momentum"), "t": t, "largest": np.ones(len(t))}
    early = np.where(t < 300, 7.0, 1.0)  # of which it takes no notice
    table["margin"] = 1 - early * 30 / t**1.5
    assert harness.FIGURES["ji21:fig1"].numbers_of(table) == {"slope": "−1.50"}


def test_no_margin_of_points_that_no_plane_separates_is_above_the_certified_bound(quick):
    table = quick.table("ji21:fig2")
    assert len(set(table["method"])) == len(rp.ji21_methods(1.0))
    least = table["upper"].min()
    assert least > 0
    assert (table["margin"] <= least).all()


@pytest.mark.dear
def test_all_methods_of_fig3_are_on_one_problem(quick):
    """Their certified intervals meet, and each of them learns."""
    table = quick.table("ji21:fig3")
    assert table["margin"].max() <= table["upper"].min()
    runs = dict(harness.groups(table, "method"))
    best = runs.pop(rp.EXACT)
    for name, run in runs.items():
        assert run["margin"].max() < 0 < best["margin"][-1]
        assert best["test_error"][-1] < run["test_error"][-1]
        assert "Theorem" in name or run["test_error"][-1] < 0.6


def test_a_kernel_on_demand_gives_the_runs_of_the_matrix(monkeypatch):
    """As at the paper's size, where the matrix does not fit into memory."""
    X, y, X_test, y_test = (array[:120] for array in harness.Run(progress=False).mnist())
    given = (128, 256, "max", X.astype(np.float32), y, X_test, y_test)
    for method in rp.SAMPLERS:
        dense = rp.sampling_rows((method, 0), *given)
        with monkeypatch.context() as patch:
            patch.setattr(rp, "STORED", 0)
            lazy = rp.sampling_rows((method, 0), *given)
        assert lazy["t"].tolist() == dense["t"].tolist()
        assert lazy["test_error"].tolist() == dense["test_error"].tolist()
        for end in ("margin", "upper"):  # K in float32: two roundings of an entry
            assert (np.abs(lazy[end] - dense[end]) <= 4 * 2.0**-24 / dense["upper"]).all()


# ======================================================================================================
# APIDOPOULOS22
# ======================================================================================================


def declared(key, **sizes):
    """The sizes of a figure, with these in place of its own."""
    return harness.FIGURES[key].sizes | sizes


def toy_runs_of(steps):
    sizes = declared("apidopoulos22:fig2", steps=steps)
    return rp.toy_runs(harness.Run(progress=False), **sizes)


DESCENTS = rp.real_methods("1/t", 1.0, 3.0)


@pytest.fixture(scope="module")
def toy():
    """The signed points of Figures 2 and 3, and the weights w_1, .., w_200 of each method."""
    return toy_runs_of(200)


def test_the_gaps_of_the_toy_points_are_those_to_their_largest_margin(toy, quick):
    """w* = (1/2, 1/2), a mixture of the support vectors, gives these the margin 1 and all others 1.1 or more."""
    Z, paths = toy
    best = np.array([0.5, 0.5])
    assert Z.shape == (80, 2)
    assert list(np.flatnonzero(Z @ best < 1.1)) == [0, 1, 40, 41]
    assert np.sort(Z @ best)[:4] == pytest.approx(1)
    assert Z[[0, 1, 40, 41]].mean(axis=0) / 2 == pytest.approx(best)
    table = quick.table("apidopoulos22:fig3")
    parts = harness.groups(table, "method")
    assert [name for name, _ in parts] == list(paths)
    for name, part in parts:
        assert part["t"].tolist() == list(range(1, 201))
        for w, gap in zip(paths[name], part["margin_gap"], strict=True):
            assert gap == pytest.approx(np.sqrt(2) - min(Z @ w) / np.linalg.norm(w), abs=1e-12)


def test_diagonal_descent_falls_at_the_rate_that_is_predicted(quick):
    """In the end, which a quick run does not reach."""
    Z, paths = toy_runs_of(1000)
    support = Z[[0, 1, 40, 41]]
    assert np.linalg.eigvalsh(support @ support.T) == pytest.approx([0, 0, 2, 8], abs=1e-12)
    rate = 1 - 2 / np.linalg.eigvalsh(Z.T @ Z)[-1]
    w = paths["diagonal descent"]
    gap = np.sqrt(2) - (w @ Z.T).min(axis=1) / np.linalg.norm(w, axis=1)
    assert (gap[-1] / gap[-201]) ** (1 / 200) == pytest.approx(rate, rel=1e-5)
    table = quick.table("apidopoulos22:fig3")
    predicted = harness.where(table, method="diagonal descent")["predicted"]
    assert predicted[1:] / predicted[:-1] == pytest.approx(rate, rel=1e-12)


def test_all_methods_find_one_line(toy, quick):
    Z, paths = toy
    table = quick.table("apidopoulos22:fig2")
    parts = dict(harness.groups(table, "kind"))
    lines = {name: np.array([rows["a"][0], rows["b"][0]]) for name, rows in parts.items()}
    angles = []
    for name, path in paths.items():
        w = path[-1]
        assert lines[name].tolist() == w.tolist()
        angles.append(math.degrees(math.atan2(*w[::-1])))
    assert max(angles) - min(angles) < 1
    said = float(harness.FIGURES["apidopoulos22:fig2"].numbers_of(table)["angle"])
    assert said == pytest.approx(max(angles) - min(angles), rel=0.06)


def test_the_schedule_of_the_authors_script_gives_the_same_iterates(toy):
    """λ_t = 0.001/t where the text has 4/t."""
    Z, paths = toy
    options = {"lam": "1/t", "step": 1 / np.linalg.norm(Z, 2) ** 2}
    for accel in (10, 30, 50):
        run = harness.fm.inertial_diagonal_descent(
            harness.fm.features(Z, 1, normalize=None),
            accel=accel,
            lam0=0.001,
            max_iter=200,
            trace_at=range(1, 201),
            keep_iterates=True,
            **options,
        )
        assert np.array_equal(run.iterates[1:] @ Z, paths[f"inertial descent, α = {accel}"])


def test_noise_is_told_by_medians_of_its_draws():
    """The labels of a share are flipped, those for testing are right."""
    run = harness.Run(progress=False)
    sizes = declared("apidopoulos22:fig4", lam0=[10.0], draws=3, steps=50)
    table = harness.stack(harness.FIGURES["apidopoulos22:fig4"].rows(run, **sizes))
    for flipped, part in harness.groups(table, "flipped"):
        found = []
        for draw in range(3):
            rng = np.random.default_rng((0, draw))
            problem = rp.noisy_problem(rng, flipped, 300, 0.4, 0.15**2)
            G, best, X_test, y_test = problem
            assert (G.labels[:300] > 0).sum() + (G.labels[300:] < 0).sum() == 600 * flipped
            assert y_test.tolist() == [-1] * 300 + [1] * 300
            result = harness.fm.inertial_diagonal_descent(
                G, accel=3.0, lam0=10.0, max_iter=50, trace_at=[]
            )
            wrong = np.sign(G.decision_function(result, X_test)) != y_test
            found.append((result.lower, np.mean(wrong), best.lower))
        margin, error, largest = np.median(found, axis=0)
        lines = dict(harness.groups(harness.where(part, method="inertial descent"), "penalty"))
        assert lines["λ₀ = 10"]["margin"][-1] == pytest.approx(margin, rel=1e-9)
        assert lines["λ₀ = 10"]["test_error"][-1] == pytest.approx(error, rel=1e-9)
        assert lines[rp.EXACT]["margin"].tolist() == [pytest.approx(largest, rel=1e-12)]


def test_figure_6_is_what_the_authors_ran(monkeypatch):
    """Pixels from 0 to 1 and raw HTRU2, with their widths; all runs are held against one margin."""
    seen = []
    gram = harness.fm.gram

    def recording(X, y, sigma2):
        seen.append((X, sigma2))
        return gram(X, y, sigma2=sigma2)

    monkeypatch.setattr(harness.fm, "gram", recording)
    run = harness.Run(progress=False)
    sizes = declared("apidopoulos22:fig6", steps=20, most=60)
    table = harness.stack(harness.FIGURES["apidopoulos22:fig6"].rows(run, **sizes))
    *images, (raw, _) = seen
    assert [sigma2 for _, sigma2 in seen] == [3.4**2, 3.4**2, 3.4**2, 4.0**2]
    assert all(X.min() == 0 and X.max() == 1 for X, _ in images)
    X, _ = run.htru2()
    assert all((X == row).all(axis=1).any() for row in raw)
    assert run.facts["n"] == "60"
    for _, part in harness.groups(table, "data"):
        runs = dict(harness.groups(part, "method"))
        [best] = runs.pop(rp.EXACT)["margin"]
        assert set(DESCENTS) <= set(runs)
        assert all((run["margin"] <= (1 + 1.1e-6) * best).all() for run in runs.values())


def test_normalised_gd_divides_the_gradient_by_its_norm_and_by_the_root_of_t():
    method = DESCENTS["normalised GD"]
    step = method(np.eye(3) + 1.0, max_iter=1).alpha  # v / ((v' G v) t)^(1/2), and G_ii is 2
    assert step == pytest.approx(np.full(3, 24**-0.5), rel=1e-12)


def test_an_iteration_is_a_product_at_each_width(monkeypatch):
    """Of the descents too, whose step would else be found by products before the first iteration."""
    traces = []

    def recorded(algorithm, *arguments, **options):
        result = algorithm(*arguments, **options | {"trace_at": None})
        traces.append(result.trace)
        return result

    methods = {name: partial(recorded, algorithm) for name, algorithm in DESCENTS.items()}
    monkeypatch.setattr(rp, "real_methods", lambda *fading: methods)
    figure = harness.FIGURES["apidopoulos22:width"]
    figure(steps=5, points=30, widths=2)
    assert len(traces) == 2 * 2 * len(methods)
    for trace in traces:
        assert np.array_equal(np.diff(trace["products"]), np.diff(trace["iteration"]))
        assert trace["products"][0] <= 1.0


def test_validation_has_the_noise_of_training_and_the_test_has_none():
    run = harness.Run(progress=False)
    G, (X, y), (X_test, y_test) = rp.path_problem(run, (3, 5), 100, 0.2, 3, 3.4**2)
    images, labels, all_tests, right = run.mnist(3, 5)
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    true = [label_of[image.tobytes()] for image in X]
    assert len(true) == 50
    assert np.count_nonzero(true != y) == 10
    order = np.random.default_rng((0, 3)).permutation(len(labels))[:100]
    assert np.count_nonzero(G.labels != labels[order]) == 20
    assert np.array_equal(X_test, all_tests)
    assert np.array_equal(y_test, right)


def test_paths_over_c_solve_the_problems_of_their_losses():
    """Hinge loss: the dual clips alpha to [0, C]; squared hinge loss: a ridge of 1/(2C)."""
    G, *_ = rp.path_problem(harness.Run(progress=False), (3, 5), 100, 0.2, 3, 3.4**2)
    found = rp.path_weights(G, "1/t", [100.0, 1.0], 3.0, steps=20, path_steps=2000, penalties=3)
    *early, squared, hinge = found.values()
    assert [len(weights) for weights in early] == 2 * [len(harness.spaced(20, 8))]
    for C, alpha in zip((1e-3, 1.0), hinge, strict=False):
        slope = G @ alpha - 1
        assert alpha.min() >= 0
        assert alpha.max() <= C
        assert alpha - np.clip(alpha - slope, 0, C) == pytest.approx(0, abs=1e-3)
    for C, alpha in zip((1e-3, 1.0, 1e3), squared, strict=True):
        lower, upper = harness.fm.certificate(G.with_ridge(0.5 / C), alpha, alpha / alpha.sum())
        assert 0 < upper - lower <= 2e-3 * upper


# ======================================================================================================
# OTHER SIZES
# ======================================================================================================

VARIED = {
    "ramdas14:example": {"r": 30.0},
    "ramdas14:theorem1": {"d": 5, "n": 100, "margin": 0.2, "inverse_margins": (2, 5)},
    "ramdas14:theorem4": {"n": 100, "d": 10, "thinnest": (0.5, 0.9), "eps": (0.3, 0.1)},
    "ji21:fig1": {"digits": (3, 5), "step": 2.0, "steps": 30},
    "ji21:fig2": {"digits": (0, 1), "step": 0.5, "steps": 30},
    "apidopoulos22:fig2": {"lam": "1/t^2", "lam0": 900, "accel": (3, 20, 40, 60), "spread": 0.1},
    "apidopoulos22:fig3": {"lam": "1/sqrt(t)", "lam0": 900, "accel": 5.5, "steps": 30},
    "apidopoulos22:fig4": {"lam": "1/t^2", "lam0": 300, "shares": (0, 0.3, 0.4), "sigma2": 0.3},
    "apidopoulos22:fig5": {"lam": ("1/t", "2^-t"), "lam0": 2, "accel": 9, "spread": 0.2},
    "apidopoulos22:fig6": {"sigma2": 9, "lam": "1/log(1+t)", "lam0": 3, "steps": 20, "most": 60},
    "apidopoulos22:width": {"lam": "2^-t", "lam0": 900, "accel": 5, "points": 40},
    "apidopoulos22:path": {"digits": (4, 9), "sigma2": 9, "lam0": (9, 3, 1), "shares": 0.3},
}


@pytest.mark.parametrize("key", VARIED)
@pytest.mark.filterwarnings("error")
def test_a_figure_of_other_sizes_says_these_and_shows_other_numbers(key):
    """None of them is without effect on the others.  And the picture can be drawn."""
    figure = harness.FIGURES[key]
    own = {name: figure.size(name, value) for name, value in VARIED[key].items()}

    def compute(own):
        return figure.compute(harness.Run(progress=False), own, quick=True)

    table = compute(own)
    fig = figure.draw(table)
    for name, value in own.items():
        assert f"{name} = {harness.in_text(value)}" in fig.get_suptitle().replace("\n", " ")
    assert any(ax.lines or ax.collections or ax.containers for ax in fig.axes)
    for name in own:
        others = {other: value for other, value in own.items() if other != name}
        assert not harness.agree(table, compute(others), 0.0), name


def test_networks_of_other_widths_and_steps_differ():
    X, y, X_test, y_test = (array[:60] for array in harness.Run(progress=False).mnist())
    given = (64, "max", X.astype(np.float32), y, X_test, y_test)
    narrow, wide = (rp.sampling_rows((rp.SAMPLERS[0], 0), width, *given) for width in (8, 64))
    assert narrow["margin"][-1] < wide["margin"][-1]


@pytest.mark.parametrize(
    "key", [key for key, figure in harness.FIGURES.items() if figure.takes_points]
)
def test_own_points_stand_for_the_data_of_a_figure(key):
    rng = np.random.default_rng(0)
    y = np.repeat(["no", "yes"], 40)
    X = rng.normal(size=(80, 3)) + 2.0 * (y == "yes")[:, None]
    figure = harness.FIGURES[key]
    sizes = {"steps": 20, "images": 30, "draws": 2, "path_steps": 2, "penalties": 2, "most": 60}
    sizes = {name: size for name, size in sizes.items() if name in figure.sizes}
    table = figure(data=(X, y), **sizes)
    fig = figure.draw(table)
    assert not re.search("MNIST|image (?!=)|images (?!=)|HTRU2|pulsar", table.caption)
    assert "arrays" in table.caption
    assert len(fig.axes) == 2


@pytest.mark.filterwarnings("error")
def test_points_without_test_errors_are_drawn():
    """On an axis that has 0.  And digits, which own points replace, are refused."""
    y = np.repeat([0, 1], 30)
    X = np.random.default_rng(0).normal(size=(60, 2)) + 9.0 * (2 * y[:, None] - 1)
    figure = harness.FIGURES["ji21:fig2"]
    table = figure(data=(X, y), steps=20)
    assert (table["test_error"][table["t"] == 20] == 0).all()
    fig = figure.draw(table)
    assert fig.axes[1].get_yscale() == "linear" and fig.axes[1].get_ylim()[0] <= 0
    fig.draw_without_rendering()
    with pytest.raises(harness.DataError, match="digits"):
        figure(data=(X, y), digits=(6, 7))


def test_points_that_no_plane_separates_have_no_gap():
    """Drawn is how far the worst point is on its wrong side."""
    figure = harness.FIGURES["ji21:fig1"]
    table = figure(data=(np.array([[1.0], [2.0], [3.0]]), [0, 1, 0]), steps=20)
    assert table["largest"].max() <= 0
    axes = figure.draw(table).axes
    assert "no plane separates" in axes[0].get_ylabel()
    curves = [line for line in axes[0].lines if line.get_gid() != harness.NAME]
    for line, (_, rows) in zip(curves, harness.groups(table, "method"), strict=True):
        assert np.array_equal(line.get_ydata(), -rows["margin"])


# ======================================================================================================
# FINDINGS THAT SAY MORE THAN A NUMBER HOLD IN THE KEPT TABLES
# ======================================================================================================


def kept(key):
    return harness.read_table(harness.csv_of(harness.FIGURES[key], {}))


CHEAP = ["ramdas14:example", "apidopoulos22:fig1", "apidopoulos22:fig2", "apidopoulos22:fig3"]


@pytest.mark.parametrize("key", CHEAP)
def test_a_figure_that_is_computed_anew_agrees_with_the_kept_one(key, tmp_path, monkeypatch):
    """At full size, on any processor."""
    numbers = harness.csv_of(harness.FIGURES[key], {})
    files = numbers, numbers.with_suffix(".png")
    for file in files:
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(harness, "FOLDER", tmp_path)
    assert harness.main([key, "--no-progress"]) == 0
    for file in files:
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_a_step_by_a_long_point_is_balanced_by_whole_steps_except_at_the_hump():
    """With r u + m v/r, <u, v> = -0.96, both classes are right if 0.96 r² < m < r²/0.96."""
    rows = harness.where(kept("ramdas14:example"), points="as they are")
    balanced = []
    for r, mistakes in zip(rows["r"], rows["mistakes"], strict=True):
        steps = math.floor(0.96 * r * r) + 1
        balanced.append(steps < r * r / 0.96)
        assert mistakes == 1 + steps if balanced[-1] else mistakes > 1 + steps
    assert balanced == [r < 1.1 or r > 2.5 for r in rows["r"]]  # the hump is between


def test_a_thousand_times_the_points_need_at_most_four_times_the_iterations():
    """And powers of 1/margin are about 2, 2 and 1."""
    (_, by_margin), (_, by_points) = harness.groups(kept("ramdas14:theorem1"), "panel")
    for method, rows in harness.groups(by_points, "method"):
        assert rows["x"][-1] == 1000 * rows["x"][0]
        assert rows["iterations"].max() <= 4 * rows["iterations"].min()
        rows = harness.where(by_margin, method=method)
        power, *_ = harness.exponent(rows["x"], rows["iterations"])
        assert power == pytest.approx(1 if method == "SNKP" else 2, abs=0.15)


def test_inertial_descent_loses_margin_on_htru2_in_the_end():
    rows = harness.where(kept("apidopoulos22:fig6"), data="HTRU2", method="inertial descent")
    assert rows["t"][rows["margin"].argmax()] == 891
    assert "after iteration 891" in kept("apidopoulos22:fig6").caption


def test_inertial_descent_ends_with_the_largest_margin():
    for _, part in harness.groups(kept("apidopoulos22:fig6"), "data"):
        ends = {name: rows["margin"][-1] for name, rows in harness.groups(part, "method")}
        ends.pop(rp.EXACT)
        assert max(ends, key=ends.get).startswith("inertial descent")


def test_no_penalty_errs_less_than_the_first_step():
    table = kept("apidopoulos22:fig4")
    for flipped in (0.1, 0.2):
        for _, part in harness.groups(harness.where(table, flipped=flipped), "method"):
            for penalty, rows in harness.groups(part, "penalty"):
                if penalty != rp.EXACT:
                    assert rows["test_error"].min() >= rows["test_error"][0] - 1e-12


def test_the_slowest_decay_errs_least():
    table = kept("apidopoulos22:fig5")
    for flipped in (0.1, 0.2):
        for _, part in harness.groups(harness.where(table, flipped=flipped), "method"):
            ends = {name: rows["test_error"][-1] for name, rows in harness.groups(part, "penalty")}
            assert min(ends, key=ends.get) == "λₜ = 8/log(1+t)"


def test_margins_without_wrong_labels_grow_with_a_fast_decay_under_inertia():
    table = harness.where(kept("apidopoulos22:fig5"), flipped=0, method="inertial descent")
    ends = {name: rows["margin"][-1] for name, rows in harness.groups(table, "penalty")}
    assert ends["λₜ = 8/t²"] > ends["λₜ = 8/t"] > ends["λₜ = 8/log(1+t)"]


def test_sampling_overtakes_the_batch_perceptron_in_long_runs():
    """In the median of seeds, for good; and not before."""
    table = kept("ji21:fig3")
    ours, theirs = (
        np.median(harness.by_seed(harness.where(table, method=method), "margin"), axis=0)
        for method in rp.SAMPLERS[:2]
    )
    assert ours[0] < theirs[0]
    assert ours[-1] > theirs[-1]


def test_by_work_the_batch_perceptron_separates_first():
    products = {}
    for method, rows in harness.groups(kept("ji21:fig1"), "method"):
        separates = rows["margin"] > 0
        products[method] = rows["products"][separates][0] if separates.any() else math.inf
    assert min(products, key=products.get) == "batch perceptron"


def test_in_the_end_a_larger_damping_is_nearer():
    table = kept("apidopoulos22:fig3")
    ends = [
        harness.where(table, method=f"inertial descent, α = {accel}")["margin_gap"][-50:].max()
        for accel in (10, 30, 50)
    ]
    assert ends == sorted(ends, reverse=True)
    assert ends[0] < harness.where(table, method="diagonal descent")["margin_gap"][-1]


def test_inertial_descent_is_ahead_of_momentum_at_the_narrowest_width_and_behind_at_the_widest():
    for _, part in harness.groups(kept("apidopoulos22:width"), "data"):
        ours, theirs = (
            np.maximum(harness.where(part, method=method)["gap"], 1e-11)
            for method in ("inertial descent", "momentum")
        )
        assert ours[0] < theirs[0]
        assert ours[-1] > theirs[-1]


def test_early_stopping_under_a_strong_penalty_is_level_with_a_path_of_hinge_loss():
    """With wrong labels, on the same draws, within two standard errors."""
    table = kept("apidopoulos22:path")
    for flipped in (0.1, 0.2):
        early, path = (
            harness.where(table, flipped=flipped, method=method)["test_error"]
            for method in ("inertial descent stopped early, ridge penalty 100/t", rp.HINGE_PATH)
        )
        less = early - path
        assert abs(less.mean()) < 2 * less.std(ddof=1) / math.sqrt(len(less))
