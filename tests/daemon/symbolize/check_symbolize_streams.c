/*
 * check_symbolize_streams.c: what spikewatch-symbolize makes of streams of several kinds: who
 * counts where, and for how much. Of no real program: addresses count for mappings that are made
 * up.
 */
#include "symbolize_rig.h"

static struct rig rig;
static bool there;

static void setup(void)
{
	static const struct perf_record_mmap first = {
		.start = 0x10000, .len = 0x1000, .path = "/bin/first", .file = { .inode = 1 }
	};
	static const struct perf_record_mmap second = {
		.start = 0x20000, .len = 0x1000, .path = "/bin/second", .file = { .inode = 2 }
	};

	there = rig_init(&rig);
	if (!there)
		return;
	rig_name(&rig, 7, "seven");
	rig_map(&rig, 7, &first);
	rig_map(&rig, 7, &second);
}

static void teardown(void)
{
	if (there)
		rig_release(&rig);
}

/* One user address of process 7, in this stream. */
static void sample(enum stack_file_stream_kind kind, uint64_t address, uint64_t period)
{
	const uint64_t chain[] = { PERF_CONTEXT_USER, address };
	struct perf_record record = { .type = PERF_RECORD_SAMPLE, .pid = 7, .tid = 7, .misc = PERF_RECORD_MISC_USER };

	record.sample = (struct perf_record_sample){ .ip = address, .period = period, .chain = chain, .chain_len = 2 };
	rig.kind = kind;
	rig_record(&rig, &record);
}

/*
 * The weight of a function of its own while the spike lasted, as the table of functions has it; -1:
 * no such function.
 */
static double self_ms(const char *function)
{
	for (const char *line = rig.functions; line != NULL && *line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		unsigned long counts[4];
		double ms;

		if (strncmp(line, function, strlen(function)) == 0 && line[strlen(function)] == '\t' &&
		    sscanf(line, "%*[^\t]\t%*[^\t]\t%lu\t%lu\t%lu\t%lu\t%lf", &counts[0], &counts[1], &counts[2],
			   &counts[3], &ms) == 5)
			return ms;
	}

	return -1;
}

START_TEST(a_thread_that_is_sampled_twice_counts_once)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	sample(STACK_FILE_CPU, 0x10000, 1);
	sample(STACK_FILE_CPU_FOLLOWED, 0x20000, 1);
	sample(STACK_FILE_CPU, 0x10000, 1);
	sample(STACK_FILE_CPU, 0x10000, 1);
	sample(STACK_FILE_FAULTS, 0x10000, 1);
	sample(STACK_FILE_CPU_FOLLOWED, 0x20000, 1);
	sample(STACK_FILE_CPU, 0x10000, 1);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "seven;[first]", 2);
	rig_expect(&rig, "seven;[second]", 2);
	rig_expect_memory(&rig, "seven;[first]", 4096); /* a page */
	ck_assert_uint_eq(rig_count(&rig, "samples"), 4);
	ck_assert_uint_eq(rig_count(&rig, "samples_twice"), 2);
}
END_TEST

START_TEST(faults_are_a_profile_of_their_own)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	sample(STACK_FILE_FAULTS, 0x10000, 3);
	sample(STACK_FILE_FAULTS_FOLLOWED, 0x20000, 5);
	sample(STACK_FILE_FAULTS_FOLLOWED, 0x20000, 0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_uint_eq(rig_count(&rig, "samples"), 0);
	ck_assert_uint_eq(rig_count(&rig, "samples_of_faults"), 3);
	ck_assert_uint_eq(rig_count(&rig, "faults"), 9);
	ck_assert_str_eq(rig.folded, ""); /* a profile without samples is not written */
	ck_assert_str_eq(rig.functions, "");
	ck_assert_ptr_nonnull(strstr(rig.memory, "seven;[first] "));
	ck_assert_ptr_nonnull(strstr(rig.memory, "seven;[second] "));
}
END_TEST

