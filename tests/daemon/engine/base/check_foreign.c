/*
 * check_foreign.c: a file system that does not answer, in each of its requests; processes whose
 * memory cannot be read; a child that is stopped; limits of what is left behind.
 */
#include "daemon/engine/base/foreign.c"
#include "fuse_mount.h"
#include "scene.h"
#include "skip.h"

#include <check.h>

Suite *foreign_suite(void);

static struct fuse_mount fuse;
static int procfd;
static char text[4096];
static size_t copy_room;

static void setup(void)
{
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
	copy_room = 64u << 20;
}

static void teardown(void)
{
	close(procfd);
}

static uint64_t since_ms(mono_t from)
{
	return (uint64_t)mono_diff(now_mono(), from) / NS_PER_MS;
}

/* What is left behind ends when the server does; what can be killed, soon. */
static void expect_nothing_left(void)
{
	for (int i = 0; i < 3000 && foreign_counts().left > 0; i++)
		usleep(10000);
	ck_assert_uint_eq(foreign_counts().left, 0);
}

START_TEST(reads_a_file_of_a_process)
{
	char own[4096];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = read(fd, own, sizeof(own));

	close(fd);
	ck_assert_int_eq(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, sizeof(text)), len);
	ck_assert_mem_eq(text, own, (size_t)len);
	ck_assert_int_eq(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, 5), 4);
	ck_assert_int_eq(strncmp(text, own, 4), 0);
	ck_assert_uint_eq(strlen(text), 4);
	ck_assert_int_eq(foreign_read(FOREIGN_DISCOVERY, procfd, INT32_MAX, "cmdline", text, sizeof(text)), -ESRCH);
	ck_assert_int_eq(foreign_read(FOREIGN_DISCOVERY, AT_FDCWD, 0, "/tmp/there/is/none", text, sizeof(text)),
			 -ENOENT);
}
END_TEST

/* More than one message has. */
START_TEST(reads_a_large_file_whole)
{
	size_t size = 3 * PIECE_BYTES + 17;
	char path[] = "/tmp/check_foreign.XXXXXX", *data = malloc(size), *found = malloc(size + 1);
	int fd = mkstemp(path);

	for (size_t i = 0; i < size; i++)
		data[i] = (char)(i * 31 >> 4);
	ck_assert_int_eq(sink_write_all(fd, data, size), 0);
	ck_assert_int_eq(foreign_read(FOREIGN_STACKS, AT_FDCWD, 0, path, found, size + 1), (ssize_t)size);
	ck_assert_mem_eq(found, data, size);
	close(fd);
	unlink(path);
	free(data);
	free(found);
}
END_TEST

static int count_to(int dirfd, const void *argument, size_t len, const struct sink *to)
{
	unsigned end;

	ck_assert_uint_eq(len, sizeof(end));
	memcpy(&end, argument, sizeof(end));
	for (unsigned i = 0; i < end; i++)
		sink_write(to, &i, sizeof(i));
	return faccessat(dirfd, "self", F_OK, 0) == 0 ? 0 : -errno;
}

START_TEST(the_child_calls_a_function)
{
	unsigned found[100], end = 100;

	ck_assert_int_eq(
		foreign_call(FOREIGN_STACKS, procfd, 1, "x", count_to, &end, sizeof(end), found, sizeof(found)),
		sizeof(found));
	for (unsigned i = 0; i < end; i++)
		ck_assert_uint_eq(found[i], i);
	ck_assert_int_eq(
		foreign_call(FOREIGN_STACKS, procfd, 1, "x", count_to, &end, sizeof(end), found, sizeof(found) - 1),
		-EIO);
	ck_assert_int_eq(
		foreign_call(FOREIGN_STACKS, AT_FDCWD, 1, "x", count_to, &end, sizeof(end), found, sizeof(found)),
		-ENOENT);
}
END_TEST

