/*
 * check_source.c: all targets in one call: gating, identity, groups, and no allocation in the tick.
 */
#include "own_cgroups.h"
#include "skip.h"
#include "source_rig.h"
#include "torture.h"

#include <sys/mman.h>
#include <sys/stat.h>

Suite *source_suite(void);

START_TEST(an_idle_process_is_read_until_it_stands_still_and_then_skipped)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	ck_assert_int_eq(fill(&bench, 1 * S, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(skipped(&bench), 0);
	mono_t before = source_entry_at(entry);
	ck_assert_int_eq(fill(&bench, 2 * S, entry), SOURCE_SAME);
	ck_assert_int_eq(fill(&bench, 3 * S, entry), SOURCE_SAME);
	ck_assert_uint_eq(skipped(&bench), 2);
	ck_assert_int_gt(mono_diff(source_entry_at(entry), before), 0);

	child_do(&child, 'b');
	uint64_t cpu_ns = value(entry, SAMPLE_CPU);
	ck_assert_int_eq(fill(&bench, 4 * S, entry), SOURCE_CHANGED);
	ck_assert_uint_ge(value(entry, SAMPLE_CPU), cpu_ns + BURNT_NS);
	ck_assert_int_eq(fill(&bench, 5 * S, entry), SOURCE_SAME); /* read once more, with the clock standing still */
	ck_assert_uint_eq(skipped(&bench), 2);
	ck_assert_int_eq(fill(&bench, 6 * S, entry), SOURCE_SAME);
	ck_assert_uint_eq(skipped(&bench), 3);

	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(an_idle_process_is_read_at_the_heartbeat)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	fill(&bench, 1 * S, entry);
	fill(&bench, 2 * S, entry);
	ck_assert_uint_eq(skipped(&bench), 1);
	fill(&bench, 11 * S, entry);
	ck_assert_uint_eq(skipped(&bench), 1);
	fill(&bench, 12 * S, entry);
	ck_assert_uint_eq(skipped(&bench), 2);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(without_gate_or_clock_everything_is_read)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", (struct source_options){ .peak_interval_ns = UINT64_MAX, .read_always = true });
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	struct source_entry *clockless = add_process(&bench, child.pid, false, NULL);
	for (uint64_t i = 1; i < 5; i++) {
		fill(&bench, i, entry);
		ck_assert_int_eq(source_entry_status(entry), i == 1 ? SOURCE_CHANGED : SOURCE_SAME);
		ck_assert_int_eq(source_entry_status(clockless), i == 1 ? SOURCE_CHANGED : SOURCE_SAME);
	}
	ck_assert_uint_eq(skipped(&bench), 0);
	drop(&bench, entry);
	drop(&bench, clockless);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(peaks_and_descriptors_are_read_at_intervals_if_it_ran)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", (struct source_options){ .peak_interval_ns = 2 * S, .fds_interval_ns = 4 * S });
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	fill(&bench, 10 * S, entry);
	uint64_t peak = value(entry, SAMPLE_MEMORY_PEAK);
	uint64_t fds = value(entry, SAMPLE_FDS);

	child_do(&child, 'm');
	child_do(&child, 'f');
	ck_assert_int_eq(fill(&bench, 11 * S, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY_PEAK), peak);
	fill(&bench, 12 * S, entry); /* it stands still, and owes both */
	ck_assert_uint_ge(value(entry, SAMPLE_MEMORY_PEAK), peak + TOUCHED_BYTES);
	ck_assert_uint_eq(value(entry, SAMPLE_FDS), fds);
	ck_assert_int_eq(fill(&bench, 13 * S, entry), SOURCE_SAME);
	ck_assert_int_eq(fill(&bench, 14 * S, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_FDS), fds + 10);
	ck_assert_uint_eq(skipped(&bench), 1);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_process_is_gone_when_it_was_reaped)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	struct source_entry *clockless = add_process(&bench, child.pid, false, NULL);
	fill(&bench, 1, entry);
	child_exit(&child);
	ck_assert_int_eq(fill(&bench, 2, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_STATE), 'Z');
	struct sample last = *source_entry_sample(entry);

	child_reap(&child);
	for (uint64_t i = 3; i < 5; i++) {
		ck_assert_int_eq(fill(&bench, i, entry), SOURCE_GONE);
		ck_assert_int_eq(source_entry_status(clockless), SOURCE_GONE);
	}
	ck_assert_mem_eq(source_entry_sample(entry), &last, sizeof(last));

	size_t count = 0;
	source_entries(bench.source, &count);
	ck_assert_uint_eq(count, 2);
	source_gone_members(bench.source, &count);
	ck_assert_uint_eq(count, 0);
	drop(&bench, entry);
	drop(&bench, clockless);
	bench_close(&bench);
}
END_TEST

