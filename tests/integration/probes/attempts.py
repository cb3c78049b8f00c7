"""Attempts to get out of a sandbox, or to see what is outside; this file runs inside, alone.

``python3 attempts.py FACTS`` reads what the host prepared (a secret file, a process, sockets, a key …) and prints one
JSON object: name -> [group, what happened], where what happened is "blocked" or "OPEN", with a detail.  An attempt is
blocked when it raises OSError, returns False, or ends its process.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

INHERITED = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[3:-1]  # the last is that listing's own
with open(sys.argv[1]) as _facts:
    FACTS = json.load(_facts)
LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"

# x86_64, aarch64
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "capset": (126, 91), "chroot": (161, 51),
    "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435), "fanotify_init": (300, 262),
    "finit_module": (313, 273), "fsopen": (430, 430), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "ioctl": (16, 29), "iopl": (172, -1), "kexec_load": (246, 104), "keyctl": (250, 219), "mknodat": (259, 33),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_pages": (279, 239), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "open_tree": (428, 428), "perf_event_open": (298, 241), "personality": (135, 92),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pivot_root": (155, 41), "process_vm_readv": (310, 270),
    "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218), "setns": (308, 268),
    "settimeofday": (164, 170), "sethostname": (170, 161), "swapon": (167, 224), "syslog": (103, 116),
    "umount2": (166, 39), "unshare": (272, 97), "userfaultfd": (323, 282), "kcmp": (312, 272),
    "lookup_dcookie": (212, 18), "modify_ldt": (154, -1), "setgroups": (116, 159), "shmget": (29, 194),
    "shmat": (30, 196), "nfsservctl": (180, 42),
}  # fmt: skip

NEWUSER, NEWNS, NEWPID, NEWNET = 0x10000000, 0x00020000, 0x20000000, 0x40000000
ATTEMPTS: dict[str, tuple[str, Callable[[], object]]] = {}


def attempt(group: str, name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def register(function: Callable[[], object]) -> Callable[[], object]:
        ATTEMPTS[name] = (group, function)
        return function

    return register


def syscall(name: str, *args: object) -> int:
    number = NUMBERS[name][0 if X86 else 1]
    if number < 0:
        raise OSError(errno.ENOSYS, "no such call on this machine")
    converted = [
        a if isinstance(a, bytes) or a is None else ctypes.c_long(a) if isinstance(a, int) else a for a in args
    ]
    result = int(LIBC.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def read(path: str, size: int = 4096) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    content = b""
    try:
        # Files of /proc come a page at a time, however much is asked for.
        while len(content) < size and (piece := os.read(fd, size - len(content))):
            content += piece
        return content
    finally:
        os.close(fd)


def write(path: str, data: bytes) -> int:
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def in_child(work: Callable[[], object]) -> object:
    """Do something that may change or end the process; blocked when that ends by a signal or an error."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() is not False else 1
        except OSError:
            code = 1
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return status == 0


# --- files of the host ------------------------------------------------------------------------------------------


@attempt("files", "a file of the host by its path")
def _() -> object:
    return read(FACTS["secret"])


@attempt("files", "a file of the host through /proc/1/root")
def _() -> object:
    return read("/proc/1/root" + FACTS["secret"])


@attempt("files", "a file of the host through a link in the working tree")
def _() -> object:
    return read("/app/link-to-secret")


@attempt("files", "a file of the host by handle (open_by_handle_at)")
def _() -> object:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount_id = ctypes.c_int()
    syscall("name_to_handle_at", -100, b"/app", handle, ctypes.byref(mount_id), 0)
    fd = os.open("/app", os.O_RDONLY)
    return syscall("open_by_handle_at", fd, handle, os.O_RDONLY)


@attempt("files", "leaving by chroot")
def _() -> object:
    def work() -> object:
        os.makedirs("/tmp/jail", exist_ok=True)
        fd = os.open("/", os.O_RDONLY)
        syscall("chroot", b"/tmp/jail")
        os.fchdir(fd)
        for _ in range(20):
            os.chdir("..")
        syscall("chroot", b".")
        return os.path.exists(FACTS["secret"])

    return in_child(work)


@attempt("files", "the host's password hashes")
def _() -> object:
    return FACTS["shadow"].encode() in read("/etc/shadow", 1 << 16)


@attempt("files", "home directories of the host")
def _() -> object:
    return any(os.path.exists(os.path.join(home, FACTS["home_mark"])) for home in ("/root", "/home", FACTS["home"]))


