"""``python flow.py sandbox step …``: the trampoline that runs one task in a remote sandbox and ends as it ended."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

from metaflow import util
from metaflow._vendor import click

from metaflow_extensions.sandbox.plugins import sandbox_env
from metaflow_extensions.sandbox.plugins.backend import BackendError
from metaflow_extensions.sandbox.plugins.backends import REMOTE, get_remote_backend
from metaflow_extensions.sandbox.plugins.launch_step import command_index
from metaflow_extensions.sandbox.plugins.local_launch import fault_again
from metaflow_extensions.sandbox.plugins.sandbox_decorator import WORKLOAD, SandboxException, _setting, setting_number
from metaflow_extensions.sandbox.plugins.sandbox_executor import (
    LauncherLostError,
    SandboxExecutor,
    TaskSpec,
    task_script,
)
from metaflow_extensions.sandbox.plugins.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Iterator

_FETCH_SECONDS = 3600
_INPUT_PATHS = 30 * 1024
"""Characters of --input-paths in one variable: one string in an environment may not be longer than 128 KiB."""


@click.group()
def cli() -> None:
    """Hold the one group below, as Metaflow wants it."""


@cli.group(help="Commands related to sandboxes.")
def sandbox() -> None:
    """Hold the one command below."""


@sandbox.command(help="Run a single task in a remote sandbox. Metaflow uses it internally.")
@click.argument("step-name")
@click.argument("code-package-metadata")
@click.argument("code-package-sha")
@click.argument("code-package-url")
@click.option("--decorator", default="sandbox", help="The decorator that asked for the sandbox.")
@click.option("--backend", required=True, type=click.Choice(sorted(REMOTE)), help="Where the sandbox is made.")
@click.option("--executable", default=None, help="The python of the step.")
@click.option("--cpu", default=None, help="Number of CPUs.")
@click.option("--memory", default=None, help="Memory in MB.")
@click.option("--gpu", default=None, help="Number of GPUs.")
@click.option("--disk", default=None, help="Disk in MB.")
@click.option("--image", default=None, help="Image, snapshot or template.")
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
    decorator: str,
    backend: str,
    executable: str | None,
    run_time_limit: int,
    **options: Any,
) -> None:
    """Build the task, run it, and end as it ended."""
    for ours in ("cpu", "memory", "gpu", "disk", "image", "network", "timeout"):
        options.pop(ours)  # the decorator, which this process has too, knows them
    deco = next(d for d in ctx.obj.graph[step_name].decorators if d.name == decorator)
    package = {"METADATA": code_package_metadata, "SHA": code_package_sha, "URL": code_package_url}
    trampoline = Trampoline(ctx, step_name, deco, backend, options)
    try:
        code = trampoline.run(package, executable, run_time_limit)
    except BackendError as e:
        # Exit 1, not "do not retry": @retry and @catch are for exactly this.
        raise SandboxException(e) from None
    end(code)


class Trampoline:
    """One task between Metaflow's runtime and the executor."""

    def __init__(self, ctx: Any, step_name: str, deco: Any, backend: str, options: dict[str, Any]):
        self._obj = ctx.obj
        self._step, self._deco, self._backend, self._options = step_name, deco, backend, options

    def run(self, package: dict[str, str], executable: str | None, time_limit: int) -> int:
        obj, options = self._obj, self._options
        labels = {
            "flow": obj.flow.name,
            "run": str(options["run_id"]),
            "step": self._step,
            "task": str(options["task_id"]),
            "attempt": str(options["retry_count"]),
        }
        log = TaskLog(self._task_datastore())
        executor = SandboxExecutor(
            get_remote_backend(self._backend),
            self._deco.config(labels),
            say=lambda text: obj.echo_always(text, err=True),
            infra_retries=setting_number("SANDBOX_INFRA_RETRIES", least=0),
            keep=log.add,
            parent=os.getppid(),
        )
        task = self._task(package, executable, time_limit)
        try:
            return _guarded(executor, task)
        finally:
            log.close()
            if obj.metadata.TYPE == "local":
                from metaflow_extensions.sandbox.plugins.local_metadata import from_datastore

                from_datastore(obj.flow_datastore, executor.metadata_key)

    def _task_datastore(self) -> Any:
        options = self._options
        return self._obj.flow_datastore.get_task_datastore(
            mode="w",
            run_id=options["run_id"],
            step_name=self._step,
            task_id=options["task_id"],
            attempt=int(options["retry_count"]),
        )

    def _task(self, package: dict[str, str], executable: str | None, time_limit: int) -> TaskSpec:
        obj, datastore = self._obj, self._obj.flow_datastore.TYPE
        environment = obj.environment
        commands = environment.get_package_commands(package["URL"], datastore, package["METADATA"])
        command, paths = self._command(environment.executable(self._step, executable))
        env = {**self._environment(package, datastore), **paths}
        script = task_script(
            commands,
            environment._get_download_code_package_cmd(package["URL"], datastore),
            environment.bootstrap_commands(self._step, datastore),
            command,
            datastore,
        )
        return TaskSpec(
            script=script,
            env=env,
            files=self._files(datastore),
            time_limit=time_limit,
            fetch=self._fetch(package, env),
            may_rerun=not any(
                d.name == "retry" and int(d.attributes["times"]) == 0 for d in obj.graph[self._step].decorators
            ),
        )

    def _command(self, executable: str) -> tuple[str, dict[str, str]]:
        """The command of the step, and the variables that it names."""
        options, variables = dict(self._options), {}
        paths = options.get("input_paths")
        if paths:
            chunks = [paths[i : i + _INPUT_PATHS] for i in range(0, len(paths), _INPUT_PATHS)]
            variables = {f"METAFLOW_INPUT_PATHS_{i}": chunk for i, chunk in enumerate(chunks)}
            options["input_paths"] = "".join(f"${{{name}}}" for name in variables)
        top = " ".join(_top_level(sys.argv))
        rest = " ".join(util.dict_to_cli_options(options))
        script = shlex.quote(os.path.basename(sys.argv[0]))
        return f"{executable} -u {script} {top} step {self._step} {rest}", variables

    def _environment(self, package: dict[str, str], datastore: str) -> dict[str, str]:
        options, obj = self._options, self._obj
        user: dict[str, str] = dict(self._deco.user_env)
        for deco in obj.graph[self._step].decorators:
            if deco.name == "environment":
                user.update({k: str(v) for k, v in deco.attributes["vars"].items()})
        env = sandbox_env.remote_environment(
            datastore=datastore, metadata=obj.metadata.TYPE, forward=_setting("SANDBOX_FORWARD") or "", user=user
        )
        env.update({f"METAFLOW_CODE_{key}": value for key, value in package.items()})
        env.update(
            METAFLOW_CODE_DS=datastore,
            METAFLOW_FLOW_FILENAME=os.path.basename(sys.argv[0]),
            METAFLOW_RUN_ID=str(options["run_id"]),
            METAFLOW_RUNTIME_ENVIRONMENT="sandbox",
            METAFLOW_SANDBOX_BACKEND=self._backend,
            PYTHONUNBUFFERED="x",
        )
        env[WORKLOAD] = "1"
        return env

    def _fetch(self, package: dict[str, str], env: dict[str, str]) -> tuple[str, str] | None:
        """The package's address with a signature: for S3, unless the step has another S3 than this process."""
        from metaflow.metaflow_config import S3_ENDPOINT_URL

        datastore = self._obj.flow_datastore
        if datastore.TYPE != "s3" or env.get("METAFLOW_S3_ENDPOINT_URL", "") != (S3_ENDPOINT_URL or ""):
            return None
        from metaflow.plugins.aws.aws_utils import parse_s3_full_path

        bucket, key = parse_s3_full_path(package["URL"])
        try:
            client = datastore._storage_impl.s3_client.client
            address = client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, _FETCH_SECONDS)
        except Exception:  # noqa: BLE001 - there is another way to the package, which says what is wrong
            return None
        return str(address), package["SHA"]

    def _files(self, datastore: str) -> dict[str, bytes]:
        files = sandbox_env.credential_files(os.environ, datastore)
        if self._obj.metadata.TYPE == "local":
            from metaflow_extensions.sandbox.plugins.local_metadata import seed

            options = self._options
            files["seed.tgz"] = seed(self._obj.flow.name, options["run_id"], self._step, options["task_id"])
        return files


def _top_level(argv: list[str]) -> Iterator[str]:
    """Metaflow's own options, as the runtime gave them; what names a file of this machine stays here."""
    words = iter(argv[1 : command_index(argv)])
    for word in words:
        if word == "--local-config-file":
            next(words)
        else:
            yield shlex.quote(word)


def _guarded(executor: SandboxExecutor, task: TaskSpec) -> int:
    """Run the task; whatever ends this process on the way, short of SIGKILL, takes the sandbox with it."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupted(number: int, _frame: object) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)  # the first is enough, and a second must not stop the tidying up
        raise _Interrupted(number)

    for number in numbers:
        signal.signal(number, interrupted)
    try:
        return executor.run(task)
    except _Interrupted as e:
        return 128 + e.number
    except LauncherLostError:
        # Nobody reads what this process writes any more; and the SDK's threads must not hold it.
        os._exit(1)


class _Interrupted(BaseException):
    """A signal, raised where the main thread stands, so that the sandbox is destroyed on the way out."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def end(code: int) -> None:
    """End as the task ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    fault_again(code)
    # The SDKs leave threads that may wait for a sandbox which is gone: do what an orderly end does, without them.
    atexit._run_exitfuncs()
    os._exit(code)
