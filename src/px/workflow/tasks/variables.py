"""The variables of an image for tasks: Metaflow reads the first, and px's extension the second."""

from __future__ import annotations

from px.sandbox.layers.extra import INSIDE


def task_variables(path: str, sbx_id: str) -> dict[str, str]:
    """Nothing is installed when a task starts, and the task knows which sandbox it is in."""
    return {
        "PATH": f"{path}:/{INSIDE}/bin",
        "METAFLOW_SKIP_INSTALL_DEPENDENCIES": "1",
        "METAFLOW_SANDBOX_SBX_ID": sbx_id,
    }
