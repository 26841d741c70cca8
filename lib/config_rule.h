/*
 * config_rule.h: one entry of "rules". For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_RULE_H
#define SPIKEWATCH_CONFIG_RULE_H

#include "config_field.h"

/* The keys of a rule whose type is told by a row; the rest are listed as CONFIG_KIND_OTHER. */
extern const struct config_field config_rule_fields[];
extern const size_t config_rule_field_count;

/*
 * Reads an entry. config: sampling and targets are final. The scope stands for the entry ("rules[2]"). 0; -ENOMEM;
 * -EINVAL. ret is zeroed; ret->targets belongs to the caller, whatever is returned.
 */
int config_rule_read(const struct config_scope *scope, const struct json_node *node, const struct config *config,
		     struct config_rule *ret);

#endif
