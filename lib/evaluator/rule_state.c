/*
 * rule_state.c: a bounded table of (rule name, target key) -> struct trigger_memory, and its file:
 *
 * 	{"version": 1, "boot_id": "6f1c...", "entries": [
 * 	  {"rule": "hot", "key": "web:812@5123", "cooldown_until": 1764000000000000000, "count_since": ...,
 * 	   "count": 2, "fired": 17, "high_water": "97.5", "disarmed": false}, ...]}
 *
 * The entries are in a map and in a list by the time of their last put. The list says which entry to
 * drop when the table is full, and is the order of the file, so that this survives a restart too.
 * Colliding names can make a chain of the map long; the limit on entries bounds the cost, and
 * look-ups happen when a target appears or a rule fires, not for every window.
 *
 * Times are nanoseconds since 1970. high_water is text with 17 digits: the next value is compared
 * with exactly the one that fired. Names may hold any byte, JSON holds only UTF-8: bytes other than
 * printable ASCII, and '%', are written as %XX.
 *
 * Reading fills a second table, which replaces the first one once the whole file is valid.
 */
#include "lib/evaluator/rule_state.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the names in all entries together: names come from other processes. */
#define NAMES_BYTES_MAX (6u << 20)

/* No file larger than this is read; the limits of the table keep what is written below it. */
#define FILE_BYTES_MAX (32u << 20)

/* For the limits of the JSON parser: an entry has eight members, a later version may add some. */
#define NODES_PER_ENTRY 16

/* Every byte of the names as %XX, and 320 bytes for the rest of each entry. */
_Static_assert(3 * NAMES_BYTES_MAX + 320 * RULE_STATE_ENTRIES_MAX < FILE_BYTES_MAX, "the file has room for the table");

/* One allocation with its two names. */
struct table_entry {
	struct map_node node;
	struct table_entry *newer, *older;
	const char *rule;
	const char *key;
	size_t names_len;
	struct trigger_memory value;
};

/* {0} is empty. */
struct table {
	struct map map;
	size_t names_len; /* of all entries */
	struct table_entry *newest, *oldest;
};

enum { TABLE_SAME = 1 };

struct rule_state {
	char *boot_id;
	struct table table;
	bool changed; /* since the last save or load */
};

/* ---- the table ---- */

static uint64_t hash_names(const char *rule, const char *key)
{
	return map_hash(rule, strlen(rule)) * 31 + map_hash(key, strlen(key));
}

static struct table_entry *table_find(const struct table *table, uint64_t hash, const char *rule, const char *key)
{
	for (struct map_node *node = map_first(&table->map, hash); node; node = map_next(node)) {
		struct table_entry *entry = MAP_ENTRY(node, struct table_entry, node);

		if (strcmp(entry->rule, rule) == 0 && strcmp(entry->key, key) == 0)
			return entry;
	}
	return NULL;
}

static void list_remove(struct table *table, struct table_entry *entry)
{
	*(entry->newer ? &entry->newer->older : &table->newest) = entry->older;
	*(entry->older ? &entry->older->newer : &table->oldest) = entry->newer;
}

static void list_add_newest(struct table *table, struct table_entry *entry)
{
	entry->newer = NULL;
	entry->older = table->newest;
	*(table->newest ? &table->newest->newer : &table->oldest) = entry;
	table->newest = entry;
}

static void table_drop_oldest(struct table *table)
{
	struct table_entry *entry = table->oldest;

	map_remove(&table->map, &entry->node);
	list_remove(table, entry);
	table->names_len -= entry->names_len;
	free(entry);
}

static void table_release(struct table *table)
{
	while (table->oldest)
		table_drop_oldest(table);
	map_release(&table->map);
}

static struct table_entry *entry_new(const char *rule, const char *key)
{
	size_t rule_size = strlen(rule) + 1, key_size = strlen(key) + 1;
	struct table_entry *entry = calloc(1, sizeof(*entry) + rule_size + key_size);

	if (!entry)
		return NULL;

	char *names = (char *)(entry + 1);

	entry->names_len = rule_size + key_size;
	entry->rule = memcpy(names, rule, rule_size);
	entry->key = memcpy(names + rule_size, key, key_size);
	return entry;
}

