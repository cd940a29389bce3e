"""reproduce.py: data from every place they may be in, whole files or none, every picture, the command line."""

import ast
import gzip
import hashlib
import http.server
import importlib.util
import io
import itertools
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
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
    ("ramdas14:example", "rho"),
    ("ji21:fig1", "upper"),
    ("speed:peers", "gap"),
    ("speed:peers", "their gap"),
    *(("attention", name) for name in ("seed", "t", "least", "best")),
    *(("network", name) for name in ("l1", "l1_fresh", "linf", "linf_fresh")),
    *(("ji21:fig4", name) for name in ("gap", "train_error", "differ")),
    *(("ji21:fig4", name) for name in ("moved", "excess", "excess_error")),
    *(("margins", name) for name in ("n", "d", "twins", "upper")),
    *(("apidopoulos22:fig4", f"margin_{end}") for end in ("least", "most")),
    *(("apidopoulos22:fig5", f"margin_{end}") for end in ("least", "most")),
    ("steps", "least"),
    ("apidopoulos22:path", "least"),
    *(("apidopoulos22:fig3", f"{name}_gap") for name in ("direction", "angle")),
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
        assert all(text.get_window_extent().x1 <= fig.bbox.x1 for text in fig.texts)
    monkeypatch.setattr(alone, "legend", lambda *_: None)  # which takes half of the time
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
        assert entry.finding, key
        assert entry.minutes > 0, key
        assert "\n" not in entry.claim + entry.finding, key
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
    for name in ("momentum", "SNKP", "max_margin", "frank_wolfe, pairwise"):
        looks = rp.styles(["other", "PIQP", name, f"{name}, fast", f"{name}, slow"])
        assert look_of(looks[name]) == rp.METHODS[rp.spelled(name)]
        assert len({look["color"] for look in looks.values()}) == 5
    [variant] = rp.styles(["SVC, tol = 1e-06"]).values()
    assert variant == rp.styles(["SVC"])["SVC"]
    for stem, methods in METHODS_OF.items():
        names = [name for name in methods if rp.spelled(name) in rp.METHODS]
        looks = rp.styles(sorted(names)).values()
        for part in ("color", "marker"):
            assert len({look[part] for look in looks}) == len(names), stem


def test_methods_differ_by_colour_and_dash_all_over_the_gallery():
    """But for two names of one method."""
    same = {"inertial descent": "inertial descent, α = 3", "SVC": "LIBSVM"}
    looks = {name: look[:2] for name, look in rp.METHODS.items() if name not in same}
    assert len(set(looks.values())) == len(looks)
    assert all(rp.METHODS[name] == rp.METHODS[other] for name, other in same.items())


def test_names_have_one_spelling():
    for names in (
        ("subspace_perceptron", "subspace perceptron"),
        ("isnkpvn", "ISNKPVN", "ISNKPVN, l2"),
        ("snkp", "SNKP"),
        ("a = 10", "inertial descent, a = 10", "inertial descent, α = 10"),
        ("normalized GD, 1/sqrt(t)", "normalised GD, 1/√t"),
        ("batch_perceptron", "batch perceptron, average", "batch perceptron"),
        ("$\\rho$ = 0.02", "ρ = 0.02"),
        ("inertial descent, lambda_0 = 10", "inertial descent, λ₀ = 10"),
        ("linf", "ℓ∞"),
    ):
        assert {rp.spelled(name) for name in names} == {names[-1].replace(", l2", "")}
        assert rp.spelled(rp.spelled(names[0])) == rp.spelled(names[0])
    assert all(rp.spelled(name) == name for name in rp.METHODS)


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


