"""A single thread; and for the tests of reproduce.py: no network, an empty cache, quick runs that all of them share."""

import hashlib

import matplotlib
import numpy as np
import pytest
from instances import threads

import reproduce as rp

FONTS = matplotlib.get_cachedir()


@pytest.fixture(scope="module")
def one_thread():
    """On small instances threads only wait for each other; that they change no bit is tested where this is not used."""
    with threads(1):
        yield


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, no data folder, no network: nothing here can see the machine's own data."""
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("FASTMARGIN_DATA", raising=False)
    # Or each program started here would build Matplotlib's font list anew.
    monkeypatch.setenv("MPLCONFIGDIR", FONTS)
    monkeypatch.setattr(rp, "LOADED", {})
    for name in rp.DATA:
        address = (tmp_path / "nowhere").as_uri() + "/{}"
        monkeypatch.setitem(rp.DATA, name, rp.DATA[name]._replace(address=address))
    return rp.cache_folder()


class Quick:
    """What figures compute and draw with --quick, each once a session, for all tests that look at it."""

    def __init__(self, factory):
        self.folder = factory.mktemp("quick")

    def file(self, key):
        """The CSV file, which must not be changed; the picture is beside it."""
        path = rp.csv_of(rp.FIGURES[key], {}, self.folder)
        if not path.exists():
            arguments = [key, "--quick", "--no-progress", "--out", str(self.folder)]
            assert rp.main(arguments) == 0
        return path

    def table(self, key):
        """The table and its caption, read from the file."""
        return rp.read_table(self.file(key))


@pytest.fixture(scope="session")
def quick(tmp_path_factory):
    return Quick(tmp_path_factory)


@pytest.fixture
def small_cifar(cache, monkeypatch):
    """In the place of CIFAR-10 140 + 520 random images in the cache."""
    rng = np.random.default_rng(11)
    digests = {}
    (cache / "cifar10").mkdir(parents=True)
    for name, n in (("data_batch_1.bin", 140), ("test_batch.bin", 520)):
        records = rng.integers(0, 256, (n, 1 + 3 * 32 * 32), dtype=np.uint8)
        records[:, 0] %= 10
        (cache / "cifar10" / name).write_bytes(records.tobytes())
        digests[name] = hashlib.sha256(records.tobytes()).hexdigest()
    monkeypatch.setitem(rp.DATA, "cifar10", rp.DATA["cifar10"]._replace(files=digests))
