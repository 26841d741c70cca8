/*
 * check_exposition.c: the text forms to the letter, names of container labels, and the page: what
 * becomes of targets, rules and sums from one page to the next, and the documented families.
 */
#include "daemon/service/metrics/exposition.c"

#include "container_labels.h"
#include "program.h"
#include "lib/base/base.h"
#include "daemon/engine/incident/spool.h"
#include "torture.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/unit_bus.h"
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
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *exposition_suite(void);

/* ==== the text forms ==== */

static const struct openmetrics_family seconds = { "x_busy_seconds", OPENMETRICS_COUNTER, "seconds", "Time spent.",
						   "" };
static const struct openmetrics_family gauge = { "x_targets", OPENMETRICS_GAUGE, "", "Targets.", "" };
static const struct openmetrics_family build_info = { "x_build", OPENMETRICS_INFO, "", "Version.", "" };
static const struct openmetrics_family unused = { "x_unused", OPENMETRICS_GAUGE, "", "Nothing.", "" };

static int write_all(struct sink sink, enum openmetrics_form form)
{
	struct openmetrics_labels labels = { .block = "a=\"b\"", .block_len = 5, .further = { { "mode", "user" } } };
	struct openmetrics_labels version = { .further = { { "version", "1" }, { "of", "x" } } };
	struct openmetrics writer;

	openmetrics_init(&writer, sink, form);
	openmetrics_family(&writer, &seconds);
	openmetrics_ns(&writer, &labels, 1500000000);
	openmetrics_ns(&writer, NULL, 7);
	openmetrics_family(&writer, &unused);
	openmetrics_family(&writer, &gauge);
	openmetrics_u64(&writer, &(struct openmetrics_labels){ 0 }, 3);
	openmetrics_family(&writer, &build_info);
	openmetrics_u64(&writer, &version, 1);

	return openmetrics_finish(&writer);
}

static void expect(enum openmetrics_form form, const char *text)
{
	struct buffer out = { 0 };

	ck_assert_int_eq(write_all(sink_buffer(&out), form), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, text);
	buffer_release(&out);
}

START_TEST(openmetrics_is_to_the_letter)
{
	expect(OPENMETRICS_1_0, "# TYPE x_busy_seconds counter\n"
				"# UNIT x_busy_seconds seconds\n"
				"# HELP x_busy_seconds Time spent.\n"
				"x_busy_seconds_total{a=\"b\",mode=\"user\"} 1.5\n"
				"x_busy_seconds_total 0.000000007\n"
				"# TYPE x_targets gauge\n"
				"# HELP x_targets Targets.\n"
				"x_targets 3\n"
				"# TYPE x_build info\n"
				"# HELP x_build Version.\n"
				"x_build_info{version=\"1\",of=\"x\"} 1\n"
				"# EOF\n");
}
END_TEST

START_TEST(the_older_form_is_to_the_letter)
{
	expect(OPENMETRICS_0_0_4, "# HELP x_busy_seconds_total Time spent.\n"
				  "# TYPE x_busy_seconds_total counter\n"
				  "x_busy_seconds_total{a=\"b\",mode=\"user\"} 1.5\n"
				  "x_busy_seconds_total 0.000000007\n"
				  "# HELP x_targets Targets.\n"
				  "# TYPE x_targets gauge\n"
				  "x_targets 3\n"
				  "# HELP x_build_info Version.\n"
				  "# TYPE x_build_info gauge\n"
				  "x_build_info{version=\"1\",of=\"x\"} 1\n");
}
END_TEST

