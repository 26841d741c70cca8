/*
 * check_docs.c: the manual pages against the programs: options, columns; each way round, so
 * that what is new is missed and what is gone is found. The reference of the configuration is from
 * make_config_reference. Examples are run through the parsers. Documents about the source are held
 * against the tree.
 *
 * The pages keep to one form for it: an item is ".It Cm NAME", an option ".It Fl ...".
 */
#include "program.h"
#include "skip.h"

#include "cli/base/options.h"
#include "lib/config/config.h"
#include "lib/config/config_keys.h"
#include "stream_feed.h"
#include "lib/stream/stream.h"
#include "lib/base/base.h"
#include "lib/base/units.h"
#include "lib/model/sample.h"

#include <ctype.h>
#include <glob.h>

Suite *docs_suite(void);

#define PAGE_DAEMON "docs/spikewatchd.8"
#define PAGE_COMMAND "docs/spikewatch.1"
#define PAGE_CONFIG "docs/spikewatch.json.5"
#define PAGE_STREAM "docs/spikewatch-stream.5"

/* A set of words; of which page or table is said when two differ. */
struct words {
	char word[64][40];
	size_t count;
};

static bool words_have(const struct words *words, const char *word)
{
	for (size_t i = 0; i < words->count; i++)
		if (strcmp(words->word[i], word) == 0)
			return true;

	return false;
}

static void words_add(struct words *words, const char *word, size_t len)
{
	char text[40];

	ck_assert_uint_lt(len, sizeof(text));
	snprintf(text, sizeof(text), "%.*s", (int)len, word);
	if (words_have(words, text))
		return;
	ck_assert_uint_lt(words->count, ARRAY_LEN(words->word));
	memcpy(words->word[words->count++], text, sizeof(text));
}

static void add(struct words *words, const char *word)
{
	words_add(words, word, strlen(word));
}

static void expect_same(const struct words *real, const struct words *page, const char *where)
{
	ck_assert_uint_gt(real->count, 0);
	for (size_t i = 0; i < real->count; i++)
		ck_assert_msg(words_have(page, real->word[i]), "%s does not have %s", where, real->word[i]);
	for (size_t i = 0; i < page->count; i++)
		ck_assert_msg(words_have(real, page->word[i]), "%s has %s, which does not exist", where, page->word[i]);
}

/* ---- pages ---- */

static char *read_page(const char *path)
{
	char *text = scene_read(path);

	ck_assert_msg(text, "%s is missing", path);

	return text;
}

/* NULL: that was the last one. */
static const char *next_section(const char *at)
{
	while ((at = strstr(at, "\n.S")) != NULL && at[3] != 's' && at[3] != 'h')
		at++;

	return at;
}

/* What stands between ".Ss TITLE" or ".Sh TITLE" and the next of either; the caller's to free. */
static char *read_section(const char *path, const char *title)
{
	AUTO_FREE char *text = read_page(path);
	char line[80];

	for (int kind = 0; kind < 2; kind++) {
		snprintf(line, sizeof(line), "\n.S%c %s\n", "sh"[kind], title);
		const char *begin = strstr(text, line);

		if (!begin)
			continue;
		begin += strlen(line) - 1;
		const char *end = next_section(begin);
		char *section = strndup(begin, end ? (size_t)(end - begin) + 1 : strlen(begin));

		ck_assert_ptr_nonnull(section);
		return section;
	}
	ck_abort_msg("%s has no section %s", path, title);
}

/* The first line of text that begins so, behind that beginning; NULL: none. */
static const char *find_line(const char *text, const char *beginning)
{
	size_t len = strlen(beginning);

	for (const char *at = text; (at = strstr(at, beginning)) != NULL; at += len)
		if (at == text || at[-1] == '\n')
			return at + len;

	return NULL;
}

/* What the items of a text are called: ".It Cm NAME , NAME Pq ...". */
static void read_items(const char *text, struct words *ret)
{
	for (const char *at = text; (at = find_line(at, ".It Cm ")) != NULL;) {
		for (size_t len; (len = strcspn(at, " \n")) > 0; at += len + (at[len] == ' ')) {
			if (strncmp(at, "Pq ", 3) == 0)
				break;
			if (*at != ',')
				words_add(ret, at, len);
		}
	}
}

