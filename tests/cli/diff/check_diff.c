/*
 * check_diff.c: two incidents with numbers that are known, through the command: text, JSON, folded
 * stacks, page. A has 100 samples during its spike, B has 400.
 */
#include "commandrun.h"

#include "cli/base/options.h"
#include "lib/profile/stack_text.h"
#include "lib/incident/incident.h"
#include "incidentmade.h"
#include "lib/base/json.h"
#include "lib/incident/manifest.h"
#include "cli/report/report.h"
#include "scene.h"
#include "skip.h"
#include "lib/base/base.h"
#include "lib/profile/profile.h"
#include "torture.h"
#include "lib/base/io.h"
#include "lib/model/sample.h"

#include "cli/diff/diff.c"

#include <fcntl.h>
#include <sys/stat.h>

Suite *diff_suite(void);

static struct commandrun command_run;

#define B_ID "20261121T091502.123Z-postgres_99-cpu-high-2"
#define MS UINT64_C(1000000)
#define FIRED (UINT64_C(100000) * MS)
#define BIN "/usr/lib/postgresql/16/bin/postgres"
#define HOSTILE "<i>\x1b[2J\"\\x3b"

static const char functions_a[] =
	FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 50, 100\n"
			      "ExecScan\t" BIN "\t40\t50\t80\t100\t800.000\tpostgres\t812\t100\tpostgres\t812\n"
			      "sort\t" BIN "\t10\t10\t20\t20\t200.000\tpostgres\t812\t20\tpostgres\t812\n"
			      "\t\t50\t50\t90\t90\t900.000\tpostgres\t812\t90\tpostgres\t812\n"
			      "\t\t0\t0\t10\t10\t100.000\tcc1\t5\t10\tcc1\t5\n"
			      "# 3 more functions\n";
static const char functions_b[] =
	FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 400\n"
			      "ExecScan\t" BIN "\t0\t0\t220\t400\t2200.000\tpostgres\t99\t400\tpostgres\t99\n"
			      "hash_probe\t" BIN "\t0\t0\t100\t100\t1000.000\tpostgres\t99\t100\tpostgres\t99\n"
			      "sort\t/opt/other\t0\t0\t80\t80\t800.000\tpostgres\t99\t80\tpostgres\t99\n"
			      "\t\t0\t0\t400\t400\t4000.000\tpostgres\t99\t400\tpostgres\t99\n";
static const char memory_a[] = FUNCTION_TABLE_HEADER_BYTES
	"\n" FUNCTION_TABLE_BYTES " 0, 1048576\n"
	"malloc\tlibc.so\t0\t0\t1048576\t1048576\t256\tpostgres\t812\t1048576\tpostgres\t812\n";
static const char memory_b[] = FUNCTION_TABLE_HEADER_BYTES
	"\n" FUNCTION_TABLE_BYTES " 0, 4194304\n"
	"malloc\tlibc.so\t0\t0\t1048576\t1048576\t256\tpostgres\t99\t1048576\tpostgres\t99\n"
	"slurp\t" BIN "\t0\t0\t3145728\t3145728\t768\tpostgres\t99\t3145728\tpostgres\t99\n";
static const char threads_b[] = "pid\ttid\tname\tstate\tcpu_ms\tcpu_percent\tuser_ms\tsystem_ms\tsince_ms\tremark\n"
				"99\t99\thot-loop\tR\t291.000\t57.5\t280\t10\t300\t\n"
				"99\t100\thot-loop\tR\t291.000\t60.0\t280\t10\t300\t\n"
				"99\t101\tlate\tR\t291.000\t\t280\t10\t\tnew\n";
static const char smaps_b[] =
	"pid\tmapping\tpermissions\tmappings\trss_bytes\tpss_bytes\tprivate_dirty_bytes\tswap_bytes\n"
	"99\t[anon]\trw-p\t4\t178257920\t0\t0\t2097152\n"
	"98\t[anon]\trw-p\t4\t4194304\t0\t0\t0\n"
	"99\t/opt/new.so\tr-xp\t1\t8192\t0\t0\t0\n"
	"99\t/usr/lib/x86_64-linux-gnu/libc.so.6\tr-xp\t1\t2097152\t40960\t0\t0\n";

static char path[300];
static int dirfd_of_test = -1;
static struct json_document *document;

static void set_up(void)
{
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
	setenv("SPIKEWATCH_DIR", path, 1);
	setenv("COLUMNS", "100", 1);
	document = NULL;
}

static void tear_down(void)
{
	json_document_free(document);
	close(dirfd_of_test);
	incidentmade_remove(path);
	commandrun_end(&command_run);
}

