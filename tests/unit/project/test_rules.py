"""The state machine and the command table: every command in every state, in development and frozen."""

from __future__ import annotations

import itertools

import pytest

from px.cli.main import COMMANDS
from px.errors import PxError
from px.project import state as rules
from px.project.state import Flags, State, Target

U, L, E, C = State.UNINITIALIZED, State.NEEDS_LOCK, State.NEEDS_ENV, State.CONSISTENT

# What the product promises, written out by hand: (allowed in development, allowed when frozen).
EXPECTED: dict[str, tuple[set[State], set[State]]] = {
    "init": ({U}, set()),
    "add": ({L, E, C}, set()),
    "remove": ({L, E, C}, set()),
    "update": ({L, E, C}, set()),
    "sync": ({L, E, C}, {E, C}),
    "run": ({E, C}, {C}),
    "test": ({E, C}, {C}),
    "why": ({E, C}, {E, C}),
    "pack image": ({C}, {C}),
    "sandbox add": ({L, E, C}, set()),
    "sandbox remove": ({L, E, C}, set()),
    "sandbox explain": ({E, C}, {E, C}),
    "sandbox diff": ({E, C}, {E, C}),
    "bundle export": ({E, C}, {E, C}),
    "cache push": ({E, C}, {E, C}),
    "sandbox audit": ({E, C}, {E, C}),
    "sandbox pin": ({E, C}, set()),
    "sandbox update": ({L, E, C}, set()),
    "sandbox outdated": ({L, E, C}, {L, E, C}),
} | {
    name: ({U, L, E, C}, {U, L, E, C})
    for name in (
        "status", "sandbox list", "sandbox ps", "sandbox reap", "sandbox templates", "pack verify", "base lock",
        "base check", "bundle import", "store verify", "store gc", "doctor", "completions",
    )
}  # fmt: skip


def flags(state: State, *, workspace: bool = False) -> Flags:
    rank = [U, L, E, C].index(state.plain)
    return Flags(workspace, rank >= 1, rank >= 1, rank >= 2, rank >= 2, rank >= 3)


def test_every_command_has_a_rule() -> None:
    assert set(EXPECTED) == set(rules.RULES)
    assert set(COMMANDS) <= set(rules.RULES)


@pytest.mark.parametrize("workspace", [False, True])
@pytest.mark.parametrize("frozen_by", [None, "--frozen", "CI"])
@pytest.mark.parametrize("state", [U, L, E, C])
@pytest.mark.parametrize("command", sorted(rules.RULES))
def test_every_command_in_every_state(command: str, state: State, frozen_by: str | None, workspace: bool) -> None:
    allowed = EXPECTED[command][1 if frozen_by else 0]
    found = flags(state, workspace=workspace)
    assert found.state.is_workspace == workspace
    if state in allowed:
        permit = rules.permit(command, found, frozen_by=frozen_by)
        if command in ("run", "test"):
            assert not set(permit.writes) & {"M", "L"}
        if frozen_by:
            assert not set(permit.writes) & {"M", "L"}
            assert command == "sync" or permit.writes == ""
    else:
        with pytest.raises(PxError) as caught:
            rules.permit(command, found, frozen_by=frozen_by)
        assert caught.value.code == ("PX011" if frozen_by and not allowed else "PX010")
        assert "px " in "\n".join(caught.value.fix) or "development machine" in "\n".join(caught.value.fix)


@pytest.mark.parametrize("bits", list(itertools.product([False, True], repeat=5)))
def test_flags_give_one_state(bits: tuple[bool, ...]) -> None:
    manifest, lock, matches, env, built = bits
    found = Flags(False, manifest, lock, matches, env, built)
    assert (found.state is U) == (not manifest)
    assert (found.state is C) == all(bits)
    assert found.env_clean == (found.state is C)
    assert found.reason


def test_the_sandbox_target_names_its_own_commands() -> None:
    with pytest.raises(PxError) as caught:
        rules.permit("run", flags(E), frozen_by="CI", target=Target.SANDBOX)
    assert "px sync --sandbox --frozen" in str(caught.value)
    assert "px run --sandbox" in caught.value.what


@pytest.mark.parametrize("state", [L, E, C])
@pytest.mark.parametrize("frozen", [False, True])
def test_what_to_do_next_names_the_target(state: State, frozen: bool) -> None:
    assert "--sandbox" in rules.remedy(state, target=Target.SANDBOX, frozen=frozen)
    assert "--sandbox" not in rules.remedy(state, target=Target.HOST, frozen=frozen)
