/*
 * check_control.c: the control socket with clients that leave, stall or flood it; requests and
 * their answers; descriptors that systemd hands over; and the daemon, asked over each of them.
 */
#include "daemon/service/control.c"

#include "lib/base/json.h"
#include "program.h"
#include "skip.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "scene.h"
#include "torture.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/service/health/overview.h"
#include "lib/config/config.h"
#include "evaluator_feed.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/pacing.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-event.h>

Suite *control_suite(void);

/* ==== the socket ==== */

static char directory[64], path[80];
static sd_event *event;
static struct control_socket *listener;
static size_t answer_bytes; /* how much is answered, in pieces; 0: the request, at once */
static size_t empty_pieces; /* come before each of them */
static size_t pieces, calls, endings;
static int answer_error, piece_error;

#define PIECE 65536

/* Short, so that the suite need not wait. */
#define REQUEST_NS (400 * NS_PER_MS)
#define PIECE_NS (1200 * NS_PER_MS)

/* What is left of one answer. */
struct long_answer {
	size_t left, empty;
};

static int more(void *ctx, struct buffer *ret)
{
	static const char piece[PIECE];
	struct long_answer *answer = ctx;
	size_t take = answer->left < sizeof(piece) ? answer->left : sizeof(piece);

	calls++;
	ck_assert_uint_eq(ret->len, 0);
	if (piece_error < 0)
		return piece_error;
	if (answer->empty-- > 0)
		return 1;

	pieces++;
	answer->empty = empty_pieces;
	ck_assert_int_eq(buffer_append(ret, piece, take), 0);
	answer->left -= take;

	return answer->left > 0;
}

static void end(void *ctx)
{
	endings++;
	free(ctx);
}

static int answer(void *ctx, const char *request, struct buffer *ret, struct control_rest *rest)
{
	struct long_answer *answer;

	(void)ctx;
	if (answer_error < 0)
		return answer_error;
	if (answer_bytes == 0)
		return buffer_append(ret, request, strlen(request));

	answer = calloc(1, sizeof(*answer));
	ck_assert_ptr_nonnull(answer);
	*answer = (struct long_answer){ answer_bytes, empty_pieces };
	*rest = (struct control_rest){ .more = more, .end = end, .ctx = answer };

	return 0;
}

/* What the kernel buffers for a reader: 208 KiB, unless net.core.wmem_default says otherwise. */
static size_t unread_bytes(void)
{
	char *text = scene_read("/proc/sys/net/core/wmem_default");
	size_t bytes = text ? strtoul(text, NULL, 10) : 0;

	free(text);

	return bytes;
}

static int try_control(void)
{
	struct control_socket_options options = { .event = event,
						  .path = path,
						  .answer = answer,
						  .request_timeout_ns = REQUEST_NS,
						  .piece_timeout_ns = PIECE_NS };

	return control_socket_new(&options, &listener);
}

static void setup(void)
{
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/control", directory);
	answer_bytes = 0;
	answer_error = piece_error = 0;
	empty_pieces = pieces = calls = endings = 0;
	listener = NULL;
	ck_assert_int_ge(sd_event_new(&event), 0);
	ck_assert_int_eq(try_control(), 0);
}

static void teardown(void)
{
	control_socket_free(listener);
	sd_event_unref(event);
	scene_remove(directory);
}

/* Lets the loop do all there is to do. */
static void turn(void)
{
	while (sd_event_run(event, 0) > 0)
		continue;
}

static struct sockaddr_un address_of(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", name);

	return address;
}

static int call(void)
{
	struct sockaddr_un address = address_of(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);

	return fd;
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	turn();
}

/* What the client was sent before the connection ended; the loop is turned until it has. Closes. */
static size_t hear_in_turns(int fd, char *ret, size_t cap)
{
	size_t len = 0;
	ssize_t got;

	for (;;) {
		char piece[65536];

		turn();
		got = recv(fd, piece, sizeof(piece), 0);
		if (got < 0 && errno == EAGAIN)
			continue;
		if (got <= 0)
			break;
		if (len < cap)
			memcpy(ret + len, piece, (size_t)got < cap - len ? (size_t)got : cap - len);
		len += (size_t)got;
	}
	close(fd);

	return len;
}

static void hears(int fd, const char *expected)
{
	char text[64] = "";

	ck_assert_uint_eq(hear_in_turns(fd, text, sizeof(text) - 1), strlen(expected));
	ck_assert_str_eq(text, expected);
}

