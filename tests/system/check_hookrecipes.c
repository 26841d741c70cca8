/*
 * check_hookrecipes.c: conf/hooks: each is a good configuration, and those whose tool is on this
 * machine do what they promise. A small server on loopback stands for a program with pprof, and for
 * Pyroscope.
 */
#include "daemon/engine/incident/hooks.h"

#include "daemon/engine/base/clocks.h"
#include "scene.h"
#include "skip.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/model/target.h"

#include <errno.h>
#include <glob.h>
#include <stdatomic.h>
#include <sys/stat.h>

Suite *hookrecipes_suite(void);

static char directory[64], incident_at[128];
static int dirfd_of;
static atomic_bool done;
static struct incident incident;
static pid_t helper; /* ended with the test */

static void setup(void)
{
	scene_directory(directory);
	snprintf(incident_at, sizeof(incident_at), "%s/incident", directory);
	ck_assert_int_eq(mkdir(incident_at, 0700), 0);
	dirfd_of = open(incident_at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void teardown(void)
{
	if (helper > 0) {
		kill(helper, SIGKILL);
		waitpid(helper, NULL, 0);
	}
	close(dirfd_of);
	scene_remove(directory);
}

static bool have(const char *program)
{
	if (access(program, X_OK) == 0)
		return true;

	return skip_because("there is no %s", program);
}

static void on_done(void *ctx)
{
	(void)ctx;
	atomic_store(&done, true);
}

/* Puts `to` in the place of every `from`. */
static void replace(char *text, size_t cap, const char *from, const char *to)
{
	for (char *at = text; (at = strstr(at, from)); at += strlen(to)) {
		ck_assert_uint_lt(strlen(text) + strlen(to), cap);
		memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
		memcpy(at, to, strlen(to));
	}
}

/* Runs a recipe on a process; port: where the server is. */
static void run_recipe(const char *file, int32_t pid, int port)
{
	struct clock clock = real_clock();
	char text[8192], address[40];
	struct config_source source = { .file = file, .text = text };
	struct config *config = NULL;
	struct config_error error;
	struct hooks *hooks;
	struct hook_plan *plan;
	struct hook_run *run;
	char *read = scene_read(file);

	ck_assert_ptr_nonnull(read);
	snprintf(text, sizeof(text), "%s", read);
	free(read);
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	replace(text, sizeof(text), "127.0.0.1:6060", address);
	replace(text, sizeof(text), "127.0.0.1:4040", address);
	source.len = strlen(text);
	ck_assert_int_eq(config_parse(&source, 1, &config, &error), 0);
	ck_assert_int_eq(hook_plan_new(&config->targets[0], "memory", &plan), 0);
	ck_assert_ptr_nonnull(plan);
	ck_assert_int_eq(hooks_new(&clock, 0, &hooks), 0);

	struct hooks_scene scene = {
		.plan = plan,
		.dirfd = dirfd_of,
		.procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.pid = pid,
		.rule = "memory",
		.target = "api 1",
		.fired = clock_mono(&clock),
		.max_bytes = 1 << 30,
		.done = on_done,
	};

	ck_assert_int_eq(hooks_start(hooks, &scene, &run), 0);
	for (int naps = 0; naps < 4 * SCENE_NAPS && !atomic_load(&done); naps++)
		scene_nap();
	ck_assert(atomic_load(&done));
	hook_run_report(run, &incident);
	hooks_free(hooks);
	hook_plan_free(plan);
	config_free(config);
	close(scene.procfd);
}

static void all_ok(void)
{
	ck_assert_uint_gt(incident.capture_count, 0);
	for (size_t i = 0; i < incident.capture_count; i++) {
		const struct incident_capture *capture = &incident.captures[i];
		char path[400];

		snprintf(path, sizeof(path), "%s/%s", incident_at, capture->file);
		char *said = *capture->file ? scene_read(path) : NULL;

		ck_assert_msg(capture->status == INCIDENT_CAPTURE_OK, "%s: %s: %s", capture->name, capture->why,
			      said ? said : "");
		free(said);
	}
}

static char *left(const char *name)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", incident_at, name);

	return scene_read(path);
}

START_TEST(each_is_a_good_configuration)
{
	glob_t found;

	ck_assert_int_eq(glob("conf/hooks/*.json", 0, NULL, &found), 0);
	ck_assert_uint_ge(found.gl_pathc, 5);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct config *config = NULL;
		char message[CONFIG_FILE_MESSAGE_MAX] = "";

		config_file_load(&(struct config_file){ .path = found.gl_pathv[i] }, &config, message);
		ck_assert_str_eq(message, "");
		ck_assert_uint_ge(config->targets[0].run_count, 1);
		config_free(config);
	}
	globfree(&found);
}
END_TEST

/*
 * Of a program that is not this one, in whose core a sanitizer's shadow memory would be: gigabytes.
 */
START_TEST(gcore_leaves_a_core)
{
	char name[40], comm[40];

	if (!have("/usr/bin/gcore"))
		SKIP_TEST("%s", skip_reason);

	helper = fork();
	if (helper == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sleep", "sleep", "1000", NULL);
		_exit(127);
	}
	snprintf(comm, sizeof(comm), "/proc/%d/comm", helper);
	scene_wait_for(scene_says(comm, "sleep"));
	run_recipe("conf/hooks/gcore.json", helper, 0);
	all_ok();
	snprintf(name, sizeof(name), "core.%d", helper);
	char *core = left(name);

	ck_assert_ptr_nonnull(core);
	ck_assert_int_eq(memcmp(core, "\177ELF", 4), 0);
	free(core);
}
END_TEST

