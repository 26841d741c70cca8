/* JSON in: the tree and its places, and what people are told. JSON out. */
#include <string.h>
#include <yajl/yajl_parse.h>

/* What yajl was given to decode. */
static char handed_to_yajl[256];

static yajl_status recorded_parse(yajl_handle yajl, const unsigned char *text, size_t len)
{
	if (len < sizeof(handed_to_yajl)) {
		memcpy(handed_to_yajl, text, len);
		handed_to_yajl[len] = '\0';
	}
	return yajl_parse(yajl, text, len);
}

#define yajl_parse recorded_parse
#include "lib/base/json.c"
#undef yajl_parse

#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *json_suite(void);

/* An unpatched yajl reads past the end of some strings with half of a pair: it must not see any. */
START_TEST(yajl_decodes_no_half_of_a_surrogate_pair)
{
	static const struct {
		const char *text, *handed;
	} cases[] = {
		{ "\"\\ud800\\\\u\"", "" },
		{ "\"\\ud800\\u\"", "" },
		{ "\"\\ud800\"", "" },
		{ "[1, \"\\uDBFF\\u0041\"]", "[1, " },
		{ "{\"a\": 1, \"\\udc00\\ud800\": 2}", "{\"a\": 1, " },
		{ "[\"x\", \"\\ud83d\\ude00\", \"\\ud83d\\ude00\\ude00\"]", "[\"x\", \"\\ud83d\\ude00\", " },
		{ "[\"\\\\\", /* \" */ \"\\\"\\ud800\"]", "[\"\\\\\", /* \" */ " },
		{ "[ // \"\n\"\\ud9ab\\\"\", 1]", "[ // \"\n" },
		{ "[\"\\\\ud800\"]", "[\"\\\\ud800\"]" },
		{ "/* \"\\ud800\" */ [\"\\ud834\\udd1e\"]", "/* \"\\ud800\" */ [\"\\ud834\\udd1e\"]" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct json_document *document = NULL;
		struct json_error err;
		int r = json_parse(cases[i].text, strlen(cases[i].text), NULL, &document, &err);

		ck_assert_str_eq(handed_to_yajl, cases[i].handed);
		ck_assert_int_eq(r, strcmp(cases[i].text, cases[i].handed) == 0 ? 0 : -EBADMSG);
		json_document_free(document);
	}
}
END_TEST

static struct json_document *parsed(const char *text)
{
	struct json_document *document = NULL;
	struct json_error err = { .message = "" };
	int r = json_parse(text, strlen(text), NULL, &document, &err);

	ck_assert_msg(r == 0, "%s: %u:%u: %s", text, err.place.line, err.place.column, err.message);
	return document;
}

static void assert_place(struct json_place place, unsigned line, unsigned column)
{
	ck_assert_uint_eq(place.line, line);
	ck_assert_uint_eq(place.column, column);
}

START_TEST(every_value_and_key_knows_its_place)
{
	struct json_document *document = parsed("// head\n"
						"{ \"a\" : [1, \"x\\ny\", /* c */ true],\n"
						"\t\"b\":\n"
						"\t\t{\"c\":null , \"d\": -2.5e1}\n"
						"}");
	const struct json_node *root = json_root(document);
	const struct json_node *a = json_member(root, "a");
	const struct json_node *b = json_member(root, "b");

	assert_place(root->place, 2, 1);
	ck_assert_uint_eq(root->count, 2);
	assert_place(a->key_place, 2, 3);
	assert_place(a->place, 2, 9);
	ck_assert_int_eq(a->type, JSON_ARRAY);
	ck_assert_uint_eq(a->count, 3);
	assert_place(a->first->place, 2, 10);
	assert_place(a->first->next->place, 2, 13);
	ck_assert_str_eq(a->first->next->text, "x\ny");
	ck_assert_uint_eq(a->first->next->text_len, 3);
	assert_place(a->first->next->next->place, 2, 29);
	ck_assert(a->first->next->next->boolean);
	ck_assert_ptr_null(a->first->next->next->next);
	assert_place(b->key_place, 3, 2);
	assert_place(b->place, 4, 3);
	assert_place(json_member(b, "c")->place, 4, 8);
	assert_place(json_member(b, "d")->key_place, 4, 15);
	assert_place(json_member(b, "d")->place, 4, 20);
	ck_assert_double_eq(json_member(b, "d")->number, -25);
	ck_assert_str_eq(json_member(b, "d")->text, "-2.5e1");
	ck_assert_ptr_null(json_member(root, "c"));
	ck_assert_ptr_null(json_member(a, "a"));
	json_document_free(document);
}
END_TEST

START_TEST(value_that_is_the_whole_text_is_read)
{
	static const char *const texts[] = { "12", " 12 ", "12//", "\"x\"", "true", "null", "[]", "{}", "12/**/" };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		json_document_free(parsed(texts[i]));
}
END_TEST

START_TEST(nul_in_keys_and_strings_is_kept)
{
	struct json_document *document = parsed("{\"a\\u0000b\": \"c\\u0000d\", \"a\": 1}");
	const struct json_node *first = json_root(document)->first;

	ck_assert_uint_eq(first->key_len, 3);
	ck_assert_mem_eq(first->key, "a\0b", 4);
	ck_assert_uint_eq(first->text_len, 3);
	ck_assert_mem_eq(first->text, "c\0d", 4);
	ck_assert_ptr_eq(json_member(json_root(document), "a"), first->next);
	json_document_free(document);
}
END_TEST

struct bad {
	const char *text;
	unsigned line, column;
	const char *message;
};

static const struct bad bad_texts[] = {
	{ "", 1, 1, "there is no value: expected an object or another JSON value" },
	{ " // nothing\n", 2, 1, "there is no value: expected an object or another JSON value" },
	{ "{\n\n", 3, 1, "the file ends inside an object opened at line 1: expected a key in double quotes or \"}\"" },
	{ "{\n{", 2, 1, "expected a key in double quotes or \"}\", found \"{\"" },
	{ "{\"a\"", 1, 5, "the file ends inside an object opened at line 1: expected \":\" after the key" },
	{ "{\"a\":", 1, 6, "the file ends inside an object opened at line 1: expected a value" },
	{ "{\"a\":\n[1", 2, 3, "the file ends inside an array opened at line 2: expected \",\" or \"]\"" },
	{ "{\"a\":1,", 1, 8,
	  "the file ends inside an object opened at line 1: expected a key in double quotes after \",\"" },
	{ "[1,", 1, 4, "the file ends inside an array opened at line 1: expected a value after \",\"" },
	{ "[1,]", 1, 4, "expected a value after \",\", found \"]\": remove the \",\" before it" },
	{ "{\"a\":1,\n}", 2, 1,
	  "expected a key in double quotes after \",\", found \"}\": remove the \",\" before it" },
	{ "{\"a\": 10ms}", 1, 7, "10ms is no number: expected double quotes around it: \"10ms\"" },
	{ "[01]", 1, 2, "malformed number 01: expected a number such as 10 or 0.5" },
	{ "[1.]", 1, 2, "malformed number 1.: expected a number such as 10 or 0.5" },
	{ "[-]", 1, 2, "malformed number -: expected a number such as 10 or 0.5" },
	{ "[.5]", 1, 2, "malformed number .5: expected a number such as 10 or 0.5" },
	{ "[1e999]", 1, 2, "number too large: expected at most 1.7e308" },
	{ "{\"a\": yes}", 1, 7, "expected a value, found the word yes: text takes double quotes" },
	{ "{a: 1}", 1, 2, "expected a key in double quotes or \"}\", found a" },
	{ "{'a': 1}", 1, 2, "expected a key in double quotes or \"}\", found \"'\": text takes double quotes" },
	{ "# x", 1, 1, "expected a value, found \"#\": comments begin with //" },
	{ "{\"a\" 1}", 1, 6, "expected \":\" after the key, found 1" },
	{ "[\"a\" \"b\"]", 1, 6, "expected \",\" or \"]\", found the string \"b\"" },
	{ "[1}", 1, 3, "expected \",\" or \"]\", found \"}\"" },
	{ "{} x", 1, 4, "expected nothing after the end of the first value, found x" },
	{ "{}\n\"abc", 2, 1, "the file ends inside this string: expected the closing \"" },
	{ "{} /* x", 1, 4, "this comment is not closed: expected */" },
	{ "{ /* x", 1, 3, "this comment is not closed: expected */" },
	{ "[\"ab", 1, 2, "the file ends inside this string: expected the closing \"" },
	{ "[\"ab\\", 1, 2, "the file ends inside this string: expected the closing \"" },
	{ "[\"ab\\u12", 1, 2, "the file ends inside this string: expected the closing \"" },
	{ "[\"a\nb\"]", 1, 4, "a line ends inside a string: expected the closing \", or \\n for a line break" },
	{ "[\"a\tb\"]", 1, 4, "control character 0x09 inside a string: expected \\u0009" },
	{ "[\"\\q\"]", 1, 3,
	  "unknown escape \"\\q\" in a string: expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX" },
	{ "[\"\\u12G4\"]", 1, 3, "bad escape in a string: expected four hexadecimal digits after \\u" },
	{ "[\"\\ud800\"]", 1, 2,
	  "half of a surrogate pair in a string: expected two escapes, or the character itself" },
	{ "{\"\\udc00\":1}", 1, 2,
	  "half of a surrogate pair in a string: expected two escapes, or the character itself" },
	{ "{\"a\":1,\n \"b\":{\"a\":2},\n \"a\":3}", 3, 2, "duplicate key \"a\": already given at line 1, column 2" },
	{ "\xef\xbb\xbf{}", 1, 1, "expected a value, found a byte order mark: remove it" },
	{ "{\"a\":\xc3\xa9}", 1, 6, "expected a value, found \"\xc3\xa9\"" },
	{ "[\n\"\xff\"]", 2, 2, "byte 0xff is no UTF-8: expected UTF-8 text" },
	{ "[\"\xc0\xaf\"]", 1, 3, "byte 0xc0 is no UTF-8: expected UTF-8 text" },
	{ "[\"\xed\xa0\x80\"]", 1, 3, "byte 0xed is no UTF-8: expected UTF-8 text" },
	{ "[\"\xf4\x90\x80\x80\"]", 1, 3, "byte 0xf4 is no UTF-8: expected UTF-8 text" },
	{ "[\"\xe2\x82\"]", 1, 3, "byte 0xe2 is no UTF-8: expected UTF-8 text" },
	{ "\x01", 1, 1, "expected a value, found byte 0x01" },
};

START_TEST(bad_text_is_refused_with_place_and_expectation)
{
	const struct bad *bad = &bad_texts[_i];
	struct json_document *document = NULL;
	struct json_error err;

	ck_assert_int_eq(json_parse(bad->text, strlen(bad->text), NULL, &document, &err), -EBADMSG);
	ck_assert_str_eq(err.message, bad->message);
	assert_place(err.place, bad->line, bad->column);
	ck_assert_ptr_null(document);
	ck_assert_int_eq(json_parse(bad->text, strlen(bad->text), NULL, &document, NULL), -EBADMSG);
}
END_TEST

START_TEST(nul_byte_in_the_text_is_refused)
{
	struct json_document *document = NULL;
	struct json_error err;

	ck_assert_int_eq(json_parse("{\0}", 3, NULL, &document, &err), -EBADMSG);
	ck_assert_str_eq(err.message, "expected a key in double quotes or \"}\", found byte 0x00");
}
END_TEST

START_TEST(each_prefix_of_a_document_is_refused)
{
	static const char text[] = "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\", true, {}], /* c */ \"b\": {\"c\": null}}";
	struct json_document *document = NULL;
	struct json_error err;

	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		err.message[0] = '\0';
		ck_assert_int_eq(json_parse(text, len, NULL, &document, &err), -EBADMSG);
		ck_assert_str_ne(err.message, "");
	}
}
END_TEST

