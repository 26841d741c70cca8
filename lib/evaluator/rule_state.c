/*
 * rule_state.c: the file of a rule state table.
 *
 * 	{"version": 1, "boot_id": "6f1c...", "entries": [
 * 	  {"rule": "hot", "key": "web:812@5123", "cooldown_until": 1764000000000000000, "count_since": ...,
 *    "count": 2,
 * 	   "fired": 17, "high_water": "97.5", "disarmed": false}, ...]}
 *
 * Entries are written stalest first, so staleness survives a restart too. Times are nanoseconds
 * since 1970. high_water is text with 17 digits, because the next value must be compared with
 * exactly the one that fired. Names hold whatever bytes a stranger's process is called, JSON holds
 * only UTF-8: bytes other than printable ASCII, and '%', are written as %XX.
 *
 * Reading fills a second table and exchanges the two when all of it was found good: half a file is
 * never believed.
 */
#include "lib/evaluator/rule_state.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
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

/*
 * Bytes of the names in all entries together: what strangers call their processes takes no more
 * memory than this.
 */
#define RULE_STATE_TABLE_NAMES_MAX (6u << 20)

/*
 * No file larger than this is read. The table is bounded so that none is written
 * (rule_state_table.h).
 */
#define RULE_STATE_FILE_MAX (32u << 20)

/*
 * rule_state_table.c: entries are in a hash table and, at the same time, in a list ordered by the
 * last put.
 *
 * The list gives the stalest to drop, the order in which a file is written, and a way to fill
 * larger buckets. An entry and its two names are one allocation. Chains may get long if somebody
 * crafts names that collide: the limit on entries bounds what that costs, and look-ups happen when
 * a target appears or a rule fires, not for every window.
 */

#define RULE_STATE_TABLE_BUCKETS_MIN 64

struct rule_state_table {
	struct rule_state_table_entry **buckets; /* bucket_count of them: a power of two, or 0 */
	size_t bucket_count;
	size_t count;
	size_t names_len; /* of all entries */
	struct rule_state_table_entry *freshest, *stalest;
};

int rule_state_table_new(struct rule_state_table **ret)
{
	struct rule_state_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;

	*ret = table;
	return 0;
}

void rule_state_table_free(struct rule_state_table *table)
{
	struct rule_state_table_entry *staler;

	if (!table)
		return;

	for (struct rule_state_table_entry *entry = table->freshest; entry; entry = staler) {
		staler = entry->staler;
		free(entry);
	}
	free(table->buckets);
	free(table);
}

size_t rule_state_table_count(const struct rule_state_table *table)
{
	return table->count;
}

const struct rule_state_table_entry *rule_state_table_stalest(const struct rule_state_table *table)
{
	return table->stalest;
}

const struct rule_state_table_entry *rule_state_table_fresher(const struct rule_state_table_entry *entry)
{
	return entry->fresher;
}

/* FNV-1a over both names with their NULs. */
static uint32_t hash_names(const char *rule, const char *key)
{
	const char *const names[] = { rule, key };
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const unsigned char *p = (const unsigned char *)names[i];

		do
			hash = (hash ^ *p) * 16777619u;
		while (*p++);
	}
	return hash;
}

static struct rule_state_table_entry **bucket_of(const struct rule_state_table *table, uint32_t hash)
{
	return &table->buckets[hash & (table->bucket_count - 1)];
}

static struct rule_state_table_entry *find(const struct rule_state_table *table, uint32_t hash, const char *rule,
					   const char *key)
{
	if (table->bucket_count == 0)
		return NULL;

	for (struct rule_state_table_entry *entry = *bucket_of(table, hash); entry; entry = entry->chain)
		if (entry->hash == hash && strcmp(entry->rule, rule) == 0 && strcmp(entry->key, key) == 0)
			return entry;
	return NULL;
}

static void list_remove(struct rule_state_table *table, struct rule_state_table_entry *entry)
{
	*(entry->fresher ? &entry->fresher->staler : &table->freshest) = entry->staler;
	*(entry->staler ? &entry->staler->fresher : &table->stalest) = entry->fresher;
}

