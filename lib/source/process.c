/*
 * process.c: descriptors below one /proc/<pid>, opened relative to the directory's own descriptor,
 * so that they all belong to the same process even when the pid is reused while they are being
 * opened.
 *
 * All are opened when the process is met, so that later, in the tick, nothing need be opened; what
 * the options make useless is closed again. Who has no descriptors to spare opens some in the tick
 * nevertheless, and asks who it is that they belong to: the directory's descriptor makes them all
 * one process's, and the start time says which. A pid belongs to one process from its start to its
 * end: if that is the one that is meant, then it was also when its CPU clock was asked before.
 *
 * A file that is not allowed (fd/ of other users, clear_refs) or not there (fixtures) is
 * unavailable; running out of descriptors is not: that is the caller's to know.
 */
#include "lib/source/process.h"

#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/proc/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As bits, 1 << enum process_file. */
#define PROCESS_ALL ((1u << PROCESS_FILES) - 1)

static void process_init_closed(struct process *process, int32_t pid, bool with_cpu_clock);
static int process_open(struct process *process, int procfd, int32_t pid, unsigned wanted);
static int process_identify(const struct process *process, uint64_t *ret_start_ticks);

/*
 * gate.c: the states of a process as it is seen through its clock:
 *
 * 	          clock moved                  clock stands still, files read
 * 	settled ---------------> unsettled --------------------------------> settled
 * 	   ^ |                     ^  |
 * 	   +-+ heartbeat           +--+ clock moved
 *
 * The files are read once more after the clock came to a stand, because the process may have run
 * between the two reads.
 *
 * Where files may be left unread (gate.h) "unsettled" has a time: a process that ran is `unread`
 * until it was read while its clock stood still, and due_ns is no later than its patience after it
 * began to be so. What uses much CPU time is read in each look, as ever: the bound on the CPU time
 * that may be left unread bounds what of its memory can be unknown, and its patience for how long.
 *
 * The high-water mark and the count of descriptors cost more and have intervals of their own. From
 * when the process ran they are owed until they were read after that, which may be while it stands
 * still: then it cannot have changed them. A mark does not rise without a page that comes: while
 * the process has as many page faults and pages as when its mark was read, the mark is read a
 * heartbeat later. (Not skipped: there are drivers that map pages without a fault.)
 *
 * Cold and warm differ in one place: whose descriptors are read, kept ones or ones that were opened
 * for this. What is read of a cold process goes into a copy of the sample first, so that nothing of
 * it is kept when the process turns out to be another one.
 */

/* Heartbeats drift apart by up to a quarter, in so many steps. */
#define SPREAD_STEPS 64

/*
 * What is taken from a process that sleeps (it is swapped out, its pages are reclaimed) goes on for
 * seconds: more than that need not be looked for.
 */
#define DOUBLINGS_MAX 3
#define RATE_LIMIT_MAX_NS (10 * NS_PER_S)

enum { OWES_PEAK = 1, OWES_FDS = 2 };

/* Of a cold process, whatever else is due. */
#define COLD_FILES (1u << PROCESS_STAT | 1u << PROCESS_STATM)

/* Bits of asked. Of both, the files are taken over and then all is given up. */
enum { ASKED_ADOPT = 1, ASKED_CHILL = 2 };

static uint8_t owed_after_running(const struct read_gate_options *options)
{
	return (uint8_t)((options->peak_interval_ns != UINT64_MAX ? OWES_PEAK : 0) |
			 (options->fds_interval_ns != 0 ? OWES_FDS : 0));
}

static bool is_cold(const struct read_gate *read_gate)
{
	return read_gate->process.fd[PROCESS_STAT] < 0;
}

/* The clock's total is in nanoseconds, that of stat in ticks. */
static int read_files(const struct read_gate *read_gate, const struct process *files, struct sample *sample)
{
	int r = process_read(files, read_gate->who.start_ticks, sample);
	if (r == 0 && read_gate->process.clock != 0)
		sample_set(sample, SAMPLE_CPU, read_gate->cpu_ns);

	return r;
}

