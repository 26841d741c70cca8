/*
 * json.h: JSON in, with comments and with the place of every value; JSON out. The only module that
 * knows yajl.
 *
 * In: a document becomes a tree of nodes in one arena, each of which knows its line and column for
 * messages. Size and depth are limited before yajl sees a byte too many; nothing recurses on the
 * input. Out: a sticky writer over a sink, which gets the last bytes when the writer is closed, and
 * members of objects, a key and its value in one call.
 */
#ifndef SPIKEWATCH_LIB_BASE_JSON_H
#define SPIKEWATCH_LIB_BASE_JSON_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* A place in the text, counting from 1; columns count bytes. */
struct json_place {
	unsigned line;
	unsigned column;
};

struct json_node {
	enum json_type type;
	struct json_place place; /* of the value */
	const char *key;         /* NUL-terminated name in the enclosing object, else NULL */
	size_t key_len;          /* differs from strlen(key) if the key holds a NUL */
	struct json_place key_place;
	const char *text; /* STRING: NUL-terminated, unescaped; NUMBER: as written; else NULL */
	size_t text_len;
	bool boolean;            /* BOOL */
	double number;           /* NUMBER */
	size_t count;            /* ARRAY, OBJECT: number of children */
	struct json_node *first; /* first child */
	struct json_node *next;  /* next sibling, in order of appearance */
};

struct json_limits {
	size_t size_bytes; /* 0: 1 MiB */
	unsigned depth;    /* 0: 16 */
	unsigned nodes;    /* 0: 65,536 */
};

struct json_error {
	struct json_place place;
	char message[200]; /* what is wrong and what was expected, without place; printable */
};

struct json_document; /* owns every node */

/*
 * Parses text. 0; -ENOMEM; -EBADMSG, -EFBIG (too large), -ELOOP (too deep): *err says where and
 * why. limits and err may be NULL. text need not outlive the call. Duplicate keys, invalid UTF-8,
 * trailing text and truncated input are errors. C and C++ comments are allowed.
 */
int json_parse(const char *text, size_t len, const struct json_limits *limits, struct json_document **ret,
	       struct json_error *err);

/* Frees all nodes. NULL is fine. */
void json_document_free(struct json_document *document);
CLEANUP(json_document, free);

/* Never NULL. */
const struct json_node *json_root(const struct json_document *document);

/* The member called key of an object, NULL if there is none or node is no object. */
const struct json_node *json_member(const struct json_node *node, const char *key);

/* "null", "true or false", "a number", "a string", "an array", "an object". */
const char *json_type_name(enum json_type type);

/* ---- out ---- */

struct json_writer;

/*
 * indent: pretty-printed over lines; else one line. The sink's ctx must outlive the writer. 0 or
 * -ENOMEM.
 */
int json_writer_new(struct sink sink, bool indent, struct json_writer **ret);

/*
 * Each returns 0 or the first error (sticky). Calls that would not make valid JSON (a value without
 * key in an object) are our bugs and assert. Strings are bytes: what is not valid UTF-8 is written
 * as U+FFFD. A number that is NaN or infinite is written as null.
 */
int json_begin_object(struct json_writer *writer);
int json_end_object(struct json_writer *writer);
int json_begin_array(struct json_writer *writer);
int json_end_array(struct json_writer *writer);
int json_string(struct json_writer *writer, const char *text);
int json_string_len(struct json_writer *writer, const char *text, size_t len);
int json_u64(struct json_writer *writer, uint64_t value);
int json_i64(struct json_writer *writer, int64_t value);
/* At most six decimals; very large and very small ones with an exponent. */
int json_double(struct json_writer *writer, double value);
int json_bool(struct json_writer *writer, bool value);
int json_null(struct json_writer *writer);

static inline int json_key(struct json_writer *writer, const char *key)
{
	return json_string(writer, key);
}

/* Writes the closing newline, frees the writer, returns the first error. NULL is fine. */
int json_writer_close(struct json_writer *writer);
CLEANUP(json_writer, close);

/*
 * Untrusted strings as JSON that is safe on a terminal. JSON escapes the control characters below
 * 0x20 itself, but not the other hidden ones (text_is_hidden), which terminals obey.
 */

/*
 * Of a string with such characters no more than so many bytes are written: of a label's value
 * (target.h) all, which become half as many again at most.
 */
#define PRINTABLE_MAX 4096

/* json_string, with those characters replaced by U+FFFD. Returns as json_string. */
int printable_json(struct json_writer *writer, const char *text);

/* NAN, which is no number, is written as null. */
static inline void json_member_double(struct json_writer *json, const char *key, double value)
{
	json_key(json, key);
	json_double(json, value);
}

static inline void json_member_u64(struct json_writer *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_u64(json, value);
}

static inline void json_member_i64(struct json_writer *json, const char *key, int64_t value)
{
	json_key(json, key);
	json_i64(json, value);
}

static inline void json_member_bool(struct json_writer *json, const char *key, bool value)
{
	json_key(json, key);
	json_bool(json, value);
}

static inline void json_member_null(struct json_writer *json, const char *key)
{
	json_key(json, key);
	json_null(json);
}

/* An untrusted text: printable_json. */
static inline void json_member_text(struct json_writer *json, const char *key, const char *text)
{
	json_key(json, key);
	printable_json(json, text);
}

/* Begin one, for json_end_object and json_end_array. */
static inline void json_member_object(struct json_writer *json, const char *key)
{
	json_key(json, key);
	json_begin_object(json);
}

static inline void json_member_array(struct json_writer *json, const char *key)
{
	json_key(json, key);
	json_begin_array(json);
}

#endif
