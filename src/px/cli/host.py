"""Becoming a target in the host env: the last step of ``px run`` and ``px test``, and all of the warm path."""

import os
import sys

from px.cli.target import resolve
from px.project import warm
from px.store.hold import hold_across_exec, use_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def run_warm(target: str, arguments: "list[str]") -> None:
    """Become the target if the project is certainly Consistent; return if there is anything to decide or to say."""
    try:
        directory = here()
        found = warm.find(directory, "host")
    except (OSError, KeyError, TypeError, AttributeError):
        return  # the full look will say what is wrong
    if found is not None:
        _try(target, arguments, found[1]["env"], found[1]["variables"])


def sync_warm(target: str) -> bool:
    """Whether there is nothing to sync, which is then said."""
    try:
        raw = warm.find_record(here(), target)
        if raw is None or not raw["name"]:
            return False
        built, link = raw["envs"][target], os.path.join(raw["root"], ".px", "envs", "current")
        whole = all(map(os.path.isdir, built["layers"])) if target == "sandbox" else os.readlink(link) == built["env"]
        if not whole:
            return False
    except (OSError, KeyError, TypeError, AttributeError):
        return False
    sys.stderr.write(f"{raw['name']}: already up to date\n")
    return True


def here() -> str:
    """The working directory as the user typed it (symlinks and all) where that is still true."""
    typed = os.environ.get("PWD", "")
    try:
        if os.path.isabs(typed) and os.path.samefile(typed, "."):
            return typed
    except OSError:
        pass
    return os.getcwd()


def become(target: str, arguments: "list[str]", env: str, variables: "dict[str, str]") -> "NoReturn":
    """Replace px by the target; what cannot be run is an error."""
    problem = _try(target, arguments, env, variables)
    from px.errors import PxError

    if problem is None:
        raise PxError("PX020", target=target, look="ls .px/envs/current/bin")
    raise PxError("PX021", target=target, reason=problem)


def _try(target: str, arguments: "list[str]", env: str, variables: "dict[str, str]") -> "str | None":
    """Replace px by the target: signals, standard input and the exit code are then its own without any relay.

    Returns only if that fails: None if there is no such target, else the reason.
    """
    binaries = os.path.join(env, "bin")
    environment = {**os.environ, **variables, "VIRTUAL_ENV": env}
    environment.pop("PYTHONHOME", None)
    environment["PATH"] = binaries + os.pathsep + environment.get("PATH", os.defpath)
    command = resolve(target, arguments, cwd=os.getcwd(), binaries=binaries, path=environment["PATH"])
    if command is None:
        return None
    hold_across_exec(use_lock(env))
    try:
        os.execve(command[0], command, environment)
    except OSError as e:
        return e.strerror or str(e)
