/*
 * check_faults.c: each system call and allocation of a command fails once. Then either the output
 * is the same, or the command says what is wrong and its exit code is not 0: never another answer
 * that looks like the right one, never a crash.
 *
 * A command runs in a child process that is traced with all its threads: at the chosen entry the tracer replaces the
 * system call by an invalid one, and its result by the error (or it shortens the count). Which calls
 * a command makes does not depend on time, so the first run, without a fault, tells how many there
 * are. Allocations that glibc makes itself fail by brk(2) and mmap(2).
 *
 * What a command makes (a directory of incidents, a recording) counts as part of its output. What
 * differs from run to run by itself is judged by verify: a recording or an incident of a live process
 * is whole, or the exit code is not 0.
 */
#include "incidentmade.h"
#include "lib/minutes/minute_file.h"
#include "lib/profile/profile.h"
#include "ring_fixture.h"
#include "scene.h"
#include "skip.h"
#include "torture.h"

int spikewatch_main(int argc, char **argv);

#define main spikewatch_main
#include "cli/main.c"
#include "cli/report/report.h"
#undef main

#include <errno.h>
#include <fcntl.h>
#include <linux/elf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>

Suite *faults_suite(void);

#ifdef __x86_64__

static char directory[64], made[80]; /* made: what the command makes */
static pid_t server;
static void (*prepare)(void);  /* before each run */
static bool (*is_whole)(void); /* of an answer with exit code 0 that is another each time */

static char *in_directory(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

/* A profile of one stack, and the same as text. */
static void write_stacks(const char *incident)
{
	const struct stack_profile_options options = { .quantity = STACK_PROFILE_CPU,
						       .fired_ns = 10 * NS_PER_S,
						       .wall_ns = INCIDENTMADE_WALL.ns,
						       .to_ns = 15 * NS_PER_S,
						       .spike_from_ns = 1,
						       .period_ns = 10000000 };
	const struct stack_profile_line line = { "main", NULL, 7 };
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	AUTO(buffer_release) struct buffer bytes = { 0 };
	struct sink sink = sink_buffer(&bytes);
	uint32_t mapping, frame;
	char file[400];

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(stack_profile_mapping(
				 profile, &(struct stack_profile_mapping){ .start = 1, .end = 9, .path = "/lib/x.so" },
				 &mapping),
			 0);
	ck_assert_int_eq(stack_profile_frame(profile, &(struct stack_profile_frame){ mapping, 2, &line, 1 }, &frame),
			 0);

	const struct stack_profile_sample sample = { .time_ns = 1,
						     .pid = 812,
						     .tid = 812,
						     .process = "postgres",
						     .thread = "hot-loop",
						     .frames = &frame,
						     .frame_count = 1,
						     .count = 1,
						     .weight = 10000000 };

	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	snprintf(file, sizeof(file), "%s/%s/cpu.pb.gz", directory, incident);
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_eq(sink_write_all(fd, bytes.data, bytes.len), 0);
	close(fd);
	snprintf(file, sizeof(file), "%s/%s/cpu.folded", directory, incident);
	scene_write(file, "postgres;main 1\n");
}

#define TICKS 200u

/* As a daemon leaves it that was killed, or has stopped in order. */
static void write_ring(bool finished)
{
	const struct ring_options options = { .size_bytes = 65 * 4096, .page_bytes = 4096, .interval_ns = NS_PER_MS };
	struct fixture_target target;
	struct ring_writer *writer;
	struct ring *ring;

	fixture_target_init(&target, 1);
	ck_assert_int_eq(ring_create(AT_FDCWD, in_directory("ring"), &options, &ring), 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (unsigned tick = 0; tick < TICKS; tick++)
		ck_assert_int_eq(fixture_tick(writer, &target, 1, tick), 0);
	if (finished)
		ring_finish(ring);
	ring_writer_free(writer);
	ring_free(ring);
}

static const char *const answers[][2] = {
	{ "status",
	  "{\"daemon\":{\"version\":\"0.1.0\",\"pid\":1234,\"uptime_ns\":11520000000000,\"interval_ns\":10000000},"
	  "\"sampler\":{\"capture_percent\":95,\"interval_ns\":40000000,\"lost_records\":0,\"verdicts\":[]},"
	  "\"ring\":{\"size_bytes\":16777216,\"history_ns\":182000000000},"
	  "\"discovery\":{\"targets\":1,\"members\":0,\"processes\":220,\"refused\":0,\"failed\":0},"
	  "\"incidents\":{\"sealed\":4,\"open\":1,\"merged\":2,\"failed\":0,\"refused\":0},\"targets\":["
	  "{\"name\":\"web\",\"entry\":\"web\",\"rules\":[{\"rule\":\"cpu\",\"metric\":\"cpu\",\"percent\":80,"
	  "\"warmup\":5,\"value\":70,\"average\":20,\"threshold\":80,\"distance\":10,\"reason\":\"within-bounds\","
	  "\"phase\":\"armed\",\"fired\":0,\"reasons\":{\"within-bounds\":12}}]}]}" },
	{ "trigger",
	  "{\"trigger\":{\"answer\":\"opened\",\"directory\":\"/nowhere\",\"stem\":\"x\",\"sealed_in_ns\":1}}" },
	{ "reload", "{\"reload\":{\"message\":\"3 targets\"}}" },
};

/* A daemon, as far as its answers go. */
static void serve(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", in_directory("control"));
	ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listening, 4), 0);
	server = fork();
	ck_assert_int_ge(server, 0);
	for (prctl(PR_SET_PDEATHSIG, server == 0 ? SIGKILL : 0); server == 0;) {
		char line[600] = "";
		int fd = accept(listening, NULL, NULL);
		bool asked = recv(fd, line, sizeof(line) - 1, 0) > 0;

		for (size_t i = 0; asked && i < ARRAY_LEN(answers); i++)
			if (strncmp(line, answers[i][0], strlen(answers[i][0])) == 0)
				send(fd, answers[i][1], strlen(answers[i][1]), MSG_NOSIGNAL);
		close(fd);
	}
	close(listening);
}

