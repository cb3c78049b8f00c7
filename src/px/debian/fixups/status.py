"""The list of installed packages, for vulnerability scanners: one file for each in ``/var/lib/dpkg/status.d``.

Scanners know this directory from Google's distroless images.  dpkg itself has one file, ``/var/lib/dpkg/status``; then
every layer would have to replace the file of the layer below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

DIRECTORY = "var/lib/dpkg/status.d"


def status(image: Image, packages: Sequence[Unpacked]) -> None:
    """Write each package's control file, and the md5sums of those of its files that the image has."""
    for unpacked in packages:
        name = unpacked.package.name
        control = unpacked.control.decode("utf-8").rstrip("\n") + "\n"
        image.file(f"{DIRECTORY}/{name}", (control + "Status: install ok installed\n").encode())
        # A line has 32 hexadecimal digits, two spaces and the path.  Files that px leaves out are not listed.
        kept = [line for line in unpacked.md5sums.decode("utf-8").splitlines() if line[34:] in image]
        image.file(f"{DIRECTORY}/{name}.md5sums", "".join(f"{line}\n" for line in kept).encode())
