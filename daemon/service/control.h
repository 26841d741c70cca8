/*
 * control.h: another configuration for a daemon that runs: all of it at once, or none of it.
 *
 * Unchanged targets stay what they are, with their past; unchanged rules keep their history and
 * cooldowns; no tick is missed. What only a restart can change (config_change.h) makes the whole of
 * it refused.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_CONTROL_H
#define SPIKEWATCH_DAEMON_SERVICE_CONTROL_H

#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/session/session.h"
#include "daemon/service/health/overview.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/pacing.h"
#include "lib/model/target.h"

#include <stddef.h>

/*
 * handed_fds.h: the sockets that systemd has opened for the daemon (sd_listen_fds(3)), told apart
 * by what they are, not by their order or name: a unit may hand over either, both or none.
 */

/* Zeroed: none. A descriptor is 0 if there is none: systemd's begin at 3. */
struct handed_fds {
	int control;    /* listens, unix stream */
	int metrics;    /* listens, TCP over IPv4 or IPv6 */
	size_t unknown; /* handed over, neither of these or the second of its kind: closed */
};

/*
 * Takes what is handed over, non-blocking and close-on-exec, and removes it from the environment:
 * only the first call of a process gets any, and it must come before anything opens a descriptor of
 * its own by these numbers. 0 or -errno (then *ret is as if there were none).
 */
int handed_fds_take(struct handed_fds *ret);

/* Closes what is still in it: whoever takes a descriptor over sets it to 0. */
void handed_fds_release(struct handed_fds *handed);

/*
 * control.h: the socket at which the daemon says how it is: a unix stream socket, served by the
 * main loop.
 *
 * A client sends one request, a line of at most CONTROL_REQUEST_MAX bytes, gets one answer and the
 * end of the connection. A long answer is made piece by piece, the next one when the last one was
 * taken, and in between the loop does what is more urgent. Whoever stalls, talks nonsense, leaves
 * early or never reads is dropped after a while and has held up nobody.
 */

struct control;
struct sd_event;

/* At a time; further ones are refused by closing. */
#define CONTROL_CLIENTS_MAX 16

/* With its newline. */
#define CONTROL_REQUEST_MAX 512

/* For sending the request, or a little more. */
#define CONTROL_PATIENCE_NS (2 * NS_PER_S)

/* What is still to be answered. {0}: nothing. */
struct control_rest {
	/*
	 * Appends the next piece, which may be empty. 1: there is more; 0: this was the last;
	 * -errno: the client is dropped in the middle.
	 */
	int (*more)(void *ctx, struct buffer *ret);
	void (*end)(void *ctx); /* called once: after the last piece, or when the client is gone */
	void *ctx;
};

struct control_options {
	struct sd_event *event; /* must outlive the control */
	const char *path;       /* of the socket; not used when one is handed over; must outlive the control too */
	int handed;             /* a listening unix stream socket, non-blocking, the control's from then on; 0: none */
	/*
	 * Appends the answer to ret, at most CONTROL_PIECE_MAX, or leaves all or some of it to
	 * rest. request: without newline, any other byte but NUL may be in it. 0; -errno: the
	 * client gets none, and rest was not set.
	 */
	int (*answer)(void *ctx, const char *request, struct buffer *ret, struct control_rest *rest);
	void *ctx;
};

/*
 * Listens. The socket is the one that is handed over (handed_fds.h), also closed if this fails, or
 * made at path, with mode 0660; one that a dead daemon has left there is replaced. 0; -ENOMEM;
 * -EADDRINUSE: somebody else answers there; -EEXIST: something is there that is no socket; -errno.
 */
int control_new(const struct control_options *options, struct control **ret);

/* Drops all clients and removes the socket, if control_new made it. NULL is fine. */
void control_free(struct control *control);

/*
 * requests.h: what the daemon can be asked at its control socket, and the JSON document that
 * answers it. docs/status.md describes both.
 *
 *     status [WORDS]     how it is, in pieces (status_answer.h); words say what of it (status_query.h)
 *     trigger [TARGET]   an incident now, of one target or of everything
 *     reload             the configuration is read again
 */

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
 * Appends the answer to one line (without newline, any other byte but NUL may be in it) to ret.
 * What cannot be done, or is not known, is answered too: by an object with `error`. What comes in
 * pieces is left to rest; requests must outlive it. 0; -ENOMEM; -EFBIG: it does not fit into
 * ret->max.
 */
int requests_answer(const struct requests *requests, const char *line, struct buffer *ret, struct control_rest *rest);

/*
 * reporter.h: whoever asks from outside is answered here: at the control socket (control.h,
 * requests.h), over HTTP (metrics.h), and in a file (metrics_file.h). Everything else works without
 * any of them: what cannot be had is said in the log.
 */

struct reporter;

struct reporter_options {
	struct sd_event *event;
	const char *control; /* path of the socket */
	const struct config_metrics *metrics;
	struct requests requests; /* what can be asked of the daemon; its ctx must outlive the reporter */
};

/*
 * Takes the sockets that systemd hands over: to be called once, before anything else opens
 * descriptors. Answers nobody before reporter_start. 0 or -ENOMEM.
 */
int reporter_new(struct reporter **ret);

/*
 * From now on answers. What options point to must outlive the reporter; the texts of the metrics,
 * until reporter_reload.
 */
void reporter_start(struct reporter *reporter, const struct reporter_options *options);

/* NULL is fine. */
void reporter_free(struct reporter *reporter);

/*
 * Those who have to change; all borrowed. *config and *rule_counts are replaced, and the old ones freed.
 */
struct reload {
	const struct config_file *file;
	struct config **config;
	struct session *session;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct rule_counts **rule_counts;
	struct reporter *reporter;
};

/*
 * Reads the file again and puts it in force. Main thread. 0: message (RELOAD_MESSAGE_MAX bytes)
 * says what changed; -errno: it says why nothing did. Logged either way.
 */
int reload_run(const struct reload *reload, char *message);

#endif
