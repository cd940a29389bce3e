"""The module as a whole: its rooms, its documentation, its imports, and that no code it serves is stale."""

import ast
import contextlib
import decimal
import doctest
import functools
import importlib.util
import inspect
import io
import itertools
import os
import pydoc
import re
import shutil
import subprocess
import sys
import textwrap
import time
import typing
from pathlib import Path

import numba
import numpy as np
import pytest
from instances import CALLS, PLANTED, form, forms, run

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
    """{number: (title, public names)} as the docstring lists them."""
    lines = re.sub(r",\n {9,}", ", ", fm.__doc__.partition("\nContents")[2]).splitlines()[1:]
    entries = [
        re.fullmatch(r"    (\d+(?:\.\d+)?) +(\S+(?: \S+)*)(?: {2,}(.*))?", line)
        for line in lines
        if line
    ]
    assert all(entries), lines
    return {entry[1]: (entry[2], entry[3].split(", ") if entry[3] else []) for entry in entries}


def banners():
    """[(line, number, title)] of the banners, ruled above and below."""
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    found = []
    for k in range(1, len(lines) - 1):
        match = re.fullmatch(r"# (\d+(?:\.\d+)?) (.+)", lines[k])
        rule = "# " + ("-" if match and "." in match[1] else "=") * 102
        if match and lines[k - 1] == lines[k + 1] == rule:
            found.append((k + 1, match[1], match[2]))
    return found


def test_no_name_is_defined_twice():
    names = [node.name for node in TREE.body if hasattr(node, "name")]
    assert len(names) == len(set(names))


def definitions():
    """[(names defined, node, room)] of the top level, in order."""
    marks = banners()
    found = []
    for node in TREE.body:
        room = max(
            (index for index, (line, *_) in enumerate(marks) if line < node.lineno), default=-1
        )
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [
                name.id
                for target in node.targets
                for name in ast.walk(target)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            ]
        else:
            names = []
        found.append((names, node, room))
    return found


def test_contents_and_banners_agree():
    assert [(number, title) for number, (title, _) in contents().items()] == [
        mark[1:] for mark in banners()
    ]


def test_contents_and_all_agree():
    names = [name for _, listed in contents().values() for name in listed]
    assert sorted(names) == sorted(PUBLIC) and len(set(names)) == len(names)
    assert fm.__all__ == sorted(fm.__all__)


def test_every_public_name_stands_in_its_room():
    numbers = [number for _, number, _ in banners()]
    found = {number: [] for number in numbers}
    for names, _, room in definitions():
        if room >= 0:
            found[numbers[room]] += [name for name in names if not name.startswith("_")]
    for number, (_, names) in contents().items():
        assert sorted(found[number]) == sorted(names), number


def test_every_name_is_defined_once():
    """In one flat module a second constant of a name would silently change what its first users compute."""
    names = []
    for defined, node, _ in definitions():
        twin = re.fullmatch(r"\(?(\w+), \w+_in_parallel\)? = _twins\(\1.*\)", ast.unparse(node))
        names += [name for name in defined if not (twin and name == twin[1])]
    assert sorted(names) == sorted(set(names))


