"""E2B: sandboxes from templates.

At E2B, cpu and memory belong to the template and not to the sandbox.  So a step that asks for either, that names a
container image, or that stands on the project's image gets a template of its own.  It is built once and found again by
its name.
"""

from __future__ import annotations

import json
import re
import time
from inspect import signature
from math import ceil
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.backend import ExecResult, RemoteBackend, SandboxConfig, SandboxInfo
from metaflow_extensions.sandbox.plugins.errors import (
    BackendError,
    RateLimited,
    Refused,
    SandboxGone,
    Unavailable,
    Unusable,
)
from metaflow_extensions.sandbox.plugins.templates import made, names
from metaflow_extensions.sandbox.plugins.templates.made import (
    ASKED,
    BUILDING,
    FAILED,
    READY,
    MakesTemplates,
    TemplateInfo,
    pull_credentials,
    when,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# E2B allows nothing but a list of addresses only if all others are denied.
ALL_TRAFFIC = "0.0.0.0/0"


class E2BBackend(MakesTemplates, RemoteBackend):
    """Steps in E2B's microVMs."""

    name = "e2b"
    provider = "E2B"
    keys = ("E2B_API_KEY",)
    takes_project = True
    wants_apt = True
    build_fix = (
        "If the registry wants a login, name it: METAFLOW_SANDBOX_PULL_USERNAME, METAFLOW_SANDBOX_PULL_PASSWORD",
        "If E2B cannot install its programs into the image: --with daytona, or a template of your own (image='NAME')",
    )

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def check(self, config: SandboxConfig) -> None:
        super().check(config)
        pull_credentials(config)
        for option, value in (("gpu", config.resources.gpu), ("disk", config.resources.disk_mb)):
            if value:
                raise Unusable(
                    f"E2B cannot give a sandbox {option}={value}.",
                    fix=[f"Remove {option}= from the step, or run it elsewhere: @daytona({option}={value})"],
                )

    def load(self) -> Any:
        try:
            import e2b
        except ImportError:
            raise self.missing_sdk() from None
        return e2b

    def create(self, config: SandboxConfig) -> str:
        e2b = self.load()
        with self.asking("make a sandbox"):
            handle = e2b.Sandbox.create(
                self._template(config),
                timeout=config.lease_seconds,
                metadata=dict(config.labels),
                network=_network(config),
                request_timeout=config.create_seconds,
            )
        self._handles[handle.sandbox_id] = handle
        return str(handle.sandbox_id)

    def _template(self, config: SandboxConfig) -> str | None:
        resources = config.resources
        if not _is_container_image(config.image) and resources.cpu is None and resources.memory_mb is None:
            return config.image
        return self.ensure_template(config)

    def build_template(self, name: str, config: SandboxConfig) -> None:
        e2b, resources = self.load(), config.resources
        source = config.image or "base"
        with self.asking(f"make a template of {source}"):
            started = e2b.Template()
            template = (
                started.from_image(source, **pull_credentials(config))
                if _is_container_image(source)
                else started.from_template(source)
            )
            # E2B takes whole processors, and memory in even numbers of MB only. Without them, its own defaults hold.
            sizes = {
                "cpu_count": None if resources.cpu is None else ceil(resources.cpu),
                "memory_mb": None if resources.memory_mb is None else resources.memory_mb + resources.memory_mb % 2,
            }
            # The SDK's own way to wait has no end.
            build = e2b.Template.build_in_background(template, name, **sizes)
            self._wait_for(build, config.create_seconds)

    def _wait_for(self, build: Any, seconds: float) -> None:
        e2b, end = self.load(), time.monotonic() + seconds
        while time.monotonic() < end:
            status = e2b.Template.get_build_status(build)
            state = str(getattr(status.status, "value", status.status))
            if state == "ready":
                return
            if state == "error":
                raise e2b.BuildException(status.reason.message if status.reason else "the build failed")
            time.sleep(made.PAUSE)
        raise Unavailable(f"E2B has not finished the template in {seconds} seconds.")

    def find_template(self, name: str) -> TemplateInfo | None:
        with self.asking("ask for a template"):
            if not self.load().Template.exists(name):
                return None
        return next((found for found in self.templates() if found.name == name), None)

    def templates(self) -> list[TemplateInfo]:
        self.load()
        from e2b.api.client.api.templates import get_templates

        with self.asking("list the templates"):
            listed = self._answer(get_templates.sync_detailed(client=_api()))
            return [found for item in listed or [] for found in _own(item)]

    def delete_template(self, found: TemplateInfo) -> None:
        self.load()
        from e2b.api.client.api.templates import delete_templates_template_id as delete

        with self.asking("remove a template"):
            self._answer(delete.sync_detailed(found.provider_id, client=_api()))

    def _answer(self, response: Any) -> Any:
        """What a call of the SDK's own API client brought; it raises nothing by itself."""
        if response.status_code >= 300:
            from e2b.api import handle_api_exception

            raise handle_api_exception(response)
        return response.parsed

    def exec_script(
        self, sandbox_id: str, script: str, *, on_stdout: Callable[[str], None], on_stderr: Callable[[str], None]
    ) -> ExecResult:
        e2b = self.load()
        with self.asking("run a command", sandbox_id):
            run = self._handle(sandbox_id).commands.run
            # From 2.63 on the SDK need not keep the whole output.
            more = {"retain_output": False} if "retain_output" in signature(run).parameters else {}
            # Timeout 0 is none; by default the SDK kills the command after a minute.
            running = run(script, background=True, timeout=0, **more)
            try:
                running.wait(on_stdout=on_stdout, on_stderr=on_stderr)
            except e2b.CommandExitException as e:  # how the SDK tells an exit code that is not 0
                return ExecResult(int(e.exit_code))
            return ExecResult(0)

    def upload(self, sandbox_id: str, content: bytes, remote_path: str) -> None:
        with self.asking("upload a file", sandbox_id):
            self._handle(sandbox_id).files.write(remote_path, content)

    def download(self, sandbox_id: str, remote_path: str) -> bytes:
        with self.asking("download a file", sandbox_id):
            return bytes(self._handle(sandbox_id).files.read(remote_path, format="bytes"))

    def is_alive(self, sandbox_id: str) -> bool:
        try:
            with self.asking("ask for a sandbox", sandbox_id):
                state = self.load().Sandbox.get_info(sandbox_id).state
        except SandboxGone:
            return False
        return str(getattr(state, "value", state)) == "running"

    def renew(self, sandbox_id: str, lease_seconds: int) -> None:
        with self.asking("renew the lease", sandbox_id):
            self.load().Sandbox.set_timeout(sandbox_id, lease_seconds)

    def sandboxes(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        e2b = self.load()
        found: list[SandboxInfo] = []
        with self.asking("list the sandboxes"):
            pages = e2b.Sandbox.list(query=e2b.SandboxQuery(metadata=dict(labels)))
            while pages.has_next:
                found += [_info(item) for item in pages.next_items()]
        return found

    def destroy(self, sandbox_id: str) -> None:
        self._handles.pop(sandbox_id, None)
        try:
            with self.asking("destroy the sandbox", sandbox_id):
                self.load().Sandbox.kill(sandbox_id)
        except SandboxGone:
            return

    def failure(self, error: Exception, action: str, sandbox_id: str | None) -> BackendError | None:
        e2b = self.load()
        if isinstance(error, e2b.AuthenticationException):
            return Refused(f"E2B refused to {action}: {error}", fix=[self.key_fix])
        # The most special classes first: most of the SDK's exceptions are subclasses of SandboxException.
        if isinstance(error, _classes(e2b, "SandboxNotFoundException", "SandboxNotRunningException")):
            return SandboxGone(f"The E2B sandbox {sandbox_id} is gone: {error}")
        if isinstance(error, e2b.RateLimitException):
            return RateLimited(f"E2B could not {action} now: {error}")
        if isinstance(error, _classes(e2b, "TimeoutException", "ServiceBusyException")):
            return Unavailable(f"E2B could not {action} now: {error}")
        if isinstance(error, (e2b.SandboxException, e2b.BuildException)):
            return _by_status(action, error)
        # A stream broke in the middle, or something between us and E2B answered instead of E2B.
        if "end event" in str(error) or isinstance(error, json.JSONDecodeError):
            return Unavailable(f"E2B gave no whole answer to the request to {action}: {error}")
        return None

    def _handle(self, sandbox_id: str) -> Any:
        if sandbox_id not in self._handles:
            self._handles[sandbox_id] = self.load().Sandbox.connect(sandbox_id)
        return self._handles[sandbox_id]


def _classes(e2b: Any, *names: str) -> tuple[type, ...]:
    """The exceptions of these names that this version of the SDK has: it grew some on the way."""
    return tuple(getattr(e2b, name) for name in names if hasattr(e2b, name))


def _is_container_image(image: str | None) -> bool:
    """A template is a plain name; an image has a tag, a digest or a registry."""
    return image is not None and any(mark in image for mark in ":@/")


def _api() -> Any:
    """The SDK's client for the calls that the SDK has no class for."""
    from e2b.api.client_sync import get_api_client
    from e2b.connection_config import ConnectionConfig

    return get_api_client(ConnectionConfig())


_STATES = ((READY, ("ready", "uploaded")), (FAILED, ("error",)), (ASKED, ("waiting",)))
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


def _own(item: Any) -> Iterator[TemplateInfo]:
    """A template of the list, if px made it.  A name may have the team in front."""
    state = str(getattr(item.build_status, "value", item.build_status))
    shown = next((ours for ours, theirs in _STATES if state in theirs), BUILDING)
    called = {*(item.aliases or ()), *(getattr(item, "names", None) or ())}
    for name in {str(one).rpartition("/")[2] for one in called}:
        if names.parse(name) is not None and _ID.fullmatch(str(item.template_id)):
            yield TemplateInfo("e2b", name, shown, when(item.created_at), when(item.last_spawned_at), item.template_id)


def _network(config: SandboxConfig) -> dict[str, list[str]] | None:
    if not config.network.only:
        return None
    return {"allow_out": list(config.network.only), "deny_out": [ALL_TRAFFIC]}


def _info(item: Any) -> SandboxInfo:
    state = str(getattr(item.state, "value", item.state))
    return SandboxInfo("e2b", item.sandbox_id, state, dict(item.metadata or {}), item.started_at.isoformat())


def _by_status(action: str, error: Any) -> Unavailable | Refused:
    status = getattr(error, "status_code", None)
    if status is None:  # some exceptions have the number only at the beginning of their message
        digits = str(error)[:3]
        status = int(digits) if digits.isdigit() else 0
    if status == 429:
        return RateLimited(f"E2B could not {action} now: {error}")
    if status >= 500:
        return Unavailable(f"E2B could not {action}: {error}")
    return Refused(
        f"E2B refused to {action}: {error}",
        fix=["Check image=, cpu= and memory= of the step against your E2B account: e2b template list"],
    )
