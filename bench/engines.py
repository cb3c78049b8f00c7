"""The bubblewrap engine against bare bubblewrap on the same layers, and against docker where a daemon answers.

Every contender runs ``python3 -c pass`` in debian-12; "as a program" is a whole process with Python's own start, which
is what a command line pays.  docker is whatever ``docker`` is set up for (DOCKER_HOST); without one it is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.timing import Action, command, compare, table
from px.engines.bubblewrap import Bubblewrap
from px.engines.session import Session
from px.engines.spec import RunSpec
from px.home import Home
from px.sandbox.bases import ensure_base, ensure_bytecode_layer, host_architecture, load_base_lock
from px.store.objects import Store

REPO = Path(__file__).resolve().parent.parent
ROUNDS = 30
TARGET = ("/usr/bin/python3", "-c", "pass")
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/home/px"}
PROGRAM = """
import json, sys
from pathlib import Path
from px.engines.bubblewrap import Bubblewrap
from px.engines.spec import RunSpec
from px.home import Home
layers, argv, env, home = json.loads(sys.argv[1])
Bubblewrap(Home(Path(home))).exec(RunSpec(tuple(map(Path, layers)), tuple(argv), env, cwd="/"))
"""


def bare(binary: Path, layers: tuple[Path, ...]) -> list[str]:
    """The least that gives a target these layers as its root."""
    overlay = [option for layer in layers for option in ("--overlay-src", str(layer))]
    return [
        str(binary), "--unshare-all", "--share-net", "--uid", "1000", "--gid", "1000", *overlay, "--tmp-overlay", "/",
        "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/", "--", *TARGET,
    ]  # fmt: skip


def contenders(layers: tuple[Path, ...], home: Home, session: Session) -> dict[str, Action]:
    engine = Bubblewrap(home)
    spec = RunSpec(layers, TARGET, ENV, cwd="/")
    arguments = json.dumps([[str(layer) for layer in layers], TARGET, ENV, str(home.root)])
    whole = {"cwd": REPO, "env": os.environ}
    return {
        "bare bubblewrap": command(bare(engine.binary, layers), **whole),  # type: ignore[arg-type]
        "engine, within a process": lambda: engine.run(spec),
        "engine, as a program": command([sys.executable, "-c", PROGRAM, arguments], **whole),  # type: ignore[arg-type]
        "Python's start alone": command([sys.executable, "-c", "pass"], **whole),  # type: ignore[arg-type]
        "command in a session": lambda: session.exec(TARGET).communicate(),
    }


def docker(tree: Path, scratch: Path) -> dict[str, Action]:
    """``docker run`` of the same tree, if there is a docker that can."""
    try:
        subprocess.run(["docker", "version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        print("docker: no daemon answers, left out")
        return {}
    archive = scratch / "root.tar"
    subprocess.run(["tar", "-cf", archive, "--owner=0", "--group=0", "--mode=u+w", "-C", tree, "."], check=True)
    done = subprocess.run(["docker", "import", archive], capture_output=True, text=True, check=True)
    argv = ["docker", "run", "--rm", "--network", "none", done.stdout.strip(), *TARGET]
    return {"docker run": command(argv, cwd=REPO, env=os.environ)}


def main() -> None:
    store = Store(Home(Path(os.environ.get("PX_TEST_HOME", REPO / ".make" / "px-home"))))
    base = ensure_base(store, load_base_lock("debian-12", host_architecture()))
    layers = (base.tree, ensure_bytecode_layer(store, base).tree)
    with tempfile.TemporaryDirectory(prefix="px-bench-") as name:
        home = Home(Path(name) / "home")
        with Session(Bubblewrap(home), RunSpec(layers, TARGET, ENV, cwd="/")) as session:
            everyone = {**contenders(layers, home, session), **docker(base.tree, Path(name))}
            compare(everyone, rounds=2)
            table("python3 -c pass in debian-12", compare(everyone, rounds=ROUNDS), base="bare bubblewrap")


if __name__ == "__main__":
    main()
