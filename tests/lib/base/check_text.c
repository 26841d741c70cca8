/*
 * text: numbers at the edges where their length changes, and text no terminal should see.
 */
#include "lib/base/text.h"
#include "lib/base/base.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *text_suite(void);

static void expect_number(uint64_t value)
{
	char got[TEXT_NUMBER_ROOM + 1], want[32];

	*text_put_u64(got, value) = '\0';
	snprintf(want, sizeof(want), "%" PRIu64, value);
	ck_assert_str_eq(got, want);

	*text_put_hex(got, value) = '\0';
	snprintf(want, sizeof(want), "%" PRIx64, value);
	ck_assert_str_eq(got, want);
}

START_TEST(numbers_of_every_length_are_written_in_full)
{
	uint64_t power = 1;

	expect_number(0);
	for (int digits = 1; digits < 20; digits++) {
		for (uint64_t factor = 1; factor <= 9; factor++) {
			expect_number(power * factor);
			expect_number(power * factor - 1);
			expect_number(power * factor + 1);
		}
		power *= 10;
	}
	expect_number(UINT64_MAX);
}
END_TEST

START_TEST(every_group_of_four_digits_is_right)
{
	for (uint64_t value = 0; value < 10000; value++) {
		expect_number(value);
		expect_number(value * 10000);
		expect_number(value * 10000 + 9999 - value);
		expect_number(1234567800000000ULL * 1000 + value);
	}
}
END_TEST

START_TEST(a_number_stays_within_its_room)
{
	char out[TEXT_NUMBER_ROOM + 1];
	const uint64_t values[] = { 0, 99999999, 100000000, 9999999999999999ULL, 10000000000000000ULL, UINT64_MAX };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		out[TEXT_NUMBER_ROOM] = '!';
		text_put_u64(out, values[i]);
		ck_assert_int_eq(out[TEXT_NUMBER_ROOM], '!');
	}
}
END_TEST

/* Reads text; the number of characters taken, -1 if there is no number. */
static int parse(const char *text, uint64_t *ret)
{
	const char *end = text_parse_u64(text, text + strlen(text), ret);

	return end ? (int)(end - text) : -1;
}

START_TEST(digits_are_read_up_to_the_first_other_byte)
{
	uint64_t value = 7;

	ck_assert_int_eq(parse("123\t4", &value), 3);
	ck_assert_uint_eq(value, 123);
	ck_assert_int_eq(parse("18446744073709551615", &value), 20);
	ck_assert_uint_eq(value, UINT64_MAX);
	ck_assert_int_eq(parse("0000000000000000000000018", &value), 25);
	ck_assert_uint_eq(value, 18);
	ck_assert_ptr_null(text_parse_u64("12", "12", &value));
}
END_TEST

START_TEST(numbers_of_every_length_are_read_before_every_byte)
{
	char text[64];

	for (unsigned digits = 1; digits <= 20; digits++) {
		for (int after = 0; after < 256; after++) {
			uint64_t value = 7, want = 0;

			memset(text, '5', sizeof(text)); /* behind the end: not to be read as digits */
			for (unsigned i = 0; i < digits; i++) {
				text[i] = (char)('0' + (i ? (i * 7 + digits) % 10 : 1));
				want = want * 10 + (uint64_t)(text[i] - '0');
			}
			text[digits] = (char)after;
			bool digit = after >= '0' && after <= '9';
			for (size_t len = digits; len <= digits + (digit ? 0 : 12); len++) {
				ck_assert_ptr_eq(text_parse_u64(text, text + len, &value), text + digits);
				ck_assert_uint_eq(value, want);
			}
		}
	}
}
END_TEST

START_TEST(what_is_no_number_or_does_not_fit_is_refused)
{
	const char *const bad[] = { "", "-1", "+1", " 1", "x", "18446744073709551616", "99999999999999999999" };
	uint64_t value = 7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(parse(bad[i], &value) == -1, "%s", bad[i]);
	ck_assert_uint_eq(value, 7);
}
END_TEST

