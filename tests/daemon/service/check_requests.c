/* check_requests.c: what a line at the control socket does, and what is answered. */
#include "daemon/service/control.h"

#include "lib/base/json.h"
#include "scene.h"
#include "torture.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/service/health/overview.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "evaluator_feed.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/pacing.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"

#include <errno.h>

Suite *requests_suite(void);

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

static void setup(void)
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

static void teardown(void)
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
	snprintf(message, REQUESTS_MESSAGE_MAX, "%s", reload_result < 0 ? "conf:3:4: rules: bad" : "1 rule changed");

	return reload_result;
}

static const struct requests requests = { .overview = overview, .trigger = trigger, .reload = reload };

static struct json_document *document;
static bool harmless; /* the last answer had no byte that a terminal obeys */

/* The object that is answered; one at a time. */
static const struct json_node *answer(const char *line)
{
	struct json_limits limits = { .size_bytes = 1u << 20, .nodes = 1u << 10 };
	struct buffer text = { 0 };
	struct control_rest rest = { 0 };

	json_document_free(document);
	document = NULL;
	ck_assert_int_eq(requests_answer(&requests, line, &text, &rest), 0);
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

START_TEST(what_is_not_known_is_refused_with_what_is)
{
	static const char *const lines[] = { "",           "statu", "statuss",  "status now",
					     "reload all", "halt",  "\x1b[31m", "trigger\t" };

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		ck_assert_msg(*text_of(answer(lines[i]), "error"), "%s", lines[i]);
	ck_assert_ptr_nonnull(strstr(text_of(answer("help"), "error"), "status [WORDS], trigger [TARGET], reload"));
	ck_assert_int_eq(triggers, 0);
}
END_TEST

START_TEST(a_trigger_without_a_name_means_everything)
{
	const struct json_node *given = json_member(answer("trigger"), "trigger");

	ck_assert_str_eq(triggered, "everything");
	ck_assert_str_eq(text_of(given, "answer"), "opened");
	ck_assert_str_eq(text_of(given, "directory"), "/incidents");
	ck_assert_str_eq(text_of(given, "stem"), "20261121T000000Z-db-manual");
	ck_assert_double_eq(json_member(given, "sealed_in_ns")->number, 1e10);
}
END_TEST

START_TEST(a_target_is_found_by_its_name_or_by_that_of_its_entry_alone)
{
	answer("trigger web/3");
	ck_assert_str_eq(triggered, "web/3");
	answer("trigger  db");
	ck_assert_str_eq(triggered, "db/1");
	ck_assert_int_eq(triggers, 2);
}
END_TEST

START_TEST(a_name_that_means_several_is_refused_with_them)
{
	const char *error = text_of(answer("trigger web"), "error");

	ck_assert_ptr_nonnull(strstr(error, "2 targets"));
	ck_assert(strstr(error, "web/2") && strstr(error, "web/3"));
	ck_assert_ptr_nonnull(strstr(text_of(answer("trigger nobody"), "error"), "nobody"));
	ck_assert_int_eq(triggers, 0);
}
END_TEST

START_TEST(an_exact_name_wins_over_an_entry_of_several)
{
	add_target(4, "web", "web");
	answer("trigger web");
	ck_assert_str_eq(triggered, "web");
}
END_TEST

START_TEST(a_refused_incident_is_an_error)
{
	ticket.answer = INCIDENTS_REFUSED;
	ticket.why = "too many are open";
	ck_assert_ptr_nonnull(strstr(text_of(answer("trigger db"), "error"), "too many are open"));
	ticket.answer = INCIDENTS_MERGED;
	ck_assert_str_eq(text_of(json_member(answer("trigger db"), "trigger"), "answer"), "merged");
	ck_assert_ptr_null(json_member(json_root(document), "error"));
}
END_TEST

START_TEST(a_reload_says_what_changed_or_why_it_did_not)
{
	const struct json_node *given = json_member(answer("reload"), "reload");

	ck_assert(json_member(given, "done")->boolean);
	ck_assert_str_eq(text_of(given, "message"), "1 rule changed");
	reload_result = -EINVAL;
	ck_assert_str_eq(text_of(answer("reload"), "error"), "conf:3:4: rules: bad");
	ck_assert(!json_member(json_member(json_root(document), "reload"), "done")->boolean);
}
END_TEST

START_TEST(hostile_names_come_back_harmless)
{
	add_target(5, "evil", "a\x1b]0;x\x07\n\"");
	add_target(6, "evil", "b\x7f\xff");

	const char *error = text_of(answer("trigger evil"), "error");

	ck_assert_ptr_nonnull(strstr(error, "2 targets"));
	ck_assert(harmless);
	answer("trigger \xff\xfe");
	ck_assert(harmless);
	answer("\x1b]0;\xff\n");
	ck_assert(harmless);
}
END_TEST

START_TEST(without_memory_nobody_is_answered_by_halves)
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
			int r = requests_answer(&requests, lines[i], &text, &rest);
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

Suite *requests_suite(void)
{
	Suite *suite = suite_create("requests");
	TCase *tcase = tcase_create("requests");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_not_known_is_refused_with_what_is);
	tcase_add_test(tcase, a_trigger_without_a_name_means_everything);
	tcase_add_test(tcase, a_target_is_found_by_its_name_or_by_that_of_its_entry_alone);
	tcase_add_test(tcase, a_name_that_means_several_is_refused_with_them);
	tcase_add_test(tcase, an_exact_name_wins_over_an_entry_of_several);
	tcase_add_test(tcase, a_refused_incident_is_an_error);
	tcase_add_test(tcase, a_reload_says_what_changed_or_why_it_did_not);
	tcase_add_test(tcase, hostile_names_come_back_harmless);
	tcase_add_test(tcase, without_memory_nobody_is_answered_by_halves);
	suite_add_tcase(suite, tcase);

	return suite;
}
