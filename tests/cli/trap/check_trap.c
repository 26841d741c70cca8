/*
 * check_trap.c: spikewatch trap as it is used: on real processes that burn CPU or take memory, on
 * commands, and ended by Ctrl-C.
 *
 * Thresholds are far below what is done and above nothing, so that a busy machine only makes it
 * slower.
 */
#include "program.h"
#include "skip.h"

#include "lib/base/base.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

Suite *trap_suite(void);

static char directory[64], incidents[128], spikewatch[512];
static bool built;

static void setup(void)
{
	scene_directory(directory);
	ck_assert_int_eq(chmod(directory, 0777), 0);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	built = program_find("spikewatch", spikewatch);
}

static void teardown(void)
{
	scene_remove(directory);
}

#define TRAP(...) ((const char *const[]){ spikewatch, "trap", __VA_ARGS__, NULL })
#define SOON "--cpu", "2%", "--for", "100ms", "--after", "0s", "-o", incidents
/* Where stacks change nothing: naming the functions of these tests takes longer than all else. */
#define NO_STACKS "--stacks", "off"

/* A shell that burns a second or two, and ends with code. */
#define BURN(code) "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit " #code

static const char *pid_text(const struct actor *actor)
{
	static char text[16];

	snprintf(text, sizeof(text), "%d", actor->pid);

	return text;
}

/* Waits until the program has said so. */
static void wait_for_words(const struct program *program, const char *words)
{
	scene_wait_for(scene_says(program->err, words));
}

/* How many incidents there are in a directory, all of which must be whole. */
static int count_incidents(const char *path)
{
	DIR *dir = opendir(path);
	char incident[512];
	int count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (item->d_name[0] == '.')
			continue;
		snprintf(incident, sizeof(incident), "%s/%s", path, item->d_name);
		ck_assert_msg(program_run((const char *const[]){ spikewatch, "verify", "-q", incident, NULL },
					  directory) == 0,
			      "%s is not whole", incident);
		count++;
	}
	if (dir)
		closedir(dir);

	return count;
}

/* incident.json of the only one, for free(3). */
static char *read_incident(void)
{
	DIR *dir = opendir(incidents);
	char path[512], *text = NULL;

	for (struct dirent *item; dir && !text && (item = readdir(dir));) {
		snprintf(path, sizeof(path), "%s/%s/incident.json", incidents, item->d_name);
		text = scene_read(path);
	}
	if (dir)
		closedir(dir);
	ck_assert_ptr_nonnull(text);

	return text;
}

/* What the program says, kept from the programs that run after it. */
static char *words_of(const struct program *program)
{
	char *text = scene_read(program->err);

	ck_assert_ptr_nonnull(text);

	return text;
}

static void expect_words(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "expected \"%s\", it said: %s", part, text);
}

START_TEST(a_process_that_burns_is_caught)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");
	struct program program = program_start(TRAP(SOON, "-p", pid_text(&actor)), directory, -1, 0);

	wait_for_words(&program, "waiting for scene-trap-");
	actor_do(&actor, 'b', "hot");
	ck_assert_int_eq(program_wait(&program), 0);
	AUTO_FREE char *text = words_of(&program);

	expect_words(text, ": more than 2% of a core for 100 ms; Ctrl-C ends it\n");
	expect_words(text, "caught scene-trap-");
	expect_words(text, "% of a core; recording 0 s more\n");
	expect_words(text, "wrote 20");
	expect_words(text, "to see it: spikewatch show -d /tmp/");
	expect_words(text, "/incidents last\n");
	ck_assert_msg(!strpbrk(text, "\033\r"), "there is no terminal: %s", text);
	ck_assert_int_eq(count_incidents(incidents), 1);
	actor_end(&actor);
}
END_TEST

START_TEST(a_process_that_stands_still_is_caught)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");

	actor_do(&actor, 'b', "hot");
	struct program program = program_start(
		TRAP(NO_STACKS, "--cpu-below", "1%", "--after", "0s", "-o", incidents, "-p", pid_text(&actor)),
		directory, -1, 0);

	wait_for_words(&program, "less than 1% of a core for 1 s; Ctrl-C ends it\n");
	kill(actor.pid, SIGSTOP);
	ck_assert_int_eq(program_wait(&program), 0);
	AUTO_FREE char *text = read_incident();

	ck_assert_msg(strstr(text, "\"reason\": \"below-percent\""), "%s", text);
	ck_assert_msg(strstr(text, "\"name\": \"cpu-below\""), "%s", text);
	kill(actor.pid, SIGCONT);
	actor_end(&actor);
}
END_TEST

