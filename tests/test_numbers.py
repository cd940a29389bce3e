"""The numbers in the README's tables are those of the CSV files in figures/."""

from pathlib import Path

import numpy as np
import pytest

import reproduce as rp

ROOT = Path(rp.__file__).parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def table(name):
    return rp.read_table(ROOT / "figures" / f"{name}.csv")[0]


def number(value, digits):
    return f"{value:.{digits}f}".replace("-", "−")


def part_of(families, family, method):
    part = rp.split(families[family], "method")[method]
    return part["x"], part["y"]


def test_figure_6_after_a_thousand_steps():
    methods = "Algorithm 1", "Algorithm 2", "normalized GD, 1/sqrt(t)", "momentum", "maximum margin"
    for data, rows in rp.split(table("apidopoulos22-fig6"), "data").items():
        cells = []
        for method in methods:
            run = rp.split(rows, "method")[method]
            margin, error = run["margin"][-1], run["test_error"][-1]
            cells.append(f"{number(margin, 4)}, {100 * error:.2f} %")
        assert f"| {data}, {4 if data == 'HTRU2' else 3.4} | {' | '.join(cells)} |" in README


def test_ramdas14_on_mnist():
    names = {"SNKP": "SNKP", "ISNKPVN": "ISNKPVN, ℓ2", "ISNKPVN, entropy": "ISNKPVN, entropy"}
    checked = 0
    for kernel, rows in rp.split(table("ramdas14-mnist"), "kernel").items():
        for method, run in rp.split(rows, "method").items():
            lines = [line for line in README.splitlines()
                     if line.startswith(f"| {kernel.removesuffix(' kernel')} | {names[method]} |")]
            _, _, _, status, iterations, interval, _ = (cell.strip() for cell in lines[0].split("|"))
            assert status.split()[0] == run["status"][0] and iterations == f"{int(run['iteration'][-1]):,}"
            for text, value in zip(interval.strip("[]").split(", "), (run["lower"][-1], run["upper"][-1]), strict=True):
                assert float(text.replace("−", "-")) == pytest.approx(value, rel=0.05)
            checked += 1
    assert checked == 6


def subspace_rows():
    """The rows of the README's table about the subspace perceptron."""
    parts, goals = rp.split(table("subspace"), "what"), [f"products to {goal}" for goal in rp.GOALS]

    def exponents(method, family):
        found = []
        for goal in goals:
            x, y = part_of(rp.split(parts[goal], "family"), family, method)
            used = (x >= 10) & (x < x[np.isnan(y)].min(initial=np.inf))
            found.append("{:.2f} ± {:.2f}".format(*rp.fitted_exponent(x[used], y[used])))
        return ", ".join(found)

    def span(values):
        low, high = (f"{value:.0f}" for value in (values.min(), values.max()))
        return low if low == high else f"{low} to {high}"

    for family in rp.split(parts[goals[0]], "family"):
        ours, theirs = ([part_of(rp.split(parts[goal], "family"), family, method) for goal in goals]
                        for method in ("subspace perceptron", "momentum"))
        near = [(x >= 230) & (x <= 390) & ~np.isnan(y) if family != "MNIST pairs" else x > 0 for x, y in theirs]
        times = ", ".join(span((y / z)[rows]) if rows.any() else "–"
                          for (_, z), (_, y), rows in zip(ours, theirs, near, strict=True))
        columns = (["subspace perceptron", "momentum"] if family != "MNIST pairs" else [])
        cells = [exponents(method, family) for method in columns] or [
            ", ".join(span(y) for _, y in counts) for counts in (ours, theirs)]
        yield family, f" | {' | '.join(cells)} | {times} |"


def test_products_of_the_subspace_perceptron():
    for family, cells in subspace_rows():
        assert any(line.startswith(f"| {family}") and line.endswith(cells) for line in README.splitlines()), cells