static void list_add_freshest(struct rule_state_table *table, struct rule_state_table_entry *entry)
{
	entry->fresher = NULL;
	entry->staler = table->freshest;
	*(table->freshest ? &table->freshest->fresher : &table->stalest) = entry;
	table->freshest = entry;
}

static void bucket_add(struct rule_state_table *table, struct rule_state_table_entry *entry)
{
	struct rule_state_table_entry **bucket = bucket_of(table, entry->hash);

	entry->chain = *bucket;
	*bucket = entry;
}

static void drop_stalest(struct rule_state_table *table)
{
	struct rule_state_table_entry *entry = table->stalest;
	struct rule_state_table_entry **link = bucket_of(table, entry->hash);

	while (*link != entry)
		link = &(*link)->chain;
	*link = entry->chain;

	list_remove(table, entry);
	table->count--;
	table->names_len -= entry->names_len;
	free(entry);
}

/* Makes room for one more entry in the buckets. */
static int reserve(struct rule_state_table *table)
{
	size_t count = table->bucket_count ? table->bucket_count * 2 : RULE_STATE_TABLE_BUCKETS_MIN;
	struct rule_state_table_entry **buckets;

	if (table->count < table->bucket_count)
		return 0;

	buckets = calloc(count, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;

	free(table->buckets);
	table->buckets = buckets;
	table->bucket_count = count;
	for (struct rule_state_table_entry *entry = table->freshest; entry; entry = entry->staler)
		bucket_add(table, entry);
	return 0;
}

static struct rule_state_table_entry *entry_new(uint32_t hash, const char *rule, const char *key)
{
	size_t rule_size = strlen(rule) + 1, key_size = strlen(key) + 1;
	struct rule_state_table_entry *entry = calloc(1, sizeof(*entry) + rule_size + key_size);

	char *names;

	if (!entry)
		return NULL;

	entry->hash = hash;
	entry->names_len = rule_size + key_size;
	names = (char *)(entry + 1);
	memcpy(names, rule, rule_size);
	memcpy(names + rule_size, key, key_size);
	entry->rule = names;
	entry->key = names + rule_size;
	return entry;
}

bool rule_state_table_get(const struct rule_state_table *table, const char *rule, const char *key,
			  struct trigger_memory *ret)
{
	const struct rule_state_table_entry *entry = find(table, hash_names(rule, key), rule, key);

	if (!entry)
		return false;

	*ret = entry->value;
	return true;
}

int rule_state_table_put(struct rule_state_table *table, const char *rule, const char *key,
			 const struct trigger_memory *value)
{
	uint32_t hash = hash_names(rule, key);
	struct rule_state_table_entry *entry = find(table, hash, rule, key);
	int r;

	if (entry) {
		list_remove(table, entry);
		list_add_freshest(table, entry);
		if (trigger_memory_equal(&entry->value, value))
			return RULE_STATE_TABLE_SAME;

		entry->value = *value;
		return 0;
	}

	r = reserve(table);
	if (r < 0)
		return r;
	entry = entry_new(hash, rule, key);
	if (!entry)
		return -ENOMEM;

	while (table->count > 0 && (table->count >= RULE_STATE_TABLE_ENTRIES_MAX ||
				    table->names_len + entry->names_len > RULE_STATE_TABLE_NAMES_MAX))
		drop_stalest(table);

	entry->value = *value;
	bucket_add(table, entry);
	list_add_freshest(table, entry);
	table->count++;
	table->names_len += entry->names_len;
	return 0;
}

/* Of an entry with eight members, and of members that a later version may add. */
#define RULE_STATE_NODES_PER_ENTRY 16

/*
 * Every byte of the names as %XX, and 320 bytes for the rest of each entry: no file is written that
 * is not read again.
 */
_Static_assert(3 * RULE_STATE_TABLE_NAMES_MAX + 320 * RULE_STATE_TABLE_ENTRIES_MAX < RULE_STATE_FILE_MAX,
	       "the file has room for the table");

struct rule_state {
	char *boot_id;
	struct rule_state_table *table;
	bool changed;
};

int rule_state_new(const char *boot_id, struct rule_state **ret)
{
	AUTO_FREE struct rule_state *rule_state = calloc(1, sizeof(*rule_state));
	AUTO_FREE char *copy = strdup(boot_id);
	int r;

	if (!rule_state || !copy)
		return -ENOMEM;
	r = rule_state_table_new(&rule_state->table);
	if (r < 0)
		return r;

	rule_state->boot_id = TAKE(copy);
	*ret = TAKE(rule_state);
	return 0;
}

void rule_state_free(struct rule_state *rule_state)
{
	if (!rule_state)
		return;

	rule_state_table_free(rule_state->table);
	free(rule_state->boot_id);
	free(rule_state);
}

bool rule_state_changed(const struct rule_state *rule_state)
{
	return rule_state->changed;
}

size_t rule_state_count(const struct rule_state *rule_state)
{
	return rule_state_table_count(rule_state->table);
}

bool rule_state_get(const struct rule_state *rule_state, const char *rule, const char *key, struct trigger_memory *ret)
{
	return rule_state_table_get(rule_state->table, rule, key, ret);
}

int rule_state_put(struct rule_state *rule_state, const char *rule, const char *key, const struct trigger_memory *value)
{
	int r = rule_state_table_put(rule_state->table, rule, key, value);

	if (r == RULE_STATE_TABLE_SAME)
		return 0;
	if (r == 0)
		rule_state->changed = true;
	return r;
}

/* ---- out ---- */

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

static int put_entry(struct json_writer *writer, struct buffer *scratch, const struct rule_state_table_entry *entry)
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

int rule_state_write(const struct rule_state *rule_state, struct sink sink)
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
	for (const struct rule_state_table_entry *entry = rule_state_table_stalest(rule_state->table); entry && r == 0;
	     entry = rule_state_table_fresher(entry))
		r = put_entry(writer, &scratch, entry);
	if (r == 0) {
		json_end_array(writer);
		json_end_object(writer);
	}

	closed = json_writer_close(writer);
	return r < 0 ? r : closed;
}

