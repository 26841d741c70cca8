/*
 * check_stack_capture.c: the stacks of real incidents of a workload whose answer is known, taken by
 * the real daemon; and symbolisers that fail. Without permission to use perf, or without the
 * programs, the tests say so and pass.
 */
#include "daemon/engine/stacks/stack_capture.c"

#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"
#include "stacks_rig.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/incident/incident.h"
#include "lib/model/pacing.h"
#include "lib/profile/stack_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

Suite *stack_capture_suite(void);

static struct stacks_rig rig;
static bool able;

static void setup(void)
{
	able = stacks_rig_init(&rig);
}

static void teardown(void)
{
	stacks_rig_release(&rig);
}

/* By frame pointers alone. */
static void burn(const char *what, const char *cpu_ms)
{
	const char *arguments[] = { rig.workload, what, cpu_ms, NULL };

	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, "{\"mode\": \"frame-pointers\"}", "[]");
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
}

static unsigned long samples_of(const char *function)
{
	return stacks_rig_function(&rig, "functions.tsv", function).self;
}

START_TEST(the_shares_of_two_functions_are_those_that_they_had)
{
	if (!able)
		SKIP_TEST("%s", skip_reason);

	burn("shares", "3000");

	double seventy = (double)samples_of("burn_seventy"), all = seventy + (double)samples_of("burn_thirty");

	/*
	 * Three seconds of CPU time are 297 samples, and some are in other functions. On a CPU that
	 * others use it is chance which of them is sampled: five standard deviations are 87; and a
	 * virtual CPU may be taken away for a while.
	 */
	ck_assert_msg(all > 150 && all < 600, "%.0f samples of 3 s of CPU time at 99 Hz", all);
	/* Five standard deviations. */
	ck_assert_msg(fabs(seventy / all - 0.7) < 5 * sqrt(0.7 * 0.3 / all), "%.0f of %.0f", seventy, all);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(a_burst_that_was_over_before_anybody_asked_is_there)
{
	if (!able)
		SKIP_TEST("%s", skip_reason);

	burn("burst", "200");
	ck_assert_uint_gt(samples_of("burn_burst"), 0); /* of 20 */
	ck_assert_uint_eq(STACKS_RIG_FOLDED(&rig, "cpu.folded", rig.name, "burn_seventy"), 0);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(the_incident_is_whole_and_lists_its_profile)
{
	struct incident incident;
	size_t found = 0;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	burn("burst", "200");

	int fd = open(rig.incident, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(fd, &incident), 0);
	for (size_t i = 0; i < incident.capture_count; i++)
		if (incident.captures[i].status == INCIDENT_CAPTURE_OK && incident.captures[i].bytes > 0)
			found += strcmp(incident.captures[i].file, "cpu.pb.gz") == 0 ||
				 strcmp(incident.captures[i].file, "cpu.folded") == 0 ||
				 strcmp(incident.captures[i].file, "functions.tsv") == 0;
	ck_assert_uint_eq(found, 3);
	close(fd);
	stacks_rig_end(&rig);
}
END_TEST

/* Until there are samples for sure: 25 of them, if chance decides what is sampled. */
static __attribute__((noipa)) void burn_here(void)
{
	clock_t until = clock() + CLOCKS_PER_SEC / 4;

	while (clock() < until)
		for (unsigned i = 0; i < 1000000; i++)
			__asm__ volatile("" ::: "memory");
}

/* The same, under a name of its own. */
static __attribute__((noipa)) void burn_too_late(void)
{
	clock_t until = clock() + CLOCKS_PER_SEC / 4;

	while (clock() < until)
		for (unsigned i = 0; i < 1000000; i++)
			__asm__ volatile("" ::: "memory");
}

static bool mentions(int dirfd, const char *name, const char *what)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	AUTO(buffer_release) struct buffer text = { 0 };
	char piece[4096];
	ssize_t len;

	ck_assert_int_ge(fd, 0);
	while ((len = read(fd, piece, sizeof(piece))) > 0)
		ck_assert_int_eq(buffer_append(&text, piece, (size_t)len), 0);
	return memmem(text.data, text.len, what, strlen(what)) != NULL;
}

/* Commands and a second snapshot can delay the writing for as long as they like. */
START_TEST(a_profile_ends_where_the_incident_ends)
{
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder *recorder;
	struct clock clock = real_clock();
	struct incident info;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	incident_init(&info, "0");

	struct stack_capture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.symbolizer = rig.symbolizer,
		.before_ns = NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
	};

	burn_here();
	options.until = clock_mono(&clock);
	burn_too_late();
	struct stack_capture *capture = stack_capture_secure(&options, &info);

	ck_assert_ptr_nonnull(capture);
	burn_too_late();
	stack_capture_write(capture, &(struct stack_capture_members){ .everyone = true }, dirfd, NULL, &info);
	ck_assert_int_eq(info.captures[0].status, INCIDENT_CAPTURE_OK);
	ck_assert(mentions(dirfd, "functions.tsv", "burn_here"));
	ck_assert(!mentions(dirfd, "functions.tsv", "burn_too_late"));
	ck_assert(!mentions(dirfd, "cpu.folded", "burn_too_late"));
	stack_recorder_close(recorder);
	close(procfd);
	close(dirfd);
}
END_TEST

