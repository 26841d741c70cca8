/*
 * trap.c: spikewatch trap: waits in the foreground for a CPU or memory spike, and writes incidents
 * as the daemon would: options become the text of a configuration (one parser knows the ranges),
 * and the daemon's sampling, rules and incidents run in this process.
 *
 * "For a second" is five windows in a row over the threshold: one window of that length would miss
 * a burst that it cuts in two, and fire on half a burst of twice the height. Memory without a time
 * is judged by the kernel's high-water mark, which includes what came and went between two samples.
 * A rule is armed again when the value has come down: a spike is one incident, however long.
 *
 * Each threshold of memory is a rule, and counts as an incident of its own even if an earlier one is
 * still being recorded and takes it in. SIGUSR1 requests an incident at once.
 *
 * Unlike the daemon's the ring has no name, the state of the rules is never saved, and the spool
 * has no limits, so no incident of others is removed. Messages go to standard error, because
 * standard output is COMMAND's.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/incident/incident_load.h"
#include "cli/trap/child.h"
#include "daemon/engine/base/children.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/evaluator/rule_state.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/proc/procfs.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"
#include "lib/source/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define SELF "spikewatch trap"

/* Between two polls of the ring, and two updates of the line. */
#define POLL_NS (20 * NS_PER_MS)
#define REDRAW_NS (200 * NS_PER_MS)

/* An option that was not given; 0 may have been typed. */
#define NOT_GIVEN UINT64_MAX

/* ---- the plan: what is waited for ---- */

#define CPU_DEFAULT_PERCENT 80.0
#define CPU_DEFAULT_FOR_NS NS_PER_S

/* By half over the average of half a minute, of which five seconds must be known. */
#define GROWTH_PERCENT 50
#define GROWTH_MINIMUM_BYTES (128ull << 20)
#define GROWTH_HISTORY 30
#define GROWTH_WARMUP 5

/* Windows in the time of --for. Below 100 ms the kernel's accounting of CPU time is too coarse. */
#define WINDOWS 5
#define WINDOW_MIN_NS (100 * NS_PER_MS)
#define WINDOW_MAX_NS NS_PER_S
#define WINDOW_MEMORY_NS (200 * NS_PER_MS)
#define WINDOW_DESCRIPTORS_NS NS_PER_S

/*
 * The shortest window has two samples. For less time than the usual interval allows there are so many in it,
 * of the scheduler's own sums if they can be had: the CPU clocks of processes move in steps of up to 4 ms.
 */
#define FOR_MIN_NS NS_PER_MS
#define FOR_USUAL_NS (20 * NS_PER_MS)
#define SHORT_SAMPLES 10
#define FOR_MAX_NS (3600 * NS_PER_S)
#define PERCENT_MAX 100000.0

/* TASK_COMM_LEN less its NUL: the kernel cuts longer names. */
#define COMM_MAX 15

#define TRAP_PLAN_TEXT_MAX 640

/* Of disk: what the largest incidents need. */
#define ROOM_MIN_BYTES (64ull << 20)

/* How long an incident continues by default: the height of the spike, and perhaps its end. */
#define TRAP_PLAN_AFTER_NS (3 * NS_PER_S)

/* Of memory. */
#define MEMORY_MAX 8

#define PLAN_RULES_MAX (MEMORY_MAX + 5)

/* Texts are borrowed, and must outlive the configuration. */
struct trap_plan {
	const char *comm;   /* all processes of this name, later ones too; NULL: trap_plan_watch says which */
	const char *cpu;    /* "80%", of a core; NULL: not given */
	const char *below;  /* "5%", of a core: CPU below it; NULL: not given */
	const char *stacks; /* a mode of the configuration; NULL: its default */
	uint64_t memory_bytes[MEMORY_MAX]; /* rising */
	size_t memory_count;               /* 0: not given */
	uint64_t threads, descriptors;     /* 0: not given */
	uint64_t spacing_ns;               /* between two incidents of a threshold */
	uint64_t for_ns;                   /* how long it has to last; 0: a second for CPU, no time for memory */
	uint64_t after_ns;
	bool tree; /* with all processes that they start, as one sum */
	/* Set by trap_plan_watch and trap_plan_resolve. */
	int32_t pid;                    /* 0: comm */
	int32_t pids[CONFIG_TREES_MAX]; /* of a process group: those whose parents are outside; pid is the first */
	char names[CONFIG_TREES_MAX][TARGET_NAME_MAX]; /* of their entries */
	size_t pid_count;                              /* 0: no group */
	char name[TARGET_NAME_MAX];                    /* of the target entry */
	double cpu_percent;                            /* 0: no such rule */
	double below_percent;                          /* the same */
	bool growth;                                   /* a rule for memory that grows: no threshold was given */
};

__attribute__((format(printf, 3, 4))) static int refuse_plan(char *error, size_t cap, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, cap, format, arguments);
	va_end(arguments);

	return -EINVAL;
}

/* Watches this process, which runs a program of this name, or path. */
static void trap_plan_watch(struct trap_plan *plan, int32_t pid, const char *program)
{
	plan->pid = pid;
	target_name_of(program, plan->pid, plan->name);
}

static int read_cpu(const char *option, const char *text, double *ret, char *error, size_t cap)
{
	if (units_percent(text, strlen(text), ret) == 0 && *ret > 0 && *ret <= PERCENT_MAX)
		return 0;

	return refuse_plan(error, cap,
			   "%s %s: expected a percentage of one core such as 80%%, or 150%% for one and a half", option,
			   text);
}

/* "100M,200M": each is a threshold. 0; -EINVAL: error says what was expected. */
static int read_memory(struct trap_plan *plan, const char *text, char *error, size_t cap)
{
	for (const char *at = text;; at++) {
		size_t len = strcspn(at, ",");
		uint64_t *bytes = &plan->memory_bytes[plan->memory_count];

		if (plan->memory_count == MEMORY_MAX)
			return refuse_plan(error, cap, "--memory: at most %d sizes", MEMORY_MAX);
		if (units_bytes(at, len, bytes) < 0 || *bytes == 0)
			return refuse_plan(error, cap, "--memory: \"%.*s\" is not a size such as 200M or 2GiB",
					   (int)(len < 40 ? len : 40), at);
		if (plan->memory_count > 0 && *bytes <= bytes[-1])
			return refuse_plan(error, cap, "--memory %.80s: expected sizes that rise, as in 100M,200M",
					   text);
		plan->memory_count++;
		at += len;
		if (*at == '\0')
			return 0;
	}
}

/* Checks the options, fills in defaults. 0; -EINVAL: error says what was expected. */
static int trap_plan_resolve(struct trap_plan *plan, char *error, size_t cap)
{
	int r = plan->cpu ? read_cpu("--cpu", plan->cpu, &plan->cpu_percent, error, cap) : 0;

	if (r == 0 && plan->below)
		r = read_cpu("--cpu-below", plan->below, &plan->below_percent, error, cap);
	if (r < 0)
		return r;
	if (plan->below && plan->cpu && plan->below_percent >= plan->cpu_percent)
		return refuse_plan(error, cap, "--cpu-below %s: expected less than --cpu %s", plan->below, plan->cpu);
	if (plan->for_ns && (plan->for_ns < FOR_MIN_NS || plan->for_ns > FOR_MAX_NS))
		return refuse_plan(error, cap, "--for: out of range: expected 1ms to 1h");
	if (plan->comm && (*plan->comm == '\0' || strlen(plan->comm) > COMM_MAX))
		return refuse_plan(error, cap,
				   "--comm \"%s\": no process can have this name: the kernel cuts names to %d bytes: "
				   "expected \"%.*s\"",
				   plan->comm, COMM_MAX, COMM_MAX, *plan->comm ? plan->comm : "bash");
	if (plan->stacks && plan->stacks[strspn(plan->stacks, "abcdefghijklmnopqrstuvwxyz-")] != '\0')
		return refuse_plan(error, cap, "--stacks %s: expected off, frame-pointers or dwarf", plan->stacks);

	if (!plan->cpu && !plan->below && !plan->memory_count && !plan->threads && !plan->descriptors) {
		plan->cpu_percent = CPU_DEFAULT_PERCENT;
		plan->growth = true;
	}
	if (plan->comm)
		target_name_of(plan->comm, plan->pid, plan->name);

	return 0;
}

