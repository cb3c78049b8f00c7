"""One run of an engine in a process of its own, so that tests can signal it, kill it, and start it as another user.

Usage: driver.py ENGINE SPEC, where SPEC is JSON: a RunSpec's fields, with paths and mounts as plain lists,
and ``asked``: the value of --gpu.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from px.engines import choose
from px.engines.gpu.asked import parse_asked
from px.engines.gpu.give import add_gpus
from px.errors import PxError
from px.home import Home
from px.warm.spec import DataFile, ImageSource, Limits, Mount, Reach, RunSpec
from px.warm.streams import Tail


def spec(fields: dict[str, Any]) -> RunSpec:
    fields["layers"] = tuple(Path(layer) for layer in fields["layers"])
    fields["argv"] = tuple(fields["argv"])
    fields["mounts"] = tuple(Mount(Path(source), *rest) for source, *rest in fields.get("mounts", ()))
    fields["gpus"] = tuple(fields.get("gpus", ()))
    fields["hidden"] = tuple(fields.get("hidden", ()))
    fields["files"] = tuple(DataFile(t, c.encode()) for t, c in fields.get("files", ()))
    fields["limits"] = Limits(**fields.get("limits", {}))
    if fields.get("reach") is not None:
        fields["reach"] = Reach.from_json(fields["reach"])
    if fields.get("extra_ca"):
        fields["extra_ca"] = Path(fields["extra_ca"])
    if fields.get("image"):
        fields["image"] = ImageSource((fields["image"],), lambda: Path("there is no archive"))
    return RunSpec(**fields)


def main() -> int:
    name, fields = sys.argv[1], json.loads(sys.argv[2])
    teed = fields.pop("tee", False)
    if fields.pop("among_threads", False):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    asked = fields.pop("asked", None)
    try:
        engine = choose(name, Home.from_environment())
        wanted = spec(fields) if asked is None else add_gpus(spec(fields), parse_asked(asked), os.environ)
        if not teed:
            return engine.run(wanted)
        tail = Tail()
        code = engine.run(wanted, stdout=tail if teed == "both" else None, stderr=tail)
        with suppress(BrokenPipeError):
            os.write(1, f"kept: {tail.text}".encode())
    except PxError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