/* Adds or replaces; drops the oldest to make room. 0; TABLE_SAME: it had this value; -ENOMEM. */
static int table_put(struct table *table, const char *rule, const char *key, const struct trigger_memory *value)
{
	uint64_t hash = hash_names(rule, key);
	struct table_entry *entry = table_find(table, hash, rule, key);

	if (entry) {
		list_remove(table, entry);
		list_add_newest(table, entry);
		if (trigger_memory_equal(&entry->value, value))
			return TABLE_SAME;
		entry->value = *value;
		return 0;
	}

	int r = map_reserve(&table->map, table->map.count + 1);
	if (r < 0)
		return r;
	entry = entry_new(rule, key);
	if (!entry)
		return -ENOMEM;

	while (table->oldest &&
	       (table->map.count >= RULE_STATE_ENTRIES_MAX || table->names_len + entry->names_len > NAMES_BYTES_MAX))
		table_drop_oldest(table);

	entry->value = *value;
	map_insert(&table->map, &entry->node, hash);
	list_add_newest(table, entry);
	table->names_len += entry->names_len;
	return 0;
}

/* ---- the object ---- */

int rule_state_new(const char *boot_id, struct rule_state **ret)
{
	AUTO_FREE struct rule_state *rule_state = calloc(1, sizeof(*rule_state));
	AUTO_FREE char *copy = strdup(boot_id);

	if (!rule_state || !copy)
		return -ENOMEM;

	rule_state->boot_id = TAKE(copy);
	*ret = TAKE(rule_state);
	return 0;
}

void rule_state_free(struct rule_state *rule_state)
{
	if (!rule_state)
		return;

	table_release(&rule_state->table);
	free(rule_state->boot_id);
	free(rule_state);
}

bool rule_state_changed(const struct rule_state *rule_state)
{
	return rule_state->changed;
}

bool rule_state_get(const struct rule_state *rule_state, const char *rule, const char *key, struct trigger_memory *ret)
{
	const struct table_entry *entry = table_find(&rule_state->table, hash_names(rule, key), rule, key);

	if (!entry)
		return false;
	*ret = entry->value;
	return true;
}

int rule_state_put(struct rule_state *rule_state, const char *rule, const char *key, const struct trigger_memory *value)
{
	int r = table_put(&rule_state->table, rule, key, value);

	rule_state->changed |= r == 0;
	return r < 0 ? r : 0;
}

/* ---- writing ---- */

static bool is_plain(unsigned char c)
{
	return c > ' ' && c < 0x7f && c != '%';
}

static int put_name(struct json_writer *writer, struct buffer *scratch, const char *name)
{
	static const char digits[] = "0123456789abcdef";

	scratch->len = 0;
	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		const char escape[] = { '%', digits[*p >> 4], digits[*p & 15] };
		int r = is_plain(*p) ? buffer_append(scratch, p, 1) : buffer_append(scratch, escape, sizeof(escape));

		if (r < 0)
			return r;
	}
	return json_string_len(writer, scratch->data ? scratch->data : "", scratch->len);
}

static int put_entry(struct json_writer *writer, struct buffer *scratch, const struct table_entry *entry)
{
	char high_water[40];
	int r;

	json_begin_object(writer);
	json_key(writer, "rule");
	r = put_name(writer, scratch, entry->rule);
	if (r < 0)
		return r;
	json_key(writer, "key");
	r = put_name(writer, scratch, entry->key);
	if (r < 0)
		return r;
	json_key(writer, "cooldown_until");
	json_u64(writer, entry->value.cooldown_until.ns);
	json_key(writer, "count_since");
	json_u64(writer, entry->value.count_since.ns);
	json_key(writer, "count");
	json_u64(writer, entry->value.count);
	json_key(writer, "fired");
	json_u64(writer, entry->value.fired);
	json_key(writer, "high_water");
	snprintf(high_water, sizeof(high_water), "%.17g", entry->value.high_water);
	json_string(writer, high_water);
	json_key(writer, "disarmed");
	json_bool(writer, entry->value.disarmed);
	return json_end_object(writer);
}

