/*
 * check_paths.c: the daemon's files for root, under systemd and for other users; what the
 * configuration says is never overruled. The lock of the ring's writer.
 */
#include "daemon/engine/base/paths.h"
#include "scene.h"
#include "skip.h"
#include "lib/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

Suite *paths_suite(void);

static struct config config;
static struct paths paths;

static void setup(void)
{
	config = (struct config){ .state_file = "", .history.directory = "" };
	config.ring.path = config.incidents.directory = "";
	unsetenv("RUNTIME_DIRECTORY");
	unsetenv("STATE_DIRECTORY");
	unsetenv("XDG_RUNTIME_DIR");
	unsetenv("XDG_STATE_HOME");
	setenv("HOME", "/home/me", 1);
}

static void teardown(void)
{
	ck_assert_int_eq(seteuid(getuid()), 0);
	prctl(PR_SET_DUMPABLE, 1); /* changing the user forbids what the leak checker does */
}

/* As an ordinary user from here on. False: that is not possible here. */
static bool become_ordinary(void)
{
	if (geteuid() != 0)
		return true;

	return seteuid(65534) == 0;
}

static void choose(const char *ring, const char *incidents, const char *state, const char *state_name)
{
	ck_assert_int_eq(paths_choose(&config, &paths), 0);
	ck_assert_str_eq(paths.ring, ring);
	ck_assert_str_eq(paths.incidents, incidents);
	ck_assert_str_eq(paths.state, state);
	ck_assert_str_eq(paths.state_name, state_name);
}

START_TEST(the_configuration_has_the_first_word)
{
	config.ring.path = "/a/ring";
	config.incidents.directory = "/b/incidents";
	config.state_file = "/c/state.json";
	setenv("RUNTIME_DIRECTORY", "/run/x", 1);
	setenv("STATE_DIRECTORY", "/var/lib/x", 1);
	choose("/a/ring", "/b/incidents", "/c", "state.json");
	ck_assert_str_eq(paths.control, "/a/control");
	config.state_file = "state.json";
	choose("/a/ring", "/b/incidents", ".", "state.json");
	config.state_file = "/state.json";
	choose("/a/ring", "/b/incidents", "/", "state.json");
	config.state_file = "";
	choose("/a/ring", "/b/incidents", "/b/incidents/..", "state.json");
}
END_TEST

START_TEST(then_systemd)
{
	setenv("RUNTIME_DIRECTORY", "/run/x", 1);
	setenv("STATE_DIRECTORY", "/var/lib/x", 1);
	setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
	choose("/run/x/ring", "/var/lib/x/incidents", "/var/lib/x/incidents/..", "state.json");
}
END_TEST

START_TEST(then_roots_own_places)
{
	if (geteuid() != 0)
		SKIP_TEST("needs root");
	setenv("XDG_RUNTIME_DIR", "/run/user/0", 1);
	choose("/run/spikewatch/ring", "/var/lib/spikewatch/incidents", "/var/lib/spikewatch/incidents/..",
	       "state.json");
}
END_TEST

START_TEST(an_ordinary_users_are_below_the_xdg_directories_or_the_home)
{
	ck_assert(become_ordinary());
	setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
	setenv("XDG_STATE_HOME", "/data/state", 1);
	choose("/run/user/1/spikewatch/ring", "/data/state/spikewatch/incidents", "/data/state/spikewatch/incidents/..",
	       "state.json");
	setenv("XDG_RUNTIME_DIR", "", 1);
	unsetenv("XDG_STATE_HOME");
	choose("/home/me/.cache/spikewatch/ring", "/home/me/.local/state/spikewatch/incidents",
	       "/home/me/.local/state/spikewatch/incidents/..", "state.json");
}
END_TEST

START_TEST(without_any_of_them_nothing_is_guessed)
{
	ck_assert(become_ordinary());
	unsetenv("HOME");
	ck_assert_int_eq(paths_choose(&config, &paths), -ENOENT);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_refused_not_cut)
{
	static char name[2 * PATHS_MAX];
	int fd;

	memset(name, 'x', sizeof(name) - 1);
	config.ring.path = name;
	ck_assert_int_eq(paths_choose(&config, &paths), -ENAMETOOLONG);
	config.ring.path = "/ring";
	config.incidents.directory = name;
	ck_assert_int_eq(paths_choose(&config, &paths), -ENAMETOOLONG);
	config.incidents.directory = "/incidents";
	config.state_file = name;
	ck_assert_int_eq(paths_choose(&config, &paths), -ENAMETOOLONG);
	ck_assert_int_eq(lock_file_take(AT_FDCWD, name, &fd), -ENAMETOOLONG);
}
END_TEST

START_TEST(missing_directories_are_made_and_closed_to_others)
{
	char root[64], path[128];
	struct stat st;
	int fd;

	scene_directory(root);
	snprintf(path, sizeof(path), "%s/a/b/lock", root);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(lock_file_take(AT_FDCWD, path, &fd), 0);
		close(fd);
	}
	snprintf(path, sizeof(path), "%s/a/b", root);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07027, 0);
	ck_assert_int_eq(chdir(path), 0);
	ck_assert_int_eq(lock_file_take(AT_FDCWD, "lock", &fd), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/file", root);
	scene_write(path, "in the way");
	snprintf(path, sizeof(path), "%s/file/x/lock", root);
	ck_assert_int_eq(lock_file_take(AT_FDCWD, path, &fd), -ENOTDIR);
	scene_remove(root);
}
END_TEST

START_TEST(a_lock_file_is_its_users_alone_also_one_that_was_not)
{
	char root[64], path[128];
	struct stat st;
	int fd, other;

	scene_directory(root);
	umask(0);
	for (int before = 0; before < 2; before++) {
		snprintf(path, sizeof(path), "%s/lock%d", root, before);
		if (before)
			close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640));
		ck_assert_int_eq(lock_file_take(AT_FDCWD, path, &fd), 0);
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0600);
		ck_assert_int_eq(lock_file_take(AT_FDCWD, path, &other), -EBUSY);
		close(fd);
		ck_assert_int_eq(lock_file_take(AT_FDCWD, path, &other), 0);
		close(other);
	}
	scene_remove(root);
}
END_TEST

Suite *paths_suite(void)
{
	Suite *suite = suite_create("paths");
	TCase *tcase = tcase_create("choice");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_configuration_has_the_first_word);
	tcase_add_test(tcase, then_systemd);
	tcase_add_test(tcase, then_roots_own_places);
	tcase_add_test(tcase, an_ordinary_users_are_below_the_xdg_directories_or_the_home);
	tcase_add_test(tcase, without_any_of_them_nothing_is_guessed);
	tcase_add_test(tcase, a_path_that_is_too_long_is_refused_not_cut);
	tcase_add_test(tcase, missing_directories_are_made_and_closed_to_others);
	tcase_add_test(tcase, a_lock_file_is_its_users_alone_also_one_that_was_not);
	suite_add_tcase(suite, tcase);

	return suite;
}
