/*
 * check_bolt_file.c: databases that containerd 1.6 and Podman 4.3 have written
 * (tests/fuzz/corpus/bolt_file), whole, cut, damaged, and written to while they are read.
 */
#include "lib/cgroup/bolt_file.h"
#include "lib/base/base.h"
#include "torture.h"

#include <check.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Suite *bolt_file_suite(void);

#define POD "b000000000000000000000000000000000000000000000000000000000000001"
#define PODMAN_ID "cd5e35b5ffe4d48905cc61b257a03f0c2b158e2ea2b739fd399ae449be539ebe"
#define PAGE 4096u

/* A file in memory. */
struct file {
	char *data;
	size_t len;
	unsigned reads;
	unsigned tear; /* after so many reads another transaction is there; 0: never */
	unsigned step; /* and again after so many more; 0: just once */
};

static uint64_t sum(const char *data, size_t len)
{
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;

	return hash;
}

static uint64_t txid_of(const struct file *file, unsigned which)
{
	uint64_t txid;

	memcpy(&txid, file->data + which * PAGE + 16 + 48, sizeof(txid));
	return txid;
}

/* The older meta becomes the newer one, with the same root. */
static void commit(struct file *file)
{
	unsigned older = txid_of(file, 0) > txid_of(file, 1);
	char *meta = file->data + older * PAGE + 16, *newer = file->data + !older * PAGE + 16;
	uint64_t txid = txid_of(file, !older) + 1, hash;

	memcpy(meta, newer, 64);
	memcpy(meta + 48, &txid, sizeof(txid));
	hash = sum(meta, 56);
	memcpy(meta + 56, &hash, sizeof(hash));
}

static int read_file(void *ctx, uint64_t offset, void *buf, size_t len)
{
	struct file *file = ctx;

	if (file->tear > 0 && ++file->reads == file->tear) {
		commit(file);
		file->tear = file->step > 0 ? file->tear + file->step : 0;
	}
	if (offset > file->len || len > file->len - offset)
		return -ENODATA;
	memcpy(buf, file->data + offset, len);

	return 0;
}

static struct file load(const char *name)
{
	char path[128];
	struct stat status;
	struct file file = { .data = NULL };

	snprintf(path, sizeof(path), "tests/fuzz/corpus/bolt_file/%s", name);

	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &status), 0);
	file.len = (size_t)status.st_size;
	file.data = malloc(file.len);
	ck_assert_ptr_nonnull(file.data);
	ck_assert_int_eq(read(fd, file.data, file.len), (ssize_t)file.len);

	return file;
}

static char seen[65536];

static int see(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	size_t len = strlen(seen);

	(void)ctx;
	snprintf(seen + len, sizeof(seen) - len, "%.*s=%.*s;", (int)key_len, key, (int)value_len, value);
	return 0;
}

static int ask(struct file *file, const char *const *buckets, size_t count, const char *key)
{
	const struct bolt_file_source source = { .read = read_file, .ctx = file };
	const struct bolt_file_path path = { .buckets = buckets, .count = count };

	seen[0] = '\0';
	return bolt_file_each(&source, &path, key, see, NULL);
}

static int ask_labels(struct file *file, const char *space, const char *id)
{
	const char *const buckets[] = { "v1", space, "containers", id, "labels" };

	return ask(file, buckets, ARRAY_LEN(buckets), NULL);
}

static int ask_pod(struct file *file)
{
	return ask_labels(file, "k8s.io", POD);
}

static const char pod_labels[] = "app=web;app.kubernetes.io/name=shop;io.cri-containerd.kind=sandbox;"
				 "io.kubernetes.pod.name=web-7d9f;team=core;";

START_TEST(labels_of_containerd_are_read)
{
	struct file file = load("containerd");
	const char *const made[] = { "v1", "default", "containers", "plain" };

	ck_assert_int_eq(ask_pod(&file), 0);
	ck_assert_str_eq(seen, pod_labels);
	ck_assert_int_eq(ask_labels(&file, "default", "web"), 0);
	ck_assert_str_eq(seen, "app=db;");
	ck_assert_int_eq(ask(&file, made, 4, "createdat"), 0);
	ck_assert(strncmp(seen, "createdat=", 10) == 0);
	free(file.data);
}
END_TEST

START_TEST(what_is_not_there_is_told)
{
	struct file file = load("containerd");
	const char *const wrong[] = { "v1", "default", "containers", "web", "createdat", "x" };

	ck_assert_int_eq(ask_labels(&file, "default", "plain"), -ENOENT);
	ck_assert_int_eq(ask_labels(&file, "default", "nobody"), -ENOENT);
	ck_assert_int_eq(ask_labels(&file, "moby", "web"), -ENOENT);
	ck_assert_int_eq(ask_labels(&file, "", ""), -ENOENT);
	ck_assert_int_eq(ask_labels(&file, "zzzz", "zzzz"), -ENOENT);
	ck_assert_int_eq(ask(&file, wrong, 6, NULL), -ENOENT);
	ck_assert_int_eq(ask(&file, wrong, 4, "labels"), -ENOENT);
	free(file.data);
}
END_TEST

START_TEST(a_container_of_podman_is_read)
{
	struct file file = load("podman");
	const char *const buckets[] = { "ctr", PODMAN_ID };

	ck_assert_int_eq(ask(&file, buckets, 2, "config"), 0);
	ck_assert_ptr_nonnull(strstr(seen, "\"labels\":{\"app\":\"web\",\"team\":\"core\"}"));
	free(file.data);
}
END_TEST

