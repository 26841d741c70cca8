/*
 * session.c: builds bottom up, frees top down; a half-built session is freed by the same function.
 *
 * Discovery's thread may be blocked in a read of /proc when the session ends, and continue later.
 * It uses nearly all of the session, so then nothing is freed: the ring is marked as ended, and
 * the rest goes with the process. Readers that wait for a locked memory map can be killed, so an
 * exit ends such a thread.
 */
#include "daemon/engine/session/session.h"

#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"
#include "lib/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct session {
	const struct config *config;
	int procfd;
	struct metric_machine machine;
	struct cgroup_mounts *mounts;
	struct containers *containers;
	struct ring *ring;
	struct samplers *samplers;
	struct discovery *discovery;
	struct stack_recorder *stacks;
	struct kernel_accounts *accounts;
	char accounts_off[KERNEL_ACCOUNTS_REASON_MAX];
	char stacks_off[STACK_RECORDER_REASON_MAX];
	char symbolizer[1024];
};

static int failed(const char *what, const char *which, int error)
{
	log_line(LOG_ERR, "%s%s%s: %s", what, *which ? " " : "", which, strerror(-error));

	return error;
}

/* Every watched process takes a few descriptors: raises the soft limit to the hard one. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;

	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/*
 * Finds where this cgroup namespace begins. In a container the cgroup paths of other processes are
 * relative to that; without it some are not found.
 */
static void orient_mounts(struct session *session)
{
	char text[16384];
	struct cgroup_reader reader = { .pid = getpid(), .text = text };
	AUTO_CLOSE int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text);
	int r;

	if (len < 0)
		return;
	reader.len = (size_t)len;
	r = cgroup_mounts_orient(session->mounts, session->procfd, &reader);
	if (r < 0)
		failed("cannot find the root of this cgroup namespace", "", r);
}

/* Threads read below them, so no process may answer for them; usual places are the kernel's. 0 or -errno. */
static int check_root(const char *root, const char *usual, const char *what)
{
	struct stat status;
	size_t copy_room = 0;
	AUTO_CLOSE int fd = strcmp(root, usual) == 0 ? -ENOENT
						     : foreign_open(FOREIGN_DISCOVERY, AT_FDCWD, 0, root, O_DIRECTORY,
								    &copy_room, &status);

	if (fd != -EXDEV && fd != -ETIMEDOUT)
		return 0; /* what else is wrong is found when it is opened */
	log_line(LOG_ERR, "cannot use the %s root %s: it is on a file system that need not answer (FUSE, NFS)", what,
		 root);
	return fd;
}

/* Of the machine: lxcfs, which may not answer, is mounted over it in containers. */
static ssize_t read_machine(int dirfd, const char *path, char *buf, size_t cap)
{
	return foreign_read(FOREIGN_DISCOVERY, dirfd, 0, path, buf, cap);
}