/* Leaves fd for the owner, in the place of one that it did not take over. */
static void offer(struct read_gate *read_gate, int file, int fd)
{
	int before = atomic_exchange_explicit(&read_gate->offered[file], fd, memory_order_relaxed);

	if (before >= 0)
		close(before);
}

/* The files are open, of the process that is meant. */
static int first_reading(struct read_gate *read_gate, const struct process *files, struct sample *sample)
{
	int r = 0;

	if (read_gate->process.clock != 0)
		r = process_cpu(&read_gate->process, &read_gate->cpu_ns);
	read_gate->read_cpu_ns = read_gate->cpu_ns;

	return r < 0 ? r : read_files(read_gate, files, sample);
}

int read_gate_init(struct read_gate *read_gate, const struct read_gate_process *process, struct sample *sample)
{
	struct process files;

	*read_gate = (struct read_gate){ .who = *process };
	for (int i = 0; i < PROCESS_FILES; i++)
		atomic_init(&read_gate->offered[i], -1);
	atomic_init(&read_gate->cold, process->cold);
	process_init_closed(&read_gate->process, process->pid, process->with_cpu_clock);

	int r = process_reopen(process->procfd, process->pid, process->start_ticks,
			       process->cold ? COLD_FILES : PROCESS_ALL, &files);
	if (r < 0)
		return r;

	if (process->start_ticks == 0)
		r = process_identify(&files, &read_gate->who.start_ticks);
	if (r == 0)
		r = first_reading(read_gate, &files, sample);
	if (r == 0 && !process->cold)
		process_adopt(&read_gate->process, files.fd);
	else
		process_release(&files);

	return r;
}

void read_gate_release(struct read_gate *read_gate)
{
	for (int i = 0; i < PROCESS_FILES; i++)
		offer(read_gate, i, -1);
	process_release(&read_gate->process);
}

static uint64_t own_heartbeat(const struct read_gate *read_gate, const struct read_gate_options *options)
{
	return options->heartbeat_ns - options->heartbeat_ns / 4 / SPREAD_STEPS * read_gate->spread;
}

/* All that options have read at some time. */
static unsigned files_for(const struct read_gate_options *options)
{
	uint8_t owed = owed_after_running(options);
	unsigned peak = (owed & OWES_PEAK) != 0, fds = (owed & OWES_FDS) != 0;

	return COLD_FILES | peak << PROCESS_STATUS | (peak & options->reset_peaks) << PROCESS_CLEAR_REFS |
	       fds << PROCESS_FDS;
}

void read_gate_arm(struct read_gate *read_gate, const struct read_gate_options *options, uint32_t spread)
{
	process_drop(&read_gate->process, ~files_for(options));
	read_gate->spread = (uint8_t)(spread % SPREAD_STEPS);
	read_gate->heartbeat_ns = own_heartbeat(read_gate, options);
	read_gate->peak_due_ns = 0;
	read_gate->fds_due_ns = 0;
	read_gate->owed = owed_after_running(options);
	read_gate->settled = false;
	read_gate->unread = false;
	read_gate->moving = true; /* it may have just begun */
	read_gate->same_pages = false;
	read_gate->rate_limit = 0;
}

/* How often something that costs more is read. */
static uint64_t interval_of(const struct read_gate *read_gate, uint8_t extra, uint64_t interval_ns)
{
	bool rarely = is_cold(read_gate) && !(atomic_load_explicit(&read_gate->needed, memory_order_relaxed) & extra);

	return rarely && interval_ns < read_gate->heartbeat_ns ? read_gate->heartbeat_ns : interval_ns;
}

/* The high-water mark, if it is owed. */
static uint64_t peak_due(const struct read_gate *read_gate)
{
	return read_gate->peak_due_ns + (read_gate->same_pages ? read_gate->heartbeat_ns : 0);
}

