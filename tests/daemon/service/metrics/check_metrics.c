/*
 * check_metrics.c: the metrics' server among clients that stall, send garbage, leave or never read;
 * served in this process by an event loop turned by hand.
 */
#include "daemon/service/metrics/metrics_server.h"

#include "scene.h"
#include "lib/base/base.h"
#include "daemon/service/metrics/exposition.h"
#include "lib/base/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

Suite *metrics_suite(void);

static sd_event *event;
static struct metrics *metrics;
static struct sockaddr_in address;
static size_t page_bytes; /* 0: a short one */
static int render_error;
static unsigned rendered;

static int render(void *ctx, enum openmetrics_form form, struct buffer *ret)
{
	char piece[1000];

	(void)ctx;
	rendered++;
	if (render_error < 0)
		return render_error;

	memset(piece, 'x', sizeof(piece));
	while (ret->len < page_bytes)
		ck_assert_int_eq(buffer_append(ret, piece, sizeof(piece)), 0);

	return buffer_append(ret, form == OPENMETRICS_1_0 ? "open\n" : "plain\n", form == OPENMETRICS_1_0 ? 5 : 6);
}

/* A socket that listens at a port that was free. */
static int listening_socket(void)
{
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);

	return fd;
}

static void setup(void)
{
	page_bytes = 0;
	render_error = 0;
	rendered = 0;
	ck_assert_int_ge(sd_event_new(&event), 0);

	struct metrics_options options = { .event = event, .handed = listening_socket(), .render = render };

	ck_assert_int_eq(metrics_new(&options, &metrics), 0);
}

static void teardown(void)
{
	metrics_free(metrics);
	sd_event_unref(event);
}

/* Lets the loop do all there is to do. */
static void turn(void)
{
	for (int i = 0; i < 1000 && sd_event_run(event, 0) > 0; i++)
		continue;
}

static int call(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);

	return fd;
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	turn();
}

/*
 * What is sent until the connection ends, as far as it fits; the loop is turned meanwhile. Closes.
 */
static size_t hear(int fd, char *ret, size_t cap)
{
	char piece[65536];
	size_t len = 0;
	ssize_t got = -1;
	bool ended = false;

	for (int naps = 0; !ended && naps < SCENE_NAPS; naps++) {
		turn();
		while ((got = recv(fd, piece, sizeof(piece), 0)) > 0) {
			for (ssize_t i = 0; i < got && len + (size_t)i + 1 < cap; i++)
				ret[len + (size_t)i] = piece[i];
			len += (size_t)got;
			turn();
		}
		ended = got == 0 || errno != EAGAIN;
		if (!ended)
			scene_nap();
	}
	ck_assert_msg(ended, "the connection does not end");
	if (cap > 0)
		ret[len < cap ? len : cap - 1] = '\0';
	close(fd);

	return len;
}

/* Sends a request, and holds the answer against its beginning, a header and its body. */
static void expect(const char *request, const char *status, const char *part, const char *body)
{
	char text[4096];
	int fd = call();

	say(fd, request);
	hear(fd, text, sizeof(text));
	ck_assert_msg(strncmp(text, status, strlen(status)) == 0, "%s: %s", request, text);
	ck_assert_msg(strstr(text, part), "%s: %s", request, text);
	const char *end = strstr(text, "\r\n\r\n");
	ck_assert_ptr_nonnull(end);
	ck_assert_msg(strcmp(end + 4, body) == 0, "%s: %s", request, text);
}

#define OK "HTTP/1.1 200"
#define HOST "Host: localhost\r\n"

START_TEST(metrics_are_served_in_the_form_that_is_asked_for)
{
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "Content-Type: text/plain; version=0.0.4; charset=utf-8",
	       "plain\n");
	expect("GET /metrics?x=y HTTP/1.1\r\n" HOST
	       "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n",
	       OK, "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8", "open\n");
	expect("GET /metrics HTTP/1.0\r\n\r\n", OK, "Connection: close", "plain\n");
}
END_TEST