/* Where one of our own descriptors is of this file of this process. */
static int descriptor_of(pid_t pid, const char *file)
{
	char wanted[64], path[64], target[64];

	snprintf(wanted, sizeof(wanted), "/proc/%d/%s", pid, file);
	for (int fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t len = readlink(path, target, sizeof(target) - 1);

		target[len > 0 ? len : 0] = '\0';
		if (strcmp(target, wanted) == 0)
			return fd;
	}

	return -1;
}

START_TEST(of_one_that_ends_between_two_of_its_files_nothing_is_taken_over)
{
	struct bench bench;
	struct child child = child_start(), other = child_start();
	char path[64];

	bench_open(&bench, "/proc", (struct source_options){ .peak_interval_ns = UINT64_MAX, .read_always = true });
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	child_do(&child, 'h');
	fill(&bench, 1, entry);
	struct sample last = *source_entry_sample(entry);

	snprintf(path, sizeof(path), "/proc/%d/statm", other.pid);
	AUTO_CLOSE int ended = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(ended, 0);
	child_reap(&other);
	ck_assert_int_ge(descriptor_of(child.pid, "statm"), 0);
	ck_assert_int_ge(dup2(ended, descriptor_of(child.pid, "statm")), 0);
	child_do(&child, 'b');
	ck_assert_int_eq(fill(&bench, 2, entry), SOURCE_GONE);
	ck_assert_mem_eq(source_entry_sample(entry), &last, sizeof(last));
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_pid_is_not_an_identity)
{
	struct child child = child_start();
	AUTO_CLOSE int procfd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct source_entry *entry = NULL;

	ck_assert_int_eq(source_entry_process(procfd, child.pid, 1, true, NULL, &entry), -ESRCH);
	child_reap(&child);
	ck_assert_int_eq(source_entry_process(procfd, child.pid, 0, true, NULL, &entry), -ESRCH);
	ck_assert_ptr_null(entry);
}
END_TEST

START_TEST(limits_show_in_the_next_fill)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *group = add_group(&bench);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	fill(&bench, 1, entry);
	ck_assert(!has(entry, SAMPLE_CPU_LIMIT) && !has(entry, SAMPLE_MEMORY_LIMIT));
	fill(&bench, 2, entry);
	source_entry_set_limits(entry, 2 * S, UINT64_MAX);
	source_entry_set_limits(group, UINT64_MAX, 4096);
	ck_assert_int_eq(fill(&bench, 3, entry), SOURCE_CHANGED);
	ck_assert_int_eq(source_entry_status(group), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_LIMIT), 2 * S);
	ck_assert(!has(entry, SAMPLE_MEMORY_LIMIT));
	ck_assert_uint_eq(value(group, SAMPLE_MEMORY_LIMIT), 4096);
	ck_assert_int_eq(fill(&bench, 4, entry), SOURCE_SAME);
	ck_assert_int_eq(source_entry_status(group), SOURCE_SAME);

	child_do(&child, 'b');
	ck_assert_int_eq(fill(&bench, 5, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_LIMIT), 2 * S);
	source_entry_set_limits(entry, UINT64_MAX, UINT64_MAX);
	ck_assert_int_eq(fill(&bench, 6, entry), SOURCE_CHANGED);
	ck_assert(!has(entry, SAMPLE_CPU_LIMIT));
	drop(&bench, entry);
	drop(&bench, group);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_group_sums_its_members_and_never_steps_back)
{
	struct bench bench;
	struct child a = child_start();
	struct child b = child_start();

	child_do(&a, 'b');
	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *group = add_group(&bench);
	ck_assert_int_eq(fill(&bench, 1, group), SOURCE_CHANGED);
	ck_assert_uint_eq(value(group, SAMPLE_PROCESSES), 0);
	ck_assert(!has(group, SAMPLE_CPU));

	struct source_entry *first = add_process(&bench, a.pid, true, group);
	struct source_entry *second = add_process(&bench, b.pid, true, group);
	ck_assert_int_eq(fill(&bench, 2, group), SOURCE_CHANGED);
	ck_assert_uint_eq(value(group, SAMPLE_PROCESSES), 2);
	ck_assert_uint_eq(value(group, SAMPLE_MEMORY), value(first, SAMPLE_MEMORY) + value(second, SAMPLE_MEMORY));
	ck_assert_uint_lt(value(group, SAMPLE_CPU), BURNT_NS); /* what was before is not the group's */
	ck_assert(!has(group, SAMPLE_STATE) && !has(group, SAMPLE_MEMORY_PEAK));
	ck_assert_int_eq(fill(&bench, 3, group), SOURCE_SAME);

	uint64_t before = value(group, SAMPLE_CPU);
	child_do(&a, 'b');
	child_do(&b, 'b');
	ck_assert_int_eq(fill(&bench, 4, group), SOURCE_CHANGED);
	uint64_t sum = value(group, SAMPLE_CPU);
	ck_assert_uint_ge(sum, before + 2 * BURNT_NS);

	child_reap(&a);
	ck_assert_int_eq(fill(&bench, 5, group), SOURCE_CHANGED);
	ck_assert_uint_eq(value(group, SAMPLE_CPU), sum);
	ck_assert_uint_eq(value(group, SAMPLE_MEMORY), value(second, SAMPLE_MEMORY));
	ck_assert_uint_eq(value(group, SAMPLE_PROCESSES), 1);

	size_t count = 0;
	struct source_entry *const *gone = source_gone_members(bench.source, &count);
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_eq(gone[0], first);
	ck_assert_uint_eq((source_entries(bench.source, &count), count), 1);
	drop(&bench, first);
	drop(&bench, second);
	ck_assert_int_eq(fill(&bench, 6, group), SOURCE_CHANGED);
	ck_assert_uint_eq(value(group, SAMPLE_CPU), sum);
	ck_assert_uint_eq(value(group, SAMPLE_MEMORY), 0);
	ck_assert_uint_eq(value(group, SAMPLE_PROCESSES), 0);
	drop(&bench, group);
	bench_close(&bench);
	child_reap(&b);
}
END_TEST

