"""What figures have in common: how one is written, data, tables, drawing, runs, pages and the command line.

Figures of reduced work or of a sample of the data go to figures/quick, so that they replace no full one, unless --out
names a folder. --redraw draws from the CSV file in --out, or, where there is none, from that in figures (with --quick,
figures/quick). Off a terminal a line a minute says how far a long computation is.

Processors round differently. If the CSV file in figures agrees with what was computed, it stays, and so does the PNG
file beside it; --redraw draws this anew. They agree if caption, columns and text are the same, and if no number differs
by more than 1e-9 of itself, plus what the figure declares as its noise. So measured seconds are written each time.

HTRU2 is bundled in tests/data. MNIST and CIFAR-10 are looked for in --data, then $FASTMARGIN_DATA, then the per-user
cache, ~/.cache/fastmargin or below $XDG_CACHE_HOME; what is missing is downloaded into the cache. Without a network a
bundled sample of MNIST is used.

A CSV file is saved before its picture is drawn, from these numbers and nothing else. It begins with the caption, after
"# "; then come the names of the columns and the rows, text in quotes, numbers without and to the last bit.

Sections: Figures (how one is written), Data, Tables, Drawing, Runs, Drawn points, Report, Command line.
"""

import argparse
import contextlib
import csv
import gzip
import hashlib
import html
import inspect
import io
import itertools
import lzma
import math
import multiprocessing
import os
import re
import signal
import string
import sys
import tarfile
import tempfile
import textwrap
import time
import urllib.request
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import matplotlib.figure
import matplotlib.lines
import matplotlib.style
import matplotlib.ticker
import matplotlib.transforms
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from tqdm import tqdm

import fastmargin as fm

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "figures"


# ======================================================================================================================
# Figures
#
# A figure is two functions side by side. The first yields rows, dicts {column: a value or an array}. It takes a Run and
# sizes, which the decorator gives; its docstring is the caption. The second draws the table of these rows, and looks at
# nothing else.
#
#     @figure("new", "What the picture shows", minutes=1, panels=(1, 2), steps=10_000, quick={"steps": 100})
#     def new(run, steps):
#         """Data: what the picture must say of data and symbols, in two lines at most. [[The curves coincide.]]
#
#         The settings, which stand below the picture in the report: {steps:,} steps, seed {seed}.
#         """
#         yield {"method": "momentum", "t": np.arange(steps), "gap": ...}
#
#
#     @new.drawing
#     def _(table, left, right):
#         for method, rows in groups(table, "method"):
#             left.loglog(rows["t"], rows["gap"], label=method, **LOOKS[method])
#
# Nothing else is needed: the CSV file, the picture, `list` and the report follow.
#
# The finding, and what stands in [[ ]], are results of the sizes in the decorator. With other sizes, on a sample or on
# one's own points neither is shown: the caption begins with a title that says what differs.
# ======================================================================================================================


class Table(dict):
    """Columns {name: array}, all equally long, of text or of float64; `caption` says what they are."""

    def __init__(self, columns, caption):
        super().__init__(columns)
        self.caption = caption


