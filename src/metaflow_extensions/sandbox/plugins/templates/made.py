"""Making templates: once, whoever comes first.  What the backends of E2B and of Daytona have in common.

Tasks of one machine wait for each other by a lock.  Another machine's builder is waited for by asking the provider.
"""

from __future__ import annotations

import re
import sys
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.errors import Refused, Unavailable, Unusable
from metaflow_extensions.sandbox.plugins.settings import setting
from metaflow_extensions.sandbox.plugins.templates import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metaflow_extensions.sandbox.plugins.backend import SandboxConfig

READY, BUILDING, FAILED, ASLEEP = "ready", "building", "failed", "asleep"
ASKED = "asked for"
"""It has a name, and its building has not begun.  E2B is told so in a second request, which comes at once."""
PAUSE = 1.0
ABANDONED = 60.0
"""After so many seconds, whoever asked for it was killed before the second request."""
_TIME = re.compile(r"[0-9T:.+Z -]{10,40}")
_DOCS = "docs/how-to/use-a-provider.md"


@dataclass(frozen=True)
class TemplateInfo:
    """A template or snapshot that px made."""

    backend: str
    name: str
    state: str
    created_at: str
    """ISO 8601; empty if the provider does not say."""
    used_at: str = ""
    provider_id: str = ""


class MakesTemplates(ABC):
    """A backend whose provider makes templates.  Subclasses find, build and delete; the rest is here."""

    name: str
    provider: str
    build_fix: tuple[str, ...]
    """What to do if the provider cannot make a template of an image."""

    @abstractmethod
    def find_template(self, name: str) -> TemplateInfo | None:
        """Ask the provider for one template."""

    @abstractmethod
    def templates(self) -> list[TemplateInfo]:
        """The templates of this account that px made, and no others."""

    @abstractmethod
    def build_template(self, name: str, config: SandboxConfig) -> None:
        """Let the provider build it, and wait until it is done."""

    @abstractmethod
    def delete_template(self, found: TemplateInfo) -> None:
        """Remove it at the provider."""

    def wake_template(self, found: TemplateInfo) -> None:  # noqa: B027 - at some providers, templates do not sleep
        """Let the provider wake one that it has put to sleep."""

    def has_template(self, name: str) -> bool:
        found = self.find_template(name)
        return found is not None and found.state == READY

    def ensure_template(self, config: SandboxConfig) -> str:
        """The name of the template for this image and these resources.  It is there and ready afterwards."""
        name = names.template_name(config)
        if not self.has_template(name):
            with _alone(self.provider, name):
                self._build_or_wait(name, config)
        return name

    def _build_or_wait(self, name: str, config: SandboxConfig) -> None:
        end = time.monotonic() + config.create_seconds
        asked: dict[str, float] = {}
        while True:
            found = self.find_template(name)
            if found is not None and found.state == READY:
                return
            if found is not None and (found.state == FAILED or _is_abandoned(found, asked)):
                # Or the provider would refuse to make another one of its name. It may need a moment for that.
                self._unless_done(self.delete_template, found)
            if found is None and self._built(name, config):
                return
            if found is not None and found.state == ASLEEP:
                self._unless_done(self.wake_template, found)
            if time.monotonic() > end:
                raise Refused(
                    f"{self.provider} has not finished the template {name} in {config.create_seconds} seconds.",
                    fix=[
                        f"If nobody builds it any more: px sandbox templates remove {name} --backend {self.name}",
                        "Wait longer: METAFLOW_SANDBOX_CREATE_SECONDS=N",
                    ],
                )
            time.sleep(PAUSE)

    def _unless_done(self, act: Callable[[TemplateInfo], None], found: TemplateInfo) -> None:
        """Another machine may do the same at this moment: then the provider refuses, and it is done."""
        try:
            act(found)
        except Refused:
            if self.find_template(found.name) == found:
                raise

    def _built(self, name: str, config: SandboxConfig) -> bool:
        """Build it; False if somebody else has begun to, in this very moment."""
        _say(f"{self.provider} makes the template {name}, once for all tasks with this image …")
        try:
            self.build_template(name, config)
        except (Refused, Unavailable) as e:
            found = self.find_template(name)
            if found is None:
                raise
            if found.state == FAILED:  # to try it again at once would end the same way
                raise Refused(e.what, fix=[*self.build_fix, *e.fix], read=_DOCS) from None
            return False
        return True

    def remove_template(self, name: str) -> bool:
        """Remove a template that px made; False if there is none.  Another name than px's own is refused."""
        if names.parse(name) is None:
            raise Unusable(
                f"px did not make the template {name[:100]!r}, and does not remove it.",
                fix=["See those that px made: px sandbox templates"],
                read=_DOCS,
            )
        found = self.find_template(name)
        if found is None:
            return False
        self.delete_template(found)
        return True


def _is_abandoned(found: TemplateInfo, asked: dict[str, float]) -> bool:
    """``asked`` has when each was seen first."""
    now = time.monotonic()
    return found.state == ASKED and now > asked.setdefault(found.provider_id, now) + ABANDONED


@contextmanager
def _alone(provider: str, name: str) -> Iterator[None]:
    from px.home import Home
    from px.store.locks import locked

    waiting = f"Waiting for another task, which makes the template {name} at {provider}"
    with locked(Home.from_environment().sandbox / "templates" / f"{name}.lock", waiting):
        yield


def when(value: object) -> str:
    """A time of a provider as text; empty if it says none."""
    found = value.isoformat() if isinstance(value, datetime) else str(value or "")
    return found if _TIME.fullmatch(found) else ""


def pull_credentials(config: SandboxConfig) -> dict[str, str]:
    """What the provider needs to pull from a private registry, if the user names it.  px hands on no other login.

    It is for the registry of the project's image.  A step may name an image of any other, which must not get it.
    """
    found = {name: str(setting(f"SANDBOX_PULL_{name.upper()}") or "") for name in ("username", "password")}
    for name, other in (("USERNAME", "password"), ("PASSWORD", "username")):
        if found[other] and not found[name.lower()]:
            raise Unusable(
                f"METAFLOW_SANDBOX_PULL_{other.upper()} is set, and METAFLOW_SANDBOX_PULL_{name} is not.",
                fix=[f"Name both: export METAFLOW_SANDBOX_PULL_{name}=…"],
                read=_DOCS,
            )
    ours = config.sbx_id or _host(config.image) == _host(setting("SANDBOX_REGISTRY"))
    return found if ours and found["username"] else {}


def _host(name: object) -> str:
    return str(name or "").strip().partition("/")[0].lower()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
