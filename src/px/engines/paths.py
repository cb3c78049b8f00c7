"""Where a path of the sandbox really is, links followed as the sandbox would follow them.

bubblewrap mounts over the paths that it is given, and follows links while the host's files are still in reach: an
image with ``/data -> /oldroot/home`` could make it touch the host.  So px resolves every target against the layers
first and hands over paths without links.
"""

from __future__ import annotations

import os
import stat

from px.errors import PxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.engines.spec import AnyPath

MOST_LINKS = 40


class Resolver:
    """Resolves paths against a stack of layers; what it has seen it remembers."""

    def __init__(self, layers: Sequence[AnyPath]):
        self._layers = [os.fspath(layer) for layer in reversed(layers)]
        self._links: dict[str, str | None] = {}

    def resolve(self, path: str) -> str:
        """``path`` without links; parts that exist in no layer are kept as they are."""
        rest, done, followed = _parts(path)[::-1], "", 0
        while rest:
            part = rest.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            link = self._link(f"{done}/{part}")
            if link is None:
                done = f"{done}/{part}"
                continue
            followed += 1
            if followed > MOST_LINKS:
                raise PxError("PX906", engine="bubblewrap", problem=f"{path} in the image is a loop of links")
            rest += _parts(link)[::-1]
            done = "" if link.startswith("/") else done
        return done or "/"

    def _link(self, path: str) -> str | None:
        if path not in self._links:
            self._links[path] = self._look(path)
        return self._links[path]

    def _look(self, path: str) -> str | None:
        for layer in self._layers:
            try:
                mode = os.lstat(layer + path).st_mode
            except OSError:
                continue
            return os.readlink(layer + path) if stat.S_ISLNK(mode) else None
        return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
