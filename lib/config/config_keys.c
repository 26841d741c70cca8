/*
 * config_keys.c: the tables of keys, how one JSON value becomes one member of a struct or one
 * message, and how two configurations are compared. Every message says what was expected, where
 * possible with an example that can be pasted.
 *
 * A section, a target, a command and a rule are each read key by key and then checked as a whole. What
 * could never work is refused here, where the mistake can be shown: at run time a rule that can never
 * fire, a pattern that can never match or a command that can never run looks exactly like one that
 * has nothing to do. Defaults never contradict: where they can, they give way to what was written (a
 * rule with "history": 3 need not say "warmup": 3 as well).
 */
#include "lib/config/config.h"
#include "lib/config/config_keys.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/selection.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <inttypes.h>
#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a reader is: errors take file and the beginning of the dotted key from here. */
struct config_scope {
	const char *file;
	struct config_error *err;
	char path[64]; /* "sampling", "rules[2]", "" */
};

#define CONFIG_SHOWN 72 /* room for a value in a message */

/* Start with {.word = ...}, offer the candidates; best is then the likely one or NULL. */
struct config_guess {
	const char *word;
	const char *best;
	size_t distance;
	char list[200]; /* all candidates, as far as there is room: "a, b, c" */
	size_t len;
	bool full;
};

/* The same for a member of the object that the scope stands for. */
#define config_refuse_value(scope, node, ...) config_refuse(scope, (node)->place, (node)->key, __VA_ARGS__)

/* Where a value came from; line 0: it is the default. */
struct config_origin {
	const char *file;
	struct json_place place;
};

#define CONFIG_SECTION_FIELDS_MAX 64

/* What sources are merged into. */
struct config_merge {
	struct config *config;
	struct config_error *err;
	struct config_origin origins[CONFIG_SECTION_FIELDS_MAX]; /* of each field */
};

#define CONFIG_RUN_WORDS_MAX 64 /* of a command */
#define CONFIG_RUN_RULES_MAX 16

#define CONFIG_RUN_MANUAL "manual" /* the rule of an incident that was asked for by hand */

/* Rows: of a key that is read elsewhere, of any kind, of what has a range. */
// clang-format off
#define CONFIG_OTHER(s, k) { .section = s, .key = k }
#define CONFIG_ROW(s, k, type, strukt, member, ...)                                                                    \
	{ .section = s, .key = k, .kind = CONFIG_KIND_##type, .offset = offsetof(strukt, member),                      \
	  .size = sizeof(((strukt *)0)->member), __VA_ARGS__ }
#define CONFIG_RANGE(s, k, type, strukt, member, initially, least, ...)                                                \
	CONFIG_ROW(s, k, type, strukt, member, .initial = initially, .min = least, .max = __VA_ARGS__)
// clang-format on

/* ---- single values; 0 or -EINVAL ---- */

/* All of them, for a message. */
#define COMMAND_TEMPLATE_LIST "{pid}, {incident}, {rule}, {target}, {name}"
#define COMMAND_TEMPLATE_NOTIFY_LIST COMMAND_TEMPLATE_LIST ", {host}, {value}, {threshold}, {time}, {headline}, {json}"

static int config_labels_read_metrics(const struct config_scope *scope, const struct json_node *node,
				      struct config_metrics *ret);
static int config_run_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret);

/* ---- messages ---- */

/* Beyond this a double does not hold every whole number. */
#define COUNT_MAX 9007199254740992.0

/* key: NULL: of the section itself; there may be NUL in it. */
static void name_key(const struct config_scope *scope, const char *key, size_t len)
{
	char shown[64] = "";

	if (key != NULL)
		text_escape(shown, sizeof(shown), key, len);
	snprintf(scope->err->key, sizeof(scope->err->key), "%s%s%s", scope->path,
		 scope->path[0] != '\0' && key != NULL ? "." : "", shown);
}

/*
 * Fills err and returns -EINVAL. key may be NULL: then it is the path itself. place line 0: the
 * file as a whole.
 */
__attribute__((format(printf, 4, 5))) static int
config_refuse(const struct config_scope *scope, struct json_place place, const char *key, const char *format, ...)
{
	struct config_error *err = scope->err;
	va_list args;

	*err = (struct config_error){ .line = place.line, .column = place.column };
	snprintf(err->file, sizeof(err->file), "%s", scope->file);
	name_key(scope, key, key != NULL ? strlen(key) : 0);
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return -EINVAL;
}

/* "text", safe to print, cut if it is long. Returns buf. */
static const char *config_quote(const char *text, size_t len, char buf[CONFIG_SHOWN])
{
	buf[0] = '"';
	text_escape(buf + 1, CONFIG_SHOWN - 2, text, len);
	memcpy(buf + strlen(buf), "\"", 2);
	return buf;
}

/* What was found: "text" in quotes, a number, or what kind of value it is. Returns buf. */
static const char *config_found(const struct json_node *node, char buf[CONFIG_SHOWN])
{
	switch (node->type) {
	case JSON_STRING:
		config_quote(node->text, node->text_len, buf);
		break;
	case JSON_NUMBER:
		text_escape(buf, CONFIG_SHOWN, node->text, node->text_len);
		break;
	case JSON_BOOL:
		snprintf(buf, CONFIG_SHOWN, "%s", node->boolean ? "true" : "false");
		break;
	case JSON_NULL:
	case JSON_ARRAY:
	case JSON_OBJECT:
		snprintf(buf, CONFIG_SHOWN, "%s", json_type_name(node->type));
		break;
	}
	return buf;
}

/* ---- guesses ---- */

/* Levenshtein's distance. Names and keys have at most 64 bytes; a longer word is none of them. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[65];
	size_t len = strlen(b);

	if (len > 64 || strnlen(a, 65) > 64)
		return SIZE_MAX;
	for (size_t k = 0; k <= len; k++)
		row[k] = k;
	for (size_t i = 1; a[i - 1] != '\0'; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t k = 1; k <= len; k++) {
			size_t best = diagonal + (a[i - 1] != b[k - 1]);

			diagonal = row[k];
			best = row[k] + 1 < best ? row[k] + 1 : best;
			row[k] = row[k - 1] + 1 < best ? row[k - 1] + 1 : best;
		}
	}
	return row[len];
}

/* A known word. It must outlive the guess. */
static void config_guess_offer(struct config_guess *guess, const char *candidate)
{
	size_t len = strlen(candidate);
	size_t distance = edit_distance(guess->word, candidate);
	size_t far = len / 3 > 0 ? len / 3 : 1;

	if (distance <= far && (guess->best == NULL || distance < guess->distance)) {
		guess->best = candidate;
		guess->distance = distance;
	}
	if (guess->full)
		return;
	guess->full = guess->len + len + sizeof(", ...") > sizeof(guess->list);
	guess->len += (size_t)snprintf(guess->list + guess->len, sizeof(guess->list) - guess->len, "%s%s",
				       guess->len > 0 ? ", " : "", guess->full ? "..." : candidate);
}

/* `did you mean "best"?` or `expected one of a, b, c`. Returns buf. */
static const char *config_guess_say(const struct config_guess *guess, char *buf, size_t cap)
{
	if (guess->best != NULL)
		snprintf(buf, cap, "did you mean \"%s\"?", guess->best);
	else
		snprintf(buf, cap, "expected one of %s", guess->list);
	return buf;
}

/* ---- single values ---- */

/* What a quantity is called, how one looks, and who reads it. */
struct quantity {
	const char *name;
	const char *example;
	int (*read)(const char *text, size_t len, uint64_t *ret);
};

static int read_quantity(const struct config_scope *scope, const struct json_node *node,
			 const struct quantity *quantity, uint64_t *ret)
{
	bool text = node->type == JSON_STRING;
	char shown[CONFIG_SHOWN];
	double bare;
	int r = text ? quantity->read(node->text, node->text_len, ret) : -EINVAL;

	if (r == 0)
		return 0;
	if (node->type == JSON_NUMBER && node->number == 0) { /* needs no unit, in quotes or without */
		*ret = 0;
		return 0;
	}
	config_found(node, shown);
	if (r == -ERANGE)
		return config_refuse_value(scope, node, "too large: expected %s such as \"%s\", found %s",
					   quantity->name, quantity->example, shown);
	if (node->type == JSON_NUMBER || (text && units_number(node->text, node->text_len, &bare) == 0))
		return config_refuse_value(scope, node, "missing unit: expected %s such as \"%s\", found %s",
					   quantity->name, quantity->example, shown);
	return config_refuse_value(scope, node, "expected %s such as \"%s\", found %s", quantity->name,
				   quantity->example, shown);
}

/* A quantity with its unit. */
static int config_read_duration(const struct config_scope *scope, const struct json_node *node, uint64_t *ret_ns)
{
	static const struct quantity quantity = { "a duration", "10ms", units_duration };

	return read_quantity(scope, node, &quantity, ret_ns);
}

static int config_read_bytes(const struct config_scope *scope, const struct json_node *node, uint64_t *ret_bytes)
{
	static const struct quantity quantity = { "a size", "512MiB", units_bytes };

	return read_quantity(scope, node, &quantity, ret_bytes);
}

/* "70%" or 70. */
static int config_read_percent(const struct config_scope *scope, const struct json_node *node, double *ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type == JSON_NUMBER && node->number >= 0) {
		*ret = node->number;
		return 0;
	}
	if (node->type == JSON_STRING && units_percent(node->text, node->text_len, ret) == 0)
		return 0;
	return config_refuse_value(scope, node, "expected a percentage such as \"70%%\", found %s",
				   config_found(node, shown));
}

/* A number that is not negative, without unit. */
static int config_read_number(const struct config_scope *scope, const struct json_node *node, double *ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type == JSON_NUMBER && node->number >= 0) {
		*ret = node->number;
		return 0;
	}
	return config_refuse_value(scope, node, "expected a number of at least 0, without unit and quotes, found %s",
				   config_found(node, shown));
}

/* A text without NUL, of 1 to max bytes. */
static int config_read_text(const struct config_scope *scope, const struct json_node *node, size_t max,
			    const char **ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_STRING)
		return config_refuse_value(scope, node, "expected a string, found %s", config_found(node, shown));
	if (node->text_len == 0)
		return config_refuse_value(scope, node, "empty: expected at least one character");
	if (strlen(node->text) != node->text_len)
		return config_refuse_value(scope, node, "NUL byte in a string: expected text without \\u0000");
	if (node->text_len > max)
		return config_refuse_value(scope, node, "too long: expected at most %zu bytes, found %zu", max,
					   node->text_len);
	*ret = node->text;
	return 0;
}

/* A name of 1 to 64 of A-Z a-z 0-9 _ . -, because it becomes part of file names. */
static int config_read_name(const struct config_scope *scope, const struct json_node *node, const char **ret)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	const char *name;
	char shown[CONFIG_SHOWN];
	int r = config_read_text(scope, node, 64, &name);

	if (r < 0)
		return r;
	if (name[strspn(name, allowed)] != '\0')
		return config_refuse_value(scope, node,
					   "becomes part of file names: expected only A-Z a-z 0-9 _ . -, found %s",
					   config_found(node, shown));
	*ret = name;
	return 0;
}

/* One of choices: its number. */
static int config_read_choice(const struct config_scope *scope, const struct json_node *node,
			      const char *const *choices, unsigned *ret)
{
	struct config_guess guess = { .word = "" };
	char shown[CONFIG_SHOWN];

	for (unsigned i = 0; choices[i] != NULL; i++) {
		config_guess_offer(&guess, choices[i]);
		if (node->type != JSON_STRING || strlen(choices[i]) != node->text_len ||
		    memcmp(choices[i], node->text, node->text_len) != 0)
			continue;
		*ret = i;
		return 0;
	}
	return config_refuse_value(scope, node, "expected one of %s; found %s", guess.list, config_found(node, shown));
}

static bool ends_with(const char *text, const char *suffix)
{
	size_t len = strlen(text), end = strlen(suffix);

	return len >= end && memcmp(text + len - end, suffix, end) == 0;
}

static int read_path(const struct config_scope *scope, const struct config_field *field, const struct json_node *node,
		     const char **ret)
{
	const char *path;
	char shown[CONFIG_SHOWN];
	int r;

	if (field->text[0] == '\0' && node->type == JSON_STRING && node->text_len == 0) {
		*ret = node->text;
		return 0;
	}
	r = config_read_text(scope, node, PATH_MAX - 1, &path);
	if (r < 0)
		return r;
	if (path[0] != '/')
		return config_refuse_value(scope, node, "expected a path that begins with /, found %s",
					   config_found(node, shown));
	if (field->suffix != NULL && !ends_with(path, field->suffix))
		return config_refuse_value(scope, node, "expected a path that ends in %s, found %s", field->suffix,
					   config_found(node, shown));
	if (field->is_file && (ends_with(path, "/") || ends_with(path, "/.") || ends_with(path, "/..")))
		return config_refuse_value(scope, node, "expected the path of a file, found %s",
					   config_found(node, shown));
	*ret = path;
	return 0;
}

static int read_listen(const struct config_scope *scope, const struct json_node *node, const char **ret)
{
	struct listen_address address;
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_STRING ||
	    (node->text_len > 0 && listen_address_parse(node->text, node->text_len, &address) < 0))
		return config_refuse_value(scope, node,
					   "expected a numeric address and a port of 1 to 65535, such as "
					   "\"127.0.0.1:7745\", \"[::1]:7745\" or \"7745\", or \"\"; found %s",
					   config_found(node, shown));
	*ret = node->text;
	return 0;
}

static int read_count(const struct config_scope *scope, const struct json_node *node, uint64_t *ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_NUMBER || node->number < 0 || node->number > COUNT_MAX ||
	    floor(node->number) != node->number)
		return config_refuse_value(scope, node, "expected a whole number without quotes, found %s",
					   config_found(node, shown));
	*ret = (uint64_t)node->number;
	return 0;
}

/* ---- rows ---- */

static bool is_text(const struct config_field *field)
{
	return field->kind == CONFIG_KIND_PATH || field->kind == CONFIG_KIND_LISTEN;
}

static void show_quantity(enum config_kind kind, uint64_t value, char buf[UNITS_TEXT_MAX])
{
	if (kind == CONFIG_KIND_DURATION)
		units_format_duration(buf, UNITS_TEXT_MAX, value);
	else if (kind == CONFIG_KIND_BYTES)
		units_format_bytes(buf, UNITS_TEXT_MAX, value);
	else
		snprintf(buf, UNITS_TEXT_MAX, "%llu%s", (unsigned long long)value,
			 kind == CONFIG_KIND_PERCENT ? "%" : "");
}

static int out_of_range(const struct config_scope *scope, const struct config_field *field,
			const struct json_node *node)
{
	char min[UNITS_TEXT_MAX], max[UNITS_TEXT_MAX];
	char shown[CONFIG_SHOWN];

	show_quantity(field->kind, field->min, min);
	show_quantity(field->kind, field->max, max);
	return config_refuse_value(scope, node, "out of range: expected %s to %s%s, found %s", min, max,
				   field->zero ? ", or 0" : "", config_found(node, shown));
}

static void store(const struct config_field *field, void *base, uint64_t value)
{
	uint32_t small = (uint32_t)value;

	memcpy((char *)base + field->offset, field->size == sizeof(small) ? (void *)&small : (void *)&value,
	       field->size);
}

static int apply_whole(const struct config_scope *scope, const struct config_field *field, const struct json_node *node,
		       void *base)
{
	uint64_t value = 0;
	int r;

	if (field->kind == CONFIG_KIND_DURATION)
		r = config_read_duration(scope, node, &value);
	else if (field->kind == CONFIG_KIND_BYTES)
		r = config_read_bytes(scope, node, &value);
	else
		r = read_count(scope, node, &value);
	if (r < 0)
		return r;
	if ((value < field->min && !(field->zero && value == 0)) || value > field->max)
		return out_of_range(scope, field, node);
	store(field, base, value);
	return 0;
}

