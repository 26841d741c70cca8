/*
 * bolt_file.h: reads values out of a bbolt database (go.etcd.io/bbolt), in which containerd and
 * Podman keep what they know. Pure: over a source of bytes.
 *
 * The file belongs to a program that runs and writes. Nothing is locked and nothing is written:
 * every answer is of one state of the database, or there is none. Nothing in the file is trusted.
 */
#ifndef SPIKEWATCH_LIB_CGROUP_BOLT_FILE_H
#define SPIKEWATCH_LIB_CGROUP_BOLT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills buf with len bytes from offset on. 0; -ENODATA: the file ends before; -errno. */
struct bolt_file_source {
	int (*read)(void *ctx, uint64_t offset, void *buf, size_t len);
	void *ctx;
};

/* Where something is: names of buckets, one within the other. */
struct bolt_file_path {
	const char *const *buckets;
	size_t count;
};

/* A pair whose value is a bucket is not visited. Non-zero ends it. */
typedef int bolt_file_visit(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len);

/*
 * Visits the pairs of a bucket in the order of their keys; key not NULL: only the one of this key.
 * 0; what visit returned; -ENOENT: there is no such bucket, or no such key; -EBADMSG: it is no such
 * database, or damaged; -EAGAIN: it was written all the while, a later call may do; -ENOMEM; as the
 * source. Visits happen only when all was read in one state: what is visited is right. Costs some
 * ten reads of a page.
 */
int bolt_file_each(const struct bolt_file_source *source, const struct bolt_file_path *path, const char *key,
		   bolt_file_visit *visit, void *ctx);

#endif
