"""A PostgreSQL server of one's own, as a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.machine import postgres_programs
from tests.support.needs import need


@contextmanager
def running_postgres(address: str, port: int, prefix: Sequence[str] = ()) -> Iterator[None]:
    """A server that trusts everybody; ``prefix`` comes before its command.  The caller waits until it listens."""
    need("PostgreSQL")
    binaries = postgres_programs()
    assert binaries is not None
    as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    directory = Path(tempfile.mkdtemp(prefix="px-postgres-"))
    if as_user:
        shutil.chown(directory, "nobody", "nogroup")
    data = directory / "data"
    make = [str(binaries / "initdb"), "-D", str(data), "-U", "px", "-A", "trust", "--no-sync"]
    subprocess.run([*as_user, *make], check=True, capture_output=True, cwd=directory)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all all trust\n")
    where = ["-h", address, "-p", str(port), "-k", str(directory)]
    serve = [str(binaries / "postgres"), "-D", str(data), *where, "-F"]
    server = subprocess.Popen([*prefix, *as_user, *serve], cwd=directory, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(directory)
