"""What maintainer scripts would have done, as functions that only read and write the tree.

Each takes the image and is tested against what the real script or tool makes of the same files.  The order
matters only where the docstrings say so; :data:`BASE` and :data:`LAYER` are the two sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.debian.fixups.accounts import accounts
from px.debian.fixups.alternatives import alternatives
from px.debian.fixups.certificates import certificates, openssl_directory
from px.debian.fixups.files import (
    base_files,
    hosts,
    local_directories,
    locale,
    mount_points,
    python_config,
    shells,
    time_zone,
)
from px.debian.fixups.fonts import fonts
from px.debian.fixups.ldcache import ld_cache
from px.debian.fixups.libraries import (
    ghostscript_fonts,
    graphviz_plugins,
    odbc_drivers,
    paper_size,
    pixbuf_loaders,
)
from px.debian.fixups.status import status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

    FixUp = Callable[[Image, Sequence[Unpacked]], None]

BASE: tuple[FixUp, ...] = (
    base_files,
    accounts,
    shells,
    hosts,
    time_zone,
    locale,
    local_directories,
    python_config,
    certificates,
    openssl_directory,
    alternatives,
    status,
    mount_points,
    ld_cache,
)
# A layer over a base: what new packages can add to or change.
LAYER: tuple[FixUp, ...] = (
    fonts,
    graphviz_plugins,
    pixbuf_loaders,
    odbc_drivers,
    ghostscript_fonts,
    paper_size,
    alternatives,
    status,
    ld_cache,
)
