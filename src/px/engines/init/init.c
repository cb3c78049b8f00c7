/*
 * px-init: process 1 of a bubblewrap sandbox.
 *
 * Why it exists.  bubblewrap's own reaper is a process of the host's bwrap file, so a sandboxed process of the
 * same user can reach that file through /proc/1/exe and chmod it; it keeps every inherited descriptor open; it
 * passes on no signal; and the monitor outside dies of the Ctrl-C that was meant for the target.  px-init runs
 * as the sandbox's user, under the sandbox's seccomp filter, from a read-only mount, and does these things:
 *
 *   1. starts the target with a clean signal mask and without descriptors beyond 0, 1 and 2;
 *   2. reaps orphans, and ends with the target's exit code (128 + n for a signal), which ends the sandbox;
 *   3. passes on signals that come from outside the sandbox; those of the terminal reach the target by themselves;
 *   4. ends, and with it every process of the sandbox, when the px that started it is gone, kill -9 included:
 *      descriptor FD is one end of a pipe or socket whose other end only that px has;
 *   5. closes the host's abstract sockets, where the kernel can (Linux 6.12 and newer): they belong to the network
 *      namespace, so a sandbox that shares the host's network would reach them;
 *   6. with a "t" after FD, a SOCK_SEQPACKET socket, makes a terminal of the sandbox's own for the target, whose
 *      other side px gets, and tells px when the target stops: see px/warm/terminal.py for the other side.
 *
 * With a program to run it runs it.  Without, it serves requests that arrive on FD, a SOCK_SEQPACKET socket: see
 * px/engines/session.py for the other side.  Freestanding C without a libc: it must run in any root file system.
 *
 * Usage: px-init FD[t] [PROGRAM [ARGUMENT...]]
 *        px-init -- PROGRAM [ARGUMENT...]      the form in which podman calls its init: tied to nothing
 */
#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/signalfd.h>
#include <linux/types.h>
#include <linux/wait.h>

#define EINTR 4
#define ENOENT 2
#define EACCES 13
#define ENOTDIR 20
#define EINVAL 22
#define SIG_SETMASK 2
#define SIGKILL 9
#define SIGCHLD 17
#define SIGCONT 18
#define SI_KERNEL 0x80
#define TIOCSCTTY 0x540E
#define TIOCSPGRP 0x5410
#define TIOCSPTLCK 0x40045431
#define TIOCGPTPEER 0x5441
#define MSG_NOSIGNAL 0x4000
#define MSG_CMSG_CLOEXEC 0x40000000
#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define LANDLOCK_CREATE_RULESET 444 /* the same on every machine; older headers do not know them */
#define LANDLOCK_RESTRICT_SELF 446
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET 1

#define LONGEST_PATH 4096
#define LARGEST_COMMAND (4 << 20) /* twice what execve takes for arguments and environment */
#define MOST_ARGUMENTS 65536

enum { OP_EXEC = 1, OP_SIGNAL = 2, OP_OPEN = 3 };
enum { EVENT_REPLY = 1, EVENT_EXIT = 2, EVENT_TERMINAL = 3, EVENT_STOP = 4 };
enum { EXEC_TTY = 1 };

struct request {
	__u32 op, id;
	__s32 a, b;
	char text[LONGEST_PATH];
};
struct event {
	__u32 kind, id;
	__s32 a, b;
};
struct iov {
	void *base;
	unsigned long length;
};
struct message {
	void *name;
	__u32 name_length, pad1;
	struct iov *parts;
	unsigned long part_count;
	void *control;
	unsigned long control_length;
	__u32 flags, pad2;
};
struct rights {
	unsigned long length;
	__s32 level, type;
	__s32 fds[4];
};

