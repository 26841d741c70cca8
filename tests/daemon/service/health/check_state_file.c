/* check_state_file.c: the state file on a disk that is not as it was. */
#include "daemon/service/health/overview.c"

#include "scene.h"
#include "torture.h"
#include "daemon/engine/base/paths.h"
#include "lib/evaluator/rule_state.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <sys/stat.h>

Suite *state_file_suite(void);

static char directory[64];
static struct paths paths;
static int procfd;

static void setup(void)
{
	scene_directory(directory);
	memset(&paths, 0, sizeof(paths));
	snprintf(paths.state, sizeof(paths.state), "%s/state", directory);
	snprintf(paths.state_name, sizeof(paths.state_name), "state.json");
	ck_assert_int_eq(mkdir(paths.state, 0750), 0);
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
}

static void teardown(void)
{
	close(procfd);
	scene_remove(directory);
}

static struct state_file *opened(void)
{
	struct state_file *file;

	ck_assert_int_eq(state_file_open(&paths, procfd, &file), 0);

	return file;
}

static void put(const struct state_file *file, const char *rule, uint64_t fired)
{
	struct trigger_memory memory = { .fired = fired };

	ck_assert_int_eq(rule_state_put(state_file_rules(file), rule, "key", &memory), 0);
}

static uint64_t fired(const struct state_file *file, const char *rule)
{
	struct trigger_memory memory = { 0 };

	rule_state_get(state_file_rules(file), rule, "key", &memory);

	return memory.fired;
}

/* Saves until nothing is left to save or the disk has refused it. */
static void save(struct state_file *file)
{
	state_file_save(file);
	do
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	while (file_writer_result(file->writer) == FILE_WRITER_BUSY);
	state_file_save(file);
}

static void close_file(struct state_file *file)
{
	struct clock clock = real_clock();

	state_file_close(file, mono_add(clock_mono(&clock), 10 * NS_PER_S));
}

static char *in_state(const char *name)
{
	static char path[2048];

	snprintf(path, sizeof(path), "%s/%s", paths.state, name);

	return path;
}

START_TEST(what_was_saved_is_there_in_the_next_life)
{
	struct state_file *file = opened();

	put(file, "hot", 3);
	save(file);
	ck_assert(!state_file_is_failing(file));
	put(file, "big", 4);
	close_file(file); /* saves too */

	file = opened();
	ck_assert_uint_eq(fired(file, "hot"), 3);
	ck_assert_uint_eq(fired(file, "big"), 4);
	close_file(file);
}
END_TEST

START_TEST(nothing_new_is_not_written)
{
	struct state_file *file = opened();

	save(file);
	close_file(file);
	ck_assert_int_lt(access(in_state("state.json"), F_OK), 0);
}
END_TEST

START_TEST(a_damaged_file_is_set_aside)
{
	scene_write(in_state("state.json"), "no JSON");

	struct state_file *file = opened();

	ck_assert(scene_says(in_state("state.json.damaged"), "no JSON"));
	put(file, "hot", 1);
	close_file(file);
	file = opened();
	ck_assert_uint_eq(fired(file, "hot"), 1);
	close_file(file);
}
END_TEST

START_TEST(a_directory_that_was_removed_is_made_again)
{
	struct state_file *file = opened();

	scene_remove(paths.state);
	put(file, "hot", 5);
	save(file);
	ck_assert(!state_file_is_failing(file));
	close_file(file);
	file = opened();
	ck_assert_uint_eq(fired(file, "hot"), 5);
	close_file(file);
}
END_TEST

START_TEST(what_cannot_be_saved_is_saved_when_it_can)
{
	struct state_file *file = opened();

	scene_remove(paths.state);
	scene_write(paths.state, "a file stands in the way");
	put(file, "hot", 6);
	save(file);
	ck_assert(state_file_is_failing(file));
	ck_assert_int_eq(unlink(paths.state), 0);
	save(file);
	ck_assert(!state_file_is_failing(file));
	close_file(file);
	file = opened();
	ck_assert_uint_eq(fired(file, "hot"), 6);
	close_file(file);
}
END_TEST

START_TEST(a_directory_that_is_not_there_is_made)
{
	scene_remove(paths.state);

	struct state_file *file = opened();

	put(file, "hot", 2);
	close_file(file);
	ck_assert_int_eq(access(in_state("state.json"), F_OK), 0);
}
END_TEST

START_TEST(without_a_directory_it_does_not_open)
{
	struct state_file *file = NULL;

	scene_remove(paths.state);
	scene_write(paths.state, "a file stands in the way");
	ck_assert_int_eq(state_file_open(&paths, procfd, &file), -ENOTDIR);
	ck_assert_ptr_null(file);
	ck_assert_int_eq(unlink(paths.state), 0);
}
END_TEST

START_TEST(without_memory_it_does_not_open)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct state_file *file = NULL;

		torture_arm(n);
		int r = state_file_open(&paths, procfd, &file);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		close_file(file);
	}
}
END_TEST

Suite *state_file_suite(void)
{
	Suite *suite = suite_create("state_file");
	TCase *tcase = tcase_create("memofile");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_saved_is_there_in_the_next_life);
	tcase_add_test(tcase, nothing_new_is_not_written);
	tcase_add_test(tcase, a_damaged_file_is_set_aside);
	tcase_add_test(tcase, a_directory_that_was_removed_is_made_again);
	tcase_add_test(tcase, what_cannot_be_saved_is_saved_when_it_can);
	tcase_add_test(tcase, a_directory_that_is_not_there_is_made);
	tcase_add_test(tcase, without_a_directory_it_does_not_open);
	tcase_add_test(tcase, without_memory_it_does_not_open);
	suite_add_tcase(suite, tcase);

	return suite;
}
