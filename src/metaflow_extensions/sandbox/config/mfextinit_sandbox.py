"""Settings of the sandbox extension: ``METAFLOW_…`` in the environment, or Metaflow's own configuration files."""

from __future__ import annotations

from metaflow.metaflow_config_funcs import from_conf

# Which backend `@sandbox` and `--with sandbox` use when they name none.
SANDBOX_BACKEND = from_conf("SANDBOX_BACKEND", "local")

# The image (local: base; daytona: image or snapshot:NAME; e2b: template or image) of steps that name none.
SANDBOX_IMAGE = from_conf("SANDBOX_IMAGE")

# More variables of the launcher's environment that steps may see: names separated by commas, never values.
SANDBOX_FORWARD = from_conf("SANDBOX_FORWARD", "")

# How long a remote sandbox outlives a launcher that was killed without warning. Renewed while the launcher lives.
SANDBOX_LEASE_SECONDS = from_conf("SANDBOX_LEASE_SECONDS", 300)

# How often a task is started again because its sandbox could not be made or was lost, before the attempt fails.
SANDBOX_INFRA_RETRIES = from_conf("SANDBOX_INFRA_RETRIES", 2)

# How long the making of one remote sandbox may take (building an image for the first time included).
SANDBOX_CREATE_SECONDS = from_conf("SANDBOX_CREATE_SECONDS", 600)