@dataclass
class Figure:
    """A figure, as the decorator @figure has it. A call computes its table, `draw` makes the picture of a table.

    Attributes
    ----------
    key : its name; that of Figure 1 of a paper is "paper:fig1"
    finding : a sentence, the title of the picture; {name} in it is a number of the table, see `numbers`
    rows : the function of its rows
    minutes : that it takes on two cores, roughly
    data : the names of the data sets that it loads
    panels : rows and columns of panels; either may be the name of a column, one for each of its values
    height : of a panel in inches
    noise : by how much rounding may change a number of the table, beyond 1e-9 of it
    takes_points : whether one's own points may stand for its data
    is_measured : whether the finding follows from the numbers of the table, so that it is true of all sizes
    sizes : arguments of `rows`: a number, a text, a tuple of just so many, or a list of any number of them
    quick, sample : sizes with --quick, and those for the bundled sample, if they are others
    """

    key: str
    finding: str
    rows: Callable
    minutes: float
    data: list
    panels: tuple
    height: float
    noise: float
    takes_points: bool
    is_measured: bool
    sizes: dict
    quick: dict
    sample: dict
    draw_panels: Callable = None
    numbers_of: Callable = lambda table: {}
    table_of: Callable = None

    def __call__(self, seed=0, data=None, **sizes):
        """Return the Table of these sizes; the others are as declared.

        ``data`` is a folder of data sets, or one's own points: a file (see `read_points`), or arrays X, y and perhaps
        X_test, y_test.
        """
        run = Run(seed, data=data, title=self.key)
        own = {name: self.size(name, value) for name, value in sizes.items()}
        return self.compute(run, run.named() | own)

    def compute(self, run, own, quick=False):
        """Return the Table of a run, with sizes of one's own."""
        self.check(run)
        if run.points and "digits" in own:
            raise DataError(
                "digits chooses images of MNIST, which your points replace: leave it out"
            )
        sizes = dict(self.sizes)
        if self.sample and not run.points:
            for name in self.data:
                run.load(name)
            if run.sampled:
                sizes |= self.sample
        if quick:
            sizes |= self.quick
        sizes |= {name: value for name, value in own.items() if name in sizes}
        try:
            columns = stack(self.rows(run, **sizes))
        except ValueError as error:
            if not own:
                raise
            raise DataError(f"{in_words(self.key, own)} cannot be computed: {error}") from error
        return Table(columns, self.caption(run, sizes))

    def draw(self, table):
        """Return the Matplotlib figure of a table: title, first paragraph of the caption, panels, a legend below."""
        title, caption = self.words(table)
        with styled():
            rows, columns = self.grid(table)
            fig = Picture(figsize=(BREADTH, self.height * rows))
            axes = fig.subplots(rows, columns, squeeze=False)
            self.draw_panels(dict(table), *axes.flat)  # a drawing may add columns to its copy
            for ax in fig.axes:
                if not self.is_declared(table):
                    ax.autoscale()  # limits that a drawing sets are those of the declared sizes
                for axis in (ax.xaxis, ax.yaxis):
                    if type(axis.get_major_formatter()) is matplotlib.ticker.ScalarFormatter:
                        axis.set_major_formatter("{x:,g}")  # "1,000", as in words
                spread_names(ax, self.height)
            frame(fig, title, caption.partition(" | ")[0])
        return fig

    def grid(self, table):
        """Return the numbers of rows and of columns of panels."""
        return tuple(
            len(groups(table, part)) if isinstance(part, str) else part for part in self.panels
        )

    def drawing(self, function):
        """Decorate the function (table, *axes) that draws the panels."""
        self.draw_panels = function
        return function

    def numbers(self, function):
        """Decorate a function of the table that returns {name: text}, for the finding and the pages."""
        self.numbers_of = function
        return function

    def table(self, function):
        """Decorate a function of the table that returns what a page shows of it, in Markdown."""
        self.table_of = function
        return function

    def title(self, table):
        """Return the finding with its numbers."""
        return self.finding.format(**self.numbers_of(table))

    def caption(self, run, sizes):
        """Return the docstring of `rows` in one line, with numbers in its fields and " | " between paragraphs.

        Where sizes or data are not the declared ones, a title that says so comes first.
        """
        paragraphs = inspect.cleandoc(self.rows.__doc__).split("\n\n")
        text = " | ".join(" ".join(part.split()) for part in paragraphs)
        text = text.format(**{"seed": run.seed} | sizes | run.facts)
        other = {name: size for name, size in sizes.items() if size != self.sizes[name]}
        if self.is_measured:  # the title is the finding, and the paragraph below it has these
            told = {field for _, field, *_ in string.Formatter().parse(paragraphs[0])}
            other = {name: size for name, size in other.items() if name not in told}
        heading = in_words(self.key, run.named() | other)
        if run.sampled:
            heading += f" on a sample of {', '.join(sorted(run.sampled))}"
        if heading == self.key:
            return re.sub(r"\[\[(.*?)\]\]", r"\1", text)
        return f"{heading} | " + " ".join(re.sub(r"\[\[.*?\]\]", "", text).split())

    def is_declared(self, table):
        """Return whether a table has the declared sizes; else its caption begins with the key of the figure."""
        return not getattr(table, "caption", f"{self.key} ").startswith(f"{self.key} ")

    def words(self, table):
        """Return the title of a table, and its caption without this title."""
        if self.is_declared(table):
            return self.title(table), table.caption
        if not hasattr(table, "caption"):
            return f"{self.key} with other rows", ""
        heading, _, caption = table.caption.partition(" | ")
        if self.is_measured:
            return self.title(table), f"{heading}. {caption}"
        return heading, caption

    def size(self, name, given):
        """Return a size of the kind of its default, from a value or from its text; a ValueError says what is wanted."""
        if name not in self.sizes:
            known = ", ".join(self.sizes) or "none"
            raise ValueError(f"{self.key} has no size {name!r}; its sizes are: {known}")
        default = self.sizes[name]
        several = isinstance(default, tuple | list)
        parts = [given]
        if several:
            parts = given.split(",") if isinstance(given, str) else np.atleast_1d(given).tolist()
        kind = type(default[0] if several else default)
        with contextlib.suppress(ValueError):  # of what is no number
            sizes = [kind(str(part)) for part in parts]
            is_large = kind is str or min(sizes) > 0 or several and min(sizes) == 0
            if is_large and not several:
                return sizes[0]
            if is_large and (isinstance(default, list) or len(sizes) == len(default)):
                return type(default)(sizes)
        wanted = {int: "a whole number above 0", float: "a number above 0", str: "a word"}[kind]
        if several:
            count = "" if isinstance(default, list) else f"{len(default)} "
            wanted = f"{count}values such as {in_text(default)}"
        raise ValueError(f"{name} of {self.key} must be {wanted}, got {in_text(given)}")

    def check(self, run):
        """Raise a ValueError if there are points of one's own, which the figure does not take."""
        if run.points and not self.takes_points:
            those = ", ".join(key for key, figure in FIGURES.items() if figure.takes_points)
            raise ValueError(f"{self.key} takes no points of one's own; these do: {those}")


FIGURES = {}


def in_text(size):
    """Return a size as the command line has it."""
    if isinstance(size, tuple | list):
        return ",".join(map(in_text, size))
    if isinstance(size, float) and float(f"{size:g}") == size:
        return f"{size:g}"
    return str(size)


def in_words(key, sizes):
    """Return the key of a figure with sizes."""
    each = ", ".join(f"{name} = {in_text(size)}" for name, size in sizes.items())
    return f"{key} with {each}" if each else key


def figure(
    key,
    finding,
    *,
    minutes,
    data="",
    panels=(1, 1),
    height=None,
    noise=0.0,
    takes_points=False,
    is_measured=False,
    quick=None,
    sample=None,
    **sizes,
):
    """Register the decorated function of rows as a Figure; `data` are names in DATA, separated by spaces."""

    def register(rows):
        if key in FIGURES:
            raise ValueError(f"there are two figures {key!r}")
        FIGURES[key] = Figure(
            key,
            finding,
            rows,
            minutes,
            data.split(),
            panels,
            height or {1: 4.0, 2: 2.9, 3: 2.6}[panels[1]],
            noise,
            takes_points,
            is_measured,
            sizes,
            quick or {},
            sample or {},
        )
        return FIGURES[key]

    return register


