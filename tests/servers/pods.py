"""A stand-in for the API of Kubernetes, as far as Metaflow's @kubernetes uses it.

What is real: the job that Metaflow submits, Metaflow's client, and the container.  The first container of a job's pod
is run by a Docker engine with the image, command and environment that the job says.  What is not there: scheduling,
limits, volumes, ``exec``.

    python -m tests.servers.pods --docker DOCKER --secret NAME=VALUE …
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIELDS = {"metadata.namespace": "default", "spec.serviceAccountName": "default", "status.hostIP": "127.0.0.1"}


class Job:
    """One job and its only pod."""

    def __init__(self, docker: str, document: dict[str, Any], secret: dict[str, str]):
        meta = document["metadata"]
        self.name = meta.get("name") or meta["generateName"] + uuid.uuid4().hex[:8]
        self.uid = str(uuid.uuid4())
        self.document = {**document, "metadata": {**meta, "name": self.name, "uid": self.uid, "namespace": "default"}}
        self.docker = docker
        self.container = ""
        self.failure = ""
        threading.Thread(target=self._start, args=(secret,), daemon=True).start()

    def _start(self, secret: dict[str, str]) -> None:
        pod = self.document["spec"]["template"]["spec"]["containers"][0]
        env = dict(secret) if pod.get("envFrom") else {}
        env |= {row["name"]: self._value(row) for row in pod.get("env", ())}
        words = [f"--env={name}={value}" for name, value in env.items()]
        program, *arguments = pod["command"]
        command = [self.docker, "run", "--detach", "--network=host", f"--entrypoint={program}", *words, pod["image"]]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        self.container, self.failure = done.stdout.strip(), done.stderr.strip() if done.returncode else ""

    def _value(self, row: dict[str, Any]) -> str:
        if "valueFrom" not in row:
            return str(row.get("value", ""))
        field = row["valueFrom"]["fieldRef"]["fieldPath"]
        return FIELDS.get(field) or {"metadata.name": f"{self.name}-pod", "metadata.uid": self.uid}[field]

    def state(self) -> dict[str, Any]:
        """Of the container, as Docker says it."""
        if not self.container:
            return {"Running": not self.failure, "ExitCode": 128, "FinishedAt": "2020-01-01T00:00:00Z"}
        words = [self.docker, "inspect", "--format={{json .State}}", self.container]
        found: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        return found

    def kill(self) -> None:
        if self.container:
            subprocess.run([self.docker, "kill", self.container], capture_output=True, check=False)

    def as_job(self) -> dict[str, Any]:
        state = self.state()
        key = "active" if state["Running"] else "succeeded" if state["ExitCode"] == 0 else "failed"
        return {**self.document, "status": {key: 1}}

    def as_pod(self) -> dict[str, Any]:
        state = self.state()
        ended = {
            "exitCode": state["ExitCode"],
            "finishedAt": state["FinishedAt"],
            "reason": "Completed" if state["ExitCode"] == 0 else "Error",
        }
        status = {
            "name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0,
            "state": {"running": {}} if state["Running"] else {"terminated": ended},
        }  # fmt: skip
        phase = "Running" if state["Running"] else "Succeeded" if state["ExitCode"] == 0 else "Failed"
        return {
            "metadata": {"name": f"{self.name}-pod", "namespace": "default"},
            "status": {"phase": phase, "containerStatuses": [status]},
        }


class Api:
    """The jobs of one cluster."""

    def __init__(self, docker: str, secret: dict[str, str]):
        self.docker, self.secret = docker, secret
        self.jobs: dict[str, Job] = {}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        parts, query = urlsplit(path), parse_qs(urlsplit(path).query)
        name = parts.path.rpartition("/")[2]
        if method == "POST" and name == "jobs":
            job = Job(self.docker, body, self.secret)
            self.jobs[job.name] = job
            return 201, job.as_job()
        if method == "GET" and name == "pods":
            wanted = query.get("labelSelector", [""])[0].removeprefix("job-name=")
            return 200, {"items": [self.jobs[wanted].as_pod()] if wanted in self.jobs else []}
        if name in self.jobs and method in ("GET", "PATCH", "DELETE"):
            job = self.jobs[name]
            if method != "GET":
                job.kill()
                job.document["spec"]["parallelism"] = 0
            return 200, job.as_job()
        return 404, {"message": f"{method} {path} is not part of this stand-in"}


def serve(api: Api) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            code, document = api.answer(self.command, self.path, body)
            content = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--docker", required=True)
    parser.add_argument("--secret", action="append", default=[])
    args = parser.parse_args()
    server = serve(Api(args.docker, dict(item.split("=", 1) for item in args.secret)))
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until whoever started it closes the pipe, or dies


if __name__ == "__main__":
    main()
