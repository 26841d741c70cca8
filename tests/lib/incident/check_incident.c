/* check_incident.c: an incident survives being written and read; nothing in a file can do harm. */
#include "lib/incident/incident.c"

#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"
#include "lib/cgroup/cgroup.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARKER "{\"spikewatch_incident\":1"

/* 2026-11-20 03:15:02.123456789 UTC */
static const wall_t when = { 1795144502123456789ULL };

/*
 * Too large for some stacks, and what is not set must not matter: static, zeroed by incident_init.
 */
static struct incident full, back;

static void fill(struct incident *incident)
{
	static const struct target target = { .id = 4,
					      .kind = TARGET_PROCESS,
					      .pid = 1234,
					      .start_ticks = 567890,
					      .entry = "web",
					      .name = "web/1234",
					      .key = "web:1234@567890",
					      .comm = "a \"b\" \\ c",
					      .cmdline = "node\n--x=\t\x01",
					      .cgroup = "/system.slice/web.service" };

	incident_init(incident, "0.1.0");
	incident_set_target(incident, &target);
	incident_text(incident->id, sizeof(incident->id), "20261120T031502.123Z-web_1234-cpu-1");
	incident_text(incident->hostname, sizeof(incident->hostname), "host");
	incident_text(incident->kernel, sizeof(incident->kernel), "6.1.0");
	incident->kind = INCIDENT_MANUAL;
	incident->wall = when;
	incident->mono = (mono_t){ UINT64_MAX };
	incident->window_from = (mono_t){ 1 };
	incident->rule = (struct incident_rule){
		.name = "cpu",
		.metric = "cpu",
		.unit = "percent",
		.of = "limit",
		.window_ns = 100000000,
		.reason = "above-percent",
		.has_value = true,
		.value = 97.25,
		.severity = 1.5,
		.fired = 3,
		.count = 2,
		.thresholds = { .has_percent = true,
				.percent = 70,
				.has_maximum = true,
				.maximum = 400,
				.warmup = 3,
				.rearm = TRIGGER_REARM_HIGH_WATER,
				.cooldown_ns = 60000000000 },
	};
	incident->has_unit = true;
	incident->unit = (struct incident_unit){ .name = "web\\x2d1.service",
						 .state = "active",
						 .invocation_id = "0123456789abcdef0123456789abcdef",
						 .has_restarts = true,
						 .restarts = UINT32_MAX,
						 .has_running = true,
						 .running_ns = 3000000000 };
	incident->limits =
		(struct cgroup_limits){ .cpu = 2500000000, .memory_bytes = UINT64_MAX, .memory_is_machine = true };
	incident->coverage = (struct sample_window_coverage){ .got_from_ns = -30000000001,
							      .got_to_ns = INT64_MAX,
							      .cpu_late_ns = 499000001,
							      .gone = true,
							      .gone_ns = -5,
							      .capture_rate = 0.999 };
	incident->peaks = (struct sample_window_peaks){
		.has_cpu = true, .cpu_cores = 2.5, .has_memory = true, .memory_bytes = 1ull << 40
	};
	incident->peak_cpu_percent = 100;
	incident_text(incident->ended_cpu, sizeof(incident->ended_cpu), INCIDENT_ENDED_ESTIMATED);
	incident->has_ended_cpu_lack = true;
	incident->ended_cpu_lack_ns = 40000000;
	incident->cost = (struct incident_cost){ "kernel", 10000000, 100000000, 1.25, 50000, 40000, 7 };
	incident_merge(incident, &(struct incident_firing){ INCIDENT_RULE, { 77 }, "memory", true, 12 });
	incident_merge(incident, &(struct incident_firing){ INCIDENT_MANUAL, { 78 }, "manual", false, 0 });
	incident_add_capture(incident, &(struct incident_capture){ .name = "threads",
								   .file = "threads.tsv",
								   .bytes = 123,
								   .again_of = "first",
								   .has_at = true,
								   .at_ns = -7,
								   .has_duration = true,
								   .duration_ns = 8,
								   .has_exit = true,
								   .exit_status = 3 });
	incident_add_capture(incident, &(struct incident_capture){ .name = "smaps",
								   .status = INCIDENT_CAPTURE_SKIPPED,
								   .why = "no",
								   .has_signal = true,
								   .signal = 9 });
}