/* All of it as JSON, the oldest entry first. 0, -ENOMEM or the first error of the sink. */
static int rule_state_write(const struct rule_state *rule_state, struct sink sink)
{
	AUTO(buffer_release) struct buffer scratch = { 0 };
	struct json_writer *writer;
	int closed, r;

	r = json_writer_new(sink, true, &writer);
	if (r < 0)
		return r;

	json_begin_object(writer);
	json_key(writer, "version");
	json_u64(writer, 1);
	json_key(writer, "boot_id");
	json_string(writer, rule_state->boot_id);
	json_key(writer, "entries");
	r = json_begin_array(writer);
	for (const struct table_entry *entry = rule_state->table.oldest; entry && r == 0; entry = entry->newer)
		r = put_entry(writer, &scratch, entry);
	if (r == 0) {
		json_end_array(writer);
		json_end_object(writer);
	}

	closed = json_writer_close(writer);
	return r < 0 ? r : closed;
}

int rule_state_text(struct rule_state *rule_state, struct buffer *text)
{
	int r = rule_state_write(rule_state, sink_buffer(text));

	if (r == 0)
		rule_state->changed = false;
	return r;
}

/* ---- reading ---- */

/* What is read into, and where the reason of a refusal goes. */
struct reading {
	struct table *table;
	const char *boot_id; /* of this boot */
	bool same_boot;
	char *error;
	size_t cap;
};

static int refuse(const struct reading *reading, const struct json_node *at, const char *what, const char *expected)
{
	snprintf(reading->error, reading->cap, "line %u, column %u: \"%s\": expected %s", at->place.line,
		 at->place.column, what, expected);
	return -EBADMSG;
}

/* The member of an object, of the type it must have. */
static int member(const struct reading *reading, const struct json_node *object, const char *key, enum json_type type,
		  const struct json_node **ret)
{
	const struct json_node *node = json_member(object, key);

	if (!node)
		return refuse(reading, object, key, "this member");
	if (node->type != type)
		return refuse(reading, node, key, json_type_name(type));

	*ret = node;
	return 0;
}

