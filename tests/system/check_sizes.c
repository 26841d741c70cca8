/*
 * check_sizes.c: whatever a watched process makes large (symbols, files, debug information,
 * mappings, threads), the real daemon seals its incident within a bounded time, with what was left
 * out and why, and neither it nor the symboliser grows with it.
 */
#include "lib/base/base.h"
#include "lib/incident/incident.h"
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

Suite *sizes_suite(void);

/* The symboliser has 30 s; the rest is for a busy machine. */
#define SEALED_WITHIN_NS (90 * NS_PER_S)

/* Resident: of the daemon with its stacks (an installation has MemoryMax=), of the symboliser. */
#define DAEMON_KIB_MAX (128u << 10)
#define SYMBOLIZER_KIB_MAX (1024u << 10)

static char directory[64];
static struct program server;
static pid_t workload;
static char incident_at[400];

static void setup(void)
{
	scene_directory(directory);
	server.pid = workload = 0;
}

static void end(pid_t *pid, int signal)
{
	if (*pid <= 0)
		return;
	kill(*pid, signal);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

static void teardown(void)
{
	end(&workload, SIGKILL);
	end(&server.pid, SIGTERM);
	scene_remove(directory);
}

static const char *in(const char *name)
{
	static char paths[4][128];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", directory, name);
	return path;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void start_daemon(const char *spikewatchd)
{
	const char *arguments[] = { spikewatchd, "-c", in("config"), NULL };

	scene_write(in("config"),
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false}, \"state_file\": "
		    "\"%s/state\",\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\", \"before\": \"2s\",\n"
		    "\"after\": \"2s\"}, \"targets\": [{\"name\": \"t\", \"comm\": \"sizes\"}],\n"
		    "\"rules\": [{\"name\": \"r\", \"metric\": \"memory_bytes\", \"above\": \"64MiB\", \"window\": "
		    "\"100ms\",\n"
		    "\"warmup\": 0, \"rearm\": \"below\", \"cooldown\": \"1h\"}]}\n",
		    directory, directory, directory);
	server = program_start(arguments, directory, -1, 0);
	scene_wait_for(scene_says(server.err, "watching "));
}

/* The number of a line of /proc/PID/status, KiB; 0: it has gone. */
static unsigned long status_kib(pid_t pid, const char *name)
{
	char path[64], line[256];
	unsigned long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			kib = strtoul(line + strlen(name) + 1, NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

/* The parent of a process by its number in /proc; 0: it has gone. */
static pid_t parent_of(pid_t pid)
{
	return (pid_t)status_kib(pid, "PPid:");
}

/* The most that a symboliser of the daemon has resident now. */
static unsigned long symbolizer_kib(void)
{
	unsigned long most = 0;
	DIR *proc = opendir("/proc");

	for (struct dirent *entry; proc && (entry = readdir(proc)) != NULL;) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10), above = pid;
		char path[64], exe[512];
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
		len = pid > 0 ? readlink(path, exe, sizeof(exe) - 1) : 0;
		exe[len > 0 ? len : 0] = '\0';
		if (!strstr(exe, "/spikewatch-symbolize"))
			continue;
		for (int i = 0; i < 4 && above > 1 && above != server.pid; i++)
			above = parent_of(above);
		if (above == server.pid) {
			unsigned long kib = status_kib(pid, "VmRSS:");

			most = kib > most ? kib : most;
		}
	}
	if (proc)
		closedir(proc);
	return most;
}

/* Starts the workload and waits until it has stopped itself: how much it made. */
static uint64_t start_workload(const char *const *arguments)
{
	int out = open(in("made"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), status = 0;
	uint64_t made;
	char *text;

	workload = fork();
	ck_assert_int_ge(workload, 0);
	if (workload == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out, STDOUT_FILENO);
		execv(arguments[0], (char *const *)(uintptr_t)arguments);
		_exit(126);
	}
	close(out);
	ck_assert_int_eq(waitpid(workload, &status, WUNTRACED), workload);
	ck_assert_msg(WIFSTOPPED(status), "the workload has ended");
	text = scene_read(in("made"));
	made = strtoull(text, NULL, 10);
	free(text);
	return made;
}

/* The incident of the workload's spike. Room is checked while it is awaited. */
static void await_incident(struct incident *incident)
{
	uint64_t began = now_ns();
	unsigned long symbolizer = 0;
	int dirfd;

	scene_wait_for(scene_says(server.err, "target t/"));
	kill(workload, SIGCONT);
	while (!scene_says(server.err, "sealed incident ")) {
		unsigned long now = symbolizer_kib();

		ck_assert_msg(now_ns() - began < SEALED_WITHIN_NS, "no incident within %llu s; the log: %s",
			      SEALED_WITHIN_NS / NS_PER_S, scene_read(server.err));
		symbolizer = now > symbolizer ? now : symbolizer;
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	char *log = scene_read(server.err), *name = strstr(log, "sealed incident ") + strlen("sealed incident ");

	snprintf(incident_at, sizeof(incident_at), "%s/incidents/%.*s", directory, (int)strcspn(name, "\n ,;:("), name);
	free(log);
	dirfd = open(incident_at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_msg(dirfd >= 0, "%s", incident_at);
	ck_assert_int_eq(incident_json_read(dirfd, incident), 0);
	close(dirfd);
	ck_assert_uint_le(status_kib(server.pid, "VmHWM:"), DAEMON_KIB_MAX);
	ck_assert_uint_le(symbolizer, SYMBOLIZER_KIB_MAX);
}

/* It answers, and stops when it is told to. */
static void stops_well(void)
{
	kill(server.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&server), 0);
	server.pid = 0;
}

static void says_why(const struct incident *incident, const char *name, const char *part)
{
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, name) == 0) {
			ck_assert_msg(strstr(incident->captures[i].why, part), "of %s it says: %s", name,
				      incident->captures[i].why);
			return;
		}
	ck_abort_msg("there is no %s", name);
}

