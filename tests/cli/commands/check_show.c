/*
 * check_show.c: list, show and verify as they are called, on incidents whole and hostile; what they
 * print is read back.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "lib/profile/stack_text.h"
#include "lib/incident/incident.h"
#include "incidentmade.h"
#include "skip.h"
#include "lib/base/json.h"
#include "lib/incident/manifest.h"
#include "lib/base/base.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OUTPUT_MAX 65536

static char path[300];
static int dirfd_of_test = -1;
static char output[OUTPUT_MAX];

static void set_up(void)
{
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
	setenv("TZ", "UTC", 1);
	setenv("COLUMNS", "80", 1);
	setenv("SPIKEWATCH_DIR", path, 1);
}

static void tear_down(void)
{
	close(dirfd_of_test);
	incidentmade_remove(path);
}

/* Runs a command with the words given, stdout and stderr into output. Its exit code. */
static int run(int (*command)(int, char **), char **words)
{
	FILE *file = tmpfile();
	int saved[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) };
	int argc = 0, code;
	size_t len;

	ck_assert_ptr_nonnull(file);
	while (words[argc])
		argc++;
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	dup2(fileno(file), STDERR_FILENO);
	code = command(argc, words);
	fflush(stdout);
	dup2(saved[0], STDOUT_FILENO);
	dup2(saved[1], STDERR_FILENO);
	close(saved[0]);
	close(saved[1]);

	rewind(file);
	len = fread(output, 1, sizeof(output) - 1, file);
	output[len] = '\0';
	fclose(file);
	return code;
}

#define RUN(name, ...) run(name##_command, (char *[]){ #name, __VA_ARGS__ __VA_OPT__(, ) NULL })

static void says(const char *text)
{
	ck_assert_msg(strstr(output, text), "does not say \"%s\":\n%s", text, output);
}

static void says_not(const char *text)
{
	ck_assert_msg(!strstr(output, text), "says \"%s\":\n%s", text, output);
}

static void make(const struct incidentmade_options *options)
{
	static const struct incidentmade_options usual;

	incidentmade_write(dirfd_of_test, options ? options : &usual);
}

static const char *path_of(const char *file)
{
	static char whole[600];

	snprintf(whole, sizeof(whole), "%s/%s%s%s", path, INCIDENTMADE_ID, *file ? "/" : "", file);
	return whole;
}

/* Changes one byte in the middle of a file. */
static void flip(const char *file)
{
	AUTO_CLOSE int fd = open(path_of(file), O_RDWR | O_CLOEXEC);
	struct stat st;
	char byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(pread(fd, &byte, 1, st.st_size / 2), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size / 2), 1);
}

static struct json_document *parsed(void)
{
	struct json_document *document = NULL;
	struct json_error error = { 0 };
	int rc = json_parse(output, strlen(output), NULL, &document, &error);

	ck_assert_msg(rc == 0, "line %u: %s", error.place.line, error.message);
	return document;
}

static void harmless(void)
{
	for (const unsigned char *p = (const unsigned char *)output; *p; p++)
		ck_assert_msg(*p == '\n' || *p >= ' ', "byte %02x in:\n%s", *p, output);
	says_not("\x7f");
}

static void golden(const char *name)
{
	static char want[OUTPUT_MAX];
	char file_name[200];
	FILE *file;

	snprintf(file_name, sizeof(file_name), "tests/data/show/%s.txt", name);
	if (getenv("SPIKEWATCH_WRITE_GOLDEN")) {
		file = fopen(file_name, "w");
		fputs(output, file);
		fclose(file);
	}
	file = fopen(file_name, "r");
	ck_assert_msg(file, "%s is missing", file_name);
	want[fread(want, 1, sizeof(want) - 1, file)] = '\0';
	fclose(file);
	/* Both are too long for a message of Check. */
	if (strcmp(output, want) != 0)
		fprintf(stderr, "%s", output);
	ck_assert_msg(strcmp(output, want) == 0, "differs from %s", file_name);
}

START_TEST(shows_what_the_golden_text_shows)
{
	make(&(struct incidentmade_options){ .gap = true, .gone = true });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	golden("gap_and_gone");
}
END_TEST

START_TEST(a_hole_in_which_the_recording_ends_has_no_average)
{
	make(&(struct incidentmade_options){ .hole = _i > 0, .cut = true });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says(_i ? "known as a sum only. No tick came after" : "No tick came after it, and");
	says(_i ? "no samples 2 times, for 4.5 s in all " : "no samples for 3 s ");
	says_not("% on average");
	make(&(struct incidentmade_options){ .name = "20261120T041502.123Z-postgres_812-cpu-high-2", .hole = true });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says("known as a sum only.");
	says_not("No tick came");
	says("% on average");
}
END_TEST

static unsigned lines_of_output(void)
{
	unsigned lines = 0;

	for (const char *at = output; *at; at++)
		lines += *at == '\n';
	return lines;
}

#define BURNT \
	FUNCTION_TABLE_HEADER \
	"\n" FUNCTION_TABLE_SAMPLES " 200, 100\n" FUNCTION_TABLE_OWN_SAMPLES " 100, 50\n" \
	"qsort_compare\t/bin/db\t2\t4\t20\t24\t200.000\thot\t815\t25\tpostgres\t812\n" \
	"spin\t/bin/db\t2\t4\t10\t12\t100.000\thot\t815\t12\tpostgres\t812\n" \
	"sort_tuples\t/bin/db\t2\t4\t5\t35\t50.000\thot\t815\t35\tpostgres\t812\n" \
	"main\t/bin/db\t0\t90\t0\t50\t0.000\thot\t815\t50\tpostgres\t812\n" \
	"yes\t" FUNCTION_TABLE_NEIGHBOUR "\t50\t50\t20\t20\t200.000\tyes\t900\t20\tyes\t900\n" \
	"spikewatchd\t" FUNCTION_TABLE_NEIGHBOUR "\t30\t30\t16\t16\t160.000\tsampler\t7\t9\tspikewatchd\t6\n" \
	"spikewatch-symb\t" FUNCTION_TABLE_NEIGHBOUR "\t20\t20\t14\t14\t140.000\tx\t8\t9\tspikewatch-symb\t8\n"

