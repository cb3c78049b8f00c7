"""AWS Batch on loopback: localbatch, the emulator of Metaflow's developers, with one change.

It runs every job as a container of a Docker engine, with a gateway to the host, which needs a bridge.  The engine of
the tests has none, so jobs share the network of the engine.

    python -m tests.servers.batch --port 8000 --inject-env NAME=VALUE …
"""

from __future__ import annotations

from typing import Any

from docker.models.containers import ContainerCollection
from localbatch.__main__ import main

_run = ContainerCollection.run


def _on_the_network_of_the_engine(self: ContainerCollection, image: str, **options: Any) -> Any:
    return _run(self, image, **{**options, "extra_hosts": None, "network_mode": "host"})


if __name__ == "__main__":
    ContainerCollection.run = _on_the_network_of_the_engine
    main()
