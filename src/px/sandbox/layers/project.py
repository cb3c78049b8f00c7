"""The project itself in the image: an editable install at ``/app``, as a small layer above the env's.

Made from the manifest alone, in process, for the build backends that install pure Python in place by adding
a directory to ``sys.path``; it holds metadata, a ``.pth`` file and the console scripts, and no code.  A project that
compiles something, or computes its version, is built for it (:mod:`px.sandbox.build.project`), and what its working
tree lacks is found by a small finder.  The layer is not part of ``sbx_id``: the same image serves every version of
the project's own code.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from px import console
from px.env.layout import (
    BadEntryPointError,
    EntryPoint,
    check_script,
    entry_point_script,
    read_own_entry_points,
    script_content,
    script_files,
)
from px.errors import PxError
from px.project.manifest import FILE, Manifest
from px.sandbox.layers.env import PREFIX, PYTHON
from px.sandbox.layers.layer import Layer
from px.sandbox.needs.inference import LockedPackage
from px.store.canonical import oid_of
from px.warm.spec import APP, SOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.env.profile import Editable, Profile
    from px.project.discovery import Project
    from px.sandbox.build.builder import SandboxBuilder
    from px.sandbox.build.project import BuiltProject
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload
    from px.store.tree import TreeWriter

UNKNOWN = "0+unknown"
# Backends whose editable install is a directory on sys.path when there is nothing to compile.
_IN_PLACE = ("setuptools", "hatchling", "flit_core", "uv_build", "pdm", "poetry")
_COMPILES = re.compile("cython|scikit-build|pybind11|nanobind", re.IGNORECASE)  # also as hooks of hatchling
_EXTENSIONS = re.compile(r"\b(ext_modules|cffi_modules|rust_extensions|cythonize|Extension)\b")
# What a manifest may leave to the build backend, and an image must have.
_BUILT = frozenset({"scripts", "gui-scripts", "entry-points"})
_FINDER = """\
import sys


class Finder:
    HERE = __file__.removesuffix(".py")
    MODULES = {modules!r}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.MODULES:
            return None
        from importlib.util import spec_from_file_location

        file = f"{{cls.HERE}}/{{cls.MODULES[name]}}"
        package = [file.rpartition("/")[0]] if file.endswith("/__init__.py") else None
        return spec_from_file_location(name, file, submodule_search_locations=package)


