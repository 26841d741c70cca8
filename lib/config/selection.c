/*
 * selection.c: what a client asks of the status, as a line of words, each a key or a key and a value;
 * matching of processes and cgroups with target entries; and regular expressions in linear time.
 *
 * Values are names and globs from anywhere: bytes that would end a word or a line are written as %XX,
 * so that every name can be asked for. Rejected: JSON, as in the answer: a line can be typed.
 *
 * Expressions. glibc tries an expression at every place of the text, each time to the end:
 * "([a-z]+)+!" takes 0.2 s for 8 KiB of "a", which any process could cause again and again by its
 * arguments. With "^.*" in front there is only one place to begin at, and the automaton walks the
 * text once: 0.06 ms. What the expression says of beginnings (^) holds as before, because ".*" may be
 * empty. Two details: a ")" without "(" is a character, and would end the group that is put around, so
 * such an expression is refused; and after ".*" glibc takes what follows a newline for a beginning, so
 * newlines of text and expression become vertical tabs, which are in the same classes. States of the
 * automaton are made as they are met, and kept: with "a.{30}b" any text adds new ones. So it is
 * compiled again after a number of bytes. Rejected: a shorter text (what tells two Java processes
 * apart is at the end of theirs); a time limit (nothing interrupts regexec(3)).
 *
 * A target entry compiles to one expression at most, and matching is one switch.
 */
#include "lib/config/selection.h"

#include "lib/base/base.h"
#include "lib/base/text.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/target.h"

#include <errno.h>
#include <fnmatch.h>
#include <locale.h>
#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- regular expressions ---- */

/* At some 3 KB for a state, one for a byte at worst: 50 MB. Making it anew costs some 10 us. */
#define BYTES_PER_MAKING 16384u

struct text_regex {
	regex_t compiled;
	size_t matched_bytes; /* since it was compiled */
	char anchored[];
};

/* In the C locale every byte is a character. Taking it allocates nothing. */
static int compile(const char *anchored, regex_t *ret)
{
	locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
	int r = regcomp(ret, anchored, REG_EXTENDED | REG_NOSUB);

	uselocale(before);
	return r == 0 ? 0 : r == REG_ESPACE ? -ENOMEM : -EINVAL;
}

static void hide_newlines(char *text)
{
	for (char *at = text; (at = strchr(at, '\n')) != NULL;)
		*at = '\v';
}

/* Where the set that begins at `at` ends; `at` if it is none. */
static const char *set_end(const char *at)
{
	const char *end = at + 1 + (at[1] == '^');

	for (end += *end == ']'; *end != '\0' && *end != ']'; end++) {
		const char *inner =
			*end == '[' && end[1] != '\0' && strchr(".:=", end[1]) ? strchr(end + 2, ']') : NULL;

		end = inner ? inner : end;
	}

	return *end == ']' ? end : at;
}

bool text_regex_is_balanced(const char *pattern)
{
	size_t depth = 0;

	for (const char *at = pattern; *at != '\0'; at++) {
		if (*at == '\\' && at[1] != '\0') {
			at++;
		} else if (*at == '[') {
			at = set_end(at);
		} else if (*at == ')' && depth == 0) {
			return false;
		} else {
			depth += *at == '(';
			depth -= *at == ')';
		}
	}

	return true;
}

/*
 * Copies pattern. 0; -EINVAL: it is no expression, or has a ) without a ( that is not escaped;
 * -ENOMEM.
 */
static int text_regex_new(const char *pattern, struct text_regex **ret)
{
	static const char before[] = "^.*(", after[] = ")";
	size_t cap = strlen(pattern) + sizeof(before) + sizeof(after);
	AUTO_FREE struct text_regex *regex = NULL;

	if (!text_regex_is_balanced(pattern))
		return -EINVAL;
	regex = malloc(sizeof(*regex) + cap);
	if (!regex)
		return -ENOMEM;

	regex->matched_bytes = 0;
	snprintf(regex->anchored, cap, "%s%s%s", before, pattern, after);
	hide_newlines(regex->anchored);
	int r = compile(regex->anchored, &regex->compiled);
	if (r < 0)
		return r;

	*ret = TAKE(regex);
	return 0;
}

