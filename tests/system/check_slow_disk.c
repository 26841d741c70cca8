/*
 * check_slow_disk.c: the real daemon on a disk that does not answer (tests/data/slow_disk): while
 * each write, fsync, rename and look at the free space waits, it samples, judges, takes the evidence of
 * what fires next, answers and feeds its watchdog; it ends when it is told to, and says what it could
 * not write; a next one samples before it could save what was left; when the disk answers again nothing is
 * missing. The same where the journal, or the pipe behind standard error, is not read.
 */
#include "../data/slow_disk/slow_disk.h"
#include "live_rig.h"
#include "stacks_rig.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

Suite *slow_disk_suite(void);

#define TARGET_NAME "slow@"
#define BURNER_NAME "burn@"

static struct live_rig rig;
static struct slow_disk *disk;
static pid_t targets[8];
static size_t target_count;
static int notified;
static const char *stacks, *window; /* values of the configuration */
static struct reader {
	int fd;         /* what the log arrives at; -1: a file */
	int filler;     /* for the pipe: its other end */
	char path[108]; /* of the pipe or socket */
	bool journal;
} reader;

static void setup(void)
{
	live_rig_setup(&rig);
	target_count = 0;
	disk = NULL;
	notified = -1;
	reader.fd = reader.filler = -1;
	stacks = "\"off\"";
	window = "\"before\": \"1s\", \"after\": \"0s\"";
}

static void teardown(void)
{
	if (disk)
		disk->closed = 0;
	for (size_t i = 0; i < target_count; i++) {
		kill(targets[i], SIGKILL);
		waitpid(targets[i], NULL, 0);
	}
	live_rig_teardown(&rig);
	if (notified >= 0)
		close(notified);
	if (reader.fd >= 0)
		close(reader.fd);
	if (reader.filler >= 0)
		close(reader.filler);
}

/* ---- the disk ---- */

/* False: it cannot be had. */
static bool make_disk(void)
{
	char command[1024];
	int fd;

#ifdef __SANITIZE_ADDRESS__
	return skip_because("the sanitizer must be loaded before all others");
#endif
	snprintf(command, sizeof command,
		 "cc -O1 -shared -fPIC -D_GNU_SOURCE -o '%s' tests/data/slow_disk/slow_disk.c -ldl",
		 place(&rig, "slow_disk.so"));
	if (system(command) != 0)
		return skip_because("there is no compiler, or no source");
	fd = open(place(&rig, "disk"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(ftruncate(fd, sizeof *disk), 0);
	disk = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(disk, MAP_FAILED);
	close(fd);

	return true;
}

static void listen_for_notifications(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", rig.directory);
	notified = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(notified, (struct sockaddr *)&address, sizeof address), 0);
}

/* Keep-alive messages since the last call. */
static unsigned keep_alives(void)
{
	char text[256];
	unsigned count = 0;
	ssize_t len;

	while ((len = recv(notified, text, sizeof text - 1, 0)) > 0) {
		text[len] = '\0';
		count += strcmp(text, "WATCHDOG=1") == 0;
	}

	return count;
}

static void configure(void)
{
	scene_write(
		place(&rig, "config"),
		"{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false}, \"stacks\": %s,\n"
		"\"sampling\": {\"cpu_budget\": \"100%%\", \"interval\": \"10ms\", \"rescan_interval\": \"100ms\",\n"
		"\"discovery\": \"rescan\"}, \"incidents\": {\"directory\": \"%s/incidents\", \"min_free\": \"0B\",\n"
		"%s}, \"state_file\": \"%s/state\",\n"
		"\"targets\": [{\"name\": \"t\", \"comm\": \"%s\"},\n"
		"{\"name\": \"burner\", \"comm\": \"%s\", \"again\": \"300ms\"}],\n"
		"\"rules\": [{\"name\": \"there\", \"metric\": \"memory_bytes\", \"window\": \"100ms\", \"above\": "
		"\"4KiB\", \"warmup\": 0, \"cooldown\": \"1h\", \"targets\": [\"t\"]},\n"
		"{\"name\": \"burns\", \"metric\": \"cpu_cores\", \"window\": \"100ms\", \"above\": 0.3, "
		"\"warmup\": 0,\n"
		"\"cooldown\": \"1h\", \"targets\": [\"burner\"]}]}\n",
		rig.directory, stacks, rig.directory, window, rig.directory, scene_own(TARGET_NAME),
		scene_own(BURNER_NAME));
}

static void start_on_disk(void)
{
	char preload[200], where[200], notify[200];
	const char *arguments[] = { "/usr/bin/env",
				    preload,
				    where,
				    notify,
				    "WATCHDOG_USEC=1000000",
				    rig.spikewatchd,
				    "--stuck-after",
				    "1s",
				    "-c",
				    place(&rig, "config"),
				    NULL };

	snprintf(preload, sizeof preload, "LD_PRELOAD=%s/slow_disk.so", rig.directory);
	snprintf(where, sizeof where, "SLOW_DISK=%s/disk", rig.directory);
	snprintf(notify, sizeof notify, "NOTIFY_SOCKET=%s%s", notified < 0 ? "" : rig.directory,
		 notified < 0 ? "" : "/notify");
	configure();
	rig.server = program_start(arguments, rig.directory, -1, 0);
	live_wait_for(&rig, scene_says(rig.server.err, "watching "));
	ck_assert_int_eq(ring_open(AT_FDCWD, place(&rig, "ring"), false, &rig.ring), 0);
}

static uint64_t ticks(void)
{
	struct ring_info info;

	ring_info(rig.ring, &info);

	return info.ticks;
}

/* A process that the rule fires on as soon as it is found. */
static void start_target(void)
{
	const char *name = scene_own(TARGET_NAME);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		for (;;)
			pause();
	}
	targets[target_count++] = pid;
}

