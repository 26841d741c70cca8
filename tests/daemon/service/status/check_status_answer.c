/*
 * check_status_answer.c: the document with a thousand targets, in pieces between which the world
 * goes on, of which some are asked for or fit, and with hostile names.
 */
#include "daemon/service/status/status_document.h"

#include "children.h"
#include "lib/base/json.h"
#include "scene.h"
#include "skip.h"
#include "lib/base/base.h"
#include "daemon/engine/incident/spool.h"
#include "torture.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/service/health/health.h"
#include "daemon/service/health/overview.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "evaluator_feed.h"
#include "lib/evaluator/evaluator.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>

Suite *status_answer_suite(void);

#define TARGETS 1000

static char directory[64];
static struct config *config;
static struct session *session;
static struct rule_state *rule_state;
static struct spool *spool;
static struct evaluator *evaluator;
static struct incidents *incidents;
static struct dispatcher *dispatcher;
static struct health health;
static struct paths paths;

static bool fired(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;

	return false;
}

static void add_target(uint32_t id)
{
	char name[64];
	struct target target = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)id,
		.entry = "me",
		.name = name,
		.key = name,
		.comm = "",
		.cmdline = "",
		.cgroup = "",
		.container = id == 1 ? "docker\tid\tweb\t\t\tnginx\x7f" : "",
	};

	snprintf(name, sizeof(name), "\x1b[31m\xff\x7f\"\\/%u", id);
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
}

static void add_targets(void)
{
	for (uint32_t i = 1; i <= TARGETS; i++)
		add_target(i);
}

static pid_t watched[2]; /* 0: this process */

static void setup(void)
{
	char path[128];
	size_t swept;
	struct retention_limits limits = { .max_bytes = 1 << 20, .max_count = 10 };

	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/incidents", directory);
	config = scene_config("{\"targets\": [{\"name\": \"me\", \"pid\": %d}, {\"name\": \"you\", \"pid\": %d}], "
			      "\"ring\": {\"lock\": false}, \"rules\": ["
			      "{\"name\": \"hot\", \"metric\": \"cpu\", \"percent\": \"70%%\"},"
			      "{\"name\": \"big\", \"metric\": \"memory_bytes\", \"delta\": \"70%%\"}]}",
			      watched[0] ? watched[0] : getpid(), watched[1] ? watched[1] : getpid());
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_int_eq(rule_state_new("", &rule_state), 0);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &swept), 0);

	struct dispatcher_options options = {
		.config = config,
		.session = session,
		.spool = spool,
		.rule_state = rule_state,
		.fired = fired,
	};

	ck_assert_int_eq(dispatcher_open(&options, &dispatcher), 0);
	evaluator = dispatcher_evaluator(dispatcher);
	incidents = dispatcher_incidents(dispatcher);
	add_targets();
}

static void teardown(void)
{
	incidents_finish(incidents);
	dispatcher_close(dispatcher);
	rule_state_free(rule_state);
	session_free(session);
	spool_free(spool);
	config_free(config);
	scene_remove(directory);
}

static const struct privileges privileges = { .lacks = { { "CAP_X", "y" } }, .count = 1 };

static uint64_t now_ns;
static uint64_t clock_ns, clock_step_ns; /* each look at the clock takes so long */
static struct status_answer *answer;

static mono_t read_clock(void *ctx)
{
	(void)ctx;
	clock_ns += clock_step_ns;

	return (mono_t){ clock_ns };
}

static void overview(void *ctx, struct overview *ret)
{
	(void)ctx;
	*ret = (struct overview){
		.config = config,
		.paths = &paths,
		.session = session,
		.evaluator = evaluator,
		.incidents = incidents,
		.dispatcher = dispatcher,
		.health = &health,
		.privileges = &privileges,
		.now = { now_ns },
	};
}

static int ask(const char *words, size_t max_bytes)
{
	struct status_answer_options options = { .overview = overview,
						 .clock = { .mono = read_clock },
						 .max_bytes = max_bytes };

	return status_answer_new(&options, words, &answer);
}