START_TEST(a_damaged_meta_leaves_the_other)
{
	for (unsigned which = 0; which < 2; which++) {
		struct file file = load("containerd");

		file.data[which * PAGE + 16 + 20] ^= 1;
		int r = ask_labels(&file, "default", "plain"); /* the older state may lack the last container */
		ck_assert_int_eq(r, -ENOENT);
		ck_assert_int_eq(ask_pod(&file), 0);
		ck_assert_str_eq(seen, pod_labels);
		file.data[!which * PAGE + 16 + 20] ^= 1;
		ck_assert_int_eq(ask_pod(&file), -EBADMSG);
		free(file.data);
	}
}
END_TEST

/* Its checksum is right. */
START_TEST(a_file_of_another_kind_or_version_is_none)
{
	for (size_t field = 0; field <= 4; field += 4) {
		struct file file = load("containerd");

		for (unsigned which = 0; which < 2; which++) {
			char *meta = file.data + which * PAGE + 16;
			uint64_t hash;

			meta[field] ^= 1;
			hash = sum(meta, 56);
			memcpy(meta + 56, &hash, sizeof(hash));
		}
		ck_assert_int_eq(ask_pod(&file), -EBADMSG);
		free(file.data);
	}
}
END_TEST

START_TEST(what_is_written_while_it_is_read_is_read_again)
{
	/* Once, at whichever read it is; and all the time. */
	for (unsigned at = 1; at < 40; at++) {
		struct file file = load("containerd");

		file.tear = at;
		ck_assert_int_eq(ask_pod(&file), 0);
		ck_assert_str_eq(seen, pod_labels);
		free(file.data);
	}

	struct file file = load("containerd");

	file.tear = 3;
	file.step = 3;
	ck_assert_int_eq(ask_pod(&file), -EAGAIN);
	ck_assert_str_eq(seen, "");
	free(file.data);
}
END_TEST

START_TEST(a_file_that_ends_early_is_damaged)
{
	for (size_t cut = 0; cut < 128 * 1024; cut += 509) {
		struct file file = load("containerd");

		file.len = cut;
		int r = ask_pod(&file);
		ck_assert(r == 0 || r == -EBADMSG);
		ck_assert_str_eq(seen, r == 0 ? pod_labels : "");
		free(file.data);
	}
}
END_TEST

/*
 * Every byte that is there to be read: no crash, no end that does not come. What is damaged within
 * a label is a label.
 */
START_TEST(flipped_bytes_do_no_harm)
{
	static const unsigned char flips[] = { 0x01, 0x80, 0xff };
	struct file file = load("containerd");

	for (size_t i = 0; i < file.len; i += i < 3 * PAGE ? 1 : 7) {
		if (file.data[i] == 0 && i % 64 >= 16)
			continue;
		for (size_t k = 0; k < sizeof(flips); k++) {
			file.data[i] = (char)(file.data[i] ^ flips[k]);
			ask_pod(&file);
			file.data[i] = (char)(file.data[i] ^ flips[k]);
		}
	}
	ck_assert_int_eq(ask_pod(&file), 0);
	free(file.data);
}
END_TEST

START_TEST(a_tree_that_leads_back_into_itself_ends)
{
	struct file file = load("containerd");

	/* Every branch and leaf that there is becomes a branch whose only child is the root. */
	for (size_t page = 2; page < file.len / PAGE; page++) {
		char *at = file.data + page * PAGE;
		uint16_t kind[2] = { 1, 1 };
		uint32_t key[2] = { 16, 0 };
		uint64_t self = page;

		memcpy(at, &self, 8);
		memcpy(at + 8, kind, 4);
		memset(at + 12, 0, 4);
		memcpy(at + 16, key, 8);
		memcpy(at + 24, &self, 8);
	}
	ck_assert_int_eq(ask_pod(&file), -EBADMSG);
	free(file.data);
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	struct file file = load("containerd");
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = ask_pod(&file);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_str_eq(seen, injected ? "" : pod_labels);
	}
	free(file.data);
}
END_TEST

static int stop(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	(void)key;
	(void)key_len;
	(void)value;
	(void)value_len;
	return ++*(int *)ctx == 2 ? 7 : 0;
}

START_TEST(a_visit_can_end_it)
{
	struct file file = load("containerd");
	const struct bolt_file_source source = { .read = read_file, .ctx = &file };
	const char *const buckets[] = { "v1", "k8s.io", "containers", POD, "labels" };
	const struct bolt_file_path path = { .buckets = buckets, .count = 5 };
	int visits = 0;

	ck_assert_int_eq(bolt_file_each(&source, &path, NULL, stop, &visits), 7);
	ck_assert_int_eq(visits, 2);
	free(file.data);
}
END_TEST

Suite *bolt_file_suite(void)
{
	Suite *suite = suite_create("bolt_file");
	TCase *tcase = tcase_create("boltfile");

	tcase_add_test(tcase, labels_of_containerd_are_read);
	tcase_add_test(tcase, what_is_not_there_is_told);
	tcase_add_test(tcase, a_container_of_podman_is_read);
	tcase_add_test(tcase, a_damaged_meta_leaves_the_other);
	tcase_add_test(tcase, a_file_of_another_kind_or_version_is_none);
	tcase_add_test(tcase, what_is_written_while_it_is_read_is_read_again);
	tcase_add_test(tcase, a_file_that_ends_early_is_damaged);
	tcase_add_test(tcase, flipped_bytes_do_no_harm);
	tcase_add_test(tcase, a_tree_that_leads_back_into_itself_ends);
	tcase_add_test(tcase, without_memory_it_says_so);
	tcase_add_test(tcase, a_visit_can_end_it);
	suite_add_tcase(suite, tcase);

	return suite;
}
