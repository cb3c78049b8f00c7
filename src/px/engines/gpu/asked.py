"""How many GPUs a run asks for, and which of them ``CUDA_VISIBLE_DEVICES`` of this machine lets it see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from px.engines.gpu.find import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
ALL = "all"
MOST = 64
_NUMBER = re.compile(r"[0-9]{1,3}")
_NAME = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{1,64}(?:/[0-9]{1,3}/[0-9]{1,3})?")
_LONGEST = 4096


@dataclass(frozen=True)
class Asked:
    """What a flag, the manifest or a decorator says: how many GPUs; None is all that can be seen."""

    count: int | None = None

    def __bool__(self) -> bool:
        return self.count != 0


def parse_asked(text: str) -> Asked:
    """``all``, or a number; 0 is none."""
    if text == ALL:
        return Asked()
    if not _NUMBER.fullmatch(text) or int(text) > MOST:
        problem = f"it is neither a number of GPUs (0 to {MOST}) nor {ALL}"
        raise PxError("PX040", option="--gpu", value=text, problem=problem, example="--gpu=1")
    return Asked(int(text))


def named(host: Mapping[str, str]) -> tuple[str, ...] | None:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names, by number or UUID; None if it is not set.

    As CUDA does: what follows the first entry that makes no sense is not visible either.
    """
    value = host.get(VARIABLE)
    if value is None:
        return None
    found: list[str] = []
    for entry in value[:_LONGEST].split(","):
        name = entry.strip()
        if not (_NUMBER.fullmatch(name) or _NAME.fullmatch(name)) or name in found:
            break
        found.append(name)
    if not found:
        raise PxError("PX930", value=value[:100], why=[] if value else ["It is empty, which hides every GPU."])
    return tuple(found)


def choose(gpus: Sequence[Gpu], asked: Asked, host: Mapping[str, str]) -> tuple[tuple[Gpu, ...], dict[str, str]]:
    """The GPUs for one sandbox, in this machine's order, and the variables that say another order."""
    names = named(host)
    seen = list(gpus) if names is None else _visible(gpus, names, host)
    check_count(len(seen), asked, names)
    chosen = seen[: asked.count]
    ordered = sorted(chosen, key=list(gpus).index)
    # Inside, CUDA counts from 0 again.
    numbers = ",".join(str(ordered.index(gpu)) for gpu in chosen)
    return tuple(ordered), {VARIABLE: numbers} if chosen != ordered else {}


def check_count(found: int, asked: Asked, names: Sequence[str] | None) -> None:
    """Refuse to run with fewer than were asked for."""
    if asked.count is not None and found < asked.count:
        where = "" if names is None else f", by {VARIABLE}"
        raise PxError("PX926", asked=asked.count, found=found, where=where)


def _visible(gpus: Sequence[Gpu], names: Sequence[str], host: Mapping[str, str]) -> list[Gpu]:
    found: list[Gpu] = []
    for name in names:
        # A UUID may be shortened as long as it is clear which one is meant.
        exact = [gpu for gpu in gpus if name in gpu.names]
        matching = exact or [gpu for gpu in gpus if not name.isdigit() and any(n.startswith(name) for n in gpu.names)]
        if len(matching) != 1 or matching[0] in found:
            break
        found.append(matching[0])
    if not found:
        known = ", ".join(gpu.names[-1] for gpu in gpus)
        raise PxError("PX930", value=host[VARIABLE][:100], why=[f"This machine has: {known}"])
    return found
