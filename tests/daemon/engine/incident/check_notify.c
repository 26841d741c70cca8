/*
 * check_notify.c: incidents told by the recipes of conf/notify, each to a server, bus, program or
 * helper of this test in the place of the real one; and what becomes of a notification that nothing
 * takes.
 */
#include "daemon/engine/incident/notify.c"

#include "scene.h"
#include "skip.h"
#include "torture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <systemd/sd-bus.h>

Suite *notify_suite(void);

static char directory[64];
static struct notifier *notifier;
static struct config *config;

static void setup(void)
{
	ck_assert_int_eq(children_begin(), 0); /* before any thread */
	scene_directory(directory);
	ck_assert_int_eq(notifier_new(&notifier), 0);
}

static void teardown(void)
{
	notifier_free(notifier, 0);
	config_free(config);
	scene_remove(directory);
}

/* ---- a server that refuses the first requests ---- */

enum protocol { HTTP, SMTP, HELPER };

static struct server {
	int fd, port;
	enum protocol protocol;
	int refuses;
	atomic_int requests;
	char last[8192];
	pthread_t thread;
} server;

/* One request: until the end, or of HTTP as many bytes as it says. */
static void take_request(int fd, char *ret, size_t cap)
{
	size_t len = 0;
	ssize_t got;

	while (len + 1 < cap && (got = read(fd, ret + len, cap - 1 - len)) > 0) {
		const char *body, *length;

		ret[len += (size_t)got] = '\0';
		body = strstr(ret, "\r\n\r\n");
		length = strcasestr(ret, "content-length: ");
		if (server.protocol == HTTP && body && length && strlen(body + 4) >= strtoul(length + 16, NULL, 10))
			break;
	}
	ret[len] = '\0';
}

/* One mail: whom it is for, and its lines. */
static void take_mail(int fd, bool refused, char *ret, size_t cap)
{
	FILE *in = fdopen(dup(fd), "re");
	char line[1024] = "";
	size_t len = 0;
	bool data = false;

	dprintf(fd, "220 here\r\n");
	while ((data || strncmp(line, "QUIT", 4) != 0) && fgets(line, sizeof line, in)) {
		bool ends = data && strcmp(line, ".\r\n") == 0;

		if ((data && !ends) || strncmp(line, "RCPT", 4) == 0)
			len += (size_t)snprintf(ret + len, cap - len, "%s", line);
		ck_assert_uint_lt(len, cap);
		if (ends)
			dprintf(fd, refused ? "452 no room\r\n" : "250 queued\r\n");
		else if (!data)
			dprintf(fd, strncmp(line, "DATA", 4) == 0 ? "354 go on\r\n" : "250 well\r\n");
		data = !ends && (data || strncmp(line, "DATA", 4) == 0);
	}
	fclose(in);
}

static void *serve(void *unused)
{
	static char request[sizeof server.last];
	int fd;

	while ((fd = accept(server.fd, NULL, NULL)) >= 0) {
		bool refused = atomic_load(&server.requests) < server.refuses;
		const char *http = refused ? "HTTP/1.0 503 Busy\r\nContent-Length: 0\r\n\r\n"
					   : "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n";
		const char *answer = server.protocol == HTTP ? http : refused ? "mailbox is full\n" : "queued\nok\n";

		request[0] = '\0';
		if (server.protocol == SMTP)
			take_mail(fd, refused, request, sizeof request);
		else
			take_request(fd, request, sizeof request);
		if (server.protocol != SMTP)
			(void)!write(fd, answer, strlen(answer));
		shutdown(fd, SHUT_WR);
		(void)!read(fd, request + strlen(request), 1); /* until the other side has read it */
		close(fd);
		memcpy(server.last, request, sizeof server.last);
		atomic_fetch_add(&server.requests, 1);
	}

	return unused;
}

