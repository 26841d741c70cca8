/*
 * stackparcel.c: a file is handed over only if it is the one that was mapped: same device and inode where the kernel has said these; where it
 * has said the build id, the symboliser compares. What cannot be opened is handed over closed (-1), for its build id.
 */
#include "stackparcel.h"

#include "scope.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Opens nothing but a regular file: what stands there was chosen by a stranger. -1: it is none. */
static int open_regular(int procfd, const char *path, int flags)
{
	AUTO_CLOSE int fd = openat(procfd, path, O_PATH | O_CLOEXEC | flags);
	char again[32];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -1;

	snprintf(again, sizeof again, "/proc/self/fd/%d", fd);

	return open(again, O_RDONLY | O_CLOEXEC);
}

static bool is_the_one(int fd, const struct perfrecord_file *file)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;

	return file->build_id_len > 0 ||
	       (major(st.st_dev) == file->major && minor(st.st_dev) == file->minor && st.st_ino == file->inode);
}

/* As the process sees it; then through its mapping, which also reaches what was deleted or is of another mount. -1: neither. */
static int open_mapped(int procfd, const struct stackrecorder_file *file)
{
	char path[4200];

	for (int way = 0; way < 2; way++) {
		AUTO_CLOSE int fd = -1;

		if (way == 0)
			snprintf(path, sizeof path, "%u/root%s", file->pid, file->path);
		else
			snprintf(path, sizeof path, "%u/map_files/%jx-%jx", file->pid, (uintmax_t)file->start,
				 (uintmax_t)file->end);
		fd = open_regular(procfd, path, 0);
		if (fd >= 0 && is_the_one(fd, &file->file))
			return TAKE_FD(fd);
	}

	return -1;
}

static void add_entry(struct stackparcel *parcel, const struct stackfile_binary *binary, const char *path)
{
	parcel->entries[parcel->count++] = (struct stackfile_entry){ .binary = *binary, .path = path };
}

static bool is_there(const struct stackparcel *parcel, const struct stackrecorder_file *file)
{
	for (size_t i = 0; i < parcel->count; i++)
		if (perfrecord_file_same(&parcel->entries[i].binary.file, &file->file) &&
		    strcmp(parcel->entries[i].path, file->path) == 0)
			return true;

	return false;
}

static void add_files(struct stackparcel *parcel, int procfd, const struct stackrecorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->file_count && parcel->count < STACKPARCEL_FILES_MAX; i++) {
		const struct stackrecorder_file *file = &snapshot->files[i];
		struct stackfile_binary binary = { .kind = STACKFILE_ELF, .pid = file->pid, .file = file->file };

		if (file->path[0] != '/' || is_there(parcel, file))
			continue;
		binary.fd = open_mapped(procfd, file);
		add_entry(parcel, &binary, file->path);
	}
}

/* The number that a process has in the innermost pid namespace, which its perf map is called by. */
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

/* A perf map of a running process, if it has one that is a file. */
static void add_perf_map(struct stackparcel *parcel, int procfd, uint32_t pid)
{
	struct stackfile_binary binary = { .kind = STACKFILE_PERF_MAP, .pid = pid };
	char *path = parcel->paths[parcel->count], full[96];

	snprintf(path, sizeof parcel->paths[0], "/tmp/perf-%u.map", inner_pid(procfd, pid));
	snprintf(full, sizeof full, "%u/root%s", pid, path);
	binary.fd = open_regular(procfd, full, O_NOFOLLOW);
	if (binary.fd < 0)
		return;
	add_entry(parcel, &binary, path);
}

static void add_perf_maps(struct stackparcel *parcel, int procfd, const struct stackrecorder_snapshot *snapshot)
{
	size_t before = parcel->count;

	for (size_t i = 0; i < snapshot->pid_count && parcel->count - before < STACKPARCEL_PERF_MAPS_MAX; i++)
		add_perf_map(parcel, procfd, snapshot->pids[i]);
}

static void add_kallsyms(struct stackparcel *parcel, int procfd)
{
	struct stackfile_binary binary = { .kind = STACKFILE_KALLSYMS, .fd = -1 };

	binary.fd = openat(procfd, "kallsyms", O_RDONLY | O_CLOEXEC);
	if (binary.fd >= 0)
		add_entry(parcel, &binary, "/proc/kallsyms");
}

void stackparcel_open(struct stackparcel *parcel, int procfd, const struct stackrecorder_snapshot *first,
		      const struct stackrecorder_snapshot *second)
{
	add_files(parcel, procfd, first);
	add_files(parcel, procfd, second);
	add_perf_maps(parcel, procfd, second->pid_count ? second : first);
	add_kallsyms(parcel, procfd);
}

void stackparcel_close(const struct stackparcel *parcel)
{
	for (size_t i = 0; i < parcel->count; i++)
		if (parcel->entries[i].binary.fd >= 0)
			close(parcel->entries[i].binary.fd);
}
