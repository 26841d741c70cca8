/*
 * check_capture.c: evidence from fixtures of two moments, from processes that vanish, and from this
 * very process.
 */
#include "daemon/engine/incident/capture.c"

#include "lib/base/io.h"
#include "lib/stream/stream.h"
#include "lib/base/base.h"
#include "torture.h"
#include "daemon/engine/targets/baseline.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/proc/procfs.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA "tests/data/capture/"

static const mono_t before = { 100 * NS_PER_S }, now = { 101 * NS_PER_S };

static char directory[64];
static int outfd, beforefd, nowfd;
static struct thread_baseline threads;
static struct maps_snapshot *maps;
static struct busy_snapshot busy;
static struct capture_member members[3];
static struct capture_context context;
static struct incident_capture record;
static struct cgroup_limits limits;
static struct target target;
static struct cgroup_mounts *mounts;

static mono_t fixed_mono(void *ctx)
{
	(void)ctx;
	return now;
}

static wall_t fixed_wall(void *ctx)
{
	(void)ctx;
	return (wall_t){ 0 };
}

static const struct clock stopped = { fixed_mono, fixed_wall, NULL, NULL };

static int add_busy(void *ctx, const struct procfs_stat *stat)
{
	baseline_met(ctx, stat);

	return 0;
}

/* As a scan of that /proc leaves it. */
static void snapshot_busy(int procfd, mono_t at)
{
	struct baseline *baseline;

	ck_assert_int_eq(baseline_new(procfd, false, NULL, &baseline), 0);
	baseline_scan_begin(baseline, at);
	ck_assert_int_eq(busy_snapshot_scan(procfd, add_busy, baseline), 0);
	baseline_scan_end(baseline);
	ck_assert_int_eq(baseline_copy_busy(baseline, &busy), 0);
	baseline_free(baseline);
}

static void setup(void)
{
	struct thread_snapshot *snapshot;

	snprintf(directory, sizeof(directory), "/tmp/check_capture.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	outfd = open(directory, O_RDONLY | O_DIRECTORY);
	beforefd = open(DATA "proc-before", O_RDONLY | O_DIRECTORY);
	nowfd = open(DATA "proc-now", O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(beforefd, 0);
	ck_assert_int_ge(nowfd, 0);

	threads = (struct thread_baseline){ 0 };
	ck_assert_int_eq(thread_snapshot_take(beforefd, 1234, 5678, before, &snapshot), 0);
	threads.newer = snapshot;
	ck_assert_int_eq(maps_snapshot_take(FOREIGN_INCIDENTS, beforefd, 1234, 5678, before, NS_PER_S, &maps), 0);
	snapshot_busy(beforefd, before);
	ck_assert_int_eq(cgroup_mounts_new(DATA "proc-now", DATA "cgroup", &mounts), 0);

	target = (struct target){ .id = 1,
				  .kind = TARGET_PROCESS,
				  .pid = 1234,
				  .entry = "e",
				  .name = "e/1234",
				  .key = "k",
				  .comm = "c",
				  .cmdline = "c",
				  .cgroup = "/box" };
	limits = (struct cgroup_limits){
		.cpu = 1500000000, .memory_bytes = 8388608, .cpu_is_machine = true, .memory_from = "/b\x1box"
	};
	members[0] = (struct capture_member){ 1234, 5678, &threads, maps };
	members[1] = (struct capture_member){ 0 };
	context = (struct capture_context){ .procfd = nowfd,
					    .clock = &stopped,
					    .mounts = mounts,
					    .target = &target,
					    .limits = &limits,
					    .members = members,
					    .member_count = 1,
					    .busy = &busy,
					    .cpu_end_ns = UINT64_MAX };
}

static void teardown(void)
{
	thread_baseline_release(&threads);
	free(maps);
	busy_snapshot_release(&busy);
	cgroup_mounts_free(mounts);
	close(beforefd);
	close(nowfd);
	close(outfd);
	ck_assert_int_eq(directory_tree_remove(AT_FDCWD, directory), 0);
}

/* Takes it and saves it: an error of either. *ret: the record as it is in the incident. */
static int run_one(enum config_capture which, int dirfd, struct incident_capture *ret)
{
	static struct incident incident;
	static struct capture_files files;
	size_t i = 0;
	int r;

	while (capture_table[i].which != which)
		i++;
	r = run_capture(&context, &capture_table[i], &files.files[0]);
	files.count = 1;
	incident.capture_count = 0;
	capture_save(&files, dirfd, &incident);
	*ret = incident.captures[0];

	return r;
}

/* Runs a capture that works; its file as text, for free(3). */
static char *run(enum config_capture which)
{
	char *text;
	ssize_t len;
	int fd;

	ck_assert_int_eq(run_one(which, outfd, &record), 0);
	ck_assert_msg(record.status == INCIDENT_CAPTURE_OK, "%s", record.why);
	fd = openat(outfd, record.file, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	text = calloc(1, record.bytes + 1);
	len = read(fd, text, record.bytes + 1);
	ck_assert_int_eq(len, (ssize_t)record.bytes);
	close(fd);
	for (ssize_t i = 0; i < len; i++)
		ck_assert_msg((unsigned char)text[i] >= 0x20 || text[i] == '\n' || text[i] == '\t', "byte %zd", i);
	return text;
}

static void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "%s\nis not in:\n%s", part, text);
}

static void lacks(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) == NULL, "%s\nis in:\n%s", part, text);
}

