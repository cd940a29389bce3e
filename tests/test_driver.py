"""Runs of every algorithm on every representation: run options, checkpoints, traces, callbacks, how a run ends."""

import contextlib
import functools
import itertools
import math
import pickle
import re
import tracemalloc
from fractions import Fraction

import exact
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
    Own,
    Products,
    Rows,
    Symmetric,
    algorithm_of,
    check_raises,
    claims,
    dense,
    driven,
    driven_loops,
    every_call,
    form,
    in_turn,
    mapped,
    operator,
    pairs,
    rotate,
    rows_of,
    run,
    same_result,
    same_rows,
    scale_of,
    sparse,
    threads,
    two_classes,
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
def test_default_trace(name, kind):
    call = CALLS[name]
    for max_iter in (0, 1, 2, 137):
        result = run(name, form(kind, ENDURING), max_iter=max_iter)
        at = result.trace["iteration"]
        assert at[0] == 0 and at[-1] == result.n_iter and (np.diff(at) > 0).all()
        assert (np.diff(result.trace["seconds"]) >= 0).all()
        assert (np.diff(result.trace["products"]) > -(call.cost == "kept")).all()
        assert 0.0 <= result.trace["seconds"][0] and (
            result.trace["seconds"][0] == 0.0 or call.start is None
        )
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
        assert result.iterates is None and result.trace.dtype == fm._TRACE


@driven
def test_no_iterations(name, kind):
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
        result = algorithm(scale * Z) if name == "winnow" else algorithm(fm.FeatureGram(scale * Z))
        if name == "winnow":
            assert (result.status == "separated") == (rho > 0.0)
            continue
        assert result.lower <= scale * max(rho, 0.0) <= result.upper
        if rho < 0.0 and name in ("von_neumann", "frank_wolfe", "snkpvn", "isnkpvn"):
            assert result.status == "infeasible" and result.upper <= 1e-6 * scale


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_the_default_accuracy_follows_the_scale(scale):
    """Where p is not found exactly: it is shorter than 1e-6 sqrt(s), and not by much."""
    G = fm.FeatureGram(scale * UNTIED["not separable"])
    eps = 1e-6 * math.sqrt(scale_of(G))
    result = fm.von_neumann(G, max_iter=100_000)
    assert result.status == "infeasible" and 0.1 * eps < result.upper <= eps


@driven_loops
def test_trace_at_and_iterates(name, kind):
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
        same_p = np.array_equal(short.p, partial.p)
        assert same_p or (call.held == "move" and partial.status == "running")
        same_rows(name, row[None], short.trace[-1:], same_p)
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
            assert np.array_equal(results[0].alpha, other.alpha) and np.array_equal(
                results[0].p, other.p
            )


@pytest.mark.parametrize("name", [*CALLS, "norm_margin", "steepest_descent"])
def test_nothing_is_made_for_iterations_that_are_not_reached(name):
    """A billion allowed, three taken: not even a byte for each."""
    Z, _ = PLANTED["feasible"]
    options = {"max_iter": 10**9, "callback": lambda partial: partial.n_iter >= 3}
    if name in CALLS:
        problem = (Z,) if CALLS[name].rows else (fm.FeatureGram(Z),)
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


@pytest.mark.parametrize("name", fm.ALGORITHMS)
def test_a_large_bound_changes_nothing(name):
    """A run that ends by itself is the same whatever it might have taken."""
    G = fm.FeatureGram(PLANTED["uneven"][0])
    one, two = (fm.ALGORITHMS[name](G, max_iter=most, tol=0.9) for most in (10**4, 10**9))
    assert one.status in ("separated", "certified")
    same_result(one, two)


