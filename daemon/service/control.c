/*
 * control.c: the control socket is served by the main loop: one state machine per client, in a
 * fixed number of places.
 *
 *              a line has arrived       sent, and there is more
 *     READING ─────────────────▶ WRITING ───────────────────────┐
 *        │                        │  ▲       the next piece     │
 *        │                        │  └──────────────────────────┘
 *        └── EOF, line too ──▶ free ◀── all sent, EOF, 5 s
 *            long, 2 s                  without progress
 *
 * Every descriptor is non-blocking, and each event does one bounded piece of work, at the lowest
 * priority of the loop: the rules come first. The rate limit of the listening socket bounds both a
 * flood of connections and an accept(2) that fails for want of descriptors, which leaves the
 * connection in the queue. Rejected: a thread for the clients. What they ask for belongs to the
 * main thread, and would need a lock there.
 *
 * Sockets that systemd has opened (sd_listen_fds(3)) are told apart by what the kernel says that
 * they are, not by order or by $LISTEN_FDNAMES: that has names only if the unit sets
 * FileDescriptorName=. They are kept over reloads, because they cannot be had twice.
 */
#include "daemon/service/control.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/service/health/file_writer.h"
#include "daemon/service/metrics/exposition.h"
#include "daemon/service/metrics/metrics_server.h"
#include "daemon/service/status/status_document.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/evaluator/evaluator.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

/* Clients at a time; further ones are refused by closing the connection. */
#define CONTROL_CLIENTS_MAX 16

/* Length of a request, with its newline. */
#define CONTROL_REQUEST_MAX 512

/* A piece of an answer; of each client one is kept until it was sent. */
#define CONTROL_PIECE_MAX (2u << 20)

#define REQUEST_TIMEOUT_NS (2 * NS_PER_S)

/*
 * Longer, because a loaded machine is when the status is asked for. A slow client costs no more
 * than its place and one piece.
 */
#define PIECE_TIMEOUT_NS (5 * NS_PER_S)

/* Connections accepted per second. */
#define CONNECTIONS_PER_S 100

/* How late a client may be dropped. */
#define CLIENT_TIMER_ACCURACY_US 100000

/* After a long pause of the loop what clients have sent is handled before they time out. */
#define CLIENT_TIMER_PRIORITY (SD_EVENT_PRIORITY_IDLE + 1)

/* Names that are suggested when the requested one means several targets. */
#define SUGGESTED_MAX 3

/* Longer than any address that listen_address_parse accepts. */
#define LISTEN_MAX 96

/* How late the file with the metrics may be written, so that the CPU may sleep. */
#define METRICS_FILE_ACCURACY_US 100000

/* What is still to be answered. {0}: nothing. */
struct control_rest {
	/* Appends a piece, perhaps an empty one. 1: there is more; 0: the last; -errno: drop the client. */
	int (*more)(void *ctx, struct buffer *ret);
	void (*end)(void *ctx); /* called once: after the last piece, or when the client is gone */
	void *ctx;
};

/* ---- descriptors handed over by systemd ---- */

/* Zeroed: none. 0: there is no such descriptor (systemd's begin at 3). */
struct handed_fds {
	int control;    /* listens, unix stream */
	int metrics;    /* listens, TCP over IPv4 or IPv6 */
	size_t unknown; /* neither of these, or a second of its kind: closed */
};

/* The field for this descriptor; NULL: it is none of them. */
static int *handed_fd_place(struct handed_fds *handed, int fd)
{
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0)
		return &handed->control;
	if (sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) > 0)
		return &handed->metrics;

	return NULL;
}

/*
 * Takes the descriptors, non-blocking and close-on-exec. Only the first call of a process gets any,
 * and it must come before anything else opens a descriptor. 0 or -errno (*ret is empty then).
 */
static int handed_fds_take(struct handed_fds *ret)
{
	int count = sd_listen_fds(1); /* sets close-on-exec */

	*ret = (struct handed_fds){ 0 };
	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
		int *place = handed_fd_place(ret, fd);

		if (!place || *place > 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) {
			close(fd);
			ret->unknown++;
			continue;
		}
		*place = fd;
	}

	return count < 0 ? count : 0;
}

/* Closes what was not taken over: its new owner has set it to 0. */
static void handed_fds_release(struct handed_fds *handed)
{
	if (handed->control > 0)
		close(handed->control);
	if (handed->metrics > 0)
		close(handed->metrics);
	*handed = (struct handed_fds){ .unknown = handed->unknown };
}

