/*
 * log.h: the daemon's log: entries of the journal when standard error is connected to it, else the
 * same lines on standard error.
 *
 * Log once, where a decision is made. Any thread may log, except the sampler's: that one counts,
 * and the main thread logs the counts. Nothing is allocated.
 *
 * A slow reader does not block a thread: between log_start and log_stop entries are queued, in 256
 * KiB, for a thread that writes them. Otherwise an entry waits at most 20 ms for room in the
 * journal's socket (or in the pipe behind standard error), and after one that timed out no other
 * waits until one gets through. An entry without room is lost and counted; the first one that gets
 * through afterwards is preceded by MESSAGE_ENTRIES_LOST with the count.
 *
 * Text that another user controls (the name of a process) cannot forge lines or fields: on standard
 * error and in MESSAGE control characters and invalid UTF-8 are written as \xNN; other fields hold
 * the bytes as they are, framed by their length where needed.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_LOG_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

/*
 * The kinds of entries in the journal, each with the id under which systemd/spikewatch.catalog
 * explains it (journalctl -x). An id never changes and is never reused: alerting rules refer to it.
 *
 * A condition has one kind: SPIKEWATCH_STATE says whether it begins, changes or ends.
 */

// clang-format off
#define MESSAGES(X) \
	X(STARTED, "e1e9b356e26849b6a86582a81bcff574")           /* the service records and judges */ \
	X(STOPPED, "eaa4d2444390444a9d0eb84c862ee5f2")           /* clean stop */ \
	X(RELOADED, "35f7cf240a034610be034b2d2790718a")          /* a new configuration is in force */ \
	X(RELOAD_REFUSED, "cf0acca8884f43768b789ea14726a22c")    /* a bad one is not; the old one stays */ \
	X(TARGET_FOUND, "06eae8e084904cae9439bbb2aeac7c82")      /* a process or cgroup is watched from now on */ \
	X(TARGET_GONE, "cac62ec6aba74f1ab4a13ece6e0f757c")       /* it vanished, or is not watched any more */ \
	X(RULE_FIRED, "c39b89b6163b43c49ba413fae874e617") \
	X(INCIDENT_SEALED, "1ffa0fd5c19a4fc8a7bad1e7d5dbd499") \
	X(INCIDENT_FAILED, "8f01e14cfce948d4ba08ad751ccc551e")   /* could not be opened, or written */ \
	X(STORM, "9d4c1b6a7f0e4a35b8f2d61c3e7a90d4")             /* firings that opened no incident, counted */ \
	X(NOTIFY_FAILED, "5b0c3f2e9d6a4c7e8a1f04d2b7e6c913")      /* no word of an incident got through ("notify") */ \
	X(INCIDENT_REMOVED, "666266d753484601bf9d1f57aee58579")  /* made room, by the limits of retention */ \
	X(CAPTURE_RATE_LOW, "5c50487ead97441e8c2de23c79f4b594") \
	X(SLEEP_ERROR_HIGH, "89ebecb51f3d4461a7abe3490aa864f3") \
	X(COLLECTION_SLOW, "07e75758108a4549914f7a4c929362c4") \
	X(BACKOFF, "bb47a76b87714fa1a68399177e4b5ad5")           /* a blocking reader holds the sampler up */ \
	X(BUDGET_EXCEEDED, "09f1b420623544f58d8bc6578fb78630")   /* sampling more slowly than configured */ \
	X(PRIORITY_WITHDRAWN, "4a2eb83361f4433db90ce0d0ba877993") /* of a sampler: real-time, for a while */ \
	X(RING_RECOVERED, "198b8266c4dc475389fd593effdccc8c")    /* of a daemon that was killed */ \
	X(RULES_BEHIND, "ea965d5d40444055a7198ca0046b343d")      /* the rules were overtaken by the sampler */ \
	X(TARGETS_UNWATCHED, "045457b1d9b34131b5f081e86642cda7") /* some that match cannot be watched */ \
	X(DESCRIPTORS_SHORT, "4205f0d1e50e4a3297c315aeaafa3297") /* some processes have no descriptors of their own */ \
	X(FEATURE_OFF, "edbd290e20614bb9a01a216a70f13f76")       /* for a capability, a limit or the kernel */ \
	X(DISK_SHORT, "6a89ccea70c446c5810b17dff27b91d3")        /* no room for incidents, or no directory */ \
	X(STATE_NOT_SAVED, "8ad58070e9e4403aa13e9b7ee68fd9c2")   /* cooldowns will not survive a restart */ \
	X(CLOCK_STEPPED, "05af3e6a12fe44a884135ed41d720968") \
	X(SUSPENDED, "fd39049d8c9c4e5db27f2c62893d92cc")         /* the machine slept */ \
	X(THREAD_STUCK, "01e5e25c0cef436fb85934a314888efb")      /* a thread gives no sign of life */ \
	X(ENTRIES_LOST, "92f70f0630b748cb9e6e22811cf4e6d4")      /* the journal did not take some */ \
	X(UNIT_MISSING, "3c151f8177fd4bd5b09ad8447be79ca8")      /* one that is selected by its name does not exist */
