/*
 * check_stack_recorder_follow.c: events on the threads of some processes: which are sampled, how
 * often, what happens when they begin, end, or are too many. Needs to be allowed to open perf
 * events; says so if it is not.
 */
#include "daemon/engine/base/foreign.h"
#include "stack_recorder_rig.h"
#include "torture.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

Suite *stack_recorder_follow_suite(void);

static struct stack_recorder_rig rig;

static const struct stack_recorder_options with_stacks = { .dwarf = true };
/*
 * A thousand small samples a second, in rings that hold all of them: of all processes it is chance
 * which they meet, and a few dozen tell one from two badly.
 */
static const struct stack_recorder_options many_samples = {
	.dwarf = true, .frequency = 999, .stack_bytes = 1024, .before_ns = 1, .max_memory_bytes = 4ULL << 30
};
static const struct stack_recorder_options followed_only = { .followed_only = true };

/* False: not here. */
static bool begin_with_stacks_of(const struct stack_recorder_options *options)
{
	if (!begin_with(&rig, options))
		return false;
	if (status_now(&rig).dwarf)
		return true;
	skip_because("%s", status_now(&rig).limits);
	end(&rig);
	return false;
}

static bool begin_with_stacks(void)
{
	return begin_with_stacks_of(&with_stacks);
}

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static void take_all(void)
{
	stack_recorder_snapshot_release(&rig.snapshot);
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, 0, UINT64_MAX, 0, &rig.snapshot), 0);
}

START_TEST(a_followed_process_is_sampled_with_registers_and_stack)
{
	struct seen seen;
	pid_t pid;

	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	follow_one(&rig, pid);
	ck_assert_uint_eq(status_now(&rig).followed_threads, 1);
	ck_assert_uint_eq(status_now(&rig).not_followed, 0);
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	stop_child(pid);
	take_all();
	end_child(pid);
	seen = look_in(&rig, STACK_FILE_CPU_FOLLOWED, pid);
	ck_assert_uint_ge(seen.samples, 10);
	ck_assert_uint_eq(seen.with_stack, seen.samples);
	ck_assert_uint_ge(seen.in_function * 10, seen.samples * 8);
	ck_assert_str_eq(seen.comm, "burning;child");
	ck_assert_uint_eq(stream_of(&rig, STACK_FILE_CPU_FOLLOWED)->head.stack_bytes, 8192);
	ck_assert_uint_eq(stream_of(&rig, STACK_FILE_CPU_FOLLOWED)->head.units_per_second, NS_PER_S);
	/* everybody's event saw it as well */
	ck_assert_uint_ge(look_in(&rig, STACK_FILE_CPU, pid).samples, 10);
	end(&rig);
}
END_TEST

/*
 * Unwinding may lead into any of its modules, as often as it has stacks, and by these they count
 * where not all files can be opened.
 */
START_TEST(all_modules_of_a_process_with_stacks_are_listed)
{
	unsigned in_maps = 0, found = 0, stacks;
	char name[64], line[4600];
	FILE *maps;
	pid_t pid;

	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	follow_one(&rig, pid);
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	stop_child(pid);
	take_all();
	stacks = look_in(&rig, STACK_FILE_CPU_FOLLOWED, pid).samples;
	ck_assert_uint_gt(stacks, 0);
	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	maps = fopen(name, "r");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps) != NULL) {
		const char *path = strchr(line, '/');

		line[strcspn(line, "\n")] = '\0';
		if (path == NULL || strstr(line, "r-xp") == NULL)
			continue;
		in_maps++;
		for (size_t i = 0; i < rig.snapshot.file_count; i++)
			found += strcmp(rig.snapshot.files[i].path, path) == 0 &&
				 rig.snapshot.files[i].stacks >= 16 * stacks;
	}
	fclose(maps);
	end_child(pid);
	ck_assert_uint_ge(in_maps, 2);
	ck_assert_uint_ge(found, in_maps);
	for (size_t i = 1; i < rig.snapshot.file_count; i++)
		ck_assert_uint_ge(rig.snapshot.files[i - 1].frames + rig.snapshot.files[i - 1].stacks,
				  rig.snapshot.files[i].frames + rig.snapshot.files[i].stacks);
	end(&rig);
}
END_TEST

