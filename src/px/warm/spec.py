"""What is to be run, said once for every engine: a frozen :class:`RunSpec`.

:class:`Frozen` is what a frozen dataclass is elsewhere in px; the rule of this folder says why it is not one here.
Paths are text for the same reason.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from pathlib import Path
    from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

    AnyPath = str | PathLike[str]
else:

    def dataclass_transform(**_):
        return lambda cls: cls


# Where things lie in every sandbox and every image; nothing else in px spells these paths.
APP = "/app"
"""The working tree."""
ENV = "/opt/px/env"
"""The project's packages, a virtual environment."""
PYTHON = "/opt/px/python"
"""An interpreter that is not the base's own."""
SOURCES = "/opt/px/src"
"""Projects beside this one that it has as editable dependencies."""
HOME = "/home/px"
PROGRAMS = (f"{ENV}/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
PATH = ":".join((*PROGRAMS, "/sbin", "/bin"))


@dataclass_transform(frozen_default=True)
class Frozen:
    """A base class: the annotations of a subclass are its fields, and its class attributes are their defaults."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = (*cls._fields, *cls.__annotations__)

    def __init__(self, *values: Any, **named: Any):
        fields = self._fields
        given = {**dict(zip(fields, values, strict=False)), **named}
        missing = [f for f in fields if f not in given and not hasattr(type(self), f)]
        if missing or len(given) != len(values) + len(named) or not given.keys() <= set(fields):
            raise TypeError(f"{type(self).__name__} has the fields {fields}, not {(*values, *named)}")
        self.__dict__.update(given)

    def replace(self, **changes: Any) -> Self:
        """The same but for these fields."""
        return type(self)(**{**self.__dict__, **changes})

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field) for field in self._fields)

    def as_json(self) -> dict[str, Any]:
        """Every field by its name, for a file."""
        return dict(zip(self._fields, self._values(), strict=True))

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        """What :meth:`as_json` gave, read back from a file: JSON has lists where the fields have tuples."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()})

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: it is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be removed: it is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self._values(), strict=True))
        return f"{type(self).__name__}({fields})"


class Mount(Frozen):
    """A file or directory of the host that the sandbox sees."""

    source: AnyPath
    target: str
    read_only: bool = False
    own: bool = False
    """Whether px added it, for a place in another mount.  If there is nothing, or a link, then nothing is mounted."""
    over: AnyPath | None = None
    """A directory whose files lie over the source's.  What is written then stays in memory, and the source as it is."""


class DataFile(Frozen):
    """A small read-only file that px makes for the sandbox."""

    target: str
    content: bytes


class Limits(Frozen):
    """Bounds for the whole sandbox; None is no bound."""

    memory: int | None = None
    """Bytes of memory, page cache and private temporary files included, swap excluded."""
    cpus: float | None = None
    pids: int | None = None

    def __bool__(self) -> bool:
        return (self.memory, self.cpus, self.pids) != (None, None, None)


class User(Frozen):
    """Who the target is inside; outside it is always the caller."""

    uid: int = 1000
    gid: int = 1000
    name: str = "px"


class ImageSource(Frozen):
    """The packed image, for engines that cannot run unpacked layers; made only when such an engine asks."""

    names: tuple[str, ...]
    """What the client may know it by: ``sha256:…`` of the configuration, which docker and podman call the image's
    id, and of the manifest, which newer dockers do.  If the client has either, nothing is loaded."""
    archive: Callable[[], Path]
    """Write the image if need be, and say where: an archive that ``docker load`` takes."""


class Reach(Frozen):
    """What a sandbox with a network of its own may reach, and what of it can be reached, through a relay."""

    allow: tuple[str, ...] = ()
    """Hosts and ports (:mod:`px.engines.network.rules`)."""
    publish: tuple[str, ...] = ()
    """Ports of this machine that lead inside: ``[HOST:]PORT[:INSIDE]``."""


class RunSpec(Frozen):
    """One run of one target, complete: an engine adds nothing of the host to it."""

    layers: tuple[AnyPath, ...]
    """Directories with unpacked read-only trees, lowest first."""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = APP
    mounts: tuple[Mount, ...] = ()
    hidden: tuple[str, ...] = ()
    """Directories in the sandbox over which an empty one lies; they exist."""
    files: tuple[DataFile, ...] = ()
    network: bool = True
    """Whether the target has the network of the host, or of the engine."""
    reach: Reach | None = None
    """If it has not: what it has instead of nothing."""
    limits: Limits = Limits()
    tty: bool = False
    """Whether the target shares the caller's terminal."""
    hostname: str = "sandbox"
    user: User = User()
    home: str = HOME
    read_only_root: bool = False
    label: str = ""
    """Something by which the run can be recognised: an image's sbx_id."""
    image: ImageSource | None = None
    devices: tuple[str, ...] = ()
    """Device nodes of this machine, each in the same place inside; for bubblewrap."""
    gpus: tuple[str, ...] = ()
    """Names of GPUs, or ``all``, for an engine that finds them itself."""
    extra_ca: AnyPath | None = None
    """Certificates that the target shall trust beside the image's own."""
