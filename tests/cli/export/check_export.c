/*
 * check_export.c: each form of an incident, read back and held against what its viewers require:
 * for the Firefox Profiler the members, the lengths and the places of src/types/profile.ts at
 * version 70; for Perfetto the members of the Trace Event Format.
 */
#include "commandrun.h"

#include "cli/base/options.h"
#include "incidentmade.h"
#include "lib/base/compress.h"
#include "lib/base/json.h"
#include "lib/profile/pprof.h"
#include "lib/profile/profile.h"
#include "stream_feed.h"
#include "lib/stream/stream.h"
#include "scene.h"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"

#include <fcntl.h>
#include <sys/stat.h>

Suite *export_suite(void);

static struct commandrun command_run;

#define FIRED_NS UINT64_C(1795144502123000000)

static char path[300];
static int dirfd_of_test = -1;
static struct json_document *document;

static void set_up(void)
{
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
	setenv("SPIKEWATCH_DIR", path, 1);
	document = NULL;
}

static void tear_down(void)
{
	json_document_free(document);
	close(dirfd_of_test);
	incidentmade_remove(path);
	commandrun_end(&command_run);
}

static void make(const struct incidentmade_options *options)
{
	static const struct incidentmade_options usual;

	incidentmade_write(dirfd_of_test, options ? options : &usual);
}

static void put_file(const char *name, const struct buffer *data)
{
	char file[600];

	snprintf(file, sizeof(file), "%s/%s/%s", path, INCIDENTMADE_ID, name);
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sink_write_all(fd, data->data, data->len), 0);
	close(fd);
}

/*
 * postgres/812: main calls a function with a hostile name, into which another one is inlined; a
 * frame without a name.
 */
static void make_profile(const char *name, enum stack_profile_quantity quantity)
{
	const struct stack_profile_options options = {
		.quantity = quantity,
		.fired_ns = 10 * NS_PER_S,
		.wall_ns = FIRED_NS,
		.to_ns = 15 * NS_PER_S,
		.spike_from_ns = 1,
		.period_ns = 10000000,
	};
	const struct stack_profile_line of_main = { "main", NULL, 7 };
	const struct stack_profile_line of_evil[] = { { "inner", "x.c", 30 }, { "evil\"\x1b[31m\n", "x.c", 20 } };
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct buffer bytes = { 0 };
	struct sink sink = sink_buffer(&bytes);
	uint32_t mapping, frames[3];

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(
		stack_profile_mapping(profile,
				      &(struct stack_profile_mapping){ .start = 1, .end = 9, .path = "/lib/libx.so" },
				      &mapping),
		0);
	const struct stack_profile_frame made[] = { { mapping, 2, &of_main, 1 },
						    { mapping, 3, of_evil, 2 },
						    { mapping, 4, NULL, 0 } };

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(stack_profile_frame(profile, &made[i], &frames[i]), 0);
	for (unsigned i = 0; i < 4; i++) {
		const struct stack_profile_sample sample = {
			.time_ns = i / 2,
			.pid = 812,
			.tid = i == 3 ? 815 : 812,
			.process = "postgres",
			.thread = "hot-loop",
			.frames = (uint32_t[]){ frames[i % 2 ? 2 : 1], frames[0] },
			.frame_count = 2,
			.count = i + 1,
			.weight = (i + 1) * 10000000ULL,
		};

		ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	}
	ck_assert_int_eq(stack_profile_add(profile, &(struct stack_profile_sample){ .pid = 99,
										    .tid = 99,
										    .process = "neighbour",
										    .other = true,
										    .frames = frames,
										    .frame_count = 1,
										    .count = 7,
										    .weight = 70000000 }),
			 0);
	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	put_file(name, &bytes);
	buffer_release(&bytes);
}

/* Exports the last incident; the JSON's root. */
static const struct json_node *exported(const char *format)
{
	const struct json_limits limits = { .size_bytes = COMMANDRUN_OUTPUT_MAX, .depth = 16, .nodes = 1 << 20 };
	struct json_error error = { 0 };

	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", (char *)(uintptr_t)format), EXIT_OK);
	json_document_free(document);
	document = NULL;
	int rc = json_parse(command_run.output, command_run.len, &limits, &document, &error);
	ck_assert_msg(rc == 0, "line %u column %u: %s", error.place.line, error.place.column, error.message);
	return json_root(document);
}

