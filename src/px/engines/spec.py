"""What is to be run, said once for every engine: a frozen :class:`RunSpec`, and the Protocol that takes it.

Paths may be text: on the warm path :mod:`pathlib` is not even imported.
"""

from __future__ import annotations

from px.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from pathlib import Path
    from typing import NoReturn, Protocol

    AnyPath = str | PathLike[str]
else:
    Protocol = object


class Mount(Record):
    """A file or directory of the host that the sandbox sees."""

    source: AnyPath
    target: str
    read_only: bool = False


class DataFile(Record):
    """A small read-only file that px makes for the sandbox."""

    target: str
    content: bytes


class Limits(Record):
    """Bounds for the whole sandbox; None is no bound."""

    memory: int | None = None
    """Bytes of memory, page cache and private temporary files included, swap excluded."""
    cpus: float | None = None
    pids: int | None = None

    def __bool__(self) -> bool:
        return (self.memory, self.cpus, self.pids) != (None, None, None)


class User(Record):
    """Who the target is inside; outside it is always the caller."""

    uid: int = 1000
    gid: int = 1000
    name: str = "px"


class ImageSource(Record):
    """The packed image for engines that cannot run unpacked layers; made only when such an engine asks."""

    names: tuple[str, ...]
    """What the client may know it by: ``sha256:…`` of the configuration, which docker and podman call the image's
    id, and of the manifest, which newer dockers do.  If the client has either, nothing is loaded."""
    archive: Callable[[], Path]
    """Write the image if need be, and say where: an archive that ``docker load`` takes."""


class RunSpec(Record):
    """One run of one target, complete: an engine adds nothing of the host to it."""

    layers: tuple[AnyPath, ...]
    """Directories with unpacked read-only trees, lowest first."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = "/app"
    mounts: tuple[Mount, ...] = ()
    files: tuple[DataFile, ...] = ()
    network: bool = True
    limits: Limits = Limits()
    tty: bool = False
    """Whether the target shares the caller's terminal."""
    hostname: str = "sandbox"
    user: User = User()
    home: str = "/home/px"
    read_only_root: bool = False
    label: str = ""
    """Something by which the run can be recognised: an image's sbx_id."""
    image: ImageSource | None = None
    extra_ca: AnyPath | None = None
    """Certificates that the target shall trust beside the image's own."""


class Problem(Record):
    """Why an engine does not work here, and what would change that."""

    reason: str
    fix: tuple[str, ...]


class Engine(Protocol):
    """Something that can run a :class:`RunSpec`."""

    name: str

    def problem(self) -> Problem | None:
        """Why this engine does not work on this machine; None when it does.  Asked once per process."""

    def run(
        self,
        spec: RunSpec,
        *,
        stdin: int | None = None,
        stdout: int | Callable[[bytes], None] | None = None,
        stderr: int | Callable[[bytes], None] | None = None,
    ) -> int:
        """Run to the end; the target's exit code, or 128 + n when signal n ended it.

        A stream is a descriptor, or a function that gets each piece as it comes, or None for px's own.
        """

    def exec(self, spec: RunSpec) -> NoReturn:
        """Run as the last thing that this process does, and exit as the target did."""
