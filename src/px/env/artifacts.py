"""What the lock says to install for one runtime: an ordered list of wheels, sdists and local projects."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote, urlsplit

from px.errors import PxError
from px.project import lock as locks
from px.project.choices import choices
from px.store.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from packaging.pylock import Package, PackageArchive, PackageDirectory, PackageSdist, PackageVcs, PackageWheel

    from px.env.runtime import Runtime
    from px.project.choices import Choice
    from px.project.context import Context
    from px.project.discovery import Project
    from px.project.selection import Selection
    from px.project.settings import Settings

FORMAT = 3
_SOURCES = ("wheels", "sdist", "vcs", "directory", "archive")
Kind = Literal["wheel", "sdist", "vcs", "directory"]


@dataclass(frozen=True)
class Artifact:
    """One package of the env and where it comes from."""

    name: str
    version: str
    kind: Kind
    location: str
    """A URL, or a path relative to the project root."""
    sha256: str = ""
    size: int | None = None
    filename: str = ""
    index: str = ""
    commit: str = ""
    subdirectory: str = ""
    editable: bool = False
    uploaded: str = ""
    """When the index got it (ISO 8601, UTC), where the lock knows."""

    @property
    def directory(self) -> str:
        """Where a local project lies, relative to the root."""
        return os.path.normpath(os.path.join(self.location, self.subdirectory)).replace(os.sep, "/")

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}".rstrip()


def select(context: Context, selection: Selection, runtime: Runtime, inputs: str) -> tuple[Artifact, ...]:
    """Pick the artifacts of the lock for ``runtime``; remembered for the inputs that they were picked from."""
    key = json.dumps([FORMAT, inputs, str(context.root), selection.as_json(), runtime.payload(), runtime.libc])
    cached = context.home.cache("selections") / (hashlib.sha256(key.encode()).hexdigest()[:40] + ".json")
    try:
        return tuple(Artifact(**raw) for raw in json.loads(cached.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        pass
    chosen = tuple(_select(context, selection, runtime))
    write_atomically(cached, json.dumps([asdict(a) for a in chosen]).encode(), durable=False)
    return chosen


def _select(context: Context, selection: Selection, runtime: Runtime) -> list[Artifact]:
    document = locks.export(context, selection)
    return pick(context, document, runtime, lambda: choices(context.project, document, selection))


def pick(
    context: Context, document: dict[str, Any], runtime: Runtime, chosen: Callable[[], Choice] = lambda: (None, None)
) -> list[Artifact]:
    """The artifacts of a PEP 751 document for ``runtime``; ``chosen`` says which extras and groups it shall have."""
    from packaging.pylock import PylockSelectError

    project = context.project
    packages = document.get("packages", [])
    if not isinstance(packages, list) or not all(isinstance(package, dict) for package in packages):
        raise PxError("PX101", lock=project.lock.name, problem="its packages are not an array of tables")
    _from_source(context.settings, document)
    _prune(document, runtime)
    with _evaluating(project):
        _drop_absent(project, document, runtime)
    pylock = locks.to_pylock(project, document)
    extras, groups = chosen()
    try:
        with _evaluating(project):
            picked = list(
                pylock.select(
                    environment=runtime.markers(), tags=runtime.tags(), extras=extras, dependency_groups=groups
                )
            )
        found = [_artifact(project, package, source) for package, source in picked]
    except PylockSelectError as e:
        raise _unselectable(project, runtime, pylock.requires_python, str(e)) from e
    return sorted(found, key=lambda a: a.name)


@contextmanager
def _evaluating(project: Project) -> Iterator[None]:
    """A marker that says nothing, such as ``os_name ~= '1.0'``, is only found out when it is evaluated."""
    from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName

    try:
        yield
    except (UndefinedComparison, UndefinedEnvironmentName, InvalidMarker, TypeError) as e:
        raise PxError("PX101", lock=project.lock.name, problem=f"a marker cannot be evaluated: {e}") from e


def _from_source(settings: Settings, document: dict[str, Any]) -> None:
    """Drop the wheels of packages that the project wants built: ``no-binary``, or ``no-binary-package``."""
    for package in document.get("packages", ()):
        if "sdist" in package and settings.from_source(str(package.get("name"))):
            package.pop("wheels", None)


def _prune(document: dict[str, Any], runtime: Runtime) -> None:
    """Drop wheels of other systems before they are validated: most of a universal lock is not for this machine."""
    if runtime.system != "Linux":
        return
    for package in document.get("packages", ()):
        wheels = package.get("wheels")
        if isinstance(wheels, list) and len(wheels) > 1:
            kept = [w for w in wheels if not isinstance(w, dict) or not _for_another_system(w)]
            package["wheels"] = kept or wheels


def _drop_absent(project: Project, document: dict[str, Any], runtime: Runtime) -> None:
    """Drop packages of which the lock has no file at all: uv locks so what no environment can ever need."""
    from packaging.markers import Marker

    packages = document.get("packages", ())
    absent = [row for row in packages if isinstance(row, dict) and not any(row.get(key) for key in _SOURCES)]
    for row in absent:
        if "marker" not in row or Marker(row["marker"]).evaluate(cast("dict[str, str]", runtime.markers())):
            platform = f"{runtime.abi} on {runtime.machine} with {runtime.libc}"
            name, version = str(row.get("name")), str(row.get("version", ""))
            reason = "The lock names it, and has neither a wheel nor a source of it."
            raise PxError(
                "PX104", lock=project.lock.name, package=name, version=version, platform=platform, reason=reason
            )
        packages.remove(row)


def _for_another_system(wheel: dict[str, Any]) -> bool:
    name = str(wheel.get("name") or wheel.get("url") or wheel.get("path") or "")
    platform = name.rpartition("-")[2]
    return platform.startswith(("win", "macosx", "android", "ios", "pyodide", "emscripten"))


def _unselectable(project: Project, runtime: Runtime, requires: object, reason: str) -> PxError:
    if "No wheel found" in reason:
        name = reason.split("'")[1] if "'" in reason else "a package"
        platform = f"{runtime.abi} on {runtime.machine} with {runtime.libc}"
        return PxError("PX104", lock=project.lock.name, package=name, version="", platform=platform, reason=reason)
    return PxError("PX106", reason=reason, requires=str(requires or ""), suggestion="VERSION")


def _artifact(
    project: Project,
    package: Package,
    source: PackageWheel | PackageSdist | PackageVcs | PackageDirectory | PackageArchive,
) -> Artifact:
    from packaging.pylock import PackageDirectory, PackageVcs, PackageWheel

    name, version = str(package.name), str(package.version or "")
    if isinstance(source, PackageDirectory):
        editable = bool(source.editable)
        subdirectory = source.subdirectory or ""
        return Artifact(name, version, "directory", source.path, subdirectory=subdirectory, editable=editable)
    if isinstance(source, PackageVcs):
        location = source.url or source.path or ""
        return Artifact(name, version, "vcs", location, commit=source.commit_id, subdirectory=source.subdirectory or "")
    location = source.url or source.path or ""
    filename = getattr(source, "name", None) or unquote(urlsplit(location).path).rpartition("/")[2]
    sha256 = (source.hashes or {}).get("sha256", "")
    if not sha256:
        raise PxError("PX103", lock=project.lock.name, package=name, version=version, artifact=filename)
    kind: Kind = "wheel" if isinstance(source, PackageWheel) or filename.endswith(".whl") else "sdist"
    return Artifact(
        name,
        version,
        kind,
        location,
        sha256=str(sha256).lower(),
        size=source.size,
        filename=filename,
        index=package.index or "",
        subdirectory=getattr(source, "subdirectory", None) or "",
        uploaded=source.upload_time.astimezone(UTC).isoformat() if source.upload_time else "",
    )


def resolve_path(project_root: Path, location: str) -> Path | None:
    """The local file or directory that a location names, or None when it is a remote URL."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and "://" in location:
        return None
    return Path(project_root, location)