static void write_to(const struct incident *incident, struct buffer *text)
{
	ck_assert_int_eq(incident_json_write(incident, sink_buffer(text)), 0);
}

START_TEST(what_is_written_is_read)
{
	struct buffer text = { 0 };

	fill(&full);
	write_to(&full, &text);
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert_str_eq(back.id, full.id);
	ck_assert_str_eq(back.version, "0.1.0");
	ck_assert_int_eq(back.kind, INCIDENT_MANUAL);
	ck_assert(back.has_unit);
	ck_assert_str_eq(back.unit.name, "web\\x2d1.service");
	ck_assert_str_eq(back.unit.invocation_id, full.unit.invocation_id);
	ck_assert(!back.unit.has_main_pid && back.unit.has_restarts && back.unit.has_running);
	ck_assert_uint_eq(back.unit.restarts, UINT32_MAX);
	ck_assert_uint_eq(back.unit.running_ns, 3000000000);
	ck_assert_str_eq(back.hostname, "host");
	ck_assert_str_eq(back.kernel, "6.1.0");
	ck_assert_uint_eq(back.wall.ns, when.ns);
	ck_assert_uint_eq(back.mono.ns, UINT64_MAX);
	ck_assert_uint_eq(back.window_from.ns, 1);
	ck_assert_mem_eq(&back.target, &full.target, sizeof(full.target));
	ck_assert_uint_eq(back.limits.cpu, 2500000000);
	ck_assert_uint_eq(back.limits.memory_bytes, UINT64_MAX);
	ck_assert(back.limits.memory_is_machine && !back.limits.cpu_is_machine);
	ck_assert_int_eq(back.coverage.got_from_ns, -30000000001);
	ck_assert_int_eq(back.coverage.got_to_ns, INT64_MAX);
	ck_assert(back.coverage.gone && back.coverage.gone_ns == -5);
	ck_assert_double_eq(back.coverage.capture_rate, 0.999);
	ck_assert(back.peaks.has_cpu && back.peaks.has_memory && !back.peaks.has_memory_peak);
	ck_assert_double_eq(back.peaks.cpu_cores, 2.5);
	ck_assert_uint_eq(back.peaks.memory_bytes, 1ull << 40);
	ck_assert_mem_eq(&back.cost, &full.cost, sizeof(full.cost));
	buffer_release(&text);
}
END_TEST

START_TEST(a_container_is_read_back_and_without_one_there_is_no_key)
{
	struct target target = {
		.kind = TARGET_CGROUP, .entry = "", .name = "", .key = "", .comm = "", .cmdline = "", .cgroup = ""
	};
	struct buffer text = { 0 };

	fill(&full);
	write_to(&full, &text);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	ck_assert_ptr_null(strstr(text.data, "\"container\""));
	ck_assert_int_eq(incident_json_parse(text.data, text.len - 1, &back), 0);
	ck_assert(!back.has_container);

	target.container = "crio\tid\tapp\tshop\tpod-1\tnginx:1.27";
	incident_set_target(&full, &target);
	text.len = 0;
	write_to(&full, &text);
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert(back.has_container);
	ck_assert_int_eq(back.container.runtime, CONTAINER_CRIO);
	ck_assert_str_eq(back.container.id, "id");
	ck_assert_str_eq(back.container.name, "app");
	ck_assert_str_eq(back.container.space, "shop");
	ck_assert_str_eq(back.container.pod, "pod-1");
	ck_assert_str_eq(back.container.image, "nginx:1.27");
	ck_assert_uint_eq(back.labels.count, 0);
	buffer_release(&text);
}
END_TEST

START_TEST(labels_of_the_container_are_with_the_target)
{
	struct buffer text = { 0 };

	fill(&full);
	labels_add(&full.labels, "app", 3, "we\"b\xc2\x85", 6);
	labels_add(&full.labels, "team/\"x\\", 8, "", 0);
	full.labels.left_out = 5;
	write_to(&full, &text);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(text.data, "\"labels\": {"));
	ck_assert_ptr_null(strstr(text.data, "\xc2\x85"));
	ck_assert_int_eq(incident_json_parse(text.data, text.len - 1, &back), 0);
	ck_assert_uint_eq(back.labels.count, 2);
	ck_assert_uint_eq(back.labels.left_out, 5);
	ck_assert_str_eq(labels_get(&back.labels, "app"), "we\"b\xef\xbf\xbd");
	ck_assert_str_eq(labels_get(&back.labels, "team/\"x\\"), "");
	buffer_release(&text);
}
END_TEST

