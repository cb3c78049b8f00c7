"""The sandbox manifest: ``[tool.px.sandbox]`` of the project's or workspace root's ``pyproject.toml``.

Reading is strict: what px does not know is an error that names the file and the line, because a misspelt
``capabilites`` that is silently ignored shows up much later, as a missing library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from packaging.utils import canonicalize_name

from px import bounds
from px.engines.gpu.asked import ALL, MOST, Asked
from px.engines.network.modes import MODES, Wanted
from px.engines.network.rules import parse_rule
from px.errors import PxError
from px.platforms import DEFAULT_BASE
from px.project.keys import Key, Kind, names_of
from px.sandbox.needs import capabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TABLE = ("tool", "px", "sandbox")
NETWORK_KEYS = (
    Key("mode", Kind.STRING, "What a run may reach: everything, nothing, or what allow names.", "host", MODES),
    Key(
        "allow",
        Kind.STRINGS,
        "The hosts and ports that a run may reach, with mode = 'allow': names, *.names, addresses, ranges.",
        default=[],
        example=["api.example.org", "db.example.org:5432", "10.0.0.0/8:22"],
        pattern=r"^\s*\S+\s*$",
    ),
)
SANDBOX_KEYS = (
    Key(
        "base",
        Kind.STRING,
        "The operating system under the env. px sandbox list shows the names.",
        default=DEFAULT_BASE,
        example="debian-13",
        such_as="'debian-12'",
    ),
    Key(
        "auto",
        Kind.BOOLEAN,
        "Whether px may infer capabilities from the lock and the files of the env.",
        default=True,
    ),
    Key(
        "build",
        Kind.TABLE,
        "Package -> the capabilities that its sdist is built with, beside those that px knows of.",
        example={"pycurl": ["openssl"]},
        such_as="{ pycurl = ['openssl'] }",
    ),
    Key(
        "capabilities",
        Kind.TABLE,
        "What the sandbox has of the system: true is always, false is never, even if px finds that it is needed.",
        example={"postgres": True},
        such_as="{ postgres = true }",
    ),
    Key(
        "exclude",
        Kind.STRINGS,
        "Patterns, as in .gitignore, of files that px pack image leaves out of the image.",
        default=[],
        example=["data/", "*.mp4"],
    ),
    Key(
        "git",
        Kind.STRING,
        "Whether targets may write to the project's repository.",
        default="read-only",
        choices=("read-only", "read-write"),
    ),
    Key(
        "gpu",
        Kind.COUNT,
        "How many GPUs of this machine a run gets; 'all' or true for all of them, 0 or false for none.",
        choices=(ALL,),
        example=1,
        most=MOST,
    ),
    Key(
        "network",
        Kind.TABLE,
        "What a run may reach.",
        example={"mode": "allow", "allow": ["api.example.org"]},
        such_as="{ mode = 'allow', allow = ['api.example.org'] }",
        keys=NETWORK_KEYS,
    ),
    Key(
        "pins",
        Kind.STRING,
        "A file beside this one with the project's own versions of system packages; px sandbox pin writes it.",
        example="px-pins.json",
        such_as="'px-pins.json'",
    ),
    Key(
        "read-only",
        Kind.BOOLEAN,
        "Whether px run and px test mount the working tree read-only.",
        default=False,
    ),
)
KEYS = names_of(SANDBOX_KEYS)


@dataclass(frozen=True)
class SandboxManifest:
    """What the user said about the sandbox; the defaults where nothing was said."""

    path: Path | None = None
    base: str = DEFAULT_BASE
    base_is_default: bool = True
    auto: bool = True
    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()
    """Patterns, in gitignore's language, that ``px pack image`` leaves out of the image."""
    git_write: bool = False
    """Whether a target may write to the project's repository."""
    network: Wanted = field(default_factory=Wanted)
    """What a run may reach; nothing that is built depends on it."""
    build: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Package -> the capabilities that its sdist is built with, beside those that px knows of."""
    read_only: bool = False
    """Whether a run can write to the working tree."""

    gpu: Asked | None = None
    """The GPUs that a run gets; None if nothing is said."""
    pins: Path | None = None
    """The project's own pins; None if it uses px's."""

    def effective(self, inferred: frozenset[str]) -> frozenset[str]:
        """Explicit and inferred capabilities together: what is explicit always wins."""
        return self.enabled | (inferred - self.disabled if self.auto else frozenset())


def read_manifest(path: Path, document: Mapping[str, Any] | None = None) -> SandboxManifest:
    """Read and check the sandbox table of a ``pyproject.toml`` (already parsed, if the caller has it)."""
    if document is None:
        document = _parse(path)
    table = sandbox_table(document)
    if table is None:
        return SandboxManifest(path)
    reader = _Reader(path)
    reader.check_table(table)
    on, off = reader.capabilities(table.get("capabilities", {}), table.get("base", DEFAULT_BASE))
    return SandboxManifest(
        path=path,
        base=table.get("base", DEFAULT_BASE),
        base_is_default="base" not in table,
        auto=table.get("auto", True),
        enabled=on,
        disabled=off,
        exclude=tuple(table.get("exclude", ())),
        pins=path.parent / table["pins"] if "pins" in table else None,
        gpu=reader.gpu(table.get("gpu")),
        git_write=table.get("git") == "read-write",
        network=reader.network(table.get("network", {})),
        build=reader.build(table.get("build", {}), table.get("base", DEFAULT_BASE)),
        read_only=table.get("read-only", False),
    )


def governing_manifest(root: Path, member: Path | None = None) -> tuple[SandboxManifest, str | None]:
    """The workspace root's manifest, and a warning if ``member`` has a table that is ignored.

    Both are paths of a ``pyproject.toml``; a standalone project has no member, or is its own.
    """
    manifest = read_manifest(root)
    if member is None or member == root or sandbox_table(_parse(member)) is None:
        return manifest, None
    where = f"{member}:{line_of(member, TABLE)}"
    return manifest, (
        f"{where}: this [tool.px.sandbox] is ignored: the workspace's is authoritative ({root}). "
        "Move what you need there and delete it here."
    )


def sandbox_table(document: Mapping[str, Any]) -> Any | None:
    found: Any = document
    for key in TABLE:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def _parse(path: Path) -> dict[str, Any]:
    try:
        return bounds.read_toml(path)
    except ValueError as e:
        raise PxError("PX002", path=path, reason=str(e)) from e


@dataclass(frozen=True)
class _Reader:
    """Checks one file's table; every complaint carries the line."""

    path: Path

    def fail(self, key: tuple[str, ...], problem: str) -> PxError:
        return PxError("PX003", path=f"{self.path}:{line_of(self.path, (*TABLE, *key))}", problem=problem)

    def check_table(self, table: object) -> None:
        if not isinstance(table, dict):
            raise self.fail((), f"[tool.px.sandbox] must be a table, not {_spell(table)}")
        for key in table:
            if key not in KEYS:
                raise self.fail((key,), f"[tool.px.sandbox] has no key {key!r}{_meant(key)}; it has {', '.join(KEYS)}")
        self._expect("[tool.px.sandbox]", (), table, SANDBOX_KEYS)

    def _expect(self, name: str, at: tuple[str, ...], table: dict[str, Any], keys: tuple[Key, ...]) -> None:
        for key in keys:
            if key.name in table and not key.accepts(table[key.name]):
                problem = f"{name}.{key.name} must be {key.wanted}, not {_spell(table[key.name])}"
                raise self.fail((*at, key.name), problem)

    def gpu(self, value: object) -> Asked | None:
        if value is None:
            return None
        if isinstance(value, bool):
            return Asked(None if value else 0)
        return Asked() if value == ALL else Asked(cast("int", value))

    def network(self, table: dict[str, Any]) -> Wanted:
        name, known = "[tool.px.sandbox.network]", names_of(NETWORK_KEYS)
        for key in table:
            if key not in known:
                raise self.fail(("network", key), f"{name} has no key {key!r}; it has {', '.join(known)}")
        self._expect(name, ("network",), table, NETWORK_KEYS)
        allow = table.get("allow", [])
        mode = table.get("mode", "allow" if allow else None)
        if allow and mode != "allow":
            raise self.fail(("network", "allow"), f"{name}.allow has a meaning with mode = 'allow' only")
        for item in allow:
            try:
                parse_rule(item)
            except PxError as e:
                raise self.fail(("network", "allow"), f"{name}.allow: {item!r}: {e.fields['problem']}") from None
        return Wanted(mode, tuple(allow))

    def build(self, table: dict[str, Any], base: str) -> dict[str, frozenset[str]]:
        """What single packages are built with."""
        found: dict[str, frozenset[str]] = {}
        for package, names in table.items():
            key = ("build", package)
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                wanted = f"[tool.px.sandbox.build].{package} must be an array of capabilities, not {_spell(names)}"
                raise self.fail(key, wanted)
            for name in names:
                if canonicalize_name(name) not in capabilities.table():
                    raise capabilities.unknown(name, base, f"{self.path}:{line_of(self.path, (*TABLE, *key))}")
            found[canonicalize_name(package)] = frozenset(map(canonicalize_name, names))
        return found

    def capabilities(self, table: dict[str, Any], base: str) -> tuple[frozenset[str], frozenset[str]]:
        """The names that are switched on and those that are switched off."""
        chosen: dict[str, bool] = {}
        for written, value in table.items():
            name, key = canonicalize_name(written), ("capabilities", written)
            if name not in capabilities.table():
                raise capabilities.unknown(written, base, f"{self.path}:{line_of(self.path, (*TABLE, *key))}")
            if not isinstance(value, bool):
                wanted = f"[tool.px.sandbox.capabilities].{written} must be true or false, not {_spell(value)}"
                raise self.fail(key, wanted)
            if name in chosen:
                raise self.fail(key, f"[tool.px.sandbox.capabilities] names {name!r} twice")
            chosen[name] = value
        return frozenset(n for n, on in chosen.items() if on), frozenset(n for n, on in chosen.items() if not on)