@attempt("files", "the docker daemon's socket")
def _() -> object:
    for path in ("/var/run/docker.sock", "/run/docker.sock", FACTS.get("docker_socket", "/nowhere")):
        try:
            socket.socket(socket.AF_UNIX).connect(path)
        except OSError:
            continue
        return True
    return False


@attempt("files", "writing to a layer of the image on the host")
def _() -> object:
    return write(FACTS["layer_file"], b"x")


@attempt("files", "changing the program that runs process 1 (/proc/1/exe)")
def _() -> object:
    fd = os.open("/proc/1/exe", os.O_RDONLY)
    mode = os.fstat(fd).st_mode & 0o7777
    os.fchmod(fd, mode ^ 0o001)
    os.fchmod(fd, mode)
    return True


@attempt("files", "a setuid program in the working tree")
def _() -> object:
    path = "/app/setuid-program"
    with open(path, "wb") as f:
        f.write(b"#!/bin/sh\n")
    os.chmod(path, 0o4755)
    return bool(os.stat(path).st_mode & 0o4000)


@attempt("files", "a mount of the host that was not asked for")
def _() -> object:
    with open("/proc/self/mountinfo") as f:
        targets = {line.split()[4] for line in f}
    return any(t.startswith(("/mnt", "/media", "/host", "/oldroot")) for t in targets)


# --- devices ----------------------------------------------------------------------------------------------------


def _disk() -> tuple[int, int]:
    return FACTS["disk"][0], FACTS["disk"][1]


@attempt("devices", "reading a disk by a device node")
def _() -> object:
    path = "/tmp/disk"
    syscall("mknodat", -100, path.encode(), 0o60600, os.makedev(*_disk()))
    return read(path, 512)


@attempt("devices", "reading memory by a device node (/dev/mem)")
def _() -> object:
    syscall("mknodat", -100, b"/tmp/mem", 0o20600, os.makedev(1, 1))
    return read("/tmp/mem", 16)


@attempt("devices", "disks in /dev")
def _() -> object:
    return any(n.startswith(("sd", "vd", "nvme", "xvd", "loop", "dm-")) for n in os.listdir("/dev"))


@attempt("devices", "mem, kmsg, kvm, fuse, port or net/tun in /dev")
def _() -> object:
    return any(os.path.exists(f"/dev/{n}") for n in ("mem", "kmsg", "kvm", "fuse", "port", "net/tun"))


@attempt("devices", "terminals of the host in /dev/pts")
def _() -> object:
    return [n for n in os.listdir("/dev/pts") if n not in ("ptmx", "0")]


# --- processes of the host --------------------------------------------------------------------------------------


@attempt("processes", "seeing processes of the host in /proc")
def _() -> object:
    for pid in os.listdir("/proc"):
        if pid.isdigit() and FACTS["victim_mark"].encode() in read(f"/proc/{pid}/cmdline").split(b"\0"):
            return True
    return False


@attempt("processes", "a signal to a process of the host")
def _() -> object:
    os.kill(FACTS["victim"], 0)
    return True


@attempt("processes", "ptrace of a process of the host")
def _() -> object:
    return syscall("ptrace", 0x4206, FACTS["victim"], 0, 0)


@attempt("processes", "memory of a process of the host (process_vm_readv)")
def _() -> object:
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("QQ", ctypes.addressof(buffer), 8)
    return syscall("process_vm_readv", FACTS["victim"], local, 1, struct.pack("QQ", 0x400000, 8), 1, 0)


@attempt("processes", "a descriptor of a process of the host (pidfd_getfd)")
def _() -> object:
    return syscall("pidfd_getfd", syscall("pidfd_open", FACTS["victim"], 0), 0, 0)


@attempt("processes", "ending process 1 from inside")
def _() -> object:
    os.kill(1, signal.SIGKILL)
    os.kill(1, signal.SIGTERM)
    time.sleep(0.2)
    return False


