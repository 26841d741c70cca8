/*
 * status_document.h: the status document (docs/status.md), made piece by piece: of ten thousand
 * targets it has twenty megabytes, and between two pieces the loop judges rules and answers others.
 *
 * It has the targets that exist when it is begun, less those that end before their turn. Each is as
 * of its turn, all of its rules at the same moment, and says when that was.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_STATUS_STATUS_DOCUMENT_H
#define SPIKEWATCH_DAEMON_SERVICE_STATUS_STATUS_DOCUMENT_H

#include "daemon/service/health/overview.h"
#include "lib/base/base.h"
#include "lib/base/io.h"

/*
 * A piece ends at the first target after so many bytes, after so many targets, or after so long:
 * matching a malicious glob against a malicious name may take milliseconds.
 */
#define STATUS_ANSWER_PIECE (64u << 10)

#define STATUS_ANSWER_PIECE_NS (2 * NS_PER_MS)

/* The most that a piece takes: the head, or a target with very many rules. */
#define STATUS_ANSWER_ROOM (1u << 20)

struct status_answer;

struct status_answer_options {
	void (*overview)(void *ctx, struct overview *ret); /* asked for each piece; must outlive the answer */
	void *ctx;
	struct clock clock; /* how long a piece has taken */
	size_t max_bytes;   /* 0: STATUS_ANSWER_MAX */
};

/* words: as status_query_parse. 0; -EINVAL, -E2BIG: they cannot be parsed; -ENOMEM. */
int status_answer_new(const struct status_answer_options *options, const char *words, struct status_answer **ret);

/*
 * Appends the next piece to ret, perhaps nothing; ret->max, if there is one, must leave
 * STATUS_ANSWER_ROOM. 1: there is more; 0: this was the last; -ENOMEM; -EFBIG: what comes before
 * the targets does not fit.
 */
int status_answer_more(struct status_answer *answer, struct buffer *ret);

/* NULL is fine. */
void status_answer_free(struct status_answer *answer);
CLEANUP(status_answer, free);

#endif
