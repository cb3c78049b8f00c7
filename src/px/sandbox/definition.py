"""The sandbox definition and its id: base, capabilities, profile and format, and nothing else.

``docs/reference/sandbox-id.md`` has the test vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.store.canonical import canonical_encode, oid_of

if TYPE_CHECKING:
    from px.store.canonical import Value

SBX_VERSION = 1
"""The layout of images and the meaning of the capability and inference tables; raised when either changes so
that an image made before would not be what this px makes.  An integer here, in ``manifest.json`` and in the
hash alike: one number, one spelling."""


@dataclass(frozen=True)
class SandboxDefinition:
    """What fully determines a sandbox image."""

    base_os_oid: str
    capabilities: frozenset[str]
    profile_oid: str
    sbx_version: int = SBX_VERSION

    @property
    def payload(self) -> dict[str, Value]:
        return {
            "base_os_oid": self.base_os_oid,
            "capabilities": list(self.sorted_capabilities),
            "profile_oid": self.profile_oid,
            "sbx_version": self.sbx_version,
        }

    @property
    def sorted_capabilities(self) -> tuple[str, ...]:
        return tuple(sorted(self.capabilities))

    @property
    def encoded(self) -> bytes:
        """The canonical bytes that are hashed."""
        return canonical_encode("sandbox", self.payload)

    @property
    def sbx_id(self) -> str:
        return oid_of("sandbox", self.payload)