static bool start_all(void)
{
	if (!rig.able || !make_disk())
		return false;
	start_on_disk();

	return true;
}

/* How many are sealed, and whole by their names. */
static size_t sealed(void)
{
	DIR *dir = opendir(place(&rig, "incidents"));
	size_t count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));)
		count += item->d_name[0] != '.' && !strstr(item->d_name, ".tmp");
	if (dir)
		closedir(dir);

	return count;
}

START_TEST(while_the_disk_does_not_answer_all_else_goes_on_and_nothing_is_lost)
{
	const unsigned fired = 3;
	uint64_t before;
	unsigned passed;

	listen_for_notifications();
	if (!start_all())
		SKIP_TEST("%s", skip_why());
	live_wait_for(&rig, told(&rig, "incidents", "pending") == 0 && keep_alives() > 0);
	disk->closed = 1;
	passed = disk->passed;
	for (unsigned i = 0; i < fired; i++)
		start_target();
	live_wait_for(&rig, told(&rig, "incidents", "opened") == fired);
	live_wait_for(&rig, disk->waiting > 0);

	/* Each of these is seen while the same calls wait. */
	before = ticks();
	keep_alives();
	live_wait_for(&rig, ticks() > before + 100);
	live_wait_for(&rig, keep_alives() > 0);
	ck_assert_uint_eq(told(&rig, "incidents", "open"), 0);
	ck_assert_uint_eq(told(&rig, "incidents", "pending"), fired);
	ck_assert_uint_eq(told(&rig, "incidents", "sealed"), 0);
	ck_assert_uint_eq(disk->passed, passed);
	ck_assert_uint_eq(sealed(), 0);

	disk->closed = 0;
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == fired);
	ck_assert_uint_eq(sealed(), fired);
	live_wait_for(&rig, scene_says(place(&rig, "state"), "there"));
	live_wait_for(&rig, scene_says(rig.server.err, "sealed incident"));
	ck_assert_uint_eq(told(&rig, "health", "lost_log_entries"), 0);
}
END_TEST

/* ---- the evidence of the next incident ---- */

