/*
 * cgroup.c: the files of a cgroup, and a tree of cgroups with their limits.
 *
 * There is a table of files. Each has a controller, a name in v1 and one in v2; which of them
 * exist differs between kernels, between hierarchies and between the root and the rest, so each is
 * opened if it is there, and what is not there is unavailable.
 *
 * v1 wins where a controller is mounted there, as it can be in one hierarchy only. cpu.stat and
 * pressure exist in every v2 cgroup, controllers or not.
 *
 * v1 and v2 have the same file names with other keys. One table of keys serves both: a key that is
 * missing leaves its value unavailable, so no caller has to know the version that wrote a file.
 */
#include "lib/cgroup/cgroup.h"

#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* ---- parsers ----
 *
 * Pure, of any bytes. What is cut short counts as missing: a number must be followed by the byte
 * that ends it.
 */

/*
 * v1 says "no limit" by LONG_MAX rounded down to a page, and some kernels by half of it; no machine
 * has 4 EiB.
 */
#define UNLIMITED_BYTES (1ULL << 62)

/* The kernel knows at most 8,192 CPUs (CONFIG_NR_CPUS); more is garbage, and must not wrap. */
#define CPU_NUMBER_MAX 65535

/* A decimal number at *at, which moves behind it. False: no digit, or too large. */
static bool take_number(const char **at, const char *end, uint64_t *ret)
{
	const char *first = *at;
	uint64_t number = 0;

	for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
		uint64_t digit = (uint64_t)(**at - '0');

		if (number > (UINT64_MAX - digit) / 10)
			return false;
		number = number * 10 + digit;
	}
	if (*at == first)
		return false;

	*ret = number;
	return true;
}

/* Moves *at behind a word if it is there. */
static bool take_word(const char **at, const char *end, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(end - *at) < len || memcmp(*at, word, len) != 0)
		return false;

	*at += len;
	return true;
}

static bool at_newline(const char *at, const char *end)
{
	return at < end && *at == '\n';
}

/* "31305900879\n" */
/* A file that is one number. 0 or -EBADMSG. */
static int cgroup_files_number_parse(const char *buf, size_t len, uint64_t *ret)
{
	const char *at = buf;
	const char *end = buf + len;
	uint64_t number;

	if (!take_number(&at, end, &number) || !at_newline(at, end))
		return -EBADMSG;

	*ret = number;
	return 0;
}

/* "max\n", "-1\n", "9223372036854771712\n", "536870912\n" */
/*
 * A limit in bytes: "max", "-1" and v1's huge number (2^62 and more) are UINT64_MAX: no limit. 0 or
 * -EBADMSG.
 */
static int cgroup_files_limit_parse(const char *buf, size_t len, uint64_t *ret_bytes)
{
	const char *at = buf;
	const char *end = buf + len;
	uint64_t number = UINT64_MAX;

	if (!take_word(&at, end, "max") && !take_word(&at, end, "-1") && !take_number(&at, end, &number))
		return -EBADMSG;
	if (!at_newline(at, end))
		return -EBADMSG;

	*ret_bytes = number >= UNLIMITED_BYTES ? UINT64_MAX : number;
	return 0;
}

/* "max 100000\n", "20000 100000\n": microseconds */
/* v2 cpu.max; quota UINT64_MAX: no limit. period is never 0. 0 or -EBADMSG. */
static int cgroup_files_cpu_max_parse(const char *buf, size_t len, uint64_t *ret_quota_us, uint64_t *ret_period_us)
{
	const char *at = buf;
	const char *end = buf + len;
	uint64_t quota = UINT64_MAX;
	uint64_t period;

	if (!take_word(&at, end, "max") && !take_number(&at, end, &quota))
		return -EBADMSG;
	if (!take_word(&at, end, " ") || !take_number(&at, end, &period) || !at_newline(at, end) || period == 0)
		return -EBADMSG;

	*ret_quota_us = quota;
	*ret_period_us = period;
	return 0;
}

/* "0-3,8\n", "0\n", "\n". Ranges ascend and do not overlap, as the kernel prints them. */
/* How many CPUs a list such as "0-3,8" names; an empty one names 0. 0 or -EBADMSG. */
static int cgroup_files_cpus_parse(const char *buf, size_t len, uint32_t *ret_count)
{
	const char *at = buf;
	const char *end = buf + len;
	uint64_t count = 0;
	uint64_t lowest = 0;

	while (!at_newline(at, end)) {
		uint64_t first;
		if (!take_number(&at, end, &first))
			return -EBADMSG;

		uint64_t last = first;
		if (take_word(&at, end, "-") && !take_number(&at, end, &last))
			return -EBADMSG;
		if (first < lowest || last < first || last > CPU_NUMBER_MAX)
			return -EBADMSG;

		count += last - first + 1;
		lowest = last + 1;
		if (!take_word(&at, end, ",") && !at_newline(at, end))
			return -EBADMSG;
	}

	*ret_count = (uint32_t)count;
	return 0;
}