/* The window, and how long the value must stay above afterwards: together they are for_ns. */
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

/* A rule for a number. least_ns: descriptors are counted once a second. */
static void write_count(FILE *file, const struct trap_plan *plan, const char *metric, uint64_t above, uint64_t least_ns,
			const char **comma, const char *ending)
{
	uint64_t for_ns = plan->for_ns > least_ns ? plan->for_ns : least_ns;

	if (above == 0)
		return;
	fprintf(file, "%s{\"name\": \"%s\", \"metric\": \"%s\", \"warmup\": 0, ", *comma, metric, metric);
	if (least_ns >= NS_PER_S)
		fprintf(file, "\"window\": \"%lluns\", \"for\": \"%lluns\", ", (unsigned long long)least_ns,
			(unsigned long long)(for_ns - least_ns));
	else
		write_times(file, for_ns);
	fprintf(file, "\"above\": %llu, %s", (unsigned long long)above, ending);
	*comma = ",";
}

/* The configuration has no such rules: what was read is turned round. */
#define BELOW_RULE "cpu-below"

static void write_rules(FILE *file, const struct trap_plan *plan)
{
	char ending[96];
	const char *comma = "";

	snprintf(ending, sizeof ending, "\"cooldown\": \"%lluns\", \"rearm\": \"below\"}\n",
		 (unsigned long long)plan->spacing_ns);

	if (plan->cpu_percent > 0) {
		fprintf(file, "{\"name\": \"cpu\", \"metric\": \"cpu\", \"of\": \"core\", \"warmup\": 0, ");
		write_times(file, plan->for_ns ? plan->for_ns : CPU_DEFAULT_FOR_NS);
		fprintf(file, "\"percent\": \"%.6f%%\", %s", plan->cpu_percent, ending);
		comma = ",";
	}
	if (plan->below_percent > 0) {
		fprintf(file, "%s{\"name\": \"" BELOW_RULE "\", \"metric\": \"cpu\", \"of\": \"core\", \"warmup\": 0, ",
			comma);
		write_times(file, plan->for_ns ? plan->for_ns : CPU_DEFAULT_FOR_NS);
		fprintf(file, "\"percent\": \"%.6f%%\", %s", plan->below_percent, ending);
		comma = ",";
	}
	for (size_t i = 0; i < plan->memory_count; i++) {
		char number[24] = "";

		if (plan->memory_count > 1)
			snprintf(number, sizeof number, "-%zu", i + 1);
		fprintf(file, "%s{\"name\": \"memory%s\", \"metric\": \"%s\", \"warmup\": 0, ", comma, number,
			plan->for_ns ? "memory_bytes" : "memory_peak");
		write_times(file, plan->for_ns ? plan->for_ns : WINDOW_MEMORY_NS);
		fprintf(file, "\"above\": \"%lluB\", %s", (unsigned long long)plan->memory_bytes[i], ending);
		comma = ",";
	}
	write_count(file, plan, "threads", plan->threads, plan->for_ns ? 0 : WINDOW_MEMORY_NS, &comma, ending);
	write_count(file, plan, "fds", plan->descriptors, WINDOW_DESCRIPTORS_NS, &comma, ending);
	if (plan->growth)
		fprintf(file,
			"%s{\"name\": \"memory-growth\", \"metric\": \"memory_bytes\", \"window\": \"1s\", \"delta\": "
			"\"%d%%\", "
			"\"minimum\": \"%lluB\", \"history\": %d, \"warmup\": %d, %s",
			comma, GROWTH_PERCENT, GROWTH_MINIMUM_BYTES, GROWTH_HISTORY, GROWTH_WARMUP, ending);
}

static void write_config(FILE *file, const struct trap_plan *plan)
{
	const char *tree = plan->tree ? ", \"per\": \"group\", \"tree\": true" : "";

	fprintf(file, "{\"sampling\": {\"read_interval\": \"0s\", \"rescan_interval\": \"%s\"",
		plan->tree ? "100ms" : "200ms");
	if (plan->for_ns && plan->for_ns < FOR_USUAL_NS)
		fprintf(file, ", \"interval\": \"%lluns\", \"source\": \"kernel\"",
			(unsigned long long)(plan->for_ns / SHORT_SAMPLES));
	fprintf(file, "},\n");
	fprintf(file, "\"incidents\": {\"after\": \"%lluns\"},\n", (unsigned long long)plan->after_ns);
	if (plan->stacks)
		fprintf(file, "\"stacks\": {\"mode\": \"%s\"},\n", plan->stacks);
	if (plan->pid_count > 0) {
		fprintf(file, "\"targets\": [");
		for (size_t i = 0; i < plan->pid_count; i++)
			fprintf(file, "%s{\"name\": \"%s\", \"pid\": %d, \"tree\": true}", i ? ", " : "",
				plan->names[i], plan->pids[i]);
		fprintf(file, "],\n");
	} else if (plan->pid)
		fprintf(file, "\"targets\": [{\"name\": \"%s\", \"pid\": %d%s}],\n", plan->name, plan->pid, tree);
	else
		fprintf(file, "\"targets\": [{\"name\": \"%s\", \"comm\": \"?\"%s}],\n", plan->name, tree);
	fprintf(file, "\"rules\": [");
	write_rules(file, plan);
	fprintf(file, "]}\n");
}

/* The option that became this key. */
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

/* plan is resolved and must outlive *ret. 0; -ENOMEM; -EINVAL as above. */
static int trap_plan_config(const struct trap_plan *plan, struct config **ret, char *error, size_t cap)
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
		return refuse_plan(error, cap, "%s: %s", option_of(wrong.key), wrong.message);
	if (r < 0)
		return r;

	if (!plan->pid)
		config->targets[0].pattern = plan->comm; /* may hold bytes that JSON cannot */
	/* At hand at once, and of so few it costs less; but CPU clocks move at ticks, too late for short times. */
	if (!plan->for_ns || plan->for_ns >= FOR_USUAL_NS)
		config->sampling.source = CONFIG_CPU_SOURCE_FILES;
	for (size_t i = 0; i < config->rule_count; i++)
		config->rules[i].trigger.below = strcmp(config->rules[i].name, BELOW_RULE) == 0;
	/* The spool removes nothing (session), so that free space is not a condition. */
	config->incidents.min_free_bytes = 0;
	config->incidents.max_per_hour = 0;
	*ret = config;

	return 0;
}

/* "100 MiB, 200 MiB". Returns buf. */
static const char *memory_text(const struct trap_plan *plan, char *buf, size_t cap)
{
	char amount[UNITS_TEXT_MAX];
	size_t at = 0;

	for (size_t i = 0; i < plan->memory_count; i++)
		at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? ", " : "",
				       units_format_bytes(amount, sizeof amount, plan->memory_bytes[i]));

	return buf;
}

/* "more than 80% of a core for 1 s, or more than 512 MiB of memory". Returns buf. */
static const char *trap_plan_text(const struct trap_plan *plan, char *buf, size_t cap)
{
	char amount[MEMORY_MAX * (UNITS_TEXT_MAX + 2)], time[UNITS_TEXT_MAX], lasting[UNITS_TEXT_MAX + 8] = "";
	size_t at = 0;

	buf[0] = '\0';
	if (plan->for_ns || plan->cpu_percent > 0 || plan->below_percent > 0)
		snprintf(lasting, sizeof lasting, " for %s",
			 units_format_duration(time, sizeof time, plan->for_ns ? plan->for_ns : CPU_DEFAULT_FOR_NS));
	if (plan->cpu_percent > 0)
		at += (size_t)snprintf(buf, cap, "more than %s of a core%s",
				       units_format_percent(amount, sizeof amount, plan->cpu_percent), lasting);
	if (plan->below_percent > 0)
		at += (size_t)snprintf(buf + at, cap - at, "%sless than %s of a core%s", at ? ", or " : "",
				       units_format_percent(amount, sizeof amount, plan->below_percent), lasting);
	if (plan->memory_count > 0)
		at += (size_t)snprintf(buf + at, cap - at, "%smore than %s of memory%s", at ? ", or " : "",
				       memory_text(plan, amount, sizeof amount), plan->for_ns ? lasting : "");
	if (plan->threads)
		at += (size_t)snprintf(buf + at, cap - at, "%smore than %llu threads%s", at ? ", or " : "",
				       (unsigned long long)plan->threads, plan->for_ns ? lasting : "");
	if (plan->descriptors)
		at += (size_t)snprintf(buf + at, cap - at, "%smore than %llu open descriptors%s", at ? ", or " : "",
				       (unsigned long long)plan->descriptors, plan->for_ns ? lasting : "");
	if (plan->growth)
		snprintf(buf + at, cap - at, "%smemory that grows by half, to %s or more", at ? ", or " : "",
			 units_format_bytes(amount, sizeof amount, GROWTH_MINIMUM_BYTES));

	return buf;
}

