/* The first line is what the placeholders stand for, the rest is a word. */
#include "lib/config/config_keys.c"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size), *word, *buf, safe[COMMAND_TEMPLATE_SAFE_MAX];
	struct command_template_values values;
	size_t at = 0, len;

	if (!text)
		return 0;
	word = strchr(text, '\n');
	word = word ? word : text;
	if (*word)
		*word++ = '\0';
	for (size_t i = 0; i < COMMAND_TEMPLATE_PLACEHOLDERS; i++)
		values.text[i] = i == COMMAND_TEMPLATE_NAME ? NULL : command_template_safe(text, safe);

	if (command_template_check(word, COMMAND_TEMPLATE_HOST, &at) < 0 && word[at] != '{')
		abort();
	len = command_template_expand(word, &values, NULL, 0);
	/* In exactly the room that it needs, and in less. */
	for (size_t cap = len + 1; cap > 0; cap = cap > 8 ? cap / 2 : cap - 1) {
		buf = malloc(cap);
		if (buf && (command_template_expand(word, &values, buf, cap) != len || strlen(buf) >= cap ||
			    (cap == len + 1 && strlen(buf) != len)))
			abort();
		free(buf);
	}
	free(text);

	return 0;
}
