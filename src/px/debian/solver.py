"""From a few package names to everything that they need: a greedy solver without backtracking.

Within one release of Debian every package has one newest version and the archive is kept installable, so
choosing the first alternative that can be met, as apt does, is enough; what cannot be met is an error that
names the chain, never a silent choice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.debian.index import Candidate, Index, meets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from px.debian.deb822 import Relation


class UnsolvableError(Exception):
    """A package or dependency that the index cannot give; ``problem`` says which, ``chain`` who asked."""

    def __init__(self, problem: str, chain: tuple[str, ...] = ()):
        super().__init__(problem)
        self.problem = problem
        self.chain = chain


@dataclass
class _Solution:
    index: Index
    drop: Collection[str]
    chosen: dict[str, Candidate]
    asked_by: dict[str, str]

    def meets(self, relation: Relation) -> bool:
        known = self.chosen.get(relation.name)
        if known is not None and relation.accepts(known.version):
            return True
        # Virtual names: only the packages that provide it can, and the index knows them.
        return any(c.name in self.chosen for c in self.index.matches(relation))

    def chain(self, name: str) -> tuple[str, ...]:
        found = [name]
        while self.asked_by.get(found[-1]):
            found.append(self.asked_by[found[-1]])
        return tuple(found)


def solve(
    index: Index,
    seeds: Iterable[str],
    *,
    drop: Collection[str] = (),
    installed: Mapping[str, Candidate] | None = None,
) -> dict[str, Candidate]:
    """Everything that ``seeds`` need beyond ``installed``, by name.

    ``drop`` names packages that are left out although others depend on them (their work is done by px's
    fix-ups); a seed is never dropped.
    """
    installed = dict(installed or {})
    wanted = sorted(set(seeds))
    solution = _Solution(index, frozenset(drop) - set(wanted), dict(installed), {})
    pending: deque[Candidate] = deque()
    for name in wanted:
        candidate = _seed(index, name)
        if candidate.name not in solution.chosen:
            solution.chosen[candidate.name] = candidate
            pending.append(candidate)
    while pending:
        candidate = pending.popleft()
        for group in candidate.depends:
            found = _choose(solution, candidate, group)
            if found is not None:
                solution.chosen[found.name] = found
                solution.asked_by[found.name] = candidate.name
                pending.append(found)
    _refuse_conflicts(solution)
    return {name: c for name, c in sorted(solution.chosen.items()) if name not in installed}


def _seed(index: Index, name: str) -> Candidate:
    found = index.get(name)
    if found is None:
        raise UnsolvableError(f"there is no package {name}")
    return found


def _choose(solution: _Solution, needer: Candidate, group: tuple[Relation, ...]) -> Candidate | None:
    if any(relation.name in solution.drop for relation in group) or any(solution.meets(r) for r in group):
        return None
    matches = [found for relation in group for found in solution.index.matches(relation)]
    if matches and matches[0].name in solution.drop:
        return None  # dropped by way of a virtual name
    if matches:
        return next((found for found in matches if len(matches) > 1 and _fits(solution, found)), matches[0])
    wish = " | ".join(str(relation) for relation in group)
    raise UnsolvableError(f"{needer.name} {needer.version} depends on {wish}", solution.chain(needer.name))


def _fits(solution: _Solution, candidate: Candidate, depth: int = 2) -> bool:
    """Whether nothing chosen so far rules this package out, or what it cannot do without."""
    for other in solution.chosen.values():
        if other.name != candidate.name and (
            any(meets(other, r) for r in candidate.conflicts) or any(meets(candidate, r) for r in other.conflicts)
        ):
            return False
    only = [solution.index.matches(group[0]) for group in candidate.depends if len(group) == 1]
    return depth == 0 or all(_fits(solution, found[0], depth - 1) for found in only if len(found) == 1)


def _refuse_conflicts(solution: _Solution) -> None:
    for name, candidate in sorted(solution.chosen.items()):
        for relation in candidate.conflicts:
            for other in solution.index.matches(relation):
                if other.name != name and other.name in solution.chosen and meets(other, relation):
                    raise UnsolvableError(
                        f"{name} {candidate.version} conflicts with {other.name} {other.version}",
                        solution.chain(other.name),
                    )
