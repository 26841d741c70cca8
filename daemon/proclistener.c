/*
 * proclistener.c: one descriptor (epoll) over the connector's socket and that of taskstats, or over one ring of perf's on each CPU.
 *
 * The connector tells of threads too; a filter on the socket drops that in the kernel, so that nobody is woken for it. A message that was not sent by
 * the kernel is passed over: anybody may write to a netlink socket.
 *
 * The exit record of a process is sent before the connector says that it exits and after all else it says. So exit records are fetched first
 * and handed on last.
 *
 * The connector is preferred: one socket for the whole machine, threads filtered out, exit records beside it. perf's records wake for every thread,
 * and the reader has to pause between two looks.
 */
#include "proclistener.h"

#include "perfevents.h"
#include "scope.h"

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

#define RECEIVE_BYTES (1 << 20)
#define RING_BYTES 32768u
#define CPUS_MAX 4096
#define BATCH PROCLISTENER_BATCH

/* An exit record of a process with threads is two of struct taskstats, which grows with the kernel. */
#define MESSAGE_BYTES 2048u

/* How long an answer of the kernel's is waited for; it is there when sending has returned. */
#define ANSWER_MS 200

struct proclistener {
	enum proclistener_source source;
	int epoll, connector, taskstats;
	uint16_t family;
	bool lost;
	struct procevent held[BATCH]; /* exit records that are to follow */
	size_t held_count;
	struct perfevents *rings;
	size_t ring_count, ring_next;
	struct procevent *events; /* where the running read puts them */
	size_t count;
	_Alignas(8) uint8_t scratch[BATCH][MESSAGE_BYTES]; /* of messages, or of one record of perf's */
};

_Static_assert(BATCH *MESSAGE_BYTES >= PERFRECORD_SIZE_MAX, "a record fits");

static void refuse(char *reason, const char *what, int error)
{
	const char *why = strerror(-error);

	if (error == -EPERM || error == -EACCES)
		why = "not permitted (CAP_NET_ADMIN)";
	else if (error == -ECONNREFUSED)
		why = "not in this network namespace";
	else if (error == -EPROTONOSUPPORT || error == -EAFNOSUPPORT || error == -ENOENT)
		why = "not available";
	snprintf(reason, PROCLISTENER_REASON_MAX, "%s: %s", what, why);
}

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

/* Lets through: answers, exec, and of fork, comm and exit what is of a process's first thread. Loads are big-endian, words the machine's. */
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

/* Events of others may come before the answer; what is lost thereby is found by the scan that follows. */
static int await_connector(int fd, uint8_t *buf)
{
	struct procevent event;
	int error = 0;

	for (int tries = 0; tries < 10000; tries++) {
		ssize_t len = receive_answer(fd, buf, MESSAGE_BYTES);

		if (len < 0)
			return len == -ENOBUFS ? 0 : (int)len;
		if (len > 0 && procevents_connector(buf, (size_t)len, &event, &error) == PROCEVENTS_ANSWER)
			return error;
	}
	return 0;
}