START_TEST(head_has_no_body)
{
	expect("HEAD /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "Content-Length: 6", "");
}
END_TEST

START_TEST(other_paths_and_methods_are_refused)
{
	expect("GET / HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain",
	       "spikewatchd " SPIKEWATCH_VERSION "\nMetrics are at /metrics.\n");
	expect("GET /metrics/ HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 404", "text/plain",
	       "There is nothing here. Metrics are at /metrics.\n");
	expect("GET /../etc/passwd HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 404", "text/plain",
	       "There is nothing here. Metrics are at /metrics.\n");
	expect("DELETE /metrics HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 405", "Allow: GET, HEAD", "Only GET and HEAD.\n");
	expect("POST /metrics HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", "HTTP/1.1 405", "Allow: GET, HEAD",
	       "Only GET and HEAD.\n");
	ck_assert_uint_eq(rendered, 0);
}
END_TEST

START_TEST(a_page_that_cannot_be_made_is_said_and_the_next_one_is_tried)
{
	render_error = -ENOMEM;
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 503", "text/plain",
	       "There are no metrics now: not enough memory, or too many of them.\n");
	render_error = 0;
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain", "plain\n");
	ck_assert_uint_eq(rendered, 2);
}
END_TEST

/*
 * Whatever is asked within the time that a page is fresh: on a machine that stands still it may be
 * made anew now and then.
 */
START_TEST(a_flood_of_scrapes_is_answered_from_few_pages)
{
	const char *request = "GET /metrics HTTP/1.1\r\n" HOST "\r\n";
	uint64_t from, to;

	ck_assert_int_ge(sd_event_now(event, CLOCK_MONOTONIC, &from), 0);
	for (int i = 0; i < 200; i++)
		expect(request, OK, "text/plain", "plain\n");
	ck_assert_int_ge(sd_event_now(event, CLOCK_MONOTONIC, &to), 0);
	ck_assert_uint_ge(rendered, 1);
	ck_assert_uint_le(rendered, (to - from) / (METRICS_FRESH_NS / NS_PER_US) + 1);

	unsigned before = rendered;
	char text[256];

	scene_wait_for((sd_event_run(event, 0), sd_event_now(event, CLOCK_MONOTONIC, &from),
			from > to + METRICS_FRESH_NS / NS_PER_US));
	int fd = call();

	say(fd, request);
	hear(fd, text, sizeof(text));
	ck_assert_uint_gt(rendered, before);
}
END_TEST

START_TEST(a_large_page_arrives_whole)
{
	page_bytes = 20u << 20;

	int fd = call();

	say(fd, "GET /metrics HTTP/1.1\r\n" HOST "\r\n");
	ck_assert_uint_ge(hear(fd, NULL, 0), 20u << 20);
}
END_TEST

START_TEST(a_request_that_is_too_long_is_refused)
{
	static char request[METRICS_REQUEST_MAX * 2];
	char text[512];
	int fd = call();

	int len = snprintf(request, sizeof(request), "GET /metrics HTTP/1.1\r\n" HOST "X: ");

	memset(request + len, 'a', sizeof(request) - (size_t)len - 1);
	send(fd, request, strlen(request), MSG_NOSIGNAL);
	hear(fd, text, sizeof(text));
	ck_assert_msg(*text == '\0' || strncmp(text, "HTTP/1.1 431", 12) == 0 ||
			      strncmp(text, "HTTP/1.0 431", 12) == 0 || strncmp(text, "HTTP/1.1 414", 12) == 0,
		      "%s", text);
	ck_assert_uint_eq(rendered, 0);
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain", "plain\n");
}
END_TEST

START_TEST(garbage_harms_nobody)
{
	static const char *const garbage[] = { "\n",
					       "\r\n\r\n\r\n",
					       "GET\r\n\r\n",
					       "\x16\x03\x01\x02\x01\x01",
					       "a b c d e f\r\n\r\n",
					       "GET /metrics HTTP/9.9\r\n\r\n",
					       "GET /metrics HTTP/1.1\r\n\r\n",
					       "POST / HTTP/1.1\r\n" HOST
					       "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" };

	for (size_t i = 0; i < ARRAY_LEN(garbage); i++) {
		int fd = call();

		say(fd, garbage[i]);
		shutdown(fd, SHUT_WR);
		hear(fd, NULL, 0);
	}
	for (int i = 0; i < 3 * METRICS_CLIENTS_MAX; i++) {
		int fd = call();

		if (i % 3 > 0)
			say(fd, i % 3 == 1 ? "GET /met" : "GET /metrics HTTP/1.1\r\n" HOST "\r\n");
		close(fd);
		turn();
	}
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain", "plain\n");
}
END_TEST

/*
 * Silent ones, one that sends a byte now and then, one that does not read: when their time is over
 * there is room again.
 */
