/*
 * overview.c: figures of the process are read from /proc/self when they are asked for.
 *
 * What sampling runs on is locked, range by range: here code and data of the program and of the C
 * library, in sampler.c the stacks and tables of the samplers, in session.c the ring. With
 * MLOCK_ONFAULT pages are locked as they are touched, so the process does not grow by it. Rejected:
 * mlockall(MCL_FUTURE). It locks what evidence takes for a moment too, and madvise(2) refuses locked
 * pages, so that malloc_trim(3) could give nothing back.
 *
 * The state file is written by a thread, because the disk may block: the event loop makes the text
 * and takes note of the result when it saves next. While one text is being written changes gather.
 */
#include "daemon/service/health/overview.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/io.h"
#include "daemon/service/health/file_writer.h"
#include "lib/base/units.h"
#include "lib/evaluator/rule_state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- privileges ---- */

struct need {
	unsigned capability;
	bool (*wanted)(const struct config *config); /* NULL: always */
	struct privileges_lack lack;
};

static bool resets_peaks(const struct config *config)
{
	return config->sampling.reset_peaks;
}

static const struct need needs[] = {
	{ CAP_SYS_PTRACE,
	  NULL,
	  { "CAP_SYS_PTRACE", "open files, memory maps and executables of other users' processes" } },
	{ CAP_DAC_READ_SEARCH, NULL, { "CAP_DAC_READ_SEARCH", "pid files and cgroups that only others may read" } },
	{ CAP_DAC_OVERRIDE, resets_peaks, { "CAP_DAC_OVERRIDE", "sampling.reset_peaks on other users' processes" } },
};

static const struct privileges_lack memory_lock = {
	"LimitMEMLOCK=infinity or CAP_IPC_LOCK",
	"keeping the code that samples in memory when the machine swaps (the ring is locked on its own)",
};

/* Bit n: capability n is effective. All set if capget(2) fails. */
static uint64_t capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (syscall(SYS_capget, &header, data) < 0)
		return UINT64_MAX;

	return (uint64_t)data[1].effective << 32 | data[0].effective;
}

static bool holds(const struct dl_phdr_info *object, uintptr_t address)
{
	for (size_t i = 0; i < object->dlpi_phnum; i++)
		if (object->dlpi_phdr[i].p_type == PT_LOAD &&
		    address - object->dlpi_addr - object->dlpi_phdr[i].p_vaddr < object->dlpi_phdr[i].p_memsz)
			return true;

	return false;
}

/* Locks the segments of the program and of the C library. -errno ends the walk. */
static int lock_object(struct dl_phdr_info *object, size_t size, void *ctx)
{
	int *error = ctx;

	(void)size;
	if (!holds(object, (uintptr_t)privileges_look) && !holds(object, (uintptr_t)clock_nanosleep))
		return 0;

	for (size_t i = 0; i < object->dlpi_phnum && *error == 0; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		const void *at = (const void *)(object->dlpi_addr + segment->p_vaddr);

		if (segment->p_type == PT_LOAD && mlock2(at, segment->p_memsz, MLOCK_ONFAULT) < 0)
			*error = -errno;
	}

	return *error;
}

/* 0; -EPERM: the limit is too low, and rings for stacks need what there is; -errno. */
static int lock_code(uint64_t held)
{
	struct rlimit limit;
	int error = 0;

	if (!(held & (1ull << CAP_IPC_LOCK)) &&
	    (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY))
		return -EPERM;

	dl_iterate_phdr(lock_object, &error);

	return error;
}

static bool is_among(const struct privileges *privileges, const struct privileges_lack *lack)
{
	for (size_t i = 0; i < privileges->count; i++)
		if (strcmp(privileges->lacks[i].needs, lack->needs) == 0)
			return true;

	return false;
}

static void add_lack(struct privileges *privileges, const struct privileges *before, const struct privileges_lack *lack)
{
	privileges->lacks[privileges->count++] = *lack;
	if (!is_among(before, lack))
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_FEATURE_OFF }, "without %s: no %s",
			  lack->needs, lack->off);
}

