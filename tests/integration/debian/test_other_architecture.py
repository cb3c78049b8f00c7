"""An arm64 base that was made on amd64, looked at by its own tools under emulation."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from px.sandbox.layers.base import ensure_base, ensure_bytecode_layer, load_base_lock
from px.sandbox.layers.system import ensure_system_layer
from px.store.tree import remove_tree
from tests.support.needs import need, only_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.store.objects import Store

EMULATOR = "/usr/bin/qemu-aarch64-static"
COMPARE = """
import glob, importlib.util, marshal, sys
head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
for path in sorted(glob.glob("/usr/lib/python3.*/*.py"))[:40]:
    source = open(path, "rb").read()
    code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    made = head + importlib.util.source_hash(source) + marshal.dumps(code, 2)
    assert made == open(importlib.util.cache_from_source(path), "rb").read(), path
print(sys.implementation._multiarch)
"""


@pytest.fixture(scope="module", params=["debian-12", "debian-13"])
def root(request: pytest.FixtureRequest, warm_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All layers of an arm64 image in one directory, with the emulator."""
    only_for("x86-64", "what is emulated is the other machine")
    need("root", "qemu")  # root, for chroot
    base = ensure_base(warm_store, load_base_lock(request.param, "arm64"))
    layer = ensure_system_layer(warm_store, base, ["postgres", "curl"])
    assert layer is not None
    directory = tmp_path_factory.mktemp("arm64") / "root"
    directory.mkdir()
    for tree in (base.tree, ensure_bytecode_layer(warm_store, base).tree, layer.tree):
        subprocess.run(["cp", "-a", "--remove-destination", f"{tree}/.", str(directory)], check=True)
    shutil.copy(EMULATOR, directory / EMULATOR.lstrip("/"))
    yield directory
    remove_tree(directory)


def run(root: Path, *argv: str) -> str:
    done = subprocess.run(["chroot", root, EMULATOR, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_ldconfig_writes_the_same_cache(root: Path) -> None:
    run(root, "/usr/sbin/ldconfig", "-C", "/tmp/cache")
    assert (root / "tmp/cache").read_bytes() == (root / "etc/ld.so.cache").read_bytes()


@pytest.mark.slow
def test_its_interpreter_compiles_to_the_same_bytes(root: Path) -> None:
    assert run(root, "/usr/bin/python3", "-B", "-c", COMPARE) == "aarch64-linux-gnu\n"
