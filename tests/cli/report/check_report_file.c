/*
 * check_report_file.c: files come out of a page as they went in; pages that are cut, changed or
 * hostile.
 */
#include "torture.h"
#include "lib/base/io.h"

#include "cli/report/report_file.c"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID "20261120T031502.123Z-postgres_812-cpu-high-1"

Suite *report_file_suite(void);

static const unsigned char odd[] = { 0, 255, '<', '/', 's', 'c', 'r', 'i', 'p', 't', '>', '\n', 0, 0 };

/* A page with three files: text, nothing, and bytes. */
static void make_page(struct buffer *page)
{
	struct sink sink = sink_buffer(page);

	ck_assert_int_eq(buffer_append(page, "<!DOCTYPE html>\n<p>x", 20), 0);
	ck_assert_int_eq(report_file_begin(&sink, ID), 0);
	ck_assert_int_eq(report_file_put(&sink, "a.txt", "hello", 5), 0);
	ck_assert_int_eq(report_file_put(&sink, "empty", "", 0), 0);
	ck_assert_int_eq(report_file_put(&sink, "odd.bin", odd, sizeof(odd)), 0);
	ck_assert_int_eq(report_file_end(&sink, 3), 0);
	ck_assert_int_eq(buffer_append(page, "<script>1</script>\n", 19), 0);
}

static void next_is(struct report_file *files, const char *name, const void *data, size_t len)
{
	struct buffer got = { 0 };
	struct report_file_entry entry;

	ck_assert_int_eq(report_file_next(files, &entry), 0);
	ck_assert_str_eq(entry.name, name);
	ck_assert_uint_eq(entry.size_bytes, len);
	ck_assert_int_eq(report_file_get(&entry, &got), 0);
	ck_assert_uint_eq(got.len, len);
	if (len > 0)
		ck_assert_mem_eq(got.data, data, len);
	buffer_release(&got);
}

static void all_of_it(struct report_file *files)
{
	struct report_file_entry entry;

	ck_assert_str_eq(files->incident, ID);
	next_is(files, "a.txt", "hello", 5);
	next_is(files, "empty", "", 0);
	next_is(files, "odd.bin", odd, sizeof(odd));
	ck_assert_int_eq(report_file_next(files, &entry), REPORT_FILE_END);
}

START_TEST(files_come_back_bit_for_bit)
{
	struct buffer page = { 0 };
	struct report_file files;

	make_page(&page);
	ck_assert_int_eq(report_file_start(&files, page.data, page.len), 0);
	all_of_it(&files);
	buffer_release(&page);
}
END_TEST

START_TEST(lines_may_end_with_carriage_returns)
{
	struct buffer page = { 0 }, mailed = { 0 };
	struct report_file files;

	make_page(&page);
	for (size_t i = 0; i < page.len; i++) {
		if (page.data[i] == '\n')
			ck_assert_int_eq(buffer_append(&mailed, "\r", 1), 0);
		ck_assert_int_eq(buffer_append(&mailed, &page.data[i], 1), 0);
	}
	ck_assert_int_eq(report_file_start(&files, mailed.data, mailed.len), 0);
	all_of_it(&files);
	buffer_release(&page);
	buffer_release(&mailed);
}
END_TEST

START_TEST(every_length_of_bytes_comes_back)
{
	unsigned char data[400];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 167 + 13);
	for (size_t len = 0; len <= sizeof(data); len++) {
		struct buffer text = { 0 }, back = { 0 };
		struct sink sink = sink_buffer(&text);

		ck_assert_int_eq(base64_write(&sink, data, len), 0);
		ck_assert_int_eq(base64_read(text.data ? text.data : "", text.len, &back), 0);
		ck_assert_uint_eq(back.len, len);
		if (len > 0)
			ck_assert_mem_eq(back.data, data, len);
		for (size_t i = 0, line = 0; i < text.len; i++, line++) {
			if (text.data[i] != '\n')
				continue;
			ck_assert_uint_le(line, BASE64_LINE);
			line = (size_t)-1;
		}
		buffer_release(&text);
		buffer_release(&back);
	}
}
END_TEST

static int read_text(const char *text, char *ret)
{
	struct buffer back = { 0 };
	int rc = base64_read(text, strlen(text), &back);

	snprintf(ret, 16, "%.*s", (int)back.len, back.data ? back.data : "");
	buffer_release(&back);
	return rc;
}