/* The end of one was counted, that of others has a part of what it seemed to lack: so much less of the next ones. */
START_TEST(what_a_group_counted_beyond_an_end_is_made_up_for_by_the_next_ones)
{
	const bool shared = _i;
	const enum source_end known = shared ? SOURCE_END_SHARED : SOURCE_END_ESTIMATED;
	struct bench bench;
	struct child child = child_start();
	struct sample end = { 0 };
	uint64_t sum;

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *group = add_group(&bench);
	struct source_entry *member = add_process(&bench, child.pid, true, group);

	child_do(&child, 'b');
	fill(&bench, S, group);
	fill(&bench, 2 * S, group);
	sum = value(group, SAMPLE_CPU);
	ck_assert_uint_ge(sum, BURNT_NS);
	sample_set(&end, SAMPLE_CPU, value(member, SAMPLE_CPU) - 5 * NS_PER_MS);
	source_remove(bench.source, member);
	ck_assert(!sample_has(source_entry_sample(group), SAMPLE_CPU_ESTIMATED));
	source_entry_add_exit_usage(group, member, &end, known);
	sample_set(&end, SAMPLE_CPU, 3 * NS_PER_MS);
	source_entry_add_exit_usage(group, NULL, &end, SOURCE_END_ESTIMATED);
	fill(&bench, 3 * S, group);
	ck_assert_uint_eq(value(group, SAMPLE_CPU), shared ? sum : sum + 3 * NS_PER_MS);
	ck_assert_uint_eq(value(group, SAMPLE_CPU_ESTIMATED), 2);
	source_entry_add_exit_usage(group, NULL, &end, SOURCE_END_REST);
	source_entry_add_exit_usage(group, NULL, &end, SOURCE_END_EXACT);
	fill(&bench, 4 * S, group);
	ck_assert_uint_eq(value(group, SAMPLE_CPU), shared ? sum + 4 * NS_PER_MS : sum + 9 * NS_PER_MS);
	ck_assert_uint_eq(value(group, SAMPLE_CPU_ESTIMATED), 2);
	ck_assert(!sample_has(source_entry_sample(group), SAMPLE_CPU_LATE));
	sample_set(&end, SAMPLE_CPU_LATE, 300);
	source_entry_add_exit_usage(group, NULL, &end, SOURCE_END_EXACT);
	sample_set(&end, SAMPLE_CPU_LATE, 200);
	source_entry_add_exit_usage(group, NULL, &end, SOURCE_END_EXACT);
	fill(&bench, 5 * S, group);
	ck_assert_uint_eq(value(group, SAMPLE_CPU_LATE), 300);
	fill(&bench, 6 * S, group); /* nothing more came */
	ck_assert(!sample_has(source_entry_sample(group), SAMPLE_CPU_LATE));
	source_entry_free(member);
	drop(&bench, group);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(entries_come_and_go_in_any_order)
{
	struct bench bench;
	struct source_entry *entries[6];
	bool inside[6] = { false };
	int user[6];
	uint32_t random = 1;

	bench_open(&bench, "tests/data/proc", (struct source_options){ .capacity = 6 });
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(source_entry_process(bench.procfd, 812, 132835, false, &user[i], &entries[i]), 0);
	for (int round = 0; round < 500; round++) {
		random = random * 1103515245 + 12345;
		uint32_t i = (random >> 16) % 6;
		size_t expected = 0;
		size_t count = 0;

		if (inside[i])
			source_remove(bench.source, entries[i]);
		else
			ck_assert_int_eq(source_add(bench.source, entries[i], NULL), 0);
		inside[i] = !inside[i];
		source_fill(bench.source, (mono_t){ (uint64_t)round });
		for (int k = 0; k < 6; k++)
			expected += inside[k];
		struct source_entry *const *listed = source_entries(bench.source, &count);
		ck_assert_uint_eq(count, expected);
		for (size_t k = 0; k < count; k++)
			ck_assert(inside[(int *)source_entry_user(listed[k]) - user]);
	}
	source_free(bench.source); /* with some of them inside, which stay ours */
	for (int i = 0; i < 6; i++)
		source_entry_free(entries[i]);
	close(bench.procfd);
}
END_TEST

START_TEST(a_full_source_takes_no_more)
{
	struct bench bench;
	struct source_entry *extra = NULL;

	bench_open(&bench, "tests/data/proc", (struct source_options){ .capacity = 1 });
	struct source_entry *entry = add_process(&bench, 812, false, NULL);
	ck_assert_int_eq(source_entry_process(bench.procfd, 813, 0, false, NULL, &extra), 0);
	ck_assert_int_eq(source_add(bench.source, extra, NULL), -ENOSPC);
	source_entry_free(extra);
	drop(&bench, entry);
	bench_close(&bench);
}
END_TEST

START_TEST(a_file_that_breaks_is_counted_and_read_again)
{
	char root[] = "/tmp/spikewatch-source-XXXXXX";
	char dir[64];
	char path[80];
	struct bench bench;
	struct source_counters counters;
	static const char good[] = "7 (x) S 1 7 7 0 -1 0 1 0 2 0 3 4 0 0 20 0 1 0 5 0 0\n";

	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(dir, sizeof(dir), "%s/7", root);
	snprintf(path, sizeof(path), "%s/stat", dir);
	mkdir(dir, 0700);
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	ck_assert_int_eq(pwrite(fd, good, strlen(good), 0), (ssize_t)strlen(good));
	bench_open(&bench, root, never_peaks);
	struct source_entry *entry = add_process(&bench, 7, false, NULL);
	ck_assert_int_eq(ftruncate(fd, 20), 0);
	ck_assert_int_eq(fill(&bench, 1, entry), SOURCE_SAME);
	source_counters(bench.source, &counters);
	ck_assert_uint_eq(counters.failed_reads, 1);
	ck_assert_int_eq(pwrite(fd, good, strlen(good), 0), (ssize_t)strlen(good));
	ck_assert_int_eq(fill(&bench, 2, entry), SOURCE_CHANGED);
	ck_assert(!has(entry, SAMPLE_MEMORY));
	drop(&bench, entry);
	bench_close(&bench);
	close(fd);
	unlink(path);
	rmdir(dir);
	rmdir(root);
}
END_TEST

START_TEST(a_cgroup_is_read_at_its_interval)
{
	struct bench bench;
	struct cgroup_mounts *mounts = fixture_mounts();
	struct source_entry *entry = NULL;

	bench_open(&bench, "tests/data/proc", (struct source_options){ .cgroup_interval_ns = 100 });
	ck_assert_int_eq(source_entry_cgroup(mounts, "/nobody", NULL, &entry), -ENOENT);
	ck_assert_int_eq(source_entry_cgroup(mounts, "/tiny.slice", NULL, &entry), 0);
	source_entry_set_limits(entry, 25000000, 7);
	ck_assert_int_eq(source_add(bench.source, entry, NULL), 0);
	ck_assert_int_eq(fill(&bench, 1000, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY), 104857600);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_LIMIT), 25000000);
	mono_t read_at = source_entry_at(entry);
	ck_assert_int_eq(fill(&bench, 1099, entry), SOURCE_SAME);
	ck_assert_uint_eq(source_entry_at(entry).ns, read_at.ns);
	ck_assert_int_eq(fill(&bench, 1100, entry), SOURCE_SAME);
	ck_assert_uint_gt(source_entry_at(entry).ns, read_at.ns);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_LIMIT), 25000000);
	source_entry_set_limits(entry, 30000000, 7);
	ck_assert_int_eq(fill(&bench, 1101, entry), SOURCE_CHANGED);
	drop(&bench, entry);
	bench_close(&bench);
	cgroup_mounts_free(mounts);
}
END_TEST

