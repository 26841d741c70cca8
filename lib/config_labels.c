/* config_labels.c: a key that no label can have is refused here, where the mistake can be shown. */
#include "config_labels.h"

#include "labels.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No value is longer. */
#define GLOB_MAX LABELS_BYTES_MAX

static bool is_key(const char *text, size_t len)
{
	if (len == 0 || len > LABELS_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] >= 0x7f)
			return false;

	return true;
}

static int refuse_key(const struct config_scope *scope, struct json_place place, const char *text, size_t len)
{
	char shown[CONFIG_SHOWN];

	return config_refuse(
		scope, place, NULL,
		"no label is called so: expected 1 to %u visible ASCII characters such as \"app\", found %s",
		LABELS_KEY_MAX, config_quote(text, len, shown));
}

/* The scope stands for the labels. "" is short for "*": that there is such a label. */
static int read_label(const struct config_scope *scope, const struct json_node *node, struct config_label *ret)
{
	char shown[CONFIG_SHOWN];

	if (!is_key(node->key, node->key_len))
		return refuse_key(scope, node->key_place, node->key, node->key_len);
	ret->key = node->key;
	ret->pattern = "*";
	if (node->type != JSON_STRING)
		return config_refuse_value(scope, node, "expected a glob such as \"web-*\", found %s",
					   config_found(node, shown));

	int r = node->text_len > 0 ? config_read_text(scope, node, GLOB_MAX, &ret->pattern) : 0;

	return r == 0 ? config_check_glob(scope, node) : r;
}

int config_labels_read(const struct config_scope *scope, const struct json_node *node, struct config_target *ret)
{
	struct config_scope within = *scope;
	char shown[CONFIG_SHOWN];
	int r = 0;

	if (ret->selector != CONFIG_CONTAINERS)
		return config_refuse_value(scope, node,
					   "only containers have labels: expected it beside \"containers\"");
	if (node->type != JSON_OBJECT || node->count == 0)
		return config_refuse_value(scope, node, "expected labels such as { \"app\": \"web-*\" }, found %s",
					   node->type == JSON_OBJECT ? "none" : config_found(node, shown));
	if (node->count > CONFIG_LABELS_MAX)
		return config_refuse_value(scope, node, "too many: expected at most %d, found %zu", CONFIG_LABELS_MAX,
					   node->count);
	ret->labels = calloc(node->count, sizeof(*ret->labels));
	if (ret->labels == NULL)
		return -ENOMEM;
	snprintf(within.path, sizeof(within.path), "%.50s.labels", scope->path);
	for (const struct json_node *label = node->first; r == 0 && label != NULL; label = label->next)
		r = read_label(&within, label, &ret->labels[ret->label_count++]);
	return r;
}

int config_labels_read_metrics(const struct config_scope *scope, const struct json_node *node,
			       struct config_metrics *ret)
{
	struct config_scope within = *scope;
	const char **keys;
	char shown[CONFIG_SHOWN];
	size_t count = 0;

	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of labels such as [\"app\"], found %s",
					   config_found(node, shown));
	if (node->count > CONFIG_LABELS_MAX)
		return config_refuse_value(scope, node, "too many: expected at most %d, found %zu", CONFIG_LABELS_MAX,
					   node->count);
	free(ret->container_labels);
	ret->container_label_count = 0;
	ret->container_labels = keys = calloc(node->count + 1, sizeof(*keys));
	if (keys == NULL)
		return -ENOMEM;
	for (const struct json_node *key = node->first; key != NULL; key = key->next) {
		snprintf(within.path, sizeof(within.path), "%.30s.container_labels[%u]", scope->path, (unsigned)count);
		if (key->type != JSON_STRING)
			return config_refuse(&within, key->place, NULL, "expected a label such as \"app\", found %s",
					     config_found(key, shown));
		if (!is_key(key->text, key->text_len))
			return refuse_key(&within, key->place, key->text, key->text_len);
		for (size_t i = 0; i < count; i++)
			if (strcmp(keys[i], key->text) == 0)
				return config_refuse(&within, key->place, NULL,
						     "named twice: expected each label once");
		keys[count++] = key->text;
	}
	ret->container_label_count = count;
	return 0;
}
