"""What a packed image says about itself: labels and annotations, from which ``px pack verify`` makes it again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from px import bounds
from px.errors import PxError
from px.oci.config import timestamp
from px.platforms import ARCHITECTURES, DEFAULT_BASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.oci.documents import Platform
    from px.project.discovery import Project
    from px.project.git.history import Commit
    from px.project.selection import Selection
    from px.sandbox.definition import Derived

LABEL = "px."


def image_labels(
    derived: Derived, selection: Selection, app_oid: str, added: frozenset[str] = frozenset(), *, code: bool = True
) -> dict[str, str]:
    """The ids of everything that the image was made from; ``added`` are capabilities that only it has."""
    return {
        f"{LABEL}sbx_id": derived.definition.sbx_id,
        f"{LABEL}base": derived.base.name,
        f"{LABEL}base_os_oid": derived.base.oid,
        f"{LABEL}profile_oid": derived.profile.oid,
        f"{LABEL}capabilities": ",".join(sorted(derived.capabilities)),
        f"{LABEL}selection": json.dumps(selection.as_json(), sort_keys=True, separators=(",", ":")),
        f"{LABEL}app_oid": app_oid,
        **({f"{LABEL}added": ",".join(sorted(added))} if added else {}),
        **({} if code else {f"{LABEL}code": "none"}),
    }


def has_code(labels: dict[str, str]) -> bool:
    """Whether the working tree was put into an image."""
    return labels.get(f"{LABEL}code") != "none"


def added_to(labels: dict[str, str]) -> frozenset[str]:
    """The capabilities that were added for an image alone."""
    return frozenset(_words(labels.get(f"{LABEL}added", "")))


def task_labels(datastore: str, pins: Sequence[str], *, apt: bool = False) -> dict[str, str]:
    """The tasks of Metaflow that an image is for, and what it has for them beside the lock."""
    found = {f"{LABEL}tasks": datastore, f"{LABEL}task_packages": ",".join(pins)}
    return found | ({f"{LABEL}task_apt": "1"} if apt else {})


def tasks_in(labels: dict[str, str]) -> tuple[str, tuple[str, ...], bool] | None:
    """(datastore, packages, whether apt is there for them) of an image that is for tasks."""
    datastore = labels.get(f"{LABEL}tasks")
    if datastore is None:
        return None
    return datastore, _words(labels.get(f"{LABEL}task_packages", "")), f"{LABEL}task_apt" in labels


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def selection_of(labels: dict[str, str]) -> dict[str, Any]:
    """The selection that an image says it was made with."""
    try:
        return dict(bounds.parse_json(labels[f"{LABEL}selection"]))
    except (KeyError, ValueError, TypeError) as e:
        raise PxError("PX923", source="the image", problem="it does not say what px made it from") from e


def architecture_of(platform: Platform) -> str:
    """Debian's and OCI's words for the architectures that px has are the same."""
    if platform.os != "linux" or platform.architecture not in ARCHITECTURES:
        known = ", ".join(one.platform for one in ARCHITECTURES.values())
        raise PxError("PX900", base=DEFAULT_BASE, problem=f"px has no base for {platform}; it has {known}")
    return platform.architecture


def image_annotations(project: Project, derived: Derived, commit: Commit | None) -> dict[str, str]:
    """OCI's own words for where an image comes from."""
    prefix = "org.opencontainers.image."
    found = {
        "title": project.here.name or "",  # never the directory's name: clones have other ones
        "version": project.here.version or "",
        "revision": commit.revision if commit else "",
        "source": _source(project, commit),
        "base.name": f"px/base:{derived.base.name}-{derived.base.lock.variant}",
        "created": timestamp(commit.time if commit else 0),
    }
    return {prefix + name: value for name, value in found.items() if value}


def _source(project: Project, commit: Commit | None) -> str:
    """Where the code is: as the manifest says, which is the same in every clone, else where this one came from."""
    urls = project.here.project.get("urls", {})
    named = {re.sub(r"[^a-z]", "", label.lower()): str(url) for label, url in urls.items()}
    written = next((named[label] for label in ("source", "sourcecode", "repository", "github") if label in named), "")
    return written or (public_address(commit.remote) if commit else "")


def public_address(remote: str) -> str:
    """A remote as everybody may reach it: ssh and https are one place; a directory of this machine is none."""
    ssh = re.fullmatch(r"(?:ssh://)?(?:[^@/]+@)?([^:/@]+)(?::(?!\d)|(?::\d+)?/)(.+)", remote)
    if "://" not in remote and ":" not in remote.partition("/")[0]:
        return ""
    if remote.startswith(("http://", "https://")):
        return remote.removesuffix("/").removesuffix(".git")
    if ssh is not None and (remote.startswith("ssh://") or "://" not in remote):
        return f"https://{ssh[1]}/{ssh[2].strip('/').removesuffix('.git')}"
    return ""
