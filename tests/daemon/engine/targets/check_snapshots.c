/*
 * check_snapshots.c: memory by what is mapped, from files whose figures are known, and from the page
 * tables of a process that knows what it has touched; the CPU time of all processes.
 */
#include "daemon/engine/targets/baseline.c"
#include "scene.h"
#include "skip.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

Suite *snapshots_suite(void);

#define MIB (1ULL << 20)
#define RESERVED (1ULL << 38) /* 256 GiB */
#define LARGE (40 * MIB)

static char root[64];
static int rootfd, procfd;
static struct maps_snapshot *snapshot;

static void setup(void)
{
	scene_directory(root);
	rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert(rootfd >= 0 && procfd >= 0);
	ck_assert_int_eq(mkdirat(rootfd, "50", 0700), 0);
	snapshot = NULL;
}

static void teardown(void)
{
	free(snapshot);
	close(rootfd);
	close(procfd);
	scene_remove(root);
}

START_TEST(very_many_mappings_are_summed)
{
	char path[128];
	uint64_t rss = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/50/smaps", root);
	file = fopen(path, "w");
	for (int i = 0; i < 3000; i++)
		fprintf(file, "%x000-%x000 r--p 00000000 08:02 %d   /lib/%0200d\nRss:    4 kB\n", i + 1, i + 2, i,
			i % 1500);
	fclose(file);
	ck_assert_int_eq(maps_snapshot_take(FOREIGN_INCIDENTS, rootfd, 50, 0, (mono_t){ 7 }, NS_PER_S, &snapshot), 0);
	ck_assert(!snapshot->by_pages);
	ck_assert_uint_eq(snapshot->count, MAPS_SNAPSHOT_MAX);
	ck_assert_str_eq(snapshot->records[MAPS_SNAPSHOT_MAX - 1].name, "[other]");
	for (size_t i = 0; i < snapshot->count; i++)
		rss += snapshot->records[i].rss_bytes;
	ck_assert_uint_eq(rss, 3000 * 4096);
}
END_TEST

START_TEST(nonsense_is_passed_over)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/50/smaps", root);
	scene_write(path, "Rss: 4 kB\nnonsense\n1-\n\n-\n1-2\nz-3 rw-p 0 0 0 x\n");
	ck_assert_int_eq(maps_snapshot_take(FOREIGN_INCIDENTS, rootfd, 50, 0, (mono_t){ 7 }, NS_PER_S, &snapshot), 0);
	ck_assert_uint_eq(snapshot->count, 0);
}
END_TEST

START_TEST(a_process_too_large_for_smaps_that_has_no_page_tables_to_read_is_not_read)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/50/smaps", root);
	scene_write(path, "00400000-00401000 rw-p 00000000 00:00 0  /opt/app\nRss: 4 kB\n");
	snprintf(path, sizeof(path), "%s/50/stat", root);
	scene_write(path, "50 (app) S 1 1 1 0 -1 0 10 0 0 0 0 0 0 0 20 0 1 0 5 1000000 100 0\n");
	snprintf(path, sizeof(path), "%s/50/status", root);
	scene_write(path, "Name:\tapp\nVmRSS:\t   40000 kB\n");
	ck_assert_int_eq(maps_snapshot_take(FOREIGN_INCIDENTS, rootfd, 50, 0, (mono_t){ 7 }, NS_PER_S, &snapshot),
			 -ENOENT);
}
END_TEST

/* ---- page tables ---- */

/*
 * Address space of which the last part is touched, in every other page and then whole, so that
 * regions are many, pieces full, and nearly all of it is empty.
 */
struct reservation {
	char *memory;
	uint64_t touched;
};

static struct reservation reserve(void)
{
	struct reservation made = {
		.memory = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			       0),
	};
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	ck_assert(made.memory != MAP_FAILED);
	madvise(made.memory, RESERVED, MADV_NOHUGEPAGE);
	for (uint64_t at = RESERVED - LARGE; at < RESERVED; at += 2 * page, made.touched += page)
		made.memory[at] = 1;
	for (uint64_t at = RESERVED - 3 * LARGE; at < RESERVED - LARGE; at += page, made.touched += page)
		made.memory[at] = 1;
	for (uint64_t at = 0; at < MIB; at += page)
		made.touched += (uint64_t)((volatile char *)made.memory)[at]; /* the zero page: not resident */
	return made;
}

/* Pages of this test's own memory alone are counted, so that no other changes them meanwhile. */
static uint64_t count_resident(struct reader *reader, char *from, uint64_t bytes)
{
	char path[32];
	uint64_t at = (uint64_t)(uintptr_t)from;

	snapshot = calloc(1, sizeof(*snapshot) + sizeof(snapshot->records[0]));
	*reader = (struct reader){ .snapshot = snapshot,
				   .can_scan = reader->can_scan,
				   .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
				   .cpu_end_ns = UINT64_MAX,
				   .paused_ns = monotonic_ns() };
	snprintf(path, sizeof(path), "%d/pagemap", getpid());
	reader->pagemap = openat(procfd, path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(reader->pagemap, 0);
	ck_assert_int_eq(count_pages(reader, at, at + bytes), 0);
	close(reader->pagemap);
	free(reader->entries);
	return snapshot->records[0].rss_bytes;
}

/* Whether what was only read is the zero page, one for all, as it is on most kernels; root alone can tell. */
static bool has_zero_page(void)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), entries[2] = { 0 };
	volatile char *memory = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	AUTO_CLOSE int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	ck_assert(memory != MAP_FAILED);
	ck_assert_int_eq(memory[0] + memory[page], 0);
	ck_assert_int_eq(pread(pagemap, entries, sizeof entries, (off_t)((uintptr_t)memory / page * 8)),
			 sizeof entries);
	munmap((void *)(uintptr_t)memory, 2 * page);
	return entries[0] == entries[1];
}

