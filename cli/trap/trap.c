/*
 * trap.c: spikewatch trap: waits in the foreground until a process does what it should not, and writes that down as the daemon would.
 *
 *	plan (options) ─▶ configuration ─▶ session, rules, incidents (trapsession.h) ─▶ so many incidents, or the end of what is watched
 *
 * All words go to standard error: standard output is COMMAND's. What the daemon would say at "notice" is said in words of our own.
 */
#include "commands.h"

#include "gatedchild.h"
#include "incidentload.h"
#include "interruption.h"
#include "log.h"
#include "metrictext.h"
#include "options.h"
#include "output.h"
#include "procread.h"
#include "realclock.h"
#include "scope.h"
#include "text.h"
#include "traplive.h"
#include "trapplan.h"
#include "trapsession.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SELF "spikewatch trap"

/* Between two looks at the ring, and two versions of the line. */
#define NAP_NS (20 * NS_PER_MS)
#define REDRAW_NS (200 * NS_PER_MS)

/* An option that was not given; 0 somebody may have typed. */
#define UNSAID UINT64_MAX

struct trap {
	struct trapplan plan;
	const char *pid_text, *output;
	uint64_t count, timeout_ns, memory_bytes, for_ns;
	char directory[INCIDENTLOAD_PATH_MAX];
	struct gatedchild child;
	struct traplive live;
	struct trapsession *session;
	struct clock clock;
	mono_t begun, drawn;
	char last[INCIDENT_NAME_MAX + 1]; /* incident that was written last; "" */
	uint64_t written;
};

/* Says why. Returns EXIT_USAGE. */
static int wrong(const char *error)
{
	fprintf(stderr, SELF ": ");
	output_escaped(stderr, error);
	fprintf(stderr, "\nTry '" SELF " --help'.\n");

	return EXIT_USAGE;
}

/* ---- what to watch ---- */

static int check_pid(struct trap *trap)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char error[160], comm[32] = "pid", *end;

	errno = 0;
	long pid = strtol(trap->pid_text, &end, 10);

	if (errno || end == trap->pid_text || *end || pid <= 0 || pid > INT32_MAX) {
		snprintf(error, sizeof error, "--pid %.80s: expected one process id, as in -p 812", trap->pid_text);
		return wrong(error);
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

	if (procread_file(procfd, (int32_t)pid, "comm", comm, sizeof comm) > 0)
		comm[strcspn(comm, "\n")] = '\0';
	trapplan_watch(&trap->plan, (int32_t)pid, comm);

	return EXIT_OK;
}

/* A number alone was meant as a pid. */
static bool is_pid(char *const *command)
{
	return command[0] && !command[1] && command[0][0] && command[0][strspn(command[0], "0123456789")] == '\0';
}

/* EXIT_OK, or what is wrong was said. */
static int check_request(struct trap *trap, char *const *command)
{
	int given = (trap->pid_text != NULL) + (trap->plan.comm != NULL) + (command[0] != NULL);
	char error[400];

	if (given == 1 && is_pid(command)) {
		snprintf(error, sizeof error, "\"%.20s\" is no command; did you mean -p %.20s?", command[0],
			 command[0]);
		return wrong(error);
	}
	if (given != 1)
		return wrong(given ? "one thing at a time: expected either --pid PID, --comm NAME or -- COMMAND"
				   : "nothing to wait for: expected --pid PID, --comm NAME or -- COMMAND");
	if (trap->count == 0)
		return wrong("--count 0: expected at least 1");
	if (trap->memory_bytes == 0)
		return wrong("--memory 0: expected a size such as 512MiB");
	if (trap->for_ns == 0)
		return wrong("--for 0s: out of range: expected 20ms to 1h");
	trap->plan.memory_bytes = trap->memory_bytes == UNSAID ? 0 : trap->memory_bytes;
	trap->plan.for_ns = trap->for_ns == UNSAID ? 0 : trap->for_ns;

	int code = trap->pid_text ? check_pid(trap) : EXIT_OK;

	if (code == EXIT_OK && trapplan_resolve(&trap->plan, error, sizeof error) < 0)
		code = wrong(error);

	return code;
}