static void setup(void)
{
	static const struct incidentmade_options first = { .name = NULL };
	static const struct incidentmade_options second = { .name = "20261120T041502.123Z-postgres_812-cpu-high-2",
							    .gap = true };
	int fd;

	/* Thousands of files are written, truncated and synchronised, some for each fault: a disk takes minutes. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	fd = incidentmade_directory(directory, sizeof(directory));
	setenv("LC_ALL", "C", 1); /* without the files of a locale */
	incidentmade_write(fd, &first);
	incidentmade_write(fd, &second);
	close(fd);
	write_stacks(second.name);
	snprintf(made, sizeof(made), "%s/made", directory);
	prepare = NULL;
	is_whole = NULL;
	server = 0;
	scene_write(in_directory("rules.json"),
		    "{\"targets\": [{\"name\": \"db\", \"comm\": \"postgres\"}],"
		    " \"rules\": [{\"name\": \"busy\", \"targets\": [\"db\"], \"metric\": \"cpu\", \"percent\": 20}]}");
}

static void teardown(void)
{
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	incidentmade_remove(made);
	incidentmade_remove(directory);
}

enum fault {
	FAULT_NONE,
	FAULT_ERROR,       /* the error that is likely for the call */
	FAULT_DESCRIPTORS, /* EMFILE, of what makes a descriptor */
	FAULT_INTERRUPTED, /* EINTR, of what may wait */
	FAULT_SHORT,       /* half of what was asked for is read or written */
	FAULT_ALLOCATION   /* the nth allocation of our own code */
};

struct run {
	int status; /* of waitpid(2) */
	long calls; /* system calls that can fail */
	bool injected;
	unsigned long long call; /* the one that failed */
	unsigned long long brk;  /* the last result of brk(2) */
	char *out, *err;         /* from malloc */
};

/* The error that the system call fails with; 0: it is none that fails, or says nothing about it. */
static int error_of(unsigned long long call, enum fault fault)
{
	switch (call) {
	case SYS_openat:
	case SYS_open:
	case SYS_mkdirat:
	case SYS_unlinkat:
	case SYS_faccessat:
	case SYS_faccessat2:
		return fault == FAULT_DESCRIPTORS ? EMFILE : EACCES;
	case SYS_memfd_create:
	case SYS_dup:
	case SYS_socket:
		return EMFILE;
	case SYS_connect:
	case SYS_sendmsg:
	case SYS_recvfrom:
		return ECONNRESET;
	case SYS_ftruncate:
		return EFBIG;
	case SYS_read:
	case SYS_pread64:
	case SYS_readv:
	case SYS_getdents64:
	case SYS_fstat:
	case SYS_newfstatat:
	case SYS_statx:
		return EIO;
	case SYS_write:
	case SYS_pwrite64:
	case SYS_writev:
	case SYS_fsync:
		return ENOSPC;
	case SYS_rename:
	case SYS_renameat:
	case SYS_renameat2:
		return EROFS;
	case SYS_brk:
	case SYS_mmap:
	case SYS_mremap:
		return ENOMEM;
	default:
		return 0;
	}
}

