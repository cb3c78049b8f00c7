"""The app layer alone: the working tree as ``px pack image`` puts it into an image, without the rest of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px.oci.tar import Part
from px.warm.spec import APP

if TYPE_CHECKING:
    from px.oci.blobs import Blobs, LayerBlob
    from px.project.worktree.tree import AppTree

PREFIX = APP.lstrip("/")


def app_layer(blobs: Blobs, tree: AppTree) -> LayerBlob:
    """The layer with the app at ``/app``; a file that changed since it was hashed is an error that names it."""
    return blobs.layer(["app", tree.oid], lambda: [Part(tree.root, tree.entries, PREFIX)])
