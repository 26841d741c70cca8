/*
 * check_daemon.c: spikewatchd as it is run: what it says and how it exits, stopped, killed, started
 * twice, by root and by other users.
 */
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "own_cgroups.h"
#include "program.h"
#include "skip.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/stat.h>
#include <sysexits.h>

Suite *daemon_suite(void);

static char directory[64], spikewatchd[512], config_path[128], ring_path[128], incidents[128], state_path[128];
static bool built;

static void setup(void)
{
	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	snprintf(state_path, sizeof(state_path), "%s/state.json", directory);
	built = program_find("spikewatchd", spikewatchd);
}

static void teardown(void)
{
	scene_remove(directory);
}

#define DAEMON(...) ((const char *const[]){ spikewatchd, __VA_ARGS__, NULL })

/* The daemon watches this process; after: how long an incident stays open. */
static void configure(pid_t pid, const char *after, const char *cooldown)
{
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"},\n"
		"\"ring\": {\"path\": \"%s\", \"size\": \"4MiB\", \"lock\": false},\n"
		"\"incidents\": {\"directory\": \"%s\", \"before\": \"500ms\", \"after\": \"%s\", \"min_free\": "
		"\"0B\"},\n"
		"\"state_file\": \"%s\",\n"
		"\"targets\": [{\"name\": \"burner\", \"pid\": %d}],\n"
		"\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\",\n"
		"\"percent\": \"20%%\", \"warmup\": 1, \"cooldown\": \"%s\"}]}\n",
		ring_path, incidents, after, state_path, pid, cooldown);
}

static bool said(const struct program *program, const char *part)
{
	return scene_says(program->err, part);
}

/* Starts it and waits until it is at work. */
static struct program start(uid_t uid)
{
	struct program program = program_start(DAEMON("-c", config_path), directory, -1, uid);

	scene_wait_for(program_watches_one(&program) || waitpid(program.pid, NULL, WNOHANG) != 0);
	if (!program_watches_one(&program))
		program_said(directory, "watching 1 targets");

	return program;
}

static int stop(const struct program *program)
{
	kill(program->pid, SIGTERM);

	return program_wait(program);
}

static void kill_hard(const struct program *program)
{
	kill(program->pid, SIGKILL);
	ck_assert_int_eq(program_wait(program), 128 + SIGKILL);
}

/*
 * Incidents whose name has this part. The last one is read, and must be whole. Half-written ones
 * count as -1.
 */
static int find_incidents(const char *part, struct incident *ret)
{
	DIR *dir = opendir(incidents);
	int count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (item->d_name[0] == '.' || !strstr(item->d_name, part))
			continue;
		if (strstr(item->d_name, ".tmp")) {
			count = -1;
			break;
		}
		int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
		ck_assert_int_eq(incident_json_read(fd, ret), 0);
		close(fd);
		count++;
	}
	if (dir)
		closedir(dir);

	return count;
}

static void samples_are_whole(const struct incident *incident)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", incidents, incident->id);
	ck_assert_uint_gt(scene_rows(path, INCIDENT_SAMPLES_FILE).count, 0);
}

START_TEST(a_good_configuration_is_good)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	configure(getpid(), "1s", "1m");
	ck_assert_int_eq(program_run(DAEMON("--check", config_path), directory), 0);
	ck_assert_int_eq(program_run(DAEMON("--check", "-c", config_path), directory), 0);
	ck_assert_int_eq(program_run(DAEMON("--check", "conf/spikewatch.json"), directory), 0);
}
END_TEST

START_TEST(a_bad_configuration_is_refused_with_its_place)
{
	char expected[200];

	if (!built)
		SKIP_TEST("the programs were not built");

	scene_write(config_path, "{\n\t\"sampling\": { \"intervall\": \"1ms\" }\n}\n");
	ck_assert_int_eq(program_run(DAEMON("--check", config_path), directory), EX_CONFIG);
	snprintf(expected, sizeof(expected), "%s:2:16: sampling.intervall: ", config_path);
	program_said(directory, expected);
	ck_assert_int_eq(program_run(DAEMON("-c", config_path), directory), EX_CONFIG);
	ck_assert_int_eq(program_run(DAEMON("--check", "/nowhere/file.json"), directory), EX_CONFIG);
	program_said(directory, "/nowhere/file.json");
}
END_TEST

