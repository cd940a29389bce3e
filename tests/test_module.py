"""The module as a whole: its rooms, its documentation, its imports, and that no code it serves is stale."""

import ast
import contextlib
import decimal
import doctest
import importlib.util
import inspect
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import numba
import numpy as np
import pytest
from instances import CALLS, PLANTED, form, forms, meet, run

import fastmargin as fm

SOURCE = Path(fm.__file__)
README = SOURCE.parent / "README.md"
MANUAL = SOURCE.parent / "figures" / "MANUAL.md"
TREE = ast.parse(SOURCE.read_text(encoding="utf-8"))
PUBLIC = [name for name in dir(fm) if not name.startswith("__")]
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(fm, name))]
CLASSES = [name for name in PUBLIC if inspect.isclass(getattr(fm, name))]
ON_ROWS = ["winnow", "norm_margin", "steepest_descent"]  # other margins, of signed rows
ALGORITHMS = [*fm.ALGORITHMS, *ON_ROWS]


# ======================================================================================================
# ROOMS
# ======================================================================================================


def contents():
    """{(number, title): public names} as the docstring lists them."""
    lines = re.sub(r",\n {9,}", ", ", fm.__doc__.partition("\nContents")[2]).splitlines()[1:]
    pattern = r"    (\d+(?:\.\d+)?) +(\S+(?: \S+)*)(?: {2,}(.*))?"
    entries = [re.fullmatch(pattern, line) for line in lines if line]
    return {(entry[1], entry[2]): sorted(re.findall(r"\w+", entry[3] or "")) for entry in entries}


def banners():
    """{line: (number, title)}, in order."""
    lines = enumerate(SOURCE.read_text(encoding="utf-8").splitlines(), start=1)
    marks = {at: re.fullmatch(r"# (\d+(?:\.\d+)?) (.+)", line) for at, line in lines}
    return {at: mark.groups() for at, mark in marks.items() if mark}


def definitions():
    """[(names defined, node, room)] of the top level below the first banner, in order."""
    marks = banners()
    found = []
    for node in TREE.body:
        room = max((at for at in marks if at < node.lineno), default=None)
        names = [getattr(node, "name", "")]
        if isinstance(node, ast.Assign):
            parts = itertools.chain.from_iterable(map(ast.walk, node.targets))
            names = [part.id for part in parts if isinstance(part, ast.Name)]
        if room:
            found.append((names, node, marks[room]))
    return found


def test_every_public_name_stands_in_the_room_that_the_contents_say():
    listed = contents()
    assert list(listed) == list(banners().values())
    found = {room: [] for room in listed}
    for names, _, room in definitions():
        found[room] += [name for name in names if name and name[0] != "_"]
    assert {room: sorted(names) for room, names in found.items()} == listed
    assert sorted(itertools.chain.from_iterable(listed.values())) == sorted(PUBLIC)
    assert fm.__all__ == sorted(fm.__all__)


def own_names(node):
    """Arguments and variables of a function and of those in it."""
    parts = [part for part in ast.walk(node) if part is not node]
    found = {part.arg for part in parts if isinstance(part, ast.arg)}
    found |= {part.name for part in parts if isinstance(part, ast.FunctionDef)}
    names = [part for part in parts if isinstance(part, ast.Name)]
    return found | {part.id for part in names if isinstance(part.ctx, ast.Store)}


def test_dependencies_point_down_the_file():
    """What a room uses stands in it or above it; the rooms of G, which wrap each other, count as one."""
    order = {room: at for at, room in enumerate(banners().values())}
    last_of_g = max(at for room, at in order.items() if room[0].startswith("5."))
    levels = {room: last_of_g if room[0].startswith("5.") else at for room, at in order.items()}
    where = {name: levels[room] for names, _, room in definitions() for name in names}
    for names, node, room in definitions():
        loaded = {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
        }
        used = loaded - own_names(node)
        below = [name for name in used if where.get(name, -1) > levels[room]]
        assert not below, (names, below)


