"""What ``px sandbox diff`` says: how one sandbox differs from another, package by package, and what that weighs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from px import console

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from px.sandbox.report.contents import Contents, Package

ADDED, REMOVED, UPDATED, CHANGED = "added", "removed", "updated", "changed"
_TITLES = {
    ADDED: "Added",
    REMOVED: "Removed",
    UPDATED: "Updated",
    CHANGED: "The same version, with other content",
}


@dataclass(frozen=True)
class Side:
    """One of two sandboxes, wherever it was found."""

    name: str
    """As the user named it."""
    what: str
    """What that is: a commit, an image, the project as it is now."""
    base: str
    architecture: str
    capabilities: tuple[str, ...]
    ids: Mapping[str, str]
    contents: Contents = field(repr=False)
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Capability -> why it is there, if that is known: an image does not say."""

    def as_json(self) -> dict[str, object]:
        """Everything but the packages, which the differences have."""
        return {
            "name": self.name,
            "what": self.what,
            "base": self.base,
            "architecture": self.architecture,
            "capabilities": list(self.capabilities),
            "ids": dict(self.ids),
            "size": self.contents.size,
            "layers": [{"what": what, "size": size} for what, size in self.contents.layers().items()],
        }


@dataclass(frozen=True)
class Change:
    """One package that the two sides do not have alike."""

    what: str
    kind: str
    name: str
    before: str | None
    after: str | None
    size_before: int
    size_after: int

    @property
    def weight(self) -> int:
        return self.size_after - self.size_before

    @property
    def versions(self) -> str:
        if self.before is None or self.after is None or self.before == self.after:
            return self.after or self.before or ""
        return f"{self.before} → {self.after}"


@dataclass(frozen=True)
class Difference:
    """Two sides and everything in which they differ."""

    before: Side
    after: Side
    changes: tuple[Change, ...]

    @property
    def added_capabilities(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.after.capabilities) - set(self.before.capabilities)))

    @property
    def removed_capabilities(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.before.capabilities) - set(self.after.capabilities)))

    @property
    def weight(self) -> int:
        return self.after.contents.size - self.before.contents.size

    @property
    def is_same(self) -> bool:
        ids = [side.ids.get("sbx_id") for side in (self.before, self.after)]
        return not self.changes and ids[0] == ids[1] and self.weight == 0

    def of(self, what: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.what == what)

    def as_json(self) -> dict[str, object]:
        return {
            "same": self.is_same,
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "capabilities": {
                ADDED: {name: list(self.after.reasons.get(name, ())) for name in self.added_capabilities},
                REMOVED: {name: list(self.before.reasons.get(name, ())) for name in self.removed_capabilities},
            },
            "changes": [asdict(change) | {"weight": change.weight} for change in self.changes],
            "weight": self.weight,
        }


def difference(before: Side, after: Side) -> Difference:
    old = {(p.kind, p.name): p for p in before.contents.packages}
    new = {(p.kind, p.name): p for p in after.contents.packages}
    found = (_change(old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()))
    return Difference(before, after, tuple(change for change in found if change is not None))


def _change(old: Package | None, new: Package | None) -> Change | None:
    known = new or old
    if known is None or (old is not None and new is not None and (old.version, old.size) == (new.version, new.size)):
        return None
    if old is None or new is None:
        what = ADDED if old is None else REMOVED
    else:
        what = CHANGED if old.version == new.version else UPDATED
    versions = (old.version if old else None, new.version if new else None)
    return Change(what, known.kind, known.name, *versions, old.size if old else 0, new.size if new else 0)


# --- as text --------------------------------------------------------------------------------------------------------


def render(found: Difference) -> str:
    """The lines for people."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Difference) -> Iterator[str]:
    for letter, side in (("A", found.before), ("B", found.after)):
        yield f"{letter}: {side.what}"
        yield f"   {side.base} ({side.architecture}), {console.size(side.contents.size)}"
        yield from (f"   {name} {value}" for name, value in side.ids.items())
    if found.is_same:
        yield from ("", "The two are the same sandbox.")
        return
    yield from _capabilities(found)
    for what, title in _TITLES.items():
        yield from _changes(title, found.of(what))
    yield from ("", f"Size: {total(found)}")


def total(found: Difference) -> str:
    sizes = [console.size(side.contents.size) for side in (found.before, found.after)]
    return f"{sizes[0]} → {sizes[1]} ({signed(found.weight)})"


def signed(size: int) -> str:
    """A difference of sizes: ``+1.2 MB``."""
    sign = "-" if size < 0 else "+" if size else "±"
    return f"{sign}{console.size(abs(size))}"


def _capabilities(found: Difference) -> Iterator[str]:
    rows = [("+", name, found.after.reasons) for name in found.added_capabilities]
    rows += [("-", name, found.before.reasons) for name in found.removed_capabilities]
    if rows:
        yield from ("", "Capabilities:")
    for sign, name, reasons in rows:
        why = reasons.get(name, ())
        yield f"  {sign} {name}" + (f"  ({why[0]})" if why else "")


def _changes(title: str, changes: Sequence[Change]) -> Iterator[str]:
    if not changes:
        return
    yield from ("", f"{title} ({len(changes)}, {signed(sum(c.weight for c in changes))}):")
    names = max(len(change.name) for change in changes)
    versions = max(len(change.versions) for change in changes)
    for c in sorted(changes, key=lambda c: (c.kind, c.name)):
        yield f"  {c.kind:<6}  {c.name:<{names}}  {c.versions:<{versions}}  {signed(c.weight):>10}"
