/*
 * check_unwind.c: stacks of programs that keep no frame pointers, from the kernel's samples of them
 * to names. Needs to be allowed to open perf events on processes of its own; says so if it is not.
 */
#include "symbolize_rig.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

/* Of each run. */
#define SAMPLES 150
#define STACK_BYTES 8192
#define RING_PAGES 512

#define REGISTERS 0xff0fffull /* without those of segments, which 64 bit programs do not have */

#define STAY "__attribute__((noipa)) "

/* burn() below libc's qsort(3), in a recursion, and in one that takes more stack than is copied. */
static const char workload[] =
	"#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\nvolatile long sink;\n" STAY
	"void burn(void) { for (int i = 0; i < 200000; i++) sink++; }\n" STAY
	"int compare(const void *a, const void *b) { burn(); return *(const int *)a - *(const int *)b; }\n" STAY
	"void sorts(void) { int all[4] = { 4, 2, 3, 1 }; qsort(all, 4, sizeof(int), compare); sink += all[0]; }\n" STAY
	"void recurse(int depth) { if (depth > 0) recurse(depth - 1); else burn(); sink++; }\n" STAY
	"void deep(int depth) { volatile char room[1000]; room[depth] = 1;\n"
	"  if (depth > 0) deep(depth - 1); else burn(); sink += room[0]; }\n"
	"void interrupt(int number) { burn(); sink += number; }\n"
	"int main(void) { puts(\"0\"); fflush(stdout); signal(SIGUSR1, interrupt);\n"
	"  for (;;) { raise(SIGUSR1); raise(SIGUSR1); sorts(); recurse(20); recurse(20); deep(30); deep(30); } }\n";

/*
 * What a compiler at run time may have made: push bp; mov bp, sp; call di; pop bp; ret. It calls a
 * function that keeps no frame pointer.
 */
static const char jit[] =
	"#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\nvolatile long sink;\n" STAY
	"void burn(void) { for (int i = 0; i < 200000; i++) sink++; }\n" STAY
	"void called(void) { burn(); sink++; }\n" STAY
	"void enter(void *code) { ((void (*)(void (*)(void)))code)(called); sink++; }\n"
	"int main(void) {\n"
	"  void *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
	"  memcpy(code, \"\\x55\\x48\\x89\\xe5\\xff\\xd7\\x5d\\xc3\", 8);\n"
	"  puts(\"0\"); fflush(stdout); for (;;) enter(code); }\n";

/* A signal at the first instruction of a function: the one before it belongs to no function. */
static const char trap[] =
	"#include <signal.h>\n#include <stdio.h>\nvolatile long sink;\nvoid falls(void);\n"
	"__asm__(\".text\\n.skip 64, 0x90\\n.globl falls\\n.type falls, @function\\nfalls: "
	".cfi_startproc\\nud2\\nret\\n\"\n"
	"  \".cfi_endproc\\n.size falls, .-falls\\n\");\n" STAY
	"void burn(void) { for (int i = 0; i < 200000; i++) sink++; }\n" STAY
	"void handle(int number) { for (;;) { burn(); sink += number; } }\n"
	"int main(void) { puts(\"0\"); fflush(stdout); signal(SIGILL, handle); falls(); return (int)sink; }\n";

static const char clocks[] = "#include <stdio.h>\n#include <time.h>\n" STAY
			     "void ask(void) { struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now); }\n"
			     "int main(void) { puts(\"0\"); fflush(stdout); for (;;) ask(); }\n";

static struct rig rig;
static bool there;

static void setup(void)
{
	there = rig_init(&rig);
}

static void teardown(void)
{
	if (there)
		rig_release(&rig);
}

/* ---- the kernel's samples ---- */

static int open_event(pid_t pid, uint64_t sample_type)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = 997,
		.freq = 1,
		.sample_type = sample_type,
		.sample_regs_user = REGISTERS,
		.sample_stack_user = STACK_BYTES,
		.exclude_kernel = 1,
		.exclude_callchain_kernel = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};

	return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Copies what is in the ring to the stream, record by record. How many samples. */
