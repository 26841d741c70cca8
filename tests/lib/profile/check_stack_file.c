/* check_stack_file.c: the file comes back as it was written; a torn one is refused. */
#include "lib/base/base.h"
#include "lib/profile/stack_file.h"
#include "torture.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *stack_file_suite(void);

static const uint64_t records[] = { PERF_RECORD_LOST | (48ULL << 48), 0, 5, 0, 0, 0 };
static const struct stack_file_entry entries[] = {
	{ .binary = { .fd = 3, .kind = STACK_FILE_ELF, .pid = 7, .file = { .build_id = { 1, 2 }, .build_id_len = 20 } },
	  .path = "/usr/bin/first" },
	{ .binary = { .fd = -1, .kind = STACK_FILE_KALLSYMS }, .path = "" },
	{ .binary = { .fd = 4, .kind = STACK_FILE_PERF_MAP, .pid = 9 }, .path = "/tmp/perf-9.map" },
};
static const uint64_t sample[] = { PERF_RECORD_SAMPLE | (16ULL << 48), 77 };
static const struct stack_file_records streams[] = {
	{ .stream = { .kind = STACK_FILE_SIDEBAND, .sample_type = PERF_RECORD_FRAME_POINTERS },
	  .records = records,
	  .record_bytes = sizeof(records) },
	{ .stream = { .kind = STACK_FILE_CPU_FOLLOWED,
		      .sample_type = PERF_RECORD_FRAME_POINTERS,
		      .units_per_second = 9 } },
	{ .stream = { .kind = STACK_FILE_FAULTS, .stack_bytes = 4096, .regs_user = 5, .covered_ns = 6, .lost = 7 },
	  .records = sample,
	  .record_bytes = sizeof(sample) },
};
static const struct stack_file_cgroup cgroups[] = { { 7, "/system.slice/first" }, { 9, "" }, { 10, "/x" } };
static struct stack_file_content content = {
	.head = { .fired_mono_ns = 55, .page_bytes = 4096, .frequency = 99 },
	.streams = streams,
	.stream_count = 3,
	.entries = entries,
	.entry_count = 3,
	.cgroups = cgroups,
	.cgroup_count = 3,
};

static void written(struct buffer *buffer)
{
	const struct sink sink = sink_buffer(buffer);

	ck_assert_int_eq(stack_file_write(&content, &sink), 0);
}

START_TEST(file_comes_back)
{
	struct buffer buffer = { 0 };
	struct stack_file file;

	written(&buffer);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	ck_assert_uint_eq(file.head->fired_mono_ns, 55);
	ck_assert_uint_eq(file.head->binaries, 3);
	for (size_t i = 0; i < 3; i++) {
		const struct stack_file_binary *binary = &file.binaries[i];

		ck_assert_str_eq(file.strings + binary->path_offset, entries[i].path);
		ck_assert_uint_eq(binary->path_len, strlen(entries[i].path));
		ck_assert_int_eq(binary->fd, entries[i].binary.fd);
		ck_assert_uint_eq(binary->kind, entries[i].binary.kind);
		ck_assert_uint_eq(binary->pid, entries[i].binary.pid);
		ck_assert(perf_record_file_same(&binary->file, &entries[i].binary.file));
	}
	buffer_release(&buffer);
}
END_TEST

START_TEST(streams_come_back_each_with_its_records)
{
	struct buffer buffer = { 0 };
	struct stack_file file;

	written(&buffer);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	ck_assert_uint_eq(file.head->streams, 3);
	for (size_t i = 0; i < 3; i++) {
		struct stack_file_stream expected = streams[i].stream;

		expected.record_bytes = streams[i].record_bytes;
		ck_assert_mem_eq(&file.streams[i], &expected, sizeof(expected));
		ck_assert_uint_eq((uintptr_t)file.records[i] % PERF_RECORD_ALIGN, 0);
		ck_assert(expected.record_bytes == 0 ||
			  memcmp(file.records[i], streams[i].records, expected.record_bytes) == 0);
	}
	buffer_release(&buffer);
}
END_TEST

START_TEST(cgroups_of_processes_come_back)
{
	struct buffer buffer = { 0 };
	struct stack_file file;

	written(&buffer);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	ck_assert_uint_eq(file.head->processes, 3);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(file.processes[i].pid, cgroups[i].pid);
		ck_assert_str_eq(file.strings + file.processes[i].cgroup_offset, cgroups[i].path);
		ck_assert_uint_eq(file.processes[i].cgroup_len, strlen(cgroups[i].path));
	}
	buffer_release(&buffer);
}
END_TEST

START_TEST(a_process_is_a_member_only_while_it_was_one)
{
	static const struct target_member members[] = {
		{ .pid = 7, .from_ns = 10, .to_ns = 20 },
		{ .pid = 7, .from_ns = 40, .to_ns = UINT64_MAX },
		{ .pid = 9, .from_ns = 0, .to_ns = 5 },
	};
	struct stack_file_content of_members = content;
	struct buffer buffer = { 0 };
	const struct sink sink = sink_buffer(&buffer);
	struct stack_file file;

	of_members.members = members;
	of_members.member_count = ARRAY_LEN(members);
	ck_assert_int_eq(stack_file_write(&of_members, &sink), 0);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	ck_assert(stack_file_is_member(&file, 7, 10) && stack_file_is_member(&file, 7, 20));
	ck_assert(!stack_file_is_member(&file, 7, 9) && !stack_file_is_member(&file, 7, 21));
	ck_assert(stack_file_is_member(&file, 7, 40) && stack_file_is_member(&file, 9, 5));
	ck_assert(!stack_file_is_member(&file, 9, 6) && !stack_file_is_member(&file, 8, 5));
	buffer_release(&buffer);
	of_members.head.everyone = 1;
	ck_assert_int_eq(stack_file_write(&of_members, &sink), 0);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	ck_assert(stack_file_is_member(&file, 8, 1));
	buffer_release(&buffer);
}
END_TEST

