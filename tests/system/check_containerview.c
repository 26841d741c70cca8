/*
 * check_containerview.c: a daemon in a container that watches its host: with namespaces of its own
 * for processes, mounts and cgroups, and the host's /proc, cgroups and files mounted elsewhere.
 * What it sees is compared with what is seen from outside. Needs root.
 */
#include "skip.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "limits_of.h"
#include "scene.h"
#include "lib/base/base.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/cgroup/cgroup.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "ring_targets.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

Suite *containerview_suite(void);

/* What is seen from inside. */
struct view {
	int32_t reader, pid;
	bool own_start;
	uint64_t cpu_ns;
	char cgroup[512];
	struct cgroup_limits limits;
};

static char directory[64];
static struct actor actor;
static char tops[2][256]; /* cgroups of our own, one per hierarchy; "" where there are none */

/*
 * ---- cgroups of our own: the actor is in one, below another that has a limit; the daemon in a
 * third ----
 */

static void write_to(const char *directory_, const char *file, const char *text)
{
	char path[640];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory_, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}

static void join(const char *below, pid_t pid)
{
	char path[600], number[16];

	snprintf(number, sizeof(number), "%d", pid);
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		if (tops[i][0] == '\0')
			continue;
		snprintf(path, sizeof(path), "%s%s", tops[i], below);
		write_to(path, "cgroup.procs", number);
	}
}

static bool make_cgroup(const char *top, const char *below)
{
	char path[600];

	snprintf(path, sizeof(path), "%s%s", top, below);

	return mkdir(path, 0755) == 0 || errno == EEXIST;
}

static void make_cgroups(const struct cgroup_mounts *mounts)
{
	static const enum cgroup_resource controllers[] = { CGROUP_CPU, CGROUP_MEMORY };

	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		bool v2;
		const char *hierarchy = cgroup_mounts_controller(mounts, controllers[i], &v2);

		tops[i][0] = '\0';
		if (!hierarchy)
			continue;
		snprintf(tops[i], sizeof(tops[i]), "%s/check-view-%d", hierarchy, getpid());
		if (!make_cgroup(tops[i], "") || !make_cgroup(tops[i], "/target") || !make_cgroup(tops[i], "/reader")) {
			tops[i][0] = '\0';
			continue;
		}
		write_to(tops[i], "cpu.cfs_quota_us", "50000");
		write_to(tops[i], "cpu.max", "50000 100000");
	}
}

static void remove_cgroups(void)
{
	static const char *const belows[] = { "/reader", "/target", "" };
	char path[600];

	for (size_t i = 0; i < ARRAY_LEN(tops); i++)
		for (size_t k = 0; tops[i][0] != '\0' && k < ARRAY_LEN(belows); k++) {
			snprintf(path, sizeof(path), "%s%s", tops[i], belows[k]);
			scene_wait_for(rmdir(path) == 0 || errno == ENOENT);
		}
}

/* ---- inside ---- */

static struct config *configure(void)
{
	return scene_config(
		"{\"sampling\": {\"interval\": \"1ms\"}, \"ring\": {\"size\": \"256KiB\", \"page_size\": \"16KiB\", "
		"\"lock\": false}, \"stacks\": {\"mode\": \"off\"}, \"proc_root\": \"%s/proc\", \"cgroup_root\": "
		"\"%s/sys/fs/cgroup\", \"runtime_root\": \"%s\", \"targets\": [{\"name\": \"a\", \"comm\": "
		"\"view@\"}]}",
		directory, directory, directory);
}

/* Whether the ring has a sample of it with CPU time. */
static bool look(const struct ring *ring, struct view *view)
{
	static struct ring_targets targets;
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct target target;

	ring_targets_read(ring, &targets);
	if (ring_cursor_new(ring, RING_OLDEST, &cursor) < 0)
		return false;
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type != RING_EVENT_SAMPLE || !sample_has(event.sample, SAMPLE_CPU) ||
		    !ring_targets_find(&targets, event.id, &target))
			continue;
		view->pid = target.pid;
		view->cpu_ns = event.sample->value[SAMPLE_CPU];
		snprintf(view->cgroup, sizeof(view->cgroup), "%s", target.cgroup);
	}
	ring_cursor_free(cursor);

	return view->cpu_ns > 0;
}

