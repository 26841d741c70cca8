/*
 * check_deflate.c: what comes out is unpacked again; a sink that fails, memory that is short. The
 * checksums: check_checksum.c.
 */
#include "lib/base/compress.h"

#include "lib/base/base.h"
#include "torture.h"
#include "unpacked.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define UNPACKED_MAX (1u << 20)

Suite *deflate_suite(void);

void unpacked(const struct buffer *gzip, struct buffer *ret)
{
	struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
	AUTO_FREE char *out = malloc(UNPACKED_MAX);
	size_t in_len = 0, out_len = 0;

	ck_assert_ptr_nonnull(decompressor);
	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(libdeflate_gzip_decompress_ex(decompressor, gzip->data, gzip->len, out, UNPACKED_MAX, &in_len,
						       &out_len),
			 LIBDEFLATE_SUCCESS);
	ck_assert_uint_eq(in_len, gzip->len);
	libdeflate_free_decompressor(decompressor);
	ck_assert_int_eq(buffer_append(ret, out, out_len), 0);
}

static void goes_and_comes(const char *data, size_t len)
{
	struct buffer packed = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&packed);

	ck_assert_int_eq(deflate_gzip(data, len, &sink), 0);
	unpacked(&packed, &plain);
	ck_assert_uint_eq(plain.len, len);
	if (len > 0)
		ck_assert_mem_eq(plain.data, data, len);
	if (len > 10000)
		ck_assert_uint_lt(packed.len, len / 10);
	buffer_release(&packed);
	buffer_release(&plain);
}

START_TEST(what_was_packed_can_be_unpacked)
{
	static char data[200000];

	goes_and_comes(NULL, 0);
	goes_and_comes("x", 1);
	goes_and_comes(data, sizeof(data));
	for (size_t i = 0; i < 2000; i++)
		data[i] = (char)(i * i * 31 >> 3);
	goes_and_comes(data, 2000);
}
END_TEST

/* "hello" as zlib 1.2.13 writes it, with each byte damaged in turn, too short and too long. */
START_TEST(a_zlib_stream_is_taken_whole_or_not_at_all)
{
	static const unsigned char hello[] = { 0x78, 0x9c, 0xcb, 0x48, 0xcd, 0xc9, 0xc9,
					       0x07, 0x00, 0x06, 0x2c, 0x02, 0x15 };
	unsigned char damaged[sizeof(hello)];
	size_t refused = 0;
	char out[8];

	ck_assert_int_eq(inflate_zlib(hello, sizeof(hello), out, 5), 0);
	ck_assert_mem_eq(out, "hello", 5);
	ck_assert_int_eq(inflate_zlib(hello, sizeof(hello), out, 4), -EBADMSG);
	ck_assert_int_eq(inflate_zlib(hello, sizeof(hello), out, 6), -EBADMSG);
	for (size_t len = 0; len < sizeof(hello); len++)
		ck_assert_int_eq(inflate_zlib(hello, len, out, 5), -EBADMSG);
	for (size_t i = 2; i < sizeof(hello); i++) {
		memcpy(damaged, hello, sizeof(hello));
		damaged[i] ^= 0x40;
		/* Some bits only fill the last byte of the compressed text. */
		if (inflate_zlib(damaged, sizeof(damaged), out, 5) == 0)
			ck_assert_mem_eq(out, "hello", 5);
		else
			refused++;
	}
	ck_assert_uint_ge(refused, sizeof(hello) - 3);
}
END_TEST

START_TEST(errors_of_the_sink_come_back)
{
	long left = 5;
	struct sink sink = torture_sink(&left);

	ck_assert_int_eq(deflate_gzip("text", 4, &sink), -EIO);
}
END_TEST

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		long left = 1000;
		struct sink sink = torture_sink(&left);
		int rc;

		torture_arm(n);
		rc = deflate_gzip("text", 4, &sink);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
}
END_TEST

Suite *deflate_suite(void)
{
	Suite *suite = suite_create("deflate");
	TCase *tcase = tcase_create("gzip");

	tcase_add_test(tcase, what_was_packed_can_be_unpacked);
	tcase_add_test(tcase, a_zlib_stream_is_taken_whole_or_not_at_all);
	tcase_add_test(tcase, errors_of_the_sink_come_back);
	tcase_add_test(tcase, any_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