/* ---- the session ---- */

/* Incidents whose names are reported; further ones are counted. */
#define TRAP_SESSION_CAUGHT_MAX 1000

#define NUMBER_MAX 100 /* incidents of one name in one millisecond */
#define LEFT_MAX 256   /* further processes are not counted */

/*
 * An incident that was opened. Its name is known but for the number (incident_stem), and looked up
 * in the directory until it is there.
 */
struct caught {
	char stem[INCIDENT_NAME_MAX + 1];
	bool reported;
};

struct trap_session_options {
	const struct config *config; /* must outlive it */
	const char *directory;       /* of incidents; made if missing */
	uint64_t count;              /* incidents; then no more are opened */
	/* One was opened; or, joins: this threshold goes into one that is open. Must not call back. */
	void (*caught)(void *ctx, const struct evaluator_firing *firing, bool joins);
	void *ctx;
};

/* The state to be shown. */
struct trap_session_view {
	size_t targets;           /* trap_session_targets */
	char name[96];            /* of the target nearest to a threshold, cut; "": no values yet */
	bool has_cpu, has_memory; /* of that target, over the last window */
	double cpu_percent;
	uint64_t memory_bytes;
	uint64_t pending_ns; /* it has been over a threshold for so long */
	bool disarmed;       /* it has to come down first */
	uint64_t caught;
	size_t open;
	uint64_t open_ns; /* until the last open one is complete */
};

/* Belongs to the main thread; sampling and incidents have their own. */
struct trap_session {
	struct trap_session_options options;
	struct clock clock;
	struct session *session;
	struct spool *spool;
	struct rule_state *rule_state;
	struct dispatcher *dispatcher;
	struct evaluator *evaluator; /* the dispatcher's */
	struct incidents *incidents; /* the dispatcher's */
	uint64_t opened;             /* and thresholds that fell into an open one, each once */
	bool seen[PLAN_RULES_MAX];   /* rules that fired */
	mono_t open_until;
	struct caught *caught;
	size_t caught_count;
	/* The highest thresholds that would have caught any target; 0 without a rule for it. */
	double most_cpu_percent, most_memory_bytes;
	struct pair_map hold_of; /* rule and target -> place in holds */
	struct trigger_hold *holds;
	size_t hold_count, hold_cap;
};

static bool *seen_rule(struct trap_session *trap, const struct config_rule *rule)
{
	return &trap->seen[rule - trap->options.config->rules];
}

static void on_opened(void *ctx, const struct evaluator_firing *firing)
{
	struct trap_session *trap = ctx;
	uint64_t after_ns = trap->options.config->incidents.after_ns;

	trap->opened++;
	*seen_rule(trap, firing->rule) = true;
	trap->open_until = mono_add(firing->to, after_ns);
	if (trap->caught_count < TRAP_SESSION_CAUGHT_MAX)
		incident_stem(firing->wall, firing->target->name, firing->rule->name,
			      trap->caught[trap->caught_count++].stem, sizeof trap->caught->stem);
	trap->options.caught(trap->options.ctx, firing, false);
}

/* Once enough were opened, a firing may still be merged into one that is open. */
static bool on_fired(void *ctx, const struct evaluator_firing *firing)
{
	struct trap_session *trap = ctx;
	bool open = incidents_is_open(trap->incidents, firing->target->key);

	if (open && trap->opened < trap->options.count && !*seen_rule(trap, firing->rule)) {
		*seen_rule(trap, firing->rule) = true;
		trap->opened++;
		trap->options.caught(trap->options.ctx, firing, true);
	}

	return trap->opened < trap->options.count || open;
}

/* NULL: there is no memory. */
static struct trigger_hold *hold_of(struct trap_session *trap, const struct config_rule *rule, uint32_t target)
{
	uint64_t number = (uint64_t)(rule - trap->options.config->rules);
	uint32_t at;

	if (pair_map_get(&trap->hold_of, number, target, &at))
		return &trap->holds[at];
	if (vector_reserve(&trap->holds, &trap->hold_cap, trap->hold_count + 1, sizeof *trap->holds) < 0 ||
	    pair_map_put(&trap->hold_of, number, target, (uint32_t)trap->hold_count) < 0)
		return NULL;

	trap->holds[trap->hold_count] = (struct trigger_hold){ 0 };

	return &trap->holds[trap->hold_count++];
}

/* As the rule judges it: a value of one window that did not last for its `for` would not have been caught. */
static void on_window(void *ctx, const struct evaluator_firing *window)
{
	struct trap_session *trap = ctx;
	const struct config_rule *rule = window->rule;
	double held = window->decision->value;
	double *most = rule->metric == METRIC_CPU ? &trap->most_cpu_percent : &trap->most_memory_bytes;

	if (rule->metric == METRIC_THREADS || rule->metric == METRIC_FDS || rule->trigger.below ||
	    !window->decision->available)
		return;
	if (rule->trigger.for_ns > 0) {
		struct trigger_hold *hold = hold_of(trap, rule, window->target->id);

		if (!hold || trigger_hold_add(hold, rule->trigger.for_ns, window->decision, window->end, &held) != 0)
			return;
	}
	if (held > *most)
		*most = held;
}

static int build_rules(struct trap_session *trap)
{
	struct dispatcher_options options = {
		.config = trap->options.config,
		.session = trap->session,
		.spool = trap->spool,
		.rule_state = trap->rule_state,
		.fired = on_fired,
		.opened = on_opened,
		.witness = on_window,
		.ctx = trap,
	};
	int r = dispatcher_open(&options, &trap->dispatcher);

	if (r < 0) {
		log_line(LOG_ERR, "cannot build the rules: %s", strerror(-r));
		return r;
	}

	trap->evaluator = dispatcher_evaluator(trap->dispatcher);
	trap->incidents = dispatcher_incidents(trap->dispatcher);

	return 0;
}

/* After trap_session_finish. False: the configuration is still in use (session_free). */
static bool trap_session_free(struct trap_session *trap)
{
	if (!trap)
		return true;

	bool ended = dispatcher_close(trap->dispatcher), freed = ended && session_free(trap->session);

	if (ended)
		spool_free(trap->spool);
	rule_state_free(trap->rule_state);
	for (size_t i = 0; i < trap->hold_count; i++)
		trigger_hold_release(&trap->holds[i]);
	free(trap->holds);
	pair_map_release(&trap->hold_of);
	free(trap->caught);
	free(trap);

	return freed;
}

/* Makes a first scan. 0; -errno, logged unless *ret_directory: it cannot be used. */
static int trap_session_new(const struct trap_session_options *options, struct trap_session **ret, bool *ret_directory)
{
	static const struct retention_limits unlimited;
	struct trap_session *trap = calloc(1, sizeof *trap);
	int r;

	*ret_directory = false;
	if (!trap)
		return -ENOMEM;

	trap->options = *options;
	trap->clock = real_clock();
	trap->caught = calloc(TRAP_SESSION_CAUGHT_MAX, sizeof *trap->caught);
	r = trap->caught ? spool_open(options->directory, &unlimited, &trap->spool, &(size_t){ 0 }) : -ENOMEM;
	*ret_directory = r < 0 && trap->caught;
	if (r == 0)
		r = rule_state_new("", &trap->rule_state);
	if (r == 0)
		r = session_new(options->config, NULL, &trap->session);
	if (r == 0)
		r = build_rules(trap);
	if (r < 0) {
		trap_session_free(trap);
		return r;
	}
	*ret = trap;

	return 0;
}

