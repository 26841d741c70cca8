/*
 * notify.c: one thread in a poll(2) over what is being sent: children (children.h) that read a text
 * from their standard input and have done it when they exit with 0.
 *
 * A delivery is one incident told by one entry. Its text and words are made when it is queued, so
 * neither a reload nor the removal of the incident matters to it. It belongs to the thread once it
 * is queued; the queue of new ones and what is counted of each entry are under one lock, which is
 * not held over anything that can wait.
 *
 * The text goes into a pipe that has room for all of it before the child runs: a child that does
 * not read holds nothing up. A child that is killed and does not end keeps its entry busy, so there
 * are never more children than entries.
 *
 * The shipped service has no network and cannot run set-uid programs, as mail needs them. There the
 * text goes to a socket of systemd, which starts a helper that has what it needs and nothing else
 * (spikewatch-webhook@.service), and which answers "ok" at the end. Rejected: a directory of files
 * and a path unit, which cannot tell the daemon what became of one; the network for the daemon,
 * which can read all of the machine.
 */
#include "daemon/engine/incident/notify.h"

#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PATH_VALUE "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Of a text and of the words of a command; below what a pipe holds (pipe(7): 64 KiB). */
#define INPUT_MAX 32768u
#define WORDS_MAX 32768u

/* As those of the commands of incidents (hooks.c). */
#define FILES_MAX 1024
#define FILE_BYTES_MAX (16u << 20)
#define ADDRESS_SPACE_MAX ((uint64_t)16 << 30)

#define BACKOFF 4
#define PAUSE_MAX_NS (600 * NS_PER_S)

#define HOUR_NS (3600 * NS_PER_S)
#define FAILURE_LOG_NS (60 * NS_PER_S)

/* Of those that are not sent because the daemon stops, so many are named; the rest is counted. */
#define UNSENT_NAMED_MAX 16u

/* Names of entries that were in use since the daemon was started. */
#define WAYS_MAX (2 * CONFIG_NOTIFIES_MAX)

struct notify_way {
	const char *name, *socket, *input;
	const char **words;
	size_t word_count;
	uint64_t timeout_ns, retry_ns;
	uint32_t tries, max_per_hour;
	bool privileged;
};

struct notify_plan {
	size_t count;
	struct notify_way ways[CONFIG_NOTIFIES_MAX];
	/* What they point to follows. */
};

/* What is kept of an entry: under the lock. */
struct way_state {
	char name[65];
	struct notify_counts counts;
	uint64_t untold; /* limited or dropped since the last one that was queued */
	mono_t hour;
	uint32_t in_hour;
	uint64_t unlogged;
	bool logged_failing;
	mono_t logged;
};

enum delivery_phase { DELIVERY_WAITS, DELIVERY_RUNS, DELIVERY_KILLED };

struct delivery {
	struct delivery *next;
	struct way_state *state;
	char *socket; /* NULL: words */
	char **words;
	char *input;
	char *incident; /* its id */
	uint64_t timeout_ns, retry_ns;
	uint32_t tries, tried;
	bool privileged;
	/* The thread's. */
	enum delivery_phase phase;
	mono_t due; /* WAITS: of the next try; RUNS: its timeout */
	struct child child;
	int out;
	char said[160]; /* the first line of its output */
	size_t said_len;
};

struct notifier {
	struct clock clock;
	int wake;
	pthread_t thread;
	bool running; /* the thread */
	pthread_mutex_t lock;
	/* Under the lock. */
	struct way_state ways[WAYS_MAX];
	size_t pending;
	struct delivery *added, **added_end;
	mono_t stop_by; /* 0: it goes on */
	/* The thread's. */
	struct delivery *deliveries; /* in the order in which they came */
	size_t unsent;               /* given up because the daemon stops */
};

/* ---- the plan ---- */

