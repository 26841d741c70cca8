/*
 * Whatever the page is: what is handed out has a name that is allowed and lies within the page,
 * what is decoded has the size and the checksum that were said, and the walk ends.
 */
#include "cli/report/report.h"

#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/incident/manifest.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(const struct report_file_entry *entry, const char *page, size_t size)
{
	struct buffer got = { .max = size };

	if (!manifest_name_ok(entry->name) || entry->text < page || entry->text + entry->text_len > page + size)
		abort();
	if (report_file_get(entry, &got) == 0 &&
	    (got.len != entry->size_bytes ||
	     checksum_crc32(CHECKSUM_CRC32_EMPTY, got.data ? got.data : "", got.len) != entry->crc32))
		abort();
	buffer_release(&got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *page = (const char *)data;
	struct report_file files;
	struct report_file_entry entry;
	size_t count = 0;
	int rc = report_file_start(&files, page, size);

	while (rc == 0 || rc == -EBADMSG) {
		rc = report_file_next(&files, &entry);
		if (rc == 0)
			check_entry(&entry, page, size);
		if (++count > size + 2)
			abort();
	}
	return 0;
}
