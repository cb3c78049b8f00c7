"""Finds and ends the sandboxes that a run left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.backend import BackendError
from metaflow_extensions.sandbox.plugins.backends import get_backend

if TYPE_CHECKING:
    from collections.abc import Mapping


def reap(backend_name: str, labels: Mapping[str, str]) -> list[str]:
    """End every sandbox with these labels; return one line for each, and one for what went wrong."""
    said: list[str] = []
    try:
        backend = get_backend(backend_name)
        left = backend.sandboxes(labels)
    except BackendError as e:
        return [f"Sandboxes that this run may have left could not be listed: {e.what} They end with their lease."]
    for sandbox in left:
        try:
            backend.destroy(sandbox.sandbox_id)
            said.append(f"Ended the {backend_name} sandbox {sandbox.sandbox_id}, which the run had left.")
        except BackendError as e:
            said.append(f"The {backend_name} sandbox {sandbox.sandbox_id} could not be ended: {e.what}")
    return said
