"""Which variables a step sees: Metaflow's settings, the credentials of its datastore, and those that the user named.

The keys of the providers never reach a step.  No value is ever on a command line, in a provider's records or in
Metaflow's metadata.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.settings import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

# In the order in which _resolved_aws() has the values.
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION")
# A step gets the credentials of the datastore that it uses, and of no other.
CREDENTIALS = {
    "s3": AWS,
    "azure": (
        "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
    ),
    "gs": ("GOOGLE_CLOUD_PROJECT",),
    "local": (),
}  # fmt: skip
# The providers' own keys.
NEVER = ("E2B_API_KEY", "E2B_ACCESS_TOKEN", "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
# Settings of Metaflow that start with these concern a task. METAFLOW_DATASTORE_SYSROOT_LOCAL does not: it names a
# directory of this machine.
_CONFIGURATION = (
    "METAFLOW_DATASTORE_SYSROOT_S3", "METAFLOW_DATASTORE_SYSROOT_AZURE", "METAFLOW_DATASTORE_SYSROOT_GS",
    "METAFLOW_DATATOOLS_", "METAFLOW_S3_", "METAFLOW_AZURE_", "METAFLOW_GCP_", "METAFLOW_GS_", "METAFLOW_CARD_",
    "METAFLOW_CONDA_", "METAFLOW_DEBUG_", "METAFLOW_DEFAULT_", "METAFLOW_AWS_SECRETS_MANAGER_", "METAFLOW_OTEL_",
)  # fmt: skip


def step_variables(
    datastore: str, metadata: str, user: Mapping[str, str], *, uses_secrets: bool = False
) -> dict[str, str]:
    """The variables of a step with this type of datastore and of metadata; those that the user gave win."""
    env = metaflow_variables(datastore, metadata)
    env.update(datastore_credentials(os.environ, datastore))
    if uses_secrets:  # AWS Secrets Manager takes the keys of S3
        env.update(datastore_credentials(os.environ, "s3"))
    env.update(forwarded(os.environ, setting("SANDBOX_FORWARD") or ""))
    env.update(user)
    return env


def forwarded(environ: Mapping[str, str], names: str) -> dict[str, str]:
    """The variables that ``METAFLOW_SANDBOX_FORWARD`` names, as far as they are set."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name in NEVER:
            raise Unusable(
                f"METAFLOW_SANDBOX_FORWARD names {name}, a provider's key. Steps must never see it.",
                fix=[f"export METAFLOW_SANDBOX_FORWARD={','.join(n for n in wanted if n not in NEVER)}"],
            )
        if "=" in name:
            raise Unusable(
                "METAFLOW_SANDBOX_FORWARD takes names, not values.",
                fix=[f"export METAFLOW_SANDBOX_FORWARD={','.join(n.partition('=')[0] for n in wanted)}"],
            )
    return {name: environ[name] for name in wanted if name in environ}


def datastore_credentials(environ: Mapping[str, str], datastore: str) -> dict[str, str]:
    # Google's credentials are a file, which a remote task gets as one (remote/environment.py).
    found = {name: environ[name] for name in CREDENTIALS.get(datastore, ()) if environ.get(name)}
    if datastore == "s3" and "AWS_ACCESS_KEY_ID" not in found:
        found.update(_resolved_aws())
    return found


def _resolved_aws() -> dict[str, str]:
    """The keys that a profile, a role or an instance gives here; the sandbox has none of these."""
    try:
        import boto3
    except ImportError:
        return {}
    session = boto3.Session()
    credentials = session.get_credentials()
    if credentials is None:
        return {}
    frozen = credentials.get_frozen_credentials()
    values = (frozen.access_key, frozen.secret_key, frozen.token, session.region_name)
    return {name: value for name, value in zip(AWS, values, strict=False) if value}


def metaflow_variables(datastore: str, metadata: str) -> dict[str, str]:
    """Metaflow's settings, from wherever they were set: the task must find the same datastore and service."""
    from metaflow.metaflow_config import SERVICE_HEADERS, SERVICE_INTERNAL_URL
    from metaflow.metaflow_config_funcs import config_values
    from metaflow.util import get_username

    env = {k: str(v) for k, v in config_values() if k.startswith(_CONFIGURATION) and v is not None}
    env.update(
        METAFLOW_USER=get_username(),
        METAFLOW_DEFAULT_DATASTORE=datastore,
        METAFLOW_DEFAULT_METADATA=metadata,
    )
    # The address of the service may be another one inside a cloud; Metaflow's own backends pass it on like this.
    if metadata == "service" and SERVICE_INTERNAL_URL:
        env["METAFLOW_SERVICE_URL"] = SERVICE_INTERNAL_URL
        env["METAFLOW_SERVICE_HEADERS"] = json.dumps(SERVICE_HEADERS)
    return env
