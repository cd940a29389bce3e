"""Of reproduce.py what is in harness.py: every figure, its sizes, data, whole files or none, command line, pages."""

import contextlib
import gzip
import hashlib
import inspect
import io
import itertools
import lzma
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections import Counter
from pathlib import Path

import matplotlib
import matplotlib.figure
import matplotlib.text
import numpy as np
import pytest

from figures import harness

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "figures"
PAGES = {
    path: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(FOLDER.glob("*.md")))
}


def files_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def contents_of(folder):
    return {name: (folder / name).read_bytes() for name in files_under(folder)}


def says_one_sentence(capsys, *words):
    """Nothing was printed but one line of errors, with these words."""
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, (out, err)
    assert all(str(word) in err for word in words), err


# ======================================================================================================
# EVERY FIGURE
# ======================================================================================================

# Those whose quick run takes longer than five seconds
LONG = {"ji21:fig4", "race"}
FIGURES = [
    pytest.param(key, marks=pytest.mark.dear) if key in LONG else key for key in harness.FIGURES
]


def drawn(figure, table):
    """Draw the panels, from a copy of the table; and make of it all that pages show."""
    table = {name: column.copy() for name, column in table.items()}
    axes = matplotlib.figure.Figure().subplots(*figure.grid(table), squeeze=False)
    figure.draw_panels(table, *axes.flat)
    return axes, figure.title(table), figure.table_of and figure.table_of(table)


def provide(key, request):
    """What the quick run of a figure needs: other packages, small data."""
    if key == "speed":
        for package in ("sklearn", "scipy", "piqp"):
            pytest.importorskip(package)
    if "cifar10" in harness.FIGURES[key].data:
        request.getfixturevalue("small_cifar")


def figure_of(path):
    """The figure of a kept table, at other sizes perhaps."""
    [figure] = [
        figure
        for key, figure in harness.FIGURES.items()
        if re.fullmatch(rf"{harness.stem_of(key, {})}(-[a-z]+\d+)*", path.stem)
    ]
    return figure


def refuse(*arguments, **options):
    raise AssertionError("drawing looks at more than its table")


@pytest.mark.parametrize("key", FIGURES)
def test_a_picture_is_drawn_from_its_table_alone(key, tmp_path, quick, monkeypatch, request):
    """The same bytes again, without any data set or algorithm."""
    provide(key, request)
    numbers = quick.file(key)
    shutil.copy(numbers, tmp_path)
    for name in harness.fm.__all__:
        if inspect.isfunction(getattr(harness.fm, name)):
            monkeypatch.setattr(harness.fm, name, refuse)
    monkeypatch.setattr(harness, "load", refuse)
    assert harness.main([key, "--redraw", "--out", str(tmp_path)]) == 0
    picture = numbers.with_suffix(".png").name
    assert (tmp_path / picture).read_bytes() == (numbers.parent / picture).read_bytes()


@pytest.mark.parametrize("key", FIGURES)
def test_a_figure_can_be_drawn_from_any_seed(key, quick, request):
    provide(key, request)
    table = quick.table(key)
    if "seed" in table:
        drawn(harness.FIGURES[key], table | {"seed": table["seed"] + 1})


def test_no_picture_is_kept_without_its_table():
    """And each figure is kept."""
    kept = {path.stem for path in FOLDER.glob("*.png")}
    assert kept == {path.stem for path in FOLDER.glob("*.csv")}
    assert {harness.stem_of(key, {}) for key in harness.FIGURES} <= kept


def test_no_two_methods_look_alike():
    """But for two names of one method."""
    same = {
        "inertial descent": "inertial descent, α = 3",
        "gradient descent": "gradient descent, step 1",
    }
    looks = {name: tuple(look.values()) for name, look in harness.LOOKS.items() if name not in same}
    assert len(set(looks.values())) == len(looks)
    assert all(harness.LOOKS[name] == harness.LOOKS[other] for name, other in same.items())


# ======================================================================================================
# DATA: BUNDLED, GIVEN, IN THE CACHE
# ======================================================================================================


def sha(content):
    return hashlib.sha256(content).hexdigest()


def idx(array):
    shape = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def replace_files(monkeypatch, name, contents):
    digests = {file: sha(content) for file, content in contents.items()}
    monkeypatch.setitem(harness.DATA, name, harness.DATA[name]._replace(files=digests))


@pytest.fixture
def tiny(monkeypatch):
    """Stands in for the full MNIST: 30 + 20 images of 2 x 3 pixels, their contents by file name."""
    rng = np.random.default_rng(7)
    contents = {}
    for part, n in (("train", 30), ("t10k", 20)):
        contents[f"{part}-images-idx3-ubyte"] = idx(rng.integers(0, 256, (n, 2, 3)))
        contents[f"{part}-labels-idx1-ubyte"] = idx(rng.permutation(np.arange(n) % 10))
    replace_files(monkeypatch, "mnist", contents)
    return contents


def put(folder, contents, damage=lambda raw: raw, end=".gz", pack=gzip.compress, name="mnist"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / name / (file + end)).write_bytes(damage(pack(content)))
    return folder


def other_content(raw):
    """A sound file, but not that of the data set."""
    return gzip.compress(gzip.decompress(raw)[:-1] + b"\xff")


def spoiled_byte(raw):
    return raw[:20] + bytes([raw[20] ^ 64]) + raw[21:]


