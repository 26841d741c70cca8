/*
 * config.h: the configuration as a checked value, and how it is loaded: at the start, by --check and
 * at every reload alike, with the same messages. What each key means, its default, its range and its
 * messages are in config_keys.c and only there; conf/spikewatch.json shows every key at its default.
 */
#ifndef SPIKEWATCH_LIB_CONFIG_CONFIG_H
#define SPIKEWATCH_LIB_CONFIG_CONFIG_H

#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_document;

enum config_selector {
	CONFIG_PID,
	CONFIG_PIDFILE,
	CONFIG_COMM,       /* exact name of the process */
	CONFIG_EXE,        /* exact path of the executable, or a glob */
	CONFIG_CMDLINE,    /* POSIX extended regular expression over the arguments, joined by spaces */
	CONFIG_CGROUP,     /* glob over the path below the hierarchy's root: * within a component, ** over components */
	CONFIG_UNIT,       /* systemd unit name, may hold * */
	CONFIG_CONTAINERS, /* what container_matches takes: a glob over names of containers; and labels */
};

enum config_per { CONFIG_PER_PROCESS, CONFIG_PER_GROUP, CONFIG_PER_CGROUP };

#define CONFIG_TREES_MAX 64 /* target entries with tree */

#define CONFIG_RUNS_MAX 8 /* of a target: an incident waits for one after the other */

#define CONFIG_RUN_NAME_MAX 27 /* "run-<name>" is the name of a capture */

/* A command that an incident runs. */
struct config_run {
	const char *name;
	const char *
		*words; /* with placeholders (command_template.h), NULL at the end; the first is a path without any */
	size_t word_count;
	uint64_t timeout_ns;       /* 30s */
	uint64_t max_output_bytes; /* 1MiB */
	const char **rules;        /* globs over names of rules; rule_count 0: all */
	size_t rule_count;
	bool privileged; /* keeps the capabilities of the daemon */
};

#define CONFIG_LABELS_MAX 16 /* that a target entry asks for, or metrics have */

/* A label that a container must have. */
struct config_label {
	const char *key;
	const char *pattern; /* a glob over its value */
};

struct config_target {
	const char *name;
	enum config_selector selector;
	const char *pattern; /* of every selector but CONFIG_PID */
	int32_t pid;         /* CONFIG_PID */
	enum config_per per;
	struct config_label *labels; /* all of them; only with CONFIG_CONTAINERS */
	size_t label_count;
	bool tree;    /* the descendants of what matches too; not with CONFIG_PER_CGROUP */
	bool outside; /* not what is in a cgroup that an entry before it selects */
	struct config_run *runs;
	size_t run_count;
	uint64_t again_ns; /* from the first snapshot of the memory to the second; 0: there is none */
};

#define CONFIG_NOTIFIES_MAX 8

/* One way to tell about incidents ("notify"): a command, or a socket of a helper. */
struct config_notify {
	const char *name;
	const char **words; /* as config_run.words; NULL: socket is set */
	size_t word_count;
	const char *socket;    /* path of a stream socket */
	const char *input;     /* with placeholders: what the command reads, or the helper; "" is nothing */
	uint64_t timeout_ns;   /* 30s; of one try */
	uint64_t retry_ns;     /* 5s; until the second try, each later pause is four times as long */
	uint32_t tries;        /* 4; all together */
	uint32_t max_per_hour; /* 20; incidents told of */
	bool privileged;       /* as config_run.privileged */
	bool by_default;       /* true; for rules that name none */
};

struct config_rule {
	const char *name;
	enum metric metric;
	enum metric_of of;
	uint64_t window_ns;
	struct trigger_rule trigger;
	bool is_fine;         /* of CPU time in cgroups, and shorter than two reads of their files */
	const char **targets; /* names of target entries; target_count 0: all of them ("*") */
	size_t target_count;
	bool has_notify;     /* else it is told of by all entries that are by_default */
	const char **notify; /* names of entries of "notify" */
	size_t notify_count;
};

/* Bits of config_incidents.captures. */
enum config_capture {
	CONFIG_CAPTURE_SAMPLES = 1 << 0,
	CONFIG_CAPTURE_THREADS = 1 << 1,
	CONFIG_CAPTURE_STATUS = 1 << 2,
	CONFIG_CAPTURE_SMAPS = 1 << 3,
	CONFIG_CAPTURE_LIMITS = 1 << 4,
	CONFIG_CAPTURE_CGROUP = 1 << 5,
	CONFIG_CAPTURE_SYSTEM = 1 << 6,
	CONFIG_CAPTURE_ALL = (1 << 7) - 1,
};

