/*
 * capture.h: the evidence of an incident beside its samples: text files about the processes of the
 * target, its cgroups and the machine. The worker's. A capture that is not possible never fails the
 * incident: its record says why, and the next one is taken. They are taken into memory, without
 * a disk, and saved afterwards, perhaps by another thread.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_CAPTURE_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_CAPTURE_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct incident_request;
struct session;

#define CAPTURE_MEMBERS_MAX 8 /* processes of a group or a cgroup that are read: its busiest */

/* The processes that a snapshot has read. */
struct capture_processes {
	size_t count;
	struct {
		int32_t pid;
		uint64_t start_ticks; /* 0: not known */
	} process[CAPTURE_MEMBERS_MAX];
};

struct capture_options {
	struct session *session;
	const struct clock *clock;
	const struct incident_request *request;
	size_t max_bytes; /* of each text; 0: 1 MiB */
	bool again;       /* the second snapshot: other file names, and records that name the first */
};

#define CAPTURE_FILES_MAX 6

/* {0}: none. What was taken and not saved yet: capture_save frees it. */
struct capture_files {
	size_t count, bytes; /* memory of the texts */
	struct capture_file {
		struct incident_capture record; /* without a name of a file: there is no text */
		struct buffer text;
	} files[CAPTURE_FILES_MAX];
};

/*
 * Which captures the first or the second snapshot takes: a set of CONFIG_CAPTURE_..., without the
 * samples. An incident of all targets has those that read the machine and the busiest watched
 * processes, and none that stops a process for long (smaps).
 */
unsigned capture_set(const struct incident_request *request, bool again);

/*
 * Takes these captures; *ret, which held nothing or what is dropped, is the caller's, for capture_save.
 * The first snapshot chooses the processes and stores them in *processes, the second reads the same ones.
 */
void capture_take(const struct capture_options *options, struct capture_processes *processes,
		  struct capture_files *ret);

/* The same with a record for each capture of that snapshot alone: SKIPPED or FAILED, and why. */
void capture_not_taken(const struct incident_request *request, bool again, enum incident_capture_status status,
		       const char *why, struct capture_files *ret);

/*
 * Writes each text into a new file in dirfd, which may wait for the disk, and adds the records to
 * incident; what cannot be written has failed. NULL: drops them. files is empty then.
 */
void capture_save(struct capture_files *files, int dirfd, struct incident *incident);

#endif
