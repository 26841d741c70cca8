/*
 * process.c: descriptors below one /proc/<pid>, and when to read them.
 *
 * Files are opened relative to the directory's own descriptor, so all of them belong to one process
 * even if the pid is reused meanwhile. They are opened when the process is added, so that later, in
 * the tick, nothing is opened; those that the options make useless are closed again. A process for
 * which there are no descriptors to spare (a closed one) has files opened in the tick, and its
 * start time tells whose they are: a pid belongs to one process from its start to its end, so if it
 * is the one that is meant, the CPU clock read before was its clock too. What is read of a closed
 * process goes into a copy of the sample first, so that nothing of another process is kept.
 *
 * A file that may not be read (fd/ of other users, clear_refs) or is missing (fixtures) is
 * unavailable; running out of descriptors is an error.
 *
 * The states of a process, as its CPU clock shows them:
 *
 *	          clock moved                  clock stands still, files read
 *	settled ---------------> unsettled --------------------------------> settled
 *	   ^ |                     ^  |
 *	   +-+ heartbeat           +--+ clock moved
 *
 * The files are read once more after the clock stopped, because the process may have run between
 * the two reads.
 *
 * Where reading may be deferred, "unsettled" has a time limit: a process that ran is `unread` until
 * it was read while its clock stood still, and due_ns is at most defer_ns after it became so. What
 * uses much CPU time is read in each look: unread_max_ns bounds how much memory can have changed
 * unseen, defer_ns for how long.
 *
 * The high-water mark and the count of descriptors cost more and have intervals of their own. From
 * when the process ran they are pending until they were read after that, which may be while it
 * stands still: then it cannot have changed them. A mark does not rise without a new page: while
 * the process has as many page faults and pages as when its mark was read, the mark is read a
 * heartbeat later. (Not skipped: some drivers map pages without a fault.) Of a process of which is told that it
 * got no page and no thread both wait for the next reading, which is some seconds away: else, as their intervals
 * are not the same, each reading would find one of them due and the other one pending again, for the one after it.
 */
#include "lib/source/process.h"

#include "lib/proc/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As bits, 1 << enum process_file. */
#define PROCESS_ALL ((1u << PROCESS_FILES) - 1)