sys.meta_path.insert(0, Finder)
"""


@dataclass(frozen=True)
class Installed:
    """One project of the workspace as importlib.metadata and the shell shall see it."""

    name: str
    version: str
    directories: tuple[str, ...]
    """What goes on sys.path, inside the image."""
    metadata: str
    scripts: tuple[EntryPoint, ...]
    entry_points: str
    built: BuiltProject | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    """Programs that are no entry points, with what they are called."""
    place: str = APP
    """Where it lies: the working tree, or a directory of its own."""

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


def ensure_project_layer(builder: SandboxBuilder, editables: Sequence[Editable]) -> Layer | None:
    """The layer with every editable project of the env; None where there is none."""
    store, project = builder.store, builder.ground.context.project
    found = [_installed(project, editable, builder) for editable in editables]
    if not found:
        return None
    site = f"{PREFIX}/{builder.ground.python.runtime.site_packages}"

    def make(draft: Draft) -> Payload:
        tree = draft.tree()
        for item in found:
            info = f"{site}/{item.module}-{item.version}.dist-info"
            tree.file(f"{info}/METADATA", item.metadata.encode())
            tree.file(f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: px\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            tree.file(f"{info}/INSTALLER", b"px\n")
            url = f'{{"dir_info": {{"editable": true}}, "url": "file://{item.place}"}}\n'
            tree.file(f"{info}/direct_url.json", url.encode())
            if item.entry_points:
                tree.file(f"{info}/entry_points.txt", item.entry_points.encode())
            lines = "".join(f"{directory}\n" for directory in item.directories)
            if item.built is not None and item.built.lacking:
                lines += f"import _px_{item.module}\n"
                _add_lacking(tree, f"{site}/_px_{item.module}", item.built)
                # By it the link check, and scanners, know whose files these are.
                rows = "".join(f'"_px_{item.module}/{path}",,\n' for path in item.built.lacking)
                tree.file(f"{info}/RECORD", rows.encode())
            tree.file(f"{site}/_px_{item.module}.pth", lines.encode())
            for name, content in item.files:
                tree.file(f"{PREFIX}/bin/{name}", script_content(content, PYTHON), 0o755)
            for script in item.scripts:
                tree.file(f"{PREFIX}/bin/{script.name}", entry_point_script(PYTHON, script).encode(), 0o755)
        return {"what": "project", "tree": tree.finish()}

    rows: list[Value] = [_row(item) for item in found]
    oid = store.ensure("layer", oid_of("project-layer-inputs", [site, *rows]), make, label="the project's own layer")
    return Layer.of(store, oid, "project")


def _row(item: Installed) -> list[Value]:
    """What the layer depends on, for one project."""
    row: list[Value] = [item.name, item.version, list(item.directories), item.metadata, item.entry_points]
    row += [item.built.oid] if item.built else []
    return row + [[name, hashlib.sha256(content).hexdigest()] for name, content in item.files]


def own_packages(builder: SandboxBuilder, editables: Sequence[Editable]) -> list[LockedPackage]:
    """The projects themselves, as far as inference cares: compiled modules need libraries, whoever wrote them."""
    found = []
    for editable in editables:
        manifest = _manifest(builder.ground.context.project, editable)
        compiled = has_compiled_parts(manifest)
        built = _build(builder, manifest, editable.name, needed=True) if compiled else None
        found.append(LockedPackage(editable.name, "", built.oid if built else None, from_sdist=compiled))
    return found


def _add_lacking(tree: TreeWriter, place: str, built: BuiltProject) -> None:
    """The modules that only the build made, and the finder that knows them."""
    for path in built.lacking:
        file = built.tree / path
        tree.file(f"{place}/{path}", file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644)
    tree.file(f"{place}.py", _FINDER.format(modules=built.modules).encode())


def siblings(root: Path, profile: Profile) -> dict[str, Path]:
    """The editable projects that lie outside of this one: where each is in the sandbox -> where it is here."""
    found = {_inside(e): (root / e.path).resolve() for e in profile.editables if _inside(e).startswith(f"{SOURCES}/")}
    for path in found.values():
        if Path.home().is_relative_to(path):
            problem = f"an editable dependency is {path}, which holds your home: a sandbox would see all of it"
            raise PxError("PX003", path=root / FILE, problem=problem)
    return found


def _inside(editable: Editable) -> str:
    """Where a project is in the sandbox: below the working tree as it is here, or else in a place of its own."""
    if editable.path == ".." or editable.path.startswith(("../", "/")):
        return f"{SOURCES}/{editable.name}"
    return APP if editable.path == "." else f"{APP}/{editable.path}"


def _installed(project: Project, editable: Editable, builder: SandboxBuilder) -> Installed:
    manifest = _manifest(project, editable)
    inside = _inside(editable)
    directories = tuple(inside if d == "." else f"{inside}/{d}" for d in source_directories(manifest))
    place = inside if inside.startswith(f"{SOURCES}/") else APP
    needed = has_compiled_parts(manifest) or bool(_BUILT & set(manifest.project.get("dynamic", ())))
    version, files = written_version(manifest), script_files(manifest)
    if needed or version is None:
        built = _build(builder, manifest, editable.name, needed=needed)
        if built is not None:
            scripts = tuple(read_own_entry_points(editable.name, manifest.path.parent, built.entry_points))
            return Installed(
                editable.name,
                built.version,
                directories,
                built.metadata,
                scripts,
                built.entry_points,
                built,
                tuple((built.programs | files).items()),
                place,
            )
        version = UNKNOWN
    scripts = _scripts(manifest)
    return Installed(
        name=editable.name,
        version=version,
        directories=directories,
        metadata=_metadata(manifest, editable.name, version),
        scripts=scripts,
        entry_points=_entry_points(manifest),
        files=tuple(files.items()),
        place=place,
    )


def _manifest(project: Project, editable: Editable) -> Manifest:
    """The manifest of an editable project, which may be none of this workspace's."""
    root = (project.root / editable.path).resolve()
    found = next((m for m in project.manifests if m.path.parent.resolve() == root), None)
    path = root / FILE
    return found or (Manifest.read(path) if path.is_file() else Manifest(path, {}))