static bool has_count(unsigned long long call)
{
	return call == SYS_read || call == SYS_pread64 || call == SYS_write || call == SYS_pwrite64;
}

static bool may_wait(unsigned long long call)
{
	return has_count(call) || call == SYS_openat || call == SYS_readv || call == SYS_writev ||
	       call == SYS_recvfrom || call == SYS_poll || call == SYS_ppoll;
}

static bool suits(unsigned long long call, enum fault fault)
{
	if (fault == FAULT_SHORT)
		return has_count(call);
	if (fault == FAULT_INTERRUPTED)
		return may_wait(call);
	if (fault == FAULT_DESCRIPTORS)
		return error_of(call, fault) == EMFILE && call != SYS_faccessat && call != SYS_faccessat2 &&
		       call != SYS_mkdirat && call != SYS_unlinkat;
	return error_of(call, fault) != 0;
}

/* Of files that the command writes; 0: no limit. */
static rlim_t file_size_max;

/* A run takes some hundredths of a second. */
#define PATIENCE_S 20

/* The traced process: begins with a stop, so that nothing of what is here counts. */
static void be_the_command(char **words, int out, int err, enum fault fault, long nth)
{
	int argc = 0, code;

	while (words[argc])
		argc++;
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	signal(SIGALRM, SIG_DFL);
	alarm(3 * PATIENCE_S); /* should the tracer have ended */
	if (file_size_max > 0)
		setrlimit(RLIMIT_FSIZE, &(struct rlimit){ file_size_max, file_size_max });
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	if (fault == FAULT_ALLOCATION)
		torture_arm(nth);
	code = spikewatch_main(argc, words);
	if (fault == FAULT_ALLOCATION && torture_disarm())
		kill(getpid(), SIGWINCH); /* tells the tracer */
	fflush(stderr);
	_exit(code);
}

static void get_registers(pid_t pid, struct user_regs_struct *ret)
{
	struct iovec io = { ret, sizeof(*ret) };

	ck_assert_int_eq(ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &io), 0);
}

static void set_registers(pid_t pid, struct user_regs_struct *registers)
{
	struct iovec io = { registers, sizeof(*registers) };

	ck_assert_int_eq(ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &io), 0);
}

#define CALLS_MAX 512u

/* Which calls are counted: those of a kind, by the first thread or by the others. */
static struct aim {
	bool chosen;
	bool others;
	unsigned long long call;
} aim;

/* What a command called that suits the fault, by the first thread and by the others. */
static bool called[2][CALLS_MAX];

static bool is_aimed_at(unsigned long long call, bool others)
{
	if (call < CALLS_MAX)
		called[others][call] = true;
	return !aim.chosen || (aim.call == call && aim.others == others);
}

/* At the entry of a system call: the chosen one is spoilt. */
static int at_entry(pid_t pid, bool others, enum fault fault, long nth, struct run *run)
{
	struct user_regs_struct registers;
	int error;

	get_registers(pid, &registers);
	if (!suits(registers.orig_rax, fault) || !is_aimed_at(registers.orig_rax, others) || ++run->calls != nth)
		return 0;
	run->injected = true;
	run->call = registers.orig_rax;
	if (fault == FAULT_SHORT) {
		registers.rdx = (registers.rdx + 1) / 2;
		set_registers(pid, &registers);
		return 0;
	}
	error = fault == FAULT_INTERRUPTED ? EINTR : error_of(registers.orig_rax, fault);
	registers.orig_rax = (unsigned long long)-1;
	set_registers(pid, &registers);
	return error;
}

static void at_exit_of_call(pid_t pid, int error, struct run *run)
{
	struct user_regs_struct registers;

	get_registers(pid, &registers);
	if (error == 0 && registers.orig_rax == SYS_brk)
		run->brk = registers.rax;
	if (error == 0)
		return;
	/* brk(2) that fails returns the end as it is. */
	registers.rax = run->call == SYS_brk ? run->brk : (unsigned long long)-error;
	set_registers(pid, &registers);
}