/* The options of a text: "Fl c" and "Fl -config" on the lines of items. */
static void read_flags(const char *text, struct words *ret)
{
	char flag[40];

	for (const char *at = text; (at = find_line(at, ".It Fl ")) != NULL;) {
		const char *end = at + strcspn(at, "\n");

		for (; at && at < end; at = strstr(at, "Fl ") ? strstr(at, "Fl ") + 3 : NULL) {
			snprintf(flag, sizeof(flag), "-%.*s", (int)strcspn(at, " \n"), at);
			add(ret, flag);
		}
		at = end;
	}
}

/* ---- programs ---- */

/*
 * The options in what a program says of itself: lines such as "  -c, --config FILE  ...". -h and
 * --help go without saying.
 */
static void ask_flags(const char *program, const char *command, struct words *ret)
{
	char line[700];

	snprintf(line, sizeof(line), "'%s' %s --help", program, command);
	FILE *help = popen(line, "r");
	ck_assert_ptr_nonnull(help);
	while (fgets(line, sizeof(line), help)) {
		const char *at = line + strspn(line, " ");

		if (at == line)
			continue;
		for (size_t len; *at == '-'; at += len + strspn(at + len, ", "))
			words_add(ret, at, len = strcspn(at, ", \n"));
	}
	ck_assert_int_eq(pclose(help), 0);
	add(ret, "-h");
	add(ret, "--help");
}

START_TEST(page_of_the_daemon_has_its_options)
{
	struct words real = { .count = 0 }, page = { .count = 0 };
	char program[512];

	if (!program_find("spikewatchd", program))
		SKIP_TEST("spikewatchd is not built");

	AUTO_FREE char *section = read_section(PAGE_DAEMON, "DESCRIPTION");
	ask_flags(program, "", &real);
	read_flags(section, &page);
	expect_same(&real, &page, PAGE_DAEMON);
}
END_TEST

START_TEST(page_of_the_command_has_the_options_of_each_subcommand)
{
	char program[512], names[PROGRAM_COMMANDS_MAX][16];

	if (!program_find("spikewatch", program))
		SKIP_TEST("spikewatch is not built");

	for (size_t i = 0, count = program_commands(program, names); i < count; i++) {
		AUTO_FREE char *section = read_section(PAGE_COMMAND, names[i]);
		struct words real = { .count = 0 }, page = { .count = 0 };

		ask_flags(program, names[i], &real);
		read_flags(section, &page);
		add(&page, "-h"); /* said once for all */
		add(&page, "--help");
		expect_same(&real, &page, names[i]);
	}
}
END_TEST

START_TEST(page_of_the_command_has_no_other_subcommands)
{
	AUTO_FREE char *text = read_page(PAGE_COMMAND);
	struct words real = { .count = 0 }, page = { .count = 0 };
	char program[512], names[PROGRAM_COMMANDS_MAX][16];

	if (!program_find("spikewatch", program))
		SKIP_TEST("spikewatch is not built");

	for (size_t i = 0, count = program_commands(program, names); i < count; i++)
		add(&real, names[i]);
	for (const char *at = text; (at = find_line(at, ".Ss ")) != NULL;)
		words_add(&page, at, strcspn(at, "\n"));
	expect_same(&real, &page, PAGE_COMMAND);
}
END_TEST

/* ---- keys of the configuration ---- */

START_TEST(references_of_the_configuration_are_what_its_tables_say)
{
	char program[512], line[700];

	if (!program_find("make_config_reference", program))
		SKIP_TEST("make_config_reference is not built");
	snprintf(line, sizeof(line), "'%s' --check docs/configuration.md %s", program, PAGE_CONFIG);
	ck_assert_int_eq(system(line), 0);
}
END_TEST

START_TEST(every_selector_is_a_key_of_a_target)
{
	struct words real = { .count = 0 };

	for (size_t i = 0; i < config_target_field_count; i++)
		add(&real, config_target_fields[i].key);
	for (enum config_selector i = CONFIG_PID; i <= CONFIG_CONTAINERS; i++)
		ck_assert(words_have(&real, config_selector_name(i)));
}
END_TEST

