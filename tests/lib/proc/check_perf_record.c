/* check_perf_record.c: what is written is read back; what does not add up is refused. */
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *perf_record_suite(void);

static const struct perf_record_format format = { .sample_type = PERF_RECORD_FRAME_POINTERS };
static const uint64_t chain[] = { PERF_CONTEXT_KERNEL, 0xffffffff81000000, PERF_CONTEXT_USER, 0x401000, 0x402000 };
static _Alignas(8) uint8_t bytes[PERF_RECORD_SIZE_MAX + 8];
static size_t len;

static struct perf_record base(uint32_t type)
{
	return (struct perf_record){ .type = type, .pid = 12, .tid = 13, .cpu = 3, .time_ns = 1234567890123 };
}

static struct perf_record sample(void)
{
	struct perf_record record = base(PERF_RECORD_SAMPLE);

	record.sample =
		(struct perf_record_sample){ .ip = 0x401000, .period = 10101010, .chain = chain, .chain_len = 5 };
	return record;
}

static struct perf_record mmap_of(const char *path, uint32_t build_id_len)
{
	struct perf_record record = base(PERF_RECORD_MMAP2);

	record.mmap = (struct perf_record_mmap){
		.start = 0x400000, .len = 0x1000, .offset = 0x2000, .prot = 5, .flags = 2, .path = path
	};
	record.mmap.path_len = strlen(path);
	if (build_id_len > 0) {
		record.mmap.file.build_id_len = build_id_len;
		memset(record.mmap.file.build_id, 0xab, build_id_len);
	} else {
		record.mmap.file =
			(struct perf_record_file){ .major = 8, .minor = 1, .inode = 99, .inode_generation = 7 };
	}
	return record;
}

static struct perf_record comm_of(const char *name, bool exec)
{
	struct perf_record record = base(PERF_RECORD_COMM);

	record.comm.name = name;
	record.comm.name_len = strlen(name);
	record.comm.exec = exec;
	return record;
}

static struct perf_record again(const struct perf_record *record)
{
	struct perf_record read = { 0 };

	memset(bytes, 0xee, sizeof(bytes));
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, record, bytes, sizeof(bytes), &len), 0);
	ck_assert_int_eq(perf_record_decode(&format, bytes, sizeof(bytes), &read), 0);
	ck_assert_uint_eq(read.size, len);
	ck_assert_uint_eq(read.type, record->type);
	ck_assert_uint_eq(read.pid, record->pid);
	ck_assert_uint_eq(read.tid, record->tid);
	ck_assert_uint_eq(read.cpu, record->cpu);
	ck_assert_uint_eq(read.time_ns, record->time_ns);
	return read;
}

START_TEST(sample_comes_back)
{
	struct perf_record record = sample(), read = again(&record);

	ck_assert_uint_eq(read.sample.ip, 0x401000);
	ck_assert_uint_eq(read.sample.period, 10101010);
	ck_assert_uint_eq(read.sample.chain_len, 5);
	ck_assert_mem_eq(read.sample.chain, chain, sizeof(chain));
}
END_TEST

START_TEST(mapping_comes_back_with_inode_or_build_id)
{
	static const char *const paths[] = { "/usr/lib/libc.so.6", "", "1234567", "12345678", "//anon" };
	static const uint32_t build_ids[] = { 0, 1, 16, 20 };

	for (size_t i = 0; i < 5; i++)
		for (size_t j = 0; j < 4; j++) {
			struct perf_record record = mmap_of(paths[i], build_ids[j]), read = again(&record);

			ck_assert_uint_eq(read.mmap.start, 0x400000);
			ck_assert_uint_eq(read.mmap.len, 0x1000);
			ck_assert_uint_eq(read.mmap.offset, 0x2000);
			ck_assert_uint_eq(read.mmap.prot, 5);
			ck_assert_uint_eq(read.mmap.flags, 2);
			ck_assert_str_eq(read.mmap.path, paths[i]);
			ck_assert_uint_eq(read.mmap.path_len, strlen(paths[i]));
			ck_assert(perf_record_file_same(&read.mmap.file, &record.mmap.file));
		}
}
END_TEST

START_TEST(name_fork_exit_and_lost_come_back)
{
	struct perf_record record = comm_of("a;b\nc", true), read = again(&record);

	ck_assert_str_eq(read.comm.name, "a;b\nc");
	ck_assert(read.comm.exec);
	record = comm_of("", false);
	read = again(&record);
	ck_assert_str_eq(read.comm.name, "");
	ck_assert(!read.comm.exec);

	record = base(PERF_RECORD_FORK);
	record.fork.ppid = 5;
	record.fork.ptid = 6;
	read = again(&record);
	ck_assert_uint_eq(read.fork.ppid, 5);
	ck_assert_uint_eq(read.fork.ptid, 6);
	record.type = PERF_RECORD_EXIT;
	read = again(&record);
	ck_assert_uint_eq(read.fork.ppid, 5);

	record = base(PERF_RECORD_LOST);
	record.lost.count = 17;
	read = again(&record);
	ck_assert_uint_eq(read.lost.count, 17);
}
END_TEST

