/*
 * stack_capture.c: two snapshots of the rings, put together; the files they refer to, opened with
 * the daemon's privileges by a child (foreign.h) and handed to spikewatch-symbolize, one child for
 * one incident.
 *
 * The second snapshot begins where the first has ended, so of each kind of sample the records of
 * both are in order, one after the other. Side-band records of a process that is in both are there
 * twice, which changes nothing, but they have to be merged.
 *
 * A file is handed over only if it is the one that was mapped: same device and inode where the
 * kernel reported these; where it reported the build id, the symboliser compares. Files are opened
 * as early as possible: the mount namespace of a process ends with it. Those that cannot be opened
 * have the descriptor -1, and are named for their build id.
 *
 * The child (children.h) has the outputs and the files at fixed numbers, which are those in the
 * stack file. Its minder holds the lock of the draft that the outputs are in.
 *
 * An early child. Most of its work is reading files, which most of the samples need that were there
 * when the rule fired. So if the window stays open for a while, a child is given the first snapshot, and
 * then waits for the rest (STACK_FILE_DESCRIPTORS_AT_ONCE). The stack file of the whole incident is the
 * same as without it, and so is what is made of it. There is one at a time, and none is started while more
 * than one capture waits: storms are not made worse. It ends when an other capture needs a child. Until it
 * has been given the rest it is worth nothing: another one is started if it is gone.
 */
#include "daemon/engine/stacks/stack_capture.h"

#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/paths.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/model/pacing.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* EXIT_REST of daemon/symbolize/main.c: it has written nothing. */
#define EARLY_GAVE_UP 4

/* What it may take, by the clock. */
#define SYMBOLIZER_PATIENCE_NS (30 * NS_PER_S)

/* ---- the files for the symboliser ---- */

/* Files of mappings, those with most frames first; perf maps of processes on top. */
#define STACK_BUNDLE_FILES_MAX 256u
#define STACK_BUNDLE_PERF_MAPS_MAX 32u
#define STACK_BUNDLE_ENTRIES_MAX (STACK_BUNDLE_FILES_MAX + STACK_BUNDLE_PERF_MAPS_MAX + 1)

/* Zeroed is empty. */
struct stack_bundle {
	struct stack_file_entry *entries; /* paths are the snapshots', or in `names` */
	size_t cap;
	char names[STACK_BUNDLE_PERF_MAPS_MAX][64];
	uint32_t absent_of[STACK_BUNDLE_ENTRIES_MAX]; /* the process whose file was not found; 0: none yet */
	size_t count, files, perf_maps;
	size_t unanswered;  /* of the last stack_bundle_add: not opened, as they do not answer */
	size_t too_large;   /* likewise, to be copied from where they are */
	uint64_t waited_ns; /* for files, whether they answered or not */
	size_t copied;      /* bytes, of files that a process answers for */
	size_t copied_max;
};

/* What an incident waits for its files: three of different users that do not answer. */
#define FILES_PATIENCE_NS (3 * FOREIGN_PATIENCE_NS)

static bool is_mapped_file(const struct stat *st, const struct perf_record_file *file)
{
	return file->build_id_len > 0 ||
	       (major(st->st_dev) == file->major && minor(st->st_dev) == file->minor && st->st_ino == file->inode);
}

/* As foreign_open, with what the bundle may copy and wait. */
static int open_foreign(struct stack_bundle *bundle, int procfd, uint32_t pid, const char *path, int flags,
			struct stat *ret_status)
{
	struct clock clock = real_clock();
	mono_t begin = clock_mono(&clock);
	size_t room = bundle->copied_max > bundle->copied ? bundle->copied_max - bundle->copied : 0, left = room;
	int fd = bundle->waited_ns < FILES_PATIENCE_NS
			 ? foreign_open(FOREIGN_INCIDENTS, procfd, (int32_t)pid, path, flags, &left, ret_status)
			 : -EBUSY;

	bundle->waited_ns += (uint64_t)mono_diff(clock_mono(&clock), begin);
	bundle->copied += room - left;
	return fd;
}

/*
 * Through its mapping, which takes CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN) and also reaches what
 * was deleted, replaced by a newer version, or is of another mount; as the process sees it; and
 * when the process is gone, at the same path here, but not by way of other processes. -ENOENT: not found; or
 * foreign.h's.
 */
static int open_mapped(struct stack_bundle *bundle, int procfd, const struct stack_recorder_file *file)
{
	char paths[3][4200];

	snprintf(paths[1], sizeof paths[1], "%u/root%s", file->pid, file->path);
	snprintf(paths[0], sizeof paths[0], "%u/map_files/%jx-%jx", file->pid, (uintmax_t)file->start,
		 (uintmax_t)file->end);
	snprintf(paths[2], sizeof paths[2], "%s", file->path);
	for (int way = 0; way < (strncmp(file->path, "/proc/", 6) == 0 ? 2 : 3); way++) {
		struct stat st;
		size_t copied = bundle->copied;
		AUTO_CLOSE int fd = open_foreign(bundle, procfd, file->pid, paths[way], 0, &st);

		if (fd >= 0 && is_mapped_file(&st, &file->file))
			return TAKE_FD(fd);
		bundle->copied = copied;
		if (fd == -ETIMEDOUT || fd == -EBUSY || fd == -EFBIG)
			return fd;
	}

	return -ENOENT;
}

static struct stack_file_entry *find_file(struct stack_bundle *bundle, const struct stack_recorder_file *file)
{
	for (size_t i = 0; i < bundle->count; i++)
		if (bundle->entries[i].binary.kind == STACK_FILE_ELF &&
		    perf_record_file_same(&bundle->entries[i].binary.file, &file->file) &&
		    strcmp(bundle->entries[i].path, file->path) == 0)
			return &bundle->entries[i];
	return NULL;
}

/* NULL: there is no memory. Those before it may move. */
static struct stack_file_entry *add_entry(struct stack_bundle *bundle, const struct stack_file_entry *entry)
{
	if (vector_reserve(&bundle->entries, &bundle->cap, bundle->count + 1, sizeof *entry) < 0)
		return NULL;

	bundle->entries[bundle->count] = *entry;
	return &bundle->entries[bundle->count++];
}

static void add_file(struct stack_bundle *bundle, int procfd, const struct stack_recorder_file *file, size_t files_max)
{
	struct stack_file_entry *entry = find_file(bundle, file);
	uint32_t *absent_of;

	if (!entry) {
		if (bundle->files == files_max)
			return;
		entry = add_entry(
			bundle,
			&(struct stack_file_entry){
				.binary = { .fd = -1, .kind = STACK_FILE_ELF, .pid = file->pid, .file = file->file },
				.path = file->path,
			});
		if (!entry)
			return;
		bundle->files++;
	}
	absent_of = &bundle->absent_of[entry - bundle->entries];
	if (entry->binary.fd >= 0 || *absent_of == file->pid)
		return;
	entry->binary.fd = open_mapped(bundle, procfd, file);
	*absent_of = entry->binary.fd == -ENOENT ? file->pid : 0;
	bundle->unanswered += entry->binary.fd == -ETIMEDOUT || entry->binary.fd == -EBUSY;
	bundle->too_large += entry->binary.fd == -EFBIG;
	if (entry->binary.fd < 0)
		entry->binary.fd = -1;
}

