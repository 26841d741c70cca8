/*
 * config_target.h: one entry of "targets". For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_TARGET_H
#define SPIKEWATCH_CONFIG_TARGET_H

#include "config_field.h"

/* The keys of a target. */
extern const struct config_field config_target_fields[];
extern const size_t config_target_field_count;

/*
 * Reads an entry. The scope stands for it ("targets[3]"). 0; -ENOMEM; -EINVAL. ret is zeroed; its commands belong to the caller, whatever
 * is returned (config_free).
 */
int config_target_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret);

#endif
