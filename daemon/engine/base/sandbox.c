/*
 * sandbox.c: limits, then privileges, then a seccomp(2) filter, a classic BPF program made from a
 * table here. Rejected: libseccomp, which three lists of numbers do not need.
 *
 *   call of another architecture ── killed
 *   sandbox_enter, sandbox_recorder: in the table, its condition true ── allowed; anything else ── refused
 *   sandbox_command: in the table ── refused; anything else ── allowed
 *
 * sandbox_enter: what is allowed reads and writes descriptors that are open and gets memory. Of the
 * calls that take a path there is only newfstatat, by which the C library implements fstat(3): it
 * can tell whether a file exists, not what is in it. Messages go through sockets that are connected
 * already. Nothing can open, connect, start, signal or trace. The order matters: the filter forbids
 * what comes before it.
 *
 * Debug files: a socket pair that keeps message boundaries. A request is the bytes of a build id,
 * the answer a byte with, perhaps, a descriptor (SCM_RIGHTS). Only the hexadecimal digits of a
 * build id get into the path, so a request cannot reach any file but the world-readable ones in the
 * directory.
 */
#include "daemon/engine/base/sandbox.h"

#include "lib/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* no_new_privs, capabilities, groups, tracing. 0; -errno; -EPERM: capabilities are left. */
static int sandbox_drop_privileges(bool groups)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 }, left[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	/* May fail: without CAP_SETGID or CAP_SETPCAP nothing can be gained by these. */
	if (groups)
		(void)setgroups(0, NULL);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; capability++)
		;
	(void)syscall(SYS_capset, &header, none);
	header.version = _LINUX_CAPABILITY_VERSION_3;
	if (syscall(SYS_capget, &header, left) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(left); i++)
		if (left[i].effective != 0 || left[i].permitted != 0)
			return -EPERM;
	return 0;
}

/* ---- debug files ---- */

/* sha1: 20 bytes, which is what all linkers write unless told otherwise; others up to this. */
#define BUILD_ID_MAX 32

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

/* "ab/cdef.debug" */
static void debug_path(const uint8_t *build_id, size_t len, char ret[2 * BUILD_ID_MAX + sizeof("/.debug")])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*ret++ = digits[build_id[i] >> 4];
		*ret++ = digits[build_id[i] & 15];
		if (i == 0)
			*ret++ = '/';
	}
	memcpy(ret, ".debug", sizeof(".debug"));
}

static int open_debug_file(int directory, const uint8_t *build_id, size_t len)
{
	char path[2 * BUILD_ID_MAX + sizeof("/.debug")];
	struct stat st;

	if (len < 2 || len > BUILD_ID_MAX)
		return -1;
	debug_path(build_id, len, path);

	AUTO_CLOSE int fd = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? TAKE_FD(fd) : -1;
}

static bool debug_files_answer(int to, int fd)
{
	char found = fd >= 0;
	union control control = { .room = { 0 } };
	struct iovec byte = { .iov_base = &found, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1 };

	if (found) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}

	return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

/* Answers until the socket is closed. Never returns. */
static void serve_debug_files(int directory, int socket)
{
	uint8_t build_id[BUILD_ID_MAX];
	ssize_t len;

	while ((len = recv(socket, build_id, sizeof(build_id), 0)) > 0) {
		AUTO_CLOSE int fd = open_debug_file(directory, build_id, (size_t)len);

		if (!debug_files_answer(socket, fd))
			break;
	}
	_exit(0);
}

/* The two descriptors become 0 and 1, and all others are closed. */
static void close_all_but(int *directory, int *socket)
{
	int high_directory = fcntl(*directory, F_DUPFD, 2), high_socket = fcntl(*socket, F_DUPFD, 2);

	if (high_directory < 0 || high_socket < 0 || dup2(high_directory, 0) < 0 || dup2(high_socket, 1) < 0 ||
	    syscall(SYS_close_range, 2, ~0u, 0) < 0)
		_exit(1);
	*directory = 0;
	*socket = 1;
}

int debug_files_start(const char *directory, int *ret_fd)
{
	AUTO_CLOSE int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int pair[2];

	if (dir < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;

	AUTO_CLOSE int ours = pair[0];
	AUTO_CLOSE int theirs = pair[1];
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close_all_but(&dir, &theirs);
		if (sandbox_drop_privileges(true) < 0)
			_exit(1);
		serve_debug_files(dir, theirs);
	}
	*ret_fd = TAKE_FD(ours);
	return 0;
}