static void start_server(enum protocol protocol, const char *path, int refuses)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof in;

	server = (struct server){ .protocol = protocol, .refuses = refuses };
	server.fd = socket(protocol == HELPER ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (protocol != HELPER) {
		ck_assert_int_eq(bind(server.fd, (struct sockaddr *)&in, sizeof in), 0);
		getsockname(server.fd, (struct sockaddr *)&in, &len);
		server.port = ntohs(in.sin_port);
	} else {
		snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
		ck_assert_int_eq(bind(server.fd, (struct sockaddr *)&un, sizeof un), 0);
	}
	ck_assert_int_eq(listen(server.fd, 8), 0);
	ck_assert_int_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void stop_server(void)
{
	shutdown(server.fd, SHUT_RDWR);
	pthread_join(server.thread, NULL);
	close(server.fd);
}

/* ---- configurations and incidents ---- */

#define TARGETS \
	"\"targets\":[{\"name\":\"t\",\"pid\":1}],\"rules\":[" \
	"{\"name\":\"hot\",\"metric\":\"cpu\",\"percent\":1}," \
	"{\"name\":\"quiet\",\"metric\":\"cpu\",\"percent\":1,\"notify\":[]}]"

static void load(const char *text)
{
	struct config_source sources[] = { { "targets", "{" TARGETS "}", strlen("{" TARGETS "}") },
					   { "notify", text, strlen(text) } };
	struct config_error error = { .message = "" };

	config_free(config);
	config = NULL;
	config_parse(sources, ARRAY_LEN(sources), &config, &error);
	ck_assert_msg(config, "%s: %s", error.key, error.message);
}

/* Puts `to` in the place of every `from`, of which there must be one. */
static void replace(char *text, size_t cap, const char *from, const char *to)
{
	ck_assert_msg(strstr(text, from), "%s is not in %s", from, text);
	for (char *at = text; (at = strstr(at, from)); at += strlen(to)) {
		ck_assert_uint_lt(strlen(text) + strlen(to), cap);
		memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
		memcpy(at, to, strlen(to));
	}
}

/* A recipe with one thing in the place of another, and short pauses. */
static void load_recipe(const char *file, const char *from, const char *to)
{
	char text[8192];
	char *read = scene_read(file);

	ck_assert_ptr_nonnull(read);
	snprintf(text, sizeof text, "%s", read);
	free(read);
	replace(text, sizeof text, from, to);
	replace(text, sizeof text, "\"name\":", "\"retry\": \"10ms\", \"name\":");
	load(text);
}

static struct incident incident_of(const char *rule)
{
	struct incident incident = { 0 };

	incident_init(&incident, "1");
	incident.kind = INCIDENT_RULE;
	incident.wall.ns = 1763608502123000000; /* 2025-11-20T03:15:02.123Z */
	incident_text(incident.id, sizeof incident.id, "20251120T031502.123Z-db-hot-1");
	incident_text(incident.hostname, sizeof incident.hostname, "db1");
	incident_text(incident.rule.name, sizeof incident.rule.name, rule);
	incident_text(incident.rule.metric, sizeof incident.rule.metric, "cpu");
	incident_text(incident.rule.unit, sizeof incident.rule.unit, "percent");
	incident_text(incident.rule.of, sizeof incident.rule.of, "core");
	incident_text(incident.rule.reason, sizeof incident.rule.reason, trigger_reason_name(TRIGGER_ABOVE_PERCENT));
	incident.rule.thresholds.percent = 80;
	incident.rule.has_value = true;
	incident.rule.value = 153.2;
	incident.rule.severity = incident_severity(&incident.rule);
	incident_text(incident.target.name, sizeof incident.target.name, "post\ngres \"x\"");
	incident.target.pid = 4242;

	return incident;
}

static void send_incident(const struct incident *incident, const char *path)
{
	struct notify_plan *plan;

	ck_assert_int_eq(notify_plan_new(config, incident, &plan), 0);
	notifier_send(notifier, plan, incident, path);
}

static void tell(const char *rule)
{
	struct incident incident = incident_of(rule);

	send_incident(&incident, "/var/lib/i/20251120T031502.123Z-db-hot-1");
}

static struct notify_counts counts_of(const char *name)
{
	struct notify_counts counts;

	notifier_counts(notifier, name, &counts);

	return counts;
}

static char *file(const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", directory, name);

	return scene_read(path);
}

/* A program that writes its words and its input into files, and exits with 75 the first `fails` times. */
static void make_program(const char *name, int fails)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", directory, name);
	scene_write(path,
		    "#!/bin/sh\ncd %s\necho x >> count\n"
		    "if [ $(wc -l < count) -le %d ]; then echo try later; echo more; exit 75; fi\n"
		    "printf '%%s\\n' \"$@\" > words\nenv > environment\ncat > input\n",
		    directory, fails);
	ck_assert_int_eq(chmod(path, 0755), 0);
}

