/* targetjson.c: member by member; what is none of ours reads as an empty target. */
#include "targetjson.h"

#include <string.h>

/* Start times above it are no whole numbers in a double, and no clock has ticked so often. */
#define TICKS_MAX 9e15

static const char *text_of(const struct json_node *object, const char *key)
{
	const struct json_node *node = json_member(object, key);

	return node && node->type == JSON_STRING ? node->text : "";
}

double targetjson_number(const struct json_node *object, const char *key, double max)
{
	const struct json_node *node = json_member(object, key);

	return node && node->type == JSON_NUMBER && node->number >= 0 && node->number <= max ? node->number : 0;
}

struct target targetjson_read(const struct json_node *object, uint32_t id)
{
	struct target target = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)targetjson_number(object, "pid", INT32_MAX),
		.start_ticks = (uint64_t)targetjson_number(object, "start_ticks", TICKS_MAX),
		.entry = text_of(object, "entry"),
		.name = text_of(object, "name"),
		.key = text_of(object, "key"),
		.comm = text_of(object, "comm"),
		.cmdline = text_of(object, "cmdline"),
		.cgroup = text_of(object, "cgroup"),
		.container = text_of(object, "container"),
	};

	for (unsigned kind = TARGET_PROCESS; kind <= TARGET_GROUP; kind++)
		if (strcmp(text_of(object, "kind"), target_kind_name((enum target_kind)kind)) == 0)
			target.kind = (enum target_kind)kind;
	return target;
}