/* What stands behind the name of the only sample. */
static void value_is(int (*put_it)(struct openmetrics *writer), const char *text)
{
	struct buffer out = { 0 };
	struct openmetrics writer;

	openmetrics_init(&writer, sink_buffer(&out), OPENMETRICS_0_0_4);
	openmetrics_family(&writer, &gauge);
	ck_assert_int_eq(put_it(&writer), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(strrchr(out.data, ' ') + 1, text);
	buffer_release(&out);
}

#define VALUE(name, call) \
	static int name(struct openmetrics *writer) \
	{ \
		return call; \
	}

VALUE(largest, openmetrics_u64(writer, NULL, UINT64_MAX))
VALUE(largest_ns, openmetrics_ns(writer, NULL, UINT64_MAX))
VALUE(whole_ns, openmetrics_ns(writer, NULL, 20000000000))
VALUE(tenth, openmetrics_double(writer, NULL, 0.1))
VALUE(third, openmetrics_double(writer, NULL, 1.0 / 3))
VALUE(no_number, openmetrics_double(writer, NULL, (double)NAN))
VALUE(infinite, openmetrics_double(writer, NULL, (double)INFINITY))
VALUE(minus_infinite, openmetrics_double(writer, NULL, -(double)INFINITY))

START_TEST(values_come_back_as_they_were)
{
	value_is(largest, "18446744073709551615\n");
	value_is(largest_ns, "18446744073.709551615\n");
	value_is(whole_ns, "20\n");
	value_is(tenth, "0.1\n");
	value_is(third, "0.3333333333333333\n");
	value_is(no_number, "NaN\n");
	value_is(infinite, "+Inf\n");
	value_is(minus_infinite, "-Inf\n");
}
END_TEST

START_TEST(hostile_labels_are_harmless)
{
	static const struct {
		const char *value, *written;
	} cases[] = {
		{ "", "" },
		{ "/system.slice/dev-disk\\x2duuid", "/system.slice/dev-disk\\\\x2duuid" },
		{ "a\"b\nc", "a\\\"b\\nc" },
		{ "\x1b[31m\x7f\t", "\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd" },
		{ "x\xff\xc3\xa4\xc3", "x\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd" },
		{ "\xc2\x85\xc2\xa0", "\xef\xbf\xbd\xc2\xa0" },
		{ "\xf0\x9f\x92\xa5}", "\xf0\x9f\x92\xa5}" },
		{ "exe\xe2\x80\xaegpj.", "exe\xef\xbf\xbdgpj." }, /* turns around what follows */
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct openmetrics_label labels[] = { { "n", cases[i].value }, { "m", "1" } };
		struct buffer out = { 0 };
		char want[128];

		snprintf(want, sizeof(want), "n=\"%s\",m=\"1\"", cases[i].written);
		ck_assert_int_eq(openmetrics_block(labels, 2, &out), 0);
		ck_assert_int_eq(buffer_append(&out, "", 1), 0);
		ck_assert_str_eq(out.data, want);
		buffer_release(&out);
	}
}
END_TEST

START_TEST(clients_get_the_form_that_they_prefer)
{
	static const struct {
		const char *accept;
		enum openmetrics_form form;
	} cases[] = {
		{ NULL, OPENMETRICS_0_0_4 },
		{ "", OPENMETRICS_0_0_4 },
		{ "*/*", OPENMETRICS_0_0_4 },
		{ "text/html,application/xhtml+xml,*/*;q=0.8", OPENMETRICS_0_0_4 },
		{ "application/openmetrics-text", OPENMETRICS_1_0 },
		{ "Application/OpenMetrics-Text ; Version=1.0.0", OPENMETRICS_1_0 },
		{ "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
		  "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		  OPENMETRICS_1_0 },
		{ "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
		  "application/openmetrics-text;version=0.0.1;q=0.5,text/"
		  "plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
		  "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
		  OPENMETRICS_1_0 },
		{ "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		  OPENMETRICS_0_0_4 },
		{ "application/openmetrics-text;q=0.4,text/plain;q=0.5", OPENMETRICS_0_0_4 },
		{ "application/openmetrics-text;q=0.5,text/plain;q=0.5", OPENMETRICS_1_0 },
		{ "application/openmetrics-text;q=0", OPENMETRICS_0_0_4 },
		{ "application/openmetrics-text;q=0.000, */*", OPENMETRICS_0_0_4 },
		{ "application/openmetrics-text;q=0.001", OPENMETRICS_1_0 },
		{ "application/openmetrics-text;q=nonsense", OPENMETRICS_1_0 },
		{ "application/openmetrics-textual", OPENMETRICS_0_0_4 },
		{ ",;=,;q=,,,text/plain;;;", OPENMETRICS_0_0_4 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		ck_assert_msg(openmetrics_negotiate(cases[i].accept) == cases[i].form, "%s", cases[i].accept);
	ck_assert_str_eq(openmetrics_type(OPENMETRICS_0_0_4), "text/plain; version=0.0.4; charset=utf-8");
}
END_TEST

START_TEST(the_first_error_stays)
{
	struct buffer out = { 0 };

	ck_assert_int_eq(write_all(sink_buffer(&out), OPENMETRICS_1_0), 0);
	for (long room = 0; room < (long)out.len; room++) {
		long left = room;

		ck_assert_int_eq(write_all(torture_sink(&left), OPENMETRICS_1_0), -EIO);
	}
	buffer_release(&out);
	out.max = 20;
	ck_assert_int_eq(write_all(sink_buffer(&out), OPENMETRICS_1_0), -EFBIG);
	ck_assert_int_eq(openmetrics_block(&(struct openmetrics_label){ "name", "a rather long value" }, 1, &out),
			 -EFBIG);
	buffer_release(&out);
}
END_TEST

/* ==== names of container labels ==== */

static struct label_names names;

START_TEST(keys_become_names_that_metrics_can_have)
{
	static const char *const keys[] = {
		"app", "app.kubernetes.io/partOf", "9-lives", "APPName", "tier_2B", "\"}\\"
	};

	label_names_make(keys, ARRAY_LEN(keys), &names);
	ck_assert_str_eq(names.names[0], "label_app");
	ck_assert_str_eq(names.names[1], "label_app_kubernetes_io_part_of");
	ck_assert_str_eq(names.names[2], "label_9_lives");
	ck_assert_str_eq(names.names[3], "label_appname");
	ck_assert_str_eq(names.names[4], "label_tier_2_b");
	ck_assert_str_eq(names.names[5], "label____");
}
END_TEST

START_TEST(equal_names_are_numbered)
{
	static const char *const keys[] = { "a.b", "x", "a/b", "y", "a-b", "X" };

	label_names_make(keys, ARRAY_LEN(keys), &names);
	ck_assert_str_eq(names.names[0], "label_a_b_conflict1");
	ck_assert_str_eq(names.names[1], "label_x_conflict1");
	ck_assert_str_eq(names.names[2], "label_a_b_conflict2");
	ck_assert_str_eq(names.names[3], "label_y");
	ck_assert_str_eq(names.names[4], "label_a_b_conflict3");
	ck_assert_str_eq(names.names[5], "label_x_conflict2");
}
END_TEST

START_TEST(the_longest_keys_fit)
{
	static char key[CONFIG_LABELS_MAX + 1][LABELS_KEY_MAX + 1];
	const char *keys[CONFIG_LABELS_MAX + 1];

	for (size_t i = 0; i <= CONFIG_LABELS_MAX; i++) {
		for (size_t k = 0; k < LABELS_KEY_MAX; k++)
			key[i][k] = k % 2 ? 'A' : 'a';
		keys[i] = key[i];
	}
	label_names_make(keys, CONFIG_LABELS_MAX + 1, &names);
	ck_assert_uint_eq(names.count, CONFIG_LABELS_MAX);
	ck_assert_uint_lt(strlen(names.names[0]), LABEL_NAMES_ROOM);
	ck_assert_ptr_nonnull(strstr(names.names[CONFIG_LABELS_MAX - 1], "_conflict16"));
}
END_TEST

/* ==== pages ==== */

static char directory[64];
static struct config *config;
static struct session *session;
static struct rule_state *rule_state;
static struct spool *spool;
static struct evaluator *evaluator;
static struct incidents *incidents;
static struct dispatcher *dispatcher;
static struct rule_counts *rule_counts;
static struct exposition *exposition;
static struct health health;
static struct paths paths;
static struct buffer page;

static bool fired(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	rule_counts_opened(rule_counts, firing->rule);

	return false;
}

static void judged(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision, uint32_t windows)
{
	(void)ctx;
	rule_counts_judged(rule_counts, rule, decision, windows);
}

static void build(unsigned max_targets)
{
	char path[128];
	size_t swept;
	struct retention_limits limits = { .max_bytes = 1 << 20, .max_count = 10 };

	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/incidents", directory);
	config = scene_config(
		"{\"targets\": [{\"name\": \"a\", \"pid\": %d}, {\"name\": \"b\", \"pid\": 1}],"
		"\"ring\": {\"lock\": false}, \"metrics\": {\"max_targets\": %u, \"container_labels\": [\"app\", "
		"\"b.c\", \"b/c\", \"none\"]}, \"notify\": [{\"name\": \"mail\", \"command\": [\"/bin/true\"]}],"
		"\"rules\": ["
		"{\"name\": \"hot\", \"metric\": \"cpu_cores\", \"above\": 0.5, \"window\": \"1s\", \"warmup\": 1,"
		" \"cooldown\": \"1h\", \"targets\": [\"a\"]},"
		"{\"name\": \"big\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"}]}",
		getpid(), max_targets);
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_int_eq(rule_state_new("", &rule_state), 0);
	ck_assert_int_eq(spool_open(path, &limits, &spool, &swept), 0);

	struct dispatcher_options options = {
		.config = config,
		.session = session,
		.spool = spool,
		.rule_state = rule_state,
		.fired = fired,
		.judged = judged,
	};

	ck_assert_int_eq(dispatcher_open(&options, &dispatcher), 0);
	evaluator = dispatcher_evaluator(dispatcher);
	incidents = dispatcher_incidents(dispatcher);
	ck_assert_int_eq(rule_counts_new(config, NULL, &rule_counts), 0);
	ck_assert_int_eq(exposition_new((wall_t){ 1500000000 }, &exposition), 0);
	samplers_tick(session_parts(session).samplers);
}

static void teardown(void)
{
	buffer_release(&page);
	incidents_finish(incidents);
	exposition_free(exposition);
	rule_counts_free(rule_counts);
	dispatcher_close(dispatcher);
	rule_state_free(rule_state);
	session_free(session);
	spool_free(spool);
	config_free(config);
	scene_remove(directory);
}

static struct overview look(void)
{
	return (struct overview){
		.config = config,
		.paths = &paths,
		.session = session,
		.evaluator = evaluator,
		.incidents = incidents,
		.dispatcher = dispatcher,
		.health = &health,
		.rule_counts = rule_counts,
		.now = { 5000000000 },
	};
}

static void write_page(enum openmetrics_form form)
{
	struct overview overview = look();

	page.len = 0;
	ck_assert_int_eq(exposition_write(exposition, &overview, form, &page), 0);
	ck_assert_int_eq(buffer_append(&page, "", 1), 0);
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

static void see(uint32_t id, uint64_t at_s, uint64_t cpu_s, uint64_t memory)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu_s * NS_PER_S);
	sample_set(&sample, SAMPLE_MEMORY, memory);
	sample_set(&sample, SAMPLE_MEMORY_PEAK, 2 * memory);
	feed_sample(evaluator, id, (mono_t){ at_s * NS_PER_S }, &sample);
}

/* Whether there is a line that is just this. */
static bool has(const char *line)
{
	size_t len = strlen(line);

	for (const char *at = page.data; (at = strstr(at, line)) != NULL; at += len)
		if ((at == page.data || at[-1] == '\n') && at[len] == '\n')
			return true;

	return false;
}

#define expect(line) ck_assert_msg(has(line), "not in the page: %s", line)
#define A(name) "{target=\"" name "\",entry=\"a\",kind=\"process\"}"
#define CPU "spikewatch_target_cpu_seconds_total"
#define MEMORY "spikewatch_target_memory_bytes"
#define LABELS_OTHER "{target=\"other\",entry=\"a\",kind=\"other\"}"

START_TEST(targets_are_as_they_were_last_seen)
{
	struct sample sample = { 0 };

	build(10);
	for (enum sample_field field = 0; field < SAMPLE_FIELDS; field++)
		sample_set(&sample, field, 1000 * (uint64_t)(field + 1));
	sample_set(&sample, SAMPLE_CPU_LIMIT, 1500000000);
	sample_set(&sample, SAMPLE_MEMORY, 3);
	sample_set(&sample, SAMPLE_MEMORY_LIMIT, 4);
	add_target(1, "a", "a/1");
	add_target(2, "a", "never seen");
	feed_sample(evaluator, 1, (mono_t){ NS_PER_S }, &sample);
	write_page(OPENMETRICS_1_0);
	expect(CPU A("a/1") " 0.000001");
	expect("spikewatch_target_cpu_mode_seconds_total{target=\"a/1\",entry=\"a\",kind=\"process\",mode=\"user\"} "
	       "0.000002");
	expect("spikewatch_target_cpu_mode_seconds_total{target=\"a/1\",entry=\"a\",kind=\"process\",mode=\"system\"} "
	       "0.000003");
	expect(MEMORY A("a/1") " 3");
	expect("spikewatch_target_memory_peak_bytes" A("a/1") " 5000");
	expect("spikewatch_target_cpu_limit_cores" A("a/1") " 1.5");
	expect("spikewatch_target_memory_limit_bytes" A("a/1") " 4");
	expect("spikewatch_target_memory_limit_used_ratio" A("a/1") " 0.75");
	expect("spikewatch_target_page_faults_total{target=\"a/1\",entry=\"a\",kind=\"process\",type=\"major\"} 10000");
	expect("spikewatch_target_pressure_waiting_seconds_total{target=\"a/"
	       "1\",entry=\"a\",kind=\"process\",resource=\"io\"} "
	       "0.000017");
	expect("spikewatch_target_cpu_estimated_ends_total" A("a/1") " 24000");
	expect("spikewatch_summed_targets{entry=\"a\"} 0");
	ck_assert_ptr_null(strstr(page.data, "never seen"));
	ck_assert_ptr_null(strstr(page.data, "\"other\""));

	/* What has no limit, and what has ended. */
	sample_set(&sample, SAMPLE_MEMORY_LIMIT, UINT64_MAX);
	sample_unset(&sample, SAMPLE_CPU_LIMIT);
	feed_sample(evaluator, 1, (mono_t){ 2 * NS_PER_S }, &sample);
	write_page(OPENMETRICS_1_0);
	ck_assert_ptr_null(strstr(page.data, "spikewatch_target_memory_limit"));
	ck_assert_ptr_null(strstr(page.data, "spikewatch_target_cpu_limit"));
	feed_gone(evaluator, 1);
	write_page(OPENMETRICS_1_0);
	ck_assert_ptr_null(strstr(page.data, "a/1"));
}
END_TEST

static void add_container_at(uint32_t id, const char *name, const char *packed, const char *cgroup)
{
	struct target target = {
		.id = id,
		.kind = TARGET_CGROUP,
		.entry = "a",
		.name = name,
		.key = name,
		.comm = "",
		.cmdline = "",
		.cgroup = cgroup,
		.container = packed,
	};

	ck_assert_int_eq(feed_target(evaluator, &target), 0);
}

static void add_container(uint32_t id, const char *name, const char *packed)
{
	add_container_at(id, name, packed, "/x");
}

START_TEST(containers_have_labels_of_their_names)
{
	build(10);
	add_container(1, "docker/web", "docker\ta329033bf6421fca\tweb\t\t\tnginx:1.27");
	add_container(2, "pod/shop/p/app", "crio\tid\tapp\tshop\tp");
	add_container(3, "docker/a329033bf642", "docker\ta329033bf6421fca");
	see(1, 1, 1, 7);
	see(2, 1, 1, 8);
	see(3, 1, 1, 9);
	write_page(OPENMETRICS_0_0_4);
	expect(MEMORY "{target=\"docker/web\",entry=\"a\",kind=\"cgroup\",container=\"web\"} 7");
	expect(MEMORY "{target=\"pod/shop/p/"
		      "app\",entry=\"a\",kind=\"cgroup\",container=\"app\",namespace=\"shop\",pod=\"p\"} 8");
	expect(MEMORY "{target=\"docker/a329033bf642\",entry=\"a\",kind=\"cgroup\",container=\"a329033bf642\"} 9");
}
END_TEST

#define ID "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"

static void label_container(const char *key, const char *value)
{
	struct labels labels = { .count = 0 };

	labels_add(&labels, "unnamed", 7, "x", 1);
	labels_add(&labels, key, strlen(key), value, strlen(value));
	container_labels_put(session_parts(session).labels, "/docker/" ID, &labels);
}

/* A process within the container too, but none that is in none. */
START_TEST(labels_that_are_named_are_those_of_one_family)
{
	struct target target = { .id = 2,
				 .kind = TARGET_PROCESS,
				 .entry = "b",
				 .name = "b/7",
				 .key = "b",
				 .comm = "",
				 .cmdline = "",
				 .cgroup = "/docker/" ID "/below",
				 .container = "docker\t" ID "\tweb" };

	build(10);
	label_container("b/c", "a\"b\\\xff");
	add_target(1, "a", "a/1");
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	target.id = 3;
	target.name = "b/8";
	target.cgroup = "/docker/" ID "x";
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	for (uint32_t id = 1; id <= 3; id++)
		see(id, 1, 1, id);
	write_page(OPENMETRICS_1_0);
	expect("spikewatch_target_info{target=\"b/7\",entry=\"b\",kind=\"process\",container=\"web\","
	       "label_b_c_conflict2=\"a\\\"b\\\\\xef\xbf\xbd\"} 1");
	expect(MEMORY "{target=\"b/7\",entry=\"b\",kind=\"process\",container=\"web\"} 2");
	ck_assert_ptr_null(strstr(page.data, "spikewatch_target_info{target=\"a/1\""));
	ck_assert_ptr_null(strstr(page.data, "spikewatch_target_info{target=\"b/8\""));
	ck_assert_ptr_null(strstr(page.data, "unnamed"));

	/* One that has none of those named. */
	label_container("other", "x");
	write_page(OPENMETRICS_1_0);
	ck_assert_ptr_null(strstr(page.data, "spikewatch_target_info{"));
}
END_TEST

START_TEST(those_known_longest_have_series_and_keep_them)
{
	build(2);
	add_target(7, "a", "seven");
	add_target(3, "a", "three");
	add_target(5, "a", "five");
	add_target(9, "b", "nine");
	for (uint32_t id = 3; id <= 9; id += 2)
		see(id, 1, 100, id);
	write_page(OPENMETRICS_0_0_4);
	expect(MEMORY A("three") " 3");
	expect(MEMORY A("five") " 5");
	expect(MEMORY LABELS_OTHER " 7");
	expect(MEMORY "{target=\"other\",entry=\"b\",kind=\"other\"} 9");
	expect("spikewatch_summed_targets{entry=\"a\"} 1");
	expect("spikewatch_summed_targets{entry=\"b\"} 1");
	ck_assert_ptr_null(strstr(page.data, "seven"));
	ck_assert_ptr_null(strstr(page.data, "memory_peak_bytes{target=\"other\""));

	/* However much the others do. */
	see(7, 2, 100000, 1 << 30);
	write_page(OPENMETRICS_0_0_4);
	ck_assert_ptr_null(strstr(page.data, "seven"));

	feed_gone(evaluator, 3);
	write_page(OPENMETRICS_0_0_4);
	expect(MEMORY A("seven") " 1073741824");
	expect(MEMORY A("five") " 5");
	ck_assert_ptr_null(strstr(page.data, "three"));
	expect("spikewatch_summed_targets{entry=\"a\"} 0");
}
END_TEST

START_TEST(sums_never_count_backwards)
{
	build(1);
	add_target(1, "a", "one");
	add_target(2, "a", "two");
	add_target(3, "a", "three");
	see(1, 1, 50, 1);
	see(2, 1, 1000, 2);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU A("one") " 50");
	expect(CPU LABELS_OTHER " 0"); /* what it used before the first look is not what it uses now */
	see(2, 2, 1007, 2);
	see(3, 2, 500, 3);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 7");
	expect(MEMORY LABELS_OTHER " 5");

	/* Looking again adds nothing; a counter that began anew adds what it has. */
	write_page(OPENMETRICS_1_0);
	expect(CPU LABELS_OTHER " 7");
	see(3, 3, 2, 3);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 9");

	/* One ends, one moves up: what they have added stays. */
	feed_gone(evaluator, 3);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 9");
	expect(MEMORY LABELS_OTHER " 2");
	feed_gone(evaluator, 1);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU A("two") " 1007");
	expect(CPU LABELS_OTHER " 9");
	expect(MEMORY LABELS_OTHER " 0");
}
END_TEST

