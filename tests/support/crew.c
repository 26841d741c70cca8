/*
 * crew.c: see crew.h.
 *
 * A member is a child that runs one suite and leaves its numbers in memory shared with us and its
 * words in a file without a name. What the tests say while they run is kept apart from what Check
 * says of them at the end, because Check's line of totals is ours to make. Nothing is merged that
 * was printed: the totals come from Check's results.
 *
 * Rejected: one runner with threads (Check is not made for them); make -j over suites (a program
 * per suite to link, and no totals).
 */
#include "crew.h"

#include "lib/base/base.h"
#include "skip.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define CREW_NS_PER_S 1000000000LL

/* More suites than these that fail are no accident of what ran beside them. */
#define CREW_UNSTEADY_MAX 3

/* What a member leaves. The parent reads it after its end. */
struct crew_found {
	int run;
	int failures;
	int errors;
	int skipped;
	bool complete;
};

struct crew_member {
	const struct crew_suite *suite;
	struct crew_found *found;
	pid_t pid;  /* 0: not started, or ended */
	int said;   /* file with what its tests said */
	int judged; /* file with what Check says at the end */
	long long start_ns;
	long failed_from, failed_to; /* where that is in crew->failed */
	bool again;                  /* it failed beside others, and has been run alone */
};

struct crew {
	struct crew_member *members;
	size_t count;
	int running;
	struct crew_found sum;
	FILE *failed; /* what Check says of those that failed: all of it is in failed_text after fflush */
	char *failed_text;
	size_t failed_length;
	FILE *unsteady; /* what failed beside others and not alone, in unsteady_text */
	char *unsteady_text;
	size_t unsteady_length;
	int unsteady_count;
	FILE *skipped; /* the tests that could not run here, with their reasons, in skipped_text */
	char *skipped_text;
	size_t skipped_length;
};

static long long crew_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);

	return now.tv_sec * CREW_NS_PER_S + now.tv_nsec;
}

static void crew_count(SRunner *runner, struct crew_found *found)
{
	int failed = srunner_ntests_failed(runner);
	TestResult **results = srunner_failures(runner);

	for (int i = 0; i < failed; i++)
		*(tr_rtype(results[i]) == CK_FAILURE ? &found->failures : &found->errors) += 1;
	free(results);
	found->run = srunner_ntests_run(runner);
	found->complete = true;
}

static pid_t crew_self; /* in a member: its own */

static void crew_child_forked(void)
{
	if (getppid() == crew_self)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/*
 * When we are killed, so are the members, and the tests that they run. Not by SIGTERM: Check's
 * handler of it sends it on to its own group, which it is in itself, for ever.
 */
static void crew_die_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	crew_self = getpid();
	pthread_atfork(NULL, NULL, crew_child_forked);
}

/* In the child. */
_Noreturn static void crew_work(struct crew *crew, struct crew_member *member)
{
	crew_die_with_parent();
	for (size_t i = 0; i < crew->count; i++)
		if (crew->members[i].said >= 0 && &crew->members[i] != member) {
			close(crew->members[i].said);
			close(crew->members[i].judged);
		}
	dup2(member->said, STDOUT_FILENO);
	dup2(member->said, STDERR_FILENO);

	SRunner *runner = srunner_create(member->suite->make());

	srunner_run_all(runner, CK_SILENT);
	crew_count(runner, member->found);
	fflush(stdout);
	dup2(member->judged, STDOUT_FILENO);
	srunner_print(runner, CK_ENV);
	fflush(stdout);
	srunner_free(runner);
	_exit(0);
}

static int crew_start(struct crew *crew, struct crew_member *member)
{
	member->said = memfd_create("said", MFD_CLOEXEC);
	member->judged = memfd_create("judged", MFD_CLOEXEC);
	if (member->said < 0 || member->judged < 0)
		return -errno;

	member->start_ns = crew_now();
	member->pid = fork();
	if (member->pid < 0)
		return -errno;
	if (member->pid == 0)
		crew_work(crew, member);

	crew->running++;

	return 0;
}

/* Moves the line of a skipped test to the list of them. */
static void crew_skip(struct crew *crew, struct crew_member *member, const char *line)
{
	if (!member->again)
		fprintf(crew->skipped, "  %s: %s", member->suite->name, line + strlen(SKIP_MARK));
	member->found->skipped++;
	member->found->run--;
}

/*
 * Copies a file to `out`, without its first line if that is asked for and without the lines of
 * skipped tests; then it is closed.
 */
static void crew_tell(struct crew *crew, struct crew_member *member, int *fd, bool without_first, FILE *out)
{
	FILE *file = fdopen(*fd, "r");
	char *line = NULL;
	size_t size = 0;

	rewind(file);
	if (without_first)
		(void)!getline(&line, &size, file);
	while (getline(&line, &size, file) > 0)
		if (strncmp(line, SKIP_MARK, strlen(SKIP_MARK)) == 0)
			crew_skip(crew, member, line);
		else
			fputs(line, out);
	free(line);
	fclose(file);
	*fd = -1;
}