static int open_incident(const char *id)
{
	int fd = openat(dirfd_of_test, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void put(const char *id, const char *name, const void *data, size_t len)
{
	AUTO_CLOSE int in = open_incident(id);
	AUTO_CLOSE int fd = openat(in, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sink_write_all(fd, data, len), 0);
}

/* data NULL: the file goes. */
static void put_file(const char *id, const char *name, const char *data)
{
	AUTO_CLOSE int in = open_incident(id);

	if (data)
		put(id, name, data, strlen(data));
	else
		unlinkat(in, name, 0);
	unlinkat(in, MANIFEST_NAME, 0);
	ck_assert_int_eq(manifest_write(in), 0);
}

static void make_a(void)
{
	incidentmade_write(dirfd_of_test,
			   &(struct incidentmade_options){ .functions = functions_a, .memory_functions = memory_a });
}

static void make_b(void)
{
	incidentmade_write(
		dirfd_of_test,
		&(struct incidentmade_options){ .name = B_ID, .functions = functions_b, .memory_functions = memory_b });
	put_file(B_ID, "threads.tsv", threads_b);
	put_file(B_ID, "smaps.tsv", smaps_b);
}

static void make_both(void)
{
	make_a();
	make_b();
}

#define DIFF(...) COMMANDRUN(&command_run, diff, __VA_ARGS__)
#define DIFF_BOTH(...) COMMANDRUN(&command_run, diff, INCIDENTMADE_ID, B_ID __VA_OPT__(, ) __VA_ARGS__)

/* ---- text ---- */

START_TEST(functions_are_compared_by_their_share_of_their_own_side)
{
	make_both();
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	commandrun_says(&command_run, "A: " INCIDENTMADE_ID ": cpu 182.4 % > 80.0 %, on db1\n"
				      "B: " B_ID ": cpu 182.4 % > 80.0 %, on db1\n");
	commandrun_says(&command_run, "Functions (percent of its own CPU samples; A: 100, B: 400)\n"
				      "            A              B           change\n"
				      "  self  total    self  total     self   total  only  function    module\n"
				      "     -      -    25.0   25.0    +25.0   +25.0  B     hash_probe  postgres\n"
				      "     -      -    20.0   20.0    +20.0   +20.0  B     sort        other\n"
				      "  20.0   20.0       -      -    -20.0   -20.0  A     sort        postgres\n"
				      "  80.0  100.0    55.0  100.0    -25.0     0.0        ExecScan    postgres\n\n");
	commandrun_says(&command_run, "\nNote: A leaves out 3 more functions.\n");
}
END_TEST

START_TEST(threads_are_matched_by_name)
{
	make_both();
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	commandrun_says(&command_run, "Threads by their stacks (percent of its own CPU samples; A: 100, B: 400)\n"
				      "     A       B   change  only  thread    process\n"
				      "  90.0   100.0    +10.0        postgres  postgres\n"
				      "  10.0       -    -10.0  A     cc1       cc1\n");
	commandrun_says(&command_run, "          A            B         change\n"
				      "   cpu    n     cpu    n      cpu     n  only  thread\n"
				      "  97.0    1   117.5    2    +20.5    +1        hot-loop\n"
				      "   1.0    1       -    -     -1.0    -1  A     postgres\n");
	commandrun_says(&command_run, "Note: B: the CPU of 1 thread is not known, and counts as 0.\n");
}
END_TEST

START_TEST(mappings_of_all_processes_are_compared_by_bytes)
{
	make_both();
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	commandrun_says(&command_run, "Mappings (resident and swapped)\n"
				      "        A          B      change  only  mapping      permissions\n"
				      "  170 MiB    176 MiB      +6 MiB        [anon]       rw-p\n"
				      "        -      8 KiB      +8 KiB  B     /opt/new.so  r-xp\n"
				      "  132 KiB          -    -132 KiB  A     [heap]       rw-p\n");
	commandrun_says_not(&command_run, "libc.so.6");
}
END_TEST

START_TEST(memory_comes_first_if_it_is_asked_for)
{
	make_both();
	ck_assert_int_eq(DIFF_BOTH("--memory"), EXIT_OK);
	commandrun_says(&command_run,
			"Functions that touched new memory (percent of its own bytes; A: 1 MiB, B: 4 MiB)\n");
	commandrun_says(&command_run, "     -      -    75.0   75.0    +75.0   +75.0  B     slurp     postgres\n"
				      " 100.0  100.0    25.0   25.0    -75.0   -75.0        malloc    libc.so\n");
	ck_assert(strstr(command_run.output, "touched new") < strstr(command_run.output, "Functions (percent"));
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	ck_assert(strstr(command_run.output, "touched new") > strstr(command_run.output, "Functions (percent"));
}
END_TEST

START_TEST(only_so_many_rows_are_shown_and_the_others_counted)
{
	make_both();
	ck_assert_int_eq(DIFF_BOTH("-n", "2"), EXIT_OK);
	commandrun_says(&command_run,
			"hash_probe  postgres\n     -      -    20.0   20.0    +20.0   +20.0  B     sort        "
			"other\n  ... and 2 more\n");
	ck_assert_int_eq(DIFF_BOTH("-n", "0"), EXIT_OK);
	commandrun_says(&command_run, "B: 400)\n  ... and 4 more\n");
}
END_TEST

START_TEST(another_time_of_the_stacks_may_be_compared)
{
	make_both();
	ck_assert_int_eq(DIFF_BOTH("--phase", "before"), EXIT_OK);
	commandrun_says(&command_run, "A: 50, B: 0)");
	commandrun_says(&command_run, "Note: B: nothing of that time was sampled, so all of it counts as 0.\n");
	ck_assert_int_eq(DIFF_BOTH("--phase", "all"), EXIT_OK);
	commandrun_says(&command_run, "A: 150, B: 400)");
	commandrun_says(&command_run, "  80.0  100.0    55.0  100.0    -25.0     0.0        ExecScan    postgres\n");
	ck_assert_int_eq(DIFF_BOTH("--phase", "befor"), EXIT_USAGE);
	commandrun_says(&command_run, "did you mean before");
	ck_assert_int_eq(DIFF("last", "--phase", "all"), EXIT_USAGE);
}
END_TEST

START_TEST(one_incident_is_before_against_during)
{
	make_a();
	ck_assert_int_eq(DIFF("last"), EXIT_OK);
	commandrun_says(&command_run, "Incident: " INCIDENTMADE_ID);
	commandrun_says(&command_run, "Compared: its stacks before the spike and during it\n");
	commandrun_says(&command_run, "before: 50, during: 100)");
	commandrun_says(&command_run, "before  during   change  only    thread    process\n"
				      "     -    10.0    +10.0  during  cc1       cc1\n");
	commandrun_says(&command_run,
			"Note: before: nothing of that time was sampled of memory, so all of it counts as 0.\n");
	ck_assert_ptr_null(strstr(strstr(command_run.output, "leaves out") + 1, "leaves out"));
	commandrun_says(&command_run,
			"Note: the incident has no smaps.again.tsv: there is no second snapshot, so only its stacks "
			"before\n"
			"and during can be compared.\n");
	commandrun_says_not(&command_run, "Mappings");
}
END_TEST

START_TEST(one_incident_is_its_first_snapshot_against_its_second)
{
	make_a();
	put_file(INCIDENTMADE_ID, "threads.again.tsv", threads_b);
	put_file(INCIDENTMADE_ID, "smaps.again.tsv", smaps_b);
	ck_assert_int_eq(DIFF("last"), EXIT_OK);
	commandrun_says(
		&command_run,
		"Compared: its stacks before the spike and during it; its two snapshots of threads and memory\n");
	commandrun_says(&command_run, "    first     second      change  only    mapping      permissions\n"
				      "  170 MiB    176 MiB      +6 MiB          [anon]       rw-p\n"
				      "        -      8 KiB      +8 KiB  second  /opt/new.so  r-xp\n"
				      "  132 KiB          -    -132 KiB  first   [heap]       rw-p\n");
	commandrun_says_not(&command_run, "no second snapshot");
}
END_TEST

/* When the snapshots of its memory were taken. */
static void put_times(int64_t first_ns, int64_t second_ns)
{
	AUTO_CLOSE int in = open_incident(INCIDENTMADE_ID);
	AUTO(buffer_release) struct buffer text = { 0 };
	struct incident incident;

	ck_assert_int_eq(incident_json_read(in, &incident), 0);
	for (size_t i = 0; i < incident.capture_count; i++) {
		struct incident_capture *capture = &incident.captures[i];

		if (strncmp(capture->name, "smaps", 5) != 0)
			continue;
		capture->has_at = true;
		capture->at_ns = capture->name[5] ? second_ns : first_ns;
	}
	if (!strstr(incident.captures[incident.capture_count - 1].name, "again"))
		incident_add_capture(&incident, &(struct incident_capture){ .name = "smaps-again",
									    .file = "smaps.again.tsv",
									    .has_at = true,
									    .at_ns = second_ns });
	ck_assert_int_eq(incident_json_write(&incident, sink_buffer(&text)), 0);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	put_file(INCIDENTMADE_ID, INCIDENT_FILE, text.data);
}

START_TEST(says_how_far_apart_the_snapshots_were)
{
	make_a();
	put_file(INCIDENTMADE_ID, "functions.tsv", NULL);
	put_file(INCIDENTMADE_ID, "memory-functions.tsv", NULL);
	put_file(INCIDENTMADE_ID, "smaps.again.tsv", smaps_b);
	put_times((int64_t)(100 * MS), (int64_t)(5100 * MS));
	ck_assert_int_eq(DIFF("last"), EXIT_OK);
	commandrun_says(&command_run, "Compared: its two snapshots of threads and memory, 5 s apart\n");
	put_times((int64_t)(100 * MS), (int64_t)(100 * MS));
	ck_assert_int_eq(DIFF("last"), EXIT_OK);
	commandrun_says(&command_run, "Compared: its two snapshots of threads and memory\n");
}
END_TEST

START_TEST(without_stacks_threads_and_mappings_are_compared)
{
	make_both();
	put_file(B_ID, "functions.tsv", NULL);
	put_file(B_ID, "memory-functions.tsv", NULL);
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	commandrun_says_not(&command_run, "Functions");
	commandrun_says(&command_run, "Mappings (resident");
	commandrun_says(&command_run, "Threads by name");
	commandrun_says(&command_run, "Note: B has no functions.tsv: its stacks cannot be compared.\n");
	commandrun_says(&command_run, "Note: only A has stacks of memory: they cannot be compared.\n");
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_TROUBLE);
	commandrun_says(&command_run, "cpu.folded: not there: no stacks were recorded\n");
}
END_TEST

START_TEST(what_would_name_functions_is_told_of_each_side)
{
	make_both();
	put_file(B_ID, "functions.tsv",
		 "function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\n"
		 "# samples before, during: 0, "
		 "100\n[anon]\t[anon]\t0\t0\t60\t60\nuv_run\t/usr/bin/node\t0\t0\t40\t90\n");
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	commandrun_says(&command_run,
			"Note: B: 60 % without names: made at run time; what helps: node --perf-basic-prof.\n");
	commandrun_says_not(&command_run, "Note: A: ");
}
END_TEST

START_TEST(nothing_to_compare_is_trouble)
{
	make_a();
	put_file(INCIDENTMADE_ID, "functions.tsv", NULL);
	put_file(INCIDENTMADE_ID, "memory-functions.tsv", NULL);
	ck_assert_int_eq(DIFF("last"), EXIT_TROUBLE);
	commandrun_says(&command_run, "Compared: nothing of it can be compared\n");
	commandrun_says(&command_run, "Note: the incident has no smaps.again.tsv: there is no second snapshot.\n");
}
END_TEST

START_TEST(equal_incidents_have_no_changes)
{
	make_a();
	ck_assert_int_eq(DIFF("last", "last"), EXIT_OK);
	commandrun_says(&command_run, "A: 100, B: 100)\n  nothing has changed\n");
	commandrun_says(&command_run, "Mappings (resident and swapped)\n  nothing has changed\n");
}
END_TEST

START_TEST(hostile_names_are_escaped_and_lines_fit)
{
	static const char rows[] = FUNCTION_TABLE_HEADER
		"\n" FUNCTION_TABLE_SAMPLES " 0, 9\n" HOSTILE "\t/x/" HOSTILE "\t0\t0\t9\t9\t0.000\tx\t1\t9\tx\t1\n"
		"std::vector<std::basic_string<char>>::_M_realloc_insert<std::basic_string<char> const&>\t"
		"/a/very/long/path/to/some/library/that/is/called/libwith-a-long-name.so.6.0.30"
		"\t0\t0\t18446744073709551615\t9\t0.000\tx\t1\t9\tx\t1\n"
		"\t\t0\t0\t9\t9\t0.000\t" HOSTILE "\t1\t9\t" HOSTILE "\t1\n";
	static const size_t widths[] = { 10, 40, 41, 71, 72, 80, 120 };

	make_both();
	put_file(B_ID, "functions.tsv", rows);
	for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
		size_t width = widths[i] < 40 ? 40 : widths[i];
		char columns[16];

		snprintf(columns, sizeof(columns), "%zu", widths[i]);
		setenv("COLUMNS", columns, 1);
		ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
		commandrun_harmless(&command_run);
		commandrun_says(&command_run, "<i>\\x1b[");
		for (const char *at = command_run.output, *end; *at; at = end + 1) {
			end = strchr(at, '\n');
			/* The name of an incident is one word. */
			if (strncmp(at, "2026", 4) != 0)
				ck_assert_msg((size_t)(end - at) <= width, "%zu: %.*s", width, (int)(end - at), at);
		}
	}
	ck_assert_int_eq(DIFF_BOTH("--json"), EXIT_OK);
	commandrun_harmless(&command_run);
}
END_TEST

