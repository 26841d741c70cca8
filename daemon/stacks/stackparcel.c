/*
 * stackparcel.c: a file is handed over only if it is the one that was mapped: same device and inode where the kernel has said these; where it
 * has said the build id, the symboliser compares. They are opened as early as can be: a process that ends takes its view of the files along. What cannot be opened is handed over closed (-1), for its build id.
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

/*
 * Through its mapping, which takes CAP_CHECKPOINT_RESTORE (or CAP_SYS_ADMIN) and also reaches what was deleted, replaced by a newer version, or is of
 * another mount; as the process sees it; and when the process is gone, where we would find it. -1: nowhere.
 */
static int open_mapped(int procfd, const struct stackrecorder_file *file)
{
	char paths[3][4200];

	snprintf(paths[1], sizeof paths[1], "%u/root%s", file->pid, file->path);
	snprintf(paths[0], sizeof paths[0], "%u/map_files/%jx-%jx", file->pid, (uintmax_t)file->start,
		 (uintmax_t)file->end);
	snprintf(paths[2], sizeof paths[2], "%s", file->path);
	for (int way = 0; way < 3; way++) {
		AUTO_CLOSE int fd = open_regular(procfd, paths[way], 0);

		if (fd >= 0 && is_the_one(fd, &file->file))
			return TAKE_FD(fd);
	}

	return -1;
}

static struct stackfile_entry *find_file(struct stackparcel *parcel, const struct stackrecorder_file *file)
{
	for (size_t i = 0; i < parcel->count; i++)
		if (parcel->entries[i].binary.kind == STACKFILE_ELF &&
		    perfrecord_file_same(&parcel->entries[i].binary.file, &file->file) &&
		    strcmp(parcel->entries[i].path, file->path) == 0)
			return &parcel->entries[i];

	return NULL;
}

static void add_file(struct stackparcel *parcel, int procfd, const struct stackrecorder_file *file, size_t files_max)
{
	struct stackfile_entry *entry = find_file(parcel, file);

	if (!entry) {
		if (parcel->files == files_max)
			return;
		parcel->files++;
		entry = &parcel->entries[parcel->count++];
		*entry = (struct stackfile_entry){
			.binary = { .fd = -1, .kind = STACKFILE_ELF, .pid = file->pid, .file = file->file },
			.path = file->path,
		};
	}
	if (entry->binary.fd < 0)
		entry->binary.fd = open_mapped(procfd, file);
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

static bool has_perf_map(const struct stackparcel *parcel, uint32_t pid)
{
	for (size_t i = 0; i < parcel->count; i++)
		if (parcel->entries[i].binary.kind == STACKFILE_PERF_MAP && parcel->entries[i].binary.pid == pid)
			return true;

	return false;
}

/* A perf map of a running process, if it has one that is a file. It is read later, and may grow until then. */
static void add_perf_map(struct stackparcel *parcel, int procfd, uint32_t pid)
{
	struct stackfile_binary binary = { .kind = STACKFILE_PERF_MAP, .pid = pid };
	char *path = parcel->names[parcel->perf_maps], full[96];

	if (has_perf_map(parcel, pid))
		return;

	snprintf(path, sizeof parcel->names[0], "/tmp/perf-%u.map", inner_pid(procfd, pid));
	snprintf(full, sizeof full, "%u/root%s", pid, path);
	binary.fd = open_regular(procfd, full, O_NOFOLLOW);
	if (binary.fd < 0)
		return;

	parcel->entries[parcel->count++] = (struct stackfile_entry){ .binary = binary, .path = path };
	parcel->perf_maps++;
}

void stackparcel_add(struct stackparcel *parcel, int procfd, const struct stackrecorder_snapshot *snapshot,
		     size_t files_max)
{
	if (files_max > STACKPARCEL_FILES_MAX)
		files_max = STACKPARCEL_FILES_MAX;
	for (size_t i = 0; i < snapshot->file_count; i++)
		if (snapshot->files[i].path[0] == '/')
			add_file(parcel, procfd, &snapshot->files[i], files_max);
	for (size_t i = 0; i < snapshot->pid_count && parcel->perf_maps < STACKPARCEL_PERF_MAPS_MAX; i++)
		add_perf_map(parcel, procfd, snapshot->pids[i]);
}

void stackparcel_add_kernel(struct stackparcel *parcel, int procfd)
{
	struct stackfile_binary binary = { .kind = STACKFILE_KALLSYMS };

	binary.fd = openat(procfd, "kallsyms", O_RDONLY | O_CLOEXEC);
	if (binary.fd >= 0)
		parcel->entries[parcel->count++] =
			(struct stackfile_entry){ .binary = binary, .path = "/proc/kallsyms" };
}

void stackparcel_close(struct stackparcel *parcel)
{
	for (size_t i = 0; i < parcel->count; i++)
		if (parcel->entries[i].binary.fd >= 0)
			close(parcel->entries[i].binary.fd);
	parcel->count = parcel->files = parcel->perf_maps = 0;
}
