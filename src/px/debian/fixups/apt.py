"""What apt needs around it: PAM's common files, and small files that the scripts of login and ucf make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.debian.deb822 import parse_stanza

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

# Package, file and mode.  They begin empty: useradd, PAM and ucf write to them.
_EMPTY = (
    ("login", "etc/subuid", 0o644),
    ("login", "etc/subgid", 0o644),
    ("libpam-runtime", "etc/security/opasswd", 0o600),
    ("libpam-runtime", "etc/environment", 0o644),
    ("ucf", "var/lib/ucf/hashfile", 0o644),
    ("ucf", "var/lib/ucf/registry", 0o644),
)
PROFILES, TEMPLATES, STATE = "usr/share/pam-configs", "usr/share/pam", "var/lib/pam"
# The files, the word of their variables, and the kind of their modules.
_FILES = (
    ("account", "account", "account"),
    ("auth", "auth", "auth"),
    ("password", "password", "password"),
    ("session", "session", "session"),
    ("session-noninteractive", "session_nonint", "session"),
)
_NOTHING = "[default=1]\t\t\tpam_permit.so"


def empty_files(image: Image, packages: Sequence[Unpacked]) -> None:
    """Make the files that must exist before apt can install more.  A layer without these packages stays as it is."""
    names = {u.package.name for u in packages}
    for name, path, mode in _EMPTY:
        if name in names and path not in image:
            image.file(path, b"", mode)


def pam(image: Image, packages: Sequence[Unpacked]) -> None:
    """Write ``/etc/pam.d/common-*`` as ``pam-auth-update`` does, and what it remembers of them.

    libpam-runtime has two profiles.  Only ``unix`` is on by default, and it has one module of each kind.
    """
    if "libpam-runtime" not in {u.package.name for u in packages}:
        return
    profile = parse_stanza(image.read(f"{PROFILES}/unix").decode("ascii"))
    for name, variable, kind in _FILES:
        module = profile[f"{kind.capitalize()}-Initial"].strip()
        is_primary = profile[f"{kind.capitalize()}-Type"] == "Primary"
        # A block that has no module lets PAM go on behind the refusal that follows it.
        primary = _line(kind, module) if is_primary else f"{kind}\t{_NOTHING}\n"
        text = image.read(f"{TEMPLATES}/common-{name}").decode("ascii")
        text = text.replace(f"${variable}_primary\n", primary)
        text = text.replace(f"${variable}_additional\n", "" if is_primary else _line(kind, module))
        image.file(f"etc/pam.d/common-{name}", text.encode())
        nothing = "" if is_primary else f"Module: null\n{_NOTHING}\n"
        image.file(f"{STATE}/{name}", f"{nothing}Module: unix\n{module}\n".encode())
    image.file(f"{STATE}/seen", b"unix\nmkhomedir\n")


def _line(kind: str, module: str) -> str:
    # The real tool writes a space before the options, even if there are none.
    options = "" if module.partition(".so")[2] else " "
    return f"{kind}\t{module.replace('success=end', 'success=1')}{options}\n"