START_TEST(long_names_are_cut_where_they_say_least)
{
	static const char rows[] =
		FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 10000\n"
				      "a_function_with_a_rather_long_name\t/x/a-module-with-a-rather-long-name.so"
				      "\t0\t0\t2\t5000\t0.000\tx\t1\t9\tx\t1\n";
	static const char smaps[] = "mapping\tpermissions\trss_bytes\tswap_bytes\n"
				    "/usr/lib/x86_64-linux-gnu/libc.so.6\tr-xp\t2097152\t0\n"
				    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3\tr-xp\t1048576\t0\n";

	make_both();
	put_file(B_ID, "functions.tsv", rows);
	put_file(B_ID, "smaps.tsv", smaps);
	setenv("COLUMNS", "80", 1);
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	/* 0.02 points read 0.0, and have no sign. */
	commandrun_says(&command_run,
			"\n     -      -     0.0   50.0      0.0   +50.0  B     a_functi.._name  a-mod...so\n");
	setenv("COLUMNS", "40", 1);
	ck_assert_int_eq(DIFF_BOTH(), EXIT_OK);
	commandrun_says(&command_run, "\n    0.0   +50.0  B     a_functio..g_name\n");
	commandrun_says(&command_run, "\n    +1 MiB  B     ..x-gnu/libcrypto.so.3\n");
}
END_TEST

