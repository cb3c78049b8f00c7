"""How long a remote task takes to start, run a small step and end: on px's image, a hand-made one, and with pip.

Each contender is the container that Metaflow would submit to a cluster, run to its end by the same Docker engine with
the same S3.  The hand-made image has everything, installed by uv and compiled.  The last one has pip, as Metaflow's
default image has: the task installs boto3 and requests first, from an index on this machine.  Needs root and dockerd.
``PX_BENCH_ROUNDS=5`` sets the number of rounds.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.timing import Action, compare, table
from px.home import Home

REPO = Path(__file__).resolve().parent.parent
ROUNDS = int(os.environ.get("PX_BENCH_ROUNDS", "5"))
NEEDED = ("boto3", "requests")


def main() -> None:
    # The cluster and its fixtures live with the tests; a checkout has both.
    from tests.integration.metaflow.cluster import hand_made, running_cluster
    from tests.support.index import serving
    from tests.support.offline import no_network

    home = Home(Path(os.environ.get("PX_TEST_HOME", REPO / ".make" / "px-home")))
    os.environ["PX_HOME"] = str(home.root)
    with tempfile.TemporaryDirectory(prefix="px-bench-") as name, ExitStack() as stack:
        work = Path(name)
        cluster = stack.enter_context(running_cluster(home, work))
        (work / "wheels").mkdir()
        download(work / "wheels")
        with no_network():
            index = stack.enter_context(serving(work / "wheels"))
        (work / "full").mkdir()
        (work / "pip").mkdir()
        full = hand_made(cluster.engine, work / "full", ["numpy", "psycopg2-binary", *NEEDED])
        plain = hand_made(cluster.engine, work / "pip", ["numpy", "psycopg2-binary", "pip"], skip=False)
        templates: dict[str, dict[str, Any]] = {
            "px": cluster.workflow("elsewhere.py", "--environment=px")["start"],
            "hand-made image": cluster.workflow("elsewhere.py", "--with", f"kubernetes:image={full}")["start"],
            "pip in the task": cluster.workflow("elsewhere.py", "--with", f"kubernetes:image={plain}")["start"],
        }
        rows = templates["pip in the task"]["container"]["env"]
        rows.append({"name": "PIP_INDEX_URL", "value": index.url})
        rows.append({"name": "PIP_BREAK_SYSTEM_PACKAGES", "value": "1"})
        numbers = itertools.count()

        def action(template: Mapping[str, Any]) -> Action:
            def run() -> None:
                number = next(numbers)
                values = {"workflow.name": f"bench-{number}", "workflow.creationTimestamp": "2020-01-01T00:00:00Z"}
                cluster.argo_task(dict(template), values, work / f"out-{number}")

            return run

        contenders = {name: action(template) for name, template in templates.items()}
        for warm in contenders.values():  # the image is pulled, and in the page cache
            warm()
        results = compare(contenders, rounds=ROUNDS)
        table("A remote task, from the start of its container to its end", results, base="hand-made image")


def download(folder: Path) -> None:
    """The wheels that pip will ask for."""
    platform = ["--python-version", "3.11", "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64"]
    platform += ["--platform", "manylinux2014_x86_64"]
    python = os.path.join(sys.base_prefix, "bin", "python3")  # the virtual environment has no pip
    command = [python, "-m", "pip", "download", "--quiet", "--dest", str(folder), *platform, *NEEDED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
