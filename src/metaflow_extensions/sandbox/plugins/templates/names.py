"""The names of the templates that px makes.  By its name px finds a template again, and knows that it is px's own.

``px-project-SOURCE-VARIANT`` is of a project's image, and SOURCE begins its ``sbx_id``; ``px-image-…`` is of another
image or template.  The end of a name is a checksum of the rest: other people may call their templates ``px-…`` too, and
px must never remove one of those.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metaflow_extensions.sandbox.plugins.backend import SandboxConfig

PROJECT, IMAGE = "project", "image"
_SOURCE, _VARIANT, _CHECK = 24, 8, 8
_NAME = re.compile(rf"px-({PROJECT}|{IMAGE})-([0-9a-f]{{{_SOURCE}}})-([0-9a-f]{{{_VARIANT}}})([0-9a-f]{{{_CHECK}}})")


@dataclass(frozen=True)
class TemplateName:
    """What a name says."""

    kind: str
    source: str
    variant: str

    def __str__(self) -> str:
        body = f"px-{self.kind}-{self.source}-{self.variant}"
        return body + _hash("px template", body)[:_CHECK]


def template_name(config: SandboxConfig) -> str:
    """The name for this image with these resources: at the providers, they are parts of the template."""
    resources = config.resources
    image = config.image or ""
    # Wherever it was pushed to, an image with this digest is this image.
    content = image.partition("@")[2] or image
    sizes = [resources.cpu, resources.memory_mb, resources.gpu, resources.disk_mb]
    source = config.sbx_id or _hash("image", image)
    kind = PROJECT if config.sbx_id else IMAGE
    return str(TemplateName(kind, source[:_SOURCE], _hash(content, json.dumps(sizes))[:_VARIANT]))


def parse(name: object) -> TemplateName | None:
    """What a name says, if px gave it; None for all other names, and for what is none."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        return None
    read = TemplateName(found[1], found[2], found[3])
    return read if str(read) == name else None


def _hash(*words: str) -> str:
    return sha256("\0".join(words).encode()).hexdigest()