START_TEST(each_of_a_process_group_is_watched)
{
	char group[16], caught[64];

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor leader = actor_start("scene-leads"), other = actor_start("scene-follows");

	ck_assert_int_eq(setpgid(leader.pid, leader.pid), 0);
	ck_assert_int_eq(setpgid(other.pid, leader.pid), 0);
	snprintf(group, sizeof(group), "%d", leader.pid);
	struct program program = program_start(TRAP(SOON, "--pgid", group), directory, -1, 0);

	wait_for_words(&program, "waiting for group-");
	actor_do(&other, 'b', "hot");
	ck_assert_int_eq(program_wait(&program), 0);
	snprintf(caught, sizeof(caught), "\"name\": \"scene-follows-%d\"", other.pid);
	AUTO_FREE char *text = read_incident();

	ck_assert_ptr_nonnull(strstr(text, caught));
	actor_end(&leader);
	actor_end(&other);
}
END_TEST

/* Bursts and pauses until it has seen enough. */
START_TEST(each_spike_is_an_incident_until_there_are_enough)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");
	struct program program =
		program_start(TRAP(NO_STACKS, SOON, "-n", "3", "-p", pid_text(&actor)), directory, -1, 0);
	int status = -1;

	actor_do(&actor, 'b', "hot");
	for (int i = 0; i < 400 && waitpid(program.pid, &status, WNOHANG) == 0; i++) {
		kill(actor.pid, i % 2 ? SIGCONT : SIGSTOP);
		for (int naps = 0; naps < 150; naps++)
			scene_nap();
	}
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(count_incidents(incidents), 3);
	actor_end(&actor);
}
END_TEST

/* Resident bytes. */
static unsigned long resident(pid_t pid)
{
	char path[64];
	unsigned long pages = 0;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	AUTO_FREE char *text = scene_read(path);
	ck_assert(text && sscanf(text, "%*u %lu", &pages) == 1);

	return pages * (unsigned long)sysconf(_SC_PAGESIZE);
}

START_TEST(memory_that_stays_is_one_spike)
{
	char limit[32];

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");

	snprintf(limit, sizeof(limit), "%luB", resident(actor.pid) + (16u << 20));
	struct program program = program_start(TRAP(NO_STACKS, "--memory", limit, "-n", "2", "-t", "1500ms", "--after",
						    "0s", "-o", incidents, "-p", pid_text(&actor)),
					       directory, -1, 0);

	wait_for_words(&program, "waiting for");
	actor_do(&actor, 'm', "");
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "of memory; Ctrl-C");
	program_said(directory, ": memory ");
	ck_assert_int_eq(count_incidents(incidents), 1);
	actor_end(&actor);
}
END_TEST

/* Python-free: a shell whose variable doubles. */
#define GROW "a=x; i=0; while [ $i -lt 26 ]; do a=$a$a; i=$((i+1)); done; sleep 0.3; exit 5"

START_TEST(each_of_several_sizes_is_caught_once)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct program program = program_start(TRAP(NO_STACKS, "--memory", "16M,48M", "-t", "20", "--after", "0s", "-o",
						    incidents, "--", "sh", "-c", GROW),
					       directory, -1, 0);

	ck_assert_int_eq(program_wait(&program), 5);
	AUTO_FREE char *text = words_of(&program);
	const char *first = strstr(text, ": memory ");

	expect_words(text, "more than 16 MiB, 48 MiB of memory");
	ck_assert_msg(first && strstr(first + 1, ": memory "), "%s", text);
}
END_TEST

/* What was caught and what was written are two and one: why is said. */
START_TEST(a_size_that_joins_the_incident_of_the_one_before_says_so)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct program program = program_start(TRAP(NO_STACKS, "--memory", "16M,48M", "-t", "20", "--after", "10s",
						    "-o", incidents, "--", "sh", "-c", GROW),
					       directory, -1, 0);

	ck_assert_int_eq(program_wait(&program), 5);
	AUTO_FREE char *text = words_of(&program);

	expect_words(text, "; recording 10 s more");
	expect_words(text, "; it goes into the incident that is being recorded");
	const char *wrote = strstr(text, ": wrote ");

	ck_assert_msg(wrote && !strstr(wrote + 1, ": wrote "), "%s", text);
}
END_TEST

