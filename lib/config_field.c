/*
 * config_field.c: one row of a table and one JSON value make one member of a struct, or one message. Every message says
 * what was expected, where possible with an example that could be pasted.
 */
#include "config_field.h"

#include "listenaddr.h"
#include "scope.h"
#include "text.h"
#include "units.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beyond this a double does not hold every whole number. */
#define COUNT_MAX 9007199254740992.0

int config_refuse(const struct config_scope *scope, struct json_place place, const char *key, const char *format, ...)
{
	struct config_error *err = scope->err;
	char shown[64] = "";
	va_list args;

	*err = (struct config_error){ .line = place.line, .column = place.column };
	snprintf(err->file, sizeof(err->file), "%s", scope->file);
	if (key != NULL)
		text_escape(shown, sizeof(shown), key, strlen(key));
	snprintf(err->key, sizeof(err->key), "%s%s%s", scope->path, scope->path[0] != '\0' && key != NULL ? "." : "",
		 shown);
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return -EINVAL;
}

const char *config_quote(const char *text, size_t len, char buf[CONFIG_SHOWN])
{
	buf[0] = '"';
	text_escape(buf + 1, CONFIG_SHOWN - 2, text, len);
	memcpy(buf + strlen(buf), "\"", 2);
	return buf;
}

const char *config_found(const struct json_node *node, char buf[CONFIG_SHOWN])
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

void config_guess_offer(struct config_guess *guess, const char *candidate)
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

const char *config_guess_say(const struct config_guess *guess, char *buf, size_t cap)
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

int config_read_duration(const struct config_scope *scope, const struct json_node *node, uint64_t *ret_ns)
{
	static const struct quantity quantity = { "a duration", "10ms", units_duration };

	return read_quantity(scope, node, &quantity, ret_ns);
}

int config_read_bytes(const struct config_scope *scope, const struct json_node *node, uint64_t *ret_bytes)
{
	static const struct quantity quantity = { "a size", "512MiB", units_bytes };

	return read_quantity(scope, node, &quantity, ret_bytes);
}

int config_read_percent(const struct config_scope *scope, const struct json_node *node, double *ret)
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

int config_read_number(const struct config_scope *scope, const struct json_node *node, double *ret)
{
	char shown[CONFIG_SHOWN];

	if (node->type == JSON_NUMBER && node->number >= 0) {
		*ret = node->number;
		return 0;
	}
	return config_refuse_value(scope, node, "expected a number of at least 0, without unit and quotes, found %s",
				   config_found(node, shown));
}

int config_read_text(const struct config_scope *scope, const struct json_node *node, size_t max, const char **ret)
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

int config_read_name(const struct config_scope *scope, const struct json_node *node, const char **ret)
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

int config_read_choice(const struct config_scope *scope, const struct json_node *node, const char *const *choices,
		       unsigned *ret)
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
	*ret = path;
	return 0;
}

static int read_listen(const struct config_scope *scope, const struct json_node *node, const char **ret)
{
	struct listenaddr address;
	char shown[CONFIG_SHOWN];

	if (node->type != JSON_STRING ||
	    (node->text_len > 0 && listenaddr_parse(node->text, node->text_len, &address) < 0))
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

void config_field_defaults(const struct config_field *table, size_t count, void *base)
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
	struct config_guess guess = { .word = node->key };
	char hint[240];

	for (size_t i = 0; i < count; i++)
		if (strcmp(table[i].section, section) == 0)
			config_guess_offer(&guess, table[i].key);
	return config_refuse(scope, node->key_place, node->key, "unknown key; %s",
			     config_guess_say(&guess, hint, sizeof(hint)));
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

int config_field_apply(const struct config_scope *scope, const struct config_field *table, size_t count,
		       const char *section, const struct json_node *object, void *base, struct config_origin *origins)
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

/* A bracket or backslash that does not end makes fnmatch(3) match something else than was meant, or nothing. */
int config_check_glob(const struct config_scope *scope, const struct json_node *node)
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
