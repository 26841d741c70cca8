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
 * Every descriptor is non-blocking, and each event does one bounded piece of work. All of it has
 * the lowest priority in the loop: the rules come first, whoever asks and however often. A flood of
 * connections, and an accept(2) that fails for want of descriptors while the connection stays in
 * the queue, are both bounded by the rate limit of the listening socket.
 *
 * Rejected: a thread for the clients. What they ask for belongs to the main thread, and would need
 * a lock in it.
 */
#include "daemon/service/control.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/service/health/overview.h"
#include "daemon/service/metrics/exposition.h"
#include "daemon/service/metrics/metrics_server.h"
#include "daemon/service/status/status_document.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/config/config.h"
#include "lib/config/config_change.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/pacing.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"
#include "lib/source/source.h"

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

/* A piece of an answer; of each client one is kept until it was taken. */
#define CONTROL_PIECE_MAX (2u << 20)

/*
 * For taking each piece of the answer: a machine in distress is when it is asked for. What is kept
 * for so long is a place and a piece.
 */
#define CONTROL_PIECE_PATIENCE_NS (5 * NS_PER_S)

/* Room for what it has to say. */
#define RELOAD_MESSAGE_MAX CONFIG_FILE_MESSAGE_MAX

static void reporter_reload(struct reporter *reporter, const struct config_metrics *metrics);

/*
 * handed_fds.c: the environment is asked once, because it must be unset for programs that are
 * started later, and the answer then is a value that several modules can take from in any order.
 *
 * Rejected: names of descriptors ($LISTEN_FDNAMES). They are right only if somebody wrote
 * FileDescriptorName= into the unit, while the kernel always knows what a socket is.
 */

/* The place for this descriptor; NULL: none. */
static int *place_of(struct handed_fds *handed, int fd)
{
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0)
		return &handed->control;
	if (sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) > 0)
		return &handed->metrics;

	return NULL;
}

int handed_fds_take(struct handed_fds *ret)
{
	int count = sd_listen_fds(1); /* sets close-on-exec */

	*ret = (struct handed_fds){ 0 };
	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
		int *place = place_of(ret, fd);

		if (!place || *place > 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) {
			close(fd);
			ret->unknown++;
			continue;
		}
		*place = fd;
	}

	return count < 0 ? count : 0;
}

void handed_fds_release(struct handed_fds *handed)
{
	if (handed->control > 0)
		close(handed->control);
	if (handed->metrics > 0)
		close(handed->metrics);
	*handed = (struct handed_fds){ .unknown = handed->unknown };
}

/* requests.c: a word and what follows it; a table says who answers the word. */

/* Names that are suggested when one means several targets. */
#define SUGGESTED 3

struct request {
	const char *word;
	int (*answer)(const struct requests *requests, const char *argument, struct buffer *ret,
		      struct control_rest *rest);
};

static void put_error(struct json_writer *json, const char *error)
{
	json_member_text(json, "error", error);
}

/* Begins the one object that an answer is. NULL: no memory. */
static struct json_writer *begin(struct buffer *ret)
{
	struct json_writer *json;

	if (json_writer_new(sink_buffer(ret), false, &json) < 0)
		return NULL;
	json_begin_object(json);

	return json;
}

static int end(struct json_writer *json)
{
	json_end_object(json);

	return json_writer_close(json);
}