/* ---- the recipes ---- */

static const char json_expected[] =
	"{\"format\":1,\"host\":\"db1\",\"kind\":\"rule\",\"rule\":\"hot\",\"target\":\"post\\ngres \\\"x\\\"\","
	"\"pid\":4242,\"metric\":\"cpu\",\"unit\":\"percent\",\"value\":153.2,\"threshold\":80,"
	"\"time\":\"2025-11-20T03:15:02.123Z\",\"incident\":\"20251120T031502.123Z-db-hot-1\","
	"\"directory\":\"/var/lib/i/20251120T031502.123Z-db-hot-1\",\"merged\":0,\"left_out\":0,"
	"\"headline\":\"db1: post\\\\x0agres \\\"x\\\": cpu 153% of a core, above 80% (rule hot)\"}\n";

START_TEST(a_webhook_gets_json_from_the_third_try_on)
{
	char address[160], path[128];

	if (access("/usr/bin/curl", X_OK) < 0)
		SKIP_TEST("there is no curl");
	start_server(HTTP, NULL, 2);
	snprintf(path, sizeof path, "%s/webhook.curl", directory);
	scene_write(path, "url = \"http://127.0.0.1:%d/hook\"\nnoproxy = \"*\"\n", server.port);
	snprintf(address, sizeof address, "\"%s\"", path);
	load_recipe("conf/notify/webhook.json", "\"/etc/spikewatch/webhook.curl\"", address);
	tell("hot");
	scene_wait_for(counts_of("webhook").sent == 1);
	stop_server();

	ck_assert_int_eq(atomic_load(&server.requests), 3);
	ck_assert_uint_eq(counts_of("webhook").retried, 2);
	ck_assert_uint_eq(counts_of("webhook").failed, 0);
	ck_assert_ptr_nonnull(strstr(server.last, "POST /hook HTTP/"));
	ck_assert_ptr_nonnull(strstr(server.last, "Content-Type: application/json\r\n"));
	ck_assert_str_eq(strstr(server.last, "\r\n\r\n") + 4, json_expected);
	/* The last that went wrong stays to be seen. */
	ck_assert_ptr_nonnull(strstr(counts_of("webhook").why, "503"));
	ck_assert(!counts_of("webhook").failing);
}
END_TEST

START_TEST(sendmail_gets_a_mail)
{
	char program[128];

	make_program("sendmail", 1);
	snprintf(program, sizeof program, "\"%s/sendmail\"", directory);
	load_recipe("conf/notify/mail.json", "\"/usr/sbin/sendmail\"", program);
	tell("hot");
	scene_wait_for(counts_of("mail").sent == 1);

	char *words = file("words"), *input = file("input");

	ck_assert_str_eq(words, "-t\n-i\n");
	ck_assert_ptr_eq(strstr(input, "To: root\nSubject: [spikewatch] db1: post\\x0agres \"x\": cpu 153% of a core, "
				       "above 80% (rule hot)\nContent-Type: text/plain; charset=utf-8\n\ndb1: "),
			 input);
	ck_assert_ptr_nonnull(strstr(input, "spikewatch show /var/lib/i/20251120T031502.123Z-db-hot-1\n"));
	free(words);
	free(input);
}
END_TEST

/* msmtp is a sendmail that can be told of another server. */
START_TEST(a_mail_server_gets_a_mail_from_the_second_try_on)
{
	char path[128];

	if (access("/usr/bin/msmtp", X_OK) < 0)
		SKIP_TEST("there is no msmtp");
	start_server(SMTP, NULL, 1);
	snprintf(path, sizeof path, "%s/.msmtprc", directory);
	scene_write(path, "account default\nhost 127.0.0.1\nport %d\nfrom spikewatch@localhost\n", server.port);
	ck_assert_int_eq(chmod(path, 0600), 0);
	setenv("HOME", directory, 1);
	load_recipe("conf/notify/mail.json", "\"/usr/sbin/sendmail\"", "\"/usr/bin/msmtp\"");
	tell("hot");
	scene_wait_for(counts_of("mail").sent == 1 || counts_of("mail").failed == 1);
	stop_server();

	ck_assert_msg(counts_of("mail").sent == 1, "%s", counts_of("mail").why);
	ck_assert_uint_eq(counts_of("mail").retried, 1);
	ck_assert_ptr_eq(strstr(server.last, "RCPT TO:<root>"), server.last);
	ck_assert_ptr_nonnull(strstr(server.last, "\nSubject: [spikewatch] db1: post\\x0agres \"x\": cpu 153%"));
	ck_assert_ptr_nonnull(
		strstr(server.last, "\n    spikewatch show /var/lib/i/20251120T031502.123Z-db-hot-1\r\n"));
}
END_TEST