@dataclass
class Run:
    """What the rows of a figure are given: the seed, the data, bars.

    Attributes
    ----------
    data : a folder of data sets, or one's own points, see `Figure.__call__`; these become `points`, and data None
    facts : what a figure puts into its caption, {field: value}, beside its sizes and the seed
    sampled : the data sets of which it has seen only a sample
    points : arrays X, y and perhaps X_test, y_test of one's own, else None
    """

    seed: int = 0
    progress: bool = True
    data: Path | str | tuple | None = None
    title: str = ""
    facts: dict = field(default_factory=dict)
    sampled: set = field(default_factory=set)
    points: list | None = None
    name: str = "arrays"  # of the file of these points

    def __post_init__(self):
        given = self.data
        if isinstance(given, tuple | list):
            self.points = [np.asarray(array) for array in given]
        elif given and Path(given).is_file():
            self.points = read_points(Path(given))
            self.name = Path(given).stem
        if self.points:
            self.data = None

    def rng(self):
        return np.random.default_rng(self.seed)

    def named(self):
        """Return {"data": name} of one's own points, else {}."""
        return {"data": self.name} if self.points else {}

    def bar(self, items, what="", **options):
        """Return a tqdm bar over items; off a terminal it writes a line a minute.

        The time to go follows from the time of all items so far.
        """
        options["smoothing"] = 0
        if sys.stderr.isatty():
            options["leave"] = False
        else:
            line = "{desc}: {n_fmt} of {total_fmt}, {elapsed} gone, {remaining} to go\n"
            options |= {"delay": 60, "mininterval": 60, "maxinterval": 60, "bar_format": line}
        title = f"{self.title}, {what}" if what else self.title
        return tqdm(items, title, disable=not self.progress, **options)

    def load(self, name):
        """Return {file: its content} of a data set, read once a program, and note whether it is a sample."""
        place = name, self.data
        if place not in LOADED:
            LOADED[place] = load(name, self)
        contents, is_sample = LOADED[place]
        if is_sample:
            self.sampled.add(name)
        return contents

    def two_classes(self, a, b, tests=True):
        """Return X, y, X_test, y_test: one's own points, or the digits a and b of MNIST, -1 for a.

        Captions may have the fields {data}, what these are, {item} or {Item}, "image" or "point", {n} and {tests}.
        Three tenths of one's own points are drawn for testing, unless some are given, or ``tests`` is False.
        """
        if self.points:
            arrays = self.own_points(tests)
            item = "point"
            of_what = f"points of {self.name}"
        else:
            arrays = self.mnist(a, b)
            item = "image"
            of_what = f"images of the digits {a} and {b} of MNIST"
        n = len(arrays[1])
        self.facts |= {
            "data": f"{n:,} {of_what}",
            "item": item,
            "Item": item.capitalize(),
            "n": n,
            "tests": len(arrays[3]),
        }
        return arrays

    def own_points(self, tests=True):
        """Return X, y, X_test, y_test of one's own points, y from -1 and 1."""
        X, y, *rest = self.points
        classes = np.unique(y)
        if len(classes) != 2:
            raise DataError(f"labels of {self.name} must be of two classes, got {len(classes)}")
        arrays = [X.astype(float), np.where(y == classes[1], 1, -1)]
        if rest:
            return [*arrays, rest[0].astype(float), np.where(rest[1] == classes[1], 1, -1)]
        return self.split(*arrays) if tests else [*arrays, X[:0], y[:0]]

    def split(self, X, y):
        """Return X, y, X_test, y_test: seven tenths of the points, drawn, are for training."""
        train, test = np.split(self.rng().permutation(len(y)), [int(0.7 * len(y))])
        return [X[train], y[train], X[test], y[test]]

    def mnist(self, *digits):
        """Return X, y, X_test, y_test of MNIST, pixels / 255, labels 0..9; of digits a, b those two, -1 for a."""
        contents = self.load("mnist")
        arrays = []
        for part in ("train", "t10k"):
            pixels = np.frombuffer(contents[f"{part}-images-idx3-ubyte"], np.uint8, offset=16)
            y = np.frombuffer(contents[f"{part}-labels-idx1-ubyte"], np.uint8, offset=8)
            X = pixels.reshape(len(y), -1)
            y = y.astype(np.int64)
            if digits:
                missing = set(digits) - set(y.tolist())
                if missing or digits[0] == digits[1]:
                    raise DataError(f"digits must be two of 0 to 9, got {in_text(digits)}")
                chosen = np.isin(y, digits)
                X = X[chosen]
                y = np.where(y[chosen] == digits[1], 1, -1)
            arrays += [X / 255.0, y]
        return arrays

    def htru2(self):
        """Return HTRU2, candidates for pulsars as they come: X (17898, 8), y = +1 for a pulsar, else -1."""
        table = np.loadtxt(io.BytesIO(self.load("htru2")["HTRU_2.csv"]), delimiter=",")
        return np.ascontiguousarray(table[:, :-1]), np.where(table[:, -1] == 1, 1, -1)

    def cifar10(self):
        """Return X, y, X_test, y_test of CIFAR-10's first batches: images (10000, 32, 32, 3) uint8, labels 0..9."""
        arrays = []
        for content in self.load("cifar10").values():
            # A record has one byte for the label, then the planes R, G and B.
            records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
            images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            arrays += [np.ascontiguousarray(images), records[:, 0].astype(np.int64)]
        return arrays


# ======================================================================================================================
# Data
# ======================================================================================================================


class DataError(Exception):
    """Data that are missing or damaged; the message is one sentence for the user."""


class DataSet(NamedTuple):
    """A data set: its files and those bundled in tests/data are {name: SHA-256 of the content, unpacked}.

    The address with {} has each file; another is that of a tar archive.
    """

    files: dict
    address: str
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
        "https://ossci-datasets.s3.amazonaws.com/mnist/{}.gz",
        bundled={
            "train-images-idx3-ubyte": "8b624bf61e70a0fa4a26770a1e0f94f6ef5c19ee8a3a1d929c770a8f36a2218c",
            "train-labels-idx1-ubyte": "892833e730609f103558b43c591e21c168c98765aea5b68e3dd29b9253145d89",
            "t10k-images-idx3-ubyte": "38877d1501654107ea6bd75efee5aa10b45d73ecc36b2bcf62bc50772e472a5e",
            "t10k-labels-idx1-ubyte": "4912294106a847d5c0900bdc99750ed9d293b530f38dff2f8656b863b20d5f63",
        },
    ),
    "htru2": DataSet(HTRU2, "", bundled=HTRU2),
    "cifar10": DataSet(
        {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        bundled={},
    ),
}
BUNDLED = ROOT / "tests" / "data"
TIMEOUT = 20.0  # seconds without an answer
LOADED = {}  # what Run.load has read