START_TEST(wrong_usage_is_said)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(program_run(DAEMON("--colour"), directory), EX_USAGE);
	program_said(directory, "--help");
	ck_assert_int_eq(program_run(DAEMON("file.json"), directory), EX_USAGE);
	program_said(directory, "unexpected argument file.json");
	ck_assert_int_eq(program_run(DAEMON("--help"), directory), 0);
	ck_assert_int_eq(program_run(DAEMON("--version"), directory), 0);
}
END_TEST

START_TEST(two_daemons_do_not_share_a_ring)
{
	struct program second;

	if (!built)
		SKIP_TEST("the programs were not built");

	configure(getpid(), "1s", "1m");
	struct program first = start(0);
	char other[80];

	snprintf(other, sizeof(other), "%s/other", directory);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	second = program_start(DAEMON("-c", config_path), other, -1, 0);
	ck_assert_int_eq(program_wait(&second), 1);
	program_said(other, "another spikewatchd uses");
	program_said(other, ring_path);
	ck_assert_int_eq(stop(&first), 0);
	program_said(directory, "stopped: 0 incidents sealed");
}
END_TEST

START_TEST(stopping_seals_the_incident_that_is_open)
{
	struct incident incident;

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-daemon");

	configure(actor.pid, "1h", "1m");
	struct program program = start(0);

	actor_do(&actor, 'b', "hot-thread");
	scene_wait_for(said(&program, "rule hot fired"));
	scene_wait_for(find_incidents("-hot-", &incident) == -1); /* it is being written */
	ck_assert_int_eq(stop(&program), 0);
	ck_assert_int_eq(find_incidents("-hot-", &incident), 1);
	ck_assert_int_eq(incident.target.pid, actor.pid);
	samples_are_whole(&incident);
	program_said(directory, "stopped: 1 incidents sealed");
	actor_end(&actor);
}
END_TEST

/*
 * Whether the incident that is being written has been noted: that what was collected for it would
 * outlive the daemon.
 */
static bool is_noted(void)
{
	char pattern[192];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/*-hot-*.tmp/incident.json", incidents);
	bool noted = glob(pattern, 0, NULL, &found) == 0;
	globfree(&found);

	return noted;
}

static const char *const ways[] = { "auto", "rescan" };

START_TEST(an_incident_has_the_command_line_from_after_the_execution)
{
	char program[128], go[128], script[512];
	struct incident incident;
	pid_t pid;

	if (!built)
		SKIP_TEST("the programs were not built");

	/*
	 * A shell becomes another program, under another name, when the daemon watches it already.
	 */
	snprintf(program, sizeof(program), "%s/afterwards", directory);
	snprintf(go, sizeof(go), "%s/go", directory);
	ck_assert_int_eq(symlink("/bin/sh", program), 0);
	snprintf(script, sizeof(script), "while ! [ -e %s ]; do sleep 0.02; done; exec %s -c 'while :; do :; done' now",
		 go, program);
	pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", script, (char *)NULL);
		_exit(1);
	}
	scene_write(config_path,
		    "{\"sampling\": {\"interval\": \"5ms\", \"rescan_interval\": \"100ms\", \"discovery\": \"%s\"},\n"
		    "\"ring\": {\"path\": \"%s\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s\", \"before\": \"500ms\", \"after\": \"100ms\", \"min_free\": "
		    "\"0B\"},\n"
		    "\"state_file\": \"%s\", \"stacks\": {\"mode\": \"off\"},\n"
		    "\"targets\": [{\"name\": \"burner\", \"pid\": %d}],\n"
		    "\"rules\": [{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"1s\",\n"
		    "\"percent\": \"10%%\", \"warmup\": 0, \"cooldown\": \"1h\"}]}\n",
		    ways[_i], ring_path, incidents, state_path, pid);

	struct program daemon = start(0);

	scene_write(go, "%s", "");
	scene_wait_for(find_incidents("burner-hot", &incident) == 1);
	ck_assert_str_eq(incident.target.comm, "afterwards");
	ck_assert_ptr_nonnull(strstr(incident.target.cmdline, "/afterwards -c while :; do :; done now"));
	ck_assert_int_eq(incident.target.pid, pid);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(stop(&daemon), 0);
}
END_TEST

