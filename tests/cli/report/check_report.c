/*
 * check_report.c: the page of a report without a browser: its data are read back, its files are
 * taken out again, and nothing of what strangers have named gets out of its place. What a browser
 * makes of it is tried by make check-report.
 */
#include "cli/base/options.h"
#include "lib/incident/incident.h"
#include "incidentmade.h"
#include "lib/base/json.h"
#include "lib/incident/manifest.h"
#include "program.h"
#include "skip.h"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/view.h"
#include "lib/profile/stack_text.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/report/report.c"

#define HOSTILE "</script><b>\"'&\xe2\x80\xae\xff"
#define NO_LIMIT ((uint64_t)1 << 30)
#define DATA_BEGIN "<script type=\"application/json\" id=\"report-data\">\n"

Suite *report_suite(void);

static char path[300];
static int dirfd_of_test = -1;
static struct buffer page;
static struct absent_files left_out;

static void set_up(void)
{
	dirfd_of_test = incidentmade_directory(path, sizeof(path));
	setenv("TZ", "UTC", 1);
}

static void tear_down(void)
{
	close(dirfd_of_test);
	incidentmade_remove(path);
	buffer_release(&page);
}

static int open_made(void)
{
	int fd = openat(dirfd_of_test, INCIDENTMADE_ID, O_RDONLY | O_DIRECTORY);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Writes the page of an incident. */
static void write_page_of(int fd, uint64_t limit_bytes)
{
	struct view *view = calloc(1, sizeof(*view));
	struct sink sink = sink_buffer(&page);

	buffer_release(&page);
	ck_assert_int_eq(view_load(fd, view), 0);
	ck_assert_int_eq(write_report(view, fd, limit_bytes, &sink, &left_out), 0);
	incident_samples_release(&view->samples);
	free(view);
}

static void make_page(const struct incidentmade_options *options)
{
	static const struct incidentmade_options usual;
	AUTO_CLOSE int fd = -1;

	incidentmade_write(dirfd_of_test, options ? options : &usual);
	fd = open_made();
	write_page_of(fd, NO_LIMIT);
}

static const char *find(const char *text)
{
	return memmem(page.data, page.len, text, strlen(text));
}

/* The data, parsed; to be freed. They stand behind the files. */
static struct json_document *parse_data(void)
{
	static const struct json_limits limits = { .size_bytes = 16u << 20, .nodes = 1u << 20 };
	const char *begin = find(DATA_BEGIN), *end;
	struct json_document *document;
	struct json_error error = { .message = "" };

	ck_assert_ptr_nonnull(begin);
	begin += strlen(DATA_BEGIN);
	end = memmem(begin, (size_t)(page.data + page.len - begin), "<", 1);
	ck_assert_ptr_nonnull(end);
	ck_assert_int_eq(strncmp(end, "</script>\n", 10), 0);
	ck_assert_msg(json_parse(begin, (size_t)(end - begin), &limits, &document, &error) == 0, "%s", error.message);
	return document;
}

static const struct json_node *member(const struct json_node *node, const char *key)
{
	node = json_member(node, key);
	ck_assert_msg(node != NULL, "there is no %s", key);
	return node;
}

static const struct json_node *child(const struct json_node *node, size_t index)
{
	ck_assert_uint_gt(node->count, index);
	node = node->first;
	while (index-- > 0)
		node = node->next;
	return node;
}

static const struct json_node *plot_of(const struct json_document *document, size_t index, const char *id,
				       const char *unit)
{
	const struct json_node *plot = child(member(json_root(document), "plots"), index);

	ck_assert_str_eq(member(plot, "id")->text, id);
	ck_assert_str_eq(member(plot, "unit")->text, unit);
	return plot;
}

static double highest(const struct json_node *line)
{
	double most = -1;

	for (const struct json_node *value = member(line, "values")->first; value; value = value->next)
		if (value->type == JSON_NUMBER && value->number > most)
			most = value->number;
	return most;
}

static size_t unknown(const struct json_node *line)
{
	size_t count = 0;

	for (const struct json_node *value = member(line, "values")->first; value; value = value->next)
		count += value->type == JSON_NULL;
	return count;
}

static double level(const struct json_node *plot, const char *name)
{
	for (const struct json_node *at = member(plot, "levels")->first; at; at = at->next)
		if (strcmp(member(at, "name")->text, name) == 0)
			return member(at, "value")->number;
	ck_abort_msg("there is no level %s", name);
}

START_TEST(plots_have_what_happened_in_them)
{
	struct json_document *data;
	const struct json_node *cpu, *memory;
	double points;

	make_page(NULL);
	data = parse_data();
	points = member(member(json_root(data), "time"), "points")->number;
	cpu = plot_of(data, 0, "cpu", "percent");
	memory = plot_of(data, 1, "memory", "bytes");
	ck_assert_double_eq(member(json_root(data), "format")->number, REPORT_DATA_FORMAT);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_double_eq(points, (double)member(child(member(cpu, "lines"), i), "values")->count);
		ck_assert_double_eq(points, (double)member(child(member(memory, "lines"), i), "values")->count);
	}
	/*
	 * A whole core of half a core, over 100 ms too; what little was used since the last
	 * heartbeat falls into the burst's first sample. The limit is 100 percent, the threshold
	 * what the rule says.
	 */
	ck_assert_double_eq_tol(highest(child(member(cpu, "lines"), 0)), 228.4, 1);
	ck_assert_double_eq_tol(highest(child(member(cpu, "lines"), 1)), 200, 4);
	ck_assert_double_eq(level(cpu, "limit"), 100);
	ck_assert_double_eq(level(cpu, "threshold"), member(json_root(data), "threshold")->number);
	ck_assert_double_eq(highest(child(member(memory, "lines"), 0)), 40 << 20);
	ck_assert_double_eq(highest(child(member(memory, "lines"), 1)), 190 << 20);
	ck_assert_double_eq(level(memory, "limit"), 256 << 20);
	/* There are no stacks of memory, names of all functions, and it is one process. */
	ck_assert_str_eq(member(json_root(data), "memory_change")->text, "");
	ck_assert_str_eq(member(json_root(data), "advice")->text, "");
	ck_assert_uint_eq(member(json_root(data), "members")->count, 0);
	json_document_free(data);
}
END_TEST

