/*
 * check_sandbox.c: what can still be done in there, and what cannot. Each test is a process of its
 * own, which does not come back.
 */
#include "daemon/engine/base/sandbox.c"
#include "lib/base/base.h"
#include "skip.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct sandbox_limits limits = { .address_space_bytes = 1ull << 30,
					      .cpu_seconds = 1,
					      .wall_seconds = 100 };

/* What a process does in the sandbox: its exit code, or 128 + the signal. 99: it did not get in. */
static int inside(enum sandbox_refusal refusal, const struct sandbox_limits *with, int (*act)(void))
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(sandbox_enter(with, refusal) < 0 ? 99 : act());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);

	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int file = -1;

/* Numbers of what went wrong. */
static int does_what_is_needed(void)
{
	char byte;
	struct stat st;
	char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return 1;
	memory[5] = 1;
	if (fstat(file, &st) < 0 || lseek(file, 0, SEEK_SET) < 0 || read(file, &byte, 1) != 1 ||
	    pread(file, &byte, 1, 0) != 1)
		return 2;
	if (write(file, &byte, 1) != 1)
		return 3;
	if (mmap(NULL, 1, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED)
		return 4;
	free(malloc(1 << 22));
	if (munmap(memory, 1 << 20) < 0)
		return 5;

	return 0;
}

static bool refused(long result)
{
	return result == -1 && errno == EPERM;
}

static int cannot_do_harm(void)
{
	char path[] = "/dev/null";

	if (!refused(open(path, O_RDONLY)) || !refused(openat(AT_FDCWD, path, O_RDONLY)))
		return 1;
	if (!refused(socket(AF_INET, SOCK_STREAM, 0)) || !refused(socket(AF_UNIX, SOCK_STREAM, 0)))
		return 2;
	if (!refused(fork()) || !refused(execl("/bin/true", "true", NULL)))
		return 3;
	if (!refused(kill(getppid(), 0)) || !refused(syscall(SYS_tgkill, getpid(), getpid(), 0)))
		return 4;
	if (!refused((long)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)))
		return 5;
	if (!refused(unlink("/proc/nonexistent")) || !refused(mkdir("/tmp/nonexistent", 0700)))
		return 6;
	if (!refused(fcntl(file, F_SETFL, O_APPEND)) || !refused(fcntl(file, F_DUPFD, 0)) || !refused(dup(file)))
		return 7;
	if (!refused(syscall(SYS_ptrace, 0, 0, 0, 0)) || !refused(prctl(PR_SET_DUMPABLE, 1)))
		return 8;
	if (!refused(syscall(SYS_seccomp, 0, 0, 0)) || !refused(syscall(SYS_memfd_create, "x", 0)))
		return 9;
	void *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return refused(mprotect(data, 4096, PROT_READ | PROT_EXEC)) && fcntl(file, F_GETFD) >= 0 ? 0 : 10;
}

static int opens(void)
{
	open("/dev/null", O_RDONLY);

	return 0;
}

static int spins(void)
{
	volatile int forever = 1;

	while (forever)
		;

	return 0;
}

static int waits(void)
{
	char byte;

	return (int)read(file, &byte, 1);
}

static int eats(void)
{
	size_t piece = 64u << 20;

	for (int i = 0; i < 64; i++)
		if (malloc(piece) == NULL)
			return 7;

	return 0;
}

START_TEST(reading_writing_and_memory_are_left)
{
	file = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_eq(write(file, "abc", 3), 3);
	ck_assert_int_eq(inside(SANDBOX_REFUSES, &limits, does_what_is_needed), 0);
	ck_assert_int_eq(inside(SANDBOX_KILLS, &limits, does_what_is_needed), 0);
	close(file);
}
END_TEST

START_TEST(nothing_can_be_opened_started_signalled_or_executed)
{
	file = memfd_create("file", MFD_CLOEXEC);
	ck_assert_int_eq(inside(SANDBOX_REFUSES, &limits, cannot_do_harm), 0);
	ck_assert_int_eq(inside(SANDBOX_KILLS, &limits, opens), 128 + SIGSYS);
	close(file);
}
END_TEST

