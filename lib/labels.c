/*
 * labels.c: keys and values one after the other, sorted by key, each with its NUL. Adding moves what follows; there are few, and they are added once.
 *
 * When room is short the longest goes: those that people select by are short, and what an image says of its licence is not. The order in which labels
 * come then hardly matters, and it is a hash table's. But what an image brings takes no room from a pod's: who makes images would else choose
 * what the pods that use them are called.
 */
#include "labels.h"

#include <stdbool.h>
#include <string.h>

static size_t size_of(const char *key)
{
	size_t len = strlen(key) + 1;

	return len + strlen(key + len) + 1;
}

const char *labels_next(const struct labels *labels, const char *key)
{
	const char *next = key ? key + size_of(key) : labels->text;

	return next < labels->text + labels->len ? next : NULL;
}

const char *labels_value(const char *key)
{
	return key + strlen(key) + 1;
}

const char *labels_get(const struct labels *labels, const char *key)
{
	for (const char *at = labels_next(labels, NULL); at; at = labels_next(labels, at))
		if (strcmp(at, key) == 0)
			return labels_value(at);

	return NULL;
}

static bool is_key(const char *key, size_t len)
{
	if (len == 0 || len > LABELS_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] >= 0x7f)
			return false;

	return true;
}

static void drop(struct labels *labels, const char *key)
{
	char *at = labels->text + (key - labels->text);
	size_t size = size_of(key);

	memmove(at, at + size, (size_t)(labels->text + labels->len - (at + size)));
	labels->len = (uint16_t)(labels->len - size);
	labels->count--;
	labels->left_out++;
}

/* The longest that may go; NULL: there is none. */
static const char *longest_but(const struct labels *labels, const struct labels *kept)
{
	const char *longest = NULL;

	for (const char *at = labels_next(labels, NULL); at; at = labels_next(labels, at))
		if ((!longest || size_of(at) > size_of(longest)) && !(kept && labels_get(kept, at)))
			longest = at;

	return longest;
}

/* Drops longer ones until size more bytes fit. False: there is none that is longer. */
static bool make_room(struct labels *labels, size_t size, const struct labels *kept)
{
	while (labels->count == LABELS_MAX || labels->len + size > LABELS_BYTES_MAX) {
		const char *longest = longest_but(labels, kept);

		if (!longest || size_of(longest) <= size)
			return false;
		drop(labels, longest);
	}

	return true;
}

/* Where the key belongs. True: it is there already. */
static bool find(const struct labels *labels, const char *key, size_t len, size_t *ret)
{
	const char *at = labels_next(labels, NULL);
	int order = -1;

	for (; at; at = labels_next(labels, at)) {
		order = strncmp(at, key, len);
		if (order == 0)
			order = at[len] != '\0';
		if (order >= 0)
			break;
	}
	*ret = at ? (size_t)(at - labels->text) : labels->len;

	return at && order == 0;
}

struct pair {
	const char *key, *value;
	size_t key_len, value_len;
};

/* kept: those that do not give way; NULL: all do. */
static void add(struct labels *labels, const struct pair *pair, const struct labels *kept)
{
	const char *key = pair->key, *value = pair->value;
	size_t key_len = pair->key_len, value_len = pair->value_len;
	size_t size = key_len + value_len + 2, at;

	if (!is_key(key, key_len) || value_len >= LABELS_BYTES_MAX || memchr(value, '\0', value_len)) {
		labels->left_out++;
		return;
	}
	if (find(labels, key, key_len, &at))
		return;
	if (!make_room(labels, size, kept)) {
		labels->left_out++;
		return;
	}

	find(labels, key, key_len, &at);
	memmove(labels->text + at + size, labels->text + at, labels->len - at);
	memcpy(labels->text + at, key, key_len);
	at += key_len;
	labels->text[at++] = '\0';
	for (size_t i = 0; i < value_len; i++)
		labels->text[at++] = (unsigned char)value[i] < ' ' || value[i] == 0x7f ? '_' : value[i];
	labels->text[at] = '\0';
	labels->len = (uint16_t)(labels->len + size);
	labels->count++;
}

void labels_add(struct labels *labels, const char *key, size_t key_len, const char *value, size_t value_len)
{
	add(labels, &(struct pair){ key, value, key_len, value_len }, NULL);
}

void labels_merge(struct labels *labels, const struct labels *other)
{
	struct labels kept;

	labels_copy(&kept, labels);
	for (const char *key = labels_next(other, NULL); key; key = labels_next(other, key)) {
		const char *value = labels_value(key);

		add(labels, &(struct pair){ key, value, strlen(key), strlen(value) }, &kept);
	}
	labels->left_out += other->left_out;
}

size_t labels_size(const struct labels *labels)
{
	return offsetof(struct labels, text) + labels->len;
}

void labels_copy(struct labels *ret, const struct labels *labels)
{
	memcpy(ret, labels, labels_size(labels));
}
