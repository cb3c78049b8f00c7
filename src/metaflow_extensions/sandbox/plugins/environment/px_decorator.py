"""The step decorator of ``--environment=px``: a task records which sandbox it ran in.

An image for tasks says in a variable of its own which sandbox it is.  So what is recorded is where the task really
ran: a step with another image, or on this machine, records nothing here.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from metaflow.decorators import StepDecorator

from metaflow_extensions.sandbox.plugins import settings
from metaflow_extensions.sandbox.plugins.report import facts

# Where a task is. Each of Metaflow's engines sets a variable of its own in every container.
_PLACES = {"AWS_BATCH_JOB_ID": "batch", "METAFLOW_KUBERNETES_WORKLOAD": "kubernetes"}


class PxDecorator(StepDecorator):
    """Comes with `--environment=px`; a step need not name it."""

    name = "px_environment"
    defaults: ClassVar[dict[str, Any]] = {}

    def task_pre_step(
        self,
        step_name: str,
        task_datastore: Any,
        metadata: Any,
        run_id: str,
        task_id: str,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
        ubf_context: Any,
        inputs: Any,
    ) -> None:
        sbx_id = os.environ.get(settings.IMAGE_ID)
        # In a sandbox of @sandbox, that decorator has recorded it.
        if not sbx_id or os.environ.get(settings.WORKLOAD):
            return
        place = next((name for variable, name in _PLACES.items() if variable in os.environ), "")
        known = {facts.SBX_ID: sbx_id, facts.BACKEND: place}
        facts.register(metadata, (run_id, step_name, task_id), known, retry_count)