START_TEST(a_file_of_this_machine_is_handed_over_itself)
{
	char path[] = "/tmp/check_foreign.XXXXXX";
	struct stat named, status, opened;
	int own = mkstemp(path), fd;

	ck_assert_int_eq(sink_write_all(own, "abc", 3), 0);
	ck_assert_int_eq(fstat(own, &named), 0);
	fd = foreign_open(FOREIGN_INCIDENTS, procfd, 0, path, 0, &copy_room, &status);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &opened), 0);
	ck_assert_uint_eq(opened.st_ino, named.st_ino);
	ck_assert_uint_eq(status.st_ino, named.st_ino);
	close(fd);
	close(own);
	unlink(path);
	ck_assert_int_eq(foreign_open(FOREIGN_INCIDENTS, procfd, 0, path, 0, &copy_room, &status), -ENOENT);
	ck_assert_int_eq(foreign_open(FOREIGN_INCIDENTS, procfd, 0, "/dev/null", 0, &copy_room, &status), -EINVAL);
}
END_TEST

/* Of a file system that may stop to answer, this process has nothing open: not even to close it. */
START_TEST(a_file_of_a_server_is_copied)
{
	struct stat status, opened;
	char data[16];
	int fd;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	copy_room = 1000;
	ck_assert_int_eq(foreign_open(FOREIGN_INCIDENTS, procfd, 0, fuse.file, 0, &copy_room, &status), -EFBIG);
	ck_assert_uint_eq(copy_room, 1000);
	copy_room = 64u << 20;
	fd = foreign_open(FOREIGN_INCIDENTS, procfd, 0, fuse.file, 0, &copy_room, &status);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(status.st_ino, 2);
	ck_assert_uint_eq(copy_room, (64u << 20) - (size_t)status.st_size);
	ck_assert_int_eq(fstat(fd, &opened), 0);
	ck_assert_uint_ne(opened.st_dev, status.st_dev);
	ck_assert_int_eq(opened.st_size, status.st_size);
	ck_assert_int_eq(pread(fd, data, 4, 0), 4);
	ck_assert_mem_eq(data, "\177ELF", 4);
	fuse_mount_hang(&fuse, FUSE_HANGS(FUSE_READ) | FUSE_HANGS(FUSE_FLUSH));
	ck_assert_int_eq(pread(fd, data, 4, status.st_size - 4), 4);
	close(fd);
	fuse_mount_end(&fuse);
}
END_TEST

/* In a user namespace of its own: an overlay, which is over DIRECTORY/merged, until it is killed. */
static pid_t start_overlay(const char *directory)
{
	int ready[2];
	pid_t pid;
	char byte = 0;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		char merged[64], options[160];

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(merged, sizeof(merged), "%s/merged", directory);
		snprintf(options, sizeof(options), "lowerdir=%s/one:%s/two,userxattr", directory, directory);
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
		    mount("overlay", merged, "overlay", MS_RDONLY, options) == 0)
			byte = 1;
		(void)!write(ready[1], &byte, 1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	if (byte)
		return pid;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}

static bool is_itself(int32_t pid, const char *path)
{
	struct stat status, opened;
	int fd = foreign_open(FOREIGN_INCIDENTS, procfd, pid, path, 0, &copy_room, &status);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &opened), 0);
	close(fd);
	return opened.st_ino == status.st_ino && opened.st_dev == status.st_dev;
}

/* Other processes may lead there, by a link for one; only what is mounted here is this machine's own. */
START_TEST(an_overlay_of_a_user_namespace_is_copied)
{
	static const char *const inner[] = { "one", "two", "merged" };
	char directory[] = "/tmp/check_foreign.XXXXXX", path[96], link[64], options[160];
	pid_t pid;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	ck_assert_int_eq(chmod(directory, 0755), 0);
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", directory, "tmpfs", 0, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(inner); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, inner[i]);
		ck_assert_int_eq(mkdir(path, 0755), 0);
	}
	snprintf(path, sizeof(path), "%s/one/file", directory);
	scene_write(path, "abc");
	pid = start_overlay(directory);
	if (!pid)
		SKIP_TEST("no overlay in a user namespace");
	snprintf(path, sizeof(path), "/proc/%d/root%s/merged/file", pid, directory);
	snprintf(link, sizeof(link), "%s/link", directory);
	ck_assert_int_eq(symlink(path, link), 0);
	ck_assert(!is_itself(getpid(), link));
	ck_assert(!is_itself(pid, path));
	ck_assert(!is_itself(INT32_MAX, path)); /* it has ended */

	snprintf(options, sizeof(options), "lowerdir=%s/one:%s/two", directory, directory);
	snprintf(path, sizeof(path), "%s/merged", directory);
	ck_assert_int_eq(mount("overlay", path, "overlay", MS_RDONLY, options), 0);
	snprintf(path, sizeof(path), "%s/merged/file", directory);
	ck_assert(is_itself(getpid(), path));
	ck_assert(is_itself(INT32_MAX, path));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	umount2(path, MNT_DETACH);
	umount2(directory, MNT_DETACH);
	rmdir(directory);
}
END_TEST

