/*
 * config.c: the files of a configuration, and what two configurations have in common. From texts to a
 * checked value: config_keys.c.
 *
 * Only regular files are read (a FIFO would block), and none larger than a configuration can be,
 * whatever its size is said to be. Symbolic links are followed: configurations are mounted as such.
 * Options of the command line override the files.
 */
#include "lib/config/config.h"
#include "lib/config/config_keys.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include "shipped.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

/* What json_parse takes. */
#define FILE_MAX (1024 * 1024)
/* Drop-ins: thousands of files are a wrong directory. */
#define FILES_MAX 256

/* The files read so far. */
struct files {
	struct config_source source[FILES_MAX + 1];
	struct buffer text[FILES_MAX + 1];
	char *name[FILES_MAX + 1];
	size_t count;
	struct config_error *err;
};

static void files_free(struct files **files)
{
	for (size_t i = 0; *files != NULL && i <= FILES_MAX; i++) {
		buffer_release(&(*files)->text[i]);
		free((*files)->name[i]);
	}
	free(*files);
}

/* Refuses a file as a whole. */
__attribute__((format(printf, 3, 4))) static int refuse(const struct files *files, const char *name, const char *format,
							...)
{
	va_list args;

	*files->err = (struct config_error){ 0 };
	snprintf(files->err->file, sizeof(files->err->file), "%s", name);
	va_start(args, format);
	vsnprintf(files->err->message, sizeof(files->err->message), format, args);
	va_end(args);
	return -EINVAL;
}

static int check_kind(const struct files *files, const char *name, const struct stat *status)
{
	if (S_ISDIR(status->st_mode))
		return refuse(files, name, "is a directory: expected a file");
	if (!S_ISREG(status->st_mode))
		return refuse(files, name, "is no regular file: expected a file");
	if (status->st_size > FILE_MAX)
		return refuse(files, name, "too large: %lld bytes, expected at most %d", (long long)status->st_size,
			      FILE_MAX);
	return 0;
}

static int read_text(const struct files *files, const char *name, struct buffer *text)
{
	AUTO_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char block[16384];
	struct stat status;
	ssize_t n;
	int r;

	if (fd < 0 || fstat(fd, &status) < 0)
		return refuse(files, name, "cannot be opened: %s", strerrordesc_np(errno));
	r = check_kind(files, name, &status);
	if (r < 0)
		return r;
	while ((n = read(fd, block, sizeof(block))) > 0) {
		r = buffer_append(text, block, (size_t)n);
		if (r == -EFBIG)
			return refuse(files, name, "too large: expected at most %d bytes", FILE_MAX);
		if (r < 0)
			return r;
	}
	return n < 0 ? refuse(files, name, "cannot be read: %s", strerrordesc_np(errno)) : 0;
}

/* Reads prefix followed by name. */
static int add(struct files *files, const char *prefix, const char *name)
{
	struct buffer *text = &files->text[files->count];
	char *path = NULL;
	int r;

	if (files->count > FILES_MAX)
		return refuse(files, prefix, "too many files: expected at most %d", FILES_MAX);
	if (asprintf(&path, "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", name) < 0)
		return -ENOMEM;
	files->name[files->count] = path;
	text->max = FILE_MAX;
	r = read_text(files, path, text);
	if (r == 0)
		files->source[files->count++] = (struct config_source){ path, text->data, text->len };
	return r;
}