/* What is owed and due of that which costs more. */
static uint8_t due_extras(const struct read_gate *read_gate, mono_t now)
{
	return read_gate->owed & (uint8_t)((now.ns >= peak_due(read_gate) ? OWES_PEAK : 0) |
					   (now.ns >= read_gate->fds_due_ns ? OWES_FDS : 0));
}

static uint64_t faults_of(const struct sample *sample)
{
	return sample->value[SAMPLE_MINOR_FAULTS] + sample->value[SAMPLE_MAJOR_FAULTS];
}

/*
 * stat and statm were read. Of a cold process the files of what is due are open by now, whatever
 * they say.
 */
static void note_pages(struct read_gate *read_gate, const struct read_gate_options *options,
		       const struct sample *sample)
{
	read_gate->same_pages = !options->reset_peaks && !is_cold(read_gate) &&
				faults_of(sample) == read_gate->peak_faults &&
				sample->value[SAMPLE_MEMORY] == read_gate->peak_memory;
}

static int read_peak(struct read_gate *read_gate, const struct read_gate_options *options, const struct process *files,
		     mono_t now, struct sample *sample)
{
	read_gate->owed &= (uint8_t)~OWES_PEAK;
	read_gate->peak_due_ns = now.ns + interval_of(read_gate, OWES_PEAK, options->peak_interval_ns);
	read_gate->peak_faults = faults_of(sample);
	read_gate->peak_memory = sample->value[SAMPLE_MEMORY];

	return process_read_peak(files, options->reset_peaks, sample);
}

/* Everything that is due. 0; -ESRCH; -errno. */
static int read_due(struct read_gate *read_gate, const struct read_gate_options *options, const struct process *files,
		    mono_t now, struct sample *sample)
{
	int r = read_files(read_gate, files, sample);
	if (r == 0)
		note_pages(read_gate, options, sample);

	uint8_t due = due_extras(read_gate, now);

	if (r == 0 && (due & OWES_PEAK))
		r = read_peak(read_gate, options, files, now, sample);
	if (r == 0 && (due & OWES_FDS)) {
		r = process_read_fds(files, sample);
		read_gate->owed &= (uint8_t)~OWES_FDS;
		read_gate->fds_due_ns = now.ns + interval_of(read_gate, OWES_FDS, options->fds_interval_ns);
	}

	return r;
}

/* Only files of what is due are opened. */
static int read_cold(struct read_gate *read_gate, const struct read_gate_options *options, mono_t now,
		     struct sample *sample)
{
	read_gate->same_pages = false;
	uint8_t due = due_extras(read_gate, now);
	unsigned unneeded = (due & OWES_PEAK ? 0 : 1u << PROCESS_STATUS | 1u << PROCESS_CLEAR_REFS) |
			    (due & OWES_FDS ? 0 : 1u << PROCESS_FDS);
	struct sample fresh = *sample;
	struct process files;

	int r = process_open(&files, read_gate->who.procfd, read_gate->who.pid, files_for(options) & ~unneeded);
	if (r < 0)
		return r;

	r = read_due(read_gate, options, &files, now, &fresh);
	process_release(&files);
	if (r == 0)
		*sample = fresh;

	return r;
}

/* The heartbeat, as often doubled as it stands still. */
static uint64_t present_heartbeat(const struct read_gate *read_gate)
{
	uint64_t longest_ns = read_gate->heartbeat_ns > RATE_LIMIT_MAX_NS ? read_gate->heartbeat_ns : RATE_LIMIT_MAX_NS;
	uint64_t heartbeat_ns = read_gate->heartbeat_ns << read_gate->rate_limit;

	return heartbeat_ns < longest_ns ? heartbeat_ns : longest_ns;
}

