"""Draws the figures of the three papers behind fastmargin, each with a CSV file of the plotted numbers.

    python reproduce.py list              every figure: its data, how long it takes, what it shows
    python reproduce.py ji21:fig2         one figure: figures/ji21-fig2.png and figures/ji21-fig2.csv
    python reproduce.py ji21              all figures of a paper
    python reproduce.py fig3              Figure 3 of every paper that has one, the shortest first
    python reproduce.py open              all figures with this in their name
    python reproduce.py ji21:fig3 images=60000 seeds=1
                                          other sizes, which the names of its files tell
    python reproduce.py ji21:fig1 digits=6,7 step=0.5
                                          other parameters: sizes, too, as all arguments of a figure
    python reproduce.py ji21:fig1 --data points.csv
                                          for your own points: numbers and a label in each line
    python reproduce.py all --quick       everything, on reduced work, into figures/quick
    python reproduce.py all --redraw --format pdf --out pdf
                                          everything as PDF into the folder pdf: nothing is computed
    python reproduce.py report            renews what README.md and the pages in figures/ show of the figures

From Python: FIGURES["ji21:fig1"](digits=(6, 7), steps=300) returns the table, and its draw(table) the Matplotlib
figure. figures/harness.py is what figures have in common: data, tables, drawing, command line. Our own studies are in
figures/studies.py.
"""

import itertools
import math
import sys
from functools import partial

try:
    import numpy as np

    import fastmargin as fm
    from figures import networks
    from figures.harness import (
        BLACK,
        BLUE,
        BOUND,
        FIGURES,
        GREEN,
        GREY,
        LOOKS,
        MIXED,
        PURPLE,
        SKY,
        VERMILLION,
        bound,
        draw_seeds,
        exponent,
        figure,
        from_here_on,
        groups,
        in_processes,
        in_text,
        iterations,
        level,
        look_of,
        main,
        name_ends,
        note,
        number,
        plain,
        planted_margin,
        program,
        rounded,
        rule,
        trajectory,
        where,
    )
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f'{error}; to install what the figures need: pip install ".[figures]"')
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = ["FIGURES", "main"]


def in_short(value, digits=2):
    """Write a number with so many digits, but without a power of ten: 0.12, 2,600."""
    return f"{float(f'{value:.{digits}g}'):,g}"


# ======================================================================================================================
# ramdas14
# ======================================================================================================================


def two_lines(r):
    """Return the 100 signed points of section 2.2, of lengths r and 1/r on two lines; their margin is sqrt(0.02)/r.

    + lies along (0.6, 0.8) and has the length r, but for one point of length 1/r. - lies along (0.8, 0.6).
    """
    lengths = np.repeat([r, 1 / r], 50)
    lengths[0] = 1 / r
    directions = np.repeat([[0.6, 0.8], [-0.8, -0.6]], 50, axis=0)
    return lengths[:, None] * directions


@figure(
    "ramdas14:example",
    "Scaling points to length 1 divides the perceptron's bound by r⁴, and its mistakes by {factor} at r = 10",
    minutes=0.05,
    r=10.0,
    height=3.2,
    trials=9,
    points=13,
    quick={"trials": 3, "points": 5},
)
def ramdas14_example(run, r, trials, points):
    """Data: 49 points of class + have length r, and one has length 1/r; 50 points of class − have length 1/r, on
    another line through 0, at 16° to the first. The bound is the largest squared length over the squared margin. [[At
    the hump no whole number of steps by short points balances one step by a long point.]]

    Section 2.2. Linear kernel, cyclic rule, medians over {trials} orders of the points, seed {seed}; the margin of the
    bound is certified to 1e-9 of itself.
    """
    rng = run.rng()
    for length in run.bar(np.geomspace(1, r, points)):
        orders = [rng.permutation(100) for _ in range(trials)]
        for kind, Z in (("as they are", two_lines(length)), ("scaled to length 1", two_lines(1))):
            margin = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-9).lower
            yield {
                "points": kind,
                "r": length,
                "bound": (Z**2).sum(axis=1).max() / margin**2,
                "mistakes": np.median([iterations(fm.perceptron, Z[order]) for order in orders]),
            }


@ramdas14_example.drawing
def _(table, ax):
    looks = {"color": BLACK, "linestyle": "-"}, {"color": VERMILLION, "linestyle": "--"}
    for (kind, rows), look in zip(groups(table, "points"), looks, strict=True):
        ax.loglog(rows["r"], rows["bound"], label=f"bound, points\n{kind}", **look | BOUND)
        if np.ptp(rows["bound"]) > 1:
            k = len(rows["r"]) // 2
            note(ax, rows["r"][k], 2 * rows["bound"][k], "50 r⁴", color=BLACK, ha="right")
        ax.loglog(rows["r"], rows["mistakes"], label=f"mistakes, points\n{kind}", **look)
    ax.set(xlabel="r: the points as they are have the lengths r and 1/r")
    ax.set(ylabel="mistakes until the perceptron\nseparates the points")
    ax.margins(x=0)
    plain(ax.xaxis, 1, 2, 5, 10, 20, 50, 100)
    plain(ax.yaxis)
    name_ends(ax, in_short)


@ramdas14_example.numbers
def _(table):
    raw, scaled = where(table, r=table["r"].max())["mistakes"]
    return {"factor": f"{raw / scaled:.0f}"}


PERCEPTRONS = {"perceptron": fm.perceptron, "NKP": fm.nkp, "SNKP": fm.snkp}


@figure(
    "ramdas14:theorem1",
    "At a margin ρ perceptron and NKP separate in about 1/ρ² iterations, SNKP in about 1/ρ; with 1,000 times "
    "the points in at most 4 times as many",
    minutes=0.3,
    panels=(1, 2),
    d=10,
    n=1000,
    inverse_margins=(3.0, 600.0),
    margin=0.02,
    sizes=(10, 10_000),
    trials=5,
    points=14,
    quick={"inverse_margins": (3.0, 10.0), "sizes": (10, 40), "trials": 1, "points": 4},
)
def ramdas14_theorem1(run, d, n, inverse_margins, margin, sizes, trials, points):
    """Data: random points of length 1 in {d} dimensions, whose largest margin is ρ. NKP, the normalised kernel
    perceptron, steps by one point, as the perceptron does; SNKP, its smoothed version, steps by all points.

    Linear kernel, medians of {trials} draws, seed {seed}. An iteration is one column of G for the perceptron and NKP,
    and a product with G, n columns, for SNKP.
    """
    rng = run.rng()
    inverse = np.geomspace(*inverse_margins, points)
    many = np.geomspace(*sizes, points - 1).astype(int)
    for panel, x, count, rho in (
        (f"n = {n:,} points", inverse, np.full(len(inverse), n), 1 / inverse),
        (f"margin ρ = {margin:g}", many, many, np.full(len(many), margin)),
    ):
        medians = []
        for k in run.bar(range(len(x)), panel):
            draws = [planted_margin(count[k], d, rho[k], rng) for _ in range(trials)]
            found = [[iterations(method, Z) for Z in draws] for method in PERCEPTRONS.values()]
            medians.append(np.median(found, axis=1))
        bounds = {"NKP": rho**-2, "SNKP": np.sqrt(8 * np.log(count)) / rho}
        for method, median in zip(PERCEPTRONS, np.transpose(medians), strict=True):
            bound = bounds.get(method, math.nan)
            yield {"panel": panel, "method": method, "x": x, "iterations": median, "bound": bound}


