/*
 * config_run.h: "run" of a target entry: the commands that an incident of it runs. For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_RUN_H
#define SPIKEWATCH_CONFIG_RUN_H

#include "config_field.h"

/* The keys of one command. */
extern const struct config_field config_run_fields[];
extern const size_t config_run_field_count;

/* Reads the value of "run". The scope stands for the target entry. 0; -ENOMEM; -EINVAL. What was read is the target's: config_free frees it. */
int config_run_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret);

/*
 * Once the rules are known: each pattern of "rules" of each command must match the name of one. The scope stands for the target entry,
 * node is it. 0 or -EINVAL.
 */
int config_run_agree(const struct config_scope *scope, const struct json_node *node, const struct config *config);

#endif