/* After a gap nothing is known of a target until it is seen again: then it goes on where it was. */
START_TEST(a_gap_is_no_beginning)
{
	build(1);
	add_target(1, "a", "one");
	add_target(2, "a", "two");
	see(1, 1, 1, 1);
	see(2, 1, 1, 1);
	write_page(OPENMETRICS_0_0_4);
	see(2, 2, 5, 1);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 4");
	feed_gap(evaluator);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 4");
	ck_assert_ptr_null(strstr(page.data, "\"one\""));
	see(2, 3, 8, 1);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 7");
}
END_TEST

START_TEST(equal_names_are_one_series_and_hostile_ones_are_harmless)
{
	build(10);
	add_target(1, "a", "\x1b[31m\xff\"\\\n");
	add_target(2, "a", "same");
	add_target(3, "a", "same");
	add_target(4, "a", "x\xfe");
	add_target(5, "a", "x\xff");
	for (uint32_t id = 1; id <= 5; id++)
		see(id, 1, id, id);
	write_page(OPENMETRICS_0_0_4);
	expect(CPU A("\xef\xbf\xbd[31m\xef\xbf\xbd\\\"\\\\\\n") " 1");
	expect(MEMORY A("same") " 2");
	expect(MEMORY A("x\xef\xbf\xbd") " 4");
	expect(MEMORY LABELS_OTHER " 8");
	expect("spikewatch_summed_targets{entry=\"a\"} 2");
}
END_TEST

