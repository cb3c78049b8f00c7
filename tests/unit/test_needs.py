"""What tests need of a machine: a gap is a skip that nobody can miss, and in CI a failure."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.support.needs import NEEDS, SOMEBODY

TESTS = """
import pytest
from tests.support import needs

needs.NEEDS["a moon"] = needs.Need(lambda: "there is none", hint="look up at night")
needs.SOMEBODY["a cat"] = lambda: False

def test_a_gap():
    needs.need("a moon")

def test_a_gap_that_is_found_late():
    needs.lacks("a moon", "there is none")

def test_somebody_else():
    needs.only_for("a cat", "people have no tail")

def test_any_other_skip():
    pytest.skip("no time")
"""


def run(directory: Path, source: str, **environment: str) -> tuple[int, str]:
    """Run one test file as the tests are run, outside of CI unless the environment says otherwise."""
    (directory / "test_it.py").write_text(source)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", f"{REPO}/pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", directory, directory / "test_it.py"],
        cwd=REPO, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_a_gap_is_a_skip_that_the_end_of_the_run_tells_about(tmp_path: Path) -> None:
    code, said = run(tmp_path, TESTS)
    assert code == 0
    assert "4 skipped" in said
    assert "test_it.py:9: needs a moon: there is none" in said
    end = said.partition("not tested on this machine")[2]
    assert "a moon: 2 tests. there is none\n    to get it: look up at night\n" in end
    assert "a cat" not in end, "nothing is missing for that one"


@pytest.mark.parametrize("variable", ["PX_CI", "CI"])
def test_in_ci_only_a_test_about_somebody_else_may_be_skipped(tmp_path: Path, variable: str) -> None:
    code, said = run(tmp_path, TESTS, **{variable: "true"})
    assert code == 1
    assert "3 failed, 1 skipped" in said
    assert said.count("\nCI must not skip this test: needs a moon: there is none") == 2
    assert "\nCI must not skip this test: no time" in said
    assert "only for a cat: people have no tail" in said
    assert "a moon: 2 tests." in said


def test_nor_may_a_whole_module_in_ci(tmp_path: Path) -> None:
    code, said = run(tmp_path, "import pytest\n\npytest.skip('no time', allow_module_level=True)\n", PX_CI="1")
    assert code == 2
    assert "CI must not skip this test: no time" in said


def test_the_ci_script_says_that_it_is_ci_and_makes_the_tests(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "$CI" "$@"\n')
    make.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run([REPO / ".ci/run"], env=env, capture_output=True, check=True).stdout == b"1 test\n"


@cache
def calls() -> list[ast.Call]:
    trees = [ast.parse(path.read_text()) for path in (REPO / "tests").rglob("*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def asked(*functions: str) -> set[str]:
    """Every name that some test passes to these functions."""
    named = [call for call in calls() if getattr(call.func, "id", getattr(call.func, "attr", "")) in functions]
    return {str(arg.value) for call in named for arg in call.args if isinstance(arg, ast.Constant)}


def test_the_table_has_what_the_tests_ask_for_and_nothing_else() -> None:
    assert asked("need") <= set(NEEDS)
    assert set(NEEDS) <= asked("need", "lacks")
    assert set(SOMEBODY) <= asked("only_for")
