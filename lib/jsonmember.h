/*
 * jsonmember.h: members of an object that is being written: a key and its value in one call. What goes wrong is kept by the writer (json.h).
 */
#ifndef SPIKEWATCH_JSONMEMBER_H
#define SPIKEWATCH_JSONMEMBER_H

#include "json.h"
#include "labels.h"

#include <stdbool.h>
#include <stdint.h>

/* NAN, which is no number, is written as null. */
void jsonmember_double(struct json_writer *json, const char *key, double value);
void jsonmember_u64(struct json_writer *json, const char *key, uint64_t value);
void jsonmember_i64(struct json_writer *json, const char *key, int64_t value);
void jsonmember_bool(struct json_writer *json, const char *key, bool value);
void jsonmember_null(struct json_writer *json, const char *key);

/* A text of strangers: printable_json. */
void jsonmember_text(struct json_writer *json, const char *key, const char *text);

/* An object with a member for each. */
void jsonmember_labels(struct json_writer *json, const char *key, const struct labels *labels);

/* Begin one, for json_end_object and json_end_array. */
void jsonmember_object(struct json_writer *json, const char *key);
void jsonmember_array(struct json_writer *json, const char *key);

#endif
