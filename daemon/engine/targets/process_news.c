/*
 * process_news.c: what is heard between scans (process_listener.h), and the processes that are
 * looked at for it.
 *
 * 	executes   looked at at once: it is what it will be (perf says so before the command line is in
 *             place: a moment later)
 * 	forks      looked at a moment later: most execute something until then
 * 	ends       its last counters go to the group that it was a member of, or would have been
 *
 * What is heard is only where to look: what a process is, is read from /proc, under the same target
 * table, by the same matcher. News that were lost are followed by a scan.
 *
 * Looking costs as much as a scan's look, and is bounded by the same share of a core
 * (token_bucket.h): beyond it nobody is looked at and news are only taken in, twenty milliseconds'
 * at a time, until there is something left again: those who come are late by that. If that goes on
 * for a second those that wait are left to a scan.
 */
#include "daemon/engine/targets/process_news.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/cgroup_watch.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/matcher.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/config/selection.h"
#include "lib/model/pacing.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/*
 * Room for any message of theirs: an exit record of a process with threads is two of struct
 * taskstats, which grows with the kernel.
 */
#define PROC_SOCKETS_MESSAGE_BYTES 2048u

/*
 * proc_sockets.c: netlink by hand: three requests and their answers.
 *
 * The connector tells of threads too; a filter on its socket drops that in the kernel, so that
 * nobody is woken for it.
 */

#define RECEIVE_BYTES (1 << 20)
#define MESSAGE_BYTES PROC_SOCKETS_MESSAGE_BYTES

/* How long an answer of the kernel's is waited for; it is there when sending has returned. */
#define ANSWER_MS 200

/* ---- sockets ---- */

static int open_socket(int protocol, int receive_bytes)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK };
	AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);

	if (fd < 0)
		return -errno;
	if (receive_bytes <= 0)
		receive_bytes = RECEIVE_BYTES;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &receive_bytes, sizeof(receive_bytes)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* message begins with its struct nlmsghdr. 0 or -errno. */
static int send_message(int fd, void *message, size_t len)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct nlmsghdr *head = message;

	head->nlmsg_len = (uint32_t)len;
	return sendto(fd, message, len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0 ? -errno : 0;
}

/* The next datagram of the kernel's, waited for. Its length; -ETIMEDOUT; -errno. */
static ssize_t receive_answer(int fd, void *buf, size_t cap)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	struct sockaddr_nl from = { 0 };
	socklen_t from_len = sizeof(from);
	ssize_t len;

	if (poll(&wait, 1, ANSWER_MS) <= 0)
		return -ETIMEDOUT;
	len = recvfrom(fd, buf, cap, MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);
	if (len < 0)
		return -errno;
	return from.nl_pid == 0 ? len : 0;
}

/* ---- the connector ---- */

#define WORD_AT(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define SAME(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define EVENT_AT (sizeof(struct nlmsghdr) + sizeof(struct cn_msg))
#define DATA_AT (EVENT_AT + offsetof(struct proc_event, event_data))

/*
 * Lets through: answers, exec, and of fork, comm and exit what is of a process's first thread.
 * Loads are big-endian, words the machine's.
 */
