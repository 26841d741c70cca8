/* reload.c: what may fail comes first, and leaves no trace. */
#include "reload.h"

#include "configdiff.h"
#include "log.h"
#include "scope.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void release_config(struct config **config)
{
	config_free(*config);
}

static int refuse(const char *message, int error)
{
	log_about(LOG_ERR, &(struct log_about){ .message = MESSAGE_RELOAD_REFUSED, .error = error },
		  "reload refused, the old configuration stays in force: %s", message);

	return error;
}

__attribute__((format(printf, 2, 3))) static void append(char *message, const char *format, ...)
{
	size_t len = strlen(message);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message + len, RELOAD_MESSAGE_MAX - len, format, arguments);
	va_end(arguments);
}

/* "targets: 2 added, 1 removed"; nothing if nothing has changed. */
static void say_section(char *message, const char *section, size_t added, size_t removed, size_t changed)
{
	if (added + removed + changed == 0)
		return;

	append(message, "%s%s:", *message ? "; " : "", section);
	if (added)
		append(message, " %zu added%s", added, removed + changed ? "," : "");
	if (removed)
		append(message, " %zu removed%s", removed, changed ? "," : "");
	if (changed)
		append(message, " %zu changed", changed);
}

static void say_changes(const struct config *old, const struct config *next, char *message)
{
	struct configdiff_counts counts;

	message[0] = '\0';
	configdiff_count(old, next, &counts);
	say_section(message, "targets", counts.targets_added, counts.targets_removed, counts.targets_changed);
	say_section(message, "rules", counts.rules_added, counts.rules_removed, counts.rules_changed);
	if (configdiff_sections(old, next))
		append(message, "%sother options changed", *message ? "; " : "");
	if (!*message)
		append(message, "nothing has changed");
}

static void drop_rules(struct evaluator_reload **rules)
{
	evaluator_reload_drop(*rules);
}

static void drop_tally(struct ruletally **tally)
{
	ruletally_free(*tally);
}

/* 0; -errno: nothing has changed. */
static int swap(const struct reload *reload, const struct config *config)
{
	AUTO(drop_rules) struct evaluator_reload *rules = NULL;
	AUTO(drop_tally) struct ruletally *tally = NULL;
	int r = evaluator_reload_prepare(reload->evaluator, config, &rules);

	if (r == 0)
		r = ruletally_new(config, *reload->tally, &tally);
	if (r == 0)
		r = session_reload(reload->session, config);
	if (r < 0)
		return r;

	evaluator_reload_commit(TAKE(rules));
	incidents_reload(reload->incidents, config);
	reporter_reload(reload->reporter, &config->metrics);
	ruletally_free(*reload->tally);
	*reload->tally = TAKE(tally);

	return 0;
}

int reload_run(const struct reload *reload, char *message)
{
	AUTO(release_config) struct config *config = NULL;
	struct config_error error;
	int r = configfile_load(reload->file, &config, message);

	if (r < 0)
		return refuse(message, r);

	r = configdiff_reloadable(*reload->config, config, &error);
	if (r < 0) {
		config_error_format(&error, message, RELOAD_MESSAGE_MAX);
		return refuse(message, r);
	}

	r = swap(reload, config);
	if (r < 0) {
		snprintf(message, RELOAD_MESSAGE_MAX, "%s", strerror(-r));
		return refuse(message, r);
	}

	say_changes(*reload->config, config, message);
	config_free(*reload->config);
	*reload->config = TAKE(config);
	log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_RELOADED }, "reloaded: %s", message);

	return 0;
}