START_TEST(page_of_the_configuration_has_all_captures)
{
	AUTO_FREE char *section = read_section(PAGE_CONFIG, "incidents");
	const char *list = strstr(section, "samples, ");
	struct words real = { .count = 0 }, page = { .count = 0 };

	ck_assert_ptr_nonnull(list);
	for (unsigned bit = 1; bit < CONFIG_CAPTURE_ALL; bit <<= 1)
		add(&real, config_capture_name((enum config_capture)bit));
	for (; *list != '\n'; list += strcspn(list, ",\n"), list += strspn(list, ", "))
		words_add(&page, list, strcspn(list, ",\n"));
	expect_same(&real, &page, "captures");
}
END_TEST

START_TEST(page_of_the_stream_has_all_columns)
{
	AUTO_FREE char *section = read_section(PAGE_STREAM, "Columns");
	struct words real = { .count = 0 }, page = { .count = 0 };
	char item[120];

	for (enum sample_field i = 0; i < SAMPLE_FIELDS; i++) {
		const struct sample_field_info *info = sample_field_info(i);

		add(&real, info->name);
		snprintf(item, sizeof(item), ".It Cm %s Pq %s; %s\n", info->name, info->unit,
			 sample_kind_name(info->kind));
		ck_assert_msg(find_line(section, item), "%s is not in %s, a %s", info->name, info->unit,
			      sample_kind_name(info->kind));
	}
	read_items(section, &page);
	expect_same(&real, &page, "columns");
}
END_TEST

/* ---- examples ---- */

/* A configuration as it is, or as a drop-in of one that has a target. */
static void check_example(const char *where, char *text)
{
	static const char base[] = "{ \"targets\": [ { \"name\": \"base\", \"pid\": 1 } ] }";
	struct config_source sources[] = { { where, text, strlen(text) }, { "base", base, sizeof(base) - 1 } };
	struct config *config = NULL;
	struct config_error error;
	int r = config_parse(sources, strstr(text, "\"targets\": [\n") ? 1 : 2, &config, &error);

	ck_assert_msg(r == 0, "%s:%u:%u: %s: %s", where, error.line, error.column, error.key, error.message);
	config_free(config);
}

/*
 * Each block that begins with a brace on a line of its own, from that brace to the line that ends
 * the block. Returns how many.
 */
static int check_examples(const char *path, const char *begin, const char *end)
{
	AUTO_FREE char *text = read_page(path);
	char *at = text, *close;
	int count = 0;

	for (; (at = strstr(at, begin)) != NULL; at = close + 1) {
		at += strlen(begin) - strlen("{\n");
		close = strstr(at, end);
		ck_assert_ptr_nonnull(close);
		*close = '\0';
		check_example(path, at);
		count++;
	}

	return count;
}

START_TEST(examples_of_configurations_are_good)
{
	ck_assert_int_eq(check_examples(PAGE_CONFIG, ".Bd -literal -offset indent\n{\n", "\n.Ed"), 3);
	ck_assert_int_ge(check_examples("README.md", "```jsonc\n{\n", "\n```"), 1);
}
END_TEST

START_TEST(example_of_a_stream_is_whole)
{
	AUTO_FREE char *section = read_section(PAGE_STREAM, "EXAMPLES");
	char *begin = strstr(section, "SPIKEWATCH "), *end = begin ? strstr(begin, ".Ed") : NULL;
	struct stream_reader *stream_reader = NULL;
	struct stream_reader_report report;

	ck_assert_ptr_nonnull(end);
	for (char *at = begin; at < end; at++)
		if (*at == ' ' && strncmp(at, " (ns)", 5) != 0)
			*at = '\t';

	ck_assert_int_eq(stream_reader_new(&(struct stream_reader_events){ .ctx = NULL }, &stream_reader), 0);
	ck_assert_int_eq(stream_feed(stream_reader, begin, (size_t)(end - begin)), 0);
	ck_assert_int_ge(stream_reader_finish(stream_reader, &report), 0);
	stream_reader_free(stream_reader);
	ck_assert_uint_eq(report.rows, 2);
	ck_assert(report.complete && report.checksum_ok);
}
END_TEST

#define PAGE_STREAM_FORMAT "docs/stream-format.md"
#define GOLDEN_STREAM "tests/data/stream/spikewatch.txt"