def _spell(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def _meant(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key, KEYS, n=1)
    if near:
        return f" (did you mean {near[0]!r}?)"
    if canonicalize_name(key) in capabilities.table():
        return " (capabilities go into [tool.px.sandbox.capabilities])"
    return ""


def line_of(path: Path, key: tuple[str, ...]) -> int:
    """The line that defines ``key``, or the nearest table above it; 1 if the file hides it too well."""
    best, best_depth = 1, 0
    for number, found in _keys(path.read_text(encoding="utf-8", errors="replace")):
        depth = len(found) if key[: len(found)] == found else 0
        if depth > best_depth:
            best, best_depth = number, depth
    return best


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every table header and every ``key =`` of a TOML text, with its full path and line."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        head = stripped if stripped.startswith("[") else stripped.partition("=")[0] + "= 0"
        try:
            path = _only_path(bounds.parse_toml(head))
        except ValueError:
            continue  # a comment, a blank line, the inside of a value
        if stripped.startswith("["):
            table = path
        elif path:
            path = (*table, *path)
        if path:
            yield number, path


def _only_path(parsed: dict[str, Any]) -> tuple[str, ...]:
    path: list[str] = []
    found: Any = parsed
    while isinstance(found, dict) and found:
        key = next(iter(found))
        path.append(key)
        found = found[key]
    return tuple(path)
