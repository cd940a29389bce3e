"""Runs of every algorithm on every representation: run options, checkpoints, traces, callbacks, how a run ends."""

import contextlib
import itertools
import math
import pickle
import re
import tracemalloc
from fractions import Fraction

import naive
import numba
import numpy as np
import pytest
from instances import (
    CALLS,
    DRIVEN,
    EASY,
    ENDURING,
    EPS,
    EVERYWHERE,
    LOOPS,
    PLAIN,
    PLANTED,
    UNTIED,
    algorithm_of,
    check_raises,
    claims,
    driven,
    driven_loops,
    form,
    in_turn,
    rotate,
    run,
    same_result,
    same_rows,
    scale_of,
)

import fastmargin as fm

pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_algorithm_is_registered():
    """Generic tests run over CALLS; an algorithm without an entry there would be tested by none of them."""
    assert {*fm.ALGORITHMS, "winnow"} == {algorithm_of(name) for name in CALLS}
    # The twin of max_margin is an enumeration.
    assert {*fm.ALGORITHMS, "winnow"} - {"max_margin"} == set(naive.TWINS)
    assert all(
        fm.ALGORITHMS[name] is getattr(fm, name) and name in fm.__all__ for name in fm.ALGORITHMS
    )


def test_taking_turns_leaves_nothing_out():
    """Every instance comes up on matrices and on rows, and every call on each of its forms with others."""
    met = in_turn(EVERYWHERE, PLANTED, times=2).args[1]
    assert {(name, kind) for name, kind, _ in met} == set(EVERYWHERE) and len(set(met)) == len(met)
    assert {(kind, case) for _, kind, case in met} >= set(itertools.product(PLAIN, PLANTED))
    for name in CALLS:
        cases = [case for other, _, case in met if other == name]
        assert len(set(cases)) == len(cases) >= 4
    square = np.array(
        [row[2] for row in rotate("a, b, c", "abc", "def", range(3), crossed=2).args[1]]
    ).reshape(3, 3)
    assert all(sorted(line) == [0, 1, 2] for line in (*square, *square.T))
    others = {(b, c) for _, b, c in rotate("a, b, c", range(6), "de", "fgh").args[1]}
    assert others == set(itertools.product("de", "fgh"))


# ======================================================================================================
# CHECKPOINTS AND THE TRACE
# ======================================================================================================


@driven
def test_the_default_trace_has_16_rows_a_decade(name, kind):
    call = CALLS[name]
    for max_iter in (0, 1, 2, 137):
        result = run(name, form(kind, ENDURING), max_iter=max_iter)
        at = result.trace["iteration"]
        assert at[0] == 0 and at[-1] == result.n_iter and (np.diff(at) > 0).all()
        assert (np.diff(result.trace["seconds"]) >= 0).all()
        assert (np.diff(result.trace["products"]) > 0).all()
        assert 0.0 <= result.trace["seconds"][0]
        assert result.trace["seconds"][0] == 0.0 or call.start is None
        if call.cost:
            assert claims(name, len(ENDURING), result.trace["products"], at)
            assert result.n_iter == max_iter and result.status == "max_iter"
            assert (
                at[1:] <= 10 ** (1 / 16) * at[:-1] + 1
            ).all()  # 16 a decade, rounded, and no more
            assert len(at) == max_iter + 1 <= 3 or len(at) <= 3 + 16 * math.log10(max_iter)
        if name == "max_margin":
            assert np.array_equal(at, np.arange(result.n_iter + 1))
        last = result.trace[-1]
        assert (last["lower"], last["upper"]) == (result.lower, result.upper)
        assert result.iterates is None


@driven
def test_a_run_of_no_iterations_answers_its_start(name, kind):
    """The answer is the start, with its certificate."""
    result = run(name, form(kind, ENDURING), max_iter=0, keep_iterates=True, trace_at=[0, 3])
    assert (result.status, result.n_iter, len(result.trace)) == ("max_iter", 0, 1)
    assert np.array_equal(result.iterates, [result.alpha]) and result.lower <= result.upper


