"""Settings of the sandbox extension: ``METAFLOW_…`` in the environment, or Metaflow's own configuration files."""

from __future__ import annotations

from metaflow.metaflow_config_funcs import from_conf

# The backend of `@sandbox` and `--with sandbox`, if they name none.
SANDBOX_BACKEND = from_conf("SANDBOX_BACKEND", "local")

# The image of steps that name none. local: a base; daytona: an image or snapshot:NAME; e2b: a template or an image.
SANDBOX_IMAGE = from_conf("SANDBOX_IMAGE")

# More variables of the run's environment that steps may see: names separated by commas, never values.
SANDBOX_FORWARD = from_conf("SANDBOX_FORWARD", "")

# Texts, although they are numbers: Metaflow would end with a traceback at a value that is none (settings.py checks).
# How long a remote sandbox outlives a run that was killed. The lease is renewed while the task runs.
SANDBOX_LEASE_SECONDS = from_conf("SANDBOX_LEASE_SECONDS", "300")

# How often a task is started again if its sandbox cannot be made or is lost.
SANDBOX_INFRA_RETRIES = from_conf("SANDBOX_INFRA_RETRIES", "2")

# How many seconds it may take to make one remote sandbox. Building its image for the first time is included.
SANDBOX_CREATE_SECONDS = from_conf("SANDBOX_CREATE_SECONDS", "600")

# The registry for the project's image, as HOST or HOST/PATH: --environment=px gives the image to steps elsewhere.
SANDBOX_REGISTRY = from_conf("SANDBOX_REGISTRY")

# What the cluster's machines are, if this machine is something else: linux/amd64 or linux/arm64.
SANDBOX_PLATFORM = from_conf("SANDBOX_PLATFORM")

# 1: push to a registry without TLS, as the --insecure of `px pack image` does.
SANDBOX_REGISTRY_INSECURE = from_conf("SANDBOX_REGISTRY_INSECURE", "")

# 1: pack uncommitted changes too.
SANDBOX_ALLOW_DIRTY = from_conf("SANDBOX_ALLOW_DIRTY", "")

# What a provider needs to pull the project's image from a private registry. The login that px pushes with stays here.
SANDBOX_PULL_USERNAME = from_conf("SANDBOX_PULL_USERNAME", "")
SANDBOX_PULL_PASSWORD = from_conf("SANDBOX_PULL_PASSWORD", "")
