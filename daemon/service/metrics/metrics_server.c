/*
 * metrics_server.c: libmicrohttpd without threads: all its descriptors are behind one epoll
 * descriptor, which the loop watches, and its timeouts are a timer of the loop.
 *
 * libmicrohttpd bounds the number of clients, the size of a request and the silence between two
 * bytes, but not the whole time: a client that sends a byte now and then could stay for hours. So
 * connections are listed here too, and sockets that are open for too long are shut down, which the
 * library sees as the end of the connection. A connection ends after one answer. Rejected: a thread
 * of libmicrohttpd. The figures belong to the main thread, and would need a lock there.
 */
#include "daemon/service/metrics/metrics_server.h"

#include "lib/base/units.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

/* For the whole connection: sending the request and receiving the answer. */
#define METRICS_PATIENCE_NS (5 * NS_PER_S)

/* ---- the server ---- */

/*
 * The library is loaded when it is needed: it depends on TLS and eight more libraries, which a
 * daemon without metrics should not have in its memory. Debian and Ubuntu have had this version of
 * its interface since 2018.
 */
#define LIBRARY "libmicrohttpd.so.12"

// clang-format off
#define FUNCTIONS(X) \
	X(add_response_header) \
	X(create_response_from_buffer) \
	X(destroy_response) \
	X(get_connection_info) \
	X(get_daemon_info) \
	X(get_timeout) \
	X(lookup_connection_value) \
	X(queue_response) \
	X(run) \
	X(start_daemon) \
	X(stop_daemon)
// clang-format on

static struct {
#define X(name) __typeof__(MHD_##name) *name;
	FUNCTIONS(X)
#undef X
} http;

/* Once in a process. 0 or -ELIBACC. */
static int load_library(void)
{
	void *library = http.stop_daemon ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (http.stop_daemon)
		return 0;
	if (library == NULL)
		return -ELIBACC;

#define X(name) \
	http.name = (__typeof__(http.name))dlsym(library, "MHD_" #name); \
	if (http.name == NULL) \
		return -ELIBACC;
	FUNCTIONS(X)
#undef X

	return 0;
}

/* Runs of the server in a second; a scrape takes less than ten. */
#define STEPS_PER_S 1000

/* How late a client may be dropped. */
#define SWEEP_NS NS_PER_S

/* The same as the timeout of libmicrohttpd. */
#define SILENCE_S ((unsigned)(METRICS_PATIENCE_NS / NS_PER_S))

#define FORMS 2

enum note { NOTE_INDEX, NOTE_NOT_FOUND, NOTE_NOT_ALLOWED, NOTE_NO_PAGE, NOTES };

static const char *const notes[NOTES] = {
	[NOTE_INDEX] = "spikewatchd " SPIKEWATCH_VERSION "\nMetrics are at /metrics.\n",
	[NOTE_NOT_FOUND] = "There is nothing here. Metrics are at /metrics.\n",
	[NOTE_NOT_ALLOWED] = "Only GET and HEAD.\n",
	[NOTE_NO_PAGE] = "There are no metrics now: not enough memory, or too many of them.\n",
};

/* An open connection. */
struct place {
	struct MHD_Connection *connection; /* NULL: free */
	int fd;
	uint64_t since_us;
};

struct page {
	struct MHD_Response *response; /* NULL: none */
	uint64_t until_us;
};

struct metrics {
	struct metrics_options options;
	struct MHD_Daemon *http; /* owns the listening socket */
	sd_event_source *io, *timer;
	struct place places[METRICS_CLIENTS_MAX];
	struct page pages[FORMS];
	struct MHD_Response *notes[NOTES];
};

static uint64_t now_us(const struct metrics *metrics)
{
	uint64_t now = 0;

	sd_event_now(metrics->options.event, CLOCK_MONOTONIC, &now);

	return now;
}

/* ---- pages ---- */

/* Owns data from then on, also if it fails: NULL. */
static struct MHD_Response *make_response(char *data, size_t len, enum MHD_ResponseMemoryMode mode, const char *type)
{
	struct MHD_Response *response = http.create_response_from_buffer(len, data, mode);

	if (response == NULL && mode == MHD_RESPMEM_MUST_FREE)
		free(data);
	if (response && (http.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) != MHD_YES ||
			 http.add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") != MHD_YES)) {
		http.destroy_response(response);
		return NULL;
	}

	return response;
}

static int make_notes(struct metrics *metrics)
{
	for (enum note i = 0; i < NOTES; i++) {
		metrics->notes[i] = make_response((char *)(uintptr_t)notes[i], strlen(notes[i]), MHD_RESPMEM_PERSISTENT,
						  "text/plain; charset=utf-8");
		if (metrics->notes[i] == NULL)
			return -ENOMEM;
	}

	return http.add_response_header(metrics->notes[NOTE_NOT_ALLOWED], MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES
		       ? 0
		       : -ENOMEM;
}

static void drop_page(struct page *page)
{
	if (page->response)
		http.destroy_response(page->response); /* libmicrohttpd keeps it while it is being sent */
	page->response = NULL;
}

/* The last page, if it is fresh, or a new one; NULL: out of memory or too large. */
static struct MHD_Response *page_of(struct metrics *metrics, enum openmetrics_form form)
{
	struct page *page = &metrics->pages[form];
	struct buffer text = { .max = METRICS_PAGE_MAX };
	uint64_t now = now_us(metrics);

	if (page->response && now < page->until_us)
		return page->response;

	drop_page(page);
	if (metrics->options.render(metrics->options.ctx, form, &text) < 0) {
		buffer_release(&text);
		return NULL;
	}
	page->response = make_response(text.data, text.len, MHD_RESPMEM_MUST_FREE, openmetrics_type(form));
	page->until_us = now + METRICS_FRESH_NS / NS_PER_US;

	return page->response;
}

/* ---- requests ---- */

static enum MHD_Result answer_request(struct metrics *metrics, struct MHD_Connection *connection, const char *path)
{
	const char *accept = http.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	struct MHD_Response *page;

	if (strcmp(path, "/") == 0)
		return http.queue_response(connection, MHD_HTTP_OK, metrics->notes[NOTE_INDEX]);
	if (strcmp(path, "/metrics") != 0)
		return http.queue_response(connection, MHD_HTTP_NOT_FOUND, metrics->notes[NOTE_NOT_FOUND]);

	page = page_of(metrics, openmetrics_negotiate(accept));
	if (page == NULL)
		return http.queue_response(connection, MHD_HTTP_SERVICE_UNAVAILABLE, metrics->notes[NOTE_NO_PAGE]);

	return http.queue_response(connection, MHD_HTTP_OK, page);
}

/*
 * Called after the headers, and again after the body, which is ignored: an answer to the first call
 * would be cut short by the body.
 */
static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection, const char *path,
				  const char *method, const char *version, const char *body, size_t *body_len,
				  void **context)
{
	static char seen;
	struct metrics *metrics = userdata;

	(void)version;
	(void)body;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return http.queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, metrics->notes[NOTE_NOT_ALLOWED]);

	if (*context == NULL || *body_len > 0) {
		*context = &seen;
		*body_len = 0;
		return MHD_YES;
	}

	return answer_request(metrics, connection, path);
}

