/*
 * bench_peers.c: what others take to look at the same processes, once a second, beside the daemon:
 * CPU time for each process and look, user and system, from the CPU clock of the running program;
 * as a ratio to the daemon's. The daemon is measured before and after all of them, at 100 looks a
 * second, and at one a second, where it reads as they do: a process that is looked at so rarely is
 * read whether it ran or not.
 *
 * None of them is installed: their packages would start services. tests/deps.sh unpacks the
 * packages beside this program; what is installed anyway is used where that was not possible, and
 * what is not there is said.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define PROCESSES 1000u
#define SETTLE_NS (2 * NS_PER_S)
#define MEASURE_NS (4 * NS_PER_S)

/* Of scrapes; on loopback. */
#define PORT_FIRST 19256u

static const char rest[] =
	"\"targets\": [ { \"name\": \"many\", \"comm\": \"bench_crowd\", \"per\": \"process\" } ],"
	"  \"rules\": ["
	"    { \"name\": \"cpu\", \"metric\": \"cpu\", \"window\": \"2s\", \"percent\": \"90%\" },"
	"    { \"name\": \"memory\", \"metric\": \"memory\", \"window\": \"2s\", \"percent\": \"90%\" } ]";

#define EXPORTER_CONFIG "process_names: [ { name: \"{{.Comm}}\", cmdline: [ \".+\" ] } ]\n"

#define ARGUMENTS_MAX 10

/*
 * {dir} in an argument: the directory of the run; {port}: a free port; {peers}: where packages are
 * unpacked.
 */
struct peer {
	const char *title;
	const char *path; /* in a package */
	const char *arguments[ARGUMENTS_MAX];
	const char *environment[4];
	bool scraped; /* looks when it is asked; else once a second */
};

static const struct peer peers[] = {
	{ .title = "pidstat -u -r 1: stat, status", .path = "/usr/bin/pidstat", .arguments = { "-u", "-r", "1" } },
	{ .title = "top -b -d 1: stat, statm", .path = "/usr/bin/top", .arguments = { "-b", "-d", "1" } },
	{ .title = "atop -w FILE 1: stat, status, cmdline, wchan, ...",
	  .path = "/usr/bin/atop",
	  .arguments = { "-w", "{dir}/atop", "1" },
	  .environment = { "ATOPACCT=" } }, /* else it has the kernel write records of all processes that end */
	{ .title = "prometheus-process-exporter, without threads and smaps",
	  .path = "/usr/bin/prometheus-process-exporter",
	  .arguments = { "-config.path", "{dir}/exporter", "-threads=false", "-gather-smaps=false",
			 "-web.listen-address", "127.0.0.1:{port}" },
	  .scraped = true },
	{ .title = "netdata's apps.plugin 1: stat, status, io, limits, fd/",
	  .path = "/usr/lib/netdata/plugins.d/apps.plugin",
	  .arguments = { "1" },
	  .environment = { "NETDATA_STOCK_CONFIG_DIR={peers}/usr/lib/netdata/conf.d" } },
};

struct rig {
	struct bench_spikewatch daemon;
	struct bench_targets many_targets;
	char peers[PATH_MAX];
	unsigned port;
};

static void expand(const struct rig *rig, const char *text, char *ret, size_t cap)
{
	const struct {
		const char *name, *value;
	} words[] = { { "{dir}", rig->daemon.dir }, { "{peers}", rig->peers }, { "{port}", NULL } };
	size_t len = 0;

	while (*text && len + 1 < cap) {
		size_t i = 0;

		while (i < 3 && strncmp(text, words[i].name, strlen(words[i].name)) != 0)
			i++;
		if (i == 3) {
			ret[len++] = *text++;
			continue;
		}
		len += (size_t)(words[i].value ? snprintf(ret + len, cap - len, "%s", words[i].value)
					       : snprintf(ret + len, cap - len, "%u", rig->port));
		text += strlen(words[i].name);
	}
	ret[len < cap ? len : cap - 1] = '\0';
}

/* A path that can be run, or false. */
static bool find_program(const struct rig *rig, const struct peer *peer, char *ret, size_t cap)
{
	snprintf(ret, cap, "%s%s", rig->peers, peer->path);
	if (access(ret, X_OK) == 0)
		return true;
	snprintf(ret, cap, "%s", peer->path);
	return access(ret, X_OK) == 0;
}

/* ---- one of them ---- */

/* Its input stays open and empty: some end with it. */
static void exec_peer(const struct rig *rig, const struct peer *peer, const char *program)
{
	static char texts[ARGUMENTS_MAX + 1][PATH_MAX + 64], environment[4][PATH_MAX + 64];
	char *arguments[ARGUMENTS_MAX + 2] = { texts[0] };
	int nothing = open("/dev/null", O_RDWR), ends[2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(texts[0], sizeof texts[0], "%s", program);
	for (size_t i = 0; i < ARGUMENTS_MAX && peer->arguments[i]; i++) {
		expand(rig, peer->arguments[i], texts[i + 1], sizeof texts[i + 1]);
		arguments[i + 1] = texts[i + 1];
	}
	for (size_t i = 0; i < 4 && peer->environment[i]; i++) {
		expand(rig, peer->environment[i], environment[i], sizeof environment[i]);
		putenv(environment[i]);
	}
	if (nothing < 0 || pipe(ends) < 0)
		_exit(127);
	dup2(ends[0], STDIN_FILENO);
	dup2(nothing, STDOUT_FILENO);
	dup2(nothing, STDERR_FILENO);
	execv(program, arguments);
	_exit(127);
}

/* Asks for the figures once. False: there was no answer. */
static bool scrape(const struct rig *rig)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)rig->port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char buf[1u << 16];
	bool answered = false;

	bench_need(fd >= 0, "socket");
	if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
	    write(fd, request, sizeof request - 1) > 0)
		while (read(fd, buf, sizeof buf) > 0)
			answered = true;
	close(fd);
	return answered;
}

