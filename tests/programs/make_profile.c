/*
 * make_profile.c: known profiles in all their forms, for tests/pprof.sh: cpu.pb.gz, cpu.folded and
 * functions.tsv, memory.pb.gz, memory.folded and memory-functions.tsv in the directory that is the
 * only argument. The story: postgres scans, and a thread of it spins in a function inlined twice;
 * libc is without symbols; bash sleeps and has a hostile name; one stack is beyond the limit.
 * Memory: a thread of postgres fills a hash table, and sorts.
 */
#include "lib/base/base.h"
#include "lib/profile/profile.h"
#include "lib/base/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define FIRED (UINT64_C(100000) * MS)
#define PERIOD (10 * MS)
#define PAGE 4096

static int failed;

static void must(int rc)
{
	if (rc < 0) {
		fprintf(stderr, "make_profile: %s\n", strerror(-rc));
		failed = 1;
	}
}

static uint32_t mapping(struct stack_profile *profile, const char *path, uint64_t start, uint8_t first)
{
	struct stack_profile_mapping mapping = {
		.start = start, .end = start + 0x100000, .offset = 0x1000, .path = path
	};
	uint32_t number = 0;

	mapping.build_id_len = first ? STACK_PROFILE_BUILD_ID_MAX : 0;
	for (size_t i = 0; i < mapping.build_id_len; i++)
		mapping.build_id[i] = (uint8_t)(first + i);
	must(stack_profile_mapping(profile, &mapping, &number));
	return number;
}

static uint32_t frame(struct stack_profile *profile, uint32_t in, uint64_t address,
		      const struct stack_profile_line *lines, size_t count)
{
	struct stack_profile_frame frame = { .mapping = in, .address = address, .lines = lines, .line_count = count };
	uint32_t number = 0;

	must(stack_profile_frame(profile, &frame, &number));
	return number;
}

static uint32_t function(struct stack_profile *profile, uint32_t in, uint64_t address, const char *name,
			 const char *file, uint32_t line)
{
	return frame(profile, in, address, &(struct stack_profile_line){ name, file, line }, 1);
}

/* Of the profile that is made. */
static uint64_t weight_of_one = PERIOD;

static void add(struct stack_profile *profile, uint64_t time_ns, const struct stack_profile_sample *of,
		const uint32_t *frames, size_t count, uint64_t samples)
{
	struct stack_profile_sample sample = *of;

	sample.time_ns = time_ns;
	sample.frames = frames;
	sample.frame_count = count;
	sample.count = samples;
	sample.weight = samples * weight_of_one;
	must(stack_profile_add(profile, &sample));
}

static void fill(struct stack_profile *profile)
{
	static const struct stack_profile_sample scan = {
		.pid = 812, .tid = 812, .process = "postgres", .thread = "postgres", .cgroup = "/db.slice"
	};
	static const struct stack_profile_sample spin = {
		.pid = 812, .tid = 815, .process = "postgres", .thread = "hot-loop", .cgroup = "/db.slice"
	};
	static const struct stack_profile_sample shell = {
		.pid = 9, .tid = 9, .process = "ba;sh\n\x1b[2J", .thread = "ba;sh\n\x1b[2J"
	};
	static const struct stack_profile_line inlined[] = { { "hash_bytes", "/src/hash.h", 21 },
							     { "hash_lookup", "/src/hash.h", 55 },
							     { "spin", "/src/spin.c", 7 } };
	uint32_t server = mapping(profile, "/usr/lib/postgresql/15/bin/postgres", 0x400000, 0x10);
	uint32_t libc = mapping(profile, "/usr/lib/libc.so.6", 0x7f0000000000, 0xa0);
	uint32_t kernel = mapping(profile, "[kernel]", 0xffffffff81000000, 0);
	uint32_t root = function(profile, server, 0x401234, "main", "/src/main.c", 12);
	uint32_t seqscan = function(profile, server, 0x402000, "ExecSeqScan<int, std::less<int> >", "/src/scan.c", 99);
	uint32_t hash = frame(profile, server, 0x403000, inlined, ARRAY_LEN(inlined));
	uint32_t unknown = frame(profile, libc, 0x7f0000000abc, NULL, 0);
	uint32_t sleeping = function(profile, kernel, 0xffffffff81000010, "do_nanosleep", NULL, 0);
	uint32_t nowhere = frame(profile, STACK_PROFILE_NO_MAPPING, 0x1111, NULL, 0);

	add(profile, FIRED - 900 * MS, &scan, (uint32_t[]){ seqscan, root }, 2, 30);
	add(profile, FIRED - 50 * MS, &scan, (uint32_t[]){ seqscan, root }, 2, 3);
	/* Recursion. */
	add(profile, FIRED - 40 * MS, &spin, (uint32_t[]){ hash, hash, root }, 3, 50);
	add(profile, FIRED - 30 * MS, &spin, (uint32_t[]){ unknown, hash, root }, 3, 7);
	add(profile, FIRED - 800 * MS, &shell, (uint32_t[]){ sleeping, nowhere }, 2, 1);
	/* The sixth, where five are allowed. */
	add(profile, FIRED - 20 * MS, &shell, NULL, 0, 4);
	add(profile, FIRED - 10 * MS, &shell, (uint32_t[]){ root }, 1, 2);
}

