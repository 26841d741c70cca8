/*
 * check_stack_streams.c: streams become one sequence; threads that were sampled twice count once.
 * White-box: includes the module.
 */
#include "daemon/symbolize/symbolize.c"

#include "lib/base/io.h"
#include "torture.h"

#include <check.h>

#define STREAMS_MAX STACK_FILE_STREAM_KINDS

static struct buffer records[STREAMS_MAX];
static struct stack_file_records streams[STREAMS_MAX];
static size_t stream_count;
static struct buffer bytes;
static struct stack_file file;

static void teardown(void)
{
	for (size_t i = 0; i < STREAMS_MAX; i++)
		buffer_release(&records[i]);
	buffer_release(&bytes);
	stream_count = 0;
}

static void begin(enum stack_file_stream_kind kind)
{
	streams[stream_count++].stream =
		(struct stack_file_stream){ .kind = kind, .sample_type = PERF_RECORD_FRAME_POINTERS };
}

/* Adds a sample, or a side-band record, to the stream begun last. */
static void add(uint64_t time_ns, uint32_t tid)
{
	bool sideband = streams[stream_count - 1].stream.kind == STACK_FILE_SIDEBAND;
	struct perf_record record = {
		.type = sideband ? PERF_RECORD_COMM : PERF_RECORD_SAMPLE, .pid = 7, .tid = tid, .time_ns = time_ns
	};
	static _Alignas(8) char room[256];
	size_t size;

	if (sideband) {
		record.comm.name = "name";
		record.comm.name_len = 4;
	}
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, room, sizeof(room), &size), 0);
	ck_assert_int_eq(buffer_append(&records[stream_count - 1], room, size), 0);
}

static void finish(void)
{
	struct stack_file_content content = { .streams = streams, .stream_count = stream_count };
	struct sink sink = sink_buffer(&bytes);

	for (size_t i = 0; i < stream_count; i++) {
		streams[i].records = records[i].data;
		streams[i].record_bytes = records[i].len;
	}
	ck_assert_int_eq(stack_file_write(&content, &sink), 0);
	ck_assert_int_eq(stack_file_parse(bytes.data, bytes.len, &file), 0);
}

/* The next record is of this stream and thread, at this time, and counts, or does not. */
static void next(struct stack_streams *all, enum stack_file_stream_kind kind, uint64_t time_ns, uint32_t tid,
		 bool counts)
{
	const struct stack_file_stream *stream;
	struct perf_record record;

	ck_assert(stack_streams_next(all, &record, &stream));
	ck_assert_uint_eq(stream->kind, kind);
	ck_assert_uint_eq(record.time_ns, time_ns);
	ck_assert_uint_eq(record.tid, tid);
	ck_assert_int_eq(stack_streams_counts(all, &record, stream), counts);
}

static void end(struct stack_streams *all)
{
	const struct stack_file_stream *stream;
	struct perf_record record;

	ck_assert(!stack_streams_next(all, &record, &stream));
	stack_streams_free(all);
}

START_TEST(records_come_by_time_and_side_band_first)
{
	struct stack_streams *all;

	begin(STACK_FILE_FAULTS);
	add(2, 1);
	add(5, 1);
	begin(STACK_FILE_CPU);
	add(2, 2);
	add(3, 2);
	begin(STACK_FILE_SIDEBAND);
	add(2, 3);
	add(4, 3);
	finish();
	ck_assert_int_eq(stack_streams_new(&file, &all), 0);
	next(all, STACK_FILE_SIDEBAND, 2, 3, true);
	next(all, STACK_FILE_CPU, 2, 2, true);
	next(all, STACK_FILE_FAULTS, 2, 1, true);
	next(all, STACK_FILE_CPU, 3, 2, true);
	next(all, STACK_FILE_SIDEBAND, 4, 3, true);
	next(all, STACK_FILE_FAULTS, 5, 1, true);
	ck_assert_uint_eq(all->broken, 0);
	end(all);
}
END_TEST