/* ---- symbolisers that fail ---- */

static void fails_with(const char *symbolizer, const char *why)
{
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX], left[128];
	struct stack_recorder *recorder;
	struct clock clock = real_clock();
	struct incident info;
	int symbols = -1;
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	incident_init(&info, "0");

	struct stack_capture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.kernel_symbols = &symbols,
		.symbolizer = symbolizer,
		.before_ns = NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
	};
	struct stack_capture *capture = stack_capture_secure(&options, &info);

	ck_assert_ptr_nonnull(capture);
	stack_capture_prepare(capture, -1);
	int listed = symbols;
	char line[64] = "";
	ck_assert_int_ge(listed, 0);
	ck_assert_int_gt(pread(listed, line, sizeof(line) - 1, 0), 20);
	ck_assert_uint_gt(strspn(line, "0123456789abcdef"), 7); /* "ffffffff81000000 T _text" */
	stack_capture_prepare(capture, -1);
	ck_assert_int_eq(symbols, listed);

	ck_assert_ptr_nonnull(capture);
	stack_capture_write(capture, &(struct stack_capture_members){ .everyone = true }, dirfd, NULL, &info);
	ck_assert_uint_eq(info.capture_count, 1);
	ck_assert_int_eq(info.captures[0].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_msg(strstr(info.captures[0].why, why), "%s", info.captures[0].why);
	ck_assert_str_eq(info.captures[0].file, "");
	snprintf(left, sizeof(left), "%s/cpu.pb.gz", rig.directory);
	ck_assert_int_lt(access(left, F_OK), 0);
	stack_recorder_close(recorder);
	close(symbols);
	close(procfd);
	close(dirfd);
}

START_TEST(a_symboliser_that_fails_costs_the_stacks_and_nothing_else)
{
	char killed[128];

	if (!able)
		SKIP_TEST("%s", skip_reason);

	fails_with("/bin/false", "failed with 1");
	fails_with("/proc/nonexistent/symboliser", "No such file or directory");
	snprintf(killed, sizeof(killed), "%s/killed", rig.directory);
	scene_write(killed, "#!/bin/sh\nkill -SEGV $$\n");
	ck_assert_int_eq(chmod(killed, 0755), 0);
	fails_with(killed, "signal 11");
}
END_TEST

/* Files that it reads kill it: the second time it is told to read none. */
START_TEST(a_symboliser_that_is_killed_by_what_it_reads_costs_the_names)
{
	char script[128];
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder *recorder;
	struct clock clock = real_clock();
	struct incident info;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	incident_init(&info, "0");
	snprintf(script, sizeof(script), "%s/killed", rig.directory);
	scene_write(script,
		    "#!/bin/sh\nfor word; do case $word in\n--raw) exec '%s' \"$@\";;\n"
		    "--pprof=*) echo torn >/proc/self/fd/${word#--pprof=};;\nesac; done\nkill -SEGV $$\n",
		    rig.symbolizer);
	ck_assert_int_eq(chmod(script, 0755), 0);

	struct stack_capture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.symbolizer = script,
		.before_ns = NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
	};
	struct stack_capture *capture = stack_capture_secure(&options, &info);
	char head[2] = "";

	ck_assert_ptr_nonnull(capture);
	burn_here();
	stack_capture_write(capture, &(struct stack_capture_members){ .everyone = true }, dirfd, NULL, &info);
	ck_assert_uint_ge(info.capture_count, 3);
	ck_assert_str_eq(info.captures[0].name, "stacks");
	ck_assert_int_eq(info.captures[0].status, INCIDENT_CAPTURE_OK);
	ck_assert_msg(strstr(info.captures[0].why, "no names: the symboliser was ended by signal 11"), "%s",
		      info.captures[0].why);

	int profile = openat(dirfd, "cpu.pb.gz", O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(read(profile, head, sizeof(head)), 2);
	ck_assert_msg(head[0] == '\x1f' && head[1] == '\x8b', "what the first attempt left is still there");
	close(profile);
	stack_recorder_close(recorder);
	close(procfd);
	close(dirfd);
}
END_TEST

/* ---- while it runs ---- */

struct patience {
	unsigned asked, enough;
};

static const char *until_enough(void *ctx)
{
	struct patience *patience = ctx;

	return ++patience->asked < patience->enough ? NULL : "it was enough";
}

