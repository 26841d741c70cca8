/*
 * config_change.c: two configurations compared, and variants of one.
 *
 * Keys are compared row by row of the table that they are read with, which also says whether a
 * running daemon can change them. What no row stores (captures, container_labels) is compared by
 * hand; a reload can change it.
 *
 * A variant is the text of a rule with one value replaced, which is then parsed. Values consist of
 * a few characters that need no quoting; what looks like a number is written as one, anything else
 * as a string, so both forms of a value ("60%", 60) reach the parser. Rejected: setting the field
 * by itself. Ranges, units and the checks between keys would be written twice.
 */
#include "lib/config/config_change.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/units.h"
#include "lib/config/config.h"
#include "lib/config/config_keys.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- variants: a rule as text ---- */

#define FILE_NAME "what-if" /* of the text of a variant; messages leave it out */

__attribute__((format(printf, 2, 3))) static int refuse(char *message, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, WHAT_IF_MESSAGE_MAX, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

struct text {
	struct buffer buffer;
	const char *key; /* what is replaced, and by what */
	const char *value;
	bool done;
	int error;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
	char piece[256];
	va_list arguments;
	int len, r;

	va_start(arguments, format);
	len = vsnprintf(piece, sizeof(piece), format, arguments);
	va_end(arguments);
	r = len < (int)sizeof(piece) ? buffer_append(&text->buffer, piece, (size_t)len) : -EINVAL;
	if (text->error == 0)
		text->error = r;
}

static bool is_number(const char *value)
{
	size_t digits = strspn(value, "0123456789"), fraction = 0;

	if (value[digits] == '.')
		fraction = strspn(value + digits + 1, "0123456789") + 1;
	return digits > 0 && fraction != 1 && value[digits + fraction] == '\0' && (digits == 1 || value[0] != '0');
}

/* True: this key is the one; its value has been written. */
static bool replaces(struct text *text, const char *key)
{
	if (strcmp(key, text->key) != 0)
		return false;
	text->done = true;
	put(text, is_number(text->value) ? ", \"%s\": %s" : ", \"%s\": \"%s\"", key, text->value);
	return true;
}

static void put_duration(struct text *text, const char *key, uint64_t ns)
{
	if (!replaces(text, key))
		put(text, ", \"%s\": \"%juns\"", key, (uintmax_t)ns);
}

static void put_count(struct text *text, const char *key, uint32_t count)
{
	if (!replaces(text, key))
		put(text, ", \"%s\": %u", key, count);
}

static void put_word(struct text *text, const char *key, const char *word)
{
	if (!replaces(text, key))
		put(text, ", \"%s\": \"%s\"", key, word);
}

/* Seventeen digits bring back every number; an exponent is not read everywhere. */
static void put_threshold(struct text *text, const char *key, bool has, double value, enum unit_kind unit)
{
	if (replaces(text, key) || !has)
		return;
	if (unit == UNIT_BYTES)
		put(text, ", \"%s\": \"%.0fB\"", key, value);
	else if (value != 0 && (value < 1e-3 || value > 1e15))
		put(text, ", \"%s\": %.30f", key, value);
	else
		put(text, ", \"%s\": %.17g", key, value);
}

static void put_rule(struct text *text, const struct config_rule *rule)
{
	const struct trigger_rule *trigger = &rule->trigger;
	enum unit_kind unit = metric_unit(rule->metric);

	put(text, "{\"name\": \"%s\", \"metric\": \"%s\"", rule->name, metric_name(rule->metric));
	if (rule->metric == METRIC_CPU || rule->metric == METRIC_MEMORY || strcmp(text->key, "of") == 0)
		put_word(text, "of", metric_of_name(rule->of));
	put_duration(text, "window", rule->window_ns);
	put_threshold(text, unit == UNIT_PERCENT ? "percent" : "above", trigger->has_percent, trigger->percent, unit);
	put_threshold(text, "delta", trigger->has_delta, trigger->delta, UNIT_PERCENT);
	put_threshold(text, "minimum", trigger->has_minimum, trigger->minimum, unit);
	put_threshold(text, "maximum", trigger->has_maximum, trigger->maximum, unit);
	put_count(text, "warmup", trigger->warmup);
	put_count(text, "history", trigger->history);
	put_duration(text, "for", trigger->for_ns);
	put_duration(text, "cooldown", trigger->cooldown_ns);
	put_count(text, "count", trigger->count);
	put_duration(text, "count_period", trigger->count_period_ns);
	put_word(text, "rearm", trigger_rearm_name(trigger->rearm));
	/* "above" of a percentage, or the other way round: refused where it is read. */
	if (!text->done)
		replaces(text, text->key);
	put(text, "}");
}

/* Targets of the kinds that the rule looks at: some metrics are of one kind only. */
static void put_targets(struct text *text, const struct config *base, const struct config_rule *rule)
{
	bool process = false, cgroup = false;

	for (size_t i = 0; i < base->target_count; i++) {
		bool named = rule->target_count == 0;

		for (size_t k = 0; !named && k < rule->target_count; k++)
			named = strcmp(rule->targets[k], base->targets[i].name) == 0;
		process |= named && base->targets[i].per != CONFIG_PER_CGROUP;
		cgroup |= named && base->targets[i].per == CONFIG_PER_CGROUP;
	}
	put(text, "\"targets\": [");
	if (process)
		put(text, "{\"name\": \"process\", \"comm\": \"x\"}");
	if (cgroup)
		put(text, "%s{\"name\": \"cgroup\", \"cgroup\": \"/x\"}", process ? ", " : "");
	put(text, "],\n");
}

static void put_sampling(struct text *text, const struct config_sampling *sampling)
{
	put(text, "{\"sampling\": {\"interval\": \"%juns\", \"heartbeat\": \"%juns\", ",
	    (uintmax_t)sampling->interval_ns, (uintmax_t)sampling->heartbeat_ns);
	put(text, "\"cgroup_interval\": \"%juns\", \"peak_interval\": \"%juns\", ",
	    (uintmax_t)sampling->cgroup_interval_ns, (uintmax_t)sampling->peak_interval_ns);
	put(text, "\"fds_interval\": \"%juns\"},\n", (uintmax_t)sampling->fds_interval_ns);
}

/* ---- variants ---- */

static bool may_change(const char *key)
{
	for (size_t i = 0; i < config_rule_field_count; i++)
		if (strcmp(config_rule_fields[i].key, key) == 0)
			return strcmp(key, "name") != 0 && strcmp(key, "targets") != 0 && strcmp(key, "metric") != 0;
	return false;
}

static int refuse_key(const char *key, char *message)
{
	struct config_guess guess = { .word = key };
	char hint[240];

	for (size_t i = 0; i < config_rule_field_count; i++)
		if (may_change(config_rule_fields[i].key))
			config_guess_offer(&guess, config_rule_fields[i].key);
	return refuse(message, "a rule has no key \"%.40s\" that can be changed; %s", key,
		      config_guess_say(&guess, hint, sizeof(hint)));
}

static int check_value(const char *value, char *message)
{
	size_t len = strlen(value);

	if (len == 0)
		return refuse(message, "a value is empty: expected something like 60%% or 512MiB");
	if (len > WHAT_IF_VALUE_MAX ||
	    strspn(value, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.%- ") != len)
		return refuse(message, "a value is none: expected something like 60%% or 512MiB");
	return 0;
}

/* Reads the changed rule. 0; -ENOMEM; -EINVAL. */
static int parse_rule(const struct config *base, struct what_if_variant *variant, char *message)
{
	AUTO(buffer_release) struct buffer written = { 0 };
	struct text text = { .key = variant->key, .value = variant->value };
	struct config_error error = { .message = "" };
	int r;

	put_sampling(&text, &base->sampling);
	put_targets(&text, base, &base->rules[variant->rule]);
	put(&text, "\"rules\": [");
	put_rule(&text, &base->rules[variant->rule]);
	put(&text, "]}\n");
	written = text.buffer;
	if (text.error < 0)
		return text.error == -ENOMEM ? -ENOMEM : refuse(message, "a value is too long");

	const struct config_source source = { .file = FILE_NAME, .text = written.data, .len = written.len };

	r = config_parse(&source, 1, &variant->owned, &error);
	if (r == -EINVAL)
		return refuse(message, "%s.%s=%s: %s", base->rules[variant->rule].name, variant->key, variant->value,
			      error.message);
	return r;
}

static int make_variant(const struct config *base, struct what_if_variant *variant, char *message)
{
	struct config_rule *rules;
	int r = parse_rule(base, variant, message);

	if (r < 0)
		return r;
	rules = calloc(base->rule_count, sizeof(*rules));
	if (!rules) {
		config_free(TAKE(variant->owned));
		return -ENOMEM;
	}

	memcpy(rules, base->rules, base->rule_count * sizeof(*rules));
	struct config_rule *changed = &rules[variant->rule];

	*changed = variant->owned->rules[0];
	changed->name = base->rules[variant->rule].name;
	changed->targets = base->rules[variant->rule].targets;
	changed->target_count = base->rules[variant->rule].target_count;
	variant->config = *base;
	variant->config.rules = rules;
	return 0;
}

int what_if_add(struct what_if *what_if, const struct config *base, size_t rule, const char *key, const char *value,
		char *message)
{
	struct what_if_variant variant = { .rule = rule }, *grown;
	int r;

	if (what_if->count == WHAT_IF_VARIANTS_MAX)
		return refuse(message, "too many values: expected at most %u", WHAT_IF_VARIANTS_MAX);
	if (!may_change(key))
		return refuse_key(key, message);
	r = check_value(value, message);
	if (r < 0)
		return r;
	snprintf(variant.key, sizeof(variant.key), "%s", key);
	snprintf(variant.value, sizeof(variant.value), "%s", value);

	grown = realloc(what_if->variants, (what_if->count + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	what_if->variants = grown;
	r = make_variant(base, &variant, message);
	if (r < 0)
		return r;
	what_if->variants[what_if->count++] = variant;
	return 0;
}

void what_if_release(struct what_if *what_if)
{
	for (size_t i = 0; i < what_if->count; i++) {
		free(what_if->variants[i].config.rules);
		config_free(what_if->variants[i].owned);
	}
	free(what_if->variants);
	*what_if = (struct what_if){ 0 };
}

/* ---- the syntax ---- */

static int what_if_find_rule(const struct config *base, const char *name, size_t *ret, char *message)
{
	struct config_guess guess = { .word = name };
	char hint[240];

	for (size_t i = 0; i < base->rule_count; i++) {
		config_guess_offer(&guess, base->rules[i].name);
		if (strcmp(base->rules[i].name, name) == 0) {
			*ret = i;
			return 0;
		}
	}
	if (base->rule_count == 0)
		return refuse(message, "the configuration has no rules");
	return refuse(message, "the configuration has no rule \"%.64s\"; %s", name,
		      config_guess_say(&guess, hint, sizeof(hint)));
}

/* Spaces at both ends are cut off. */
static char *trim(char *text)
{
	size_t len;

	text += strspn(text, " ");
	for (len = strlen(text); len > 0 && text[len - 1] == ' '; len--)
		text[len - 1] = '\0';
	return text;
}

/* Cuts text at the first separator. The part behind it, NULL: there is none. */
static char *cut(char *text, char separator)
{
	char *at = strchr(text, separator);

	if (!at)
		return NULL;
	*at = '\0';
	return at + 1;
}

/* One RULE.KEY=VALUE,... */
static int parse_item(struct what_if *what_if, const struct config *base, char *item, char *message)
{
	char *values = cut(item, '='), *key;
	size_t rule;
	int r;

	item = trim(item);
	key = strrchr(item, '.'); /* a name may hold one */
	if (!values || !key || key == item || !key[1])
		return refuse(message, "expected RULE.KEY=VALUE,VALUE,... such as hot.percent=60,70,80");
	*key++ = '\0';
	r = what_if_find_rule(base, item, &rule, message);
	for (char *next; r == 0 && values; values = next) {
		next = cut(values, ',');
		r = what_if_add(what_if, base, rule, key, trim(values), message);
	}
	return r;
}

int what_if_parse(struct what_if *what_if, const struct config *base, const char *text, char *message)
{
	AUTO_FREE char *copy = strdup(text);
	int r = 0;

	if (!copy)
		return -ENOMEM;
	for (char *item = copy, *next; r == 0 && item; item = next) {
		next = cut(item, ';');
		r = parse_item(what_if, base, item, message);
	}
	return r;
}

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

/*
 * Where a document says it: the key, or what stands in place of its whole section ("stacks":
 * "off"). NULL: it does not.
 */
static const struct json_node *said_in(const struct json_document *document, const struct config_field *field)
{
	const struct json_node *holder = json_root(document);

	if (field->section[0] != '\0')
		holder = json_member(holder, field->section);
	if (holder == NULL || holder->type != JSON_OBJECT)
		return holder;
	return json_member(holder, field->key);
}

/*
 * Where the value in force comes from: the last that says it. Of a default the first file, as a
 * whole.
 */
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

int config_change_reloadable(const struct config *old, const struct config *next, struct config_error *err)
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

bool config_change_sections(const struct config *old, const struct config *next)
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

void config_change_count(const struct config *old, const struct config *next, struct config_change_counts *ret)
{
	struct config_change_counts counts = { 0 };

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