/* ---- where to ---- */

/* What others own is left to them: a daemon could not remove what we put there. */
static bool may_use(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? errno == ENOENT : st.st_uid == geteuid() && access(path, W_OK | X_OK) == 0;
}

/* Where `spikewatch list` looks, so that it is found at once; else below the user's own directory. EXIT_OK or, said, EXIT_TROUBLE. */
static int choose_directory(struct trap *trap)
{
	const char *environment = getenv("SPIKEWATCH_DIR");
	int r = incidentload_directory(trap->output, trap->directory, sizeof trap->directory);

	if (r == 0 && !trap->output && !(environment && *environment) && !may_use(trap->directory))
		r = incidentload_own_directory(trap->directory, sizeof trap->directory);
	if (r == 0)
		return EXIT_OK;

	fprintf(stderr, SELF ": cannot tell where incidents belong (%s): say so with -o DIR\n", strerror(-r));

	return EXIT_TROUBLE;
}

/* As a word of a command line. */
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

/* ---- words ---- */

static void say_waiting(struct trap *trap)
{
	char what[TRAPPLAN_TEXT_MAX];
	const char *off = trapsession_stacks_off(trap->session);
	int error;

	if (*off)
		fprintf(stderr, SELF ": no stacks: %s\n", off);
	fprintf(stderr, SELF ": waiting for ");
	output_escaped(stderr, trap->plan.pid ? trap->plan.name : trap->plan.comm);
	fprintf(stderr, "%s: %s; Ctrl-C ends it\n", trap->plan.tree ? " and all that it starts" : "",
		trapplan_text(&trap->plan, what, sizeof what));
	if (!trap->plan.pid && trapsession_targets(trap->session, &error) == 0) {
		fprintf(stderr, SELF ": no process is called ");
		output_escaped(stderr, trap->plan.comm);
		fprintf(stderr, " yet: waiting for one\n");
	}
}

static void on_caught(void *ctx, const struct evaluator_firing *firing)
{
	struct trap *trap = ctx;
	bool is_cpu = firing->rule->metric == METRIC_CPU;
	char value[64], after[UNITS_TEXT_MAX];

	traplive_erase(&trap->live);
	metrictext_value(metric_unit(firing->rule->metric), firing->decision->value, value, sizeof value);
	fprintf(stderr, SELF ": caught ");
	output_escaped(stderr, firing->target->name);
	fprintf(stderr, ": %s%s%s; recording %s more\n", is_cpu ? "CPU " : "memory ", value, is_cpu ? " of a core" : "",
		units_format_duration(after, sizeof after, trap->plan.after_ns));
}

static void say_written(struct trap *trap)
{
	while (trapsession_written(trap->session, trap->last)) {
		traplive_erase(&trap->live);
		trap->written++;
		fprintf(stderr, SELF ": wrote %s\n", trap->last);
	}
}

static void say_nothing(struct trap *trap)
{
	char cpu[UNITS_TEXT_MAX], memory[UNITS_TEXT_MAX];
	double cpu_percent, memory_bytes;

	if (gatedchild_ended(&trap->child) && gatedchild_failed(&trap->child))
		return; /* the child has said why */
	trapsession_most(trap->session, &cpu_percent, &memory_bytes);
	fprintf(stderr, SELF ": nothing was caught");
	if (cpu_percent > 0)
		fprintf(stderr, "; the most was CPU %s of a core", units_format_percent(cpu, sizeof cpu, cpu_percent));
	if (memory_bytes > 0)
		fprintf(stderr, "%s memory %s", cpu_percent > 0 ? "," : "; the most was",
			units_format_bytes(memory, sizeof memory, (uint64_t)memory_bytes));
	fputc('\n', stderr);
}

/* What daemonises goes on when the command has ended; then it is watched no more. */
static void say_left(const struct trap *trap)
{
	size_t left = gatedchild_ended(&trap->child) ? trapsession_left(trap->session, trap->child.pid) : 0;

	if (left)
		fprintf(stderr, SELF ": the command has ended; of what it has started %zu process%s on, unwatched\n",
			left, left > 1 ? "es go" : " goes");
}