static void have_stopped(const char *symbolizer, unsigned enough)
{
	struct patience patience = { .enough = enough };
	const struct symbolizer_waiting waiting = { until_enough, NULL, &patience };
	struct stack_bundle *bundle = calloc(1, sizeof *bundle);
	struct symbolizer_job job = { .program = symbolizer, .bundle = bundle, .waiting = &waiting };
	char why[160];

	ck_assert_ptr_nonnull(bundle);
	job.stack_file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	for (size_t i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		job.outputs[i] = -1;
	ck_assert_int_eq(symbolizer_run(&job, NULL, why, sizeof(why)), 1);
	ck_assert_str_eq(why, "it was enough");
	ck_assert_uint_eq(patience.asked, enough);
	close(job.stack_file);
	free(bundle);
}

START_TEST(a_symboliser_ends_when_the_daemon_does)
{
	char hangs[128], witness[160];

	snprintf(hangs, sizeof(hangs), "%s/hangs", rig.directory);
	scene_write(hangs, "#!/bin/sh\n: >%s/started\nkill -STOP $$\n", rig.directory);
	ck_assert_int_eq(chmod(hangs, 0755), 0);
	snprintf(witness, sizeof(witness), "%s/started", rig.directory);

	have_stopped(hangs, 1);
	ck_assert_msg(access(witness, F_OK) < 0, "started although there was no time");
	have_stopped(hangs, 3);
}
END_TEST

/* ---- what waits ---- */

/* A look while others hold so much of the rings; what the incident says of it. */
static void look_beside(struct stack_recorder *recorder, size_t others, struct incident *info)
{
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct clock clock = real_clock();
	struct stack_held held = { .bytes = others, .copies = others > 0 };

	incident_init(info, "0");

	struct stack_capture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.symbolizer = rig.symbolizer,
		.before_ns = NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
		.held = &held,
	};
	struct stack_capture *capture = stack_capture_secure(&options, info);

	ck_assert_ptr_nonnull(capture);
	if (others == 0)
		ck_assert_uint_gt(held.bytes, 0);
	burn_here();
	stack_capture_write(capture, &(struct stack_capture_members){ .everyone = true }, dirfd, NULL, info);
	ck_assert_uint_eq(held.bytes, others);
	for (size_t i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		unlinkat(dirfd, symbolizer_outputs[i].file, 0);
	close(procfd);
	close(dirfd);
}

START_TEST(where_others_hold_all_there_is_the_past_is_left_out_and_that_is_said)
{
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder *recorder;
	struct incident info;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	burn_here();
	look_beside(recorder, 0, &info);
	ck_assert_str_eq(info.captures[0].name, "stacks");
	ck_assert_msg(!strstr(info.captures[0].why, "found no room"), "%s", info.captures[0].why);
	look_beside(recorder, SIZE_MAX, &info);
	ck_assert_str_eq(info.captures[0].name, "stacks");
	ck_assert_msg(strstr(info.captures[0].why, "bytes of samples found no room"), "%s", info.captures[0].why);
	stack_recorder_close(recorder);
}
END_TEST

/* The samples of a copy that an owner gets beside `copies` of another; bytes. */
static size_t bytes_beside(struct stack_recorder *recorder, unsigned copies, uint64_t owner)
{
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stack_capture *captures[8];
	struct stack_held held = { 0 };
	struct clock clock = real_clock();
	size_t bytes = 0;
	char cgroup[16];

	ck_assert_uint_lt(copies, 8);
	for (unsigned i = 0; i <= copies; i++) {
		struct stack_capture_options options = {
			.recorder = recorder,
			.procfd = procfd,
			.symbolizer = rig.symbolizer,
			.before_ns = NS_PER_S,
			.fired = clock_mono(&clock),
			.wall = clock_wall(&clock),
			.cgroup = cgroup, /* another each time: none can be shared */
			.held = &held,
			.owner = i < copies ? 1 : owner,
		};
		struct incident info;

		incident_init(&info, "0");
		snprintf(cgroup, sizeof cgroup, "/none%u", i);
		bytes = held.bytes;
		captures[i] = stack_capture_secure(&options, &info);
		ck_assert_ptr_nonnull(captures[i]);
		bytes = held.bytes - bytes;
	}
	ck_assert_uint_eq(held.copies, copies + 1);
	for (unsigned i = 0; i <= copies; i++)
		stack_capture_free(captures[i]);
	ck_assert_uint_eq(held.bytes, 0);
	ck_assert_ptr_null(held.all);
	close(procfd);
	return bytes;
}

START_TEST(many_copies_of_one_owner_leave_room_for_another)
{
	/* Rings that a second of one busy CPU fills beyond a 64th of the whole. */
	struct stack_recorder_options how = { .max_memory_bytes = 1 << 20, .frequency = 2000, .dwarf = true };
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder *recorder;
	size_t own, others;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	burn_here();
	burn_here();
	own = bytes_beside(recorder, 7, 1);
	others = bytes_beside(recorder, 7, 2);
	stack_recorder_close(recorder);
	ck_assert_uint_gt(others, 2 * own);
}
END_TEST

#define STORM 6

START_TEST(incidents_of_a_storm_share_what_the_rings_held)
{
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stack_capture *captures[STORM];
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX], path[200];
	struct clock clock = real_clock();
	struct stack_held held = { 0 };
	struct stack_recorder *recorder;
	struct stat st;
	size_t bytes = 0;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	burn_here();
	for (unsigned i = 0; i < STORM; i++) {
		struct stack_capture_options options = {
			.recorder = recorder,
			.procfd = procfd,
			.symbolizer = rig.symbolizer,
			.before_ns = NS_PER_S,
			.fired = clock_mono(&clock),
			.wall = clock_wall(&clock),
			.cgroup = i == STORM - 1 ? "/none" : NULL,
			.held = &held,
		};
		struct incident info;

		incident_init(&info, "0");
		captures[i] = stack_capture_secure(&options, &info);
		ck_assert_ptr_nonnull(captures[i]);
		if (i == 0)
			bytes = held.bytes;
	}
	ck_assert_uint_gt(bytes, 0);
	/* The last asks for another cgroup. A machine that takes a second for all of this may need more. */
	ck_assert_uint_eq(held.captures, STORM);
	ck_assert_uint_lt(held.copies, STORM - 1);
	ck_assert_uint_ge(held.copies, 2);

	/* Compressed, where there is enough of it to be worth while. */
	for (unsigned i = 0; i < STORM; i++)
		stack_capture_prepare(captures[i], -1);
	if (bytes >= 65536)
		ck_assert_uint_lt(held.bytes, bytes);

	/* Whichever goes first, each of the others is whole. */
	stack_capture_free(captures[0]);
	for (unsigned i = 1; i < STORM; i++) {
		int dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct incident info;

		incident_init(&info, "0");
		burn_here();
		stack_capture_write(captures[i], &(struct stack_capture_members){ .everyone = true }, dirfd, NULL,
				    &info);
		ck_assert_uint_eq(held.captures, STORM - 1 - i);
		snprintf(path, sizeof(path), "%s/%s", rig.directory, symbolizer_outputs[0].file);
		ck_assert_msg(stat(path, &st) == 0 && st.st_size > 0, "%u: %s", i, info.captures[0].why);
		for (size_t o = 0; o < SYMBOLIZER_OUTPUTS; o++)
			unlinkat(dirfd, symbolizer_outputs[o].file, 0);
		close(dirfd);
	}
	ck_assert_uint_eq(held.bytes, 0);
	ck_assert_uint_eq(held.copies, 0);
	ck_assert_ptr_null(held.all);
	stack_recorder_close(recorder);
	close(procfd);
}
END_TEST

