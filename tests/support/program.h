/*
 * program.h: the programs that were built, run as a user runs them. Where they are is in
 * $SPIKEWATCH_BUILD, which make check sets; without it the tests that need them say so and pass.
 */
#ifndef SPIKEWATCH_TESTS_PROGRAM_H
#define SPIKEWATCH_TESTS_PROGRAM_H

#include "scene.h"
#include "skip.h"

#include <grp.h>

#define PROGRAM_ARGUMENTS 24

struct program {
	pid_t pid;
	char err[160]; /* file with what it says to standard error */
};

/* The path of a program; false: there is none, which is said. */
static inline bool program_find(const char *name, char ret[512])
{
	const char *build = getenv("SPIKEWATCH_BUILD");

	snprintf(ret, 512, "%s/%s", build ? build : "", name);
	if (build && access(ret, X_OK) == 0)
		return true;
	return skip_because("%s was not found below $SPIKEWATCH_BUILD", name);
}

/*
 * Starts a program whose arguments end with NULL. out: descriptor of its standard output, stays the
 * caller's; -1: /dev/null. uid: 0: as ourselves, else as that user (we are root).
 */
static inline struct program program_start(const char *const *arguments, const char *directory, int out, uid_t uid)
{
	struct program program;

	snprintf(program.err, sizeof(program.err), "%s/stderr", directory);
	unlink(program.err);
	program.pid = fork();
	ck_assert_int_ge(program.pid, 0);
	if (program.pid > 0)
		return program;

	int err = open(program.err, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	unsetenv("JOURNAL_STREAM");
	unsetenv("NOTIFY_SOCKET");
	dup2(null, STDIN_FILENO);
	dup2(out < 0 ? null : out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	if (uid && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0))
		_exit(125);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing the user has cleared it */
	execv(arguments[0], (char *const *)(uintptr_t)arguments);
	_exit(126);
}

/*
 * Whether a daemon watches its one target. It says so when it starts; if its first scan takes more than five seconds, as
 * on a machine on which a hundred others wait for a CPU, it starts without it, and names it when it is found.
 */
static inline bool program_watches_one(const struct program *program)
{
	return scene_says(program->err, "watching 1 targets") ||
	       (scene_says(program->err, "watching 0 targets") && scene_says(program->err, " found: a "));
}

/* Waits until it has ended: its exit code, or 128 + the signal. */
static inline int program_wait(const struct program *program)
{
	int status = 0;
	pid_t ended = 0;

	scene_wait_for((ended = waitpid(program->pid, &status, WNOHANG)) != 0);
	ck_assert_int_eq(ended, program->pid);

	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define PROGRAM_COMMANDS_MAX 32

/* The names of the commands of spikewatch, as its --help lists them; how many there are. */
static inline size_t program_commands(const char *spikewatch, char ret[PROGRAM_COMMANDS_MAX][16])
{
	char line[600];
	size_t count = 0;
	bool listed = false;

	snprintf(line, sizeof(line), "%s --help", spikewatch);
	FILE *help = popen(line, "r");
	ck_assert_ptr_nonnull(help);
	while (fgets(line, sizeof(line), help)) {
		if (listed && *line == '\n')
			break;
		if (listed && count < PROGRAM_COMMANDS_MAX)
			ck_assert_int_eq(sscanf(line, "%15s", ret[count++]), 1);
		listed |= strcmp(line, "Commands:\n") == 0;
	}
	pclose(help);
	ck_assert_uint_gt(count, 0);

	return count;
}

/* Runs it to its end. */
static inline int program_run(const char *const *arguments, const char *directory)
{
	struct program program = program_start(arguments, directory, -1, 0);

	return program_wait(&program);
}

/* Whether the program that ran last in this directory said so. */
static inline void program_said(const char *directory, const char *part)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/stderr", directory);
	char *text = scene_read(path);
	ck_assert_msg(text && strstr(text, part), "expected \"%s\", it said: %s", part, text ? text : "nothing");
	free(text);
}

#endif