/* As spikewatch show says it. */
START_TEST(what_was_touched_stands_beside_what_memory_grew_by_in_the_page)
{
	struct incidentmade_options options = {
		.memory_functions = FUNCTION_TABLE_HEADER_BYTES
		"\n" FUNCTION_TABLE_BYTES " 0, 104857600\n"
		"build_hash\t/usr/bin/"
		"postgres\t0\t0\t104857600\t104857600\t25600\tpostgres\t812\t104857600\tpostgres\t812\n",
	};
	struct json_document *data;

	make_page(&options);
	data = parse_data();
	ck_assert_ptr_nonnull(
		strstr(member(json_root(data), "memory_change")->text, "In all it touched 100 MiB; its memory grew"));
	json_document_free(data);
}
END_TEST

START_TEST(missing_samples_are_null)
{
	struct incidentmade_options options = { .gap = true };
	struct json_document *data;
	const struct json_node *line;

	make_page(NULL);
	data = parse_data();
	line = child(member(plot_of(data, 0, "cpu", "percent"), "lines"), 0);
	ck_assert_uint_lt(unknown(line), member(line, "values")->count / 50);
	json_document_free(data);
	incidentmade_remove(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	close(dirfd_of_test);
	dirfd_of_test = open(path, O_RDONLY | O_DIRECTORY);
	make_page(&options);
	data = parse_data();
	line = child(member(plot_of(data, 0, "cpu", "percent"), "lines"), 0);
	/* At least two seconds of fifteen. */
	ck_assert_uint_gt(unknown(line), member(line, "values")->count / 10);
	json_document_free(data);
}
END_TEST

START_TEST(a_hole_of_the_sampling_is_drawn_with_its_average)
{
	struct incidentmade_options options = { .hole = true };
	struct json_document *data;
	const struct json_node *line, *hole;

	make_page(&options);
	data = parse_data();
	hole = child(member(json_root(data), "holes"), 0);
	ck_assert_double_eq(member(hole, "from_ns")->number, -6e9);
	ck_assert_double_eq(member(hole, "to_ns")->number, -4.5e9);
	ck_assert_double_eq(member(hole, "cpu")->number, 0); /* at its end it was seen unchanged */
	line = child(member(plot_of(data, 0, "cpu", "percent"), "lines"), 0);
	ck_assert_uint_gt(unknown(line), member(line, "values")->count / 15);
	json_document_free(data);
}
END_TEST

START_TEST(a_hole_in_which_the_recording_ends_has_no_average)
{
	struct incidentmade_options options = { .cut = true };
	struct json_document *data;
	const struct json_node *hole;

	make_page(&options);
	data = parse_data();
	hole = child(member(json_root(data), "holes"), 0);
	ck_assert_double_eq(member(hole, "from_ns")->number, 2e9);
	ck_assert_double_eq(member(hole, "to_ns")->number, 5e9);
	ck_assert_int_eq(member(hole, "cpu")->type, JSON_NULL);
	json_document_free(data);
}
END_TEST

START_TEST(another_metric_of_a_rule_has_its_own_plot)
{
	struct incidentmade_options options = { .metric = "threads" };
	struct json_document *data;
	const struct json_node *line;

	make_page(&options);
	data = parse_data();
	line = child(member(plot_of(data, 0, "metric", "percent"), "lines"), 0);
	ck_assert_double_eq(highest(line), 3);
	ck_assert_uint_lt(unknown(line), member(line, "values")->count / 10);
	json_document_free(data);
}
END_TEST

START_TEST(of_everything_each_target_has_a_line)
{
	struct incidentmade_options options = { .everything = true, .manual = true };
	struct json_document *data;
	const struct json_node *lines;

	make_page(&options);
	data = parse_data();
	lines = member(plot_of(data, 0, "cpu", "cores"), "lines");
	ck_assert_uint_eq(lines->count, 2);
	ck_assert_double_eq_tol(highest(child(lines, 0)), 2 * highest(child(lines, 1)), 0.1);
	lines = member(plot_of(data, 1, "memory", "bytes"), "lines");
	/* The high-water mark of both. */
	ck_assert_double_eq(highest(child(lines, 0)), 190 << 20);
	ck_assert_double_eq(highest(child(lines, 1)), 190 << 20);
	ck_assert_uint_eq(member(json_root(data), "targets")->count, 2);
	json_document_free(data);
}
END_TEST

/* Takes all files out, and compares them with those of the incident. How many there were. */
static size_t compare_files(int fd)
{
	struct report_file files;
	struct report_file_entry entry;
	size_t count = 0;
	int rc;

	ck_assert_int_eq(report_file_start(&files, page.data, page.len), 0);
	ck_assert_str_eq(files.incident, INCIDENTMADE_ID);
	while ((rc = report_file_next(&files, &entry)) == 0) {
		struct buffer there = { 0 }, got = { 0 };

		ck_assert_int_eq(whole_file_read(fd, entry.name, &there), 0);
		ck_assert_int_eq(report_file_get(&entry, &got), 0);
		ck_assert_uint_eq(got.len, there.len);
		if (got.len > 0)
			ck_assert_mem_eq(got.data, there.data, got.len);
		buffer_release(&there);
		buffer_release(&got);
		count++;
	}
	ck_assert_int_eq(rc, REPORT_FILE_END);
	return count;
}

START_TEST(every_file_comes_out_bit_for_bit)
{
	AUTO_CLOSE int fd = -1;

	make_page(NULL);
	fd = open_made();
	ck_assert_uint_eq(compare_files(fd), 5); /* incident.json, samples.tsv, threads.tsv, smaps.tsv, MANIFEST */
	ck_assert_uint_eq(left_out.count, 0);
}
END_TEST

START_TEST(hostile_names_stay_in_their_place)
{
	struct incidentmade_options options = { .comm = HOSTILE };
	struct json_document *data;
	size_t scripts = 0;

	make_page(&options);
	data = parse_data();
	/* As far as JSON can say it. */
	ck_assert_str_eq(member(member(member(json_root(data), "incident"), "target"), "comm")->text,
			 "</script><b>\"'&\xef\xbf\xbd\xef\xbf\xbd");
	json_document_free(data);
	/* The words: every tag is escaped, nothing turns the text around. */
	ck_assert_ptr_null(find("<b>"));
	ck_assert_ptr_nonnull(find("&#60;/script&#62;&#60;b&#62;&#34;&#39;&#38;\xef\xbf\xbd"));
	for (const char *at = page.data; (at = memmem(at, (size_t)(page.data + page.len - at), "</script>", 9));
	     at += 9)
		scripts++;
	/* Begin, five files, end, data; and the program, if there is one. */
	ck_assert_uint_eq(scripts, report_page_built() ? 9 : 8);
}
END_TEST

START_TEST(files_that_are_too_large_or_strange_are_named)
{
	struct json_document *data;
	const struct json_node *absent;
	AUTO_CLOSE int fd = -1, file = -1;

	make_page(NULL);
	fd = open_made();
	file = openat(fd, "core.812", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(ftruncate(file, 1 << 20), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", fd, "link.txt"), 0);
	ck_assert_int_eq(mkfifoat(fd, "fifo.txt", 0600), 0);
	ck_assert_int_eq(mkdirat(fd, "dir", 0700), 0);
	write_page_of(fd, 1 << 19);
	ck_assert_uint_eq(compare_files(fd), 5);
	ck_assert_uint_eq(left_out.count, 4);
	data = parse_data();
	absent = member(json_root(data), "absent");
	ck_assert_uint_eq(absent->count, 4);
	for (size_t i = 0; i < 4; i++) {
		bool core = strcmp(member(child(absent, i), "name")->text, "core.812") == 0;

		ck_assert_double_eq(member(child(absent, i), "bytes")->number, core ? 1 << 20 : 0);
		ck_assert_str_eq(member(child(absent, i), "why")->text,
				 core ? "too large for a page" : "not a plain file");
	}
	json_document_free(data);
}
END_TEST

START_TEST(without_samples_and_incident_json_there_is_still_a_page)
{
	static const char *const names[] = { INCIDENT_SAMPLES_FILE, INCIDENT_FILE, MANIFEST_NAME };
	AUTO_CLOSE int fd = -1;

	make_page(NULL);
	fd = open_made();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct json_document *data;

		ck_assert_int_eq(unlinkat(fd, names[i], 0), 0);
		write_page_of(fd, NO_LIMIT);
		data = parse_data();
		ck_assert_int_eq(member(json_root(data), "damaged")->boolean, true);
		ck_assert_ptr_null(json_member(json_root(data), "plots"));
		json_document_free(data);
	}
	ck_assert_ptr_nonnull(find("cannot be read"));
}
END_TEST

START_TEST(without_memory_it_says_so_or_leaves_a_hole)
{
	AUTO_CLOSE int fd = -1;
	struct view *view = calloc(1, sizeof(*view));
	bool injected = true;
	unsigned refused = 0;

	make_page(NULL);
	fd = open_made();
	ck_assert_int_eq(view_load(fd, view), 0);
	for (long n = 1; injected && n < 5000; n++) {
		struct buffer out = { 0 };
		struct sink sink = sink_buffer(&out);
		int rc;

		torture_arm(n);
		rc = write_report(view, fd, NO_LIMIT, &sink, &left_out);
		injected = torture_disarm();
		ck_assert_msg(rc == 0 || (injected && rc == -ENOMEM), "%ld: %d", n, rc);
		refused += rc < 0;
		buffer_release(&out);
	}
	ck_assert(!injected);
	ck_assert_uint_gt(refused, 5);
	incident_samples_release(&view->samples);
	free(view);
}
END_TEST

START_TEST(a_disk_that_is_full_is_reported)
{
	AUTO_CLOSE int fd = -1;
	struct view *view = calloc(1, sizeof(*view));

	make_page(NULL);
	fd = open_made();
	ck_assert_int_eq(view_load(fd, view), 0);
	for (long bytes = 0; bytes < (long)page.len; bytes += 997) {
		long left = bytes;
		struct sink sink = torture_sink(&left);

		ck_assert_int_eq(write_report(view, fd, NO_LIMIT, &sink, &left_out), -EIO);
	}
	incident_samples_release(&view->samples);
	free(view);
}
END_TEST

/* Runs the command; its exit code. What it says goes nowhere. */
static int run(char **words)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), saved[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) };
	int argc = 0, code;

	while (words[argc])
		argc++;
	fflush(stdout);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	code = report_command(argc, words);
	fflush(stdout);
	dup2(saved[0], STDOUT_FILENO);
	dup2(saved[1], STDERR_FILENO);
	close(saved[0]);
	close(saved[1]);
	close(null);
	return code;
}

