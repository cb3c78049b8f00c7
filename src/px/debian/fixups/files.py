"""Small files and directories that packages create in their postinst."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

# Templates that a postinst copies if the file does not exist yet.
_DEFAULTS = (
    ("usr/share/base-files/dot.profile", "root/.profile"),
    ("usr/share/base-files/dot.bashrc", "root/.bashrc"),
    ("usr/share/base-files/profile", "etc/profile"),
    ("usr/share/base-files/motd", "etc/motd"),
    ("usr/share/libc-bin/nsswitch.conf", "etc/nsswitch.conf"),
    ("usr/share/readline/inputrc", "etc/inputrc"),
)
# Directories that base-files makes, with their modes.
_DIRECTORIES = (
    *(("mnt", 0o755), ("srv", 0o755), ("opt", 0o755), ("etc/opt", 0o755), ("var/opt", 0o755), ("media", 0o755)),
    *(("var/mail", 0o775), ("run/lock", 0o1777), ("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700)),
)
_LOCAL = ("bin", "etc", "games", "include", "lib", "sbin", "share/man", "src")
_HOSTS = b"127.0.0.1\tlocalhost\n::1\t\tlocalhost ip6-localhost ip6-loopback\nff02::1\t\tip6-allnodes\n"
_HOSTS += b"ff02::2\t\tip6-allrouters\n\n"
_NETWORKS = b"default\t\t0.0.0.0\nloopback\t127.0.0.0\nlink-local\t169.254.0.0\n\n"
_PYTHON = b"[DEFAULT]\n# how to byte-compile (comma separated: standard, optimize)\nbyte-compile = standard\n"


def base_files(image: Image, _: Sequence[Unpacked]) -> None:
    """Make the default files and directories of base-files, libc-bin and readline-common."""
    for source, destination in _DEFAULTS:
        if source in image and destination not in image:
            image.file(destination, image.read(source))
    for path, mode in _DIRECTORIES:
        image.directory(path, mode)
    for path, target in (("var/run", "/run"), ("var/lock", "/run/lock"), ("var/spool/mail", "../mail")):
        _link_directory(image, path, target)
    image.link("etc/dpkg/origins/default", "debian")


def _link_directory(image: Image, path: str, target: str) -> None:
    # A package may have an empty directory in this place.
    found = image.entry(image.place(path))
    if found is not None and found[0] == "d":
        image.writer.remove_directory(image.place(path))
    image.link(path, target)


def shells(image: Image, _: Sequence[Unpacked]) -> None:
    """Write ``/etc/shells`` as ``update-shells`` does: debianutils' template, then the shells of packages.

    Each shell is listed by the name that its package gives and by its real path (``/bin/sh`` and ``/usr/bin/sh``).
    """
    template = image.read("usr/share/debianutils/shells").decode("ascii")
    known = [line for line in template.splitlines() if line and not line.startswith("#")]
    packaged = [f"usr/share/debianutils/shells.d/{n}" for n in image.listing("usr/share/debianutils/shells.d")]
    sources = ("usr/share/debianutils/shells", *packaged)
    wanted = list(dict.fromkeys(shell for path in sources for shell in _packaged_shells(image, path)))
    added = [shell for shell in wanted if shell not in known]
    image.file("etc/shells", (template + "".join(f"{shell}\n" for shell in added)).encode("ascii"))
    image.file("var/lib/shells.state", "".join(f"{shell}\n" for shell in wanted).encode("ascii"))


def _packaged_shells(image: Image, path: str) -> Iterator[str]:
    for line in image.read(path).decode("ascii").splitlines():
        shell = line.partition("#")[0]
        if shell:
            yield shell
            yield "/" + image.place(shell.lstrip("/"))


def hosts(image: Image, _: Sequence[Unpacked]) -> None:
    """Write ``/etc/hosts`` and ``/etc/networks`` as netbase does."""
    image.file("etc/hosts", _HOSTS)
    image.file("etc/networks", _NETWORKS)


def time_zone(image: Image, _: Sequence[Unpacked]) -> None:
    """Set the time zone to UTC, as tzdata does if nobody answers its question."""
    image.link("etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
    image.file("etc/timezone", b"Etc/UTC\n")


def locale(image: Image, _: Sequence[Unpacked]) -> None:
    """Make C.UTF-8 the default locale.  It is the only UTF-8 locale that glibc has without the package locales."""
    image.file("etc/default/locale", b"LANG=C.UTF-8\n")


def local_directories(image: Image, packages: Sequence[Unpacked]) -> None:
    """Make the empty directories of ``/usr/local`` that base-files and python make."""
    for path in _LOCAL:
        image.directory(f"usr/local/{path}")
    image.link("usr/local/man", "share/man")
    for name in sorted(u.package.name for u in packages):
        if name.startswith("python3.") and name.endswith("-minimal"):
            image.directory(f"usr/local/lib/{name.removesuffix('-minimal')}/dist-packages")


def python_config(image: Image, _: Sequence[Unpacked]) -> None:
    """Write ``/etc/python3/debian_config`` as python3 does.  Debian's own tools read it."""
    image.file("etc/python3/debian_config", _PYTHON)


def mount_points(image: Image, _: Sequence[Unpacked]) -> None:
    """Make the directories and files over which an engine mounts.  It cannot make them: the tree is read-only."""
    for path, mode in (("app", 0o755), ("dev", 0o755), ("proc", 0o555), ("sys", 0o555), ("run", 0o755)):
        image.directory(path, mode)
    # A file can be mounted only over a file.
    for path in ("etc/resolv.conf", "etc/hostname"):
        image.file(path, b"")