static int is_dropin(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(".json") &&
	       strcmp(entry->d_name + len - strlen(".json"), ".json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_dropins(struct files *files, const char *dir)
{
	struct dirent **entries = NULL;
	int count = scandir(dir, &entries, is_dropin, by_name);
	int r = 0;

	if (count < 0 && errno == ENOENT)
		return 0;
	if (count < 0)
		return errno == ENOMEM ? -ENOMEM : refuse(files, dir, "cannot be listed: %s", strerrordesc_np(errno));
	for (int i = 0; i < count; i++) {
		if (r == 0)
			r = add(files, dir, entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return r;
}

bool config_file_is_builtin(const struct config_file *file)
{
	return file->or_builtin && access(file->path, F_OK) < 0 && errno == ENOENT;
}

static int load_files(const struct config_file *file, struct config **ret, struct config_error *err)
{
	AUTO(files_free) struct files *files = calloc(1, sizeof(*files));
	int r = 0;

	if (files == NULL)
		return -ENOMEM;
	files->err = err;
	if (config_file_is_builtin(file))
		files->source[files->count++] = (struct config_source){ .file = "built-in spikewatch.json",
									.text = (const char *)shipped_config,
									.len = sizeof(shipped_config) };
	else
		r = add(files, "", file->path);
	if (r == 0 && file->dropins != NULL)
		r = add_dropins(files, file->dropins);
	return r < 0 ? r : config_parse(files->source, files->count, ret, err);
}

int config_file_load(const struct config_file *file, struct config **ret, char *message)
{
	struct config_error error;
	struct config *config;
	int r = load_files(file, &config, &error);

	if (r == -EINVAL)
		config_error_format(&error, message, CONFIG_FILE_MESSAGE_MAX);
	else if (r < 0)
		snprintf(message, CONFIG_FILE_MESSAGE_MAX, "%s: %s", file->path, strerror(-r));
	if (r < 0)
		return r;

	if (file->proc_root)
		config->proc_root = file->proc_root;
	if (file->cgroup_root)
		config->cgroup_root = file->cgroup_root;
	config->stuck_ns = file->stuck_ns;
	config->minute_ns = file->minute_ns;
	*ret = config;

	return 0;
}

/* ---- the value ---- */

static void release_runs(struct config_target *target)
{
	for (size_t i = 0; target->runs != NULL && i < target->run_count; i++) {
		free(target->runs[i].words);
		free(target->runs[i].rules);
	}
	free(target->runs);
	free(target->labels);
}

void config_free(struct config *config)
{
	if (config == NULL)
		return;
	for (size_t i = 0; config->rules != NULL && i < config->rule_count; i++) {
		free(config->rules[i].targets);
		free(config->rules[i].notify);
	}
	for (size_t i = 0; config->notifies != NULL && i < config->notify_count; i++)
		free(config->notifies[i].words);
	for (size_t i = 0; config->targets != NULL && i < config->target_count; i++)
		release_runs(&config->targets[i]);
	for (size_t i = 0; config->documents != NULL && i < config->document_count; i++)
		json_document_free(config->documents[i]);
	for (size_t i = 0; config->files != NULL && i < config->document_count; i++)
		free(config->files[i]);
	free(config->metrics.container_labels);
	free(config->notifies);
	free(config->rules);
	free(config->targets);
	free(config->documents);
	free(config->files);
	free(config);
}

static const char *pattern_of(const struct config_target *target, const char *key)
{
	for (size_t i = 0; i < target->label_count; i++)
		if (strcmp(target->labels[i].key, key) == 0)
			return target->labels[i].pattern;
	return NULL;
}

/* In whichever order; no key is twice in one. */
static bool same_labels(const struct config_target *a, const struct config_target *b)
{
	if (a->label_count != b->label_count)
		return false;
	for (size_t i = 0; i < a->label_count; i++) {
		const char *other = pattern_of(b, a->labels[i].key);

		if (other == NULL || strcmp(a->labels[i].pattern, other) != 0)
			return false;
	}
	return true;
}

bool config_target_same(const struct config_target *a, const struct config_target *b)
{
	if (strcmp(a->name, b->name) != 0 || a->selector != b->selector || a->per != b->per || a->tree != b->tree ||
	    a->outside != b->outside || !same_labels(a, b))
		return false;
	return a->selector == CONFIG_PID ? a->pid == b->pid : strcmp(a->pattern, b->pattern) == 0;
}

static bool same_texts(const char *const *a, size_t count_a, const char *const *b, size_t count_b)
{
	if (count_a != count_b)
		return false;
	for (size_t i = 0; i < count_a; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}

static bool same_run(const struct config_run *a, const struct config_run *b)
{
	return strcmp(a->name, b->name) == 0 && a->timeout_ns == b->timeout_ns &&
	       a->max_output_bytes == b->max_output_bytes && a->privileged == b->privileged &&
	       same_texts(a->words, a->word_count, b->words, b->word_count) &&
	       same_texts(a->rules, a->rule_count, b->rules, b->rule_count);
}

bool config_target_captures_same(const struct config_target *a, const struct config_target *b)
{
	if (a->again_ns != b->again_ns || a->run_count != b->run_count)
		return false;
	for (size_t i = 0; i < a->run_count; i++)
		if (!same_run(&a->runs[i], &b->runs[i]))
			return false;
	return true;
}

bool config_run_wanted(const struct config_run *run, const char *rule)
{
	for (size_t i = 0; i < run->rule_count; i++)
		if (fnmatch(run->rules[i], rule, 0) == 0)
			return true;
	return run->rule_count == 0;
}

static bool applies_to(const struct config_rule *rule, const char *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target) == 0)
			return true;
	return rule->target_count == 0;
}

/* The part of a window that is uncertain is at most a quarter of it. */
#define WINDOW_SHARE 4

uint64_t config_idle_of(const struct config *config, const char *target)
{
	uint64_t idle_ns = config_idle_ns(config);

	for (size_t i = 0; i < config->rule_count; i++)
		if (config->rules[i].window_ns / WINDOW_SHARE < idle_ns && applies_to(&config->rules[i], target))
			idle_ns = config->rules[i].window_ns / WINDOW_SHARE;

	return idle_ns;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t remainder = a % b;

		a = b;
		b = remainder;
	}
	return a;
}

uint64_t config_idle_grid_ns(const struct config *config)
{
	uint64_t idle_ns = config_idle_ns(config);
	uint64_t all_ns = 0;

	for (size_t i = 0; i < config->rule_count; i++)
		all_ns = common_divisor(config->rules[i].window_ns, all_ns);
	if (all_ns == 0 || idle_ns == 0)
		return idle_ns;

	/* The longest part of it that is not above the idle interval. */
	for (uint64_t parts = (all_ns + idle_ns - 1) / idle_ns; all_ns / parts > config->sampling.interval_ns; parts++)
		if (all_ns % parts == 0)
			return all_ns / parts;

	return 0;
}

/* A threshold that is not configured has no value. */
static bool same_threshold(bool has_a, double a, bool has_b, double b)
{
	return has_a == has_b && (!has_a || a == b);
}

static bool same_thresholds(const struct trigger_rule *a, const struct trigger_rule *b)
{
	return same_threshold(a->has_percent, a->percent, b->has_percent, b->percent) &&
	       same_threshold(a->has_delta, a->delta, b->has_delta, b->delta) && a->usual == b->usual &&
	       same_threshold(a->has_minimum, a->minimum, b->has_minimum, b->minimum) &&
	       same_threshold(a->has_maximum, a->maximum, b->has_maximum, b->maximum);
}

bool config_rule_same(const struct config_rule *a, const struct config_rule *b)
{
	const struct trigger_rule *s = &a->trigger, *t = &b->trigger;

	return strcmp(a->name, b->name) == 0 && a->metric == b->metric && a->of == b->of &&
	       a->window_ns == b->window_ns && same_thresholds(s, t) && s->warmup == t->warmup &&
	       s->history == t->history && s->for_ns == t->for_ns && s->cooldown_ns == t->cooldown_ns &&
	       s->count == t->count && s->count_period_ns == t->count_period_ns && s->rearm == t->rearm;
}

void config_error_format(const struct config_error *err, char *buf, size_t cap)
{
	char place[32] = "";

	if (err->line > 0)
		snprintf(place, sizeof(place), ":%u:%u", err->line, err->column);
	snprintf(buf, cap, "%s%s%s%s%s%s", err->file, place, err->file[0] != '\0' ? ": " : "", err->key,
		 err->key[0] != '\0' ? ": " : "", err->message);
}

const char *config_selector_name(enum config_selector selector)
{
	static const char *const names[] = {
		"pid", "pidfile", "comm", "exe", "cmdline", "cgroup", "unit", "containers"
	};

	return selector < ARRAY_LEN(names) ? names[selector] : NULL;
}

const char *config_capture_name(enum config_capture capture)
{
	static const char *const names[] = { "samples", "threads", "status", "smaps", "limits", "cgroup", "system" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (capture == 1u << i)
			return names[i];
	return NULL;
}
