/*
 * In our own format a description says the number of its column, so every line helps on its own: a lost column
 * header is made up for by the descriptions, a lost description costs the description and not the name.
 *
 * In gVisor's format descriptions have an order only, and a lost one would shift the rest. So they are held
 * until the column header has said the names; if that is lost, until a row shows that there are as many of them
 * as values.
 */
#include "salvage_columns.h"

#include "text.h"

#include <string.h>

/* json: NULL if there is none. */
static void learn(struct salvage_columns *columns, size_t index, const char *name, size_t len, const char *json)
{
	char *known = columns->names[index];
	uint32_t bit = 1u << index;
	bool same = strlen(known) == len && memcmp(known, name, len) == 0;

	if (same && (columns->known & bit || !json))
		return;
	memcpy(known, name, len);
	known[len] = '\0';
	columns->json[index] = json;
	columns->known = json ? columns->known | bit : columns->known & ~bit;
	columns->news |= bit;
}

static bool hold(struct salvage_columns *columns, const char *name, size_t len, const char *json)
{
	struct salvage_columns_held *held = &columns->held[columns->held_count];

	if (columns->held_count == STREAM_COLUMNS_MAX)
		return false;
	columns->held_count++;
	memcpy(held->name, name, len);
	held->name[len] = '\0';
	held->json[0] = '\0';
	if (strlen(json) <= SALVAGE_COLUMNS_JSON_MAX)
		memcpy(held->json, json, strlen(json) + 1);
	return true;
}

/* "cpu\t{\"column\":0,\"unit\":\"ns\",\"kind\":\"counter\",\"description\":\"CPU time\"}" */
bool salvage_columns_describe(struct salvage_columns *columns, enum stream_format format, const char *text)
{
	static const char member[] = "{\"column\":";
	size_t len = strcspn(text, "\t");
	const char *json = text + len + 1;
	uint64_t index;

	columns->news = 0;
	if (!len || len > STREAM_NAME_MAX || !text[len])
		return false;
	if (format == STREAM_GVISOR)
		return hold(columns, text, len, json);

	if (strncmp(json, member, strlen(member)) != 0 ||
	    !text_parse_u64(json + strlen(member), json + strlen(json), &index) || index >= STREAM_COLUMNS_MAX)
		return false;
	learn(columns, index, text, len, json);
	return true;
}

/* How many names there are up to end; 0 if one of them, or their number, makes no sense. */
static size_t count_names(const char *text, const char *end)
{
	size_t n = 0;

	for (const char *p = text; p <= end; n++) {
		size_t len = strcspn(p, "\t");

		if (!len || len > STREAM_NAME_MAX)
			return 0;
		p += len + 1;
	}
	return n <= STREAM_COLUMNS_MAX ? n : 0;
}

static const char *held_json(const struct salvage_columns *columns, const char *name, size_t len)
{
	for (size_t i = 0; i < columns->held_count; i++) {
		const struct salvage_columns_held *held = &columns->held[i];

		if (strlen(held->name) == len && memcmp(held->name, name, len) == 0)
			return *held->json ? held->json : NULL;
	}
	return NULL;
}

/* "cpu\tmemory", and in gVisor's format "cpu\tmemory\tChecksum" */
bool salvage_columns_name(struct salvage_columns *columns, enum stream_format format, const char *text)
{
	const char *last = strrchr(text, '\t'), *end = text + strlen(text);

	columns->news = 0;
	if (format == STREAM_GVISOR && last && strcmp(last, "\tChecksum") == 0)
		end = last;
	size_t n = count_names(text, end);
	if (!n)
		return false;

	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(text, "\t");

		learn(columns, i, text, len, held_json(columns, text, len));
		text += len + 1;
	}
	columns->count = n;
	columns->named = true;
	return true;
}

bool salvage_columns_fit(struct salvage_columns *columns, enum stream_format format, size_t count)
{
	columns->news = 0;
	if (columns->count || (format == STREAM_GVISOR && columns->held_count != count))
		return columns->count == count;

	columns->count = count;
	for (size_t i = 0; i < columns->held_count; i++)
		learn(columns, i, columns->held[i].name, strlen(columns->held[i].name),
		      *columns->held[i].json ? columns->held[i].json : NULL);
	return true;
}