/* ---- threads ---- */

static void *burn_for_ever(void *unused)
{
	volatile uint64_t counter = 0;

	(void)unused;
	for (;;)
		burn_here(&counter);
	return NULL;
}

static void *start_another_and_burn(void *unused)
{
	pthread_t thread;

	pthread_create(&thread, NULL, burn_for_ever, NULL);
	return burn_for_ever(unused);
}

/*
 * A child of four threads; then, each time a byte arrives on *ret_fd, two more, of which one starts
 * the other.
 */
static pid_t child_of_threads(int *ret_fd)
{
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		pthread_t thread;
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 3; i++)
			pthread_create(&thread, NULL, burn_for_ever, NULL);
		while (read(fds[0], &byte, 1) == 1)
			pthread_create(&thread, NULL, start_another_and_burn, NULL);
		_exit(0);
	}
	close(fds[0]);
	*ret_fd = fds[1];
	return pid;
}

static unsigned threads_of(pid_t pid)
{
	char name[32];
	DIR *dir;
	unsigned count = 0;

	snprintf(name, sizeof(name), "/proc/%d/task", pid);
	dir = opendir(name);
	ck_assert_ptr_nonnull(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count - 2;
}

static void wait_for_threads(pid_t pid, unsigned count)
{
	uint64_t deadline = now_ns() + WAIT_NS;

	while (threads_of(pid) < count) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
}

/* How many threads of pid there are samples of. */
static unsigned sampled_threads(enum stack_file_stream_kind kind, pid_t pid)
{
	const struct stack_recorder_stream *stream = stream_of(&rig, kind);
	const struct perf_record_format format = { stream->head.sample_type, stream->head.regs_user };
	uint32_t tids[64];
	unsigned count = 0;
	struct perf_record record;

	for (size_t at = 0; at < stream->records.len; at += record.size) {
		unsigned i = 0;

		ck_assert_int_eq(
			perf_record_decode(&format, stream->records.data + at, stream->records.len - at, &record), 0);
		if (record.pid != (uint32_t)pid)
			continue;
		while (i < count && tids[i] != record.tid)
			i++;
		if (i == count && count < 64)
			tids[count++] = record.tid;
	}
	return count;
}

static void wait_until_sampled(pid_t pid, unsigned threads)
{
	uint64_t deadline = now_ns() + WAIT_NS;

	for (;;) {
		take_all();
		if (sampled_threads(STACK_FILE_CPU_FOLLOWED, pid) >= threads)
			return;
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(50000);
	}
}

START_TEST(all_threads_are_sampled_and_those_that_begin_later)
{
	int fd;
	pid_t pid;

	if (!begin_with(&rig, &followed_only))
		SKIP_TEST("%s", skip_reason);
	pid = child_of_threads(&fd);
	wait_for_threads(pid, 4);
	follow_one(&rig, pid);
	ck_assert_uint_eq(status_now(&rig).followed_threads, 4);
	wait_until_sampled(pid, 3);
	ck_assert_int_eq(write(fd, "xx", 2), 2);
	wait_for_threads(pid, 8);
	wait_until_sampled(pid, 7);
	/* they have inherited: nothing was opened for them */
	ck_assert_uint_eq(status_now(&rig).followed_threads, 4);
	end_child(pid);
	close(fd);
	end(&rig);
}
END_TEST

/* ---- counted once ---- */

static uint64_t period_of(enum stack_file_stream_kind kind, pid_t pid)
{
	return look_in(&rig, kind, pid).period;
}

/* A child that forks: the grandchild burns. Both pids. */
static pid_t forking_child(pid_t *ret_grandchild, int *ret_fd)
{
	int go[2], told[2];
	pid_t pid, grandchild;

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(told), 0);
	pid = fork();
	if (pid == 0) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "forking-child");
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		grandchild = burning_child();
		if (write(told[1], &grandchild, sizeof(grandchild)) != sizeof(grandchild))
			_exit(1);
		while (read(go[0], &byte, 1) == 1)
			;
		_exit(0);
	}
	follow_one(&rig, pid);
	ck_assert_int_eq(write(go[1], "x", 1), 1);
	ck_assert_int_eq(read(told[0], ret_grandchild, sizeof(*ret_grandchild)), sizeof(*ret_grandchild));
	close(go[0]);
	close(told[0]);
	close(told[1]);
	*ret_fd = go[1];
	return pid;
}