def own_names(node):
    """Arguments and variables of a function and of those in it."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            found.add(inner.arg)
        if isinstance(inner, ast.FunctionDef) and inner is not node:
            found.add(inner.name)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found.add(inner.id)
    return found


def test_dependencies_point_down_the_file():
    """What a room uses stands in it or above it; the rooms of representations, which wrap each other, count as one."""
    numbers = [number for _, number, _ in banners()]
    representations = [room for room, number in enumerate(numbers) if number.startswith("5.")]

    def level(room):
        return max(representations) if room in representations else room

    where = {name: level(room) for names, _, room in definitions() for name in names}
    for names, node, room in definitions():
        used = {
            inner.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
        } - own_names(node)
        below = [name for name in used if where.get(name, -1) > level(room)]
        assert not below, (names, below)


NUMBA = {
    "numba": {"get_num_threads", "njit", "prange", "threading_layer", "types"},
    "numba.core": {"event"},
    "numba.extending": {"is_jitted", "overload", "register_jitable"},
}


def test_nothing_is_used_but_the_manual_of_numba():
    for node in ast.walk(TREE):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("numba"):
            assert {alias.name for alias in node.names} <= NUMBA[node.module]
        assert not (
            isinstance(node, ast.Import)
            and any(alias.name.startswith("numba") for alias in node.names)
        )
    words = set(re.findall(r"\w+", SOURCE.read_text(encoding="utf-8")))
    assert not words & {
        "intrinsic",
        "forceinline",
        "pipeline_class",
        "llvmlite",
        "ExternalFunction",
    }


def conditionals(node):
    return [part for part in ast.walk(node) if isinstance(part, ast.IfExp)]


def packs(node):
    """Return True for an assignment of several values that is neither a swap nor the unpacking of one result."""
    if not isinstance(node, ast.Assign):
        return False
    (target, *others) = node.targets
    if others or not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)):
        return bool(others)
    names = [ast.unparse(part) for part in target.elts]
    return sorted(names) != sorted(ast.unparse(part) for part in node.value.elts)


def test_one_fact_a_line():
    for node in ast.walk(TREE):
        where = f"line {getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.NamedExpr) and not packs(node), where
        if isinstance(node, ast.IfExp):
            assert len(conditionals(node)) == 1, where
        if isinstance(node, ast.Call):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            chosen = [part for part in arguments if isinstance(part, ast.IfExp)]
            assert not chosen or len(arguments) == 1, where


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


def test_tab_completion_shows_the_toolkit():
    assert set(fm.__all__) < set(PUBLIC) and all(hasattr(fm, name) for name in PUBLIC)
    assert not {"np", "njit", "warnings"}.intersection(PUBLIC)


OPTIONS = ["tol", "trace_at", "keep_iterates", "callback", "start"]


def test_every_algorithm_has_the_same_run_options():
    """max_iter stands in the signature; the others, where they have another default or type, too, else in `RunOptions`.

    `drive`, which takes them, has the same defaults.
    """
    hints = typing.get_type_hints(fm.RunOptions)
    assert set(hints) == set(OPTIONS)
    driver = inspect.signature(fm.drive).parameters
    assert [name for name in driver if name in OPTIONS] == OPTIONS
    driver_hints = typing.get_type_hints(fm.drive)
    assert hints == {name: driver_hints[name] for name in OPTIONS}
    defaults = [driver[name].default for name in OPTIONS]
    assert defaults == [None, None, False, None, None]
    for name in ALGORITHMS:
        algorithm = getattr(fm, name)
        assert algorithm.__name__ == name and name in fm.__all__
        assert (fm.ALGORITHMS.get(name) is algorithm) == (name not in ON_ROWS)
        first, *rest, last = inspect.signature(algorithm).parameters.values()
        assert first.name == ("Z" if name in ON_ROWS else "G")
        assert first.kind is first.POSITIONAL_OR_KEYWORD
        if name in ("norm_margin", "steepest_descent"):
            norm = rest.pop(0)
            assert norm.name == "norm"
        assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in rest)
        assert last.kind is last.VAR_KEYWORD and last.name == "options"
        own = typing.get_type_hints(algorithm)
        named = {parameter.name: parameter.default for parameter in rest}
        assert named["max_iter"] > 0 and own["max_iter"] is int
        (described,) = typing.get_args(own["options"])
        left = set(typing.get_type_hints(described))
        assert left | set(named) >= set(OPTIONS) and not left & set(named)
        if named.get("tol") is not None:
            assert (name, named["tol"]) in (("max_margin", 1e-6), ("norm_margin", 1e-6))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_unknown_options_are_refused_as_python_does(name):
    """By the function of the algorithm, or by `drive`, which is given what the algorithm does not know."""
    algorithm = getattr(fm, name)
    given = (np.eye(2), "l2") if name in ("norm_margin", "steepest_descent") else (np.eye(2),)
    for option in ("max_iterations", "free_intercept", "options"):
        with pytest.raises(TypeError, match=rf"^\w+\(\) .* keyword argument '{option}'$"):
            algorithm(*given, **{option: 3})
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing .* argument"):
        algorithm(max_iter=3)


# ======================================================================================================
# DOCUMENTATION
# ======================================================================================================

SECTIONS = [
    "Parameters",
    "Attributes",
    "Returns",
    "Other Parameters",
    "Raises",
    "See Also",
    "Notes",
    "References",
    "Examples",
]


def sections(documented):
    """{section: text} of a docstring in numpydoc's format; "" is what stands before the first."""
    parts = re.split(r"^(.+)\n-{3,}\n", inspect.getdoc(documented), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(text):
    """The names that a section of Parameters or Attributes describes."""
    return [
        name.strip()
        for line in text.splitlines()
        if re.match(r"\S", line)
        for name in line.partition(" : ")[0].split(",")
    ]


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_docstrings_have_the_sections_of_numpydoc(name):
    found = sections(getattr(fm, name))
    titles = list(found)[1:]
    assert found[""].strip() and titles == [title for title in SECTIONS if title in titles]
    assert ">>> " in found["Examples"]
    if name in ALGORITHMS:
        assert {"Parameters", "Notes", "Examples"} <= set(titles)
        assert re.search(
            r"ramdas14|ji21|apidopoulos22|[12]\d{3}", found[""] + found.get("References", "")
        ), "no source"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documented_parameters_are_those_of_the_signature(name):
    found = sections(getattr(fm, name))
    documented = entries(found.get("Parameters", "")) + entries(found.get("Other Parameters", ""))
    stars = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    expected = [
        stars.get(parameter.kind, "") + parameter.name
        for parameter in inspect.signature(getattr(fm, name)).parameters.values()
    ]
    assert documented == expected


def public_functions():
    """The public functions, and the constructors and public methods of the public classes."""
    yield from (getattr(fm, name) for name in FUNCTIONS)
    for value in itertools.chain.from_iterable(
        vars(getattr(fm, name)).values() for name in CLASSES
    ):
        function = getattr(value, "__func__", value)  # of a class method
        if inspect.isfunction(function) and (
            function.__name__[0] != "_" or function.__name__ == "__init__"
        ):
            yield function


def test_public_functions_are_annotated():
    for function in public_functions():
        hints = typing.get_type_hints(function)
        names = [
            name for name in inspect.signature(function).parameters if name not in ("self", "cls")
        ]
        assert list(hints) == [*names, "return"], function.__qualname__
    assert tuple(typing.get_type_hints(fm.Result)) == fm.Result._fields


@pytest.mark.parametrize(
    "name", [name for name in CLASSES if hasattr(getattr(fm, name), "_fields")]
)
def test_documented_attributes_are_the_fields(name):
    cls = getattr(fm, name)
    assert tuple(entries(sections(cls)["Attributes"])) == cls._fields


def public_names(cls):
    """Public methods and properties that a class defines itself."""
    kinds = (property, functools.cached_property)
    return {
        name
        for name, value in vars(cls).items()
        if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, kinds))
    }