/*
 * Puts the numbers of lines "key number\n" into values, in the order of keys; UINT64_MAX where
 * there is no such line.
 */
static void parse_keyed(const char *buf, size_t len, const char *const keys[], size_t count, uint64_t values[])
{
	const char *end = buf + len;

	memset(values, 0xff, count * sizeof(values[0]));
	for (const char *line = buf, *newline; line < end; line = newline + 1) {
		newline = memchr(line, '\n', (size_t)(end - line));
		if (!newline)
			return;

		for (size_t i = 0; i < count; i++) {
			const char *at = line;
			uint64_t number;

			if (*line == *keys[i] && take_word(&at, newline, keys[i]) && take_word(&at, newline, " ") &&
			    take_number(&at, newline, &number) && at == newline)
				values[i] = number;
		}
	}
}

static void set_scaled(struct sample *sample, enum sample_field field, uint64_t value, uint64_t scale)
{
	uint64_t scaled;

	if (value != UINT64_MAX && !__builtin_mul_overflow(value, scale, &scaled))
		sample_set(sample, field, scaled);
}

/*
 * cpu.stat. v2: "usage_usec 27647792\nuser_usec 11833206\nsystem_usec 15814586\nnice_usec 0\n", and
 * with the cpu controller "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n".
 * v1: "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n": the time in nanoseconds
 */
static void cgroup_files_cpu_stat_parse(const char *buf, size_t len, struct sample *sample)
{
	static const struct {
		enum sample_field field;
		uint64_t scale;
	} columns[] = {
		{ SAMPLE_CPU, NS_PER_US }, { SAMPLE_CPU_USER, NS_PER_US },  { SAMPLE_CPU_SYSTEM, NS_PER_US },
		{ SAMPLE_PERIODS, 1 },     { SAMPLE_THROTTLED_PERIODS, 1 }, { SAMPLE_THROTTLED, NS_PER_US },
		{ SAMPLE_THROTTLED, 1 },
	};
	static const char *const keys[ARRAY_LEN(columns)] = {
		"usage_usec",   "user_usec",      "system_usec",    "nr_periods",
		"nr_throttled", "throttled_usec", "throttled_time",
	};
	uint64_t values[ARRAY_LEN(columns)];

	parse_keyed(buf, len, keys, ARRAY_LEN(keys), values);
	for (size_t i = 0; i < ARRAY_LEN(columns); i++)
		set_scaled(sample, columns[i].field, values[i], columns[i].scale);
}

/* v1 cpuacct.stat: "user 1339\nsystem 1791\n", in clock ticks */
static void cgroup_files_cpuacct_stat_parse(const char *buf, size_t len, uint64_t ns_per_tick, struct sample *sample)
{
	static const char *const keys[] = { "user", "system" };
	uint64_t values[ARRAY_LEN(keys)];

	parse_keyed(buf, len, keys, ARRAY_LEN(keys), values);
	set_scaled(sample, SAMPLE_CPU_USER, values[0], ns_per_tick);
	set_scaled(sample, SAMPLE_CPU_SYSTEM, values[1], ns_per_tick);
}

/* What memory.stat says, of the cgroup and everything below it. UINT64_MAX: unavailable. */
struct cgroup_files_memory_stat {
	uint64_t inactive_file; /* bytes */
	uint64_t faults;        /* pgfault: minor and major */
	uint64_t major_faults;
};

/*
 * memory.stat. v2: "anon 10584064\n...inactive_file 149012480\n...pgfault 1290221\npgmajfault 1101\n..."
 * v1: the same keys for the cgroup alone, and "total_inactive_file 149012480\n" and so on for the subtree
 */
static void cgroup_files_memory_stat_parse(const char *buf, size_t len, struct cgroup_files_memory_stat *ret)
{
	static const char *const keys[] = {
		"inactive_file", "pgfault", "pgmajfault", "total_inactive_file", "total_pgfault", "total_pgmajfault",
	};
	uint64_t values[ARRAY_LEN(keys)];

	parse_keyed(buf, len, keys, ARRAY_LEN(keys), values);
	for (size_t i = 0; i < 3; i++) {
		if (values[i + 3] != UINT64_MAX)
			values[i] = values[i + 3];
	}

	*ret = (struct cgroup_files_memory_stat){
		.inactive_file = values[0],
		.faults = values[1],
		.major_faults = values[2],
	};
}