START_TEST(empty_file_is_a_file)
{
	const struct stack_file_content empty = { 0 };
	struct buffer buffer = { 0 };
	const struct sink sink = sink_buffer(&buffer);
	struct stack_file file;

	ck_assert_int_eq(stack_file_write(&empty, &sink), 0);
	ck_assert_uint_eq(buffer.len, sizeof(struct stack_file_head));
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	ck_assert_uint_eq(file.head->binaries, 0);
	ck_assert_uint_eq(file.head->streams, 0);
	ck_assert_uint_eq(file.head->processes, 0);
	buffer_release(&buffer);
}
END_TEST

START_TEST(every_other_length_is_refused)
{
	struct buffer buffer = { 0 };
	struct stack_file file;

	written(&buffer);
	for (size_t len = 0; len < buffer.len; len++)
		ck_assert_int_eq(stack_file_parse(buffer.data, len, &file), -EBADMSG);
	ck_assert_int_eq(buffer_append(&buffer, "12345678", 8), 0);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	buffer_release(&buffer);
}
END_TEST

/* Each flipped byte is refused, or what comes of it stays inside. */
START_TEST(flipped_bytes_stay_inside)
{
	struct buffer buffer = { 0 };
	struct stack_file file;

	written(&buffer);
	for (size_t at = 0; at < buffer.len; at++)
		for (unsigned bit = 0; bit < 8; bit++) {
			buffer.data[at] ^= (char)(1 << bit);
			if (stack_file_parse(buffer.data, buffer.len, &file) == 0)
				for (uint32_t i = 0; i < file.head->binaries; i++)
					ck_assert_uint_eq(strlen(file.strings + file.binaries[i].path_offset),
							  file.binaries[i].path_len);
			buffer.data[at] ^= (char)(1 << bit);
		}
	((struct stack_file_head *)(void *)buffer.data)->version++;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EPROTONOSUPPORT);
	buffer_release(&buffer);
}
END_TEST

START_TEST(tables_that_lie_are_refused)
{
	struct buffer buffer = { 0 };
	struct stack_file_binary *first;
	struct stack_file file;

	written(&buffer);
	first = (void *)(buffer.data + sizeof(struct stack_file_head) + 3 * sizeof(struct stack_file_stream));
	first->path_len--;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	first->path_len += 2;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	first->path_len--;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	first->path_offset = UINT32_MAX;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	first->path_offset = 0;
	first->kind = STACK_FILE_KINDS;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	first->kind = STACK_FILE_ELF;
	first->file.build_id_len = 21;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	buffer_release(&buffer);
}
END_TEST

START_TEST(streams_that_lie_are_refused)
{
	struct buffer buffer = { 0 };
	struct stack_file_stream *stream;
	struct stack_file file;

	written(&buffer);
	stream = (void *)(buffer.data + sizeof(struct stack_file_head));
	stream[1].kind = STACK_FILE_SIDEBAND; /* a second one */
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	stream[1].kind = STACK_FILE_STREAM_KINDS;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	stream[1].kind = STACK_FILE_CPU;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	stream[0].record_bytes -= 4; /* of the right sum, but not aligned */
	stream[2].record_bytes += 4;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	stream[0].record_bytes += 4;
	stream[2].record_bytes = 0 - (uint64_t)sizeof(records);
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	buffer_release(&buffer);
}
END_TEST

START_TEST(processes_that_lie_are_refused)
{
	struct buffer buffer = { 0 };
	struct stack_file_process *process;
	struct stack_file file;

	written(&buffer);
	process = (void *)(buffer.data + sizeof(struct stack_file_head) + 3 * sizeof(struct stack_file_stream) +
			   3 * sizeof(struct stack_file_binary));
	process[1].pid = process[0].pid;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	process[1].pid++;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), 0);
	process[2].cgroup_len++;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	process[2].cgroup_len--;
	process[2].cgroup_offset += 64;
	ck_assert_int_eq(stack_file_parse(buffer.data, buffer.len, &file), -EBADMSG);
	buffer_release(&buffer);
}
END_TEST

START_TEST(every_write_may_fail)
{
	struct buffer buffer = { 0 };

	written(&buffer);
	for (long bytes = 0; bytes <= (long)buffer.len; bytes++) {
		long left = bytes;
		const struct sink sink = torture_sink(&left);

		ck_assert_int_eq(stack_file_write(&content, &sink), bytes < (long)buffer.len ? -EIO : 0);
	}
	buffer_release(&buffer);
}
END_TEST

Suite *stack_file_suite(void)
{
	Suite *suite = suite_create("stack_file");
	TCase *tcase = tcase_create("stackfile");

	tcase_add_test(tcase, file_comes_back);
	tcase_add_test(tcase, streams_come_back_each_with_its_records);
	tcase_add_test(tcase, cgroups_of_processes_come_back);
	tcase_add_test(tcase, a_process_is_a_member_only_while_it_was_one);
	tcase_add_test(tcase, empty_file_is_a_file);
	tcase_add_test(tcase, every_other_length_is_refused);
	tcase_add_test(tcase, flipped_bytes_stay_inside);
	tcase_add_test(tcase, tables_that_lie_are_refused);
	tcase_add_test(tcase, streams_that_lie_are_refused);
	tcase_add_test(tcase, processes_that_lie_are_refused);
	tcase_add_test(tcase, every_write_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
