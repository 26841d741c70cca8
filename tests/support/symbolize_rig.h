/*
 * symbolize_rig.h: programs that are compiled by the test, run, and looked at from outside: their
 * real mappings, samples of addresses that they tell, and what spikewatch-symbolize makes of both.
 */
#ifndef SPIKEWATCH_TESTS_SYMBOLIZE_RIG_H
#define SPIKEWATCH_TESTS_SYMBOLIZE_RIG_H

#include "program.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/profile/stack_file.h"
#include "lib/proc/perf.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define RIG_ENTRIES_MAX 32
#define RIG_FIRED_NS 10000000000u

struct rig {
	char dir[64];
	char program[512]; /* spikewatch-symbolize */
	struct buffer records[STACK_FILE_STREAM_KINDS];
	struct stack_file_stream heads[STACK_FILE_STREAM_KINDS]; /* record_bytes is filled in */
	enum stack_file_stream_kind kind;                        /* where samples go now */
	struct stack_file_cgroup cgroups[8];
	size_t cgroup_count;
	struct stack_file_entry entries[RIG_ENTRIES_MAX];
	char paths[RIG_ENTRIES_MAX][256];
	size_t entry_count;
	uint64_t time_ns;
	const char *more;                           /* one more option, or NULL */
	char *folded, *functions, *counts, *memory; /* what came out last; memory: folded */
};

/* A process of a program that was compiled. */
struct rig_process {
	pid_t pid;
	FILE *out;
};

static inline void rig_streams(struct rig *rig)
{
	for (uint32_t kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		bool faults = kind == STACK_FILE_FAULTS || kind == STACK_FILE_FAULTS_FOLLOWED;

		rig->heads[kind] = (struct stack_file_stream){
			.kind = kind,
			.sample_type = PERF_RECORD_FRAME_POINTERS,
			.units_per_second = faults ? 0 : 1000000000,
			.covered_ns = RIG_FIRED_NS / 2,
		};
	}
	rig->kind = STACK_FILE_CPU;
}

/* False: spikewatch-symbolize is not there. */
static inline bool rig_init(struct rig *rig)
{
	*rig = (struct rig){ .dir = "/tmp/spikewatch-symbolize-XXXXXX", .time_ns = RIG_FIRED_NS / 2 };
	rig_streams(rig);

	return program_find("spikewatch-symbolize", rig->program) && mkdtemp(rig->dir) != NULL;
}

static inline void rig_forget(struct rig *rig)
{
	free(rig->folded);
	free(rig->functions);
	free(rig->counts);
	free(rig->memory);
	rig->folded = rig->functions = rig->counts = rig->memory = NULL;
}

/* Back to nothing but the directory. */
static inline void rig_clear(struct rig *rig)
{
	for (size_t i = 0; i < rig->entry_count; i++)
		if (rig->entries[i].binary.fd >= 0)
			close(rig->entries[i].binary.fd);
	rig->entry_count = 0;
	rig->cgroup_count = 0;
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		buffer_release(&rig->records[kind]);
	rig_streams(rig);
	rig_forget(rig);
}

static inline int rig_shell(struct rig *rig, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs a command in the directory; its exit code. */
static inline int rig_shell(struct rig *rig, const char *format, ...)
{
	char command[2048];
	int used = snprintf(command, sizeof(command), "cd '%s' && ", rig->dir);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(command + used, sizeof(command) - (size_t)used, format, arguments);
	va_end(arguments);

	return system(command);
}

static inline void rig_release(struct rig *rig)
{
	rig_clear(rig);
	rig_shell(rig, "rm -rf '%s'", rig->dir);
}

/* Writes a file into the directory. */
static inline void rig_write(struct rig *rig, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", rig->dir, name);
	FILE *file = fopen(path, "we");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

/* Starts a program of the directory, which says names and addresses and then waits. */
static inline struct rig_process rig_start(struct rig *rig, const char *name)
{
	struct rig_process process;
	char path[256];
	int pipes[2];

	snprintf(path, sizeof(path), "%s/%s", rig->dir, name);
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	process.pid = fork();
	ck_assert_int_ge(process.pid, 0);
	if (process.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], STDOUT_FILENO);
		execl(path, path, NULL);
		_exit(126);
	}
	close(pipes[1]);
	process.out = fdopen(pipes[0], "r");

	return process;
}

static inline void rig_end(struct rig_process *process)
{
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	fclose(process->out);
}

/* The address that the process says next. */
static inline uint64_t rig_address(struct rig_process *process)
{
	char line[128];

	ck_assert_ptr_nonnull(fgets(line, sizeof(line), process->out));

	return strtoull(line, NULL, 16);
}

