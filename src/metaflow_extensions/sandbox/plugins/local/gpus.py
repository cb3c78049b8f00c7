"""The GPUs of this machine for a local task."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from metaflow_extensions.sandbox.plugins.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

# Lists of places: those of the GPUs come after all others.
_PLACES = ("LD_LIBRARY_PATH", "PATH")
# Where px's own fix names a flag of ``px run``, which a flow does not have.
_FIXES = {
    "PX925": "Leave gpu= out, or make it a wish: @resources(gpu=1) is one on a machine without a GPU.",
    "PX926": "Ask for fewer: @sandbox(gpu=1)",
    "PX930": "Name GPUs by number or UUID, or unset it: env -u CUDA_VISIBLE_DEVICES python FLOW.py run",
}


@dataclass(frozen=True)
class Gpus:
    """What the launcher adds to a sandbox."""

    devices: tuple[str, ...] = ()
    mounts: tuple[tuple[Any, ...], ...] = ()
    """The fields of px's ``Mount``."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def added_to(self, fixed: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """The sandbox's own variables with those of the GPUs; ``given`` are the user's, which come first."""
        found = dict(fixed)
        for name, value in self.variables.items():
            known = fixed.get(name) or given.get(name)
            if name in _PLACES:
                found[name] = f"{known}:{value}" if known else value
            elif not known:
                found[name] = value
        return found


@cache
def gpus_of(count: int) -> Gpus:
    """The first GPUs that this process can see.  They are the same for all tasks of a run: nothing reserves them."""
    if not count:
        return Gpus()
    from px.engines.gpu.asked import Asked
    from px.engines.gpu.give import add_gpus
    from px.errors import PxError
    from px.warm.spec import RunSpec

    try:
        spec = add_gpus(RunSpec((), (), {}), Asked(count), os.environ)
    except PxError as e:
        raise Unusable(
            f"The local sandbox cannot give a step gpu={count}: {e.what}",
            fix=[_FIXES.get(e.code) or e.fix[0], f"Or run the step at a provider: @daytona(gpu={count})"],
            read="docs/how-to/use-a-gpu.md",
        ) from None
    return Gpus(spec.devices, tuple((m.source, m.target, m.read_only) for m in spec.mounts), dict(spec.env))