START_TEST(a_killed_daemon_leaves_its_incident_a_recovered_one_and_its_cooldowns)
{
	struct incident incident;

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-daemon");

	configure(actor.pid, "1h", "1h");
	struct program program = start(0);

	actor_do(&actor, 'b', "hot-thread");
	scene_wait_for(said(&program, "rule hot fired"));
	scene_wait_for(scene_says(state_path, "hot")); /* within a second */
	scene_wait_for(is_noted());
	kill_hard(&program);
	ck_assert_int_eq(find_incidents("-hot-", &incident), -1);

	program = start(0);
	program_said(directory, "the last daemon was killed");
	program_said(directory, "of a daemon that was killed was sealed as far as it was written (severity ");
	ck_assert_int_eq(find_incidents("-hot-", &incident), 1);
	ck_assert_str_eq(incident.rule.name, "hot");
	ck_assert_str_eq(incident.target.comm, "scene-daemon");
	ck_assert_int_eq(find_incidents("-recovered-", &incident), 1);
	ck_assert_int_eq(incident.kind, INCIDENT_RECOVERED);
	samples_are_whole(&incident);

	/* It goes on burning: only the cooldown, of an hour, keeps the rule from firing. */
	scene_wait_for(scene_says(state_path, "hot"));
	for (int naps = 0; naps < 300; naps++)
		scene_nap();
	ck_assert(!said(&program, "rule hot fired"));
	ck_assert_int_eq(stop(&program), 0);
	ck_assert_int_eq(find_incidents("-hot-", &incident), 1);

	/* And a daemon that was stopped in good order leaves nothing to recover. */
	program = start(0);
	ck_assert(!said(&program, "the last daemon was killed"));
	ck_assert_int_eq(stop(&program), 0);
	actor_end(&actor);
}
END_TEST

/* For longer than max_age, 30 days. */
#define SUSPENDED_NS (UINT64_C(40) * 86400 * NS_PER_S)

