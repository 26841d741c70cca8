/*
 * check_lookback.c: the real daemon keeps a history (minutes of half a second), spikewatch history
 * reads it while it runs, after it was killed, and after the next one has gone on; an incident that
 * it names is found by spikewatch show.
 */
#include "lib/base/json.h"
#include "program.h"

Suite *lookback_suite(void);

#define TARGET_NAME "busy@"

static char directory[64], spikewatchd[512], spikewatch[512];
static bool able;
static struct program server;
static struct actor busy;

static const char *place(const char *name)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void setup(void)
{
	scene_directory(directory);
	server.pid = 0;
	able = program_find("spikewatchd", spikewatchd) && program_find("spikewatch", spikewatch);
	busy = actor_start(TARGET_NAME);
	actor_do(&busy, 'b', TARGET_NAME);
	scene_write(
		place("config"),
		"{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"off\",\n"
		"\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\", \"before\": \"1s\", \"after\": "
		"\"0s\"},\n"
		"\"targets\": [{\"name\": \"busy\", \"comm\": \"%s\", \"per\": \"group\"}],\n"
		"\"rules\": [{\"name\": \"cpu\", \"metric\": \"cpu_cores\", \"window\": \"200ms\", \"above\": 0.05, "
		"\"cooldown\": \"1h\", \"warmup\": 0}]}\n",
		directory, directory, scene_own(TARGET_NAME));
}

static void stop(int number)
{
	if (server.pid > 0) {
		kill(server.pid, number);
		program_wait(&server);
	}
	server.pid = 0;
}

static void teardown(void)
{
	stop(SIGKILL);
	actor_end(&busy);
	scene_remove(directory);
}

static void start(void)
{
	const char *arguments[] = { spikewatchd, "--minute", "500ms", "-c", place("config"), NULL };

	server = program_start(arguments, directory, -1, 0);
}

/* What the command says of the target, as JSON; NULL: nothing yet. */
static const struct json_node *look(struct json_document **document)
{
	static char text[1 << 20];
	char command[1200];
	size_t len;
	FILE *output;

	snprintf(command, sizeof(command), "%s history --json -d %s --since 10m busy 2>/dev/null", spikewatch,
		 place("history"));
	output = popen(command, "r");
	ck_assert_ptr_nonnull(output);
	len = fread(text, 1, sizeof(text), output);
	pclose(output);
	json_document_free(*document);
	*document = NULL;
	if (json_parse(text, len, &(struct json_limits){ .nodes = 1 << 20 }, document, NULL) < 0)
		return NULL;
	return json_root(*document)->first;
}

static bool has(const struct json_node *root, const char *key, size_t count)
{
	const struct json_node *list = root ? json_member(root, key) : NULL;

	return list && list->count >= count;
}

static double number(const struct json_node *node, const char *key)
{
	const struct json_node *found = json_member(node, key);

	ck_assert_msg(found && found->type == JSON_NUMBER, "no %s", key);
	return found->number;
}

START_TEST(it_is_there_while_it_runs_and_after_it_was_killed)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	const struct json_node *root, *target, *incident;
	char command[1200];
	size_t minutes;

	if (!able)
		SKIP_TEST("the programs were not built");
	start();
	/* The incident may be there before the minute of what fired is. */
	scene_wait_for(has(root = look(&document), "minutes", 3) && has(root, "incidents", 1) &&
		       number(json_member(root, "targets")->first, "cpu_peak_cores") >= 0.05);
	target = json_member(root, "targets")->first;
	ck_assert_str_eq(json_member(target, "name")->text, "busy");
	ck_assert_str_eq(json_member(target, "kind")->text, "group");
	ck_assert_double_gt(number(target, "cpu_cores"), 0);
	ck_assert_double_gt(number(target, "memory_peak_bytes"), 0);
	incident = json_member(json_member(root, "incidents")->first, "id");
	snprintf(command, sizeof(command), "%s show -d %s %s >/dev/null 2>&1", spikewatch, place("incidents"),
		 incident->text);
	scene_wait_for(system(command) == 0);

	stop(SIGKILL);
	root = look(&document);
	ck_assert(has(root, "minutes", 3));
	ck_assert_double_eq(number(root, "damaged_blocks"), 0);
	minutes = json_member(root, "minutes")->count;
	for (int i = 0; i < 600; i++)
		scene_nap(); /* two minutes of this test without a daemon */

	start();
	scene_wait_for(has(look(&document), "minutes", minutes + 2));
	stop(SIGTERM);
	root = look(&document);
	ck_assert(has(root, "minutes", minutes + 2));
	ck_assert(has(root, "gaps", 1));
	ck_assert_double_eq(number(root, "damaged_blocks"), 0);
	bool stopped = false;

	for (const struct json_node *gap = json_member(root, "gaps")->first; gap; gap = gap->next)
		stopped |= strcmp(json_member(gap, "why")->text, "stopped") == 0;
	ck_assert(stopped);
}
END_TEST

Suite *lookback_suite(void)
{
	Suite *suite = suite_create("lookback");
	TCase *tcase = tcase_create("lookback");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, it_is_there_while_it_runs_and_after_it_was_killed);
	suite_add_tcase(suite, tcase);

	return suite;
}
