/*
 * cgroup.c: a table of files. Each has a controller, a name in v1 and one in v2; which of them exist differs between kernels,
 * between hierarchies and between the root and the rest, so each is opened if it is there, and what is not there is
 * unavailable.
 *
 * v1 wins where a controller is mounted there, as it can be in one hierarchy only. cpu.stat and pressure exist in every v2
 * cgroup, controllers or not. Every file is read every time: its values are independent of each other (memory is charged by
 * whoever touches it, pressure grows while nobody runs), so none of them can stand guard for the rest.
 */
#include "cgroup.h"

#include "cgroupfs.h"
#include "clock.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* v2 memory.stat has some 70 lines of at most 50 bytes, v1's and everything else less. */
#define FILE_MAX 8192

static const struct {
	enum cgroup_controller controller;
	const char *v1; /* NULL: not in v1 */
	const char *v2;
} table[CGROUP_FILES] = {
	[CGROUP_FILE_CPU_USAGE] = { CGROUP_CPUACCT, "cpuacct.usage", NULL },
	[CGROUP_FILE_CPU_TIMES] = { CGROUP_CPUACCT, "cpuacct.stat", NULL },
	[CGROUP_FILE_CPU_STAT] = { CGROUP_CPU, "cpu.stat", "cpu.stat" },
	[CGROUP_FILE_MEMORY_USAGE] = { CGROUP_MEMORY, "memory.usage_in_bytes", "memory.current" },
	[CGROUP_FILE_MEMORY_PEAK] = { CGROUP_MEMORY, "memory.max_usage_in_bytes", "memory.peak" },
	[CGROUP_FILE_MEMORY_STAT] = { CGROUP_MEMORY, "memory.stat", "memory.stat" },
	[CGROUP_FILE_PIDS] = { CGROUP_PIDS, "pids.current", "pids.current" },
	[CGROUP_FILE_CPU_PRESSURE] = { CGROUP_CPU, NULL, "cpu.pressure" },
	[CGROUP_FILE_MEMORY_PRESSURE] = { CGROUP_MEMORY, NULL, "memory.pressure" },
	[CGROUP_FILE_IO_PRESSURE] = { CGROUP_CPU, NULL, "io.pressure" },
};

/* The directory a file is to be found in and its name there; NULL: nowhere. */
static const char *find_file(const struct cgroup_mounts *mounts, enum cgroup_file file, const char **ret_name)
{
	bool v2;
	const char *dir = cgroup_mounts_controller(mounts, table[file].controller, &v2);

	if (dir && !v2 && table[file].v1) {
		*ret_name = table[file].v1;
		return dir;
	}
	/* With the controller in v1, v2 knows nothing of it but pressure. */
	if (dir && !v2 && table[file].v1 == NULL)
		v2 = true;
	*ret_name = table[file].v2;

	return table[file].v2 && (v2 || !dir) ? cgroup_mounts_v2(mounts) : NULL;
}

static bool is_below_root(const char *path)
{
	size_t len = strlen(path);

	if (path[0] != '/' || strstr(path, "/../"))
		return false;

	return len < 3 || strcmp(path + len - 3, "/..") != 0;
}

/* A high-water mark may be asked to start anew, which is a write; where that is not allowed it is only read. */
static int open_file(const char *name, enum cgroup_file file)
{
	int fd = file == CGROUP_FILE_MEMORY_PEAK ? open(name, O_RDWR | O_CLOEXEC) : -1;

	return fd >= 0 ? fd : open(name, O_RDONLY | O_CLOEXEC);
}

int cgroup_files_init(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path)
{
	char name[PATH_MAX];

	files->ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	files->live = 0;
	memset(files->fd, 0xff, sizeof(files->fd));
	if (!is_below_root(path))
		return -ENOENT;

	for (int i = 0; i < CGROUP_FILES; i++) {
		const char *file;
		const char *dir = find_file(mounts, (enum cgroup_file)i, &file);
		if (!dir)
			continue;

		int r = 0;
		if ((size_t)snprintf(name, sizeof(name), "%s%s/%s", dir, path, file) >= sizeof(name))
			r = -ENAMETOOLONG;
		else if ((files->fd[i] = open_file(name, (enum cgroup_file)i)) >= 0)
			files->live |= 1u << i;
		else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			r = -errno;
		if (r < 0) {
			cgroup_files_release(files);
			return r;
		}
	}

	return files->live != 0 ? 0 : -ENOENT;
}

void cgroup_files_release(struct cgroup_files *files)
{
	for (int i = 0; i < CGROUP_FILES; i++) {
		if (files->fd[i] >= 0)
			close(files->fd[i]);
		files->fd[i] = -1;
	}
	files->live = 0;
}