static const struct json_node *need(const struct json_node *node, const char *key, enum json_type type)
{
	const struct json_node *member = json_member(node, key);

	ck_assert_msg(member, "%s is missing", key);
	ck_assert_msg(member->type == type, "%s is %s", key, json_type_name(member->type));
	return member;
}

static double number(const struct json_node *node, const char *key)
{
	return need(node, key, JSON_NUMBER)->number;
}

/* A table: every column is as long as it says, and holds numbers from min to below max, or null. */
static size_t table(const struct json_node *parent, const char *name, const char *const *columns)
{
	const struct json_node *node = need(parent, name, JSON_OBJECT);
	size_t length = (size_t)number(node, "length");

	for (; *columns; columns++)
		ck_assert_msg(need(node, *columns, JSON_ARRAY)->count == length, "%s.%s has another length", name,
			      *columns);
	return length;
}

static void places(const struct json_node *parent, const char *name, const char *column, double min, double end)
{
	const struct json_node *values = need(need(parent, name, JSON_OBJECT), column, JSON_ARRAY);

	for (const struct json_node *value = values->first; value; value = value->next)
		ck_assert_msg(value->type == JSON_NULL || (value->number >= min && value->number < end),
			      "%s.%s: %f of %f", name, column, value->number, end);
}

#define COLUMNS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void check_shared(const struct json_node *shared, size_t *ret_stacks)
{
	double strings = (double)need(shared, "stringArray", JSON_ARRAY)->count;
	size_t stacks = table(shared, "stackTable", COLUMNS("frame", "prefixOffset"));
	size_t frames = table(shared, "frameTable",
			      COLUMNS("address", "lib", "inlineDepth", "category", "subcategory", "func",
				      "nativeSymbol", "innerWindowID", "line", "column", "originalLocation"));
	size_t functions = table(shared, "funcTable",
				 COLUMNS("name", "isJS", "relevantForJS", "resource", "source", "lineNumber",
					 "columnNumber", "originalLocation"));
	size_t resources = table(shared, "resourceTable", COLUMNS("name", "host", "type"));
	size_t sources = table(shared, "sources",
			       COLUMNS("id", "filename", "startLine", "startColumn", "sourceMapURL", "content"));
	size_t at = 0;

	table(shared, "nativeSymbols", COLUMNS("libIndex", "address", "name", "functionSize"));
	table(shared, "sourceLocationTable", COLUMNS("source", "line", "column"));
	places(shared, "stackTable", "frame", 0, (double)frames);
	places(shared, "frameTable", "func", 0, (double)functions);
	places(shared, "frameTable", "category", 0, 3);
	places(shared, "frameTable", "lib", -1, 0);
	places(shared, "funcTable", "name", 0, strings);
	places(shared, "funcTable", "resource", -1, (double)resources);
	places(shared, "funcTable", "source", 0, (double)sources);
	places(shared, "resourceTable", "name", 0, strings);
	places(shared, "sources", "filename", 0, strings);
	/* A parent comes before its child. */
	for (const struct json_node *offset =
		     need(need(shared, "stackTable", JSON_OBJECT), "prefixOffset", JSON_ARRAY)->first;
	     offset; offset = offset->next, at++)
		ck_assert_double_le(offset->number, (double)at);
	*ret_stacks = stacks;
}

static void check_times(const struct json_node *table_node, const char *column, double end)
{
	double last = 0;

	for (const struct json_node *time = need(table_node, column, JSON_ARRAY)->first; time; time = time->next) {
		ck_assert_msg(time->number >= last && time->number <= end, "%s: %f after %f", column, time->number,
			      last);
		last = time->number;
	}
}

static void check_thread(const struct json_node *thread, size_t stacks, double end)
{
	need(thread, "processType", JSON_STRING);
	need(thread, "name", JSON_STRING);
	need(thread, "pid", JSON_STRING);
	need(thread, "tid", JSON_NUMBER);
	need(thread, "isMainThread", JSON_BOOL);
	need(thread, "pausedRanges", JSON_ARRAY);
	number(thread, "processStartupTime");
	number(thread, "registerTime");
	table(thread, "samples", COLUMNS("stack", "time", "weight"));
	table(thread, "markers", COLUMNS("data", "name", "startTime", "endTime", "phase", "category"));
	places(thread, "samples", "stack", 0, (double)stacks);
	check_times(need(thread, "samples", JSON_OBJECT), "time", end);
}