int debug_files_ask(int fd, const uint8_t *build_id, size_t len)
{
	uint8_t question[BUILD_ID_MAX];
	struct iovec bytes = { .iov_base = question, .iov_len = len };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	union control control = { .room = { 0 } };
	int found;

	if (len > sizeof(question))
		return -1;
	memcpy(question, build_id, len);
	if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)len)
		return -1;
	bytes.iov_len = 1;
	message.msg_control = control.room;
	message.msg_controllen = sizeof(control.room);
	if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1 || message.msg_controllen < CMSG_LEN(sizeof(int)) ||
	    control.head.cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&found, CMSG_DATA(&control.head), sizeof(found));
	return found;
}

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/*
 * What the kernel calls this machine. 0: the filter was not made for it, and the sandbox cannot be
 * entered.
 */
#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#define NUMBERS_END 0x40000000u /* those of x32 begin here */
#elif defined(__aarch64__)
#define ARCHITECTURE (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? AUDIT_ARCH_AARCH64 : 0)
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
#define ARCHITECTURE AUDIT_ARCH_PPC64LE
#elif defined(__s390x__)
#define ARCHITECTURE AUDIT_ARCH_S390X
#else
#define ARCHITECTURE 0
#endif
#ifndef NUMBERS_END
#define NUMBERS_END UINT32_MAX
#endif

/* A call, or one with an argument of which the kernel reads 32 bits. */
struct call {
	unsigned number;
	enum { ALWAYS, WITH, WITHOUT, EQUAL } when; /* a bit of value is set in the argument; none is; they are equal */
	unsigned argument;
	uint32_t value;
	uint32_t action; /* 0: that of the table */
};

/* clang-format off */
#define CALL(name) { .number = SYS_##name }
#define NOT_THERE (SECCOMP_RET_ERRNO | ENOSYS)
#define REFUSED (SECCOMP_RET_ERRNO | EPERM)

/* Of sandbox_enter: what works on open descriptors and memory. */
static const struct call reads_and_writes[] = {
	CALL(read), CALL(pread64), CALL(readv), CALL(write), CALL(writev), CALL(lseek), CALL(fstat), CALL(close),
	CALL(recvmsg), CALL(sendmsg),
	CALL(munmap), CALL(mremap), CALL(madvise), CALL(brk),
	CALL(futex), CALL(sched_yield), CALL(clock_gettime), CALL(getrandom),
	CALL(exit), CALL(exit_group), CALL(rt_sigreturn), CALL(restart_syscall),
#ifdef SYS_newfstatat
	CALL(newfstatat),
#endif
#if SANITIZED
	CALL(getpid), CALL(gettid), CALL(sigaltstack), CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(prlimit64),
#endif
	{ SYS_mmap, WITHOUT, 2, PROT_EXEC, 0 },
	{ SYS_mprotect, WITHOUT, 2, PROT_EXEC, 0 },
	{ SYS_fcntl, EQUAL, 1, F_GETFD, 0 },
	{ SYS_fcntl, EQUAL, 1, F_GETFL, 0 },
};

/*
 * Of sandbox_command: what looks into other processes, changes the system, or reaches parts of the
 * kernel that a command which looks at something does not need.
 */
static const struct call not_for_commands[] = {
	CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(kcmp),
	CALL(perf_event_open), CALL(bpf), CALL(userfaultfd),
	CALL(unshare), CALL(setns), CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot),
	CALL(init_module), CALL(finit_module), CALL(delete_module), CALL(kexec_load), CALL(reboot),
	CALL(swapon), CALL(swapoff), CALL(acct), CALL(quotactl), CALL(syslog),
	CALL(settimeofday), CALL(clock_settime), CALL(adjtimex), CALL(clock_adjtime),
	CALL(sethostname), CALL(setdomainname),
	CALL(add_key), CALL(request_key), CALL(keyctl),
	CALL(open_by_handle_at), CALL(name_to_handle_at), CALL(fanotify_init),
	CALL(personality), CALL(mbind), CALL(migrate_pages), CALL(move_pages),
	{ SYS_clone, WITH, 0, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC, 0 },
#ifdef SYS_clone3
	{ .number = SYS_clone3, .action = NOT_THERE }, /* its flags are in memory: the C library uses clone(2) then */
#endif
#ifdef SYS_kexec_file_load
	CALL(kexec_file_load),
#endif
#ifdef SYS_io_uring_setup
	CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register),
#endif
#ifdef SYS_open_tree
	CALL(open_tree), CALL(move_mount), CALL(fsopen), CALL(fsconfig), CALL(fsmount), CALL(fspick),