/* ---- a command that does not end ---- */

static void on_alarm(int number)
{
	(void)number;
}

static void show_file(pid_t pid, const char *tid, const char *name)
{
	char path[64], text[2048];
	AUTO_CLOSE int fd = -1;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", (int)pid, tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	fprintf(stderr, "%s: %.*s\n", path, len > 0 ? (int)len : 0, text);
}

/* Where each of its threads is, so that what is seen once in many runs is seen. */
static void show_threads(pid_t pid)
{
	char path[64];
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	threads = opendir(path);
	for (struct dirent *thread; threads && (thread = readdir(threads));)
		if (thread->d_name[0] != '.') {
			show_file(pid, thread->d_name, "status");
			show_file(pid, thread->d_name, "syscall");
			show_file(pid, thread->d_name, "stack");
		}
	if (threads)
		closedir(threads);
}

/* A thread of the command. */
struct traced {
	pid_t tid;
	bool inside; /* a system call */
	int error;   /* that it is to end with */
};

/* More than a command has. */
#define TRACED_MAX 64u

static struct traced threads[TRACED_MAX];
static size_t thread_count;

static struct traced *thread_of(pid_t tid)
{
	for (size_t i = 0; i < thread_count; i++)
		if (threads[i].tid == tid)
			return &threads[i];
	ck_assert_uint_lt(thread_count, TRACED_MAX);
	threads[thread_count] = (struct traced){ .tid = tid };
	return &threads[thread_count++];
}

/* The next stop of one of the command's threads, or its end. */
static pid_t await_stop(pid_t pid, enum fault fault, long nth, struct run *run)
{
	pid_t r;

	alarm(PATIENCE_S);
	do {
		r = waitpid(-1, &run->status, __WALL);
	} while (r > 0 && r == server);
	if (r < 0 && errno == EINTR) {
		fprintf(stderr, "it does not end: fault %d, nth %ld, call %llu\n", (int)fault, nth, run->call);
		show_threads(pid);
		kill(pid, SIGKILL);
		ck_abort_msg("a command does not end");
	}
	alarm(0);
	ck_assert_int_gt(r, 0);
	return r;
}

/* A stop of a thread; returns the signal that it goes on with. */
static int at_stop(struct traced *thread, bool others, enum fault fault, long nth, struct run *run)
{
	int number = WSTOPSIG(run->status);

	if (number == SIGWINCH)
		run->injected = true;
	if (number == SIGSTOP || run->status >> 16 != 0)
		return 0; /* it has begun, or has made another */
	if (number != (SIGTRAP | 0x80))
		return number;
	thread->inside = !thread->inside;
	if (thread->inside && !run->injected)
		thread->error = at_entry(thread->tid, others, fault, nth, run);
	if (!thread->inside) {
		at_exit_of_call(thread->tid, thread->error, run);
		thread->error = 0;
	}
	return 0;
}

static void trace(pid_t pid, enum fault fault, long nth, struct run *run)
{
	bool counting = fault != FAULT_NONE && fault != FAULT_ALLOCATION;
	pid_t tid = 0;

	thread_count = 0;
	sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_alarm }, NULL); /* and waitpid(2) returns */
	ck_assert_int_eq(await_stop(pid, fault, nth, run), pid);
	ck_assert(WIFSTOPPED(run->status));
	ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
	ptrace(counting ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL, NULL);
	while (tid = await_stop(pid, fault, nth, run), tid != pid || WIFSTOPPED(run->status)) {
		struct traced *thread = thread_of(tid);

		if (!WIFSTOPPED(run->status)) {
			*thread = threads[--thread_count];
			continue;
		}

		uintptr_t number = (uintptr_t)at_stop(thread, tid != pid, fault, nth, run);
		bool stops = counting && (!run->injected || thread->inside);

		ptrace(stops ? PTRACE_SYSCALL : PTRACE_CONT, tid, NULL, (void *)number);
	}
}

static char *text_of(int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)size + 1);

	ck_assert_int_eq(pread(fd, text, (size_t)size, 0), size);
	close(fd);
	return text;
}