START_TEST(scanning_finds_what_was_touched_in_an_empty_space)
{
	struct reservation made = reserve();
	struct reader reader = { .can_scan = true };
	uint64_t resident = count_resident(&reader, made.memory, RESERVED);

	if (!reader.can_scan)
		SKIP_TEST("no PAGEMAP_SCAN (Linux 6.7)");
	ck_assert(!snapshot->left_out);
	ck_assert_uint_eq(resident, made.touched + (has_zero_page() ? 0 : MIB));
	munmap(made.memory, RESERVED);
}
END_TEST

START_TEST(older_kernels_read_the_same)
{
	struct reservation made = reserve();
	struct reader reader = { 0 };

	ck_assert_uint_eq(count_resident(&reader, made.memory + RESERVED - 4 * LARGE, 4 * LARGE), made.touched);
	ck_assert(!snapshot->left_out);
	munmap(made.memory, RESERVED);
}
END_TEST

START_TEST(older_kernels_do_not_read_the_holes_of_a_reservation)
{
	struct reservation made = reserve();
	struct reader reader = { 0 };

	count_resident(&reader, made.memory, RESERVED);
	ck_assert(snapshot->left_out);
	munmap(made.memory, RESERVED);
}
END_TEST

START_TEST(a_large_process_is_read_by_its_page_tables)
{
	struct reservation made = reserve();
	struct maps_record like = { .name = ANONYMOUS, .permissions = "rw-p" };
	const struct maps_record *record;

	ck_assert_int_eq(
		maps_snapshot_take(FOREIGN_INCIDENTS, procfd, getpid(), 0, (mono_t){ 7 }, 60 * NS_PER_S, &snapshot), 0);
	ck_assert(snapshot->by_pages);
	if (snapshot->left_out)
		SKIP_TEST("no PAGEMAP_SCAN (Linux 6.7)");
	record = maps_snapshot_find(snapshot, &like);
	ck_assert_ptr_nonnull(record);
	ck_assert_uint_ge(record->rss_bytes, made.touched);
	ck_assert_uint_lt(record->rss_bytes, made.touched + LARGE);
	ck_assert_uint_eq(record->pss_bytes, 0);
	munmap(made.memory, RESERVED);
}
END_TEST

START_TEST(what_takes_too_long_has_no_records_but_is_a_snapshot)
{
	struct reservation made = reserve();

	ck_assert_int_eq(maps_snapshot_take(FOREIGN_INCIDENTS, procfd, getpid(), 0, (mono_t){ 7 }, 0, &snapshot), 0);
	ck_assert(snapshot->left_out);
	ck_assert_uint_eq(snapshot->count, 0);
	munmap(made.memory, RESERVED);
}
END_TEST

/* ---- all processes ---- */

START_TEST(a_busy_snapshot_gives_memory_back)
{
	struct busy_snapshot busy = { 0 };

	for (unsigned turn = 0; turn < 10; turn++) {
		busy_snapshot_begin(&busy, (mono_t){ NS_PER_S });
		for (int pid = 1; pid <= (turn == 0 ? 10000 : 100); pid++) {
			struct procfs_stat stat = { .pid = pid, .start_ticks = 1, .user_ticks = 1 };

			ck_assert_int_eq(busy_snapshot_add(&busy, &stat), 0);
		}
		busy_snapshot_end(&busy);
		ck_assert_ptr_nonnull(busy_snapshot_find(&busy, 100, 1));
	}
	ck_assert_uint_eq(busy.count, 100);
	ck_assert_uint_le(busy.room, 512);
	busy_snapshot_release(&busy);
}
END_TEST

Suite *snapshots_suite(void)
{
	Suite *suite = suite_create("snapshots");
	TCase *tcase = tcase_create("maps_snapshot");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, very_many_mappings_are_summed);
	tcase_add_test(tcase, nonsense_is_passed_over);
	tcase_add_test(tcase, a_process_too_large_for_smaps_that_has_no_page_tables_to_read_is_not_read);
	tcase_add_test(tcase, scanning_finds_what_was_touched_in_an_empty_space);
	tcase_add_test(tcase, older_kernels_read_the_same);
	tcase_add_test(tcase, older_kernels_do_not_read_the_holes_of_a_reservation);
	tcase_add_test(tcase, a_large_process_is_read_by_its_page_tables);
	tcase_add_test(tcase, what_takes_too_long_has_no_records_but_is_a_snapshot);
	tcase_add_test(tcase, a_busy_snapshot_gives_memory_back);
	suite_add_tcase(suite, tcase);
	return suite;
}