static size_t drain(struct perf_event_mmap_page *ring, struct buffer *stream)
{
	const char *data = (const char *)ring + ring->data_offset;
	uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE), size = ring->data_size;
	size_t samples = 0;

	while (ring->data_tail < head) {
		struct perf_event_header header;

		memcpy(&header, data + ring->data_tail % size, sizeof(header));
		for (size_t i = 0; i < header.size; i += 8)
			if (header.type == PERF_RECORD_SAMPLE)
				ck_assert_int_eq(buffer_append(stream, data + (ring->data_tail + i) % size, 8), 0);
		samples += header.type == PERF_RECORD_SAMPLE;
		__atomic_store_n(&ring->data_tail, ring->data_tail + header.size, __ATOMIC_RELEASE);
	}

	return samples;
}

/* Samples of the process into a stream. False: not allowed here. */
static bool sample(pid_t pid, enum stack_file_stream_kind kind, size_t wanted)
{
	uint64_t type = PERF_RECORD_FRAME_POINTERS | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), samples = 0;
	AUTO_CLOSE int event = open_event(pid, type);

	if (event < 0) {
		return skip_because("perf_event_open: %s", strerror(errno));
	}
	struct perf_event_mmap_page *ring =
		mmap(NULL, (RING_PAGES + 1) * page, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
	ck_assert_ptr_ne(ring, MAP_FAILED);
	for (int i = 0; i < 600 && samples < wanted; i++) {
		poll(NULL, 0, 100);
		samples += drain(ring, &rig.records[kind]);
	}
	munmap(ring, (RING_PAGES + 1) * page);
	ck_assert_uint_ge(samples, wanted);
	rig.heads[kind] = (struct stack_file_stream){
		.kind = kind,
		.stack_bytes = STACK_BYTES,
		.sample_type = type,
		.regs_user = REGISTERS,
		.units_per_second = 1000000000,
	};

	return true;
}

/* Compiles, runs, samples and symbolises a source as program `name`. False: not allowed here. */
static bool profile_of(const char *source, const char *flags, const char *name, const uint8_t *build_id)
{
	if (!there)
		return false;
	rig_write(&rig, "program.c", source);
	ck_assert_int_eq(rig_shell(&rig, "gcc %s -o %s program.c", flags, name), 0);
	struct rig_process process = rig_start(&rig, name);
	(void)rig_address(&process);
	rig_maps(&rig, process.pid, name, build_id);
	bool sampled = sample(process.pid, STACK_FILE_CPU_FOLLOWED, SAMPLES);
	rig_end(&process);
	if (!sampled)
		return false;
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_uint_eq(rig_count(&rig, "records_broken"), 0);

	return true;
}

static bool profile(const char *flags, const char *name)
{
	return profile_of(workload, flags, name, NULL);
}

/* ---- what comes out ---- */

static size_t occurrences(const char *line, const char *end, const char *what)
{
	size_t count = 0;

	for (; (line = strstr(line, what)) != NULL && line < end; line += strlen(what))
		count++;

	return count;
}

/*
 * Of the stacks that end in `leaf`, how many samples there are, and how many begin so and have
 * `inner` so often.
 */
struct share {
	uint64_t all, good;
};

static struct share share_of(const char *leaf, const char *begin, const char *inner, size_t times)
{
	struct share share = { 0, 0 };

	for (const char *line = rig.folded, *next; *line; line = next) {
		const char *end = strchrnul(line, '\n'), *space = memrchr(line, ' ', (size_t)(end - line));
		size_t len = strlen(leaf);

		next = *end ? end + 1 : end;
		if ((size_t)(space - line) < len || memcmp(space - len, leaf, len) != 0)
			continue;
		uint64_t samples = strtoull(space, NULL, 10);

		share.all += samples;
		if (strncmp(line, begin, strlen(begin)) == 0 && occurrences(line, space, inner) == times)
			share.good += samples;
	}

	return share;
}

/*
 * A sample between two functions may be anything; most are in burn(), which no other place is like.
 */
static void expect(const char *leaf, const char *begin, const char *inner, size_t times)
{
	struct share share = share_of(leaf, begin, inner, times);

	ck_assert_msg(share.all > SAMPLES / 20 && share.good * 20 >= share.all * 19,
		      "%s below %s: %lu of %lu have %zu times %s:\n%s%s", leaf, begin, share.good, share.all, times,
		      inner, rig.folded, rig.counts);
}

