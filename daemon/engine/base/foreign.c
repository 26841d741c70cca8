/*
 * foreign.c: both sides: the lanes of this process, and the child (children.h).
 *
 * The child has none of our memory, locks and descriptors, so that one that is left behind holds
 * nothing. It keeps the three capabilities that reading takes, has the recorder's filter (nothing is
 * started, signalled or traced by it), closes what it has opened before it
 * answers (closing may wait, too), and handles one request at a time, so that it is known which one
 * hangs.
 *
 * 	this process                                     the child
 * 	request, with the directory's descriptor  ───▶
 * 	                                          ◀───   pieces of data, the last with the
 * 	                                                 error, or a descriptor
 * 	no last piece in time: SIGKILL
 * 	not gone within END_MS: left behind              ends when the file answers
 *
 * What this process gets as a descriptor is a file of a file system in own_systems[], or a copy in
 * memory: it may be read, mapped and closed without waiting. overlayfs passes everything on to file
 * systems below it, and each user may mount one in a user namespace of its own, to which links and
 * /proc/PID/root lead from anywhere; one that is mounted in our mount namespace is the administrator's.
 * Rejected: the descriptor of the file in any case (close(2) is a request to a FUSE server, which no signal
 * interrupts once the server has read it); to go by the process's user namespace (it need not be the one of
 * the mount, and is not known of a process that has ended); threads (one that waits keeps the process from
 * ending).
 *
 * The sums are of the process, like its limits: there is one set of lanes, not one of each session.
 *
 * The time of a lane is shared. A child says for how long a request kept it waiting for something else than
 * a CPU; what a user's requests have taken of a lane so is forgotten at a quarter of the speed of the clock, and
 * while it is more than the patience of one request the user is refused there: answers that come a moment before
 * it is over take a quarter of a lane at most. Root and the configuration, which could do worse, may take what
 * they like.
 *
 * A recorder that is killed leaves its hanging children to the next one, which would leave as many
 * again. So each child of one with a ring holds the lock (F_OFD_SETLK) of a slot in <ring>.readers:
 * it inherits the open file that has it, and the kernel drops it when the child is gone. A slot says
 * whose file is waited for, once that takes its time. Rejected: looking for such children in /proc, where
 * any program may have their name; a cgroup, which takes a writable tree.
 */
#include "daemon/engine/base/foreign.h"

#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/base/sandbox.h"
#include "lib/base/text.h"
#include "lib/base/map.h"
#include "lib/base/units.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* How long the end of a child that was killed is waited for: it is immediate, or takes for ever. */
#define END_MS 200

/* A user whose file hangs is refused for twice as long as it was waited for, the double after the next, and so on. */
#define REFUSE_MAX_NS (64 * NS_PER_S)
#define REFUSE_DOUBLED_MAX 10u

/* So long after the last refusal has ended, it begins from the start again. */
#define FORGET_NS (60 * NS_PER_S)

/* Users whose files hang or are slow; the one that did so longest ago is forgotten for another. */
#define OWNERS_MAX 64u

/* What takes less is as fast as it should be. */
#define FAST_NS (NS_PER_MS / 2)

/* Of the time that a user's requests have taken one part in so many of what passes is forgotten. */
#define FORGIVEN_PART 4u

/* After this it is noted whose file a child waits for. */
#define SLOW_NS (50 * NS_PER_MS)

#define PIECE_BYTES 32768u

enum request_kind { REQUEST_READ, REQUEST_CALL, REQUEST_OPEN };

struct request {
	uint32_t kind; /* enum request_kind */
	int32_t pid;
	int32_t flags;
	uint32_t argument_len;
	uint64_t cap;
	foreign_function *function; /* the child is a copy of this process */
	char argument[FOREIGN_ARGUMENT_MAX];
	char path[PATH_MAX + 64]; /* sent up to its NUL */
};

struct piece {
	int32_t error; /* of the last: 0 or -errno */
	uint32_t last;
	uint64_t waited_ns;     /* of the last: that the request took without a CPU and without waiting for one */
	char data[PIECE_BYTES]; /* what the message has beyond the head */
};

/* What the data of the only answer to REQUEST_OPEN are. */
struct opened {
	struct stat status;
	uint64_t copied; /* bytes; 0: it is the file itself */
};

#define PIECE_HEAD offsetof(struct piece, data)

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

/* fd -1: none. */
static void message_set_fd(struct msghdr *message, union control *control, int fd)
{
	if (fd < 0)
		return;
	memset(control, 0, sizeof(*control));
	message->msg_control = control->room;
	message->msg_controllen = sizeof(control->room);
	control->head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&control->head), &fd, sizeof(fd));
}

static int message_take_fd(struct msghdr *message)
{
	const struct cmsghdr *control = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(control), sizeof(fd));
	return fd;
}

/* ---- the child ---- */

static uint64_t kept_capabilities(void)
{
	return 1ULL << CAP_SYS_PTRACE | 1ULL << CAP_DAC_READ_SEARCH | 1ULL << CAP_CHECKPOINT_RESTORE;
}

/* Gives up all others. What may not be stays as it is. */
static void drop_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data) < 0)
		return;
	for (unsigned i = 0; i < ARRAY_LEN(data); i++) {
		data[i].permitted &= (uint32_t)(kept_capabilities() >> 32 * i);
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	(void)syscall(SYS_capset, &header, data);
}

