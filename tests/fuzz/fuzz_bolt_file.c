/* Whatever a database is: an answer, or none, and neither crash nor hang. */
#include "lib/cgroup/bolt_file.h"
#include "lib/base/base.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
	const uint8_t *data;
	size_t size;
};

static int read_file(void *ctx, uint64_t offset, void *buf, size_t len)
{
	const struct file *file = ctx;

	if (offset > file->size || len > file->size - offset)
		return -ENODATA;
	memcpy(buf, file->data + offset, len);

	return 0;
}

/* Reads every byte that it is given. */
static int touch(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	for (size_t i = 0; i < key_len; i++)
		*(unsigned *)ctx += (unsigned char)key[i];
	for (size_t i = 0; i < value_len; i++)
		*(unsigned *)ctx += (unsigned char)value[i];

	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char id[] = "b000000000000000000000000000000000000000000000000000000000000001";
	const char *const labels[] = { "v1", "k8s.io", "containers", id, "labels" };
	const char *const config[] = { "ctr", "cd5e35b5ffe4d48905cc61b257a03f0c2b158e2ea2b739fd399ae449be539ebe" };
	struct file file = { .data = data, .size = size };
	const struct bolt_file_source source = { .read = read_file, .ctx = &file };
	struct bolt_file_path path = { .buckets = labels, .count = ARRAY_LEN(labels) };
	unsigned total = 0;

	if (bolt_file_each(&source, &path, NULL, touch, &total) > 0)
		abort();
	path = (struct bolt_file_path){ .buckets = config, .count = ARRAY_LEN(config) };
	if (bolt_file_each(&source, &path, "config", touch, &total) > 0)
		abort();

	return 0;
}
