"""Puts a px sandbox around the command of a local task.

The task's own command stays what it is; a small program in front of it (``local_launch.py``) sets the sandbox
up, waits, and ends as the task ended.  What it needs to know is in a file that it deletes: neither variables nor
paths are on a command line.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins import local_image, local_launch, sandbox_env
from metaflow_extensions.sandbox.plugins.backend import Unusable
from metaflow_extensions.sandbox.plugins.local_mounts import task_mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from px.home import Home

INSIDE = "/opt/metaflow"
_NOT_INSIDE = ("METAFLOW_HOME", "METAFLOW_PROFILE", "METAFLOW_CODE_", "METAFLOW_SANDBOX_")
_PASSED = (
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PYTHONUNBUFFERED",
    "PYTHONHASHSEED",
    "PYTHONWARNINGS",
    "TERM",
    "NO_COLOR",
)
_images: dict[tuple[object, ...], local_image.LocalImage] = {}
_trees: dict[tuple[object, ...], Path] = {}


def enter(deco: Any, cli_args: Any) -> None:
    """Replace the entrypoint of one task."""
    from px.errors import PxError
    from px.home import Home

    home = Home.from_environment()
    config, task = deco.config(labels={}), cli_args.task
    script = Path(cli_args.entrypoint[-1]).absolute()
    try:
        image = _image(home, deco, script.parent)
        tree = _tree(home, image)
    except PxError as e:
        raise Unusable(str(e), read="docs/reference/errors.md") from None
    except OSError as e:
        raise Unusable(
            f"px could not make the step's image in {home.root}: {e}",
            fix=["Name a directory with room that you may write to: export PX_HOME=…"],
        ) from None
    cli_args.env.update(_variables(deco, task))
    cli_args.entrypoint = LocalEntrypoint(cli_args, deco, home, image, tree, config)


def _image(home: Home, deco: Any, directory: Path) -> local_image.LocalImage:
    own = _has_own_packages(deco)
    key = (home, deco.attributes["image"], directory, own)
    if key not in _images:
        _images[key] = local_image.resolve(home, deco.attributes["image"], directory, own_packages=own)
    return _images[key]


def _tree(home: Home, image: local_image.LocalImage) -> Path:
    key = (home, image.image_id)
    if key not in _trees:
        _trees[key] = local_image.metaflow_tree(home, image)
    return _trees[key]


def _has_own_packages(deco: Any) -> bool:
    """Whether the step has an environment of its own from @pypi or @conda."""
    if deco._environment.TYPE not in ("pypi", "conda", "fast-bakery"):
        return False
    found = [d for d in deco._decorators if d.name in ("pypi", "conda")]
    return any(str(d.attributes.get("disabled")).lower() != "true" for d in found)


def _variables(deco: Any, task: Any) -> dict[str, str]:
    """What a task gets besides the launcher's own METAFLOW_ variables; values go through the process, not a file."""
    from metaflow.metaflow_config import SANDBOX_FORWARD
    from metaflow.util import get_username

    env = sandbox_env.metaflow_variables(task.datastore_type, task.metadata_type)
    env.update(sandbox_env.datastore_credentials(os.environ, task.datastore_type))
    if any(d.name == "secrets" for d in deco._decorators):
        env.update(sandbox_env.datastore_credentials(os.environ, "s3"))
    env.update(sandbox_env.forwarded(os.environ, SANDBOX_FORWARD or ""))
    env.update(deco.user_env)
    env["METAFLOW_USER"] = get_username()
    return env


class LocalEntrypoint(list[str]):
    """An entrypoint that is worked out when it is used: after every other decorator has had its say.

    @conda and @pypi set item 0 to the step's interpreter; here that is the one inside the sandbox.
    """

    def __init__(self, cli_args: Any, deco: Any, home: Home, image: local_image.LocalImage, tree: Path, config: Any):
        super().__init__([deco.attributes["executable"] or image.python, *cli_args.entrypoint[1:]])
        self._cli_args, self._deco, self._home = cli_args, deco, home
        self._image, self._tree, self._config = image, tree, config
        self._id = f"local-{uuid.uuid4().hex[:16]}"

    def __iter__(self) -> Iterator[str]:
        command = [self[i] for i in range(len(self))]
        file = self._write(command[0])
        # -I -S: the launcher needs px and the standard library only, and starts twice as fast without the rest.
        return iter([sys.executable, "-I", "-S", local_launch.__file__, str(file), *command])

    def _write(self, python: str) -> Path:
        file = self._home.sandbox / "running" / f"{self._id}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(self._spec(python)).encode()
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            f.write(data)
        return file

    def _spec(self, python: str) -> dict[str, Any]:
        task, image, config = self._cli_args.task, self._image, self._config
        resources = config.resources
        own = python in (image.python, self._deco.attributes["executable"])
        interpreter = None if own else Path(python)
        mounts, scratch = task_mounts(
            self._home,
            task,
            script=Path(self[-1]).absolute(),
            project=image.project,
            interpreter=interpreter,
            python_path=self._cli_args.env.get("PYTHONPATH", ""),
            config_file=self._cli_args.top_level_options.get("local-config-file"),
        )
        return {
            "id": self._id,
            "python_path": local_launch.python_path(),
            "home": str(self._home.root),
            "layers": [str(layer) for layer in image.layers],
            "mounts": [*mounts, [str(self._tree), INSIDE, True]],
            "scratch": scratch,
            "image": "" if image.is_bare else str(self._home.sandbox / "images" / image.image_id),
            "cwd": str(Path.cwd()),
            "variables": self._names(),
            "env": self._fixed(),
            "network": config.network.allowed,
            "memory": None if resources.memory_mb is None else resources.memory_mb << 20,
            "cpus": resources.cpu,
            "time_limit": self._deco.time_limit,
            "parent": os.getpid(),
            "labels": {
                "flow": task.flow_name,
                "run": str(task.run_id),
                "step": task.step,
                "task": str(task.task_id),
                "attempt": str(task.retries),
            },
        }

    def _names(self) -> list[str]:
        """The variables of the launcher's environment that pass; everything else of it stays outside."""
        own = [n for n in os.environ if n.startswith("METAFLOW_") and not n.startswith(_NOT_INSIDE)]
        names = {*own, *_PASSED, *self._cli_args.env, "METAFLOW_RUN_ID"}
        return sorted(names - set(sandbox_env.NEVER) - {"PATH", "HOME"})

    def _fixed(self) -> dict[str, str]:
        env = dict(self._image.env)
        env["PATH"] = f"{env['PATH']}:{INSIDE}/bin"
        env.update(
            HOME="/home/px",
            METAFLOW_SANDBOX_WORKLOAD="1",
            METAFLOW_SANDBOX_BACKEND="local",
            METAFLOW_SANDBOX_ID=self._id,
            METAFLOW_SANDBOX_SBX_ID=self._image.image_id,
        )
        if "PYTHONPATH" not in self._cli_args.env:
            env["PYTHONPATH"] = INSIDE
        return env
