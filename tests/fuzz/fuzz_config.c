/*
 * A configuration, or up to three of them with a NUL byte between, is taken and then holds what it
 * promises, or is refused with a reason.
 */
#include "lib/config/config.h"
#include "lib/rules/trigger.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SOURCES_MAX 3

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void check_rule(const struct config *config, const struct config_rule *rule)
{
	const struct trigger_rule *trigger = &rule->trigger;

	require(rule->name[0] != '\0' && strlen(rule->name) <= 64 && strchr(rule->name, '/') == NULL);
	require(trigger->has_percent || trigger->has_delta);
	require(trigger->warmup <= trigger->history && trigger->history >= 1 &&
		trigger->history <= TRIGGER_HISTORY_MAX);
	require(rule->window_ns >= config->sampling.interval_ns);
	for (size_t i = 0; i < rule->target_count; i++) {
		bool found = false;

		for (size_t k = 0; k < config->target_count; k++)
			found |= strcmp(config->targets[k].name, rule->targets[i]) == 0;
		require(found);
	}
}

static void check(const struct config *config)
{
	require(config->target_count > 0);
	require(config->sampling.interval_ns >= 100000 &&
		config->sampling.heartbeat_ns >= config->sampling.interval_ns);
	require((config->ring.page_bytes & (config->ring.page_bytes - 1)) == 0);
	require(config->ring.size_bytes >= 4ULL * config->ring.page_bytes);
	require(config->incidents.max_incident_bytes <= config->incidents.max_bytes);
	require(config->proc_root[0] == '/');
	for (size_t i = 0; i < config->target_count; i++) {
		require(strlen(config->targets[i].name) <= 64);
		require((config->targets[i].selector == CONFIG_PID) == (config->targets[i].pattern == NULL));
	}
	for (size_t i = 0; i < config->rule_count; i++)
		check_rule(config, &config->rules[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[SOURCES_MAX] = { "a.json", "b.json", "c.json" };
	struct config_source sources[SOURCES_MAX];
	const char *text = (const char *)data;
	struct config_error err = { .message = "" };
	struct config *config;
	size_t count = 0;
	char line[1024];

	while (count < SOURCES_MAX) {
		const char *nul = size > 0 ? memchr(text, '\0', size) : NULL;
		size_t len = nul != NULL && count + 1 < SOURCES_MAX ? (size_t)(nul - text) : size;

		sources[count] = (struct config_source){ names[count], text, len };
		count++;
		if (len == size)
			break;
		text += len + 1;
		size -= len + 1;
	}
	if (config_parse(sources, count, &config, &err) == 0) {
		check(config);
		config_free(config);
		return 0;
	}
	require(err.message[0] != '\0' && err.file[0] != '\0');
	config_error_format(&err, line, sizeof(line));
	for (const char *c = line; *c != '\0'; c++)
		require((unsigned char)*c >= 0x20 && *c != 0x7f);
	return 0;
}
