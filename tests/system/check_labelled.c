/*
 * check_labelled.c: real processes in cgroups of their own, which are called as containers of
 * Docker are, with files as Docker writes them: spikewatchd watches one of them by its labels, and
 * says them in status, in metrics, and in the incident.
 */
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/incident/incident.h"
#include "program.h"
#include "lib/base/base.h"
#include "lib/model/target.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

Suite *labelled_suite(void);

#define WEB "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"
#define OTHER "bf3f9300cd34752cea9addfd89efda6c395817b01ae8bfe822ae55d8480ee87f"

static char directory[64], spikewatchd[512], spikewatch[512], config_path[128];
static char tops[2][256]; /* the test's cgroup in the hierarchies of two controllers; "": none */
static pid_t sleepers[2];
static bool built;

/* ---- cgroups ---- */

static bool make_cgroups(void)
{
	static const enum cgroup_resource controllers[] = { CGROUP_CPU, CGROUP_MEMORY };
	struct cgroup_mounts *mounts = NULL;
	char path[600];
	bool v2, any = false;

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		const char *hierarchy = cgroup_mounts_controller(mounts, controllers[i], &v2);

		tops[i][0] = '\0';
		if (!hierarchy)
			continue;
		snprintf(tops[i], sizeof(tops[i]), "%s/check-labelled-%d", hierarchy, getpid());
		any |= mkdir(tops[i], 0755) == 0;
		snprintf(path, sizeof(path), "%s/" WEB, tops[i]);
		any |= mkdir(path, 0755) == 0;
		snprintf(path, sizeof(path), "%s/" OTHER, tops[i]);
		any |= mkdir(path, 0755) == 0;
	}
	cgroup_mounts_free(mounts);

	return any;
}

static void remove_cgroups(void)
{
	static const char *const belows[] = { "/" WEB, "/" OTHER, "" };
	char path[600];

	for (size_t i = 0; i < ARRAY_LEN(tops); i++)
		for (size_t k = 0; tops[i][0] != '\0' && k < ARRAY_LEN(belows); k++) {
			snprintf(path, sizeof(path), "%s%s", tops[i], belows[k]);
			scene_wait_for(rmdir(path) == 0 || errno == ENOENT);
		}
}

/* A process that sleeps in that cgroup. */
static pid_t sleep_in(const char *id)
{
	pid_t pid = fork();
	char path[600];

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
		FILE *file;

		if (tops[i][0] == '\0')
			continue;
		snprintf(path, sizeof(path), "%s/%s/cgroup.procs", tops[i], id);
		file = fopen(path, "we");
		if (!file)
			continue;
		fprintf(file, "%d", pid);
		fclose(file);
	}

	return pid;
}

/* ---- files ---- */

static void make_directories(const char *path)
{
	char whole[512];

	snprintf(whole, sizeof(whole), "%s", path);
	for (char *at = whole + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		ck_assert(mkdir(whole, 0755) == 0 || errno == EEXIST);
		*at = '/';
	}
}

static void put_docker(const char *id, const char *name, const char *labels)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/host/var/lib/docker/containers/%s/config.v2.json", directory, id);
	make_directories(path);
	scene_write(path, "{\"ID\":\"%s\",\"Name\":\"/%s\",\"Config\":{\"Image\":\"nginx:1.27\",\"Labels\":%s}}", id,
		    name, labels);
}

static void configure(void)
{
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"10ms\", \"rescan_interval\": \"100ms\"},\n"
		"\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"off\",\n"
		"\"incidents\": {\"directory\": \"%s/incidents\", \"before\": \"200ms\", \"after\": \"200ms\", "
		"\"min_free\": \"0B\", \"captures\": [\"samples\"]},\n"
		"\"metrics\": {\"textfile\": \"%s/metrics.prom\", \"textfile_interval\": \"1s\", \"container_labels\": "
		"[\"team\", \"app.kubernetes.io/name\"]},\n"
		"\"state_file\": \"%s/state.json\", \"runtime_root\": \"%s/host\",\n"
		"\"targets\": [{\"name\": \"shop\", \"containers\": \"*\", \"per\": \"process\", \"labels\": "
		"{\"app.kubernetes.io/name\": \"shop-*\", \"team\": \"\"}}],\n"
		"\"rules\": [{\"name\": \"there\", \"metric\": \"memory_bytes\", \"window\": \"100ms\", \"above\": "
		"\"1KiB\","
		" \"warmup\": 1, \"cooldown\": \"1h\"}]}\n",
		directory, directory, directory, directory, directory);
}