static void wait_until_threads(unsigned threads)
{
	uint64_t deadline = now_ns() + WAIT_NS;

	while (status_now(&rig).followed_threads != threads) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(5000);
	}
}

/*
 * By everybody's events, whose clock is the same: CPU time leaves out what a virtual machine was
 * not given. Of 600 samples of theirs 4 % are one standard deviation, where others use the CPU,
 * too; its own are due by the time that it ran.
 */
static void check_counted_once(pid_t pid)
{
	uint64_t everybody = period_of(STACK_FILE_CPU, pid), followed = period_of(STACK_FILE_CPU_FOLLOWED, pid);

	ck_assert_uint_gt(everybody, 300 * NS_PER_MS);
	ck_assert_msg(followed > everybody / 3 * 2 && followed < everybody / 3 * 4,
		      "%ju of its own, %ju of everybody's", (uintmax_t)followed, (uintmax_t)everybody);
}

START_TEST(what_a_followed_process_starts_is_followed_and_counted_once)
{
	uint32_t pids[2];
	pid_t pid, grandchild;
	int fd;

	if (!begin_with_stacks_of(&many_samples))
		SKIP_TEST("%s", skip_reason);
	pid = forking_child(&grandchild, &fd);
	pids[0] = (uint32_t)pid;
	pids[1] = (uint32_t)grandchild;
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, pids, 2), 0);
	wait_until_followed(&rig, 2);
	/*
	 * that of the child: the grandchild has inherited it, which the next look at the side rings
	 * may tell
	 */
	wait_until_threads(1);
	wait_until_it_burned(grandchild, 600 * NS_PER_MS);
	take_all();
	check_counted_once(grandchild);

	/*
	 * The child leaves the set: the grandchild gets events of its own, and is still counted
	 * once.
	 */
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, pids + 1, 1), 0);
	wait_until_followed(&rig, 1);
	ck_assert_uint_eq(status_now(&rig).followed_threads, 1);
	wait_until_it_burned(grandchild, 600 * NS_PER_MS);
	take_all();
	check_counted_once(grandchild);
	kill(grandchild, SIGKILL);
	close(fd);
	end_child(pid);
	end(&rig);
}
END_TEST

START_TEST(what_a_process_started_is_followed_on_when_that_has_exited)
{
	uint32_t pids[2];
	pid_t pid, grandchild;
	uint64_t deadline;
	int fd;

	if (!begin_with(&rig, &followed_only))
		SKIP_TEST("%s", skip_reason);
	/* or it ends with the child */
	pid = forking_child(&grandchild, &fd);
	pids[0] = (uint32_t)pid;
	pids[1] = (uint32_t)grandchild;
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, pids, 2), 0);
	wait_until_followed(&rig, 2);
	kill(grandchild, SIGKILL);
	close(fd);
	end_child(pid);
	deadline = now_ns() + WAIT_NS;
	while (status_now(&rig).followed_threads != 0 || status_now(&rig).followed_processes != 0) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
	end(&rig);
}
END_TEST

/* ---- without privilege ---- */

