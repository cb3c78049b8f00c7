"""An archive that has the packages by which px's Alpine base starts, with programs that were made for the test.

The names and the format are Alpine's.  What is in the packages is Debian's: a static busybox, and musl, CPython and
a small C compiler that were built from Debian's sources (:mod:`tests.support.musl`).
"""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from tests.support.alpine import Repository
from tests.support.debian import TarMember, tar_member

LIBC = "so:libc.musl-x86_64.so.1"
LOADER = "lib/ld-musl-x86_64.so.1"
# Packages of the base and of the compiler set that the project of the test does not use.
_EMPTY = (
    "alpine-release", "ca-certificates-bundle", "libgcc", "libstdc++", "linux-headers", "mailcap", "musl-utils",
    "patch", "pkgconf", "tzdata",
)  # fmt: skip


def make_archive(directory: Path, made: Path) -> Repository:
    """A signed repository; ``made`` has the programs for musl."""
    found = Repository(directory)
    for name in _EMPTY:
        found.add(name, [])
    found.add("musl", _musl(made / "musl"), version="1.2.5-r0", provides=f"{LIBC}=1")
    found.add("musl-dev", _musl_dev(made / "musl"), version="1.2.5-r0", depends="musl=1.2.5-r0")
    found.add("busybox", _busybox())
    found.add("busybox-binsh", [_link("bin/sh", "/bin/busybox")], depends="busybox", provides="/bin/sh")
    found.add("alpine-baselayout", _directories("bin", "lib", "sbin", "usr/bin", "usr/sbin", "var/tmp"))
    found.add("alpine-baselayout-data", _data())
    python = tree(made / "python")
    headers = [m for m in python if m[0].name.startswith("usr/include/")]
    found.add("python3", [m for m in python if m not in headers], version="3.11.2-r0", depends=f"{LIBC} /bin/sh")
    found.add("python3-dev", headers, version="3.11.2-r0", depends="python3=3.11.2-r0")
    found.add("gcc", tree(made / "compiler"), depends=LIBC)
    found.add("build-base", [], depends="gcc musl-dev")
    return found


def tree(root: Path) -> list[TarMember]:
    """Everything below a directory, as members of a package."""
    found = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found.append(_link(name, str(path.readlink())))
        elif path.is_dir():
            found.append(tar_member(name, kind=tarfile.DIRTYPE, mode=0o755))
        else:
            found.append(tar_member(name, path.read_bytes(), mode=0o755 if path.stat().st_mode & 0o100 else 0o644))
    return found


def _musl(made: Path) -> list[TarMember]:
    loader = tar_member(LOADER, (made / "usr/lib/libc.so").read_bytes(), mode=0o755)
    return [loader, _link("lib/libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1")]


def _musl_dev(made: Path) -> list[TarMember]:
    library = _link("usr/lib/libc.so", f"/{LOADER}")
    return [*(m for m in tree(made) if m[0].name not in (LOADER, library[0].name)), library]


def _busybox() -> list[TarMember]:
    program = Path("/bin/busybox")
    listed = subprocess.run([program, "--list-full"], check=True, capture_output=True).stdout
    return [
        tar_member("bin/busybox", program.read_bytes(), mode=0o755),
        tar_member("etc/busybox-paths.d/busybox", b"".join(b"/%b\n" % line for line in listed.splitlines())),
    ]


def _data() -> list[TarMember]:
    return [
        tar_member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
        tar_member("etc/group", b"root:x:0:\n"),
        tar_member("etc/shadow", b"root:*::0:::::\n", mode=0o640),
        tar_member("usr/lib/os-release", b'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.20.0\n'),
        tar_member("tmp", kind=tarfile.DIRTYPE, mode=0o1777),
    ]


def _directories(*names: str) -> list[TarMember]:
    return [tar_member(name, kind=tarfile.DIRTYPE, mode=0o755) for name in names]


def _link(name: str, to: str) -> TarMember:
    return tar_member(name, kind=tarfile.SYMTYPE, to=to, mode=0o777)
