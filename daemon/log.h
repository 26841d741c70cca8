/*
 * log.h: what the daemon says: to the journal when it runs under systemd, else to standard error, the same lines.
 *
 * Log once, where a decision is made. Never from the sampler's thread: that one counts, and others speak for it.
 *
 * Nobody is ever held up by whoever reads: an entry waits LOG_PATIENCE_NS at most for room in the journal's socket (or in the pipe behind
 * standard error), and after one that waited in vain none waits until one gets through. What finds no room is lost and
 * counted, and the first entry that gets through afterwards is preceded by one (MESSAGE_ENTRIES_LOST) that says how many. Entries come
 * from any thread but the sampler's, each whole; nothing is allocated.
 *
 * What a stranger chose (the name of a process) cannot forge lines or fields: on standard error and in MESSAGE control characters and bytes
 * that are no UTF-8 are written as \xNN; the other fields hold the bytes as they are, framed by their length where they need it.
 */
#ifndef SPIKEWATCH_LOG_H
#define SPIKEWATCH_LOG_H

#include "clock.h"
#include "messages.h"

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

/* A fifth of what the main thread may sleep over without being late by much; a journal that is merely busy makes room within this. */
#define LOG_PATIENCE_NS (20 * NS_PER_MS)

/* A longer line is cut, at a character, and ends in "...". */
#define LOG_LINE_MAX 2048

/*
 * program: what lines on standard error begin with, and the SYSLOG_IDENTIFIER; must live on. verbose: LOG_DEBUG lines too. Called once,
 * before any thread is started.
 */
void log_open(const char *program, bool verbose);

/* For a command, whose reader may set the pace: lines on standard error wait for as long as it takes. Right after log_open. */
void log_may_block(void);

/* For a command that speaks for itself: nothing less serious than priority is said. Right after log_open. */
void log_only(int priority);

/* Entries go to this socket of a journal from now on, whatever standard error is. Right after log_open; path must live on. 0 or -errno. */
int log_connect(const char *path);

/* Entries lost so far, ever. Any thread. */
uint64_t log_lost(void);

/* One line, printf-like, without newline. priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG. Any thread but the sampler's. */
void log_line(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What an entry is about, as fields of the journal that it can be found by; what is zero is left out. */
struct log_about {
	enum message message; /* MESSAGE_ID */
	const char *state;    /* SPIKEWATCH_STATE: "begin", "change", "end" of a condition */
	const char *rule;     /* SPIKEWATCH_RULE */
	const char *target;   /* SPIKEWATCH_TARGET: its name */
	const char *incident; /* SPIKEWATCH_INCIDENT: name of the directory */
	const char *metric;   /* SPIKEWATCH_METRIC: its name in the configuration */
	const char *thread;   /* SPIKEWATCH_THREAD: which of the daemon's */
	const double
		*value; /* SPIKEWATCH_VALUE: of the metric, in its unit; of a condition: what its text says of it */
	const double *capture_rate; /* CAPTURE_RATE: 0 to 1 */
	uint64_t count;             /* SPIKEWATCH_COUNT: how many this entry speaks for, if that is more than itself */
	uint64_t lasted_ns;         /* SPIKEWATCH_LASTED_USEC: how long the condition that ends has lasted */
	int error;                  /* ERRNO: a number from errno.h, either sign */
};

/* The same with these fields beside the message. */
void log_about(int priority, const struct log_about *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