START_TEST(a_suspend_makes_no_incident_old)
{
	static char spikewatch[512], preload[512];
	char control[160], ahead[160], pattern[192];
	volatile uint64_t *ahead_ns;
	glob_t found;

	if (!built || !program_find("spikewatch", spikewatch) || !program_find("clock_ahead.so", preload))
		SKIP_TEST("the programs were not built");

	snprintf(control, sizeof control, "%s/control", directory);
	snprintf(ahead, sizeof ahead, "%s/ahead", directory);
	snprintf(pattern, sizeof pattern, "%s/*-manual-*", incidents);
	AUTO_CLOSE int fd = open(ahead, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(ftruncate(fd, sizeof *ahead_ns), 0);
	ahead_ns = mmap(NULL, sizeof *ahead_ns, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(ahead_ns != MAP_FAILED);
	configure(getpid(), "50ms", "1h");
	setenv("LD_PRELOAD", preload, 1);
	setenv("CLOCK_AHEAD", ahead, 1);
	struct program program = start(0);

	unsetenv("LD_PRELOAD");
	const char *const trigger[] = { spikewatch, "trigger", "--wait", "-s", control, NULL };

	for (int i = 0; i < 4; i++) {
		if (i == 2)
			*ahead_ns = SUSPENDED_NS;
		ck_assert_int_eq(program_run(trigger, directory),
				 0); /* the limits are kept after it, before the next */
	}
	ck_assert_int_eq(stop(&program), 0);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_uint_eq(found.gl_pathc, 4);
	globfree(&found);
}
END_TEST

/*
 * An incident of everything, asked for by hand, that goes on when its daemon is killed: what is
 * adopted is whole as far as it goes, and says where it ends.
 */
START_TEST(an_incident_of_everything_whose_daemon_was_killed_is_whole_and_says_where_it_ends)
{
	static char spikewatch[512];
	char control[160], path[400], shown[160];
	struct incident incident;
	glob_t found;

	if (!built || !program_find("spikewatch", spikewatch))
		SKIP_TEST("the programs were not built");

	configure(getpid(), "1h", "1h");
	snprintf(control, sizeof control, "%s/control", directory);
	snprintf(shown, sizeof shown, "%s/shown", directory);
	struct program program = start(0);
	const char *const trigger[] = { spikewatch, "trigger", "-s", control, NULL };

	ck_assert_int_eq(program_run(trigger, directory), 0);
	snprintf(path, sizeof path, "%s/*-manual-*.tmp/incident.json", incidents);
	scene_wait_for(glob(path, 0, NULL, &found) == 0 ? (globfree(&found), true) : false);
	kill_hard(&program);
	program = start(0);
	ck_assert_int_eq(stop(&program), 0);

	ck_assert_int_eq(find_incidents("-manual-", &incident), 1);
	samples_are_whole(&incident);
	snprintf(path, sizeof path, "%s/%s", incidents, incident.id);
	const char *const verify[] = { spikewatch, "verify", path, NULL }, *const show[] = { spikewatch, "show",
											     "--full", path, NULL };

	ck_assert_int_eq(program_run(verify, directory), 0);

	const char *const by_id[] = { spikewatch, "verify", incident.id, NULL };
	const char *const by_wrong_id[] = { spikewatch, "verify", "2026-nobody", NULL };

	setenv("SPIKEWATCH_DIR", incidents, 1);
	ck_assert_int_eq(program_run(by_id, directory), 0);
	ck_assert_int_eq(program_run(by_wrong_id, directory), 2);
	unsetenv("SPIKEWATCH_DIR");
	int out = open(shown, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct program told = program_start(show, directory, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&told), 0);
	ck_assert(scene_says(shown, "Lost: the later samples"));
	ck_assert(!scene_says(shown, "Nothing was lost"));
	ck_assert(!scene_says(shown, "samples.tsv, 0 B"));

	ck_assert_int_eq(find_incidents("-recovered-", &incident), 1);
	ck_assert_uint_gt(incident.captures[0].bytes, 0);
}
END_TEST

static mode_t widest;

static int add_mode(const char *path, const struct stat *st, int type, struct FTW *place)
{
	(void)place;
	if (type != FTW_SL && strcmp(path, directory) != 0 && strcmp(path, config_path) != 0 &&
	    !strstr(path, "/stderr"))
		widest |= st->st_mode & 0777 & (type == FTW_D ? 0666u : 0777u);
	return 0;
}

/* What any file of a daemon that was started with this umask allows. */
static mode_t modes_with(mode_t mask)
{
	struct actor actor = actor_start("scene-daemon");
	struct incident incident;
	mode_t before = umask(mask);

	configure(actor.pid, "200ms", "1s");
	widest = 0;

	struct program program = start(0);

	umask(before);
	actor_do(&actor, 'b', "hot-thread");
	scene_wait_for(said(&program, "sealed incident"));
	ck_assert_int_eq(nftw(directory, add_mode, 16, FTW_PHYS), 0);
	ck_assert_int_eq(stop(&program), 0);
	actor_end(&actor);
	ck_assert_int_ge(find_incidents("-hot-", &incident), 1);
	ck_assert_int_eq(nftw(directory, add_mode, 16, FTW_PHYS), 0);
	return widest;
}

START_TEST(files_are_for_its_user_alone_unless_the_umask_names_the_group)
{
	if (!built)
		SKIP_TEST("the programs were not built");
	ck_assert_uint_eq(modes_with(022) & 077, 0);
	scene_remove(incidents);
	ck_assert_uint_eq(modes_with(002) & 077, 0);
	scene_remove(incidents);
	ck_assert_uint_eq(modes_with(027) & 077, 060); /* the socket is written to */
}
END_TEST

START_TEST(a_damaged_state_file_is_set_aside_and_stops_nobody)
{
	char aside[160];

	if (!built)
		SKIP_TEST("the programs were not built");

	configure(getpid(), "1s", "1m");
	scene_write(state_path, "{ this is no state");
	struct program program = start(0);

	program_said(directory, "the state file is damaged");
	ck_assert_int_eq(stop(&program), 0);
	snprintf(aside, sizeof(aside), "%s.damaged", state_path);
	ck_assert(scene_says(aside, "this is no state"));
}
END_TEST

START_TEST(a_runtime_root_that_is_not_there_is_said_and_stops_nobody)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	scene_write(config_path,
		    "{\"ring\": {\"path\": \"%s\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s\"}, \"state_file\": \"%s\", \"runtime_root\": \"/nowhere\",\n"
		    "\"targets\": [{\"name\": \"burner\", \"pid\": %d}], \"rules\": []}\n",
		    ring_path, incidents, state_path, getpid());
	struct program program = start(0);

	program_said(directory, "cannot open the runtime root /nowhere");
	ck_assert_int_eq(stop(&program), 0);
}
END_TEST

START_TEST(what_it_needs_and_cannot_have_is_said)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	snprintf(ring_path, sizeof(ring_path), "/proc/nowhere/ring");
	configure(getpid(), "1s", "1m");
	ck_assert_int_eq(program_run(DAEMON("-c", config_path), directory), 1);
	program_said(directory, "/proc/nowhere/ring");

	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	snprintf(incidents, sizeof(incidents), "%s", config_path); /* no directory */
	configure(getpid(), "1s", "1m");
	ck_assert_int_eq(program_run(DAEMON("-c", config_path), directory), 1);
	program_said(directory, "incident directory");

	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	configure(getpid(), "1s", "1m");
	ck_assert_int_eq(program_run(DAEMON("-c", config_path, "--proc-root", "/nowhere"), directory), 1);
	program_said(directory, "cannot open the proc root /nowhere");
}
END_TEST