START_TEST(damage_is_reported_with_the_file)
{
	make_both();
	put_file(B_ID, "functions.tsv", "nonsense\n");
	put_file(INCIDENTMADE_ID, "smaps.tsv",
		 "pid\tmapping\tpermissions\trss_bytes\tswap_bytes\n1\tx\tr\t5\tmany\n1\ty\tr\t5\t0\n");
	ck_assert_int_eq(DIFF_BOTH(), EXIT_TROUBLE);
	commandrun_says(&command_run, "Note: B: functions.tsv is damaged.\n");
	commandrun_says(&command_run, "Note: A: 1 line of smaps.tsv is damaged.\n");
	commandrun_says(&command_run, "Threads by name");
	ck_assert_int_eq(DIFF_BOTH("--json"), EXIT_TROUBLE);
	commandrun_says(&command_run, "spikewatch diff: B: functions.tsv is damaged\n");
	put(B_ID, "functions.tsv", functions_b, sizeof(functions_b) - 1);
	ck_assert_int_eq(DIFF_BOTH(), EXIT_TROUBLE);
	commandrun_says(&command_run, "Note: B is damaged: functions.tsv has another size than when it was written.\n");
	commandrun_says(&command_run, "hash_probe");
	put_file(B_ID, "functions.tsv", memory_b); /* of another kind */
	put_file(B_ID, "smaps.tsv", "pid\tmapping\n");
	put_file(B_ID, "threads.tsv", "");
	ck_assert_int_eq(DIFF_BOTH(), EXIT_TROUBLE);
	commandrun_says(&command_run, "Note: B: smaps.tsv is damaged.\n");
	commandrun_says(&command_run, "Note: B: threads.tsv is damaged.\n");
	commandrun_says(&command_run, "Note: B: functions.tsv is damaged.\n");
}
END_TEST

/* ---- JSON ---- */

static const struct json_node *root_of(const char *text, size_t len)
{
	const struct json_limits limits = { .size_bytes = COMMANDRUN_OUTPUT_MAX, .depth = 16, .nodes = 1 << 20 };
	struct json_error error = { 0 };

	json_document_free(document);
	document = NULL;
	int rc = json_parse(text, len, &limits, &document, &error);
	ck_assert_msg(rc == 0, "line %u column %u: %s", error.place.line, error.place.column, error.message);
	return json_root(document);
}

/* "functions.rows": a member of a member. */
static const struct json_node *at(const struct json_node *node, const char *keys)
{
	char key[32];

	while (*keys) {
		size_t len = strcspn(keys, ".");

		snprintf(key, sizeof(key), "%.*s", (int)len, keys);
		node = json_member(node, key);
		ck_assert_msg(node, "%s is missing", key);
		keys += len + (keys[len] == '.');
	}
	return node;
}

static const struct json_node *row(const struct json_node *root, const char *table, size_t number)
{
	const struct json_node *found = at(at(root, table), "rows")->first;

	while (found && number-- > 0)
		found = found->next;
	ck_assert_ptr_nonnull(found);
	return found;
}

START_TEST(json_has_every_row_and_null_for_what_is_not_there)
{
	const struct json_node *root, *first;

	make_both();
	ck_assert_int_eq(DIFF_BOTH("--json"), EXIT_OK);
	root = root_of(command_run.output, command_run.len);
	ck_assert_str_eq(at(root, "b.id")->text, B_ID);
	ck_assert_double_eq(at(root, "functions.all.b")->number, 400);
	ck_assert_double_eq(at(root, "functions.left_out.a")->number, 3);
	ck_assert_uint_eq(at(root, "functions.rows")->count, 4);
	first = row(root, "functions", 0);
	ck_assert_str_eq(at(first, "function")->text, "hash_probe");
	ck_assert_str_eq(at(first, "module")->text, BIN);
	ck_assert_int_eq(at(first, "a")->type, JSON_NULL);
	ck_assert_double_eq(at(first, "b.self")->number, 100);
	ck_assert_double_eq(at(first, "growth_points.total")->number, 25);
	ck_assert_double_eq(at(row(root, "threads", 0), "b.cpu_percent")->number, 117.5);
	ck_assert_double_eq(at(row(root, "threads", 0), "growth.cpu_percent")->number, 20.5);
	ck_assert_double_eq(at(root, "threads.cpu_unknown.b")->number, 1);
	ck_assert_uint_eq(at(root, "mappings.rows")->count, 4); /* what has not changed, too */
	ck_assert_double_eq(at(row(root, "mappings", 0), "growth.swap_bytes")->number, 2097152);
	ck_assert_str_eq(at(row(root, "stack_threads", 0), "process")->text, "postgres");
	ck_assert_double_eq(at(row(root, "memory_functions", 0), "b.self")->number, 3145728);
	ck_assert_int_eq(DIFF_BOTH("--json", "-n", "1"), EXIT_OK);
	root = root_of(command_run.output, command_run.len);
	ck_assert_uint_eq(at(root, "functions.rows")->count, 1);
}
END_TEST

START_TEST(json_of_one_has_no_b)
{
	const struct json_node *root;

	make_a();
	ck_assert_int_eq(DIFF("last", "--json"), EXIT_OK);
	root = root_of(command_run.output, command_run.len);
	ck_assert_int_eq(at(root, "b")->type, JSON_NULL);
	ck_assert_int_eq(at(root, "mappings")->type, JSON_NULL);
	ck_assert_str_eq(at(root, "phase")->text, "before, during");
	ck_assert_double_eq(at(root, "functions.all.a")->number, 50);
}
END_TEST

/* ---- stacks ---- */

