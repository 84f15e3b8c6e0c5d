"""The main program of a watcher, between our process and one that runs user code.

It starts the command as its only child, and ends it and all its descendants as soon as our
process is gone or asks for it, or the command ends by itself. It notices the end of its
parent by the parent's number, not by a pipe: a fork of the parent may hold the other end open.
On Linux it is the subreaper of the command's descendants: a daemon becomes its child instead of
init's, so none escapes. It has one thread, so the kernel kills the command when the watcher
dies, however it does.

Started as ``watcher.py PARENT CONTROL FD,... COMMAND ...``. To the socket CONTROL it writes two
numbers: the command's process id, and its exit code once all are dead. End of file on CONTROL
means: end everything. The other file descriptors are the command's.

Started without COMMAND, it takes commands from CONTROL, one after the other: the start of a
watcher takes longer than that of most programs. A request has a number, its length; then what
``serve`` takes, as JSON; and the three standard files. The answer to a command that cannot be
started is one number, minus the system's error.

It uses only the standard library, and little of it: there is one watcher per process.
"""

import errno
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

NUMBER = struct.Struct("<i")

_SUBREAPER, _PARENT_DEATH = 36, 1
#: Seconds for all descendants to die; one that takes longer hangs in the kernel, or is root's.
_LAST_LIMIT = 10.0
#: Seconds between checks of the parent, for systems without a signal.
_LOOK = 1.0
#: Those of them that the system has: Windows imports this module, and can do nothing with it.
_END = tuple(s for s in signal.Signals if s.name in ("SIGTERM", "SIGHUP", "SIGINT"))


def main(parent: int, control: int, fds: list[int], command: list[str]) -> None:
    """Start the command, watch it, and report how it ended."""
    signals = _prepare(control)
    child = _start(command)
    _close_in_watcher(fds)
    _say(control, child)
    code = _watch(parent, control, signals, child)
    code = _end_family(child, code)
    _say(control, code)
    os._exit(0)


def serve(parent: int, control: int) -> None:
    """Start and watch one command after the other, until our process hangs up or is gone."""
    signals = _prepare(control)
    _close_in_watcher([])
    code: int | None = 0
    while code is not None and _requested(parent, control, signals):
        request = _take(control)
        if request is None:
            break
        child = _start_request(*request)
        _say(control, child)
        if child > 0:
            code = _watch(parent, control, signals, child)
            _say(control, _end_family(child, code))
    os._exit(0)


def _prepare(control: int) -> int:
    """Become a watcher; the reading end of a pipe of signals."""
    _open_terminal()
    signals = _signals()
    os.set_inheritable(control, False)
    _prctl(_SUBREAPER, 1)
    # SIGCONT, not SIGKILL: it only wakes us, even if we were stopped. It also comes when the
    # *thread* that started us ends; then there is nothing to do.
    _prctl(_PARENT_DEATH, signal.SIGCONT)
    return signals


def _open_terminal() -> None:
    """Open 0, 1 and 2: else the command's first file would receive its messages."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(fd, True)
    os.close(fd)


def _signals() -> int:
    """The reading end of a pipe of signals, whatever the parent does with SIGCHLD.

    Signals that the parent ignores and that would end us stay ignored, here and in the command.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    ends = (number for number in _END if signal.getsignal(number) is not signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGCONT, *ends):
        signal.signal(number, lambda *_: None)  # the default again in the command
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reader


def _start(command: list[str]) -> int:
    """Start the command in its own session: its signals to a group do not reach us."""
    watcher = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _prctl(_PARENT_DEATH, signal.SIGKILL)
        if os.getppid() == watcher:
            os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def _requested(parent: int, control: int, signals: int) -> bool:
    """Wait for a request; False if there is a reason to end instead."""
    events = select.poll()
    events.register(control, select.POLLIN)
    events.register(signals, select.POLLIN)
    while os.getppid() == parent:
        for fd, _ in events.poll(1000 * _LOOK):
            if fd == control:
                return True
            if set(_END).intersection(os.read(signals, 512)):
                return False
    return False


