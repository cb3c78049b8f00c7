"""One terminal for the target's three streams, where px's own three are one terminal.

px-init makes a terminal of the sandbox's own, and px gets its other side.  The caller's terminal is then raw, and px
carries the bytes between the two, so the target's terminal does all that a terminal does: it has a session, a
foreground and a name in ``/dev/pts``, and it turns Ctrl-C and Ctrl-Z into signals.  The target cannot tell that px
searches what it writes, and never has the caller's own terminal.

A job of the caller's shell behaves as without a sandbox.  When the target stops, px stops, and goes on with it when
the shell says so.  A px in the background leaves the terminal alone, and its target is in the background, too: if it
reads, it stops, and px with it.
"""

from __future__ import annotations

import _socket
import os
import select
import sys
import termios

from px.warm import supervise
from px.warm.streams import hand_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any

    from px.warm.streams import Tail
    from px.warm.supervise import Command
else:
    import _signal as signal

_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_WATCHED = supervise.FORWARDED | {signal.SIGTSTP, signal.SIGCONT}
_TERMINAL, _STOP = 3, 4  # events of px-init
_EVENT_SIZE = 16
_PIECE = 65536


class Terminal:
    """The caller's terminal and the target's, for one run."""

    def __init__(self, tail: Tail | None):
        self._tail = tail
        self._channel, self._init_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._listening = True
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._cooked = termios.tcgetattr(0)
        self._raw = False
        self._target = -1
        """The other side of the target's terminal, once px-init has sent it."""
        self._typed = b""
        self._in_front = False
        """Whether the target is in the foreground of its terminal."""
        self._continued = False
        self._receiver: Callable[[], int | None] = lambda: None
        self.started = False

    def close(self) -> None:
        self._channel.close()
        self._init_end.close()
        os.close(self._nothing)
        self._hang_up()

    def channel(self) -> int:
        """px-init's end of the channel, which is closed with the other descriptors of bubblewrap."""
        return self._init_end.detach()

    def run(self, command: Command, after_fork: Callable[[int], None], receiver: Callable[[], int | None]) -> int:
        """Run to the end; the terminal is as before then, whatever happened."""
        self._receiver = receiver
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        before_wakeup = signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        untouched = (signal.SIG_DFL, signal.default_int_handler)
        before = {n: signal.signal(n, self._on_signal) for n in _WATCHED if signal.getsignal(n) in untouched}
        try:
            # bubblewrap writes to the caller's terminal if it fails, and has no other business with it.
            streams, blocked = (self._nothing, self._nothing, 2), supervise.FORWARDED | _STOPS
            return self._run(command.replace(streams=streams, blocked=blocked), after_fork, wake)
        finally:
            self._restore()
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_wakeup)
            os.close(wake)
            os.close(woken)

    def _run(self, command: Command, after_fork: Callable[[int], None], wake: int) -> int:
        pid = supervise.spawn(command)
        child = os.pidfd_open(pid)
        try:
            after_fork(pid)
            while child not in self._turn(wake, child):
                pass
            while self._from_target():  # what it wrote last
                pass
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(child)
            status = os.waitpid(pid, 0)[1]
        return supervise.exit_code(status)

    def _turn(self, wake: int, child: int) -> list[int]:
        """Wait for something to do, and do it."""
        channel = self._channel.fileno()
        reads = [wake, child]
        reads += [channel] if self._listening else []
        reads += [self._target] if self._target >= 0 else []
        reads += [0] if self._raw and self._target >= 0 and not self._typed else []
        ready, writable, _ = select.select(reads, [self._target] if self._typed else [], [])
        if wake in ready:
            os.read(wake, 4096)  # the handlers have run
        if self._target in ready:
            self._from_target()
        if 0 in ready:
            self._from_caller()
        if writable:
            self._to_target()
        if channel in ready:
            self._event()
        if self._continued:
            self._resume()
        return ready

    # --- bytes -------------------------------------------------------------------------------------------------

    def _from_target(self) -> bool:
        try:
            piece = os.read(self._target, _PIECE)
            hand_on(piece, self._tail, 1)
        except BlockingIOError:
            return False
        except OSError:  # nobody has the target's side open any more, or the caller's terminal is gone
            self._hang_up()
            return False
        return bool(piece)

    def _from_caller(self) -> None:
        try:
            self._typed = os.read(0, _PIECE)
        except OSError:
            self._typed = b""
        if self._typed:
            self._to_target()
        else:
            self._hang_up()

    def _to_target(self) -> None:
        # Without blocking: a target that does not read must still be able to write.
        try:
            self._typed = self._typed[os.write(self._target, self._typed) :]
        except BlockingIOError:
            return
        except OSError:
            self._hang_up()

    def _hang_up(self) -> None:
        self._typed = b""
        if self._target >= 0:
            os.close(self._target)
            self._target = -1

    # --- what px-init says, and what it is told ------------------------------------------------------------------

    def _event(self) -> None:
        data, control, _, _ = self._channel.recvmsg(_EVENT_SIZE, _socket.CMSG_SPACE(4))
        self._listening = bool(data)
        self.started = self.started or data == b"R"
        if len(data) == _EVENT_SIZE:
            kind, value = (int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 8))
            if kind == _TERMINAL and control:
                self._open(int.from_bytes(control[0][2][:4], sys.byteorder))
            elif kind == _STOP:
                self._stop(value)

    def _open(self, fd: int) -> None:
        """Make the target's terminal like the caller's, and let the target start."""
        os.set_inheritable(fd, False)
        os.set_blocking(fd, False)
        self._target = fd
        if _is_cooked(self._cooked):  # else it is set for a shell that edits its next line, and px is in the background
            termios.tcsetattr(fd, termios.TCSANOW, self._cooked)
        self._resize()
        self._resume(tell=True)

    def _stop(self, number: int) -> None:
        """The target stopped, so px does, with the rest of its job."""
        self._restore()
        self._continued = False
        if number in _STOPS:
            handler = signal.signal(number, signal.SIG_DFL)
            os.kill(0, number)
            signal.signal(number, handler)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
        # Where no shell watches over px, the kernel has not stopped it, and nobody will fetch it from the background.
        self._resume(tell=True, watched=self._continued)

    def _resume(self, *, tell: bool = False, watched: bool = True) -> None:
        """Take the caller's terminal if px is in the foreground, and let the target be where px is."""
        self._continued = False
        self._raw = in_front = _is_in_front()
        if in_front:
            self._make_raw()
        if tell or in_front != self._in_front:
            self._in_front = in_front
            try:
                self._channel.send(b"F" if in_front or not watched else b"B")
            except OSError:
                return  # the sandbox has just ended

    # --- the caller's terminal -----------------------------------------------------------------------------------

    def _make_raw(self) -> None:
        try:
            now = termios.tcgetattr(0)
            if _is_cooked(now):
                self._cooked = now
            termios.tcsetattr(0, termios.TCSANOW, _raw(self._cooked))
        except termios.error:
            return  # it is gone; reading from it says so, too

    def _restore(self) -> None:
        raw, self._raw = self._raw, False
        # From the background px would be stopped for it; there the shell has set its terminal already.
        if raw and _is_in_front():
            try:
                termios.tcsetattr(0, termios.TCSANOW, self._cooked)
            except termios.error:
                return  # it is gone

    def _resize(self) -> None:
        try:
            termios.tcsetwinsize(self._target, termios.tcgetwinsize(0))
        except (termios.error, OSError):
            return  # one of the two is gone, or not there yet

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGWINCH:
            self._resize()
        elif number == signal.SIGCONT:
            self._continued = True
        else:
            supervise.send(number, self._receiver())