static const uint64_t hangs[] = { FUSE_HANGS(FUSE_LOOKUP), FUSE_HANGS(FUSE_GETATTR), FUSE_HANGS(FUSE_OPEN),
				  FUSE_HANGS(FUSE_READ),   FUSE_HANGS(FUSE_FLUSH),   FUSE_HANGS(FUSE_STATFS) };

/* The child is left behind; later requests of others are answered as before, at once. */
START_TEST(a_server_that_does_not_answer_costs_its_file)
{
	struct stat status;
	mono_t from;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	fuse_mount_hang(&fuse, hangs[_i]);
	from = now_mono();
	ck_assert_int_eq(foreign_open(FOREIGN_INCIDENTS, procfd, 0, fuse.file, 0, &copy_room, &status), -ETIMEDOUT);
	ck_assert_uint_lt(since_ms(from), 10000);
	ck_assert_uint_gt(fuse.shared->ignored, 0);
	ck_assert_uint_eq(foreign_counts().left, 1);
	ck_assert_uint_eq(foreign_counts().hung, 1);
	ck_assert_int_gt(foreign_read(FOREIGN_INCIDENTS, procfd, getpid(), "maps", text, sizeof(text)), 0);

	/* The same once more is not even tried. */
	ck_assert_int_eq(foreign_open(FOREIGN_INCIDENTS, procfd, 0, fuse.file, 0, &copy_room, &status), -EBUSY);
	ck_assert_uint_eq(foreign_counts().refused, 1);
	ck_assert_uint_eq(foreign_counts().left, 1);
	fuse_mount_end(&fuse);
	expect_nothing_left();
}
END_TEST

/* Of one whose mmap lock is taken, too. What waits for that can be killed. */
START_TEST(a_process_whose_memory_is_locked_costs_its_own)
{
	pid_t pid;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	pid = fuse_mount_lock_process(&fuse, 0);
	ck_assert_int_eq(foreign_read(FOREIGN_DISCOVERY, procfd, pid, "cmdline", text, sizeof(text)), -ETIMEDOUT);
	ck_assert_str_eq(foreign_error(-ETIMEDOUT), "did not answer in time");
	sums.owners[0].until.ns = 1;
	ck_assert_int_eq(foreign_read(FOREIGN_INCIDENTS, procfd, pid, "smaps", text, sizeof(text)), -ETIMEDOUT);
	ck_assert_uint_eq(foreign_counts().hung, 2);
	expect_nothing_left();
	fuse_mount_end(&fuse);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

/* Of a process of this program's that has had more memory than it has. */
static uint64_t peak_of(pid_t pid)
{
	uint64_t kib = 0;
	const char *line;

	ck_assert_int_gt(proc_read_file(procfd, pid, "status", text, sizeof(text)), 0);
	line = strstr(text, "VmHWM:");
	ck_assert(line && sscanf(line, "VmHWM: %ju", &kib) == 1);
	return kib;
}

static int open_clear_refs(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "%d/clear_refs", pid);
	return openat(procfd, path, O_WRONLY | O_CLOEXEC);
}

#define MANY (64u << 20)

