/*
 * bench_kernel.c: both sources of CPU time side by side, as the daemon uses them, all of it included, beside
 * a bare loop that wakes up as often; and what the one in the kernel costs each switch, by a byte that goes
 * back and forth between two processes.
 *
 * Arguments choose parts, since all of them take longer than a minute and a half:
 *
 * 	switches          the byte
 * 	database          PostgreSQL's benchmark, with the program in turns with none: how much slower it is
 * 	bursts            of 5 ms, at any phase: how many a rule of that length catches, and how soon they are seen
 * 	COUNT@HERTZ       so many processes, of which one in a hundred runs for 20 us every 10 ms
 * 	COUNT@HERTZ:idle  none of which runs
 *
 * CPU time of other programs beside these (pidstat, top): bench_peers.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/session/session.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"

#include <math.h>

#define FLOOR_NS (3 * NS_PER_S / 2)
#define SETTLE_NS (11 * NS_PER_S) /* what is new is asked for its cgroup for 10 s */
#define SETTLE_EACH_NS (NS_PER_MS / 2)
#define MEASURE_NS (4 * NS_PER_S)
#define ROUND_TRIPS 20000
#define ROUNDS 21

/* All of the daemon included, of 1,000 processes at 100 Hz of which 1 % run. */
#define SAMPLE_BUDGET_NS 40

static unsigned own_cpu, target_cpu;

struct cost {
	double percent, captured;
	bool known;
};

static void configure(struct bench_spikewatch *daemon, const char *source, unsigned hertz)
{
	const char *dir = daemon->dir;

	snprintf(daemon->text, sizeof daemon->text,
		 "{ \"sampling\": { \"interval\": \"%uus\", \"source\": \"%s\", \"cpu_budget\": \"90%%\", "
		 "\"max_targets\": 12000 },"
		 " \"stacks\": { \"mode\": \"off\" },"
		 " \"ring\": { \"path\": \"%s/ring\", \"size\": \"16MiB\" },"
		 " \"incidents\": { \"directory\": \"%s/incidents\", \"min_free\": \"0\" },"
		 " \"state_file\": \"%s/state\","
		 " \"targets\": [ { \"name\": \"many\", \"comm\": \"bench_many\", \"per\": \"process\" } ],"
		 " \"rules\": [ { \"name\": \"cpu\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"1s\", "
		 "\"percent\": \"90%%\" },"
		 " { \"name\": \"memory\", \"metric\": \"memory\", \"window\": \"1s\", \"percent\": \"90%%\" } ] }",
		 1000000 / hertz, source, dir, dir, dir);
}

/* Of the whole daemon. Not known: this source cannot be had. */
static struct cost cost_with(struct bench_spikewatch *daemon, const char *source, size_t count, unsigned hertz)
{
	struct bench_meter from, to;

	configure(daemon, source, hertz);
	bench_spikewatch_begin(daemon);
	bench_need(bench_spikewatch_hear(daemon, "watching ", bench_now() + 60 * NS_PER_S), "the daemon watches");
	if (bench_spikewatch_hear(daemon, "not from the scheduler", bench_now() + NS_PER_S) != 0) {
		fprintf(stderr, "bench: %s\n", daemon->last);
		bench_spikewatch_end(daemon);
		return (struct cost){ .known = false };
	}
	bench_sleep(SETTLE_NS + count * SETTLE_EACH_NS);
	bench_spikewatch_meter(daemon, &from);
	bench_sleep(MEASURE_NS);
	bench_spikewatch_meter(daemon, &to);
	if (strcmp(source, "kernel") == 0)
		bench_report_threads(&from, &to, 0.005);
	bench_spikewatch_end(daemon);
	return (struct cost){ bench_meter_percent(&from, &to), bench_meter_captured(&from, &to), true };
}

