/*
 * log.c: journal or standard error.
 *
 * systemd says through $JOURNAL_STREAM that standard error is the journal; then entries go there directly, with their
 * priority and fields. Everywhere else (a terminal, a pipe, a container) a line goes to standard error in one write, so
 * that lines of several threads do not mix.
 */
#include "log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <systemd/sd-journal.h>

#define LINE_MAX_BYTES 2048

static const char *program_name = "spikewatchd";
static bool to_journal;
static bool verbose_lines;

/* "device:inode" of what systemd has connected; whoever redirected standard error since then wants it there. */
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

void log_open(const char *program, bool verbose)
{
	program_name = program;
	to_journal = stderr_is_journal();
	verbose_lines = verbose;
}

#define FIELDS_MAX 10

/* The fields of one entry, each its own text. */
struct entry {
	char text[FIELDS_MAX][LINE_MAX_BYTES + 16];
	struct iovec fields[FIELDS_MAX];
	int count;
};

static void add_field(struct entry *entry, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_field(struct entry *entry, const char *format, ...)
{
	char *text = entry->text[entry->count];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof entry->text[0], format, arguments);
	va_end(arguments);
	entry->fields[entry->count++] = (struct iovec){ text, strlen(text) };
}

static void add_about(struct entry *entry, const struct log_about *about)
{
	if (about->message != MESSAGE_NONE)
		add_field(entry, "MESSAGE_ID=%s", message_id(about->message));
	if (about->state)
		add_field(entry, "SPIKEWATCH_STATE=%s", about->state);
	if (about->rule)
		add_field(entry, "SPIKEWATCH_RULE=%s", about->rule);
	if (about->target)
		add_field(entry, "SPIKEWATCH_TARGET=%s", about->target);
	if (about->incident)
		add_field(entry, "SPIKEWATCH_INCIDENT=%s", about->incident);
	if (about->capture_rate)
		add_field(entry, "CAPTURE_RATE=%.4f", *about->capture_rate);
	if (about->count)
		add_field(entry, "SPIKEWATCH_COUNT=%llu", (unsigned long long)about->count);
	if (about->error)
		add_field(entry, "ERRNO=%d", abs(about->error));
}

static void send_to_journal(int priority, const struct log_about *about, const char *message)
{
	struct entry entry = { .count = 0 };

	add_field(&entry, "PRIORITY=%d", priority);
	add_field(&entry, "MESSAGE=%s", message);
	if (about)
		add_about(&entry, about);

	sd_journal_sendv(entry.fields, entry.count);
}

static void send_to_stderr(int priority, const char *message)
{
	char line[LINE_MAX_BYTES + 32];
	const char *prefix = priority <= LOG_ERR ? "error: " : priority == LOG_WARNING ? "warning: " : "";
	int len = snprintf(line, sizeof line, "%s: %s%s\n", program_name, prefix, message);

	if (len >= (int)sizeof line)
		len = (int)sizeof line - 1;
	if (write(STDERR_FILENO, line, (size_t)len) < 0)
		return; /* nowhere left to complain */
}

static void send_line(int priority, const struct log_about *about, const char *format, va_list arguments)
{
	char message[LINE_MAX_BYTES];

	if (priority == LOG_DEBUG && !verbose_lines)
		return;

	vsnprintf(message, sizeof message, format, arguments);
	if (to_journal)
		send_to_journal(priority, about, message);
	else
		send_to_stderr(priority, message);
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