int rule_state_save(struct rule_state *rule_state, int dirfd, const char *name)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	int r;

	if (!rule_state->changed)
		return 0;

	r = rule_state_write(rule_state, sink_buffer(&text));
	if (r < 0)
		return r;
	r = whole_file_replace(dirfd, name, text.data, text.len);
	if (r < 0)
		return r;

	rule_state->changed = false;
	return 0;
}

/* ---- in ---- */

/* What is read, and where a complaint goes. */
struct reading {
	struct rule_state_table *table;
	const char *boot_id; /* ours */
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
	r = rule_state_table_put(reading->table, rule, key, &value);
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

int rule_state_parse(struct rule_state *rule_state, const char *text, size_t len, char *error, size_t cap)
{
	static const struct json_limits limits = {
		.size_bytes = RULE_STATE_FILE_MAX,
		.nodes = RULE_STATE_TABLE_ENTRIES_MAX * RULE_STATE_NODES_PER_ENTRY,
	};
	AUTO(json_document_freep) struct json_document *document = NULL;
	AUTO(rule_state_table_freep) struct rule_state_table *fresh = NULL;
	struct reading reading = { .boot_id = rule_state->boot_id, .error = error, .cap = cap };
	struct rule_state_table *old = rule_state->table;
	struct json_error where;
	int r;

	r = json_parse(text, len, &limits, &document, &where);
	if (r < 0 && r != -ENOMEM) {
		snprintf(error, cap, "line %u, column %u: %s", where.place.line, where.place.column, where.message);
		return -EBADMSG;
	}
	if (r < 0)
		return r;

	r = rule_state_table_new(&fresh);
	if (r < 0)
		return r;
	reading.table = fresh;
	r = read_root(&reading, json_root(document));
	if (r < 0)
		return r;

	rule_state->table = TAKE(fresh);
	rule_state->changed = !reading.same_boot;
	fresh = old;
	return 0;
}

int rule_state_load(struct rule_state *rule_state, int dirfd, const char *name, char *error, size_t cap)
{
	AUTO(buffer_release) struct buffer text = { .max = RULE_STATE_FILE_MAX };
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
