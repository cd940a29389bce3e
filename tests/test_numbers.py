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


def products(table):
    """{family: {method: (1/rho, products, a row for each goal)}}"""
    found = {}
    for family, part in rp.split(table, "family").items():
        if "products to separation" in part["what"]:
            goals = [rp.split(rp.split(part, "what")[f"products to {goal}"], "method") for goal in rp.GOALS]
            found[family] = {name: (run["x"], np.array([runs[name]["y"] for runs in goals]))
                             for name, run in goals[0].items()}
    return found


def subspace_rows():
    """The rows of the README's table about the subspace perceptron."""
    for family, runs in products(table("subspace-products")).items():
        (x, ours), (z, theirs) = runs[rp.OURS], runs["momentum"]
        first = [np.flatnonzero(x == at)[0] for at in z]  # the sample that both have
        intervals = ("{:.2f} [{:.2f}, {:.2f}]".format(*rp.fitted_exponent(*rp.fit_range(x, y))) for y in ours)
        exponents = (f"{rp.fitted_exponent(*rp.fit_range(z, y))[0]:.2f}" for y in theirs)
        far = np.flatnonzero(z == z[~np.isnan(theirs[-1])].max())[0]
        times = ", ".join(f"{ratio:.0f}" for ratio in theirs[:, far] / ours[:, first[far]])
        name = family.replace("$j^{-", "j^−").replace("}$", "")
        yield f"| {name} | {', '.join(intervals)} | {', '.join(exponents)} | {times} at {z[far]:,.0f} |"


def subspace_sentences():
    """What the README says of the subspace perceptron's products below that table."""
    def spans(rows):
        return ", ".join(f"{row.min():.0f} to {row.max():.0f}" for row in rows)

    shares, cut = [], []
    for family, part in rp.split(table("subspace-products"), "family").items():
        parts = {what: rp.split(rows, "method") for what, rows in rp.split(part, "what").items()}
        found, bound = (parts[what][rp.OURS]["y"] for what in ("products to separation", "bound of separation"))
        shares.append(np.max(found / bound))
        if "spectrum" in family:
            run = parts["products to separation"][rp.CUT]
            cut.append(f"{rp.fitted_exponent(*rp.fit_range(run['x'], run['y']))[0]:.2f}")
    *others, chain = shares
    yield f"takes at most {min(others):.2f} to {max(others):.2f} of what is proved, on the chain {chain:.2f}"
    yield f"separation takes ρ^(−b) products with b = {', '.join(cut)} on the four spectra"
    rows = rp.split(rp.split(table("ramdas14-theorem4"), "case")["high rank, no separator"], "method")
    ours, theirs = rows[rp.OURS], rows["SNKPVN"]
    exponents = [rp.fitted_exponent(1 / run["eps"], run["iterations"])[0] for run in (ours, theirs)]
    yield ("certificates take ε^(−{:.2f}) products, where SNKPVN's take ε^(−{:.2f}), {:.0f} times as many at ε = 3e-4"
           .format(*exponents, theirs["iterations"][-1] / ours["iterations"][-1]))
    runs = products(table("subspace-seconds"))["MNIST pairs"]
    ours, theirs = runs[rp.OURS][1], runs["momentum"][1]
    yield f"it takes {spans(ours)} products, momentum {spans(theirs)}, {spans(theirs / ours)} times as many"


def test_products_of_the_subspace_perceptron():
    for row in subspace_rows():
        assert row in README
    for sentence in subspace_sentences():
        assert sentence in README.replace("\n", " ")


def test_the_margins_of_sampled_columns():
    names = "sampling, momentum", "batch perceptron, average", "batch perceptron, last"
    for rows in rp.split(table("ji21-fig3"), "scaling").values():
        runs = {name: list(rp.split(part, "seed").values()) for name, part in rp.split(rows, "method").items()}
        ours, average, last = (", ".join(f"{1e3 * run['lower'][-1]:.2f}" for run in runs[name]) for name in names)
        most = [min(runs[name][k]["upper"][-1] for name in (*names, rp.BEST)) for k in range(3)]
        assert f"{ours} against " in README and f"{average} (average) and {last} (last iterate), where no more than " \
            f"{', '.join(f'{1e3 * upper:.2f}' for upper in most)} is possible" in README