/* What is in the directory that the command makes, down to two levels. */
static void list_made(int out, const char *path, int depth)
{
	struct dirent **names = NULL;
	int count = scandir(path, &names, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		char inner[400];
		struct stat st;

		snprintf(inner, sizeof(inner), "%s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.' && lstat(inner, &st) == 0) {
			dprintf(out, "%s %jd\n", names[i]->d_name, S_ISDIR(st.st_mode) ? 0 : (intmax_t)st.st_size);
			if (S_ISDIR(st.st_mode) && depth < 2)
				list_made(out, inner, depth + 1);
		}
		free(names[i]);
	}
	free(names);
}

static struct run run_command(char **words, enum fault fault, long nth)
{
	int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
	struct run run = { 0 };
	pid_t pid;

	if (prepare || !is_whole)
		incidentmade_remove(made);
	if (prepare)
		prepare();
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		be_the_command(words, out, err, fault, nth);
	trace(pid, fault, nth, &run);
	if (WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0 && !is_whole)
		list_made(out, made, 0);
	run.out = text_of(out);
	run.err = text_of(err);
	return run;
}

static void release(struct run *run)
{
	free(run->out);
	free(run->err);
}

static const char *const fault_names[] = { "none", "error", "EMFILE", "EINTR", "short", "allocation" };

/* Where two texts begin to differ. */
static size_t common(const char *one, const char *other)
{
	size_t n = 0;

	while (one[n] && one[n] == other[n])
		n++;
	return n;
}

/* What is wrong with an answer: it is neither the same nor says that it is none. NULL: nothing. */
static const char *fault_of(const struct run *good, const struct run *run)
{
	bool ok = WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0;
	bool same = is_whole ? !ok || is_whole() : strcmp(run->out, good->out) == 0;

	if (!WIFEXITED(run->status))
		return "crashed";
	if (!same && WEXITSTATUS(run->status) == 0)
		return "another answer, exit code 0";
	if (same && run->status != good->status && !*run->err)
		return "failed without a word";
	return NULL;
}

static bool check_run(char **words, const struct run *good, const struct run *run, enum fault fault, long nth)
{
	const char *wrong = fault_of(good, run);
	size_t at = common(run->out, good->out);

	if (wrong)
		fprintf(stderr, "%s %s, %s %ld (call %llu): %s, status %x\n  %.80s\n  not %.80s\n  %s\n", words[1],
			words[2], fault_names[fault], nth, run->call, wrong, (unsigned)run->status, run->out + at,
			good->out + at, run->err);
	return wrong == NULL;
}

/* The fault at one call after the other, with wider steps if it is said; returns how many answers were wrong. */
static unsigned try_fault(char **words, const struct run *good, enum fault fault, bool wider)
{
	unsigned wrong = 0;
	bool injected = true;

	for (long nth = 1; injected; nth += wider ? 1 + nth / 2 : 1) {
		struct run run = run_command(words, fault, nth);

		injected = run.injected;
		if (injected && !check_run(words, good, &run, fault, nth))
			wrong++;
		if (nth == 1)
			ck_assert_msg(injected || fault == FAULT_DESCRIPTORS || aim.chosen, "%s: no %s was injected",
				      words[1], fault_names[fault]);
		release(&run);
	}
	return wrong;
}

/* A live one makes many calls, of few kinds, in several threads: each kind is tried by itself. */
static unsigned try_each_call(char **words, const struct run *good, enum fault fault)
{
	unsigned wrong = 0;
	struct run run;

	memset(called, 0, sizeof(called));
	run = run_command(words, fault, -1);
	release(&run);
	for (unsigned i = 0; i < 2 * CALLS_MAX; i++) {
		aim = (struct aim){ .chosen = true, .others = i >= CALLS_MAX, .call = i % CALLS_MAX };
		if (called[aim.others][aim.call])
			wrong += try_fault(words, good, fault, true);
	}
	aim.chosen = false;
	return wrong;
}

static void try_faults(char **words)
{
	struct run good = run_command(words, FAULT_NONE, 0);
	unsigned wrong = 0;

	ck_assert_msg(WIFEXITED(good.status) && WEXITSTATUS(good.status) == 0, "%s: %s", words[1], good.err);
	for (enum fault fault = FAULT_ERROR; fault <= FAULT_ALLOCATION; fault++)
		wrong += is_whole && fault != FAULT_ALLOCATION ? try_each_call(words, &good, fault)
							       : try_fault(words, &good, fault, is_whole);
	release(&good);
	ck_assert_msg(wrong == 0, "%s: %u faults gave another answer, listed above", words[1], wrong);
}