static bool is_wanted_by(const struct config *config, const struct config_notify *notify, const char *name)
{
	const struct config_rule *rule = NULL;

	for (size_t i = 0; i < config->rule_count && !rule; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			rule = &config->rules[i];
	if (!rule || !rule->has_notify)
		return notify->by_default;

	for (size_t i = 0; i < rule->notify_count; i++)
		if (strcmp(rule->notify[i], notify->name) == 0)
			return true;

	return false;
}

static bool is_wanted(const struct config *config, const struct config_notify *notify, const struct incident *incident)
{
	bool wanted = incident->kind != INCIDENT_MANUAL && is_wanted_by(config, notify, incident->rule.name);

	for (size_t i = 0; i < incident->merged_count && !wanted; i++)
		wanted = incident->merged[i].kind == INCIDENT_RULE &&
			 is_wanted_by(config, notify, incident->merged[i].rule);

	return wanted;
}

/* Copies text to *at, which it advances. */
static const char *pack(char **at, const char *text)
{
	const char *copy = *at;

	*at = stpcpy(*at, text) + 1;

	return copy;
}

static struct notify_way pack_way(const struct config_notify *notify, const char ***words, char **at)
{
	struct notify_way way = {
		.name = pack(at, notify->name),
		.socket = notify->words ? NULL : pack(at, notify->socket),
		.input = pack(at, notify->input),
		.words = *words,
		.word_count = notify->word_count,
		.timeout_ns = notify->timeout_ns,
		.retry_ns = notify->retry_ns,
		.tries = notify->tries,
		.max_per_hour = notify->max_per_hour,
		.privileged = notify->privileged,
	};

	for (size_t i = 0; i < notify->word_count; i++)
		*(*words)++ = pack(at, notify->words[i]);

	return way;
}

int notify_plan_new(const struct config *config, const struct incident *incident, struct notify_plan **ret)
{
	const struct config_notify *wanted[CONFIG_NOTIFIES_MAX];
	size_t count = 0, words = 0, bytes = 0;
	struct notify_plan *plan;

	for (size_t i = 0; i < config->notify_count; i++) {
		const struct config_notify *notify = &config->notifies[i];

		if (!is_wanted(config, notify, incident))
			continue;
		wanted[count++] = notify;
		words += notify->word_count;
		bytes += strlen(notify->name) + strlen(notify->socket) + strlen(notify->input) + 3;
		for (size_t k = 0; k < notify->word_count; k++)
			bytes += strlen(notify->words[k]) + 1;
	}
	*ret = NULL;
	if (count == 0)
		return 0;
	plan = calloc(1, sizeof *plan + words * sizeof(char *) + bytes);
	if (!plan)
		return -ENOMEM;

	const char **word = (const char **)(void *)(plan + 1);
	char *at = (char *)(word + words);

	for (size_t i = 0; i < count; i++)
		plan->ways[plan->count++] = pack_way(wanted[i], &word, &at);
	*ret = plan;

	return 0;
}

/* ---- what is said ---- */

#define HEADLINE_MAX 512

struct notify_texts {
	char host[COMMAND_TEMPLATE_SAFE_MAX], rule[COMMAND_TEMPLATE_SAFE_MAX], target[COMMAND_TEMPLATE_SAFE_MAX];
	char pid[16], value[UNITS_TEXT_MAX], threshold[UNITS_TEXT_MAX], time[40], headline[HEADLINE_MAX];
	double threshold_value; /* NAN: there is none */
};

/* "2026-11-20T03:15:02.123Z" */
static void format_time(wall_t wall, char ret[40])
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);
	struct tm parts;
	size_t len = gmtime_r(&seconds, &parts) ? strftime(ret, 32, "%Y-%m-%dT%H:%M:%S", &parts) : 0;

	snprintf(ret + len, 40 - len, ".%03uZ", (unsigned)(wall.ns / NS_PER_MS % 1000));
}

__attribute__((format(printf, 2, 3))) static void say(struct notify_texts *texts, const char *format, ...)
{
	size_t len = strlen(texts->headline);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(texts->headline + len, sizeof texts->headline - len, format, arguments);
	va_end(arguments);
}