START_TEST(letters_are_those_of_the_standard)
{
	static const char *const good[][2] = { { "", "" },
					       { "Zg==", "f" },
					       { "Zm8=", "fo" },
					       { "Zm9v", "foo" },
					       { "Zm9vYg==", "foob" },
					       { "Zm9vYmE=", "fooba" },
					       { "Zm9vYmFy", "foobar" },
					       { " Zm\r\n9v\t", "foo" } };
	static const char *const bad[] = { "Z",    "Zg",       "Zg=",   "Zh==", "Zm9=", "Z===",
					   "====", "Zg==Zg==", "Zm9v=", "Zm-v", "Zm9<" };
	char text[16];

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		ck_assert_msg(read_text(good[i][0], text) == 0, "%s", good[i][0]);
		ck_assert_str_eq(text, good[i][1]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(read_text(bad[i], text) == -EBADMSG, "%s", bad[i]);
}
END_TEST

/* What comes out of a page: files whole, and how it ended. */
static int walk(const char *text, size_t len, unsigned *ret_whole, unsigned *ret_damaged)
{
	struct report_file files;
	struct report_file_entry entry;
	int rc = report_file_start(&files, text, len);

	*ret_whole = *ret_damaged = 0;
	while (rc == 0 || rc == -EBADMSG) {
		struct buffer got = { 0 };

		rc = report_file_next(&files, &entry);
		if (rc == 0 && report_file_get(&entry, &got) == 0)
			++*ret_whole;
		else if (rc == 0 || rc == -EBADMSG)
			++*ret_damaged;
		buffer_release(&got);
	}
	return rc;
}

START_TEST(a_page_that_was_cut_says_so_at_every_length)
{
	struct buffer page = { 0 };
	unsigned whole, damaged;
	size_t enough;

	make_page(&page);
	enough = page.len - 19 - 1;
	for (size_t len = 0; len < enough; len++) {
		int rc = walk(page.data, len, &whole, &damaged);

		ck_assert_msg(rc == -ENODATA || rc == -ENOENT, "%zu: %d", len, rc);
		ck_assert_uint_le(damaged, 1);
	}
	ck_assert_int_eq(walk(page.data, enough, &whole, &damaged), REPORT_FILE_END);
	ck_assert_uint_eq(whole, 3);
	buffer_release(&page);
}
END_TEST

START_TEST(a_changed_byte_never_gives_a_wrong_file)
{
	struct buffer page = { 0 };
	unsigned whole, damaged;

	make_page(&page);
	for (size_t i = 0; i < page.len; i++) {
		struct report_file files;
		struct report_file_entry entry;
		int rc;

		page.data[i] ^= 1;
		rc = report_file_start(&files, page.data, page.len);
		while (rc == 0 || rc == -EBADMSG) {
			struct buffer got = { 0 };

			rc = report_file_next(&files, &entry);
			if (rc == 0 && report_file_get(&entry, &got) == 0)
				ck_assert(got.len == 0 || (got.len == 5 && memcmp(got.data, "hello", 5) == 0) ||
					  (got.len == sizeof(odd) && memcmp(got.data, odd, sizeof(odd)) == 0));
			buffer_release(&got);
		}
		walk(page.data, page.len, &whole, &damaged);
		ck_assert_uint_le(whole, 3);
		page.data[i] ^= 1;
	}
	buffer_release(&page);
}
END_TEST

static int walk_text(const char *text, unsigned *ret_whole, unsigned *ret_damaged)
{
	return walk(text, strlen(text), ret_whole, ret_damaged);
}

#define BEGIN \
	"\n<script type=\"application/octet-stream;base64\" data-spikewatch=\"begin\" data-format=\"1\" " \
	"data-incident=\"x\"></script>\n"
#define NAMED(name) \
	"<script type=\"application/octet-stream;base64\" data-spikewatch=\"file\" data-name=\"" name \
	"\" data-bytes=\"1\" data-crc32=\"76d32be0\">\nZg==\n</script>\n"
#define END(n) \
	"<script type=\"application/octet-stream;base64\" data-spikewatch=\"end\" data-files=\"" #n "\"></script>\n"

START_TEST(names_that_lead_elsewhere_are_damage)
{
	static const char *const names[] = {
		BEGIN NAMED("../x") END(1), BEGIN NAMED("/etc/x") END(1), BEGIN NAMED(".x") END(1),
		BEGIN NAMED("") END(1),     BEGIN NAMED("a b") END(1),
	};
	unsigned whole, damaged;

	ck_assert_int_eq(walk_text(BEGIN NAMED("f") END(1), &whole, &damaged), REPORT_FILE_END);
	ck_assert_uint_eq(whole, 1);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		ck_assert_int_eq(walk_text(names[i], &whole, &damaged), REPORT_FILE_END);
		ck_assert_uint_eq(whole, 0);
		ck_assert_uint_eq(damaged, 1);
	}
}
END_TEST