@matplotlib.rc_context(rp.STYLE)
def test_labels_of_several_lines_stay_beside_the_panel():
    """Though all curves end at its upper edge."""
    fig, [[ax]] = rp.panels()
    ax.set_ylim(0, 1)
    for i in range(4):
        ax.plot([0, 1], [0, 1], label=f"curve {i}\nin two lines", **rp.style(i))
    rp.direct(ax)
    rp.finish(fig, "caption")
    fig.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 4
    assert all(lower.y1 <= upper.y0 for lower, upper in itertools.pairwise(boxes))
    assert boxes[-1].y1 <= ax.bbox.y1 + 2


@matplotlib.rc_context(rp.STYLE)
def test_a_label_that_is_moved_is_joined_to_the_end_of_its_curve():
    fig, [[ax]] = rp.panels()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ends = (0.2, 0.71, 0.7)
    lines = [ax.plot([0, 1], [0, end])[0] for end in ends]
    rp.at_ends(ax, {line: f"to {end}" for line, end in zip(lines, ends, strict=True)})
    assert [text.get_text() for text in ax.texts] == ["to 0.2", "to 0.7", "to 0.71"]
    alone, *_, moved = ax.texts
    [leader] = ax.lines[len(ends) :]  # the lower one of the two is where its curve ends
    assert alone.get_position() == (1.02, pytest.approx(0.2))
    assert leader.get_ydata() == pytest.approx([0.71, moved.get_position()[1]])
    assert leader.get_color() == moved.get_color() == lines[1].get_color()


@matplotlib.rc_context(rp.STYLE)
def test_a_legend_is_read_line_by_line_below_the_headline_and_the_remarks():
    fig, axes = rp.panels(1, 2)
    names = [f"a_rather_long_method_name {i}" for i in range(7)]
    for ax in axes.flat:
        for name in names:
            ax.plot([0, 1], label=name)
        rp.remark(ax, "bands: " + 30 * "the range ")
        assert ax.get_legend_handles_labels()[1] == names
    box = rp.legend(fig, "The headline")
    rp.finish(fig, "caption")
    fig.draw_without_rendering()
    places = {text.get_text(): text.get_window_extent() for text in box.get_texts()}
    assert sorted(names, key=lambda name: (-round(places[name].y0), places[name].x0)) == names
    assert 1 < len({round(place.x0) for place in places.values()}) < len(names)
    headline, *said = fig.texts
    assert headline.get_text() == "The headline"
    assert (
        " ".join(text.get_text() for text in said) == "bands: " + 29 * "the range " + "the range"
    )  # once
    boxes = [text.get_window_extent() for text in fig.texts]
    assert all(fig.bbox.x0 <= remark.x0 and remark.x1 <= fig.bbox.x1 for remark in boxes)
    assert boxes[0].y1 <= fig.bbox.y1
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))
    assert boxes[-1].y0 >= max(place.y1 for place in places.values())


@pytest.mark.parametrize("at", [0, 0.5, 1])
@matplotlib.rc_context(rp.STYLE)
def test_a_tag_stands_beside_its_curve_where_this_is_in_the_panel(at):
    _, [[ax]] = rp.panels()
    x = np.geomspace(1, 1e4, 41)
    y = np.append(np.nan, x[1:])
    [line] = ax.loglog(x, y, **rp.style(1))
    ax.set(xlim=(1, 1e4), ylim=(10, 1e4))  # which the first of the points are below
    rp.tag(ax, line, "here", at, (3, 4))
    [text] = ax.texts
    assert text.get_color() == line.get_color()
    assert text.xy[0] == text.xy[1] == pytest.approx(max(10, 1e4**at))
    [nothing] = ax.plot([1, 2], [np.nan, np.nan])
    rp.tag(ax, nothing, "nowhere", at)
    assert len(ax.texts) == 1


def test_a_curve_that_swings_is_drawn_by_its_peaks():
    assert rp.from_here_on(np.array([5.0, 1, np.nan, 3, 2])).tolist() == [5, 3, 3, 3, 2]


