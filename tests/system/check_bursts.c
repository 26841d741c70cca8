/*
 * check_bursts.c: bursts exactly as long as the window of a rule, and shorter ones, in a process that
 * keeps a log of them: what the real daemon fires on. And bursts that get memory, on a machine that is
 * quiet otherwise: what it records of them.
 */
#include "lib/base/base.h"
#include "lib/incident/incident.h"
#include "lib/ring/ring.h"
#include "program.h"
#include "skip.h"

#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <sys/mman.h>

Suite *bursts_suite(void);

#define WINDOW_NS (300 * NS_PER_MS)
#define WINDOW_TEXT "300ms"
#define WANTED 24u /* of the length of the window, with a CPU of their own: then it ends */
#define BURSTS 64u /* but no later than this */
#define ENOUGH 12u
/* Beside others a burst has a CPU for a part of the time: what the rule says of it is not known then. */
#define UNDISTURBED_PERCENT 92

/* Of one that gets memory. */
#define GROWTH_MS 80

struct burst {
	uint64_t from_ns, to_ns, cpu_ns; /* of the wall clock, as firings are */
	bool is_short;
	uint64_t grown[GROWTH_MS + 1]; /* bytes by each millisecond of it; 0: it did not run then */
};

/* Shared with the process that has them. */
static struct log {
	unsigned count;
	struct burst bursts[BURSTS];
} * written;

static char directory[64], spikewatchd[512], config_path[128], incidents[128];
static bool built;

static void setup(void)
{
	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	built = program_find("spikewatchd", spikewatchd);
	written = mmap(NULL, sizeof(*written), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(written, MAP_FAILED);
}

static void teardown(void)
{
	munmap(written, sizeof(*written));
	scene_remove(directory);
}

/* ---- the process ---- */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void rest(uint64_t ns)
{
	nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) }, NULL);
}

static bool undisturbed(const struct burst *burst)
{
	return 100 * burst->cpu_ns >= UNDISTURBED_PERCENT * (burst->to_ns - burst->from_ns);
}

static void burn(struct burst *burst)
{
	uint64_t began = clock_ns(CLOCK_MONOTONIC), cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t length_ns = burst->is_short ? WINDOW_NS / 10 * 7 : WINDOW_NS;

	burst->from_ns = clock_ns(CLOCK_REALTIME);
	while (clock_ns(CLOCK_MONOTONIC) - began < length_ns)
		continue;
	burst->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
	burst->to_ns = clock_ns(CLOCK_REALTIME);
}

/*
 * No two of them are in one window. Each begins in another phase of it: pauses grow by the golden
 * section of a window, modulo one.
 */
static _Noreturn void have_bursts(void)
{
	unsigned good = 0;
	cpu_set_t may;

	if (sched_getaffinity(0, sizeof(may), &may) < 0)
		CPU_ZERO(&may);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < BURSTS && good < WANTED; i++) {
		struct burst *burst = &written->bursts[i];

		/* Where others take the CPUs it gets one by this alone, if it may. One is left for the rest. */
		if (i == 8 && good < 4 && CPU_COUNT(&may) > 1)
			sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 1 });
		rest(WINDOW_NS + 618 * i % 1000 * (WINDOW_NS / 1000));
		burst->is_short = i % 4 == 3;
		burn(burst);
		good += !burst->is_short && undisturbed(burst);
		written->count = i + 1;
	}
	rest(2 * WINDOW_NS);
	_exit(0);
}

/* ---- what fired ---- */

/* In which burst a rule fired at this time, or just after; NULL: in none. */
static struct burst *burst_at(uint64_t wall_ns)
{
	for (unsigned i = 0; i < written->count; i++)
		if (wall_ns > written->bursts[i].from_ns && wall_ns < written->bursts[i].to_ns + WINDOW_NS / 2)
			return &written->bursts[i];
	return NULL;
}

static void mark(bool fired[BURSTS], uint64_t wall_ns)
{
	const struct burst *burst = burst_at(wall_ns);

	ck_assert_msg(burst != NULL, "a rule fired between two bursts");
	fired[burst - written->bursts] = true;
}