def cut(raw):
    return raw[: len(raw) // 2]


def images(data=None):
    """The number of images that a figure sees which is drawn now, and whether they are a sample."""
    harness.LOADED.clear()
    run = harness.Run(progress=False, data=data)
    X, *_ = run.mnist()
    return len(X), bool(run.sampled)


SAMPLE = 6000, True
FULL = 30, False  # of the tiny one


def test_bundled_mnist_is_a_stratified_sample(capsys):
    run = harness.Run(progress=False)
    data = X, y, X_test, y_test = run.mnist()
    assert run.sampled == {"mnist"}
    assert "using the bundled sample" in capsys.readouterr().err
    assert X.shape == (6000, 784)
    assert X_test.shape == (1000, 784)
    assert X.min() == 0
    assert X.max() == 1
    pixels = X * 255
    assert np.abs(pixels - np.rint(pixels)).max() < 1e-12
    in_all_of_mnist = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    assert np.abs(np.bincount(y) - in_all_of_mnist / 10).max() < 1
    assert len(np.unique(X, axis=0)) == 6000
    two = run.mnist(5, 3)
    for X, y, X_all, y_all in ((*two[:2], *data[:2]), (*two[2:], *data[2:])):
        keep = (y_all == 3) | (y_all == 5)
        assert np.array_equal(X, X_all[keep])
        assert np.array_equal(y, np.where(y_all[keep] == 5, -1, 1))


def test_bundled_htru2_is_the_whole_set_to_the_last_digit():
    run = harness.Run(progress=False)
    X, y = run.htru2()
    assert not run.sampled
    assert X.shape == (17898, 8)
    assert np.isfinite(X).all()
    assert set(y) == {-1, 1}
    assert (y == 1).sum() == 1639
    assert X[0, [0, 1, 7]].tolist() == [140.5625, 55.68378214, 74.24222492]
    assert y[0] == -1


@pytest.mark.parametrize(
    ("end", "pack"),
    [(".gz", gzip.compress), ("", bytes), ("", gzip.compress), (".xz", lzma.compress)],
)
def test_files_are_read_compressed_or_not(tmp_path, tiny, end, pack):
    X, _, _, y_test = harness.Run(data=put(tmp_path, tiny, end=end, pack=pack)).mnist()
    assert np.rint(X * 255).astype(np.uint8).tobytes() == tiny["train-images-idx3-ubyte"][16:]
    assert y_test.astype(np.uint8).tobytes() == tiny["t10k-labels-idx1-ubyte"][8:]


def test_the_data_folder_comes_before_the_environment_and_this_before_the_cache(
    tmp_path, tiny, cache, monkeypatch
):
    environment = put(tmp_path / "environment", tiny, other_content)
    given = put(tmp_path / "given", tiny)
    monkeypatch.setenv("FASTMARGIN_DATA", str(environment))
    put(cache, tiny)
    assert images(given) == FULL
    with pytest.raises(harness.DataError, match=re.escape(str(environment))):
        images()
    put(environment, tiny)
    put(cache, tiny, other_content)
    assert images() == FULL
    put(given, tiny, other_content)
    with pytest.raises(harness.DataError, match=re.escape(str(given))):
        images(given)


def test_a_folder_without_all_the_files_is_passed_over(tmp_path, tiny, cache):
    names = sorted(tiny)
    given = put(tmp_path / "given", {name: tiny[name] for name in names[:3]})
    assert images(given) == SAMPLE
    put(cache, tiny)
    assert images(given) == FULL


@pytest.mark.parametrize("damage", [spoiled_byte, other_content])
def test_a_damaged_file_is_seen_named_and_not_used(tmp_path, tiny, damage):
    given = put(tmp_path / "given", tiny, damage)
    with pytest.raises(
        harness.DataError, match=r"given.*ubyte\.gz: (damaged|wrong content)"
    ) as error:
        images(given)
    if damage is other_content:  # the digests found and expected
        name = "train-images-idx3-ubyte"
        for content in (tiny[name], tiny[name][:-1] + b"\xff"):
            assert sha(content) in str(error.value)


def test_a_data_folder_that_is_not_there_is_one_sentence(tmp_path, registry, monkeypatch, capsys):
    """Also for a figure without data."""
    monkeypatch.setenv("FASTMARGIN_DATA", str(tmp_path / "nowhere"))
    assert harness.main(["race"]) == 1
    says_one_sentence(capsys, "nowhere")


# ----------------------------------------------------------------------------------------------------------------------
# Downloaded
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mirror(tmp_path, tiny, monkeypatch):
    """The folder from which the tiny MNIST can be downloaded."""
    folder = put(tmp_path / "served", tiny) / "mnist"
    address = folder.as_uri() + "/{}.gz"
    monkeypatch.setitem(harness.DATA, "mnist", harness.DATA["mnist"]._replace(address=address))
    return folder


def test_what_is_missing_is_downloaded_once(cache, tiny, mirror):
    assert harness.main(["list"]) == 0
    assert not cache.exists()
    assert images() == FULL
    assert contents_of(cache / "mnist") == tiny
    shutil.rmtree(mirror)
    assert images() == FULL


@pytest.mark.parametrize("damage", [cut, other_content, None])
def test_a_bad_download_leaves_nothing_and_the_sample_is_used(cache, tiny, mirror, damage, capsys):
    if damage:
        put(mirror.parent, tiny, damage)
    else:
        shutil.rmtree(mirror)
    assert images() == SAMPLE
    assert files_under(cache.parent) == []
    says_one_sentence(capsys, "mnist", "not downloaded", "--data", cache)


def test_an_interrupted_download_leaves_nothing(cache, mirror, monkeypatch):
    def write_half(path, raw):
        with open(path, "wb") as out:
            out.write(cut(raw))
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(KeyboardInterrupt):
        images()
    assert files_under(cache.parent) == []


def test_a_cache_that_cannot_be_written_is_no_obstacle(cache, mirror, capsys):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    assert images() == FULL
    assert "not kept in the cache" in capsys.readouterr().err


def test_cifar_in_a_tar_archive_is_read_as_pixels(tmp_path, cache, monkeypatch):
    """Its planes of red, green and blue become pixels."""
    records = np.random.default_rng(1).integers(0, 256, (3, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    contents = {"data_batch_1.bin": records.tobytes(), "test_batch.bin": records[::-1].tobytes()}
    replace_files(monkeypatch, "cifar10", contents)
    archive = tmp_path / "cifar.tar.gz"
    address = harness.DATA["cifar10"]._replace(address=archive.as_uri())
    monkeypatch.setitem(harness.DATA, "cifar10", address)
    run = harness.Run(progress=False)
    for names in (["data_batch_1.bin"], ["data_batch_2.bin", *contents]):
        with tarfile.open(archive, "w:gz") as packed:
            for name in names:
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                info.size = records.size
                packed.addfile(info, io.BytesIO(contents.get(name, bytes(records.size))))
        if len(names) == 1:
            with pytest.raises(harness.DataError, match="cifar10.*'test_batch.bin'"):
                run.cifar10()
    X, y, X_test, y_test = run.cifar10()
    assert files_under(cache) == ["cifar10/data_batch_1.bin", "cifar10/test_batch.bin"]
    for row, column, plane in ((0, 0, 0), (0, 1, 2), (5, 30, 1), (31, 31, 2)):
        expected = records[1, 1 + 1024 * plane + 32 * row + column]
        assert X[1, row, column, plane] == expected
    assert X.shape == (3, 32, 32, 3)
    assert y.tolist() == records[:, 0].tolist()
    assert np.array_equal(X_test[::-1], X)
    assert np.array_equal(y_test[::-1], y)


# ======================================================================================================
# TABLES AND PICTURES: WHOLE, OR NOT THERE
# ======================================================================================================


def random_rows(run, n):
    """Random numbers, seed {seed}.

    There are n = {n} of them.
    """
    yield {"curve": "1", "x": np.arange(n), "y": run.rng().random(n)}


def draw_curve(table, ax):
    ax.plot(table["x"], table["y"], label=table["curve"][0])


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Figures and a folder of their own, so that the program is tested without those of the papers."""
    folder = tmp_path / "root" / "figures"
    monkeypatch.setattr(harness, "FIGURES", {})
    monkeypatch.setattr(harness, "ROOT", folder.parent)
    monkeypatch.setattr(harness, "FOLDER", folder)
    monkeypatch.setattr(harness.csv_of, "__defaults__", (folder,))

    def add(key, rows=random_rows, drawing=draw_curve, minutes=0.5, **options):
        if rows is random_rows:
            options = {"n": 5, "quick": {"n": 4}} | options
        harness.FIGURES.pop(key, None)
        figure = harness.figure(key, f"the figure {key}", minutes=minutes, **options)(rows)
        figure.drawing(drawing)
        return figure

    for key in ("a14:fig1", "b21:fig1", "b21:fig2", "race"):
        add(key)
    return add


@pytest.mark.parametrize("victim", ["picture", "table"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupted_saving_leaves_whole_files_and_all_numbers(
    tmp_path, registry, monkeypatch, victim, error
):
    out = tmp_path / "out"
    other = tmp_path / "other"
    arguments = ["race", "--seed", "1", "--out"]
    assert harness.main(["race", "--out", str(out)]) == 0
    assert harness.main([*arguments, str(other)]) == 0
    old = contents_of(out)
    new = contents_of(other)
    assert all(old[name] != new[name] for name in ("race.png", "race.csv"))

    def spoil(*arguments, **options):
        [path] = [argument for argument in arguments if isinstance(argument, Path)]
        path.write_text("half")
        raise error

    with monkeypatch.context() as patch:
        if victim == "picture":
            patch.setattr(matplotlib.figure.Figure, "savefig", spoil)
        else:
            patch.setattr(harness, "write_table", spoil)
        code = harness.main([*arguments, str(out)])
    assert code == (130 if error is KeyboardInterrupt else 1)
    if victim == "table":
        assert contents_of(out) == old
    else:  # the numbers were there before it, and the picture of others has gone
        assert contents_of(out) == {"race.csv": new["race.csv"]}
        assert harness.main(["race", "--redraw", "--out", str(out)]) == 0
        assert contents_of(out) == new


def test_a_table_reads_back_to_the_last_bit(tmp_path):
    floats = [0.1, 1 / 3, 1e-300, -1.7976931348623157e308, 5e-324, -0.0, 1e16, np.nan, np.inf]
    labels = ["1", "1.0", "nan", "", "a, b", 'a "b"', "# c", "r\u00b2", " x "]
    block = {
        "method": "momentum",
        'odd, "name"': labels,
        "0": [str(i) for i in range(9)],
        "iteration": np.arange(9),
        "lower": floats,
        "one": np.float32(0.1),
    }
    table = harness.stack([block, block | {"method": "a, b"}])
    caption = 'rows of norm < 1, "linear", σ² = 3.4; seed 0'
    harness.write_table(tmp_path / "table.csv", harness.Table(table, caption))
    again = harness.read_table(tmp_path / "table.csv")
    assert again.caption == caption
    assert list(again) == list(table) == list(block)
    for name, column in table.items():
        if column.dtype.kind != "U":
            column = column.astype(np.float64)
            assert again[name].dtype == np.float64
        assert again[name].tobytes() == column.tobytes()


def test_parts_of_a_table_keep_every_row_in_its_order():
    table = harness.stack([{"method": ["b", "a", "b"], "x": [1, 2, 3]}, {"method": "a", "x": 0.1}])
    parts = dict(harness.groups(table, "method"))
    assert list(parts) == ["b", "a"]
    assert parts["b"]["x"].tolist() == [1, 3]
    assert parts["a"]["x"].tolist() == [2, 0.1]
    assert harness.where(table, method="a", x=2)["method"].tolist() == ["a"]
    table = harness.stack([{"seed": seed, "gap": [seed + 0.1, seed + 0.2]} for seed in (3, 1)])
    assert harness.by_seed(table, "gap").tolist() == [[3.1, 3.2], [1.1, 1.2]]


GOOD = '# caption\n"curve","x","y"\n"1",1,2\n"1",2,3\n'


@pytest.mark.parametrize(
    "text",
    [
        "\x89PNG\r\n\x1a",
        GOOD[: GOOD.index('"1"')],
        GOOD + '"1",3\n',
        GOOD.replace(",3", ",3e"),
        GOOD.replace('"x"', '"z"'),
    ],
)
def test_redraw_refuses_what_is_no_table_of_its_figure(tmp_path, registry, text, capsys):
    (tmp_path / "race.csv").write_bytes(text.encode("latin-1"))
    assert harness.main(["race", "--redraw", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "race not drawn" in err
    assert str(tmp_path / "race.csv") in err
    assert files_under(tmp_path) == ["race.csv"]


def test_redraw_draws_what_the_file_says(tmp_path, registry, capsys):
    out = tmp_path / "out"
    assert harness.main(["race", "b21:fig1", "--quick", "--seed", "4", "--out", str(out)]) == 0
    old = contents_of(out)
    (out / "b21-fig1.csv").unlink()
    (out / "race.png").unlink()
    capsys.readouterr()
    assert harness.main(["race", "b21:fig1", "--redraw", "--out", str(out)]) == 1
    printed, err = capsys.readouterr()
    assert "b21:fig1 not drawn" in err
    assert str(out / "b21-fig1.csv") in err
    assert str(out / "race.png") in printed
    del old["b21-fig1.csv"]
    assert contents_of(out) == old
    table = old["race.csv"].decode()
    title = "# race with n = 4 | "
    assert table.startswith(f"{title}Random numbers, seed 4. | There are n = 4 of them.\n")
    for before, after in ((title, "# "), ('\n"1",3,', '\n"1",3.5,'), ('"1"', '"2"')):
        assert before in table
        (out / "race.csv").write_text(table.replace(before, after))
        assert harness.main(["race", "--redraw", "--out", str(out)]) == 0
        assert (out / "race.png").read_bytes() != old["race.png"]


def test_redraw_takes_the_numbers_where_they_are(tmp_path, registry):
    full = harness.FOLDER
    quick = harness.FOLDER / "quick"
    other = tmp_path / "other"
    assert harness.main(["race"]) == 0
    assert harness.main(["race", "--quick"]) == 0
    assert files_under(full) == ["quick/race.csv", "quick/race.png", "race.csv", "race.png"]
    kept = {folder: (folder / "race.png").read_bytes() for folder in (full, quick)}
    assert kept[full] != kept[quick]
    for options, source, folder in (
        ([], full, full),
        (["--quick"], quick, quick),
        (["--out", str(quick)], quick, quick),
        (["--out", str(other)], full, other),
        (["--quick", "--out", str(other)], quick, other),
    ):
        (folder / "race.png").unlink(missing_ok=True)
        assert harness.main(["race", "--redraw", *options]) == 0
        assert (folder / "race.png").read_bytes() == kept[source]
    assert files_under(other) == ["race.png"]
    (other / "race.csv").write_bytes((full / "race.csv").read_bytes())
    assert harness.main(["race", "--redraw", "--quick", "--out", str(other)]) == 0
    assert (other / "race.png").read_bytes() == kept[full]  # what is in --out comes first


def test_reduced_work_and_samples_replace_no_full_figure(tmp_path, registry, tiny, capsys):
    def labels(run):
        """{n} images."""
        y = run.mnist()[1]
        run.facts["n"] = len(y)
        yield {"curve": "a", "x": np.arange(len(y)), "y": y}

    registry("d:images", labels, data="mnist")
    assert harness.main(["d:images", "race", "--data", str(put(tmp_path / "data", tiny))]) == 0
    full = contents_of(harness.FOLDER)
    assert set(full) == {"d-images.csv", "d-images.png", "race.csv", "race.png"}
    assert full["d-images.csv"].startswith(b"# 30 images.\n")
    capsys.readouterr()
    assert harness.main(["d:images", "race"]) == 0  # now there is but the sample of MNIST
    quick = harness.FOLDER / "quick"
    err = capsys.readouterr().err
    assert f"of mnist only a sample is here: see {quick}" in err
    assert files_under(quick) == ["d-images.csv", "d-images.png"]
    caption = "d:images on a sample of mnist | 6000 images."
    assert harness.read_table(quick / "d-images.csv").caption == caption
    assert harness.main(["d:images", "race", "--quick"]) == 0
    assert len(files_under(quick)) == 4
    assert {name: (harness.FOLDER / name).read_bytes() for name in full} == full
    assert harness.main(["race", "--quick", "--out", str(harness.FOLDER)]) == 0  # whoever says so
    assert (harness.FOLDER / "race.csv").read_bytes() != full["race.csv"]
    assert "figures/quick/" in (ROOT / ".gitignore").read_text(encoding="ascii").splitlines()


X = np.arange(5.0)
Z = np.array([np.nan, np.inf, 1e-300, 1, 1e300])
TABLE = {"curve": np.array(["1", "1", "1", "2", "2"]), "x": X, "z": Z}


@pytest.mark.parametrize(
    "noise, other, expected",
    [
        (0.0, {"x": X * (1 + 8e-10), "z": Z * (1 - 8e-10)}, True),
        (0.0, {"x": np.arange(5)}, True),
        (0.0, {"x": X * (1 + 2e-9)}, False),
        (0.0, {"z": Z * (1 + 2e-9)}, False),
        (0.0, {"x": X + 1e-13}, False),  # where it is 0
        (2e-13, {"x": X + 1e-13}, True),
        (2e-13, {"x": X + 3e-13}, False),
        (1.0, {"z": -Z}, False),
        (1.0, {"z": np.fmin(Z, 1e300)}, False),
        (1.0, {"z": np.nan_to_num(Z, nan=1.0)}, False),
        (1.0, {"curve": np.array(["1", "1", "2", "2", "2"])}, False),
        (1.0, {"curve": np.array([1.0, 1, 1, 2, 2])}, False),
        (1.0, {"w": X}, False),
        (1.0, {name: column[:1] for name, column in TABLE.items()}, False),
    ],
)
def test_tables_agree_by_text_and_nine_digits(noise, other, expected):
    """In both directions, and only with their columns in one order."""
    other = TABLE | other
    assert harness.agree(TABLE, other, noise) == expected
    assert harness.agree(other, TABLE, noise) == expected
    assert not harness.agree(TABLE, dict(reversed(other.items())), noise)


@pytest.mark.parametrize(
    "factor, end, stays",
    [(1, "", True), (1 + 8e-10, "", True), (1 + 2e-9, "", False), (1, ".", False)],
)
def test_a_kept_table_that_agrees_stays_with_its_picture(registry, factor, end, stays, capsys):
    """Whose bytes depend on the processor, too. Else both are written, as where the caption is another."""
    assert harness.main(["race"]) == 0
    written = contents_of(harness.FOLDER)
    table = harness.read_table(harness.FOLDER / "race.csv")
    other = harness.Table(table | {"y": factor * table["y"]}, table.caption + end)
    harness.write_table(harness.FOLDER / "race.csv", other)
    (harness.FOLDER / "race.png").write_bytes(b"of another processor")
    kept = contents_of(harness.FOLDER)
    capsys.readouterr()
    assert harness.main(["race"]) == 0
    assert contents_of(harness.FOLDER) == (kept if stays else written)
    assert ("stays" in capsys.readouterr().out) == stays


def test_what_is_no_table_is_replaced(registry):
    assert harness.main(["race"]) == 0
    written = contents_of(harness.FOLDER)
    (harness.FOLDER / "race.csv").write_text("<<<<<<< ours")
    assert harness.main(["race"]) == 0
    assert contents_of(harness.FOLDER) == written


def test_a_picture_stays_only_beside_the_table_that_it_shows(tmp_path, registry):
    """And only in figures: elsewhere, and in other formats, it is drawn whenever it is computed."""
    for arguments in (["race"], ["race", "--quick"], ["race", "--out", str(tmp_path / "out")]):
        assert harness.main(arguments) == 0
    drawn = (harness.FOLDER / "race.png").read_bytes()
    registry("race", drawing=lambda table, ax: ax.plot(table["y"]))
    for folder, options, is_new in (
        (harness.FOLDER, [], False),
        (harness.FOLDER, ["--redraw"], True),
        (harness.FOLDER / "quick", ["--quick"], True),
        (tmp_path / "out", ["--out", str(tmp_path / "out")], True),
    ):
        assert harness.main(["race", *options]) == 0
        assert ((folder / "race.png").read_bytes() != drawn) == is_new
    (harness.FOLDER / "race.png").unlink()
    assert harness.main(["race"]) == 0
    drawn = (harness.FOLDER / "race.png").read_bytes()
    for _ in range(2):
        assert harness.main(["race", "--seed", "1", "--format", "svg"]) == 0
        assert files_under(harness.FOLDER)[-2:] == ["race.csv", "race.svg"]
        (harness.FOLDER / "race.svg").unlink()
    assert harness.main(["race", "--seed", "1"]) == 0
    assert (harness.FOLDER / "race.png").read_bytes() != drawn


def test_a_figure_that_fails_to_draw_shows_its_own_error(tmp_path, registry):
    """A file may be at fault in a redraw; else it is the code, whose traceback must be seen."""

    def other_rows(run):
        """Nothing."""
        yield {"z": 1}

    registry("c:one", other_rows)
    with pytest.raises(KeyError):
        harness.main(["c:one", "--out", str(tmp_path)])
    assert files_under(tmp_path) == ["c-one.csv"]
    registry("c:one", other_rows, lambda table, ax: None)  # the code is mended
    assert harness.main(["c:one", "--redraw", "--out", str(tmp_path)]) == 0
    assert files_under(tmp_path) == ["c-one.csv", "c-one.png"]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_same_numbers_give_the_same_bytes(tmp_path, registry, suffix, monkeypatch):
    """Whatever the date, Matplotlib's version and its settings by a user are."""
    pictures = []
    for folder, date, size, colour in (
        ("a", "1000000000", 8, "white"),
        ("b", "1100000000", 20, "red"),
    ):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
        monkeypatch.setitem(matplotlib.rcParams, "font.size", size)
        monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", colour)
        arguments = ["race", "--out", str(tmp_path / folder), "--format", suffix]
        assert harness.main(arguments) == 0
        assert files_under(tmp_path / folder) == ["race.csv", f"race.{suffix}"]
        pictures.append((tmp_path / folder / f"race.{suffix}").read_bytes())
    assert pictures[0] == pictures[1]
    assert b"Software" not in pictures[0]
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix] in pictures[0][:8]


def test_a_curve_that_swings_is_drawn_by_its_peaks():
    assert harness.from_here_on(np.array([5.0, 1, np.nan, 3, 2])).tolist() == [5, 3, 3, 3, 2]


@pytest.mark.parametrize("width", [20, 33, 76])
def test_a_title_is_broken_into_few_lines_of_about_one_length(width):
    for figure in harness.FIGURES.values():
        text = figure.finding
        lines = harness.balanced(text, width).split("\n")
        assert " ".join(lines) == text
        assert len(lines) == len(textwrap.wrap(text, width))
        longest = max(map(len, lines))
        assert longest <= width
        assert len(textwrap.wrap(text, longest - 1)) > len(lines)  # no narrower block has as few


def test_numbers_at_axes_have_commas(registry):
    figure = registry("c:one", n=1500, drawing=lambda table, ax: ax.plot(table["x"], -table["x"]))
    [ax] = figure.draw(figure()).axes
    assert ax.xaxis.get_major_formatter()(1000.0) == "1,000"
    assert ax.yaxis.get_major_formatter()(-1000.0) == "−1,000"


def test_names_at_the_ends_of_lines_keep_their_order_and_apart():
    """A name is at the end of its line if it can, and within the panel, and in no legend."""
    fig = matplotlib.figure.Figure(layout="constrained")
    ax = fig.subplots()
    ends = {"d": 9.0, "a": 2.0, "c\nof two lines": 5.01, "b": 5.0, "e": 9.1}
    for name, end in ends.items():
        ax.plot([1, 2, 3], [7.0, end, np.nan], label=name)
    harness.name_ends(ax)
    ax.set_ylim(0, 10)
    harness.spread_names(ax, 3.5)
    heights = {text.get_text()[0]: text.get_position()[1] for text in ax.texts}
    assert sorted(heights, key=heights.get) == list("abcde")
    a, b, c, d, e = sorted(heights.values())
    assert a == pytest.approx(0.2)  # which is far from the others
    assert (b + c) / 2 == pytest.approx(0.5005)
    assert c - b > 1.3 * (e - d) > 0.07
    assert e < 1
    harness.frame(fig, "title", "about")
    assert not fig.legends


def test_before_a_name_at_the_end_of_a_line_is_a_sample_of_it():
    fig = matplotlib.figure.Figure(layout="constrained")
    ax = fig.subplots()
    looks = {"a": {"linestyle": "--"}, "b": {"marker": "s"}, "c": harness.BOUND}
    lines = [
        ax.plot([1, 2], [k, k], label=name, **look)[0]
        for k, (name, look) in enumerate(looks.items())
    ]
    names = harness.name_ends(ax)
    harness.spread_names(ax, 3.5)
    fig.savefig(io.BytesIO())
    samples = [line for line in ax.lines if line not in lines]
    for line, name, sample in zip(lines, names, samples, strict=True):
        box = name.get_window_extent()
        ends = sample.get_transform().transform(sample.get_xydata())
        assert ax.bbox.x1 < ends[0, 0] < ends[-1, 0] < box.x0
        assert box.y0 < ends[0, 1] == ends[-1, 1] < box.y1
        for trait in ("color", "linestyle", "linewidth", "marker", "alpha"):
            assert getattr(sample, f"get_{trait}")() == getattr(line, f"get_{trait}")(), trait


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_words_and_curves_of_a_kept_picture_are_told_apart(path, monkeypatch):
    """No words overlap or leave the picture; named curves of a panel differ by more than colour.  And a kept table is
    that of a figure, which makes of it all that pages show."""
    draw = matplotlib.text.Text.draw
    boxes = {}

    def watched(text, renderer):
        draw(text, renderer)
        if text.get_visible() and text.get_text().strip():
            boxes[text] = text.get_window_extent(renderer)

    monkeypatch.setattr(matplotlib.text.Text, "draw", watched)
    figure = figure_of(path)
    table = harness.read_table(path)
    assert figure.table_of is None or figure.table_of(table)
    picture = figure.draw(table)
    picture.draw_without_rendering()
    right, top = picture.bbox.max
    assert len(boxes) > 10
    for text, box in boxes.items():
        assert min(box.min) >= -1 and box.x1 <= right + 1 and box.y1 <= top + 1, text
    for (text, one), (neighbour, other) in itertools.combinations(boxes.items(), 2):
        width = min(one.x1, other.x1) - max(one.x0, other.x0)
        height = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert width <= 1 or height <= 3, (text, neighbour)  # pixels; a box is higher than its text
    # Broad and pale lines, which are proved, and grey ones, which are no curves, stand apart anyway.
    for ax in picture.axes:
        curves = [
            line
            for line in ax.lines
            if not line.get_label().startswith("_")
            and line.get_linestyle() != "None"
            and line.get_alpha() is None
            and line.get_color() != harness.GREY
        ]
        # The public name of all dashes of one's own is "--".
        looks = [(str(line._unscaled_dash_pattern), line.get_marker()) for line in curves]
        assert len(set(looks)) == len(looks), looks


def test_a_rounded_number_keeps_its_zeros():
    for value, text in ((0.01, "0.010"), (0.9999, "1.0"), (12.3, "12"), (0.0092, "0.0092")):
        assert harness.rounded(value) == text


def test_a_bound_is_rounded_outwards_to_so_many_digits():
    rng = np.random.default_rng(0)
    for value in rng.choice((-1, 1), 200) * 10 ** rng.uniform(-9, 4, 200):
        for digits in (1, 2, 4):
            low = float(harness.bound(value, digits, math.floor))
            high = float(harness.bound(value, digits, math.ceil))
            unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
            assert low <= value <= high
            assert high - low == pytest.approx(unit)
    assert harness.bound(0.0366, 2, math.ceil) == "0.037"
    assert harness.bound(0.03, 2, math.floor) == "0.030"
    assert harness.bound(12.0, 2, math.ceil) == "12"
    assert harness.bound(0.0, 2, math.ceil) == "0"
    assert harness.bound(math.nan, 2, math.ceil) == "nan"


# ======================================================================================================
# RUNS
# ======================================================================================================


def test_the_interval_of_an_exponent_holds_it():
    rng = np.random.default_rng(0)
    x = np.geomspace(1, 1000, 40)
    assert harness.exponent(x, 3 * x**-1.5) == pytest.approx((-1.5, -1.5, -1.5), rel=1e-9)
    hits = 0
    for _ in range(40):
        b, low, high = harness.exponent(x, x**0.5 * np.exp(0.3 * rng.normal(size=40)))
        assert low < b < high
        hits += low < 0.5 < high
    assert hits >= 34
    assert np.isnan(harness.exponent(x[:3], x[:3])).all()


def test_runs_are_drawn_whole_for_an_interval():
    """Points of a run that depend on each other are no more than one: the interval is as wide as from ten numbers."""
    rng = np.random.default_rng(1)
    x = np.tile(np.geomspace(1, 100, 30), (10, 1))
    slopes = 1 + 0.2 * rng.normal(size=(10, 1))
    b, low, high = harness.exponent(x, x**slopes)
    assert b == pytest.approx(slopes.mean(), rel=1e-9)
    assert high - low == pytest.approx(4 * slopes.std() / np.sqrt(10), rel=0.3)


def test_a_short_call_is_repeated_for_as_long_as_a_turn():
    answers = iter(range(10**9))
    seconds, last = harness.stopwatch(lambda: next(answers), 0.01)
    assert last > 10
    assert seconds * last < 10
    assert harness.stopwatch(lambda: next(answers))[1] == last + 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("wanted", "stream", "seen"),
    [(True, Terminal, True), (False, Terminal, False), (True, io.StringIO, False)],
)
def test_progress_shows_only_on_a_terminal_and_when_wanted(monkeypatch, wanted, stream, seen):
    monkeypatch.setattr(sys, "stderr", stream())
    run = harness.Run(progress=wanted, title="ji21:fig3")
    assert list(run.bar(range(3), "loop")) == [0, 1, 2]
    assert ("ji21:fig3, loop: " in sys.stderr.getvalue()) == seen


def seen_by_a_process(job, *data):
    threads = {os.environ.get(name) for name in harness.ONE_THREAD}
    return job, os.getpid(), threads, data


def one_over(job):
    return 1 / job


def test_processes_answer_in_order_with_one_blas_thread_and_leave_no_trace(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    run = harness.Run(progress=False)
    jobs = [3, 1, 4, 1, 5, 9, 2]
    found = list(harness.in_processes(run, seen_by_a_process, jobs, "data", [4]))
    assert [job for job, *_ in found] == jobs
    assert all(pid != os.getpid() for _, pid, *_ in found)
    assert all((threads, data) == ({"1"}, ("data", [4])) for _, _, threads, data in found)
    with pytest.raises(ZeroDivisionError):
        list(harness.in_processes(run, one_over, [0]))
    assert dict(os.environ) == before
    assert signal.signal(signal.SIGINT, kept) is signal.default_int_handler


# ======================================================================================================
# COMMAND LINE
# ======================================================================================================


def run(*arguments, script=ROOT / "reproduce.py"):
    program = [sys.executable, str(script), *arguments]
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)


def listed(out):
    """The rows of a list: figure, data, time and finding."""
    table = out.partition("\n\n")[0].splitlines()[1:]
    return [re.split(r"\s{2,}", line) for line in table]


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ("fig1", "a14:fig1 b21:fig1"),  # not b21:fig1-all
        ("b21:fig1", "b21:fig1"),
        ("b21", "b21:fig1 b21:fig2 b21:fig1-all"),
        ("race fig1 a14:fig1", "race a14:fig1 b21:fig1"),
        ("all", "a14:fig1 b21:fig1 b21:fig2 race b21:fig1-all"),
        ("ra", "race"),
    ],
)
def test_names_choose_figures(registry, names, keys, capsys):
    registry("b21:fig1-all")
    figures, sizes = harness.select(names.split())
    assert [figure.key for figure in figures] == keys.split()
    assert not sizes
    assert harness.main(["list", *names.split()]) == 0
    assert {row[0] for row in listed(capsys.readouterr().out)} == set(keys.split())