/*
 * The total of the "some" line of *.pressure (Linux 4.20), there in microseconds. 0 or -EBADMSG.
 * "some avg10=0.00 avg60=0.23 avg300=0.20 total=4501363\nfull avg10=...\n"
 */
static int cgroup_files_pressure_parse(const char *buf, size_t len, uint64_t *ret_ns)
{
	static const char total[] = " total=";
	const char *at = buf;
	const char *newline = len > 0 ? memchr(buf, '\n', len) : NULL;
	uint64_t us;

	if (!newline || !take_word(&at, newline, "some "))
		return -EBADMSG;

	at = memmem(buf, (size_t)(newline - buf), total, strlen(total));
	if (!at)
		return -EBADMSG;

	at += strlen(total);
	if (!take_number(&at, newline, &us) || at != newline || us > UINT64_MAX / NS_PER_US)
		return -EBADMSG;

	*ret_ns = us * NS_PER_US;
	return 0;
}

static int set_number(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	uint64_t number;
	int r = cgroup_files_number_parse(buf, len, &number);

	if (r == 0)
		sample_set(sample, field, number);
	return r;
}

static int set_pressure(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	uint64_t total_ns;
	int r = cgroup_files_pressure_parse(buf, len, &total_ns);

	if (r == 0)
		sample_set(sample, field, total_ns);
	return r;
}

/* Working set as the orchestrators define it: usage less what the kernel would drop first. */
static int set_memory_stat(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	struct cgroup_files_memory_stat stat;

	(void)field;
	cgroup_files_memory_stat_parse(buf, len, &stat);
	if (sample_has(sample, SAMPLE_MEMORY) && stat.inactive_file != UINT64_MAX) {
		uint64_t usage = sample->value[SAMPLE_MEMORY];
		sample_set(sample, SAMPLE_WORKING_SET, usage > stat.inactive_file ? usage - stat.inactive_file : 0);
	}
	if (stat.major_faults == UINT64_MAX || stat.faults == UINT64_MAX)
		return 0;

	/*
	 * The two are summed over CPUs one after the other: for a moment there may be more major
	 * faults than faults.
	 */
	uint64_t minor_faults = stat.faults > stat.major_faults ? stat.faults - stat.major_faults : 0;
	sample_set(sample, SAMPLE_MINOR_FAULTS, minor_faults);
	sample_set(sample, SAMPLE_MAJOR_FAULTS, stat.major_faults);
	return 0;
}

static int set_cpu_stat(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	(void)field;
	cgroup_files_cpu_stat_parse(buf, len, sample);
	return 0;
}

static int set_cpu_times(const char *buf, size_t len, enum sample_field field, struct sample *sample)
{
	(void)field;
	cgroup_files_cpuacct_stat_parse(buf, len, NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK), sample);
	return 0;
}

/* v2 memory.stat has some 70 lines of at most 50 bytes, v1's and everything else less. */
#define FILE_MAX 8192