#endif
#ifdef SYS_pidfd_getfd
	CALL(pidfd_getfd),
#endif
#ifdef SYS_process_madvise
	CALL(process_madvise),
#endif
#ifdef SYS_iopl
	CALL(iopl), CALL(ioperm),
#endif
};

/*
 * Of sandbox_recorder: what the recorder and its libraries do, and no more. Nothing that starts a
 * program or a process, reaches into another one (but for /proc, perf events and BPF), changes
 * rights, mounts, owners or clocks. The often called ones first, for kernels before 5.11, which try
 * one after the other. Its signals and limits, which depend on its pid, are added.
 */
static const struct call recorders[] = {
	CALL(clock_gettime), CALL(read), CALL(pread64), CALL(openat), CALL(close), CALL(write), CALL(futex),
	CALL(clock_nanosleep), CALL(nanosleep), CALL(getdents64), CALL(ppoll), CALL(fstat), CALL(statx),
#ifdef SYS_newfstatat
	CALL(newfstatat),
#endif
#ifdef SYS_poll
	CALL(poll), CALL(select), CALL(epoll_wait), CALL(epoll_create),
	CALL(open), CALL(stat), CALL(lstat), CALL(access),
	CALL(readlink), CALL(unlink), CALL(rename), CALL(mkdir), CALL(rmdir), CALL(chmod), CALL(dup2), CALL(pipe),
	CALL(time), CALL(alarm), CALL(getpgrp), CALL(eventfd), CALL(inotify_init),
#endif
#ifdef SYS_arch_prctl
	CALL(arch_prctl),
#endif
	/* Files. */
	CALL(readv), CALL(writev), CALL(pwrite64), CALL(preadv),
	CALL(pwritev), CALL(preadv2), CALL(pwritev2), CALL(lseek),
	CALL(fcntl), CALL(flock), CALL(ioctl), CALL(dup), CALL(dup3), CALL(pipe2), CALL(fsync), CALL(fdatasync),
	CALL(sync_file_range), CALL(ftruncate), CALL(fallocate), CALL(fadvise64), CALL(statfs), CALL(fstatfs),
	CALL(faccessat), CALL(readlinkat), CALL(getcwd), CALL(fchdir), CALL(unlinkat), CALL(renameat2), CALL(mkdirat),
	CALL(fchmod), CALL(fchmodat), CALL(umask),
	CALL(memfd_create), CALL(sendfile), CALL(splice), CALL(copy_file_range),
	CALL(inotify_init1), CALL(inotify_add_watch), CALL(inotify_rm_watch),
#ifdef SYS_renameat
	CALL(renameat),
#endif
#ifdef SYS_openat2
	CALL(openat2), CALL(faccessat2), CALL(close_range),
#endif
	/* Waiting. */
	CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(pselect6), CALL(eventfd2), CALL(signalfd4),
	CALL(timerfd_create), CALL(timerfd_settime), CALL(timerfd_gettime), CALL(timer_create), CALL(timer_settime),
	CALL(timer_gettime), CALL(timer_delete), CALL(setitimer), CALL(getitimer), CALL(wait4), CALL(waitid),
	CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(rt_sigtimedwait), CALL(rt_sigpending),
	CALL(rt_sigsuspend), CALL(sigaltstack), CALL(restart_syscall), CALL(pause),
	/* Memory. Libraries are loaded while it runs (dlopen(3)), so that executable pages may be mapped. */
	CALL(mmap), CALL(munmap), CALL(mremap), CALL(madvise), CALL(brk), CALL(mlock), CALL(mlock2), CALL(munlock),
	CALL(mlockall), CALL(munlockall), CALL(msync), CALL(mincore), CALL(membarrier),
	{ SYS_mprotect, WITHOUT, 2, PROT_EXEC, 0 },
	/* Itself and its threads. */
	{ SYS_clone, WITH, 0, CLONE_THREAD, 0 },
#ifdef SYS_clone3
	{ .number = SYS_clone3, .action = NOT_THERE }, /* its flags are in memory: the C library uses clone(2) then */
#endif
	CALL(set_robust_list), CALL(get_robust_list), CALL(set_tid_address), CALL(exit), CALL(exit_group), CALL(prctl),
#ifdef SYS_rseq
	CALL(rseq),
#endif
	CALL(sched_yield), CALL(sched_setaffinity), CALL(sched_getaffinity), CALL(sched_setattr), CALL(sched_getattr),
	CALL(sched_setscheduler), CALL(sched_getscheduler), CALL(sched_setparam), CALL(sched_getparam),
	CALL(sched_get_priority_max), CALL(sched_get_priority_min), CALL(getpriority), CALL(setpriority), CALL(getcpu),
	CALL(getpid), CALL(gettid), CALL(getppid), CALL(getpgid),
	CALL(getsid), CALL(getuid), CALL(geteuid), CALL(getgid),
	CALL(getegid), CALL(getresuid), CALL(getresgid), CALL(getgroups), CALL(capget), CALL(capset), CALL(seccomp),
	CALL(getrlimit), CALL(setrlimit), CALL(getrusage), CALL(times), CALL(sysinfo), CALL(uname), CALL(getrandom),
	CALL(clock_getres), CALL(gettimeofday),
	/* Sockets of these kinds: the journal and the control socket, the kernel's events, metrics. */
	{ SYS_socket, EQUAL, 0, AF_UNIX, 0 },
	{ SYS_socket, EQUAL, 0, AF_NETLINK, 0 },
	{ SYS_socket, EQUAL, 0, AF_INET, 0 },
	{ SYS_socket, EQUAL, 0, AF_INET6, 0 },
	CALL(socketpair), CALL(bind), CALL(listen), CALL(accept), CALL(accept4), CALL(connect), CALL(shutdown),
	CALL(getsockname), CALL(getpeername), CALL(getsockopt), CALL(setsockopt), CALL(sendto), CALL(recvfrom),
	CALL(sendmsg), CALL(recvmsg), CALL(sendmmsg), CALL(recvmmsg),
	/* What it looks by. */
	CALL(perf_event_open), CALL(bpf),
#ifdef SYS_pidfd_open
	CALL(pidfd_open),
#endif
};
/* clang-format on */

