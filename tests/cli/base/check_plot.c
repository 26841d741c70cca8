/*
 * check_plot.c: pictures are compared as text with golden ones; what cannot be seen in a picture is
 * asked for.
 */
#include "cli/base/plot.h"
#include "lib/base/base.h"

#include <check.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 500

static const struct plot_style ascii = { .width = 40 };
static const struct plot_style utf8 = { .utf8 = true, .width = 40 };

static char *draw(const struct plot *plot, const struct plot_style *style)
{
	char *text = NULL;
	size_t len;
	FILE *file = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(file);
	plot_draw(plot, style, file);
	ck_assert_int_eq(fclose(file), 0);
	return text;
}

static bool golden(const char *name, const char *text)
{
	char path[256], want[8192];
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "tests/data/plot/%s.txt", name);
	if (getenv("SPIKEWATCH_WRITE_GOLDEN")) {
		file = fopen(path, "w");
		fputs(text, file);
		return fclose(file) == 0;
	}
	file = fopen(path, "r");
	ck_assert_msg(file, "%s is missing", path);
	len = fread(want, 1, sizeof(want) - 1, file);
	fclose(file);
	want[len] = '\0';
	ck_assert_str_eq(text, want);
	return true;
}

/* A ramp, a gap, silence, a burst shorter than its column. */
static void fill(double *peak, double *mean, size_t columns)
{
	for (size_t i = 0; i < columns; i++) {
		peak[i] = i < 8 ? (double)i * 10 : 0;
		mean[i] = peak[i] * 0.75;
		if (i >= 8 && i < 12)
			peak[i] = mean[i] = NAN;
	}
	peak[20] = 182.4;
	mean[20] = 20;
}

static struct plot cpu_plot(const double *peak, const double *mean)
{
	return (struct plot){
		.title = "CPU, percent of the limit",
		.unit = UNIT_PERCENT,
		.peak = peak,
		.mean = mean,
		.columns = plot_columns(&ascii),
		.from_s = -30,
		.to_s = 10,
		.trigger = true,
		.level = { { "threshold", 80 }, { "limit", 100 } },
		.levels = 2,
	};
}

static size_t line_width(const char *line)
{
	size_t width = 0;

	for (; *line && *line != '\n'; line++)
		width += ((unsigned char)*line & 0xC0) != 0x80;
	return width;
}

START_TEST(draws_the_golden_pictures)
{
	const struct {
		const char *name;
		const struct plot_style *style;
	} cases[] = { { "ascii", &ascii }, { "utf8", &utf8 } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		double peak[COLUMNS_MAX] = { 0 }, mean[COLUMNS_MAX] = { 0 };
		struct plot plot = cpu_plot(peak, mean);

		fill(peak, mean, plot.columns);
		AUTO_FREE char *text = draw(&plot, cases[i].style);

		ck_assert(golden(cases[i].name, text));
	}
}
END_TEST

/* 100.3 % of a core over 100 ms is a core: the kernel counts in ticks of 4 ms. No machine gives more than it has. */
START_TEST(the_axis_ends_where_values_can)
{
	double peak[COLUMNS_MAX] = { 0 };
	struct plot plot = cpu_plot(peak, peak);

	plot.levels = 0;
	peak[3] = 100.3;
	AUTO_FREE char *artefact = draw(&plot, &ascii);
	ck_assert_ptr_nonnull(strstr(artefact, "120 % |"));
	plot.grain = 0.04;
	AUTO_FREE char *fits = draw(&plot, &ascii);
	ck_assert_ptr_nonnull(strstr(fits, "100 % |"));
	peak[3] = 380;
	AUTO_FREE char *late = draw(&plot, &ascii);
	ck_assert_ptr_nonnull(strstr(late, "400 % |"));
	plot.most = 200;
	AUTO_FREE char *most = draw(&plot, &ascii);
	ck_assert_ptr_nonnull(strstr(most, "200 % |"));
}
END_TEST

START_TEST(ascii_picture_holds_nothing_but_ascii)
{
	double peak[COLUMNS_MAX] = { 0 }, mean[COLUMNS_MAX] = { 0 };
	struct plot plot = cpu_plot(peak, mean);

	fill(peak, mean, plot.columns);
	AUTO_FREE char *text = draw(&plot, &ascii);

	for (const char *p = text; *p; p++)
		ck_assert(*p == '\n' || (*p >= ' ' && *p <= '~'));
}
END_TEST

