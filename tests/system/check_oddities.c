/*
 * check_oddities.c: what the kernel lets people do, and the real daemon: cgroups whose names have
 * any byte but slash, NUL and newline, arguments of nearly two mebibytes, and entries that match
 * everything on the machine.
 */
#include "lib/base/json.h"
#include "live_rig.h"
#include "own_cgroups.h"

#include <glob.h>
#include <sys/mman.h>

Suite *oddities_suite(void);

static struct own_cgroups own_cgroups;

static struct live_rig rig;

static void setup(void)
{
	live_rig_setup(&rig);
}

static void teardown(void)
{
	live_rig_teardown(&rig);
}

#define ODD 11u
#define TOUCHED_BYTES (256u << 10)
#define LONGEST 255 /* bytes of a name */

static char longest[LONGEST + 1];
static const char *const odd_names[ODD] = {
	"tab\there",    "back\\slash",          "quote\"'`",       "100%s%n%", "\xff\xfe\x80", "blanks  ", "*",
	"[a-z]{0}\x7f", "\xc3\xa4\xe2\x82\xac", "esc\033[31m\001", longest,
};

static pid_t members[ODD];

static void make_own(void)
{
	memset(longest, 'x', LONGEST);
	own_cgroups_make(&own_cgroups, "odd");
}

static void remove_own(void)
{
	own_cgroups_remove(&own_cgroups);
}

static bool is_json(const char *text)
{
	static const struct json_limits limits = { .size_bytes = 64u << 20, .nodes = 8u << 20 };
	struct json_document *document = NULL;
	bool good = text && json_parse(text, strlen(text), &limits, &document, NULL) == 0;

	json_document_free(document);

	return good;
}

/* In that cgroup, with memory that is counted there. */
static pid_t start_in(const char *name)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		raise(SIGSTOP);
		mmap(NULL, TOUCHED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		for (;;)
			pause();
	}
	await_stop(pid);
	own_cgroups_join(&own_cgroups, name, pid);
	kill(pid, SIGCONT);

	return pid;
}

/* What the command says; for free(3). */
static char *said_by(const char *first, const char *second)
{
	const char *arguments[] = { rig.spikewatch, first, second, "-d", place(&rig, "incidents"), NULL };
	int out = open(place(&rig, "said"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct program program = program_start(arguments, rig.directory, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&program), 0);

	return scene_read(place(&rig, "said"));
}

static void holds_nothing_that_steers_a_terminal(char *text)
{
	ck_assert_ptr_nonnull(text);
	for (const char *at = text; *at; at++)
		ck_assert_msg(*at == '\n' || ((unsigned char)*at >= 0x20 && *at != 0x7f), "byte %#x", *at);
	free(text);
}

/* Whether the ring describes the cgroup by its very path. */
static bool is_described(const char *name)
{
	struct ring_cursor *look = NULL;
	struct ring_event event;
	char path[512];
	bool found = false;

	snprintf(path, sizeof(path), "%s/%s", own_cgroups.name, name);
	ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &look), 0);
	while (!found && ring_cursor_next(look, &event) == 0)
		found = event.type == RING_EVENT_TARGET && strcmp(event.target.cgroup, path) == 0;
	ring_cursor_free(look);

	return found;
}

/* Incidents that are whole: their names are plain, and what they say can be read. */
static size_t incidents_that_are_good(void)
{
	char pattern[128];
	glob_t found;
	size_t count = 0;

	snprintf(pattern, sizeof(pattern), "%s/incidents/*[0-9]/incident.json", rig.directory);
	if (glob(pattern, 0, NULL, &found) == 0)
		count = found.gl_pathc;
	for (size_t i = 0; i < count; i++) {
		const char *name = found.gl_pathv[i] + strlen(rig.directory) + strlen("/incidents/");
		char *text = scene_read(found.gl_pathv[i]);

		ck_assert_uint_eq(strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"),
				  strcspn(name, "/"));
		ck_assert(is_json(text));
		free(text);
	}
	globfree(&found);

	return count;
}

static bool status_is_good(void)
{
	char *text = status(&rig);
	bool good = is_json(text);

	free(text);

	return good;
}