START_TEST(depth_beyond_the_limit_is_refused_and_never_recurses)
{
	enum { DEEP = 10000 };
	AUTO_FREE char *text = calloc(2 * DEEP, 1);
	struct json_limits limits = { .depth = DEEP };
	struct json_document *document = NULL;
	struct json_error err;

	memset(text, '[', DEEP);
	memset(text + DEEP, ']', DEEP);
	ck_assert_int_eq(json_parse(text, 2 * DEEP, NULL, &document, &err), -ELOOP);
	ck_assert_str_eq(err.message, "nested too deep: expected at most 16 levels");
	assert_place(err.place, 1, 17);

	ck_assert_int_eq(json_parse(text, 2 * DEEP, &limits, &document, &err), 0);
	json_document_free(document);
	limits.depth = DEEP - 1;
	ck_assert_int_eq(json_parse(text, 2 * DEEP, &limits, &document, &err), -ELOOP);
	assert_place(err.place, 1, DEEP);
}
END_TEST

START_TEST(size_and_nodes_are_limited)
{
	struct json_limits limits = { .size_bytes = 8, .nodes = 3 };
	struct json_document *document = NULL;
	struct json_error err;

	ck_assert_int_eq(json_parse("[1,2]   ", 8, &limits, &document, &err), 0);
	json_document_free(document);
	ck_assert_int_eq(json_parse("[1,2]    ", 9, &limits, &document, &err), -EFBIG);
	ck_assert_str_eq(err.message, "too large: 9 bytes, expected at most 8");
	ck_assert_int_eq(json_parse("[1,2,3]", 7, &limits, &document, &err), -EFBIG);
	ck_assert_str_eq(err.message, "too many values: expected at most 3");
	assert_place(err.place, 1, 6);
}
END_TEST

