/* check_json_member.c: each kind of member, as it is written. */
#include "lib/base/json.h"
#include "lib/model/target.h"
#include "lib/base/io.h"

#include <check.h>
#include <math.h>
#include <string.h>

Suite *json_member_suite(void);

START_TEST(members_are_a_key_and_a_value)
{
	struct buffer buffer = { 0 };
	struct json_writer *json;

	ck_assert_int_eq(json_writer_new(sink_buffer(&buffer), false, &json), 0);
	json_begin_object(json);
	json_member_double(json, "double", 1.5);
	json_member_double(json, "unknown", NAN);
	json_member_u64(json, "u64", UINT64_MAX);
	json_member_i64(json, "i64", INT64_MIN);
	json_member_bool(json, "yes", true);
	json_member_bool(json, "no", false);
	json_member_null(json, "null");
	json_member_text(json, "text", "a\x1b[2J\"");
	json_member_object(json, "object");
	json_member_array(json, "array");
	json_u64(json, 1);
	json_end_array(json);
	json_end_object(json);
	json_end_object(json);
	ck_assert_int_eq(json_writer_close(json), 0);
	ck_assert_int_eq(buffer_append(&buffer, "", 1), 0);
	ck_assert_str_eq(buffer.data, "{\"double\":1.5,\"unknown\":null,\"u64\":18446744073709551615,"
				      "\"i64\":-9223372036854775808,\"yes\":true,\"no\":false,\"null\":null,"
				      "\"text\":\"a\\u001B[2J\\\"\",\"object\":{\"array\":[1]}}\n");
	buffer_release(&buffer);
}
END_TEST

/* Of hidden characters each becomes longer; a value that is cut would be another value. */
START_TEST(the_longest_label_is_whole)
{
	struct labels labels = { .count = 0 };
	struct buffer buffer = { 0 };
	struct json_writer *json;
	char value[LABELS_BYTES_MAX - 4];
	size_t characters = sizeof(value) / 2, found = 0;

	for (size_t i = 0; i < characters; i++)
		memcpy(value + 2 * i, "\xc2\x9b", 2);
	labels_add(&labels, "k", 1, value, 2 * characters);
	ck_assert_uint_eq(labels.count, 1);
	ck_assert_int_eq(json_writer_new(sink_buffer(&buffer), false, &json), 0);
	json_begin_object(json);
	labels_json(json, "labels", &labels);
	json_end_object(json);
	ck_assert_int_eq(json_writer_close(json), 0);
	ck_assert_int_eq(buffer_append(&buffer, "", 1), 0);
	for (const char *at = buffer.data; (at = strstr(at, "\xef\xbf\xbd")) != NULL; at += 3)
		found++;
	ck_assert_uint_eq(found, characters);
	buffer_release(&buffer);
}
END_TEST

Suite *json_member_suite(void)
{
	Suite *suite = suite_create("json_member");
	TCase *tcase = tcase_create("jsonmember");

	tcase_add_test(tcase, members_are_a_key_and_a_value);
	tcase_add_test(tcase, the_longest_label_is_whole);
	suite_add_tcase(suite, tcase);
	return suite;
}