static void check_counter(const struct json_node *counter, size_t threads, double end)
{
	const struct json_node *display = need(counter, "display", JSON_OBJECT);

	need(counter, "name", JSON_STRING);
	need(counter, "category", JSON_STRING);
	need(counter, "description", JSON_STRING);
	need(counter, "pid", JSON_STRING);
	ck_assert_double_lt(number(counter, "mainThreadIndex"), (double)threads);
	ck_assert_uint_gt(table(counter, "samples", COLUMNS("time", "count")), 0);
	check_times(need(counter, "samples", JSON_OBJECT), "time", end);
	ck_assert(strncmp(need(display, "graphType", JSON_STRING)->text, "line-", 5) == 0);
	need(display, "unit", JSON_STRING);
	need(display, "color", JSON_STRING);
	need(display, "label", JSON_STRING);
	number(display, "sortWeight");
	need(display, "tooltipRows", JSON_ARRAY);
	need(display, "markerSchemaLocation", JSON_NULL);
}

/* All of it; the number of threads. */
static size_t check_firefox(const struct json_node *root)
{
	const struct json_node *meta = need(root, "meta", JSON_OBJECT), *threads = need(root, "threads", JSON_ARRAY);
	double end = number(meta, "profilingEndTime") + 1e-3;
	size_t stacks;

	ck_assert_double_eq(number(meta, "preprocessedProfileVersion"), 70);
	ck_assert_double_gt(number(meta, "interval"), 0);
	number(meta, "version");
	number(meta, "processType");
	number(meta, "stackwalk");
	need(meta, "product", JSON_STRING);
	need(meta, "markerSchema", JSON_ARRAY);
	ck_assert_str_eq(json_member(need(meta, "categories", JSON_ARRAY)->first, "color")->text, "grey");
	need(root, "libs", JSON_ARRAY);
	check_shared(need(root, "shared", JSON_OBJECT), &stacks);
	for (const struct json_node *thread = threads->first; thread; thread = thread->next)
		check_thread(thread, stacks, end);
	for (const struct json_node *counter = need(root, "counters", JSON_ARRAY)->first; counter;
	     counter = counter->next)
		check_counter(counter, threads->count, end);
	return threads->count;
}

static double sum(const struct json_node *array)
{
	double total = 0;

	for (const struct json_node *value = array->first; value; value = value->next)
		total += value->number;
	return total;
}

static const struct json_node *at(const struct json_node *array, double place)
{
	const struct json_node *value = array->first;

	for (; value && place > 0; place--)
		value = value->next;
	ck_assert_ptr_nonnull(value);
	return value;
}

/* The functions of a stack, leaf first, each followed by a space. */
static void unwind(const struct json_node *shared, double stack, char *ret, size_t cap)
{
	const struct json_node *stacks = json_member(shared, "stackTable"), *frames = json_member(shared, "frameTable");
	double offset = 1;

	for (*ret = '\0'; offset > 0; stack -= offset) {
		double function =
			at(json_member(frames, "func"), at(json_member(stacks, "frame"), stack)->number)->number;
		double name = at(json_member(json_member(shared, "funcTable"), "name"), function)->number;
		size_t len = strlen(ret);

		snprintf(ret + len, cap - len, "%s ", at(json_member(shared, "stringArray"), name)->text);
		offset = at(json_member(stacks, "prefixOffset"), stack)->number;
	}
}

START_TEST(stacks_lead_from_the_leaf_to_the_root)
{
	const struct json_node *root, *stacks;
	char text[300];

	make(NULL);
	make_profile("cpu.pb.gz", STACK_PROFILE_CPU);
	root = exported("firefox");
	stacks = json_member(json_member(json_member(root, "threads")->first, "samples"), "stack");
	unwind(json_member(root, "shared"), stacks->first->number, text, sizeof(text));
	ck_assert_str_eq(text, "inner evil\"\\x1b[31m\\x0a main ");
	unwind(json_member(root, "shared"), stacks->first->next->number, text, sizeof(text));
	ck_assert_str_eq(text, "[libx.so] main ");
}
END_TEST

