"""Metaflow's own core tests, plain and sandboxed: ``python tests/metaflow_core.py PATH_TO_METAFLOW_CHECKOUT``.

The harness is not part of this repository; it is run from a copy of the checkout's ``test/core``, with two contexts
that differ in one option only.  Every pair of test and graph must then end alike in both.  What the harness says is
kept in a file (``--log``), from which the table can be printed again (``--read``).

With ``--batch`` both contexts run on AWS Batch (localbatch): plain is a hand-made image, sandboxed is
``--environment=px``.  That needs root and dockerd.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PLAIN, SANDBOXED = "plain", "sandboxed"
CHECKS = {"cli": "CliCheck", "metadata": "MetadataCheck"}
# Metaflow's own local contexts leave these out too: one needs S3, the other 4 GB for one artifact.
LEFT_OUT = ["LargeArtifactTest", "S3FailureTest"]
# What its context for AWS Batch leaves out; and one more with an unbounded foreach: @batch waits ten minutes in it.
ON_BATCH = [
    *("LargeArtifactTest", "WideForeachTest", "TagCatchTest", "BasicUnboundedForeachTest", "RunIdFileTest"),
    *("NestedUnboundedForeachTest", "DetectSegFaultTest", "TimeoutDecoratorTest", "CardExtensionsImportTest"),
    "BasicUnboundedForeachResumeTest",
]
VERDICT = re.compile(r"### test '(\w+)' graph '([\w-]+)' in context '(\w+)': (success|failed)\b")
Results = dict[str, dict[str, dict[str, bool]]]
"""Test, then context, then graph: whether it passed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, nargs="?", help="a checkout of Metaflow's repository")
    parser.add_argument("--tests", default="", help="only these tests, by commas")
    parser.add_argument("--graphs", default="", help="only these graphs, by commas")
    parser.add_argument("--batch", action="store_true", help="on AWS Batch: a hand-made image beside px's")
    parser.add_argument("--executor", choices=["cli", "api"], default="cli", help="the command line, or the Runner API")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at the same time")
    parser.add_argument("--log", type=Path, default=Path("metaflow-core.log"), help="where the harness's words go")
    parser.add_argument("--read", type=Path, nargs="+", metavar="LOG", help="run nothing, print the table of these")
    args = parser.parse_args()
    logs = args.read or [args.log]
    if not args.read:
        if args.checkout is None or not (args.checkout / "test/core/run_tests.py").is_file():
            parser.error("name a checkout of Metaflow's repository that has test/core/run_tests.py")
        (run_on_batch if args.batch else run)(args)
    results = read(line for log in logs for line in log.read_text(encoding="utf-8").splitlines())
    print("\n".join(table(results)))
    if not results:
        sys.stderr.write("No test ran. A graph's name is the one in its file, such as single-linear-step.\n")
    return 1 if not results or any(lost(contexts) for contexts in results.values()) else 0


def run(args: argparse.Namespace) -> None:
    harness(args, local_rows(args.executor), dict(os.environ))


def local_rows(executor: str) -> list[dict[str, Any]]:
    """Two contexts that differ in one option: the second adds the sandbox."""
    return [_context(PLAIN, [], executor), _context(SANDBOXED, ["--with=sandbox:backend=local"], executor)]