START_TEST(followed_only_has_names_and_mappings_of_those_that_exited)
{
	struct seen seen;
	pid_t pid, grandchild;
	int fd;

	if (!begin_with(&rig, &followed_only))
		SKIP_TEST("%s", skip_reason);
	ck_assert(!status_now(&rig).system_wide);
	pid = forking_child(&grandchild, &fd);
	wait_until_it_burned(grandchild, 300 * NS_PER_MS);
	kill(grandchild, SIGKILL);
	close(fd);
	end_child(pid);
	take_all();
	ck_assert_ptr_null(stream_of(&rig, STACK_FILE_CPU));
	ck_assert_ptr_null(stream_of(&rig, STACK_FILE_FAULTS));
	seen = look_in(&rig, STACK_FILE_CPU_FOLLOWED, grandchild);
	ck_assert_uint_ge(seen.samples, 10);
	ck_assert_uint_ge(seen.in_function * 10, seen.samples * 8);
	ck_assert_str_eq(seen.comm, "burning;child");
	ck_assert_uint_ge(seen.maps, 2);
	ck_assert_uint_eq(rig.snapshot.unmapped, 0);
	end(&rig);
}
END_TEST

static void as_nobody(void)
{
	char reason[STACK_RECORDER_REASON_MAX];
	struct stack_recorder_status status;
	struct seen seen;
	pid_t pid, grandchild;
	uint64_t deadline;
	uint32_t parent;
	int fd;

	ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
	/* or the user may not trace its own children */
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
	ck_assert_msg(stack_recorder_open(&with_stacks, &rig.recorder, reason) == 0, "%s", reason);
	stack_recorder_status(rig.recorder, &status);
	if (status.system_wide)
		_exit(0);
	ck_assert_ptr_nonnull(strstr(reason, "; kernel.perf_event_paranoid is "));
	pid = forking_child(&grandchild, &fd);
	wait_until_it_burned(grandchild, 400 * NS_PER_MS);
	take_all();
	seen = look_in(&rig, STACK_FILE_CPU_FOLLOWED, grandchild);
	ck_assert_uint_ge(seen.samples, 10);
	ck_assert_uint_eq(seen.with_stack, status.dwarf ? seen.samples : 0);
	ck_assert_uint_ge(seen.in_function * 10, seen.samples * 8);
	if (!status.kernel)
		ck_assert_uint_eq(seen.with_kernel, 0);
	ck_assert_str_eq(seen.comm, "burning;child");
	kill(grandchild, SIGKILL);
	close(fd);
	end_child(pid);
	/* root's: not allowed */
	parent = (uint32_t)getppid();
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, &parent, 1), 0);
	deadline = now_ns() + WAIT_NS;
	while (status_now(&rig).not_followed != 1) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
}

/*
 * With no room for locked memory but what every user has: rings are smaller, and that there are no
 * stacks then is told.
 */
static void as_nobody_without_memory(void)
{
	const struct rlimit none = { 0, 0 };
	struct stack_recorder_status before;
	char reason[STACK_RECORDER_REASON_MAX];

	before = status_now(&rig);
	stack_recorder_close(rig.recorder);
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	ck_assert_msg(stack_recorder_open(&with_stacks, &rig.recorder, reason) == 0, "%s", reason);
	ck_assert_uint_le(status_now(&rig).ring_bytes, before.ring_bytes);
	ck_assert_int_eq(status_now(&rig).dwarf, status_now(&rig).limits[0] == '\0');
	ck_assert(status_now(&rig).dwarf || strstr(status_now(&rig).limits, "RLIMIT_MEMLOCK") != NULL);
	stack_recorder_close(rig.recorder);
}

static int paranoid(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "r");
	int value = 3;

	if (file != NULL) {
		ck_assert_int_eq(fscanf(file, "%d", &value), 1);
		fclose(file);
	}
	return value;
}

