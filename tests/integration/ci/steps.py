"""Runs the steps of a composite action as GitHub's runner does, as far as a shell can.

Scripts run for real, in the shell and with the options of the runner.  Its cache server cannot exist here: the two
steps that use it copy a directory instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from px.store.tree import remove_tree
from tests.conftest import REPO

EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # what `shell: bash` means


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((REPO / "action.yml").read_text())
    return found


@dataclass
class Runner:
    """One job: where it works, what it keeps, and what its steps have said."""

    workspace: Path
    temporary: Path
    saved: Path
    """Where caches are: it outlives a job."""
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    said: str = ""

    def run(self, *, only: tuple[str, ...] = ()) -> int:
        """Run the steps, or these; the exit code of the first that fails."""
        defaults = {name: str(row["default"]) for name, row in action()["inputs"].items()}
        self.inputs = defaults | self.inputs
        self.temporary.mkdir(parents=True, exist_ok=True)
        for step in action()["runs"]["steps"]:
            if (only and step["id"] not in only) or not self.holds(step.get("if", "true")):
                continue
            self.ran.append(step["id"])
            code = self._uses(step) if "uses" in step else self._script(step)
            if code != 0:
                return code
        return 0

    def output(self, name: str) -> str:
        return self.filled(action()["outputs"][name]["value"])

    # --- expressions: only as much of the language as the action uses ------------------------------------------

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda m: self.value(m[1]), str(text))

    def value(self, expression: str) -> str:
        match expression.split("."):
            case ["inputs", name]:
                return self.inputs[name]
            case ["steps", step, "outputs", name]:
                return self.outputs.get(step, {}).get(name, "")
            case ["github", "action_path"]:
                return str(REPO)
        raise AssertionError(f"the runner of the tests does not know {expression}")

    def holds(self, condition: str) -> bool:
        for part in condition.split(" && "):
            found = re.fullmatch(r"([\w.-]+) (==|!=) '([^']*)'", part)
            if found is None:
                assert part == "true", part
            elif (self.value(found[1]) == found[3]) != (found[2] == "=="):
                return False
        return True

    # --- steps -------------------------------------------------------------------------------------------------

    def _script(self, step: dict[str, Any]) -> int:
        script, files = self.temporary / "script.sh", {"GITHUB_OUTPUT": "output", "GITHUB_PATH": "path"}
        script.write_text(step["run"])
        places = {name: str(self.temporary / file) for name, file in files.items()}
        for place in places.values():
            Path(place).write_text("")
        env = {**os.environ, **self.env, **places, "RUNNER_TEMP": str(self.temporary)}
        env |= {name: self.filled(value) for name, value in step.get("env", {}).items()}
        env["PATH"] = ":".join([*reversed(self.path), env["PATH"]])
        done = subprocess.run(
            [*SHELL, script], cwd=self.workspace, env=env, capture_output=True, text=True, check=False, timeout=600
        )
        self.said += done.stdout + done.stderr
        rows = Path(places["GITHUB_OUTPUT"]).read_text().splitlines()
        self.outputs[step["id"]] = dict(row.split("=", 1) for row in rows)
        self.path += Path(places["GITHUB_PATH"]).read_text().splitlines()
        return done.returncode

    def _uses(self, step: dict[str, Any]) -> int:
        given = {name: self.filled(value) for name, value in step["with"].items()}
        home, key = Path(given["path"]), given["key"]
        if step["uses"].startswith("actions/cache/save@"):
            shutil.copytree(home, self.saved / key, symlinks=True)
            return 0
        assert step["uses"].startswith("actions/cache/restore@")
        older = sorted(p.name for p in self.saved.glob(f"{given['restore-keys']}*")) if self.saved.is_dir() else []
        found = key if key in older else older[-1] if older else None
        if found is not None:
            remove_tree(home)  # the store's directories are read-only
            shutil.copytree(self.saved / found, home, symlinks=True)
        self.outputs[step["id"]] = {"cache-hit": str(found == key).lower()}
        return 0
