/*
 * procfs.c: files by a cursor over text: it fails once and stays failed, so a format reads as the
 * list of its fields and is checked at its end. Rejected: sscanf(3), which costs ten times as much,
 * and strtoull(3), which reads past the buffer and accepts signs and white space.
 *
 * Messages by a view of bytes that only shrinks: every header is copied out of it after its length
 * was compared with what is left. Of one datagram only the first message is read: the connector and
 * taskstats send one in each. The total of a process with one thread is in its own statistics; that
 * of several the kernel keeps in those of the thread group, where it adds every thread that ends.
 * There the ac_ fields and the faults stay empty: only the CPU time is summed.
 */
#include "lib/proc/procfs.h"

#include <errno.h>
#include <linux/acct.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <string.h>

struct cursor {
	const char *at;
	const char *end;
	bool failed;
};

/*
 * A decimal number and the byte that ends it. Negative numbers are 0: RSS counters that are not
 * summed over all CPUs yet, and fields that are not used.
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

/*
 * "6195 (cat) R 6162 6162 2872 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 1 0 132835 3133440 383 ..."
 *
 * comm is chosen by the process, ") S 1 (" and newlines included, so it ends at the last ')':
 * behind it are only numbers.
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
	uint64_t flags = take_number(&cursor);
	stat.exiting = (flags & PROCFS_FLAG_EXITING) != 0;
	stat.kernel = (flags & PROCFS_FLAG_KERNEL) != 0;
	stat.minor_faults = take_number(&cursor);
	stat.waited_minor_faults = take_number(&cursor);
	stat.major_faults = take_number(&cursor);
	skip_fields(&cursor, 1); /* cmajflt */
	stat.user_ticks = take_number(&cursor);
	stat.system_ticks = take_number(&cursor);
	stat.waited_ticks = take_number(&cursor);
	stat.waited_ticks += take_number(&cursor);
	skip_fields(&cursor, 2); /* priority nice */
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

/*
 * "VmHWM:\t    1708 kB" and "MemTotal:       24684092 kB". A process name cannot fake a line:
 * status escapes its newlines.
 */
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

/*
 * "4:memory:/process_api/x", "2:cpu,cpuacct:/", "9:name=systemd:/", "0::/user.slice"; the path may
 * hold ':'
 */
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

struct view {
	const uint8_t *at;
	size_t len;
};

/* Copies a head of size bytes out of the front. */
static bool take_bytes(struct view *view, void *ret, size_t size)
{
	if (view->len < size)
		return false;
	memcpy(ret, view->at, size);
	view->at += size;
	view->len -= size;
	return true;
}

static void skip_bytes(struct view *view, size_t size)
{
	size = size < view->len ? size : view->len;
	view->at += size;
	view->len -= size;
}

/*
 * The first message; *view becomes its payload. 0; PROC_EVENTS_ANSWER: an error, or an
 * acknowledgement; PROC_EVENTS_OTHER; -EBADMSG.
 */
static int open_message(struct view *view, uint16_t *ret_type, int *ret_error)
{
	struct nlmsghdr head;
	size_t whole = view->len;
	struct nlmsgerr error;

	if (!take_bytes(view, &head, sizeof(head)) || head.nlmsg_len < sizeof(head) || head.nlmsg_len > whole)
		return -EBADMSG;
	view->len = head.nlmsg_len - sizeof(head);
	*ret_type = head.nlmsg_type;
	if (head.nlmsg_type == NLMSG_ERROR) {
		if (!take_bytes(view, &error, sizeof(error)))
			return -EBADMSG;
		*ret_error = error.error > 0 ? -error.error : error.error;
		return PROC_EVENTS_ANSWER;
	}
	return head.nlmsg_type == NLMSG_NOOP || head.nlmsg_type == NLMSG_OVERRUN ? PROC_EVENTS_OTHER : 0;
}

/* ---- the connector ---- */

/*
 * struct proc_event up to its union, and what is looked at there: laid out by hand, because its
 * size has changed between kernels.
 */
struct event_head {
	uint32_t what, cpu;
	uint64_t timestamp_ns;
};

struct event_ids {
	int32_t pid, tgid, child_pid, child_tgid;
};

_Static_assert(offsetof(struct proc_event, event_data) == sizeof(struct event_head), "as the kernel has it");
_Static_assert(sizeof(((struct proc_event *)0)->event_data.fork) == sizeof(struct event_ids), "as the kernel has it");