#define TRY(...) try_faults((char *[]){ (char *)(uintptr_t) "spikewatch", __VA_ARGS__, NULL })

#define TEST_OF(name, ...) \
	START_TEST(name) \
	{ \
		TRY(__VA_ARGS__); \
	} \
	END_TEST

static mode_t mode_of(const char *path)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_mode & 07777;
}

/* A page holds command lines and stacks. */
START_TEST(files_are_private_unless_they_replace_one_that_is_not)
{
	char *words[] = { "spikewatch", "report", "-o", in_directory("page.html"), "-d", directory, "last", NULL };
	struct run run = run_command(words, FAULT_NONE, 0);

	if (!report_page_built())
		SKIP_TEST("built without npm");

	ck_assert_msg(run.status == 0, "%s", run.err);
	ck_assert_uint_eq(mode_of(words[3]), 0600);
	release(&run);
	ck_assert_int_eq(chmod(words[3], 0644), 0);
	run = run_command(words, FAULT_NONE, 0);
	ck_assert_msg(run.status == 0, "%s", run.err);
	ck_assert_uint_eq(mode_of(words[3]), 0644);
	release(&run);
}
END_TEST

START_TEST(limit_of_file_size_is_a_write_error)
{
	char *words[] = { "spikewatch", "report", "-o", in_directory("page.html"), "-d", directory, "last", NULL };
	struct run run;

	if (!report_page_built())
		SKIP_TEST("built without npm");

	file_size_max = 1000;
	run = run_command(words, FAULT_NONE, 0);
	ck_assert(WIFEXITED(run.status) && WEXITSTATUS(run.status) == EXIT_TROUBLE);
	ck_assert_msg(strstr(run.err, words[3]), "%s", run.err);
	ck_assert_int_lt(access(words[3], F_OK), 0);
	release(&run);
}
END_TEST

// clang-format off
TEST_OF(list_never_lies_by_silence, "list", "-d", directory)
TEST_OF(list_as_json_never_lies_by_silence, "list", "--json", "-d", directory)
TEST_OF(show_never_lies_by_silence, "show", "-d", directory, "last")
TEST_OF(show_in_full_never_lies_by_silence, "show", "--full", "-d", directory, "last")
TEST_OF(show_as_json_never_lies_by_silence, "show", "--json", "-d", directory, "last")
TEST_OF(verify_never_lies_by_silence, "verify", in_directory(INCIDENTMADE_ID))
TEST_OF(diff_never_lies_by_silence, "diff", "-d", directory, "high-1", "high-2")
TEST_OF(csv_never_lies_by_silence, "export", "--format", "csv", "-d", directory, "last")
TEST_OF(perfetto_never_lies_by_silence, "export", "--format", "perfetto", "-d", directory, "last")
TEST_OF(replay_never_lies_by_silence, "replay", "-c", in_directory("rules.json"), "-d", directory, "last")
TEST_OF(diff_as_json_never_lies_by_silence, "diff", "--json", "-d", directory, "high-1", "high-2")
TEST_OF(json_never_lies_by_silence, "export", "--format", "json", "-d", directory, "last")
TEST_OF(gvisor_never_lies_by_silence, "export", "--format", "gvisor", "-d", directory, "last")
TEST_OF(pprof_never_lies_by_silence, "export", "--format", "pprof", "-o", in_directory("made"), "-d", directory, "last")
TEST_OF(folded_never_lies_by_silence, "export", "--format", "folded", "-d", directory, "last")
TEST_OF(firefox_never_lies_by_silence, "export", "--format", "firefox", "-d", directory, "last")
TEST_OF(a_dry_run_never_lies_by_silence, "prune", "--keep", "1", "--dry-run", "-d", directory)
// clang-format on

#define RECORDING "tests/data/stream/spikewatch.txt"

TEST_OF(verify_of_a_recording_never_lies_by_silence, "verify", RECORDING)
TEST_OF(verify_of_gvisors_format_never_lies_by_silence, "verify", "tests/data/stream/gvisor.txt")
TEST_OF(replay_of_a_recording_never_lies_by_silence, "replay", "-c", in_directory("rules.json"), RECORDING)