/* Of a loop that does nothing but wake up and ask what time it is. */
static double bare_percent(unsigned hertz)
{
	uint64_t began = bench_now(), deadline = began, cpu = bench_cpu();

	prctl(PR_SET_TIMERSLACK, 1000ul);
	while (deadline < began + FLOOR_NS) {
		deadline += NS_PER_S / hertz;
		bench_sleep_until(deadline);
		bench_now();
	}
	return 100 * (double)(bench_cpu() - cpu) / (double)(bench_now() - began);
}

static void report_sources(struct bench_spikewatch *daemon, size_t count, unsigned hertz, bool busy)
{
	struct bench_targets many = { .count = count,
				      .busy = busy ? count / 100 : 0,
				      .manner = BENCH_TICKING,
				      .name = "bench_many",
				      .cpu = target_cpu };
	double ns_each = 1e7 / (double)count / hertz; /* of a percent of a core */
	char what[128];

	bench_targets_start(&many);

	double bare = bare_percent(hertz);
	struct cost kernel = cost_with(daemon, "kernel", count, hertz);
	struct cost files =
		kernel.known && count <= 1000 ? cost_with(daemon, "files", count, hertz) : (struct cost){ 0 };

	bench_targets_end(&many);
	if (!kernel.known)
		return;
	snprintf(what, sizeof what, "CPU from the kernel, %zu processes, %zu run, %u Hz%s", count, many.busy, hertz,
		 files.known ? " (files)" : "");
	if (files.known)
		bench_report((struct bench_row){ what, "%", kernel.percent, files.percent, BENCH_RATIO_AT_MOST, 1 });
	else
		bench_report((struct bench_row){ what, "%", kernel.percent, 0,
						 hertz == 100 ? BENCH_AT_MOST : BENCH_NO_LIMIT, 1 });
	bench_report((struct bench_row){ "  beside a bare loop that wakes up as often", "%", kernel.percent, bare,
					 BENCH_NO_LIMIT, 0 });
	bench_report((struct bench_row){
		"  of each sample (its part of a bare wake-up)", "ns", kernel.percent * ns_each, bare * ns_each,
		count == 1000 && hertz == 100 ? BENCH_AT_MOST : BENCH_NO_LIMIT, SAMPLE_BUDGET_NS });
	bench_report((struct bench_row){ "  captured", "%", kernel.captured, files.known ? files.captured : 0,
					 BENCH_AT_LEAST, 99.9 });
}

/* ns for each switch: a round trip is two. */
static double switch_ns(const int there[2], const int back[2])
{
	char byte = 0;
	uint64_t from = bench_now();

	for (unsigned i = 0; i < ROUND_TRIPS; i++)
		bench_need(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "a pipe");
	return (double)(bench_now() - from) / ROUND_TRIPS / 2;
}

static void report_switches(void)
{
	struct kernel_accounts_options options = { .procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
						   .capacity = 100,
						   .at_any_cost = true };
	char reason[KERNEL_ACCOUNTS_REASON_MAX];
	double with[ROUNDS], without[ROUNDS];
	int there[2], back[2];

	bench_need(pipe(there) == 0 && pipe(back) == 0, "pipes");

	pid_t pid = fork();

	if (pid == 0) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			continue;
		_exit(0);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct kernel_accounts *accounts;
		uint32_t account;

		without[i] = switch_ns(there, back);
		if (kernel_accounts_open(&options, &accounts, reason) < 0) {
			fprintf(stderr, "bench: not from the kernel: %s\n", reason);
			break;
		}
		bench_need(kernel_accounts_watch(accounts, &(struct kernel_accounts_watched){ .pid = pid }, &account) ==
				   0,
			   "an account");
		with[i] = switch_ns(there, back);
		kernel_accounts_close(accounts);
		if (i == ROUNDS - 1)
			bench_report((struct bench_row){ "  each switch of the machine, more", "ns",
							 bench_median(with, ROUNDS) - bench_median(without, ROUNDS),
							 bench_median(without, ROUNDS), BENCH_AT_MOST, 220 });
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(options.procfd);
}

/* ---- bursts ---- */