def test_every_proof_that_is_named_is_where_it_is_said_to_be():
    """A name in quotes before a document is that of one of its sections."""
    found = 0
    for source in [SOURCE, *Path(__file__).parent.glob("test_*.py")]:
        text = " ".join(source.read_text(encoding="utf-8").replace("# ", " ").split())
        for title, document in re.findall(r'"([^"]{5,60})" in (figures/\w+\.md)', text):
            proofs = (SOURCE.parent / document).read_text(encoding="utf-8")
            assert title in re.findall("^#+ (.*)", proofs, re.MULTILINE), (source.name, title)
            found += 1
    assert found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_the_same_run_options(name):
    """By name alone, with the same defaults: those of `drive`, but for max_iter and for two algorithms tol.  Others are
    refused as Python does."""
    algorithm = getattr(fm, name)
    options = typing.get_type_hints(fm.RunOptions)
    shared = inspect.signature(fm.drive).parameters
    hints = typing.get_type_hints(fm.drive)
    assert options == {option: hints[option] for option in options}
    first, *rest, last = inspect.signature(algorithm).parameters.values()
    given = (np.eye(2),)
    if rest[0].name == "norm":
        rest = rest[1:]
        given += ("l2",)
    assert first.name == ("Z" if name in ON_ROWS else "G") and last.name == "options"
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in rest)
    own = {parameter.name: parameter.default for parameter in rest}
    (described,) = typing.get_args(typing.get_type_hints(algorithm)["options"])
    assert own["max_iter"] > 0 and typing.get_type_hints(described).keys() | own >= options.keys()
    tol = 1e-6 if name in ("max_margin", "norm_margin") else shared["tol"].default
    assert own.get("tol", shared["tol"].default) == tol
    with pytest.raises(TypeError, match="keyword argument 'max_iterations'"):
        algorithm(*given, max_iterations=3)


# ======================================================================================================
# DOCUMENTATION
# ======================================================================================================


def sections(documented):
    """{section: text} of a docstring in numpydoc's format; "" is what stands before the first."""
    parts = re.split(r"^(.+)\n-{3,}\n", inspect.getdoc(documented), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(found, *titles):
    """The names that sections describe."""
    lines = "\n".join(found.get(title, "") for title in titles).splitlines()
    heads = [line.partition(" : ")[0] for line in lines if re.match(r"\S", line)]
    return [name.strip() for head in heads for name in head.split(",")]


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_what_is_documented_is_the_signature_with_an_example(name):
    """The parameters of a function, the fields of a tuple."""
    documented = getattr(fm, name)
    found = sections(documented)
    assert ">>> " in found["Examples"]
    if name in FUNCTIONS:
        parameters = inspect.signature(documented).parameters.values()
        stars = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
        wanted = [stars.get(parameter.kind, "") + parameter.name for parameter in parameters]
        assert entries(found, "Parameters", "Other Parameters") == wanted
    elif hasattr(documented, "_fields"):
        assert entries(found, "Attributes") == list(documented._fields)


def public_objects():
    """One of every public class, and what the module holds besides."""
    X, y = np.eye(40, 3) + 1.0, np.where(np.arange(40) < 20, 1, -1)
    G = fm.gram(X, y)
    result = fm.max_margin(fm.features(X, y), max_iter=3)
    yield from (G, fm.features(X, y), fm.lazy_gram(X, y, kernel="ntk"))
    yield from (fm.gram(X, y, intercept="free", ridge=np.arange(1.0, 41.0)), G.kernel, result)
    yield fm.pair_gram(fm.gram(X), np.arange(40) % 3, 3)
    yield fm.features(X, 1)
    yield from (fm.Witnesses(np.arange(40), np.ones(40), 0.0, True), fm.NORMS["l1"])
    yield from (fm.Norm(*5 * [len]), fm.MaxMarginClassifier("ntk"))
    yield G.with_ridge(1.0)


def test_every_repr_is_one_line():
    seen = set()
    for thing in public_objects():
        assert "\n" not in repr(thing) and len(repr(thing)) < 200, repr(thing)
        assert " at 0x" not in repr(thing), repr(thing)
        seen.update(kind.__name__ for kind in type(thing).__mro__)
    assert seen >= set(CLASSES) - {"Gram", "RunOptions", "Rounding", "Bounds"}


def test_the_examples_of_the_docstrings():
    tested = doctest.testmod(fm, extraglobs={"fm": fm})
    assert tested.attempted > 50 and tested.failed == 0


BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def assert_as_shown(printed, shown):
    """The words are the same, and numbers are equal to the digits shown; those of rounding's size, which differ from
    one processor to the next, to a factor of 10."""
    assert NUMBER.split(printed.strip()) == NUMBER.split(shown.strip()), printed
    for got, kept in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        unit = 10.0 ** decimal.Decimal(kept).as_tuple().exponent
        if 0.0 < abs(float(kept)) < 1e-7:
            unit = 18.0 * abs(float(kept))
            assert 0.1 <= float(got) / float(kept), printed
        assert abs(float(got) - float(kept)) <= 0.501 * unit, printed


def run_blocks(document):
    """Run the blocks one after the other, compare what they print with the text below: return what they define."""
    names = {}
    count = 0
    for block, shown in BLOCK.findall(document.read_text(encoding="utf-8")):
        count += 1
        # the blocks define classes, whose methods look up what the earlier blocks have defined
        peers = re.findall("^from (sklearn|scipy)", block, re.MULTILINE)
        if all(importlib.util.find_spec(peer) for peer in peers):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block, str(document), "exec"), names)
            if shown:
                assert_as_shown(printed.getvalue(), shown)
    assert 0 < count == document.read_text(encoding="utf-8").count("```python")
    return names


