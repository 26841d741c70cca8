/*
 * check_messages.c: the kinds of entries, the catalog that explains them and the table in
 * docs/journal.md against each other, each way round: what is new is missed and what is gone is
 * found.
 */
#include "daemon/engine/base/log.h"
#include "scene.h"
#include "skip.h"
#include "lib/base/base.h"

#include <ctype.h>

Suite *messages_suite(void);

#define CATALOG "systemd/spikewatch.catalog"
#define TABLE "docs/journal.md"
#define ID_LEN 32
#define WIDTH_MAX 79 /* journalctl indents it by 3 at most */

static const char *const names[MESSAGE_KINDS] = { [MESSAGE_NONE] = "",
#define X(name, id) [MESSAGE_##name] = #name,
						  MESSAGES(X)
#undef X
};

/* One entry of the catalog. */
struct explanation {
	char id[ID_LEN + 1];
	bool subject, defined_by, support, documentation;
	size_t lines;    /* of the text below the head, empty ones not counted */
	size_t commands; /* lines of it that are to be typed */
};

static struct explanation explanations[MESSAGE_KINDS + 8];
static size_t explanation_count;

/* The fields that log.c writes. */
static const char *const fields[] = {
	"SPIKEWATCH_STATE",
	"SPIKEWATCH_RULE",
	"SPIKEWATCH_TARGET",
	"SPIKEWATCH_INCIDENT",
	"SPIKEWATCH_METRIC",
	"SPIKEWATCH_VALUE",
	"SPIKEWATCH_THREAD",
	"SPIKEWATCH_COUNT",
	"SPIKEWATCH_LASTED_USEC",
	"CAPTURE_RATE",
	"ERRNO",
};

static char *read_all(const char *path)
{
	size_t cap = 1 << 17;
	char *text = calloc(1, cap);
	FILE *file = fopen(path, "re");

	ck_assert_msg(file != NULL, "%s", path);
	ck_assert_uint_gt(fread(text, 1, cap - 1, file), 0);
	fclose(file);

	return text;
}

static bool begins(const char *line, const char *with)
{
	return strncmp(line, with, strlen(with)) == 0;
}

/* Every @FIELD@ of a line is one that entries have. */
static void expect_fields(const char *line)
{
	for (const char *at = strchr(line, '@'); at; at = strchr(at, '@')) {
		const char *end = strchr(++at, '@');
		bool known = false;

		ck_assert_msg(end != NULL, "%s", line);
		for (size_t i = 0; i < ARRAY_LEN(fields); i++)
			known |= strlen(fields[i]) == (size_t)(end - at) && begins(at, fields[i]);
		ck_assert_msg(known, "which field is this? %s", line);
		at = end + 1;
	}
}

static void take_line(const char *line)
{
	struct explanation *last = explanation_count ? &explanations[explanation_count - 1] : NULL;

	ck_assert_msg(strlen(line) <= WIDTH_MAX, "too wide: %s", line);
	if (line[0] == '#')
		return;
	if (begins(line, "-- ")) {
		ck_assert_uint_lt(explanation_count, ARRAY_LEN(explanations));
		snprintf(explanations[explanation_count++].id, ID_LEN + 1, "%s", line + 3);
		ck_assert_uint_eq(strlen(line), 3 + ID_LEN);
		return;
	}
	if (!*line)
		return;

	ck_assert_ptr_nonnull(last);
	expect_fields(line);
	if (begins(line, "Subject: "))
		last->subject = strlen(line) > 20;
	else if (begins(line, "Defined-By: "))
		last->defined_by = strcmp(line, "Defined-By: spikewatch") == 0;
	else if (begins(line, "Support: "))
		last->support = strcmp(line, "Support: man:spikewatchd(8)") == 0;
	else if (begins(line, "Documentation: man:"))
		last->documentation = true;
	else
		last->lines++;
	last->commands += begins(line, "    ");
}

static void setup(void)
{
	AUTO_FREE char *text = read_all(CATALOG);

	memset(explanations, 0, sizeof(explanations));
	explanation_count = 0;
	for (char *line = text; *line;) {
		size_t len = strcspn(line, "\n");
		bool last = line[len] == '\0';

		line[len] = '\0';
		take_line(line);
		line += len + !last;
	}
}

static size_t explained(const char *id)
{
	size_t times = 0;

	for (size_t i = 0; i < explanation_count; i++)
		times += strcmp(explanations[i].id, id) == 0;

	return times;
}

