/*
 * control.c: one state machine per client, in a fixed number of places.
 *
 *              a line is there          taken, and there is more
 *     READING ─────────────────▶ WRITING ───────────────────────┐
 *        │                        │  ▲       the next piece     │
 *        │                        │  └──────────────────────────┘
 *        └── its end, too ──▶ free ◀── all was taken, gone, 5 s
 *            long, 2 s
 *
 * Every descriptor is non-blocking, and each event does one bounded piece of work. All of it has the lowest priority in the loop: the
 * rules come first, whoever asks and however often. A flood of connections, and an accept(2) that fails for want of descriptors while the
 * connection stays in the queue, are both bounded by the rate limit of the listening socket.
 *
 * Rejected: a thread for the clients. What they ask for belongs to the main thread, and would need a lock in it.
 */
#include "control.h"

#include "scope.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

/* A person, or a dashboard, asks once in a while. */
#define CONNECTIONS_PER_S 100

/* How late a client may be dropped. */
#define PATIENCE_GRAIN_US 100000

/* After something that took long all clients are out of time at once: what they have sent, and can take, comes first. */
#define PATIENCE_PRIORITY (SD_EVENT_PRIORITY_IDLE + 1)

struct client {
	struct control *control;
	int fd; /* -1: this place is free */
	sd_event_source *io, *timer;
	char request[CONTROL_REQUEST_MAX + 1];
	size_t got;
	struct buffer piece;
	size_t sent; /* of the piece */
	struct control_rest rest;
};

struct control {
	struct control_options options;
	struct client clients[CONTROL_CLIENTS_MAX];
	int fd;
	bool made; /* the socket is ours to remove */
	sd_event_source *accept;
};

/* ---- clients ---- */

static void end_rest(struct client *client)
{
	if (client->rest.end)
		client->rest.end(client->rest.ctx);
	client->rest = (struct control_rest){ 0 };
}

static void drop(struct client *client)
{
	end_rest(client);
	client->io = sd_event_source_disable_unref(client->io);
	client->timer = sd_event_source_disable_unref(client->timer);
	buffer_release(&client->piece);
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	drop(userdata);

	return 0;
}

/* Starts the time a client has from now on. */
static int be_patient(struct client *client, uint64_t patience_ns)
{
	int r;

	client->timer = sd_event_source_disable_unref(client->timer);
	r = sd_event_add_time_relative(client->control->options.event, &client->timer, CLOCK_MONOTONIC,
				       patience_ns / NS_PER_US, PATIENCE_GRAIN_US, on_timeout, client);

	return r < 0 ? r : sd_event_source_set_priority(client->timer, PATIENCE_PRIORITY);
}

/* 0; negative: drop it. */
static int answer(struct client *client)
{
	const struct control_options *options = &client->control->options;
	int r;

	client->piece.max = CONTROL_PIECE_MAX;
	r = options->answer(options->ctx, client->request, &client->piece, &client->rest);
	if (r < 0)
		return r;

	r = sd_event_source_set_io_events(client->io, EPOLLOUT);

	return r < 0 ? r : be_patient(client, CONTROL_PIECE_PATIENCE_NS);
}

/* The piece was taken. 0: here is another one, or it comes with the next event; negative: drop it, also when there is none. */
static int next_piece(struct client *client)
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

	return client->piece.len > 0 ? be_patient(client, CONTROL_PIECE_PATIENCE_NS) : 0;
}

/* 0; negative: drop it. */
static int take_request(struct client *client)
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

	return answer(client);
}

/* 0; negative: drop it, also when all was sent. */
static int hand_out(struct client *client)
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
	struct client *client = userdata;
	int r = events & EPOLLOUT ? hand_out(client) : events & EPOLLIN ? take_request(client) : -ECONNRESET;

	(void)source;
	(void)fd;
	if (r < 0)
		drop(client);

	return 0;
}

/* ---- connections ---- */

static struct client *free_place(struct control *control)
{
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		if (control->clients[i].fd < 0)
			return &control->clients[i];

	return NULL;
}

static int serve(struct control *control, struct client *client)
{
	int r = sd_event_add_io(control->options.event, &client->io, client->fd, EPOLLIN, on_client, client);

	client->got = client->sent = 0;
	if (r >= 0)
		r = sd_event_source_set_priority(client->io, SD_EVENT_PRIORITY_IDLE);

	return r < 0 ? r : be_patient(client, CONTROL_PATIENCE_NS);
}

static int on_connection(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	struct control *control = userdata;
	AUTO_CLOSE int connection = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct client *client = free_place(control);

	(void)source;
	(void)events;
	if (connection < 0 || client == NULL)
		return 0;

	client->fd = TAKE_FD(connection);
	if (serve(control, client) < 0)
		drop(client);

	return 0;
}

/* ---- the socket ---- */

/* Takes a socket away at which nobody listens any more. 0, also if nothing is there; -errno. */
static int remove_stale(const struct sockaddr_un *address)
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

/* Until it listens nobody can connect: the mode is right before the first does. */
static int make_socket(struct control *control)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(control->options.path);
	int r;

	if (len >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, control->options.path, len);

	r = remove_stale(&address);
	if (r < 0)
		return r;

	control->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (control->fd < 0 || bind(control->fd, (const struct sockaddr *)&address, sizeof address) < 0)
		return -errno;

	control->made = true;
	if (chmod(address.sun_path, 0660) < 0 || listen(control->fd, CONTROL_CLIENTS_MAX) < 0)
		return -errno;

	return 0;
}

static int start_listening(struct control *control)
{
	int r = 0;

	if (control->fd < 0)
		r = make_socket(control);
	if (r >= 0)
		r = sd_event_add_io(control->options.event, &control->accept, control->fd, EPOLLIN, on_connection,
				    control);
	if (r >= 0)
		r = sd_event_source_set_priority(control->accept, SD_EVENT_PRIORITY_IDLE);
	if (r >= 0)
		r = sd_event_source_set_ratelimit(control->accept, NS_PER_S / NS_PER_US, CONNECTIONS_PER_S);

	return r < 0 ? r : 0;
}

int control_new(const struct control_options *options, struct control **ret)
{
	struct control *control = calloc(1, sizeof *control);
	int r;

	if (control == NULL) {
		if (options->handed > 0)
			close(options->handed);
		return -ENOMEM;
	}

	control->options = *options;
	control->fd = options->handed > 0 ? options->handed : -1;
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		control->clients[i] = (struct client){ .control = control, .fd = -1 };

	r = start_listening(control);
	if (r < 0) {
		control_free(control);
		return r;
	}
	*ret = control;

	return 0;
}

void control_free(struct control *control)
{
	if (control == NULL)
		return;

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		drop(&control->clients[i]);
	sd_event_source_disable_unref(control->accept);
	if (control->made)
		unlink(control->options.path);
	if (control->fd >= 0)
		close(control->fd);
	free(control);
}