/* Members that are no labels are ignored. */
START_TEST(labels_that_are_none_are_passed_over)
{
	static const char *const others[] = { "7", "[\"a\"]", "{\"a\":7,\"b c\":\"x\"}", "null" };
	char text[256];

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		int len = snprintf(text, sizeof(text),
				   "{\"spikewatch_incident\":1,\"target\":{\"labels\":%s,\"labels_left_out\":-1}}",
				   others[i]);

		ck_assert_int_eq(incident_json_parse(text, (size_t)len, &back), 0);
		ck_assert_uint_eq(back.labels.count, 0);
	}
}
END_TEST

START_TEST(rules_and_lists_are_read_back)
{
	struct buffer text = { 0 };

	fill(&full);
	write_to(&full, &text);
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert_str_eq(back.rule.name, "cpu");
	ck_assert_str_eq(back.rule.reason, "above-percent");
	ck_assert(back.rule.has_value && !back.rule.has_average);
	ck_assert_double_eq(back.rule.value, 97.25);
	ck_assert_double_eq(back.rule.severity, 1.5);
	ck_assert_uint_eq(back.rule.fired, 3);
	ck_assert_uint_eq(back.rule.count, 2);
	ck_assert(back.rule.thresholds.has_percent && !back.rule.thresholds.has_delta);
	ck_assert(back.rule.thresholds.has_maximum && back.rule.thresholds.maximum == 400);
	ck_assert_int_eq(back.rule.thresholds.rearm, TRIGGER_REARM_HIGH_WATER);
	ck_assert_uint_eq(back.rule.thresholds.cooldown_ns, 60000000000);
	ck_assert_uint_eq(back.merged_total, 2);
	ck_assert_uint_eq(back.merged_count, 2);
	ck_assert_uint_eq(back.merged[0].wall.ns, 77);
	ck_assert_str_eq(back.merged[1].rule, "manual");
	ck_assert_int_eq(back.merged[0].kind, INCIDENT_RULE);
	ck_assert_int_eq(back.merged[1].kind, INCIDENT_MANUAL);
	ck_assert(back.merged[0].has_value && !back.merged[1].has_value);
	ck_assert_uint_eq(back.capture_count, 2);
	ck_assert_str_eq(back.captures[0].file, "threads.tsv");
	ck_assert_int_eq(back.captures[1].status, INCIDENT_CAPTURE_SKIPPED);
	ck_assert_str_eq(back.captures[1].why, "no");
	ck_assert_str_eq(back.captures[0].again_of, "first");
	ck_assert(back.captures[0].has_at && back.captures[0].has_duration && back.captures[0].has_exit);
	ck_assert(!back.captures[0].has_signal && !back.captures[1].has_exit && back.captures[1].has_signal);
	ck_assert_int_eq(back.captures[0].at_ns, -7);
	ck_assert_uint_eq(back.captures[0].duration_ns, 8);
	ck_assert_int_eq(back.captures[0].exit_status, 3);
	ck_assert_int_eq(back.captures[1].signal, 9);
	buffer_release(&text);
}
END_TEST

START_TEST(people_can_read_it)
{
	struct buffer text = { 0 };

	fill(&full);
	full.kind = INCIDENT_RULE;
	write_to(&full, &text);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(text.data, "\"2026-11-20T03:15:02.123456789Z\""));
	ck_assert_ptr_nonnull(
		strstr(text.data, "\"rule cpu fired on web/1234: cpu was 97.3% (above-percent), threshold 70%\""));
	buffer_release(&text);

	static const struct {
		const char *unit;
		double value;
		const char *text;
	} others[] = {
		{ "bytes", 189579264, "cpu was 181 MiB (above-percent), threshold 70 B\"" },
		{ "cores", 1.5, "cpu was 1.5 cores (" },
		{ "furlongs", 1.5, "cpu was 1.5 furlongs (" },
		{ "bytes", 1e300, "cpu was 1e+300 bytes (" },
		{ "percent", -1, "cpu was -1 percent (" },
	};

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		incident_text(full.rule.unit, sizeof(full.rule.unit), others[i].unit);
		full.rule.value = others[i].value;
		write_to(&full, &text);
		ck_assert_int_eq(buffer_append(&text, "", 1), 0);
		ck_assert_msg(strstr(text.data, others[i].text), "no %s in %s", others[i].text, text.data);
		buffer_release(&text);
	}
}
END_TEST

