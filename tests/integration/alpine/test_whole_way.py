"""A project on Alpine, from its pins to an image that runs elsewhere: numpy's musllinux wheel, and an sdist with C.

Never tried on Alpine's own archive: :mod:`tests.integration.alpine.archive` says what stands in for it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from px.home import Home
from px.store.tree import remove_tree
from tests.integration.alpine.archive import make_archive
from tests.support import musl
from tests.support.debian import Mirror, serving
from tests.support.dockerd import running_docker
from tests.support.needs import need, only_for
from tests.support.px import run_px

pytestmark = [pytest.mark.slow, pytest.mark.network]

MANIFEST = """\
[project]
name = "on-alpine"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["numpy", "markupsafe"]
[dependency-groups]
dev = ["pytest"]
[tool.uv]
no-binary-package = ["markupsafe"]
[tool.px.sandbox]
base = "alpine-3.20"
"""
USE = """\
import json, os, sys
import markupsafe, markupsafe._speedups, numpy
print(json.dumps({
    "numpy": numpy.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 4.0]).tolist(),
    "compiled": markupsafe._speedups.__file__.rpartition(".cpython")[2],
    "escaped": str(markupsafe.escape("<a>")),
    "system": open("/etc/os-release" if os.path.exists("/etc/os-release") else "/usr/lib/os-release").readline(),
    "cached": json.__cached__.endswith(".pyc") and os.path.exists(json.__cached__),
    "uid": os.getuid(),
}))
"""
ANSWER = {
    "numpy": [1.0, 1.0],
    "compiled": "-311-x86_64-linux-musl.so",
    "escaped": "&lt;a&gt;",
    "system": 'NAME="Alpine Linux"\n',
    "cached": True,
    "uid": 1000,
}


@dataclass(frozen=True)
class Place:
    """A project on Alpine, and a home that has its sandbox."""

    root: Path
    home: Path
    variables: dict[str, str]

    def px(self, *args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        variables: dict[str, Any] = {**self.variables, "PX_HOME": str(self.home)}
        return run_px(*args, cwd=self.root, check=check, timeout=1200, **variables)

    def json(self, *args: str | Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.px(*args, "--json", check=False).stdout)
        return found


@pytest.fixture(scope="module")
def mirror(
    warm_home: Home, tmp_path_factory: pytest.TempPathFactory, _usable_bases: None
) -> Iterator[tuple[Mirror, Path]]:
    only_for("x86-64", "the test's packages are for that machine")
    need("bubblewrap", "busybox", "openssl")
    made = musl.built(warm_home.root / "tests" / "musl")
    repository = make_archive(tmp_path_factory.mktemp("alpine") / "repository", made)
    with serving(Mirror()) as found:
        repository.publish(found.files)
        yield found, repository.directory / "keys"


@pytest.fixture(scope="module")
def place(mirror: tuple[Mirror, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("place")
    root = directory / "on-alpine"
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").write_text(MANIFEST)
    (root / "use.py").write_text(USE)
    (root / "tests/test_it.py").write_text(
        "import numpy\n\ndef test_it() -> None:\n    assert numpy.arange(3).sum() == 3\n"
    )
    found, keys = mirror
    variables = {"PX_ALPINE_KEYS": str(keys), "PX_ALPINE_MIRROR": f"http://127.0.0.1:9/alpine {found.url}"}
    made = Place(root, directory / "home", variables)
    # px names the command that makes the pins; it is followed to the letter.
    refused = made.px("sync", "--sandbox", check=False)
    assert refused.returncode == 125
    command = re.search(r"PX_ALPINE_MIRROR=URL px (base lock alpine-3\.20)$", refused.stderr, re.MULTILINE)
    assert command is not None, refused.stderr
    made.px(*command[1].split(), "--architecture", "amd64")
    # uv locks the project in the sandbox, where it needs the libraries of this machine.
    done = made.px("sync", "--sandbox")
    assert "Building markupsafe" in done.stderr
    yield made
    remove_tree(made.home)


def test_run(place: Place) -> None:
    done = place.px("run", "--sandbox", "use.py")
    assert json.loads(done.stdout) == ANSWER
    assert done.stderr == "", "nothing is left to do"
    assert place.px("run", "--sandbox", "sh", "-c", "ls / | head -1").stdout == "app\n", "busybox is there"


def test_tests(place: Place) -> None:
    assert "1 passed" in place.px("test", "--sandbox").stdout


def test_what_alpine_lacks(place: Place) -> None:
    never = place.json("sandbox", "add", "odbc")["details"]
    assert never["code"] == "PX901"
    # px's table has it, and this archive does not: its lock was made without it.
    other = Place(Path(shutil.copytree(place.root, place.root.with_name("other"))), place.home, place.variables)
    with (other.root / "pyproject.toml").open("a") as f:
        f.write("[tool.px.sandbox.capabilities]\npostgres = true\n")
    assert other.json("sync", "--sandbox")["details"]["code"] == "PX901"
    other = Place(other.root, place.home, place.variables)
    (other.root / "pyproject.toml").write_text(MANIFEST.replace(">=3.11", ">=3.13"))
    refused = other.json("sync", "--sandbox")["details"]
    assert refused["code"] == "PX900"
    assert "the base has musl" in str(refused["why"])


def test_tasks_of_metaflow_need_bash(place: Place) -> None:
    refused = place.json("pack", "image", "--metaflow", "s3")["details"]
    assert refused["code"] == "PX900"
    assert "starts tasks with bash" in str(refused)
    assert 'base = "debian-12"' in str(refused["fix"])


def test_the_image(place: Place, tmp_path: Path) -> None:
    place.px("sandbox", "pin", "--architecture", "amd64")
    first = pack(place, tmp_path / "first.tar")
    # A machine that has only the project, its pins among it, and an empty home.
    copy = Path(shutil.copytree(place.root, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".px")))
    elsewhere = Place(copy, tmp_path / "home", {**place.variables, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"})
    second = pack(elsewhere, tmp_path / "second.tar")
    remove_tree(elsewhere.home)
    assert first == second
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
    with running_docker() as docker:
        docker.run("load", "-i", tmp_path / "first.tar")
        assert json.loads(docker.run("run", "--rm", "--network=none", "on-alpine:1").stdout) == ANSWER


def test_a_machine_without_a_network(place: Place, tmp_path: Path) -> None:
    place.px("sandbox", "pin", "--architecture", "amd64")
    place.px("sync", "--sandbox")
    place.px("bundle", "export", tmp_path / "bundle")
    copy = Path(shutil.copytree(place.root, tmp_path / "elsewhere", ignore=shutil.ignore_patterns(".px")))
    elsewhere = Place(copy, tmp_path / "home", {"PX_ALPINE_MIRROR": ""})
    elsewhere.px("bundle", "import", tmp_path / "bundle")
    elsewhere.px("sync", "--sandbox", "--offline", "--frozen")
    assert json.loads(elsewhere.px("run", "--sandbox", "use.py").stdout) == ANSWER
    remove_tree(elsewhere.home)


def pack(place: Place, out: Path) -> str:
    """Pack the image; its digest."""
    place.px("sync", "--sandbox", "--frozen")
    flags = ("--out", out, "--tag", "on-alpine:1", "--cmd", "python use.py")
    answer = place.json("pack", "image", *flags)
    assert answer["status"] == "ok", answer
    return str(answer["details"]["digest"])