START_TEST(an_ordinary_user_watches_its_own_processes)
{
	struct incident incident;

	if (!built)
		SKIP_TEST("the programs were not built");
	if (geteuid() != 0)
		SKIP_TEST("needs root to become another user");

	char copy[160], command[800];
	const char *busy[] = { "/bin/sh", "-c", "while :; do :; done", NULL };

	/* The programs may lie where only root can look. */
	snprintf(copy, sizeof(copy), "%s/spikewatchd", directory);
	snprintf(command, sizeof(command), "cp '%s' '%s'", spikewatchd, copy);
	ck_assert_int_eq(system(command), 0);
	snprintf(spikewatchd, sizeof(spikewatchd), "%s", copy);
	ck_assert_int_eq(chown(directory, 65534, 65534), 0);
	struct program burner = program_start(busy, "/tmp", -1, 65534);

	configure(burner.pid, "300ms", "1h");
	ck_assert_int_eq(chmod(config_path, 0644), 0);
	struct program program = start(65534);

	scene_wait_for(said(&program, "sealed incident"));
	ck_assert_int_eq(stop(&program), 0);
	ck_assert_int_eq(find_incidents("-hot-", &incident), 1);
	ck_assert_int_eq(incident.target.pid, burner.pid);
	samples_are_whole(&incident);
	for (size_t i = 0; i < incident.capture_count; i++)
		ck_assert_msg(incident.captures[i].status != INCIDENT_CAPTURE_FAILED, "%s: %s",
			      incident.captures[i].name, incident.captures[i].why);
	kill_hard(&burner);
	unlink(burner.err);
}
END_TEST

/* Burns its CPU, stopped until SIGCONT and then for 4 s at most, on this CPU alone. */
static pid_t bound_spinner(unsigned cpu)
{
	pid_t pid = fork();
	cpu_set_t one;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		raise(SIGSTOP);
		signal(SIGALRM, SIG_DFL); /* Check's ends the test */
		alarm(4);
		actor_burn("scene-starved");
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(pid, sizeof(one), &one), 0);

	return pid;
}

/*
 * In a network namespace of its own the daemon has the name, an abstract socket, of the one on a machine that
 * counts in the kernel: other suites, and a daemon of this machine, may run meanwhile.
 */
static bool start_apart(struct program *ret)
{
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (own < 0 || unshare(CLONE_NEWNET) < 0) {
		close(own);
		return skip_because("a network namespace: %s", strerror(errno));
	}
	*ret = start(0);
	ck_assert_int_eq(setns(own, CLONE_NEWNET), 0);
	close(own);

	return true;
}

/* False: CPU time comes from files, for the reason that the daemon has given. */
static bool counts_in_the_kernel(const struct program *program)
{
	char *log = scene_read(program->err);
	const char *not_at_all = log ? strstr(log, "not from the scheduler") : NULL;
	const char *off = log && !not_at_all ? strstr(log, "costs more than it saves") : NULL, *why;

	why = not_at_all ? not_at_all : off;
	if (why)
		skip_because("%.*s", (int)strcspn(why, "\n"), why);
	free(log);

	return !why;
}

/* ---- one of two that counts ---- */

/* Of its own place: where it is, all that it writes, and its socket. Waits until it is at work. */
static struct program start_counter(const char *name, pid_t pid)
{
	char where[100], file[128];
	struct program program;

	snprintf(where, sizeof(where), "%s/%s", directory, name);
	snprintf(file, sizeof(file), "%s/config.json", where);
	ck_assert_int_eq(mkdir(where, 0700), 0);
	scene_write(file,
		    "{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": "
		    "\"100%%\"},\n"
		    "\"ring\": {\"path\": \"%s/ring\", \"size\": \"16MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\"},\n"
		    "\"state_file\": \"%s/state.json\", \"stacks\": \"off\",\n"
		    "\"targets\": [{\"name\": \"burner\", \"pid\": %d}]}\n",
		    where, where, where, pid);
	program = program_start(DAEMON("-c", file), where, -1, 0);
	scene_wait_for(program_watches_one(&program) || waitpid(program.pid, NULL, WNOHANG) != 0);
	ck_assert(program_watches_one(&program));