START_TEST(threads_are_compared_with_a_second_ago)
{
	char *text = run(CONFIG_CAPTURE_THREADS);

	ck_assert_str_eq(record.file, "threads.tsv");
	has(text,
	    "remark\n1234\t1235\tworker\tR\t750.000\t75.0\t600\t100\t150.000\t100\t1000\t\n"); /* the busiest is first */
	has(text, "\n1234\t1236\tfresh\tR\t205.000\t20.5\t100\t100\t0.000\t795\t1000\tnew\n"); /* not the old 1236 */
	has(text,
	    "\n1234\t1234\tev\\x1b[2J) R\tS\t0.000\t0.0\t0\t0\t\t\t1000\t\n"); /* how long it waited is not told */
	free(text);
}
END_TEST

START_TEST(threads_without_baseline_say_so)
{
	char *text;

	members[0].threads = NULL;
	text = run(CONFIG_CAPTURE_THREADS);
	has(text, "\n1234\t1235\tworker\tR\t3250.000\t\t2600\t600\t550.000\t\t\tsince its start: no baseline\n");
	free(text);
}
END_TEST

/* The same processes on a machine that has just begun. For close(2). */
static int machine_up_for(const char *uptime)
{
	char command[256], path[128];
	FILE *file;

	snprintf(command, sizeof(command), "cp -r " DATA "proc-now/1234 %s/", directory);
	ck_assert_int_eq(system(command), 0);
	snprintf(path, sizeof(path), "%s/uptime", directory);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(uptime, file);
	ck_assert_int_eq(fclose(file), 0);
	return open(directory, O_RDONLY | O_DIRECTORY);
}

START_TEST(threads_of_a_young_process_are_compared_with_nothing)
{
	AUTO_CLOSE int young = machine_up_for("60.99 9.00\n");
	char *text;

	members[0].threads = NULL;
	context.procfd = young;
	text = run(CONFIG_CAPTURE_THREADS);
	has(text, "remark\n1234\t1235\tworker\tR\t3250.000\t77.4\t2600\t600\t550.000\t400\t4200\tnew\n");
	has(text, "\n1234\t1236\tfresh\tR\t205.000\t20.5\t100\t100\t0.000\t795\t1000\tnew\n");
	free(text);
}
END_TEST

START_TEST(ages_that_are_not_known_or_too_great_are_none)
{
	/* The last is older by a tick than what needs no baseline. */
	static const char *const uptimes[] = { "nonsense", "-1", "1e300", "9.00 9.00\n", "70.00 9.00\n" };

	members[0].threads = NULL;
	for (size_t i = 0; i < ARRAY_LEN(uptimes); i++) {
		AUTO_CLOSE int young = machine_up_for(uptimes[i]);
		char *text;

		context.procfd = young;
		text = run(CONFIG_CAPTURE_THREADS);
		has(text, "\n1234\t1236\tfresh\tR\t205.000\t\t100\t100\t0.000\t\t\tsince its start: no baseline\n");
		free(text);
		ck_assert_int_eq(unlinkat(outfd, record.file, 0), 0);
	}
}
END_TEST