/* One whose memory is locked delays no caller, and others only by the time that a request has. */
START_TEST(a_peak_is_reset_without_waiting_for_the_process)
{
	int locked, own = open_clear_refs(getpid());
	char *memory = mmap(NULL, MANY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint64_t before = peak_of(getpid());
	mono_t from;
	pid_t pid;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	pid = fuse_mount_lock_process(&fuse, 0);
	locked = open_clear_refs(pid);
	ck_assert_int_eq(foreign_peaks_begin(), 0);
	ck_assert_int_eq(foreign_peaks_begin(), 0);
	munmap(memory, MANY);
	from = now_mono();
	for (int i = 0; i < 1000; i++)
		foreign_reset_peak(locked);
	ck_assert_uint_lt(since_ms(from), FOREIGN_PATIENCE_NS / NS_PER_MS);
	for (int i = 0; i < 3000 && peak_of(getpid()) > before - MANY / 2048; i++) {
		foreign_reset_peak(own); /* the queue was full */
		usleep(10000);
	}
	ck_assert_uint_lt(peak_of(getpid()), before - MANY / 2048);
	ck_assert_uint_eq(foreign_counts().hung, 1);
	fuse_mount_end(&fuse);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(locked);
	close(own);
}
END_TEST

/* A process that is read and belongs to this user, but does nothing. */
static pid_t start_idle(uid_t uid)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setuid(uid) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	return pid;
}

/* What a recorder with this ring finds, and can read. */
struct recorder {
	_Atomic unsigned left, refused;
	_Atomic bool read_other;
};

static pid_t asked_for;

static void *ask_as(void *lane)
{
	struct stat status;
	size_t room = 64u << 20;

	return (void *)(intptr_t)foreign_open(*(const enum foreign_lane *)lane, procfd, asked_for, fuse.file, 0, &room,
					      &status);
}

/* How many slots say whose file is waited for. */
static unsigned count_slow(const char *ring)
{
	char path[80];
	uint64_t owners[SLOTS];
	unsigned count = 0;
	int fd;
	ssize_t len;

	snprintf(path, sizeof(path), "%s.readers", ring);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? 0 : read(fd, owners, sizeof(owners));
	close(fd);
	for (size_t i = 0; len > 0 && i < (size_t)len / sizeof(*owners); i++)
		count += owners[i] == 4001;
	return count;
}

/* Asks for a file of one user in three lanes at once, and for one of another; is killed. */
static void record_until_killed(const char *ring, pid_t user, pid_t other, struct recorder *ret)
{
	static const enum foreign_lane which[] = { FOREIGN_DISCOVERY, FOREIGN_STACKS, FOREIGN_INCIDENTS };
	pthread_t threads[ARRAY_LEN(which)];
	uint64_t before = fuse.shared->ignored;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		foreign_begin(ring);
		/* An idle one of the recorder before may take its time to end. */
		for (int i = 0; i < 2000 && foreign_counts().left > ARRAY_LEN(which); i++)
			usleep(10000);
		ret->left = foreign_counts().left;
		ret->read_other = foreign_read(FOREIGN_PEAKS, procfd, other, "cmdline", text, sizeof(text)) > 0;
		asked_for = user;
		for (size_t i = 0; i < ARRAY_LEN(which); i++)
			pthread_create(&threads[i], NULL, ask_as, (void *)(uintptr_t)&which[i]);
		for (;;) {
			ret->refused = (unsigned)foreign_counts().refused;
			usleep(1000);
		}
	}
	for (int i = 0; i < 2000 && (fuse.shared->ignored + ret->refused < before + ARRAY_LEN(which) ||
				     count_slow(ring) < ARRAY_LEN(which));
	     i++)
		usleep(10000);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

