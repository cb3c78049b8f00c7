"""How commands answer: with text for people, or with one JSON object."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def emit(args: argparse.Namespace, message: str, details: dict[str, object]) -> None:
    """Under ``--json``, print the one object that the command answers with."""
    if args.json:
        emit_json("ok", message, details)


def emit_json(status: str, message: str, details: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"status": status, "message": message, "details": details}, indent=2) + "\n")
    sys.stdout.flush()