def test_representations_have_the_methods_that_are_documented():
    """All of them in one class; kinds add what holds their numbers, and the rows."""
    names = public_names(fm.Gram)
    assert names == {
        "scale",
        "signs",
        "diagonal",
        "block",
        "dense",
        "rounding",
        "restrict",
        "with_ridge",
        "signed",
        "decision_function",
    }
    assert all(inspect.getdoc(getattr(fm.Gram, name)) for name in names)
    for cls in (fm.DenseGram, fm.FeatureGram, fm.SparseGram, fm.LazyGram, fm.PairGram):
        assert issubclass(cls, fm.Gram)
        assert public_names(cls) <= names | {"arrays", "coordinates"}
        assert {"_diagonal", "_product", "_rounding"} <= {
            name for base in cls.__mro__[:-2] for name in vars(base)
        }


def test_help_says_where_to_begin_on_its_first_two_screens():
    """What stands there before the classes and functions one by one."""
    text, _, _ = pydoc.plain(pydoc.render_doc(fm)).partition("\nCLASSES\n")
    lines = text.splitlines()
    assert len(lines) <= 100 and max(map(len, lines)) <= 124
    assert any("Where to begin" in line for line in lines[:20])
    assert f"version {fm.__version__}," in fm.__doc__ and "MIT" in "".join(lines[:12])


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_a_docstring_begins_with_one_sentence_on_one_line(name):
    first, *rest = inspect.getdoc(getattr(fm, name)).splitlines()
    assert first.endswith(".") and (not rest or rest[0] == "")


