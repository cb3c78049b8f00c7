"""The env as layers of an image: packages hard-linked out of the store, compiled by the image's own python.

Everything lies under ``/opt/px/env``, a virtual environment of the sandbox's interpreter.  A package of more
than 30 MB gets a layer of its own, so that images which share it share the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from px import console
from px.debian.bytecode import compile_sources, is_test
from px.env.layout import entry_point_script, lay_out, pyvenv_cfg, script_content
from px.sandbox.layers.layer import Layer
from px.sandbox.layers.python import compiler_for
from px.store.canonical import oid_of
from px.store.tree import native
from px.warm.spec import ENV

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from px.env.layout import Layout, Placed
    from px.env.packages import Package
    from px.env.profile import Profile
    from px.sandbox.layers.python import Ground, SandboxPython
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload, Store
    from px.store.tree import Entry, TreeWriter

PREFIX = ENV.lstrip("/")
PYTHON = f"{ENV}/bin/python"
HEAVY = 30_000_000
RECIPE = 2


def ensure_env_layers(ground: Ground, profile: Profile) -> tuple[Layer, ...]:
    """The layers of a profile's env, heavy packages first; made from what the store has."""
    store, packages = ground.context.store, {p.name: p for p in profile.packages}
    compiled = ensure_bytecode(ground, profile.packages)
    layout = lay_out(store, profile.packages, profile.runtime.site_packages)
    heavy, env = _heavy(layout), _Env(store, profile, ground.python, layout, compiled)
    layers = [env.ensure([packages[name]], f"package {name}") for name in sorted(heavy)]
    rest = [p for p in profile.packages if p.name not in heavy]
    return (*layers, env.ensure(rest, "env"))


def _heavy(layout: Layout) -> set[str]:
    sizes: dict[str, int] = {}
    for file in layout.files:
        if file.entry[0] == "f":
            sizes[file.package] = sizes.get(file.package, 0) + int(file.entry[3])
    return {name for name, size in sizes.items() if size > HEAVY}


@dataclass(frozen=True)
class _Env:
    """A profile's packages, laid out and compiled, of which layers are made."""

    store: Store
    profile: Profile
    python: SandboxPython
    layout: Layout
    compiled: dict[str, str]
    """pkg-build oid -> oid of its compiled modules."""

    def ensure(self, packages: Sequence[Package], what: str) -> Layer:
        """The layer with these packages; the one called env has the interpreter and all scripts too."""
        names = {p.name for p in packages}
        files = [f for f in self.layout.files if f.package in names]

        def make(draft: Draft) -> Payload:
            draft.refs.extend(f"pkg-build/{p.oid}" for p in packages)
            tree = draft.tree()
            for file in files:
                _add(tree, file)
            for package in packages:
                _add_bytecode(self.store, tree, self.compiled[package.oid], {f.path for f in files})
            if what == "env":
                self._finish(tree)
            return {"what": what, "tree": tree.finish()}

        bytecode: list[Value] = [self.compiled[p.oid] for p in packages]
        alone: Payload = {"recipe": RECIPE, "what": what, "files": _owned(files), "bytecode": bytecode}
        key = oid_of("env-layer-inputs", self._inputs(packages) if what == "env" else alone)
        return Layer.of(self.store, self.store.ensure("layer", key, make, label=f"the {what} layer"), what)

    def _inputs(self, packages: Sequence[Package]) -> Payload:
        return {
            "recipe": RECIPE,
            "what": "env",
            "packages": [[p.name, p.oid, self.compiled[p.oid]] for p in packages],
            # Which of two packages owns a path, and which scripts there are, depends on all of them.
            "all": [[p.name, p.oid] for p in self.profile.packages],
            "runtime": self.python.identity,
        }

    def _finish(self, tree: TreeWriter) -> None:
        _interpreter(tree, self.python)
        for script in sorted(self.layout.scripts.values(), key=lambda s: s.name):
            path = f"{PREFIX}/bin/{script.name}"
            if path not in tree:
                tree.file(path, entry_point_script(PYTHON, script).encode(), 0o755)


def _owned(files: Iterable[Placed]) -> str:
    """A heavy package's layer depends on its own files only, those that it keeps."""
    return oid_of("files", [[f.path, *f.entry[2:]] for f in files])


