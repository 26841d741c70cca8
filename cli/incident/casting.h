/*
 * casting.h: which entry of a configuration a target of a recording belongs to, when it was recorded under another configuration or under
 * none: what the entries select among what is known of the target. Pure.
 */
#ifndef SPIKEWATCH_CASTING_H
#define SPIKEWATCH_CASTING_H

#include "config.h"
#include "target.h"

struct casting;

/* as: the name of the entry for targets that no entry selects, NULL: they stay what they are. config and as must outlive it. 0; -ENOMEM; -EINVAL. */
int casting_new(const struct config *config, const char *as, struct casting **ret);

/* NULL is fine. */
void casting_free(struct casting *casting);

/*
 * The name of the entry: the target's own if the configuration has it, else of the first that selects it by pid, name, command line or
 * cgroup, else `as`, else the target's own. Never NULL; text of the target, the configuration or `as`.
 */
const char *casting_entry(const struct casting *casting, const struct target *target);

#endif