def public_objects():
    """One of every public class, and what the module holds besides."""
    X, y = np.eye(40, 3) + 1.0, np.where(np.arange(40) < 20, 1, -1)
    G = fm.gram(X, y)
    result = fm.max_margin(fm.features(X, y), max_iter=3)
    yield from (G, fm.features(X, y), fm.lazy_gram(X, y, kernel="ntk"))
    yield from (fm.gram(X, y, intercept="free", ridge=np.arange(1.0, 41.0)), G.kernel, result)
    yield fm.pair_gram(fm.gram(X), np.arange(40) % 3, 3)
    yield fm.SparseGram(np.ones(40), np.zeros(40, int), np.arange(41), 3)
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
        if 0.0 < abs(float(kept)) < 1e-8:
            unit = 18.0 * abs(float(kept))
            assert 0.1 <= float(got) / float(kept), printed
        assert abs(float(got) - float(kept)) <= 0.501 * unit, printed


def test_numbers_are_compared_to_the_digits_shown():
    assert_as_shown(
        "certified 0.0018248 -1.00000001 5.7e-14 (n = 3)", "certified 0.00182 -1.0 0.0000 (n = 3)\n"
    )
    assert_as_shown("5.7e-14", "6.3e-14")
    for printed, shown in (("5.7e-14", "5.7e-12"), ("5.7e-14", "5.7e-16"), ("5.7e-14", "-5.7e-14")):
        with pytest.raises(AssertionError):
            assert_as_shown(printed, shown)
    for shown in (
        "certified 0.00183 -1.0 0.0000 (n = 3)",
        "infeasible 0.00182 -1.0 0.0000 (n = 3)",
        "certified 0.00182 -1.0 0.0000 (n = 4)",
        "certified 0.00182 -1.0 0.0000",
    ):
        with pytest.raises(AssertionError):
            assert_as_shown("certified 0.0018248 -1.00000001 5.7e-14 (n = 3)", shown)


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
    """They print what the text says; the first, with no more lines than a reader takes in, what the tables say."""
    names = run_blocks(README)
    text = README.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert all(shown for _, shown in blocks)
    assert len(blocks[0][0].splitlines()) <= 8
    assert (
        names["chosen"].status_ == "certified"
        and names["chosen"].score(names["X"], names["kinds"]) == 1.0
    )
    assert names["best"].upper >= names["margin"]  # of the network, and of any last layer
    w = names["best"].alpha @ names["layer"].coordinates()
    own = (names["y"] * (names["hidden"] @ w)).min() / np.linalg.norm(w)
    assert own == pytest.approx(names["best"].lower, rel=1e-6)  # w is what the text says
    ends = re.search(r"^\|`max_margin`\|(\S+) to ([0-9.]+)\|", text, re.MULTILINE)
    precise = fm.max_margin(names["G"], tol=1e-9)
    assert float(ends[1]) <= precise.lower <= precise.upper <= float(ends[2])


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
        assert results[-1].lower <= exact.upper and exact.lower <= results[-1].upper
    assert results[0].lower == pytest.approx(results[1].lower, rel=1e-6)
    if "OperatorGram" in names:
        products = names["OperatorGram"](names["rows"])
        features = fm.FeatureGram(names["rows"].astype(float))
        for name in ("snkp", "momentum", "max_margin", "diagonal_descent"):
            single = fm.ALGORITHMS[name](products, max_iter=50, tol=0.01)
            double = fm.ALGORITHMS[name](features, max_iter=50, tol=0.01)
            assert single.status == double.status
            assert single.lower <= double.upper and double.lower <= single.upper
    # a pair is at most sqrt(2) times as long as its largest entry, and as long as it at least
    largest = fm.norm_margin(names["signed"], "linf")
    assert largest.lower / 2**0.5 <= names["largest"].upper
    assert names["largest"].lower <= largest.upper


