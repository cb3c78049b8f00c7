"""The work of maintainer scripts, as functions that only read and write the tree.

px never runs a maintainer script.  The tests compare the result of each function with that of the real script or tool.
:data:`BASE` and :data:`LAYER` say which of them are applied, and in which order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.debian.fixups.accounts import accounts
from px.debian.fixups.alternatives import alternatives
from px.debian.fixups.apt import empty_files, pam
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
from px.debian.fixups.java import java
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

# ld_cache is last in both: it must see every library.
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
# For a layer on top of a base: only what new packages can add or change.
LAYER: tuple[FixUp, ...] = (
    fonts,
    graphviz_plugins,
    pixbuf_loaders,
    odbc_drivers,
    ghostscript_fonts,
    paper_size,
    java,
    pam,
    empty_files,
    alternatives,
    status,
    ld_cache,
)