START_TEST(no_string_reaches_a_terminal_as_a_command)
{
	struct buffer text = { 0 };

	fill(&full);
	for (unsigned i = 0; i < sizeof(full.target.cmdline) - 1; i++)
		full.target.cmdline[i] = (char)(1 + i % 255);
	snprintf(full.target.comm, sizeof(full.target.comm), "\x1b]0;x\x07 \x7f \xc2\x9b");
	write_to(&full, &text);
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.data[i],
			      after = i + 1 < text.len ? (unsigned char)text.data[i + 1] : 0;

		ck_assert(c == '\n' || (c >= 0x20 && c != 0x7f));
		ck_assert(!(c == 0xc2 && after < 0xa0));
	}
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert_str_eq(back.target.comm, "\x1b]0;x\x07 \xef\xbf\xbd \xef\xbf\xbd");
	buffer_release(&text);
}
END_TEST

START_TEST(unknown_numbers_are_null)
{
	struct buffer text = { 0 };

	incident_init(&full, "x");
	full.rule.severity = NAN;
	full.peak_cpu_percent = INFINITY;
	full.peaks.has_cpu = true;
	write_to(&full, &text);
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert_double_eq(back.rule.severity, 0);
	ck_assert_double_eq(back.peak_cpu_percent, 0);
	ck_assert_uint_eq(back.limits.cpu, UINT64_MAX);
	buffer_release(&text);
}
END_TEST

static int parse(const char *text)
{
	return incident_json_parse(text, strlen(text), &back);
}

START_TEST(keys_of_a_later_version_are_passed_over)
{
	ck_assert_int_eq(
		parse(MARKER ",\"new\":{\"a\":[1]},\"kind\":\"unheard-of\",\"rule\":{\"more\":1,\"name\":\"r\"}}"), 0);
	ck_assert_str_eq(back.rule.name, "r");
	ck_assert_int_eq(back.kind, INCIDENT_RULE);
	ck_assert_int_eq(parse("{\"spikewatch_incident\":2}"), -EPROTONOSUPPORT);
	ck_assert_int_eq(parse("{\"spikewatch_incident\":2, \"rule\":7}"), -EPROTONOSUPPORT);
}
END_TEST

START_TEST(merged_firings_of_an_earlier_version_are_those_of_rules)
{
	ck_assert_int_eq(parse(MARKER
			       ",\"merged\":[{\"rule\":\"a\",\"value\":1},{\"kind\":\"manual\",\"rule\":\"manual\"},"
			       "{\"kind\":\"of a later version\"}]}"),
			 0);
	ck_assert_uint_eq(back.merged_count, 3);
	ck_assert_int_eq(back.merged[0].kind, INCIDENT_RULE);
	ck_assert_int_eq(back.merged[1].kind, INCIDENT_MANUAL);
	ck_assert_int_eq(back.merged[2].kind, INCIDENT_RULE);
}
END_TEST

START_TEST(of_everything_has_no_kind_of_target)
{
	ck_assert_int_eq(parse(MARKER ",\"kind\":\"manual\",\"target\":{\"kind\":null,\"name\":\"all\"}}"), 0);
	ck_assert(incident_of_everything(&back));
	ck_assert_int_eq(parse(MARKER ",\"kind\":\"manual\",\"target\":{\"kind\":\"group\",\"name\":\"all\"}}"), 0);
	ck_assert(!incident_of_everything(&back));
	ck_assert_int_eq(parse(MARKER ",\"kind\":\"rule\"}"), 0);
	ck_assert(!incident_of_everything(&back));
}
END_TEST