static uint64_t next_due(const struct read_gate *read_gate, mono_t now)
{
	uint64_t due_ns = now.ns + present_heartbeat(read_gate);

	if ((read_gate->owed & OWES_PEAK) && peak_due(read_gate) < due_ns)
		due_ns = peak_due(read_gate);
	if ((read_gate->owed & OWES_FDS) && read_gate->fds_due_ns < due_ns)
		due_ns = read_gate->fds_due_ns;
	if (read_gate->unread && now.ns + read_gate->patience_ns < due_ns)
		due_ns = now.ns + read_gate->patience_ns;

	return due_ns;
}

/* When it is due that was due at due_ns and now has this interval. */
static uint64_t sooner(uint64_t due_ns, mono_t now, uint64_t interval_ns)
{
	uint64_t limit_ns = interval_ns < UINT64_MAX - now.ns ? now.ns + interval_ns : UINT64_MAX;

	return due_ns < limit_ns ? due_ns : limit_ns;
}

/*
 * What is read for the first time waits for the heartbeat, even if the process runs: the heartbeats
 * are spread, and thousands of first readings in one tick would be felt.
 */
bool read_gate_retune(struct read_gate *read_gate, const struct read_gate_options *before,
		      const struct read_gate_options *options, mono_t now, struct sample *sample)
{
	uint8_t wanted = owed_after_running(options);
	uint8_t added = wanted & (uint8_t)~owed_after_running(before);
	uint32_t mask = sample->mask;

	read_gate->heartbeat_ns = own_heartbeat(read_gate, options);
	read_gate->due_ns = sooner(read_gate->due_ns, now, read_gate->heartbeat_ns);
	read_gate->peak_due_ns =
		added & OWES_PEAK ? read_gate->due_ns : sooner(read_gate->peak_due_ns, now, options->peak_interval_ns);
	read_gate->fds_due_ns =
		added & OWES_FDS ? read_gate->due_ns : sooner(read_gate->fds_due_ns, now, options->fds_interval_ns);
	read_gate->owed = (read_gate->owed & wanted) | added;

	uint64_t due_ns = next_due(read_gate, now);

	read_gate->due_ns = due_ns < read_gate->due_ns ? due_ns : read_gate->due_ns;
	if (!(wanted & OWES_PEAK))
		sample_unset(sample, SAMPLE_MEMORY_PEAK);
	if (!(wanted & OWES_FDS))
		sample_unset(sample, SAMPLE_FDS);

	return sample->mask != mask;
}

static int offer_files(struct read_gate *read_gate, const struct read_gate_process *who, unsigned wanted)
{
	struct process files;

	int r = process_reopen(who->procfd, who->pid, who->start_ticks, wanted, &files);
	if (r < 0)
		return r;

	for (int i = 0; i < PROCESS_FILES; i++)
		offer(read_gate, i, files.fd[i]);
	atomic_fetch_or_explicit(&read_gate->asked, ASKED_ADOPT, memory_order_release);

	return 0;
}

int read_gate_reopen(struct read_gate *read_gate, int procfd, int32_t pid, uint64_t start_ticks,
		     const struct read_gate_options *options)
{
	struct read_gate_process who = { .procfd = procfd, .pid = pid, .start_ticks = start_ticks };
	bool on_offer = atomic_load_explicit(&read_gate->asked, memory_order_relaxed) & ASKED_ADOPT;

	/* One that is about to become warm was asked to when less was read. */
	if (read_gate_is_cold(read_gate))
		return on_offer ? read_gate_warm(read_gate, options) : 0;

	return offer_files(read_gate, &who, files_for(options) & ~COLD_FILES);
}

int read_gate_warm(struct read_gate *read_gate, const struct read_gate_options *options)
{
	return offer_files(read_gate, &read_gate->who, files_for(options));
}

void read_gate_chill(struct read_gate *read_gate)
{
	atomic_fetch_or_explicit(&read_gate->asked, ASKED_CHILL, memory_order_relaxed);
}

bool read_gate_is_cold(const struct read_gate *read_gate)
{
	return atomic_load_explicit(&read_gate->cold, memory_order_relaxed);
}