@pytest.mark.parametrize("shape", [(1, 1), (3, 1)])
@matplotlib.rc_context(rp.STYLE)
def test_a_legend_a_mark_and_panels_do_not_overlap(shape):
    fig, axes = rp.panels(*shape)
    for ax in axes.flat:
        for i in range(6):
            y = 1 / (1 + np.arange(50.0)) ** i
            ax.loglog(y, label=f"a_rather_long_method_name {i}", **rp.style(i))
        ax.set(xlabel="iteration", ylabel="gap", title="title")
    box = rp.legend(fig, "The headline")
    assert len(box.get_texts()) == 6  # a label once, not once a panel
    rp.finish(fig, "quick: MNIST 3 vs 5")
    fig.draw_without_rendering()
    *_, mark = fig.texts
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
    [
        ("caption", []),
        ("quick: caption", ["quick: on fewer data than the words say"]),
        ("sample: caption", ["sample: on fewer data than the words say"]),
    ],
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
    registry("c:pages", pages={"one": "One", "two": "Two"})
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

    said = []

    def states(*arguments):
        assert rp.main(["list", "d", *arguments]) == 0
        out = capsys.readouterr().out
        marks = out.partition("\n\n")[2]
        said.append(marks.partition("data:")[0])
        rows = listed(out)
        assert all(row[1] in marks for row in rows)
        return [row[1] for row in rows]

    assert states() == ["-", "sample", "full", "missing", "missing"]
    assert said[-1].splitlines() == ["bundled sample here: mnist", "missing here: cifar10"]
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


def test_a_figure_is_added_by_four_touches(tmp_path, monkeypatch):
    """In a copy of the program and its documents: compute, draw with @figure, and a small picture with @thumb."""
    touches = """
def compute_new(context):
    return table_of("x y", [(1, 2), (3, 4)]), "No data, no kernel, no seed: two points"


@figure("new:points", "is a line straight?", compute_new, finding="A line is straight", minutes=0.01)
def draw_new(table, ax):
    ax.plot(table["x"], table["y"])


@thumb("new:points", "The line is straight.")
def thumb_new(table, ax):
    draw_new(table, ax)


"""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the module need not be installed
    program = (ROOT / "reproduce.py").read_text(encoding="utf-8")
    before, place, after = program.partition("# --- ji21 ---")
    (tmp_path / "figures").mkdir()
    (tmp_path / "reproduce.py").write_text(before + touches + place + after, encoding="utf-8")
    for name in ("README.md", "figures/README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for arguments in ("new:points", "report"):
        assert run(arguments, folder=tmp_path).returncode == 0
    made = {"new-points.csv", "new-points.png", "thumbs/new-points.png"}
    assert made < {*files_under(tmp_path / "figures")}
    report = (tmp_path / "figures" / "README.md").read_text(encoding="utf-8")
    [cell] = [line for line in report.splitlines() if "thumbs/new-points.png" in line]
    words = ("is a line straight?", "The line is straight.", 'href="#new-points"')
    assert all(word in cell for word in words)
    assert all(
        text in report
        for text in (
            "### A line is straight",
            "(new-points.png)",
            "`new:points`, 1 s",
            "(new-points.csv)",
            "No data, no",
        )
    )


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


def test_a_thumbnail_is_a_small_picture_of_its_own(registry, monkeypatch):
    """From the table alone; the same bytes from the same numbers, whatever a user has set."""

    def small(table, ax):
        [line] = ax.loglog(table["x"], table["y"])
        rp.tag(ax, line, "a curve", 0.5)

    rp.FOLDER.mkdir()
    rp.thumb("race", "It rises.")(small)
    rp.write_table(rp.FOLDER / "race.csv", rp.stack([{"x": [1, 1e9], "y": [3, 4]}]), "caption")
    seen = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda fig, *args, **named: (seen.append(fig), save(fig, *args, **named))
    )
    for size in (8, 20):
        monkeypatch.setitem(matplotlib.rcParams, "font.size", size)
        rp.draw_thumbnail("race", rp.FOLDER / f"{size}.png")
    assert (rp.FOLDER / "8.png").read_bytes() == (rp.FOLDER / "20.png").read_bytes()
    [ax] = seen[0].axes
    assert len(ax.get_xticks()) <= 6
    height, width = matplotlib.image.imread(rp.FOLDER / "8.png").shape[:2]
    assert height < width == 480  # twice the 240 that the pages show
    [cell] = re.findall("<td.*</td>", rp.at_a_glance())
    assert all(
        word in cell for word in ("thumbs/race.png", "#race", "the figure race", "It rises.")
    )


