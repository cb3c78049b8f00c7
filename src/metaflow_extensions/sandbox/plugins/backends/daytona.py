"""Daytona: sandboxes from images or snapshots.  Commands run in sessions, and their logs are followed.

Only a session streams output and keeps stdout and stderr apart.  All commands of a session share one shell, so every
script gets a bash of its own.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import uuid
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, cast

from metaflow_extensions.sandbox.plugins.backend import ExecResult, RemoteBackend, SandboxConfig, SandboxInfo
from metaflow_extensions.sandbox.plugins.errors import (
    BackendError,
    RateLimited,
    Refused,
    SandboxGone,
    Unavailable,
    Unusable,
)
from metaflow_extensions.sandbox.plugins.templates import names
from metaflow_extensions.sandbox.plugins.templates.made import (
    ASLEEP,
    BUILDING,
    FAILED,
    READY,
    MakesTemplates,
    TemplateInfo,
    when,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SNAPSHOT = "snapshot:"
# Of lists, a hundred items each. A provider that always names one more page must not keep px for ever.
MOST_PAGES = 100
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
# A stopped sandbox has lost its processes, so for a task it is as good as destroyed.
_GONE_STATES = ("destroyed", "destroying", "error", "build_failed", "stopped", "archived")


class DaytonaBackend(MakesTemplates, RemoteBackend):
    """Steps in Daytona's sandboxes."""

    name = "daytona"
    provider = "Daytona"
    keys = ("DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
    takes_project = True
    build_fix = ("If the registry wants a login, add it to your organisation: Daytona's dashboard, Registries",)

    def __init__(self) -> None:
        self._client_: Any = None
        self._handles: dict[str, Any] = {}

    def check(self, config: SandboxConfig) -> None:
        super().check(config)
        resources = config.resources
        sized = [r for r in (resources.cpu, resources.memory_mb, resources.gpu, resources.disk_mb) if r is not None]
        if sized and (config.image or "").startswith(SNAPSHOT):
            raise Unusable(
                f"Daytona fixes the resources of a snapshot when it is made; {config.image} cannot be given others.",
                fix=[
                    "Name an image instead: image='python:3.11'",
                    "Or remove cpu=, memory=, gpu= and disk= from the step",
                ],
            )

    def load(self) -> Any:
        try:
            import daytona

            _ = daytona.Daytona  # the package imports its parts when they are used
        except (ImportError, AttributeError):
            raise self.missing_sdk() from None
        return daytona

    def create(self, config: SandboxConfig) -> str:
        if config.sbx_id:
            config = replace(config, image=SNAPSHOT + self.ensure_template(config))
        with self.asking("make a sandbox"):
            handle = self._client().create(_parameters(self.load(), config), timeout=config.create_seconds)
        self._handles[handle.id] = handle
        return str(handle.id)

    def build_template(self, name: str, config: SandboxConfig) -> None:
        daytona = self.load()
        # An image for tasks ends at once if nothing else is said.
        wanted = daytona.CreateSnapshotParams(
            name=name, image=config.image, resources=_resources(daytona, config), entrypoint=["sleep", "infinity"]
        )
        with self.asking(f"make a snapshot of {config.image}"):
            self._client().snapshot.create(wanted, timeout=config.create_seconds)

    def find_template(self, name: str) -> TemplateInfo | None:
        snapshots = self._client().snapshot
        with self.asking("ask for a snapshot"):
            try:
                found = snapshots.get(name)
            except self.load().DaytonaNotFoundError:
                return None
        return _snapshot(found)

    def templates(self) -> list[TemplateInfo]:
        found: list[TemplateInfo] = []
        with self.asking("list the snapshots"):
            for page in range(1, MOST_PAGES + 1):
                listed = self._client().snapshot.list(page=page, limit=100)
                found += filter(None, map(_snapshot, listed.items))
                if page >= listed.total_pages:
                    break
        return found

    def wake_template(self, found: TemplateInfo) -> None:
        with self.asking("wake a snapshot"):
            self._client().snapshot.activate(found.provider_id)

    def delete_template(self, found: TemplateInfo) -> None:
        with self.asking("remove a snapshot"):
            self._client().snapshot.delete(found.provider_id)

    def exec_script(
        self, sandbox_id: str, script: str, *, on_stdout: Callable[[str], None], on_stderr: Callable[[str], None]
    ) -> ExecResult:
        import asyncio

        daytona = self.load()
        session = f"px-{uuid.uuid4().hex}"
        with self.asking("run a command", sandbox_id):
            process = self._handle(sandbox_id).process
            process.create_session(session)
            request = daytona.SessionExecuteRequest(command=f"bash -c {shlex.quote(script)}", run_async=True)
            command = process.execute_session_command(session, request).cmd_id
            # The SDK streams a log only in its asynchronous call.
            asyncio.run(process.get_session_command_logs_async(session, command, on_stdout, on_stderr))
            code = process.get_session_command(session, command).exit_code
        # The log ends with the connection too, so its end alone does not mean that the command has ended.
        if code is None:
            raise Unavailable(f"Daytona closed the log of a command in {sandbox_id} before the command ended.")
        return ExecResult(int(code))

    def upload(self, sandbox_id: str, content: bytes, remote_path: str) -> None:
        with self.asking("upload a file", sandbox_id):
            self._handle(sandbox_id).fs.upload_file(content, remote_path)

    def download(self, sandbox_id: str, remote_path: str) -> bytes:
        with self.asking("download a file", sandbox_id):
            return bytes(self._handle(sandbox_id).fs.download_file(remote_path))

    def is_alive(self, sandbox_id: str) -> bool:
        try:
            with self.asking("ask for a sandbox", sandbox_id):
                state = self._client().get(sandbox_id).state
        except SandboxGone:
            return False
        return str(getattr(state, "value", state)) not in _GONE_STATES

    def renew(self, sandbox_id: str, lease_seconds: int) -> None:
        with self.asking("renew the lease", sandbox_id):
            self._handle(sandbox_id).set_ttl(_minutes(lease_seconds))

    def sandboxes(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        daytona = self.load()
        with self.asking("list the sandboxes"):
            found = [_info(item) for item in self._client().list(daytona.ListSandboxesQuery(labels=dict(labels)))]
        return [item for item in found if item.state not in ("destroyed", "destroying")]

    def destroy(self, sandbox_id: str) -> None:
        try:
            with self.asking("destroy the sandbox", sandbox_id):
                # `px sandbox reap` ends sandboxes that this process has not made, and has no handle of.
                handle = self._handles.pop(sandbox_id, None) or self._client().get(sandbox_id)
                self._client().delete(handle)
        except SandboxGone:
            return

    def failure(self, error: Exception, action: str, sandbox_id: str | None) -> BackendError | None:
        daytona = self.load()
        # Of some calls (activate) the SDK lets through what its inner client raises.
        if type(error).__module__.partition(".")[0] == "daytona_api_client":
            error = _translated(daytona, error)
        if isinstance(error, (daytona.DaytonaAuthenticationError, daytona.DaytonaForbiddenError)):
            return Refused(f"Daytona refused to {action}: {error}", fix=[self.key_fix])
        if isinstance(error, TimeoutError):
            return Unavailable(f"Daytona did not {action} in time.")
        if isinstance(error, daytona.DaytonaError):
            return _by_status(action, sandbox_id, error)
        return None

    def _client(self) -> Any:
        if self._client_ is None:
            self._client_ = self.load().Daytona()
        return self._client_

    def _handle(self, sandbox_id: str) -> Any:
        if sandbox_id not in self._handles:
            self._handles[sandbox_id] = self._client().get(sandbox_id)
        return self._handles[sandbox_id]


def _parameters(daytona: Any, config: SandboxConfig) -> Any:
    common: dict[str, Any] = {
        "labels": dict(config.labels),
        # Auto-stop would end a sandbox while processes run in it. The ttl ends one that nobody renews any more.
        "auto_stop_interval": 0,
        "auto_delete_interval": 0,
        "ttl_minutes": _minutes(config.lease_seconds),
        "network_allow_list": ",".join(filter(_is_cidr, config.network.only)) or None,
        "domain_allow_list": ",".join(n for n in config.network.only if not _is_cidr(n)) or None,
    }
    # Metaflow pickles artifacts, so by default the sandbox has the run's version of Python.
    image = config.image or f"python:{sys.version_info.major}.{sys.version_info.minor}"
    if image.startswith(SNAPSHOT):
        return daytona.CreateSandboxFromSnapshotParams(snapshot=image[len(SNAPSHOT) :], **common)
    return daytona.CreateSandboxFromImageParams(image=image, resources=_resources(daytona, config), **common)


def _resources(daytona: Any, config: SandboxConfig) -> Any:
    # Daytona counts whole processors and whole GB. A step gets at least what it asks for.
    asked = config.resources
    return daytona.Resources(
        cpu=None if asked.cpu is None else ceil(asked.cpu),
        memory=None if asked.memory_mb is None else ceil(asked.memory_mb / 1024),
        disk=None if asked.disk_mb is None else ceil(asked.disk_mb / 1024),
        gpu=asked.gpu,
    )


def _minutes(seconds: int) -> int:
    return max(1, ceil(seconds / 60))


def _is_cidr(address: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_network(address)
    except ValueError:
        return False
    return True


def _state(item: Any) -> str:
    return str(getattr(item.state, "value", item.state))


def _snapshot(item: Any) -> TemplateInfo | None:
    """A snapshot, if px made it in this account; the general ones are Daytona's."""
    if names.parse(item.name) is None or item.general or not _ID.fullmatch(str(item.id)):
        return None
    # Daytona puts a snapshot to sleep that nobody has used for some weeks.
    states = {"active": READY, "error": FAILED, "build_failed": FAILED, "inactive": ASLEEP}
    shown = states.get(_state(item), BUILDING)
    return TemplateInfo("daytona", item.name, shown, when(item.created_at), when(item.last_used_at), item.id)


def _info(item: Any) -> SandboxInfo:
    return SandboxInfo("daytona", item.id, _state(item), dict(item.labels or {}), str(item.created_at or ""))


def _translated(daytona: Any, error: Any) -> Exception:
    try:
        said = str(json.loads(error.body)["message"])[:300]
    except (AttributeError, KeyError, TypeError, ValueError):
        said = str(getattr(error, "reason", "") or type(error).__name__)
    status = int(getattr(error, "status", None) or 0)
    kinds: dict[int, Any] = {401: daytona.DaytonaAuthenticationError, 403: daytona.DaytonaForbiddenError}
    kind = kinds.get(status, daytona.DaytonaError)
    return cast("Exception", kind(said, status_code=status, headers=getattr(error, "headers", None)))


def _by_status(action: str, sandbox_id: str | None, error: Any) -> Unavailable | Refused:
    status = error.status_code or 0
    # 404 can mean the sandbox or its image; only a call about a sandbox has an id.
    if sandbox_id and status in (404, 410):
        return SandboxGone(f"The Daytona sandbox {sandbox_id} is gone: {error}")
    if status in (400, 409, 422) or (status == 404 and not sandbox_id):
        return Refused(
            f"Daytona refused to {action}: {error}",
            fix=["Check image=, cpu=, memory=, gpu= and disk= against your account: daytona snapshot list"],
        )
    kind = RateLimited if status == 429 else Unavailable
    return kind(f"Daytona could not {action}: {error}", retry_after=_retry_after(error))


def _retry_after(error: Any) -> float | None:
    value = {k.lower(): v for k, v in dict(error.headers or {}).items()}.get("retry-after")
    return float(value) if value is not None and str(value).isdigit() else None
