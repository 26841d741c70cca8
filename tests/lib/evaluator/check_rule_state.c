/* check_rule_state.c: what is remembered comes back, and nothing else. */
#include "lib/evaluator/rule_state.c"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Suite *rule_state_suite(void);

static char directory[64];
static int at = -1;
static struct rule_state *rule_state;
static char error[256];

static void begin(void)
{
	snprintf(directory, sizeof(directory), "/tmp/spikewatch-memo-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	at = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(at, 0);
	ck_assert_int_eq(rule_state_new("boot-1", &rule_state), 0);
	error[0] = '\0';
}

static void end(void)
{
	rule_state_free(rule_state);
	unlinkat(at, "state.json", 0);
	close(at);
	ck_assert_int_eq(rmdir(directory), 0);
}

static void put(const char *rule, const char *key, uint64_t fired)
{
	ck_assert_int_eq(rule_state_put(rule_state, rule, key, &(struct trigger_memory){ .fired = fired }), 0);
}

static uint64_t fired(const char *rule, const char *key)
{
	struct trigger_memory value;

	return rule_state_get(rule_state, rule, key, &value) ? value.fired : 0;
}

/* What has changed, as the daemon does. 0 or -errno. */
static int save(const char *name)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	int r = 0;

	if (!rule_state_changed(rule_state))
		return 0;
	r = rule_state_text(rule_state, &text);

	return r < 0 ? r : whole_file_replace(at, name, text.data, text.len, WHOLE_FILE_DURABLE);
}

/* Another life, of this boot or another. */
static void live_again(const char *boot_id)
{
	ck_assert_int_eq(save("state.json"), 0);
	rule_state_free(rule_state);
	ck_assert_int_eq(rule_state_new(boot_id, &rule_state), 0);
	ck_assert_int_eq(rule_state_load(rule_state, at, "state.json", error, sizeof(error)), 0);
}

static int parse(const char *text)
{
	return rule_state_parse(rule_state, text, strlen(text), error, sizeof(error));
}

START_TEST(everything_survives_a_save)
{
	const struct trigger_memory value = {
		.cooldown_until = { 1764000000123456789 },
		.count_since = { UINT64_MAX },
		.count = UINT32_MAX,
		.fired = UINT64_MAX,
		.high_water = 0.1 + 0.2,
		.disarmed = true,
	};
	struct trigger_memory back = { 0 };

	ck_assert_int_eq(rule_state_put(rule_state, "hot", "web:12@34", &value), 0);
	live_again("boot-1");
	ck_assert(rule_state_get(rule_state, "hot", "web:12@34", &back));
	ck_assert(trigger_memory_equal(&value, &back));
	ck_assert(!rule_state_changed(rule_state));
}
END_TEST

START_TEST(names_hold_any_byte)
{
	char key[256];

	for (int i = 0; i < 255; i++)
		key[i] = (char)(i + 1);
	key[255] = '\0';
	put("a \"rule\"\n%41", key, 7);
	put("", "", 8);
	put("%", "%%", 9);
	live_again("boot-1");
	ck_assert_uint_eq(fired("a \"rule\"\n%41", key), 7);
	ck_assert_uint_eq(fired("", ""), 8);
	ck_assert_uint_eq(fired("%", "%%"), 9);
}
END_TEST

START_TEST(a_missing_file_is_an_empty_state)
{
	ck_assert_int_eq(rule_state_load(rule_state, at, "state.json", error, sizeof(error)), 0);
	ck_assert_uint_eq(rule_state->table.map.count, 0);
	ck_assert(!rule_state_changed(rule_state));
}
END_TEST