/*
 * What the kernel wrote (little-endian, x86-64), by hand from perf_event_open(2): not by our own
 * encoder.
 */
START_TEST(kernels_layout_is_understood)
{
	static const _Alignas(8) uint32_t words[] = {
		PERF_RECORD_SAMPLE, 0x00500002, 0x401000, 0, 7, 8, 5000, 0, 1, 0, 99, 0, 2, 0,
		0xfffffe00,         0xffffffff, 0x401000, 0, 0, 0,
	};
	static const _Alignas(8) uint32_t fork_words[] = {
		PERF_RECORD_FORK, 0x00380000, 21, 20, 23, 22, 777, 0, 20, 22, 777, 0, 2, 0,
	};
	struct perf_record read;

	ck_assert_uint_eq(sizeof(words), 0x50);
	ck_assert_int_eq(perf_record_decode(&format, words, sizeof(words), &read), 0);
	ck_assert_uint_eq(read.misc, PERF_RECORD_MISC_USER);
	ck_assert_uint_eq(read.sample.ip, 0x401000);
	ck_assert_uint_eq(read.pid, 7);
	ck_assert_uint_eq(read.tid, 8);
	ck_assert_uint_eq(read.time_ns, 5000);
	ck_assert_uint_eq(read.cpu, 1);
	ck_assert_uint_eq(read.sample.period, 99);
	ck_assert_uint_eq(read.sample.chain_len, 2);
	ck_assert_uint_eq(read.sample.chain[0], PERF_CONTEXT_USER);
	ck_assert_uint_eq(read.sample.chain[1], 0x401000);

	ck_assert_int_eq(perf_record_decode(&format, fork_words, sizeof(fork_words), &read), 0);
	ck_assert_uint_eq(read.pid, 21);
	ck_assert_uint_eq(read.fork.ppid, 20);
	ck_assert_uint_eq(read.tid, 23);
	ck_assert_uint_eq(read.fork.ptid, 22);
	ck_assert_uint_eq(read.time_ns, 777);
	ck_assert_uint_eq(read.cpu, 2);
}
END_TEST

START_TEST(registers_and_stack_are_found)
{
	const struct perf_record_format wide = {
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER, .regs_user = 0x180
	};
	static const _Alignas(8) uint64_t words[] = {
		PERF_RECORD_SAMPLE | (72ULL << 48), 0x401000, PERF_SAMPLE_REGS_ABI_64, 11, 22, 16, 0x4142, 0, 3,
	};
	static const _Alignas(8) uint64_t without[] = {
		PERF_RECORD_SAMPLE | (32ULL << 48),
		0x401000,
		PERF_SAMPLE_REGS_ABI_NONE,
		0,
	};
	struct perf_record read;

	ck_assert_int_eq(perf_record_decode(&wide, words, sizeof(words), &read), 0);
	ck_assert_uint_eq(read.sample.regs_len, 2);
	ck_assert_uint_eq(read.sample.regs[1], 22);
	ck_assert_uint_eq(read.sample.stack_bytes, 3);
	ck_assert_mem_eq(read.sample.stack, "BA", 3);

	ck_assert_int_eq(perf_record_decode(&wide, without, sizeof(without), &read), 0);
	ck_assert_ptr_null(read.sample.regs);
	ck_assert_ptr_null(read.sample.stack);
}
END_TEST

static struct perf_record wide_sample(const uint64_t *regs, const uint8_t *stack, size_t stack_bytes)
{
	struct perf_record record = sample();

	record.sample.regs_abi = PERF_SAMPLE_REGS_ABI_64;
	record.sample.regs = regs;
	record.sample.regs_len = 20;
	record.sample.stack = stack;
	record.sample.stack_bytes = stack_bytes;
	return record;
}