// clang-format on

enum message {
	MESSAGE_NONE,
#define X(name, id) MESSAGE_##name,
	MESSAGES(X)
#undef X
		MESSAGE_KINDS
};

/* The id as 32 hexadecimal digits; "" of MESSAGE_NONE. Static text. */
static inline const char *message_id(enum message message)
{
	static const char *const ids[MESSAGE_KINDS] = { [MESSAGE_NONE] = "",
#define X(name, id) [MESSAGE_##name] = (id),
							MESSAGES(X)
#undef X
	};

	return ids[message];
}

/* A longer line is cut between two characters and ends in "...". */
#define LOG_LINE_MAX 2048

/* Zero is the default. */
struct log_options {
	bool verbose;        /* LOG_DEBUG lines too */
	bool may_block;      /* for a command: a line on standard error waits for room as long as it takes */
	const char *journal; /* entries go to this socket; must stay valid. NULL: to the journal if stderr is it */
};

/*
 * program: what lines on standard error begin with, and the SYSLOG_IDENTIFIER; must stay valid.
 * options: NULL for the default. Called before any thread is started.
 */
void log_open(const char *program, const struct log_options *options);

/*
 * For a command with output of its own: lines less serious than priority are dropped. After
 * log_open.
 */
void log_only(int priority);

/* From now on no thread waits for a reader, or for the disk behind standard error. 0; -errno: each still does. */
int log_start(void);

/*
 * Waits at most patience_ns until all that is queued was written. False: the reader did not take it, or
 * blocks; this and all later entries are lost. After log_start, or without effect.
 */
bool log_stop(uint64_t patience_ns);

/* Entries lost so far, ever. Any thread. */
uint64_t log_lost(void);

/*
 * One line, printf-like, without newline. priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO,
 * LOG_DEBUG. Any thread but the sampler's.
 */
void log_line(int priority, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fields of the journal entry; those that are zero are left out. */
struct log_about {
	enum message message;       /* MESSAGE_ID */
	const char *state;          /* SPIKEWATCH_STATE: "begin", "change", "end" of a condition */
	const char *rule;           /* SPIKEWATCH_RULE */
	const char *target;         /* SPIKEWATCH_TARGET: its name */
	const char *incident;       /* SPIKEWATCH_INCIDENT: name of the directory */
	const char *metric;         /* SPIKEWATCH_METRIC: its name in the configuration */
	const char *thread;         /* SPIKEWATCH_THREAD: which of the daemon's */
	const double *value;        /* SPIKEWATCH_VALUE: of the metric, in its unit; of a condition: as in its text */
	const double *capture_rate; /* CAPTURE_RATE: 0 to 1 */
	uint64_t count;             /* SPIKEWATCH_COUNT: how many events this entry stands for, if more than one */
	uint64_t lasted_ns;         /* SPIKEWATCH_LASTED_USEC: how long the condition that ends has lasted */
	int error;                  /* ERRNO: a number from errno.h, either sign */
};

/* The same with these fields beside the message. */
void log_about(int priority, const struct log_about *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