/* Takes in a member that has ended. */
static void crew_take(struct crew *crew, struct crew_member *member, int status, const struct rusage *used)
{
	struct crew_found *found = member->found;
	double wall_s = (double)(crew_now() - member->start_ns) / (double)CREW_NS_PER_S;
	double cpu_s = (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
		       (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;

	printf("%-24s %4d checks  %6.1f s  CPU %6.1f s\n", member->suite->name, found->run, wall_s, cpu_s);
	crew_tell(crew, member, &member->said, false, stdout);

	member->failed_from = ftell(crew->failed);
	crew_tell(crew, member, &member->judged, true, crew->failed);
	if (!found->complete || status != 0) {
		fprintf(crew->failed, "%s: the suite did not come to its end: %s %d\n", member->suite->name,
			WIFSIGNALED(status) ? "signal" : "exit code",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		found->run++;
		found->errors++;
	}
	fflush(crew->failed);
	member->failed_to = ftell(crew->failed);
	fputs(crew->failed_text + member->failed_from, stdout);
	fflush(stdout);

	crew->sum.run += found->run;
	crew->sum.failures += found->failures;
	crew->sum.errors += found->errors;
	crew->sum.skipped += found->skipped;
	member->pid = 0;
	crew->running--;
}

static int crew_wait(struct crew *crew)
{
	int status;
	struct rusage used;
	pid_t ended = wait4(-1, &status, 0, &used);

	if (ended < 0)
		return errno == EINTR ? 0 : -errno;
	for (size_t i = 0; i < crew->count; i++)
		if (crew->members[i].pid == ended)
			crew_take(crew, &crew->members[i], status, &used);

	return 0;
}

/* Those that take long, the others, those that are alone. */
static int crew_turn(const struct crew_suite *suite)
{
	return suite->alone ? 2 : suite->early ? 0 : 1;
}

static int crew_go(struct crew *crew, int jobs)
{
	for (int turn = 0; turn <= 2; turn++)
		for (size_t i = 0; i < crew->count; i++) {
			if (crew_turn(crew->members[i].suite) != turn)
				continue;

			int room = turn == 2 ? 1 : jobs, r = 0;

			while (r == 0 && crew->running >= room)
				r = crew_wait(crew);
			if (r == 0)
				r = crew_start(crew, &crew->members[i]);
			if (r < 0)
				return r;
		}

	int r = 0;

	while (r == 0 && crew->running > 0)
		r = crew_wait(crew);

	return r;
}

/* Failed checks, no crash and no hang, beside other suites. */
static bool crew_may_be_unsteady(const struct crew_member *member)
{
	return !member->suite->alone && member->found->complete && member->found->failures > 0 &&
	       member->found->errors == 0;
}

/* Runs the suite once more, with nothing beside it. What it finds now counts. */
static int crew_again(struct crew *crew, struct crew_member *member)
{
	struct crew_found before = *member->found;
	long from = member->failed_from, to = member->failed_to;
	int r;

	printf("%s failed beside other suites: once more, alone\n", member->suite->name);
	*member->found = (struct crew_found){ 0 };
	member->again = true;
	r = crew_start(crew, member);
	while (r == 0 && crew->running > 0)
		r = crew_wait(crew);
	if (r < 0)
		return r;
	crew->sum.run -= before.run;
	crew->sum.skipped -= before.skipped;
	crew->sum.failures -= before.failures;
	if (member->found->failures + member->found->errors == 0) {
		crew->unsteady_count += before.failures;
		fwrite(crew->failed_text + from, 1, (size_t)(to - from), crew->unsteady);
	}
	return 0;
}

/*
 * A test that fails once beside others and not alone is a fault too, but not one that says whether the
 * change is good: it is told at the end, and does not fail the run.
 */
static int crew_look_again(struct crew *crew, int jobs)
{
	size_t may_be = 0;
	int r = 0;

	for (size_t i = 0; i < crew->count; i++)
		may_be += crew_may_be_unsteady(&crew->members[i]);
	if (jobs == 1 || may_be > CREW_UNSTEADY_MAX)
		return 0;
	for (size_t i = 0; r == 0 && i < crew->count; i++)
		if (crew_may_be_unsteady(&crew->members[i]))
			r = crew_again(crew, &crew->members[i]);
	return r;
}

int crew_run(const struct crew_suite *suites, size_t count, int jobs)
{
	AUTO_FREE struct crew_member *members = calloc(count, sizeof(*members));
	struct crew_found *found =
		mmap(NULL, count * sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (!members || found == MAP_FAILED)
		return -ENOMEM;

	struct crew crew = { .members = members, .count = count };

	crew.failed = open_memstream(&crew.failed_text, &crew.failed_length);
	crew.skipped = open_memstream(&crew.skipped_text, &crew.skipped_length);
	crew.unsteady = open_memstream(&crew.unsteady_text, &crew.unsteady_length);
	if (!crew.failed || !crew.unsteady || !crew.skipped)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		members[i] = (struct crew_member){ .suite = &suites[i], .found = &found[i], .said = -1, .judged = -1 };

	int r = crew_go(&crew, jobs > 0 ? jobs : 1), failed;

	if (r == 0)
		r = crew_look_again(&crew, jobs);
	failed = crew.sum.failures + crew.sum.errors;
	fclose(crew.failed);
	fclose(crew.unsteady);
	fclose(crew.skipped);
	if (crew.sum.skipped)
		printf("Skipped, because they cannot run here: %d\n%s", crew.sum.skipped, crew.skipped_text);
	free(crew.skipped_text);
	if (crew.unsteady_count)
		printf("Unsteady, failed beside other suites and not alone: %d\n%s", crew.unsteady_count,
		       crew.unsteady_text);
	free(crew.unsteady_text);
	printf("%d%%: Checks: %d, Failures: %d, Errors: %d\n",
	       crew.sum.run ? 100 * (crew.sum.run - failed) / crew.sum.run : 0, crew.sum.run, crew.sum.failures,
	       crew.sum.errors);
	for (size_t i = 0; i < count; i++)
		fwrite(crew.failed_text + members[i].failed_from, 1,
		       (size_t)(members[i].failed_to - members[i].failed_from), stdout);
	free(crew.failed_text);
	munmap(found, count * sizeof(*found));

	return r < 0 ? r : failed;
}