/* ---- requests: a word and its argument ---- */

struct request_kind {
	const char *word;
	int (*answer)(const struct control_options *options, const char *argument, struct buffer *ret,
		      struct control_rest *rest);
};

/* An answer is one object. NULL: no memory. */
static struct json_writer *begin_answer(struct buffer *ret)
{
	struct json_writer *json;

	if (json_writer_new(sink_buffer(ret), false, &json) < 0)
		return NULL;
	json_begin_object(json);

	return json;
}

static int end_answer(struct json_writer *json)
{
	json_end_object(json);

	return json_writer_close(json);
}

/* line: the request, or NULL. */
static int refuse_request(const char *error, const char *line, struct buffer *ret)
{
	struct json_writer *json = begin_answer(ret);

	if (!json)
		return -ENOMEM;

	json_member_text(json, "error", error);
	if (line)
		json_member_text(json, "request", line);

	return end_answer(json);
}

/* ---- status ---- */

static int more_status(void *ctx, struct buffer *ret)
{
	return status_answer_more(ctx, ret);
}

static void end_status(void *ctx)
{
	status_answer_free(ctx);
}

static int answer_status(const struct control_options *options, const char *argument, struct buffer *ret,
			 struct control_rest *rest)
{
	struct status_answer_options wanted = { .overview = options->overview,
						.ctx = options->ctx,
						.clock = real_clock() };
	struct status_answer *answer;
	int r = status_answer_new(&wanted, argument, &answer);

	if (r == -EINVAL || r == -E2BIG)
		return refuse_request(
			"the arguments of status are brief, nearest=N (1 to 1000), target=GLOB, rule=GLOB, name=GLOB; "
			"%20 is a blank in a glob",
			argument, ret);
	if (r < 0)
		return r;

	*rest = (struct control_rest){ .more = more_status, .end = end_status, .ctx = answer };

	return 0;
}

/* ---- reload ---- */

static int answer_reload(const struct control_options *options, const char *argument, struct buffer *ret,
			 struct control_rest *rest)
{
	char message[CONTROL_MESSAGE_MAX] = "";
	struct json_writer *json;
	bool done;

	(void)rest;
	if (*argument)
		return refuse_request("reload takes no argument", NULL, ret);

	done = options->reload(options->ctx, message) == 0;
	json = begin_answer(ret);
	if (!json)
		return -ENOMEM;
	if (!done)
		json_member_text(json, "error", message);
	json_member_object(json, "reload");
	json_member_bool(json, "done", done);
	json_member_text(json, "message", message);
	json_end_object(json);

	return end_answer(json);
}

/* ---- trigger ---- */

/* A name means the target of that name, else the only target of the entry of that name. */
struct target_search {
	const char *name;
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t encoded_len, matches;
	char suggestions[256];
};

static int match_target(void *ctx, const struct evaluator_sight *sight)
{
	struct target_search *search = ctx;
	const struct target *target = sight->target;

	size_t len = strlen(search->suggestions);
	bool exact = strcmp(target->name, search->name) == 0;

	if (!exact && strcmp(target->entry, search->name) != 0)
		return 0;

	search->matches = exact ? 1 : search->matches + 1;
	if (search->matches == 1)
		search->encoded_len = target_encode(target, search->encoded, sizeof search->encoded);
	if (search->matches <= SUGGESTED_MAX)
		snprintf(search->suggestions + len, sizeof search->suggestions - len, "%s%s", len ? ", " : "",
			 target->name);

	return exact;
}

static int put_ticket(const struct incidents_ticket *ticket, struct buffer *ret)
{
	static const char *const answers[] = {
		[INCIDENTS_OPENED] = "opened",
		[INCIDENTS_MERGED] = "merged",
		[INCIDENTS_REFUSED] = "refused",
	};
	struct json_writer *json = begin_answer(ret);
	char error[256];

	if (!json)
		return -ENOMEM;

	if (ticket->answer == INCIDENTS_REFUSED) {
		snprintf(error, sizeof error, "no incident was opened: %s", ticket->why);
		json_member_text(json, "error", error);
	}
	json_member_object(json, "trigger");
	json_member_text(json, "answer", answers[ticket->answer]);
	json_member_text(json, "why", ticket->why);
	json_member_text(json, "directory", ticket->directory);
	json_member_text(json, "stem", ticket->stem);
	json_member_u64(json, "sealed_in_ns", ticket->sealed_in_ns);
	json_end_object(json);

	return end_answer(json);
}