START_TEST(registers_and_stack_come_back)
{
	static const struct perf_record_format wide = { PERF_RECORD_DWARF, PERF_RECORD_REGS_X86_64 };
	static const uint64_t regs[20] = { 1, 2, 3, [7] = 0x7ffe0000, [8] = 0x401000, [19] = 15 };
	static uint8_t stack[4096];
	struct perf_record record, read;

	for (size_t i = 0; i < sizeof(stack); i++)
		stack[i] = (uint8_t)(i * 7 + 1);
	for (size_t n = 1; n < 4096; n += n < 20 ? 1 : 501) {
		record = wide_sample(regs, stack, n);
		memset(bytes, 0xee, sizeof(bytes));
		ck_assert_int_eq(perf_record_encode(&wide, &record, bytes, sizeof(bytes), &len), 0);
		ck_assert_int_eq(perf_record_decode(&wide, bytes, len, &read), 0);
		ck_assert_uint_eq(read.size, len);
		ck_assert_uint_eq(read.sample.chain_len, 5);
		ck_assert_mem_eq(read.sample.chain, chain, sizeof(chain));
		ck_assert_uint_eq(read.sample.regs_len, 20);
		ck_assert_mem_eq(read.sample.regs, regs, sizeof(regs));
		ck_assert_uint_eq(read.sample.stack_bytes, n);
		ck_assert_mem_eq(read.sample.stack, stack, n);
		for (size_t cut = 0; n < 20 && cut < len; cut++) {
			size_t unused;

			ck_assert_int_eq(perf_record_decode(&wide, bytes, cut, &read), -EBADMSG);
			ck_assert_int_eq(perf_record_encode(&wide, &record, bytes, cut, &unused), -ENOSPC);
		}
	}
	/* a kernel thread: neither */
	record = sample();
	ck_assert_int_eq(perf_record_encode(&wide, &record, bytes, sizeof(bytes), &len), 0);
	ck_assert_int_eq(perf_record_decode(&wide, bytes, len, &read), 0);
	ck_assert_uint_eq(read.sample.regs_abi, PERF_SAMPLE_REGS_ABI_NONE);
	ck_assert_ptr_null(read.sample.regs);
	ck_assert_ptr_null(read.sample.stack);
}
END_TEST

/* Behind all else of a sample, and not in the trailer of other records. */
START_TEST(the_cgroup_comes_back)
{
	const struct perf_record_format with = { .sample_type = PERF_RECORD_FRAME_POINTERS | PERF_SAMPLE_CGROUP };
	struct perf_record record = sample(), read;
	uint64_t last;

	record.sample.cgroup = 4711;
	ck_assert_int_eq(perf_record_encode(&with, &record, bytes, sizeof(bytes), &len), 0);
	memcpy(&last, bytes + len - sizeof(last), sizeof(last));
	ck_assert_uint_eq(last, 4711);
	ck_assert_int_eq(perf_record_decode(&with, bytes, len, &read), 0);
	ck_assert_uint_eq(read.sample.cgroup, 4711);
	ck_assert_uint_eq(read.sample.chain_len, 5);
	ck_assert_int_eq(perf_record_decode(&with, bytes, len - 8, &read), -EBADMSG);
	record = comm_of("name", false);
	ck_assert_int_eq(perf_record_encode(&with, &record, bytes, sizeof(bytes), &len), 0);
	ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), 0);
	ck_assert_str_eq(read.comm.name, "name");
}
END_TEST

/* PERF_RECORD_CGROUP: id, path, and the trailer that all records have. */
START_TEST(a_cgroup_that_was_made_has_its_path)
{
	static _Alignas(8) struct {
		struct perf_event_header head;
		uint64_t id;
		char path[16];
		uint32_t pid, tid;
		uint64_t time_ns;
		uint32_t cpu, unused;
	} made = { { PERF_RECORD_CGROUP, 0, sizeof(made) }, 4711, "/a.slice/b", 12, 13, 99, 1, 0 };
	struct perf_record read;

	ck_assert_int_eq(perf_record_decode(&format, &made, sizeof(made), &read), 0);
	ck_assert_uint_eq(read.cgroup.id, 4711);
	ck_assert_str_eq(read.cgroup.path, "/a.slice/b");
	ck_assert_uint_eq(read.cgroup.path_len, 10);
	ck_assert_uint_eq(read.time_ns, 99);
	memset(made.path, 'x', sizeof(made.path));
	ck_assert_int_eq(perf_record_decode(&format, &made, sizeof(made), &read), -EBADMSG);
}
END_TEST

START_TEST(what_the_format_cannot_hold_is_refused)
{
	static const struct perf_record_format wide = { PERF_RECORD_DWARF, PERF_RECORD_REGS_X86_64 };
	static const struct perf_record_format thin = { PERF_SAMPLE_IP | PERF_SAMPLE_TID, 0 };
	static const struct perf_record_format odd = { PERF_RECORD_DWARF | PERF_SAMPLE_ADDR, 0 };
	static const uint64_t regs[20];
	static const uint8_t stack[8];
	struct perf_record record = wide_sample(regs, stack, 8);

	record.sample.regs_len = 19;
	ck_assert_int_eq(perf_record_encode(&wide, &record, bytes, sizeof(bytes), &len), -EINVAL);
	record.sample.regs_len = 20;
	ck_assert_int_eq(perf_record_encode(&thin, &record, bytes, sizeof(bytes), &len), -EINVAL);
	ck_assert_int_eq(perf_record_encode(&odd, &record, bytes, sizeof(bytes), &len), -EINVAL);
	record.sample.stack_bytes = SIZE_MAX - 3;
	ck_assert_int_eq(perf_record_encode(&wide, &record, bytes, sizeof(bytes), &len), -ENOSPC);
}
END_TEST

