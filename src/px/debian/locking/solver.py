"""Finds all dependencies of a few packages: a greedy solver without backtracking.

That is enough within one release of Debian: each package has one newest version, and Debian keeps its packages
installable together.  Like apt, the solver takes the first alternative that can be satisfied.  A dependency that
cannot be satisfied is an error that names the chain of packages that led to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from px.debian.locking.index import Candidate, Index, meets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from px.debian.deb822 import Relation


class UnsolvableError(Exception):
    """The index does not have a package.  ``problem`` says which; ``chain`` lists the packages that led to it."""

    def __init__(self, problem: str, chain: tuple[str, ...] = ()):
        super().__init__(problem)
        self.problem = problem
        self.chain = chain


@dataclass
class _Solution:
    """The packages chosen so far, and for each the package that asked for it."""

    index: Index
    drop: Collection[str]
    chosen: dict[str, Candidate]
    asked_by: dict[str, str]

    def meets(self, relation: Relation) -> bool:
        known = self.chosen.get(relation.name)
        if known is not None and relation.accepts(known.version):
            return True
        # The name may be virtual: then a package that provides it is enough.
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
    """The packages that ``seeds`` need in addition to ``installed``, by name.

    ``drop`` names packages that are left out although others depend on them, because px's fix-ups do their work.  A
    seed is never dropped.
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
    # Breadth first, in the order of sorted names: the same index always gives the same choice.
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
    # A group that names a dropped package counts as satisfied.
    if any(relation.name in solution.drop for relation in group) or any(solution.meets(r) for r in group):
        return None
    # In the order in which the package lists them: maintainers put the preferred alternative first.
    matches = [found for relation in group for found in solution.index.matches(relation)]
    if matches and matches[0].name in solution.drop:
        return None  # a dropped package provides this virtual package
    if matches:
        return next((found for found in matches if len(matches) > 1 and _fits(solution, found)), matches[0])
    wish = " | ".join(str(relation) for relation in group)
    raise UnsolvableError(f"{needer.name} {needer.version} depends on {wish}", solution.chain(needer.name))


def _fits(solution: _Solution, candidate: Candidate, depth: int = 2) -> bool:
    """Whether no chosen package conflicts with this one, or with one that it needs without an alternative.

    It looks two levels of dependencies deep, and is used only where there is a choice.
    """
    for other in solution.chosen.values():
        if other.name != candidate.name and (
            any(meets(other, r) for r in candidate.conflicts) or any(meets(candidate, r) for r in other.conflicts)
        ):
            return False
    only = [solution.index.matches(group[0]) for group in candidate.depends if len(group) == 1]
    return depth == 0 or all(_fits(solution, found[0], depth - 1) for found in only if len(found) == 1)


def _refuse_conflicts(solution: _Solution) -> None:
    # At the end, over all packages: a conflict may be declared by either side, and chosen in any order.
    for name, candidate in sorted(solution.chosen.items()):
        for relation in candidate.conflicts:
            for other in solution.index.matches(relation):
                if other.name != name and other.name in solution.chosen and meets(other, relation):
                    raise UnsolvableError(
                        f"{name} {candidate.version} conflicts with {other.name} {other.version}",
                        solution.chain(other.name),
                    )