START_TEST(without_faults_nothing_is_written_of_them)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	sample(STACK_FILE_CPU, 0x10000, 1);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "seven;[first]", 1);
	ck_assert_str_eq(rig.memory, "");
}
END_TEST

START_TEST(time_is_measured_in_the_units_of_the_stream)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig.time_ns = RIG_FIRED_NS + 1;
	rig.heads[STACK_FILE_CPU].units_per_second = 2500000000; /* cycles */
	sample(STACK_FILE_CPU, 0x10000, 25000000);
	sample(STACK_FILE_CPU, 0x10000, 5000000);
	sample(STACK_FILE_CPU_FOLLOWED, 0x20000, 25000000);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_double_eq_tol(self_ms("[first]"), 12, 0.01);
	ck_assert_double_eq_tol(self_ms("[second]"), 25, 0.01);
}
END_TEST

START_TEST(a_sample_without_a_period_stands_for_the_time_between_two)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig.time_ns = RIG_FIRED_NS + 1;
	rig.heads[STACK_FILE_CPU_FOLLOWED].units_per_second = 0;
	sample(STACK_FILE_CPU, 0x10000, 0);
	sample(STACK_FILE_CPU_FOLLOWED, 0x20000, 77);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_double_eq_tol(self_ms("[first]"), 1000.0 / 99, 0.01);
	ck_assert_double_eq_tol(self_ms("[second]"), 1000.0 / 99, 0.01);
}
END_TEST

START_TEST(cgroups_of_processes_are_labels_of_their_samples)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig.cgroups[0] = (struct stack_file_cgroup){ 1, "/of.another" };
	rig.cgroups[1] = (struct stack_file_cgroup){ 5, "/of.one.more" };
	rig.cgroups[2] = (struct stack_file_cgroup){ 6, "/of.a.third" };
	rig.cgroups[3] = (struct stack_file_cgroup){ 7, "/batch.slice/seven.service" };
	rig.cgroup_count = 4;
	sample(STACK_FILE_CPU, 0x10000, 1);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_int_eq(rig_shell(&rig, "zcat < pprof | grep -aq /batch.slice/seven.service"), 0);
	ck_assert_int_ne(rig_shell(&rig, "zcat < pprof | grep -aq /of."), 0);
}
END_TEST

START_TEST(samples_in_the_book_and_mappings_elsewhere_are_not_believed)
{
	struct perf_record exec = { .type = PERF_RECORD_COMM, .pid = 7, .tid = 7, .time_ns = rig.time_ns++ };
	static _Alignas(8) char bytes[256];
	size_t size;

	if (!there)
		SKIP_TEST("%s", skip_reason);
	exec.comm.name = "eight";
	exec.comm.name_len = 5;
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &exec, bytes, sizeof(bytes), &size), 0);
	ck_assert_int_eq(buffer_append(&rig.records[STACK_FILE_CPU], bytes, size), 0);
	sample(STACK_FILE_CPU, 0x10000, 1);
	sample(STACK_FILE_SIDEBAND, 0x20000, 1);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "seven;[first]", 1);
	ck_assert_uint_eq(rig_count(&rig, "samples"), 1);
}
END_TEST

Suite *symbolize_streams_suite(void);
Suite *symbolize_streams_suite(void)
{
	Suite *suite = suite_create("symbolize_streams");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, setup, teardown);
	tcase_add_test(core, a_thread_that_is_sampled_twice_counts_once);
	tcase_add_test(core, faults_are_a_profile_of_their_own);
	tcase_add_test(core, without_faults_nothing_is_written_of_them);
	tcase_add_test(core, time_is_measured_in_the_units_of_the_stream);
	tcase_add_test(core, a_sample_without_a_period_stands_for_the_time_between_two);
	tcase_add_test(core, cgroups_of_processes_are_labels_of_their_samples);
	tcase_add_test(core, samples_in_the_book_and_mappings_elsewhere_are_not_believed);
	suite_add_tcase(suite, core);

	return suite;
}