enum config_discovery { CONFIG_DISCOVERY_AUTO, CONFIG_DISCOVERY_RESCAN };

enum config_idle_backoff { CONFIG_IDLE_BACKOFF_AUTO, CONFIG_IDLE_BACKOFF_ALWAYS, CONFIG_IDLE_BACKOFF_NEVER };

enum config_wait { CONFIG_WAIT_SLEEP, CONFIG_WAIT_YIELD, CONFIG_WAIT_SPIN };

enum config_scheduling { CONFIG_SCHEDULING_AUTO, CONFIG_SCHEDULING_NORMAL };

enum config_stacks_mode { CONFIG_STACKS_OFF, CONFIG_STACKS_FRAME_POINTERS, CONFIG_STACKS_DWARF };

enum config_clock { CONFIG_CLOCK_CPU, CONFIG_CLOCK_CYCLES };

/* Of CPU time. */
enum config_cpu_source { CONFIG_CPU_SOURCE_AUTO, CONFIG_CPU_SOURCE_KERNEL, CONFIG_CPU_SOURCE_FILES };

/* "sampling" */
struct config_sampling {
	uint64_t interval_ns;                  /* 10ms;  100us .. 10s */
	uint64_t idle_interval_ns;             /* 100ms; how long what hardly runs may be unread: config_idle_of */
	enum config_idle_backoff idle_backoff; /* auto; whether what does not run is looked at so rarely, too */
	uint64_t read_interval_ns;             /* 100ms; how long ticks may wait for being read: config_read_ns */
	uint64_t heartbeat_ns;                 /* 1s;    an unchanged target is recorded this often */
	uint64_t cgroup_interval_ns;           /* 100ms; cgroup files cost more */
	uint64_t peak_interval_ns;             /* 100ms; how often high-water marks are read, of targets that ran */
	uint64_t fds_interval_ns;              /* 1s;    how often descriptors are counted. 0 = never */
	uint64_t limits_interval_ns;           /* 2s;    how often effective limits are read again */
	uint64_t rescan_interval_ns;           /* 1s;    how often new targets are looked for */
	enum config_discovery discovery;   /* auto; whether the kernel is asked to tell of processes between rescans */
	enum config_wait wait;             /* sleep */
	enum config_cpu_source source;     /* auto */
	enum config_scheduling scheduling; /* auto: with real-time priority where that is allowed */
	bool reset_peaks;          /* false; reset VmHWM after reading it (writes clear_refs of the watched process) */
	double cpu_budget_percent; /* 10; of one core, for the whole daemon */
	uint32_t threads;          /* 0: chosen: as many as the CPU budget could ever use */
	uint32_t max_targets;      /* 10,000 */
};

/* "ring" */
struct config_ring {
	const char *path;    /* "": chosen by the daemon: /run/spikewatch/ring or $XDG_RUNTIME_DIR/spikewatch/ring */
	uint64_t size_bytes; /* 16MiB */
	uint32_t page_bytes; /* 64KiB */
	bool lock;           /* true */
};

/* "incidents" */
struct config_incidents {
	const char *directory; /* "": chosen by the daemon: /var/lib/spikewatch/incidents or $XDG_STATE_HOME/... */
	uint64_t before_ns;    /* 30s */
	uint64_t after_ns;     /* 10s */
	uint64_t max_incident_bytes; /* 64MiB */
	uint64_t max_bytes;          /* 1GiB */
	uint32_t max_count;          /* 200 */
	uint32_t max_per_hour;       /* 30; that rules open, of all targets; 0: no limit */
	uint64_t max_age_ns;         /* 30d */
	uint64_t min_free_bytes;     /* 256MiB; leave this much of the file system free */
	unsigned captures;           /* all */
};

/* "metrics" */
struct config_metrics {
	const char *listen;                /* "": no HTTP; else what listen_address_parse reads */
	const char *metrics_file;          /* "": none; else an absolute path that ends in .prom */
	uint64_t metrics_file_interval_ns; /* 15s; how often metrics file is written */
	uint32_t max_targets;              /* 500; targets that have series of their own; the rest is summed */
	const char **container_labels;     /* keys; container_label_count 0: none */
	size_t container_label_count;
};