	return program;
}

/* What the second one answers about its source of CPU time has this. */
static bool answers(const char *part)
{
	char spikewatch[512], path[128], socket_path[128];

	if (!program_find("spikewatch", spikewatch))
		return false;
	snprintf(path, sizeof(path), "%s/answer", directory);
	snprintf(socket_path, sizeof(socket_path), "%s/second/control", directory);

	const char *const status[] = { spikewatch, "status", "--json", "--socket", socket_path, NULL };
	int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct program asked = program_start(status, directory, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&asked), 0);

	return scene_says(path, part);
}

/* The CPU time of its target, and by how much it rose beyond what the time between two samples has room for. */
struct read_back {
	uint64_t cpu_ns, excess_ns;
	bool fell;
};

static struct read_back read_back(const char *name)
{
	struct ring_event event = { .type = 0 };
	struct ring_cursor *cursor = NULL;
	struct read_back back = { 0 };
	struct ring *ring = NULL;
	uint64_t at_ns = 0;
	char path[128];

	snprintf(path, sizeof(path), "%s/%s/ring", directory, name);
	ck_assert_int_eq(ring_open(AT_FDCWD, path, false, &ring), 0);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type != RING_EVENT_SAMPLE || !sample_has(event.sample, SAMPLE_CPU))
			continue;

		uint64_t cpu_ns = event.sample->value[SAMPLE_CPU], passed_ns = event.time.ns - at_ns;

		back.fell |= cpu_ns < back.cpu_ns;
		if (at_ns > 0 && cpu_ns > back.cpu_ns + passed_ns && cpu_ns - back.cpu_ns - passed_ns > back.excess_ns)
			back.excess_ns = cpu_ns - back.cpu_ns - passed_ns;
		at_ns = event.time.ns;
		back.cpu_ns = cpu_ns;
	}
	ring_cursor_free(cursor);
	ring_free(ring);

	return back;
}

static pid_t start_spinner(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (volatile unsigned i = 0;;)
			i = i + 1;
	}
	ck_assert_int_gt(pid, 0);

	return pid;
}

/* Stops it: what its own clock says. */
static uint64_t stop_spinner(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
	usleep(50000); /* it is waited for before its last run is over */
	ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &used), 0);

	return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

/* A scheduler tick: until then a clock is behind, and what was asked then seems to come at once. */
#define TICK_NS (10 * NS_PER_MS)

/* Its target burns all the time, and loses nothing over the seam. */
START_TEST(the_second_of_two_counts_in_the_kernel_once_the_first_has_ended)
{
	struct program first, second;
	bool counts, waits;
	uint64_t used_ns;
	pid_t spinner;

	if (!built)
		SKIP_TEST("the programs were not built");
	if (unshare(CLONE_NEWNET) < 0)
		SKIP_TEST("a network namespace: %s", strerror(errno));
	spinner = start_spinner();
	first = start_counter("first", spinner);
	counts = counts_in_the_kernel(&first);
	second = start_counter("second", spinner);
	waits = said(&second, "not from the scheduler: another spikewatch on this machine uses it (tried again)");
	if (counts) {
		ck_assert(waits);
		ck_assert(answers("\"source\": \"files\",\n"));
		ck_assert(answers("\"why\": \"another spikewatch on this machine uses it\""));
	}
	ck_assert_int_eq(stop(&first), 0);
	if (counts) {
		scene_wait_for(said(&second, "CPU time comes from the scheduler now"));
		ck_assert(answers("\"wanted\": \"auto\",\n    \"source\": \"kernel\""));
		usleep(500000);
		used_ns = stop_spinner(spinner);
		scene_wait_for(read_back("second").cpu_ns == used_ns);
		ck_assert(!read_back("second").fell);
		ck_assert_uint_le(read_back("second").excess_ns, TICK_NS);
	}
	ck_assert_int_eq(stop(&second), 0);
	kill(spinner, SIGKILL);
	ck_assert_int_eq(waitpid(spinner, NULL, 0), spinner);
	if (!counts)
		SKIP_TEST("%s", skip_reason);
}
END_TEST

#define NEIGHBOURS 3

