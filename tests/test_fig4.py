"""ji21:fig4: the network against loops and differences, its kernel against its Jacobian."""

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import reproduce as rp

pytestmark = pytest.mark.usefixtures("cache")

ROOT = Path(__file__).resolve().parents[1]
QUIETLY = rp.Context(progress=False)

# Of everything one: a stride, two pools, a convolution without, a dense layer on 2 x 2 pixels and one on a single one.
SMALL = [
    rp.Layer(2, 3, 1, 2, True),
    rp.Layer(3, 3, 1, 1, True),
    rp.Layer(4, 3, 1),
    rp.Layer(5, 2),
    rp.Layer(10),
]
WITHOUT_BIASES = [layer._replace(biased=False) for layer in SMALL]
SIZE = 16


def images(n, seed=0, size=SIZE):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, size, size, 3)), rng.integers(0, 10, n)


def small_weights(seed=1, layers=SMALL):
    """Weights in float64."""
    weights = rp.initial_weights(layers, 3, np.random.default_rng(seed))
    return [W.astype(float) for W in weights]


def loss(layers, weights, x, y):
    outputs = rp.forward(layers, weights, x)[0]
    return np.mean(np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(y)), y])


def slopes_by_differences(function, weights, h=1e-5):
    """The derivatives of a function of the weights by each of them, arrays (parameters, ...), one for each layer."""

    def derivative(W, i):
        kept = W.flat[i]
        values = []
        for shift in (h, -h):
            W.flat[i] = kept + shift
            values.append(function())
        W.flat[i] = kept
        return (values[0] - values[1]) / (2 * h)

    return [np.array([derivative(W, i) for i in range(W.size)]) for W in weights]


# ----------------------------------------------------------------------------------------------------------------------
# The network
# ----------------------------------------------------------------------------------------------------------------------


def test_the_layers_are_those_of_alexnet():
    """With a quarter of the channels 64, 192, 384, 256, 256, and dense layers of 512."""
    layers = rp.ALEXNET
    assert [layer.channels for layer in layers] == [16, 48, 96, 64, 64, 512, 512, 10]


def test_the_initial_weights_fill_their_interval():
    layers = rp.ALEXNET
    weights = rp.initial_weights(layers, 3, np.random.default_rng(3))
    for W, fan_in in zip(weights, (27, 144, 432, 864, 576, 256, 512, 512), strict=True):
        assert W.dtype == np.float32 and W.shape[0] == fan_in + 1
        for part in (W[:-1], W[-1]):  # biases like weights
            top = np.sqrt(fan_in) * np.abs(part).max()
            assert 1 - 10 / part.size < top <= 1 + 1e-6
        assert W.size < 1000 or abs(3 * fan_in * np.mean(W**2) - 1) < 10 / np.sqrt(
            W.size
        )  # uniform: variance 1/3


def layer_by_loops(layer, W, x, last):
    """One layer on one image, pixel by pixel."""
    padded = np.pad(x, ((layer.padding,) * 2, (layer.padding,) * 2, (0, 0)))
    count = (padded.shape[0] - layer.side) // layer.stride + 1
    y = np.empty((count, count, layer.channels))
    for i, j in np.ndindex(count, count):
        window = padded[i * layer.stride :, j * layer.stride :][: layer.side, : layer.side]
        y[i, j] = window.ravel() @ W[:-1] + W[-1]
    y = y if last else np.maximum(y, 0)
    if layer.pooled:
        half = count // 2
        y = y[: 2 * half, : 2 * half].reshape(half, 2, half, 2, -1).max(axis=(1, 3))
    return y


def test_forward_is_the_network_of_loops():
    layers = SMALL
    weights = small_weights()
    (x, _) = images(3)
    outputs, _ = rp.forward(layers, weights, x)
    for image, output in zip(x, outputs, strict=True):
        for layer, W in zip(layers, weights, strict=True):
            image = layer_by_loops(layer, W, image, layer is layers[-1])
        np.testing.assert_allclose(image.ravel(), output, rtol=1e-13)


