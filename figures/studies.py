"""Our own studies: figures beyond the three papers, drawn by `python reproduce.py NAME` as the papers' are.

How a figure is written stands in reproduce.py, section Figures.
"""

import numpy as np

import fastmargin as fm
from reproduce import BLUE, LOOKS, SKY, figure, plain, spaced, where


def quadrants(run):
    """Draw 500 points of the plane, labelled by the sign of the product of their coordinates."""
    X = run.rng().normal(size=(500, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1, -1)


@figure(
    "front",
    "momentum knows the margin to {percent} % after {slow} products, max_margin to nine digits after {fast} of one",
    minutes=0.05,
    height=2.8,
    steps=10_000,
    quick={"steps": 1000},
)
def front(run, steps):
    """Data: 500 points of the plane, labelled by the sign of x₁x₂, Gaussian kernel. A product reads the 500 × 500
    matrix; max_margin reads only some of its entries. Largest margin ρ: what the best separator keeps from all points.

    Points of N(0, 1), γ = 1/(d Var X), K(x, x) = 1, seed {seed}; a product counts as n² entries of G.
    """
    X, y = quadrants(run)
    G = fm.gram(X, y, kernel="rbf")
    slow = fm.momentum(G, max_iter=steps, trace_at=spaced(steps)).trace[1:]
    exact = fm.max_margin(G, tol=1e-9).trace[-1:]
    for method, trace in (("momentum", slow), ("max_margin", exact)):
        yield {
            "method": method,
            "products": trace["products"],
            "lower": trace["lower"],
            "upper": trace["upper"],
        }


@front.draw
def _(table, ax):
    slow = where(table, method="momentum")
    exact = where(table, method="max_margin")
    x = slow["products"]
    band = {"color": SKY, "alpha": 0.3, "linewidth": 0}
    ax.fill_between(x, slow["lower"], slow["upper"], label="momentum: ρ lies in here", **band)
    for end in ("lower", "upper"):
        ax.plot(x, slow[end], color=BLUE, linestyle="-")
    ends = np.append(exact["products"], x[-1])
    margin = exact["lower"][0]
    look = LOOKS["max_margin"] | {"marker": "o", "markevery": [0]}
    ax.plot(ends, [margin, margin], label="max_margin: ρ from here on", **look)
    ax.set(xscale="log", xlim=(0.1, x[-1]), ylim=(-2 * margin, 6 * margin))
    ax.set(xlabel="products: kernel matrix times vector", ylabel="largest margin ρ")
    plain(ax.xaxis)


@front.numbers
def _(table):
    slow = where(table, method="momentum")
    exact = where(table, method="max_margin")
    gap = 1 - slow["lower"][-1] / slow["upper"][-1]
    return {
        "percent": f"{100 * gap:.2g}",
        "slow": f"{slow['products'][-1]:,.0f}",
        "fast": f"{exact['products'][0]:.2g}",
    }
