/*
 * trapplan.h: what `spikewatch trap` was asked for, as the configuration that a daemon would be given for it: one target, a rule for
 * each threshold, short times.
 */
#ifndef SPIKEWATCH_TRAPPLAN_H
#define SPIKEWATCH_TRAPPLAN_H

#include "clock.h"
#include "config.h"
#include "targetname.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAPPLAN_TEXT_MAX 320

/* How long an incident goes on, unless somebody wants it otherwise: the height of the spike, and perhaps its end. */
#define TRAPPLAN_AFTER_NS (3 * NS_PER_S)

/* Zeroed but for after_ns is a plan of which nothing is said. Texts are the caller's and must outlive the configuration. */
struct trapplan {
	const char *comm;   /* all processes of this name, those that come later too; NULL: trapplan_watch says which */
	const char *cpu;    /* "80%", of a core; NULL: not asked for */
	const char *stacks; /* a mode of the configuration; NULL: its default */
	uint64_t memory_bytes; /* 0: not asked for */
	uint64_t for_ns;       /* how long it has to last; 0: a second for CPU, no time for memory */
	uint64_t after_ns;
	bool tree; /* with all that they start, as one sum */
	/* What trapplan_watch and trapplan_resolve make of it. */
	int32_t pid;               /* 0: comm */
	char name[TARGETNAME_MAX]; /* of the target entry */
	double cpu_percent;        /* 0: no such rule */
	bool growth;               /* a rule for memory that grows: nothing was asked for */
};

/* It is about this process, which runs a program of this name, or path. */
void trapplan_watch(struct trapplan *plan, int32_t pid, const char *program);

/*
 * Checks what was asked for, and fills in defaults. 0; -EINVAL: error (cap bytes, terminated) says which option is wrong and what was expected.
 */
int trapplan_resolve(struct trapplan *plan, char *error, size_t cap);

/* Of a resolved plan, which must outlive it. 0; -ENOMEM; -EINVAL as above. *ret is for config_free. */
int trapplan_config(const struct trapplan *plan, struct config **ret, char *error, size_t cap);

/* "more than 80% of a core for 1 s, or more than 512 MiB of memory": what a resolved plan waits for. Into buf, which is returned. */
const char *trapplan_text(const struct trapplan *plan, char *buf, size_t cap);

#endif
