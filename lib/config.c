/*
 * config.c: a configuration that is there. How it comes into being is told by the modules above: config_field (one
 * key), config_target and config_rule (one entry), config_parse (the whole and what must agree in it), config_load
 * (files).
 *
 * Its texts are those of the parsed documents, which it keeps: nothing is copied, and one call frees all.
 */
#include "config.h"

#include "json.h"
#include "scope.h"

#include <stdio.h>
#include <stdlib.h>

void config_free(struct config *config)
{
	if (config == NULL)
		return;
	for (size_t i = 0; config->rules != NULL && i < config->rule_count; i++)
		free(config->rules[i].targets);
	for (size_t i = 0; config->documents != NULL && i < config->document_count; i++)
		json_document_free(config->documents[i]);
	free(config->rules);
	free(config->targets);
	free(config->documents);
	free(config);
}

void config_error_format(const struct config_error *err, char *buf, size_t cap)
{
	char place[32] = "";

	if (err->line > 0)
		snprintf(place, sizeof(place), ":%u:%u", err->line, err->column);
	snprintf(buf, cap, "%s%s: %s%s%s", err->file, place, err->key, err->key[0] != '\0' ? ": " : "", err->message);
}

const char *config_selector_name(enum config_selector selector)
{
	static const char *const names[] = { "pid", "pidfile", "comm", "exe", "cmdline", "cgroup", "unit" };

	return selector < ARRAY_LEN(names) ? names[selector] : NULL;
}

const char *config_capture_name(enum config_capture capture)
{
	static const char *const names[] = { "samples", "threads", "status", "smaps", "limits", "cgroup", "system" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (capture == 1u << i)
			return names[i];
	return NULL;
}
