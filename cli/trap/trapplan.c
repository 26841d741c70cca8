/*
 * trapplan.c: the options become the text of a configuration, and its own reader makes the value: one place knows ranges and what
 * goes with what.
 *
 * "For a second" is five windows in a row, each of them over the threshold: a window as long as the whole time would miss a burst
 * that it happens to cut in two, and be passed by half a burst of twice the height. Memory without a time is looked at through the kernel's
 * high-water mark, which sees what came and went between two samples.
 *
 * A rule is armed again when the value has come down: a spike that goes on is one incident, however long it lasts.
 *
 * With all that it starts a target is a sum: who waits for `make -j8` to take too much waits for all of it, and the incident says which of its processes
 * took it.
 *
 * The name of a process is put in behind the reader: it may hold bytes that JSON cannot.
 */
#include "trapplan.h"

#include "clock.h"
#include "scope.h"
#include "text.h"
#include "units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPU_DEFAULT_PERCENT 80.0
#define CPU_DEFAULT_FOR_NS NS_PER_S

/* Memory that grows: half as much again as on average, and no trifle; the average is of half a minute, and worth something after five seconds. */
#define GROWTH_PERCENT 50
#define GROWTH_MINIMUM_BYTES (128ull << 20)
#define GROWTH_HISTORY 30
#define GROWTH_WARMUP 5

/* Windows in the time that it has to last. Below 100 ms CPU time has a coarse grain; more than a second tells nobody anything new. */
#define WINDOWS 5
#define WINDOW_MIN_NS (100 * NS_PER_MS)
#define WINDOW_MAX_NS NS_PER_S
#define WINDOW_MEMORY_NS (200 * NS_PER_MS)

/* Two samples are the shortest window that there is. */
#define FOR_MIN_NS (20 * NS_PER_MS)
#define FOR_MAX_NS (3600 * NS_PER_S)
#define PERCENT_MAX 100000.0

/* TASK_COMM_LEN less its NUL: the kernel cuts longer names. */
#define COMM_MAX 15

__attribute__((format(printf, 3, 4))) static int refuse(char *error, size_t cap, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, cap, format, arguments);
	va_end(arguments);

	return -EINVAL;
}

/* ---- defaults ---- */

void trapplan_watch(struct trapplan *plan, int32_t pid, const char *program)
{
	plan->pid = pid;
	targetname_of(program, plan->pid, plan->name);
}

static int resolve_cpu(struct trapplan *plan, char *error, size_t cap)
{
	if (units_percent(plan->cpu, strlen(plan->cpu), &plan->cpu_percent) == 0 && plan->cpu_percent > 0 &&
	    plan->cpu_percent <= PERCENT_MAX)
		return 0;

	return refuse(error, cap,
		      "--cpu %s: expected a percentage of one core such as 80%%, or 150%% for one and a half",
		      plan->cpu);
}

int trapplan_resolve(struct trapplan *plan, char *error, size_t cap)
{
	int r = plan->cpu ? resolve_cpu(plan, error, cap) : 0;

	if (r < 0)
		return r;
	if (plan->for_ns && (plan->for_ns < FOR_MIN_NS || plan->for_ns > FOR_MAX_NS))
		return refuse(error, cap, "--for: out of range: expected 20ms to 1h");
	if (plan->comm && (*plan->comm == '\0' || strlen(plan->comm) > COMM_MAX))
		return refuse(
			error, cap,
			"--comm \"%s\": no process is called so: the kernel cuts names to %d bytes: expected \"%.*s\"",
			plan->comm, COMM_MAX, COMM_MAX, *plan->comm ? plan->comm : "bash");
	if (plan->stacks && plan->stacks[strspn(plan->stacks, "abcdefghijklmnopqrstuvwxyz-")] != '\0')
		return refuse(error, cap, "--stacks %s: expected off, frame-pointers or dwarf", plan->stacks);

	if (!plan->cpu && !plan->memory_bytes) {
		plan->cpu_percent = CPU_DEFAULT_PERCENT;
		plan->growth = true;
	}
	if (plan->comm)
		targetname_of(plan->comm, plan->pid, plan->name);

	return 0;
}

/* ---- the configuration ---- */

/* A window, and how long it must go on after the first one: together they are for_ns. */
static void write_times(FILE *file, uint64_t for_ns)
{
	uint64_t window_ns = for_ns / WINDOWS;

	if (window_ns < WINDOW_MIN_NS)
		window_ns = for_ns < 2 * WINDOW_MIN_NS ? for_ns : WINDOW_MIN_NS;
	if (window_ns > WINDOW_MAX_NS)
		window_ns = WINDOW_MAX_NS;
	fprintf(file, "\"window\": \"%lluns\", \"for\": \"%lluns\", ", (unsigned long long)window_ns,
		(unsigned long long)(for_ns - window_ns));
}

