/* check_leftover_files.c: what commands have left, against what can be sealed. */
#include "daemon/engine/incident/spool.h"

#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "scene.h"
#include "torture.h"

#include <errno.h>
#include <sys/stat.h>

Suite *leftover_files_suite(void);

static char directory[64];
static int dirfd_of;
static struct incident incident;

static void setup(void)
{
	scene_directory(directory);
	dirfd_of = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	incident_init(&incident, "1");
}

static void teardown(void)
{
	close(dirfd_of);
	scene_remove(directory);
}

static void put(const char *name, size_t bytes)
{
	int fd = openat(dirfd_of, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	close(fd);
}

static void add(const char *file, uint64_t bytes)
{
	struct incident_capture capture = { .bytes = bytes };

	incident_text(capture.name, sizeof(capture.name), "ours");
	incident_text(capture.file, sizeof(capture.file), file);
	incident_add_capture(&incident, &capture);
}

static bool there(const char *name)
{
	return faccessat(dirfd_of, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const struct incident_capture *kept(const char *file)
{
	for (size_t i = 0; i < incident.capture_count; i++)
		if (strcmp(incident.captures[i].file, file) == 0)
			return &incident.captures[i];

	return NULL;
}

static bool said(const char *part)
{
	for (size_t i = 0; i < incident.capture_count; i++)
		if (incident.captures[i].status == INCIDENT_CAPTURE_FAILED && strstr(incident.captures[i].why, part))
			return true;

	return false;
}

START_TEST(plain_files_are_kept_and_recorded)
{
	put("threads.tsv", 5);
	add("threads.tsv", 5);
	put(INCIDENT_FILE, 7);
	put("core.812", 1000);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_uint_eq(incident.capture_count, 2);
	ck_assert_ptr_nonnull(kept("core.812"));
	ck_assert_uint_eq(kept("core.812")->bytes, 1000);
	ck_assert_str_eq(kept("core.812")->name, INCIDENT_LEFT_FILE);
	ck_assert(there(INCIDENT_FILE) && there("threads.tsv") && there("core.812"));
}
END_TEST

START_TEST(the_smallest_are_kept_as_long_as_there_is_room)
{
	put("c", 600);
	put("a", 500);
	put("b", 400);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert(there("a") && there("b") && !there("c"));
	ck_assert(said("removed: c: 600 B, more than max_incident_size leaves room for"));
}
END_TEST

START_TEST(what_cannot_be_sealed_is_removed_and_said)
{
	char longer[100];

	memset(longer, 'n', sizeof(longer));
	longer[64] = '\0'; /* a manifest would take it, a record has no room */
	put(longer, 1);
	put(".hidden", 1);
	put("a b", 1);
	put("MANIFEST", 1);
	put(INCIDENT_SAMPLES_FILE, 1);
	ck_assert_int_eq(mkdirat(dirfd_of, "directory", 0700), 0);
	put("directory/file", 1);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_of, "link"), 0);
	ck_assert_int_eq(mkfifoat(dirfd_of, "fifo", 0600), 0);
	put("good", 1);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_ptr_nonnull(kept("good"));
	ck_assert_uint_eq(incident.capture_count, 9);
	ck_assert(said("removed: link: no plain file") && said("removed: a b: its name"));
	ck_assert_int_eq(manifest_write(dirfd_of), 0);
	ck_assert_int_eq(manifest_verify(dirfd_of, NULL, NULL), 0);
	ck_assert(!there("directory") && !there("link") && !there(longer));
}
END_TEST

START_TEST(many_files_are_bounded_and_the_rest_is_counted)
{
	char name[20];

	for (int i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put(name, 1);
	}
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_uint_lt(incident.capture_count, INCIDENT_CAPTURES_MAX);
	ck_assert(said(" more"));
	size_t count = 0;

	for (size_t i = 0; i < incident.capture_count; i++)
		count += incident.captures[i].file[0] != '\0';
	ck_assert_uint_eq(count, LEFTOVER_FILES_MAX);
	ck_assert_int_eq(manifest_write(dirfd_of), 0);
}
END_TEST

START_TEST(a_capture_that_a_command_has_removed_or_replaced_is_said)
{
	add("gone.txt", 5);
	add("changed.txt", 5);
	put("changed.txt", 9);
	add("replaced.txt", 5);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_of, "replaced.txt"), 0);
	ck_assert_int_eq(leftover_files_settle(dirfd_of, 1000, &incident), 0);
	ck_assert_int_eq(incident.captures[0].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(incident.captures[0].file, "");
	ck_assert_uint_eq(incident.captures[1].bytes, 9);
	ck_assert_int_eq(incident.captures[2].status, INCIDENT_CAPTURE_FAILED);
	ck_assert(!there("replaced.txt"));
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	torture_arm(1);
	int r = leftover_files_settle(dirfd_of, 1000, &incident);

	torture_disarm();
	ck_assert_int_eq(r, -ENOMEM);
}
END_TEST

Suite *leftover_files_suite(void)
{
	Suite *suite = suite_create("leftover_files");
	TCase *tcase = tcase_create("files");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, plain_files_are_kept_and_recorded);
	tcase_add_test(tcase, the_smallest_are_kept_as_long_as_there_is_room);
	tcase_add_test(tcase, what_cannot_be_sealed_is_removed_and_said);
	tcase_add_test(tcase, many_files_are_bounded_and_the_rest_is_counted);
	tcase_add_test(tcase, a_capture_that_a_command_has_removed_or_replaced_is_said);
	tcase_add_test(tcase, without_memory_it_says_so);
	suite_add_tcase(suite, tcase);

	return suite;
}
