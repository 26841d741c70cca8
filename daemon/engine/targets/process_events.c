/*
 * process_events.c: one epoll descriptor over the sockets of the proc connector and of taskstats,
 * or over one perf ring on each CPU, or over the ring of the kernel source.
 *
 * That one is preferred while it is on: one ring in the order of time, without threads, and what a process
 * used in all is exact in it.
 *
 * The connector is next: one socket for the whole machine, threads filtered out in the kernel
 * (a socket filter, so that a thread's events wake nothing), exit records beside it. perf's records
 * wake for every thread, and the reader has to pause between two reads.
 *
 * Netlink is spoken by hand: three requests and their answers. A message that the kernel did not
 * send is ignored: any process may write to a netlink socket.
 *
 * The exit record of a process is sent before the connector says that it exits, and after all else
 * that it says. So exit records are received first and handed on last.
 */
#include "daemon/engine/targets/process_events.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/proc/perf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Room for any message: an exit record of a process with threads is two of struct taskstats, which
 * grows with the kernel.
 */
#define MESSAGE_BYTES 2048u

#define RECEIVE_BYTES (1 << 20)

/*
 * Timeout of the kernel's answer, which is there when sending has returned. In a pid namespace with
 * the host's network events arrive, but no answer ever does, and their pids are the host's.
 */
#define ANSWER_NS (500 * NS_PER_MS)

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

static int send_message(int fd, void *message, size_t len)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct nlmsghdr *head = message;

	head->nlmsg_len = (uint32_t)len;
	return sendto(fd, message, len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0 ? -errno : 0;
}

static mono_t answer_deadline(void)
{
	struct clock clock = real_clock();

	return mono_add(clock_mono(&clock), ANSWER_NS);
}

/*
 * Waits for the kernel's next datagram, but not beyond the deadline. Its length; 0: not the
 * kernel's; -ETIMEDOUT; -errno.
 */
static ssize_t receive_answer(int fd, mono_t deadline, void *buf, size_t cap)
{
	struct clock clock = real_clock();
	int64_t left_ns = mono_diff(deadline, clock_mono(&clock));
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	struct sockaddr_nl from = { 0 };
	socklen_t from_len = sizeof(from);
	ssize_t len;

	if (left_ns <= 0 || poll(&wait, 1, (int)(left_ns / (int64_t)NS_PER_MS) + 1) <= 0)
		return -ETIMEDOUT;
	len = recvfrom(fd, buf, cap, MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);
	if (len < 0)
		return -errno;
	return from.nl_pid == 0 ? len : 0;
}

/* ---- the connector ---- */

#define LOAD_WORD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define JUMP_IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))
#define EVENT_AT (sizeof(struct nlmsghdr) + sizeof(struct cn_msg))
#define DATA_AT (EVENT_AT + offsetof(struct proc_event, event_data))

