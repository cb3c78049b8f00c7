"""What the decorators and the command line share: Metaflow's settings, names of variables, the error for Metaflow.

Metaflow is imported inside the functions.  It imports the decorators itself, and those import this module.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.errors import Unusable

if TYPE_CHECKING:
    from metaflow_extensions.sandbox.plugins.errors import BackendError

# A step reads in these variables where it runs. WORKLOAD is set in every sandbox, and nowhere else; the decorators ask
# for it, because Metaflow calls their hooks in the run and in the task alike.
WORKLOAD = "METAFLOW_SANDBOX_WORKLOAD"
BACKEND = "METAFLOW_SANDBOX_BACKEND"
SANDBOX_ID = "METAFLOW_SANDBOX_ID"
IMAGE_ID = "METAFLOW_SANDBOX_SBX_ID"
# How many seconds it took to make the sandbox, and when it began to start the task, by the clock inside.
CREATE_TOOK = "METAFLOW_SANDBOX_CREATE_TOOK"
STARTED_AT = "METAFLOW_SANDBOX_STARTED_AT"


def shown(text: object) -> str:
    """What a provider or a registry may have said: it may not steer the terminal, nor show passwords in addresses."""
    text = str(text)
    with suppress(ImportError):  # px is not at a provider, where a task calls the hooks once more
        from px.console import printable, redact

        text = printable(redact(text))
    return text


def metaflow_error(error: BackendError) -> Exception:
    """The error as Metaflow shows it: with a headline, and without a traceback."""
    from metaflow.exception import MetaflowException

    found: Exception = MetaflowException(shown(error))
    found.headline = "Sandbox error"  # type: ignore[attr-defined]
    return found


def setting(name: str) -> Any:
    """A setting from the environment (``METAFLOW_…``) or from Metaflow's configuration file."""
    from metaflow import metaflow_config

    return getattr(metaflow_config, name, None)


def setting_flag(name: str) -> bool:
    """A setting that is on or off; it comes as text from the environment, and as JSON from a file."""
    value = str(setting(name) or "").lower()
    if value not in ("", "0", "1", "false", "true", "no", "yes"):
        raise Unusable(f"METAFLOW_{name}={value} is neither 1 nor 0.", fix=[f"Switch it on: export METAFLOW_{name}=1"])
    return value in ("1", "true", "yes")


def setting_number(name: str, *, least: int) -> int:
    value = setting(name)
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise Unusable(
            f"METAFLOW_{name}={value} is not a whole number of {least} or more.",
            fix=[f"Take the default: unset METAFLOW_{name}"],
        )
    return number