START_TEST(a_cgroup_may_be_called_anything)
{
	char targets[128], metrics[192];

	if (own_cgroups.count == 0)
		SKIP_TEST("this user may make no cgroups here");
	ck_assert_int_lt(own_cgroups_add(&own_cgroups, "new\nline"), 0); /* the kernel knows why */
	for (unsigned i = 0; i < ODD; i++) {
		ck_assert_int_eq(own_cgroups_add(&own_cgroups, odd_names[i]), 0);
		members[i] = start_in(odd_names[i]);
	}
	snprintf(metrics, sizeof(metrics), "\"metrics\": {\"textfile\": \"%s\", \"textfile_interval\": \"1s\"},",
		 place(&rig, "figures.prom"));
	rig.further = metrics;
	snprintf(targets, sizeof(targets), "{\"name\": \"c\", \"cgroup\": \"%s/*\"}", own_cgroups.name);
	if (!start(&rig, CONNECTOR, targets,
		   "{\"name\": \"m\", \"metric\": \"memory_bytes\", \"above\": \"64KiB\", \"window\": \"200ms\"}"))
		return;
	scene_wait_for(counted(&rig, "targets") == ODD);
	scene_wait_for(incidents_that_are_good() == ODD);
	for (unsigned i = 0; i < ODD; i++)
		ck_assert_msg(is_described(odd_names[i]), "%s", odd_names[i]);
	ck_assert(status_is_good());
	holds_nothing_that_steers_a_terminal(said_by("list", "--limit=100"));
	holds_nothing_that_steers_a_terminal(said_by("show", "last"));
	scene_wait_for(scene_says(place(&rig, "figures.prom"), "quote\\\"'`"));
	ck_assert(!scene_says(place(&rig, "figures.prom"), "\033"));
	for (unsigned i = 0; i < ODD; i++) {
		kill(members[i], SIGKILL);
		await_end(members[i]);
		own_cgroups_drop(&own_cgroups, odd_names[i]);
	}
	scene_wait_for(counted(&rig, "targets") == 0);
}
END_TEST

/* As many arguments as the kernel takes. */
#define ARGUMENTS 15u
#define ARGUMENT_BYTES 120000u

START_TEST(a_process_with_nearly_two_mebibytes_of_arguments_is_found_by_its_first)
{
	static char filler[ARGUMENT_BYTES + 1];
	const char *mark = own("--mark="), *arguments[ARGUMENTS + 6] = { "/bin/sh", "-c", "kill -STOP $$", mark };
	char targets[128], target[48];
	pid_t pid;

	memset(filler, 'y', ARGUMENT_BYTES);
	for (unsigned i = 0; i < ARGUMENTS; i++)
		arguments[4 + i] = filler;
	snprintf(targets, sizeof(targets), "{\"name\": \"e\", \"cmdline\": \"%s yy*\"}", mark);
	if (!start(&rig, (enum way)_i, targets, "{\"name\": \"m\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"}"))
		SKIP_TEST("%s", skip_why());
	pid = run(arguments);
	await_stop(pid);
	snprintf(target, sizeof(target), "e/%d", pid);
	scene_wait_for(read_on(&rig, target).samples > 0);
	ck_assert(status_is_good());
	kill(pid, SIGKILL);
	await_end(pid);
	scene_wait_for(read_on(&rig, target).gone == 1);
}
END_TEST

/* There may be more targets than this test keeps account of. */
static bool is_watched(const char *name)
{
	struct ring_cursor *look = NULL;
	struct ring_event event;
	uint32_t id = 0;
	bool sampled = false;

	ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &look), 0);
	while (!sampled && ring_cursor_next(look, &event) == 0) {
		if (event.type == RING_EVENT_TARGET && strcmp(event.target.name, name) == 0)
			id = event.id;
		sampled = event.type == RING_EVENT_SAMPLE && id != 0 && event.id == id;
	}
	ring_cursor_free(look);

	return sampled;
}

START_TEST(an_entry_may_match_everything_on_the_machine)
{
	char target[48];

	if (!start(&rig, (enum way)_i,
		   "{\"name\": \"each\", \"cmdline\": \".*\"}, {\"name\": \"sum\", \"cmdline\": \".*\", \"per\": "
		   "\"group\"}, "
		   "{\"name\": \"cgroups\", \"cgroup\": \"/**\"}",
		   "{\"name\": \"m\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"}"))
		return;
	snprintf(target, sizeof(target), "each/%d", getpid());
	scene_wait_for(is_watched(target));
	snprintf(target, sizeof(target), "each/%d", rig.server.pid); /* itself too */
	scene_wait_for(is_watched(target));
	scene_wait_for(is_watched("sum"));
	ck_assert_uint_gt(counted(&rig, "members"), 2);
	ck_assert_uint_eq(counted(&rig, "refused"), 0);
	ck_assert_uint_eq(counted(&rig, "failed"), 0);
	ck_assert(status_is_good());
}
END_TEST

Suite *oddities_suite(void)
{
	Suite *suite = suite_create("oddities");
	TCase *cgroups = tcase_create("cgroups"), *processes = tcase_create("processes");

	tcase_add_unchecked_fixture(cgroups, make_own, remove_own);
	tcase_add_checked_fixture(cgroups, setup, teardown);
	tcase_add_test(cgroups, a_cgroup_may_be_called_anything);
	suite_add_tcase(suite, cgroups);
	tcase_add_checked_fixture(processes, setup, teardown);
	tcase_add_loop_test(processes, a_process_with_nearly_two_mebibytes_of_arguments_is_found_by_its_first, 0, WAYS);
	tcase_add_loop_test(processes, an_entry_may_match_everything_on_the_machine, 0, WAYS);
	suite_add_tcase(suite, processes);

	return suite;
}
