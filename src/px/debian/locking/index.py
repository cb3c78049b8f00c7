"""Package indexes: the packages that some suites offer, with their versions and dependencies."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from px.debian.deb822 import Relation, parse_relations, parse_stanza
from px.debian.versions import sort_key

if TYPE_CHECKING:
    from collections.abc import Iterable

# An index has tens of thousands of stanzas.  These find the few fields that px needs of every one, without parsing it.
_NAME = re.compile(r"^Package: (\S+)$", re.MULTILINE)
_VERSION = re.compile(r"^Version: (\S+)$", re.MULTILINE)
_PROVIDES = re.compile(r"^Provides: (.+)$", re.MULTILINE)
PRIORITIES = ("required", "important", "standard", "optional", "extra")


@dataclass(frozen=True)
class Candidate:
    """One version of a package in one suite.  Its stanza is parsed on first use."""

    name: str
    version: str
    suite: str
    stanza: str = field(repr=False, compare=False)

    @cached_property
    def fields(self) -> dict[str, str]:
        return parse_stanza(self.stanza)

    @cached_property
    def depends(self) -> tuple[tuple[Relation, ...], ...]:
        # Pre-Depends only says more about the order of installation, which does not matter here.
        return parse_relations(self.fields.get("Pre-Depends", "")) + parse_relations(self.fields.get("Depends", ""))

    @cached_property
    def conflicts(self) -> tuple[Relation, ...]:
        # Both mean that the two packages cannot be installed together.
        both = [self.fields.get("Conflicts", ""), self.fields.get("Breaks", "")]
        return tuple(group[0] for text in both for group in parse_relations(text))

    @cached_property
    def provides(self) -> tuple[Relation, ...]:
        return tuple(group[0] for group in parse_relations(self.fields.get("Provides", "")))

    @property
    def priority(self) -> int:
        found = self.fields.get("Priority", "optional")
        return PRIORITIES.index(found) if found in PRIORITIES else len(PRIORITIES)


class Index:
    """The newest version of every package in some suites, and the providers of virtual packages."""

    def __init__(self, suites: Iterable[tuple[str, str]]):
        """``suites`` pairs a suite's name with the text of its Packages file."""
        self._newest: dict[str, Candidate] = {}
        self._security: dict[str, str] = {}
        for suite, text in suites:
            # Debian's indexes separate stanzas by exactly one empty line, so a plain split is enough.
            for stanza in text.split("\n\n"):
                self._add(suite, stanza)
        self._providers = self._find_providers()

    def _add(self, suite: str, stanza: str) -> None:
        name, version = _NAME.search(stanza), _VERSION.search(stanza)
        if name is None or version is None:
            return
        if suite.endswith("-security"):
            self._security[name[1]] = max(version[1], self._security.get(name[1], version[1]), key=sort_key)
        known = self._newest.get(name[1])
        if known is None or sort_key(version[1]) > sort_key(known.version):
            self._newest[name[1]] = Candidate(name[1], version[1], suite, stanza)

    def _find_providers(self) -> dict[str, list[Candidate]]:
        providers: dict[str, list[Candidate]] = defaultdict(list)
        for name in sorted(self._newest):
            candidate = self._newest[name]
            # Most packages provide nothing: the search saves parsing their stanzas.
            if _PROVIDES.search(candidate.stanza):
                for provided in candidate.provides:
                    providers[provided.name].append(candidate)
        for found in providers.values():
            found.sort(key=lambda c: (c.priority, c.name))
        return providers

    def __len__(self) -> int:
        return len(self._newest)

    def get(self, name: str) -> Candidate | None:
        return self._newest.get(name)

    def has_security_fix(self, name: str, version: str) -> bool:
        """Whether the security archive has a newer version.  A point release may have taken it over since."""
        return name in self._security and sort_key(self._security[name]) > sort_key(version)

    def names(self) -> Iterable[str]:
        return self._newest.keys()

    def matches(self, relation: Relation) -> list[Candidate]:
        """The packages that satisfy ``relation``: the one of that name first, then providers by priority and name."""
        found = []
        real = self._newest.get(relation.name)
        if real is not None and relation.accepts(real.version):
            found.append(real)
        virtual = self._providers.get(relation.name, ())
        return found + [c for c in virtual if c is not real and provides(c, relation)]


def provides(candidate: Candidate, relation: Relation) -> bool:
    """Whether a package provides a virtual package.

    Debian Policy 7.5: a relation with a version is met only by a Provides with a version.
    """
    return any(
        p.name == relation.name and (not relation.op or (p.op == "=" and relation.accepts(p.version)))
        for p in candidate.provides
    )


def meets(candidate: Candidate, relation: Relation) -> bool:
    """Whether this package satisfies ``relation``, by its own name or by a Provides."""
    if candidate.name == relation.name and relation.accepts(candidate.version):
        return True
    return provides(candidate, relation)
