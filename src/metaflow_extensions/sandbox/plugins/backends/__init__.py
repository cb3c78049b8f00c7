"""The registry: the names of the backends.  A backend's module is imported when it is used, and its SDK later still.

Other packages bring backends through an entry point (docs/how-to/add-a-backend.md).
"""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from metaflow_extensions.sandbox.plugins.backend import RemoteBackend
from metaflow_extensions.sandbox.plugins.errors import Unusable

if TYPE_CHECKING:
    from metaflow_extensions.sandbox.plugins.backend import SandboxBackend
    from metaflow_extensions.sandbox.plugins.backends.local import LocalBackend

# Classes by their names, and not the classes themselves: those would have to be imported.
_BACKENDS = {
    "local": "LocalBackend",
    "daytona": "DaytonaBackend",
    "e2b": "E2BBackend",
}
# The one backend that starts tasks on this machine. All others are remote, those of other packages too.
LOCAL = "local"
GROUP = "px.metaflow_backends"


def names() -> tuple[str, ...]:
    return (*_BACKENDS, *sorted({entry.name for entry in entry_points(group=GROUP)} - set(_BACKENDS)))


def get_backend(name: str) -> SandboxBackend:
    """A new backend.  Making it needs no SDK, no key and no network."""
    if name not in _BACKENDS:
        return _from_another_package(name)
    module = import_module(f"{__name__}.{name}")
    backend: SandboxBackend = getattr(module, _BACKENDS[name])()
    return backend


def _from_another_package(name: str) -> RemoteBackend:
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        raise _unknown(name)
    try:
        backend = found.load()()
    except Exception as e:  # noqa: BLE001 - whatever is wrong with it, it is that package's, and px goes on
        backend = e
    if isinstance(backend, RemoteBackend):
        return backend
    package = found.dist.name if found.dist else found.value
    raise Unusable(
        f"The backend {name} of the package {package} cannot be used: {found.value} gives {backend!r} and not a "
        "RemoteBackend.",
        fix=[f"Install another version of it: pip install --upgrade {package}", f"Or none: pip uninstall {package}"],
        read="docs/how-to/add-a-backend.md",
    )


def get_local_backend() -> LocalBackend:
    return cast("LocalBackend", get_backend(LOCAL))


def get_remote_backend(name: str) -> RemoteBackend:
    backend = get_backend(name)
    if not isinstance(backend, RemoteBackend):
        raise Unusable(
            f"The backend {name!r} runs on this machine and is not started through `sandbox step`.",
            fix=[f"Let Metaflow start it: python flow.py run --with sandbox:backend={name}"],
        )
    return backend


def _unknown(name: str) -> Unusable:
    near = difflib.get_close_matches(name, names(), n=1)
    guess = near[0] if near else "local"
    return Unusable(
        f"There is no sandbox backend called {name!r}; there are {', '.join(names())}.",
        fix=[
            f"On the command line: python flow.py run --with sandbox:backend={guess}",
            f"Or for every run: export METAFLOW_SANDBOX_BACKEND={guess}",
        ],
    )
