"""Plugin lists and default settings of libraries that come with capabilities.

On Debian a tool makes such a list by loading every plugin.  px does not run programs of an image, so ``data/plugins``
has the tool's output for all plugins, and an image gets the part for the plugins that it has.  The output does not
change within a release of Debian.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from px import DATA
from px.platforms import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

_LISTS = Path(DATA, "plugins")
_TRIPLETS = tuple(one.triplet for one in ARCHITECTURES.values())


def _has(packages: Sequence[Unpacked], name: str) -> bool:
    return any(u.package.name == name for u in packages)


def graphviz_plugins(image: Image, packages: Sequence[Unpacked]) -> None:
    """Write ``config6a``.  Without it dot knows no layouts and no output formats."""
    if not _has(packages, "libgvc6"):
        return
    # One section for each plugin; it starts with the name of the plugin's file.
    head, *plugins = re.split(r"(?m)^(?=libgvplugin)", (_LISTS / "graphviz-config6a").read_text(encoding="ascii"))
    # An image has one architecture: only one of these directories exists.
    for triplet in _TRIPLETS:
        directory = f"usr/lib/{triplet}/graphviz"
        if directory in image:
            found = [text for text in plugins if f"{directory}/{text.split()[0]}" in image]
            image.file(f"{directory}/config6a", "".join([head, *found]).encode("ascii"))


def pixbuf_loaders(image: Image, packages: Sequence[Unpacked]) -> None:
    """Write ``loaders.cache``.  PNG and JPEG are built in; all other formats are found through this file."""
    version = next((u.package.version for u in packages if u.package.name == "libgdk-pixbuf-2.0-0"), None)
    if version is None:
        return
    # One section for each loader; it starts with the quoted path of the loader, which depends on the architecture.
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
    """Write ``/etc/odbcinst.ini``, with the FreeTDS driver if it is installed, and FreeTDS's own settings."""
    if _has(packages, "freetds-common"):
        image.file("etc/freetds/freetds.conf", image.read("usr/share/freetds/freetds.conf"))
    drivers = ""
    if _has(packages, "tdsodbc"):
        # As `odbcinst -i -d -f TEMPLATE` writes it: no spaces around "=", and a count of uses.
        template = image.read("usr/share/tdsodbc/odbcinst.ini").decode("ascii")
        rows = [re.sub(r"\s*=\s*", "=", line.strip()) for line in template.splitlines() if line.strip()]
        drivers = "\n".join([*rows, "UsageCount=1"]) + "\n\n"
    if _has(packages, "tdsodbc") or _has(packages, "unixodbc-common"):
        image.file("etc/odbcinst.ini", drivers.encode("ascii"))


def ghostscript_fonts(image: Image, packages: Sequence[Unpacked]) -> None:
    """Write Ghostscript's font maps, which ``update-gsfontmap`` joins from the files of all packages."""
    if not _has(packages, "ghostscript"):
        return
    for source, destination in (("cidfmap.d", "cidfmap"), ("fontmap.d", "Fontmap")):
        names = [n for n in image.listing(f"etc/ghostscript/{source}") if n.endswith(".conf")]
        content = b"".join(image.read(f"etc/ghostscript/{source}/{name}") for name in names)
        image.file(f"var/lib/ghostscript/fonts/{destination}", content)


def paper_size(image: Image, packages: Sequence[Unpacked]) -> None:
    """Set the paper size to A4, libpaper's default."""
    if _has(packages, "libpaper1") or _has(packages, "libpaper2"):
        image.file("etc/papersize", b"a4\n")