START_TEST(the_firefox_profiler_gets_counters_beside_stacks)
{
	const struct json_node *root, *samples, *counter;

	make(NULL);
	make_profile("cpu.pb.gz", STACK_PROFILE_CPU);
	root = exported("firefox");
	/* The target is the main thread of its process: stacks of that thread are in it. */
	ck_assert_uint_eq(check_firefox(root), 2);
	samples = need(json_member(root, "threads")->first, "samples", JSON_OBJECT);
	ck_assert_double_eq(number(samples, "length"), 1 + 2 + 3);
	ck_assert_double_eq_tol(sum(json_member(samples, "weight")), 60, 1e-6);
	ck_assert_str_eq(json_member(samples, "weightType")->text, "tracing-ms");
	ck_assert_double_eq(number(need(json_member(root, "threads")->first, "markers", JSON_OBJECT), "length"), 2);
	/* Time begins 10 s before the firing, with the first sample and the profile. */
	ck_assert_double_eq_tol(number(json_member(root, "meta"), "startTime"),
				(double)(FIRED_NS - 10 * NS_PER_S) / 1e6, 0.001);
	ck_assert_uint_eq(json_member(root, "counters")->count, 2);
	counter = json_member(root, "counters")->first;
	ck_assert_str_eq(json_member(counter, "name")->text, "CPU");
	/* 300 ms of burst, and 2 ms in each of 15 s. */
	ck_assert_double_eq_tol(sum(json_member(json_member(counter, "samples"), "count")), 330, 1);
	ck_assert_double_eq(sum(json_member(json_member(counter->next, "samples"), "count")), 40 << 20);
	commandrun_harmless(&command_run);
}
END_TEST

START_TEST(samples_alone_and_stacks_alone_are_profiles_too)
{
	const struct json_node *root;
	char file[600];

	make(NULL);
	ck_assert_uint_eq(check_firefox(exported("firefox")), 1);
	make_profile("cpu.pb.gz", STACK_PROFILE_CPU);
	snprintf(file, sizeof(file), "%s/%s/samples.tsv", path, INCIDENTMADE_ID);
	ck_assert_int_eq(unlink(file), 0);
	root = exported("firefox");
	ck_assert_uint_eq(check_firefox(root), 2);
	/* 812 of process 812, and 815. */
	ck_assert(json_member(json_member(root, "threads")->first, "isMainThread")->boolean);
	ck_assert(!json_member(json_member(root, "threads")->first->next, "isMainThread")->boolean);
	snprintf(file, sizeof(file), "%s/%s/cpu.pb.gz", path, INCIDENTMADE_ID);
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "firefox"), EXIT_TROUBLE);
	commandrun_says(&command_run, "neither samples nor stacks");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "perfetto"), EXIT_TROUBLE);
}
END_TEST

START_TEST(memory_is_weighed_in_bytes)
{
	const struct json_node *root, *samples;

	make(NULL);
	make_profile("memory.pb.gz", STACK_PROFILE_MEMORY);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "firefox", "--memory"), EXIT_OK);
	ck_assert_int_eq(json_parse(command_run.output, command_run.len, &(struct json_limits){ .nodes = 1 << 20 },
				    &document, NULL),
			 0);
	root = json_root(document);
	check_firefox(root);
	samples = json_member(json_member(root, "threads")->first, "samples");
	ck_assert_str_eq(json_member(samples, "weightType")->text, "bytes");
	ck_assert_double_eq(number(samples, "length"), 3);
	ck_assert_double_eq(sum(json_member(samples, "weight")), 60000000);
}
END_TEST

START_TEST(a_damaged_profile_is_reported)
{
	struct buffer noise = { 0 };

	make(NULL);
	ck_assert_int_eq(buffer_append(&noise, "\x1f\x8b no profile", 13), 0);
	put_file("cpu.pb.gz", &noise);
	buffer_release(&noise);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "firefox"), EXIT_TROUBLE);
	commandrun_says(&command_run, "damaged");
}
END_TEST