START_TEST(many_descriptors_are_caught)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct program program = program_start(TRAP(NO_STACKS, "--fds", "6", "-t", "20", "--after", "0s", "-o",
						    incidents, "--", "sh", "-c",
						    "exec 3</dev/null 4</dev/null 5</dev/null 6</dev/null 7</dev/null "
						    "8</dev/null 9</dev/null; sleep 3"),
					       directory, -1, 0);

	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, " open descriptors; recording");
	ck_assert_int_eq(count_incidents(incidents), 1);
}
END_TEST

START_TEST(a_signal_requests_an_incident)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");
	struct program program = program_start(TRAP(NO_STACKS, "--cpu", "100000%", "-t", "20", "--after", "0s", "-o",
						    incidents, "-p", pid_text(&actor)),
					       directory, -1, 0);

	wait_for_words(&program, "waiting for");
	ck_assert_int_eq(kill(program.pid, SIGUSR1), 0);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "asked for an incident by SIGUSR1; recording");
	ck_assert_int_eq(count_incidents(incidents), 1);
	AUTO_FREE char *json = read_incident();
	expect_words(json, "\"kind\": \"manual\"");
	actor_end(&actor);
}
END_TEST

START_TEST(a_core_dump_is_written_at_the_catch)
{
	char pattern[256], path[300];
	struct stat st;
	glob_t found;

	if (!built)
		SKIP_TEST("the programs were not built");
	if (access("/usr/bin/gcore", X_OK) < 0)
		SKIP_TEST("gcore is not installed");

	struct actor actor = actor_start("scene-trap");

	snprintf(path, sizeof(path), "%luB", resident(actor.pid) + (16u << 20));
	struct program program = program_start(TRAP(NO_STACKS, "--memory", path, "--core", "-t", "20", "--after", "0s",
						    "-o", incidents, "-p", pid_text(&actor)),
					       directory, -1, 0);

	wait_for_words(&program, "waiting for");
	actor_do(&actor, 'm', "");
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "/core.2");
	snprintf(pattern, sizeof(pattern), "%s/core.*.%d", incidents, actor.pid);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_int_eq(stat(found.gl_pathv[0], &st), 0);
	ck_assert_int_gt(st.st_size, 16 << 20);
	ck_assert_uint_eq(st.st_mode & 077, 0);
	unlink(found.gl_pathv[0]);
	globfree(&found);
	actor_end(&actor);
}
END_TEST

START_TEST(without_gcore_no_core_dump_is_promised)
{
	const char *const arguments[] = { "/usr/bin/env", "PATH=/nowhere", spikewatch, "trap",
					  "--core",       "--comm",        "a",        NULL };

	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(program_run(arguments, directory), 2);
	program_said(directory, "gcore is not installed");
}
END_TEST

START_TEST(a_catch_that_cannot_be_written_is_said_and_the_code_of_the_command_kept)
{
	char command[600];
	struct stat st;

	if (!built)
		SKIP_TEST("the programs were not built");

	/*
	 * What the command removes while it is watched cannot be written to. It fires by memory, which it
	 * takes after that only: CPU time it may have used enough of before on a busy machine. It is not
	 * removed while something is made in it; and no ":" with a redirection that fails, which ends dash.
	 */
	snprintf(command, sizeof(command),
		 "until rm -rf %s && printf '' >%s; do sleep 0.01; done; taken=$(head -c 60000000 /dev/zero | tr '\\0' "
		 "x); "
		 "until grep -q caught %s/stderr; do sleep 0.05; done; exit 9",
		 incidents, incidents, directory);
	struct program program = program_start(
		TRAP(NO_STACKS, "--memory", "40M", "--after", "0s", "-o", incidents, "--", "sh", "-c", command),
		directory, -1, 0);

	ck_assert_int_eq(program_wait(&program), 9);
	program_said(directory, "1 of 1 that were caught could not be written");
	ck_assert_int_eq(stat(incidents, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
}
END_TEST

START_TEST(a_process_that_does_not_exist_yet_is_waited_for)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct program program = program_start(TRAP(NO_STACKS, SOON, "--comm", scene_own("later@")), directory, -1, 0);

	wait_for_words(&program, "no process is called later");
	struct actor actor = actor_start("later@");

	actor_do(&actor, 'b', "hot");
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "caught later");
	ck_assert_int_eq(count_incidents(incidents), 1);
	actor_end(&actor);
}
END_TEST