static int set_event(enum procevent_kind kind, int32_t pid, int32_t ppid, struct procevent *ret)
{
	if (pid <= 0)
		return PROC_EVENTS_OTHER;
	*ret = (struct procevent){ .kind = kind, .pid = pid, .ppid = ppid };
	return PROC_EVENTS_EVENT;
}

static int read_event(uint32_t what, struct view *view, struct procevent *ret, int *ret_error)
{
	struct event_ids ids = { 0 };
	uint32_t error;

	if (what == PROC_EVENT_NONE) {
		if (!take_bytes(view, &error, sizeof(error)))
			return -EBADMSG;
		*ret_error = error <= 4095 ? -(int)error : -EBADMSG;
		return PROC_EVENTS_ANSWER;
	}
	if (!take_bytes(view, &ids, what == PROC_EVENT_FORK ? sizeof(ids) : 2 * sizeof(ids.pid)))
		return -EBADMSG;
	if (what == PROC_EVENT_FORK)
		return ids.child_pid == ids.child_tgid ? set_event(PROCEVENT_FORK, ids.child_tgid, ids.tgid, ret)
						       : PROC_EVENTS_OTHER;
	if (what == PROC_EVENT_EXEC)
		return set_event(PROCEVENT_EXEC, ids.tgid, 0, ret);
	if (ids.pid != ids.tgid || (what != PROC_EVENT_COMM && what != PROC_EVENT_EXIT))
		return PROC_EVENTS_OTHER;
	return set_event(what == PROC_EVENT_COMM ? PROCEVENT_COMM : PROCEVENT_EXIT, ids.tgid, 0, ret);
}

int proc_events_connector(const void *data, size_t len, struct procevent *ret, int *ret_error)
{
	struct view view = { data, len };
	struct event_head event;
	struct cn_msg message;
	uint16_t type;
	int r = open_message(&view, &type, ret_error);

	if (r != 0)
		return r;
	if (!take_bytes(&view, &message, sizeof(message)) || message.len > view.len)
		return -EBADMSG;
	if (message.id.idx != CN_IDX_PROC || message.id.val != CN_VAL_PROC)
		return PROC_EVENTS_OTHER;
	view.len = message.len;
	if (!take_bytes(&view, &event, sizeof(event)))
		return -EBADMSG;
	return read_event(event.what, &view, ret, ret_error);
}

/* ---- generic netlink ---- */

/* The next attribute: its type and payload. False: no more, or an invalid one. */
static bool next_attribute(struct view *view, uint16_t *ret_type, struct view *ret)
{
	struct nlattr head;

	if (!take_bytes(view, &head, sizeof(head)) || head.nla_len < sizeof(head) ||
	    head.nla_len - sizeof(head) > view->len)
		return false;
	*ret_type = head.nla_type & 0x3fff; /* NLA_TYPE_MASK, which is of a signed type */
	*ret = (struct view){ view->at, head.nla_len - sizeof(head) };
	skip_bytes(view, ((head.nla_len + 3u) & ~3u) - sizeof(head)); /* NLA_ALIGN */
	return true;
}

static bool find_attribute(struct view view, uint16_t wanted, struct view *ret)
{
	uint16_t type;

	while (next_attribute(&view, &type, ret))
		if (type == wanted)
			return true;
	return false;
}

int proc_events_family(const void *data, size_t len, uint16_t *ret)
{
	struct view view = { data, len }, id;
	struct genlmsghdr head;
	uint16_t type;
	int error = 0;
	int r = open_message(&view, &type, &error);

	if (r == PROC_EVENTS_ANSWER && error < 0)
		return error;
	if (r != 0 || type != GENL_ID_CTRL || !take_bytes(&view, &head, sizeof(head)) ||
	    !find_attribute(view, CTRL_ATTR_FAMILY_ID, &id) || !take_bytes(&id, ret, sizeof(*ret)))
		return -EBADMSG;
	return 0;
}

/* ---- exit records ---- */

/*
 * All that is read is in front of this. Before version 12 (Linux 6.0) the kernel does not say which
 * thread was the last (AGROUP): then there are no totals.
 */
#define STATS_LEAST offsetof(struct taskstats, freepages_count)

/* A pid and its statistics. */
struct exited {
	int32_t id;
	struct taskstats stats;
};