/* NULL is fine. */
static void text_regex_free(struct text_regex *regex)
{
	if (!regex)
		return;

	regfree(&regex->compiled);
	free(regex);
}

/* Without memory for another one it is kept as it is. */
static void make_anew(struct text_regex *regex)
{
	regex_t compiled;

	regex->matched_bytes = 0;
	if (compile(regex->anchored, &compiled) < 0)
		return;

	regfree(&regex->compiled);
	regex->compiled = compiled;
}

/*
 * Whether it matches somewhere in text. One thread at a time. 8 KiB take some 0.1 ms, and 20 ms for
 * expressions that are made for it.
 */
static bool text_regex_matches(struct text_regex *regex, const char *text)
{
	if (regex->matched_bytes > BYTES_PER_MAKING)
		make_anew(regex);
	regex->matched_bytes += strlen(text);

	AUTO_FREE char *one_line = strchr(text, '\n') ? strdup(text) : NULL;

	if (one_line)
		hide_newlines(one_line);

	return regexec(&regex->compiled, one_line ? one_line : text, 0, NULL, 0) == 0;
}

/* ---- matching ---- */

struct match {
	const struct config_target *entry;
	struct text_regex *regex; /* CONFIG_CMDLINE; else NULL */
};

int match_new(const struct config_target *entry, struct match **ret)
{
	struct match *match = calloc(1, sizeof *match);

	if (!match)
		return -ENOMEM;

	match->entry = entry;
	int r = entry->selector == CONFIG_CMDLINE ? text_regex_new(entry->pattern, &match->regex) : 0;
	if (r < 0) {
		free(match);
		return r;
	}
	*ret = match;

	return 0;
}

void match_free(struct match *match)
{
	if (!match)
		return;

	text_regex_free(match->regex);
	free(match);
}

bool match_is_by_path(const struct match *match)
{
	const struct config_target *entry = match->entry;

	return entry->selector >= CONFIG_CGROUP && entry->per == CONFIG_PER_CGROUP;
}

unsigned match_needs(const struct match *match)
{
	static const unsigned needs[] = {
		[CONFIG_PID] = 0,
		[CONFIG_PIDFILE] = 0,
		[CONFIG_COMM] = MATCH_COMM,
		[CONFIG_EXE] = MATCH_EXE,
		[CONFIG_CMDLINE] = MATCH_CMDLINE,
		[CONFIG_CGROUP] = MATCH_CGROUP,
		[CONFIG_UNIT] = MATCH_CGROUP,
		[CONFIG_CONTAINERS] = MATCH_CGROUP | MATCH_CONTAINER,
	};

	return match_is_by_path(match) ? 0 : needs[match->entry->selector];
}

/* Backslashes are part of names: systemd writes "-" as "\\x2d" in some. */
bool match_unit_name(const char *glob, const char *name)
{
	return fnmatch(glob, name, FNM_NOESCAPE | FNM_EXTMATCH) == 0;
}

/* Whether one component of path, or only the last, matches the glob. */
static bool component_matches(const char *glob, const char *path, bool only_last)
{
	char component[256];

	while (*path) {
		size_t len = strcspn(path, "/");
		bool last = path[len] == '\0';

		if (len && len < sizeof component && (last || !only_last)) {
			memcpy(component, path, len);
			component[len] = '\0';
			if (match_unit_name(glob, component))
				return true;
		}
		path += len + (last ? 0 : 1);
	}

	return false;
}

/* All that the entry asks for. Labels that are not known are none that match. */
static bool labels_match(const struct config_target *entry, const struct labels *labels)
{
	for (size_t i = 0; i < entry->label_count; i++) {
		const char *value = labels ? labels_get(labels, entry->labels[i].key) : NULL;

		if (!value || fnmatch(entry->labels[i].pattern, value, 0) != 0)
			return false;
	}

	return true;
}

static bool is_selected(const struct config_target *entry, const struct container *container)
{
	return container && container_matches(container, entry->pattern) && labels_match(entry, container->labels);
}

