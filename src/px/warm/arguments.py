"""From a :class:`RunSpec` to bubblewrap's arguments.

Everything but the target itself goes through ``--args FD``, so that neither ``ps`` on the host nor
``/proc/1/cmdline`` in the sandbox shows variables and paths.  The order matters: bubblewrap performs its operations
one after the other, and a later mount covers an earlier one.
"""

from __future__ import annotations

import os
import stat

from px import DATA
from px.warm.links import Layers
from px.warm.spec import DataFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from px.warm.spec import Mount, RunSpec

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

EXTRA_CA = "/run/px-ca.pem"
# OpenSSL and Python; requests; curl; git; pip; node.  Each replaces its whole set, so the file holds both.
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")
NODE_CA_VARIABLE = "NODE_EXTRA_CA_CERTS"
IMAGE_CA = ("etc/ssl/certs/ca-certificates.crt", "etc/ssl/cert.pem")
RESOLVER = "198.18.0.1"
"""Where the relay of a limited network answers names (:mod:`px.engines.network`)."""
_LOCAL_HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


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


def command(
    spec: RunSpec, fds: Descriptors, *, channel: int, persistent: bool = False, terminal: bool = False
) -> list[str]:
    """The arguments after ``bwrap``; ``channel`` is px-init's tie to this process.

    With ``terminal`` px-init makes one for the target; then the target is in none of the caller's sessions.
    """
    options = list(_options(spec.replace(tty=False) if terminal else spec, fds, persistent=persistent))
    packed = b"".join(os.fsencode(option) + b"\0" for option in options)
    target = [] if persistent else list(spec.argv)
    tie = f"{channel}t" if terminal else str(channel)
    return ["--args", fds.data("px-arguments", packed), "--", INIT, tie, *target]


def _options(spec: RunSpec, fds: Descriptors, *, persistent: bool) -> Iterator[str]:
    place = Layers(spec.layers).resolve
    yield from _namespaces(spec, persistent=persistent)
    yield from _root(spec)
    yield from _kernel_file_systems()
    # A store's trees are read-only on disk, so what must be writable is mounted.
    for mode, path in (("1777", "/tmp"), ("1777", "/var/tmp"), ("0755", "/run"), ("0700", spec.home)):  # noqa: S108
        yield from ("--perms", mode, "--tmpfs", place(path))
    for node in spec.devices:
        yield from ("--dev-bind", node, node)
    for file in files(spec):
        yield from ("--perms", "0644", "--file", fds.data("px-file", file.content), place(file.target))
    for mount in spec.mounts:
        yield from _mount(mount, place(mount.target), fds)
    for path in map(place, spec.hidden):
        yield from ("--perms", "0555", "--tmpfs", path, "--remount-ro", path)
    yield from ("--ro-bind", f"{DATA}/init/{os.uname().machine}", INIT)
    if spec.read_only_root:
        yield from ("--remount-ro", "/")
    yield "--clearenv"
    for name, value in environment(spec).items():
        yield from ("--setenv", name, value)
    yield from ("--chdir", spec.cwd)
    yield from ("--seccomp", fds.add(os.open(f"{DATA}/seccomp/{os.uname().machine}.bpf", os.O_RDONLY)))


def _mount(mount: Mount, target: str, fds: Descriptors) -> Iterator[str]:
    if mount.over is not None:
        yield from ("--overlay-src", os.fspath(mount.source), "--overlay-src", os.fspath(mount.over))
        yield from ("--tmp-overlay", target)
        return
    option = "--ro-bind" if mount.read_only else "--bind"
    if not mount.own:
        yield from (option, os.fspath(mount.source), target)
        return
    try:
        fd = os.open(mount.source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # there is nothing to protect
    # By the descriptor: what was a directory a moment ago could be a link to the host's files by now.
    if os.readlink(f"/proc/self/fd/{fd}") == os.fspath(mount.source) and not stat.S_ISLNK(os.fstat(fd).st_mode):
        yield from (f"{option}-fd", fds.add(fd), target)
    else:
        os.close(fd)


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
    if not spec.layers or sum(len(os.fsencode(layer)) + len("/oldroot:") for layer in spec.layers) > LONGEST_OVERLAY:
        raise _no_root(spec)
    for layer in spec.layers:
        yield from ("--overlay-src", os.fspath(layer))
    yield from ("--tmp-overlay", "/")


def _no_root(spec: RunSpec) -> Exception:
    from px.errors import PxError

    if not spec.layers:
        return PxError("PX906", engine="bubblewrap", problem="the sandbox has no layers")
    problem = f"{len(spec.layers)} layers with paths as long as {spec.layers[0]} do not fit into one overlay mount"
    fix = ["Use a shorter PX_HOME: export PX_HOME=/var/tmp/px"]
    return PxError("PX906", engine="bubblewrap", problem=problem, fix=fix)


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


# --- files and variables ---------------------------------------------------------------------------------------


def files(spec: RunSpec) -> Iterator[DataFile]:
    yield from network_files(spec)
    yield from trust_files(spec)
    yield from spec.files


def trust_files(spec: RunSpec) -> Iterator[DataFile]:
    if spec.extra_ca is not None:
        yield DataFile(EXTRA_CA, _trusted(spec))


def network_files(spec: RunSpec) -> Iterator[DataFile]:
    own = f"127.0.1.1\t{spec.hostname}\n".encode()
    yield DataFile("/etc/hostname", f"{spec.hostname}\n".encode())
    known = (_read("/etc/hosts") if spec.network else b"") or _LOCAL_HOSTS
    yield DataFile("/etc/hosts", known.rstrip(b"\n") + b"\n" + own)
    if spec.network:
        yield DataFile("/etc/resolv.conf", _read("/etc/resolv.conf"))
    elif spec.reach is not None:
        yield DataFile("/etc/resolv.conf", f"nameserver {RESOLVER}\n".encode())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def _trusted(spec: RunSpec) -> bytes:
    """The image's certificates and the extra ones in one file."""
    from pathlib import Path

    extra = Path(spec.extra_ca).read_bytes() if spec.extra_ca is not None else b""
    for layer in map(Path, reversed(spec.layers)):
        for name in IMAGE_CA:
            path = (layer / name).resolve()
            # A link in an image may point out of it, which on this side means to the host's files.
            if path.is_relative_to(layer.resolve()) and path.is_file():
                return path.read_bytes().rstrip() + b"\n" + extra
    return extra


def environment(spec: RunSpec) -> dict[str, str]:
    """The target's variables; those that name certificates only where the caller has not set them."""
    if spec.extra_ca is None:
        return dict(spec.env)
    trust = dict.fromkeys((*CA_VARIABLES, NODE_CA_VARIABLE), EXTRA_CA)
    return {**trust, **spec.env}
