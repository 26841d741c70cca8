/*
 * hookline.c: a word is walked piece by piece: a piece is a placeholder, or one byte. Check, use and expansion are three ends of the same
 * walk, so they cannot disagree about what a placeholder is.
 *
 * Rejected: a shell, which would make every name of a process a program; quoting, which is right until somebody forgets it.
 */
#include "hookline.h"

#include "scope.h"

#include <errno.h>
#include <string.h>

static const char *const words[HOOKLINE_PLACEHOLDERS] = {
	[HOOKLINE_PID] = "{pid}",       [HOOKLINE_INCIDENT] = "{incident}", [HOOKLINE_RULE] = "{rule}",
	[HOOKLINE_TARGET] = "{target}", [HOOKLINE_NAME] = "{name}",
};

/* What stands at one place of a word. */
struct piece {
	enum hookline_placeholder placeholder; /* HOOKLINE_PLACEHOLDERS: none, the byte stands for itself */
	size_t len;                            /* in the word */
	bool stray;                            /* a { that begins nothing */
};

static struct piece piece_at(const char *at)
{
	if (*at != '{')
		return (struct piece){ HOOKLINE_PLACEHOLDERS, 1, false };
	if (at[1] == '{')
		return (struct piece){ HOOKLINE_PLACEHOLDERS, 2, false };
	for (size_t i = 0; i < HOOKLINE_PLACEHOLDERS; i++)
		if (strncmp(at, words[i], strlen(words[i])) == 0)
			return (struct piece){ (enum hookline_placeholder)i, strlen(words[i]), false };
	return (struct piece){ HOOKLINE_PLACEHOLDERS, 1, true };
}

int hookline_check(const char *word, size_t *ret_at)
{
	for (size_t at = 0; word[at] != '\0'; at += piece_at(word + at).len) {
		if (!piece_at(word + at).stray)
			continue;
		*ret_at = at;
		return -EINVAL;
	}
	return 0;
}

bool hookline_uses(const char *word, enum hookline_placeholder placeholder)
{
	for (size_t at = 0; word[at] != '\0'; at += piece_at(word + at).len)
		if (piece_at(word + at).placeholder == placeholder)
			return true;
	return false;
}

const char *hookline_safe(const char *text, char buf[HOOKLINE_SAFE_MAX])
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
	size_t len = strnlen(text, HOOKLINE_SAFE_MAX - 1);

	for (size_t i = 0; i < len; i++)
		buf[i] =
			strchr(i == 0 ? "-." : "", text[i]) == NULL && strchr(allowed, text[i]) != NULL ? text[i] : '_';
	buf[len] = '\0';
	return buf;
}

size_t hookline_expand(const char *word, const struct hookline_values *values, char *buf, size_t cap)
{
	size_t len = 0;

	for (size_t at = 0; word[at] != '\0';) {
		struct piece piece = piece_at(word + at);
		const char *text = word + at;
		size_t bytes = 1;

		if (piece.placeholder < HOOKLINE_PLACEHOLDERS) {
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