static int apply_percent(const struct config_scope *scope, const struct config_field *field,
			 const struct json_node *node, double *ret)
{
	double value;
	int r = config_read_percent(scope, node, &value);

	if (r < 0)
		return r;
	if (value < (double)field->min || value > (double)field->max)
		return out_of_range(scope, field, node);
	*ret = value;
	return 0;
}

static int apply(const struct config_scope *scope, const struct config_field *field, const struct json_node *node,
		 void *base)
{
	char *place = (char *)base + field->offset;
	char shown[CONFIG_SHOWN];
	unsigned choice;
	int r;

	switch (field->kind) {
	case CONFIG_KIND_OTHER:
		return 0;
	case CONFIG_KIND_DURATION:
	case CONFIG_KIND_BYTES:
	case CONFIG_KIND_COUNT:
		return apply_whole(scope, field, node, base);
	case CONFIG_KIND_PERCENT:
		return apply_percent(scope, field, node, (double *)(void *)place);
	case CONFIG_KIND_PATH:
		return read_path(scope, field, node, (const char **)(void *)place);
	case CONFIG_KIND_LISTEN:
		return read_listen(scope, node, (const char **)(void *)place);
	case CONFIG_KIND_CHOICE:
		r = config_read_choice(scope, node, field->choices, &choice);
		if (r == 0)
			store(field, base, choice);
		return r;
	case CONFIG_KIND_BOOL:
		if (node->type != JSON_BOOL)
			return config_refuse_value(scope, node, "expected true or false, found %s",
						   config_found(node, shown));
		*(bool *)place = node->boolean;
		return 0;
	}
	return 0;
}

/* Sets every field to its default. */
static void config_field_defaults(const struct config_field *table, size_t count, void *base)
{
	for (size_t i = 0; i < count; i++) {
		char *place = (char *)base + table[i].offset;

		if (is_text(&table[i]))
			*(const char **)(void *)place = table[i].text;
		else if (table[i].kind == CONFIG_KIND_PERCENT)
			*(double *)(void *)place = (double)table[i].initial;
		else if (table[i].kind == CONFIG_KIND_BOOL)
			*(bool *)place = table[i].initial != 0;
		else if (table[i].kind != CONFIG_KIND_OTHER)
			store(&table[i], base, table[i].initial);
	}
}

static int unknown_key(const struct config_scope *scope, const struct config_field *table, size_t count,
		       const char *section, const struct json_node *node)
{
	bool has_nul = strlen(node->key) != node->key_len; /* it is like none */
	struct config_guess guess = { .word = has_nul ? "" : node->key };
	char hint[240];
	int r;

	for (size_t i = 0; i < count; i++)
		if (strcmp(table[i].section, section) == 0)
			config_guess_offer(&guess, table[i].key);
	r = config_refuse(scope, node->key_place, node->key, "unknown key; %s",
			  config_guess_say(&guess, hint, sizeof(hint)));
	name_key(scope, node->key, node->key_len);
	return r;
}

/* The row of a member, count if there is none. */
static size_t find(const struct config_field *table, size_t count, const char *section, const struct json_node *node)
{
	size_t i = 0;

	while (i < count && (strcmp(table[i].section, section) != 0 || strlen(table[i].key) != node->key_len ||
			     memcmp(table[i].key, node->key, node->key_len) != 0))
		i++;
	return i;
}

/*
 * Reads the members of object that belong to section into base; unknown keys are refused. origins:
 * one for each row of the table, or NULL. 0 or -EINVAL.
 */
static int config_field_apply(const struct config_scope *scope, const struct config_field *table, size_t count,
			      const char *section, const struct json_node *object, void *base,
			      struct config_origin *origins)
{
	char shown[CONFIG_SHOWN];

	if (object->type != JSON_OBJECT)
		return config_refuse(scope, object->place, NULL, "expected an object, found %s",
				     config_found(object, shown));
	for (const struct json_node *node = object->first; node != NULL; node = node->next) {
		size_t i = find(table, count, section, node);
		int r = i < count ? apply(scope, &table[i], node, base)
				  : unknown_key(scope, table, count, section, node);

		if (r < 0)
			return r;
		if (origins != NULL)
			origins[i] = (struct config_origin){ scope->file, node->place };
	}
	return 0;
}

/*
 * Whether a text can be a glob.
 * A bracket or backslash that does not end makes fnmatch(3) match something else than was meant, or
 * nothing.
 */
static int config_check_glob(const struct config_scope *scope, const struct json_node *node)
{
	const char *at = node->text;

	for (; *at != '\0'; at++) {
		if (*at == '\\' && *++at == '\0')
			return config_refuse_value(scope, node, "a glob ends in \\: expected a character after it");
		if (*at != '[')
			continue;
		/* "[]x]" and "[!]x]" hold a bracket. */
		at += at[1] == '!' || at[1] == '^' ? 2 : 1;
		at = *at != '\0' ? strchr(at + 1, ']') : NULL;
		if (at == NULL)
			return config_refuse_value(scope, node, "[ without ] in a glob: expected a closing ]");
	}
	return 0;
}

/* ---- sections ---- */

/* The origin of each value is kept, so that a contradiction is shown where it was written. */

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define US NS_PER_US
#define MS NS_PER_MS
#define S NS_PER_S
#define SECTION_MINUTE (60 * S)
#define HOUR (60 * SECTION_MINUTE)
#define SECTION_DAY (24 * HOUR)

static const char *const discovery_choices[] = { "auto", "rescan", NULL };
static const char *const idle_backoff_choices[] = { "auto", "always", "never", NULL };
static const char *const wait_choices[] = { "sleep", "yield", "spin", NULL };
static const char *const source_choices[] = { "auto", "kernel", "files", NULL };
static const char *const scheduling_choices[] = { "auto", "normal", NULL };
static const char *const stacks_choices[] = { "off", "frame-pointers", "dwarf", NULL };
static const char *const clock_choices[] = { "cpu", "cycles", NULL };

/* LIVE, RESTART: what a change of the key takes. */
// clang-format off
#define SECTION_OTHER(s, k)                { .section = s, .key = k, .change = CONFIG_CHANGE_LIVE }
#define ROW(s, k, how, type, member, ...)                                                                              \
	CONFIG_ROW(s, k, type, struct config, member, .change = CONFIG_CHANGE_##how, __VA_ARGS__)
#define RANGE(s, k, how, type, member, initially, least, ...)                                                          \
	ROW(s, k, how, type, member, .initial = initially, .min = least, .max = __VA_ARGS__)
#define PATH(s, k, how, member, ...)          ROW(s, k, how, PATH, member, .text = __VA_ARGS__)
#define LISTEN(s, k, how, member, value)      ROW(s, k, how, LISTEN, member, .text = value)
#define BOOL(s, k, how, member, value)        ROW(s, k, how, BOOL, member, .initial = value)
#define SECTION_CHOICE(s, k, how, member, value, names)                                                                \
	ROW(s, k, how, CHOICE, member, .initial = value, .choices = names)
#define SECTION_DURATION(s, k, how, member, ...)      RANGE(s, k, how, DURATION, member, __VA_ARGS__)
#define BYTES(s, k, how, member, ...)         RANGE(s, k, how, BYTES, member, __VA_ARGS__)
#define SECTION_COUNT(s, k, how, member, ...)         RANGE(s, k, how, COUNT, member, __VA_ARGS__)
#define PERCENT(s, k, how, member, ...)       RANGE(s, k, how, PERCENT, member, __VA_ARGS__)
// clang-format on

/*
 * interval         10 ms catches peaks of 20 ms, at 1 to 3 % of a core for hundreds of processes.
 *                  Below 100 us one pass over a few targets takes longer than the interval; above
 *                  10 s it is monitoring.
 * idle_interval    Memory that is 100 ms old at most; with back-off a tenth of the looks at processes that
 *                  sleep, and an onset that is 100 ms late at most.
 * idle_backoff     A look is what shows a burst of 5 ms: given up only for the CPU budget.
 * read_interval    Most of a tick in which little ran is waking up. What bursts is told of.
 * heartbeat        A page of the ring is filled in seconds: a target should be in each.
 * cgroup_interval  cgroup files cost three times what a process does, and on large trees the kernel
 *                  sums up first.
 * fds_interval     Counting descriptors lists a directory: 200 ns for each.
 * limits_interval  Limits change rarely and by configuration: two seconds late is soon enough.
 * cpu_budget       A tenth of a core, also on an overloaded machine.
 * ring.size        Minutes of a hundred busy processes; page_size: a tick of sixty with their longest
 *                  records.
 * before, after    What led to a spike is in the half minute before it; how it ends, in the next ten
 *                  seconds.
 * max_size         Little compared with a small disk; max_incident_size: a sixteenth of it.
 * min_free         Incidents must not be what fills a disk.
 * textfile_interval      The file is collected every 15 to 60 s.
 * metrics.max_targets  Twenty series each make ten thousand: what a server takes from one machine
 *                      without complaint.
 * history.max_size  A month of 300 targets takes two thirds of it (docs/history.md).
 * history.max_targets  The top of any screen; thousands of short processes are not rows.
 * stacks.frequency  99 and not 100, so as not to run in lockstep with work that a program does a
 *                   hundred times a second.
 * stacks.clock      Hardware counters are shared with other profilers; the CPU clock works in virtual
 *                   machines too.
 * stacks.stack_size  Forty to a hundred calls deep. stacks.max_memory: half a minute of two CPUs
 *                    that are busy with what is watched.
 *
 * What only a restart changes: the number of threads, since a target stays with its own; the rings
 * and the state, which are mapped and locked by then, and where everything is read from or written
 * to, because descriptors below it are open.
 */
// clang-format off
const struct config_field config_section_fields[] = {
	SECTION_OTHER(   "",         "sampling"),
	SECTION_OTHER(   "",         "ring"),
	SECTION_OTHER(   "",         "incidents"),
	SECTION_OTHER(   "",         "metrics"),
	SECTION_OTHER(   "",         "stacks"),
	SECTION_OTHER(   "",         "history"),
	PATH(    "",         "state_file",        RESTART, state_file,                   "", .is_file = true),
	PATH(    "",         "proc_root",         RESTART, proc_root,                    "/proc"),
	PATH(    "",         "cgroup_root",       RESTART, cgroup_root,                  ""),
	PATH(    "",         "runtime_root",      RESTART, runtime_root,                 "/"),
	SECTION_OTHER(   "",         "targets"),
	SECTION_OTHER(   "",         "notify"),
	SECTION_OTHER(   "",         "rules"),
	SECTION_DURATION("sampling", "interval",          LIVE,    sampling.interval_ns,         10 * MS,
		100 * US, 10 * S),
	SECTION_DURATION("sampling", "idle_interval",     LIVE,    sampling.idle_interval_ns,    100 * MS,  0,
		SECTION_MINUTE),
	SECTION_CHOICE(  "sampling", "idle_backoff",      LIVE,    sampling.idle_backoff,
		CONFIG_IDLE_BACKOFF_AUTO, idle_backoff_choices),
	SECTION_DURATION("sampling", "read_interval",     LIVE,    sampling.read_interval_ns,    100 * MS,  0,
		100 * MS),
	SECTION_DURATION("sampling", "heartbeat",         LIVE,    sampling.heartbeat_ns,        S,         10 * MS,
		HOUR),
	SECTION_DURATION("sampling", "cgroup_interval",   LIVE,    sampling.cgroup_interval_ns,  100 * MS,  MS,
		SECTION_MINUTE),
	SECTION_DURATION("sampling", "peak_interval",     LIVE,    sampling.peak_interval_ns,    100 * MS,  MS,
		SECTION_MINUTE),
	SECTION_DURATION("sampling", "fds_interval",      LIVE,    sampling.fds_interval_ns,     S,
		100 * MS, HOUR, .zero = true),
	SECTION_DURATION("sampling", "limits_interval",   LIVE,    sampling.limits_interval_ns,  2 * S,
		100 * MS, HOUR),
	SECTION_DURATION("sampling", "rescan_interval",   LIVE,    sampling.rescan_interval_ns,  S,
		100 * MS, HOUR),
	SECTION_CHOICE(  "sampling", "discovery",         LIVE,    sampling.discovery,
		CONFIG_DISCOVERY_AUTO, discovery_choices),
	SECTION_CHOICE(  "sampling", "source",            RESTART, sampling.source,              CONFIG_CPU_SOURCE_AUTO,
		source_choices),
	SECTION_CHOICE(  "sampling", "wait",              LIVE,    sampling.wait,                CONFIG_WAIT_SLEEP,
		wait_choices),
	SECTION_CHOICE(  "sampling", "scheduling",        LIVE,    sampling.scheduling,
		CONFIG_SCHEDULING_AUTO, scheduling_choices),
	BOOL(    "sampling", "reset_peaks",       LIVE,    sampling.reset_peaks,         false),
	PERCENT( "sampling", "cpu_budget",        LIVE,    sampling.cpu_budget_percent,  10,        1,        1600),
	SECTION_COUNT(   "sampling", "threads",           RESTART, sampling.threads,             0,         0,
		16),
	SECTION_COUNT(   "sampling", "max_targets",       LIVE,    sampling.max_targets,         10000,     1,
		100000),
	PATH(    "ring",     "path",              RESTART, ring.path,                    "", .is_file = true),
	BYTES(   "ring",     "size",              RESTART, ring.size_bytes,              16 * MIB,  16 * KIB, 16 * GIB),
	BYTES(   "ring",     "page_size",         RESTART, ring.page_bytes,              64 * KIB,  4 * KIB,  MIB),
	BOOL(    "ring",     "lock",              RESTART, ring.lock,                    true),
	PATH(    "incidents", "directory",         RESTART, incidents.directory,          ""),
	SECTION_DURATION("incidents", "before",            LIVE,    incidents.before_ns,          30 * S,    0,
		HOUR),
	SECTION_DURATION("incidents", "after",             LIVE,    incidents.after_ns,           10 * S,    0,
		HOUR),
	BYTES(   "incidents", "max_incident_size", LIVE,    incidents.max_incident_bytes, 64 * MIB,  MIB,      TIB),
	BYTES(   "incidents", "max_size",          LIVE,    incidents.max_bytes,          GIB,       MIB,
		1024 * TIB),
	SECTION_COUNT(   "incidents", "max_count",         LIVE,    incidents.max_count,          200,       1,
		1000000),
	SECTION_COUNT(   "incidents", "max_per_hour",      LIVE,    incidents.max_per_hour,       30,        0,
		1000000),
	SECTION_DURATION("incidents", "max_age",           LIVE,    incidents.max_age_ns,         30 * SECTION_DAY,
		SECTION_MINUTE,   3650 * SECTION_DAY),
	BYTES(   "incidents", "min_free",          LIVE,    incidents.min_free_bytes,     256 * MIB, 0,
		1024 * TIB),
	SECTION_OTHER(   "incidents", "captures"),
	LISTEN(  "metrics",  "listen",            LIVE,    metrics.listen,               ""),
	PATH(    "metrics",  "textfile",          LIVE,    metrics.metrics_file,             "", .suffix = ".prom"),
	SECTION_DURATION("metrics",  "textfile_interval", LIVE,    metrics.metrics_file_interval_ns, 15 * S,   S,
		HOUR),
	SECTION_COUNT(   "metrics",  "max_targets",       LIVE,    metrics.max_targets,          500,      1,
		10000),
	SECTION_OTHER(   "metrics",  "container_labels"),
	SECTION_CHOICE(  "stacks",   "mode",              RESTART, stacks.mode,
		CONFIG_STACKS_DWARF, stacks_choices),
	SECTION_CHOICE(  "stacks",   "clock",             RESTART, stacks.clock,                 CONFIG_CLOCK_CPU,
		clock_choices),
	BOOL(    "stacks",   "page_faults",       RESTART, stacks.page_faults,           true),
	SECTION_COUNT(   "stacks",   "frequency",         RESTART, stacks.frequency,             99,       1,
		1000),
	BYTES(   "stacks",   "stack_size",        RESTART, stacks.stack_bytes,           8 * KIB,  KIB,      32 * KIB),
	BYTES(   "stacks",   "ring_size",         RESTART, stacks.ring_bytes,            0,        64 * KIB,
		64 * MIB, .zero = true),
	BYTES(   "stacks",   "max_memory",        RESTART, stacks.max_memory_bytes,      64 * MIB, MIB,      16 * GIB),
	BOOL(    "history",  "enabled",           LIVE,    history.enabled,              true),
	PATH(    "history",  "directory",         RESTART, history.directory,            ""),
	BYTES(   "history",  "max_size",          LIVE,    history.max_bytes,            95 * MIB,
		MIB,      TIB),
	SECTION_DURATION("history",  "max_age",           LIVE,    history.max_age_ns,           30 * SECTION_DAY,
		HOUR,   3650 * SECTION_DAY),
	SECTION_COUNT(   "history",  "max_targets",       LIVE,    history.max_targets,          300,      1,
		2000),
};
// clang-format on
const size_t config_section_field_count = ARRAY_LEN(config_section_fields);
_Static_assert(ARRAY_LEN(config_section_fields) <= CONFIG_SECTION_FIELDS_MAX, "an origin for each");

static int read_captures(const struct config_scope *scope, const struct json_node *node, struct config *config)
{
	const char *names[8] = { NULL };
	struct config_scope within = *scope;
	unsigned captures = 0;
	size_t index = 0;
	char shown[CONFIG_SHOWN];

	for (unsigned bit = 0; bit + 1 < ARRAY_LEN(names); bit++)
		names[bit] = config_capture_name((enum config_capture)(1u << bit));
	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of names such as [\"samples\"], found %s",
					   config_found(node, shown));
	for (const struct json_node *name = node->first; name != NULL; name = name->next) {
		unsigned bit;
		int r;

		snprintf(within.path, sizeof(within.path), "incidents.captures[%zu]", index++);
		r = config_read_choice(&within, name, names, &bit);

		if (r < 0)
			return r;
		captures |= 1u << bit;
	}
	config->incidents.captures = captures;
	return 0;
}

/* "stacks": "off" is short for "stacks": { "mode": "off" }. */
static int apply_stacks(const struct config_scope *within, const struct json_node *section, struct config_merge *merge)
{
	struct json_node mode = *section, object = *section;

	if (section->type == JSON_STRING) {
		mode.key = "mode";
		mode.key_len = strlen(mode.key);
		mode.next = NULL;
		object.type = JSON_OBJECT;
		object.first = &mode;
	}
	return config_field_apply(within, config_section_fields, config_section_field_count, "stacks", &object,
				  merge->config, merge->origins);
}

/* Reads one document over what is there. The scope stands for all of it. 0; -EINVAL; -ENOMEM. */
static int config_section_apply(const struct config_scope *scope, const struct json_node *root,
				struct config_merge *merge)
{
	static const char *const sections[] = { "sampling", "ring", "incidents", "metrics", "stacks", "history" };
	struct config_scope within = *scope;
	int r = config_field_apply(scope, config_section_fields, config_section_field_count, "", root, merge->config,
				   merge->origins);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(sections); i++) {
		const struct json_node *section = json_member(root, sections[i]);

		if (section == NULL)
			continue;
		snprintf(within.path, sizeof(within.path), "%s", sections[i]);
		r = strcmp(sections[i], "stacks") == 0
			    ? apply_stacks(&within, section, merge)
			    : config_field_apply(&within, config_section_fields, config_section_field_count,
						 sections[i], section, merge->config, merge->origins);
		if (r == 0 && json_member(section, "captures") != NULL)
			r = read_captures(&within, json_member(section, "captures"), merge->config);
		if (r == 0 && json_member(section, "container_labels") != NULL)
			r = config_labels_read_metrics(&within, json_member(section, "container_labels"),
						       &merge->config->metrics);
	}
	return r;
}

