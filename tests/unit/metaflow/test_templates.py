"""Names of templates: by them px finds its own again, and leaves those of others alone."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from metaflow_extensions.sandbox.plugins.backend import Resources, SandboxConfig
from metaflow_extensions.sandbox.plugins.backends.daytona import _snapshot
from metaflow_extensions.sandbox.plugins.backends.e2b import _own
from metaflow_extensions.sandbox.plugins.templates.made import when
from metaflow_extensions.sandbox.plugins.templates.names import IMAGE, PROJECT, parse, template_name
from px.cli.commands import sandbox_templates
from px.errors import PxError

SBX_ID = "5b" * 32
DIGEST = "sha256:" + "1d" * 32
PROJECT_IMAGE = SandboxConfig(image=f"registry.example.org/team/shop@{DIGEST}", sbx_id=SBX_ID)


def test_a_project_is_named_by_its_sbx_id() -> None:
    name = parse(template_name(PROJECT_IMAGE))
    assert name is not None
    assert (name.kind, SBX_ID.startswith(name.source)) == (PROJECT, True)
    elsewhere = replace(PROJECT_IMAGE, image=f"other.example.org/shop@{DIGEST}", labels={"run": "7"}, lease_seconds=1)
    assert template_name(elsewhere) == template_name(PROJECT_IMAGE), "the same bytes, wherever they were pushed to"


def test_what_differs_has_another_name() -> None:
    configs = [
        PROJECT_IMAGE,
        replace(PROJECT_IMAGE, image=f"registry.example.org/team/shop@sha256:{'2e' * 32}"),
        *(replace(PROJECT_IMAGE, resources=Resources(**{key: 2})) for key in ("cpu", "memory_mb", "gpu", "disk_mb")),
        SandboxConfig(image="python:3.11"),
        SandboxConfig(resources=Resources(cpu=2)),
    ]
    names = [template_name(config) for config in configs]
    assert len(set(names)) == len(names)
    assert [parse(name).kind for name in names[-2:]] == [IMAGE, IMAGE]  # type: ignore[union-attr]


OTHERS = (None, 7, "", "px", "px-mine", "base", f"px-project-{'0' * 24}-{'1' * 16}", f"px-image-{'a' * 24}-{'b' * 16}")


@pytest.mark.parametrize("name", [*OTHERS, "px-" * 10**5, "px-project-\u0660" + "0" * 40, "../px-project"])
def test_names_of_others_are_not_ours(name: object) -> None:
    assert parse(name) is None


def test_a_name_that_is_changed_is_not_ours() -> None:
    name = template_name(PROJECT_IMAGE)
    changed = [name[:i] + ("0" if name[i] != "0" else "1") + name[i + 1 :] for i in range(len(name))]
    assert [one for one in (*changed, name.upper(), f"{name}\n", f" {name}") if parse(one) is not None] == []


@pytest.mark.parametrize("value", [None, "", "yesterday", "<b>2026-01-01T00:00:00</b>", "2026" * 100, 7])
def test_a_time_that_is_none(value: object) -> None:
    assert when(value) == ""


def item(**more: Any) -> argparse.Namespace:
    name = template_name(PROJECT_IMAGE)
    both: dict[str, Any] = {
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "last_used_at": None,
        "last_spawned_at": None,
    }
    both |= {"id": "a-1", "template_id": "a-1", "name": name, "aliases": [name], "names": [f"team/{name}"]}
    return argparse.Namespace(**both | {"state": "active", "build_status": "ready", "general": False} | more)


def test_what_a_provider_lists() -> None:
    name = template_name(PROJECT_IMAGE)
    (found,) = _own(item())
    assert (found.name, found.state, found.provider_id) == (name, "ready", "a-1")
    assert [t.state for t in _own(item(build_status="error"))] == ["failed"]
    assert [t.state for t in _own(item(build_status="waiting"))] == ["asked for"]
    assert [t.state for t in _own(item(build_status="building"))] == ["building"]
    assert list(_own(item(aliases=["mine", "px-mine"], names=[]))) == []
    assert list(_own(item(template_id="../sandboxes/x"))) == [], "an id is part of an address"
    snapshot = _snapshot(item())
    assert snapshot is not None
    assert (snapshot.name, snapshot.state) == (name, "ready")
    assert _snapshot(item(general=True)) is None
    assert _snapshot(item(name="px-mine")) is None
    assert _snapshot(item(id="../sandbox/x")) is None


@pytest.mark.parametrize(
    "words", [["remove"], ["list", "x"], ["remove", "--older-than", "soon"], ["remove", "--older-than=-1"]]
)
def test_a_command_that_makes_no_sense(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    sandbox_templates.configure(parser)
    args = parser.parse_args(words)
    with pytest.raises(PxError, match="PX040"):
        sandbox_templates.main(args, None)  # type: ignore[arg-type]


def test_what_is_old() -> None:
    month = timedelta(days=30)
    now, then = (datetime.now(UTC) - timedelta(days=days) for days in (0, 31))
    cases = {
        (then.isoformat(), ""): True,
        (then.isoformat(), now.isoformat()): False,
        (now.isoformat(), then.isoformat()): True,
        (then.replace(tzinfo=None).isoformat(), ""): True,
        ("", ""): False,
        ("nonsense", ""): False,
    }
    for (created, used), old in cases.items():
        assert sandbox_templates._is_older({"created": created, "used": used}, month) == old, (created, used)
