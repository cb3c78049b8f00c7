"""Templates and snapshots of images: made once, waited for, found again, listed, and removed if they are px's own."""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any, cast

import pytest
from metaflow import metaflow_config

from metaflow_extensions.sandbox.plugins.backend import Resources, SandboxConfig
from metaflow_extensions.sandbox.plugins.backends import get_backend
from metaflow_extensions.sandbox.plugins.errors import Refused, Unusable
from metaflow_extensions.sandbox.plugins.templates import made
from metaflow_extensions.sandbox.plugins.templates.names import template_name

from .conftest import KEY, Server, Workspace
from .test_listing import px

# A test has its own sbx_id, because the servers outlive it.
SBX_IDS = iter(f"{number:04x}" + "5b" * 30 for number in range(100))
FOREIGN = "px-project-" + "0" * 24 + "-" + "1" * 16


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, fresh: Server) -> SandboxConfig:
    for name, value in fresh.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(made, "PAUSE", 0.05)
    return SandboxConfig(image="python:3.11", sbx_id=next(SBX_IDS))


def backend(server: Server) -> made.MakesTemplates:
    return cast("made.MakesTemplates", get_backend(server.kind))


def post(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A request as another client would send it."""
    headers = {"X-API-KEY": KEY, "Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.loads(answer.read() or b"{}"))


def begin(server: Server, name: str) -> None:
    """Begin to build a template, and do not wait for it: what another machine does."""
    if server.kind == "daytona":
        post(server, "/snapshots", {"name": name, "imageName": "python:3.11"})
    else:
        new = post(server, "/v3/templates", {"name": name})
        post(server, f"/v2/templates/{new['templateID']}/builds/{new['buildID']}", {"fromImage": "python:3.11"})


def built(server: Server) -> int:
    return sum(request in ("POST /snapshots", "POST /v3/templates") for request in server.stats()["requests"])


def test_one_makes_it_and_the_others_wait(fresh: Server, config: SandboxConfig) -> None:
    fresh.faults(build_delay=0.3)
    before, names = built(fresh), []
    threads = [threading.Thread(target=lambda: names.append(backend(fresh).ensure_template(config))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert names == [template_name(config)] * 4
    assert built(fresh) - before == 1
    assert backend(fresh).ensure_template(config) == names[0]
    assert built(fresh) - before == 1, "it is used again from then on"


def test_another_machine_makes_it(fresh: Server, config: SandboxConfig) -> None:
    fresh.faults(build_delay=0.5)
    begin(fresh, template_name(config))
    before = built(fresh)
    backend(fresh).ensure_template(config)
    assert fresh.stats()["templates"][template_name(config)] == "ready"
    assert built(fresh) == before


def test_nobody_finishes_it(fresh: Server, config: SandboxConfig) -> None:
    fresh.faults(build_delay=3600)
    begin(fresh, template_name(config))
    hurried = SandboxConfig(image=config.image, sbx_id=config.sbx_id, create_seconds=0)
    with pytest.raises(Refused, match="px sandbox templates remove"):
        backend(fresh).ensure_template(hurried)
    assert backend(fresh).remove_template(template_name(config))


@pytest.mark.parametrize("server", ["e2b"], indirect=True)  # at Daytona it is one request
def test_whoever_asked_for_it_was_killed(fresh: Server, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """E2B begins to build at a second request, which then never comes."""
    post(fresh, "/v3/templates", {"name": template_name(config)})
    monkeypatch.setattr(made, "ABANDONED", 0.3)
    hurried = SandboxConfig(image=config.image, sbx_id=config.sbx_id, create_seconds=20)
    assert backend(fresh).ensure_template(hurried) == template_name(config)
    assert fresh.stats()["templates"][template_name(config)] == "ready"


@pytest.mark.parametrize("server", ["daytona"], indirect=True)  # E2B's templates do not sleep
def test_asleep(fresh: Server, config: SandboxConfig) -> None:
    """Daytona puts snapshots to sleep.  The first task that needs one wakes it; to remove it, nobody need wake it."""
    name, before = backend(fresh).ensure_template(config), built(fresh)
    post(fresh, f"/snapshots/{name}/deactivate", {})
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(backend(fresh).ensure_template(config))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (names, built(fresh)) == ([name] * 6, before)
    post(fresh, f"/snapshots/{name}/deactivate", {})
    asleep = {t.name: t for t in backend(fresh).templates()}[name]
    assert asleep.state == "asleep"
    backend(fresh).wake_template(asleep)
    with pytest.raises(Refused, match="it is in ready state"):
        backend(fresh).wake_template(asleep)
    backend(fresh)._unless_done(backend(fresh).wake_template, asleep)  # another machine was quicker
    post(fresh, f"/snapshots/{name}/deactivate", {})
    woken = sum(request.endswith("/activate") for request in fresh.stats()["requests"])
    assert backend(fresh).remove_template(name)
    assert sum(request.endswith("/activate") for request in fresh.stats()["requests"]) == woken


def test_a_build_that_does_not_end(fresh: Server, config: SandboxConfig) -> None:
    fresh.faults(build_delay=3600)
    hurried = SandboxConfig(image=config.image, sbx_id=config.sbx_id, create_seconds=1)
    with pytest.raises(Refused, match="has not finished the template"):
        backend(fresh).ensure_template(hurried)
    assert backend(fresh).remove_template(template_name(config))


def test_a_build_that_failed_is_made_again(fresh: Server, config: SandboxConfig) -> None:
    fresh.faults(fail_build=1)
    with pytest.raises(Refused, match="could not be unpacked"):
        backend(fresh).ensure_template(config)
    assert fresh.stats()["templates"][template_name(config)] == "error"
    failed = backend(fresh).find_template(template_name(config))
    assert failed is not None
    backend(fresh).delete_template(failed)
    with pytest.raises(Refused, match="not found"):
        backend(fresh).delete_template(failed)
    begin(fresh, template_name(config))
    backend(fresh)._unless_done(backend(fresh).delete_template, failed)  # another machine was quicker
    fresh.faults(fail_build=1)
    assert backend(fresh).remove_template(template_name(config))
    with pytest.raises(Refused, match="could not be unpacked"):
        backend(fresh).ensure_template(config)
    backend(fresh).ensure_template(config)
    assert fresh.stats()["templates"][template_name(config)] == "ready"


@pytest.mark.parametrize("server", ["e2b"], indirect=True)  # Daytona keeps logins itself
def test_the_login_is_for_the_registry_of_the_project_only(
    fresh: Server, config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may name an image of any other registry, and that must not get it."""
    monkeypatch.setattr(metaflow_config, "SANDBOX_PULL_USERNAME", "puller", raising=False)
    with pytest.raises(Unusable, match="METAFLOW_SANDBOX_PULL_PASSWORD is not"):
        backend(fresh).check(config)  # type: ignore[attr-defined]
    monkeypatch.setattr(metaflow_config, "SANDBOX_PULL_PASSWORD", "planted", raising=False)
    monkeypatch.setattr(metaflow_config, "SANDBOX_REGISTRY", "registry.example.org/team", raising=False)
    others = [SandboxConfig(image=f"{host}/a/b:1") for host in ("registry.example.org", "registry.example.com")]
    names = [backend(fresh).ensure_template(one) for one in (config, *others)]
    assert [fresh.stats()["logins"][name] for name in names] == ["puller", "puller", ""]


def test_resources_are_parts_of_it(fresh: Server, config: SandboxConfig) -> None:
    sized = SandboxConfig(image=config.image, sbx_id=config.sbx_id, resources=Resources(cpu=1.5, memory_mb=2000))
    names = {backend(fresh).ensure_template(one) for one in (config, sized)}
    assert len(names) == 2
    assert names <= set(fresh.stats()["templates"])


def test_listed_and_removed(workspace: Workspace, fresh: Server, config: SandboxConfig) -> None:
    """What px made, and nothing else: not even what has almost such a name."""
    own = backend(fresh).ensure_template(config)
    for name in ("px-mine", "team-python", FOREIGN):
        if name not in fresh.stats()["templates"]:
            begin(fresh, name)
    code, details = px(workspace, "templates", **fresh.env)
    assert code == 0
    listed = {row["name"]: row for row in details["templates"]}
    assert listed[own]["sbx_id"] == config.sbx_id[:24]
    assert not {"px-mine", "team-python", FOREIGN} & set(listed)
    others = ("px-mine", FOREIGN, "no-such")
    code, details = px(workspace, "templates", "remove", *others, **fresh.env)
    assert (code, details["removed"], len(details["problems"])) == (1, [], 3)
    for name in others:
        with pytest.raises(Unusable, match="px did not make"):
            backend(fresh).remove_template(name)
    code, details = px(workspace, "templates", "remove", own, "--older-than", "1", **fresh.env)
    assert (code, details["removed"]) == (0, []), "it is new"
    code, details = px(workspace, "templates", "remove", own, **fresh.env)
    assert (code, [row["name"] for row in details["removed"]]) == (0, [own])
    left = fresh.stats()["templates"]
    assert own not in left
    assert {"px-mine", "team-python", FOREIGN} <= set(left)


def test_a_backend_without_templates(workspace: Workspace) -> None:
    code, details = px(workspace, "templates", "--backend", "local")
    assert code == 1
    assert "has no templates" in details["problems"][0]