START_TEST(functions_without_frame_pointers_have_their_callers)
{
	static const char *const flags[] = { "-O2 -fomit-frame-pointer", "-O2 -fomit-frame-pointer -no-pie",
					     "-O2 -fomit-frame-pointer -static" };

	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		if (!profile(flags[i], "bare"))
			SKIP_TEST("%s", skip_reason);
		expect(";compare;burn", "bare;_start;", ";main;sorts;", 1);
		expect(";recurse;burn", "bare;_start;", ";recurse", 21);
		expect(";interrupt;burn", "bare;_start;", ";main;", 1);
		ck_assert_uint_gt(rig_count(&rig, "frames_by_tables"), rig_count(&rig, "frames") / 2);
		rig_clear(&rig);
	}
}
END_TEST

START_TEST(a_stack_that_is_deeper_than_its_copy_says_so)
{
	if (!profile("-O2 -fomit-frame-pointer", "bare"))
		SKIP_TEST("%s", skip_reason);
	expect(";deep;burn", "bare;[stack cut];deep;", ";main", 0);
	ck_assert_uint_gt(rig_count(&rig, "samples_cut"), 0);
	ck_assert_uint_lt(rig_count(&rig, "samples_cut"), rig_count(&rig, "samples"));
}
END_TEST

START_TEST(the_frame_pointers_of_a_deep_stack_go_on_where_its_copy_ends)
{
	if (!profile("-O2 -fno-omit-frame-pointer", "framed"))
		SKIP_TEST("%s", skip_reason);
	expect(";deep;burn", "framed;", ";main;deep;", 1);
	expect(";deep;burn", "framed;", ";deep", 31);
	expect(";compare;burn", "framed;_start;", ";main;sorts;", 1);
}
END_TEST

/* "[bare+0x1139]" becomes "[bare]". */
static void leave_out_starts(char *text)
{
	for (char *at; (at = strstr(text, "+0x")) != NULL; text = at)
		memmove(at, strchr(at, ']'), strlen(strchr(at, ']')) + 1);
}

START_TEST(a_stripped_program_is_unwound)
{
	if (!profile("-O2 -fomit-frame-pointer -s", "bare"))
		SKIP_TEST("%s", skip_reason);
	leave_out_starts(rig.folded);
	/* _start, main, 21 times recurse() and burn(). */
	struct share share = share_of("[bare];[bare]", "bare;[bare];", ";[bare]", 24);

	ck_assert_msg(share.good > SAMPLES / 20, "%lu of %lu:\n%s", share.good, share.all, rig.folded);
}
END_TEST

START_TEST(a_file_that_is_another_one_by_now_is_not_unwound_with)
{
	static const uint8_t other[20] = { 1, 2, 3 };

	if (!profile_of(workload, "-O2 -fomit-frame-pointer -Wl,--build-id=sha1", "bare", other))
		SKIP_TEST("%s", skip_reason);
	ck_assert_uint_eq(rig_count(&rig, "frames_by_tables"), 0);
	ck_assert_uint_gt(rig_count(&rig, "binaries_replaced"), 0);
	ck_assert_ptr_nonnull(strstr(rig.folded, "[bare (file replaced)]"));
	ck_assert_ptr_null(strstr(rig.folded, "main"));
}
END_TEST

START_TEST(without_debug_frames_or_exception_tables_the_frame_pointers_are_followed)
{
	if (!profile("-O2 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables", "framed"))
		SKIP_TEST("%s", skip_reason);
	expect(";recurse;burn", "framed;", ";main;recurse;", 1);
	expect(";recurse;burn", "framed;", ";recurse", 20); /* burn() itself has none */
}
END_TEST

START_TEST(debug_frames_are_read_where_there_are_no_exception_tables)
{
	if (!profile("-O2 -g -fomit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables", "bare"))
		SKIP_TEST("%s", skip_reason);
	expect(";recurse;burn", "bare;_start;", ";main;recurse;", 1);
	expect(";recurse;burn", "bare;_start;", ";recurse", 21);
}
END_TEST

START_TEST(code_that_was_made_at_run_time_is_gone_through_by_its_frame_pointer)
{
	if (!profile_of(jit, "-O2 -fomit-frame-pointer", "jit", NULL))
		SKIP_TEST("%s", skip_reason);
	expect(";called;burn", "jit;_start;", ";main;enter;[anon];called;", 1);
}
END_TEST

