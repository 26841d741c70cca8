/* check_source_retune.c: new options for a source that is at work. */
#include "lib/source/process.h"
#include "source_rig.h"
#include "torture.h"
#include "lib/model/sample.h"

#include <dirent.h>

Suite *source_retune_suite(void);

/* As the cold side and the owner together do it. */
static void retune(struct bench *bench, uint64_t now_ns, struct source_options options)
{
	struct source_room *room = NULL;

	options.capacity = options.capacity ? options.capacity : 8;
	options.heartbeat_ns = options.heartbeat_ns ? options.heartbeat_ns : 10 * S;
	ck_assert_int_eq(source_room_new(options.capacity, &room), 0);

	unsigned long before = torture_allocations();

	room = source_retune(bench->source, &options, (mono_t){ now_ns }, room);
	ck_assert_uint_eq(torture_allocations(), before);
	source_room_free(room);
}

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);

	return count;
}

static struct source_entry *settled(struct bench *bench, const struct child *child, struct source_entry *group)
{
	struct source_entry *entry = add_process(bench, child->pid, true, group);

	fill(bench, 10 * S, entry);
	ck_assert_int_eq(fill(bench, 11 * S, entry), SOURCE_SAME);
	ck_assert_uint_ge(skipped(bench), 1);

	return entry;
}

START_TEST(a_shorter_heartbeat_counts_from_now)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options options = { .heartbeat_ns = 1000 * S, .peak_interval_ns = UINT64_MAX };

	bench_open(&bench, "/proc", options);
	struct source_entry *entry = settled(&bench, &child, NULL);
	uint64_t before = skipped(&bench);

	options.heartbeat_ns = 2 * S;
	retune(&bench, 20 * S, options);
	fill(&bench, 20 * S, entry);
	fill(&bench, 21 * S, entry);
	ck_assert_uint_eq(skipped(&bench), before + 2); /* a retune by itself reads nothing */
	fill(&bench, 22 * S, entry);
	ck_assert_uint_eq(skipped(&bench), before + 2);
	fill(&bench, 23 * S, entry);
	ck_assert_uint_eq(skipped(&bench), before + 3);
	fill(&bench, 24 * S, entry); /* the second is twice as far */
	ck_assert_uint_eq(skipped(&bench), before + 4);

	options.heartbeat_ns = 1000 * S;
	retune(&bench, 25 * S, options);
	fill(&bench, 26 * S, entry); /* what was due remains due */
	ck_assert_uint_eq(skipped(&bench), before + 4);
	fill(&bench, 900 * S, entry);
	ck_assert_uint_eq(skipped(&bench), before + 5);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(what_is_switched_on_comes_with_its_files_and_what_is_switched_off_is_unavailable)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options on = { .peak_interval_ns = S, .fds_interval_ns = S, .reset_peaks = true };
	int files = open_files();

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *entry = settled(&bench, &child, NULL);

	retune(&bench, 12 * S, on);
	fill(&bench, 22 * S, entry);
	ck_assert(!has(entry, SAMPLE_FDS) && !has(entry, SAMPLE_MEMORY_PEAK)); /* no files yet */
	ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 0, &on), 0);
	ck_assert_int_eq(fill(&bench, 23 * S, entry), SOURCE_CHANGED);
	ck_assert_uint_ge(value(entry, SAMPLE_FDS), 2);
	ck_assert_uint_gt(value(entry, SAMPLE_MEMORY_PEAK), 0);
	fill(&bench, 24 * S, entry);

	retune(&bench, 25 * S, never_peaks);
	ck_assert_int_eq(fill(&bench, 25 * S, entry), SOURCE_CHANGED);
	ck_assert(!has(entry, SAMPLE_FDS) && !has(entry, SAMPLE_MEMORY_PEAK));
	ck_assert_int_eq(fill(&bench, 26 * S, entry), SOURCE_SAME);

	child_do(&child, 'f');
	fill(&bench, 27 * S, entry);
	ck_assert(!has(entry, SAMPLE_FDS) && !has(entry, SAMPLE_MEMORY_PEAK));
	fill(&bench, 28 * S, entry);
	retune(&bench, 29 * S, on); /* it has the files: they come with the heartbeat, though it sleeps */
	fill(&bench, 29 * S, entry);
	ck_assert(!has(entry, SAMPLE_FDS));
	fill(&bench, 39 * S, entry);
	ck_assert_uint_ge(value(entry, SAMPLE_FDS), 12);
	ck_assert(has(entry, SAMPLE_MEMORY_PEAK));

	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
	ck_assert_int_eq(open_files(), files - 2); /* the child's pipes */
}
END_TEST

