"""The comparison of Metaflow's core tests says which pairs a sandbox lost, and fails when there are any."""

from __future__ import annotations

from tests.metaflow_core import contexts, local_rows, lost, read, table

LINE = "[pid 7] ### test '{}' graph '{}' in context '{}': {} [using cli executor] ###"


def said(*verdicts: str) -> list[str]:
    return ["some output of a flow", *(LINE.format(*verdict.split()) for verdict in verdicts)]


def test_what_passes_plain_and_not_sandboxed_is_lost() -> None:
    results = read(
        said(
            "OneTest line plain success",
            "OneTest line sandboxed failed",
            "OneTest split plain failed",
            "OneTest split sandboxed failed",
            "TwoTest line plain success",
            "TwoTest line sandboxed success",
        )
    )
    assert {test: lost(found) for test, found in results.items()} == {"OneTest": ["line"], "TwoTest": []}
    assert "| OneTest | 1 of 2 | 0 of 2 | line |" in list(table(results))
    assert list(table(results))[-1] == "| **2 tests** | **2 of 3** | **1 of 3** | |"


def test_a_pair_that_never_ran_sandboxed_is_lost_too() -> None:
    assert lost(read(said("OneTest line plain success"))["OneTest"]) == ["line"]


def test_only_the_last_verdict_counts() -> None:
    again = read(said("OneTest line sandboxed failed", "OneTest line sandboxed success"))
    assert again["OneTest"]["sandboxed"] == {"line": True}


def test_the_contexts_differ_in_the_sandbox_only() -> None:
    plain, sandboxed = contexts(local_rows("cli"))["contexts"]
    assert sandboxed.pop("run_options") == [*plain.pop("run_options"), "--with=sandbox:backend=local"]
    assert {plain.pop("name"), sandboxed.pop("name")} == {"plain", "sandboxed"}
    assert plain == sandboxed