uint32_t read_gate_runs(const struct read_gate *read_gate)
{
	return atomic_load_explicit(&read_gate->runs, memory_order_relaxed);
}

void read_gate_need(struct read_gate *read_gate, bool peak, bool fds)
{
	atomic_store_explicit(&read_gate->needed, (uint8_t)((peak ? OWES_PEAK : 0) | (fds ? OWES_FDS : 0)),
			      memory_order_relaxed);
}

static void adopt(struct read_gate *read_gate, const struct read_gate_options *options)
{
	int offered[PROCESS_FILES];

	for (int i = 0; i < PROCESS_FILES; i++)
		offered[i] = atomic_exchange_explicit(&read_gate->offered[i], -1, memory_order_relaxed);
	process_adopt(&read_gate->process, offered);
	read_gate->owed = owed_after_running(options);
	read_gate->peak_due_ns = 0;
	read_gate->fds_due_ns = 0;
	read_gate->same_pages = false;
	read_gate->settled = false;
}

/* What is asked after the bits were cleared sets them again. */
static void obey(struct read_gate *read_gate, const struct read_gate_options *options)
{
	uint8_t asked = atomic_exchange_explicit(&read_gate->asked, 0, memory_order_acquire);

	if (asked & ASKED_ADOPT)
		adopt(read_gate, options);
	if (asked & ASKED_CHILL)
		process_release(&read_gate->process);
	atomic_store_explicit(&read_gate->cold, is_cold(read_gate), memory_order_relaxed);
}

/*
 * Whether a process that ran, and whose clock said before_ns at the last look, may be left unread.
 */
static bool may_wait(const struct read_gate *read_gate, const struct read_gate_options *options, mono_t now,
		     uint64_t before_ns)
{
	if (!read_gate->settled || read_gate->moving || now.ns >= read_gate->due_ns || read_gate->patience_ns == 0)
		return false;

	return read_gate->process.clock != 0 && !is_cold(read_gate) && read_gate->cpu_ns > before_ns &&
	       read_gate->cpu_ns - read_gate->read_cpu_ns < options->unread_max_ns;
}

static void leave_unread(struct read_gate *read_gate, const struct read_gate_options *options, mono_t now)
{
	if (!read_gate->unread)
		read_gate->due_ns = sooner(read_gate->due_ns, now, read_gate->patience_ns);
	read_gate->unread = true;
	read_gate->owed |= owed_after_running(options);
}

enum read_gate_due read_gate_look(struct read_gate *read_gate, const struct read_gate_options *options, mono_t now,
				  uint64_t patience_ns)
{
	uint64_t before_ns = read_gate->cpu_ns;

	if (atomic_load_explicit(&read_gate->asked, memory_order_relaxed) != 0)
		obey(read_gate, options);
	read_gate->ran = true;
	if (read_gate->process.clock != 0) {
		if (process_cpu(&read_gate->process, &read_gate->cpu_ns) < 0)
			read_gate->process.clock = 0; /* the files will say whether it is gone */
		else
			read_gate->ran = read_gate->cpu_ns != before_ns || options->ungated;
	}
	if (!read_gate->ran)
		return !read_gate->settled || now.ns >= read_gate->due_ns ? READ_GATE_FILES : READ_GATE_NOTHING;

	read_gate->patience_ns = patience_ns;
	if (!may_wait(read_gate, options, now, before_ns))
		return READ_GATE_FILES;

	leave_unread(read_gate, options, now);
	return READ_GATE_CLOCK;
}

/* The only writer: no need to add atomically. */
static void count_run(struct read_gate *read_gate)
{
	uint32_t runs = atomic_load_explicit(&read_gate->runs, memory_order_relaxed);

	atomic_store_explicit(&read_gate->runs, runs + 1, memory_order_relaxed);
}

void read_gate_take_clock(struct read_gate *read_gate, struct sample *sample)
{
	sample_set(sample, SAMPLE_CPU, read_gate->cpu_ns);
	count_run(read_gate);
}