/* ---- connections ---- */

static void on_connection(void *userdata, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct metrics *metrics = userdata;
	struct MHD_Connection *wanted = what == MHD_CONNECTION_NOTIFY_STARTED ? NULL : connection;
	const union MHD_ConnectionInfo *info = http.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	(void)context;
	for (size_t i = 0; i < METRICS_CLIENTS_MAX; i++) {
		struct place *place = &metrics->places[i];

		if (place->connection != wanted)
			continue;
		place->connection = wanted ? NULL : connection;
		place->fd = info ? info->connect_fd : -1;
		place->since_us = now_us(metrics);
		return;
	}
}

/* SO_LINGER of 0: what is unsent is discarded, or the kernel would keep trying to send it. */
static void hang_up(int fd)
{
	struct linger at_once = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	shutdown(fd, SHUT_RDWR);
}

/* Shuts down connections that are open for too long. Whether there is one. */
static bool sweep_connections(struct metrics *metrics)
{
	uint64_t now = now_us(metrics);
	bool any = false;

	for (size_t i = 0; i < METRICS_CLIENTS_MAX; i++) {
		const struct place *place = &metrics->places[i];

		if (place->connection == NULL)
			continue;
		any = true;
		if (now - place->since_us > METRICS_PATIENCE_NS / NS_PER_US)
			hang_up(place->fd);
	}

	return any;
}

/* ---- the loop ---- */

