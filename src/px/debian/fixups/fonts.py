"""Font configuration: the two links that fontconfig-config's questions lead to when nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

_AVAILABLE = "usr/share/fontconfig/conf.avail"
_CHOSEN = ("10-hinting-slight.conf", "11-lcdfilter-default.conf")


def fonts(image: Image, packages: Sequence[Unpacked]) -> None:
    """Slight hinting and the default LCD filter; without them text is rendered unlike on any Debian."""
    if not any(u.package.name == "fontconfig-config" for u in packages):
        return
    for name in _CHOSEN:
        if f"{_AVAILABLE}/{name}" in image:
            image.link(f"etc/fonts/conf.d/{name}", f"../../../{_AVAILABLE}/{name}")
