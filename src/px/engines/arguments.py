"""From a :class:`RunSpec` to bubblewrap's arguments.

Everything but the target itself goes through ``--args FD``, so that neither ``ps`` on the host nor
``/proc/1/cmdline`` in the sandbox shows variables and paths.  The order matters: bubblewrap performs its operations
one after the other, and a later mount covers an earlier one.
"""

from __future__ import annotations

import os

from px.engines import hostfiles
from px.engines.paths import Resolver
from px.errors import PxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from px.engines.spec import RunSpec

DATA = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data")
INIT = "/dev/px-init"

# What OCI runtimes hide or make read-only, and what only the host's root could use: when px runs as root, the
# sandbox's user is root to the host's file permissions, though without any capability.
READ_ONLY_PROC = ("bus", "fs", "irq", "pressure", "sys", "sysrq-trigger")
HIDDEN_PROC_FILES = (
    *("interrupts", "kcore", "key-users", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags"),
    *("latency_stats", "mtrr", "pagetypeinfo", "sched_debug", "slabinfo", "timer_list", "timer_stats", "vmallocinfo"),
)
HIDDEN_PROC_DIRECTORIES = ("acpi", "asound", "scsi")

# Of /sys the sandbox gets what libraries read to find out about processors and memory pages, and nothing else.
SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage")

# The kernel takes one page of options for a mount, and bubblewrap puts all layers into one.
LONGEST_OVERLAY = 3900


class Descriptors:
    """Descriptors that bubblewrap inherits, closed here when it has them."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def add(self, fd: int) -> str:
        self.fds.append(fd)
        return str(fd)

    def data(self, name: str, content: bytes) -> str:
        fd = os.memfd_create(name)
        while content:
            content = content[os.write(fd, content) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return self.add(fd)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


def command(spec: RunSpec, fds: Descriptors, *, channel: int, persistent: bool = False) -> list[str]:
    """The arguments after ``bwrap``; ``channel`` is px-init's tie to this process."""
    options = list(_options(spec, fds, persistent=persistent))
    packed = b"".join(os.fsencode(option) + b"\0" for option in options)
    target = [] if persistent else list(spec.argv)
    return ["--args", fds.data("px-arguments", packed), "--", INIT, str(channel), *target]


def _options(spec: RunSpec, fds: Descriptors, *, persistent: bool) -> Iterator[str]:
    place = Resolver(spec.layers).resolve
    yield from _namespaces(spec, persistent=persistent)
    yield from _root(spec)
    yield from _kernel_file_systems()
    # A store's trees are read-only on disk, so what must be writable is mounted.
    for mode, path in (("1777", "/tmp"), ("1777", "/var/tmp"), ("0755", "/run"), ("0700", spec.home)):  # noqa: S108
        yield from ("--perms", mode, "--tmpfs", place(path))
    for file in hostfiles.all_files(spec):
        yield from ("--perms", "0644", "--file", fds.data("px-file", file.content), place(file.target))
    for mount in spec.mounts:
        option = "--ro-bind" if mount.read_only else "--bind"
        yield from (option, os.fspath(mount.source), place(mount.target))
    yield from ("--ro-bind", f"{DATA}/init/{os.uname().machine}", INIT)
    if spec.read_only_root:
        yield from ("--remount-ro", "/")
    yield "--clearenv"
    for name, value in hostfiles.environment(spec).items():
        yield from ("--setenv", name, value)
    yield from ("--chdir", spec.cwd)
    yield from ("--seccomp", fds.add(os.open(f"{DATA}/seccomp/{os.uname().machine}.bpf", os.O_RDONLY)))


def _namespaces(spec: RunSpec, *, persistent: bool) -> Iterator[str]:
    # With the user namespace named outright, a machine that cannot make one is an error, not a weaker sandbox.
    yield from ("--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--cap-drop", "ALL")
    yield from ("--uid", str(spec.user.uid), "--gid", str(spec.user.gid), "--hostname", spec.hostname)
    if spec.network:
        yield "--share-net"
    if not persistent:
        # A second tie beside px-init's channel.  It follows the thread that started bubblewrap, so a session,
        # which any thread of a server may start, relies on the channel alone.
        yield "--die-with-parent"
    if not spec.tty:
        yield "--new-session"


def _root(spec: RunSpec) -> Iterator[str]:
    if not spec.layers:
        raise PxError("PX906", engine="bubblewrap", problem="the sandbox has no layers")
    if sum(len(os.fsencode(layer)) + len("/oldroot:") for layer in spec.layers) > LONGEST_OVERLAY:
        problem = f"{len(spec.layers)} layers with paths as long as {spec.layers[0]} do not fit into one overlay mount"
        raise PxError(
            "PX906", engine="bubblewrap", problem=problem, fix=["Use a shorter PX_HOME: export PX_HOME=/var/tmp/px"]
        )
    for layer in spec.layers:
        yield from ("--overlay-src", os.fspath(layer))
    yield from ("--tmp-overlay", "/")


def _kernel_file_systems() -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev")
    for path in _reachable(READ_ONLY_PROC, os.F_OK):
        yield from ("--ro-bind", path, path)
    for path in _reachable(HIDDEN_PROC_FILES, os.R_OK):
        yield from ("--dev-bind", "/dev/null", path)
    for path in _reachable(HIDDEN_PROC_DIRECTORIES, os.F_OK):
        yield from ("--tmpfs", path, "--remount-ro", path)
    yield from ("--tmpfs", "/sys")
    for path in SYS:
        yield from ("--ro-bind-try", path, path)
    yield from ("--remount-ro", "/sys")


def _reachable(names: Iterable[str], mode: int) -> list[str]:
    # The sandbox's user has the caller's rights to files and no more, so what the caller cannot open needs no mount.
    return [f"/proc/{name}" for name in names if os.access(f"/proc/{name}", mode)]
