/*
 * jsontree.c: nodes are hung under the innermost open container, at its end, so the tree is built and freed without
 * a walk. Members are also entered in one hash table for the whole document, keyed by (object, name): a document of
 * nothing but members of one object is still checked for duplicates in linear time. The table has its size from the
 * length of the text and never grows. Rejected: a table per object, most of which have five members.
 */
#include "jsontree.h"

#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a key in a message. */
#define SHOWN 64

struct jsontree_item {
	struct json_node node;
	struct jsontree_item *parent;
	struct jsontree_item *last;    /* child */
	struct jsontree_item *chained; /* next member in the same bucket */
};

void jsontree_walk(struct json_place *place, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool line_break = text[i] == '\n';

		place->line += line_break;
		place->column = line_break ? 1 : place->column + 1;
	}
}

int jsontree_refuse(const struct jsontree *tree, int error, struct json_place place, const char *format, ...)
{
	va_list args;

	tree->err->place = place;
	va_start(args, format);
	vsnprintf(tree->err->message, sizeof(tree->err->message), format, args);
	va_end(args);
	return error;
}

static int out_of_memory(const struct jsontree *tree, struct json_place place)
{
	return jsontree_refuse(tree, -ENOMEM, place, "out of memory");
}

int jsontree_init(struct jsontree *tree, const struct json_limits *limits, size_t len, struct json_error *err)
{
	size_t buckets = 16;

	*tree = (struct jsontree){ .limits = *limits, .err = err };
	/* A member takes at least five bytes, in practice twenty. */
	while (buckets < len / 16)
		buckets *= 2;
	tree->members = calloc(buckets, sizeof(struct jsontree_item *));
	tree->member_mask = buckets - 1;
	return tree->members != NULL ? 0 : out_of_memory(tree, (struct json_place){ 1, 1 });
}

void jsontree_finish(struct jsontree *tree)
{
	free(tree->members);
	tree->members = NULL;
	tree->err = NULL;
}

void jsontree_release(struct jsontree *tree)
{
	jsontree_finish(tree);
	arena_release(&tree->arena);
}

static struct jsontree_item **bucket(const struct jsontree *tree, const char *key, size_t len)
{
	uint64_t hash = 14695981039346656037ULL ^ (uintptr_t)tree->top; /* FNV-1a */

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)key[i]) * 1099511628211ULL;
	return &tree->members[(hash ^ hash >> 32) & tree->member_mask];
}

static void hang(struct jsontree *tree, struct jsontree_item *item)
{
	struct jsontree_item *top = tree->top;
	struct jsontree_item **slot;

	item->parent = top;
	if (top == NULL) {
		tree->root = item;
		return;
	}
	if (top->last == NULL)
		top->node.first = &item->node;
	else
		top->last->node.next = &item->node;
	top->last = item;
	top->node.count++;
	if (top->node.type != JSON_OBJECT)
		return;
	item->node.key = tree->key;
	item->node.key_len = tree->key_len;
	item->node.key_place = tree->key_place;
	slot = bucket(tree, tree->key, tree->key_len);
	item->chained = *slot;
	*slot = item;
}

static int add(struct jsontree *tree, enum json_type type, struct json_place place, struct jsontree_item **ret)
{
	struct jsontree_item *item;

	if (tree->nodes == tree->limits.nodes)
		return jsontree_refuse(tree, -EFBIG, place, "too many values: expected at most %u", tree->limits.nodes);
	item = arena_alloc(&tree->arena, sizeof(*item));
	if (item == NULL)
		return out_of_memory(tree, place);
	tree->nodes++;
	item->node.type = type;
	item->node.place = place;
	hang(tree, item);
	*ret = item;
	return 0;
}

int jsontree_open(struct jsontree *tree, enum json_type type, struct json_place place)
{
	struct jsontree_item *item;
	int r;

	if (tree->depth == tree->limits.depth)
		return jsontree_refuse(tree, -ELOOP, place, "nested too deep: expected at most %u levels",
				       tree->limits.depth);
	r = add(tree, type, place, &item);
	if (r < 0)
		return r;
	tree->top = item;
	tree->depth++;
	return 0;
}

int jsontree_close(struct jsontree *tree)
{
	tree->top = tree->top->parent;
	tree->depth--;
	return 0;
}

int jsontree_key(struct jsontree *tree, struct json_place place, const char *text, size_t len)
{
	char shown[SHOWN];

	for (struct jsontree_item *item = *bucket(tree, text, len); item != NULL; item = item->chained) {
		struct json_place first = item->node.key_place;

		if (item->parent != tree->top || item->node.key_len != len || memcmp(item->node.key, text, len) != 0)
			continue;
		text_escape(shown, sizeof(shown), text, len);
		return jsontree_refuse(tree, -EBADMSG, place,
				       "duplicate key \"%s\": already given at line %u, column %u", shown, first.line,
				       first.column);
	}
	tree->key = arena_copy(&tree->arena, text, len);
	tree->key_len = len;
	tree->key_place = place;
	return tree->key != NULL ? 0 : out_of_memory(tree, place);
}

int jsontree_literal(struct jsontree *tree, enum json_type type, struct json_place place, bool value)
{
	struct jsontree_item *item;
	int r = add(tree, type, place, &item);

	if (r == 0)
		item->node.boolean = value;
	return r;
}

int jsontree_text(struct jsontree *tree, enum json_type type, struct json_place place, const char *text, size_t len)
{
	struct jsontree_item *item;
	int r = add(tree, type, place, &item);

	if (r < 0)
		return r;
	item->node.text = arena_copy(&tree->arena, text, len);
	item->node.text_len = len;
	if (item->node.text == NULL)
		return out_of_memory(tree, place);
	if (type != JSON_NUMBER)
		return 0;
	/* In the C locale, which programs that never call setlocale(3) are in. */
	item->node.number = strtod(item->node.text, NULL);
	if (isinf(item->node.number))
		return jsontree_refuse(tree, -EBADMSG, place, "number too large: expected at most 1.7e308");
	return 0;
}

const struct json_node *jsontree_root(const struct jsontree *tree)
{
	return tree->root != NULL ? &tree->root->node : NULL;
}

const struct json_node *jsontree_top(const struct jsontree *tree)
{
	return tree->top != NULL ? &tree->top->node : NULL;
}
