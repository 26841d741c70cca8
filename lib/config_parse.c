/*
 * config_parse.c: from texts to a checked configuration. All documents are parsed, then sections are applied source by
 * source (so the last one wins, key by key), then come targets, then rules, which look at both.
 */
#include "config.h"
#include "config_field.h"
#include "config_rule.h"
#include "config_run.h"
#include "config_section.h"
#include "config_target.h"
#include "json.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entries of "targets", and of "rules": what people can still oversee. */
#define ENTRIES_MAX 1000

/* A configuration on its way. */
struct builder {
	const struct config_source *sources;
	struct config_merge merge;
	struct config *config;
};

/* The entries of one kind, from all sources. */
struct entries {
	const char *key;
	/* Reads one into slot n and says its name. */
	int (*read)(const struct config_scope *scope, const struct json_node *node, struct config *config, size_t n,
		    const char **ret_name);
	size_t *count;      /* in the configuration */
	const char **names; /* of those read so far, and where they are */
	struct config_origin *origins;
};

static void builder_release(struct builder *builder)
{
	config_free(builder->config);
}

static void entries_release(struct entries *entries)
{
	free(entries->names);
	free(entries->origins);
}

static const struct json_node *root_of(const struct builder *builder, size_t source)
{
	return json_root(builder->config->documents[source]);
}

static struct config_scope scope_of(const struct builder *builder, size_t source)
{
	return (struct config_scope){ .file = builder->sources[source].file, .err = builder->merge.err };
}

static int parse_document(const struct builder *builder, size_t i)
{
	const struct config_source *source = &builder->sources[i];
	const struct config_scope scope = scope_of(builder, i);
	struct json_error error;
	int r = json_parse(source->text, source->len, NULL, &builder->config->documents[i], &error);

	if (r == 0 || r == -ENOMEM)
		return r;
	if (source->len == 0)
		return config_refuse(&scope, (struct json_place){ 0, 0 }, NULL,
				     "the file is empty: expected an object, { ... }");
	return config_refuse(&scope, error.place, NULL, "%s", error.message);
}

static int parse_documents(const struct builder *builder, size_t count)
{
	struct config *config = builder->config;

	config->documents = calloc(count + 1, sizeof(struct json_document *));
	config->files = calloc(count + 1, sizeof(char *));
	if (config->documents == NULL || config->files == NULL)
		return -ENOMEM;
	while (config->document_count < count) {
		size_t i = config->document_count++;

		config->files[i] = strdup(builder->sources[i].file);
		if (config->files[i] == NULL)
			return -ENOMEM;

		int r = parse_document(builder, i);

		if (r < 0)
			return r;
	}
	return 0;
}

static int apply_sections(struct builder *builder)
{
	config_section_defaults(builder->config);
	for (size_t i = 0; i < builder->config->document_count; i++) {
		const struct config_scope scope = scope_of(builder, i);
		int r = config_section_apply(&scope, root_of(builder, i), &builder->merge);

		if (r < 0)
			return r;
	}
	return config_section_agree(&builder->merge);
}

/* ---- targets and rules ---- */

static int read_target(const struct config_scope *scope, const struct json_node *node, struct config *config, size_t n,
		       const char **ret_name)
{
	int r = config_target_read(scope, node, &config->targets[n]);
	size_t trees = 0;

	for (size_t i = 0; i <= n; i++)
		trees += config->targets[i].tree;
	if (r == 0 && trees > CONFIG_TREES_MAX)
		return config_refuse_value(scope, json_member(node, "tree"), "more than %d entries with a tree",
					   CONFIG_TREES_MAX);
	*ret_name = config->targets[n].name;
	return r;
}

static int read_rule(const struct config_scope *scope, const struct json_node *node, struct config *config, size_t n,
		     const char **ret_name)
{
	int r = config_rule_read(scope, node, config, &config->rules[n]);

	*ret_name = config->rules[n].name;
	return r;
}

/* How many entries all sources have together; each must be in an array. */
static int count_entries(const struct builder *builder, const char *key, size_t *ret)
{
	size_t count = 0;
	char shown[CONFIG_SHOWN];

	for (size_t i = 0; i < builder->config->document_count; i++) {
		const struct json_node *node = json_member(root_of(builder, i), key);
		const struct config_scope scope = scope_of(builder, i);

		if (node == NULL)
			continue;
		if (node->type != JSON_ARRAY)
			return config_refuse_value(&scope, node, "expected an array of objects, [ { ... } ], found %s",
						   config_found(node, shown));
		count += node->count;
		if (count > ENTRIES_MAX)
			return config_refuse_value(&scope, node, "too many: expected at most %d, found %zu",
						   ENTRIES_MAX, count);
	}
	*ret = count;
	return 0;
}