START_TEST(many_keys_are_checked_for_duplicates_in_linear_time)
{
	enum { KEYS = 60000 };
	struct buffer text = { 0 };
	struct json_document *document = NULL;
	struct json_limits limits = { .size_bytes = 4 * 1024 * 1024 };
	struct json_error err;
	char member[32];

	buffer_append(&text, "{", 1);
	for (int i = 0; i < KEYS; i++)
		buffer_append(&text, member, (size_t)snprintf(member, sizeof(member), "\"k%d\":1,\n", i));
	buffer_append(&text, "\"k7\":1}", 7);
	ck_assert_int_eq(json_parse(text.data, text.len, &limits, &document, &err), -EBADMSG);
	ck_assert_str_eq(err.message, "duplicate key \"k7\": already given at line 8, column 1");
	assert_place(err.place, KEYS + 1, 1);
	buffer_release(&text);
}
END_TEST

START_TEST(each_allocation_of_a_parse_may_fail)
{
	static const char text[] = "{\"a\": [1, \"\\n\", true, {}], \"b\": {\"c\": null}}";
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct json_document *document = NULL;
		struct json_error err;
		int r;

		torture_arm(n);
		r = json_parse(text, sizeof(text) - 1, NULL, &document, &err);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert(injected == (document == NULL));
		json_document_free(document);
	}
}
END_TEST

