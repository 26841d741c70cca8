/*
 * config_labels.h: where a configuration speaks of labels of containers: those that an entry asks for, and those that metrics have. For the config_*
 * modules only.
 */
#ifndef SPIKEWATCH_CONFIG_LABELS_H
#define SPIKEWATCH_CONFIG_LABELS_H

#include "config_field.h"

/* "labels" of a target entry, an object of globs. The scope stands for the entry. 0; -EINVAL; -ENOMEM. */
int config_labels_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret);

/* "container_labels" of the metrics, an array of keys, in the place of what was there. The scope stands for the section. 0; -EINVAL; -ENOMEM. */
int config_labels_read_metrics(const struct config_scope *scope, const struct json_node *node,
			       struct config_metrics *ret);

#endif