/* "db1: postgres 4242: cpu 153% of a core, above 80% (rule hot)"; names of the target end within half of it. */
static void put_headline(const struct incident *incident, const char *directory, struct notify_texts *texts)
{
	const struct incident_rule *rule = &incident->rule;
	char name[HEADLINE_MAX / 2];

	text_escape(name, sizeof name, incident->target.name, strlen(incident->target.name));
	say(texts, "%s: ", texts->host);
	if (incident->kind == INCIDENT_STORM)
		say(texts, "storm: %llu firings opened no incident of their own",
		    (unsigned long long)incident->merged_total);
	else
		say(texts, "%s", name);
	if (*texts->value)
		say(texts, ": %s %s%s", rule->metric, texts->value,
		    strcmp(rule->of, "core") == 0      ? " of a core"
		    : strcmp(rule->of, "machine") == 0 ? " of the machine"
		    : strcmp(rule->of, "limit") == 0   ? " of its limit"
						       : "");
	if (*texts->threshold)
		say(texts, ", above %s", texts->threshold);
	if (incident->kind != INCIDENT_STORM)
		say(texts, " (rule %s)", texts->rule);
	if (!directory)
		say(texts, "; the incident could not be written");
}

static void put_texts(const struct incident *incident, const char *directory, struct notify_texts *ret)
{
	const struct incident_rule *rule = &incident->rule;
	enum unit_kind unit = units_by_name(rule->unit);

	*ret = (struct notify_texts){ .threshold_value = NAN };
	command_template_safe(*incident->hostname ? incident->hostname : "localhost", ret->host);
	command_template_safe(rule->name, ret->rule);
	command_template_safe(incident->target.name, ret->target);
	if (incident->target.pid > 0)
		snprintf(ret->pid, sizeof ret->pid, "%d", incident->target.pid);
	if (rule->has_value)
		units_format(ret->value, sizeof ret->value, unit, rule->value, UNITS_READING);
	/* Severity is the value in parts of the threshold. Rules that fire below one are trap's alone. */
	if (rule->has_value && rule->severity > 0) {
		ret->threshold_value = rule->value / rule->severity;
		units_format(ret->threshold, sizeof ret->threshold, unit, ret->threshold_value, UNITS_READING);
	}
	format_time(incident->wall, ret->time);
	put_headline(incident, directory, ret);
}

static void member_or_null(struct json_writer *json, const char *key, const char *text)
{
	if (text && *text)
		json_member_text(json, key, text);
	else
		json_member_null(json, key);
}

/* Keys are added, never changed: docs/notify.md. */
static int put_json(const struct incident *incident, const struct notify_texts *texts, const char *directory,
		    uint64_t untold, struct buffer *ret)
{
	const struct incident_rule *rule = &incident->rule;
	struct json_writer *json;
	int r = json_writer_new(sink_buffer(ret), false, &json);

	if (r < 0)
		return r;
	json_begin_object(json);
	json_member_u64(json, "format", 1);
	json_member_text(json, "host", texts->host);
	json_member_text(json, "kind", incident_kind_name(incident->kind));
	json_member_text(json, "rule", rule->name);
	json_member_text(json, "target", incident->target.name);
	json_key(json, "pid");
	if (incident->target.pid > 0)
		json_i64(json, incident->target.pid);
	else
		json_null(json);
	member_or_null(json, "metric", rule->metric);
	member_or_null(json, "unit", rule->unit);
	json_member_double(json, "value", rule->has_value ? rule->value : NAN);
	json_member_double(json, "threshold", texts->threshold_value);
	json_member_text(json, "time", texts->time);
	member_or_null(json, "incident", directory ? incident->id : NULL);
	member_or_null(json, "directory", directory);
	json_member_u64(json, "merged", incident->merged_total);
	json_member_u64(json, "left_out", untold);
	json_member_text(json, "headline", texts->headline);
	json_end_object(json);
	r = json_writer_close(json);
	while (r == 0 && ret->len > 0 && ret->data[ret->len - 1] == '\n')
		ret->len--;

	return r < 0 ? r : buffer_append(ret, "", 1);
}

/* One allocation for free(3), NULL at the end. NULL: no memory, or too long. */
static char **expand_words(const struct notify_way *way, const struct command_template_values *values)
{
	size_t bytes = 0;
	char **words, *at;

	for (size_t i = 0; i < way->word_count; i++)
		bytes += command_template_expand(way->words[i], values, NULL, 0) + 1;
	words = bytes > WORDS_MAX ? NULL : calloc(1, (way->word_count + 1) * sizeof *words + bytes);
	if (!words)
		return NULL;

	at = (char *)(words + way->word_count + 1);
	for (size_t i = 0; i < way->word_count; i++) {
		words[i] = at;
		at += command_template_expand(way->words[i], values, at, bytes) + 1;
	}

	return words;
}