static int filter_threads(int fd)
{
	struct sock_filter code[] = {
		/* 0 */ WORD_AT(EVENT_AT),
		/* 1 */ SAME(htonl(PROC_EVENT_NONE), 12, 0),
		/* 2 */ SAME(htonl(PROC_EVENT_EXEC), 11, 0),
		/* 3 */ SAME(htonl(PROC_EVENT_FORK), 6, 0),
		/* 4 */ SAME(htonl(PROC_EVENT_COMM), 1, 0),
		/* 5 */ SAME(htonl(PROC_EVENT_EXIT), 0, 9),
		/* 6: its thread and its process */
		WORD_AT(DATA_AT),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		WORD_AT(DATA_AT + 4),
		BPF_STMT(BPF_JMP | BPF_JA, 3),
		/* 10: the child's, of fork */
		WORD_AT(DATA_AT + 8),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		WORD_AT(DATA_AT + 12),
		/* 13 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
		/* 14 */ BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		/* 15 */ BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno : 0;
}

/* To listen or to cease. 0 or -errno, of the sending. */
static int tell_connector(int fd, enum proc_cn_mcast_op what)
{
	struct {
		struct nlmsghdr head;
		struct cn_msg message;
		uint32_t what;
	} request = {
		.head = { .nlmsg_type = NLMSG_DONE },
		.message = { .id = { CN_IDX_PROC, CN_VAL_PROC }, .len = sizeof(request.what) },
		.what = what,
	};

	return send_message(fd, &request, sizeof(request));
}

/*
 * Events of others may come before the answer; what is lost thereby is found by the scan that
 * follows.
 */
static int await_connector(int fd, uint8_t *buf)
{
	struct procevent event;
	int error = 0;

	for (int tries = 0; tries < 10000; tries++) {
		ssize_t len = receive_answer(fd, buf, MESSAGE_BYTES);

		if (len < 0)
			return len == -ENOBUFS ? 0 : (int)len;
		if (len > 0 && proc_events_connector(buf, (size_t)len, &event, &error) == PROC_EVENTS_ANSWER)
			return error;
	}
	return 0;
}

/*
 * The proc connector's. receive_bytes: 0: 1 MiB. Non-blocking, what threads do is filtered out. The
 * descriptor; -EPERM; -ECONNREFUSED: another network namespace; -EPROTONOSUPPORT, -EAFNOSUPPORT;
 * -ETIMEDOUT: the kernel does not answer; -errno.
 */
static int proc_sockets_connector(int receive_bytes)
{
	int group = CN_IDX_PROC, r;
	uint8_t buf[MESSAGE_BYTES];
	AUTO_CLOSE int fd = open_socket(NETLINK_CONNECTOR, receive_bytes);

	if (fd < 0)
		return fd;
	r = filter_threads(fd);
	if (r == 0 && setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
		r = -errno;
	if (r == 0)
		r = tell_connector(fd, PROC_CN_MCAST_LISTEN);
	if (r == 0)
		r = await_connector(fd, buf);

	return r < 0 ? r : TAKE_FD(fd);
}

/* Says so to the kernel, and closes it. */
static void proc_sockets_leave_connector(int fd)
{
	tell_connector(fd, PROC_CN_MCAST_IGNORE); /* kernels before 6.6 count listeners */
	close(fd);
}

/* ---- exit records ---- */

/* A generic netlink message with one attribute, a text. */
struct generic {
	struct nlmsghdr head;
	struct genlmsghdr generic;
	struct nlattr attribute;
	char text[48];
};

static int send_generic(int fd, uint16_t type, uint8_t command, uint16_t attribute, const char *text)
{
	struct generic message = {
		.head = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | (type != GENL_ID_CTRL ? NLM_F_ACK : 0) },
		.generic = { .cmd = command, .version = 1 },
		.attribute = { .nla_type = attribute },
	};
	size_t len = strlen(text) + 1;

	if (len > sizeof(message.text))
		return -E2BIG;
	memcpy(message.text, text, len);
	message.attribute.nla_len = (uint16_t)(sizeof(message.attribute) + len);
	return send_message(fd, &message, offsetof(struct generic, text) + ((len + 3) & ~(size_t)3));
}

/* Exits on every CPU that may ever be there. */
static int ask_for_exits(int fd, uint16_t family, uint8_t *buf)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct procevent event;
	char mask[24];
	int error = 0, r;

	snprintf(mask, sizeof(mask), "0-%ld", cpus > 1 ? cpus - 1 : 0);
	r = send_generic(fd, family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, mask);
	for (int tries = 0; r == 0 && tries < 10000; tries++) {
		ssize_t len = receive_answer(fd, buf, MESSAGE_BYTES);

		if (len < 0)
			return (int)len;
		if (proc_events_taskstats(buf, (size_t)len, family, &event, &error) == PROC_EVENTS_ANSWER)
			return error;
	}
	return r;
}

/*
 * Exit records of taskstats, of all CPUs; *ret_family: the number that its messages have. As above;
 * -ENOENT: the kernel has none.
 */
static int proc_sockets_taskstats(int receive_bytes, uint16_t *ret_family)
{
	AUTO_CLOSE int fd = open_socket(NETLINK_GENERIC, receive_bytes);
	uint8_t buf[MESSAGE_BYTES];
	uint16_t family;
	ssize_t len;
	int r;

	if (fd < 0)
		return fd;
	r = send_generic(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, TASKSTATS_GENL_NAME);
	if (r < 0)
		return r;
	len = receive_answer(fd, buf, sizeof(buf));
	if (len < 0)
		return (int)len;
	r = proc_events_family(buf, (size_t)len, &family);
	if (r == 0)
		r = ask_for_exits(fd, family, buf);
	if (r < 0)
		return r;
	*ret_family = family;

	return TAKE_FD(fd);
}

/*
 * process_listener.c: one descriptor (epoll) over the connector's socket and that of taskstats, or
 * over one ring of perf's on each CPU.
 *
 * A message that was not sent by the kernel is passed over: anybody may write to a netlink socket.
 *
 * The exit record of a process is sent before the connector says that it exits and after all else
 * it says. So exit records are fetched first and handed on last.
 *
 * The connector is preferred: one socket for the whole machine, threads filtered out, exit records
 * beside it. perf's records wake for every thread, and the reader has to pause between two looks.
 */

#define RING_BYTES 32768u
#define CPUS_MAX 4096
#define BATCH PROCESS_LISTENER_BATCH

/* Where datagrams are received, always the same places. */
struct messages {
	struct mmsghdr heads[BATCH];
	struct iovec parts[BATCH];
	struct sockaddr_nl from[BATCH];
};

struct process_listener {
	enum process_listener_source source;
	int epoll, connector, taskstats;
	uint16_t family;
	bool lost, more;
	struct procevent held[BATCH]; /* exit records that are to follow */
	size_t held_count;
	struct perf_events *rings;
	size_t ring_count, ring_next;
	struct procevent *events; /* where the running read puts them */
	size_t count;
	struct messages messages;
	_Alignas(8) uint8_t scratch[BATCH][MESSAGE_BYTES]; /* of messages, or of one record of perf's */
};

_Static_assert(BATCH *MESSAGE_BYTES >= PERF_RECORD_SIZE_MAX, "a record fits");

static void refuse(char *reason, const char *what, int error)
{
	const char *why = strerror(-error);

	if (error == -EPERM || error == -EACCES)
		why = "not permitted (CAP_NET_ADMIN)";
	else if (error == -ECONNREFUSED)
		why = "not in this network namespace";
	else if (error == -EPROTONOSUPPORT || error == -EAFNOSUPPORT || error == -ENOENT)
		why = "not available";
	snprintf(reason, PROCESS_LISTENER_REASON_MAX, "%s: %s", what, why);
}