def read_points(path):
    """Return the arrays X, y, and X_test, y_test if there are any, of a file.

    They are those of these names in a file of NumPy, .npz; else a line, split by commas, has numbers and a label.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path) as file:
                tests = [file[name] for name in ("X_test", "y_test") if name in file]
                return [file["X"], file["y"], *tests]
        with open(path, encoding="utf-8", newline="") as file:
            table = np.array([line for line in csv.reader(file) if line])
        try:
            table[0, :-1].astype(float)
        except ValueError:  # names of columns
            table = table[1:]
        return [table[:, :-1].astype(float), table[:, -1]]
    except (ValueError, KeyError, IndexError) as error:
        raise DataError(f"{path}: no points, each with a label at the end ({error})") from None


def load(name, run):
    """Read a data set, after a download if need be: {file: its content}, and whether this is the bundled sample."""
    files, address, bundled = DATA[name]
    found = find(name, run.data)
    if found:
        return read(found, files), False
    try:
        return download(name, run), False
    except DataError as error:
        sample = files_in(BUNDLED / name, bundled)
        if not sample:
            raise DataError(f"{error}; put {' and '.join(files)} there, from {address}") from None
        print(f"{error}; using the bundled sample in tests/data", file=sys.stderr)
        return read(sample, bundled), True


def find(name, given):
    """Return {file: its path} of a data set in the first folder that has it whole, else {}; `given` is from --data."""
    files, _, bundled = DATA[name]
    folders = [*named_folders(given), cache_folder()]
    if bundled == files:
        folders.insert(0, BUNDLED)
    return next(filter(None, (files_in(folder / name, files) for folder in folders)), {})


def named_folders(given):
    """Return the folders that the user has named; a DataError if one is not a folder."""
    folders = [Path(name) for name in (given, os.environ.get("FASTMARGIN_DATA")) if name]
    for folder in folders:
        if not folder.is_dir():
            named = "given with --data or $FASTMARGIN_DATA"
            lack = "is a file, not a folder" if folder.exists() else "does not exist"
            raise DataError(f"the data folder {folder} {lack} ({named})")
    return folders


def cache_folder():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastmargin"


def files_in(folder, names):
    """Return {name: its path} of files in a folder, packed or not; {} unless all are there."""
    found = {}
    for name, ending in itertools.product(names, ("", ".gz", ".xz")):
        path = folder / (name + ending)
        if path.is_file():
            found[name] = path
    return found if len(found) == len(names) else {}


def read(paths, digests):
    return {name: checked(path.read_bytes(), digests[name], path) for name, path in paths.items()}


# How to unpack a file that begins with these bytes.
UNPACK = {b"\x1f\x8b": gzip.decompress, b"\xfd7": lzma.decompress}


def checked(raw, digest, where):
    """Return the content of a file, unpacked if it is packed, after a look at its SHA-256."""
    try:
        content = UNPACK.get(raw[:2], bytes)(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{where}: damaged or truncated ({error})") from None
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        message = f"wrong content: SHA-256 (unpacked) is {found}, expected {digest}"
        raise DataError(f"{where}: {message}")
    return content


def download(name, run):
    """Download a data set and keep it in the cache: {file: its content}."""
    files, address, _ = DATA[name]
    try:
        if "{}" in address:
            raw = {file: get(address.format(file), run) for file in files}
        else:
            with tarfile.open(fileobj=io.BytesIO(get(address, run))) as archive:
                raw = {
                    Path(member.name).name: archive.extractfile(member).read()
                    for member in archive
                    if Path(member.name).name in files
                }
        contents = {file: checked(raw[file], digest, file) for file, digest in files.items()}
    except Exception as error:  # noqa: BLE001 - whatever an address sends, the user reads one sentence
        places = f"the folder {name}/ of --data, $FASTMARGIN_DATA or {cache_folder()}"
        raise DataError(f"{name}: not in {places}, and not downloaded ({error})") from None
    try:
        for file, content in contents.items():
            with atomic(cache_folder() / name / file) as part:
                part.write_bytes(content)
    except OSError as error:  # a cache that cannot be written is no reason not to go on
        print(f"{name} not kept in the cache: {error}", file=sys.stderr)
    return contents


def get(address, run):
    """Download what is behind an address, under a bar that counts blocks of 2^20 bytes."""
    request = urllib.request.Request(address, headers={"User-Agent": "fastmargin"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        blocks = iter(partial(answer.read, 1 << 20), b"")
        return b"".join(run.bar(blocks, Path(address).name, unit="MB"))


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
# Tables
#
# A table is a dict {name: column}, the columns equally long arrays of text or of float64; a Table has a caption, too.
# ======================================================================================================================


def stack(rows):
    """Put rows {column: a value or an array} below each other; a single value stands in each line of its row."""
    columns = {}
    for row in rows:
        filled = np.broadcast_arrays(*map(np.atleast_1d, row.values()))
        for name, values in zip(row, filled, strict=True):
            columns.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def write_table(path, table):
    """Write the caption after "# ", the names of the columns, the lines: numbers to the last bit, text in quotes."""
    lines = zip(*(column.tolist() for column in table.values()), strict=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(f"# {table.caption}\n")
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerows([table, *lines])


def read_table(path):
    """Return the Table that write_table put into a file; a DataError if it does not hold one."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            caption = file.readline().removeprefix("# ").rstrip("\n")
            # What has no quotes is a number.
            header, *lines = csv.reader(file, quoting=csv.QUOTE_NONNUMERIC)
        columns = zip(*lines, strict=True)
        return Table(zip(header, map(np.array, columns), strict=True), caption)
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: not a table of this program ({error})") from None


TOLERANCE = 1e-9  # of a number: processors round differently


def agree(table, kept, noise):
    """Say whether columns and text of two tables are the same, and |a − b| <= noise + 1e-9 |b| for their numbers."""

    def same(a, b):
        if len(a) != len(b) or "U" in (a.dtype.kind, b.dtype.kind):
            return np.array_equal(a, b)
        return np.isclose(a, b, TOLERANCE, noise, equal_nan=True).all()

    return list(table) == list(kept) and all(map(same, table.values(), kept.values()))


def where(table, **values):
    """Return the rows in which the named columns have these values."""
    chosen = np.logical_and.reduce([table[name] == value for name, value in values.items()])
    return {name: column[chosen] for name, column in table.items()}


def groups(table, name):
    """Return [(value, its rows)] for the values of a column, in the order of their first appearance."""
    values = dict.fromkeys(table[name].tolist())
    return [(value, where(table, **{name: value})) for value in values]


def by_seed(table, name):
    """Return a column as an array (seeds, points); all seeds have the same number of points."""
    return np.array([rows[name] for _, rows in groups(table, "seed")])


# ======================================================================================================================
# Drawing
# ======================================================================================================================

STYLE = FOLDER / "style.mplstyle"
METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
BREADTH = 8.0  # inches: 1,600 pixels

LONG = (0, (7, 2))
MIXED = (0, (5, 1, 1, 1, 1, 1))
LONG_DOT = (0, (9, 2, 1, 2))
# The colours of the style, by number
BLACK, VERMILLION, BLUE, GREEN, PURPLE, ORANGE, SKY = (f"C{i}" for i in range(7))
GREY = "0.45"  # of what is no curve: reference lines and what is said of them
LOOKS = {  # of methods, the same in all pictures; no two have both colour and dash
    name: {"color": color, "linestyle": dash}
    for name, (color, dash) in {
        "max_margin": (GREEN, LONG),
        "subspace perceptron": (BLACK, "-"),
        "perceptron": (BLUE, ":"),
        "NKP": (BLACK, "-."),
        "SNKP": (VERMILLION, "--"),
        "ISNKPVN": (SKY, LONG_DOT),
        "ISNKPVN, entropy": (PURPLE, LONG),
        "momentum": (BLUE, "-."),
        "sampling with momentum": (SKY, "-"),
        "sampling without momentum": (ORANGE, "--"),
        "sampling without momentum, step of Theorem 4.1": (VERMILLION, LONG),
        "batch perceptron": (PURPLE, MIXED),
        "batch perceptron, last iterate": (BLACK, ":"),
        "gradient descent": (BLACK, "--"),
        "gradient descent, step 1": (BLACK, "--"),
        "gradient descent, step 10⁶": (ORANGE, "-"),
        "normalised GD": (VERMILLION, ":"),
        "normalised GD, step 100": (PURPLE, ":"),
        "normalised GD, step 10⁴": (GREEN, MIXED),
        "diagonal descent": (BLACK, LONG),
        "inertial descent": (PURPLE, "--"),
        "inertial descent, λ₀ = 10": (GREEN, "-"),
        "inertial descent, α = 3": (PURPLE, "--"),  # the usual one
        "inertial descent, α = 10": (VERMILLION, "-"),
        "inertial descent, α = 30": (SKY, MIXED),
        "inertial descent, α = 50": (GREEN, "-."),
        "inertial descent, α = 3, restarts": (BLUE, MIXED),
        "sign descent": (VERMILLION, MIXED),
        "coordinate descent": (GREEN, ":"),
        "spectral descent": (ORANGE, LONG),
        "Muon": (SKY, "-."),
        "Adam": (PURPLE, "-"),
        "gradient descent with momentum": (BLUE, LONG_DOT),
    }.items()
}


