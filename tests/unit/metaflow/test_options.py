"""What the decorators make of their attributes, and what each backend refuses."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from metaflow.plugins.resources_decorator import ResourcesDecorator
from metaflow.plugins.timeout_decorator import TimeoutDecorator

from metaflow_extensions.sandbox.plugins import options, sandbox_executor, sandbox_listing, settings, variables
from metaflow_extensions.sandbox.plugins.backend import Network, Resources, SandboxConfig
from metaflow_extensions.sandbox.plugins.backends import get_backend, names
from metaflow_extensions.sandbox.plugins.errors import Refused, Unusable
from metaflow_extensions.sandbox.plugins.sandbox_cli import Trampoline
from metaflow_extensions.sandbox.plugins.sandbox_decorator import (
    HIDDEN,
    E2BDecorator,
    PinnedEntrypoint,
    SandboxDecorator,
)
from px.cli.commands.sandbox_ps import print_table


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", "k")
    monkeypatch.setenv("DAYTONA_API_KEY", "k")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Network()),
        (True, Network()),
        ("True", Network()),
        (False, Network(allowed=False)),
        ("false", Network(allowed=False)),
        ("10.0.0.0/8, 1.2.3.4/32", Network(only=("10.0.0.0/8", "1.2.3.4/32"))),
        (["a.example"], Network(only=("a.example",))),
    ],
)
def test_network(value: object, expected: Network) -> None:
    assert options.network(value) == expected


@pytest.mark.parametrize(
    ("own", "resources", "expected"),
    [
        ({}, None, {}),
        ({"cpu": 2}, None, {"cpu": "2"}),
        ({"cpu": 2}, {"cpu": 4}, {"cpu": "4.0", "memory": "4096"}),
        ({"cpu": 8, "memory": 100}, {"cpu": 4, "memory": 200}, {"cpu": "8.0", "memory": "200.0"}),
        ({}, {"gpu": 1}, {"cpu": "1", "gpu": "1", "memory": "4096"}),
    ],
)
def test_resources_merge_as_batch_does(
    own: dict[str, object], resources: dict[str, object] | None, expected: dict[str, str]
) -> None:
    decorators = [] if resources is None else [ResourcesDecorator(attributes=resources)]
    assert options.merged_resources(decorators, SandboxDecorator(attributes=own)) == expected


def test_the_shorter_of_two_time_limits_holds() -> None:
    timeout = TimeoutDecorator(attributes={"seconds": 100})
    timeout.init()
    assert options.time_limit([], None) == 5 * 24 * 3600
    assert options.time_limit([], 30) == 30
    assert options.time_limit([timeout], None) == 110, "@timeout ends the step from inside first"
    assert options.time_limit([timeout], 60) == 60


@pytest.mark.parametrize("key", ["cpu", "memory", "gpu", "disk", "timeout"])
@pytest.mark.parametrize("value", ["many", "-5", "nan", "inf", "0"])
def test_numbers_that_make_no_sense(key: str, value: str) -> None:
    if value == "0" and key in ("gpu", "disk"):
        assert options.whole_number({key: value}, key) == 0, "none of it, which every sandbox can have"
        return
    with pytest.raises(Unusable, match=f"{key}='{value}'"):
        options.whole_number({key: value}, key)


@pytest.mark.parametrize("env", ["A=B", ["A"], {"": "a"}, {"A=B": "c"}, {"A": "a\0b"}])
def test_variables_that_make_no_sense(env: object) -> None:
    with pytest.raises(Unusable, match="dictionary"):
        SandboxDecorator(attributes={"env": env})._take_env()


@pytest.mark.parametrize("name", ["SANDBOX_LEASE_SECONDS", "SANDBOX_CREATE_SECONDS"])
def test_a_setting_below_what_can_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"metaflow.metaflow_config.{name}", 0)
    with pytest.raises(Unusable, match=f"unset METAFLOW_{name}"):
        options.sandbox_config(SandboxDecorator(attributes={}).attributes, {})


def test_values_of_env_do_not_stay_in_the_attributes() -> None:
    """Attributes are stored with every run, as an artifact."""
    static = E2BDecorator(attributes={"env": {"TOKEN": "planted"}}, statically_defined=True)
    assert static._take_env() == {"TOKEN": "planted"}
    assert static.attributes["env"] == {"TOKEN": HIDDEN}


def test_conda_cannot_replace_the_trampolines_python() -> None:
    entrypoint = PinnedEntrypoint(["/ours", "-u", "flow.py"])
    entrypoint[0] = "/conda/bin/python"
    assert list(entrypoint) == ["/ours", "-u", "flow.py"]


REFUSED = {
    "local": [
        SandboxConfig(resources=Resources(gpu=1000)),  # a machine with a GPU has one
        SandboxConfig(resources=Resources(disk_mb=1)),
        SandboxConfig(network=Network(only=("example.org", "not a host"))),
        SandboxConfig(image="python:3.11"),
    ],
    "e2b": [
        SandboxConfig(resources=Resources(gpu=1)),
        SandboxConfig(resources=Resources(disk_mb=1)),
        SandboxConfig(network=Network(allowed=False)),
    ],
    "daytona": [
        SandboxConfig(network=Network(allowed=False)),
        SandboxConfig(image="snapshot:mine", resources=Resources(cpu=2)),
    ],
}


@pytest.mark.parametrize(("name", "config"), [(n, c) for n, configs in REFUSED.items() for c in configs])
def test_what_cannot_be_honoured_is_refused_with_a_fix(name: str, config: SandboxConfig) -> None:
    with pytest.raises(Unusable) as raised:
        get_backend(name).check(config)
    assert raised.value.fix
    assert not any("--gpu" in line for line in raised.value.fix), "a flow has no such flag"


def test_an_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(Unusable, match="backend=daytona"):
        get_backend("daytonna")


def test_forwarded_names() -> None:
    environ = {"A": "1", "B": "2", "E2B_API_KEY": "k"}
    assert variables.forwarded(environ, "A, C") == {"A": "1"}
    assert variables.forwarded(environ, "") == {}
    with pytest.raises(Unusable, match="SANDBOX_FORWARD=A"):
        variables.forwarded(environ, "A,E2B_API_KEY")
    with pytest.raises(Unusable, match="names, not values"):
        variables.forwarded(environ, "A=1")


def test_only_the_datastores_own_credentials_cross() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AZURE_CLIENT_SECRET": "c", "OTHER": "d"}
    assert variables.datastore_credentials(environ, "s3") == {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert variables.datastore_credentials(environ, "azure") == {"AZURE_CLIENT_SECRET": "c"}
    assert variables.datastore_credentials(environ, "local") == {}


GOOGLE, AZURE = "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_CERTIFICATE_PATH"


def test_credentials_are_found_where_metaflow_finds_them(tmp_path: Path) -> None:
    """Google's library reads the file that is named, else that of a login; Azure's the variables of a principal."""
    login = tmp_path / "application_default_credentials.json"
    named = tmp_path / "key.json"
    for path in (login, named):
        path.write_text("{}")
    configured = {"CLOUDSDK_CONFIG": str(tmp_path)}
    assert variables.credential_files(configured, "gs", {}) == {GOOGLE: login}
    assert variables.credential_files({**configured, GOOGLE: str(named)}, "gs", {}) == {GOOGLE: named}
    principal = {"AZURE_CLIENT_ID": "a", "AZURE_TENANT_ID": "b"}
    assert variables.credential_files({**principal, "AZURE_CLIENT_SECRET": "c"}, "azure", {}) == {}
    assert variables.credential_files({**principal, AZURE: str(named)}, "azure", {}) == {AZURE: named}
    for datastore in ("s3", "local"):
        assert variables.credential_files({}, datastore, {}) == {}
    assert variables.credential_files({}, "gs", {GOOGLE: "/in/the/image"}) == {}


@pytest.mark.parametrize(
    ("environ", "datastore", "said"),
    [
        ({GOOGLE: "/nowhere/key.json"}, "gs", "/nowhere/key.json names no file"),
        ({"CLOUDSDK_CONFIG": "/nowhere"}, "gs", "gcloud auth application-default login"),
        ({}, "azure", "az ad sp create-for-rbac"),
        ({"AZURE_CLIENT_ID": "a", "AZURE_TENANT_ID": "b", AZURE: "/nowhere.pem"}, "azure", "/nowhere.pem names no"),
    ],
)
def test_credentials_that_cannot_be_handed_on(environ: dict[str, str], datastore: str, said: str) -> None:
    with pytest.raises(Unusable) as raised:
        variables.credential_files(environ, datastore, {})
    assert said in str(raised.value)


def test_the_keys_of_all_backends_are_known() -> None:
    keys = {key for name in names() for key in getattr(get_backend(name), "keys", ())}
    assert keys <= set(variables.NEVER)


def test_the_name_of_a_flow_is_one_word_of_the_remote_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/home/me/my flow.py", "--datastore=s3", "sandbox", "step", "start"])
    trampoline = Trampoline(None, "start", {}, {"run_id": "1"})
    command, _ = trampoline._command("python")
    assert command == "python -u 'my flow.py' --datastore=s3 step start --run-id 1"


def test_what_metaflow_shows_has_no_passwords() -> None:
    error = Unusable("uv could not read https://me:planted@index.example.org/simple/\x1b[2J", fix=["Check the index"])
    shown = str(settings.metaflow_error(error))
    assert shown.replace("\n", "").isprintable(), "a provider's words may be in it"
    assert "https://index.example.org/simple/" in shown
    assert "planted" not in shown


RUDE = "no\x1b[2J https://me:planted@example.org/"


def test_what_a_provider_says_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise Refused(RUDE)

    rude = get_backend("e2b")
    for name in ("sandboxes", "templates", "remove_template", "destroy"):
        monkeypatch.setattr(rude, name, refuse)
    monkeypatch.setattr(sandbox_listing, "get_backend", lambda _name: rude)
    said = [*sandbox_listing.listing("e2b", {})[1], *sandbox_listing.templates("e2b")[1]]
    said += [*sandbox_listing.reap("e2b", {}), str(sandbox_listing.end("e2b", "1"))]
    said += [str(sandbox_listing.remove_template("e2b", "px-1"))]
    sandbox_executor._say(RUDE)
    print_table(("id", "state"), [{"id": "1\x1b[2J", "state": "good\n2  good"}])
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    for text in (*said, out, err):
        assert text.replace("\n", "").isprintable()
        assert "planted" not in text