static bool is_open(int fd)
{
	char byte;

	turn();

	return recv(fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

/* The daemon's side, whatever is still to be read. */
static bool has_ended(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLRDHUP };

	turn();

	return poll(&pollfd, 1, 0) > 0;
}

static bool is_unanswered(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

static size_t urgent_came;

static int on_urgent(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
	(void)source;
	(void)fd;
	(void)events;
	(void)userdata;
	urgent_came++;

	return 0;
}

START_TEST(a_line_is_answered_and_the_connection_ends)
{
	struct stat st;
	int fd = call();

	say(fd, "status\n");
	hears(fd, "status");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0660);
}
END_TEST

START_TEST(a_line_may_come_in_pieces)
{
	int fd = call();

	say(fd, "sta");
	say(fd, "tus");
	ck_assert(is_open(fd));
	say(fd, "\n");
	hears(fd, "status");
}
END_TEST

START_TEST(a_line_that_is_too_long_ends_the_connection)
{
	char line[CONTROL_REQUEST_MAX + 1];
	int fd = call();

	memset(line, 'a', sizeof(line));
	line[CONTROL_REQUEST_MAX] = '\0';
	say(fd, line);
	hears(fd, "");

	line[CONTROL_REQUEST_MAX - 1] = '\n';
	fd = call();
	say(fd, line);
	ck_assert_uint_eq(hear_in_turns(fd, line, sizeof(line)), CONTROL_REQUEST_MAX - 1);
}
END_TEST

START_TEST(a_line_with_a_nul_ends_the_connection)
{
	int fd = call();

	ck_assert_int_eq(send(fd, "sta\0tus\n", 8, 0), 8);
	hears(fd, "");
}
END_TEST

START_TEST(a_client_that_leaves_early_leaves_no_trace)
{
	for (size_t i = 0; i < 2 * CONTROL_CLIENTS_MAX; i++) {
		int fd = call();

		if (i % 2)
			say(fd, "sta");
		turn();
		close(fd);
		turn();
	}

	int fd = call();

	say(fd, "status\n");
	hears(fd, "status");
}
END_TEST

START_TEST(a_client_that_leaves_before_its_answer_leaves_no_trace)
{
	answer_bytes = 8u << 20;
	for (size_t i = 0; i < 2 * CONTROL_CLIENTS_MAX; i++) {
		int fd = call();

		say(fd, "status\n");
		close(fd);
		turn();
		ck_assert_uint_eq(endings, i + 1);
	}
	ck_assert_uint_lt(pieces * PIECE, 2 * CONTROL_CLIENTS_MAX * answer_bytes);
	answer_bytes = 0;

	int fd = call();

	say(fd, "status\n");
	hears(fd, "status");
}
END_TEST

START_TEST(the_seventeenth_connection_is_closed)
{
	int fds[CONTROL_CLIENTS_MAX];

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		fds[i] = call();
		turn();
	}

	int further = call();

	hears(further, "");
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		ck_assert(is_open(fds[i]));

	/* A place becomes free and is given again. */
	say(fds[0], "one\n");
	hears(fds[0], "one");
	fds[0] = call();
	say(fds[0], "two\n");
	hears(fds[0], "two");
	for (size_t i = 1; i < CONTROL_CLIENTS_MAX; i++)
		close(fds[i]);
}
END_TEST

START_TEST(a_client_that_sends_nothing_is_dropped_in_time)
{
	int silent = call(), half = call(), deaf;

	say(half, "stat");
	answer_bytes = (1u << 20) + 4 * unread_bytes();
	deaf = call();
	say(deaf, "status\n"); /* and never reads */
	scene_wait_for(!is_open(silent));
	scene_wait_for(!is_open(half));
	hears(silent, "");
	hears(half, "");
	scene_wait_for(has_ended(deaf));
	ck_assert_uint_lt(hear_in_turns(deaf, NULL, 0), answer_bytes);
}
END_TEST

/* As on a machine that is short of CPU time: it goes on, but not fast. */
START_TEST(a_slow_client_gets_a_long_answer_whole)
{
	char piece[65536];
	size_t len = 0;

	answer_bytes = 8u << 20;

	int fd = call();

	say(fd, "status\n");
	usleep((REQUEST_NS + 100 * NS_PER_MS) / NS_PER_US);
	turn(); /* there is no room for more: only the clock has anything to say */
	len += (size_t)recv(fd, piece, sizeof(piece), 0);
	ck_assert_uint_eq(len + hear_in_turns(fd, NULL, 0), 8u << 20);
}
END_TEST

/*
 * While the daemon was busy with something else: all are out of time when it comes back, and none
 * of them is to blame.
 */
