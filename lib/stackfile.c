/*
 * stackfile.c: three tables and a stream, in one pass each way. The sizes of the tables are in the head, which makes the file's
 * length known: anything longer or shorter was torn.
 */
#include "stackfile.h"

#include <errno.h>
#include <string.h>

static size_t padded(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

static int write_binaries(const struct stackfile_content *content, const struct sink *sink)
{
	uint32_t offset = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->entry_count; i++) {
		struct stackfile_binary binary = content->entries[i].binary;

		binary.path_offset = offset;
		binary.path_len = (uint32_t)strlen(content->entries[i].path);
		binary.reserved = 0;
		offset += binary.path_len + 1;
		r = sink_write(sink, &binary, sizeof(binary));
	}
	return r;
}

static int write_paths(const struct stackfile_content *content, size_t len, const struct sink *sink)
{
	static const char zeroes[8];
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->entry_count; i++)
		r = sink_write(sink, content->entries[i].path, strlen(content->entries[i].path) + 1);
	return r < 0 || padded(len) == len ? r : sink_write(sink, zeroes, padded(len) - len);
}

int stackfile_write(const struct stackfile_content *content, const struct sink *sink)
{
	struct stackfile_head head = content->head;
	size_t strings = 0;
	int r;

	for (size_t i = 0; i < content->entry_count; i++)
		strings += strlen(content->entries[i].path) + 1;
	if (padded(strings) > UINT32_MAX || content->entry_count > UINT32_MAX)
		return -EOVERFLOW;
	memcpy(head.magic, STACKFILE_MAGIC, sizeof(head.magic));
	head.version = STACKFILE_VERSION;
	head.head_bytes = sizeof(head);
	head.record_bytes = content->record_bytes;
	head.string_bytes = (uint32_t)padded(strings);
	head.binaries = (uint32_t)content->entry_count;

	r = sink_write(sink, &head, sizeof(head));
	if (r == 0)
		r = write_binaries(content, sink);
	if (r == 0)
		r = write_paths(content, strings, sink);
	if (r == 0 && content->record_bytes > 0)
		r = sink_write(sink, content->records, content->record_bytes);
	return r;
}

static bool path_holds(const struct stackfile_binary *binary, const char *strings, size_t len)
{
	const char *path;

	if (binary->path_offset >= len || binary->path_len >= len - binary->path_offset)
		return false;
	path = strings + binary->path_offset;
	return strnlen(path, (size_t)binary->path_len + 1) == binary->path_len;
}

int stackfile_parse(const void *data, size_t len, struct stackfile *ret)
{
	const struct stackfile_head *head = data;
	struct stackfile file = { .head = head };
	size_t left = len - sizeof(*head);

	if (len < sizeof(*head) || memcmp(head->magic, STACKFILE_MAGIC, sizeof(head->magic)) != 0)
		return -EBADMSG;
	if (head->version != STACKFILE_VERSION)
		return -EPROTONOSUPPORT;
	if (head->head_bytes != sizeof(*head) || head->binaries > left / sizeof(struct stackfile_binary))
		return -EBADMSG;
	left -= head->binaries * sizeof(struct stackfile_binary);
	if (head->string_bytes > left || head->string_bytes % 8 != 0 || head->record_bytes != left - head->string_bytes)
		return -EBADMSG;
	file.binaries = (const void *)(head + 1);
	file.strings = (const char *)(file.binaries + head->binaries);
	file.records = (const uint8_t *)file.strings + head->string_bytes;
	for (uint32_t i = 0; i < head->binaries; i++) {
		const struct stackfile_binary *binary = &file.binaries[i];

		if (!path_holds(binary, file.strings, head->string_bytes) || binary->kind >= STACKFILE_KINDS ||
		    binary->file.build_id_len > PERFRECORD_BUILD_ID_MAX)
			return -EBADMSG;
	}
	*ret = file;
	return 0;
}