START_TEST(what_was_left_behind_counts_for_the_recorders_after_it)
{
	struct recorder *found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char directory[] = "/tmp/check_readers.XXXXXX", ring[64], readers[80];
	pid_t user, other;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(ring, sizeof(ring), "%s/ring", directory);
	user = start_idle(4001);
	other = start_idle(4002);
	usleep(50000);
	fuse_mount_hang(&fuse, FUSE_HANGS(FUSE_OPEN));
	for (unsigned killed = 0; killed < 4; killed++) {
		record_until_killed(ring, user, other, found);
		ck_assert_uint_eq(fuse.shared->ignored, 3);
		ck_assert_uint_eq(found->left, killed == 0 ? 0 : 3);
		ck_assert_uint_eq(found->refused, killed == 0 ? 0 : 3);
		ck_assert(found->read_other);
	}

	foreign_begin(ring);
	for (int i = 0; i < 2000 && foreign_counts().left > 3; i++)
		usleep(10000);
	ck_assert_uint_eq(foreign_counts().left, 3);
	ck_assert(is_refused(4001, FOREIGN_STACKS, now_mono(), FOREIGN_PATIENCE_NS));
	fuse_mount_end(&fuse);
	expect_nothing_left();
	ck_assert(!is_refused(4001, FOREIGN_STACKS, mono_add(now_mono(), NS_PER_S), FOREIGN_PATIENCE_NS));
	kill(user, SIGKILL);
	kill(other, SIGKILL);
	snprintf(readers, sizeof(readers), "%s.readers", ring);
	ck_assert_int_eq(unlink(readers), 0);
	rmdir(directory);
}
END_TEST

/* Many files of one user leave two children behind; another user's are read all the time. */
START_TEST(a_user_cannot_use_up_the_children)
{
	pid_t user, other;
	struct stat status;
	int hung = 0, refused = 0;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	user = start_idle(4001);
	other = start_idle(4002);
	usleep(50000);
	fuse_mount_hang(&fuse, FUSE_HANGS(FUSE_OPEN));
	for (size_t i = 0; i < 6; i++) {
		int r = foreign_open(FOREIGN_DISCOVERY, procfd, user, fuse.file, 0, &copy_room, &status);

		hung += r == -ETIMEDOUT;
		refused += r == -EBUSY;
		for (size_t owner = 0; owner < OWNERS_MAX; owner++) /* as if the pause was over */
			if (sums.owners[owner].until.ns > 0)
				sums.owners[owner].until.ns = 1;
		ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, other, "cmdline", text, sizeof(text)), 0);
	}
	ck_assert_int_eq(hung, FOREIGN_LEFT_PER_USER);
	ck_assert_int_eq(refused, 6 - FOREIGN_LEFT_PER_USER);
	ck_assert_uint_eq(foreign_counts().left, FOREIGN_LEFT_PER_USER);
	fuse_mount_end(&fuse);
	expect_nothing_left();
	kill(user, SIGKILL);
	kill(other, SIGKILL);
}
END_TEST

START_TEST(a_child_that_is_stopped_is_replaced)
{
	ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, sizeof(text)), 0);
	kill(lanes[FOREIGN_DISCOVERY].child.pid, SIGSTOP);
	ck_assert_int_eq(foreign_read(FOREIGN_DISCOVERY, procfd, getppid(), "cmdline", text, sizeof(text)), -ETIMEDOUT);
	expect_nothing_left();
	for (size_t owner = 0; owner < OWNERS_MAX; owner++)
		sums.owners[owner].until.ns = 0;
	ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, sizeof(text)), 0);
}
END_TEST

START_TEST(a_child_that_was_killed_is_replaced_at_once)
{
	ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, sizeof(text)), 0);
	kill(lanes[FOREIGN_DISCOVERY].child.pid, SIGKILL);
	ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, sizeof(text)), 0);
	ck_assert_uint_eq(foreign_counts().hung, 0);
}
END_TEST

/* An entry keeps the process that its pid file has named. */
START_TEST(a_pid_file_that_does_not_answer_is_told_from_none)
{
	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	ck_assert_int_eq(foreign_pidfile(FOREIGN_DISCOVERY, fuse.file), 0);
	fuse_mount_hang(&fuse, FUSE_HANGS(FUSE_READ));
	ck_assert_int_eq(foreign_pidfile(FOREIGN_DISCOVERY, fuse.file), -ETIMEDOUT);
	ck_assert_int_eq(foreign_pidfile(FOREIGN_DISCOVERY, fuse.file), -EBUSY);
	fuse_mount_end(&fuse);
	expect_nothing_left();
}
END_TEST