static void add_stack(struct stack_profile *profile, uint64_t at_ns, uint64_t samples, const uint32_t *frames,
		      size_t count)
{
	const struct stack_profile_sample sample = { .time_ns = at_ns,
						     .pid = 812,
						     .tid = 812,
						     .process = "post;gres",
						     .thread = "postgres",
						     .frames = frames,
						     .frame_count = count,
						     .count = samples,
						     .weight = samples * 4096 };

	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
}

/* main calls f, which has another name on each side, and something that has none. */
static void make_stacks(const char *id, enum stack_profile_quantity quantity, const char *name, uint64_t factor)
{
	static const char *const files[][2] = { [STACK_PROFILE_CPU] = { "cpu.pb.gz", "cpu.folded" },
						[STACK_PROFILE_MEMORY] = { "memory.pb.gz", "memory.folded" } };
	const struct stack_profile_options options = { .quantity = quantity,
						       .fired_ns = FIRED,
						       .from_ns = FIRED - 10000 * MS,
						       .to_ns = FIRED + 5000 * MS,
						       .spike_from_ns = FIRED - 100 * MS,
						       .period_ns = 10 * MS };
	const struct stack_profile_mapping mapping = { .start = 1, .end = 99, .path = "/lib/libx.so" };
	struct stack_profile_line lines[] = { { "main", "", 0 }, { name, "", 0 } };
	struct stack_profile *profile;
	struct buffer bytes = { 0 };
	struct sink sink = sink_buffer(&bytes);
	uint32_t in, frames[3];

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &in), 0);
	for (unsigned i = 0; i < 3; i++) {
		struct stack_profile_frame frame = { .mapping = in, .address = i + 1 };

		if (i < 2) {
			frame.lines = &lines[i];
			frame.line_count = 1;
		}
		ck_assert_int_eq(stack_profile_frame(profile, &frame, &frames[i]), 0);
	}
	add_stack(profile, FIRED - 900 * MS, 7 * factor, (uint32_t[]){ frames[0] }, 1);
	add_stack(profile, FIRED - 50 * MS, 2 * factor, (uint32_t[]){ frames[1], frames[0] }, 2);
	add_stack(profile, FIRED - 40 * MS, 3 * factor, (uint32_t[]){ frames[2], frames[0] }, 2);
	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	put(id, files[quantity][0], bytes.data, bytes.len);
	bytes.len = 0;
	ck_assert_int_eq(stack_profile_write_folded(profile, &sink), 0);
	put(id, files[quantity][1], bytes.data, bytes.len);
	buffer_release(&bytes);
	stack_profile_free(profile);
}

static void make_neighbour(const char *id)
{
	struct stack_profile_options options = { .quantity = STACK_PROFILE_CPU,
						 .fired_ns = FIRED,
						 .spike_from_ns = FIRED - 100 * MS,
						 .from_ns = FIRED - 1000 * MS,
						 .to_ns = FIRED + 1000 * MS,
						 .period_ns = 10 * MS };
	struct stack_profile_sample sample = {
		.time_ns = FIRED, .pid = 1, .tid = 1, .process = "post", .thread = "t", .count = 3, .weight = 30 * MS
	};
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	AUTO(buffer_release) struct buffer bytes = { 0 };
	struct sink sink = sink_buffer(&bytes);

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	sample.other = true;
	sample.pid = 2;
	sample.process = "cc1";
	sample.count = 9;
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	put(id, "cpu.pb.gz", bytes.data, bytes.len);
	bytes.len = 0;
	ck_assert_int_eq(stack_profile_write_functions(profile, &sink), 0);
	put(id, "functions.tsv", bytes.data, bytes.len);
	put_file(id, "none", NULL); /* MANIFEST is written anew */
}

START_TEST(the_target_is_compared_and_the_machine_if_it_is_asked_for)
{
	make_both();
	make_neighbour(INCIDENTMADE_ID);
	make_neighbour(B_ID);
	ck_assert_int_eq(DIFF(INCIDENTMADE_ID), EXIT_OK);
	commandrun_says(&command_run, "Functions (percent of its own CPU samples; before: 0, during: 3)\n");
	commandrun_says(&command_run, "+100.0  during  [no stack]\n");
	ck_assert_ptr_null(strstr(command_run.output, "cc1"));
	ck_assert_int_eq(DIFF(INCIDENTMADE_ID, "--machine"), EXIT_OK);
	commandrun_says(&command_run, "Functions (percent of all CPU samples; before: 0, during: 12)\n");
	commandrun_says(&command_run, " +75.0  during  cc1 ");
	ck_assert_int_eq(DIFF(INCIDENTMADE_ID, "--json"), EXIT_OK);
	commandrun_says(&command_run, "\"processes\": \"target\"");
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "post;[no stack] 3 3\n");
	ck_assert_int_eq(DIFF_BOTH("--folded", "--machine"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "cc1;[no stack] 9 9\npost;[no stack] 3 3\n");
}
END_TEST

static void remove_file(const char *id, const char *name)
{
	AUTO_CLOSE int in = open_incident(id);

	ck_assert_int_eq(unlinkat(in, name, 0), 0);
}

START_TEST(folded_stacks_have_two_counts)
{
	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_CPU, "f", 1);
	make_stacks(B_ID, STACK_PROFILE_CPU, HOSTILE, 2);
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "post\\x3bgres;main;<i>\\x1b[2J\"\\x5cx3b 0 4\n"
					     "post\\x3bgres;main;[libx.so] 3 6\n"
					     "post\\x3bgres;main;f 2 0\n");
	ck_assert_int_eq(DIFF_BOTH("--folded", "--phase", "all", "--normalize"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "post\\x3bgres;main 14 14\n"
					     "post\\x3bgres;main;<i>\\x1b[2J\"\\x5cx3b 0 4\n"
					     "post\\x3bgres;main;[libx.so] 6 6\n"
					     "post\\x3bgres;main;f 4 0\n");
	ck_assert_int_eq(DIFF(INCIDENTMADE_ID, "--folded"), EXIT_OK);
	ck_assert_str_eq(command_run.output, "post\\x3bgres;main 7 0\n"
					     "post\\x3bgres;main;[libx.so] 0 3\n"
					     "post\\x3bgres;main;f 0 2\n");
}
END_TEST

START_TEST(folded_memory_is_in_bytes)
{
	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_MEMORY, "f", 1);
	make_stacks(B_ID, STACK_PROFILE_MEMORY, "f", 1);
	ck_assert_int_eq(DIFF_BOTH("--folded", "--memory"), EXIT_OK);
	commandrun_says(&command_run, "post\\x3bgres;main;f 8192 8192\n");
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_TROUBLE);
}
END_TEST