/* ---- cgroups that have not run: a tree of files, as of v1 ---- */

static char tree[64];

static void set_file(const char *controller, const char *path, const char *name, unsigned long long number)
{
	char file[256];
	const char *parts[] = { "", controller, path };

	for (size_t i = 0, len = 0; i < ARRAY_LEN(parts); i++) {
		len += (size_t)snprintf(file + len, sizeof(file) - len, "%s%s", i ? "/" : tree, parts[i]);
		for (char *at = file + strlen(tree) + 1; (at = strchr(at, '/')); *at++ = '/') {
			*at = '\0';
			mkdir(file, 0755);
		}
		mkdir(file, 0755);
	}
	snprintf(strchr(file, '\0'), sizeof(file) - strlen(file), "/%s", name);

	FILE *out = fopen(file, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_int_gt(fprintf(out, "%llu\n", number), 0);
	ck_assert_int_eq(fclose(out), 0);
}

static struct cgroup_mounts *make_tree(void)
{
	struct cgroup_mounts *mounts;

	snprintf(tree, sizeof(tree), "/tmp/check-source-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(tree));
	set_file("cpuacct", "pods", "cpuacct.usage", 1000);
	set_file("cpuacct", "pods/one", "cpuacct.usage", 500);
	set_file("memory", "pods/one", "memory.usage_in_bytes", 4096);
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", tree, &mounts), 0);
	return mounts;
}

static void drop_tree(struct cgroup_mounts *mounts)
{
	char command[128];

	cgroup_mounts_free(mounts);
	snprintf(command, sizeof(command), "rm -r %s", tree);
	ck_assert_int_eq(system(command), 0);
}

#define CGROUP_INTERVAL 100

/* Memory that changes while the usage stands still is read at the heartbeat, else with the next look. */
START_TEST(a_cgroup_that_has_not_run_is_asked_for_its_usage_alone)
{
	struct bench bench;
	struct cgroup_mounts *mounts = make_tree();
	struct source_entry *entry = NULL;
	uint64_t now = 1000;

	bench_open(&bench, "tests/data/proc",
		   (struct source_options){ .cgroup_interval_ns = CGROUP_INTERVAL, .heartbeat_ns = 100000 });
	ck_assert_int_eq(source_entry_cgroup(mounts, "/pods/one", NULL, &entry), 0);
	ck_assert_int_eq(source_add(bench.source, entry, NULL), 0);
	for (int i = 0; i < 3; i++)
		fill(&bench, now += CGROUP_INTERVAL, entry);
	set_file("memory", "pods/one", "memory.usage_in_bytes", 8192);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_SAME);
	ck_assert_uint_ge(source_entry_at(entry).ns, 1); /* it was looked at */
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY), 4096);
	set_file("cpuacct", "pods/one", "cpuacct.usage", 501);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU), 501);
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY), 8192);
	set_file("memory", "pods/one", "memory.usage_in_bytes", 12288); /* right after it stopped */
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_CHANGED);
	set_file("memory", "pods/one", "memory.usage_in_bytes", 16384); /* and as long as something changes */
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_CHANGED);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_SAME);
	set_file("memory", "pods/one", "memory.usage_in_bytes", 4096);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_SAME);
	ck_assert_int_eq(fill(&bench, now += 200000, entry), SOURCE_CHANGED); /* the heartbeat */
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY), 4096);
	drop(&bench, entry);
	bench_close(&bench);
	drop_tree(mounts);
}
END_TEST