START_TEST(no_line_is_wider_than_the_terminal)
{
	static const unsigned widths[] = { 1, 20, 30, 31, 40, 80, 200, 400 };
	double peak[COLUMNS_MAX] = { 0 }, mean[COLUMNS_MAX] = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
		struct plot_style style = { .utf8 = i % 2, .width = widths[i] };
		struct plot plot = cpu_plot(peak, mean);

		plot.columns = plot_columns(&style);
		fill(peak, mean, plot.columns < 21 ? 21 : plot.columns);
		AUTO_FREE char *text = draw(&plot, &style);

		/* Below the smallest width the legend gives up, the picture does not. */
		for (const char *line = text; widths[i] >= PLOT_WIDTH_MIN && line;) {
			ck_assert_uint_le(line_width(line), widths[i] < 40 ? 40 : widths[i]);
			line = strchr(line, '\n');
			line = line ? line + 1 : NULL;
		}
	}
}
END_TEST

START_TEST(gap_interrupts_the_axis_and_zero_does_not)
{
	double peak[] = { 0, 0, NAN, NAN, 0, 0, 0, 0 };
	struct plot plot = { .title = "t", .peak = peak, .columns = 8, .from_s = 0, .to_s = 8, .rows = 4 };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "|--  ----\n"));
}
END_TEST

START_TEST(hole_is_dotted_whatever_the_values_are)
{
	double peak[] = { 1, 1, NAN, 1, 1, 1, 1, 1 };
	const bool hole[] = { false, false, true, true, false, false, false, false };
	struct plot plot = { .title = "t",
			     .peak = peak,
			     .hole = hole,
			     .hole_is = "no samples for 2.01 s",
			     .columns = 8,
			     .from_s = 0,
			     .to_s = 8,
			     .rows = 4 };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "|##\?\?####\n"));
	ck_assert_ptr_nonnull(strstr(text, "|--\?\?----\n"));
	ck_assert_ptr_nonnull(strstr(text, "? no samples for 2.01 s\n"));
}
END_TEST

START_TEST(trigger_is_marked_at_its_time)
{
	double peak[8] = { 0 };
	struct plot plot = { .title = "t", .peak = peak, .columns = 8, .from_s = -3, .to_s = 5, .trigger = true };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "|---^----\n"));
	ck_assert_ptr_nonnull(strstr(text, "^ trigger"));
}
END_TEST

START_TEST(trigger_outside_of_the_picture_is_not_marked)
{
	double peak[8] = { 0 };
	struct plot plot = { .title = "t", .peak = peak, .columns = 8, .from_s = 1, .to_s = 5, .trigger = true };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_null(strchr(text, '^'));
}
END_TEST

START_TEST(short_burst_is_seen_above_its_mean)
{
	double peak[] = { 0, 0, 100, 0, 0, 0, 0, 0 }, mean[] = { 0, 0, 25, 0, 0, 0, 0, 0 };
	struct plot plot = {
		.title = "t", .peak = peak, .mean = mean, .columns = 8, .from_s = 0, .to_s = 8, .rows = 4
	};

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "|  :     \n"));
	ck_assert_ptr_nonnull(strstr(text, "|  #     \n"));
}
END_TEST

START_TEST(smallest_activity_leaves_a_mark)
{
	double peak[] = { 0, 0, 0.01, 0, 1000, 0, 0, 0 };
	struct plot plot = { .title = "t", .peak = peak, .columns = 8, .from_s = 0, .to_s = 8 };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "|  . #   \n"));
}
END_TEST

START_TEST(values_no_one_should_have_are_survived)
{
	double peak[] = { INFINITY, -INFINITY, NAN, -5, 1e300, 5e-324, -0.0, 1 };
	struct plot plot = { .title = "t",
			     .peak = peak,
			     .mean = peak,
			     .columns = 8,
			     .from_s = NAN,
			     .to_s = INFINITY,
			     .trigger = true,
			     .level = { { "limit", NAN }, { "limit", 1.7e308 }, { "limit", -3 } },
			     .levels = 3,
			     .rows = 1000000 };

	for (int unit = UNIT_PERCENT; unit <= UNIT_COUNT; unit++) {
		plot.unit = (enum unit_kind)unit;
		AUTO_FREE char *text = draw(&plot, &utf8);

		ck_assert_uint_gt(strlen(text), 0);
	}
}
END_TEST