START_TEST(one_screen_answers_first)
{
	make(&(struct incidentmade_options){ .functions = BURNT });
	for (unsigned lines = 24; lines <= 40; lines += 16) {
		char text[16];

		snprintf(text, sizeof(text), "%u", lines);
		setenv("LINES", text, 1);
		ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
		unsetenv("LINES");
		ck_assert_msg(lines_of_output() < lines && lines_of_output() >= lines - 12, "%s", output);
		/* The innermost of the functions that were on half of the stacks. */
		says("70 % of its CPU time in sort_tuples.");
		says("CPU, percent of the limit");
		says("  40.0   48.0  qsort_compare");
		says("--full");
		says_not("yes");
		says_not("\nMemory");
		for (const char *line = output; line; line = strchr(line + 1, '\n'))
			ck_assert_uint_le(strcspn(line + 1, "\n"), 80);
	}
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	ck_assert_uint_gt(lines_of_output(), 40);
}
END_TEST

/* Long names, two threads, code without names: what takes most lines. */
#define CROWDED \
	FUNCTION_TABLE_HEADER \
	"\n" FUNCTION_TABLE_SAMPLES " 200, 100\n" FUNCTION_TABLE_OWN_SAMPLES " 100, 50\n" \
	"[libz.so.1+0x4970]\t/usr/lib/libz.so.1\t2\t4\t30\t30\t300.000\thot\t815\t30\tpostgres\t812\n" \
	"deflate_of_a_long_name::that_goes_on::and_on::and_on::until_it_has_to_be_cut::somewhere(int, char " \
	"const*)\t/bin/db\t" \
	"2\t4\t10\t42\t100.000\thot\t815\t12\tpostgres\t812\n" \
	"sort_tuples\t/bin/db\t2\t4\t5\t5\t50.000\thot\t815\t5\tpostgres\t812\n" \
	"\t\t50\t50\t30\t30\t300.000\thot\t815\t30\tpostgres\t812\n" \
	"\t\t50\t50\t20\t20\t200.000\tcold\t816\t20\tpostgres\t812\n"

START_TEST(the_first_screen_is_never_longer_than_the_screen)
{
	make(&(struct incidentmade_options){ .functions = CROWDED });
	setenv("LINES", "24", 1);
	ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
	unsetenv("LINES");
	ck_assert_msg(lines_of_output() < 24, "%s", output);
	says("84 % of its CPU time in\ndeflate_of_a_long");
	says("to_be_cut::somewhere.");
	says_not("char const");
	says("815  hot of postgres/812");
	says("60 % without names: libz.so.1 is stripped");
	says("--full");
}
END_TEST

START_TEST(own_processes_are_one_line)
{
	make(&(struct incidentmade_options){ .functions = BURNT });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says("  25.0   25.0    30.0   30.0  spikewatch itself");
	says("yes");
	says_not("spikewatchd");
	says_not("spikewatch-symb");
}
END_TEST

/* Runs show on a terminal, $PAGER included; what came out is in output. */
static int run_on_terminal(const char *pager, char **words)
{
	size_t len = 0;
	ssize_t got;
	int terminal, status;
	pid_t pid = forkpty(&terminal, NULL, NULL, NULL);

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setenv("PAGER", pager, 1);
		setenv("NO_COLOR", "1", 1);
		_exit(process_finish(show_command(words[1] && words[2] ? 3 : 2, words)));
	}
	while (len < sizeof(output) - 1 && (got = read(terminal, output + len, sizeof(output) - 1 - len)) > 0)
		len += (size_t)got;
	output[len] = '\0';
	close(terminal);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

START_TEST(all_of_it_goes_through_the_pager)
{
	char *full[] = { (char[]){ "show" }, (char[]){ "--full" }, (char[]){ "last" }, NULL };
	char *brief[] = { (char[]){ "show" }, (char[]){ "last" }, NULL };

	make(NULL);
	ck_assert_int_eq(run_on_terminal("sed 's/^/paged: /'", full), EXIT_OK);
	says("paged: Recording");
	ck_assert_int_eq(run_on_terminal("sed 's/^/paged: /'", brief), EXIT_OK);
	says_not("paged:");
	ck_assert_int_eq(run_on_terminal("", full), EXIT_OK);
	says_not("paged:");
	says("Recording");
	/* One that is left early is no error. */
	ck_assert_int_eq(run_on_terminal("head -n 1", full), EXIT_OK);
	says(INCIDENTMADE_ID);
	says_not("Recording");
}
END_TEST