/* "stacks" */
struct config_stacks {
	enum config_stacks_mode mode; /* dwarf: what is watched with registers and stack, all else by frame pointers */
	enum config_clock clock;      /* cpu; cycles: of the hardware, where it counts them */
	bool page_faults;             /* true; the stacks that made memory grow */
	uint32_t frequency;           /* 99; samples per second of each CPU */
	uint64_t stack_bytes;         /* 8KiB; what is copied of the stack for dwarf */
	uint64_t ring_bytes;          /* 0: what `before` takes. Of each CPU */
	uint64_t max_memory_bytes;    /* 64MiB; all rings, and the book of who mapped what */
};

/* "history": of the minutes that `spikewatch history` shows */
struct config_history {
	bool enabled;          /* true */
	const char *directory; /* "": beside the incidents */
	uint64_t max_bytes;    /* 95MiB: 99.6 MB */
	uint64_t max_age_ns;   /* 30d */
	uint32_t max_targets;  /* 300; rows of a minute: the rest is summed */
};

struct config {
	struct config_sampling sampling;
	struct config_ring ring;
	struct config_incidents incidents;
	struct config_metrics metrics;
	struct config_stacks stacks;
	struct config_history history;
	const char *state_file;   /* "": beside the incidents */
	const char *proc_root;    /* "/proc" */
	const char *cgroup_root;  /* "": where libcgroup says it is mounted */
	const char *runtime_root; /* "/": what is above the /run and /var/lib of container runtimes */
	uint64_t stuck_ns;        /* as config_file.stuck_ns; no key */
	uint64_t minute_ns;       /* as config_file.minute_ns; no key */
	struct config_target *targets;
	size_t target_count;
	struct config_notify *notifies;
	size_t notify_count;
	struct config_rule *rules;
	size_t rule_count;
	struct json_document **documents; /* own every text above */
	char **files;                     /* their names, as the sources had them */
	size_t document_count;
};

/* Where and why a configuration was refused. file is the name that was handed in. */
struct config_error {
	char file[256];
	unsigned line, column; /* 0: the file as a whole */
	char key[128];         /* dotted: "rules[2].window"; may be empty */
	char message[256];     /* what is wrong, then what was expected */
};

/* One file's text. */
struct config_source {
	const char *file; /* its name, for messages */
	const char *text;
	size_t len;
};

/*
 * Checks and merges sources in order (sections: the last one wins per key; "targets" and "rules"
 * add up). 0; -ENOMEM; -EINVAL: *err says where. *ret belongs to the caller: config_free.
 */
int config_parse(const struct config_source *sources, size_t count, struct config **ret, struct config_error *err);

/* Frees all of it, its texts included. NULL is fine. */
void config_free(struct config *config);
CLEANUP(config, free);

/* The same name and the same selection. Not compared: what an incident of it runs and captures. */
bool config_target_same(const struct config_target *a, const struct config_target *b);

/* The rest: the same commands and the same second snapshot. */
bool config_target_captures_same(const struct config_target *a, const struct config_target *b);

/* Whether an incident of this rule runs the command. */
bool config_run_wanted(const struct config_run *run, const char *rule);

/*
 * The longest pause between two reads of a process: sampling.idle_interval, or the heartbeat if that
 * is shorter. 0: there are no pauses, since that is not longer than sampling.interval.
 */
static inline uint64_t config_idle_ns(const struct config *config)
{
	const struct config_sampling *sampling = &config->sampling;
	uint64_t idle_ns = sampling->idle_interval_ns;

	if (sampling->heartbeat_ns < idle_ns)
		idle_ns = sampling->heartbeat_ns;

	return idle_ns > sampling->interval_ns ? idle_ns : 0;
}

/* How long ticks may wait until they are read together: no rule fires later than a tenth of its window. */
static inline uint64_t config_read_ns(const struct config *config)
{
	uint64_t read_ns = config->sampling.read_interval_ns;

	for (size_t i = 0; i < config->rule_count; i++)
		if (config->rules[i].window_ns / 10 < read_ns)
			read_ns = config->rules[i].window_ns / 10;
	return read_ns;
}

/*
 * The same for the processes of one target entry: at most a quarter of the shortest window of the
 * rules that apply to it.
 */
uint64_t config_idle_of(const struct config *config, const char *target);

/*
 * The longest time of which every window of the rules is a multiple and that is not above
 * config_idle_ns: a process that is read at its multiples has been read when a window ends. 0: there
 * is none longer than sampling.interval.
 */
