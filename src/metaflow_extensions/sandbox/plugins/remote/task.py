"""A task as its remote sandbox gets it: one file that holds the runner, the script of the task and its variables."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins import settings
from metaflow_extensions.sandbox.plugins.remote import runner

if TYPE_CHECKING:
    from collections.abc import Mapping

# Files among the credentials have the names of the variables that point to them.
CREDENTIAL_FILES = ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_CERTIFICATE_PATH")
# What Metaflow installs in the sandbox before a task, unless it is there.
_REQUIRED = {"s3": ("boto3", "requests")}


@dataclass(frozen=True)
class TaskSpec:
    """What the sandbox runs.  ``env``, ``files`` and ``fetch`` may be secret; they are in the uploaded file only."""

    script: str
    env: Mapping[str, str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Name in the task's own directory, and content."""
    time_limit: int = 0
    """Seconds; 0 is no limit."""
    fetch: tuple[str, str] | None = None
    """Address and sha of the code package, if the address is enough to fetch it."""
    may_rerun: bool = False
    """Whether the task may be started again after it may have begun: only ``@retry`` allows that."""


def runner_file(task: TaskSpec, env: Mapping[str, str], state: str) -> bytes:
    """The source of the runner, followed by a call with this task."""
    # In one file, because each upload is one more request, and it deletes itself with all that it holds.
    source = Path(runner.__file__).read_text(encoding="utf-8")
    payload = {
        "state": state,
        "script": task.script,
        "env": dict(env),
        "files": {name: base64.b64encode(content).decode() for name, content in task.files.items()},
        "limit": task.time_limit,
        "fetch": task.fetch,
        "started": settings.STARTED_AT,
    }
    return f"{source}\n\n{runner.PAYLOAD_LINE}main({payload!r})\n".encode()


def task_script(package_commands: list[str], download: str, bootstrap: list[str], step: str, datastore: str) -> str:
    """The bash script of a task: dependencies, code package, environment, step.

    The first three are Metaflow's own commands, but for its log commands: the runner and the trampoline keep the log.
    ``download`` is the one of the package commands that downloads the package; it runs only if the runner has not
    fetched the package already.
    """
    from metaflow.mflog import BASH_FLUSH_LOGS, BASH_MFLOG

    skipped = (BASH_MFLOG, BASH_FLUSH_LOGS, "flush_mflogs")
    package = _unescaped(" && ".join(c for c in package_commands if c not in skipped))
    fetched = f'{{ mv "$PX_STATE/job.tar" job.tar 2>/dev/null || {_unescaped(download)}; }}'
    return "\n".join(
        [
            # Metaflow's commands call it; its own version would write to files that nobody reads here.
            'mflog() { echo "$1"; }',
            # Metaflow starts `python`, and many images have only `python3`.
            'if ! command -v python >/dev/null; then mkdir -p "$PX_STATE/bin"',
            'ln -s "$(command -v python3)" "$PX_STATE/bin/python"; export PATH="$PX_STATE/bin:$PATH"; fi',
            # Here and not among the variables, because only the sandbox knows this path.
            f"for name in {' '.join(CREDENTIAL_FILES)}; do",
            'if [ -e "$PX_STATE/$name" ]; then export "$name=$PX_STATE/$name"; fi; done',
            _skip_installation(_REQUIRED.get(datastore, ())),
            package.replace(_unescaped(download), fetched) + " || exit 1",
            # Metaflow sets a relative path, and before 2.19.30 loses it where a task changes its directory.
            'if [ -n "$METAFLOW_EXTRACTED_ROOT" ]; then export METAFLOW_EXTRACTED_ROOT="$PWD"; fi',
            # In the directory of the code package, where Metaflow looks for .metaflow.
            'if [ -s "$PX_STATE/seed.tgz" ]; then tar xzf "$PX_STATE/seed.tgz"; fi',
            " && ".join([*(_unescaped(c) for c in bootstrap), step]),
            "exit $?",
        ]
    )


def _skip_installation(required: tuple[str, ...]) -> str:
    """Tell Metaflow to install nothing if the image has it all; pip would take seconds to find that out."""
    if not required:
        return ""
    probe = f"import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in {required!r}))"
    undecided = '[ -z "$METAFLOW_SKIP_INSTALL_DEPENDENCIES" ]'
    return f"if {undecided} && python -c {shlex.quote(probe)}; then export METAFLOW_SKIP_INSTALL_DEPENDENCIES=1; fi"


def _unescaped(command: str) -> str:
    """Metaflow's commands are escaped to stand between double quotes; here they do not."""
    return shlex.split(f'bash -c "{command}"')[-1]
