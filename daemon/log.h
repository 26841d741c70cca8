/*
 * log.h: what the daemon says: to the journal when it runs under systemd, else to standard error, the same lines.
 *
 * Log once, where a decision is made. Never from the sampler's thread: that one counts, and others speak for it.
 */
#ifndef SPIKEWATCH_LOG_H
#define SPIKEWATCH_LOG_H

#include <stdbool.h>
#include <syslog.h>

/* program: what lines on standard error begin with. verbose: LOG_DEBUG lines too. Called once, before any thread is started. */
void log_open(const char *program, bool verbose);

/* One line, printf-like, without newline. priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG. Any thread but the sampler's. */
void log_line(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with one journal field beside the message: field is "NAME=value" and may be NULL. */
void log_field(int priority, const char *field, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