/* All that is left of the answer; the number of pieces. */
static size_t take_rest(struct buffer *ret)
{
	size_t pieces = 0;
	int r;

	do {
		struct buffer piece = { .max = STATUS_ANSWER_ROOM };

		r = status_answer_more(answer, &piece);
		ck_assert_int_ge(r, 0);
		ck_assert_uint_le(piece.len, 3 * STATUS_ANSWER_PIECE);
		ck_assert_int_eq(buffer_append(ret, piece.data, piece.len), 0);
		buffer_release(&piece);
		pieces++;
	} while (r > 0);
	status_answer_free(answer);
	answer = NULL;

	return pieces;
}

static struct json_document *read_answer(const struct buffer *text)
{
	struct json_limits limits = { .size_bytes = 64u << 20, .nodes = 1u << 20 };
	struct json_document *document;

	ck_assert_int_eq(json_parse(text->data, text->len, &limits, &document, NULL), 0);

	return document;
}

/* For json_document_free. */
static struct json_document *answer_to(const char *words)
{
	AUTO(buffer_release) struct buffer text = { 0 };

	ck_assert_int_eq(ask(words, 0), 0);
	take_rest(&text);

	return read_answer(&text);
}

/* The rules that are in it, with those that are said to be left out. */
static size_t rules_in(const struct buffer *text, uint64_t *ret_left_out)
{
	struct json_document *document = read_answer(text);
	const struct json_node *root = json_root(document);
	size_t count = 0;

	for (const struct json_node *t = json_member(root, "targets")->first; t; t = t->next)
		count += json_member(t, "rules")->count;
	*ret_left_out = (uint64_t)json_member(root, "left_out")->number;
	json_document_free(document);

	return count;
}

static double member(const struct json_node *node, const char *key)
{
	ck_assert_ptr_nonnull(json_member(node, key));

	return json_member(node, key)->number;
}

START_TEST(everything_is_in_it_in_several_pieces)
{
	struct buffer text = { 0 };
	uint64_t left_out;

	ck_assert_int_eq(ask("", 0), 0);
	ck_assert_uint_gt(take_rest(&text), 10);
	ck_assert_uint_eq(rules_in(&text, &left_out), 2 * TARGETS);
	ck_assert_uint_eq(left_out, 0);
	ck_assert_ptr_null(memchr(text.data, '\x1b', text.len));
	ck_assert_ptr_null(memchr(text.data, '\x7f', text.len));
	buffer_release(&text);
}
END_TEST

/*
 * Globs that take long: a piece is then of a few targets, or of one, and of the nearest ones, too.
 */
START_TEST(a_piece_ends_when_it_has_taken_long)
{
	struct buffer text = { 0 };
	uint64_t left_out;

	clock_step_ns = STATUS_ANSWER_PIECE_NS / 2;
	ck_assert_int_eq(ask("", 0), 0);
	ck_assert_uint_gt(take_rest(&text), TARGETS / 2);
	ck_assert_uint_eq(rules_in(&text, &left_out), 2 * TARGETS);
	buffer_release(&text);

	text = (struct buffer){ 0 };
	ck_assert_int_eq(ask("nearest=3", 0), 0);
	ck_assert_uint_gt(take_rest(&text), TARGETS / 2);
	ck_assert_uint_eq(rules_in(&text, &left_out), 3);
	buffer_release(&text);
	clock_step_ns = 0;
}
END_TEST

START_TEST(a_target_in_a_container_says_which)
{
	struct json_document *document = answer_to("");
	size_t count = 0;

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
}
END_TEST