START_TEST(saves_only_what_changed)
{
	ck_assert_int_eq(save("state.json"), 0);
	ck_assert_int_eq(faccessat(at, "state.json", F_OK, 0), -1);
	put("r", "k", 1);
	ck_assert(rule_state_changed(rule_state));
	ck_assert_int_eq(save("state.json"), 0);
	ck_assert(!rule_state_changed(rule_state));
	put("r", "k", 1);
	ck_assert(!rule_state_changed(rule_state));
	ck_assert_int_eq(unlinkat(at, "state.json", 0), 0);
	ck_assert_int_eq(save("state.json"), 0);
	ck_assert_int_eq(faccessat(at, "state.json", F_OK, 0), -1);
}
END_TEST

START_TEST(processes_do_not_outlive_their_boot)
{
	put("r", "web:12@34", 1);
	put("r", "odd:name:0@0", 2);
	put("r", "web:/system.slice/getty@tty1.service", 3);
	put("r", "web:/user.slice/user@1000", 4);
	put("r", "web:/a:x1@2", 5);
	put("r", "web", 6);
	put("r", "web@12", 7);
	put("r", "12@34", 8);
	put("r", "web:@34", 9);
	put("r", "web:12@", 10);
	live_again("boot-2");
	ck_assert_uint_eq(fired("r", "web:12@34"), 0);
	ck_assert_uint_eq(fired("r", "odd:name:0@0"), 0);
	ck_assert_uint_eq(rule_state->table.map.count, 8);
	ck_assert(rule_state_changed(rule_state)); /* so the file gets rid of them */
	live_again("boot-2");
	ck_assert_uint_eq(rule_state->table.map.count, 8);
	ck_assert(!rule_state_changed(rule_state));
}
END_TEST

START_TEST(staleness_survives_a_save)
{
	struct buffer text = { 0 };

	put("r", "a", 1);
	put("r", "b", 1);
	put("r", "a", 2);
	live_again("boot-1");
	ck_assert_int_eq(rule_state_write(rule_state, sink_buffer(&text)), 0);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	ck_assert(strstr(text.data, "\"b\"") < strstr(text.data, "\"a\""));
	buffer_release(&text);
}
END_TEST

#define ENTRY_OF(key, cooldown, count, high_water, disarmed) \
	"{\"rule\":\"r\",\"key\":\"" key "\",\"cooldown_until\":" cooldown ",\"count_since\":2,\"count\":" count \
	",\"fired\":4,\"high_water\":" high_water ",\"disarmed\":" disarmed "}"
#define ENTRY ENTRY_OF("k", "1", "3", "\"5\"", "false")
#define FILE_OF(entries) "{\"version\":1,\"boot_id\":\"boot-1\",\"entries\":[" entries "]}"

