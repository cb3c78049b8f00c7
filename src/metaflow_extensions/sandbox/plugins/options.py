"""What the options of a step mean: from the words of a decorator or a command line to a :class:`SandboxConfig`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.backend import LABEL, Network, Resources, SandboxConfig
from metaflow_extensions.sandbox.plugins.errors import Unusable
from metaflow_extensions.sandbox.plugins.settings import setting_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESOURCES = ("cpu", "memory", "gpu", "disk")
# @timeout ends the step from inside and gives the better message, so it gets these seconds to do so.
_TIMEOUT_GRACE = 10


def sandbox_config(options: Mapping[str, Any], labels: Mapping[str, str]) -> SandboxConfig:
    """What a backend is told.  A value that makes no sense is :class:`Unusable`."""
    return SandboxConfig(
        image=options["image"],
        sbx_id=options.get("sbx_id") or "",
        resources=Resources(
            cpu=number(options, "cpu"),
            memory_mb=whole_number(options, "memory"),
            gpu=whole_number(options, "gpu") or None,
            disk_mb=whole_number(options, "disk"),
        ),
        network=network(options["network"]),
        labels={LABEL: "metaflow", **labels},
        lease_seconds=setting_number("SANDBOX_LEASE_SECONDS", least=1),
        create_seconds=setting_number("SANDBOX_CREATE_SECONDS", least=1),
    )


def number(options: Mapping[str, Any], key: str) -> float | None:
    value = options[key]
    if value is None or value == "":  # --with can only say an empty text
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    may_be_zero = key in ("gpu", "disk")  # every sandbox can have none of these
    if not (found > 0 or (found == 0 and may_be_zero)) or found == float("inf"):
        raise Unusable(
            f"{key}={value!r} is not a number that a sandbox can have.", fix=[f"Say it as a number: {key}=2"]
        )
    return found


def whole_number(options: Mapping[str, Any], key: str) -> int | None:
    """The number, rounded up: a step gets at least what it asks for."""
    found = number(options, key)
    return None if found is None else -int(-found // 1)


def network(value: object) -> Network:
    # In code it is a bool or a list; on a command line, everything is text.
    if value is None or str(value).lower() in ("true", "1", "on", "yes", "host"):
        return Network()
    if str(value).lower() in ("false", "0", "off", "no", "none"):
        return Network(allowed=False)
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return Network(only=tuple(str(item).strip() for item in items if str(item).strip()))


def merged_resources(decorators: Iterable[Any], decorator: Any) -> dict[str, str]:
    """The larger of what this decorator and ``@resources`` ask for, by Metaflow's own rules."""
    from metaflow.plugins.aws.aws_utils import compute_resource_attributes

    merged = compute_resource_attributes(decorators, decorator, dict.fromkeys(RESOURCES))
    return {key: value for key, value in merged.items() if key in RESOURCES}


def time_limit(decorators: Iterable[Any], own: int | None) -> int:
    """The seconds after which the step is ended from outside."""
    from metaflow.plugins.timeout_decorator import TimeoutDecorator, get_run_time_limit_for_task

    limit = int(get_run_time_limit_for_task(decorators))
    if any(isinstance(deco, TimeoutDecorator) for deco in decorators):
        limit += _TIMEOUT_GRACE
    return limit if own is None else min(limit, own)