START_TEST(what_is_none_of_ours_is_refused)
{
	ck_assert_int_eq(parse(""), -EBADMSG);
	ck_assert_int_eq(parse("{}"), -EBADMSG);
	ck_assert_int_eq(parse("[]"), -EBADMSG);
	ck_assert_int_eq(parse("{\"spikewatch_incident\":0}"), -EBADMSG);
	ck_assert_int_eq(parse("{\"spikewatch_incident\":-1}"), -EBADMSG);
	ck_assert_int_eq(parse("{\"spikewatch_incident\":\"1\"}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER), -EBADMSG);
	ck_assert_int_eq(parse(MARKER "}"), 0);
}
END_TEST

START_TEST(values_of_the_wrong_type_are_refused)
{
	ck_assert_int_eq(parse(MARKER ",\"rule\":1}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"name\":1}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"value\":\"1\"}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"count\":4294967296}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"fired\":1.5}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"fired\":1e3}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"fired\":-1}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"fired\":18446744073709551615}}"), 0);
	ck_assert_uint_eq(back.rule.fired, UINT64_MAX);
	ck_assert_int_eq(parse(MARKER ",\"target\":{\"pid\":2147483648}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"target\":{\"pid\":-2147483647}}"), 0);
	ck_assert_int_eq(parse(MARKER ",\"limits\":{\"cpu_is_machine\":1}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"captures\":{}}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"captures\":[1]}"), -EBADMSG);
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"value\":null}}"), 0);
	ck_assert(!back.rule.has_value);
}
END_TEST

START_TEST(a_refused_file_leaves_the_result_alone)
{
	fill(&full);
	back = full;
	ck_assert_int_eq(parse(MARKER ",\"rule\":{\"name\":\"x\",\"fired\":-1}}"), -EBADMSG);
	ck_assert_mem_eq(&back, &full, sizeof(full));
}
END_TEST

START_TEST(long_strings_are_cut_at_a_character)
{
	struct incident_target *target = &full.target;
	char text[8];

	incident_init(&full, "x");
	incident_text(text, sizeof(text), "123456\xc3\xa4");
	ck_assert_str_eq(text, "123456");
	incident_text(text, sizeof(text), "12345\xc3\xa4");
	ck_assert_str_eq(text, "12345\xc3\xa4");
	incident_text(text, sizeof(text), "\x80\x80\x80\x80\x80\x80\x80\x80\x80");
	ck_assert_uint_lt(strlen(text), sizeof(text));
	incident_text(text, sizeof(text), NULL);
	ck_assert_str_eq(text, "");
	memset(target->comm, 'x', sizeof(target->comm) - 1);
	ck_assert_int_eq(parse(MARKER ",\"target\":{\"comm\":\"0123456789012345678901234567890123456789"
				      "0123456789012345678901234567890123456789\"}}"),
			 0);
	ck_assert_uint_eq(strlen(back.target.comm), sizeof(back.target.comm) - 1);
}
END_TEST

START_TEST(lists_are_bounded_both_ways)
{
	struct buffer text = { 0 };

	incident_init(&full, "x");
	for (uint64_t i = 0; i < 100; i++) {
		incident_merge(&full, &(struct incident_firing){ INCIDENT_RULE, { i }, "r", false, 0 });
		incident_add_capture(&full, &(struct incident_capture){ .name = "c" });
	}
	ck_assert_uint_eq(full.merged_total, 100);
	ck_assert_uint_eq(full.merged_count, INCIDENT_MERGED_MAX);
	ck_assert_uint_eq(full.merged[INCIDENT_MERGED_MAX - 2].wall.ns, INCIDENT_MERGED_MAX - 2);
	ck_assert_uint_eq(full.merged[INCIDENT_MERGED_MAX - 1].wall.ns, 99); /* the last one is always there */
	ck_assert_uint_eq(full.capture_count, INCIDENT_CAPTURES_MAX);

	ck_assert_int_eq(buffer_append(&text, MARKER ",\"merged\":[{}", strlen(MARKER ",\"merged\":[{}")), 0);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(buffer_append(&text, ",{}", 3), 0);
	ck_assert_int_eq(buffer_append(&text, "]}", 2), 0);
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert_uint_eq(back.merged_count, INCIDENT_MERGED_MAX);
	buffer_release(&text);
}
END_TEST

