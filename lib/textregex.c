/*
 * textregex.c: glibc looks for an expression at one place of the text after the other, each time as far as it goes: "([a-z]+)+!" takes 0.2 s of
 * 8 KiB of "a", and whoever starts processes can have that as often as he likes. With "^.*" in front there is but one place to begin at, and
 * the automaton goes through the text once: 0.06 ms. What the expression says of beginnings (^) holds there as before, because ".*" may be empty.
 *
 * Two things are in the way. A ")" without "(" is a character, and would end the group that is put around: such an expression is refused. And behind
 * a ".*" glibc takes what follows a newline for a beginning: newlines, of text and expression, become vertical tabs, which are in the same classes.
 *
 * The automaton's states are made as they are met, and kept: with "a.{30}b" any text adds its own. So it is made anew after so much text.
 *
 * Rejected: a shorter text (what tells two Java processes apart is at the end of theirs); a time limit (nothing interrupts regexec(3)).
 */
#include "textregex.h"

#include "scope.h"

#include <errno.h>
#include <locale.h>
#include <regex.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At some 3 KB for a state, one for a byte at worst: 50 MB. Making it anew costs some 10 us. */
#define BYTES_PER_MAKING 16384u

struct textregex {
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

static void free_unfinished(struct textregex **regex)
{
	free(*regex);
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

bool textregex_is_balanced(const char *pattern)
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

int textregex_new(const char *pattern, struct textregex **ret)
{
	static const char before[] = "^.*(", after[] = ")";
	size_t cap = strlen(pattern) + sizeof(before) + sizeof(after);
	AUTO(free_unfinished) struct textregex *regex = NULL;

	if (!textregex_is_balanced(pattern))
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

void textregex_free(struct textregex *regex)
{
	if (!regex)
		return;

	regfree(&regex->compiled);
	free(regex);
}

/* Without memory for another one it is kept as it is. */
static void make_anew(struct textregex *regex)
{
	regex_t compiled;

	regex->matched_bytes = 0;
	if (compile(regex->anchored, &compiled) < 0)
		return;

	regfree(&regex->compiled);
	regex->compiled = compiled;
}

bool textregex_matches(struct textregex *regex, const char *text)
{
	if (regex->matched_bytes > BYTES_PER_MAKING)
		make_anew(regex);
	regex->matched_bytes += strlen(text);

	AUTO_FREE char *one_line = strchr(text, '\n') ? strdup(text) : NULL;

	if (one_line)
		hide_newlines(one_line);

	return regexec(&regex->compiled, one_line ? one_line : text, 0, NULL, 0) == 0;
}
