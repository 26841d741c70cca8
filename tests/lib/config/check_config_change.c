/* Two configurations: what only a restart changes, and what has changed. */

#include "lib/config/config.h"
#include "lib/config/config_keys.h"
#include "scene.h"
#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *config_change_suite(void);

#define TARGETS "\"targets\":[{\"name\":\"db\",\"comm\":\"postgres\"}]"

static struct config *parsed(const char *text)
{
	const struct config_source source = { "t.json", text, strlen(text) };
	struct config_error err = { .message = "" };
	struct config *config = NULL;
	char line[1024];
	int r = config_parse(&source, 1, &config, &err);

	config_error_format(&err, line, sizeof(line));
	ck_assert_msg(r == 0, "%s: %s", text, line);
	return config;
}

/* ---- keys ---- */

static const struct {
	const char *members, *refused;
} refusals[] = {
	{ "\"ring\":{\"size\":\"32MiB\"},",
	  "ring.size: cannot change while spikewatchd runs (16 MiB in force, 32 MiB wanted): restart it" },
	{ "\"ring\":{\"page_size\":\"4KiB\"},",
	  "ring.page_size: cannot change while spikewatchd runs (64 KiB in force, 4 KiB wanted): restart it" },
	{ "\"ring\":{\"lock\":false},",
	  "ring.lock: cannot change while spikewatchd runs (true in force, false wanted): restart it" },
	{ "\"ring\":{\"path\":\"/r\"},",
	  "ring.path: cannot change while spikewatchd runs (\"\" in force, \"/r\" wanted): restart it" },
	{ "\"proc_root\":\"/host/proc\",", "proc_root: cannot change while spikewatchd runs (\"/proc\" in force, "
					   "\"/host/proc\" wanted): restart it" },
	{ "\"cgroup_root\":\"/c\",",
	  "cgroup_root: cannot change while spikewatchd runs (\"\" in force, \"/c\" wanted): restart it" },
	{ "\"state_file\":\"/s\",",
	  "state_file: cannot change while spikewatchd runs (\"\" in force, \"/s\" wanted): restart it" },
	{ "\"stacks\":{\"mode\":\"frame-pointers\"},",
	  "stacks.mode: cannot change while spikewatchd runs (dwarf in force, frame-pointers wanted): restart it" },
	{ "\"stacks\":\"off\",",
	  "stacks.mode: cannot change while spikewatchd runs (dwarf in force, off wanted): restart it" },
	{ "\"incidents\":{\"directory\":\"/i\"},",
	  "incidents.directory: cannot change while spikewatchd runs (\"\" in force, \"/i\" wanted): restart it" },
};

START_TEST(key_that_needs_a_restart_is_refused_with_both_values)
{
	AUTO(config_freep) struct config *old = parsed("{" TARGETS "}");
	AUTO(config_freep) struct config *next = NULL;
	struct config_error err;
	char text[256], line[1024], want[512];
	const char *colon = strrchr(refusals[_i].members, ':');

	snprintf(text, sizeof(text), "{%s" TARGETS "}", refusals[_i].members);
	snprintf(want, sizeof(want), "t.json:1:%td: %s", colon + 1 - refusals[_i].members + 2, refusals[_i].refused);
	next = parsed(text);
	ck_assert_int_eq(config_change_reloadable(old, next, &err), -EINVAL);
	config_error_format(&err, line, sizeof(line));
	ck_assert_str_eq(line, want);
	ck_assert_int_eq(config_change_reloadable(old, next, NULL), -EINVAL);
	ck_assert_int_eq(config_change_reloadable(next, next, &err), 0);
	ck_assert(config_change_sections(old, next));
}
END_TEST