def open_terminal(tail: Tail | None) -> Terminal | None:
    """A terminal for the target; None if px cannot have the caller's for itself.

    One that is raw already belongs to another program of this job, perhaps to another px.  And only the main thread
    gets signals.
    """
    try:
        signal.signal(signal.SIGCONT, signal.getsignal(signal.SIGCONT))
    except ValueError:
        return None
    return Terminal(tail) if _is_cooked(termios.tcgetattr(0)) or not _is_in_front() else None


def _is_in_front() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # no terminal of this session: there is no shell with jobs


def _is_cooked(settings: list[Any]) -> bool:
    return bool(settings[3] & termios.ICANON)


def _raw(settings: list[Any]) -> list[Any]:
    """The same terminal, passing every byte on; the module tty has this only since Python 3.12."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, characters = settings
    t = termios
    iflag &= ~(t.IGNBRK | t.BRKINT | t.PARMRK | t.ISTRIP | t.INLCR | t.IGNCR | t.ICRNL | t.IXON)
    lflag &= ~(t.ECHO | t.ECHONL | t.ICANON | t.ISIG | t.IEXTEN)
    characters = [*characters]
    characters[t.VMIN], characters[t.VTIME] = 1, 0
    return [iflag, oflag & ~t.OPOST, cflag & ~(t.CSIZE | t.PARENB) | t.CS8, lflag, ispeed, ospeed, characters]
