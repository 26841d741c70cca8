/*
 * bench_targets.h: processes to be sampled, the sampler that does it, and the same system calls in
 * a bare loop.
 *
 * Targets are children. Those that are asleep stay so. A stepped one runs for a moment whenever
 * bench_targets_step is called, so that its CPU clock and its memory have moved at every tick; a
 * spinning one never rests.
 */
#ifndef SPIKEWATCH_BENCH_TARGETS_H
#define SPIKEWATCH_BENCH_TARGETS_H

#include "bench.h"
#include "lib/ring/ring.h"
#include "daemon/engine/sampling/sampler.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/target.h"
#include "lib/source/source.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum bench_manner { BENCH_STEPPED, BENCH_SPINNING, BENCH_TICKING /* 20 us of work every 10 ms */ };

/* Shared with the children. */
struct bench_board {
	_Atomic uint32_t round; /* a futex: stepped targets wait for it to change */
	_Atomic uint32_t done;
};

struct bench_targets {
	size_t count, busy; /* the first `busy` of them are, in their manner */
	enum bench_manner manner;
	const char *name; /* comm; NULL: that of the benchmark */
	unsigned cpu;     /* where they run */
	pid_t *pids;
	struct bench_board *board;
};

static inline void bench_futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
	syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* Takes a page and gives it back in turns: what a program does that changes its memory. */
static inline void bench_work(volatile char *page, uint32_t round)
{
	if (round % 2)
		madvise((void *)(uintptr_t)page, 4096, MADV_DONTNEED);
	else
		*page = 1;
}

static inline void bench_run_stepped(struct bench_board *board)
{
	volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (uint32_t seen = 0;;) {
		uint32_t round = atomic_load(&board->round);

		if (round == seen) {
			bench_futex(&board->round, FUTEX_WAIT, seen);
			continue;
		}
		seen = round;
		bench_work(page, round);
		atomic_fetch_add(&board->done, 1);
	}
}

static inline void bench_run_ticking(void)
{
	for (;;) {
		uint64_t from = bench_now();

		while (bench_now() - from < 20000)
			continue;
		bench_sleep(10000000);
	}
}

static inline void bench_run_target(const struct bench_targets *targets, size_t index)
{
	volatile uint64_t spins = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (targets->name)
		prctl(PR_SET_NAME, targets->name);
	bench_pin(targets->cpu);
	if (index >= targets->busy)
		for (;;)
			pause();
	if (targets->manner == BENCH_STEPPED)
		bench_run_stepped(targets->board);
	if (targets->manner == BENCH_TICKING)
		bench_run_ticking();
	for (;;)
		spins = spins + 1;
}

static inline void bench_targets_start(struct bench_targets *targets)
{
	targets->pids = calloc(targets->count, sizeof *targets->pids);
	bench_need(targets->pids, "memory");
	targets->board = mmap(NULL, sizeof *targets->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bench_need(targets->board != MAP_FAILED, "shared memory");
	for (size_t i = 0; i < targets->count; i++) {
		targets->pids[i] = fork();
		if (targets->pids[i] == 0)
			bench_run_target(targets, i);
		bench_need(targets->pids[i] > 0, "fork");
	}
	bench_sleep(50000000 + targets->count * 200000); /* until all are asleep */
}

/*
 * Lets every stepped target run once, and waits until they sleep again; without sleeping itself:
 * the CPU stays warm.
 */
static inline void bench_targets_step(struct bench_targets *targets)
{
	if (targets->manner != BENCH_STEPPED || targets->busy == 0)
		return;

	atomic_store(&targets->board->done, 0);
	atomic_fetch_add(&targets->board->round, 1);
	bench_futex(&targets->board->round, FUTEX_WAKE, INT32_MAX);
	while (atomic_load(&targets->board->done) < targets->busy)
		sched_yield();

	uint64_t asleep = bench_now() + 30000; /* the last one */

	while (bench_now() < asleep)
		sched_yield();
}

static inline void bench_targets_end(struct bench_targets *targets)
{
	for (size_t i = 0; i < targets->count; i++)
		kill(targets->pids[i], SIGKILL);
	for (size_t i = 0; i < targets->count; i++)
		waitpid(targets->pids[i], NULL, 0);
	munmap(targets->board, sizeof *targets->board);
	free(targets->pids);
}

/* ---- the sampler ---- */

struct bench_sampler {
	struct ring *ring;
	struct samplers *sampler;
	struct sampler_target *targets;
	size_t count;
};

static inline void bench_sampler_watch(struct sampler_target *target, int procfd, pid_t pid, uint32_t id)
{
	char name[32], key[48];

	snprintf(name, sizeof name, "bench/%d", pid);
	snprintf(key, sizeof key, "bench:%d@0", pid);

	struct target what = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = pid,
		.entry = "bench",
		.name = name,
		.key = key,
		.comm = "bench",
		.cmdline = "bench target",
		.cgroup = "/",
	};

	bench_need(source_entry_process(procfd, pid, 0, true, target, &target->entry) == 0, "opening a target");
	bench_need(sampler_target_describe(target, &what) == 0, "describing a target");
}