/* A program that burns when it is told to go on, and has exited two seconds of CPU time later. */
static pid_t start_burner(void)
{
	const char *path = place(&rig, scene_own(BURNER_NAME));
	const char *arguments[] = { path, "exit", "2000", NULL };
	char found[512], whole[PATH_MAX];
	pid_t pid;

	ck_assert(program_find("workload_stacks", found) && realpath(found, whole));
	ck_assert_int_eq(symlink(whole, path), 0);
	pid = run(arguments);
	await_stop(pid);

	return pid;
}

/* Of the incident that this rule has fired: a file of it; NULL: there is none. For free(3). */
static char *read_of(const char *rule, const char *file)
{
	DIR *dir = opendir(place(&rig, "incidents"));
	char *text = NULL;

	for (struct dirent *item; dir && !text && (item = readdir(dir));) {
		char path[768];

		snprintf(path, sizeof path, "%s/%s/%s", place(&rig, "incidents"), item->d_name, file);
		if (strstr(item->d_name, rule) && !strstr(item->d_name, ".tmp"))
			text = scene_read(path);
	}
	if (dir)
		closedir(dir);

	return text;
}

/* Says what the incident is, and fails. */
static void is_not(const char *about, const char *what)
{
	fprintf(stderr, "%s\n", about);
	ck_abort_msg("%s is not in it, or not of its time", what);
}

/* That capture was taken, and so long after the firing at most. */
static void was_taken(const char *about, const char *capture, uint64_t most_ns)
{
	static const char ok[] = "\"status\": \"ok\"", when[] = "\"at_ns\": ";
	char name[64];
	const char *at, *end;

	snprintf(name, sizeof name, "\"name\": \"%s\"", capture);
	at = strstr(about, name);
	end = at ? strchr(at, '}') : NULL;
	if (!end || !memmem(at, (size_t)(end - at), ok, strlen(ok)))
		is_not(about, capture);
	at = memmem(at, (size_t)(end - at), when, strlen(when));
	if (!at || strtoull(at + strlen(when), NULL, 10) >= most_ns)
		is_not(about, capture);
}

/* Milliseconds of each call; 0: none returns as long as the two fire. */
static const unsigned delays[] = { 0, 300, 3000 };

START_TEST(while_the_disk_waits_for_one_incident_the_evidence_of_the_next_is_taken)
{
	unsigned delay = delays[_i];
	AUTO_FREE char *about = NULL, *functions = NULL;
	uint64_t began, lived_ns;
	pid_t burner;

	if (!stacks_rig_perf_is_allowed())
		SKIP_TEST("%s", skip_why());
	stacks = "\"frame-pointers\"";
	/* Long enough for what the stacks hold when it is written at last. */
	window = "\"before\": \"20s\", \"after\": \"1s\"";
	if (!start_all())
		SKIP_TEST("%s", skip_why());
	burner = start_burner();
	live_wait_for(&rig, told(&rig, "incidents", "pending") == 0 && scene_says(rig.server.err, "watching "));
	disk->delay_ms = delay;
	disk->closed = delay == 0;
	start_target();
	live_wait_for(&rig, told(&rig, "incidents", "opened") == 1);
	live_wait_for(&rig, disk->waiting > 0);
	kill(burner, SIGCONT);
	began = live_now_ns();
	live_wait_for(&rig, told(&rig, "incidents", "opened") == 2); /* status answers */
	ck_assert_int_eq(waitpid(burner, NULL, 0), burner);
	lived_ns = live_now_ns() - began;
	if (delay == 0)
		live_wait_for(&rig, told(&rig, "incidents", "captures_unsaved") >= 12);
	disk->delay_ms = 0;
	disk->closed = 0;
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == 2);

	about = read_of("burns", "incident.json");
	ck_assert_ptr_nonnull(about);
	was_taken(about, "threads", lived_ns);
	was_taken(about, "smaps", lived_ns);
	was_taken(about, "smaps-again", lived_ns);
	functions = read_of("burns", "functions.tsv");
	if (!functions || !strstr(functions, "\nspin\t")) {
		fprintf(stderr, "%s\n", functions ? functions : "");
		is_not(about, "what burned");
	}
	ck_assert_uint_eq(told(&rig, "incidents", "captures_unsaved"), 0);
	ck_assert_uint_eq(told(&rig, "incidents", "captures_unsaved_bytes"), 0);
}
END_TEST

