/*
 * control.h: the socket at which the daemon says how it is: a unix stream socket, served by the main loop.
 *
 * A client sends one request, a line of at most CONTROL_REQUEST_MAX bytes, gets one answer and the end of the connection. A long answer is made
 * piece by piece, the next one when the last one was taken, and in between the loop does what is more urgent. Whoever
 * stalls, talks nonsense, leaves early or never reads is dropped after a while and has held up nobody.
 */
#ifndef SPIKEWATCH_CONTROL_H
#define SPIKEWATCH_CONTROL_H

#include "clock.h"
#include "sink.h"

#include <stddef.h>

struct control;
struct sd_event;

/* At a time; further ones are refused by closing. */
#define CONTROL_CLIENTS_MAX 16

/* With its newline. */
#define CONTROL_REQUEST_MAX 512

/* A piece of an answer; of each client one is kept until it was taken. */
#define CONTROL_PIECE_MAX (2u << 20)

/* For sending the request, or a little more. */
#define CONTROL_PATIENCE_NS (2 * NS_PER_S)

/* For taking each piece of the answer: a machine in distress is when it is asked for. What is kept for so long is a place and a piece. */
#define CONTROL_PIECE_PATIENCE_NS (5 * NS_PER_S)

/* What is still to be answered. {0}: nothing. */
struct control_rest {
	/* Appends the next piece, which may be empty. 1: there is more; 0: this was the last; -errno: the client is dropped in the middle. */
	int (*more)(void *ctx, struct buffer *ret);
	void (*end)(void *ctx); /* called once: after the last piece, or when the client is gone */
	void *ctx;
};

struct control_options {
	struct sd_event *event; /* must outlive the control */
	const char *path;       /* of the socket; not used when one is handed over; must outlive the control too */
	int handed;             /* a listening unix stream socket, non-blocking, the control's from then on; 0: none */
	/*
	 * Appends the answer to ret, at most CONTROL_PIECE_MAX, or leaves all or some of it to rest. request: without newline, any other byte but
	 * NUL may be in it. 0; -errno: the client gets none, and rest was not set.
	 */
	int (*answer)(void *ctx, const char *request, struct buffer *ret, struct control_rest *rest);
	void *ctx;
};

/*
 * Listens. The socket is the one that is handed over (handedfds.h), also closed if this fails, or made at path, with mode 0660; one that a
 * dead daemon has left there is replaced. 0; -ENOMEM; -EADDRINUSE: somebody else answers there; -EEXIST: something is there that is no
 * socket; -errno.
 */
int control_new(const struct control_options *options, struct control **ret);

/* Drops all clients and removes the socket, if control_new made it. NULL is fine. */
void control_free(struct control *control);

#endif