static inline void rig_record(struct rig *rig, struct perf_record *record)
{
	static _Alignas(8) char bytes[PERF_RECORD_SIZE_MAX];
	bool sample = record->type == PERF_RECORD_SAMPLE || record->type == PERF_RECORD_LOST;
	enum stack_file_stream_kind kind = sample ? rig->kind : STACK_FILE_SIDEBAND;
	struct perf_record_format format = { rig->heads[kind].sample_type, rig->heads[kind].regs_user };
	size_t size;

	record->time_ns = rig->time_ns++;
	ck_assert_int_eq(perf_record_encode(&format, record, bytes, sizeof(bytes), &size), 0);
	ck_assert_int_eq(buffer_append(&rig->records[kind], bytes, size), 0);
}

static inline struct stack_file_binary *rig_entry(struct rig *rig, enum stack_file_kind kind, int fd, const char *path)
{
	struct stack_file_entry *entry = &rig->entries[rig->entry_count];

	ck_assert_uint_lt(rig->entry_count, RIG_ENTRIES_MAX);
	snprintf(rig->paths[rig->entry_count], sizeof(rig->paths[0]), "%s", path);
	*entry =
		(struct stack_file_entry){ .binary = { .fd = fd, .kind = kind }, .path = rig->paths[rig->entry_count] };
	rig->entry_count++;

	return &entry->binary;
}

/* A text as a binary. */
static inline struct stack_file_binary *rig_text(struct rig *rig, enum stack_file_kind kind, const char *text)
{
	int fd = memfd_create("text", 0);

	ck_assert_int_eq(sink_write_all(fd, text, strlen(text)), 0);

	return rig_entry(rig, kind, fd, "text");
}

static inline void rig_name(struct rig *rig, pid_t pid, const char *name)
{
	struct perf_record comm = { .type = PERF_RECORD_COMM, .pid = (uint32_t)pid, .tid = (uint32_t)pid };

	comm.comm.name = name;
	comm.comm.name_len = strlen(name);
	rig_record(rig, &comm);
}

static inline void rig_map(struct rig *rig, pid_t pid, const struct perf_record_mmap *mapping)
{
	struct perf_record record = { .type = PERF_RECORD_MMAP2, .pid = (uint32_t)pid, .tid = (uint32_t)pid };

	record.misc = PERF_RECORD_MISC_USER;
	record.mmap = *mapping;
	record.mmap.path_len = strlen(mapping->path);
	rig_record(rig, &record);
}

/*
 * All that the process has mapped to be executed, and its files. build_id: what the kernel is to
 * have said of them; NULL: device, inode.
 */
static inline void rig_maps(struct rig *rig, pid_t pid, const char *name, const uint8_t *build_id)
{
	char path[64], line[512], file[256];
	unsigned long start, end, offset, inode;
	unsigned major_number, minor_number;
	char mode[8];

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "re");
	ck_assert_ptr_nonnull(maps);
	rig_name(rig, pid, name);
	while (fgets(line, sizeof(line), maps) != NULL) {
		file[0] = '\0';
		if (sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %255s", &start, &end, mode, &offset, &major_number,
			   &minor_number, &inode, file) < 7 ||
		    mode[2] != 'x')
			continue;
		struct perf_record_mmap mapping = {
			.start = start,
			.len = end - start,
			.offset = offset,
			.path = file[0] ? file : "//anon",
			.file = { .major = major_number, .minor = minor_number, .inode = inode },
		};
		if (build_id != NULL && file[0] == '/') {
			mapping.file = (struct perf_record_file){ .build_id_len = 20 };
			memcpy(mapping.file.build_id, build_id, 20);
		}
		rig_map(rig, pid, &mapping);
		if (file[0] == '/')
			rig_entry(rig, STACK_FILE_ELF, open(file, O_RDONLY), file)->file = mapping.file;
	}
	fclose(maps);
}

/* A sample of user addresses, the innermost first, ended by 0. */
static inline void rig_sample(struct rig *rig, pid_t pid, ...)
{
	uint64_t chain[32] = { PERF_CONTEXT_USER };
	struct perf_record sample = { .type = PERF_RECORD_SAMPLE, .pid = (uint32_t)pid, .tid = (uint32_t)pid };
	size_t count = 1;
	va_list addresses;

	va_start(addresses, pid);
	while (count < ARRAY_LEN(chain) && (chain[count] = va_arg(addresses, uint64_t)) != 0)
		count++;
	va_end(addresses);
	sample.misc = PERF_RECORD_MISC_USER;
	sample.sample =
		(struct perf_record_sample){ .ip = chain[1], .period = 10101010, .chain = chain, .chain_len = count };
	rig_record(rig, &sample);
}