START_TEST(a_request_is_answered_however_late)
{
	int fds[CONTROL_CLIENTS_MAX];

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		fds[i] = call();
		turn();
	}
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		ck_assert_int_eq(send(fds[i], "late\n", 5, MSG_NOSIGNAL), 5);
	usleep((REQUEST_NS + 100 * NS_PER_MS) / NS_PER_US);
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		hears(fds[i], "late");
}
END_TEST

START_TEST(a_large_answer_arrives_whole)
{
	answer_bytes = 20u << 20;

	int fd = call();

	say(fd, "status\n");
	ck_assert_uint_eq(hear_in_turns(fd, NULL, 0), 20u << 20);
}
END_TEST

/*
 * One client reads a long answer without a pause, another one asks, and something more urgent comes
 * up.
 */
START_TEST(other_events_are_handled_between_two_pieces)
{
	sd_event_source *urgent;
	int fd = call(), quick = call(), counter = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	size_t before;
	char piece[PIECE];

	answer_bytes = 20u << 20;
	empty_pieces = 3;
	ck_assert_int_ge(send(fd, "status\n", 7, MSG_NOSIGNAL), 7);
	while (recv(fd, piece, sizeof(piece), 0) < 0)
		ck_assert_int_gt(sd_event_run(event, 0), 0);

	/* The event of a more urgent source is the next one, whatever there is left to answer. */
	before = pieces;
	urgent_came = 0;
	ck_assert_int_ge(sd_event_add_io(event, &urgent, counter, EPOLLIN, on_urgent, NULL), 0);
	ck_assert_int_gt(sd_event_run(event, 0), 0);
	ck_assert_uint_eq(urgent_came, 1);
	ck_assert_uint_eq(pieces, before);
	sd_event_source_unref(urgent);
	close(counter);

	/* A request amid others is answered amid them. */
	answer_bytes = 0;
	ck_assert_int_ge(send(quick, "quick\n", 6, MSG_NOSIGNAL), 6);
	for (int i = 0; i < 50 && is_unanswered(quick); i++) {
		before = calls;
		if (recv(fd, piece, sizeof(piece), 0) < 0)
			ck_assert_int_eq(errno, EAGAIN);
		sd_event_run(event, 0);
		ck_assert_uint_le(calls, before + 1);
	}
	ck_assert(!is_unanswered(quick));
	ck_assert_uint_lt(pieces * PIECE, 20u << 20);
	hears(quick, "quick");
	hear_in_turns(fd, NULL, 0);
	ck_assert_uint_eq(pieces * PIECE, 20u << 20);
	ck_assert_uint_eq(endings, 1);
}
END_TEST

START_TEST(a_piece_is_made_when_the_one_before_was_sent)
{
	size_t made;
	int fd;

	answer_bytes = (20u << 20) + 4 * unread_bytes();
	fd = call();
	say(fd, "status\n");
	made = pieces;
	turn();
	ck_assert_uint_eq(pieces, made);
	ck_assert_uint_lt(made * PIECE, (2u << 20) + 2 * unread_bytes());
	scene_wait_for(has_ended(fd));
	ck_assert_uint_eq(pieces, made);
	ck_assert_uint_eq(endings, 1);
	close(fd);
}
END_TEST

START_TEST(a_piece_that_fails_ends_the_connection)
{
	int fd = call();

	answer_bytes = 1u << 20;
	piece_error = -ENOMEM;
	say(fd, "status\n");
	hears(fd, "");
	ck_assert_uint_eq(endings, 1);
}
END_TEST

START_TEST(a_client_in_the_middle_of_an_answer_is_dropped_at_the_end)
{
	int fd = call();

	answer_bytes = 20u << 20;
	say(fd, "status\n");
	control_socket_free(listener);
	listener = NULL;
	ck_assert_uint_eq(endings, 1);
	close(fd);
}
END_TEST

START_TEST(a_request_that_fails_ends_the_connection)
{
	int fd = call();

	answer_error = -ENOMEM;
	say(fd, "status\n");
	hears(fd, "");
}
END_TEST

START_TEST(a_socket_that_was_left_behind_is_replaced)
{
	struct sockaddr_un address = address_of(path);
	int dead;

	control_socket_free(listener);
	ck_assert_int_lt(access(path, F_OK), 0);
	dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(dead, (struct sockaddr *)&address, sizeof(address)), 0);
	close(dead);
	listener = NULL;
	ck_assert_int_eq(try_control(), 0);

	int fd = call();

	say(fd, "status\n");
	hears(fd, "status");
}
END_TEST

