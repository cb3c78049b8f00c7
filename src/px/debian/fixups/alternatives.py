"""Alternatives: ``/usr/bin/awk`` leads to ``/etc/alternatives/awk`` leads to ``/usr/bin/mawk``.

Packages register their choices by calling update-alternatives in their postinst.  The calls are read out
of the script's text, never run: nearly all spell their arguments out, and what does not is in ``EXTRA``.
The records in ``/var/lib/dpkg/alternatives`` are those of the real tool, so that a later layer can go on
from what the layers below have registered.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.image import Image
    from px.debian.unpack import Unpacked

LINKS, RECORDS = "etc/alternatives", "var/lib/dpkg/alternatives"
_CALL = re.compile(r"update-alternatives\s+((?:--(?:quiet|force)\s+)*--install\s[^\n;|&]*)")


@dataclass
class Choice:
    """One program that can stand behind a name, and the paths that go with it."""

    path: str
    priority: int
    slaves: dict[str, str] = field(default_factory=dict)


@dataclass
class Group:
    """A name, the link that users call, and its choices."""

    name: str
    link: str
    slave_links: dict[str, str] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)

    def best(self) -> Choice:
        return max(self.choices.values(), key=lambda c: (c.priority, [-ord(ch) for ch in c.path]))


@dataclass(frozen=True)
class Call:
    """One ``update-alternatives --install`` of a postinst."""

    link: str
    name: str
    path: str
    priority: int
    slaves: tuple[tuple[str, str, str], ...]


def alternatives(image: Image, packages: Sequence[Unpacked]) -> None:
    """Register what the packages' scripts register, and link every group to its best choice."""
    changed = set()
    groups: dict[str, Group] = {}
    for unpacked in packages:
        for call in calls(unpacked.postinst.decode("utf-8", "replace")):
            if _exists(image, call.path) and not call.link.startswith("/usr/share/man/"):
                group = groups.setdefault(call.name, _known(image, call.name) or Group(call.name, call.link))
                _register(group, call)
                changed.add(call.name)
    for name in sorted(changed):
        _write(image, groups[name])


def calls(script: str) -> Iterator[Call]:
    """The calls of a maintainer script whose arguments are all spelled out."""
    for found in _CALL.finditer(script.replace("\\\n", " ")):
        words = [w for w in shlex.split(found[1], comments=True) if w not in ("--quiet", "--force")]
        if not any("$" in word or "`" in word for word in words):
            call = _call(words)
            if call is not None:
                yield call


def _call(words: list[str]) -> Call | None:
    if len(words) < 5 or words[0] != "--install" or not words[4].lstrip("-").isdigit():
        return None
    starts = [at for at in range(5, len(words) - 3) if words[at] in ("--slave", "--follower")]
    slaves = tuple((words[at + 1], words[at + 2], words[at + 3]) for at in starts)
    return Call(words[1], words[2], words[3], int(words[4]), slaves)


def _exists(image: Image, path: str) -> bool:
    return image.entry(image.resolve(path.lstrip("/"))) is not None


def _register(group: Group, call: Call) -> None:
    # Manual pages are not in an image, so neither are the links to them.
    kept = [s for s in call.slaves if not s[0].startswith("/usr/share/man/")]
    group.slave_links |= {name: link for link, name, _ in kept}
    group.choices[call.path] = Choice(call.path, call.priority, {name: path for _, name, path in kept})


def _write(image: Image, group: Group) -> None:
    best = group.best()
    image.file(f"{RECORDS}/{group.name}", encode(group))
    _link(image, group.link, group.name, best.path)
    for name, link in sorted(group.slave_links.items()):
        path = best.slaves.get(name)
        if path is not None and _exists(image, path):
            _link(image, link, name, path)


def _link(image: Image, link: str, name: str, path: str) -> None:
    found = image.entry(image.place(link.lstrip("/")))
    if found is None or found[0] == "l":  # a real file in that place is the administrator's, or a package's
        image.link(link.lstrip("/"), f"/{LINKS}/{name}")
        image.link(f"{LINKS}/{name}", path)


def encode(group: Group) -> bytes:
    """A record as update-alternatives writes it."""
    lines = ["auto", group.link]
    for name in sorted(group.slave_links):
        lines += [name, group.slave_links[name]]
    lines.append("")
    for path in sorted(group.choices):
        choice = group.choices[path]
        lines += [path, str(choice.priority)]
        lines += [choice.slaves.get(name, "") for name in sorted(group.slave_links)]
    return ("\n".join([*lines, ""]) + "\n").encode()


def decode(name: str, record: bytes) -> Group:
    lines = iter(record.decode().splitlines()[1:])
    group = Group(name, next(lines))
    for slave in iter(lambda: next(lines, ""), ""):
        group.slave_links[slave] = next(lines)
    for path in iter(lambda: next(lines, ""), ""):
        choice = Choice(path, int(next(lines)))
        for slave in sorted(group.slave_links):
            value = next(lines)
            if value:
                choice.slaves[slave] = value
        group.choices[path] = choice
    return group


def _known(image: Image, name: str) -> Group | None:
    path = f"{RECORDS}/{name}"
    return decode(name, image.read(path)) if path in image else None
