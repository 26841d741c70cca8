/* labelnames.c: a name is made of each key first; then those that are not alone are numbered. */
#include "labelnames.h"

#include <stdio.h>
#include <string.h>

static bool is_capital(char byte)
{
	return byte >= 'A' && byte <= 'Z';
}

static bool is_small_or_digit(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9');
}

static void make(const char *key, char ret[LABELNAMES_ROOM])
{
	size_t len = (size_t)snprintf(ret, LABELNAMES_ROOM, "label_");

	for (char before = '_'; *key; before = *key++) {
		if (is_capital(*key) && is_small_or_digit(before))
			ret[len++] = '_';
		if (is_capital(*key))
			ret[len++] = (char)(*key - 'A' + 'a');
		else
			ret[len++] = is_small_or_digit(*key) ? *key : '_';
	}
	ret[len] = '\0';
}

void labelnames_make(const char *const *keys, size_t count, struct labelnames *ret)
{
	unsigned conflict[CONFIG_LABELS_MAX] = { 0 };

	ret->keys = keys;
	ret->count = count < CONFIG_LABELS_MAX ? count : CONFIG_LABELS_MAX;
	for (size_t i = 0; i < ret->count; i++)
		make(keys[i], ret->names[i]);
	for (size_t i = 0; i < ret->count; i++) {
		unsigned number = conflict[i];

		for (size_t k = i + 1; k < ret->count && number == 0; k++)
			if (strcmp(ret->names[i], ret->names[k]) == 0)
				conflict[i] = 1;
		for (size_t k = i + 1, next = 2; k < ret->count && conflict[i] == 1; k++)
			if (strcmp(ret->names[i], ret->names[k]) == 0)
				conflict[k] = (unsigned)next++;
	}
	for (size_t i = 0; i < ret->count; i++) {
		size_t len = strlen(ret->names[i]);

		if (conflict[i] > 0)
			snprintf(ret->names[i] + len, LABELNAMES_ROOM - len, "_conflict%u", conflict[i]);
	}
}
