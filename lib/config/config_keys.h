/* config_keys.h: what the files of config share. */
#ifndef SPIKEWATCH_LIB_CONFIG_CONFIG_KEYS_H
#define SPIKEWATCH_LIB_CONFIG_CONFIG_KEYS_H

#include "lib/config/config.h"
#include "lib/base/json.h"

// clang-format on

/* Where a value came from; line 0: it is the default. */
struct config_origin {
	const char *file;
	struct json_place place;
};

/* The same for a member of the object that the scope stands for. */
#define config_refuse_value(scope, node, ...) config_refuse(scope, (node)->place, (node)->key, __VA_ARGS__)

/* What was found: "text" in quotes, a number, or what kind of value it is. Returns buf. */
const char *config_found(const struct json_node *node, char buf[CONFIG_SHOWN]);

#define CONFIG_SECTION_FIELDS_MAX 56

/* What sources are merged into. */
struct config_merge {
	struct config *config;
	struct config_error *err;
	struct config_origin origins[CONFIG_SECTION_FIELDS_MAX]; /* of each field */
};

/* Reads one document over what is there. The scope stands for all of it. 0; -EINVAL; -ENOMEM. */
int config_section_apply(const struct config_scope *scope, const struct json_node *root, struct config_merge *merge);

/* Holds the values against each other, and lets defaults give way. 0 or -EINVAL. */
int config_section_agree(const struct config_merge *merge);

/*
 * Reads an entry. The scope stands for it ("targets[3]"). 0; -ENOMEM; -EINVAL. ret is zeroed; its
 * commands belong to the caller, whatever is returned (config_free).
 */
int config_target_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret);

/*
 * Once the rules are known: each pattern of "rules" of each command must match the name of one. The
 * scope stands for the target entry, node is it. 0 or -EINVAL.
 */
int config_run_agree(const struct config_scope *scope, const struct json_node *node, const struct config *config);

/*
 * Reads an entry. config: sampling and targets are final. The scope stands for the entry
 * ("rules[2]"). 0; -ENOMEM; -EINVAL. ret is zeroed; ret->targets belongs to the caller, whatever is
 * returned.
 */
int config_rule_read(const struct config_scope *scope, const struct json_node *node, const struct config *config,
		     struct config_rule *ret);

#endif