START_TEST(what_is_switched_on_comes_with_a_heartbeat_that_got_shorter_too)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options options = { .heartbeat_ns = 1000 * S, .fds_interval_ns = S };

	bench_open(&bench, "/proc", options);
	struct source_entry *entry = settled(&bench, &child, NULL);

	options.fds_interval_ns = 0;
	retune(&bench, 12 * S, options);
	options.fds_interval_ns = S;
	options.heartbeat_ns = 2 * S;
	retune(&bench, 13 * S, options);
	fill(&bench, 14 * S, entry);
	ck_assert(!has(entry, SAMPLE_FDS));
	fill(&bench, 15 * S, entry);
	ck_assert(has(entry, SAMPLE_FDS));
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_shorter_interval_of_what_is_owed_counts_from_now)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options options = { .heartbeat_ns = 5000 * S,
					  .peak_interval_ns = UINT64_MAX,
					  .fds_interval_ns = 1000 * S };

	bench_open(&bench, "/proc", options);
	struct source_entry *entry = settled(&bench, &child, NULL);
	uint64_t fds = value(entry, SAMPLE_FDS);

	child_do(&child, 'f');
	fill(&bench, 12 * S, entry);
	fill(&bench, 13 * S, entry); /* it stands still, and owes its count until 1010 s */
	options.fds_interval_ns = 4 * S;
	retune(&bench, 14 * S, options);
	fill(&bench, 17 * S, entry);
	ck_assert_uint_eq(value(entry, SAMPLE_FDS), fds);
	fill(&bench, 18 * S, entry);
	ck_assert_uint_eq(value(entry, SAMPLE_FDS), fds + 10);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_group_loses_what_its_members_are_no_longer_asked_for)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options on = { .peak_interval_ns = UINT64_MAX, .fds_interval_ns = S };

	bench_open(&bench, "/proc", on);
	struct source_entry *group = add_group(&bench);
	struct source_entry *entry = settled(&bench, &child, group);

	ck_assert_uint_ge(value(group, SAMPLE_FDS), 2);
	uint64_t cpu = value(group, SAMPLE_CPU), memory = value(group, SAMPLE_MEMORY);

	retune(&bench, 12 * S, never_peaks);
	ck_assert_int_eq(fill(&bench, 12 * S, group), SOURCE_CHANGED);
	ck_assert(!has(group, SAMPLE_FDS));
	ck_assert_uint_eq(value(group, SAMPLE_CPU), cpu);
	ck_assert_uint_eq(value(group, SAMPLE_MEMORY), memory);
	retune(&bench, 13 * S, on);
	fill(&bench, 23 * S, group);
	ck_assert_uint_ge(value(group, SAMPLE_FDS), 2);
	drop(&bench, entry);
	drop(&bench, group);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_cgroup_has_its_new_interval_from_now)
{
	struct bench bench;
	struct cgroup_mounts *mounts = fixture_mounts();
	struct source_entry *entry = NULL;

	bench_open(&bench, "tests/data/proc", (struct source_options){ .cgroup_interval_ns = 10000 });
	ck_assert_int_eq(source_entry_cgroup(mounts, "/tiny.slice", NULL, &entry), 0);
	ck_assert_int_eq(source_add(bench.source, entry, NULL), 0);
	fill(&bench, 1000, entry);
	retune(&bench, 2000, (struct source_options){ .cgroup_interval_ns = 100 });
	uint64_t read_at = source_entry_at(entry).ns;

	fill(&bench, 2099, entry);
	ck_assert_uint_eq(source_entry_at(entry).ns, read_at);
	fill(&bench, 2100, entry);
	ck_assert_uint_gt(source_entry_at(entry).ns, read_at);
	drop(&bench, entry);
	bench_close(&bench);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(capacity_grows_and_shrinks_under_those_who_are_inside)
{
	struct bench bench;
	struct source_entry *entries[5];
	struct source_options options = { .capacity = 2, .peak_interval_ns = UINT64_MAX };
	size_t count;

	bench_open(&bench, "/proc", options);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(source_entry_process(bench.procfd, getpid(), 0, true, NULL, &entries[i]), 0);
	ck_assert_int_eq(source_add(bench.source, entries[0], NULL), 0);
	ck_assert_int_eq(source_add(bench.source, entries[1], NULL), 0);
	ck_assert_int_eq(source_add(bench.source, entries[2], NULL), -ENOSPC);

	options.capacity = 4;
	retune(&bench, 1, options);
	ck_assert_int_eq(source_add(bench.source, entries[2], NULL), 0);
	ck_assert_int_eq(source_add(bench.source, entries[3], NULL), 0);
	ck_assert_int_eq(source_add(bench.source, entries[4], NULL), -ENOSPC);
	fill(&bench, 2, entries[3]);
	struct source_entry *const *listed = source_entries(bench.source, &count);

	ck_assert_uint_eq(count, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(listed[i], entries[i]);

	options.capacity = 2;
	retune(&bench, 3, options);
	fill(&bench, 4, entries[0]);
	source_entries(bench.source, &count);
	ck_assert_uint_eq(count, 4);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(source_add(bench.source, entries[4], NULL), -ENOSPC);
		source_remove(bench.source, entries[i]);
	}
	ck_assert_int_eq(source_add(bench.source, entries[4], NULL), 0);
	ck_assert_int_eq(source_add(bench.source, entries[0], NULL), -ENOSPC);
	options.capacity = 3;
	retune(&bench, 5, options);
	ck_assert_int_eq(source_add(bench.source, entries[0], NULL), 0);
	ck_assert_int_eq(source_add(bench.source, entries[1], NULL), -ENOSPC);
	fill(&bench, 6, entries[0]);
	bench_close(&bench);
	for (int i = 0; i < 5; i++)
		source_entry_free(entries[i]);
}
END_TEST

START_TEST(files_that_are_not_taken_over_are_closed)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options on = { .peak_interval_ns = S, .fds_interval_ns = S, .reset_peaks = true };

	bench_open(&bench, "/proc", never_peaks);
	int files = open_files();
	struct source_entry *entry = settled(&bench, &child, NULL);
	int thin = open_files();

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 0, &on), 0);
	ck_assert_int_eq(open_files(), thin + 3);
	fill(&bench, 12 * S, entry);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 0, &on), 0);
		fill(&bench, 13 * S, entry); /* has them all */
	}
	ck_assert_int_eq(open_files(), thin + 3);
	ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 1, &on), -ESRCH);
	ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 0, &on), 0);
	drop(&bench, entry);
	ck_assert_int_eq(open_files(), files);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

Suite *source_retune_suite(void)
{
	Suite *suite = suite_create("source_retune");
	TCase *tcase = tcase_create("retune");

	tcase_add_test(tcase, a_shorter_heartbeat_counts_from_now);
	tcase_add_test(tcase, what_is_switched_on_comes_with_its_files_and_what_is_switched_off_is_unavailable);
	tcase_add_test(tcase, what_is_switched_on_comes_with_a_heartbeat_that_got_shorter_too);
	tcase_add_test(tcase, a_shorter_interval_of_what_is_owed_counts_from_now);
	tcase_add_test(tcase, a_group_loses_what_its_members_are_no_longer_asked_for);
	tcase_add_test(tcase, a_cgroup_has_its_new_interval_from_now);
	tcase_add_test(tcase, capacity_grows_and_shrinks_under_those_who_are_inside);
	tcase_add_test(tcase, files_that_are_not_taken_over_are_closed);
	suite_add_tcase(suite, tcase);

	return suite;
}