@pytest.mark.parametrize("name", [*fm.ALGORITHMS, "winnow"])
def test_every_algorithm_takes_its_problem_alone(name):
    """Whatever it needs has a default, which follows the scale: those that stop without a margin do, with the proof."""
    algorithm = getattr(fm, name)
    scale = 1e-3
    for Z, rho in (PLANTED["feasible"], PLANTED["simplex"]):
        result = (
            algorithm(scale * Z)
            if name == "winnow"
            else algorithm(fm.features(scale * Z, 1, normalize=None))
        )
        if name == "winnow":
            assert (result.status == "separated") == (rho > 0.0)
            continue
        assert result.lower <= scale * max(rho, 0.0) <= result.upper
        if rho < 0.0 and name in ("von_neumann", "frank_wolfe", "snkpvn", "isnkpvn"):
            assert result.status == "infeasible" and result.upper <= 1e-6 * scale


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_the_default_accuracy_follows_the_scale(scale):
    """Where p is not found exactly: it is shorter than 1e-6 sqrt(s), and not by much."""
    G = fm.features(scale * UNTIED["not separable"], 1, normalize=None)
    eps = 1e-6 * math.sqrt(scale_of(G))
    result = fm.von_neumann(G, max_iter=100_000)
    assert result.status == "infeasible" and 0.1 * eps < result.upper <= eps


@driven_loops
def test_a_row_of_the_trace_is_the_answer_of_a_run_that_ends_there(name, kind):
    """Row k of a long run is the answer of a run of k iterations, up to rounding, whatever else is traced."""
    G = form(kind, ENDURING)
    call = CALLS[name]
    at = [40, 3, 3, 0, 17, 400]
    seen = []
    long = run(name, G, max_iter=60, trace_at=at, keep_iterates=True, callback=seen.append)
    assert long.trace["iteration"].tolist() == [0, 3, 17, 40, 60]
    assert claims(name, len(ENDURING), long.trace["products"], long.trace["iteration"])
    for row, alpha, partial in zip(long.trace, long.iterates, seen, strict=True):
        short = run(name, G, max_iter=int(row["iteration"]))
        assert np.array_equal(short.alpha, alpha) and short.n_iter == row["iteration"]
        assert np.array_equal(short.p, partial.p)
        same_rows(name, row[None], short.trace[-1:], True)
        if not call.rows:
            again = fm.certificate(G, short.alpha, short.p)
            assert again == pytest.approx(
                (short.lower, short.upper), rel=1e-13, abs=1e-8 * (short.lower <= 0)
            )
            again = fm.certificate(
                G, alpha, partial.p
            )  # the row is about the p that the callback was given
            assert again == pytest.approx(
                (row["lower"], row["upper"]), rel=1e-8, abs=1e-7 * (row["lower"] <= 0)
            )
    assert np.array_equal(long.iterates[-1], long.alpha) and long.iterates.base is not long.alpha
    last = long._replace(trace=long.trace[-1:], iterates=None)
    for other in (
        range(61),
        np.array([60]),
        np.arange(0, 61, 7),
        np.arange(0, 61, 7, dtype=np.uint64),
        5,
        [],
        None,
        [1, 10, 1e2],
        np.array([3.0]),
    ):
        result = run(name, G, max_iter=60, trace_at=other)
        same_result(last, result._replace(trace=result.trace[-1:]))


@in_turn(
    [(name, kind) for name, kind in DRIVEN if name in LOOPS],
    ["feasible, odd n", "lopsided, shifted"],
)
def test_where_a_run_halts_does_not_depend_on_checkpoints(name, kind, case):
    G = form(kind, PLANTED[case][0])
    results = [run(name, G, max_iter=77, trace_at=at) for at in ([], range(78), None)]
    for other in results[1:]:
        # without a witness promised, ||p||_G = 0 is seen at checkpoints alone
        assert results[0].status == other.status and other.n_iter <= results[0].n_iter
        if CALLS[name].witness or results[0].status != "infeasible":
            assert results[0].n_iter == other.n_iter
            assert np.array_equal(results[0].alpha, other.alpha)
            assert np.array_equal(results[0].p, other.p)


# These have a number for each iteration that is allowed.
COUNTED = ("adaptive_sampling", "diagonal_descent", "inertial_diagonal_descent")


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in CALLS if algorithm_of(name) not in COUNTED),
        "norm_margin",
        "steepest_descent",
    ],
)
def test_nothing_is_made_for_iterations_that_are_not_reached(name):
    """A billion allowed, three taken: not even a byte for each."""
    Z, _ = PLANTED["feasible"]
    options = {"max_iter": 10**9, "callback": lambda partial: partial.n_iter >= 3}
    if name in CALLS:
        problem = (Z,) if CALLS[name].rows else (fm.features(Z, 1, normalize=None),)
        options = {**CALLS[name].own, **options}
    else:
        problem = (Z, "linf")
    algorithm = getattr(fm, algorithm_of(name))
    algorithm(*problem, **{**options, "max_iter": 3})
    for more in ({}, {"keep_iterates": True}, {"trace_at": [3, 10**8]}):
        tracemalloc.start()
        try:
            result = algorithm(*problem, **{**options, **more})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert result.n_iter < 10**8 and peak < 10**7, (result, peak)