static void put_in(int fd, const char *name, const char *text, size_t len)
{
	AUTO_CLOSE int file = openat(fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(sink_write_all(file, text, len), 0);
}

/* The incident becomes one of a group, whose members are these. */
static void make_group(const char *status, const char *why_of_stacks)
{
	static struct incident incident;
	struct incident_capture stacks = { .name = "stacks", .file = "cpu.pb.gz", .status = INCIDENT_CAPTURE_OK };
	AUTO(buffer_release) struct buffer text = { 0 };
	AUTO_CLOSE int fd = -1;

	make(NULL);
	fd = openat(dirfd_of_test, INCIDENTMADE_ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(incident_json_read(fd, &incident), 0);
	incident.target.kind = TARGET_GROUP;
	incident.target.cmdline[0] = '\0';
	snprintf(stacks.why, sizeof(stacks.why), "%s", why_of_stacks);
	incident_add_capture(&incident, &stacks);
	ck_assert_int_eq(incident_json_write(&incident, sink_buffer(&text)), 0);
	put_in(fd, INCIDENT_FILE, text.data, text.len);
	put_in(fd, "status.txt", status, strlen(status));
	put_in(fd, "cpu.pb.gz", "", 0);
	unlinkat(fd, MANIFEST_NAME, 0);
	ck_assert_int_eq(manifest_write(fd), 0);
}

START_TEST(members_of_a_group_are_named_with_what_they_ran)
{
	make_group("# /proc/9/cmdline: Permission denied\n# /proc/9/status\nName:\tx\n"
		   "# /proc/812/cmdline\npostgres: SELECT \x1b[2J\n# /proc/812/status\nName:\tpostgres\nVmRSS:\t  2048 "
		   "kB\n",
		   "");
	ck_assert_int_eq(RUN(show, "postgres"), EXIT_OK);
	says("\nBusiest member: 812, 98.0 % of a core: postgres: SELECT \\x1b[2J\n");
	ck_assert_int_eq(RUN(show, "--full", "postgres"), EXIT_OK);
	says("\nMembers: 812, 98.0 % of a core: postgres: SELECT \\x1b[2J\n"
	     "         9: (command line not known)\n");
	ck_assert_int_eq(RUN(show, "--json", "postgres"), EXIT_OK);
	says("\"cpu_percent\": 98");
	says("\"rss_bytes\": null");
	says("\"rss_bytes\": 2097152");
}
END_TEST

/* Samples are there, stacks are not: it must not say that all is. */
START_TEST(nothing_was_lost_does_not_stand_beside_what_was)
{
	make_group("", "1 sample was lost");
	ck_assert_int_eq(RUN(show, "--full", "postgres"), EXIT_OK);
	says("cpu.pb.gz (1 sample was lost).");
	says_not("Nothing was");
	says_not("No sample was lost");
	ck_assert_int_eq(RUN(show, "postgres"), EXIT_OK);
	says("cpu.pb.gz (1 sample was lost).");
}
END_TEST

START_TEST(whole_incident_says_that_nothing_was_lost)
{
	make(NULL);
	ck_assert_int_eq(RUN(show, "--full", "postgres"), EXIT_OK);
	says("Nothing was\nlost.");
	says("182.4 % of its");
	says("hot-loop");
	says("memory peaked at 190 MiB");
	says_not("ended");
}
END_TEST

START_TEST(shows_by_path_too)
{
	make(NULL);
	ck_assert_int_eq(RUN(show, "--full", (char *)path_of("")), EXIT_OK);
	says(INCIDENTMADE_ID);
}
END_TEST

START_TEST(json_holds_incident_summary_and_series)
{
	struct json_document *document;
	const struct json_node *root, *series;

	make(NULL);
	ck_assert_int_eq(RUN(show, "--full", "last", "--json"), EXIT_OK);
	document = parsed();
	root = json_root(document);
	ck_assert_ptr_nonnull(json_member(json_member(root, "incident"), "rule"));
	ck_assert_ptr_nonnull(strstr(json_member(root, "summary")->text, "postgres/812"));
	ck_assert(!json_member(root, "damaged")->boolean);
	series = json_member(root, "series");
	ck_assert_uint_eq(json_member(json_member(series, "cpu_percent"), "peak")->count, 68);
	ck_assert_uint_eq(json_member(json_member(series, "memory_bytes"), "mean")->count, 68);
	json_document_free(document);
}
END_TEST

START_TEST(what_was_asked_for_by_hand_has_no_value_and_no_threshold)
{
	struct json_document *document;
	const struct json_node *row;

	make(&(struct incidentmade_options){ .manual = true });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says("a record of postgres/812 was asked for by hand.");
	says("It was also asked for by hand.");
	says_not("threshold");
	says_not("fires above");
	says_not("more firing");
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says("manual            asked for by hand");
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	document = parsed();
	row = json_root(document)->first;
	ck_assert_str_eq(json_member(row, "kind")->text, "manual");
	ck_assert_int_eq(json_member(row, "value")->type, JSON_NULL);
	ck_assert_int_eq(json_member(row, "threshold")->type, JSON_NULL);
	json_document_free(document);
	ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_OK);
}
END_TEST

START_TEST(of_everything_targets_are_listed_by_their_peaks)
{
	struct json_document *document;
	const struct json_node *targets;
	const char *first, *second;

	make(&(struct incidentmade_options){ .manual = true, .everything = true });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says("a record of all targets was asked for by hand");
	says("Targets by their peaks");
	first = strstr(output, "2.00 cores     160 MiB  greedy/9");
	second = strstr(output, "1.00 cores    40.0 MiB  postgres/812");
	ck_assert_msg(first && second && first < second, "%s", output);
	says_not("\nMemory");
	says_not("of this target");
	ck_assert_int_eq(RUN(show, "--full", "last", "--json"), EXIT_OK);
	document = parsed();
	ck_assert_int_eq(json_member(json_root(document), "series")->type, JSON_NULL);
	targets = json_member(json_root(document), "targets");
	ck_assert_uint_eq(targets->count, 2);
	ck_assert_str_eq(json_member(targets->first, "name")->text, "greedy/9");
	json_document_free(document);
	ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_OK);
}
END_TEST

START_TEST(functions_of_the_spike_are_shown_beside_those_before_it)
{
	struct json_document *document;
	const struct json_node *functions;

	make(&(struct incidentmade_options){ .functions = FUNCTION_TABLE_HEADER
					     "\n" FUNCTION_TABLE_SAMPLES " 200, 50\n"
					     "spin\t/bin/db\t2\t4\t40\t45\t400.000\thot\t815\t45\n" });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says("Hottest functions (percent of its own samples: 200 before the spike, 50");
	says("   1.0    2.0    80.0   90.0  spin      db      hot/815\n");
	ck_assert_int_eq(RUN(show, "--full", "last", "--json"), EXIT_OK);
	document = parsed();
	functions = json_member(json_root(document), "functions");
	ck_assert_double_eq(json_member(functions, "samples_before")->number, 200);
	ck_assert_str_eq(json_member(json_member(functions, "hottest")->first, "function")->text, "spin");
	ck_assert_double_eq(json_member(json_member(functions, "hottest")->first, "self_during")->number, 40);
	json_document_free(document);
}
END_TEST