/* Half of the targets go, others come, and the clock moves on, when two pieces were taken. */
START_TEST(targets_that_go_and_come_between_two_pieces_leave_it_whole)
{
	struct buffer text = { 0 };
	struct json_document *document;
	double last = 0;
	unsigned odd = 0, even = 0;

	now_ns = 1000;
	ck_assert_int_eq(ask("", 0), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(status_answer_more(answer, &text), 1);
	for (uint32_t id = 1; id <= TARGETS; id += 2)
		feed_gone(evaluator, id);
	for (uint32_t id = TARGETS + 1; id <= 2 * TARGETS; id++)
		add_target(id);
	now_ns = 2000;
	take_rest(&text);

	document = read_answer(&text);
	for (const struct json_node *t = json_member(json_root(document), "targets")->first; t; t = t->next) {
		double pid = member(t, "pid"), at = member(t, "at_uptime_ns");

		ck_assert_uint_eq(json_member(t, "rules")->count, 2);
		ck_assert_double_le(pid, TARGETS);
		ck_assert_double_gt(pid, last); /* each once */
		ck_assert_double_eq(at, last == 0 || (unsigned)pid % 2 ? 1000 : at);
		*((unsigned)pid % 2 ? &odd : &even) += 1;
		last = pid;
	}
	ck_assert_uint_eq(even, TARGETS / 2);
	ck_assert_uint_gt(odd, 0);
	ck_assert_uint_lt(odd, TARGETS / 2);
	json_document_free(document);
	buffer_release(&text);
}
END_TEST

START_TEST(all_targets_may_go_in_the_middle)
{
	static const char *const words[] = { "", "nearest=7" };
	struct buffer text = { 0 };

	ck_assert_int_eq(ask(words[_i], 0), 0);
	ck_assert_int_eq(status_answer_more(answer, &text), 1);
	for (uint32_t id = 1; id <= TARGETS; id++)
		feed_gone(evaluator, id);
	take_rest(&text);
	json_document_free(read_answer(&text));
	buffer_release(&text);
	json_document_free(answer_to(words[_i]));
}
END_TEST

START_TEST(an_answer_may_be_given_up_after_any_piece)
{
	for (int pieces = 0; pieces < 5; pieces++) {
		struct buffer text = { 0 };

		ck_assert_int_eq(ask(pieces % 2 ? "nearest=3" : "", 0), 0);
		for (int i = 0; i < pieces; i++)
			ck_assert_int_ge(status_answer_more(answer, &text), 1);
		status_answer_free(answer);
		buffer_release(&text);
	}
}
END_TEST

START_TEST(what_is_asked_for_is_in_it_alone)
{
	struct json_document *document = answer_to("target=*/7 rule=h*");
	const struct json_node *targets = json_member(json_root(document), "targets");

	ck_assert_uint_eq(targets->count, 1);
	ck_assert_double_eq(member(targets->first, "pid"), 7);
	ck_assert_uint_eq(json_member(targets->first, "rules")->count, 1);
	ck_assert_str_eq(json_member(json_member(targets->first, "rules")->first, "rule")->text, "hot");
	json_document_free(document);

	document = answer_to("name=nobody");
	ck_assert_uint_eq(json_member(json_root(document), "targets")->count, 0);
	json_document_free(document);

	document = answer_to("brief");
	ck_assert_ptr_nonnull(json_member(json_root(document), "incidents"));
	ck_assert_ptr_null(json_member(json_root(document), "targets"));
	json_document_free(document);
}
END_TEST

/*
 * Memory of all targets, so that the second rule has a distance: the more a target has, the nearer
 * it is.
 */
static void judge(void)
{
	for (uint64_t now = NS_PER_S; now <= 12 * NS_PER_S; now += NS_PER_S) {
		for (uint32_t id = 1; id <= TARGETS; id++) {
			struct sample sample = { 0 };

			/*
			 * 500 is twice what it was before, 20 half as much again: both fire; of all
			 * others the rest is less.
			 */
			sample_set(&sample, SAMPLE_MEMORY,
				   now == 12 * NS_PER_S && id == 500  ? 200000
				   : now == 12 * NS_PER_S && id == 20 ? 180000
								      : 100000);
			feed_sample(evaluator, id, (mono_t){ now }, &sample);
		}
		feed_tick(evaluator, (mono_t){ now }, (wall_t){ now });
	}
}

START_TEST(the_nearest_to_firing_are_in_it_with_how_many_are_farther)
{
	struct json_document *document;
	const struct json_node *targets;

	judge();
	document = answer_to("nearest=2");
	targets = json_member(json_root(document), "targets");
	ck_assert_uint_eq(targets->count, 2);
	ck_assert_double_eq(member(targets->first, "pid"), 20); /* in the order in which they are kept */
	ck_assert_double_eq(member(targets->first->next, "pid"), 500);
	ck_assert_str_eq(json_member(json_member(targets->first, "rules")->first, "rule")->text, "big");
	ck_assert_double_eq(member(json_root(document), "farther"), 2 * TARGETS - 2);
	json_document_free(document);

	/* Those that are equally near, or of which nothing is known, in their order. */
	document = answer_to("nearest=1000 rule=hot");
	targets = json_member(json_root(document), "targets");
	ck_assert_uint_eq(targets->count, TARGETS);
	ck_assert_double_eq(member(json_root(document), "farther"), 0);
	json_document_free(document);

	document = answer_to("nearest=5 target=*/99?");
	targets = json_member(json_root(document), "targets");
	ck_assert_uint_eq(targets->count, 5);
	ck_assert_double_eq(member(targets->first, "pid"), 990);
	ck_assert_double_eq(member(json_root(document), "farther"), 15);
	json_document_free(document);
}
END_TEST

START_TEST(what_is_no_question_is_none)
{
	ck_assert_int_eq(ask("everything", 0), -EINVAL);
	ck_assert_int_eq(ask("nearest=0", 0), -EINVAL);
}
END_TEST

START_TEST(what_does_not_fit_is_left_out_and_counted)
{
	for (size_t max = 70u << 10; max < 500u << 10; max += 33333) {
		struct buffer text = { 0 };
		uint64_t left_out;

		ck_assert_int_eq(ask("", max), 0);
		take_rest(&text);

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

	ck_assert_int_eq(ask("brief", 0), 0);
	ck_assert_int_eq(status_answer_more(answer, &text), -EFBIG);
	status_answer_free(answer);
	buffer_release(&text);
}
END_TEST

/* What is gathered for the head does without some of it. */
START_TEST(without_memory_it_is_whole_or_given_up)
{
	bool injected = true, given_up = false;

	for (uint32_t id = 8; id <= TARGETS; id++)
		feed_gone(evaluator, id);
	for (long n = 1; injected; n++) {
		struct buffer text = { 0 };
		int r;

		answer = NULL;
		torture_arm(n);
		r = ask("nearest=5", 0);
		for (int i = 0; answer && i < 20 && (r = status_answer_more(answer, &text)) > 0; i++)
			continue;
		injected = torture_disarm();
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		ck_assert(r < 0 || answer);
		given_up |= r < 0;
		if (r == 0)
			json_document_free(read_answer(&text));
		status_answer_free(answer);
		buffer_release(&text);
	}
	ck_assert(given_up);
}
END_TEST

static struct child runner, sleeper;
static bool is_apart;

/* In a network namespace of its own the name of the one on a machine that counts in the kernel is free. */
static void setup_apart(void)
{
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	runner = child_start();
	sleeper = child_start();
	watched[0] = runner.pid;
	watched[1] = sleeper.pid;
	usleep(100000); /* what is younger has no account at first */
	is_apart = own >= 0 && unshare(CLONE_NEWNET) == 0;
	setup();
	ck_assert(!is_apart || setns(own, CLONE_NEWNET) == 0);
	close(own);
}

static void teardown_apart(void)
{
	teardown();
	child_reap(&runner);
	child_reap(&sleeper);
	watched[0] = watched[1] = 0;
}

/* It is checked as it is each second. */
static struct kernel_accounts_state check_accounts(void)
{
	static uint64_t at_s;
	struct kernel_accounts *accounts = session_parts(session).accounts;
	struct kernel_accounts_state state;

	kernel_accounts_check(accounts, (mono_t){ ++at_s * NS_PER_S }, NS_PER_MS);
	kernel_accounts_state(accounts, &state);

	return state;
}

/* While it runs, as if the switch to it had been hidden, until the program has noticed. */
static void hide_switches(const struct child *child)
{
	const struct cpu_accounts *shared = kernel_accounts_shared(session_parts(session).accounts);
	const char burn_long = 'b';
	char done;

	for (int i = 0; i < 100 && check_accounts().missed == 0; i++) {
		ck_assert_int_eq(write(child->commands, &burn_long, 1), 1);
		for (int look = 0; look < 200; look++) {
			for (uint32_t cpu = 0; cpu < shared->cpus; cpu++) {
				struct cpu_slot *slot = (struct cpu_slot *)(uintptr_t)&shared->slots[cpu];

				if (slot->tid == (uint32_t)child->pid)
					slot->tid = slot->tgid = INT32_MAX;
			}
			usleep(100);
		}
		ck_assert_int_eq(read(child->done, &done, 1), 1);
	}
	ck_assert_uint_gt(check_accounts().missed, 0);
}

/* As if of its runs one had been hidden from its beginning to its end. */
static void hide_a_run(const struct child *child)
{
	const struct cpu_accounts *shared = kernel_accounts_shared(session_parts(session).accounts);
	uint32_t account = 0;

	child_do(child, 'h');
	while (account < shared->capacity && atomic_load(&shared->pids[account]) != (uint32_t)child->pid)
		account++;
	ck_assert_uint_lt(account, shared->capacity);
	shared->base_ns[account] -= 190000;
}

START_TEST(a_process_that_begins_anew_since_a_switch_was_hidden_is_counted_in_it)
{
	struct json_document *document;
	const struct json_node *cpu_time;

	if (!is_apart)
		SKIP_TEST("there is no network namespace for it");
	if (*session_parts(session).accounts_off)
		SKIP_TEST("%s", session_parts(session).accounts_off);
	document = answer_to("brief");
	cpu_time = json_member(json_root(document), "cpu_time");
	ck_assert_str_eq(json_member(cpu_time, "source")->text, "kernel");
	ck_assert_double_eq(member(cpu_time, "watched"), 2);
	ck_assert_double_eq(member(cpu_time, "corrected"), 0);
	json_document_free(document);

	hide_switches(&runner);
	hide_a_run(&sleeper);

	uint64_t corrected = check_accounts().corrected;

	for (int i = 0; i < 100 && corrected == 0; i++)
		corrected = check_accounts().corrected;
	ck_assert_uint_ge(corrected, 1);
	document = answer_to("brief");
	cpu_time = json_member(json_root(document), "cpu_time");
	ck_assert_str_eq(json_member(cpu_time, "source")->text, "kernel");
	ck_assert_str_eq(json_member(cpu_time, "why")->text, "");
	ck_assert_double_eq(member(cpu_time, "corrected"), (double)corrected);
	ck_assert_double_ge(member(cpu_time, "compared"), 1);
	ck_assert_double_ge(member(cpu_time, "missed_runs"), 1);
	ck_assert_double_eq(member(cpu_time, "detached"), 0);
	json_document_free(document);
}
END_TEST

Suite *status_answer_suite(void)
{
	Suite *suite = suite_create("status_answer");
	TCase *tcase = tcase_create("document");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, everything_is_in_it_in_several_pieces);
	tcase_add_test(tcase, targets_that_go_and_come_between_two_pieces_leave_it_whole);
	tcase_add_loop_test(tcase, all_targets_may_go_in_the_middle, 0, 2);
	tcase_add_test(tcase, an_answer_may_be_given_up_after_any_piece);
	tcase_add_test(tcase, what_is_asked_for_is_in_it_alone);
	tcase_add_test(tcase, the_nearest_to_firing_are_in_it_with_how_many_are_farther);
	tcase_add_test(tcase, what_is_no_question_is_none);
	tcase_add_test(tcase, without_memory_it_is_whole_or_given_up);
	tcase_add_test(tcase, a_piece_ends_when_it_has_taken_long);
	tcase_add_test(tcase, a_target_in_a_container_says_which);
	tcase_add_test(tcase, what_does_not_fit_is_left_out_and_counted);
	tcase_add_test(tcase, without_any_room_it_fails);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("accounts");
	tcase_add_checked_fixture(tcase, setup_apart, teardown_apart);
	tcase_add_test(tcase, a_process_that_begins_anew_since_a_switch_was_hidden_is_counted_in_it);
	suite_add_tcase(suite, tcase);

	return suite;
}