/* So many captures, until it is freed. */
struct crowd {
	struct stack_recorder *recorder;
	struct stack_capture *captures[STORM];
	struct stack_held held;
	mono_t now; /* for all of them: some time passes between one and the next */
	int procfd;
};

/* One that fired so many ms ago, and ended half of that ago. */
static void join_crowd(struct crowd *crowd, unsigned nth, unsigned ago_ms, const char *cgroup)
{
	struct clock clock = real_clock();
	struct stack_capture_options options = {
		.recorder = crowd->recorder,
		.procfd = crowd->procfd,
		.symbolizer = rig.symbolizer,
		.before_ns = NS_PER_S,
		.fired = mono_sub(crowd->now, ago_ms * NS_PER_MS),
		.until = mono_sub(crowd->now, ago_ms / 2 * NS_PER_MS),
		.wall = clock_wall(&clock),
		.cgroup = cgroup,
		.held = &crowd->held,
	};
	struct incident info;

	incident_init(&info, "0");
	crowd->captures[nth] = stack_capture_secure(&options, &info);
	ck_assert_ptr_nonnull(crowd->captures[nth]);
}

static void begin_crowd(struct crowd *crowd)
{
	struct stack_recorder_options how = { .frequency = 2000 };
	struct clock clock = real_clock();
	char reason[STACK_RECORDER_REASON_MAX];

	*crowd = (struct crowd){ .procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	ck_assert_int_eq(stack_recorder_open(&how, &crowd->recorder, reason), 0);
	for (int i = 0; i < 3; i++)
		burn_here();
	crowd->now = clock_mono(&clock);
}

static void end_crowd(struct crowd *crowd)
{
	for (unsigned i = 0; i < STORM; i++)
		stack_capture_free(crowd->captures[i]);
	ck_assert_uint_eq(crowd->held.bytes, 0);
	ck_assert_ptr_null(crowd->held.all);
	stack_recorder_close(crowd->recorder);
	close(crowd->procfd);
}

START_TEST(firings_that_wait_for_their_turn_share_as_well)
{
	struct crowd crowd;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	/* Four seconds late, and not in the order of their firings. */
	begin_crowd(&crowd);
	for (unsigned i = 0; i < STORM; i++)
		join_crowd(&crowd, i, 4000 + 20 * (i % 2), NULL);
	ck_assert_uint_eq(crowd.held.captures, STORM);
	ck_assert_uint_eq(crowd.held.copies, 1);
	end_crowd(&crowd);
}
END_TEST

START_TEST(copies_are_compressed_before_there_is_another)
{
	struct crowd crowd;
	size_t one = 0;
	char cgroup[16];

	if (!able)
		SKIP_TEST("%s", skip_reason);

	begin_crowd(&crowd);
	for (unsigned i = 0; i < STORM; i++) {
		snprintf(cgroup, sizeof cgroup, "/none%u", i);
		join_crowd(&crowd, i, 0, cgroup);
		one = i == 0 ? crowd.held.bytes : one;
	}
	ck_assert_uint_eq(crowd.held.copies, STORM);
	ck_assert_uint_gt(one, 65536);
	ck_assert_uint_lt(crowd.held.bytes, STORM / 2 * one);

	/* They are whole again in what is written: the busy function of before. */
	int dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct incident info;

	incident_init(&info, "0");
	stack_capture_write(TAKE(crowd.captures[0]), &(struct stack_capture_members){ .everyone = true }, dirfd, NULL,
			    &info);
	ck_assert(mentions(dirfd, "functions.tsv", "burn_here"));
	close(dirfd);
	end_crowd(&crowd);
}
END_TEST

/* One owner after the other has half of what is left, however many captures they have. */
START_TEST(copies_of_files_are_shared_out_by_owner)
{
	struct stack_held held = { 0 };
	struct stack_capture captures[6] = { 0 };
	const size_t most[ARRAY_LEN(captures)] = { COPIED_MAX / 2, 0, COPIED_MAX / 4, COPIED_MAX / 8, 0, 0 };
	const uint64_t owners[ARRAY_LEN(captures)] = { 1, 1, 2, 3, 1, 2 };

	for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
		captures[i].options = (struct stack_capture_options){ .held = &held, .owner = owners[i] };
		list_files(&captures[i]);
		limit_copies(&captures[i]);
		ck_assert_uint_eq(captures[i].bundle.copied_max, most[i]);
		captures[i].bundle.copied = most[i];
	}
	unlist_files(&captures[0]);
	limit_copies(&captures[1]);
	ck_assert_uint_eq(captures[1].bundle.copied_max, (COPIED_MAX - COPIED_MAX / 4 - COPIED_MAX / 8) / 2);
	for (size_t i = 1; i < ARRAY_LEN(captures); i++)
		unlist_files(&captures[i]);
	ck_assert_ptr_null(held.with_files);
}
END_TEST