static void send_piece(const struct piece *piece, size_t len, int fd)
{
	union control control;
	struct iovec bytes = { .iov_base = (void *)(uintptr_t)piece, .iov_len = PIECE_HEAD + len };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };

	message_set_fd(&message, &control, fd);
	if (sendmsg(STDIN_FILENO, &message, MSG_NOSIGNAL) < 0)
		_exit(1);
}

/* /proc/thread-self/schedstat of the child; -1: there is none. */
static int own_schedstat = -1;

/* When the request began, and what own_schedstat had said. */
static struct {
	mono_t at;
	uint64_t cpu_ns;
} begun;

static mono_t now_mono(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock);
}

/* For how long this thread had a CPU or waited for one, in all. */
static uint64_t cpu_or_queue_ns(void)
{
	char said[96], *end;
	ssize_t len = own_schedstat < 0 ? -1 : pread(own_schedstat, said, sizeof(said) - 1, 0);

	if (len <= 0)
		return 0;
	said[len] = '\0';

	uint64_t cpu_ns = strtoull(said, &end, 10);

	return cpu_ns + strtoull(end, NULL, 10);
}

static uint64_t waited_ns(void)
{
	uint64_t passed_ns = (uint64_t)mono_diff(now_mono(), begun.at), cpu_ns;

	if (passed_ns < FAST_NS)
		return 0;
	cpu_ns = cpu_or_queue_ns() - begun.cpu_ns;
	return passed_ns > cpu_ns ? passed_ns - cpu_ns : 0;
}

static void send_end(int error)
{
	struct piece end = { .error = error, .last = 1, .waited_ns = waited_ns() };

	send_piece(&end, 0, -1);
}

/* A sink. */
static int send_data(void *ctx, const void *data, size_t len)
{
	struct piece piece = { .error = 0 };

	(void)ctx;
	for (size_t at = 0; at < len;) {
		size_t size = len - at < PIECE_BYTES ? len - at : PIECE_BYTES;

		memcpy(piece.data, (const char *)data + at, size);
		send_piece(&piece, size, -1);
		at += size;
	}
	return 0;
}

static int send_file(int fd, uint64_t cap)
{
	struct piece piece = { .error = 0 };

	while (cap > 0) {
		ssize_t len = read(fd, piece.data, cap < PIECE_BYTES ? cap : PIECE_BYTES);

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return len < 0 ? -errno : 0;
		send_piece(&piece, (size_t)len, -1);
		cap -= (uint64_t)len;
	}
	return 0;
}

static void answer_read(int dirfd, const struct request *request)
{
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | request->flags;
	int fd = openat(dirfd, request->path, flags), r = fd < 0 ? -errno : send_file(fd, request->cap);

	if (fd >= 0)
		close(fd);
	send_end(r);
}

static void answer_call(int dirfd, const struct request *request)
{
	const struct sink sink = { .write = send_data };

	send_end(request->function(dirfd, request->argument, request->argument_len, &sink));
}

/* The mount of an open file, whose number is no other's as long as it is open; 0: not known. */
static uint64_t mount_of(int fd)
{
	struct statx found;

	return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &found) == 0 && (found.stx_mask & STATX_MNT_ID)
		       ? found.stx_mnt_id
		       : 0;
}

/* "MAJOR:MINOR", as a list of mounts has it. */
typedef char device_text[24];

/* Whether a list of mounts (mountinfo, proc(5)) has that mount, or one of that device; mount 0: of the device. */
static bool has_mount(int procfd, const char *path, uint64_t mount, device_text device)
{
	int fd = openat(procfd, path, O_RDONLY | O_CLOEXEC);
	FILE *list = fd < 0 ? NULL : fdopen(fd, "r");
	char *line = NULL;
	size_t cap = 0;
	bool has = false;

	while (list && !has && getline(&line, &cap, list) > 0) {
		unsigned long long number;
		device_text its;

		if (sscanf(line, "%llu %*s %23s", &number, its) != 2)
			continue;
		has = mount ? number == mount : strcmp(its, device) == 0;
		if (has)
			memcpy(device, its, sizeof(its));
	}
	free(line);
	if (list)
		fclose(list);
	else if (fd >= 0)
		close(fd);
	return has;
}

/*
 * Whether what the file is of is mounted in our mount namespace, too: there only the administrator mounts.
 * Of one of the process's namespace alone it does not matter whose that is.
 */
static bool is_mounted_here(int fd, int procfd, int32_t pid)
{
	uint64_t mount = mount_of(fd);
	device_text device = "";
	char its[32];

	if (mount == 0)
		return false;
	if (has_mount(AT_FDCWD, "/proc/self/mountinfo", mount, device))
		return true;
	snprintf(its, sizeof(its), "%d/mountinfo", pid);
	return pid > 0 && has_mount(procfd, its, mount, device) &&
	       has_mount(AT_FDCWD, "/proc/self/mountinfo", 0, device);
}

/* Whether a file is of this machine's own: of a file system that no process answers for. */
static bool is_of_own_system(int fd, int procfd, int32_t pid)
{
	static const uint32_t own_systems[] = {
		EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,   BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
		RAMFS_MAGIC,      F2FS_SUPER_MAGIC,  SQUASHFS_MAGIC,    EROFS_SUPER_MAGIC_V1,
		HUGETLBFS_MAGIC,  ISOFS_SUPER_MAGIC, MSDOS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */,
		0xca451a4e /* bcachefs */
	};
	struct statfs system;

	if (fstatfs(fd, &system) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(own_systems); i++)
		if ((uint32_t)system.f_type == own_systems[i])
			return true;
	return (uint32_t)system.f_type == OVERLAYFS_SUPER_MAGIC && is_mounted_here(fd, procfd, pid);
}