/* ---- one process ---- */

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
} proc_files[PROCESS_FILES] = {
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

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void process_drop(struct process *process, unsigned dropped)
{
	for (unsigned i = 0; i < PROCESS_FILES; i++)
		if (dropped >> i & 1)
			drop_fd(&process->fd[i]);
}

static void process_release(struct process *process)
{
	process_drop(process, PROCESS_ALL);
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
		int fd = open_beneath(dir_fd, proc_files[i].name, proc_files[i].flags, true);

		if (fd < 0 && (i == PROCESS_STAT || fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM))
			return map_errno(-fd);
		process->fd[i] = fd < 0 ? -1 : fd;
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
	dir_fd = open_beneath(procfd, name, O_PATH | O_DIRECTORY, true);
	if (dir_fd < 0)
		return map_errno(-dir_fd);

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

/*
 * Opens those files of the process that are in wanted; others are -1 in *ret, and so is its clock.
 * Otherwise as source_entry_process (source.h); what may not be read, except stat, is unavailable.
 */
static int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, struct process *ret)
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

/* Nothing is open; the CPU clock of pid, if wanted, can be read, whichever process has that pid. */
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

/*
 * CPU time used, all threads. The clock must be there. 0; -ESRCH: no process has that pid (a zombie
 * does); -errno.
 */
static int process_cpu(const struct process *process, uint64_t *ret_ns)
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

bool process_clock_stands(clockid_t clock, uint64_t cpu_ns)
{
	struct process process = { .clock = clock };
	uint64_t found_ns = 0;

	return process_cpu(&process, &found_ns) == 0 && found_ns == cpu_ns;
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

/*
 * stat and statm: CPU_USER, CPU_SYSTEM, their sum as CPU, MEMORY, THREADS, faults, STATE. 0;
 * -ESRCH; -EBADMSG, -errno. start_ticks: 0, or the start time that stat must have: -ESRCH if it is
 * another one, and *sample is as it was.
 */
static int process_read(const struct process *process, uint64_t start_ticks, struct sample *sample)
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

/*
 * MEMORY_PEAK from status; reset: then start a new high-water mark, where that is allowed. Kernel
 * threads have none.
 */
static int process_read_peak(const struct process *process, bool reset, struct sample *sample)
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

static int list_fds(int fd, uint64_t *ret_count)
{
	_Alignas(struct dirent64) char buf[8192];
	uint64_t count = 0;
	ssize_t len = 0;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;

	do {
		len = getdents64(fd, buf, sizeof(buf));
		if (len < 0)
			return map_errno(errno);
		count += count_entries(buf, len);
	} while (len > 0 && count < FDS_COUNTED_MAX);

	*ret_count = count;
	return 0;
}

/* The block size of proc(5), whose directories have no blocks. */
#define PROC_BLOCK_BYTES 1024

/*
 * FDS. Unavailable where listing is not allowed. The size of the directory is their number (Linux 6.2),
 * else 0. More than 65,536 are counted as that many: listing takes 0.2 µs each.
 */
static int process_read_fds(const struct process *process, struct sample *sample)
{
	struct stat stat;
	uint64_t count;
	int fd = process->fd[PROCESS_FDS], r = 0;

	if (fd < 0)
		return 0;
	if (fstat(fd, &stat) < 0)
		return map_errno(errno);

	count = stat.st_blksize == PROC_BLOCK_BYTES && stat.st_blocks == 0 ? (uint64_t)stat.st_size : 0;
	if (count == 0)
		r = list_fds(fd, &count);
	if (r == 0)
		sample_set(sample, SAMPLE_FDS, count < FDS_COUNTED_MAX ? count : FDS_COUNTED_MAX);
	return r;
}

/* ---- when to read it ---- */

/*
 * Heartbeats drift apart by up to a quarter, and are then in turn. The golden ratio: neighbours are far
 * apart, and no two of them the same, however many there are.
 */
#define SPREAD_RATIO 40503u
#define SPREAD_SHIFT 16

/*
 * Swapping out a sleeping process, or reclaiming its pages, goes on for seconds: it need not be
 * looked for more often than that. Where the scheduler says what ran, the readings of those that did
 * not would be most of the work of a tick: there the second pause is anything up to the longest, so that
 * those that began together are read in turn, and then the longest.
 */
#define DOUBLINGS_MAX 3
#define HEARTBEAT_MAX_NS (10 * NS_PER_S)
#define PAUSES_TOLD 2
#define HEARTBEATS_TOLD_MAX 64
#define HEARTBEAT_TOLD_MAX_NS (60 * NS_PER_S)

/*
 * So long one that is told and sleeps is not read while the kernel takes no pages from any process. Others can take or
 * bring some (madvise by another process, a debugger), of which nothing is told.
 */
#define HEARTBEATS_UNRECLAIMED_MAX 800
#define UNRECLAIMED_MAX_NS (600 * NS_PER_S)

/*
 * So much CPU time one may use whose pages and threads did not change before it is read: user and system
 * time have no finer grain (USER_HZ).
 */
#define SAME_UNREAD_MAX_NS (10 * NS_PER_MS)

/* Of a closed process, whatever else is due. */
#define CLOSED_FILES (1u << PROCESS_STAT | 1u << PROCESS_STATM)

static uint8_t pending_after_running(const struct process_reader_options *options)
{
	return (uint8_t)((options->peak_interval_ns != UINT64_MAX ? PROCESS_READER_PEAK : 0) |
			 (options->fds_interval_ns != 0 ? PROCESS_READER_FDS : 0));
}

static bool is_closed(const struct process_reader *reader)
{
	return reader->process.fd[PROCESS_STAT] < 0;
}

/* What it has of pages and threads is what it had when it was read. */
static bool is_same(const struct process_reader *reader)
{
	return reader->told_changes != UINT64_MAX && reader->told_changes == reader->read_changes;
}

static bool is_needed(const struct process_reader *reader, uint8_t extra)
{
	return atomic_load_explicit(&reader->needed, memory_order_relaxed) & extra;
}

/* It ran; same: without a change. */
static void note_pending(struct process_reader *reader, const struct process_reader_options *options, bool same)
{
	uint8_t all = pending_after_running(options), more = all & (uint8_t)~reader->pending;

	if (is_needed(reader, PROCESS_READER_FDS))
		more &= (uint8_t)~PROCESS_READER_FDS;
	reader->lazy = same ? reader->lazy | more : 0;
	reader->pending |= all;
}

/*
 * The clock's total is in nanoseconds, that of stat in ticks. Of one that has not run since all was read
 * only memory may have changed.
 */
static int read_files(const struct process_reader *reader, const struct process *files, struct sample *sample)
{
	if (reader->settled && !reader->ran && !is_closed(reader) && !reader->unread)
		return read_statm(files, sample);

	int r = process_read(files, reader->who.start_ticks, sample);
	if (r == 0 && reader->process.clock != 0)
		sample_set(sample, SAMPLE_CPU, reader->cpu_ns);
	return r;
}

/* Leaves fd for the owner, in the place of one that it did not take over. */
static void offer(struct process_reader *reader, int file, int fd)
{
	int before = atomic_exchange_explicit(&reader->offered[file], fd, memory_order_relaxed);

	if (before >= 0)
		close(before);
}

/* The files are open, of the process that is meant. */
static int first_reading(struct process_reader *reader, const struct process *files, struct sample *sample)
{
	int r = 0;

	if (reader->process.clock != 0)
		r = process_cpu(&reader->process, &reader->cpu_ns);
	reader->read_cpu_ns = reader->cpu_ns;
	return r < 0 ? r : read_files(reader, files, sample);
}

int process_reader_init(struct process_reader *reader, const struct process_reader_target *process,
			struct sample *sample)
{
	struct process files;

	*reader = (struct process_reader){ .who = *process };
	for (int i = 0; i < PROCESS_FILES; i++)
		atomic_init(&reader->offered[i], -1);
	atomic_init(&reader->closed, process->closed);
	process_init_closed(&reader->process, process->pid, process->with_cpu_clock);

	int r = process_reopen(process->procfd, process->pid, process->start_ticks,
			       process->closed ? CLOSED_FILES : PROCESS_ALL, &files);
	if (r < 0)
		return r;

	if (process->start_ticks == 0)
		r = process_identify(&files, &reader->who.start_ticks);
	if (r == 0)
		r = first_reading(reader, &files, sample);
	if (r == 0 && !process->closed)
		memcpy(reader->process.fd, files.fd, sizeof(files.fd));
	else
		process_release(&files);
	return r;
}

void process_reader_release(struct process_reader *reader)
{
	for (int i = 0; i < PROCESS_FILES; i++)
		offer(reader, i, -1);
	process_release(&reader->process);
}

static uint64_t own_heartbeat(const struct process_reader *reader, const struct process_reader_options *options)
{
	return options->heartbeat_ns - (options->heartbeat_ns / 4 * reader->spread >> SPREAD_SHIFT);
}

/* All that options have read at some time. */
static unsigned files_for(const struct process_reader_options *options)
{
	uint8_t pending = pending_after_running(options);
	unsigned peak = (pending & PROCESS_READER_PEAK) != 0, fds = (pending & PROCESS_READER_FDS) != 0;

	return CLOSED_FILES | peak << PROCESS_STATUS | (peak & options->reset_peaks) << PROCESS_CLEAR_REFS |
	       fds << PROCESS_FDS;
}

void process_reader_start(struct process_reader *reader, const struct process_reader_options *options, uint32_t spread)
{
	process_drop(&reader->process, ~files_for(options));
	reader->spread = (uint16_t)(spread * SPREAD_RATIO);
	reader->heartbeat_ns = own_heartbeat(reader, options);
	reader->peak_due_ns = 0;
	reader->fds_due_ns = 0;
	reader->pending = pending_after_running(options);
	reader->lazy = 0;
	reader->read_changes = reader->told_changes = UINT64_MAX;
	reader->settled = false;
	reader->unread = false;
	reader->moving = true; /* it may have just begun */
	reader->same_pages = false;
	reader->doublings = 0;
}

/* How often something that costs more is read. */
static uint64_t interval_of(const struct process_reader *reader, uint8_t extra, uint64_t interval_ns)
{
	bool rarely = is_closed(reader) && !is_needed(reader, extra);

	return rarely && interval_ns < reader->heartbeat_ns ? reader->heartbeat_ns : interval_ns;
}

/* The high-water mark, if it is pending. */
static uint64_t peak_due(const struct process_reader *reader)
{
	return reader->peak_due_ns + (reader->same_pages ? reader->heartbeat_ns : 0);
}

/* What is pending and due of that which costs more. */
static uint8_t due_extras(const struct process_reader *reader, mono_t now)
{
	return reader->pending & (uint8_t)((now.ns >= peak_due(reader) ? PROCESS_READER_PEAK : 0) |
					   (now.ns >= reader->fds_due_ns ? PROCESS_READER_FDS : 0));
}

static uint64_t faults_of(const struct sample *sample)
{
	return sample->value[SAMPLE_MINOR_FAULTS] + sample->value[SAMPLE_MAJOR_FAULTS];
}

/*
 * stat and statm were read. Of a closed process the files of what is due are open by now, whatever
 * they say.
 */
static void note_pages(struct process_reader *reader, const struct process_reader_options *options,
		       const struct sample *sample)
{
	reader->same_pages = !options->reset_peaks && !is_closed(reader) && faults_of(sample) == reader->peak_faults &&
			     sample->value[SAMPLE_MEMORY] == reader->peak_memory;
}

static int read_peak(struct process_reader *reader, const struct process_reader_options *options,
		     const struct process *files, mono_t now, struct sample *sample)
{
	reader->pending &= (uint8_t)~PROCESS_READER_PEAK;
	reader->peak_due_ns = now.ns + interval_of(reader, PROCESS_READER_PEAK, options->peak_interval_ns);
	reader->peak_faults = faults_of(sample);
	reader->peak_memory = sample->value[SAMPLE_MEMORY];

	int r = process_read_peak(files, options->reset_peaks && !options->reset_peak, sample);

	if (r == 0 && options->reset_peaks && options->reset_peak && files->fd[PROCESS_CLEAR_REFS] >= 0)
		options->reset_peak(files->fd[PROCESS_CLEAR_REFS]);
	return r;
}

/* Everything that is due. 0; -ESRCH; -errno. */
static int read_due(struct process_reader *reader, const struct process_reader_options *options,
		    const struct process *files, mono_t now, struct sample *sample)
{
	int r = read_files(reader, files, sample);
	if (r == 0)
		note_pages(reader, options, sample);

	uint8_t due = due_extras(reader, now);

	if (r == 0 && (due & PROCESS_READER_PEAK))
		r = read_peak(reader, options, files, now, sample);
	if (r == 0 && (due & PROCESS_READER_FDS)) {
		r = process_read_fds(files, sample);
		reader->pending &= (uint8_t)~PROCESS_READER_FDS;
		reader->fds_due_ns = now.ns + interval_of(reader, PROCESS_READER_FDS, options->fds_interval_ns);
	}
	return r;
}

/* The memory of whichever process has the id. */
static int read_memory_by_id(const struct process_reader *reader, struct sample *sample)
{
	char name[24];
	struct process files;

	snprintf(name, sizeof(name), "%d/statm", reader->who.pid);
	set_closed(&files);
	files.fd[PROCESS_STATM] = open_beneath(reader->who.procfd, name, O_RDONLY, true);
	if (files.fd[PROCESS_STATM] < 0)
		return map_errno(-files.fd[PROCESS_STATM]);

	int r = read_statm(&files, sample);
	process_release(&files);
	return r;
}

/* Only files of what is due are opened. */
static int read_closed(struct process_reader *reader, const struct process_reader_options *options, mono_t now,
		       struct sample *sample)
{
	reader->same_pages = false;
	uint8_t due = due_extras(reader, now);

	reader->by_id = reader->is_known_alive && reader->settled && !reader->ran && !reader->unread && due == 0;
	if (reader->by_id)
		return read_memory_by_id(reader, sample);

	unsigned unneeded = (due & PROCESS_READER_PEAK ? 0 : 1u << PROCESS_STATUS | 1u << PROCESS_CLEAR_REFS) |
			    (due & PROCESS_READER_FDS ? 0 : 1u << PROCESS_FDS);
	struct sample fresh = *sample;
	struct process files;

	int r = process_open(&files, reader->who.procfd, reader->who.pid, files_for(options) & ~unneeded);
	if (r < 0)
		return r;

	r = read_due(reader, options, &files, now, &fresh);
	process_release(&files);
	if (r == 0)
		*sample = fresh;
	return r;
}

static uint64_t told_pause(const struct process_reader *reader, uint64_t longest_ns)
{
	if (reader->doublings >= PAUSES_TOLD)
		return longest_ns;
	if (reader->doublings == 0)
		return reader->heartbeat_ns;
	return reader->heartbeat_ns + ((longest_ns - reader->heartbeat_ns) * reader->spread >> SPREAD_SHIFT);
}

/* The heartbeat, as often doubled as it stands still. */
static uint64_t present_heartbeat(const struct process_reader *reader)
{
	uint64_t most_ns = reader->is_told || is_closed(reader) ? HEARTBEAT_TOLD_MAX_NS : HEARTBEAT_MAX_NS;
	uint64_t longest_ns = reader->heartbeat_ns > most_ns ? reader->heartbeat_ns : most_ns;
	uint64_t heartbeat_ns = reader->is_told ? HEARTBEATS_TOLD_MAX * reader->heartbeat_ns
						: reader->heartbeat_ns << reader->doublings;

	heartbeat_ns = heartbeat_ns < longest_ns ? heartbeat_ns : longest_ns;
	return reader->is_told ? told_pause(reader, heartbeat_ns) : heartbeat_ns;
}

/* When it is due that was due at due_ns and now has this interval. */
static uint64_t sooner(uint64_t due_ns, mono_t now, uint64_t interval_ns)
{
	uint64_t limit_ns = interval_ns < UINT64_MAX - now.ns ? now.ns + interval_ns : UINT64_MAX;

	return due_ns < limit_ns ? due_ns : limit_ns;
}

static uint64_t next_due(const struct process_reader *reader, mono_t now)
{
	uint64_t due_ns = now.ns + present_heartbeat(reader);
	uint8_t lazy = reader->pending & reader->lazy, hurried = reader->pending & (uint8_t)~lazy;

	if ((hurried & PROCESS_READER_PEAK) && peak_due(reader) < due_ns)
		due_ns = peak_due(reader);
	if ((hurried & PROCESS_READER_FDS) && reader->fds_due_ns < due_ns)
		due_ns = reader->fds_due_ns;
	if (lazy)
		due_ns = sooner(due_ns, now, reader->heartbeat_ns << DOUBLINGS_MAX);
	if (reader->unread && now.ns + reader->defer_ns < due_ns)
		due_ns = now.ns + reader->defer_ns;
	return due_ns;
}

/*
 * What is read for the first time waits for the heartbeat, even if the process runs: the heartbeats
 * are spread, and thousands of first readings in one tick would be felt.
 */
bool process_reader_retune(struct process_reader *reader, const struct process_reader_options *before,
			   const struct process_reader_options *options, mono_t now, struct sample *sample)
{
	uint8_t wanted = pending_after_running(options);
	uint8_t added = wanted & (uint8_t)~pending_after_running(before);
	uint32_t mask = sample->mask;

	reader->heartbeat_ns = own_heartbeat(reader, options);
	reader->due_ns = sooner(reader->due_ns, now, reader->heartbeat_ns);
	reader->peak_due_ns = added & PROCESS_READER_PEAK ? reader->due_ns
							  : sooner(reader->peak_due_ns, now, options->peak_interval_ns);
	reader->fds_due_ns =
		added & PROCESS_READER_FDS ? reader->due_ns : sooner(reader->fds_due_ns, now, options->fds_interval_ns);
	reader->pending = (reader->pending & wanted) | added;
	reader->lazy &= (uint8_t)~added;

	uint64_t due_ns = next_due(reader, now);

	reader->due_ns = due_ns < reader->due_ns ? due_ns : reader->due_ns;
	if (!(wanted & PROCESS_READER_PEAK))
		sample_unset(sample, SAMPLE_MEMORY_PEAK);
	if (!(wanted & PROCESS_READER_FDS))
		sample_unset(sample, SAMPLE_FDS);
	return sample->mask != mask;
}

static int offer_files(struct process_reader *reader, const struct process_reader_target *who, unsigned wanted)
{
	struct process files;

	int r = process_reopen(who->procfd, who->pid, who->start_ticks, wanted, &files);
	if (r < 0)
		return r;

	for (int i = 0; i < PROCESS_FILES; i++)
		offer(reader, i, files.fd[i]);
	atomic_fetch_or_explicit(&reader->asked, PROCESS_READER_ADOPT, memory_order_release);
	return 0;
}

int process_reader_reopen(struct process_reader *reader, int procfd, int32_t pid, uint64_t start_ticks,
			  const struct process_reader_options *options)
{
	struct process_reader_target who = { .procfd = procfd, .pid = pid, .start_ticks = start_ticks };
	bool on_offer = atomic_load_explicit(&reader->asked, memory_order_relaxed) & PROCESS_READER_ADOPT;

	/* One that is about to be opened was asked to when less was read. */
	if (process_reader_is_closed(reader))
		return on_offer ? process_reader_open(reader, options) : 0;
	return offer_files(reader, &who, files_for(options) & ~CLOSED_FILES);
}

int process_reader_open(struct process_reader *reader, const struct process_reader_options *options)
{
	return offer_files(reader, &reader->who, files_for(options));
}

/* Takes over what process_reopen has opened: keeps what it lacks, closes the others. */
static void process_adopt(struct process *process, const int offered[PROCESS_FILES])
{
	for (int i = 0; i < PROCESS_FILES; i++) {
		int fd = offered[i];

		if (process->fd[i] < 0)
			process->fd[i] = fd;
		else
			drop_fd(&fd);
	}
}

static void adopt(struct process_reader *reader, const struct process_reader_options *options)
{
	int offered[PROCESS_FILES];

	for (int i = 0; i < PROCESS_FILES; i++)
		offered[i] = atomic_exchange_explicit(&reader->offered[i], -1, memory_order_relaxed);
	process_adopt(&reader->process, offered);
	reader->pending = pending_after_running(options);
	reader->lazy = 0;
	reader->peak_due_ns = 0;
	reader->fds_due_ns = 0;
	reader->same_pages = false;
	reader->settled = false;
}

/* What is asked after the bits were cleared sets them again. */
static void apply_requests(struct process_reader *reader, const struct process_reader_options *options)
{
	uint8_t asked = atomic_exchange_explicit(&reader->asked, 0, memory_order_acquire);

	if (asked & PROCESS_READER_ADOPT)
		adopt(reader, options);
	if (asked & PROCESS_READER_CLOSE)
		process_release(&reader->process);
	atomic_store_explicit(&reader->closed, is_closed(reader), memory_order_relaxed);
}

/* Of a closed one the files say whose clock was asked, unless its CPU time was told. */
static bool is_known(const struct process_reader *reader)
{
	return !is_closed(reader) || reader->is_told;
}

/*
 * Whether a process that ran, and whose clock said before_ns at the last look, may be left unread.
 */
static bool may_wait(const struct process_reader *reader, const struct process_reader_options *options, mono_t now,
		     uint64_t before_ns)
{
	if (!reader->settled || reader->moving || now.ns >= reader->due_ns || reader->defer_ns == 0)
		return false;
	if (reader->process.clock == 0 || !is_known(reader) || reader->cpu_ns <= before_ns)
		return false;

	uint64_t most_ns = is_same(reader) ? SAME_UNREAD_MAX_NS : options->unread_max_ns;

	return options->unread_max_ns != 0 && reader->cpu_ns - reader->read_cpu_ns < most_ns;
}

static void leave_unread(struct process_reader *reader, const struct process_reader_options *options, mono_t now)
{
	bool same = is_same(reader);
	uint64_t longest_ns = reader->heartbeat_ns << DOUBLINGS_MAX, same_ns = present_heartbeat(reader);

	same_ns = same_ns < longest_ns ? same_ns : longest_ns;
	if (!reader->unread || (reader->unread_same && !same))
		reader->due_ns = sooner(reader->due_ns, now, same ? same_ns : reader->defer_ns);
	reader->unread = true;
	reader->unread_same = same;
	note_pending(reader, options, same);
	if ((reader->pending & PROCESS_READER_FDS) && reader->fds_due_ns < reader->due_ns &&
	    (!same || is_needed(reader, PROCESS_READER_FDS)))
		reader->due_ns = reader->fds_due_ns;
}

static uint64_t larger_of(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* 0; -ESRCH, -errno: the clock cannot be asked. */
static int learn_cpu(struct process_reader *reader, const struct process_told *told)
{
	uint64_t cpu_ns = 0;
	int r = told && !told->ended ? 0 : process_cpu(&reader->process, &cpu_ns);

	if (told)
		cpu_ns = told->cpu_ns;
	reader->is_told = told != NULL;
	reader->is_known_alive = told && !told->ended;
	reader->told_changes = told && !told->runs ? told->changes : UINT64_MAX;
	reader->told_reclaimed = told ? told->reclaimed : UINT64_MAX;
	reader->was_told |= told != NULL;
	if (reader->was_told && cpu_ns < larger_of(reader->cpu_ns, reader->past_cpu_ns))
		cpu_ns = larger_of(reader->cpu_ns, reader->past_cpu_ns);
	if (told || r == 0)
		reader->cpu_ns = cpu_ns;
	if (told) {
		reader->wait_ns +=
			told->wait_ns < reader->told_wait_ns ? told->wait_ns : told->wait_ns - reader->told_wait_ns;
		reader->told_wait_ns = told->wait_ns;
	}
	return r;
}

/* What files do not have. */
static void put_wait(const struct process_reader *reader, struct sample *sample)
{
	if (reader->is_told)
		sample_set(sample, SAMPLE_CPU_WAIT, larger_of(reader->wait_ns, sample->value[SAMPLE_CPU_WAIT]));
	else
		sample_unset(sample, SAMPLE_CPU_WAIT);
}

/* Of one that has not run since it was read. */
static bool has_what_was_read(const struct process_reader *reader, mono_t now)
{
	uint64_t age_ns = now.ns - reader->read_ns;

	return reader->is_known_alive && reader->settled && !reader->unread && !reader->moving &&
	       reader->pending == 0 && reader->told_reclaimed != UINT64_MAX &&
	       reader->told_reclaimed == reader->read_reclaimed && age_ns < UNRECLAIMED_MAX_NS &&
	       age_ns < HEARTBEATS_UNRECLAIMED_MAX * reader->heartbeat_ns;
}

/* It sleeps. */
static enum process_reader_due look_at_sleeping(struct process_reader *reader, mono_t now)
{
	if (reader->settled && now.ns < reader->due_ns)
		return PROCESS_READER_NOTHING;
	if (!has_what_was_read(reader, now))
		return PROCESS_READER_FILES;
	if (reader->doublings < PAUSES_TOLD)
		reader->doublings++;
	reader->due_ns = now.ns + present_heartbeat(reader);
	return PROCESS_READER_NOTHING;
}

enum process_reader_due process_reader_look(struct process_reader *reader, const struct process_reader_options *options,
					    mono_t now, uint64_t defer_ns, const struct process_told *told)
{
	uint64_t before_ns = reader->cpu_ns;
	bool was_told = reader->is_told;

	if (atomic_load_explicit(&reader->asked, memory_order_relaxed) != 0)
		apply_requests(reader, options);
	reader->ran = true;
	if (reader->process.clock != 0) {
		if (learn_cpu(reader, told) < 0)
			reader->process.clock = 0; /* the files will say whether it is gone */
		else
			reader->ran = reader->cpu_ns != before_ns || options->read_always;
	}
	if (was_told && !reader->is_told)
		reader->due_ns = sooner(reader->due_ns, now, reader->heartbeat_ns);
	if (!reader->ran)
		return look_at_sleeping(reader, now);

	reader->defer_ns = defer_ns;
	if (!may_wait(reader, options, now, before_ns))
		return PROCESS_READER_FILES;

	leave_unread(reader, options, now);
	return PROCESS_READER_CLOCK;
}

/* The only writer: no need to add atomically. */
static void count_run(struct process_reader *reader)
{
	uint32_t runs = atomic_load_explicit(&reader->runs, memory_order_relaxed);

	atomic_store_explicit(&reader->runs, runs + 1, memory_order_relaxed);
}

void process_reader_take_clock(struct process_reader *reader, struct sample *sample)
{
	sample_set(sample, SAMPLE_CPU, reader->cpu_ns);
	put_wait(reader, sample);
	count_run(reader);
}

/*
 * A heartbeat that finds nothing is as far from the next one again. What is read for another reason
 * does not count, unless no change was told.
 */
static uint8_t next_doublings(const struct process_reader *reader)
{
	bool still = !reader->ran && !reader->unread && reader->pending == 0;

	if (!reader->settled || (!still && !is_same(reader)))
		return 0;

	unsigned most = reader->is_told ? PAUSES_TOLD : DOUBLINGS_MAX;

	return (uint8_t)(reader->doublings + (reader->doublings < most));
}

/* It was read. */
static void note_reading(struct process_reader *reader, const struct process_reader_options *options, mono_t now,
			 bool moving, uint8_t doublings)
{
	bool may_be_left = reader->defer_ns != 0 && options->unread_max_ns != 0 && is_known(reader);

	reader->moving = moving;
	reader->doublings = moving ? 0 : doublings;
	reader->unread = reader->ran && may_be_left && reader->told_changes == UINT64_MAX;
	reader->read_changes = reader->told_changes;
	reader->settled = !reader->ran || may_be_left;
	reader->read_cpu_ns = reader->cpu_ns;
	reader->read_ns = now.ns;
	reader->read_reclaimed = reader->told_reclaimed;
}

int process_reader_read(struct process_reader *reader, const struct process_reader_options *options, mono_t now,
			struct sample *sample)
{
	uint64_t cpu_ns = sample->value[SAMPLE_CPU], memory_bytes = sample->value[SAMPLE_MEMORY];
	uint8_t doublings = next_doublings(reader);

	reader->by_id = false;
	if (reader->ran)
		note_pending(reader, options, is_same(reader));
	int r = is_closed(reader) ? read_closed(reader, options, now, sample)
				  : read_due(reader, options, &reader->process, now, sample);
	if (r == 0) {
		put_wait(reader, sample);
		note_reading(reader, options, now, sample->value[SAMPLE_MEMORY] != memory_bytes, doublings);
	} else {
		reader->settled = false;
	}
	reader->due_ns = next_due(reader, now);
	if (r == 0 && sample->value[SAMPLE_CPU] != cpu_ns)
		count_run(reader);
	return r;
}
