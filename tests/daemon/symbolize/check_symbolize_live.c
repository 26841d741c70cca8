/*
 * check_symbolize_live.c: from the kernel's samples to names: two functions that share a process's
 * time 70 to 30 do so in the profile, with events of everybody and with those of its own beside
 * them. Needs to be allowed to open perf events; says so if it is not.
 */
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "symbolize_rig.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

/* Some 300 samples: of 70 % one standard deviation is 2.7 %; the test asks for 15 %. */
#define CPU_SECONDS 3

static const char workload[] =
	"#include <stdio.h>\n#include <time.h>\n#include <unistd.h>\n"
	"#define STAY __attribute__((noipa))\n"
	"STAY void work(volatile long *n) { for (int i = 0; i < 100000; i++) ++*n; }\n"
	"STAY void heavy(volatile long *n, int by) { for (int i = 0; i < 7 * by; i++) work(n); ++*n; }\n"
	"STAY void light(volatile long *n, int by) { for (int i = 0; i < 3 * by; i++) work(n); ++*n; }\n"
	/* by turns of different lengths: equal ones may keep time with the sampling */
	"STAY void loop(volatile long *n) { struct timespec used; unsigned random = 1; do {\n"
	"  int by = 1 + (int)((random = random * 1664525 + 1013904223) >> 29); heavy(n, by); light(n, by);\n"
	"  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used); } while (used.tv_sec < SECONDS); ++*n; }\n"
	"int main(void) { volatile long n = 0; loop(&n); printf(\"%lx\\n\", n); fflush(stdout); for (;;) pause(); }\n";

static void take_entries(struct rig *rig, const struct stack_recorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->file_count && i < RIG_ENTRIES_MAX; i++) {
		const struct stack_recorder_file *file = &snapshot->files[i];
		char path[4200];

		snprintf(path, sizeof(path), "/proc/%u/root%s", file->pid, file->path);
		rig_entry(rig, STACK_FILE_ELF, open(path, O_RDONLY), file->path)->file = file->file;
	}
}

/* In how many samples of the program these functions called each other. */
static uint64_t below(const struct rig *rig, const char *program, const char *function)
{
	uint64_t sum = 0;

	for (char *line = rig->folded, *next; line != NULL && *line; line = next) {
		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		if (strncmp(line, program, strlen(program)) == 0 && strstr(line, function) != NULL)
			sum += strtoull(strrchr(line, ' '), NULL, 10);
		if (next != NULL)
			next[-1] = '\n';
	}

	return sum;
}

/* What was recorded, as if it was handed over. */
static void take_streams(struct rig *rig, const struct stack_recorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->stream_count; i++) {
		const struct stack_recorder_stream *stream = &snapshot->streams[i];

		rig->heads[stream->head.kind] = stream->head;
		ck_assert_int_eq(
			buffer_append(&rig->records[stream->head.kind], stream->records.data, stream->records.len), 0);
	}
	for (size_t i = 0; i < snapshot->cgroup_count && i < ARRAY_LEN(rig->cgroups); i++)
		rig->cgroups[rig->cgroup_count++] = snapshot->cgroups[i];
}

/* False: it cannot be checked here. */
static bool shares_are_70_to_30(const struct stack_recorder_options *options, const char *flags)
{
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder_snapshot snapshot = { .stream_count = 0 };
	struct stack_recorder *recorder;
	struct rig rig;

	if (!rig_init(&rig))
		return false;
	if (stack_recorder_open(options, &recorder, reason) < 0) {
		rig_release(&rig);
		return skip_because("%s", reason);
	}
	rig_write(&rig, "shares.c", workload);
	ck_assert_int_eq(rig_shell(&rig, "gcc %s -DSECONDS=%d -o shares shares.c", flags, CPU_SECONDS), 0);
	struct rig_process process = rig_start(&rig, "shares");
	if (options->dwarf)
		ck_assert_int_eq(stack_recorder_follow(recorder, &(uint32_t){ (uint32_t)process.pid }, 1), 0);
	(void)rig_address(&process); /* done */
	ck_assert_int_eq(stack_recorder_snapshot(recorder, 1, UINT64_MAX, 0, &snapshot), 0);
	take_entries(&rig, &snapshot);
	take_streams(&rig, &snapshot);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);

	uint64_t heavy = below(&rig, "shares;", ";main;loop;heavy;work"),
		 light = below(&rig, "shares;", ";main;loop;light;work");
	double share = (double)heavy / (double)(heavy + light);
	ck_assert_msg(heavy + light > 50 && share > 0.55 && share < 0.85, "%lu to %lu:\n%s", heavy, light, rig.folded);
	/*
	 * Sampled twice, it would be twice its time; one and a half is nine standard deviations
	 * where others use the CPU, too.
	 */
	ck_assert_uint_lt(heavy + light, CPU_SECONDS * 99 * 3 / 2);
	ck_assert_uint_eq(rig_count(&rig, "records_broken"), 0);
	if (options->dwarf) {
		ck_assert_uint_gt(rig_count(&rig, "samples_twice"), 0);
		ck_assert_uint_gt(rig_count(&rig, "frames_by_tables"), heavy + light);
	}
	rig_end(&process);
	stack_recorder_snapshot_release(&snapshot);
	stack_recorder_close(recorder);
	rig_release(&rig);
	return true;
}

START_TEST(functions_that_share_the_time_70_to_30_do_so_in_the_profile)
{
	if (!shares_are_70_to_30(&(struct stack_recorder_options){ 0 }, "-O0 -fno-omit-frame-pointer"))
		SKIP_TEST("%s", skip_reason);
}
END_TEST

START_TEST(they_do_with_events_of_their_own_and_without_frame_pointers)
{
	if (!shares_are_70_to_30(&(struct stack_recorder_options){ .dwarf = true, .before_ns = 5000000000u },
				 "-O1 -fomit-frame-pointer"))
		SKIP_TEST("%s", skip_reason);
}
END_TEST

Suite *symbolize_live_suite(void);
Suite *symbolize_live_suite(void)
{
	Suite *suite = suite_create("symbolize_live");
	TCase *core = tcase_create("core");

	tcase_add_test(core, they_do_with_events_of_their_own_and_without_frame_pointers);
	tcase_add_test(core, functions_that_share_the_time_70_to_30_do_so_in_the_profile);
	suite_add_tcase(suite, core);

	return suite;
}
