/*
 * make_config_reference.c: the reference of the configuration, from the parser's tables and
 * docs/config_help.h. Between the lines with "generated keys of SECTION" and "end of generated
 * keys" of each file named, the keys of that section are written, or the metrics of rules:
 * into *.md as a table of Markdown, else as a list of mdoc(7). With --check nothing is written; the
 * exit code says whether all is as it would be.
 */
#include "docs/config_help.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "lib/config/config_keys.h"
#include "lib/rules/metric.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN "generated keys of "
#define END "end of generated keys"
#define COLUMNS 100 /* of the text of a manual page */

static int failed;

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "make_config_reference: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	failed = 1;
}

/* ---- the tables ---- */

/* The rows of a section; *ret_name: what they call it. */
static const struct config_field *rows_of(const char *section, size_t *ret_count, const char **ret_name)
{
	*ret_name = "";
	if (strcmp(section, "targets") == 0) {
		*ret_count = config_target_field_count;
		return config_target_fields;
	}
	if (strcmp(section, "run") == 0) {
		*ret_count = config_run_field_count;
		return config_run_fields;
	}
	if (strcmp(section, "notify") == 0) {
		*ret_count = config_notify_field_count;
		return config_notify_fields;
	}
	if (strcmp(section, "rules") == 0) {
		*ret_count = config_rule_field_count;
		return config_rule_fields;
	}
	*ret_name = section;
	*ret_count = config_section_field_count;

	return config_section_fields;
}

static const struct config_help *find_help(const char *section, const char *key)
{
	for (size_t i = 0; i < ARRAY_LEN(config_help); i++)
		if (strcmp(config_help[i].section, section) == 0 && strcmp(config_help[i].key, key) == 0)
			return &config_help[i];

	return NULL;
}

/* Each text is of a key that exists, and each key has one. */
static void check_help(void)
{
	for (size_t i = 0; i < ARRAY_LEN(config_help); i++) {
		const struct config_help *help = &config_help[i];
		const char *name;
		size_t count, found = 0;
		const struct config_field *rows = rows_of(help->section, &count, &name);

		for (size_t k = 0; k < count; k++)
			if (strcmp(rows[k].section, name) == 0 && strcmp(rows[k].key, help->key) == 0) {
				found++;
				if ((rows[k].kind == CONFIG_KIND_OTHER) != (help->type != NULL))
					complain("%s.%s: its type is in the table, or must be here", help->section,
						 help->key);
			}
		if (found != 1)
			complain("there is no key %s.%s", help->section, help->key);
		if (find_help(help->section, help->key) != help)
			complain("%s.%s has two texts", help->section, help->key);
	}
}

/* ---- types, defaults and ranges ---- */

static const char *type_of(const struct config_field *field, const struct config_help *help)
{
	static const char *const types[] = {
		[CONFIG_KIND_DURATION] = "duration",  [CONFIG_KIND_BYTES] = "size",     [CONFIG_KIND_COUNT] = "number",
		[CONFIG_KIND_PERCENT] = "percentage", [CONFIG_KIND_BOOL] = "boolean",   [CONFIG_KIND_PATH] = "path",
		[CONFIG_KIND_CHOICE] = "choice",      [CONFIG_KIND_LISTEN] = "address",
	};

	return help->type ? help->type : types[field->kind];
}

struct unit {
	const char *name;
	uint64_t value;
};

/* In the largest unit of which it is a whole number. units: the smallest last. */
static void put_in_units(FILE *file, uint64_t value, const struct unit *units)
{
	if (value == 0) {
		fputc('0', file);
		return;
	}
	while (value % units->value != 0)
		units++;
	fprintf(file, "%llu%s", (unsigned long long)(value / units->value), units->name);
}