static const char *const damaged[] = {
	"",
	"{",
	"[]",
	"null",
	"{}",
	"{\"version\":2,\"boot_id\":\"\",\"entries\":[]}",
	"{\"version\":\"1\",\"boot_id\":\"\",\"entries\":[]}",
	"{\"version\":1,\"entries\":[]}",
	"{\"version\":1,\"boot_id\":7,\"entries\":[]}",
	"{\"version\":1,\"boot_id\":\"\"}",
	"{\"version\":1,\"boot_id\":\"\",\"entries\":{}}",
	FILE_OF(ENTRY) "x",
	FILE_OF("7"),
	FILE_OF("{}"),
	FILE_OF(ENTRY ",{}"),
	FILE_OF("{\"rule\":1,\"key\":\"k\"}"),
	FILE_OF(ENTRY_OF("%", "1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("%4", "1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("%4g", "1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("%g4", "1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("%00", "1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("a\\u0000b", "1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "-1", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "1.5", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "1e3", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "\"1\"", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "18446744073709551616", "3", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "1", "4294967296", "\"5\"", "false")),
	FILE_OF(ENTRY_OF("k", "1", "3", "5", "false")),
	FILE_OF(ENTRY_OF("k", "1", "3", "\"nan\"", "false")),
	FILE_OF(ENTRY_OF("k", "1", "3", "\"1e999\"", "false")),
	FILE_OF(ENTRY_OF("k", "1", "3", "\"\"", "false")),
	FILE_OF(ENTRY_OF("k", "1", "3", "\"5x\"", "false")),
	FILE_OF(ENTRY_OF("k", "1", "3", "\"5\"", "0")),
};

START_TEST(damaged_text_changes_nothing_and_is_explained)
{
	put("old", "one", 5);
	ck_assert_int_eq(parse(damaged[_i]), -EBADMSG);
	ck_assert_uint_gt(strlen(error), 0);
	ck_assert_uint_eq(rule_state->table.map.count, 1);
	ck_assert_uint_eq(fired("old", "one"), 5);
}
END_TEST

START_TEST(good_text_replaces_everything)
{
	put("old", "one", 5);
	ck_assert_int_eq(parse(FILE_OF(ENTRY_OF("k", "1", "3", "\"5\"", "false, \"later\": [1, {}]"))), 0);
	ck_assert_uint_eq(rule_state->table.map.count, 1);
	ck_assert_uint_eq(fired("r", "k"), 4);
	ck_assert(!rule_state_changed(rule_state));
}
END_TEST

START_TEST(complaint_names_the_place)
{
	ck_assert_int_eq(parse("{\"version\":1,\n \"boot_id\":7}"), -EBADMSG);
	ck_assert_str_eq(error, "line 2, column 12: \"boot_id\": expected a string");
	ck_assert_int_eq(parse("{\"version\":1,\n \"boot_id\" 7}"), -EBADMSG);
	ck_assert_int_eq(strncmp(error, "line 2, ", 8), 0);
}
END_TEST

START_TEST(no_prefix_of_a_file_is_believed)
{
	struct buffer text = { 0 };

	put("r", "web:12@34", 1);
	put("s", "\xff", 2);
	ck_assert_int_eq(rule_state_write(rule_state, sink_buffer(&text)), 0);
	while (text.len > 0 && text.data[text.len - 1] != '}')
		text.len--;
	for (size_t len = 0; len < text.len; len++)
		ck_assert_int_eq(rule_state_parse(rule_state, text.data, len, error, sizeof(error)), -EBADMSG);
	ck_assert_int_eq(rule_state_parse(rule_state, text.data, text.len, error, sizeof(error)), 0);
	ck_assert_uint_eq(rule_state->table.map.count, 2);
	buffer_release(&text);
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
	ck_assert_int_eq(rule_state_load(rule_state, at, ".", error, sizeof(error)), -EBADMSG);
	ck_assert_str_eq(error, "not a regular file");
}
END_TEST

START_TEST(full_state_with_the_worst_names_is_read_again)
{
	char key[300];

	memset(key, 0xff, sizeof(key));
	for (unsigned n = 0; n < RULE_STATE_ENTRIES_MAX + 10; n++) {
		snprintf(key + sizeof(key) - 10, 10, "%u", n);
		put("\x01\x02", key, UINT64_MAX);
	}
	ck_assert_uint_le(rule_state->table.map.count, RULE_STATE_ENTRIES_MAX);
	ck_assert_uint_gt(rule_state->table.map.count, RULE_STATE_ENTRIES_MAX - 100);
	live_again("boot-1");
	ck_assert_uint_gt(rule_state->table.map.count, RULE_STATE_ENTRIES_MAX - 100);
	ck_assert_uint_eq(fired("\x01\x02", key), UINT64_MAX);
}
END_TEST

START_TEST(every_write_that_fails_is_reported)
{
	struct buffer text = { 0 };

	put("r", "web:12@34", 1);
	ck_assert_int_eq(rule_state_write(rule_state, sink_buffer(&text)), 0);
	for (size_t bytes = 0; bytes < text.len; bytes++) {
		long left = (long)bytes;

		ck_assert_int_eq(rule_state_write(rule_state, torture_sink(&left)), -EIO);
	}
	buffer_release(&text);
}
END_TEST

START_TEST(every_allocation_may_fail_in_save_and_load)
{
	bool injected = true;

	put("r", "k", 1);
	ck_assert_int_eq(save("state.json"), 0);
	put("r", "k", 2);
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = save("state.json");
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_int_eq(rule_state_changed(rule_state), injected);
	}

	put("r", "k", 3);
	injected = true;
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = rule_state_load(rule_state, at, "state.json", error, sizeof(error));
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_uint_eq(fired("r", "k"), injected ? 3 : 2);
	}
}
END_TEST