/* Looking for one that is not there takes three questions to a child, each time. */
START_TEST(a_file_that_was_not_found_is_looked_for_again_with_another_process)
{
	AUTO_FREE struct stack_bundle *bundle = calloc(1, sizeof *bundle);
	char path[128];
	struct stack_recorder_file file = { .pid = (uint32_t)getpid(), .path = path, .file = { .build_id_len = 20 } };
	const struct stack_recorder_snapshot snapshot = { .files = &file, .file_count = 1 };
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	snprintf(path, sizeof path, "/tmp/spikewatch-absent-%d", getpid());
	ck_assert_ptr_nonnull(bundle);
	stack_bundle_add(bundle, procfd, &snapshot, 1);
	ck_assert_uint_eq(bundle->count, 1);
	ck_assert_int_eq(bundle->entries[0].binary.fd, -1);
	scene_write(path, "here");
	stack_bundle_add(bundle, procfd, &snapshot, 1);
	ck_assert_int_eq(bundle->entries[0].binary.fd, -1);
	file.pid = (uint32_t)getppid();
	stack_bundle_add(bundle, procfd, &snapshot, 1);
	ck_assert_int_ge(bundle->entries[0].binary.fd, 0);
	unlink(path);
	stack_bundle_close(bundle);
	close(procfd);
}
END_TEST

/* ---- the early symboliser ---- */

struct early_scene {
	struct stack_recorder *recorder;
	int procfd, dirfd, symbols;
	char program[160], log[160]; /* the symboliser, that notes when it is started */
	struct stack_held held;
	struct incident info;
};

static void early_scene_begin(struct early_scene *scene)
{
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX];

	*scene = (struct early_scene){ .symbols = -1 };
	scene->procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scene->dirfd = open(rig.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(scene->program, sizeof(scene->program), "%s/logged", rig.directory);
	snprintf(scene->log, sizeof(scene->log), "%s/log", rig.directory);
	scene_write(scene->log, "%s", "");
	scene_write(scene->program, "#!/bin/sh\necho \"$*\" >>'%s'\nexec '%s' \"$@\"\n", scene->log, rig.symbolizer);
	ck_assert_int_eq(chmod(scene->program, 0755), 0);
	ck_assert_int_eq(stack_recorder_open(&how, &scene->recorder, reason), 0);
	burn_here();
}

static void early_scene_end(struct early_scene *scene)
{
	ck_assert_ptr_null(scene->held.early);
	ck_assert_uint_eq(scene->held.captures, 0);
	stack_recorder_close(scene->recorder);
	scope_close(&scene->symbols);
	close(scene->procfd);
	close(scene->dirfd);
}

static struct stack_capture *early_scene_secure(struct early_scene *scene, uint64_t after_ns)
{
	struct clock clock = real_clock();
	struct stack_capture_options options = {
		.recorder = scene->recorder,
		.procfd = scene->procfd,
		.symbolizer = scene->program,
		.before_ns = 60 * NS_PER_S,
		.until = mono_add(clock_mono(&clock), after_ns),
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
		.held = &scene->held,
		.kernel_symbols = &scene->symbols,
	};
	struct stack_capture *capture;

	incident_init(&scene->info, "0");
	capture = stack_capture_secure(&options, &scene->info);
	ck_assert_ptr_nonnull(capture);
	return capture;
}