static struct incident incident;

/*
 * Whether there is an incident of a workload with these arguments, which made so much at least.
 * large: the file that it runs, or NULL.
 */
static bool incident_of(const char *what, const char *size, const char *large, uint64_t least)
{
	char spikewatchd[512], program[512];
	const char *arguments[] = { program, what, size, large, NULL };

	if (!program_find("spikewatchd", spikewatchd) || !program_find("workload_sizes", program))
		return false;
	start_daemon(spikewatchd);
	if (start_workload(arguments) < least)
		return skip_because("the machine has no room for so many");
	await_incident(&incident);
	stops_well();
	return true;
}

static bool has_stacks(void)
{
	for (size_t i = 0; i < incident.capture_count; i++)
		if (strcmp(incident.captures[i].name, "stacks") == 0 &&
		    incident.captures[i].status == INCIDENT_CAPTURE_OK && incident.captures[i].bytes > 0)
			return true;
	return skip_because("there are no stacks here");
}

static void has(const char *file, const char *part)
{
	char path[sizeof(incident_at) + 32], *text;

	snprintf(path, sizeof(path), "%s/%s", incident_at, file);
	text = scene_read(path);
	ck_assert_msg(text && strstr(text, part), "%s does not have %s: %.500s", path, part, text ? text : "");
	free(text);
}

START_TEST(a_file_with_ten_million_functions)
{
	if (!incident_of("symbols", "10000000", in("large"), 1) || !has_stacks())
		SKIP_TEST("%s", skip_why());
	has("functions.tsv", "\nf\t");
}
END_TEST

START_TEST(a_file_with_a_symbol_table_of_sixty_gigabytes)
{
	if (!incident_of("symtab", "60000000000", in("large"), 1) || !has_stacks())
		SKIP_TEST("%s", skip_why());
	has("functions.tsv", "\n[large]\t");
	says_why(&incident, "stacks", "no names from 1 files: their symbols cannot be read");
}
END_TEST

START_TEST(a_file_with_four_gigabytes_of_debug_information)
{
	if (!incident_of("debug", "4000000000", in("large"), 1) || !has_stacks())
		SKIP_TEST("%s", skip_why());
	has("functions.tsv", "\n[large]\t");
}
END_TEST

START_TEST(as_many_mappings_as_the_kernel_allows)
{
	if (!incident_of("mappings", "65400", NULL, 60000) || !has_stacks())
		SKIP_TEST("%s", skip_why());
	has("functions.tsv", "\nspin_here\t");
}
END_TEST

START_TEST(thirty_thousand_threads)
{
	/* Each takes some 30 KiB of the kernel. */
	if ((uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) < 3ull << 30)
		SKIP_TEST("too little memory is free");
	if (!incident_of("threads", "30000", NULL, 10000))
		SKIP_TEST("%s", skip_why());
	has("threads.tsv", " more threads\n");
}
END_TEST

Suite *sizes_suite(void)
{
	Suite *suite = suite_create("sizes");
	TCase *tcase = tcase_create("sizes");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_file_with_ten_million_functions);
	tcase_add_test(tcase, a_file_with_a_symbol_table_of_sixty_gigabytes);
	tcase_add_test(tcase, a_file_with_four_gigabytes_of_debug_information);
	tcase_add_test(tcase, as_many_mappings_as_the_kernel_allows);
	tcase_add_test(tcase, thirty_thousand_threads);
	suite_add_tcase(suite, tcase);
	return suite;
}