START_TEST(of_memory_it_shows_first_what_made_it_grow)
{
	make(&(struct incidentmade_options){ .metric = _i ? "memory_bytes" : "cpu",
					     .functions = FUNCTION_TABLE_HEADER "\nspin\t\t0\t0\t1\t1\n",
					     .memory_functions = FUNCTION_TABLE_HEADER_BYTES
					     "\n" FUNCTION_TABLE_BYTES " 0, 1\ngrow\t\t0\t0\t1\t1\n" });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	ck_assert_ptr_null(strstr(strstr(output, "made memory grow") + 1, "made memory grow"));
	says("\nHottest functions (percent");
	ck_assert_int_eq(strstr(output, "made memory grow") < strstr(output, "Hottest functions"), _i);
}
END_TEST

START_TEST(without_a_table_of_functions_nothing_is_said_of_them)
{
	struct json_document *document;

	make(NULL);
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says_not("Hottest");
	ck_assert_int_eq(RUN(show, "--full", "last", "--json"), EXIT_OK);
	document = parsed();
	ck_assert_int_eq(json_member(json_root(document), "functions")->type, JSON_NULL);
	json_document_free(document);
}
END_TEST

START_TEST(what_is_not_there_is_said)
{
	char page[400];

	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	says("there are no incidents");
	incidentmade_write(dirfd_of_test, &(struct incidentmade_options){ 0 });
	ck_assert_int_eq(RUN(show, "--full", "lost"), EXIT_TROUBLE);
	says("no incident has this name");
	snprintf(page, sizeof(page), "%s/" INCIDENTMADE_ID "/incident.json", path);
	ck_assert_int_eq(RUN(show, "--full", page), EXIT_TROUBLE);
	says("a file, not the directory of an incident");
	ck_assert_int_eq(RUN(show, "--full", "/proc/nonexistent/incident"), EXIT_TROUBLE);
	ck_assert_int_eq(RUN(show, "--full", path), EXIT_USAGE);
	says("there is no incident.json in it");
	ck_assert_int_eq(RUN(show), EXIT_USAGE);
	says("ID|PATH is missing");
}
END_TEST

START_TEST(ambiguous_names_are_refused)
{
	make(NULL);
	make(&(struct incidentmade_options){ .name = "20261120T031502.123Z-postgres_812-cpu-high-2" });
	ck_assert_int_eq(RUN(show, "--full", "postgres"), EXIT_TROUBLE);
	says("more than one incident");
	says("-high-2");
}
END_TEST

START_TEST(incident_without_samples_still_says_what_fired)
{
	make(NULL);
	ck_assert_int_eq(unlink(path_of("samples.tsv")), 0);
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	says("DAMAGED: samples.tsv is missing");
	says("Lost: the samples");
	says("cpu-high");
}
END_TEST

START_TEST(incident_that_cannot_be_read_is_shown_as_far_as_it_goes)
{
	make(NULL);
	ck_assert_int_eq(truncate(path_of(INCIDENT_FILE), 20), 0);
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	says("DAMAGED: incident.json is damaged");
	ck_assert_int_eq(RUN(show, "--full", "last", "--json"), EXIT_TROUBLE);
	json_document_free(parsed());
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says("DAMAGED");
}
END_TEST

/* Of the same size as MANIFEST says. */
START_TEST(damaged_samples_are_shown_as_damaged)
{
	make(NULL);
	flip("samples.tsv");
	ck_assert_int_eq(RUN(show, "last"), EXIT_TROUBLE);
	says("DAMAGED: samples.tsv is damaged. See spikewatch verify.\n");
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	says("DAMAGED: samples.tsv is damaged. See spikewatch verify.\n");
	says("rows to damage of the file");
	ck_assert_int_eq(RUN(show, "--json", "last"), EXIT_TROUBLE);
	says("\"damaged\": true");
}
END_TEST

