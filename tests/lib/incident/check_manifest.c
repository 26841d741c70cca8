/* check_manifest.c: a sealed directory is told from one that was touched. */
#include "lib/base/compress.h"
#include "lib/incident/manifest.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static int dirfd_;

static void put(const char *name, const char *text)
{
	int fd = openat(dirfd_, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static size_t slurp(char *text, size_t cap)
{
	int fd = openat(dirfd_, MANIFEST_NAME, O_RDONLY);
	ssize_t len = read(fd, text, cap - 1);

	ck_assert_int_ge(len, 0);
	close(fd);
	text[len] = '\0';
	return (size_t)len;
}

static void setup(void)
{
	snprintf(directory, sizeof(directory), "/tmp/check_manifest.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	dirfd_ = open(directory, O_RDONLY | O_DIRECTORY);
	put("samples.tsv", "one\ntwo\n");
	put("incident.json", "{}\n");
	put("empty.txt", "");
}

static void teardown(void)
{
	char command[128];

	close(dirfd_);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

/* "name fault\n" for every difference. */
static void note(void *ctx, const char *name, enum manifest_fault fault)
{
	char *notes = ctx;
	size_t len = strlen(notes);

	snprintf(notes + len, 512 - len, "%s: %s\n", name, manifest_fault_name(fault));
}

static int verify(char notes[512])
{
	notes[0] = '\0';
	return manifest_verify(dirfd_, note, notes);
}

START_TEST(what_was_sealed_is_whole)
{
	char notes[512], text[1024];

	ck_assert_int_eq(manifest_write(dirfd_), 0);
	ck_assert_int_eq(verify(notes), 0);
	ck_assert_str_eq(notes, "");
	slurp(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "SPIKEWATCH-MANIFEST 1\n0 00000000 empty.txt\n3 "));
	ck_assert_ptr_nonnull(strstr(text, " incident.json\n8 ")); /* sorted */
}
END_TEST

START_TEST(the_checksum_is_that_of_gzip)
{
	char text[1024];

	put("empty.txt", "123456789");
	ck_assert_int_eq(manifest_write(dirfd_), 0);
	slurp(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "9 cbf43926 empty.txt\n"));
}
END_TEST

START_TEST(every_difference_is_named)
{
	char notes[512];

	put("gone.txt", "x");
	put("swapped.txt", "abc");
	ck_assert_int_eq(manifest_write(dirfd_), 0);
	unlinkat(dirfd_, "gone.txt", 0);
	put("more.txt", "");
	put("samples.tsv", "one\ntwo\nthree\n");
	put("swapped.txt", "abd");
	unlinkat(dirfd_, "empty.txt", 0);
	ck_assert_int_eq(symlinkat("/dev/null", dirfd_, "empty.txt"), 0);
	ck_assert_int_eq(verify(notes), MANIFEST_DIFFERS);
	ck_assert_ptr_nonnull(strstr(notes, "gone.txt: missing\n"));
	ck_assert_ptr_nonnull(strstr(notes, "more.txt: extra\n"));
	ck_assert_ptr_nonnull(strstr(notes, "samples.tsv: wrong size\n"));
	ck_assert_ptr_nonnull(strstr(notes, "swapped.txt: wrong checksum\n"));
	ck_assert_ptr_nonnull(strstr(notes, "empty.txt: unreadable\n"));
	ck_assert_int_eq(manifest_verify(dirfd_, NULL, NULL), MANIFEST_DIFFERS);
}
END_TEST

START_TEST(a_fifo_in_place_of_a_file_does_not_hang)
{
	char notes[512];

	ck_assert_int_eq(manifest_write(dirfd_), 0);
	unlinkat(dirfd_, "empty.txt", 0);
	ck_assert_int_eq(mkfifoat(dirfd_, "empty.txt", 0600), 0);
	ck_assert_int_eq(verify(notes), MANIFEST_DIFFERS);
	ck_assert_str_eq(notes, "empty.txt: unreadable\n");
}
END_TEST

START_TEST(what_is_no_plain_file_cannot_be_sealed)
{
	ck_assert_int_eq(mkfifoat(dirfd_, "fifo", 0600), 0);
	ck_assert_int_eq(manifest_write(dirfd_), -EINVAL);
	unlinkat(dirfd_, "fifo", 0);
	put(".hidden", "");
	ck_assert_int_eq(manifest_write(dirfd_), -EINVAL);
	unlinkat(dirfd_, ".hidden", 0);
	ck_assert_int_eq(manifest_write(dirfd_), 0);
	ck_assert_int_eq(manifest_write(dirfd_), -EEXIST);
}
END_TEST

START_TEST(a_directory_is_left_out_and_told_of)
{
	char notes[512];

	ck_assert_int_eq(mkdirat(dirfd_, "sub", 0700), 0);
	ck_assert_int_eq(manifest_write(dirfd_), 0);
	ck_assert_int_eq(verify(notes), MANIFEST_DIFFERS);
	ck_assert_str_eq(notes, "sub: extra\n");
	unlinkat(dirfd_, "sub", AT_REMOVEDIR);
	ck_assert_int_eq(verify(notes), 0);
}
END_TEST

START_TEST(too_many_files_are_refused)
{
	for (int i = 0; i < MANIFEST_ENTRIES_MAX - 3; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%d", i);
		put(name, "x");
	}
	ck_assert_int_eq(manifest_write(dirfd_), 0);
	ck_assert_int_eq(manifest_verify(dirfd_, NULL, NULL), 0);
	unlinkat(dirfd_, MANIFEST_NAME, 0);
	put("one-more", "x");
	ck_assert_int_eq(manifest_write(dirfd_), -E2BIG);
}
END_TEST

START_TEST(every_prefix_and_every_flipped_bit_is_noticed)
{
	struct manifest manifest;
	char text[1024];
	size_t len;

	ck_assert_int_eq(manifest_write(dirfd_), 0);
	len = slurp(text, sizeof(text));
	ck_assert_int_eq(manifest_parse(text, len, &manifest), 0);
	ck_assert_uint_eq(manifest.count, 3);
	for (size_t cut = 0; cut < len; cut++)
		ck_assert_int_eq(manifest_parse(text, cut, &manifest), -EBADMSG);
	for (size_t at = 0; at < len; at++)
		for (int bit = 0; bit < 8; bit++) {
			text[at] = (char)(text[at] ^ 1 << bit);
			ck_assert_int_eq(manifest_parse(text, len, &manifest), -EBADMSG);
			text[at] = (char)(text[at] ^ 1 << bit);
		}
}
END_TEST

/* The lines with a last line that is right: what is wrong is in the lines themselves. */
static int parse_lines(const char *lines)
{
	struct manifest manifest;
	char text[512];
	int len = snprintf(text, sizeof(text), "%s", lines);

	len += snprintf(text + len, sizeof(text) - (size_t)len, "CRC32 %08x\n",
			checksum_crc32(CHECKSUM_CRC32_EMPTY, text, (size_t)len));
	return manifest_parse(text, (size_t)len, &manifest);
}

START_TEST(only_one_way_to_write_a_line_is_right)
{
#define HEAD "SPIKEWATCH-MANIFEST 1\n"
	ck_assert_int_eq(parse_lines(HEAD), 0);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d a\n"), 0);
	ck_assert_int_eq(parse_lines(HEAD "01 0a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD " 1 0a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "-1 0a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "18446744073709551615 0a1b2c3d a\n"), 0);
	ck_assert_int_eq(parse_lines(HEAD "18446744073709551616 0a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0A1B2C3D a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d ../a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d .a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d MANIFEST\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d \n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d a"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d b\n1 0a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(HEAD "1 0a1b2c3d a\n1 0a1b2c3d a\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines("SPIKEWATCH-MANIFEST 2\n"), -EPROTONOSUPPORT);
	ck_assert_int_eq(parse_lines("SOMETHING 1\n"), -EBADMSG);
	ck_assert_int_eq(parse_lines(""), -EBADMSG);
}
END_TEST

START_TEST(a_damaged_or_missing_manifest_says_so)
{
	ck_assert_int_eq(manifest_verify(dirfd_, NULL, NULL), -ENOENT);
	put(MANIFEST_NAME, "nonsense");
	ck_assert_int_eq(manifest_verify(dirfd_, NULL, NULL), -EBADMSG);
	unlinkat(dirfd_, MANIFEST_NAME, 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", dirfd_, MANIFEST_NAME), 0);
	ck_assert_int_eq(manifest_verify(dirfd_, NULL, NULL), -EBADMSG);
}
END_TEST

START_TEST(every_failing_allocation_is_reported)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		int r;

		unlinkat(dirfd_, MANIFEST_NAME, 0);
		torture_arm(n);
		r = manifest_write(dirfd_);
		if (r == 0)
			r = manifest_verify(dirfd_, NULL, NULL);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
}
END_TEST

Suite *manifest_suite(void);
Suite *manifest_suite(void)
{
	Suite *suite = suite_create("manifest");
	TCase *tcase = tcase_create("all");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_sealed_is_whole);
	tcase_add_test(tcase, the_checksum_is_that_of_gzip);
	tcase_add_test(tcase, every_difference_is_named);
	tcase_add_test(tcase, a_fifo_in_place_of_a_file_does_not_hang);
	tcase_add_test(tcase, what_is_no_plain_file_cannot_be_sealed);
	tcase_add_test(tcase, a_directory_is_left_out_and_told_of);
	tcase_add_test(tcase, too_many_files_are_refused);
	tcase_add_test(tcase, every_prefix_and_every_flipped_bit_is_noticed);
	tcase_add_test(tcase, only_one_way_to_write_a_line_is_right);
	tcase_add_test(tcase, a_damaged_or_missing_manifest_says_so);
	tcase_add_test(tcase, every_failing_allocation_is_reported);
	suite_add_tcase(suite, tcase);
	return suite;
}