/* Another rule_counts takes the place of the one before. */
static void reload_tally(const struct config *next)
{
	struct rule_counts *after;

	ck_assert_int_eq(rule_counts_new(next, rule_counts, &after), 0);
	rule_counts_free(rule_counts);
	rule_counts = after;
}

START_TEST(rules_are_counted_over_targets_that_are_gone)
{
	static const wall_t wall = { 1000 * NS_PER_S };

	build(10);
	add_target(1, "a", "one");
	for (uint64_t s = 1; s <= 20; s++) {
		see(1, s, s > 10 ? 100 * s : 0, 1);
		ck_assert_int_eq(feed_tick(evaluator, (mono_t){ s * NS_PER_S }, wall), 0);
	}
	feed_gone(evaluator, 1);
	write_page(OPENMETRICS_0_0_4);
	expect("spikewatch_rule_firings_total{rule=\"hot\"} 1");
	expect("spikewatch_rule_incidents_total{rule=\"hot\"} 1");
	expect("spikewatch_rule_suppressed_total{rule=\"hot\",reason=\"cooldown\"} 9");
	expect("spikewatch_rule_suppressed_total{rule=\"hot\",reason=\"count-limit\"} 0");
	expect("spikewatch_rule_windows_total{rule=\"hot\"} 19");
	expect("spikewatch_rule_firings_total{rule=\"big\"} 0");

	/* A rule that stays goes on, one that is new begins. */
	struct config *next = scene_config("{\"targets\": [{\"name\": \"a\", \"pid\": 1}], \"rules\": ["
					   "{\"name\": \"new\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"},"
					   "{\"name\": \"hot\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"}]}");
	struct config *before = config;

	reload_tally(next);
	config = next;
	write_page(OPENMETRICS_0_0_4);
	config = before;
	expect("spikewatch_rule_firings_total{rule=\"hot\"} 1");
	expect("spikewatch_rule_firings_total{rule=\"new\"} 0");
	ck_assert_ptr_null(strstr(page.data, "\"big\""));
	ck_assert_ptr_null(rule_counts_of(rule_counts, &before->rules[0]));
	rule_counts_judged(rule_counts, &before->rules[0], &(struct trigger_decision){ .fires = true }, 1);
	ck_assert_uint_eq(rule_counts_of(rule_counts, &next->rules[1])->fired, 1);
	reload_tally(before);
	config_free(next);
}
END_TEST