/* False: error (cap bytes) says why the name means no target. */
static bool find_target(const struct control_options *options, struct target_search *search, char *error, size_t cap)
{
	struct overview overview;

	options->overview(options->ctx, &overview);
	evaluator_visit_targets(overview.evaluator, match_target, search);
	if (search->matches == 1)
		return true;

	if (search->matches == 0)
		snprintf(error, cap, "no target and no entry has the name %.64s; spikewatch status shows the names",
			 search->name);
	else
		snprintf(error, cap,
			 "%.64s means %zu targets (%s ...): give the name of one, or none for an incident of all",
			 search->name, search->matches, search->suggestions);

	return false;
}

static int answer_trigger(const struct control_options *options, const char *argument, struct buffer *ret,
			  struct control_rest *rest)
{
	struct incidents_ticket ticket;
	struct target target;
	char error[512];
	int r;

	(void)rest;
	if (!*argument) {
		r = options->trigger(options->ctx, NULL, &ticket);
		return r < 0 ? r : put_ticket(&ticket, ret);
	}

	struct target_search search = { .name = argument };

	if (!find_target(options, &search, error, sizeof error))
		return refuse_request(error, NULL, ret);

	r = target_decode(search.encoded, search.encoded_len, &target);
	if (r == 0)
		r = options->trigger(options->ctx, &target, &ticket);

	return r < 0 ? r : put_ticket(&ticket, ret);
}

static const struct request_kind request_kinds[] = {
	{ "status", answer_status },
	{ "trigger", answer_trigger },
	{ "reload", answer_reload },
};

/*
 * Appends the answer to one line (without newline; any other byte but NUL may be in it) to ret, or
 * leaves it to rest. What cannot be done, or is unknown, is answered too: by an object with
 * `error`. 0; -ENOMEM; -EFBIG: it does not fit into ret->max.
 */
static int answer_request(const struct control_options *options, const char *line, struct buffer *ret,
			  struct control_rest *rest)
{
	size_t len = strcspn(line, " ");
	const char *argument = line + len + strspn(line + len, " ");

	for (size_t i = 0; i < ARRAY_LEN(request_kinds); i++)
		if (strlen(request_kinds[i].word) == len && memcmp(request_kinds[i].word, line, len) == 0)
			return request_kinds[i].answer(options, argument, ret, rest);

	return refuse_request("unknown request; known are: status [WORDS], trigger [TARGET], reload", line, ret);
}

/* ---- the socket ---- */

struct control_socket_options {
	struct sd_event *event; /* must outlive the socket */
	const char *path;       /* used if none is handed over; must outlive the socket */
	int handed;             /* a listening unix stream socket, non-blocking, which is taken over; 0: none */
	/* As answer_request; -errno: the client gets no answer, and rest was not set. */
	int (*answer)(void *ctx, const char *request, struct buffer *ret, struct control_rest *rest);
	void *ctx;
	uint64_t request_timeout_ns; /* for sending the request; 0: 2 s */
	uint64_t piece_timeout_ns;   /* for receiving each piece of the answer; 0: 5 s */
};

struct control_client {
	struct control_socket *listener;
	int fd; /* -1: this place is free */
	sd_event_source *io, *timer;
	char request[CONTROL_REQUEST_MAX + 1];
	size_t got;
	struct buffer piece;
	size_t sent; /* of the piece */
	struct control_rest rest;
};

struct control_socket {
	struct control_socket_options options;
	struct control_client clients[CONTROL_CLIENTS_MAX];
	int fd;
	bool made; /* by us: to be removed at the end */
	sd_event_source *accept;
};

static void end_rest(struct control_client *client)
{
	if (client->rest.end)
		client->rest.end(client->rest.ctx);
	client->rest = (struct control_rest){ 0 };
}

static void drop_client(struct control_client *client)
{
	end_rest(client);
	client->io = sd_event_source_disable_unref(client->io);
	client->timer = sd_event_source_disable_unref(client->timer);
	buffer_release(&client->piece);
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

static int on_client_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	drop_client(userdata);

	return 0;
}

/* The client is dropped after timeout_ns, unless this is called again before. */
static int start_client_timer(struct control_client *client, uint64_t timeout_ns)
{
	int r;

	client->timer = sd_event_source_disable_unref(client->timer);
	r = sd_event_add_time_relative(client->listener->options.event, &client->timer, CLOCK_MONOTONIC,
				       timeout_ns / NS_PER_US, CLIENT_TIMER_ACCURACY_US, on_client_timeout, client);

	return r < 0 ? r : sd_event_source_set_priority(client->timer, CLIENT_TIMER_PRIORITY);
}

