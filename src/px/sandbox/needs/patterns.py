"""From complaints (:mod:`px.env.complaints`) to the capabilities that would have helped."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from px.env.complaints import complaints, names, table
from px.errors import PxError
from px.sandbox.needs import sonames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from px.env.complaints import Complaint


@dataclass(frozen=True)
class Suggestion:
    """A capability, and the line of output that asks for it."""

    capability: str
    missing: str
    line: str


def match(text: str, base: str) -> tuple[Suggestion, ...]:
    """Every capability that the text asks for, once each, in the order in which it asks."""
    found: dict[str, Suggestion] = {}
    for complaint in complaints(text):
        capability = _capability(complaint, base)
        if capability is not None:
            found.setdefault(capability, Suggestion(capability, complaint.name, complaint.line))
    return tuple(found.values())


def _capability(complaint: Complaint, base: str) -> str | None:
    return complaint.capability or capability_of(complaint.kind, complaint.name, base)


def without_capability(text: str, base: str) -> tuple[str, ...]:
    """Headers, libraries and pkg-config names that the text misses and no capability brings, in its order."""
    kinds = ("header", "linker", "pkgconfig")
    found = dict.fromkeys(c.name for c in complaints(text) if c.kind in kinds and _capability(c, base) is None)
    # A header that the source includes with quotes is its own, which some other mistake hides; but Cython quotes all.
    return tuple(name for name in found if f'#include "{name}"' not in text or "Cythonizing" in text)


@cache
def _undeclared() -> re.Pattern[str]:
    return re.compile(table()["undeclared"], re.MULTILINE)


@cache
def _limits() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["regex"]), str(row["why"])) for row in table()["limit"])


def undeclared(text: str) -> tuple[str, str] | None:
    """What a failed build used without requiring it: the program or module, and the Python package that has it."""
    found = _undeclared().search(text)
    if found is None:
        return None
    module = found["module"]
    name = module or next(name for name in found.groups() if name)
    requirement = names("requirements").get(name) if module else name
    return (name, requirement) if requirement else None


def limits(text: str) -> tuple[str, ...]:
    """Why a build can never succeed in the builder sandbox, where its log shows that."""
    return tuple(why for regex, why in _limits() if regex.search(text))


def missing_error(found: Sequence[Suggestion], why: Sequence[str]) -> PxError:
    """The PX902 for what a build or a run said was missing, with the command that brings each capability."""
    wanted = sorted({s.capability for s in found})
    fix = [f"Run 'px sandbox add {n}' or set [tool.px.sandbox.capabilities].{n} = true." for n in wanted]
    missing = ", ".join(sorted({s.missing for s in found}))
    return PxError("PX902", missing=missing, why=why, fix=fix, capabilities=wanted)


def missing_browser(text: str) -> PxError | None:
    """The error for a browser that Playwright misses: what it advises would put one on this machine, not inside."""
    found = re.search(r"Executable doesn't exist at \S*/ms-playwright/(chromium|firefox|webkit)?", text)
    return PxError("PX025", browser=found[1] or "chromium") if found else None


def capability_of(kind: str, name: str, base: str) -> str | None:
    """The capability that brings a missing thing, or None if px knows none."""
    if kind == "library":
        return _library(name, base)
    if kind == "header":
        return _header(name)
    if kind == "linker":
        return names("linker").get(name) or _library("lib" + name, base)
    if kind == "program":
        return names("programs").get(posixpath.basename(name))
    return names("modules" if kind == "module" else "pkgconfig").get(name)


def _library(name: str, base: str) -> str | None:
    """By exact SONAME, then by the words packages use, then by the name in any version."""
    exact = sonames.owners(name, base)
    if exact:
        return exact[0]
    spoken = names("libraries").get(name) or names("libraries").get(name.lower())
    if spoken:
        return spoken
    wanted = name if name.startswith("lib") else "lib" + name
    near = sonames.by_stem(wanted, base) or sonames.by_stem(wanted.lower(), base)
    return near[0][0] if near else None


def _header(name: str) -> str | None:
    rows = names("headers")
    directory, _, file = name.rpartition("/")
    # The whole name first (sys/acl.h), then the directory (openssl/ssl.h), then the file alone.
    return rows.get(name) or rows.get(directory.partition("/")[0] + "/") or (None if directory else rows.get(file))