/* As it is sealed when there was no room for all of them. */
START_TEST(samples_that_the_incident_says_it_lacks_are_no_damage)
{
	AUTO_FREE struct incident *incident = malloc(sizeof *incident);
	struct incident_capture samples = { .name = "samples" };
	AUTO_CLOSE int fd = -1, json = -1;

	make(NULL);
	fd = open(path_of(""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(incident_json_read(fd, incident), 0);
	incident_capture_without_file(&samples, INCIDENT_CAPTURE_FAILED, "the disk was full");
	incident->capture_count = 0;
	incident_add_capture(incident, &samples);
	json = openat(fd, INCIDENT_FILE, O_WRONLY | O_TRUNC | O_CLOEXEC);
	ck_assert_int_eq(incident_json_write(incident, sink_fd(&json)), 0);
	flip("samples.tsv");
	ck_assert_int_eq(unlinkat(fd, MANIFEST_NAME, 0), 0);
	ck_assert_int_eq(manifest_write(fd), 0);
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	says_not("DAMAGED");
	says("rows to damage of the file");
}
END_TEST

START_TEST(escapes_of_a_hostile_name_never_reach_the_terminal)
{
	make(&(struct incidentmade_options){ .comm = "\033]0;pwned\a\033[2J\r\n\x7f\xc2\x9b" });
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_OK);
	harmless();
	ck_assert_int_eq(RUN(show, "--full", "last", "--json"), EXIT_OK);
	harmless();
	ck_assert_int_eq(RUN(list), EXIT_OK);
	harmless();
	ck_assert_int_eq(RUN(show, "--full", "\033[31mred"), EXIT_TROUBLE);
	harmless();
}
END_TEST

START_TEST(hostile_evidence_never_reaches_the_terminal)
{
	make(NULL);
	AUTO_CLOSE int fd = open(path_of("threads.tsv"), O_WRONLY | O_TRUNC | O_CLOEXEC);
	static const char head[] = "\033[2Jtid\tname_ns\t",
			  bad[] = "\n1\t18446744073709551616\t\xff\n#\033[31m\n-\t-5\n\n";
	char row[5000];

	memset(row, '\t', sizeof(row));
	memcpy(row, head, strlen(head));
	memcpy(row + 1000, bad, strlen(bad));
	memset(row + 1000 + strlen(bad), 'x', sizeof(row) - 1000 - strlen(bad));
	ck_assert_int_eq(write(fd, row, sizeof(row)), sizeof(row));
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	harmless();
}
END_TEST

#define SYSTEM_PLACE "/var/lib/spikewatch/incidents"

/* An incident with that name in directory, which is made. */
static void put_incident(const char *directory, const char *name)
{
	char part[300];
	int fd;

	for (const char *at = directory; (at = strchr(at + 1, '/')) != NULL;) {
		snprintf(part, sizeof(part), "%.*s", (int)(at - directory), directory);
		mkdir(part, 0755);
	}
	mkdir(directory, 0755);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	incidentmade_write(fd, &(struct incidentmade_options){ .name = name });
	close(fd);
}

/* The system's incidents and those of one's own daemon, of which the newest comes from either; -d means one alone. */
START_TEST(all_places_are_looked_into_and_said)
{
	static const char *const ids[] = { "20260101T000000.000Z-system-cpu-1", "20260102T000000.000Z-own-cpu-1",
					   "20260103T000000.000Z-later-cpu-1", "20260104T000000.000Z-apart-cpu-1" };
	char own[340], apart[340];

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/var/lib", "tmpfs", 0, NULL) < 0)
		SKIP_TEST("no file system of its own can be mounted here");
	snprintf(own, sizeof(own), "/var/lib/state/spikewatch/incidents");
	snprintf(apart, sizeof(apart), "/var/lib/apart");
	unsetenv("SPIKEWATCH_DIR");
	setenv("XDG_STATE_HOME", "/var/lib/state", 1);
	put_incident(SYSTEM_PLACE, ids[0]);
	put_incident(apart, ids[3]);

	/* There is one place: it needs no words. */
	ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
	ck_assert_msg(strstr(output, ids[0]) && !strstr(output, SYSTEM_PLACE), "%s", output);

	put_incident(own, ids[1]);
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says(SYSTEM_PLACE);
	says(own);
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	says(ids[0]);
	says(ids[1]);
	ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
	says(ids[1]);
	says(own);
	ck_assert_int_eq(RUN(show, "system"), EXIT_OK);
	says(ids[0]);
	ck_assert_int_eq(RUN(replay, "last"), EXIT_OK);
	says("postgres/812");
	says(own);

	put_incident(SYSTEM_PLACE, ids[2]);
	ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
	says(ids[2]);
	ck_assert_int_eq(RUN(replay, "last"), EXIT_OK);
	says(SYSTEM_PLACE);

	ck_assert_int_eq(RUN(list, "-d", apart), EXIT_OK);
	ck_assert_msg(!strstr(output, SYSTEM_PLACE) && !strstr(output, own), "%s", output);
	ck_assert_int_eq(RUN(show, "-d", apart, "last"), EXIT_OK);
	says(ids[3]);
	ck_assert_int_eq(RUN(show, "-d", apart, "system"), EXIT_TROUBLE);
	ck_assert_int_eq(RUN(replay, "-d", apart, "last"), EXIT_OK);
	umount("/var/lib");
}
END_TEST

START_TEST(empty_directory_says_so)
{
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says("There are no incidents in");
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	ck_assert_str_eq(output, "[]\n");
	ck_assert_int_eq(RUN(list, "-d", "/proc/nonexistent"), EXIT_TROUBLE);
	setenv("SPIKEWATCH_DIR", "/proc/nonexistent", 1);
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says("There are no incidents in /proc/nonexistent: there is no such directory.\n");
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	ck_assert_str_eq(output, "[]\n");
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	says("/proc/nonexistent: there is no such directory; use -d DIR for another one\n");
}
END_TEST

/* What spikewatch list prints on a terminal of so many columns, without the \r of each line. */
static void list_on_terminal(unsigned short columns)
{
	struct winsize size = { .ws_row = 24, .ws_col = columns };
	int master, slave, saved = dup(STDOUT_FILENO);
	char *words[] = { "list", NULL };
	size_t len = 0;
	ssize_t n;

	unsetenv("COLUMNS");
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
	fflush(stdout);
	dup2(slave, STDOUT_FILENO);
	ck_assert_int_eq(list_command(1, words), EXIT_OK);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(slave);
	while ((n = read(master, output + len, sizeof(output) - 1 - len)) > 0)
		len += (size_t)n;
	close(master);
	output[len] = '\0';
}

START_TEST(on_a_narrow_terminal_it_lists_what_the_id_does_not_say)
{
	make(NULL);
	list_on_terminal(80);
	says("TIME                 VALUE                ID\r\n"
	     "2026-11-20 03:15:02  182.4 % > 80.0 %     " INCIDENTMADE_ID "\r\n");
	list_on_terminal(160);
	says("2026-11-20 03:15:02+0000  postgres/812        cpu-high          182.4 % > 80.0 %");
}
END_TEST

#define SYSTEM "/var/lib/spikewatch/incidents"

/* In a mount namespace of this test: a directory of the system, and one of the user's own. */
static bool make_two_places(void)
{
	static char own[400], command[2400];

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/var/lib", "tmpfs", 0, NULL) < 0)
		return false;
	make(NULL);
	snprintf(own, sizeof(own), "%s/own", path);
	snprintf(command, sizeof(command),
		 "mkdir -p " SYSTEM " %s/spikewatch/incidents && cp -r %s/" INCIDENTMADE_ID " " SYSTEM
		 " && mv %s/" INCIDENTMADE_ID " %s/spikewatch/incidents/20261121T031502.123Z-own_1-cpu-high-1",
		 own, path, path, own);
	ck_assert_int_eq(system(command), 0);
	unsetenv("SPIKEWATCH_DIR");
	setenv("XDG_STATE_HOME", own, 1);
	return true;
}

START_TEST(all_places_are_looked_at)
{
	struct json_document *document;
	char where[500];

	if (!make_two_places())
		SKIP_TEST("no mount namespace may be made");
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says(SYSTEM ":\nTIME");
	says("  " INCIDENTMADE_ID "\n");
	snprintf(where, sizeof(where), "\n%s/own/spikewatch/incidents:\nTIME", path);
	says(where);
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	document = parsed();
	ck_assert_uint_eq(json_root(document)->count, 2);
	ck_assert_str_eq(json_member(json_root(document)->first, "directory")->text, SYSTEM);
	json_document_free(document);

	/* The newest is the user's own; the other one is found by its name. */
	ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
	snprintf(where, sizeof(where), "spikewatch show: from %s/own/spikewatch/incidents\n", path);
	says(where);
	ck_assert_int_eq(RUN(show, "postgres_812"), EXIT_OK);
	says("spikewatch show: from " SYSTEM "\n");
	ck_assert_int_eq(RUN(show, "nothing"), EXIT_TROUBLE);
	says("no incident has this name");
	/* A directory that is named is the only one. */
	ck_assert_int_eq(RUN(list, "-d", SYSTEM), EXIT_OK);
	says_not("own/");
}
END_TEST

/* As an ordinary user, whom the system's directory is closed to: that there may be more is never left unsaid. */
START_TEST(that_the_systems_incidents_are_hidden_is_said)
{
	static const char hidden[] = "not looked into " SYSTEM ": no permission; run it as root";
	char own[400];

	if (geteuid() != 0 || !make_two_places())
		SKIP_TEST("no mount namespace may be made, or this is no root");
	snprintf(own, sizeof(own), "chmod -R a+rX %s && chmod 0700 /var/lib/spikewatch", path);
	ck_assert_int_eq(system(own), 0);
	ck_assert_int_eq(setresuid(65534, 65534, 0), 0);
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says(hidden);
	says("own_1-cpu-high-1");
	says_not(INCIDENTMADE_ID);
	ck_assert_int_eq(RUN(show, "last"), EXIT_OK);
	says(hidden);
	ck_assert_int_eq(RUN(show, "own_1"), EXIT_OK);
	says_not("not looked into");
	ck_assert_int_eq(RUN(show, "postgres_812"), EXIT_TROUBLE);
	says(hidden);
	setenv("XDG_STATE_HOME", "/proc/nonexistent", 1);
	ck_assert_int_eq(RUN(list), EXIT_TROUBLE);
	says(hidden);
	ck_assert_int_eq(setresuid((uid_t)-1, 0, (uid_t)-1), 0);
	ck_assert_int_eq(setresuid(0, 0, 0), 0);
}
END_TEST

START_TEST(what_did_not_grow_is_counted_only)
{
	static const char rows[] = "pid\tmapping\tpermissions\trss_bytes\tswap_bytes\trss_growth_bytes\n"
				   "812\tgrown\trw-p\t8192\t0\t+4096\n"
				   "812\tstill\trw-p\t8192\t0\t+0\n"
				   "812\tshrunk\trw-p\t8192\t0\t-4096\n"
				   "812\tstill\tr--p\t8192\t0\t+0\n";

	make(NULL);
	AUTO_CLOSE int fd = open(path_of("smaps.tsv"), O_WRONLY | O_TRUNC | O_CLOEXEC);

	ck_assert_int_eq(write(fd, rows, strlen(rows)), (ssize_t)strlen(rows));
	ck_assert_int_eq(RUN(show, "--full", "last"), EXIT_TROUBLE);
	says("grown");
	says("shrunk");
	says_not("still");
	says("(2 did not grow)");
}
END_TEST

START_TEST(lists_value_against_threshold)
{
	struct json_document *document;

	make(NULL);
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says("2026-11-20 03:15:02+0000  postgres/812        cpu-high          182.4 % > 80.0 %");
	says_not("DAMAGED");
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	document = parsed();
	ck_assert_uint_eq(json_root(document)->count, 1);
	ck_assert_double_eq(json_member(json_root(document)->first, "threshold")->number, 80);
	json_document_free(document);
}
END_TEST

START_TEST(whole_incident_is_verified)
{
	make(NULL);
	ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_OK);
	says(": whole, ");
	ck_assert_int_eq(RUN(verify, (char *)path_of("samples.tsv")), EXIT_OK);
	ck_assert_int_eq(RUN(verify, "-q", (char *)path_of("")), EXIT_OK);
	ck_assert_str_eq(output, "");
}
END_TEST