/* A user is refused for longer each time, and forgotten after a while. */
START_TEST(what_hangs_again_is_refused_for_longer)
{
	uint64_t patience_ns = _i ? FOREIGN_PATIENCE_SHORT_NS : FOREIGN_PATIENCE_NS;
	mono_t now = { NS_PER_S };

	for (unsigned i = 0; i < 14; i++) {
		uint64_t pause_ns = 2 * patience_ns << i;

		pause_ns = pause_ns < REFUSE_MAX_NS ? pause_ns : REFUSE_MAX_NS;
		note_hang(4001, (struct child){ .fd = -1 }, now, patience_ns);
		ck_assert(is_refused(4001, FOREIGN_STACKS, mono_add(now, pause_ns - 1), FOREIGN_PATIENCE_NS));
		ck_assert(!is_refused(4002, FOREIGN_STACKS, now, FOREIGN_PATIENCE_NS));
		ck_assert(!is_refused(4001, FOREIGN_STACKS, mono_add(now, pause_ns), FOREIGN_PATIENCE_NS));
		now = mono_add(now, pause_ns);
	}
	now = mono_add(now, FORGET_NS + 1);
	ck_assert(!is_refused(4001, FOREIGN_STACKS, now, FOREIGN_PATIENCE_NS));
	ck_assert(sums.calm);
	note_hang(4001, (struct child){ .fd = -1 }, now, FOREIGN_PATIENCE_NS);
	/* What was waited for for less makes no refusal shorter. */
	note_hang(4001, (struct child){ .fd = -1 }, now, FOREIGN_PATIENCE_SHORT_NS);
	ck_assert(is_refused(4001, FOREIGN_STACKS, mono_add(now, 2 * FOREIGN_PATIENCE_NS - 1), FOREIGN_PATIENCE_NS));
	ck_assert(!is_refused(4001, FOREIGN_STACKS, mono_add(now, 2 * FOREIGN_PATIENCE_NS), FOREIGN_PATIENCE_NS));
}
END_TEST

/* A foreign_function: sleeps, or spins, for so many ms. */
static int take_time(int dirfd, const void *argument, size_t len, const struct sink *to)
{
	mono_t until;
	int ms;

	(void)dirfd;
	(void)to;
	memcpy(&ms, argument, len);
	if (ms > 0) {
		usleep((useconds_t)ms * 1000);
		return 0;
	}
	until = mono_add(now_mono(), (unsigned)-ms * NS_PER_MS);
	while (mono_diff(until, now_mono()) > 0)
		continue;
	return 0;
}

static ssize_t call_for(pid_t pid, int ms)
{
	return foreign_call(FOREIGN_STACKS, procfd, pid, "x", take_time, &ms, sizeof(ms), text, sizeof(text));
}

/* As slow as may be is no way to have the time of others, and is not held against who makes the CPU work, or root. */
START_TEST(a_user_whose_files_are_slow_is_refused_for_a_while)
{
	pid_t user = start_idle(4001), other = start_idle(4002);

	usleep(50000);
	ck_assert_int_eq(call_for(other, -1500), 0);
	ck_assert_int_eq(call_for(other, -1500), 0);
	ck_assert_int_eq(call_for(getpid(), 1500), 0);
	ck_assert_int_eq(call_for(getpid(), 1500), 0);
	ck_assert_int_eq(call_for(user, 1500), 0);
	ck_assert_int_eq(call_for(user, 1500), 0);
	ck_assert_int_eq(call_for(user, 1), -EBUSY);
	ck_assert_int_eq(call_for(other, 1), 0);
	ck_assert_int_eq(call_for(getpid(), 1), 0);
	ck_assert_uint_eq(foreign_counts().hung, 0);
	/* Another lane's time is another one. */
	ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, user, "cmdline", text, sizeof(text)), 0);

	/* It is forgotten at a quarter of the speed. */
	struct owner *owner = find_owner(4001);

	ck_assert_ptr_nonnull(owner);

	mono_t at = owner->taken[FOREIGN_STACKS].at;
	uint64_t left_ns = owner->taken[FOREIGN_STACKS].ns - FOREIGN_PATIENCE_NS;

	ck_assert(is_refused(4001, FOREIGN_STACKS, at, FOREIGN_PATIENCE_NS));
	ck_assert(!is_refused(4001, FOREIGN_STACKS, mono_add(at, 4 * left_ns), FOREIGN_PATIENCE_NS));
	kill(user, SIGKILL);
	kill(other, SIGKILL);
}
END_TEST