def test_options_and_sizes_may_stand_between_names_and_reach_the_figure(tmp_path, registry):
    seen = []

    def rows(run, n, seeds, how):
        """{how}, n = {n:,}, {seeds} seeds, {seed}."""
        seen.append((run.seed, run.progress, run.data, n, seeds, how))
        yield {"curve": "a", "x": 1, "y": 1}

    registry("c:one", rows, n=10, seeds=3, how="max", quick={"n": 7, "seeds": 1})
    out = tmp_path / "out"
    arguments = f"--quick c:one --seed 5 n=2000 --data {tmp_path} how=unit --no-progress"
    assert harness.main([*arguments.split(), "--out", str(out)]) == 0
    assert seen == [(5, False, tmp_path, 2000, 1, "unit")]
    assert files_under(out) == ["c-one-n2000-howunit.csv", "c-one-n2000-howunit.png"]
    caption = harness.read_table(out / "c-one-n2000-howunit.csv").caption
    title = "c:one with n = 2000, seeds = 1, how = unit"
    assert caption == f"{title} | unit, n = 2,000, 1 seeds, 5."
    assert harness.main(["c:one", "n=2000", "how=unit", "--redraw", "--out", str(out)]) == 0
    assert len(seen) == 1
    assert harness.main(["c:one", "--out", str(out)]) == 0
    assert seen[1:] == [(0, True, None, 10, 3, "max")]