/* Four on one CPU have a quarter of it each, and wait for three. */
START_TEST(what_its_neighbours_keep_from_its_cpu_fires_a_rule_on_cpu_wait)
{
	static char spikewatch[512];
	struct incident incident = { .kind = INCIDENT_RULE };
	struct program program;
	pid_t spinners[1 + NEIGHBOURS];
	char path[400], shown[160];
	cpu_set_t may;
	unsigned cpu = 0;
	int found = 0;

	if (!built || !program_find("spikewatch", spikewatch))
		SKIP_TEST("the programs were not built");
	ck_assert_int_eq(sched_getaffinity(0, sizeof(may), &may), 0);
	while (!CPU_ISSET(cpu, &may))
		cpu++;
	for (int i = 0; i <= NEIGHBOURS; i++)
		spinners[i] = bound_spinner(cpu);
	scene_write(config_path,
		    "{\"sampling\": {\"interval\": \"10ms\", \"source\": \"kernel\", \"cpu_budget\": \"100%%\"},\n"
		    "\"ring\": {\"path\": \"%s\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s\", \"before\": \"500ms\", \"after\": \"300ms\", \"min_free\": "
		    "\"0B\"},\n"
		    "\"state_file\": \"%s\", \"stacks\": \"off\",\n"
		    "\"targets\": [{\"name\": \"victim\", \"pid\": %d}],\n"
		    "\"rules\": [{\"name\": \"starved\", \"metric\": \"cpu_wait\", \"window\": \"500ms\",\n"
		    "\"percent\": \"30%%\", \"warmup\": 0, \"cooldown\": \"1h\"}]}\n",
		    ring_path, incidents, state_path, spinners[0]);
	if (!start_apart(&program))
		SKIP_TEST("%s", skip_reason);

	if (counts_in_the_kernel(&program)) {
		for (int i = 0; i <= NEIGHBOURS; i++)
			kill(spinners[i], SIGCONT);
		scene_wait_for((found = find_incidents("victim-starved", &incident)) == 1 ||
			       !counts_in_the_kernel(&program));
	}
	for (int i = 0; i <= NEIGHBOURS; i++) {
		kill(spinners[i], SIGKILL);
		ck_assert_int_eq(waitpid(spinners[i], NULL, 0), spinners[i]);
	}
	ck_assert_int_eq(stop(&program), 0);
	if (found != 1)
		SKIP_TEST("%s", skip_reason);

	ck_assert_int_eq(incident.target.pid, spinners[0]);
	ck_assert_str_eq(incident.cost.cpu_time_source, "kernel");
	snprintf(path, sizeof(path), "%s/%s", incidents, incident.id);
	snprintf(shown, sizeof(shown), "%s/shown", directory);

	const char *const show[] = { spikewatch, "show", path, NULL };
	int out = open(shown, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct program told = program_start(show, directory, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&told), 0);
	ck_assert(scene_says(shown, "it waited for a CPU for "));
}
END_TEST

/* ---- a cgroup ---- */

static struct own_cgroups own_cgroups;

static void make_cgroups(void)
{
	own_cgroups_make(&own_cgroups, "daemon");
}

static void remove_cgroups(void)
{
	own_cgroups_remove(&own_cgroups);
}

/* Ten milliseconds of CPU time in each tenth of a second, of which two reads of a file would show a tenth of a core. */
static pid_t start_bursts(void)
{
	pid_t pid = fork();
	struct timespec began, now;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			usleep(90000);
			clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
			do
				clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
			while ((now.tv_sec - began.tv_sec) * 1000000000L + now.tv_nsec - began.tv_nsec < 10000000);
		}
	}
	ck_assert_int_gt(pid, 0);
	own_cgroups_join(&own_cgroups, "burst", pid);

	return pid;
}

static void end_bursts(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	own_cgroups_drop(&own_cgroups, "burst");
}

static void configure_bursts(void)
{
	scene_write(config_path,
		    "{\"sampling\": {\"interval\": \"1ms\", \"cpu_budget\": \"100%%\"},\n"
		    "\"ring\": {\"path\": \"%s\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"incidents\": {\"directory\": \"%s\", \"before\": \"500ms\", \"after\": \"300ms\", \"min_free\": "
		    "\"0B\"},\n"
		    "\"state_file\": \"%s\", \"stacks\": \"off\",\n"
		    "\"targets\": [{\"name\": \"pod\", \"cgroup\": \"%s/burst\"}],\n"
		    "\"rules\": [{\"name\": \"burst\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"8ms\",\n"
		    "\"percent\": \"60%%\", \"warmup\": 0, \"cooldown\": \"1h\"}]}\n",
		    ring_path, incidents, state_path, own_cgroups.name);
}

