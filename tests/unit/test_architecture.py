"""Which way imports point: a table that a change must argue with, checked against every file and ARCHITECTURE.md.

An import counts wherever it stands: at the top, inside a function, or for annotations only.  Cycles between modules are
looked for without the last kind, which never runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import REPO

SRC = REPO / "src"

# What each module in the root and each folder may import of the others, lowest first.  `px` itself (the version, and
# where the tables are) is everybody's.
_ROOT = {"errors", "console", "elf", "platforms", "process", "http", "home", "foreign", "bounds", "tarballs", "online"}
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "schema": set(),
    "console": set(),
    "elf": set(),
    "bounds": set(),
    "tarballs": {"bounds"},
    "platforms": {"errors"},
    "process": {"console"},
    "online": set(),
    "http": {"console", "bounds", "online"},
    "foreign": {"errors"},
    "warm": {"errors"},
    "home": {"warm"},
    "store": _ROOT | {"warm"},
    "debian": _ROOT | {"warm", "store"},
    "alpine": _ROOT | {"warm", "store", "debian"},
    "oci": _ROOT | {"warm", "store"},
    "engines": _ROOT | {"warm", "store"},
    "project": _ROOT | {"warm", "store"},
    "env": _ROOT | {"warm", "store", "project"},
    "sandbox": _ROOT | {"warm", "store", "debian", "alpine", "oci", "engines", "project", "env"},
    "workflow": _ROOT | {"warm", "store", "debian", "alpine", "oci", "engines", "project", "env", "sandbox"},
    "cli": _ROOT | {"warm", "store", "oci", "engines", "project", "sandbox", "workflow"},
    "__main__": {"warm", "workflow", "cli"},
}
MOST_FILES = 12
_ONE_FILE_EACH = {"px/cli/commands"}  # a command, a file


def modules(src: Path) -> dict[str, Path]:
    """Module name -> file, of the whole package."""
    found = {}
    for path in sorted((src / "px").rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: Mapping[str, Path], *, annotations: bool) -> Iterator[str]:
    """The modules of px that a file imports, by their full names."""
    tree = ast.parse(path.read_text())
    skipped = set()
    if not annotations:
        skipped = {child for node in ast.walk(tree) if _is_for_annotations(node) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "px")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "px":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else str(node.module)


def _is_for_annotations(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def wrong_arrows(src: Path) -> list[str]:
    known = modules(src)
    problems = []
    for name, path in known.items():
        place = name.split(".")[1] if "." in name else ""
        if place and place not in ARROWS:
            problems.append(f"{name}: {place} is not in the table of arrows")
            continue
        allowed = ARROWS.get(place, set()) | {place, ""}
        for target in imports(path, known, annotations=True):
            there = target.split(".")[1] if "." in target else ""
            if there not in allowed:
                problems.append(f"{name} imports {target}")
    return problems


def cycles(src: Path) -> list[tuple[str, ...]]:
    """Groups of modules that import each other, directly or around a corner (Tarjan's algorithm)."""
    known = modules(src)
    graph = {name: sorted(set(imports(path, known, annotations=False)) - {name}) for name, path in known.items()}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in order:
                visit(target)
            if target in stack:
                lowest[name] = min(lowest[name], lowest[target])
        if lowest[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(tuple(sorted(group)))

    for name in graph:
        if name not in order:
            visit(name)
    return found


def test_imports_point_down() -> None:
    assert wrong_arrows(SRC) == []


def test_no_modules_import_each_other() -> None:
    assert cycles(SRC) == []


def test_the_table_itself_has_no_cycle() -> None:
    """A place may only point at places above it in the table, which is in order."""
    places = list(ARROWS)
    for place, targets in ARROWS.items():
        assert all(places.index(target) < places.index(place) for target in targets), place


def test_px_never_imports_the_metaflow_extension() -> None:
    for path in (SRC / "px").rglob("*.py"):
        assert "metaflow_extensions" not in path.read_text(), path


@pytest.mark.parametrize("package", ["px", "metaflow_extensions"])
def test_a_folder_has_at_most_a_dozen_files(package: str) -> None:
    for folder in (SRC / package).rglob("*"):
        if folder.is_dir() and str(folder.relative_to(SRC)) not in _ONE_FILE_EACH:
            names = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
            assert len(names) <= MOST_FILES, f"{folder.relative_to(SRC)}: {len(names)} files"


def test_the_map_names_every_folder_and_every_module_in_the_root() -> None:
    text = (REPO / "ARCHITECTURE.md").read_text()
    folders = {p.parent.relative_to(SRC / "px") for p in (SRC / "px").rglob("*.py")} - {Path()}
    missing = [f"{folder}/" for folder in sorted(folders) if f"{folder.name}/" not in text]
    missing += [p.name for p in (SRC / "px").glob("*.py") if p.stem not in text and p.name != "__init__.py"]
    assert missing == []


# --- the tests themselves --------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small package with one of each: a module in the root, two folders, no problem."""
    (tmp_path / "px" / "store").mkdir(parents=True)
    (tmp_path / "px" / "project").mkdir()
    for name in ("__init__", "store/__init__", "project/__init__"):
        (tmp_path / "px" / f"{name}.py").write_text("")
    (tmp_path / "px" / "errors.py").write_text("")
    (tmp_path / "px" / "store" / "files.py").write_text("from px.errors import PxError\n")
    (tmp_path / "px" / "project" / "lock.py").write_text("from px.store import files\n")
    return tmp_path


def test_a_good_package_has_no_problem(copy: Path) -> None:
    assert (wrong_arrows(copy), cycles(copy)) == ([], [])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("store/files.py", "def f():\n    from px.project import lock\n"),
        ("errors.py", "import px.store.files\n"),
        ("store/files.py", "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from px.project.lock import Lock\n"),
        ("utils.py", ""),
        ("helpers/__init__.py", ""),
    ],
)
def test_a_wrong_arrow_or_an_unknown_place_is_found(copy: Path, file: str, text: str) -> None:
    path = copy / "px" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert len(wrong_arrows(copy)) == 1


def test_a_cycle_is_found_also_around_a_corner_and_inside_functions(copy: Path) -> None:
    for name, target in (("a", "b"), ("b", "c"), ("c", "a")):
        (copy / "px" / "store" / f"{name}.py").write_text(f"def f():\n    from px.store import {target}\n")
    assert cycles(copy) == [("px.store.a", "px.store.b", "px.store.c")]