/* ---- what must agree between sections ---- */

static const struct config_origin *origin_of(const struct config_merge *merge, size_t offset)
{
	size_t i = 0;

	while (config_section_fields[i].size == 0 || config_section_fields[i].offset != offset)
		i++;
	return &merge->origins[i];
}

/* Refuses the value at offset, or the other one if that is a default. */
__attribute__((format(printf, 4, 5))) static int contradicts(const struct config_merge *merge, size_t offset,
							     size_t other, const char *format, ...)
{
	bool use_other = origin_of(merge, offset)->place.line == 0;
	const struct config_origin *origin = origin_of(merge, use_other ? other : offset);
	const struct config_field *field = &config_section_fields[origin - merge->origins];
	struct config_scope scope = { .file = origin->file, .err = merge->err };
	char message[200];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	snprintf(scope.path, sizeof(scope.path), "%s", field->section);
	return config_refuse(&scope, origin->place, field->key, "%s", message);
}

/* Nothing is read more often than the sampler ticks. */
static int check_interval(const struct config_merge *merge, size_t offset)
{
	struct config *config = merge->config;
	uint64_t *value = (uint64_t *)(void *)((char *)config + offset);
	const struct config_origin *origin = origin_of(merge, offset);
	char shown[UNITS_TEXT_MAX], interval[UNITS_TEXT_MAX];

	if (*value >= config->sampling.interval_ns ||
	    (*value == 0 && offset == offsetof(struct config, sampling.fds_interval_ns)))
		return 0;
	if (origin->place.line == 0) {
		*value = config->sampling.interval_ns;
		return 0;
	}
	return contradicts(merge, offset, offset, "shorter than sampling.interval: expected at least %s, found %s",
			   units_format_duration(interval, sizeof(interval), config->sampling.interval_ns),
			   units_format_duration(shown, sizeof(shown), *value));
}

static int check_sampling(const struct config_merge *merge)
{
	static const size_t offsets[] = {
		offsetof(struct config, sampling.heartbeat_ns),
		offsetof(struct config, sampling.cgroup_interval_ns),
		offsetof(struct config, sampling.peak_interval_ns),
		offsetof(struct config, sampling.fds_interval_ns),
		offsetof(struct config, sampling.limits_interval_ns),
		offsetof(struct config, sampling.rescan_interval_ns),
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(offsets); i++)
		r = check_interval(merge, offsets[i]);
	return r;
}

static int check_ring(const struct config_merge *merge)
{
	const struct config_ring *ring = &merge->config->ring;
	size_t size = offsetof(struct config, ring.size_bytes);
	size_t page = offsetof(struct config, ring.page_bytes);
	char shown[UNITS_TEXT_MAX];

	if ((ring->page_bytes & (ring->page_bytes - 1)) != 0)
		return contradicts(merge, page, page, "expected a power of two such as \"64KiB\", found %s",
				   units_format_bytes(shown, sizeof(shown), ring->page_bytes));
	if (ring->size_bytes < 4ULL * ring->page_bytes)
		return contradicts(merge, size, page, "the ring needs four pages: expected ring.size of at least %s",
				   units_format_bytes(shown, sizeof(shown), 4ULL * ring->page_bytes));
	return 0;
}

static int check_incidents(const struct config_merge *merge)
{
	struct config_incidents *incidents = &merge->config->incidents;
	size_t one = offsetof(struct config, incidents.max_incident_bytes);
	size_t all = offsetof(struct config, incidents.max_bytes);
	char shown[UNITS_TEXT_MAX];

	if (incidents->before_ns + incidents->after_ns == 0)
		return contradicts(merge, offsetof(struct config, incidents.before_ns),
				   offsetof(struct config, incidents.after_ns),
				   "incidents would hold nothing: expected \"before\" or \"after\" above 0");
	if (incidents->max_incident_bytes <= incidents->max_bytes)
		return 0;
	if (origin_of(merge, one)->place.line == 0) {
		incidents->max_incident_bytes = incidents->max_bytes;
		return 0;
	}
	return contradicts(merge, one, all, "more than all incidents may take: expected at most incidents.max_size, %s",
			   units_format_bytes(shown, sizeof(shown), incidents->max_bytes));
}

/* Holds the values against each other, and lets defaults give way. 0 or -EINVAL. */
static int config_section_agree(const struct config_merge *merge)
{
	int r = check_sampling(merge);

	if (r == 0)
		r = check_ring(merge);
	return r == 0 ? check_incidents(merge) : r;
}

/* Sets all sections to their defaults. */
static void config_section_defaults(struct config *config)
{
	config_field_defaults(config_section_fields, config_section_field_count, config);
	config->incidents.captures = CONFIG_CAPTURE_ALL;
}

/* ---- command templates ---- */

/*
 * A word is walked piece by piece: a piece is a placeholder, or one byte. Check, use and expansion use
 * the same walk, so they cannot disagree about what a placeholder is. Rejected: a shell, in which the
 * name of a process could be a program; quoting, which fails where it is forgotten once.
 */

static const char *const words[COMMAND_TEMPLATE_PLACEHOLDERS] = {
	[COMMAND_TEMPLATE_PID] = "{pid}",     [COMMAND_TEMPLATE_INCIDENT] = "{incident}",
	[COMMAND_TEMPLATE_RULE] = "{rule}",   [COMMAND_TEMPLATE_TARGET] = "{target}",
	[COMMAND_TEMPLATE_NAME] = "{name}",   [COMMAND_TEMPLATE_HOST] = "{host}",
	[COMMAND_TEMPLATE_VALUE] = "{value}", [COMMAND_TEMPLATE_THRESHOLD] = "{threshold}",
	[COMMAND_TEMPLATE_TIME] = "{time}",   [COMMAND_TEMPLATE_HEADLINE] = "{headline}",
	[COMMAND_TEMPLATE_JSON] = "{json}",
};

/* What stands at one place of a word. */
struct piece {
	enum command_template_placeholder
		placeholder; /* COMMAND_TEMPLATE_PLACEHOLDERS: none, the byte stands for itself */
	size_t len;          /* in the word */
	bool stray;          /* a { that begins nothing */
};

static struct piece piece_at(const char *at)
{
	if (*at != '{')
		return (struct piece){ COMMAND_TEMPLATE_PLACEHOLDERS, 1, false };
	if (at[1] == '{')
		return (struct piece){ COMMAND_TEMPLATE_PLACEHOLDERS, 2, false };
	for (size_t i = 0; i < COMMAND_TEMPLATE_PLACEHOLDERS; i++)
		if (strncmp(at, words[i], strlen(words[i])) == 0)
			return (struct piece){ (enum command_template_placeholder)i, strlen(words[i]), false };
	return (struct piece){ COMMAND_TEMPLATE_PLACEHOLDERS, 1, true };
}

/* 0; -EINVAL: something in braces is no placeholder before end: it begins at *ret_at. */
static int command_template_check(const char *word, enum command_template_placeholder end, size_t *ret_at)
{
	for (size_t at = 0; word[at] != '\0'; at += piece_at(word + at).len) {
		const struct piece piece = piece_at(word + at);

		if (!piece.stray && (piece.placeholder < end || piece.placeholder == COMMAND_TEMPLATE_PLACEHOLDERS))
			continue;
		*ret_at = at;
		return -EINVAL;
	}
	return 0;
}

bool command_template_uses(const char *word, enum command_template_placeholder placeholder)
{
	for (size_t at = 0; word[at] != '\0'; at += piece_at(word + at).len)
		if (piece_at(word + at).placeholder == placeholder)
			return true;
	return false;
}

const char *command_template_safe(const char *text, char buf[COMMAND_TEMPLATE_SAFE_MAX])
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	size_t len = strnlen(text, COMMAND_TEMPLATE_SAFE_MAX - 1);

	for (size_t i = 0; i < len; i++)
		buf[i] =
			strchr(i == 0 ? "-." : "", text[i]) == NULL && strchr(allowed, text[i]) != NULL ? text[i] : '_';
	buf[len] = '\0';
	return buf;
}

size_t command_template_expand(const char *word, const struct command_template_values *values, char *buf, size_t cap)
{
	size_t len = 0;

	for (size_t at = 0; word[at] != '\0';) {
		struct piece piece = piece_at(word + at);
		const char *text = word + at;
		size_t bytes = 1;

		if (piece.placeholder < COMMAND_TEMPLATE_PLACEHOLDERS) {
			text = values->text[piece.placeholder] != NULL ? values->text[piece.placeholder] : "";
			bytes = strlen(text);
		}
		if (len + bytes < cap)
			memcpy(buf + len, text, bytes);
		else if (len < cap) /* what does not fit is cut there, and stays cut */
			cap = len + 1;
		len += bytes;
		at += piece.len;
	}
	if (cap > 0)
		buf[len < cap ? len : cap - 1] = '\0';
	return len;
}

/* ---- labels ---- */

/* No value is longer. */
#define GLOB_MAX LABELS_BYTES_MAX

static bool is_key(const char *text, size_t len)
{
	if (len == 0 || len > LABELS_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] >= 0x7f)
			return false;

	return true;
}

static int refuse_key(const struct config_scope *scope, struct json_place place, const char *text, size_t len)
{
	char shown[CONFIG_SHOWN];

	return config_refuse(
		scope, place, NULL,
		"no label is called so: expected 1 to %u visible ASCII characters such as \"app\", found %s",
		LABELS_KEY_MAX, config_quote(text, len, shown));
}

/* The scope stands for the labels. "" is short for "*": that there is such a label. */
static int read_label(const struct config_scope *scope, const struct json_node *node, struct config_label *ret)
{
	char shown[CONFIG_SHOWN];

	if (!is_key(node->key, node->key_len))
		return refuse_key(scope, node->key_place, node->key, node->key_len);
	ret->key = node->key;
	ret->pattern = "*";
	if (node->type != JSON_STRING)
		return config_refuse_value(scope, node, "expected a glob such as \"web-*\", found %s",
					   config_found(node, shown));

	int r = node->text_len > 0 ? config_read_text(scope, node, GLOB_MAX, &ret->pattern) : 0;

	return r == 0 ? config_check_glob(scope, node) : r;
}

/*
 * "labels" of a target entry, an object of globs. The scope stands for the entry. 0; -EINVAL;
 * -ENOMEM.
 */
static int config_labels_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret)
{
	struct config_scope within = *scope;
	char shown[CONFIG_SHOWN];
	int r = 0;

	if (ret->selector != CONFIG_CONTAINERS)
		return config_refuse_value(scope, node,
					   "only containers have labels: expected it beside \"containers\"");
	if (node->type != JSON_OBJECT || node->count == 0)
		return config_refuse_value(scope, node, "expected labels such as { \"app\": \"web-*\" }, found %s",
					   node->type == JSON_OBJECT ? "none" : config_found(node, shown));
	if (node->count > CONFIG_LABELS_MAX)
		return config_refuse_value(scope, node, "too many: expected at most %d, found %zu", CONFIG_LABELS_MAX,
					   node->count);
	ret->labels = calloc(node->count, sizeof(*ret->labels));
	if (ret->labels == NULL)
		return -ENOMEM;
	snprintf(within.path, sizeof(within.path), "%.50s.labels", scope->path);
	for (const struct json_node *label = node->first; r == 0 && label != NULL; label = label->next)
		r = read_label(&within, label, &ret->labels[ret->label_count++]);
	return r;
}

/*
 * "container_labels" of the metrics, an array of keys, in the place of what was there. The scope
 * stands for the section. 0; -EINVAL; -ENOMEM.
 */