def look_of(name, k):
    """Return the look of a method, or the k-th of the style for one of a size of one's own."""
    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    return LOOKS.get(name, cycle[k % len(cycle)])


# What is proved of a method is drawn in its colour, broad and pale.
BOUND = {"alpha": 0.4, "linewidth": 4, "linestyle": "-"}


def styled():
    """Return a context of the style of all figures, whatever a user's settings are."""
    return matplotlib.style.context(STYLE, after_reset=True)


class Picture(matplotlib.figure.Figure):
    """A figure that keeps the style outside the context: Matplotlib makes ticks and their labels while it draws."""

    def draw(self, renderer):
        with styled():
            super().draw(renderer)


def frame(fig, title, about):
    """Put words above the panels of a figure and one legend below them; the panels keep their height.

    The legend has no line that is named at its end, and none of a panel with a legend of its own.
    """
    title = balanced(title, 76)
    about = balanced(about, 116)
    strip = 0.12 + 0.2 * len(title.splitlines())  # inches
    above = strip + 0.04 + 0.17 * len(about.splitlines())
    entries = {}
    for ax in fig.axes:
        if not ax.get_legend():
            handles, labels = ax.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
    for name in itertools.chain.from_iterable(map(end_names, fig.axes)):
        entries.pop(name.get_text(), None)
    below = 0.0
    if entries:
        ncols = legend_columns(list(entries))
        fig.legend(entries.values(), entries, loc="outside lower center", ncols=ncols)
        below = 0.1 + 0.19 * math.ceil(len(entries) / ncols)
    height = fig.get_figheight() + above + below
    fig.set_figheight(height)
    fig.get_layout_engine().set(rect=(0, 0, 1, 1 - above / height), w_pad=0.09)
    fig.suptitle(title, x=0.012, y=1 - 0.08 / height, ha="left", va="top")
    fig.text(0.012, 1 - strip / height, about, va="top", color="0.25")


def balanced(text, width):
    """Break a text into the fewest lines of at most so many letters, about equally long."""
    if not text:
        return text
    count = len(textwrap.wrap(text, width))
    widths = range(math.ceil(len(text) / count), width + 1)
    return next(
        text for text in map(partial(textwrap.fill, text), widths) if text.count("\n") < count
    )


def legend_columns(labels):
    """Return the fewest columns of a legend that has as few lines as fit into the breadth."""
    labels = [re.sub(r"[$^{}]", "", label) for label in labels]  # as they are printed
    fitting = [1]
    for ncols in range(2, len(labels) + 1):
        columns = np.array_split(labels, ncols)  # as Matplotlib fills them
        letters = sum(max(map(len, column)) for column in columns)
        # In points: a letter, and the handle of a column with what is around it.
        if 5.2 * letters + 54 * ncols < 72 * BREADTH + 18:
            fitting.append(ncols)
    lines = math.ceil(len(labels) / fitting[-1])
    return next(ncols for ncols in fitting if math.ceil(len(labels) / ncols) == lines)


def rule(ax, y=None, x=None, **options):
    """Draw a grey reference line across a panel, at a height y or at a place x."""
    look = {"color": GREY, "linestyle": "-", "linewidth": 1.2} | options
    if x is None:
        ax.axhline(y, **look)
    else:
        ax.axvline(x, **look)


def level(ax, y, text, at=0.02, above=True, **options):
    """Draw a reference line across a panel, and write what it is at this share of the breadth."""
    rule(ax, y, zorder=1)
    options = {"color": GREY, "va": "bottom" if above else "top"} | options
    ax.annotate(
        text,
        (at, y),
        (0, 2 if above else -2),
        xycoords=ax.get_yaxis_transform(),
        textcoords="offset points",
        **options,
    )


def name_ends(ax, form=None):
    """Write the labels of lines at the right of a panel, at the heights at which they end; return these texts.

    A label ends with the last value of its line if a function ``form`` writes this.
    Before each stands a sample of its line: so a black print tells lines apart, too, and a neighbour has its legend.
    They get their places once the limits of the panel are known: see `spread_names`.
    """
    for line in [line for line in ax.lines if not line.get_label().startswith("_")]:
        heights = np.asarray(line.get_ydata(), dtype=float)
        end = heights[np.isfinite(heights)][-1]
        if form:
            line.set_label(f"{line.get_label()}: {form(end)}")
        place = {"transform": ax.get_yaxis_transform(), "va": "center", "gid": NAME}
        ax.text(1, end, line.get_label(), **place)
        sample = matplotlib.lines.Line2D([], [])
        sample.update_from(line)
        sample.set(label="_", gid=NAME, clip_on=False, markevery=[1], solid_capstyle="butt")
        ax.add_artist(sample)
    return end_names(ax)


NAME = "name of a line"  # and of its sample
SAMPLE = (5, 17, 29)  # points beyond the panel


def end_names(ax):
    return [text for text in ax.texts if text.get_gid() == NAME]