START_TEST(the_baseline_is_old_enough_to_say_something)
{
	struct thread_baseline baseline = { 0 };
	struct thread_snapshot *snapshot;
	mono_t moment;

	ck_assert_ptr_null(thread_baseline_pick(&baseline, now, NS_PER_S, &moment));
	ck_assert_int_eq(thread_snapshot_take(beforefd, 1234, 0, (mono_t){ 90 * NS_PER_S }, &snapshot), 0);
	baseline.newer = snapshot;
	ck_assert_ptr_eq(thread_baseline_pick(&baseline, (mono_t){ 90 * NS_PER_S }, NS_PER_S, &moment), snapshot);
	/* It did not run until 99 s: that is as good as a snapshot of then. */
	baseline.newer->valid_until = (mono_t){ 99 * NS_PER_S };
	ck_assert_ptr_eq(thread_baseline_pick(&baseline, now, NS_PER_S, &moment), snapshot);
	ck_assert_uint_eq(moment.ns, 99 * NS_PER_S);
	ck_assert_ptr_eq(thread_baseline_pick(&baseline, (mono_t){ 99 * NS_PER_S }, NS_PER_S, &moment), snapshot);
	ck_assert_uint_eq(moment.ns, 98 * NS_PER_S);
	/* A newer one, too young until it is a second old. */
	ck_assert_int_eq(thread_snapshot_take(nowfd, 1234, 0, (mono_t){ 100 * NS_PER_S }, &snapshot), 0);
	baseline.older = baseline.newer;
	baseline.newer = snapshot;
	ck_assert_ptr_eq(thread_baseline_pick(&baseline, (mono_t){ 100 * NS_PER_S + 1 }, NS_PER_S, &moment),
			 baseline.older);
	ck_assert_ptr_eq(thread_baseline_pick(&baseline, now, NS_PER_S, &moment), baseline.newer);
	thread_baseline_release(&baseline);
}
END_TEST

START_TEST(status_is_harmless_to_print)
{
	char *text = run(CONFIG_CAPTURE_STATUS);

	has(text, "# /proc/1234/cmdline\nserver --name=\\x1b]0;x\\x07\\x0ab\n");
	has(text, "# /proc/1234/status\nName:\tev\\x1b[2J\nState:\tR (running)\n");
	free(text);
}
END_TEST

START_TEST(limits_say_where_they_are_from)
{
	char *text = run(CONFIG_CAPTURE_LIMITS);

	has(text, "\ncpu\t1.500 cores\tthe machine\nmemory\t8388608 bytes\tcgroup /b\\x1box\n");
	has(text, "# /proc/1234/limits\n");
	has(text, "\nMax open files ");
	free(text);
	unlinkat(outfd, "limits.txt", 0);
	members[0].pid = 4321;
	text = run(CONFIG_CAPTURE_LIMITS); /* the effective ones are known all the same */
	has(text, "# process 4321 has exited\n");
	free(text);
}
END_TEST

START_TEST(memory_that_grew_most_is_first)
{
	char *text = run(CONFIG_CAPTURE_SMAPS);

	has(text, "swap_growth_bytes\n# process 1234: growth within the last 1.0 s\n"
		  "1234\t[heap]\trw-p\t1\t20480000\t20480000\t20480000\t0\t+19456000\t+19456000\t+19456000\t+0\n"
		  "1234\t[anon]\trw-p\t2\t819200\t819200\t819200\t12288\t+102400\t+102400\t+102400\t+0\n");
	has(text, "\n1234\t/tmp/a b\\x5c012c (deleted)\tr--s\t1\t8192\t8192\t0\t0\t+8192\t+8192\t+0\t+0\n");
	has(text, "\n1234\t/usr/bin/server\tr-xp\t1\t122880\t92160\t0\t0\t+0\t+0\t+0\t+0\n");
	free(text);
}
END_TEST

START_TEST(memory_without_baseline_says_so)
{
	char *text;

	members[0].maps = NULL;
	text = run(CONFIG_CAPTURE_SMAPS);
	has(text, "# process 1234: no baseline: growth is not known, largest first\n"
		  "1234\t[heap]\trw-p\t1\t20480000\t20480000\t20480000\t0\t\t\t\t\n1234\t[anon]\t");
	free(text);
}
END_TEST

START_TEST(what_page_tables_do_not_say_is_empty)
{
	char *text;

	maps->by_pages = true;
	text = run(CONFIG_CAPTURE_SMAPS);
	has(text, "1234\t[heap]\trw-p\t1\t20480000\t20480000\t20480000\t0\t+19456000\t\t\t+0\n");
	free(text);
	unlinkat(outfd, "smaps.tsv", 0);

	maps->by_pages = false;
	maps->left_out = true;
	text = run(CONFIG_CAPTURE_SMAPS);
	has(text, "# process 1234: no baseline, since it has more memory than can be read in passing:");
	has(text, "1234\t[heap]\trw-p\t1\t20480000\t20480000\t20480000\t0\t\t\t\t\n");
	free(text);
}
END_TEST

