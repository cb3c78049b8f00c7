"""The registry: names of backends, resolved to classes only when one is used, so that no SDK is imported before."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.backend import Unusable

if TYPE_CHECKING:
    from metaflow_extensions.sandbox.plugins.backend import RemoteBackend, SandboxBackend

_BACKENDS = {
    "local": "LocalBackend",
    "daytona": "DaytonaBackend",
    "e2b": "E2BBackend",
}
REMOTE = frozenset({"daytona", "e2b"})


def names() -> tuple[str, ...]:
    return tuple(_BACKENDS)


def get_backend(name: str) -> SandboxBackend:
    """A new backend; constructing it needs no SDK, no key and no network."""
    if name not in _BACKENDS:
        raise unknown(name)
    module = import_module(f"{__name__}.{name}")
    backend: SandboxBackend = getattr(module, _BACKENDS[name])()
    return backend


def get_remote_backend(name: str) -> RemoteBackend:
    from metaflow_extensions.sandbox.plugins.backend import RemoteBackend

    backend = get_backend(name)
    if not isinstance(backend, RemoteBackend):
        raise Unusable(
            f"The backend {name!r} runs on this machine and is not started through `sandbox step`.",
            fix=[f"Let Metaflow start it: python flow.py run --with sandbox:backend={name}"],
        )
    return backend


def unknown(name: str) -> Unusable:
    near = difflib.get_close_matches(name, _BACKENDS, n=1)
    guess = near[0] if near else "local"
    return Unusable(
        f"There is no sandbox backend called {name!r}; there are {', '.join(_BACKENDS)}.",
        fix=[
            f"On the command line: python flow.py run --with sandbox:backend={guess}",
            f"Or for every run: export METAFLOW_SANDBOX_BACKEND={guess}",
        ],
    )