@pytest.mark.parametrize("name", ["zzzzzz", "images=3"])
def test_an_unknown_name_or_size_draws_nothing_and_says_what_there_is(
    tmp_path, registry, name, capsys
):
    for arguments in (["race", name, "--out", str(tmp_path / "out")], ["list", "race", name]):
        assert harness.main(arguments) == 2
        known = "sizes are: n" if "=" in name else "reproduce.py list"
        says_one_sentence(capsys, repr(name.partition("=")[0]), known)
    assert not (tmp_path / "out").exists()


SIZES = {"n": 10, "tol": 0.1, "pair": (0, 1), "few": [0.5], "how": "max"}


@pytest.mark.parametrize(
    "words, wanted",
    [
        ("n=x", "whole number above 0"),
        ("n=0", "whole number above 0"),
        ("n=1e3", "whole number above 0"),
        ("tol=-1", "number above 0"),
        ("tol=nan", "number above 0"),
        ("pair=3", "2 values such as 0,1"),
        ("pair=3,5,8", "2 values such as 0,1"),
        ("pair=3,x", "2 values such as 0,1"),
        ("few=-1,2", "values such as 0.5"),
        ("few=", "values such as 0.5"),
    ],
)
def test_a_size_that_is_not_like_its_default_is_refused(registry, words, wanted, capsys):
    figure = registry("c:one", lambda run, **sizes: pytest.fail("computed"), **SIZES)
    assert harness.main(["c:one", words]) == 2
    err = capsys.readouterr().err
    assert f"{words.partition('=')[0]} of c:one must be " in err
    assert wanted in err
    name, _, value = words.partition("=")
    with pytest.raises(ValueError, match=f"{name} of c:one"):
        figure(**{name: value})