START_TEST(an_ordinary_user_may_follow_its_own)
{
	int status;
	pid_t pid;

	if (getuid() != 0 || paranoid() > 2) {
		SKIP_TEST("not root, or paranoid");
	}
	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	end(&rig);
	pid = fork();
	if (pid == 0) {
		as_nobody();
		as_nobody_without_memory();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* ---- page faults ---- */

#define TOUCHED ((size_t)64 << 20)

static pid_t touching_child(void)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		volatile char *memory = mmap(NULL, TOUCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		madvise((void *)memory, TOUCHED, MADV_NOHUGEPAGE);
		for (size_t i = 0; i < TOUCHED; i += 4096)
			memory[i] = 1;
		munmap((void *)memory, TOUCHED);
	}
}

static uint64_t faults_of(pid_t pid)
{
	char name[32], text[1024] = "";
	unsigned long long faults = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	file = fopen(name, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_int_eq(sscanf(strrchr(text, ')'), ") %*c %*d %*d %*d %*d %*d %*u %llu", &faults), 1);
	return faults;
}

/* Of the whole machine. */
static uint64_t all_faults(void)
{
	char line[128];
	unsigned long long faults = 0;
	FILE *file = fopen("/proc/vmstat", "r");

	ck_assert_ptr_nonnull(file);
	while (faults == 0 && fgets(line, sizeof(line), file) != NULL)
		sscanf(line, "pgfault %llu", &faults);
	fclose(file);
	return faults;
}

/*
 * others: what everybody else had meanwhile. Where faults are not counted it is known how many
 * there were on the whole machine: those of others may be given to this process, too; or its own to
 * others, eight and more for each that others had while they were counted.
 */
static void check_faults(enum stack_file_stream_kind kind, pid_t pid, uint64_t touched, uint64_t others)
{
	struct seen seen = look_in(&rig, kind, pid);

	ck_assert_uint_ge(seen.samples, 5);
	/* each says how many it stands for */
	ck_assert_msg(seen.period + 10 * others > touched / 4 * 3 && seen.period < touched / 3 * 4 + others,
		      "%ju faults of %ju, others had %ju", (uintmax_t)seen.period, (uintmax_t)touched,
		      (uintmax_t)others);
	ck_assert_uint_eq(stream_of(&rig, kind)->head.units_per_second, 0);
}

START_TEST(page_faults_are_sampled_and_their_periods_say_how_many)
{
	uint64_t touched, all = all_faults();
	pid_t pid;

	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	pid = touching_child();
	follow_one(&rig, pid);
	wait_until_it_burned(pid, 800 * NS_PER_MS);
	stop_child(pid);
	touched = faults_of(pid);
	take_all();
	all = all_faults() - all;
	end_child(pid);
	/* one event of everybody, with stacks, and none of its own */
	check_faults(STACK_FILE_FAULTS, pid, touched, all - touched);
	ck_assert_uint_gt(look_in(&rig, STACK_FILE_FAULTS, pid).with_stack, 0);
	ck_assert_ptr_null(stream_of(&rig, STACK_FILE_FAULTS_FOLLOWED));
	ck_assert_int_eq(status_now(&rig).faults_error, 0);
	end(&rig);
}
END_TEST

START_TEST(page_faults_of_followed_threads_are_sampled_and_their_periods_say_how_many)
{
	uint64_t before, touched, all = all_faults();
	pid_t pid;

	if (!begin_with(&rig, &followed_only))
		SKIP_TEST("%s", skip_reason);
	pid = touching_child();
	follow_one(&rig, pid);
	before = faults_of(pid);
	wait_until_it_burned(pid, 800 * NS_PER_MS);
	stop_child(pid);
	touched = faults_of(pid) - before;
	take_all();
	all = all_faults() - all;
	end_child(pid);
	/* with what it had before it was followed */
	check_faults(STACK_FILE_FAULTS_FOLLOWED, pid, touched, all - touched);
	ck_assert_ptr_null(stream_of(&rig, STACK_FILE_FAULTS));
	end(&rig);
}
END_TEST

START_TEST(without_page_faults_there_are_none)
{
	if (!begin_with(&rig, &(struct stack_recorder_options){ .dwarf = true, .without_faults = true }))
		SKIP_TEST("%s", skip_reason);
	ck_assert(!status_now(&rig).faults);
	take_all();
	ck_assert_ptr_null(stream_of(&rig, STACK_FILE_FAULTS));
	ck_assert_ptr_null(stream_of(&rig, STACK_FILE_FAULTS_FOLLOWED));
	end(&rig);
}
END_TEST

/* ---- ends and limits ---- */

START_TEST(descriptors_of_those_that_left_or_exited_are_given_back)
{
	char text[32];
	unsigned before, status_cpus;
	uint64_t deadline;
	pid_t pid;

	/* events of page faults are closed and opened as others on this machine have it */
	if (!begin_with(&rig, &(struct stack_recorder_options){ .dwarf = true, .without_faults = true }))
		SKIP_TEST("%s", skip_reason);
	ck_assert(status_now(&rig).dwarf || status_now(&rig).limits[0] != '\0');
	if (!status_now(&rig).dwarf) {
		skip_because("%s", status_now(&rig).limits);
		end(&rig);
		SKIP_TEST("%s", skip_reason);
	}
	/* What it is read with has some, from now on. */
	ck_assert_int_gt(foreign_read(FOREIGN_STACKS, -1, 0, "/proc/self/comm", text, sizeof(text)), 0);
	before = open_descriptors();
	status_cpus = status_now(&rig).cpus;
	pid = burning_child();
	follow_one(&rig, pid);
	ck_assert_uint_eq(open_descriptors(), before + status_cpus);
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, NULL, 0), 0);
	wait_until_followed(&rig, 0);
	ck_assert_uint_eq(open_descriptors(), before);

	follow_one(&rig, pid);
	end_child(pid);
	deadline = now_ns() + WAIT_NS;
	while (open_descriptors() != before) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
	wait_until_followed(&rig, 0);
	ck_assert_uint_eq(status_now(&rig).not_followed, 0);
	end(&rig);
}
END_TEST