/* The pid in the innermost pid namespace, by which its perf map is named. */
static uint32_t inner_pid(int procfd, uint32_t pid)
{
	char path[32], text[4096];
	AUTO_CLOSE int fd = -1;
	ssize_t len;

	snprintf(path, sizeof path, "%u/status", pid);
	fd = openat(procfd, path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (len <= 0)
		return pid;

	text[len] = '\0';

	const char *line = strstr(text, "\nNSpid:"),
		   *last = line ? strrchr(strndupa(line + 1, strcspn(line + 1, "\n")), '\t') : NULL;

	return last ? (uint32_t)strtoul(last + 1, NULL, 10) : pid;
}

static bool has_perf_map(const struct stack_bundle *bundle, uint32_t pid)
{
	for (size_t i = 0; i < bundle->count; i++)
		if (bundle->entries[i].binary.kind == STACK_FILE_PERF_MAP && bundle->entries[i].binary.pid == pid)
			return true;
	return false;
}

/* The perf map of a running process, if it has one. It is read later, and may grow until then. */
static void add_perf_map(struct stack_bundle *bundle, int procfd, uint32_t pid)
{
	struct stack_file_binary binary = { .kind = STACK_FILE_PERF_MAP, .pid = pid };
	char *path = bundle->names[bundle->perf_maps], full[96];
	struct stat st;

	if (has_perf_map(bundle, pid))
		return;

	snprintf(path, sizeof bundle->names[0], "/tmp/perf-%u.map", inner_pid(procfd, pid));
	snprintf(full, sizeof full, "%u/root%s", pid, path);
	binary.fd = open_foreign(bundle, procfd, pid, full, O_NOFOLLOW, &st);
	bundle->unanswered += binary.fd == -ETIMEDOUT || binary.fd == -EBUSY;
	bundle->too_large += binary.fd == -EFBIG;
	if (binary.fd < 0)
		return;

	if (add_entry(bundle, &(struct stack_file_entry){ .binary = binary, .path = path }))
		bundle->perf_maps++;
	else
		close(binary.fd);
}

/*
 * Opens what a snapshot, which must outlive the bundle, refers to, unless it is open already: up to
 * files_max files in all. Those that cannot be opened are tried again with the next snapshot, those that
 * are not found if another process has them mapped.
 */
static void stack_bundle_add(struct stack_bundle *bundle, int procfd, const struct stack_recorder_snapshot *snapshot,
			     size_t files_max)
{
	if (files_max > STACK_BUNDLE_FILES_MAX)
		files_max = STACK_BUNDLE_FILES_MAX;
	bundle->unanswered = bundle->too_large = 0;
	for (size_t i = 0; i < snapshot->file_count; i++)
		if (snapshot->files[i].path[0] == '/')
			add_file(bundle, procfd, &snapshot->files[i], files_max);
	for (size_t i = 0; i < snapshot->pid_count && bundle->perf_maps < STACK_BUNDLE_PERF_MAPS_MAX; i++)
		add_perf_map(bundle, procfd, snapshot->pids[i]);
}

/* The kernel's symbols, if they may be read: of the copy, unless it is -1. */
static void stack_bundle_add_kernel(struct stack_bundle *bundle, int procfd, int copy)
{
	struct stack_file_binary binary = { .kind = STACK_FILE_KALLSYMS };

	for (size_t i = 0; i < bundle->count; i++)
		if (bundle->entries[i].binary.kind == STACK_FILE_KALLSYMS)
			return;
	binary.fd = copy >= 0 ? fcntl(copy, F_DUPFD_CLOEXEC, 0) : openat(procfd, "kallsyms", O_RDONLY | O_CLOEXEC);
	if (binary.fd >= 0 &&
	    !add_entry(bundle, &(struct stack_file_entry){ .binary = binary, .path = "/proc/kallsyms" }))
		close(binary.fd);
}

/* Closes all. */
static void stack_bundle_close(struct stack_bundle *bundle)
{
	for (size_t i = 0; i < bundle->count; i++)
		if (bundle->entries[i].binary.fd >= 0)
			close(bundle->entries[i].binary.fd);
	free(TAKE(bundle->entries));
	bundle->count = bundle->cap = bundle->files = bundle->perf_maps = 0;
}

/* ---- spikewatch-symbolize ---- */

/* What it writes: the name of the capture in the incident, and of the file. */
#define SYMBOLIZER_OUTPUTS 6

/* Numbers that descriptors have there. */
#define FIRST_OUTPUT (STDERR_FILENO + 1)
#define FIRST_FILE (FIRST_OUTPUT + SYMBOLIZER_OUTPUTS)
#define REST_SOCKET (FIRST_FILE + (int)STACK_BUNDLE_ENTRIES_MAX)
#define DESCRIPTORS_MAX (FIRST_FILE + STACK_BUNDLE_ENTRIES_MAX + 1)

struct symbolizer_job {
	const char *program;
	int dirfd;      /* of the draft */
	int stack_file; /* at its beginning */
	const struct stack_bundle *bundle;
	int outputs[SYMBOLIZER_OUTPUTS]; /* -1: not yet */
	int rest;                        /* where those will come from, in the child; 0: they are there */
	uint64_t patience_ns;
	uint64_t spike_from_ns;
	size_t *unreadable;                       /* files that it could not read; not set if it fails */
	bool raw;                                 /* it is not to read any file: no names */
	const struct symbolizer_waiting *waiting; /* NULL: nothing */
};

static const struct symbolizer_output {
	const char *name, *file, *option;
} symbolizer_outputs[SYMBOLIZER_OUTPUTS] = {
	{ "stacks", "cpu.pb.gz", "--pprof" },
	{ "stacks-folded", "cpu.folded", "--folded" },
	{ "functions", "functions.tsv", "--functions" },
	{ "memory-stacks", "memory.pb.gz", "--memory-pprof" },
	{ "memory-folded", "memory.folded", "--memory-folded" },
	{ "memory-functions", "memory-functions.tsv", "--memory-functions" },
};

/* Of the standard output and error of the child. */
#define SAID_MAX 4096u

/* How often symbolizer_waiting is called. */
#define LOOK_MS 100

/* How long the end of one that was killed is waited for. */
#define UNKILLABLE_NS (5 * NS_PER_S)
#define EXIT_NS (2 * NS_PER_S)

struct arguments {
	char *words[SYMBOLIZER_OUTPUTS + 6];
	char text[SYMBOLIZER_OUTPUTS + 3][64];
};

/* One that was started. */
struct symbolizer {
	struct child child;
	int listening; /* to what it says */
};

static void build_arguments(const struct symbolizer_job *job, struct arguments *ret)
{
	static char raw[] = "--raw";
	int count = 0, texts = 0;

	ret->words[count++] = (char *)(uintptr_t)job->program;
	if (job->rest > 0)
		snprintf(ret->text[texts++], sizeof ret->text[0], "--rest=%d", REST_SOCKET);
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		snprintf(ret->text[texts++], sizeof ret->text[0], "%s=%d", symbolizer_outputs[i].option,
			 FIRST_OUTPUT + i);
	snprintf(ret->text[texts++], sizeof ret->text[0], "--spike-from=%ju", (uintmax_t)job->spike_from_ns);
	snprintf(ret->text[texts++], sizeof ret->text[0], "--wall=%ju", (uintmax_t)(job->patience_ns / NS_PER_S));
	for (int i = 0; i < texts; i++)
		ret->words[count++] = ret->text[i];
	if (job->raw)
		ret->words[count++] = raw;
	ret->words[count] = NULL;
}

/* Room: DESCRIPTORS_MAX. */
static size_t list_descriptors(const struct symbolizer_job *job, int out, struct child_descriptor *ret)
{
	const struct stack_bundle *bundle = job->bundle;
	size_t count = 0;

	ret[count++] = (struct child_descriptor){ job->stack_file, STDIN_FILENO };
	ret[count++] = (struct child_descriptor){ out, STDOUT_FILENO };
	ret[count++] = (struct child_descriptor){ out, STDERR_FILENO };
	ret[count++] = (struct child_descriptor){ job->dirfd, CHILD_HOLDS };
	if (job->rest > 0)
		ret[count++] = (struct child_descriptor){ job->rest, REST_SOCKET };
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		if (job->outputs[i] >= 0)
			ret[count++] = (struct child_descriptor){ job->outputs[i], FIRST_OUTPUT + i };
	for (size_t i = 0; i < bundle->count; i++)
		if (bundle->entries[i].binary.fd >= 0)
			ret[count++] = (struct child_descriptor){ bundle->entries[i].binary.fd, FIRST_FILE + (int)i };
	return count;
}

enum symbolizer_end { BY_ITSELF, TOO_LATE, STOPPED };

static const char *why_stop(const struct symbolizer_job *job)
{
	return job->waiting ? job->waiting->why_stop(job->waiting->ctx) : NULL;
}

/* Reads its output until its end or the deadline, and keeps as much as there is room for. */
static enum symbolizer_end read_output(const struct symbolizer_job *job, int fd, mono_t deadline, char *said,
				       size_t cap, const char **ret_stopped)
{
	enum symbolizer_end end = BY_ITSELF;
	struct clock clock = real_clock();
	size_t len = 0;
	char scrap[512];

	while (end == BY_ITSELF) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&wait, 1, LOOK_MS) <= 0) {
			if (mono_diff(deadline, clock_mono(&clock)) <= 0)
				end = TOO_LATE;
			else if ((*ret_stopped = why_stop(job)))
				end = STOPPED;
			continue;
		}
		got = len + 1 < cap ? read(fd, said + len, cap - 1 - len) : read(fd, scrap, sizeof scrap);
		if (got == 0 || (got < 0 && errno != EINTR))
			break;
		if (got > 0 && len + 1 < cap)
			len += (size_t)got;
	}
	said[len] = '\0';
	return end;
}

