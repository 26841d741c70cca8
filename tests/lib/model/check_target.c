/* Targets as bytes: there and back, cut to fit, damaged. */
#include "lib/model/target.h"

#include <check.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 982 /* bytes for all strings together */

static struct target a_process(void)
{
	return (struct target){
		.id = 7,
		.kind = TARGET_PROCESS,
		.pid = 1234,
		.start_ticks = 567890,
		.entry = "postgres",
		.name = "postgres/1234",
		.key = "postgres:1234@567890",
		.comm = "postgres: a b)",
		.cmdline = "postgres: writer \xff\n\t process",
		.cgroup = "/system.slice/postgres.service",
	};
}

static void assert_same(const struct target *a, const struct target *b)
{
	ck_assert_uint_eq(a->id, b->id);
	ck_assert_int_eq(a->kind, b->kind);
	ck_assert_int_eq(a->pid, b->pid);
	ck_assert_uint_eq(a->start_ticks, b->start_ticks);
	ck_assert_str_eq(a->entry, b->entry);
	ck_assert_str_eq(a->name, b->name);
	ck_assert_str_eq(a->key, b->key);
	ck_assert_str_eq(a->comm, b->comm);
	ck_assert_str_eq(a->cmdline, b->cmdline);
	ck_assert_str_eq(a->cgroup, b->cgroup);
	ck_assert_str_eq(a->container ? a->container : "", b->container ? b->container : "");
}

static char *repeat(const char *piece, size_t count)
{
	size_t len = strlen(piece);
	char *text = malloc(len * count + 1);

	ck_assert_ptr_ne(text, NULL);
	for (size_t i = 0; i < count; i++)
		memcpy(text + i * len, piece, len);
	text[len * count] = '\0';
	return text;
}

/* Encodes into the middle of a guarded buffer, decodes again. */
static size_t there_and_back(const struct target *target, char buf[TARGET_ENCODED_MAX + 1], struct target *ret)
{
	size_t len;

	buf[TARGET_ENCODED_MAX] = 'g';
	len = target_encode(target, buf, TARGET_ENCODED_MAX);
	ck_assert_uint_le(len, TARGET_ENCODED_MAX);
	ck_assert_int_eq(buf[TARGET_ENCODED_MAX], 'g');
	ck_assert_int_eq(target_decode(buf, len, ret), 0);
	return len;
}

START_TEST(what_was_encoded_decodes_to_the_same)
{
	const struct target targets[] = {
		a_process(),
		{ 1, TARGET_CGROUP, 0, 0, "web", "/a/b", "web:/a/b", "", "", "/a/b", "docker\tid\tweb" },
		{ UINT32_MAX, TARGET_GROUP, INT32_MAX, UINT64_MAX, "", "", "", "", "", "", "" },
	};
	char buf[TARGET_ENCODED_MAX + 1];

	for (size_t i = 0; i < 3; i++) {
		struct target back;

		there_and_back(&targets[i], buf, &back);
		assert_same(&targets[i], &back);
	}
}
END_TEST

START_TEST(of_a_container_its_image_is_cut_before_names_are)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX + 1];
	char *path = repeat("0123456789", 30), *longer = repeat("x", 900);

	target.cgroup = target.key = path;
	target.cmdline = "";
	target.container = longer;
	ck_assert_uint_eq(there_and_back(&target, buf, &back), TARGET_ENCODED_MAX);
	ck_assert_str_eq(back.cgroup, path);
	ck_assert_str_eq(back.key, path);
	ck_assert_str_eq(back.name, target.name);
	ck_assert_uint_gt(strlen(back.container), 200);
	ck_assert_uint_lt(strlen(back.container), 900);
	free(path);
	free(longer);
}
END_TEST

/* A reader that does not know containers can read what is in none. */
START_TEST(without_a_container_there_is_no_string_for_it)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX + 1], again[TARGET_ENCODED_MAX + 1];
	size_t len = there_and_back(&target, buf, &back);

	target.container = "";
	ck_assert_uint_eq(there_and_back(&target, again, &back), len);
	ck_assert_mem_eq(buf, again, len);
	ck_assert_str_eq(back.container, "");
	target.container = "d";
	ck_assert_uint_ge(there_and_back(&target, again, &back), len);
	ck_assert_str_eq(back.container, "d");
}
END_TEST

