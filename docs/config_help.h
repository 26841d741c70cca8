/*
 * config_help.h: what the manual says of each key of the configuration, one entry for each row of
 * the tables of the parser (lib/config/config_keys.c). `make docs` writes both references from the
 * two: the tables of docs/configuration.md and the lists of docs/spikewatch.json.5. `make check`
 * fails when one of them is not what would be written.
 *
 * Text is Markdown, of which `code` and [links](#to) are known. Type, default and range of most keys
 * are in their rows; of those that the tables only name (CONFIG_KIND_OTHER) they are here. Only
 * tests/programs/make_config_reference.c includes this: no program carries the text.
 */
#ifndef SPIKEWATCH_DOCS_CONFIG_HELP_H
#define SPIKEWATCH_DOCS_CONFIG_HELP_H

#include <stddef.h>

struct config_help {
	const char *section; /* "": outside of sections; also "targets", "run", "notify" and "rules" */
	const char *key;
	const char *type, *initial, *range; /* of what the tables only name; NULL: none */
	const char *text;
};

// clang-format off
#define KEY(s, k, ...)               { .section = s, .key = k, .text = __VA_ARGS__ }
#define KEY_OF(s, k, t, i, r, ...)   { .section = s, .key = k, .type = t, .initial = i, .range = r, .text = __VA_ARGS__ }