@ramdas14_theorem1.drawing
def _(table, by_margin, by_points):
    proved = {"NKP": "proved for NKP:\n1/ρ²", "SNKP": "proved for SNKP:\n√(8 ln n)/ρ"}
    axes = (by_margin, by_points)
    for ax, (panel, part) in zip(axes, groups(table, "panel"), strict=True):
        for method, rows in groups(part, "method"):
            ax.loglog(rows["x"], rows["iterations"], label=method, **LOOKS[method])
            if method in proved:
                label = proved[method]
                ax.loglog(rows["x"], rows["bound"], label=label, **LOOKS[method] | BOUND)
                if ax is by_margin:
                    k = 3 * len(rows["x"]) // 4
                    power = {"NKP": "1/ρ²", "SNKP": "1/ρ"}[method]
                    color = LOOKS[method]["color"]
                    note(ax, rows["x"][k], 2 * rows["bound"][k], power, color=color, ha="right")
        ax.set(title=panel, ylabel="iterations to a separator")
        ax.margins(x=0)
        plain(ax.yaxis)
    by_margin.set_xlabel("1/ρ: a smaller margin →")
    by_points.set_xlabel("number of points n")
    plain(by_margin.xaxis, 3, 10, 30, 100, 300, 1000, 3000)
    plain(by_points.xaxis)
    plain(by_points.yaxis, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
    name_ends(by_points)


def planted_inradius(n, d, thinnest, rng):
    """Draw rows, largest length 1, and return the radius of the largest ball around 0 that their hull holds.

    It is the hull of all t +- a_j e_j, whose facets are (1 - sum_j |t_j| / a_j) / (sum_j a_j^-2)^(1/2) or more from 0.
    """
    a = np.geomspace(1, thinnest, d)
    shares = rng.uniform(-1, 1, d)
    shares *= 0.5 / np.abs(shares).sum()
    corners = np.vstack((np.diag(a), -np.diag(a))) + shares * a
    Z = np.vstack((corners, rng.dirichlet(np.full(2 * d, 0.3), size=n - 2 * d) @ corners))
    scale = np.linalg.norm(Z, axis=1).max()
    return Z / scale, 0.5 / np.linalg.norm(1 / a) / scale


CERTIFIERS = {
    "von Neumann": fm.von_neumann,
    "ISNKPVN": fm.isnkpvn,
    "SNKP": fm.snkp,
    "subspace perceptron": partial(fm.subspace_perceptron, stop="separated"),
}


@figure(
    "ramdas14:theorem4",
    "If no separator exists, a proof of it takes {least} to {most} times fewer iterations than the theorems allow",
    minutes=0.5,
    panels=(2, 3),
    height=2.2,
    n=200,
    d=40,
    thinnest=(1e-3, 0.1),
    eps=(1e-2, 1e-6),
    trials=5,
    points=17,
    quick={"eps": (1e-2, 1e-3), "trials": 1, "points": 5},
)
def ramdas14_theorem4(run, n, d, thinnest, eps, trials, points):
    """Data: {n} points in {d} dimensions; the hull of all y·x holds a ball of radius |ρ| around 0. A certificate to ε
    proves that no margin is ε or more. An iteration multiplies the {n} × {n} kernel matrix by a vector. SNKP is the
    smoothed kernel perceptron of Ramdas and Peña, and ISNKPVN restarts it.

    Linear kernel, medians of {trials} draws, seed {seed}. ISNKPVN: with the ℓ2 prox. Proved: Theorem 4 for ISNKPVN;
    √(8 ln n)/ε for SNKP; that of the subspace perceptron is ours. The CSV file has von Neumann's method, too,
    of which an iteration is a column of the matrix.
    """
    if n < 2 * d:
        raise ValueError(f"n must be 2 d or more, the corners of the hull, got {n} and d = {d}")
    rng = run.rng()
    eps = np.geomspace(*eps, points)
    for hull, axis in zip(("thin hull", "thicker hull"), thinnest, strict=True):
        draws = [planted_inradius(n, d, axis, rng) for _ in range(trials)]
        rho = np.median([radius for _, radius in draws])
        bounds = {
            "ISNKPVN": 2 * math.sqrt(8 * n) * np.fmin(1 / eps, 1 / rho) * (np.log2(1 / eps) + 1),
            "SNKP": math.sqrt(8 * math.log(n)) / eps,
            "subspace perceptron": (1.05 * (2 * math.log(2 * n) - 0.75) / eps) ** (2 / 3),
        }
        for method, algorithm in run.bar(CERTIFIERS.items(), hull):
            counts = [[iterations(algorithm, Z, eps=least) for least in eps] for Z, _ in draws]
            yield {
                "hull": hull,
                "method": method,
                "rho": rho,
                "eps": eps,
                "iterations": np.median(counts, axis=0),
                "bound": bounds.get(method, math.nan),
            }


PROVED = {"ISNKPVN": "ln(2/ε)/max(ε, |ρ|)", "SNKP": "1/ε", "subspace perceptron": "$ε^{−2/3}$"}


@ramdas14_theorem4.drawing
def _(table, *axes):
    """Draw a row for each hull, of the methods with a bound."""
    panels = iter(axes)
    for hull, part in groups(table, "hull"):
        for method, rows in groups(part, "method"):
            if method in PROVED:
                ax = next(panels)
                inverse = 1 / rows["eps"]
                look = {"color": BLACK, "linestyle": "-"}
                ax.loglog(inverse, rows["iterations"], label="needed", **look)
                ax.plot(inverse, rows["bound"], label="proved", **look | BOUND)
                title = f"{method}\nproved: ∝ {PROVED[method]}"
                ax.set(title="" if ax in axes[3:] else title, xlabel="1/ε: a finer certificate →")
                ax.set(ylabel="iterations", ylim=(2, 1e9))
                words = f"{hull}: |ρ| = 1/{1 / rows['rho'][0]:,.0f}"
                note(ax, 0.04, 0.92, words, color=BLACK, transform=ax.transAxes)
                ax.margins(x=0)
                ax.label_outer()
        name_ends(ax)


@ramdas14_theorem4.numbers
def _(table):
    slack = table["bound"] / table["iterations"]
    ends = bound(np.nanmin(slack), 1, math.floor), bound(np.nanmax(slack), 2, math.ceil)
    return dict(zip(("least", "most"), map(in_short, map(float, ends)), strict=True))


# ======================================================================================================================
# ji21
# ======================================================================================================================


def ji21_methods(step):
    """Return {method: algorithm}; the step is that of both gradient descents, in units of 1/(longest point)²."""
    return {
        "gradient descent": partial(fm.gradient_descent, step=step),
        "normalised GD": partial(fm.normalized_gradient_descent, step=step),
        "batch perceptron": fm.batch_perceptron,
        "momentum": fm.momentum,
    }


@figure(
    "ji21:fig1",
    "Momentum's gap falls like 1/t² in the iterations t, with slope\N{NO-BREAK SPACE}{slope}; by work the batch "
    "perceptron separates first",
    minutes=2,
    data="mnist",
    panels=(2, 1),
    height=2.5,
    takes_points=True,
    digits=(0, 1),
    steps=10_000,
    step=1.0,
    quick={"steps": 300},
)
def ji21_fig1(run, digits, steps, step):
    """Data: {data}, linear kernel. The relative gap is 1 − margin / largest margin. A product multiplies the n × n
    kernel matrix by a vector; an iteration takes one, or 1/n with the batch perceptron. GD is gradient descent.

    Proved is the gap 4 (1 + ln n)(1 + 2 ln(t + 1))/(ρ(t + 1))², ρ the largest margin. {Item}s scaled to length 1 at
    most; {steps:,} iterations, no randomness. [[The slope is fitted to the last 29/30 of them.]]
    """
    X, y, *_ = run.two_classes(*digits, tests=False)
    G = fm.features(X, y, normalize="max")
    best = fm.max_margin(G, tol=1e-9).lower
    for method, algorithm in run.bar(ji21_methods(step).items()):
        trace = trajectory(algorithm, G, steps).trace
        t = trace["iteration"]
        bound = 4 * (1 + math.log(len(y))) * (1 + 2 * np.log(t + 1)) / (best * (t + 1.0) ** 2)
        yield {
            "method": method,
            "t": t,
            "products": trace["products"],
            "margin": trace["lower"],
            "largest": best,
            "bound": bound,
        }


@ji21_fig1.drawing
def _(table, by_iterations, by_work):
    by_work.sharey(by_iterations)
    separable = table["largest"][0] > 0  # digits of one's own may not be
    for method, rows in groups(table, "method"):
        gap = 1 - rows["margin"] / rows["largest"] if separable else -rows["margin"]
        by_iterations.loglog(rows["t"], gap, label=method, **LOOKS[method])
        by_work.loglog(rows["products"], gap, label=method, **LOOKS[method])
        if separable and gap[-1] < 1:
            first = rows["products"][gap < 1][0]
            by_work.plot(first, 1, "o", color=BLACK, zorder=3)
            note(by_work, 1.2 * first, 2.5, in_short(first, 3), color=BLACK, ha="center")
    by_iterations.set(xlabel="iteration t", ylabel="−margin, as no plane separates")
    by_work.set(ylabel=by_iterations.get_ylabel())
    by_work.set(xlabel="products with the kernel matrix; dots: until all points are right")
    if separable:
        proved = rows["bound"] / rows["largest"]
        label = "proved for momentum:\nabout ∝ ln(t)/t²"
        for ax, x in ((by_iterations, rows["t"]), (by_work, rows["products"])):
            ax.loglog(x, proved, label=label, **LOOKS["momentum"] | BOUND)
            ax.set(ylabel="relative gap", ylim=(3e-5, 100))
        late = rows["t"][rows["t"] >= rows["t"][-1] / 30]
        guide = gap[-1] / 3 * (late[-1] / late) ** 2
        by_iterations.loglog(late, guide, color=GREY, linestyle="-", linewidth=1)
        note(by_iterations, late[0] / 1.2, guide[0], "slope −2", ha="right", va="center")
        level(by_iterations, 1, "below: separated", above=False)
        rule(by_work, 1, zorder=1)
    for ax in (by_iterations, by_work):
        plain(ax.xaxis, *10.0 ** np.arange(-8, 9, 2))
        plain(ax.yaxis)
        ax.margins(x=0)
        name_ends(ax)


@ji21_fig1.numbers
def _(table):
    momentum = where(table, method="momentum")
    late = momentum["t"] >= momentum["t"][-1] / 30
    gap = momentum["largest"] - momentum["margin"]
    return {"slope": number(exponent(momentum["t"][late], gap[late])[0], ".2f")}


@figure(
    "ji21:fig2",
    "Without a separator momentum's upper bound on margins nears\N{NO-BREAK SPACE}0; its test error falls to "
    "{least} %, then rises to {last} %",
    minutes=3,
    data="mnist",
    panels=(2, 1),
    height=2.5,
    takes_points=True,
    digits=(3, 5),
    steps=10_000,
    step=1.0,
    quick={"steps": 300},
)
def ji21_fig2(run, digits, steps, step):
    """Data: {data}[[, which no plane separates]], and {tests:,} test {item}s; linear kernel. The margin is that of
    the worst {item}, below 0 on the wrong side. Momentum certifies that the largest margin lies in the band. GD is
    gradient descent.

    {Item}s scaled to length 1 at most; {steps:,} iterations, no randomness. An iteration is a product with the kernel
    matrix, but for the batch perceptron one column.
    """
    X, y, X_test, y_test = run.two_classes(*digits)
    G = fm.features(X, y, normalize="max")
    for method, algorithm in run.bar(ji21_methods(step).items()):
        found = trajectory(algorithm, G, steps)
        wrong = found.iterates @ G.coordinates() @ X_test.T * y_test <= 0
        yield {
            "method": method,
            "t": found.trace["iteration"],
            "margin": found.trace["lower"],
            "upper": found.trace["upper"],
            "test_error": np.mean(wrong, axis=1),
        }


@ji21_fig2.drawing
def _(table, margins, errors):
    margins.sharex(errors)
    has_errors = (table["test_error"] > 0.0).all()
    plot = errors.loglog if has_errors else errors.semilogx
    for method, rows in groups(table, "method"):
        margins.semilogx(rows["t"], rows["margin"], label=method, **LOOKS[method])
        plot(rows["t"], 100 * rows["test_error"], label=method, **LOOKS[method])
    momentum = where(table, method="momentum")
    ends = momentum["margin"], momentum["upper"]
    look = {"color": BLUE, "alpha": 0.15, "linewidth": 0}
    margins.fill_between(momentum["t"], *ends, **look)
    margins.plot(momentum["t"], momentum["upper"], color=BLUE, linestyle="-", linewidth=0.9)
    level(margins, 0, "above: separated", 0.98, ha="right")
    note(
        margins, 1.2, 1.2 * momentum["upper"][0], "momentum's upper bound", color=BLUE, va="bottom"
    )
    margins.set(ylabel="margin", ylim=(-0.67, 0.27))
    k = momentum["test_error"].argmin()
    least = momentum["t"][k], 100 * momentum["test_error"][k]
    errors.plot(*least, "o", color=BLUE)
    words = f"{least[1]:.1f} % at t = {least[0]:,.0f}"
    note(errors, least[0], 0.85 * least[1], words, color=BLUE, ha="center")
    errors.set(xlabel="iteration t", ylabel="test error in %", ylim=(2.5, 60))
    if has_errors:
        plain(errors.yaxis, 3, 4, 5, 7, 10, 20, 30, 50)
    for ax in (margins, errors):
        plain(ax.xaxis)
        ax.margins(x=0)
        name_ends(ax)


@ji21_fig2.numbers
def _(table):
    error = 100 * where(table, method="momentum")["test_error"]
    return {"least": f"{error.min():.1f}", "last": f"{error[-1]:.1f}"}


SAMPLERS = ("sampling with momentum", "batch perceptron", "batch perceptron, last iterate")
EXACT = "largest margin"
STORED = 20_000  # images, of which the kernel matrix fits into memory


class TangentKernel(fm.Kernel):
    """<relu(Wx), relu(Wx')> / m + <x, x'> (how many units are active at both points) / m, of m hidden units.

    ``function`` gives Wx, and ``degree`` is m.  A row of prepared points has relu(Wx), the active units and x.
    """

    def prepare(self, X):
        hidden = self.function(X)
        return super().prepare(np.hstack((np.maximum(hidden, 0.0), hidden > 0.0, X)))

    def parts(self, points):
        m = self.degree
        return points.rows[:, :m], points.rows[:, m : 2 * m], points.rows[:, 2 * m :]

    def _fill(self, A, B, out):
        hidden, active, x = (a @ b.T for a, b in zip(self.parts(A), self.parts(B), strict=True))
        out[:] = (hidden + active * x) / self.degree

    def diagonal(self, points):
        hidden, active, x = ((part**2).sum(axis=1) for part in self.parts(points))
        return (hidden + active * x) / self.degree

    def rounding(self, points):
        return 2.0 * points.terms() * np.finfo(float).eps


def tangent_gram(W, X, scaling):
    """Return K of a random network with the hidden weights W, (m, d); on demand where it would not fit into memory."""
    kernel = TangentKernel("tangent", degree=len(W), function=lambda X: X @ W.T)
    make = fm.gram if len(X) <= STORED else fm.lazy_gram
    return make(X, kernel=kernel, normalize=scaling)


def sampling_rows(job, width, steps, scaling, X, y, X_test, y_test):
    """Return the rows of a method, job = (name, seed), on the tangent kernel of a random network."""
    method, seed = job
    W = np.random.default_rng(seed).normal(size=(width, X.shape[1]))
    G = fm.pair_gram(tangent_gram(W, X, scaling), y, 10)
    sampling = partial(fm.adaptive_sampling, seed=seed)
    small_step = math.sqrt(math.log(9 * len(y)) / steps)
    algorithm = {
        "sampling with momentum": sampling,
        "batch perceptron": fm.batch_perceptron,
        "batch perceptron, last iterate": partial(fm.batch_perceptron, averaged=False),
        "sampling without momentum": partial(sampling, momentum=False),
        "sampling without momentum, step of Theorem 4.1": partial(
            sampling, momentum=False, step=small_step
        ),
        EXACT: fm.subspace_perceptron,
    }[method]
    options = {"max_iter": steps, "trace_at": steps >> np.arange(steps.bit_length() - 6)}
    if method == EXACT:
        options = {"max_iter": 64, "trace_at": []}
    found = algorithm(G, keep_iterates=True, **options)
    trace = found.trace[1:]
    scores = G.decision_function(found.iterates[1:], X_test)
    return {
        "method": method,
        "seed": seed,
        "t": trace["iteration"],
        "margin": trace["lower"],
        "upper": trace["upper"],
        "test_error": np.mean(scores.argmax(axis=2) != y_test, axis=1),
    }


def spread_of(seeds):
    return "s, by median and range, and of 1 without momentum" if seeds > 1 else ""


@figure(
    "ji21:fig3",
    "On {images} images sampling ends at a relative gap of {ours} with momentum and {without} without; the batch "
    "perceptron's last iterate at {last}",
    is_measured=True,
    minutes=4.5,
    data="mnist",
    panels=(2, 1),
    height=2.7,
    width=128,
    images=10_000,
    seeds=3,
    steps=2**15,
    scaling="max",
    quick={"images": 1000, "seeds": 1, "steps": 2**8},
    sample={"images": 2000, "seeds": 1, "steps": 2**13},
)
def ji21_fig3(run, width, images, seeds, steps, scaling):
    """Data: {images:,} images of MNIST, ten digits; tangent kernel of a random ReLU network. The margin is that of the
    worst pair of an image and a wrong digit; the relative gap is the missing share of the largest margin, for which its
    best certified upper bound stands. Curves are of {seeds} seed{spread}.

    Network of width {width}, features scaled to length 1 at most; scaling=unit: to length 1. {pairs:,} pairs, {tests:,}
    test images. An iteration is a column of the kernel matrix. Weights and samples by seed, from {seed} on; sampling
    without momentum by the first alone, with step 1 and with Theorem 4.1's, √(ln(pairs)/{steps:,}). Up to 20,000 images
    the bound is that of 64 products of the subspace perceptron. All images, the paper's size: images=60000 seeds=1.
    """
    X, y, X_test, y_test = (array[:images] for array in run.mnist())
    run.facts |= {"images": len(y), "tests": len(y_test), "pairs": 9 * len(y)}
    run.facts["spread"] = spread_of(seeds)
    jobs = [(method, seed) for seed in range(run.seed, run.seed + seeds) for method in SAMPLERS]
    for method in ("sampling without momentum", "sampling without momentum, step of Theorem 4.1"):
        jobs.append((method, run.seed))
    if len(y) <= STORED:
        jobs += [(EXACT, seed) for seed in range(run.seed, run.seed + seeds)]
    data = (X.astype(np.float32), y, X_test, y_test)
    for row in in_processes(run, sampling_rows, jobs, width, steps, scaling, *data):
        yield row | {"images": len(y)}


def relative_gaps(table):
    """Return 1 − margin / largest margin, for which the least upper bound of a seed stands."""
    largest = {seed: rows["upper"].min() for seed, rows in groups(table, "seed")}
    return 1 - table["margin"] / [largest[seed] for seed in table["seed"]]


@ji21_fig3.drawing
def _(table, gaps, errors):
    gaps.sharex(errors)
    table["gap"] = relative_gaps(table)
    table["percent"] = 100 * table["test_error"]
    small_step = math.sqrt(math.log(9 * table["images"][0]) / table["t"].max())
    labels = {
        "sampling with momentum": "sampling with\nmomentum",
        "batch perceptron": "batch perceptron,\naverage",
        "batch perceptron, last iterate": "batch perceptron,\nlast iterate",
        "sampling without momentum": "sampling without\nmomentum, step 1",
        "sampling without momentum, step of Theorem 4.1": (
            f"without momentum, step\n{rounded(small_step)} of Theorem 4.1"
        ),
    }
    for method, rows in groups(table, "method"):
        if method != EXACT:
            look = LOOKS[method] | {"edge": 0.6}
            draw_seeds(gaps, rows, "gap", labels[method], **look)
            draw_seeds(errors, rows, "percent", labels[method], **look)
    gaps.set(xscale="log", yscale="log", ylabel="relative gap")
    errors.set(xscale="log", yscale="log", ylabel="test error in %")
    errors.set_xlabel("iteration t, which reads one column of the kernel matrix")
    level(gaps, 1, "below: all pairs right", above=False)
    plain(gaps.yaxis, *10.0 ** np.arange(-6, 7))
    plain(errors.yaxis, 1, 2, 3, 5, 10, 20, 30, 50, 100)
    for ax in (gaps, errors):
        plain(ax.xaxis)
        ax.margins(x=0)
    name_ends(gaps, in_short)
    name_ends(errors, "{:.1f} %".format)


@ji21_fig3.numbers
def _(table):
    """Have the gaps after the last iteration, medians of the seeds; without momentum that of the better step."""
    table = table | {"gap": relative_gaps(table)}
    ends = groups(where(table, t=table["t"].max()), "method")
    gaps = {method: np.median(rows["gap"]) for method, rows in ends}
    return {
        "images": f"{table['images'][0]:,.0f}",
        "ours": in_short(gaps["sampling with momentum"]),
        "last": in_short(gaps["batch perceptron, last iterate"]),
        "without": in_short(min(gap for method, gap in gaps.items() if "without" in method)),
    }


FIG4_NETWORKS = {
    "with biases": networks.ALEXNET,
    "without biases": networks.without_biases(networks.ALEXNET),
}


def kernel_rows(job, steps, epochs, step, batch, X, y, X_test, y_test):
    """Train a network, job = (network, seed), and return the rows of its tangent kernels."""
    network, seed = job
    layers = FIG4_NETWORKS[network]
    rows = []
    for epoch, weights in networks.train(layers, X, y, epochs, seed, step, batch).items():
        K, outputs = networks.tangent_kernel(layers, weights, X, X)
        cross, test_outputs = networks.tangent_kernel(layers, weights, X_test, X)
        lengths = np.sqrt(K.diagonal().astype(float))
        K = (K + K.T) / 2 / np.outer(lengths, lengths)  # rounding made K slightly unsymmetric
        G = fm.pair_gram(fm.gram(K, kernel="precomputed", normalize=None), y, 10)
        walk = trajectory(fm.adaptive_sampling, G, steps, 6, seed=seed)
        best = fm.max_margin(G, tol=1e-6)
        alphas = np.vstack((walk.iterates, best.alpha))
        # The length of a test image's features multiplies all its scores and changes no class.
        scores = G.decision_function(alphas, cross / lengths)
        *on_the_way, wrong = scores.argmax(axis=2) != y_test
        if epoch == 0:
            untrained = wrong
        change = wrong.astype(float) - untrained
        row = {
            "network": network,
            "seed": seed,
            "epoch": epoch,
            "t": walk.trace["iteration"],
            "sampling_error": np.mean(on_the_way, axis=1),
            "kernel_error": np.mean(wrong),
            "network_error": np.mean(test_outputs.argmax(axis=1) != y_test),
            "train_error": np.mean(outputs.argmax(axis=1) != y),
            "change": np.mean(change),
            "change_error": change.std(ddof=1) / math.sqrt(len(change)),
        }
        rows.append(row)
    return rows


@figure(
    "ji21:fig4",
    "Training improves the tangent kernel for {better} of {all} networks, for {surely} of them beyond two standard "
    "errors",
    minutes=65,
    data="cifar10",
    panels=(1, 3),
    height=3.1,
    images=128,
    tests=10_000,
    seeds=12,
    epochs=[0, 64, 256, 1024],
    step=0.1,
    batch=16,
    steps=2**15,
    quick={"tests": 500, "seeds": 2, "epochs": [0, 8], "steps": 2**13},
)
def ji21_fig4(run, images, tests, seeds, epochs, step, batch, steps):
    """Data: CIFAR-10, {images} training and {tests:,} test images, ten classes. The networks are small AlexNets, hollow
    markers those without biases. The tangent kernel is that of the gradients of a network's outputs; its error is that
    of the predictor with its largest margin. An error of 90 % is that of one class for all images.

    AlexNet with a quarter of its channels and dense layers of 512 units, at first uniform in ±1/√(fan-in), with biases
    for {seeds} seeds, without for half of them; SGD, step {step:g}, batches of {batch}. The seed, from {seed} on,
    decides weights, batches and samples. Colours standardised, features of length 1, {pairs:,} pairs; largest margins
    known to 1e-6. Right: sampling with momentum on its way to the largest margin, for the network whose kernel gains
    most; level: this network, trained. Standard errors are paired by test image.
    """
    X, y, X_test, y_test = run.cifar10()
    X, y, X_test, y_test = X[:images], y[:images], X_test[:tests], y_test[:tests]
    run.facts["pairs"] = 9 * len(y)
    mean = X.mean(axis=(0, 1, 2))
    deviation = X.std(axis=(0, 1, 2))
    X, X_test = (((x - mean) / deviation).astype(np.float32) for x in (X, X_test))
    data = (X, y, X_test, y_test)
    jobs = [("with biases", run.seed + k) for k in range(seeds)]
    jobs += [("without biases", run.seed + k) for k in range((seeds + 1) // 2)]
    for rows in in_processes(run, kernel_rows, jobs, steps, epochs, step, batch, *data):
        yield from rows


@ji21_fig4.drawing
def _(table, gains, medians, walks):
    gains.get_gridspec().set_width_ratios((1.5, 1, 1))
    ends = where(table, t=table["t"].max())  # a line for each kernel
    trained = where(ends, epoch=ends["epoch"].max())
    with_biases = where(trained, network="with biases")
    most = with_biases["change"].argmin()
    best = where(table, network="with biases", seed=with_biases["seed"][most])
    looks = itertools.cycle(zip((BLACK, "0.55", SKY, BLUE), ("-", "--", "-.", ":"), strict=True))
    for (epoch, rows), (color, dash) in zip(groups(best, "epoch"), looks, strict=False):
        look = {"color": color, "linestyle": dash}
        label = f"kernel, epoch {epoch:,.0f}"
        walks.semilogx(rows["t"], 100 * rows["sampling_error"], label=label, **look)
    of_network = {"color": PURPLE, "linestyle": MIXED}
    error = 100 * with_biases["network_error"][most]
    walks.axhline(error, label=f"network, epoch {epoch:,.0f}", **of_network)
    walks.set(title="one network:\nsampling on its kernels", xlabel="iteration t")
    plain(walks.xaxis, 1, 100, 10_000)
    walks.margins(x=0)

    part = where(ends, network="with biases")
    epochs = np.unique(part["epoch"])
    places = np.arange(len(epochs))
    for name, label, look in (
        ("network_error", "networks", of_network),
        ("kernel_error", "kernels", LOOKS["max_margin"]),
    ):
        rows = {"seed": part["seed"], "t": np.searchsorted(epochs, part["epoch"])}
        draw_seeds(medians, rows | {name: 100 * part[name]}, name, label, marker="o", **look)
    medians.set_xticks(places, [f"{epoch:,.0f}" for epoch in epochs])
    medians.set(title=f"{len(with_biases['seed'])} networks with biases,\nmedians and ranges")
    medians.set_xlabel("epochs of training")
    medians.legend(loc="upper right", borderpad=0)
    for ax in (medians, walks):
        ax.set(ylabel="test error in %", ylim=(71, 95))
    name_ends(walks)

    order = np.argsort(trained["change"])
    places = np.empty(len(order))
    places[order] = -np.arange(len(order))
    look = {"color": GREEN, "linestyle": "none", "marker": "o", "markersize": 5, "capsize": 2}
    for network, color in (("with biases", GREEN), ("without biases", "white")):
        chosen = trained["network"] == network
        change, error = (100 * trained[name][chosen] for name in ("change", "change_error"))
        look |= {"markerfacecolor": color}
        gains.errorbar(change, places[chosen], xerr=2 * error, elinewidth=1, **look)
    rule(gains, x=0)
    gains.set(
        title=f"all {len(order)} networks:\nkernels of epoch {epochs[-1]:,.0f} against {epochs[0]:.0f}",
        yticks=[],
    )
    gains.set(
        ylabel="networks",
        xlabel="change of the kernel's test error\nin points, ± 2 standard errors",
    )


@ji21_fig4.numbers
def _(table):
    trained = where(table, t=table["t"].max(), epoch=table["epoch"].max())
    change = trained["change"]
    surely = change < -2 * trained["change_error"]
    return {"better": str(sum(change < 0)), "surely": str(sum(surely)), "all": str(len(change))}


# ======================================================================================================================
# apidopoulos22
# ======================================================================================================================


@figure(
    "apidopoulos22:fig1",
    "Of these three losses the hinge loss alone is 0 from a margin of 1 on",
    minutes=0.02,
    height=3.2,
)
def apidopoulos22_fig1(run):
    """No data: the losses are drawn from their formulas. Margin m of a point: its label, +1 or −1, times its score."""
    m = np.linspace(-2.5, 2.5, 1001)
    yield {"loss": "exponential loss: exp(−m)", "m": m, "value": np.exp(-m)}
    yield {"loss": "logistic loss: ln(1 + exp(−m))", "m": m, "value": np.logaddexp(0.0, -m)}
    yield {"loss": "hinge loss: max(0, 1 − m)", "m": m, "value": np.maximum(0.0, 1.0 - m)}


@apidopoulos22_fig1.drawing
def _(table, ax):
    for loss, rows in groups(table, "loss"):
        ax.plot(rows["m"], rows["value"], label=loss)
    ax.set(xlabel="margin m of a point", ylabel="loss", xlim=(-2, 2.5), ylim=(-0.2, 7.6))
    ax.legend(loc="upper right")


SCHEDULES = {  # how they are written
    "1/t": "{}/t",
    "1/log(1+t)": "{}/log(1+t)",
    "1/sqrt(t)": "{}/√t",
    "1/t^2": "{}/t²",
    "2^-t": "{}/2ᵗ",
}


def penalty(lam, lam0):
    """Write the penalty λ₀ λ(t), for λ₀ a number or a sign."""
    if lam not in SCHEDULES:
        raise ValueError(f"lam must be one of {', '.join(SCHEDULES)}, got {lam}")
    return SCHEDULES[lam].format(lam0 if isinstance(lam0, str) else in_text(lam0))


def toy_runs(run, lam, lam0, accel, spread, steps):
    """Return the 80 signed points of Figures 2 and 3 and {method: its weights w_t for t = 1, .., steps}.

    The coordinates of the support vectors, which are the first two points of each class, add up to 2, those of the
    other points to 2.2 or more: the weights of the largest margin are (1/2, 1/2).
    """
    support = np.array([[0.5, 1.5], [1.5, 0.5]])
    run.facts["fading"] = penalty(lam, lam0)
    far = run.rng().normal((2.0, 2.0), spread, size=(100, 2))
    far = far[far.sum(axis=1) > 2.2][:76]
    Z = np.vstack((support, far[:38], support, far[38:]))
    methods = {"diagonal descent": fm.diagonal_descent}
    for alpha in accel:
        method = partial(fm.inertial_diagonal_descent, accel=alpha)
        methods[f"inertial descent, α = {alpha:g}"] = method
    options = {"lam": lam, "lam0": lam0, "step": 1 / np.linalg.norm(Z, 2) ** 2}
    paths = {}
    for name, method in methods.items():
        # So many looks a decade are at every iteration.
        paths[name] = (
            trajectory(method, fm.features(Z, 1, normalize=None), steps, 10**4, **options).iterates
            @ Z
        )
    return Z, paths


TOY = {
    "lam": "1/t",
    "lam0": 4.0,
    "accel": [10.0, 30.0, 50.0],
    "spread": 0.45,
    "steps": 1000,
    "quick": {"steps": 200},
}


@figure(
    "apidopoulos22:fig2",
    "All methods find one line, that of the largest margin, to within {angle}°",
    minutes=0.05,
    panels=(1, 2),
    height=3.3,
    **TOY,
)
def apidopoulos22_fig2(run, **sizes):
    """Data: 80 points in the plane, in two classes. Diagonal descent steps on hinge loss plus a ridge penalty that
    fades; inertial descent adds inertia t/(t + α). Left: the lines between the classes after {steps:,} steps[[, which
    coincide]]. Right: the angle from each to the line of the largest margin.

    Two support vectors a class, ±(1/2, 3/2) and ±(3/2, 1/2), other points of N(±(2, 2), standard deviation {spread:g}),
    seed {seed}. Linear kernel, penalty λₜ = {fading}, steps of 1/‖Z‖² for the signed points Z.
    """
    Z, paths = toy_runs(run, **sizes)
    support = Z[:2]
    kinds = {
        "class +1": Z[:40],
        "class −1": -Z[40:],
        "support vectors: nearest to the line": np.vstack((support, -support)),
    }
    kinds |= {method: w[-1:] for method, w in paths.items()}
    for kind, points in kinds.items():
        yield {"kind": kind, "a": points[:, 0], "b": points[:, 1]}


def away_from_best(w):
    """Return the angle in degrees between weights and those of the largest margin, (1/2, 1/2)."""
    return abs(math.degrees(math.atan2(w["b"][0], w["a"][0]) - math.pi / 4))


@apidopoulos22_fig2.drawing
def _(table, ax, angles):
    (_, up), (_, down), (_, support), *lines = groups(table, "kind")
    for method, w in lines:
        slope = -w["a"][0] / w["b"][0]
        ax.axline((0, 0), slope=slope, color=BLACK, linestyle="-", linewidth=2.5)
        angles.plot(away_from_best(w), method, "o", color=BLACK)
    worst = max((away_from_best(w), method) for method, w in lines)
    note(
        angles,
        0.4 * worst[0],
        worst[1],
        f"{bound(worst[0], 2, math.ceil)}°",
        color=BLACK,
        ha="right",
    )
    for point in zip(support["a"], support["b"], strict=True):
        ax.axline(point, slope=slope, color=GREY, linestyle="--", linewidth=1)
    ax.plot(up["a"], up["b"], "o", color=BLUE, markersize=4)
    ax.plot(down["a"], down["b"], "s", color=VERMILLION, markersize=4, fillstyle="none")
    look = {"color": BLACK, "fillstyle": "none", "markersize": 10}
    ax.plot(support["a"], support["b"], "o", **look)
    note(ax, 2, 3.5, "class +1", color=BLUE, ha="center")
    note(ax, -2, -3.5, "class −1", color=VERMILLION, ha="center")
    note(ax, -1.9, -0.7, "support\nvectors", color=BLACK, ha="right")
    arrow = {"arrowstyle": "<->", "shrinkA": 0, "shrinkB": 0, "color": GREY}
    ax.annotate("", (-1, 3), (-2, 2), arrowprops=arrow)
    note(ax, -0.9, 3.3, "margin")
    ax.set(
        aspect="equal", xlim=(-4, 4), ylim=(-4, 4), xticks=range(-4, 5, 2), yticks=range(-4, 5, 2)
    )
    ax.set(xlabel="first coordinate of a point", ylabel="second coordinate")
    angles.set(xscale="log", xlabel="angle in degrees", ylim=(len(lines) - 0.5, -0.5))


@apidopoulos22_fig2.numbers
def _(table):
    _, _, _, *lines = groups(table, "kind")
    angles = [away_from_best(w) for _, w in lines]
    return {"angle": bound(max(angles), 2, math.ceil)}


ROUNDING = 3e-14  # The gaps are differences of numbers near √2, which rounding may move by 1e-14.


@figure(
    "apidopoulos22:fig3",
    "After 1,000 steps inertial descent is nearer to the largest margin than diagonal descent; the larger α, the "
    "nearer",
    minutes=0.1,
    height=3.6,
    noise=ROUNDING,
    **TOY,
)
def apidopoulos22_fig3(run, steps, **sizes):
    """Data: 80 points in the plane, in two classes that a line separates. Both descents step on hinge loss plus a ridge
    penalty that fades; inertia is t/(t + α). As margins swing, the largest difference from t on is drawn; 3·10⁻¹⁴, the
    size of rounding, stands for all below.

    As Figure 2: support vectors ±(1/2, 3/2) and ±(3/2, 1/2), other points of N(±(2, 2), standard deviation {spread:g}),
    seed {seed}; linear kernel, penalty λₜ = {fading}, steps of γ = 1/‖Z‖² for the signed points Z. Predicted: 1 − γμ a
    step, where μ is the least eigenvalue, but for 0, of the support vectors' kernel matrix; the line goes through the
    last gap.
    """
    Z, paths = toy_runs(run, steps=steps, **sizes)
    t = np.arange(1, steps + 1)
    # Of the kernel matrix of the four support vectors the eigenvalues are 8, 2, 0 and 0.
    rate = 1 - 2 / np.linalg.norm(Z, 2) ** 2
    for method, w in paths.items():
        direction = w / np.linalg.norm(w, axis=1, keepdims=True)
        gap = math.sqrt(2) - (direction @ Z.T).min(axis=1)
        predicted = gap[-1] * rate ** (t - steps) if method == "diagonal descent" else math.nan
        yield {"method": method, "t": t, "margin_gap": gap, "predicted": predicted}


@apidopoulos22_fig3.drawing
def _(table, ax):
    for k, (method, rows) in enumerate(groups(table, "method")):
        look = look_of(method, k)
        gap = np.maximum(from_here_on(rows["margin_gap"]), ROUNDING)
        ax.semilogy(rows["t"], gap, label=method.replace(", ", ",\n"), **look)
    rows = where(table, method="diagonal descent")
    factor = rows["predicted"][1] / rows["predicted"][0]
    label = f"predicted: a factor\n{factor:.4f} a step"
    ax.semilogy(rows["t"], rows["predicted"], label=label, **LOOKS["diagonal descent"] | BOUND)
    ax.set(xlabel="iteration t", ylabel="largest margin − margin reached", ylim=(5e-15, 0.1))
    level(ax, ROUNDING, "size of rounding", above=False)
    ax.margins(x=0)
    name_ends(ax)


def with_flips(y, share, rng):
    """Return labels of which this share is flipped."""
    noisy = y.copy()
    noisy[rng.permutation(len(y))[: round(len(y) * share)]] *= -1
    return noisy


def noisy_problem(rng, flipped, points, spread, sigma2):
    """Draw points, half for training, with a share of labels flipped: G, its max_margin, test points and labels."""
    y = np.tile(np.repeat([-1, 1], points), 2)
    X = y[:, None] * 0.5 + rng.normal(scale=spread, size=(len(y), 2))
    n = 2 * points
    G = fm.gram(X[:n], with_flips(y[:n], flipped, rng), sigma2=sigma2)
    return G, fm.max_margin(G, tol=1e-9), X[n:], y[n:]


def outcome(trace, alphas, G, X_test, y_test):
    """Return t, margin and test error along a trajectory of weights of G."""
    wrong = G.decision_function(alphas, X_test) * y_test <= 0
    return trace["iteration"], trace["lower"], np.mean(wrong, axis=1)


def noisy_rows(run, penalties, shares, draws, steps, accel, points, spread, sigma2):
    """Yield the medians over draws of diagonal and inertial descent for each {label: (lam, lam0)}."""
    run.facts["sigma"] = f"{math.sqrt(sigma2):g}"
    methods = {
        "diagonal descent": fm.diagonal_descent,
        "inertial descent": partial(fm.inertial_diagonal_descent, accel=accel),
    }
    for flipped in run.bar(shares):
        problems = []
        for draw in range(draws):
            rng = np.random.default_rng((run.seed, draw))
            problems.append(noisy_problem(rng, flipped, points, spread, sigma2))
        for method, algorithm in methods.items():
            found = {label: [] for label in (*penalties, EXACT)}
            for G, best, *test in problems:
                for label, (lam, lam0) in penalties.items():
                    walk = trajectory(algorithm, G, steps, lam=lam, lam0=lam0)
                    found[label].append(outcome(walk.trace, walk.iterates, G, *test))
                found[EXACT].append(outcome(best.trace[-1:], best.alpha[None], G, *test))
            for label, outcomes in found.items():
                t, margin, error = np.median(outcomes, axis=0)
                yield {
                    "flipped": flipped,
                    "method": method,
                    "penalty": label,
                    "t": t,
                    "margin": margin,
                    "test_error": error,
                }


NOISY = {
    "minutes": 3,
    "panels": (2, "flipped"),
    "height": 2.3,
    "noise": 1e-12,  # Margins near 0 are differences of scores near 1.
    "accel": 3.0,
    "points": 300,
    "spread": 0.4,
    "sigma2": 0.15**2,
    "shares": [0.0, 0.1, 0.2],
    "draws": 20,
    "steps": 2000,
    "quick": {"draws": 2, "steps": 100},
}


@figure(
    "apidopoulos22:fig4",
    "With wrong labels a strong penalty gives smaller test errors than weak ones, but none beats the first step",
    lam="1/t",
    lam0=[100.0, 10.0, 1.0, 0.01],
    **NOISY,
)
def apidopoulos22_fig4(run, lam, lam0, **sizes):
    """Data: two Gaussian clouds, each of {points} points for training and {points} for testing; Gaussian kernel;
    medians of {draws} draws. Both descents step on hinge loss + {fading} times a ridge penalty; inertia is t/(t +
    {accel:g}). Dots are after the first step. Curves that coincide are drawn as one.

    Clouds N(±(1/2, 1/2), standard deviation {spread:g}), σ = {sigma}, {steps:,} steps, seed {seed}. Test labels are
    all right. Largest margin: the exact separator. The CSV file has margins, too: label × score of the worst
    training point, the score's weights of length 1.
    """
    run.facts["fading"] = penalty(lam, "λ₀")
    penalties = {f"λ₀ = {in_text(value)}": (lam, value) for value in lam0}
    yield from noisy_rows(run, penalties, **sizes)


@figure(
    "apidopoulos22:fig5",
    "With wrong labels the penalty that decays slowest ends with the smallest test error",
    lam=["1/log(1+t)", "1/sqrt(t)", "1/t", "1/t^2", "2^-t"],
    lam0=8.0,
    **NOISY,
)
def apidopoulos22_fig5(run, lam, lam0, **sizes):
    """Data: two Gaussian clouds, each of {points} points for training and {points} for testing; Gaussian kernel;
    medians of {draws} draws. Both descents step on hinge loss + λₜ times a ridge penalty; inertia is t/(t + {accel:g}).
    Dots are after the first step. Curves that coincide are drawn as one.

    As Figure 4: clouds N(±(1/2, 1/2), standard deviation {spread:g}), σ = {sigma}, {steps:,} steps, seed {seed}. Test
    labels are all right. The CSV file has margins, too.
    """
    penalties = {f"λₜ = {penalty(schedule, lam0)}": (schedule, lam0) for schedule in lam}
    yield from noisy_rows(run, penalties, **sizes)


@apidopoulos22_fig4.drawing
@apidopoulos22_fig5.drawing
def _(table, *axes):
    """Draw a row for each method, of test errors with ever more wrong labels."""
    methods = groups(table, "method")
    columns = len(axes) // len(methods)
    for k, ax in enumerate(axes):
        ax.sharex(axes[0])
        ax.sharey(axes[0])
        ax.tick_params(labelleft=k % columns == 0)
    panels = iter(axes)
    for method, part in methods:
        for flipped, rows in groups(part, "flipped"):
            ax = next(panels)
            for k, (fading, run) in enumerate(groups(rows, "penalty")):
                percent = 100 * run["test_error"]
                if fading == EXACT:
                    rule(ax, percent[0], label=fading)
                    continue
                same = [line for line in ax.lines if np.array_equal(line.get_ydata(), percent)]
                if same:
                    same[0].set_label(f"{same[0].get_label()}, {fading.split()[-1]}")
                else:
                    ax.semilogx(run["t"], percent, color=f"C{k % 7}", label=fading)
                first = percent[0]
            ax.plot(1, first, "o", color=BLACK, markersize=6, zorder=3)
            labels = f"{100 * flipped:g} % of labels wrong" if flipped else "no wrong labels"
            ax.set(title=f"{method},\n{labels}", xlabel="iteration t")
            plain(ax.xaxis, 1, 10, 100, 1000, 10_000)
            ax.tick_params(labelbottom=part is methods[-1][1])
        name_ends(ax)
    if table["test_error"].min() > 0:
        axes[0].set_yscale("log")  # of all panels, which share it
        plain(axes[0].yaxis, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50)
    for ax in axes[::columns]:
        ax.set_ylabel("test error in %")
    for ax in axes[:columns]:
        ax.set_xlabel("")


def real_methods(lam, lam0, accel):
    """Return {method: algorithm}."""
    fading = {"lam": lam, "lam0": lam0}
    return {
        "diagonal descent": partial(fm.diagonal_descent, **fading),
        "inertial descent": partial(fm.inertial_diagonal_descent, accel=accel, **fading),
        "normalised GD": partial(fm.normalized_gradient_descent, schedule="sqrt", divide_by="norm"),
        "momentum": fm.momentum,
    }


@figure(
    "apidopoulos22:fig6",
    "Inertial descent nears the largest margin first; on HTRU2 the test error rises with the margin",
    minutes=10,
    data="mnist htru2",
    panels=("data", 2),
    height=1.9,
    takes_points=True,
    sigma2=3.4**2,
    sigma2_of_htru2=16.0,
    lam="1/t",
    lam0=1.0,
    accel=3.0,
    steps=1000,
    most=20_000,
    quick={"steps": 60, "most": 1000},
)
def apidopoulos22_fig6(run, sigma2, sigma2_of_htru2, lam, lam0, accel, steps, most):
    """Data: {sets}; {n} points, Gaussian kernel. The relative gap is 1 − margin / largest margin. GD is gradient
    descent; the other descents step on hinge loss plus a penalty, {fading} with λ₀ = {lam0:g}[[ unless named. On HTRU2
    inertial descent loses some of its margin after iteration 891]].

    Margin: of the worst point. {widths}. {tests} points for testing. Descents: ridge penalty, α = {accel:g}[[; λ₀ = 10
    is on HTRU2 alone]]. Normalised GD and momentum: exponential loss; step t of GD is the gradient divided by its norm
    and by √t. Largest margin: certified to 1e-6 of itself.
    """
    run.facts["fading"] = penalty(lam, "λ₀")
    run.facts["widths"] = f"σ = {math.sqrt(sigma2):g}"
    if run.points:
        run.facts["sets"] = f"points of {run.name}"
        sets = {run.name: (sigma2, run.own_points())}
    else:
        run.facts["sets"] = "two digits of MNIST, or HTRU2, candidates for pulsars"
        run.facts["widths"] = (
            f"MNIST: pixels from 0 to 1, {run.facts['widths']}. HTRU2: raw, "
            f"σ = {math.sqrt(sigma2_of_htru2):g}, split 70/30 with seed {run.seed}"
        )
        pairs = ((3, 5), (3, 8), (4, 9))
        sets = {f"MNIST, {a} and {b}": (sigma2, run.mnist(a, b)) for a, b in pairs}
        sets["HTRU2"] = sigma2_of_htru2, run.split(*run.htru2())
    sizes = []
    for name, (width, data) in run.bar(sets.items()):
        X, y, X_test, y_test = (array[:most] for array in data)
        sizes.append([len(y), len(y_test)])
        G = fm.gram(X, y, sigma2=width)
        methods = real_methods(lam, lam0, accel)
        if name == "HTRU2":
            larger = partial(methods["inertial descent"], lam0=10.0)
            methods["inertial descent, λ₀ = 10"] = larger
        found = {}
        for method, algorithm in methods.items():
            walk = trajectory(algorithm, G, steps, 40)
            found[method] = outcome(walk.trace, walk.iterates, G, X_test, y_test)
        best = fm.max_margin(G, tol=1e-6)
        found[EXACT] = outcome(best.trace[-1:], best.alpha[None], G, X_test, y_test)
        for method, (t, margin, error) in found.items():
            yield {"data": name, "method": method, "t": t, "margin": margin, "test_error": error}
    for fact, column in zip(("n", "tests"), np.transpose(sizes), strict=True):
        run.facts[fact] = " to ".join(f"{count:,}" for count in sorted({min(column), max(column)}))


@apidopoulos22_fig6.drawing
def _(table, *axes):
    """Draw a row for each data set."""
    for row, (data, part) in enumerate(groups(table, "data")):
        gaps, errors = axes[2 * row : 2 * row + 2]
        gaps.sharey(axes[0])
        largest = where(part, method=EXACT)["margin"][0]
        for method, rows in groups(part, "method"):
            percent = 100 * rows["test_error"]
            if method == EXACT:
                level(errors, percent[0], EXACT, above=False)
                continue
            gap = 1 - rows["margin"] / largest if largest > 0 else -rows["margin"]
            gaps.loglog(rows["t"], gap, label=method, **LOOKS[method])
            errors.semilogx(rows["t"], percent, **LOOKS[method])
        what = "relative gap" if largest > 0 else "−margin, none separates"
        gaps.set(ylabel=f"{data}:\n{what}", ylim=(1e-3, 20))
        if largest > 0:
            level(gaps, 1, "below: separated", above=False)
        errors.set(ylabel="test error in %")
        if part["test_error"].max() > 3 * part["test_error"].min() > 0:
            errors.set(yscale="log", ylim=(0.2, 15))
            plain(errors.yaxis, 0.3, 0.5, 1, 2, 3, 5, 10)
        else:
            errors.set_ylabel("test error in %,\nlinear scale")
        for ax in (gaps, errors):
            ax.margins(x=0)
            plain(ax.xaxis, 1, 10, 100, 1000)
            ax.tick_params(labelbottom=ax in axes[-2:])
    plain(axes[0].yaxis)
    axes[0].set(title="relative gap to the largest margin")
    axes[1].set(title="test error")
    for ax in axes[-2:]:
        ax.set_xlabel("iteration t")


@figure(
    "apidopoulos22:width",
    "Inertial descent is ahead of momentum where the kernel is narrow, and behind where it is wide",
    minutes=3,
    data="mnist htru2",
    panels=(1, 2),
    height=3.3,
    lam="1/t",
    lam0=1.0,
    accel=3.0,
    steps=1000,
    points=2000,
    widths=13,
    quick={"steps": 100, "points": 200, "widths": 5},
)
def apidopoulos22_width(run, lam, lam0, accel, steps, points, widths):
    """Data: MNIST, digits 3 and 5, and HTRU2, candidates for pulsars; {points:,} points, kernel exp(−‖x − z‖²/(2σ²)).
    The relative gap is 1 − margin / largest margin after {steps:,} iterations; 10⁻¹¹ stands for all below. GD is
    gradient descent. Grey lines: Apidopoulos et al. write 3.4 and 4 for σ² in their paper, and for σ in their code.

    Pixels from 0 to 1; HTRU2 standardised, split 70/30 with seed {seed}. Descents: penalty {fading}, α = {accel:g},
    steps of 1/‖G‖. An iteration is a product. Gaps are to a certified upper bound of
    the largest margin.
    """
    run.facts["fading"] = penalty(lam, lam0)
    X, y, *_ = run.split(*run.htru2())
    sets = {  # points, labels, the paper's number; the widths are its powers from this one to the fourth after it
        "MNIST, 3 and 5": (*run.mnist(3, 5)[:2], 3.4, 0),
        "HTRU2": ((X - X.mean(axis=0)) / X.std(axis=0), y, 4.0, -2),
    }
    for data, (X, y, printed, least) in sets.items():
        for power in run.bar(np.linspace(least, least + 4, widths), data):
            G = fm.gram(X[:points], y[:points], sigma2=printed**power)
            best = fm.max_margin(G, tol=1e-12)
            # The step of the descents is given: to find it would cost products.
            step = {"step": 1 / np.linalg.eigvalsh(G)[-1]}
            for method, algorithm in real_methods(lam, lam0, accel).items():
                options = step if "descent" in method else {}
                alpha = algorithm(G, max_iter=steps, trace_at=[], **options).alpha
                # Products in twice the precision: others leave 1e-9 of the margin open.
                lower, _ = fm.certificate(G, alpha, best.p, precise=True)
                yield {
                    "data": data,
                    "method": method,
                    "sigma2": printed**power,
                    "gap": 1 - lower / best.upper,
                    "printed": printed,
                }


@apidopoulos22_width.drawing
def _(table, *axes):
    for ax, (data, part) in zip(axes, groups(table, "data"), strict=True):
        found = {}
        for method, rows in groups(part, "method"):
            found[method] = np.maximum(rows["gap"], 1e-11)
            ax.loglog(rows["sigma2"], found[method], label=method, **LOOKS[method])
        printed = part["printed"][0]
        for x, words, dash in ((printed, "their paper", "-"), (printed**2, "their code", "--")):
            rule(ax, x=x, linestyle=dash, ymax=0.88, zorder=1)
            side, factor = ("left", 1.1) if ax is axes[0] else ("right", 0.93)  # where no curve is
            place = {"transform": ax.get_xaxis_transform(), "va": "bottom", "ha": side}
            note(ax, factor * x, 0.1, f"σ² in {words}", rotation=90, **place)
        rule(ax, 1, zorder=1)
        ours, theirs = np.log(found["inertial descent"]), np.log(found["momentum"])
        lead = ours - theirs
        if lead[0] < 0 < lead[-1]:  # their first crossing
            k = np.argmax(lead > 0)
            x, y = (
                math.exp(np.interp(0, lead[k - 1 : k + 1], values[k - 1 : k + 1]))
                for values in (np.log(rows["sigma2"]), ours)
            )
            ax.plot(x, y, "o", color=BLACK, zorder=3)
            note(ax, 1.15 * x, y, f"equal at\nσ² = {in_short(x)}", color=BLACK, va="top")
        ax.set(title=data, xlabel="width σ² of the kernel")
        ax.set(ylabel="relative gap; below 1: separated")
        plain(ax.xaxis)
    name_ends(ax)


def path_problem(run, digits, images, flipped, draw, sigma2):
    """Return G of so many images of two digits, half as many others for validation, and all test images.

    This share of the labels is flipped, for training and for validation.
    """
    rng = np.random.default_rng((run.seed, draw))
    X, y, X_test, y_test = run.two_classes(*digits)
    chosen = rng.permutation(len(y))[: images + images // 2]
    X = X[chosen]
    y = y[chosen]
    G = fm.gram(X[:images], with_flips(y[:images], flipped, rng), sigma2=sigma2)
    return G, (X[images:], with_flips(y[images:], flipped, rng)), (X_test, y_test)


HINGE_PATH = "SVMs along a path over C, hinge loss"
SQUARED_PATH = "SVMs along a path over C, squared hinge loss"


def path_weights(G, lam, lam0, accel, steps, path_steps, penalties):
    """Return {method: an array of the weights from which validation chooses}."""
    step = 1 / np.abs(np.asarray(G)).sum(axis=1).max()  # at most 1/||G||
    inertial = partial(fm.inertial_diagonal_descent, step=step)
    found = {}
    for first in lam0:
        method = f"inertial descent stopped early, ridge penalty {penalty(lam, first)}"
        early = trajectory(inertial, G, steps, 8, accel=accel, lam=lam, lam0=first)
        found[method] = early.iterates
    squared = [None]
    hinge = [None]
    options = {"lam": lambda t: 1.0, "restart": True, "max_iter": path_steps, "trace_at": []}
    for C in np.geomspace(1e-3, 1e3, penalties):
        ridge = G.with_ridge(0.5 / C)
        squared.append(fm.max_margin(ridge, start=squared[-1], tol=1e-3).alpha)
        hinge.append(inertial(G, lam0=1 / C, start=hinge[-1], **options))
    found[SQUARED_PATH] = np.array(squared[1:])
    found[HINGE_PATH] = np.array([result.alpha for result in hinge[1:]])
    return found


@figure(
    "apidopoulos22:path",
    "With wrong labels early stopping under a strong penalty matches a hinge-loss SVM whose C is tuned",
    minutes=1,
    data="mnist",
    panels=(1, 2),
    takes_points=True,
    digits=(3, 5),
    sigma2=3.4**2,
    lam="1/t",
    lam0=[100.0, 1.0],
    accel=3.0,
    shares=[0.0, 0.1, 0.2],
    draws=10,
    images=1000,
    steps=1000,
    path_steps=20,
    penalties=19,
    quick={"draws": 2, "images": 100, "steps": 100, "path_steps": 5, "penalties": 7},
)
def apidopoulos22_path(run, digits, sigma2, shares, draws, images, **sizes):
    """Data: {source}, {images:,} {item}s to train; Gaussian kernel. {others:,} others, mislabelled as often, choose the
    step at which descent stops and an SVM's C, the price of errors; test labels are right. Means of {draws} draws ±
    standard errors.

    σ = {sigma}, seed {seed}. Descent: α = {accel:g}, up to {steps:,} steps, evaluated eight times per decade. Paths:
    {penalties} values of C from 0.001 to 1,000, each from the weights before; squared hinge loss by max_margin to a
    relative gap of 0.001, hinge loss by {path_steps} steps of inertial descent, restarted, for each C.
    """
    run.facts |= {"sigma": f"{math.sqrt(sigma2):g}", "others": images // 2}
    run.facts["source"] = run.name if run.points else "MNIST, digits {} and {}".format(*digits)
    for flipped in shares:
        for draw in run.bar(range(draws), f"{100 * flipped:g} % wrong"):
            G, (X, y), (X_test, y_test) = path_problem(run, digits, images, flipped, draw, sigma2)
            for method, weights in path_weights(G, **sizes).items():
                errors = np.mean(G.decision_function(weights, X) * y <= 0, axis=1)
                scores = G.decision_function(weights[errors.argmin()], X_test)
                error = np.mean(scores * y_test <= 0)
                yield {"flipped": flipped, "method": method, "seed": draw, "test_error": error}


@apidopoulos22_path.drawing
def _(table, errors, differences):
    parts = groups(table, "flipped")
    methods = [method for method, _ in groups(table, "method")]
    names = {
        HINGE_PATH: "SVM, tuned C,\nhinge loss",
        SQUARED_PATH: "SVM, tuned C,\nsquared hinge loss",
    }
    for k, method in enumerate(methods):
        places = []
        found = []
        for flipped, part in parts:
            places.append(100 * flipped + 0.5 * (k - (len(methods) - 1) / 2))  # side by side
            error = 100 * where(part, method=method)["test_error"]
            found.append([error, error - 100 * where(part, method=HINGE_PATH)["test_error"]])
        name = names.get(method, f"inertial descent,\nstopped early,\npenalty {method.split()[-1]}")
        look = {"color": f"C{k}", "linestyle": "-", "linewidth": 1}
        look |= {"marker": "osD^v<>"[k % 7], "markersize": 4}
        for ax, values in zip((errors, differences), np.swapaxes(found, 0, 1), strict=True):
            deviation = values.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
            ax.plot(places, values.mean(axis=1), label=name, **look)
            ax.errorbar(places, values.mean(axis=1), deviation, color=f"C{k}", linestyle="none")
    rule(differences, 0, zorder=1)
    errors.set(title="test error", ylabel="test error in %")
    differences.set(title="test error − that of the hinge-loss SVM", ylabel="difference in points")
    for ax in (errors, differences):
        ax.set(xlabel="wrong labels in %", xticks=[100 * flipped for flipped, _ in parts])
    name_ends(differences)


# Our own studies register their figures, too, after those of the papers.
import figures.studies  # noqa: E402, F401

if __name__ == "__main__":
    sys.exit(program())