/* ---- a desktop ---- */

static struct desktop {
	pid_t daemon;
	sd_bus *bus;
	atomic_bool ends;
	atomic_int shown;
	char headline[512], body[512];
	pthread_t thread;
} desktop;

static int on_notify(sd_bus_message *message, void *ctx, sd_bus_error *error)
{
	const char *application, *icon, *headline, *body;
	uint32_t replaces;

	(void)ctx;
	(void)error;
	if (sd_bus_message_read(message, "susss", &application, &replaces, &icon, &headline, &body) < 0)
		return -EINVAL;
	snprintf(desktop.headline, sizeof desktop.headline, "%s", headline);
	snprintf(desktop.body, sizeof desktop.body, "%s", body);
	atomic_fetch_add(&desktop.shown, 1);
	return sd_bus_reply_method_return(message, "u", 1);
}

static int on_asked(sd_bus_message *message, void *ctx, sd_bus_error *error)
{
	(void)ctx;
	(void)error;
	return sd_bus_reply_method_return(message, "ssss", "desktop", "spikewatch", "1", "1.2");
}

static int on_capabilities(sd_bus_message *message, void *ctx, sd_bus_error *error)
{
	(void)ctx;
	(void)error;
	return sd_bus_reply_method_return(message, "as", 1, "body");
}