def run_on_batch(args: argparse.Namespace) -> None:
    """The same on a cluster of this machine; flows lie in a px project, in a directory that git ignores."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # a script has only its own folder there
    from px.home import Home
    from tests.integration.metaflow.cluster import hand_made, running_cluster
    from tests.support.offline import no_network

    home = Home.from_environment()
    with tempfile.TemporaryDirectory(prefix="px-core-") as name, running_cluster(home, Path(name)) as cluster:
        cluster.project.write(".gitignore", ".metaflow\n__pycache__\n.px\nflows\n")
        cluster.project.commit()
        (cluster.project.root / "flows").mkdir()
        (Path(name) / "image").mkdir()
        image = hand_made(cluster.engine, Path(name) / "image", ["boto3", "requests"])
        # Fifty containers at once only stand in each other's way on a machine of two cores.
        rows = [_context(context, [], args.executor, workers=6) for context in (PLAIN, SANDBOXED)]
        for row, way in zip(rows, ([f"--with=batch:image={image}"], ["--environment=px", "--with=batch"]), strict=True):
            row["top_options"] = ["--metadata=service", "--datastore=s3", "--no-pylint", "--quiet", *way]
            row["top_options"] += ["--event-logger=nullSidecarLogger"]
            row["env"] |= {k: v for k, v in cluster.env.items() if k.startswith(("METAFLOW_", "AWS_", "PX_"))}
            row |= {"disabled_tests": ON_BATCH, "disable_parallel": True}
        with no_network():
            harness(args, rows, {**cluster.env, "TMPDIR": str(cluster.project.root / "flows")})


def harness(args: argparse.Namespace, rows: list[dict[str, Any]], env: dict[str, str]) -> None:
    """Metaflow's harness with these contexts; verdicts go to the terminal as they come, everything to the log."""
    with tempfile.TemporaryDirectory(prefix="metaflow-core-") as directory:
        core = Path(directory, "core")
        shutil.copytree(args.checkout / "test/core", core)
        (core / "contexts.json").write_text(json.dumps(contexts(rows)), encoding="utf-8")
        argv = [sys.executable, "run_tests.py", "--num-parallel", str(args.jobs)]
        argv += ["--tests", args.tests, "--graphs", args.graphs]
        # A local @parallel step starts the first python on the PATH, which must have Metaflow.
        path = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
        env = {**env, "PATH": path, "USER": env.get("USER", "tester")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        with (
            args.log.open("w", encoding="utf-8") as log,
            subprocess.Popen(
                argv, cwd=core, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            ) as running,
        ):
            assert running.stdout is not None
            for line in running.stdout:
                log.write(line)
                if VERDICT.search(line):
                    sys.stderr.write(line)


def contexts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    checks = {name: {"python": sys.executable, "class": kind} for name, kind in CHECKS.items()}
    return {"contexts": rows, "checks": checks}


def _context(name: str, more: list[str], executor: str, workers: int = 50) -> dict[str, Any]:
    """The form and the values of the harness's own local context, and more options."""
    env = {
        "METAFLOW_USER": "tester",
        "METAFLOW_RUN_BOOL_PARAM": "False",
        "METAFLOW_RUN_NO_DEFAULT_PARAM": "test_str",
        "METAFLOW_DEFAULT_METADATA": "local",
    }
    # The harness starts from an empty environment.
    env.update({key: os.environ[key] for key in ("PX_HOME", "HOME") if key in os.environ})
    top = ["metadata=local", "datastore=local", "environment=local", "event-logger=nullSidecarLogger"]
    tags = ["--tag=\u523a\u8eab means sashimi", "--tag=multiple tags should be ok"]
    return {
        "name": name,
        "env": env,
        "python": sys.executable,
        "top_options": [*(f"--{option}" for option in top), "--no-pylint", "--quiet"],
        "run_options": [f"--max-workers={workers}", "--max-num-splits=10000", *tags, *more],
        "checks": list(CHECKS),
        "disabled_tests": LEFT_OUT,
        "executors": [executor],
    }


def read(lines: Iterable[str]) -> Results:
    """The verdicts in what the harness said; a later one stands for an earlier one."""
    results: Results = {}
    for line in lines:
        found = VERDICT.search(line)
        if found:
            test, graph, context, verdict = found.groups()
            results.setdefault(test, {PLAIN: {}, SANDBOXED: {}})[context][graph] = verdict == "success"
    return results


def lost(contexts: dict[str, dict[str, bool]]) -> list[str]:
    """The graphs on which a test passed plain and did not pass sandboxed."""
    plain, sandboxed = contexts[PLAIN], contexts[SANDBOXED]
    return sorted(graph for graph, passed in plain.items() if passed and not sandboxed.get(graph))


def table(results: Results) -> Iterator[str]:
    """One row for each test, in Markdown, and the sum."""
    yield "| test | plain | sandboxed | passed plain only |"
    yield "|---|---|---|---|"
    sums = dict.fromkeys((PLAIN, SANDBOXED), 0)
    runs = 0
    for test, contexts in sorted(results.items()):
        graphs = set(contexts[PLAIN]) | set(contexts[SANDBOXED])
        passed = {name: sum(contexts[name].values()) for name in sums}
        runs += len(graphs)
        sums = {name: sums[name] + passed[name] for name in sums}
        cells = [f"{passed[name]} of {len(graphs)}" for name in sums]
        yield f"| {test} | {' | '.join(cells)} | {', '.join(lost(contexts))} |"
    yield f"| **{len(results)} tests** | **{sums[PLAIN]} of {runs}** | **{sums[SANDBOXED]} of {runs}** | |"


if __name__ == "__main__":
    sys.exit(main())