static const struct {
	enum cgroup_resource controller;
	const char *v1, *v2; /* NULL: not in that version */
	int (*parse)(const char *buf, size_t len, enum sample_field field, struct sample *sample);
	enum sample_field field; /* of a file that has one number */
} table[CGROUP_FILES] = {
	[CGROUP_FILE_CPU_USAGE] = { CGROUP_CPUACCT, "cpuacct.usage", NULL, set_number, SAMPLE_CPU },
	[CGROUP_FILE_CPU_TIMES] = { CGROUP_CPUACCT, "cpuacct.stat", NULL, set_cpu_times, 0 },
	[CGROUP_FILE_CPU_STAT] = { CGROUP_CPU, "cpu.stat", "cpu.stat", set_cpu_stat, 0 },
	[CGROUP_FILE_MEMORY_USAGE] = { CGROUP_MEMORY, "memory.usage_in_bytes", "memory.current", set_number,
				       SAMPLE_MEMORY },
	[CGROUP_FILE_MEMORY_PEAK] = { CGROUP_MEMORY, "memory.max_usage_in_bytes", "memory.peak", set_number,
				      SAMPLE_MEMORY_PEAK },
	[CGROUP_FILE_MEMORY_STAT] = { CGROUP_MEMORY, "memory.stat", "memory.stat", set_memory_stat, 0 },
	[CGROUP_FILE_PIDS] = { CGROUP_PIDS, "pids.current", "pids.current", set_number, SAMPLE_PIDS },
	[CGROUP_FILE_CPU_PRESSURE] = { CGROUP_CPU, NULL, "cpu.pressure", set_pressure, SAMPLE_CPU_PRESSURE },
	[CGROUP_FILE_MEMORY_PRESSURE] = { CGROUP_MEMORY, NULL, "memory.pressure", set_pressure,
					  SAMPLE_MEMORY_PRESSURE },
	[CGROUP_FILE_IO_PRESSURE] = { CGROUP_CPU, NULL, "io.pressure", set_pressure, SAMPLE_IO_PRESSURE },
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
	v2 |= dir && !table[file].v1;
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

static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/*
 * A high-water mark may be asked to start anew, which is a write; where that is not allowed it is
 * only read.
 */
static int open_file(const char *root, const char *path, enum cgroup_file file)
{
	int fd = file == CGROUP_FILE_MEMORY_PEAK ? cgroup_open(root, path, O_RDWR) : -1;

	return fd >= 0 ? fd : cgroup_open(root, path, O_RDONLY);
}

/* wanted: 1 << enum cgroup_file */
static int init_files(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path, uint32_t wanted)
{
	char name[PATH_MAX];

	files->live = 0;
	memset(files->fd, 0xff, sizeof(files->fd));
	if (!is_below_root(path))
		return -ENOENT;

	for (int i = 0; i < CGROUP_FILES; i++) {
		const char *file;
		const char *dir = find_file(mounts, (enum cgroup_file)i, &file);
		if (!dir || !(wanted >> i & 1))
			continue;

		bool fits = (size_t)snprintf(name, sizeof(name), "%s/%s", strcmp(path, "/") == 0 ? "" : path, file) <
			    sizeof(name);
		int fd = fits ? open_file(dir, name, (enum cgroup_file)i) : -ENAMETOOLONG;
		if (!fits || is_shortage(fd)) {
			cgroup_files_release(files);
			return fd;
		}
		if (fd >= 0) {
			files->fd[i] = fd;
			files->live |= 1u << i;
		}
	}
	return files->live != 0 ? 0 : -ENOENT;
}

int cgroup_files_init(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path)
{
	return init_files(files, mounts, path, UINT32_MAX);
}

int cgroup_files_init_usage(struct cgroup_files *files, const struct cgroup_mounts *mounts, const char *path)
{
	return init_files(files, mounts, path, 1u << CGROUP_FILE_CPU_USAGE | 1u << CGROUP_FILE_CPU_STAT);
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

/*
 * ENODEV: removed. EOPNOTSUPP: pressure is compiled in and switched off. Either file is left alone
 * from then on; it is closed with the others.
 */
static int read_one(struct cgroup_files *files, enum cgroup_file file, struct sample *sample)
{
	char buf[FILE_MAX];

	ssize_t len = pread(files->fd[file], buf, sizeof(buf), 0);
	if (len >= 0)
		return table[file].parse(buf, (size_t)len, table[file].field, sample);
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

int cgroup_files_usage(const struct cgroup_files *files, uint64_t *ret_ns)
{
	/* Both kinds begin with it: "usage_usec 27647792\n..." */
	enum cgroup_file file = files->live >> CGROUP_FILE_CPU_USAGE & 1 ? CGROUP_FILE_CPU_USAGE : CGROUP_FILE_CPU_STAT;
	struct sample sample = { 0 };
	char buf[64];

	if (!(files->live >> file & 1))
		return -ENODATA;

	ssize_t len = pread(files->fd[file], buf, sizeof(buf), 0);
	if (len < 0)
		return -errno;

	int r = table[file].parse(buf, (size_t)len, table[file].field, &sample);
	if (r == 0 && !sample_has(&sample, SAMPLE_CPU))
		r = -ENODATA;
	if (r == 0)
		*ret_ns = sample.value[SAMPLE_CPU];
	return r;
}

void cgroup_files_reset_peak(struct cgroup_files *files)
{
	/*
	 * A kernel or a permission that does not have it leaves the mark as it is: it then only
	 * rises.
	 */
	if (files->fd[CGROUP_FILE_MEMORY_PEAK] >= 0 && pwrite(files->fd[CGROUP_FILE_MEMORY_PEAK], "0", 1, 0) < 0)
		return;
}

/* ---- effective limits ----
 *
 * A tree of cgroups: a node for each directory, held by its
 * users and by its children, found by its parent and its name. The machine is the first limit, and
 * a limit on the way up counts if it is smaller, so what is missing or larger than the machine
 * changes nothing.
 *
 * A limit that is missing, unreadable, zero or unlimited is none: there is no error to handle, and
 * never a limit of zero. Only if no descriptor is left to look, the previous value stays. The root
 * of a hierarchy as mounted may be a cgroup (in a container), so "/" is read like the rest.
 *
 * The table of nodes is not a struct map: its buckets are the parts that limit_tree_refresh reads
 * in turn. A directory is opened by its path every time. Rejected: keeping it and its files open,
 * which would save a third of a read and cost four descriptors for each cgroup; and a cgroup that
 * is removed and made again under its name would have to be noticed.
 */

/* ---- limits: what a directory and the machine say ---- */

#define ONLINE_CPUS "/sys/devices/system/cpu/online"

/* Reads the beginning of a file and closes it; fd may be -errno. Length or -errno. */
static ssize_t read_opened(int fd, char *buf, size_t cap)
{
	AUTO_CLOSE int own = fd;
	ssize_t len = own < 0 ? own : read(own, buf, cap);

	return own >= 0 && len < 0 ? -errno : len;
}

/* Of a cgroup: see cgroup_open. */
static ssize_t read_file(int dir_fd, const char *name, char *buf, size_t cap)
{
	return read_opened(open_beneath(dir_fd, name, O_RDONLY, true), buf, cap);
}

/* Of the machine, once: something may be mounted over it. */
static ssize_t read_machine_file(int dir_fd, const char *name, char *buf, size_t cap)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);

	return read_opened(fd < 0 ? -errno : fd, buf, cap);
}

/* len: of buf, or -errno. */
static int count_cpus(const char *buf, ssize_t len, uint32_t *ret)
{
	return len < 0 ? (int)len : cgroup_files_cpus_parse(buf, (size_t)len, ret);
}

/* On which this thread may run. */
static uint32_t count_own_cpus(void)
{
	cpu_set_t set[8]; /* 8,192 CPUs, the most that a kernel of x86 has */

	return sched_getaffinity(0, sizeof(set), set) < 0 ? 1 : (uint32_t)CPU_COUNT_S(sizeof(set), set);
}

static int read_machine_memory(int procfd, cgroup_machine_reader *read, uint64_t *ret_bytes)
{
	char buf[4096];
	struct sysinfo info;
	ssize_t len = read(procfd, "meminfo", buf, sizeof(buf));

	if (len >= 0)
		return procfs_kb_parse(buf, (size_t)len, "MemTotal", ret_bytes);
	if (len == -ENOENT)
		return -ENOENT;
	/* It does not answer, or who would have read it could not be started. */
	if (sysinfo(&info) < 0)
		return -errno;

	*ret_bytes = (uint64_t)info.totalram * info.mem_unit;
	return 0;
}

int cgroup_limits_machine(int procfd, const char *sys_cpu_online, cgroup_machine_reader *read,
			  struct metric_machine *ret)
{
	char buf[4096];
	uint32_t cpus = 0;
	uint64_t memory_bytes;
	bool real = !sys_cpu_online || sys_cpu_online[0] == '\0';

	if (!read)
		read = read_machine_file;

	ssize_t len = real ? read(AT_FDCWD, ONLINE_CPUS, buf, sizeof(buf))
			   : read_machine_file(AT_FDCWD, sys_cpu_online, buf, sizeof(buf));
	int r = count_cpus(buf, len, &cpus);
	if (r < 0 && !real)
		return r;
	if (r < 0 || cpus == 0) /* no /sys here, or it does not answer */
		cpus = count_own_cpus();

	r = read_machine_memory(procfd, read, &memory_bytes);
	if (r < 0)
		return r;

	*ret = (struct metric_machine){ .cores = cpus, .memory_bytes = memory_bytes };
	return 0;
}

/* v1: cpu.cfs_quota_us "-1" or "20000" and cpu.cfs_period_us "100000"; v2: cpu.max */
static int read_quota(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	uint64_t quota_us = 0, period_us = 0;
	ssize_t len = read_file(dir_fd, v2 ? "cpu.max" : "cpu.cfs_quota_us", buf, sizeof(buf));
	int r = len < 0 ? (int)len
		: v2    ? cgroup_files_cpu_max_parse(buf, (size_t)len, &quota_us, &period_us)
			: cgroup_files_limit_parse(buf, (size_t)len, &quota_us);

	if (r == 0 && !v2 && quota_us != UINT64_MAX) {
		len = read_file(dir_fd, "cpu.cfs_period_us", buf, sizeof(buf));
		r = len < 0 ? (int)len : cgroup_files_number_parse(buf, (size_t)len, &period_us);
	}
	if (r < 0)
		return r;
	if (period_us == 0 || quota_us > UINT64_MAX / NS_PER_S) /* the kernel allows a second at most */
		return -EBADMSG;

	*ret = quota_us * NS_PER_S / period_us;
	return 0;
}

static int read_cpuset(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[4096];
	uint32_t cpus;
	ssize_t len = read_file(dir_fd, v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus", buf, sizeof(buf));
	int r = count_cpus(buf, len, &cpus);

	if (r == 0)
		*ret = cpus * NS_PER_S;
	return r;
}

static int read_memory(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	ssize_t len = read_file(dir_fd, v2 ? "memory.max" : "memory.limit_in_bytes", buf, sizeof(buf));

	return len < 0 ? (int)len : cgroup_files_limit_parse(buf, (size_t)len, ret);
}

static const struct {
	enum cgroup_resource controller;
	/* Memory bytes, or CPU nanoseconds per second. 0; -errno: nothing is said there. */
	int (*read)(int dir_fd, bool v2, uint64_t *ret);
} kinds[CGROUP_LIMITS_KINDS] = {
	[CGROUP_LIMITS_QUOTA] = { CGROUP_CPU, read_quota },
	[CGROUP_LIMITS_CPUSET] = { CGROUP_CPUSET, read_cpuset },
	[CGROUP_LIMITS_MEMORY] = { CGROUP_MEMORY, read_memory },
};

/* UINT64_MAX: no limit. 0; -EMFILE, -ENFILE, -ENOMEM: it could not be looked at. */
static int cgroup_limits_read(int dir_fd, enum cgroup_limits_kind kind, bool v2, uint64_t *ret)
{
	uint64_t limit = UINT64_MAX;
	int r = kinds[kind].read(dir_fd, v2, &limit);

	if (is_shortage(r))
		return r;
	*ret = r < 0 || limit == 0 ? UINT64_MAX : limit;
	return 0;
}

/* ---- the tree ---- */

/* One tree of cgroups, which limits what is in `kinds`, as bits. */
struct hierarchy {
	const char *root; /* of mounts */
	bool v2;
	unsigned kinds;
};

struct limit_tree_node {
	struct limit_tree_node *parent; /* NULL: the root */
	struct limit_tree_node *next;   /* in its bucket */
	uint32_t holders;
	uint8_t hierarchy;
	uint32_t round;                    /* the last in which it was read; 0: only when it was made */
	uint64_t own[CGROUP_LIMITS_KINDS]; /* UINT64_MAX: no limit here */
	char name[];                       /* "" is the root */
};

struct limit_tree {
	const struct cgroup_mounts *mounts;
	struct metric_machine machine;
	struct hierarchy hierarchies[CGROUP_LIMITS_KINDS];
	unsigned hierarchy_count;
	uint8_t hierarchy_of[CGROUP_LIMITS_KINDS]; /* CGROUP_LIMITS_KINDS: there is none */
	struct limit_tree_node *buckets[LIMIT_TREE_PARTS];
};

static void add_kind(struct limit_tree *tree, const struct cgroup_mounts *mounts, enum cgroup_limits_kind kind)
{
	bool v2;
	const char *root = cgroup_mounts_controller(mounts, kinds[kind].controller, &v2);
	unsigned i = 0;

	tree->hierarchy_of[kind] = CGROUP_LIMITS_KINDS;
	if (!root)
		return;

	while (i < tree->hierarchy_count && strcmp(tree->hierarchies[i].root, root) != 0)
		i++;
	if (i == tree->hierarchy_count)
		tree->hierarchies[tree->hierarchy_count++] = (struct hierarchy){ .root = root, .v2 = v2 };
	tree->hierarchies[i].kinds |= 1u << kind;
	tree->hierarchy_of[kind] = (uint8_t)i;
}

int limit_tree_new(const struct cgroup_mounts *mounts, const struct metric_machine *machine, struct limit_tree **ret)
{
	struct limit_tree *tree = calloc(1, sizeof *tree);

	if (!tree)
		return -ENOMEM;

	tree->mounts = mounts;
	tree->machine = *machine;
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++)
		add_kind(tree, mounts, (enum cgroup_limits_kind)kind);
	*ret = tree;
	return 0;
}

void limit_tree_free(struct limit_tree *tree)
{
	for (unsigned i = 0; tree && i < LIMIT_TREE_PARTS; i++) {
		while (tree->buckets[i]) {
			struct limit_tree_node *node = tree->buckets[i];

			tree->buckets[i] = node->next;
			free(node);
		}
	}
	free(tree);
}

/* ---- reading ---- */

/*
 * Puts the path of a node before *end, down to start at most. The root has none. False: there is
 * not enough room.
 */
static bool prepend_path(const struct limit_tree_node *node, const char *start, char **end)
{
	for (; node->parent; node = node->parent) {
		size_t len = strlen(node->name);

		if ((size_t)(*end - start) < len + 1)
			return false;
		*end -= len;
		memcpy(*end, node->name, len);
		*--*end = '/';
	}
	return true;
}

static int open_node(const struct limit_tree *tree, const struct limit_tree_node *node)
{
	const char *root = tree->hierarchies[node->hierarchy].root;
	char path[PATH_MAX], *at = path + sizeof path - 1;

	*at = '\0';
	if (!prepend_path(node, path, &at))
		return -ENAMETOOLONG;
	return cgroup_open(root, at, O_PATH | O_DIRECTORY);
}

static void read_node(const struct limit_tree *tree, struct limit_tree_node *node, uint32_t round)
{
	const struct hierarchy *hierarchy = &tree->hierarchies[node->hierarchy];
	AUTO_CLOSE int dir_fd = open_node(tree, node);

	node->round = round;
	if (is_shortage(dir_fd))
		return;

	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++) {
		if (dir_fd < 0)
			node->own[kind] = UINT64_MAX;
		else if (hierarchy->kinds >> kind & 1)
			cgroup_limits_read(dir_fd, (enum cgroup_limits_kind)kind, hierarchy->v2, &node->own[kind]);
	}
}

