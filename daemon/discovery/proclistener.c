/*
 * proclistener.c: one descriptor (epoll) over the connector's socket and that of taskstats, or over one ring of perf's on each CPU.
 *
 * A message that was not sent by the kernel is passed over: anybody may write to a netlink socket.
 *
 * The exit record of a process is sent before the connector says that it exits and after all else it says. So exit records are fetched first
 * and handed on last.
 *
 * The connector is preferred: one socket for the whole machine, threads filtered out, exit records beside it. perf's records wake for every thread,
 * and the reader has to pause between two looks.
 */
#include "proclistener.h"

#include "perfevents.h"
#include "procsockets.h"
#include "scope.h"

#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RING_BYTES 32768u
#define CPUS_MAX 4096
#define BATCH PROCLISTENER_BATCH

#define MESSAGE_BYTES PROCSOCKETS_MESSAGE_BYTES

/* Where datagrams are received, always the same places. */
struct messages {
	struct mmsghdr heads[BATCH];
	struct iovec parts[BATCH];
	struct sockaddr_nl from[BATCH];
};

struct proclistener {
	enum proclistener_source source;
	int epoll, connector, taskstats;
	uint16_t family;
	bool lost, more;
	struct procevent held[BATCH]; /* exit records that are to follow */
	size_t held_count;
	struct perfevents *rings;
	size_t ring_count, ring_next;
	struct procevent *events; /* where the running read puts them */
	size_t count;
	struct messages messages;
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
	listener->more = listener->count == BATCH;
}

/* ---- reading sockets ---- */

static void prepare_messages(struct proclistener *listener)
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

/* At most `most` datagrams into the scratch. How many; those that are not the kernel's have length 0. */
static unsigned receive(struct proclistener *listener, int fd, unsigned most)
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
static void fetch_totals(struct proclistener *listener)
{
	const struct messages *messages = &listener->messages;
	unsigned count = receive(listener, listener->taskstats, BATCH);
	int error;

	listener->more |= count == BATCH;
	for (unsigned i = 0; i < count; i++)
		if (procevents_taskstats(listener->scratch[i], messages->heads[i].msg_len, listener->family,
					 &listener->held[listener->held_count], &error) == PROCEVENTS_EVENT)
			listener->held_count++;
}

/* True: that was all there is. */
static bool read_connector(struct proclistener *listener)
{
	const struct messages *messages = &listener->messages;
	unsigned count = receive(listener, listener->connector, BATCH);
	int error;

	listener->more |= count == BATCH;
	for (unsigned i = 0; i < count; i++)
		if (procevents_connector(listener->scratch[i], messages->heads[i].msg_len,
					 &listener->events[listener->count], &error) == PROCEVENTS_EVENT)
			listener->count++;

	return count < BATCH;
}

/* Exit records follow when the connector has said all it had. */
static void read_sockets(struct proclistener *listener)
{
	if (listener->held_count == 0 && listener->taskstats >= 0)
		fetch_totals(listener);
	if (!read_connector(listener))
		return;
	memcpy(listener->events + listener->count, listener->held, listener->held_count * sizeof(listener->held[0]));
	listener->count += listener->held_count;
	listener->held_count = 0;
}

size_t proclistener_read(struct proclistener *listener, struct procevent *events, size_t cap, bool *ret_lost)
{
	if (cap < 2 * BATCH)
		return 0;
	listener->events = events;
	listener->count = 0;
	listener->more = false;
	if (listener->source == PROCLISTENER_PERF)
		read_rings(listener);
	else
		read_sockets(listener);
	*ret_lost = listener->lost;
	listener->lost = false;
	return listener->count;
}

bool proclistener_drained(const struct proclistener *listener)
{
	return !listener->more;
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

/* Without exit records it is a source too; reason says why there are none. */
static int open_sockets(struct proclistener *listener, const struct proclistener_options *options, char *reason)
{
	int r = procsockets_connector(options->receive_bytes);

	if (r < 0) {
		refuse(reason, "proc connector", r);
		return r;
	}
	listener->connector = r;
	listener->source = PROCLISTENER_CONNECTOR;
	listener->taskstats = procsockets_taskstats(options->receive_bytes, &listener->family);
	if (listener->taskstats < 0)
		refuse(reason, "exit records (taskstats)", listener->taskstats);

	return 0;
}

/* The first source that is allowed. What does not work is said in reason. */
static int open_source(struct proclistener *listener, const struct proclistener_options *options, char *reason)
{
	char perf_reason[PERFEVENTS_REASON_MAX] = "", connector_reason[PROCLISTENER_REASON_MAX / 2] = "";
	int r = -EOPNOTSUPP;

	if (options->only != PROCLISTENER_PERF) {
		r = open_sockets(listener, options, reason);
		if (r == 0)
			return 0;
		snprintf(connector_reason, sizeof(connector_reason), "%s", reason);
	}
	if (options->only == PROCLISTENER_CONNECTOR)
		return r;
	r = open_rings(listener, options, perf_reason);
	if (r == 0)
		listener->source = PROCLISTENER_PERF;
	snprintf(reason, PROCLISTENER_REASON_MAX, "%.96s%s%.100s", connector_reason,
		 r < 0 && *connector_reason ? "; " : "", r < 0 ? perf_reason : "");
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
	prepare_messages(listener);
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
	if (listener->connector >= 0)
		procsockets_leave_connector(listener->connector);
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
