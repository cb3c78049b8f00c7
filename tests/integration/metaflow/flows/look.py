"""A step that looks around in its sandbox, and one that runs where the run does."""

import glob
import os
import socket
import sys

from metaflow import FlowSpec, Parameter, current, sandbox, step


class LookFlow(FlowSpec):
    """What a step can see, write and reach."""

    other = Parameter("other", default="")
    outside = Parameter("outside", default="")

    @step
    def start(self):
        with open("/etc/os-release") as f:
            self.system = f.read()
        self.cwd = os.getcwd()
        self.home_files = os.listdir(os.path.expanduser("~"))
        self.outside_seen = [path for path in self.outside.split(":") if path and os.path.exists(path)]
        self.environment = dict(os.environ)
        self.outer = {}
        for path in ("/proc/1/environ", "/proc/1/cmdline"):
            try:
                with open(path) as f:
                    self.outer[path] = f.read()
            except OSError as e:
                self.outer[path] = str(e)
        self.processes = len([p for p in os.listdir("/proc") if p.isdigit()])
        self.written = {}
        for name in ("here.txt", self.other):
            try:
                with open(name, "a") as f:
                    f.write("x")
                self.written[name] = True
            except OSError as e:
                self.written[name] = str(e)
        self.visible = glob.glob("/home/*") + glob.glob("/root/*")
        self.python = sys.version_info[:2]
        self.next(self.closed)

    @sandbox(network=False)
    @step
    def closed(self):
        try:
            socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), timeout=2).close()
            self.reached = True
        except OSError:
            self.reached = False
        self.next(self.end)

    @step
    def end(self):
        print("done", current.run_id)


if __name__ == "__main__":
    LookFlow()
