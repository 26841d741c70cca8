/* check_statusjson.c: the document with thousands of targets that do not all fit, and with hostile names. */
#include "statusjson.h"

#include "json.h"
#include "scene.h"
#include "spool.h"

#include <errno.h>

Suite *statusjson_suite(void);

#define TARGETS 1000

static char directory[64];
static struct config *config;
static struct session *session;
static struct memo *memo;
static struct spool *spool;
static struct evaluator *evaluator;
static struct incidents *incidents;
static struct watcher *watcher;
static struct health health;
static struct paths paths;

static int fire(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;

	return 0;
}

static void add_targets(void)
{
	for (uint32_t i = 1; i <= TARGETS; i++) {
		char name[64];
		struct target target = {
			.id = i,
			.kind = TARGET_PROCESS,
			.pid = (int32_t)i,
			.entry = "me",
			.name = name,
			.key = name,
			.comm = "",
			.cmdline = "",
			.cgroup = "",
			.container = i == 1 ? "docker\tid\tweb\t\t\tnginx\x7f" : "",
		};

		snprintf(name, sizeof(name), "\x1b[31m\xff\x7f\"\\/%u", i);
		ck_assert_int_eq(evaluator_target(evaluator, &target), 0);
	}
}

static void setup(void)
{
	char path[128];
	size_t swept;
	struct retention_limits limits = { .max_bytes = 1 << 20, .max_count = 10 };

	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/incidents", directory);
	config = scene_config(
		"{\"targets\": [{\"name\": \"me\", \"pid\": %d}], \"ring\": {\"lock\": false}, \"rules\": ["
		"{\"name\": \"hot\", \"metric\": \"cpu\", \"percent\": \"70%%\"},"
		"{\"name\": \"big\", \"metric\": \"memory_bytes\", \"delta\": \"70%%\"}]}",
		getpid());
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_int_eq(memo_new("", &memo), 0);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &swept), 0);

	struct incidents_options options = { .config = config, .session = session, .memo = memo, .spool = spool };
	struct evaluator_options rules = { .config = config, .fire = fire };

	ck_assert_int_eq(incidents_new(&options, &incidents), 0);
	ck_assert_int_eq(evaluator_new(&rules, &evaluator), 0);
	ck_assert_int_eq(watcher_new(session_ring(session), evaluator, incidents, NULL, &watcher), 0);
	add_targets();
}

static void teardown(void)
{
	incidents_finish(incidents);
	watcher_free(watcher);
	evaluator_free(evaluator);
	incidents_free(incidents);
	memo_free(memo);
	session_free(session);
	spool_free(spool);
	config_free(config);
	scene_remove(directory);
}

static const struct privileges privileges = { .lacks = { { "CAP_X", "y" } }, .count = 1 };

static int write_status(struct buffer *ret)
{
	struct overview status = {
		.config = config,
		.paths = &paths,
		.session = session,
		.evaluator = evaluator,
		.incidents = incidents,
		.watcher = watcher,
		.health = &health,
		.privileges = &privileges,
		.now = { 5000000000 },
	};

	return statusjson_write(&status, ret);
}

/* The rules that are in it, with those that are said to be left out. */
static size_t rules_in(const struct buffer *text, uint64_t *ret_left_out)
{
	struct json_document *document;
	struct json_limits limits = { .size_bytes = 64u << 20, .nodes = 1u << 20 };
	const struct json_node *root;
	size_t count = 0;

	ck_assert_int_eq(json_parse(text->data, text->len, &limits, &document, NULL), 0);
	root = json_root(document);
	for (const struct json_node *t = json_member(root, "targets")->first; t; t = t->next)
		count += json_member(t, "rules")->count;
	*ret_left_out = (uint64_t)json_member(root, "left_out")->number;
	json_document_free(document);

	return count;
}

START_TEST(everything_is_in_it)
{
	struct buffer text = { 0 };
	uint64_t left_out;

	ck_assert_int_eq(write_status(&text), 0);
	ck_assert_uint_eq(rules_in(&text, &left_out), 2 * TARGETS);
	ck_assert_uint_eq(left_out, 0);
	ck_assert_ptr_null(memchr(text.data, '\x1b', text.len));
	ck_assert_ptr_null(memchr(text.data, '\x7f', text.len));
	buffer_release(&text);
}
END_TEST

START_TEST(a_target_in_a_container_says_which)
{
	struct json_limits limits = { .size_bytes = 64u << 20, .nodes = 1u << 20 };
	struct json_document *document;
	struct buffer text = { 0 };
	size_t count = 0;

	ck_assert_int_eq(write_status(&text), 0);
	ck_assert_int_eq(json_parse(text.data, text.len, &limits, &document, NULL), 0);
	for (const struct json_node *t = json_member(json_root(document), "targets")->first; t; t = t->next) {
		const struct json_node *container = json_member(t, "container");

		if (!container)
			continue;
		count++;
		ck_assert_str_eq(json_member(container, "runtime")->text, "docker");
		ck_assert_str_eq(json_member(container, "id")->text, "id");
		ck_assert_str_eq(json_member(container, "name")->text, "web");
		ck_assert_ptr_null(json_member(container, "pod"));
	}
	ck_assert_uint_eq(count, 1);
	json_document_free(document);
	buffer_release(&text);
}
END_TEST

START_TEST(what_does_not_fit_is_left_out_and_counted)
{
	for (size_t max = 70u << 10; max < 500u << 10; max += 33333) {
		struct buffer text = { .max = max };
		uint64_t left_out;

		ck_assert_int_eq(write_status(&text), 0);

		size_t count = rules_in(&text, &left_out);

		ck_assert_uint_le(text.len, max);
		ck_assert_uint_gt(left_out, 0);
		ck_assert_uint_eq(count + left_out, 2 * TARGETS);
		ck_assert(max < 100u << 10 || count > 0);
		buffer_release(&text);
	}
}
END_TEST

START_TEST(without_any_room_it_fails)
{
	struct buffer text = { .max = 100 };

	ck_assert_int_eq(write_status(&text), -EFBIG);
	buffer_release(&text);
}
END_TEST

Suite *statusjson_suite(void)
{
	Suite *suite = suite_create("statusjson");
	TCase *tcase = tcase_create("document");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, everything_is_in_it);
	tcase_add_test(tcase, a_target_in_a_container_says_which);
	tcase_add_test(tcase, what_does_not_fit_is_left_out_and_counted);
	tcase_add_test(tcase, without_any_room_it_fails);
	suite_add_tcase(suite, tcase);

	return suite;
}