/* ---- out ---- */

static void write_sample(struct json_writer *writer)
{
	json_begin_object(writer);
	json_key(writer, "name");
	json_string(writer, "a\"b\\\n\x01\xc3\xa9");
	json_key(writer, "numbers");
	json_begin_array(writer);
	json_u64(writer, UINT64_MAX);
	json_i64(writer, INT64_MIN);
	json_double(writer, 0.5);
	json_end_array(writer);
	json_key(writer, "empty");
	json_begin_object(writer);
	json_end_object(writer);
	json_key(writer, "none");
	json_begin_array(writer);
	json_end_array(writer);
	json_key(writer, "yes");
	json_bool(writer, true);
	json_key(writer, "null");
	json_null(writer);
	json_end_object(writer);
}

static void assert_written(bool indent, const char *expected)
{
	struct buffer buffer = { 0 };
	struct json_writer *writer;

	ck_assert_int_eq(json_writer_new(sink_buffer(&buffer), indent, &writer), 0);
	write_sample(writer);
	ck_assert_int_eq(json_writer_close(writer), 0);
	buffer_append(&buffer, "", 1);
	ck_assert_str_eq(buffer.data, expected);
	buffer_release(&buffer);
}

START_TEST(writes_one_line_or_many)
{
	assert_written(false, "{\"name\":\"a\\\"b\\\\\\n\\u0001\xc3\xa9\",\"numbers\":[18446744073709551615,"
			      "-9223372036854775808,0.5],\"empty\":{},\"none\":[],\"yes\":true,\"null\":null}\n");
	assert_written(true, "{\n"
			     "  \"name\": \"a\\\"b\\\\\\n\\u0001\xc3\xa9\",\n"
			     "  \"numbers\": [\n"
			     "    18446744073709551615,\n"
			     "    -9223372036854775808,\n"
			     "    0.5\n"
			     "  ],\n"
			     "  \"empty\": {},\n"
			     "  \"none\": [],\n"
			     "  \"yes\": true,\n"
			     "  \"null\": null\n"
			     "}\n");
}
END_TEST

static void assert_value(int (*write)(struct json_writer *writer, const void *value), const void *value,
			 const char *expected)
{
	struct buffer buffer = { 0 };
	struct json_writer *writer;

	ck_assert_int_eq(json_writer_new(sink_buffer(&buffer), false, &writer), 0);
	ck_assert_int_eq(write(writer, value), 0);
	ck_assert_int_eq(json_writer_close(writer), 0);
	buffer_append(&buffer, "", 1);
	ck_assert_str_eq(buffer.data, expected);
	buffer_release(&buffer);
}

static int write_double(struct json_writer *writer, const void *value)
{
	return json_double(writer, *(const double *)value);
}

static int write_text(struct json_writer *writer, const void *value)
{
	return json_string(writer, value);
}

