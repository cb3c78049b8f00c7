"""The five invariants of the extension, checked on its source and on what importing it does."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from metaflow_extensions.sandbox.plugins import backend, backends
from tests.conftest import REPO

ROOT = REPO / "src" / "metaflow_extensions" / "sandbox"
PLUGINS = ROOT / "plugins"
PREFIX = "metaflow_extensions.sandbox.plugins"

# Each module's layer: it may import its own and those below.  The highest is what Metaflow calls.
LAYERS = [
    {"backend", "task_runner", "local_launch", "launch_client"},
    {"backends.local", "backends.daytona", "backends.e2b", "local_image"},
    {"backends"},
    {
        "sandbox_env",
        "local_metadata",
        "local_mounts",
        "sandbox_executor",
        "sandbox_reaper",
        "sandbox_listing",
        "task_log",
        "package_bytecode",
        "launch_server",
        "launch_step",
    },
    {"local_entrypoint"},
    {"sandbox_decorator"},
    {"sandbox_cli"},
]
SDKS = {"e2b", "daytona", "httpx"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PLUGINS.rglob("*.py")):
        name = str(path.relative_to(PLUGINS).with_suffix("")).replace("/", ".")
        name = name.removesuffix("__init__").rstrip(".")
        if name:
            found[name] = path
    return found


def imports(path: Path, *, module_level: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    typing = {
        n
        for i in ast.walk(tree)
        if isinstance(i, ast.If) and isinstance(i.test, ast.Name) and i.test.id == "TYPE_CHECKING"
        for n in ast.walk(i)
    }
    found = set()
    for node in ast.walk(tree):
        if (module_level and node in inside) or node in typing:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def test_every_module_has_a_layer() -> None:
    assert {name for layer in LAYERS for name in layer} == set(modules())


@pytest.mark.parametrize("name", sorted(modules()))
def test_dependencies_flow_down_only(name: str) -> None:
    known = set(modules())
    used = {i.removeprefix(f"{PREFIX}.") for i in imports(modules()[name], module_level=False)} & known
    # The registry resolves its backends by name; nobody else may know a concrete one.
    assert all(layer_of(other) <= layer_of(name) for other in used), used
    if name not in ("backends", "local_entrypoint"):
        assert not {u for u in used if u.startswith("backends.")}


@pytest.mark.parametrize("name", sorted(modules()))
def test_no_sdk_and_nothing_of_px_at_module_level(name: str) -> None:
    top = {i.partition(".")[0] for i in imports(modules()[name], module_level=True)}
    assert not top & SDKS
    assert "px" not in top, "a task in a remote sandbox has no px"


def test_importing_everything_needs_no_sdk() -> None:
    names = [f"{PREFIX}.{name}" for name in modules()]
    program = (
        "import importlib, sys\n"
        f"for sdk in {sorted(SDKS)!r}: sys.modules[sdk] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "import metaflow\n"
        "from metaflow import sandbox, daytona, e2b\n"
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
    said = str(backend.Unusable("It does not work.", fix=["pip install x"]))
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
        assert all(isinstance(v, str | bool | property) or "abc" in k for k, v in kept.items()), kept
        module = inspect.getmodule(cls)
        mutable = {k for k, v in vars(module).items() if isinstance(v, dict | list | set) and not k.startswith("__")}
        assert not mutable, mutable


def test_every_backend_implements_the_interface() -> None:
    for name in backends.names():
        found = backends.get_backend(name)
        assert found.name == name
        assert found.remote == (name in backends.REMOTE)
        assert isinstance(found, backend.RemoteBackend) == found.remote


def test_remote_backends_refuse_a_local_datastore() -> None:
    import metaflow  # noqa: F401 - Metaflow loads its extensions itself, and must be first

    from metaflow_extensions.sandbox.plugins.sandbox_decorator import _require_remote_datastore

    with pytest.raises(backend.Unusable, match="--datastore=s3"):
        _require_remote_datastore("e2b", "e2b", "local")
    _require_remote_datastore("e2b", "e2b", "s3")


def test_metaflow_can_find_the_extension() -> None:
    assert not (ROOT.parent / "__init__.py").exists(), "Metaflow wants an implicit namespace package"
    assert (PLUGINS / "__init__.py").is_file()