def has_compiled_parts(manifest: Manifest) -> bool:
    """Whether installing the project in place takes more than a directory on ``sys.path``."""
    system, tool = manifest.document.get("build-system", {}), manifest.document.get("tool", {})
    backend = str(system.get("build-backend", "setuptools.build_meta"))
    setup = manifest.path.parent / "setup.py"
    return bool(
        backend.split(".", maxsplit=1)[0] not in _IN_PLACE
        or tool.get("setuptools", {}).get("ext-modules")
        or tool.get("poetry", {}).get("build")
        or _COMPILES.search(str(system.get("requires", "")))
        or (setup.is_file() and _EXTENSIONS.search(setup.read_text(encoding="utf-8", errors="replace")))
    )


def _build(builder: SandboxBuilder, manifest: Manifest, name: str, *, needed: bool) -> BuiltProject | None:
    """The project as its backend builds it; None where only its version could not be found out."""
    from px.sandbox.build.project import build_project  # most projects are installed in place

    sources, compiled = source_directories(manifest), has_compiled_parts(manifest)
    try:
        return build_project(builder, manifest.path.parent.resolve(), name, sources, compiled=compiled)
    except PxError as e:
        if needed:
            raise
        # Most projects never ask; refusing to run those that compute it from git would be worse than saying so.
        why = reason(e)
        console.warn(f"{manifest.name}: its version could not be computed, so in the sandbox it is {UNKNOWN}: {why}")
        return None


def reason(error: PxError) -> str:
    """The line of a failed build that says most: its last error, else its last line."""
    lines = error.why[0].splitlines() if error.why else [error.what]
    return next((line for line in reversed(lines) if "error: " in line.lower()), lines[-1]).strip()


def source_directories(manifest: Manifest) -> tuple[str, ...]:
    """Where the project's modules are, relative to it: as its build backend is told, else src if it is used."""
    tool: dict[str, Any] = manifest.document.get("tool", {})
    named: list[str] = []
    package_dir = tool.get("setuptools", {}).get("package-dir", {})
    if isinstance(package_dir, dict) and "" in package_dir:
        named.append(str(package_dir[""]))
    find = tool.get("setuptools", {}).get("packages", {})
    if isinstance(find, dict):
        named += [str(w) for w in find.get("find", {}).get("where", ())]
    wheel = tool.get("hatch", {}).get("build", {}).get("targets", {}).get("wheel", {})
    named += [str(Path(p).parent) for p in wheel.get("packages", ())]
    named += [str(p.get("from", ".")) for p in tool.get("poetry", {}).get("packages", ()) if isinstance(p, dict)]
    named += [str(tool["pdm"]["build"]["package-dir"])] if "package-dir" in tool.get("pdm", {}).get("build", {}) else []
    backend = tool.get("uv", {}).get("build-backend", {})
    if "module-root" in backend:
        named.append(str(backend["module-root"]) or ".")
    if named:
        return tuple(dict.fromkeys("." if n in ("", ".") else n.strip("/") for n in named))
    return ("src",) if _has_modules(manifest.path.parent / "src") else (".",)


def _has_modules(directory: Path) -> bool:
    if not directory.is_dir():
        return False
    return any(p.suffix == ".py" or (p.is_dir() and not p.name.startswith(".")) for p in directory.iterdir())


def written_version(manifest: Manifest) -> str | None:
    """The version, where it is written down; None where the build backend computes it.

    As every installer writes it: what a project calls 1.0.0-rc1 is 1.0.0rc1 in its metadata.
    """
    if manifest.version:
        found = _canonical(manifest.version)
        if found is None:
            problem = f"project.version is {manifest.version!r}, which is no version of a Python package"
            raise PxError("PX003", path=manifest.path, problem=problem)
        return found
    found = _version_in_source(manifest)
    return _canonical(found) if found else None


def _canonical(version: str) -> str | None:
    try:
        return str(Version(version))
    except InvalidVersion:
        return None


