/*
 * checksum: published values, and that parts add up.
 */
#include "lib/base/compress.h"

#include <check.h>
#include <string.h>

Suite *checksum_suite(void);

static uint32_t adler(const void *data, size_t len)
{
	return checksum_adler32(CHECKSUM_ADLER32_EMPTY, data, len);
}

START_TEST(published_values_agree)
{
	ck_assert_uint_eq(adler("Wikipedia", 9), 0x11e60398);
	ck_assert_uint_eq(adler("", 0), 1);
	ck_assert_uint_eq(checksum_crc32(CHECKSUM_CRC32_EMPTY, "123456789", 9), 0xcbf43926);
	ck_assert_uint_eq(checksum_crc32(CHECKSUM_CRC32_EMPTY, NULL, 0), 0);
	ck_assert_uint_eq(checksum_adler32(0x11e60398, NULL, 0), 0x11e60398);
}
END_TEST

START_TEST(a_checksum_goes_on_where_it_stopped)
{
	const char *text = "the seconds before the trigger";

	for (size_t cut = 0; cut <= strlen(text); cut++) {
		ck_assert_uint_eq(checksum_adler32(adler(text, cut), text + cut, strlen(text) - cut),
				  adler(text, strlen(text)));
		ck_assert_uint_eq(
			checksum_crc32(checksum_crc32(CHECKSUM_CRC32_EMPTY, text, cut), text + cut, strlen(text) - cut),
			checksum_crc32(CHECKSUM_CRC32_EMPTY, text, strlen(text)));
	}
}
END_TEST

/* RFC 1950, 8.2. */
static uint32_t by_definition(uint32_t adler_before, const unsigned char *data, size_t len)
{
	uint32_t low = adler_before & 0xffff, high = adler_before >> 16;

	for (size_t i = 0; i < len; i++) {
		low = (low + data[i]) % 65521;
		high = (high + low) % 65521;
	}
	return high << 16 | low;
}

/* Those of vectors, of their ends, and of what is too long for them. */
START_TEST(every_length_is_summed_as_defined)
{
	static unsigned char data[6000];
	static const uint32_t before[] = { 1, 0, 65520u << 16 | 65520u, 0x11e60398 };

	for (int greatest = 0; greatest < 2; greatest++) {
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = greatest ? 0xff : (unsigned char)(i * 151 + i / 256);
		for (size_t len = 0; len < sizeof(data) - 4; len += len < 300 || (len > 4080 && len < 4110) ? 1 : 37)
			for (size_t i = 0; i < 4; i++)
				ck_assert_msg(checksum_adler32(before[i], data + i, len) ==
						      by_definition(before[i], data + i, len),
					      "%zu bytes", len);
	}
}
END_TEST

START_TEST(the_checksums_of_two_parts_combine)
{
	static unsigned char data[200000]; /* longer than the modulus, with sums that wrap */

	memset(data, 0xff, sizeof(data));
	for (size_t i = 0; i < sizeof(data); i += 7)
		data[i] = (unsigned char)i;
	for (size_t cut = 0; cut <= sizeof(data); cut += cut < 100 ? 1 : 6551)
		ck_assert_uint_eq(checksum_adler32_combine(adler(data, cut), adler(data + cut, sizeof(data) - cut),
							   sizeof(data) - cut),
				  adler(data, sizeof(data)));
}
END_TEST

START_TEST(combining_with_nothing_changes_nothing)
{
	uint32_t some = adler("some", 4);

	ck_assert_uint_eq(checksum_adler32_combine(some, CHECKSUM_ADLER32_EMPTY, 0), some);
	ck_assert_uint_eq(checksum_adler32_combine(CHECKSUM_ADLER32_EMPTY, some, 4), some);
}
END_TEST

Suite *checksum_suite(void)
{
	Suite *suite = suite_create("checksum");
	TCase *tcase = tcase_create("checksum");

	tcase_add_test(tcase, published_values_agree);
	tcase_add_test(tcase, a_checksum_goes_on_where_it_stopped);
	tcase_add_test(tcase, every_length_is_summed_as_defined);
	tcase_add_test(tcase, the_checksums_of_two_parts_combine);
	tcase_add_test(tcase, combining_with_nothing_changes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