def test_every_algorithm_is_in_a_document():
    documents = [README, *MANUAL.parent.glob("*.md")]
    text = " ".join(document.read_text(encoding="utf-8") for document in documents)
    for name in (*fm.ALGORITHMS, "norm_margin", "steepest_descent"):
        assert f"`{name}`" in text, f"no document mentions {name}"


def test_the_python_blocks_of_the_manual(manual):
    names = manual
    if "soft" in names:
        assert names["beside_it"].status == names["soft"].status == "certified"
    assert 0.8 * names["best"].lower < names["lower"] <= names["best"].upper
    exact = fm.max_margin(names["G"].with_ridge(0.5 / names["C"]), tol=1e-6)
    assert (
        names["path"].status == exact.status == "certified" and names["path"].lower <= exact.upper
    )
    assert names["gap"][-1] < 0.2


# ======================================================================================================
# PROCESSES AND CACHES
# ======================================================================================================


def test_imports_are_numpy_numba_and_the_standard_library():
    """But for what scikit-learn asks for by methods of its own."""
    names = set()
    theirs = set()
    for node in ast.walk(TREE):
        if isinstance(node, ast.FunctionDef) and node.name in (
            "__sklearn_tags__",
            "get_metadata_routing",
        ):
            theirs |= set(ast.walk(node))
    for node in ast.walk(TREE):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node not in theirs:
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names <= {"numpy", "numba"} | set(sys.stdlib_module_names)


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


def imported_packages(*trees):
    """The packages that import statements within these trees name, without those of the standard library."""
    found = set()
    for node in itertools.chain.from_iterable(map(ast.walk, trees)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names)


def test_import_compiles_nothing_and_needs_no_scipy(alone, tmp_path):
    """Numba imports SciPy where it is installed.  The module itself imports NumPy and Numba alone, and runs without."""
    definitions = ast.FunctionDef | ast.ClassDef
    at_import = [node for node in TREE.body if not isinstance(node, definitions)]
    assert imported_packages(*at_import) == {"numpy", "numba"}
    assert "scipy" not in imported_packages(TREE)
    code = (
        "import sys; from pathlib import Path\n"
        "sys.modules.update(scipy=None, sklearn=None)  # whoever imports them fails\n"
        "import fastmargin\n"
        "assert Path(fastmargin.__file__).parent == Path.cwd(), fastmargin.__file__\n"
    )
    python(code, alone, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_importing_leaves_nothing_behind(alone, tmp_path):
    """No folder but those that Numba and Python make for compiled code, no file, no variable, whatever is missing."""
    code = (
        "import os, sys, numba\nbefore = dict(os.environ)\nmade = []\n"
        "makedirs = os.makedirs\n"
        "def watched(path, *args, **options):\n"
        "    made.append(sys._getframe(1).f_globals['__name__'])\n"
        "    return makedirs(path, *args, **options)\n"
        "os.makedirs = os.mkdir = watched\n"
        "import fastmargin\nassert os.environ == before\nprint(*made)"
    )
    by = python(code, alone, NUMBA_CACHE_DIR=str(tmp_path / "cache" / "deep"))
    assert set(by.split()) <= {"numba.core.caching", "os", "importlib._bootstrap_external"}
    shutil.make_archive(tmp_path / "module", "zip", alone, "fastmargin.py")
    (tmp_path / "nowhere").mkdir()
    home = tmp_path / "home"
    python(
        "import fastmargin\nassert '.zip' in fastmargin.__file__ and fastmargin._CACHE",
        tmp_path / "nowhere",
        PYTHONPATH=str(tmp_path / "module.zip"),
        XDG_CACHE_HOME=str(home / "cache"),
        NUMBA_CACHE_DIR="",
    )
    assert not home.exists()


X4 = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 5.0], [7.0, 4.0]])
Y4 = np.array([0, 0, 1, 1])
WARNED = {
    "a column of labels": lambda: fm.MaxMarginClassifier().fit(X4, Y4[:, None]),
    "no margin": lambda: fm.MaxMarginClassifier().fit(X4[[0, 0, 1, 2]], Y4[[0, 2, 0, 2]]),
    "not converged": lambda: fm.MaxMarginClassifier("precomputed", tol=1e-16).fit(X4 @ X4.T, Y4),
}