START_TEST(of_several_files_the_one_that_says_it_last_is_named)
{
	static const char first[] = "{\n\"ring\": {\"size\": \"16MiB\"},\n" TARGETS "}",
			  second[] = "{\n\"ring\": {\n\t\"size\": \"32MiB\" } }", third[] = "{\"ring\": {} }";
	const struct config_source sources[] = { { "a.json", first, strlen(first) },
						 { "b.json", second, strlen(second) },
						 { "c.json", third, strlen(third) } };
	AUTO(config_freep) struct config *one = NULL, *three = NULL;
	struct config_error err;
	char line[1024];

	ck_assert_int_eq(config_parse(sources, 1, &one, &err), 0);
	ck_assert_int_eq(config_parse(sources, ARRAY_LEN(sources), &three, &err), 0);
	ck_assert_int_eq(config_change_reloadable(one, three, &err), -EINVAL);
	config_error_format(&err, line, sizeof(line));
	ck_assert_msg(strncmp(line, "b.json:3:10: ring.size: ", 24) == 0, "%s", line);

	/* What is back at its default is written nowhere. */
	AUTO(config_freep) struct config *silent = parsed("{" TARGETS "}");

	ck_assert_int_eq(config_change_reloadable(three, silent, &err), -EINVAL);
	config_error_format(&err, line, sizeof(line));
	ck_assert_msg(strncmp(line, "t.json: ring.size: ", 19) == 0, "%s", line);
}
END_TEST

static const char *const changeable[] = {
	"\"sampling\":{\"interval\":\"1ms\"},",
	"\"sampling\":{\"wait\":\"spin\"},",
	"\"sampling\":{\"cpu_budget\":\"11%\"},",
	"\"sampling\":{\"reset_peaks\":true},",
	"\"sampling\":{\"max_targets\":1},",
	"\"incidents\":{\"before\":\"1s\"},",
	"\"incidents\":{\"max_count\":1},",
	"\"incidents\":{\"captures\":[]},",
	"\"metrics\":{\"listen\":\"7745\"},",
	"\"metrics\":{\"textfile\":\"/a.prom\"},",
	"\"metrics\":{\"container_labels\":[\"app\"]},",
};

START_TEST(key_that_can_change_is_seen_and_not_refused)
{
	AUTO(config_freep) struct config *old = parsed("{" TARGETS "}");
	AUTO(config_freep) struct config *next = NULL;
	struct config_error err;
	char text[256];

	snprintf(text, sizeof(text), "{%s" TARGETS "}", changeable[_i]);
	next = parsed(text);
	ck_assert_int_eq(config_change_reloadable(old, next, &err), 0);
	ck_assert(config_change_sections(old, next));
	ck_assert(config_change_sections(next, old));
}
END_TEST

START_TEST(equal_texts_in_other_places_are_equal)
{
	static const char text[] =
		"{\"ring\":{\"path\":\"/r\"},\"metrics\":{\"listen\":\"7745\"},\"proc_root\":\"/p\"," TARGETS
		",\"rules\":[{\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"db\"]}]}";
	AUTO(config_freep) struct config *old = parsed(text);
	AUTO(config_freep) struct config *next = parsed(text);
	struct config_change_counts counts;

	ck_assert_ptr_ne(old->ring.path, next->ring.path);
	ck_assert_int_eq(config_change_reloadable(old, next, NULL), 0);
	ck_assert(!config_change_sections(old, next));
	config_change_count(old, next, &counts);
	ck_assert_uint_eq(counts.targets_added + counts.targets_removed + counts.targets_changed, 0);
	ck_assert_uint_eq(counts.rules_added + counts.rules_removed + counts.rules_changed, 0);
}
END_TEST

START_TEST(long_path_is_cut_in_the_message)
{
	AUTO(config_freep) struct config *old = parsed("{" TARGETS "}");
	AUTO(config_freep) struct config *next = parsed("{" TARGETS "}");
	struct config_error err;
	char path[4000];

	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	old->ring.path = path;
	next->ring.path = path + 1;
	ck_assert_int_eq(config_change_reloadable(old, next, &err), -EINVAL);
	ck_assert_msg(strstr(err.message, " wanted): restart it") != NULL, "%s", err.message);
}
END_TEST

START_TEST(each_key_says_what_changing_it_takes)
{
	for (size_t i = 0; i < config_section_field_count; i++) {
		const struct config_field *field = &config_section_fields[i];

		ck_assert_msg(field->change != CONFIG_CHANGE_UNSAID, "%s.%s", field->section, field->key);
		/* What no row stores cannot be compared. */
		ck_assert_msg(field->change != CONFIG_CHANGE_RESTART || field->kind != CONFIG_KIND_OTHER, "%s.%s",
			      field->section, field->key);
	}
}
END_TEST

/* ---- entries ---- */