START_TEST(cgroups_below_one_that_has_not_run_are_asked_nothing)
{
	struct bench bench;
	struct cgroup_mounts *mounts = make_tree();
	struct source_entry *entry = NULL;
	struct source_gate *gate = NULL;
	uint64_t now = 1000;

	bench_open(&bench, "tests/data/proc",
		   (struct source_options){ .cgroup_interval_ns = CGROUP_INTERVAL, .heartbeat_ns = 100000 });
	ck_assert_int_eq(source_gate_new(mounts, "/nobody", &gate), -ENOENT);
	ck_assert_int_eq(source_gate_new(mounts, "/pods", &gate), 0);
	ck_assert_int_eq(source_entry_cgroup(mounts, "/pods/one", NULL, &entry), 0);
	source_entry_set_gate(entry, gate);
	source_gate_drop(gate);
	ck_assert_int_eq(source_add(bench.source, entry, NULL), 0);
	for (int i = 0; i < 3; i++)
		fill(&bench, now += CGROUP_INTERVAL, entry);
	set_file("cpuacct", "pods/one", "cpuacct.usage", 501); /* which cannot be: so it shows that it is not read */
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_SAME);
	set_file("cpuacct", "pods", "cpuacct.usage", 1001);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_CHANGED);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU), 501);
	drop(&bench, entry);
	bench_close(&bench);
	drop_tree(mounts);
}
END_TEST