/* What of a file of the directory; the caller's. */
static inline char *rig_read(struct rig *rig, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", rig->dir, name);

	return scene_read(path);
}

static inline int rig_open(struct rig *rig, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", rig->dir, name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);

	return fd;
}

/* In a message: see STACK_FILE_DESCRIPTORS_AT_ONCE. */
static inline void rig_send(int to, const int *fds, const int *numbers, size_t count)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(STACK_FILE_DESCRIPTORS_AT_ONCE * sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec bytes = { .iov_base = (void *)(uintptr_t)numbers, .iov_len = count * sizeof(int) };
	struct msghdr message = { .msg_iov = &bytes,
				  .msg_iovlen = 1,
				  .msg_control = control.room,
				  .msg_controllen = CMSG_SPACE(count * sizeof(int)) };

	control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)),
					 .cmsg_level = SOL_SOCKET,
					 .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
	/* It may have been killed by what it had so far. */
	ck_assert(sendmsg(to, &message, MSG_NOSIGNAL) > 0 || errno == EPIPE || errno == ECONNRESET);
}

/* What a child gets later; {0}: nothing. */
struct rig_rest {
	int input, entry; /* the whole; a file that is not in the first part, or -1 */
	bool at_once;     /* before it can have read the first part */
	int grows;        /* a file that is written to before, .. */
	const char *by;   /* ... or NULL */
};

static inline void rig_send_rest(int to, const struct rig_rest *rest, const int *outputs, size_t count)
{
	if (rest->input < 0)
		return;
	if (rest->by != NULL)
		ck_assert_int_eq(pwrite(rest->grows, rest->by, strlen(rest->by), lseek(rest->grows, 0, SEEK_END)),
				 (ssize_t)strlen(rest->by));
	if (rest->entry >= 0)
		rig_send(to, &rest->entry, &rest->entry, 1);
	rig_send(to, outputs, outputs, count);
	rig_send(to, &rest->input, (int[]){ STDIN_FILENO }, 1);
}

/*
 * Starts spikewatch-symbolize on an open file: its exit code, or 128 + the signal. rest: what is
 * given to it after that, or NULL.
 */