/* ---- perf ---- */

static int open_rings(struct process_listener *listener, const struct process_listener_options *options, char *reason)
{
	struct perf_events_wanted wanted = { .kind = PERF_EVENTS_TASKS };
	size_t bytes = options->ring_bytes != 0 ? options->ring_bytes : RING_BYTES;
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	int r = -ENODEV;

	cpus = cpus < 1 ? 1 : cpus > CPUS_MAX ? CPUS_MAX : cpus;
	listener->rings = calloc((size_t)cpus, sizeof(*listener->rings));
	if (listener->rings == NULL)
		return -ENOMEM;
	for (uint32_t cpu = 0; cpu < (uint32_t)cpus; cpu++) {
		r = perf_events_open(&wanted, cpu, bytes, &listener->rings[listener->ring_count], reason);
		if (r == 0)
			listener->ring_count++;
		else if (r != -ENODEV)
			return r;
	}
	return listener->ring_count > 0 ? 0 : r;
}

static int take_record(void *ctx, const struct perf_event_header *head, size_t len)
{
	static const struct perf_record_format format = { .sample_type = PERF_RECORD_FRAME_POINTERS };
	struct process_listener *listener = ctx;
	struct perf_record record;

	if (perf_record_decode(&format, head, len, &record) < 0)
		return 0;
	if (record.type == PERF_RECORD_LOST)
		listener->lost = true;
	else if (proc_events_perf(&record, &listener->events[listener->count]) == PROC_EVENTS_EVENT)
		listener->count++;
	return listener->count == BATCH; /* that record is taken; the rest stays */
}

static void read_rings(struct process_listener *listener)
{
	for (size_t i = 0; i < listener->ring_count && listener->count < BATCH; i++) {
		struct perf_events *ring = &listener->rings[listener->ring_next];
		int r = perf_ring_drain(&ring->ring, listener->scratch, take_record, listener);

		listener->lost |= r == -EBADMSG;
		if (listener->count < BATCH)
			listener->ring_next = (listener->ring_next + 1) % listener->ring_count;
	}
	listener->more = listener->count == BATCH;
}

/* ---- reading sockets ---- */

static void prepare_messages(struct process_listener *listener)
{
	struct messages *messages = &listener->messages;

	for (unsigned i = 0; i < BATCH; i++) {
		messages->parts[i] = (struct iovec){ listener->scratch[i], MESSAGE_BYTES };
		messages->heads[i].msg_hdr = (struct msghdr){
			.msg_name = &messages->from[i],
			.msg_namelen = sizeof(messages->from[i]),
			.msg_iov = &messages->parts[i],
			.msg_iovlen = 1,
		};
	}
}

/*
 * At most `most` datagrams into the scratch. How many; those that are not the kernel's have length
 * 0.
 */
static unsigned receive(struct process_listener *listener, int fd, unsigned most)
{
	struct messages *messages = &listener->messages;
	int count = recvmmsg(fd, messages->heads, most, MSG_DONTWAIT, NULL);

	if (count < 0) {
		listener->lost |= errno == ENOBUFS;
		return 0;
	}
	for (int i = 0; i < count; i++) {
		messages->heads[i].msg_hdr.msg_namelen = sizeof(messages->from[i]); /* the kernel has put in its own */
		if (messages->from[i].nl_pid != 0)
			messages->heads[i].msg_len = 0;
	}
	return (unsigned)count;
}

/* Exit records, into what is held. */
static void fetch_totals(struct process_listener *listener)
{
	const struct messages *messages = &listener->messages;
	unsigned count = receive(listener, listener->taskstats, BATCH);
	int error;

	listener->more |= count == BATCH;
	for (unsigned i = 0; i < count; i++)
		if (proc_events_taskstats(listener->scratch[i], messages->heads[i].msg_len, listener->family,
					  &listener->held[listener->held_count], &error) == PROC_EVENTS_EVENT)
			listener->held_count++;
}

/* True: that was all there is. */
static bool read_connector(struct process_listener *listener)
{
	const struct messages *messages = &listener->messages;
	unsigned count = receive(listener, listener->connector, BATCH);
	int error;

	listener->more |= count == BATCH;
	for (unsigned i = 0; i < count; i++)
		if (proc_events_connector(listener->scratch[i], messages->heads[i].msg_len,
					  &listener->events[listener->count], &error) == PROC_EVENTS_EVENT)
			listener->count++;

	return count < BATCH;
}

/* Exit records follow when the connector has said all it had. */
static void read_sockets(struct process_listener *listener)
{
	if (listener->held_count == 0 && listener->taskstats >= 0)
		fetch_totals(listener);
	if (!read_connector(listener))
		return;
	memcpy(listener->events + listener->count, listener->held, listener->held_count * sizeof(listener->held[0]));
	listener->count += listener->held_count;
	listener->held_count = 0;
}

size_t process_listener_read(struct process_listener *listener, struct procevent *events, size_t cap, bool *ret_lost)
{
	if (cap < 2 * BATCH)
		return 0;
	listener->events = events;
	listener->count = 0;
	listener->more = false;
	if (listener->source == PROCESS_LISTENER_PERF)
		read_rings(listener);
	else
		read_sockets(listener);
	*ret_lost = listener->lost;
	listener->lost = false;
	return listener->count;
}

