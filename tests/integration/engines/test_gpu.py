"""GPUs in real sandboxes, on a made-up machine: a driver that computes nothing, and nodes that are /dev/null.

A real GPU is not to be had where tests run.  What stands in for it is in tests/support/gpu.py; the machine around it is
made by bubblewrap.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from px.home import Home
from tests.support import gpu
from tests.support.px import PX, run_px

from .conftest import Driver

LOOK = """
import ctypes, json, os
ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcuda.so")
with open("/dev/nvidia0", "wb") as node:
    node.write(b"x")
mounts = [line.split() for line in open("/proc/self/mounts")]
print(json.dumps({
    "nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
    "libraries": sorted(os.listdir("/run/px-gpu/lib")),
    "writable": [m[1] for m in mounts if m[1].startswith("/run/px-gpu/") and "ro" not in m[3].split(",")],
    "env": {name: value for name, value in os.environ.items() if "CUDA_V" in name or name == "LD_LIBRARY_PATH"},
    "elsewhere": [path for path in ("/run/cdi", "/dev/sda", "/usr/bin/nvidia-cdi-hook") if os.path.exists(path)],
}))
"""


def own(directory: Path, uid: int) -> None:
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


@pytest.mark.parametrize("cdi", [False, True], ids=["found by px", "by CDI"])
def test_the_sandbox_sees_the_driver_and_nothing_else(box: Driver, cdi: bool) -> None:
    box.around = gpu.made_up(box.directory, box.layers[0], ("nvidia0",), cdi=cdi)
    own(box.directory, box.uid)
    done = box.python(LOOK, asked="1", network=False, read_only_root=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["nodes"] == ["nvidia-uvm", "nvidia0", "nvidiactl"]
    versioned = {f"{stem}.so.{gpu.VERSION}" for stem in gpu.LIBRARIES}
    assert set(seen["libraries"]) == {*versioned, *gpu.LIBRARIES.values(), "libcuda.so"}
    assert seen["env"] == {"LD_LIBRARY_PATH": "/run/px-gpu/lib"}
    assert (seen["writable"], seen["elsewhere"]) == ([], [])
    without = box.python("import os; print(os.listdir('/run'), [n for n in os.listdir('/dev') if 'nv' in n])")
    assert without.stdout == "[] []\n"


def test_only_the_chosen_gpus_are_there(box: Driver) -> None:
    box.around = gpu.made_up(box.directory, box.layers[0], ("nvidia0", "nvidia1", "nvidia2"))
    own(box.directory, box.uid)
    show = (
        "import os; nodes = sorted(n for n in os.listdir('/dev') if n[6:].isdigit());"
        "print(*nodes, os.environ.get('CUDA_VISIBLE_DEVICES'))"
    )
    for visible, asked, expected in (
        (None, "all", "nvidia0 nvidia1 nvidia2 None"),
        (None, "2", "nvidia0 nvidia1 None"),
        ("2", "all", "nvidia2 None"),
        ("2,0", "all", "nvidia0 nvidia2 1,0"),
    ):
        box.env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        done = box.python(show, asked=asked)
        assert done.stdout == f"{expected}\n", done.stderr
    box.env = {}
    done = box.python(show, asked="4")
    assert done.returncode == 125
    assert "PX926" in done.stderr


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def project(caller: Driver, warm_home: Home) -> Iterator[Driver]:
    """A project beside a machine with two GPUs; :attr:`Driver.app` is the project."""
    (caller.app / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11,<3.12"\n'
    )
    caller.around = gpu.made_up(caller.directory, caller.layers[0], ("nvidia0", "nvidia1"))
    run_px("sync", "--sandbox", cwd=caller.app, PX_HOME=str(warm_home.root))
    yield caller
    shutil.rmtree(caller.app)
    caller.app.mkdir()


def on_machine(project: Driver, home: Home, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    everything = {**os.environ, "PX_HOME": str(home.root), **env}
    command = [*project.around[:-1], "--chdir", str(project.app), "--", str(PX), *words]
    return subprocess.run(command, env=everything, capture_output=True, text=True, check=False, timeout=120)


def test_the_flag_the_manifest_and_what_is_said_without(project: Driver, warm_home: Home) -> None:
    show = ("python", "-c", "import os; print(sum(n[6:].isdigit() for n in os.listdir('/dev')))")

    def count(*words: str, **env: str) -> str:
        done = on_machine(project, warm_home, "run", "--sandbox", *words, *show, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert [count(), count("--gpu"), count("--gpu=1", "--no-network", "--read-only"), count("--gpu=0")] == list("0210")
    manifest = project.app / "pyproject.toml"
    before = on_machine(project, warm_home, "--json", "status").stdout
    manifest.write_text(f"{manifest.read_text()}[tool.px.sandbox]\ngpu = 1\n")
    assert [count(), count("--gpu"), count("--gpu=0"), count(CUDA_VISIBLE_DEVICES="1")] == list("1201")
    after = on_machine(project, warm_home, "--json", "status").stdout
    assert json.loads(before)["details"] == json.loads(after)["details"]  # nothing was built again
    doctor = json.loads(on_machine(project, warm_home, "--json", "doctor").stdout)["details"]["checks"]
    (finding,) = [check["finding"] for check in doctor if check["name"] == "gpu"]
    assert finding == f"2 NVIDIA (driver {gpu.VERSION}), by this machine's files"
    if not os.path.exists("/dev/nvidia0"):
        done = run_px("--json", "run", "--sandbox", "true", cwd=project.app, check=False, PX_HOME=str(warm_home.root))
        assert json.loads(done.stdout)["details"]["code"] == "PX925"


def test_a_target_that_finds_no_gpu_is_told_how_to_get_one(project: Driver, warm_home: Home) -> None:
    says = ("python", "-c", "raise RuntimeError('CUDA error: no CUDA-capable device is detected')")
    for words in ((), ("--no-cache",)):  # the warm way, and the other
        done = on_machine(project, warm_home, "run", "--sandbox", *words, *says)
        assert "to give it one: --gpu" in done.stderr
    done = on_machine(project, warm_home, "run", "--sandbox", "--gpu", *says)
    assert (done.returncode, "to give it one" in done.stderr) == (1, False)
    done = on_machine(project, warm_home, "run", "--sandbox", "nvidia-smi")
    assert (done.returncode, "Ask for one: --gpu" in done.stderr) == (127, True)
