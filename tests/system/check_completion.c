/* check_completion.c: what bash offers for spikewatch and spikewatchd, asked of bash. */
#include "program.h"

#include "cli/base/options.h"
#include "lib/base/base.h"

#include <sys/stat.h>

Suite *completion_suite(void);

static const char id[] = "20261120T031502.123Z-web_1-cpu-1";

static char directory[64];
static char offered[4096]; /* a word a line, and a line before the first */

static void setup(void)
{
	char path[120];

	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/%s", directory, id);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/%s.tmp", directory, id);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	setenv("SPIKEWATCH_DIR", directory, 1);
}

static void teardown(void)
{
	unsetenv("SPIKEWATCH_DIR");
	scene_remove(directory);
}

static bool can_complete(void)
{
	char program[512];

	if (!program_find("spikewatch", program) || !program_find("spikewatchd", program))
		return false;
	if (access("/bin/bash", X_OK) == 0)
		return true;
	return skip_because("there is no bash");
}

/* Presses the tabulator behind a line of words, in the syntax of the shell. */
static void complete(const char *words)
{
	static const char script[] =
		"bash --norc -c '. conf/completion/spikewatch.bash; PATH=%s:$PATH; COMP_WORDS=(%s); "
		"COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _$COMP_WORDS $COMP_WORDS \"${COMP_WORDS[-1]}\" "
		"\"${COMP_WORDS[-2]}\"; printf \"%%s\\n\" \"${COMPREPLY[@]}\"'";
	char line[1024];

	snprintf(line, sizeof(line), script, getenv("SPIKEWATCH_BUILD"), words);
	FILE *shell = popen(line, "r");
	ck_assert_ptr_nonnull(shell);
	offered[0] = '\n';
	offered[1 + fread(offered + 1, 1, sizeof(offered) - 2, shell)] = '\0';
	ck_assert_int_eq(pclose(shell), 0);
}

static bool offers(const char *word)
{
	char line[200];

	snprintf(line, sizeof(line), "\n%s\n", word);

	return strstr(offered, line) != NULL;
}

START_TEST(offers_every_command)
{
	char program[512], names[PROGRAM_COMMANDS_MAX][16];

	if (!can_complete() || !program_find("spikewatch", program))
		SKIP_TEST("%s", skip_why());

	complete("spikewatch \"\"");
	for (size_t i = 0, count = program_commands(program, names); i < count; i++)
		ck_assert_msg(offers(names[i]), "%s is not in: %s", names[i], offered);
	complete("spikewatch sh");
	ck_assert_str_eq(offered, "\nshow\n");
}
END_TEST

START_TEST(offers_the_options_of_the_command)
{
	if (!can_complete())
		SKIP_TEST("%s", skip_why());

	complete("spikewatch list --");
	ck_assert(offers("--directory") && offers("--json") && offers("--help"));
	ck_assert(!offers("--quiet"));
	complete("spikewatch record \"\"");
	ck_assert(offers("--interval") && offers("-i") && offers("--"));
	complete("spikewatchd --ch");
	ck_assert_str_eq(offered, "\n--check\n");
}
END_TEST

START_TEST(offers_incidents_that_are_finished)
{
	char path[120];

	if (!can_complete())
		SKIP_TEST("%s", skip_why());

	complete("spikewatch show 2026");
	ck_assert_str_eq(offered, "\n20261120T031502.123Z-web_1-cpu-1\n");
	complete("spikewatch show \"\"");
	ck_assert(offers("last") && offers(id));
	snprintf(path, sizeof(path), "spikewatch verify %s/2026", directory);
	complete(path);
	snprintf(path, sizeof(path), "%s/%s", directory, id);
	ck_assert(offers(path));
	complete("spikewatch show -d /nowhere \"\"");
	ck_assert_str_eq(offered, "\nlast\n");
}
END_TEST

START_TEST(offers_values_and_files)
{
	if (!can_complete())
		SKIP_TEST("%s", skip_why());

	complete("spikewatch record -f \"\"");
	ck_assert_str_eq(offered, "\nspikewatch\ngvisor\n");
	complete("spikewatchd --check conf/spi");
	ck_assert_str_eq(offered, "\nconf/spikewatch.json\n");
	complete("spikewatch record -i 1ms -- ls conf/spi");
	ck_assert_str_eq(offered, "\nconf/spikewatch.json\n");
}
END_TEST

Suite *completion_suite(void)
{
	Suite *suite = suite_create("completion");
	TCase *bash = tcase_create("bash");

	tcase_add_checked_fixture(bash, setup, teardown);
	tcase_add_test(bash, offers_every_command);
	tcase_add_test(bash, offers_the_options_of_the_command);
	tcase_add_test(bash, offers_incidents_that_are_finished);
	tcase_add_test(bash, offers_values_and_files);
	suite_add_tcase(suite, bash);

	return suite;
}