/* Fields of another type, or of a number that is that of a sample only when it is cut. */
START_TEST(what_only_looks_like_a_sample_of_a_profile_is_none)
{
	static const struct {
		const char *bytes;
		size_t len;
	} tails[] = {
		{ "\x10\x00", 2 },
		{ "\x11\x00\x00\x00\x00\x00\x00\x00\x00", 9 },
		{ "\x92\x80\x80\x80\x80\x01\x00", 7 },
	};

	make(NULL);
	for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
		AUTO(buffer_release) struct buffer plain = { 0 }, packed = { 0 };
		AUTO(pprof_read_freep) struct pprof_read *reader = NULL;
		struct sink sink = sink_buffer(&packed);

		/* No sample, string 0, and so many fields that a place for each is not mapped. */
		ck_assert_int_eq(buffer_append(&plain, "\x32\x00", 2), 0);
		for (unsigned n = 0; n < 100000; n++)
			ck_assert_int_eq(buffer_append(&plain, tails[i].bytes, tails[i].len), 0);
		ck_assert_int_eq(deflate_gzip(plain.data, plain.len, &sink), 0);
		put_file("cpu.pb.gz", &packed);
		ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "pprof"), EXIT_OK);
		ck_assert_int_eq(pprof_read_new(command_run.output, command_run.len, NULL, &reader), 0);
		ck_assert_uint_eq(pprof_read_profile(reader)->sample_count, 0);
	}
}
END_TEST

START_TEST(perfetto_gets_counters_phases_and_the_firing)
{
	const struct json_node *events;
	unsigned counters = 0, slices = 0, instants = 0, names = 0;

	make(&(struct incidentmade_options){ .everything = true });
	events = need(exported("perfetto"), "traceEvents", JSON_ARRAY);
	for (const struct json_node *event = events->first; event; event = event->next) {
		const char *phase = need(event, "ph", JSON_STRING)->text;

		need(event, "name", JSON_STRING);
		number(event, "pid");
		number(event, "tid");
		ck_assert_double_ge(number(event, "ts"), 0);
		if (*phase == 'C')
			ck_assert(number(need(event, "args", JSON_OBJECT), "value") >= 0 && ++counters);
		else if (*phase == 'M')
			ck_assert(need(need(event, "args", JSON_OBJECT), "name", JSON_STRING)->text && ++names);
		else if (*phase == 'X')
			ck_assert(number(event, "dur") > 0 && ++slices);
		else
			ck_assert(*phase == 'i' && *need(event, "s", JSON_STRING)->text == 'g' && ++instants);
		if (*phase == 'i')
			ck_assert_double_eq_tol(number(event, "ts"), 10e6, 1);
	}
	ck_assert_uint_gt(counters, 100);
	ck_assert_uint_eq(slices, 3);
	ck_assert_uint_eq(instants, 1);
	ck_assert_uint_eq(names, 4);
}
END_TEST

START_TEST(rows_come_out_as_they_are)
{
	const struct json_node *root, *columns, *row;
	size_t lines = 0;

	make(&(struct incidentmade_options){ .everything = true });
	root = exported("json");
	columns = need(root, "columns", JSON_ARRAY);
	ck_assert_uint_eq(need(root, "targets", JSON_ARRAY)->count, 2);
	ck_assert_str_eq(json_member(json_member(root, "targets")->first, "name")->text, "postgres/812");
	for (row = need(root, "rows", JSON_ARRAY)->first; row; row = row->next, lines++)
		ck_assert_uint_eq(row->count, columns->count);
	ck_assert_double_eq(json_member(root, "rows")->first->first->number, -10e9);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv"), EXIT_OK);
	commandrun_says(&command_run, "since_firing[ns],wall[ns],target,cpu[ns],");
	commandrun_says(&command_run, "\r\n-10000000000,1795144492123000000,\"postgres/812\",0,,,41943040,");
	for (const char *at = command_run.output; (at = strstr(at, "\r\n")) != NULL; at += 2)
		lines--;
	ck_assert_int_eq((int)lines, -1); /* the header */
}
END_TEST

