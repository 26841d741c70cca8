/*
 * procfs.c: one cursor over bytes, and the formats written with it.
 *
 * sscanf(3) costs ten times as much and strtoull(3) reads past the buffer, takes signs and white space of its own. The
 * cursor fails once and stays failed, so a format reads as the list of its fields and is checked at its end.
 */
#include "procfs.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct cursor {
	const char *at;
	const char *end;
	bool failed;
};

/*
 * A decimal number and the byte that ends it. Negative numbers are 0: they are RSS counters not yet summed over all CPUs,
 * and fields that nobody here looks at.
 */
static uint64_t take_number(struct cursor *cursor)
{
	bool negative = cursor->at < cursor->end && *cursor->at == '-';
	uint64_t number = 0;
	const char *at = cursor->at + negative;
	const char *first = at;

	for (; at < cursor->end && *at >= '0' && *at <= '9'; at++) {
		uint64_t digit = (uint64_t)(*at - '0');

		if (__builtin_expect(number > (UINT64_MAX - digit) / 10, 0)) {
			cursor->failed = true;
			return 0;
		}
		number = number * 10 + digit;
	}
	if (at == first || at == cursor->end || (*at != ' ' && *at != '\n'))
		cursor->failed = true;
	else
		cursor->at = at + 1;

	return negative ? 0 : number;
}

/* Fields that are not used, each with the space behind it. */
static void skip_fields(struct cursor *cursor, int count)
{
	while (count > 0 && cursor->at < cursor->end)
		count -= *cursor->at++ == ' ';
	cursor->failed |= count > 0;
}

/* PF_EXITING of the kernel's linux/sched.h, which no header of ours has: set first of all when a thread exits, and never cleared. */
#define PROCFS_FLAG_EXITING 0x4u

/*
 * "6195 (cat) R 6162 6162 2872 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 132835 3133440 383 ..."
 *
 * comm is whatever the process says, ") S 1 (" and newlines included, so it ends at the last ')': behind it are only numbers.
 */
int procfs_stat_parse(const char *buf, size_t len, struct procfs_stat *ret)
{
	struct procfs_stat stat = { 0 };
	struct cursor cursor = { .at = buf, .end = buf + len };

	uint64_t pid = take_number(&cursor);
	const char *close = len > 0 ? memrchr(buf, ')', len) : NULL;
	if (cursor.failed || pid > INT32_MAX || !close || close <= cursor.at || *cursor.at != '(')
		return -EBADMSG;
	if (cursor.end - close < 4 || close[1] != ' ' || close[3] != ' ')
		return -EBADMSG;

	stat.pid = (int32_t)pid;
	stat.comm = cursor.at + 1;
	stat.comm_len = (size_t)(close - stat.comm);
	stat.state = close[2];
	cursor.at = close + 4;
	uint64_t parent_pid = take_number(&cursor);
	stat.parent_pid = (int32_t)parent_pid;
	skip_fields(&cursor, 4); /* pgrp session tty_nr tpgid */
	stat.exiting = (take_number(&cursor) & PROCFS_FLAG_EXITING) != 0;
	stat.minor_faults = take_number(&cursor);
	skip_fields(&cursor, 1); /* cminflt */
	stat.major_faults = take_number(&cursor);
	skip_fields(&cursor, 1); /* cmajflt */
	stat.user_ticks = take_number(&cursor);
	stat.system_ticks = take_number(&cursor);
	skip_fields(&cursor, 4); /* cutime cstime priority nice */
	stat.threads = take_number(&cursor);
	skip_fields(&cursor, 1); /* itrealvalue */
	stat.start_ticks = take_number(&cursor);
	if (cursor.failed || parent_pid > INT32_MAX)
		return -EBADMSG;

	*ret = stat;
	return 0;
}

/* Fields between the name and arg_start, which is the 48th. */
#define STAT_BEFORE_ARGUMENTS 44

uint64_t procfs_stat_arguments(const char *buf, size_t len)
{
	const char *close = len > 0 ? memrchr(buf, ')', len) : NULL;

	if (!close || buf + len - close < 4)
		return 0;

	struct cursor cursor = { .at = close + 4, .end = buf + len };

	skip_fields(&cursor, STAT_BEFORE_ARGUMENTS);
	uint64_t at = take_number(&cursor);

	return cursor.failed ? 0 : at;
}

/* "765 427 399 5 0 123 0": size resident shared text lib data dt, in pages */
int procfs_statm_parse(const char *buf, size_t len, uint64_t *ret_resident_pages)
{
	struct cursor cursor = { .at = buf, .end = buf + len };

	take_number(&cursor);
	uint64_t resident = take_number(&cursor);
	if (cursor.failed)
		return -EBADMSG;

	*ret_resident_pages = resident;
	return 0;
}

/* "VmHWM:\t    1708 kB" and "MemTotal:       24684092 kB". A name cannot fake a line: status escapes its newlines. */
int procfs_kb_parse(const char *buf, size_t len, const char *name, uint64_t *ret_bytes)
{
	size_t name_len = strlen(name);
	const char *end = buf + len;

	for (const char *line = buf, *next; line < end; line = next) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));
		if (!newline)
			break;

		next = newline + 1;
		if ((size_t)(newline - line) <= name_len || line[name_len] != ':' || memcmp(line, name, name_len) != 0)
			continue;

		struct cursor cursor = { .at = line + name_len + 1, .end = newline };
		while (cursor.at < newline && (*cursor.at == ' ' || *cursor.at == '\t'))
			cursor.at++;
		uint64_t kib = take_number(&cursor);
		if (cursor.failed || kib > UINT64_MAX / 1024)
			break;

		*ret_bytes = kib * 1024;
		return 0;
	}

	return -ENODATA;
}

/* "4:memory:/process_api/x", "2:cpu,cpuacct:/", "9:name=systemd:/", "0::/user.slice"; the path may hold ':' */
static bool parse_cgroup_line(const char *line, const char *newline, struct procfs_cgroup *ret)
{
	const char *first = memchr(line, ':', (size_t)(newline - line));
	if (!first)
		return false;

	const char *second = memchr(first + 1, ':', (size_t)(newline - first - 1));
	if (!second || second + 1 == newline || second[1] != '/')
		return false;

	ret->controllers = first + 1;
	ret->controllers_len = (size_t)(second - first - 1);
	ret->path = second + 1;
	ret->path_len = (size_t)(newline - second - 1);
	return true;
}

int procfs_cgroup_next(const char *buf, size_t len, size_t *offset, struct procfs_cgroup *ret)
{
	while (*offset < len) {
		const char *line = buf + *offset;
		const char *newline = memchr(line, '\n', len - *offset);
		if (!newline)
			break;

		*offset = (size_t)(newline - buf) + 1;
		if (parse_cgroup_line(line, newline, ret))
			return 1;
	}

	return 0;
}
