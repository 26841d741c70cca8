/*
 * hookplan.c: copies. A command of a plan owns its words one by one; the words that are run are one piece of memory, which is easily
 * given away.
 */
#include "hookplan.h"

#include "hookline.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hookplan_free(struct hookplan *plan)
{
	if (!plan)
		return;

	for (size_t i = 0; i < plan->count; i++) {
		for (char **word = plan->commands[i].words; word && *word; word++)
			free(*word);
		free(plan->commands[i].words);
	}
	free(plan);
}

static void release(struct hookplan **plan)
{
	hookplan_free(*plan);
}

static int copy(const struct config_run *run, struct hookplan_command *ret)
{
	snprintf(ret->name, sizeof ret->name, "%s", run->name);
	ret->timeout_ns = run->timeout_ns;
	ret->max_output_bytes = run->max_output_bytes;
	ret->words = calloc(run->word_count + 1, sizeof *ret->words);
	if (!ret->words)
		return -ENOMEM;

	for (size_t i = 0; i < run->word_count; i++) {
		ret->wants_pid |= hookline_uses(run->words[i], HOOKLINE_PID);
		ret->words[i] = strdup(run->words[i]);
		if (!ret->words[i])
			return -ENOMEM;
	}

	return 0;
}

int hookplan_new(const struct config_target *entry, const char *rule, struct hookplan **ret)
{
	AUTO(release) struct hookplan *plan = calloc(1, sizeof *plan);
	int r = plan ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < entry->run_count; i++)
		if (config_run_wanted(&entry->runs[i], rule))
			r = copy(&entry->runs[i], &plan->commands[plan->count++]);
	if (r < 0)
		return r;

	*ret = plan->count ? TAKE(plan) : NULL;

	return 0;
}

struct incident_capture hookplan_record(const struct hookplan_command *command)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_OK };

	snprintf(record.name, sizeof record.name, INCIDENT_RUN_PREFIX "%s", command->name);

	return record;
}

void hookplan_refuse(const struct hookplan *plan, const char *why, struct incident *incident)
{
	for (size_t i = 0; i < plan->count; i++) {
		struct incident_capture record = hookplan_record(&plan->commands[i]);

		record.status = INCIDENT_CAPTURE_SKIPPED;
		incident_text(record.why, sizeof record.why, why);
		incident_add_capture(incident, &record);
	}
}

int hookplan_words(const struct hookplan_command *command, const struct hookline_values *values, char ***ret)
{
	struct hookline_values all = *values;
	size_t count = 0, bytes = 0;
	char **words, *at;

	all.text[HOOKLINE_NAME] = command->name;
	for (; command->words[count]; count++)
		bytes += hookline_expand(command->words[count], &all, NULL, 0) + 1;
	if (bytes > HOOKPLAN_BYTES_MAX)
		return -E2BIG;
	words = calloc(1, (count + 1) * sizeof *words + bytes);
	if (!words)
		return -ENOMEM;

	at = (char *)(words + count + 1);
	for (size_t i = 0; i < count; i++) {
		size_t len = hookline_expand(command->words[i], &all, at, bytes) + 1;

		words[i] = at;
		at += len;
		bytes -= len;
	}
	*ret = words;

	return 0;
}
