/*
 * symbolizer.c: one child for one incident. It gets descriptors by their numbers here: nothing is renumbered but 0, 1 and 2. Between fork and exec
 * only what is safe there is called.
 */
#include "symbolizer.h"

#include "realclock.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const struct symbolizer_output symbolizer_outputs[SYMBOLIZER_OUTPUTS] = {
	{ "stacks", "cpu.pb.gz", "--pprof" },
	{ "stacks-folded", "cpu.folded", "--folded" },
	{ "functions", "functions.tsv", "--functions" },
	{ "memory-stacks", "memory.pb.gz", "--memory-pprof" },
	{ "memory-folded", "memory.folded", "--memory-folded" },
	{ "memory-functions", "memory-functions.tsv", "--memory-functions" },
};

/* What the child says, and complains. */
#define SAID_MAX 4096u

/* How often the starter may do something else meanwhile. */
#define LOOK_MS 100

struct child {
	const struct symbolizer_job *job;
	int speaking;
	char *words[SYMBOLIZER_OUTPUTS + 6];
	char text[SYMBOLIZER_OUTPUTS + 2][64], focus[16 + 12 * SYMBOLIZER_FOCUS_MAX];
};

/* "--focus=1,2,3" */
static char *name_focus(const struct symbolizer_job *job, char *buf, size_t cap)
{
	size_t len = (size_t)snprintf(buf, cap, "--focus");

	for (size_t i = 0; i < job->focus_count && len < cap; i++)
		len += (size_t)snprintf(buf + len, cap - len, "%c%d", i ? ',' : '=', job->focus[i]);

	return buf;
}

static void name_words(struct child *child)
{
	static char raw[] = "--raw";
	const struct symbolizer_job *job = child->job;
	int count = 0, texts = 0;

	child->words[count++] = (char *)(uintptr_t)job->program;
	for (; texts < SYMBOLIZER_OUTPUTS; texts++)
		snprintf(child->text[texts], sizeof child->text[0], "%s=%d", symbolizer_outputs[texts].option,
			 job->outputs[texts]);
	snprintf(child->text[texts++], sizeof child->text[0], "--spike-from=%ju", (uintmax_t)job->spike_from_ns);
	snprintf(child->text[texts++], sizeof child->text[0], "--wall=%llu", SYMBOLIZER_PATIENCE_NS / NS_PER_S);
	for (int i = 0; i < texts; i++)
		child->words[count++] = child->text[i];
	if (job->focus_count)
		child->words[count++] = name_focus(job, child->focus, sizeof child->focus);
	if (job->raw)
		child->words[count++] = raw;
	child->words[count] = NULL;
}

static void keep_open(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

/* Where memory runs out it is this process that goes, and not the recorder, whose protection it has inherited. */
static void offer_for_oom(void)
{
	AUTO_CLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "1000", 4) < 0)
		return; /* then it is as it was */
}

/* In the child, where little is allowed. */
_Noreturn static void become(const struct child *child)
{
	static char path[] = "PATH=/usr/bin:/bin";
	char *const environment[] = { path, NULL };
	const struct stackparcel *parcel = child->job->parcel;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Else the service's capabilities go along, and it forbids to give them up (capset(2)): the symboliser would refuse to work. */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	setpgid(0, 0);
	offer_for_oom();
	dup2(child->job->stackfile, STDIN_FILENO);
	dup2(child->speaking, STDOUT_FILENO);
	dup2(child->speaking, STDERR_FILENO);
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		keep_open(child->job->outputs[i]);
	for (size_t i = 0; i < parcel->count; i++)
		keep_open(parcel->entries[i].binary.fd);
	execve(child->words[0], child->words, environment);
	_exit(127);
}

enum end { BY_ITSELF, TOO_LATE, STOPPED };

static bool go_on(const struct symbolizer_job *job)
{
	return job->waiting == NULL || job->waiting->go_on(job->waiting->ctx);
}

/* Reads until its end or the deadline. What it says is kept as far as there is room. */
static enum end listen_to(const struct symbolizer_job *job, int fd, mono_t deadline, char *said, size_t cap)
{
	enum end end = BY_ITSELF;
	struct clock clock = realclock();
	size_t len = 0;
	char scrap[512];

	while (end == BY_ITSELF) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&wait, 1, LOOK_MS) <= 0) {
			if (mono_diff(deadline, clock_mono(&clock)) <= 0)
				end = TOO_LATE;
			else if (!go_on(job))
				end = STOPPED;
			continue;
		}
		got = len + 1 < cap ? read(fd, said + len, cap - 1 - len) : read(fd, scrap, sizeof scrap);
		if (got == 0 || (got < 0 && errno != EINTR))
			break;
		if (got > 0 && len + 1 < cap)
			len += (size_t)got;
	}
	said[len] = '\0';

	return end;
}

/* 0; -errno; positive: how it ended, as wait(2) says it. said: what it said. */
static int run(struct child *child, char *said, enum end *ret_end)
{
	struct clock clock = realclock();
	AUTO_CLOSE int listening = -1, speaking = -1;
	int pipe[2], status = 0;
	pid_t pid;

	if (lseek(child->job->stackfile, 0, SEEK_SET) < 0 || pipe2(pipe, O_CLOEXEC) < 0)
		return -errno;
	listening = pipe[0];
	speaking = pipe[1];
	child->speaking = speaking;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(child);

	close(speaking);
	speaking = -1;
	*ret_end = listen_to(child->job, listening, mono_add(clock_mono(&clock), SYMBOLIZER_PATIENCE_NS + 2 * NS_PER_S),
			     said, SAID_MAX);
	kill(-pid, SIGKILL); /* it has said its last word, or had its time */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;

	return status;
}

static void say_end(int status, enum end end, const char *said, char *why, size_t cap)
{
	if (end == STOPPED)
		snprintf(why, cap, "the daemon was being stopped");
	else if (end == TOO_LATE || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		snprintf(why, cap, "the symboliser took more than %llu s", SYMBOLIZER_PATIENCE_NS / NS_PER_S);
	else if (WIFSIGNALED(status))
		snprintf(why, cap, "the symboliser was ended by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(why, cap, "the symboliser failed with %d: %.*s", WEXITSTATUS(status), (int)strcspn(said, "\n"),
			 said);
}

int symbolizer_run(const struct symbolizer_job *job, char *why, size_t cap)
{
	struct child child = { .job = job };
	char said[SAID_MAX] = "";
	enum end end = STOPPED;
	int r = 1;

	name_words(&child);
	if (go_on(job))
		r = run(&child, said, &end);
	if (r > 0)
		say_end(r, end, said, why, cap);

	return r > 0 ? 1 : r;
}

/* ---- the program ---- */

#ifndef SPIKEWATCH_LIBEXEC
#define SPIKEWATCH_LIBEXEC "/usr/libexec/spikewatch"
#endif

bool symbolizer_find(char *ret, size_t cap)
{
	char self[1024];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (len > 0) {
		self[len] = '\0';
		slash = strrchr(self, '/');
		if (slash && (size_t)snprintf(ret, cap, "%.*s/spikewatch-symbolize", (int)(slash - self), self) < cap &&
		    access(ret, X_OK) == 0)
			return true;
	}

	return (size_t)snprintf(ret, cap, "%s/spikewatch-symbolize", SPIKEWATCH_LIBEXEC) < cap &&
	       access(ret, X_OK) == 0;
}
