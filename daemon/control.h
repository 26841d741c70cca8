/*
 * control.h: the socket at which the daemon says how it is: a unix stream socket, served by the main loop.
 *
 * A client sends one request, a line of at most CONTROL_REQUEST_MAX bytes, gets one answer and the end of the connection. Whoever
 * stalls, talks nonsense, leaves early or never reads is dropped after CONTROL_PATIENCE_NS (or a little more) and has held up nobody.
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

/* Of all answers that are being handed out together. */
#define CONTROL_ANSWERS_MAX (64u << 20)

/* For sending the request; then as much again for taking the answer, and more for a long one: a machine in distress is when it is asked for. */
#define CONTROL_PATIENCE_NS (2 * NS_PER_S)
#define CONTROL_PATIENCE_PER_MIB_NS NS_PER_S

struct control_options {
	struct sd_event *event; /* must outlive the control */
	const char *path;       /* of the socket; not used when one is handed over; must outlive the control too */
	int handed;             /* a listening unix stream socket, non-blocking, the control's from then on; 0: none */
	/*
	 * Appends the answer to ret, of which `max` is the room there is. request: without newline, any other byte but NUL may be in it.
	 * 0; -errno: the client gets none.
	 */
	int (*answer)(void *ctx, const char *request, struct buffer *ret);
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
