/*
 * bench_slow_disk.c: the daemon on a disk on which each write, fsync, rename and look at the free space takes
 * 0.3, 3 and 30 s (tests/data/slow_disk, loaded before the daemon), while rules fire all the time.
 *
 * Told: the longest time that `spikewatch status` took, a program that is started, asks and prints, of
 * as many as fit one after the other; the ticks that came when due; the longest time between two
 * keep-alive messages, where the watchdog wants one each second; and, at 3 s, how long the daemon takes to end.
 * Against: the same daemon with nothing loaded before it.
 */
#include "../data/slow_disk/slow_disk.h"
#include "bench_spikewatch.h"
#include "bench_targets.h"

#include <math.h>

#define TARGETS 8u
#define SETTLE_NS (1 * NS_PER_S)
#define MEASURE_NS (6 * NS_PER_S)
#define PAUSE_NS (20 * NS_PER_MS) /* between two calls of `spikewatch status` */
#define ANSWER_MS 100
#define WATCHDOG_US "1000000"
#define STOP_S 45 /* TimeoutStopSec= of the unit */

static const struct mode {
	const char *title;
	unsigned delay_ms;
	bool loaded;
	bool stops; /* it is asked to end, and not killed */
} modes[] = {
	{ "rules that fire 8 times a second, a disk that answers at once, 100 Hz", 0, false, false },
	{ "the same, each write and fsync takes 0.3 s", 300, true, false },
	{ "the same, each write and fsync takes 3 s", 3000, true, true },
	{ "the same, each write and fsync takes 30 s", 30000, true, false },
};

struct rig {
	struct bench_spikewatch daemon;
	struct bench_targets targets;
	struct slow_disk *disk;
	char library[PATH_MAX + 16], cli[PATH_MAX + 16];
	int notified;
};

/* A file beside this program. */
static void beside(const char *name, char *ret, size_t cap)
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);

	bench_need(len > 0, "/proc/self/exe");
	path[len] = '\0';
	*strrchr(path, '/') = '\0';
	bench_need(snprintf(ret, cap, "%s/%s", path, name) < (int)cap, name);
}