void privileges_look(const struct config *config, struct privileges *ret)
{
	struct privileges found = { .count = 0 };
	uint64_t held = capabilities();

	_Static_assert(ARRAY_LEN(needs) + 1 <= PRIVILEGES_LACKS_MAX, "room for every lack");
	for (size_t i = 0; i < ARRAY_LEN(needs); i++)
		if (!(held & (1ull << needs[i].capability)) && (!needs[i].wanted || needs[i].wanted(config)))
			add_lack(&found, ret, &needs[i].lack);
	if (config->ring.lock && lock_code(held) < 0)
		add_lack(&found, ret, &memory_lock);

	*ret = found;
}

/* ---- the state file ---- */

struct state_file {
	const struct paths *paths;
	struct rule_state *rule_state;
	struct file_writer *writer;
	bool failing;
};

static void state_file_release(struct state_file **file)
{
	if (!*file)
		return;

	file_writer_free((*file)->writer);
	rule_state_free((*file)->rule_state);
	free(*file);
}

/* Makes it if it does not exist. */
static int open_state_directory(const struct paths *paths)
{
	int fd = open(paths->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		int r = directory_tree_make(paths->state);

		if (r < 0)
			return r;
		fd = open(paths->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}

	return fd < 0 ? -errno : fd;
}

static void set_aside(const struct paths *paths, int dirfd, const char *why)
{
	char aside[300];

	snprintf(aside, sizeof aside, "%s.damaged", paths->state_name);
	renameat(dirfd, paths->state_name, dirfd, aside);
	log_line(LOG_WARNING, "the state file is damaged (%s): it was renamed to %s/%s, and cooldowns start again", why,
		 paths->state, aside);
}

static int load_state(struct state_file *file)
{
	const struct paths *paths = file->paths;
	AUTO_CLOSE int dirfd = open_state_directory(paths);
	char error[256];
	int r;

	if (dirfd < 0) {
		log_line(LOG_ERR, "cannot open the state directory %s: %s", paths->state, strerror(-dirfd));
		return dirfd;
	}

	r = rule_state_load(file->rule_state, dirfd, paths->state_name, error, sizeof error);
	if (r == -EBADMSG)
		set_aside(paths, dirfd, error);
	else if (r < 0)
		log_line(LOG_WARNING, "cannot read the state file %s/%s: %s. Cooldowns start again.", paths->state,
			 paths->state_name, strerror(-r));

	return r == -ENOMEM ? r : 0;
}

int state_file_open(const struct paths *paths, int procfd, struct state_file **ret)
{
	static const struct file_writer_options options = { .make_directory = true, .patience_ns = NS_PER_S };
	AUTO(state_file_release) struct state_file *file = calloc(1, sizeof *file);
	char boot_id[64], path[sizeof paths->state + sizeof paths->state_name + 1];
	int r;

	if (!file)
		return -ENOMEM;

	file->paths = paths;
	proc_read_line(procfd, 0, "sys/kernel/random/boot_id", boot_id, sizeof boot_id);
	r = rule_state_new(boot_id, &file->rule_state);
	if (r == 0)
		r = load_state(file);
	snprintf(path, sizeof path, "%s/%s", paths->state, paths->state_name);
	if (r == 0)
		r = file_writer_new(path, &options, &file->writer);
	if (r < 0)
		return r;

	*ret = TAKE(file);

	return 0;
}

struct rule_state *state_file_rules(const struct state_file *file)
{
	return file->rule_state;
}

static void report_save(struct state_file *file, int error)
{
	struct log_about about = { .message = MESSAGE_STATE_NOT_SAVED, .error = error };
	bool before = file->failing;

	file->failing = about.error < 0;
	if (file->failing && !before) {
		about.state = "begin";
		log_about(LOG_WARNING, &about,
			  "cannot save cooldowns and counts to %s/%s: %s. They will not survive a restart.",
			  file->paths->state, file->paths->state_name, strerror(-about.error));
	} else if (!file->failing && before) {
		about.state = "end";
		log_about(LOG_NOTICE, &about, "cooldowns and counts are saved again");
	}
}

void state_file_save(struct state_file *file)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	int r = file_writer_result(file->writer);

	if (r == FILE_WRITER_BUSY)
		return;

	report_save(file, r);
	if (!file->failing && !rule_state_changed(file->rule_state))
		return;

	r = rule_state_text(file->rule_state, &text);
	if (r < 0)
		report_save(file, r);
	else
		file_writer_put(file->writer, &text);
}

bool state_file_is_failing(const struct state_file *file)
{
	return file->failing;
}