/* The target slept through it: another tick than that of its next row has ended it. */
START_TEST(a_hole_is_told_in_every_form_of_samples)
{
	const struct json_node *hole;

	make(&(struct incidentmade_options){ .hole = true });
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv"), EXIT_OK);
	commandrun_says_not(&command_run, "which no row tells of");
	for (char *row = strstr(command_run.output, "\r\n") + 2, *end; (end = strstr(row, "\r\n")); row = end + 2) {
		long long at_ns = strtoll(row, NULL, 10);

		*end = '\0';
		ck_assert_str_eq(strrchr(row, ','), at_ns == -4000000000 ? ",1500000000" : ",0");
	}
	hole = need(exported("json"), "holes", JSON_ARRAY)->first;
	ck_assert_double_eq(number(hole, "from_ns"), -6e9);
	ck_assert_double_eq(number(hole, "to_ns"), -4.5e9);
	exported("perfetto");
	commandrun_says(&command_run, "no samples: CPU is the average");
	exported("firefox");
	commandrun_says(&command_run, "no samples: CPU is the average");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "gvisor"), EXIT_OK);
	commandrun_says(&command_run, "cannot say that the sampling has 1 hole;");
}
END_TEST

START_TEST(a_hole_in_which_the_recording_ends_has_no_average)
{
	make(&(struct incidentmade_options){ .cut = true });
	exported("perfetto");
	commandrun_says(&command_run, "no samples, and none after: CPU is not known");
	commandrun_says_not(&command_run, "CPU is the average");
	exported("firefox");
	commandrun_says(&command_run, "no samples, and none after: CPU is not known");
	commandrun_says_not(&command_run, "CPU is the average");
}
END_TEST

START_TEST(gvisors_tools_get_a_whole_stream)
{
	struct stream_reader_report report;
	struct stream_reader_events events = { .ctx = NULL };
	struct stream_reader *stream_reader;

	make(&(struct incidentmade_options){ .everything = true });
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "gvisor"), EXIT_OK);
	ck_assert_int_eq(stream_reader_new(&events, &stream_reader), 0);
	ck_assert_int_eq(stream_feed(stream_reader, command_run.output, command_run.len), 0);
	ck_assert_int_eq(stream_reader_finish(stream_reader, &report), 0);
	stream_reader_free(stream_reader);
	ck_assert_int_eq(report.format, STREAM_GVISOR);
	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_eq(report.columns, 12);
	ck_assert_uint_gt(report.rows, 40);
}
END_TEST

/* A stream whose target has this name. */
static void name_the_target(const char *json)
{
	struct buffer out = { 0 };
	struct stream_column columns[] = { { "cpu", "ns", "counter", "" } };
	struct stream_options options = { .columns = columns, .column_count = 1, .start = { FIRED_NS } };
	struct stream_writer *writer;

	ck_assert_int_eq(stream_writer_new(sink_buffer(&out), &options, &writer), 0);
	ck_assert_int_eq(stream_target(writer, 1, json, strlen(json)), 0);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(stream_row(writer, i * NS_PER_S, 1, &i, 1), 0);
	ck_assert_int_eq(stream_close(writer), 0);
	put_file("samples.tsv", &out);
	buffer_release(&out);
}

/* The byte in the middle of the samples becomes another one. */
static void damage_samples(void)
{
	char file[600], *text;

	snprintf(file, sizeof(file), "%s/%s/samples.tsv", path, INCIDENTMADE_ID);
	text = scene_read(file);
	ck_assert_ptr_nonnull(text);

	struct buffer bytes = { .data = text, .len = strlen(text) };

	text[bytes.len / 2] ^= 1;
	put_file("samples.tsv", &bytes);
	free(text);
}

START_TEST(damaged_samples_are_exported_and_said_to_be_damaged)
{
	static char *const formats[] = { "csv", "json", "gvisor", "firefox", "perfetto" };
	char file[400];
	struct stat st;

	make(NULL);
	snprintf(file, sizeof(file), "%s/out", path);
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", formats[i], "-o", file), EXIT_OK);
		ck_assert_str_eq(command_run.output, "");
		unlink(file);
	}
	damage_samples();
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", formats[i], "-o", file), EXIT_TROUBLE);
		commandrun_says(&command_run, "samples.tsv is damaged: ");
		commandrun_says(&command_run, " rows recovered, 1 known to be lost, 1 damaged lines\n");
		ck_assert_int_eq(stat(file, &st), 0);
		ck_assert_int_gt((int)st.st_size, 1000);
		unlink(file);
	}
}
END_TEST