@pytest.mark.parametrize("key", rp.FIGURES)
@matplotlib.rc_context(rp.THUMB)
def test_a_thumbnail_can_be_read_without_its_figure(key):
    """Its axes are named, its curves few, and each has its label, as dark as it, in the picture."""
    assert rp.FIGURES[key].shows.endswith(".")
    fig = Figure(figsize=rp.THUMB_SIZE, layout="constrained")
    ax = fig.subplots()
    rp.FIGURES[key].thumb(rp.read_table(ROOT / "figures" / rp.file_of(key))[0], ax)
    fig.draw_without_rendering()
    assert ax.get_legend() is None and not fig.legends
    texts = [text for text in ax.texts if text.get_text()]
    assert 1 <= len(texts) <= 5
    assert min(text.get_fontsize() for text in texts) >= 9.5  # of them 7 pixels are seen
    for text in texts:
        box = text.get_window_extent()
        assert fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1, text.get_text()
        assert fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1, text.get_text()
        assert ax.bbox.x0 <= box.x0 + 1 and ax.bbox.y0 <= box.y0 + 1, (
            text.get_text()
        )  # not on its axes
    for one, other in itertools.combinations(texts, 2):
        assert not one.get_window_extent().overlaps(other.get_window_extent()), (one, other)


def test_every_figure_has_its_thumbnail():
    kept = {path.name for path in (ROOT / "figures" / "thumbs").iterdir()}
    assert kept == {f"{Path(rp.file_of(key)).stem}.png" for key in rp.FIGURES}
    sizes = [path.stat().st_size for path in (ROOT / "figures" / "thumbs").iterdir()]
    assert max(sizes) < 6e4 and np.mean(sizes) < 35_000  # a reader of the report loads them all


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
    long = " ".join(f"word{k}" for k in range(rp.MANY_WORDS))
    for text, is_folded in ((long, True), (long.rpartition(" ")[0], False)):
        rp.write_table(rp.FOLDER / "b21-fig1.csv", rp.stack([{"x": 1.0}]), text)
        before, opened, inside = rp.section("b21:fig1").partition("<details>")
        assert bool(opened) == is_folded
        assert "(b21-fig1.csv)" in before and (inside if is_folded else before).count(text) == 1
        assert inside.endswith("</details>") == is_folded
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


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("delay", [0.3, 1.7])
def test_ctrl_c_while_numba_compiles_is_one_line_and_130(tmp_path, delay):
    """Numba takes it for an error of what it compiles, with hundreds of lines, and LLVM loses it."""
    child = subprocess.Popen(
        [sys.executable, "reproduce.py", "front", "--quick", "--out", str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
    )
    try:
        while "compiling" not in child.stderr.readline():
            assert child.poll() is None
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=20)[1]
    finally:
        child.kill()
    assert child.returncode == 130
    assert err == "interrupted\n"
    assert files_under(tmp_path / "out") == []


@pytest.mark.parametrize("option", ["--quick", "--redraw"])
def test_an_option_of_drawing_without_a_name_says_what_is_missing(option, capsys):
    with pytest.raises(SystemExit) as ended:
        rp.main([option])
    printed, err = capsys.readouterr()
    assert ended.value.code == 2
    assert printed == ""
    assert f"python reproduce.py all {option}" in err


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