def spread_names(ax, height):
    """Move apart the names at the ends of lines, in the order of their heights; a panel is so many inches high."""
    names = end_names(ax)
    if not names:
        return
    ax.get_ylim()  # settles the limits
    places = ax.transData.transform([(1, name.get_position()[1]) for name in names])
    places = ax.transAxes.inverted().transform(places)[:, 1]
    order = np.argsort(places, kind="stable")
    # In shares of the height; from middle to middle is half a name and half of the next one.
    lines = np.array([1 + names[k].get_text().count("\n") for k in order])
    sizes = (0.15 * lines + 0.035) / (height - 0.65)
    middles = np.cumsum(sizes) - sizes / 2
    moved = np.clip(places[order], 0, 1) - middles
    # Moved up as far as needed, and down as far as needed: the mean is apart, too.
    up = np.maximum.accumulate(moved)
    down = np.minimum.accumulate(moved[::-1])[::-1]
    edge = sizes[0] / lines[0] / 2  # half a line may be beyond the panel
    found = np.clip((up + down) / 2, -edge, max(1 + edge - sizes.sum(), -edge)) + middles
    transforms = matplotlib.transforms
    points = transforms.Affine2D().scale(1 / 72) + ax.figure.dpi_scale_trans
    beside = transforms.offset_copy(ax.transAxes, ax.figure, SAMPLE[-1] + 4, units="points")
    samples = [line for line in ax.lines if line.get_gid() == NAME]
    for k, place in zip(order, found, strict=True):
        names[k].set(position=(1, place), transform=beside)
        at_edge = transforms.ScaledTranslation(1, place, ax.transAxes)
        samples[k].set(data=(SAMPLE, (0, 0, 0)), transform=points + at_edge)


def note(ax, x, y, text, **look):
    """Write at a point of a panel what is there."""
    ax.text(x, y, text, **{"color": GREY, "va": "center"} | look)


def plain(axis, *ticks):
    """Write the numbers of a log axis in full, or these numbers alone."""
    if ticks:
        axis.set_major_locator(matplotlib.ticker.FixedLocator(ticks))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
    axis.set_major_formatter("{x:,.9g}")
    axis.set_minor_formatter(matplotlib.ticker.LogFormatter())  # which writes few, in narrow panels


def from_here_on(values):
    """Return the largest of each value and those that come after it: a curve that swings is seen by its peaks."""
    return np.fmax.accumulate(values[::-1])[::-1]


def draw_seeds(ax, rows, name, label, edge=0, **look):
    """Draw the median over seeds of a column against t, and a band of its range, perhaps with an edge so broad."""
    t = np.unique(rows["t"])
    low, median, high = np.percentile(by_seed(rows, name), (0, 50, 100), axis=0)
    ax.plot(t, median, label=label, **look)
    if np.any(low < high):
        color = look["color"]
        ax.fill_between(t, low, high, facecolor=(color, 0.15), edgecolor=color, linewidth=edge)


def number(value, form):
    """Write a number in this form, such as ".2f", with a minus sign."""
    return format(value, form).replace("-", "−")


def rounded(value, digits=2):
    """Write a number with so many digits, also those that are 0."""
    return f"{value:#.{digits}g}".removesuffix(".")


def bound(value, digits, rounding):
    """Write a number with so many digits, rounded by math.floor or math.ceil, so that it still bounds the same."""
    if not abs(value) > 0:  # 0 and nan have no leading digit
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
    return rounded(unit * rounding(value / unit), digits)


# ======================================================================================================================
# Runs
# ======================================================================================================================


def spaced(stop, per_decade=24):
    """Return iterations to look at, from 1 to stop, evenly spaced on a log axis."""
    decades = math.log10(stop)
    points = np.logspace(0, decades, math.ceil(per_decade * decades) + 1)
    return np.unique(np.round(points).astype(int))


def trajectory(algorithm, G, steps, per_decade=24, **options):
    """Run an algorithm and look at spaced iterations: its result, trace and iterates without iteration 0."""
    looks = spaced(steps, per_decade)
    result = algorithm(G, max_iter=steps, trace_at=looks, keep_iterates=True, **options)
    return result._replace(trace=result.trace[1:], iterates=result.iterates[1:])


def exponent(x, y):
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


ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
HELD = []  # in a process of in_processes: what all its jobs are given


def in_processes(run, function, jobs, *data):
    """Yield function(job, *data) for each job, in their order, from a process a core with one BLAS thread each.

    The data are sent once to each process.  The jobs are done in a drawn order: so those that are done are like those
    to come, and their time tells the time to go.
    """
    jobs = list(jobs)
    context = multiprocessing.get_context("spawn")
    count = min(len(jobs), os.cpu_count() or 1)
    order = np.random.default_rng(0).permutation(len(jobs)).tolist()
    given = context.SimpleQueue()
    environment = os.environ.copy()
    with ProcessPoolExecutor(count, context, hold, [given]) as processes:
        # The processes are born with this: one thread, and deaf to Ctrl-C.
        ctrl_c = signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ.update(ONE_THREAD)
        found = processes.map(partial(held, function), [jobs[k] for k in order])
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, ctrl_c)
        try:
            for _ in range(count):
                given.put(data)
            answers = {}
            # A bar of rounds, in each of which every process does a job.
            for _ in run.bar(range(0, len(jobs), count)):
                for k, answer in zip(order[len(answers) :][:count], found, strict=False):
                    answers[k] = answer
            yield from (answers[k] for k in range(len(jobs)))
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def hold(given):
    HELD.extend(given.get())


def held(function, job):
    return function(job, *HELD)


# ======================================================================================================================
# Drawn points
# ======================================================================================================================


def planted_margin(n, d, rho, rng):
    """Draw unit rows (rho, sqrt(1 - rho^2) u_i) of margin rho: the u_i crowd around a direction but for u_0."""
    u = rng.normal(size=(n, d - 1))
    u[:, 0] += 1.0
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    u[0] = -u[1:].sum(axis=0)
    u[0] /= np.linalg.norm(u[0])
    return np.column_stack((np.full(n, rho), math.sqrt(1 - rho**2) * u))


def planted_power_law(n, d, rho, rng, power=1):
    """Draw rows as planted_margin does, but the u_i fall like j^-power along the axes; 0 is a mixture of all u_i."""
    u = rng.normal(size=(n, d - 1)) / np.arange(1, d) ** power
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    u -= rng.dirichlet(np.full(n, 0.3)) @ u
    u /= np.linalg.norm(u, axis=1).max()
    return np.column_stack((np.full(n, rho), math.sqrt(1 - rho**2) * u))


def iterations(algorithm, Z, **options):
    """Count the iterations until an algorithm stops by itself on G = Z Z'; nan where it does not."""
    result = algorithm(
        fm.features(Z, 1, normalize=None), trace_at=[], max_iter=10_000_000, **options
    )
    return result.n_iter if result.status in ("separated", "infeasible") else math.nan


