"""The module as a file: imports, docstrings, caches, runs without the compiler."""

import ast
import doctest
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from instances import CALLS, PLANTED, form, forms, run

import fastmargin as fm

SOURCE = Path(fm.__file__)


def test_imports_are_numpy_numba_and_the_standard_library():
    names = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names <= {"numpy", "numba"} | set(sys.stdlib_module_names)


def test_the_examples_of_the_docstrings():
    tested = doctest.testmod(fm)
    assert tested.attempted > 0 and tested.failed == 0


def python(code, folder, **environment):
    """Run code in a new interpreter that sees only what is in ``folder``; its output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(folder), **environment})
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A folder with a copy of the module and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(SOURCE, folder)
    return folder


def test_import_compiles_nothing_and_needs_no_scipy(alone, tmp_path):
    code = ("import sys, fastmargin; from pathlib import Path\n"
            "assert Path(fastmargin.__file__).parent == Path.cwd(), fastmargin.__file__\n"
            "print('scipy' in sys.modules, 'sklearn' in sys.modules)")
    assert python(code, alone, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["False", "False"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_loops_from_the_cache_start_their_own_threads(alone, tmp_path):
    """A compiled loop read from the cache once crashed in the parallel product, whose threads nobody had started:
    gradient_descent is compiled by a process that has the product from the cache, then run by one that has both."""
    code = ("import sys\nsys.modules['scipy'] = None  # whoever imports it fails\n"
            "import numpy as np, fastmargin as fm\n"
            "Z = np.random.default_rng(0).normal(size=(600, 5)) + [3, 0, 0, 0, 0]\n"
            "result = fm.{}(Z @ Z.T, max_iter=20)\nprint(result.lower, result.upper)")
    outputs = [python(code.format(name), alone, NUMBA_CACHE_DIR=str(tmp_path))
               for name in ("momentum", "gradient_descent", "gradient_descent")]
    assert outputs[1] == outputs[2] and outputs[0] != outputs[1]
    assert [path for path in tmp_path.rglob("*.nbc")]


def test_interpreted_runs_agree(alone):
    """Every loop and kernel as Python runs it, without the compiler: the dispatch works there as well."""
    cases = ["feasible", "feasible, odd n", "shifted cross-polytope", "one point", "one dimension"]
    code = ("import numpy as np, fastmargin as fm\nfrom instances import CALLS, PLANTED, form, forms, run\n"
            f"for case in {cases}:\n    for name in CALLS:\n        for kind in forms(name):\n"
            "            result = run(name, form(kind, PLANTED[case][0]), max_iter=7)\n"
            "            print(repr(float(result.lower)), repr(float(result.upper)))")
    shutil.copy(Path(__file__).parent / "instances.py", alone)
    lines = iter(python(code, alone, NUMBA_DISABLE_JIT="1").splitlines())
    for case in cases:
        for name in CALLS:
            for kind in forms(name):
                result = run(name, form(kind, PLANTED[case][0]), max_iter=7)
                got = [float(word) for word in next(lines).split()]
                np.testing.assert_allclose(got, [result.lower, result.upper], rtol=1e-9)
