/*
 * check_functions.c: the section of spikewatch show to the letter, at several widths; files that
 * are hostile, cut, or of something else.
 */
#include "cli/incident/profiles.h"

#include "incidentmade.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "torture.h"
#include "cli/base/plot.h"
#include "lib/base/json.h"
#include "lib/incident/incident.h"
#include "lib/profile/stack_text.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUTPUT_MAX 65536

Suite *functions_suite(void);

static char path[300];
static int dirfd_of_test = -1;
static char output[OUTPUT_MAX];
static struct incident incident;      /* whose captures are */
static enum function_table_unit unit; /* of the table */

static void set_up(void)
{
	incident = (struct incident){ .capture_count = 0 };
	unit = FUNCTION_TABLE_IN_SAMPLES;
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
}

static void tear_down(void)
{
	close(dirfd_of_test);
	incidentmade_remove(path);
}

static void write_table(const char *text, size_t len)
{
	const char *name = unit == FUNCTION_TABLE_IN_BYTES ? FUNCTIONS_MEMORY_FILE : FUNCTIONS_FILE;
	AUTO_CLOSE int fd = openat(dirfd_of_test, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sink_write_all(fd, text, len), 0);
}

/* Loads it and prints it into output. */
static void show(unsigned width, struct functions *ret)
{
	struct plot_style style = { .width = width };
	FILE *file = fmemopen(output, sizeof(output), "w");

	memset(output, 0, sizeof(output));
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(functions_load(dirfd_of_test, unit, ret), 0);
	functions_print(ret, &incident, &style, file);
	fclose(file);
}

static void show_text(const char *text, unsigned width, struct functions *ret)
{
	write_table(text, strlen(text));
	show(width, ret);
}

static void harmless(unsigned width)
{
	size_t used = 0;

	for (const unsigned char *p = (const unsigned char *)output; *p; p++) {
		ck_assert_msg(*p == '\n' || (*p >= ' ' && *p != 0x7f), "byte %02x in:\n%s", *p, output);
		used = *p == '\n' ? 0 : used + ((*p & 0xC0) != 0x80);
		ck_assert_msg(used <= width, "a line is longer than %u:\n%s", width, output);
	}
}

/* The section of an incident, as a file of tests/data/functions. */
static void golden(const char *name)
{
	static char want[OUTPUT_MAX];
	char file_name[200];
	FILE *file;

	snprintf(file_name, sizeof(file_name), "tests/data/functions/%s.txt", name);
	if (getenv("SPIKEWATCH_WRITE_GOLDEN")) {
		file = fopen(file_name, "w");
		fputs(output, file);
		fclose(file);
	}
	file = fopen(file_name, "r");
	ck_assert_msg(file, "%s is missing", file_name);
	want[fread(want, 1, sizeof(want) - 1, file)] = '\0';
	fclose(file);
	ck_assert_msg(strcmp(output, want) == 0, "differs from %s:\n%s", file_name, output);
}

static void load_file(const char *name)
{
	static char text[OUTPUT_MAX];
	FILE *file = fopen(name, "r");
	size_t len;

	ck_assert_msg(file, "%s is missing", name);
	len = fread(text, 1, sizeof(text), file);
	fclose(file);
	write_table(text, len);
}

static void show_golden(unsigned width, const char *name, struct functions *ret)
{
	show(width, ret);
	harmless(width);
	golden(name);
}

static void add_capture(const char *name, enum incident_capture_status status, const char *why)
{
	struct incident_capture capture = { .status = status };

	incident_text(capture.name, sizeof(capture.name), name);
	incident_text(capture.why, sizeof(capture.why), why);
	incident_add_capture(&incident, &capture);
}