def test_the_kernels_of_the_alexnet():
    for text in (*alexnet_rows(), *alexnet_sentences()):
        assert text in README


def alexnets(solver):
    """{network: runs, one for each seed} of a solver."""
    parts = rp.split(table("ji21-fig4"), "network")
    return {network: list(rp.split(rp.split(part, "solver")[solver], "seed").values())
            for network, part in parts.items()}


def alexnet_sentences():
    """What the README says of ji21:fig4 beside its table."""
    runs = sum(alexnets("max_margin").values(), [])
    moved, change, excess = (np.array([run[name] for run in runs]) for name in ("moved", "change", "excess"))
    assert runs[0]["epoch"].tolist() == [0, 64, 256, 1024] and all(run["train_error"][2] == 0 for run in runs)
    (a, b), (c, d), (e, f) = ((values.min(), values.max()) for values in moved.T[1:])
    yield f"{a:.2f} to {b:.2f} at epoch 64, {c:.2f} to {d:.2f} at 256, where all networks err on none of the 128 images"
    yield f"and {e:.3f} to {f:.3f} at 1,024"
    yield f"by {-100 * change[:, -1].max():.1f} to {-100 * change[:, -1].min():.1f} points"
    least = sum(run["change"][-1] >= -2 * run["change_error"][-1] for run in runs)
    yield f"for {least} of {len(runs)} by less than two"
    later = np.abs(change[:, 3] - change[:, 2]).max()
    yield f"from epoch 256 to 1,024 it moves by at most {100 * later:.1f}"
    spans = [f"{number(100 * values.min(), 1)} to {number(100 * values.max(), 1)}" for values in excess.T[1:]]
    yield f"{spans[2]} points, {spans[1]} at epoch 256, {spans[0]} at 64"


def alexnet_rows():
    """The rows of the README's table about ji21:fig4: medians and ranges over seeds, after the last epoch."""
    for (network, exact), one in zip(alexnets("max_margin").items(), alexnets(rp.ONE_VECTOR).values(), strict=True):

        def spread(runs, column, at=-1, digits=2, unit=100):
            values = [unit * run[column][at] for run in runs]
            middle, low, high = (number(f(values), digits) for f in (np.median, np.min, np.max))
            return f"{middle} [{low}, {high}]"

        def equal(runs):
            count = sum(abs(run["excess"][-1]) <= 2 * run["excess_error"][-1] for run in runs)
            return f"{spread(runs, 'excess')}, {count}"

        yield " | ".join((f"| {network}, {len(exact)}", spread(exact, "test_error", 0, 1), spread(exact, "change"),
                          spread(exact, "network_error", digits=1), equal(exact), equal(one),
                          f"{spread(one, 'differ', digits=1)} |"))


def test_the_kept_margins_are_confirmed_by_their_weights():
    """In rows of data that are at hand here; all others are held against what follows from the theory alone."""
    kept, sets = table("margins"), rp.data_sets(rp.Context())[0]
    rows = [dict(zip(kept, values, strict=True)) for values in zip(*kept.values(), strict=True)]
    assert len(rows) == len({(row["data"], row["kernel"]) for row in rows}) > 300
    for row in rows:
        if row["status"] == "certified":
            assert 0 < row["upper"] - row["lower"] <= 1e-6 * row["upper"] and row["twins"] == 0
        elif row["status"] == "infeasible":  # by rbf only where points of both classes coincide
            assert row["lower"] <= 0 < row["upper"] < 2e-6 and (row["kernel"] == "linear" or row["twins"] > 0)
    checked = [row for row in rows if row["weights"] and row["source"] in ("HTRU2", "scikit-learn", "digits")
               and row["data"] in sets]
    assert "HTRU2" in {row["data"] for row in checked}
    for row in checked:
        lower, upper = rp.confirmed(row, *sets[row["data"]]())
        assert upper <= row["upper"] * (1 + 1e-6) + 1e-10
        assert row["status"] == "infeasible" or lower >= row["lower"] * (1 - 1e-6)