START_TEST(what_a_signal_interrupted_is_exactly_where_it_was)
{
	if (!profile_of(trap, "-O2 -fomit-frame-pointer", "trap", NULL))
		SKIP_TEST("%s", skip_reason);
	expect(";handle;burn", "trap;_start;", ";main;falls;", 1);
}
END_TEST

START_TEST(the_vdso_is_unwound)
{
	uint64_t all = 0, good = 0;

	if (!profile_of(clocks, "-O2 -fomit-frame-pointer", "clocks", NULL))
		SKIP_TEST("%s", skip_reason);
	for (const char *line = rig.folded, *end; *line; line = *end ? end + 1 : end) {
		end = strchrnul(line, '\n');
		const char *space = memrchr(line, ' ', (size_t)(end - line)),
			   *leaf = memrchr(line, ';', (size_t)(space - line));

		if (occurrences(leaf, space, "vdso") == 0)
			continue;
		all += strtoull(space, NULL, 10);
		if (occurrences(line, space, ";main;ask;") == 1 && strncmp(line, "clocks;_start;", 14) == 0)
			good += strtoull(space, NULL, 10);
	}
	if (all == 0)
		SKIP_TEST("the clock is not read in the vDSO here");
	ck_assert_msg(good * 20 >= all * 19, "%lu of %lu:\n%s", good, all, rig.folded);
}
END_TEST

/* Within its limits it ends, whatever the tables say; what is not of the damaged file stays. */
START_TEST(damaged_tables_harm_nobody)
{
	unsigned long start, size;
	size_t which = 0;

	if (!profile("-O2 -fomit-frame-pointer", "bare"))
		SKIP_TEST("%s", skip_reason);
	rig_shell(&rig,
		  "readelf -SW bare | sed -n 's/.* \\.eh_frame  *PROGBITS *[0-9a-f]* \\([0-9a-f]*\\) \\([0-9a-f]*\\) "
		  ".*/\\1 \\2/p' > section");
	char *section = rig_read(&rig, "section");
	ck_assert_int_eq(sscanf(section, "%lx %lx", &start, &size), 2);
	free(section);
	while (strstr(rig.paths[which], "/bare") == NULL)
		which++;
	for (unsigned seed = 1; seed <= 60; seed++) {
		unsigned state = seed;

		ck_assert_int_eq(rig_shell(&rig, "cp bare damaged"), 0);
		char path[256];
		snprintf(path, sizeof(path), "%s/damaged", rig.dir);
		AUTO_CLOSE int file = open(path, O_RDWR | O_CLOEXEC);

		for (unsigned i = 0; i <= seed; i++) {
			state = state * 1103515245 + 12345;
			unsigned char wrong = (unsigned char)(state >> 24);
			ck_assert_int_eq(pwrite(file, &wrong, 1, (off_t)(start - 32 + (state >> 8) % (size + 32))), 1);
		}
		dup2(file, rig.entries[which].binary.fd);
		int code = rig_run(&rig, "--debug-files=");
		ck_assert_msg(code == 0 || (code > 128 && code != 128 + SIGALRM), "seed %u: %d", seed, code);
		if (code == 0)
			ck_assert_uint_ge(rig_count(&rig, "samples"), SAMPLES);
	}
}
END_TEST

Suite *unwind_suite(void);
Suite *unwind_suite(void)
{
	Suite *suite = suite_create("unwind");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, setup, teardown);
	tcase_set_timeout(core, 600);
#ifdef __x86_64__
	tcase_add_test(core, functions_without_frame_pointers_have_their_callers);
	tcase_add_test(core, a_stack_that_is_deeper_than_its_copy_says_so);
	tcase_add_test(core, the_frame_pointers_of_a_deep_stack_go_on_where_its_copy_ends);
	tcase_add_test(core, a_stripped_program_is_unwound);
	tcase_add_test(core, a_file_that_is_another_one_by_now_is_not_unwound_with);
	tcase_add_test(core, without_debug_frames_or_exception_tables_the_frame_pointers_are_followed);
	tcase_add_test(core, debug_frames_are_read_where_there_are_no_exception_tables);
	tcase_add_test(core, code_that_was_made_at_run_time_is_gone_through_by_its_frame_pointer);
	tcase_add_test(core, what_a_signal_interrupted_is_exactly_where_it_was);
	tcase_add_test(core, the_vdso_is_unwound);
	tcase_add_test(core, damaged_tables_harm_nobody);
#endif
	suite_add_tcase(suite, core);

	return suite;
}