@pytest.mark.parametrize("case", WARNED)
def test_warnings_point_at_the_line_of_the_user(case):
    with pytest.warns(UserWarning) as caught:
        WARNED[case]()
    (line,) = {warning.lineno for warning in caught}
    first = WARNED[case].__code__.co_firstlineno
    assert {warning.filename for warning in caught} == {__file__}
    assert first <= line <= first + 2


def test_a_warning_from_below_a_callback_points_at_the_callback():
    def callback(partial):
        if partial.n_iter == 1:
            WARNED["not converged"]()

    with pytest.warns(UserWarning) as caught:
        fm.momentum(np.eye(2), max_iter=2, callback=callback)
    assert [warning.filename for warning in caught] == [__file__]
    assert caught[0].lineno == WARNED["not converged"].__code__.co_firstlineno


def test_all_warnings_take_one_way():
    """But for that of the import, which is no call."""
    calls = [
        node
        for definition in TREE.body
        if isinstance(definition, ast.FunctionDef | ast.ClassDef) and definition.name != "_warn"
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and node.attr in ("warn", "warn_explicit")
    ]
    assert not calls, [node.lineno for node in calls]


@pytest.mark.dear
@pytest.mark.parametrize("zipped", [False, True])
def test_without_a_cache_folder_it_warns_once_and_works(alone, tmp_path, zipped):
    """A file stands where each of Numba's cache folders would be made, and HOME is unset; a module in a zip file has no
    folder of its own besides."""
    (tmp_path / "file").touch()
    (alone / "__pycache__").touch()
    if zipped:
        shutil.make_archive(tmp_path / "module", "zip", alone, "fastmargin.py")
        (alone / "fastmargin.py").unlink()
    path = str(tmp_path / "module.zip") if zipped else str(alone)
    code = (
        "import os, warnings\nos.environ.pop('HOME', None)\n"
        "with warnings.catch_warnings(record=True) as caught:\n    warnings.simplefilter('always')\n"
        "    import numpy as np, fastmargin as fm\n"
        "    result = fm.momentum(fm.gram(np.eye(2), [1, -1]), max_iter=5)\n"
        "print(fm.__file__, result.n_iter, sep='\\n')\n"
        "print(*(f'{warning.category.__name__}: {warning.message}' for warning in caught), sep='\\n')\n"
        "print(*(warning.filename for warning in caught))"
    )
    file, n_iter, *warned, where = python(
        code,
        tmp_path,
        NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"),
        PYTHONPATH=path,
        XDG_CACHE_HOME=str(tmp_path / "file" / "cache"),
    ).splitlines()
    assert file.startswith(path) and n_iter == "5" and len(warned) == 1 and where == "<string>"
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