/* Accepts answers, exec; fork, comm and exit of first threads. Loads are big-endian. */
static int filter_threads(int fd)
{
	struct sock_filter code[] = {
		/* 0 */ LOAD_WORD(EVENT_AT),
		/* 1 */ JUMP_IF_EQUAL(htonl(PROC_EVENT_NONE), 12, 0),
		/* 2 */ JUMP_IF_EQUAL(htonl(PROC_EVENT_EXEC), 11, 0),
		/* 3 */ JUMP_IF_EQUAL(htonl(PROC_EVENT_FORK), 6, 0),
		/* 4 */ JUMP_IF_EQUAL(htonl(PROC_EVENT_COMM), 1, 0),
		/* 5 */ JUMP_IF_EQUAL(htonl(PROC_EVENT_EXIT), 0, 9),
		/* 6: its thread and its process */
		LOAD_WORD(DATA_AT),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		LOAD_WORD(DATA_AT + 4),
		BPF_STMT(BPF_JMP | BPF_JA, 3),
		/* 10: the child's, of fork */
		LOAD_WORD(DATA_AT + 8),
		BPF_STMT(BPF_MISC | BPF_TAX, 0),
		LOAD_WORD(DATA_AT + 12),
		/* 13 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
		/* 14 */ BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		/* 15 */ BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { .len = ARRAY_LEN(code), .filter = code };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno : 0;
}

/* PROC_CN_MCAST_LISTEN or _IGNORE. mark: the answer has mark + 1. 0 or -errno of sending it. */
static int send_connector(int fd, enum proc_cn_mcast_op what, uint32_t mark)
{
	struct {
		struct nlmsghdr head;
		struct cn_msg message;
		uint32_t what;
	} request = {
		.head = { .nlmsg_type = NLMSG_DONE },
		.message = { .id = { CN_IDX_PROC, CN_VAL_PROC }, .ack = mark, .len = sizeof(request.what) },
		.what = what,
	};

	return send_message(fd, &request, sizeof(request));
}

/* Answers go to all that listen: those to other programs are none. */
static bool is_answer_to(const uint8_t *buf, size_t len, uint32_t mark)
{
	struct nlmsghdr head;
	struct cn_msg message;

	if (len < sizeof(head) + sizeof(message))
		return true;
	memcpy(&head, buf, sizeof(head));
	memcpy(&message, buf + sizeof(head), sizeof(message));
	return head.nlmsg_type == NLMSG_ERROR || message.ack == mark + 1;
}

/* Events may come before the answer. They are dropped: a scan follows. */
static int await_answer(int fd, uint32_t mark, uint8_t *buf)
{
	struct procevent event;
	int error = 0;

	for (mono_t deadline = answer_deadline();;) {
		ssize_t len = receive_answer(fd, deadline, buf, MESSAGE_BYTES);

		if (len < 0)
			return len == -ENOBUFS ? 0 : (int)len;
		if (len > 0 && proc_events_connector(buf, (size_t)len, &event, &error) == PROC_EVENTS_ANSWER &&
		    is_answer_to(buf, (size_t)len, mark))
			return error;
	}
}

/*
 * A non-blocking socket of the proc connector without the events of threads. receive_bytes: 0: 1
 * MiB. The descriptor; -EPERM; -ECONNREFUSED: another network namespace; -EPROTONOSUPPORT,
 * -EAFNOSUPPORT; -ETIMEDOUT: the kernel does not answer; -errno.
 */
static int open_connector(int receive_bytes)
{
	uint32_t mark = (uint32_t)answer_deadline().ns ^ (uint32_t)getpid() << 16;
	int group = CN_IDX_PROC, r;
	uint8_t buf[MESSAGE_BYTES];
	AUTO_CLOSE int fd = open_socket(NETLINK_CONNECTOR, receive_bytes);

	if (fd < 0)
		return fd;
	r = filter_threads(fd);
	if (r == 0 && setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
		r = -errno;
	if (r == 0)
		r = send_connector(fd, PROC_CN_MCAST_LISTEN, mark);
	if (r == 0)
		r = await_answer(fd, mark, buf);

	return r < 0 ? r : TAKE_FD(fd);
}

static void close_connector(int fd)
{
	send_connector(fd, PROC_CN_MCAST_IGNORE, 0); /* kernels before 6.6 count listeners */
	close(fd);
}

/* ---- exit records ---- */

/* A generic netlink message with one attribute, a text. */
struct generic_message {
	struct nlmsghdr head;
	struct genlmsghdr generic_message;
	struct nlattr attribute;
	char text[48];
};

static int send_generic(int fd, uint16_t type, uint8_t command, uint16_t attribute, const char *text)
{
	struct generic_message message = {
		.head = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | (type != GENL_ID_CTRL ? NLM_F_ACK : 0) },
		.generic_message = { .cmd = command, .version = 1 },
		.attribute = { .nla_type = attribute },
	};
	size_t len = strlen(text) + 1;

	if (len > sizeof(message.text))
		return -E2BIG;
	memcpy(message.text, text, len);
	message.attribute.nla_len = (uint16_t)(sizeof(message.attribute) + len);
	return send_message(fd, &message, offsetof(struct generic_message, text) + ((len + 3) & ~(size_t)3));
}

static int register_exit_records(int fd, uint16_t family, uint8_t *buf)
{
	struct proc_cpus possible;
	struct procevent event;
	char mask[24];
	int error = 0, r;

	proc_read_cpus(PROC_CPUS_POSSIBLE, &possible);
	snprintf(mask, sizeof(mask), "0-%u", possible.end - 1);
	r = send_generic(fd, family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, mask);
	for (mono_t deadline = answer_deadline(); r == 0;) {
		ssize_t len = receive_answer(fd, deadline, buf, MESSAGE_BYTES);

		if (len < 0)
			return (int)len;
		if (proc_events_taskstats(buf, (size_t)len, family, &event, &error) == PROC_EVENTS_ANSWER)
			return error;
	}
	return r;
}

/* Exit records of all CPUs. Errors as open_connector; -ENOENT: the kernel has no taskstats. */
static int open_taskstats(int receive_bytes, uint16_t *ret_family)
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
	len = receive_answer(fd, answer_deadline(), buf, sizeof(buf));
	if (len < 0)
		return (int)len;
	r = proc_events_family(buf, (size_t)len, &family);
	if (r == 0)
		r = register_exit_records(fd, family, buf);
	if (r < 0)
		return r;
	*ret_family = family;

	return TAKE_FD(fd);
}