@pytest.mark.parametrize(
    "words, values, stem",
    [
        ("n=5", {"n": np.int64(5)}, "n5"),
        ("tol=1e-3", {"tol": 0.001}, "tol0.001"),
        ("pair=3,5", {"pair": [3, 5]}, "pair3,5"),
        ("few=0,1,2.5", {"few": np.array([0, 1, 2.5])}, "few0,1,2.5"),
        ("few=3", {"few": 3}, "few3"),
        ("how=1/sqrt(t)", {"how": "1/sqrt(t)"}, "how1_sqrt_t_"),
    ],
)
def test_sizes_are_the_same_from_text_and_from_python(registry, words, values, stem):
    """Of the type of the default, whose sizes are kept apart by the names of the files."""
    seen = []

    def rows(run, **sizes):
        """Caption."""
        seen.append(sizes)
        yield {"curve": "a", "x": 1, "y": 1}

    figure = registry("c:one", rows, **SIZES)
    assert harness.main(["c:one", words]) == 0
    figure(**values)
    assert seen[0] == seen[1] != SIZES
    assert {name: type(size) for name, size in seen[0].items()} == {
        name: type(size) for name, size in SIZES.items()
    }
    assert files_under(harness.FOLDER) == [f"c-one-{stem}.csv", f"c-one-{stem}.png"]