/* What the script of the document says of a text. */
static void run_stream_script(const char *text, size_t len, char *ret, size_t cap)
{
	AUTO_FREE char *page = read_page(PAGE_STREAM_FORMAT);
	char *begin = strstr(page, "```python\n"), *end = begin ? strstr(begin, "\n```\n") : NULL;
	char script[] = "/tmp/spikewatch-script-XXXXXX", stream[] = "/tmp/spikewatch-stream-XXXXXX", command[128];
	int fd = mkstemp(script);

	ck_assert_ptr_nonnull(end);
	begin += strlen("```python\n");
	ck_assert(fd >= 0 && write(fd, begin, (size_t)(end - begin)) == end - begin && close(fd) == 0);
	fd = mkstemp(stream);
	ck_assert(fd >= 0 && write(fd, text, len) == (ssize_t)len && close(fd) == 0);
	snprintf(command, sizeof command, "python3 %s %s", script, stream);

	FILE *pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	ret[fread(ret, 1, cap - 1, pipe)] = '\0';
	ck_assert_int_eq(pclose(pipe), 0);
	unlink(script);
	unlink(stream);
}

START_TEST(script_of_the_stream_format_checks_streams)
{
	static const char whole[] = "9 rows, 0 lost, 0 damaged lines, 0 CRCs differ, 0 rows without one, "
				    "overall checksum: agrees\n";
	AUTO_FREE char *text = scene_read(GOLDEN_STREAM);
	char said[256];

	if (system("python3 -c 'import zlib' 2>/dev/null") != 0)
		SKIP_TEST("there is no python3");
	ck_assert_ptr_nonnull(text);
	run_stream_script(text, strlen(text), said, sizeof said);
	ck_assert_str_eq(said, whole);

	/* The same Adler-32. */
	memcpy(strstr(text, "32768"), "41678", 5);
	run_stream_script(text, strlen(text), said, sizeof said);
	ck_assert_ptr_nonnull(strstr(said, "0 damaged lines, 1 CRCs differ"));
	memcpy(strstr(text, "41678"), "32768", 5);

	/* Every header and every row comes twice, with something foreign in between. */
	char *doubled = calloc(3, strlen(text)), *out = doubled;
	for (const char *p = text; *p; p += strcspn(p, "\n") + 1) {
		bool remark = strstr(p, "STATS") == p + 11 || strstr(p, "GAP") == p + 11;

		for (int i = 0; i < (remark || *p == '\n' ? 1 : 2); i++)
			out = mempcpy(mempcpy(out, p, strcspn(p, "\n")), "\n\r\n", 3);
	}
	run_stream_script(doubled, strlen(doubled), said, sizeof said);
	free(doubled);
	ck_assert_str_eq(said, whole);
}
END_TEST

/* ---- documents about the source against the tree ---- */

#define ARCHITECTURE "docs/ARCHITECTURE.md"

/* A document, and the file that it named last. */
struct tree_page {
	const char *path;
	char file[256];
	char *source; /* of file; NULL: none was named */
};

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* Whether a line that is not indented has "NAME(". */
static bool defines(const char *source, const char *name, size_t len)
{
	for (const char *at = source; (at = strstr(at, name)) != NULL; at += len) {
		const char *line = at;

		if (at[len] != '(' || (at > source && (isalnum((unsigned char)at[-1]) || at[-1] == '_')))
			continue;
		while (line > source && line[-1] != '\n')
			line--;
		if (isalpha((unsigned char)*line))
			return true;
	}

	return false;
}

/* A span of code: a file, which then is the one whose functions are named, or a function of it. */
static void check_span(struct tree_page *page, const char *span)
{
	size_t len = strlen(span);

	if (strchr(span, '/') && !strpbrk(span, " <*") && (ends_with(span, ".c") || ends_with(span, ".h"))) {
		free(page->source);
		page->source = scene_read(span);
		ck_assert_msg(page->source, "%s names %s, which does not exist", page->path, span);
		snprintf(page->file, sizeof page->file, "%s", span);
	} else if (len > 2 && ends_with(span, "()")) {
		char name[128];

		snprintf(name, sizeof name, "%.*s", (int)(len - 2), span);
		ck_assert_msg(page->source && defines(page->source, name, len - 2), "%s names %s as a function of %s",
			      page->path, span, page->source ? page->file : "no file");
	}
}

static const char *const tree_pages[] = { ARCHITECTURE, "CONTRIBUTING.md", "SECURITY.md", "docs/performance.md" };

