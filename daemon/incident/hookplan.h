/*
 * hookplan.h: the commands that one incident runs: a copy of what the configuration said when it was opened, which may change meanwhile.
 */
#ifndef SPIKEWATCH_HOOKPLAN_H
#define SPIKEWATCH_HOOKPLAN_H

#include "config.h"
#include "incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hookplan_command {
	char name[CONFIG_RUN_NAME_MAX + 1];
	char **words; /* with placeholders; NULL at the end */
	uint64_t timeout_ns, max_output_bytes;
	bool wants_pid;
};

struct hookplan {
	size_t count; /* at least one */
	struct hookplan_command commands[CONFIG_RUNS_MAX];
};

/* Those commands of entry that an incident of rule runs; there are none: NULL. 0; -ENOMEM. */
int hookplan_new(const struct config_target *entry, const char *rule, struct hookplan **ret);

/* NULL is fine. */
void hookplan_free(struct hookplan *plan);

/* Adds to the captures of an incident that none of the commands was run, and why. */
void hookplan_refuse(const struct hookplan *plan, const char *why, struct incident *incident);

/* The record of a command that is yet to be run. */
struct incident_capture hookplan_record(const struct hookplan_command *command);

/*
 * The words of a command as they are to be run: one allocation for free(3), NULL at the end. values: of hookline.h; the command's name is
 * added. 0; -ENOMEM; -E2BIG: longer than HOOKPLAN_BYTES_MAX.
 */
struct hookline_values;
int hookplan_words(const struct hookplan_command *command, const struct hookline_values *values, char ***ret);
#define HOOKPLAN_BYTES_MAX 65536

#endif
