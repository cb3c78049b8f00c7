"""Which variables a step sees: what Metaflow needs, the datastore's credentials, and what the user named.

Providers' own keys never cross.  Everything else crosses by name, in a file that the task reads and deletes:
no value is on a command line, in a provider's records or in Metaflow's metadata.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.backend import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION")
CREDENTIALS = {
    "s3": AWS,
    "azure": (
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
    ),
    "gs": ("GOOGLE_CLOUD_PROJECT",),
    "local": (),
}
NEVER = ("E2B_API_KEY", "E2B_ACCESS_TOKEN", "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
_CONFIGURATION = (
    "METAFLOW_DATASTORE_SYSROOT_S3",
    "METAFLOW_DATASTORE_SYSROOT_AZURE",
    "METAFLOW_DATASTORE_SYSROOT_GS",
    "METAFLOW_DATATOOLS_",
    "METAFLOW_S3_",
    "METAFLOW_CARD_",
    "METAFLOW_CONDA_",
    "METAFLOW_DEBUG_",
    "METAFLOW_AZURE_",
    "METAFLOW_GCP_",
    "METAFLOW_GS_",
    "METAFLOW_DEFAULT_",
    "METAFLOW_AWS_SECRETS_MANAGER_",
    "METAFLOW_OTEL_",
)


def forwarded(environ: Mapping[str, str], names: str) -> dict[str, str]:
    """The variables that ``METAFLOW_SANDBOX_FORWARD`` names; one that is not set is left out."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name in NEVER:
            raise Unusable(
                f"METAFLOW_SANDBOX_FORWARD names {name}, the provider's own key, which steps must never see.",
                fix=[f"export METAFLOW_SANDBOX_FORWARD={','.join(n for n in wanted if n not in NEVER)}"],
            )
        if "=" in name:
            raise Unusable(
                "METAFLOW_SANDBOX_FORWARD takes names, not values.",
                fix=[f"export METAFLOW_SANDBOX_FORWARD={','.join(n.partition('=')[0] for n in wanted)}"],
            )
    return {name: environ[name] for name in wanted if name in environ}


def datastore_credentials(environ: Mapping[str, str], datastore: str) -> dict[str, str]:
    found = {name: environ[name] for name in CREDENTIALS.get(datastore, ()) if environ.get(name)}
    if datastore == "s3" and "AWS_ACCESS_KEY_ID" not in found:
        found.update(_resolved_aws())
    return found


def _resolved_aws() -> dict[str, str]:
    """What a profile, a role or an instance gives: the sandbox has none of these, so it gets their keys."""
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
    """Metaflow's own settings, wherever they were set: its task must find the same datastore and service."""
    from metaflow.metaflow_config import SERVICE_HEADERS, SERVICE_INTERNAL_URL
    from metaflow.metaflow_config_funcs import config_values
    from metaflow.util import get_username

    env = {k: str(v) for k, v in config_values() if k.startswith(_CONFIGURATION) and v is not None}
    env.update(
        METAFLOW_USER=get_username(),
        METAFLOW_DEFAULT_DATASTORE=datastore,
        METAFLOW_DEFAULT_METADATA=metadata,
    )
    if metadata == "service" and SERVICE_INTERNAL_URL:
        env["METAFLOW_SERVICE_URL"] = SERVICE_INTERNAL_URL
        env["METAFLOW_SERVICE_HEADERS"] = json.dumps(SERVICE_HEADERS)
    return env


def remote_environment(
    *, datastore: str, metadata: str, forward: str, user: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """All variables of a task in a remote sandbox, except those that only its launcher can know."""
    environ = os.environ if environ is None else environ
    env = metaflow_variables(datastore, metadata)
    # A path on this machine; and without it the task keeps its local metadata where the sync looks for it.
    env.pop("METAFLOW_DATASTORE_SYSROOT_LOCAL", None)
    env.update(datastore_credentials(environ, datastore))
    env.update(forwarded(environ, forward))
    env.update({k: str(v) for k, v in user.items()})
    return env


def credential_files(environ: Mapping[str, str], datastore: str) -> dict[str, bytes]:
    """Credentials that are files: name in the task's own directory -> content."""
    path = environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    if datastore != "gs" or not path:
        return {}
    with open(path, "rb") as f:
        return {"google.json": f.read()}
