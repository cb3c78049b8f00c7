"""What a sandbox adds to a Metaflow step: plain, local, at a provider, and with PyPI's ``metaflow-sandbox``.

The providers are played by ``tests/servers``, which run every command in a real px sandbox; S3 is moto's server.  All
contenders run the same flow in the same round.  ``PX_BENCH_WIDTH=50`` sets the width of the foreach (0 skips it),
``PX_BENCH_START=0.3`` the seconds that a provider takes to make a sandbox, besides what a local one takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench.timing import Measured, command, compare, table
from px.home import Home

REPO = Path(__file__).resolve().parent.parent
PEER = "metaflow-sandbox==0.1.1"
ROUNDS = 2
STEPS = 3
FLOW = """
from metaflow import FlowSpec, Parameter, step

class BenchFlow(FlowSpec):
    @step
    def start(self):
        self.x = 1
        self.next(self.middle)

    @step
    def middle(self):
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    BenchFlow()
"""
WIDE = """
from metaflow import FlowSpec, Parameter, step

class WideFlow(FlowSpec):
    width = Parameter("width", default=50)

    @step
    def start(self):
        self.items = list(range(self.width))
        self.next(self.each, foreach="items")

    @step
    def each(self):
        self.value = self.input
        self.next(self.join)

    @step
    def join(self, inputs):
        self.total = sum(i.value for i in inputs)
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    WideFlow()
"""


def main() -> None:
    # The servers and their fixtures live with the tests; a checkout has both.
    from tests.integration.metaflow.conftest import _clean, s3_server, serving

    with tempfile.TemporaryDirectory(prefix="px-bench-") as name, ExitStack() as stack:
        work = Path(name) / "flows"  # with nothing else in it: Metaflow packs what lies beside a flow
        work.mkdir()
        (work / "flow.py").write_text(FLOW)
        (work / "wide.py").write_text(WIDE)
        home = Home(Path(os.environ.get("PX_TEST_HOME", REPO / ".make" / "px-home")))
        env = _clean(home.root)
        remote = {**env, **stack.enter_context(s3_server()), "METAFLOW_SANDBOX_STAGE_MICROMAMBA": "0"}
        for kind in ("e2b", "daytona"):
            server = stack.enter_context(serving(kind, home))
            server.faults(create_delay=float(os.environ.get("PX_BENCH_START", "0.3")))
            remote.update(server.env)
        peer = _peer(Path(name))
        _steps(work, env, remote, peer)
        width = int(os.environ.get("PX_BENCH_WIDTH", "50"))
        if width:
            _wide(work, env, remote, peer, width)


def _peer(work: Path) -> Path:
    """An environment with the peer; pip finds it as it finds everything."""
    import venv

    venv.create(work / "peer", with_pip=True)
    python = work / "peer" / "bin" / "python"
    packages = [PEER, "metaflow", "e2b-code-interpreter", "daytona>=0.150,<1", "boto3"]
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def _contenders(
    work: Path, flow: list[str], env: Mapping[str, str], remote: Mapping[str, str], peer: Path
) -> dict[str, object]:
    ours = sys.executable
    # The path of this home is too long for the socket of a fork server, so there is none.
    plain = {**remote, "PX_HOME": str(work.parent / ("home" * 25))}

    def run(python: str | Path, variables: Mapping[str, str], *options: str) -> object:
        return command([python, *flow, *options], cwd=work, env=variables)

    return {
        "plain, local datastore": run(ours, env),
        "--with sandbox, local datastore": run(ours, env, "--with", "sandbox"),
        "plain, S3": run(ours, remote),
        "--with sandbox, S3": run(ours, remote, "--with", "sandbox"),
        "--with e2b": run(ours, remote, "--with", "e2b"),
        "--with daytona": run(ours, remote, "--with", "daytona"),
        "--with e2b, without the fork server": run(ours, plain, "--with", "e2b"),
        "--with daytona, without the fork server": run(ours, plain, "--with", "daytona"),
        "metaflow-sandbox --with e2b": run(peer, remote, "--with", "e2b"),
        "metaflow-sandbox --with daytona": run(peer, remote, "--with", "daytona"),
    }


def _steps(work: Path, env: Mapping[str, str], remote: Mapping[str, str], peer: Path) -> None:
    contenders = _contenders(work, ["flow.py", "run"], env, remote, peer)
    for action in contenders.values():
        action()  # type: ignore[operator]  # warm: images, packages, bytecode
    results = compare(contenders, rounds=ROUNDS)  # type: ignore[arg-type]
    table(f"A flow of {STEPS} trivial steps", results, base="plain, local datastore")
    _overheads(results, STEPS)


def _overheads(results: list[Measured], tasks: int) -> None:
    found = {r.name: r.median for r in results}
    print(f"\nAdded to each of {tasks} tasks, over plain with the same datastore")
    local = (found["--with sandbox, local datastore"] - found["plain, local datastore"]) / tasks
    print(f"  {'--with sandbox, local datastore':<44}{local * 1000:>8.0f} ms")
    added = {n: (t - found["plain, S3"]) / tasks for n, t in found.items() if "with" in n and "local" not in n}
    for name, seconds in added.items():
        print(f"  {name:<44}{seconds * 1000:>8.0f} ms")
    for backend in ("e2b", "daytona"):
        ours, theirs = f"--with {backend}", f"metaflow-sandbox --with {backend}"
        whole = f"its run takes {found[theirs] / found[ours]:.1f} times as long"
        if added[ours] <= 0:
            print(f"  {backend} adds nothing to a plain run here; the peer does, and {whole}")
        else:
            print(f"  the peer adds {added[theirs] / added[ours]:.1f} times as much on {backend}, and {whole}")


def _wide(work: Path, env: Mapping[str, str], remote: Mapping[str, str], peer: Path, width: int) -> None:
    flow = ["wide.py", "run", "--width", str(width), "--max-workers", "8"]
    results = compare(_contenders(work, flow, env, remote, peer), rounds=1)  # type: ignore[arg-type]
    table(f"A foreach of {width}, 8 at a time", results, base="plain, local datastore")
    _overheads(results, width + 3)


if __name__ == "__main__":
    main()
