"""Font configuration: the links that fontconfig-config makes if nobody answers its questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

_AVAILABLE = "usr/share/fontconfig/conf.avail"
# Of each group, the first file that the release has.  debian-13 allows bitmaps for colour emoji.
_CHOSEN = (
    ("10-hinting-slight.conf",),
    ("11-lcdfilter-default.conf",),
    ("70-no-bitmaps-except-emoji.conf", "70-no-bitmaps.conf"),
)


def fonts(image: Image, packages: Sequence[Unpacked]) -> None:
    """Choose slight hinting, the default LCD filter and no bitmap fonts.

    Without these links text in pictures would look different from text on a Debian system.
    """
    if not any(u.package.name == "fontconfig-config" for u in packages):
        return
    for names in _CHOSEN:
        name = next((n for n in names if f"{_AVAILABLE}/{n}" in image), None)
        if name is not None:
            image.link(f"etc/fonts/conf.d/{name}", f"/{_AVAILABLE}/{name}")