static int find_target(void *ctx, const struct evaluator_sight *sight)
{
	const struct target **found = ctx;

	*found = sight->target;

	return 1;
}

/* An incident now: of the process, or the sum, that is watched; of several processes of all. */
static void trap_session_request(struct trap_session *trap, struct incidents_ticket *ret)
{
	const struct target *target = NULL;
	uint64_t after_ns = trap->options.config->incidents.after_ns;
	struct discovery_state found;

	discovery_state(session_parts(trap->session).discovery, &found);
	if (found.target_table.targets == 1)
		evaluator_visit_targets(trap->evaluator, find_target, &target);
	incidents_trigger(trap->incidents, target, ret);
	if (ret->answer != INCIDENTS_OPENED)
		return;
	trap->opened++;
	trap->open_until = mono_add(clock_mono(&trap->clock), after_ns);
	if (trap->caught_count < TRAP_SESSION_CAUGHT_MAX)
		memcpy(trap->caught[trap->caught_count++].stem, ret->stem, sizeof ret->stem);
}

/* All incidents that were wanted are complete. */
static bool trap_session_done(const struct trap_session *trap)
{
	struct incidents_counts counts;

	incidents_counts(trap->incidents, &counts);

	return trap->opened >= trap->options.count && counts.open == 0;
}

/* Stops sampling, and waits until open incidents are written as they are. */
static void trap_session_finish(struct trap_session *trap)
{
	session_stop(trap->session);
	dispatcher_finish(trap->dispatcher, clock_mono(&trap->clock));
}

/* Processes watched now, members of a sum counted. *ret_error: why one could not be, or 0. */
static size_t trap_session_targets(const struct trap_session *trap, int *ret_error)
{
	struct discovery_state found;

	discovery_state(session_parts(trap->session).discovery, &found);
	*ret_error = found.target_table.failed ? found.target_table.last_error : 0;

	return trap->options.config->targets[0].per == CONFIG_PER_GROUP ? found.target_table.members
									: found.target_table.targets;
}

static int find_sum(void *ctx, const struct evaluator_sight *sight)
{
	*(uint32_t *)ctx = sight->target->id;

	return sight->target->kind == TARGET_GROUP;
}

/* How many processes of the watched sum, less this one, still run; at most LEFT_MAX. */
static size_t trap_session_left(const struct trap_session *trap, int32_t but)
{
	int32_t pids[LEFT_MAX];
	uint32_t id = 0;
	size_t left = 0;

	if (evaluator_visit_targets(trap->evaluator, find_sum, &id) == 0)
		return 0;

	size_t count = discovery_pids(session_parts(trap->session).discovery, id, pids, LEFT_MAX);

	for (size_t i = 0; i < count; i++)
		left += pids[i] != but && (kill(pids[i], 0) == 0 || errno == EPERM);

	return left;
}

/* How many could not be written, which was logged. */
static uint64_t trap_session_failed(const struct trap_session *trap)
{
	struct incidents_counts counts;

	incidents_counts(trap->incidents, &counts);

	return counts.failed + counts.refused;
}

/* The (rule, target) that is nearest to firing. */
struct nearest {
	uint32_t id;
	double nearness; /* value over threshold */
	bool found;
};

static int visit_nearness(void *ctx, const struct evaluator_status *status)
{
	struct nearest *nearest = ctx;
	const struct trigger_decision *decision = status->decision;
	double threshold = decision && decision->has_distance ? decision->value + decision->distance : 0;
	double nearness = threshold > 0 ? decision->value / threshold : 0;

	if (!nearest->found || nearness > nearest->nearness)
		*nearest = (struct nearest){ .id = status->target->id, .nearness = nearness, .found = true };

	return 0;
}

struct describing {
	uint32_t id;
	struct trap_session_view *view;
};

static int visit_rules(void *ctx, const struct evaluator_status *status)
{
	const struct describing *describing = ctx;
	struct trap_session_view *view = describing->view;
	const struct trigger_decision *decision = status->decision;

	if (status->target->id != describing->id || !decision)
		return 0;
	if (status->rule->metric == METRIC_CPU && decision->available) {
		view->has_cpu = true;
		view->cpu_percent = decision->value;
	}
	if (decision->candidate && decision->pending_ns > view->pending_ns)
		view->pending_ns = decision->pending_ns;
	view->disarmed |= decision->candidate && decision->reason == TRIGGER_NOT_REARMED;

	return 0;
}

static int visit_memory(void *ctx, const struct evaluator_sight *sight)
{
	const struct describing *describing = ctx;
	struct trap_session_view *view = describing->view;

	if (sight->target->id != describing->id)
		return 0;
	snprintf(view->name, sizeof view->name, "%s", sight->target->name);
	if (sight->sample && sample_has(sight->sample, SAMPLE_MEMORY)) {
		view->has_memory = true;
		view->memory_bytes = sight->sample->value[SAMPLE_MEMORY];
	}

	return 1;
}

/* As of the windows that were judged. Visits all targets. */
static void trap_session_view(const struct trap_session *trap, struct trap_session_view *ret)
{
	struct nearest nearest = { 0 };
	struct incidents_counts counts;
	int64_t left = mono_diff(trap->open_until, clock_mono(&trap->clock));
	int error;

	incidents_counts(trap->incidents, &counts);
	*ret = (struct trap_session_view){
		.targets = trap_session_targets(trap, &error),
		.caught = trap->opened,
		.open = counts.open,
		.open_ns = left > 0 ? (uint64_t)left : 0,
	};
	evaluator_visit(trap->evaluator, visit_nearness, &nearest);
	if (!nearest.found)
		return;

	struct describing describing = { .id = nearest.id, .view = ret };

	evaluator_visit(trap->evaluator, visit_rules, &describing);
	evaluator_visit_targets(trap->evaluator, visit_memory, &describing);
}

/* The name with the highest number. */
static bool find_incident(int dirfd, const char *stem, char ret[static INCIDENT_NAME_MAX + 1])
{
	char name[INCIDENT_NAME_MAX + 16];
	bool found = false;

	for (int number = 1; number <= NUMBER_MAX; number++) {
		snprintf(name, sizeof name, "%s-%d", stem, number);
		if (faccessat(dirfd, name, F_OK, 0) < 0)
			break;
		snprintf(ret, INCIDENT_NAME_MAX + 1, "%.*s", INCIDENT_NAME_MAX, name);
		found = true;
	}

	return found;
}

/* The next incident that is in the directory and was not returned yet. False: none. */
static bool trap_session_written(struct trap_session *trap, char ret[static INCIDENT_NAME_MAX + 1])
{
	AUTO_CLOSE int dirfd = -1;

	for (size_t i = 0; i < trap->caught_count; i++) {
		if (trap->caught[i].reported)
			continue;
		if (dirfd < 0)
			dirfd = open(trap->options.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dirfd >= 0 && find_incident(dirfd, trap->caught[i].stem, ret)) {
			trap->caught[i].reported = true;
			return true;
		}
	}

	return false;
}

/* ---- the line on the terminal: cut to its width, so that it does not wrap ---- */

#define TRAP_LIVE_TEXT_MAX 512

/* {file} with on set by trap_live_detect; else all calls do nothing. */
struct trap_live {
	FILE *file;
	bool on;
	size_t shown; /* columns */
};

#define WIDTH_DEFAULT 80

/* On if file is a terminal whose cursor can be moved. */
static void trap_live_detect(struct trap_live *live, FILE *file)
{
	const char *term = getenv("TERM");

	*live = (struct trap_live){
		.file = file,
		.on = isatty(fileno(file)) && term && *term && strcmp(term, "dumb") != 0,
	};
}

