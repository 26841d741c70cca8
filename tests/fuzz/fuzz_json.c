/*
 * Whatever is read has true places, and comes back the same after it was written; whatever is
 * refused says why, at a place in the text.
 */
#include "lib/base/json.h"
#include "lib/base/io.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

/* The rest of the text from a place on. */
static const char *at(const char *text, size_t size, struct json_place place)
{
	const char *end = text + size;

	for (unsigned line = 1; line < place.line; line++) {
		text = memchr(text, '\n', (size_t)(end - text));
		require(text != NULL);
		text++;
	}
	require(place.column >= 1 && place.column - 1 <= (size_t)(end - text));
	return text + place.column - 1;
}

static void check_places(const char *text, size_t size, const struct json_node *node)
{
	static const char *const first[] = { "n", "tf", "-0123456789", "\"", "[", "{" };

	require(strchr(first[node->type], *at(text, size, node->place)) != NULL);
	require(node->key == NULL || *at(text, size, node->key_place) == '"');
	for (const struct json_node *child = node->first; child != NULL; child = child->next)
		check_places(text, size, child);
}

static void write_node(struct json_writer *writer, const struct json_node *node)
{
	if (node->type == JSON_NULL)
		json_null(writer);
	if (node->type == JSON_BOOL)
		json_bool(writer, node->boolean);
	if (node->type == JSON_NUMBER)
		json_double(writer, node->number);
	if (node->type == JSON_STRING)
		json_string_len(writer, node->text, node->text_len);
	if (node->type == JSON_ARRAY)
		json_begin_array(writer);
	if (node->type == JSON_OBJECT)
		json_begin_object(writer);
	for (const struct json_node *child = node->first; child != NULL; child = child->next) {
		if (child->key != NULL)
			json_string_len(writer, child->key, child->key_len);
		write_node(writer, child);
	}
	if (node->type == JSON_ARRAY)
		json_end_array(writer);
	if (node->type == JSON_OBJECT)
		json_end_object(writer);
}

static void require_same(const struct json_node *a, const struct json_node *b)
{
	require(a->type == b->type && a->count == b->count && a->key_len == b->key_len && a->boolean == b->boolean);
	require(a->key == NULL || memcmp(a->key, b->key, a->key_len) == 0);
	if (a->type == JSON_STRING)
		require(a->text_len == b->text_len && memcmp(a->text, b->text, a->text_len) == 0);
	for (a = a->first, b = b->first; a != NULL; a = a->next, b = b->next)
		require_same(a, b);
}

static void write_and_read(const struct json_node *root, bool indent)
{
	struct buffer buffer = { 0 };
	struct json_document *document;
	struct json_writer *writer;

	require(json_writer_new(sink_buffer(&buffer), indent, &writer) == 0);
	write_node(writer, root);
	require(json_writer_close(writer) == 0);
	require(buffer.data[buffer.len - 1] == '\n');
	require(json_parse(buffer.data, buffer.len, &(struct json_limits){ .size_bytes = SIZE_MAX }, &document, NULL) ==
		0);
	require_same(root, json_root(document));
	json_document_free(document);
	buffer_release(&buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct json_document *document;
	struct json_error err;

	if (json_parse(text, size, NULL, &document, &err) == 0) {
		check_places(text, size, json_root(document));
		write_and_read(json_root(document), false);
		write_and_read(json_root(document), true);
		json_document_free(document);
		return 0;
	}
	require(err.message[0] != '\0');
	for (const char *c = err.message; *c != '\0'; c++)
		require((unsigned char)*c >= 0x20 && *c != 0x7f);
	if (size > 0)
		at(text, size, err.place);
	return 0;
}