static unsigned descriptors_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

#define TOO_MANY 48

START_TEST(what_does_not_fit_is_told_and_tried_again_when_the_set_changes)
{
	struct rlimit before, few;
	uint32_t pids[TOO_MANY];
	uint64_t deadline;
	unsigned room, all, least;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	room = 3;
	few.rlim_cur = 4UL * (room * status_now(&rig).cpus) + 3;
	/* More than what is open, which make(1) and tests that run beside it add to. */
	least = descriptors_open() + 60;
	end(&rig);
	if (few.rlim_cur < least)
		few.rlim_cur = least;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert(begin_with_stacks());
	room = (unsigned)(few.rlim_cur / 4 / status_now(&rig).cpus);
	ck_assert_uint_ge(room, 3);
	all = room + 3 < TOO_MANY ? room + 3 : TOO_MANY;
	for (int i = 0; i < (int)all; i++)
		pids[i] = (uint32_t)burning_child();
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, pids, all), 0);
	wait_until_followed(&rig, room < all ? room : all);
	ck_assert_uint_eq(status_now(&rig).not_followed, room < all ? all - room : 0);
	/* the first go first; now the others */
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, pids + all - 3, 3), 0);
	deadline = now_ns() + WAIT_NS;
	while (status_now(&rig).followed_processes != 3 || status_now(&rig).not_followed != 0) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
	for (int i = 0; i < (int)all; i++)
		end_child((pid_t)pids[i]);
	end(&rig);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}
END_TEST

START_TEST(nobody_there_is_nobody_to_follow)
{
	uint32_t pids[3] = { 0x3fffffff, 0, 0 };

	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	pids[1] = pids[2] = (uint32_t)getpid();
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, pids, 3), 0);
	wait_until_followed(&rig, 1);
	ck_assert_uint_eq(status_now(&rig).not_followed, 0);
	end(&rig);
}
END_TEST

