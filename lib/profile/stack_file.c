/*
 * stack_file.c: five tables and the streams, in one pass each way. The sizes of all of them are in
 * the head and the table of streams, so the length of the file is known: any other length is an
 * error.
 */
#include "lib/profile/stack_file.h"

#include <errno.h>
#include <string.h>

#define STACK_FILE_MAGIC "SPKSTACK" /* without its terminator */
#define STACK_FILE_VERSION 3u

static size_t pad_to_8(size_t len)
{
	return (len + 7) & ~(size_t)7;
}

/* ---- writing ---- */

static int write_some(const void *bytes, size_t len, const struct sink *sink)
{
	return len > 0 ? sink_write(sink, bytes, len) : 0;
}

static int write_streams(const struct stack_file_content *content, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->stream_count; i++) {
		struct stack_file_stream stream = content->streams[i].stream;

		stream.record_bytes = content->streams[i].record_bytes + content->streams[i].more_bytes;
		r = sink_write(sink, &stream, sizeof(stream));
	}
	return r;
}

static int write_binaries(const struct stack_file_content *content, const struct sink *sink)
{
	uint32_t offset = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->entry_count; i++) {
		struct stack_file_binary binary = content->entries[i].binary;

		binary.path_offset = offset;
		binary.path_len = (uint32_t)strlen(content->entries[i].path);
		binary.reserved = 0;
		offset += binary.path_len + 1;
		r = sink_write(sink, &binary, sizeof(binary));
	}
	return r;
}

/* Their texts are behind those of the binaries, which end at `offset`. */
static int write_processes(const struct stack_file_content *content, size_t offset, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->cgroup_count; i++) {
		size_t len = strlen(content->cgroups[i].path);
		struct stack_file_process process = {
			.pid = content->cgroups[i].pid,
			.cgroup_offset = (uint32_t)offset,
			.cgroup_len = (uint32_t)len,
		};

		offset += len + 1;
		r = sink_write(sink, &process, sizeof(process));
	}
	return r;
}

static int write_texts(const struct stack_file_content *content, size_t len, const struct sink *sink)
{
	static const char zeroes[8];
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->entry_count; i++)
		r = sink_write(sink, content->entries[i].path, strlen(content->entries[i].path) + 1);
	for (size_t i = 0; r == 0 && i < content->cgroup_count; i++)
		r = sink_write(sink, content->cgroups[i].path, strlen(content->cgroups[i].path) + 1);
	return r < 0 || pad_to_8(len) == len ? r : sink_write(sink, zeroes, pad_to_8(len) - len);
}

static int write_records(const struct stack_file_content *content, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < content->stream_count; i++) {
		const struct stack_file_records *stream = &content->streams[i];

		r = stream->unpack ? stream->unpack(stream->records, sink)
				   : write_some(stream->records, stream->record_bytes, sink);
		if (r == 0)
			r = write_some(stream->more, stream->more_bytes, sink);
	}
	return r;
}

int stack_file_write(const struct stack_file_content *content, const struct sink *sink)
{
	struct stack_file_head head = content->head;
	size_t paths = 0, strings;
	int r;

	for (size_t i = 0; i < content->entry_count; i++)
		paths += strlen(content->entries[i].path) + 1;
	strings = paths;
	for (size_t i = 0; i < content->cgroup_count; i++)
		strings += strlen(content->cgroups[i].path) + 1;
	if (pad_to_8(strings) > UINT32_MAX || content->entry_count > UINT32_MAX || content->cgroup_count > UINT32_MAX ||
	    content->stream_count > UINT32_MAX || content->member_count > UINT32_MAX)
		return -EOVERFLOW;
	memcpy(head.magic, STACK_FILE_MAGIC, sizeof(head.magic));
	head.version = STACK_FILE_VERSION;
	head.head_bytes = sizeof(head);
	head.string_bytes = (uint32_t)pad_to_8(strings);
	head.streams = (uint32_t)content->stream_count;
	head.binaries = (uint32_t)content->entry_count;
	head.processes = (uint32_t)content->cgroup_count;
	head.members = (uint32_t)content->member_count;

	r = sink_write(sink, &head, sizeof(head));
	if (r == 0)
		r = write_streams(content, sink);
	if (r == 0)
		r = write_binaries(content, sink);
	if (r == 0)
		r = write_processes(content, paths, sink);
	if (r == 0)
		r = write_some(content->members, content->member_count * sizeof(*content->members), sink);
	if (r == 0)
		r = write_texts(content, strings, sink);
	return r == 0 ? write_records(content, sink) : r;
}