static void delivery_free(struct delivery *delivery)
{
	free(delivery->socket);
	free(delivery->words);
	free(delivery->input);
	free(delivery->incident);
	free(delivery);
}

/* incident: its id. NULL: no memory, or too long. */
static struct delivery *delivery_new(const struct notify_way *way, const struct command_template_values *values,
				     const char *incident)
{
	struct delivery *delivery = calloc(1, sizeof *delivery);
	size_t len = command_template_expand(way->input, values, NULL, 0) + 1;

	if (!delivery)
		return NULL;

	*delivery = (struct delivery){
		.socket = way->socket ? strdup(way->socket) : NULL,
		.words = way->socket ? NULL : expand_words(way, values),
		.input = len <= INPUT_MAX ? malloc(len) : NULL,
		.incident = strdup(incident),
		.timeout_ns = way->timeout_ns,
		.retry_ns = way->retry_ns,
		.tries = way->tries,
		.privileged = way->privileged,
		.child = { .fd = -1 },
		.out = -1,
	};
	if ((!delivery->socket && !delivery->words) || !delivery->input || !delivery->incident) {
		delivery_free(delivery);
		return NULL;
	}
	command_template_expand(way->input, values, delivery->input, len);

	return delivery;
}

/* ---- a try ---- */

/* In a child: hands the text to the helper, and prints what it answers unless that ends in "ok". */
static int relay(const void *argument, size_t len)
{
	const char *path = argument, *input = path + strlen(path) + 1;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char answer[512];
	ssize_t got = 0;
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r = 0;

	signal(SIGPIPE, SIG_IGN);
	memcpy(address.sun_path, path, strnlen(path, sizeof address.sun_path - 1));
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		r = -errno;
	if (r == 0)
		r = sink_write_all(fd, input, len - strlen(path) - 1);
	if (r == 0 && shutdown(fd, SHUT_WR) < 0)
		r = -errno;
	if (r == 0)
		got = fd_read_all(fd, answer, sizeof answer);
	if (r < 0 || got < 0) {
		dprintf(STDOUT_FILENO, "%s: %s\n", path, strerror(r < 0 ? -r : (int)-got));
		return 1;
	}
	while (got > 0 && answer[got - 1] == '\n')
		got--;
	if (got >= 2 && memcmp(answer + got - 2, "ok", 2) == 0 && (got == 2 || answer[got - 3] == '\n'))
		return 0;

	dprintf(STDOUT_FILENO, "%.*s\n", got > 0 ? (int)got : 30,
		got > 0 ? answer : "the helper did not answer \"ok\"");

	return 1;
}

/* What a program needs to reach the desktop, or a home directory, of the user whose daemon this is. */
static void take_environment(char *environment[8], char *room, size_t cap)
{
	static const char *const names[] = { "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
					     "WAYLAND_DISPLAY" };
	size_t count = 0;

	environment[count++] = room;
	room += snprintf(room, cap, "%s", PATH_VALUE) + 1;
	cap -= sizeof PATH_VALUE;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);
		size_t need = value ? strlen(names[i]) + strlen(value) + 2 : 0;

		if (!value || need > cap)
			continue;
		snprintf(room, cap, "%s=%s", names[i], value);
		environment[count++] = room;
		room += need;
		cap -= need;
	}
	environment[count] = NULL;
}