START_TEST(what_comes_when_there_are_enough_is_left_alone)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actors[2] = { actor_start("two@"), actor_start("two@") };
	struct program program = program_start(TRAP(NO_STACKS, "--cpu", "2%", "--for", "100ms", "--after", "2s", "-o",
						    incidents, "--comm", scene_own("two@")),
					       directory, -1, 0);

	wait_for_words(&program, "waiting for");
	actor_do(&actors[0], 'b', "hot");
	wait_for_words(&program, "caught");
	actor_do(&actors[1], 'b', "hot");
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(count_incidents(incidents), 1);
	AUTO_FREE char *incident = read_incident();
	const char *got_to = strstr(incident, "\"got_to_ns\": ");

	/*
	 * It was waited for to be complete: two seconds, if the sampler was not kept from its work for
	 * most of them.
	 */
	ck_assert_msg(got_to && strtoll(got_to + strlen("\"got_to_ns\": "), NULL, 10) > 300000000, "%s", incident);
	actor_end(&actors[0]);
	actor_end(&actors[1]);
}
END_TEST

START_TEST(a_command_is_watched_and_its_exit_code_is_ours)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	char end[128];

	snprintf(end, sizeof(end), "%s/end", directory);

	struct program program = program_start(
		TRAP(SOON, "--", "/bin/sh", "-c", "while ! [ -e \"$0\" ]; do :; done; exit 7", end), directory, -1, 0);

	scene_wait_for(scene_says(program.err, "the command still runs"));
	scene_write(end, "%s", "");
	ck_assert_int_eq(program_wait(&program), 7);
	program_said(directory, "waiting for sh-");
	AUTO_FREE char *incident = read_incident();

	expect_words(incident, "\"comm\": \"sh\"");
	expect_words(incident, "\"cmdline\": \"/bin/sh -c while ! [ -e "); /* and not ours, as before it began */
	ck_assert_int_eq(count_incidents(incidents), 1);

	/* Too short for anything. */
	ck_assert_int_eq(program_run(TRAP("-o", incidents, "/bin/true"), directory), 0);
	program_said(directory, "nothing was caught");
	ck_assert_int_eq(program_run(TRAP("-o", incidents, "--", "/bin/sh", "-c", "kill -9 $$"), directory),
			 128 + SIGKILL);
	ck_assert_int_eq(program_run(TRAP("-o", incidents, "/nowhere/program"), directory), 127);
	program_said(directory, "/nowhere/program: No such file or directory");
	struct program failed = program_start(TRAP("-o", incidents, "/nowhere/program"), directory, -1, 0);

	ck_assert_int_eq(program_wait(&failed), 127);
	AUTO_FREE char *text = words_of(&failed);

	ck_assert_msg(!strstr(text, "nothing was caught"), "%s", text); /* nothing was there to be caught */
	ck_assert_int_eq(count_incidents(incidents), 1);
}
END_TEST

/*
 * The command itself only waits. What works is a child, or a grandchild that has left its session
 * and its parents.
 */
static const char *const workers[] = {
	"sh -c \"$0\" & wait",
	"(setsid sh -c \"$0\" &) ; while [ -e \"$1\" ]; do sleep 0.05; done",
};

START_TEST(what_a_command_starts_is_watched_with_it)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	char going[128], work[200];

	/* They work while there is this file, so not longer than its directory. */
	snprintf(going, sizeof(going), "%s/going", directory);
	scene_write(going, "%s", "");
	snprintf(work, sizeof(work), "while [ -e %s ]; do :; done", going);

	struct program program =
		program_start(TRAP(NO_STACKS, SOON, "--", "/bin/sh", "-c", workers[_i], work, going), directory, -1, 0);

	scene_wait_for(scene_says(program.err, "the command still runs"));
	ck_assert_int_eq(unlink(going), 0);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, " and all that it starts: more than 2% of a core for 100 ms");
	AUTO_FREE char *incident = read_incident();

	expect_words(incident, "\"kind\": \"group\"");
	expect_words(incident, "\"comm\": \"sh\"");
	ck_assert_int_eq(count_incidents(incidents), 1);
}
END_TEST