@pytest.fixture(scope="module")
def manual():
    return run_blocks(MANUAL)


def test_the_python_blocks_of_the_readme():
    """They print what the text says; a certified interval is not far from a narrower one."""
    names = run_blocks(README)
    assert all(shown for _, shown in BLOCK.findall(README.read_text(encoding="utf-8")))
    assert 0.0 < names["margin"] <= names["best"].upper  # of the network, and of any last layer
    precise = fm.max_margin(names["G"], tol=1e-9)
    assert names["result"].lower <= precise.upper and precise.lower <= names["result"].upper
    assert names["found"].strict and set(names["y"][names["found"].indices]) == {-1, 1}


def test_the_parts_of_ones_own_do_what_ours_do(manual):
    """A kernel, a loop, a representation and a norm, as the manual has them."""
    names = manual
    same = fm.max_margin(
        fm.gram(names["shifted_cosine"](names["X"], names["X"]), names["y"], kernel="precomputed")
    )
    assert names["ours"].lower == pytest.approx(same.lower, rel=1e-9)
    exact = fm.max_margin(names["G"])
    loop = names["heavy_ball_loop"]
    results = []
    for names["heavy_ball_loop"] in (loop, numba.njit(loop)):  # plain and compiled
        results.append(names["heavy_ball"](names["G"], max_iter=300))
        assert meet(results[-1], exact)
    assert results[0].lower == pytest.approx(results[1].lower, rel=1e-6)
    if "OperatorGram" in names:
        products = names["OperatorGram"](names["rows"])
        features = fm.features(names["rows"].astype(float), 1, normalize=None)
        for name in ("snkp", "momentum", "max_margin", "diagonal_descent"):
            single = fm.ALGORITHMS[name](products, max_iter=50, tol=0.01)
            double = fm.ALGORITHMS[name](features, max_iter=50, tol=0.01)
            assert single.status == double.status
            assert meet(single, double)
    # a pair is at most sqrt(2) times as long as its largest entry, and as long as it at least
    largest = fm.norm_margin(names["signed"], "linf")
    assert largest.lower / 2**0.5 <= names["largest"].upper
    assert names["largest"].lower <= largest.upper


def test_the_python_blocks_of_the_manual(manual):
    names = manual
    if "soft" in names:
        assert names["beside_it"].status == names["soft"].status == "certified"
    assert 0.8 * names["best"].lower < names["lower"] <= names["best"].upper
    exact = fm.max_margin(names["train"].with_ridge(0.5 / names["C"]), tol=1e-6)
    assert names["path"].status == exact.status == "certified"
    assert names["path"].lower <= exact.upper
    assert names["gap"][-1] < 0.2


# ======================================================================================================
# PROCESSES AND CACHES
# ======================================================================================================


