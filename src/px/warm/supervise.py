"""Start bubblewrap, pass signals on, wait for the end.

px stays as the parent instead of becoming bubblewrap, which costs nothing that can be measured and buys three
things: a SIGTERM reaches the target and lets it clean up, where bubblewrap would die and have it killed; Ctrl-C
reaches the target alone; and limits and captured streams are cleaned up after the run.

Signals are blocked, here and in bubblewrap; px-init opens the mask again for the target.
"""

from __future__ import annotations

import os

from px.warm.spec import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Mapping
else:
    import _signal as signal  # the same functions and plain numbers; signal itself imports enum to dress them up

FORWARDED = frozenset(
    getattr(signal, f"SIG{name}") for name in ("INT", "QUIT", "TERM", "HUP", "USR1", "USR2", "ALRM", "WINCH")
)
# Python ignores these two for itself, and ignored signals stay ignored across exec.
_PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
_SI_KERNEL = 0x80


class Command(Frozen):
    """A program with all that it inherits."""

    argv: list[str]
    env: Mapping[str, str]
    inherit: Iterable[int] = ()
    streams: tuple[int, int, int] = (0, 1, 2)
    blocked: Iterable[int] = FORWARDED
    """The signals that the program starts with blocked; bubblewrap would die of them, and px-init opens the mask."""


class Supervisor(Frozen):
    """Runs one command; signals that px gets go to the process that ``receiver`` finds."""

    receiver: Callable[[], int | None]
    shares_terminal: bool

    def run(self, command: Command, after_fork: Callable[[int], None]) -> int:
        if not _alone() or _wanted():
            return self._run_among_threads(command, after_fork)
        watched = FORWARDED | {signal.SIGCHLD}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        try:
            pid = spawn(command)
            try:
                after_fork(pid)
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            return self._wait(pid, watched)
        finally:
            # A child's end that was waited for already; the rest is for whoever handles signals after the run.
            while signal.SIGCHLD in signal.sigpending():
                signal.sigtimedwait({signal.SIGCHLD}, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _wait(self, pid: int, watched: frozenset[signal.Signals]) -> int:
        while True:
            info = signal.sigwaitinfo(watched)
            if info.si_signo == signal.SIGCHLD:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    return exit_code(status)
            else:
                self._forward(info)

    def _forward(self, info: signal.struct_siginfo) -> None:
        # What the terminal sends, it sends to every process of the foreground group, the target included.
        if info.si_code == _SI_KERNEL and self.shares_terminal:
            return
        send(info.si_signo, self.receiver())

    # --- in a program with more threads ------------------------------------------------------------------------

    def _run_among_threads(self, command: Command, after_fork: Callable[[int], None]) -> int:
        """Any thread may take a signal there, so Python's own handlers pass it on.

        Those that the program has set itself stay: an exception from one of them ends the sandbox.
        """
        import threading

        if threading.current_thread() is not threading.main_thread():
            return _run_to_the_end(command, after_fork, _wait_in_thread)
        untouched = (signal.SIG_DFL, signal.default_int_handler)
        before = {n: signal.signal(n, self._on_signal) for n in FORWARDED if signal.getsignal(n) in untouched}
        try:
            return _run_to_the_end(command, after_fork, _wait_awake)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        # A handler is not told who sent it; these nearly always come from the terminal.
        if not (self.shares_terminal and number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)):
            send(number, self.receiver())


def send(number: int, receiver: int | None) -> None:
    if receiver is not None:
        try:
            os.kill(receiver, number)
        except ProcessLookupError:
            return  # it ended in this moment, and the next signal here says so


def _run_to_the_end(command: Command, after_fork: Callable[[int], None], wait: Callable[[int], int]) -> int:
    pid = spawn(command)
    try:
        after_fork(pid)
        return exit_code(wait(pid))
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


# The sandboxes that threads wait for, by thread.  No signal reaches a thread, so whoever gives up ends them.
_waited_for: dict[int, int] = {}


def _wait_in_thread(pid: int) -> int:
    import threading

    me = threading.get_ident()
    _waited_for[me] = os.pidfd_open(pid)
    try:
        return os.waitpid(pid, 0)[1]
    finally:
        os.close(_waited_for.pop(me))


def end_of_threads(threads: Iterable[int]) -> None:
    """End what these threads wait for."""
    for thread in threads:
        fd = _waited_for.get(thread)
        if fd is not None:
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except OSError:
                continue  # it ended in this moment


def _wait_awake(pid: int) -> int:
    """Wait for a child and let handlers run: a plain wait would sleep through a signal that came just before."""
    import select

    read, write = os.pipe()
    os.set_blocking(write, False)
    child = os.pidfd_open(pid)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        while child not in select.select([child, read], [], [])[0]:
            os.read(read, 4096)
        return os.waitpid(pid, 0)[1]
    finally:
        signal.set_wakeup_fd(before)
        for fd in (child, read, write):
            os.close(fd)


def _alone() -> bool:
    """Whether this process has no other thread, which could take the signals that are waited for here."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _wanted() -> bool:
    """Whether this program handles some of the signals itself: then they are not passed on."""
    found = (signal.getsignal(number) for number in FORWARDED)
    return any(callable(handler) and handler is not signal.default_int_handler for handler in found)


def exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def spawn(command: Command) -> int:
    # A quarter of the time of a fork, which copies the tables of Python's memory.
    for fd in command.inherit:
        os.set_inheritable(fd, True)
    moves = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(command.streams) if fd != target]
    return os.posix_spawn(
        command.argv[0],
        command.argv,
        command.env,
        file_actions=moves,
        setsigmask=command.blocked,
        setsigdef=_PYTHON_IGNORES,
    )


class FirstProcess:
    """The sandbox's process 1 as the host counts, from what bubblewrap writes to its ``--info-fd``."""

    def __init__(self, info_fd: int):
        self._info_fd = info_fd
        self._text = b""

    def __call__(self) -> int | None:
        """Its number; None if the sandbox could not be made."""
        while b"}" not in self._text and (piece := os.read(self._info_fd, 4096)):
            self._text += piece
        number = self._text.partition(b'"child-pid":')[2].split(b",")[0].strip(b" \n}")
        return int(number) if number.isdigit() else None


def started(channel: int) -> bool:
    """Whether px-init ran: it writes one byte before it starts the target."""
    os.set_blocking(channel, False)
    try:
        return os.read(channel, 1) == b"R"
    except BlockingIOError:
        return False