static void put_quantity(FILE *file, enum config_kind kind, uint64_t value)
{
	static const struct unit durations[] = {
		{ "d", 86400 * NS_PER_S },
		{ "h", 3600 * NS_PER_S },
		{ "m", 60 * NS_PER_S },
		{ "s", NS_PER_S },
		{ "ms", NS_PER_MS },
		{ "us", NS_PER_US },
		{ "ns", 1 },
	};
	static const struct unit sizes[] = {
		{ "TiB", UINT64_C(1) << 40 }, { "GiB", 1 << 30 }, { "MiB", 1 << 20 }, { "KiB", 1 << 10 }, { "B", 1 },
	};

	if (kind == CONFIG_KIND_DURATION)
		put_in_units(file, value, durations);
	else if (kind == CONFIG_KIND_BYTES)
		put_in_units(file, value, sizes);
	else
		fprintf(file, "%llu%s", (unsigned long long)value, kind == CONFIG_KIND_PERCENT ? "%" : "");
}

static bool is_text(const struct config_field *field)
{
	return field->kind == CONFIG_KIND_PATH || field->kind == CONFIG_KIND_LISTEN;
}

/* json: as it is written there. False: there is none. */
static bool put_default(FILE *file, const struct config_field *field, const struct config_help *help, bool json)
{
	bool empty = is_text(field) && !*field->text;
	bool quoted = empty || (json && field->kind != CONFIG_KIND_COUNT && field->kind != CONFIG_KIND_BOOL);

	if (field->kind == CONFIG_KIND_OTHER) {
		if (help->initial)
			fputs(help->initial, file);
		return help->initial != NULL;
	}

	if (quoted)
		fputc('"', file);
	if (is_text(field))
		fputs(field->text, file);
	else if (field->kind == CONFIG_KIND_CHOICE)
		fputs(field->choices[field->initial], file);
	else if (field->kind == CONFIG_KIND_BOOL)
		fputs(field->initial ? "true" : "false", file);
	else
		put_quantity(file, field->kind, field->initial);
	if (quoted)
		fputc('"', file);

	return true;
}

/* False: there is none. */
static bool put_range(FILE *file, const struct config_field *field, const struct config_help *help)
{
	if (field->kind == CONFIG_KIND_OTHER) {
		if (help->range)
			fputs(help->range, file);
		return help->range != NULL;
	}
	if (field->kind == CONFIG_KIND_CHOICE) {
		for (size_t i = 0; field->choices[i]; i++)
			fprintf(file, "%s%s", i > 0 ? ", " : "", field->choices[i]);
		return true;
	}
	if (field->max == 0)
		return false;

	put_quantity(file, field->kind, field->min);
	fputs(" to ", file);
	put_quantity(file, field->kind, field->max);
	if (field->zero)
		fputs(", or 0", file);

	return true;
}

/* ---- Markdown ---- */

static void put_markdown_row(FILE *file, const struct config_field *field, const struct config_help *help)
{
	AUTO_FREE char *initial = NULL;
	size_t len;
	FILE *text = open_memstream(&initial, &len);

	put_default(text, field, help, true);
	fclose(text);
	fprintf(file, "| `%s`%s | %s | ", field->key, field->change == CONFIG_CHANGE_RESTART ? " †" : "",
		type_of(field, help));
	if (len > 0)
		fprintf(file, "`%s` ", initial);
	fputs("| ", file);
	if (put_range(file, field, help))
		fputc(' ', file);
	fprintf(file, "| %s |\n", help->text);
}

/* ---- mdoc(7) ---- */

/* Words of running text, filled; a sentence begins a line. */
struct filling {
	FILE *file;
	size_t column;
};

static void end_line(struct filling *filling)
{
	if (filling->column > 0)
		fputc('\n', filling->file);
	filling->column = 0;
}

/* A word of running text, of a macro's arguments, or of both. */
static void put_escaped(FILE *file, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"')
			fputs("\\(dq", file);
		else if (text[i] == '\\')
			fputs("\\e", file);
		else
			fputc(text[i], file);
	}
}

static void put_word(struct filling *filling, const char *word, size_t len)
{
	if (filling->column > 0 && filling->column + 1 + len > COLUMNS)
		end_line(filling);
	if (filling->column > 0)
		fputc(' ', filling->file);
	else if (*word == '.' || *word == '\'')
		fputs("\\&", filling->file);
	put_escaped(filling->file, word, len);
	filling->column += len + 1;
	if (strchr(".:", word[len - 1]) && word[len - 1] == '.')
		end_line(filling);
}