static inline int rig_give_parts(struct rig *rig, int input, const char *option, const struct rig_rest *rest)
{
	int out = rig_open(rig, "counts"), folded = rig_open(rig, "folded"), functions = rig_open(rig, "functions");
	int pprof = rig_open(rig, "pprof"), memory = rig_open(rig, "memory"), err = rig_open(rig, "stderr"), status;
	char options[5][64] = { "", "", "", "", "--rest=0" };
	int pair[2] = { -1, -1 };

	snprintf(options[0], sizeof(options[0]), "--folded=%d", folded);
	snprintf(options[1], sizeof(options[1]), "--functions=%d", functions);
	snprintf(options[2], sizeof(options[2]), "--pprof=%d", pprof);
	snprintf(options[3], sizeof(options[3]), "--memory-folded=%d", memory);
	if (rest != NULL) {
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
		ck_assert_int_eq(fcntl(pair[0], F_SETFD, FD_CLOEXEC), 0);
		snprintf(options[4], sizeof(options[4]), "--rest=%d", pair[1]);
		if (rest->at_once)
			rig_send_rest(pair[0], rest, (int[]){ folded, functions, pprof, memory }, 4);
	}
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(input, STDIN_FILENO);
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		if (rest != NULL && rest->entry >= 0)
			close(rest->entry);
		execle(rig->program, rig->program, rest != NULL ? options[4] : "--cpu=20", options[0], options[1],
		       options[2], options[3], "--cpu=20", "--wall=60", option, NULL, (char *[]){ NULL });
		_exit(126);
	}
	if (rest != NULL) {
		close(pair[1]);
		usleep(rest->at_once ? 0
				     : 20000); /* it mostly has read the first part by then: nothing depends on it */
		if (!rest->at_once)
			rig_send_rest(pair[0], rest, (int[]){ folded, functions, pprof, memory }, 4);
		close(pair[0]);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(out);
	close(folded);
	close(functions);
	close(pprof);
	close(memory);
	close(err);
	rig_forget(rig);
	rig->folded = rig_read(rig, "folded");
	rig->functions = rig_read(rig, "functions");
	rig->counts = rig_read(rig, "counts");
	rig->memory = rig_read(rig, "memory");

	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int rig_give(struct rig *rig, int input, const char *option)
{
	return rig_give_parts(rig, input, option, NULL);
}

/* The first of a stream's records, about half of them; bytes. */
static inline size_t rig_half(const struct rig *rig, int kind)
{
	const struct buffer *records = &rig->records[kind];
	struct perf_record_format format = { rig->heads[kind].sample_type, rig->heads[kind].regs_user };
	struct perf_record record;
	size_t at = 0;

	while (at < records->len / 2 &&
	       perf_record_decode(&format, records->data + at, records->len - at, &record) == 0)
		at += record.size;
	return at;
}

/* What there is, or the first part of it, as a stack file. */
static inline int rig_stack_file(struct rig *rig, bool whole)
{
	int input = memfd_create("stacks", MFD_CLOEXEC);
	struct sink sink = sink_fd(&input);
	struct stack_file_records streams[STACK_FILE_STREAM_KINDS];
	struct stack_file_entry entries[RIG_ENTRIES_MAX];
	size_t count = 0;

	memcpy(entries, rig->entries, sizeof(entries));
	if (!whole && rig->entry_count > 0)
		entries[rig->entry_count - 1].binary.fd = -1;
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		if (rig->records[kind].len > 0)
			streams[count++] = (struct stack_file_records){
				.stream = rig->heads[kind],
				.records = rig->records[kind].data,
				.record_bytes = whole ? rig->records[kind].len : rig_half(rig, kind),
			};

	struct stack_file_content content = {
		.head = {
			.everyone = whole,
			.page_bytes = 4096,
			.frequency = 99,
			.fired_mono_ns = RIG_FIRED_NS,
			.fired_wall_ns = 1700000000000000000u,
			.from_ns = RIG_FIRED_NS / 2,
			.to_ns = 2 * RIG_FIRED_NS,
		},
		.streams = streams,
		.stream_count = count,
		.entries = entries,
		.entry_count = rig->entry_count,
		.cgroups = rig->cgroups,
		.cgroup_count = rig->cgroup_count,
	};

	ck_assert_int_eq(stack_file_write(&content, &sink), 0);
	return input;
}

/*
 * Writes what there is into a stack file and gives it to spikewatch-symbolize; and then once more, to one
 * that has begun with a part of it: whether that has read it already or not, all that comes out is the same.
 */
static inline int rig_run(struct rig *rig, const char *option)
{
	static const char *const outputs[] = { "counts", "folded", "functions", "pprof", "memory", "stderr" };
	int whole = rig_stack_file(rig, true), first = rig_stack_file(rig, false), codes[3];
	struct rig_rest rest = { .input = whole, .entry = -1 };

	if (rig->entry_count > 0)
		rest.entry = rig->entries[rig->entry_count - 1].binary.fd;
	codes[0] = rig_give(rig, whole, option);
	ck_assert_int_eq(rig_shell(rig, "mkdir -p once && cp counts folded functions pprof memory stderr once/"), 0);
	for (int i = 1; i <= 2; i++) {
		rest.at_once = i == 2;
		codes[i] = rig_give_parts(rig, first, option, &rest);
		ck_assert_int_eq(codes[i], codes[0]);
		for (size_t j = 0; j < ARRAY_LEN(outputs); j++)
			ck_assert_msg(rig_shell(rig, "cmp once/%s %s", outputs[j], outputs[j]) == 0, "%s", outputs[j]);
	}
	close(whole);
	close(first);

	return codes[0];
}

/* How often this whole stack is among the folded ones. */
static inline uint64_t rig_stacks_in(const char *folded, const char *stack)
{
	size_t len = strlen(stack);

	for (const char *line = folded; line != NULL && *line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, stack, len) == 0 && line[len] == ' ')
			return strtoull(line + len, NULL, 10);

	return 0;
}

#define rig_expect(rig, stack, count) \
	ck_assert_msg(rig_stacks_in((rig)->folded, stack) == (count), "expected %s %d, there is:\n%s", stack, \
		      (int)(count), (rig)->folded)

#define rig_expect_memory(rig, stack, count) \
	ck_assert_msg(rig_stacks_in((rig)->memory, stack) == (count), "expected %s %d, there is:\n%s", stack, \
		      (int)(count), (rig)->memory)

/* One of the counts. */
static inline uint64_t rig_count(const struct rig *rig, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = rig->counts; line != NULL && *line;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, name, len) == 0 && line[len] == '\t')
			return strtoull(line + len, NULL, 10);
	ck_abort_msg("no count %s in: %s", name, rig->counts);

	return 0;
}

#endif
