"""What every engine must do with places of the host that lie in the working tree (:mod:`px.warm.places`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from px.warm.places import arrange
from px.warm.spec import APP, Mount
from tests.integration.engines.conftest import Driver

_ATTEMPTS = """
import json, os
def attempt(action, *args):
    try:
        return str(action(*args))
    except OSError as e:
        return type(e).__name__
print(json.dumps([
    attempt(os.listdir, "/app/ci/home"),
    attempt(os.mkdir, "/app/ci/home/x"),
    attempt(os.rename, "/app/ci", "/app/mine"),
    attempt(lambda: open("/app/.git/config").read()),
    attempt(os.mkdir, "/app/.git/hooks"),
    attempt(os.rename, "/app/.git", "/app/mine"),
    attempt(os.listdir, "/app/.px"),
    attempt(os.mkdir, "/app/ci/made"),
]))
"""


def check(box: Driver) -> None:
    root = Path(os.path.realpath(box.app))
    for name in ("ci/home", ".git"):
        (root / name).mkdir(parents=True)
    for directory in (root / "ci", root / "ci/home", root / ".git"):
        os.chown(directory, box.uid, box.uid)
    (root / ".git/config").write_text("[core]\n")
    (root / "ci/home/secret").write_text("")
    (root / ".px").symlink_to(box.directory)  # made by an earlier target
    mounts, hidden = arrange(Mount(str(root), APP), (), str(root / "ci/home"))
    rows = [(m.source, m.target, m.read_only, m.own) for m in mounts]
    done = box.python(_ATTEMPTS, mounts=rows, hidden=hidden)
    listed, made, renamed, read, hook, replaced, link, written = json.loads(done.stdout)
    assert listed == "[]", done.stderr
    assert made in ("OSError", "PermissionError")
    assert (renamed, replaced, hook) == ("OSError",) * 3
    assert read == "[core]\n"
    assert link == "FileNotFoundError"
    assert written == "None"
    assert (root / "ci/home/secret").is_file()