START_TEST(time_and_memory_are_limited)
{
	int pipes[2];
	struct sandbox_limits brief = limits;

	sigset_t all;

	/* As a daemon has it, which hears of signals by other means. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	signal(SIGXCPU, SIG_IGN);
	ck_assert_int_eq(inside(SANDBOX_REFUSES, &limits, spins), 128 + SIGXCPU);
	ck_assert_int_eq(pipe(pipes), 0);
	file = pipes[0];
	brief.wall_seconds = 1;
	ck_assert_int_eq(inside(SANDBOX_REFUSES, &brief, waits), 128 + SIGALRM);
	close(pipes[0]);
	close(pipes[1]);
#ifndef __SANITIZE_ADDRESS__
	ck_assert_int_eq(inside(SANDBOX_REFUSES, &limits, eats), 7);
#else
	(void)eats;
#endif
}
END_TEST

START_TEST(privileges_are_gone)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
		struct __user_cap_data_struct left[_LINUX_CAPABILITY_U32S_3] = { 0 };
		bool root = geteuid() == 0;

		if (sandbox_drop_privileges(true) < 0 || syscall(SYS_capget, &header, left) < 0)
			_exit(1);
		if (left[0].effective | left[0].permitted | left[1].effective | left[1].permitted)
			_exit(2);
		if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_DUMPABLE) != 0)
			_exit(3);
		_exit(root && getgroups(0, NULL) != 0 ? 4 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

static int asked = -1;

static int asks(void)
{
	static const uint8_t there[] = { 0xab, 0x01 }, missing[] = { 0xab, 0x02 }, directory[] = { 0xab, 0x03 };
	char text[8] = { 0 };
	int fd = debug_files_ask(asked, there, 2);

	if (fd < 0 || read(fd, text, sizeof(text)) != 5 || memcmp(text, "debug", 5) != 0)
		return 1;
	if (debug_files_ask(asked, missing, 2) >= 0 || debug_files_ask(asked, directory, 2) >= 0)
		return 2;

	return debug_files_ask(asked, there, 1) < 0 && debug_files_ask(asked, there, 2) >= 0 ? 0 : 3;
}

START_TEST(debug_files_come_in_by_their_build_id_and_nothing_else_does)
{
	char dir[] = "/tmp/spikewatch-debug-XXXXXX", path[128];
	int nothing;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "mkdir -p %s/ab/03.debug && printf debug > %s/ab/01.debug", dir, dir);
	ck_assert_int_eq(system(path), 0);
	ck_assert_int_eq(debug_files_start(dir, &asked), 0);
	ck_assert_int_eq(inside(SANDBOX_KILLS, &limits, asks), 0);
	close(asked);
	snprintf(path, sizeof(path), "rm -r %s", dir);
	ck_assert_int_eq(system(path), 0);
	ck_assert_int_eq(debug_files_start(dir, &nothing), -ENOENT);
}
END_TEST

/* ---- the recorder ---- */

static void *adds(void *argument)
{
	++*(int *)argument;

	return NULL;
}

/* Refused in a thread that was there before, too. Numbers of what went wrong. */
static int recorder_is_refused(pid_t other)
{
	char byte;
	struct iovec here = { &byte, 1 };
	struct rlimit limit;
	pthread_t thread;
	int count = 0;

	if (!refused(syscall(SYS_process_vm_writev, other, &here, 1, &here, 1, 0)) ||
	    !refused(syscall(SYS_process_vm_readv, other, &here, 1, &here, 1, 0)))
		return 1;
	if (!refused(syscall(SYS_ptrace, 16, other, 0, 0)) || !refused(syscall(SYS_pidfd_getfd, 0, 0, 0)))
		return 2;
	if (!refused(kill(other, SIGTERM)) || !refused(kill(-1, SIGTERM)) || !refused(kill(0, SIGTERM)) ||
	    !refused(syscall(SYS_tkill, other, SIGTERM)) || !refused(syscall(SYS_tgkill, other, other, SIGTERM)) ||
	    !refused(syscall(SYS_pidfd_send_signal, 0, SIGTERM, NULL, 0)))
		return 3;
	if (!refused(fork()) || !refused(execl("/bin/true", "true", NULL)) ||
	    !refused(syscall(SYS_execveat, 0, "", 0, 0, 0)))
		return 4;
	if (!refused(syscall(SYS_unshare, 0)) || !refused(syscall(SYS_setns, 0, 0)) ||
	    !refused(syscall(SYS_mount, 0, 0, 0, 0, 0)) || !refused(syscall(SYS_chroot, "/")))
		return 5;
	if (!refused(syscall(SYS_setuid, 0)) || !refused(syscall(SYS_setgid, 0)) ||
	    !refused(syscall(SYS_fchown, 0, 0, 0)) || !refused(syscall(SYS_keyctl, 0, 0, 0, 0, 0)) ||
	    !refused(syscall(SYS_clock_settime, 0, NULL)))
		return 6;
	if (!refused(syscall(SYS_prlimit64, other, RLIMIT_CORE, NULL, &limit)) ||
	    !refused(syscall(SYS_io_uring_setup, 1, NULL)) || !refused(syscall(SYS_userfaultfd, 0)) ||
	    !refused(socket(AF_PACKET, SOCK_RAW, 0)))
		return 7;
	/* What it does itself. */
	if (kill(getpid(), 0) < 0 || kill(other, 0) < 0 || getrlimit(RLIMIT_CORE, &limit) < 0 ||
	    pthread_create(&thread, NULL, adds, &count) != 0 || pthread_join(thread, NULL) != 0 || count != 1)
		return 8;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_SECCOMP) != 2)
		return 9;
	return syscall(500000) == -1 && errno == ENOSYS ? 0 : 10;
}