static int start_child(struct delivery *delivery, int in, int out)
{
	struct child_descriptor descriptors[] = { { in, STDIN_FILENO },
						  { out, STDOUT_FILENO },
						  { out, STDERR_FILENO } };
	char *environment[8], room[4096];
	AUTO(buffer_release) struct buffer argument = { 0 };
	struct child_options options = {
		.words = delivery->words,
		.environment = environment,
		.descriptors = descriptors,
		.descriptor_count = ARRAY_LEN(descriptors),
		.rights = delivery->privileged ? CHILD_CAPABILITIES : CHILD_NONE,
		.limits = { .file_bytes = FILE_BYTES_MAX, .files = FILES_MAX },
	};
	int r = 0;

	take_environment(environment, room, sizeof room);
	if (!delivery->privileged) {
		options.limits.address_space_bytes = ADDRESS_SPACE_MAX;
		options.limits.cpu_seconds = (unsigned)(delivery->timeout_ns / NS_PER_S + 1);
	}
	if (delivery->socket) {
		options.words = options.environment = NULL;
		r = buffer_append(&argument, delivery->socket, strlen(delivery->socket) + 1);
		if (r == 0)
			r = buffer_append(&argument, delivery->input, strlen(delivery->input));
		options.run = relay;
		options.argument = argument.data;
		options.argument_len = argument.len;
	}

	return r < 0 ? r : child_start(&options, &delivery->child);
}

/* 0; -errno: nothing runs. */
static int begin_try(struct delivery *delivery)
{
	AUTO_CLOSE int in = -1, in_end = -1, out_end = -1;
	int ends[2], r = 0;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	in = ends[0];
	in_end = ends[1];
	if (!delivery->socket)
		r = fcntl(in_end, F_SETFL, O_NONBLOCK) < 0
			    ? -errno
			    : sink_write_all(in_end, delivery->input, strlen(delivery->input));
	if (r < 0)
		return r;
	scope_close(&in_end);
	in_end = -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	delivery->out = ends[0];
	out_end = ends[1];

	return fcntl(delivery->out, F_SETFL, O_NONBLOCK) < 0 ? -errno : start_child(delivery, in, out_end);
}

/* Keeps the first line, reads the rest. */
static void read_output(struct delivery *delivery)
{
	char piece[4096];
	ssize_t len;

	while (delivery->out >= 0 && (len = read(delivery->out, piece, sizeof piece)) != 0) {
		size_t room = sizeof delivery->said - 1 - delivery->said_len;

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return;
		if ((size_t)len < room)
			room = (size_t)len;
		memcpy(delivery->said + delivery->said_len, piece, room);
		delivery->said_len += room;
	}
	scope_close(&delivery->out);
	delivery->out = -1;
}

/* ---- its end ---- */

static void log_failure(struct way_state *state, const char *why, uint32_t tries, mono_t now)
{
	struct log_about about = { .message = MESSAGE_NOTIFY_FAILED,
				   .state = state->logged_failing ? "change" : "begin",
				   .count = ++state->unlogged };

	if (state->logged_failing && mono_diff(now, state->logged) < (int64_t)FAILURE_LOG_NS)
		return;
	log_about(LOG_WARNING, &about, "notify: %s: given up after %u tries: %s", state->name, tries, why);
	state->logged_failing = true;
	state->logged = now;
	state->unlogged = 0;
}

/* What waits when the daemon stops is not kept: the incidents are there, and the journal says which. */
static void log_unsent(struct notifier *notifier, const struct delivery *delivery, const char *why)
{
	if (notifier->unsent++ < UNSENT_NAMED_MAX)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_NOTIFY_FAILED },
			  "notify: %s: %s was not sent, and will not be: %s", delivery->state->name, delivery->incident,
			  why);
}

/* Under the lock. */
static void note_end(struct notifier *notifier, struct delivery *delivery, bool sent, const char *why, bool over)
{
	struct way_state *state = delivery->state;
	struct notify_counts *counts = &state->counts;

	counts->failing = !sent;
	if (!sent)
		text_escape(counts->why, sizeof counts->why, why, strlen(why));
	counts->sent += sent;
	counts->failed += !sent && over;
	counts->pending -= over;
	notifier->pending -= over;
}