START_TEST(hexadecimal_is_lower_case_and_at_most_64_bits)
{
	const char *upper = "DEAD", *text = "deadbeef\n", *wide = "10000000000000000", *most = "ffffffffffffffff";
	uint64_t value = 7;

	ck_assert_ptr_null(text_parse_hex(upper, upper + 4, &value));
	ck_assert_ptr_null(text_parse_hex(wide, wide + strlen(wide), &value));
	ck_assert_uint_eq(value, 7);
	ck_assert_ptr_eq(text_parse_hex(text, text + strlen(text), &value), text + 8);
	ck_assert_uint_eq(value, 0xdeadbeef);
	ck_assert_ptr_nonnull(text_parse_hex(most, most + 16, &value));
	ck_assert_uint_eq(value, UINT64_MAX);
}
END_TEST

static void expect_escaped(const char *in, size_t len, const char *want)
{
	char out[256];

	ck_assert_uint_eq(text_escape(out, sizeof(out), in, len), strlen(want));
	ck_assert_str_eq(out, want);
}

START_TEST(a_character_that_the_length_cuts_is_escaped)
{
	/* The rest of it is there, but not in the text. */
	expect_escaped("\xc3\xa4", 1, "\\xc3");
	expect_escaped("a\xe2\x82\xac", 3, "a\\xe2\\x82");
	expect_escaped("ab\xf0\x9f\x98\x80", 5, "ab\\xf0\\x9f\\x98");
}
END_TEST

START_TEST(printable_text_stays_as_it_is)
{
	const char *text = "a b~ gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x94\xa5 \xef\xbf\xbd";

	expect_escaped(text, strlen(text), text);
	expect_escaped("", 0, "");
}
END_TEST

START_TEST(control_characters_and_the_backslash_are_escaped)
{
	expect_escaped("\x1b[2J\n\t\x7f\0z", 9, "\\x1b[2J\\x0a\\x09\\x7f\\x00z");
	expect_escaped("a\\x41", 5, "a\\x5cx41");
	expect_escaped("\xc2\x9b!m", 4, "\\xc2\\x9b!m");
	expect_escaped("exe\xe2\x80\xaegpj.", 10, "exe\\xe2\\x80\\xaegpj."); /* what follows would be turned around */
	expect_escaped("a\xe2\x80\x8b\xef\xbb\xbfz", 8, "a\\xe2\\x80\\x8b\\xef\\xbb\\xbfz");
	expect_escaped("\xe2\x80\x8d\xf0\x9f\x94\xa5", 7,
		       "\xe2\x80\x8d\xf0\x9f\x94\xa5"); /* joiners belong to scripts */
}
END_TEST

START_TEST(bytes_that_are_not_utf8_are_escaped)
{
	expect_escaped("\xff\xc3", 2, "\\xff\\xc3");
	expect_escaped("\xc0\xaf", 2, "\\xc0\\xaf");                   /* overlong */
	expect_escaped("\xe0\x9f\xbf", 3, "\\xe0\\x9f\\xbf");          /* overlong */
	expect_escaped("\xed\xa0\x80", 3, "\\xed\\xa0\\x80");          /* surrogate */
	expect_escaped("\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"); /* beyond U+10FFFF */
	expect_escaped("\xe2\x82z", 3, "\\xe2\\x82z");
}
END_TEST

