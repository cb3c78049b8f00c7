"""Debian's alternatives: ``/usr/bin/awk`` is a link to ``/etc/alternatives/awk``, and that to ``/usr/bin/mawk``.

Packages register a program by calling update-alternatives in their postinst.  px reads these calls from the text of
the script and never runs it.  A call whose arguments contain shell variables is skipped; nearly all have none.  The
records in ``/var/lib/dpkg/alternatives`` have the real tool's format.  A later layer reads there what the layers below
have registered.
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
# One call, up to the end of the command.  Lines that end in a backslash are joined before.
_CALL = re.compile(r"update-alternatives\s+((?:--(?:quiet|force)\s+)*--install\s[^\n;|&]*)")


@dataclass
class Choice:
    """One program that a name can stand for.  Its slaves are files that change with it, such as manual pages."""

    path: str
    priority: int
    slaves: dict[str, str] = field(default_factory=dict)


@dataclass
class Group:
    """A name, the link that users call, and the programs to choose from."""

    name: str
    link: str
    slave_links: dict[str, str] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)

    def best(self) -> Choice:
        # In automatic mode the highest priority wins.
        return max(self.choices.values(), key=lambda c: (c.priority, [-ord(ch) for ch in c.path]))


@dataclass(frozen=True)
class Call:
    """One ``update-alternatives --install`` in a postinst."""

    link: str
    name: str
    path: str
    priority: int
    slaves: tuple[tuple[str, str, str], ...]


def alternatives(image: Image, packages: Sequence[Unpacked]) -> None:
    """Register what the scripts of the packages register, and link each name to its best choice."""
    # A group that a layer below has registered is read and extended, so that its programs stay choices.
    changed = set()
    groups: dict[str, Group] = {}
    for unpacked in packages:
        for call in calls(unpacked.postinst.decode("utf-8", "replace")):
            # A program that px leaves out of the image cannot be a choice.
            if _exists(image, call.path) and not call.link.startswith("/usr/share/man/"):
                group = groups.setdefault(call.name, _known(image, call.name) or Group(call.name, call.link))
                _register(group, call)
                changed.add(call.name)
    for name in sorted(changed):
        _write(image, groups[name])


def calls(script: str) -> Iterator[Call]:
    """The calls in a maintainer script whose arguments contain no variables."""
    for found in _CALL.finditer(script.replace("\\\n", " ")):
        words = [w for w in shlex.split(found[1], comments=True) if w not in ("--quiet", "--force")]
        if not any("$" in word or "`" in word for word in words):
            call = _call(words)
            if call is not None:
                yield call


def _call(words: list[str]) -> Call | None:
    # --install LINK NAME PATH PRIORITY [--slave LINK NAME PATH]...; newer scripts write --follower for --slave.
    if len(words) < 5 or words[0] != "--install" or not words[4].lstrip("-").isdigit():
        return None
    starts = [at for at in range(5, len(words) - 3) if words[at] in ("--slave", "--follower")]
    slaves = tuple((words[at + 1], words[at + 2], words[at + 3]) for at in starts)
    return Call(words[1], words[2], words[3], int(words[4]), slaves)


def _exists(image: Image, path: str) -> bool:
    return image.entry(image.resolve(path.lstrip("/"))) is not None


def _register(group: Group, call: Call) -> None:
    # Images have no manual pages, so they need no links to them.
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
    # update-alternatives does not replace a file that is not a link: it belongs to a package or to the administrator.
    if found is None or found[0] == "l":
        image.link(link.lstrip("/"), f"/{LINKS}/{name}")
        image.link(f"{LINKS}/{name}", path)


def encode(group: Group) -> bytes:
    """A record in the format of update-alternatives."""
    # The mode and the link; name and link of each slave; an empty line; then each choice with its priority and the
    # path of each slave; an empty line at the end.
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