def test_every_round_of_max_margin_is_a_row():
    Z, _ = PLANTED["feasible, n > 512"]
    long = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-12, keep_iterates=True)
    assert long.trace["iteration"].tolist() == list(range(long.n_iter + 1))
    for k in range(long.n_iter):
        short = fm.max_margin(fm.features(Z, 1, normalize=None), tol=1e-12, max_iter=k)
        assert short.n_iter == k
        assert short.status == "max_iter"
        assert np.array_equal(short.alpha, long.iterates[k])


@driven
def test_the_cuts_of_the_driver_do_not_matter(name, kind, monkeypatch):
    G = form(kind, ENDURING)
    plain = run(name, G, max_iter=80, keep_iterates=True)
    for tick in (0.0, 0.2, 1.0):  # pretend that every entry into the loop took this long
        clock = iter(tick * np.arange(10**6))
        monkeypatch.setattr(fm.time, "perf_counter", lambda clock=clock: next(clock))
        cut = run(name, G, max_iter=80, keep_iterates=True)
        same_result(cut, plain)
        assert np.array_equal(
            cut.trace[["products", "lower", "upper"]], plain.trace[["products", "lower", "upper"]]
        )
        if (
            tick == 1.0 and name in LOOPS
        ):  # one iteration per entry: the clock ticks once for each, and for a set-up
            seconds = cut.trace["seconds"] - cut.trace["seconds"][0]
            np.testing.assert_allclose(seconds, cut.trace["iteration"], rtol=1e-9)
            assert cut.trace["seconds"][0] == (1.0 if CALLS[name].start is None else 0.0)


