/*
 * cgroup.c: a table of files. Each has a controller, a name in v1 and one in v2; which of them
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

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
int cgroup_files_number_parse(const char *buf, size_t len, uint64_t *ret)
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
int cgroup_files_limit_parse(const char *buf, size_t len, uint64_t *ret_bytes)
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
int cgroup_files_cpu_max_parse(const char *buf, size_t len, uint64_t *ret_quota_us, uint64_t *ret_period_us)
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
int cgroup_files_cpus_parse(const char *buf, size_t len, uint32_t *ret_count)
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

/*
 * A high-water mark may be asked to start anew, which is a write; where that is not allowed it is
 * only read.
 */
static int open_file(const char *name, enum cgroup_file file)
{
	int fd = file == CGROUP_FILE_MEMORY_PEAK ? open(name, O_RDWR | O_CLOEXEC) : -1;

	return fd >= 0 ? fd : open(name, O_RDONLY | O_CLOEXEC);
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