static int start_child(const struct symbolizer_job *job, int out, struct child *ret)
{
	static char path[] = "PATH=/usr/bin:/bin";
	char *const environment[] = { path, NULL };
	struct child_descriptor descriptors[DESCRIPTORS_MAX];
	struct arguments arguments;
	struct child_options options = {
		.words = arguments.words,
		.environment = environment,
		.descriptors = descriptors,
		.descriptor_count = list_descriptors(job, out, descriptors),
		.limits = { .files = 2 * DESCRIPTORS_MAX },
		.oom_score_adj = 1000, /* this one, and not the recorder */
	};

	build_arguments(job, &arguments);
	return child_start(&options, ret);
}

/* It has closed its output (by itself), and so is about to end: killed now it would seem to have failed. */
static struct child_end end_child(struct child *child, bool by_itself)
{
	struct pollfd wait = { .fd = child->fd, .events = POLLIN };
	struct child_end how = { .code = CLD_KILLED, .status = SIGKILL };

	if (!by_itself || poll(&wait, 1, (int)(EXIT_NS / NS_PER_MS)) <= 0)
		child_signal(child, SIGKILL);
	if (poll(&wait, 1, (int)(UNKILLABLE_NS / NS_PER_MS)) > 0)
		child_ended(child, &how);
	child_close(child);
	return how;
}

/* 0 or -errno. */
static int symbolizer_start(const struct symbolizer_job *job, struct symbolizer *ret)
{
	AUTO_CLOSE int listening = -1, speaking = -1;
	int pipe[2], r;

	if (lseek(job->stack_file, 0, SEEK_SET) < 0 || pipe2(pipe, O_CLOEXEC) < 0)
		return -errno;
	listening = pipe[0];
	speaking = pipe[1];
	r = start_child(job, speaking, &ret->child);
	if (r < 0)
		return r;

	ret->listening = TAKE_FD(listening);
	return 0;
}

static struct child_end symbolizer_end(struct symbolizer *symbolizer, bool by_itself)
{
	close(TAKE_FD(symbolizer->listening));
	return end_child(&symbolizer->child, by_itself);
}

/* What it said, and how it ended. *ret_stopped: set if it was STOPPED. */
static struct child_end symbolizer_wait(const struct symbolizer_job *job, struct symbolizer *symbolizer, char *said,
					enum symbolizer_end *ret_end, const char **ret_stopped)
{
	struct clock clock = real_clock();
	mono_t deadline = mono_add(clock_mono(&clock), SYMBOLIZER_PATIENCE_NS + 2 * NS_PER_S);

	*ret_end = read_output(job, symbolizer->listening, deadline, said, SAID_MAX, ret_stopped);
	return symbolizer_end(symbolizer, *ret_end == BY_ITSELF);
}

static void describe_end(const struct child_end *how, enum symbolizer_end end, const char *stopped, const char *said,
			 char *why, size_t cap)
{
	bool signalled = how->code != CLD_EXITED;

	if (end == STOPPED)
		snprintf(why, cap, "%s", stopped);
	else if (end == TOO_LATE || (signalled && how->status == SIGALRM))
		snprintf(why, cap, "the symboliser took more than %llu s", SYMBOLIZER_PATIENCE_NS / NS_PER_S);
	else if (signalled)
		snprintf(why, cap, "the symboliser was ended by signal %d (%s)", how->status, strsignal(how->status));
	else
		snprintf(why, cap, "the symboliser failed with %d: %.*s", how->status, (int)strcspn(said, "\n"), said);
}

/* A line of what the symboliser says that it counted: "frames\t1234". */
static size_t count_said(const char *said, const char *name)
{
	const char *at = strstr(said, name);

	return at ? strtoul(at + strlen(name), NULL, 10) : 0;
}

/*
 * early: one that has all that it needs, or NULL. 0; -errno: it was not started, or the early one has given
 * up; 1: it failed, and why says how. Its outputs may be partial.
 */
static int symbolizer_run(const struct symbolizer_job *job, struct symbolizer *early, char *why, size_t cap)
{
	char said[SAID_MAX] = "";
	enum symbolizer_end end = STOPPED;
	struct child_end how = { .code = CLD_EXITED, .status = 1 };
	struct symbolizer own = { .listening = -1 };
	const char *stopped = why_stop(job);
	int r = stopped || early ? 0 : symbolizer_start(job, &own);

	if (!stopped && r == 0)
		how = symbolizer_wait(job, early ? early : &own, said, &end, &stopped);
	if (early && end == BY_ITSELF && how.code == CLD_EXITED && how.status == EARLY_GAVE_UP)
		return -EAGAIN;
	if (r == 0 && how.code == CLD_EXITED && how.status == 0 && *job->unreadable == 0)
		*job->unreadable = count_said(said, "binaries_unreadable\t");
	if (r < 0 || (how.code == CLD_EXITED && how.status == 0))
		return r;
	describe_end(&how, end, stopped, said, why, cap);
	return 1;
}

/* ---- the program ---- */

bool symbolizer_find(char *ret, size_t cap)
{
	char self[1024];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	if (len > 0) {
		self[len] = '\0';
		slash = strrchr(self, '/');
		if (slash && (size_t)snprintf(ret, cap, "%.*s/spikewatch-symbolize", (int)(slash - self), self) < cap &&
		    access(ret, X_OK) == 0)
			return true;
	}

	return (size_t)snprintf(ret, cap, "%s/spikewatch-symbolize", PATHS_LIBEXEC) < cap && access(ret, X_OK) == 0;
}

/* Files that an incident holds open from the firing on; the others are opened when it ends. */
#define FILES_AT_ONCE 64u

/* Of each snapshot, beyond what all rings hold: for side-band records. */
#define SIDEBAND_MAX (16u << 20)
#define SIDEBAND_BESIDE (2u << 20) /* of one beside others, whose records have most of it */

/* Of a window that is over sooner there is no early child. */
#define EARLY_LEAST_NS (NS_PER_S / 5)

/* How long it waits beyond the window: for commands, a second snapshot, other incidents. */
#define EARLY_WAIT_NS (30 * NS_PER_S)

/* Less is not worth the memory that compressing takes. */
#define PACKED_BYTES_MIN 16384u

/* So much is compressed, and unpacked, at a time. */
#define PACKED_PIECE (256u << 10)

/* For so long other captures may begin with a copy that was taken already: their firings come in storms. */
#define SHARED_NS NS_PER_S

/* By so much a firing may be later than one whose copy is taken after its own. */
#define DISORDER_NS (100 * NS_PER_MS)

/* Room of struct incident_capture for it. */
#define WHY_MAX 160

/* What the rings held at the firing, or up to SHARED_NS before it. */
struct stack_copy {
	struct stack_recorder_snapshot snapshot;
	struct stack_held *held;                     /* it is counted there; NULL: not */
	struct stack_copy *next;                     /* of held->all */
	uint64_t owner;                              /* whose share it takes */
	size_t room;                                 /* that there was for it */
	size_t bytes;                                /* of its records, as counted */
	bool packed;                                 /* see pack_records */
	struct buffer gzip[STACK_FILE_STREAM_KINDS]; /* of each stream's records; empty: they are as they are */
	unsigned holders, readers;                   /* captures; those that need its records still */
	char *cgroup;                                /* whose processes are marked in it; NULL: no one's */
};

