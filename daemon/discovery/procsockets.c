/*
 * procsockets.c: netlink by hand: three requests and their answers.
 *
 * The connector tells of threads too; a filter on its socket drops that in the kernel, so that nobody is woken for it.
 */
#include "procsockets.h"

#include "procevents.h"
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
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECEIVE_BYTES (1 << 20)
#define MESSAGE_BYTES PROCSOCKETS_MESSAGE_BYTES

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

int procsockets_connector(int receive_bytes)
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

void procsockets_leave_connector(int fd)
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
		if (procevents_taskstats(buf, (size_t)len, family, &event, &error) == PROCEVENTS_ANSWER)
			return error;
	}
	return r;
}

int procsockets_taskstats(int receive_bytes, uint16_t *ret_family)
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
	r = procevents_family(buf, (size_t)len, &family);
	if (r == 0)
		r = ask_for_exits(fd, family, buf);
	if (r < 0)
		return r;
	*ret_family = family;

	return TAKE_FD(fd);
}
