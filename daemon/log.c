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

static void send_to_journal(int priority, const char *field, const char *message)
{
	char priority_field[16], message_field[LINE_MAX_BYTES + 16];
	struct iovec fields[3];
	int count = 2;

	snprintf(priority_field, sizeof priority_field, "PRIORITY=%d", priority);
	snprintf(message_field, sizeof message_field, "MESSAGE=%s", message);
	fields[0] = (struct iovec){ priority_field, strlen(priority_field) };
	fields[1] = (struct iovec){ message_field, strlen(message_field) };
	if (field)
		fields[count++] = (struct iovec){ (char *)(uintptr_t)field, strlen(field) };

	sd_journal_sendv(fields, count);
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

static void send_line(int priority, const char *field, const char *format, va_list arguments)
{
	char message[LINE_MAX_BYTES];

	if (priority == LOG_DEBUG && !verbose_lines)
		return;

	vsnprintf(message, sizeof message, format, arguments);
	if (to_journal)
		send_to_journal(priority, field, message);
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

void log_field(int priority, const char *field, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	send_line(priority, field, format, arguments);
	va_end(arguments);
}
