/*
 * matcher.h: the target entries of a configuration, compiled, and what all of them together have to know of a process.
 */
#ifndef SPIKEWATCH_MATCHER_H
#define SPIKEWATCH_MATCHER_H

#include "config.h"
#include "match.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct matcher {
	const struct config_target *entries; /* the configuration's, which must outlive this */
	size_t count;
	struct match **matches; /* one per entry */
	int32_t *pidfile_pids;  /* one per entry: what its pid file says */
	unsigned needs;         /* bits of match_need */
	bool by_path;           /* an entry's targets are cgroups that are found by their path */
};

/* 0; -ENOMEM; -EINVAL: an expression does not compile. */
int matcher_new(const struct config *config, struct matcher **ret);

/* Before the configuration. NULL is fine. */
void matcher_free(struct matcher *matcher);

/* Reads all pid files anew. */
void matcher_read_pidfiles(struct matcher *matcher);

/* Whether a process is of entry i. */
bool matcher_process(const struct matcher *matcher, size_t i, const struct match_facts *facts);

/* Whether a cgroup is of entry i, whose targets are found by their path; false for other entries. */
bool matcher_cgroup(const struct matcher *matcher, size_t i, const char *path);

/* The same for any entry. */
bool matcher_any_cgroup(const struct matcher *matcher, const char *path);

#endif