/*
 * A page is larger than what stdio keeps back: why writing has failed must be seen from the pipe.
 */
START_TEST(a_closed_pipe_is_not_reported)
{
	char program[512], incident[500], directory[64];
	struct program run;
	int ends[2];

	if (!report_page_built())
		SKIP_TEST("built without npm");
	if (!program_find("spikewatch", program))
		SKIP_TEST("spikewatch is not below $SPIKEWATCH_BUILD");
	make_page(NULL);
	snprintf(incident, sizeof(incident), "%s/%s", path, INCIDENTMADE_ID);
	scene_directory(directory);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	close(ends[0]);
	run = program_start((const char *const[]){ program, "report", "-o", "-", incident, NULL }, directory, ends[1],
			    0);
	close(ends[1]);
	ck_assert_int_eq(program_wait(&run), EXIT_TROUBLE);
	AUTO_FREE char *said = scene_read(run.err);

	ck_assert_str_eq(said, "");
	scene_remove(directory);
}
END_TEST

/* By the end of a page stdio knows only that one of many writes has failed. */
START_TEST(why_it_could_not_be_written_is_said_wherever_it_goes)
{
	static const char *const outputs[][2] = {
		{ "/dev/full", "spikewatch report: /dev/full: No space left on device\n" },
		{ "-", "spikewatch: cannot write the output: No space left on device\n" },
	};
	char program[512], incident[500], directory[64];
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	if (!report_page_built())
		SKIP_TEST("built without npm");
	if (!program_find("spikewatch", program))
		SKIP_TEST("spikewatch is not below $SPIKEWATCH_BUILD");
	make_page(NULL);
	snprintf(incident, sizeof(incident), "%s/%s", path, INCIDENTMADE_ID);
	scene_directory(directory);
	for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
		const char *const words[] = { program, "report", "-o", outputs[i][0], incident, NULL };
		struct program run = program_start(words, directory, full, 0);

		ck_assert_int_eq(program_wait(&run), EXIT_TROUBLE);
		AUTO_FREE char *said = scene_read(run.err);

		ck_assert_str_eq(said, outputs[i][1]);
	}
	close(full);
	scene_remove(directory);
}
END_TEST

