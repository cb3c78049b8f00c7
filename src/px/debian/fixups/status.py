"""What is installed, for scanners: a file per package in ``/var/lib/dpkg/status.d``.

There is no package manager in an image, so there is no status file to keep up to date; one file per
package also means that layers need not rewrite each other's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

DIRECTORY = "var/lib/dpkg/status.d"


def status(image: Image, packages: Sequence[Unpacked]) -> None:
    """Each package's control file, and the md5sums of those of its files that the image has."""
    for unpacked in packages:
        name = unpacked.package.name
        control = unpacked.control.decode("utf-8").rstrip("\n") + "\n"
        image.file(f"{DIRECTORY}/{name}", (control + "Status: install ok installed\n").encode())
        kept = [line for line in unpacked.md5sums.decode("utf-8").splitlines() if line[34:] in image]
        image.file(f"{DIRECTORY}/{name}.md5sums", "".join(f"{line}\n" for line in kept).encode())
