"""Draws the figures of the three papers behind fastmargin, each with a CSV file of the plotted numbers beside it.

    python reproduce.py list                        every figure, one line each, and whether its data are at hand
    python reproduce.py ji21:fig2                   one figure: figures/ji21-fig2.png and figures/ji21-fig2.csv
    python reproduce.py fig3 --quick                Figure 3 of every paper that has one, on reduced work
    python reproduce.py all --format pdf --out pdf  everything, as PDF, into the folder pdf

Data sets are looked for in --data, then $FASTMARGIN_DATA, then the per-user cache; what is missing is downloaded into
the cache. Without a network the real data bundled in tests/data are used: a sample of MNIST, all of HTRU2.

Exit codes: 0 drawn; 1 some figure lacks its data or could not be saved; 2 bad command line; 130 interrupted.
"""

import argparse
import contextlib
import csv
import difflib
import gzip
import hashlib
import io
import itertools
import lzma
import math
import os
import sys
import tarfile
import textwrap
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

import fastmargin as fm

ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Context:
    """What a figure function is given: the options of this run."""

    quick: bool = False
    seed: int = 0
    progress: bool = True
    data: Path | None = None
    offline: dict = field(default_factory=dict, repr=False, compare=False)  # data set -> why its download failed

    def pick(self, full, quick):
        """The amount of work: `full`, or `quick` under --quick."""
        return quick if self.quick else full

    def rng(self):
        return np.random.default_rng(self.seed)


def progress(items, context, desc="", **options):
    """A tqdm bar over an iterable, or, for an int, a bar of that total with `.update(k)`; silent off a terminal."""
    disable = None if context.progress else True  # None: tqdm itself looks whether stderr is a terminal
    total = {"total": items} if items is None or isinstance(items, int) else {"iterable": items}
    return tqdm(**total, desc=desc, disable=disable, leave=False, **options)


@contextlib.contextmanager
def atomic(path):
    """A temporary path in the folder of `path`; it becomes `path` at the end, or vanishes if anything is raised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


# ======================================================================================================================
# Data
# ======================================================================================================================


class DataError(Exception):
    """Data that are missing or damaged; the message is one sentence for the user."""


class DataSet(NamedTuple):
    files: dict  # file name -> SHA-256 of the uncompressed content
    mirrors: tuple  # addresses tried in turn: one per file where there is a {}, else an archive of all files
    bundled: dict  # as `files`, for the copy in tests/data


DATA = {
    "mnist": DataSet(
        files={
            "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/{}.gz",
            "https://storage.googleapis.com/cvdf-datasets/mnist/{}.gz",
        ),
        bundled={
            "train-images-idx3-ubyte": "8b624bf61e70a0fa4a26770a1e0f94f6ef5c19ee8a3a1d929c770a8f36a2218c",
            "train-labels-idx1-ubyte": "892833e730609f103558b43c591e21c168c98765aea5b68e3dd29b9253145d89",
            "t10k-images-idx3-ubyte": "38877d1501654107ea6bd75efee5aa10b45d73ecc36b2bcf62bc50772e472a5e",
            "t10k-labels-idx1-ubyte": "4912294106a847d5c0900bdc99750ed9d293b530f38dff2f8656b863b20d5f63",
        },
    ),
    "htru2": DataSet(
        files={"HTRU_2.csv": "b2b388ceaa9718d00f6feba97bfe7096ee61996526cee2bea94e9dd034e9cbbe"},
        mirrors=("https://archive.ics.uci.edu/static/public/372/htru2.zip",),
        bundled={"HTRU_2.csv": "b2b388ceaa9718d00f6feba97bfe7096ee61996526cee2bea94e9dd034e9cbbe"},
    ),
    "cifar10": DataSet(
        files={
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        mirrors=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        bundled={},
    ),
}
BUNDLED = ROOT / "tests" / "data"
TIMEOUT = 20.0  # seconds without an answer before the next mirror is tried


class Split(NamedTuple):
    """Training and test points with labels; `source` is "full" or "bundled sample"."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    source: str


class Points(NamedTuple):
    """Points with labels ±1; `source` is "full" or "bundled sample"."""

    X: np.ndarray
    y: np.ndarray
    source: str


def load_mnist(context, digits=None):
    """MNIST, one image a row, pixels/255. Labels 0..9; with digits=(a, b) those two only, −1 for a, +1 for b."""
    if digits is not None and not (len(set(digits)) == len(digits) == 2 and set(digits) <= set(range(10))):
        raise ValueError(f"digits must be two different digits or None, got {digits!r}")
    contents, source = load("mnist", context)
    arrays = []
    for part in ("train", "t10k"):
        X, y = (parse_idx(contents[name], ndim, name)
                for name, ndim in ((f"{part}-images-idx3-ubyte", 3), (f"{part}-labels-idx1-ubyte", 1)))
        if len(X) != len(y):
            raise DataError(f"mnist: {len(X)} images but {len(y)} labels in the files {part}-*")
        if digits is not None:
            X, y = X[np.isin(y, digits)], y[np.isin(y, digits)]
        y = y.astype(np.int64) if digits is None else np.where(y == digits[1], 1, -1)
        arrays += [X.reshape(len(X), -1) / 255.0, y]
    return Split(*arrays, source)


def load_htru2(context):
    """HTRU2 pulsar candidates as they come: X (17898, 8) float64, y = +1 for a pulsar (1,639 of them), else −1."""
    contents, source = load("htru2", context)
    table = np.loadtxt(io.BytesIO(contents["HTRU_2.csv"]), delimiter=",", ndmin=2)
    return Points(np.ascontiguousarray(table[:, :-1]), np.where(table[:, -1] == 1, 1, -1), source)