START_TEST(a_thread_with_samples_of_its_own_counts_by_those_while_it_has_them)
{
	struct stack_streams *all;

	begin(STACK_FILE_CPU);
	for (uint64_t time = 1; time <= 9; time += 2) {
		add(time, 1);
		add(time, 2);
	}
	begin(STACK_FILE_CPU_FOLLOWED);
	add(3, 1);
	add(6, 1);
	add(7, 1);
	begin(STACK_FILE_FAULTS);
	add(5, 1);
	finish();
	ck_assert_int_eq(stack_streams_new(&file, &all), 0);
	next(all, STACK_FILE_CPU, 1, 1, true);
	next(all, STACK_FILE_CPU, 1, 2, true);
	next(all, STACK_FILE_CPU, 3, 1, false);
	next(all, STACK_FILE_CPU, 3, 2, true);
	next(all, STACK_FILE_CPU_FOLLOWED, 3, 1, true);
	next(all, STACK_FILE_CPU, 5, 1, false);
	next(all, STACK_FILE_CPU, 5, 2, true);
	next(all, STACK_FILE_FAULTS, 5, 1, true); /* of another kind */
	next(all, STACK_FILE_CPU_FOLLOWED, 6, 1, true);
	next(all, STACK_FILE_CPU, 7, 1, false);
	next(all, STACK_FILE_CPU, 7, 2, true);
	next(all, STACK_FILE_CPU_FOLLOWED, 7, 1, true);
	next(all, STACK_FILE_CPU, 9, 1, true);
	next(all, STACK_FILE_CPU, 9, 2, true);
	end(all);
}
END_TEST

START_TEST(faults_are_told_apart_in_the_same_way)
{
	struct stack_streams *all;

	begin(STACK_FILE_FAULTS_FOLLOWED);
	add(3, 1);
	begin(STACK_FILE_FAULTS);
	add(3, 1);
	add(4, 1);
	begin(STACK_FILE_CPU);
	add(3, 1);
	finish();
	ck_assert_int_eq(stack_streams_new(&file, &all), 0);
	next(all, STACK_FILE_CPU, 3, 1, true);
	next(all, STACK_FILE_FAULTS, 3, 1, false);
	next(all, STACK_FILE_FAULTS_FOLLOWED, 3, 1, true);
	next(all, STACK_FILE_FAULTS, 4, 1, true);
	end(all);
}
END_TEST

START_TEST(a_stream_that_breaks_ends_and_the_others_go_on)
{
	struct stack_streams *all;

	begin(STACK_FILE_CPU);
	add(1, 1);
	ck_assert_int_eq(buffer_append(&records[0], "\377\377\377\377\377\377\1\0", 8), 0);
	add(2, 1);
	begin(STACK_FILE_FAULTS);
	add(3, 1);
	begin(STACK_FILE_CPU_FOLLOWED);
	ck_assert_int_eq(buffer_append(&records[2], "\377\377\377\377\377\377\1\0", 8), 0);
	finish();
	ck_assert_int_eq(stack_streams_new(&file, &all), 0);
	next(all, STACK_FILE_CPU, 1, 1, true);
	next(all, STACK_FILE_FAULTS, 3, 1, true);
	ck_assert_uint_eq(all->broken, 2);
	end(all);
}
END_TEST

START_TEST(a_format_that_is_not_known_is_refused)
{
	struct stack_streams *all;

	begin(STACK_FILE_CPU);
	streams[0].stream.sample_type |= PERF_SAMPLE_WEIGHT;
	add(1, 1);
	finish();
	ck_assert_int_eq(stack_streams_new(&file, &all), -EINVAL);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	begin(STACK_FILE_CPU_FOLLOWED);
	for (uint32_t tid = 1; tid <= 1000; tid++)
		add(tid, tid);
	finish();
	for (long n = 1; injected; n++) {
		struct stack_streams *all = NULL;

		torture_arm(n);
		int r = stack_streams_new(&file, &all);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		stack_streams_free(all);
	}
}
END_TEST

Suite *stack_streams_suite(void);
Suite *stack_streams_suite(void)
{
	Suite *suite = suite_create("stack_streams");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, NULL, teardown);
	tcase_add_test(core, records_come_by_time_and_side_band_first);
	tcase_add_test(core, a_thread_with_samples_of_its_own_counts_by_those_while_it_has_them);
	tcase_add_test(core, faults_are_told_apart_in_the_same_way);
	tcase_add_test(core, a_stream_that_breaks_ends_and_the_others_go_on);
	tcase_add_test(core, a_format_that_is_not_known_is_refused);
	tcase_add_test(core, every_allocation_may_fail);
	suite_add_tcase(suite, core);

	return suite;
}
