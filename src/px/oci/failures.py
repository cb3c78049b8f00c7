"""Turns failures of packing into errors for the user."""

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
    """Turn errors of a block that writes below ``where`` into PX903, PX802 or PX921."""
    try:
        yield
    except ContentError as e:
        raise _content(home, e) from e
    except OSError as e:
        if e.errno in _FULL:
            raise PxError(
                "PX903",
                problem=f"there is no space left on the disk that holds {where}",
                why=["px removed the unfinished file; everything that was finished is still there."],
                fix=["Free some space; see what px could remove: px store gc --dry-run"],
                whole_fix=True,
            ) from e
        # Anything else, such as missing rights or a directory that is gone.
        raise PxError(
            "PX903",
            problem=f"{e.filename or where}: {e.strerror or e}",
            fix=[f"Check that this user may write to {where}."],
        ) from e


def _content(home: Home, error: ContentError) -> PxError:
    # In the store it is damage.  In the working tree, somebody changed the file while px packed it.
    if error.root.is_relative_to(home.objects):
        kind, oid = error.root.relative_to(home.objects).parts[:2]
        return PxError("PX802", kind=kind, oid=oid, problem=str(error))
    return PxError("PX921", path=error.path, problem=error.problem, remedy="Stop what changes it, then pack again.")