START_TEST(on_a_slow_disk_all_is_written_in_its_time)
{
	if (!start_all())
		SKIP_TEST("%s", skip_why());
	disk->delay_ms = 50;
	for (unsigned i = 0; i < 3; i++)
		start_target();
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == 3);
	disk->delay_ms = 0;
	ck_assert_uint_eq(sealed(), 3);
}
END_TEST

START_TEST(it_ends_on_a_disk_that_does_not_answer_and_says_what_is_not_written)
{
	if (!start_all())
		SKIP_TEST("%s", skip_why());
	disk->log_is_fast = 1;
	disk->closed = 1;
	start_target();
	live_wait_for(&rig, told(&rig, "incidents", "pending") == 1);
	live_wait_for(&rig, disk->waiting > 0);
	kill(rig.server.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig.server), 0);
	rig.server.pid = 0;
	ck_assert(scene_says(rig.server.err, "What was not written is recovered at the next start"));
	ck_assert(scene_says(rig.server.err, "1 not written yet"));
	ck_assert(scene_says(rig.server.err, "there-1 was not written before the stop") ||
		  scene_says(rig.server.err, "there was not written before the stop"));
	ck_assert(scene_says(rig.server.err, "cannot save cooldowns and counts"));
	ck_assert_uint_eq(sealed(), 0);

	disk->closed = 0;
	ring_free(TAKE(rig.ring));
	start_on_disk();
	live_wait_for(&rig, sealed() > 0); /* what the ring held */
}
END_TEST

/*
 * Files of cgroups and of other processes that do not come, where no child reads them: discovery
 * waits, and a command line that a child reads is given up. All else goes on, a reload and the end too.
 */
START_TEST(while_files_of_processes_and_cgroups_do_not_come_all_else_goes_on)
{
	AUTO_FREE char *config = NULL;
	uint64_t before;

	listen_for_notifications();
	if (!start_all())
		SKIP_TEST("%s", skip_why());
	live_wait_for(&rig, told(&rig, "discovery", "scans") > 1);
	disk->files_closed = 1;
	start_target();
	live_wait_for(&rig, disk->files_waiting > 0);
	before = ticks();
	keep_alives();
	live_wait_for(&rig, ticks() > before + 100);
	live_wait_for(&rig, keep_alives() > 0);
	ck_assert_uint_eq(told(&rig, "incidents", "opened"), 0);

	config = scene_read(place(&rig, "config"));
	*strrchr(config, ']') = '\0';
	scene_write(place(&rig, "config"),
		    "%s, {\"name\": \"more\", \"metric\": \"cpu_cores\", \"window\": \"100ms\", \"above\": 1}]}",
		    config);
	kill(rig.server.pid, SIGHUP);
	live_wait_for(&rig, scene_says(rig.server.err, "rules: 1 added"));
	ck_assert_int_eq(disk->files_closed && disk->files_waiting > 0, 1);

	disk->files_closed = 0;
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == 1);
	disk->files_closed = 1;
	start_target();
	live_wait_for(&rig, disk->files_waiting > 0);
	kill(rig.server.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig.server), 0);
	rig.server.pid = 0;
	ck_assert_uint_eq(sealed(), 1);
}
END_TEST