static void fill_memory(struct stack_profile *profile)
{
	static const struct stack_profile_sample hashing = {
		.pid = 812, .tid = 815, .process = "postgres", .thread = "hash-join", .cgroup = "/db.slice"
	};
	static const struct stack_profile_sample sorting = {
		.pid = 812, .tid = 812, .process = "postgres", .thread = "postgres", .cgroup = "/db.slice"
	};
	uint32_t server = mapping(profile, "/usr/lib/postgresql/15/bin/postgres", 0x400000, 0x10);
	uint32_t libc = mapping(profile, "/usr/lib/libc.so.6", 0x7f0000000000, 0xa0);
	uint32_t root = function(profile, server, 0x401234, "main", "/src/main.c", 12);
	uint32_t build = function(profile, server, 0x404000, "build_hash", "/src/hash.c", 31);
	uint32_t sort = function(profile, server, 0x405000, "tuplesort", "/src/sort.c", 7);
	uint32_t set = frame(profile, libc, 0x7f0000000abc, NULL, 0);

	add(profile, FIRED - 900 * MS, &sorting, (uint32_t[]){ sort, root }, 2, 256);
	add(profile, FIRED - 50 * MS, &sorting, (uint32_t[]){ sort, root }, 2, 128);
	add(profile, FIRED - 40 * MS, &hashing, (uint32_t[]){ set, build, root }, 3, 25600);
	add(profile, FIRED - 30 * MS, &hashing, (uint32_t[]){ build, root }, 2, 5120);
}

static void write_file(const char *directory, const char *name, const struct stack_profile *profile,
		       int (*write_to)(const struct stack_profile *profile, const struct sink *sink))
{
	char path[4096];
	AUTO_CLOSE int fd = -1;
	struct sink sink;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		perror(path);
		failed = 1;
		return;
	}
	sink = sink_fd(&fd);
	must(write_to(profile, &sink));
}

/* A kind of profile, and what its files are called. */
struct kind {
	enum stack_profile_quantity quantity;
	uint64_t weight_of_one;
	void (*fill)(struct stack_profile *profile);
	const char *pprof, *folded, *functions;
};

static void make(const char *directory, const struct kind *kind)
{
	const struct stack_profile_options options = {
		.quantity = kind->quantity,
		.fired_ns = FIRED,
		.wall_ns = UINT64_C(1795144502123000000),
		.from_ns = FIRED - 10000 * MS,
		.to_ns = FIRED + 5000 * MS,
		.spike_from_ns = FIRED - 100 * MS,
		.period_ns = PERIOD,
		.period_bytes = PAGE,
		.stacks_max = 5,
	};
	struct stack_profile *profile = NULL;

	must(stack_profile_new(&options, &profile));
	if (failed)
		return;
	weight_of_one = kind->weight_of_one;
	kind->fill(profile);
	write_file(directory, kind->pprof, profile, stack_profile_write_pprof);
	write_file(directory, kind->folded, profile, stack_profile_write_folded);
	write_file(directory, kind->functions, profile, stack_profile_write_functions);
	stack_profile_free(profile);
}

int main(int argc, char **argv)
{
	static const struct kind cpu = {
		STACK_PROFILE_CPU, PERIOD, fill, "cpu.pb.gz", "cpu.folded", "functions.tsv",
	};
	static const struct kind memory = {
		STACK_PROFILE_MEMORY, PAGE, fill_memory, "memory.pb.gz", "memory.folded", "memory-functions.tsv",
	};

	if (argc != 2) {
		fprintf(stderr, "Usage: make_profile DIRECTORY\n");
		return 2;
	}
	make(argv[1], &cpu);
	make(argv[1], &memory);
	return failed;
}