static int check_name(const struct config_scope *scope, const struct json_node *entry, const struct entries *entries)
{
	size_t n = *entries->count - 1;

	for (size_t i = 0; i < n; i++) {
		const struct config_origin *first = &entries->origins[i];

		if (strcmp(entries->names[i], entries->names[n]) == 0)
			return config_refuse(scope, json_member(entry, "name")->place, "name",
					     "duplicate name \"%s\": already given at %.80s:%u:%u", entries->names[n],
					     first->file, first->place.line, first->place.column);
	}
	return 0;
}

/* The entries of one source. */
static int read_source(const struct builder *builder, size_t source, struct entries *entries)
{
	const struct json_node *array = json_member(root_of(builder, source), entries->key);
	struct config_scope scope = scope_of(builder, source);
	size_t index = 0;

	for (const struct json_node *node = array != NULL ? array->first : NULL; node != NULL; node = node->next) {
		size_t n = (*entries->count)++;
		int r;

		snprintf(scope.path, sizeof(scope.path), "%s[%zu]", entries->key, index++);
		r = entries->read(&scope, node, builder->config, n, &entries->names[n]);
		if (r == 0)
			r = check_name(&scope, node, entries);
		if (r < 0)
			return r;
		entries->origins[n] = (struct config_origin){ scope.file, json_member(node, "name")->place };
	}
	return 0;
}

static int read_all(const struct builder *builder, struct entries *entries, size_t room)
{
	entries->names = calloc(room + 1, sizeof(*entries->names));
	entries->origins = calloc(room + 1, sizeof(*entries->origins));
	if (entries->names == NULL || entries->origins == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < builder->config->document_count; i++) {
		int r = read_source(builder, i, entries);

		if (r < 0)
			return r;
	}
	return 0;
}

static int read_targets(const struct builder *builder)
{
	struct config *config = builder->config;
	AUTO(entries_release) struct entries entries = { "targets", read_target, &config->target_count, NULL, NULL };
	const struct config_scope scope = {
		.file = config->document_count > 0 ? builder->sources[0].file : "",
		.err = builder->merge.err,
	};
	size_t room;
	int r = count_entries(builder, entries.key, &room);

	if (r < 0)
		return r;
	if (room == 0)
		return config_refuse(&scope, (struct json_place){ 0, 0 }, "targets",
				     "nothing to watch: expected at least one target");
	config->targets = calloc(room, sizeof(*config->targets));
	return config->targets != NULL ? read_all(builder, &entries, room) : -ENOMEM;
}

static int read_rules(const struct builder *builder)
{
	struct config *config = builder->config;
	AUTO(entries_release) struct entries entries = { "rules", read_rule, &config->rule_count, NULL, NULL };
	size_t room;
	int r = count_entries(builder, entries.key, &room);

	if (r < 0 || room == 0)
		return r;
	config->rules = calloc(room, sizeof(*config->rules));
	return config->rules != NULL ? read_all(builder, &entries, room) : -ENOMEM;
}

/* What targets say of rules. */
static int agree_targets(const struct builder *builder)
{
	for (size_t i = 0; i < builder->config->document_count; i++) {
		const struct json_node *array = json_member(root_of(builder, i), "targets");
		struct config_scope scope = scope_of(builder, i);
		size_t index = 0;

		for (const struct json_node *node = array != NULL ? array->first : NULL; node != NULL;
		     node = node->next) {
			int r;

			snprintf(scope.path, sizeof(scope.path), "targets[%zu]", index++);
			r = config_run_agree(&scope, node, builder->config);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int config_parse(const struct config_source *sources, size_t count, struct config **ret, struct config_error *err)
{
	AUTO(builder_release) struct builder builder = { .sources = sources };
	struct config_error ignored;
	int r;

	builder.config = calloc(1, sizeof(*builder.config));
	if (builder.config == NULL)
		return -ENOMEM;
	builder.merge.config = builder.config;
	builder.merge.err = err != NULL ? err : &ignored;

	r = parse_documents(&builder, count);
	if (r == 0)
		r = apply_sections(&builder);
	if (r == 0)
		r = read_targets(&builder);
	if (r == 0)
		r = read_rules(&builder);
	if (r == 0)
		r = agree_targets(&builder);
	if (r < 0)
		return r;

	*ret = TAKE(builder.config);
	return 0;
}