static const sd_bus_vtable notifications[] = {
	SD_BUS_VTABLE_START(0),
	SD_BUS_METHOD("Notify", "susssasa{sv}i", "u", on_notify, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_METHOD("GetServerInformation", "", "ssss", on_asked, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_METHOD("GetCapabilities", "", "as", on_capabilities, SD_BUS_VTABLE_UNPRIVILEGED),
	SD_BUS_VTABLE_END,
};

static void *show_notifications(void *unused)
{
	while (!atomic_load(&desktop.ends))
		if (sd_bus_process(desktop.bus, NULL) == 0)
			sd_bus_wait(desktop.bus, 10000);
	return unused;
}

static bool joined(const char *address)
{
	sd_bus *bus = NULL;

	if (sd_bus_new(&bus) >= 0 && sd_bus_set_address(bus, address) >= 0 && sd_bus_set_bus_client(bus, 1) >= 0 &&
	    sd_bus_start(bus) >= 0 && sd_bus_request_name(bus, "org.freedesktop.Notifications", 0) >= 0) {
		desktop.bus = bus;
		return true;
	}
	sd_bus_unref(bus);
	return false;
}

static void start_desktop(void)
{
	char address[128], argument[160];

	desktop = (struct desktop){ 0 };
	snprintf(address, sizeof address, "unix:path=%s/bus", directory);
	snprintf(argument, sizeof argument, "--address=%s", address);
	desktop.daemon = fork();
	if (desktop.daemon == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/usr/bin/dbus-daemon", "dbus-daemon", "--session", "--nofork", "--nopidfile", argument, NULL);
		_exit(1);
	}
	scene_wait_for(joined(address));
	ck_assert_int_ge(sd_bus_add_object_vtable(desktop.bus, NULL, "/org/freedesktop/Notifications",
						  "org.freedesktop.Notifications", notifications, NULL),
			 0);
	ck_assert_int_eq(pthread_create(&desktop.thread, NULL, show_notifications, NULL), 0);
	setenv("DBUS_SESSION_BUS_ADDRESS", address, 1);
}

static void stop_desktop(void)
{
	atomic_store(&desktop.ends, true);
	pthread_join(desktop.thread, NULL);
	sd_bus_flush_close_unref(desktop.bus);
	kill(desktop.daemon, SIGKILL);
	waitpid(desktop.daemon, NULL, 0);
}

START_TEST(a_desktop_shows_the_headline)
{
	if (access("/usr/bin/notify-send", X_OK) < 0 || access("/usr/bin/dbus-daemon", X_OK) < 0)
		SKIP_TEST("there is no notify-send, or no dbus-daemon");
	start_desktop();
	load_recipe("conf/notify/desktop.json", "/usr/bin/notify-send", "/usr/bin/notify-send");
	tell("hot");
	scene_wait_for(counts_of("desktop").sent == 1 || counts_of("desktop").failed == 1);
	stop_desktop();

	ck_assert_msg(counts_of("desktop").sent == 1, "%s", counts_of("desktop").why);
	ck_assert_int_eq(atomic_load(&desktop.shown), 1);
	ck_assert_str_eq(desktop.headline, "db1: post\\x0agres \"x\": cpu 153% of a core, above 80% (rule hot)");
	ck_assert_str_eq(desktop.body, "spikewatch show /var/lib/i/20251120T031502.123Z-db-hot-1");
}
END_TEST

START_TEST(the_desktop_gets_a_headline_over_its_own_bus)
{
	char program[128];

	setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/bus", 1);
	setenv("SECRET", "x", 1);
	make_program("notify-send", 0);
	snprintf(program, sizeof program, "\"%s/notify-send\"", directory);
	load_recipe("conf/notify/desktop.json", "\"/usr/bin/notify-send\"", program);
	tell("hot");
	scene_wait_for(counts_of("desktop").sent == 1);

	char *words = file("words"), *environment = file("environment"), *input = file("input");

	ck_assert_ptr_nonnull(strstr(words, "\n--\ndb1: post\\x0agres \"x\": cpu 153% of a core, above 80% (rule hot)\n"
					    "spikewatch show /var/lib/i/"));
	ck_assert_ptr_nonnull(strstr(environment, "DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere/bus\n"));
	ck_assert_ptr_null(strstr(environment, "SECRET"));
	ck_assert_str_eq(input, "");
	free(words);
	free(environment);
	free(input);
}
END_TEST

START_TEST(a_helper_on_a_socket_says_what_became_of_it)
{
	char path[100], quoted[110];

	snprintf(path, sizeof path, "%s/socket", directory);
	snprintf(quoted, sizeof quoted, "\"%s\"", path);
	load_recipe("conf/notify/service.json", "\"/run/spikewatch-webhook\"", quoted);
	config->notify_count = 1; /* the webhook */
	config->notifies[0].tries = 2;
	tell("hot");
	scene_wait_for(counts_of("webhook").failed == 1);
	ck_assert_msg(strstr(counts_of("webhook").why, "No such file or directory"), "%s", counts_of("webhook").why);

	start_server(HELPER, path, 1);
	tell("hot");
	scene_wait_for(counts_of("webhook").sent == 1);
	stop_server();
	ck_assert_str_eq(counts_of("webhook").why, "mailbox is full");
	ck_assert_str_eq(server.last, json_expected);
	config->notify_count = 2;
}
END_TEST

/* ---- which rule is told by what ---- */

START_TEST(a_rule_chooses_and_what_is_merged_counts_too)
{
	static const char *const entries =
		"{\"notify\":[{\"name\":\"a\",\"command\":[\"/bin/true\"]},"
		"{\"name\":\"b\",\"command\":[\"/bin/true\"],\"default\":false}],"
		"\"rules\":[{\"name\":\"chosen\",\"metric\":\"cpu\",\"percent\":1,\"notify\":[\"b\"]}]}";
	static const struct {
		const char *rule;
		enum incident_kind kind;
		const char *merged, *told;
	} cases[] = {
		{ "hot", INCIDENT_RULE, NULL, "a" },       { "quiet", INCIDENT_RULE, NULL, "" },
		{ "chosen", INCIDENT_RULE, NULL, "b" },    { "quiet", INCIDENT_RULE, "hot", "a" },
		{ "hot", INCIDENT_RULE, "chosen", "ab" },  { "manual", INCIDENT_MANUAL, NULL, "" },
		{ "manual", INCIDENT_MANUAL, "hot", "a" }, { "storm", INCIDENT_STORM, NULL, "a" },
	};

	load(entries);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct incident incident = incident_of(cases[i].rule);
		struct incident_firing firing = { .kind = INCIDENT_RULE };
		struct notify_plan *plan;
		char told[3] = "";

		incident.kind = cases[i].kind;
		incident_text(firing.rule, sizeof firing.rule, cases[i].merged);
		if (cases[i].merged)
			incident_merge(&incident, &firing);
		ck_assert_int_eq(notify_plan_new(config, &incident, &plan), 0);
		for (size_t k = 0; plan && k < plan->count; k++)
			told[k] = *plan->ways[k].name;
		ck_assert_msg(strcmp(told, cases[i].told) == 0, "%zu: \"%s\"", i, told);
		free(plan);
	}
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(what_nothing_takes_is_given_up_and_said_once)
{
	char program[400];

	make_program("fails", 1000);
	snprintf(program, sizeof program,
		 "{\"notify\":[{\"name\":\"w\",\"command\":[\"%s/fails\"],\"tries\":3,\"retry\":\"10ms\"}]}",
		 directory);
	load(program);
	struct scene_log caught = scene_log_catch();

	for (int i = 0; i < 3; i++)
		tell("hot");
	scene_wait_for(counts_of("w").failed == 3);

	struct notify_counts counts = counts_of("w");
	char *count = file("count"), *log = scene_log_text(&caught);

	scene_log_release(&caught);
	ck_assert_uint_eq(counts.sent, 0);
	ck_assert_uint_eq(counts.retried, 6);
	ck_assert_uint_eq(counts.pending, 0);
	ck_assert(counts.failing);
	ck_assert_str_eq(counts.why, "try later");
	ck_assert_uint_eq(strlen(count), 2 * 9);
	ck_assert_ptr_nonnull(strstr(log, "notify: w: given up after 3 tries: try later"));
	ck_assert_ptr_null(strstr(strstr(log, "given up") + 1, "given up"));
	free(count);
	free(log);
}
END_TEST

START_TEST(one_that_hangs_is_killed_and_delays_no_other)
{
	load("{\"notify\":[{\"name\":\"hangs\",\"command\":[\"/bin/"
	     "sleep\",\"1000\"],\"timeout\":\"200ms\",\"tries\":1},"
	     "{\"name\":\"stays\",\"command\":[\"/bin/sleep\",\"1000\"],\"timeout\":\"2m\"},"
	     "{\"name\":\"works\",\"command\":[\"/bin/true\"]}]}");
	for (int i = 0; i < 2; i++)
		tell("hot");
	scene_wait_for(counts_of("works").sent == 2 && counts_of("hangs").failed == 2);
	ck_assert_str_eq(counts_of("hangs").why, "took longer than 0.2 s");
	ck_assert_uint_eq(counts_of("stays").pending, 2);

	/* The end waits for none of them, and says so. */
	struct scene_log caught = scene_log_catch();

	notifier_free(TAKE(notifier), 0);
	char *log = scene_log_text(&caught);

	scene_log_release(&caught);
	ck_assert_ptr_nonnull(strstr(log, "2 notifications were not sent before the daemon stopped"));
	ck_assert_ptr_nonnull(strstr(
		log, "notify: stays: 20251120T031502.123Z-db-hot-1 was not sent, and will not be: the daemon stops"));
	free(log);
}
END_TEST

START_TEST(the_end_still_sends_what_is_new)
{
	char program[300];

	make_program("slow", 0);
	snprintf(program, sizeof program, "{\"notify\":[{\"name\":\"w\",\"command\":[\"%s/slow\"]}]}", directory);
	load(program);
	tell("hot");
	notifier_free(TAKE(notifier), 30 * NS_PER_S);
	char *input = file("input");

	ck_assert_str_eq(input, json_expected);
	free(input);
}
END_TEST

START_TEST(beyond_the_limit_they_are_counted_and_the_next_says_how_many)
{
	struct way_state *state;
	char program[300];

	make_program("takes", 0);
	snprintf(program, sizeof program,
		 "{\"notify\":[{\"name\":\"w\",\"command\":[\"%s/takes\"],\"max_per_hour\":2}]}", directory);
	load(program);
	for (int i = 0; i < 5; i++)
		tell("hot");
	scene_wait_for(counts_of("w").sent == 2);
	ck_assert_uint_eq(counts_of("w").limited, 3);

	/* An hour later. */
	pthread_mutex_lock(&notifier->lock);
	state = state_of(notifier, "w");
	state->hour = mono_sub(state->hour, HOUR_NS);
	pthread_mutex_unlock(&notifier->lock);
	tell("hot");
	scene_wait_for(counts_of("w").sent == 3);
	char *input = file("input");

	ck_assert_msg(strstr(input, "\"left_out\":3,"), "%s", input);
	free(input);
}
END_TEST

START_TEST(what_waits_is_bounded)
{
	load("{\"notify\":[{\"name\":\"w\",\"command\":[\"/bin/sleep\",\"1000\"],\"max_per_hour\":3600}]}");
	for (int i = 0; i < NOTIFY_PENDING_MAX + 10; i++)
		tell("hot");
	ck_assert_uint_eq(counts_of("w").pending, NOTIFY_PENDING_MAX);
	ck_assert_uint_eq(counts_of("w").dropped, 10);
}
END_TEST

START_TEST(an_incident_that_could_not_be_written_is_told_as_that)
{
	struct incident incident = incident_of("hot");
	char program[300];

	make_program("takes", 0);
	snprintf(program, sizeof program, "{\"notify\":[{\"name\":\"w\",\"command\":[\"%s/takes\"]}]}", directory);
	load(program);
	incident.rule.has_value = false;
	incident.target.pid = 0;
	send_incident(&incident, NULL);
	scene_wait_for(counts_of("w").sent == 1);
	char *input = file("input");

	ck_assert_ptr_nonnull(strstr(input, "\"pid\":null,"));
	ck_assert_ptr_nonnull(strstr(input, "\"value\":null,\"threshold\":null,"));
	ck_assert_ptr_nonnull(strstr(input, "\"incident\":null,\"directory\":null,"));
	ck_assert_ptr_nonnull(strstr(input, "(rule hot); the incident could not be written\"}"));
	free(input);
}
END_TEST

START_TEST(without_memory_nothing_is_told_and_it_is_counted)
{
	load("{\"notify\":[{\"name\":\"w\",\"command\":[\"/bin/true\"],\"max_per_hour\":3600}]}");
	tell("hot"); /* the thread runs */
	scene_wait_for(counts_of("w").sent == 1);
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct incident incident = incident_of("hot");
		struct notify_plan *plan = NULL;
		int r;

		scene_wait_for(counts_of("w").pending == 0);
		struct notify_counts before = counts_of("w");

		torture_arm(n);
		r = notify_plan_new(config, &incident, &plan);
		if (r == 0)
			notifier_send(notifier, plan, &incident, "/x");
		injected = torture_disarm();
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		scene_wait_for(counts_of("w").pending == 0);
		ck_assert_uint_eq(counts_of("w").dropped - before.dropped, r == 0 && injected);
		ck_assert_uint_eq(counts_of("w").sent - before.sent, !injected);
	}
}
END_TEST

START_TEST(a_long_file_of_names_keeps_to_its_room)
{
	char entries[300];

	/* Each reload has another name: those that are not in use make room. */
	for (int i = 0; i < 3 * WAYS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof name, "w%d", i);
		snprintf(entries, sizeof entries, "{\"notify\":[{\"name\":\"%s\",\"command\":[\"/bin/true\"]}]}", name);
		load(entries);
		tell("hot");
		scene_wait_for(counts_of(name).sent == 1);
	}
}
END_TEST