static int config_labels_read_metrics(const struct config_scope *scope, const struct json_node *node,
				      struct config_metrics *ret)
{
	struct config_scope within = *scope;
	const char **keys;
	char shown[CONFIG_SHOWN];
	size_t count = 0;

	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of labels such as [\"app\"], found %s",
					   config_found(node, shown));
	if (node->count > CONFIG_LABELS_MAX)
		return config_refuse_value(scope, node, "too many: expected at most %d, found %zu", CONFIG_LABELS_MAX,
					   node->count);
	free(ret->container_labels);
	ret->container_label_count = 0;
	ret->container_labels = keys = calloc(node->count + 1, sizeof(*keys));
	if (keys == NULL)
		return -ENOMEM;
	for (const struct json_node *key = node->first; key != NULL; key = key->next) {
		snprintf(within.path, sizeof(within.path), "%.30s.container_labels[%u]", scope->path, (unsigned)count);
		if (key->type != JSON_STRING)
			return config_refuse(&within, key->place, NULL, "expected a label such as \"app\", found %s",
					     config_found(key, shown));
		if (!is_key(key->text, key->text_len))
			return refuse_key(&within, key->place, key->text, key->text_len);
		for (size_t i = 0; i < count; i++)
			if (strcmp(keys[i], key->text) == 0)
				return config_refuse(&within, key->place, NULL,
						     "named twice: expected each label once");
		keys[count++] = key->text;
	}
	ret->container_label_count = count;
	return 0;
}

/* ---- what a regular expression costs ---- */

/*
 * glibc's regcomp(3) trusts its pattern: "a++++++++++++++++++++++++" takes
 * gigabytes, because what is repeated is copied, and copies of copies multiply; a chain of "a?*?"
 * takes years, because its ways past optional loops within loops are all walked. Both are estimated
 * here, in one pass and rather too high than too low.
 *
 * 	size   nodes: a character 1, "+" doubles, "{n}" takes n times, what it is applied to
 * 	depth  repetitions within repetitions: "((a+)*b)?" has 3
 * 	deep   how many such of three levels or more there are, copies counted: each may double the time
 *
 * Measured with glibc 2.36: size 2,000 is 0.2 s and 10 MB at worst; 20 of "a?*?" take 0.4 s, 24
 * take 6 s.
 */

#define SIZE_MOST 2000UL
#define DEEP_MOST 10UL
#define GROUPS_MOST 30
#define DEEP 3

struct cost {
	unsigned long size, deep;
	unsigned depth;
};

static struct cost join(struct cost a, struct cost b)
{
	return (struct cost){ a.size + b.size, a.deep + b.deep, a.depth > b.depth ? a.depth : b.depth };
}

static struct cost repeat(struct cost atom, unsigned long copies)
{
	unsigned depth = atom.depth + 1;

	return (struct cost){ atom.size * copies + 1, (atom.deep + (depth >= DEEP)) * copies, depth };
}

static bool is_cheap(struct cost cost)
{
	return cost.size <= SIZE_MOST && cost.deep <= DEEP_MOST;
}

/* The copies that the operator at *at makes, *at is then its last character. 0: it is none. */
static unsigned long copies(const char **at)
{
	unsigned long least, most;
	char *end;

	if (**at == '*' || **at == '?')
		return 1;
	if (**at == '+')
		return 2;
	if (**at != '{')
		return 0;
	/* "{3}", "{2,}", "{,5}", "{2,5}" */
	least = strtoul(*at + 1, &end, 10);
	most = least;
	if (*end == ',')
		most = end[1] == '}' ? (end++, least < SIZE_MOST ? least + 1 : least) : strtoul(end + 1, &end, 10);
	if (*end != '}')
		return 0;
	*at = end;
	most = most > least ? most : least;
	return most == 0 ? 1 : most <= SIZE_MOST ? most : SIZE_MOST + 1;
}

/*
 * "\\1": what an earlier group has matched, which POSIX does not have here. Looking for it takes
 * time that is cubic in the text.
 */
static bool is_back_reference(const char *at)
{
	return at[0] == '\\' && at[1] >= '1' && at[1] <= '9';
}

/* Where the character or set at `at` ends at the earliest: its last byte. */
static const char *atom_end(const char *at)
{
	const char *end = NULL;

	if (*at == '\\' && at[1] != '\0')
		return at + 1;
	if (*at == '[' && at[1] != '\0')
		end = strchr(at + (at[1] == '^' && at[2] != '\0' ? 3 : 2), ']');
	return end != NULL ? end : at;
}

/*
 * Whether regcomp(3) compiles this POSIX extended expression within a second and a few megabytes.
 * It need not be a valid expression: regcomp checks that.
 */
static bool config_regex_is_cheap(const char *regex)
{
	struct cost before[GROUPS_MOST + 1] = { 0 }; /* in each open group, what precedes the atom */
	struct cost atom = { 0 };
	size_t group = 0;

	for (const char *at = regex; *at != '\0'; at++) {
		unsigned long times = copies(&at);

		if (times > 0) {
			atom = repeat(atom, times);
		} else if (*at == '(') {
			if (group == GROUPS_MOST)
				return false;
			before[group] = join(before[group], atom);
			before[++group] = atom = (struct cost){ 0 };
		} else if (*at == ')' && group > 0) {
			atom = join(join(before[group--], atom), (struct cost){ 3, 0, 0 });
		} else {
			before[group] = join(before[group], atom);
			atom = (struct cost){ 1, 0, 0 };
			if (is_back_reference(at))
				return false;
			at = atom_end(at);
		}
		if (!is_cheap(join(before[group], atom)))
			return false;
	}
	return true;
}

/* ---- targets: a name, exactly one selector, and what a match becomes ---- */

/* PID_MAX_LIMIT of 64-bit kernels, include/linux/threads.h. */
#define PID_LIMIT 4194304
/* TASK_COMM_LEN less its NUL: the kernel cuts longer names. */
#define COMM_MAX 15
/* More than is written by hand. */
#define REGEX_MAX 1024

// clang-format off
const struct config_field config_target_fields[] = {
	CONFIG_OTHER("", "name"),
	CONFIG_OTHER("", "per"),
	CONFIG_OTHER("", "pid"),
	CONFIG_OTHER("", "pidfile"),
	CONFIG_OTHER("", "comm"),
	CONFIG_OTHER("", "exe"),
	CONFIG_OTHER("", "cmdline"),
	CONFIG_OTHER("", "cgroup"),
	CONFIG_OTHER("", "unit"),
	CONFIG_OTHER("", "containers"),
	CONFIG_OTHER("", "labels"),
	CONFIG_OTHER("", "run"),
	/* Sooner, and nothing has moved; later than ten minutes, it is another story. */
	CONFIG_RANGE("", "again", DURATION, struct config_target, again_ns, 0, 100 * NS_PER_MS, 600 * NS_PER_S,
		.zero = true),
	CONFIG_ROW("", "tree", BOOL, struct config_target, tree),
	CONFIG_ROW("", "outside", BOOL, struct config_target, outside),
};
// clang-format on
const size_t config_target_field_count = ARRAY_LEN(config_target_fields);

static const char *const selectors = "pid, pidfile, comm, exe, cmdline, cgroup, unit, containers";

static int check_regex(const struct config_scope *scope, const struct json_node *node)
{
	regex_t regex;
	char why[128];
	int r;

	if (!config_regex_is_cheap(node->text))
		return config_refuse_value(scope, node,
					   "would take too long to compile, or to match: expected fewer repetitions "
					   "within repetitions, and no \\1");
	if (!text_regex_is_balanced(node->text))
		return config_refuse_value(scope, node, "expected a ( for each ), or \\)");
	r = regcomp(&regex, node->text, REG_EXTENDED | REG_NOSUB);
	if (r == 0) {
		regfree(&regex);
		return 0;
	}
	regerror(r, &regex, why, sizeof(why));
	return config_refuse_value(scope, node, "expected a POSIX extended regular expression: %s", why);
}

static int check_pattern(const struct config_scope *scope, const struct json_node *node, enum config_selector selector)
{
	char shown[CONFIG_SHOWN];

	config_found(node, shown);
	if (selector == CONFIG_COMM && node->text_len > COMM_MAX)
		return config_refuse_value(
			scope, node, "no process has this name: the kernel cuts names to %d bytes: expected \"%.*s\"",
			COMM_MAX, COMM_MAX, shown + 1);
	if ((selector == CONFIG_PIDFILE || selector == CONFIG_EXE || selector == CONFIG_CGROUP) && node->text[0] != '/')
		return config_refuse_value(scope, node, "expected a path that begins with /, found %s", shown);
	if (selector == CONFIG_UNIT && strpbrk(node->text, ".*") == NULL)
		return config_refuse_value(scope, node,
					   "expected a unit name with its suffix, such as \"nginx.service\", found %s",
					   shown);
	if (selector == CONFIG_UNIT && strchr(node->text, '/') != NULL)
		return config_refuse_value(scope, node, "expected a unit name, not a path, found %s", shown);
	if (selector == CONFIG_EXE || selector == CONFIG_CGROUP || selector == CONFIG_UNIT ||
	    selector == CONFIG_CONTAINERS)
		return config_check_glob(scope, node);
	if (selector == CONFIG_CMDLINE)
		return check_regex(scope, node);
	return 0;
}

/* Of systemd's types those that have processes. */
static bool has_unit_type(const char *pattern)
{
	static const char *const types[] = { ".service", ".scope", ".slice", ".socket", ".mount", ".swap" };
	size_t len = strlen(pattern);

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (len > strlen(types[i]) && strcmp(pattern + len - strlen(types[i]), types[i]) == 0)
			return true;
	return len > 0 && strchr("*?]", pattern[len - 1]) != NULL;
}

bool config_target_doubt(const struct config_target *target, char *ret, size_t cap)
{
	const char *pattern = target->selector == CONFIG_PID ? "" : target->pattern;
	const char *why = NULL;

	if (target->selector == CONFIG_COMM && strpbrk(pattern, "*?[") != NULL)
		why = "\"comm\" is compared as it is: for a pattern use \"exe\" (a glob) or \"cmdline\" (an "
		      "expression)";
	else if (target->selector == CONFIG_COMM && pattern[0] == '/')
		why = "\"comm\" is the name of a process, without a directory: use \"exe\" for a path";
	else if (target->selector == CONFIG_UNIT && !has_unit_type(pattern))
		why = "no unit of this type has processes: expected .service, .scope, .slice, .socket, .mount or .swap";
	else if (target->selector == CONFIG_CGROUP && strncmp(pattern, "/sys/fs/cgroup/", 15) == 0)
		why = "\"cgroup\" is a path below the root of the hierarchy, as /proc/PID/cgroup has it";
	else if (target->selector == CONFIG_CGROUP && pattern[1] != '\0' &&
		 (pattern[strlen(pattern) - 1] == '/' || strstr(pattern, "//") != NULL))
		why = "no cgroup has a path with an empty part";
	if (why != NULL)
		snprintf(ret, cap, "%s", why);
	return why != NULL;
}

static int read_pid(const struct config_scope *scope, const struct json_node *node, int32_t *ret)
{
	uint64_t pid = 0;
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_NUMBER || units_count(node->text, node->text_len, &pid) < 0 || pid < 1 ||
	    pid > PID_LIMIT)
		return config_refuse_value(scope, node, "expected a process id, 1 to %d without quotes, found %s",
					   PID_LIMIT, config_found(node, shown));
	*ret = (int32_t)pid;
	return 0;
}

static int read_selector(const struct config_scope *scope, const struct json_node *entry, struct config_target *ret)
{
	const struct json_node *found = NULL;
	int r;

	for (enum config_selector i = CONFIG_PID; i <= CONFIG_CONTAINERS; i++) {
		const struct json_node *node = json_member(entry, config_selector_name(i));

		if (node == NULL)
			continue;
		if (found != NULL)
			return config_refuse_value(scope, node,
						   "a second selector beside \"%s\": expected exactly one of %s",
						   found->key, selectors);
		found = node;
		ret->selector = i;
	}
	if (found == NULL)
		return config_refuse(scope, entry->place, NULL, "selects nothing: expected exactly one of %s",
				     selectors);
	if (ret->selector == CONFIG_PID)
		return read_pid(scope, found, &ret->pid);
	r = config_read_text(scope, found, ret->selector == CONFIG_CMDLINE ? REGEX_MAX : PATH_MAX - 1, &ret->pattern);
	return r < 0 ? r : check_pattern(scope, found, ret->selector);
}

static int read_per(const struct config_scope *scope, const struct json_node *entry, struct config_target *ret)
{
	static const char *const choices[] = { "process", "group", "cgroup", NULL };
	const struct json_node *node = json_member(entry, "per");
	bool by_cgroup = ret->selector >= CONFIG_CGROUP;
	unsigned choice = by_cgroup ? CONFIG_PER_CGROUP : CONFIG_PER_PROCESS;
	int r = node != NULL ? config_read_choice(scope, node, choices, &choice) : 0;

	if (r < 0)
		return r;
	ret->per = (enum config_per)choice;
	return 0;
}

/*
 * A cgroup holds the descendants of its processes, unless they were moved, which is then what was
 * wanted.
 */
static int check_tree(const struct config_scope *scope, const struct json_node *entry,
		      const struct config_target *target)
{
	const struct json_node *node = json_member(entry, "tree");

	if (!target->tree)
		return 0;
	if (target->selector > CONFIG_CMDLINE)
		return config_refuse_value(scope, node,
					   "a cgroup has its processes' descendants in it: expected true only with %s",
					   "pid, pidfile, comm, exe or cmdline");
	if (target->per == CONFIG_PER_CGROUP)
		return config_refuse_value(
			scope, node,
			"a tree is of processes, not of cgroups: expected \"per\": \"process\" or \"group\" with it");
	return 0;
}

/*
 * Reads an entry. The scope stands for it ("targets[3]"). 0; -ENOMEM; -EINVAL. ret is zeroed; its
 * commands belong to the caller, whatever is returned (config_free).
 */
static int config_target_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret)
{
	const struct json_node *name = json_member(node, "name");
	const struct json_node *run = json_member(node, "run"), *labels = json_member(node, "labels");
	int r = config_field_apply(scope, config_target_fields, config_target_field_count, "", node, ret, NULL);

	if (r < 0)
		return r;
	if (name == NULL)
		return config_refuse(scope, node->place, NULL, "has no name: expected a member \"name\"");
	r = config_read_name(scope, name, &ret->name);
	if (r == 0)
		r = read_selector(scope, node, ret);
	if (r == 0)
		r = read_per(scope, node, ret);
	if (r == 0 && labels != NULL)
		r = config_labels_read(scope, labels, ret);
	if (r == 0)
		r = check_tree(scope, node, ret);
	return r == 0 && run != NULL ? config_run_read(scope, run, ret) : r;
}

/* ---- commands of a target: an array of words, the first an absolute path. No shell, no search. ---- */

/*
 * timeout     A dump of a large process takes so long, and an incident waits for it. After ten minutes
 *             it hangs.
 * max_output  As of other captures; more than a gigabyte is of no use.
 */
// clang-format off
const struct config_field config_run_fields[] = {
	CONFIG_OTHER("", "name"),
	CONFIG_OTHER("", "command"),
	CONFIG_RANGE("", "timeout",    DURATION, struct config_run, timeout_ns,       30 * NS_PER_S,
		100 * NS_PER_MS, 600 * NS_PER_S),
	CONFIG_RANGE("", "max_output", BYTES,    struct config_run, max_output_bytes, MIB,           KIB,
		1024 * MIB),
	CONFIG_OTHER("", "rules"),
	CONFIG_ROW("", "privileged", BOOL, struct config_run, privileged),
};
// clang-format on
const size_t config_run_field_count = ARRAY_LEN(config_run_fields);

