/*
 * config_section.h: everything in a configuration but its targets and rules. For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_SECTION_H
#define SPIKEWATCH_CONFIG_SECTION_H

#include "config_field.h"

/* All keys of the sections and of the outermost object. */
extern const struct config_field config_section_fields[];
extern const size_t config_section_field_count;
#define CONFIG_SECTION_FIELDS_MAX 56

/* What sources are merged into. */
struct config_merge {
	struct config *config;
	struct config_error *err;
	struct config_origin origins[CONFIG_SECTION_FIELDS_MAX]; /* of each field */
};

/* Sets all sections to their defaults. */
void config_section_defaults(struct config *config);

/* Reads one document over what is there. The scope stands for all of it. 0; -EINVAL; -ENOMEM. */
int config_section_apply(const struct config_scope *scope, const struct json_node *root, struct config_merge *merge);

/* Holds the values against each other, and lets defaults give way. 0 or -EINVAL. */
int config_section_agree(const struct config_merge *merge);

#endif
