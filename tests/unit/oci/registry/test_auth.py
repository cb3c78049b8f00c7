from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from px.errors import PxError
from px.http import FetchError, Http
from px.oci.registry.auth import Authenticator, Challenge, Credentials, find_credentials

if TYPE_CHECKING:
    from pathlib import Path


def config(folder: Path, content: object) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return {"DOCKER_CONFIG": str(folder), "HOME": str(folder / "nobody")}


def encoded(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("key", ["example.org:5000", "https://example.org:5000", "https://example.org:5000/v1/"])
def test_docker_config(key: str, tmp_path: Path) -> None:
    env = config(tmp_path, {"auths": {"other.org": {"auth": encoded("x", "y")}, key: {"auth": encoded("me", "a:b")}}})
    found = find_credentials("example.org:5000", env)
    assert found is not None
    assert (found.username, found.password) == ("me", "a:b")
    assert find_credentials("example.org", env) is None


def test_the_hub_has_a_name_of_its_own(tmp_path: Path) -> None:
    env = config(tmp_path, {"auths": {"https://index.docker.io/v1/": {"auth": encoded("me", "pw")}}})
    found = find_credentials("registry-1.docker.io", env)
    assert found is not None
    assert found.username == "me"


def test_identity_token(tmp_path: Path) -> None:
    found = find_credentials("a.org", config(tmp_path, {"auths": {"a.org": {"identitytoken": "refresh", "auth": ""}}}))
    assert found is not None
    assert found.identity_token == "refresh"


def test_podman_login(tmp_path: Path) -> None:
    file = tmp_path / "run" / "containers" / "auth.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"auths": {"a.org": {"auth": encoded("me", "pw")}}}))
    found = find_credentials("a.org", {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)})
    assert found is not None
    assert found.username == "me"


def test_a_login_for_a_part_of_a_registry(tmp_path: Path) -> None:
    logins = {
        key: {"auth": encoded(key, "pw")} for key in ("a.org/team", "a.org/team/app", "a.org/other", "b.org/team")
    }
    env = config(tmp_path, {"auths": logins})

    def who(path: str) -> str:
        found = find_credentials("a.org", env, path=path)
        return found.username if found else ""

    assert who("team/app") == "a.org/team/app"
    assert who("team/application") == "a.org/team"
    assert who("teams/app") == who("app") == ""
    env = config(tmp_path, {"auths": {**logins, "a.org": {"auth": encoded("all", "pw")}}})
    assert who("app") == "all"


def test_the_environment_comes_first(tmp_path: Path) -> None:
    env = config(tmp_path, {"auths": {"a.org": {"auth": encoded("x", "y")}}})
    found = find_credentials("a.org", {**env, "PX_REGISTRY_USERNAME": "u", "PX_REGISTRY_PASSWORD": "p"})
    assert found == Credentials("PX_REGISTRY_USERNAME", "u", "p")
    found = find_credentials("a.org", {**env, "PX_REGISTRY_TOKEN": "t"})
    assert found is not None
    assert found.bearer == "t"


def test_secrets_do_not_print() -> None:
    shown = repr(Credentials("somewhere", "user", "hunter2", "hunter2", "hunter2"))
    assert "hunter2" not in shown
    assert "user" in shown


@pytest.mark.parametrize(
    "content",
    ["{not json hunter2", "null", '["hunter2"]', {"auths": ["hunter2"]}, {"auths": {"a.org": {"auth": "!!! hunter2"}}}],
)
def test_a_damaged_config_is_an_error_without_its_content(content: object, tmp_path: Path) -> None:
    with pytest.raises(PxError) as caught:
        find_credentials("a.org", config(tmp_path, content))
    assert caught.value.code == "PX903"
    assert "hunter2" not in str(caught.value)


def test_a_helper_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(PxError) as caught:
        find_credentials("a.org", config(tmp_path, {"credsStore": "no-such-helper"}))
    assert "docker-credential-no-such-helper" in str(caught.value)


@pytest.mark.parametrize("output", ["not json hunter2", '{"Secret": "hunter2"}', '["hunter2"]'])
def test_a_helper_that_talks_nonsense(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "bin" / "docker-credential-odd"
    helper.parent.mkdir()
    helper.write_text(f"#!/bin/sh\necho '{output}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(helper.parent))
    with pytest.raises(PxError) as caught:
        find_credentials("a.org", config(tmp_path, {"credHelpers": {"a.org": "odd"}}))
    assert "hunter2" not in str(caught.value)


def test_challenges() -> None:
    found = Challenge.parse(
        'Bearer realm="https://auth.org/token?a=b",service="reg, one",scope="repository:a/b:pull,push"'
    )
    assert found.scheme == "bearer"
    assert found.parameters["service"] == "reg, one"
    assert found.parameters["scope"] == "repository:a/b:pull,push"
    assert Challenge.parse("Basic realm=x").parameters == {"realm": "x"}
    for both in (
        'Basic realm="a, b", Bearer realm="https://t",service="s"',
        'Bearer realm="https://t",service="s", Basic realm=x',
    ):
        assert Challenge.parse(both) == Challenge("bearer", {"realm": "https://t", "service": "s"})
    assert Challenge.parse("Negotiate") == Challenge("negotiate", {})
    assert Challenge.parse("") == Challenge("", {})


@pytest.mark.parametrize("realm", ["http://auth.example.org/token", "ftp://x/", "/token", "https:///x", ""])
def test_passwords_are_not_sent_to_unencrypted_realms(realm: str) -> None:
    who = Authenticator(Http(), "a.org", Credentials("env", "u", "hunter2"), plain_allowed=False)
    assert who.challenged(f'Bearer realm="{realm}"', "", {})
    with pytest.raises(FetchError, match="not an https address"):
        who.header("repository:a:pull")


def test_a_refused_password_is_not_tried_again() -> None:
    who = Authenticator(Http(), "a.org", Credentials("env", "u", "p"), plain_allowed=False)
    assert who.header("") == {}
    assert who.challenged('Basic realm="x"', "", {})
    sent = who.header("")
    assert sent["Authorization"].startswith("Basic ")
    assert not who.challenged('Basic realm="x"', "", sent)


def test_a_refusal_that_asks_for_nothing_changes_nothing() -> None:
    """Another thread may be about to fetch a token from where the registry said before."""
    who = Authenticator(Http(), "example.org", Credentials("test", "me", "secret"), plain_allowed=False)
    assert who.challenged('Basic realm="x"', "", {})
    sent = who.header("")
    assert not who.challenged("", "", sent)
    assert who.header("") == sent
