"""The manifest M: what px reads of a ``pyproject.toml``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from px import bounds
from px.errors import PxError
from px.project.keys import Key, Kind, names_of
from px.warm.record import matching, members

if TYPE_CHECKING:
    from pathlib import Path

FILE = "pyproject.toml"
SANDBOX = "sandbox"
KEYS = (
    Key(
        "cache",
        Kind.STRING,
        "The shared cache: a repository in a registry, from which px takes what it would otherwise build.",
        example="registry.example.org/team/px-cache",
    ),
    Key(
        "env",
        Kind.TABLE,
        "Variables that are set in every run, on this machine and in the sandbox. They are part of the profile.",
        example={"APP_MODE": "production"},
    ),
    Key(
        "registry",
        Kind.STRING,
        "The repository in a registry that the images of Metaflow's tasks go to.",
        example="registry.example.org/team/tasks",
    ),
    Key("sandbox", Kind.TABLE, "The sandbox: the operating system under the project's packages."),
    Key(
        "test",
        Kind.STRINGS,
        "The command that px test runs, as an array of its words. Without it, px test runs pytest.",
        example=["pytest", "-q"],
    ),
)
OLD_MANIFESTS = ("setup.py", "setup.cfg")


@dataclass(frozen=True)
class Manifest:
    """One ``pyproject.toml``, parsed once; the properties are the only places that know its keys."""

    path: Path
    document: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Manifest:
        try:
            document = bounds.read_toml(path)
        except ValueError as e:
            raise PxError("PX002", path=path, reason=str(e)) from e
        manifest = cls(path, document)
        manifest.check()
        return manifest

    def check(self) -> None:
        """Refuse wrong types in what px reads: a late surprise would be harder to understand."""
        expected: list[tuple[str, Any, type]] = [
            ("project", self.document.get("project", {}), dict),
            ("tool", self.document.get("tool", {}), dict),
        ]
        for name, value, kind in expected:
            self._expect(name, value, kind)
        self._expect("dependency-groups", self.document.get("dependency-groups", {}), dict)
        self._expect("tool.uv", self.tool("uv"), dict)
        self._expect("tool.px", self.tool("px"), dict)
        for key in ("name", "version", "requires-python"):
            self._expect(f"project.{key}", self.project.get(key, ""), str)
        self._expect("tool.uv.workspace", self.tool("uv").get("workspace", {}), dict)
        self._expect("tool.uv.sources", self.tool("uv").get("sources", {}), dict)
        self._expect("tool.uv.cache-keys", self.tool("uv").get("cache-keys", []), list)
        self._check_own(self.tool("px"))
        for name, value in self.tool("px").get("env", {}).items():
            self._expect(f"tool.px.env.{name}", value, str)
            # The kernel has variables as NAME=VALUE, each up to a zero byte: others would be read as other variables.
            if not name or "=" in name or "\0" in name + value:
                self._fail(f"tool.px.env has a variable that cannot exist: {name!r}")

    def _check_own(self, table: dict[str, Any]) -> None:
        known = {key.name: key for key in KEYS}
        for name, value in table.items():
            if name not in known:
                self._fail(f"[tool.px] has no key {name!r} (known: {', '.join(names_of(KEYS))})")
            # The table of the sandbox is read by itself, with lines (sandbox/manifest.py).
            if name != SANDBOX and not known[name].accepts(value):
                self._fail(f"tool.px.{name} must be {known[name].wanted}, not {value!r}")

    def _expect(self, name: str, value: object, kind: type) -> None:
        if not isinstance(value, kind):
            words: dict[type, str] = {dict: "a table", str: "a string", list: "an array"}
            self._fail(f"{name} must be {words[kind]}, not {value!r}")

    def _expect_strings(self, name: str, value: object) -> None:
        if not isinstance(value, list) or not all(isinstance(v, str) and "\0" not in v for v in value):
            self._fail(f"{name} must be an array of strings, not {value!r}")

    def _fail(self, problem: str) -> None:
        raise PxError("PX003", path=self.path, problem=problem)

    @property
    def cache(self) -> str:
        """The repository of the shared cache; empty if the project names none."""
        return str(self.tool("px").get("cache", ""))

    @property
    def registry(self) -> str:
        """The registry that the images of the project's tasks go to; empty if the project names none."""
        return str(self.tool("px").get("registry", ""))

    @property
    def project(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.get("project", {})
        return found

    def tool(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.document.get("tool", {}).get(name, {})
        return found

    @property
    def sandbox_network(self) -> dict[str, Any]:
        """``[tool.px.sandbox.network]``, unchecked: enough to know whether a warm run will do."""
        sandbox = self.tool("px").get("sandbox", {})
        found = sandbox.get("network", {}) if isinstance(sandbox, dict) else {}
        return found if isinstance(found, dict) else {"mode": found}

    @property
    def sandbox_gpu(self) -> bool:
        """Whether ``[tool.px.sandbox].gpu`` says anything: a warm run has no GPU."""
        sandbox = self.tool("px").get("sandbox", {})
        return isinstance(sandbox, dict) and "gpu" in sandbox

    @property
    def is_project(self) -> bool:
        return "project" in self.document

    @property
    def name(self) -> str | None:
        return self.project.get("name")

    @property
    def version(self) -> str | None:
        return self.project.get("version")

    @property
    def requires_python(self) -> str | None:
        return self.project.get("requires-python")

    @property
    def scripts(self) -> dict[str, str]:
        found: dict[str, str] = self.project.get("scripts", {})
        return found

    @property
    def script_files(self) -> dict[str, str]:
        """Programs that are installed as they are, name -> file: setuptools' and Hatch's way to say so."""
        files = self.tool("setuptools").get("script-files", [])
        wheel = self.tool("hatch").get("build", {}).get("targets", {}).get("wheel", {})
        found = {os.path.basename(name): name for name in files if isinstance(name, str)}
        return found | {name: file for file, name in wheel.get("shared-scripts", {}).items()}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(sorted(self.document.get("dependency-groups", {})))

    @property
    def extras(self) -> tuple[str, ...]:
        return tuple(sorted(self.project.get("optional-dependencies", {})))

    @property
    def default_groups(self) -> tuple[str, ...]:
        """The groups that uv installs without being asked: those of developers."""
        found = self.tool("uv").get("default-groups", ["dev"])
        return self.groups if found == "all" else tuple(name for name in found if name in self.groups)

    @property
    def is_package(self) -> bool:
        """Whether the project itself is installed: uv's rule."""
        explicit = self.tool("uv").get("package")
        return bool(explicit) if explicit is not None else "build-system" in self.document

    @property
    def build_files(self) -> tuple[Path, ...]:
        """What installing the project and the directories beside it reads, as far as uv knows, besides this file."""
        here = self.path.parent
        found = {here / name for pattern in self.cache_keys for name in matching(os.fspath(here), pattern)}
        found |= {here / name for name in (*OLD_MANIFESTS, *self.script_files.values())} if self.is_package else set()
        for source in self.path_sources:
            found |= set() if source.is_file() else {source / name for name in (FILE, *OLD_MANIFESTS)}
        return tuple(sorted(found - {self.path}))

    @property
    def cache_keys(self) -> tuple[str, ...]:
        """The patterns of files in ``[tool.uv] cache-keys``, each alone or as ``{ file = … }``."""
        keys = self.tool("uv").get("cache-keys", ()) if self.is_package else ()
        named = [key.get("file") if isinstance(key, dict) else key for key in keys]
        return tuple(pattern for pattern in named if isinstance(pattern, str))

    @property
    def path_sources(self) -> tuple[Path, ...]:
        """The files and directories in ``[tool.uv.sources]``, where a name may have several sources."""
        tables = self.tool("uv").get("sources", {}).values()
        rows = [row for table in tables for row in (table if isinstance(table, list) else [table])]
        return tuple(self.path.parent / str(row["path"]) for row in rows if isinstance(row, dict) and "path" in row)

    @cached_property
    def workspace(self) -> WorkspaceTable | None:
        table = self.tool("uv").get("workspace")
        if table is None:
            return None
        for key in ("members", "exclude"):
            self._expect_strings(f"tool.uv.workspace.{key}", table.get(key, []))
        return WorkspaceTable(tuple(table.get("members", ())), tuple(table.get("exclude", ())))

    @property
    def test_command(self) -> tuple[str, ...]:
        return tuple(self.tool("px").get("test", ()))

    @property
    def env(self) -> dict[str, str]:
        """Variables that belong to the profile: set in every run, here and in the sandbox."""
        return dict(self.tool("px").get("env", {}))


@dataclass(frozen=True)
class WorkspaceTable:
    """``[tool.uv.workspace]``: glob patterns, relative to the root."""

    members: tuple[str, ...]
    exclude: tuple[str, ...]

    def expand(self, root: Path) -> tuple[Path, ...]:
        """The member directories, sorted: what matches, has a manifest and is not excluded."""
        return tuple(root / name for name in members(os.fspath(root), self.members, self.exclude))
