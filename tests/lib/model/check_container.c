/* check_container.c: what a container is called, which patterns mean it, and its packed form. */
#include "lib/model/target.h"
#include "lib/base/base.h"

#include <check.h>

#include <stdio.h>
#include <string.h>

Suite *container_suite(void);

#define ID "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"

static const struct container web = {
	.runtime = CONTAINER_DOCKER, .id = ID, .name = "shop-web", .image = "nginx:1.27"
};
static const struct container nameless = { .runtime = CONTAINER_PODMAN, .id = ID };
static const struct container machine = { .runtime = CONTAINER_NSPAWN, .id = "deb", .name = "deb" };
static const struct container pod = {
	.runtime = CONTAINER_CRIO, .id = ID, .name = "app", .space = "shop", .pod = "web-7d9f-x2x"
};
static const struct container idle = {
	.runtime = CONTAINER_CRIO, .id = ID, .name = "POD", .space = "shop", .pod = "web-7d9f-x2x", .sandbox = true
};

static const char *title(const struct container *container)
{
	static char text[CONTAINER_TITLE_MAX];

	container_title(container, text, sizeof(text));

	return text;
}

START_TEST(titles_begin_with_whose_it_is)
{
	struct container part = pod;

	ck_assert_str_eq(title(&web), "docker/shop-web");
	ck_assert_str_eq(title(&nameless), "podman/a329033bf642");
	ck_assert_str_eq(title(&machine), "nspawn/deb");
	ck_assert_str_eq(title(&pod), "pod/shop/web-7d9f-x2x/app");
	part.name[0] = '\0';
	ck_assert_str_eq(title(&part), "pod/shop/web-7d9f-x2x/a329033bf642");
}
END_TEST

static const struct {
	const struct container *container;
	const char *pattern;
	bool matches;
} matches[] = {
	{ &web, "*", true },
	{ &web, "shop-*", true },
	{ &web, "shop-web", true },
	{ &web, "docker/shop-*", true },
	{ &web, "web", false },
	{ &web, "podman/*", false },
	{ &web, "a329033bf642", true },
	{ &web, ID, true },
	{ &web, "a329033bf64", false }, /* too short to be an id */
	{ &web, "b329033bf642", false },
	{ &web, "a3290*", true },
	{ &web, "image:nginx*", true },
	{ &web, "image:redis*", false },
	{ &nameless, "image:*", false },
	{ &nameless, "*", true },
	{ &nameless, "a329033bf642", true },
	{ &machine, "deb", true },
	{ &pod, "shop/web-*/app", true },
	{ &pod, "shop/*", true },
	{ &pod, "pod/shop/*", true },
	{ &pod, "app", true },
	{ &pod, "other/*", false },
	{ &pod, "web-7d9f-x2x", false },
	{ &idle, "*", false },
	{ &idle, ID, false },
};

START_TEST(patterns_mean_names_images_and_ids)
{
	ck_assert_int_eq(container_matches(matches[_i].container, matches[_i].pattern), matches[_i].matches);
}
END_TEST

static void assert_same(const struct container *a, const struct container *b)
{
	ck_assert_int_eq(a->runtime, b->runtime);
	ck_assert_str_eq(a->id, b->id);
	ck_assert_str_eq(a->name, b->name);
	ck_assert_str_eq(a->space, b->space);
	ck_assert_str_eq(a->pod, b->pod);
	ck_assert_str_eq(a->image, b->image);
}

START_TEST(what_was_packed_unpacks_to_the_same)
{
	const struct container *const all[] = { &web, &nameless, &machine, &pod };

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		char packed[CONTAINER_PACKED_MAX];
		struct container back;

		container_pack(all[i], packed, sizeof(packed));
		ck_assert(container_unpack(packed, &back));
		assert_same(&back, all[i]);
	}
}
END_TEST

START_TEST(the_longest_fits_and_what_is_cut_is_missed_from_the_end)
{
	struct container longest = { .runtime = CONTAINER_CONTAINERD }, back;
	char packed[CONTAINER_PACKED_MAX];

	memset(longest.id, 'i', CONTAINER_TEXT_MAX);
	memset(longest.name, 'n', CONTAINER_TEXT_MAX);
	memset(longest.space, 's', CONTAINER_SPACE_MAX);
	memset(longest.pod, 'p', CONTAINER_TEXT_MAX);
	memset(longest.image, 'm', CONTAINER_TEXT_MAX);
	ck_assert_uint_lt(strlen(title(&longest)), CONTAINER_TITLE_MAX - 1);
	container_pack(&longest, packed, sizeof(packed));
	ck_assert(container_unpack(packed, &back));
	assert_same(&back, &longest);

	container_pack(&pod, packed, sizeof(packed));
	for (size_t len = strlen(packed); len-- > 0;) {
		packed[len] = '\0';
		if (!container_unpack(packed, &back))
			continue;
		ck_assert_int_eq(back.runtime, CONTAINER_CRIO);
		ck_assert_int_eq(strncmp(back.id, pod.id, strlen(back.id)), 0);
		ck_assert_int_eq(strncmp(back.name, pod.name, strlen(back.name)), 0);
		ck_assert_int_eq(strncmp(back.pod, pod.pod, strlen(back.pod)), 0);
	}
}
END_TEST

START_TEST(what_is_no_container_is_said_so)
{
	struct container back;

	ck_assert(!container_unpack(NULL, &back));
	ck_assert(!container_unpack("", &back));
	ck_assert(!container_unpack("docker", &back));
	ck_assert(!container_unpack("docker\t", &back));
	ck_assert(!container_unpack("docker\t\tname", &back));
	ck_assert(container_unpack("later\tid", &back));
	ck_assert_int_eq(back.runtime, CONTAINER_UNKNOWN);
}
END_TEST

START_TEST(text_has_no_control_characters_and_is_cut_at_a_character)
{
	char text[8];

	container_text(text, sizeof(text), "a\tb\nc\x7f", 6);
	ck_assert_str_eq(text, "a_b_c_");
	container_text(text, sizeof(text), "ab\0cd", 5);
	ck_assert_str_eq(text, "ab");
	container_text(text, sizeof(text), "123456\xc3\xa9", 8);
	ck_assert_str_eq(text, "123456");
	container_text(text, sizeof(text), "1234567890", 10);
	ck_assert_str_eq(text, "1234567");
}
END_TEST

Suite *container_suite(void)
{
	Suite *suite = suite_create("container");
	TCase *tcase = tcase_create("container");

	tcase_add_test(tcase, titles_begin_with_whose_it_is);
	tcase_add_loop_test(tcase, patterns_mean_names_images_and_ids, 0, ARRAY_LEN(matches));
	tcase_add_test(tcase, what_was_packed_unpacks_to_the_same);
	tcase_add_test(tcase, the_longest_fits_and_what_is_cut_is_missed_from_the_end);
	tcase_add_test(tcase, what_is_no_container_is_said_so);
	tcase_add_test(tcase, text_has_no_control_characters_and_is_cut_at_a_character);
	suite_add_tcase(suite, tcase);

	return suite;
}