def _add(tree: TreeWriter, file: Placed) -> None:
    path = f"{PREFIX}/{file.path}"
    if file.path.startswith("bin/") and file.entry[0] == "f":
        with open(native(file.source, str(file.entry[1])), "rb") as f:
            tree.file(path, script_content(f.read(), PYTHON), 0o755)
    else:
        tree.adopt(path, file.source, file.entry)


def _add_bytecode(store: Store, tree: TreeWriter, oid: str, owned: set[str]) -> None:
    """The compiled modules of a package, for those sources that it really has in this env."""
    source = store.tree("layer", oid)
    for entry in cast("list[Entry]", store.payload("layer", oid)["tree"]):
        path = str(entry[1])
        if entry[0] == "f" and path not in tree and _source_of(path.removeprefix(PREFIX + "/")) in owned:
            tree.adopt(path, source, entry)


def _source_of(path: str) -> str:
    """``a/__pycache__/b.cpython-311.pyc`` -> ``a/b.py``; the module's own name may have dots too (hook-a.b.py)."""
    directory, _, name = path.rpartition("/__pycache__/")
    return f"{directory}/{name.rsplit('.', 2)[0]}.py"


def _interpreter(tree: TreeWriter, python: SandboxPython) -> None:
    runtime = python.runtime
    tree.symlink(f"{PREFIX}/bin/python", python.program)
    for name in ("python3", runtime.python):
        tree.symlink(f"{PREFIX}/bin/{name}", "python")
    tree.symlink(f"{PREFIX}/lib64", "lib")
    tree.directory(f"{PREFIX}/{runtime.site_packages}")
    tree.file(f"{PREFIX}/pyvenv.cfg", pyvenv_cfg(python.directory, runtime.version).encode())


def ensure_bytecode(ground: Ground, packages: Iterable[Package]) -> dict[str, str]:
    """pkg-build oid -> oid of its compiled modules; all that are missing are compiled in one go."""
    store, python, packages = ground.context.store, ground.python, list(packages)
    version = python.runtime.version if python.layer is None else python.layer.oid
    keys = {
        p.oid: oid_of("pkg-bytecode-inputs", {"recipe": RECIPE, "package": p.oid, "python": version}) for p in packages
    }
    found = {oid: store.lookup("layer", key) for oid, key in keys.items()}
    absent = [p for p in packages if found[p.oid] is None]
    made: dict[str, str | None] = _compile(ground, absent, keys) if absent else {}
    return {oid: layer for oid, layer in (found | made).items() if layer is not None}


def _compile(ground: Ground, packages: Sequence[Package], keys: dict[str, str]) -> dict[str, str | None]:
    store, site = ground.context.store, ground.python.runtime.site_packages
    sources = []
    owner: dict[str, str] = {}
    for package in packages:
        tree = store.tree("pkg-build", package.oid)
        for entry in cast("list[Entry]", store.payload("pkg-build", package.oid)["tree"]):
            path = str(entry[1])
            if entry[0] == "f" and path.startswith("lib/") and path.endswith(".py") and not is_test(path):
                inside = f"{PREFIX}/{site}/{path.removeprefix('lib/')}"
                # Two packages may bring the same path; each is compiled from its own file.
                if inside not in owner:
                    owner[inside] = package.oid
                    sources.append((inside, tree / path))
    compiled: dict[str, list[tuple[str, bytes]]] = {p.oid: [] for p in packages}
    console.detail(
        f"compiling {console.counted(len(sources), 'module')} of {console.counted(len(packages), 'package')}"
    )
    with store.draft() as scratch:
        for path, content in compile_sources(compiler_for(ground), sources, scratch.path):
            compiled[owner[_source_of(path)]].append((path, content))
    return {p.oid: _keep(store, keys[p.oid], p, compiled[p.oid]) for p in packages}


def _keep(store: Store, key: str, package: Package, files: list[tuple[str, bytes]]) -> str:
    def make(draft: Draft) -> Payload:
        tree = draft.tree()
        for path, content in sorted(files):
            tree.file(path, content)
        return {"what": f"bytecode of {package.name}", "tree": tree.finish()}

    return store.ensure("layer", key, make, label=f"bytecode of {package.name}")