START_TEST(the_largest_incident_can_be_read_back)
{
	struct buffer text = { 0 };

	fill(&full);
	memset(full.target.cmdline, 1, sizeof(full.target.cmdline) - 1);
	memset(full.target.cgroup, 1, sizeof(full.target.cgroup) - 1);
	memset(full.target.name, 1, sizeof(full.target.name) - 1);
	memset(full.rule.name, 1, sizeof(full.rule.name) - 1);
	for (int i = 0; i < 100; i++) {
		struct incident_firing firing = { .has_value = true, .value = 1e300, .wall = { UINT64_MAX } };
		struct incident_capture capture = { .bytes = UINT64_MAX };

		memset(firing.rule, 1, sizeof(firing.rule) - 1);
		memset(capture.name, 1, sizeof(capture.name) - 1);
		memset(capture.file, 1, sizeof(capture.file) - 1);
		memset(capture.why, 1, sizeof(capture.why) - 1);
		incident_merge(&full, &firing);
		incident_add_capture(&full, &capture);
	}
	write_to(&full, &text);
	ck_assert_uint_lt(text.len, INCIDENT_BYTES_MAX / 2);
	ck_assert_int_eq(incident_json_parse(text.data, text.len, &back), 0);
	ck_assert_uint_eq(back.capture_count, INCIDENT_CAPTURES_MAX);
	buffer_release(&text);
}
END_TEST

/* ---- severity and names ---- */

START_TEST(severity_is_value_over_threshold)
{
	struct incident_rule rule = { .has_value = true,
				      .value = 140,
				      .reason = "above-percent",
				      .thresholds = { .has_percent = true, .percent = 70 } };

	ck_assert_double_eq(incident_severity(&rule), 2);
	snprintf(rule.reason, sizeof(rule.reason), "above-average");
	rule.has_average = true;
	rule.average = 50;
	rule.thresholds.has_delta = true;
	rule.thresholds.delta = 40;
	ck_assert_double_eq(incident_severity(&rule), 2);
	rule.average = 0;
	ck_assert_double_eq(incident_severity(&rule), 1); /* infinitely more than nothing says little */
	rule.has_average = false;
	ck_assert_double_eq(incident_severity(&rule), 0);
	rule.reason[0] = '\0';
	ck_assert_double_eq(incident_severity(&rule), 0);
	snprintf(rule.reason, sizeof(rule.reason), "above-percent");
	rule.value = NAN;
	ck_assert_double_eq(incident_severity(&rule), 0);
	rule.value = -5;
	ck_assert_double_eq(incident_severity(&rule), 0);
	rule.value = 140;
	rule.has_value = false;
	ck_assert_double_eq(incident_severity(&rule), 0);
}
END_TEST

START_TEST(names_are_safe_and_bounded)
{
	char name[INCIDENT_NAME_MAX + 1], longest[300];

	incident_stem(when, "web/1234", "../../etc\n\x1b", name, sizeof(name));
	ck_assert_str_eq(name, "20261120T031502.123Z-web_1234-.._.._etc__");
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	incident_stem((wall_t){ UINT64_MAX }, longest, longest, name, sizeof(name));
	ck_assert_uint_le(strlen(name), INCIDENT_NAME_MAX - 5);
	incident_stem(when, "", "", name, sizeof(name));
	ck_assert_str_eq(name, "20261120T031502.123Z--");
}
END_TEST

START_TEST(names_of_others_are_not_taken_for_ours)
{
	ck_assert(incident_name_ok("20261120T031502.123Z-web_1234-cpu-1"));
	ck_assert(incident_name_ok("20261120T031502.123Z---12"));
	ck_assert(!incident_name_ok("20261120T031502.123Z-web_1234-cpu"));
	ck_assert(!incident_name_ok("20261120T031502.123Z-web_1234-cpu-1.tmp"));
	ck_assert(!incident_name_ok("20261120T031502.123Z-web/1234-cpu-1"));
	ck_assert(!incident_name_ok("20261120T031502.123Z-1"));
	ck_assert(!incident_name_ok("20261120T031502.123Z-"));
	ck_assert(!incident_name_ok("20261120T031502.123"));
	ck_assert(!incident_name_ok("2026112xT031502.123Z-web-cpu-1"));
	ck_assert(!incident_name_ok("home"));
	ck_assert(!incident_name_ok(".."));
	ck_assert(!incident_name_ok(""));
}
END_TEST

/* ---- anomalies ---- */