static const char *macro_of(const char *code)
{
	if (*code == '$')
		return "Ev";
	if (strncmp(code, "CAP_", 4) == 0 || strncmp(code, "SIG", 3) == 0)
		return "Dv";
	if (strncmp(code, "kernel.", 7) == 0)
		return "Va";
	if (isdigit((unsigned char)*code) || *code == '[')
		return "Li";
	if (*code == '/' || strchr(code, '.') || strncmp(code, "clear_", 6) == 0)
		return "Pa";
	if (islower((unsigned char)*code) && !strpbrk(code, ":[ "))
		return "Cm";

	return "Li";
}

/* `code` with the punctuation around it, on a line of its own. Returns what comes after both. */
static const char *put_code(struct filling *filling, const char *at, bool in_bracket)
{
	char code[128];
	size_t len = strcspn(at, "`");

	snprintf(code, sizeof code, "%.*s", (int)len, at);
	end_line(filling);
	fprintf(filling->file, ".%s%s ", in_bracket ? "Pf ( " : "", macro_of(code));
	if (code[1] == '\0' && ispunct((unsigned char)*code))
		fputs("\\&", filling->file); /* else it would be punctuation, and not an argument */
	put_escaped(filling->file, code + (*code == '$'), strlen(code) - (*code == '$'));
	at += len + 1;
	if (isalnum((unsigned char)*at)) {
		len = strcspn(at, " ");
		fprintf(filling->file, " Ns %.*s", (int)len, at);
		at += len;
	}
	for (; *at && strchr(".,:;)", *at); at++)
		fprintf(filling->file, " %c", *at);
	fputc('\n', filling->file);

	return at;
}

static void put_mdoc_text(FILE *file, const char *text)
{
	struct filling filling = { .file = file };
	char plain[1024];
	size_t len = 0;

	/* Of a link, what is shown. */
	for (const char *at = text; *at && len + 1 < sizeof plain; at++) {
		if (*at == '[' && strstr(at, "](#") && strcspn(at, "`") > strcspn(at, "]"))
			continue;
		if (strncmp(at, "](#", 3) == 0)
			at += strcspn(at, ")");
		else
			plain[len++] = *at;
	}
	plain[len] = '\0';

	for (const char *at = plain; *at; at += *at == ' ') {
		bool in_bracket = at[0] == '(' && at[1] == '`';

		if (*at == '`' || in_bracket) {
			at = put_code(&filling, at + 1 + in_bracket, in_bracket);
		} else {
			len = strcspn(at, " ");
			if (len > 0)
				put_word(&filling, at, len);
			at += len;
		}
	}
	end_line(&filling);
}

/* A text of the parser's tables on the line of an item: Markdown's quotes are not shown. */
static void put_mdoc_item_text(FILE *file, const char *text)
{
	for (; *text; text++)
		if (*text != '`')
			put_escaped(file, text, 1);
}

static void put_mdoc_item(FILE *file, const struct config_field *field, const struct config_help *help)
{
	AUTO_FREE char *text = NULL;
	size_t len;
	FILE *item = open_memstream(&text, &len);
	long before;

	fputs(type_of(field, help), item);
	before = ftell(item);
	fputs("; ", item);
	if (!put_default(item, field, help, false))
		fseek(item, before, SEEK_SET);
	before = ftell(item);
	fputs("; ", item);
	if (!put_range(item, field, help))
		fseek(item, before, SEEK_SET);
	before = ftell(item);
	fclose(item);
	text[before] = '\0';

	fprintf(file, ".It Cm %s Pq ", field->key);
	put_mdoc_item_text(file, text);
	fputc('\n', file);
	put_mdoc_text(file, help->text);
	if (field->change == CONFIG_CHANGE_RESTART)
		fputs("Needs a restart.\n", file);
}