@attempt("processes", "what process 1 has open (/proc/1/fd)")
def _() -> object:
    for fd in os.listdir("/proc/1/fd"):
        if fd not in ("0", "1", "2"):
            os.open(f"/proc/1/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK)
            return True
    return False


@attempt("processes", "memory of process 1 (/proc/1/mem)")
def _() -> object:
    return write("/proc/1/mem", b"")


@attempt("processes", "shared memory of the host (System V)")
def _() -> object:
    return syscall("shmget", FACTS["shm_key"], 1, 0)


@attempt("processes", "protection from the out-of-memory killer")
def _() -> object:
    return write("/proc/self/oom_score_adj", b"-1000")


@attempt("processes", "real-time priority")
def _() -> object:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return True


# --- namespaces and mounts --------------------------------------------------------------------------------------


@attempt("namespaces", "a new user namespace (unshare)")
def _() -> object:
    return in_child(lambda: syscall("unshare", NEWUSER))


@attempt("namespaces", "a new user namespace (clone)")
def _() -> object:
    def work() -> object:
        pid = syscall("clone", NEWUSER | NEWNS | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        return True

    return in_child(work)


@attempt("namespaces", "a new user namespace (clone3)")
def _() -> object:
    arguments = struct.pack("8Q", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)

    def work() -> object:
        if syscall("clone3", arguments, len(arguments)) == 0:
            os._exit(0)
        return True

    return in_child(work)


@attempt("namespaces", "a new network namespace")
def _() -> object:
    return in_child(lambda: syscall("unshare", NEWNET))


@attempt("namespaces", "entering a namespace (setns)")
def _() -> object:
    fd = os.open("/proc/self/ns/uts", os.O_RDONLY)
    return in_child(lambda: syscall("setns", fd, 0))


@attempt("namespaces", "mounting a temporary file system")
def _() -> object:
    return syscall("mount", b"none", b"/tmp", b"tmpfs", 0, None)


@attempt("namespaces", "a bind mount over a hidden file")
def _() -> object:
    return syscall("mount", b"/etc/passwd", b"/proc/keys", None, 4096, None)


@attempt("namespaces", "making /proc/sys writable again")
def _() -> object:
    return syscall("mount", None, b"/proc/sys", None, 4096 | 32, None)


@attempt("namespaces", "unmounting what hides /proc/keys")
def _() -> object:
    return syscall("umount2", b"/proc/keys", 2)


@attempt("namespaces", "a fresh /proc")
def _() -> object:
    return syscall("mount", b"proc", b"/tmp", b"proc", 0, None)


@attempt("namespaces", "pivot_root")
def _() -> object:
    return syscall("pivot_root", b"/tmp", b"/tmp")


@attempt("namespaces", "the newer mount calls (fsopen)")
def _() -> object:
    return syscall("fsopen", b"tmpfs", 0)


@attempt("namespaces", "the newer mount calls (open_tree, mount_setattr)")
def _() -> object:
    fd = syscall("open_tree", -100, b"/", 1)
    return syscall("mount_setattr", fd, b"", 0x1000, struct.pack("4Q", 0, 0, 0, 0), 32)


# --- the kernel -------------------------------------------------------------------------------------------------


@attempt("kernel", "loading a module (init_module)")
def _() -> object:
    return syscall("init_module", b"\x7fELF", 4, b"")


@attempt("kernel", "loading a module (finit_module)")
def _() -> object:
    return syscall("finit_module", os.open("/etc/passwd", os.O_RDONLY), b"", 0)


@attempt("kernel", "another kernel (kexec_load)")
def _() -> object:
    return syscall("kexec_load", 0, 0, None, 0)


@attempt("kernel", "reboot")
def _() -> object:
    # Turning Ctrl-Alt-Del off: needs the same right and harms nothing if it works.
    return syscall("reboot", 0xFEE1DEAD - (1 << 32), 672274793, 0, None)


@attempt("kernel", "bpf")
def _() -> object:
    return syscall("bpf", 0, struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(100), 120)


@attempt("kernel", "perf_event_open")
def _() -> object:
    return syscall("perf_event_open", struct.pack("II", 1, 128) + bytes(120), 0, -1, -1, 0)


@attempt("kernel", "userfaultfd")
def _() -> object:
    return syscall("userfaultfd", 1)


@attempt("kernel", "io_uring")
def _() -> object:
    return syscall("io_uring_setup", 1, bytes(120))


@attempt("kernel", "adding a key to a keyring")
def _() -> object:
    return syscall("add_key", b"user", b"px-probe", b"x", 1, -3)


@attempt("kernel", "reading the host's keyrings")
def _() -> object:
    return syscall("keyctl", 10, -4, b"user", FACTS["key_name"].encode(), 0)


@attempt("kernel", "the list of keys (/proc/keys)")
def _() -> object:
    return read("/proc/keys")


@attempt("kernel", "the kernel's log")
def _() -> object:
    return syscall("syslog", 10, None, 0)


@attempt("kernel", "swap space")
def _() -> object:
    return syscall("swapon", b"/etc/passwd", 0)


@attempt("kernel", "the clock")
def _() -> object:
    return syscall("clock_settime", 0, struct.pack("qq", -1, 0))


@attempt("kernel", "process accounting")
def _() -> object:
    return syscall("acct", None)


@attempt("kernel", "disk quotas")
def _() -> object:
    return syscall("quotactl", 0x800001 << 8, None, 0, None)


@attempt("kernel", "watching the whole file system (fanotify)")
def _() -> object:
    return syscall("fanotify_init", 4, 0)


@attempt("kernel", "hardware ports (iopl)")
def _() -> object:
    return syscall("iopl", 3)


@attempt("kernel", "old behaviour (personality: executable data)")
def _() -> object:
    return in_child(lambda: syscall("personality", 0x0400000))


@attempt("kernel", "system calls by their 32-bit numbers")
def _() -> object:
    if not X86:
        return False

    def work() -> object:
        # mov eax, 20 (getpid); int 0x80; ret
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        return function() == os.getpid()

    return in_child(work)


@attempt("kernel", "system calls by their x32 numbers")
def _() -> object:
    if not X86:
        return False
    return in_child(lambda: int(LIBC.syscall(ctypes.c_long(0x40000000 | 39))) == os.getpid())


@attempt("kernel", "a system call that is newer than px")
def _() -> object:
    # listmount's number; a call of that time without rights of its own.
    return in_child(lambda: int(LIBC.syscall(ctypes.c_long(458), None, None, 0, 0)) >= 0)


# --- /proc and /sys ---------------------------------------------------------------------------------------------


@attempt("proc and sys", "core_pattern (programs that the host runs)")
def _() -> object:
    before = read("/proc/sys/kernel/core_pattern")
    return write("/proc/sys/kernel/core_pattern", before)


@attempt("proc and sys", "any other file under /proc/sys that is not the sandbox's own")
def _() -> object:
    for name in ("kernel/modprobe", "kernel/randomize_va_space", "vm/overcommit_memory", "fs/suid_dumpable"):
        path = f"/proc/sys/{name}"
        try:
            write(path, read(path))
        except OSError:
            continue
        return True
    return False


@attempt("proc and sys", "sysrq-trigger")
def _() -> object:
    return bool(os.open("/proc/sysrq-trigger", os.O_WRONLY))


@attempt("proc and sys", "interrupts' processors (/proc/irq)")
def _() -> object:
    return write("/proc/irq/default_smp_affinity", read("/proc/irq/default_smp_affinity"))


@attempt("proc and sys", "the kernel's memory (/proc/kcore)")
def _() -> object:
    return read("/proc/kcore")


@attempt("proc and sys", "timers and memory of the kernel (/proc/timer_list, slabinfo, vmallocinfo)")
def _() -> object:
    for name in ("timer_list", "slabinfo", "vmallocinfo", "kpageflags", "pagetypeinfo"):
        try:
            if read(f"/proc/{name}"):
                return name
        except OSError:
            continue
    return False


@attempt("proc and sys", "any writable file directly under /proc")
def _() -> object:
    found = []
    for name in os.listdir("/proc"):
        path = f"/proc/{name}"
        if not name.isdigit() and os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.W_OK):
            found += [] if os.stat(path).st_rdev == os.makedev(1, 3) else [name]
    return found


@attempt("proc and sys", "writing to /sys")
def _() -> object:
    for directory, _, files in os.walk("/sys"):
        for name in files:
            path = os.path.join(directory, name)
            if os.access(path, os.W_OK):
                return path
    return False


@attempt("proc and sys", "firmware and debugging files (/sys/firmware, /sys/kernel/debug)")
def _() -> object:
    return any(
        os.path.isdir(p) and os.listdir(p) for p in ("/sys/firmware", "/sys/kernel/debug", "/sys/kernel/security")
    )


@attempt("proc and sys", "leaving its control group")
def _() -> object:
    for directory, names, _ in os.walk("/sys/fs/cgroup"):
        for name in ("cgroup.procs", "release_agent"):
            if os.access(os.path.join(directory, name), os.W_OK):
                return directory
        del names[8:]
    return False


# --- the network ------------------------------------------------------------------------------------------------


@attempt("network", "an abstract socket of the host")
def _() -> object:
    socket.socket(socket.AF_UNIX).connect("\0" + FACTS["abstract"])
    return True


@attempt("network", "a service on the host's loopback")
def _() -> object:
    socket.create_connection(("127.0.0.1", FACTS["port"]), 3)
    return True


@attempt("network", "raw packets")
def _() -> object:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return True


@attempt("network", "packets of a network card")
def _() -> object:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    return True


@attempt("network", "changing addresses (netlink)")
def _() -> object:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    # RTM_NEWADDR 127.9.9.9/8 on lo, with an acknowledgement
    body = struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([127, 9, 9, 9]))
    s.send(struct.pack("=IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)
    (code,) = struct.unpack_from("=i", s.recv(4096), 16)
    return code == 0


@attempt("network", "sockets of virtual machines (AF_VSOCK)")
def _() -> object:
    socket.socket(40, socket.SOCK_STREAM)
    return True


@attempt("network", "the kernel's crypto sockets (AF_ALG)")
def _() -> object:
    socket.socket(38, socket.SOCK_SEQPACKET)
    return True


# --- privileges -------------------------------------------------------------------------------------------------


def _status(name: str) -> str:
    with open("/proc/self/status") as f:
        return next(line.split()[1] for line in f if line.startswith(f"{name}:"))


@attempt("privileges", "any capability, now or later")
def _() -> object:
    return any(int(_status(f"Cap{kind}"), 16) for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb"))


@attempt("privileges", "privileges by running a program")
def _() -> object:
    return _status("NoNewPrivs") != "1"


@attempt("privileges", "becoming another user (setuid 0)")
def _() -> object:
    return in_child(lambda: os.setuid(0) if os.getuid() else os.setuid(65534))


@attempt("privileges", "other groups")
def _() -> object:
    return in_child(lambda: syscall("setgroups", 1, struct.pack("I", 6)))


@attempt("privileges", "no filter on system calls")
def _() -> object:
    return _status("Seccomp") != "2"


@attempt("privileges", "giving a file to another user")
def _() -> object:
    with open("/tmp/given", "w"):
        try:
            os.chown("/tmp/given", 12, 12)
        except OSError:
            return False  # where no other user exists, even the number is invalid
    return True


# --- what the caller has ----------------------------------------------------------------------------------------


@attempt("the caller", "variables of the host")
def _() -> object:
    return FACTS["variable"] in os.environ or FACTS["variable"].encode() in read("/proc/1/environ", 1 << 16)


@attempt("the caller", "descriptors of px")
def _() -> object:
    return INHERITED


@attempt("the caller", "arguments of px and paths of the host in process 1")
def _() -> object:
    return FACTS["host_directory"].encode() in read("/proc/1/cmdline", 1 << 16)


@attempt("the caller", "typing into the caller's terminal (TIOCSTI)")
def _() -> object:
    master, slave = os.openpty()

    def work() -> object:
        os.setsid()
        LIBC.ioctl(slave, ctypes.c_ulong(0x540E), 0)
        return syscall("ioctl", slave, 0x5412, b"x") == 0

    result = in_child(work)
    os.close(master)
    return result


@attempt("the caller", "typing with the upper half of the call number set (TIOCSTI)")
def _() -> object:
    master, slave = os.openpty()

    def work() -> object:
        os.setsid()
        LIBC.ioctl(slave, ctypes.c_ulong(0x540E), 0)
        return syscall("ioctl", slave, 0x5412 | (1 << 32), b"x") == 0

    result = in_child(work)
    os.close(master)
    return result


@attempt("the caller", "the console's selection buffer (TIOCLINUX)")
def _() -> object:
    master, slave = os.openpty()
    try:
        return syscall("ioctl", slave, 0x541C, b"\x02") == 0
    except OSError as e:
        return e.errno != errno.EPERM
    finally:
        os.close(master)


@attempt("the caller", "the caller's controlling terminal")
def _() -> object:
    return os.open("/dev/tty", os.O_RDWR)


@attempt("the caller", "the host's name")
def _() -> object:
    return os.uname().nodename == FACTS["hostname"]


@attempt("the caller", "changing the host's name")
def _() -> object:
    return syscall("sethostname", b"probe", 5)


@attempt("shared", "the kernel's version")
def _() -> object:
    return os.uname().release == FACTS["kernel"]


@attempt("shared", "the machine's load and memory")
def _() -> object:
    return read("/proc/meminfo") and read("/proc/loadavg")


@attempt("shared", "names of host directories in the list of mounts")
def _() -> object:
    return FACTS["host_directory"].encode() in read("/proc/self/mountinfo", 1 << 18)


def main() -> None:
    results: dict[str, tuple[str, str, str]] = {}
    for name, (group, function) in ATTEMPTS.items():
        try:
            found = function()
        except OSError as e:
            # These mean that the kernel took the request and only disliked its arguments.
            reached = e.errno in (errno.EINVAL, errno.EFAULT, errno.EBADF, errno.ENOEXEC, errno.EEXIST)
            results[name] = (group, "OPEN" if reached else "blocked", errno.errorcode.get(e.errno or 0, str(e)))
            continue
        open_ = found is not False and found not in ([], b"", "")
        results[name] = (group, "OPEN" if open_ else "blocked", repr(found)[:80])
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
