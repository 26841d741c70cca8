/*
 * labels.h: the labels of a container, or of its pod: names and values that whoever started it chose. A value of bounded size. Pure.
 *
 * Keys are of visible ASCII without spaces, so that they can be keys of anything; values may hold any byte but control characters, and whoever prints them
 * escapes the rest. What does not fit is left out as a whole and counted: a value that is cut would be another value.
 */
#ifndef SPIKEWATCH_LABELS_H
#define SPIKEWATCH_LABELS_H

#include <stddef.h>
#include <stdint.h>

/* Of one container. A pod has five to fifteen labels of 20 to 60 bytes; images may bring pages of text. */
#define LABELS_MAX 64u
#define LABELS_BYTES_MAX 2048u /* of all keys and values, with a NUL after each */
#define LABELS_KEY_MAX 317u    /* what Kubernetes allows: a prefix of 253, a slash, a name of 63 */

/* {0} has none. Sorted by key. */
struct labels {
	uint16_t count, len;
	uint32_t left_out; /* that did not fit, or whose key is no key */
	char text[LABELS_BYTES_MAX];
};

/*
 * Adds one; a key that is there keeps its value. Control characters in the value become "_". When there is no room, the longest of all is left out. A
 * key that is empty, too long or not visible ASCII, and what holds a NUL, is left out as well.
 */
void labels_add(struct labels *labels, const char *key, size_t key_len, const char *value, size_t value_len);

/* Adds those of other whose keys are not there, and what it had left out. None that is there gives way to one of other's, however short. */
void labels_merge(struct labels *labels, const struct labels *other);

/* The first key (key NULL), or the one after key, which is one of these labels'. NULL: no more. */
const char *labels_next(const struct labels *labels, const char *key);

/* The value of a key that labels_next has given. */
const char *labels_value(const char *key);

/* The value of that key; NULL: there is no such label. */
const char *labels_get(const struct labels *labels, const char *key);

/* The bytes of a struct labels that are in use: it may be kept in so many, and is then only read. Copies those. */
size_t labels_size(const struct labels *labels);
void labels_copy(struct labels *ret, const struct labels *labels);

#endif