def load_cifar10(context):
    """CIFAR-10: the first training batch and the test batch, images (10000, 32, 32, 3) uint8 and labels 0..9."""
    contents, source = load("cifar10", context)
    arrays = []
    for name in ("data_batch_1.bin", "test_batch.bin"):  # a record: one label byte, then the R, G and B planes
        records = np.frombuffer(contents[name], np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        arrays += [np.ascontiguousarray(images), records[:, 0].astype(np.int64)]
    return Split(*arrays, source)


def parse_idx(content, ndim, name):
    """The array of unsigned bytes in an idx file with `ndim` dimensions."""
    if content[:4] != bytes((0, 0, 8, ndim)):
        raise DataError(f"{name}: not an idx file of bytes in {ndim} dimensions (it begins with {content[:4].hex()})")
    header = 4 + 4 * ndim
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4)]
    if len(content) != header + math.prod(shape):
        raise DataError(f"{name}: {len(content)} bytes, but its header promises {header + math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def load(name, context):
    """The checked contents {file: bytes} of a data set and where they are from: "full" or "bundled sample"."""
    dataset, contents = DATA[name], {}
    for folder in (*user_folders(context), cache_folder()):
        for file in dataset.files:
            if file not in contents and (path := stored(folder / name, file)):
                try:
                    contents[file] = checked(path.read_bytes(), file, dataset.files[file], path)
                except DataError:
                    if folder != cache_folder():  # the user's own file: say so; the cache is ours: fetch it again
                        raise
    missing = [file for file in dataset.files if file not in contents]
    if not missing:
        return contents, "full"
    known_offline = name in context.offline
    try:
        return contents | download(name, missing, context), "full"
    except DataError as failure:
        paths = {file: stored(BUNDLED / name, file) for file in dataset.bundled}
        if not paths or None in paths.values():
            raise
        if not known_offline:
            print(f"{failure}; using the {bundled_source(name)} data in tests/data", file=sys.stderr)
        contents = {f: checked(path.read_bytes(), f, dataset.bundled[f], path) for f, path in paths.items()}
        return contents, bundled_source(name)


def status(name, context):
    """Whether a data set is at hand without a download: "full", "bundled sample" or "missing"."""
    places = [folder / name for folder in (*user_folders(context), cache_folder())]
    if all(any(stored(place, file) for place in places) for file in DATA[name].files):
        return "full"
    bundled = DATA[name].bundled
    return bundled_source(name) if bundled and all(stored(BUNDLED / name, file) for file in bundled) else "missing"


def bundled_source(name):
    return "full" if DATA[name].bundled == DATA[name].files else "bundled sample"  # HTRU2 is bundled whole


def user_folders(context):
    """The folders the user has named: --data, then $FASTMARGIN_DATA."""
    named = [context.data, os.environ.get("FASTMARGIN_DATA")]
    found = [Path(folder).expanduser() for folder in named if folder]
    for folder in found:
        if not folder.is_dir():
            raise DataError(f"the data folder {folder} does not exist (given with --data or $FASTMARGIN_DATA)")
    return found


def cache_folder():
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fastmargin"


def stored(folder, file):
    """The path of a file in a folder, compressed or not, or None."""
    return next((path for end in (".gz", ".xz", "") if (path := folder / (file + end)).is_file()), None)


def checked(raw, file, digest, where):
    """The uncompressed content of `raw` if its SHA-256 is right. Compression is seen by its magic, not by the name."""
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        elif raw[:6] == b"\xfd7zXZ\x00":
            raw = lzma.decompress(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{where}: damaged or truncated ({error})") from None
    if file.endswith(".csv"):
        raw = raw.replace(b"\r\n", b"\n")  # the same numbers, whatever system the archive was packed on
    found = hashlib.sha256(raw).hexdigest()
    if found != digest:
        raise DataError(f"{where}: wrong content: SHA-256 (uncompressed) is {found}, expected {digest}")
    return raw


def download(name, missing, context):
    """Fetch missing files of a data set into the cache, checked, from the first mirror that works: {file: bytes}."""
    if name in context.offline:  # tried and failed in this run: do not make the next figure wait again
        raise DataError(context.offline[name])
    contents, failures = {}, []
    for url in DATA[name].mirrors:
        host = url.split("/")[2] or url
        try:
            for file, stored_as, raw in fetch(url, [file for file in missing if file not in contents], context):
                contents[file] = checked(raw, file, DATA[name].files[file], f"{file} from {host}")
                keep(cache_folder() / name / stored_as, raw)
        except Exception as error:  # noqa: BLE001 - whatever a mirror sends, the next one is tried
            failures.append(str(error) if host in str(error) else f"{host}: {error}")
        if len(contents) == len(missing):
            return contents
    context.offline[name] = (
        f"{name}: not in the folder {name}/ of --data, $FASTMARGIN_DATA or {cache_folder()}, "
        f"and not downloaded ({'; '.join(failures) or 'the archive lacks a file'})"
    )
    raise DataError(context.offline[name])


def keep(path, raw):
    try:
        with atomic(path) as part:
            part.write_bytes(raw)
    except OSError as error:  # a cache that cannot be written is no reason not to go on
        print(f"not kept in the cache: {error}", file=sys.stderr)


def fetch(url, wanted, context):
    """Yield (file, name to store it under, bytes) for the wanted files behind one address; nothing touches the disk."""
    if "{}" in url:
        for file in wanted:
            yield file, url.format(file).rpartition("/")[2], get(url.format(file), context)
        return
    archive = io.BytesIO(get(url, context))
    if url.endswith(".zip"):
        with zipfile.ZipFile(archive) as members:
            for member in members.namelist():
                if (file := member.rpartition("/")[2]) in wanted:
                    yield file, file, members.read(member)
    else:
        with tarfile.open(fileobj=archive) as members:
            for member in members:
                if member.isfile() and (file := member.name.rpartition("/")[2]) in wanted:
                    yield file, file, members.extractfile(member).read()


def get(url, context):
    request = urllib.request.Request(url, headers={"User-Agent": "fastmargin"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        size = int(answer.headers.get("Content-Length") or 0) or None
        chunks = []
        with progress(size, context, url.rpartition("/")[2], unit="B", unit_scale=True) as bar:
            while chunk := answer.read(1 << 16):
                chunks.append(chunk)
                bar.update(len(chunk))
    return b"".join(chunks)


# ======================================================================================================================
# Drawing
# ======================================================================================================================

STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "legend.fontsize": 9,
    "savefig.dpi": 150,
    "svg.hashsalt": "fastmargin",  # the same numbers give the same bytes
}
METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
COLOURS = ("#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # after Okabe and Ito
DASHES = ("-", "--", "-.", ":", (0, (7, 2)), (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "os^Dv<>PX*p"


def panels(rows=1, columns=1, width=4.6, height=3.4):
    """A figure and its (rows, columns) array of axes, inches per panel; legend() and finish() add their own height."""
    fig = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return fig, fig.subplots(rows, columns, squeeze=False)


def style(i):
    """Keywords of the i-th curve: colour, dashes and markers differ; dashes and markers alone tell 66 curves apart.

    Markers are spaced evenly along the drawn curve, each curve's with its own offset, so that coinciding curves show.
    """
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": DASHES[i % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markevery": (0.02 + 0.021 * (i % 5), 0.11),
    }


def legend(fig, **options):
    """One legend for all panels, above them, where it covers no curve; a label used in several panels shows once."""
    entries = {}
    for ax in fig.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    entry_width = 0.8 + 0.075 * max(map(len, entries), default=0)  # inches, at 9 points
    columns = max(1, min(len(entries), int(fig.get_figwidth() / entry_width)))
    fig.set_figheight(fig.get_figheight() + 0.2 * math.ceil(len(entries) / columns))  # not at the panels' expense
    options = {"loc": "outside upper center", "ncols": columns, "frameon": False} | options
    return fig.legend(entries.values(), entries.keys(), **options)


def rows(*columns):
    """A block of table rows from columns of equal length; a single value is repeated along the others."""
    columns = np.broadcast_arrays(*map(np.atleast_1d, columns))
    return list(zip(*(column.tolist() for column in columns), strict=True))


def finish(fig, caption, quick):
    """The caption along the bottom, the panels above it, and the word quick where the work was reduced."""
    text = textwrap.fill(f"quick: {caption}" if quick else caption, width=max(30, int(18 * fig.get_figwidth())))
    space = 0.16 + 0.125 * (text.count("\n") + 1)  # inches: a gap and the lines of text
    fig.set_figheight(fig.get_figheight() + space)
    if fig.get_layout_engine() is None:
        fig.set_layout_engine("constrained")
    fig.get_layout_engine().set(rect=(0, space / fig.get_figheight(), 1, 1 - space / fig.get_figheight()))
    left, bottom = 0.06 / fig.get_figwidth(), 0.05 / fig.get_figheight()
    fig.text(left, bottom, text, fontsize=7, color="0.3", va="bottom")
    if quick:
        fig.text(1 - left, bottom, "quick", fontsize=8, color="#d55e00", weight="bold", ha="right", va="bottom")


def write_csv(path, table):
    """A table is {column: values} or [header, *rows(...), *rows(...)]; floats read back exactly."""
    if isinstance(table, dict):
        table = [tuple(table), *rows(*table.values())]
    if any(len(row) != len(table[0]) for row in table):
        raise ValueError(f"every row of the table must have the {len(table[0])} values of its header {table[0]}")
    with open(path, "w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows(table)


def render(key, context, out, suffix):
    """Draw one figure and save picture and table, both or neither; their paths."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own matplotlibrc must not change the pictures
        matplotlib.rcParams.update(STYLE)
        fig, table, caption = FIGURES[key].draw(context)
        finish(fig, caption, context.quick)
        stem = key.replace(":", "-")
        paths = [out / f"{stem}.{suffix}", out / f"{stem}.csv"]
        with atomic(paths[0]) as picture, atomic(paths[1]) as numbers:
            fig.savefig(picture, format=suffix, metadata=METADATA[suffix])
            write_csv(numbers, table)
    return paths


# ======================================================================================================================
# Figures
#
# A figure is a function of the context that returns (fig, table, caption): a Figure from panels(), the plotted numbers
# (see write_csv) and one line that states data, n, kernel and seed. It never saves anything itself.
# ======================================================================================================================


class Entry(NamedTuple):
    draw: Callable
    summary: str
    data: tuple  # names in DATA


FIGURES = {}


def figure(key, summary, data=""):
    """Register a figure function under `key`; `data` names the data sets it loads, separated by spaces."""

    def register(draw):
        FIGURES[key] = Entry(draw, summary, tuple(data.split()))
        return draw

    return register


# --- what several figures share ---


def spaced(stop, per_decade=24):
    """Iterations to look at, from 1 to stop, evenly spaced on a log axis."""
    decades = math.log10(stop)
    return np.unique(np.round(np.logspace(0, decades, math.ceil(per_decade * decades) + 1)).astype(int))


def solve(algorithm, G, context, *, max_iter, label="", **options):
    """Run an algorithm of fastmargin under a progress bar."""
    with progress(max_iter, context, label or algorithm.__name__) as bar:
        return algorithm(G, max_iter=max_iter, callback=lambda result: bar.update(result.n_iter - bar.n), **options)


def fitted_slope(t, value, start):
    """Exponent b of the least-squares fit value ~ t^b over t >= start, value > 0."""
    used = (t >= start) & (value > 0)
    return np.polyfit(np.log(t[used]), np.log(value[used]), 1)[0] if used.sum() > 1 else math.nan


def error_rate(scores, y):
    """Fraction of points on the wrong side, or on neither; scores (..., n)."""
    return np.mean(scores * y <= 0, axis=-1)


# --- ramdas14 ---

BOUND = {"marker": "", "alpha": 0.45, "linewidth": 3}  # a bound is drawn as its method's curve, broad and pale


def planted_margin(n, d, rho, rng):
    """Unit rows (rho, sqrt(1 - rho^2) u_i) with 0 in the hull of the u_i, so the margin is rho, along the first axis.

    The u_i crowd around one direction and only u_0 balances them: a perceptron has to find it.
    """
    u = rng.normal(size=(n, d - 1))
    u[:, 0] += 1.0
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    u[0] = -u[1:].sum(axis=0)
    u[0] /= np.linalg.norm(u[0])
    return np.column_stack((np.full(n, rho), math.sqrt(1 - rho**2) * u))


def planted_inradius(n, d, thinnest, rng):
    """Rows whose hull holds the ball of the returned radius and no larger one around 0; largest norm 1.

    The hull is that of the points t +- a_j e_j, a_j from 1 down to ``thinnest``, whose facets are at the distance
    (1 - sum_j |t_j| / a_j) / (sum_j a_j^-2)^(1/2) or more from 0; the other rows are mixtures of these.
    """
    a = np.geomspace(1, thinnest, d)
    shares = rng.uniform(-1, 1, d)
    shares *= 0.5 / np.abs(shares).sum()
    corners = np.vstack((np.diag(a), -np.diag(a))) + shares * a
    Z = np.vstack((corners, rng.dirichlet(np.full(2 * d, 0.3), size=n - 2 * d) @ corners))
    scale = np.linalg.norm(Z, axis=1).max()
    return Z / scale, 0.5 / np.linalg.norm(1 / a) / scale


def iterations(algorithm, Z, **options):
    """Iterations until an algorithm stops by itself on G = Z Z'; nan where it does not."""
    result = algorithm(fm.FeatureGram(Z), trace_at=[], max_iter=10_000_000, **options)
    return result.n_iter if result.status in ("separated", "infeasible") else math.nan


@figure("ramdas14:example", "section 2.2's example: normalising the points saves a factor r^4")
def ramdas14_example(context):
    rng, pairs, trials = context.rng(), 50, context.pick(9, 3)
    spread = np.geomspace(1, 10, context.pick(13, 5))
    directions = np.repeat([[0.6, 0.8], [-0.8, -0.6]], pairs, axis=0)
    counts = {"raw, norms mixed": [], "raw, + long and - short": [], "normalised": []}
    for r in progress(spread, context, "ramdas14:example"):
        samples = []
        for _ in range(trials):
            mixed = np.exp(rng.uniform(-math.log(r), math.log(r), 2 * pairs))
            mixed[[0, -1]] = r, 1 / r
            order = rng.permutation(2 * pairs)
            samples.append([iterations(fm.perceptron, (norms[:, None] * directions)[order])
                            for norms in (mixed, np.repeat([r, 1 / r], pairs), np.ones(2 * pairs))])
        for values, median in zip(counts.values(), np.median(samples, axis=0), strict=True):
            values.append(median)
    bounds = {"raw": 50 * spread**4, "normalised": np.full(len(spread), 50.0)}  # rho = 0.02^(1/2) / r, max norm r
    fig, [[ax]] = panels(width=5.5, height=3.8)
    table = [("points", "r", "mistakes", "bound")]
    for i, (name, mistakes) in enumerate(counts.items()):
        slope = fitted_slope(spread, np.array(mistakes), 2)
        ax.loglog(spread, mistakes, label=f"{name}: ~ $r^{{{slope:.1f}}}$", **style(i))
        table += rows(name, spread, mistakes, bounds[name.partition(",")[0]])
    for i, name in ((0, "raw"), (2, "normalised")):
        ax.loglog(spread, bounds[name], label=f"bound, {name}", **style(i) | BOUND)
    ax.set(xlabel="r: norms lie between 1/r and r", ylabel="updates of the perceptron")
    legend(fig)
    return fig, table, (
        f"Section 2.2: + along (0.6, 0.8), - along (0.8, 0.6), n = {2 * pairs}, norms in [1/r, r], linear kernel, "
        f"cyclic rule, median of {trials} samples, seed {context.seed}; bound max ||x||^2 / rho^2, r^4 apart"
    )


PERCEPTRONS = {"perceptron": fm.perceptron, "NKP": fm.nkp, "SNKP": fm.snkp}


@figure("ramdas14:theorem1", "iterations to separate against 1/rho and n: perceptron, NKP, SNKP, and their bounds")
def ramdas14_theorem1(context):
    rng, trials = context.rng(), context.pick(5, 1)
    grids = {
        "1/rho": [(1000, 1 / x) for x in np.geomspace(3, context.pick(600, 30), context.pick(14, 4))],
        "n": [(int(n), 0.02) for n in np.geomspace(10, context.pick(10_000, 300), context.pick(13, 4))],
    }
    fig, axes = panels(1, 2)
    table = [("method", "n", "rho", "iterations", "bound")]
    for ax, (label, grid) in zip(axes[0], grids.items(), strict=True):
        n, rho = np.array(grid).T
        found = {name: np.empty((len(grid), trials)) for name in PERCEPTRONS}
        for k, (size, margin) in enumerate(progress(grid, context, f"ramdas14:theorem1, {label}")):
            for trial in range(trials):
                Z = planted_margin(size, 10, margin, rng)
                for name, algorithm in PERCEPTRONS.items():
                    found[name][k, trial] = iterations(algorithm, Z)
        x = 1 / rho if label == "1/rho" else n
        bounds = dict.fromkeys(PERCEPTRONS, 1 / rho**2) | {"SNKP": 2 * np.sqrt(2 * np.log(n)) / rho}
        for i, name in enumerate(PERCEPTRONS):
            y = np.median(found[name], axis=1)
            slope = f": exponent {fitted_slope(x, y, 10):.2f} in $1/\\rho$" if label == "1/rho" else ""
            ax.loglog(x, y, **style(i), **({"label": name + slope} if slope else {}))
            table += rows(name, n.astype(int), rho, y, bounds[name])
        for name, i in (("NKP", 1), ("SNKP", 2)):
            formula = {"NKP": r"$1/\rho^2$", "SNKP": r"$2\sqrt{2 \ln n}/\rho$"}[name]
            ax.loglog(x, bounds[name], label=f"bound of {name}: {formula}", **style(i) | BOUND)
        ax.set(xlabel="$1/\\rho$" if label == "1/rho" else "n", ylabel="iterations to separate")
    axes[0, 0].set_title("n = 1000")
    axes[0, 1].set_title(r"$\rho$ = 0.02")
    legend(fig)
    return fig, table, (
        f"Planted margin rho, d = 10, linear kernel, unit rows, median of {trials} sample(s), seed {context.seed}; "
        "exponents fitted to 1/rho >= 10"
    )


@figure("ramdas14:lemma5", "Lemmas 4 and 5 along a run of SNKP: the two sides close on -rho^2/2")
def ramdas14_lemma5(context):
    n, rho = 1000, 0.01
    Z = planted_margin(n, 50, rho, context.rng())
    result = fm.snkp(fm.FeatureGram(Z), trace_at=range(100_000), keep_iterates=True)
    k = result.trace["iteration"]
    w = result.iterates @ Z
    m, half_square = w @ Z.T, 0.5 * np.sum(w**2, axis=1)
    mu = 4 / ((k + 1.0) * (k + 2.0))
    low = m.min(axis=1)
    smoothed = -low + mu * np.log(np.mean(np.exp((low[:, None] - m) / mu[:, None]), axis=1)) + half_square
    curves = {
        r"$\mu_k \ln n - L(\alpha_k)$": mu * math.log(n) + low - half_square,
        r"$-L_{\mu_k}(\alpha_k)$": -smoothed,
        r"$\|p_k\|_G^2/2$": 0.5 * result.trace["upper"] ** 2,
    }
    fig, [[ax]] = panels(width=5.5, height=3.8)
    for i, (name, values) in enumerate(curves.items()):
        ax.loglog(k + 1, values, label=name, **style(i))
    ax.axhline(0.5 * rho**2, color="0.5", label=r"$\rho^2/2$")
    ax.set(xlabel="k + 1", ylabel="minus the objective")
    legend(fig)
    names = ("mu_ln_n_minus_L", "minus_L_mu", "half_norm_p_squared")
    table = {"k": k, **dict(zip(names, curves.values(), strict=True)), "half_rho_squared": 0.5 * rho**2}
    slack = min(np.min(curves[a] - curves[b]) for a, b in itertools.pairwise(curves))
    return fig, table, (
        f"Planted margin rho = {rho}, n = {n}, d = 50, linear kernel, unit rows, seed {context.seed}; separated at "
        f"k = {result.n_iter}; the lemmas order the curves from above to below, least gap {slack:.1e}"
    )


PRIMAL_DUAL = {
    "von Neumann": (fm.von_neumann, "eps", {}),
    "SNKPVN": (fm.snkpvn, "delta", {}),
    "ISNKPVN": (fm.isnkpvn, "eps", {}),
    "ISNKPVN, entropy": (fm.isnkpvn, "eps", {"prox": "entropy"}),
}


@figure("ramdas14:theorem4", "iterations to an eps-certificate against 1/eps, and to separate against 1/rho")
def ramdas14_theorem4(context):
    rng, n, trials = context.rng(), 200, context.pick(5, 1)
    eps = np.geomspace(1e-2, context.pick(3e-6, 1e-4), context.pick(15, 5))
    rho = np.geomspace(0.3, context.pick(1e-3, 1e-2), context.pick(13, 5))
    infeasible = [planted_inradius(n, 40, 1e-3, rng) for _ in range(trials)]
    feasible = [[planted_margin(n, 40, margin, rng) for margin in rho] for _ in range(trials)]
    radius = np.median([r for _, r in infeasible])
    fig, [[left, right]] = panels(1, 2)
    table = [("case", "method", "accuracy", "iterations")]
    for i, (name, (algorithm, accuracy, options)) in enumerate(progress(PRIMAL_DUAL.items(), context, "theorem4")):
        y = np.median([[iterations(algorithm, Z, **{accuracy: e}, **options) for e in eps] for Z, _ in infeasible], 0)
        left.loglog(1 / eps, y, label=f"{name}: exponent {fitted_slope(1 / eps, y, 300):.2f} in 1/eps", **style(i))
        table += rows("infeasible", name, eps, y)
        if algorithm is not fm.von_neumann:  # it does not look for a separator
            y = np.median([[iterations(algorithm, Z, **{accuracy: margin / 10}, **options)
                            for Z, margin in zip(sets, rho, strict=True)] for sets in feasible], axis=0)
            right.loglog(1 / rho, y, **style(i))
            table += rows("feasible", name, rho, y)
    y = np.median([[iterations(fm.snkp, Z) for Z in sets] for sets in feasible], axis=0)
    right.loglog(1 / rho, y, label="SNKP", **style(4))
    table += rows("feasible", "SNKP", rho, y)
    left.loglog(1 / eps, 1 / eps**2, label="bound of von Neumann", **style(0) | BOUND)
    for ax, x in ((left, 1 / eps), (right, 1 / rho)):
        ax.loglog(x, 2 * math.sqrt(2 * n) * x, label="bound of SNKPVN", **style(1) | BOUND)
    right.loglog(1 / rho, 2 * math.sqrt(2 * math.log(n)) / rho, label="bound of SNKP", **style(4) | BOUND)
    left.set(xlabel="1/eps", ylabel=r"iterations to $\|p\|_G \leq$ eps", title="infeasible")
    right.set(xlabel=r"$1/\rho$", ylabel="iterations to separate", title="feasible")
    legend(fig)
    return fig, table, (
        f"n = {n}, d = 40, linear kernel, median of {trials} sample(s), seed {context.seed}; infeasible: inradius "
        f"{radius:.1e}, exponents fitted to 1/eps >= 300; feasible: planted margin rho, eps = delta = rho/10"
    )


@figure("ramdas14:mnist", "SNKP and ISNKPVN on MNIST 3 vs 5: Gaussian kernel, separable; linear, not", data="mnist")
def ramdas14_mnist(context):
    data = load_mnist(context, digits=(3, 5))
    n, eps = context.pick(len(data.y_train), 1000), context.pick(1e-3, 1e-2)
    X, y = data.X_train[:n], data.y_train[:n]
    kernels = {"Gaussian kernel": fm.gram(X, y, kernel="rbf"), "linear kernel": fm.features(X, y)}
    methods = {"SNKP": (fm.snkp, {}), "ISNKPVN": (fm.isnkpvn, {"eps": eps}),
               "ISNKPVN, entropy": (fm.isnkpvn, {"eps": eps, "prox": "entropy"})}
    fig, axes = panels(1, 2)
    table = [("kernel", "method", "iteration", "lower", "upper", "status")]
    ends = []
    for ax, (kernel, G) in zip(axes[0], kernels.items(), strict=True):
        for i, (name, (algorithm, options)) in enumerate(methods.items()):
            steps = context.pick(20_000, 300)
            result = solve(algorithm, G, context, max_iter=steps, label=f"{name}, {kernel}", **options)
            trace = result.trace
            ax.semilogx(trace["iteration"] + 1, trace["upper"], label=f"{name}: upper and lower", **style(i))
            ax.semilogx(trace["iteration"] + 1, trace["lower"], **style(i))
            table += rows(kernel, name, trace["iteration"], trace["lower"], trace["upper"], result.status)
            ends.append(f"{name} {result.status} at {result.n_iter} in [{result.lower:.2g}, {result.upper:.2g}]")
        ax.axhline(0, color="0.5", linewidth=1)
        ax.set(xlabel="k + 1", ylabel="certified interval of the margin", title=kernel)
        ax.set(xlim=(10, None), ylim=(-0.1, 0.1))
    legend(fig)
    half = len(methods)
    return fig, table, (
        f"MNIST 3 vs 5 ({data.source}), n = {n:,}, unit rows, gamma = 1/(d Var X), eps = {eps:g}, no randomness. "
        f"Gaussian: {'; '.join(ends[:half])}. Linear: {'; '.join(ends[half:])}"
    )


# --- ji21 ---

JI21_METHODS = {
    "gradient descent": fm.gradient_descent,
    "normalized GD": fm.normalized_gradient_descent,
    "batch perceptron": fm.batch_perceptron,
    "momentum": fm.momentum,
}


@figure("ji21:fig1", "margins on MNIST 0 vs 1, separable: momentum against its predecessors", data="mnist")
def ji21_fig1(context):
    data = load_mnist(context, digits=(0, 1))
    G = fm.features(data.X_train, data.y_train, normalize="max")
    n, steps = len(data.y_train), context.pick(10_000, 300)
    best = fm.max_margin(G, tol=1e-9)
    fig, [[left, right]] = panels(1, 2)
    table = [("method", "iteration", "lower", "upper", "gap")]
    for i, (name, algorithm) in enumerate(JI21_METHODS.items()):
        trace = solve(algorithm, G, context, max_iter=steps, trace_at=spaced(steps)).trace[1:]
        t, gap = trace["iteration"], best.lower - trace["lower"]
        table += rows(name, t, trace["lower"], trace["upper"], gap)
        left.semilogx(t, trace["lower"], label=name, **style(i))
        right.loglog(t, gap / best.lower, **style(i))
        if name == "momentum":
            slope = fitted_slope(t, gap, steps / 30)
    bound = 4 * (1 + math.log(n)) * (1 + 2 * np.log(t + 1)) / (best.lower * (t + 1.0) ** 2)
    table += rows("Theorem 3.1", t, best.lower - bound, math.nan, bound) + rows(
        "max_margin", best.n_iter, best.lower, best.upper, 0.0
    )
    left.axhline(best.lower, color="0.5", linewidth=1, label=f"maximum margin {best.lower:.6g}")
    left.set(xlabel="iteration t", ylabel="margin", xlim=(10, None), ylim=(-2 * best.lower, 1.15 * best.lower))
    right.loglog(t, bound / best.lower, color="0.5", linewidth=3, alpha=0.5, label="bound of Theorem 3.1")
    for power, dashes in ((1, ":"), (2, "--")):
        guide = 30.0 * (t / t[0]) ** -power
        right.loglog(t, guide, color="0.6", linewidth=1, linestyle=dashes, label=f"slope $t^{{-{power}}}$")
    right.set(xlabel="iteration t", ylabel="relative gap to the maximum margin", ylim=(1e-5, 100))
    legend(fig)
    return fig, table, (
        f"MNIST 0 vs 1 ({data.source}), n = {n:,}, linear kernel, rows scaled to norm at most 1, no randomness; "
        f"momentum's gap falls as t^{slope:.2f} (fitted to t >= {steps // 30})"
    )


@figure("ji21:fig2", "margins and test errors on MNIST 3 vs 5, not separable", data="mnist")
def ji21_fig2(context):
    data = load_mnist(context, digits=(3, 5))
    G = fm.features(data.X_train, data.y_train, normalize="max")
    n, steps = len(data.y_train), context.pick(10_000, 300)
    fig, [[left, right]] = panels(1, 2)
    table = [("method", "iteration", "lower", "upper", "test_error")]
    for i, (name, algorithm) in enumerate(JI21_METHODS.items()):
        result = solve(algorithm, G, context, max_iter=steps, trace_at=spaced(steps), keep_iterates=True)
        trace, weights = result.trace[1:], result.iterates[1:] @ G.rows
        t, errors = trace["iteration"], error_rate(weights @ data.X_test.T, data.y_test)
        table += rows(name, t, trace["lower"], trace["upper"], errors)
        left.semilogx(t, trace["lower"], label=name, **style(i))
        right.semilogx(t, 100 * errors, **style(i))
    left.fill_between(t, trace["lower"], trace["upper"], color="0.85", label="certified interval of momentum")
    left.axhline(0, color="0.5", linewidth=1)
    left.set(xlabel="iteration t", ylabel="margin", ylim=(-0.3, 0.1))
    right.set(xlabel="iteration t", ylabel="test error (%)", ylim=(0, 20))
    legend(fig)
    return fig, table, (
        f"MNIST 3 vs 5 ({data.source}), n = {n:,}, {len(data.y_test):,} test images, linear kernel, rows scaled to "
        f"norm at most 1, no randomness; after {steps:,} steps momentum certifies that no margin exceeds "
        f"{result.upper:.2g}"
    )


# --- apidopoulos22 ---


@figure("apidopoulos22:fig1", "exponential, logistic and hinge loss")
def apidopoulos22_fig1(context):
    m = np.linspace(-2.5, 2.5, context.pick(1001, 101))
    losses = {"exponential": np.exp(-m), "logistic": np.logaddexp(0.0, -m), "hinge": np.maximum(0.0, 1.0 - m)}
    fig, [[ax]] = panels(width=5.5, height=3.6)
    for i, (name, loss) in enumerate(losses.items()):
        ax.plot(m, loss, label=name, **style(i))
    ax.set(xlabel="margin m = y f(x)", ylabel="loss", ylim=(-0.2, 6))  # up to exp(2.5) = 12 the rest would be flat
    legend(fig)
    return fig, {"m": m, **losses}, "No data, kernel or seed: the formulas exp(-m), ln(1 + exp(-m)), max(0, 1 - m)"


def toy_set(rng):
    """80 points with support vectors +-(1/2, 3/2), +-(3/2, 1/2): w* = (1/2, 1/2); the others lie farther away."""
    support = np.array([[0.5, 1.5], [1.5, 0.5], [-0.5, -1.5], [-1.5, -0.5]])
    y = rng.choice([-1, 1], 1000)
    X = y[:, None] * 1.5 + rng.normal(scale=0.8, size=(1000, 2))
    far = y * X.sum(axis=1) / 2 > 1.2
    return np.vstack((support, X[far][:76])), np.concatenate(([1, 1, -1, -1], y[far][:76]))


def toy_runs(context):
    """The runs of Figures 2 and 3: X, y and, for each method, w_t for t = 0, ..., T."""
    X, y = toy_set(context.rng())
    G, steps = fm.features(X, y, normalize=None), context.pick(1000, 200)
    options = {"lam": "1/t", "lam0": 4.0, "max_iter": steps, "trace_at": range(steps + 1), "keep_iterates": True}
    results = {"Algorithm 1": fm.diagonal_descent(G, **options)}
    for accel in (10, 30, 50):
        results[f"Algorithm 2, a = {accel}"] = fm.inertial_diagonal_descent(G, accel=accel, **options)
    return X, y, {name: result.iterates @ G.rows for name, result in results.items()}


TOY = "80 points, w* = (1/2, 1/2), linear kernel, as they are; lambda_t = 4/t, seed {}"


@figure("apidopoulos22:fig2", "the 80-point toy set and the separating lines after 1000 steps")
def apidopoulos22_fig2(context):
    X, y, runs = toy_runs(context)
    fig, [[ax]] = panels(width=5.5, height=5)
    for label, marker, filled in ((1, "o", "0.55"), (-1, "s", "none")):
        ax.scatter(*X[y == label].T, s=22, marker=marker, facecolors=filled, edgecolors="0.3", label=f"y = {label:+d}")
    ax.scatter(*X[:4].T, s=110, facecolors="none", edgecolors="#d55e00", label="support vectors")
    ends = np.array([-4.0, 4.0])
    table = [("kind", "a", "b")] + rows("point of class +1", *X[y == 1].T) + rows("point of class -1", *X[y == -1].T)
    for i, (name, w) in enumerate(runs.items()):
        ax.plot(ends, -ends * w[-1, 0] / w[-1, 1], label=name, **style(i) | {"marker": ""}, alpha=0.8)
        table += rows(f"w of {name}", *w[-1])
    ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
    legend(fig)
    return fig, table, f"{TOY.format(context.seed)}; lines <w_T, x> = 0 after T = {len(w) - 1} steps (they coincide)"


@figure("apidopoulos22:fig3", "direction, margin and angle gap on the toy set: Algorithm 1 against a = 10, 30, 50")
def apidopoulos22_fig3(context):
    X, y, runs = toy_runs(context)
    best = np.full(2, math.sqrt(0.5))
    fig, [axes] = panels(1, 3, width=3.9)
    table = [("method", "t", "direction_gap", "margin_gap", "angle_gap")]
    for i, (name, w) in enumerate(runs.items()):
        t, direction = np.arange(1, len(w)), w[1:] / np.linalg.norm(w[1:], axis=1, keepdims=True)
        distance = np.linalg.norm(direction - best, axis=1)
        margin = math.sqrt(2) - (direction @ (y[:, None] * X).T).min(axis=1)
        gaps = distance, margin, 0.5 * distance**2  # 1 - <a, b> = ||a - b||^2 / 2 for unit vectors, and no cancellation
        for ax, gap in zip(axes, gaps, strict=True):
            ax.semilogy(t, np.maximum(gap, 1e-18), label=name, **style(i))
        table += rows(name, t, *gaps)
        if name == "Algorithm 1":
            above = distance > 1e-14  # below, rounding
            tail = above & (t >= t[above][-1] / 2)
            rate, start = math.exp(np.polyfit(t[tail], np.log(distance[tail]), 1)[0]), t[tail][0]
    for ax, title in zip(axes, ("direction gap", "margin gap", "angle gap"), strict=True):
        ax.set(xlabel="t", title=title, ylim=(1e-17, 10))
    legend(fig)
    return fig, table, (
        f"{TOY.format(context.seed)}; Algorithm 1's direction gap falls as {rate:.5f}^t (fitted to t >= {start})"
    )


def noisy_set(context, flipped):
    """1,200 points of N(+-(1/2, 1/2), 0.4 I), half for training, with a share of the training labels flipped."""
    rng = context.rng()
    y = rng.permutation(np.repeat([-1, 1], 600))
    X = y[:, None] * 0.5 + rng.normal(scale=math.sqrt(0.4), size=(1200, 2))
    noisy = y[:600].copy()
    noisy[rng.permutation(600)[: round(600 * flipped)]] *= -1
    return X[:600], noisy, X[600:], y[600:]


def noisy_figure(context, key, labels, options):
    """Figures 4 and 5: rows are 0, 10 and 20 % of flipped labels; margin gap and test error of Algorithms 1 and 2."""
    steps = context.pick(2000, 100)
    methods = {"Algorithm 1": fm.diagonal_descent, "Algorithm 2": fm.inertial_diagonal_descent}
    fig, axes = panels(3, 4, width=3.3, height=2.6)
    table = [("flipped", "method", "lambda_t", "t", "margin_gap", "test_error")]
    tops = []
    bar = progress(3 * len(methods) * len(options), context, key)
    for row, flipped in zip(axes, (0.0, 0.1, 0.2), strict=True):
        X, y, X_test, y_test = noisy_set(context, flipped)
        G = fm.gram(X, y, sigma2=0.15)
        cross = fm.kernel_matrix(X, X_test, sigma2=0.15)
        best = fm.max_margin(G)
        tops.append(best.upper)
        for column, (name, algorithm) in enumerate(methods.items()):
            for i, (label, option) in enumerate(zip(labels, options, strict=True)):
                result = algorithm(G, max_iter=steps, trace_at=spaced(steps), keep_iterates=True, **option)
                t, gap = result.trace["iteration"][1:], best.upper - result.trace["lower"][1:]
                error = error_rate(result.iterates[1:] * y @ cross, y_test)
                row[column].loglog(t, gap, label=label, **style(i))
                row[2 + column].semilogx(t, 100 * error, **style(i))
                table += rows(flipped, name, label.translate({ord("$"): "", ord("\\"): ""}), t, gap, error)
                bar.update()
            row[column].set_title(f"{name}, {100 * flipped:.0f} % flipped")
            row[2 + column].set_title(f"{name}, {100 * flipped:.0f} % flipped")
            row[column].set_ylabel("margin gap")
            row[2 + column].set(ylabel="test error (%)", ylim=(10, 25))
    for ax in axes[-1]:
        ax.set_xlabel("t")
    bar.close()
    legend(fig)
    return fig, table, (
        "1,200 points of N(+-(1/2, 1/2), 0.4 I), 600 for training, Gaussian kernel with sigma^2 = 0.15, "
        f"a = 10, seed {context.seed}; gap to the upper end of the certified maximum margin, "
        f"{', '.join(f'{top:.1e}' for top in tops)} in the three rows"
    )


@figure("apidopoulos22:fig4", "noisy classes, lambda_t = lambda_0/t: margin gap and test error for four lambda_0")
def apidopoulos22_fig4(context):
    starts = (100, 10, 1, 0.01)
    return noisy_figure(context, "apidopoulos22:fig4", [f"$\\lambda_0$ = {start:g}" for start in starts],
                        [{"lam": "1/t", "lam0": start} for start in starts])


@figure("apidopoulos22:fig5", "noisy classes, lambda_0 = 8: margin gap and test error for five rates of decay")
def apidopoulos22_fig5(context):
    decays = {"1/log(1+t)": "8/log(1+t)", "1/sqrt(t)": r"8/$\sqrt{t}$", "1/t": "8/t", "1/t^2": "8/$t^2$",
              "2^-t": "8/$2^t$"}
    return noisy_figure(context, "apidopoulos22:fig5", [f"$\\lambda_t$ = {label}" for label in decays.values()],
                        [{"lam": decay, "lam0": 8.0} for decay in decays])


def standardised(train, test):
    """Every feature with mean 0 and standard deviation 1 on the training points; constant features become 0."""
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation[deviation == 0] = 1
    return (train - mean) / deviation, (test - mean) / deviation


REAL_METHODS = {
    "Algorithm 1": (fm.diagonal_descent, {}),
    "Algorithm 2": (fm.inertial_diagonal_descent, {}),
    "normalized GD, 1/sqrt(t)": (fm.normalized_gradient_descent, {"schedule": "sqrt"}),
    "momentum": (fm.momentum, {}),
}


@figure("apidopoulos22:fig6", "MNIST pairs and HTRU2: margin gap and test error of four methods", data="mnist htru2")
def apidopoulos22_fig6(context):
    steps, most = context.pick(1000, 60), context.pick(None, 1000)
    sets, sources = {}, set()
    for a, b in ((3, 5), (3, 8), (4, 9)):
        split = load_mnist(context, digits=(a, b))
        sets[f"MNIST {a} vs {b}"] = (split.X_train, split.y_train, split.X_test, split.y_test, 3.4)
        sources.add(split.source)
    points = load_htru2(context)
    order = context.rng().permutation(len(points.y))
    train, test = order[: (cut := int(0.7 * len(order)))], order[cut:]
    sets["HTRU2"] = (points.X[train], points.y[train], points.X[test], points.y[test], 4.0)
    fig, axes = panels(4, 4, width=3.3, height=2.5)
    table = [("data", "sigma2", "method", "t", "margin_gap", "test_error")]
    bar = progress(2 * len(sets) * len(REAL_METHODS), context, "apidopoulos22:fig6")
    sizes = []
    for column, (name, (X, y, X_test, y_test, sigma2)) in enumerate(sets.items()):
        X, y, X_test, y_test = X[:most], y[:most], X_test[:most], y_test[:most]
        X, X_test = standardised(X, X_test)
        sizes.append(f"{name} n = {len(y):,}")
        for half, width in enumerate((sigma2, sigma2 * X.shape[1])):
            G = fm.gram(X, y, sigma2=width)
            cross = fm.kernel_matrix(X, X_test, sigma2=width)
            best = fm.max_margin(G, tol=1e-6)
            top, bottom = axes[2 * half, column], axes[2 * half + 1, column]
            for i, (method, (algorithm, options)) in enumerate(REAL_METHODS.items()):
                result = algorithm(G, max_iter=steps, trace_at=spaced(steps, 16), keep_iterates=True, **options)
                t, gap = result.trace["iteration"][1:], best.upper - result.trace["lower"][1:]
                error = error_rate(result.iterates[1:] * y @ cross, y_test)
                top.loglog(t, gap, label=method, **style(i))
                bottom.semilogx(t, 100 * error, **style(i))
                table += rows(name, width, method, t, gap, error)
                bar.update()
            top.set_title(f"{name}, $\\sigma^2$ = {width:g}")
    bar.close()
    for row, label in zip(axes, ("margin gap", "test error (%)") * 2, strict=True):
        row[0].set_ylabel(label)
    for ax in axes[-1]:
        ax.set_xlabel("t")
    legend(fig)
    return fig, table, (
        f"{'; '.join(sizes)}; MNIST: {', '.join(sorted(sources))}; standardised features, Gaussian kernel, "
        f"lambda_t = 1/t, a = 10, HTRU2 split 70/30 with seed {context.seed}. Rows 1-2: sigma^2 as printed, with which "
        "standardised images make G all but the identity; rows 3-4: sigma^2 times the dimension"
    )


# ======================================================================================================================
# Command line
# ======================================================================================================================


def select(names):
    """The keys meant by names: a key, the part of keys after the colon, or all. A ValueError says what is unknown."""
    chosen = {}  # a dict keeps the order and drops repetitions
    bare = {key: key.rpartition(":")[2] for key in FIGURES}
    for name in names:
        keys = [key for key in FIGURES if name in ("all", key, bare[key])]
        if not keys:
            words = list(dict.fromkeys([*FIGURES, *bare.values(), "all", "list"]))
            close = difflib.get_close_matches(name, words) or [word for word in words if name in word]
            hint = f"did you mean {' or '.join(close[:3])}?" if close else "see: python reproduce.py list"
            raise ValueError(f"unknown figure {name!r}: {hint}")
        chosen |= dict.fromkeys(keys)
    return list(chosen)


def listing(context):
    width = max(map(len, FIGURES))
    for key, entry in FIGURES.items():
        states = {status(name, context) for name in entry.data} or {"-"}
        worst = next(state for state in ("missing", "bundled sample", "full", "-") if state in states)
        yield f"{key:{width}}  {worst:14}  {entry.summary}"


def parse(argv):
    def folder(text):
        if not os.path.isdir(text):
            raise argparse.ArgumentTypeError(f"no such folder: {text}")
        return Path(text)

    def seed(text):
        if not text.isdecimal():
            raise argparse.ArgumentTypeError(f"must be an integer of at least 0, got {text!r}")
        return int(text)

    usage = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(
        description=usage[0], epilog="\n\n".join(usage[1:]), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="name", help="figures such as fig3 or ji21:fig2, or list, or all")
    parser.add_argument("--quick", action="store_true", help="reduced work: seconds a figure, marked in the picture")
    parser.add_argument("--data", type=folder, metavar="DIR", help="where the data sets are (mnist/, htru2/, cifar10/)")
    parser.add_argument("--out", type=Path, default=ROOT / "figures", metavar="DIR", help="default: figures/")
    parser.add_argument("--format", choices=METADATA, default="png", help="default: png")
    parser.add_argument("--seed", type=seed, default=0, metavar="INT", help="default: 0")
    parser.add_argument("--no-progress", action="store_true", help="no progress bars")
    return parser.parse_intermixed_args(argv)  # options may stand between names


def run(argv):
    options = parse(argv)
    context = Context(options.quick, options.seed, not options.no_progress, options.data)
    if "list" in options.names:
        print(*listing(context), sep="\n")
        return 0
    try:
        keys = select(options.names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    failed = []
    for key in keys:
        start = time.perf_counter()
        try:
            paths = render(key, context, options.out, options.format)
        except (DataError, OSError) as error:
            failed.append(key)
            print(f"{key} not drawn: {error}", file=sys.stderr)
            continue
        print(f"{paths[0]} and {paths[1].name}: {time.perf_counter() - start:.1f} s", flush=True)
    if failed and len(keys) > 1:
        print(f"{len(keys) - len(failed)} of {len(keys)} figures drawn, not {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main(argv=None):
    try:
        return run(argv)
    except DataError as error:  # from `list`: a data folder that does not exist
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