def test_the_list_of_one_figure_has_its_sizes_as_the_command_line_takes_them(registry, capsys):
    registry("c:one", **SIZES)
    assert harness.main(["list", "c:one"]) == 0
    [sizes] = re.findall("^sizes: (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert sizes == "n=10 tol=0.1 pair=0,1 few=0.5 how=max"
    assert harness.select(["c:one", *sizes.split()])[1] == SIZES
    assert harness.main(["list", "c:one", "race"]) == 0
    assert "sizes:" not in capsys.readouterr().out


def test_a_name_that_ends_in_a_digit_is_kept_apart_from_its_number():
    assert harness.stem_of("a:b", {"lam0": 1.0}) != harness.stem_of("a:b", {"lam": "01"})


def labelled(run, n):
    """Data: {data}. [[A result.]]

    Settings[[, and another]].
    """
    X, y, *_ = run.two_classes(3, 5)
    yield {"curve": "a", "x": np.arange(n), "y": len(y)}


def words_of(fig):
    return [text.get_text() for text in fig.texts]


def test_what_is_said_of_the_declared_sizes_is_said_of_no_others(tmp_path, registry, tiny):
    """In titles, captions and pages; a title with the sizes stands in their place."""
    figure = registry("d:one", labelled, n=3, data="mnist", takes_points=True, quick={"n": 2})
    data = put(tmp_path / "data", tiny)
    table = figure(data=data)
    about = "Data: 6 images of the digits 3 and 5 of MNIST. A result."
    assert table.caption == f"{about} | Settings, and another."
    assert words_of(figure.draw(table)) == ["the figure d:one", about]
    points = (np.eye(4), [0, 0, 1, 1])
    for other, title in (
        (figure(data=data, n=4), "d:one with n = 4"),
        (figure.compute(harness.Run(data=data), {}, quick=True), "d:one with n = 2"),
        (figure(), "d:one on a sample of mnist"),
        (figure(data=points), "d:one with data = arrays"),
    ):
        assert other.caption.startswith(f"{title} | Data: ")
        assert other.caption.endswith(". | Settings.")
        assert "result" not in other.caption
        assert words_of(figure.draw(other))[0] == title
        assert f"### {title}\n" in harness.section(figure, {"n": 4}, other)
    # Rows that were taken from a table are no longer what was declared.
    assert words_of(figure.draw(harness.where(table, curve="a")))[0] == "d:one with other rows"


def test_a_finding_that_is_measured_stands_over_all_sizes(registry):
    """After it the sizes are told."""
    figure = registry("c:one", is_measured=True)
    figure.finding = "there are {count}"
    figure.numbers(lambda table: {"count": f"{len(table['x'])} of them"})
    title, about = words_of(figure.draw(figure(n=7)))
    assert title == "there are 7 of them"
    assert about == "c:one with n = 7. Random numbers, seed 0."
    assert words_of(figure.draw(figure())) == ["there are 5 of them", "Random numbers, seed 0."]


def test_a_figure_is_drawn_from_python_as_by_the_program(registry, monkeypatch):
    """Whatever a user's settings are, and outside any style."""
    figure = registry("c:one", n=6)
    assert harness.main(["c:one", "--seed", "2", "n=7"]) == 0
    table = figure(seed=2, n=7)
    saved = harness.read_table(harness.FOLDER / "c-one-n7.csv")
    assert table.caption == saved.caption
    assert harness.agree(table, saved, 0.0)
    for name, value in (("font.size", 20), ("axes.grid", False), ("lines.linewidth", 9)):
        monkeypatch.setitem(matplotlib.rcParams, name, value)
    out = io.BytesIO()
    figure.draw(table).savefig(out, metadata=harness.METADATA["png"])
    assert out.getvalue() == (harness.FOLDER / "c-one-n7.png").read_bytes()


def test_a_drawing_changes_no_table(registry):
    def draw(table, ax):
        table["twice"] = 2 * table["y"]
        ax.plot(table["twice"])

    figure = registry("c:one", drawing=draw)
    table = figure()
    figure.draw(table)
    assert list(table) == ["curve", "x", "y"]


def test_limits_of_the_declared_sizes_cut_no_curve_of_others(registry):
    def draw(table, ax):
        ax.plot(table["x"], 100 * table["y"])
        ax.set(ylim=(0, 1))

    figure = registry("c:one", drawing=draw)
    [cut], [whole] = (figure.draw(figure(**sizes)).axes for sizes in ({}, {"n": 9}))
    assert cut.get_ylim() == (0, 1)
    assert whole.get_ylim()[1] > 1


POINTS = np.array([[0.5, 1.0], [2.0, -1e-3], [3.0, 4.0], [-1.0, 0.0]])
NAMES = np.array(["cat", "dog", "cat", "dog"])


@pytest.mark.parametrize("kind", ["table", "names of columns", "npz", "npz with tests"])
def test_own_points_are_read_from_a_file(tmp_path, kind):
    lines = [f"{a},{b},{name}" for (a, b), name in zip(POINTS.tolist(), NAMES, strict=True)]
    if kind == "names of columns":
        lines = ["width,height,animal", *lines]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(lines))
    if "npz" in kind:
        path = tmp_path / "mine.npz"
        tests = {"X_test": -POINTS, "y_test": NAMES[::-1]} if "tests" in kind else {}
        np.savez(path, X=POINTS, y=NAMES, **tests)
    run = harness.Run(data=path)
    X, y, X_test, y_test = run.two_classes(3, 5, tests="tests" in kind)
    assert X.tolist() == POINTS.tolist()
    assert y.tolist() == [-1, 1, -1, 1]
    assert (X_test.tolist(), y_test.tolist()) == (
        ((-POINTS).tolist(), [1, -1, 1, -1]) if "tests" in kind else ([], [])
    )
    assert run.facts["data"] == "4 points of mine"
    assert run.facts["item"] == "point"
    if "tests" not in kind:  # three tenths are drawn
        X, y, X_test, y_test = run.two_classes(3, 5)
        assert [len(y), len(y_test)] == [2, 2]
        together = {*map(tuple, X.tolist()), *map(tuple, X_test.tolist())}
        assert together == {*map(tuple, POINTS.tolist())}