#define BURST_NS (5 * NS_PER_MS)
#define BURST_INTERVAL_NS (500 * NS_PER_US)
#define BURSTS 400u
#define BURSTS_APART_NS (31 * NS_PER_MS)

/* Shared with the child that runs in bursts. */
struct burst {
	uint64_t began_ns, ended_ns, cpu_ns; /* by its own clocks */
};

struct bursts {
	const struct burst *all;
	uint32_t seen[BURSTS]; /* when its CPU time was first seen, after it began, ns; 0: never */
	bool fired[BURSTS];
	uint64_t cpu_ns;
};

static void run_in_bursts(struct burst *bursts)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "bench_bursts");
	bench_pin(target_cpu);
	bench_sleep(3 * NS_PER_S);
	for (unsigned i = 0; i < BURSTS; i++) {
		struct burst burst = { .began_ns = bench_now(), .cpu_ns = bench_cpu() };

		while ((burst.ended_ns = bench_now()) < burst.began_ns + BURST_NS)
			continue;
		burst.cpu_ns = bench_cpu() - burst.cpu_ns;
		bursts[i] = burst;
		bench_sleep(BURSTS_APART_NS + (i * 7919u % 97) * 100 * NS_PER_US);
	}
	_exit(0);
}

/* What was preempted was no burst of that length. */
static bool was_whole(const struct burst *burst)
{
	return burst->cpu_ns > BURST_NS / 100 * 98;
}

static size_t burst_at(const struct bursts *bursts, uint64_t ns)
{
	size_t i = 0;

	while (i < BURSTS && (bursts->all[i].ended_ns == 0 || ns > bursts->all[i].ended_ns + 2 * BURST_NS))
		i++;
	return i < BURSTS && ns >= bursts->all[i].began_ns ? i : BURSTS;
}

static int on_burst(void *ctx, const struct evaluator_firing *firing)
{
	struct bursts *bursts = ctx;
	size_t i = burst_at(bursts, firing->to.ns);

	if (i < BURSTS)
		bursts->fired[i] = true;
	return 0;
}

static void note_sample(struct bursts *bursts, const struct ring_event *event)
{
	uint64_t cpu_ns = event->sample->value[SAMPLE_CPU];
	size_t i = cpu_ns > bursts->cpu_ns ? burst_at(bursts, event->time.ns) : BURSTS;

	if (i < BURSTS && bursts->seen[i] == 0)
		bursts->seen[i] = (uint32_t)(event->time.ns - bursts->all[i].began_ns) + 1;
	bursts->cpu_ns = cpu_ns;
}

/* The ring holds all of it, and is judged when it is over: then the bursts are known. */
static void judge_bursts(const struct config *config, const struct ring *ring, struct bursts *bursts)
{
	struct evaluator_options options = {
		.config = config, .machine = { .cores = 1, .memory_bytes = 1 << 30 }, .fire = on_burst, .ctx = bursts
	};
	struct evaluator *evaluator;
	struct ring_cursor *cursor;
	struct ring_event event;

	bench_need(evaluator_new(&options, &evaluator) == 0 && ring_cursor_new(ring, RING_OLDEST, &cursor) == 0,
		   "judging");
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_SAMPLE)
			note_sample(bursts, &event);
		evaluator_event(evaluator, &event);
	}
	ring_cursor_free(cursor);
	evaluator_free(evaluator);
}

static struct session *watch_bursts(struct config **ret_config)
{
	static const char text[] =
		"{ \"sampling\": { \"interval\": \"500us\", \"source\": \"kernel\", \"cpu_budget\": \"90%\" },"
		" \"stacks\": { \"mode\": \"off\" }, \"ring\": { \"size\": \"64MiB\", \"lock\": false },"
		" \"targets\": [ { \"name\": \"bursts\", \"comm\": \"bench_bursts\", \"per\": \"process\" } ],"
		" \"rules\": [ { \"name\": \"burst\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"5ms\","
		" \"percent\": \"80%\", \"warmup\": 0, \"cooldown\": \"0s\" } ] }";
	struct config_source source = { "bench", text, sizeof text - 1 };
	struct config_error error;
	struct session *session;