/*
 * A heartbeat that finds nothing is as far from the next one again. What is read for another reason
 * does not count.
 */
static uint8_t next_rest(const struct read_gate *read_gate)
{
	if (!read_gate->settled || read_gate->ran || read_gate->unread || read_gate->owed != 0)
		return 0;

	return (uint8_t)(read_gate->rate_limit + (read_gate->rate_limit < DOUBLINGS_MAX));
}

/* It was read. */
static void note_reading(struct read_gate *read_gate, const struct read_gate_options *options, bool moving,
			 uint8_t rate_limit)
{
	bool may_be_left = read_gate->patience_ns != 0 && options->unread_max_ns != 0 && !is_cold(read_gate);

	read_gate->moving = moving;
	read_gate->rate_limit = moving ? 0 : rate_limit;
	read_gate->unread = read_gate->ran && may_be_left;
	read_gate->settled = !read_gate->ran || may_be_left;
	read_gate->read_cpu_ns = read_gate->cpu_ns;
}

int read_gate_read(struct read_gate *read_gate, const struct read_gate_options *options, mono_t now,
		   struct sample *sample)
{
	uint64_t cpu_ns = sample->value[SAMPLE_CPU], memory_bytes = sample->value[SAMPLE_MEMORY];
	uint8_t rate_limit = next_rest(read_gate);

	if (read_gate->ran)
		read_gate->owed |= owed_after_running(options);
	int r = is_cold(read_gate) ? read_cold(read_gate, options, now, sample)
				   : read_due(read_gate, options, &read_gate->process, now, sample);
	if (r == 0)
		note_reading(read_gate, options, sample->value[SAMPLE_MEMORY] != memory_bytes, rate_limit);
	else
		read_gate->settled = false;
	read_gate->due_ns = next_due(read_gate, now);
	if (r == 0 && sample->value[SAMPLE_CPU] != cpu_ns)
		count_run(read_gate);

	return r;
}

/* 52 numbers of up to 20 digits and a name of up to 64 bytes. */
#define STAT_MAX 2048
#define STATM_MAX 256
/*
 * Usually 1.5 KiB; a process in more than a thousand supplementary groups has VmHWM beyond it:
 * unavailable.
 */
#define STATUS_MAX 8192

#define FDS_COUNTED_MAX 65536

/*
 * The one place where a vanished process is recognised: procfs says ESRCH, listing fd/ ENOENT, a
 * CPU clock EINVAL.
 */
static int map_errno(int error)
{
	return error == ENOENT || error == EINVAL ? -ESRCH : -error;
}

/* Length or -errno. */
static ssize_t read_file(int fd, char *buf, size_t cap)
{
	ssize_t len = pread(fd, buf, cap, 0);

	return len < 0 ? map_errno(errno) : len;
}

static const struct {
	const char *name;
	int flags;
} files[PROCESS_FILES] = {
	[PROCESS_STAT] = { "stat", O_RDONLY },
	[PROCESS_STATM] = { "statm", O_RDONLY },
	[PROCESS_STATUS] = { "status", O_RDONLY },
	[PROCESS_CLEAR_REFS] = { "clear_refs", O_WRONLY },
	[PROCESS_FDS] = { "fd", O_RDONLY | O_DIRECTORY },
};

static void set_closed(struct process *process)
{
	process->clock = 0;
	for (int i = 0; i < PROCESS_FILES; i++)
		process->fd[i] = -1;
}

/*
 * All but stat may be unavailable; a machine that has no descriptors left is another matter. 0 or
 * -errno.
 */
static int open_files(struct process *process, int dir_fd, unsigned wanted)
{
	for (unsigned i = 0; i < PROCESS_FILES; i++) {
		if (!((wanted | 1u << PROCESS_STAT) >> i & 1))
			continue;
		process->fd[i] = openat(dir_fd, files[i].name, files[i].flags | O_CLOEXEC);
		if (process->fd[i] < 0 && (i == PROCESS_STAT || errno == EMFILE || errno == ENFILE || errno == ENOMEM))
			return map_errno(errno);
	}

	return 0;
}