START_TEST(strings_point_into_the_bytes)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX + 1];
	size_t len = there_and_back(&target, buf, &back);

	ck_assert(back.entry > buf && back.entry < buf + len);
	ck_assert(back.cgroup > buf && back.cgroup + strlen(back.cgroup) < buf + len);
}
END_TEST

START_TEST(the_length_is_a_multiple_of_eight)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX + 1];

	for (size_t n = 0; n < 40; n++) {
		char *cmdline = repeat("x", n);

		target.cmdline = cmdline;
		ck_assert_uint_eq(there_and_back(&target, buf, &back) % 8, 0);
		assert_same(&target, &back);
		free(cmdline);
	}
}
END_TEST

START_TEST(a_long_command_line_is_cut_and_nothing_else)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX + 1];
	char *cmdline = repeat("0123456789", 100000);

	target.cmdline = cmdline;
	ck_assert_uint_eq(there_and_back(&target, buf, &back), TARGET_ENCODED_MAX);
	ck_assert_uint_gt(strlen(back.cmdline), 800);
	ck_assert_mem_eq(back.cmdline, cmdline, strlen(back.cmdline));

	target.cmdline = back.cmdline;
	assert_same(&target, &back);
	free(cmdline);
}
END_TEST

START_TEST(what_just_fits_is_not_cut)
{
	for (size_t len = ROOM - 9; len < ROOM + 9; len++) {
		char *cmdline = repeat("x", len);
		struct target target = { 1, TARGET_GROUP, 0, 0, "", "", "", "", cmdline, "", NULL }, back;
		char buf[TARGET_ENCODED_MAX + 1];

		there_and_back(&target, buf, &back);
		ck_assert_uint_eq(strlen(back.cmdline), len < ROOM ? len : ROOM);
		free(cmdline);
	}
}
END_TEST

START_TEST(cuts_fall_between_characters)
{
	static const char *const pieces[] = { "\xc3\xa9", "\xe2\x82\xac",
					      "\xf0\x9f\x90\x98" }; /* of 2, 3 and 4 bytes */

	for (size_t i = 0; i < 3; i++) {
		size_t piece = strlen(pieces[i]);
		char *many = repeat(pieces[i], 1000);

		for (size_t shift = 0; shift < 5; shift++) {
			struct target target = { 1, TARGET_GROUP, 0, 0, "", &"aaaaa"[shift], "", "", many, "", NULL },
				      back;
			char buf[TARGET_ENCODED_MAX + 1];
			size_t room = ROOM - (5 - shift);

			there_and_back(&target, buf, &back);
			ck_assert_uint_eq(strlen(back.cmdline), room - room % piece);
		}
		free(many);
	}
}
END_TEST

START_TEST(what_is_no_text_is_cut_at_the_byte)
{
	char *many = repeat("\x80", 2000);
	struct target target = { 1, TARGET_GROUP, 0, 0, "", "", "", "", many, "", NULL }, back;
	char buf[TARGET_ENCODED_MAX + 1];

	there_and_back(&target, buf, &back);
	ck_assert_uint_eq(strlen(back.cmdline), ROOM);
	free(many);
}
END_TEST

START_TEST(the_key_is_the_last_to_be_cut)
{
	char *longer = repeat("x", 600), *path = repeat("/y", 300);
	struct target target = { 1, TARGET_PROCESS, 1, 1, "entry", longer, path, "comm", longer, longer, NULL }, back;
	char buf[TARGET_ENCODED_MAX + 1];

	there_and_back(&target, buf, &back);
	ck_assert_str_eq(back.key, path);
	ck_assert_str_eq(back.entry, "entry");
	ck_assert_str_eq(back.comm, "comm");
	ck_assert_str_eq(back.cmdline, "");
	ck_assert_str_eq(back.cgroup, "");
	ck_assert_uint_eq(strlen(back.name), ROOM - 600 - 5 - 4);
	free(longer);
	free(path);
}
END_TEST