/*
 * A ring of 16 MiB, and a sampler that watches all targets from its second tick on. It is not
 * started.
 */
static inline void bench_sampler_make(struct bench_sampler *bench, const struct bench_targets *targets,
				      uint64_t interval_ns, enum config_wait wait)
{
	struct ring_options ring = { .interval_ns = interval_ns };
	struct sampler_options options = {
		.source = { .capacity = (uint32_t)targets->count,
			    .peak_interval_ns = UINT64_MAX,
			    .interval_ns = interval_ns },
		.wait = wait,
	};
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	bench_need(procfd >= 0, "/proc");
	bench->count = targets->count;
	bench->targets = calloc(targets->count, sizeof *bench->targets);
	bench_need(bench->targets, "memory");
	bench_need(ring_create_anonymous(&ring, &bench->ring) == 0, "ring");
	bench_need(samplers_new(&options, 1, bench->ring, &bench->sampler) == 0, "sampler");
	for (size_t i = 0; i < targets->count; i++) {
		bench_sampler_watch(&bench->targets[i], procfd, targets->pids[i], (uint32_t)i + 1);
		bench_need(samplers_add(bench->sampler, &bench->targets[i]), "adding a target");
	}
	close(procfd);
}

static inline void bench_sampler_end(struct bench_sampler *bench)
{
	samplers_stop(bench->sampler);
	samplers_free(bench->sampler);
	ring_free(bench->ring);
	for (size_t i = 0; i < bench->count; i++)
		sampler_target_release(&bench->targets[i]);
	free(bench->targets);
}

/* ---- the floor ---- */

struct bench_bare_target {
	clockid_t clock;
	pid_t pid;
	int stat_fd, statm_fd; /* -1: not opened yet: it has not run */
	uint64_t cpu_ns;
	bool ran; /* at the last look */
};

struct bench_bare {
	size_t count;
	struct bench_bare_target *targets;
};

static inline int bench_open_file(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", pid, name);

	int fd = open(path, O_RDONLY | O_CLOEXEC);

	bench_need(fd >= 0, path);
	return fd;
}

static inline void bench_bare_make(struct bench_bare *bare, const struct bench_targets *targets)
{
	bare->count = targets->count;
	bare->targets = calloc(bare->count, sizeof *bare->targets);
	bench_need(bare->targets, "memory");
	for (size_t i = 0; i < bare->count; i++) {
		struct bench_bare_target *target = &bare->targets[i];

		bench_need(clock_getcpuclockid(targets->pids[i], &target->clock) == 0, "clock_getcpuclockid");
		target->pid = targets->pids[i];
		target->stat_fd = target->statm_fd = -1;
		target->cpu_ns = bench_clock(target->clock);
	}
}

static inline void bench_bare_end(struct bench_bare *bare)
{
	for (size_t i = 0; i < bare->count; i++) {
		if (bare->targets[i].stat_fd < 0)
			continue;
		close(bare->targets[i].stat_fd);
		close(bare->targets[i].statm_fd);
	}
	free(bare->targets);
}

/*
 * What a tick of the sampler asks of the kernel, and nothing else: the clock of each, and the two
 * files of those that ran, once more when they came to a stand.
 */
static inline void bench_bare_tick(struct bench_bare *bare)
{
	char buf[2048];
	struct timespec at;

	for (size_t i = 0; i < bare->count; i++) {
		struct bench_bare_target *target = &bare->targets[i];
		bool answered = syscall(SYS_clock_gettime, target->clock, &at) == 0;
		uint64_t cpu_ns = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
		bool ran = cpu_ns != target->cpu_ns;

		if (ran && target->stat_fd < 0) {
			target->stat_fd = bench_open_file(target->pid, "stat");
			target->statm_fd = bench_open_file(target->pid, "statm");
		}
		if (answered && (ran || target->ran))
			answered = pread(target->stat_fd, buf, sizeof buf, 0) > 0 &&
				   pread(target->statm_fd, buf, 256, 0) > 0;
		bench_need(answered, "a target is gone");
		target->cpu_ns = cpu_ns;
		target->ran = ran;
	}
}

#endif