static int set_number(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	uint64_t number;
	int r = cgroupfs_number_parse(buf, len, &number);

	if (r == 0)
		sample_set(sample, field, number);

	return r;
}

static int set_pressure(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	uint64_t total_ns;
	int r = cgroupfs_pressure_parse(buf, len, &total_ns);

	if (r == 0)
		sample_set(sample, field, total_ns);

	return r;
}

/* Working set as the orchestrators define it: usage less what the kernel would drop first. */
static void set_memory_stat(const char *buf, size_t len, struct sample *sample)
{
	struct cgroupfs_memory_stat stat;

	cgroupfs_memory_stat_parse(buf, len, &stat);
	if (sample_has(sample, SAMPLE_MEMORY) && stat.inactive_file != UINT64_MAX) {
		uint64_t usage = sample->value[SAMPLE_MEMORY];
		sample_set(sample, SAMPLE_WORKING_SET, usage > stat.inactive_file ? usage - stat.inactive_file : 0);
	}
	if (stat.major_faults == UINT64_MAX || stat.faults == UINT64_MAX)
		return;

	/* The two are summed over CPUs one after the other: for a moment there may be more major faults than faults. */
	uint64_t minor_faults = stat.faults > stat.major_faults ? stat.faults - stat.major_faults : 0;
	sample_set(sample, SAMPLE_MINOR_FAULTS, minor_faults);
	sample_set(sample, SAMPLE_MAJOR_FAULTS, stat.major_faults);
}

static int parse(const struct cgroup_files *files, enum cgroup_file file, const char *buf, size_t len,
		 struct sample *sample)
{
	switch (file) {
	case CGROUP_FILE_CPU_USAGE:
		return set_number(buf, len, SAMPLE_CPU, sample);
	case CGROUP_FILE_CPU_TIMES:
		cgroupfs_cpuacct_stat_parse(buf, len, files->ns_per_tick, sample);
		return 0;
	case CGROUP_FILE_CPU_STAT:
		cgroupfs_cpu_stat_parse(buf, len, sample);
		return 0;
	case CGROUP_FILE_MEMORY_USAGE:
		return set_number(buf, len, SAMPLE_MEMORY, sample);
	case CGROUP_FILE_MEMORY_PEAK:
		return set_number(buf, len, SAMPLE_MEMORY_PEAK, sample);
	case CGROUP_FILE_MEMORY_STAT:
		set_memory_stat(buf, len, sample);
		return 0;
	case CGROUP_FILE_PIDS:
		return set_number(buf, len, SAMPLE_PIDS, sample);
	case CGROUP_FILE_CPU_PRESSURE:
		return set_pressure(buf, len, SAMPLE_CPU_PRESSURE, sample);
	case CGROUP_FILE_MEMORY_PRESSURE:
		return set_pressure(buf, len, SAMPLE_MEMORY_PRESSURE, sample);
	case CGROUP_FILE_IO_PRESSURE:
		return set_pressure(buf, len, SAMPLE_IO_PRESSURE, sample);
	case CGROUP_FILES:
		break;
	}

	return 0;
}

/*
 * ENODEV: removed. EOPNOTSUPP: pressure is compiled in and switched off. Either file is left alone from then on; it is closed
 * with the others.
 */
static int read_one(struct cgroup_files *files, enum cgroup_file file, struct sample *sample)
{
	char buf[FILE_MAX];

	ssize_t len = pread(files->fd[file], buf, sizeof(buf), 0);
	if (len >= 0)
		return parse(files, file, buf, (size_t)len, sample);
	if (errno != ENODEV && errno != EOPNOTSUPP)
		return -errno;

	files->live &= ~(1u << file);
	return 0;
}

int cgroup_files_read(struct cgroup_files *files, struct sample *sample)
{
	struct sample fresh = { 0 };
	int result = 0;

	for (uint32_t left = files->live; left != 0; left &= left - 1) {
		int r = read_one(files, (enum cgroup_file)__builtin_ctz(left), &fresh);

		if (r < 0 && result == 0)
			result = r;
	}
	if (files->live == 0)
		return -ENOENT;

	*sample = fresh;
	return result;
}

void cgroup_files_reset_peak(struct cgroup_files *files)
{
	/* A kernel or a permission that does not have it leaves the mark as it is: it then only rises. */
	if (files->fd[CGROUP_FILE_MEMORY_PEAK] >= 0 && pwrite(files->fd[CGROUP_FILE_MEMORY_PEAK], "0", 1, 0) < 0)
		return;
}