__attribute__((format(printf, 3, 4))) static void append_text(char *buf, size_t cap, const char *format, ...)
{
	size_t len = strlen(buf);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(buf + len, cap - len, format, arguments);
	va_end(arguments);
}

/* Tenths of a second; whole seconds from a minute on. */
static const char *seconds_text(uint64_t ns, char *buf, size_t cap)
{
	if (ns >= 60 * NS_PER_S)
		return units_format_duration(buf, cap, ns / NS_PER_S * NS_PER_S);
	snprintf(buf, cap, "%.1f s", (double)(ns / (NS_PER_S / 10)) / 10);

	return buf;
}

/* The threshold that is reached next, or the last. */
static uint64_t next_memory(const struct trap_plan *plan, uint64_t bytes)
{
	size_t i = 0;

	while (i + 1 < plan->memory_count && plan->memory_bytes[i] < bytes)
		i++;

	return plan->memory_bytes[i];
}

static void add_values(const struct trap_plan *plan, const struct trap_session_view *view, char *buf, size_t cap)
{
	char value[UNITS_TEXT_MAX], name[4 * sizeof view->name + 1];

	text_escape(name, sizeof name, view->name, strlen(view->name));
	append_text(buf, cap, "%s", name);
	if (view->has_cpu)
		append_text(buf, cap, " CPU %.0f%%", view->cpu_percent);
	if (view->has_cpu && plan->cpu_percent > 0)
		append_text(buf, cap, " of %s", units_format_percent(value, sizeof value, plan->cpu_percent));
	if (view->has_memory)
		append_text(buf, cap, "%s memory %s", view->has_cpu ? "," : "",
			    units_format_bytes(value, sizeof value, view->memory_bytes));
	if (view->has_memory && plan->memory_count > 0)
		append_text(buf, cap, " of %s",
			    units_format_bytes(value, sizeof value, next_memory(plan, view->memory_bytes)));
	if (view->targets > 1)
		append_text(buf, cap, plan->tree ? ", of %zu processes" : "; the nearest of %zu", view->targets);
}

/* "12 s: job-812 CPU 43% of 80%, memory 84 MiB", with printable names. Returns buf. */
static const char *trap_live_text(const struct trap_plan *plan, const struct trap_session_view *view,
				  uint64_t waited_ns, uint64_t wanted, char *buf, size_t cap)
{
	char time[UNITS_TEXT_MAX], name[64];

	buf[0] = '\0';
	append_text(buf, cap, "%s: ", seconds_text(waited_ns, time, sizeof time));
	if (wanted > 1)
		append_text(buf, cap, "caught %llu of %llu; ", (unsigned long long)view->caught,
			    (unsigned long long)wanted);
	if (view->open)
		append_text(buf, cap, "recording %s more; ", seconds_text(view->open_ns, time, sizeof time));
	if (view->targets == 0 && plan->comm) {
		text_escape(name, sizeof name, plan->comm, strlen(plan->comm));
		append_text(buf, cap, "no process is called %s yet", name);
	} else if (view->name[0]) {
		add_values(plan, view, buf, cap);
	}
	if (view->disarmed && !view->open)
		append_text(buf, cap, "; has to come down first");
	else if (view->pending_ns && !view->open)
		append_text(buf, cap, "; over for %s", seconds_text(view->pending_ns, time, sizeof time));

	return buf;
}

static size_t terminal_width(FILE *file)
{
	struct winsize size;

	return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : WIDTH_DEFAULT;
}

/* With the lines above, if the terminal became narrower since and has wrapped it. */
static void erase_line(struct trap_live *live, size_t width)
{
	size_t above = live->shown > width ? (live->shown - 1) / width : 0;

	if (above)
		fprintf(live->file, "\033[%zuA", above);
	fprintf(live->file, "\r\033[J");
	live->shown = 0;
}

/* Replaces the line by text, cut to the width of the terminal. */
static void trap_live_draw(struct trap_live *live, const char *text)
{
	if (!live->on)
		return;

	size_t width = terminal_width(live->file), len = output_prefix(text, width - 1);

	erase_line(live, width);
	fprintf(live->file, "%.*s", (int)len, text);
	live->shown = output_characters(text, len);
	fflush(live->file);
}

/* Before anything else is printed, and at the end. */
static void trap_live_erase(struct trap_live *live)
{
	if (!live->on || !live->shown)
		return;

	erase_line(live, terminal_width(live->file));
	fflush(live->file);
}

/* ---- SIGUSR1 ---- */

static volatile sig_atomic_t requested;

static void on_request(int number)
{
	(void)number;
	requested = 1;
}

/* ---- core dumps ---- */

#define CORE_PROGRAM "gcore"

/* Whether $PATH has the program. */
static bool has_core_program(void)
{
	const char *path = getenv("PATH");
	char whole[PATH_MAX];

	while (path && *path) {
		size_t len = strcspn(path, ":");

		snprintf(whole, sizeof whole, "%.*s/" CORE_PROGRAM, (int)len, path);
		if (access(whole, X_OK) == 0)
			return true;
		path += len + (path[len] == ':');
	}

	return false;
}

/* Its output is of no use but for errors. Never returns. */
static _Noreturn void run_core_program(const char *prefix, int32_t pid)
{
	int nowhere = open("/dev/null", O_RDWR);
	char text[16];

	snprintf(text, sizeof text, "%d", pid);
	if (nowhere >= 0) {
		dup2(nowhere, STDIN_FILENO);
		dup2(nowhere, STDOUT_FILENO);
		dup2(nowhere, STDERR_FILENO);
	}
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	execlp(CORE_PROGRAM, CORE_PROGRAM, "-o", prefix, text, (char *)NULL);
	_exit(127);
}

/* ---- the command ---- */

struct core_dump {
	pid_t program; /* 0: none runs */
	char path[INCIDENT_LOAD_PATH_MAX + 64];
};

struct trap {
	struct trap_plan plan;
	const char *group_text; /* of --pgid */
	const char *pid_text, *output;
	const char *memory_text;
	uint64_t count, timeout_ns, threads, descriptors, for_ns;
	bool ran;  /* the command was let go */
	bool core; /* a core dump at each catch, by gcore(1) */
	struct core_dump dump;
	char directory[INCIDENT_LOAD_PATH_MAX];
	struct stopped_child child;
	struct trap_live live;
	struct trap_session *session;
	struct clock clock;
	mono_t begun, drawn;
	char last[INCIDENT_NAME_MAX + 1]; /* the last incident that was written; "" */
	uint64_t written;
};

static int check_pid(struct trap *trap)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char error[160], comm[32], *end;

	errno = 0;
	long pid = strtol(trap->pid_text, &end, 10);

	if (errno || end == trap->pid_text || *end || pid <= 0 || pid > INT32_MAX) {
		snprintf(error, sizeof error, "--pid %.80s: expected one process id, as in -p 812", trap->pid_text);
		return options_wrong(SELF, error);
	}

	bool hidden = kill((pid_t)pid, 0) < 0;

	if (hidden && errno == ESRCH) {
		fprintf(stderr, SELF ": --pid %ld: there is no such process\n", pid);
		return EXIT_USAGE;
	}
	if (hidden)
		fprintf(stderr,
			SELF ": process %ld is not yours: its numbers are recorded, its memory maps and open files "
			     "only for root\n",
			pid);

	bool named = proc_read_line(procfd, (int32_t)pid, "comm", comm, sizeof comm) > 0;

	trap_plan_watch(&trap->plan, (int32_t)pid, named ? comm : "pid");

	return EXIT_OK;
}

/* The process group of a process, and of its parent; 0: not known. */
static void groups_of(int procfd, int32_t pid, pid_t *ret, pid_t *ret_parents)
{
	char text[1024];
	struct procfs_stat stat;
	ssize_t len = proc_read_file(procfd, pid, "stat", text, sizeof text);

	*ret = getpgid(pid);
	*ret_parents = len > 0 && procfs_stat_parse(text, (size_t)len, &stat) == 0 && stat.parent_pid > 0
			       ? getpgid(stat.parent_pid)
			       : 0;
}

