"""The layers and the invariants of the extension's specification, checked on its source."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter

import pytest
from metaflow.decorators import StepDecorator

from metaflow_extensions.sandbox.plugins import backend, backends, errors
from tests.conftest import REPO

ROOT = REPO / "src" / "metaflow_extensions" / "sandbox"
PLUGINS = ROOT / "plugins"
PREFIX = "metaflow_extensions.sandbox.plugins"

# From the lowest layer to the highest.  A module may import from its own layer and from those below.
LAYERS = (
    # SandboxBackend ABC + dataclasses, on top of the errors that everybody raises
    ("errors", "owner"),
    ("backend", "settings"),
    ("options", "variables", "project_image"),
    # What a task notes about its sandbox, and the card that shows it
    ("report/*",),
    ("cards/*",),
    # Concrete backends, on top of the parts of the local sandbox and of templates
    ("local/*", "templates/*"),
    ("backends/*",),
    # Backend registry
    ("backends/__init__",),
    # CLI + executor, on top of the parts of a remote task
    ("remote/*", "sandbox_listing"),
    ("sandbox_executor",),
    ("sandbox_cli",),
    # Decorators, and what tells Metaflow about them
    ("sandbox_decorator", "environment/*"),
    ("__init__",),
)
SDKS = {"e2b", "daytona", "httpx"}
DECORATORS = ("sandbox_decorator", "environment/px_decorator")
# What the extension may use of px.
PX = (
    *("px.workflow.", "px.project.context", "px.warm.", "px.home", "px.errors", "px.store."),
    *("px.engines.bubblewrap", "px.engines.gpu.", "px.engines.network.rules", "px.console", "px.tarballs"),
)

Sources = dict[str, str]
"""The text of each module, by its path below ``plugins`` without the suffix."""


def sources() -> Sources:
    found = {str(p.relative_to(PLUGINS).with_suffix("")): p.read_text() for p in sorted(PLUGINS.rglob("*.py"))}
    assert len(found) > 20
    return found


def rank(module: str) -> int | None:
    """The number of a module's layer, from its folder and name alone."""
    found = [number for number, layer in enumerate(LAYERS) if any(fnmatch(module, pattern) for pattern in layer)]
    return max(found, default=None)