START_TEST(names_out_of_the_profile_are_those_of_the_folded_file)
{
	char *profile;

	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_CPU, HOSTILE, 1);
	make_stacks(B_ID, STACK_PROFILE_CPU, HOSTILE, 1);
	ck_assert_int_eq(DIFF_BOTH("--folded", "--machine", "--phase", "all"), EXIT_OK);
	profile = strdup(command_run.output);
	remove_file(B_ID, "cpu.pb.gz");
	ck_assert_int_eq(DIFF_BOTH("--folded", "--machine", "--phase", "all"), EXIT_OK);
	ck_assert_str_eq(command_run.output, profile);
	free(profile);
	/* The files say no phase, and that is said. */
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_OK);
	commandrun_says(&command_run,
			"spikewatch diff: not both have a cpu.pb.gz: stacks are those of before and during together, "
			"of all processes\n");
	commandrun_says(&command_run, "post\\x3bgres;main 7 7\n");
}
END_TEST

START_TEST(damaged_stacks_are_reported_with_their_file)
{
	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_CPU, "f", 1);
	make_stacks(B_ID, STACK_PROFILE_CPU, "f", 1);
	put(B_ID, "cpu.pb.gz", "nonsense", 8);
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_TROUBLE);
	ck_assert_str_eq(command_run.output, "spikewatch diff: " B_ID "/cpu.pb.gz: damaged\n");
	remove_file(B_ID, "cpu.pb.gz");
	put(B_ID, "cpu.folded", "main\n", 5);
	ck_assert_int_eq(DIFF_BOTH("--folded"), EXIT_TROUBLE);
	ck_assert_str_eq(command_run.output, "spikewatch diff: " B_ID "/cpu.folded: damaged\n");
}
END_TEST

/* ---- the page ---- */

START_TEST(the_page_holds_the_tables_and_the_stacks)
{
	const struct json_node *root;
	char *data, *end;
	char file[400];

	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_CPU, "f", 1);
	make_stacks(B_ID, STACK_PROFILE_CPU, "</script>" HOSTILE, 2);
	snprintf(file, sizeof(file), "%s/page.html", path);
	if (!report_page_built()) {
		ck_assert_int_eq(DIFF_BOTH("--html", "-o", file), EXIT_TROUBLE);
		commandrun_says(&command_run, "built without npm");
		return;
	}
	ck_assert_int_eq(DIFF_BOTH("--html", "-o", file), EXIT_OK);
	ck_assert_uint_eq(command_run.len, 0);
	char *page = scene_read(file);
	ck_assert_ptr_nonnull(page);
	data = strstr(page, "id=\"report-data\">\n");
	ck_assert_ptr_nonnull(data);
	data = strchr(data, '\n') + 1;
	end = strstr(data, "</script>");
	root = root_of(data, (size_t)(end - data));
	ck_assert_double_eq(at(root, "format")->number, 1);
	ck_assert_uint_eq(at(root, "diff.functions.rows")->count, 4);
	ck_assert_int_eq(at(root, "diff.memory_stacks")->type, JSON_NULL);
	ck_assert_str_eq(at(root, "diff.cpu_stacks")->text, "post\\x3bgres;main;</script><i>\\x1b[2J\"\\x5cx3b 0 4\n"
							    "post\\x3bgres;main;[libx.so] 3 6\n"
							    "post\\x3bgres;main;f 2 0\n");
	ck_assert_ptr_nonnull(strstr(page, "A: " INCIDENTMADE_ID ": cpu 182.4 % "));
	free(page);
}
END_TEST

START_TEST(a_page_says_which_stacks_are_damaged)
{
	char file[400];

	if (!report_page_built())
		SKIP_TEST("built without npm");
	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_CPU, "f", 1);
	put(B_ID, "cpu.pb.gz", "nonsense", 8);
	snprintf(file, sizeof(file), "%s/page.html", path);
	ck_assert_int_eq(DIFF_BOTH("--html", "-o", file), EXIT_TROUBLE);
	commandrun_says(&command_run, "/cpu.pb.gz: damaged\n");
	ck_assert_int_eq(access(file, R_OK), 0);
}
END_TEST

/* ---- where it goes ---- */

START_TEST(a_file_is_replaced_by_a_whole_one_or_not_at_all)
{
	char file[400], *text;

	make_both();
	snprintf(file, sizeof(file), "%s/out", path);
	ck_assert_int_eq(DIFF_BOTH("-o", file), EXIT_OK);
	text = scene_read(file);
	ck_assert_ptr_nonnull(strstr(text, "hash_probe"));
	free(text);
	ck_assert_int_eq(DIFF_BOTH("--folded", "-o", file), EXIT_TROUBLE); /* there are no stacks */
	text = scene_read(file);
	ck_assert_ptr_nonnull(strstr(text, "hash_probe"));
	free(text);
	/* What is no plain file is written to, not replaced. */
	snprintf(file, sizeof(file), "%s/full", path);
	ck_assert_int_eq(symlink("/dev/full", file), 0);
	ck_assert_int_eq(DIFF_BOTH("-o", file), EXIT_TROUBLE);
	commandrun_says(&command_run, "/full: No space left on device\n");
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(DIFF_BOTH("-o", "/nowhere/at/all"), EXIT_TROUBLE);
	commandrun_says(&command_run, "No such file or directory\n");
}
END_TEST

START_TEST(wrong_usage_is_reported)
{
	make_a();
	ck_assert_int_eq(DIFF("last", "--json", "--folded"), EXIT_USAGE);
	commandrun_says(&command_run, "only one of --json, --folded and --html");
	ck_assert_int_eq(DIFF("last", "--normalize"), EXIT_USAGE);
	ck_assert_int_eq(DIFF("last", "nothing-like-it"), EXIT_TROUBLE);
	commandrun_says(&command_run, "no incident has this name");
	ck_assert_int_eq(DIFF("/"), EXIT_USAGE);
	ck_assert_int_eq(DIFF("last", "last", "last"), EXIT_USAGE);
	ck_assert_int_eq(commandrun(&command_run, diff_command, (char *[]){ (char[]){ "diff" }, NULL }), EXIT_USAGE);
}
END_TEST