/* Of more targets than a reader keeps, or at times that no incident has. */
START_TEST(samples_that_are_left_out_are_said_to_be)
{
	AUTO(buffer_release) struct buffer out = { 0 };
	struct stream_column columns[] = { { "cpu", "ns", "counter", "" } };
	struct stream_options options = { .columns = columns, .column_count = 1, .start = { FIRED_NS } };
	struct stream_writer *writer;

	make(NULL);
	ck_assert_int_eq(stream_writer_new(sink_buffer(&out), &options, &writer), 0);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(stream_row(writer, i * 2 * 86400 * NS_PER_S, 1, &i, 1), 0);
	ck_assert_int_eq(stream_close(writer), 0);
	put_file("samples.tsv", &out);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv"), EXIT_TROUBLE);
	commandrun_says(&command_run, ": 2 rows at impossible times, or of too many targets, are left out\n");
	commandrun_says_not(&command_run, "is damaged");
	commandrun_says(&command_run, "since_firing[ns]");
}
END_TEST

START_TEST(hostile_names_stay_names)
{
	static char *const formats[] = { "csv", "json", "gvisor", "firefox", "perfetto" };

	make(NULL);
	name_the_target("{\"name\":\"=cmd|'/c calc'!A1\\\",\\u001b[31m\\n\\u009b[x\"}");
	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", formats[i]), EXIT_OK);
		commandrun_says_not(&command_run, "\x1b");
		commandrun_says_not(&command_run, "\xc2\x9b");
	}
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv"), EXIT_OK);
	commandrun_says(&command_run, ",\"'=cmd|'/c calc'!A1\"\",\\x1b[31m\\x0a\\xc2\\x9b[x\",");
	check_firefox(exported("firefox"));
}
END_TEST

START_TEST(profiles_are_copied)
{
	struct buffer bytes = { 0 };

	make(NULL);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "folded"), EXIT_TROUBLE);
	commandrun_says(&command_run, "no cpu.folded");
	ck_assert_int_eq(buffer_append(&bytes, "a;b 3\n", 6), 0);
	put_file("cpu.folded", &bytes);
	put_file("memory.pb.gz", &bytes);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "folded"), EXIT_OK);
	commandrun_says(&command_run, "no cpu.pb.gz: stacks are those of all processes\na;b 3\n");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "folded", "--machine"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "a;b 3\n");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "pprof", "--memory"), EXIT_TROUBLE);
	commandrun_says(&command_run, "damaged");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "pprof", "--memory", "--machine"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "a;b 3\n");
	/* An incident that was sent to us: nothing of it reaches a terminal as a command. */
	bytes.len = 0;
	ck_assert_int_eq(buffer_append(&bytes, "\033[31ma\\x3b;\xc2\x9b\xc3\xa9 3\n\xff 1", 21), 0);
	put_file("cpu.folded", &bytes);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "folded", "--machine"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "\\x1b[31ma\\x3b;\\xc2\\x9b\xc3\xa9 3\n\\xff 1");
	buffer_release(&bytes);
}
END_TEST

START_TEST(stacks_are_of_the_target_and_of_the_machine_if_that_is_asked_for)
{
	static char *const machine[] = { NULL, (char *)"--machine" };

	make(NULL);
	make_profile("cpu.pb.gz", STACK_PROFILE_CPU);
	ck_assert_uint_eq(check_firefox(exported("firefox")), 2);
	for (size_t i = 0; i < 2; i++) {
		AUTO(pprof_read_freep) struct pprof_read *reader = NULL;

		ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "folded", machine[i]),
				 i == 0 ? EXIT_OK : EXIT_TROUBLE);
		if (i == 0) {
			commandrun_says(&command_run, "postgres;main;[libx.so] 2\n");
			commandrun_says_not(&command_run, "neighbour");
		}
		ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "pprof", machine[i]), EXIT_OK);
		ck_assert_int_eq(pprof_read_new(command_run.output, command_run.len, NULL, &reader), 0);
		/* Two stacks of one thread, one of the other; in the second round the neighbour's too. */
		ck_assert_uint_eq(pprof_read_profile(reader)->sample_count, 4 + i);
		ck_assert_uint_gt(pprof_read_profile(reader)->function_count, 2);
	}
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "firefox", "--machine"), EXIT_OK);
	commandrun_says(&command_run, "neighbour");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv", "--machine"), EXIT_USAGE);
}
END_TEST

