"""What a sandbox backend is: the interface, the values that cross it, and the ways in which it can fail.

The lowest layer: it imports the standard library and nothing else.  Concrete backends subclass
:class:`RemoteBackend` (a provider, reached through its SDK) or :class:`SandboxBackend` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DOCS = "docs/reference/metaflow-configuration.md"
TRANSPORTS = ("httpx", "httpx_ws", "httpcore", "wsproto", "urllib3", "exceptiongroup", "connectrpc", "pyqwest")
"""Libraries below the SDKs, whose own errors the SDKs pass on when a connection breaks."""
LABEL = "px-sandbox"
"""Every sandbox made here carries this label with the value ``metaflow``, so that it can be found again."""


class BackendError(Exception):
    """A failure that a user can act on: what happened, and the command that fixes it."""

    def __init__(self, what: str, *, fix: Sequence[str] = (), read: str = DOCS):
        super().__init__(what)
        self.what = what
        self.fix = tuple(fix)
        self.read = read

    def __str__(self) -> str:
        lines = [self.what]
        if self.fix:
            lines += ["Fix:", *(f"  • {line}" for line in self.fix)]
        return "\n".join([*lines, f"Read: {self.read}"])


class Unusable(BackendError):
    """The configuration cannot work: an SDK, a key or a datastore is missing, or an option cannot be honoured."""


class Refused(BackendError):
    """The provider said no for good: asking again would get the same answer."""


class Unavailable(BackendError):
    """The provider or the way to it failed; the same request may succeed later."""

    def __init__(self, what: str, *, retry_after: float | None = None, fix: Sequence[str] = (), read: str = DOCS):
        super().__init__(what, fix=fix, read=read)
        self.retry_after = retry_after


class RateLimited(Unavailable):
    """The account has no room at this moment: for so many requests, or for one more sandbox."""


class SandboxGone(Unavailable):
    """The sandbox that was being used does not exist any more."""


@dataclass(frozen=True)
class Resources:
    """What a step asks for; None means the backend's own default."""

    cpu: float | None = None
    memory_mb: int | None = None
    gpu: int | None = None
    disk_mb: int | None = None


@dataclass(frozen=True)
class Network:
    """Whether a step may reach the network, and, where ``only`` is given, which addresses."""

    allowed: bool = True
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class SandboxConfig:
    """Everything that a provider is told when a sandbox is made.  Nothing here is secret: providers store it."""

    image: str | None = None
    resources: Resources = field(default_factory=Resources)
    network: Network = field(default_factory=Network)
    labels: Mapping[str, str] = field(default_factory=dict)
    lease_seconds: int = 300
    create_seconds: int = 600


@dataclass(frozen=True)
class ExecResult:
    """How a command in a sandbox ended."""

    exit_code: int

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox that exists now."""

    backend: str
    sandbox_id: str
    state: str
    labels: Mapping[str, str]
    created_at: str = ""


class SandboxBackend(ABC):
    """What every backend can do: say what it cannot honour, list what it made, end it."""

    name: str
    remote: bool
    """Whether steps run on somebody else's machine, and so need a remote datastore and a code package."""

    @abstractmethod
    def check(self, config: SandboxConfig) -> None:
        """Raise :class:`Unusable` for every option that this backend cannot honour.  Makes no connection."""

    @abstractmethod
    def sandboxes(self, labels: Mapping[str, str]) -> list[SandboxInfo]:
        """The sandboxes of this backend that carry all of ``labels``."""

    @abstractmethod
    def destroy(self, sandbox_id: str) -> None:
        """End the sandbox.  One that is gone already is not an error."""


class RemoteBackend(SandboxBackend):
    """A provider: a sandbox is made, a script runs in it with its output streamed, and it is destroyed.

    An instance may remember the handles of the sandboxes of one task; nothing survives a task.
    """

    remote = True
    provider: str
    """The provider's name as it is written in a sentence."""

    @contextmanager
    def asking(self, action: str, sandbox_id: str | None = None) -> Iterator[None]:
        """Around every call of the SDK: turns what it raises into the failures that the executor tells apart."""
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
        """What an error of the SDK means; None for one that is not the SDK's."""

    def _connection_failure(self, error: Exception, action: str) -> Unavailable | None:
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError):
            return Unavailable(f"{self.provider} could not be reached to {action}: {said}")
        if type(error).__module__.partition(".")[0] in TRANSPORTS:
            return Unavailable(f"The connection to {self.provider} broke while px tried to {action}: {said}")
        return None

    @abstractmethod
    def load(self) -> None:
        """Import the provider's SDK now, where nobody waits for it; raise :class:`Unusable` where it is missing."""

    @abstractmethod
    def create(self, config: SandboxConfig) -> str:
        """Make a sandbox and return its id."""

    @abstractmethod
    def exec_script(
        self,
        sandbox_id: str,
        script: str,
        *,
        on_stdout: Callable[[str], None],
        on_stderr: Callable[[str], None],
        timeout: float | None = None,
    ) -> ExecResult:
        """Run a bash script to its end, handing over what it writes as it is written, the two streams apart."""

    @abstractmethod
    def upload(self, sandbox_id: str, content: bytes, remote_path: str) -> None:
        """Put a file into the sandbox."""

    @abstractmethod
    def download(self, sandbox_id: str, remote_path: str) -> bytes:
        """Take a file out of the sandbox."""

    @abstractmethod
    def is_alive(self, sandbox_id: str) -> bool:
        """Ask the provider, not the sandbox, whether the sandbox still runs."""

    @abstractmethod
    def renew(self, sandbox_id: str, lease_seconds: int) -> None:
        """Let the sandbox live for this long from now on, unless it is renewed again."""
