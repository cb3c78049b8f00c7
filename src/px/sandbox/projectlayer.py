"""The project itself in the image: an editable install at ``/app``, as a small layer above the env's.

Made from the manifest alone, in process, for the build backends that install pure Python in place by adding
a directory to ``sys.path``; it holds metadata, a ``.pth`` file and the console scripts, and no code.  It is not
part of ``sbx_id``: the same image serves every version of the project's own code.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from px import console
from px.env.layout import entry_point_script
from px.env.wheel import EntryPoint
from px.errors import PxError
from px.sandbox.bases import Layer
from px.sandbox.envlayer import PREFIX, PYTHON
from px.store.canonical import oid_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.env.profile import Editable
    from px.env.runtime import Runtime
    from px.project.discovery import Project
    from px.project.manifest import Manifest
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload, Store

APP = "/app"
UNKNOWN = "0+unknown"
# Backends whose editable install is a directory on sys.path when there is nothing to compile.
_IN_PLACE = ("setuptools", "hatchling", "flit_core", "uv_build", "pdm", "poetry")


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


def ensure_project_layer(
    store: Store, project: Project, editables: Sequence[Editable], runtime: Runtime
) -> Layer | None:
    """The layer with every editable project of the env; None where there is none."""
    found = [_installed(project, editable) for editable in editables]
    if not found:
        return None
    site = f"{PREFIX}/{runtime.site_packages}"

    def make(draft: Draft) -> Payload:
        tree = draft.tree()
        for item in found:
            info = f"{site}/{item.name.replace('-', '_')}-{item.version}.dist-info"
            tree.file(f"{info}/METADATA", item.metadata.encode())
            tree.file(f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: px\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            tree.file(f"{info}/INSTALLER", b"px\n")
            tree.file(f"{info}/direct_url.json", b'{"dir_info": {"editable": true}, "url": "file:///app"}\n')
            if item.entry_points:
                tree.file(f"{info}/entry_points.txt", item.entry_points.encode())
            lines = "".join(f"{directory}\n" for directory in item.directories)
            tree.file(f"{site}/_px_{item.name.replace('-', '_')}.pth", lines.encode())
            for script in item.scripts:
                tree.file(f"{PREFIX}/bin/{script.name}", entry_point_script(PYTHON, script).encode(), 0o755)
        return {"what": "project", "tree": tree.finish()}

    rows: list[Value] = [[i.name, i.version, list(i.directories), i.metadata, i.entry_points] for i in found]
    oid = store.ensure("layer", oid_of("project-layer-inputs", [site, *rows]), make, label="the project's own layer")
    return Layer(oid, "layer", "project", store.tree("layer", oid), ())


def _installed(project: Project, editable: Editable) -> Installed:
    root = (project.root / editable.path).resolve()
    manifest = next((m for m in project.manifests if m.path.parent.resolve() == root), None)
    if manifest is None:
        from px.project.manifest import FILE, Manifest

        manifest = Manifest.read(root / FILE)
        problem = f"{editable.name} lies outside of the project ({root}), so it is not under {APP}"
        raise PxError("PX903", problem=problem, fix=["Move it into the workspace, or depend on it as a package."])
    _check_backend(manifest)
    version = _version(manifest)
    inside = APP if editable.path == "." else f"{APP}/{editable.path}"
    directories = tuple(inside if d == "." else f"{inside}/{d}" for d in source_directories(manifest))
    scripts = _scripts(manifest)
    return Installed(
        name=editable.name,
        version=version,
        directories=directories,
        metadata=_metadata(manifest, editable.name, version),
        scripts=scripts,
        entry_points=_entry_points(manifest),
    )


def _check_backend(manifest: Manifest) -> None:
    backend = str(manifest.document.get("build-system", {}).get("build-backend", "setuptools.build_meta"))
    if backend.split(".", maxsplit=1)[0] in _IN_PLACE and not _compiles(manifest):
        return
    problem = f"{manifest.name} is built by {backend}, and px cannot install it in place in the sandbox"
    why = ["It has compiled parts, or a build backend that px does not know."]
    fix = ["Put the compiled part into a package of its own, which px builds like any other."]
    raise PxError("PX903", problem=problem, why=why, fix=fix)


def _compiles(manifest: Manifest) -> bool:
    tool = manifest.document.get("tool", {})
    return bool(
        tool.get("setuptools", {}).get("ext-modules")
        or tool.get("poetry", {}).get("build")
        or "cython" in str(manifest.document.get("build-system", {}).get("requires", "")).lower()
    )


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


def _version(manifest: Manifest) -> str:
    if manifest.version:
        return manifest.version
    found = _version_in_source(manifest)
    if found is None:
        # Most projects never ask; refusing to run those that compute it from git would be worse than saying so.
        console.warn(
            f"{manifest.name}: its build backend computes its version, which px does not do: in the sandbox it is "
            f"{UNKNOWN}. To have the right one there, write it down in [project] or as __version__ in __init__.py."
        )
    return found or UNKNOWN


def _version_in_source(manifest: Manifest) -> str | None:
    """``__version__`` as a literal, where the backend is told (or would be used) to read it."""
    tool: dict[str, Any] = manifest.document.get("tool", {})
    root = manifest.path.parent
    candidates: list[Path] = []
    hatch = tool.get("hatch", {}).get("version", {})
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


def _literal(path: Path, name: str) -> str | None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
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
        if "/" in script.name or ":" not in script.target:
            raise PxError(
                "PX003", path=manifest.path, problem=f"the script {script.name!r} = {script.target!r} is wrong"
            )
    return tuple(sorted(found, key=lambda s: s.name))


def _entry_points(manifest: Manifest) -> str:
    groups: dict[str, dict[str, str]] = {"console_scripts": manifest.scripts}
    groups["gui_scripts"] = manifest.project.get("gui-scripts", {})
    groups |= manifest.project.get("entry-points", {})
    lines: list[str] = []
    for group in sorted(g for g, rows in groups.items() if rows):
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in sorted(groups[group].items())), ""]
    return "\n".join(lines)