	if (config_parse(&source, 1, ret_config, &error) < 0) {
		fprintf(stderr, "bench: %s: %s\n", error.key, error.message);
		exit(EXIT_FAILURE);
	}
	bench_need(session_new(*ret_config, NULL, &session) == 0 && session_start(session) == 0, "session");
	return session;
}

static void report_bursts(void)
{
	size_t bytes = BURSTS * sizeof(struct burst);
	struct burst *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned whole = 0, caught = 0, soon = 0;
	struct bursts bursts = { .all = all };
	struct config *config;

	bench_need(all != MAP_FAILED, "shared memory");

	pid_t pid = fork();

	if (pid == 0)
		run_in_bursts(all);

	struct session *session = watch_bursts(&config);
	bool has = *session_parts(session).accounts_off == '\0';

	if (has)
		waitpid(pid, NULL, 0);
	else
		fprintf(stderr, "bench: not from the kernel: %s\n", session_parts(session).accounts_off);
	session_stop(session);
	if (has)
		judge_bursts(config, session_parts(session).ring, &bursts);
	for (unsigned i = 0; has && i < BURSTS; i++) {
		if (!was_whole(&all[i]))
			continue;
		whole++;
		caught += bursts.fired[i];
		soon += bursts.seen[i] > 0 && bursts.seen[i] <= BURST_INTERVAL_NS + 200 * NS_PER_US;
	}
	session_free(session);
	config_free(config);
	kill(pid, SIGKILL);
	if (whole == 0)
		return;
	printf("%-66s %9u of %u\n", "bursts of 5 ms that had the CPU to themselves", whole, BURSTS);
	bench_report((struct bench_row){ "  caught by a window of 5 ms at 80 % of a core, 2,000 Hz", "%",
					 100.0 * caught / whole, 0, BENCH_AT_LEAST, 99 });
	bench_report((struct bench_row){ "  seen within an interval (and 0.2 ms) of their beginning", "%",
					 100.0 * soon / whole, 0, BENCH_AT_LEAST, 99 });
}

/* ---- a database ---- */

/*
 * One run of it, on one CPU, which it takes, so that its rate is the CPU time of a transaction, whoever it is
 * charged to. The program comes and goes meanwhile; the order changes from pair to pair. What was finished when
 * is in the benchmark's log.
 */
#define DATABASE_PAIRS 80
#define DATABASE_GUARD_NS (60 * NS_PER_MS) /* after it came or went */
#define DATABASE_SLICE_NS (300 * NS_PER_MS)
#define DATABASE_FIRST_NS (2 * NS_PER_S)
#define DATABASE_LOG_MAX 1000000u

struct slice {
	uint64_t from_us, to_us; /* of the day's time */
	unsigned finished;
};

/* As the user of its package if this is root: the server runs as no other. */
static FILE *database_run(const struct bench_spikewatch *daemon, const char *command)
{
	char line[1024];

	snprintf(line, sizeof line,
		 "cd /; %s 'PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH PGHOST=%s/database; export "
		 "PGHOST; "
		 "{ %s; } 2>&1'",
		 geteuid() == 0 ? "su postgres -s /bin/sh -c" : "/bin/sh -c", daemon->dir, command);
	return popen(line, "re");
}

static bool database_does(const struct bench_spikewatch *daemon, const char *command)
{
	FILE *said = database_run(daemon, command);
	char line[256];

	while (said && fgets(line, sizeof line, said))
		continue;
	return said && pclose(said) == 0;
}

/* False: there is none here. */
static bool database_start(const struct bench_spikewatch *daemon)
{
	char place[sizeof daemon->dir + 16];

	if (!database_does(daemon, "command -v initdb && command -v pgbench"))
		return false;
	snprintf(place, sizeof place, "%s/database", daemon->dir);
	bench_need(mkdir(place, 0777) == 0 && chmod(place, 0777) == 0 && chmod(daemon->dir, 0711) == 0, place);
	return database_does(daemon, "initdb -A trust -N -D $PGHOST/data && pg_ctl -w -D $PGHOST/data -l $PGHOST/log "
				     "-o \"-k $PGHOST -c listen_addresses= -c fsync=off -c autovacuum=off\" start && "
				     "createdb bench && pgbench -i -q -s 5 bench");
}

