"""What every command is given: where it runs, what it may do, how it answers."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.host import here
from px.home import Home

if TYPE_CHECKING:
    import argparse

    from px.store.objects import Store


@dataclass(frozen=True)
class Context:
    """The common flags and the places, computed once from the command line and the environment."""

    home: Home
    directory: Path
    frozen_by: str | None
    """What froze the project (``--frozen`` or ``CI``), or None when it may change."""
    offline: bool
    json: bool

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Context:
        frozen_by = "--frozen" if args.frozen else "CI" if console.in_ci() else None
        directory = Path(args.project).absolute() if args.project else Path(here())
        if args.project and not directory.is_dir():
            from px.errors import PxError

            problem, example = "there is no such directory", "px --project path/to/project sync"
            raise PxError("PX040", option="--project", value=args.project, problem=problem, example=example)
        offline = args.offline or os.environ.get("UV_OFFLINE", "").lower() in ("1", "true", "yes")
        return cls(Home.from_environment(), directory, frozen_by, offline, args.json)

    @property
    def frozen(self) -> bool:
        return self.frozen_by is not None

    @cached_property
    def store(self) -> Store:
        from px.store.objects import Store

        return Store(self.home)

    def emit(self, message: str, details: dict[str, object]) -> None:
        """Under ``--json``, print the one object that the command answers with."""
        if self.json:
            emit_json("ok", message, details)


def emit_json(status: str, message: str, details: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"status": status, "message": message, "details": details}, indent=2) + "\n")
    sys.stdout.flush()