/* From an incident that fired three seconds before the end on, though the configuration keeps one second. */
START_TEST(a_start_on_a_disk_that_does_not_answer_samples_and_saves_later_what_was_left)
{
	struct ring_info info;
	uint64_t before;

	if (!start_all())
		SKIP_TEST("%s", skip_why());
	disk->log_is_fast = 1;
	disk->closed = 1;
	start_target();
	live_wait_for(&rig, told(&rig, "incidents", "pending") == 1);
	live_wait_for(&rig, disk->waiting > 0);
	before = ticks();
	live_wait_for(&rig, ticks() > before + 300);
	kill(rig.server.pid, SIGKILL);
	program_wait(&rig.server);
	rig.server.pid = 0;
	ring_info(rig.ring, &info);
	ck_assert_uint_ne(info.unwritten_from.ns, 0);
	ck_assert_int_gt(mono_diff(info.last_tick, info.unwritten_from), 3 * (int64_t)NS_PER_S);
	ring_free(TAKE(rig.ring));

	start_on_disk();
	ck_assert(scene_says(rig.server.err, "sampling begins meanwhile"));
	before = ticks();
	live_wait_for(&rig, ticks() > before + 50);
	ck_assert_uint_eq(sealed(), 0);
	disk->closed = 0;
	live_wait_for(&rig, scene_says(rig.server.err, "what its ring held is incident"));
	live_wait_for(&rig, access(place(&rig, "ring.left1"), F_OK) < 0);
	ck_assert_uint_gt(sealed(), 0);
}
END_TEST

/* ---- a log that is not read ---- */