# ======================================================================================================================
# Report
#
# README.md and the pages in figures/ show figures between marks, which `report` fills from the CSV files in figures/:
#
#     <!-- figure: ji21:fig1 -->                finding, picture, settings; sizes may follow: ji21:fig3 images=60000
#     <!-- table: margins -->                   what the figure's function `table` makes of its table
#     <!-- gallery: ji21:fig1 norms -->         small pictures with their findings; "all" and beginnings of names count
#     <!-- others -->                           the figures that have no mark on this page
#     <!-- end -->                              ends each of them, on a line of its own
#
# Within a line <!-- number: ji21:fig1 slope -->..<!-- end --> is a number of the figure's function `numbers`.
# ======================================================================================================================

BLOCK = re.compile(
    r"(^<!-- (figure|table|gallery|others)(?:: ([^\n]*?))? -->\n).*?(?=^<!-- end -->$)",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(<!-- number: (\S+) (\S+) -->).*?(?=<!-- end -->)")


def markdown(lines):
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def section(figure, sizes, table):
    """Return what the report shows of a figure."""
    stem = stem_of(figure.key, sizes)
    title, caption = figure.words(table)
    about, *settings = caption.split(" | ")
    command = " ".join([figure.key, *(f"{name}={in_text(size)}" for name, size in sizes.items())])
    taken = "" if sizes else f", {minutes(figure)}"  # other sizes take longer, or less
    small = " ".join(settings)
    folded = (
        f"\n<details><summary><sub>Settings</sub></summary>\n\n<sub>{small}</sub>\n\n</details>\n"
    )
    return f"""\
<a id="{stem}"></a>

### {title}

![{about}]({stem}.png)

<sub>`{command}`{taken}; [CSV]({stem}.csv).</sub>
{folded if small else ""}"""


def gallery(figures, page):
    """Return small pictures with their findings in rows of three, which lead to the report, in HTML."""
    lines = ["<table>"]
    for k, figure in enumerate(figures):
        stem = stem_of(figure.key, {})
        name = figure.key  # in the report, whose headings are the findings
        if page.parent != FOLDER:
            table = read_table(FOLDER / f"{stem}.csv")
            name = html.escape(figure.title(table), quote=False)
        report = os.path.relpath(FOLDER / "README.md", page.parent)
        small = os.path.relpath(FOLDER / f"{stem}.png", page.parent)
        link = f'<a href="{report}#{stem}"><img src="{small}" width="240" alt="{figure.key}"></a>'
        lines += ["<tr>"] * (k % 3 == 0)
        lines += [f'<td width="33%" valign="top">{link}<br>{name}</td>']
        lines += ["</tr>"] * (k % 3 == 2 or k == len(figures) - 1)
    return "\n".join([*lines, "</table>\n"])


def block(kind, words, page, text):
    """Return what stands between a mark and its end; nothing where the CSV file is missing."""
    if kind == "gallery":
        chosen, _ = select(words.split())
        return gallery([figure for figure in chosen if csv_of(figure, {}).is_file()], page)
    if kind == "others":
        others = [key for key in FIGURES if f"<!-- figure: {key} -->" not in text]
        return "\n".join(block("figure", key, page, text) for key in others)
    [figure], sizes = select(words.split())
    if not csv_of(figure, sizes).is_file():
        return ""
    table = read_table(csv_of(figure, sizes))
    if kind == "figure":
        return section(figure, sizes, table)
    return figure.table_of(table) + "\n"


def report():
    """Renew what stands between the marks in README.md and in the pages in figures/."""
    for page in (ROOT / "README.md", *sorted(FOLDER.glob("*.md"))):
        renewed = renew(page, page.read_text(encoding="utf-8"))
        with atomic(page) as part:
            part.write_text(renewed, encoding="utf-8")
        print(page)


def renew(page, text):
    """Return the text of a page with what belongs between its marks; a DataError if a mark is not understood."""

    def fresh(found):
        mark, kind, words = found.groups()
        try:
            return mark + block(kind, words, page, text)
        except ValueError as error:
            raise DataError(f"{page}: {mark.strip()}: {error}") from None

    def fresh_number(found):
        mark, key, name = found.groups()
        table = read_table(csv_of(FIGURES[key], {}))
        return mark + FIGURES[key].numbers_of(table)[name]

    return NUMBER.sub(fresh_number, BLOCK.sub(fresh, text))


# ======================================================================================================================
# Command line
# ======================================================================================================================


def minutes(figure):
    """Write how long a figure takes."""
    return f"{figure.minutes:g} min" if figure.minutes >= 1 else f"{60 * figure.minutes:.0f} s"


def stem_of(key, sizes):
    """Return the name of a figure's files without their ending; sizes that were changed are part of it."""
    parts = [key.replace(":", "-")]
    for name, size in sizes.items():
        equals = "=" if name[-1].isdigit() else ""  # or it would run into the number
        parts.append(re.sub(r"[^\w.,=^-]", "_", f"{name}{equals}{in_text(size)}"))
    return "-".join(parts)


def csv_of(figure, sizes, folder=FOLDER):
    return folder / f"{stem_of(figure.key, sizes)}.csv"


def select(words):
    """Return the figures that words mean, and the sizes in those of the form name=value; a ValueError if unknown.

    A word is "all", a key or one of its parts, or else stands somewhere in it.
    """
    sizes = {}
    chosen = {}  # a dict keeps the order and drops repetitions
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            sizes[name] = value
            continue
        keys = [key for key in FIGURES if word in ("all", key, *key.split(":"))]
        keys = keys or [key for key in FIGURES if word in key or word in stem_of(key, {})]
        if not keys:
            raise ValueError(f"no figure is called {word!r}; see: python reproduce.py list")
        chosen |= dict.fromkeys(keys)
    if sizes and not chosen:
        raise ValueError("sizes are those of a figure: name it, too")
    figures = [FIGURES[key] for key in chosen]
    for figure in figures:
        sizes = {name: figure.size(name, given) for name, given in sizes.items()}
    return figures, sizes


def listing(figures, given):
    """Return the lines of the list; of a single figure they have the sizes, too."""
    lines = [("figure", "data", "time", "finding")]
    for figure in figures:
        data = "here" if figure.data else "-"
        if not all(find(name, given) for name in figure.data):
            data = "missing"
        saved = csv_of(figure, {})
        finding = re.sub("{.*?}", "…", figure.finding)
        if saved.exists():
            finding = figure.title(read_table(saved))
        lines.append((figure.key, data, minutes(figure), finding))
    width = max(len(key) for key, *_ in lines)
    about = []
    if len(figures) == 1:
        sizes = (f"{name}={in_text(size)}" for name, size in figures[0].sizes.items())
        about = [f"sizes: {' '.join(sizes) or 'none'}"]
    return [
        *(f"{key:{width}}  {data:7}  {time:>6}  {words}" for key, data, time, words in lines),
        "",
        *about,
        "data: missing is downloaded; where there is no network, a sample of MNIST stands in",
        "time: on two cores; --quick takes seconds",
    ]


EPILOG = """\
names: ji21:fig2; ji21, all of a paper; fig3, of all; open, all with this in their name
sizes: images=60000, digits=3,5, lam0=1; list ji21:fig1 says which a figure has
list says what there is; report renews the pages from the CSV files
exit codes: 0 done, 1 a figure is missing, 2 bad command line, 130 interrupted"""


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Draws the figures of the papers, with a CSV file of the plotted numbers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="name", help="of figures; or all, list, report")
    add("--quick", action="store_true", help="reduced work, seconds a figure, into figures/quick")
    add("--redraw", action="store_true", help="draw the saved CSV files; compute nothing")
    add(
        "--data", type=Path, metavar="PATH", help="folder of data sets (mnist/, ..), or your points"
    )
    add("--out", type=Path, metavar="DIR", help="default: figures/, figures/quick/")
    add("--format", choices=METADATA, default="png", help="default: png")
    add("--seed", type=int, default=0, metavar="INT", help="default: 0")
    add("--no-progress", action="store_true", help="no progress bars, nor lines")
    options = parser.parse_intermixed_args(arguments)  # options may stand between names
    if options.seed < 0:
        parser.error(f"argument --seed: must not be negative, got {options.seed}")
    if not options.names and (options.quick or options.redraw):
        parser.error("names of figures are missing, or all: python reproduce.py all --quick")
    return options