/* Writes it, with the name of a function that was sampled before it, and how many were started for all so far. */
static void early_scene_write(struct early_scene *scene, struct stack_capture *capture, unsigned starts)
{
	AUTO_FREE char *log = NULL;
	unsigned lines = 0;

	incident_init(&scene->info, "0");
	burn_here();
	stack_capture_write(capture, &(struct stack_capture_members){ .everyone = true }, scene->dirfd, NULL,
			    &scene->info);
	ck_assert_str_eq(scene->info.captures[0].name, "stacks");
	ck_assert_int_eq(scene->info.captures[0].status, INCIDENT_CAPTURE_OK);
	ck_assert_msg(!strstr(scene->info.captures[0].why, "no names"), "%s", scene->info.captures[0].why);
	ck_assert(mentions(scene->dirfd, "functions.tsv", "burn_here"));
	log = scene_read(scene->log);
	for (const char *at = log; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	ck_assert_msg(lines == starts, "%s", log);
	for (size_t i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		unlinkat(scene->dirfd, symbolizer_outputs[i].file, 0);
}

START_TEST(what_was_read_while_the_window_was_open_is_not_read_again)
{
	struct early_scene scene;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	early_scene_begin(&scene);
	struct stack_capture *capture = early_scene_secure(&scene, 60 * NS_PER_S);

	stack_capture_prepare(capture, scene.dirfd);
	ck_assert_ptr_eq(scene.held.early, capture);
	early_scene_write(&scene, capture, 1);
	early_scene_end(&scene);
}
END_TEST

START_TEST(an_early_symboliser_that_is_gone_costs_nothing)
{
	struct early_scene scene;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	early_scene_begin(&scene);
	struct stack_capture *capture = early_scene_secure(&scene, 60 * NS_PER_S);

	stack_capture_prepare(capture, scene.dirfd);
	ck_assert_ptr_eq(scene.held.early, capture);
	scene_wait_for(scene_says(scene.log, "--rest"));
	child_signal(&capture->early->symbolizer.child, SIGKILL);
	scene_wait_for(poll(&(struct pollfd){ .fd = capture->early->symbolizer.child.fd, .events = POLLIN }, 1, 0) > 0);
	early_scene_write(&scene, capture, 2);

	/* One that has read too much to wait with it. */
	scene_write(scene.program,
		    "#!/bin/sh\necho \"$*\" >>'%s'\ncase $1 in --rest=*) sleep 0.3; exit 4;; esac\nexec '%s' \"$@\"\n",
		    scene.log, rig.symbolizer);
	capture = early_scene_secure(&scene, 60 * NS_PER_S);
	stack_capture_prepare(capture, scene.dirfd);
	ck_assert_ptr_eq(scene.held.early, capture);
	early_scene_write(&scene, capture, 4);

	/* And one whose incident is given up. */
	capture = early_scene_secure(&scene, 60 * NS_PER_S);
	stack_capture_prepare(capture, scene.dirfd);
	ck_assert_ptr_eq(scene.held.early, capture);
	stack_capture_free(capture);

	/* None is started where the window is over at once, or nothing is written to. */
	capture = early_scene_secure(&scene, NS_PER_MS);
	stack_capture_prepare(capture, scene.dirfd);
	ck_assert_ptr_null(scene.held.early);
	stack_capture_free(capture);
	capture = early_scene_secure(&scene, 60 * NS_PER_S);
	stack_capture_prepare(capture, -1);
	ck_assert_ptr_null(scene.held.early);
	stack_capture_free(capture);
	early_scene_end(&scene);
}
END_TEST

START_TEST(there_is_one_early_symboliser_and_none_in_a_storm)
{
	struct early_scene scene;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	early_scene_begin(&scene);
	struct stack_capture *first = early_scene_secure(&scene, 60 * NS_PER_S);

	stack_capture_prepare(first, scene.dirfd);
	ck_assert_ptr_eq(scene.held.early, first);
	struct stack_capture *second = early_scene_secure(&scene, 60 * NS_PER_S);

	stack_capture_prepare(second, scene.dirfd);
	ck_assert_ptr_eq(scene.held.early, first);
	ck_assert_ptr_null(second->early);
	scene_wait_for(scene_says(scene.log, "--rest"));

	/* It goes when another capture needs one, and is replaced when its own does. */
	early_scene_write(&scene, second, 2);
	ck_assert_ptr_null(scene.held.early);
	early_scene_write(&scene, first, 3);
	early_scene_end(&scene);
}
END_TEST

/* ---- a second snapshot that is late ---- */

/* What is said of a second snapshot of ten seconds, of which some ring has nothing before covered_ms of them. */
static void describe_late(struct stack_recorder *recorder, uint32_t kind, uint64_t covered_ms, char why[WHY_MAX])
{
	const uint64_t fired_ns = 1000 * NS_PER_S;
	struct stack_recorder_snapshot first = { .from_ns = fired_ns - NS_PER_S, .to_ns = fired_ns, .stream_count = 1 };
	struct stack_capture capture = {
		.options = { .recorder = recorder, .fired = { fired_ns }, .before_ns = NS_PER_S },
		.first = &first,
		.second = { .from_ns = fired_ns, .to_ns = fired_ns + 10 * NS_PER_S, .stream_count = 1 },
	};

	first.streams[0].head = (struct stack_file_stream){ .kind = kind, .covered_ns = first.from_ns };
	capture.second.streams[0].head =
		(struct stack_file_stream){ .kind = kind, .covered_ns = fired_ns + covered_ms * NS_PER_MS };
	*why = '\0';
	describe_gaps(&capture, kind >= STACK_FILE_FAULTS, why, WHY_MAX);
}

START_TEST(what_was_overwritten_before_a_late_snapshot_is_said_as_far_as_it_is_missing)
{
	static const struct {
		uint64_t covered_ms;
		const char *said; /* NULL: nothing */
	} cases[] = {
		{ 0, NULL },
		{ 100, NULL },
		{ 101, "of the 10.0 s since the firing the first 0.1 s are not complete" },
		{ 4200, "of the 10.0 s since the firing the first 4.2 s are not complete" },
		{ 12000, "of the 10.0 s since the firing the first 10.0 s are not complete" },
	};
	static const uint32_t kinds[] = { STACK_FILE_CPU, STACK_FILE_CPU_FOLLOWED, STACK_FILE_FAULTS };
	struct stack_recorder_options how = { 0 };
	char reason[STACK_RECORDER_REASON_MAX], why[WHY_MAX];
	struct stack_recorder *recorder;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		for (size_t j = 0; j < ARRAY_LEN(cases); j++) {
			describe_late(recorder, kinds[i], cases[j].covered_ms, why);
			bool said = strstr(why, cases[j].said ? cases[j].said : "since the firing");

			ck_assert_msg(said == (cases[j].said != NULL), "%s", why);
		}
	stack_recorder_close(recorder);
}
END_TEST

/* As behind a disk that stands still: whatever comes round until then, with the smallest rings. */
START_TEST(rings_that_came_round_since_the_firing_are_in_the_incident)
{
	struct stack_recorder_options how = { .frequency = 999, .ring_bytes = 65536, .without_faults = true };
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_capture *capture;
	struct early_scene scene;
	bool came_round = false;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	early_scene_begin(&scene);
	stack_recorder_close(scene.recorder);
	ck_assert_int_eq(stack_recorder_open(&how, &scene.recorder, reason), 0);
	burn_here();
	capture = early_scene_secure(&scene, 600 * NS_PER_S);
	for (unsigned i = 0; i < 200 && !came_round; i++) { /* 50 s of CPU time: usually one */
		struct stack_recorder_snapshot now;
		const struct stack_recorder_stream *stream;

		burn_here();
		ck_assert_int_eq(stack_recorder_snapshot(scene.recorder, capture->first->to_ns, UINT64_MAX, 0, &now),
				 0);
		stream = widest_stream(&now, false);
		came_round = stream->head.covered_ns > capture->first->to_ns + NS_PER_S / 5;
		stack_recorder_snapshot_release(&now);
	}
	ck_assert(came_round);
	early_scene_write(&scene, capture, 1);
	ck_assert_msg(strstr(scene.info.captures[0].why, "s since the firing the first ") != NULL, "%s",
		      scene.info.captures[0].why);
	early_scene_end(&scene);
}
END_TEST

/* A process that holds a write lease on a file, and does not give it up. */
static pid_t start_lessee(const char *path)
{
	int said[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(said), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGIO, SIG_IGN);
		if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
			_exit(1);
		(void)!write(said[1], "", 1);
		pause();
		_exit(0);
	}
	close(said[1]);
	if (read(said[0], &byte, 1) != 1)
		pid = -1;
	close(said[0]);
	return pid;
}

/* Opening it would wait for 45 s (/proc/sys/fs/lease-break-time), and for longer with more leases. */
START_TEST(a_lease_does_not_hold_up_the_daemon)
{
	char path[] = "/tmp/check_stack_capture.XXXXXX";
	int fd = mkstemp(path), procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static struct stack_bundle bundle;
	struct stat st;
	pid_t pid;

	close(fd);
	pid = start_lessee(path);
	if (pid < 0)
		SKIP_TEST("no leases on /tmp");
	alarm(10);
	ck_assert_int_eq(open_foreign(&bundle, procfd, 0, path, 0, &st), -EWOULDBLOCK);
	alarm(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd = open_foreign(&bundle, procfd, 0, path, 0, &st);
	ck_assert_int_ge(fd, 0);
	close(fd);
	close(procfd);
	unlink(path);
}
END_TEST

START_TEST(that_there_are_no_samples_and_why_is_said)
{
	struct stack_recorder_options how = { .followed_only = true };
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder *recorder;
	struct incident info;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	ck_assert_int_eq(stack_recorder_open(&how, &recorder, reason), 0);
	look_beside(recorder, SIZE_MAX, &info);
	ck_assert_uint_eq(info.capture_count, 1);
	ck_assert_str_eq(info.captures[0].name, "stacks");
	ck_assert_int_eq(info.captures[0].status, INCIDENT_CAPTURE_SKIPPED);
	ck_assert_str_eq(info.captures[0].file, "");
	ck_assert_msg(strstr(info.captures[0].why, "there are no samples; "), "%s", info.captures[0].why);
	ck_assert_msg(strstr(info.captures[0].why, "of watched processes of this user only"), "%s",
		      info.captures[0].why);
	stack_recorder_close(recorder);
}
END_TEST

/* ---- files ---- */

START_TEST(a_file_that_was_replaced_while_it_is_mapped_is_the_one_that_is_mapped)
{
	struct stack_bundle *bundle = calloc(1, sizeof *bundle);
	struct stack_recorder_file file = { .pid = (uint32_t)getpid(), .file.build_id_len = 20 };
	struct stack_recorder_snapshot snapshot = { .files = &file, .file_count = 1 };
	char path[128], newer[128], way[96];
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat mapped, opened;

	snprintf(path, sizeof(path), "%s/library", rig.directory);
	snprintf(newer, sizeof(newer), "%s/newer", rig.directory);
	scene_write(path, "older");
	scene_write(newer, "newer");

	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	ck_assert_int_eq(fstat(fd, &mapped), 0);
	ck_assert_int_eq(rename(newer, path), 0);
	file.path = path;
	file.start = (uintptr_t)memory;
	file.end = file.start + 4096;
	snprintf(way, sizeof(way), "/proc/self/map_files/%jx-%jx", (uintmax_t)file.start, (uintmax_t)file.end);

	int allowed = open(way, O_RDONLY | O_CLOEXEC);

	if (allowed >= 0) {
		stack_bundle_add(bundle, procfd, &snapshot, 1);
		ck_assert_uint_eq(bundle->count, 1);
		ck_assert_int_eq(fstat(bundle->entries[0].binary.fd, &opened), 0);
		ck_assert_uint_eq(opened.st_ino, mapped.st_ino);
		stack_bundle_close(bundle);
		close(allowed);
	}
	munmap(memory, 4096);
	close(fd);
	close(procfd);
	free(bundle);
}
END_TEST

START_TEST(the_symboliser_goes_first_where_memory_runs_out)
{
	char script[128], said[128];
	AUTO_FREE char *score = NULL;

	if (!able)
		SKIP_TEST("%s", skip_reason);

	snprintf(script, sizeof(script), "%s/asks", rig.directory);
	snprintf(said, sizeof(said), "%s/score", rig.directory);
	scene_write(script, "#!/bin/sh\ncat /proc/self/oom_score_adj >'%s'\nexit 1\n", said);
	ck_assert_int_eq(chmod(script, 0755), 0);
	fails_with(script, "failed with 1");
	score = scene_read(said);
	ck_assert_str_eq(score, "1000\n");
}
END_TEST

/* ---- page faults ---- */

START_TEST(how_many_page_faults_were_counted_is_said_if_not_all_were)
{
	const struct overload_sampling_summary all = { .counted = 5000, .all = 5000 },
					       some = { .counted = 1000, .all = 5000, .since_ns = 17600000000 };
	char text[160];

	stack_capture_faults_text(&all, &all, 20 * NS_PER_S, text, sizeof(text));
	ck_assert_str_eq(text, "");
	stack_capture_faults_text(&some, &all, 20 * NS_PER_S, text, sizeof(text));
	ck_assert_str_eq(text, "60.0 % of the page faults were counted, from -2.4 s on, and stand for all of them");
	stack_capture_faults_text(&all, &some, 15 * NS_PER_S, text, sizeof(text));
	ck_assert_str_eq(text, "60.0 % of the page faults were counted, from +2.6 s on, and stand for all of them");
}
END_TEST

Suite *stack_capture_suite(void)
{
	Suite *suite = suite_create("stack_capture");
	TCase *tcase = tcase_create("stackcapture");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_shares_of_two_functions_are_those_that_they_had);
	tcase_add_test(tcase, a_burst_that_was_over_before_anybody_asked_is_there);
	tcase_add_test(tcase, the_incident_is_whole_and_lists_its_profile);
	tcase_add_test(tcase, a_profile_ends_where_the_incident_ends);
	tcase_add_test(tcase, a_symboliser_that_fails_costs_the_stacks_and_nothing_else);
	tcase_add_test(tcase, a_symboliser_that_is_killed_by_what_it_reads_costs_the_names);
	tcase_add_test(tcase, a_symboliser_ends_when_the_daemon_does);
	tcase_add_test(tcase, many_copies_of_one_owner_leave_room_for_another);
	tcase_add_test(tcase, incidents_of_a_storm_share_what_the_rings_held);
	tcase_add_test(tcase, what_was_read_while_the_window_was_open_is_not_read_again);
	tcase_add_test(tcase, an_early_symboliser_that_is_gone_costs_nothing);
	tcase_add_test(tcase, there_is_one_early_symboliser_and_none_in_a_storm);
	tcase_add_test(tcase, what_was_overwritten_before_a_late_snapshot_is_said_as_far_as_it_is_missing);
	tcase_add_test(tcase, rings_that_came_round_since_the_firing_are_in_the_incident);
	tcase_add_test(tcase, copies_of_files_are_shared_out_by_owner);
	tcase_add_test(tcase, a_file_that_was_not_found_is_looked_for_again_with_another_process);
	tcase_add_test(tcase, firings_that_wait_for_their_turn_share_as_well);
	tcase_add_test(tcase, copies_are_compressed_before_there_is_another);
	tcase_add_test(tcase, where_others_hold_all_there_is_the_past_is_left_out_and_that_is_said);
	tcase_add_test(tcase, that_there_are_no_samples_and_why_is_said);
	tcase_add_test(tcase, a_lease_does_not_hold_up_the_daemon);
	tcase_add_test(tcase, how_many_page_faults_were_counted_is_said_if_not_all_were);
	tcase_add_test(tcase, a_file_that_was_replaced_while_it_is_mapped_is_the_one_that_is_mapped);
	tcase_add_test(tcase, the_symboliser_goes_first_where_memory_runs_out);
	suite_add_tcase(suite, tcase);

	return suite;
}