/* 0; negative: drop it. */
static int answer_client(struct control_client *client)
{
	const struct control_socket_options *options = &client->listener->options;
	int r;

	client->piece.max = CONTROL_PIECE_MAX;
	r = options->answer(options->ctx, client->request, &client->piece, &client->rest);
	if (r < 0)
		return r;

	r = sd_event_source_set_io_events(client->io, EPOLLOUT);

	return r < 0 ? r : start_client_timer(client, options->piece_timeout_ns);
}

/* The piece was sent. 0: another one is there, or comes with the next event; negative: drop it. */
static int next_piece(struct control_client *client)
{
	int r;

	if (!client->rest.more)
		return -ENODATA;

	client->piece.len = client->sent = 0;
	r = client->rest.more(client->rest.ctx, &client->piece);
	if (r <= 0)
		end_rest(client);
	if (r < 0)
		return r;

	return client->piece.len > 0 ? start_client_timer(client, client->listener->options.piece_timeout_ns) : 0;
}

/* 0; negative: drop it. */
static int receive_request(struct control_client *client)
{
	ssize_t n = recv(client->fd, client->request + client->got, CONTROL_REQUEST_MAX - client->got, 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;

	client->got += (size_t)n;
	client->request[client->got] = '\0';

	char *newline = memchr(client->request, '\n', client->got);

	if (newline == NULL)
		return client->got < CONTROL_REQUEST_MAX ? 0 : -EMSGSIZE;
	if (strlen(client->request) < (size_t)(newline - client->request))
		return -EBADMSG;

	*newline = '\0';

	return answer_client(client);
}

/* 0; negative: drop it, also when all was sent. */
static int send_answer(struct control_client *client)
{
	ssize_t n;

	if (client->sent == client->piece.len)
		return next_piece(client);

	n = send(client->fd, client->piece.data + client->sent, client->piece.len - client->sent, MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;

	client->sent += (size_t)n;

	return client->sent == client->piece.len && !client->rest.more ? -ENODATA : 0;
}

static int on_client(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct control_client *client = userdata;
	int r = events & EPOLLOUT ? send_answer(client) : events & EPOLLIN ? receive_request(client) : -ECONNRESET;

	(void)source;
	(void)fd;
	if (r < 0)
		drop_client(client);

	return 0;
}

static struct control_client *free_client(struct control_socket *listener)
{
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		if (listener->clients[i].fd < 0)
			return &listener->clients[i];

	return NULL;
}

static int serve_client(struct control_socket *listener, struct control_client *client)
{
	int r = sd_event_add_io(listener->options.event, &client->io, client->fd, EPOLLIN, on_client, client);

	client->got = client->sent = 0;
	if (r >= 0)
		r = sd_event_source_set_priority(client->io, SD_EVENT_PRIORITY_IDLE);

	return r < 0 ? r : start_client_timer(client, listener->options.request_timeout_ns);
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct control_socket *listener = userdata;
	AUTO_CLOSE int connection = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct control_client *client = free_client(listener);

	(void)source;
	(void)events;
	if (connection < 0 || client == NULL)
		return 0;

	client->fd = TAKE_FD(connection);
	if (serve_client(listener, client) < 0)
		drop_client(client);

	return 0;
}

/* Removes a socket without a listener. 0, also if there is no file; -errno. */
static int remove_stale_socket(const struct sockaddr_un *address)
{
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EAGAIN)
		return -EADDRINUSE;

	return unlink(address->sun_path) < 0 ? -errno : 0;
}

/* The mode is set before listen(2), and so before the first connection. */
static int make_control_socket(struct control_socket *listener)
{
	struct stat made;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(listener->options.path);
	int r;

	if (len >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, listener->options.path, len);

	r = remove_stale_socket(&address);
	if (r < 0)
		return r;

	listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener->fd < 0 || bind(listener->fd, (const struct sockaddr *)&address, sizeof address) < 0)
		return -errno;

	listener->made = true;
	/* The group may talk to it where it may read what is written (restrict_files() in main.c). */
	if (stat(address.sun_path, &made) < 0 || chmod(address.sun_path, made.st_mode & S_IRWXG ? 0660 : 0600) < 0 ||
	    listen(listener->fd, CONTROL_CLIENTS_MAX) < 0)
		return -errno;

	return 0;
}