START_TEST(jcmd_says_which_classes_there_are)
{
	char source[128], ready[128];

	if (!have("/usr/bin/java") || !have("/usr/bin/jcmd"))
		SKIP_TEST("%s", skip_reason);

	snprintf(source, sizeof(source), "%s/Sleeper.java", directory);
	snprintf(ready, sizeof(ready), "%s/ready", directory);
	scene_write(source,
		    "class Sleeper { int[] kept = new int[1000]; public static void main(String[] a) throws Exception {"
		    "Sleeper s = new Sleeper(); java.nio.file.Files.createFile(java.nio.file.Path.of(\"%s\"));"
		    "Thread.sleep(1000000); System.out.println(s); } }",
		    ready);
	helper = fork();
	if (helper == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/usr/bin/java", "java", "-Xmx32m", source, NULL);
		_exit(127);
	}
	bool runs = false;

	for (int naps = 0; naps < 4 * SCENE_NAPS && !runs && waitpid(helper, NULL, WNOHANG) == 0; naps++) {
		runs = access(ready, F_OK) == 0;
		scene_nap();
	}
	if (!runs)
		SKIP_TEST("Java does not start here");
	run_recipe("conf/hooks/jcmd.json", helper, 0);
	all_ok();
	char *text = left("run-histogram.txt");

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, "Sleeper"), "%s", text);
	free(text);
}
END_TEST

/*
 * Its port; 0: there is no python3. GET answers with the path, what is posted goes into the file
 * posted.
 */
static int serve(void)
{
	static const char program[] =
		"import http.server, sys\n"
		"class H(http.server.BaseHTTPRequestHandler):\n"
		"  def do_GET(self):\n"
		"    self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())\n"
		"  def do_POST(self):\n"
		"    body = self.rfile.read(int(self.headers['Content-Length']))\n"
		"    open(sys.argv[1], 'wb').write(self.path.encode() + b'\\n' + body)\n"
		"    self.send_response(200); self.end_headers()\n"
		"  def log_message(self, *a): pass\n"
		"s = http.server.HTTPServer(('127.0.0.1', 0), H)\n"
		"print(s.server_address[1], flush=True)\n"
		"s.serve_forever()\n";
	char posted[128], port[16] = "";
	int ends[2];

	snprintf(posted, sizeof(posted), "%s/posted", directory);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	helper = fork();
	if (helper == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDOUT_FILENO);
		execlp("python3", "python3", "-c", program, posted, NULL);
		_exit(127);
	}
	close(ends[1]);
	size_t len = 0;

	/* The whole line, or the server writes the rest to a closed socket. */
	while (len + 1 < sizeof(port) && !strchr(port, '\n') && read(ends[0], port + len, 1) == 1)
		len++;
	close(ends[0]);
	if (len == 0)
		skip_because("there is no python3");

	return len > 0 ? (int)strtol(port, NULL, 10) : 0;
}

START_TEST(pprof_is_fetched)
{
	int port = have("/usr/bin/curl") ? serve() : 0;

	if (port == 0)
		SKIP_TEST("%s", skip_reason);
	run_recipe("conf/hooks/pprof.json", getpid(), port);
	all_ok();
	char *text = left("heap.pb.gz");

	ck_assert_str_eq(text, "/debug/pprof/heap");
	free(text);
	text = left("run-goroutines.txt");
	ck_assert_str_eq(text, "/debug/pprof/goroutine?debug=1");
	free(text);
}
END_TEST

START_TEST(pyroscope_is_given_what_was_fetched)
{
	int port = have("/usr/bin/curl") ? serve() : 0;
	char posted[128];

	if (port == 0)
		SKIP_TEST("%s", skip_reason);
	run_recipe("conf/hooks/pyroscope.json", getpid(), port);
	all_ok();
	snprintf(posted, sizeof(posted), "%s/posted", directory);
	char *text = scene_read(posted);

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strncmp(text, "/ingest?name=api_1&spyName=gospy&format=pprof\n", 46) == 0, "%s", text);
	ck_assert_msg(strstr(text, "name=\"profile\"") && strstr(text, "/debug/pprof/heap"), "%s", text);
	free(text);
}
END_TEST

START_TEST(a_server_that_is_not_there_is_said)
{
	if (!have("/usr/bin/curl"))
		SKIP_TEST("%s", skip_reason);
	run_recipe("conf/hooks/pprof.json", getpid(), 1);
	ck_assert_int_eq(incident.captures[0].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(incident.captures[0].why, "exit status 7");
	char *text = left("run-heap.txt");

	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(strstr(text, "curl: (7)"));
	free(text);
}
END_TEST

Suite *hookrecipes_suite(void)
{
	Suite *suite = suite_create("hookrecipes");
	TCase *tcase = tcase_create("recipes");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, each_is_a_good_configuration);
	tcase_add_test(tcase, gcore_leaves_a_core);
	tcase_add_test(tcase, jcmd_says_which_classes_there_are);
	tcase_add_test(tcase, pprof_is_fetched);
	tcase_add_test(tcase, pyroscope_is_given_what_was_fetched);
	tcase_add_test(tcase, a_server_that_is_not_there_is_said);
	suite_add_tcase(suite, tcase);

	return suite;
}