/* ---- metrics of rules ---- */

static void put_metrics(FILE *file, bool markdown)
{
	static const char *const units[] = {
		[UNIT_PERCENT] = "percentage",
		[UNIT_CORES] = "number",
		[UNIT_BYTES] = "size",
		[UNIT_COUNT] = "number",
		[UNIT_PER_SECOND] = "number, per second",
	};

	fputs(markdown ? "| metric | unit | what it is |\n|---|---|---|\n" : ".Bl -tag -width Ds -compact\n", file);
	for (enum metric i = 0; i < METRICS; i++)
		fprintf(file, markdown ? "| `%s` | %s | %s |\n" : ".It Cm %s Pq %s\n%s\n", metric_name(i),
			units[metric_unit(i)], metric_what(i));
	if (!markdown)
		fputs(".El\n", file);
}

/* ---- files ---- */

static void put_section(FILE *file, const char *section, bool markdown)
{
	const char *name;
	size_t count;
	const struct config_field *rows = rows_of(section, &count, &name);

	if (strcmp(section, "metrics_of_rules") == 0) {
		put_metrics(file, markdown);
		return;
	}

	fputs(markdown ? "| key | type | default | range | meaning |\n|---|---|---|---|---|\n" : ".Bl -tag -width Ds\n",
	      file);
	for (size_t i = 0; i < count; i++) {
		const struct config_help *help = find_help(section, rows[i].key);

		if (strcmp(rows[i].section, name) != 0)
			continue;
		if (!help)
			complain("%s.%s has no text in docs/config_help.h", section, rows[i].key);
		else if (markdown)
			put_markdown_row(file, &rows[i], help);
		else
			put_mdoc_item(file, &rows[i], help);
	}
	if (!markdown)
		fputs(".El\n", file);
}

/* The section that a line begins, into ret; false: it begins none. */
static bool begins_section(const char *line, size_t len, char ret[32])
{
	const char *name = memmem(line, len, BEGIN, strlen(BEGIN));
	size_t name_len;

	if (!name)
		return false;

	name += strlen(BEGIN);
	name_len = strcspn(name, ": \n");
	snprintf(ret, 32, "%.*s", (int)name_len, name);
	if (strcmp(ret, "file") == 0)
		*ret = '\0'; /* outside of sections */

	return true;
}

/* What a page should be. */
static void rewrite(const char *page, bool markdown, FILE *file)
{
	bool skipping = false;
	char section[32];

	for (const char *line = page; *line;) {
		size_t len = strcspn(line, "\n");

		len += line[len] == '\n';
		if (memmem(line, len, END, strlen(END)))
			skipping = false;
		if (!skipping)
			fwrite(line, 1, len, file);
		if (begins_section(line, len, section)) {
			put_section(file, section, markdown);
			skipping = true;
		}
		line += len;
	}
	if (skipping)
		complain("\"" END "\" is missing");
}

static int write_page(const char *path, const char *text, size_t len)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	return fd < 0 ? -errno : sink_write_all(fd, text, len);
}

static void process(const char *path, bool check)
{
	size_t path_len = strlen(path), len;
	AUTO(buffer_release) struct buffer page = { 0 };
	AUTO_FREE char *text = NULL;
	FILE *file = open_memstream(&text, &len);
	int r = whole_file_read(AT_FDCWD, path, &page);

	if (r == 0)
		r = buffer_append(&page, "", 1);
	if (r == 0)
		rewrite(page.data, path_len > 3 && strcmp(path + path_len - 3, ".md") == 0, file);
	fclose(file);

	if (r == 0 && !failed && strcmp(page.data, text) != 0) {
		if (check)
			complain("%s is not what its sources say: make docs", path);
		else
			r = write_page(path, text, len);
	}
	if (r < 0)
		complain("%s: %s", path, strerror(-r));
}

int main(int argc, char **argv)
{
	bool check = argc > 1 && strcmp(argv[1], "--check") == 0;

	check_help();
	for (int i = 1 + check; i < argc; i++)
		process(argv[i], check);

	return failed;
}
