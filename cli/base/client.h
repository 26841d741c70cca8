/*
 * client.h: one request to the running daemon at its control socket, one document back
 * (docs/status.md). The answer is not trusted: it is parsed within limits, and what is missing or
 * of another type counts as absent. A node may be NULL everywhere.
 */
#ifndef SPIKEWATCH_CLI_BASE_CLIENT_H
#define SPIKEWATCH_CLI_BASE_CLIENT_H

#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/units.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The member called key, or NULL. */
static inline const struct json_node *answer_member(const struct json_node *node, const char *key)
{
	return node ? json_member(node, key) : NULL;
}

/* The number called key, or otherwise. */
static inline double answer_number(const struct json_node *node, const char *key, double otherwise)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_NUMBER ? found->number : otherwise;
}

/* The same as a count or a time; anything else is 0. */
uint64_t answer_whole(const struct json_node *node, const char *key);

/* The text called key, or "". */
const char *answer_text(const struct json_node *node, const char *key);

/* The text called key, escaped, cut to the size of buf (an array). */
#define ANSWER_TEXT(node, key, buf) \
	(text_escape(buf, sizeof(buf), answer_text(node, key), strlen(answer_text(node, key))), buf)

struct ask {
	const char *command; /* begins messages: "spikewatch status" */
	const char *socket;  /* NULL: that of the caller's own daemon, then the system's */
	const char *request; /* a line, without newline; see docs/status.md */
	unsigned patience_s; /* for the answer; 0: 5 */
};

/*
 * Sends the request, and prints why there is no answer. EXIT_OK and *ret, whose root is an object:
 * json_document_free; EXIT_TROUBLE: there is no answer, or it is not a document.
 */
int ask_daemon(const struct ask *ask, struct json_document **ret);

#endif
