"""One base, whoever builds it: another user, umask, locale, time zone, hash seed, optimisation, order, place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from px.debian.bytecode import Compiler
from px.platforms import host_architecture
from px.sandbox.layers.base import Base, ensure_base, ensure_bytecode_layer, load_base_lock
from px.sandbox.layers.system import ensure_system_layer
from px.store.objects import Store, tree_spec
from px.store.tree import remove_tree
from tests.conftest import REPO
from tests.support.users import ORDINARY, must_reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.home import Home

BUILD = f"""
import sys
sys.path.insert(0, {str(REPO / "src")!r})
"""
BUILD += """
import json, os, random, sys
from dataclasses import replace
from pathlib import Path
from px.home import Home
from px.sandbox.layers.base import ensure_base, ensure_bytecode_layer
from px.sandbox.layers.base import load_base_lock
from px.sandbox.layers.system import ensure_system_layer
from px.store.objects import Store
name, architecture, home, shuffle, umask = sys.argv[1:]
os.umask(int(umask, 8))
lock = load_base_lock(name, architecture)
if shuffle == "yes":
    rows = list(lock.packages.items())
    random.shuffle(rows)
    names = random.sample(lock.base, len(lock.base))
    lock = replace(lock, packages=dict(rows), base=tuple(names))
store = Store(Home(Path(home)), offline=True)
base = ensure_base(store, lock)
layer = ensure_system_layer(store, base, ["curl", "postgres"][:: -1 if shuffle == "yes" else 1])
bytecode = ensure_bytecode_layer(store, base)
print(json.dumps([base.oid, layer.oid, bytecode.oid]))
"""


@dataclass(frozen=True)
class Variation:
    """One way in which two machines can differ."""

    label: str
    uid: int | None = None
    umask: str = "022"
    shuffle: str = "no"
    python: str = ""
    """The base whose interpreter runs px, instead of the tests' own."""
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    place: str = "home"


VARIATIONS = [
    Variation(
        "another user, umask 077", uid=ORDINARY, umask="077", place="a place with spaces and ü", python="debian-12"
    ),
    Variation("another Python", python="debian-13", env={"TZ": "America/Caracas"}),
    Variation("umask 000, Latin-1", umask="000", env={"LC_ALL": "de_DE.ISO-8859-1", "TZ": "Asia/Tokyo"}),
    Variation("-O, no UTF-8 mode", flags=("-O", "-X", "utf8=0"), env={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"}),
    Variation("hash seeds and order", shuffle="yes", env={"PYTHONHASHSEED": "4242", "PYTHONOPTIMIZE": "2"}),
]


@pytest.fixture(scope="module")
def seeded(warm_store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A px home with the downloads of one base and nothing else, and what this process makes of them."""
    base = ensure_base(warm_store, load_base_lock("debian-12", host_architecture()))
    layer = ensure_system_layer(warm_store, base, ["postgres", "curl"])
    assert layer is not None
    bytecode = ensure_bytecode_layer(warm_store, base)
    source = tmp_path_factory.mktemp("seeded")
    for package in (*base.packages, *layer.packages):
        oid = warm_store.lookup("source", package.sha256)
        assert oid is not None
        destination = source / "store" / "objects" / "source" / oid
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(warm_store.path("source", oid), destination)
        index = source / "store" / "index" / "source" / package.sha256
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(oid)
    return source, [base.oid, layer.oid, bytecode.oid]


@pytest.mark.parametrize(
    "variation",
    [*VARIATIONS[:2], *(pytest.param(v, marks=pytest.mark.slow) for v in VARIATIONS[2:])],
    ids=lambda v: v.label,
)
def test_one_oid(variation: Variation, seeded: tuple[Path, list[str]], warm_store: Store, reachable: Path) -> None:
    if variation.uid is not None:
        must_reach(reachable, REPO / "src" / "px")
    source, expected = seeded
    home = reachable / variation.place
    shutil.copytree(source, home)
    if variation.uid is not None:
        _hand_over(home, variation.uid)
    argv = [*_python(variation, warm_store), *variation.flags, "-c", BUILD, "debian-12", host_architecture(), str(home)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **variation.env}
    done = subprocess.run(
        [*argv, variation.shuffle, variation.umask],
        env=environment,
        user=variation.uid,
        group=variation.uid,
        extra_groups=[] if variation.uid is not None else None,
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


def _python(variation: Variation, store: Store) -> list[str]:
    """The tests' own interpreter, or one that any user can reach: that of a base, run by its own loader."""
    if not variation.python:
        return [sys.executable]
    base = ensure_base(store, load_base_lock(variation.python, host_architecture()))
    return Compiler(base.tree, base.architecture, f"{base.python.major}.{base.python.minor}").command()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that other users can reach: pytest keeps its own to itself."""
    directory = Path(tempfile.mkdtemp(prefix="px-test-"))
    directory.chmod(0o755)
    yield directory
    remove_tree(directory)


def _hand_over(home: Path, uid: int) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def test_the_trees_on_disk_are_what_the_payloads_say(base: Base, warm_store: Store) -> None:
    assert warm_store.problems("sandbox-base", base.oid) == []


def test_an_image_for_the_other_architecture_is_built_here(warm_store: Store, bookworm: Base) -> None:
    other = "arm64" if host_architecture() == "amd64" else "amd64"
    foreign = ensure_base(warm_store, load_base_lock("debian-12", other))
    assert foreign.oid != bookworm.oid
    assert warm_store.problems("sandbox-base", foreign.oid) == []
    ours = _without_architecture(warm_store, ensure_bytecode_layer(warm_store, bookworm).oid)
    theirs = _without_architecture(warm_store, ensure_bytecode_layer(warm_store, foreign).oid)
    assert ours == theirs
    assert len(ours) > 400


def _without_architecture(store: Store, oid: str) -> list[list[str | int]]:
    return [e for e in tree_spec(store.payload("layer", oid)) if "sysconfigdata" not in str(e[1])]


def test_the_payload_is_the_one_of_the_specification(base: Base, warm_store: Store, warm_home: Home) -> None:
    payload = warm_store.payload("sandbox-base", base.oid)
    assert set(payload) == {"name", "variant", "px_base_version", "os_release", "packages", "fs_tree"}
    assert payload["name"] == base.name
    release = payload["os_release"]
    assert isinstance(release, dict)
    assert f"{release['ID']}-{release['VERSION_ID']}" == base.name
    view = warm_home.sandbox / "bases" / base.oid
    assert json.loads((view / "manifest.json").read_text())["base_os_oid"] == base.oid
    assert (view / "rootfs").resolve() == base.tree.resolve()
