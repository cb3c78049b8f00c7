"""The store under fire: many processes at once, kill -9 at any moment, a full disk."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from px.home import Home
from px.store.objects import Store
from px.store.verify import verify
from tests.support.index import Index
from tests.support.needs import need
from tests.support.px import PX, UV, run_px

MAKE = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from px.home import Home
    from px.store.objects import Store

    def make(draft):
        with open(sys.argv[2], "a") as log:
            log.write("made\\n")
        tree = draft.tree()
        for i in range(400):
            tree.file(f"lib/{i % 7}/{i}.bin", os.urandom(1) * 5000 if len(sys.argv) > 3 else bytes([i % 251]) * 5000)
        return {"tree": tree.finish()}

    print(Store(Home(Path(sys.argv[1]))).ensure("pkg-build", "the-key", make))
    """
)


def test_sixteen_processes_do_the_work_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", MAKE, str(tmp_path / "home"), str(log)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(16)]
    answers = {p.communicate(timeout=120)[0] for p in running}
    assert {p.returncode for p in running} == {0}
    assert len(answers) == 1
    assert log.read_text() == "made\n"
    assert verify(Store(Home(tmp_path / "home")), {}, repair=False) == (1, [])


def test_kill_at_any_moment_leaves_a_valid_store(tmp_path: Path) -> None:
    chance = random.Random(7)
    home, log = tmp_path / "home", tmp_path / "log"
    command = [sys.executable, "-c", MAKE, str(home), str(log), "random content"]
    for _ in range(25):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.02, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, damaged = verify(Store(Home(home)), {}, repair=False)
        assert damaged == []
        shutil.rmtree(home / "store" / "index", ignore_errors=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    store = Store(Home(home))
    assert verify(store, {}, repair=False)[1] == []
    with store.draft() as draft:  # sweeps what the killed ones left
        left = [p for p in store.home.tmp.iterdir() if p.stem != draft.path.name]
    assert left == []


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_sync_is_followed_by_one_that_works(app: Path, index: Index, seed: int) -> None:
    chance = random.Random(seed)
    process = subprocess.Popen([PX, "sync", "-q"], cwd=app)
    time.sleep(chance.uniform(0.05, 1.0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    run_px("sync", cwd=app)
    run_px("run", "python", "-c", "import hello, leaf", cwd=app)
    assert run_px("store", "verify", cwd=app).stdout.endswith("all whole\n")
    home = Path(os.environ["PX_HOME"])
    assert not [p for p in (home / "envs").iterdir() if ".old" in p.name]


def in_small_file_system(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with ``$SMALL`` a file system of 6 MB, in namespaces of its own that take the mount with them."""
    small = tmp_path / "small"
    small.mkdir()
    text = f"mount -t tmpfs -o size=6m none {small} && export SMALL={small} && {script}"
    need("user namespaces")
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", text]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_full_disk_is_px810_and_harms_nothing(app: Path, index: Index, tmp_path: Path) -> None:
    from tests.support.wheels import WheelSpec

    big = WheelSpec("bulky", files={f"bulky/{i}.bin": random.Random(i).randbytes(500_000) for i in range(16)})
    big.write(index.directory)
    subprocess.run([UV, "lock", "-q"], cwd=app, check=True)
    script = f"""
    cd '{app}'
    export PX_HOME=$SMALL/home
    '{PX}' sync
    cp uv.lock before.lock
    '{PX}' add bulky > out 2>&1 && exit 9
    echo code $?
    cmp uv.lock before.lock
    '{PX}' store verify
    '{PX}' run python -c 'import hello'
    ls $PX_HOME/store/tmp
    """
    done = in_small_file_system(tmp_path, script)
    (index.directory / big.filename).unlink()
    said = (app / "out").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + said
    assert "code 124" in done.stdout
    assert said.count("PX810") == 1
    assert "all whole" in done.stdout
    assert done.stdout.rstrip().endswith("all whole"), "nothing may be left in tmp"
