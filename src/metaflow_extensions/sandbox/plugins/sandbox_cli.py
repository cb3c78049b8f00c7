"""``python flow.py sandbox step …``: the trampoline, which runs one task in a remote sandbox and ends as it ended."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

from metaflow import util
from metaflow._vendor import click

from metaflow_extensions.sandbox.plugins import owner, settings
from metaflow_extensions.sandbox.plugins.backend import task_labels
from metaflow_extensions.sandbox.plugins.backends import get_remote_backend
from metaflow_extensions.sandbox.plugins.errors import BackendError
from metaflow_extensions.sandbox.plugins.local import launcher
from metaflow_extensions.sandbox.plugins.options import RESOURCES, sandbox_config
from metaflow_extensions.sandbox.plugins.remote import metadata
from metaflow_extensions.sandbox.plugins.remote.environment import image_variables, remote_environment
from metaflow_extensions.sandbox.plugins.remote.log import TaskLog
from metaflow_extensions.sandbox.plugins.remote.task import TaskSpec, task_script
from metaflow_extensions.sandbox.plugins.sandbox_executor import RunLostError, SandboxExecutor
from metaflow_extensions.sandbox.plugins.variables import credential_files

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Options of this command itself. All others are for the `step` command inside the sandbox.
_OWN = ("decorator", "backend", "executable", "run_time_limit", "timeout", "network", "image", "sbx_id", *RESOURCES)
# How long the signed address of the code package is valid. The sandbox may wait for room before it uses it.
_FETCH_SECONDS = 3600
# Linux takes 128 KiB for one variable. This many characters fit, whatever they are.
_INPUT_PATHS = 30 * 1024


@click.group()
def cli() -> None:
    """Hold the group below; Metaflow wants this one around it."""


@cli.group(help="Commands related to sandboxes.")
def sandbox() -> None:
    """Hold the command below."""


@sandbox.command(help="Run a single task in a remote sandbox. Metaflow uses it internally.")
@click.argument("step-name")
@click.argument("code-package-metadata")
@click.argument("code-package-sha")
@click.argument("code-package-url")
@click.option("--decorator", default="sandbox", help="The decorator that asked for the sandbox.")
@click.option("--backend", required=True, help="Where the sandbox is made.")
@click.option("--executable", default=None, help="The python of the step.")
@click.option("--cpu", default=None, help="Number of CPUs.")
@click.option("--memory", default=None, help="Memory in MB.")
@click.option("--gpu", default=None, help="Number of GPUs.")
@click.option("--disk", default=None, help="Disk in MB.")
@click.option("--image", default=None, help="Image, snapshot or template.")
@click.option("--sbx-id", default=None, help="The project's, if the image is its image.")
@click.option("--network", default=None, help="Whether and where the step may connect.")
@click.option("--timeout", default=None, help="Seconds that the step may take, as the decorator says it.")
@click.option("--run-time-limit", type=int, required=True, help="Seconds after which the step is ended.")
@click.option("--run-id", help="Passed to the top-level 'step'.")
@click.option("--task-id", help="Passed to the top-level 'step'.")
@click.option("--input-paths", help="Passed to the top-level 'step'.")
@click.option("--split-index", help="Passed to the top-level 'step'.")
@click.option("--clone-path", help="Passed to the top-level 'step'.")
@click.option("--clone-run-id", help="Passed to the top-level 'step'.")
@click.option("--tag", multiple=True, default=None, help="Passed to the top-level 'step'.")
@click.option("--namespace", default=None, help="Passed to the top-level 'step'.")
@click.option("--retry-count", default=0, help="Passed to the top-level 'step'.")
@click.option("--max-user-code-retries", default=0, help="Passed to the top-level 'step'.")
@click.option("--ubf-context", default=None, help="Passed to the top-level 'step'.")
@click.pass_context
def step(
    ctx: Any,
    step_name: str,
    code_package_metadata: str,
    code_package_sha: str,
    code_package_url: str,
    **options: Any,
) -> None:
    """Run the task and end as it ended."""
    package = {"METADATA": code_package_metadata, "SHA": code_package_sha, "URL": code_package_url}
    try:
        code = Trampoline(ctx.obj, step_name, package, options).run()
    except BackendError as e:
        # This ends with exit code 1, so @retry and @catch see a failed task.
        raise settings.metaflow_error(e) from None
    # The SDKs leave threads that may wait for a sandbox that is gone. So do what an orderly end does, without them.
    atexit._run_exitfuncs()
    launcher.end(code)


class Trampoline:
    """One task, between Metaflow's command line and the executor."""

    def __init__(self, obj: Any, step_name: str, package: dict[str, str], options: dict[str, Any]):
        """``obj`` is the context of Metaflow's command line, ``package`` says where the code package is."""
        self._obj, self._step, self._package = obj, step_name, package
        self._own = {key: value for key, value in options.items() if key in _OWN}
        self._options = {key: value for key, value in options.items() if key not in _OWN}

    def run(self) -> int:
        """The exit code of the task."""
        obj, options = self._obj, self._options
        ids = options["run_id"], self._step, options["task_id"], options["retry_count"]
        log = TaskLog(self._task_datastore())
        executor = SandboxExecutor(
            get_remote_backend(self._own["backend"]),
            sandbox_config(self._own, {**task_labels(obj.flow.name, *ids), owner.LABEL: owner.owner()}),
            infra_retries=settings.setting_number("SANDBOX_INFRA_RETRIES", least=0),
            keep=log.add,
            parent=os.getppid(),
        )
        task = self._task()
        # Whatever happens to the task, its log and its metadata are kept.
        try:
            return _guarded(executor, task)
        finally:
            log.close()
            if obj.metadata.TYPE == "local":
                metadata.from_datastore(obj.flow_datastore, executor.metadata_key, (obj.flow.name, *ids[:3]))

    def _task_datastore(self) -> Any:
        options = self._options
        return self._obj.flow_datastore.get_task_datastore(
            mode="w",
            run_id=options["run_id"],
            step_name=self._step,
            task_id=options["task_id"],
            attempt=int(options["retry_count"]),
        )

    def _task(self) -> TaskSpec:
        obj, datastore = self._obj, self._obj.flow_datastore.TYPE
        environment, url = obj.environment, self._package["URL"]
        command, paths = self._command(environment.executable(self._step, self._own["executable"]))
        decorators = obj.graph[self._step].decorators
        env = remote_environment(
            obj, self._package, self._user_variables(decorators), str(self._options["run_id"]), self._own["backend"]
        )
        if self._own["sbx_id"]:
            env = {**image_variables(self._own["sbx_id"]), **env}
        return TaskSpec(
            script=task_script(
                environment.get_package_commands(url, datastore, self._package["METADATA"]),
                environment._get_download_code_package_cmd(url, datastore),
                environment.bootstrap_commands(self._step, datastore),
                command,
                datastore,
            ),
            env={**env, **paths},
            files=self._files(datastore),
            time_limit=self._own["run_time_limit"],
            fetch=self._fetch(env),
            may_rerun=any(d.name == "retry" and int(d.attributes["times"]) > 0 for d in decorators),
        )

    def _command(self, executable: str) -> tuple[str, dict[str, str]]:
        """The command of the step, and the variables that it names."""
        options, variables = dict(self._options), {}
        # The input of a join after a wide foreach is longer than a command line may be, so it goes through variables.
        paths = options.get("input_paths")
        if paths:
            chunks = [paths[i : i + _INPUT_PATHS] for i in range(0, len(paths), _INPUT_PATHS)]
            variables = {f"METAFLOW_INPUT_PATHS_{i}": chunk for i, chunk in enumerate(chunks)}
            options["input_paths"] = "".join(f"${{{name}}}" for name in variables)
        top = " ".join(_top_level(sys.argv))
        rest = " ".join(util.dict_to_cli_options(options))
        script = shlex.quote(os.path.basename(sys.argv[0]))
        return f"{executable} -u {script} {top} step {self._step} {rest}", variables

    def _user_variables(self, decorators: list[Any]) -> dict[str, str]:
        """The variables that decorators give to the step.  They are not on the command line, for all to see."""
        own = [d.user_env for d in decorators if d.name == self._own["decorator"]]
        others = [d.attributes["vars"] for d in decorators if d.name == "environment"]
        return {name: str(value) for found in (*own, *others) for name, value in found.items()}

    def _fetch(self, env: dict[str, str]) -> tuple[str, str] | None:
        """A signed address of the code package in S3; None if the step uses another S3 than this process."""
        datastore = self._obj.flow_datastore
        own_endpoint = settings.setting("S3_ENDPOINT_URL") or ""
        if datastore.TYPE != "s3" or env.get("METAFLOW_S3_ENDPOINT_URL", "") != own_endpoint:
            return None
        from metaflow.plugins.aws.aws_utils import parse_s3_full_path

        bucket, key = parse_s3_full_path(self._package["URL"])
        try:
            client = datastore._storage_impl.s3_client.client
            address = client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, _FETCH_SECONDS)
        except Exception:  # noqa: BLE001 - Metaflow's own command fetches the package then, and says what is wrong
            return None
        return str(address), self._package["SHA"]

    def _files(self, datastore: str) -> dict[str, bytes]:
        options = self._options
        user = self._user_variables(self._obj.graph[self._step].decorators)
        files = {name: path.read_bytes() for name, path in credential_files(os.environ, datastore, user).items()}
        if self._obj.metadata.TYPE == "local":
            files["seed.tgz"] = metadata.seed(self._obj.flow.name, options["run_id"], self._step, options["task_id"])
        return files