/* line: what was asked, or NULL. */
static int requests_refuse(const char *error, const char *line, struct buffer *ret)
{
	struct json_writer *json = begin(ret);

	if (!json)
		return -ENOMEM;

	put_error(json, error);
	if (line)
		json_member_text(json, "request", line);

	return end(json);
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

static int answer_status(const struct requests *requests, const char *argument, struct buffer *ret,
			 struct control_rest *rest)
{
	struct status_answer_options options = { .overview = requests->overview,
						 .ctx = requests->ctx,
						 .clock = real_clock() };
	struct status_answer *answer;
	int r = status_answer_new(&options, argument, &answer);

	if (r == -EINVAL || r == -E2BIG)
		return requests_refuse(
			"status takes the words brief, nearest=N (1 to 1000), target=GLOB, rule=GLOB, name=GLOB; "
			"%20 is a blank in a glob",
			argument, ret);
	if (r < 0)
		return r;

	*rest = (struct control_rest){ .more = more_status, .end = end_status, .ctx = answer };

	return 0;
}

/* ---- reload ---- */

static int answer_reload(const struct requests *requests, const char *argument, struct buffer *ret,
			 struct control_rest *rest)
{
	char message[REQUESTS_MESSAGE_MAX] = "";
	struct json_writer *json;
	bool done;

	(void)rest;
	if (*argument)
		return requests_refuse("reload takes no argument", NULL, ret);

	done = requests->reload(requests->ctx, message) == 0;
	json = begin(ret);
	if (!json)
		return -ENOMEM;
	if (!done)
		put_error(json, message);
	json_key(json, "reload");
	json_begin_object(json);
	json_key(json, "done");
	json_bool(json, done);
	json_member_text(json, "message", message);
	json_end_object(json);

	return end(json);
}

/* ---- trigger ---- */

/*
 * The search for what a name means: a target of that name, else the only target of an entry of that
 * name.
 */
struct search {
	const char *name;
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t encoded_len, matches;
	bool exact;
	char suggestions[256];
};

static void keep(struct search *search, const struct target *target)
{
	search->encoded_len = target_encode(target, search->encoded, sizeof search->encoded);
}

static void suggest(struct search *search, const char *name)
{
	size_t len = strlen(search->suggestions);

	snprintf(search->suggestions + len, sizeof search->suggestions - len, "%s%s", len ? ", " : "", name);
}

static int look_at(void *ctx, const struct evaluator_sight *sight)
{
	struct search *search = ctx;
	const struct target *target = sight->target;

	if (strcmp(target->name, search->name) == 0) {
		search->exact = true;
		search->matches = 1;
		keep(search, target);
		return 1;
	}
	if (strcmp(target->entry, search->name) != 0)
		return 0;

	if (search->matches++ == 0)
		keep(search, target);
	if (search->matches <= SUGGESTED)
		suggest(search, target->name);

	return 0;
}

static const char *answer_name(enum incidents_answer answer)
{
	static const char *const names[] = {
		[INCIDENTS_OPENED] = "opened",
		[INCIDENTS_MERGED] = "merged",
		[INCIDENTS_REFUSED] = "refused",
	};

	return names[answer];
}

static int put_ticket(const struct incidents_ticket *ticket, struct buffer *ret)
{
	struct json_writer *json = begin(ret);
	char error[256];

	if (!json)
		return -ENOMEM;

	if (ticket->answer == INCIDENTS_REFUSED) {
		snprintf(error, sizeof error, "no incident was opened: %s", ticket->why);
		put_error(json, error);
	}
	json_key(json, "trigger");
	json_begin_object(json);
	json_member_text(json, "answer", answer_name(ticket->answer));
	json_member_text(json, "why", ticket->why);
	json_member_text(json, "directory", ticket->directory);
	json_member_text(json, "stem", ticket->stem);
	json_key(json, "sealed_in_ns");
	json_u64(json, ticket->sealed_in_ns);
	json_end_object(json);

	return end(json);
}

/* 1: *ret is the target that name means; 0: error (cap bytes) says why there is none. */
static bool find_target(const struct requests *requests, struct search *search, char *error, size_t cap)
{
	struct overview overview;

	requests->overview(requests->ctx, &overview);
	evaluator_visit_targets(overview.evaluator, look_at, search);
	if (search->matches == 1)
		return true;

	if (search->matches == 0)
		snprintf(error, cap, "no target and no entry is called %.64s; spikewatch status shows their names",
			 search->name);
	else
		snprintf(error, cap,
			 "%.64s means %zu targets (%s ...): name one of them, or none for an incident of all",
			 search->name, search->matches, search->suggestions);

	return false;
}

static int answer_trigger(const struct requests *requests, const char *argument, struct buffer *ret,
			  struct control_rest *rest)
{
	struct incidents_ticket ticket;
	struct target target;
	char error[512];
	int r;

	(void)rest;
	if (!*argument) {
		r = requests->trigger(requests->ctx, NULL, &ticket);
		return r < 0 ? r : put_ticket(&ticket, ret);
	}

	struct search search = { .name = argument };

	if (!find_target(requests, &search, error, sizeof error))
		return requests_refuse(error, NULL, ret);

	r = target_decode(search.encoded, search.encoded_len, &target);
	if (r == 0)
		r = requests->trigger(requests->ctx, &target, &ticket);

	return r < 0 ? r : put_ticket(&ticket, ret);
}

/* ---- all of them ---- */

static const struct request table[] = {
	{ "status", answer_status },
	{ "trigger", answer_trigger },
	{ "reload", answer_reload },
};

int requests_answer(const struct requests *requests, const char *line, struct buffer *ret, struct control_rest *rest)
{
	size_t len = strcspn(line, " ");
	const char *argument = line + len + strspn(line + len, " ");

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strlen(table[i].word) == len && memcmp(table[i].word, line, len) == 0)
			return table[i].answer(requests, argument, ret, rest);

	return requests_refuse("this daemon knows no such request; it knows: status [WORDS], trigger [TARGET], reload",
			       line, ret);
}