/* words of a command, whose allocations fail one after the other; what it says goes into a file. */
static void torture(char *const *words)
{
	int saved[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) };
	FILE *said = tmpfile();
	bool injected = true, silent = false;
	int code = EXIT_OK, wrong = 0;

	fflush(stdout);
	dup2(fileno(said), STDOUT_FILENO);
	dup2(fileno(said), STDERR_FILENO);
	for (long n = 1; injected && n < 100000; n++) {
		char *copy[16];
		int count = 0;
		off_t from = lseek(fileno(said), 0, SEEK_END);

		for (; words[count]; count++)
			copy[count] = words[count];
		copy[count] = NULL;
		torture_arm(n);
		code = diff_command(count, copy);
		injected = torture_disarm();
		fflush(stdout);
		wrong += injected && code != EXIT_OK && code != EXIT_TROUBLE;
		silent |= code == EXIT_TROUBLE && lseek(fileno(said), 0, SEEK_END) == from;
	}
	for (int i = 0; i < 2; i++) {
		dup2(saved[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO);
		close(saved[i]);
	}
	fclose(said);
	ck_assert(!injected && !silent);
	ck_assert_int_eq(wrong, 0);
	ck_assert_int_eq(code, EXIT_OK);
}

#define WORDS(...) \
	((char *[]){ (char[]){ "diff" }, (char[]){ INCIDENTMADE_ID }, (char[]){ B_ID } __VA_OPT__(, ) __VA_ARGS__, \
		     NULL })

START_TEST(memory_that_is_short_is_reported)
{
	char file[400];

	make_both();
	make_stacks(INCIDENTMADE_ID, STACK_PROFILE_CPU, "f", 1);
	make_stacks(B_ID, STACK_PROFILE_CPU, "g", 1);
	torture(WORDS((char[]){ "--memory" }));
	torture(WORDS((char[]){ "--json" }));
	torture(WORDS((char[]){ "--folded" }));
	snprintf(file, sizeof(file), "%s/page.html", path);
	if (report_page_built())
		torture(WORDS((char[]){ "--html" }, (char[]){ "-o" }, file));
}
END_TEST

/* ---- contrasts: rows of numbers that are known ---- */

static struct contrast contrast;

static void set_up_contrast(void)
{
	contrast = (struct contrast){ .shares = true, .ranked = 2 };
}

static void tear_down_contrast(void)
{
	contrast_release(&contrast);
}

static int try_add_row(enum contrast_side side, const char *name, const char *place, uint64_t first, uint64_t second)
{
	const struct contrast_key key = { name, place, strlen(name), strlen(place) };

	return contrast_add(&contrast, side, &key, (uint64_t[]){ first, second });
}

static void add_row(enum contrast_side side, const char *name, uint64_t self, uint64_t total)
{
	ck_assert_int_eq(try_add_row(side, name, "bin", self, total), 0);
}

static const struct contrast_row *row_named(const char *name)
{
	for (size_t i = 0; i < contrast.count; i++)
		if (strcmp(contrast.rows[i].name, name) == 0)
			return &contrast.rows[i];
	ck_abort_msg("no row %s", name);
}

/* A: 100 samples, B: 400. */
static void fill_contrast(void)
{
	contrast.sum[CONTRAST_A] = 100;
	contrast.sum[CONTRAST_B] = 400;
	add_row(CONTRAST_A, "same", 10, 20);
	add_row(CONTRAST_A, "shrunk", 70, 100);
	add_row(CONTRAST_A, "gone", 20, 20);
	add_row(CONTRAST_B, "new", 100, 100);
	add_row(CONTRAST_B, "same", 40, 80);
	add_row(CONTRAST_B, "shrunk", 160, 400);
	add_row(CONTRAST_B, "grown", 100, 300);
	add_row(CONTRAST_A, "grown", 0, 10);
}

START_TEST(shares_are_of_all_of_their_own_side)
{
	fill_contrast();
	contrast_sort(&contrast);
	ck_assert_double_eq(contrast_value(&contrast, row_named("same"), CONTRAST_A, 0), 10);
	ck_assert_double_eq(contrast_value(&contrast, row_named("same"), CONTRAST_B, 0), 10);
	ck_assert_double_eq(contrast_growth(&contrast, row_named("same"), 1), 0);
	ck_assert_double_eq(contrast_growth(&contrast, row_named("grown"), 0), 25);
	ck_assert_double_eq(contrast_growth(&contrast, row_named("grown"), 1), 65);
	ck_assert_double_eq(contrast_rank(&contrast, row_named("grown")), 90);
	ck_assert_double_eq(contrast_rank(&contrast, row_named("shrunk")), -30);
	ck_assert(!contrast_changed(&contrast, row_named("same")));
	ck_assert(contrast_changed(&contrast, row_named("shrunk")));
}
END_TEST

START_TEST(a_side_that_has_nothing_has_shares_of_0)
{
	contrast.sum[CONTRAST_B] = 10;
	add_row(CONTRAST_A, "f", 5, 5);
	add_row(CONTRAST_B, "f", 5, 5);
	ck_assert_double_eq(contrast_value(&contrast, row_named("f"), CONTRAST_A, 0), 0);
	ck_assert_double_eq(contrast_growth(&contrast, row_named("f"), 0), 50);
}
END_TEST

START_TEST(sorts_by_growth_and_knows_the_sides)
{
	static const char *const order[] = { "grown", "new", "same", "shrunk", "gone" };

	fill_contrast();
	contrast_sort(&contrast);
	ck_assert_uint_eq(contrast.count, 5);
	for (size_t i = 0; i < 5; i++)
		ck_assert_str_eq(contrast.rows[i].name, order[i]);
	ck_assert(row_named("new")->there[CONTRAST_B] && !row_named("new")->there[CONTRAST_A]);
	ck_assert(row_named("gone")->there[CONTRAST_A] && !row_named("gone")->there[CONTRAST_B]);
	ck_assert_str_eq(row_named("new")->place, "bin");
}
END_TEST

START_TEST(chooses_what_has_changed_most_in_either_direction)
{
	static const size_t expected[][2] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 2, 1 }, { 2, 2 }, { 2, 2 } };
	size_t head, tail;

	fill_contrast(); /* +90, +50, 0, -30, -40 */
	contrast_sort(&contrast);
	for (size_t max = 0; max < 6; max++) {
		ck_assert_uint_eq(contrast_choose(&contrast, max, &head, &tail), 4);
		ck_assert_uint_eq(head, expected[max][0]);
		ck_assert_uint_eq(tail, expected[max][1]);
	}
	contrast_release(&contrast);
	ck_assert_uint_eq(contrast_choose(&contrast, 9, &head, &tail), 0);
	ck_assert_uint_eq(head + tail, 0);
}
END_TEST