/*
 * Each cut is refused, by its size; and so is each size that is shorter than what is inside says.
 */
START_TEST(cut_records_are_refused)
{
	const struct perf_record records[] = { sample(), mmap_of("/usr/bin/true", 0), comm_of("name-of-it", true),
					       base(PERF_RECORD_FORK), base(PERF_RECORD_LOST) };
	struct perf_record read;

	for (size_t i = 0; i < 5; i++) {
		ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &records[i], bytes, sizeof(bytes), &len), 0);
		for (size_t cut = 0; cut < len; cut++)
			ck_assert_int_eq(perf_record_decode(&format, bytes, cut, &read), -EBADMSG);
		for (uint16_t size = 0; size < 8; size++) {
			memcpy(bytes + 6, &size, sizeof(size));
			ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), -EBADMSG);
		}
		for (uint16_t size = 8; i == 0 && size < len; size = (uint16_t)(size + 8)) {
			memcpy(bytes + 6, &size, sizeof(size));
			ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), -EBADMSG);
		}
	}
}
END_TEST

START_TEST(counts_and_texts_that_lie_are_refused)
{
	struct perf_record record = sample(), read;
	const uint64_t huge[] = { 6, UINT64_MAX, UINT64_MAX / 8, 1ULL << 61, (1ULL << 61) + 5 };

	for (size_t i = 0; i < 5; i++) {
		ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), 0);
		memcpy(bytes + 48, &huge[i], 8);
		ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), -EBADMSG);
	}
	/* a path without its end */
	record = mmap_of("1234567", 20);
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), 0);
	bytes[len - 25] = 'x';
	ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), -EBADMSG);
	/* a build id longer than one can be */
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), 0);
	bytes[40] = 21;
	ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), -EBADMSG);
	/* a mapping that goes round */
	record.mmap.len = UINT64_MAX;
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), 0);
	ck_assert_int_eq(perf_record_decode(&format, bytes, len, &read), -EBADMSG);
}
END_TEST

START_TEST(what_does_not_fit_is_not_written)
{
	static uint64_t deep[9000];
	struct perf_record record = sample();

	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), 0);
	for (size_t cap = 0; cap < len; cap++) {
		size_t unused;

		ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, cap, &unused), -ENOSPC);
	}
	record.sample.chain = deep;
	record.sample.chain_len = 9000;
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), -ENOSPC);
	record.sample.chain_len = SIZE_MAX / 8 + 2;
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), -ENOSPC);
	record.type = PERF_RECORD_THROTTLE;
	ck_assert_int_eq(perf_record_encode(&PERF_RECORD_PLAIN, &record, bytes, sizeof(bytes), &len), -EINVAL);
}
END_TEST

START_TEST(unknown_types_are_skipped_and_unknown_formats_refused)
{
	static const _Alignas(8) uint64_t words[] = { 4242 | (40ULL << 48), 1, 2ULL << 32 | 1, 33, 4 };
	const struct perf_record_format other = { .sample_type = PERF_RECORD_FRAME_POINTERS | PERF_SAMPLE_ADDR };
	struct perf_record read;

	ck_assert_int_eq(perf_record_decode(&format, words, sizeof(words), &read), 0);
	ck_assert_uint_eq(read.type, 4242);
	ck_assert_uint_eq(read.size, 40);
	ck_assert_uint_eq(read.time_ns, 33);
	ck_assert_uint_eq(read.pid, 1);
	ck_assert_int_eq(perf_record_decode(&other, words, sizeof(words), &read), -EINVAL);
}
END_TEST

Suite *perf_record_suite(void)
{
	Suite *suite = suite_create("perf_record");
	TCase *tcase = tcase_create("perfrecord");

	tcase_add_test(tcase, sample_comes_back);
	tcase_add_test(tcase, mapping_comes_back_with_inode_or_build_id);
	tcase_add_test(tcase, name_fork_exit_and_lost_come_back);
	tcase_add_test(tcase, kernels_layout_is_understood);
	tcase_add_test(tcase, registers_and_stack_are_found);
	tcase_add_test(tcase, registers_and_stack_come_back);
	tcase_add_test(tcase, the_cgroup_comes_back);
	tcase_add_test(tcase, a_cgroup_that_was_made_has_its_path);
	tcase_add_test(tcase, what_the_format_cannot_hold_is_refused);
	tcase_add_test(tcase, cut_records_are_refused);
	tcase_add_test(tcase, counts_and_texts_that_lie_are_refused);
	tcase_add_test(tcase, what_does_not_fit_is_not_written);
	tcase_add_test(tcase, unknown_types_are_skipped_and_unknown_formats_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