static const char *const entries[] = {
	"{\"name\":\"a\",\"comm\":\"x\"}",
	"{\"name\":\"b\",\"comm\":\"x\"}",
	"{\"name\":\"a\",\"comm\":\"y\"}",
	"{\"name\":\"a\",\"exe\":\"/x\"}",
	"{\"name\":\"a\",\"pid\":7}",
	"{\"name\":\"a\",\"pid\":8}",
	"{\"name\":\"a\",\"comm\":\"x\",\"per\":\"group\"}",
	"{\"name\":\"a\",\"comm\":\"x\",\"tree\":true}",
	"{\"name\":\"a\",\"pidfile\":\"/x\"}",
	"{\"name\":\"a\",\"containers\":\"*\"}",
	"{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"x\":\"1\"}}",
	"{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"x\":\"2\"}}",
	"{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"y\":\"1\"}}",
	"{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"x\":\"1\",\"y\":\"1\"}}",
};

START_TEST(targets_are_the_same_if_all_of_them_is)
{
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		for (size_t k = 0; k < ARRAY_LEN(entries); k++) {
			char a[200], b[200];

			snprintf(a, sizeof(a), "{\"targets\":[%s]}", entries[i]);
			snprintf(b, sizeof(b), "{\"targets\":[%s]}", entries[k]);
			AUTO(config_freep) struct config *one = parsed(a);
			AUTO(config_freep) struct config *other = parsed(b);

			ck_assert_msg(config_target_same(one->targets, other->targets) == (i == k), "%s %s", a, b);
		}
}
END_TEST

START_TEST(the_order_of_labels_does_not_matter)
{
	AUTO(config_freep)
	struct config *one =
		parsed("{\"targets\":[{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"x\":\"1\",\"y\":\"\"}}]}");
	AUTO(config_freep)
	struct config *other =
		parsed("{\"targets\":[{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"y\":\"*\",\"x\":\"1\"}}]}");

	ck_assert(config_target_same(one->targets, other->targets));
}
END_TEST

/* The first is the base; each other one judges differently. */
static const char *const rules[] = {
	"\"metric\":\"cpu\",\"percent\":80",
	"\"metric\":\"memory\",\"percent\":80",
	"\"metric\":\"cpu\",\"percent\":81",
	"\"metric\":\"cpu\",\"delta\":80",
	"\"metric\":\"cpu\",\"percent\":80,\"delta\":1",
	"\"metric\":\"cpu\",\"percent\":80,\"delta\":2",
	"\"metric\":\"cpu\",\"percent\":80,\"minimum\":1",
	"\"metric\":\"cpu\",\"percent\":80,\"minimum\":0",
	"\"metric\":\"cpu\",\"percent\":80,\"maximum\":99",
	"\"metric\":\"cpu\",\"percent\":80,\"of\":\"core\"",
	"\"metric\":\"cpu\",\"percent\":80,\"window\":\"2s\"",
	"\"metric\":\"cpu\",\"percent\":80,\"warmup\":4",
	"\"metric\":\"cpu\",\"percent\":80,\"history\":11",
	"\"metric\":\"cpu\",\"percent\":80,\"for\":\"1s\"",
	"\"metric\":\"cpu\",\"percent\":80,\"cooldown\":\"2m\"",
	"\"metric\":\"cpu\",\"percent\":80,\"count\":1",
	"\"metric\":\"cpu\",\"percent\":80,\"count_period\":\"1h\"",
	"\"metric\":\"cpu\",\"percent\":80,\"rearm\":\"below\"",
};

START_TEST(what_an_incident_runs_is_a_change_that_keeps_the_target)
{
	static const char *const captures[] = {
		"",
		",\"again\":\"1s\"",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"]}]",
		",\"run\":[{\"name\":\"b\",\"command\":[\"/x\"]}]",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/x\",\"y\"]}]",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/y\"]}]",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"],\"timeout\":\"1s\"}]",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"],\"max_output\":\"1KiB\"}]",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"],\"rules\":[\"manual\"]}]",
		",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"],\"privileged\":true}]",
	};

	for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
		for (size_t k = 0; k < ARRAY_LEN(captures); k++) {
			struct config *one =
				scene_config("{\"targets\":[{\"name\":\"db\",\"comm\":\"x\"%s}]}", captures[i]);
			struct config *other =
				scene_config("{\"targets\":[{\"name\":\"db\",\"comm\":\"x\"%s}]}", captures[k]);
			struct config_change_counts counts;

			ck_assert(config_target_same(one->targets, other->targets));
			ck_assert_msg(config_target_captures_same(one->targets, other->targets) == (i == k), "%s %s",
				      captures[i], captures[k]);
			config_change_count(one, other, &counts);
			ck_assert_uint_eq(counts.targets_changed, i != k);
			ck_assert_uint_eq(counts.targets_added + counts.targets_removed, 0);
			config_free(one);
			config_free(other);
		}
	}
}
END_TEST