size_t limit_tree_refresh(struct limit_tree *tree, unsigned part, uint32_t round)
{
	size_t count = 0;

	for (struct limit_tree_node *node = tree->buckets[part]; node; node = node->next, count++)
		read_node(tree, node, round);
	return count;
}

size_t limit_tree_read(struct limit_tree *tree, const struct limit_tree_place *place, uint32_t round)
{
	size_t count = 0;

	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++) {
		for (struct limit_tree_node *node = place->at[kind]; node; node = node->parent) {
			if (node->round == round)
				continue;
			read_node(tree, node, round);
			count++;
		}
	}
	return count;
}

/* ---- places ---- */

static struct limit_tree_node **bucket_of(struct limit_tree *tree, const struct limit_tree_node *parent,
					  unsigned hierarchy, const char *name, size_t len)
{
	uint64_t hash = map_hash(name, len) ^ ((uintptr_t)parent ^ hierarchy) * 0x9e3779b97f4a7c15u >> 20;

	return &tree->buckets[hash % LIMIT_TREE_PARTS];
}

/* Releases a node, and those above it that have no holder left. */
static void release_node(struct limit_tree *tree, struct limit_tree_node *node)
{
	while (node && --node->holders == 0) {
		struct limit_tree_node *parent = node->parent;
		struct limit_tree_node **at = bucket_of(tree, parent, node->hierarchy, node->name, strlen(node->name));

		while (*at != node)
			at = &(*at)->next;
		*at = node->next;
		free(node);
		node = parent;
	}
}

