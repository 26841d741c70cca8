/*
 * fuse_mount.h: a file system with one file, by a server that answers until it is told not to: the
 * raw protocol of /dev/fuse (linux/fuse.h). In a mount namespace of the test, so that nothing stays
 * mounted; requests that were not answered fail when the server ends, as its descriptor was the
 * only one.
 */
#ifndef SPIKEWATCH_TESTS_FUSE_MOUNT_H
#define SPIKEWATCH_TESTS_FUSE_MOUNT_H

#include "skip.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Requests that are not answered, as bits. */
#define FUSE_HANGS(opcode) (1ULL << (opcode))

struct fuse_mount {
	char directory[64], file[80]; /* "DIRECTORY/file" */
	pid_t server;
	struct {
		_Atomic uint64_t hang;    /* FUSE_HANGS */
		_Atomic uint64_t ignored; /* requests that were not answered */
		_Atomic uint64_t fail;    /* so many reads fail before others hang */
	} * shared;
};

struct fuse_content {
	const char *data;
	size_t len;
};

static inline void fuse_answer(int fd, uint64_t unique, int error, const void *data, size_t len)
{
	struct fuse_out_header head = { .len = (uint32_t)(sizeof(head) + len), .error = -error, .unique = unique };
	char message[sizeof(head) + 65536 + 4096];

	memcpy(message, &head, sizeof(head));
	if (len > 0)
		memcpy(message + sizeof(head), data, len);
	(void)!write(fd, message, sizeof(head) + len);
}

static inline struct fuse_attr fuse_attributes(uint64_t node, const struct fuse_content *content)
{
	return (struct fuse_attr){
		.ino = node,
		.size = node == FUSE_ROOT_ID ? 0 : content->len,
		.blksize = 4096,
		.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755,
		.nlink = 1,
	};
}

static inline void fuse_answer_request(int fd, const char *request, const struct fuse_content *content)
{
	const struct fuse_in_header *head = (const void *)request;
	const void *body = request + sizeof(*head);
	const struct fuse_read_in *read_in = body;
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096 };
	struct fuse_entry_out entry = { .nodeid = 2, .attr = fuse_attributes(2, content) };
	struct fuse_attr_out attr = { .attr = fuse_attributes(head->nodeid, content) };
	struct fuse_open_out opened = { .fh = 1 };
	struct fuse_statfs_out statfs_out = { .st = { .bsize = 4096, .namelen = 255 } };
	size_t at, len;

	switch (head->opcode) {
	case FUSE_INIT:
		fuse_answer(fd, head->unique, 0, &init, sizeof(init));
		return;
	case FUSE_LOOKUP:
		if (strcmp(body, "file") == 0)
			fuse_answer(fd, head->unique, 0, &entry, sizeof(entry));
		else
			fuse_answer(fd, head->unique, ENOENT, NULL, 0);
		return;
	case FUSE_GETATTR:
		fuse_answer(fd, head->unique, 0, &attr, sizeof(attr));
		return;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		fuse_answer(fd, head->unique, 0, &opened, sizeof(opened));
		return;
	case FUSE_READ:
		at = read_in->offset < content->len ? (size_t)read_in->offset : content->len;
		len = content->len - at < read_in->size ? content->len - at : read_in->size;
		fuse_answer(fd, head->unique, 0, content->data + at, len);
		return;
	case FUSE_STATFS:
		fuse_answer(fd, head->unique, 0, &statfs_out, sizeof(statfs_out));
		return;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		fuse_answer(fd, head->unique, 0, NULL, 0);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: /* which has no effect */
		return;
	default:
		fuse_answer(fd, head->unique, ENOSYS, NULL, 0);
	}
}

static inline void fuse_serve(struct fuse_mount *mount, int fd, const struct fuse_content *content)
{
	static char request[1 << 20];
	const struct fuse_in_header *head = (const void *)request;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		ssize_t len = read(fd, request, sizeof(request) - 1);

		if (len < 0 && errno != EINTR && errno != ENOENT)
			_exit(0);
		if (len < (ssize_t)sizeof(*head))
			continue;
		request[len] = '\0';
		if (head->opcode == FUSE_READ && mount->shared->fail > 0) {
			mount->shared->fail--;
			fuse_answer(fd, head->unique, EIO, NULL, 0);
		} else if (head->opcode < 64 && mount->shared->hang >> head->opcode & 1) {
			mount->shared->ignored++;
		} else {
			fuse_answer_request(fd, request, content);
		}
	}
}

