/*
 * log.c: entries to the journal's socket, or lines to standard error.
 *
 * If $JOURNAL_STREAM says that standard error is the journal, entries go to the journal's socket,
 * with their priority and fields. Else (a terminal, a pipe, a container) a line goes to standard
 * error in one write(2), so that lines of several threads do not mix. If the socket cannot be
 * reached (another root directory) lines go to standard error too, with the "<priority>" prefix
 * that systemd understands.
 *
 * The socket is written in the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), not
 * through sd_journal_sendv(3): that sends on a blocking socket of its own and would block the main
 * thread, which evaluates rules, for as long as the journal is stopped or behind. An entry is one
 * datagram, gathered by sendmsg(2):
 *
 *	NAME=value\n                                         a value without newline
 *	NAME\n<its length, 64 bits, little endian>value\n      any other
 *
 * The timeout is the socket's (SO_SNDTIMEO): poll(2) does not see the receiver's queue, which is
 * what fills up.
 *
 * The daemon's threads do not even wait for that: between log_start and log_stop entries go through a
 * queue of bytes to a thread that waits for the reader as long as it takes. What finds the queue full
 * is lost and counted, as is an entry that timed out without the thread. A thread that is blocked in
 * the kernel when it is to end is left behind; what it uses is static.
 */
#include "daemon/engine/base/log.h"

#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"
#include "lib/base/text.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* A fifth of the delay that the main thread can tolerate; a busy journal makes room within this. */
#define LOG_PATIENCE_NS (20 * NS_PER_MS)

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Of a field other than MESSAGE: keeps an entry far below the limit of a datagram. */
#define VALUE_MAX 1024
/* With prefix and newline less than PIPE_BUF, which a pipe takes in one piece. */
#define PRINTABLE_LINE_MAX 3584

static const char *program_name = "spikewatchd";
static const char *journal_path;
static int journal_fd = -1; /* -1: standard error */
static bool verbose_lines, may_block;
static int least_priority = LOG_DEBUG;

static atomic_bool stalled; /* the last entry timed out */
static atomic_uint_fast64_t lost_unreported, lost_ever;

/* ---- where to ---- */

/* "device:inode" of the stream that systemd connected: another one once stderr is redirected. */
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

/* Without the socket of the journal, standard error takes the same lines, but not their fields. */
static void connect_journal(const char *path)
{
	struct timeval patience = { .tv_usec = (suseconds_t)(LOG_PATIENCE_NS / NS_PER_US) };
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0)
		return;
	journal_fd = TAKE_FD(fd);
	journal_path = path;
}