START_TEST(the_command_writes_a_page_or_says_that_it_cannot)
{
	char incident[500], out[500];
	struct stat st;

	make_page(NULL);
	snprintf(incident, sizeof(incident), "%s/%s", path, INCIDENTMADE_ID);
	snprintf(out, sizeof(out), "%s/page.html", path);
	ck_assert_int_eq(run((char *[]){ "report", NULL }), EXIT_USAGE);
	if (!report_page_built()) {
		ck_assert_int_eq(run((char *[]){ "report", incident, "-o", out, NULL }), EXIT_TROUBLE);
		ck_assert_int_lt(stat(out, &st), 0);
		return;
	}
	ck_assert_int_eq(run((char *[]){ "report", incident, "-o", out, NULL }), EXIT_OK);
	ck_assert_int_eq(stat(out, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, page.len);
	ck_assert_int_eq(run((char *[]){ "report", incident, "-o", "/nowhere/page.html", NULL }), EXIT_TROUBLE);
	ck_assert_int_eq(run((char *[]){ "report", "/nowhere/", NULL }), EXIT_TROUBLE);
	ck_assert_int_eq(run((char *[]){ "report", "/tmp/", NULL }), EXIT_USAGE);
	/* What is no file is written to, and stays what it is. */
	ck_assert_int_eq(run((char *[]){ "report", incident, "-o", "/dev/null", NULL }), EXIT_OK);
	ck_assert_int_eq(stat("/dev/null", &st), 0);
	ck_assert(S_ISCHR(st.st_mode));
}
END_TEST

START_TEST(a_page_of_damaged_samples_is_written_and_is_trouble)
{
	char incident[500], out[500];
	AUTO_CLOSE int fd = -1, samples = -1;
	struct stat st;
	char byte;

	make_page(NULL);
	if (!report_page_built())
		SKIP_TEST("this build has no page");
	snprintf(incident, sizeof(incident), "%s/%s", path, INCIDENTMADE_ID);
	snprintf(out, sizeof(out), "%s/page.html", path);
	fd = open_made();
	samples = openat(fd, INCIDENT_SAMPLES_FILE, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(fstat(samples, &st), 0);
	ck_assert_int_eq(pread(samples, &byte, 1, st.st_size / 2), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(samples, &byte, 1, st.st_size / 2), 1);
	ck_assert_int_eq(run((char *[]){ "report", incident, "-o", out, NULL }), EXIT_TROUBLE);
	ck_assert_int_eq(stat(out, &st), 0);
	write_page_of(fd, NO_LIMIT);

	struct json_document *data = parse_data();

	ck_assert(member(json_root(data), "damaged")->boolean);
	ck_assert_str_eq(member(json_root(data), "why")->text, "samples.tsv is damaged");
	json_document_free(data);
}
END_TEST

/* As the start after a kill seals it, when retention has removed the one that is named. */
START_TEST(samples_whose_incident_is_gone_are_said_to_be_gone)
{
	static const struct incidentmade_options usual;
	AUTO_FREE struct incident *incident = malloc(sizeof *incident);
	struct incident_capture samples = { .name = "samples" };

	incidentmade_write(dirfd_of_test, &usual);
	AUTO_CLOSE int fd = open_made();

	ck_assert_int_eq(incident_json_read(fd, incident), 0);
	incident_capture_without_file(&samples, INCIDENT_CAPTURE_FAILED,
				      INCIDENT_KILLED " before they were written; they are in incident 2026-all-r-1");
	incident_add_capture(incident, &samples);
	ck_assert_int_eq(unlinkat(fd, INCIDENT_SAMPLES_FILE, 0), 0);
	ck_assert_int_eq(unlinkat(fd, MANIFEST_NAME, 0), 0);
	AUTO_CLOSE int json = openat(fd, INCIDENT_FILE, O_WRONLY | O_TRUNC | O_CLOEXEC);

	ck_assert_int_eq(incident_json_write(incident, sink_fd(&json)), 0);
	ck_assert_int_eq(manifest_write(fd), 0);
	write_page_of(fd, NO_LIMIT);
	ck_assert_ptr_nonnull(find("they are in incident 2026-all-r-1, which is not there"));
	ck_assert_int_eq(mkdirat(dirfd_of_test, "2026-all-r-1", 0700), 0);
	write_page_of(fd, NO_LIMIT);
	ck_assert_ptr_null(find("which is not there"));
}
END_TEST

/* ---- text in HTML ---- */

static void shown_as(const char *text, size_t len, const char *expected)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(write_html(&sink, text, len), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, expected);
	buffer_release(&out);
}

#define SHOWN(text, expected) shown_as(text, sizeof(text) - 1, expected)

START_TEST(plain_text_stays)
{
	SHOWN("", "");
	SHOWN("postgres/812 [\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5] a\\b",
	      "postgres/812 [\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\xa5] a\\b");
}
END_TEST

START_TEST(no_markup_gets_through)
{
	SHOWN("<script>alert('1')</script>", "&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;");
	SHOWN("a\" onload=\"x&lt;", "a&#34; onload=&#34;x&#38;lt;");
}
END_TEST

START_TEST(invisible_characters_are_written_out)
{
	SHOWN("a\tb\n\x7f\0c", "a\\x09b\\x0a\\x7f\\x00c");
	SHOWN("exe\xe2\x80\xaegpj.", "exe\\u{202e}gpj.");
	SHOWN("\xc2\x9b\xe2\x81\xa6\xef\xbb\xbf\xe2\x80\x8b", "\\u{9b}\\u{2066}\\u{feff}\\u{200b}");
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_written_out)
{
	SHOWN("\xff\xc3", "\\xff\\xc3");
	SHOWN("\xc0\xbc", "\\xc0\\xbc");          /* "<", too long */
	SHOWN("\xe0\x80\xbc", "\\xe0\\x80\\xbc"); /* and longer */
	SHOWN("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
	SHOWN("\xf4\x90\x80\x80x", "\\xf4\\x90\\x80\\x80x");
	SHOWN("\xe2\x82<", "\\xe2\\x82&#60;");
}
END_TEST

START_TEST(no_tag_begins_in_json)
{
	struct buffer out = { 0 };
	struct sink inner = sink_buffer(&out), sink = report_json_sink(&inner);

	ck_assert_int_eq(sink_write(&sink, "[\"</script><!--\",", 17), 0);
	ck_assert_int_eq(sink_write(&sink, "\"<\"", 3), 0);
	ck_assert_int_eq(sink_write(&sink, "]", 1), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, "[\"\\u003c/script>\\u003c!--\",\"\\u003c\"]");
	buffer_release(&out);
}
END_TEST

START_TEST(a_sink_that_fails_is_reported)
{
	for (long bytes = 0; bytes < 12; bytes++) {
		long left = bytes;
		struct sink inner = torture_sink(&left), sink = report_json_sink(&inner);

		ck_assert_int_eq(write_html(&inner, "abc<d\x01", 6), -EIO);
		left = bytes;
		ck_assert_int_eq(sink_write(&sink, "aaa<bbbbbb<", 11), -EIO);
	}
}
END_TEST

/* ---- embedded files alone: pages that are cut, changed or hostile ---- */

#define ID "20261120T031502.123Z-postgres_812-cpu-high-1"

static const unsigned char odd[] = { 0, 255, '<', '/', 's', 'c', 'r', 'i', 'p', 't', '>', '\n', 0, 0 };

/* A page with three files: text, nothing, and bytes. */
static void make_files(struct buffer *text)
{
	struct sink sink = sink_buffer(text);

	ck_assert_int_eq(buffer_append(text, "<!DOCTYPE html>\n<p>x", 20), 0);
	ck_assert_int_eq(report_file_begin(&sink, ID), 0);
	ck_assert_int_eq(report_file_put(&sink, "a.txt", "hello", 5), 0);
	ck_assert_int_eq(report_file_put(&sink, "empty", "", 0), 0);
	ck_assert_int_eq(report_file_put(&sink, "odd.bin", odd, sizeof(odd)), 0);
	ck_assert_int_eq(report_file_end(&sink, 3), 0);
	ck_assert_int_eq(buffer_append(text, "<script>1</script>\n", 19), 0);
}

static void next_is(struct report_file *files, const char *name, const void *data, size_t len)
{
	struct buffer got = { 0 };
	struct report_file_entry entry;

	ck_assert_int_eq(report_file_next(files, &entry), 0);
	ck_assert_str_eq(entry.name, name);
	ck_assert_uint_eq(entry.size_bytes, len);
	ck_assert_int_eq(report_file_get(&entry, &got), 0);
	ck_assert_uint_eq(got.len, len);
	if (len > 0)
		ck_assert_mem_eq(got.data, data, len);
	buffer_release(&got);
}

static void all_of_it(struct report_file *files)
{
	struct report_file_entry entry;

	ck_assert_str_eq(files->incident, ID);
	next_is(files, "a.txt", "hello", 5);
	next_is(files, "empty", "", 0);
	next_is(files, "odd.bin", odd, sizeof(odd));
	ck_assert_int_eq(report_file_next(files, &entry), REPORT_FILE_END);
}

START_TEST(files_come_back_bit_for_bit)
{
	struct buffer text = { 0 };
	struct report_file files;

	make_files(&text);
	ck_assert_int_eq(report_file_start(&files, text.data, text.len), 0);
	all_of_it(&files);
	buffer_release(&text);
}
END_TEST

START_TEST(lines_may_end_with_carriage_returns)
{
	struct buffer text = { 0 }, mailed = { 0 };
	struct report_file files;

	make_files(&text);
	for (size_t i = 0; i < text.len; i++) {
		if (text.data[i] == '\n')
			ck_assert_int_eq(buffer_append(&mailed, "\r", 1), 0);
		ck_assert_int_eq(buffer_append(&mailed, &text.data[i], 1), 0);
	}
	ck_assert_int_eq(report_file_start(&files, mailed.data, mailed.len), 0);
	all_of_it(&files);
	buffer_release(&text);
	buffer_release(&mailed);
}
END_TEST

START_TEST(every_length_of_bytes_comes_back)
{
	unsigned char data[400];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 167 + 13);
	for (size_t len = 0; len <= sizeof(data); len++) {
		struct buffer text = { 0 }, back = { 0 };
		struct sink sink = sink_buffer(&text);

		ck_assert_int_eq(base64_write(&sink, data, len), 0);
		ck_assert_int_eq(base64_read(text.data ? text.data : "", text.len, &back), 0);
		ck_assert_uint_eq(back.len, len);
		if (len > 0)
			ck_assert_mem_eq(back.data, data, len);
		for (size_t i = 0, line = 0; i < text.len; i++, line++) {
			if (text.data[i] != '\n')
				continue;
			ck_assert_uint_le(line, BASE64_LINE);
			line = (size_t)-1;
		}
		buffer_release(&text);
		buffer_release(&back);
	}
}
END_TEST

static int read_text(const char *text, char *ret)
{
	struct buffer back = { 0 };
	int rc = base64_read(text, strlen(text), &back);

	snprintf(ret, 16, "%.*s", (int)back.len, back.data ? back.data : "");
	buffer_release(&back);
	return rc;
}

START_TEST(letters_are_those_of_the_standard)
{
	static const char *const good[][2] = { { "", "" },
					       { "Zg==", "f" },
					       { "Zm8=", "fo" },
					       { "Zm9v", "foo" },
					       { "Zm9vYg==", "foob" },
					       { "Zm9vYmE=", "fooba" },
					       { "Zm9vYmFy", "foobar" },
					       { " Zm\r\n9v\t", "foo" } };
	static const char *const bad[] = { "Z",    "Zg",       "Zg=",   "Zh==", "Zm9=", "Z===",
					   "====", "Zg==Zg==", "Zm9v=", "Zm-v", "Zm9<" };
	char text[16];

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		ck_assert_msg(read_text(good[i][0], text) == 0, "%s", good[i][0]);
		ck_assert_str_eq(text, good[i][1]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(read_text(bad[i], text) == -EBADMSG, "%s", bad[i]);
}
END_TEST

/* What comes out of a page: files whole, and how it ended. */
static int walk(const char *text, size_t len, unsigned *ret_whole, unsigned *ret_damaged)
{
	struct report_file files;
	struct report_file_entry entry;
	int rc = report_file_start(&files, text, len);

	*ret_whole = *ret_damaged = 0;
	while (rc == 0 || rc == -EBADMSG) {
		struct buffer got = { 0 };

		rc = report_file_next(&files, &entry);
		if (rc == 0 && report_file_get(&entry, &got) == 0)
			++*ret_whole;
		else if (rc == 0 || rc == -EBADMSG)
			++*ret_damaged;
		buffer_release(&got);
	}
	return rc;
}

START_TEST(a_page_that_was_cut_says_so_at_every_length)
{
	struct buffer text = { 0 };
	unsigned whole, damaged;
	size_t enough;

	make_files(&text);
	enough = text.len - 19 - 1;
	for (size_t len = 0; len < enough; len++) {
		int rc = walk(text.data, len, &whole, &damaged);

		ck_assert_msg(rc == -ENODATA || rc == -ENOENT, "%zu: %d", len, rc);
		ck_assert_uint_le(damaged, 1);
	}
	ck_assert_int_eq(walk(text.data, enough, &whole, &damaged), REPORT_FILE_END);
	ck_assert_uint_eq(whole, 3);
	buffer_release(&text);
}
END_TEST

START_TEST(a_changed_byte_never_gives_a_wrong_file)
{
	struct buffer text = { 0 };
	unsigned whole, damaged;

	make_files(&text);
	for (size_t i = 0; i < text.len; i++) {
		struct report_file files;
		struct report_file_entry entry;
		int rc;

		text.data[i] ^= 1;
		rc = report_file_start(&files, text.data, text.len);
		while (rc == 0 || rc == -EBADMSG) {
			struct buffer got = { 0 };

			rc = report_file_next(&files, &entry);
			if (rc == 0 && report_file_get(&entry, &got) == 0)
				ck_assert(got.len == 0 || (got.len == 5 && memcmp(got.data, "hello", 5) == 0) ||
					  (got.len == sizeof(odd) && memcmp(got.data, odd, sizeof(odd)) == 0));
			buffer_release(&got);
		}
		walk(text.data, text.len, &whole, &damaged);
		ck_assert_uint_le(whole, 3);
		text.data[i] ^= 1;
	}
	buffer_release(&text);
}
END_TEST

static int walk_text(const char *text, unsigned *ret_whole, unsigned *ret_damaged)
{
	return walk(text, strlen(text), ret_whole, ret_damaged);
}

#define BEGIN \
	"\n<script type=\"application/octet-stream;base64\" data-spikewatch=\"begin\" data-format=\"1\" " \
	"data-incident=\"x\"></script>\n"
#define NAMED(name) \
	"<script type=\"application/octet-stream;base64\" data-spikewatch=\"file\" data-name=\"" name \
	"\" data-bytes=\"1\" data-crc32=\"76d32be0\">\nZg==\n</script>\n"
#define END(n) \
	"<script type=\"application/octet-stream;base64\" data-spikewatch=\"end\" data-files=\"" #n "\"></script>\n"

START_TEST(names_that_lead_elsewhere_are_damage)
{
	static const char *const names[] = {
		BEGIN NAMED("../x") END(1), BEGIN NAMED("/etc/x") END(1), BEGIN NAMED(".x") END(1),
		BEGIN NAMED("") END(1),     BEGIN NAMED("a b") END(1),
	};
	unsigned whole, damaged;

	ck_assert_int_eq(walk_text(BEGIN NAMED("f") END(1), &whole, &damaged), REPORT_FILE_END);
	ck_assert_uint_eq(whole, 1);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		ck_assert_int_eq(walk_text(names[i], &whole, &damaged), REPORT_FILE_END);
		ck_assert_uint_eq(whole, 0);
		ck_assert_uint_eq(damaged, 1);
	}
}
END_TEST

START_TEST(files_without_marks_and_later_formats_are_refused)
{
	unsigned whole, damaged;

	ck_assert_int_eq(walk_text("", &whole, &damaged), -ENOENT);
	ck_assert_int_eq(walk_text("<html>\n<script>x</script>\n", &whole, &damaged), -ENOENT);
	ck_assert_int_eq(walk_text(NAMED("f"), &whole, &damaged), -ENOENT);
	ck_assert_int_eq(walk_text("\n<script type=\"application/octet-stream;base64\" data-spikewatch=\"begin\" "
				   "data-format=\"2\" data-incident=\"\"></script>\n",
				   &whole, &damaged),
			 -EPROTONOSUPPORT);
	/* A file was taken out. */
	ck_assert_int_eq(walk_text(BEGIN NAMED("f") END(2), &whole, &damaged), -ENODATA);
	ck_assert_uint_eq(whole, 1);
}
END_TEST

START_TEST(names_that_are_not_allowed_are_not_written)
{
	struct buffer text = { 0 };
	struct sink sink = sink_buffer(&text);
	struct report_file files;

	ck_assert_int_eq(report_file_put(&sink, "a\"b", "", 0), -EINVAL);
	ck_assert_uint_eq(text.len, 0);
	ck_assert_int_eq(report_file_begin(&sink, "../\"><script>alert(1)</script>"), 0);
	ck_assert_int_eq(report_file_start(&files, text.data, text.len), 0);
	ck_assert_str_eq(files.incident, "");
	buffer_release(&text);
}
END_TEST

START_TEST(a_file_is_not_taken_out_without_memory)
{
	struct buffer text = { 0 };
	struct report_file files;
	struct report_file_entry entry;
	bool injected = true;

	make_files(&text);
	ck_assert_int_eq(report_file_start(&files, text.data, text.len), 0);
	ck_assert_int_eq(report_file_next(&files, &entry), 0);
	for (long n = 1; injected && n < 100; n++) {
		struct buffer got = { 0 };
		int rc;

		torture_arm(n);
		rc = report_file_get(&entry, &got);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		buffer_release(&got);
	}
	ck_assert(!injected);
	buffer_release(&text);
}
END_TEST

START_TEST(a_full_disk_takes_no_files)
{
	for (long bytes = 0; bytes < 300; bytes += 7) {
		long left = bytes;
		struct sink sink = torture_sink(&left);
		int rc = report_file_begin(&sink, ID);

		if (rc == 0)
			rc = report_file_put(&sink, "a.txt", "hello", 5);
		if (rc == 0)
			rc = report_file_end(&sink, 1);
		ck_assert_int_eq(rc, -EIO);
	}
}
END_TEST

Suite *report_suite(void)
{
	Suite *suite = suite_create("report");
	TCase *data = tcase_create("data"), *files = tcase_create("files"), *trouble = tcase_create("trouble"),
	      *text = tcase_create("text"), *embedded = tcase_create("embedded"), *base64 = tcase_create("base64"),
	      *marks = tcase_create("marks");
	TCase *all[] = { data, files, trouble };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		tcase_add_checked_fixture(all[i], set_up, tear_down);
		suite_add_tcase(suite, all[i]);
	}
	tcase_add_test(data, plots_have_what_happened_in_them);
	tcase_add_test(data, what_was_touched_stands_beside_what_memory_grew_by_in_the_page);
	tcase_add_test(data, a_hole_of_the_sampling_is_drawn_with_its_average);
	tcase_add_test(data, a_hole_in_which_the_recording_ends_has_no_average);
	tcase_add_test(data, missing_samples_are_null);
	tcase_add_test(data, another_metric_of_a_rule_has_its_own_plot);
	tcase_add_test(data, of_everything_each_target_has_a_line);
	tcase_add_test(data, hostile_names_stay_in_their_place);
	tcase_add_test(files, every_file_comes_out_bit_for_bit);
	tcase_add_test(files, files_that_are_too_large_or_strange_are_named);
	tcase_add_test(files, a_page_of_damaged_samples_is_written_and_is_trouble);
	tcase_add_test(files, samples_whose_incident_is_gone_are_said_to_be_gone);
	tcase_add_test(files, the_command_writes_a_page_or_says_that_it_cannot);
	tcase_add_test(trouble, without_samples_and_incident_json_there_is_still_a_page);
	tcase_add_test(trouble, without_memory_it_says_so_or_leaves_a_hole);
	tcase_add_test(trouble, a_closed_pipe_is_not_reported);
	tcase_add_test(trouble, why_it_could_not_be_written_is_said_wherever_it_goes);
	tcase_add_test(trouble, a_disk_that_is_full_is_reported);

	tcase_add_test(text, plain_text_stays);
	tcase_add_test(text, no_markup_gets_through);
	tcase_add_test(text, invisible_characters_are_written_out);
	tcase_add_test(text, bytes_that_are_no_utf8_are_written_out);
	tcase_add_test(text, no_tag_begins_in_json);
	tcase_add_test(text, a_sink_that_fails_is_reported);
	suite_add_tcase(suite, text);

	tcase_add_test(embedded, files_come_back_bit_for_bit);
	tcase_add_test(embedded, lines_may_end_with_carriage_returns);
	tcase_add_test(embedded, names_that_are_not_allowed_are_not_written);
	tcase_add_test(base64, every_length_of_bytes_comes_back);
	tcase_add_test(base64, letters_are_those_of_the_standard);
	tcase_add_test(marks, a_page_that_was_cut_says_so_at_every_length);
	tcase_add_test(marks, a_changed_byte_never_gives_a_wrong_file);
	tcase_add_test(marks, names_that_lead_elsewhere_are_damage);
	tcase_add_test(marks, files_without_marks_and_later_formats_are_refused);
	tcase_add_test(marks, a_file_is_not_taken_out_without_memory);
	tcase_add_test(marks, a_full_disk_takes_no_files);
	suite_add_tcase(suite, embedded);
	suite_add_tcase(suite, base64);
	suite_add_tcase(suite, marks);
	return suite;
}