/* Of a seccomp(2) filter here; the kernel takes BPF_MAXINSNS. */
#define STATEMENTS_MAX 1024

struct program {
	struct sock_filter statements[STATEMENTS_MAX];
	unsigned short count;
};

static void add_statement(struct program *program, struct sock_filter statement)
{
	if (program->count < STATEMENTS_MAX)
		program->statements[program->count++] = statement;
}

static void add_load(struct program *program, size_t offset)
{
	add_statement(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void add_return(struct program *program, uint32_t action)
{
	add_statement(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Goes on with the next statement if what was loaded compares so, else behind `otherwise` more. */
static void add_test(struct program *program, unsigned comparison, uint32_t value, uint8_t otherwise)
{
	add_statement(program,
		      (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | comparison | BPF_K), value, 0, otherwise));
}

static size_t argument_offset(unsigned index)
{
	size_t low_half = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;

	return offsetof(struct seccomp_data, args) + index * sizeof(uint64_t) + low_half;
}

/* The number of the call is loaded, before and after. */
static void add_call(struct program *program, const struct call *call, uint32_t action)
{
	if (call->when == ALWAYS) {
		add_test(program, BPF_JEQ, call->number, 1);
		add_return(program, action);
		return;
	}
	add_test(program, BPF_JEQ, call->number, call->when == WITHOUT ? 5 : 4);
	add_load(program, argument_offset(call->argument));
	add_test(program, call->when == EQUAL ? BPF_JEQ : BPF_JSET, call->value, 1);
	if (call->when == WITHOUT)
		add_statement(program, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 1));
	add_return(program, action);
	add_load(program, offsetof(struct seccomp_data, nr));
}

/*
 * Calls that the list of this filter does not know because they are newer: the C library tries, and
 * goes another way.
 */
#define NEWER_CALLS 451

/* 0; -ENOSYS: the filter was not made for this machine; -errno. flags: of seccomp(2). */
static int filter_calls(const struct call *calls, size_t count, uint32_t matched, uint32_t others, unsigned flags)
{
	struct program program = { .count = 0 };

	if (ARCHITECTURE == 0)
		return -ENOSYS;
	add_load(&program, offsetof(struct seccomp_data, arch));
	add_test(&program, BPF_JEQ, ARCHITECTURE, 1);
	add_statement(&program, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, 1));
	add_return(&program, SECCOMP_RET_KILL_PROCESS);
	add_load(&program, offsetof(struct seccomp_data, nr));
	add_test(&program, BPF_JGE, NUMBERS_END, 1);
	add_return(&program, REFUSED);
	for (size_t i = 0; i < count; i++)
		add_call(&program, &calls[i], calls[i].action ? calls[i].action : matched);
	if (others == REFUSED) {
		add_test(&program, BPF_JGE, NEWER_CALLS, 1);
		add_return(&program, NOT_THERE);
	}
	add_return(&program, others);
	if (program.count == STATEMENTS_MAX)
		return -E2BIG;

	struct sock_fprog filter = { .len = program.count, .filter = program.statements };

	/* prctl(2) where that does, which filters around this one allow more often. */
	return (flags == 0 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)
			   : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter)) < 0
		       ? -errno
		       : 0;
}