/* The kernel's own, or where files lie: a directory for which nothing is asked of a process. */
static int open_own_directory(int procfd, const struct request *request, struct stat *ret_status)
{
	AUTO_CLOSE int fd = openat(procfd, request->path, O_PATH | O_CLOEXEC | request->flags);
	struct statfs system;

	if (fd < 0 || fstat(fd, ret_status) < 0 || fstatfs(fd, &system) < 0)
		return -errno;
	if (system.f_type != PROC_SUPER_MAGIC && system.f_type != CGROUP2_SUPER_MAGIC &&
	    system.f_type != CGROUP_SUPER_MAGIC && system.f_type != SYSFS_MAGIC &&
	    !is_of_own_system(fd, procfd, request->pid))
		return -EXDEV;
	return TAKE_FD(fd);
}

/* Of at most so many bytes. A descriptor or -errno. */
static int copy_file(int fd, uint64_t most, uint64_t *ret_bytes)
{
	AUTO_CLOSE int copy = memfd_create("file", MFD_CLOEXEC);
	char block[65536];
	uint64_t bytes = 0;
	ssize_t len = -1;
	int r = copy < 0 ? -errno : 0;

	while (r == 0 && (len = read(fd, block, sizeof(block))) > 0) {
		bytes += (uint64_t)len;
		r = bytes > most ? -EFBIG : sink_write_all(copy, block, (size_t)len);
	}
	if (r < 0 || len < 0)
		return r < 0 ? r : -errno;
	*ret_bytes = bytes;
	return TAKE_FD(copy);
}

/* Does not wait for a lease (F_SETLEASE), which any user may hold. A descriptor or -errno. */
static int open_regular(int procfd, const struct request *request, struct opened *ret)
{
	int path = openat(procfd, request->path, O_PATH | O_CLOEXEC | request->flags), fd, copy;
	char again[32];

	if (path < 0 || fstat(path, &ret->status) < 0)
		return -errno;
	if (!S_ISREG(ret->status.st_mode))
		return -EINVAL;
	if ((uint64_t)ret->status.st_size > request->cap && !is_of_own_system(path, procfd, request->pid))
		return -EFBIG;

	snprintf(again, sizeof(again), "/proc/self/fd/%d", path);
	fd = open(again, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (is_of_own_system(fd, procfd, request->pid))
		return fd;
	copy = copy_file(fd, request->cap, &ret->copied);
	close(fd);
	return copy;
}

static void answer_open(int procfd, const struct request *request)
{
	struct piece piece = { .last = 1 };
	struct opened opened = { .copied = 0 };
	int fd = request->flags & O_DIRECTORY ? open_own_directory(procfd, request, &opened.status)
					      : open_regular(procfd, request, &opened);

	if (fd < 0) {
		send_end(fd);
		return;
	}
	memcpy(piece.data, &opened, sizeof(opened));
	piece.waited_ns = waited_ns();
	send_piece(&piece, sizeof(opened), fd);
}

/* In a child: the first descriptor that is not kept. */
static int first_opened = STDERR_FILENO + 1;

/* All that a request has opened is closed: descriptors of open_regular stay open until its end. */
static void close_leftovers(void)
{
	(void)syscall(SYS_close_range, first_opened, ~0u, 0);
}

static bool serve_request(void)
{
	struct request request;
	union control control;
	struct iovec bytes = { .iov_base = &request, .iov_len = sizeof(request) - 1 };
	struct msghdr message = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)
	};
	ssize_t len = recvmsg(STDIN_FILENO, &message, MSG_CMSG_CLOEXEC);
	int dirfd = len > 0 ? message_take_fd(&message) : -1;

	if (len <= 0)
		return len < 0 && errno == EINTR;
	((char *)&request)[len] = '\0';
	begun.at = now_mono();
	begun.cpu_ns = cpu_or_queue_ns();
	if (dirfd < 0)
		dirfd = AT_FDCWD;
	if (request.kind == REQUEST_READ)
		answer_read(dirfd, &request);
	else if (request.kind == REQUEST_CALL)
		answer_call(dirfd, &request);
	else
		answer_open(dirfd, &request);
	close_leftovers();
	return true;
}

/* For child_start. An argument: it has a slot. */
static int serve_requests(const void *argument, size_t len)
{
	(void)argument;
	first_opened += len > 0;
	own_schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (own_schedstat >= first_opened)
		first_opened = own_schedstat + 1;
	prctl(PR_SET_NAME, "reader");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	drop_capabilities();
	(void)sandbox_recorder(0); /* without a filter it reads, too */
	while (serve_request())
		continue;
	return 0;
}

/* ---- users whose files hang, and children that are left behind ---- */

struct owner {
	uint64_t id; /* of owner_of */
	unsigned hangs, left;
	mono_t until; /* refused up to here; 0: a free entry */
	struct {
		uint64_t ns;
		mono_t at;
	} taken[FOREIGN_LANES]; /* of a lane's time, at that moment */
};

/* Users from here on are parts of another's: of a user namespace (subuid(5)), who has 65,536 of them or more. */
#define OWNER_PARTS_MIN 65536u

#define OWNER_PATH (1ULL << 63) /* of a file that the configuration or the system names */
#define OWNER_PARTS (1ULL << 62)
#define OWNER_GONE (1ULL << 61) /* of processes that had ended before they were asked about */

/* All lanes may ask at once before it is known that they are too many. */
#define LEFT_ROOM (FOREIGN_LEFT_MAX + FOREIGN_LANES)