/* As a start seals it whose daemon was killed: what is there is whole, what is missing is said, with where it is. */
START_TEST(one_whose_daemon_was_killed_is_incomplete_and_says_where_the_rest_is)
{
	static const char why[] =
		INCIDENT_KILLED " before they were written; they are in incident 2026-all-recovered-1";
	AUTO_FREE struct incident *incident = malloc(sizeof *incident);
	struct incident_capture lost = { .status = INCIDENT_CAPTURE_FAILED };
	struct json_document *document;
	const struct json_node *missing;
	bool found = false;

	make(NULL);
	AUTO_CLOSE int fd = open(path_of(""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(incident_json_read(fd, incident), 0);
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, "samples") == 0) {
			incident_capture_without_file(&incident->captures[i], INCIDENT_CAPTURE_FAILED, why);
			found = true;
		}
	incident_text(lost.name, sizeof lost.name, "samples");
	incident_text(lost.why, sizeof lost.why, why);
	if (!found)
		incident_add_capture(incident, &lost);
	incident_text(lost.name, sizeof lost.name, "stacks\x1b");
	incident_text(lost.why, sizeof lost.why, INCIDENT_KILLED);
	incident_add_capture(incident, &lost);
	ck_assert_int_eq(unlinkat(fd, INCIDENT_SAMPLES_FILE, 0), 0);
	ck_assert_int_eq(unlinkat(fd, MANIFEST_NAME, 0), 0);
	AUTO_CLOSE int json = openat(fd, INCIDENT_FILE, O_WRONLY | O_TRUNC | O_CLOEXEC);

	ck_assert_int_eq(incident_json_write(incident, sink_fd(&json)), 0);
	ck_assert_int_eq(manifest_write(fd), 0);

	ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_OK);
	says(": incomplete; what is there is whole\n");
	says("  missing: samples: the daemon was killed before they were written; they are in incident "
	     "2026-all-recovered-1, which is not there\n");
	says("  missing: stacks\\x1b: the daemon was killed\n");
	says_not(": whole");
	ck_assert_int_eq(RUN(verify, "-q", (char *)path_of("")), EXIT_OK);
	ck_assert_str_eq(output, "");
	ck_assert_int_eq(RUN(verify, "--json", (char *)path_of("")), EXIT_OK);
	document = parsed();
	ck_assert_str_eq(json_member(json_root(document)->first, "verdict")->text, "incomplete");
	missing = json_member(json_root(document)->first, "missing");
	ck_assert_uint_eq(missing->count, 2);
	ck_assert_str_eq(json_member(missing->first, "why")->text, why);
	ck_assert(!json_member(missing->first, "rest_is_there")->boolean);
	json_document_free(document);

	/* With the one that it names beside it, which retention may remove. */
	ck_assert_int_eq(mkdirat(fd, "../2026-all-recovered-1", 0700), 0);
	ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_OK);
	says("they are in incident 2026-all-recovered-1\n");
	says_not("not there");
	ck_assert_int_eq(RUN(verify, "--json", (char *)path_of("")), EXIT_OK);
	says("\"rest_is_there\": true");
	ck_assert_int_eq(RUN(show, (char *)path_of("")), EXIT_OK);
	says("2026-all-recovered-1)");
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says_not("LOST");
	ck_assert_int_eq(unlinkat(fd, "../2026-all-recovered-1", AT_REMOVEDIR), 0);

	/* All that show it say that it is gone. */
	ck_assert_int_eq(RUN(show, (char *)path_of("")), EXIT_OK);
	says("2026-all-recovered-1, which is not there)");
	ck_assert_int_eq(RUN(show, "--json", (char *)path_of("")), EXIT_OK);
	says("2026-all-recovered-1, which is not there\"");
	ck_assert_int_eq(RUN(list), EXIT_OK);
	says("  LOST: its samples, in an incident that is not there\n");
	ck_assert_int_eq(RUN(list, "--json"), EXIT_OK);
	says("\"samples_gone\": true");

	/* And damage is damage. */
	flip("threads.tsv");
	ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_TROUBLE);
	says(": damaged");
	says("they are in incident 2026-all-recovered-1");
}
END_TEST