/* Runs the server once, and sets the timer for the next time. */
static int run_server(struct metrics *metrics)
{
	MHD_UNSIGNED_LONG_LONG pause_ms;
	uint64_t pause_us = UINT64_MAX;
	int r;

	http.run(metrics->http);
	if (sweep_connections(metrics))
		pause_us = SWEEP_NS / NS_PER_US;
	if (http.get_timeout(metrics->http, &pause_ms) == MHD_YES && pause_ms < pause_us / 1000)
		pause_us = pause_ms * 1000;
	if (pause_us == UINT64_MAX)
		return sd_event_source_set_enabled(metrics->timer, SD_EVENT_OFF);

	r = sd_event_source_set_time_relative(metrics->timer, pause_us);

	return r < 0 ? r : sd_event_source_set_enabled(metrics->timer, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	(void)source;
	(void)fd;
	(void)events;

	return run_server(userdata);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;

	return run_server(userdata);
}

static int join_loop(struct metrics *metrics)
{
	const union MHD_DaemonInfo *info = http.get_daemon_info(metrics->http, MHD_DAEMON_INFO_EPOLL_FD);
	sd_event *event = metrics->options.event;
	int r = info ? 0 : -ENOTSUP;

	if (r >= 0)
		r = sd_event_add_io(event, &metrics->io, info->epoll_fd, EPOLLIN, on_io, metrics);
	if (r >= 0)
		r = sd_event_source_set_priority(metrics->io, SD_EVENT_PRIORITY_IDLE);
	if (r >= 0)
		r = sd_event_source_set_ratelimit(metrics->io, NS_PER_S / NS_PER_US, STEPS_PER_S);
	if (r >= 0)
		r = sd_event_add_time(event, &metrics->timer, CLOCK_MONOTONIC, UINT64_MAX, 10000, on_timer, metrics);
	if (r >= 0)
		r = sd_event_source_set_priority(metrics->timer, SD_EVENT_PRIORITY_IDLE);

	return r < 0 ? r : 0;
}

/* ---- the socket ---- */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* The length of *ret; -EINVAL. */
static int read_address(const char *text, union address *ret)
{
	struct listen_address address;
	int r = listen_address_parse(text, strlen(text), &address);

	if (r < 0)
		return r;

	memset(ret, 0, sizeof(*ret));
	if (strchr(address.host, ':')) {
		ret->v6.sin6_family = AF_INET6;
		ret->v6.sin6_port = htons(address.port);
		return inet_pton(AF_INET6, address.host, &ret->v6.sin6_addr) == 1 ? (int)sizeof(ret->v6) : -EINVAL;
	}
	ret->v4.sin_family = AF_INET;
	ret->v4.sin_port = htons(address.port);

	return inet_pton(AF_INET, address.host, &ret->v4.sin_addr) == 1 ? (int)sizeof(ret->v4) : -EINVAL;
}

/* SO_REUSEADDR: connections of a daemon that was just stopped may linger. */
static int make_http_socket(const char *text, int *ret)
{
	AUTO_CLOSE int fd = -1;
	union address address;
	int len = read_address(text, &address), yes = 1;

	if (len < 0)
		return len;

	fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
	    bind(fd, &address.any, (socklen_t)len) < 0 || listen(fd, METRICS_CLIENTS_MAX) < 0)
		return -errno;
	*ret = TAKE_FD(fd);

	return 0;
}

/* On failure it is not known whether fd was closed: leaked rather than closed twice. */
static int start_http(struct metrics *metrics, int fd)
{
	metrics->http = http.start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, metrics, MHD_OPTION_LISTEN_SOCKET,
					  fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)METRICS_CLIENTS_MAX,
					  MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)METRICS_CLIENTS_OF_ADDRESS,
					  MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
					  (size_t)METRICS_REQUEST_MAX, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
					  metrics, MHD_OPTION_END);

	return metrics->http ? 0 : -ENOMEM;
}

int metrics_new(const struct metrics_options *options, struct metrics **ret)
{
	AUTO_CLOSE int fd = options->handed > 0 ? options->handed : -1;
	AUTO(metrics_freep) struct metrics *metrics = NULL;
	int r = load_library();

	if (r < 0)
		return r;
	metrics = calloc(1, sizeof(*metrics));
	if (metrics == NULL)
		return -ENOMEM;

	metrics->options = *options;
	r = make_notes(metrics);
	if (r == 0 && fd < 0)
		r = make_http_socket(options->listen, &fd);
	if (r == 0)
		r = start_http(metrics, TAKE_FD(fd));
	if (r == 0)
		r = join_loop(metrics);
	if (r < 0)
		return r;

	*ret = TAKE(metrics);

	return 0;
}

void metrics_free(struct metrics *metrics)
{
	if (metrics == NULL)
		return;

	sd_event_source_disable_unref(metrics->io);
	sd_event_source_disable_unref(metrics->timer);
	if (metrics->http)
		http.stop_daemon(metrics->http);
	for (size_t i = 0; i < FORMS; i++)
		drop_page(&metrics->pages[i]);
	for (enum note i = 0; i < NOTES; i++)
		if (metrics->notes[i])
			http.destroy_response(metrics->notes[i]);
	free(metrics);
}