/* One that was moved out unnoticed is asked after a second, and then always: no CPU time is lost. */
START_TEST(processes_in_a_cgroup_that_has_not_run_are_not_asked)
{
	struct bench bench;
	struct cgroup_mounts *mounts = make_tree();
	struct source_gate *gate = NULL;
	struct source_counters counters;
	struct child child = child_start();
	uint64_t now = 50 * S, used;
	mono_t before;

	bench_open(&bench, "/proc",
		   (struct source_options){
			   .heartbeat_ns = 1000 * S, .peak_interval_ns = UINT64_MAX, .interval_ns = S / 100 });
	ck_assert_int_eq(source_gate_new(mounts, "/pods/one", &gate), 0);

	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);

	source_entry_set_gate(entry, gate);
	source_gate_drop(gate);
	for (int i = 0; i < 4; i++)
		fill(&bench, now += S / 100, entry);
	source_counters(bench.source, &counters);
	ck_assert_uint_gt(counters.gated_looks, 0);

	child_do(&child, 'b');
	set_file("cpuacct", "pods/one", "cpuacct.usage", 501);
	used = value(entry, SAMPLE_CPU);
	ck_assert_int_eq(fill(&bench, now += S / 100, entry), SOURCE_CHANGED);
	ck_assert(!source_entry_woke(entry, &before));
	ck_assert_uint_ge(value(entry, SAMPLE_CPU), used + BURNT_NS);

	for (int i = 0; i < 3; i++)
		fill(&bench, now += S / 100, entry);
	used = value(entry, SAMPLE_CPU);
	child_do(&child, 'b');
	ck_assert_int_eq(fill(&bench, now += S / 100, entry), SOURCE_SAME);
	ck_assert_int_eq(fill(&bench, now += S, entry), SOURCE_CHANGED);
	ck_assert_uint_ge(value(entry, SAMPLE_CPU), used + BURNT_NS);
	ck_assert(source_entry_woke(entry, &before));
	ck_assert_int_ge(mono_diff((mono_t){ now }, before), (int64_t)S);

	used = value(entry, SAMPLE_CPU);
	child_do(&child, 'b');
	ck_assert_int_eq(fill(&bench, now += S / 100, entry), SOURCE_CHANGED);
	ck_assert_uint_ge(value(entry, SAMPLE_CPU), used + BURNT_NS);
	drop(&bench, entry);
	bench_close(&bench);
	drop_tree(mounts);
	child_reap(&child);
}
END_TEST

/* ---- the same of a real cgroup ---- */

#define SHARED_BYTES ((size_t)8 << 20)

static struct own_cgroups own;

static void setup_own(void)
{
	own_cgroups_make(&own, "source");
}

static void teardown_own(void)
{
	own_cgroups_remove(&own);
}

/* Stops; each time that it goes on it touches all of the memory and stops again. */
static pid_t start_toucher(char *memory)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid > 0) {
		ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		raise(SIGSTOP);
		explicit_bzero(memory, SHARED_BYTES);
	}
}

static void touch_again(pid_t pid)
{
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
}

/* Looks until three in a row found nothing new. */
static void look_until_still(struct bench *bench, struct source_entry *entry, uint64_t *now)
{
	for (int still = 0, looks = 0; still < 3; looks++) {
		ck_assert_int_lt(looks, 1000);
		still = fill(bench, *now += CGROUP_INTERVAL, entry) == SOURCE_SAME ? still + 1 : 0;
	}
}

/*
 * Memory of a cgroup is given back without it: that is seen at the heartbeat, and at once when it runs. _i:
 * behind the counter of the cgroup above it.
 */
