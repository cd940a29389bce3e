"""What tests share; and where a claim is tested, by the rooms of the module and then of the script.

    points and labels   test_door (all refusals), test_tables (the right value for tables as they come)
    2, 3                test_simplex
    4 kernels           test_kernels
    5 G                 test_representations, test_forms (sparse, in files, with a ridge), test_lazy_and_pairs
    6 certificate       test_certificate, with witnesses; test_exact_rationals (every algorithm, judged by exact.py);
                        test_laws (what holds of every G)
    7 driver            test_driver
    8 algorithms        test_ramdas14, test_ji21, test_apidopoulos22, test_subspace, test_norms (naive.py: once more)
    9 exact solver      test_exact_solver; test_intercept, for planes that need not pass through the origin
    10 classifier       test_classifier; test_peers, beside other packages; test_cluster
    the whole module    test_module: its map, README, manual and docstrings as they run, threads, processes, caches

    figures/harness.py  test_reproduce: every figure, data, files, command line, report, pages
    figures             test_figures, of the papers; test_studies, our own; test_networks

Generic tests run over the calls and instances of instances.py, laws over the random problems of exact.py.  The
fixtures: a single thread; packages of others; and for the tests of reproduce.py no network, an empty cache, and quick
runs that all of them share.
"""

import hashlib
import os

# Processes that run tests beside each other would wait for each other's threads.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib
import numpy as np
import pytest
from instances import threads

import reproduce as rp
from figures import harness, studies

FONTS = matplotlib.get_cachedir()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Each process takes whole files, because tests of one file compile the same functions."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


@pytest.fixture(scope="module")
def one_thread():
    """On small instances threads only wait for each other; that they change no bit is tested where this is not used."""
    with threads(1):
        yield


@pytest.fixture
def sp():
    return pytest.importorskip("scipy.sparse")


@pytest.fixture
def pd():
    return pytest.importorskip("pandas")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, no data folder, no network: nothing here can see the machine's own data."""
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("FASTMARGIN_DATA", raising=False)
    # Or each program started here would build Matplotlib's font list anew.
    monkeypatch.setenv("MPLCONFIGDIR", FONTS)
    monkeypatch.setattr(harness, "LOADED", {})
    for name in harness.DATA:
        address = (tmp_path / "nowhere").as_uri() + "/{}"
        monkeypatch.setitem(harness.DATA, name, harness.DATA[name]._replace(address=address))
    return harness.cache_folder()


SMALLER = {  # than with --quick: the tests ask for no more
    "ji21:fig3": {"images": 500},
    "kkt": {"points": 12, "images": 12, "steps": 100},
}


def in_this_process(run, function, jobs, *data):
    return (function(job, *data) for job in jobs)


class Quick:
    """What figures compute and draw with --quick, each once a session, for all tests that look at it.

    Other processes would have to load the module first.
    """

    def __init__(self, factory):
        self.folder = factory.mktemp("quick")

    def file(self, key):
        """The CSV file, which must not be changed; the picture is beside it."""
        path = harness.csv_of(harness.FIGURES[key], {}, self.folder)
        if not path.exists():
            arguments = [key, "--quick", "--no-progress", "--out", str(self.folder)]
            with pytest.MonkeyPatch.context() as patch:
                for program in (rp, studies):
                    patch.setattr(program, "in_processes", in_this_process)
                for name, size in SMALLER.get(key, {}).items():
                    patch.setitem(harness.FIGURES[key].quick, name, size)
                assert harness.main(arguments) == 0
        return path

    def table(self, key):
        """The Table, read from the file."""
        return harness.read_table(self.file(key))


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
    monkeypatch.setitem(harness.DATA, "cifar10", harness.DATA["cifar10"]._replace(files=digests))