START_TEST(numbers_are_short_and_always_json)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {
		{ 0, "0\n" },
		{ -0.0, "0\n" },
		{ 1, "1\n" },
		{ 100, "100\n" },
		{ 70.25, "70.25\n" },
		{ -12.5, "-12.5\n" },
		{ 1.0 / 3, "0.333333\n" },
		{ 123456789.5, "123456789.5\n" },
		{ 0.00025, "0.00025\n" },
		{ 1.5e-9, "1.5e-09\n" },
		{ -7, "-7\n" },
		{ 1000, "1000\n" },
		{ 0.001, "0.001\n" },
		{ 999999999999999, "999999999999999\n" },
		{ -999999999999999, "-999999999999999\n" },
		{ 1e15, "1000000000000000\n" },
		{ -1e15, "-1000000000000000\n" },
		{ 1e300, "1.0000000000000001e+300\n" },
		{ NAN, "null\n" },
		{ INFINITY, "null\n" },
		{ -INFINITY, "null\n" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_value(write_double, &cases[i].value, cases[i].text);
}
END_TEST

START_TEST(bytes_that_are_no_characters_are_replaced)
{
	assert_value(write_text,
		     "a\xff"
		     "b",
		     "\"a\xef\xbf\xbd"
		     "b\"\n");
	assert_value(write_text, "\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"\n");
	assert_value(write_text, "\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"\n");
	assert_value(write_text, "\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\"\n");
	assert_value(write_text, "", "\"\"\n");
}
END_TEST

START_TEST(first_failed_write_is_returned_ever_after)
{
	for (long room = 0; room < 6000; room += 500) {
		long left = room;
		struct json_writer *writer;
		int r = 0;

		ck_assert_int_eq(json_writer_new(torture_sink(&left), true, &writer), 0);
		json_begin_array(writer);
		for (int i = 0; i < 2000; i++) {
			int next = json_u64(writer, 12345);

			ck_assert(r == 0 || next == r);
			r = next;
		}
		ck_assert_int_eq(r, -EIO);
		ck_assert_int_eq(json_end_array(writer), -EIO);
		ck_assert_int_eq(json_writer_close(writer), -EIO);
	}
}
END_TEST

START_TEST(last_bytes_that_cannot_be_written_are_an_error_of_close)
{
	long left = 3;
	struct json_writer *writer;

	ck_assert_int_eq(json_writer_new(torture_sink(&left), false, &writer), 0);
	ck_assert_int_eq(json_string(writer, "abc"), 0);
	ck_assert_int_eq(json_writer_close(writer), -EIO);
	ck_assert_int_eq(json_writer_close(NULL), 0);
}
END_TEST

START_TEST(each_allocation_of_a_writer_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct buffer buffer = { .data = malloc(4096), .cap = 4096 };
		struct json_writer *writer = NULL;
		int r;

		torture_arm(n);
		r = json_writer_new(sink_buffer(&buffer), true, &writer);
		if (r == 0) {
			json_begin_array(writer);
			json_string(writer, "\xff");
			json_end_array(writer);
			r = json_writer_close(writer);
		}
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		buffer_release(&buffer);
	}
}
END_TEST

Suite *json_suite(void)
{
	Suite *suite = suite_create("json");
	TCase *in = tcase_create("in");
	TCase *out = tcase_create("out");

	tcase_add_test(in, every_value_and_key_knows_its_place);
	tcase_add_test(in, value_that_is_the_whole_text_is_read);
	tcase_add_test(in, nul_in_keys_and_strings_is_kept);
	tcase_add_loop_test(in, bad_text_is_refused_with_place_and_expectation, 0, (int)ARRAY_LEN(bad_texts));
	tcase_add_test(in, nul_byte_in_the_text_is_refused);
	tcase_add_test(in, yajl_decodes_no_half_of_a_surrogate_pair);
	tcase_add_test(in, each_prefix_of_a_document_is_refused);
	tcase_add_test(in, depth_beyond_the_limit_is_refused_and_never_recurses);
	tcase_add_test(in, size_and_nodes_are_limited);
	tcase_add_test(in, many_keys_are_checked_for_duplicates_in_linear_time);
	tcase_add_test(in, each_allocation_of_a_parse_may_fail);
	suite_add_tcase(suite, in);
	tcase_add_test(out, writes_one_line_or_many);
	tcase_add_test(out, numbers_are_short_and_always_json);
	tcase_add_test(out, bytes_that_are_no_characters_are_replaced);
	tcase_add_test(out, first_failed_write_is_returned_ever_after);
	tcase_add_test(out, last_bytes_that_cannot_be_written_are_an_error_of_close);
	tcase_add_test(out, each_allocation_of_a_writer_may_fail);
	suite_add_tcase(suite, out);
	return suite;
}