struct early {
	struct symbolizer symbolizer;
	int rest;                           /* our end */
	mono_t until;                       /* the last moment to give it the rest */
	bool has[STACK_BUNDLE_ENTRIES_MAX]; /* of the bundle */
};

struct stack_capture {
	struct stack_capture_options options;
	struct stack_copy *copy;
	const struct stack_recorder_snapshot *first; /* of the copy */
	struct stack_recorder_snapshot second;
	struct buffer sideband; /* of both */
	struct stack_bundle bundle;
	struct early *early;        /* options.held's; NULL: none */
	bool counted;               /* in options.held, and among the copy's readers */
	struct stack_capture *next; /* of options.held->with_files */
	size_t unreadable;          /* files, or their symbols, by the symboliser */
};

static int by_pid(const void *left, const void *right)
{
	const uint32_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

static int by_member(const void *left, const void *right)
{
	const struct target_member *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* ---- looking ---- */

static void drop_records(struct stack_recorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->stream_count; i++)
		buffer_release(&snapshot->streams[i].records);
}

static void count_bytes(struct stack_copy *copy, size_t bytes)
{
	if (copy->held)
		copy->held->bytes += bytes - copy->bytes;
	copy->bytes = bytes;
}

/*
 * Compressed pieces, each with its length before it: what is written is never in memory as a whole again.
 * Empty if there is no memory.
 */
static void pack_stream(const struct buffer *records, struct buffer *gzip)
{
	const struct sink sink = sink_buffer(gzip);

	for (size_t at = 0; at < records->len; at += PACKED_PIECE) {
		size_t left = records->len - at, begin = gzip->len;
		uint32_t len = 0;
		int r = buffer_append(gzip, &len, sizeof len);

		if (r == 0)
			r = deflate_gzip(records->data + at, left < PACKED_PIECE ? left : PACKED_PIECE, &sink);
		if (r < 0) {
			buffer_release(gzip);
			return;
		}
		len = (uint32_t)(gzip->len - begin - sizeof len);
		memcpy(gzip->data + begin, &len, sizeof len);
	}
	(void)buffer_fit(gzip, gzip->len);
}

/*
 * Records wait for as long as the window is open, and in a storm for their turn. Compressed they take a
 * fifth or less: copies of stacks are zeros and addresses that are alike. What cannot be stays as it is.
 */
static void pack_records(struct stack_copy *copy)
{
	size_t bytes = 0;

	for (size_t i = 0; i < copy->snapshot.stream_count; i++) {
		struct buffer *records = &copy->snapshot.streams[i].records, *gzip = &copy->gzip[i];

		if (gzip->len == 0 && records->len >= PACKED_BYTES_MIN)
			pack_stream(records, gzip);
		if (gzip->len > 0)
			buffer_release(records);
		bytes += gzip->len > 0 ? gzip->len : records->len;
	}
	copy->packed = true;
	count_bytes(copy, bytes);
}

/* What a compressed stream was. For stack_file.h, too: packed is its buffer. 0; -ENOMEM; what sink returns. */
static int write_packed(const void *packed, const struct sink *sink)
{
	const struct buffer *gzip = packed;
	AUTO(buffer_release) struct buffer piece = { 0 };
	uint32_t len;
	int r = 0;

	for (size_t at = 0; r == 0 && at < gzip->len; at += len) {
		memcpy(&len, gzip->data + at, sizeof len);
		at += sizeof len;
		piece.len = 0;
		r = deflate_gunzip(gzip->data + at, len, PACKED_PIECE, &piece);
		if (r == 0)
			r = sink_write(sink, piece.data, piece.len);
	}
	return r;
}

/* Its records are not needed for this capture any more. They can be megabytes. */
static void release_records(struct stack_capture *capture)
{
	struct stack_copy *copy = capture->copy;
	struct stack_held *held = copy ? copy->held : NULL;

	if (!capture->counted)
		return;

	capture->counted = false;
	if (held)
		held->captures--;
	if (--copy->readers > 0) {
		if (copy->packed)
			pack_records(copy);
		return;
	}
	drop_records(&copy->snapshot);
	for (size_t i = 0; i < STACK_FILE_STREAM_KINDS; i++)
		buffer_release(&copy->gzip[i]);
	if (!held)
		return;
	held->bytes -= copy->bytes;
	held->copies--;
	for (struct stack_copy **at = &held->all; *at; at = &(*at)->next)
		if (*at == copy) {
			*at = copy->next;
			break;
		}
}

static void add_reader(struct stack_capture *capture, struct stack_copy *copy)
{
	copy->holders++;
	copy->readers++;
	if (copy->held)
		copy->held->captures++;
	capture->copy = copy;
	capture->first = &copy->snapshot;
	capture->counted = true;
}

/* What there is of it is lost. Its end is not waited for: it has nothing to write to. NULL is fine. */
static void end_early(struct stack_capture *capture)
{
	struct early *early = capture ? TAKE(capture->early) : NULL;

	if (!early)
		return;
	capture->options.held->early = NULL;
	if (early->symbolizer.listening >= 0) {
		close(early->symbolizer.listening);
		child_close(&early->symbolizer.child);
	}
	close(early->rest);
	free(early);
}

static void copy_unref(struct stack_copy *copy)
{
	if (!copy || --copy->holders > 0)
		return;

	stack_recorder_snapshot_release(&copy->snapshot);
	free(copy->cgroup);
	free(copy);
}

/* Of the copies of files of all captures. An owner's have half of what others have not taken. */
#define COPIED_MAX (64u << 20)

static void limit_copies(struct stack_capture *capture)
{
	const struct stack_held *held = capture->options.held;
	size_t own = 0, others = 0;

	for (const struct stack_capture *other = held ? held->with_files : NULL; other; other = other->next)
		if (other->options.owner != capture->options.owner)
			others += other->bundle.copied;
		else if (other != capture)
			own += other->bundle.copied;

	size_t most = (COPIED_MAX - others) / 2;

	capture->bundle.copied_max = most > own ? most - own : 0;
}

static void add_files(struct stack_capture *capture, const struct stack_recorder_snapshot *snapshot, size_t files_max)
{
	limit_copies(capture);
	stack_bundle_add(&capture->bundle, capture->options.procfd, snapshot, files_max);
}

/* In options.held, with its files, until it is freed. */
static void list_files(struct stack_capture *capture)
{
	struct stack_held *held = capture->options.held;

	if (held) {
		capture->next = held->with_files;
		held->with_files = capture;
	}
}

static void unlist_files(struct stack_capture *capture)
{
	struct stack_capture **at = capture->options.held ? &capture->options.held->with_files : NULL;

	while (at && *at && *at != capture)
		at = &(*at)->next;
	if (at && *at)
		*at = capture->next;
}

void stack_capture_free(struct stack_capture *capture)
{
	if (!capture)
		return;

	end_early(capture);
	release_records(capture);
	copy_unref(capture->copy);
	stack_recorder_snapshot_release(&capture->second);
	buffer_release(&capture->sideband);
	unlist_files(capture);
	stack_bundle_close(&capture->bundle);
	free(capture);
}

/*
 * Of one owner never more than 1.65 times what the rings hold, of all together twice that; many that
 * are small, much less. An owner with many copies leaves half of it to the first of another.
 */
static size_t room_beside(const struct stack_capture_options *options)
{
	static const struct stack_held none = { 0 };
	const struct stack_held *held = options->held ? options->held : &none;
	struct stack_recorder_status status;
	size_t own = 0;

	stack_recorder_status(options->recorder, &status);
	for (const struct stack_copy *copy = held->all; copy; copy = copy->next)
		own += copy->owner == options->owner;

	size_t most = status.memory_bytes + (held->copies ? SIDEBAND_BESIDE : SIDEBAND_MAX);
	size_t share = most / (held->copies > own ? 2 : 1) / ((own + 1) * (own + 1));
	size_t left = held->bytes < 2 * most ? (2 * most - held->bytes) / 2 : 1;

	return share < left ? share + 1 : left;
}

static int take_snapshot(const struct stack_capture_options *options, uint64_t from_ns, uint64_t to_ns, size_t room,
			 struct stack_recorder_snapshot *ret)
{
	int r = stack_recorder_snapshot(options->recorder, from_ns, to_ns, room, ret);

	if (r == 0 && options->cgroup)
		r = stack_recorder_find_inside(options->recorder, options->cgroup, ret);
	if (r < 0)
		stack_recorder_snapshot_release(ret);
	return r;
}

static const struct stack_recorder_stream *find_stream(const struct stack_recorder_snapshot *snapshot, uint32_t kind)
{
	for (size_t i = 0; i < snapshot->stream_count; i++)
		if (snapshot->streams[i].head.kind == kind)
			return &snapshot->streams[i];
	return NULL;
}

/* Side-band records of a snapshot, which are in the order of time. */
struct sideband_reader {
	const struct stack_recorder_stream *stream; /* NULL: none */
	size_t at;
	struct perf_record record; /* the next; size 0: the end, or one that cannot be read */
};

static void next_record(struct sideband_reader *reader)
{
	const struct stack_recorder_stream *stream = reader->stream;
	size_t left = 0;

	reader->at += reader->record.size;
	if (stream)
		left = stream->records.len - reader->at;
	reader->record.size = 0;
	if (left > 0) {
		struct perf_record_format format = { stream->head.sample_type, stream->head.regs_user };
		struct perf_record record;

		if (perf_record_decode(&format, stream->records.data + reader->at, left, &record) == 0)
			reader->record = record;
	}
}

static struct sideband_reader read_sideband(const struct stack_recorder_snapshot *snapshot)
{
	struct sideband_reader reader = { .stream = find_stream(snapshot, STACK_FILE_SIDEBAND) };

	next_record(&reader);
	return reader;
}

/* Both snapshots' records, into memory of exactly their size. 0 or -ENOMEM. */
static int merge_sideband_of(struct stack_capture *capture)
{
	struct sideband_reader first = read_sideband(capture->first), second = read_sideband(&capture->second);
	size_t bytes =
		(first.stream ? first.stream->records.len : 0) + (second.stream ? second.stream->records.len : 0);
	int r = buffer_fit(&capture->sideband, bytes);

	while (r == 0 && (first.record.size > 0 || second.record.size > 0)) {
		bool of_first = second.record.size == 0 ||
				(first.record.size > 0 && first.record.time_ns <= second.record.time_ns);
		struct sideband_reader *from = of_first ? &first : &second;

		r = buffer_append(&capture->sideband, from->stream->records.data + from->at, from->record.size);
		next_record(from);
	}
	return r;
}

/* The same, of a copy that may be compressed. */
static int merge_sideband(struct stack_capture *capture)
{
	size_t nth = 0;
	int r = 0;

	while (nth < capture->first->stream_count && capture->first->streams[nth].head.kind != STACK_FILE_SIDEBAND)
		nth++;
	if (nth == capture->first->stream_count || capture->copy->gzip[nth].len == 0)
		return merge_sideband_of(capture);

	struct buffer *records = &capture->copy->snapshot.streams[nth].records;
	const struct sink sink = sink_buffer(records);

	r = buffer_fit(records, capture->first->streams[nth].head.record_bytes);
	if (r == 0)
		r = write_packed(&capture->copy->gzip[nth], &sink);
	if (r == 0)
		r = merge_sideband_of(capture);
	buffer_release(records);
	return r;
}

/* ---- the stack file ---- */

/*
 * The records of both snapshots of one kind; the first may cover less than was asked for: rings
 * overwrite their oldest. False: there are none.
 */
static bool join_stream(const struct stack_capture *capture, uint32_t kind, struct stack_file_records *ret)
{
	const struct stack_recorder_stream *first = find_stream(capture->first, kind);
	const struct stack_recorder_stream *second = find_stream(&capture->second, kind);

	if (!first && !second)
		return false;

	*ret = (struct stack_file_records){ .stream = first ? first->head : second->head };
	if (kind == STACK_FILE_SIDEBAND) {
		ret->records = capture->sideband.data;
		ret->record_bytes = capture->sideband.len;
		return true;
	}
	if (first) {
		const struct buffer *gzip = &capture->copy->gzip[first - capture->first->streams];

		ret->records = gzip->len > 0 ? (const void *)gzip : first->records.data;
		ret->record_bytes = first->head.record_bytes;
		ret->unpack = gzip->len > 0 ? write_packed : NULL;
	}
	if (second) {
		ret->more = second->records.data;
		ret->more_bytes = second->records.len;
		ret->stream.units_per_second = second->head.units_per_second;
	}
	if (first && second)
		ret->stream.lost += second->head.lost;
	return true;
}

/* Of both snapshots, ascending. *ret is the caller's, the texts are the snapshots'. */
static size_t join_cgroups(const struct stack_capture *capture, struct stack_file_cgroup **ret)
{
	const struct stack_recorder_snapshot *a = capture->first, *b = &capture->second;
	struct stack_file_cgroup *joined = calloc(a->cgroup_count + b->cgroup_count + 1, sizeof *joined);
	size_t count = 0, i = 0, j = 0;

	while (joined && (i < a->cgroup_count || j < b->cgroup_count)) {
		bool of_a = j == b->cgroup_count || (i < a->cgroup_count && a->cgroups[i].pid <= b->cgroups[j].pid);
		const struct stack_file_cgroup *next = of_a ? &a->cgroups[i++] : &b->cgroups[j++];

		if (count == 0 || joined[count - 1].pid != next->pid)
			joined[count++] = *next;
	}
	*ret = joined;
	return count;
}

/* ---- members ---- */

static bool is_sampled(const struct stack_recorder_snapshot *snapshot, int32_t pid)
{
	const uint32_t key = (uint32_t)pid;

	return bsearch(&key, snapshot->pids, snapshot->pid_count, sizeof key, by_pid) != NULL;
}

static size_t add_processes_inside(const struct stack_recorder_snapshot *snapshot, struct target_member *members)
{
	size_t count = 0;

	for (size_t i = 0; snapshot->inside && i < snapshot->pid_count; i++)
		if (snapshot->inside[i])
			members[count++] =
				(struct target_member){ .pid = (int32_t)snapshot->pids[i], .to_ns = UINT64_MAX };
	return count;
}

/*
 * Those that have samples, and those inside the cgroup; sorted. *ret is the caller's. 0 or -ENOMEM.
 */
static int sampled_members(const struct stack_capture *capture, const struct stack_capture_members *known,
			   struct target_member **ret, size_t *ret_count)
{
	const struct stack_recorder_snapshot *a = capture->first, *b = &capture->second;
	struct target_member *members = calloc(known->count + a->pid_count + b->pid_count + 1, sizeof *members);
	size_t count = 0;

	if (!members)
		return -ENOMEM;

	for (size_t i = 0; i < known->count; i++)
		if (is_sampled(a, known->members[i].pid) || is_sampled(b, known->members[i].pid))
			members[count++] = known->members[i];
	count += add_processes_inside(a, members + count);
	count += add_processes_inside(b, members + count);
	qsort(members, count, sizeof *members, by_member);
	*ret = members;
	*ret_count = count;
	return 0;
}

/*
 * Those of the bundle, with the numbers that they have in the symboliser. The caller's; NULL: no
 * memory.
 */
static struct stack_file_entry *numbered_entries(const struct stack_bundle *bundle)
{
	struct stack_file_entry *entries = calloc(bundle->count + 1, sizeof *entries);

	for (size_t i = 0; entries && i < bundle->count; i++) {
		entries[i] = bundle->entries[i];
		if (entries[i].binary.fd >= 0)
			entries[i].binary.fd = FIRST_FILE + (int)i;
	}
	return entries;
}

static void add_kernel(struct stack_capture *capture)
{
	const int *copy = capture->options.kernel_symbols;

	stack_bundle_add_kernel(&capture->bundle, capture->options.procfd, copy ? *copy : -1);
}

static int write_stack_file(const struct stack_capture *capture, const struct stack_capture_members *known, int *ret_fd)
{
	AUTO_CLOSE int fd = memfd_create("stackfile", MFD_CLOEXEC);
	AUTO_FREE struct stack_file_entry *entries = numbered_entries(&capture->bundle);
	AUTO_FREE struct stack_file_cgroup *cgroups = NULL;
	AUTO_FREE struct target_member *members = NULL;
	struct stack_file_records streams[STACK_FILE_STREAM_KINDS];
	struct stack_recorder_status status;
	struct stack_file_content content = {
		.streams = streams,
		.entries = entries,
		.entry_count = capture->bundle.count,
		.cgroup_count = join_cgroups(capture, &cgroups),
	};
	struct sink sink = sink_fd(&fd);
	int r;

	if (fd < 0 || !entries)
		return fd < 0 ? -errno : -ENOMEM;
	r = sampled_members(capture, known, &members, &content.member_count);
	if (r < 0)
		return r;

	stack_recorder_status(capture->options.recorder, &status);
	content.cgroups = cgroups;
	content.members = members;
	content.head = (struct stack_file_head){
		.everyone = known->everyone,
		.page_bytes = (uint32_t)sysconf(_SC_PAGESIZE),
		.frequency = status.frequency,
		.fired_mono_ns = capture->options.fired.ns,
		.fired_wall_ns = capture->options.wall.ns,
		.from_ns = capture->first->from_ns,
		.to_ns = capture->second.to_ns > 0 ? capture->second.to_ns : capture->first->to_ns,
	};
	for (uint32_t kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		content.stream_count += join_stream(capture, kind, &streams[content.stream_count]);
	r = stack_file_write(&content, &sink);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/* ---- while the window is open ---- */

static bool can_start_early(const struct stack_capture *capture)
{
	const struct stack_held *held = capture->options.held;
	struct clock clock = real_clock();

	return held && held->captures == 1 && !held->early &&
	       mono_diff(capture->options.until, clock_mono(&clock)) > (int64_t)EARLY_LEAST_NS;
}

/* On what there is so far. 0 or -errno. */
static int start_early_on(struct stack_capture *capture, int dirfd, int stack_file, struct early *early)
{
	struct clock clock = real_clock();
	uint64_t open_ns = (uint64_t)mono_diff(capture->options.until, clock_mono(&clock));
	struct symbolizer_job job = {
		.program = capture->options.symbolizer,
		.dirfd = dirfd,
		.stack_file = stack_file,
		.bundle = &capture->bundle,
		.outputs = { -1, -1, -1, -1, -1, -1 },
		.patience_ns = open_ns + EARLY_WAIT_NS + SYMBOLIZER_PATIENCE_NS,
		.spike_from_ns = capture->options.spike_from_ns,
	};
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;

	early->rest = pair[0];
	early->until = mono_add(capture->options.until, EARLY_WAIT_NS);
	job.rest = pair[1];
	for (size_t i = 0; i < capture->bundle.count; i++)
		early->has[i] = capture->bundle.entries[i].binary.fd >= 0;
	r = symbolizer_start(&job, &early->symbolizer);
	close(pair[1]);
	if (r < 0)
		close(early->rest);
	return r;
}

/* Without memory or a process there is none, and nothing else is missing. */
static void start_early(struct stack_capture *capture, int dirfd)
{
	static const struct stack_capture_members none = { 0 };
	AUTO_FREE struct early *early = calloc(1, sizeof *early);
	AUTO_CLOSE int stack_file = -1;
	int r = early ? merge_sideband(capture) : -ENOMEM;

	if (r == 0) {
		add_kernel(capture);
		r = write_stack_file(capture, &none, &stack_file);
	}
	buffer_release(&capture->sideband);
	if (r == 0)
		r = start_early_on(capture, dirfd, stack_file, early);
	if (r < 0)
		return;

	capture->early = TAKE(early);
	capture->options.held->early = capture;
}

/* 0 or -errno. */
static int send_descriptors(int to, const int *fds, const int *numbers, size_t count)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(STACK_FILE_DESCRIPTORS_AT_ONCE * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec bytes = { .iov_base = (void *)(uintptr_t)numbers, .iov_len = count * sizeof *numbers };
	struct msghdr message = { .msg_iov = &bytes,
				  .msg_iovlen = 1,
				  .msg_control = control.room,
				  .msg_controllen = CMSG_SPACE(count * sizeof(int)) };

	control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)),
					 .cmsg_level = SOL_SOCKET,
					 .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
	return sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* What the early one does not have yet; the stack file last, which says that this is all. 0 or -errno. */
static int send_rest(const struct early *early, const struct symbolizer_job *job)
{
	int fds[SYMBOLIZER_OUTPUTS + STACK_BUNDLE_ENTRIES_MAX + 1], numbers[ARRAY_LEN(fds)], r = 0;
	size_t count = 0;

	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++) {
		fds[count] = job->outputs[i];
		numbers[count++] = FIRST_OUTPUT + i;
	}
	for (size_t i = 0; i < job->bundle->count; i++) {
		if (early->has[i] || job->bundle->entries[i].binary.fd < 0)
			continue;
		fds[count] = job->bundle->entries[i].binary.fd;
		numbers[count++] = FIRST_FILE + (int)i;
	}
	fds[count] = job->stack_file;
	numbers[count++] = STDIN_FILENO;
	for (size_t i = 0, some; r == 0 && i < count; i += some) {
		some = count - i < STACK_FILE_DESCRIPTORS_AT_ONCE ? count - i : STACK_FILE_DESCRIPTORS_AT_ONCE;
		r = send_descriptors(early->rest, &fds[i], &numbers[i], some);
	}
	return r;
}

/* As symbolizer_run. -EAGAIN: another one has to be started. */
static int run_early(struct stack_capture *capture, const struct symbolizer_job *job, char why[WHY_MAX])
{
	struct early *early = capture->early;
	struct clock clock = real_clock();
	int r = -EAGAIN;

	if (mono_diff(early->until, clock_mono(&clock)) > 0 && send_rest(early, job) == 0)
		r = symbolizer_run(job, &early->symbolizer, why, WHY_MAX);
	/* It may have the outputs, which are others' now. */
	if (early->symbolizer.listening >= 0)
		symbolizer_end(&early->symbolizer, false);
	end_early(capture);
	return r;
}

static void list_kernel_symbols(const struct stack_capture *capture)
{
	int *shared = capture->options.kernel_symbols;
	AUTO_CLOSE int from =
		shared && *shared < 0 ? openat(capture->options.procfd, "kallsyms", O_RDONLY | O_CLOEXEC) : -1;
	AUTO_CLOSE int copy = from >= 0 ? memfd_create("kallsyms", MFD_CLOEXEC) : -1;
	char piece[16384];
	ssize_t len = -1;

	while (copy >= 0 && (len = read(from, piece, sizeof piece)) > 0)
		if (sink_write_all(copy, piece, (size_t)len) < 0)
			return;
	if (len == 0)
		*shared = TAKE_FD(copy);
}

void stack_capture_prepare(struct stack_capture *capture, int dirfd)
{
	list_kernel_symbols(capture);
	if (dirfd >= 0 && can_start_early(capture))
		start_early(capture, dirfd);
	if (!capture->copy->packed)
		pack_records(capture->copy);
}

/* ---- the incident ---- */

static void add_record(struct incident *info, int output, enum incident_capture_status status, uint64_t bytes,
		       const char *why)
{
	struct incident_capture record = { .status = status, .bytes = bytes };

	incident_text(record.name, sizeof record.name, symbolizer_outputs[output].name);
	incident_text(record.why, sizeof record.why, why);
	if (status == INCIDENT_CAPTURE_OK)
		incident_text(record.file, sizeof record.file, symbolizer_outputs[output].file);
	incident_add_capture(info, &record);
}

/* Under this name a file is not whole yet: no name of a file of an incident begins with a dot. */
static const char *part_name(int output, char ret[64])
{
	snprintf(ret, 64, ".%s.part", symbolizer_outputs[output].file);
	return ret;
}

static void report_failure(int dirfd, struct incident *info, const char *why)
{
	char part[64];

	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		unlinkat(dirfd, part_name(i, part), 0);
	add_record(info, 0, INCIDENT_CAPTURE_FAILED, 0, why);
}

/* The files that the symboliser writes, and what is done with them where one may wait for the disk. */
struct symbolizer_files {
	int fds[SYMBOLIZER_OUTPUTS];
	int dirfd;
	const struct symbolizer_waiting *waiting;
	int error; /* of opening them */
	/* For the report. */
	const struct stack_capture *capture;
	struct incident *info;
	const char *why; /* there are no names, or no stacks */
	bool failed;
};

static void run_on_disk(struct symbolizer_files *files, void (*step)(void *argument))
{
	if (files->waiting && files->waiting->on_disk)
		files->waiting->on_disk(files->waiting->ctx, step, files);
	else
		step(files);
}

static void open_outputs(void *argument)
{
	struct symbolizer_files *files = argument;
	char part[64];

	for (int i = 0; i < SYMBOLIZER_OUTPUTS && files->error == 0; i++) {
		files->fds[i] = openat(files->dirfd, part_name(i, part), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
		if (files->fds[i] < 0)
			files->error = -errno;
	}
}

static void empty_outputs(void *argument)
{
	struct symbolizer_files *files = argument;

	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		if (ftruncate(files->fds[i], 0) == 0)
			lseek(files->fds[i], 0, SEEK_SET);
}

/* Adds "; text" to what is said already. */
__attribute__((format(printf, 3, 4))) static void add_text(char *why, size_t cap, const char *format, ...)
{
	size_t len = strlen(why);
	va_list args;

	if (len && len + 2 < cap)
		len += (size_t)snprintf(why + len, cap - len, "; ");
	va_start(args, format);
	vsnprintf(why + len, cap - len, format, args);
	va_end(args);
}

/* The system-wide samples of a quantity, or where there are none those of followed threads. */
static const struct stack_recorder_stream *widest_stream(const struct stack_recorder_snapshot *snapshot, bool memory)
{
	const struct stack_recorder_stream *all = find_stream(snapshot, memory ? STACK_FILE_FAULTS : STACK_FILE_CPU);

	return all ? all : find_stream(snapshot, memory ? STACK_FILE_FAULTS_FOLLOWED : STACK_FILE_CPU_FOLLOWED);
}

/*
 * "16.1 % of the page faults were counted, from -2.3 s on, and stand for all of them", by both
 * snapshots; or "". Times are since fired_ns.
 */
static void stack_capture_faults_text(const struct overload_sampling_summary *first,
				      const struct overload_sampling_summary *second, uint64_t fired_ns, char *ret,
				      size_t cap)
{
	uint64_t counted = first->counted + second->counted, all = first->all + second->all;
	uint64_t since_ns = first->since_ns != 0 ? first->since_ns : second->since_ns;

	*ret = '\0';
	if (all > counted)
		snprintf(ret, cap,
			 "%.1f %% of the page faults were counted, from %+.1f s on, and stand for all of them",
			 100 * (double)counted / (double)all, ((double)since_ns - (double)fired_ns) / 1e9);
}

static void describe_faults(const struct stack_capture *capture, const struct stack_recorder_status *status, char *why,
			    size_t cap)
{
	char text[WHY_MAX];

	stack_capture_faults_text(&capture->first->faults, &capture->second.faults, capture->options.fired.ns, text,
				  sizeof(text));
	if (*text)
		add_text(why, cap, "%s", text);
	if (*status->large_pages)
		add_text(why, cap, "a huge page counts as a small one: %s", status->large_pages);
	else if (status->large_pages_off_ns > capture->first->from_ns)
		add_text(why, cap,
			 "huge pages count as small ones from the first two seconds of too many page faults on");
	if (status->faults_error != 0)
		add_text(why, cap, "page faults are not sampled any more: perf_event_open: %s",
			 strerrordesc_np(-status->faults_error));
}

/* A second snapshot that is late: a ring may have come round since the first. */
static void describe_late_snapshot(const struct stack_capture *capture, bool memory, char *why, size_t cap)
{
	const struct stack_recorder_stream *stream = widest_stream(&capture->second, memory);
	uint64_t from_ns = capture->first->to_ns, to_ns = capture->second.to_ns;
	uint64_t covered_ns = stream ? stream->head.covered_ns : 0;

	if (covered_ns > to_ns)
		covered_ns = to_ns;
	if (covered_ns > from_ns + NS_PER_S / 10)
		add_text(why, cap, "of the %.1f s since the firing the first %.1f s are not complete",
			 (double)(to_ns - from_ns) / 1e9, (double)(covered_ns - from_ns) / 1e9);
}

/* Adds to why what is missing in the profile of a quantity. */
static void describe_gaps(const struct stack_capture *capture, bool memory, char *why, size_t cap)
{
	const struct stack_recorder_stream *stream = widest_stream(capture->first, memory);
	uint64_t from_ns = mono_sub(capture->options.fired, capture->options.before_ns).ns;
	uint64_t late_ns = stream && stream->head.covered_ns > from_ns ? stream->head.covered_ns - from_ns : 0;
	uint64_t lost = 0, left_out = 0;
	struct stack_recorder_status status;

	stack_recorder_status(capture->options.recorder, &status);
	if (memory)
		describe_faults(capture, &status, why, cap);
	if (late_ns > capture->options.before_ns)
		late_ns = capture->options.before_ns;
	/* The time before the recorder was opened is not missing. */
	if (late_ns > NS_PER_S && stream->head.covered_ns > status.opened_ns)
		add_text(why, cap, "stacks go back %.1f s and not %.1f s",
			 (double)(capture->options.before_ns - late_ns) / 1e9,
			 (double)capture->options.before_ns / 1e9);
	describe_late_snapshot(capture, memory, why, cap);
	for (uint32_t kind = memory ? STACK_FILE_FAULTS : STACK_FILE_CPU, i = 0; i < 2; i++, kind++) {
		const struct stack_recorder_stream *snapshots[] = { find_stream(capture->first, kind),
								    find_stream(&capture->second, kind) };

		for (size_t no = 0; no < ARRAY_LEN(snapshots); no++) {
			lost += snapshots[no] ? snapshots[no]->head.lost : 0;
			left_out += snapshots[no] ? snapshots[no]->left_out : 0;
		}
	}
	if (lost)
		add_text(why, cap, "%ju %s lost", (uintmax_t)lost, lost == 1 ? "sample was" : "samples were");
	if (left_out)
		add_text(why, cap, "%ju bytes of samples found no room", (uintmax_t)left_out);
}

/* All that is missing in the profile of a quantity, or restricts it. */
static void describe_restrictions(const struct stack_capture *capture, bool memory, char why[WHY_MAX])
{
	struct stack_recorder_status status;

	stack_recorder_status(capture->options.recorder, &status);
	if (capture->bundle.unanswered)
		add_text(why, WHY_MAX, "no names from %zu files: they do not answer", capture->bundle.unanswered);
	if (capture->bundle.too_large)
		add_text(why, WHY_MAX, "no names from %zu files: %s", capture->bundle.too_large, foreign_error(-EFBIG));
	if (capture->unreadable)
		add_text(why, WHY_MAX, "no names from %zu files: their symbols cannot be read", capture->unreadable);
	describe_gaps(capture, memory, why, WHY_MAX);
	if (!status.system_wide)
		add_text(why, WHY_MAX, "stacks are of watched processes of this user only");
	if (*status.limits)
		add_text(why, WHY_MAX, "%s", status.limits);
	if (status.dwarf && status.not_followed)
		add_text(why, WHY_MAX, "of %u watched processes there are no whole stacks", status.not_followed);
}

/* Empty outputs are removed, the others get their names. */
static void report_outputs(const struct stack_capture *capture, const int outputs[SYMBOLIZER_OUTPUTS], int dirfd,
			   const char *nameless, struct incident *info)
{
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++) {
		bool memory = i >= SYMBOLIZER_OUTPUTS / 2, first = i % (SYMBOLIZER_OUTPUTS / 2) == 0;
		char why[WHY_MAX] = "", part[64];
		struct stat st;
		bool empty = fstat(outputs[i], &st) < 0 || st.st_size == 0;

		if (first && empty)
			add_text(why, sizeof why, "there are no samples");
		else if (first && *nameless)
			add_text(why, sizeof why, "no names: %s", nameless);
		if (first)
			describe_restrictions(capture, memory, why);
		if (empty || renameat(dirfd, part_name(i, part), dirfd, symbolizer_outputs[i].file) < 0)
			unlinkat(dirfd, part_name(i, part), 0);
		else
			add_record(info, i, INCIDENT_CAPTURE_OK, (uint64_t)st.st_size, why);
		/* Without page faults nothing is missing. */
		if (empty && first && !memory)
			add_record(info, i, INCIDENT_CAPTURE_SKIPPED, 0, why);
	}
}

/* Their names, or why there are none; they are closed. */
static void end_outputs(void *argument)
{
	struct symbolizer_files *files = argument;

	if (files->failed)
		report_failure(files->dirfd, files->info, files->why);
	else
		report_outputs(files->capture, files->fds, files->dirfd, files->why, files->info);
	for (int i = 0; i < SYMBOLIZER_OUTPUTS; i++)
		if (files->fds[i] >= 0)
			close(files->fds[i]);
}

/* The early one, or one for all at once. As symbolizer_run. */
static int run_symbolizers(struct stack_capture *capture, const struct symbolizer_job *job, char why[WHY_MAX])
{
	struct stack_held *held = capture->options.held;
	int r = capture->early ? run_early(capture, job, why) : -EAGAIN;

	if (r != -EAGAIN)
		return r;
	if (held)
		end_early(held->early);
	return symbolizer_run(job, NULL, why, WHY_MAX);
}

/* 0; 1: it succeeded only without reading any file, and why says why; 2: not even so; -errno. */
static int run_symbolizer(struct stack_capture *capture, const struct stack_capture_members *members,
			  struct symbolizer_files *files, char why[WHY_MAX])
{
	AUTO_CLOSE int stack_file = -1;
	struct symbolizer_job job = {
		.program = capture->options.symbolizer,
		.dirfd = files->dirfd,
		.bundle = &capture->bundle,
		.patience_ns = SYMBOLIZER_PATIENCE_NS,
		.spike_from_ns = capture->options.spike_from_ns,
		.unreadable = &capture->unreadable,
		.waiting = files->waiting,
	};
	char again[WHY_MAX];
	size_t unanswered;
	int r;

	memcpy(job.outputs, files->fds, sizeof job.outputs);
	/* Once more: there may be no sample since the firing. A file of both that does not answer is one. */
	add_files(capture, capture->first, STACK_BUNDLE_FILES_MAX);
	unanswered = capture->bundle.unanswered;
	add_files(capture, &capture->second, STACK_BUNDLE_FILES_MAX);
	if (capture->bundle.unanswered < unanswered)
		capture->bundle.unanswered = unanswered;
	add_kernel(capture);
	r = write_stack_file(capture, members, &stack_file);
	job.stack_file = stack_file;
	/* They are in the stack file now. */
	release_records(capture);
	drop_records(&capture->second);
	buffer_release(&capture->sideband);
	if (r == 0)
		r = run_symbolizers(capture, &job, why);
	if (r > 0) {
		run_on_disk(files, empty_outputs);
		job.raw = true;
		r = symbolizer_run(&job, NULL, again, sizeof again);
		r = r < 0 ? r : 1 + r;
	}

	return r;
}

static bool same_cgroup(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* Up to where a copy is of use: commands, a second snapshot or a queue may delay it until long after the window. */
static uint64_t end_of_window(const struct stack_capture_options *options)
{
	return options->until.ns > 0 ? options->until.ns : UINT64_MAX;
}

/*
 * What is asked of a copy, now. Jobs of firings that came together are not in the order of these, so one that
 * may be shared begins a little before what it was asked for, and leaves the end of the window for later.
 */
struct stack_span {
	uint64_t from_ns, to_ns;
};

static struct stack_span span_of(const struct stack_capture_options *options)
{
	struct clock clock = real_clock();
	uint64_t now_ns = clock_mono(&clock).ns, end_ns = end_of_window(options),
		 margin = options->held ? DISORDER_NS : 0;

	end_ns -= end_ns > margin ? margin : end_ns;
	return (struct stack_span){ mono_sub(options->fired, options->before_ns).ns,
				    now_ns < end_ns ? now_ns : end_ns };
}

/* Whether it has all of that but what came within SHARED_NS, and nothing of what comes after the window. */
static bool covers(const struct stack_copy *copy, const struct stack_span *span, uint64_t end_ns)
{
	const struct stack_recorder_snapshot *has = &copy->snapshot;

	return has->from_ns <= span->from_ns && has->to_ns <= end_ns && has->to_ns + SHARED_NS > span->to_ns;
}

/*
 * The latest copy that serves, and had no less room than there would be: one of another owner may be what
 * that one's many copies left it. A window that is over when its turn comes is still asked for up to its
 * end alone, so late firings share as well.
 */
static struct stack_copy *shared_copy(const struct stack_capture_options *options, const struct stack_span *span)
{
	struct stack_copy *copy = options->held ? options->held->all : NULL;

	while (copy && !(covers(copy, span, end_of_window(options)) && same_cgroup(copy->cgroup, options->cgroup) &&
			 (copy->owner == options->owner || copy->room >= room_beside(options))))
		copy = copy->next;
	return copy;
}

/* A new one; those before it are compressed first. 0; -ENOMEM; -errno. */
static int copy_rings(const struct stack_capture_options *options, const struct stack_span *span,
		      struct stack_copy **ret)
{
	struct stack_held *held = options->held;
	struct stack_copy *copy = calloc(1, sizeof *copy);
	size_t room = room_beside(options);
	uint64_t from_ns = span->from_ns;
	int r = copy ? 0 : -ENOMEM;

	if (r == 0 && options->cgroup && !(copy->cgroup = strdup(options->cgroup)))
		r = -ENOMEM;
	for (struct stack_copy *other = held ? held->all : NULL; other; other = other->next)
		if (!other->packed)
			pack_records(other);
	if (held)
		from_ns -= from_ns > DISORDER_NS ? DISORDER_NS : from_ns;
	if (r == 0)
		r = take_snapshot(options, from_ns, span->to_ns, room, &copy->snapshot);
	if (r < 0) {
		free(copy ? copy->cgroup : NULL);
		free(copy);
		return r;
	}

	copy->held = held;
	copy->owner = options->owner;
	copy->room = room;
	if (held) {
		held->copies++;
		copy->next = held->all;
		held->all = copy;
	}
	for (size_t i = 0; i < copy->snapshot.stream_count; i++)
		count_bytes(copy, copy->bytes + copy->snapshot.streams[i].records.cap);
	*ret = copy;

	return 0;
}

struct stack_capture *stack_capture_secure(const struct stack_capture_options *options, struct incident *info)
{
	struct stack_capture *capture = calloc(1, sizeof *capture);
	struct stack_span span = span_of(options);
	struct stack_copy *copy = shared_copy(options, &span);
	int r = capture ? 0 : -ENOMEM;

	if (r == 0 && !copy)
		r = copy_rings(options, &span, &copy);
	if (r == 0) {
		capture->options = *options;
		add_reader(capture, copy);
		list_files(capture);
		add_files(capture, capture->first, FILES_AT_ONCE);
		return capture;
	}

	add_record(info, 0, INCIDENT_CAPTURE_FAILED, 0, strerrordesc_np(-r));
	free(capture);
	return NULL;
}

void stack_capture_write(struct stack_capture *capture, const struct stack_capture_members *members, int dirfd,
			 const struct symbolizer_waiting *waiting, struct incident *info)
{
	char why[WHY_MAX] = "";
	struct symbolizer_files files = { .fds = { -1, -1, -1, -1, -1, -1 },
					  .dirfd = dirfd,
					  .waiting = waiting,
					  .capture = capture,
					  .info = info,
					  .why = why };
	struct stack_capture_options alone = capture->options;
	int r;

	alone.held = NULL;
	r = take_snapshot(&alone, capture->first->to_ns, end_of_window(&alone), room_beside(&alone), &capture->second);
	if (r == 0) {
		run_on_disk(&files, open_outputs);
		r = files.error;
	}
	if (r == 0)
		r = merge_sideband(capture);
	if (r == 0)
		r = run_symbolizer(capture, members, &files, why);
	if (r < 0)
		snprintf(why, sizeof why, "%s", strerrordesc_np(-r));
	files.failed = r < 0 || r > 1;
	run_on_disk(&files, end_outputs);
	stack_capture_free(capture);
}
