/*
 * config_target.h: one entry of "targets". For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_TARGET_H
#define SPIKEWATCH_CONFIG_TARGET_H

#include "config_field.h"

/* Reads an entry. The scope stands for it ("targets[3]"). 0 or -EINVAL. */
int config_target_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret);

#endif