def test_compiling_is_said_once_per_machine(alone, tmp_path):
    """In one line on stderr that names the folder, by processes that find no code of this file; by none afterwards."""
    folder = tmp_path / "cache"

    def said(call=""):
        return python(
            "import io, sys\nsys.stderr = screen = io.StringIO()\nimport fastmargin as fm\n"
            f"print(repr(screen.getvalue()))\n{call}",
            alone,
            NUMBA_CACHE_DIR=str(folder),
        )

    for _ in range(2):
        line = ast.literal_eval(said("pass"))
        assert line.count("\n") == 1 and line.endswith("\n")
        assert "compiling" in line and str(folder) in line
    said("fm.project_simplex([1.0, 2.0])")
    assert ast.literal_eval(said()) == ""
    changed = time.time() + 60
    os.utime(alone / "fastmargin.py", (changed, changed))
    assert "compiling" in said()


@pytest.mark.dear
def test_loops_from_the_cache_start_their_own_threads(alone, tmp_path):
    """A compiled loop read from the cache once crashed in the parallel product, whose threads nobody had started:
    gradient_descent is compiled by a process that has the product from the cache, then run by one that has both.
    The bits do not depend on which of the two it is."""
    code = (
        "import sys\nsys.modules['scipy'] = None  # whoever imports it fails\n"
        "import numpy as np, fastmargin as fm\n"
        "Z = np.random.default_rng(0).normal(size=(600, 5)) + [3, 0, 0, 0, 0]\n"
        "result = fm.{}(Z @ Z.T, max_iter=20)\nprint(result.lower, result.upper)"
    )
    outputs = [
        python(code.format(name), alone, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        for name in ("momentum", "gradient_descent", "gradient_descent")
    ]
    assert outputs[1] == outputs[2] and outputs[0] != outputs[1]
    assert [path for path in (tmp_path / "cache").rglob("*.nbc")]


@pytest.mark.dear
@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "100"}])
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
                    found[n, type(G).__name__, name] = result.alpha, result.p, result.lower, result.upper
            state = np.full(n, 1 / n), np.zeros(n)
            result = fm.drive(G, own, state, lambda alpha, m: (alpha, alpha), max_iter=20)
            found[n, "own"] = result.alpha, *fm.certificate(G, result.alpha, result.p)
        drawn = fm.adaptive_sampling(fm.FeatureGram(np.ones((1 << 19, 1))), max_iter=3)
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

    A sum that LLVM may reorder, in a function that it inlines here and there, once differed (SNKPVN, max_margin).
    """
    code = textwrap.dedent("""
        import warnings, numpy as np, fastmargin as fm
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)
        X = rng.normal(size=(61, 5))
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=61) > 0, 1, -1)
        Z = np.round(32.0 * X * y[:, None])
        labels = np.arange(61) % 3
        rows = fm.FeatureGram(Z)
        problems = [Z @ Z.T, rows, fm.pair_gram(rows, labels, 3), fm.pair_gram(Z @ Z.T, labels, 3)]
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
    assert len(cold) == 5 * len(fm.ALGORITHMS) and cold == warm == backwards


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


@pytest.mark.dear
def test_names_alone_tell_compiled_code_apart(alone, tmp_path):
    """Numba names machine code by function, types and a counter that every process begins anew: where only the counter
    told one operation from another, a process could take one, cached by another, for the other.  Here it stands still.
    """
    code = (
        "import itertools, numba.core.bytecode as bytecode\n"
        "bytecode.FunctionIdentity._unique_ids = itertools.repeat(1)\n"
        "import numpy as np, fastmargin as fm\n"
        "Z = np.random.default_rng(0).normal(size=(30, 5)) + [2, 0, 0, 0, 0]\n"
        "result = fm.diagonal_descent(fm.FeatureGram(Z), max_iter=30)\n"
        "print(float(result.lower), float(result.upper))"
    )
    compiled, interpreted = (
        np.array(python(code, alone, **environment).split(), dtype=float)
        for environment in (
            {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            {"NUMBA_DISABLE_JIT": "1"},
        )
    )
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-9)