/* ---- the table ---- */

/* Names of the labels in a line, as the table has them. */
static void label_names_in(const char *line, char *ret, size_t cap)
{
	size_t len = 0;

	*ret = '\0';
	for (const char *at = strchr(line, '{'); at && at[1] != '\0' && *at != '}';) {
		const char *name = at + 1, *quote = strchr(name, '"');

		ck_assert_ptr_nonnull(quote);
		len += (size_t)snprintf(ret + len, cap - len, "%s%.*s", len ? ", " : "", (int)(quote - name - 1), name);
		at = strchr(quote + 1, '"') + 1;
	}
}

static const char *const suffixes[] = {
	[OPENMETRICS_COUNTER] = "_total",
	[OPENMETRICS_GAUGE] = "",
	[OPENMETRICS_INFO] = "_info",
};

START_TEST(every_family_is_there_once_with_its_labels)
{
	struct sample sample = { 0 };

	build(10);
	for (enum sample_field field = 0; field < SAMPLE_FIELDS; field++)
		sample_set(&sample, field, 1);
	add_target(1, "a", "one");
	feed_sample(evaluator, 1, (mono_t){ NS_PER_S }, &sample);
	label_container("app", "shop"); /* of a target that is sorted behind that one */
	add_container_at(2, "pod/a/b/c", "docker\t" ID "\tweb", "/docker/" ID);
	feed_sample(evaluator, 2, (mono_t){ NS_PER_S }, &sample);
	write_page(OPENMETRICS_1_0);
	for (enum family i = 0; i < FAMILIES; i++) {
		const struct openmetrics_family *family = (&families[i]);
		char line[160], labels[128];

		snprintf(line, sizeof(line), "\n# HELP %s %s\n", family->name, family->help);
		const char *at = strstr(page.data, line);

		ck_assert_msg(at, "%s is missing", family->name);
		ck_assert_msg(!strstr(at + 1, line), "%s is there twice", family->name);
		at += strlen(line);
		snprintf(line, sizeof(line), "%s%s", family->name, suffixes[family->kind]);
		ck_assert_msg(strncmp(at, line, strlen(line)) == 0, "%s has no sample", family->name);
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		label_names_in(line, labels, sizeof(labels));
		ck_assert_str_eq(labels, i == FAMILY_TARGET_INFO ? "target, entry, kind, container, label_app"
								 : families[i].labels);
		if (*family->unit) {
			size_t len = strlen(family->name), unit = strlen(family->unit);

			ck_assert_str_eq(family->name + len - unit, family->unit);
		}
	}
	size_t types = 0;

	for (const char *at = page.data; (at = strstr(at, "# TYPE ")) != NULL; at++)
		types++;
	ck_assert_uint_eq(types, FAMILIES);
	ck_assert_str_eq(page.data + page.len - 1 - strlen("# EOF\n"), "# EOF\n");
}
END_TEST