static void write_rules(FILE *file, const struct trapplan *plan)
{
	static const char ending[] = "\"cooldown\": \"0s\", \"rearm\": \"below\"}\n";
	const char *comma = "";

	if (plan->cpu_percent > 0) {
		fprintf(file, "{\"name\": \"cpu\", \"metric\": \"cpu\", \"of\": \"core\", \"warmup\": 0, ");
		write_times(file, plan->for_ns ? plan->for_ns : CPU_DEFAULT_FOR_NS);
		fprintf(file, "\"percent\": \"%.6f%%\", %s", plan->cpu_percent, ending);
		comma = ",";
	}
	if (plan->memory_bytes) {
		fprintf(file, "%s{\"name\": \"memory\", \"metric\": \"%s\", \"warmup\": 0, ", comma,
			plan->for_ns ? "memory_bytes" : "memory_peak");
		write_times(file, plan->for_ns ? plan->for_ns : WINDOW_MEMORY_NS);
		fprintf(file, "\"above\": \"%lluB\", %s", (unsigned long long)plan->memory_bytes, ending);
		comma = ",";
	}
	if (plan->growth)
		fprintf(file,
			"%s{\"name\": \"memory-growth\", \"metric\": \"memory_bytes\", \"window\": \"1s\", \"delta\": "
			"\"%d%%\", "
			"\"minimum\": \"%lluB\", \"history\": %d, \"warmup\": %d, %s",
			comma, GROWTH_PERCENT, GROWTH_MINIMUM_BYTES, GROWTH_HISTORY, GROWTH_WARMUP, ending);
}

static void write_config(FILE *file, const struct trapplan *plan)
{
	const char *tree = plan->tree ? ", \"per\": \"group\", \"tree\": true" : "";

	fprintf(file, "{\"sampling\": {\"rescan_interval\": \"%s\"},\n", plan->tree ? "100ms" : "200ms");
	fprintf(file, "\"incidents\": {\"after\": \"%lluns\"},\n", (unsigned long long)plan->after_ns);
	if (plan->stacks)
		fprintf(file, "\"stacks\": {\"mode\": \"%s\"},\n", plan->stacks);
	if (plan->pid)
		fprintf(file, "\"targets\": [{\"name\": \"%s\", \"pid\": %d%s}],\n", plan->name, plan->pid, tree);
	else
		fprintf(file, "\"targets\": [{\"name\": \"%s\", \"comm\": \"?\"%s}],\n", plan->name, tree);
	fprintf(file, "\"rules\": [");
	write_rules(file, plan);
	fprintf(file, "]}\n");
}

/* Which option a key of the text came from. */
static const char *option_of(const char *key)
{
	static const struct {
		const char *key, *option;
	} known[] = {
		{ "stacks", "--stacks" },
		{ "incidents.after", "--after" },
		{ "targets", "--pid" },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strncmp(key, known[i].key, strlen(known[i].key)) == 0)
			return known[i].option;

	return key;
}

int trapplan_config(const struct trapplan *plan, struct config **ret, char *error, size_t cap)
{
	AUTO_FREE char *text = NULL;
	struct config *config = NULL;
	struct config_error wrong;
	size_t len = 0;
	FILE *file = open_memstream(&text, &len);

	if (!file)
		return -ENOMEM;
	write_config(file, plan);
	if (fclose(file) != 0)
		return -ENOMEM;

	struct config_source source = { .file = "trap", .text = text, .len = len };
	int r = config_parse(&source, 1, &config, &wrong);

	if (r == -EINVAL)
		return refuse(error, cap, "%s: %s", option_of(wrong.key), wrong.message);
	if (r < 0)
		return r;

	if (!plan->pid)
		config->targets[0].pattern = plan->comm;
	/* Only what was asked for is written, and nobody's is removed. */
	config->incidents.min_free_bytes = 0;
	*ret = config;

	return 0;
}

/* ---- words ---- */

const char *trapplan_text(const struct trapplan *plan, char *buf, size_t cap)
{
	char amount[UNITS_TEXT_MAX], time[UNITS_TEXT_MAX], lasting[UNITS_TEXT_MAX + 8] = "";
	size_t at = 0;

	buf[0] = '\0';
	if (plan->for_ns || plan->cpu_percent > 0)
		snprintf(lasting, sizeof lasting, " for %s",
			 units_format_duration(time, sizeof time, plan->for_ns ? plan->for_ns : CPU_DEFAULT_FOR_NS));
	if (plan->cpu_percent > 0)
		at += (size_t)snprintf(buf, cap, "more than %s of a core%s",
				       units_format_percent(amount, sizeof amount, plan->cpu_percent), lasting);
	if (plan->memory_bytes)
		at += (size_t)snprintf(buf + at, cap - at, "%smore than %s of memory%s", at ? ", or " : "",
				       units_format_bytes(amount, sizeof amount, plan->memory_bytes),
				       plan->for_ns ? lasting : "");
	if (plan->growth)
		snprintf(buf + at, cap - at, "%smemory that grows by half, to %s or more", at ? ", or " : "",
			 units_format_bytes(amount, sizeof amount, GROWTH_MINIMUM_BYTES));

	return buf;
}