static bool read_exited(struct view aggregate, uint16_t id_type, struct exited *ret)
{
	struct view id, stats;
	size_t len;

	if (!find_attribute(aggregate, id_type, &id) || !find_attribute(aggregate, TASKSTATS_TYPE_STATS, &stats) ||
	    stats.len < STATS_LEAST || !take_bytes(&id, &ret->id, sizeof(ret->id)))
		return false;
	len = stats.len < sizeof(ret->stats) ? stats.len : sizeof(ret->stats);
	memset(&ret->stats, 0, sizeof(ret->stats));
	memcpy(&ret->stats, stats.at, len);
	return true;
}

/*
 * As /proc shows them: the exact CPU time is divided in the proportion of user and kernel ticks.
 * Compared before it is converted: a product that rounds up to 2^64 has no uint64_t.
 */
static void divide_cpu(const struct taskstats *stats, struct procevent_totals *totals)
{
	double cpu = (double)totals->cpu_ns, user = (double)stats->ac_utime, system = (double)stats->ac_stime;
	double part = system > 0 ? cpu * (user / (user + system)) : cpu;

	totals->user_ns = part < cpu ? (uint64_t)part : totals->cpu_ns;
	totals->system_ns = totals->cpu_ns - totals->user_ns;
}

static void sum_up_exit(const struct exited *last, const struct exited *group, struct procevent_totals *totals)
{
	const struct taskstats *stats = group != NULL ? &group->stats : &last->stats;

	totals->threads = group != NULL;
	totals->cpu_ns = stats->cpu_run_virtual_total;
	if (totals->cpu_ns == 0 && group == NULL &&
	    last->stats.ac_utime + last->stats.ac_stime < UINT64_MAX / NS_PER_US)
		totals->cpu_ns = (last->stats.ac_utime + last->stats.ac_stime) * NS_PER_US;
	divide_cpu(&last->stats, totals);
	if (group == NULL) {
		totals->minor_faults = stats->ac_minflt;
		totals->major_faults = stats->ac_majflt;
	}
	totals->elapsed_ns =
		last->stats.ac_etime < UINT64_MAX / NS_PER_US ? last->stats.ac_etime * NS_PER_US : UINT64_MAX;
	memcpy(totals->comm, last->stats.ac_comm, sizeof(totals->comm) - 1);
	totals->comm[sizeof(totals->comm) - 1] = '\0';
}

int proc_events_taskstats(const void *data, size_t len, uint16_t family, struct procevent *ret, int *ret_error)
{
	struct view view = { data, len }, one, all;
	struct genlmsghdr head;
	struct exited last, group;
	bool threads;
	uint16_t type;
	int r = open_message(&view, &type, ret_error);

	if (r != 0)
		return r;
	if (type != family)
		return PROC_EVENTS_OTHER;
	if (!take_bytes(&view, &head, sizeof(head)))
		return -EBADMSG;
	if (head.cmd != TASKSTATS_CMD_NEW)
		return PROC_EVENTS_OTHER;
	if (!find_attribute(view, TASKSTATS_TYPE_AGGR_PID, &one) || !read_exited(one, TASKSTATS_TYPE_PID, &last))
		return -EBADMSG;
	if (!(last.stats.ac_flag & AGROUP))
		return PROC_EVENTS_OTHER; /* other threads go on */
	threads = find_attribute(view, TASKSTATS_TYPE_AGGR_TGID, &all);
	if (threads && !read_exited(all, TASKSTATS_TYPE_TGID, &group))
		return -EBADMSG;
	r = set_event(PROCEVENT_TOTALS, threads ? group.id : last.id, (int32_t)last.stats.ac_ppid, ret);
	if (r == PROC_EVENTS_EVENT)
		sum_up_exit(&last, threads ? &group : NULL, &ret->totals);
	return r;
}

/* ---- perf ---- */

int proc_events_perf(const struct perf_record *record, struct procevent *ret)
{
	if (record->pid != record->tid || record->pid > INT32_MAX)
		return PROC_EVENTS_OTHER;
	switch (record->type) {
	case PERF_RECORD_FORK:
		return set_event(PROCEVENT_FORK, (int32_t)record->pid, (int32_t)record->fork.ppid, ret);
	case PERF_RECORD_EXIT:
		return set_event(PROCEVENT_EXIT, (int32_t)record->pid, 0, ret);
	case PERF_RECORD_COMM:
		return set_event(record->comm.exec ? PROCEVENT_EXEC : PROCEVENT_COMM, (int32_t)record->pid, 0, ret);
	default:
		return PROC_EVENTS_OTHER;
	}
}