START_TEST(a_large_process_is_not_read_by_smaps)
{
	size_t bytes = 48u << 20;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct capture_member self = { .pid = getpid() };
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY);
	char expected[160], *text;

	ck_assert(memory != MAP_FAILED);
	memset(memory, 1, bytes);
	context.procfd = procfd;
	context.members = &self;
	text = run(CONFIG_CAPTURE_SMAPS);
	snprintf(expected, sizeof(expected),
		 "\n# process %d: its smaps was not read, which would have held it up: pss and private_dirty are "
		 "not known\n",
		 getpid());
	has(text, expected);
	free(text);
	munmap(memory, bytes);
	close(procfd);
}
END_TEST

START_TEST(what_the_cpu_time_does_not_allow_is_left_out_and_said)
{
	static const enum config_capture all[] = { CONFIG_CAPTURE_THREADS, CONFIG_CAPTURE_STATUS,
						   CONFIG_CAPTURE_SMAPS };

	context.cpu_end_ns = 1;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		char *text = run(all[i]);

		has(text, "# process 1234 is left out: the captures of a snapshot take at most 250 ms of CPU time\n");
		lacks(text, "\n1234\t");
		ck_assert_str_eq(record.why,
				 "in part left out: the captures of a snapshot take at most 250 ms of CPU time");
		free(text);
	}
}
END_TEST

START_TEST(cgroup_files_are_raw_with_their_paths)
{
	char *text = run(CONFIG_CAPTURE_CGROUP);

	has(text, "# cgroups: v2\n");
	has(text, "# " DATA "cgroup/box/memory.max\n8388608\n");
	has(text, "# " DATA "cgroup/box/cpu.max\nmax 100000\n");
	lacks(text, "inner");
	free(text);
}
END_TEST

START_TEST(a_cgroup_outlives_its_processes)
{
	char *text;

	members[0].pid = 4321;
	text = run(CONFIG_CAPTURE_CGROUP);
	has(text, "/box/memory.current\n4194304\n");
	free(text);
}
END_TEST

START_TEST(the_machine_in_a_page)
{
	char *text = run(CONFIG_CAPTURE_SYSTEM);

	has(text, "# /proc/loadavg\n0.52 ");
	has(text, "# /proc/pressure/cpu\nsome avg10=1.00");
	has(text, "# /proc/pressure/io: not available\n");
	has(text, "MemAvailable:\t2000000 kB\n");
	lacks(text, "Nonsense");
	has(text, "# the busiest of 3 processes within the last 1.0 s");
	has(text,
	    "cpu_percent\n77\tneighbour\tR\t1500\t150.0\n1234\tev\\x1b[2J) R\tR\t900\t90.0\n1\tinit\tS\t0\t0.0\n");
	free(text);
	unlinkat(outfd, "system.txt", 0);
	context.busy = NULL;
	text = run(CONFIG_CAPTURE_SYSTEM);
	has(text, "since each of them started: no baseline\n");
	has(text, "cpu_percent\n77\tneighbour\tR\t11500\t\n");
	free(text);
}
END_TEST

START_TEST(the_busiest_members_of_a_cgroup_are_found)
{
	const int32_t pids[] = { 1, 999999, 77, 1234 };
	struct capture_member found[CAPTURE_MEMBERS_MAX];

	ck_assert_uint_eq(choose_busiest(&context, pids, 4, found, 2), 2);
	ck_assert_int_eq(found[0].pid, 77);
	ck_assert_uint_eq(found[0].start_ticks, 700);
	ck_assert_int_eq(found[1].pid, 1234);
	target.kind = TARGET_CGROUP;
	ck_assert_uint_eq(choose_busiest(&context, NULL, 0, found, CAPTURE_MEMBERS_MAX), 2);
	ck_assert_int_eq(found[0].pid, 77); /* of the cgroup below; 999 is gone, 0 is no process */
	ck_assert_int_eq(found[1].pid, 1234);
	target.cgroup = "/nowhere";
	ck_assert_uint_eq(choose_busiest(&context, NULL, 0, found, CAPTURE_MEMBERS_MAX), 0);
}
END_TEST

/* ---- what cannot be had ---- */

