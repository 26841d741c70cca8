/* jsonmember.c: one home for what every writer of JSON needs. */
#include "jsonmember.h"

#include "printable.h"

void jsonmember_double(struct json_writer *json, const char *key, double value)
{
	json_key(json, key);
	json_double(json, value);
}

void jsonmember_u64(struct json_writer *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_u64(json, value);
}

void jsonmember_i64(struct json_writer *json, const char *key, int64_t value)
{
	json_key(json, key);
	json_i64(json, value);
}

void jsonmember_bool(struct json_writer *json, const char *key, bool value)
{
	json_key(json, key);
	json_bool(json, value);
}

void jsonmember_null(struct json_writer *json, const char *key)
{
	json_key(json, key);
	json_null(json);
}

void jsonmember_text(struct json_writer *json, const char *key, const char *text)
{
	json_key(json, key);
	printable_json(json, text);
}

void jsonmember_labels(struct json_writer *json, const char *key, const struct labels *labels)
{
	jsonmember_object(json, key);
	for (const char *at = labels_next(labels, NULL); at; at = labels_next(labels, at))
		jsonmember_text(json, at, labels_value(at));
	json_end_object(json);
}

void jsonmember_object(struct json_writer *json, const char *key)
{
	json_key(json, key);
	json_begin_object(json);
}

void jsonmember_array(struct json_writer *json, const char *key)
{
	json_key(json, key);
	json_begin_array(json);
}