/*
 * Opens stat, and what is in `wanted`; reads nothing. All belongs to one process, which need not be
 * the one that is meant: process_identify says. 0; -ESRCH; -errno. Has one descriptor more for a
 * moment.
 */
static int process_open(struct process *process, int procfd, int32_t pid, unsigned wanted)
{
	char name[16];
	AUTO_CLOSE int dir_fd = -1;

	set_closed(process);
	snprintf(name, sizeof(name), "%d", pid);
	dir_fd = openat(procfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return map_errno(errno);

	int r = open_files(process, dir_fd, wanted);
	if (r < 0)
		process_release(process);

	return r;
}

/* 0 and *ret, which points into buf; -errno. */
static int read_stat(const struct process *process, char buf[STAT_MAX], struct procfs_stat *ret)
{
	ssize_t len = read_file(process->fd[PROCESS_STAT], buf, STAT_MAX);

	return len < 0 ? (int)len : procfs_stat_parse(buf, (size_t)len, ret);
}

/* The start time, from stat. 0; -ESRCH; -EBADMSG, -errno. */
static int process_identify(const struct process *process, uint64_t *ret_start_ticks)
{
	char buf[STAT_MAX];
	struct procfs_stat stat;

	int r = read_stat(process, buf, &stat);
	if (r == 0)
		*ret_start_ticks = stat.start_ticks;

	return r;
}

int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, struct process *ret)
{
	struct process process;
	uint64_t found_ticks;

	int r = process_open(&process, procfd, pid, wanted);
	if (r < 0)
		return r;

	r = process_identify(&process, &found_ticks);
	if (r == 0 && start_ticks != 0 && found_ticks != start_ticks)
		r = -ESRCH;
	if (r < 0) {
		process_release(&process);
		return r;
	}

	process_drop(&process, PROCESS_ALL & ~wanted);
	*ret = process;
	return 0;
}

/*
 * Nothing is open; the CPU clock of pid, if wanted, can be asked, and says nothing of who has that
 * pid.
 */
static void process_init_closed(struct process *process, int32_t pid, bool with_cpu_clock)
{
	set_closed(process);
	/*
	 * As clock_getcpuclockid(3) makes it, which would ask the kernel once more: ~pid,
	 * CPUCLOCK_SCHED.
	 */
	if (with_cpu_clock)
		process->clock = (clockid_t)(~(uint32_t)pid << 3 | 2);
}

int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock)
{
	struct process opened;

	process_init_closed(process, pid, with_cpu_clock);
	int r = process_reopen(procfd, pid, start_ticks, PROCESS_ALL, &opened);
	if (r == 0)
		process_adopt(process, opened.fd);

	return r;
}

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void process_release(struct process *process)
{
	process_drop(process, PROCESS_ALL);
}

void process_drop(struct process *process, unsigned dropped)
{
	for (unsigned i = 0; i < PROCESS_FILES; i++)
		if (dropped >> i & 1)
			drop_fd(&process->fd[i]);
}

void process_adopt(struct process *process, const int offered[PROCESS_FILES])
{
	for (int i = 0; i < PROCESS_FILES; i++) {
		int fd = offered[i];

		if (process->fd[i] < 0)
			process->fd[i] = fd;
		else
			drop_fd(&fd);
	}
}

int process_cpu(const struct process *process, uint64_t *ret_ns)
{
	struct timespec ts;

	/*
	 * Not clock_gettime(3): its vDSO knows no such clock, and finding that out costs 10 ns of
	 * 200.
	 */
	_Static_assert(sizeof(ts.tv_sec) == sizeof(long), "the call takes the kernel's timespec");
	if (syscall(SYS_clock_gettime, process->clock, &ts) < 0)
		return map_errno(errno);

	*ret_ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
	return 0;
}

