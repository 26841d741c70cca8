/*
 * cgroupfs.c: the few formats that all cgroup files share: a number, a list, and lines of "key number".
 *
 * v1 and v2 have the same file names with other keys. One table of keys serves both: a key that is not there leaves its
 * value unavailable, so nobody has to know which version, or which age of a version, wrote the file.
 */
#include "cgroupfs.h"

#include "clock.h"
#include "scope.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* v1 says "no limit" by LONG_MAX rounded down to a page, and some kernels by half of it; no machine has 4 EiB. */
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
int cgroupfs_number_parse(const char *buf, size_t len, uint64_t *ret)
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
int cgroupfs_limit_parse(const char *buf, size_t len, uint64_t *ret_bytes)
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
int cgroupfs_cpu_max_parse(const char *buf, size_t len, uint64_t *ret_quota_us, uint64_t *ret_period_us)
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
int cgroupfs_cpus_parse(const char *buf, size_t len, uint32_t *ret_count)
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

/* Puts the numbers of lines "key number\n" into values, in the order of keys; UINT64_MAX where there is no such line. */
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
 * v2: "usage_usec 27647792\nuser_usec 11833206\nsystem_usec 15814586\nnice_usec 0\n", with the cpu controller also
 *     "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\nnr_bursts 0\nburst_usec 0\n"
 * v1: "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n": the time in nanoseconds
 */
void cgroupfs_cpu_stat_parse(const char *buf, size_t len, struct sample *sample)
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

/* "user 1339\nsystem 1791\n" */
void cgroupfs_cpuacct_stat_parse(const char *buf, size_t len, uint64_t ns_per_tick, struct sample *sample)
{
	static const char *const keys[] = { "user", "system" };
	uint64_t values[ARRAY_LEN(keys)];

	parse_keyed(buf, len, keys, ARRAY_LEN(keys), values);
	set_scaled(sample, SAMPLE_CPU_USER, values[0], ns_per_tick);
	set_scaled(sample, SAMPLE_CPU_SYSTEM, values[1], ns_per_tick);
}

/*
 * v2: "anon 10584064\n...inactive_file 149012480\n...pgfault 1290221\npgmajfault 1101\n..."
 * v1: the same keys for the cgroup alone, and "total_inactive_file 149012480\n" and so on for the subtree
 */
void cgroupfs_memory_stat_parse(const char *buf, size_t len, struct cgroupfs_memory_stat *ret)
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

	*ret = (struct cgroupfs_memory_stat){
		.inactive_file = values[0],
		.faults = values[1],
		.major_faults = values[2],
	};
}

/* "some avg10=0.00 avg60=0.23 avg300=0.20 total=4501363\nfull avg10=...\n": microseconds; since Linux 4.20 */
int cgroupfs_pressure_parse(const char *buf, size_t len, uint64_t *ret_ns)
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