def test_a_pool_sends_everything_back_to_the_first_of_the_largest():
    y = np.random.default_rng(0).normal(size=(2, 6, 6, 3))
    y[0, :2, :2, 0] = 1.5, 1.5
    best, chosen = rp.pool(y)
    assert best[0, 0, 0, 0] == 1.5 and chosen[0, 0, 0, 0] == 0
    delta = np.random.default_rng(1).normal(size=(2, 3, 3, 4, 3))
    there = rp.unpool(delta, chosen)
    for r in range(4):  # where something goes, there is the largest, and nothing is lost
        at = there[:, :, :, r] != 0
        assert at.sum() == best.size and set(y[at]) == set(best.ravel())
        np.testing.assert_array_equal(
            there[:, :, :, r].reshape(2, 3, 2, 3, 2, 3).sum(axis=(2, 4)), delta[:, :, :, r]
        )
    assert there[0, 0, 0, 0, 0] != 0


@pytest.mark.parametrize("layers", [SMALL, WITHOUT_BIASES])
def test_gradient_against_finite_differences(layers):
    weights = small_weights(layers=layers)
    (x, y) = images(3)
    outputs, passes = rp.forward(layers, weights, x)
    deltas = rp.backward(layers, weights, passes, rp.loss_slopes(outputs, y)[:, None])
    expected = slopes_by_differences(lambda: loss(layers, weights, x, y), weights)
    for layer, W, seen, delta, slopes in zip(
        layers, weights, passes, deltas, expected, strict=True
    ):
        found = rp.gradient(layer, seen, delta)
        assert found.shape == W.shape
        np.testing.assert_allclose(found.ravel(), slopes, rtol=0, atol=1e-8 * np.abs(slopes).max())
    assert np.abs(expected[0]).max() > 1e-4  # it comes down to the first layer


def test_an_epoch_is_a_step_for_each_minibatch_in_turn(monkeypatch):
    monkeypatch.setattr(rp, "BATCH", 4)
    layers = SMALL
    weights = small_weights()
    (x, y) = images(6)  # batches of 4 and 2
    expected = [W.copy() for W in weights]
    for batch in (slice(4), slice(4, 6)):
        slopes = slopes_by_differences(
            lambda batch=batch: loss(layers, expected, x[batch], y[batch]), expected
        )
        for W, slope in zip(expected, slopes, strict=True):
            W -= 0.1 * slope.reshape(W.shape)
    rp.descend(layers, weights, x, y)
    for W, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(W, other, rtol=0, atol=1e-8)


def test_without_biases_the_network_is_homogeneous():
    layers = WITHOUT_BIASES
    weights = small_weights(layers=layers)
    (x, _) = images(3)
    outputs = rp.forward(layers, weights, x)[0]
    degree = len(layers)
    np.testing.assert_allclose(
        rp.forward(layers, [2 * W for W in weights], x)[0], 2**degree * outputs, rtol=1e-12
    )
    np.testing.assert_allclose(
        rp.derivative(layers, weights, weights, x), degree * outputs, rtol=1e-12
    )


def test_training_learns_and_is_decided_by_its_seed(monkeypatch):
    monkeypatch.setattr(rp, "BATCH", 4)
    x, y = images(12)
    x = x.astype(np.float32)
    reached = rp.train(SMALL, x, y, (0, 3, 200), 5)
    assert list(reached) == [0, 3, 200] and reached[200][0].dtype == np.float32
    layers = SMALL
    start, end = (loss(layers, reached[epoch], x, y) for epoch in (0, 200))
    assert start > 2 and end < 0.1
    for W, again, other in zip(
        reached[3],
        rp.train(SMALL, x, y, (3,), 5)[3],
        rp.train(SMALL, x, y, (3,), 6)[3],
        strict=True,
    ):
        assert np.array_equal(W, again) and not np.allclose(W, other)
    for W, first in zip(
        reached[0], rp.initial_weights(layers, 3, np.random.default_rng(5)), strict=True
    ):
        assert np.array_equal(W, first)  # a copy: training has not moved it


# ----------------------------------------------------------------------------------------------------------------------
# The kernel
# ----------------------------------------------------------------------------------------------------------------------