/* Makes a list with room for the texts of an array, and NULL. example: of what was expected. */
static int read_texts(const struct config_scope *scope, const struct json_node *node, size_t max, const char *example,
		      const char ***ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_ARRAY || node->count == 0)
		return config_refuse_value(scope, node, "expected an array of texts such as %s, found %s", example,
					   node->type == JSON_ARRAY ? "none" : config_found(node, shown));
	if (node->count > max)
		return config_refuse_value(scope, node, "too many: expected at most %zu, found %zu", max, node->count);
	*ret = calloc(node->count + 1, sizeof(**ret));
	return *ret != NULL ? 0 : -ENOMEM;
}

/* The scope of an element: "targets[0].run[1].command[2]". */
static struct config_scope element(const struct config_scope *scope, const char *key, size_t index)
{
	struct config_scope within = *scope;

	snprintf(within.path, sizeof(within.path), "%.40s.%.10s[%zu]", scope->path, key, index);
	return within;
}

/* An argument may be empty, a path or a pattern may not. */
static int read_word(const struct config_scope *scope, const struct json_node *node, bool may_be_empty,
		     const char **ret)
{
	if (may_be_empty && node->type == JSON_STRING && node->text_len == 0) {
		*ret = node->text;
		return 0;
	}
	return config_read_text(scope, node, PATH_MAX - 1, ret);
}

/* Placeholders before end are known here. */
static int check_template(const struct config_scope *scope, const struct json_node *node, const char *text,
			  enum command_template_placeholder end)
{
	char shown[CONFIG_SHOWN];
	size_t at;

	if (command_template_check(text, end, &at) == 0)
		return 0;
	return config_refuse(scope, node->place, NULL,
			     "unknown placeholder at %.24s: expected one of %s, or {{ for a {",
			     config_quote(text + at, strlen(text + at), shown),
			     end == COMMAND_TEMPLATE_HOST ? COMMAND_TEMPLATE_LIST : COMMAND_TEMPLATE_NOTIFY_LIST);
}

static int read_argument(const struct config_scope *scope, const struct json_node *node, size_t index,
			 enum command_template_placeholder end, const char **ret)
{
	char shown[CONFIG_SHOWN];
	int r = read_word(scope, node, index > 0, ret);

	if (r < 0)
		return r;
	if (index == 0 && ((*ret)[0] != '/' || strchr(*ret, '{') != NULL))
		return config_refuse(
			scope, node->place, NULL,
			"no program is searched for, no shell is asked: expected a path that begins with / "
			"and has no placeholder, found %s",
			config_found(node, shown));
	return check_template(scope, node, *ret, end);
}

/* The words of a command, NULL at the end; what was read of them is the caller's, whatever is returned. */
static int read_command(const struct config_scope *scope, const struct json_node *node, const char *example,
			enum command_template_placeholder end, const char ***ret, size_t *ret_count)
{
	int r = read_texts(scope, node, CONFIG_RUN_WORDS_MAX, example, ret);

	for (const struct json_node *word = node->first; r == 0 && word != NULL; word = word->next) {
		const struct config_scope within = element(scope, "command", *ret_count);

		r = read_argument(&within, word, *ret_count, end, *ret + *ret_count);
		(*ret_count)++;
	}
	return r;
}

static int read_rules(const struct config_scope *scope, const struct json_node *node, struct config_run *run)
{
	int r = read_texts(scope, node, CONFIG_RUN_RULES_MAX, "[\"memory-*\"]", &run->rules);

	for (const struct json_node *rule = node->first; r == 0 && rule != NULL; rule = rule->next) {
		const struct config_scope within = element(scope, "rules", run->rule_count);

		r = config_read_text(&within, rule, 64, &run->rules[run->rule_count]);
		run->rule_count++;
	}
	return r;
}

static int check_name(const struct config_scope *scope, const struct json_node *name,
		      const struct config_target *target)
{
	size_t n = target->run_count - 1;

	if (strlen(target->runs[n].name) > CONFIG_RUN_NAME_MAX)
		return config_refuse_value(scope, name, "becomes part of a file name: expected at most %d characters",
					   CONFIG_RUN_NAME_MAX);
	for (size_t i = 0; i < n; i++)
		if (strcmp(target->runs[i].name, target->runs[n].name) == 0)
			return config_refuse_value(
				scope, name, "duplicate name \"%s\": expected each command of a target to have its own",
				target->runs[n].name);
	return 0;
}

/* The scope stands for the command. */
static int read_run(const struct config_scope *scope, const struct json_node *node, struct config_target *target)
{
	struct config_run *run = &target->runs[target->run_count++];
	const struct json_node *name = json_member(node, "name"), *command = json_member(node, "command");
	const struct json_node *rules = json_member(node, "rules");
	int r;

	config_field_defaults(config_run_fields, config_run_field_count, run);
	r = config_field_apply(scope, config_run_fields, config_run_field_count, "", node, run, NULL);
	if (r < 0)
		return r;
	if (name == NULL || command == NULL)
		return config_refuse(scope, node->place, NULL, "has no %s: expected members \"name\" and \"command\"",
				     name == NULL ? "name" : "command");
	r = config_read_name(scope, name, &run->name);
	if (r == 0)
		r = check_name(scope, name, target);
	if (r == 0)
		r = read_command(scope, command, "[\"/usr/bin/gcore\", \"{pid}\"]", COMMAND_TEMPLATE_HOST, &run->words,
				 &run->word_count);
	return r == 0 && rules != NULL ? read_rules(scope, rules, run) : r;
}

/*
 * Reads the value of "run". The scope stands for the target entry. 0; -ENOMEM; -EINVAL. What was
 * read is the target's: config_free frees it.
 */
static int config_run_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret)
{
	char shown[CONFIG_SHOWN];
	int r = 0;

	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of objects, [ { ... } ], found %s",
					   config_found(node, shown));
	if (node->count > CONFIG_RUNS_MAX)
		return config_refuse_value(scope, node, "too many: expected at most %d, found %zu", CONFIG_RUNS_MAX,
					   node->count);
	ret->runs = calloc(node->count + 1, sizeof(*ret->runs));
	if (ret->runs == NULL)
		return -ENOMEM;
	for (const struct json_node *run = node->first; r == 0 && run != NULL; run = run->next) {
		const struct config_scope within = element(scope, "run", ret->run_count);

		r = read_run(&within, run, ret);
	}
	return r;
}

/* ---- notify: who is told of an incident, by a command or the socket of a helper ---- */

/*
 * timeout   A server that does not answer by then is tried again later.
 * retry     A server that restarts is back after 5, 25 and 105 s; four tries are over in two minutes.
 * per hour  A person reads no more; what was left out is counted in the next one.
 */
// clang-format off
const struct config_field config_notify_fields[] = {
	CONFIG_OTHER("", "name"),
	CONFIG_OTHER("", "command"),
	CONFIG_ROW("", "socket", PATH, struct config_notify, socket, .text = "", .is_file = true),
	CONFIG_OTHER("", "input"),
	CONFIG_RANGE("", "timeout", DURATION, struct config_notify, timeout_ns, 30 * NS_PER_S,
		100 * NS_PER_MS, 120 * NS_PER_S),
	CONFIG_RANGE("", "retry",   DURATION, struct config_notify, retry_ns,   5 * NS_PER_S,
		10 * NS_PER_MS, 600 * NS_PER_S),
	CONFIG_RANGE("", "tries",        COUNT, struct config_notify, tries,        4,  1, 10),
	CONFIG_RANGE("", "max_per_hour", COUNT, struct config_notify, max_per_hour, 20, 1, 3600),
	CONFIG_ROW("", "privileged", BOOL, struct config_notify, privileged),
	CONFIG_ROW("", "default",    BOOL, struct config_notify, by_default, .initial = true),
};
// clang-format on
const size_t config_notify_field_count = ARRAY_LEN(config_notify_fields);

#define NOTIFY_INPUT_MAX 4096 /* of the text in the configuration */
#define NOTIFY_INPUT "{json}\n"
#define SUN_PATH_MAX 107 /* unix(7) */

static int read_notify_input(const struct config_scope *scope, const struct json_node *node, struct config_notify *ret)
{
	char shown[CONFIG_SHOWN];
	int r;

	ret->input = NOTIFY_INPUT;
	if (node == NULL)
		return 0;
	if (node->type == JSON_STRING && node->text_len == 0) {
		ret->input = node->text;
		return 0;
	}
	if (node->type != JSON_STRING)
		return config_refuse_value(scope, node, "expected a text such as \"{headline}\", found %s",
					   config_found(node, shown));
	r = config_read_text(scope, node, NOTIFY_INPUT_MAX, &ret->input);
	return r < 0 ? r : check_template(scope, node, ret->input, COMMAND_TEMPLATE_PLACEHOLDERS);
}

/* The scope stands for the entry; ret is zeroed, and its words are the caller's, whatever is returned. */
static int config_notify_read(const struct config_scope *scope, const struct json_node *node, struct config_notify *ret)
{
	const struct json_node *name = json_member(node, "name"), *command = json_member(node, "command");
	const struct json_node *socket = json_member(node, "socket");
	int r;

	config_field_defaults(config_notify_fields, config_notify_field_count, ret);
	r = config_field_apply(scope, config_notify_fields, config_notify_field_count, "", node, ret, NULL);
	if (r < 0)
		return r;
	if (name == NULL)
		return config_refuse(scope, node->place, NULL, "has no name: expected a member \"name\"");
	r = config_read_name(scope, name, &ret->name);
	if (r < 0)
		return r;
	if ((command == NULL) == (socket == NULL))
		return config_refuse(scope, node->place, NULL, "expected exactly one of \"command\" and \"socket\"");
	if (socket != NULL && strlen(ret->socket) > SUN_PATH_MAX)
		return config_refuse_value(scope, socket, "too long for a socket: expected at most %d bytes",
					   SUN_PATH_MAX);
	if (socket != NULL && strlen(ret->socket) == 0)
		return config_refuse_value(scope, socket, "empty: expected a path that begins with /");
	if (socket != NULL && ret->privileged)
		return config_refuse_value(scope, json_member(node, "privileged"),
					   "a helper has rights of its own: expected it only with \"command\"");
	if (command != NULL)
		r = read_command(scope, command, "[\"/usr/bin/notify-send\", \"{headline}\"]",
				 COMMAND_TEMPLATE_PLACEHOLDERS, &ret->words, &ret->word_count);
	return r < 0 ? r : read_notify_input(scope, json_member(node, "input"), ret);
}

/* The names that a rule has in "notify": none is fine. */
static int read_rule_notify(const struct config_scope *scope, const struct json_node *node, const struct config *config,
			    struct config_rule *ret)
{
	char shown[CONFIG_SHOWN], hint[240];

	if (node == NULL)
		return 0;
	ret->has_notify = true;
	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of names such as [\"mail\"], found %s",
					   config_found(node, shown));
	ret->notify = calloc(node->count + 1, sizeof(*ret->notify));
	if (ret->notify == NULL)
		return -ENOMEM;
	for (const struct json_node *name = node->first; name != NULL; name = name->next) {
		const struct config_scope within = element(scope, "notify", ret->notify_count);
		struct config_guess guess = { .word = "" };
		size_t i = 0;
		int r = config_read_name(&within, name, &ret->notify[ret->notify_count]);

		if (r < 0)
			return r;
		guess.word = ret->notify[ret->notify_count];
		while (i < config->notify_count && strcmp(config->notifies[i].name, guess.word) != 0)
			config_guess_offer(&guess, config->notifies[i++].name);
		if (i == config->notify_count)
			return config_refuse(
				&within, name->place, NULL, "\"notify\" has no entry \"%s\"; %s", guess.word,
				config->notify_count ? config_guess_say(&guess, hint, sizeof(hint)) : "there is none");
		ret->notify_count++;
	}
	return 0;
}

/* ---- and the rules ---- */

static bool matches_any(const char *pattern, const struct config *config)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (fnmatch(pattern, config->rules[i].name, 0) == 0)
			return true;
	return fnmatch(pattern, CONFIG_RUN_MANUAL, 0) == 0;
}

static int agree(const struct config_scope *scope, const struct json_node *run, const struct config *config)
{
	const struct json_node *rules = json_member(run, "rules");
	struct config_guess guess = { 0 };
	char hint[240];
	size_t index = 0;

	for (const struct json_node *rule = rules != NULL ? rules->first : NULL; rule != NULL; rule = rule->next) {
		const struct config_scope within = element(scope, "rules", index++);

		if (matches_any(rule->text, config))
			continue;
		guess.word = rule->text;
		for (size_t i = 0; i < config->rule_count; i++)
			config_guess_offer(&guess, config->rules[i].name);
		config_guess_offer(&guess, CONFIG_RUN_MANUAL);
		return config_refuse(&within, rule->place, NULL, "no rule has such a name; %s",
				     config_guess_say(&guess, hint, sizeof(hint)));
	}
	return 0;
}

/*
 * Once the rules are known: each pattern of "rules" of each command must match the name of one. The
 * scope stands for the target entry, node is it. 0 or -EINVAL.
 */
static int config_run_agree(const struct config_scope *scope, const struct json_node *node, const struct config *config)
{
	const struct json_node *runs = json_member(node, "run");
	size_t index = 0;
	int r = 0;

	for (const struct json_node *run = runs != NULL ? runs->first : NULL; r == 0 && run != NULL; run = run->next) {
		const struct config_scope within = element(scope, "run", index++);

		r = agree(&within, run, config);
	}
	return r;
}

#define MINUTE (60 * NS_PER_S)
#define DAY (1440 * MINUTE)
/* A thousand times: a larger percentage is more likely a mistaken unit. */
#define PERCENT_MAX 100000.0

/*
 * Above these no value can be, so a rule would never fire: all memory that addresses of 57 bits
 * name, eight times; CPUs and tasks that a kernel can be built for (PID_MAX_LIMIT), descriptors of
 * all of them (fs.nr_open is at most 2^30), a page fault in each nanosecond of each CPU.
 */
#define BYTES_MAX 0x1p60
#define CORES_MAX 65536.0
#define TASKS_MAX 4194303.0
#define FDS_MAX 0x1p52
#define FAULTS_MAX 65536e9

static const char *const of_choices[] = { "limit", "core", "machine", NULL };
static const char *const rearm_choices[] = { "cooldown", "below", "high-water", NULL };
static const char *const usual_choices[] = { "average", "highest", NULL };

/*
 * window    A second is what users call a spike; below 10 ms CPU counters stand still between scheduler
 *           ticks; beyond an hour it is a trend and not a spike.
 * warmup    Five windows make an average worth comparing with, history of ten forgets a spike after
 *           ten.
 * cooldown  A spike that goes on is one incident; a minute leaves room for its end to be recorded.
 * count     No limit: what incidents may take is limited by the disk budget.
 */
// clang-format off
#define OTHER(k)                      CONFIG_OTHER("", k)
#define CHOICE(k, member, names)      CONFIG_ROW("", k, CHOICE, struct config_rule, member, .choices = names)
#define DURATION(k, member, ...)      CONFIG_RANGE("", k, DURATION, struct config_rule, member, __VA_ARGS__)
#define COUNT(k, member, ...)         CONFIG_RANGE("", k, COUNT, struct config_rule, member, __VA_ARGS__)