/* Its pipe holds little, so that it is soon full. */
static void make_pipe(void)
{
	snprintf(reader.path, sizeof reader.path, "%s/log", rig.directory);
	ck_assert_int_eq(mkfifo(reader.path, 0600), 0);
	reader.fd = open(reader.path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(reader.fd, 0);
	reader.filler = open(reader.path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_ge(reader.filler, 0);
	ck_assert_int_ge(fcntl(reader.fd, F_SETPIPE_SZ, 4096), 0);
}

/* The journal's socket, where no other program of this machine sees it. False: it cannot be had. */
static bool make_journal(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(reader.path, sizeof reader.path, "/run/systemd/journal/socket");
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/run", "tmpfs", 0, NULL) < 0)
		return skip_because("a mount namespace: %s", strerror(errno));
	ck_assert(mkdir("/run/systemd", 0755) == 0 && mkdir("/run/systemd/journal", 0755) == 0);
	memcpy(address.sun_path, reader.path, sizeof address.sun_path);
	reader.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(reader.fd, (struct sockaddr *)&address, sizeof address), 0);

	return true;
}

/* Until it takes nothing more, of its kind of writers and of a new one. */
static void fill_log(void)
{
	static const char line[1024] = "MESSAGE=nothing\n";
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	bool took;

	if (!reader.journal) {
		while (write(reader.filler, line, sizeof line) > 0)
			;
		return;
	}
	memcpy(address.sun_path, reader.path, sizeof address.sun_path);
	do {
		AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		took = false;
		while (sendto(fd, line, strlen(line), 0, (struct sockaddr *)&address, sizeof address) > 0)
			took = true;
	} while (took);
}

/* What is there goes to the file that the log is in elsewhere. True: it says so. */
static bool read_log(const char *part)
{
	AUTO_CLOSE int fd = open(rig.server.err, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	char text[8192];
	ssize_t len;

	while ((len = read(reader.fd, text, sizeof text)) > 0)
		for (ssize_t at = 0; at < len; at++)
			if (text[at] != '\0')
				ck_assert_int_eq(write(fd, text + at, 1), 1);

	return scene_says(rig.server.err, part);
}

static void start_with_reader(void)
{
	char notify[200], command[400];
	const char *arguments[] = { "/bin/sh", "-c", command, rig.spikewatchd, "-c", place(&rig, "config"), NULL };

	snprintf(notify, sizeof notify, "NOTIFY_SOCKET=%s/notify WATCHDOG_USEC=1000000", rig.directory);
	if (reader.journal)
		snprintf(command, sizeof command,
			 "%s JOURNAL_STREAM=$(stat -L -c %%d:%%i /proc/self/fd/2) exec \"$0\" \"$@\"", notify);
	else
		snprintf(command, sizeof command, "%s exec \"$0\" \"$@\" 2>'%s'", notify, reader.path);
	configure();
	rig.server = program_start(arguments, rig.directory, -1, 0);
	live_wait_for(&rig, read_log("watching "));
	ck_assert_int_eq(ring_open(AT_FDCWD, place(&rig, "ring"), false, &rig.ring), 0);
}

static uint64_t lost_entries(void)
{
	return told(&rig, "health", "lost_log_entries");
}

/* More than the queue holds: each configuration that is refused is told. */
static void lose_entries(void)
{
	scene_write(place(&rig, "config"), "{\"%0900d\": 1}", 0);
	for (unsigned i = 1; i <= 20000 && (i % 500 || lost_entries() == 0); i++) {
		kill(rig.server.pid, SIGHUP);
		nanosleep(&(struct timespec){ .tv_nsec = NS_PER_MS }, NULL);
	}
	ck_assert_uint_gt(lost_entries(), 0);
}

/* All that the log says of what was lost. */
static uint64_t told_lost(void)
{
	static const char words[] = " entries were lost";
	AUTO_FREE char *text = scene_read(rig.server.err);
	uint64_t sum = 0;

	for (const char *at = text; at && (at = strstr(at, words)); at += strlen(words)) {
		const char *digits = at;

		while (digits > text && digits[-1] >= '0' && digits[-1] <= '9')
			digits--;
		sum += strtoull(digits, NULL, 10);
	}

	return sum;
}

/* Seen while the log takes nothing. */
static void goes_on(void)
{
	uint64_t before = ticks(), count = told(&rig, "incidents", "sealed");

	keep_alives();
	start_target();
	live_wait_for(&rig, told(&rig, "incidents", "sealed") == count + 1);
	live_wait_for(&rig, ticks() > before + 100);
	live_wait_for(&rig, keep_alives() > 0);
}

START_TEST(a_log_that_is_not_read_holds_nothing_up_and_is_told_what_it_missed)
{
	uint64_t lost;

	if (!rig.able)
		SKIP_TEST("%s", skip_why());
	reader.journal = _i == 1;
	if (!reader.journal)
		make_pipe();
	else if (!make_journal())
		SKIP_TEST("%s", skip_why());
	listen_for_notifications();
	start_with_reader();

	/* What fits the queue comes when it is read again. */
	fill_log();
	goes_on();
	ck_assert_uint_eq(lost_entries(), 0);
	ck_assert(!scene_says(rig.server.err, "sealed incident"));
	live_wait_for(&rig, read_log("sealed incident"));
	ck_assert_uint_eq(told_lost(), 0);

	/* What does not is counted, and said. */
	fill_log();
	lose_entries();
	goes_on();
	lost = lost_entries();
	live_wait_for(&rig, (kill(rig.server.pid, SIGHUP), read_log(" entries were lost")));
	live_wait_for(&rig, (read_log(""), told_lost() >= lost));
	live_wait_for(&rig, (read_log(""), told_lost() == lost_entries()));

	fill_log();
	kill(rig.server.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig.server), 0);
	rig.server.pid = 0;
	ck_assert_uint_eq(sealed(), 2);
}
END_TEST

Suite *slow_disk_suite(void)
{
	Suite *suite = suite_create("slow_disk");
	TCase *tcase = tcase_create("slow_disk");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, while_the_disk_does_not_answer_all_else_goes_on_and_nothing_is_lost);
	tcase_add_loop_test(tcase, while_the_disk_waits_for_one_incident_the_evidence_of_the_next_is_taken, 0,
			    (int)ARRAY_LEN(delays));
	tcase_add_test(tcase, on_a_slow_disk_all_is_written_in_its_time);
	tcase_add_test(tcase, it_ends_on_a_disk_that_does_not_answer_and_says_what_is_not_written);
	tcase_add_test(tcase, while_files_of_processes_and_cgroups_do_not_come_all_else_goes_on);
	tcase_add_test(tcase, a_start_on_a_disk_that_does_not_answer_samples_and_saves_later_what_was_left);
	tcase_add_loop_test(tcase, a_log_that_is_not_read_holds_nothing_up_and_is_told_what_it_missed, 0, 2);
	suite_add_tcase(suite, tcase);

	return suite;
}