START_TEST(a_tree_of_a_process_that_runs_is_watched_until_the_last_has_ended)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	char end[128], child_end[160], work[400];
	int status;

	/* A child goes on when its parent has ended. */
	snprintf(end, sizeof(end), "%s/end", directory);
	snprintf(work, sizeof(work),
		 "sh -c 'while ! [ -e %s.child ]; do sleep 0.02; done' & while ! [ -e %s ]; do sleep 0.02; done", end,
		 end);

	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", work, (char *)NULL);
		_exit(1);
	}

	char text[16];

	snprintf(text, sizeof(text), "%d", pid);

	struct program program = program_start(
		TRAP(NO_STACKS, "--cpu", "100000%", "--tree", "-o", incidents, "-p", text), directory, -1, 0);

	wait_for_words(&program, " and all that it starts: ");
	scene_write(end, "%s", "");
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 20; i++)
		scene_nap();
	ck_assert_msg(!scene_says(program.err, "nothing was caught"), "it has ended with the parent");
	snprintf(child_end, sizeof(child_end), "%s.child", end);
	scene_write(child_end, "%s", "");
	ck_assert_int_eq(program_wait(&program), 1);
	program_said(directory, "nothing was caught");
}
END_TEST

START_TEST(what_a_command_leaves_behind_is_counted)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	char going[128];

	/* It goes on while there is this file, so not longer than its directory. */
	snprintf(going, sizeof(going), "%s/going", directory);
	scene_write(going, "%s", "");
	ck_assert_int_eq(
		program_run(TRAP(NO_STACKS, "--cpu", "100000%", "-o", incidents, "--", "/bin/sh", "-c",
				 "(setsid sh -c 'while [ -e $0 ]; do sleep 0.05; done' $0 &) ; sleep 0.5", going),
			    directory),
		0);
	program_said(directory, "the command has ended; ");
	program_said(directory, "it has started still run");
	ck_assert_int_eq(unlink(going), 0);
}
END_TEST

START_TEST(what_is_open_when_the_command_ends_is_written)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(program_run(TRAP(NO_STACKS, "--cpu", "2%", "--for", "100ms", "--after", "1h", "-o", incidents,
					  "--", "/bin/sh", "-c", BURN(0)),
				     directory),
			 0);
	program_said(directory, "recording 1 h more");
	program_said(directory, "wrote 20");
	ck_assert_int_eq(count_incidents(incidents), 1);
}
END_TEST

START_TEST(nothing_caught_is_exit_code_one)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");
	struct program program = program_start(
		TRAP(NO_STACKS, "--cpu", "100000%", "-o", incidents, "-p", pid_text(&actor)), directory, -1, 0);

	wait_for_words(&program, "waiting for");
	actor_end(&actor);
	ck_assert_int_eq(program_wait(&program), 1);
	program_said(directory, "nothing was caught");

	actor = actor_start("scene-trap");
	ck_assert_int_eq(
		program_run(TRAP(NO_STACKS, "--cpu", "100000%", "-t", "100ms", "-o", incidents, "-p", pid_text(&actor)),
			    directory),
		1);
	ck_assert_int_eq(
		program_run(TRAP(NO_STACKS, "-t", "100ms", "-o", incidents, "--comm", "scene-never"), directory), 1);
	ck_assert_int_eq(count_incidents(incidents), 0);
	actor_end(&actor);
}
END_TEST

START_TEST(ctrl_c_writes_what_is_open)
{
	char limit[32];

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");

	snprintf(limit, sizeof(limit), "%luB", resident(actor.pid) + (16u << 20));
	struct program program = program_start(
		TRAP(NO_STACKS, "--memory", limit, "--after", "1h", "-o", incidents, "-p", pid_text(&actor)), directory,
		-1, 0);

	wait_for_words(&program, "waiting for");
	actor_do(&actor, 'm', "");
	wait_for_words(&program, "caught");
	kill(program.pid, SIGINT);
	ck_assert_int_eq(program_wait(&program), 0);
	program_said(directory, "wrote 20");
	ck_assert_int_eq(count_incidents(incidents), 1);

	program = program_start(TRAP(NO_STACKS, "--cpu", "100000%", "-o", incidents, "-p", pid_text(&actor)), directory,
				-1, 0);
	wait_for_words(&program, "waiting for");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 1);
	actor_end(&actor);
}
END_TEST

START_TEST(a_signal_is_passed_on_to_the_command)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct program program = program_start(TRAP(NO_STACKS, "--cpu", "100000%", "-o", incidents, "--", "/bin/sh",
						    "-c", "echo ready >&2; exec sleep 60"),
					       directory, -1, 0);

	wait_for_words(&program, "ready");
	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 128 + SIGTERM);
}
END_TEST