static const struct config_help config_help[] = {
	KEY_OF("", "sampling", "section", NULL, NULL,
		"How often and how samples are taken."),
	KEY_OF("", "ring", "section", NULL, NULL,
		"How much of the past is kept."),
	KEY_OF("", "incidents", "section", NULL, NULL,
		"What is written when a rule fires, and how much of it."),
	KEY_OF("", "metrics", "section", NULL, NULL,
		"What is exported to Prometheus."),
	KEY_OF("", "stacks", "section", NULL, NULL,
		"Whether call stacks are recorded."),
	KEY_OF("", "history", "section", NULL, NULL,
		"What is kept of each minute for `spikewatch history`. The `history` of a rule is something else: the "
		"average that it compares with."),
	KEY("", "state_file",
		"Where cooldowns, counts and high-water marks survive a restart. Empty: `state.json` beside the "
		"directory of the incidents."),
	KEY("", "proc_root",
		"Where procfs of the processes to watch is mounted. In a container that watches its host: where "
		"that of the host is mounted."),
	KEY("", "cgroup_root", "Where the cgroup hierarchies are. Empty: where they are mounted."),
	KEY("", "runtime_root",
		"What `/run` and `/var` of container runtimes are below; names and labels of containers are read "
		"there. In a container that watches its host: where the root of the host is mounted."),
	KEY_OF("", "targets", "array of objects, required", NULL, "1 to 1,000",
		"What is watched."),
	KEY_OF("", "notify", "array of objects", NULL, "at most 8",
		"What is told of incidents, and how ([notify](notify.md))."),
	KEY_OF("", "rules", "array of objects", NULL, "at most 1,000",
		"What a spike is."),

	KEY("sampling", "interval", "How often processes are sampled."),
	KEY("sampling", "idle_interval",
		"Memory and threads of a process that hardly runs are read this often, or four times in the shortest "
		"`window` of the rules on it if that is more often; with `idle_backoff`, one that does not run is "
		"looked at less and less often, down to this interval ([idle processes](#idle-processes)). 0, or not "
		"longer than `interval`: a process is looked at in every `interval`, and read whenever it ran."),
	KEY("sampling", "idle_backoff",
		"`auto`: every process is looked at in every `interval` while that fits `cpu_budget`; else those "
		"that sleep are looked at less often, which the journal, `spikewatch status` and incidents say. "
		"Processes of very many threads, a look at which costs more than 0.2 % of a core, are looked at less "
		"often while they sleep. `always`: all that sleep are, to save CPU time; `never`: none is."),
	KEY("sampling", "read_interval",
		"With `source` `kernel`, while nothing watched uses much CPU time, the daemon wakes up this rarely and "
		"writes all ticks since then at once, or a tenth of the shortest `window` of the rules if that is less "
		"([quiet machines](#quiet-machines)). 0, or less than two `interval`s: in every tick."),
	KEY("sampling", "heartbeat",
		"A target that does not change is recorded at least this often; where that would make more than 100 "
		"records in a second, half as often, down to an eighth. A process that does not run is read then, and "
		"later up to eight times less often ([what is read](#what-is-read-of-a-process))."),
	KEY("sampling", "cgroup_interval", "How often cgroup files are read, which cost more."),
	KEY("sampling", "peak_interval",
		"How often the kernel's high-water marks of memory are read, of processes that ran."),
	KEY("sampling", "fds_interval", "How often open descriptors are counted; 0: never."),
	KEY("sampling", "limits_interval",
		"How often effective CPU and memory limits are read again ([effective limits](#effective-limits))."),
	KEY("sampling", "rescan_interval", "How often new targets are searched for in all processes and cgroups."),
	KEY("sampling", "discovery",
		"`auto`: between scans the kernel announces processes, where that is allowed, and new ones are "
		"watched at once ([new processes](#new-processes)); `rescan`: scans only."),
	KEY("sampling", "source",
		"Where the CPU time of processes comes from. `files`: from their CPU clocks and `/proc`, which are "
		"asked in every `interval`; `kernel`: from a BPF program that adds it up at each switch of the "
		"scheduler, so that processes which did not run cost nothing, one that runs is known to the "
		"microsecond, and one that ended to the last; `files`, if that cannot be, or while it costs more. "
		"`auto`: `kernel`, and no warning where it cannot be ([source of CPU time](#source-of-cpu-time))."),
	KEY("sampling", "wait",
		"How the last part of the time to a deadline is spent: sleeping, which costs least, yielding the "
		"CPU, or spinning, which is most exact on a machine with a CPU to spare and takes 5 to 10 % of a "
		"core. On a busy machine neither helps: see `scheduling`."),
	KEY("sampling", "scheduling",
		"`auto`: sampler threads have real-time priority (SCHED_FIFO 1), where that is allowed, for as long "
		"as they keep within `cpu_budget`; else a short time slice; `normal`: neither that nor a nice value "
		"of its own ([busy machines](#busy-machines))."),
	KEY("sampling", "reset_peaks",
		"Reset high-water marks of memory after each reading, so that each peak is that of its interval. "
		"Writes `clear_refs` of watched processes, and `memory.max_usage_in_bytes` (v1) or `memory.peak` "
		"(v2, Linux 6.12, for this reader only) of watched cgroups."),
	KEY("sampling", "cpu_budget",
		"Of one core, for the whole daemon; finding new processes counts up to a quarter of it, so sampling keeps the rest however many are started. Above it processes that sleep are looked at less often (`idle_backoff`); if that is not enough the interval is "
		"lengthened. The journal says so."),
	KEY("sampling", "threads",
		"Sampler threads. 0: as many as `cpu_budget` could keep busy, and not more than there are CPUs "
		"([threads](#threads))."),
	KEY("sampling", "max_targets", "Further processes and cgroups are not watched, but counted."),

	KEY("ring", "path",
		"File of the ring. Empty: `/run/spikewatch/ring`, or below `$XDG_RUNTIME_DIR` for an ordinary user."),
	KEY("ring", "size", "Of the file, and of the memory it takes; at least four pages."),
	KEY("ring", "page_size", "What is sealed and recycled at a time; a power of two."),
	KEY("ring", "lock", "Lock it in memory. Where that is not allowed it works unlocked."),

	KEY("incidents", "directory",
		"Empty: `/var/lib/spikewatch/incidents`, or below `$XDG_STATE_HOME` for an ordinary user."),
	KEY("incidents", "before", "How much of the time before the firing is kept, as far as the ring reaches."),
	KEY("incidents", "after", "How long is recorded after it; one of the two must be above 0."),
	KEY("incidents", "max_incident_size",
		"Of one incident; at most `max_size`. If only `max_size` is given and is smaller, this follows it."),
	KEY("incidents", "max_size", "Of all of them together. The mildest are removed first."),
	KEY("incidents", "max_count", "How many are kept."),
	KEY("incidents", "max_per_hour",
		"How many rules open in an hour, of all targets together; the hour begins with the first one, and "
		"again after a restart. Further firings are logged once and open none. 0: no limit."),
	KEY("incidents", "max_age",
		"Older ones are removed, within an hour. Age is how long daemons have looked after the directory "
		"since: setting the time of day removes nothing, and time without a daemon, or in a suspend, does not "
		"count."),
	KEY("incidents", "min_free", "What must stay free on the file system."),
	KEY_OF("incidents", "captures", "array", "all", "samples, threads, status, smaps, limits, cgroup, system",
		"What is written beside `incident.json`."),

	KEY("metrics", "listen",
		"Answer HTTP requests at this address: `127.0.0.1:7745`, `[::1]:7745`, or `7745`, which is on "
		"127.0.0.1; numeric only, port 1 to 65535. Empty: do not."),
	KEY("metrics", "textfile",
		"Write them into this file, for a textfile collector; its name ends in `.prom`. Empty: do not."),
	KEY("metrics", "textfile_interval", "How often the file is written."),
	KEY("metrics", "max_targets", "Targets that have series of their own; the others are summed."),
	KEY_OF("metrics", "container_labels", "array of texts", "[]", "at most 16",
		"Labels of containers and pods that metrics have, in `spikewatch_target_info`."),

	KEY("stacks", "mode",
		"`frame-pointers`: on every CPU that is busy stacks are sampled by frame pointers, which programs "
		"compiled without them do not have. `dwarf`: these, and of watched processes also registers and a "
		"copy of the stack, which are unwound afterwards."),
	KEY("stacks", "clock",
		"What times the samples: the kernel's CPU clock, or the hardware's counter of cycles, which also "
		"sees what runs with interrupts off. Without such a counter the clock is used."),
	KEY("stacks", "page_faults",
		"Sample page faults too: the stacks that touched new memory. With `dwarf` they are of all "
		"processes, with a copy of the stack. If a CPU has more than 40,000 page faults a second for longer "
		"than a burst of 80,000 (320 MB), a part of them is counted and stands for all."),
	KEY("stacks", "frequency",
		"Samples per second of each CPU, or fewer if `kernel.perf_event_max_sample_rate` is lower; of page "
		"faults about as many at most."),
	KEY("stacks", "stack_size", "With `dwarf`: how much of the stack is copied. Deeper frames are cut."),
	KEY("stacks", "ring_size",
		"Memory of each CPU's ring of CPU samples by frame pointers, rounded up to a power of two. 0: what "
		"`before` and five seconds more take. The other rings follow from `before`."),
	KEY("stacks", "max_memory",
		"Of all rings, and, an eighth, of the history of which process mapped which file. Rings get three quarters "
		"at most: they are halved until they fit, those of `dwarf` first. Open incidents hold compressed "
		"copies of what they need, those of one second the same one: of a user the first as much as the "
		"rings hold (half of it beside those of others), the "
		"second a quarter, the third a ninth, and so on; beyond that the oldest samples are left out, and the "
		"incident says so."),

	KEY("history", "enabled", "Keep one."),
	KEY("history", "directory", "Empty: `history` beside the directory of the incidents."),
	KEY("history", "max_size",
		"Of all its files. The oldest hours are removed first; a month of 300 targets takes less."),
	KEY("history", "max_age",
		"What so much was recorded after is removed: setting the time of day removes nothing, and time without "
		"a daemon does not count."),
	KEY("history", "max_targets",
		"Rows of a minute: of more targets those that used most CPU time (three quarters) and memory, and "
		"those that had an incident; the others are summed."),

	KEY_OF("targets", "name", "name, required", NULL, NULL,
		"Unique."),
	KEY_OF("targets", "per", "choice", NULL, "process, group, cgroup",
		"What becomes a target. `process`: each process that matches; `group`: all of them, summed; "
		"`cgroup`: each cgroup that matches, or that a process which matches is in (except the root "
		"cgroup), as the kernel accounts for it. By default `cgroup` for `cgroup`, `unit` and `containers`, "
		"for which it is the container as a whole, else `process`."),
	KEY_OF("targets", "pid", "number", NULL, "1 to 4194304",
		"The process of this id."),
	KEY_OF("targets", "pidfile", "path", NULL, NULL,
		"The process whose id is in this file, which is read again with every scan."),
	KEY_OF("targets", "comm", "text", NULL, "at most 15 bytes",
		"Processes of exactly this name, as the kernel cuts it."),
	KEY_OF("targets", "exe", "path, a glob", NULL, NULL,
		"Processes that run this file; `*`, `?` and `[...]` do not match `/`. Those of other users are "
		"known only to root or with CAP_SYS_PTRACE."),
	KEY_OF("targets", "cmdline", "text", NULL, "at most 1,024 bytes",
		"Processes whose arguments, joined by blanks, match this POSIX extended regular expression "
		"somewhere."),
	KEY_OF("targets", "cgroup", "path, a glob", NULL, NULL,
		"Cgroups by path below the root of the hierarchy; `*` matches within a component, `**` over "
		"several."),
	KEY_OF("targets", "unit", "text, a glob", NULL, NULL,
		"The cgroup of a systemd unit, with its suffix ([units](#units))."),
	KEY_OF("targets", "containers", "text, a glob", NULL, NULL,
		"Containers by `NAMESPACE/POD/CONTAINER` or name, by id (at least 12 digits of it), or by image "
		"(`image:nginx*`). `*` matches slashes too."),
	KEY_OF("targets", "labels", "object", NULL, "at most 16",
		"Beside `containers`: only containers that have all of these labels, with values that match the "
		"globs, in which `*` matches slashes too. An empty glob matches any value. Containers whose labels "
		"cannot be read are not selected; their number and the reason are in the journal and in the status."),
	KEY_OF("targets", "run", "array of objects", NULL, "at most 8",
		"Commands that an incident of the target runs ([run](#run))."),
	KEY("targets", "again",
		"So long after the first snapshot of threads, status and memory an incident takes a second one of "
		"the same processes; 0: it does not ([again](#again))."),
	KEY("targets", "tree",
		"The descendants of what matches too: each a target of its own, or part of the group. They stay in "
		"it whatever they execute, and when their parent has ended. Not with `cgroup` or `unit`, and not "
		"per cgroup ([tree](#tree))."),
	KEY("targets", "outside",
		"Nothing that is in a cgroup, or below one, that an entry before this one selects as a cgroup "
		"([outside](#outside))."),

	KEY_OF("run", "name", "name, required", NULL, "at most 27 characters",
		"Unique in its target. The output of the command is in `run-NAME.txt` of the incident."),
	KEY_OF("run", "command", "array of texts, required", NULL, "1 to 64",
		"The path of the program, and its arguments. There is no shell and no search along `PATH`."),
	KEY("run", "timeout", "When it is over, the process group gets SIGTERM, and a second later SIGKILL."),
	KEY("run", "max_output",
		"Output beyond it is cut off: the pipe is closed, and writing on ends the command (SIGPIPE). The "
		"incident says so."),
	KEY_OF("run", "rules", "array of texts", NULL, "at most 16",
		"Globs over names of rules: it runs only for their incidents, and for those that were requested by "
		"hand if `manual` matches. A glob that matches no rule is an error. By default it runs for all."),
	KEY("run", "privileged",
		"It keeps the capabilities of the daemon, its way to gain more (set-uid), and what it may do to other "
		"processes: for what traces, or must be root. By default it has none of it."),

	KEY_OF("notify", "name", "name, required", NULL, NULL,
		"Unique; what rules, status and metrics call it."),
	KEY_OF("notify", "command", "array of texts", NULL, "1 to 64",
		"The path of a program, and its arguments, in which `{headline}`, `{host}`, `{rule}`, `{target}`, "
		"`{value}`, `{threshold}`, `{time}`, `{incident}` (its directory), `{pid}`, `{name}` and `{json}` are "
		"replaced. No shell. It has told when it exits with 0. Exactly one of `command` and `socket`."),
	KEY("notify", "socket",
		"A stream socket, of a helper that gets the text and answers `ok`: for the shipped service, which "
		"has no network ([notify](notify.md#the-shipped-service))."),
	KEY_OF("notify", "input", "text", "\"{json}\\n\"", "at most 4,096 bytes",
		"What the command reads on its standard input, or the helper, with the same placeholders."),
	KEY("notify", "timeout", "How long one try may take; then its process group is killed."),
	KEY("notify", "retry", "The pause before the second try; each later one is four times as long, up to ten minutes."),
	KEY("notify", "tries", "All together; then the notification is given up, which journal, status and metrics say."),
	KEY("notify", "max_per_hour", "Beyond it incidents are not told; the next notification says how many were left out."),
	KEY("notify", "privileged", "As in `run`: for a sendmail that is set-uid or set-gid."),
	KEY("notify", "default", "Whether rules that have no `notify` of their own are told by it."),

	KEY_OF("rules", "name", "name, required", NULL, NULL,
		"Unique; part of the names of incidents."),
	KEY_OF("rules", "targets", "`\"*\"` or array of names", "\"*\"", NULL,
		"The entries whose targets it is evaluated on, each target on its own; `*` is all."),
	KEY_OF("rules", "metric", "choice, required", NULL, NULL,
		"See Metrics."),
	KEY("rules", "of",
		"What 100 % is: the effective limit of the target, which is the machine if it has none, one core "
		"(for `cpu` only), or the machine. For `cpu` and `memory`."),
	KEY("rules", "window",
		"What a value is computed over: at least two readings of a rate, one of a level. It slides: one "
		"ends every tenth of its length."),
	KEY_OF("rules", "percent", "percentage", NULL, "0% to 100000%",
		"Fire when the value is above it. For metrics in percent."),
	KEY_OF("rules", "above", "in the unit of the metric", NULL, NULL,
		"The same for all other metrics."),
	KEY_OF("rules", "delta", "percentage", NULL, "above 0% to 100000%",
		"Fire when the value is at least what is `usual` and so much more."),
	KEY("rules", "usual",
		"What `delta` is above: `average`: of the last `history` windows; `highest`: of them, so that what comes again "
		"within that time does not fire again."),
	KEY_OF("rules", "minimum", "in the unit of the metric", NULL, NULL,
		"Below it, never fire."),
	KEY_OF("rules", "maximum", "in the unit of the metric", NULL, "above the other thresholds",
		"At or above it, never fire: recording would make the overload worse."),
	KEY("rules", "warmup",
		"Windows to see before the first judgement; at most `history`, and at least 1 with `delta`."),
	KEY("rules", "history", "Windows in the average, which the window under test is not part of."),
	KEY("rules", "for", "How long the condition must hold."),
	KEY("rules", "cooldown", "How long the rule does not fire again for the same target."),
	KEY("rules", "count", "How often it may fire in each `count_period`, for the same target; 0: no limit."),
	KEY("rules", "count_period", "0: the count is never reset."),
	KEY("rules", "rearm",
		"When the rule may fire again. `cooldown`: when that is over; `below`: and once a value has not "
		"exceeded its thresholds; `high-water`: and when a value exceeds the highest that ever fired."),
	KEY_OF("rules", "notify", "array of names", NULL, NULL,
		"The entries of `notify` that tell of its incidents; `[]`: none. By default all whose `default` is true."),
};
#undef KEY
#undef KEY_OF
// clang-format on

#endif