/* A row of the tables there: | `name` | kind | labels | meaning | */
START_TEST(the_document_has_all_families_as_they_are)
{
	static const char *const kinds[] = {
		[OPENMETRICS_COUNTER] = "counter",
		[OPENMETRICS_GAUGE] = "gauge",
		[OPENMETRICS_INFO] = "info",
	};
	AUTO_FREE char *text = scene_read("docs/metrics.md");
	size_t rows = 0;

	ck_assert_ptr_nonnull(text);
	for (enum family i = 0; i < FAMILIES; i++) {
		const struct openmetrics_family *family = (&families[i]);
		char row[256];

		snprintf(row, sizeof(row), "\n| `%s%s` | %s | %s | ", family->name, suffixes[family->kind],
			 kinds[family->kind], families[i].labels);
		ck_assert_msg(strstr(text, row), "docs/metrics.md does not have:%s", row);
	}
	for (const char *at = text; (at = strstr(at, "\n| `spikewatch_")) != NULL; at++)
		rows++;
	ck_assert_uint_eq(rows, FAMILIES);
}
END_TEST

/* ---- what fails ---- */

START_TEST(every_allocation_may_fail_and_nothing_is_counted_twice)
{
	bool injected = true;

	build(1);
	add_target(1, "a", "one");
	add_target(2, "a", "two");
	see(1, 1, 1, 1);
	see(2, 1, 1, 1);
	for (long n = 1; injected; n++) {
		struct exposition *other = NULL;
		struct overview overview = look();
		struct buffer text = { 0 };

		torture_arm(n);
		int r = exposition_new((wall_t){ 0 }, &other);

		if (r == 0)
			r = exposition_write(other, &overview, OPENMETRICS_1_0, &text);
		injected = torture_disarm();
		/* The history of the ring is left out if there is no memory to look. */
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		buffer_release(&text);
		exposition_free(other);
	}
	for (size_t max = 1; max < 30000; max += 997) {
		struct overview overview = look();
		struct buffer text = { .max = max };
		int r = exposition_write(exposition, &overview, OPENMETRICS_1_0, &text);

		ck_assert(r == 0 || r == -EFBIG);
		ck_assert_uint_le(text.len, max);
		buffer_release(&text);
	}
	write_page(OPENMETRICS_0_0_4);
	expect(CPU LABELS_OTHER " 0");
}
END_TEST

