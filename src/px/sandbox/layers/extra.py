"""Packages and files beside a project's env: a layer of its own, which the project's own packages go before.

They lie in a directory that the env's ``sys.path`` ends with.  So a module of the project is never hidden by one of
them, whatever its name, and neither the env nor the ``sbx_id`` knows about them.
"""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from px.env.layout import entry_point_script, lay_out
from px.sandbox.layers.env import PREFIX, PYTHON, ensure_bytecode
from px.sandbox.layers.layer import Layer
from px.store.canonical import oid_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from px.env.layout import Layout
    from px.env.packages import Package
    from px.sandbox.layers.python import Ground
    from px.store.canonical import Value
    from px.store.objects import Draft, Payload, Store
    from px.store.tree import Entry, TreeWriter

INSIDE = "opt/px/extra"
"""Where the packages lie in the image."""
# Python reads these files in the order of their names, and an editable install of the project has one too.
_PATH_FILE = "zzz-px-extra.pth"
RECIPE = 1


def ensure_extra_layer(
    ground: Ground, packages: Sequence[Package], what: str, programs: Mapping[str, bytes] = MappingProxyType({})
) -> Layer:
    """The layer with these packages, compiled by the image's own Python, and these programs by their paths."""
    store, site = ground.context.store, ground.python.runtime.site_packages
    compiled = ensure_bytecode(ground, packages)
    layout = lay_out(store, packages, site)

    def make(draft: Draft) -> Payload:
        draft.refs.extend(f"pkg-build/{p.oid}" for p in packages)
        tree = draft.tree()
        for file in layout.files:
            if file.path.startswith(f"{site}/"):
                tree.adopt(f"{INSIDE}/{file.path.removeprefix(f'{site}/')}", file.source, file.entry)
        for package in packages:
            _add_bytecode(store, tree, compiled[package.oid], f"{PREFIX}/{site}/")
        _add_scripts(tree, layout)
        tree.file(f"{PREFIX}/{site}/{_PATH_FILE}", f"/{INSIDE}\n".encode())
        for path, content in sorted(programs.items()):
            tree.file(path, content, 0o755)
        return {"what": what, "tree": tree.finish()}

    identity: list[Value] = [[p.name, p.oid, compiled[p.oid]] for p in packages]
    named: list[Value] = [[path, hashlib.sha256(content).hexdigest()] for path, content in sorted(programs.items())]
    inputs: Payload = {"recipe": RECIPE, "what": what, "site": site, "packages": identity, "programs": named}
    key = oid_of("extra-layer-inputs", inputs)
    return Layer.of(store, store.ensure("layer", key, make, label=f"the layer {what}"), what)


def _add_bytecode(store: Store, tree: TreeWriter, oid: str, there: str) -> None:
    """Compiled modules were made for the env's own directory; Python corrects the path when it loads them."""
    source = store.tree("layer", oid)
    for path, entry in _files(cast("list[Entry]", store.payload("layer", oid)["tree"]), there):
        target = f"{INSIDE}/{path}"
        if target not in tree:
            tree.adopt(target, source, entry)


def _files(entries: Sequence[Entry], there: str) -> Iterator[tuple[str, Entry]]:
    for entry in entries:
        if entry[0] == "f" and str(entry[1]).startswith(there):
            yield str(entry[1]).removeprefix(there), entry


def _add_scripts(tree: TreeWriter, layout: Layout) -> None:
    for script in sorted(layout.scripts.values(), key=lambda s: s.name):
        tree.file(f"{INSIDE}/bin/{script.name}", entry_point_script(PYTHON, script).encode(), 0o755)