static void add_process(struct trap_plan *plan, int procfd, int32_t pid)
{
	char comm[64];
	bool named = proc_read_line(procfd, pid, "comm", comm, sizeof comm) > 0;

	target_name_of(named ? comm : "pid", pid, plan->names[plan->pid_count]);
	plan->pids[plan->pid_count++] = pid;
}

/*
 * Those members of a process group whose parents are outside of it: what they start is watched with
 * them. 0; -EINVAL, explained in error.
 */
static int find_group(struct trap_plan *plan, int32_t group, char *error, size_t cap)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = opendir("/proc");
	int r = 0;

	for (struct dirent *item; r == 0 && dir && procfd >= 0 && (item = readdir(dir));) {
		int32_t pid = proc_read_pid_of(item->d_name);
		pid_t its, parents;

		if (!pid || pid == getpid())
			continue;
		groups_of(procfd, pid, &its, &parents);
		if (its != group || parents == group)
			continue;
		if (plan->pid_count == CONFIG_TREES_MAX)
			r = refuse_plan(error, cap, "--pgid %d: it has more than %d processes side by side", group,
					CONFIG_TREES_MAX);
		else
			add_process(plan, procfd, pid);
	}
	if (dir)
		closedir(dir);
	if (r == 0 && plan->pid_count == 0)
		r = refuse_plan(error, cap, "--pgid %d: there is no such process group", group);
	if (r == 0)
		plan->pid = plan->pids[0];
	snprintf(plan->name, sizeof plan->name, "group-%d", group);

	return r;
}

/* EXIT_OK; EXIT_USAGE, printed. */
static int check_group(struct trap *trap)
{
	char error[400], *end;
	long group = strtol(trap->group_text, &end, 10);

	if (end == trap->group_text || *end || group <= 0 || group > INT32_MAX)
		snprintf(error, sizeof error, "--pgid %.80s: expected one process group, as ps -o pgid has it",
			 trap->group_text);
	else if (trap->plan.tree)
		snprintf(error, sizeof error, "--pgid: its processes are watched one by one: expected no --tree");
	else if (find_group(&trap->plan, (int32_t)group, error, sizeof error) == 0)
		return EXIT_OK;

	return options_wrong(SELF, error);
}

/* A command that is only a number was meant as a pid. */
static bool is_pid(char *const *command)
{
	return command[0] && !command[1] && command[0][0] && command[0][strspn(command[0], "0123456789")] == '\0';
}

/* EXIT_OK; EXIT_USAGE, printed. */
static int check_request(struct trap *trap, char *const *command)
{
	int given = (trap->pid_text != NULL) + (trap->group_text != NULL) + (trap->plan.comm != NULL) +
		    (command[0] != NULL);
	char error[400];

	if (given == 1 && is_pid(command)) {
		snprintf(error, sizeof error, "\"%.20s\" is not a command; did you mean -p %.20s?", command[0],
			 command[0]);
		return options_wrong(SELF, error);
	}
	if (given != 1)
		return options_wrong(
			SELF,
			given ? "only one of these can be watched: --pid PID, --pgid GROUP, --comm NAME or -- COMMAND"
			      : "nothing to wait for: expected --pid PID, --pgid GROUP, --comm NAME or -- COMMAND");
	if (trap->count == 0)
		return options_wrong(SELF, "--count 0: expected at least 1");
	if (trap->threads == 0)
		return options_wrong(SELF, "--threads 0: expected at least 1");
	if (trap->descriptors == 0)
		return options_wrong(SELF, "--fds 0: expected at least 1");
	if (trap->for_ns == 0)
		return options_wrong(SELF, "--for 0s: out of range: expected 1ms to 1h");
	if (trap->memory_text && read_memory(&trap->plan, trap->memory_text, error, sizeof error) < 0)
		return options_wrong(SELF, error);
	trap->plan.threads = trap->threads == NOT_GIVEN ? 0 : trap->threads;
	trap->plan.descriptors = trap->descriptors == NOT_GIVEN ? 0 : trap->descriptors;
	trap->plan.for_ns = trap->for_ns == NOT_GIVEN ? 0 : trap->for_ns;
	if (trap->count == NOT_GIVEN)
		trap->count = trap->plan.memory_count > 1 ? trap->plan.memory_count : 1;

	int code = trap->pid_text ? check_pid(trap) : trap->group_text ? check_group(trap) : EXIT_OK;

	if (code == EXIT_OK && trap->core && !has_core_program())
		code = options_wrong(SELF, "--core: " CORE_PROGRAM " is not installed (Debian: package gdb)");
	if (code == EXIT_OK && trap_plan_resolve(&trap->plan, error, sizeof error) < 0)
		code = options_wrong(SELF, error);

	return code;
}

/* Not a directory of another user: its daemon could not remove our incidents. */
static bool may_use(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? errno == ENOENT : st.st_uid == geteuid() && access(path, W_OK | X_OK) == 0;
}

/* Where `spikewatch list` looks; if that may not be written, the user's own directory. */
static int choose_directory(struct trap *trap)
{
	const char *environment = getenv("SPIKEWATCH_DIR");
	int r = incident_load_directory(trap->output, trap->directory, sizeof trap->directory);

	if (r == 0 && !trap->output && !(environment && *environment) && !may_use(trap->directory))
		r = incident_load_own_directory(trap->directory, sizeof trap->directory);
	if (r == 0)
		return EXIT_OK;

	fprintf(stderr, SELF ": cannot choose a directory for incidents (%s): give one with -o DIR\n", strerror(-r));

	return EXIT_TROUBLE;
}

/* Prints text quoted for a shell. */
static void put_quoted(const char *text)
{
	if (text[0] &&
	    text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.,:/@%+=-")] == '\0') {
		fputs(text, stderr);
		return;
	}
	fputc('\'', stderr);
	for (const char *at = text; *at; at++)
		if (*at == '\'')
			fputs("'\\''", stderr);
		else
			output_escaped_len(stderr, at, 1);
	fputc('\'', stderr);
}

static void print_waiting(struct trap *trap)
{
	char what[TRAP_PLAN_TEXT_MAX];
	const struct session_parts parts = session_parts(trap->session->session);
	struct stack_recorder_status stacks = { .kernel = false };
	int error;

	/* With stacks it says why there are none of other users, which are not watched. */
	if (parts.stacks)
		stack_recorder_status(parts.stacks, &stacks);
	if (!stacks.kernel && *parts.stacks_off)
		fprintf(stderr, SELF ": %s: %s\n", parts.stacks ? "only user-space stacks" : "no stacks",
			parts.stacks_off);
	fprintf(stderr, SELF ": waiting for ");
	output_escaped(stderr, trap->plan.pid ? trap->plan.name : trap->plan.comm);
	fprintf(stderr, "%s: %s; Ctrl-C ends it\n", trap->plan.tree ? " and all that it starts" : "",
		trap_plan_text(&trap->plan, what, sizeof what));
	if (!trap->plan.pid && trap_session_targets(trap->session, &error) == 0) {
		fprintf(stderr, SELF ": no process is called ");
		output_escaped(stderr, trap->plan.comm);
		fprintf(stderr, " yet: waiting for one\n");
	}
}

/* Says what became of the dump that is being written, and waits for it if wait. */
static void finish_core(struct trap *trap, bool wait)
{
	struct core_dump *dump = &trap->dump;
	int status;

	if (dump->program == 0 || waitpid(dump->program, &status, wait ? 0 : WNOHANG) != dump->program)
		return;
	dump->program = 0;
	trap_live_erase(&trap->live);
	if (access(dump->path, F_OK) == 0)
		fprintf(stderr, SELF ": wrote %s\n", dump->path);
	else
		fprintf(stderr, SELF ": no core dump: " CORE_PROGRAM " could not write %s\n", dump->path);
}

