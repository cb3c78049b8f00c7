"""How the failures of packing reach the user: as PX903, with the reason and what to check."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from px.errors import PxError
from px.oci.tar import ContentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from px.home import Home

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def building(home: Home, where: Path) -> Iterator[None]:
    """Run a block that writes below ``where``; what the disk or the sources refuse becomes an error to read."""
    try:
        yield
    except ContentError as e:
        raise _content(home, e) from e
    except OSError as e:
        if e.errno in _FULL:
            raise PxError(
                "PX903",
                problem=f"there is no space left on the disk that holds {where}",
                why=["What was being written has been removed; everything that was finished is still there."],
                fix=["Free some space; see what px could remove: px store gc --dry-run"],
            ) from e
        raise PxError(
            "PX903",
            problem=f"{e.filename or where}: {e.strerror or e}",
            fix=[f"Check that this user may write to {where}."],
        ) from e


def _content(home: Home, error: ContentError) -> PxError:
    if error.root.is_relative_to(home.objects):
        kind, oid = error.root.relative_to(home.objects).parts[:2]
        return PxError("PX802", kind=kind, oid=oid, problem=str(error))
    return PxError("PX921", path=error.path, problem=error.problem, remedy="Let it come to rest, then pack again.")