const struct config_field config_rule_fields[] = {
	OTHER   ("name"),
	OTHER   ("targets"),
	OTHER   ("metric"),
	CHOICE  ("of",           of,                      of_choices),
	/*       key             where                    default    least           most        */
	DURATION("window",       window_ns,               NS_PER_S,  NS_PER_MS,   60 * MINUTE),
	OTHER   ("percent"),
	OTHER   ("above"),
	OTHER   ("delta"),
	CHOICE  ("usual",        trigger.usual,           usual_choices),
	OTHER   ("minimum"),
	OTHER   ("maximum"),
	COUNT   ("warmup",       trigger.warmup,          5,         0,              TRIGGER_HISTORY_MAX),
	COUNT   ("history",      trigger.history,         10,        1,              TRIGGER_HISTORY_MAX),
	DURATION("for",          trigger.for_ns,          0,         0,              60 * MINUTE),
	DURATION("cooldown",     trigger.cooldown_ns,     MINUTE,    0,              30 * DAY),
	COUNT   ("count",        trigger.count,           0,         0,              1000000),
	DURATION("count_period", trigger.count_period_ns, DAY,       0,              3650 * DAY),
	CHOICE  ("rearm",        trigger.rearm,           rearm_choices),
	OTHER   ("notify"),
};
// clang-format on
const size_t config_rule_field_count = ARRAY_LEN(config_rule_fields);

/* What a rule is read with. */
struct reading {
	const struct config_scope *scope;
	const struct json_node *node;
	const struct config *config;
	struct config_rule *rule;
};

/* The first argument of what refuses a member: its value's place, the rule's if it is not there. */
#define refuse(reading, member, ...) config_refuse((reading)->scope, place_of(reading, member), member, __VA_ARGS__)

static struct json_place place_of(const struct reading *reading, const char *key)
{
	const struct json_node *member = key != NULL ? json_member(reading->node, key) : NULL;

	return member != NULL ? member->place : reading->node->place;
}

/* ---- metric and thresholds ---- */

static int read_metric(const struct reading *reading)
{
	const struct json_node *node = json_member(reading->node, "metric");
	struct config_guess guess = { 0 };
	char hint[240], shown[CONFIG_SHOWN];
	const char *name;
	int r;

	if (node == NULL)
		return refuse(reading, NULL, "has no metric: expected a member \"metric\"");
	r = config_read_text(reading->scope, node, 64, &name);
	if (r < 0)
		return r;
	if (metric_by_name(name, &reading->rule->metric))
		return 0;
	guess.word = name;
	for (unsigned i = 0; i < METRICS; i++)
		config_guess_offer(&guess, metric_name((enum metric)i));
	return refuse(reading, "metric", "unknown metric %s; %s", config_found(node, shown),
		      config_guess_say(&guess, hint, sizeof(hint)));
}

static int check_of(const struct reading *reading)
{
	enum metric metric = reading->rule->metric;

	if (json_member(reading->node, "of") == NULL)
		return 0;
	if (metric != METRIC_CPU && metric != METRIC_MEMORY)
		return refuse(reading, "of", "means nothing for \"%s\": expected it only with \"cpu\" and \"memory\"",
			      metric_name(metric));
	if (metric == METRIC_MEMORY && reading->rule->of == METRIC_OF_CORE)
		return refuse(reading, "of", "memory has no cores: expected \"limit\" or \"machine\"");
	return 0;
}

static double value_max(enum metric metric, enum unit_kind unit)
{
	switch (unit) {
	case UNIT_PERCENT:
		return PERCENT_MAX;
	case UNIT_BYTES:
		return BYTES_MAX;
	case UNIT_CORES:
		return CORES_MAX;
	case UNIT_PER_SECOND:
		return FAULTS_MAX;
	default:
		return metric == METRIC_FDS ? FDS_MAX : TASKS_MAX;
	}
}

/* A value in the unit of the metric. */
static int read_value(const struct reading *reading, const struct json_node *node, enum unit_kind unit, double *ret)
{
	char most_shown[UNITS_TEXT_MAX];
	uint64_t bytes = 0;
	double most;
	int r;

	if (unit == UNIT_BYTES) {
		r = config_read_bytes(reading->scope, node, &bytes);
		*ret = (double)bytes;
	} else if (unit == UNIT_PERCENT) {
		r = config_read_percent(reading->scope, node, ret);
	} else {
		r = config_read_number(reading->scope, node, ret);
	}
	if (r < 0)
		return r;
	most = value_max(reading->rule->metric, unit);
	if (*ret <= most)
		return 0;
	if (unit == UNIT_PERCENT)
		snprintf(most_shown, sizeof(most_shown), "%.0f%%", most);
	else if (unit == UNIT_BYTES)
		units_format_bytes(most_shown, sizeof(most_shown), (uint64_t)most);
	else
		snprintf(most_shown, sizeof(most_shown), "%.0f", most);
	return refuse(reading, node->key, "out of range: expected at most %s", most_shown);
}

static int read_threshold(const struct reading *reading, const char *key, enum unit_kind unit, bool *ret_has,
			  double *ret)
{
	const struct json_node *node = json_member(reading->node, key);

	*ret_has = node != NULL;
	return node != NULL ? read_value(reading, node, unit, ret) : 0;
}

/* The one of "percent" and "above" that the metric does not have. */
static int check_threshold_name(const struct reading *reading)
{
	static const char *const examples[] = {
		[UNIT_PERCENT] = "\"percent\": \"80%\"", [UNIT_CORES] = "\"above\": 1.5",
		[UNIT_BYTES] = "\"above\": \"512MiB\"",  [UNIT_COUNT] = "\"above\": 200",
		[UNIT_PER_SECOND] = "\"above\": 1000",
	};
	enum unit_kind unit = metric_unit(reading->rule->metric);
	const char *wrong = unit == UNIT_PERCENT ? "above" : "percent";

	if (json_member(reading->node, wrong) == NULL)
		return 0;
	return refuse(reading, wrong, "\"%s\" is %s percentage: expected %s", metric_name(reading->rule->metric),
		      unit == UNIT_PERCENT ? "a" : "no", examples[unit]);
}

/*
 * The one percentage with a top that no value passes: a share of counted periods. Memory above 100 % was seen (pages
 * count once for each mapping). No bound is known of cpu, cpu_wait and the pressures: threads add up, the kernel adds
 * to pressures in steps; that these pass 100 % was not tried.
 */
static int check_reach(const struct reading *reading)
{
	const struct trigger_rule *trigger = &reading->rule->trigger;

	if (reading->rule->metric != METRIC_THROTTLED)
		return 0;
	if (trigger->has_percent && trigger->percent >= 100)
		return refuse(reading, "percent", "the rule could never fire: expected less than 100%%");
	if (trigger->has_minimum && trigger->minimum > 100)
		return refuse(reading, "minimum", "the rule could never fire: expected at most 100%%");
	return 0;
}

static int read_thresholds(const struct reading *reading)
{
	struct trigger_rule *trigger = &reading->rule->trigger;
	enum unit_kind unit = metric_unit(reading->rule->metric);
	const char *above = unit == UNIT_PERCENT ? "percent" : "above";
	int r = check_threshold_name(reading);

	if (r == 0)
		r = read_threshold(reading, above, unit, &trigger->has_percent, &trigger->percent);
	if (r == 0)
		r = read_threshold(reading, "delta", UNIT_PERCENT, &trigger->has_delta, &trigger->delta);
	if (r == 0)
		r = read_threshold(reading, "minimum", unit, &trigger->has_minimum, &trigger->minimum);
	if (r == 0)
		r = read_threshold(reading, "maximum", unit, &trigger->has_maximum, &trigger->maximum);
	if (r < 0)
		return r;
	if (!trigger->has_percent && !trigger->has_delta)
		return refuse(reading, NULL, "has no threshold and would never fire: expected \"%s\" or \"delta\"",
			      above);
	if (trigger->has_delta && trigger->delta <= 0)
		return refuse(reading, "delta", "every window would fire: expected more than 0%%");
	if (trigger->has_maximum && trigger->has_percent && trigger->maximum <= trigger->percent)
		return refuse(reading, "maximum", "\"%s\" could never fire: expected more than \"%s\"", above, above);
	if (trigger->has_maximum && trigger->has_minimum && trigger->maximum <= trigger->minimum)
		return refuse(reading, "maximum", "the rule could never fire: expected more than \"minimum\"");
	if (trigger->has_maximum && trigger->maximum <= 0)
		return refuse(reading, "maximum", "the rule could never fire: expected more than 0");
	return check_reach(reading);
}

static int check_history(const struct reading *reading)
{
	struct trigger_rule *trigger = &reading->rule->trigger;

	if (trigger->warmup > trigger->history && json_member(reading->node, "warmup") == NULL)
		trigger->warmup = trigger->history;
	if (trigger->warmup > trigger->history && json_member(reading->node, "history") == NULL)
		trigger->history = trigger->warmup;
	if (trigger->warmup > trigger->history)
		return refuse(reading, "warmup", "the rule would never warm up: expected at most \"history\", %u",
			      trigger->history);
	if (trigger->has_delta && trigger->warmup == 0)
		return refuse(reading, "warmup", "\"delta\" needs an average: expected at least 1");
	return 0;
}

/* ---- targets ---- */

static const struct config_target *find_target(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];
	return NULL;
}

/* The scope names the element: "rules[2].targets[0]". */
static int read_target(const struct config_scope *scope, const struct json_node *node, const struct config *config,
		       struct config_rule *rule)
{
	struct config_guess guess = { 0 };
	char hint[240];
	const char *name;
	int r = config_read_name(scope, node, &name);

	if (r < 0)
		return r;
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], name) == 0)
			return config_refuse(scope, node->place, NULL, "\"%s\" twice: expected each target once", name);
	if (find_target(config, name) != NULL) {
		rule->targets[rule->target_count++] = name;
		return 0;
	}
	guess.word = name;
	for (size_t i = 0; i < config->target_count; i++)
		config_guess_offer(&guess, config->targets[i].name);
	if (guess.best == NULL)
		return config_refuse(scope, node->place, NULL, "no target has the name \"%s\"; there are %s", name,
				     config->target_count > 0 ? guess.list : "none");
	return config_refuse(scope, node->place, NULL, "no target has the name \"%s\"; %s", name,
			     config_guess_say(&guess, hint, sizeof(hint)));
}