Suite *exposition_suite(void)
{
	Suite *suite = suite_create("exposition");
	TCase *pages = tcase_create("pages");

	tcase_add_checked_fixture(pages, NULL, teardown);
	tcase_add_test(pages, targets_are_as_they_were_last_seen);
	tcase_add_test(pages, containers_have_labels_of_their_names);
	tcase_add_test(pages, labels_that_are_named_are_those_of_one_family);
	tcase_add_test(pages, those_known_longest_have_series_and_keep_them);
	tcase_add_test(pages, sums_never_count_backwards);
	tcase_add_test(pages, a_gap_is_no_beginning);
	tcase_add_test(pages, equal_names_are_one_series_and_hostile_ones_are_harmless);
	tcase_add_test(pages, rules_are_counted_over_targets_that_are_gone);
	tcase_add_test(pages, every_family_is_there_once_with_its_labels);
	tcase_add_test(pages, every_allocation_may_fail_and_nothing_is_counted_twice);
	suite_add_tcase(suite, pages);

	TCase *document = tcase_create("document");

	tcase_add_test(document, the_document_has_all_families_as_they_are);
	suite_add_tcase(suite, document);

	TCase *forms = tcase_create("forms");

	tcase_add_test(forms, openmetrics_is_to_the_letter);
	tcase_add_test(forms, the_older_form_is_to_the_letter);
	tcase_add_test(forms, values_come_back_as_they_were);
	tcase_add_test(forms, hostile_labels_are_harmless);
	tcase_add_test(forms, clients_get_the_form_that_they_prefer);
	tcase_add_test(forms, the_first_error_stays);
	tcase_add_test(forms, keys_become_names_that_metrics_can_have);
	tcase_add_test(forms, equal_names_are_numbered);
	tcase_add_test(forms, the_longest_keys_fit);
	suite_add_tcase(suite, forms);

	return suite;
}
