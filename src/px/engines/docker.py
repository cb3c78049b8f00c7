"""The docker engine."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from px.engines.containers import INIT, Containers, bind
from px.engines.gpu.asked import ALL
from px.engines.protocol import Problem
from px.process import run
from px.warm import arguments

if TYPE_CHECKING:
    from px.warm.spec import RunSpec


class Docker(Containers):
    """Runs the packed image with the docker command and whatever daemon that is set up for."""

    name = "docker"

    def check(self) -> Problem | None:
        if self._client is None:
            return Problem("docker is not installed", ("Install it: https://docs.docker.com/engine/install/",))
        asked = run([self._client, "version", "--format", "{{.Server.Version}}"])
        if asked.ok:
            return None
        said = asked.stderr.strip().splitlines()
        reason = said[-1] if said else f"docker version ended with code {asked.code}"
        fixes = ["Start the daemon: sudo systemctl start docker"]
        if "permission denied" in asked.stderr:
            fixes = ["Let this user talk to the daemon: sudo usermod -aG docker $USER, and log in again"]
        return Problem(reason, tuple(fixes))

    def identity(self, spec: RunSpec) -> tuple[list[str], int, int]:
        """The caller's own ids: docker has no mapping of ids for one container.

        In a rootless daemon the container's root is the caller; on a Mac the file sharing makes every file the
        caller's, whoever wrote it.
        """
        if sys.platform != "linux":
            uid, gid = spec.user.uid, spec.user.gid
        elif self._rootless():
            uid, gid = 0, 0
        else:
            uid, gid = os.getuid(), os.getgid()
        return ["--user", f"{uid}:{gid}"], uid, gid

    def gpus(self, names: tuple[str, ...]) -> list[str]:
        # A line of CSV: without the quotes, the second GPU would be taken for another option.
        return ["--gpus", ALL if names == (ALL,) else f'"device={",".join(names)}"']

    def special(self) -> list[str]:
        """px's init on Linux: below docker's own, Ctrl-Z would stop the target, and nobody could make it go on."""
        return bind(INIT, arguments.INIT, read_only=True) if sys.platform == "linux" else ["--init"]

    def first_process(self, spec: RunSpec) -> tuple[str, ...]:
        return (arguments.INIT, "--", *spec.argv) if sys.platform == "linux" else spec.argv

    def _rootless(self) -> bool:
        return "rootless" in run([self.client, "info", "--format", "{{.SecurityOptions}}"]).stdout