START_TEST(a_real_cgroup_that_has_not_run_is_read_when_it_runs_and_at_heartbeats)
{
	const int shared = MAP_SHARED | MAP_ANONYMOUS;
	char *memory = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, shared, -1, 0), path[80];
	struct source_options options = { .cgroup_interval_ns = CGROUP_INTERVAL, .heartbeat_ns = 100000 * S };
	struct source_entry *entry = NULL;
	struct source_gate *gate = NULL;
	struct cgroup_mounts *mounts;
	struct bench bench;
	uint64_t now = 1000, held, used;
	pid_t pid;

	if (own.count == 0 || own_cgroups_add(&own, _i ? "below" : "alone") < 0)
		SKIP_TEST("no cgroups of our own");
	ck_assert_ptr_ne(memory, MAP_FAILED);
	snprintf(path, sizeof(path), "%s/%s", own.name, _i ? "below" : "alone");
	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	bench_open(&bench, "/proc", options);
	ck_assert_int_eq(source_entry_cgroup(mounts, path, NULL, &entry), 0);
	if (_i) {
		ck_assert_int_eq(source_gate_new(mounts, own.name, &gate), 0);
		source_entry_set_gate(entry, gate);
		source_gate_drop(gate);
	}
	ck_assert_int_eq(source_add(bench.source, entry, NULL), 0);
	pid = start_toucher(memory);
	own_cgroups_join(&own, _i ? "below" : "alone", pid);
	look_until_still(&bench, entry, &now);
	used = value(entry, SAMPLE_CPU);
	touch_again(pid);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_CHANGED);
	ck_assert_uint_gt(value(entry, SAMPLE_CPU), used);
	if (!has(entry, SAMPLE_MEMORY))
		SKIP_TEST("its memory is not known here");
	look_until_still(&bench, entry, &now);
	held = value(entry, SAMPLE_MEMORY);
	ck_assert_uint_ge(held, SHARED_BYTES / 2);

	ck_assert_int_eq(madvise(memory, SHARED_BYTES, MADV_REMOVE), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_SAME);
	ck_assert_uint_eq(value(entry, SAMPLE_MEMORY), held);
	ck_assert_int_eq(fill(&bench, now += 800000 * S, entry), SOURCE_CHANGED);
	ck_assert_uint_le(value(entry, SAMPLE_MEMORY), held - SHARED_BYTES / 2);

	look_until_still(&bench, entry, &now);
	touch_again(pid);
	ck_assert_int_eq(fill(&bench, now += CGROUP_INTERVAL, entry), SOURCE_CHANGED);
	ck_assert_uint_ge(value(entry, SAMPLE_MEMORY), SHARED_BYTES / 2);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	drop(&bench, entry);
	bench_close(&bench);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(looks_at_cgroups_are_spread_over_the_fills)
{
	struct bench bench;
	struct cgroup_mounts *mounts = make_tree();
	struct source_entry *entries[50];
	uint64_t now = 100 * S;

	bench_open(&bench, "tests/data/proc",
		   (struct source_options){ .capacity = 50, .cgroup_interval_ns = S / 10, .interval_ns = S / 100 });
	for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
		ck_assert_int_eq(source_entry_cgroup(mounts, "/pods/one", NULL, &entries[i]), 0);
		ck_assert_int_eq(source_add(bench.source, entries[i], NULL), 0);
	}
	for (int tick = 0; tick < 60; tick++) {
		unsigned looked = 0;

		bench.at.ns = now += S / 100;
		source_fill(bench.source, (mono_t){ now });
		for (size_t i = 0; i < ARRAY_LEN(entries); i++)
			looked += source_entry_at(entries[i]).ns >= now;
		if (tick >= 20)
			ck_assert(looked >= 1 && looked <= 15);
	}
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		drop(&bench, entries[i]);
	bench_close(&bench);
	drop_tree(mounts);
}
END_TEST