/* By the first process of the benchmark, at its end. */
static void database_end(void *ctx)
{
	const struct bench_spikewatch *daemon = ctx;
	char place[sizeof daemon->dir + 32];

	snprintf(place, sizeof place, "%s/database/data/postmaster.pid", daemon->dir);
	if (access(place, F_OK) == 0)
		database_does(daemon, "pg_ctl -w -m immediate -D $PGHOST/data stop");
}

/* All processes of the server, those of its clients too. */
static void database_watch(const struct bench_spikewatch *daemon, struct kernel_accounts *accounts)
{
	char path[128], text[1024] = "";
	int server = 0, pid, len;
	uint32_t account;
	FILE *file;

	snprintf(path, sizeof path, "%s/database/data/postmaster.pid", daemon->dir);
	file = fopen(path, "re");
	bench_need(file && fscanf(file, "%d", &server) == 1, path);
	fclose(file);
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", server, server);
	file = fopen(path, "re");
	bench_need(file && fgets(text, sizeof text, file), path);
	fclose(file);
	for (const char *at = text; sscanf(at, "%d%n", &pid, &len) == 1; at += len)
		kernel_accounts_watch(accounts, &(struct kernel_accounts_watched){ .pid = pid }, &account);
}

static uint64_t wall_us(void)
{
	return bench_clock(CLOCK_REALTIME) / 1000;
}

/* False: the program cannot be had. */
static bool database_slice(const struct bench_spikewatch *daemon, const struct kernel_accounts_options *options,
			   bool with, struct slice *ret)
{
	struct kernel_accounts *accounts = NULL;
	char reason[KERNEL_ACCOUNTS_REASON_MAX];

	if (with && kernel_accounts_open(options, &accounts, reason) < 0) {
		printf("a database's benchmark: skipped, not from the kernel: %s\n", reason);
		return false;
	}
	if (with)
		database_watch(daemon, accounts);
	bench_sleep(DATABASE_GUARD_NS);
	*ret = (struct slice){ .from_us = wall_us() };
	bench_sleep(DATABASE_SLICE_NS);
	ret->to_us = wall_us();
	kernel_accounts_close(accounts);
	return true;
}

