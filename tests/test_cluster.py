"""Products by the workers of a Dask cluster: the results of memory, also where a worker dies; errors and Ctrl-C."""

import contextlib
import logging
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from instances import feasible, same_result, unequal_weights

import fastmargin as fm

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
delayed = pytest.importorskip("dask").delayed

CHUNKS = 4


# ======================================================================================================
# THE RECIPE OF THE MANUAL, AND A CLUSTER
# ======================================================================================================

MANUAL = Path(__file__).resolve().parents[1] / "figures" / "MANUAL.md"
BLOCK = re.compile(r"^```python\n([^`]*^class DaskRows[(:].*?)^```", re.DOTALL | re.MULTILINE)
names = {}
exec(BLOCK.search(MANUAL.read_text(encoding="utf-8"))[1], names)
DaskRows = names["DaskRows"]


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        with distributed.Client(cluster) as client:
            yield client


def on_disk(Z, folder):
    """A Dask array of rows in as many files as there are chunks, uneven ones, which nobody has read yet."""

    def read(path):  # a closure goes to the workers by value: they need not import this file
        with open(folder / "log", "a") as log:
            log.write(f"{path}\n")
        return np.load(path)

    blocks = np.array_split(Z, CHUNKS)
    for i, block in enumerate(blocks):
        np.save(folder / f"{i}.npy", block)
    return da.concatenate(
        [
            da.from_delayed(delayed(read)(folder / f"{i}.npy"), block.shape, dtype=float)
            for i, block in enumerate(blocks)
        ]
    )


def times_read(folder):
    return len((folder / "log").read_text().splitlines())


# ======================================================================================================
# TESTS
# ======================================================================================================


@pytest.mark.parametrize(
    "name, max_iter",
    [("momentum", 12), ("subspace_perceptron", 6), ("batch_perceptron", 8), ("max_margin", 3)],
)
def test_workers_and_memory_agree(client, tmp_path, name, max_iter):
    Z = unequal_weights(10, 0.2)[0]
    array = on_disk(Z, tmp_path).persist()
    G = DaskRows(client, array)
    some = np.arange(3, 9)
    np.testing.assert_allclose(G.block(some, some), Z[3:9] @ Z[3:9].T, rtol=0, atol=1e-14)
    remote, local = (
        fm.ALGORITHMS[name](G, max_iter=max_iter, trace_at=[3], keep_iterates=True)
        for G in (G, fm.features(Z, 1, normalize=None))
    )
    same_result(remote, local, rtol=1e-9)
    Xnew = np.random.default_rng(0).normal(size=(4, Z.shape[1]))
    scores = Xnew @ G.separator(remote.alpha)
    assert scores == pytest.approx(Xnew @ (Z.T @ remote.alpha), rel=1e-12)
    assert times_read(tmp_path) == CHUNKS  # by the persisted array, and not again by its products


@pytest.mark.parametrize("moment", ["between products", "within a product"])
def test_lost_workers_do_not_change_a_bit(client, tmp_path, moment):
    """A chunk's product is the same wherever it is computed, and the sum over chunks is in the order of the rows."""
    order = tmp_path / "order to die"

    class Rows(DaskRows):
        def products(self, left, right):
            def product(left, right):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(order)  # which one worker alone succeeds in
                    os.kill(os.getpid(), signal.SIGKILL)
                return np.dot(left, right)

            return self.client.gather(self.client.map(product, left, right, pure=False))

    def kill(result):
        if result.n_iter == 5 and moment == "within a product":
            order.touch()
        elif result.n_iter == 5:
            for pid in (
                pids.values()
            ):  # both: a chunk that has a copy with the other would not be read again
                os.kill(pid, signal.SIGKILL)

    Z = feasible(70, 5, 0.2, seed=1)[0]
    G = Rows(client, on_disk(Z, tmp_path))
    plain = fm.momentum(G, max_iter=12, trace_at=[5], keep_iterates=True)
    assert times_read(tmp_path) == CHUNKS
    pids = client.run(os.getpid)
    bereft = fm.momentum(G, max_iter=12, trace_at=[5], keep_iterates=True, callback=kill)
    client.wait_for_workers(2)
    survivors = {*pids.values()} & {*client.run(os.getpid).values()}
    assert len(survivors) == (moment == "within a product") and not order.exists()
    assert times_read(tmp_path) >= 2 * CHUNKS or survivors
    same_result(bereft, plain)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_errors_of_workers_and_interrupts_come_through(client, tmp_path, error):
    class Rows(DaskRows):
        ahead = 22  # products until the error, in iteration 7

        def products(self, left, right):
            def fail(left, right):
                raise OSError("disk on fire")

            self.ahead -= 1
            if self.ahead == 0 and error is OSError:
                return self.client.gather(self.client.map(fail, left, right, pure=False))
            if self.ahead == 0:
                raise KeyboardInterrupt
            return super().products(left, right)

    Z = feasible(70, 5, 0.2, seed=2)[0]
    seen = []
    G = Rows(client, on_disk(Z, tmp_path))
    with pytest.raises(error, match="disk on fire" if error is OSError else None):
        fm.momentum(G, max_iter=12, trace_at=[5], callback=seen.append)
    assert seen[-1].n_iter == 5
    rest = fm.momentum(G, max_iter=7, trace_at=[], start=seen[-1])
    whole = fm.momentum(G, max_iter=12, trace_at=[])
    assert np.array_equal(rest.alpha, whole.alpha) and np.array_equal(rest.p, whole.p)
    assert times_read(tmp_path) == CHUNKS