/* Of a try, or of a delivery that is not tried any more. True: it is over, and its state perhaps another's. */
static bool end_try(struct notifier *notifier, struct delivery *delivery, bool sent, const char *why, mono_t now)
{
	struct way_state *state = delivery->state;
	uint64_t pause_ns = delivery->retry_ns;
	bool stopping, over;

	scope_close(&delivery->out);
	delivery->out = -1;
	child_close(&delivery->child);
	delivery->child.fd = -1;
	delivery->phase = DELIVERY_WAITS;
	for (uint32_t i = 1; i < delivery->tried && pause_ns < PAUSE_MAX_NS; i++)
		pause_ns *= BACKOFF;
	delivery->due = mono_add(now, pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS);

	pthread_mutex_lock(&notifier->lock);
	stopping = notifier->stop_by.ns != 0;
	over = sent || stopping || delivery->tried >= delivery->tries;
	note_end(notifier, delivery, sent, why, over);
	if (sent && state->logged_failing) {
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_NOTIFY_FAILED, .state = "end" },
			  "notify: %s works again", state->name);
		state->logged_failing = false;
	} else if (!sent && over && stopping) {
		log_unsent(notifier, delivery, why);
	} else if (!sent && over) {
		log_failure(state, state->counts.why, delivery->tried, now);
	}
	pthread_mutex_unlock(&notifier->lock);

	return over;
}

/* The child has ended. */
static bool judge_try(struct notifier *notifier, struct delivery *delivery, const struct child_end *how, mono_t now)
{
	bool sent = how->code == CLD_EXITED && how->status == 0 && delivery->phase == DELIVERY_RUNS;
	char why[160];

	read_output(delivery);
	delivery->said[delivery->said_len] = '\0';
	delivery->said[strcspn(delivery->said, "\n")] = '\0';
	if (delivery->phase == DELIVERY_KILLED)
		snprintf(why, sizeof why, "took longer than %.3g s", (double)delivery->timeout_ns / NS_PER_S);
	else if (*delivery->said)
		snprintf(why, sizeof why, "%s", delivery->said);
	else if (how->code == CLD_EXITED)
		snprintf(why, sizeof why, "it exited with %d", how->status);
	else
		snprintf(why, sizeof why, "signal %d ended it", how->status);

	return end_try(notifier, delivery, sent, why, now);
}

static bool is_busy(const struct notifier *notifier, const struct way_state *state)
{
	for (const struct delivery *other = notifier->deliveries; other; other = other->next)
		if (other->state == state && other->phase != DELIVERY_WAITS)
			return true;

	return false;
}

static bool start_try(struct notifier *notifier, struct delivery *delivery, mono_t now)
{
	int r;

	if (delivery->tried++ > 0) {
		pthread_mutex_lock(&notifier->lock);
		delivery->state->counts.retried++;
		pthread_mutex_unlock(&notifier->lock);
	}
	delivery->said_len = 0;
	r = begin_try(delivery);
	if (r < 0)
		return end_try(notifier, delivery, false, strerrordesc_np(-r), now);
	delivery->phase = DELIVERY_RUNS;
	delivery->due = mono_add(now, delivery->timeout_ns);

	return false;
}

/* Does what is due. True: it is over. */
static bool check_delivery(struct notifier *notifier, struct delivery *delivery, mono_t stop_by, mono_t now)
{
	bool due = mono_diff(now, delivery->due) >= 0, stopping = stop_by.ns != 0;
	struct child_end how;

	if (delivery->phase != DELIVERY_WAITS) {
		read_output(delivery);
		if (child_ended(&delivery->child, &how))
			return judge_try(notifier, delivery, &how, now);
		if (stopping && mono_diff(now, stop_by) >= 0)
			return end_try(notifier, delivery, false, "the daemon stops", now);
		if (due && delivery->phase == DELIVERY_RUNS) {
			child_signal(&delivery->child, SIGKILL);
			delivery->phase = DELIVERY_KILLED;
		}
		return false;
	}
	if (stopping && (delivery->tried > 0 || mono_diff(now, stop_by) >= 0))
		return end_try(notifier, delivery, false, "the daemon stops", now);

	return due && !is_busy(notifier, delivery->state) && start_try(notifier, delivery, now);
}

/* ---- the thread ---- */

static void check_all(struct notifier *notifier, mono_t stop_by)
{
	for (struct delivery **at = &notifier->deliveries; *at;) {
		struct delivery *delivery = *at;

		if (!check_delivery(notifier, delivery, stop_by, clock_mono(&notifier->clock))) {
			at = &delivery->next;
			continue;
		}
		*at = delivery->next;
		delivery_free(delivery);
	}
}

