/*
 * children.h: processes to be watched by a test. A loop over a pipe, so that a test knows what its
 * process has done and never has to guess by sleeping. They die with the test's process.
 */
#ifndef SPIKEWATCH_TESTS_CHILDREN_H
#define SPIKEWATCH_TESTS_CHILDREN_H

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A process that sleeps and does, one after the other, what child_do asks for. */
struct child {
	pid_t pid;
	int commands; /* to it */
	int done;     /* from it */
};

#define TOUCHED_BYTES (8u << 20)
#define BURNT_NS 20000000L
#define HUNDREDS_NS 300000L

static inline void burn_for(long ns)
{
	struct timespec ts;
	long begin = -1;

	do {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
		long now = ts.tv_sec * 1000000000L + ts.tv_nsec;
		begin = begin < 0 ? now : begin;
		if (now - begin >= ns)
			return;
	} while (1);
}

static inline void burn(void)
{
	burn_for(BURNT_NS);
}

static inline void obey(char command)
{
	char *memory;

	switch (command) {
	case 'b':
		burn();
		break;
	case 'h':
		burn_for(HUNDREDS_NS);
		break;
	case 'n':
		break;
	case 'm':
		memory = malloc(TOUCHED_BYTES);
		if (memory)
			explicit_bzero(memory, TOUCHED_BYTES); /* which cannot be optimised away */
		break;
	case 'f':
		for (int i = 0; i < 10; i++)
			(void)!open("/dev/null", O_RDONLY);
		break;
	default:
		_exit(0);
	}
}

static inline void serve(int commands, int done)
{
	char command;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(commands, &command, 1) == 1) {
		obey(command);
		if (write(done, &command, 1) != 1)
			break;
	}
	_exit(0);
}

static inline char state_of(pid_t pid)
{
	char path[64];
	char buf[512] = "";

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(read(fd, buf, sizeof(buf) - 1), 0);
	close(fd);

	return strrchr(buf, ')')[2];
}

static inline long cpu_of(pid_t pid)
{
	clockid_t clock;
	struct timespec ts;

	ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &ts), 0);
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static inline void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/*
 * Off the CPU, in a system call: one that is asleep by its state may have been put off the CPU before it got there,
 * for as long as others have it, and has some way to go then. "running": it is not there yet; the number of the call.
 */
static inline bool is_asleep(pid_t pid)
{
	char path[64], text[16] = "";
	int fd;

	if (state_of(pid) != 'S')
		return false;
	snprintf(path, sizeof(path), "/proc/%d/syscall", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true; /* a kernel that does not say it */

	ssize_t len = read(fd, text, sizeof(text) - 1);

	close(fd);
	return len <= 0 || text[0] != 'r';
}

/* And its clock the same for a while. */
static inline void child_settle(const struct child *child)
{
	long before;

	do {
		while (!is_asleep(child->pid))
			nap();
		before = cpu_of(child->pid);
		nap();
		nap();
	} while (cpu_of(child->pid) != before || !is_asleep(child->pid));
}

static inline struct child child_start(void)
{
	int commands[2];
	int done[2];

	ck_assert_int_eq(pipe2(commands, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(done, O_CLOEXEC), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(commands[1]);
		close(done[0]);
		serve(commands[0], done[1]);
	}
	close(commands[0]);
	close(done[1]);

	struct child child = { .pid = pid, .commands = commands[1], .done = done[0] };
	child_settle(&child);
	return child;
}

/*
 * 'b': burn 20 ms of CPU; 'h': 0.3 ms; 'n': hardly any; 'm': touch 8 MiB more; 'f': open 10
 * descriptors; 'x': exit. Waits until it is done, but for 'x'.
 */
static inline void child_do(const struct child *child, char command)
{
	char answer = 0;

	ck_assert_int_eq(write(child->commands, &command, 1), 1);
	if (command == 'x')
		return;
	ck_assert_int_eq(read(child->done, &answer, 1), 1);
	ck_assert_int_eq(answer, command);
	child_settle(child);
}

/* Makes it exit and waits until it is a zombie. */
static inline void child_exit(const struct child *child)
{
	siginfo_t info;

	child_do(child, 'x');
	ck_assert_int_eq(waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOWAIT), 0);
}

/* Ends and reaps it, zombie or not. */
static inline void child_reap(struct child *child)
{
	kill(child->pid, SIGKILL);
	ck_assert_int_eq(waitpid(child->pid, NULL, 0), child->pid);
	close(child->commands);
	close(child->done);
}

#endif