static int read_u64(const struct reading *reading, const struct json_node *object, const char *key, uint64_t max,
		    uint64_t *ret)
{
	const struct json_node *node;
	const char *end;
	uint64_t value;
	int r = member(reading, object, key, JSON_NUMBER, &node);

	if (r < 0)
		return r;

	end = node->text + node->text_len;
	if (text_parse_u64(node->text, end, &value) != end || value > max)
		return refuse(reading, node, key, "a whole number that fits");

	*ret = value;
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* A name, its %XX turned back into bytes. The caller frees *ret. */
static int read_name(const struct reading *reading, const struct json_node *object, const char *key, char **ret)
{
	AUTO_FREE char *name = NULL;
	const struct json_node *node;
	size_t len = 0;
	int r = member(reading, object, key, JSON_STRING, &node);

	if (r < 0)
		return r;
	name = malloc(node->text_len + 1);
	if (!name)
		return -ENOMEM;

	for (size_t i = 0; i < node->text_len; i++) {
		unsigned char c = (unsigned char)node->text[i];

		if (c == '%') {
			int high = hex_digit(node->text[i + 1]); /* there is a NUL behind the text */
			int low = high < 0 ? -1 : hex_digit(node->text[i + 2]);

			c = (unsigned char)(low < 0 ? 0 : high * 16 + low);
			i += 2;
		}
		if (c == 0)
			return refuse(reading, node, key, "a name with bytes as %XX");
		name[len++] = (char)c;
	}
	name[len] = '\0';

	*ret = TAKE(name);
	return 0;
}

static int read_high_water(const struct reading *reading, const struct json_node *object, double *ret)
{
	const struct json_node *node;
	double value;
	char *end;
	int r = member(reading, object, "high_water", JSON_STRING, &node);

	if (r < 0)
		return r;

	value = strtod(node->text, &end);
	if (node->text_len == 0 || end != node->text + node->text_len || !isfinite(value))
		return refuse(reading, node, "high_water", "a finite number as text");

	*ret = value;
	return 0;
}

static int read_value(const struct reading *reading, const struct json_node *object, struct trigger_memory *ret)
{
	struct trigger_memory value = { 0 };
	const struct json_node *disarmed;
	uint64_t count = 0;
	int r;

	r = read_u64(reading, object, "cooldown_until", UINT64_MAX, &value.cooldown_until.ns);
	if (r == 0)
		r = read_u64(reading, object, "count_since", UINT64_MAX, &value.count_since.ns);
	if (r == 0)
		r = read_u64(reading, object, "count", UINT32_MAX, &count);
	if (r == 0)
		r = read_u64(reading, object, "fired", UINT64_MAX, &value.fired);
	if (r == 0)
		r = read_high_water(reading, object, &value.high_water);
	if (r == 0)
		r = member(reading, object, "disarmed", JSON_BOOL, &disarmed);
	if (r < 0)
		return r;

	value.count = (uint32_t)count;
	value.disarmed = disarmed->boolean;
	*ret = value;
	return 0;
}

/* True for keys that end in ":PID@TIME": a process, which does not outlive its boot. */
static bool is_process(const char *key)
{
	const char *at = strrchr(key, '@');
	const char *p = at;

	if (!at || at[1] == '\0' || at[1 + strspn(at + 1, "0123456789")] != '\0')
		return false;

	while (p > key && p[-1] >= '0' && p[-1] <= '9')
		p--;
	return p < at && p > key && p[-1] == ':';
}

static int read_entry(struct reading *reading, const struct json_node *node)
{
	AUTO_FREE char *rule = NULL;
	AUTO_FREE char *key = NULL;
	struct trigger_memory value;
	int r;

	if (node->type != JSON_OBJECT)
		return refuse(reading, node, "entries", json_type_name(JSON_OBJECT));

	r = read_name(reading, node, "rule", &rule);
	if (r == 0)
		r = read_name(reading, node, "key", &key);
	if (r == 0)
		r = read_value(reading, node, &value);
	if (r < 0)
		return r;

	if (is_process(key) && !reading->same_boot)
		return 0;
	r = table_put(reading->table, rule, key, &value);
	return r < 0 ? r : 0;
}

static int read_root(struct reading *reading, const struct json_node *root)
{
	const struct json_node *boot_id, *entries;
	uint64_t version;
	int r;

	if (root->type != JSON_OBJECT)
		return refuse(reading, root, "", json_type_name(JSON_OBJECT));

	r = read_u64(reading, root, "version", UINT64_MAX, &version);
	if (r == 0 && version != 1)
		r = refuse(reading, json_member(root, "version"), "version", "1");
	if (r == 0)
		r = member(reading, root, "boot_id", JSON_STRING, &boot_id);
	if (r == 0)
		r = member(reading, root, "entries", JSON_ARRAY, &entries);
	if (r < 0)
		return r;

	reading->same_boot = strcmp(boot_id->text, reading->boot_id) == 0;
	for (const struct json_node *node = entries->first; node; node = node->next) {
		r = read_entry(reading, node);
		if (r < 0)
			return r;
	}

	return 0;
}

/* As rule_state_load, of a text. */
static int rule_state_parse(struct rule_state *rule_state, const char *text, size_t len, char *error, size_t cap)
{
	static const struct json_limits limits = {
		.size_bytes = FILE_BYTES_MAX,
		.nodes = RULE_STATE_ENTRIES_MAX * NODES_PER_ENTRY,
	};
	AUTO(json_document_freep) struct json_document *document = NULL;
	AUTO(table_release) struct table fresh = { 0 };
	struct reading reading = { .table = &fresh, .boot_id = rule_state->boot_id, .error = error, .cap = cap };
	struct table old = rule_state->table;
	struct json_error where;
	int r;

	r = json_parse(text, len, &limits, &document, &where);
	if (r < 0 && r != -ENOMEM) {
		snprintf(error, cap, "line %u, column %u: %s", where.place.line, where.place.column, where.message);
		return -EBADMSG;
	}
	if (r < 0)
		return r;

	r = read_root(&reading, json_root(document));
	if (r < 0)
		return r;

	rule_state->table = fresh;
	rule_state->changed = !reading.same_boot;
	fresh = old;
	return 0;
}

int rule_state_load(struct rule_state *rule_state, int dirfd, const char *name, char *error, size_t cap)
{
	AUTO(buffer_release) struct buffer text = { .max = FILE_BYTES_MAX };
	int r = whole_file_read(dirfd, name, &text);

	if (r == -ENOENT)
		return 0;
	if (r == -EINVAL || r == -EFBIG) {
		snprintf(error, cap, r == -EINVAL ? "not a regular file" : "too large");
		return -EBADMSG;
	}
	if (r < 0)
		return r;

	return rule_state_parse(rule_state, text.data ? text.data : "", text.len, error, cap);
}