START_TEST(amounts_that_are_no_shares_are_themselves)
{
	contrast.shares = false;
	add_row(CONTRAST_A, "m", 100, 50);
	add_row(CONTRAST_B, "m", 99, 52);
	ck_assert_double_eq(contrast_rank(&contrast, row_named("m")), 1);
	ck_assert(contrast_changed(&contrast, row_named("m")));
	contrast.ranked = 0; /* the first */
	ck_assert_double_eq(contrast_rank(&contrast, row_named("m")), -1);
}
END_TEST

START_TEST(a_change_that_reads_0_is_none)
{
	contrast.ranked = 1;
	contrast.sum[CONTRAST_A] = contrast.sum[CONTRAST_B] = 10000;
	add_row(CONTRAST_A, "f", 100, 100);
	add_row(CONTRAST_B, "f", 104, 100);
	ck_assert(!contrast_changed(&contrast, row_named("f")));
	add_row(CONTRAST_B, "f", 1, 0);
	ck_assert(contrast_changed(&contrast, row_named("f")));
}
END_TEST

START_TEST(the_same_name_elsewhere_is_something_else)
{
	ck_assert_int_eq(try_add_row(CONTRAST_A, "f", "x", 1, 1), 0);
	ck_assert_int_eq(try_add_row(CONTRAST_A, "fx", "", 1, 1), 0);
	ck_assert_int_eq(try_add_row(CONTRAST_A, "f", "y", 1, 1), 0);
	ck_assert_int_eq(try_add_row(CONTRAST_A, "f", "x", 2, 3), 0);
	ck_assert_uint_eq(contrast.count, 3);
	ck_assert_uint_eq(contrast.rows[0].amount[CONTRAST_A][0], 3);
	ck_assert_uint_eq(contrast.rows[0].amount[CONTRAST_A][1], 4);
	contrast_sort(&contrast); /* equals by name and place */
	ck_assert_str_eq(contrast.rows[0].place, "x");
	ck_assert_str_eq(contrast.rows[1].place, "y");
	ck_assert_str_eq(contrast.rows[2].name, "fx");
}
END_TEST

START_TEST(sums_stop_at_the_largest_number)
{
	add_row(CONTRAST_A, "f", UINT64_MAX - 1, 0);
	add_row(CONTRAST_A, "f", 5, 0);
	ck_assert_uint_eq(contrast.rows[0].amount[CONTRAST_A][0], UINT64_MAX);
}
END_TEST

START_TEST(an_allocation_that_fails_leaves_no_key_without_row)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		int rc = 0;

		contrast_release(&contrast);
		torture_arm(n);
		for (int i = 0; i < 200 && rc == 0; i++) {
			char name[16];

			snprintf(name, sizeof(name), "%d", i);
			rc = try_add_row(CONTRAST_A, name, "", 1, 1);
		}
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		ck_assert_uint_le(contrast.keys.count, contrast.count);
		ck_assert_int_eq(try_add_row(CONTRAST_B, "0", "", 1, 1), 0);
		ck_assert_uint_eq(contrast.keys.count, contrast.count);
	}
	ck_assert_uint_eq(contrast.count, 200);
}
END_TEST

Suite *diff_suite(void)
{
	Suite *suite = suite_create("diff");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, functions_are_compared_by_their_share_of_their_own_side);
	tcase_add_test(tcase, threads_are_matched_by_name);
	tcase_add_test(tcase, mappings_of_all_processes_are_compared_by_bytes);
	tcase_add_test(tcase, memory_comes_first_if_it_is_asked_for);
	tcase_add_test(tcase, only_so_many_rows_are_shown_and_the_others_counted);
	tcase_add_test(tcase, another_time_of_the_stacks_may_be_compared);
	tcase_add_test(tcase, one_incident_is_before_against_during);
	tcase_add_test(tcase, one_incident_is_its_first_snapshot_against_its_second);
	tcase_add_test(tcase, says_how_far_apart_the_snapshots_were);
	tcase_add_test(tcase, without_stacks_threads_and_mappings_are_compared);
	tcase_add_test(tcase, what_would_name_functions_is_told_of_each_side);
	tcase_add_test(tcase, nothing_to_compare_is_trouble);
	tcase_add_test(tcase, equal_incidents_have_no_changes);
	tcase_add_test(tcase, hostile_names_are_escaped_and_lines_fit);
	tcase_add_test(tcase, long_names_are_cut_where_they_say_least);
	tcase_add_test(tcase, damage_is_reported_with_the_file);
	tcase_add_test(tcase, json_has_every_row_and_null_for_what_is_not_there);
	tcase_add_test(tcase, json_of_one_has_no_b);
	tcase_add_test(tcase, folded_stacks_have_two_counts);
	tcase_add_test(tcase, the_target_is_compared_and_the_machine_if_it_is_asked_for);
	tcase_add_test(tcase, folded_memory_is_in_bytes);
	tcase_add_test(tcase, names_out_of_the_profile_are_those_of_the_folded_file);
	tcase_add_test(tcase, damaged_stacks_are_reported_with_their_file);
	tcase_add_test(tcase, the_page_holds_the_tables_and_the_stacks);
	tcase_add_test(tcase, a_page_says_which_stacks_are_damaged);
	tcase_add_test(tcase, a_file_is_replaced_by_a_whole_one_or_not_at_all);
	tcase_add_test(tcase, wrong_usage_is_reported);
	tcase_add_test(tcase, memory_that_is_short_is_reported);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("contrast");
	tcase_add_checked_fixture(tcase, set_up_contrast, tear_down_contrast);
	tcase_add_test(tcase, shares_are_of_all_of_their_own_side);
	tcase_add_test(tcase, a_side_that_has_nothing_has_shares_of_0);
	tcase_add_test(tcase, sorts_by_growth_and_knows_the_sides);
	tcase_add_test(tcase, chooses_what_has_changed_most_in_either_direction);
	tcase_add_test(tcase, amounts_that_are_no_shares_are_themselves);
	tcase_add_test(tcase, a_change_that_reads_0_is_none);
	tcase_add_test(tcase, the_same_name_elsewhere_is_something_else);
	tcase_add_test(tcase, sums_stop_at_the_largest_number);
	tcase_add_test(tcase, an_allocation_that_fails_leaves_no_key_without_row);
	suite_add_tcase(suite, tcase);
	return suite;
}