uint64_t config_idle_grid_ns(const struct config *config);

/* The same name, and the same judgement of any value. Not compared: targets and notify. */
bool config_rule_same(const struct config_rule *a, const struct config_rule *b);

/* "FILE:LINE:COLUMN: KEY: MESSAGE", without what is empty, into buf, always terminated. */
void config_error_format(const struct config_error *err, char *buf, size_t cap);

/* "pid", "pidfile", ... / "samples", ...: static text. */
const char *config_selector_name(enum config_selector selector);
const char *config_capture_name(enum config_capture capture);

/*
 * Command templates: one word of a command that an incident runs: text with placeholders,
 * "{incident}/core.{pid}". There is no shell: a word stays one word, whatever its placeholders
 * stand for. Pure.
 *
 *     {pid} {incident} {rule} {target} {name}      {{ is {, and a } outside of a placeholder is a }
 *     {host} {value} {threshold} {time} {headline} {json}      of "notify" only
 */

enum command_template_placeholder {
	COMMAND_TEMPLATE_PID,      /* of the process that is captured */
	COMMAND_TEMPLATE_INCIDENT, /* the directory of the incident while it is being written */
	COMMAND_TEMPLATE_RULE,
	COMMAND_TEMPLATE_TARGET,
	COMMAND_TEMPLATE_NAME, /* of the command itself */
	COMMAND_TEMPLATE_HOST, /* this one and those after it: of "notify" */
	COMMAND_TEMPLATE_VALUE,
	COMMAND_TEMPLATE_THRESHOLD,
	COMMAND_TEMPLATE_TIME,
	COMMAND_TEMPLATE_HEADLINE,
	COMMAND_TEMPLATE_JSON,
	COMMAND_TEMPLATE_PLACEHOLDERS,
};

/* What each stands for; NULL counts as "". */
struct command_template_values {
	const char *text[COMMAND_TEMPLATE_PLACEHOLDERS];
};

/* Whether a word of a configuration has this placeholder. */
bool command_template_uses(const char *word, enum command_template_placeholder placeholder);

/* Room for a name made safe. */
#define COMMAND_TEMPLATE_SAFE_MAX 129

/*
 * Text of other processes as it may stand in a word: every byte but A-Z a-z 0-9 _ . - becomes _, and so
 * does a - or . in front, so that it is neither an option nor a path. Cut to its room. Returns buf.
 */
const char *command_template_safe(const char *text, char buf[COMMAND_TEMPLATE_SAFE_MAX]);

/*
 * Writes the word with its placeholders replaced into buf, terminated, if there is room; braces
 * that are no placeholder stay as they are. Returns the length that it has, as snprintf(3) does.
 */
size_t command_template_expand(const char *word, const struct command_template_values *values, char *buf, size_t cap);

/* Texts are borrowed, and must outlive every configuration that was loaded. */
struct config_file {
	const char *path;        /* absolute or as the working directory has it */
	const char *dropins;     /* directory of *.json that are read after it; NULL or missing: none */
	bool or_builtin;         /* where path does not exist: the shipped configuration, which is built in */
	const char *proc_root;   /* instead of what the file says, or NULL */
	const char *cgroup_root; /* the same */
	/*
	 * After how long without a sign of life a thread counts as stuck, and is no longer waited for
	 * when it is stopped; 0: the default of each thread. For tests.
	 */
	uint64_t stuck_ns;
	uint64_t minute_ns; /* what a minute of the history is; 0: a minute. For tests. */
};

/* "FILE:LINE:COLUMN: KEY: what is wrong", always terminated, fits. */
#define CONFIG_FILE_MESSAGE_MAX 1024

/*
 * Whether an entry that is valid can match nothing, or only by chance ("comm": "python3*"). Then ret
 * (cap bytes) has the reason, a sentence without full stop.
 */
bool config_target_doubt(const struct config_target *target, char *ret, size_t cap);

/* Whether the configuration that is built in is loaded instead of the file, as things stand. */
bool config_file_is_builtin(const struct config_file *file);

/*
 * config_parse of the file, then of its drop-ins in order of their names. 0; -ENOMEM; -EINVAL (a
 * file that cannot be read too). Unless 0, message (CONFIG_FILE_MESSAGE_MAX bytes) says where and
 * why. *ret is the caller's: config_free.
 */
int config_file_load(const struct config_file *file, struct config **ret, char *message);

#endif