static int start_listening(struct control_socket *listener)
{
	int r = 0;

	if (listener->fd < 0)
		r = make_control_socket(listener);
	if (r >= 0)
		r = sd_event_add_io(listener->options.event, &listener->accept, listener->fd, EPOLLIN, on_connection,
				    listener);
	if (r >= 0)
		r = sd_event_source_set_priority(listener->accept, SD_EVENT_PRIORITY_IDLE);
	if (r >= 0)
		r = sd_event_source_set_ratelimit(listener->accept, NS_PER_S / NS_PER_US, CONNECTIONS_PER_S);

	return r < 0 ? r : 0;
}

/* NULL is fine. */
static void control_socket_free(struct control_socket *listener)
{
	if (listener == NULL)
		return;

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		drop_client(&listener->clients[i]);
	sd_event_source_disable_unref(listener->accept);
	if (listener->made)
		unlink(listener->options.path);
	if (listener->fd >= 0)
		close(listener->fd);
	free(listener);
}

/*
 * Listens at the socket that is handed over (closed if this fails), or makes one at path with mode
 * 0660, in place of one that a dead daemon has left. 0; -ENOMEM; -EADDRINUSE: another process
 * answers there; -EEXIST: the file is no socket; -errno.
 */
static int control_socket_new(const struct control_socket_options *options, struct control_socket **ret)
{
	struct control_socket *listener = calloc(1, sizeof *listener);
	int r;

	if (listener == NULL) {
		if (options->handed > 0)
			close(options->handed);
		return -ENOMEM;
	}

	listener->options = *options;
	if (options->request_timeout_ns == 0)
		listener->options.request_timeout_ns = REQUEST_TIMEOUT_NS;
	if (options->piece_timeout_ns == 0)
		listener->options.piece_timeout_ns = PIECE_TIMEOUT_NS;
	listener->fd = options->handed > 0 ? options->handed : -1;
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		listener->clients[i] = (struct control_client){ .listener = listener, .fd = -1 };

	r = start_listening(listener);
	if (r < 0) {
		control_socket_free(listener);
		return r;
	}
	*ret = listener;

	return 0;
}

/* ---- the three outputs: control socket, HTTP, metrics file ---- */

struct control {
	struct control_options options;
	struct handed_fds handed; /* less what was taken over */
	struct control_socket *socket;
	struct exposition *exposition;
	struct metrics *metrics;
	bool metrics_handed;              /* its socket was handed over */
	char listen[LISTEN_MAX];          /* of the metrics; "": none */
	struct file_writer *metrics_file; /* for the textfile collector of node_exporter */
	sd_event_source *metrics_file_timer;
	char metrics_file_path[PATHS_MAX]; /* "": none */
	uint64_t metrics_file_interval_ns;
	bool metrics_file_failing;
};

static int on_request(void *ctx, const char *line, struct buffer *ret, struct control_rest *rest)
{
	struct control *control = ctx;

	return answer_request(&control->options, line, ret, rest);
}

static int on_scrape(void *ctx, enum openmetrics_form form, struct buffer *ret)
{
	struct control *control = ctx;
	struct overview overview;

	control->options.overview(control->options.ctx, &overview);

	return exposition_write(control->exposition, &overview, form, ret);
}

static void start_socket(struct control *control)
{
	struct control_socket_options options = {
		.event = control->options.event,
		.path = control->options.path,
		.handed = control->handed.control,
		.answer = on_request,
		.ctx = control,
	};

	control->handed.control = 0;

	int r = control_socket_new(&options, &control->socket);

	if (r < 0)
		log_line(LOG_WARNING, "no control socket at %s: %s. spikewatch status will not reach this daemon.",
			 control->options.path, strerror(-r));
}

static void start_metrics(struct control *control, const struct config_metrics *config)
{
	struct metrics_options options = {
		.event = control->options.event,
		.listen = config->listen,
		.handed = control->handed.metrics,
		.render = on_scrape,
		.ctx = control,
	};
	int r;

	if (!*config->listen && options.handed == 0)
		return;

	control->metrics_handed = options.handed != 0;
	control->handed.metrics = 0;
	snprintf(control->listen, sizeof control->listen, "%s", config->listen);
	r = metrics_new(&options, &control->metrics);
	if (r < 0)
		log_line(LOG_WARNING, "no metrics at %s: %s",
			 control->metrics_handed ? "the socket from systemd" : config->listen,
			 r == -ELIBACC ? "libmicrohttpd is not installed" : strerror(-r));
}