START_TEST(a_second_ctrl_c_ends_it_at_once)
{
	int child = 0;

	if (!built)
		SKIP_TEST("the programs were not built");

	struct program program = program_start(TRAP("--cpu", "100000%", "-o", incidents, "--", "/bin/sh", "-c",
						    "trap '' INT; echo ready >&2; exec sleep 60"),
					       directory, -1, 0);

	wait_for_words(&program, "ready");
	kill(program.pid, SIGINT);
	wait_for_words(&program, "nothing was caught");
	ck_assert_int_eq(waitpid(program.pid, NULL, WNOHANG), 0);
	kill(program.pid, SIGINT);
	ck_assert_int_eq(program_wait(&program), 128 + SIGINT);

	AUTO_FREE char *text = words_of(&program);
	const char *name = strstr(text, "waiting for sh-");

	ck_assert(name && sscanf(name, "waiting for sh-%d", &child) == 1);
	kill(child, SIGKILL);
}
END_TEST

/* -1: not known. */
static int perf_event_paranoid(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
	int value = -1;

	if (file && fscanf(file, "%d", &value) != 1)
		value = -1;
	if (file)
		fclose(file);
	return value;
}

START_TEST(an_ordinary_user_needs_no_rights)
{
	if (!built || geteuid() != 0)
		SKIP_TEST("needs the programs, and root");

	struct program program = program_start(TRAP(SOON, "--", "/bin/sh", "-c", BURN(0)), directory, -1, 65534);
	int code = program_wait(&program);

	if (code == 126)
		SKIP_TEST("another user cannot read the build directory");
	ck_assert_int_eq(code, 0);
	program_said(directory, "wrote 20");
	if (perf_event_paranoid() == 2)
		program_said(directory, ": only user-space stacks: ");
	ck_assert_int_eq(count_incidents(incidents), 1);

	/* Of another user's process there are numbers. */
	struct actor actor = actor_start("scene-trap");

	program = program_start(TRAP(SOON, "-p", pid_text(&actor)), directory, -1, 65534);
	wait_for_words(&program, "is not yours");
	actor_do(&actor, 'b', "hot");
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_int_eq(count_incidents(incidents), 2);
	actor_end(&actor);
}
END_TEST

/* Names in a directory, but for dots. */
static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));)
		count += item->d_name[0] != '.';
	if (dir)
		closedir(dir);

	return count;
}

START_TEST(show_finds_it_at_once_and_nothing_else_is_left)
{
	static const char *const names[] = { "TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME" };
	char paths[ARRAY_LEN(names)][128], spool[160];

	if (!built || access("/var/lib/spikewatch/incidents", F_OK) == 0)
		SKIP_TEST("needs the programs, and no /var/lib/spikewatch/incidents");
	unsetenv("SPIKEWATCH_DIR");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", directory, names[i]);
		ck_assert_int_eq(mkdir(paths[i], 0700), 0);
		setenv(names[i], paths[i], 1);
	}
	ck_assert_int_eq(
		program_run(TRAP("--cpu", "2%", "--for", "100ms", "--after", "0s", "--", "/bin/sh", "-c", BURN(0)),
			    directory),
		0);
	program_said(directory, "to see it: spikewatch show last\n");
	ck_assert_int_eq(program_run((const char *const[]){ spikewatch, "show", "--full", "last", NULL }, directory),
			 0);
	snprintf(spool, sizeof(spool), "%s/spikewatch/incidents", paths[3]);
	ck_assert_int_eq(count_incidents(spool), 1);
	for (size_t i = 0; i + 1 < ARRAY_LEN(names); i++)
		ck_assert_msg(entries(paths[i]) == 0, "something is left in %s", names[i]);
	ck_assert_int_eq(entries(paths[3]), 1);
	snprintf(spool, sizeof(spool), "%s/spikewatch", paths[3]);
	ck_assert_int_eq(entries(spool), 1);
}
END_TEST

START_TEST(a_directory_that_cannot_be_used_is_said)
{
	char file[128];

	if (!built)
		SKIP_TEST("the programs were not built");

	snprintf(file, sizeof(file), "%s/file", directory);
	scene_write(file, "x");
	ck_assert_int_eq(program_run(TRAP("-o", file, "--comm", "a"), directory), 1);
	program_said(directory, "/file: Not a directory; give another one with -o DIR");
}
END_TEST