static sem_t go_on;
static atomic_int result_there;

static void *tries_later(void *argument)
{
	sem_wait(&go_on);
	atomic_store(&result_there, recorder_is_refused(*(pid_t *)argument));

	return NULL;
}

START_TEST(the_recorder_can_neither_reach_into_nor_signal_nor_start_processes)
{
	int status;
	pid_t recorder, other = fork();

#if SANITIZED
	kill(other, SIGKILL);
	SKIP_TEST("a sanitizer starts and traces processes itself");
#endif
	if (other == 0) {
		pause();
		_exit(0);
	}
	recorder = fork();
	if (recorder == 0) {
		pthread_t before;
		int r;

		sem_init(&go_on, 0, 0);
		if (pthread_create(&before, NULL, tries_later, &other) != 0 || sandbox_recorder(0) < 0)
			_exit(99);
		r = recorder_is_refused(other);
		sem_post(&go_on);
		pthread_join(before, NULL);
		_exit(r ? r : 20 * atomic_load(&result_there));
	}
	ck_assert_int_eq(waitpid(recorder, &status, 0), recorder);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(waitpid(other, &status, WNOHANG), 0); /* it lives */
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
}
END_TEST

START_TEST(the_child_of_a_trap_can_be_signalled)
{
	int status;
	pid_t recorder, other = fork();

	if (other == 0) {
		pause();
		_exit(0);
	}
	recorder = fork();
	if (recorder == 0)
		_exit(sandbox_recorder(other) < 0 ? 99 : kill(other, SIGKILL) < 0);
	ck_assert_int_eq(waitpid(recorder, &status, 0), recorder);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(waitpid(other, &status, 0), other);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

Suite *sandbox_suite(void);
Suite *sandbox_suite(void)
{
	Suite *suite = suite_create("sandbox");
	TCase *core = tcase_create("core");

	tcase_add_test(core, reading_writing_and_memory_are_left);
	tcase_add_test(core, nothing_can_be_opened_started_signalled_or_executed);
	tcase_add_test(core, time_and_memory_are_limited);
	tcase_add_test(core, privileges_are_gone);
	tcase_add_test(core, debug_files_come_in_by_their_build_id_and_nothing_else_does);
	tcase_add_test(core, the_recorder_can_neither_reach_into_nor_signal_nor_start_processes);
	tcase_add_test(core, the_child_of_a_trap_can_be_signalled);
	suite_add_tcase(suite, core);

	return suite;
}