/* ---- the source ---- */

#define RING_BYTES 32768u
#define BATCH PROCESS_EVENTS_BATCH

/* Arguments of recvmmsg(2), which receives into the scratch. */
struct datagrams {
	struct mmsghdr heads[BATCH];
	struct iovec parts[BATCH];
	struct sockaddr_nl from[BATCH];
};

/* A record of perf's that was taken from its ring. */
struct timed_event {
	uint64_t time_ns, number; /* of CLOCK_MONOTONIC; in the order of reading */
	struct procevent event;
};

struct process_events {
	enum process_events_source source;
	struct kernel_accounts *accounts; /* of KERNEL */
	int epoll, connector, taskstats;
	uint16_t family;
	bool lost, more;
	struct procevent exits[BATCH]; /* exit records that are to follow */
	size_t exit_count;
	bool exits_full; /* there may be more of them than were fetched */
	struct perf_events *rings;
	size_t ring_count;
	struct timed_event *held; /* what the rings had, in the order of time */
	size_t held_count, held_cap, held_next;
	uint64_t held_until_ns, held_number; /* up to then nothing is missing in held, held_next and on */
	struct procevent *batch;             /* where the running read puts them */
	size_t count;
	struct datagrams datagrams;
	_Alignas(8) uint8_t scratch[BATCH][MESSAGE_BYTES]; /* for datagrams, or for one record of perf */
};

_Static_assert(BATCH *MESSAGE_BYTES >= PERF_RECORD_SIZE_MAX, "a record fits");

static void describe_failure(char *reason, const char *what, int error)
{
	const char *why = strerror(-error);

	if (error == -EPERM || error == -EACCES)
		why = "not permitted (CAP_NET_ADMIN)";
	else if (error == -ECONNREFUSED)
		why = "not in this network namespace";
	else if (error == -EPROTONOSUPPORT || error == -EAFNOSUPPORT || error == -ENOENT)
		why = "not available";
	snprintf(reason, PROCESS_EVENTS_REASON_MAX, "%s: %s", what, why);
}

/* ---- perf ---- */

static int open_rings(struct process_events *events, const struct process_events_options *options, char *reason)
{
	struct perf_events_wanted wanted = { .kind = PERF_EVENTS_TASKS };
	size_t bytes = options->ring_bytes != 0 ? options->ring_bytes : RING_BYTES;
	struct proc_cpus possible;
	int r = -ENODEV;

	proc_read_cpus(PROC_CPUS_POSSIBLE, &possible);
	events->rings = calloc(possible.end, sizeof(*events->rings));
	if (events->rings == NULL)
		return -ENOMEM;
	for (uint32_t cpu = 0; cpu < possible.end; cpu++) {
		r = perf_events_open(&wanted, cpu, bytes, &events->rings[events->ring_count], reason);
		if (r == 0)
			events->ring_count++;
		else if (r != -ENODEV)
			return r;
	}
	return events->ring_count > 0 ? 0 : r;
}

static int on_perf_record(void *ctx, const struct perf_event_header *head, size_t len)
{
	static const struct perf_record_format format = { .sample_type = PERF_RECORD_FRAME_POINTERS };
	struct process_events *events = ctx;
	struct perf_record record;

	if (perf_record_decode(&format, head, len, &record) < 0)
		return 0;
	if (record.type == PERF_RECORD_LOST)
		events->lost = true;
	else if (vector_reserve(&events->held, &events->held_cap, events->held_count + 1, sizeof(*events->held)) < 0)
		events->lost = true;
	else if (proc_events_perf(&record, &events->held[events->held_count].event) == PROC_EVENTS_EVENT) {
		events->held[events->held_count].time_ns = record.time_ns;
		events->held[events->held_count++].number = events->held_number++;
	}
	return 0;
}

static int compare_times(const void *a, const void *b)
{
	const struct timed_event *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->number < y->number ? -1 : 1;
}