START_TEST(what_is_in_use_or_is_no_socket_is_left_alone)
{
	struct control_socket *first = listener;

	listener = NULL;
	ck_assert_int_eq(try_control(), -EADDRINUSE);
	ck_assert_int_eq(access(path, F_OK), 0);
	control_socket_free(first);

	scene_write(path, "a file");
	ck_assert_int_eq(try_control(), -EEXIST);
	ck_assert(scene_says(path, "a file"));
	unlink(path);

	snprintf(path, sizeof(path), "%s/nowhere/control", directory);
	ck_assert_int_eq(try_control(), -ENOENT);
}
END_TEST

/* ---- the daemon ---- */

static char spikewatchd[512], config_path[128];

static struct program start_daemon(void)
{
	const char *const arguments[] = { spikewatchd, "-c", config_path, NULL };

	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\"},\n"
		"\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		"\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\"},\n"
		"\"state_file\": \"%s/state.json\",\n"
		"\"targets\": [{\"name\": \"me\", \"pid\": %d}],\n"
		"\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"window\": \"100ms\", \"percent\": \"70%%\",\n"
		"\"warmup\": 2}, {\"name\": \"big\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"}]}\n",
		directory, directory, directory, getpid());

	return program_start(arguments, directory, -1, 0);
}

/* Asks the daemon; NULL: there is no answer. */
static struct json_document *ask(const char *request)
{
	struct sockaddr_un address = address_of(path);
	struct json_document *document = NULL;
	struct buffer text = { 0 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char piece[4096];
	ssize_t got;

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    send(fd, request, strlen(request), MSG_NOSIGNAL) > 0) {
		while ((got = recv(fd, piece, sizeof(piece), 0)) > 0)
			ck_assert_int_eq(buffer_append(&text, piece, (size_t)got), 0);
		ck_assert_int_eq(json_parse(text.data, text.len, NULL, &document, NULL), 0);
	}
	close(fd);
	buffer_release(&text);

	return document;
}

static double number(const struct json_document *document, const char *section, const char *key)
{
	const struct json_node *node = json_member(json_member(json_root(document), section), key);

	ck_assert_msg(node && node->type == JSON_NUMBER, "%s.%s", section, key);

	return node->number;
}

/* Both rules of the one target were judged. */
static bool judged(void)
{
	struct json_document *document = ask("status\n");
	const struct json_node *targets = document ? json_member(json_root(document), "targets") : NULL;
	const struct json_node *rules = targets && targets->first ? json_member(targets->first, "rules") : NULL;
	bool yes = rules && rules->count == 2 && json_member(rules->first, "reason") &&
		   strcmp(json_member(rules->first, "reason")->text, "within-bounds") == 0;

	json_document_free(document);

	return yes;
}

START_TEST(the_daemon_says_how_it_is)
{
	control_socket_free(listener);
	listener = NULL;
	if (!program_find("spikewatchd", spikewatchd))
		SKIP_TEST("spikewatchd was not built");

	struct program program = start_daemon();
	struct json_document *document;

	scene_wait_for(judged());
	document = ask("status\n");
	ck_assert_double_eq(number(document, "daemon", "pid"), program.pid);
	ck_assert_double_eq(number(document, "daemon", "interval_ns"), 2e6);
	ck_assert_double_gt(number(document, "daemon", "uptime_ns"), 0);
	ck_assert_double_gt(number(document, "daemon", "memory_bytes"), 1 << 20);
	ck_assert_double_gt(number(document, "daemon", "open_fds"), 5);
	ck_assert_double_gt(number(document, "sampler", "snapshots"), 0);
	ck_assert_double_gt(number(document, "ring", "history_ns"), 0);
	ck_assert_double_eq(number(document, "discovery", "targets"), 1);
	ck_assert_double_eq(number(document, "incidents", "open"), 0);
	json_document_free(document);

	document = ask("dance\n");
	ck_assert_ptr_nonnull(json_member(json_root(document), "error"));
	ck_assert_str_eq(json_member(json_root(document), "request")->text, "dance");
	json_document_free(document);

	/* Killed, it leaves its socket behind; the next one takes the place, and cleans up. */
	kill(program.pid, SIGKILL);
	program_wait(&program);
	ck_assert_int_eq(access(path, F_OK), 0);
	program = start_daemon();
	scene_wait_for(judged());
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_lt(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_daemon_without_a_socket_works)
{
	control_socket_free(listener);
	listener = NULL;
	if (!program_find("spikewatchd", spikewatchd))
		SKIP_TEST("spikewatchd was not built");

	scene_write(path, "in the way");
	struct program program = start_daemon();

	scene_wait_for(program_watches_one(&program));
	program_said(directory, "no control socket at");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert(scene_says(path, "in the way"));
}
END_TEST

/* ==== requests ==== */

static struct config *config;
static struct evaluator *evaluator;
static struct incidents_ticket ticket;
static int reload_result, triggers;
static char triggered[256];

static int fire(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;

	return 0;
}

static void add_target(uint32_t id, const char *entry, const char *name)
{
	struct target target = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)id,
		.entry = entry,
		.name = name,
		.key = name,
		.comm = "",
		.cmdline = "",
		.cgroup = "",
	};

	ck_assert_int_eq(feed_target(evaluator, &target), 0);
}