/* Never above what it is. 0 or -errno. */
static int set_limit(int what, uint64_t soft, uint64_t hard)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)what, &limit) < 0)
		return -errno;
	limit.rlim_max = hard < limit.rlim_max ? hard : limit.rlim_max;
	limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
	return setrlimit((__rlimit_resource_t)what, &limit) < 0 ? -errno : 0;
}

int sandbox_limit(const struct sandbox_limits *limits)
{
	int r = set_limit(RLIMIT_CORE, 0, 0);

	/* Both are the samplers' (sampler.c). */
	if (r == 0)
		r = set_limit(RLIMIT_RTPRIO, 0, 0);
	if (r == 0)
		r = set_limit(RLIMIT_RTTIME, RLIM_INFINITY, RLIM_INFINITY);
	if (r == 0 && limits->files > 0)
		r = set_limit(RLIMIT_NOFILE, limits->files, limits->files);
	if (r == 0 && limits->address_space_bytes > 0 && !SANITIZED)
		r = set_limit(RLIMIT_AS, limits->address_space_bytes, limits->address_space_bytes);
	/* SIGXCPU can be caught, and here it is not: a second more, and it is SIGKILL. */
	if (r == 0 && limits->cpu_seconds > 0)
		r = set_limit(RLIMIT_CPU, limits->cpu_seconds, limits->cpu_seconds + 1);
	if (r == 0 && limits->file_bytes > 0)
		r = set_limit(RLIMIT_FSIZE, limits->file_bytes, limits->file_bytes);
	return r;
}

/* Limits kill by signals, which the parent may have left blocked or ignored. */
static int let_signals_kill(void)
{
	static const int signals[] = { SIGALRM, SIGXCPU, SIGXFSZ, SIGSYS };
	sigset_t none;

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (signal(signals[i], SIG_DFL) == SIG_ERR)
			return -errno;
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

int sandbox_enter(const struct sandbox_limits *limits, enum sandbox_refusal refusal)
{
	int r = let_signals_kill();

	if (r == 0)
		r = sandbox_limit(limits);
	if (r == 0)
		r = set_limit(RLIMIT_NPROC, 0, 0);
	if (r == 0)
		r = sandbox_drop_privileges(true);
	if (r < 0)
		return r;
	alarm(limits->wall_seconds);
	return filter_calls(reads_and_writes, ARRAY_LEN(reads_and_writes), SECCOMP_RET_ALLOW,
			    refusal == SANDBOX_KILLS ? SECCOMP_RET_KILL_PROCESS : REFUSED, 0);
}

int sandbox_command(const struct sandbox_limits *limits)
{
	int r = sandbox_limit(limits);

	if (r == 0)
		r = sandbox_drop_privileges(false);
	return r < 0 ? r : filter_calls(not_for_commands, ARRAY_LEN(not_for_commands), REFUSED, SECCOMP_RET_ALLOW, 0);
}

int sandbox_recorder(pid_t child)
{
	const uint32_t self = (uint32_t)getpid();
	const struct call own[] = {
		{ SYS_kill, EQUAL, 0, self, 0 },
		{ SYS_tgkill, EQUAL, 0, self, 0 },
		{ SYS_rt_tgsigqueueinfo, EQUAL, 0, self, 0 },
		{ SYS_prlimit64, EQUAL, 0, 0, 0 },
		{ SYS_prlimit64, EQUAL, 0, self, 0 },
		{ SYS_kill, EQUAL, 1, 0, 0 }, /* whether there is such a process */
		{ SYS_kill, EQUAL, 0, child > 0 ? (uint32_t)child : self, 0 },
	};
	struct call calls[ARRAY_LEN(recorders) + ARRAY_LEN(own)];

	/* Sanitizers start processes, and trace them, when they look for leaks. */
	if (SANITIZED)
		return 0;
	memcpy(calls, recorders, sizeof recorders);
	memcpy(calls + ARRAY_LEN(recorders), own, sizeof own);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return filter_calls(calls, ARRAY_LEN(calls), SECCOMP_RET_ALLOW, REFUSED, SECCOMP_FILTER_FLAG_TSYNC);
}