static int open_roots(struct session *session)
{
	const struct config *config = session->config;
	int r = check_root(config->proc_root, "/proc", "proc");

	if (r == 0)
		r = check_root(config->cgroup_root, "", "cgroup");
	if (r < 0)
		return r;

	session->procfd = open(config->proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (session->procfd < 0)
		return failed("cannot open the proc root", config->proc_root, -errno);

	r = cgroup_limits_machine(session->procfd, "", read_machine, &session->machine);
	if (r < 0)
		return failed("cannot read the machine's CPUs and memory in", config->proc_root, r);

	r = cgroup_mounts_new(config->proc_root, config->cgroup_root, &session->mounts);
	if (r < 0)
		return failed("cannot find the cgroup hierarchies", config->cgroup_root, r);
	orient_mounts(session);
	if (*config->cgroup_root && cgroup_mounts_mode(session->mounts) == CGROUPS_NONE)
		return failed("there is no cgroup hierarchy in", config->cgroup_root, -ENOENT);

	r = containers_new(config->runtime_root, &session->containers);
	if (r < 0)
		return failed("cannot set up names of containers", "", r);
	if (r > 0)
		log_line(LOG_WARNING, "cannot open the runtime root %s: %s. Containers are shown by their ids.",
			 config->runtime_root, strerror(r));

	return 0;
}

static void fill_identity(int procfd, struct ring_options *options)
{
	char text[1024];
	struct procfs_stat stat;
	/*
	 * Of this process in its own /proc, where readers of the ring look, not below the proc
	 * root.
	 */
	ssize_t len = proc_read_file(AT_FDCWD, 0, "/proc/self/stat", text, sizeof text);

	options->pid = getpid();
	if (len > 0 && procfs_stat_parse(text, (size_t)len, &stat) == 0)
		options->start_ticks = stat.start_ticks;

	len = proc_read_file(procfd, 0, "sys/kernel/random/boot_id", text, sizeof text);
	for (ssize_t i = 0, digits = 0; i < len && digits < 32; i++) {
		const char *hex = "0123456789abcdef", *at = text[i] ? strchr(hex, text[i]) : NULL;

		if (!at)
			continue;
		options->boot_id[digits / 2] = (uint8_t)(options->boot_id[digits / 2] << 4 | (at - hex));
		digits++;
	}
}

static int open_ring(struct session *session, const char *path)
{
	const struct config *config = session->config;
	struct ring_options options = {
		.size_bytes = config->ring.size_bytes,
		.page_bytes = config->ring.page_bytes,
		.interval_ns = config->sampling.interval_ns,
		.heartbeat_ns = config->sampling.heartbeat_ns,
	};
	int r;

	fill_identity(session->procfd, &options);
	r = path ? ring_create(AT_FDCWD, path, &options, &session->ring)
		 : ring_create_anonymous(&options, &session->ring);
	if (r < 0)
		return failed("cannot create the ring", path ? path : "in memory", r);

	if (config->ring.lock && path && ring_lock(session->ring) < 0)
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_FEATURE_OFF, .error = errno },
			  "the ring of %llu bytes is not locked into memory (%s): raise LimitMEMLOCK, or make "
			  "ring.size smaller",
			  (unsigned long long)config->ring.size_bytes, strerror(errno));

	return 0;
}

/* What the budget asks for beyond it is the samplers' affair. */
static enum source_backoff backoff_of(enum config_idle_backoff configured)
{
	if (configured == CONFIG_IDLE_BACKOFF_AUTO)
		return SOURCE_BACKOFF_COSTLY;
	return configured == CONFIG_IDLE_BACKOFF_ALWAYS ? SOURCE_BACKOFF_ALL : SOURCE_BACKOFF_NONE;
}

static struct sampler_options sampler_options_of(const struct session *session, const struct config *config)
{
	const struct config_sampling *sampling = &config->sampling;

	return (struct sampler_options){
		.source = {
			/* Groups are targets, too. */
			.capacity = sampling->max_targets + (uint32_t)config->target_count,
			.heartbeat_ns = sampling->heartbeat_ns,
			.idle_interval_ns = config_idle_ns(config),
			.backoff = backoff_of(sampling->idle_backoff),
			.idle_grid_ns = config_idle_grid_ns(config),
			.cgroup_interval_ns = sampling->cgroup_interval_ns,
			.interval_ns = sampling->interval_ns,
			.peak_interval_ns = sampling->peak_interval_ns,
			.fds_interval_ns = sampling->fds_interval_ns,
			.reset_peaks = sampling->reset_peaks && foreign_peaks_begin() == 0,
			.reset_peak = foreign_reset_peak,
			.accounts = session->accounts ? kernel_accounts_shared(session->accounts) : NULL,
		},
		.read_interval_ns = config_read_ns(config),
		.wait = sampling->wait,
		.scheduling = sampling->scheduling,
		.cpu_budget_percent = sampling->cpu_budget_percent,
		.lock_memory = config->ring.lock,
	};
}

/*
 * Whether the proc root has this process's pid namespace: only then its pids have CPU clocks here.
 */
static bool is_own_proc(int procfd)
{
	char self[32];
	ssize_t len = proc_read_link(procfd, 0, "self", self, sizeof self);

	return len > 0 && strtol(self, NULL, 10) == getpid();
}