START_TEST(whoever_stalls_is_dropped_in_time)
{
	int fds[METRICS_CLIENTS_OF_ADDRESS];
	bool gone = false;

	page_bytes = 16u << 20;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = call();
		turn();
	}
	say(fds[1], "GET /metrics HTTP/1.1\r\n" HOST "\r\n"); /* and never reads */
	for (int naps = 0; !gone && naps < 2 * SCENE_NAPS; naps++) {
		gone = true;
		turn();
		if (naps % 100 == 0)
			send(fds[0], &"GET /metrics HTTP/1.1\r\nX: aaaaaaaa"[naps / 100 % 30], 1, MSG_NOSIGNAL);
		for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
			struct pollfd pollfd = { .fd = fds[i], .events = POLLRDHUP };

			gone = gone && poll(&pollfd, 1, 0) > 0;
		}
		scene_nap();
	}
	ck_assert_msg(gone, "one of them is still served");
	page_bytes = 0;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	turn();
	char text[512];
	int fd = call();

	say(fd, "GET /metrics HTTP/1.1\r\n" HOST "\r\n");
	hear(fd, text, sizeof(text));
	ck_assert_msg(strstr(text, " 200 "), "%s", text);
}
END_TEST

START_TEST(a_place_that_ends_is_given_again)
{
	for (int round = 0; round < 3; round++) {
		int fds[2 * METRICS_CLIENTS_MAX];

		for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
			fds[i] = call();
			turn();
		}
		for (size_t i = 0; i < ARRAY_LEN(fds); i++)
			close(fds[i]);
		turn();
		expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain", "plain\n");
	}
}
END_TEST

/* ---- where it listens ---- */

static int try_listen(const char *text, struct metrics **ret)
{
	struct metrics_options options = { .event = event, .listen = text, .render = render };

	return metrics_new(&options, ret);
}

START_TEST(it_listens_where_it_is_told_or_says_why_not)
{
	struct metrics *other = NULL;
	char text[32];

	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
	ck_assert_int_eq(try_listen(text, &other), -EADDRINUSE);
	ck_assert_int_eq(try_listen("localhost:80", &other), -EINVAL);
	ck_assert_int_eq(try_listen("192.0.2.1:9", &other), -EADDRNOTAVAIL);
	ck_assert_ptr_null(other);

	metrics_free(metrics);
	metrics = NULL;
	ck_assert_int_eq(try_listen(text, &metrics), 0);
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain", "plain\n");

	/* The connection has just ended, which disturbs nothing. */
	metrics_free(metrics);
	metrics = NULL;
	ck_assert_int_eq(try_listen(text + strlen("127.0.0.1:"), &metrics), 0);
	expect("GET /metrics HTTP/1.1\r\n" HOST "\r\n", OK, "text/plain", "plain\n");
}
END_TEST

START_TEST(ending_it_drops_clients_and_leaves_no_descriptor)
{
	int before = dup(0), fds[5];

	close(before);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = call();
	turn();
	metrics_free(metrics);
	metrics = NULL;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		char byte;

		errno = 0;
		ck_assert_int_le(recv(fds[i], &byte, 1, 0), 0);
		ck_assert_int_ne(errno, EAGAIN);
		close(fds[i]);
	}
	/* The lowest descriptors are free again: its own three and the clients. */
	int after = dup(0);

	ck_assert_int_lt(after, before);
	close(after);
}
END_TEST

Suite *metrics_suite(void)
{
	Suite *suite = suite_create("metrics");
	TCase *server = tcase_create("server");

	tcase_add_checked_fixture(server, setup, teardown);
	tcase_add_test(server, metrics_are_served_in_the_form_that_is_asked_for);
	tcase_add_test(server, head_has_no_body);
	tcase_add_test(server, other_paths_and_methods_are_refused);
	tcase_add_test(server, a_page_that_cannot_be_made_is_said_and_the_next_one_is_tried);
	tcase_add_test(server, a_flood_of_scrapes_is_answered_from_few_pages);
	tcase_add_test(server, a_large_page_arrives_whole);
	tcase_add_test(server, a_request_that_is_too_long_is_refused);
	tcase_add_test(server, garbage_harms_nobody);
	tcase_add_test(server, whoever_stalls_is_dropped_in_time);
	tcase_add_test(server, a_place_that_ends_is_given_again);
	tcase_add_test(server, it_listens_where_it_is_told_or_says_why_not);
	tcase_add_test(server, ending_it_drops_clients_and_leaves_no_descriptor);
	suite_add_tcase(suite, server);

	return suite;
}