static void make_disk(struct rig *rig)
{
	char path[sizeof rig->daemon.dir + 8];
	int fd;

	snprintf(path, sizeof path, "%s/disk", rig->daemon.dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	bench_need(fd >= 0 && ftruncate(fd, sizeof *rig->disk) == 0, path);
	rig->disk = mmap(NULL, sizeof *rig->disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bench_need(rig->disk != MAP_FAILED, path);
	close(fd);
	setenv("SLOW_DISK", path, 1);
}

static void listen_for_notifications(struct rig *rig)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", rig->daemon.dir);
	rig->notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bench_need(rig->notified >= 0 && bind(rig->notified, (struct sockaddr *)&address, sizeof address) == 0,
		   address.sun_path);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	setenv("WATCHDOG_USEC", WATCHDOG_US, 1);
}

static void configure(struct rig *rig)
{
	const char *dir = rig->daemon.dir;
	int len = snprintf(
		rig->daemon.text, sizeof rig->daemon.text,
		"{ \"sampling\": { \"interval\": \"10ms\", \"rescan_interval\": \"1s\", \"cpu_budget\": \"90%%\" },"
		"  \"ring\": { \"path\": \"%s/ring\", \"size\": \"16MiB\", \"lock\": false },"
		"  \"incidents\": { \"directory\": \"%s/incidents\", \"before\": \"2s\", \"after\": \"50ms\","
		"    \"min_free\": \"0\", \"max_per_hour\": 0, \"max_count\": 50 },"
		"  \"state_file\": \"%s/state\","
		"  \"targets\": [ { \"name\": \"t\", \"comm\": \"bench_slow\", \"per\": \"process\" } ],"
		"  \"rules\": [ { \"name\": \"there\", \"metric\": \"memory_bytes\", \"window\": \"100ms\","
		"    \"above\": \"4KiB\", \"warmup\": 0, \"cooldown\": \"1s\" } ] }",
		dir, dir, dir);

	bench_need(len > 0 && (size_t)len < sizeof rig->daemon.text, "a configuration that fits");
}

/* Of a `spikewatch status`, from its start to its end; NAN: it failed. */
static double time_status(const struct rig *rig)
{
	char socket_path[sizeof rig->daemon.dir + 8];
	uint64_t began = bench_now();
	int status;
	pid_t pid;

	snprintf(socket_path, sizeof socket_path, "%s/control", rig->daemon.dir);
	pid = fork();
	bench_need(pid >= 0, "fork");
	if (pid == 0) {
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
		execl(rig->cli, "spikewatch", "status", "--socket", socket_path, (char *)NULL);
		_exit(127);
	}
	bench_need(waitpid(pid, &status, 0) == pid, "waitpid");
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? (double)(bench_now() - began) / 1e6 : (double)NAN;
}

/* True: a keep-alive message has come since the last call. */
static bool kept_alive(const struct rig *rig)
{
	bool found = false;
	char text[256];
	ssize_t len;

	while ((len = recv(rig->notified, text, sizeof text - 1, 0)) > 0) {
		text[len] = '\0';
		found |= strcmp(text, "WATCHDOG=1") == 0;
	}
	return found;
}

struct seen {
	double longest_ms, failed, count; /* of the calls of `spikewatch status` */
	double silent_s;                  /* the longest time between two keep-alive messages */
	double captured;                  /* percent */
};

static struct seen watch(struct rig *rig)
{
	struct bench_meter from, to;
	struct seen seen = { 0 };
	uint64_t end, alive;

	bench_spikewatch_meter(&rig->daemon, &from);
	kept_alive(rig);
	alive = bench_now();
	end = alive + MEASURE_NS;
	while (bench_now() < end) {
		double took_ms = time_status(rig);

		seen.count++;
		if (isnan(took_ms))
			seen.failed++;
		else
			seen.longest_ms = fmax(seen.longest_ms, took_ms);
		bench_sleep(PAUSE_NS);
		seen.silent_s = fmax(seen.silent_s, (double)(bench_now() - alive) / 1e9);
		if (kept_alive(rig))
			alive = bench_now();
	}
	bench_spikewatch_meter(&rig->daemon, &to);
	seen.captured = bench_meter_captured(&from, &to);
	return seen;
}

/* That what was measured was so while incidents were there to be written. */
static void report_incidents(const struct rig *rig)
{
	size_t len;
	char *status = bench_spikewatch_ask(&rig->daemon, "status", &len);

	bench_need(status, "a status");
	bench_report((struct bench_row){ .what = "  incidents that were opened until then",
					 .unit = "",
					 .measured = bench_status_number(status, "incidents", "opened") });
	bench_report((struct bench_row){ .what = "    of them on the disk",
					 .unit = "",
					 .measured = bench_status_number(status, "incidents", "sealed") });
	bench_report((struct bench_row){ .what = "  firings that are counted in a storm",
					 .unit = "",
					 .measured = bench_status_number(status, "storm", "firings") });
	free(status);
}

static void report(const struct mode *mode, const struct seen *seen, const struct seen *calm)
{
	bool slow = seen != calm;

	printf("%s\n", mode->title);
	bench_report((struct bench_row){ "  the longest `spikewatch status` (against: a fast disk)", "ms",
					 seen->longest_ms, slow ? calm->longest_ms : 0, BENCH_AT_MOST, ANSWER_MS });
	bench_report((struct bench_row){ "    without an answer (against: asked)", "", seen->failed, seen->count,
					 BENCH_AT_MOST, 0 });
	bench_report((struct bench_row){ "  ticks that came when due (against: a fast disk)", "%", seen->captured,
					 slow ? calm->captured : 0, slow ? BENCH_AT_LEAST : BENCH_NO_LIMIT,
					 0.999 * calm->captured });
	bench_report((struct bench_row){ "  the longest time between two signs of life, watchdog of 1 s", "s",
					 seen->silent_s, slow ? calm->silent_s : 0, BENCH_AT_MOST, 1 });
}

/* Asked by SIGTERM, or killed. */
static void end_daemon(struct rig *rig, bool asked)
{
	uint64_t began = bench_now();

	if (!asked)
		kill(rig->daemon.pid, SIGKILL);
	bench_spikewatch_end(&rig->daemon);
	if (asked)
		bench_report((struct bench_row){ "  from SIGTERM to its end", "s", (double)(bench_now() - began) / 1e9,
						 0, BENCH_AT_MOST, STOP_S });
}

static void run(struct rig *rig, const struct mode *mode, struct seen *calm)
{
	struct seen seen;

	if (mode->loaded)
		setenv("LD_PRELOAD", rig->library, 1);
	bench_spikewatch_begin(&rig->daemon);
	unsetenv("LD_PRELOAD");
	bench_need(bench_spikewatch_hear(&rig->daemon, "watching ", bench_now() + 30 * NS_PER_S), "the daemon watches");
	bench_sleep(SETTLE_NS);
	rig->disk->delay_ms = mode->delay_ms;
	for (uint64_t until = bench_now() + 10 * NS_PER_S; mode->loaded && rig->disk->waiting == 0;) {
		bench_need(bench_now() < until, "a write that waits");
		bench_sleep(NS_PER_MS);
	}

	seen = watch(rig);
	if (!mode->loaded)
		*calm = seen;
	report(mode, mode->loaded ? &seen : calm, calm);
	report_incidents(rig);
	end_daemon(rig, mode->stops);
	rig->disk->delay_ms = 0;
	rig->disk->waiting = 0;
}

int main(void)
{
	static struct rig rig;
	struct seen calm = { 0 };

	beside("slow_disk.so", rig.library, sizeof rig.library);
	beside("spikewatch", rig.cli, sizeof rig.cli);
	if (access(rig.library, R_OK) < 0) {
		printf("a slow disk: %s was not built\n", rig.library);
		return 0;
	}
	bench_raise_descriptors();
	bench_spikewatch_make(&rig.daemon, NULL, NULL);
	make_disk(&rig);
	listen_for_notifications(&rig);
	configure(&rig);
	rig.targets = (struct bench_targets){ .count = TARGETS, .name = "bench_slow", .cpu = bench_nth_cpu(1) };
	bench_targets_start(&rig.targets);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		run(&rig, &modes[i], &calm);
	bench_targets_end(&rig.targets);

	return 0;
}