static void put_stat(const struct procfs_stat *stat, struct sample *sample)
{
	uint64_t ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t user_ns = stat->user_ticks * ns_per_tick;
	uint64_t system_ns = stat->system_ticks * ns_per_tick;

	sample_set(sample, SAMPLE_CPU, user_ns + system_ns);
	sample_set(sample, SAMPLE_CPU_USER, user_ns);
	sample_set(sample, SAMPLE_CPU_SYSTEM, system_ns);
	sample_set(sample, SAMPLE_THREADS, stat->threads);
	sample_set(sample, SAMPLE_MINOR_FAULTS, stat->minor_faults);
	sample_set(sample, SAMPLE_MAJOR_FAULTS, stat->major_faults);
	sample_set(sample, SAMPLE_STATE, (uint8_t)stat->state);
}

static int read_statm(const struct process *process, struct sample *sample)
{
	char buf[STATM_MAX];
	uint64_t resident_pages;

	if (process->fd[PROCESS_STATM] < 0)
		return 0;

	ssize_t len = read_file(process->fd[PROCESS_STATM], buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	int r = procfs_statm_parse(buf, (size_t)len, &resident_pages);
	if (r < 0)
		return r;

	sample_set(sample, SAMPLE_MEMORY, resident_pages * (uint64_t)sysconf(_SC_PAGESIZE));
	return 0;
}

int process_read(const struct process *process, uint64_t start_ticks, struct sample *sample)
{
	char buf[STAT_MAX];
	struct procfs_stat stat;

	int r = read_stat(process, buf, &stat);
	if (r < 0)
		return r;
	if (start_ticks != 0 && stat.start_ticks != start_ticks)
		return -ESRCH;

	put_stat(&stat, sample);
	return read_statm(process, sample);
}

int process_read_peak(const struct process *process, bool reset, struct sample *sample)
{
	char buf[STATUS_MAX];
	uint64_t peak_bytes;

	if (process->fd[PROCESS_STATUS] < 0)
		return 0;

	ssize_t len = read_file(process->fd[PROCESS_STATUS], buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	if (procfs_kb_parse(buf, (size_t)len, "VmHWM", &peak_bytes) < 0) {
		sample_unset(sample, SAMPLE_MEMORY_PEAK);
		return 0;
	}
	sample_set(sample, SAMPLE_MEMORY_PEAK, peak_bytes);
	/*
	 * "5": the mark becomes the present RSS (Linux 4.0). Where it is refused the mark stays,
	 * and stays true.
	 */
	if (reset && process->fd[PROCESS_CLEAR_REFS] >= 0 && pwrite(process->fd[PROCESS_CLEAR_REFS], "5", 1, 0) < 0 &&
	    errno == ESRCH)
		return -ESRCH;

	return 0;
}

/* Names of one getdents64(2) result that are not "." or "..". */
static uint64_t count_entries(const char *buf, ssize_t len)
{
	uint64_t count = 0;

	for (ssize_t offset = 0; offset < len;) {
		const struct dirent64 *item = (const void *)(buf + offset);

		count += item->d_name[0] != '.';
		offset += item->d_reclen;
	}

	return count;
}

int process_read_fds(const struct process *process, struct sample *sample)
{
	_Alignas(struct dirent64) char buf[8192];
	uint64_t count = 0;
	ssize_t len = 0;

	if (process->fd[PROCESS_FDS] < 0)
		return 0;
	if (lseek(process->fd[PROCESS_FDS], 0, SEEK_SET) < 0)
		return -errno;

	do {
		len = getdents64(process->fd[PROCESS_FDS], buf, sizeof(buf));
		if (len < 0)
			return map_errno(errno);
		count += count_entries(buf, len);
	} while (len > 0 && count < FDS_COUNTED_MAX);

	sample_set(sample, SAMPLE_FDS, count < FDS_COUNTED_MAX ? count : FDS_COUNTED_MAX);
	return 0;
}