def python(code, folder, timeout=None, **environment):
    """Run code in a new interpreter that sees only what is in ``folder``; its output.  A timeout is for deadlocks."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture
def alone(tmp_path):
    """A folder with a copy of the module and nothing else."""
    shutil.copy(SOURCE, tmp_path)
    return tmp_path


def test_import_compiles_nothing_and_needs_no_scipy(alone, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "sys.modules.update(scipy=None, sklearn=None)  # whoever imports them fails\n"
        "import fastmargin\n"
        "assert Path(fastmargin.__file__).parent == Path.cwd(), fastmargin.__file__\n"
    )
    python(code, alone, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_warning_from_below_a_callback_points_at_the_callback():
    X = [[0.0, 1.0], [1.0, 0.0], [4.0, 5.0], [7.0, 4.0]]

    def fit(partial):
        if partial.n_iter == 1:
            fm.MaxMarginClassifier("precomputed", tol=1e-16).fit(
                np.dot(X, np.transpose(X)), [0, 0, 1, 1]
            )

    with pytest.warns(UserWarning) as caught:
        fm.momentum(np.eye(2), max_iter=2, callback=fit)
    assert [warning.filename for warning in caught] == [__file__]
    assert caught[0].lineno == fit.__code__.co_firstlineno + 2


@pytest.mark.dear
def test_without_a_cache_folder_it_warns_once_and_works(alone, tmp_path):
    """A file stands where each of Numba's cache folders would be made, and HOME is unset."""
    (tmp_path / "file").touch()
    (alone / "__pycache__").touch()
    code = (
        "import os, warnings\nos.environ.pop('HOME', None)\n"
        "with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n"
        "    import numpy as np, fastmargin as fm\n"
        "    result = fm.momentum(fm.gram(np.eye(2), [1, -1]), max_iter=5)\n"
        "print(result.n_iter)\n"
        "print(*(f'{warning.category.__name__}: {warning.message}' for warning in caught), sep='\\n')\n"
        "print(*(warning.filename for warning in caught))"
    )
    n_iter, *warned, where = python(
        code,
        alone,
        NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"),
        XDG_CACHE_HOME=str(tmp_path / "file" / "cache"),
    ).splitlines()
    assert n_iter == "5" and len(warned) == 1 and where == "<string>"
    assert warned[0].startswith("RuntimeWarning") and "NUMBA_CACHE_DIR" in warned[0]


@pytest.mark.dear
def test_the_cache_is_filled_for_the_usual_calls(alone, tmp_path):
    """By `python -m fastmargin`, which says where; other processes then compile nothing."""
    folder = tmp_path / "cache"

    def found():
        return sorted((tmp_path / "cache").rglob("*.nbc"))

    code = "import runpy\nrunpy.run_module('fastmargin', run_name='__main__', alter_sys=True)"
    *steps, last = python(
        code, alone, NUMBA_CACHE_DIR=str(folder), PYTHONWARNINGS="error"
    ).splitlines()
    said = set(re.findall(r"\w+", " ".join(steps)))
    assert said.issuperset(fm.ALGORITHMS)
    filled = found()
    assert filled and all(str(path.parent) in last for path in filled)
    code = (
        "import numpy as np, fastmargin as fm\n"
        "for n in (30, 700):\n"
        "    X = np.random.default_rng(1).normal(size=(n, n)); y = np.where(X[:, 0] > 0, 1, -1)\n"
        "    for G in (fm.gram(X, y), fm.gram(X, y, kernel='poly', intercept=1.0), fm.features(X, y)):\n"
        "        for name, algorithm in fm.ALGORITHMS.items():\n"
        "            algorithm(G, max_iter=20)\n"
        "    fm.winnow(X * y[:, None], max_iter=20)\n"
        "    for kernel in ('rbf', 'linear', 'poly'):\n"
        "        for C in (1.0, np.inf):\n"
        "            for labels in (y, X[:, :4].argmax(axis=1)):\n"
        "                fm.MaxMarginClassifier(kernel, C=C).fit(X, labels).predict(X)\n"
    )
    python(code, alone, NUMBA_CACHE_DIR=str(folder))
    assert [path.name for path in found() if path not in filled] == []


@pytest.mark.dear
@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_threads_sleep_while_they_wait_unless_the_user_has_chosen(alone, chosen):
    """By what OpenMP says of itself as it is loaded.  Nothing of the choice stays in the environment."""
    code = (
        "import os, numpy as np\nbefore = dict(os.environ)\nimport fastmargin as fm\n"
        "fm.gram(np.eye(100), kernel='laplacian')\n"
        "assert os.environ == before\nimport numba\nprint(numba.threading_layer())"
    )
    waiting = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    environment = {name: value for name, value in os.environ.items() if name not in waiting}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=alone,
        capture_output=True,
        text=True,
        env={**environment, "OMP_DISPLAY_ENV": "VERBOSE", **chosen},
    )
    assert done.returncode == 0, done.stderr
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip(f"the threads of the layer {done.stdout.strip()} are not those of GNU's OpenMP")
    assert ("GOMP_SPINCOUNT = '0'" in done.stderr) == (not chosen)