static void skipped(enum config_capture which, const char *why)
{
	ck_assert_int_eq(run_one(which, outfd, &record), 0);
	ck_assert_int_eq(record.status, INCIDENT_CAPTURE_SKIPPED);
	ck_assert_str_eq(record.why, why);
	ck_assert_str_eq(record.file, "");
	ck_assert_uint_eq(record.bytes, 0);
}

START_TEST(a_vanished_process_is_skipped)
{
	members[0].pid = 4321;
	skipped(CONFIG_CAPTURE_THREADS, "target has exited");
	skipped(CONFIG_CAPTURE_STATUS, "target has exited");
	skipped(CONFIG_CAPTURE_SMAPS, "target has exited");
	members[0].pid = 1234;
	members[0].start_ticks = 1; /* its pid was reused */
	skipped(CONFIG_CAPTURE_THREADS, "target has exited");
	skipped(CONFIG_CAPTURE_STATUS, "target has exited");
	skipped(CONFIG_CAPTURE_SMAPS, "target has exited");
	context.member_count = 0;
	skipped(CONFIG_CAPTURE_STATUS, "target has exited");
}
END_TEST

START_TEST(one_of_several_members_may_vanish)
{
	char *text;

	members[1] = members[0];
	members[0] = (struct capture_member){ .pid = 4321 };
	context.member_count = 2;
	text = run(CONFIG_CAPTURE_STATUS);
	has(text, "# process 4321 has exited\n# /proc/1234/cmdline\n");
	free(text);
	text = run(CONFIG_CAPTURE_THREADS);
	has(text, "# process 4321 has exited\n");
	has(text, "\tworker\t");
	free(text);
}
END_TEST

START_TEST(what_the_system_does_not_offer_is_skipped)
{
	context.mounts = NULL;
	skipped(CONFIG_CAPTURE_CGROUP, "not offered by this system");
	members[0].pid = 77; /* the fixture has neither tasks nor smaps */
	members[0].start_ticks = 700;
	skipped(CONFIG_CAPTURE_SMAPS, "not offered by this system");
}
END_TEST

START_TEST(a_file_that_is_in_the_way_is_a_failure)
{
	char *text = run(CONFIG_CAPTURE_STATUS);

	free(text);
	ck_assert_int_eq(run_one(CONFIG_CAPTURE_STATUS, outfd, &record), 0);
	ck_assert_int_eq(record.status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record.why, "File exists");
	ck_assert_str_eq(record.name, "status");
}
END_TEST

START_TEST(every_failing_allocation_fails_one_capture_only)
{
	static const enum config_capture all[] = {
		CONFIG_CAPTURE_THREADS, CONFIG_CAPTURE_STATUS, CONFIG_CAPTURE_LIMITS,
		CONFIG_CAPTURE_CGROUP,  CONFIG_CAPTURE_SYSTEM, CONFIG_CAPTURE_SMAPS
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		bool injected = true;

		for (long n = 1; injected; n++) {
			int r;

			torture_arm(n);
			r = run_one(all[i], outfd, &record);
			injected = torture_disarm();
			/*
			 * limits has something to say all the same; smaps needs not give memory
			 * back
			 */
			if (r != 0 || (all[i] != CONFIG_CAPTURE_LIMITS && all[i] != CONFIG_CAPTURE_SMAPS))
				ck_assert_msg(r == (injected ? -ENOMEM : 0), "capture %zu, %ld: %d", i, n, r);
			if (r == 0)
				ck_assert_int_eq(unlinkat(outfd, record.file, 0), 0);
		}
	}
	ck_assert_int_eq(unlinkat(outfd, "status.txt", 0), -1); /* nothing is left of what failed */
}
END_TEST

/* ---- all together ---- */

START_TEST(all_captures_are_recorded_in_the_incident)
{
	static struct incident incident;
	struct stat st;

	static struct capture_files files;

	incident_init(&incident, "x");
	run_captures(&context, CONFIG_CAPTURE_ALL, &files);
	ck_assert_uint_gt(files.bytes, 0);
	ck_assert_int_eq(unlinkat(outfd, files.files[0].record.file, 0), -1); /* nothing is written yet */
	capture_save(&files, outfd, &incident);
	ck_assert_uint_eq(files.count + files.bytes, 0);
	ck_assert_uint_eq(incident.capture_count, 6);
	for (size_t i = 0; i < incident.capture_count; i++) {
		ck_assert_int_eq(incident.captures[i].status, INCIDENT_CAPTURE_OK);
		ck_assert_int_eq(fstatat(outfd, incident.captures[i].file, &st, 0), 0);
		ck_assert_uint_eq((uint64_t)st.st_size, incident.captures[i].bytes);
	}
	ck_assert_str_eq(incident.captures[5].name, "smaps"); /* what holds up the target is last */
}
END_TEST