static int compare_us(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Of the only log of this prefix, sorted. Returns how many. */
static size_t database_log(const struct bench_spikewatch *daemon, uint64_t *ret_us)
{
	char line[256];
	FILE *file = database_run(daemon, "cat $PGHOST/times.*");
	size_t count = 0;
	unsigned long long s, us;

	bench_need(file, "pgbench's log");
	while (count < DATABASE_LOG_MAX && fgets(line, sizeof line, file))
		if (sscanf(line, "%*d %*d %*u %*d %llu %llu", &s, &us) == 2)
			ret_us[count++] = s * 1000000 + us;
	pclose(file);
	qsort(ret_us, count, sizeof *ret_us, compare_us);
	return count;
}

static void count_finished(struct slice *slice, const uint64_t *at_us, size_t count)
{
	for (size_t i = 0; i < count && at_us[i] < slice->to_us; i++)
		slice->finished += at_us[i] >= slice->from_us;
}

static double rate_of(const struct slice *slice)
{
	return 1e6 * slice->finished / (double)(slice->to_us - slice->from_us);
}

static void report_pairs(const struct slice slices[DATABASE_PAIRS][2])
{
	double rates[2][DATABASE_PAIRS], slower[DATABASE_PAIRS];

	for (size_t i = 0; i < DATABASE_PAIRS; i++) {
		bench_need(slices[i][0].finished > 0, "transactions in each slice");
		for (int with = 0; with < 2; with++)
			rates[with][i] = rate_of(&slices[i][with]);
		slower[i] = 100 * (1 - rates[1][i] / rates[0][i]);
	}
	bench_report((struct bench_row){ "pgbench, transactions a second with the program (without)", "/s",
					 bench_median(rates[1], DATABASE_PAIRS), bench_median(rates[0], DATABASE_PAIRS),
					 BENCH_NO_LIMIT, 0 });
	/* The median sorts them. Of so many, normally distributed, its error is 0.93 quartile distances by the root. */
	bench_report((struct bench_row){ "  slower, median of the pairs", "%", bench_median(slower, DATABASE_PAIRS), 0,
					 BENCH_AT_MOST, 0.5 });
	bench_report((struct bench_row){ "  standard error of that", "%",
					 0.93 * (slower[3 * DATABASE_PAIRS / 4] - slower[DATABASE_PAIRS / 4]) /
						 sqrt(DATABASE_PAIRS),
					 0, BENCH_NO_LIMIT, 0 });
}

static bool database_measure(const struct bench_spikewatch *daemon, struct slice slices[DATABASE_PAIRS][2])
{
	struct kernel_accounts_options options = { .procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
						   .capacity = 100,
						   .at_any_cost = true };
	FILE *said = database_run(daemon, "pgbench -n -c 4 -j 1 -T 600 -l --log-prefix=$PGHOST/times bench");
	bool had = true;

	bench_need(said, "pgbench");
	bench_pin(target_cpu);
	bench_sleep(DATABASE_FIRST_NS);
	for (size_t i = 0; had && i < 2 * DATABASE_PAIRS; i++) {
		bool with = (i + i / 2) % 2;

		had = database_slice(daemon, &options, with, &slices[i / 2][with]);
	}
	database_does(daemon, "pg_ctl -w -m immediate -D $PGHOST/data stop"); /* which ends it */
	pclose(said);
	bench_pin(own_cpu);
	close(options.procfd);
	return had;
}

static void report_database(const struct bench_spikewatch *daemon)
{
	uint64_t *at_us = malloc(DATABASE_LOG_MAX * sizeof *at_us);
	static struct slice slices[DATABASE_PAIRS][2];

	bench_need(at_us, "memory");
	if (!database_start(daemon)) {
		printf("a database's benchmark: skipped, PostgreSQL's server and pgbench do not run here\n");
	} else if (database_measure(daemon, slices)) {
		size_t count = database_log(daemon, at_us);

		for (size_t i = 0; i < DATABASE_PAIRS; i++)
			for (int with = 0; with < 2; with++)
				count_finished(&slices[i][with], at_us, count);
		report_pairs(slices);
	}
	free(at_us);
}

static void run_part(struct bench_spikewatch *daemon, const char *part)
{
	unsigned hertz = 100;
	size_t count = 1000;
	char how[8] = "";

	if (strcmp(part, "switches") == 0)
		report_switches();
	else if (strcmp(part, "database") == 0)
		report_database(daemon);
	else if (strcmp(part, "bursts") == 0)
		report_bursts();
	else if (sscanf(part, "%zu@%u:%7s", &count, &hertz, how) >= 2 && hertz > 0)
		report_sources(daemon, count, hertz, strcmp(how, "idle") != 0);
	else
		fprintf(stderr, "bench: no part is named %s\n", part);
}

int main(int argc, char **argv)
{
	static const char *const usual[] = { "switches", "database",  "bursts",    "100@100",
					     "1000@100", "1000@1000", "10000@100", "10000@1000" };
	struct bench_spikewatch daemon = { 0 };

	own_cpu = bench_nth_cpu(0);
	target_cpu = bench_nth_cpu(1);
	bench_raise_descriptors();
	bench_spikewatch_make(&daemon, database_end, &daemon);
	bench_pin(own_cpu);
	for (int i = 1; i < argc; i++)
		run_part(&daemon, argv[i]);
	for (size_t i = 0; argc == 1 && i < ARRAY_LEN(usual); i++)
		run_part(&daemon, usual[i]);
	return 0;
}