START_TEST(picture_without_columns_is_drawn)
{
	struct plot plot = { .title = "nothing", .trigger = true, .from_s = -1, .to_s = 1 };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "nothing"));
}
END_TEST

START_TEST(limit_far_above_does_not_flatten_the_picture)
{
	double peak[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	struct plot plot = { .title = "t",
			     .unit = UNIT_PERCENT,
			     .peak = peak,
			     .columns = 8,
			     .from_s = 0,
			     .to_s = 8,
			     .level = { { "limit", 100 } },
			     .levels = 1 };

	AUTO_FREE char *text = draw(&plot, &ascii);

	ck_assert_ptr_nonnull(strstr(text, "|########\n"));
	ck_assert_ptr_nonnull(strstr(text, "limit 100.0 %"));
}
END_TEST

START_TEST(color_ends_with_every_line)
{
	double peak[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct plot plot = { .title = "t", .peak = peak, .columns = 8, .from_s = -1, .to_s = 8, .trigger = true };
	struct plot_style style = { .utf8 = true, .color = true, .width = 40 };

	AUTO_FREE char *text = draw(&plot, &style);
	char *save, *line = strtok_r(text, "\n", &save);

	for (; line; line = strtok_r(NULL, "\n", &save)) {
		const char *last = NULL;

		for (const char *p = line; (p = strchr(p, '\033')) != NULL; p++)
			last = p;
		ck_assert(!last || strncmp(last, "\033[0m", 4) == 0);
	}
}
END_TEST

START_TEST(style_follows_locale_columns_and_no_terminal)
{
	AUTO(scope_free) char *before = strdup(setlocale(LC_CTYPE, NULL));
	FILE *file = fopen("/dev/null", "w");
	struct plot_style style;

	ck_assert_ptr_nonnull(file);
	setenv("COLUMNS", "57", 1);
	setlocale(LC_CTYPE, "C");
	plot_style_detect(file, &style);
	ck_assert(!style.utf8 && !style.color);
	ck_assert_uint_eq(style.width, 57);

	setenv("COLUMNS", "99999999999999999999", 1);
	plot_style_detect(file, &style);
	ck_assert_uint_eq(style.width, PLOT_WIDTH_MAX);

	setenv("COLUMNS", "3", 1);
	plot_style_detect(file, &style);
	ck_assert_uint_eq(style.width, PLOT_WIDTH_MIN);

	setenv("COLUMNS", "wide", 1);
	plot_style_detect(file, &style);
	ck_assert_uint_eq(style.width, PLOT_WIDTH_DEFAULT);
	if (setlocale(LC_CTYPE, "C.UTF-8")) {
		plot_style_detect(file, &style);
		ck_assert(style.utf8);
	}
	fclose(file);
	unsetenv("COLUMNS");
	setlocale(LC_CTYPE, before);
}
END_TEST

Suite *plot_suite(void);

Suite *plot_suite(void)
{
	Suite *suite = suite_create("plot");
	TCase *tcase = tcase_create("plot");

	tcase_add_test(tcase, draws_the_golden_pictures);
	tcase_add_test(tcase, the_axis_ends_where_values_can);
	tcase_add_test(tcase, ascii_picture_holds_nothing_but_ascii);
	tcase_add_test(tcase, no_line_is_wider_than_the_terminal);
	tcase_add_test(tcase, gap_interrupts_the_axis_and_zero_does_not);
	tcase_add_test(tcase, hole_is_dotted_whatever_the_values_are);
	tcase_add_test(tcase, trigger_is_marked_at_its_time);
	tcase_add_test(tcase, trigger_outside_of_the_picture_is_not_marked);
	tcase_add_test(tcase, short_burst_is_seen_above_its_mean);
	tcase_add_test(tcase, smallest_activity_leaves_a_mark);
	tcase_add_test(tcase, values_no_one_should_have_are_survived);
	tcase_add_test(tcase, picture_without_columns_is_drawn);
	tcase_add_test(tcase, limit_far_above_does_not_flatten_the_picture);
	tcase_add_test(tcase, color_ends_with_every_line);
	tcase_add_test(tcase, style_follows_locale_columns_and_no_terminal);
	suite_add_tcase(suite, tcase);
	return suite;
}