static void collect(bool fired[BURSTS])
{
	static struct incident incident;
	DIR *dir = opendir(incidents);

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (!incident_name_ok(item->d_name))
			continue;

		int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(incident_json_read(fd, &incident), 0);
		close(fd);
		ck_assert_str_eq(incident.rule.name, "hot");
		mark(fired, incident.wall.ns);
		for (size_t i = 0; i < incident.merged_count; i++)
			mark(fired, incident.merged[i].wall.ns);
	}
	if (dir)
		closedir(dir);
}

/*
 * With windows that lie end to end two of five fired. At least 95 % must: of so many, five standard
 * deviations less.
 */
START_TEST(a_burst_as_long_as_the_window_fires_whenever_it_comes_and_a_shorter_one_never)
{
	const char *arguments[] = { spikewatchd, "-c", config_path, NULL };
	bool fired[BURSTS] = { false };
	unsigned good = 0, seen = 0;

	if (!built)
		SKIP_TEST("the programs were not built");

	int gate[2];

	ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		char byte;

		close(gate[1]);
		if (read(gate[0], &byte, 1) != 1)
			_exit(1);
		have_bursts();
	}
	scene_write(config_path,
		    "{\"sampling\": {\"interval\": \"10ms\", \"cpu_budget\": \"100%%\", \"source\": \"files\"},\n"
		    "\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"off\",\n"
		    "\"incidents\": {\"directory\": \"%s\", \"before\": \"100ms\", \"after\": \"0s\", \"min_free\": "
		    "\"0B\", \"max_per_hour\": 1000,\n"
		    "\"captures\": [\"samples\"]}, \"state_file\": \"%s/state\", \"history\": {\"enabled\": false},\n"
		    "\"targets\": [{\"name\": \"bursts\", \"pid\": %d}],\n"
		    "\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": "
		    "\"" WINDOW_TEXT "\", \"percent\": \"80%%\",\n"
		    "\"warmup\": 0, \"cooldown\": \"0s\"}]}\n",
		    directory, incidents, directory, pid);

	struct program daemon = program_start(arguments, directory, -1, 0);

	scene_wait_for(program_watches_one(&daemon));
	ck_assert_int_eq(write(gate[1], "", 1), 1);

	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	kill(daemon.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&daemon), 0);

	collect(fired);
	for (unsigned i = 0; i < written->count; i++) {
		const struct burst *burst = &written->bursts[i];

		ck_assert_msg(!burst->is_short || !fired[i], "burst %u of 0.7 windows fired", i);
		good += !burst->is_short && undisturbed(burst);
		seen += !burst->is_short && undisturbed(burst) && fired[i];
	}
	if (good < ENOUGH)
		SKIP_TEST("of %u bursts %u had a CPU of their own", written->count, good);
	ck_assert_msg(seen >= 0.95 * good - 5 * sqrt(0.95 * 0.05 * good), "of %u bursts %u fired", good, seen);
	close(gate[0]);
	close(gate[1]);
}
END_TEST

/* ---- memory, while ticks are slept through ---- */

#define GROWTHS 16u
#define GROWTH_NS (GROWTH_MS * NS_PER_MS)
#define GROWTH_BYTES ((size_t)16 << 20)
#define PAGE 4096u
/* Longer than the daemon must have slept for not to wait with it the next time. */
#define QUIET_NS (1300 * NS_PER_MS)
/* So much of a burst may be over when it is seen: a timer, a thread that is told, the next tick. */
#define UNSEEN_NS (25 * NS_PER_MS)

/* Evenly, on a CPU. from_ns and to_ns are CLOCK_MONOTONIC. */
static void grow(struct burst *burst)
{
	char *memory =
		mmap(NULL, GROWTH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t at = 0;

	if (memory == MAP_FAILED)
		_exit(1);
	madvise(memory, GROWTH_BYTES, MADV_NOHUGEPAGE);
	burst->from_ns = clock_ns(CLOCK_MONOTONIC);
	do {
		burst->to_ns = clock_ns(CLOCK_MONOTONIC);
		for (; at < GROWTH_BYTES && at <= GROWTH_BYTES * (burst->to_ns - burst->from_ns) / GROWTH_NS;
		     at += PAGE)
			memory[at] = 1;
		if (burst->to_ns - burst->from_ns < GROWTH_NS)
			burst->grown[(burst->to_ns - burst->from_ns) / NS_PER_MS] = at;
	} while (burst->to_ns - burst->from_ns < GROWTH_NS);
	munmap(memory, GROWTH_BYTES);
}

static _Noreturn void grow_now_and_then(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < GROWTHS; i++) {
		rest(QUIET_NS + i * 13 * NS_PER_MS);
		grow(&written->bursts[i]);
		written->count = i + 1;
	}
	for (;;)
		pause();
}