static int open_connector(struct proclistener *listener, const struct proclistener_options *options)
{
	int group = CN_IDX_PROC, r;
	AUTO_CLOSE int fd = open_socket(NETLINK_CONNECTOR, options->receive_bytes);

	if (fd < 0)
		return fd;
	r = filter_threads(fd);
	if (r == 0 && setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
		r = -errno;
	if (r == 0)
		r = tell_connector(fd, PROC_CN_MCAST_LISTEN);
	if (r == 0)
		r = await_connector(fd, listener->scratch[0]);
	if (r < 0)
		return r;
	listener->connector = TAKE_FD(fd);
	return 0;
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
static int ask_for_exits(struct proclistener *listener, int fd)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct procevent event;
	char mask[24];
	int error = 0, r;

	snprintf(mask, sizeof(mask), "0-%ld", cpus > 1 ? cpus - 1 : 0);
	r = send_generic(fd, listener->family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, mask);
	for (int tries = 0; r == 0 && tries < 10000; tries++) {
		ssize_t len = receive_answer(fd, listener->scratch[0], MESSAGE_BYTES);

		if (len < 0)
			return (int)len;
		if (procevents_taskstats(listener->scratch[0], (size_t)len, listener->family, &event, &error) ==
		    PROCEVENTS_ANSWER)
			return error;
	}
	return r;
}

static int open_taskstats(struct proclistener *listener, const struct proclistener_options *options)
{
	AUTO_CLOSE int fd = open_socket(NETLINK_GENERIC, options->receive_bytes);
	ssize_t len;
	int r;

	if (fd < 0)
		return fd;
	r = send_generic(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, TASKSTATS_GENL_NAME);
	if (r < 0)
		return r;
	len = receive_answer(fd, listener->scratch[0], MESSAGE_BYTES);
	if (len < 0)
		return (int)len;
	r = procevents_family(listener->scratch[0], (size_t)len, &listener->family);
	if (r == 0)
		r = ask_for_exits(listener, fd);
	if (r < 0)
		return r;
	listener->taskstats = TAKE_FD(fd);
	return 0;
}

/* ---- perf ---- */

static int open_rings(struct proclistener *listener, const struct proclistener_options *options, char *reason)
{
	struct perfevents_wanted wanted = { .kind = PERFEVENTS_TASKS };
	size_t bytes = options->ring_bytes != 0 ? options->ring_bytes : RING_BYTES;
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	int r = -ENODEV;

	cpus = cpus < 1 ? 1 : cpus > CPUS_MAX ? CPUS_MAX : cpus;
	listener->rings = calloc((size_t)cpus, sizeof(*listener->rings));
	if (listener->rings == NULL)
		return -ENOMEM;
	for (uint32_t cpu = 0; cpu < (uint32_t)cpus; cpu++) {
		r = perfevents_open(&wanted, cpu, bytes, &listener->rings[listener->ring_count], reason);
		if (r == 0)
			listener->ring_count++;
		else if (r != -ENODEV)
			return r;
	}
	return listener->ring_count > 0 ? 0 : r;
}

static int take_record(void *ctx, const struct perf_event_header *head, size_t len)
{
	static const struct perfrecord_format format = { .sample_type = PERFRECORD_FRAME_POINTERS };
	struct proclistener *listener = ctx;
	struct perfrecord record;

	if (perfrecord_decode(&format, head, len, &record) < 0)
		return 0;
	if (record.type == PERF_RECORD_LOST)
		listener->lost = true;
	else if (procevents_perf(&record, &listener->events[listener->count]) == PROCEVENTS_EVENT)
		listener->count++;
	return listener->count == BATCH; /* that record is taken; the rest stays */
}

static void read_rings(struct proclistener *listener)
{
	for (size_t i = 0; i < listener->ring_count && listener->count < BATCH; i++) {
		struct perfevents *ring = &listener->rings[listener->ring_next];
		int r = perfring_drain(&ring->ring, listener->scratch, take_record, listener);

		listener->lost |= r == -EBADMSG;
		if (listener->count < BATCH)
			listener->ring_next = (listener->ring_next + 1) % listener->ring_count;
	}
}

/* ---- reading sockets ---- */

struct messages {
	struct mmsghdr heads[BATCH];
	struct iovec parts[BATCH];
	struct sockaddr_nl from[BATCH];
};

/* At most `most` datagrams into the scratch. How many; those that are not the kernel's have length 0. */
static unsigned receive(struct proclistener *listener, int fd, unsigned most, struct messages *messages)
{
	int count;

	for (unsigned i = 0; i < most; i++) {
		messages->parts[i] = (struct iovec){ listener->scratch[i], MESSAGE_BYTES };
		messages->heads[i].msg_hdr = (struct msghdr){
			.msg_name = &messages->from[i],
			.msg_namelen = sizeof(messages->from[i]),
			.msg_iov = &messages->parts[i],
			.msg_iovlen = 1,
		};
	}
	count = recvmmsg(fd, messages->heads, most, MSG_DONTWAIT, NULL);
	if (count < 0) {
		listener->lost |= errno == ENOBUFS;
		return 0;
	}
	for (int i = 0; i < count; i++)
		if (messages->from[i].nl_pid != 0)
			messages->heads[i].msg_len = 0;
	return (unsigned)count;
}

/* Exit records, into what is held. */
static void fetch_totals(struct proclistener *listener)
{
	struct messages messages;
	unsigned count = receive(listener, listener->taskstats, BATCH, &messages);
	int error;

	for (unsigned i = 0; i < count; i++)
		if (procevents_taskstats(listener->scratch[i], messages.heads[i].msg_len, listener->family,
					 &listener->held[listener->held_count], &error) == PROCEVENTS_EVENT)
			listener->held_count++;
}

static void read_connector(struct proclistener *listener, size_t cap)
{
	struct messages messages;
	unsigned most = cap < BATCH ? (unsigned)cap : BATCH;
	unsigned count = receive(listener, listener->connector, most, &messages);
	int error;

	for (unsigned i = 0; i < count; i++)
		if (procevents_connector(listener->scratch[i], messages.heads[i].msg_len,
					 &listener->events[listener->count], &error) == PROCEVENTS_EVENT)
			listener->count++;
}

/* Exit records follow when the connector has said all it had. */
static void read_sockets(struct proclistener *listener, size_t cap)
{
	if (listener->held_count == 0 && listener->taskstats >= 0)
		fetch_totals(listener);
	read_connector(listener, cap);
	if (listener->count > 0 || listener->held_count == 0)
		return;
	memcpy(listener->events, listener->held, listener->held_count * sizeof(listener->held[0]));
	listener->count = listener->held_count;
	listener->held_count = 0;
}

size_t proclistener_read(struct proclistener *listener, struct procevent *events, size_t cap, bool *ret_lost)
{
	if (cap < BATCH)
		return 0;
	listener->events = events;
	listener->count = 0;
	if (listener->source == PROCLISTENER_PERF)
		read_rings(listener);
	else
		read_sockets(listener, cap);
	*ret_lost = listener->lost;
	listener->lost = false;
	return listener->count;
}

/* ---- the listener itself ---- */

static int await(struct proclistener *listener, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return fd >= 0 && epoll_ctl(listener->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int await_all(struct proclistener *listener)
{
	int r = await(listener, listener->connector);

	if (r == 0)
		r = await(listener, listener->taskstats);
	for (size_t i = 0; r == 0 && i < listener->ring_count; i++)
		r = await(listener, listener->rings[i].fd);
	return r;
}

/* The first source that is allowed. What does not work is said in reason. */
static int open_source(struct proclistener *listener, const struct proclistener_options *options, char *reason)
{
	char perf_reason[PERFEVENTS_REASON_MAX] = "", connector_reason[PROCLISTENER_REASON_MAX / 2] = "";
	int r = -EOPNOTSUPP;

	if (options->only != PROCLISTENER_PERF) {
		r = open_connector(listener, options);
		if (r == 0) {
			listener->source = PROCLISTENER_CONNECTOR;
			r = open_taskstats(listener, options);
			if (r < 0)
				refuse(reason, "exit records (taskstats)", r);
			return r == -ENOMEM ? r : 0;
		}
		refuse(reason, "proc connector", r);
		snprintf(connector_reason, sizeof(connector_reason), "%s", reason);
	}
	if (options->only == PROCLISTENER_CONNECTOR)
		return r;
	r = open_rings(listener, options, perf_reason);
	if (r == 0)
		listener->source = PROCLISTENER_PERF;
	snprintf(reason, PROCLISTENER_REASON_MAX, "%.96s%s%.100s", connector_reason, r < 0 && *connector_reason ? "; " : "",
		 r < 0 ? perf_reason : "");
	return r;
}

int proclistener_open(const struct proclistener_options *options, struct proclistener **ret, char *reason)
{
	struct proclistener *listener = calloc(1, sizeof(*listener));
	int r;

	reason[0] = '\0';
	if (listener == NULL)
		return -ENOMEM;
	listener->connector = listener->taskstats = -1;
	listener->epoll = epoll_create1(EPOLL_CLOEXEC);
	r = listener->epoll < 0 ? -errno : open_source(listener, options, reason);
	if (r == 0)
		r = await_all(listener);
	if (r < 0) {
		if (reason[0] == '\0')
			snprintf(reason, PROCLISTENER_REASON_MAX, "%s", strerror(-r));
		proclistener_close(listener);
		return r;
	}
	*ret = listener;
	return 0;
}

void proclistener_close(struct proclistener *listener)
{
	if (listener == NULL)
		return;
	if (listener->connector >= 0) {
		tell_connector(listener->connector, PROC_CN_MCAST_IGNORE); /* kernels before 6.6 count listeners */
		close(listener->connector);
	}
	if (listener->taskstats >= 0)
		close(listener->taskstats);
	for (size_t i = 0; i < listener->ring_count; i++)
		perfevents_close(&listener->rings[i]);
	if (listener->epoll >= 0)
		close(listener->epoll);
	free(listener->rings);
	free(listener);
}

enum proclistener_source proclistener_source(const struct proclistener *listener)
{
	return listener != NULL ? listener->source : PROCLISTENER_NONE;
}

bool proclistener_has_totals(const struct proclistener *listener)
{
	return listener != NULL && listener->taskstats >= 0;
}

int proclistener_fd(const struct proclistener *listener)
{
	return listener->epoll;
}

const char *proclistener_name(enum proclistener_source source)
{
	static const char *const names[] = {
		[PROCLISTENER_NONE] = "rescan",
		[PROCLISTENER_CONNECTOR] = "connector",
		[PROCLISTENER_PERF] = "perf",
	};

	return names[source];
}