/* Starts a dump of the process; of a sum that of its first one. It stops while it is written. */
static void dump_core(struct trap *trap, const struct evaluator_firing *firing)
{
	int32_t pid = firing->target->kind == TARGET_PROCESS ? firing->target->pid : trap->plan.pid;
	char stem[INCIDENT_NAME_MAX + 1], prefix[INCIDENT_LOAD_PATH_MAX + 32];

	finish_core(trap, false);
	if (trap->dump.program != 0 || pid == 0) {
		fprintf(stderr, SELF ": no core dump of this one: %s\n",
			pid == 0 ? "the sum has no first process" : "another one is being written");
		return;
	}
	incident_stem(firing->wall, firing->target->name, firing->rule->name, stem, sizeof stem);
	snprintf(prefix, sizeof prefix, "%s/core.%.20s", trap->directory, stem);
	snprintf(trap->dump.path, sizeof trap->dump.path, "%s.%d", prefix, pid);
	trap->dump.program = fork();
	if (trap->dump.program == 0)
		run_core_program(prefix, pid);
	if (trap->dump.program < 0) {
		fprintf(stderr, SELF ": no core dump: %s\n", strerror(errno));
		trap->dump.program = 0;
	}
}

/* SIGUSR1 has come. */
static void take_request(struct trap *trap)
{
	struct incidents_ticket ticket;
	char after[UNITS_TEXT_MAX];

	requested = 0;
	trap_session_request(trap->session, &ticket);
	trap_live_erase(&trap->live);
	if (ticket.answer == INCIDENTS_REFUSED)
		fprintf(stderr, SELF ": asked for an incident by SIGUSR1: refused: %s\n", ticket.why);
	else
		fprintf(stderr, SELF ": asked for an incident by SIGUSR1%s; recording %s more\n",
			ticket.answer == INCIDENTS_MERGED ? ": it is part of the one that is open" : "",
			units_format_duration(after, sizeof after, ticket.sealed_in_ns));
}

static void on_caught(void *ctx, const struct evaluator_firing *firing, bool joins)
{
	struct trap *trap = ctx;
	enum metric metric = firing->rule->metric;
	char value[64], after[UNITS_TEXT_MAX];

	trap_live_erase(&trap->live);
	units_format(value, sizeof value, metric_unit(metric), firing->decision->value, UNITS_READING);
	fprintf(stderr, SELF ": caught ");
	output_escaped(stderr, firing->target->name);
	fprintf(stderr, ": %s%s%s; ",
		metric == METRIC_CPU                               ? "CPU "
		: metric == METRIC_THREADS || metric == METRIC_FDS ? ""
								   : "memory ",
		value,
		metric == METRIC_CPU       ? " of a core"
		: metric == METRIC_THREADS ? " threads"
		: metric == METRIC_FDS     ? " open descriptors"
					   : "");
	if (joins)
		fprintf(stderr, "it goes into the incident that is being recorded\n");
	else
		fprintf(stderr, "recording %s more\n", units_format_duration(after, sizeof after, trap->plan.after_ns));
	if (trap->core)
		dump_core(trap, firing);
}

static void print_written(struct trap *trap)
{
	while (trap_session_written(trap->session, trap->last)) {
		trap_live_erase(&trap->live);
		trap->written++;
		fprintf(stderr, SELF ": wrote %s\n", trap->last);
	}
}

static void print_nothing_caught(struct trap *trap)
{
	char cpu[UNITS_TEXT_MAX], memory[UNITS_TEXT_MAX], length[UNITS_TEXT_MAX];
	double cpu_percent = trap->session->most_cpu_percent, memory_bytes = trap->session->most_memory_bytes;

	if (stopped_child_ended(&trap->child) && stopped_child_failed(&trap->child))
		return; /* the child has printed why */
	fprintf(stderr, SELF ": nothing was caught");
	if (cpu_percent > 0)
		fprintf(stderr, "; the most was CPU %s of a core for %s",
			units_format_percent(cpu, sizeof cpu, cpu_percent),
			units_format_duration(length, sizeof length,
					      trap->plan.for_ns ? trap->plan.for_ns : CPU_DEFAULT_FOR_NS));
	if (memory_bytes > 0)
		fprintf(stderr, "%s memory %s", cpu_percent > 0 ? "," : "; the most was",
			units_format_bytes(memory, sizeof memory, (uint64_t)memory_bytes));
	fputc('\n', stderr);
}

/* What was caught and is not there: the log above says why. */
static void print_unwritten(const struct trap *trap)
{
	uint64_t failed = trap_session_failed(trap->session);

	if (failed > 0)
		fprintf(stderr, SELF ": %llu of %llu that were caught could not be written\n",
			(unsigned long long)failed, (unsigned long long)trap->session->opened);
}

/* Daemons that the command has started outlive it, and are not watched any more. */
static void print_left(const struct trap *trap)
{
	size_t left = stopped_child_ended(&trap->child) ? trap_session_left(trap->session, trap->child.pid) : 0;

	if (left)
		fprintf(stderr, SELF ": the command has ended; %zu process%s it has started still run%s, unwatched\n",
			left, left > 1 ? "es" : "", left > 1 ? "" : "s");
}