START_TEST(shows_what_the_golden_text_shows)
{
	struct functions functions;

	load_file("tests/data/functions/functions.tsv");
	show_golden(40, "width-40", &functions);
	show_golden(80, "width-80", &functions);
	show_golden(120, "width-120", &functions);
	ck_assert(functions.there);
	/* Ten of the spike, and what was hottest before it and is not among them. */
	ck_assert_uint_eq(functions.count, 12);
	ck_assert_str_eq(functions.row[0].function, "hash_bytes");
	ck_assert_str_eq(functions.row[0].process, "postgres");
	ck_assert_int_eq(functions.row[0].pid, 812);
	ck_assert_str_eq(functions.row[10].function, "vacuum_page");
	ck_assert_str_eq(functions.row[11].function, "do_nanosleep");
	ck_assert_uint_eq(functions.thread_count, FUNCTIONS_THREADS_SHOWN);
	ck_assert_int_eq(functions.thread[0].tid, 815);
	ck_assert_int_eq(functions.thread[6].tid, 816);
	ck_assert_str_eq(functions.thread[9].thread, "");
	show(20, &functions);
	harmless(FUNCTIONS_WIDTH_MIN);
	for (unsigned width = 0; width < 200; width++) {
		show(width, &functions);
		harmless(width > FUNCTIONS_WIDTH_MIN ? width : FUNCTIONS_WIDTH_MIN);
	}
}
END_TEST

START_TEST(memory_is_shown_in_bytes)
{
	struct functions functions;

	unit = FUNCTION_TABLE_IN_BYTES;
	load_file("tests/data/functions/memory-functions.tsv");
	show_golden(40, "memory-width-40", &functions);
	show_golden(80, "memory-width-80", &functions);
	show_golden(120, "memory-width-120", &functions);
	ck_assert_uint_eq(functions.row[0].self_faults, 1);
	ck_assert_uint_eq(functions.row[1].self_faults, 25600);
	for (unsigned width = 0; width < 200; width++) {
		show(width, &functions);
		harmless(width > FUNCTIONS_WIDTH_MIN ? width : FUNCTIONS_WIDTH_MIN);
	}
}
END_TEST

START_TEST(busy_neighbours_leave_room_for_what_the_incident_is_of)
{
	struct functions functions;
	char text[4096];
	size_t used = (size_t)snprintf(text, sizeof(text), "%s\n%s 100, 1000\n", FUNCTION_TABLE_HEADER,
				       FUNCTION_TABLE_SAMPLES);

	for (int i = 0; i < 12; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "noisy%d\t%s\t%d\t%d\t50\t50\t0\tt\t9\t1\tp\t9\n", i, FUNCTION_TABLE_NEIGHBOUR,
					 i, i);
	snprintf(text + used, sizeof(text) - used,
		 "sort\t/bin/db\t0\t0\t2\t2\t0\tt\t7\t1\tdb\t7\n"
		 "idle\t/bin/db\t1\t1\t0\t0\t0\tt\t7\t1\tdb\t7\n");
	show_text(text, 80, &functions);
	ck_assert_uint_eq(functions.count, 2 + FUNCTIONS_NEIGHBOURS_SHOWN);
	ck_assert_str_eq(functions.row[0].function, "sort");
	ck_assert_str_eq(functions.row[1].function, "idle");
	ck_assert(!functions.row[1].neighbour);
	/* Among equals the one that was busier before. */
	ck_assert_str_eq(functions.row[2].function, "noisy11");
	ck_assert(functions.row[2].neighbour);
	ck_assert_ptr_nonnull(strstr(output, "  idle      db      t/7\n"
					     "other processes (percent of all):\n"
					     "  11.0   11.0     5.0    5.0  noisy11           t/9, 2 %\n"));
	show(40, &functions);
	ck_assert_ptr_nonnull(strstr(output, "  idle\nother processes (percent of all):\n  11.0    5.0  noisy11\n"));
	harmless(40);
	/* Nothing else was seen. */
	*strstr(text, "sort\t") = '\0';
	show_text(text, 80, &functions);
	ck_assert_ptr_nonnull(strstr(output, "busiest thread\nother processes (percent of all):\n"));
}
END_TEST