START_TEST(files_and_functions_that_documents_name_exist)
{
	struct tree_page page = { .path = tree_pages[_i] };
	AUTO_FREE char *text = read_page(page.path);
	char span[256];

	for (const char *at = text; (at = strchr(at, '`')) != NULL;) {
		bool block = strncmp(at, "```", 3) == 0;
		const char *end = block ? strstr(at + 3, "```") : strchr(at + 1, '`');

		ck_assert_msg(end && (block || end - at < (long)sizeof span), "a span of code that does not end: %.40s",
			      at);
		if (!block) {
			snprintf(span, sizeof span, "%.*s", (int)(end - at - 1), at + 1);
			check_span(&page, span);
		}
		at = end + (block ? 3 : 1);
	}
	free(page.source);
}
END_TEST

static const char *const suite_files[] = { "tests/*/check_*.c", "tests/*/*/check_*.c", "tests/*/*/*/check_*.c",
					   "tests/*/*/*/*/check_*.c" };

/* Whether a file of the tests is a suite of this name, or has a test of this name. */
static bool is_suite_or_test(const glob_t *files, const char *name)
{
	char suite[256], test[256];
	bool found = false;

	snprintf(suite, sizeof suite, "/check_%s.c", name);
	snprintf(test, sizeof test, "START_TEST(%s)", name);
	for (size_t i = 0; !found && i < files->gl_pathc; i++) {
		char *source = ends_with(files->gl_pathv[i], suite) ? NULL : scene_read(files->gl_pathv[i]);

		found = !source || strstr(source, test);
		free(source);
	}
	return found;
}

/* The last column of the table of who can do what. */
START_TEST(each_promise_of_the_threat_model_is_held_by_tests_that_exist)
{
	AUTO_FREE char *text = read_page("SECURITY.md");
	char *table = strstr(text, "| held by |"), *line, *rest;
	size_t promises = 0;
	glob_t files;

	for (size_t i = 0; i < ARRAY_LEN(suite_files); i++)
		glob(suite_files[i], i > 0 ? GLOB_APPEND : 0, NULL, &files);
	ck_assert_ptr_nonnull(table);
	for (rest = table; (line = strsep(&rest, "\n")) && *line && promises < 100; promises++) {
		char *row_end = strrchr(line, '|'), *name;
		size_t names = 0;

		if (promises < 2) /* the head, and the line below it */
			continue;
		ck_assert(row_end && row_end > line);
		*row_end = '\0';
		for (char *cell = strrchr(line, '|'); (name = strchr(cell, '`')) != NULL; names++) {
			size_t len = strcspn(name + 1, "`");

			cell = name + 2 + len;
			name[1 + len] = '\0';
			ck_assert_msg(strchr(name + 1, '/') || is_suite_or_test(&files, name + 1),
				      "SECURITY.md: no suite or test %s", name + 1);
		}
		ck_assert_msg(names > 0, "SECURITY.md: nothing holds this: %s", line);
	}
	ck_assert_uint_gt(promises, 8);
	globfree(&files);
}
END_TEST

/* What reads it and how often it was run, and inputs that each run of the tests reads. */
START_TEST(each_fuzz_entry_is_in_the_table_and_has_inputs)
{
	AUTO_FREE char *text = read_page("CONTRIBUTING.md");
	glob_t entries;

	ck_assert_int_eq(glob("tests/fuzz/fuzz_*.c", 0, NULL, &entries), 0);
	for (size_t i = 0; i < entries.gl_pathc; i++) {
		char name[64], row[80], inputs[128];

		ck_assert_int_eq(sscanf(entries.gl_pathv[i], "tests/fuzz/fuzz_%63[a-z_]", name), 1);
		snprintf(row, sizeof row, "\n| `%s` | ", name);
		snprintf(inputs, sizeof inputs, "tests/fuzz/corpus/%s", name);
		ck_assert_msg(strcmp(name, "main") == 0 || (strstr(text, row) && access(inputs, R_OK) == 0),
			      "CONTRIBUTING.md, or tests/fuzz/corpus: nothing of the entry %s", name);
	}
	ck_assert_uint_gt(entries.gl_pathc, 30);
	globfree(&entries);
}
END_TEST

