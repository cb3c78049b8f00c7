"""The registry: the names of the backends.  A backend's module is imported when it is used, and its SDK later still."""

from __future__ import annotations

import difflib
from importlib import import_module
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
# The decorators ask for this in every task, where making a backend only to ask it would be a waste.
REMOTE = frozenset({"daytona", "e2b"})


def names() -> tuple[str, ...]:
    return tuple(_BACKENDS)


def get_backend(name: str) -> SandboxBackend:
    """A new backend.  Making it needs no SDK, no key and no network."""
    if name not in _BACKENDS:
        raise _unknown(name)
    module = import_module(f"{__name__}.{name}")
    backend: SandboxBackend = getattr(module, _BACKENDS[name])()
    return backend


def get_local_backend() -> LocalBackend:
    return cast("LocalBackend", get_backend("local"))


def get_remote_backend(name: str) -> RemoteBackend:
    backend = get_backend(name)
    if not isinstance(backend, RemoteBackend):
        raise Unusable(
            f"The backend {name!r} runs on this machine and is not started through `sandbox step`.",
            fix=[f"Let Metaflow start it: python flow.py run --with sandbox:backend={name}"],
        )
    return backend


def _unknown(name: str) -> Unusable:
    near = difflib.get_close_matches(name, _BACKENDS, n=1)
    guess = near[0] if near else "local"
    return Unusable(
        f"There is no sandbox backend called {name!r}; there are {', '.join(_BACKENDS)}.",
        fix=[
            f"On the command line: python flow.py run --with sandbox:backend={guess}",
            f"Or for every run: export METAFLOW_SANDBOX_BACKEND={guess}",
        ],
    )