/* Whether "last" is this incident: a daemon may use the directory too. */
static bool is_last(const struct trap *trap)
{
	AUTO_CLOSE int dirfd = open(trap->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	const char *newest;

	return dirfd >= 0 && incident_load_list(dirfd, &names) == 0 &&
	       incident_load_find(&names, "last", &newest) == 0 && strcmp(newest, trap->last) == 0;
}

/* The command to type next. */
static void print_next(const struct trap *trap)
{
	char usual[INCIDENT_LOAD_PATH_MAX];

	fprintf(stderr, SELF ": to see it: spikewatch show ");
	if (incident_load_directory(NULL, usual, sizeof usual) < 0 || strcmp(usual, trap->directory) != 0) {
		fprintf(stderr, "-d ");
		put_quoted(trap->directory);
		fputc(' ', stderr);
	}
	fprintf(stderr, "%s\n", is_last(trap) ? "last" : trap->last);
}

static void redraw(struct trap *trap, mono_t now)
{
	struct trap_session_view view;
	char text[TRAP_LIVE_TEXT_MAX];

	if (!trap->live.on || mono_diff(now, trap->drawn) < (int64_t)REDRAW_NS)
		return;
	trap->drawn = now;
	trap_session_view(trap->session, &view);
	trap_live_text(&trap->plan, &view, (uint64_t)mono_diff(now, trap->begun), trap->count, text, sizeof text);
	trap_live_draw(&trap->live, text);
}

static bool is_over(struct trap *trap, mono_t now)
{
	int error;

	if (interruption_signal() || trap_session_done(trap->session))
		return true;
	if (trap->timeout_ns && mono_diff(now, trap->begun) >= (int64_t)trap->timeout_ns)
		return true;
	if (trap->child.pid)
		return stopped_child_ended(&trap->child);

	return trap->plan.pid && trap_session_targets(trap->session, &error) == 0;
}

static int wait_until_over(struct trap *trap)
{
	for (;;) {
		int r = dispatcher_poll(trap->session->dispatcher, clock_mono(&trap->clock));
		mono_t now = clock_mono(&trap->clock);

		print_written(trap);
		finish_core(trap, false);
		if (requested)
			take_request(trap);
		if (r < 0 || is_over(trap, now))
			return r;
		redraw(trap, now);
		real_clock_sleep_until(mono_add(now, POLL_NS));
	}
}

/* A process that has ended, is hidden, or is a thread would be waited for in vain. */
static int check_found(struct trap *trap)
{
	int error, r = 0;

	if (trap->plan.pid && trap_session_targets(trap->session, &error) == 0) {
		r = error ? error : -ESRCH;
		fprintf(stderr, SELF ": process %d cannot be watched: %s\n", trap->plan.pid, strerror(-r));
	}

	return r;
}

/* That incidents can be written is tried now, and not when there is one. 0 or -errno, printed. */
static int check_room(const struct trap *trap)
{
	char path[INCIDENT_LOAD_PATH_MAX + 32], room[UNITS_TEXT_MAX];
	struct statvfs disk;
	int r = 0;

	snprintf(path, sizeof path, "%s/.trap-%d", trap->directory, getpid());
	if (mkdir(path, 0700) < 0 || rmdir(path) < 0 || statvfs(trap->directory, &disk) < 0)
		r = -errno;
	if (r < 0) {
		fprintf(stderr, SELF ": ");
		output_escaped(stderr, trap->directory);
		fprintf(stderr, ": %s; give another one with -o DIR\n", strerror(-r));
	} else if ((uint64_t)disk.f_bavail * disk.f_frsize < ROOM_MIN_BYTES) {
		r = -ENOSPC;
		fprintf(stderr, SELF ": ");
		output_escaped(stderr, trap->directory);
		fprintf(stderr,
			": only %s of disk are free, and an incident may need %llu MiB; give another one with -o DIR\n",
			units_format_bytes(room, sizeof room, (uint64_t)disk.f_bavail * disk.f_frsize),
			ROOM_MIN_BYTES >> 20);
	}

	return r;
}

/* 0 or -errno, printed. */
static int wait_for_spike(struct trap *trap)
{
	int r = check_found(trap);

	if (r < 0)
		return r;

	r = check_room(trap);
	if (r < 0)
		return r;

	print_waiting(trap);
	log_only(LOG_WARNING);
	trap->begun = clock_mono(&trap->clock);
	r = session_start(trap->session->session);
	if (r == 0)
		r = stopped_child_open(&trap->child);
	trap->ran = r == 0;
	if (r == 0)
		r = wait_until_over(trap);
	if (r < 0)
		fprintf(stderr, SELF ": %s\n", strerror(-r));

	trap_live_erase(&trap->live);
	trap_session_finish(trap->session);
	print_written(trap);
	finish_core(trap, true);
	if (trap->written)
		print_next(trap);
	print_unwritten(trap);
	if (r == 0 && trap->session->opened == 0)
		print_nothing_caught(trap);
	print_left(trap);

	return r < 0 ? r : trap_session_failed(trap->session) ? -EIO : 0;
}

/* 0; -errno or EXIT_USAGE, printed. */
static int open_and_run(struct trap *trap, struct config **config)
{
	struct trap_session_options options = {
		.directory = trap->directory,
		.count = trap->count,
		.caught = on_caught,
		.ctx = trap,
	};
	bool directory = false;
	char error[400];
	int r = trap_plan_config(&trap->plan, config, error, sizeof error);

	if (r == -EINVAL)
		return options_wrong(SELF, error);
	options.config = *config;
	if (r == 0)
		r = trap_session_new(&options, &trap->session, &directory);
	if (directory) {
		fprintf(stderr, SELF ": ");
		output_escaped(stderr, trap->directory);
		fprintf(stderr, ": %s; give another one with -o DIR\n", strerror(-r));
	} else if (r == -ENOMEM) {
		output_no_memory();
	}

	return r < 0 ? r : wait_for_spike(trap);
}

/* COMMAND's, as with time(1) and record; else whether something was caught. */
static int exit_code(struct trap *trap, bool has_command, int result)
{
	bool still_runs = has_command && result >= 0 && !interruption_signal() && !stopped_child_ended(&trap->child);

	if (still_runs)
		fprintf(stderr, SELF ": the command still runs\n");

	int code = has_command ? stopped_child_wait(&trap->child) : EXIT_OK;

	if (result > 0)
		return result;
	/* One that was never let go has no code of its own. */
	if (has_command && trap->ran)
		return code;
	if (result < 0)
		return EXIT_TROUBLE;

	return trap->written ? EXIT_OK : EXIT_TROUBLE;
}

static int trap_all(struct trap *trap, char *const *command)
{
	struct config *config = NULL;
	int r = 0;

	log_open(SELF, &(struct log_options){ .may_block = true });
	log_only(LOG_WARNING);
	interruption_catch();
	signal(SIGUSR1, on_request);
	signal(SIGCHLD, SIG_DFL);
	if (*command)
		r = stopped_child_fork(SELF, command, &trap->child);
	if (r == 0)
		r = children_begin();
	/* A build or a machine without a filter is no reason not to trap. gcore(1) traces. */
	if (r == 0 && !trap->core)
		(void)sandbox_recorder(trap->child.pid);
	if (r < 0)
		fprintf(stderr, SELF ": %s\n", strerror(-r));
	if (r == 0 && *command)
		trap_plan_watch(&trap->plan, trap->child.pid, command[0]);
	trap->plan.tree |= *command != NULL;
	if (r == 0)
		r = open_and_run(trap, &config);
	if (trap_session_free(trap->session))
		config_free(config);

	return exit_code(trap, *command != NULL, r);
}

int trap_command(int argc, char **argv)
{
	struct trap trap = { .count = NOT_GIVEN,
			     .threads = NOT_GIVEN,
			     .descriptors = NOT_GIVEN,
			     .for_ns = NOT_GIVEN,
			     .child = { .gate = -1 },
			     .clock = real_clock(),
			     .plan.after_ns = TRAP_PLAN_AFTER_NS };
	const struct option_spec options[] = {
		{ 'p', "pid", OPTION_TEXT, "PID", "a running process", &trap.pid_text },
		{ 0, "pgid", OPTION_TEXT, "GROUP", "all processes of a process group, and what they start",
		  &trap.group_text },
		{ 0, "comm", OPTION_TEXT, "NAME", "all processes of this name, later ones too", &trap.plan.comm },
		{ 0, "tree", OPTION_FLAG, NULL, "with all that they start, as one sum", &trap.plan.tree },
		{ 0, "cpu", OPTION_TEXT, "PERCENT", "more than this of one core (80%)", &trap.plan.cpu },
		{ 0, "cpu-below", OPTION_TEXT, "PERCENT", "less than this of one core", &trap.plan.below },
		{ 0, "memory", OPTION_TEXT, "SIZE[,SIZE...]", "more memory than this; of several, each once",
		  &trap.memory_text },
		{ 0, "threads", OPTION_NUMBER, "COUNT", "more threads than this", &trap.threads },
		{ 0, "fds", OPTION_NUMBER, "COUNT", "more open descriptors than this", &trap.descriptors },
		{ 0, "for", OPTION_DURATION, "TIME", "for this long (CPU 1s, all else at once)", &trap.for_ns },
		{ 'n', "count", OPTION_NUMBER, "COUNT", "end after this many incidents (1; one of each --memory)",
		  &trap.count },
		{ 0, "spacing", OPTION_DURATION, "TIME", "at least this long between two of a kind (0)",
		  &trap.plan.spacing_ns },
		{ 0, "core", OPTION_FLAG, NULL, "a core dump of the process at each catch, by gcore(1)", &trap.core },
		{ 0, "after", OPTION_DURATION, "TIME", "an incident continues for this long (3s)",
		  &trap.plan.after_ns },
		{ 't', "timeout", OPTION_DURATION, "TIME", "give up after this time (never)", &trap.timeout_ns },
		{ 0, "stacks", OPTION_TEXT, "MODE", "call stacks: dwarf, frame-pointers, off (dwarf)",
		  &trap.plan.stacks },
		{ 'o', "output", OPTION_TEXT, "DIR", "directory of incidents (that of list and show)", &trap.output },
	};
	const struct options_usage usage = {
		.command = SELF,
		.operands = "[-- COMMAND [ARGUMENT...]]",
		.summary = "Waits for a CPU or memory spike and writes it down: no daemon, no configuration.",
		.description =
			"Without a threshold: 80% of a core for 1 s, or memory that grows by half.\n"
			"COMMAND is watched with all that it starts, daemons too, as one sum: 800% are eight busy\n"
			"cores. The incident says which of the processes it was. SIGUSR1 requests an incident.",
		.example = "spikewatch trap -p 812 --cpu 150% --memory 2G\n"
			   "spikewatch trap --comm java --memory 1G,2G,4G --for 10\n"
			   "spikewatch trap --memory 8G -- make -j8\n"
			   "spikewatch trap -- python3 job.py && spikewatch show last",
		.exits = "that of COMMAND; else 0 caught, 1 nothing caught or trouble, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = -1,
		.stops_at_operand = true,
	};
	int first = 0, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	code = check_request(&trap, argv + first);
	if (code == EXIT_OK)
		code = choose_directory(&trap);
	if (code != EXIT_OK)
		return code;

	trap_live_detect(&trap.live, stderr);

	return trap_all(&trap, argv + first);
}