static void watch_from_inside(struct view *view)
{
	struct config *config = configure();
	struct session *session = NULL;
	struct ring_info info;

	if (session_new(config, NULL, &session) < 0 || session_start(session) < 0)
		_exit(2);
	view->reader = getpid();
	ring_info(session_parts(session).ring, &info);
	view->own_start = info.pid == getpid() && info.start_ticks == scene_start_ticks(getpid());
	for (int naps = 0; naps < SCENE_NAPS && !look(session_parts(session).ring, view); naps++)
		scene_nap();
	discovery_limits(session_parts(session).discovery, 1, &view->limits);
	session_free(session);
	config_free(config);
}

/*
 * The host's root at the test's directory, with all that is mounted below; a /proc of our own in
 * its usual place.
 */
static bool enter(void)
{
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("/", directory, NULL, MS_BIND | MS_REC, NULL) == 0 && mount("proc", "/proc", "proc", 0, NULL) == 0;
}

/* The first process of its own namespace. False: that is not possible here. */
static bool see_from_inside(struct view *ret)
{
	int pipes[2], status = 0;
	pid_t outer;

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	outer = fork();
	if (outer == 0) {
		join("/reader", getpid());
		if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWCGROUP) < 0)
			_exit(3);

		pid_t inner = fork();

		if (inner == 0) {
			struct view view = { 0 };

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!enter())
				_exit(3);
			watch_from_inside(&view);
			_exit(write(pipes[1], &view, sizeof(view)) == sizeof(view) ? 0 : 4);
		}
		if (inner < 0 || waitpid(inner, &status, 0) != inner)
			_exit(5);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 6);
	}
	close(pipes[1]);
	ck_assert_int_eq(waitpid(outer, &status, 0), outer);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) != 3) {
		ck_assert_int_eq(WEXITSTATUS(status), 0);
		ck_assert_int_eq(read(pipes[0], ret, sizeof(*ret)), sizeof(*ret));
	}
	close(pipes[0]);

	return WEXITSTATUS(status) == 0;
}

/* ---- outside ---- */

START_TEST(a_daemon_in_a_container_sees_its_host_as_the_host_does)
{
	struct scene_log log = scene_log_catch();
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cgroup_mounts *mounts = NULL;
	struct metric_machine machine;
	struct view view = { 0 };
	struct cgroup_limits limits;
	char path[512];

	scene_directory(directory);
	ck_assert_int_eq(cgroup_mounts_new("/proc", NULL, &mounts), 0);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "", NULL, &machine), 0);
	actor = actor_start("view@");
	actor_do(&actor, 'b', "burner");
	make_cgroups(mounts);
	join("/target", actor.pid);
	bool possible = see_from_inside(&view);
	bool same = possible && cgroup_path_of(mounts, procfd, actor.pid, path, sizeof(path)) == 0 &&
		    limits_of_process(mounts, &machine, procfd, actor.pid, &limits) == 0;
	actor_end(&actor);
	remove_cgroups();
	cgroup_mounts_free(mounts);
	scene_remove(directory);
	scene_log_release(&log);
	if (!possible)
		SKIP_TEST("needs root and namespaces");

	ck_assert(same);
	ck_assert_int_eq(view.reader, 1);
	ck_assert(view.own_start);
	ck_assert_int_eq(view.pid, actor.pid);
	ck_assert_uint_gt(view.cpu_ns, 0);
	ck_assert_str_eq(view.cgroup, path);
	ck_assert_uint_eq(view.limits.cpu, limits.cpu);
	ck_assert_uint_eq(view.limits.memory_bytes, limits.memory_bytes);
	ck_assert_str_eq(view.limits.cpu_from, limits.cpu_from);
}
END_TEST

Suite *containerview_suite(void)
{
	Suite *suite = suite_create("containerview");
	TCase *tcase = tcase_create("containerview");

	tcase_add_test(tcase, a_daemon_in_a_container_sees_its_host_as_the_host_does);
	suite_add_tcase(suite, tcase);

	return suite;
}