static void requests_setup(void)
{
	config = scene_config(
		"{\"targets\": [{\"name\": \"db\", \"comm\": \"db\"}, {\"name\": \"web\", \"comm\": \"w\"}], "
		"\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"percent\": \"70%%\"}]}");
	ck_assert_int_eq(evaluator_new(&(struct evaluator_options){ .config = config, .fire = fire }, &evaluator), 0);
	add_target(1, "db", "db/1");
	add_target(2, "web", "web/2");
	add_target(3, "web", "web/3");
	ticket = (struct incidents_ticket){
		.answer = INCIDENTS_OPENED,
		.why = "",
		.directory = "/incidents",
		.sealed_in_ns = 10 * NS_PER_S,
		.stem = "20261121T000000Z-db-manual",
	};
	reload_result = 0;
	triggers = 0;
	triggered[0] = '\0';
}

static void requests_teardown(void)
{
	evaluator_free(evaluator);
	config_free(config);
}

static void overview(void *ctx, struct overview *ret)
{
	(void)ctx;
	*ret = (struct overview){ .config = config, .evaluator = evaluator };
}

static int trigger(void *ctx, const struct target *target, struct incidents_ticket *ret)
{
	(void)ctx;
	triggers++;
	snprintf(triggered, sizeof(triggered), "%s", target ? target->name : "everything");
	*ret = ticket;

	return 0;
}

static int reload(void *ctx, char *message)
{
	(void)ctx;
	snprintf(message, CONTROL_MESSAGE_MAX, "%s", reload_result < 0 ? "conf:3:4: rules: bad" : "1 rule changed");

	return reload_result;
}

static const struct control_options requests = { .overview = overview, .trigger = trigger, .reload = reload };

static struct json_document *document;
static bool harmless; /* the last ask_request had no byte that a terminal obeys */

/* The object that is answered; one at a time. */
static const struct json_node *ask_request(const char *line)
{
	struct json_limits limits = { .size_bytes = 1u << 20, .nodes = 1u << 10 };
	struct buffer text = { 0 };
	struct control_rest rest = { 0 };

	json_document_free(document);
	document = NULL;
	ck_assert_int_eq(answer_request(&requests, line, &text, &rest), 0);
	ck_assert_ptr_null(rest.more);
	ck_assert_int_eq(json_parse(text.data, text.len, &limits, &document, NULL), 0);
	harmless = true;
	for (size_t i = 0; i + 1 < text.len; i++) /* it ends with a newline */
		harmless &= (unsigned char)text.data[i] >= 0x20 && text.data[i] != 0x7f;
	buffer_release(&text);

	return json_root(document);
}

static const char *text_of(const struct json_node *object, const char *key)
{
	const struct json_node *node = object ? json_member(object, key) : NULL;

	return node && node->type == JSON_STRING ? node->text : "";
}

START_TEST(an_unknown_request_is_refused_with_the_known_ones)
{
	static const char *const lines[] = { "",           "statu", "statuss",  "status now",
					     "reload all", "halt",  "\x1b[31m", "trigger\t" };

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		ck_assert_msg(*text_of(ask_request(lines[i]), "error"), "%s", lines[i]);
	ck_assert_ptr_nonnull(
		strstr(text_of(ask_request("help"), "error"), "status [WORDS], trigger [TARGET], reload"));
	ck_assert_int_eq(triggers, 0);
}
END_TEST

START_TEST(a_trigger_without_a_name_means_everything)
{
	const struct json_node *given = json_member(ask_request("trigger"), "trigger");

	ck_assert_str_eq(triggered, "everything");
	ck_assert_str_eq(text_of(given, "answer"), "opened");
	ck_assert_str_eq(text_of(given, "directory"), "/incidents");
	ck_assert_str_eq(text_of(given, "stem"), "20261121T000000Z-db-manual");
	ck_assert_double_eq(json_member(given, "sealed_in_ns")->number, 1e10);
}
END_TEST

START_TEST(a_target_is_found_by_its_name_or_by_that_of_its_entry_alone)
{
	ask_request("trigger web/3");
	ck_assert_str_eq(triggered, "web/3");
	ask_request("trigger  db");
	ck_assert_str_eq(triggered, "db/1");
	ck_assert_int_eq(triggers, 2);
}
END_TEST

