"""What a sandbox backend is: the interface, and the values that cross it.

A provider's backend is a subclass of :class:`RemoteBackend`; the local one is a :class:`SandboxBackend`.
"""

from __future__ import annotations

import importlib.util
import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.errors import BackendError, Unavailable, Unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# Libraries that the SDKs stand on. The SDKs let their errors through when a connection breaks.
TRANSPORTS = ("httpx", "httpx_ws", "httpcore", "wsproto", "urllib3", "exceptiongroup", "connectrpc", "pyqwest")
# Every sandbox that this extension makes has this label, with the value "metaflow". It is found again by that.
LABEL = "px-sandbox"


@dataclass(frozen=True)
class Resources:
    """What a step asks for; None means the backend's own default."""

    cpu: float | None = None
    memory_mb: int | None = None
    gpu: int | None = None
    disk_mb: int | None = None


@dataclass(frozen=True)
class Network:
    """Whether a step may use the network, and which addresses, if ``only`` names any."""

    allowed: bool = True
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class SandboxConfig:
    """What a backend is told about the sandbox of a task.  Nothing here is secret: providers store it."""

    image: str | None = None
    sbx_id: str = ""
    """That of the project, if ``image`` is its image in a registry."""
    resources: Resources = field(default_factory=Resources)
    network: Network = field(default_factory=Network)
    labels: Mapping[str, str] = field(default_factory=dict)
    lease_seconds: int = 300
    create_seconds: int = 600


def task_labels(flow: str, run_id: str, step: str, task_id: str, attempt: int) -> dict[str, str]:
    """By these, the sandbox of a task is found again."""
    return {"flow": flow, "run": str(run_id), "step": step, "task": str(task_id), "attempt": str(attempt)}


@dataclass(frozen=True)
class LocalStep:
    """What the local backend must know about a step to put its tasks into sandboxes."""

    config: SandboxConfig
    time_limit: int
    """Seconds."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that the user gave to the step."""
    executable: str | None = None
    """The step's python, if it is not the sandbox's own."""
    has_own_packages: bool = False
    """Whether ``@pypi`` or ``@conda`` gives the step an environment of its own."""
    uses_secrets: bool = False


@dataclass(frozen=True)
class ExecResult:
    """How a command in a sandbox ended."""

    exit_code: int


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox that exists now."""

    backend: str
    sandbox_id: str
    state: str
    labels: Mapping[str, str]
    created_at: str = ""


class SandboxBackend(ABC):
    """What every backend can do: refuse what it cannot honour, list its sandboxes, end one."""

    name: str
    remote: bool
    """Whether steps run on another machine; they need a remote datastore and a code package then."""

    @abstractmethod
    def check(self, config: SandboxConfig) -> None:
        """Raise :class:`Unusable` for an option that this backend cannot honour.  Make no connection."""

    @abstractmethod
    def sandboxes(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """The sandboxes of this backend that have all of these labels."""

    @abstractmethod
    def destroy(self, sandbox_id: str) -> None:
        """End the sandbox.  It is no error if it is gone already."""


class RemoteBackend(SandboxBackend):
    """A provider.  It makes a sandbox, runs a script in it while the output is streamed, and destroys it.

    An instance may remember the sandboxes of one task.  Nothing is remembered from task to task.
    """

    remote = True
    provider: str
    """The provider's name as it is written in a sentence."""
    keys: tuple[str, ...]
    """Variables for the key of an account; one of them must be set."""
    takes_project = False
    """Whether ``create`` takes the project's image: a reference to a registry with a digest, and its ``sbx_id``."""
    wants_apt = False
    """Whether the provider installs programs of its own into that image, with apt."""

    @property
    def has_key(self) -> bool:
        return any(os.environ.get(name) for name in self.keys)

    @property
    def key_fix(self) -> str:
        return f"Set the key of your account: export {self.keys[0]}=…"

    def check(self, config: SandboxConfig) -> None:
        """Refuse what no provider can do.  A subclass adds its own refusals."""
        # Found but not imported, because that takes a second.
        if importlib.util.find_spec(self.name) is None:
            raise self.missing_sdk()
        if not self.has_key:
            raise Unusable(f"{self.provider} needs an API key, and {self.keys[0]} is not set.", fix=[self.key_fix])
        if not config.network.allowed:
            raise Unusable(
                "network=False would cut the step off from its datastore.",
                fix=['Allow only the addresses that the step needs: network="10.0.0.0/8,203.0.113.7/32"'],
            )

    def missing_sdk(self) -> Unusable:
        return Unusable(
            f"The backend {self.name} needs {self.provider}'s SDK, which is not installed.",
            fix=[f"Install it: pip install 'px-sandbox[{self.name}]'", self.key_fix],
        )

    @contextmanager
    def asking(self, action: str, sandbox_id: str | None = None) -> Iterator[None]:
        """Stand around every call of the SDK, and turn its exceptions into the errors that the executor knows."""
        try:
            yield
        except BackendError:
            raise
        except Exception as e:
            failure = self.failure(e, action, sandbox_id) or self._connection_failure(e, action)
            if failure is None:
                raise
            raise failure from None

    @abstractmethod
    def failure(self, error: Exception, action: str, sandbox_id: str | None) -> BackendError | None:
        """What an exception of the SDK means; None if it is not the SDK's."""

    def _connection_failure(self, error: Exception, action: str) -> Unavailable | None:
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            return Unavailable(f"{self.provider} could not be reached to {action}: {said}")
        if type(error).__module__.partition(".")[0] in TRANSPORTS:
            return Unavailable(f"The connection to {self.provider} broke while px tried to {action}: {said}")
        return None

    @abstractmethod
    def load(self) -> Any:
        """Import the SDK and return it.  Open no connection and start no thread: processes are forked after this."""

    @abstractmethod
    def create(self, config: SandboxConfig) -> str:
        """Make a sandbox and return its id."""

    @abstractmethod
    def exec_script(
        self, sandbox_id: str, script: str, *, on_stdout: Callable[[str], None], on_stderr: Callable[[str], None]
    ) -> ExecResult:
        """Run a bash script to its end.  Hand over each stream's output while the script runs."""

    @abstractmethod
    def upload(self, sandbox_id: str, content: bytes, remote_path: str) -> None:
        """Write a file into the sandbox."""

    @abstractmethod
    def download(self, sandbox_id: str, remote_path: str) -> bytes:
        """Read a file of the sandbox."""

    @abstractmethod
    def is_alive(self, sandbox_id: str) -> bool:
        """Ask the provider, not the sandbox, whether the sandbox still runs."""

    @abstractmethod
    def renew(self, sandbox_id: str, lease_seconds: int) -> None:
        """Let the sandbox live for this long from now on, unless it is renewed again."""