/* Two targets for three minutes, in two blocks. */
static void write_minutes(void)
{
	AUTO(buffer_release) struct buffer bytes = { 0 };
	char *path = in_directory("history/0000000001.minutes");
	int fd;

	for (uint64_t i = 0; i < 3; i++) {
		struct minute_row rows[] = { { .kind = TARGET_CGROUP, .name = "web.service", .entry = "services" },
					     { .kind = TARGET_CGROUP, .name = "db.service", .entry = "services" } };
		struct minute minute = { .begin = { (1795435200 + 60 * i) * NS_PER_S },
					 .period_ns = 60 * NS_PER_S,
					 .peak_ns = NS_PER_S,
					 .span_ns = 60 * NS_PER_S,
					 .number = i,
					 .rows = rows,
					 .row_count = ARRAY_LEN(rows) };

		for (size_t j = 0; j < ARRAY_LEN(rows); j++) {
			rows[j].comm = "";
			rows[j].has_cpu = rows[j].has_memory = true;
			rows[j].cpu_ns = (i + 1) * NS_PER_S;
			rows[j].cpu_peak_milli = 500;
			rows[j].memory_bytes = (i + 1) << 20;
			rows[j].seen_ns = 60 * NS_PER_S;
			rows[j].targets = 1;
		}
		ck_assert_int_eq(minute_block_write(&minute, 1, i == 1, &bytes), 0);
	}
	ck_assert_int_eq(mkdir(in_directory("history"), 0700), 0);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(sink_write_all(fd, bytes.data, bytes.len), 0);
	close(fd);
}

START_TEST(history_never_lies_by_silence)
{
	setenv("TZ", "UTC", 1);
	write_minutes();
#define TRY_SPAN(...) \
	TRY("history", "-d", in_directory("history"), "--since", "2026-11-23T12:00", "--until", "2026-11-23T12:03", \
	    __VA_ARGS__)
	TRY_SPAN("--limit", "0");
	TRY_SPAN("web.service");
	TRY_SPAN("--json");
	TRY_SPAN("--html", "-");
}
END_TEST

START_TEST(report_never_lies_by_silence)
{
	if (!report_page_built())
		SKIP_TEST("built without npm");
	TRY("report", "-o", "-", "-d", directory, "last");
}
END_TEST

static void make_spool(void)
{
	static const struct incidentmade_options first = { .name = NULL };
	static const struct incidentmade_options second = { .name = "20261120T041502.123Z-postgres_812-cpu-high-2" };

	ck_assert_int_eq(mkdir(made, 0700), 0);
	int fd = open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	incidentmade_write(fd, &first);
	incidentmade_write(fd, &second);
	close(fd);
}

START_TEST(prune_never_lies_by_silence)
{
	prepare = make_spool;
	TRY("prune", "--keep", "1", "--json", "-d", made);
}
END_TEST

START_TEST(recover_never_lies_by_silence)
{
	write_ring(false);
	TRY("recover", "-d", made, in_directory("ring"));
}
END_TEST

START_TEST(restore_never_lies_by_silence)
{
	char *words[] = { "spikewatch", "report", "-o", in_directory("page.html"), "-d", directory, "high-1", NULL };
	struct run run = run_command(words, FAULT_NONE, 0);

	ck_assert_msg(run.status == 0, "%s", run.err);
	release(&run);
	TRY("export", "-o", made, in_directory("page.html"));
}
END_TEST

START_TEST(requests_never_lie_by_silence)
{
	serve();
	TRY("status", "--socket", in_directory("control"));
	TRY("status", "--json", "--socket", in_directory("control"));
	TRY("trigger", "--socket", in_directory("control"), "web");
	TRY("reload", "--socket", in_directory("control"));
}
END_TEST

START_TEST(top_never_lies_by_silence)
{
	write_ring(true);
	TRY("top", "--once", "--ring", in_directory("ring"), "-c", in_directory("rules.json"));
}
END_TEST

/* ---- what a live process gives ---- */

static bool verifies(char *path)
{
	char *words[] = { "spikewatch", "verify", path, NULL };
	void (*before)(void) = prepare;
	struct run run;

	prepare = NULL;
	run = run_command(words, FAULT_NONE, 0);
	release(&run);
	prepare = before;

	return WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0;
}

static bool recording_is_whole(void)
{
	return verifies(in_directory("recording"));
}