/* Who that is is known when the process has ended, and all users of a user namespace are one. */
START_TEST(whose_fault_it_is)
{
	struct subject subject = { .procfd = procfd, .path = "x" };
	pid_t user = start_idle(4001), one = start_idle(200000), same = start_idle(200001);
	const uint64_t gone = owner_of(procfd, INT32_MAX, "x"), path = owner_of(procfd, 0, "/x");

	usleep(50000);
	ck_assert_uint_eq(owner_of(procfd, getpid(), "x"), getuid());
	ck_assert_uint_eq(owner_of(procfd, one, "x"), owner_of(procfd, same, "y"));
	ck_assert_uint_ne(owner_of(procfd, one, "x"), owner_of(procfd, user, "x"));
	ck_assert_uint_eq(owner_of(procfd, INT32_MAX - 1, "y"), gone);
	subject.pid = user;
	ck_assert_uint_eq(subject_owner(&subject), 4001);
	kill(user, SIGKILL);
	waitpid(user, NULL, 0);
	ck_assert_uint_eq(subject_owner(&subject), 4001);

	/* What users leave behind is not in the way of files that the configuration names. */
	sums.counts.left = FOREIGN_LEFT_OF_USERS;
	ck_assert(is_refused(4001, FOREIGN_STACKS, now_mono(), FOREIGN_PATIENCE_NS));
	ck_assert(is_refused(gone, FOREIGN_STACKS, now_mono(), FOREIGN_PATIENCE_NS));
	ck_assert(!is_refused(path, FOREIGN_STACKS, now_mono(), FOREIGN_PATIENCE_NS));
	sums.counts.left = FOREIGN_LEFT_MAX;
	ck_assert(is_refused(path, FOREIGN_STACKS, now_mono(), FOREIGN_PATIENCE_NS));
	sums.counts.left = 0;
	kill(one, SIGKILL);
	kill(same, SIGKILL);
}
END_TEST

/* Where this thread is late itself, or the child waits for a CPU, no file is to blame. */
START_TEST(what_is_late_for_want_of_a_cpu_is_no_hang)
{
	struct lane *lane = &lanes[FOREIGN_STACKS];
	struct request request = { .kind = REQUEST_READ, .cap = 10, .path = "/proc/self/comm" };
	struct answer answer = { .data = text, .cap = sizeof(text), .fd = -1 };
	struct child child = { .pid = getpid() };
	int error = 0, r;

	ck_assert_int_eq(start_child(lane), 0);
	ck_assert_int_gt(send(lane->socket, &request, offsetof(struct request, path) + strlen(request.path), 0), 0);
	usleep(300000);
	do
		r = receive_piece(lane, (mono_t){ 1 }, &answer, &error);
	while (r == 0);
	ck_assert_int_eq(r, 1);
	ck_assert_str_eq((text[answer.len] = '\0', text), "reader\n");

	ck_assert(wants_cpu(&child));
	child.pid = start_idle(4001);
	usleep(50000);
	ck_assert(!wants_cpu(&child));
	kill(child.pid, SIGKILL);
}
END_TEST

/* How many of these are not refused: with what it reads it may have been taken over. */
static int reach_out(int dirfd, const void *argument, size_t len, const struct sink *to)
{
	char byte = 0;
	struct iovec here = { &byte, 1 };
	pid_t pid;

	(void)dirfd;
	memcpy(&pid, argument, len);
	const bool done[] = {
		syscall(SYS_process_vm_writev, pid, &here, 1, &here, 1, 0) >= 0 || errno != EPERM,
		syscall(SYS_process_vm_readv, pid, &here, 1, &here, 1, 0) >= 0 || errno != EPERM,
		syscall(SYS_ptrace, 16, pid, 0, 0) >= 0 || errno != EPERM,
		kill(pid, SIGTERM) >= 0 || errno != EPERM,
		execl("/bin/true", "true", NULL) >= 0 || errno != EPERM,
		syscall(SYS_mount, 0, 0, 0, 0, 0) >= 0 || errno != EPERM,
	};
	char answer[ARRAY_LEN(done)];

	for (size_t i = 0; i < ARRAY_LEN(done); i++)
		answer[i] = done[i] ? '!' : '.';
	return sink_write(to, answer, sizeof(answer));
}