START_TEST(shares_are_of_the_own_samples_first_and_of_the_machine_second)
{
	struct functions functions;

	show_text(FUNCTION_TABLE_HEADER
		  "\n" FUNCTION_TABLE_SAMPLES " 400, 1000\n" FUNCTION_TABLE_OWN_SAMPLES " 40, 200\n"
		  "spin\t/bin/spin\t40\t40\t150\t150\t0\ta\t7\t150\tspin\t7\n"
		  "noisy\t" FUNCTION_TABLE_NEIGHBOUR "\t360\t360\t800\t800\t0\tb\t9\t800\tnoisy\t9\n"
		  "\t" FUNCTION_TABLE_NEIGHBOUR "\t360\t360\t800\t800\t0\tb\t9\t800\tnoisy\t9\n"
		  "\t\t40\t40\t200\t200\t0\ta\t7\t200\tspin\t7\n",
		  120, &functions);
	ck_assert_uint_eq(functions.own[FUNCTION_TABLE_BEFORE], 40);
	ck_assert_uint_eq(functions.own[FUNCTION_TABLE_DURING], 200);
	ck_assert_ptr_nonnull(strstr(output, "(percent of its own samples: 40 before the spike, 200 during it; "
					     "of all processes 400 and 1000)\n"));
	ck_assert_ptr_nonnull(strstr(output, " 100.0  100.0    75.0   75.0  spin"));
	ck_assert_ptr_nonnull(strstr(output, "other processes (percent of all):\n  90.0   90.0    80.0   80.0  noisy"));
	/* Threads of others come last, though they are busier. */
	ck_assert_ptr_nonnull(strstr(output, " 100.0  100.0        7  a       spin/7\n"
					     "other processes (percent of all):\n"
					     "  90.0   80.0        9  b       noisy/9\n"));
}
END_TEST

/* All begin and end alike. */
START_TEST(names_that_are_cut_stay_apart)
{
	static const char *const visitors[] = { "AssignRegisters", "AllocateFrames", "CollectGarbage",
						"CompileBaseline", "DeoptimizeAll",  "InlineCalls",
						"LowerToMachine",  "ReduceTypes",    "ScheduleBlocks",
						"VerifyGraph" };
	struct functions functions;
	char text[8192], line[120];
	size_t used =
		(size_t)snprintf(text, sizeof(text), "%s\n%s 0, 1000\n", FUNCTION_TABLE_HEADER, FUNCTION_TABLE_SAMPLES);

	for (size_t i = 0; i < ARRAY_LEN(visitors); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "v8::internal::compiler::turboshaft::%s::Visit(v8::internal::compiler::Graph*)"
					 "\t/bin/node\t0\t0\t%zu\t%zu\t0\tt\t7\t1\tnode\t7\n",
					 visitors[i], 90 - i, 90 - i);
	write_table(text, strlen(text));
	for (unsigned width = 40; width <= 100; width += 5) {
		show(width, &functions);
		harmless(width);
		for (size_t i = 0; i < ARRAY_LEN(visitors); i++)
			for (char *at = strstr(output, "v8"), *other; at && (other = strstr(at + 2, "v8"));
			     at = other) {
				snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, " \n"), at);
				ck_assert_msg(strcspn(other, " \n") != strlen(line) ||
						      strncmp(other, line, strlen(line)) != 0,
					      "twice %s at %u:\n%s", line, width, output);
			}
	}
	show(80, &functions);
	ck_assert_ptr_nonnull(strstr(output, "AllocateF"));
}
END_TEST