START_TEST(rules_are_the_same_if_they_judge_alike)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		for (size_t k = 0; k < ARRAY_LEN(rules); k++) {
			char a[400], b[400];

			snprintf(a, sizeof(a), "{" TARGETS ",\"rules\":[{\"name\":\"r\",%s}]}", rules[i]);
			snprintf(b, sizeof(b), "{" TARGETS ",\"rules\":[{\"name\":\"r\",%s,\"targets\":[\"db\"]}]}",
				 rules[k]);
			AUTO(config_freep) struct config *one = parsed(a);
			AUTO(config_freep) struct config *other = parsed(b);

			ck_assert_msg(config_rule_same(one->rules, other->rules) == (i == k), "%s %s", a, b);
			other->rules[0].name = "s";
			ck_assert(!config_rule_same(one->rules, other->rules));
		}
}
END_TEST

#define R(name, more) "{\"name\":\"" name "\",\"metric\":\"cpu\",\"percent\":1" more "}"

START_TEST(entries_are_counted_by_name)
{
	AUTO(config_freep)
	struct config *old = parsed(
		"{\"targets\":[{\"name\":\"a\",\"comm\":\"a\"},{\"name\":\"b\",\"comm\":\"b\"},"
		"{\"name\":\"c\",\"comm\":\"c\"},{\"name\":\"d\",\"comm\":\"d\"}],\"rules\":[" R("gone", "") "," R(
			"order", ",\"targets\":[\"a\",\"b\"]") "," R("list",
								     ",\"targets\":[\"a\"]") "," R("changed",
												   "") "," R("all",
													     "") "]}");
	AUTO(config_freep)
	struct config *next = parsed(
		"{\"targets\":[{\"name\":\"c\",\"comm\":\"x\"},{\"name\":\"b\",\"comm\":\"b\"},"
		"{\"name\":\"a\",\"comm\":\"a\"},{\"name\":\"e\",\"comm\":\"d\"}],\"rules\":"
		"[" R("order", ",\"targets\":[\"b\",\"a\"]") "," R(
			"list",
			",\"targets\":["
			"\"b\"]") "," R("all", ",\"targets\":[\"a\"]") "," R("changed",
									     ",\"count\":1") "," R("new",
												   "") "," R("newer",
													     "") "]}");
	struct config_change_counts counts;

	config_change_count(old, next, &counts);
	ck_assert_uint_eq(counts.targets_added, 1);
	ck_assert_uint_eq(counts.targets_removed, 1);
	ck_assert_uint_eq(counts.targets_changed, 1);
	ck_assert_uint_eq(counts.rules_added, 2);
	ck_assert_uint_eq(counts.rules_removed, 1);
	ck_assert_uint_eq(counts.rules_changed, 3);
	ck_assert(!config_change_sections(old, next));
}
END_TEST

Suite *config_change_suite(void)
{
	Suite *suite = suite_create("config_change");
	TCase *keys = tcase_create("keys");
	TCase *named = tcase_create("entries");

	tcase_add_test(keys, of_several_files_the_one_that_says_it_last_is_named);
	tcase_add_loop_test(keys, key_that_needs_a_restart_is_refused_with_both_values, 0, ARRAY_LEN(refusals));
	tcase_add_loop_test(keys, key_that_can_change_is_seen_and_not_refused, 0, ARRAY_LEN(changeable));
	tcase_add_test(keys, equal_texts_in_other_places_are_equal);
	tcase_add_test(keys, long_path_is_cut_in_the_message);
	tcase_add_test(keys, each_key_says_what_changing_it_takes);
	tcase_add_test(named, targets_are_the_same_if_all_of_them_is);
	tcase_add_test(named, the_order_of_labels_does_not_matter);
	tcase_add_test(named, what_an_incident_runs_is_a_change_that_keeps_the_target);
	tcase_add_test(named, rules_are_the_same_if_they_judge_alike);
	tcase_add_test(named, entries_are_counted_by_name);
	suite_add_tcase(suite, keys);
	suite_add_tcase(suite, named);
	return suite;
}
