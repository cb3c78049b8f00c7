"""Users and groups: those of Debian's base-passwd, and the user that sandboxes run as."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

USER, UID, HOME = "px", 1000, "/home/px"
# shadow(5): "*" is a password that nothing matches.  Then comes the date of the last change, which is empty: the
# real tools write today's date, and every build would differ.
_LOCKED = "*::0:99999:7:::"


def accounts(image: Image, _: Sequence[Unpacked]) -> None:
    """Write ``/etc/passwd``, ``group``, ``shadow`` and ``gshadow``, with a user of uid 1000.

    Programs look up their own user: libpq, git and Python's getpass fail if the uid has no name.
    """
    users = _shadowed(image.read("usr/share/base-passwd/passwd.master"))
    groups = _shadowed(image.read("usr/share/base-passwd/group.master"))
    # The same number for user and group: an image that is started with 1000:1000 finds both names.
    users.append(f"{USER}:x:{UID}:{UID}::{HOME}:/bin/bash")
    groups.append(f"{USER}:x:{UID}:")
    image.file("etc/passwd", _lines(users))
    image.file("etc/group", _lines(groups))
    image.file("etc/shadow", _lines([f"{_name(row)}:{_LOCKED}" for row in users]), 0o640)
    image.file("etc/gshadow", _lines([f"{_name(row)}:*::{row.rpartition(':')[2]}" for row in groups]), 0o640)
    image.directory(HOME.lstrip("/"))


def _shadowed(master: bytes) -> list[str]:
    """The rows of a master file with "x" as the password: as after ``shadowconfig on``, it is in the shadow file."""
    rows = []
    for line in master.decode("ascii").splitlines():
        name, _, rest = line.split(":", 2)
        rows.append(f"{name}:x:{rest}")
    return rows


def _name(row: str) -> str:
    return row.partition(":")[0]


def _lines(rows: Sequence[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode("ascii")
