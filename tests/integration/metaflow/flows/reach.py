"""A step that tries to connect to ports of the machine that runs it."""

import contextlib
import socket

from metaflow import FlowSpec, Parameter, step


class ReachFlow(FlowSpec):
    """Which ports answer."""

    ports = Parameter("ports")

    @step
    def start(self):
        self.answers = []
        for port in self.ports.split(","):
            try:
                with socket.create_connection(("localhost", int(port)), timeout=20) as connection:
                    self.answers.append(connection.recv(10).decode())
            except OSError as e:
                self.answers.append(type(e).__name__)
        with contextlib.suppress(OSError):
            socket.gethostbyname("refused.example")
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    ReachFlow()
