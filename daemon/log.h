/*
 * log.h: what the daemon says: to the journal when it runs under systemd, else to standard error, the same lines.
 *
 * Log once, where a decision is made. Never from the sampler's thread: that one counts, and others speak for it.
 */
#ifndef SPIKEWATCH_LOG_H
#define SPIKEWATCH_LOG_H

#include "messages.h"

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

/* program: what lines on standard error begin with. verbose: LOG_DEBUG lines too. Called once, before any thread is started. */
void log_open(const char *program, bool verbose);

/* One line, printf-like, without newline. priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG. Any thread but the sampler's. */
void log_line(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What an entry is about, as fields of the journal that it can be found by; what is zero is left out. */
struct log_about {
	enum message message;       /* MESSAGE_ID */
	const char *state;          /* SPIKEWATCH_STATE: "begin", "change", "end" of a condition */
	const char *rule;           /* SPIKEWATCH_RULE */
	const char *target;         /* SPIKEWATCH_TARGET: its name */
	const char *incident;       /* SPIKEWATCH_INCIDENT: name of the directory */
	const double *capture_rate; /* CAPTURE_RATE: 0 to 1 */
	uint64_t count;             /* SPIKEWATCH_COUNT: how many this entry speaks for, if that is more than itself */
	int error;                  /* ERRNO: a number from errno.h, either sign */
};

/* The same with these fields beside the message. */
void log_about(int priority, const struct log_about *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
