/*
 * log.c: journal or standard error.
 *
 * systemd says through $JOURNAL_STREAM that standard error is the journal; then entries go to the
 * journal's socket, with their priority and fields. Everywhere else (a terminal, a pipe, a
 * container) a line goes to standard error in one write, so that lines of several threads do not
 * mix. Where systemd says so and the socket cannot be reached (another root directory) they go to
 * standard error too, with the priority in front as systemd understands it.
 *
 * The socket is written to in the journal's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), not
 * through sd_journal_sendv(3): that one sends on a blocking socket of its own and waits for as long
 * as the journal is stopped or behind, and with it would the thread that judges rules. An entry is
 * one datagram, put together by the kernel from pieces that stay where they are:
 *
 * 	NAME=value\n                                     of a value without newline
 * 	NAME\n<its length, 64 bits, little endian>value\n  of any other
 *
 * The wait is the socket's own (SO_SNDTIMEO): poll(2) does not look at the receiver's queue, which
 * is what gets full.
 */
#include "daemon/engine/base/log.h"

#include "lib/base/base.h"
#include "lib/base/text.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

/*
 * A fifth of what the main thread may sleep over without being late by much; a journal that is
 * merely busy makes room within this.
 */
#define LOG_PATIENCE_NS (20 * NS_PER_MS)

/* messages.c: the ids, from the one table. */

const char *message_id(enum message message)
{
	static const char *const ids[MESSAGE_KINDS] = { [MESSAGE_NONE] = "",
#define X(name, id) [MESSAGE_##name] = (id),
							MESSAGES(X)
#undef X
	};

	return ids[message];
}

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* A name that needs more is no name; keeps an entry far below what a datagram may hold. */
#define VALUE_MAX 1024
/* With what stands before and after it, what a pipe takes in one piece (PIPE_BUF). */
#define PRINTABLE_LINE_MAX 3584

static const char *program_name = "spikewatchd";
static const char *journal_path;
static int journal_fd = -1; /* -1: standard error */
static bool verbose_lines, may_block;
static int least_priority = LOG_DEBUG;

static atomic_bool stalled; /* the last entry waited in vain */
static atomic_uint_fast64_t lost_unsaid, lost_ever;

/* ---- where to ---- */

/*
 * "device:inode" of what systemd has connected; whoever redirected standard error since then wants
 * it there.
 */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat st;
	char found[64];

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	snprintf(found, sizeof found, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);

	return strcmp(stream, found) == 0;
}

int log_connect(const char *path)
{
	struct timeval patience = { .tv_usec = (suseconds_t)(LOG_PATIENCE_NS / NS_PER_US) };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0) {
		close(fd);
		return -errno;
	}
	if (journal_fd >= 0)
		close(journal_fd);
	journal_fd = fd;
	journal_path = path;

	return 0;
}

void log_open(const char *program, bool verbose)
{
	if (journal_fd >= 0)
		close(TAKE_FD(journal_fd));
	program_name = program;
	verbose_lines = verbose;
	may_block = false;
	least_priority = LOG_DEBUG;
	atomic_store(&stalled, false);
	if (stderr_is_journal())
		log_connect(JOURNAL_SOCKET); /* without a socket standard error is as good, but for the fields */
}

void log_may_block(void)
{
	may_block = true;
}

void log_only(int priority)
{
	least_priority = priority;
}

uint64_t log_lost(void)
{
	return atomic_load(&lost_ever);
}

/* ---- the journal ---- */

/* MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, and those of struct log_about. */
#define FIELDS_MAX 15
#define FIELD_PARTS 5

/* An entry in pieces, those that exist nowhere else with it: 1.8 KiB. */
struct entry {
	struct iovec parts[FIELDS_MAX * FIELD_PARTS];
	size_t count;
	uint64_t sizes[FIELDS_MAX];
	size_t size_count;
	char numbers[8][32];
	size_t number_count;
};

static void put(struct entry *entry, const void *data, size_t len)
{
	/* sendmsg(2) does not write to it. */
	entry->parts[entry->count++] = (struct iovec){ (void *)(uintptr_t)data, len };
}

static void put_value(struct entry *entry, const char *name, const char *value, size_t len)
{
	put(entry, name, strlen(name));
	if (memchr(value, '\n', len)) {
		uint64_t *size = &entry->sizes[entry->size_count++];

		*size = htole64(len);
		put(entry, "\n", 1);
		put(entry, size, sizeof *size);
	} else {
		put(entry, "=", 1);
	}
	put(entry, value, len);
	put(entry, "\n", 1);
}

static void put_text(struct entry *entry, const char *name, const char *value)
{
	if (value)
		put_value(entry, name, value, strnlen(value, VALUE_MAX));
}

static void put_number(struct entry *entry, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void put_number(struct entry *entry, const char *name, const char *format, ...)
{
	char *text = entry->numbers[entry->number_count++];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof entry->numbers[0], format, arguments);
	va_end(arguments);
	put_text(entry, name, text);
}

static void put_about(struct entry *entry, const struct log_about *about)
{
	if (about->message != MESSAGE_NONE)
		put_text(entry, "MESSAGE_ID", message_id(about->message));
	put_text(entry, "SPIKEWATCH_STATE", about->state);
	put_text(entry, "SPIKEWATCH_RULE", about->rule);
	put_text(entry, "SPIKEWATCH_TARGET", about->target);
	put_text(entry, "SPIKEWATCH_INCIDENT", about->incident);
	put_text(entry, "SPIKEWATCH_METRIC", about->metric);
	put_text(entry, "SPIKEWATCH_THREAD", about->thread);
	if (about->value)
		put_number(entry, "SPIKEWATCH_VALUE", "%.6g", *about->value);
	if (about->capture_rate)
		put_number(entry, "CAPTURE_RATE", "%.4f", *about->capture_rate);
	if (about->count)
		put_number(entry, "SPIKEWATCH_COUNT", "%llu", (unsigned long long)about->count);
	if (about->lasted_ns)
		put_number(entry, "SPIKEWATCH_LASTED_USEC", "%llu", (unsigned long long)about->lasted_ns / NS_PER_US);
	if (about->error)
		put_number(entry, "ERRNO", "%d", abs(about->error));
}

