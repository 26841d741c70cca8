/*
 * jsontree.h: a JSON document as a tree whose nodes know their place, and how a parser builds one, token by token.
 * Nothing recurses on the depth of the document; all of it lives in one arena.
 */
#ifndef SPIKEWATCH_JSONTREE_H
#define SPIKEWATCH_JSONTREE_H

#include "arena.h"

#include <stdbool.h>
#include <stddef.h>

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

struct jsontree_item; /* a node and what building needs */

/* A tree, perhaps unfinished. */
struct jsontree {
	struct arena arena;
	struct json_limits limits;
	struct json_error *err;
	struct jsontree_item *root;
	struct jsontree_item *top; /* innermost open container */
	unsigned depth;
	unsigned nodes;
	const char *key; /* of the value to come */
	size_t key_len;
	struct json_place key_place;
	struct jsontree_item **members; /* hash table of the members of all objects */
	size_t member_mask;
};

/*
 * An empty tree for a text of len bytes; limits without zeros. err must outlive the building; it is set whenever a
 * function below fails. 0 or -ENOMEM.
 */
int jsontree_init(struct jsontree *tree, const struct json_limits *limits, size_t len, struct json_error *err);

/* Frees all nodes. A zeroed tree is fine. */
void jsontree_release(struct jsontree *tree);

/* Gives back what only the building needs. */
void jsontree_finish(struct jsontree *tree);

/* Notes an error in tree->err and returns it. */
int jsontree_refuse(const struct jsontree *tree, int error, struct json_place place, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * The tokens of a document that is known to be in good order. 0; -ENOMEM; -ELOOP, -EFBIG: beyond the limits;
 * -EBADMSG: a duplicate key, a number too large.
 */
int jsontree_open(struct jsontree *tree, enum json_type type, struct json_place place);
int jsontree_close(struct jsontree *tree);
int jsontree_key(struct jsontree *tree, struct json_place place, const char *text, size_t len);
int jsontree_literal(struct jsontree *tree, enum json_type type, struct json_place place, bool value);
int jsontree_text(struct jsontree *tree, enum json_type type, struct json_place place, const char *text, size_t len);

/* Moves a place over len bytes of text. */
void jsontree_walk(struct json_place *place, const char *text, size_t len);

/* The outermost node, NULL if there is none yet; the innermost open container, NULL outside of all. */
const struct json_node *jsontree_root(const struct jsontree *tree);
const struct json_node *jsontree_top(const struct jsontree *tree);

#endif
