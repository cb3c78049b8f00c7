"""Metaflow's metadata service on loopback: metaflow-local-service, with what it lacks.

It cannot be asked for one artifact, and a task that was tried again shows the artifacts of all tries.  Both answers
come from Metaflow's local provider, whose files it keeps.

    python -m tests.servers.metadata FOLDER PORT
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from metaflow.plugins.metadata_providers.local import LocalMetadataProvider
from metaflow_local_service import store
from metaflow_local_service.server import create_app

TASK = "/flows/{flow}/runs/{run}/steps/{step}/tasks/{task}"


def add_routes(app: FastAPI) -> None:
    @app.get(TASK + "/artifacts/{name}")
    @app.get(TASK + "/artifacts/{name}/attempt/{attempt}")
    def artifact(flow: str, run: str, step: str, task: str, name: str, attempt: int | None = None) -> dict[str, Any]:
        found = [one for one in artifacts(flow, run, step, task, attempt) if one["name"] == name]
        if not found:
            raise HTTPException(status_code=404)
        return found[0]


def artifacts(flow: str, run: str, step: str, task: str, attempt: int | None = None) -> list[dict[str, Any]]:
    """Those of one try, or of the last one."""
    return LocalMetadataProvider.get_object("task", "artifact", {}, attempt, flow, run, step, task) or []


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    store.get_artifacts = artifacts
    app = create_app(folder)
    add_routes(app)
    uvicorn.run(app, port=int(port), log_level="critical")
