/* check_top_screen.c: what a key of the terminal means. White-box: includes the module. */
#include "cli/top/top_screen.c"

#include <check.h>

Suite *top_screen_suite(void);

static const struct {
	int curses, ours;
} keys_pressed[] = {
	{ KEY_UP, TOP_SCREEN_UP },
	{ KEY_DOWN, TOP_SCREEN_DOWN },
	{ KEY_PPAGE, TOP_SCREEN_PAGE_UP },
	{ KEY_NPAGE, TOP_SCREEN_PAGE_DOWN },
	{ KEY_HOME, TOP_SCREEN_FIRST },
	{ KEY_END, TOP_SCREEN_LAST },
	{ KEY_BACKSPACE, TOP_SCREEN_BACKSPACE },
	{ 0x7f, TOP_SCREEN_BACKSPACE },
	{ '\b', TOP_SCREEN_BACKSPACE },
	{ '\n', TOP_SCREEN_ENTER },
	{ 0x1b, TOP_SCREEN_ESCAPE },
	{ ' ', ' ' },
	{ 'q', 'q' },
	{ 0xff, 0xff },
	{ 0x01, TOP_SCREEN_OTHER }, /* Ctrl-A */
	{ 0x100, TOP_SCREEN_OTHER },
	{ KEY_LEFT, TOP_SCREEN_OTHER },
	{ KEY_F(5), TOP_SCREEN_OTHER },
};

START_TEST(a_key_is_a_character_or_one_that_is_known_or_other)
{
	ck_assert_int_eq(translate(keys_pressed[_i].curses), keys_pressed[_i].ours);
}
END_TEST

Suite *top_screen_suite(void)
{
	Suite *suite = suite_create("top_screen");
	TCase *tcase = tcase_create("keys");

	tcase_add_loop_test(tcase, a_key_is_a_character_or_one_that_is_known_or_other, 0, (int)ARRAY_LEN(keys_pressed));
	suite_add_tcase(suite, tcase);
	return suite;
}