def jacobian(layers, weights, x):
    """df_c(x)/dw by differences, (n, classes, parameters): exact where no ReLU or pool switches between the two."""
    by_layer = slopes_by_differences(lambda: rp.forward(layers, weights, x)[0], weights)
    return np.moveaxis(np.concatenate(by_layer), 0, -1)


@pytest.mark.parametrize("layers", [SMALL, WITHOUT_BIASES])
@pytest.mark.parametrize("few", [0, 1, 10**6])
def test_kernel_against_the_jacobian(few, layers, monkeypatch):
    """The network is linear in each single weight between its kinks, so that differences are exact but for rounding."""
    monkeypatch.setattr(rp, "layer_factors", functools.partial(rp.layer_factors, few=few))
    monkeypatch.setattr(rp, "BLOCK", 2)
    weights = small_weights(layers=layers)
    (x, _) = images(3, seed=2)
    (others, _) = images(2, seed=3)
    expected = np.einsum(
        "ncw,mcw->nm", *(jacobian(layers, weights, points) for points in (x, others))
    )
    K, outputs = rp.tangent_kernel(layers, weights, x, others)
    np.testing.assert_allclose(K, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(outputs, rp.forward(layers, weights, x)[0], rtol=1e-12)


def test_every_layer_and_every_output_is_in_the_kernel():
    """The part of each layer alone, by the Jacobian of its weights alone."""
    layers = SMALL
    weights = small_weights()
    (x, _) = images(2, seed=2)
    outputs, passes = rp.forward(layers, weights, x)
    deltas = rp.backward(layers, weights, passes, np.tile(np.eye(10), (2, 1, 1)))
    by_layer = slopes_by_differences(lambda: rp.forward(layers, weights, x)[0], weights)
    for layer, seen, delta, slopes in zip(layers, passes, deltas, by_layer, strict=True):
        expected = np.einsum("wnc,wmc->nm", slopes, slopes)
        for few in (0, 10**6):
            factors = rp.layer_factors(layer, seen, delta, few)
            part = rp.layer_kernel(factors, factors)
            np.testing.assert_allclose(part, expected, rtol=0, atol=1e-9 * expected.max())


@pytest.mark.parametrize("layers", [SMALL, WITHOUT_BIASES])
def test_one_weight_vector_for_all_classes_against_the_jacobian(layers, monkeypatch):
    """v is the maximum-margin vector on the rows d(f_y - f_j)/dw / length, and scores are <df_c/dw, v>."""
    monkeypatch.setattr(rp, "BLOCK", 2)
    weights = small_weights(layers=layers)
    (x, y) = images(4, seed=2)
    (others, _) = images(3, seed=3)
    J = jacobian(layers, weights, x)
    J_others = jacobian(layers, weights, others)
    lengths = np.array([1.0, 2, 1, 0.5])
    pairs = [(i, j) for i in range(4) for j in range(10) if j != y[i]]
    Z = np.array([J[i, y[i]] - J[i, j] for i, j in pairs])
    direction = [np.random.default_rng(4).normal(size=W.shape) for W in weights]
    expected = J_others @ np.concatenate([V.ravel() for V in direction])
    np.testing.assert_allclose(
        rp.derivative(layers, weights, direction, others), expected, rtol=0, atol=1e-8
    )
    Z /= np.array([lengths[i] for i, _ in pairs])[:, None]
    best = rp.fm.max_margin(rp.fm.FeatureGram(Z), tol=1e-9)
    assert best.lower > 0
    scores = rp.pair_scores(layers, weights, x, y, lengths, others)
    expected = J_others @ (Z.T @ best.alpha)
    scores = scores / np.linalg.norm(scores)
    expected = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-3)


def test_kernel_in_float32_against_float64():
    x = images(7, size=32)[0].astype(np.float32)
    layers = rp.ALEXNET
    weights = rp.initial_weights(layers, 3, np.random.default_rng(0))
    K, _ = rp.tangent_kernel(layers, weights, x, x[:4])
    precise, _ = rp.tangent_kernel(
        layers, [W.astype(float) for W in weights], x.astype(float), x[:4].astype(float)
    )
    assert K.dtype == np.float32 and precise.dtype == np.float64
    np.testing.assert_allclose(K, precise, rtol=1e-5)
    assert not np.array_equal(K, precise)