static struct {
	pthread_mutex_t lock;
	struct owner owners[OWNERS_MAX];
	struct {
		struct child child; /* fd 0: a free entry */
		uint64_t owner;
	} left[LEFT_ROOM];
	struct foreign_counts counts;
	atomic_bool calm; /* no user is refused, nothing is left behind */
} sums = { .lock = PTHREAD_MUTEX_INITIALIZER, .calm = true };

/* The user whose slice that process is in; 0: none, or root. Only systemd makes what is below /user.slice. */
static uint64_t slice_user_of(int procfd, int32_t pid)
{
	char text[4096];
	const char *at = proc_read_file(procfd, pid, "cgroup", text, sizeof(text)) > 0
				 ? strstr(text, ":/user.slice/user-")
				 : NULL;
	unsigned uid = 0;

	return at && sscanf(at, ":/user.slice/user-%u.slice", &uid) == 1 ? uid : 0;
}

/* Who is answerable for what is waited for. From the status file, as a directory says root's for some. */
static uint64_t owner_of(int procfd, int32_t pid, const char *path)
{
	uid_t uid = pid > 0 ? proc_read_uid(procfd, pid) : 0;
	uint64_t whose;

	if (pid <= 0)
		return map_hash(path, strlen(path)) | OWNER_PATH;
	if (uid == PROC_READ_NO_UID)
		return OWNER_GONE;
	if (uid < OWNER_PARTS_MIN)
		return uid;
	whose = slice_user_of(procfd, pid);
	return whose ? whose : uid / OWNER_PARTS_MIN | OWNER_PARTS;
}

/* What a request is about. */
struct subject {
	int procfd; /* of the process pid */
	int32_t pid;
	const char *path;
	uint64_t owner; /* if asked */
	bool asked;
};

/* Asked once: before the request where it matters already, as the process may end meanwhile; else when it is slow. */
static uint64_t subject_owner(struct subject *subject)
{
	if (!subject->asked)
		subject->owner = owner_of(subject->procfd, subject->pid, subject->path);
	subject->asked = true;
	return subject->owner;
}

static struct owner *find_owner(uint64_t id)
{
	for (size_t i = 0; i < OWNERS_MAX; i++)
		if (sums.owners[i].until.ns > 0 && sums.owners[i].id == id)
			return &sums.owners[i];
	return NULL;
}

static struct owner *add_owner(uint64_t id)
{
	struct owner *oldest = NULL, *known = find_owner(id);

	for (size_t i = 0; i < OWNERS_MAX && !known; i++) {
		struct owner *owner = &sums.owners[i];

		if (owner->left == 0 && (!oldest || owner->until.ns < oldest->until.ns))
			oldest = owner;
	}
	/* Some have none left behind: LEFT_ROOM and SLOTS. */
	if (!known)
		*oldest = (struct owner){ .id = id };
	return known ? known : oldest;
}

/* What its requests have taken, less what is forgotten. */
static uint64_t taken_by(const struct owner *owner, enum foreign_lane lane, mono_t now)
{
	uint64_t forgiven_ns = (uint64_t)mono_diff(now, owner->taken[lane].at) / FORGIVEN_PART;

	return owner->taken[lane].ns > forgiven_ns ? owner->taken[lane].ns - forgiven_ns : 0;
}

/* ---- slots: the locks of children ---- */

/* Of recorders before us, and ours. */
#define SLOTS 40u
_Static_assert(LEFT_ROOM + SLOTS < OWNERS_MAX, "there is an owner without any that are left behind");

/* In a child: the open file that has the lock. */
#define SLOT_FD (STDERR_FILENO + 1)

static struct {
	char path[PATH_MAX];
	int fd; /* 0: there are none */
	bool former[SLOTS];
	uint64_t owners[SLOTS]; /* of former ones */
} slots;

static struct flock slot_lock(unsigned slot, short type)
{
	return (struct flock){ .l_type = type,
			       .l_whence = SEEK_SET,
			       .l_start = (off_t)(slot * sizeof(uint64_t)),
			       .l_len = sizeof(uint64_t) };
}

