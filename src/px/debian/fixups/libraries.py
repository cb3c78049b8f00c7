"""Plugin lists and default settings of libraries that capabilities bring.

The lists come from tools that load every plugin; what they print does not change within a Debian release,
so it is kept in ``data/plugins`` and cut down to the plugins that the image has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

_LISTS = Path(__file__).parents[2] / "data" / "plugins"
_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")


def _has(packages: Sequence[Unpacked], name: str) -> bool:
    return any(u.package.name == name for u in packages)


def graphviz_plugins(image: Image, packages: Sequence[Unpacked]) -> None:
    """``config6a``, without which dot knows no layout and no output format."""
    if not _has(packages, "libgvc6"):
        return
    head, *plugins = re.split(r"(?m)^(?=libgvplugin)", (_LISTS / "graphviz-config6a").read_text(encoding="ascii"))
    for triplet in _TRIPLETS:
        directory = f"usr/lib/{triplet}/graphviz"
        if directory in image:
            found = [text for text in plugins if f"{directory}/{text.split()[0]}" in image]
            image.file(f"{directory}/config6a", "".join([head, *found]).encode("ascii"))


def pixbuf_loaders(image: Image, packages: Sequence[Unpacked]) -> None:
    """``loaders.cache``: PNG and JPEG are built in, every other image format is found through it."""
    version = next((u.package.version for u in packages if u.package.name == "libgdk-pixbuf-2.0-0"), None)
    if version is None:
        return
    known = (_LISTS / "gdk-pixbuf-loaders").read_text(encoding="ascii").strip("\n").split("\n\n")
    for triplet in _TRIPLETS:
        directory = f"usr/lib/{triplet}/gdk-pixbuf-2.0/2.10.0"
        if directory in image:
            found = [text for text in known if f"{directory}/loaders/{text.split(chr(34))[1]}" in image]
            rows = [text.replace('"', f'"/{directory}/loaders/', 1) + "\n\n" for text in found]
            image.file(f"{directory}/loaders.cache", (_pixbuf_head(version) + "".join(rows) + "\n").encode("ascii"))


def _pixbuf_head(version: str) -> str:
    upstream = version.partition("+")[0].partition("-")[0]
    return (
        "# GdkPixbuf Image Loader Modules file\n# Automatically generated file, do not edit\n"
        f"# Created by gdk-pixbuf-query-loaders from gdk-pixbuf-{upstream}\n#\n"
    )


def odbc_drivers(image: Image, packages: Sequence[Unpacked]) -> None:
    """``/etc/odbcinst.ini``, with FreeTDS registered where it is there, and FreeTDS's own settings."""
    if _has(packages, "freetds-common"):
        image.file("etc/freetds/freetds.conf", image.read("usr/share/freetds/freetds.conf"))
    drivers = ""
    if _has(packages, "tdsodbc"):
        template = image.read("usr/share/tdsodbc/odbcinst.ini").decode("ascii")
        rows = [re.sub(r"\s*=\s*", "=", line.strip()) for line in template.splitlines() if line.strip()]
        drivers = "\n".join([*rows, "UsageCount=1"]) + "\n\n"
    if _has(packages, "tdsodbc") or _has(packages, "unixodbc-common"):
        image.file("etc/odbcinst.ini", drivers.encode("ascii"))


def ghostscript_fonts(image: Image, packages: Sequence[Unpacked]) -> None:
    """Ghostscript's font maps, which ``update-gsfontmap`` puts together from what packages brought."""
    if not _has(packages, "ghostscript"):
        return
    for source, destination in (("cidfmap.d", "cidfmap"), ("fontmap.d", "Fontmap")):
        names = [n for n in image.listing(f"etc/ghostscript/{source}") if n.endswith(".conf")]
        content = b"".join(image.read(f"etc/ghostscript/{source}/{name}") for name in names)
        image.file(f"var/lib/ghostscript/fonts/{destination}", content)


def paper_size(image: Image, packages: Sequence[Unpacked]) -> None:
    """A4, libpaper's answer to its own question."""
    if _has(packages, "libpaper1") or _has(packages, "libpaper2"):
        image.file("etc/papersize", b"a4\n")