bool match_process(const struct match *match, const struct match_facts *facts, int32_t pidfile_pid)
{
	const struct config_target *entry = match->entry;

	if (match_is_by_path(match))
		return false;

	switch (entry->selector) {
	case CONFIG_PID:
		return facts->pid == entry->pid;
	case CONFIG_PIDFILE:
		return pidfile_pid > 0 && facts->pid == pidfile_pid;
	case CONFIG_COMM:
		return facts->comm && strcmp(facts->comm, entry->pattern) == 0;
	case CONFIG_EXE:
		return facts->exe && fnmatch(entry->pattern, facts->exe, FNM_PATHNAME) == 0;
	case CONFIG_CMDLINE:
		return facts->cmdline && text_regex_matches(match->regex, facts->cmdline);
	case CONFIG_CGROUP:
		return facts->cgroup && cgroup_glob(entry->pattern, facts->cgroup);
	case CONFIG_UNIT:
		return facts->cgroup && component_matches(entry->pattern, facts->cgroup, false);
	case CONFIG_CONTAINERS:
		return is_selected(entry, facts->container);
	}

	return false;
}

/* The path itself, or any that it is below. */
static bool is_below(const char *glob, const char *path)
{
	char above[4096];
	size_t len = strlen(path);

	if (len >= sizeof(above))
		return false;
	memcpy(above, path, len + 1);
	while (!cgroup_glob(glob, above)) {
		char *slash = strrchr(above, '/');

		if (!slash || slash == above)
			return false;
		*slash = '\0';
	}

	return true;
}

bool match_contains(const struct match *match, const struct match_facts *facts)
{
	const struct config_target *entry = match->entry;

	if (!match_is_by_path(match) || !facts->cgroup)
		return false;
	if (entry->selector == CONFIG_CGROUP)
		return is_below(entry->pattern, facts->cgroup);
	if (entry->selector == CONFIG_UNIT)
		return component_matches(entry->pattern, facts->cgroup, false);

	return is_selected(entry, facts->container);
}

bool match_cgroup(const struct match *match, const char *path, const struct container *container)
{
	if (match->entry->selector == CONFIG_CGROUP)
		return cgroup_glob(match->entry->pattern, path);
	if (match->entry->selector == CONFIG_UNIT)
		return component_matches(match->entry->pattern, path, true);
	if (match->entry->selector == CONFIG_CONTAINERS)
		return is_selected(match->entry, container);

	return false;
}

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

	if (text_parse_u64(value, end, &number) != end || number == 0 || number > STATUS_QUERY_NEAREST_MAX)
		return -EINVAL;

	*ret = number;
	return 0;
}

static int take_name(struct status_query_line *line, char *value)
{
	if (line->query.name_count == STATUS_QUERY_NAMES_MAX)
		return -E2BIG;

	line->names[line->query.name_count++] = value;
	return 0;
}

static int take_word(struct status_query_line *line, char *word)
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

int status_query_parse(const char *line, struct status_query_line *ret)
{
	size_t len = strlen(line);
	char *word = ret->text;

	ret->query = (struct status_query){ .names = ret->names };
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

int status_query_format(const struct status_query *query, char *buf, size_t cap)
{
	struct words words = { .buf = buf, .cap = cap < STATUS_QUERY_LINE_MAX ? cap : STATUS_QUERY_LINE_MAX };
	char number[32];

	if (query->nearest > STATUS_QUERY_NEAREST_MAX)
		return -EINVAL;
	if (query->name_count > STATUS_QUERY_NAMES_MAX)
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

static bool is_named(const struct status_query *query, const char *target, const char *entry, const char *rule)
{
	for (size_t i = 0; i < query->name_count; i++) {
		const char *name = query->names[i];

		if (matches(name, target) || matches(name, entry) || matches(name, rule))
			return true;
	}

	return query->name_count == 0;
}

bool status_query_wants(const struct status_query *query, const char *target, const char *entry, const char *rule)
{
	if (query->target && !matches(query->target, target) && !matches(query->target, entry))
		return false;
	if (query->rule && !matches(query->rule, rule))
		return false;

	return is_named(query, target, entry, rule);
}