/* The child of that name; takes the caller's hold of parent, also if it fails. NULL: no memory. */
static struct limit_tree_node *descend(struct limit_tree *tree, struct limit_tree_node *parent, unsigned hierarchy,
				       const char *name, size_t len)
{
	struct limit_tree_node **bucket = bucket_of(tree, parent, hierarchy, name, len), *node = *bucket;

	while (node && (node->parent != parent || node->hierarchy != hierarchy || strncmp(node->name, name, len) != 0 ||
			node->name[len] != '\0'))
		node = node->next;
	if (node) {
		node->holders++;
		release_node(tree, parent); /* the node has one of its own */
		return node;
	}

	node = malloc(sizeof *node + len + 1);
	if (!node) {
		release_node(tree, parent);
		return NULL;
	}
	*node = (struct limit_tree_node){
		.parent = parent, .next = *bucket, .holders = 1, .hierarchy = (uint8_t)hierarchy
	};
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++)
		node->own[kind] = UINT64_MAX;
	memcpy(node->name, name, len);
	node->name[len] = '\0';
	*bucket = node;
	read_node(tree, node, 0);
	return node;
}

/* "/.." and "/../x"; "/..x" is a name like any other. */
static bool is_outside(const char *path)
{
	return strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0');
}

/* 0; -ENOMEM. */
static int hold(struct limit_tree *tree, unsigned hierarchy, const char *path, struct limit_tree_node **ret)
{
	struct limit_tree_node *node;

	if (path[0] != '/' || is_outside(path))
		return 0;

	node = descend(tree, NULL, hierarchy, "", 0);
	while (node && *(path += strspn(path, "/"))) {
		size_t len = strcspn(path, "/");

		node = descend(tree, node, hierarchy, path, len);
		path += len;
	}
	if (!node)
		return -ENOMEM;

	*ret = node;
	return 0;
}