static const struct {
	const char *arguments[6], *says;
} mistakes[] = {
	{ { NULL }, "nothing to wait for: expected --pid PID, --pgid GROUP, --comm NAME or -- COMMAND" },
	{ { "--pgid", "x" }, "--pgid x: expected one process group" },
	{ { "--pgid", "2147483646" }, "--pgid 2147483646: there is no such process group" },
	{ { "--pgid", "1", "--tree" }, "--pgid: its processes are watched one by one: expected no --tree" },
	{ { "-p", "1", "--pgid", "1" }, "only one of these can be watched" },
	{ { "-p", "1", "--cpu-below", "x" }, "--cpu-below x: expected a percentage of one core" },
	{ { "-p", "1", "--cpu", "10%", "--cpu-below", "20%" }, "--cpu-below 20%: expected less than --cpu 10%" },
	{ { "-p", "1", "--comm", "a" }, "only one of these can be watched" },
	{ { "-p", "1", "--", "true" }, "only one of these can be watched" },
	{ { "-p", "1,2" }, "expected one process id" },
	{ { "-p", "0" }, "expected one process id" },
	{ { "-p", "4194304" }, "there is no such process" },
	{ { "812" }, "did you mean -p 812?" },
	{ { "--comm", "a", "--count", "0" }, "expected at least 1" },
	{ { "--comm", "a", "--memory", "0" }, "--memory: \"0\" is not a size" },
	{ { "--comm", "a", "--memory", "2G,1G" }, "expected sizes that rise" },
	{ { "--comm", "a", "--threads", "0" }, "--threads 0: expected at least 1" },
	{ { "--comm", "a", "--fds", "0" }, "--fds 0: expected at least 1" },
	{ { "--comm", "a", "--timeout", "0.5" }, "is not a time such as" },
	{ { "--comm", "a", "--for", "0s" }, "--for 0s: out of range" },
	{ { "--comm", "a", "--cpu", "fast" }, "--cpu fast: expected a percentage" },
	{ { "--comm", "a-name-of-sixteen" }, "the kernel cuts names to 15 bytes" },
	{ { "--comm", "a", "--stacks", "on" }, "--stacks: " },
	{ { "--comm", "a", "--treshold", "2" }, "there is no option --treshold" },
	{ { "--com", "a", "--memry", "2" }, "did you mean --memory?" },
};

START_TEST(wrong_usage_is_explained)
{
	const char *arguments[10] = { spikewatch, "trap" };

	if (!built)
		SKIP_TEST("the programs were not built");

	for (size_t i = 0; i < ARRAY_LEN(mistakes[_i].arguments); i++)
		arguments[2 + i] = mistakes[_i].arguments[i];
	ck_assert_int_eq(program_run(arguments, directory), 2);
	program_said(directory, mistakes[_i].says);
}
END_TEST

/* ---- on a terminal ---- */

static pid_t start_on_terminal(const char *const *arguments, int *ret_master)
{
	struct winsize size = { .ws_row = 24, .ws_col = 40 };
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	ck_assert_int_ge(master, 0);
	ck_assert_int_eq(grantpt(master), 0);
	ck_assert_int_eq(unlockpt(master), 0);
	ck_assert_int_eq(ioctl(master, TIOCSWINSZ, &size), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		dup2(open(ptsname(master), O_RDWR), STDERR_FILENO); /* becomes the terminal that Ctrl-C comes from */
		setenv("TERM", "xterm", 1);
		execv(arguments[0], (char *const *)(uintptr_t)arguments);
		_exit(126);
	}
	*ret_master = master;

	return pid;
}

/* Reads until part has come, or the end. */
static size_t read_until(int master, const char *part, char *buf, size_t len, size_t cap)
{
	ssize_t got;

	while ((!part || !strstr(buf, part)) && len + 1 < cap && (got = read(master, buf + len, cap - len - 1)) > 0) {
		len += (size_t)got;
		buf[len] = '\0';
	}

	return len;
}