/* ---- reading ---- */

static bool text_holds(const struct stack_file *file, uint32_t offset, uint32_t len)
{
	size_t bytes = file->head->string_bytes;

	if (offset >= bytes || len >= bytes - offset)
		return false;
	return strnlen(file->strings + offset, (size_t)len + 1) == len;
}

static bool streams_hold(struct stack_file *file, const uint8_t *records, size_t left)
{
	uint32_t seen = 0;

	for (uint32_t i = 0; i < file->head->streams; i++) {
		const struct stack_file_stream *stream = &file->streams[i];

		if (stream->kind >= STACK_FILE_STREAM_KINDS || seen & 1u << stream->kind ||
		    stream->record_bytes > left || stream->record_bytes % 8 != 0)
			return false;
		seen |= 1u << stream->kind;
		file->records[i] = records;
		records += stream->record_bytes;
		left -= stream->record_bytes;
	}
	return left == 0;
}

static bool binaries_hold(const struct stack_file *file)
{
	for (uint32_t i = 0; i < file->head->binaries; i++) {
		const struct stack_file_binary *binary = &file->binaries[i];

		if (!text_holds(file, binary->path_offset, binary->path_len) || binary->kind >= STACK_FILE_KINDS ||
		    binary->file.build_id_len > PERF_RECORD_BUILD_ID_MAX)
			return false;
	}
	return true;
}

static bool processes_hold(const struct stack_file *file)
{
	for (uint32_t i = 0; i < file->head->processes; i++) {
		const struct stack_file_process *process = &file->processes[i];

		if (!text_holds(file, process->cgroup_offset, process->cgroup_len) ||
		    (i > 0 && process->pid <= process[-1].pid))
			return false;
	}
	return true;
}

static bool members_hold(const struct stack_file *file)
{
	for (uint32_t i = 1; i < file->head->members; i++)
		if (file->members[i].pid < file->members[i - 1].pid)
			return false;
	return true;
}

int stack_file_parse(const void *data, size_t len, struct stack_file *ret)
{
	const struct stack_file_head *head = data;
	struct stack_file file = { .head = head };

	if (len < sizeof(*head) || memcmp(head->magic, STACK_FILE_MAGIC, sizeof(head->magic)) != 0)
		return -EBADMSG;
	if (head->version != STACK_FILE_VERSION)
		return -EPROTONOSUPPORT;
	if (head->head_bytes != sizeof(*head) || head->streams > STACK_FILE_STREAM_KINDS || head->string_bytes % 8 != 0)
		return -EBADMSG;

	/* No overflow: each number has 32 bits. */
	size_t tables = sizeof(*head) + head->streams * sizeof(struct stack_file_stream) +
			head->binaries * sizeof(struct stack_file_binary) +
			head->processes * sizeof(struct stack_file_process) +
			head->members * sizeof(struct target_member) + head->string_bytes;

	if (tables > len)
		return -EBADMSG;
	file.streams = (const void *)(head + 1);
	file.binaries = (const void *)(file.streams + head->streams);
	file.processes = (const void *)(file.binaries + head->binaries);
	file.members = (const void *)(file.processes + head->processes);
	file.strings = (const char *)(file.members + head->members);
	if (!streams_hold(&file, (const uint8_t *)data + tables, len - tables) || !binaries_hold(&file) ||
	    !processes_hold(&file) || !members_hold(&file))
		return -EBADMSG;
	*ret = file;
	return 0;
}

bool stack_file_is_member(const struct stack_file *file, uint32_t pid, uint64_t time_ns)
{
	const struct target_member *members = file->members;
	size_t low = 0, high = file->head->members;

	if (file->head->everyone)
		return true;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (members[middle].pid < (int32_t)pid)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < file->head->members && members[low].pid == (int32_t)pid; low++)
		if (time_ns >= members[low].from_ns && time_ns <= members[low].to_ns)
			return true;
	return false;
}