START_TEST(a_name_that_means_several_is_refused_with_them)
{
	const char *error = text_of(ask_request("trigger web"), "error");

	ck_assert_ptr_nonnull(strstr(error, "2 targets"));
	ck_assert(strstr(error, "web/2") && strstr(error, "web/3"));
	ck_assert_ptr_nonnull(strstr(text_of(ask_request("trigger nobody"), "error"), "nobody"));
	ck_assert_int_eq(triggers, 0);
}
END_TEST

START_TEST(an_exact_name_wins_over_an_entry_of_several)
{
	add_target(4, "web", "web");
	ask_request("trigger web");
	ck_assert_str_eq(triggered, "web");
}
END_TEST

START_TEST(a_refused_incident_is_an_error)
{
	ticket.answer = INCIDENTS_REFUSED;
	ticket.why = "too many are open";
	ck_assert_ptr_nonnull(strstr(text_of(ask_request("trigger db"), "error"), "too many are open"));
	ticket.answer = INCIDENTS_MERGED;
	ck_assert_str_eq(text_of(json_member(ask_request("trigger db"), "trigger"), "answer"), "merged");
	ck_assert_ptr_null(json_member(json_root(document), "error"));
}
END_TEST

START_TEST(a_reload_says_what_changed_or_why_it_did_not)
{
	const struct json_node *given = json_member(ask_request("reload"), "reload");

	ck_assert(json_member(given, "done")->boolean);
	ck_assert_str_eq(text_of(given, "message"), "1 rule changed");
	reload_result = -EINVAL;
	ck_assert_str_eq(text_of(ask_request("reload"), "error"), "conf:3:4: rules: bad");
	ck_assert(!json_member(json_member(json_root(document), "reload"), "done")->boolean);
}
END_TEST

START_TEST(hostile_names_come_back_harmless)
{
	add_target(5, "evil", "a\x1b]0;x\x07\n\"");
	add_target(6, "evil", "b\x7f\xff");

	const char *error = text_of(ask_request("trigger evil"), "error");

	ck_assert_ptr_nonnull(strstr(error, "2 targets"));
	ck_assert(harmless);
	ask_request("trigger \xff\xfe");
	ck_assert(harmless);
	ask_request("\x1b]0;\xff\n");
	ck_assert(harmless);
}
END_TEST

START_TEST(without_memory_no_answer_is_cut_short)
{
	static const char *const lines[] = { "trigger",   "trigger db", "reload",
					     "nothing",   "status",     "status nearest=3 target=a name=b",
					     "status all" };

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		bool injected = true;

		for (long n = 1; injected; n++) {
			struct buffer text = { 0 };
			struct control_rest rest = { 0 };

			torture_arm(n);
			int r = answer_request(&requests, lines[i], &text, &rest);
			injected = torture_disarm();
			ck_assert_int_eq(r, injected ? -ENOMEM : 0);
			ck_assert(!rest.more || !injected);
			if (rest.end)
				rest.end(rest.ctx);
			buffer_release(&text);
		}
	}
}
END_TEST

/* ==== descriptors handed over ==== */

static void handed_setup(void)
{
	scene_directory(directory);
}

static void handed_teardown(void)
{
	scene_remove(directory);
}

/* ---- what is handed over: a letter each ---- */

static int unix_socket(int type, bool listening)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type, 0);
	static unsigned number;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket.%d.%u", directory, getpid(), number++);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || (listening && listen(fd, 4) < 0))
		return -1;

	return fd;
}

static int inet_socket(int family, int type)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(family, type, 0);

	if (bind(fd, family == AF_INET ? (void *)&v4 : (void *)&v6, family == AF_INET ? sizeof(v4) : sizeof(v6)) < 0 ||
	    (type == SOCK_STREAM && listen(fd, 4) < 0))
		return -1;

	return fd;
}

static int make(char what)
{
	switch (what) {
	case 'u':
		return unix_socket(SOCK_STREAM, true);
	case 'd':
		return unix_socket(SOCK_DGRAM, false);
	case 'c':
		return unix_socket(SOCK_STREAM, false);
	case '4':
		return inet_socket(AF_INET, SOCK_STREAM);
	case '6':
		return inet_socket(AF_INET6, SOCK_STREAM);
	case 'n':
		return inet_socket(AF_INET, SOCK_DGRAM);
	default:
		return open("/dev/null", O_RDWR);
	}
}

