/* answer.c: each looks for its type and for nothing else. */
#include "answer.h"

/* Of nothing, nothing. */
const struct json_node *answer_member(const struct json_node *node, const char *key)
{
	return node ? json_member(node, key) : NULL;
}

double answer_number(const struct json_node *node, const char *key, double otherwise)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_NUMBER ? found->number : otherwise;
}

const char *answer_text(const struct json_node *node, const char *key)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_STRING ? found->text : "";
}

bool answer_is_true(const struct json_node *node, const char *key)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_BOOL && found->boolean;
}

/* What cannot be a count or a time becomes 0. */
uint64_t answer_whole(const struct json_node *node, const char *key)
{
	double number = answer_number(node, key, 0);

	return number > 0 && number < 1e19 ? (uint64_t)number : 0;
}

const struct json_node *answer_first(const struct json_node *node, const char *key)
{
	const struct json_node *found = answer_member(node, key);

	return found && found->type == JSON_ARRAY ? found->first : NULL;
}

const char *answer_duration(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX])
{
	return units_format_duration(buf, UNITS_TEXT_MAX, answer_whole(node, key));
}

const char *answer_bytes(const struct json_node *node, const char *key, char buf[UNITS_TEXT_MAX])
{
	return units_format_bytes(buf, UNITS_TEXT_MAX, answer_whole(node, key));
}
