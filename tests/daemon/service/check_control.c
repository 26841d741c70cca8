/*
 * check_control.c: the control socket among clients who stall, talk nonsense, leave or never read;
 * served in this process by an event loop turned by hand, and by the daemon as it is run.
 */
#include "daemon/service/control.h"
#include "lib/base/json.h"
#include "program.h"
#include "lib/base/base.h"
#include "lib/base/io.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-event.h>

Suite *control_suite(void);

static char directory[64], path[80];
static sd_event *event;
static struct control *control;
static size_t answer_bytes; /* how much is answered, in pieces; 0: the request, at once */
static size_t empty_pieces; /* come before each of them */
static size_t pieces, calls, endings;
static int answer_error, piece_error;

#define PIECE 65536

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

static int answer(void *ctx, const char *request, struct buffer *ret, struct control_rest *rate_limit)
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
	*rate_limit = (struct control_rest){ .more = more, .end = end, .ctx = answer };

	return 0;
}

/* What the kernel takes without that anybody reads: 208 KiB, unless somebody has set it. */
static size_t unread_bytes(void)
{
	char *text = scene_read("/proc/sys/net/core/wmem_default");
	size_t bytes = text ? strtoul(text, NULL, 10) : 0;

	free(text);

	return bytes;
}

static int try_control(void)
{
	struct control_options options = { .event = event, .path = path, .answer = answer };

	return control_new(&options, &control);
}

static void setup(void)
{
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/control", directory);
	answer_bytes = 0;
	answer_error = piece_error = 0;
	empty_pieces = pieces = calls = endings = 0;
	control = NULL;
	ck_assert_int_ge(sd_event_new(&event), 0);
	ck_assert_int_eq(try_control(), 0);
}

static void teardown(void)
{
	control_free(control);
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

START_TEST(whoever_leaves_early_leaves_no_trace)
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

START_TEST(whoever_leaves_before_the_answer_is_taken_leaves_no_trace)
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

START_TEST(the_seventeenth_is_hung_up_on)
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

START_TEST(whoever_says_nothing_is_dropped_in_time)
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
START_TEST(whoever_takes_a_long_answer_slowly_gets_it_whole)
{
	char piece[65536];
	size_t len = 0;

	answer_bytes = 8u << 20;

	int fd = call();

	say(fd, "status\n");
	usleep(CONTROL_PATIENCE_NS / NS_PER_US + 300000);
	turn(); /* there is no room for more: only the clock has anything to say */
	len += (size_t)recv(fd, piece, sizeof(piece), 0);
	ck_assert_uint_eq(len + hear_in_turns(fd, NULL, 0), 8u << 20);
}
END_TEST

/*
 * While the daemon was busy with somebody else: all are out of time when it comes back, and none of
 * them is to blame.
 */
START_TEST(whoever_has_asked_is_answered_however_late)
{
	int fds[CONTROL_CLIENTS_MAX];

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		fds[i] = call();
		turn();
	}
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		ck_assert_int_eq(send(fds[i], "late\n", 5, MSG_NOSIGNAL), 5);
	usleep(CONTROL_PATIENCE_NS / NS_PER_US + 300000);
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
 * Somebody takes a long answer and never stops, somebody else asks, and something more urgent comes
 * up.
 */
START_TEST(between_two_pieces_others_have_their_turn)
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

	/* Who asks in the middle is answered in the middle. */
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

START_TEST(what_is_not_taken_is_not_made)
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

START_TEST(whoever_is_in_the_middle_when_it_stops_is_let_go)
{
	int fd = call();

	answer_bytes = 20u << 20;
	say(fd, "status\n");
	control_free(control);
	control = NULL;
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

	control_free(control);
	ck_assert_int_lt(access(path, F_OK), 0);
	dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(dead, (struct sockaddr *)&address, sizeof(address)), 0);
	close(dead);
	control = NULL;
	ck_assert_int_eq(try_control(), 0);

	int fd = call();

	say(fd, "status\n");
	hears(fd, "status");
}
END_TEST

START_TEST(what_is_in_use_or_is_no_socket_is_left_alone)
{
	struct control *first = control;

	control = NULL;
	ck_assert_int_eq(try_control(), -EADDRINUSE);
	ck_assert_int_eq(access(path, F_OK), 0);
	control_free(first);

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

/* Asks the daemon; NULL: nobody answers. */
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
	control_free(control);
	control = NULL;
	if (!program_find("spikewatchd", spikewatchd))
		return;

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

START_TEST(a_daemon_without_a_socket_works_all_the_same)
{
	control_free(control);
	control = NULL;
	if (!program_find("spikewatchd", spikewatchd))
		return;

	scene_write(path, "in the way");
	struct program program = start_daemon();

	scene_wait_for(scene_says(program.err, "watching 1 targets"));
	program_said(directory, "no control socket at");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert(scene_says(path, "in the way"));
}
END_TEST

Suite *control_suite(void)
{
	Suite *suite = suite_create("control");
	TCase *clients = tcase_create("clients"), *sockets = tcase_create("sockets");

	tcase_add_checked_fixture(clients, setup, teardown);
	tcase_set_timeout(clients, 30);
	tcase_add_test(clients, a_line_is_answered_and_the_connection_ends);
	tcase_add_test(clients, a_line_may_come_in_pieces);
	tcase_add_test(clients, a_line_that_is_too_long_ends_the_connection);
	tcase_add_test(clients, a_line_with_a_nul_ends_the_connection);
	tcase_add_test(clients, whoever_leaves_early_leaves_no_trace);
	tcase_add_test(clients, whoever_leaves_before_the_answer_is_taken_leaves_no_trace);
	tcase_add_test(clients, the_seventeenth_is_hung_up_on);
	tcase_add_test(clients, whoever_says_nothing_is_dropped_in_time);
	tcase_add_test(clients, whoever_takes_a_long_answer_slowly_gets_it_whole);
	tcase_add_test(clients, whoever_has_asked_is_answered_however_late);
	tcase_add_test(clients, a_large_answer_arrives_whole);
	tcase_add_test(clients, between_two_pieces_others_have_their_turn);
	tcase_add_test(clients, what_is_not_taken_is_not_made);
	tcase_add_test(clients, a_piece_that_fails_ends_the_connection);
	tcase_add_test(clients, whoever_is_in_the_middle_when_it_stops_is_let_go);
	tcase_add_test(clients, a_request_that_fails_ends_the_connection);
	suite_add_tcase(suite, clients);
	tcase_add_checked_fixture(sockets, setup, teardown);
	tcase_set_timeout(sockets, 30);
	tcase_add_test(sockets, a_socket_that_was_left_behind_is_replaced);
	tcase_add_test(sockets, what_is_in_use_or_is_no_socket_is_left_alone);
	tcase_add_test(sockets, the_daemon_says_how_it_is);
	tcase_add_test(sockets, a_daemon_without_a_socket_works_all_the_same);
	suite_add_tcase(suite, sockets);

	return suite;
}