/*
 * Mounts a file system whose file has the content of `like`. False, with skip_reason: it is not
 * possible here.
 */
__attribute__((unused)) static bool fuse_mount_begin(struct fuse_mount *mounted, const char *like)
{
	int file = open(like, O_RDONLY | O_CLOEXEC), fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct fuse_content content;
	char options[128];
	struct stat st;

	if (fd < 0 || unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		close(file);
		return skip_because("no /dev/fuse, or no right to mount: %s", strerror(errno));
	}
	if (file < 0 || fstat(file, &st) < 0)
		return skip_because("%s: %s", like, strerror(errno));
	content.len = (size_t)st.st_size;
	content.data = mmap(NULL, content.len + 1, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	snprintf(mounted->directory, sizeof(mounted->directory), "/tmp/check_fuse.XXXXXX");
	if (!mkdtemp(mounted->directory))
		return skip_because("%s: %s", mounted->directory, strerror(errno));
	snprintf(mounted->file, sizeof(mounted->file), "%s/file", mounted->directory);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd);
	if (mount("check", mounted->directory, "fuse.check", 0, options) < 0) {
		rmdir(mounted->directory);
		return skip_because("cannot mount FUSE: %s", strerror(errno));
	}
	mounted->shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mounted->server = fork();
	if (mounted->server < 0)
		return skip_because("fork: %s", strerror(errno));
	if (mounted->server == 0)
		fuse_serve(mounted, fd, &content);
	close(fd);
	return true;
}

/* From here on these requests are not answered; 0: all are. */
__attribute__((unused)) static void fuse_mount_hang(struct fuse_mount *mount, uint64_t opcodes)
{
	mount->shared->hang = opcodes;
}

/* Ends the server: what waits fails. */
__attribute__((unused)) static void fuse_mount_end(struct fuse_mount *mount)
{
	kill(mount->server, SIGKILL);
	waitpid(mount->server, NULL, 0);
	umount2(mount->directory, MNT_DETACH);
	rmdir(mount->directory);
}

static inline void *fuse_touch_page(void *page)
{
	return (void *)(intptr_t) * (volatile char *)page;
}

/* Whether the first thread of a process waits in the kernel, out of reach. */
static inline bool fuse_process_waits(pid_t pid)
{
	char path[64], state = '\0';

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, pid);

	FILE *file = fopen(path, "re");
	bool found = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;

	if (file)
		fclose(file);
	return found && state == 'D';
}

/*
 * Starts a process whose mmap lock is taken for good, while the mount hangs in reads: one thread
 * waits for a page of the file (the first attempt gives the lock back while it waits, and fails;
 * the second does not), the first thread waits for the lock to write, and with that everything that only
 * wants to read what is mapped: /proc/PID/cmdline, smaps, pagemap. Ended by SIGKILL after
 * fuse_mount_end().
 */
__attribute__((unused)) static pid_t fuse_mount_lock_process(struct fuse_mount *mount, uid_t uid)
{
	int file = open(mount->file, O_RDONLY | O_CLOEXEC);
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
	pthread_t thread;
	pid_t pid;

	if (file < 0 || page == MAP_FAILED)
		abort();
	madvise(page, 4096, MADV_RANDOM);
	mount->shared->fail = 1;
	fuse_mount_hang(mount, FUSE_HANGS(FUSE_READ));
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid > 0 && setuid(uid) < 0)
			_exit(1);
		pthread_create(&thread, NULL, fuse_touch_page, page);
		while (mount->shared->ignored == 0)
			usleep(1000);
		(void)!mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (;;)
			pause();
	}
	/* In a row, and not for a moment, as for a page of its stack. */
	for (int naps = 0, waits = 0; naps < 30000 && waits < 20; naps++) {
		waits = mount->shared->ignored > 0 && fuse_process_waits(pid) ? waits + 1 : 0;
		usleep(1000);
	}
	munmap(page, 4096);
	close(file);
	return pid;
}

#endif