/* Takes what the rings have now. What happened before this began is whole afterwards. */
static void drain_rings(struct process_events *events)
{
	struct clock clock = real_clock();

	events->held_count -= events->held_next;
	if (events->held_next > 0)
		memmove(events->held, events->held + events->held_next, events->held_count * sizeof(*events->held));
	events->held_next = 0;
	events->held_until_ns = (uint64_t)clock_mono(&clock).ns;
	for (size_t i = 0; i < events->ring_count; i++)
		events->lost |=
			perf_ring_drain(&events->rings[i].ring, events->scratch, on_perf_record, events) == -EBADMSG;
	if (events->held_count > 0)
		qsort(events->held, events->held_count, sizeof(*events->held), compare_times);
}

static bool has_whole_event(const struct process_events *events)
{
	return events->held_next < events->held_count &&
	       events->held[events->held_next].time_ns <= events->held_until_ns;
}

/*
 * A parent's fork and its end may be in the rings of two CPUs: events are handed on in the order of
 * time. What came while the rings were read has to wait for the next time, because what came before
 * it may be in a ring that was read already.
 */
static void read_rings(struct process_events *events, size_t cap)
{
	if (!has_whole_event(events))
		drain_rings(events);
	while (events->count < cap && has_whole_event(events))
		events->batch[events->count++] = events->held[events->held_next++].event;
	events->more = events->held_next < events->held_count;
}

/* ---- reading sockets ---- */

static void prepare_messages(struct process_events *events)
{
	struct datagrams *datagrams = &events->datagrams;

	for (unsigned i = 0; i < BATCH; i++) {
		datagrams->parts[i] = (struct iovec){ events->scratch[i], MESSAGE_BYTES };
		datagrams->heads[i].msg_hdr = (struct msghdr){
			.msg_name = &datagrams->from[i],
			.msg_namelen = sizeof(datagrams->from[i]),
			.msg_iov = &datagrams->parts[i],
			.msg_iovlen = 1,
		};
	}
}

/* At most `most` datagrams. Their number; those that the kernel did not send have length 0. */
static unsigned receive_datagrams(struct process_events *events, int fd, unsigned most)
{
	struct datagrams *datagrams = &events->datagrams;
	int count = recvmmsg(fd, datagrams->heads, most, MSG_DONTWAIT, NULL);

	if (count < 0) {
		events->lost |= errno == ENOBUFS;
		return 0;
	}
	for (int i = 0; i < count; i++) {
		datagrams->heads[i].msg_hdr.msg_namelen =
			sizeof(datagrams->from[i]); /* the kernel has overwritten it */
		if (datagrams->from[i].nl_pid != 0)
			datagrams->heads[i].msg_len = 0;
	}
	return (unsigned)count;
}

static void fetch_exit_records(struct process_events *events)
{
	const struct datagrams *datagrams = &events->datagrams;
	unsigned count = receive_datagrams(events, events->taskstats, BATCH);
	int error;

	events->exits_full = count == BATCH;
	for (unsigned i = 0; i < count; i++)
		if (proc_events_taskstats(events->scratch[i], datagrams->heads[i].msg_len, events->family,
					  &events->exits[events->exit_count], &error) == PROC_EVENTS_EVENT)
			events->exit_count++;
}

/* True: it has no more. */
static bool read_connector(struct process_events *events)
{
	const struct datagrams *datagrams = &events->datagrams;
	unsigned count = receive_datagrams(events, events->connector, BATCH);
	int error;

	events->more |= count == BATCH;
	for (unsigned i = 0; i < count; i++)
		if (proc_events_connector(events->scratch[i], datagrams->heads[i].msg_len,
					  &events->batch[events->count], &error) == PROC_EVENTS_EVENT)
			events->count++;

	return count < BATCH;
}

/* Exit records follow when the connector has no more events. */
static void read_sockets(struct process_events *events)
{
	if (events->exit_count == 0 && events->taskstats >= 0)
		fetch_exit_records(events);
	if (!read_connector(events))
		return;
	memcpy(events->batch + events->count, events->exits, events->exit_count * sizeof(events->exits[0]));
	events->count += events->exit_count;
	events->exit_count = 0;
	events->more |= events->exits_full;
}