void state_file_close(struct state_file *file, mono_t until)
{
	int r;

	if (!file)
		return;

	file_writer_wait(file->writer, until);
	state_file_save(file);
	r = file_writer_wait(file->writer, until);
	report_save(file, r == FILE_WRITER_BUSY ? -ETIMEDOUT : r);
	state_file_release(&file);
}

/* ---- rule counts: one row per rule; the evaluator hands out pointers into config->rules ---- */

struct rule_counts {
	const struct config *config;
	struct rule_count *rows; /* config->rule_count */
};

static struct rule_count *row_of(const struct rule_counts *rule_counts, const struct config_rule *rule)
{
	uintptr_t offset = (uintptr_t)rule - (uintptr_t)rule_counts->config->rules;

	return offset < rule_counts->config->rule_count * sizeof(*rule) ? &rule_counts->rows[offset / sizeof(*rule)]
									: NULL;
}

static const struct rule_count *row_named(const struct rule_counts *rule_counts, const char *name)
{
	for (size_t i = 0; i < rule_counts->config->rule_count; i++)
		if (strcmp(rule_counts->config->rules[i].name, name) == 0)
			return &rule_counts->rows[i];

	return NULL;
}

int rule_counts_new(const struct config *config, const struct rule_counts *before, struct rule_counts **ret)
{
	AUTO(rule_counts_freep) struct rule_counts *rule_counts = calloc(1, sizeof(*rule_counts));

	if (!rule_counts)
		return -ENOMEM;

	rule_counts->config = config;
	rule_counts->rows = calloc(config->rule_count + 1, sizeof(*rule_counts->rows));
	if (!rule_counts->rows)
		return -ENOMEM;

	for (size_t i = 0; before && i < config->rule_count; i++) {
		const struct rule_count *row = row_named(before, config->rules[i].name);

		if (row)
			rule_counts->rows[i] = *row;
	}
	*ret = TAKE(rule_counts);

	return 0;
}

void rule_counts_free(struct rule_counts *rule_counts)
{
	if (rule_counts)
		free(rule_counts->rows);
	free(rule_counts);
}

void rule_counts_judged(struct rule_counts *rule_counts, const struct config_rule *rule,
			const struct trigger_decision *decision, uint32_t windows)
{
	struct rule_count *row = row_of(rule_counts, rule);

	if (row == NULL)
		return;

	row->windows += windows;
	row->fired += decision->fires;
	row->reasons[decision->reason] += windows;
}

void rule_counts_opened(struct rule_counts *rule_counts, const struct config_rule *rule)
{
	struct rule_count *row = row_of(rule_counts, rule);

	if (row)
		row->opened++;
}

const struct rule_count *rule_counts_of(const struct rule_counts *rule_counts, const struct config_rule *rule)
{
	return row_of(rule_counts, rule);
}

/* /proc/self/statm, in pages: "2273 1024 768 5 0 352 0": the second is resident. */
static uint64_t resident_bytes(void)
{
	AUTO_CLOSE int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	char text[128] = "";
	unsigned long long pages = 0;

	if (fd < 0 || fd_read_all(fd, text, sizeof(text) - 1) <= 0 || sscanf(text, "%*s %llu", &pages) != 1)
		return 0;

	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int count_name(void *ctx, const char *name)
{
	uint64_t *count = ctx;

	(void)name;
	++*count;

	return 0;
}

/* Less the descriptor that this opens. */
static uint64_t open_fds(void)
{
	AUTO_CLOSE int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t count = 0;

	if (fd >= 0)
		directory_list_each(fd, count_name, &count);

	return count > 0 ? count - 1 : 0;
}

static uint64_t history_ns(const struct ring *ring)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct ring_info info;
	bool found = false;

	ring_info(ring, &info);
	if (ring_cursor_new(ring, RING_OLDEST, &cursor) < 0)
		return 0;
	while (!found && ring_cursor_next(cursor, &event) == 0)
		found = event.type == RING_EVENT_TICK;
	ring_cursor_free(cursor);

	return found && mono_diff(info.last_tick, event.time) > 0 ? (uint64_t)mono_diff(info.last_tick, event.time) : 0;
}

void vitals_read(const struct ring *ring, struct vitals *ret)
{
	*ret = (struct vitals){
		.cpu_ns = real_clock_process_cpu(),
		.resident_bytes = resident_bytes(),
		.open_fds = open_fds(),
		.history_ns = history_ns(ring),
	};
}