static void log_metrics_file(struct control *control, int error)
{
	bool before = control->metrics_file_failing;

	control->metrics_file_failing = error < 0;
	if (error < 0 && !before)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_NONE, .error = error },
			  "cannot write the metrics to %s: %s", control->metrics_file_path, strerror(-error));
	else if (error == 0 && before)
		log_line(LOG_NOTICE, "the metrics are written to %s again", control->metrics_file_path);
}

static int on_metrics_file(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct control *control = userdata;
	AUTO(buffer_release) struct buffer page = { .max = METRICS_PAGE_MAX };
	int r = on_scrape(control, OPENMETRICS_0_0_4, &page);

	(void)usec;
	if (r == 0)
		r = file_writer_put(control->metrics_file, &page);
	if (r != FILE_WRITER_BUSY)
		log_metrics_file(control, r);
	sd_event_source_set_time_relative(source, control->metrics_file_interval_ns / NS_PER_US);

	return 0;
}

static int add_metrics_file_timer(struct control *control)
{
	int r = sd_event_add_time_relative(control->options.event, &control->metrics_file_timer, CLOCK_MONOTONIC, 0,
					   METRICS_FILE_ACCURACY_US, on_metrics_file, control);

	if (r >= 0)
		r = sd_event_source_set_enabled(control->metrics_file_timer, SD_EVENT_ON);

	return r < 0 ? r : sd_event_source_set_priority(control->metrics_file_timer, SD_EVENT_PRIORITY_IDLE);
}

static void stop_metrics_file(struct control *control)
{
	control->metrics_file_timer = sd_event_source_disable_unref(control->metrics_file_timer);
	file_writer_free(control->metrics_file);
	control->metrics_file = NULL;
	control->metrics_file_path[0] = '\0';
	control->metrics_file_failing = false;
}

/* The file is removed at the end, so that no stale figures are collected. */
static void start_metrics_file(struct control *control, const struct config_metrics *config)
{
	static const struct file_writer_options options = { .kind = WHOLE_FILE_PUBLIC,
							    .transient = true,
							    .patience_ns = 2 * NS_PER_S };
	int r;

	if (!*config->metrics_file)
		return;

	snprintf(control->metrics_file_path, sizeof control->metrics_file_path, "%s", config->metrics_file);
	control->metrics_file_interval_ns = config->metrics_file_interval_ns;
	r = file_writer_new(config->metrics_file, &options, &control->metrics_file);
	if (r == 0)
		r = add_metrics_file_timer(control);
	if (r < 0) {
		log_metrics_file(control, r);
		stop_metrics_file(control);
	}
}

int control_new(struct control **ret)
{
	struct clock clock = real_clock();
	struct control *control = calloc(1, sizeof *control);

	if (!control)
		return -ENOMEM;
	if (exposition_new(clock_wall(&clock), &control->exposition) < 0) {
		free(control);
		return -ENOMEM;
	}

	handed_fds_take(&control->handed);
	*ret = control;

	return 0;
}

void control_start(struct control *control, const struct control_options *options)
{
	control->options = *options;
	start_socket(control);
	start_metrics(control, options->metrics);
	start_metrics_file(control, options->metrics);
}

static void restart_metrics(struct control *control, const struct config_metrics *metrics)
{
	if (control->metrics_handed || (control->metrics && strcmp(control->listen, metrics->listen) == 0))
		return;

	metrics_free(control->metrics);
	control->metrics = NULL;
	control->listen[0] = '\0';
	start_metrics(control, metrics);
}

/* In force at once, not only after the old interval. */
static void set_metrics_file_interval(struct control *control, uint64_t interval_ns)
{
	if (control->metrics_file_timer && control->metrics_file_interval_ns != interval_ns)
		sd_event_source_set_time_relative(control->metrics_file_timer, interval_ns / NS_PER_US);
	control->metrics_file_interval_ns = interval_ns;
}

static void restart_metrics_file(struct control *control, const struct config_metrics *metrics)
{
	if (strcmp(control->metrics_file_path, metrics->metrics_file) == 0) {
		set_metrics_file_interval(control, metrics->metrics_file_interval_ns);
		return;
	}

	stop_metrics_file(control);
	start_metrics_file(control, metrics);
}

void control_reload(struct control *control, const struct config_metrics *metrics)
{
	restart_metrics(control, metrics);
	restart_metrics_file(control, metrics);
}

void control_free(struct control *control)
{
	if (!control)
		return;

	control_socket_free(control->socket);
	metrics_free(control->metrics);
	stop_metrics_file(control);
	exposition_free(control->exposition);
	handed_fds_release(&control->handed);
	free(control);
}