START_TEST(one_flipped_byte_in_any_file_is_found)
{
	static const char *const files[] = { "samples.tsv", "threads.tsv", "smaps.tsv", INCIDENT_FILE, MANIFEST_NAME };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		make(NULL);
		flip(files[i]);
		ck_assert_int_eq(RUN(verify, (char *)path_of("")), EXIT_TROUBLE);
		says(": damaged");
		says(files[i]);
		incidentmade_remove(path_of(""));
	}
}
END_TEST

START_TEST(damaged_stream_names_line_and_loss)
{
	make(NULL);
	flip("samples.tsv");
	ck_assert_int_eq(RUN(verify, (char *)path_of("samples.tsv")), EXIT_TROUBLE);
	says("line ");
	says("1 row lost");
	ck_assert_int_eq(RUN(verify, "--json", (char *)path_of("samples.tsv")), EXIT_TROUBLE);
	json_document_free(parsed());
	says("\"verdict\": \"damaged\"");
}
END_TEST

/*
 * As the daemon has it while the window is not over: under another name, locked, without manifest
 * and samples. The lock.
 */
static int unseal(void)
{
	char from[600], to[700];
	int fd;

	make(NULL);
	ck_assert_int_eq(unlink(path_of("MANIFEST")), 0);
	ck_assert_int_eq(unlink(path_of("samples.tsv")), 0);
	snprintf(from, sizeof(from), "%s", path_of(""));
	snprintf(to, sizeof(to), "%s.tmp", from);
	ck_assert_int_eq(rename(from, to), 0);
	fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);

	return fd;
}

START_TEST(what_is_still_being_written_is_listed_and_shown_as_far_as_it_goes)
{
	AUTO_CLOSE int lock = unseal();
	struct json_document *document;

	ck_assert_int_eq(RUN(list, "-d", path), EXIT_OK);
	says("postgres/812");
	says(INCIDENTMADE_ID "  (being written)\n");
	says_not("DAMAGED");
	ck_assert_int_eq(RUN(list, "-d", path, "--target", "nobody"), EXIT_OK);
	says_not(INCIDENTMADE_ID);
	ck_assert_int_eq(RUN(list, "-d", path, "--json"), EXIT_OK);
	document = parsed();
	ck_assert(json_member(json_root(document)->first, "open")->boolean);
	ck_assert(!json_member(json_root(document)->first, "damaged")->boolean);
	json_document_free(document);

	ck_assert_int_eq(RUN(show, "--full", "-d", path, "cpu-high"), EXIT_OK);
	says("BEING WRITTEN since 2026-11-20 03:15:02");
	says("Busiest threads");
	says_not("DAMAGED");
	says_not("Recording");
	says_not("Lost");
	ck_assert_int_eq(RUN(show, "--full", "-d", path, "--json", "cpu-high"), EXIT_OK);
	document = parsed();
	ck_assert(json_member(json_root(document), "open")->boolean);
	json_document_free(document);
	ck_assert_int_eq(RUN(show, "--full", "-d", path, "last"),
			 EXIT_TROUBLE); /* it is not the last of those that there are */
}
END_TEST

