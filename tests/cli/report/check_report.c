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
#include "cli/report/report_file.h"
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
	/* There are no stacks of memory. */
	ck_assert_str_eq(member(json_root(data), "memory_change")->text, "");
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

START_TEST(another_metric_of_a_rule_has_its_own_plot)
{
	struct incidentmade_options options = { .metric = "threads" };
	struct json_document *data;
	const struct json_node *line;

	make_page(&options);
	data = parse_data();
	line = child(member(plot_of(data, 2, "metric", "percent"), "lines"), 0);
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

Suite *report_suite(void)
{
	Suite *suite = suite_create("report");
	TCase *data = tcase_create("data"), *files = tcase_create("files"), *trouble = tcase_create("trouble"),
	      *text = tcase_create("text");
	TCase *all[] = { data, files, trouble };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		tcase_add_checked_fixture(all[i], set_up, tear_down);
		tcase_set_timeout(all[i], 60);
		suite_add_tcase(suite, all[i]);
	}
	tcase_add_test(data, plots_have_what_happened_in_them);
	tcase_add_test(data, what_was_touched_stands_beside_what_memory_grew_by_in_the_page);
	tcase_add_test(data, missing_samples_are_null);
	tcase_add_test(data, another_metric_of_a_rule_has_its_own_plot);
	tcase_add_test(data, of_everything_each_target_has_a_line);
	tcase_add_test(data, hostile_names_stay_in_their_place);
	tcase_add_test(files, every_file_comes_out_bit_for_bit);
	tcase_add_test(files, files_that_are_too_large_or_strange_are_named);
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
	return suite;
}