size_t process_events_read(struct process_events *events, struct procevent *batch, size_t cap, bool *ret_lost,
			   bool *ret_more)
{
	if (cap < 2 * BATCH)
		return 0;
	if (events->source == PROCESS_EVENTS_KERNEL)
		return kernel_accounts_read(events->accounts, batch, cap, ret_lost, ret_more);
	events->batch = batch;
	events->count = 0;
	events->more = false;
	if (events->source == PROCESS_EVENTS_PERF)
		read_rings(events, cap);
	else
		read_sockets(events);
	*ret_lost = events->lost;
	*ret_more = events->more;
	events->lost = false;
	return events->count;
}

/* ---- opening and closing ---- */

static int poll_in(struct process_events *events, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return fd >= 0 && epoll_ctl(events->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int poll_in_all(struct process_events *events)
{
	int r = poll_in(events, events->connector);

	if (r == 0)
		r = poll_in(events, events->taskstats);
	for (size_t i = 0; r == 0 && i < events->ring_count; i++)
		r = poll_in(events, events->rings[i].fd);
	return r;
}

/* The connector is a source without exit records too; reason says why there are none. */
static int open_sockets(struct process_events *events, const struct process_events_options *options, char *reason)
{
	int r = open_connector(options->receive_bytes);

	if (r < 0) {
		describe_failure(reason, "proc connector", r);
		return r;
	}
	events->connector = r;
	events->source = PROCESS_EVENTS_CONNECTOR;
	events->taskstats = open_taskstats(options->receive_bytes, &events->family);
	if (events->taskstats < 0)
		describe_failure(reason, "exit records (taskstats)", events->taskstats);

	return 0;
}

/* The first source that is permitted; reason says what is not available. */
static int open_source(struct process_events *events, const struct process_events_options *options, char *reason)
{
	char perf_reason[PERF_EVENTS_REASON_MAX] = "", connector_reason[PROCESS_EVENTS_REASON_MAX / 2] = "";
	int r = -EOPNOTSUPP, fd;

	if (options->accounts && options->only == PROCESS_EVENTS_NONE &&
	    kernel_accounts_listen(options->accounts, &fd) == 0) {
		events->source = PROCESS_EVENTS_KERNEL;
		events->accounts = options->accounts;
		return poll_in(events, fd);
	}
	if (options->only != PROCESS_EVENTS_PERF) {
		r = open_sockets(events, options, reason);
		if (r == 0)
			return 0;
		snprintf(connector_reason, sizeof(connector_reason), "%s", reason);
	}
	if (options->only == PROCESS_EVENTS_CONNECTOR)
		return r;
	r = open_rings(events, options, perf_reason);
	if (r == 0)
		events->source = PROCESS_EVENTS_PERF;
	snprintf(reason, PROCESS_EVENTS_REASON_MAX, "%.96s%s%.100s", connector_reason,
		 r < 0 && *connector_reason ? "; " : "", r < 0 ? perf_reason : "");
	return r;
}

int process_events_open(const struct process_events_options *options, struct process_events **ret,
			struct process_events_info *ret_info)
{
	struct process_events *events = calloc(1, sizeof(*events));
	int r;

	*ret_info = (struct process_events_info){ .source = PROCESS_EVENTS_NONE };
	if (events == NULL)
		return -ENOMEM;
	events->connector = events->taskstats = -1;
	prepare_messages(events);
	events->epoll = epoll_create1(EPOLL_CLOEXEC);
	r = events->epoll < 0 ? -errno : open_source(events, options, ret_info->why);
	if (r == 0)
		r = poll_in_all(events);
	if (r < 0) {
		if (ret_info->why[0] == '\0')
			snprintf(ret_info->why, PROCESS_EVENTS_REASON_MAX, "%s", strerror(-r));
		process_events_close(events);
		return r;
	}
	ret_info->source = events->source;
	ret_info->exit_totals = events->taskstats >= 0 || events->source == PROCESS_EVENTS_KERNEL;
	ret_info->fd = events->epoll;
	*ret = events;
	return 0;
}

void process_events_close(struct process_events *events)
{
	if (events == NULL)
		return;
	if (events->connector >= 0)
		close_connector(events->connector);
	if (events->taskstats >= 0)
		close(events->taskstats);
	if (events->accounts)
		kernel_accounts_listen(events->accounts, NULL);
	for (size_t i = 0; i < events->ring_count; i++)
		perf_events_close(&events->rings[i]);
	if (events->epoll >= 0)
		close(events->epoll);
	free(events->rings);
	free(events->held);
	free(events);
}