def default_folder(quick, run):
    """Return where a figure goes without --out: reduced work and samples must not replace a full one."""
    return FOLDER / "quick" if quick or run.sampled else FOLDER


def compute(figure, sizes, run, options):
    """Compute a figure, and save its table unless the kept one agrees: return the CSV file, and whether it does."""
    table = figure.compute(run, sizes, options.quick)
    folder = options.out or default_folder(options.quick, run)
    if run.sampled:
        names = ", ".join(sorted(run.sampled))
        print(f"{figure.key}: of {names} only a sample is here: see {folder}", file=sys.stderr)
    path = csv_of(figure, sizes, folder)
    if folder == FOLDER:
        with contextlib.suppress(FileNotFoundError, DataError):  # none is kept, or it is no table
            kept = read_table(path)
            if table.caption == kept.caption and agree(table, kept, figure.noise):
                return path, True
    with atomic(path) as part:
        write_table(part, table)
        path.with_suffix(".png").unlink(missing_ok=True)  # which shows other numbers
    return path, False


def saved(figure, sizes, run, options):
    """Return the CSV file of a figure that was computed before."""
    folders = filter(None, (options.out, default_folder(options.quick, run)))
    paths = [csv_of(figure, sizes, folder) for folder in folders]
    for path in paths:
        if path.is_file():
            return path
    missing = " and no ".join(map(str, paths))
    raise DataError(f"there is no {missing}: draw the figure without --redraw first")


def render(figure, sizes, run, options):
    """Compute a figure, or find what was saved, and draw it unless the kept one stays: return a line that says so."""
    if options.redraw:
        numbers, agrees = saved(figure, sizes, run, options), False
    else:
        numbers, agrees = compute(figure, sizes, run, options)
    table = read_table(numbers)
    folder = options.out or default_folder(options.quick, run)
    path = (folder / numbers.name).with_suffix(f".{options.format}")
    if agrees and options.format == "png" and path.is_file():
        return f"{path} stays, as the kept table agrees to {TOLERANCE:g}; --redraw draws it anew"
    with styled(), atomic(path) as part:
        try:
            fig = figure.draw(table)
        except (KeyError, IndexError, ValueError) as error:
            if not options.redraw:
                raise
            message = f"{numbers} does not hold the table of this figure ({error!r})"
            raise DataError(message) from error
        fig.savefig(part, format=options.format, metadata=METADATA[options.format])
    return f"{path} from {numbers}"


def draw_all(figures, sizes, options):
    """Draw figures, the shortest first: return the keys of those that could not be drawn."""
    figures = sorted(figures, key=lambda figure: figure.minutes)
    if not (options.quick or options.redraw or sizes):
        names = [f"{figure.key} ({minutes(figure)})" for figure in figures]
        print(f"on two cores: {', '.join(names)}", file=sys.stderr)
    failed = []
    for place, figure in enumerate(figures, 1):
        start = time.perf_counter()
        title = f"{figure.key} ({place} of {len(figures)})" if len(figures) > 1 else figure.key
        run = Run(options.seed, not options.no_progress, options.data, title)
        try:
            done = render(figure, run.named() | sizes, run, options)
        except (DataError, OSError) as error:
            failed.append(figure.key)
            print(f"{figure.key} not drawn: {error}", file=sys.stderr)
            continue
        print(f"{done}: {time.perf_counter() - start:.1f} s", flush=True)
    if failed and len(figures) > 1:
        count = f"{len(failed)} of {len(figures)} figures"
        print(f"{count} not drawn: {', '.join(failed)}", file=sys.stderr)
    return failed


def check_writable(folder):
    """Raise a DataError if nothing can be written into a folder: before anything is computed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        message = f"nothing can be written into {folder} ({error.strerror})"
        raise DataError(f"{message}: name a folder with --out") from None


def main(arguments=None):
    """Do what a command line says, and return the exit code."""
    options = parse(arguments)
    is_report = options.names == ["report"]
    is_list = not options.names or "list" in options.names
    names = [] if is_report else [name for name in options.names if name != "list"]
    try:
        run = Run(data=options.data)
        figures, sizes = select(names or ["all"])
        for figure in [] if is_list or is_report else figures:
            figure.check(run)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        if is_report:
            report()
            return 0
        named_folders(run.data)
        if is_list:
            print(*listing(figures, run.data), sep="\n")
            return 0
        check_writable(options.out or default_folder(options.quick, Run()))
        return 1 if draw_all(figures, sizes, options) else 0
    except DataError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def interrupt(signum, frame):
    """End at Ctrl-C: by a KeyboardInterrupt, but at once where Numba compiles; no file is being written then.

    Numba takes a KeyboardInterrupt for an error of the code that it compiles, and LLVM loses it.
    """
    if global_compiler_lock.is_locked():
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    raise KeyboardInterrupt


def program():
    """Run `main` as a program."""
    sys.stdout.reconfigure(errors="replace")  # a terminal may lack a sign of a finding
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may want it deaf
        signal.signal(signal.SIGINT, interrupt)
    return main()