START_TEST(this_process_can_be_looked_at)
{
	struct capture_member self = { .pid = getpid() };
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY);
	char expected[64], *text;

	context.procfd = procfd;
	context.members = &self;
	snprintf(expected, sizeof(expected), "\n%d\t%d\t", getpid(), getpid());
	text = run(CONFIG_CAPTURE_THREADS);
	has(text, expected);
	free(text);
	text = run(CONFIG_CAPTURE_SMAPS);
	has(text, "\t[stack]\trw");
	free(text);
	text = run(CONFIG_CAPTURE_SYSTEM);
	has(text, "MemTotal:\t");
	free(text);
	close(procfd);
}
END_TEST

/* ---- text ---- */

START_TEST(text_is_cut_at_a_line_and_says_so)
{
	struct capture_text text = { .buffer.max = 200 };
	AUTO(buffer_release) struct buffer whole = { 0 };
	char back[256] = "";

	for (int i = 0; i < 100; i++)
		capture_printf(&text, "line %d\n", i);
	ck_assert(text.cut);
	ck_assert_int_eq(capture_text_end(&text, &whole), 0);
	ck_assert_uint_le(whole.len, 200);
	memcpy(back, whole.data, whole.len);
	has(back, "\n# cut: there was more\n");
	lacks(back, "line 99");
	capture_text_release(&text);
}
END_TEST

START_TEST(long_words_are_escaped_without_splitting_characters)
{
	struct capture_text text = { .buffer.max = 100000 };
	char word[1201], *at = word;

	*at++ = 'x';
	for (int i = 0; i < 400; i++) {
		memcpy(at, "\xe2\x82\xac", 3); /* the euro sign */
		at += 3;
	}
	capture_put_word(&text, word, sizeof(word));
	ck_assert_uint_eq(text.buffer.len, sizeof(word));
	ck_assert_mem_eq(text.buffer.data, word, sizeof(word));
	capture_put_lines(&text, "a\tb\\\n\x9b", 6);
	ck_assert_mem_eq(text.buffer.data + sizeof(word), "a\tb\\x5c\n\\x9b\n", 13);
	capture_text_release(&text);
}
END_TEST

Suite *capture_suite(void);
Suite *capture_suite(void)
{
	Suite *suite = suite_create("capture");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, threads_are_compared_with_a_second_ago);
	tcase_add_test(tcase, threads_without_baseline_say_so);
	tcase_add_test(tcase, threads_of_a_young_process_are_compared_with_nothing);
	tcase_add_test(tcase, ages_that_are_not_known_or_too_great_are_none);
	tcase_add_test(tcase, the_baseline_is_old_enough_to_say_something);
	tcase_add_test(tcase, status_is_harmless_to_print);
	tcase_add_test(tcase, limits_say_where_they_are_from);
	tcase_add_test(tcase, memory_that_grew_most_is_first);
	tcase_add_test(tcase, memory_without_baseline_says_so);
	tcase_add_test(tcase, what_page_tables_do_not_say_is_empty);
	tcase_add_test(tcase, a_large_process_is_not_read_by_smaps);
	tcase_add_test(tcase, what_the_cpu_time_does_not_allow_is_left_out_and_said);
	tcase_add_test(tcase, cgroup_files_are_raw_with_their_paths);
	tcase_add_test(tcase, a_cgroup_outlives_its_processes);
	tcase_add_test(tcase, the_machine_in_a_page);
	tcase_add_test(tcase, the_busiest_members_of_a_cgroup_are_found);
	tcase_add_test(tcase, a_vanished_process_is_skipped);
	tcase_add_test(tcase, one_of_several_members_may_vanish);
	tcase_add_test(tcase, what_the_system_does_not_offer_is_skipped);
	tcase_add_test(tcase, a_file_that_is_in_the_way_is_a_failure);
	tcase_add_test(tcase, every_failing_allocation_fails_one_capture_only);
	tcase_add_test(tcase, all_captures_are_recorded_in_the_incident);
	tcase_add_test(tcase, this_process_can_be_looked_at);
	tcase_add_test(tcase, text_is_cut_at_a_line_and_says_so);
	tcase_add_test(tcase, long_words_are_escaped_without_splitting_characters);
	suite_add_tcase(suite, tcase);
	return suite;
}