@in_turn(DRIVEN, ["feasible", "opposite labels"])
def test_tol_stops_at_the_first_checkpoint_that_meets_it(name, kind, case):
    G = form(kind, PLANTED[case][0])
    call = CALLS[name]
    free = run(name, G, max_iter=100, trace_at=range(100), **({} if call.cost else {"tol": 1e-12}))
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = (free.trace["upper"] - free.trace["lower"]) / free.trace["upper"]
    gaps[~(free.trace["upper"] > 0.0)] = np.inf
    tol = max(float(np.sort(gaps)[len(gaps) // 2]), 1e-11) * (
        1 + 64 * EPS
    )  # met there however it is rounded
    if not np.isfinite(tol):
        return  # where upper <= 0, nothing is left to certify
    first = int(np.argmax(gaps <= tol))
    result = run(name, G, max_iter=100, tol=tol, trace_at=range(100))
    if free.status == "separated" and first == len(gaps) - 1:
        assert result.status == "separated"
    else:
        assert result.status == "certified" and result.upper - result.lower <= tol * result.upper
    # fresh products may be narrower than what the loop holds
    assert result.n_iter <= free.trace["iteration"][first]
    assert len(result.trace) <= first + 1 and (gaps[: len(result.trace) - 1] > tol).all()


# ======================================================================================================
# CALLBACKS
# ======================================================================================================


@in_turn(DRIVEN, ["opposite labels", "feasible, odd n"])
def test_callback_sees_every_checkpoint(name, kind, case):
    """Once, and the last one again if the run turns out to have ended there."""
    seen = {}
    calls = []

    def callback(partial):
        calls.append(partial.status)
        seen[partial.n_iter] = partial

    result = run(
        name, form(kind, PLANTED[case][0]), max_iter=50, callback=callback, keep_iterates=True
    )
    assert list(seen) == result.trace["iteration"].tolist()
    assert len(calls) <= len(seen) + 1
    assert calls == ["running"] * (len(calls) - 1) + [result.status]
    for k, partial in enumerate(seen.values()):
        assert isinstance(partial, fm.Result)
        assert len(partial.trace) == k + 1
        assert partial.iterates is None
        assert np.array_equal(partial.trace, result.trace[: k + 1])
        assert np.array_equal(partial.alpha, result.iterates[k])
        assert (partial.lower, partial.upper) == tuple(result.trace[["lower", "upper"]][k])
    last = seen[result.n_iter]
    assert np.array_equal(last.alpha, result.alpha) and np.array_equal(last.p, result.p)


@in_turn(DRIVEN, [KeyboardInterrupt, ZeroDivisionError])
def test_exceptions_of_the_callback_come_through(name, kind, case):
    calls = []

    def callback(partial):
        calls.append(partial.n_iter)
        if partial.n_iter >= 1:
            raise case

    with pytest.raises(case):
        run(name, form(kind, ENDURING), max_iter=50, callback=callback)
    assert calls == [0, 1]


@driven
def test_a_callback_that_returns_true_stops_the_run(name, kind):
    """True and NumPy's True; nothing else that counts as true.  What is returned is what the callback saw, but for the
    interval, which comes from fresh products."""
    G = form(kind, ENDURING)
    full = run(name, G, max_iter=30, keep_iterates=True)
    for at, true in itertools.product((0, 1), (True, np.True_)):
        seen = []
        result = run(
            name,
            G,
            max_iter=30,
            keep_iterates=True,
            callback=lambda partial, seen=seen, at=at, true=true: (
                seen.append(partial) or (true if partial.n_iter >= at else False)
            ),
        )
        if at < full.n_iter:
            assert (result.status, result.n_iter, len(result.trace), len(seen)) == (
                "stopped",
                at,
                at + 1,
                at + 1,
            )
        assert np.array_equal(result.alpha, full.iterates[at])
        assert np.array_equal(result.p, seen[-1].p)
        if full.status == "rounding" and at == full.n_iter:  # which shows after the callback
            continue
        assert seen[-1].status == ("running" if at < full.n_iter else full.status)
        assert np.array_equal(result.iterates, full.iterates[: at + 1])
        same_rows(name, full.trace[: at + 1], result.trace)
        assert result.trace[["lower", "upper"]][-1].tolist() == (result.lower, result.upper)
    for value in (1, "yes", None, np.False_):
        same_result(
            run(name, G, max_iter=5, callback=lambda partial, value=value: value),
            run(name, G, max_iter=5),
        )


@driven
def test_results_do_not_share_memory_with_the_run(name, kind):
    """Someone who overwrites what a callback is given does not disturb the run."""

    def vandal(partial):
        if partial.status == "running":
            partial.alpha[:] = partial.p[:] = np.nan
            partial.trace["lower"] = np.nan
            partial.trace["iteration"] = -7
            for array in partial.state[-1]:
                array[...] = -1

    for options in ({"trace_at": range(51)}, {"keep_iterates": True}):
        plain, disturbed = (
            run(name, form(kind, ENDURING), max_iter=50, callback=callback, **options)
            for callback in (None, vandal)
        )
        same_result(disturbed, plain)
        assert np.array_equal(
            disturbed.trace[["products", "lower", "upper"]],
            plain.trace[["products", "lower", "upper"]],
        )


def test_the_last_partial_result_is_not_the_result():
    last = []
    result = fm.momentum(fm.features(EASY, 1, normalize=None), max_iter=5, callback=last.append)
    for mine, theirs in zip(result[:2], last[-1][:2], strict=True):
        assert not np.shares_memory(mine, theirs)
    assert not np.shares_memory(result.trace, last[-1].trace)


# ======================================================================================================
# START
# ======================================================================================================


def but_for_the_clock(trace):
    return trace[["iteration", "products", "lower", "upper"]].tolist()


@driven
@pytest.mark.parametrize("case", ["opposite labels", "margin 1e-3", "lopsided, shifted"])
def test_a_run_is_resumed_bit_for_bit(name, kind, case):
    """T1 and then T2 iterations are T1 + T2, wherever the cut, and a start can be used again, or read from a file."""
    G = form(kind, PLANTED[case][0])
    whole = run(name, G, max_iter=60, trace_at=range(61), keep_iterates=True)
    for cut in {min(cut, max(whole.n_iter - 1, 0)) for cut in (0, 1, 17)}:
        first = run(name, G, max_iter=cut, trace_at=range(61))
        assert first.n_iter == cut
        for start in (first, pickle.loads(pickle.dumps(first))):
            second = run(
                name, G, max_iter=60 - cut, trace_at=range(61), keep_iterates=True, start=start
            )
            assert (second.status, second.n_iter) == (whole.status, whole.n_iter)
            assert np.array_equal(second.alpha, whole.alpha) and np.array_equal(second.p, whole.p)
            assert np.array_equal(second.iterates, whole.iterates[cut:])
            assert but_for_the_clock(second.trace) == but_for_the_clock(whole.trace[cut:])
            assert second.trace["seconds"][0] == first.trace["seconds"][-1]
            for mine, theirs in zip(second.state[-1], whole.state[-1], strict=True):
                assert np.array_equal(mine, theirs)


@in_turn(DRIVEN, ["feasible", "lopsided"])
def test_a_run_that_is_over_is_over(name, kind, case):
    """Of max_margin, a round that finds nothing to do is a round."""
    whole = run(name, form(kind, PLANTED[case][0]), max_iter=3000)
    again = run(name, form(kind, PLANTED[case][0]), max_iter=3000, start=whole)
    if whole.status == "max_iter":
        assert whole.n_iter == 3000 < again.n_iter
    else:
        assert again.status == whole.status
        assert again.n_iter <= whole.n_iter + (CALLS[name].cost is None)
        assert np.array_equal(again.alpha, whole.alpha) and np.array_equal(again.p, whole.p)


@driven
def test_an_interrupted_run_is_resumed_from_what_the_callback_saw(name, kind):
    G = form(kind, ENDURING)
    last = []

    def callback(partial):
        last.append(partial)
        if partial.n_iter >= 5:
            raise KeyboardInterrupt

    whole = run(name, G, max_iter=40)
    with contextlib.suppress(KeyboardInterrupt):
        run(name, G, max_iter=40, callback=callback)
    start = [partial for partial in last if partial.status == "running"][-1]
    resumed = run(name, G, max_iter=40 - start.n_iter, start=start)
    assert np.array_equal(resumed.alpha, whole.alpha) and np.array_equal(resumed.p, whole.p)
    assert resumed[2:6] == whole[2:6]


@driven_loops
def test_a_resumed_run_has_the_checkpoints_of_the_whole_run(name, kind):
    """16 a decade of all iterations, not of those of the call."""
    G = form(kind, ENDURING)
    start = run(name, G, max_iter=100)
    at = run(name, G, max_iter=50, start=start).trace["iteration"].tolist()
    assert at == [
        start.n_iter,
        *(k for k in run(name, G, max_iter=150).trace["iteration"] if k > start.n_iter),
    ]


@pytest.mark.parametrize(
    "name",
    [
        "von_neumann",
        "snkp, eps",
        "snkpvn",
        "isnkpvn",
        "isnkpvn, gamma 4",
        "isnkpvn, entropy",
        "momentum, eps",
    ],
)
def test_a_smaller_accuracy_takes_a_run_on(name):
    """What ended as infeasible goes on to the accuracy of the new call."""
    G = fm.features(PLANTED["lopsided"][0], 1, normalize=None)
    key = CALLS[name].witness
    start = run(name, G, max_iter=5000, **{key: 1e-2})
    again = run(name, G, max_iter=5000, **{key: 1e-2}, start=start)
    on = run(name, G, max_iter=5000, **{key: 1e-3}, start=start)
    assert start.status == again.status == on.status == "infeasible"
    assert again.n_iter == start.n_iter < on.n_iter
    assert on.upper <= 1e-3 < start.upper <= 1e-2
    if not name.startswith("isnkpvn"):  # whose calls depend on eps
        whole = run(name, G, max_iter=5000, **{key: 1e-3})
        np.testing.assert_allclose(
            on.p, whole.p, rtol=1e-9
        )  # products made to confirm an end replace recurrences
        assert on.n_iter == whole.n_iter


def test_a_smaller_tolerance_takes_a_run_on():
    G = fm.features(PLANTED["feasible, n > 512"][0], 1, normalize=None)
    start = fm.momentum(G, tol=0.3)
    whole = fm.momentum(G, tol=0.01, trace_at=range(1001))
    on = fm.momentum(G, tol=0.01, trace_at=range(1001), start=start)
    assert start.status == on.status == "certified" and start.n_iter < on.n_iter == whole.n_iter
    assert np.array_equal(on.alpha, whole.alpha)


@pytest.mark.parametrize("algorithm", [fm.diagonal_descent, fm.inertial_diagonal_descent])
def test_the_step_and_the_penalties_of_a_resumed_descent(algorithm):
    """The step is that of the start, found once, unless it is given; penalties go on from the iteration reached."""
    G = fm.features(EASY, 1, normalize=None)
    penalties = 1.0 / np.arange(1.0, 31.0)
    whole = algorithm(G, max_iter=30)
    for first in ({}, {"lam": penalties}, {"lam": lambda t: 1.0 / t}):
        start = algorithm(G, max_iter=10, **first)
        for rest in ({}, {"lam": penalties}):
            assert np.array_equal(algorithm(G, max_iter=20, start=start, **rest).alpha, whole.alpha)
    start = algorithm(G, max_iter=10, step=0.01)
    kept, given, other = (
        algorithm(G, max_iter=20, start=start, step=step).alpha for step in (None, 0.01, 0.02)
    )
    assert np.array_equal(kept, algorithm(G, max_iter=30, step=0.01).alpha)
    assert np.array_equal(given, kept)
    assert not np.array_equal(other, kept)
    check_raises(
        lambda: algorithm(G, max_iter=21, start=start, lam=penalties),
        ValueError,
        ["at least 31 values"],
    )


def test_a_start_of_another_run_is_refused():
    """Of another loop, another number of points, or without a state; not of another G of the same shape."""
    Z = PLANTED["small margin"][0]
    start = fm.momentum(Z @ Z.T, max_iter=3)
    for call in (
        lambda: fm.gradient_descent(Z @ Z.T, start=start),
        lambda: fm.snkp(Z @ Z.T, start=fm.snkpvn(Z @ Z.T, max_iter=3)),  # of one loop
        lambda: fm.momentum(Z[1:] @ Z[1:].T, start=start),
        lambda: fm.momentum(Z @ Z.T, start=start._replace(state=("", []))),
    ):
        check_raises(call, ValueError, ["start must be a Result of the same algorithm and shape"])
    assert fm.momentum(fm.features(Z, 1, normalize=None), max_iter=2, start=start).n_iter == 5


def test_a_loop_of_ones_own_goes_on():
    """Also one that a callback runs within a run of this module."""

    def own(**options):
        return drive(idle, (np.ones(2),), max_iter=2, **options)

    assert own(start=own()).n_iter == 4
    within = []
    whole = fm.snkp(np.eye(2), stop=None, max_iter=2, callback=lambda _: within.append(own()))
    assert own(start=within[0]).n_iter == 4
    assert fm.snkp(np.eye(2), stop=None, max_iter=2, start=whole).n_iter == 4


def test_an_array_that_grows_is_resumed():
    def loop(G, k, until, alpha, steps):
        while k < until:
            steps.resize(k + 1, refcheck=False)
            steps[k] = k
            k += 1
        return k

    def own(**options):
        state = (np.ones(2), np.zeros(0))
        return fm.drive(np.eye(2), loop, state, lambda a, _: (a, a), max_iter=3, **options)

    assert own(start=own()).state[1][1].tolist() == [0, 1, 2, 3, 4, 5]


def test_other_options_of_one_algorithm_take_a_run_on():
    """The rule of a perceptron, the prox of isnkpvn, the inertia of inertial_diagonal_descent, the loss."""
    G = fm.features(ENDURING, 1, normalize=None)
    for algorithm, options in (
        (fm.perceptron, {"rule": "worst"}),
        (fm.isnkpvn, {"prox": "entropy"}),
        (fm.inertial_diagonal_descent, {"restart": True, "accel": 4.0}),
        (fm.gradient_descent, {"loss": "logistic"}),
    ):
        start = algorithm(G, max_iter=3)
        assert algorithm(G, max_iter=0, start=start, **options).n_iter == start.n_iter


@pytest.mark.parametrize("algorithm", [fm.diagonal_descent, fm.inertial_diagonal_descent])
def test_a_step_given_on_the_way_stays(algorithm):
    """The default of a run with a start is the step of the start."""
    G = fm.features(ENDURING, 1, normalize=None)
    begun = algorithm(G, max_iter=3)
    given = algorithm(G, max_iter=2, start=begun, step=0.01)
    same_result(
        algorithm(G, max_iter=2, start=given),
        algorithm(G, max_iter=2, start=given, step=0.01),
    )


@pytest.mark.parametrize("off", [15.0, -15.0])
def test_what_a_loop_holds_may_be_off_by_16_roundings_an_iteration(off):
    """The interval of a checkpoint holds nevertheless, where one of its ends is the margin and the other is far."""
    k = 10**9
    error = off * 2.0**-53 * k
    best, other = np.array([0.5, 0.5]), np.array([0.99, 0.01])
    alpha, p = (best, other) if off > 0.0 else (other, best)
    state = (alpha, p, alpha + error, p + error)
    result = drive(idle, state, lambda *state: state, max_iter=2 * k, trace_at=[k])
    row = result.trace[1]
    assert row["iteration"] == k
    assert row["lower"] <= np.sqrt(0.5) <= row["upper"]


# ======================================================================================================
# HOW A RUN ENDS
# ======================================================================================================


ENDS = [  # iteration at which the loop halts, separates, tol, eps, interval, status, iterations
    (3, True, None, 0.0, [(-0.5, 1.0), (0.5, 1.0)], "separated", 3),
    (3, True, None, 0.0, (0.0, 1.0), "rounding", 3),
    (3, True, None, 0.2, (-0.1, 0.3), "rounding", 3),
    (3, False, None, 0.0, (0.5, 1.0), "rounding", 3),
    (3, False, None, 0.2, [(-0.5, 0.3), (-0.5, 0.2)], "infeasible", 3),
    (9, True, None, 0.0, (0.5, 1.0), "separated", 0),
    (9, False, None, 0.0, (0.5, 1.0), "max_iter", 5),
    (9, False, 0.6, 0.0, (0.5, 1.0), "certified", 0),
    (9, False, 0.4999, 0.0, (0.5, 1.0), "max_iter", 5),
    (9, False, None, 0.2, (-0.5, 0.2), "infeasible", 0),
    (9, False, None, 0.0, (-0.1, 0.0), "infeasible", 0),
    (9, False, None, lambda p: p[0], (-0.1, 0.5), "infeasible", 0),
    # where several hold
    (9, True, 0.6, 1.0, (0.5, 1.0), "separated", 0),
    (9, False, 0.6, 1.0, (0.5, 1.0), "infeasible", 0),
    (3, False, 0.6, 0.0, [(-0.5, 1.0), (0.5, 1.0)], "certified", 3),
]


def idle(G, k, until, *state):
    return until


def drive(loop, state, solution=lambda alpha: (alpha, alpha), G=None, **options):
    """`fm.drive` over two points, G being the identity unless it is given."""
    return fm.drive(np.eye(2) if G is None else G, loop, state, solution, **options)


@pytest.mark.parametrize("at, separates, tol, eps, interval, status, n_iter", ENDS)
def test_which_status_comes_first(at, separates, tol, eps, interval, status, n_iter):
    """What the interval proves; "rounding" where the loop halts, and even a precise one proves nothing."""

    def given(G, alpha, p, precise):
        ends = interval if isinstance(interval, tuple) else interval[int(reached[0] >= 3)]
        return fm.Bounds(*ends, 0.0)

    def loop(G, k, until, alpha):
        reached[0] = min(max(k, until if until <= at else at), until)
        return reached[0]

    for stop in (False, True):
        reached = [0]
        result = drive(
            loop,
            (np.ones(2),),
            max_iter=5,
            tol=tol,
            trace_at=range(6),
            callback=lambda partial, stop=stop: stop and partial.status != "running",
            interval=given,
            eps=eps,
            separates=separates,
        )
        assert (result.status, result.n_iter) == (status, n_iter)
        assert result.trace["iteration"].tolist() == list(range(n_iter + 1))


def test_rounding_ends_a_run_that_cannot_close_its_gap():
    """The gap as computed is closed, and what is left of it is rounding, by precise products, too."""
    asked = []

    def given(G, alpha, p, precise):
        asked.append(precise)
        return fm.Bounds(1.0 - 1e-3, 1.0, 1e-3)

    result = drive(idle, (np.ones(2),), max_iter=5, tol=1e-6, interval=given)
    assert (result.status, result.n_iter) == ("rounding", 0) and asked == [False, True]
    assert "rounding limits the relative gap to 0.001" in result.note
    asked.clear()
    assert drive(idle, (np.ones(2),), max_iter=2, tol=1e-2, interval=given).status == "certified"
    assert asked == [False]


def test_the_trace_and_the_result_are_made_of_what_drive_is_given():
    """products, solution, spent and interval are what the trace and the result are made of."""
    alpha = np.array([1.0, 3.0])
    p = np.array([0.5, 0.5])
    result = drive(
        idle,
        (alpha,),
        lambda a: (a, p),
        max_iter=4,
        trace_at=[2],
        spent=7.0,
        products=lambda k: 10.0 + k / 2,
        interval=lambda G, a, q, precise: fm.Bounds(a[1], a[1] + q[0], 0.0),
    )
    assert result.trace["products"].tolist() == [10.0, 11.0, 12.0]
    assert result.trace["iteration"].tolist() == [0, 2, 4]
    assert result.trace["seconds"][0] == 7.0 and (result.trace["seconds"] >= 7.0).all()
    assert (result.lower, result.upper) == (3.0, 3.5) and np.array_equal(result.p, p)
    assert not np.shares_memory(result.alpha, alpha) and not np.shares_memory(result.p, p)
    plain = drive(idle, (alpha,), max_iter=4)
    assert np.array_equal(plain.p, [0.25, 0.75])
    assert plain.trace["products"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (plain.lower, plain.upper) == fm.certificate(np.eye(2), alpha, plain.p)


@pytest.mark.parametrize("answer", [None, (3,), (3, 0), "a", -1, 99])
def test_what_a_loop_must_return(answer):
    check_raises(
        lambda: drive(lambda G, k, until, a: answer, (np.ones(2),), max_iter=3),
        ValueError,
        ["loop must return the iteration that it reached, from k = 0 to until = 0", repr(answer)],
    )


def test_a_forgotten_step_ends_the_run():
    """A loop that stays where it is has halted."""
    result = drive(lambda G, k, until, a: k, (np.ones(2),), max_iter=9)
    assert (result.status, result.n_iter, len(result.trace)) == ("rounding", 0, 1)


def test_what_a_solution_must_return():
    """Weights of mixed sign are no mixture: alpha / sum alpha would prove a false interval."""
    G = fm.features(np.array([[1.0, 0.5], [2.0, 0.5]]), 1, normalize=None)
    state = (np.array([2.0, -1.0]),)
    for solution in (lambda a: (a, a), lambda a: (a, np.array([1.5, -0.5]))):
        check_raises(
            lambda solution=solution: drive(idle, state, solution, G, max_iter=1),
            ValueError,
            ["must return p with weights of at least 0"],
        )
    assert drive(idle, state, lambda a: (a, np.full(2, 0.5)), G, max_iter=1).status == "max_iter"


def test_a_free_intercept_is_refused_unless_it_is_taken():
    G = fm.features([[1.0], [3.0]], [-1, 1], normalize=None, intercept="free")
    check_raises(
        lambda: drive(idle, (np.ones(2),), G=G, max_iter=1),
        ValueError,
        ['intercept="free"', "momentum"],
    )
    result = drive(idle, (np.ones(2),), G=G, max_iter=1, takes_free=True)
    assert result.bias == pytest.approx(-4.0) and result.lower == pytest.approx(1.0)


def test_iterates_that_overflow_raise():
    @numba.njit
    def loop(G, k, until, alpha):
        while k < until:
            alpha *= 1e200
            k += 1
        return k

    with pytest.raises(
        FloatingPointError,
        match=r"not finite at iteration \d+: they overflowed, or G was written to",
    ):
        drive(loop, (np.ones(2),), lambda alpha: (alpha, np.full(2, 0.5)), max_iter=10)


@in_turn(
    [(name, kind) for name, kind in DRIVEN if kind != "rows"], [{}, {"tol": 1e-9}, {"trace_at": []}]
)
def test_nan_written_into_g_during_a_run_is_told(name, kind, case):
    """By the callback of the first or of a later checkpoint, of one point or of all."""
    for at, points in itertools.product((0, 1), (3, slice(None))):
        G = form(kind, ENDURING.copy())
        ended = run(name, form(kind, ENDURING), max_iter=30, **case).n_iter

        def spoil(partial, G=G, at=at, points=points):
            if partial.n_iter >= at and kind == "features":
                G.store.rows.setflags(write=True)
                G.store.rows[points] = np.nan
            elif partial.n_iter >= at:
                matrix = G if kind == "dense" else G.store.K.store.matrix
                matrix.setflags(write=True)
                matrix[points] = matrix[:, points] = np.nan

        if at < ended and (at == 0 or case.get("trace_at") != []):
            with pytest.raises(
                FloatingPointError, match=r"not finite at iteration \d+: .* G was written to"
            ):
                run(name, G, max_iter=30, callback=spoil, **case)


def test_nan_among_the_margins_alone_is_told():
    """In a row of weight 0, which `max_margin` does not read for ||p||_G: lower stayed at -sqrt(s)."""
    rows = EASY.copy()

    def spoil(partial):
        rows[3, 1] = np.nan

    with pytest.raises(FloatingPointError, match="G was written to"):
        fm.max_margin(fm.features(rows, 1, normalize=None), callback=spoil)


# ======================================================================================================
# RESULT
# ======================================================================================================


@driven
def test_a_result_prints_on_one_line(name, kind):
    result = run(name, form(kind, EASY), max_iter=40)
    text = repr(result)
    assert text.startswith(f"Result({result.status!r}: ")
    assert text.endswith(")")
    assert "\n" not in text
    assert f"{result.n_iter} iteration" in text
    if result.status != "infeasible":
        below, above = map(Fraction, re.search(r"(\S+) <= rho <= ([^\s,]+)", text).groups())
        assert (
            below <= Fraction(result.lower) < Fraction(result.upper) <= above
        )  # as printed it holds, too
        assert (
            above - Fraction(result.upper) <= abs(above) / 10**5 >= Fraction(result.lower) - below
        )
    else:
        above = Fraction(re.search(r"no margin above (\S+)[,)]", text)[1])
        assert Fraction(result.upper) <= above <= Fraction(result.upper) * Fraction(11, 10)
    assert "rho" in text or result.lower <= 0.0
    assert f"n = {len(EASY)}" in text and f"{len(result.trace)} checkpoint" in text
    assert text == str(result) and "array" not in text