static void release_names(struct incidentload_names *names)
{
	incidentload_names_release(names);
}

/* Whether "last" means it: a daemon may use the directory too. */
static bool is_last(const struct trap *trap)
{
	AUTO_CLOSE int dirfd = open(trap->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(release_names) struct incidentload_names names = { 0 };
	const char *newest;

	return dirfd >= 0 && incidentload_list(dirfd, &names) == 0 && incidentload_find(&names, "last", &newest) == 0 &&
	       strcmp(newest, trap->last) == 0;
}

/* The command to type next. */
static void say_next(const struct trap *trap)
{
	char usual[INCIDENTLOAD_PATH_MAX];

	fprintf(stderr, SELF ": to see it: spikewatch show ");
	if (incidentload_directory(NULL, usual, sizeof usual) < 0 || strcmp(usual, trap->directory) != 0) {
		fprintf(stderr, "-d ");
		put_quoted(trap->directory);
		fputc(' ', stderr);
	}
	fprintf(stderr, "%s\n", is_last(trap) ? "last" : trap->last);
}

/* ---- running ---- */

static void redraw(struct trap *trap, mono_t now)
{
	struct trapsession_view view;
	char text[TRAPLIVE_TEXT_MAX];

	if (!trap->live.on || mono_diff(now, trap->drawn) < (int64_t)REDRAW_NS)
		return;
	trap->drawn = now;
	trapsession_view(trap->session, &view);
	traplive_text(&trap->plan, &view, (uint64_t)mono_diff(now, trap->begun), trap->count, text, sizeof text);
	traplive_draw(&trap->live, text);
}

static bool is_over(struct trap *trap, mono_t now)
{
	int error;

	if (interruption_signal() || trapsession_done(trap->session))
		return true;
	if (trap->timeout_ns && mono_diff(now, trap->begun) >= (int64_t)trap->timeout_ns)
		return true;
	if (trap->child.pid)
		return gatedchild_ended(&trap->child);

	return trap->plan.pid && trapsession_targets(trap->session, &error) == 0;
}

static int wait_until_over(struct trap *trap)
{
	for (;;) {
		int r = trapsession_poll(trap->session);
		mono_t now = clock_mono(&trap->clock);

		say_written(trap);
		if (r < 0 || is_over(trap, now))
			return r;
		redraw(trap, now);
		realclock_sleep_until(mono_add(now, NAP_NS));
	}
}

/* A process that has ended meanwhile, or is none (a thread's id), or is hidden, would never come. */
static int check_found(struct trap *trap)
{
	int error, r = 0;

	if (trap->plan.pid && trapsession_targets(trap->session, &error) == 0) {
		r = error ? error : -ESRCH;
		fprintf(stderr, SELF ": process %d cannot be watched: %s\n", trap->plan.pid, strerror(-r));
	}

	return r;
}

/* 0 or -errno, which was said. */
static int run(struct trap *trap)
{
	int r = check_found(trap);

	if (r < 0)
		return r;

	say_waiting(trap);
	log_only(LOG_WARNING);
	trap->begun = clock_mono(&trap->clock);
	r = trapsession_start(trap->session);
	if (r == 0)
		r = gatedchild_open(&trap->child);
	if (r == 0)
		r = wait_until_over(trap);
	if (r < 0)
		fprintf(stderr, SELF ": %s\n", strerror(-r));

	traplive_erase(&trap->live);
	trapsession_finish(trap->session);
	say_written(trap);
	if (trap->written)
		say_next(trap);
	else if (r == 0)
		say_nothing(trap);
	say_left(trap);

	return r < 0 ? r : trapsession_failed(trap->session) ? -EIO : 0;
}

/* 0; -errno, which was said; EXIT_USAGE, as well. */
static int open_and_run(struct trap *trap, struct config **config)
{
	struct trapsession_options options = {
		.directory = trap->directory,
		.count = trap->count,
		.caught = on_caught,
		.ctx = trap,
	};
	bool directory = false;
	char error[400];
	int r = trapplan_config(&trap->plan, config, error, sizeof error);

	if (r == -EINVAL)
		return wrong(error);
	options.config = *config;
	if (r == 0)
		r = trapsession_new(&options, &trap->session, &directory);
	if (directory) {
		fprintf(stderr, SELF ": ");
		output_escaped(stderr, trap->directory);
		fprintf(stderr, ": %s; say where with -o DIR\n", strerror(-r));
	} else if (r == -ENOMEM) {
		output_no_memory();
	}

	return r < 0 ? r : run(trap);
}

/* COMMAND's own, as with time(1) and record; else whether something was caught. */
static int exit_code(struct trap *trap, bool has_command, int result)
{
	bool goes_on = has_command && result >= 0 && !interruption_signal() && !gatedchild_ended(&trap->child);

	if (goes_on)
		fprintf(stderr, SELF ": the command goes on\n");

	int code = has_command ? gatedchild_wait(&trap->child) : EXIT_OK;

	if (result > 0)
		return result;
	if (result < 0)
		return EXIT_TROUBLE;
	if (has_command)
		return code;

	return trap->written ? EXIT_OK : EXIT_TROUBLE;
}

static int trap_all(struct trap *trap, char *const *command)
{
	struct config *config = NULL;
	int r = 0;

	log_open(SELF, false);
	log_only(LOG_WARNING);
	log_may_block();
	interruption_catch();
	if (*command)
		r = gatedchild_fork(SELF, command, &trap->child);
	if (r < 0)
		fprintf(stderr, SELF ": %s\n", strerror(-r));
	if (r == 0 && *command)
		trapplan_watch(&trap->plan, trap->child.pid, command[0]);
	trap->plan.tree |= *command != NULL;
	if (r == 0)
		r = open_and_run(trap, &config);
	if (trapsession_free(trap->session))
		config_free(config);

	return exit_code(trap, *command != NULL, r);
}

int trap_command(int argc, char **argv)
{
	struct trap trap = { .count = 1,
			     .memory_bytes = UNSAID,
			     .for_ns = UNSAID,
			     .child = { .gate = -1 },
			     .clock = realclock(),
			     .plan.after_ns = TRAPPLAN_AFTER_NS };
	const struct option_spec options[] = {
		{ 'p', "pid", OPTION_TEXT, "PID", "a process that runs", &trap.pid_text },
		{ 0, "comm", OPTION_TEXT, "NAME", "all processes of this name, later ones too", &trap.plan.comm },
		{ 0, "tree", OPTION_FLAG, NULL, "with all that they start, as one sum", &trap.plan.tree },
		{ 0, "cpu", OPTION_TEXT, "PERCENT", "more than this of one core (80%)", &trap.plan.cpu },
		{ 0, "memory", OPTION_SIZE, "SIZE", "more memory than this", &trap.memory_bytes },
		{ 0, "for", OPTION_DURATION, "TIME", "for so long (CPU 1s, memory at once)", &trap.for_ns },
		{ 'n', "count", OPTION_NUMBER, "COUNT", "end after so many incidents (1)", &trap.count },
		{ 0, "after", OPTION_DURATION, "TIME", "an incident goes on for so long (3s)", &trap.plan.after_ns },
		{ 't', "timeout", OPTION_DURATION, "TIME", "give up then (never)", &trap.timeout_ns },
		{ 0, "stacks", OPTION_TEXT, "MODE", "call stacks: dwarf, frame-pointers, off (dwarf)",
		  &trap.plan.stacks },
		{ 'o', "output", OPTION_TEXT, "DIR", "where to (where list and show look)", &trap.output },
	};
	const struct options_usage usage = {
		.command = SELF,
		.operands = "[-- COMMAND [ARGUMENT...]]",
		.summary = "Waits for a CPU or memory spike and writes it down: no daemon, no configuration.",
		.description =
			"Without --cpu and --memory: 80% of a core for 1 s, or memory that grows by half.\n"
			"COMMAND is watched with all that it starts, also what daemonises, as one sum: 800% are\n"
			"eight busy cores. The incident says which of the processes it was.",
		.example = "spikewatch trap -p 812 --cpu 150% --memory 2GiB\n"
			   "spikewatch trap --memory 8GiB -- make -j8\n"
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

	traplive_detect(&trap.live, stderr);

	return trap_all(&trap, argv + first);
}