def _version_in_source(manifest: Manifest) -> str | None:
    """``__version__`` as a literal, where the backend is told (or would be used) to read it."""
    tool: dict[str, Any] = manifest.document.get("tool", {})
    root = manifest.path.parent
    candidates: list[Path] = []
    hatch = tool.get("hatch", {}).get("version", {})
    if "path" in hatch and "pattern" in hatch:
        return _match(root / hatch["path"], hatch["pattern"])
    if "path" in hatch:
        candidates.append(root / hatch["path"])
    attribute = tool.get("setuptools", {}).get("dynamic", {}).get("version", {})
    name = "__version__"
    if isinstance(attribute, dict) and "attr" in attribute:
        module, _, name = str(attribute["attr"]).rpartition(".")
        for directory in source_directories(manifest):
            path = root / directory / Path(*module.split("."))
            candidates += [path.with_suffix(".py"), path / "__init__.py"]
    if isinstance(attribute, dict) and "file" in attribute:
        named = attribute["file"] if isinstance(attribute["file"], list) else [attribute["file"]]
        texts = [path.read_text(encoding="utf-8") for path in (root / str(n) for n in named) if path.is_file()]
        return "".join(texts).strip() or None
    module = (manifest.name or "").replace("-", "_")
    candidates += [root / d / module / "__init__.py" for d in source_directories(manifest)]
    for path in candidates:
        if path.is_file() and (found := _literal(path, name)):
            return found
    return None


def _match(path: Path, pattern: str) -> str | None:
    """What hatchling finds with a pattern of the project's own; None for a bad one, which hatchling complains about."""
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
        return found["version"] if found else None
    except (OSError, ValueError, re.error, IndexError):
        return None


def _literal(path: Path, name: str) -> str | None:
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):  # newer than the Python that px runs on, for example: the backend computes it
        return None
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id in (name, "VERSION") and isinstance(value, ast.Constant):
                return str(value.value)
    return None


def _metadata(manifest: Manifest, name: str, version: str) -> str:
    """The core metadata that importlib.metadata and scanners read."""
    lines = ["Metadata-Version: 2.1", f"Name: {manifest.name or name}", f"Version: {version}"]
    if isinstance(manifest.project.get("description"), str):
        lines.append(
            f"Summary: {manifest.project['description'].splitlines()[0] if manifest.project['description'] else ''}"
        )
    if isinstance(manifest.project.get("license"), str):
        lines.append(f"License: {manifest.project['license']}")
    if manifest.requires_python:
        lines.append(f"Requires-Python: {manifest.requires_python}")
    lines += [f"Requires-Dist: {r}" for r in manifest.project.get("dependencies", ())]
    for extra, requirements in sorted(manifest.project.get("optional-dependencies", {}).items()):
        lines.append(f"Provides-Extra: {extra}")
        for requirement in requirements:
            text, _, marker = requirement.partition(";")
            condition = f"({marker.strip()}) and extra == '{extra}'" if marker else f"extra == '{extra}'"
            lines.append(f"Requires-Dist: {text.strip()}; {condition}")
    return "\n".join(re.sub(r"[\r\n]+", " ", line) for line in lines) + "\n"


def _scripts(manifest: Manifest) -> tuple[EntryPoint, ...]:
    tables = ((manifest.scripts, False), (manifest.project.get("gui-scripts", {}), True))
    found = [EntryPoint(name, target, gui) for table, gui in tables for name, target in table.items()]
    for script in found:
        try:
            check_script(script.name, script.target)
        except BadEntryPointError as e:
            raise PxError("PX003", path=manifest.path, problem=str(e)) from e
    return tuple(sorted(found, key=lambda s: s.name))


def _entry_points(manifest: Manifest) -> str:
    groups: dict[str, dict[str, str]] = {"console_scripts": manifest.scripts}
    groups["gui_scripts"] = manifest.project.get("gui-scripts", {})
    groups |= manifest.project.get("entry-points", {})
    lines: list[str] = []
    for group in sorted(g for g, rows in groups.items() if rows):
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in sorted(groups[group].items())), ""]
    return "\n".join(lines)