/* It had grown by so much more before that time that the row says what was earlier. */
static bool is_of_earlier(const struct burst *burst, mono_t at, uint64_t bytes)
{
	uint64_t grown = 0;

	for (uint64_t ms = 0; ms < (at.ns - burst->from_ns) / NS_PER_MS; ms++)
		grown = burst->grown[ms] > grown ? burst->grown[ms] : grown;
	return bytes + GROWTH_BYTES / 4 < grown;
}

/* Of how many bursts a row says what was earlier. *ret_rows: of all that were looked at. */
static unsigned blurred_bursts(const struct ring *ring, unsigned *ret_rows)
{
	bool blurred[GROWTHS] = { false };
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t least = UINT64_MAX;
	unsigned count = 0, i = 0;

	*ret_rows = 0;
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type != RING_EVENT_SAMPLE || !sample_has(event.sample, SAMPLE_MEMORY))
			continue;

		uint64_t bytes = event.sample->value[SAMPLE_MEMORY];

		least = bytes < least ? bytes : least;
		while (i < GROWTHS && event.time.ns >= written->bursts[i].to_ns)
			i++;
		if (i == GROWTHS || event.time.ns < written->bursts[i].from_ns + UNSEEN_NS)
			continue;
		++*ret_rows;
		blurred[i] |= is_of_earlier(&written->bursts[i], event.time, bytes - least);
	}
	ring_cursor_free(cursor);
	for (i = 0; i < GROWTHS; i++)
		count += blurred[i];
	return count;
}

/* Without being told of them the daemon would see half of the bursts too late. */
START_TEST(a_burst_ends_the_sleep_of_the_sampler)
{
	const char *arguments[] = { spikewatchd, "-c", config_path, NULL };
	unsigned rows;
	struct ring *ring;
	struct stats stats;
	char path[128];

	if (!built)
		SKIP_TEST("the programs were not built");

	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		grow_now_and_then();
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"10ms\", \"source\": \"auto\"},\n"
		"\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"off\",\n"
		"\"incidents\": {\"directory\": \"%s\", \"min_free\": \"0B\"},\n"
		"\"state_file\": \"%s/state\", \"history\": {\"enabled\": false},\n"
		"\"targets\": [{\"name\": \"bursts\", \"pid\": %d}],\n"
		"\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"window\": \"1s\", \"percent\": \"99%%\"}]}\n",
		directory, incidents, directory, pid);

	struct program daemon = program_start(arguments, directory, -1, 0);

	scene_wait_for(program_watches_one(&daemon));
	while (*(const volatile unsigned *)&written->count < GROWTHS)
		rest(100 * NS_PER_MS);
	rest(300 * NS_PER_MS);
	snprintf(path, sizeof(path), "%s/ring", directory);
	ck_assert_int_eq(ring_open(AT_FDCWD, path, false, &ring), 0);
	ck_assert_int_eq(ring_stats(ring, &stats), 0);

	unsigned blurred = blurred_bursts(ring, &rows);

	ring_free(ring);
	kill(daemon.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&daemon), 0);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	if (stats.past_snapshots == 0)
		SKIP_TEST("no tick was slept through: the scheduler does not tell, or others take the CPUs");
	ck_assert_uint_gt(rows, GROWTHS);
	ck_assert_uint_le(blurred, GROWTHS / 4);
}
END_TEST

Suite *bursts_suite(void)
{
	Suite *suite = suite_create("bursts");
	TCase *tcase = tcase_create("bursts");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_burst_as_long_as_the_window_fires_whenever_it_comes_and_a_shorter_one_never);
	tcase_add_test(tcase, a_burst_ends_the_sleep_of_the_sampler);
	suite_add_tcase(suite, tcase);
	return suite;
}