START_TEST(what_is_still_being_written_is_neither_whole_nor_damaged)
{
	AUTO_CLOSE int lock = unseal();
	char whole[700];

	snprintf(whole, sizeof(whole), "%s.tmp", path_of(""));
	ck_assert_int_eq(RUN(verify, whole), EXIT_TROUBLE);
	says(": being written\n  it fired 2026-11-20 03:15:02");
	ck_assert_int_eq(RUN(export, "-d", path, "--format", "csv", "cpu-high"), EXIT_TROUBLE);
	says("still being written; spikewatch show shows what there is so far");

	/* Its writer is dead. */
	ck_assert_int_eq(flock(lock, LOCK_UN), 0);
	ck_assert_int_eq(RUN(list, "-d", path), EXIT_OK);
	says_not(INCIDENTMADE_ID);
	ck_assert_int_eq(RUN(show, "--full", whole), EXIT_TROUBLE);
	says("DAMAGED: MANIFEST is missing");
	ck_assert_int_eq(RUN(verify, whole), EXIT_TROUBLE);
	says(": damaged");
}
END_TEST

START_TEST(what_is_none_of_ours_is_told_apart_from_damage)
{
	make(NULL);
	ck_assert_int_eq(RUN(verify, "/dev/null"), EXIT_USAGE);
	ck_assert_int_eq(RUN(verify, "/proc/self/status"), EXIT_USAGE);
	ck_assert_int_eq(RUN(verify, "/proc/nonexistent"), EXIT_USAGE);
	ck_assert_int_eq(RUN(verify, path), EXIT_USAGE);
	/* The worst of several. */
	ck_assert_int_eq(RUN(verify, (char *)path_of(""), "/dev/null"), EXIT_USAGE);
	says(": whole");
	says(": not ours");
}
END_TEST

START_TEST(help_fits_one_screen)
{
	int (*const all[])(int, char **) = { list_command, show_command, verify_command };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		size_t lines = 0;

		ck_assert_int_eq(run(all[i], (char *[]){ "x", "--help", NULL }), EXIT_OK);
		says("Example:");
		says("Exit code:");
		for (const char *line = output; *line; line += strcspn(line, "\n") + 1, lines++)
			ck_assert_uint_le(strcspn(line, "\n"), 96);
		ck_assert_uint_le(lines, 24);
	}
}
END_TEST

Suite *show_suite(void);

Suite *show_suite(void)
{
	Suite *suite = suite_create("show");
	TCase *tcase = tcase_create("show");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, shows_what_the_golden_text_shows);
	tcase_add_loop_test(tcase, a_hole_in_which_the_recording_ends_has_no_average, 0, 2);
	tcase_add_test(tcase, one_screen_answers_first);
	tcase_add_test(tcase, the_first_screen_is_never_longer_than_the_screen);
	tcase_add_test(tcase, own_processes_are_one_line);
	tcase_add_test(tcase, all_of_it_goes_through_the_pager);
	tcase_add_test(tcase, members_of_a_group_are_named_with_what_they_ran);
	tcase_add_test(tcase, nothing_was_lost_does_not_stand_beside_what_was);
	tcase_add_test(tcase, whole_incident_says_that_nothing_was_lost);
	tcase_add_test(tcase, shows_by_path_too);
	tcase_add_test(tcase, json_holds_incident_summary_and_series);
	tcase_add_test(tcase, what_was_asked_for_by_hand_has_no_value_and_no_threshold);
	tcase_add_test(tcase, of_everything_targets_are_listed_by_their_peaks);
	tcase_add_test(tcase, functions_of_the_spike_are_shown_beside_those_before_it);
	tcase_add_loop_test(tcase, of_memory_it_shows_first_what_made_it_grow, 0, 2);
	tcase_add_test(tcase, without_a_table_of_functions_nothing_is_said_of_them);
	tcase_add_test(tcase, what_is_not_there_is_said);
	tcase_add_test(tcase, ambiguous_names_are_refused);
	tcase_add_test(tcase, incident_without_samples_still_says_what_fired);
	tcase_add_test(tcase, incident_that_cannot_be_read_is_shown_as_far_as_it_goes);
	tcase_add_test(tcase, damaged_samples_are_shown_as_damaged);
	tcase_add_test(tcase, samples_that_the_incident_says_it_lacks_are_no_damage);
	tcase_add_test(tcase, escapes_of_a_hostile_name_never_reach_the_terminal);
	tcase_add_test(tcase, hostile_evidence_never_reaches_the_terminal);
	tcase_add_test(tcase, empty_directory_says_so);
	tcase_add_test(tcase, all_places_are_looked_into_and_said);
	tcase_add_test(tcase, on_a_narrow_terminal_it_lists_what_the_id_does_not_say);
	tcase_add_test(tcase, all_places_are_looked_at);
	tcase_add_test(tcase, what_did_not_grow_is_counted_only);
	tcase_add_test(tcase, that_the_systems_incidents_are_hidden_is_said);
	tcase_add_test(tcase, lists_value_against_threshold);
	tcase_add_test(tcase, whole_incident_is_verified);
	tcase_add_test(tcase, one_whose_daemon_was_killed_is_incomplete_and_says_where_the_rest_is);
	tcase_add_test(tcase, one_flipped_byte_in_any_file_is_found);
	tcase_add_test(tcase, damaged_stream_names_line_and_loss);
	tcase_add_test(tcase, what_is_none_of_ours_is_told_apart_from_damage);
	tcase_add_test(tcase, what_is_still_being_written_is_listed_and_shown_as_far_as_it_goes);
	tcase_add_test(tcase, what_is_still_being_written_is_neither_whole_nor_damaged);
	tcase_add_test(tcase, help_fits_one_screen);
	suite_add_tcase(suite, tcase);
	return suite;
}