/* Whether there was nothing more than what the last read took. */
static bool process_listener_drained(const struct process_listener *listener)
{
	return !listener->more;
}

/* ---- the listener itself ---- */

static int await(struct process_listener *listener, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return fd >= 0 && epoll_ctl(listener->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int await_all(struct process_listener *listener)
{
	int r = await(listener, listener->connector);

	if (r == 0)
		r = await(listener, listener->taskstats);
	for (size_t i = 0; r == 0 && i < listener->ring_count; i++)
		r = await(listener, listener->rings[i].fd);
	return r;
}

/* Without exit records it is a source too; reason says why there are none. */
static int open_sockets(struct process_listener *listener, const struct process_listener_options *options, char *reason)
{
	int r = proc_sockets_connector(options->receive_bytes);

	if (r < 0) {
		refuse(reason, "proc connector", r);
		return r;
	}
	listener->connector = r;
	listener->source = PROCESS_LISTENER_CONNECTOR;
	listener->taskstats = proc_sockets_taskstats(options->receive_bytes, &listener->family);
	if (listener->taskstats < 0)
		refuse(reason, "exit records (taskstats)", listener->taskstats);

	return 0;
}

/* The first source that is allowed. What does not work is said in reason. */
static int open_source(struct process_listener *listener, const struct process_listener_options *options, char *reason)
{
	char perf_reason[PERF_EVENTS_REASON_MAX] = "", connector_reason[PROCESS_LISTENER_REASON_MAX / 2] = "";
	int r = -EOPNOTSUPP;

	if (options->only != PROCESS_LISTENER_PERF) {
		r = open_sockets(listener, options, reason);
		if (r == 0)
			return 0;
		snprintf(connector_reason, sizeof(connector_reason), "%s", reason);
	}
	if (options->only == PROCESS_LISTENER_CONNECTOR)
		return r;
	r = open_rings(listener, options, perf_reason);
	if (r == 0)
		listener->source = PROCESS_LISTENER_PERF;
	snprintf(reason, PROCESS_LISTENER_REASON_MAX, "%.96s%s%.100s", connector_reason,
		 r < 0 && *connector_reason ? "; " : "", r < 0 ? perf_reason : "");
	return r;
}

int process_listener_open(const struct process_listener_options *options, struct process_listener **ret, char *reason)
{
	struct process_listener *listener = calloc(1, sizeof(*listener));
	int r;

	reason[0] = '\0';
	if (listener == NULL)
		return -ENOMEM;
	listener->connector = listener->taskstats = -1;
	prepare_messages(listener);
	listener->epoll = epoll_create1(EPOLL_CLOEXEC);
	r = listener->epoll < 0 ? -errno : open_source(listener, options, reason);
	if (r == 0)
		r = await_all(listener);
	if (r < 0) {
		if (reason[0] == '\0')
			snprintf(reason, PROCESS_LISTENER_REASON_MAX, "%s", strerror(-r));
		process_listener_close(listener);
		return r;
	}
	*ret = listener;
	return 0;
}

void process_listener_close(struct process_listener *listener)
{
	if (listener == NULL)
		return;
	if (listener->connector >= 0)
		proc_sockets_leave_connector(listener->connector);
	if (listener->taskstats >= 0)
		close(listener->taskstats);
	for (size_t i = 0; i < listener->ring_count; i++)
		perf_events_close(&listener->rings[i]);
	if (listener->epoll >= 0)
		close(listener->epoll);
	free(listener->rings);
	free(listener);
}

enum process_listener_source process_listener_source(const struct process_listener *listener)
{
	return listener != NULL ? listener->source : PROCESS_LISTENER_NONE;
}

bool process_listener_has_totals(const struct process_listener *listener)
{
	return listener != NULL && listener->taskstats >= 0;
}

/* For poll(2): readable when there is something to be read. */
static int process_listener_fd(const struct process_listener *listener)
{
	return listener->epoll;
}

const char *process_listener_name(enum process_listener_source source)
{
	static const char *const names[] = {
		[PROCESS_LISTENER_NONE] = "rescan",
		[PROCESS_LISTENER_CONNECTOR] = "connector",
		[PROCESS_LISTENER_PERF] = "perf",
	};

	return names[source];
}

/*
 * recent_pids.c: slots in the order of their last news, used round and round, and chains from pid
 * to slot. A process of which there are news again moves to a new slot, so that those at the front
 * are always the ones that have waited longest.
 */

#define BUCKETS RECENT_PIDS_MAX
#define NOWHERE UINT32_MAX

/*
 * News that come so late after an end are not of the process that ended: pids are used again after
 * thousands of others.
 */
#define LATE_NS (100 * NS_PER_MS)

_Static_assert((RECENT_PIDS_MAX & (RECENT_PIDS_MAX - 1)) == 0, "numbers of slots go round");

struct recent_pids {
	struct newcomer slots[RECENT_PIDS_MAX];
	uint32_t buckets[BUCKETS];
	uint64_t used; /* ever; the next is used % RECENT_PIDS_MAX */
	uint64_t due;  /* those before it were handed out */
	uint64_t missed, dropped;
};

int recent_pids_new(struct recent_pids **ret)
{
	struct recent_pids *recent_pids = calloc(1, sizeof(*recent_pids));

	if (recent_pids == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < BUCKETS; i++)
		recent_pids->buckets[i] = NOWHERE;
	*ret = recent_pids;
	return 0;
}

void recent_pids_free(struct recent_pids *recent_pids)
{
	free(recent_pids);
}

static uint32_t *bucket_of(struct recent_pids *recent_pids, int32_t pid)
{
	return &recent_pids->buckets[(uint32_t)pid % BUCKETS];
}

struct newcomer *recent_pids_find(struct recent_pids *recent_pids, int32_t pid)
{
	for (uint32_t i = *bucket_of(recent_pids, pid); i != NOWHERE; i = recent_pids->slots[i].next)
		if (recent_pids->slots[i].pid == pid)
			return &recent_pids->slots[i];
	return NULL;
}

static void forget(struct recent_pids *recent_pids, struct newcomer *newcomer)
{
	uint32_t *at = bucket_of(recent_pids, newcomer->pid);
	uint32_t index = (uint32_t)(newcomer - recent_pids->slots);

	while (*at != index)
		at = &recent_pids->slots[*at].next;
	*at = newcomer->next;
	newcomer->state = NEWCOMER_NONE;
}

/* The newest slot, for pid. */
static struct newcomer *enter(struct recent_pids *recent_pids, const struct newcomer *what)
{
	uint32_t index = (uint32_t)(recent_pids->used % RECENT_PIDS_MAX);
	struct newcomer *slot = &recent_pids->slots[index];
	uint32_t *bucket = bucket_of(recent_pids, what->pid);

	if (slot->state != NEWCOMER_NONE) {
		recent_pids->dropped += slot->state == NEWCOMER_WAITING;
		forget(recent_pids, slot);
	}
	*slot = *what;
	slot->next = *bucket;
	*bucket = index;
	recent_pids->used++;
	if (recent_pids->used - recent_pids->due > RECENT_PIDS_MAX)
		recent_pids->due = recent_pids->used - RECENT_PIDS_MAX;
	return slot;
}

static void miss(struct recent_pids *recent_pids, struct newcomer *newcomer)
{
	recent_pids->missed += !newcomer->missed;
	newcomer->missed = true;
}

struct newcomer *recent_pids_began(struct recent_pids *recent_pids, int32_t pid, enum newcomer_news news, mono_t now)
{
	struct newcomer *known = recent_pids_find(recent_pids, pid);
	struct newcomer newcomer = { .pid = pid };

	if (known != NULL && known->state == NEWCOMER_GONE && mono_diff(now, known->at) < (int64_t)LATE_NS) {
		known->renamed |= news != NEWCOMER_FORKED;
		if (news != NEWCOMER_RENAMED)
			miss(recent_pids, known);
		return NULL;
	}
	if (known != NULL && known->state != NEWCOMER_GONE && news != NEWCOMER_FORKED)
		newcomer = *known;
	newcomer.met |= newcomer.state == NEWCOMER_MET;
	if (known != NULL)
		forget(recent_pids, known);
	newcomer.state = NEWCOMER_WAITING;
	newcomer.at = now;
	if (news == NEWCOMER_FORKED)
		newcomer.born = now;
	newcomer.forked |= news == NEWCOMER_FORKED;
	newcomer.executed |= news == NEWCOMER_EXECUTED;
	newcomer.renamed |= news != NEWCOMER_FORKED;
	return enter(recent_pids, &newcomer);
}

struct newcomer *recent_pids_ended(struct recent_pids *recent_pids, int32_t pid, mono_t now)
{
	struct newcomer *known = recent_pids_find(recent_pids, pid);

	if (known == NULL)
		return enter(recent_pids, &(struct newcomer){ .pid = pid, .state = NEWCOMER_GONE, .at = now });
	if (known->state == NEWCOMER_WAITING)
		miss(recent_pids, known);
	known->state = NEWCOMER_GONE;
	known->at = now;
	return known;
}

/* The first that waits, or NULL. */
static struct newcomer *first(struct recent_pids *recent_pids)
{
	for (; recent_pids->due < recent_pids->used; recent_pids->due++) {
		struct newcomer *newcomer = &recent_pids->slots[recent_pids->due % RECENT_PIDS_MAX];

		if (newcomer->state == NEWCOMER_WAITING)
			return newcomer;
	}
	return NULL;
}

struct newcomer *recent_pids_due(struct recent_pids *recent_pids, uint64_t delay_ns, mono_t now)
{
	struct newcomer *newcomer = first(recent_pids);

	if (newcomer == NULL || mono_diff(now, newcomer->at) < (int64_t)delay_ns)
		return NULL;
	recent_pids->due++;
	return newcomer;
}

bool recent_pids_next(struct recent_pids *recent_pids, uint64_t delay_ns, mono_t *ret)
{
	const struct newcomer *newcomer = first(recent_pids);

	if (newcomer != NULL)
		*ret = mono_add(newcomer->at, delay_ns);
	return newcomer != NULL;
}

size_t recent_pids_give_up(struct recent_pids *recent_pids)
{
	size_t count = 0;

	for (; first(recent_pids) != NULL; recent_pids->due++)
		count++;
	return count;
}

uint64_t recent_pids_missed(const struct recent_pids *recent_pids)
{
	return recent_pids->missed;
}

uint64_t recent_pids_dropped(const struct recent_pids *recent_pids)
{
	return recent_pids->dropped;
}

/*
 * How long nothing is heard after the second time within as long, so that a storm wakes us a
 * thousand times a second and not for each process; one that comes alone is heard at once, and so
 * is what he does next.
 */
#define GAP_NS NS_PER_MS

/*
 * The same while news have taken their share of a core; and for how long somebody waits for it, at
 * most.
 */
#define HELD_OFF_GAP_NS (20 * NS_PER_MS)
#define BEHIND_MAX_NS NS_PER_S

/* How long a process that was forked is left alone: to execute something, or to end. */
#define DELAY_NS (2 * NS_PER_MS)

/*
 * A process that was forked so lately counts in its group with all that it used: of an older one
 * that would be a peak that was none.
 */
#define WHOLE_NS (20 * NS_PER_MS)

/* So long at most if nobody has looked at it before, because all have to wait on this machine. */
#define WHOLE_UNMET_NS NS_PER_S

/*
 * How soon after an end it is asked whether the sampler gave members back: at first at every tick
 * of the fastest sampler, then more and more seldom, after a quarter of the time that has passed.
 * And how long: an idle one the sampler looks at seldom.
 */
#define SETTLE_NS (2 * NS_PER_MS)
#define SETTLE_PART 4
#define SETTLE_SELDOM_NS (250 * NS_PER_MS)
#define SETTLE_MAX_NS (30 * NS_PER_S)

/* Batches at a time, so that a scan gets on. */
#define READS_MAX 64

/* ---- option handoff in and out ---- */

static void free_news(struct discovery_news *news)
{
	process_listener_close(news->listener);
	recent_pids_free(news->recent_pids);
	free(news);
}

static void tune_out_of_processes(struct discovery *discovery)
{
	if (!discovery->news)
		return;

	discovery_news_state(discovery, &discovery->state);
	free_news(discovery->news);
	discovery->news = NULL;
	discovery->state.source = PROCESS_LISTENER_NONE;
	discovery->state.exit_totals = discovery->state.held_off = false;
}

void discovery_tune_out(struct discovery *discovery)
{
	tune_out_of_processes(discovery);
	cgroup_watch_free(discovery->cgroups);
	discovery->cgroups = NULL;
}

static int make_news(const struct discovery *discovery, struct discovery_news **ret, char *reason)
{
	struct discovery_news *news = calloc(1, sizeof(*news));
	int r;

	if (!news)
		return -ENOMEM;

	news->process_facts.procfd = discovery->options.target_table.procfd;
	news->process_facts.mounts = discovery->options.target_table.mounts;
	news->process_facts.containers = discovery->options.target_table.containers;
	news->process_facts.unlocked_section = discovery_outside(discovery);
	news->missed = discovery->state.missed;
	news->dropped = discovery->state.dropped;
	r = recent_pids_new(&news->recent_pids);
	if (r == 0)
		r = process_listener_open(&discovery->options.listen, &news->listener, reason);
	if (r < 0) {
		free_news(news);
		return r;
	}
	*ret = news;

	return 0;
}

/*
 * Cgroups are heard of while an entry selects them by path. What cannot be had is found by scans.
 */
static void tune_in_to_cgroups(struct discovery *discovery, bool wanted)
{
	wanted = wanted && discovery->matcher->by_path;
	if (wanted == discovery->cgroups_tried)
		return;

	discovery->cgroups_tried = wanted;
	cgroup_watch_free(discovery->cgroups);
	discovery->cgroups = NULL;
	if (wanted && cgroup_watch_new(discovery->options.target_table.mounts, &discovery->cgroups) < 0)
		discovery->cgroups = NULL;
}

void discovery_tune_in(struct discovery *discovery)
{
	bool wanted = discovery->config->sampling.discovery == CONFIG_DISCOVERY_AUTO;
	struct discovery_state *state = &discovery->state;
	int r;

	tune_in_to_cgroups(discovery, wanted);
	if (discovery->tuned && wanted == discovery->tuned_in)
		return;

	discovery->tuned = true;
	discovery->tuned_in = wanted;
	state->listened = true;
	state->source_why[0] = '\0';
	if (!wanted) {
		tune_out_of_processes(discovery);
		snprintf(state->source_why, sizeof(state->source_why), "sampling.discovery is \"rescan\"");
		return;
	}
	if (!discovery->options.target_table.own_proc) {
		snprintf(state->source_why, sizeof(state->source_why), "proc_root is not this machine's own /proc");
		return;
	}
	r = make_news(discovery, &discovery->news, state->source_why);
	if (r == -ENOMEM && state->source_why[0] == '\0')
		snprintf(state->source_why, sizeof(state->source_why), "%s", strerror(ENOMEM));
	if (r < 0)
		return;

	state->source = process_listener_source(discovery->news->listener);
	state->exit_totals = process_listener_has_totals(discovery->news->listener);
	discovery->news->token_bucket = token_bucket_of(DISCOVERY_SHARE, discovery_show_life(discovery));
}

/* ---- what it may cost ---- */

/* What was taken since the last time is taken into account. */
static void charge(struct discovery_news *news, mono_t now)
{
	uint64_t cpu_ns = real_clock_thread_cpu();

	token_bucket_take(&news->token_bucket, cpu_ns - news->charged_ns, now);
	news->charged_ns = cpu_ns;
}

/* Whether nobody may be looked at, in the middle of news. */
static bool is_spent(struct discovery *discovery, mono_t now)
{
	charge(discovery->news, now);

	return token_bucket_is_spent(&discovery->news->token_bucket, now);
}

/* Whether somebody waits for what there is not, and for how long. */
static void look_back(struct discovery *discovery, mono_t now)
{
	struct discovery_news *news = discovery->news;
	bool spent = is_spent(discovery, now);
	mono_t next;

	if (!discovery->state.held_off) {
		discovery->state.held_off = spent;
		news->behind_since = now;
		return;
	}
	if (mono_diff(now, news->behind_since) < (int64_t)BEHIND_MAX_NS) {
		discovery->state.held_off =
			spent || (recent_pids_next(news->recent_pids, DELAY_NS, &next) && mono_diff(now, next) >= 0);
		return;
	}

	discovery->state.storms++;
	discovery->state.late += recent_pids_give_up(news->recent_pids);
	discovery->again = true;
	discovery->state.held_off = spent;
	news->behind_since = now;
}

/* ---- one process ---- */

static void look_at(struct discovery *discovery, struct newcomer *newcomer, mono_t now)
{
	struct process_facts *process_facts = &discovery->news->process_facts;
	struct discovery_meeting meeting = {
		.changed = true,
		.whole = newcomer->forked &&
			 mono_diff(now, newcomer->born) < (int64_t)(newcomer->met ? WHOLE_NS : WHOLE_UNMET_NS),
	};
	int r;

	process_facts->now = now;
	r = process_facts_meet(process_facts, newcomer->pid);

	if (r == 0)
		r = process_facts_ask(process_facts, discovery->matcher->needs);
	if (r == 0)
		r = discovery_match(discovery, process_facts, &meeting);
	if (r == -ECANCELED) {
		discovery->again = true; /* nobody has looked at it: a scan will */
		return;
	}
	if (r == -ESRCH || r == -ENOENT || meeting.ended) {
		recent_pids_ended(discovery->news->recent_pids, newcomer->pid, now);
		return;
	}

	newcomer->state = NEWCOMER_MET;
	newcomer->renamed &= r < 0;
	discovery->state.looks++;
	discovery->state.late += discovery->state.held_off;
	discovery->again |= r < 0 && process_facts_starved(r);
}

/* ---- news ---- */

static void begin(struct discovery *discovery, int32_t pid, enum newcomer_news what, mono_t now)
{
	struct discovery_news *news = discovery->news;
	struct newcomer *newcomer = recent_pids_began(news->recent_pids, pid, what, now);

	if (newcomer && what == NEWCOMER_EXECUTED && discovery->state.source == PROCESS_LISTENER_CONNECTOR &&
	    !is_spent(discovery, now))
		look_at(discovery, newcomer, now);
}

static void take_event(struct discovery *discovery, const struct procevent *event, mono_t now)
{
	discovery->state.events++;
	switch (event->kind) {
	case PROCEVENT_FORK:
		matcher_forked(discovery->matcher, event->ppid, event->pid);
		begin(discovery, event->pid, NEWCOMER_FORKED, now);
		return;
	case PROCEVENT_EXEC:
		begin(discovery, event->pid, NEWCOMER_EXECUTED, now);
		return;
	case PROCEVENT_COMM:
		begin(discovery, event->pid, NEWCOMER_RENAMED, now);
		return;
	case PROCEVENT_EXIT:
	case PROCEVENT_TOTALS:
		discovery_take_end(discovery, event, now);
		return;
	}
}

/* Between two looks others have their turn; what there is may be gone afterwards. */
static bool others_first(struct discovery *discovery)
{
	discovery_show_life(discovery);
	fair_mutex_yield(&discovery->turn);

	return !discovery->stop;
}

static void take_events(struct discovery *discovery, mono_t now)
{
	struct discovery_news *news = discovery->news;
	bool lost = false;

	news->more = false;
	for (int reads = 0; reads < READS_MAX; reads++) {
		size_t count = process_listener_read(news->listener, news->events,
						     sizeof(news->events) / sizeof(news->events[0]), &lost);

		discovery->state.overruns += lost;
		discovery->again |= lost;
		for (size_t i = 0; i < count; i++)
			take_event(discovery, &news->events[i], now);
		news->more |= count > 0;
		if (process_listener_drained(news->listener) || !others_first(discovery))
			return;
	}
}

static void look_at_due(struct discovery *discovery, mono_t now)
{
	struct newcomer *newcomer;

	while (!is_spent(discovery, now) && (newcomer = recent_pids_due(discovery->news->recent_pids, DELAY_NS, now))) {
		look_at(discovery, newcomer, now);
		if (!others_first(discovery))
			return;
	}
}

/* ---- all of them ---- */

/* When processes may be heard again. */
static mono_t rate_limit_until(const struct discovery *discovery, mono_t now)
{
	const struct discovery_news *news = discovery->news;

	return token_bucket_is_spent(&news->token_bucket, now) ? mono_add(news->heard, HELD_OFF_GAP_NS)
							       : news->rate_limit.until;
}

/* Unless they are resting, or this is in the middle of them. */
static void hear_processes(struct discovery *discovery, mono_t now)
{
	struct discovery_news *news = discovery->news;

	if (!news || news->hearing || mono_diff(now, rate_limit_until(discovery, now)) < 0)
		return;

	news->hearing = true;
	news->heard = now;
	news->charged_ns = real_clock_thread_cpu();
	target_table_fetch(discovery->target_table);
	take_events(discovery, now);
	target_table_settle(discovery->target_table);
	look_at_due(discovery, now);
	discovery->again |= matcher_is_behind(discovery->matcher);
	if (news->more)
		rate_limit_found(&news->rate_limit, GAP_NS, now);
	look_back(discovery, now);
	news->hearing = false;
}

/* A cgroup takes most of a millisecond: processes come between them, and others have their turn. */
static void visit_new_cgroup(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	discovery->state.cgroups_heard++;
	discovery->again |= discovery_sight_cgroup(discovery, path) < 0;
	if (others_first(discovery))
		hear_processes(discovery, discovery_pulse(discovery));
}

/*
 * Its processes were met before it had its name: where they count and not the cgroup, a scan finds
 * them.
 */
static void visit_named_container(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	discovery->again |= (discovery->matcher->needs & MATCH_CONTAINER) != 0;
	discovery->again |= discovery_sight_cgroup(discovery, path) < 0;
}

/*
 * It is called something else, or has labels now. Targets that are not selected any more go with
 * the next scan.
 */
static void visit_other_container(void *ctx, const char *path)
{
	struct discovery *discovery = ctx;

	visit_named_container(ctx, path);
	discovery->again |= discovery->matcher->by_container;
	discovery->again |= target_table_rename_container(discovery->target_table, path) < 0;
}

static void hear_cgroups(struct discovery *discovery, mono_t now)
{
	struct cgroup_watch *cgroups = discovery->cgroups;

	if (!cgroups || !rate_limit_is_over(&discovery->cgroups_rest, now))
		return;

	uint64_t before = cgroup_watch_heard(cgroups);
	bool whole = cgroup_watch_hear(cgroups, now, visit_new_cgroup, discovery);

	if (cgroup_watch_heard(cgroups) != before)
		rate_limit_found(&discovery->cgroups_rest, GAP_NS, now);
	discovery->state.overruns += !whole;
	discovery->again |= !whole;
}

void discovery_overhear(struct discovery *discovery, mono_t now)
{
	if (mono_diff(now, discovery->heard) >= (int64_t)GAP_NS)
		discovery_hear(discovery, now);
}

void discovery_hear(struct discovery *discovery, mono_t now)
{
	discovery->heard = now;
	hear_processes(discovery, now);
	hear_cgroups(discovery, now);
	containers_retry(discovery->options.target_table.containers, now, visit_named_container, discovery);
	containers_review(discovery->options.target_table.containers, now, visit_other_container, discovery);
	discovery_hear_units(discovery, now);
}

static void sooner(mono_t *until, mono_t at)
{
	if (mono_diff(*until, at) > 0)
		*until = at;
}

static mono_t later(mono_t one, mono_t other)
{
	return mono_diff(one, other) > 0 ? one : other;
}

static uint64_t settle_pause(int64_t passed_ns)
{
	uint64_t part = (uint64_t)passed_ns / SETTLE_PART;

	part = part > SETTLE_NS ? part : SETTLE_NS;

	return part < SETTLE_SELDOM_NS ? part : SETTLE_SELDOM_NS;
}

/*
 * Of processes. True: the listener's descriptor is to be polled. Before it may be heard again it is
 * not: it would be readable, and nobody would read.
 */
static bool await_processes(const struct discovery *discovery, mono_t now, mono_t *until)
{
	const struct discovery_news *news = discovery->news;
	mono_t next, may = rate_limit_until(discovery, now);
	bool spent = token_bucket_is_spent(&news->token_bucket, now);

	if (!spent && recent_pids_next(news->recent_pids, DELAY_NS, &next))
		sooner(until, later(next, may));
	if (target_table_ended(discovery->target_table) > 0 &&
	    mono_diff(now, news->rate_limit.found) < (int64_t)SETTLE_MAX_NS)
		sooner(until, mono_add(now, settle_pause(mono_diff(now, news->rate_limit.found))));
	if (discovery->state.held_off)
		sooner(until, may);
	if (mono_diff(may, now) <= 0)
		return true;
	sooner(until, may);

	return false;
}

/* The same of cgroups. */
static bool await_cgroups(const struct discovery *discovery, mono_t now, mono_t *until)
{
	mono_t next, may = discovery->cgroups_rest.until;

	if (cgroup_watch_next(discovery->cgroups, &next))
		sooner(until, later(next, may));
	if (rate_limit_is_over(&discovery->cgroups_rest, now))
		return true;
	sooner(until, may);

	return false;
}

size_t discovery_await(const struct discovery *discovery, mono_t now, struct pollfd *fds, mono_t *until)
{
	size_t count = 0;
	mono_t next;

	fds[count++] = (struct pollfd){ .fd = discovery->wake_fd, .events = POLLIN };
	if (discovery->cgroups && await_cgroups(discovery, now, until))
		fds[count++] = (struct pollfd){ .fd = cgroup_watch_fd(discovery->cgroups), .events = POLLIN };
	if (containers_next(discovery->options.target_table.containers, &next))
		sooner(until, next);
	count += discovery_await_units(discovery, now, &fds[count], until);
	if (discovery->news && await_processes(discovery, now, until))
		fds[count++] =
			(struct pollfd){ .fd = process_listener_fd(discovery->news->listener), .events = POLLIN };

	return count;
}

void discovery_news_state(const struct discovery *discovery, struct discovery_state *ret)
{
	const struct discovery_news *news = discovery->news;

	if (!news)
		return;
	ret->missed = news->missed + recent_pids_missed(news->recent_pids);
	ret->dropped = news->dropped + recent_pids_dropped(news->recent_pids);
}
