/*
 * requests.h: what the daemon can be asked at its control socket, and the JSON document that answers it. docs/status.md describes both.
 *
 *     status [WORDS]     how it is, in pieces (statusanswer.h); words say what of it (statusquery.h)
 *     trigger [TARGET]   an incident now, of one target or of everything
 *     reload             the configuration is read again
 */
#ifndef SPIKEWATCH_REQUESTS_H
#define SPIKEWATCH_REQUESTS_H

#include "control.h"
#include "incidents.h"
#include "overview.h"
#include "sink.h"

/* Room for what a reload has to say. */
#define REQUESTS_MESSAGE_MAX 1024

/* Who does what is asked. */
struct requests {
	void (*overview)(void *ctx, struct overview *ret);
	int (*trigger)(void *ctx, const struct target *target,
		       struct incidents_ticket *ret); /* target NULL: everything */
	int (*reload)(void *ctx, char *message);      /* message: what changed, or (negative return) why nothing did */
	void *ctx;
};

/*
 * Appends the answer to one line (without newline, any other byte but NUL may be in it) to ret. What cannot be done, or is not known, is
 * answered too: by an object with `error`. What comes in pieces is left to rest; requests must outlive it. 0; -ENOMEM; -EFBIG: it does not fit into
 * ret->max.
 */
int requests_answer(const struct requests *requests, const char *line, struct buffer *ret, struct control_rest *rest);

#endif