/* reload.c: what may fail comes first, and leaves no trace. */

static int refuse(const char *message, int error)
{
	log_about(LOG_ERR, &(struct log_about){ .message = MESSAGE_RELOAD_REFUSED, .error = error },
		  "reload refused, the old configuration stays in force: %s", message);

	return error;
}

__attribute__((format(printf, 2, 3))) static void append(char *message, const char *format, ...)
{
	size_t len = strlen(message);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message + len, RELOAD_MESSAGE_MAX - len, format, arguments);
	va_end(arguments);
}

/* "targets: 2 added, 1 removed"; nothing if nothing has changed. */
static void say_section(char *message, const char *section, size_t added, size_t removed, size_t changed)
{
	if (added + removed + changed == 0)
		return;

	append(message, "%s%s:", *message ? "; " : "", section);
	if (added)
		append(message, " %zu added%s", added, removed + changed ? "," : "");
	if (removed)
		append(message, " %zu removed%s", removed, changed ? "," : "");
	if (changed)
		append(message, " %zu changed", changed);
}

static void say_changes(const struct config *old, const struct config *next, char *message)
{
	struct config_change_counts counts;

	message[0] = '\0';
	config_change_count(old, next, &counts);
	say_section(message, "targets", counts.targets_added, counts.targets_removed, counts.targets_changed);
	say_section(message, "rules", counts.rules_added, counts.rules_removed, counts.rules_changed);
	if (config_change_sections(old, next))
		append(message, "%sother options changed", *message ? "; " : "");
	if (!*message)
		append(message, "nothing has changed");
}

/* 0; -errno: nothing has changed. */
static int swap(const struct reload *reload, const struct config *config)
{
	AUTO(evaluator_reload_dropp) struct evaluator_reload *rules = NULL;
	AUTO(rule_counts_freep) struct rule_counts *rule_counts = NULL;
	int r = evaluator_reload_prepare(reload->evaluator, config, &rules);

	if (r == 0)
		r = rule_counts_new(config, *reload->rule_counts, &rule_counts);
	if (r == 0)
		r = session_reload(reload->session, config);
	if (r < 0)
		return r;

	evaluator_reload_commit(TAKE(rules));
	incidents_reload(reload->incidents, config);
	reporter_reload(reload->reporter, &config->metrics);
	rule_counts_free(*reload->rule_counts);
	*reload->rule_counts = TAKE(rule_counts);

	return 0;
}

int reload_run(const struct reload *reload, char *message)
{
	AUTO(config_freep) struct config *config = NULL;
	struct config_error error;
	int r = config_file_load(reload->file, &config, message);

	if (r < 0)
		return refuse(message, r);

	r = config_change_reloadable(*reload->config, config, &error);
	if (r < 0) {
		config_error_format(&error, message, RELOAD_MESSAGE_MAX);
		return refuse(message, r);
	}

	r = swap(reload, config);
	if (r < 0) {
		snprintf(message, RELOAD_MESSAGE_MAX, "%s", strerror(-r));
		return refuse(message, r);
	}

	say_changes(*reload->config, config, message);
	config_free(*reload->config);
	*reload->config = TAKE(config);
	log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_RELOADED }, "reloaded: %s", message);

	return 0;
}