START_TEST(record_never_lies_by_silence)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	is_whole = recording_is_whole;
	TRY("record", "-p", pid, "-i", "5ms", "-d", "20ms", "-o", in_directory("recording"));
}
END_TEST

/* verify knows what was written, not what was to be. */
static bool has_empty_file(const char *incident)
{
	DIR *files = opendir(incident);
	bool empty = files == NULL;
	struct stat st;

	for (struct dirent *file; files && (file = readdir(files));)
		empty = empty ||
			(fstatat(dirfd(files), file->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) && st.st_size == 0);
	if (files)
		closedir(files);
	return empty;
}

/* An answer with exit code 0 is one incident that is whole, and nothing beside it. */
static bool catch_is_whole(void)
{
	struct dirent **names = NULL;
	int count = scandir(made, &names, NULL, alphasort), incidents = 0;
	bool whole = count >= 0;

	for (int i = 0; i < count; i++) {
		char path[400];

		snprintf(path, sizeof(path), "%s/%s", made, names[i]->d_name);
		if (names[i]->d_name[0] != '.') {
			incidents++;
			whole = whole && verifies(path) && !has_empty_file(path);
		}
		free(names[i]);
	}
	free(names);
	return whole && incidents == 1;
}

static void catch_nothing_yet(void)
{
}

START_TEST(trap_never_lies_by_silence)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	prepare = catch_nothing_yet; /* what the run before has made is removed */
	is_whole = catch_is_whole;
	TRY("trap", "-p", pid, "--memory", "4KiB", "--for", "10ms", "--after", "0s", "--stacks", "off", "--timeout",
	    "5s", "-o", made);
}
END_TEST

Suite *faults_suite(void)
{
	Suite *suite = suite_create("faults");
	const struct {
		const char *name;
		const TTest *test;
	} tests[] = {
		{ "modes", files_are_private_unless_they_replace_one_that_is_not },
		{ "file size", limit_of_file_size_is_a_write_error },
		{ "list", list_never_lies_by_silence },
		{ "list as json", list_as_json_never_lies_by_silence },
		{ "show", show_never_lies_by_silence },
		{ "show in full", show_in_full_never_lies_by_silence },
		{ "show as json", show_as_json_never_lies_by_silence },
		{ "verify", verify_never_lies_by_silence },
		{ "diff", diff_never_lies_by_silence },
		{ "csv", csv_never_lies_by_silence },
		{ "perfetto", perfetto_never_lies_by_silence },
		{ "report", report_never_lies_by_silence },
		{ "replay", replay_never_lies_by_silence },
		{ "recordings", verify_of_a_recording_never_lies_by_silence },
		{ "gvisor recordings", verify_of_gvisors_format_never_lies_by_silence },
		{ "replay of recordings", replay_of_a_recording_never_lies_by_silence },
		{ "history", history_never_lies_by_silence },
		{ "diff as json", diff_as_json_never_lies_by_silence },
		{ "json", json_never_lies_by_silence },
		{ "gvisor", gvisor_never_lies_by_silence },
		{ "pprof", pprof_never_lies_by_silence },
		{ "folded", folded_never_lies_by_silence },
		{ "firefox", firefox_never_lies_by_silence },
		{ "a dry run", a_dry_run_never_lies_by_silence },
		{ "prune", prune_never_lies_by_silence },
		{ "recover", recover_never_lies_by_silence },
		{ "restore", restore_never_lies_by_silence },
		{ "requests", requests_never_lie_by_silence },
		{ "top", top_never_lies_by_silence },
		{ "record", record_never_lies_by_silence },
		{ "trap", trap_never_lies_by_silence },
	};

	/* Each in a case of its own, so that one can be chosen. */
	for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
		TCase *tcase = tcase_create(tests[i].name);

		tcase_add_checked_fixture(tcase, setup, teardown);
		tcase_add_test(tcase, tests[i].test);
		suite_add_tcase(suite, tcase);
	}
	return suite;
}

#else

#include "skip.h"

START_TEST(faults_are_injected)
{
	SKIP_TEST("registers of this architecture are not known to it");
}
END_TEST

Suite *faults_suite(void)
{
	Suite *suite = suite_create("faults");
	TCase *tcase = tcase_create("faults");

	tcase_add_test(tcase, faults_are_injected);
	suite_add_tcase(suite, tcase);
	return suite;
}

#endif
