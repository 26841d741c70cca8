/*
 * statusquery.c: words, each a key or a key and a value. Values are names and globs of anybody's making: what would end a word or a line is
 * written as %XX, so that every name can be asked for.
 *
 * Rejected: JSON, as in the answer: a line can be typed.
 */
#include "statusquery.h"

#include "text.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | 0x20) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* In place. False: a % without two digits after it, or one that means NUL. */
static bool decode(char *text)
{
	char *out = text;

	for (const char *in = text; *in; in++) {
		int high, low;

		if (*in != '%') {
			*out++ = *in;
			continue;
		}
		high = hex_digit(in[1]);
		low = high < 0 ? -1 : hex_digit(in[2]);
		if (low < 0 || (high | low) == 0)
			return false;
		*out++ = (char)(high << 4 | low);
		in += 2;
	}
	*out = '\0';

	return true;
}

static int take_number(const char *value, uint64_t *ret)
{
	const char *end = value + strlen(value);
	uint64_t number;

	if (text_parse_u64(value, end, &number) != end || number == 0 || number > STATUSQUERY_NEAREST_MAX)
		return -EINVAL;

	*ret = number;
	return 0;
}

static int take_name(struct statusquery_line *line, char *value)
{
	if (line->query.name_count == STATUSQUERY_NAMES_MAX)
		return -E2BIG;

	line->names[line->query.name_count++] = value;
	return 0;
}

static int take_word(struct statusquery_line *line, char *word)
{
	char *value = strchr(word, '=');

	if (strcmp(word, "brief") == 0) {
		line->query.brief = true;
		return 0;
	}
	if (!value || value[1] == '\0')
		return -EINVAL;

	*value++ = '\0';
	if (!decode(value))
		return -EINVAL;
	if (strcmp(word, "nearest") == 0)
		return take_number(value, &line->query.nearest);
	if (strcmp(word, "name") == 0)
		return take_name(line, value);
	if (strcmp(word, "target") == 0)
		line->query.target = value;
	else if (strcmp(word, "rule") == 0)
		line->query.rule = value;
	else
		return -EINVAL;

	return 0;
}

int statusquery_parse(const char *line, struct statusquery_line *ret)
{
	size_t len = strlen(line);
	char *word = ret->text;

	ret->query = (struct statusquery){ .names = ret->names };
	if (len >= sizeof(ret->text))
		return -E2BIG;
	memcpy(ret->text, line, len + 1);

	for (;;) {
		char *end;
		bool last;
		int r;

		word += strspn(word, " ");
		if (*word == '\0')
			return 0;
		end = word + strcspn(word, " ");
		last = *end == '\0';
		*end = '\0';
		r = take_word(ret, word);
		if (r < 0 || last)
			return r;
		word = end + 1;
	}
}

/* ---- writing ---- */

struct words {
	char *buf;
	size_t len, cap;
	int error; /* the first */
};

static void put(struct words *words, const char *text)
{
	size_t len = strlen(text);

	if (words->error == 0 && words->cap - words->len <= len)
		words->error = -E2BIG;
	if (words->error < 0)
		return;

	memcpy(words->buf + words->len, text, len + 1);
	words->len += len;
}

static void put_key(struct words *words, const char *key)
{
	if (words->len > 0)
		put(words, " ");
	put(words, key);
}

static void put_glob(struct words *words, const char *key, const char *glob)
{
	char piece[8];

	if (!glob)
		return;
	if (*glob == '\0' && words->error == 0)
		words->error = -EINVAL;

	put_key(words, key);
	for (const unsigned char *c = (const unsigned char *)glob; *c; c++) {
		snprintf(piece, sizeof(piece), *c <= ' ' || *c == 0x7f || *c == '%' ? "%%%02x" : "%c", *c);
		put(words, piece);
	}
}

int statusquery_format(const struct statusquery *query, char *buf, size_t cap)
{
	struct words words = { .buf = buf, .cap = cap < STATUSQUERY_LINE_MAX ? cap : STATUSQUERY_LINE_MAX };
	char number[32];

	if (query->nearest > STATUSQUERY_NEAREST_MAX)
		return -EINVAL;
	if (query->name_count > STATUSQUERY_NAMES_MAX)
		return -E2BIG;

	put(&words, "");
	if (query->brief)
		put_key(&words, "brief");
	if (query->nearest > 0) {
		snprintf(number, sizeof(number), "nearest=%u", (unsigned)query->nearest);
		put_key(&words, number);
	}
	put_glob(&words, "target=", query->target);
	put_glob(&words, "rule=", query->rule);
	for (size_t i = 0; i < query->name_count; i++)
		put_glob(&words, "name=", query->names[i]);

	return words.error;
}

/* ---- choosing ---- */

static bool matches(const char *glob, const char *name)
{
	return fnmatch(glob, name, 0) == 0;
}

static bool is_named(const struct statusquery *query, const char *target, const char *entry, const char *rule)
{
	for (size_t i = 0; i < query->name_count; i++) {
		const char *name = query->names[i];

		if (matches(name, target) || matches(name, entry) || matches(name, rule))
			return true;
	}

	return query->name_count == 0;
}

bool statusquery_wants(const struct statusquery *query, const char *target, const char *entry, const char *rule)
{
	if (query->target && !matches(query->target, target) && !matches(query->target, entry))
		return false;
	if (query->rule && !matches(query->rule, rule))
		return false;

	return is_named(query, target, entry, rule);
}

bool statusquery_chooses(const struct statusquery *query)
{
	return query->target || query->rule || query->name_count > 0;
}