/*
 * reporter.c: one overview, three readers. A socket of systemd's is kept over reloads: it cannot be
 * had twice.
 */

/* Longer than any address that listen_address.h takes, and any path. */
#define LISTEN_MAX 96
#define PATH_MAX_BYTES 4096

/*
 * When the file with the metrics is written does not matter: the machine may sleep a little longer.
 */
#define METRICS_FILE_ACCURACY_US 100000

struct reporter {
	struct reporter_options options;
	struct handed_fds handed; /* what is still in it is nobody's yet */
	struct control *control;
	struct exposition *exposition;
	struct metrics *metrics;
	bool metrics_handed;     /* the metrics' socket is systemd's */
	char listen[LISTEN_MAX]; /* of the metrics; "": none */
	struct metrics_file *metrics_file;
	sd_event_source *metrics_file_timer;
	char metrics_file_path[PATH_MAX_BYTES]; /* "": none */
	uint64_t metrics_file_interval_ns;
	bool metrics_file_failing;
};

static int on_request(void *ctx, const char *line, struct buffer *ret, struct control_rest *rest)
{
	struct reporter *reporter = ctx;

	return requests_answer(&reporter->options.requests, line, ret, rest);
}

static int on_scrape(void *ctx, enum openmetrics_form form, struct buffer *ret)
{
	struct reporter *reporter = ctx;
	const struct requests *requests = &reporter->options.requests;
	struct overview overview;

	requests->overview(requests->ctx, &overview);

	return exposition_write(reporter->exposition, &overview, form, ret);
}

static void start_control(struct reporter *reporter)
{
	struct control_options options = {
		.event = reporter->options.event,
		.path = reporter->options.control,
		.handed = reporter->handed.control,
		.answer = on_request,
		.ctx = reporter,
	};

	reporter->handed.control = 0;

	int r = control_new(&options, &reporter->control);

	if (r < 0)
		log_line(LOG_WARNING, "no control socket at %s: %s. spikewatch status will not reach this daemon.",
			 reporter->options.control, strerror(-r));
}

static void start_metrics(struct reporter *reporter, const struct config_metrics *config)
{
	struct metrics_options options = {
		.event = reporter->options.event,
		.listen = config->listen,
		.handed = reporter->handed.metrics,
		.render = on_scrape,
		.ctx = reporter,
	};
	int r;

	if (!*config->listen && options.handed == 0)
		return;

	reporter->metrics_handed = options.handed != 0;
	reporter->handed.metrics = 0;
	snprintf(reporter->listen, sizeof reporter->listen, "%s", config->listen);
	r = metrics_new(&options, &reporter->metrics);
	if (r < 0)
		log_line(LOG_WARNING, "no metrics at %s: %s",
			 reporter->metrics_handed ? "the socket of systemd" : config->listen,
			 r == -ELIBACC ? "libmicrohttpd is not installed" : strerror(-r));
}

/* ---- the file ---- */

static void say_metrics_file(struct reporter *reporter, int error)
{
	bool before = reporter->metrics_file_failing;

	reporter->metrics_file_failing = error < 0;
	if (error < 0 && !before)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_NONE, .error = error },
			  "cannot write the metrics to %s: %s", reporter->metrics_file_path, strerror(-error));
	else if (error == 0 && before)
		log_line(LOG_NOTICE, "the metrics are written to %s again", reporter->metrics_file_path);
}

static int on_metrics_file(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct reporter *reporter = userdata;
	AUTO(buffer_release) struct buffer page = { .max = METRICS_PAGE_MAX };
	int r = on_scrape(reporter, OPENMETRICS_0_0_4, &page);

	(void)usec;
	if (r == 0)
		r = metrics_file_put(reporter->metrics_file, &page);
	if (r != METRICS_FILE_BUSY)
		say_metrics_file(reporter, r);
	sd_event_source_set_time_relative(source, reporter->metrics_file_interval_ns / NS_PER_US);

	return 0;
}