/* ---- several threads of ours ---- */

struct changer {
	uint32_t pids[2];
	int stop;
};

static void *change_the_set(void *argument)
{
	struct changer *changer = argument;

	for (unsigned i = 0; i < 10000 && !__atomic_load_n(&changer->stop, __ATOMIC_RELAXED); i++) {
		stack_recorder_follow(rig.recorder, changer->pids, i % 3);
		usleep(1000);
	}
	return NULL;
}

START_TEST(the_set_may_change_while_snapshots_are_taken)
{
	struct changer changer = { 0 };
	pthread_t thread;

	if (!begin_with_stacks())
		SKIP_TEST("%s", skip_reason);
	changer.pids[0] = (uint32_t)burning_child();
	changer.pids[1] = (uint32_t)burning_child();
	ck_assert_int_eq(pthread_create(&thread, NULL, change_the_set, &changer), 0);
	for (int i = 0; i < 30; i++)
		take_all();
	__atomic_store_n(&changer.stop, 1, __ATOMIC_RELAXED);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(stack_recorder_follow(rig.recorder, changer.pids, 2), 0);
	wait_until_followed(&rig, 2);
	end_child((pid_t)changer.pids[0]);
	end_child((pid_t)changer.pids[1]);
	end(&rig);
}
END_TEST

START_TEST(every_allocation_of_a_snapshot_with_stacks_may_fail)
{
	/* little memory: a ring is copied each time */
	const struct stack_recorder_options small = { .dwarf = true, .max_memory_bytes = 12ULL << 20 };
	bool injected = true;
	pid_t pid;

	if (!begin_with(&rig, &small))
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	if (status_now(&rig).dwarf)
		follow_one(&rig, pid);
	wait_until_it_burned(pid, 100 * NS_PER_MS);
	stack_recorder_follow(rig.recorder, NULL, 0);
	wait_until_followed(&rig, 0);
	end_child(pid);
	for (long n = 1; injected && n < 100000; n++) {
		int r;

		torture_arm(n);
		r = stack_recorder_snapshot(rig.recorder, 0, UINT64_MAX, 0, &rig.snapshot);
		injected = torture_disarm();
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		stack_recorder_snapshot_release(&rig.snapshot);
	}
	ck_assert(!injected);
	end(&rig);
}
END_TEST

Suite *stack_recorder_follow_suite(void)
{
	Suite *suite = suite_create("stack_recorder_follow");
	TCase *tcase = tcase_create("stack_recorder_follow");

	tcase_add_test(tcase, a_followed_process_is_sampled_with_registers_and_stack);
	tcase_add_test(tcase, all_modules_of_a_process_with_stacks_are_listed);
	tcase_add_test(tcase, all_threads_are_sampled_and_those_that_begin_later);
	tcase_add_test(tcase, what_a_followed_process_starts_is_followed_and_counted_once);
	tcase_add_test(tcase, what_a_process_started_is_followed_on_when_that_has_exited);
	tcase_add_test(tcase, followed_only_has_names_and_mappings_of_those_that_exited);
	tcase_add_test(tcase, an_ordinary_user_may_follow_its_own);
	tcase_add_test(tcase, page_faults_are_sampled_and_their_periods_say_how_many);
	tcase_add_test(tcase, page_faults_of_followed_threads_are_sampled_and_their_periods_say_how_many);
	tcase_add_test(tcase, without_page_faults_there_are_none);
	tcase_add_test(tcase, descriptors_of_those_that_left_or_exited_are_given_back);
	tcase_add_test(tcase, what_does_not_fit_is_told_and_tried_again_when_the_set_changes);
	tcase_add_test(tcase, nobody_there_is_nobody_to_follow);
	tcase_add_test(tcase, the_set_may_change_while_snapshots_are_taken);
	tcase_add_test(tcase, every_allocation_of_a_snapshot_with_stacks_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
