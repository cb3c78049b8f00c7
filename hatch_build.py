"""What the wheel needs beyond its files: ``top_level.txt``, by which Metaflow knows distributions with extensions.

setuptools writes that file.  hatchling does not, and is used all the same: its archives do not depend on the clock, the
user, the umask or the order of a directory, those of setuptools do.  Without the file Metaflow still finds the
extension, but as a stray directory: without a version, and behind all distributions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TOP_LEVEL = "metaflow_extensions\npx\n"


class TopLevel(BuildHookInterface[Any]):
    """Adds the file to wheels, those of editable installs included."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before anything is packed."""
        self._directory = tempfile.TemporaryDirectory()
        path = Path(self._directory.name, "top_level.txt")
        path.write_text(TOP_LEVEL)
        metadata = f"px_sandbox-{self.metadata.version}.dist-info/top_level.txt"
        for kind in ("force_include", "force_include_editable"):
            build_data[kind][str(path)] = metadata

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called when the archive is there."""
        self._directory.cleanup()