START_TEST(a_file_is_replaced_by_a_whole_one_or_not_at_all)
{
	char file[400];

	make(NULL);
	snprintf(file, sizeof(file), "%s/out", path);
	scene_write(file, "before");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "pprof", "-o", file), EXIT_TROUBLE);
	ck_assert(scene_says(file, "before"));
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv", "-o", file), EXIT_OK);
	ck_assert_str_eq(command_run.output, "");
	ck_assert(scene_says(file, "since_firing[ns]"));
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv", "-o", "/dev/null/x"), EXIT_TROUBLE);
}
END_TEST

/* Each allocation fails once: the command says so, or does without what it wanted to say more. */
START_TEST(memory_that_is_short_is_reported)
{
	static char *const forms[] = { "csv", "json", "gvisor", "firefox", "perfetto" };
	char file[400];

	make(NULL);
	make_profile("cpu.pb.gz", STACK_PROFILE_CPU);
	snprintf(file, sizeof(file), "%s/out", path);
	int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		bool injected = true, wrong = false;
		int code = EXIT_OK;

		dup2(null, STDERR_FILENO);
		for (long n = 1; injected && n < 100000; n++) {
			char *words[] = { "export", INCIDENTMADE_ID, "-f", forms[i], "-o", file, NULL };

			torture_arm(n);
			code = export_command(6, words);
			injected = torture_disarm();
			wrong |= code != EXIT_OK && (code != EXIT_TROUBLE || !injected);
		}
		dup2(saved, STDERR_FILENO);
		ck_assert_msg(!injected && !wrong && code == EXIT_OK, "%s: %d", forms[i], code);
	}
	close(null);
	close(saved);
}
END_TEST

START_TEST(wrong_usage_is_explained)
{
	make(NULL);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last"), EXIT_USAGE);
	commandrun_says(&command_run, "csv, json, gvisor");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "firefix"), EXIT_USAGE);
	commandrun_says(&command_run, "did you mean firefox?");
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "last", "-f", "csv", "--memory"), EXIT_USAGE);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "nobody", "-f", "csv"), EXIT_TROUBLE);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "/tmp", "-f", "csv"), EXIT_USAGE);
	ck_assert_int_eq(COMMANDRUN(&command_run, export, "-f", "csv"), EXIT_USAGE);
}
END_TEST

Suite *export_suite(void)
{
	Suite *suite = suite_create("export");
	TCase *tcase = tcase_create("export");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, the_firefox_profiler_gets_counters_beside_stacks);
	tcase_add_test(tcase, stacks_lead_from_the_leaf_to_the_root);
	tcase_add_test(tcase, samples_alone_and_stacks_alone_are_profiles_too);
	tcase_add_test(tcase, memory_is_weighed_in_bytes);
	tcase_add_test(tcase, a_damaged_profile_is_reported);
	tcase_add_test(tcase, what_only_looks_like_a_sample_of_a_profile_is_none);
	tcase_add_test(tcase, perfetto_gets_counters_phases_and_the_firing);
	tcase_add_test(tcase, rows_come_out_as_they_are);
	tcase_add_test(tcase, a_hole_is_told_in_every_form_of_samples);
	tcase_add_test(tcase, a_hole_in_which_the_recording_ends_has_no_average);
	tcase_add_test(tcase, gvisors_tools_get_a_whole_stream);
	tcase_add_test(tcase, damaged_samples_are_exported_and_said_to_be_damaged);
	tcase_add_test(tcase, samples_that_are_left_out_are_said_to_be);
	tcase_add_test(tcase, hostile_names_stay_names);
	tcase_add_test(tcase, profiles_are_copied);
	tcase_add_test(tcase, stacks_are_of_the_target_and_of_the_machine_if_that_is_asked_for);
	tcase_add_test(tcase, a_file_is_replaced_by_a_whole_one_or_not_at_all);
	tcase_add_test(tcase, memory_that_is_short_is_reported);
	tcase_add_test(tcase, wrong_usage_is_explained);
	suite_add_tcase(suite, tcase);
	return suite;
}