def imported(text: str) -> Iterator[str]:
    """Every name that is imported anywhere: at the top, in functions, and for types only."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not looked at here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_used(text: str, known: Sources) -> set[str]:
    """The modules of the extension among the imports; of a name in a module, the module."""
    found = set()
    for name in imported(text):
        if name.startswith(f"{PREFIX}."):
            path = name.removeprefix(f"{PREFIX}.").replace(".", "/")
            places = (path, f"{path}/__init__", path.rpartition("/")[0], f"{path.rpartition('/')[0]}/__init__")
            found.add(next((place for place in places if place in known), path))
    return found


def violations(known: Sources) -> list[str]:
    """What is wrong with the layers."""
    used = {name: modules_used(text, known) for name, text in known.items()}
    found = [f"{name} is in no layer" for name in known if rank(name) is None]
    for name, others in used.items():
        for other in others:
            own, theirs = rank(name), rank(other)
            if own is not None and theirs is not None and theirs > own:
                found.append(f"{name} imports {other}, which is in a higher layer")
            # The registry gives out backends by name; nobody else knows one.
            if fnmatch(other, "backends/[!_]*") and name != "backends/__init__":
                found.append(f"{name} imports a concrete backend")
    try:
        TopologicalSorter(used).prepare()
    except CycleError as e:
        found.append(f"modules import each other: {e.args[1]}")
    return found


def test_dependencies_flow_down_only() -> None:
    assert violations(sources()) == []


FORBIDDEN = {
    "the executor uses the command line": ("sandbox_executor", "sandbox_cli", "Trampoline"),
    "the command line uses the decorator": ("sandbox_cli", "sandbox_decorator", "SandboxDecorator"),
    "a backend uses the registry": ("backends/e2b", "backends", "get_backend"),
    "the abstraction uses the settings of Metaflow's side": ("backend", "options", "network"),
    "a part of a remote task uses the executor": ("remote/log", "sandbox_executor", "MARK"),
    "the decorator knows a concrete backend": ("sandbox_decorator", "backends.local", "LocalBackend"),
    "two modules of one layer use each other": ("remote/runner", "remote.task", "TaskSpec"),
}


@pytest.mark.parametrize("place", ["at the top", "in a function", "for types only"])
@pytest.mark.parametrize(("module", "other", "name"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_forbidden_import_is_seen(module: str, other: str, name: str, place: str) -> None:
    line = f"from {PREFIX}.{other} import {name}"
    added = {
        "at the top": line,
        "in a function": f"def added():\n    {line}",
        "for types only": f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {line}",
    }
    known = sources()
    known[module] += f"\n{added[place]}\n"
    assert violations(known)


def test_a_new_file_needs_a_layer() -> None:
    assert violations({**sources(), "helpers": ""}) == ["helpers is in no layer"]


def test_only_the_registry_imports_by_a_computed_name() -> None:
    assert [name for name, text in sources().items() if "import_module(" in text] == ["backends/__init__"]


def test_what_is_used_of_px() -> None:
    used = {name for text in sources().values() for name in imported(text) if name.partition(".")[0] == "px"}
    assert [name for name in used if not name.startswith(PX)] == []


def test_px_does_not_use_the_extension() -> None:
    users = [p for p in (REPO / "src/px").rglob("*.py") if any("metaflow" in name for name in imported(p.read_text()))]
    assert users == []


def test_no_long_lists_of_parameters() -> None:
    hooks = set(dir(StepDecorator))  # Metaflow says what those take
    for module, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and not (module in DECORATORS and node.name in hooks):
                names = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
                assert len([n for n in names if n not in ("self", "cls")]) < 6, f"{module}: {node.name}"


@pytest.mark.parametrize("folder", ["", "backends", "cards", "environment", "local", "remote", "report", "templates"])
def test_a_folder_has_at_most_a_dozen_files(folder: str) -> None:
    assert len(list((PLUGINS / folder).glob("*.py"))) <= 12


@pytest.mark.parametrize("name", sorted(sources()))
def test_no_sdk_and_nothing_of_px_at_module_level(name: str) -> None:
    tree = ast.parse(sources()[name])
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    used = {found.partition(".")[0] for node in top for found in imported(ast.unparse(node))}
    assert not used & SDKS
    assert "px" not in used, "a task in a remote sandbox has no px"


def test_importing_everything_needs_no_sdk() -> None:
    # What is in cards, Metaflow imports itself.
    modules = [name for name in sources() if name != "__init__" and not name.startswith("cards/")]
    names = [f"{PREFIX}.{name.replace('/', '.').removesuffix('.__init__')}" for name in modules]
    program = (
        "import importlib, sys\n"
        f"for sdk in {sorted(SDKS)!r}: sys.modules[sdk] = None\n"
        # Metaflow imports the decorators while it is imported, and they import Metaflow.
        "import metaflow\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "from metaflow import sandbox, daytona, e2b\n"
        "from metaflow.plugins import CARDS\n"
        "assert 'sandbox' in [card.type for card in CARDS]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_error_teaches() -> None:
    """Wherever an error for the user is made, it has a fix, or is one that the executor retries or passes on."""
    for path in PLUGINS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("Unusable", "Refused")
            ):
                keywords = {k.arg for k in node.keywords}
                assert "fix" in keywords or "read" in keywords, f"{path}:{node.lineno}"
    said = str(errors.Unusable("It does not work.", fix=["pip install x"]))
    assert "pip install x" in said
    assert "Read: docs/" in said


def test_no_bare_exceptions_for_users() -> None:
    for path in PLUGINS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                assert node.exc.func.id not in ("ValueError", "ImportError", "RuntimeError", "Exception"), path


def test_backends_are_stateless_across_tasks() -> None:
    """A new instance for every use, nothing kept in the class or the module."""
    for name in backends.names():
        one, two = backends.get_backend(name), backends.get_backend(name)
        assert one is not two
        cls = type(one)
        kept = {k: v for k, v in vars(cls).items() if not k.startswith("__") and not callable(v)}
        assert all(isinstance(v, str | bool | tuple | property) or "abc" in k for k, v in kept.items()), kept
        module = inspect.getmodule(cls)
        mutable = {k for k, v in vars(module).items() if isinstance(v, dict | list | set) and not k.startswith("__")}
        assert not mutable, mutable


def test_every_backend_implements_the_interface() -> None:
    for name in backends.names():
        found = backends.get_backend(name)
        assert found.name == name
        assert found.remote == (name != backends.LOCAL)
        assert isinstance(found, backend.RemoteBackend) == found.remote


def test_remote_backends_refuse_a_local_datastore() -> None:
    from metaflow_extensions.sandbox.plugins.sandbox_decorator import _require_remote_datastore

    with pytest.raises(errors.Unusable, match="--datastore=s3"):
        _require_remote_datastore("e2b", "e2b", "local")
    _require_remote_datastore("e2b", "e2b", "s3")


def test_metaflow_can_find_the_extension() -> None:
    assert not (ROOT.parent / "__init__.py").exists(), "Metaflow wants an implicit namespace package"
    assert (PLUGINS / "__init__.py").is_file()