static int timeout_ms(const struct notifier *notifier, mono_t stop_by)
{
	mono_t now = clock_mono(&notifier->clock);
	int64_t least = stop_by.ns ? mono_diff(stop_by, now) : INT64_MAX;

	for (const struct delivery *delivery = notifier->deliveries; delivery; delivery = delivery->next) {
		bool waits = delivery->phase == DELIVERY_WAITS;

		/* One that waits for another of its entry is looked at when that ends; what is killed, ends. */
		if (delivery->phase != DELIVERY_KILLED && !(waits && is_busy(notifier, delivery->state)) &&
		    mono_diff(delivery->due, now) < least)
			least = mono_diff(delivery->due, now);
	}
	if (least == INT64_MAX)
		return -1;

	return least <= 0 ? 0 : (int)(least / (int64_t)NS_PER_MS) + 1;
}

static void wait_for_event(struct notifier *notifier, mono_t stop_by)
{
	struct pollfd polled[1 + 2 * WAYS_MAX] = { { .fd = notifier->wake, .events = POLLIN } };
	nfds_t count = 1;
	uint64_t woken;

	for (const struct delivery *delivery = notifier->deliveries; delivery; delivery = delivery->next) {
		if (delivery->phase == DELIVERY_WAITS)
			continue;
		assert(count + 2 <= ARRAY_LEN(polled)); /* one at a time of each entry */
		polled[count++] = (struct pollfd){ .fd = delivery->out, .events = POLLIN };
		polled[count++] = (struct pollfd){ .fd = delivery->child.fd, .events = POLLIN };
	}
	poll(polled, count, timeout_ms(notifier, stop_by));
	(void)!read(notifier->wake, &woken, sizeof woken);
}

/* Takes the new ones, at the end. Returns stop_by. */
static mono_t take_added(struct notifier *notifier)
{
	struct delivery **end = &notifier->deliveries;
	mono_t stop_by;

	while (*end)
		end = &(*end)->next;
	pthread_mutex_lock(&notifier->lock);
	*end = notifier->added;
	notifier->added = NULL;
	notifier->added_end = &notifier->added;
	stop_by = notifier->stop_by;
	pthread_mutex_unlock(&notifier->lock);

	return stop_by;
}

static void *run_thread(void *argument)
{
	struct notifier *notifier = argument;

	prctl(PR_SET_NAME, "notify");
	for (;;) {
		mono_t stop_by = take_added(notifier);

		check_all(notifier, stop_by);
		if (stop_by.ns && !notifier->deliveries)
			return NULL;
		wait_for_event(notifier, stop_by);
	}
}

/* ---- the other threads' side ---- */