Suite *notify_suite(void)
{
	Suite *suite = suite_create("notify");
	TCase *tcase = tcase_create("notify");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_webhook_gets_json_from_the_third_try_on);
	tcase_add_test(tcase, sendmail_gets_a_mail);
	tcase_add_test(tcase, a_mail_server_gets_a_mail_from_the_second_try_on);
	tcase_add_test(tcase, a_desktop_shows_the_headline);
	tcase_add_test(tcase, the_desktop_gets_a_headline_over_its_own_bus);
	tcase_add_test(tcase, a_helper_on_a_socket_says_what_became_of_it);
	tcase_add_test(tcase, a_rule_chooses_and_what_is_merged_counts_too);
	tcase_add_test(tcase, what_nothing_takes_is_given_up_and_said_once);
	tcase_add_test(tcase, one_that_hangs_is_killed_and_delays_no_other);
	tcase_add_test(tcase, the_end_still_sends_what_is_new);
	tcase_add_test(tcase, beyond_the_limit_they_are_counted_and_the_next_says_how_many);
	tcase_add_test(tcase, what_waits_is_bounded);
	tcase_add_test(tcase, an_incident_that_could_not_be_written_is_told_as_that);
	tcase_add_test(tcase, without_memory_nothing_is_told_and_it_is_counted);
	tcase_add_test(tcase, a_long_file_of_names_keeps_to_its_room);
	suite_add_tcase(suite, tcase);

	return suite;
}