START_TEST(ids_are_of_one_form_and_differ)
{
	ck_assert_str_eq(message_id(MESSAGE_NONE), "");
	for (int i = MESSAGE_NONE + 1; i < MESSAGE_KINDS; i++) {
		const char *id = message_id((enum message)i);

		ck_assert_uint_eq(strlen(id), ID_LEN);
		ck_assert_uint_eq(strspn(id, "0123456789abcdef"), ID_LEN);
		for (int j = MESSAGE_NONE; j < i; j++)
			ck_assert_str_ne(id, message_id((enum message)j));
	}
}
END_TEST

START_TEST(every_kind_is_explained_once)
{
	for (int i = MESSAGE_NONE + 1; i < MESSAGE_KINDS; i++)
		ck_assert_msg(explained(message_id((enum message)i)) == 1, "%s is explained %zu times", names[i],
			      explained(message_id((enum message)i)));
}
END_TEST

START_TEST(nothing_else_is_explained)
{
	ck_assert_uint_eq(explanation_count, MESSAGE_KINDS - 1);
}
END_TEST

START_TEST(an_explanation_has_all_its_parts)
{
	for (size_t i = 0; i < explanation_count; i++) {
		const struct explanation *one = &explanations[i];

		ck_assert_msg(one->subject && one->defined_by && one->support && one->documentation, "head of %s",
			      one->id);
		ck_assert_msg(one->lines >= 3, "%s explains nothing", one->id);
		ck_assert_msg(one->commands >= 1, "%s names no command", one->id);
	}
}
END_TEST

START_TEST(every_kind_is_in_the_table_with_its_id)
{
	AUTO_FREE char *text = read_all(TABLE);
	size_t rows = 0;

	for (int i = MESSAGE_NONE + 1; i < MESSAGE_KINDS; i++) {
		char row[96];

		snprintf(row, sizeof(row), "\n| %s | `%s` |", names[i], message_id((enum message)i));
		ck_assert_msg(strstr(text, row) != NULL, "no row%s", row);
	}
	for (const char *at = text; (at = strstr(at, "\n| ")); at++)
		rows += isupper((unsigned char)at[3]) && isupper((unsigned char)at[4]);
	ck_assert_uint_eq(rows, MESSAGE_KINDS - 1);
}
END_TEST

START_TEST(every_field_is_in_the_table)
{
	AUTO_FREE char *text = read_all(TABLE), *code = read_all("daemon/engine/base/log.c");

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		char quoted[48];

		snprintf(quoted, sizeof(quoted), "`%s`", fields[i]);
		ck_assert_msg(strstr(text, quoted) != NULL, "%s is not in " TABLE, quoted);
		snprintf(quoted, sizeof(quoted), "\"%s\"", fields[i]);
		ck_assert_msg(strstr(code, quoted) != NULL, "%s is not written", quoted);
	}
	for (const char *at = code; (at = strstr(at, "\"SPIKEWATCH_")); at++) {
		bool known = false;

		for (size_t i = 0; i < ARRAY_LEN(fields); i++)
			known |= begins(at + 1, fields[i]) && at[1 + strlen(fields[i])] == '"';
		ck_assert_msg(known, "%.40s is not in " TABLE, at);
	}
}
END_TEST

/* Has systemd's own tool compile it, where there is one. */
START_TEST(systemd_takes_the_catalog)
{
	char directory[64], command[512], count[32] = "";

	if (system("journalctl --version >/dev/null 2>&1") != 0)
		SKIP_TEST("there is no journalctl");
	scene_directory(directory);
	snprintf(command, sizeof(command),
		 "set -e; cd %s; mkdir -p usr/lib/systemd/catalog var/lib/systemd/catalog; cp \"$OLDPWD\"/%s "
		 "usr/lib/systemd/catalog/; journalctl --root \"$PWD\" --update-catalog; "
		 "journalctl --root \"$PWD\" --list-catalog | wc -l",
		 directory, CATALOG);

	FILE *tool = popen(command, "re");

	ck_assert_ptr_nonnull(tool);
	ck_assert_ptr_nonnull(fgets(count, sizeof(count), tool));
	ck_assert_int_eq(pclose(tool), 0);
	scene_remove(directory);
	ck_assert_int_eq(strtol(count, NULL, 10), MESSAGE_KINDS - 1);
}
END_TEST

Suite *messages_suite(void)
{
	Suite *suite = suite_create("messages");
	TCase *tcase = tcase_create("catalog");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, ids_are_of_one_form_and_differ);
	tcase_add_test(tcase, every_kind_is_explained_once);
	tcase_add_test(tcase, nothing_else_is_explained);
	tcase_add_test(tcase, an_explanation_has_all_its_parts);
	tcase_add_test(tcase, every_kind_is_in_the_table_with_its_id);
	tcase_add_test(tcase, every_field_is_in_the_table);
	tcase_add_test(tcase, systemd_takes_the_catalog);
	suite_add_tcase(suite, tcase);

	return suite;
}
