/*
 * What is asked for is refused with a reason, or makes configurations whose other rules are those
 * of the base.
 */
#include "lib/config/config_keys.h"
#include "lib/config/config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char base_text[] =
	"{ \"targets\": [ { \"name\": \"a\", \"comm\": \"a\" }, { \"name\": \"c\", \"cgroup\": \"/c\" } ], \"rules\": "
	"[\n"
	"{ \"name\": \"hot\", \"metric\": \"cpu\", \"percent\": 80 },\n"
	"{ \"name\": \"big.one\", \"metric\": \"memory_bytes\", \"delta\": 40, \"targets\": [\"c\"] } ] }";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config *base;
	const struct config_source source = { .file = "base", .text = base_text, .len = sizeof(base_text) - 1 };
	char message[WHAT_IF_MESSAGE_MAX] = "", *text = strndup((const char *)data, size);
	struct what_if what_if = { 0 };
	int r;

	if (!text || (!base && config_parse(&source, 1, &base, NULL) < 0))
		abort();
	r = what_if_parse(&what_if, base, text, message);
	if (r != 0 && (r != -EINVAL || *message == '\0'))
		abort();
	for (size_t i = 0; i < what_if.count; i++) {
		const struct what_if_variant *variant = &what_if.variants[i];
		const struct config_rule *rules = variant->config.rules;

		if (variant->rule > 1 || strcmp(rules[variant->rule].name, base->rules[variant->rule].name) != 0 ||
		    !config_rule_same(&rules[1 - variant->rule], &base->rules[1 - variant->rule]) ||
		    (!rules[variant->rule].trigger.has_percent && !rules[variant->rule].trigger.has_delta))
			abort();
	}
	what_if_release(&what_if);
	free(text);

	return 0;
}