/* Holds the cgroup for one kind, which in the same hierarchy is that of another. */
static int hold_kind(struct limit_tree *tree, struct limit_tree_place *place, int kind, const char *path)
{
	for (int other = 0; other < kind; other++) {
		if (tree->hierarchy_of[other] == tree->hierarchy_of[kind]) {
			place->at[kind] = place->at[other];
			if (place->at[kind])
				place->at[kind]->holders++;
			return 0;
		}
	}
	return hold(tree, tree->hierarchy_of[kind], path, &place->at[kind]);
}

int limit_tree_hold_cgroup(struct limit_tree *tree, const char *path, struct limit_tree_place *ret)
{
	struct limit_tree_place place = { 0 };
	int r = 0;

	for (int kind = 0; r == 0 && kind < CGROUP_LIMITS_KINDS; kind++)
		if (tree->hierarchy_of[kind] != CGROUP_LIMITS_KINDS)
			r = hold_kind(tree, &place, kind, path);
	if (r < 0) {
		limit_tree_drop(tree, &place);
		return r;
	}
	*ret = place;
	return 0;
}

int limit_tree_hold_process(struct limit_tree *tree, const char *text, size_t len, struct limit_tree_place *ret)
{
	struct limit_tree_place place = { 0 };
	char path[PATH_MAX];
	int r = 0;

	for (int kind = 0; r == 0 && kind < CGROUP_LIMITS_KINDS; kind++)
		if (cgroup_path_from(tree->mounts, text, len, kinds[kind].controller, path, sizeof path) == 0)
			r = hold_kind(tree, &place, kind, path);
	if (r < 0) {
		limit_tree_drop(tree, &place);
		return r;
	}
	*ret = place;
	return 0;
}

