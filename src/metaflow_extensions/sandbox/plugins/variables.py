"""Which variables a step sees: Metaflow's settings, the credentials of its datastore, and those that the user named.

The keys of the providers never reach a step.  No value is ever on a command line, in a provider's records or in
Metaflow's metadata.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.settings import setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# In the order in which _resolved_aws() has the values.
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_REGION")
# A step gets the credentials of the datastore that it uses, and of no other.
CREDENTIALS = {
    "s3": AWS,
    "azure": (
        "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY", "AZURE_AUTHORITY_HOST", "AZURE_CLIENT_SEND_CERTIFICATE_CHAIN",
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


def forwarded(environ: Mapping[str, str], names: str, *, never: Iterable[str] = ()) -> dict[str, str]:
    """The variables that ``METAFLOW_SANDBOX_FORWARD`` names, as far as they are set.  ``never`` are more keys."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    keys = {*NEVER, *never}
    for name in wanted:
        if name in keys:
            raise Unusable(
                f"METAFLOW_SANDBOX_FORWARD names {name}, a provider's key. Steps must never see it.",
                fix=[f"export METAFLOW_SANDBOX_FORWARD={','.join(n for n in wanted if n not in keys)}"],
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


def credential_files(environ: Mapping[str, str], datastore: str, user: Mapping[str, str]) -> dict[str, Path]:
    """Credentials that are files, by the variables that name them; :class:`Unusable` if a step would have none.

    ``user`` are the variables that the user gave to the step: who names other credentials there knows better.

    Google's and Azure's libraries also find credentials that live in this machine or in a login here.  Those cannot
    be handed on, so the step would fail after everything has been set up for it.
    """
    if "GOOGLE_APPLICATION_CREDENTIALS" in user or "AZURE_CLIENT_ID" in user:
        return {}
    if datastore == "gs" and setting("DEFAULT_GCP_CLIENT_PROVIDER") == "gcp-default":
        return {"GOOGLE_APPLICATION_CREDENTIALS": _google_file(environ)}
    if datastore == "azure" and setting("DEFAULT_AZURE_CLIENT_PROVIDER") == "azure-default":
        return _azure_files(environ)
    return {}


def _google_file(environ: Mapping[str, str]) -> Path:
    login = "Log in: gcloud auth application-default login"
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    directory = environ.get("CLOUDSDK_CONFIG") or Path("~/.config/gcloud").expanduser()
    path = Path(named or Path(directory, "application_default_credentials.json"))
    if not path.is_file():
        found = f"GOOGLE_APPLICATION_CREDENTIALS={named} names no file" if named else f"there is no {path}"
        raise Unusable(
            f"The step needs Google credentials that can be handed to a sandbox, and {found}.",
            fix=["Name the key of a service account: export GOOGLE_APPLICATION_CREDENTIALS=/path/to/key.json", login],
        )
    return path.absolute()


def _azure_files(environ: Mapping[str, str]) -> dict[str, Path]:
    certificate = environ.get("AZURE_CLIENT_CERTIFICATE_PATH")
    principal = all(environ.get(name) for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID"))
    if principal and environ.get("AZURE_CLIENT_SECRET"):
        return {}
    if principal and certificate and Path(certificate).is_file():
        return {"AZURE_CLIENT_CERTIFICATE_PATH": Path(certificate).absolute()}
    found = f"AZURE_CLIENT_CERTIFICATE_PATH={certificate} names no file" if certificate else "there are none"
    raise Unusable(
        f"The step needs Azure credentials that can be handed to a sandbox, and {found}. A login of `az` or the "
        "identity of this machine cannot be.",
        fix=[
            "Make a service principal: az ad sp create-for-rbac --name metaflow-sandbox",
            "Name it: export AZURE_TENANT_ID=… AZURE_CLIENT_ID=… AZURE_CLIENT_SECRET=…",
        ],
    )


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