static int add_metrics_file_timer(struct reporter *reporter)
{
	int r = sd_event_add_time_relative(reporter->options.event, &reporter->metrics_file_timer, CLOCK_MONOTONIC, 0,
					   METRICS_FILE_ACCURACY_US, on_metrics_file, reporter);

	if (r >= 0)
		r = sd_event_source_set_enabled(reporter->metrics_file_timer, SD_EVENT_ON);

	return r < 0 ? r : sd_event_source_set_priority(reporter->metrics_file_timer, SD_EVENT_PRIORITY_IDLE);
}

static void stop_metrics_file(struct reporter *reporter)
{
	reporter->metrics_file_timer = sd_event_source_disable_unref(reporter->metrics_file_timer);
	metrics_file_free(reporter->metrics_file);
	reporter->metrics_file = NULL;
	reporter->metrics_file_path[0] = '\0';
	reporter->metrics_file_failing = false;
}

static void start_metrics_file(struct reporter *reporter, const struct config_metrics *config)
{
	int r;

	if (!*config->metrics_file)
		return;

	snprintf(reporter->metrics_file_path, sizeof reporter->metrics_file_path, "%s", config->metrics_file);
	reporter->metrics_file_interval_ns = config->metrics_file_interval_ns;
	r = metrics_file_new(config->metrics_file, &reporter->metrics_file);
	if (r == 0)
		r = add_metrics_file_timer(reporter);
	if (r < 0) {
		say_metrics_file(reporter, r);
		stop_metrics_file(reporter);
	}
}

/* ---- the whole ---- */

int reporter_new(struct reporter **ret)
{
	struct clock clock = real_clock();
	struct reporter *reporter = calloc(1, sizeof *reporter);

	if (!reporter)
		return -ENOMEM;
	if (exposition_new(clock_wall(&clock), &reporter->exposition) < 0) {
		free(reporter);
		return -ENOMEM;
	}

	handed_fds_take(&reporter->handed);
	*ret = reporter;

	return 0;
}

void reporter_start(struct reporter *reporter, const struct reporter_options *options)
{
	reporter->options = *options;
	start_control(reporter);
	start_metrics(reporter, options->metrics);
	start_metrics_file(reporter, options->metrics);
}

static void reload_metrics(struct reporter *reporter, const struct config_metrics *metrics)
{
	if (reporter->metrics_handed || (reporter->metrics && strcmp(reporter->listen, metrics->listen) == 0))
		return;

	metrics_free(reporter->metrics);
	reporter->metrics = NULL;
	reporter->listen[0] = '\0';
	start_metrics(reporter, metrics);
}

/* From now on, and not from when the old interval is over. */
static void set_metrics_file_interval(struct reporter *reporter, uint64_t interval_ns)
{
	if (reporter->metrics_file_timer && reporter->metrics_file_interval_ns != interval_ns)
		sd_event_source_set_time_relative(reporter->metrics_file_timer, interval_ns / NS_PER_US);
	reporter->metrics_file_interval_ns = interval_ns;
}

static void reload_metrics_file(struct reporter *reporter, const struct config_metrics *metrics)
{
	if (strcmp(reporter->metrics_file_path, metrics->metrics_file) == 0) {
		set_metrics_file_interval(reporter, metrics->metrics_file_interval_ns);
		return;
	}

	stop_metrics_file(reporter);
	start_metrics_file(reporter, metrics);
}

/*
 * Another configuration of the metrics: what changed is taken down and set up again. Nothing refers
 * to the old one afterwards.
 */
static void reporter_reload(struct reporter *reporter, const struct config_metrics *metrics)
{
	reload_metrics(reporter, metrics);
	reload_metrics_file(reporter, metrics);
}

void reporter_free(struct reporter *reporter)
{
	if (!reporter)
		return;

	control_free(reporter->control);
	metrics_free(reporter->metrics);
	stop_metrics_file(reporter);
	exposition_free(reporter->exposition);
	handed_fds_release(&reporter->handed);
	free(reporter);
}

/* A person, or a dashboard, asks once in a while. */
#define CONNECTIONS_PER_S 100

/* How late a client may be dropped. */
#define PATIENCE_GRAIN_US 100000

/*
 * After something that took long all clients are out of time at once: what they have sent, and can
 * take, comes first.
 */
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

/*
 * The piece was taken. 0: here is another one, or it comes with the next event; negative: drop it,
 * also when there is none.
 */
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