START_TEST(architecture_names_every_room)
{
	AUTO_FREE char *text = read_page(ARCHITECTURE);
	AUTO_FREE char *rooms = read_page("tests/rooms");
	char *save, span[128];

	for (char *room = strtok_r(rooms, "\n", &save); room; room = strtok_r(NULL, "\n", &save)) {
		if (*room == '#')
			continue;
		snprintf(span, sizeof span, "`%s`", room);
		ck_assert_msg(strstr(text, span), "%s does not have the room %s", ARCHITECTURE, room);
	}
}
END_TEST

/* ---- what a container may do ---- */

static bool is_capability(char c)
{
	return (c >= 'A' && c <= 'Z') || c == '_';
}

/* The words in capitals of a text up to its end character: "SYS_PTRACE,BPF", "CAP_SYS_PTRACE CAP_BPF". */
static void read_capabilities(const char *text, char end, struct words *ret)
{
	for (size_t len; *text && *text != end; text += len > 0 ? len : 1) {
		for (len = 0; is_capability(text[len]); len++)
			;
		if (len >= 3)
			words_add(ret, strncmp(text, "CAP_", 4) == 0 ? text + 4 : text,
				  strncmp(text, "CAP_", 4) == 0 ? len - 4 : len);
	}
}

/* Of containers: those of the unit; those that stand for its limits; and nothing else. */
START_TEST(containers_have_the_privileges_of_the_unit)
{
	AUTO_FREE char *unit = read_page("systemd/spikewatchd.service");
	AUTO_FREE char *manifest = read_page("conf/kubernetes/daemonset.yaml");
	AUTO_FREE char *page = read_page("docs/containers.md");
	struct words wanted = { 0 }, kubernetes = { 0 }, podman = { 0 };
	const char *line = find_line(unit, "CapabilityBoundingSet=");

	ck_assert_ptr_nonnull(line);
	read_capabilities(line, '\n', &wanted);
	if (find_line(unit, "LimitRTPRIO="))
		add(&wanted, "SYS_NICE");
	if (find_line(unit, "LimitMEMLOCK="))
		add(&wanted, "IPC_LOCK");
	for (line = strstr(manifest, "add:\n"); (line = strstr(line, "- ")) && is_capability(line[2]); line++)
		read_capabilities(line, '\n', &kubernetes);
	expect_same(&wanted, &kubernetes, "conf/kubernetes/daemonset.yaml");
	line = strstr(page, "--cap-add=");
	ck_assert_ptr_nonnull(line);
	read_capabilities(line, ' ', &podman);
	expect_same(&wanted, &podman, "docs/containers.md");
	for (size_t i = 0; i < wanted.count; i++) {
		char row[64];

		snprintf(row, sizeof(row), "`%s` |", wanted.word[i]);
		ck_assert_msg(strstr(page, row), "docs/containers.md does not say what %s is for", wanted.word[i]);
	}
}
END_TEST

Suite *docs_suite(void)
{
	Suite *suite = suite_create("docs");
	TCase *pages = tcase_create("pages");
	TCase *tree = tcase_create("tree");
	TCase *examples = tcase_create("examples");

	tcase_add_test(pages, page_of_the_daemon_has_its_options);
	tcase_add_test(pages, page_of_the_command_has_the_options_of_each_subcommand);
	tcase_add_test(pages, page_of_the_command_has_no_other_subcommands);
	tcase_add_test(pages, references_of_the_configuration_are_what_its_tables_say);
	tcase_add_test(pages, every_selector_is_a_key_of_a_target);
	tcase_add_test(pages, page_of_the_configuration_has_all_captures);
	tcase_add_test(pages, page_of_the_stream_has_all_columns);
	suite_add_tcase(suite, pages);
	tcase_add_loop_test(tree, files_and_functions_that_documents_name_exist, 0, (int)ARRAY_LEN(tree_pages));
	tcase_add_test(tree, each_promise_of_the_threat_model_is_held_by_tests_that_exist);
	tcase_add_test(tree, each_fuzz_entry_is_in_the_table_and_has_inputs);
	tcase_add_test(tree, architecture_names_every_room);
	tcase_add_test(tree, containers_have_the_privileges_of_the_unit);
	suite_add_tcase(suite, tree);
	tcase_add_test(examples, examples_of_configurations_are_good);
	tcase_add_test(examples, example_of_a_stream_is_whole);
	tcase_add_test(examples, script_of_the_stream_format_checks_streams);
	suite_add_tcase(suite, examples);

	return suite;
}
