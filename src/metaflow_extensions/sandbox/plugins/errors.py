"""The ways in which a sandbox can fail.

This is the lowest module of the extension: it imports nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = "docs/reference/metaflow-configuration.md"


class BackendError(Exception):
    """A failure that a user can act on: what happened, how to fix it, and where to read more."""

    def __init__(self, what: str, *, fix: Sequence[str] = (), read: str = DOCS):
        super().__init__(what)
        self.what = what
        self.fix = tuple(fix)
        self.read = read

    def __str__(self) -> str:
        lines = [self.what]
        if self.fix:
            lines += ["Fix:", *(f"  • {line}" for line in self.fix)]
        return "\n".join([*lines, f"Read: {self.read}"])


class Unusable(BackendError):
    """The configuration cannot work: an SDK, a key or a datastore is missing, or an option is not supported."""


class Refused(BackendError):
    """The provider said no, and would say no again."""


class Unavailable(BackendError):
    """The provider, or the connection to it, failed.  The same request may succeed later."""

    def __init__(self, what: str, *, retry_after: float | None = None, fix: Sequence[str] = (), read: str = DOCS):
        super().__init__(what, fix=fix, read=read)
        self.retry_after = retry_after


class RateLimited(Unavailable):
    """The account has reached a limit: on requests, or on sandboxes at the same time."""


class SandboxGone(Unavailable):
    """The sandbox does not exist any more."""