START_TEST(every_allocation_may_fail_at_the_beginning)
{
	struct rule_state *other = NULL;
	bool injected = true;

	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = rule_state_new("boot", &other);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_int_eq(other == NULL, injected);
	}
	rule_state_free(other);
	rule_state_free(NULL);
}
END_TEST

/* ---- the table ---- */

static bool table_get(const struct table *table, const char *rule, const char *key, struct trigger_memory *ret)
{
	const struct table_entry *entry = table_find(table, hash_names(rule, key), rule, key);

	if (entry)
		*ret = entry->value;
	return entry != NULL;
}

static int add(struct table *table, unsigned n)
{
	char key[32];

	snprintf(key, sizeof(key), "key%u", n);
	return table_put(table, "rule", key, &(struct trigger_memory){ .fired = n });
}

static bool has(const struct table *table, unsigned n)
{
	struct trigger_memory value;
	char key[32];

	snprintf(key, sizeof(key), "key%u", n);
	return table_get(table, "rule", key, &value) && value.fired == n;
}

START_TEST(the_table_holds_what_was_put)
{
	struct table table = { 0 };
	struct trigger_memory value = { .fired = 7 };

	ck_assert(!table_get(&table, "a", "b", &value));
	ck_assert_uint_eq(value.fired, 7);
	for (unsigned n = 0; n < 1000; n++)
		ck_assert_int_eq(add(&table, n), 0);
	ck_assert_uint_eq(table.map.count, 1000);
	for (unsigned n = 0; n < 1000; n++)
		ck_assert(has(&table, n));
	ck_assert(!has(&table, 1000));
	table_release(&table);
}
END_TEST

START_TEST(rule_and_key_are_told_apart)
{
	struct table table = { 0 };
	struct trigger_memory value;

	ck_assert_int_eq(table_put(&table, "ab", "c", &(struct trigger_memory){ .fired = 1 }), 0);
	ck_assert_int_eq(table_put(&table, "a", "bc", &(struct trigger_memory){ .fired = 2 }), 0);
	ck_assert_int_eq(table_put(&table, "", "abc", &(struct trigger_memory){ .fired = 3 }), 0);
	ck_assert(table_get(&table, "ab", "c", &value) && value.fired == 1);
	ck_assert(table_get(&table, "a", "bc", &value) && value.fired == 2);
	ck_assert(table_get(&table, "", "abc", &value) && value.fired == 3);
	table_release(&table);
}
END_TEST

START_TEST(put_replaces_and_tells_what_is_the_same)
{
	struct table table = { 0 };
	struct trigger_memory value = { .fired = 1, .high_water = 2.5 };

	ck_assert_int_eq(table_put(&table, "r", "k", &value), 0);
	ck_assert_int_eq(table_put(&table, "r", "k", &value), TABLE_SAME);
	value.disarmed = true;
	ck_assert_int_eq(table_put(&table, "r", "k", &value), 0);
	ck_assert_uint_eq(table.map.count, 1);
	value.disarmed = false;
	ck_assert(table_get(&table, "r", "k", &value) && value.disarmed);
	table_release(&table);
}
END_TEST

START_TEST(entries_are_listed_by_their_last_put)
{
	const unsigned order[] = { 0, 2, 3, 1 };
	struct table table = { 0 };
	size_t i = 0;

	ck_assert_ptr_null(table.oldest);
	for (unsigned n = 0; n < 4; n++)
		add(&table, n);
	ck_assert_int_eq(add(&table, 1), TABLE_SAME); /* fresh again */
	for (const struct table_entry *entry = table.oldest; entry; entry = entry->newer) {
		ck_assert_str_eq(entry->rule, "rule");
		ck_assert_uint_eq(entry->value.fired, order[i++]);
	}
	ck_assert_uint_eq(i, 4);
	table_release(&table);
}
END_TEST