def _top_level(argv: list[str]) -> Iterator[str]:
    """Metaflow's own options, as the run gave them, but for the one that names a file of this machine."""
    words = iter(argv[1 : _command_index(argv)])
    for word in words:
        if word == "--local-config-file":
            next(words)
        else:
            yield shlex.quote(word)


def _command_index(argv: list[str]) -> int:
    """Where Metaflow's own options end and `sandbox step` begins."""
    return next(i for i in range(1, len(argv)) if argv[i : i + 2] == ["sandbox", "step"])


def _guarded(executor: SandboxExecutor, task: TaskSpec) -> int:
    """Run the task.  If a signal ends this process meanwhile, the sandbox is destroyed first; SIGKILL excepted."""

    def interrupted(number: int, _frame: object) -> None:
        # A second signal must not interrupt the destruction. With SIG_IGN, Python complains if it has come already.
        for other in SIGNALS:
            signal.signal(other, lambda *_: None)
        raise _Interrupted(number)

    for number in SIGNALS:
        signal.signal(number, interrupted)
    try:
        return executor.run(task)
    except _Interrupted as e:
        return 128 + e.number
    except RunLostError:
        os._exit(1)  # nobody reads what this process writes


class _Interrupted(BaseException):
    """A signal, raised in the main thread, so that the sandbox is destroyed on the way out."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number
