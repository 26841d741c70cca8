/*
 * ask.h: one question to the running daemon at its control socket, one document back. Parsed within limits, so that what a stranger at
 * the socket says is safe to look at.
 */
#ifndef SPIKEWATCH_ASK_H
#define SPIKEWATCH_ASK_H

#include "json.h"

#include <stdint.h>

struct ask {
	const char *command; /* what messages begin with: "spikewatch status" */
	const char *socket;  /* NULL: the daemon of whoever asks, then the system's */
	const char *request; /* a line, without newline; see docs/status.md */
	unsigned patience_s; /* for the answer; 0: 5 */
};

/*
 * Asks, and says on stderr why there is no answer. EXIT_OK and *ret, whose root is an object: json_document_free; EXIT_TROUBLE: no daemon
 * answers, or what answers is none.
 */
int ask_daemon(const struct ask *ask, struct json_document **ret);

/* For AUTO. */
void ask_release(struct json_document **document);

#endif