void log_open(const char *program, const struct log_options *options)
{
	static const struct log_options none;

	if (!options)
		options = &none;
	if (journal_fd >= 0)
		close(TAKE_FD(journal_fd));
	program_name = program;
	verbose_lines = options->verbose;
	may_block = options->may_block;
	least_priority = LOG_DEBUG;
	atomic_store(&stalled, false);
	if (options->journal)
		connect_journal(options->journal);
	else if (stderr_is_journal())
		connect_journal(JOURNAL_SOCKET);
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

/* An entry in pieces, with room for those that are made for it: 1.8 KiB. */
struct entry {
	struct iovec parts[FIELDS_MAX * FIELD_PARTS];
	size_t count;
	uint64_t sizes[FIELDS_MAX];
	size_t size_count;
	char numbers[8][32];
	size_t number_count;
};

static void put_bytes(struct entry *entry, const void *data, size_t len)
{
	/* sendmsg(2) does not write to it. */
	entry->parts[entry->count++] = (struct iovec){ (void *)(uintptr_t)data, len };
}

static void put_value(struct entry *entry, const char *name, const char *value, size_t len)
{
	put_bytes(entry, name, strlen(name));
	if (memchr(value, '\n', len)) {
		uint64_t *size = &entry->sizes[entry->size_count++];

		*size = htole64(len);
		put_bytes(entry, "\n", 1);
		put_bytes(entry, size, sizeof *size);
	} else {
		put_bytes(entry, "=", 1);
	}
	put_bytes(entry, value, len);
	put_bytes(entry, "\n", 1);
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

static int send_datagram(const struct iovec *parts, size_t count)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct msghdr header = {
		.msg_name = &address,
		.msg_namelen = sizeof address,
		.msg_iov = (struct iovec *)(uintptr_t)parts,
		.msg_iovlen = count,
	};
	int flags = MSG_NOSIGNAL | (atomic_load(&stalled) ? MSG_DONTWAIT : 0);
	ssize_t sent;

	snprintf(address.sun_path, sizeof address.sun_path, "%s", journal_path);
	do
		sent = sendmsg(journal_fd, &header, flags);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == ENOBUFS || errno == ENOMEM || errno == EWOULDBLOCK ? -EAGAIN : -errno;

	return 0;
}

static void put_entry(struct entry *entry, int priority, const struct log_about *about, const char *message)
{
	put_value(entry, "MESSAGE", message, strlen(message));
	put_number(entry, "PRIORITY", "%d", priority);
	put_text(entry, "SYSLOG_IDENTIFIER", program_name);
	if (about)
		put_about(entry, about);
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

/* Of a line: "<priority>" for systemd, which makes entries of lines, or program and severity. */
static void put_prefix(struct entry *entry, int priority)
{
	if (journal_fd >= 0) {
		char *number = entry->numbers[entry->number_count++];

		snprintf(number, sizeof entry->numbers[0], "<%d>", priority);
		put_bytes(entry, number, strlen(number));
		return;
	}

	const char *severity = priority <= LOG_ERR ? "error: " : priority == LOG_WARNING ? "warning: " : "";

	put_bytes(entry, program_name, strlen(program_name));
	put_bytes(entry, ": ", 2);
	put_bytes(entry, severity, strlen(severity));
}

static int send_to_stderr(int priority, const char *message)
{
	struct entry entry = { .count = 0 };

	put_prefix(&entry, priority);
	put_bytes(&entry, message, strlen(message));
	put_bytes(&entry, "\n", 1);
	if (!has_room(STDERR_FILENO))
		return -EAGAIN;

	return writev(STDERR_FILENO, entry.parts, (int)entry.count) < 0 ? -errno : 0;
}

/* 0; -EAGAIN: no room, or there was none for the last one; -errno. */
static int send_parts(int priority, const struct iovec *parts, size_t count, const char *message)
{
	int r = journal_fd >= 0 ? send_datagram(parts, count) : -ENOTCONN;

	if (r < 0 && r != -EAGAIN)
		r = send_to_stderr(priority, message);

	return r;
}

/* ---- the queue and the thread that empties it ---- */

/* A few seconds of a storm: a line and its fields take 300 bytes as a rule, 12 KiB at most. */
#define QUEUE_BYTES ((size_t)256 << 10)
#define QUEUED_MAX ((size_t)16 << 10)

/* Without a journal: only its message. */
struct queued {
	size_t len;
	int priority;
	char message[PRINTABLE_LINE_MAX];
	char entry[QUEUED_MAX]; /* len bytes, for the journal */
};

enum writer_state {
	WRITER_NONE,
	WRITER_RUNS,
	WRITER_ENDS, /* when the queue is empty */
	WRITER_LEFT, /* blocked in the kernel: nothing is written any more */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	pid_t pid;         /* whose thread it is: a process that was forked from it has none */
	_Atomic int state; /* enum writer_state; changed under the lock */
	char bytes[QUEUE_BYTES];
	size_t first, used;
} writer = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* The lock is held. */
static void queue_put(const void *data, size_t len)
{
	size_t at = (writer.first + writer.used) % QUEUE_BYTES;
	size_t straight = len < QUEUE_BYTES - at ? len : QUEUE_BYTES - at;

	memcpy(writer.bytes + at, data, straight);
	memcpy(writer.bytes, (const char *)data + straight, len - straight);
	writer.used += len;
}

/* The lock is held. */
static void queue_get(void *data, size_t len)
{
	size_t straight = len < QUEUE_BYTES - writer.first ? len : QUEUE_BYTES - writer.first;

	memcpy(data, writer.bytes + writer.first, straight);
	memcpy((char *)data + straight, writer.bytes, len - straight);
	writer.first = (writer.first + len) % QUEUE_BYTES;
	writer.used -= len;
}

static size_t len_of(const struct entry *entry)
{
	size_t len = 0;

	for (size_t i = 0; i < entry->count; i++)
		len += entry->parts[i].iov_len;

	return len;
}

/* False: there is no room. */
static bool enqueue(int priority, const struct entry *entry, const char *message)
{
	size_t sizes[2] = { strlen(message), len_of(entry) };
	bool fits;

	pthread_mutex_lock(&writer.lock);
	fits = sizes[1] <= QUEUED_MAX &&
	       sizeof sizes + sizeof priority + sizes[0] + sizes[1] <= QUEUE_BYTES - writer.used;
	if (fits) {
		queue_put(sizes, sizeof sizes);
		queue_put(&priority, sizeof priority);
		queue_put(message, sizes[0]);
		for (size_t i = 0; i < entry->count; i++)
			queue_put(entry->parts[i].iov_base, entry->parts[i].iov_len);
		pthread_cond_broadcast(&writer.changed);
	}
	pthread_mutex_unlock(&writer.lock);

	return fits;
}

/* False: the queue is empty, and is to stay so. */
static bool dequeue(struct queued *ret)
{
	size_t sizes[2];
	bool found;

	pthread_mutex_lock(&writer.lock);
	while (writer.used == 0 && writer.state == WRITER_RUNS)
		pthread_cond_wait(&writer.changed, &writer.lock);
	found = writer.used > 0;
	if (found) {
		queue_get(sizes, sizeof sizes);
		queue_get(&ret->priority, sizeof ret->priority);
		queue_get(ret->message, sizes[0]);
		ret->message[sizes[0]] = '\0';
		queue_get(ret->entry, sizes[1]);
		ret->len = sizes[1];
	}
	pthread_mutex_unlock(&writer.lock);

	return found;
}

/* Waits for room as long as it takes, or until nothing waits for the thread any more. */
static void write_queued(const struct queued *line)
{
	struct iovec whole = { (void *)(uintptr_t)line->entry, line->len };
	mono_t since = { 0 };
	int r;

	while ((r = send_parts(line->priority, &whole, 1, line->message)) == -EAGAIN && writer.state != WRITER_LEFT) {
		struct clock clock = real_clock();
		mono_t now = clock_mono(&clock);

		/* A full receive buffer is waited for in the call, lack of memory in the kernel is not. */
		if (since.ns && mono_diff(now, since) < (int64_t)LOG_PATIENCE_NS / 2)
			real_clock_sleep_until(mono_add(now, LOG_PATIENCE_NS));
		since = now;
	}
	if (r < 0) {
		atomic_fetch_add(&lost_unreported, 1);
		atomic_fetch_add(&lost_ever, 1);
	}
}

static void *run_writer(void *ctx)
{
	static struct queued line;

	(void)ctx;
	prctl(PR_SET_NAME, "log");
	while (dequeue(&line))
		write_queued(&line);

	return NULL;
}

int log_start(void)
{
	int r;

	writer.pid = getpid();
	writer.state = WRITER_RUNS;
	r = thread_start(&writer.thread, run_writer, NULL);
	if (r < 0)
		writer.state = WRITER_NONE;

	return r;
}

/* ---- lines ---- */

/* False: it is lost. */
static bool deliver(int priority, const struct log_about *about, const char *message)
{
	struct entry entry = { .count = 0 };
	int r;

	if (journal_fd >= 0)
		put_entry(&entry, priority, about, message);
	if (writer.state != WRITER_NONE && writer.pid == getpid())
		return writer.state != WRITER_LEFT && enqueue(priority, &entry, message);

	r = send_parts(priority, entry.parts, entry.count, message);
	atomic_store(&stalled, r == -EAGAIN);

	return r == 0;
}

static void report_lost(void)
{
	uint64_t lost = atomic_exchange(&lost_unreported, 0);
	struct log_about about = { .message = MESSAGE_ENTRIES_LOST, .count = lost };
	char message[64];

	if (lost == 0)
		return;

	snprintf(message, sizeof message, "%llu entries were lost: the reader was too slow", (unsigned long long)lost);
	if (!deliver(LOG_WARNING, &about, message))
		atomic_fetch_add(&lost_unreported, lost);
}

bool log_stop(uint64_t patience_ns)
{
	if (writer.state != WRITER_RUNS)
		return writer.state == WRITER_NONE;

	pthread_mutex_lock(&writer.lock);
	writer.state = WRITER_ENDS;
	pthread_cond_broadcast(&writer.changed);
	pthread_mutex_unlock(&writer.lock);
	if (thread_join_within(writer.thread, patience_ns)) {
		writer.state = WRITER_NONE;
		report_lost();
		return true;
	}

	pthread_mutex_lock(&writer.lock);
	writer.state = WRITER_LEFT;
	pthread_mutex_unlock(&writer.lock);
	pthread_detach(writer.thread);

	return false;
}

/* Ends a line that was cut with "...", between two characters. */
static void mark_cut(char line[static LOG_LINE_MAX])
{
	size_t len = LOG_LINE_MAX - sizeof "...";

	while (len > 0 && ((unsigned char)line[len] & 0xc0) == 0x80)
		len--;
	memcpy(line + len, "...", sizeof "...");
}

/* The line, or its escaped form in buf. Only that escapes backslashes: unit names have many. */
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
	report_lost();
	if (!deliver(priority, about, make_printable(line, escaped, sizeof escaped))) {
		atomic_fetch_add(&lost_unreported, 1);
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
