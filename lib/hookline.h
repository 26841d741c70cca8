/*
 * hookline.h: one word of a command that an incident runs: text with placeholders, "{incident}/core.{pid}". There is no shell: a word
 * stays one word, whatever its placeholders stand for. Pure.
 *
 *     {pid} {incident} {rule} {target} {name}      {{ is {, and a } outside of a placeholder is a }
 */
#ifndef SPIKEWATCH_HOOKLINE_H
#define SPIKEWATCH_HOOKLINE_H

#include <stdbool.h>
#include <stddef.h>

enum hookline_placeholder {
	HOOKLINE_PID,      /* of the process that is looked at */
	HOOKLINE_INCIDENT, /* the directory of the incident while it is being written */
	HOOKLINE_RULE,
	HOOKLINE_TARGET,
	HOOKLINE_NAME, /* of the command itself */
	HOOKLINE_PLACEHOLDERS,
};

/* What each stands for; NULL counts as "". */
struct hookline_values {
	const char *text[HOOKLINE_PLACEHOLDERS];
};

/* All of them, for a message. */
#define HOOKLINE_LIST "{pid}, {incident}, {rule}, {target}, {name}"

/* 0; -EINVAL: something in braces is no placeholder: it begins at *ret_at. */
int hookline_check(const char *word, size_t *ret_at);

/* Whether a word that hookline_check found good has this placeholder. */
bool hookline_uses(const char *word, enum hookline_placeholder placeholder);

/* Room for a name made safe. */
#define HOOKLINE_SAFE_MAX 129

/*
 * Strangers' text as it may stand in a word: every byte but A-Z a-z 0-9 _ . - becomes _, and so does a - or . in front, so that it is
 * neither an option nor a path. Cut to its room. Returns buf.
 */
const char *hookline_safe(const char *text, char buf[HOOKLINE_SAFE_MAX]);

/*
 * Writes the word with its placeholders replaced into buf, terminated, if there is room; braces that are no placeholder stay as they are.
 * Returns the length that it has, as snprintf(3) does.
 */
size_t hookline_expand(const char *word, const struct hookline_values *values, char *buf, size_t cap);

#endif
