/*
 * answer.h: reading the daemon's answers (docs/status.md), which are not trusted: what is missing or of another type is nothing. A node may
 * be NULL everywhere: of nothing, nothing.
 */
#ifndef SPIKEWATCH_ANSWER_H
#define SPIKEWATCH_ANSWER_H

#include "json.h"
#include "text.h"
#include "units.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The member called key, or NULL. */
const struct json_node *answer_member(const struct json_node *node, const char *key);

/* The first element of the array called key, or NULL. */
const struct json_node *answer_first(const struct json_node *node, const char *key);

/* The number called key, or otherwise. */
double answer_number(const struct json_node *node, const char *key, double otherwise);

/* The same as a count or a time; what cannot be one is 0. */
uint64_t answer_whole(const struct json_node *node, const char *key);

/* The text called key, or "". */
const char *answer_text(const struct json_node *node, const char *key);

/* Whether the member called key is true. */
bool answer_is_true(const struct json_node *node, const char *key);

/* A time in nanoseconds, a number of bytes, for people. Return buf. */
const char *answer_duration(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX]);
const char *answer_bytes(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX]);

/* The text called key, harmless, cut to what buf (an array) has room for. */
#define ANSWER_TEXT(node, key, buf) \
	(text_escape(buf, sizeof(buf), answer_text(node, key), strlen(answer_text(node, key))), buf)

#endif