def test_max_margin_rounds_are_rows():
    Z, _ = PLANTED["feasible, n > 512"]
    long = fm.max_margin(fm.FeatureGram(Z), tol=1e-12, keep_iterates=True)
    assert long.trace["iteration"].tolist() == list(range(long.n_iter + 1))
    for k in range(long.n_iter):
        short = fm.max_margin(fm.FeatureGram(Z), tol=1e-12, max_iter=k)
        assert (
            short.n_iter == k
            and short.status == "max_iter"
            and np.array_equal(short.alpha, long.iterates[k])
        )


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
def test_tol_stops_at_the_first_iteration_that_meets_it(name, kind, case):
    """A checkpoint or, where the loop holds an interval, any."""
    G = form(kind, PLANTED[case][0])
    call = CALLS[name]
    free = run(name, G, max_iter=100, trace_at=range(100), **({} if call.cost else {"tol": 1e-12}))
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = (free.trace["upper"] - free.trace["lower"]) / free.trace["upper"]
    gaps[~(free.trace["upper"] > 0.0)] = np.inf
    tol = max(float(np.sort(gaps)[len(gaps) // 2]), 1e-11) * (
        1 + 4 * EPS
    )  # met there however it is rounded
    if not np.isfinite(tol):
        return  # where upper <= 0, nothing is left to certify
    first = int(np.argmax(gaps <= tol))
    result = run(name, G, max_iter=100, tol=tol, trace_at=range(100))
    if free.status == "separated" and first == len(gaps) - 1:
        assert result.status == "separated"
    else:
        assert result.status == "certified" and result.upper - result.lower <= tol * result.upper
    assert result.n_iter == free.trace["iteration"][first]
    assert len(result.trace) == first + 1 and (gaps[:first] > tol).all()
    if call.held:
        seldom = run(name, G, max_iter=100, tol=tol, trace_at=[])
        assert len(seldom.trace) <= 2
        same_result(seldom._replace(trace=None), result._replace(trace=None))


# ======================================================================================================
# CALLBACKS
# ======================================================================================================


@in_turn(DRIVEN, ["opposite labels", "feasible, odd n"])
def test_callback_sees_every_checkpoint(name, kind, case):
    seen = []
    result = run(
        name, form(kind, PLANTED[case][0]), max_iter=50, callback=seen.append, keep_iterates=True
    )
    assert [partial.n_iter for partial in seen] == result.trace["iteration"].tolist()
    assert [partial.status for partial in seen] == ["running"] * (len(seen) - 1) + [result.status]
    for k, partial in enumerate(seen):
        assert (
            isinstance(partial, fm.Result)
            and len(partial.trace) == k + 1
            and partial.iterates is None
        )
        assert np.array_equal(partial.trace, result.trace[: k + 1])
        assert np.array_equal(partial.alpha, result.iterates[k])
        assert (partial.lower, partial.upper) == tuple(result.trace[["lower", "upper"]][k])
    assert np.array_equal(seen[-1].alpha, result.alpha) and np.array_equal(seen[-1].p, result.p)


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
        assert np.array_equal(result.alpha, full.iterates[at]) and np.array_equal(
            result.p, seen[-1].p
        )
        assert seen[-1].status == ("running" if at < full.n_iter else full.status)
        assert np.array_equal(result.iterates, full.iterates[: at + 1])
        same_rows(name, full.trace[: at + 1], result.trace)
        assert result.trace[["lower", "upper"]][-1].tolist() == (result.lower, result.upper)
    for value in (
        1,
        "yes",
        [True],
        np.ones(1, dtype=bool),
        np.int64(1),
        1.0,
        object(),
        None,
        False,
        np.False_,
    ):
        same_result(
            run(name, G, max_iter=5, callback=lambda partial, value=value: value),
            run(name, G, max_iter=5),
        )


@in_turn(DRIVEN, ["feasible", "lopsided, shifted"])
def test_a_final_status_wins_over_a_callback(name, kind, case):
    """Where a run ends anyway, for whatever reason, True at that checkpoint changes nothing."""
    G = form(kind, PLANTED[case][0])
    for max_iter in (0, 12):
        plain = run(name, G, max_iter=max_iter)
        assert plain.status != "running"
        same_result(
            run(name, G, max_iter=max_iter, callback=lambda partial: partial.status != "running"),
            plain,
        )
        again = run(
            name,
            G,
            max_iter=max_iter,
            callback=lambda partial, last=plain.n_iter: partial.n_iter >= last,
        )
        same_result(again, plain)


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
    result = fm.momentum(fm.FeatureGram(EASY), max_iter=5, callback=last.append)
    for mine, theirs in zip(result[:2], last[-1][:2], strict=True):
        assert not np.shares_memory(mine, theirs)
    assert not np.shares_memory(result.trace, last[-1].trace)


def test_the_cost_of_tracing_is_linear():
    """All partial results together take memory in proportion to the number of checkpoints; a trace of their own for
    each would take its square."""
    G = fm.FeatureGram(np.array([[1.0, 0.2], [0.1, 1.0]]))
    kept = {}
    fm.momentum(G, max_iter=3)
    for rows in (250, 500, 1000, 2000):
        seen = []
        tracemalloc.start()
        try:
            fm.momentum(G, max_iter=rows, trace_at=range(rows + 1), callback=seen.append)
            kept[rows] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(seen) == rows + 1
    assert kept[2000] <= 2.3 * kept[1000] <= 2.3**2 * kept[500] <= 2.3**3 * kept[250], kept


@pytest.mark.parametrize("name", [name for name in CALLS if CALLS[name].held])
def test_a_callback_is_given_the_points_that_were_bounded(name):
    """In exact arithmetic, at every checkpoint: the margin of alpha and the norm of p are in the interval, whether it
    comes from what the loop reports or from products; after a start, too."""

    faults = []
    looks = []

    def look(gram, partial):
        low, high = exact.exact_interval(gram, partial.alpha, partial.p)
        lower = exact.signed_square(Fraction(float(partial.lower)))
        upper = exact.signed_square(Fraction(float(partial.upper)))
        faults.extend([partial.n_iter] * (high > upper or (low is not None and low < lower)))
        looks.append(partial.n_iter)

    for case in ("feasible, odd n", "lopsided, shifted", "opposite labels", "copies"):
        Z, _ = PLANTED[case]
        matrix = dense(Z)
        entries = [[Fraction(float(entry)) for entry in row] for row in matrix]
        for G, gram in ((fm.FeatureGram(Z), exact.of_rows(Z)), (matrix, exact.gram_of(entries))):
            options = {"callback": functools.partial(look, gram), "trace_at": range(1000)}
            start = run(name, G, max_iter=17, **options)
            run(name, G, max_iter=20, tol=1e-3, start=start, **options)
    assert not faults and len(looks) > 20


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
        assert again.status == whole.status and again.n_iter <= whole.n_iter + (
            CALLS[name].cost is None
        )
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


@driven
def test_an_interrupt_brings_what_is_certified(name, kind):
    """Of the weights that the run has come to, by fresh products, wherever the loop was."""
    G = form(kind, ENDURING)
    seen = []

    def callback(partial):
        seen.append(partial)
        if partial.n_iter >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupt:
        run(name, G, max_iter=40, callback=callback)
    (result,) = interrupt.value.args
    assert (
        result.status == "stopped"
        and result.n_iter == seen[-1].n_iter == result.trace["iteration"][-1]
    )
    assert np.array_equal(result.alpha, seen[-1].alpha) and np.array_equal(result.p, seen[-1].p)
    if name != "winnow":
        lower, upper = fm.certificate(G, result.alpha, result.p)
        slack = 1e-9 * max(abs(lower), upper)
        assert abs(result.lower - lower) <= slack and abs(result.upper - upper) <= slack


@pytest.mark.parametrize("entry", [1, 4, 6])
@pytest.mark.parametrize(
    "name", ["momentum", "snkp, on", "nkp, on", "batch_perceptron", "inertial_diagonal_descent"]
)
def test_an_interrupt_that_comes_while_compiled_code_runs(name, entry, monkeypatch):
    """It is raised when that has returned, before its answer has a name: n_iter is that of the arrays all the same."""
    G = fm.FeatureGram(ENDURING)
    entries = []
    keep_answer = fm._keep_answer

    def interrupted(*args):
        keep_answer(*args)
        entries.append(args)
        if len(entries) == entry + 1:  # the first compiles
            raise KeyboardInterrupt

    monkeypatch.setattr(fm, "_keep_answer", interrupted)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        run(name, G, max_iter=200, trace_at=[])
    monkeypatch.undo()
    (result,) = interrupt.value.args
    whole = run(name, G, max_iter=result.n_iter + 9, keep_iterates=True, trace_at=[result.n_iter])
    assert result.n_iter >= entry and np.array_equal(result.alpha, whole.iterates[-2])
    assert np.array_equal(run(name, G, max_iter=9, start=result).alpha, whole.alpha)


class Interrupted(Own):
    """Rows, of which one product is interrupted."""

    def __init__(self, Z, at):
        super().__init__(Z)
        self.at = at
        self.count = 0

    def margins(self, w, m):
        self.count += 1
        if self.count == self.at:
            raise KeyboardInterrupt
        super().margins(w, m)


@pytest.mark.parametrize("at", [10, 21])
@pytest.mark.parametrize(
    "name", ["momentum", "snkp, on", "nkp, on", "inertial_diagonal_descent", "subspace_perceptron"]
)
def test_an_interrupt_within_an_iteration(name, at):
    """A loop of Python source has changed a part of its state: the Result is that of the last entry, and no start."""
    with pytest.raises(KeyboardInterrupt) as interrupt:
        run(name, Interrupted(ENDURING, at), max_iter=200, trace_at=[])
    (result,) = interrupt.value.args
    G = Interrupted(ENDURING, 0)
    assert np.array_equal(result.alpha, run(name, G, max_iter=result.n_iter).alpha)
    if result.state[-1] is None:
        check_raises(
            lambda: run(name, G, max_iter=9, start=result),
            ValueError,
            ["interrupted within an iteration"],
        )
    else:  # during a certificate
        whole = run(name, G, max_iter=result.n_iter + 9)
        assert np.array_equal(run(name, G, max_iter=9, start=result).alpha, whole.alpha)
    assert result.state[-1] is None or name == "inertial_diagonal_descent"


@driven_loops
def test_default_checkpoints_of_a_resumed_run(name, kind):
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
    G = fm.FeatureGram(PLANTED["lopsided"][0])
    key = CALLS[name].witness
    start = run(name, G, max_iter=5000, **{key: 1e-2})
    again = run(name, G, max_iter=5000, **{key: 1e-2}, start=start)
    on = run(name, G, max_iter=5000, **{key: 1e-3}, start=start)
    assert (
        start.status == again.status == on.status == "infeasible"
        and again.n_iter == start.n_iter < on.n_iter
    )
    assert on.upper <= 1e-3 < start.upper <= 1e-2
    if not name.startswith("isnkpvn"):  # whose calls depend on eps
        whole = run(name, G, max_iter=5000, **{key: 1e-3})
        np.testing.assert_allclose(
            on.p, whole.p, rtol=1e-9
        )  # products made to confirm an end replace recurrences
        assert on.n_iter == whole.n_iter


def test_a_smaller_tolerance_takes_a_run_on():
    G = fm.FeatureGram(PLANTED["feasible, n > 512"][0])
    start = fm.momentum(G, tol=0.3)
    whole = fm.momentum(G, tol=0.01, trace_at=range(1001))
    on = fm.momentum(G, tol=0.01, trace_at=range(1001), start=start)
    assert start.status == on.status == "certified" and start.n_iter < on.n_iter == whole.n_iter
    assert np.array_equal(on.alpha, whole.alpha)


@pytest.mark.parametrize("algorithm", [fm.diagonal_descent, fm.inertial_diagonal_descent])
def test_the_step_and_the_penalties_of_a_resumed_descent(algorithm):
    """The step is that of the start, found once, unless it is given; penalties go on from the iteration reached."""
    G = fm.FeatureGram(EASY)
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
    assert np.array_equal(kept, algorithm(G, max_iter=30, step=0.01).alpha) and np.array_equal(
        given, kept
    )
    assert not np.array_equal(other, kept)
    check_raises(
        lambda: algorithm(G, max_iter=21, start=start, lam=penalties),
        ValueError,
        ["each of 31 iterations"],
    )


def test_a_start_of_another_run_is_refused():
    Z = PLANTED["small margin"][0]
    start = fm.momentum(Z @ Z.T, max_iter=3)
    other = [
        lambda: fm.snkp(Z @ Z.T, start=start),
        lambda: fm.momentum(fm.FeatureGram(Z), start=start),
        lambda: fm.momentum(Z[1:] @ Z[1:].T, start=start),
        lambda: fm.momentum(2.0 * Z @ Z.T, start=start),
        lambda: fm.momentum(
            fm.FeatureGram(Z[:, 1:]), start=fm.momentum(fm.FeatureGram(Z), max_iter=3)
        ),
    ]
    for call in other:
        check_raises(
            call,
            ValueError,
            ["start must be a Result of the same algorithm on the same G", "momentum_loop"],
        )


# Calls by the loop that they share, and whether it takes a G with a free intercept.
SHARED = [
    ["perceptron", "perceptron, worst", "nkp", "nkp, on"],
    ["snkp, on", "snkpvn", "isnkpvn", "isnkpvn, entropy"],
    ["gradient_descent", "normalized_gradient_descent"],
    ["diagonal_descent", "inertial_diagonal_descent"],
]


def loop_of(name):
    return run(name, fm.FeatureGram(ENDURING), max_iter=0).state[1]


def test_the_calls_that_share_a_loop_are_known():
    """The pairs below are all that there are."""
    algorithms = {}
    for name in CALLS:
        if not CALLS[name].rows:
            algorithms.setdefault(loop_of(name), set()).add(algorithm_of(name))
    shared = [names for names in algorithms.values() if len(names) > 1]
    known = [{algorithm_of(name) for name in names} for names in SHARED]
    assert sorted(map(sorted, shared)) == sorted(map(sorted, known))


@pytest.mark.parametrize(
    "first, second",
    [
        (first, second)
        for names in SHARED
        for first, second in itertools.permutations(names, 2)
        if algorithm_of(first) != algorithm_of(second)
    ],
)
def test_a_start_of_another_algorithm_with_the_same_loop_is_refused(first, second):
    """From a whole run, from what a callback sees, and from what an interrupt brings."""
    G = fm.FeatureGram(ENDURING)
    assert loop_of(first) == loop_of(second)
    seen = []
    whole = run(first, G, max_iter=3, callback=seen.append)
    for start in (whole, seen[0], pickle.loads(pickle.dumps(whole))):
        check_raises(
            lambda start=start: run(second, G, max_iter=3, start=start),
            ValueError,
            [
                "start must be a Result of the same algorithm",
                f"'{algorithm_of(first)}'",
                f"'{algorithm_of(second)}'",
            ],
        )
        assert run(first, G, max_iter=3, start=start).n_iter == start.n_iter + 3


def test_other_options_of_one_algorithm_take_a_run_on():
    """The rule of a perceptron, the prox of isnkpvn, the inertia of inertial_diagonal_descent, the loss."""
    G = fm.FeatureGram(ENDURING)
    for algorithm, options in (
        (fm.perceptron, {"rule": "worst"}),
        (fm.isnkpvn, {"prox": "entropy"}),
        (fm.inertial_diagonal_descent, {"restart": True, "accel": 4.0}),
        (fm.gradient_descent, {"loss": "logistic"}),
        (fm.frank_wolfe, {"variant": "away"}),
    ):
        start = algorithm(G, max_iter=3)
        assert algorithm(G, max_iter=0, start=start, **options).n_iter == start.n_iter


def test_loops_of_ones_own_are_known_by_their_names_and_by_that_of_the_algorithm():
    """A callback may run one within a run of this module, and does not take over its name."""

    def step(G, k, until, alpha):
        return until, fm.RUNNING

    def own(**options):
        return fm.drive(fm.prepare(np.eye(2), 2, **options), step, (np.ones(2),))

    assert own(start=own()).n_iter == 4
    assert own(start=own(algorithm="one"), algorithm="one").n_iter == 4
    for first, second in (("one", "another"), ("one", None), (None, "one")):
        check_raises(
            lambda first=first, second=second: own(start=own(algorithm=first), algorithm=second),
            ValueError,
            ["start must be a Result of the same algorithm"],
        )
    within = []
    whole = fm.snkp(np.eye(2), stop=None, max_iter=2, callback=lambda _: within.append(own()))
    assert own(start=within[0]).n_iter == 4
    assert fm.snkp(np.eye(2), stop=None, max_iter=2, start=whole).n_iter == 4
    check_raises(lambda: fm.snkp(np.eye(2), algorithm="snkpvn"), TypeError, ["'algorithm'"])


def test_a_start_of_another_version_is_refused():
    """Its state has other entries."""
    start = fm.snkp(np.eye(2), max_iter=1)
    older = start._replace(state=start.state[1:])
    check_raises(lambda: fm.snkp(np.eye(2), start=older), ValueError, ["this version"])


def turned(Z):
    """Other rows of the same G, in other coordinates."""
    return Z @ np.linalg.qr(np.random.default_rng(5).normal(size=(Z.shape[1], Z.shape[1])))[0]


@pytest.mark.parametrize(
    "make",
    [
        dense,
        fm.FeatureGram,
        sparse,
        mapped,
        pairs,
        operator,
        lambda Z: fm.lazy_gram(Z, np.where(np.arange(len(Z)) % 2, 1, -1)),
        lambda Z: Products(Symmetric(dense(Z))),
        lambda Z: fm.RidgeGram(operator(Z), 1),
        lambda Z: fm.pair_gram(operator(Z), np.zeros(len(Z)), 2),
    ],
)
def test_a_start_of_another_g_of_the_same_shape_and_scale_is_refused(make):
    """Such as that of another kernel.  Rows count by themselves, as the state may hold their combinations."""
    Z = rows_of(60, 4)
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    start = fm.momentum(make(Z), max_iter=3)
    others = [
        Z[::-1].copy(),
        np.vstack((Z[:59], -Z[59:]))[np.argsort(np.random.default_rng(0).random(60))],
    ]
    if isinstance(make(Z), fm.FeatureGram):
        others.append(turned(Z))
    for other in others:
        check_raises(
            lambda other=other: fm.momentum(make(other), start=start),
            ValueError,
            [
                "start must be a Result of the same algorithm on the same G",
                "and entries of G differ",
            ],
        )
    with threads(2):
        assert fm.momentum(make(Z), max_iter=2, start=start).n_iter == 5


@pytest.mark.parametrize(
    "make",
    [
        dense,
        fm.FeatureGram,
        sparse,
        mapped,
        pairs,
        operator,
        lambda Z: fm.lazy_gram(Z, np.where(np.arange(len(Z)) % 2, 1, -1), gamma=1.0),
        lambda Z: fm.lazy_gram(Z, kernel="poly", normalize=None, gamma=1.0).signed(
            np.where(np.arange(len(Z)) % 2, 1, -1)
        ),
        lambda Z: fm.RidgeGram(fm.FeatureGram(Z), 1e-15 * (Z**2).sum()),
        lambda Z: fm.RidgeGram(dense(Z), 1e-15 * (Z**2).sum()),
        lambda Z: fm.FreeGram(dense(Z), np.where(np.arange(len(Z)) % 2, 1, -1)),
        lambda Z: Products(Symmetric(dense(Z))),
        lambda Z: fm.pair_gram(fm.FeatureGram(Z), np.arange(len(Z)) % 3, 3),
        lambda Z: fm.pair_gram(operator(Z), np.zeros(len(Z)), 2),
    ],
)
@pytest.mark.parametrize("longest", [1.0, 1e10])
def test_one_point_that_moved_is_noticed(make, longest):
    """Anywhere, also where it keeps its length, and next to a point that is much longer."""
    Z = rows_of(60, 4)
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    Z[3] *= longest
    G = fm.prepare(make(Z), 0, free_intercept=True).G
    if longest > 1.0 and (G.access == "products" or isinstance(G, fm.RidgeGram)):
        pytest.skip(
            "an operator errs by as much at all points, and a ridge is far longer than the others"
        )
    start = fm.momentum(make(Z), max_iter=3)
    assert fm.momentum(make(Z.copy()), max_iter=2, start=start).n_iter == 5
    for i in (0, 1, 31, 58, 59):
        longer = Z.copy()
        longer[i] *= 1.0001
        longer[i] += 1e-4  # which a kernel of directions sees
        turned_by_itself = Z.copy()
        turned_by_itself[i] = np.roll(Z[i], 1)
        for other in (longer, turned_by_itself):
            check_raises(
                lambda other=other: fm.momentum(make(other), max_iter=2, start=start),
                ValueError,
                ["and entries of G differ"],
            )


def test_labels_of_a_free_intercept_and_a_ridge_are_noticed():
    """They are no entries of G off the diagonal."""
    Z = rows_of(60, 4)
    y = np.where(np.arange(60) % 2, 1, -1)
    base = fm.FeatureGram(Z)
    start = fm.momentum(fm.FreeGram(base, y), max_iter=3)
    others = [base, fm.FreeGram(base, y[::-1].copy())]
    for other in others:
        check_raises(
            lambda other=other: fm.momentum(other, max_iter=2, start=start),
            ValueError,
            ["and entries of G differ"],
        )
    short = int(base.diagonal().argmin())
    ridge = np.zeros(60)
    ridge[0 if short != 0 else 1] = 1e-3
    twin = np.roll(ridge, 2)
    start = fm.momentum(fm.RidgeGram(base, ridge), max_iter=3)
    check_raises(
        lambda: fm.momentum(fm.RidgeGram(base, twin), max_iter=2, start=start),
        ValueError,
        ["and entries of G differ"],
    )


def test_a_g_that_differs_by_rounding_alone_is_the_same():
    """As one made on another machine."""
    Z = rows_of(60, 4)
    start = fm.momentum(dense(Z), max_iter=3)
    jitter = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 60))
    noise = 1e-15 * dense(Z) * (jitter + jitter.T)
    np.fill_diagonal(noise, 0.0)
    assert fm.momentum(dense(Z) + noise, max_iter=2, start=start).n_iter == 5


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17])
@pytest.mark.parametrize("make", [dense, fm.FeatureGram, sparse, pairs, operator])
def test_few_points_are_known_again(make, n):
    """And rows of zeros."""
    Z = rows_of(n, 3)
    Z[n // 2] = 0.0 if n > 1 else 1.0
    start = fm.momentum(make(Z), max_iter=2)
    assert fm.momentum(make(Z), max_iter=2, start=start).n_iter == start.n_iter + 2


def test_the_marks_of_g_take_a_column(monkeypatch):
    """Of a kernel on demand one column, and the block of 16 points."""
    n = 400
    G = fm.lazy_gram(rows_of(n, 3), np.where(np.arange(n) % 2, 1, -1))
    block = fm.Kernel.block
    evaluated = []

    def counting(*args):
        values = block(*args)
        evaluated.append(values.size)
        return values

    monkeypatch.setattr(fm.Kernel, "block", counting)
    fm._marks(G)
    assert n <= sum(evaluated) <= n + 16 * 16


def test_two_kernels_of_unit_diagonal_are_told_apart():
    X = rows_of(40, 3)
    y = np.repeat([1, -1], 20)
    start = fm.snkp(fm.gram(X, y), stop=None, max_iter=5)
    for kernel in ({"kernel": "laplacian"}, {"gamma": 0.5}, {"gamma": 1.0001 / (3.0 * X.var())}):
        check_raises(
            lambda kernel=kernel: fm.snkp(fm.gram(X, y, **kernel), start=start),
            ValueError,
            ["entries of G"],
        )


def test_a_run_tells_an_operator_from_another_by_one_call():
    class Counting(Rows):
        def matvec(self, w):
            calls.append("matvec")
            return super().matvec(w)

        def rmatvec(self, v):
            calls.append("rmatvec")
            return super().rmatvec(v)

    calls = []
    Z = rows_of(60, 4)
    G = fm.prepare(fm.RidgeGram(Products(Counting(Z)), 1.0), 1).G
    calls.clear()
    fm._marks(G)
    assert calls == ["matvec"]


def test_the_state_of_a_loop_consists_of_arrays():
    check_raises(
        lambda: fm.drive(fm.prepare(np.eye(2), 3), stub(fm.RUNNING), (np.ones(2), 0.5)),
        TypeError,
        ["state", "arrays", "0.5", "parameters"],
    )


# ======================================================================================================
# RUN OPTIONS
# ======================================================================================================

OPTIONS = [  # bad run options, exception, words of the message
    ({"max_iter": -1}, ValueError, ["max_iter", "-1"]),
    ({"max_iter": 2.5}, TypeError, ["max_iter", "2.5"]),
    ({"max_iter": "a"}, TypeError, ["max_iter", "'a'"]),
    ({"max_iter": None}, TypeError, ["max_iter", "None"]),
    ({"max_iter": True}, ValueError, ["max_iter", "True"]),
    ({"max_iter": 2**70}, ValueError, ["max_iter", "2**53"]),
    ({"tol": -1.0}, ValueError, ["tol", "-1"]),
    ({"tol": 0.0}, ValueError, ["tol", "0"]),
    ({"tol": np.nan}, ValueError, ["tol", "nan"]),
    ({"tol": np.inf}, ValueError, ["tol", "inf"]),
    ({"tol": "a"}, TypeError, ["tol", "'a'"]),
    ({"trace_at": [1, -2]}, ValueError, ["trace_at", "-2"]),
    ({"trace_at": [1, 1.5]}, TypeError, ["trace_at", "1.5"]),
    ({"trace_at": "ab"}, TypeError, ["trace_at"]),
    ({"trace_at": np.ma.ones(2)}, TypeError, ["masked"]),
    ({"callback": 3}, TypeError, ["callback", "callable", "3"]),
    ({"callback": "f"}, TypeError, ["callback", "'f'"]),
    ({"callback": False}, TypeError, ["callback", "False"]),
    ({"start": 3}, TypeError, ["start", "Result", "int"]),
    ({"start": np.eye(3)}, TypeError, ["start", "ndarray"]),
]


class Untouchable(fm.Representation):
    """A representation that must not be asked anything."""

    def checked(self, *_):
        raise AssertionError("G was looked at")

    shape = diagonal = rounding = restrict = dense = lift = margins = add_column = checked


@pytest.mark.parametrize("options, error, words", OPTIONS, ids=[str(o[0]) for o in OPTIONS])
def test_bad_options_are_refused_before_anything_is_computed(options, error, words):
    check_raises(lambda: fm.prepare(Untouchable(), **{"max_iter": 5, **options}), error, words)


@every_call
def test_bad_options_compile_nothing(name, monkeypatch):
    """Nor are loops entered that are compiled already."""
    monkeypatch.setattr(fm, "drive", lambda *_, **__: pytest.fail("something was computed"))
    for options, error, words in OPTIONS:
        check_raises(lambda options=options: run(name, np.eye(3), **options), error, words)


def test_prepare_keeps_what_it_checked():
    def callback(partial):
        pass

    given = fm.prepare(
        np.diag([1.0, 4.0]), 7, tol=0.5, trace_at=[2, 2, 90], keep_iterates=1, callback=callback
    )
    assert isinstance(given, fm.Run) and isinstance(given.G, fm.DenseGram) and given.scale == 4.0
    assert given.checkpoints.tolist() == [0, 2, 7] and given.tol == 0.5 and given.start is None
    assert given.keep_iterates is True and given.callback is callback
    features = fm.prepare(fm.FeatureGram([[1, 2]]), np.int64(3))
    assert isinstance(features.G, fm.FeatureGram) and features.G.rows.dtype == np.float64
    assert (
        features.checkpoints.tolist() == [0, 1, 2, 3]
        and features.tol is None
        and features.callback is None
    )


# ======================================================================================================
# HOW A RUN ENDS
# ======================================================================================================


def stub(flag, at=3):
    """A loop that does nothing, and halts with a flag, unless that is RUNNING, after so many iterations."""

    def loop(G, k, until, alpha):
        return (at, flag) if until >= at and flag != fm.RUNNING else (until, fm.RUNNING)

    return loop


ENDS = [  # flag of the loop at iteration 3, tol, eps, interval, status, iterations
    (fm.SEPARATED, None, 0.0, (0.5, 1.0), "separated", 3),
    (fm.SEPARATED, None, 0.0, (0.0, 1.0), "rounding", 3),
    (fm.SEPARATED, None, 0.2, (-0.1, 0.2), "rounding", 3),
    (fm.INFEASIBLE, None, 0.2, (-0.5, 0.2), "infeasible", 3),
    (fm.INFEASIBLE, None, 0.2, (-0.5, 0.3), "rounding", 3),
    (fm.INFEASIBLE, None, 0.0, (-0.5, 1.0), "rounding", 3),
    (fm.EXHAUSTED, None, 0.0, (0.5, 1.0), "rounding", 3),
    (fm.EXHAUSTED, None, 0.2, (-0.5, 0.2), "infeasible", 3),
    (fm.RUNNING, None, 0.0, (0.5, 1.0), "max_iter", 5),
    (fm.RUNNING, 0.6, 0.0, (0.5, 1.0), "certified", 0),
    (fm.RUNNING, 0.4999, 0.0, (0.5, 1.0), "max_iter", 5),
    (fm.RUNNING, None, 0.2, (-0.5, 0.2), "max_iter", 5),
    (fm.RUNNING, None, 0.0, (-0.1, 0.0), "infeasible", 0),
    # at iteration 3, where loop and interval both have something to say (tol is met from there on)
    (fm.SEPARATED, 0.6, 0.0, [(-0.5, 1.0), (0.5, 1.0)], "separated", 3),
    (fm.INFEASIBLE, 0.6, 0.0, [(-0.5, 1.0), (0.5, 1.0)], "certified", 3),
    (fm.INFEASIBLE, 0.6, 1.0, [(-0.5, 1.0), (0.5, 1.0)], "infeasible", 3),
    (fm.EXHAUSTED, 0.6, 0.0, [(-0.5, 1.0), (0.5, 1.0)], "certified", 3),
]


@pytest.mark.parametrize("flag, tol, eps, interval, status, n_iter", ENDS)
def test_which_status_comes_first(flag, tol, eps, interval, status, n_iter):
    """What the interval proves; "rounding" where the loop says something that even a precise one does not prove."""

    def given(G, scale, alpha, p, precise):
        return (*(interval if isinstance(interval, tuple) else interval[int(reached[0] >= 3)]), 0.0)

    def loop(G, k, until, alpha):
        reached[0], flag_ = stub(flag)(G, k, until, alpha)
        return reached[0], flag_

    for stop in (False, True):
        reached = [0]
        setting = fm.prepare(
            np.eye(2),
            5,
            tol=tol,
            trace_at=range(6),
            callback=lambda partial, stop=stop: stop and partial.status != "running",
        )
        result = fm.drive(setting, loop, (np.zeros(2),), interval=given, eps=eps)
        assert (result.status, result.n_iter) == (status, n_iter)
        assert result.trace["iteration"].tolist() == list(range(n_iter + 1))


@pytest.mark.parametrize("tol, n_iter, status", [(0.3, 3, "certified"), (0.05, 9, "max_iter")])
def test_a_loop_that_says_certified_is_believed_where_the_interval_proves_it(tol, n_iter, status):
    """Else it is sent on, and leaves no row."""
    asked = []

    def loop(G, k, until, alpha):
        if k < until:
            alpha[0] = (
                k + 1
            )  # the loop says so at every iteration; the interval meets 0.3 from the third on
        return min(k + 1, until), fm.CERTIFIED

    def interval(G, scale, alpha, p, precise):
        asked.append(int(alpha[0]))
        return 1.0 - 1.0 / (1.0 + alpha[0]), 1.0, 0.0

    result = fm.drive(
        fm.prepare(np.eye(2), 9, tol=tol, trace_at=[6]),
        loop,
        (np.array([0.0, 1.0]),),
        interval=interval,
    )
    assert (result.status, result.n_iter) == (status, n_iter) and result.lower == 1.0 - 1.0 / (
        n_iter + 1
    )
    assert result.trace["iteration"].tolist() == ([0, 3] if status == "certified" else [0, 6, 9])
    assert sorted(set(asked)) == list(range(n_iter + 1))


def test_an_interval_that_the_loop_reports_makes_the_rows_of_the_trace():
    """But for the last, where rounding makes more than a hundredth of it or of upper, or where it would end the run."""
    fresh = []

    def loop(G, k, until, alpha, report):
        """min_i (G alpha)_i, ||p||_G^2 and reach of each iteration; the other numbers are 1."""
        least, dual, reach = {
            1: (0.1, 1.0, 1.0),
            2: (0.2, 1.0, 1e13),
            3: (-0.3, 0.16, 1.0),
            4: (0.4, np.nan, 1.0),
            5: (0.95, 1.0, 1.0),
            6: (-1.0, 1.0, 1e13),
        }.get(until, (0.6, 1.0, 1.0))
        if until:
            report[:6] = least, 1.0, 1.0, dual, 1.0, reach
        alpha[0] = until
        return until, fm.RUNNING

    def interval(G, scale, alpha, p, precise):
        fresh.append(int(alpha[0]))
        return 0.05 * alpha[0], 2.0, 0.0

    report = np.zeros(7)
    result = fm.drive(
        fm.prepare(np.eye(2), 7, tol=0.06, trace_at=range(8)),
        loop,
        (np.array([0.0, 1.0]), report),
        interval=interval,
        report=report,
        eps=0.5,
    )
    assert fresh == [0, 2, 3, 4, 5, 6, 7, 7]  # the last, where tol is not met, precisely too
    assert result.trace["lower"].tolist() == pytest.approx(
        [0.0, 0.1, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35]
    )
    assert result.trace["upper"].tolist() == pytest.approx(
        [2.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0], rel=1e-12
    )
    assert (result.status, result.lower, result.upper) == ("max_iter", pytest.approx(0.35), 2.0)


def test_what_momentum_reports_over_rows_is_as_narrow_as_a_certificate():
    """Its squares are those of coordinates: no room is left for sums of n terms."""
    Z = rows_of(20_000, 3)
    seen = []
    Z[:, 0] = np.abs(Z[:, 0]) + 1.0
    fm.momentum(
        fm.FeatureGram(Z),
        max_iter=4,
        trace_at=[2],
        callback=lambda partial: seen.append(partial) and None,
    )
    assert seen[1].n_iter == 2
    lower, _ = fm.certificate(fm.FeatureGram(Z), seen[1].alpha, seen[1].p)
    s = (Z**2).sum(axis=1).max()
    assert 0.0 <= lower - seen[1].lower <= len(Z) * 2.0**-53 * s / lower


@pytest.mark.parametrize(
    "name", [name for name in LOOPS if CALLS[name].held and CALLS[name].cost != "product"]
)
def test_a_matrix_that_is_not_quite_symmetric_is_averaged(name):
    A = dense(ENDURING)
    A[1, 0] = np.nextafter(A[1, 0], 9.0)
    one, two = (run(name, G, max_iter=12, trace_at=range(13)) for G in (A, 0.5 * (A + A.T)))
    same_result(one, two)


def test_a_premature_claim_halves_the_gap_at_which_the_loop_halts():
    targets = []

    def loop(G, k, until, alpha, report):
        targets.append(report[6])
        return min(k + 1, until), fm.CERTIFIED if k < until else fm.RUNNING

    report = np.zeros(7)
    fm.drive(
        fm.prepare(np.eye(2), 3, tol=0.5, trace_at=[]),
        loop,
        (np.array([0.0, 1.0]), report),
        report=report,
        interval=lambda *_: (0.0, 1.0, 0.0),
    )
    assert targets == [0.5, 0.5, 0.25, 0.125]


def test_options_of_drive():
    """products, solution, spent and interval are what the trace and the result are made of."""
    alpha = np.array([1.0, 3.0])
    p = np.array([0.5, 0.5])
    result = fm.drive(
        fm.prepare(np.eye(2), 4, trace_at=[2]),
        stub(fm.RUNNING),
        (alpha,),
        lambda a: (a, p),
        spent=7.0,
        products=lambda k: 10.0 + k / 2,
        interval=lambda G, s, a, q, precise: (a[1], a[1] + q[0], 0.0),
    )
    assert result.trace["products"].tolist() == [10.0, 11.0, 12.0] and result.trace[
        "iteration"
    ].tolist() == [0, 2, 4]
    assert result.trace["seconds"][0] == 7.0 and (result.trace["seconds"] >= 7.0).all()
    assert (result.lower, result.upper) == (3.0, 3.5) and np.array_equal(result.p, p)
    assert not np.shares_memory(result.alpha, alpha) and not np.shares_memory(result.p, p)
    plain = fm.drive(fm.prepare(np.eye(2), 4), stub(fm.RUNNING), (alpha,))
    assert np.array_equal(plain.p, [0.25, 0.75]) and plain.trace["products"].tolist() == [
        0.0,
        1.0,
        2.0,
        3.0,
        4.0,
    ]
    assert (plain.lower, plain.upper) == fm.certificate(np.eye(2), alpha, plain.p)


def test_parameters_of_an_entry():
    """A callable is asked before each entry, for what lies between: from one iteration on to the next, not beyond."""
    entries = []

    def loop(G, k, until, alpha, numbers, constant):
        assert constant == 7.0 and numbers.tolist() == list(range(k, until))
        alpha[0] += numbers.sum()
        return until, fm.RUNNING

    def parameters(k, until):
        entries.append((k, until))
        return np.arange(k, until), 7.0

    setting = fm.prepare(np.eye(2), 100, trace_at=[10])
    result = fm.drive(setting, loop, (np.ones(2),), parameters=parameters)
    assert result.alpha[0] == 1.0 + sum(range(100)) and entries[0] == (0, 0)
    assert [k for k, _ in entries[1:]] == [until for _, until in entries[:-1]]
    assert {10, 100} <= {until for _, until in entries}


@pytest.mark.parametrize(
    "answer", [None, 3, (3,), (1, 2, 3), (3, True), (3, 7), (3, "separated"), ("a", 0)]
)
def test_what_a_loop_must_return(answer):
    check_raises(
        lambda: fm.drive(fm.prepare(np.eye(2), 3), lambda G, k, until, a: answer, (np.ones(2),)),
        TypeError,
        ["a loop must return (k, flag)", repr(answer)],
    )


@pytest.mark.parametrize("step", [0, 5])
def test_a_loop_goes_where_it_is_sent(step):
    """Else a forgotten k += 1 would never end."""
    check_raises(
        lambda: fm.drive(
            fm.prepare(np.eye(2), 7), lambda G, k, until, a: (k + step, fm.RUNNING), (np.ones(2),)
        ),
        ValueError,
        ["a loop sent from iteration 0"],
    )


@pytest.mark.parametrize("stuck", [0, 3])
def test_a_loop_that_only_says_certified_is_refused(stuck):
    """It used to be sent on for ever."""

    def certain(G, k, until, alpha):
        return min(until, max(k, stuck)), fm.CERTIFIED if until >= stuck else fm.RUNNING

    check_raises(
        lambda: fm.drive(
            fm.prepare(np.diag([1.0, 9.0]), 9, tol=1e-9, trace_at=[]), certain, (np.ones(2),)
        ),
        ValueError,
        ["the loop ", "certain says CERTIFIED at iteration", str(stuck), "must advance"],
    )


def test_what_a_solution_must_return():
    """Weights of mixed sign are no mixture: alpha / sum alpha would prove a false interval."""

    def drive(*solution, alpha=(2.0, -1.0)):
        G = fm.FeatureGram(np.array([[1.0, 0.5], [2.0, 0.5]]))
        return fm.drive(fm.prepare(G, 1), stub(fm.RUNNING), (np.array(alpha),), *solution)

    for solution in ((), (lambda a: (a, np.zeros(2)),), (lambda a: (a, np.array([1.5, -0.5])),)):
        check_raises(
            lambda solution=solution: drive(*solution),
            ValueError,
            ["p must have weights of at least 0"],
        )
    assert drive(lambda a: (a, np.array([0.5, 0.5]))).status == "max_iter"


def test_what_drive_refuses():
    run_ = fm.prepare(np.eye(2), 3)
    state = (np.ones(2),)
    for arguments in (
        (np.eye(2), stub(fm.RUNNING), state),
        (run_, None, state),
        (run_, stub(fm.RUNNING), np.ones(2)),
    ):
        check_raises(
            lambda arguments=arguments: fm.drive(*arguments),
            TypeError,
            ["drive takes the Run that prepare"],
        )


def test_a_solution_that_divides_by_zero_is_no_overflow():
    def loop(G, k, until, alpha, q):
        return until, fm.RUNNING

    def shares(alpha, q):
        with np.errstate(invalid="ignore"):
            return alpha, q / q.sum()

    run = fm.prepare(np.eye(2), 10)
    check_raises(
        lambda: fm.drive(run, loop, (np.ones(2), np.zeros(2)), shares),
        ValueError,
        ["the p", "solution(*state)", "0/0", "iteration 0"],
    )


def test_iterates_that_overflow_raise():
    @numba.njit
    def loop(G, k, until, alpha):
        while k < until:
            alpha *= 1e200
            k += 1
        return k, fm.RUNNING

    with pytest.raises(
        FloatingPointError,
        match=r"not finite at iteration \d+: they overflowed, or G was written to",
    ):
        fm.drive(
            fm.prepare(np.eye(2), 10), loop, (np.ones(2),), lambda alpha: (alpha, np.full(2, 0.5))
        )


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
                G.rows.setflags(write=True)
                G.rows[points] = np.nan
            elif partial.n_iter >= at:
                matrix = G if kind == "dense" else G.K.matrix
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
        fm.max_margin(fm.FeatureGram(rows), callback=spoil)


# ======================================================================================================
# RESULT
# ======================================================================================================


@driven
def test_a_result_prints_on_one_line(name, kind):
    result = run(name, form(kind, EASY), max_iter=40)
    text = repr(result)
    assert (
        text.startswith(f"Result({result.status!r}: ") and text.endswith(")") and "\n" not in text
    )
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
    assert ("separable" in text) == (
        result.lower > 0.0 and result.status not in ("certified", "separated")
    )
    assert f"n = {len(EASY)}" in text and f"{len(result.trace)} checkpoint" in text
    assert text == str(result) and "array" not in text


def test_what_a_result_prints():
    trace = np.zeros(3, dtype=fm._TRACE)
    result = fm.Result(np.zeros(4), np.zeros(4), 0.4, 0.5, "stopped", 17, trace, None, ())
    assert repr(result) == (
        "Result('stopped': 0.4 <= rho <= 0.5, relative gap 0.2, separable, 17 iterations, n = 4, "
        "3 checkpoints)"
    )
    one = result._replace(lower=-1.0, upper=0.0, trace=trace[:1])
    assert repr(one).endswith(
        "-1 <= rho <= 0, relative gap undefined, 17 iterations, n = 4, 1 checkpoint)"
    )


def test_what_a_result_prints_where_there_is_no_margin():
    trace = np.zeros(1, dtype=fm._TRACE)
    result = fm.Result(np.zeros(4), np.zeros(4), -0.5, 0.123, "infeasible", 1, trace, None, ())
    assert (
        repr(result)
        == "Result('infeasible': no margin above 0.13, 1 iteration, n = 4, 1 checkpoint)"
    )
    assert "no margin above 0.13, separable: rho >= 0.01, 1 it" in repr(
        result._replace(lower=0.01000001)
    )
    assert "'rounding': 0.01 <= rho <= 0.123, relative gap 0.92, separable, " in repr(
        result._replace(lower=0.01000001, status="rounding")
    )


@pytest.mark.parametrize("name", [*fm.ALGORITHMS, "winnow"])
def test_points_and_labels_are_no_problem_yet(name):
    """The commonest mistake: an algorithm takes G, which `gram` and `features` make of X and y."""
    X, y = two_classes(10, 3, 3.0)
    with pytest.raises(TypeError, match=r"build G first, by gram\(X, y\) or features\(X, y\)"):
        getattr(fm, name)(X, y)
    if name != "winnow":
        with pytest.raises(ValueError, match=r"shape \(10, 3\).*gram\(X, y\) or features\(X, y\)"):
            getattr(fm, name)(X)