START_TEST(a_fill_allocates_nothing)
{
	struct bench bench;
	struct cgroup_mounts *mounts = fixture_mounts();
	struct child child = child_start();
	struct source_entry *cgroup = NULL;

	bench_open(&bench, "/proc", (struct source_options){ .fds_interval_ns = 1 });
	struct source_entry *group = add_group(&bench);
	struct source_entry *alone = add_process(&bench, child.pid, true, NULL);
	struct source_entry *member = add_process(&bench, getpid(), true, group);
	ck_assert_int_eq(source_entry_cgroup(mounts, "/tiny.slice", NULL, &cgroup), 0);
	ck_assert_int_eq(source_add(bench.source, cgroup, NULL), 0);

	unsigned long before = torture_allocations();
	for (uint64_t i = 0; i < 20; i++)
		source_fill(bench.source, (mono_t){ i * S });
	ck_assert_uint_eq(torture_allocations(), before);

	drop(&bench, alone);
	drop(&bench, member);
	drop(&bench, group);
	drop(&bench, cgroup);
	bench_close(&bench);
	child_reap(&child);
	cgroup_mounts_free(mounts);
}
END_TEST

static int make_process(struct bench *bench, struct cgroup_mounts *mounts, struct source_entry **ret)
{
	(void)mounts;
	return source_entry_process(bench->procfd, 812, 0, false, NULL, ret);
}

static int make_cgroup(struct bench *bench, struct cgroup_mounts *mounts, struct source_entry **ret)
{
	(void)bench;
	return source_entry_cgroup(mounts, "/tiny.slice", NULL, ret);
}

static int make_group(struct bench *bench, struct cgroup_mounts *mounts, struct source_entry **ret)
{
	(void)bench;
	(void)mounts;
	return source_entry_group(NULL, ret);
}

START_TEST(every_allocation_may_fail)
{
	static int (*const makers[])(struct bench *, struct cgroup_mounts *, struct source_entry **) = {
		make_process,
		make_cgroup,
		make_group,
	};
	struct cgroup_mounts *mounts = fixture_mounts();
	struct bench bench;
	bool injected = true;

	bench_open(&bench, "tests/data/proc", never_peaks);
	for (long n = 1; injected; n++) {
		struct source_entry *entry = NULL;

		torture_arm(n);
		int r = makers[_i](&bench, mounts, &entry);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		source_entry_free(entry);
	}
	bench_close(&bench);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(a_source_without_memory_is_refused)
{
	const struct clock clock = { stepping_mono, no_wall, NULL, NULL };
	const struct source_options options = { .capacity = 8 };
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct source *source = NULL;

		torture_arm(n);
		int r = source_new(&options, &clock, &source);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		source_free(source);
	}
}
END_TEST

Suite *source_suite(void)
{
	Suite *suite = suite_create("source");
	TCase *tcase = tcase_create("source"), *real = tcase_create("real");

	tcase_add_test(tcase, an_idle_process_is_read_until_it_stands_still_and_then_skipped);
	tcase_add_test(tcase, an_idle_process_is_read_at_the_heartbeat);
	tcase_add_test(tcase, without_gate_or_clock_everything_is_read);
	tcase_add_test(tcase, peaks_and_descriptors_are_read_at_intervals_if_it_ran);
	tcase_add_test(tcase, a_process_is_gone_when_it_was_reaped);
	tcase_add_test(tcase, of_one_that_ends_between_two_of_its_files_nothing_is_taken_over);
	tcase_add_test(tcase, a_pid_is_not_an_identity);
	tcase_add_test(tcase, limits_show_in_the_next_fill);
	tcase_add_test(tcase, a_group_sums_its_members_and_never_steps_back);
	tcase_add_loop_test(tcase, what_a_group_counted_beyond_an_end_is_made_up_for_by_the_next_ones, 0, 2);
	tcase_add_test(tcase, entries_come_and_go_in_any_order);
	tcase_add_test(tcase, a_full_source_takes_no_more);
	tcase_add_test(tcase, a_file_that_breaks_is_counted_and_read_again);
	tcase_add_test(tcase, a_cgroup_is_read_at_its_interval);
	tcase_add_test(tcase, a_cgroup_that_has_not_run_is_asked_for_its_usage_alone);
	tcase_add_test(tcase, cgroups_below_one_that_has_not_run_are_asked_nothing);
	tcase_add_test(tcase, processes_in_a_cgroup_that_has_not_run_are_not_asked);
	tcase_add_test(tcase, looks_at_cgroups_are_spread_over_the_fills);
	tcase_add_test(tcase, a_fill_allocates_nothing);
	tcase_add_loop_test(tcase, every_allocation_may_fail, 0, 3);
	tcase_add_test(tcase, a_source_without_memory_is_refused);
	suite_add_tcase(suite, tcase);
	tcase_add_unchecked_fixture(real, setup_own, teardown_own);
	tcase_add_loop_test(real, a_real_cgroup_that_has_not_run_is_read_when_it_runs_and_at_heartbeats, 0, 2);
	suite_add_tcase(suite, real);

	return suite;
}
