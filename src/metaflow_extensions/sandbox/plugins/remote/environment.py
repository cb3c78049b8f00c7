"""The variables of a remote task."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins import settings
from metaflow_extensions.sandbox.plugins.variables import step_variables

if TYPE_CHECKING:
    from collections.abc import Mapping


def remote_environment(
    obj: Any, package: Mapping[str, str], user: Mapping[str, str], run_id: str, backend: str
) -> dict[str, str]:
    """All variables of a task, except the id of its sandbox, which only the executor knows.

    ``obj`` is the context of Metaflow's command line; ``user`` are the variables that the user gave to the step.
    """
    datastore = obj.flow_datastore.TYPE
    env = step_variables(datastore, obj.metadata.TYPE, user)
    env.update({f"METAFLOW_CODE_{key}": value for key, value in package.items()})
    env.update(
        METAFLOW_CODE_DS=datastore,
        METAFLOW_FLOW_FILENAME=os.path.basename(sys.argv[0]),
        METAFLOW_RUN_ID=run_id,
        METAFLOW_RUNTIME_ENVIRONMENT="sandbox",
        PYTHONUNBUFFERED="x",
    )
    env[settings.WORKLOAD] = "1"
    env[settings.BACKEND] = backend
    return env


def image_variables(sbx_id: str) -> dict[str, str]:
    """The variables of a project's image that a task needs.  A provider's login shell has others, and another PATH."""
    from px.warm.spec import PATH
    from px.workflow.tasks.variables import task_variables

    return task_variables(PATH, sbx_id)