static void setup(void)
{
	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	built = program_find("spikewatchd", spikewatchd) && program_find("spikewatch", spikewatch);
	built = built && make_cgroups();
	if (!built)
		return;
	put_docker(WEB, "web",
		   "{\"app.kubernetes.io/name\":\"shop-web\",\"team\":\"core\",\"note\":\"a\\u009b31mb\\\\\\\"\"}");
	put_docker(OTHER, "other", "{\"app.kubernetes.io/name\":\"blog\",\"team\":\"core\"}");
	sleepers[0] = sleep_in(WEB);
	sleepers[1] = sleep_in(OTHER);
	configure();
}

static void teardown(void)
{
	for (size_t i = 0; built && i < ARRAY_LEN(sleepers); i++) {
		kill(sleepers[i], SIGKILL);
		waitpid(sleepers[i], NULL, 0);
	}
	remove_cgroups();
	scene_remove(directory);
}

/* ---- what is said ---- */

/* The incident that is sealed. False: not yet. */
static bool find_incident(struct incident *ret)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/incidents", directory);

	DIR *dir = opendir(path);
	bool found = false;

	for (struct dirent *item; dir && !found && (item = readdir(dir));) {
		if (item->d_name[0] == '.' || strstr(item->d_name, ".tmp"))
			continue;

		AUTO_CLOSE int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		found = fd >= 0 && incident_json_read(fd, ret) == 0;
	}
	if (dir)
		closedir(dir);

	return found;
}

/* What a program printed, for free(3). */
static char *output_of(const char *const *arguments)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/output", directory);

	int out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct program program = program_start(arguments, directory, out, 0);

	ck_assert_int_eq(program_wait(&program), 0);
	close(out);

	return scene_read(path);
}

static void expect_output(const char *const *arguments, const char *part)
{
	AUTO_FREE char *text = output_of(arguments);

	ck_assert_msg(text && strstr(text, part), "expected %s in:\n%s", part, text ? text : "nothing");
	ck_assert_msg(!strstr(text, "\xc2\x9b"), "a control character in:\n%s", text);
}

START_TEST(a_container_that_is_watched_by_its_labels_says_them_everywhere)
{
	static struct incident incident;
	char socket[128], metrics[128], name[64], line[300], sealed[400];

	if (!built)
		SKIP_TEST("%s", skip_why());

	struct program program =
		program_start((const char *const[]){ spikewatchd, "-c", config_path, NULL }, directory, -1, 0);

	scene_wait_for(find_incident(&incident) || waitpid(program.pid, NULL, WNOHANG) != 0);
	ck_assert_int_eq(incident.target.pid, sleepers[0]);
	ck_assert(incident.has_container);
	ck_assert_str_eq(incident.container.name, "web");
	ck_assert_str_eq(labels_get(&incident.labels, "app.kubernetes.io/name"), "shop-web");
	ck_assert_str_eq(labels_get(&incident.labels, "team"), "core");
	ck_assert_uint_eq(incident.labels.count, 3);

	snprintf(sealed, sizeof(sealed), "%s/incidents/%s", directory, incident.id);
	expect_output((const char *const[]){ spikewatch, "show", "--full", sealed, NULL },
		      "app.kubernetes.io/name=shop-web");
	snprintf(socket, sizeof(socket), "%s/control", directory);
	snprintf(name, sizeof(name), "shop/%d", sleepers[0]);
	expect_output((const char *const[]){ spikewatch, "status", "--socket", socket, name, NULL }, "team=core");
	expect_output((const char *const[]){ spikewatch, "status", "--socket", socket, "--json", NULL },
		      "\"app.kubernetes.io/name\": \"shop-web\"");

	snprintf(metrics, sizeof(metrics), "%s/metrics.prom", directory);
	snprintf(line, sizeof(line),
		 "spikewatch_target_info{target=\"%s\",entry=\"shop\",kind=\"process\",container=\"web\",label_team="
		 "\"core\","
		 "label_app_kubernetes_io_name=\"shop-web\"} 1\n",
		 name);
	scene_wait_for(scene_says(metrics, line));
	snprintf(name, sizeof(name), "shop/%d", sleepers[1]);
	ck_assert(!scene_says(metrics, name));

	kill(program.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&program), 0);
}
END_TEST

Suite *labelled_suite(void)
{
	Suite *suite = suite_create("labelled");
	TCase *tcase = tcase_create("labelled");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_container_that_is_watched_by_its_labels_says_them_everywhere);
	suite_add_tcase(suite, tcase);

	return suite;
}