static unsigned sampler_threads(const struct config *config)
{
	struct proc_cpus own;

	if (config->sampling.threads > 0)
		return config->sampling.threads;
	proc_read_cpus(PROC_CPUS_OWN, &own);
	return samplers_worth(config->sampling.cpu_budget_percent, own.count);
}

/* Cgroups that have accounts: 16 bytes of each CPU. */
#define GROUP_ACCOUNTS_MAX 2048u

/* Optional: without them CPU clocks are asked. */
static void open_accounts(struct session *session)
{
	const struct config_sampling *sampling = &session->config->sampling;
	struct kernel_accounts_options options = {
		.procfd = session->procfd,
		.capacity = sampling->max_targets,
		.groups = sampling->max_targets < GROUP_ACCOUNTS_MAX ? sampling->max_targets : GROUP_ACCOUNTS_MAX,
		.mounts = session->mounts,
		.waits = true,
	};

	bool asked_for = sampling->source == CONFIG_CPU_SOURCE_KERNEL;

	if (sampling->source == CONFIG_CPU_SOURCE_FILES)
		return;
	if (!is_own_proc(session->procfd))
		snprintf(session->accounts_off, sizeof session->accounts_off,
			 "the proc root is not this machine's /proc");
	else if (sampler_threads(session->config) > 1)
		snprintf(session->accounts_off, sizeof session->accounts_off, "there are several sampler threads");
	else
		kernel_accounts_open(&options, &session->accounts, session->accounts_off);
	if (*session->accounts_off)
		log_about(asked_for ? LOG_WARNING : LOG_INFO,
			  &(struct log_about){ .message = MESSAGE_FEATURE_OFF,
					       .state = session->accounts ? "begin" : NULL },
			  "CPU time is read from files, not from the scheduler: %s%s", session->accounts_off,
			  session->accounts ? " (tried again)" : "");
}

static int open_samplers(struct session *session)
{
	struct sampler_options options = sampler_options_of(session, session->config);
	int r = samplers_new(&options, sampler_threads(session->config), session->ring, &session->samplers);

	return r < 0 ? failed("cannot build the sampler", "", r) : 0;
}

/* As long as incidents of this configuration ask for. */
static void keep_mappings(const struct session *session)
{
	const struct config_incidents *incidents = &session->config->incidents;

	if (session->stacks)
		stack_recorder_keep(session->stacks, incidents->before_ns, incidents->after_ns);
}

/* Stacks are optional: without them everything else works. */
static void open_stacks(struct session *session)
{
	const struct config_stacks *stacks = &session->config->stacks;
	struct stack_recorder_options options = {
		.frequency = stacks->frequency,
		.before_ns = session->config->incidents.before_ns,
		.ring_bytes = stacks->ring_bytes,
		.max_memory_bytes = stacks->max_memory_bytes,
		.stack_bytes = (uint32_t)stacks->stack_bytes & ~7u,
		.dwarf = stacks->mode == CONFIG_STACKS_DWARF,
		.cycles = stacks->clock == CONFIG_CLOCK_CYCLES,
		.without_faults = !stacks->page_faults,
		.proc_fd = session->procfd,
		.cgroup_root = cgroup_mounts_v2(session->mounts),
	};
	struct log_about about = { .message = MESSAGE_FEATURE_OFF };
	struct stack_recorder_status status;

	if (stacks->mode == CONFIG_STACKS_OFF)
		return;
	if (!symbolizer_find(session->symbolizer, sizeof session->symbolizer))
		snprintf(session->stacks_off, sizeof session->stacks_off, "spikewatch-symbolize is not installed");
	else
		stack_recorder_open(&options, &session->stacks, session->stacks_off);
	if (!session->stacks) {
		log_about(LOG_NOTICE, &about, "no stacks: %s", session->stacks_off);
		return;
	}
	keep_mappings(session);
	stack_recorder_status(session->stacks, &status);
	if (!status.system_wide)
		log_about(LOG_NOTICE, &about, "%s of watched processes of this user only: %s",
			  status.kernel ? "stacks" : "user-space stacks", session->stacks_off);
	if (*status.limits)
		log_about(LOG_NOTICE, &about, "stacks are limited: %s", status.limits);
}