PROCESSES = textwrap.dedent('''
    import hashlib, os, sys, threading
    import numba, numpy as np
    import fastmargin as fm

    @numba.njit
    def own(G, k, until, alpha, m):
        while k < until:
            fm.product(G, alpha, m)
            alpha[np.argmin(m)] += 1.0
            k += 1
        return k

    def answers():
        """What every parallel routine contributes to, of a size for threads and of one that is not worth them."""
        found = {}
        for n, d in ((31, 4), (1030, 500)):
            X, y = np.random.default_rng(0).normal(size=(n, d)) + 0.3, np.ones(n)
            grams = {kernel: fm.gram(X, y, kernel=kernel) for kernel in ("linear", "poly", "rbf", "laplacian")}
            found.update({(n, kernel): (G, fm.kernel_matrix(X, X[:3], kernel=kernel),
                                        G.decision_function(y, X[:3] + 0.1))
                          for kernel, G in grams.items()})
            for G in (grams["rbf"], fm.features(X, y)):
                for name in ("momentum", "gradient_descent"):
                    result = fm.ALGORITHMS[name](G, max_iter=20)
                    found[n, type(G.store).__name__, name] = result.alpha, result.p, result.lower, result.upper
            state = np.full(n, 1 / n), np.zeros(n)
            result = fm.drive(G, own, state, lambda alpha, m: (alpha, alpha), max_iter=20)
            found[n, "own"] = result.alpha, *fm.certificate(G, result.alpha, result.p)
        drawn = fm.adaptive_sampling(fm.features(np.ones((1 << 19, 1)), 1, normalize=None), max_iter=3)
        found["adaptive_sampling",] = drawn.alpha, drawn.p
        return {key: hashlib.sha1(b"".join(np.asarray(a).tobytes() for a in value)).hexdigest()
                for key, value in found.items()}

    def answers_of_threads(count):
        found = []
        threads = [threading.Thread(target=lambda: found.append(answers())) for _ in range(count)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        return found

    first = answers()
    for key, value in first.items(): print(*key, value)
    sys.stdout.flush()
    assert numba.threading_layer() == os.environ["NUMBA_THREADING_LAYER"]
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            try: os._exit(0 if [answers(), *answers_of_threads(1)] == 2 * [first] else 3)
            finally: os._exit(4)
        assert os.waitpid(child, 0)[1] == 0, "a forked child failed"
    assert answers_of_threads(2) == 2 * [first], "threads failed"
''')


@pytest.mark.dear
def test_children_and_threads_get_the_same_bits_from_a_cold_and_a_warm_cache(alone, tmp_path):
    """In a forked child OpenMP, and with two threads of Python at once the workqueue layer, used to end the process.
    Cold and warm caches, layers, one thread and several, parent, child and Python's threads: all agree to the last bit.
    """
    code = "import numba\ntry: numba.get_num_threads()\nexcept ValueError: print('missing')"
    layers = [
        layer
        for layer in ("workqueue", "omp", "tbb")
        if not python(code, alone, NUMBA_THREADING_LAYER=layer)
    ]
    assert layers[0] == "workqueue"  # Numba's own; the others depend on libraries
    cold, *others = (
        python(
            PROCESSES,
            alone,
            NUMBA_CACHE_DIR=str(tmp_path / "cache"),
            NUMBA_NUM_THREADS=threads,
            NUMBA_THREADING_LAYER=layer,
        ).splitlines()
        for layer, threads in itertools.product(layers[:1] + layers, "21")
    )
    assert len(cold) == 19 and all(other == cold for other in others)