static int send_datagram(struct entry *entry)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct msghdr header = {
		.msg_name = &address,
		.msg_namelen = sizeof address,
		.msg_iov = entry->parts,
		.msg_iovlen = entry->count,
	};
	int flags = MSG_NOSIGNAL | (atomic_load(&stalled) ? MSG_DONTWAIT : 0);
	ssize_t sent;

	snprintf(address.sun_path, sizeof address.sun_path, "%s", journal_path);
	do
		sent = sendmsg(journal_fd, &header, flags);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return -errno;

	return 0;
}

/* 0; -EAGAIN: no room; -errno: there is no journal to be reached. */
static int send_to_journal(int priority, const struct log_about *about, const char *message)
{
	struct entry entry = { .count = 0 };
	int r;

	put_value(&entry, "MESSAGE", message, strlen(message));
	put_number(&entry, "PRIORITY", "%d", priority);
	put_text(&entry, "SYSLOG_IDENTIFIER", program_name);
	if (about)
		put_about(&entry, about);

	r = send_datagram(&entry);

	return r == -ENOBUFS || r == -ENOMEM || r == -EWOULDBLOCK ? -EAGAIN : r;
}

/* ---- standard error ---- */

static bool has_room(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLOUT };
	int patience_ms = may_block ? -1 : atomic_load(&stalled) ? 0 : (int)(LOG_PATIENCE_NS / NS_PER_MS);
	int r;

	do
		r = poll(&ready, 1, patience_ms);
	while (r < 0 && errno == EINTR && may_block);

	return r > 0 && (ready.revents & POLLOUT);
}

/* What begins a line: for systemd, which splits what it reads into entries, or for people. */
static void put_prefix(struct entry *entry, int priority)
{
	if (journal_fd >= 0) {
		char *number = entry->numbers[entry->number_count++];

		snprintf(number, sizeof entry->numbers[0], "<%d>", priority);
		put(entry, number, strlen(number));
		return;
	}

	const char *severity = priority <= LOG_ERR ? "error: " : priority == LOG_WARNING ? "warning: " : "";

	put(entry, program_name, strlen(program_name));
	put(entry, ": ", 2);
	put(entry, severity, strlen(severity));
}

static int send_to_stderr(int priority, const char *message)
{
	struct entry entry = { .count = 0 };

	put_prefix(&entry, priority);
	put(&entry, message, strlen(message));
	put(&entry, "\n", 1);
	if (!has_room(STDERR_FILENO))
		return -EAGAIN;

	return writev(STDERR_FILENO, entry.parts, (int)entry.count) < 0 ? -errno : 0;
}

/* ---- lines ---- */

static bool deliver(int priority, const struct log_about *about, const char *message)
{
	int r = journal_fd >= 0 ? send_to_journal(priority, about, message) : -ENOTCONN;

	if (r < 0 && r != -EAGAIN)
		r = send_to_stderr(priority, message);
	atomic_store(&stalled, r == -EAGAIN);

	return r == 0;
}

static void say_lost(void)
{
	uint64_t lost = atomic_exchange(&lost_unsaid, 0);
	struct log_about about = { .message = MESSAGE_ENTRIES_LOST, .count = lost };
	char message[64];

	if (lost == 0)
		return;

	snprintf(message, sizeof message, "%llu entries were lost: nobody took them", (unsigned long long)lost);
	if (!deliver(LOG_WARNING, &about, message))
		atomic_fetch_add(&lost_unsaid, lost);
}

/* Ends a line that was cut: at a character, and visibly. */
static void mark_cut(char line[static LOG_LINE_MAX])
{
	size_t len = LOG_LINE_MAX - sizeof "...";

	while (len > 0 && ((unsigned char)line[len] & 0xc0) == 0x80)
		len--;
	memcpy(line + len, "...", sizeof "...");
}

/*
 * The line itself if it can be shown as it is; else its escaped form, in buf. Only then are
 * backslashes escaped too: names of units are full of them.
 */
static const char *make_printable(const char *line, char *buf, size_t cap)
{
	size_t len = strlen(line), backslashes = 0;

	for (size_t i = 0; i < len; i++)
		backslashes += line[i] == '\\';

	return text_escape(buf, cap, line, len) == len + 3 * backslashes ? line : buf;
}

__attribute__((format(printf, 3, 0))) static void send_line(int priority, const struct log_about *about,
							    const char *format, va_list arguments)
{
	char line[LOG_LINE_MAX], escaped[PRINTABLE_LINE_MAX];
	int saved = errno;

	if (priority > least_priority || (priority == LOG_DEBUG && !verbose_lines))
		return;

	if (vsnprintf(line, sizeof line, format, arguments) >= (int)sizeof line)
		mark_cut(line);
	say_lost();
	if (!deliver(priority, about, make_printable(line, escaped, sizeof escaped))) {
		atomic_fetch_add(&lost_unsaid, 1);
		atomic_fetch_add(&lost_ever, 1);
	}
	errno = saved;
}

void log_line(int priority, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	send_line(priority, NULL, format, arguments);
	va_end(arguments);
}

void log_about(int priority, const struct log_about *about, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	send_line(priority, about, format, arguments);
	va_end(arguments);
}
