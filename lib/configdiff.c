/*
 * configdiff.c: keys are compared row by row of the table that they are read with, which also says whether a running daemon can change
 * them. What no row stores (captures, container_labels) is compared by hand; it can be changed, so only the answer to "is anything different?"
 * depends on it.
 */
#include "configdiff.h"

#include "config_section.h"
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static const char *text_at(const void *value)
{
	return *(const char *const *)value;
}

static bool same_value(const struct config_field *field, const struct config *old, const struct config *next)
{
	const char *a = (const char *)old + field->offset;
	const char *b = (const char *)next + field->offset;

	if (field->kind == CONFIG_KIND_PATH || field->kind == CONFIG_KIND_LISTEN)
		return strcmp(text_at(a), text_at(b)) == 0;

	return memcmp(a, b, field->size) == 0;
}

static uint64_t whole_at(const void *value, size_t size)
{
	return size == sizeof(uint32_t) ? *(const uint32_t *)value : *(const uint64_t *)value;
}

static const char *show(const struct config_field *field, const struct config *config, char buf[CONFIG_SHOWN])
{
	const void *at = (const char *)config + field->offset;

	buf[0] = '\0';
	switch (field->kind) {
	case CONFIG_KIND_OTHER:
		break;
	case CONFIG_KIND_DURATION:
		units_format_duration(buf, CONFIG_SHOWN, whole_at(at, field->size));
		break;
	case CONFIG_KIND_BYTES:
		units_format_bytes(buf, CONFIG_SHOWN, whole_at(at, field->size));
		break;
	case CONFIG_KIND_COUNT:
		snprintf(buf, CONFIG_SHOWN, "%" PRIu64, whole_at(at, field->size));
		break;
	case CONFIG_KIND_PERCENT:
		units_format_percent(buf, CONFIG_SHOWN, *(const double *)at);
		break;
	case CONFIG_KIND_BOOL:
		snprintf(buf, CONFIG_SHOWN, "%s", *(const bool *)at ? "true" : "false");
		break;
	case CONFIG_KIND_CHOICE:
		snprintf(buf, CONFIG_SHOWN, "%s", field->choices[whole_at(at, field->size)]);
		break;
	case CONFIG_KIND_PATH:
	case CONFIG_KIND_LISTEN:
		config_quote(text_at(at), strlen(text_at(at)), buf);
		break;
	}
	return buf;
}

/* Where a document says it: the key, or what stands in place of its whole section ("stacks": "off"). NULL: it does not. */
static const struct json_node *said_in(const struct json_document *document, const struct config_field *field)
{
	const struct json_node *holder = json_root(document);

	if (field->section[0] != '\0')
		holder = json_member(holder, field->section);
	if (holder == NULL || holder->type != JSON_OBJECT)
		return holder;
	return json_member(holder, field->key);
}

/* Where the value in force comes from: the last that says it. Of a default the first file, as a whole. */
static struct json_place find_place(const struct config *config, const struct config_field *field,
				    const char **ret_file)
{
	for (size_t i = config->document_count; i-- > 0;) {
		const struct json_node *node = said_in(config->documents[i], field);

		if (node != NULL) {
			*ret_file = config->files[i];
			return node->place;
		}
	}
	*ret_file = config->document_count > 0 ? config->files[0] : "";
	return (struct json_place){ 0, 0 };
}

int configdiff_reloadable(const struct config *old, const struct config *next, struct config_error *err)
{
	struct config_error ignored;
	struct config_scope scope = { .file = "", .err = err ? err : &ignored };

	for (size_t i = 0; i < config_section_field_count; i++) {
		const struct config_field *field = &config_section_fields[i];
		char in_force[CONFIG_SHOWN], wanted[CONFIG_SHOWN];

		if (field->change != CONFIG_CHANGE_RESTART || same_value(field, old, next))
			continue;
		snprintf(scope.path, sizeof(scope.path), "%s", field->section);
		return config_refuse(&scope, find_place(next, field, &scope.file), field->key,
				     "cannot change while spikewatchd runs (%s in force, %s wanted): restart it",
				     show(field, old, in_force), show(field, next, wanted));
	}
	return 0;
}

static bool same_keys(const struct config_metrics *a, const struct config_metrics *b)
{
	if (a->container_label_count != b->container_label_count)
		return false;
	for (size_t i = 0; i < a->container_label_count; i++)
		if (strcmp(a->container_labels[i], b->container_labels[i]) != 0)
			return false;
	return true;
}

bool configdiff_sections(const struct config *old, const struct config *next)
{
	for (size_t i = 0; i < config_section_field_count; i++)
		if (!same_value(&config_section_fields[i], old, next))
			return true;
	return old->incidents.captures != next->incidents.captures || !same_keys(&old->metrics, &next->metrics);
}

/* ---- entries ---- */

static const struct config_target *find_target(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];
	return NULL;
}

static const struct config_rule *find_rule(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			return &config->rules[i];
	return NULL;
}

static bool names(const struct config_rule *rule, const char *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target) == 0)
			return true;
	return false;
}

/* No name is twice in a list. */
static bool same_targets(const struct config_rule *a, const struct config_rule *b)
{
	if (a->target_count != b->target_count)
		return false;
	for (size_t i = 0; i < a->target_count; i++)
		if (!names(b, a->targets[i]))
			return false;
	return true;
}

void configdiff_count(const struct config *old, const struct config *next, struct configdiff_counts *ret)
{
	struct configdiff_counts counts = { 0 };

	for (size_t i = 0; i < next->target_count; i++) {
		const struct config_target *was = find_target(old, next->targets[i].name);

		counts.targets_added += !was;
		counts.targets_changed += was && !(config_target_same(was, &next->targets[i]) &&
						   config_target_captures_same(was, &next->targets[i]));
	}
	for (size_t i = 0; i < next->rule_count; i++) {
		const struct config_rule *was = find_rule(old, next->rules[i].name);

		counts.rules_added += !was;
		counts.rules_changed +=
			was && !(config_rule_same(was, &next->rules[i]) && same_targets(was, &next->rules[i]));
	}
	/* Names are unique: what is not new was there, and the others are gone. */
	counts.targets_removed = old->target_count - (next->target_count - counts.targets_added);
	counts.rules_removed = old->rule_count - (next->rule_count - counts.rules_added);
	*ret = counts;
}
