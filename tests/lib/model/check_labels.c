/* check_labels.c: what fits is there, sorted; what does not is left out as a whole and counted. */
#include "lib/model/target.h"

#include <check.h>

#include <stdio.h>
#include <string.h>

Suite *labels_suite(void);

static void add(struct labels *labels, const char *key, const char *value)
{
	labels_add(labels, key, strlen(key), value, strlen(value));
}

/* "a=1 b=2" */
static const char *all(const struct labels *labels)
{
	static char text[8192];
	size_t len = 0;

	text[0] = '\0';
	for (const char *key = labels_next(labels, NULL); key; key = labels_next(labels, key))
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s=%s", len ? " " : "", key,
					labels_value(key));

	return text;
}

START_TEST(labels_are_sorted_by_key_and_found)
{
	struct labels labels = { .count = 0 };

	ck_assert_ptr_null(labels_next(&labels, NULL));
	add(&labels, "team", "core");
	add(&labels, "app", "web");
	add(&labels, "app.kubernetes.io/name", "");
	add(&labels, "ap", "x");
	ck_assert_str_eq(all(&labels), "ap=x app=web app.kubernetes.io/name= team=core");
	ck_assert_uint_eq(labels.count, 4);
	ck_assert_str_eq(labels_get(&labels, "app"), "web");
	ck_assert_str_eq(labels_get(&labels, "app.kubernetes.io/name"), "");
	ck_assert_ptr_null(labels_get(&labels, "a"));
	ck_assert_ptr_null(labels_get(&labels, "web"));
	ck_assert_uint_eq(labels.left_out, 0);
}
END_TEST

START_TEST(the_first_value_of_a_key_stays)
{
	struct labels labels = { .count = 0 }, other = { .left_out = 3 };

	add(&labels, "app", "web");
	add(&labels, "app", "other");
	add(&other, "app", "third");
	add(&other, "zone", "b");
	labels_merge(&labels, &other);
	ck_assert_str_eq(all(&labels), "app=web zone=b");
	ck_assert_uint_eq(labels.left_out, 3);
}
END_TEST

/* An image with many short labels cannot push a pod's out, and bring in its own of the same key. */
START_TEST(what_is_merged_takes_no_room_from_what_is_there)
{
	struct labels pod = { .count = 0 }, image = { .count = 0 };
	char key[8], value[1500];

	memset(value, 'v', sizeof(value));
	add(&pod, "app.kubernetes.io/name", "shop-web-of-a-long-name");
	labels_add(&pod, "team", 4, value, sizeof(value));
	add(&image, "team", "mine");
	for (unsigned i = 0; i < LABELS_MAX - 1; i++) {
		snprintf(key, sizeof(key), "a%02u", i);
		add(&image, key, i == 0 ? "longer than the others" : "x");
	}
	labels_merge(&pod, &image);
	ck_assert_uint_eq(pod.count, LABELS_MAX);
	ck_assert_uint_eq(strlen(labels_get(&pod, "team")), sizeof(value));
	ck_assert_str_eq(labels_get(&pod, "app.kubernetes.io/name"), "shop-web-of-a-long-name");
	/* among those of the image the longest gives way, as ever */
	ck_assert_ptr_null(labels_get(&pod, "a00"));
	ck_assert_ptr_nonnull(labels_get(&pod, "a62"));
	ck_assert_uint_eq(pod.left_out, 1);
}
END_TEST

START_TEST(what_is_no_key_is_left_out_and_control_characters_of_values_are_replaced)
{
	static const char *const keys[] = { "", "a b", "a\tb", "a\x1b", "caf\xc3\xa9", "\xff", "a\x7f" };
	struct labels labels = { .count = 0 };
	char key[LABELS_KEY_MAX + 2];

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		add(&labels, keys[i], "x");
	memset(key, 'k', sizeof(key));
	labels_add(&labels, key, LABELS_KEY_MAX + 1, "x", 1);
	labels_add(&labels, "nul", 3, "a\0b", 3);
	labels_add(&labels, "n\0l", 3, "ab", 2);
	ck_assert_uint_eq(labels.count, 0);
	ck_assert_uint_eq(labels.left_out, 10);

	labels_add(&labels, key, LABELS_KEY_MAX, "x", 1);
	add(&labels, "v", "a\nb\x1b[1m\x7f\xff");
	ck_assert_uint_eq(labels.count, 2);
	ck_assert_str_eq(labels_get(&labels, "v"), "a_b_[1m_\xff");
}
END_TEST

START_TEST(of_too_many_the_longest_are_left_out_whatever_the_order)
{
	struct labels forward = { .count = 0 }, backward = { .count = 0 };
	char key[16], value[80];

	for (unsigned i = 0; i < 2 * LABELS_MAX; i++)
		for (int back = 0; back < 2; back++) {
			unsigned number = back ? 2 * LABELS_MAX - 1 - i : i;

			snprintf(key, sizeof(key), "k%03u", number);
			memset(value, 'v', sizeof(value));
			value[number % 2 ? 1 : 60] = '\0';
			add(back ? &backward : &forward, key, value);
		}
	ck_assert_uint_eq(forward.count, LABELS_MAX);
	ck_assert_uint_eq(forward.left_out, LABELS_MAX);
	ck_assert_str_eq(labels_get(&forward, "k001"), "v");
	ck_assert_str_eq(labels_get(&forward, "k127"), "v");
	ck_assert_uint_eq(labels_size(&forward), labels_size(&backward));
	ck_assert_mem_eq(&forward, &backward, labels_size(&forward));
}
END_TEST

START_TEST(no_more_bytes_are_kept_than_there_is_room_for)
{
	struct labels labels = { .count = 0 };
	char value[LABELS_BYTES_MAX];

	memset(value, 'v', sizeof(value));
	labels_add(&labels, "a", 1, value, sizeof(value));
	ck_assert_uint_eq(labels.left_out, 1);
	labels_add(&labels, "a", 1, value, LABELS_BYTES_MAX - 3);
	ck_assert_uint_eq(labels.count, 1);
	ck_assert_uint_eq(labels.len, LABELS_BYTES_MAX);
	add(&labels, "b", "short");
	ck_assert_str_eq(all(&labels), "b=short");
	ck_assert_uint_eq(labels.left_out, 2);
	labels_add(&labels, "c", 1, value, LABELS_BYTES_MAX - 4);
	ck_assert_str_eq(all(&labels), "b=short");
	ck_assert_uint_eq(labels.left_out, 3);
}
END_TEST

Suite *labels_suite(void)
{
	Suite *suite = suite_create("labels");
	TCase *tcase = tcase_create("labels");

	tcase_add_test(tcase, labels_are_sorted_by_key_and_found);
	tcase_add_test(tcase, the_first_value_of_a_key_stays);
	tcase_add_test(tcase, what_is_merged_takes_no_room_from_what_is_there);
	tcase_add_test(tcase, what_is_no_key_is_left_out_and_control_characters_of_values_are_replaced);
	tcase_add_test(tcase, of_too_many_the_longest_are_left_out_whatever_the_order);
	tcase_add_test(tcase, no_more_bytes_are_kept_than_there_is_room_for);
	suite_add_tcase(suite, tcase);

	return suite;
}