START_TEST(characters_are_decoded_at_the_limits_of_their_lengths)
{
	static const struct {
		const char *text;
		size_t len, decoded; /* 0: no character */
		uint32_t code;
	} cases[] = {
		{ "\x7f", 1, 1, 0x7f },
		{ "\x80", 1, 0, 0 },
		{ "\xbf", 1, 0, 0 },
		{ "\xc1\xbf", 2, 0, 0 },
		{ "\xc2\x80", 2, 2, 0x80 },
		{ "\xdf\xbf", 2, 2, 0x7ff },
		{ "\xe0\xa0\x80", 3, 3, 0x800 },
		{ "\xef\xbf\xbf", 3, 3, 0xffff },
		{ "\xf0\x90\x80\x80", 4, 4, 0x10000 },
		{ "\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff },
		{ "\xf5\x80\x80\x80", 4, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t code = 0;

		ck_assert_msg(text_decode(cases[i].text, cases[i].len, &code) == cases[i].decoded, "case %zu", i);
		ck_assert_uint_eq(code, cases[i].code);
		ck_assert_uint_eq(text_decode(cases[i].text, cases[i].len - 1, &code), 0);
	}
}
END_TEST

START_TEST(a_short_buffer_never_holds_half_a_character)
{
	const char *text = "\xe2\x82\xac\x01\xe2\x82\xac";
	const char *const whole[] = { "", "\xe2\x82\xac", "\xe2\x82\xac\\x01", "\xe2\x82\xac\\x01\xe2\x82\xac" };

	for (size_t size = 1; size <= 12; size++) {
		char *out = malloc(size); /* of exactly that size, for the sanitizer to watch */
		const char *want = size < 4 ? whole[0] : size < 8 ? whole[1] : size < 11 ? whole[2] : whole[3];

		text_escape(out, size, text, strlen(text));
		ck_assert_str_eq(out, want);
		free(out);
	}
}
END_TEST

START_TEST(a_text_is_cut_at_its_separators)
{
	static const struct {
		const char *text, *parts; /* each with a '|' behind it */
	} cases[] = {
		{ "", "|" }, { "a", "a|" }, { ";", "||" }, { "a;", "a||" }, { ";a", "|a|" }, { "a;bc;;d", "a|bc||d|" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct text_part rest = { cases[i].text, strlen(cases[i].text) }, part;
		char parts[32], *end = parts;

		while (text_cut(&rest, ';', &part)) {
			end = mempcpy(end, part.at, part.len);
			*end++ = '|';
		}
		*end = '\0';
		ck_assert_str_eq(parts, cases[i].parts);
		ck_assert_ptr_null(rest.at);
	}

	struct text_part none = { NULL, 0 }, part;

	ck_assert(!text_cut(&none, ';', &part));
}
END_TEST

START_TEST(parts_are_compared_by_bytes)
{
	static const struct {
		struct text_part a, b;
		int order;
	} cases[] = {
		{ { "a", 1 }, { "ab", 1 }, 0 }, { { "a", 1 }, { "ab", 2 }, -1 },  { { "b", 1 }, { "ab", 2 }, 1 },
		{ { "", 0 }, { "a", 1 }, -1 },  { { "\xff", 1 }, { "a", 1 }, 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int there = text_part_compare(&cases[i].a, &cases[i].b),
		    back = text_part_compare(&cases[i].b, &cases[i].a);

		ck_assert_msg((there > 0) - (there < 0) == cases[i].order, "case %zu", i);
		ck_assert_int_eq((back > 0) - (back < 0), -cases[i].order);
	}
	ck_assert(text_part_is(&(struct text_part){ "abc", 2 }, "ab"));
	ck_assert(!text_part_is(&(struct text_part){ "abc", 3 }, "ab"));
	ck_assert(!text_part_is(&(struct text_part){ "ab", 2 }, "ac"));
}
END_TEST

Suite *text_suite(void)
{
	Suite *suite = suite_create("text");
	TCase *tcase = tcase_create("text");

	tcase_add_test(tcase, numbers_of_every_length_are_written_in_full);
	tcase_add_test(tcase, every_group_of_four_digits_is_right);
	tcase_add_test(tcase, a_number_stays_within_its_room);
	tcase_add_test(tcase, digits_are_read_up_to_the_first_other_byte);
	tcase_add_test(tcase, numbers_of_every_length_are_read_before_every_byte);
	tcase_add_test(tcase, what_is_no_number_or_does_not_fit_is_refused);
	tcase_add_test(tcase, hexadecimal_is_lower_case_and_at_most_64_bits);
	tcase_add_test(tcase, printable_text_stays_as_it_is);
	tcase_add_test(tcase, a_character_that_the_length_cuts_is_escaped);
	tcase_add_test(tcase, control_characters_and_the_backslash_are_escaped);
	tcase_add_test(tcase, bytes_that_are_not_utf8_are_escaped);
	tcase_add_test(tcase, characters_are_decoded_at_the_limits_of_their_lengths);
	tcase_add_test(tcase, a_short_buffer_never_holds_half_a_character);
	tcase_add_test(tcase, a_text_is_cut_at_its_separators);
	tcase_add_test(tcase, parts_are_compared_by_bytes);
	suite_add_tcase(suite, tcase);
	return suite;
}
