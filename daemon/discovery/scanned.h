/*
 * scanned.h: a process as a scan of /proc meets it: its stat, and whatever else is asked for, read when it is. Reused from process to
 * process: it holds all the room.
 */
#ifndef SPIKEWATCH_SCANNED_H
#define SPIKEWATCH_SCANNED_H

#include "cgmount.h"
#include "containers.h"
#include "match.h"
#include "outside.h"
#include "procfs.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Text of a command line that is looked at; what a description keeps is far shorter. */
#define SCANNED_CMDLINE_MAX 8192u

struct scanned {
	int procfd;
	const struct cgroup_mounts *mounts;
	struct containers *containers; /* NULL: nobody asks for them */
	struct outside outside;        /* where its files are read */
	mono_t now;
	struct match_facts facts; /* what is known; point into the room below */
	struct procfs_stat stat;
	uint64_t arguments_at; /* where its arguments begin: another place after an execution; 0: we may not know */
	unsigned asked;        /* bits of match_need that were read, or tried */
	struct container container;
	char text[1024], comm[64], exe[4096], cgroup[4096], cmdline[SCANNED_CMDLINE_MAX];
};

/* Whether such an error says nothing about the process that was looked at: out of descriptors, out of memory, -ECANCELED of outside. */
bool scanned_starved(ssize_t error);

/* Meets process pid. procfd, mounts, containers, outside and now are set. 0; -ESRCH: it is gone; -errno: it may not be looked at, or see scanned_starved. */
int scanned_meet(struct scanned *scanned, int32_t pid);

/*
 * Reads of needs (bits of match_need) what was not asked for yet. What cannot be read stays NULL in the facts. 0, or an error of
 * scanned_starved.
 */
int scanned_ask(struct scanned *scanned, unsigned needs);

#endif