static void wake_thread(struct notifier *notifier)
{
	(void)!write(notifier->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

int notifier_new(struct notifier **ret)
{
	struct notifier *notifier = calloc(1, sizeof *notifier);

	if (!notifier)
		return -ENOMEM;

	notifier->clock = real_clock();
	notifier->added_end = &notifier->added;
	pthread_mutex_init(&notifier->lock, NULL);
	notifier->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (notifier->wake < 0) {
		int r = -errno;

		notifier_free(notifier, 0);
		return r;
	}
	*ret = notifier;

	return 0;
}

void notifier_free(struct notifier *notifier, uint64_t stop_ns)
{
	if (!notifier)
		return;

	if (notifier->running) {
		pthread_mutex_lock(&notifier->lock);
		notifier->stop_by = mono_add(clock_mono(&notifier->clock), stop_ns);
		pthread_mutex_unlock(&notifier->lock);
		wake_thread(notifier);
		pthread_join(notifier->thread, NULL);
		if (notifier->unsent)
			log_about(LOG_WARNING,
				  &(struct log_about){ .message = MESSAGE_NOTIFY_FAILED, .count = notifier->unsent },
				  "notify: %zu notifications were not sent before the daemon stopped",
				  notifier->unsent);
	}
	scope_close(&notifier->wake);
	pthread_mutex_destroy(&notifier->lock);
	free(notifier);
}

/* Under the lock. NULL: the table is full of names that are in use. */
static struct way_state *state_of(struct notifier *notifier, const char *name)
{
	struct way_state *unused = NULL;

	for (size_t i = 0; i < WAYS_MAX; i++) {
		struct way_state *state = &notifier->ways[i];

		if (strcmp(state->name, name) == 0)
			return state;
		if (state->counts.pending == 0 && (!unused || !*state->name))
			unused = *state->name || !unused || *unused->name ? state : unused;
	}
	if (unused) {
		*unused = (struct way_state){ .hour = { 0 } };
		snprintf(unused->name, sizeof unused->name, "%s", name);
	}

	return unused;
}

/* Under the lock: whether one more may be queued; else it is counted. */
static bool may_queue(const struct notifier *notifier, struct way_state *state, uint32_t max_per_hour, mono_t now)
{
	if (state->hour.ns == 0 || mono_diff(now, state->hour) >= (int64_t)HOUR_NS) {
		state->hour = now;
		state->in_hour = 0;
	}
	if (state->in_hour >= max_per_hour) {
		state->counts.limited++;
		state->untold++;
		return false;
	}
	if (notifier->pending >= NOTIFY_PENDING_MAX) {
		state->counts.dropped++;
		state->untold++;
		return false;
	}

	return true;
}

/* Under the lock. */
static int queue_delivery(struct notifier *notifier, struct way_state *state, struct delivery *delivery)
{
	int r = notifier->running ? 0 : thread_start(&notifier->thread, run_thread, notifier);

	if (r < 0)
		return r;
	notifier->running = true;
	delivery->state = state;
	delivery->due = clock_mono(&notifier->clock);
	*notifier->added_end = delivery;
	notifier->added_end = &delivery->next;
	state->in_hour++;
	state->untold = 0;
	state->counts.pending++;
	notifier->pending++;

	return 0;
}

/* Under the lock, which is short: a few kilobytes of text. */
static void send_one(struct notifier *notifier, const struct notify_way *way, const struct incident *incident,
		     const struct notify_texts *texts, const char *directory)
{
	struct way_state *state = state_of(notifier, way->name);
	AUTO(buffer_release) struct buffer json = { .max = INPUT_MAX };
	struct command_template_values values = { {
		[COMMAND_TEMPLATE_PID] = texts->pid,
		[COMMAND_TEMPLATE_INCIDENT] = directory,
		[COMMAND_TEMPLATE_RULE] = texts->rule,
		[COMMAND_TEMPLATE_TARGET] = texts->target,
		[COMMAND_TEMPLATE_NAME] = way->name,
		[COMMAND_TEMPLATE_HOST] = texts->host,
		[COMMAND_TEMPLATE_VALUE] = texts->value,
		[COMMAND_TEMPLATE_THRESHOLD] = texts->threshold,
		[COMMAND_TEMPLATE_TIME] = texts->time,
		[COMMAND_TEMPLATE_HEADLINE] = texts->headline,
	} };
	struct delivery *delivery = NULL;

	if (!state || !may_queue(notifier, state, way->max_per_hour, clock_mono(&notifier->clock)))
		return;
	if (put_json(incident, texts, directory, state->untold, &json) == 0) {
		values.text[COMMAND_TEMPLATE_JSON] = json.data;
		delivery = delivery_new(way, &values, incident->id);
	}
	if (!delivery || queue_delivery(notifier, state, delivery) < 0) {
		state->counts.dropped++;
		state->untold++;
		if (delivery)
			delivery_free(delivery);
	}
}

void notifier_send(struct notifier *notifier, struct notify_plan *plan, const struct incident *incident,
		   const char *directory)
{
	struct notify_texts texts;

	if (!plan || !notifier) {
		free(plan);
		return;
	}
	put_texts(incident, directory, &texts);
	pthread_mutex_lock(&notifier->lock);
	for (size_t i = 0; i < plan->count; i++)
		send_one(notifier, &plan->ways[i], incident, &texts, directory);
	pthread_mutex_unlock(&notifier->lock);
	wake_thread(notifier);
	free(plan);
}

void notifier_counts(struct notifier *notifier, const char *name, struct notify_counts *ret)
{
	*ret = (struct notify_counts){ 0 };
	pthread_mutex_lock(&notifier->lock);
	for (size_t i = 0; i < WAYS_MAX; i++)
		if (strcmp(notifier->ways[i].name, name) == 0)
			*ret = notifier->ways[i].counts;
	pthread_mutex_unlock(&notifier->lock);
}
