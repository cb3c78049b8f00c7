"""Following symbolic links in a root file system that is not this machine's: in layers, trees and specs alike."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from px.warm.spec import AnyPath

MOST = 40  # as many as the kernel follows


def follow(path: str, link_at: Callable[[str], str | None]) -> str | None:
    """``path`` from the root, without links and without a leading slash; None if it is a loop of links.

    ``link_at`` says where the link at a path leads, or None if there is no link.  Parts that exist nowhere are kept
    as they are.  Nothing leads out: ``..`` at the root is the root, as in a chroot.
    """
    done, rest, followed = "", path.split("/")[::-1], 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        here = f"{done}/{part}" if done else part
        target = link_at(here)
        if target is None:
            done = here
            continue
        followed += 1
        if followed > MOST:
            return None
        rest += target.split("/")[::-1]
        done = "" if target.startswith("/") else done
    return done


class Layers:
    """Paths in a stack of unpacked layers.

    bubblewrap mounts over the paths that it is given, and follows links while the host's files are still in reach: an
    image with ``/data -> /oldroot/home`` could make it touch the host.  So px follows the links itself, in the layers,
    and hands over paths that have none.
    """

    def __init__(self, layers: Sequence[AnyPath]):
        self._layers = [os.fspath(layer) for layer in reversed(layers)]
        self._links: dict[str, str | None] = {}

    def resolve(self, path: str) -> str:
        """``path``, absolute and without links."""
        found = follow(path, self._link_at)
        if found is None:
            from px.errors import PxError

            raise PxError("PX906", engine="bubblewrap", problem=f"{path} in the image is a loop of links")
        return f"/{found}"

    def _link_at(self, path: str) -> str | None:
        if path not in self._links:
            self._links[path] = self._look(path)
        return self._links[path]

    def _look(self, path: str) -> str | None:
        for layer in self._layers:
            try:
                mode = os.lstat(f"{layer}/{path}").st_mode
            except OSError:
                continue
            return os.readlink(f"{layer}/{path}") if stat.S_ISLNK(mode) else None
        return None