/* The function that the headline names: on half of the stacks, deep, and with a name that says something. */
START_TEST(the_function_that_is_named_first_has_a_telling_name)
{
	static const struct {
		const char *rows, *want;
	} cases[] = {
		/* Deeper, but only a place in a stripped file. */
		{ "_start\t/p\t0\t0\t0\t100\nmain\t/p\t0\t0\t0\t99\nsort\t/p\t0\t0\t1\t80\n[p+0x10]\t/"
		  "p\t0\t0\t60\t60\n",
		  "sort" },
		/* Better than how every program begins. */
		{ "_start\t/p\t0\t0\t0\t100\nmain\t/p\t0\t0\t0\t99\n[p+0x10]\t/p\t0\t0\t60\t60\n", "[p+0x10]" },
		{ "__libc_start_main@@GLIBC_2.34\t/c\t0\t0\t0\t99\nmainloop\t/p\t0\t0\t0\t99\n", "mainloop" },
		/* What calls code that was made at run time is the machinery of a runtime. */
		{ "JavaCalls::call_helper(JavaValue*)\t/usr/lib/libjvm.so\t0\t0\t0\t70\n[anon]\t[anon]\t0\t0\t68\t72\n",
		  "[anon]" },
		{ "[anon]\t[anon]\t0\t0\t30\t90\nPBKDF2\t/usr/lib/libcrypto.so\t0\t0\t60\t60\n", "PBKDF2" },
		/* Without the types of its arguments, but with what belongs to its name. */
		{ "a::(anonymous namespace)::b<int (*)()>::operator()(char*)\t/p\t0\t0\t0\t90\n",
		  "a::(anonymous namespace)::b<int (*)()>::operator()" },
		{ "node::Load(node::Data const**)\t/p\t0\t0\t0\t90\n", "node::Load" },
		{ "a::(anonymous namespace)::operator()(char*)\t/p\t0\t0\t0\t90\n",
		  "a::(anonymous namespace)::operator()" },
		/* Less than half: the hottest of all. */
		{ "main\t/p\t0\t0\t1\t40\nsort\t/p\t0\t0\t20\t30\n[p+0x10]\t/p\t0\t0\t29\t29\n", "[p+0x10]" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[1024];
		struct functions functions;

		snprintf(text, sizeof(text),
			 "function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\n"
			 "# samples before, during: 0, 100\n%s",
			 cases[i].rows);
		show_text(text, 80, &functions);
		ck_assert_str_eq(functions.lead.function, cases[i].want);
	}
}
END_TEST

/* Of memory, that of a function which others fill for it; of CPU time these are what took it. */
START_TEST(what_fills_memory_is_not_named_for_who_wanted_it)
{
	static const struct {
		const char *rows, *want, *want_cpu;
	} cases[] = {
		{ "main\t/p\t0\t0\t0\t100\nload\t/p\t0\t0\t0\t90\n__memset_avx2_unaligned_erms\t/c\t0\t0\t80\t80\n",
		  "load", "__memset_avx2_unaligned_erms" },
		{ "load\t/p\t0\t0\t0\t90\n__libc_calloc\t/c\t0\t0\t0\t85\n_int_malloc\t/c\t0\t0\t80\t80\n", "load",
		  "_int_malloc" },
		{ "[p+0x10]\t/p\t0\t0\t0\t90\n__GI___libc_malloc\t/c\t0\t0\t80\t80\n", "[p+0x10]",
		  "__GI___libc_malloc" },
		{ "load\t/p\t0\t0\t0\t90\nmemalign\t/c\t0\t0\t80\t80\n", "load", "memalign" },
		{ "load\t/p\t0\t0\t0\t90\nmemcpy@@GLIBC_2.14\t/c\t0\t0\t80\t80\n", "load", "memcpy@@GLIBC_2.14" },
		{ "main\t/p\t0\t0\t0\t100\nmemmove\t/c\t0\t0\t80\t80\n", "main", "memmove" },
		/* The names of a program's own functions may begin alike. */
		{ "load\t/p\t0\t0\t0\t90\nmemcpy_rows\t/p\t0\t0\t80\t80\n", "memcpy_rows", "memcpy_rows" },
	};
	enum function_table_unit before = unit;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		for (unit = FUNCTION_TABLE_IN_SAMPLES; unit <= FUNCTION_TABLE_IN_BYTES; unit++) {
			bool memory = unit == FUNCTION_TABLE_IN_BYTES;
			struct functions functions;
			char text[1024];

			snprintf(text, sizeof(text),
				 "function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\n"
				 "%s 0, 100\n%s",
				 memory ? FUNCTION_TABLE_BYTES : FUNCTION_TABLE_SAMPLES, cases[i].rows);
			show_text(text, 80, &functions);
			ck_assert_str_eq(functions.lead.function, memory ? cases[i].want : cases[i].want_cpu);
			ck_assert_msg(!memory || functions.inner_count == 0 ||
					      strcmp(functions.inner[0].function, cases[i].want) == 0,
				      "%s", functions.inner[0].function);
		}
	unit = before;
}
END_TEST

/* Prints the brief tables into output. */
static void show_brief(const char *text)
{
	struct plot_style style = { .width = 80 };
	struct functions functions;
	FILE *file = fmemopen(output, sizeof(output), "w");

	write_table(text, strlen(text));
	memset(output, 0, sizeof(output));
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(functions_load(dirfd_of_test, unit, &functions), 0);
	functions_print_brief(&functions, 2, 1, &style, file);
	fclose(file);
}

START_TEST(functions_without_names_are_explained_if_they_are_many)
{
	static const struct {
		const char *rows, *want;
	} cases[] = {
		{ "[libz.so.1+0x10]\t/usr/lib/libz.so.1\t0\t0\t70\t70\n[libz.so.1+0x20]\t/usr/lib/"
		  "libz.so.1\t0\t0\t20\t20\n"
		  "[libc.so.6]\t/usr/lib/libc.so.6\t0\t0\t5\t5\n",
		  "90 % without names: libz.so.1 is stripped; what helps: spikewatch report\n" },
		{ "[anon]\t[anon]\t0\t0\t60\t60\nJavaMain\t/usr/lib/server/libjvm.so\t0\t0\t0\t90\n",
		  "60 % without names: made at run time; what helps: jcmd PID Compiler.perfmap\n" },
		{ "[anon]\t[anon]\t0\t0\t60\t60\nuv_run\t/usr/bin/node\t0\t0\t0\t90\n",
		  "60 % without names: made at run time; what helps: node --perf-basic-prof\n" },
		{ "[anon]\t[anon]\t0\t0\t60\t60\n",
		  "60 % without names: made at run time; what helps: a perf map, /tmp/perf-PID.map\n" },
		{ "_PyEval_EvalFrameDefault\t/usr/bin/python3.12\t0\t0\t50\t90\n[python3.12+0x5]\t/usr/bin/"
		  "python3.12\t0\t0\t40\t"
		  "40\n",
		  "90 % in Python code without names; what helps: python3 -X perf (3.12 or newer)\n" },
		{ "_PyEval_EvalFrameDefault\t/usr/bin/python3.12\t0\t0\t90\t90\npy::f:/a.py\t[anon]\t0\t0\t0\t90\n",
		  NULL },
		/* Few; the kernel's; named. */
		{ "_PyEval_EvalFrameDefault\t/usr/bin/python3.12\t0\t0\t19\t19\n", NULL },
		{ "[libz.so.1+0x10]\t/usr/lib/libz.so.1\t0\t0\t19\t19\n", NULL },
		{ "[kernel]\t[kernel]\t0\t0\t60\t60\n", NULL },
		{ "f\t/usr/lib/libz.so.1\t0\t0\t60\t60\n", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[1024];

		snprintf(text, sizeof(text),
			 "function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\n"
			 "# samples before, during: 0, 100\n%s",
			 cases[i].rows);
		show_brief(text);
		ck_assert_msg(cases[i].want ? strstr(output, cases[i].want) != NULL
					    : strstr(output, "without names") == NULL,
			      "%zu:\n%s", i, output);
		harmless(80);
	}
}
END_TEST

/* How every program begins touched all of it; what is of interest is deep, and has a name. */
START_TEST(of_memory_the_innermost_functions_that_touched_it_are_shown)
{
	const char *first, *second;

	unit = FUNCTION_TABLE_IN_BYTES;
	show_brief(
		FUNCTION_TABLE_HEADER_BYTES
		"\n" FUNCTION_TABLE_BYTES " 0, 100\n"
		"[libc.so.6+0x10]\t/c\t0\t0\t54\t54\n_start\t/p\t0\t0\t0\t100\nmain\t/p\t0\t0\t0\t100\n"
		"Run\t/p\t0\t0\t0\t100\nsort\t/p\t0\t0\t0\t80\nform_tuple\t/p\t0\t0\t0\t71\nfew\t/p\t0\t0\t20\t20\n");
	first = strstr(output, "form_tuple");
	second = strstr(output, "sort");
	ck_assert_msg(first && second && first < second, "%s", output);
	ck_assert_msg(!strstr(output, "Run") && !strstr(output, "libc") && !strstr(output, "few"), "%s", output);
}
END_TEST

START_TEST(sizes_are_no_wider_than_their_column)
{
	static const struct {
		const char *bytes, *text;
	} cases[] = {
		{ "0", "     0" },          { "999", "   999" },
		{ "1000", "  1.0K" },       { "1023948", "999.9K" },
		{ "1023949", "  1.0M" },    { "126353408", "120.5M" },
		{ "1073741824", "  1.0G" }, { "18446744073709551615", " 16.0E" },
	};

	unit = FUNCTION_TABLE_IN_BYTES;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct functions functions;
		char text[300], want[100];

		snprintf(text, sizeof(text),
			 FUNCTION_TABLE_HEADER_BYTES "\n" FUNCTION_TABLE_BYTES " 1, 1\nf\t\t1\t1\t1\t%s\n",
			 cases[i].bytes);
		snprintf(want, sizeof(want), "     1      1       1 %s  f", cases[i].text);
		show_text(text, 80, &functions);
		ck_assert_msg(strstr(output, want), "no %s in:\n%s", want, output);
	}
}
END_TEST

START_TEST(a_table_of_the_other_unit_is_none)
{
	struct functions functions;

	show_text(FUNCTION_TABLE_HEADER_BYTES "\n" FUNCTION_TABLE_BYTES " 0, 1\nf\t\t0\t0\t1\t1\n", 80, &functions);
	ck_assert(!functions.there);
	unit = FUNCTION_TABLE_IN_BYTES;
	show_text(FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 1\nf\t\t0\t0\t1\t1\n", 80, &functions);
	ck_assert(!functions.there);
	ck_assert_str_eq(output, "");
}
END_TEST

START_TEST(losses_are_reported)
{
	static const char table[] = FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 1\nf\t\t0\t0\t1\t1\n";
	struct functions functions;

	show_text(table, 80, &functions);
	ck_assert_ptr_null(strstr(output, "Lost"));

	add_capture("stacks", INCIDENT_CAPTURE_OK, "3 samples were lost\n\x1b[2J");
	add_capture("stacks-folded", INCIDENT_CAPTURE_FAILED, "No space left on device");
	add_capture("functions", INCIDENT_CAPTURE_OK, "");
	add_capture("memory-stacks", INCIDENT_CAPTURE_OK, "of memory");
	add_capture("threads", INCIDENT_CAPTURE_OK, "cut at 1 MiB");
	show_text(table, 200, &functions);
	harmless(200);
	ck_assert_ptr_nonnull(strstr(output,
				     "\nLost or left out: 3 samples were lost\\x0a\\x1b[2J; stacks-folded failed: "
				     "No space left on device\n"));
	unit = FUNCTION_TABLE_IN_BYTES;
	show_text(FUNCTION_TABLE_HEADER_BYTES "\n" FUNCTION_TABLE_BYTES
					      " 0, 9\nf\t\t0\t0\t1\t1\n(other)\t\t1024\t1024\t1024\t1024\n"
					      "(other)\t/bin/x\t0\t0\t7\t7\n# 1 more functions\n# 3 more threads\n",
		  200, &functions);
	ck_assert_ptr_nonnull(strstr(output, "\nLost or left out: of memory; 2.0 KiB of stacks for which there was no "
					     "room; 1 more function; 3 more threads\n"));
}
END_TEST

START_TEST(endless_reasons_are_cut)
{
	struct functions functions;
	char why[sizeof(incident.captures[0].why)];

	for (size_t i = 0; i < sizeof(why); i++)
		why[i] = i % 8 ? '\1' : ' ';
	why[sizeof(why) - 1] = '\0';
	for (unsigned i = 0; i < 10; i++)
		add_capture("stacks", INCIDENT_CAPTURE_OK, why);
	show_text(FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 1\nf\t\t0\t0\t1\t1\n# 1 more functions\n", 80,
		  &functions);
	harmless(80);
	ck_assert_ptr_nonnull(strstr(output, "Lost or left out: "));
}
END_TEST

static void json_is(const struct functions *functions, const char *want)
{
	struct buffer out = { 0 };
	struct json_writer *json;

	ck_assert_int_eq(json_writer_new(sink_buffer(&out), false, &json), 0);
	json_begin_object(json);
	functions_json(functions, json);
	json_end_object(json);
	ck_assert_int_eq(json_writer_close(json), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, want);
	buffer_release(&out);
}

START_TEST(json_has_the_numbers_of_the_file)
{
	struct functions functions;

	show_text(FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES
					" 7, 8\nf\tm\t1\t2\t3\t4\t30.5\t\x1b\t815\t4\tp\t812\n"
					"\t\t2\t2\t4\t4\t40\thot\t815\t4\tp\t812\n# 6 more functions\n",
		  80, &functions);
	json_is(&functions,
		"{\"functions\":{\"samples_before\":7,\"samples_during\":8,"
		"\"own_samples_before\":7,\"own_samples_during\":8,\"hottest\":[{\"function\":\"f\","
		"\"module\":\"m\",\"self_before\":1,\"total_before\":2,\"self_during\":3,\"total_during\":4,"
		"\"self_during_ns\":30500000,\"top_thread\":\"\\\\x1b\",\"top_tid\":815,\"top_samples\":4,"
		"\"top_process\":\"p\",\"top_pid\":812}],\"threads\":[{\"thread\":\"hot\",\"tid\":815,"
		"\"process\":\"p\",\"pid\":812,\"own\":true,\"samples_before\":2,\"samples_during\":4}],"
		"\"functions_left_out\":6,\"threads_left_out\":0}}\n");
	unit = FUNCTION_TABLE_IN_BYTES;
	show_text(FUNCTION_TABLE_HEADER_BYTES "\n" FUNCTION_TABLE_BYTES
					      " 7, 8\nf\tm\t1\t2\t3\t4\t5\tt\t815\t4\tp\t812\n"
					      "\t\t2\t2\t4\t4\t1\thot\t815\t4\tp\t812\n# 6 more threads\n",
		  80, &functions);
	json_is(&functions,
		"{\"memory_functions\":{\"bytes_before\":7,\"bytes_during\":8,"
		"\"own_bytes_before\":7,\"own_bytes_during\":8,\"hottest\":[{\"function\":\"f\","
		"\"module\":\"m\",\"self_before\":1,\"total_before\":2,\"self_during\":3,\"total_during\":4,"
		"\"self_during_faults\":5,\"top_thread\":\"t\",\"top_tid\":815,\"top_bytes\":4,"
		"\"top_process\":\"p\",\"top_pid\":812}],\"threads\":[{\"thread\":\"hot\",\"tid\":815,"
		"\"process\":\"p\",\"pid\":812,\"own\":true,\"bytes_before\":2,\"bytes_during\":4}],"
		"\"functions_left_out\":0,\"threads_left_out\":6}}\n");
	unlinkat(dirfd_of_test, FUNCTIONS_MEMORY_FILE, 0);
	show(80, &functions);
	json_is(&functions, "{\"memory_functions\":null}\n");
}
END_TEST

START_TEST(no_order_of_the_file_is_relied_on)
{
	struct functions functions;

	show_text("self_during\tfunction\ttotal_during\tself_before\n1\ta\t1\t0\n5\tb\t5\t0\n3\tc\t9\t0\n0\td\t0\t9\n",
		  80, &functions);
	ck_assert_uint_eq(functions.count, 4);
	ck_assert_str_eq(functions.row[0].function, "b");
	ck_assert_str_eq(functions.row[1].function, "c");
	ck_assert_str_eq(functions.row[2].function, "a");
	ck_assert_str_eq(functions.row[3].function, "d");
	show_text("function\tself_during\n# samples before, during: 0, 1\nf\t18446744073709551615\n", 80, &functions);
	ck_assert_ptr_nonnull(strstr(output, "     -      -   999.9    0.0  f"));
	show_text("function\tself_during\nc\t1\n", 80, &functions);
	/* It does not say of how many. */
	ck_assert_ptr_nonnull(strstr(output, "     -      -       -      -  c"));
}
END_TEST

START_TEST(hostile_tables_are_harmless)
{
	struct functions functions;
	struct buffer text = { 0 };
	static char name[3000];
	static const char head[] = "function\tmodule\ttop_thread\tself_during\n";

	show_text(FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES
					" 1, 1\n\x1b[2J\xc2\x9b\x7f\\x0a\t/\x1b]0;\a\t0\t0\t9\t9\t1\t\r\xff\t-1\t1\n",
		  80, &functions);
	harmless(80);
	ck_assert_str_eq(functions.row[0].function, "\\x1b[2J\\xc2\\x9b\\x7f\\x0a");
	ck_assert_ptr_nonnull(strstr(output, "900.0"));

	for (size_t i = 0; i + 3 < sizeof(name); i += 3)
		memcpy(name + i, i % 2 ? "\xe2\x82\xac" : "\\\x01x", 3);
	ck_assert_int_eq(buffer_append(&text, head, strlen(head)), 0);
	for (unsigned i = 0; i < 30; i++) {
		for (unsigned c = 0; c < 3; c++) {
			ck_assert_int_eq(buffer_append(&text, name + i, sizeof(name) - 1 - i), 0);
			ck_assert_int_eq(buffer_append(&text, "\t", 1), 0);
		}
		ck_assert_int_eq(buffer_append(&text, "18446744073709551615\n", 21), 0);
	}
	write_table(text.data, text.len);
	show(80, &functions);
	harmless(80);
	ck_assert_uint_eq(functions.count, FUNCTIONS_SHOWN);
	buffer_release(&text);
}
END_TEST

START_TEST(a_file_that_is_no_table_is_ignored)
{
	struct functions functions = { .there = true };

	ck_assert_int_eq(functions_load(dirfd_of_test, FUNCTION_TABLE_IN_SAMPLES, &functions), 0);
	ck_assert(!functions.there);
	show_text("", 80, &functions);
	ck_assert(!functions.there);
	show_text("pid\ttid\n1\t2\n", 80, &functions);
	ck_assert(!functions.there);
	ck_assert_str_eq(output, "");
	show_text(FUNCTION_TABLE_HEADER "\n", 80, &functions);
	ck_assert(functions.there);
	ck_assert_str_eq(output, "");
	ck_assert_int_eq(unlinkat(dirfd_of_test, FUNCTIONS_FILE, 0), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_of_test, FUNCTIONS_FILE), 0);
	ck_assert_int_eq(functions_load(dirfd_of_test, FUNCTION_TABLE_IN_SAMPLES, &functions), 0);
	ck_assert(!functions.there);
}
END_TEST

static void show_prefixes(const char *name)
{
	static char text[OUTPUT_MAX];
	FILE *file = fopen(name, "r");
	struct functions functions;
	size_t len;

	ck_assert_ptr_nonnull(file);
	len = fread(text, 1, sizeof(text), file);
	fclose(file);
	for (size_t cut = 0; cut < len; cut += 1 + cut / 200) {
		write_table(text, cut);
		show(80, &functions);
		harmless(80);
	}
}

START_TEST(every_prefix_of_a_table_can_be_shown)
{
	show_prefixes("tests/data/functions/functions.tsv");
	unit = FUNCTION_TABLE_IN_BYTES;
	show_prefixes("tests/data/functions/memory-functions.tsv");
}
END_TEST

START_TEST(any_allocation_may_fail)
{
	struct functions functions;
	bool injected = true;

	load_file("tests/data/functions/functions.tsv");
	for (long n = 1; injected; n++) {
		int rc;

		torture_arm(n);
		rc = functions_load(dirfd_of_test, unit, &functions);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		ck_assert_int_eq(functions.there, !injected);
	}
}
END_TEST

Suite *functions_suite(void)
{
	Suite *suite = suite_create("functions");
	TCase *tcase = tcase_create("section");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, shows_what_the_golden_text_shows);
	tcase_add_test(tcase, memory_is_shown_in_bytes);
	tcase_add_test(tcase, busy_neighbours_leave_room_for_what_the_incident_is_of);
	tcase_add_test(tcase, shares_are_of_the_own_samples_first_and_of_the_machine_second);
	tcase_add_test(tcase, names_that_are_cut_stay_apart);
	tcase_add_test(tcase, the_function_that_is_named_first_has_a_telling_name);
	tcase_add_test(tcase, what_fills_memory_is_not_named_for_who_wanted_it);
	tcase_add_test(tcase, functions_without_names_are_explained_if_they_are_many);
	tcase_add_test(tcase, of_memory_the_innermost_functions_that_touched_it_are_shown);
	tcase_add_test(tcase, sizes_are_no_wider_than_their_column);
	tcase_add_test(tcase, a_table_of_the_other_unit_is_none);
	tcase_add_test(tcase, losses_are_reported);
	tcase_add_test(tcase, endless_reasons_are_cut);
	tcase_add_test(tcase, json_has_the_numbers_of_the_file);
	tcase_add_test(tcase, no_order_of_the_file_is_relied_on);
	tcase_add_test(tcase, hostile_tables_are_harmless);
	tcase_add_test(tcase, a_file_that_is_no_table_is_ignored);
	tcase_add_test(tcase, every_prefix_of_a_table_can_be_shown);
	tcase_add_test(tcase, any_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