START_TEST(the_child_can_only_read)
{
	pid_t victim;
	ssize_t len;

#ifdef __SANITIZE_ADDRESS__
	SKIP_TEST("there is no filter with sanitizers");
#endif
	victim = fork();
	if (victim == 0)
		for (;;)
			pause();
	len = foreign_call(FOREIGN_STACKS, procfd, 1, "x", reach_out, &victim, sizeof(victim), text, sizeof(text));
	kill(victim, SIGKILL);
	waitpid(victim, NULL, 0);
	ck_assert_int_eq(len, 6);
	ck_assert_msg(memcmp(text, "......", 6) == 0, "%.6s", text);
}
END_TEST

/* It has none of the descriptors of this process, and no more rights than reading takes. */
START_TEST(the_child_has_nothing_of_ours)
{
	char path[64], line[256];
	int fds = 0, held = open("/dev/null", O_RDONLY); /* on purpose not closed on execution */
	FILE *file;

	ck_assert_int_ge(held, 3);
	ck_assert_int_gt(foreign_read(FOREIGN_DISCOVERY, procfd, getpid(), "cmdline", text, sizeof(text)), 0);
	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", lanes[FOREIGN_DISCOVERY].child.pid, fd);
		fds += readlink(path, line, sizeof(line)) > 0;
	}
	/* With its schedstat, and that of /proc, perhaps: it is closed after the answer. */
	ck_assert_int_le(fds, 5);
	snprintf(path, sizeof(path), "/proc/%d/status", lanes[FOREIGN_DISCOVERY].child.pid);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "CapPrm:", 7) == 0)
			ck_assert_uint_eq(strtoull(line + 7, NULL, 16) & ~kept_capabilities(), 0);
		if (strncmp(line, "NoNewPrivs:", 11) == 0)
			ck_assert_int_eq(atoll(line + 11), 1);
	}
	fclose(file);
}
END_TEST

Suite *foreign_suite(void)
{
	Suite *suite = suite_create("foreign");
	TCase *tcase = tcase_create("foreign");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, reads_a_file_of_a_process);
	tcase_add_test(tcase, reads_a_large_file_whole);
	tcase_add_test(tcase, the_child_calls_a_function);
	tcase_add_test(tcase, a_file_of_this_machine_is_handed_over_itself);
	tcase_add_test(tcase, a_file_of_a_server_is_copied);
	tcase_add_test(tcase, an_overlay_of_a_user_namespace_is_copied);
	tcase_add_loop_test(tcase, a_server_that_does_not_answer_costs_its_file, 0, (int)ARRAY_LEN(hangs));
	tcase_add_test(tcase, a_process_whose_memory_is_locked_costs_its_own);
	tcase_add_test(tcase, a_peak_is_reset_without_waiting_for_the_process);
	tcase_add_test(tcase, a_user_cannot_use_up_the_children);
	tcase_add_test(tcase, what_was_left_behind_counts_for_the_recorders_after_it);
	tcase_add_test(tcase, a_child_that_is_stopped_is_replaced);
	tcase_add_test(tcase, a_child_that_was_killed_is_replaced_at_once);
	tcase_add_test(tcase, a_pid_file_that_does_not_answer_is_told_from_none);
	tcase_add_loop_test(tcase, what_hangs_again_is_refused_for_longer, 0, 2);
	tcase_add_test(tcase, a_user_whose_files_are_slow_is_refused_for_a_while);
	tcase_add_test(tcase, whose_fault_it_is);
	tcase_add_test(tcase, what_is_late_for_want_of_a_cpu_is_no_hang);
	tcase_add_test(tcase, the_child_can_only_read);
	tcase_add_test(tcase, the_child_has_nothing_of_ours);
	suite_add_tcase(suite, tcase);
	return suite;
}
