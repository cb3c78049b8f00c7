"""Puts a px sandbox around the command of a local task.

The command itself stays as it is.  The launcher (``launcher.py``) stands in front of it: it makes the sandbox, waits
for the task, and ends as the task ended.  It reads what it must know from a file, so that no path and no variable is
on a command line.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins import settings, variables
from metaflow_extensions.sandbox.plugins.backend import task_labels
from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.local import launcher
from metaflow_extensions.sandbox.plugins.local.gpus import gpus_of
from metaflow_extensions.sandbox.plugins.local.image import step_sandbox
from metaflow_extensions.sandbox.plugins.local.metaflow_tree import INSIDE, metaflow_tree
from metaflow_extensions.sandbox.plugins.local.mounts import Mounts
from metaflow_extensions.sandbox.plugins.owner import machine
from metaflow_extensions.sandbox.plugins.project_image import flow_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metaflow_extensions.sandbox.plugins.backend import LocalStep
    from px.home import Home
    from px.warm.record import BuiltSandbox

# Files of this machine that these name are not in the sandbox, or they are about another sandbox.
_NOT_INSIDE = ("METAFLOW_HOME", "METAFLOW_PROFILE", "METAFLOW_CODE_", "METAFLOW_SANDBOX_")
_PASSED = (
    "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONWARNINGS", "TERM", "NO_COLOR"
)  # fmt: skip


def prepare(step: LocalStep, script: str) -> tuple[BuiltSandbox, Path]:
    """The sandbox of a step of this flow, and its Metaflow; built if need be."""
    from px.errors import PxError
    from px.home import Home

    home = Home.from_environment()
    try:
        return _prepared(home, step.config.image, flow_directory(flow_file(script)), step.has_own_packages)
    except PxError as e:
        raise Unusable(str(e), read="docs/reference/errors.md") from None
    except OSError as e:
        raise Unusable(
            f"px could not build the sandbox of the step in {home.root}: {e}",
            fix=["Name a directory that has room and that you may write to: export PX_HOME=…"],
        ) from None


def enter(step: LocalStep, cli_args: Any) -> None:
    """Replace the entrypoint of one task."""
    built, tree = prepare(step, cli_args.entrypoint[-1])
    task = cli_args.task
    # Values go through the launcher's environment; its file has only the names.
    cli_args.env.update(
        variables.step_variables(task.datastore_type, task.metadata_type, step.env, uses_secrets=step.uses_secrets)
    )
    files = variables.credential_files(os.environ, task.datastore_type, step.env)
    cli_args.env.update({name: str(path) for name, path in files.items()})
    cli_args.entrypoint = LocalEntrypoint(step, cli_args, built, tree)


def flow_file(script: str) -> Path:
    """The absolute path of a flow, with no ``..`` in it: not all directories of this machine are in the sandbox."""
    path = Path(script).absolute()
    # Only then, because Python shall see a link as the link that it is.
    return path.parent.resolve() / path.name if ".." in path.parts else path


@cache
def _prepared(home: Home, image: str | None, flow_directory: Path, has_own_packages: bool) -> tuple[BuiltSandbox, Path]:
    """The sandbox of a step and its Metaflow; the same for all tasks of a run."""
    built = step_sandbox(image, flow_directory, has_own_packages=has_own_packages)
    return built, metaflow_tree(home, built)


class LocalEntrypoint(list[str]):
    """An entrypoint that is worked out when it is used, after every other decorator has changed it.

    ``@conda`` and ``@pypi`` set item 0 to the interpreter of the step.  It runs inside the sandbox.
    """

    def __init__(self, step: LocalStep, cli_args: Any, built: BuiltSandbox, tree: Path):
        script = str(flow_file(cli_args.entrypoint[-1]))
        super().__init__([step.executable or built.interpreter, *cli_args.entrypoint[1:-1], script])
        self._step, self._cli_args, self._built, self._tree = step, cli_args, built, tree
        self._id = f"local-{uuid.uuid4().hex[:16]}"

    def __iter__(self) -> Iterator[str]:
        # Metaflow makes a list of the entrypoint right before it starts the task, and only then.
        command = [self[i] for i in range(len(self))]
        file = self._write(command[0])
        # -I -S: without site-packages, which the launcher does not need, it starts in half the time.
        return iter([sys.executable, "-I", "-S", launcher.__file__, str(file), *command])

    def _write(self, python: str) -> Path:
        from px.home import Home

        home = Home.from_environment()
        file = home.sandbox / "running" / f"{self._id}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(self._start(home, python)).encode()
        # Only for this user, because paths and names of variables are nobody else's business.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            f.write(data)
        return file

    def _start(self, home: Home, python: str) -> dict[str, Any]:
        """What the launcher must know."""
        task, built, config = self._cli_args.task, self._built, self._step.config
        mounts = self._mounts(home, python)
        memory = config.resources.memory_mb
        gpus = gpus_of(config.resources.gpu or 0)
        return {
            "id": self._id,
            "python_path": launcher.python_path(),
            "home": str(home.root),
            "layers": built.layers,
            "mounts": [*gpus.mounts, *mounts.rows, [str(self._tree), INSIDE, True]],
            "hidden": mounts.hidden,
            "devices": gpus.devices,
            "scratch": mounts.scratch,
            "image": built.directory,
            "cwd": str(Path.cwd()),
            "variables": self._names(),
            "env": gpus.added_to(self._fixed(), self._cli_args.env),
            "network": config.network.allowed and not config.network.only,
            "allow": config.network.only,
            "memory": None if memory is None else memory << 20,
            "cpus": config.resources.cpu,
            "time_limit": self._step.time_limit,
            "parent": os.getpid(),
            "machine": machine(),
            "asked": time.time(),
            "timing": [settings.CREATE_TOOK, settings.STARTED_AT],
            "labels": task_labels(task.flow_name, task.run_id, task.step, task.task_id, task.retries),
        }

    def _mounts(self, home: Home, python: str) -> Mounts:
        mounts, cli_args, built = Mounts(home), self._cli_args, self._built
        mounts.share_working_tree(Path(self[-1]), built.root, git_write=built.git_write)
        mounts.share_project(built.root, git_write=built.git_write, read_only=built.read_only)
        for inside, source in built.siblings.items():
            mounts.show(Path(source), Path(inside))
        mounts.share_datastores(cli_args.task)
        if python not in (self._built.interpreter, self._step.executable):
            mounts.show(Path(python).parent.parent)  # the environment of @conda or @pypi
        for path in cli_args.env.get("PYTHONPATH", "").split(os.pathsep):
            if path and Path(path).is_dir():
                mounts.show(Path(path))
        for file in variables.credential_files(os.environ, cli_args.task.datastore_type, self._step.env).values():
            mounts.show(file)
        config_file = cli_args.top_level_options.get("local-config-file")
        if config_file:
            mounts.show(Path(config_file))
        return mounts

    def _names(self) -> list[str]:
        """The variables of the launcher's environment that the task gets; it gets no others."""
        # The metadata service and its token are for steps that report to it.
        outside = _NOT_INSIDE if self._cli_args.task.metadata_type == "service" else (*_NOT_INSIDE, "METAFLOW_SERVICE_")
        own = [n for n in os.environ if n.startswith("METAFLOW_") and not n.startswith(outside)]
        names = {*own, *_PASSED, *self._cli_args.env, "METAFLOW_RUN_ID"}
        return sorted(names - set(variables.NEVER) - {"PATH", "HOME"})

    def _fixed(self) -> dict[str, str]:
        """The variables that are the sandbox's own."""
        env = dict(self._built.variables)
        env["PATH"] = f"{env['PATH']}:{INSIDE}/bin"
        env["HOME"] = "/home/px"
        env[settings.WORKLOAD] = "1"
        env[settings.BACKEND] = "local"
        env[settings.SANDBOX_ID] = self._id
        env[settings.IMAGE_ID] = self._built.sbx_id
        # @conda and @pypi bring a Metaflow of their own on this path.
        if "PYTHONPATH" not in self._cli_args.env:
            env["PYTHONPATH"] = INSIDE
        return env