/* In the child: descriptors 3 and up are these, and the environment says so. */
static void hand_over(const char *what)
{
	char text[32];
	int fds[16], count = 0;

	for (; what[count]; count++) {
		int fd = make(what[count]);

		if (fd < 0)
			_exit(100);
		fds[count] = fcntl(fd, F_DUPFD, 64);
	}
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	for (int i = 0; i < count; i++) {
		dup2(fds[i], 3 + i);
		close(fds[i]);
	}
	snprintf(text, sizeof(text), "%d", count);
	setenv("LISTEN_FDS", text, 1);
	snprintf(text, sizeof(text), "%d", getpid());
	setenv("LISTEN_PID", text, 1);
}

/* Takes them in a child; the test is what the child finds. */
static void takes(const char *what, int control, int metrics, size_t unknown)
{
	pid_t pid = fork();
	int status = 0;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct handed_fds handed, again;

		hand_over(what);
		if (handed_fds_take(&handed) != 0)
			_exit(1);
		if (handed.control != control || handed.metrics != metrics || handed.unknown != unknown)
			_exit(2);
		for (int i = 0; what[i]; i++) {
			int flags = fcntl(3 + i, F_GETFD);
			bool kept = 3 + i == control || 3 + i == metrics;

			if (kept != (flags >= 0) ||
			    (kept && (!(flags & FD_CLOEXEC) || !(fcntl(3 + i, F_GETFL) & O_NONBLOCK))))
				_exit(3);
		}
		if (handed_fds_take(&again) != 0 || again.control || again.metrics || again.unknown ||
		    getenv("LISTEN_FDS"))
			_exit(4);
		handed_fds_release(&handed);
		_exit(fcntl(3, F_GETFD) < 0 && fcntl(4, F_GETFD) < 0 ? 0 : 5);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "\"%s\": %d", what, WEXITSTATUS(status));
}

START_TEST(sockets_are_told_apart_by_what_they_are)
{
	takes("u", 3, 0, 0);
	takes("4", 0, 3, 0);
	takes("u4", 3, 4, 0);
	takes("4u", 4, 3, 0);
	if (inet_socket(AF_INET6, SOCK_STREAM) >= 0)
		takes("6u", 4, 3, 0);
}
END_TEST

START_TEST(what_is_unknown_or_too_many_is_closed_and_counted)
{
	takes("x", 0, 0, 1);
	takes("dcnx", 0, 0, 4);
	takes("x4du", 6, 4, 2);
	takes("uu44", 3, 5, 2);
}
END_TEST

/* Of another process: it was not meant for us. */
START_TEST(descriptors_of_another_process_are_left_alone)
{
	struct handed_fds handed;

	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", "1", 1);
	ck_assert_int_eq(handed_fds_take(&handed), 0);
	ck_assert_int_eq(handed.control + handed.metrics, 0);
	ck_assert_uint_eq(handed.unknown, 0);
}
END_TEST

/* ---- the daemon ---- */

/* Whether what answers the request says so. */
static bool answers(int family, const void *address, socklen_t len, const char *request, const char *part)
{
	char text[65536] = "";
	size_t had = 0;
	ssize_t got;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 1 }, sizeof(struct timeval));
	if (connect(fd, address, len) == 0 && send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
		while (had < sizeof(text) - 1 && (got = recv(fd, text + had, sizeof(text) - 1 - had, 0)) > 0)
			had += (size_t)got;
	close(fd);

	return strstr(text, part) != NULL;
}

/* It has no socket of its own making, and the one that was there before it is there after it. */
START_TEST(the_daemon_answers_at_the_sockets_that_it_is_handed)
{
	struct sockaddr_un control = { .sun_family = AF_UNIX };
	struct sockaddr_in web = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(web);
	char err[128];

	if (!program_find("spikewatchd", spikewatchd))
		SKIP_TEST("spikewatchd was not built");

	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(err, sizeof(err), "%s/stderr", directory);
	scene_write(config_path,
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\"},\n"
		    "\"state_file\": \"%s/state.json\", \"targets\": [{\"name\": \"me\", \"pid\": %d}]}\n",
		    directory, directory, directory, getpid());
	snprintf(control.sun_path, sizeof(control.sun_path), "%s/handed", directory);

	int unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), web_fd = inet_socket(AF_INET, SOCK_STREAM);

	ck_assert_int_eq(bind(unix_fd, (struct sockaddr *)&control, sizeof(control)), 0);
	ck_assert_int_eq(listen(unix_fd, 4), 0);
	ck_assert_int_eq(getsockname(web_fd, (struct sockaddr *)&web, &len), 0);

	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		char text[16];
		int log = open(err, O_WRONLY | O_CREAT | O_APPEND, 0644);
		int fds[] = { fcntl(unix_fd, F_DUPFD, 64), fcntl(web_fd, F_DUPFD, 64) };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		unsetenv("JOURNAL_STREAM");
		unsetenv("NOTIFY_SOCKET");
		dup2(log, STDERR_FILENO);
		dup2(fds[0], 4);
		dup2(fds[1], 3);
		close(fds[0]);
		close(fds[1]);
		setenv("LISTEN_FDS", "2", 1);
		snprintf(text, sizeof(text), "%d", getpid());
		setenv("LISTEN_PID", text, 1);
		execl(spikewatchd, spikewatchd, "-c", config_path, (char *)NULL);
		_exit(126);
	}
	close(unix_fd);
	close(web_fd);
	scene_wait_for(answers(AF_UNIX, &control, sizeof(control), "status\n", "\"daemon\""));
	scene_wait_for(answers(AF_INET, &web, sizeof(web), "GET /metrics HTTP/1.0\r\n\r\n", "spikewatch_build_info{"));
	kill(pid, SIGTERM);

	struct program program = { .pid = pid };
	char own[128];

	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(access(control.sun_path, F_OK), 0);
	snprintf(own, sizeof(own), "%s/control", directory);
	ck_assert_int_lt(access(own, F_OK), 0);
}
END_TEST