void limit_tree_drop(struct limit_tree *tree, struct limit_tree_place *place)
{
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++)
		release_node(tree, place->at[kind]);
	*place = (struct limit_tree_place){ 0 };
}

/* ---- what follows from it ---- */

/*
 * The node on the way up that has the smallest limit, if it is below *limit, which is lowered; else
 * NULL.
 */
static const struct limit_tree_node *climb(const struct limit_tree_node *node, int kind, uint64_t *limit)
{
	const struct limit_tree_node *from = NULL;

	for (; node; node = node->parent) {
		if (node->own[kind] < *limit) {
			*limit = node->own[kind];
			from = node;
		}
	}
	return from;
}

/* Of 256 bytes. What is too long keeps its end. */
static void say_from(const struct limit_tree_node *node, char *ret)
{
	char path[256], *at = path + sizeof path - 1;

	ret[0] = '\0';
	if (!node)
		return;

	*at = '\0';
	prepend_path(node, path, &at);
	snprintf(ret, sizeof path, "%s", *at ? at : "/");
}

void limit_tree_limits(const struct limit_tree *tree, const struct limit_tree_place *place, struct cgroup_limits *ret)
{
	struct cgroup_limits limits = {
		.cpu = (uint64_t)(tree->machine.cores * (double)NS_PER_S),
		.memory_bytes = tree->machine.memory_bytes,
	};
	const struct limit_tree_node *quota, *cpuset, *memory;

	if (limits.cpu == 0)
		limits.cpu = UINT64_MAX;
	if (limits.memory_bytes == 0)
		limits.memory_bytes = UINT64_MAX;
	quota = climb(place->at[CGROUP_LIMITS_QUOTA], CGROUP_LIMITS_QUOTA, &limits.cpu);
	cpuset = climb(place->at[CGROUP_LIMITS_CPUSET], CGROUP_LIMITS_CPUSET, &limits.cpu);
	memory = climb(place->at[CGROUP_LIMITS_MEMORY], CGROUP_LIMITS_MEMORY, &limits.memory_bytes);
	limits.cpu_is_machine = !quota && !cpuset;
	limits.memory_is_machine = !memory;
	say_from(cpuset ? cpuset : quota, limits.cpu_from);
	say_from(memory, limits.memory_from);
	*ret = limits;
}