static int build_discovery(struct session *session)
{
	struct discovery_options options = {
		.target_table = {
			.config = session->config,
			.samplers = session->samplers,
			.mounts = session->mounts,
			.containers = session->containers,
			.machine = session->machine,
			.procfd = session->procfd,
			.own_proc = is_own_proc(session->procfd),
			.accounts = session->accounts,
		},
		.stacks = session->stacks,
	};
	int r = discovery_new(&options, &session->discovery);

	return r < 0 ? failed("cannot scan for targets in", session->config->proc_root, r) : 0;
}

int session_open(const struct config *config, const char *ring_path, struct session **ret)
{
	struct session *session = calloc(1, sizeof *session);
	int r;

	if (!session)
		return failed("cannot start", "", -ENOMEM);

	session->config = config;
	session->procfd = -1;
	raise_descriptor_limit();
	r = open_roots(session);
	/*
	 * Makes the kernel grow the descriptor table while there is one thread: with several it
	 * waits for an RCU grace period, ten milliseconds of the first scan.
	 */
	if (r == 0)
		(void)descriptors_short(session->procfd);
	if (r == 0)
		r = open_ring(session, ring_path);
	if (r == 0)
		open_accounts(session);
	if (r == 0)
		r = open_samplers(session);
	if (r == 0)
		open_stacks(session);
	if (r == 0)
		r = build_discovery(session);
	if (r < 0) {
		session_free(session);
		return r;
	}
	*ret = session;

	return 0;
}

int session_new(const struct config *config, const char *ring_path, struct session **ret)
{
	struct session *session;
	int r = session_open(config, ring_path, &session);

	if (r < 0)
		return r;

	r = discovery_scan(session->discovery);
	if (r < 0) {
		session_free(session);
		return failed("cannot scan for targets in", config->proc_root, r);
	}
	*ret = session;

	return 0;
}

int session_seek(struct session *session)
{
	int r = discovery_start(session->discovery, false);

	return r < 0 ? failed("cannot start a thread", "", r) : 0;
}

int session_start(struct session *session)
{
	int r = samplers_start(session->samplers);

	if (r == 0)
		r = discovery_start(session->discovery, true);

	return r < 0 ? failed("cannot start a thread", "", r) : 0;
}

/* The samplers first: they need room for what discovery then finds. */
int session_reload(struct session *session, const struct config *config)
{
	struct sampler_options before = sampler_options_of(session, session->config),
			       after = sampler_options_of(session, config);
	int r = samplers_retune(session->samplers, &after);

	if (r < 0)
		return r;

	r = discovery_reload(session->discovery, config);
	if (r < 0) {
		samplers_retune(session->samplers, &before); /* if that fails, the next reload does it */
		return r;
	}
	session->config = config;
	keep_mappings(session);

	return r;
}

bool session_stop(struct session *session)
{
	if (session->samplers)
		samplers_stop(session->samplers);

	return !session->discovery || discovery_stop(session->discovery);
}

bool session_free(struct session *session)
{
	if (!session)
		return true;

	if (!session_stop(session)) {
		ring_finish(session->ring);
		return false;
	}
	stack_recorder_close(session->stacks);
	samplers_free(session->samplers);
	discovery_free(session->discovery);
	kernel_accounts_close(session->accounts);
	if (session->ring)
		ring_finish(session->ring);
	ring_free(session->ring);
	containers_free(session->containers);
	cgroup_mounts_free(session->mounts);
	if (session->procfd >= 0)
		close(session->procfd);
	free(session);

	return true;
}

struct session_parts session_parts(const struct session *session)
{
	return (struct session_parts){
		.ring = session->ring,
		.samplers = session->samplers,
		.discovery = session->discovery,
		.labels = containers_labels(session->containers),
		.mounts = session->mounts,
		.machine = &session->machine,
		.procfd = session->procfd,
		.stacks = session->stacks,
		.stacks_off = session->stacks_off,
		.accounts = session->accounts,
		.accounts_off = session->accounts_off,
		.symbolizer = session->symbolizer,
	};
}