/* Bursts that are too short for the rule are not the most that it saw: that is what it would have caught. */
START_TEST(the_most_that_was_seen_is_less_than_what_would_have_been_caught)
{
	/* Between two of them more time passes than a window has. */
	static const char bursts[] =
		"for n in 1 2 3; do i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 1.5; done";
	double most = 0;
	char said[160];

	if (!built)
		SKIP_TEST("the programs were not built");

	snprintf(said, sizeof(said), "%s/stderr", directory);
	program_run(TRAP(NO_STACKS, "--cpu", "20%", "--for", "3s", "-o", incidents, "--", "/bin/sh", "-c", bursts),
		    directory);
	ck_assert_int_eq(count_incidents(incidents), 0);
	AUTO_FREE char *text = scene_read(said);
	const char *at = strstr(text, "nothing was caught");

	ck_assert_ptr_nonnull(at);
	if (sscanf(at, "nothing was caught; the most was CPU %lf", &most) == 1)
		ck_assert_double_lt(most, 20);
}
END_TEST

START_TEST(on_a_terminal_a_line_is_kept_up_to_date)
{
	static const char back[] = "\r\033[J";
	char buf[1 << 14] = "";
	int master, status, lines = 0;

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-trap");
	pid_t pid = start_on_terminal(TRAP("--cpu", "100000%", "-o", incidents, "-p", pid_text(&actor)), &master);
	size_t len = read_until(master, "memory", buf, 0, sizeof(buf));

	ck_assert_int_eq(write(master, "\003", 1), 1);
	read_until(master, NULL, buf, len, sizeof(buf));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	expect_words(buf, "nothing was caught");
	for (const char *at = buf; (at = strstr(at, back)); lines++) {
		at += strlen(back);
		if (strncmp(at, "spikewatch trap: ", 17) != 0 && !strstr(at, "^C"))
			ck_assert_msg(strcspn(at, "\r\n") < 40, "too wide: %s", at);
	}
	ck_assert_int_ge(lines, 2);
	ck_assert_str_eq(buf + strlen(buf) - 2, "\r\n");
	close(master);
	actor_end(&actor);
}
END_TEST

Suite *trap_suite(void)
{
	Suite *suite = suite_create("trap");
	TCase *tcase = tcase_create("program");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_process_that_burns_is_caught);
	tcase_add_test(tcase, a_process_that_stands_still_is_caught);
	tcase_add_test(tcase, each_of_a_process_group_is_watched);
	tcase_add_test(tcase, each_spike_is_an_incident_until_there_are_enough);
	tcase_add_test(tcase, memory_that_stays_is_one_spike);
	tcase_add_test(tcase, each_of_several_sizes_is_caught_once);
	tcase_add_test(tcase, a_size_that_joins_the_incident_of_the_one_before_says_so);
	tcase_add_test(tcase, many_descriptors_are_caught);
	tcase_add_test(tcase, a_signal_requests_an_incident);
	tcase_add_test(tcase, a_core_dump_is_written_at_the_catch);
	tcase_add_test(tcase, without_gcore_no_core_dump_is_promised);
	tcase_add_test(tcase, a_catch_that_cannot_be_written_is_said_and_the_code_of_the_command_kept);
	tcase_add_test(tcase, a_process_that_does_not_exist_yet_is_waited_for);
	tcase_add_test(tcase, what_comes_when_there_are_enough_is_left_alone);
	tcase_add_test(tcase, a_command_is_watched_and_its_exit_code_is_ours);
	tcase_add_loop_test(tcase, what_a_command_starts_is_watched_with_it, 0, ARRAY_LEN(workers));
	tcase_add_test(tcase, a_tree_of_a_process_that_runs_is_watched_until_the_last_has_ended);
	tcase_add_test(tcase, what_a_command_leaves_behind_is_counted);
	tcase_add_test(tcase, what_is_open_when_the_command_ends_is_written);
	tcase_add_test(tcase, nothing_caught_is_exit_code_one);
	tcase_add_test(tcase, the_most_that_was_seen_is_less_than_what_would_have_been_caught);
	tcase_add_test(tcase, ctrl_c_writes_what_is_open);
	tcase_add_test(tcase, a_signal_is_passed_on_to_the_command);
	tcase_add_test(tcase, a_second_ctrl_c_ends_it_at_once);
	tcase_add_test(tcase, an_ordinary_user_needs_no_rights);
	tcase_add_test(tcase, show_finds_it_at_once_and_nothing_else_is_left);
	tcase_add_test(tcase, a_directory_that_cannot_be_used_is_said);
	tcase_add_loop_test(tcase, wrong_usage_is_explained, 0, (int)ARRAY_LEN(mistakes));
	tcase_add_test(tcase, on_a_terminal_a_line_is_kept_up_to_date);
	suite_add_tcase(suite, tcase);

	return suite;
}
