/*
 * json.h: JSON in, with comments and with the place of every value; JSON out. The only module that knows yajl.
 *
 * In: a document becomes a tree of nodes, each of which knows line and column, so that whoever interprets it can say
 * where. Size and depth are capped before yajl sees a byte too many; nothing recurses on the input.
 * Out: a sticky writer over a sink, which gets the last bytes when the writer is closed.
 */
#ifndef SPIKEWATCH_JSON_H
#define SPIKEWATCH_JSON_H

#include "jsontree.h" /* json_node, json_place, json_limits, json_error */
#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_document; /* owns every node */

/*
 * Parses text. 0; -ENOMEM; -EBADMSG, -EFBIG (too large), -ELOOP (too deep): *err says where and why. limits and err may
 * be NULL. text need not outlive the call.
 * Duplicate keys, invalid UTF-8, trailing text and truncated input are errors. C and C++ comments are allowed.
 */
int json_parse(const char *text, size_t len, const struct json_limits *limits, struct json_document **ret,
	       struct json_error *err);

/* Frees all nodes. NULL is fine. */
void json_document_free(struct json_document *document);

/* Never NULL. */
const struct json_node *json_root(const struct json_document *document);

/* The member called key of an object, NULL if there is none or node is no object. */
const struct json_node *json_member(const struct json_node *node, const char *key);

/* "null", "true or false", "a number", "a string", "an array", "an object". */
const char *json_type_name(enum json_type type);

/* ---- out ---- */

struct json_writer;

/* indent: pretty-printed over lines; else one line. The sink's ctx must outlive the writer. 0 or -ENOMEM. */
int json_writer_new(struct sink sink, bool indent, struct json_writer **ret);

/*
 * Each returns 0 or the first error (sticky). Calls that would not make valid JSON (a value without key in an
 * object) are our bugs and assert. Strings are bytes: what is not valid UTF-8 is written as U+FFFD. A number that
 * is NaN or infinite is written as null.
 */
int json_begin_object(struct json_writer *writer);
int json_end_object(struct json_writer *writer);
int json_begin_array(struct json_writer *writer);
int json_end_array(struct json_writer *writer);
int json_key(struct json_writer *writer, const char *key);
int json_string(struct json_writer *writer, const char *text);
int json_string_len(struct json_writer *writer, const char *text, size_t len);
int json_u64(struct json_writer *writer, uint64_t value);
int json_i64(struct json_writer *writer, int64_t value);
/* At most six decimals; very large and very small ones with an exponent. */
int json_double(struct json_writer *writer, double value);
int json_bool(struct json_writer *writer, bool value);
int json_null(struct json_writer *writer);

/* Writes the closing newline, frees the writer, returns the first error. NULL is fine. */
int json_writer_close(struct json_writer *writer);

#endif