START_TEST(the_oldest_entry_is_dropped_when_the_table_is_full)
{
	struct table table = { 0 };

	for (unsigned n = 0; n < RULE_STATE_ENTRIES_MAX; n++)
		add(&table, n);
	ck_assert(has(&table, 0) && has(&table, 1));
	add(&table, 0);
	add(&table, RULE_STATE_ENTRIES_MAX);
	ck_assert_uint_eq(table.map.count, RULE_STATE_ENTRIES_MAX);
	ck_assert(has(&table, 0));
	ck_assert(!has(&table, 1));
	ck_assert(has(&table, 2) && has(&table, RULE_STATE_ENTRIES_MAX));
	table_release(&table);
}
END_TEST

START_TEST(long_names_are_bounded_too)
{
	struct table table = { 0 };
	size_t len = 1 << 20;
	char *key = malloc(len + 1);

	memset(key, 'x', len);
	key[len] = '\0';
	for (char c = 'a'; c < 'k'; c++) {
		key[0] = c;
		ck_assert_int_eq(table_put(&table, "r", key, &(struct trigger_memory){ .fired = 1 }), 0);
	}
	ck_assert_uint_eq(table.map.count, 5); /* of 6 MiB, NULs and rules included */
	free(key);
	table_release(&table);
}
END_TEST

START_TEST(failed_allocation_changes_nothing)
{
	struct table table = { 0 };
	bool injected = true;

	for (unsigned n = 0; n < 64; n++)
		add(&table, n);
	for (long nth = 1; injected; nth++) {
		int r;

		torture_arm(nth);
		r = add(&table, 64);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert_uint_eq(table.map.count, injected ? 64 : 65);
		for (unsigned n = 0; n < 64; n++)
			ck_assert(has(&table, n));
	}
	table_release(&table);
}
END_TEST

Suite *rule_state_suite(void)
{
	Suite *suite = suite_create("rule_state");
	TCase *tcase = tcase_create("file");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, everything_survives_a_save);
	tcase_add_test(tcase, names_hold_any_byte);
	tcase_add_test(tcase, a_missing_file_is_an_empty_state);
	tcase_add_test(tcase, saves_only_what_changed);
	tcase_add_test(tcase, processes_do_not_outlive_their_boot);
	tcase_add_test(tcase, staleness_survives_a_save);
	tcase_add_loop_test(tcase, damaged_text_changes_nothing_and_is_explained, 0, (int)ARRAY_LEN(damaged));
	tcase_add_test(tcase, good_text_replaces_everything);
	tcase_add_test(tcase, complaint_names_the_place);
	tcase_add_test(tcase, no_prefix_of_a_file_is_believed);
	tcase_add_test(tcase, what_is_no_file_is_refused);
	tcase_add_test(tcase, full_state_with_the_worst_names_is_read_again);
	tcase_add_test(tcase, every_write_that_fails_is_reported);
	tcase_add_test(tcase, every_allocation_may_fail_in_save_and_load);
	tcase_add_test(tcase, every_allocation_may_fail_at_the_beginning);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("table");
	tcase_add_test(tcase, the_table_holds_what_was_put);
	tcase_add_test(tcase, rule_and_key_are_told_apart);
	tcase_add_test(tcase, put_replaces_and_tells_what_is_the_same);
	tcase_add_test(tcase, entries_are_listed_by_their_last_put);
	tcase_add_test(tcase, the_oldest_entry_is_dropped_when_the_table_is_full);
	tcase_add_test(tcase, long_names_are_bounded_too);
	tcase_add_test(tcase, failed_allocation_changes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}