Suite *control_suite(void)
{
	Suite *suite = suite_create("control");
	TCase *socket_case = tcase_create("socket"), *requests_case = tcase_create("requests"),
	      *handed_case = tcase_create("handed over");

	tcase_add_checked_fixture(socket_case, setup, teardown);
	tcase_add_test(socket_case, a_line_is_answered_and_the_connection_ends);
	tcase_add_test(socket_case, a_line_may_come_in_pieces);
	tcase_add_test(socket_case, a_line_that_is_too_long_ends_the_connection);
	tcase_add_test(socket_case, a_line_with_a_nul_ends_the_connection);
	tcase_add_test(socket_case, a_client_that_leaves_early_leaves_no_trace);
	tcase_add_test(socket_case, a_client_that_leaves_before_its_answer_leaves_no_trace);
	tcase_add_test(socket_case, the_seventeenth_connection_is_closed);
	tcase_add_test(socket_case, a_client_that_sends_nothing_is_dropped_in_time);
	tcase_add_test(socket_case, a_slow_client_gets_a_long_answer_whole);
	tcase_add_test(socket_case, a_request_is_answered_however_late);
	tcase_add_test(socket_case, a_large_answer_arrives_whole);
	tcase_add_test(socket_case, other_events_are_handled_between_two_pieces);
	tcase_add_test(socket_case, a_piece_is_made_when_the_one_before_was_sent);
	tcase_add_test(socket_case, a_piece_that_fails_ends_the_connection);
	tcase_add_test(socket_case, a_client_in_the_middle_of_an_answer_is_dropped_at_the_end);
	tcase_add_test(socket_case, a_request_that_fails_ends_the_connection);
	tcase_add_test(socket_case, a_socket_that_was_left_behind_is_replaced);
	tcase_add_test(socket_case, what_is_in_use_or_is_no_socket_is_left_alone);
	tcase_add_test(socket_case, the_daemon_says_how_it_is);
	tcase_add_test(socket_case, a_daemon_without_a_socket_works);
	suite_add_tcase(suite, socket_case);
	tcase_add_checked_fixture(requests_case, requests_setup, requests_teardown);
	tcase_add_test(requests_case, an_unknown_request_is_refused_with_the_known_ones);
	tcase_add_test(requests_case, a_trigger_without_a_name_means_everything);
	tcase_add_test(requests_case, a_target_is_found_by_its_name_or_by_that_of_its_entry_alone);
	tcase_add_test(requests_case, a_name_that_means_several_is_refused_with_them);
	tcase_add_test(requests_case, an_exact_name_wins_over_an_entry_of_several);
	tcase_add_test(requests_case, a_refused_incident_is_an_error);
	tcase_add_test(requests_case, a_reload_says_what_changed_or_why_it_did_not);
	tcase_add_test(requests_case, hostile_names_come_back_harmless);
	tcase_add_test(requests_case, without_memory_no_answer_is_cut_short);
	suite_add_tcase(suite, requests_case);
	tcase_add_checked_fixture(handed_case, handed_setup, handed_teardown);
	tcase_add_test(handed_case, sockets_are_told_apart_by_what_they_are);
	tcase_add_test(handed_case, what_is_unknown_or_too_many_is_closed_and_counted);
	tcase_add_test(handed_case, descriptors_of_another_process_are_left_alone);
	tcase_add_test(handed_case, the_daemon_answers_at_the_sockets_that_it_is_handed);
	suite_add_tcase(suite, handed_case);

	return suite;
}