START_TEST(every_prefix_is_refused_or_read)
{
	struct buffer text = { 0 };

	fill(&full);
	write_to(&full, &text);
	for (size_t len = 0; len + 1 < text.len; len++) {
		char *piece = malloc(len + 1);

		memcpy(piece, text.data, len);
		ck_assert_int_eq(incident_json_parse(piece, len, &back), len + 1 == text.len ? 0 : -EBADMSG);
		free(piece);
	}
	buffer_release(&text);
}
END_TEST

START_TEST(every_failing_write_is_reported)
{
	struct buffer text = { 0 };
	long bytes = 0;

	fill(&full);
	write_to(&full, &text);
	for (; bytes < (long)text.len; bytes += 31) {
		long left = bytes;

		ck_assert_int_eq(incident_json_write(&full, torture_sink(&left)), -EIO);
	}
	buffer_release(&text);
}
END_TEST

START_TEST(every_failing_allocation_is_reported)
{
	struct buffer text = { 0 };
	bool injected = true;

	fill(&full);
	write_to(&full, &text);
	for (long n = 1; injected; n++) {
		struct buffer again = { 0 };
		int r;

		torture_arm(n);
		r = incident_json_write(&full, sink_buffer(&again));
		if (r == 0)
			r = incident_json_parse(text.data, text.len, &back);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		buffer_release(&again);
	}
	buffer_release(&text);
}
END_TEST

START_TEST(only_a_plain_file_of_sane_size_is_read)
{
	char directory[] = "/tmp/check_incident.XXXXXX";
	int dirfd, fd;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	dirfd = open(directory, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(incident_json_read(dirfd, &back), -ENOENT);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd, INCIDENT_FILE), 0);
	ck_assert_int_eq(incident_json_read(dirfd, &back), -EBADMSG);
	unlinkat(dirfd, INCIDENT_FILE, 0);
	fd = openat(dirfd, INCIDENT_FILE, O_CREAT | O_RDWR, 0600);
	ck_assert_int_eq(write(fd, MARKER "}", strlen(MARKER "}")), (ssize_t)strlen(MARKER "}"));
	ck_assert_int_eq(incident_json_read(dirfd, &back), 0);
	ck_assert_int_eq(ftruncate(fd, INCIDENT_BYTES_MAX + 1), 0);
	ck_assert_int_eq(incident_json_read(dirfd, &back), -EFBIG);
	close(fd);
	unlinkat(dirfd, INCIDENT_FILE, 0);
	close(dirfd);
	rmdir(directory);
}
END_TEST

Suite *incident_suite(void);
Suite *incident_suite(void)
{
	Suite *suite = suite_create("incident");
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, what_is_written_is_read);
	tcase_add_test(tcase, a_container_is_read_back_and_without_one_there_is_no_key);
	tcase_add_test(tcase, labels_of_the_container_are_with_the_target);
	tcase_add_test(tcase, labels_that_are_none_are_passed_over);
	tcase_add_test(tcase, rules_and_lists_are_read_back);
	tcase_add_test(tcase, people_can_read_it);
	tcase_add_test(tcase, no_string_reaches_a_terminal_as_a_command);
	tcase_add_test(tcase, unknown_numbers_are_null);
	tcase_add_test(tcase, keys_of_a_later_version_are_passed_over);
	tcase_add_test(tcase, merged_firings_of_an_earlier_version_are_those_of_rules);
	tcase_add_test(tcase, of_everything_has_no_kind_of_target);
	tcase_add_test(tcase, what_is_none_of_ours_is_refused);
	tcase_add_test(tcase, values_of_the_wrong_type_are_refused);
	tcase_add_test(tcase, a_refused_file_leaves_the_result_alone);
	tcase_add_test(tcase, long_strings_are_cut_at_a_character);
	tcase_add_test(tcase, lists_are_bounded_both_ways);
	tcase_add_test(tcase, the_largest_incident_can_be_read_back);
	tcase_add_test(tcase, severity_is_value_over_threshold);
	tcase_add_test(tcase, names_are_safe_and_bounded);
	tcase_add_test(tcase, names_of_others_are_not_taken_for_ours);
	tcase_add_test(tcase, every_prefix_is_refused_or_read);
	tcase_add_test(tcase, every_failing_write_is_reported);
	tcase_add_test(tcase, every_failing_allocation_is_reported);
	tcase_add_test(tcase, only_a_plain_file_of_sane_size_is_read);
	suite_add_tcase(suite, tcase);
	return suite;
}