# ----------------------------------------------------------------------------------------------------------------------
# The workers
# ----------------------------------------------------------------------------------------------------------------------


def test_workers_have_one_blas_thread_and_leave_no_trace(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with rp.workers(2) as processes:
        assert list(processes.imap(os.getenv, rp.BLAS_THREADS)) == ["1"] * len(rp.BLAS_THREADS)
        assert processes.apply(os.getpid) != os.getpid()
    assert dict(os.environ) == before
    with pytest.raises(ZeroDivisionError), rp.workers(1) as processes:
        list(processes.imap(functools.partial(divmod, 1), [0]))
    assert dict(os.environ) == before


@pytest.mark.dear
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("everyone", [True, False])
def test_ctrl_c_ends_the_workers_too(tmp_path, everyone):
    """Whether it comes from a terminal, to all processes of the group, or to the first one alone."""
    program = (
        "import multiprocessing, reproduce, sys, time\n"
        "def slow(context):\n"
        "    with reproduce.workers(2) as processes:\n"
        "        processes.map(time.sleep, [0, 0])\n"
        "        print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "        list(processes.imap(time.sleep, [60, 60]))\n"
        "reproduce.figure('slow', 'sleeps', slow, 'it slept', minutes=1)(None)\n"
        "sys.exit(reproduce.main(['slow', '--out', sys.argv[1]]))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        pids = [int(pid) for pid in child.stdout.readline().split()]
        (os.killpg if everyone else os.kill)(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=20)
    finally:
        child.kill()
    assert child.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in err
    assert len(pids) == min(2, os.cpu_count())
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# ----------------------------------------------------------------------------------------------------------------------
# The figure
# ----------------------------------------------------------------------------------------------------------------------


def test_colours_are_standardised_over_the_training_images():
    rng = np.random.default_rng(0)
    X, X_test = (
        rng.integers(low, 256, (n, 4, 4, 3)).astype(np.uint8) for n, low in ((20, 0), (5, 100))
    )
    ours, theirs = rp.standardised(X, X_test, axis=(0, 1, 2))
    assert ours.shape == X.shape and theirs.shape == X_test.shape
    np.testing.assert_allclose(ours.mean(axis=(0, 1, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(ours.std(axis=(0, 1, 2)), 1, atol=1e-12)
    mean = X.mean(axis=(0, 1, 2))
    deviation = X.std(axis=(0, 1, 2))
    np.testing.assert_allclose(theirs, (X_test - mean) / deviation, rtol=1e-12, atol=1e-12)


def test_the_error_of_a_paired_difference():
    rng = np.random.default_rng(0)
    wrong = rng.random(1000) < 0.7
    other = np.where(rng.random(1000) < 0.9, wrong, rng.random(1000) < 0.5)
    change, doubt = rp.paired_difference(wrong, other)
    assert change == pytest.approx(wrong.mean() - other.mean(), abs=1e-12)
    assert doubt == pytest.approx(np.sqrt((np.mean(wrong != other) - change**2) / 999), rel=1e-12)
    assert doubt < np.sqrt(
        wrong.var() / 1000 + other.var() / 1000
    )  # pairs tell more than two samples
    assert rp.paired_difference(wrong, wrong) == (0, 0)


class InThisProcess:
    imap = map


def test_predictors_see_features_of_length_1(small_cifar, monkeypatch):
    """The kernel <z, z'> of unit vectors z, each times a length: the margin is that of the unit vectors."""
    data = rp.load_cifar10(QUIETLY)
    rng = np.random.default_rng(0)
    y = data.y_train[:128]
    y_test = data.y_test[:500]
    Z, Z_test = (
        np.eye(10)[labels] + 0.3 * rng.normal(size=(len(labels), 10)) for labels in (y, y_test)
    )
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    long, longer = (np.exp(rng.normal(size=(n, 1))) * 100 for n in (128, 500))
    outputs = np.eye(10)[(y_test + (np.arange(500) < 200)) % 10]  # a network that errs 200 times

    def tangent_kernel(layers, weights, points, X_train):
        if len(points) == 128:
            return (long * Z) @ (long * Z).T, np.eye(10)[y]
        return (longer * Z_test) @ (long * Z).T, outputs

    monkeypatch.setattr(rp, "tangent_kernel", tangent_kernel)
    monkeypatch.setattr(rp, "pair_scores", lambda *_: 2 * outputs)
    monkeypatch.setattr(rp, "workers", lambda count: contextlib.nullcontext(InThisProcess))
    table, caption = rp.compute_ji21_fig4(rp.Context(quick=True, seed=4, progress=False))
    runs = rp.split(rp.split(table, "network")["biases"], "solver")
    exact = runs["max_margin"]
    one = runs[rp.ONE_VECTOR]
    assert np.all(one["test_error"] == 0.4)
    assert np.all(one["excess"] == 0)
    assert np.all(one["differ"] == 0)
    assert np.all(exact["moved"][exact["epoch"] > 0] < 1e-12)  # what is compared are unit vectors
    best = rp.fm.max_margin(rp.fm.pair_gram(Z @ Z.T, y, 10))
    assert best.lower > 0
    T = np.zeros((10, 128))
    pairs = [(i, j) for i in range(128) for j in range(10) if j != y[i]]
    for weight, (i, j) in zip(best.alpha, pairs, strict=True):
        T[y[i], i] += weight
        T[j, i] -= weight
    error = np.mean((Z_test @ (T @ Z).T).argmax(axis=1) != y_test)
    assert 0 < error < 0.5
    assert exact["test_error"] == pytest.approx(error, abs=2 / 500)
    assert np.all(exact["network_error"] == 0.4)
    assert np.all(exact["train_error"] == 0)
    assert np.all(exact["change"] == 0)
    assert exact["excess"] == pytest.approx(error - 0.4, abs=2 / 500)
    assert np.all((0 <= exact["gap"]) & (exact["gap"] <= 1e-6))
    assert list(dict.fromkeys(exact["seed"])) == ["4", "5"]
    assert "seed 4 to 5" in caption
    walks = rp.split(runs["adaptive sampling"], "seed")["4"]
    for walk in rp.split(walks, "epoch").values():
        assert walk["gap"][-1] < 0.5 < walk["gap"][0]
        assert abs(walk["test_error"][-1] - error) < 0.05


def test_without_cifar_one_sentence_says_what_to_do(tmp_path, cache, monkeypatch, capsys):
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    monkeypatch.setitem(rp.DATA, "cifar10", rp.DATA["cifar10"]._replace(mirrors=(url,)))

    def offline(*_):
        raise OSError("no network")

    monkeypatch.setattr(rp, "get", offline)
    assert (
        rp.main(["ji21:fig4", "apidopoulos22:fig1", "--quick", "--out", str(tmp_path / "out")]) == 1
    )
    out, err = capsys.readouterr()
    *_, sentence, count = err.splitlines()
    for part in (
        "ji21:fig4 not drawn: cifar10",
        url,
        str(cache),
        "cifar10/",
        "data_batch_1.bin and test_batch.bin",
    ):
        assert part in sentence
    assert count == "1 of 2 figures not drawn: ji21:fig4" and out.count("\n") == 1
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"apidopoulos22-fig1"}


@pytest.mark.dear
def test_the_quick_figure(small_cifar, tmp_path):
    out = tmp_path / "out"
    assert rp.main(["ji21:fig4", "--quick", "--no-progress", "--out", str(out)]) == 0
    table, caption = rp.read_table(out / "ji21-fig4.csv")
    assert caption.startswith("quick: CIFAR-10, the first 128 training images and 500 test images")
    exact = rp.split(table, "solver")["max_margin"]
    assert exact["seed"].tolist() == ["0"] * 2 + ["1"] * 2 + ["0"] * 2
    assert exact["epoch"].tolist() == [0, 8] * 3
    spread = re.search(r"known to within (\S+) of itself", caption)
    assert float(spread[1]) <= 1e-6