@pytest.mark.parametrize(
    "text, said",
    [
        ("1,2,a\n3,b\n", "no points"),
        ("", "no points"),
        ("1,x,a\n1,y,b\n", "no points"),
        ("1,2,a\n3,4,a\n", "two classes, got 1"),
        ("1,2,a\n3,4,b\n5,6,c\n", "two classes, got 3"),
    ],
)
def test_a_file_without_points_of_two_classes_is_one_sentence(
    tmp_path, registry, text, said, capsys
):
    registry("d:one", labelled, n=3, takes_points=True)
    (tmp_path / "mine.csv").write_text(text)
    assert harness.main(["d:one", "--data", str(tmp_path / "mine.csv")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "mine" in err
    assert "Traceback" not in err


def test_own_points_go_to_figures_that_take_them_and_to_files_of_their_own(
    tmp_path, registry, capsys
):
    registry("d:one", labelled, n=3, takes_points=True)
    path = tmp_path / "mine.csv"
    path.write_text("1,2,a\n3,4,b\n" * 5)
    assert harness.main(["race", "d:one", "--data", str(path)]) == 2
    assert "race takes no points of one's own; these do: d:one" in capsys.readouterr().err
    assert harness.main(["list", "--data", str(path)]) == 0
    assert harness.main(["d:one", "--data", str(path)]) == 0
    assert files_under(harness.FOLDER) == ["d-one-datamine.csv", "d-one-datamine.png"]
    with pytest.raises(ValueError, match="race takes no points"):
        harness.FIGURES["race"](data=(POINTS, NAMES))


def test_what_fails_at_sizes_of_ones_own_is_one_sentence(registry, capsys):
    """At the declared ones it is a fault of the code, whose traceback must be seen."""

    def rows(run, n):
        """Caption."""
        raise ValueError("no such n")
        yield

    registry("c:one", rows, n=3)
    assert harness.main(["c:one", "n=4"]) == 1
    assert "c:one with n = 4 cannot be computed: no such n" in capsys.readouterr().err
    with pytest.raises(ValueError):
        harness.main(["c:one"])


def test_a_sample_has_sizes_of_its_own_unless_others_are_given(tmp_path, registry, tiny):
    seen = []

    def rows(run, n):
        """Caption."""
        seen.append(n)
        yield {"curve": "a", "x": 1, "y": 1}

    sizes = {"n": 3, "sample": {"n": 2}, "quick": {"n": 1}}
    figure = registry("d:one", rows, data="mnist", **sizes)
    figure(data=put(tmp_path, tiny))
    figure()
    figure(n=5)
    figure.compute(harness.Run(progress=False), {}, quick=True)
    assert seen == [3, 2, 5, 1]


@pytest.mark.parametrize("digits", ["3,3", "3,10"])
def test_digits_that_are_not_two_of_ten_are_refused(registry, digits, capsys):
    def rows(run, digits):
        """Caption."""
        yield {"y": run.two_classes(*digits)[1]}

    registry("d:one", rows, digits=(3, 5))
    assert harness.main(["d:one", f"digits={digits}"]) == 1
    assert "two of 0 to 9" in capsys.readouterr().err


def test_sizes_without_a_figure_and_two_figures_of_one_name_are_errors(registry, capsys):
    assert harness.main(["n=3"]) == 2
    assert "name it" in capsys.readouterr().err
    with pytest.raises(ValueError, match="two figures 'race'"):
        harness.figure("race", "", minutes=1)(lambda run: ())


@pytest.mark.parametrize("options", ["race --format jpg", "--quick"])
def test_bad_command_lines_exit_with_2(registry, options, capsys):
    with pytest.raises(SystemExit) as stop:
        harness.main(options.split())
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err


def test_without_names_there_is_the_list_of_all(capsys):
    assert harness.main([]) == 0
    out = capsys.readouterr().out
    assert [row[0] for row in listed(out)] == list(harness.FIGURES)
    assert "{" not in out


def test_the_list_says_what_is_at_hand(tmp_path, registry, tiny, capsys):
    data = {"none": "", "m": "mnist", "h": "htru2", "c": "cifar10", "mch": "mnist cifar10 htru2"}
    for name, names in data.items():
        registry(f"d:{name}", data=names)

    def states(*arguments):
        assert harness.main(["list", "d", *arguments]) == 0
        return [row[1] for row in listed(capsys.readouterr().out)]

    assert states() == ["-", "missing", "here", "missing", "missing"]
    given = str(put(tmp_path / "d", tiny))
    assert states("--data", given) == ["-", "here", "here", "missing", "missing"]


def test_the_shortest_figure_is_drawn_first_after_all_are_named(tmp_path, registry, capsys):
    said = []

    def rows(run):
        """Caption."""
        said.append((run.title, capsys.readouterr().err))
        yield {"curve": "a", "x": 1, "y": 1}

    for name, minutes in (("c:long", 30), ("c:short", 0.1), ("c:middle", 12)):
        registry(name, rows, minutes=minutes)
    assert harness.main(["c", "--out", str(tmp_path)]) == 0
    titles, texts = zip(*said, strict=True)
    assert titles == ("c:short (1 of 3)", "c:middle (2 of 3)", "c:long (3 of 3)")
    assert "c:short (6 s), c:middle (12 min), c:long (30 min)" in texts[0]
    assert harness.main(["c:middle", "--quick", "--out", str(tmp_path)]) == 0
    assert "min" not in said[-1][1]  # reduced work takes seconds


def test_missing_data_stop_only_their_own_figure(tmp_path, registry, capsys):
    """And one sentence says what to do."""

    def rows(run):
        """Caption."""
        yield {"x": run.cifar10()[1]}

    registry("d:cifar", rows, data="cifar10")
    assert harness.main(["d:cifar", "race", "b21:fig2", "--out", str(tmp_path / "out")]) == 1
    assert files_under(tmp_path / "out") == ["b21-fig2.csv", "b21-fig2.png", "race.csv", "race.png"]
    out, err = capsys.readouterr()
    *_, sentence, count = err.splitlines()
    for part in (
        "d:cifar not drawn: cifar10",
        harness.DATA["cifar10"].address,
        str(harness.cache_folder()),
        "data_batch_1.bin and test_batch.bin",
    ):
        assert part in sentence
    assert count == "1 of 3 figures not drawn: d:cifar"
    assert out.count("\n") == 2


@pytest.mark.parametrize("given", ["file", "file/below", None])
def test_a_folder_that_cannot_be_written_is_one_sentence_before_anything_is_computed(
    tmp_path, registry, monkeypatch, given, capsys
):
    registry("race", lambda run: pytest.fail("computed"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(harness, "FOLDER", tmp_path / "file")
    out = [] if given is None else ["--out", str(tmp_path / given)]
    assert harness.main(["race", "b21:fig1", *out]) == 1
    says_one_sentence(capsys, "--out")
    assert files_under(tmp_path) == ["file"]


def test_the_script_draws_a_figure_or_exits_with_2(tmp_path):
    result = run("apidopoulos22:fig1", "--quick", "--format", "svg", "--out", str(tmp_path / "out"))
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert files_under(tmp_path / "out") == ["apidopoulos22-fig1.csv", "apidopoulos22-fig1.svg"]
    assert run("apidopoulos22:fig11").returncode == 2


OWN_FIGURE = """
@figure("own", "counts", minutes=1, n=3)
def own(run, n):
    '''Caption.'''
    yield {"k": list(in_processes(run, double, range(n)))}


@own.drawing
def _(table, ax):
    ax.plot(table["k"])


def double(k):
    return 2 * k


"""


def test_a_renamed_script_runs_itself(tmp_path, monkeypatch):
    """Also in its processes: a figure that it adds is its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    text = (ROOT / "reproduce.py").read_text(encoding="utf-8")
    before, guard, after = text.partition('if __name__ == "__main__":\n    sys.exit(program())')
    assert guard
    (tmp_path / "mine.py").write_text(before + OWN_FIGURE + guard + after, encoding="utf-8")
    out = tmp_path / "out"
    result = run("own", "--out", str(out), script=tmp_path / "mine.py")
    assert result.returncode == 0, result.stderr
    table = harness.read_table(out / "own.csv")
    assert table["k"].tolist() == [0, 2, 4]


SLOW_FIGURE = """
import sys, time
from figures import harness
# In one piece, or the lines of two processes may mix.
SAY = "import os, sys, time; os.write(1, (str(os.getpid()) + chr(10)).encode()); "
@harness.figure('slow', 'sleeps', minutes=1)
def slow(run):
    '''Caption.'''
    # Naps, as a signal that comes just before a sleep begins does not end it.
    exec(SAY + "[time.sleep(0.1) for _ in range(600 * (not {processes}))]")
    yield from harness.in_processes(run, exec, [SAY + "time.sleep(60)"] * {processes})
sys.exit(harness.program())
"""


def interrupted(program, is_ready, everyone=False, delay=0.0):
    """Start a program, send Ctrl-C when it is ready: its exit code, its errors, what it said when ready."""
    child = subprocess.Popen(
        [sys.executable, *program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # which a shell takes from a program in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        said = is_ready(child)
        time.sleep(delay)
        (os.killpg if everyone else os.kill)(child.pid, signal.SIGINT)
        err = child.communicate(timeout=20)[1]
    finally:
        child.kill()
    return child.returncode, err, said


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize(
    "processes, everyone",
    [(0, False), *(pytest.param(2, x, marks=pytest.mark.dear) for x in (False, True))],
)
def test_ctrl_c_exits_with_130_says_one_word_and_leaves_nothing(tmp_path, processes, everyone):
    """Neither files nor processes, whether it comes from a terminal, to all of them, or to the first alone."""
    out = tmp_path / "out"
    program = ["-c", SLOW_FIGURE.format(processes=processes), "slow", "--out", str(out)]

    def says(child):
        return [int(child.stdout.readline()) for _ in range(1 + processes)]

    code, err, pids = interrupted(program, says, everyone)
    assert code == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert files_under(out) == []
    assert len(set(pids)) == 1 + processes
    for pid in pids[1:]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_while_numba_compiles_is_one_word_and_130(tmp_path, monkeypatch):
    """Numba takes it for an error of what it compiles, with hundreds of lines, and LLVM loses it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))

    def compiles(child):
        while "on two cores" not in child.stderr.readline():
            assert child.poll() is None

    program = ["reproduce.py", "front", "--out", str(tmp_path / "out")]
    code, err, _ = interrupted(program, compiles, delay=1.0)
    assert code == 130
    assert err == "interrupted\n"
    assert files_under(tmp_path / "out") == []


def test_a_package_that_is_not_installed_is_one_sentence(tmp_path, monkeypatch):
    missing = "raise ModuleNotFoundError(\"No module named 'matplotlib'\")"
    (tmp_path / "matplotlib.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("list")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "'matplotlib'" in result.stderr
    assert 'pip install ".[figures]"' in result.stderr


# ======================================================================================================
# REPORT
# ======================================================================================================

PAGE = """é
<!-- figure: b21:fig1 -->
{old}<!-- end -->
<!-- other -->
A line of <!-- number: b21:fig1 last -->{old_number}<!-- end --> or so.

<!-- table: b21:fig1 -->
{old}<!-- end -->
<!-- figure: race n=3 -->
<!-- end -->
<!-- gallery: b21 race c -->
{old}<!-- end -->
<!-- others -->
{old}<!-- end -->
end"""


@pytest.fixture
def page(registry):
    """A page with all marks, after seeds other than 0."""

    figure = registry("b21:fig1")
    figure.finding = "ends at {last}"

    @figure.numbers
    def _(table):
        return {"last": harness.number(table["x"][-1] - 6, ".0f")}

    @figure.table
    def _(table):
        return harness.markdown([["curve", *table["x"]], ["---"] * 6, [1] * 6])

    registry("c:one")
    assert harness.main(["b21", "race", "c:one", "--seed", "1"]) == 0
    assert harness.main(["race", "n=3"]) == 0
    path = harness.ROOT / "README.md"
    path.write_text(PAGE.format(old="old\n| older |\n", old_number="9"), encoding="utf-8")
    return path


def test_report_writes_between_its_marks_and_nothing_else(page, capsys):
    """From the CSV files at hand, however often."""
    other = harness.FOLDER / "MANUAL.md"
    other.write_text("<!-- table: b21:fig1 -->\n<!-- end -->\n", encoding="utf-8")
    capsys.readouterr()
    assert harness.main(["report"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(page), str(other)]
    once = page.read_text(encoding="utf-8")
    assert harness.main(["report"]) == 0
    assert page.read_text(encoding="utf-8") == once
    # Without what is between them, the marks and the words are as they were.
    emptied = re.sub(
        r"(?s)(^<!-- [^\n]*? -->\n)(?:(?!<!--).)*(?=^<!-- end)", r"\1", once, flags=re.M
    )
    assert emptied == PAGE.format(old="", old_number="−2")
    table = "| curve | 0.0 | 1.0 | 2.0 | 3.0 | 4.0 |\n| --- | --- | --- | --- | --- | --- |\n"
    table += "| 1 | 1 | 1 | 1 | 1 | 1 |\n"
    assert other.read_text() == f"<!-- table: b21:fig1 -->\n{table}<!-- end -->\n"
    assert table in once


@pytest.mark.parametrize(
    "mark",
    [
        "<!-- figure: gone -->\n<!-- end -->\n",
        "<!-- figure: b21 -->\n<!-- end -->\n",
        "<!-- gallery: gone -->\n<!-- end -->\n",
    ],
)
def test_a_mark_that_is_not_understood_is_one_sentence(page, mark, capsys):
    page.write_text(mark)
    capsys.readouterr()
    assert harness.main(["report"]) == 1
    says_one_sentence(capsys, page, mark.partition(" -->")[0])
    assert page.read_text() == mark


# The example of the manual
[ADDED] = re.findall("(?s)^```py\n(@figure.*?)^```", PAGES[FOLDER / "MANUAL.md"], re.M)
ADDED_KEY = re.search('^    "(.*?)",$', ADDED, re.M)[1]


def test_the_figure_of_the_manual_is_added_in_one_place(tmp_path, monkeypatch):
    """At the end of a file, in a copy of the program: picture, list, sizes and report follow."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the module need not be installed
    shutil.copy(ROOT / "reproduce.py", tmp_path)
    program = shutil.ignore_patterns("quick", "__pycache__", "*.csv", "*.png", "*.md")
    shutil.copytree(FOLDER, tmp_path / "figures", ignore=program)
    with open(tmp_path / "figures" / "studies.py", "a", encoding="utf-8") as file:
        file.write(f"\n\n{ADDED}")
    (tmp_path / "README.md").write_text("")
    page = tmp_path / "figures" / "README.md"
    page.write_text("<!-- gallery: all -->\n<!-- end -->\n<!-- others -->\n<!-- end -->\n")
    for words in ([ADDED_KEY, "points=50", "--quick"], [ADDED_KEY], ["report"], ["list"]):
        result = run(*words, script=tmp_path / "reproduce.py")
        assert result.returncode == 0, result.stderr
    assert ADDED_KEY in result.stdout
    made = {
        f"{stem}.{end}" for stem in ("labels", "quick/labels-points50") for end in ("csv", "png")
    }
    assert made < {*files_under(tmp_path / "figures")}
    report = page.read_text(encoding="utf-8")
    table = harness.read_table(tmp_path / "figures" / "labels.csv")
    about, settings = table.caption.split(" | ")
    for text in (
        '<img src="labels.png"',
        f"### Random labels have a larger margin in more dimensions: up to {table['margin'][-1]:.3f}\n",
        f"![{about}](labels.png)",
        "`labels`, 3 s; [CSV](labels.csv)",
        f"<sub>{settings}</sub>",
    ):
        assert text in report


# ======================================================================================================
# PAGES
# ======================================================================================================


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_are_what_report_writes(path):
    text = PAGES[path]
    assert harness.renew(path, text) == text, "python reproduce.py report renews the pages"


def test_every_figure_is_in_the_report():
    report = PAGES[FOLDER / "README.md"]
    for path in FOLDER.glob("*.csv"):
        assert report.count(f"({path.stem}.png)") == 1, path.stem


def test_the_commands_of_the_pages_exist():
    """Figures to draw, the tests to run, and what pip is to install."""
    _, _, extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("-dependencies]")
    extras = set(re.findall(r"^(\w+) = ", extras.partition("\n[")[0], re.MULTILINE))
    blocks = " ".join(re.findall("(?s)^```bash\n(.*?)^```", PAGES[ROOT / "README.md"], re.M))
    assert "pytest" in blocks
    assert "reproduce.py" in blocks
    for text in PAGES.values():
        commands = re.findall(r"python reproduce\.py((?: [a-z0-9:=,./^\"-]+)+)", text)
        commands += re.findall(r"<sub>`(.*?)`", text)
        for command in commands:
            words = command.replace(ADDED_KEY, "all").replace('"', "").split()
            words = [word for word in words if word not in ("list", "report")]
            with contextlib.redirect_stderr(io.StringIO()):
                harness.select(harness.parse(words).names)
        for extra in re.findall(r"pip install [^\n]*?\[([\w,]+)\]", text):
            assert set(extra.split(",")) <= extras


def test_the_way_from_python_that_the_manual_tells(tmp_path, monkeypatch):
    """On the sample; it saves a picture."""
    [block] = re.findall(
        "(?s)^```py\n(import reproduce\n.*?)^```", PAGES[FOLDER / "MANUAL.md"], re.M
    )
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(block, found)
    assert files_under(tmp_path) == ["mine.png"]
    assert 0 < found["gaps"].min() < 1


def anchor(title):
    """The name that GitHub gives to a heading, for links."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def places_of(page):
    """The names in a page to which links may lead."""
    text = page.read_text(encoding="utf-8")
    titles = re.findall("^#+ (.*)", re.sub("^```.*?^```", "", text, flags=re.DOTALL | re.M), re.M)
    named = re.findall('^<a id="(.*?)"></a>$', text, re.MULTILINE)
    found = [*map(anchor, titles), *named]
    return [name for name, count in Counter(found).items() if count == 1]


def test_every_link_leads_somewhere():
    """To a file, and to one section of it."""
    places = 0
    for path, text in PAGES.items():
        links = re.findall(r"\]\(([^\s()]+)\)", text) + re.findall('(?:href|src)="(.*?)"', text)
        for link in links:
            if link.startswith("https://"):
                continue
            file, _, place = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), link
            if place:
                assert place in places_of(target), link
                places += 1
    assert places