static unsigned count_processes(void)
{
	unsigned count = 0;
	DIR *proc = opendir("/proc");

	bench_need(proc, "/proc");
	for (struct dirent *entry; (entry = readdir(proc));)
		count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
	closedir(proc);
	return count;
}

/*
 * CPU of the process between two moments that lie in the middle between looks: ns for each process
 * and look; 0: it ended.
 */
static double cost_of_looks(const struct rig *rig, const struct peer *peer, pid_t pid)
{
	clockid_t clock;
	unsigned looks = 0;

	bench_sleep(SETTLE_NS + NS_PER_S / 2);
	if ((peer->scraped && !scrape(rig)) || waitpid(pid, NULL, WNOHANG) != 0 ||
	    clock_getcpuclockid(pid, &clock) != 0)
		return 0;

	uint64_t from = bench_clock(clock), began = bench_now();

	while (looks < MEASURE_NS / NS_PER_S) {
		bench_sleep_until(began + ++looks * NS_PER_S);
		if (peer->scraped && !scrape(rig))
			return 0;
	}
	if (waitpid(pid, NULL, WNOHANG) != 0)
		return 0;
	return (double)(bench_clock(clock) - from) / looks / count_processes();
}

static void report_peer(struct rig *rig, const struct peer *peer, double ours)
{
	char program[PATH_MAX + 64], what[80];

	snprintf(what, sizeof what, "  %s", peer->title);
	if (!find_program(rig, peer, program, sizeof program)) {
		printf("%-66s not installed\n", what);
		return;
	}

	rig->port++;
	pid_t pid = fork();

	bench_need(pid >= 0, "fork");
	if (pid == 0)
		exec_peer(rig, peer, program);

	double cost = cost_of_looks(rig, peer, pid);

	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (cost > 0)
		bench_report((struct bench_row){ .what = what, .unit = "ns", .measured = cost, .against = ours });
	else
		printf("%-66s does not run here\n", what);
}

/* ---- the daemon ---- */

static double cost_of_daemon(struct rig *rig, const char *interval)
{
	struct bench_meter from, to;

	bench_spikewatch_configure(&rig->daemon, interval, rest);
	bench_spikewatch_start(&rig->daemon);
	bench_sleep(SETTLE_NS);
	bench_spikewatch_meter(&rig->daemon, &from);
	bench_sleep(MEASURE_NS);
	bench_spikewatch_meter(&rig->daemon, &to);
	bench_spikewatch_end(&rig->daemon);
	bench_need(to.ticks > from.ticks, "the daemon looks");
	return (double)(to.cpu_ns - from.cpu_ns) / (double)(to.ticks - from.ticks) / PROCESSES;
}

static void find_peers(struct rig *rig)
{
	ssize_t len = readlink("/proc/self/exe", rig->peers, sizeof rig->peers - 16);

	bench_need(len > 0, "/proc/self/exe");
	rig->peers[len] = '\0';
	snprintf(strrchr(rig->peers, '/'), 16, "/peers");
}

static void write_exporter_config(const struct rig *rig)
{
	char path[sizeof rig->daemon.dir + 16];

	snprintf(path, sizeof path, "%s/exporter", rig->daemon.dir);

	FILE *file = fopen(path, "w");

	bench_need(file && fputs(EXPORTER_CONFIG, file) >= 0 && fclose(file) == 0, path);
}

int main(void)
{
	static struct rig rig = { .port = PORT_FIRST };

	bench_raise_descriptors();
	find_peers(&rig);
	bench_spikewatch_make(&rig.daemon, NULL, NULL);
	write_exporter_config(&rig);
	rig.many_targets = (struct bench_targets){ .count = PROCESSES,
						   .busy = PROCESSES / 100,
						   .manner = BENCH_TICKING,
						   .name = "bench_crowd",
						   .cpu = bench_nth_cpu(1) };
	bench_targets_start(&rig.many_targets);

	double ours = cost_of_daemon(&rig, "10ms");

	printf("a look at a process among %u, 1%% of them run, all of the program's CPU (against: the daemon's at 100 "
	       "Hz)\n",
	       PROCESSES);
	fflush(stdout);
	bench_report((struct bench_row){ "  the daemon at 1 Hz: its whole CPU", "ns", cost_of_daemon(&rig, "1s"), ours,
					 BENCH_NO_LIMIT, 0 });
	for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++)
		report_peer(&rig, &peers[i], ours);
	bench_report((struct bench_row){ "  the daemon at 100 Hz, once more", "ns", cost_of_daemon(&rig, "10ms"), ours,
					 BENCH_NO_LIMIT, 0 });
	bench_targets_end(&rig.many_targets);

	return 0;
}