@pytest.mark.dear
def test_every_algorithm_gives_the_same_bits_from_any_cache(alone, tmp_path):
    """Cold or warm, and whatever was compiled first.

    A sum that LLVM may reorder, in a function that it inlines here and there, once differed (SNKPVN, max_margin); and a
    loop from the cache once met a parallel product whose threads nobody had started, in the first, large problem.
    """
    code = textwrap.dedent("""
        import warnings, numpy as np, fastmargin as fm
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)
        X = rng.normal(size=(61, 5))
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=61) > 0, 1, -1)
        Z = np.round(32.0 * X * y[:, None])
        labels = np.arange(61) % 3
        rows = fm.features(Z, 1, normalize=None)
        large = rng.normal(size=(600, 5)) + [3, 0, 0, 0, 0]
        problems = [large @ large.T, Z @ Z.T, rows, fm.pair_gram(rows, labels, 3), fm.pair_gram(Z @ Z.T, labels, 3)]
        many = rng.normal(size=(500, 2))
        problems.append(fm.gram(many, np.where(many[:, 0] * many[:, 1] > 0.0, 1, -1)))
        for name, algorithm in list(fm.ALGORITHMS.items())[::{step}]:
            for G in problems:
                result = algorithm(G, max_iter=60)
                print(name, result.alpha.sum().hex(), result.p.sum().hex(), result.lower.hex(), result.upper.hex())
    """)
    cold, warm, backwards = (
        sorted(
            python(
                code.replace("{step}", step), alone, NUMBA_CACHE_DIR=str(tmp_path / folder)
            ).splitlines()
        )
        for folder, step in (("one", "1"), ("one", "1"), ("other", "-1"))
    )
    assert len(cold) == 6 * len(fm.ALGORITHMS) and cold == warm == backwards


@pytest.mark.dear
def test_an_operator_may_wait_for_another_thread_that_uses_the_module(alone):
    """Under the layer that serves one thread at a time, both once waited for each other for ever."""
    code = textwrap.dedent("""
        import threading, numba, numpy as np, fastmargin as fm
        Z = np.random.default_rng(0).normal(size=(600, 5)) + [3.0, 0.0, 0.0, 0.0, 0.0]

        class Busy(fm.Gram):
            unit = 2.0**-53
            n, d = Z.shape
            def _diagonal(self): return np.einsum("ij,ij->i", Z, Z)
            def _product(self, v):
                thread = threading.Thread(target=lambda: found.append(fm.momentum(Z @ Z.T, max_iter=2).lower))
                thread.start()
                thread.join()
                return Z @ (v @ Z)

        found = []
        G = Busy()
        threads = [threading.Thread(target=fm.momentum, args=(G,), kwargs={"max_iter": 5}) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        fm.perceptron(G, max_iter=5)
        last = threading.Thread(target=fm.momentum, args=(G,), kwargs={"max_iter": 5})  # nothing is left locked
        last.start()
        last.join()
        assert numba.threading_layer() == "workqueue"
        print(len(found), len(set(found)))
    """)
    calls, answers = map(
        int, python(code, alone, NUMBA_THREADING_LAYER="workqueue", timeout=300).split()
    )
    assert calls > 10 and answers == 1


def test_interpreted_runs_agree(alone):
    """Every loop and routine as Python runs it, without the compiler: the dispatch works there as well.

    The line search of a pairwise step makes ties, which rounding decides: of these the first step is compared."""
    steps = {name: 1 if call.noise == 1.0 else 7 for name, call in CALLS.items()}
    cases = ["feasible", "feasible, odd n", "shifted cross-polytope", "one point", "one dimension"]
    code = (
        "import numpy as np, fastmargin as fm\nfrom instances import CALLS, PLANTED, form, forms, run\n"
        f"for case in {cases}:\n    for name, most in {steps}.items():\n        for kind in forms(name):\n"
        "            result = run(name, form(kind, PLANTED[case][0]), max_iter=most)\n"
        "            print(repr(float(result.lower)), repr(float(result.upper)))"
    )
    shutil.copy(Path(__file__).parent / "instances.py", alone)
    lines = iter(python(code, alone, NUMBA_DISABLE_JIT="1").splitlines())
    for case in cases:
        for name, most in steps.items():
            for kind in forms(name):
                result = run(name, form(kind, PLANTED[case][0]), max_iter=most)
                got = [float(word) for word in next(lines).split()]
                np.testing.assert_allclose(got, [result.lower, result.upper], rtol=1e-9)


def test_no_two_compiled_functions_share_a_name_in_the_cache():
    """Processes that filled a cache at once mixed up the precisions of exp, which had one name."""
    compiled = {id(found): found for found in vars(fm).values() if hasattr(found, "py_func")}
    names = [
        (found.py_func.__qualname__, found.py_func.__code__.co_firstlineno)
        for found in compiled.values()
    ]
    assert len(names) > 90 and len(names) == len(set(names))