START_TEST(files_without_marks_and_later_formats_are_refused)
{
	unsigned whole, damaged;

	ck_assert_int_eq(walk_text("", &whole, &damaged), -ENOENT);
	ck_assert_int_eq(walk_text("<html>\n<script>x</script>\n", &whole, &damaged), -ENOENT);
	ck_assert_int_eq(walk_text(NAMED("f"), &whole, &damaged), -ENOENT);
	ck_assert_int_eq(walk_text("\n<script type=\"application/octet-stream;base64\" data-spikewatch=\"begin\" "
				   "data-format=\"2\" data-incident=\"\"></script>\n",
				   &whole, &damaged),
			 -EPROTONOSUPPORT);
	/* A file was taken out. */
	ck_assert_int_eq(walk_text(BEGIN NAMED("f") END(2), &whole, &damaged), -ENODATA);
	ck_assert_uint_eq(whole, 1);
}
END_TEST

START_TEST(names_that_are_not_allowed_are_not_written)
{
	struct buffer page = { 0 };
	struct sink sink = sink_buffer(&page);
	struct report_file files;

	ck_assert_int_eq(report_file_put(&sink, "a\"b", "", 0), -EINVAL);
	ck_assert_uint_eq(page.len, 0);
	ck_assert_int_eq(report_file_begin(&sink, "../\"><script>alert(1)</script>"), 0);
	ck_assert_int_eq(report_file_start(&files, page.data, page.len), 0);
	ck_assert_str_eq(files.incident, "");
	buffer_release(&page);
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	struct buffer page = { 0 };
	struct report_file files;
	struct report_file_entry entry;
	bool injected = true;

	make_page(&page);
	ck_assert_int_eq(report_file_start(&files, page.data, page.len), 0);
	ck_assert_int_eq(report_file_next(&files, &entry), 0);
	for (long n = 1; injected && n < 100; n++) {
		struct buffer got = { 0 };
		int rc;

		torture_arm(n);
		rc = report_file_get(&entry, &got);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		buffer_release(&got);
	}
	ck_assert(!injected);
	buffer_release(&page);
}
END_TEST

START_TEST(a_disk_that_is_full_is_reported)
{
	for (long bytes = 0; bytes < 300; bytes += 7) {
		long left = bytes;
		struct sink sink = torture_sink(&left);
		int rc = report_file_begin(&sink, ID);

		if (rc == 0)
			rc = report_file_put(&sink, "a.txt", "hello", 5);
		if (rc == 0)
			rc = report_file_end(&sink, 1);
		ck_assert_int_eq(rc, -EIO);
	}
}
END_TEST

Suite *report_file_suite(void)
{
	Suite *suite = suite_create("report_file");
	TCase *files = tcase_create("files"), *base64 = tcase_create("base64"), *trouble = tcase_create("trouble");

	tcase_add_test(files, files_come_back_bit_for_bit);
	tcase_add_test(files, lines_may_end_with_carriage_returns);
	tcase_add_test(files, names_that_are_not_allowed_are_not_written);
	tcase_add_test(base64, every_length_of_bytes_comes_back);
	tcase_add_test(base64, letters_are_those_of_the_standard);
	tcase_add_test(trouble, a_page_that_was_cut_says_so_at_every_length);
	tcase_add_test(trouble, a_changed_byte_never_gives_a_wrong_file);
	tcase_add_test(trouble, names_that_lead_elsewhere_are_damage);
	tcase_add_test(trouble, files_without_marks_and_later_formats_are_refused);
	tcase_add_test(trouble, without_memory_it_says_so);
	tcase_add_test(trouble, a_disk_that_is_full_is_reported);
	suite_add_tcase(suite, files);
	suite_add_tcase(suite, base64);
	suite_add_tcase(suite, trouble);
	return suite;
}
