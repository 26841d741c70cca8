/*
 * child.c: the child writes a byte to a socket pair when it runs, and reads one before it calls
 * execvp(3). If the parent dies or gives up, the connection ends, and the child with it. A byte
 * that arrives later says that execvp(3) failed: a successful one closes the socket.
 *
 * SIGCHLD may be ignored by our parent's choice: then the kernel would reap the child, and its end
 * and exit code would be lost. So it gets its default action, and the child the original one.
 */
#include "cli/trap/child.h"

#include "cli/base/output.h"
#include "lib/base/base.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Between two polls: a blocking wait could miss a signal that arrives just before it. */
#define NAP_NS 20000000L

/* Exit codes of a shell when there is no such command, and when it cannot be executed. */
#define NOT_FOUND 127
#define NOT_STARTED 126

/* Its later name: until execvp(3) a watcher would see ours. */
static void take_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	prctl(PR_SET_NAME, slash && slash[1] ? slash + 1 : program);
}

__attribute__((noreturn)) static void run_child(const char *who, char *const *words, int gate,
						const struct sigaction *of_children)
{
	char go;

	take_name(words[0]);
	if (write(gate, "", 1) != 1 || read(gate, &go, 1) != 1)
		_exit(NOT_FOUND);
	process_setup_undo();
	sigaction(SIGCHLD, of_children, NULL);
	execvp(words[0], words);

	int code = errno == ENOENT ? NOT_FOUND : NOT_STARTED;

	fprintf(stderr, "%s: ", who);
	output_escaped(stderr, words[0]);
	fprintf(stderr, ": %s\n", strerror(errno));
	(void)!send(gate, "", 1, MSG_NOSIGNAL);
	_exit(code);
}

int stopped_child_fork(const char *who, char *const *words, struct stopped_child *ret)
{
	struct sigaction seen = { .sa_handler = SIG_DFL }, before;
	int gate[2];
	char ready;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0)
		return -errno;
	sigaction(SIGCHLD, &seen, &before);

	pid_t pid = fork();

	if (pid == 0) {
		close(gate[1]);
		run_child(who, words, gate[0], &before);
	}
	close(gate[0]);
	if (pid < 0) {
		close(gate[1]);
		return -errno;
	}
	(void)!read(gate[1], &ready, 1); /* if it has died, waiting for it will tell */
	*ret = (struct stopped_child){ .pid = pid, .gate = gate[1] };

	return 0;
}

int stopped_child_open(struct stopped_child *child)
{
	return child->gate >= 0 && send(child->gate, "", 1, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int stopped_child_wait(struct stopped_child *child)
{
	if (child->gate >= 0)
		close(TAKE_FD(child->gate));
	for (int sent = 0, signal; child->pid;) {
		pid_t ended = waitpid(child->pid, &child->status, WNOHANG);

		if (ended != 0) {
			child->pid = 0;
			break;
		}
		signal = interruption_to_pass_on();
		if (signal && signal != sent)
			kill(child->pid, sent = signal);
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
	}
	if (WIFEXITED(child->status))
		return WEXITSTATUS(child->status);

	return 128 + WTERMSIG(child->status);
}
