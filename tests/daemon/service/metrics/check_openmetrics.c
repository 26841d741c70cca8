/*
 * check_openmetrics.c: both forms to the letter, values that must come back, hostile labels, what
 * clients ask for, every failing write.
 */
#include "daemon/service/metrics/exposition.h"

#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *openmetrics_suite(void);

static const struct openmetrics_family seconds = { "x_busy_seconds", OPENMETRICS_COUNTER, "seconds", "Time spent." };
static const struct openmetrics_family gauge = { "x_targets", OPENMETRICS_GAUGE, "", "Targets." };
static const struct openmetrics_family build = { "x_build", OPENMETRICS_INFO, "", "Version." };
static const struct openmetrics_family unused = { "x_unused", OPENMETRICS_GAUGE, "", "Nothing." };

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
	openmetrics_family(&writer, &build);
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
static void value_is(int (*put)(struct openmetrics *writer), const char *text)
{
	struct buffer out = { 0 };
	struct openmetrics writer;

	openmetrics_init(&writer, sink_buffer(&out), OPENMETRICS_0_0_4);
	openmetrics_family(&writer, &gauge);
	ck_assert_int_eq(put(&writer), 0);
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

Suite *openmetrics_suite(void)
{
	Suite *suite = suite_create("openmetrics");
	TCase *tcase = tcase_create("writer");

	tcase_add_test(tcase, openmetrics_is_to_the_letter);
	tcase_add_test(tcase, the_older_form_is_to_the_letter);
	tcase_add_test(tcase, values_come_back_as_they_were);
	tcase_add_test(tcase, hostile_labels_are_harmless);
	tcase_add_test(tcase, clients_get_the_form_that_they_prefer);
	tcase_add_test(tcase, the_first_error_stays);
	suite_add_tcase(suite, tcase);

	return suite;
}