def _take(control: int) -> tuple[str, list[str], dict[str, str], str, list[int]] | None:
    """The arguments of ``_start_request``; None once our process has hung up."""
    import json  # here, as a watcher of one command need not wait for them
    import socket

    with suppress(OSError), socket.socket(fileno=os.dup(control)) as requests:
        head, fds, _, _ = socket.recv_fds(requests, NUMBER.size, 3)
        if len(head) == NUMBER.size:
            (size,) = NUMBER.unpack(head)
            body = requests.recv(size, socket.MSG_WAITALL)
            if len(body) == size:
                for fd in fds:
                    os.set_inheritable(fd, False)
                program, arguments, environment, folder = json.loads(body)
                return program, arguments, environment, folder, fds
    return None


def _start_request(
    program: str, arguments: list[str], environment: dict[str, str], folder: str, fds: list[int]
) -> int:
    """Start a program with these standard files: its process id, or minus the system's error.

    A spawn takes half the time of a fork. But the kernel does not end the program with us then:
    our process does, or the watcher of our process.
    """
    try:
        os.chdir(folder)
        return os.posix_spawn(
            program,
            arguments,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)],
            setsid=True,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
        )
    except OSError as error:
        return -(error.errno or errno.EIO)
    finally:
        os.chdir("/")
        for fd in fds:
            os.close(fd)


def _close_in_watcher(fds: list[int]) -> None:
    """Close the command's descriptors here, so that others notice when it closes them."""
    for fd in fds:
        os.close(fd)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _watch(parent: int, control: int, signals: int, child: int) -> int | None:
    """Wait for a reason to end; the child's exit code if it has ended."""
    events = select.poll()
    events.register(control, select.POLLIN)
    events.register(signals, select.POLLIN)
    while True:
        code = _reap(child)
        if code is not None or os.getppid() != parent:
            return code
        for fd, _ in events.poll(1000 * _LOOK):
            if fd == control or set(_END).intersection(os.read(signals, 512)):
                return _reap(child)


def _reap(child: int) -> int | None:
    """Reap the dead; the child's exit code if it is among them."""
    code = None
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return code
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return code


def _end_family(child: int, code: int | None) -> int:
    """Kill until none is left: one may start another while we search."""
    limit, pause = time.monotonic() + _LAST_LIMIT, 0.001
    while not (code is not None and _is_alone()):
        family = _family() if sys.platform == "linux" else None
        if family is None:
            _kill(os.killpg, child)
        else:
            for pid in family:
                _kill(os.kill, pid)
        ended = _reap(child)
        code = code if ended is None else ended
        if (code is not None and not family) or time.monotonic() > limit:
            return -signal.SIGKILL if code is None else code
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return code


def _is_alone() -> bool:
    """Whether all descendants are known to be dead: a subreaper without children has none.

    The system's table of processes takes milliseconds to read.
    """
    if sys.platform != "linux":
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _family() -> list[int] | None:
    """All descendants of this process; None if the system does not tell."""
    children: dict[int, list[int]] = {}
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return None  # /proc is that of another container
        for name in os.listdir("/proc"):
            if name.isdigit():
                children.setdefault(_parent(name), []).append(int(name))
    except OSError:
        return None
    family = [os.getpid()]
    for pid in family:  # grows during the loop
        family += children.get(pid, ())
    return family[1:]


def _parent(name: str) -> int:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            # The program's name may contain anything, even parentheses.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:  # it has just ended
        return 0


def _kill(how: Callable[[int, int], None], number: int) -> None:
    with suppress(OSError):  # gone, or not permitted
        how(number, signal.SIGKILL)


def _say(control: int, number: int) -> None:
    with suppress(OSError):  # the engine is gone
        os.write(control, NUMBER.pack(number))


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl; other systems make do with pipes and process groups."""
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    _parent_pid, _control, _fds, *_command = sys.argv[1:]
    if _command:
        main(int(_parent_pid), int(_control), [int(fd) for fd in _fds.split(",") if fd], _command)
    serve(int(_parent_pid), int(_control))