#if defined(__x86_64__)
static long sys(long n, long a, long b, long c, long d, long e)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall begin\n");
#elif defined(__aarch64__)
static long sys(long n, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl begin\n");
#else
#error "px-init is written for x86_64 and aarch64"
#endif

static void leave(int code) __attribute__((noreturn));
static void leave(int code)
{
	for (;;)
		sys(__NR_exit_group, code, 0, 0, 0, 0);
}

static unsigned long length(const char *s)
{
	unsigned long n = 0;
	while (s[n])
		n++;
	return n;
}

static void say(const char *s)
{
	sys(__NR_write, 2, (long)s, length(s), 0, 0);
}

static void block_signals(int blocked)
{
	__u64 mask = blocked ? ~0UL : 0;
	sys(__NR_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof mask, 0);
}

static int starts_with(const char *s, const char *prefix)
{
	while (*prefix)
		if (*s++ != *prefix++)
			return 0;
	return 1;
}

static const char *search_path(char **envp)
{
	for (; *envp; envp++)
		if (starts_with(*envp, "PATH="))
			return *envp + 5;
	return "/usr/local/bin:/usr/bin:/bin";
}

static int has_slash(const char *s)
{
	for (; *s; s++)
		if (*s == '/')
			return 1;
	return 0;
}

/* Become argv, looked up in PATH as a shell does; the exit codes of a failure are a shell's too. */
static void become(char **argv, char **envp) __attribute__((noreturn));
static void become(char **argv, char **envp)
{
	static char candidate[LONGEST_PATH];
	const char *dirs = has_slash(argv[0]) ? 0 : search_path(envp);
	long found = dirs ? -ENOENT : sys(__NR_execve, (long)argv[0], (long)argv, (long)envp, 0, 0);
	while (dirs && *dirs) {
		unsigned long n = 0;
		for (; *dirs && *dirs != ':'; dirs++)
			if (n < LONGEST_PATH / 2)
				candidate[n++] = *dirs;
		if (*dirs == ':')
			dirs++;
		if (n == 0 || length(argv[0]) >= LONGEST_PATH / 2 - 1)
			continue;
		candidate[n++] = '/';
		for (const char *s = argv[0]; *s; s++)
			candidate[n++] = *s;
		candidate[n] = 0;
		long error = sys(__NR_execve, (long)candidate, (long)argv, (long)envp, 0, 0);
		if (error != -ENOENT && error != -ENOTDIR)
			found = error;
	}
	int missing = found == -ENOENT || found == -ENOTDIR;
	say("px: ");
	say(argv[0]);
	say(missing ? ": not found in the sandbox\n" : found == -EACCES ? ": permission denied\n" : ": cannot be executed\n");
	leave(missing ? 127 : 126);
}

static long fork_child(void)
{
	return sys(__NR_clone, SIGCHLD, 0, 0, 0, 0);
}

static void close_from(long first)
{
	sys(__NR_close_range, first, ~0U, 0, 0, 0);
}

/* --- serving a session ------------------------------------------------------------------------------------ */

static void send_event(int channel, struct event *event, int fd)
{
	struct iov part = {event, sizeof *event};
	struct rights rights = {sizeof(unsigned long) + 2 * sizeof(__s32) + sizeof(__s32), SOL_SOCKET, SCM_RIGHTS, {fd}};
	struct message m = {0, 0, 0, &part, 1, 0, 0, 0, 0};
	if (fd >= 0) {
		m.control = &rights;
		m.control_length = sizeof(unsigned long) + 2 * sizeof(__s32) + 2 * sizeof(__s32);
	}
	while (sys(__NR_sendmsg, channel, (long)&m, MSG_NOSIGNAL, 0, 0) == -EINTR)
		;
}

/* The command: "cwd\0" then argc and envc as decimal strings, then the arguments and variables, all NUL-ended. */
static char command[LARGEST_COMMAND + 1];
static char *argument[MOST_ARGUMENTS], *variable[MOST_ARGUMENTS];

static char *next(char **at, char *end)
{
	char *s = *at;
	if (s >= end) {
		say("px: a command that was cut short\n");
		leave(126);
	}
	*at = s + length(s) + 1;
	return s;
}

static unsigned number(const char *s)
{
	unsigned n = 0;
	for (; *s >= '0' && *s <= '9'; s++)
		n = n * 10 + (*s - '0');
	return n;
}

static void read_command(int fd, char **cwd)
{
	long size = 0, got;
	while ((got = sys(__NR_pread64, fd, (long)(command + size), LARGEST_COMMAND - size, size, 0)) > 0)
		size += got;
	char *at = command, *end = command + size;
	*cwd = next(&at, end);
	unsigned arguments = number(next(&at, end)), variables = number(next(&at, end));
	if (arguments == 0 || arguments >= MOST_ARGUMENTS || variables >= MOST_ARGUMENTS) {
		say("px: the argument list is too long\n");
		leave(126);
	}
	for (unsigned i = 0; i < arguments; i++)
		argument[i] = next(&at, end);
	for (unsigned i = 0; i < variables; i++)
		variable[i] = next(&at, end);
}

static void start(struct request *r, __s32 *fds) __attribute__((noreturn));
static void start(struct request *r, __s32 *fds)
{
	char *cwd;
	/* The descriptors arrived at the lowest free numbers, which may be 0 to 2: move them all up first. */
	for (int i = 0; i < 4; i++)
		fds[i] = sys(__NR_fcntl, fds[i], F_DUPFD, 10, 0, 0);
	for (int i = 0; i < 3; i++)
		sys(__NR_dup3, fds[i + 1], i, 0, 0, 0);
	sys(__NR_setsid, 0, 0, 0, 0, 0);
	if (r->a & EXEC_TTY)
		sys(__NR_ioctl, 0, TIOCSCTTY, 0, 0, 0);
	read_command(fds[0], &cwd);
	close_from(3);
	if (sys(__NR_chdir, (long)cwd, 0, 0, 0, 0) < 0) {
		say("px: ");
		say(cwd);
		say(": no such directory in the sandbox\n");
		leave(126);
	}
	block_signals(0);
	become(argument, variable);
}

static void serve_one(int channel, struct request *r, __s32 *fds, int fd_count)
{
	struct event reply = {EVENT_REPLY, r->id, -EINVAL, 0};
	int opened = -1;
	if (r->op == OP_EXEC && fd_count == 4) {
		long pid = fork_child();
		if (pid == 0)
			start(r, fds);
		reply.a = pid;
	} else if (r->op == OP_SIGNAL && r->a != 0 && r->a != -1 && r->a != 1) {
		reply.a = sys(__NR_kill, r->a, r->b, 0, 0, 0);
	} else if (r->op == OP_OPEN) {
		/* Without blocking: a FIFO must not stop process 1. */
		opened = sys(__NR_openat, AT_FDCWD, (long)r->text, r->a | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, r->b, 0);
		reply.a = opened;
	}
	send_event(channel, &reply, opened);
	if (opened >= 0)
		sys(__NR_close, opened, 0, 0, 0, 0);
}

static void serve(int channel)
{
	static struct request r;
	struct rights rights = {0, 0, 0, {-1, -1, -1, -1}};
	struct iov part = {&r, sizeof r - 1};
	struct message m = {0, 0, 0, &part, 1, &rights, sizeof rights, 0, 0};
	long got = sys(__NR_recvmsg, channel, (long)&m, MSG_CMSG_CLOEXEC, 0, 0);
	if (got == 0)
		leave(128 + SIGKILL);
	if (got < (long)(sizeof r - LONGEST_PATH))
		return;
	((char *)&r)[got] = 0;
	unsigned long header = sizeof(unsigned long) + 2 * sizeof(__s32);
	int fd_count = m.control_length > header ? (int)((rights.length - header) / sizeof(__s32)) : 0;
	serve_one(channel, &r, rights.fds, fd_count);
	for (int i = 0; i < fd_count; i++)
		sys(__NR_close, rights.fds[i], 0, 0, 0, 0);
}

/* A Landlock domain that forbids nothing but abstract sockets of other domains.  No older kernel knows it: there the
 * first call fails, and everything is as it was.  bubblewrap has set no_new_privs, which the second call needs. */
static void close_abstract_sockets(void)
{
	struct {
		__u64 files, ports, scoped;
	} rules = {0, 0, LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET};
	long fd = sys(LANDLOCK_CREATE_RULESET, (long)&rules, sizeof rules, 0, 0, 0);
	if (fd < 0)
		return;
	sys(LANDLOCK_RESTRICT_SELF, fd, 0, 0, 0, 0);
	sys(__NR_close, fd, 0, 0, 0, 0);
}

/* --- a terminal for the target ---------------------------------------------------------------------------- */

static int terminal = -1;

/* Make a terminal, become the leader of its session, and give px its other side.  The target is then a process group
 * of that session, not its leader: the kernel stops no group whose parents are all in other sessions, and Ctrl-Z
 * would do nothing. */
static void open_terminal(int channel)
{
	struct event made = {EVENT_TERMINAL, 0, 0, 0};
	int unlocked = 0;
	int other = sys(__NR_openat, AT_FDCWD, (long)"/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0, 0);
	sys(__NR_ioctl, other, TIOCSPTLCK, (long)&unlocked, 0, 0);
	terminal = sys(__NR_ioctl, other, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC, 0, 0);
	if (terminal < 0) {
		say("px: the sandbox's terminal could not be made\n");
		leave(126);
	}
	sys(__NR_setsid, 0, 0, 0, 0, 0); /* bubblewrap has done it, if it was told to */
	sys(__NR_ioctl, terminal, TIOCSCTTY, 0, 0, 0);
	send_event(channel, &made, other);
	sys(__NR_close, other, 0, 0, 0, 0);
	for (int i = 0; i < 3; i++)
		sys(__NR_dup3, terminal, i, 0, 0, 0);
}

/* px says F when the target is to be in the foreground, and B when it is not, because px itself is not. */
static char next_word(int channel)
{
	char word;
	long got;
	while ((got = sys(__NR_read, channel, (long)&word, 1, 0, 0)) == -EINTR)
		;
	if (got <= 0)
		leave(128 + SIGKILL);
	return word;
}

/* Process 1 is the group in front while the target is not: then the target stops if it reads. */
static void set_foreground(char word, long target)
{
	int group = word == 'F' ? (int)target : 1;
	sys(__NR_ioctl, terminal, TIOCSPGRP, (long)&group, 0, 0);
}

/* --- process 1 -------------------------------------------------------------------------------------------- */

static int exit_code(int status)
{
	int signal = status & 0x7f;
	return signal ? 128 + signal : (status >> 8) & 0xff;
}

static void reap(int channel, long target)
{
	int status;
	long pid;
	while ((pid = sys(__NR_wait4, -1, (long)&status, WNOHANG | (terminal < 0 ? 0 : WUNTRACED), 0, 0)) > 0) {
		int stopped = (status & 0xff) == 0x7f;
		struct event stop = {EVENT_STOP, 0, (status >> 8) & 0xff, 0};
		if (stopped && pid == target)
			send_event(channel, &stop, -1);
		if (stopped)
			continue;
		if (target && pid == target)
			leave(exit_code(status));
		struct event ended = {EVENT_EXIT, 0, (__s32)pid, exit_code(status)};
		if (!target)
			send_event(channel, &ended, -1);
	}
}

static void on_signal(int signals, int channel, long target)
{
	struct signalfd_siginfo info;
	if (sys(__NR_read, signals, (long)&info, sizeof info, 0, 0) != sizeof info)
		return;
	if (info.ssi_signo == SIGCHLD)
		reap(channel, target);
	else if (target && info.ssi_code != SI_KERNEL && info.ssi_pid == 0) /* from outside: it has no pid in here */
		sys(__NR_kill, target, info.ssi_signo, 0, 0, 0);
}

static long run_target(char **argv, char **envp, char word)
{
	long pid = fork_child();
	if (pid < 0) {
		say("px: the sandbox's first process could not be started (is --pids too low?)\n");
		leave(126);
	}
	if (pid == 0 && word) {
		sys(__NR_setpgid, 0, 0, 0, 0, 0);
		set_foreground(word, sys(__NR_getpid, 0, 0, 0, 0, 0));
	}
	if (pid == 0) {
		close_from(3);
		block_signals(0);
		become(argv, envp);
	}
	return pid;
}

void begin(long *stack) __attribute__((noreturn));
void begin(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **envp = argv + argc + 1;
	if (argc < 2)
		leave(125);
	int channel = argv[1][0] == '-' ? -1 : (int)number(argv[1]);
	__u64 all = ~0UL;
	block_signals(1);
	/* Nobody in the sandbox may look into process 1: its descriptors are what ties the sandbox to px. */
	sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	close_abstract_sockets();
	if (channel > 3)
		sys(__NR_close_range, 3, channel - 1, 0, 0, 0);
	close_from(channel < 0 ? 3 : channel + 1);
	sys(__NR_fcntl, channel, F_SETFD, FD_CLOEXEC, 0, 0);
	sys(__NR_write, channel, (long)"R", 1, 0, 0);
	if (argv[1][length(argv[1]) - 1] == 't')
		open_terminal(channel);
	char word = terminal < 0 ? 0 : next_word(channel);
	long target = argc > 2 ? run_target(argv + 2, envp, word) : 0;
	/* Whoever reads the target's output must see its end when the target closes it. */
	sys(__NR_close_range, 0, 2, 0, 0, 0);
	int signals = sys(__NR_signalfd4, -1, (long)&all, sizeof all, O_CLOEXEC, 0);
	for (;;) {
		struct pollfd fds[2] = {{signals, POLLIN, 0}, {channel, target && terminal < 0 ? 0 : POLLIN, 0}};
		if (sys(__NR_ppoll, (long)fds, 2, 0, 0, 0) < 0)
			continue;
		if (fds[0].revents & POLLIN)
			on_signal(signals, channel, target);
		if (fds[1].revents & POLLIN && target) {
			set_foreground(next_word(channel), target);
			sys(__NR_kill, -target, SIGCONT, 0, 0, 0);
		} else if (fds[1].revents & POLLIN)
			serve(channel);
		else if (fds[1].revents & (POLLERR | POLLHUP))
			leave(128 + SIGKILL);
	}
}