static bool is_slot_held(unsigned slot)
{
	struct flock lock = slot_lock(slot, F_WRLCK);

	return fcntl(slots.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* With the lock of the sums. */
static void drop_former(unsigned slot)
{
	struct owner *owner = find_owner(slots.owners[slot]);

	slots.former[slot] = false;
	sums.counts.left--;
	if (owner && owner->left > 0)
		owner->left--;
}

/* What a slot says while its child is not slow. */
#define NOBODY UINT64_MAX

/* slot -1: none. */
static void write_slot(int slot, uint64_t owner)
{
	/* Without it the child counts, but for no user. */
	if (slot >= 0)
		(void)!pwrite(slots.fd, &owner, sizeof(owner), (off_t)((unsigned)slot * sizeof(owner)));
}

/* An open file that holds a slot, to be the child's; -1: it has none. */
static int take_slot(int *ret_slot)
{
	AUTO_CLOSE int fd = slots.fd > 0 ? open(slots.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
	int taken = -1;

	pthread_mutex_lock(&sums.lock);
	for (unsigned slot = 0; fd >= 0 && taken < 0 && slot < SLOTS; slot++) {
		struct flock lock = slot_lock(slot, F_WRLCK);

		if (!slots.former[slot] && fcntl(fd, F_OFD_SETLK, &lock) == 0)
			taken = (int)slot;
	}
	pthread_mutex_unlock(&sums.lock);
	write_slot(taken, NOBODY);
	*ret_slot = taken;
	return taken < 0 ? -1 : TAKE_FD(fd);
}

static unsigned count_held(void)
{
	unsigned count = 0;

	for (unsigned slot = 0; slot < SLOTS; slot++)
		count += is_slot_held(slot);
	return count;
}

/* With the lock of the sums. */
static void add_former(unsigned slot, mono_t now)
{
	uint64_t id = NOBODY;
	struct owner *owner;

	(void)!pread(slots.fd, &id, sizeof(id), (off_t)(slot * sizeof(id)));
	owner = add_owner(id);
	owner->until = now;
	owner->left++;
	slots.former[slot] = true;
	slots.owners[slot] = id;
	sums.counts.left++;
	sums.calm = false;
}

void foreign_begin(const char *ring)
{
	unsigned count;

	if (slots.fd > 0 || (size_t)snprintf(slots.path, sizeof(slots.path), "%s.readers", ring) >= sizeof(slots.path))
		return;
	slots.fd = open(slots.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (slots.fd < 0) {
		log_line(LOG_WARNING,
			 "cannot open %s: %s. Readers that are left behind are forgotten by the next start.",
			 slots.path, strerror(errno));
		slots.fd = 0;
		return;
	}
	/* Those of a recorder that was killed a moment ago end within milliseconds, if they can. */
	for (int tries = 0; tries < 5 && count_held() > 0; tries++)
		nanosleep(&(struct timespec){ .tv_nsec = 20 * NS_PER_MS }, NULL);

	pthread_mutex_lock(&sums.lock);
	for (unsigned slot = 0; slot < SLOTS; slot++)
		if (is_slot_held(slot))
			add_former(slot, now_mono());
	count = sums.counts.left;
	pthread_mutex_unlock(&sums.lock);
	if (count > 0)
		log_line(LOG_WARNING, "%u readers of files that do not answer were left behind by the daemon before",
			 count);
}

static void reap_left(void)
{
	for (unsigned slot = 0; slot < SLOTS; slot++)
		if (slots.former[slot] && !is_slot_held(slot))
			drop_former(slot);
	for (size_t i = 0; i < ARRAY_LEN(sums.left); i++) {
		struct owner *owner;
		struct child_end end;

		if (sums.left[i].child.fd <= 0 || !child_ended(&sums.left[i].child, &end))
			continue;
		child_close(&sums.left[i].child);
		owner = find_owner(sums.left[i].owner);
		if (owner && owner->left > 0)
			owner->left--;
		sums.counts.left--;
	}
}

static void forget_owners(mono_t now)
{
	bool calm = sums.counts.left == 0;

	for (size_t i = 0; i < OWNERS_MAX; i++) {
		struct owner *owner = &sums.owners[i];

		if (owner->left == 0 && mono_diff(now, owner->until) > (int64_t)FORGET_NS)
			owner->until.ns = 0;
		calm &= owner->until.ns == 0;
	}
	sums.calm = calm;
}

/* patience_ns: of the request. */
static bool is_refused(uint64_t id, enum foreign_lane lane, mono_t now, uint64_t patience_ns)
{
	unsigned most = id < 1000 || (id & OWNER_PATH) ? FOREIGN_LEFT_MAX : FOREIGN_LEFT_OF_USERS;
	const struct owner *owner;
	bool refused;

	pthread_mutex_lock(&sums.lock);
	reap_left();
	forget_owners(now);
	owner = find_owner(id);
	refused = sums.counts.left >= most ||
		  (owner && (owner->left >= FOREIGN_LEFT_PER_USER || mono_diff(owner->until, now) > 0 ||
			     taken_by(owner, lane, now) > patience_ns));
	sums.counts.refused += refused;
	pthread_mutex_unlock(&sums.lock);
	return refused;
}

/* With the lock of the sums. Takes over what is left behind; its fd -1: nothing is. */
static void keep_left(struct owner *owner, struct child left)
{
	size_t at = 0;

	/* There is room: beyond FOREIGN_LEFT_MAX nothing is tried. */
	while (left.fd >= 0 && sums.left[at].child.fd > 0)
		at++;
	if (left.fd >= 0) {
		sums.left[at].child = left;
		sums.left[at].owner = owner->id;
		sums.counts.left++;
		owner->left++;
	}
}

/* With the lock of the sums: of the table. It is forgotten FORGET_NS after now, if not later. */
static struct owner *account_of(uint64_t id, mono_t now)
{
	struct owner *owner = add_owner(id);

	if (mono_diff(owner->until, now) < 0)
		owner->until = now;
	sums.calm = false;
	return owner;
}

/* patience_ns: for which it was waited. */
static void note_hang(uint64_t id, struct child left, mono_t now, uint64_t patience_ns)
{
	struct owner *owner;
	uint64_t refuse_ns;

	pthread_mutex_lock(&sums.lock);
	owner = account_of(id, now);
	refuse_ns = 2 * patience_ns << (owner->hangs < REFUSE_DOUBLED_MAX ? owner->hangs : REFUSE_DOUBLED_MAX);
	refuse_ns = refuse_ns < REFUSE_MAX_NS ? refuse_ns : REFUSE_MAX_NS;
	if (mono_diff(owner->until, mono_add(now, refuse_ns)) < 0)
		owner->until = mono_add(now, refuse_ns);
	owner->hangs++;
	sums.counts.hung++;
	keep_left(owner, left);
	pthread_mutex_unlock(&sums.lock);
}

/* It was answered, or cannot be; waited_ns: see struct piece. */
static void note_answer(struct subject *subject, enum foreign_lane lane, struct child left, mono_t now,
			uint64_t waited_ns)
{
	struct owner *owner;
	uint64_t id;

	if (waited_ns < FAST_NS && left.fd < 0)
		return;
	id = subject_owner(subject);
	if (left.fd < 0 && (id == 0 || (id & OWNER_PATH)))
		return;
	pthread_mutex_lock(&sums.lock);
	owner = account_of(id, now);
	owner->taken[lane].ns = taken_by(owner, lane, now) + waited_ns;
	owner->taken[lane].at = now;
	keep_left(owner, left);
	pthread_mutex_unlock(&sums.lock);
}

struct foreign_counts foreign_counts(void)
{
	struct foreign_counts counts;

	pthread_mutex_lock(&sums.lock);
	reap_left();
	counts = sums.counts;
	pthread_mutex_unlock(&sums.lock);
	return counts;
}

/* ---- lanes ---- */

struct lane {
	pthread_mutex_t lock;
	struct child child;
	int socket; /* 0: there is no child */
	int slot;   /* -1: it has none */
};

static struct lane lanes[FOREIGN_LANES] = {
	[FOREIGN_DISCOVERY] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[FOREIGN_STACKS] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[FOREIGN_INCIDENTS] = { .lock = PTHREAD_MUTEX_INITIALIZER },
	[FOREIGN_PEAKS] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

static int start_child(struct lane *lane)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;

	AUTO_CLOSE int ours = pair[0];
	AUTO_CLOSE int theirs = pair[1];
	AUTO_CLOSE int held = take_slot(&lane->slot);
	const struct child_descriptor descriptors[] = { { .fd = theirs, .as = STDIN_FILENO },
							{ .fd = held, .as = SLOT_FD } };

	r = child_start(&(struct child_options){ .run = serve_requests,
						 .argument = "",
						 .argument_len = held >= 0,
						 .descriptors = descriptors,
						 .descriptor_count = held >= 0 ? 2 : 1,
						 .rights = CHILD_CAPABILITIES,
						 .oom_score_adj = 1000 },
			&lane->child);
	if (r == 0)
		lane->socket = TAKE_FD(ours);
	return r;
}

/* The next request starts another one. The old one if it is left behind, else {-1}. */
static struct child drop_child(struct lane *lane)
{
	struct child child = lane->child;
	struct pollfd wait = { .fd = child.fd, .events = POLLIN };
	struct child_end end;

	close(lane->socket);
	lane->socket = 0;
	child_signal(&child, SIGKILL);
	poll(&wait, 1, END_MS);
	if (child_ended(&child, &end))
		child_close(&child);
	return child;
}

struct answer {
	char *data; /* cap bytes */
	size_t cap, len;
	int fd; /* -1: none */
	uint64_t waited_ns;
};

/*
 * 1: that was the last piece; 0: there are more; -ETIMEDOUT; -EPIPE: the child has ended; -errno.
 */
static int receive_piece(const struct lane *lane, mono_t deadline, struct answer *answer, int *ret_error)
{
	struct piece head;
	union control control;
	struct iovec parts[2] = { { .iov_base = &head, .iov_len = PIECE_HEAD },
				  { .iov_base = answer->data + answer->len, .iov_len = answer->cap - answer->len } };
	struct msghdr message = {
		.msg_iov = parts, .msg_iovlen = 2, .msg_control = control.room, .msg_controllen = sizeof(control.room)
	};
	struct pollfd wait = { .fd = lane->socket, .events = POLLIN };
	int64_t left_ns = mono_diff(deadline, now_mono());
	uint64_t wait_ns = left_ns > 0 ? (uint64_t)left_ns : 0;
	struct timespec timeout = { .tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S) };
	ssize_t len;

	/* What is there by now is an answer, however late this thread itself is. */
	if (ppoll(&wait, 1, &timeout, NULL) <= 0)
		return wait_ns > 0 ? 0 : -ETIMEDOUT;
	len = recvmsg(lane->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (len < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : errno == ECONNRESET ? -EPIPE : -errno;
	if ((size_t)len < PIECE_HEAD)
		return -EPIPE;
	if (message.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	answer->len += (size_t)len - PIECE_HEAD;
	if (answer->fd < 0)
		answer->fd = message_take_fd(&message);
	*ret_error = head.error;
	answer->waited_ns = head.waited_ns;
	return head.last != 0;
}

static uint64_t patience_of(const struct lane *lane, const struct request *request)
{
	return lane == &lanes[FOREIGN_DISCOVERY] && request->kind == REQUEST_READ ? FOREIGN_PATIENCE_SHORT_NS
										  : FOREIGN_PATIENCE_NS;
}

/* It waits for a CPU, or has one: what it was asked for does not keep it. */
static bool wants_cpu(const struct child *child)
{
	char path[32], said[512];
	AUTO_CLOSE int fd = -1;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/stat", child->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, said, sizeof(said) - 1);
	if (len <= 0)
		return false;
	said[len] = '\0';

	const char *end = strrchr(said, ')');

	return end && strncmp(end, ") R", 3) == 0;
}

/* Until it is slow, then until it has been for as long as it may be; one that wants a CPU has as long as any. */
static int receive(struct lane *lane, struct subject *subject, uint64_t patience_ns, struct answer *answer,
		   int *ret_error)
{
	const mono_t begin = now_mono();
	uint64_t most_ns = SLOW_NS;
	int r;

	do {
		r = receive_piece(lane, mono_add(begin, most_ns), answer, ret_error);
		if (r != -ETIMEDOUT || most_ns == FOREIGN_PATIENCE_NS)
			continue;
		if (most_ns == SLOW_NS) {
			write_slot(lane->slot, subject_owner(subject));
			most_ns = patience_ns;
			r = 0;
		} else if (wants_cpu(&lane->child)) {
			most_ns = FOREIGN_PATIENCE_NS;
			r = 0;
		}
	} while (r == 0);
	if (most_ns > SLOW_NS && r != -ETIMEDOUT)
		write_slot(lane->slot, NOBODY);
	return r;
}

static int exchange(struct lane *lane, const struct request *request, int dirfd, struct subject *subject,
		    uint64_t patience_ns, struct answer *answer)
{
	union control control;
	struct iovec bytes = { .iov_base = (void *)(uintptr_t)request,
			       .iov_len = offsetof(struct request, path) + strlen(request->path) };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	int r, error = 0;

	message_set_fd(&message, &control, dirfd);
	if (sendmsg(lane->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -EPIPE;
	r = receive(lane, subject, patience_ns, answer, &error);
	return r > 0 ? error : r;
}

/*
 * What a child that has ended did not answer is asked once more. *ret_left: what is left behind; if that are two, the
 * first is the owner's already. -EAGAIN, -EIO: not answered, and not by a fault of the file.
 */
static int ask_lane(struct lane *lane, const struct request *request, int dirfd, struct subject *subject,
		    uint64_t patience_ns, struct answer *answer, struct child *ret_left)
{
	int r = -EPIPE;

	*ret_left = (struct child){ .fd = -1 };
	for (int tries = 0; r == -EPIPE && tries < 2; tries++) {
		if (ret_left->fd >= 0)
			note_answer(subject, (enum foreign_lane)(lane - lanes), *ret_left, now_mono(), 0);
		*ret_left = (struct child){ .fd = -1 };
		answer->len = 0;
		r = lane->socket > 0 ? 0 : start_child(lane);
		if (r < 0)
			return r == -ETIMEDOUT ? -EAGAIN : r;
		r = exchange(lane, request, dirfd, subject, patience_ns, answer);
		if (r == -EPIPE || r == -ETIMEDOUT || r == -EMSGSIZE)
			*ret_left = drop_child(lane);
	}
	return r == -EPIPE || r == -EMSGSIZE ? -EIO : r;
}

/* procfd: of the process pid, to know its user. */
static int ask_about(enum foreign_lane which, const struct request *request, int dirfd, int procfd, int32_t pid,
		     struct answer *answer)
{
	struct lane *lane = &lanes[which];
	struct subject subject = { .procfd = procfd, .pid = pid, .path = request->path };
	uint64_t patience_ns = patience_of(lane, request);
	char patience[UNITS_TEXT_MAX];
	struct child left;
	int r;

	if (!sums.calm && is_refused(subject_owner(&subject), which, now_mono(), patience_ns))
		return -EBUSY;
	pthread_mutex_lock(&lane->lock);
	r = ask_lane(lane, request, dirfd, &subject, patience_ns, answer, &left);
	pthread_mutex_unlock(&lane->lock);
	if (r != -ETIMEDOUT) {
		note_answer(&subject, which, left, now_mono(), answer->waited_ns);
		return r;
	}

	note_hang(subject_owner(&subject), left, now_mono(), patience_ns);
	log_line(LOG_WARNING, "%s%s did not answer within %s%s", request->path[0] == '/' ? "" : "/proc/", request->path,
		 units_format_duration(patience, sizeof patience, patience_ns),
		 left.fd >= 0 ? "; the process that waits for it is left behind" : "");
	return r;
}

static int ask(enum foreign_lane which, const struct request *request, int dirfd, int32_t pid, struct answer *answer)
{
	return ask_about(which, request, dirfd, dirfd, pid, answer);
}

/* ---- requests ---- */

ssize_t foreign_read(enum foreign_lane lane, int dirfd, int32_t pid, const char *path, char *buf, size_t cap)
{
	struct request request = { .kind = REQUEST_READ, .cap = cap - 1, .flags = pid > 0 ? O_NOFOLLOW : O_NONBLOCK };
	struct answer answer = { .data = buf, .cap = cap - 1, .fd = -1 };
	int r;

	if (pid > 0)
		snprintf(request.path, sizeof(request.path), "%d/%s", pid, path);
	else if ((size_t)snprintf(request.path, sizeof(request.path), "%s", path) >= sizeof(request.path))
		return -ENAMETOOLONG;
	r = ask(lane, &request, dirfd, pid, &answer);
	scope_close(&answer.fd);
	buf[answer.len] = '\0';
	if (r < 0)
		return pid > 0 && r == -ENOENT ? -ESRCH : r;
	return (ssize_t)answer.len;
}

/* The length of a text that was cut at len, without an incomplete UTF-8 character at its end. */
static ssize_t whole_characters(const char *text, ssize_t len)
{
	uint32_t code;

	for (ssize_t last = 1; last <= 3 && last <= len; last++) {
		const char *at = text + len - last;

		if (((unsigned char)*at & 0xc0) == 0xc0)
			return text_decode(at, (size_t)last, &code) == 0 ? len - last : len;
		if (((unsigned char)*at & 0xc0) != 0x80)
			return len;
	}

	return len;
}

ssize_t foreign_cmdline(enum foreign_lane lane, int procfd, int32_t pid, char *buf, size_t cap)
{
	ssize_t len = foreign_read(lane, procfd, pid, "cmdline", buf, cap);

	if (len == 0)
		return -ENODATA;
	if (len > 0 && (size_t)len == cap - 1)
		len = whole_characters(buf, len);
	while (len > 0 && buf[len - 1] == '\0')
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (buf[i] == '\0')
			buf[i] = ' ';
	if (len >= 0)
		buf[len] = '\0';
	return len;
}

int32_t foreign_pidfile(enum foreign_lane lane, const char *path)
{
	char text[32] = "";
	ssize_t len = foreign_read(lane, AT_FDCWD, 0, path, text, sizeof(text));
	long pid = len > 0 ? strtol(text, NULL, 10) : 0;

	if (len == -ETIMEDOUT || len == -EBUSY)
		return (int32_t)len;
	return pid > 0 && pid <= INT32_MAX ? (int32_t)pid : 0;
}

ssize_t foreign_call(enum foreign_lane lane, int dirfd, int32_t pid, const char *path, foreign_function *function,
		     const void *argument, size_t len, void *buf, size_t cap)
{
	struct request request = {
		.kind = REQUEST_CALL, .pid = pid, .function = function, .argument_len = (uint32_t)len
	};
	struct answer answer = { .data = buf, .cap = cap, .fd = -1 };
	int r;

	assert(len <= sizeof(request.argument));
	memcpy(request.argument, argument, len);
	if (pid > 0)
		snprintf(request.path, sizeof(request.path), "%d/%s", pid, path);
	else
		snprintf(request.path, sizeof(request.path), "%s", path);
	r = ask(lane, &request, dirfd, pid, &answer);
	scope_close(&answer.fd);
	return r < 0 ? r : (ssize_t)answer.len;
}

int foreign_open(enum foreign_lane lane, int procfd, int32_t pid, const char *path, int flags, size_t *copy_room,
		 struct stat *ret_status)
{
	struct request request = { .kind = REQUEST_OPEN, .pid = pid, .flags = flags, .cap = *copy_room };
	struct opened opened;
	struct answer answer = { .data = (char *)&opened, .cap = sizeof(opened), .fd = -1 };
	int r;

	if ((size_t)snprintf(request.path, sizeof(request.path), "%s", path) >= sizeof(request.path))
		return -ENAMETOOLONG;
	r = ask(lane, &request, procfd, pid, &answer);
	if (r == 0 && (answer.fd < 0 || answer.len != sizeof(opened) || opened.copied > *copy_room))
		r = -EIO;
	if (r < 0) {
		scope_close(&answer.fd);
		return r;
	}
	*ret_status = opened.status;
	*copy_room -= opened.copied;
	return answer.fd;
}

/* ---- peaks of memory ---- */

/* A queue of descriptors, which are the thread's copies, is a pair of sockets. */
static struct {
	int send, receive; /* 0: not begun */
	int procfd;
} peaks;

/* A foreign_function: dirfd is clear_refs. */
static int write_clear_refs(int dirfd, const void *argument, size_t len, const struct sink *to)
{
	(void)argument;
	(void)len;
	(void)to;
	return pwrite(dirfd, "5", 1, 0) < 0 ? -errno : 0;
}

static void reset_peak(int fd)
{
	struct request request = { .kind = REQUEST_CALL, .function = write_clear_refs };
	struct answer answer = { .fd = -1 };
	char link[32], path[64] = "";
	int32_t pid = 0;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (readlink(link, path, sizeof(path) - 1) > 0 && sscanf(path, "/proc/%d/", &pid) != 1)
		pid = 0;
	snprintf(request.path, sizeof(request.path), "%d/clear_refs", pid);
	ask_about(FOREIGN_PEAKS, &request, fd, peaks.procfd, pid, &answer);
}

static void *run_peaks(void *argument)
{
	(void)argument;
	prctl(PR_SET_NAME, "peaks");
	for (;;) {
		union control control;
		char byte;
		struct iovec bytes = { .iov_base = &byte, .iov_len = 1 };
		struct msghdr message = { .msg_iov = &bytes,
					  .msg_iovlen = 1,
					  .msg_control = control.room,
					  .msg_controllen = sizeof(control.room) };
		int fd = recvmsg(peaks.receive, &message, MSG_CMSG_CLOEXEC) > 0 ? message_take_fd(&message) : -1;

		if (fd >= 0) {
			reset_peak(fd);
			close(fd);
		}
	}
	return NULL;
}

int foreign_peaks_begin(void)
{
	pthread_t thread;
	int pair[2], r;

	if (peaks.send > 0)
		return 0;
	peaks.procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (peaks.procfd < 0 || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
		scope_close(&peaks.procfd);
		return r;
	}
	peaks.receive = pair[0];
	r = thread_start(&thread, run_peaks, NULL);
	if (r < 0) {
		close(pair[0]);
		close(pair[1]);
		close(peaks.procfd);
		return r;
	}
	pthread_detach(thread);
	peaks.send = pair[1];
	return 0;
}

void foreign_reset_peak(int fd)
{
	union control control;
	char byte = 0;
	struct iovec bytes = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };

	message_set_fd(&message, &control, fd);
	(void)sendmsg(peaks.send, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

const char *foreign_error(int error)
{
	if (error == -ETIMEDOUT)
		return "did not answer in time";
	if (error == -EBUSY)
		return "not read: files of its user do not answer in time";
	if (error == -EFBIG)
		return "too much to be copied from its file system";
	return strerrordesc_np(-error);
}