static int read_targets(const struct reading *reading)
{
	const struct json_node *node = json_member(reading->node, "targets");
	struct config_scope scope = *reading->scope;
	char shown[CONFIG_SHOWN];
	size_t index = 0;

	if (node == NULL || (node->type == JSON_STRING && node->text_len == 1 && node->text[0] == '*'))
		return 0;
	if (node->type != JSON_ARRAY)
		return refuse(reading, "targets", "expected \"*\" or an array of names such as [\"db\"], found %s",
			      config_found(node, shown));
	if (node->count == 0)
		return refuse(reading, "targets", "empty: expected \"*\" for all, or at least one name");
	reading->rule->targets = calloc(node->count, sizeof(*reading->rule->targets));
	if (reading->rule->targets == NULL)
		return -ENOMEM;
	for (const struct json_node *name = node->first; name != NULL; name = name->next) {
		int r;

		snprintf(scope.path, sizeof(scope.path), "%.40s.targets[%zu]", reading->scope->path, index++);
		r = read_target(&scope, name, reading->config, reading->rule);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- what the metric needs ---- */

/* Which kinds of targets a rule looks at. */
struct kinds {
	bool cgroup, process;
};

static struct kinds kinds_of(const struct reading *reading)
{
	const struct config_rule *rule = reading->rule;
	size_t count = rule->target_count > 0 ? rule->target_count : reading->config->target_count;
	struct kinds kinds = { false, false };

	for (size_t i = 0; i < count; i++) {
		const struct config_target *target = rule->target_count > 0
							     ? find_target(reading->config, rule->targets[i])
							     : &reading->config->targets[i];

		if (target->per == CONFIG_PER_CGROUP)
			kinds.cgroup = true;
		else
			kinds.process = true;
	}
	return kinds;
}

static bool needs_cgroup(enum metric metric)
{
	return metric == METRIC_THROTTLED || metric == METRIC_PIDS || metric == METRIC_CPU_PRESSURE ||
	       metric == METRIC_MEMORY_PRESSURE || metric == METRIC_IO_PRESSURE;
}

static bool needs_process(enum metric metric)
{
	return metric == METRIC_THREADS || metric == METRIC_FDS || metric == METRIC_CPU_WAIT;
}

static int check_kinds(const struct reading *reading, struct kinds kinds)
{
	const struct config_rule *rule = reading->rule;
	bool wants_cgroup = needs_cgroup(rule->metric) && !kinds.cgroup;
	struct config_guess names = { .word = "" };
	const struct config *config = reading->config;
	bool named = rule->target_count > 0;

	if (rule->metric == METRIC_CPU_WAIT && config->sampling.source == CONFIG_CPU_SOURCE_FILES)
		return refuse(reading, "metric",
			      "\"cpu_wait\" comes from the scheduler's switches, which \"source\": \"files\" of "
			      "sampling leaves out: expected \"auto\" or \"kernel\" there");
	if (!wants_cgroup && !(needs_process(rule->metric) && !kinds.process))
		return 0;
	for (size_t i = 0; i < (named ? rule->target_count : config->target_count); i++)
		config_guess_offer(&names, named ? rule->targets[i] : config->targets[i].name);
	if (wants_cgroup)
		return refuse(
			reading, "metric",
			"\"%s\" is a metric of cgroups, but all targets are processes: expected one with \"per\": "
			"\"cgroup\" among %.80s",
			metric_name(rule->metric), names.list);
	return refuse(reading, "metric",
		      "\"%s\" is a metric of processes, but all targets are cgroups%s: expected one with \"per\": "
		      "\"process\" or \"group\" among %.80s",
		      metric_name(rule->metric), rule->metric == METRIC_THREADS ? " (they have \"pids\")" : "",
		      names.list);
}

/* A rate needs two readings in a window, a level one. */
static bool is_rate(enum metric metric)
{
	return metric == METRIC_CPU || metric == METRIC_CPU_CORES || metric == METRIC_FAULTS ||
	       metric == METRIC_THROTTLED || metric == METRIC_CPU_WAIT || metric == METRIC_CPU_PRESSURE ||
	       metric == METRIC_MEMORY_PRESSURE || metric == METRIC_IO_PRESSURE;
}

static int check_window(const struct reading *reading, struct kinds kinds)
{
	const struct config_sampling *sampling = &reading->config->sampling;
	enum metric metric = reading->rule->metric;
	unsigned readings = is_rate(metric) ? 2 : 1;
	const char *key = "interval";
	uint64_t every_ns = sampling->interval_ns;
	char shortest[UNITS_TEXT_MAX], every[UNITS_TEXT_MAX];

	if (metric == METRIC_FDS) {
		key = "fds_interval";
		every_ns = sampling->fds_interval_ns;
	} else if (metric == METRIC_MEMORY_PEAK && sampling->peak_interval_ns > every_ns) {
		key = "peak_interval";
		every_ns = sampling->peak_interval_ns;
	}
	/* CPU time of the scheduler is known in every tick, if it can be had: that is not known here. */
	bool told = (metric == METRIC_CPU || metric == METRIC_CPU_CORES) && sampling->source != CONFIG_CPU_SOURCE_FILES;

	reading->rule->is_fine = told && kinds.cgroup && reading->rule->window_ns < 2 * sampling->cgroup_interval_ns;
	if (kinds.cgroup && !needs_process(metric) && !told && sampling->cgroup_interval_ns > every_ns) {
		key = "cgroup_interval";
		every_ns = sampling->cgroup_interval_ns;
	}
	if (every_ns == 0)
		return refuse(reading, "metric", "descriptors are never counted: expected sampling.%s above 0", key);
	if (reading->rule->window_ns >= readings * every_ns)
		return 0;
	units_format_duration(shortest, sizeof(shortest), readings * every_ns);
	units_format_duration(every, sizeof(every), every_ns);
	return refuse(reading, "window", "too short for \"%s\": expected at least %s, %s sampling.%s (%s)",
		      metric_name(metric), shortest, readings == 2 ? "twice" : "one", key, every);
}

/*
 * Reads an entry. config: sampling and targets are final. The scope stands for the entry
 * ("rules[2]"). 0; -ENOMEM; -EINVAL. ret is zeroed; ret->targets and notify belong to the caller,
 * whatever is returned.
 */
static int config_rule_read(const struct config_scope *scope, const struct json_node *node, const struct config *config,
			    struct config_rule *ret)
{
	const struct reading reading = { scope, node, config, ret };
	const struct json_node *name = json_member(node, "name");
	int r;

	config_field_defaults(config_rule_fields, config_rule_field_count, ret);
	r = config_field_apply(scope, config_rule_fields, config_rule_field_count, "", node, ret, NULL);
	if (r < 0)
		return r;
	if (name == NULL)
		return refuse(&reading, NULL, "has no name: expected a member \"name\"");
	r = config_read_name(scope, name, &ret->name);
	if (r == 0)
		r = read_metric(&reading);
	if (r == 0)
		r = check_of(&reading);
	if (r == 0)
		r = read_thresholds(&reading);
	if (r == 0)
		r = check_history(&reading);
	if (r == 0)
		r = read_targets(&reading);
	if (r == 0)
		r = check_kinds(&reading, kinds_of(&reading));
	if (r == 0)
		r = read_rule_notify(scope, json_member(node, "notify"), config, ret);
	return r < 0 ? r : check_window(&reading, kinds_of(&reading));
}

/* ---- all documents ----
 *
 * All documents are parsed, then sections are applied source by source (the last one wins, key by
 * key), then targets are read, then rules, which refer to both. The texts of a configuration are those
 * of the parsed documents, which it keeps: nothing is copied, and one call frees everything.
 */

/* Entries of "targets", and of "rules"; of "notify" CONFIG_NOTIFIES_MAX. */
#define ENTRIES_MAX 1000

/* A configuration that is being built. */
struct builder {
	const struct config_source *sources;
	struct config_merge merge;
	struct config *config;
};

/* The entries of one kind, from all sources. */
struct entries {
	const char *key;
	/* Reads one into slot n and says its name. */
	int (*read)(const struct config_scope *scope, const struct json_node *node, struct config *config, size_t n,
		    const char **ret_name);
	size_t *count;      /* in the configuration */
	const char **names; /* of those read so far, and where they are */
	struct config_origin *origins;
};

static void builder_release(struct builder *builder)
{
	config_free(builder->config);
}

static void entries_release(struct entries *entries)
{
	free(entries->names);
	free(entries->origins);
}

static const struct json_node *root_of(const struct builder *builder, size_t source)
{
	return json_root(builder->config->documents[source]);
}

static struct config_scope scope_of(const struct builder *builder, size_t source)
{
	return (struct config_scope){ .file = builder->sources[source].file, .err = builder->merge.err };
}

static int parse_document(const struct builder *builder, size_t i)
{
	const struct config_source *source = &builder->sources[i];
	const struct config_scope scope = scope_of(builder, i);
	struct json_error error;
	int r = json_parse(source->text, source->len, NULL, &builder->config->documents[i], &error);

	if (r == 0 || r == -ENOMEM)
		return r;
	if (source->len == 0)
		return config_refuse(&scope, (struct json_place){ 0, 0 }, NULL,
				     "the file is empty: expected an object, { ... }");
	return config_refuse(&scope, error.place, NULL, "%s", error.message);
}

static int parse_documents(const struct builder *builder, size_t count)
{
	struct config *config = builder->config;

	config->documents = calloc(count + 1, sizeof(struct json_document *));
	config->files = calloc(count + 1, sizeof(char *));
	if (config->documents == NULL || config->files == NULL)
		return -ENOMEM;
	while (config->document_count < count) {
		size_t i = config->document_count++;

		config->files[i] = strdup(builder->sources[i].file);
		if (config->files[i] == NULL)
			return -ENOMEM;

		int r = parse_document(builder, i);

		if (r < 0)
			return r;
	}
	return 0;
}

static int apply_sections(struct builder *builder)
{
	config_section_defaults(builder->config);
	for (size_t i = 0; i < builder->config->document_count; i++) {
		const struct config_scope scope = scope_of(builder, i);
		int r = config_section_apply(&scope, root_of(builder, i), &builder->merge);

		if (r < 0)
			return r;
	}
	return config_section_agree(&builder->merge);
}

/* ---- targets and rules ---- */

static int read_target_entry(const struct config_scope *scope, const struct json_node *node, struct config *config,
			     size_t n, const char **ret_name)
{
	int r = config_target_read(scope, node, &config->targets[n]);
	size_t trees = 0;

	for (size_t i = 0; i <= n; i++)
		trees += config->targets[i].tree;
	if (r == 0 && trees > CONFIG_TREES_MAX)
		return config_refuse_value(scope, json_member(node, "tree"), "more than %d entries with a tree",
					   CONFIG_TREES_MAX);
	*ret_name = config->targets[n].name;
	return r;
}

static int read_notify_entry(const struct config_scope *scope, const struct json_node *node, struct config *config,
			     size_t n, const char **ret_name)
{
	int r = config_notify_read(scope, node, &config->notifies[n]);

	*ret_name = config->notifies[n].name;
	return r;
}

static int read_rule_entry(const struct config_scope *scope, const struct json_node *node, struct config *config,
			   size_t n, const char **ret_name)
{
	int r = config_rule_read(scope, node, config, &config->rules[n]);

	*ret_name = config->rules[n].name;
	return r;
}

/* How many entries all sources have together; each must be in an array. */
static int count_entries(const struct builder *builder, const char *key, size_t most, size_t *ret)
{
	size_t count = 0;
	char shown[CONFIG_SHOWN];

	for (size_t i = 0; i < builder->config->document_count; i++) {
		const struct json_node *node = json_member(root_of(builder, i), key);
		const struct config_scope scope = scope_of(builder, i);

		if (node == NULL)
			continue;
		if (node->type != JSON_ARRAY)
			return config_refuse_value(&scope, node, "expected an array of objects, [ { ... } ], found %s",
						   config_found(node, shown));
		count += node->count;
		if (count > most)
			return config_refuse_value(&scope, node, "too many: expected at most %zu, found %zu", most,
						   count);
	}
	*ret = count;
	return 0;
}

static int check_unique_name(const struct config_scope *scope, const struct json_node *entry,
			     const struct entries *entries)
{
	size_t n = *entries->count - 1;

	for (size_t i = 0; i < n; i++) {
		const struct config_origin *first = &entries->origins[i];

		if (strcmp(entries->names[i], entries->names[n]) == 0)
			return config_refuse(scope, json_member(entry, "name")->place, "name",
					     "duplicate name \"%s\": already given at %.80s:%u:%u", entries->names[n],
					     first->file, first->place.line, first->place.column);
	}
	return 0;
}

/* The entries of one source. */
static int read_source(const struct builder *builder, size_t source, struct entries *entries)
{
	const struct json_node *array = json_member(root_of(builder, source), entries->key);
	struct config_scope scope = scope_of(builder, source);
	size_t index = 0;

	for (const struct json_node *node = array != NULL ? array->first : NULL; node != NULL; node = node->next) {
		size_t n = (*entries->count)++;
		int r;

		snprintf(scope.path, sizeof(scope.path), "%s[%zu]", entries->key, index++);
		r = entries->read(&scope, node, builder->config, n, &entries->names[n]);
		if (r == 0)
			r = check_unique_name(&scope, node, entries);
		if (r < 0)
			return r;
		entries->origins[n] = (struct config_origin){ scope.file, json_member(node, "name")->place };
	}
	return 0;
}

static int read_entries(const struct builder *builder, struct entries *entries, size_t room)
{
	entries->names = calloc(room + 1, sizeof(*entries->names));
	entries->origins = calloc(room + 1, sizeof(*entries->origins));
	if (entries->names == NULL || entries->origins == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < builder->config->document_count; i++) {
		int r = read_source(builder, i, entries);

		if (r < 0)
			return r;
	}
	return 0;
}

static int read_all_targets(const struct builder *builder)
{
	struct config *config = builder->config;
	AUTO(entries_release)
	struct entries entries = { "targets", read_target_entry, &config->target_count, NULL, NULL };
	size_t room;
	int r = count_entries(builder, entries.key, ENTRIES_MAX, &room);

	if (r < 0 || room == 0)
		return r;
	config->targets = calloc(room, sizeof(*config->targets));
	return config->targets != NULL ? read_entries(builder, &entries, room) : -ENOMEM;
}

/* After all else was read: what is wrong in a line says more than what is not there. */
static int need_targets(const struct builder *builder)
{
	const struct config *config = builder->config;
	const struct config_scope scope = {
		.file = config->document_count > 0 ? builder->sources[0].file : "",
		.err = builder->merge.err,
	};

	return config->target_count > 0 ? 0
					: config_refuse(&scope, (struct json_place){ 0, 0 }, "targets",
							"nothing to watch: expected at least one target");
}

static int read_all_notifies(const struct builder *builder)
{
	struct config *config = builder->config;
	AUTO(entries_release)
	struct entries entries = { "notify", read_notify_entry, &config->notify_count, NULL, NULL };
	size_t room;
	int r = count_entries(builder, entries.key, CONFIG_NOTIFIES_MAX, &room);

	if (r < 0 || room == 0)
		return r;
	config->notifies = calloc(room, sizeof(*config->notifies));
	return config->notifies != NULL ? read_entries(builder, &entries, room) : -ENOMEM;
}

static int read_all_rules(const struct builder *builder)
{
	struct config *config = builder->config;
	AUTO(entries_release) struct entries entries = { "rules", read_rule_entry, &config->rule_count, NULL, NULL };
	size_t room;
	int r = count_entries(builder, entries.key, ENTRIES_MAX, &room);

	if (r < 0 || room == 0)
		return r;
	config->rules = calloc(room, sizeof(*config->rules));
	return config->rules != NULL ? read_entries(builder, &entries, room) : -ENOMEM;
}

/* Patterns of rules in the commands of targets. */
static int agree_targets(const struct builder *builder)
{
	for (size_t i = 0; i < builder->config->document_count; i++) {
		const struct json_node *array = json_member(root_of(builder, i), "targets");
		struct config_scope scope = scope_of(builder, i);
		size_t index = 0;

		for (const struct json_node *node = array != NULL ? array->first : NULL; node != NULL;
		     node = node->next) {
			int r;

			snprintf(scope.path, sizeof(scope.path), "targets[%zu]", index++);
			r = config_run_agree(&scope, node, builder->config);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int config_parse(const struct config_source *sources, size_t count, struct config **ret, struct config_error *err)
{
	AUTO(builder_release) struct builder builder = { .sources = sources };
	struct config_error ignored;
	int r;

	builder.config = calloc(1, sizeof(*builder.config));
	if (builder.config == NULL)
		return -ENOMEM;
	builder.merge.config = builder.config;
	builder.merge.err = err != NULL ? err : &ignored;

	r = parse_documents(&builder, count);
	if (r == 0)
		r = apply_sections(&builder);
	if (r == 0)
		r = read_all_targets(&builder);
	if (r == 0)
		r = read_all_notifies(&builder);
	if (r == 0)
		r = read_all_rules(&builder);
	if (r == 0)
		r = need_targets(&builder);
	if (r == 0)
		r = agree_targets(&builder);
	if (r < 0)
		return r;

	*ret = TAKE(builder.config);
	return 0;
}

/* ==== two configurations compared, and variants of one ==== */

/*
 * Keys are compared row by row of the table that they are read with, which also says whether a
 * running daemon can change them. What no row stores (captures, container_labels) is compared by
 * hand; a reload can change it.
 *
 * A variant is the text of a rule with one value replaced, which is then parsed. Values consist of
 * a few characters that need no quoting; what looks like a number is written as one, anything else
 * as a string, so both forms of a value ("60%", 60) reach the parser. Rejected: setting the field
 * by itself. Ranges, units and the checks between keys would be written twice.
 */

#define VARIANT_NAME "what-if" /* of the text of a variant; messages leave it out */

__attribute__((format(printf, 2, 3))) static int refuse_variant(char *message, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, WHAT_IF_MESSAGE_MAX, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

struct text {
	struct buffer buffer;
	const char *key; /* what is replaced, and by what */
	const char *value;
	bool done;
	int error;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
	char piece[256];
	va_list arguments;
	int len, r;

	va_start(arguments, format);
	len = vsnprintf(piece, sizeof(piece), format, arguments);
	va_end(arguments);
	r = len < (int)sizeof(piece) ? buffer_append(&text->buffer, piece, (size_t)len) : -EINVAL;
	if (text->error == 0)
		text->error = r;
}

static bool is_number(const char *value)
{
	size_t digits = strspn(value, "0123456789"), fraction = 0;

	if (value[digits] == '.')
		fraction = strspn(value + digits + 1, "0123456789") + 1;
	return digits > 0 && fraction != 1 && value[digits + fraction] == '\0' && (digits == 1 || value[0] != '0');
}

/* True: this key is the one; its value has been written. */
static bool replaces(struct text *text, const char *key)
{
	if (strcmp(key, text->key) != 0)
		return false;
	text->done = true;
	put(text, is_number(text->value) ? ", \"%s\": %s" : ", \"%s\": \"%s\"", key, text->value);
	return true;
}

static void put_duration(struct text *text, const char *key, uint64_t ns)
{
	if (!replaces(text, key))
		put(text, ", \"%s\": \"%juns\"", key, (uintmax_t)ns);
}

static void put_count(struct text *text, const char *key, uint32_t count)
{
	if (!replaces(text, key))
		put(text, ", \"%s\": %u", key, count);
}

static void put_word(struct text *text, const char *key, const char *word)
{
	if (!replaces(text, key))
		put(text, ", \"%s\": \"%s\"", key, word);
}

/* Seventeen digits bring back every number; an exponent is not read everywhere. */
static void put_threshold(struct text *text, const char *key, bool has, double value, enum unit_kind unit)
{
	if (replaces(text, key) || !has)
		return;
	if (unit == UNIT_BYTES)
		put(text, ", \"%s\": \"%.0fB\"", key, value);
	else if (value != 0 && (value < 1e-3 || value > 1e15))
		put(text, ", \"%s\": %.30f", key, value);
	else
		put(text, ", \"%s\": %.17g", key, value);
}

static void put_rule(struct text *text, const struct config_rule *rule)
{
	const struct trigger_rule *trigger = &rule->trigger;
	enum unit_kind unit = metric_unit(rule->metric);

	put(text, "{\"name\": \"%s\", \"metric\": \"%s\"", rule->name, metric_name(rule->metric));
	if (rule->metric == METRIC_CPU || rule->metric == METRIC_MEMORY || strcmp(text->key, "of") == 0)
		put_word(text, "of", metric_of_name(rule->of));
	put_duration(text, "window", rule->window_ns);
	put_threshold(text, unit == UNIT_PERCENT ? "percent" : "above", trigger->has_percent, trigger->percent, unit);
	put_threshold(text, "delta", trigger->has_delta, trigger->delta, UNIT_PERCENT);
	put_word(text, "usual", trigger_usual_name(trigger->usual));
	put_threshold(text, "minimum", trigger->has_minimum, trigger->minimum, unit);
	put_threshold(text, "maximum", trigger->has_maximum, trigger->maximum, unit);
	put_count(text, "warmup", trigger->warmup);
	put_count(text, "history", trigger->history);
	put_duration(text, "for", trigger->for_ns);
	put_duration(text, "cooldown", trigger->cooldown_ns);
	put_count(text, "count", trigger->count);
	put_duration(text, "count_period", trigger->count_period_ns);
	put_word(text, "rearm", trigger_rearm_name(trigger->rearm));
	/* "above" of a percentage, or the other way round: refused where it is read. */
	if (!text->done)
		replaces(text, text->key);
	put(text, "}");
}

/* Targets of the kinds that the rule looks at: some metrics are of one kind only. */
static void put_targets(struct text *text, const struct config *base, const struct config_rule *rule)
{
	bool process = false, cgroup = false;

	for (size_t i = 0; i < base->target_count; i++) {
		bool named = rule->target_count == 0;

		for (size_t k = 0; !named && k < rule->target_count; k++)
			named = strcmp(rule->targets[k], base->targets[i].name) == 0;
		process |= named && base->targets[i].per != CONFIG_PER_CGROUP;
		cgroup |= named && base->targets[i].per == CONFIG_PER_CGROUP;
	}
	put(text, "\"targets\": [");
	if (process)
		put(text, "{\"name\": \"process\", \"comm\": \"x\"}");
	if (cgroup)
		put(text, "%s{\"name\": \"cgroup\", \"cgroup\": \"/x\"}", process ? ", " : "");
	put(text, "],\n");
}

static void put_sampling(struct text *text, const struct config_sampling *sampling)
{
	put(text, "{\"sampling\": {\"interval\": \"%juns\", \"heartbeat\": \"%juns\", ",
	    (uintmax_t)sampling->interval_ns, (uintmax_t)sampling->heartbeat_ns);
	put(text, "\"cgroup_interval\": \"%juns\", \"peak_interval\": \"%juns\", ",
	    (uintmax_t)sampling->cgroup_interval_ns, (uintmax_t)sampling->peak_interval_ns);
	put(text, "\"fds_interval\": \"%juns\"},\n", (uintmax_t)sampling->fds_interval_ns);
}

/* ---- variants ---- */

static bool may_change(const char *key)
{
	for (size_t i = 0; i < config_rule_field_count; i++)
		if (strcmp(config_rule_fields[i].key, key) == 0)
			return strcmp(key, "name") != 0 && strcmp(key, "targets") != 0 && strcmp(key, "metric") != 0 &&
			       strcmp(key, "notify") != 0;
	return false;
}

static int refuse_changed_key(const char *key, char *message)
{
	struct config_guess guess = { .word = key };
	char hint[240];

	for (size_t i = 0; i < config_rule_field_count; i++)
		if (may_change(config_rule_fields[i].key))
			config_guess_offer(&guess, config_rule_fields[i].key);
	return refuse_variant(message, "a rule has no key \"%.40s\" that can be changed; %s", key,
			      config_guess_say(&guess, hint, sizeof(hint)));
}

static int check_value(const char *value, char *message)
{
	size_t len = strlen(value);

	if (len == 0)
		return refuse_variant(message, "a value is empty: expected something like 60%% or 512MiB");
	if (len > WHAT_IF_VALUE_MAX ||
	    strspn(value, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.%- ") != len)
		return refuse_variant(message, "a value is none: expected something like 60%% or 512MiB");
	return 0;
}

/* Reads the changed rule. 0; -ENOMEM; -EINVAL. */
static int parse_rule(const struct config *base, struct what_if_variant *variant, char *message)
{
	AUTO(buffer_release) struct buffer written = { 0 };
	struct text text = { .key = variant->key, .value = variant->value };
	struct config_error error = { .message = "" };
	int r;

	put_sampling(&text, &base->sampling);
	put_targets(&text, base, &base->rules[variant->rule]);
	put(&text, "\"rules\": [");
	put_rule(&text, &base->rules[variant->rule]);
	put(&text, "]}\n");
	written = text.buffer;
	if (text.error < 0)
		return text.error == -ENOMEM ? -ENOMEM : refuse_variant(message, "a value is too long");

	const struct config_source source = { .file = VARIANT_NAME, .text = written.data, .len = written.len };

	r = config_parse(&source, 1, &variant->owned, &error);
	if (r == -EINVAL)
		return refuse_variant(message, "%s.%s=%s: %s", base->rules[variant->rule].name, variant->key,
				      variant->value, error.message);
	return r;
}

static int make_variant(const struct config *base, struct what_if_variant *variant, char *message)
{
	struct config_rule *rules;
	int r = parse_rule(base, variant, message);

	if (r < 0)
		return r;
	rules = calloc(base->rule_count, sizeof(*rules));
	if (!rules) {
		config_free(TAKE(variant->owned));
		return -ENOMEM;
	}

	memcpy(rules, base->rules, base->rule_count * sizeof(*rules));
	struct config_rule *changed = &rules[variant->rule];

	*changed = variant->owned->rules[0];
	changed->name = base->rules[variant->rule].name;
	changed->targets = base->rules[variant->rule].targets;
	changed->target_count = base->rules[variant->rule].target_count;
	changed->has_notify = base->rules[variant->rule].has_notify;
	changed->notify = base->rules[variant->rule].notify;
	changed->notify_count = base->rules[variant->rule].notify_count;
	variant->config = *base;
	variant->config.rules = rules;
	return 0;
}

int what_if_add(struct what_if *what_if, const struct config *base, size_t rule, const char *key, const char *value,
		char *message)
{
	struct what_if_variant variant = { .rule = rule }, *grown;
	int r;

	if (what_if->count == WHAT_IF_VARIANTS_MAX)
		return refuse_variant(message, "too many values: expected at most %u", WHAT_IF_VARIANTS_MAX);
	if (!may_change(key))
		return refuse_changed_key(key, message);
	r = check_value(value, message);
	if (r < 0)
		return r;
	snprintf(variant.key, sizeof(variant.key), "%s", key);
	snprintf(variant.value, sizeof(variant.value), "%s", value);

	grown = realloc(what_if->variants, (what_if->count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	what_if->variants = grown;
	r = make_variant(base, &variant, message);
	if (r < 0)
		return r;
	what_if->variants[what_if->count++] = variant;
	return 0;
}

void what_if_release(struct what_if *what_if)
{
	for (size_t i = 0; i < what_if->count; i++) {
		free(what_if->variants[i].config.rules);
		config_free(what_if->variants[i].owned);
	}
	free(what_if->variants);
	*what_if = (struct what_if){ 0 };
}

/* ---- the syntax ---- */

static int what_if_find_rule(const struct config *base, const char *name, size_t *ret, char *message)
{
	struct config_guess guess = { .word = name };
	char hint[240];

	for (size_t i = 0; i < base->rule_count; i++) {
		config_guess_offer(&guess, base->rules[i].name);
		if (strcmp(base->rules[i].name, name) == 0) {
			*ret = i;
			return 0;
		}
	}
	if (base->rule_count == 0)
		return refuse_variant(message, "the configuration has no rules");
	return refuse_variant(message, "the configuration has no rule \"%.64s\"; %s", name,
			      config_guess_say(&guess, hint, sizeof(hint)));
}

/* Spaces at both ends are cut off. */
static char *trim(char *text)
{
	size_t len;

	text += strspn(text, " ");
	for (len = strlen(text); len > 0 && text[len - 1] == ' '; len--)
		text[len - 1] = '\0';
	return text;
}

/* Cuts text at the first separator. The part behind it, NULL: there is none. */
static char *cut(char *text, char separator)
{
	char *at = strchr(text, separator);

	if (!at)
		return NULL;
	*at = '\0';
	return at + 1;
}

/* One RULE.KEY=VALUE,... */
static int parse_item(struct what_if *what_if, const struct config *base, char *item, char *message)
{
	char *values = cut(item, '='), *key;
	size_t rule;
	int r;

	item = trim(item);
	key = strrchr(item, '.'); /* a name may hold one */
	if (!values || !key || key == item || !key[1])
		return refuse_variant(message, "expected RULE.KEY=VALUE,VALUE,... such as hot.percent=60,70,80");
	*key++ = '\0';
	r = what_if_find_rule(base, item, &rule, message);
	for (char *next; r == 0 && values; values = next) {
		next = cut(values, ',');
		r = what_if_add(what_if, base, rule, key, trim(values), message);
	}
	return r;
}

int what_if_parse(struct what_if *what_if, const struct config *base, const char *text, char *message)
{
	AUTO_FREE char *copy = strdup(text);
	int r = 0;

	if (!copy)
		return -ENOMEM;
	for (char *item = copy, *next; r == 0 && item; item = next) {
		next = cut(item, ';');
		r = parse_item(what_if, base, item, message);
	}
	return r;
}

/* ---- keys ---- */

static const char *text_at(const void *value)
{
	return *(const char *const *)value;
}

static bool same_value(const struct config_field *field, const struct config *old, const struct config *next)
{
	const char *a = (const char *)old + field->offset;
	const char *b = (const char *)next + field->offset;

	if (field->kind == CONFIG_KIND_PATH || field->kind == CONFIG_KIND_LISTEN)
		return strcmp(text_at(a), text_at(b)) == 0;

	return memcmp(a, b, field->size) == 0;
}

static uint64_t whole_at(const void *value, size_t size)
{
	return size == sizeof(uint32_t) ? *(const uint32_t *)value : *(const uint64_t *)value;
}

static const char *show(const struct config_field *field, const struct config *config, char buf[CONFIG_SHOWN])
{
	const void *at = (const char *)config + field->offset;

	buf[0] = '\0';
	switch (field->kind) {
	case CONFIG_KIND_OTHER:
		break;
	case CONFIG_KIND_DURATION:
		units_format_duration(buf, CONFIG_SHOWN, whole_at(at, field->size));
		break;
	case CONFIG_KIND_BYTES:
		units_format_bytes(buf, CONFIG_SHOWN, whole_at(at, field->size));
		break;
	case CONFIG_KIND_COUNT:
		snprintf(buf, CONFIG_SHOWN, "%" PRIu64, whole_at(at, field->size));
		break;
	case CONFIG_KIND_PERCENT:
		units_format_percent(buf, CONFIG_SHOWN, *(const double *)at);
		break;
	case CONFIG_KIND_BOOL:
		snprintf(buf, CONFIG_SHOWN, "%s", *(const bool *)at ? "true" : "false");
		break;
	case CONFIG_KIND_CHOICE:
		snprintf(buf, CONFIG_SHOWN, "%s", field->choices[whole_at(at, field->size)]);
		break;
	case CONFIG_KIND_PATH:
	case CONFIG_KIND_LISTEN:
		config_quote(text_at(at), strlen(text_at(at)), buf);
		break;
	}
	return buf;
}

/*
 * Where a document says it: the key, or what stands in place of its whole section ("stacks":
 * "off"). NULL: it does not.
 */
static const struct json_node *said_in(const struct json_document *document, const struct config_field *field)
{
	const struct json_node *holder = json_root(document);

	if (field->section[0] != '\0')
		holder = json_member(holder, field->section);
	if (holder == NULL || holder->type != JSON_OBJECT)
		return holder;
	return json_member(holder, field->key);
}

/*
 * Where the value in force comes from: the last that says it. Of a default the first file, as a
 * whole.
 */
static struct json_place find_place(const struct config *config, const struct config_field *field,
				    const char **ret_file)
{
	for (size_t i = config->document_count; i-- > 0;) {
		const struct json_node *node = said_in(config->documents[i], field);

		if (node != NULL) {
			*ret_file = config->files[i];
			return node->place;
		}
	}
	*ret_file = config->document_count > 0 ? config->files[0] : "";
	return (struct json_place){ 0, 0 };
}

int config_change_reloadable(const struct config *old, const struct config *next, struct config_error *err)
{
	struct config_error ignored;
	struct config_scope scope = { .file = "", .err = err ? err : &ignored };

	for (size_t i = 0; i < config_section_field_count; i++) {
		const struct config_field *field = &config_section_fields[i];
		char in_force[CONFIG_SHOWN], wanted[CONFIG_SHOWN];

		if (field->change != CONFIG_CHANGE_RESTART || same_value(field, old, next))
			continue;
		snprintf(scope.path, sizeof(scope.path), "%s", field->section);
		return config_refuse(&scope, find_place(next, field, &scope.file), field->key,
				     "cannot change while spikewatchd runs (%s in force, %s wanted): restart it",
				     show(field, old, in_force), show(field, next, wanted));
	}
	return 0;
}

static bool same_keys(const struct config_metrics *a, const struct config_metrics *b)
{
	if (a->container_label_count != b->container_label_count)
		return false;
	for (size_t i = 0; i < a->container_label_count; i++)
		if (strcmp(a->container_labels[i], b->container_labels[i]) != 0)
			return false;
	return true;
}

static bool same_notify(const struct config_notify *a, const struct config_notify *b)
{
	if (strcmp(a->name, b->name) != 0 || strcmp(a->socket, b->socket) != 0 || strcmp(a->input, b->input) != 0 ||
	    a->timeout_ns != b->timeout_ns || a->retry_ns != b->retry_ns || a->tries != b->tries ||
	    a->max_per_hour != b->max_per_hour || a->privileged != b->privileged || a->by_default != b->by_default ||
	    a->word_count != b->word_count)
		return false;
	for (size_t i = 0; i < a->word_count; i++)
		if (strcmp(a->words[i], b->words[i]) != 0)
			return false;
	return true;
}

static bool same_notifies(const struct config *a, const struct config *b)
{
	if (a->notify_count != b->notify_count)
		return false;
	for (size_t i = 0; i < a->notify_count; i++)
		if (!same_notify(&a->notifies[i], &b->notifies[i]))
			return false;
	return true;
}

bool config_change_sections(const struct config *old, const struct config *next)
{
	for (size_t i = 0; i < config_section_field_count; i++)
		if (!same_value(&config_section_fields[i], old, next))
			return true;
	return old->incidents.captures != next->incidents.captures || !same_keys(&old->metrics, &next->metrics) ||
	       !same_notifies(old, next);
}

/* ---- entries ---- */

static const struct config_target *find_same_target(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];
	return NULL;
}

static const struct config_rule *find_rule(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			return &config->rules[i];
	return NULL;
}

static bool names(const struct config_rule *rule, const char *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target) == 0)
			return true;
	return false;
}

/* No name is twice in a list. */
static bool same_targets(const struct config_rule *a, const struct config_rule *b)
{
	if (a->target_count != b->target_count)
		return false;
	for (size_t i = 0; i < a->target_count; i++)
		if (!names(b, a->targets[i]))
			return false;
	return true;
}

static bool same_rule_notify(const struct config_rule *a, const struct config_rule *b)
{
	if (a->has_notify != b->has_notify || a->notify_count != b->notify_count)
		return false;
	for (size_t i = 0; i < a->notify_count; i++)
		if (strcmp(a->notify[i], b->notify[i]) != 0)
			return false;
	return true;
}

void config_change_count(const struct config *old, const struct config *next, struct config_change_counts *ret)
{
	struct config_change_counts counts = { 0 };

	for (size_t i = 0; i < next->target_count; i++) {
		const struct config_target *was = find_same_target(old, next->targets[i].name);

		counts.targets_added += !was;
		counts.targets_changed += was && !(config_target_same(was, &next->targets[i]) &&
						   config_target_captures_same(was, &next->targets[i]));
	}
	for (size_t i = 0; i < next->rule_count; i++) {
		const struct config_rule *was = find_rule(old, next->rules[i].name);

		counts.rules_added += !was;
		counts.rules_changed +=
			was && !(config_rule_same(was, &next->rules[i]) && same_targets(was, &next->rules[i]) &&
				 same_rule_notify(was, &next->rules[i]));
	}
	/* Names are unique: what is not new was there, and the others are gone. */
	counts.targets_removed = old->target_count - (next->target_count - counts.targets_added);
	counts.rules_removed = old->rule_count - (next->rule_count - counts.rules_added);
	*ret = counts;
}