START_TEST(strings_that_are_all_too_long_still_fit)
{
	char *many = repeat("z", 70000);
	struct target target = { 1, TARGET_PROCESS, 1, 1, many, many, many, many, many, many, NULL }, back;
	char buf[TARGET_ENCODED_MAX + 1];

	ck_assert_uint_eq(there_and_back(&target, buf, &back), TARGET_ENCODED_MAX);
	ck_assert_uint_eq(strlen(back.key), ROOM);
	free(many);
}
END_TEST

START_TEST(every_cut_of_the_bytes_is_refused)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX];
	size_t len = target_encode(&target, buf, sizeof(buf));

	for (size_t cut = 0; cut < len; cut++) {
		/* Memory of just this size: a sanitizer sees any read beyond. */
		char *copy = malloc(cut + 1);

		ck_assert_ptr_ne(copy, NULL);
		memcpy(copy, buf, cut);
		copy = realloc(copy, cut > 0 ? cut : 1);
		ck_assert_int_eq(target_decode(copy, cut, &back), -EBADMSG);
		free(copy);
	}
	ck_assert_int_eq(target_decode(buf, len + 8, &back), -EBADMSG);
}
END_TEST

START_TEST(more_padding_than_needed_is_refused)
{
	struct target target = a_process(), back;
	char buf[TARGET_ENCODED_MAX] = { 0 };
	uint32_t len = (uint32_t)target_encode(&target, buf, sizeof(buf)) + 8;

	memset(buf + len - 8, 0, 8);
	memcpy(buf + 12, &len, sizeof(len));
	ck_assert_int_eq(target_decode(buf, len, &back), -EBADMSG);
}
END_TEST

START_TEST(flipped_bytes_are_refused_or_stay_within_the_bytes)
{
	struct target target = a_process();
	char buf[TARGET_ENCODED_MAX];
	size_t len = target_encode(&target, buf, sizeof(buf));

	for (size_t i = 0; i < len * 8; i++) {
		struct target back = { 0 };
		int r;

		buf[i / 8] = (char)(buf[i / 8] ^ 1 << i % 8);
		r = target_decode(buf, len, &back);
		if (r < 0) {
			ck_assert_int_eq(r, -EBADMSG);
			ck_assert_ptr_eq(back.entry, NULL);
		} else {
			ck_assert(back.cgroup + strlen(back.cgroup) < buf + len);
			ck_assert_str_ne(target_kind_name(back.kind), "?");
		}
		buf[i / 8] = (char)(buf[i / 8] ^ 1 << i % 8);
	}
}
END_TEST

START_TEST(kinds_have_names)
{
	ck_assert_str_eq(target_kind_name(TARGET_PROCESS), "process");
	ck_assert_str_eq(target_kind_name(TARGET_CGROUP), "cgroup");
	ck_assert_str_eq(target_kind_name(TARGET_GROUP), "group");
	ck_assert_str_eq(target_kind_name(0), "?");
	ck_assert_str_eq(target_kind_name(4), "?");
}
END_TEST

Suite *target_suite(void);
Suite *target_suite(void)
{
	Suite *suite = suite_create("target");
	TCase *tc = tcase_create("target");

	tcase_add_test(tc, what_was_encoded_decodes_to_the_same);
	tcase_add_test(tc, of_a_container_its_image_is_cut_before_names_are);
	tcase_add_test(tc, without_a_container_there_is_no_string_for_it);
	tcase_add_test(tc, strings_point_into_the_bytes);
	tcase_add_test(tc, the_length_is_a_multiple_of_eight);
	tcase_add_test(tc, a_long_command_line_is_cut_and_nothing_else);
	tcase_add_test(tc, what_just_fits_is_not_cut);
	tcase_add_test(tc, cuts_fall_between_characters);
	tcase_add_test(tc, what_is_no_text_is_cut_at_the_byte);
	tcase_add_test(tc, the_key_is_the_last_to_be_cut);
	tcase_add_test(tc, strings_that_are_all_too_long_still_fit);
	tcase_add_test(tc, every_cut_of_the_bytes_is_refused);
	tcase_add_test(tc, more_padding_than_needed_is_refused);
	tcase_add_test(tc, flipped_bytes_are_refused_or_stay_within_the_bytes);
	tcase_add_test(tc, kinds_have_names);
	suite_add_tcase(suite, tc);
	return suite;
}