/* cgroup_interval is what it is by itself, a tenth of a second. */
START_TEST(a_burst_in_a_cgroup_fires_a_rule_whose_window_is_no_longer)
{
	struct incident incident = { .kind = INCIDENT_RULE };
	struct program program;
	pid_t bursts;
	int found = 0;

	if (!built || own_cgroups.count == 0)
		SKIP_TEST("%s", built ? "no cgroup can be made here" : "the programs were not built");
	ck_assert_int_eq(own_cgroups_add(&own_cgroups, "burst"), 0);
	bursts = start_bursts();
	configure_bursts();
	if (!start_apart(&program)) {
		end_bursts(bursts);
		SKIP_TEST("%s", skip_reason);
	}
	if (counts_in_the_kernel(&program))
		scene_wait_for((found = find_incidents("_burst-burst-", &incident)) == 1 ||
			       !counts_in_the_kernel(&program));
	end_bursts(bursts);
	ck_assert_int_eq(stop(&program), 0);
	if (found != 1)
		SKIP_TEST("%s", skip_reason);

	ck_assert_str_eq(incident.cost.cpu_time_source, "kernel");
	ck_assert_double_ge(incident.rule.value, 60);
	ck_assert_int_le(mono_diff(incident.window_to, incident.window_from), 20 * (int64_t)NS_PER_MS);
}
END_TEST

/* The name of the one that counts on this machine is taken by this test, in a network namespace of its own. */
START_TEST(that_windows_are_too_short_for_files_is_said)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "\0spikewatch-cpu-accounts" };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1));
	struct program program;

	if (!built || own_cgroups.count == 0)
		SKIP_TEST("%s", built ? "no cgroup can be made here" : "the programs were not built");
	if (unshare(CLONE_NEWNET) < 0)
		SKIP_TEST("a network namespace: %s", strerror(errno));
	ck_assert_int_eq(own_cgroups_add(&own_cgroups, "burst"), 0);

	int name = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(name, (const struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(name, 10), 0);
	configure_bursts();
	program = start(0);
	scene_wait_for(scene_says(program.err,
				  "rule burst has windows of 8 ms, but CPU time of cgroups is read from files "
				  "every 100 ms"));
	ck_assert_int_eq(stop(&program), 0);
	close(name);
	own_cgroups_drop(&own_cgroups, "burst");
}
END_TEST

Suite *daemon_suite(void)
{
	Suite *suite = suite_create("daemon");
	TCase *tcase = tcase_create("program");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_good_configuration_is_good);
	tcase_add_test(tcase, a_bad_configuration_is_refused_with_its_place);
	tcase_add_test(tcase, wrong_usage_is_said);
	tcase_add_test(tcase, two_daemons_do_not_share_a_ring);
	tcase_add_test(tcase, stopping_seals_the_incident_that_is_open);
	tcase_add_loop_test(tcase, an_incident_has_the_command_line_from_after_the_execution, 0, 2);
	tcase_add_test(tcase, a_killed_daemon_leaves_its_incident_a_recovered_one_and_its_cooldowns);
	tcase_add_test(tcase, a_suspend_makes_no_incident_old);
	tcase_add_test(tcase, an_incident_of_everything_whose_daemon_was_killed_is_whole_and_says_where_it_ends);
	tcase_add_test(tcase, files_are_for_its_user_alone_unless_the_umask_names_the_group);
	tcase_add_test(tcase, a_damaged_state_file_is_set_aside_and_stops_nobody);
	tcase_add_test(tcase, a_runtime_root_that_is_not_there_is_said_and_stops_nobody);
	tcase_add_test(tcase, what_it_needs_and_cannot_have_is_said);
	tcase_add_test(tcase, an_ordinary_user_watches_its_own_processes);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("waiting");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_its_neighbours_keep_from_its_cpu_fires_a_rule_on_cpu_wait);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("two");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_second_of_two_counts_in_the_kernel_once_the_first_has_ended);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("cgroup");
	tcase_add_unchecked_fixture(tcase, make_cgroups, remove_cgroups);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_burst_in_a_cgroup_fires_a_rule_whose_window_is_no_longer);
	tcase_add_test(tcase, that_windows_are_too_short_for_files_is_said);
	suite_add_tcase(suite, tcase);

	return suite;
}
