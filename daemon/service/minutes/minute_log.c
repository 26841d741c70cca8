/*
 * minute_log.c: two halves, of which each is one thread's.
 *
 * The event loop has a struct watched for each target and adds to it with each sample; when the wall
 * clock enters another minute the minute is written as a block into memory, and handed over as soon
 * as the writing thread is idle. What was used since a target was looked at before is spread evenly
 * over that time; only the part that lies in the minute counts. So a hole in the sampling is no peak,
 * and one that is longer than a minute gives no minute what another one used.
 *
 * Peaks are over a second that slides in tenths: the use of each tenth is kept, and the sum of the
 * last ten is compared when a tenth ends.
 *
 * The writing thread appends to the last segment: NUMBER.minutes, where numbers rise. A segment that has
 * MINUTES_PER_SEGMENT blocks of a minute each is replaced by one in which the same minutes are packed
 * (rename(2), so that a reader, and a kill, finds the one or the other). The oldest segments are removed when
 * all take more than history.max_size, or when history.max_age was recorded after them: by order
 * alone, no clock that is set removes one. What could not be written is tried again with the next
 * minute; beyond BACKLOG_BYTES the oldest is given up and counted, and the numbers of the minutes show
 * the gap to a reader.
 *
 *     sums ── block ──▶ pending ── file_writer_put ──▶ backlog ── append, fdatasync ──▶ segment
 *     (event loop)                                     (thread)
 */
#include "daemon/service/minutes/minute_log.h"

#include "daemon/engine/base/log.h"
#include "daemon/engine/base/paths.h"
#include "daemon/service/health/file_writer.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/incident/incident.h"
#include "lib/minutes/minute_file.h"
#include "lib/rules/metric.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".minutes"

/* An hour: what one damaged file costs at most, and 720 files a month. */
#define MINUTES_PER_SEGMENT 60u

/* A damaged block costs a quarter of an hour; names, once in each, are a tenth of what rows take. */
#define MINUTES_PER_BLOCK 15u

/* Of minutes that wait for a disk: an hour of 300 targets. */
#define BACKLOG_BYTES ((size_t)1 << 20)

#define PATIENCE_NS NS_PER_S /* for the thread, when its last text is written */
#define HAND_OVER_NS NS_PER_S

/* ---- segments: the thread's half ---- */

struct segment {
	uint64_t number, bytes, period_ns;
};

struct segments {
	char *directory;
	int dirfd;            /* -1: not open */
	int lockfd;           /* one daemon writes here */
	struct segment *list; /* ascending */
	size_t count, cap;
	size_t blocks; /* of the last one, if it can be appended to */
	bool open;     /* it can */
	struct buffer backlog;
	uint64_t period_ns; /* of a minute */
	_Atomic uint64_t max_bytes, max_age_ns;
	/* for the event loop */
	_Atomic uint64_t bytes, files, written, lost, waiting, torn_bytes, removed;
};

static void segments_close(struct segments *segments)
{
	if (segments->dirfd >= 0)
		close(segments->dirfd);
	if (segments->lockfd >= 0)
		close(segments->lockfd);
	segments->dirfd = segments->lockfd = -1;
	segments->count = 0;
	segments->open = false;
}

static void segments_free(void *ctx)
{
	struct segments *segments = ctx;

	segments_close(segments);
	buffer_release(&segments->backlog);
	free(segments->list);
	free(segments->directory);
	free(segments);
}

#define SEGMENT_NAME_MAX 40

static const char *segment_name(uint64_t number, char buf[SEGMENT_NAME_MAX])
{
	snprintf(buf, SEGMENT_NAME_MAX, "%010llu" SUFFIX, (unsigned long long)number);
	return buf;
}

/* False: the name is not that of a segment. */
static bool segment_number(const char *name, uint64_t *ret)
{
	char again[SEGMENT_NAME_MAX];
	unsigned long long number;

	if (sscanf(name, "%19llu" SUFFIX, &number) != 1 || strcmp(name, segment_name(number, again)) != 0)
		return false;
	*ret = number;
	return true;
}

static int add_segment(struct segments *segments, uint64_t number, uint64_t bytes, uint64_t period_ns)
{
	int r = vector_reserve(&segments->list, &segments->cap, segments->count + 1, sizeof(*segments->list));

	if (r == 0)
		segments->list[segments->count++] = (struct segment){ number, bytes, period_ns };
	return r;
}

/* For directory_list_each. A replacement that was not finished is removed. */
static int find_segment(void *ctx, const char *name)
{
	struct segments *segments = ctx;
	size_t len = strlen(name);
	struct stat st;
	uint64_t number;

	if (name[0] == '.' && len > 4 && strcmp(name + len - 4, ".tmp") == 0 && strstr(name, SUFFIX))
		unlinkat(segments->dirfd, name, 0);
	if (!segment_number(name, &number) || fstatat(segments->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		return 0;
	/* Taken as full: only the last one is not. */
	return add_segment(segments, number, (uint64_t)st.st_size, MINUTES_PER_SEGMENT * segments->period_ns);
}

static int compare_segments(const void *a, const void *b)
{
	uint64_t x = ((const struct segment *)a)->number, y = ((const struct segment *)b)->number;

	return x < y ? -1 : x > y;
}

/* The whole blocks of a segment, in order. {0} is empty. */
struct block_list {
	struct minute_block *blocks;
	size_t count, cap;
};

static void block_list_release(struct block_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		minute_block_release(&list->blocks[i]);
	free(list->blocks);
}

static int scan_blocks(struct minute_scan *scan, struct block_list *list)
{
	struct minute_block block;
	int r;

	while ((r = minute_block_next(scan, &block)) == 0 || r == MINUTE_DAMAGED) {
		if (r == MINUTE_DAMAGED)
			continue;
		r = vector_reserve(&list->blocks, &list->cap, list->count + 1, sizeof(*list->blocks));
		if (r < 0) {
			minute_block_release(&block);
			break;
		}
		list->blocks[list->count++] = block;
	}
	return r < 0 ? r : 0;
}

/* What a daemon that was killed was writing is cut off; a full segment is left as it is. */
static int resume_last(struct segments *segments)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	AUTO(block_list_release) struct block_list list = { 0 };
	AUTO_CLOSE int fd = -1;
	struct segment *last = &segments->list[segments->count - 1];
	struct minute_scan scan = { 0 };
	char name[SEGMENT_NAME_MAX];
	bool packed;
	int r = whole_file_read(segments->dirfd, segment_name(last->number, name), &text);

	if (r < 0)
		return r;
	scan.data = text.data;
	scan.len = text.len;
	r = scan_blocks(&scan, &list);
	if (r < 0)
		return r;
	packed = list.count > 0 && list.blocks[0].packed;
	last->period_ns = scan.period_ns;
	segments->blocks = scan.blocks;
	segments->open = !packed && scan.blocks < MINUTES_PER_SEGMENT;
	if (scan.whole == scan.len || packed)
		return 0;
	fd = openat(segments->dirfd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || ftruncate(fd, (off_t)scan.whole) < 0)
		return -errno;
	last->bytes = scan.whole;
	atomic_fetch_add(&segments->torn_bytes, scan.len - scan.whole);
	return 0;
}

static int open_segments(struct segments *segments)
{
	int r = directory_tree_make(segments->directory);

	if (r < 0)
		return r;
	segments->dirfd = open(segments->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (segments->dirfd < 0)
		return -errno;
	r = lock_file_take(segments->dirfd, PATHS_LOCK, &segments->lockfd);
	if (r < 0)
		return r;
	r = directory_list_each(segments->dirfd, find_segment, segments);
	if (r < 0)
		return r;
	if (segments->count == 0)
		return 0;
	qsort(segments->list, segments->count, sizeof(*segments->list), compare_segments);
	return resume_last(segments);
}

/* All of it or nothing, as far as the disk allows to take it back: what is torn is cut by the next start. */
static int append_text(int fd, const char *data, size_t len)
{
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : sink_write_all(fd, data, len);

	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	if (r < 0 && ftruncate(fd, st.st_size) < 0)
		return r;
	return r;
}

static int append_backlog(struct segments *segments)
{
	AUTO_CLOSE int fd = -1;
	struct minute_scan scan = { .data = segments->backlog.data,
				    .len = segments->backlog.len,
				    .from = { UINT64_MAX } };
	struct segment *last;
	struct minute_block none;
	char name[SEGMENT_NAME_MAX];
	int r = 0;

	if (!segments->open)
		r = add_segment(segments, segments->count ? segments->list[segments->count - 1].number + 1 : 1, 0, 0);
	if (r < 0)
		return r;
	if (!segments->open)
		segments->blocks = 0;
	segments->open = true;
	last = &segments->list[segments->count - 1];
	fd = openat(segments->dirfd, segment_name(last->number, name),
		    O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
	r = fd < 0 ? -errno : append_text(fd, segments->backlog.data, segments->backlog.len);
	if (r < 0)
		return r;
	minute_block_next(&scan, &none); /* counts them */
	last->bytes += segments->backlog.len;
	last->period_ns += scan.period_ns;
	segments->blocks += scan.blocks;
	atomic_fetch_add(&segments->written, scan.minutes);
	segments->backlog.len = 0;
	return 0;
}

/* The minutes of all blocks, in blocks of MINUTES_PER_BLOCK. */
static int pack_blocks(const struct block_list *list, struct buffer *text)
{
	struct minute minutes[MINUTES_PER_BLOCK];
	size_t gathered = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < list->count; i++) {
		for (size_t m = 0; r == 0 && m < list->blocks[i].count; m++) {
			minutes[gathered++] = list->blocks[i].minutes[m];
			if (gathered < MINUTES_PER_BLOCK)
				continue;
			r = minute_block_write(minutes, gathered, true, text);
			gathered = 0;
		}
	}
	return r == 0 && gathered > 0 ? minute_block_write(minutes, gathered, true, text) : r;
}

/* A segment that is damaged is not packed: the damage would no longer be seen. */
static int pack_last(struct segments *segments)
{
	AUTO(buffer_release) struct buffer text = { 0 }, packed = { 0 };
	struct segment *last = &segments->list[segments->count - 1];
	AUTO(block_list_release) struct block_list list = { 0 };
	struct minute_scan scan = { 0 };
	char name[SEGMENT_NAME_MAX];
	int r = whole_file_read(segments->dirfd, segment_name(last->number, name), &text);

	if (r < 0)
		return r;
	scan.data = text.data;
	scan.len = text.len;
	r = scan_blocks(&scan, &list);
	if (r == 0 && scan.damaged == 0)
		r = pack_blocks(&list, &packed);
	if (r < 0 || packed.len == 0)
		return r;
	r = whole_file_replace(segments->dirfd, name, packed.data, packed.len, WHOLE_FILE_DURABLE);
	if (r == 0)
		last->bytes = packed.len;
	return r;
}

static bool is_over(const struct segments *segments, uint64_t bytes, uint64_t period_ns)
{
	return segments->count > 1 && (bytes > atomic_load(&segments->max_bytes) ||
				       period_ns - segments->list[0].period_ns >= atomic_load(&segments->max_age_ns));
}

static void enforce_limits(struct segments *segments)
{
	uint64_t bytes = 0, period_ns = 0;
	char name[SEGMENT_NAME_MAX];

	for (size_t i = 0; i < segments->count; i++) {
		bytes += segments->list[i].bytes;
		period_ns += segments->list[i].period_ns;
	}
	while (is_over(segments, bytes, period_ns)) {
		if (unlinkat(segments->dirfd, segment_name(segments->list[0].number, name), 0) < 0 && errno != ENOENT)
			break;
		bytes -= segments->list[0].bytes;
		period_ns -= segments->list[0].period_ns;
		segments->count--;
		memmove(segments->list, segments->list + 1, segments->count * sizeof(*segments->list));
		atomic_fetch_add(&segments->removed, 1);
	}
	atomic_store(&segments->bytes, bytes);
	atomic_store(&segments->files, segments->count);
}

/* Without memory to look at it: all that waits. */
static void give_up_oldest(struct segments *segments)
{
	struct buffer *backlog = &segments->backlog;
	struct minute_scan scan = { .data = backlog->data, .len = backlog->len };
	struct minute_block block;

	if (minute_block_next(&scan, &block) < 0) {
		atomic_fetch_add(&segments->lost, atomic_load(&segments->waiting));
		scan.at = backlog->len;
	}
	minute_block_release(&block);
	atomic_fetch_add(&segments->lost, scan.minutes);
	backlog->len -= scan.at;
	memmove(backlog->data, backlog->data + scan.at, backlog->len);
}

/* Adds blocks to what waits, and gives up the oldest if that is too much. */
static int keep_for_later(struct segments *segments, const struct buffer *text)
{
	struct buffer *backlog = &segments->backlog;
	struct minute_scan scan = { .from = { UINT64_MAX } };
	struct minute_block none;
	int r;

	while (backlog->len > 0 && backlog->len + text->len > BACKLOG_BYTES)
		give_up_oldest(segments);
	r = buffer_append(backlog, text->data, text->len);
	scan.data = r == 0 ? backlog->data : text->data;
	scan.len = r == 0 ? backlog->len : text->len;
	minute_block_next(&scan, &none);
	if (r < 0)
		atomic_fetch_add(&segments->lost, scan.minutes);
	else
		atomic_store(&segments->waiting, scan.minutes);
	return r;
}

/* For file_writer_options: a text of whole blocks of a minute each. */
static int write_segments(void *ctx, const struct buffer *text)
{
	struct segments *segments = ctx;
	int r = keep_for_later(segments, text);

	if (r == 0 && segments->dirfd < 0)
		r = open_segments(segments);
	if (r == 0)
		r = append_backlog(segments);
	if (r < 0) {
		segments_close(segments); /* looked at anew: it may have been removed, or mounted over */
		return r;
	}
	atomic_store(&segments->waiting, 0);
	if (segments->blocks >= MINUTES_PER_SEGMENT) {
		r = pack_last(segments);
		segments->open = false;
	}
	enforce_limits(segments);
	return r;
}

/* ---- sums: the event loop's half ---- */

#define TENTHS 10u
#define TENTH_NS (100 * NS_PER_MS)
#define PEAK_NS (TENTHS * TENTH_NS)

/* Looks that are further apart than this were not one after the other: there was a hole. */
#define APART_NS (2 * NS_PER_S)

#define WRITERS_MAX 16u

/* CPU time of the last second, in tenths. */
struct second {
	uint64_t tenth; /* the last one that has a place */
	uint32_t used_us[TENTHS];
	uint64_t sum_us;
};

/* What a minute has of a target so far. */
struct sums {
	mono_t from; /* watched since then, within the minute */
	uint64_t cpu_ns, throttled_ns, periods, throttled_periods;
	uint64_t peak_us; /* in a second */
	uint64_t memory_bytes;
};

struct watched {
	struct map_node node; /* by id */
	uint32_t id, writer;
	unsigned kind;
	char *name; /* entry and comm stand behind its NUL */
	bool seen;
	mono_t at; /* of the last sample */
	struct sample last;
	struct second second;
	struct sums sums;
};

/* A row and the target that it is of. */
struct entry {
	struct minute_row row;
	uint32_t id;
	bool incident;
	char *name; /* owned, of a target that has ended; else NULL */
};

struct noted_incident {
	uint32_t target;
	char id[INCIDENT_NAME_MAX + 1];
};

struct writer_clock {
	mono_t tick, before; /* this tick's time, and that of the one before */
};

struct minute_log {
	struct file_writer *writer;
	struct segments *segments; /* the writer's */
	char *directory;
	bool enabled;
	uint32_t max_targets;
	uint64_t period_ns;
	struct map watched;
	struct writer_clock clocks[WRITERS_MAX];
	uint32_t writers;
	uint64_t idle_ns;
	mono_t tick; /* the last one of any writer */
	bool ticked, gap;
	/* the minute */
	bool begun;
	wall_t begin;
	mono_t from;
	uint64_t unsampled_ns, number;
	struct entry *ended;
	size_t ended_count, ended_cap;
	struct minute_row others; /* of those that have ended and found no place in that list */
	struct noted_incident *incidents;
	size_t incident_count, incident_cap;
	/* on its way to the thread */
	struct buffer pending;
	uint64_t pending_minutes, dropped;
	mono_t handed_over;
	int error; /* of the last text whose result is known */
};

static struct watched *find_watched(const struct minute_log *log, uint32_t id)
{
	for (struct map_node *node = map_first(&log->watched, id); node; node = map_next(node)) {
		struct watched *watched = MAP_ENTRY(node, struct watched, node);

		if (watched->id == id)
			return watched;
	}
	return NULL;
}

static void free_watched(struct minute_log *log, struct watched *watched)
{
	map_remove(&log->watched, &watched->node);
	free(watched->name);
	free(watched);
}

/* Moves on to another tenth; the second that ends with each one passed is compared. */
static void second_advance(struct second *second, struct sums *sums, uint64_t tenth)
{
	while (second->tenth < tenth && second->sum_us > 0) {
		uint32_t *oldest;

		if (second->sum_us > sums->peak_us)
			sums->peak_us = second->sum_us;
		oldest = &second->used_us[++second->tenth % TENTHS];
		second->sum_us -= *oldest;
		*oldest = 0;
	}
	if (second->tenth < tenth)
		second->tenth = tenth;
}

/* Spreads CPU time evenly over (from, to]. */
static void second_add(struct second *second, struct sums *sums, mono_t from, mono_t to, uint64_t cpu_ns)
{
	uint64_t last = to.ns / TENTH_NS, first = from.ns / TENTH_NS, length = to.ns - from.ns;

	if (cpu_ns == 0)
		return;
	/* Longer ago than a second does not matter for the second that ends now; it had the same rate. */
	first = last - first > TENTHS ? last - TENTHS : first;
	for (uint64_t tenth = first; tenth <= last; tenth++) {
		uint64_t begin = tenth * TENTH_NS, end = begin + TENTH_NS;
		uint64_t inside = (to.ns < end ? to.ns : end) - (from.ns > begin ? from.ns : begin);
		uint64_t us = length > 0 ? (uint64_t)((double)cpu_ns * ((double)inside / (double)length)) / NS_PER_US
					 : cpu_ns / NS_PER_US;

		second_advance(second, sums, tenth);
		second->used_us[tenth % TENTHS] += (uint32_t)us;
		second->sum_us += us;
	}
}

/* How far a counter has come; one that steps back has begun again. */
static uint64_t counted(const struct sample *from, const struct sample *to, enum sample_field field)
{
	return sample_has(from, field) && sample_has(to, field) && to->value[field] > from->value[field]
		       ? to->value[field] - from->value[field]
		       : 0;
}

/* When the target was looked at before a sample: one that does not run has no sample in a tick. */
static mono_t looked_before(const struct minute_log *log, const struct watched *watched)
{
	mono_t before = log->clocks[watched->writer].before;

	return watched->kind == TARGET_PROCESS && log->idle_ns == 0 && before.ns > watched->at.ns ? before
												  : watched->at;
}

static void add_sample(struct minute_log *log, struct watched *watched, mono_t at, const struct sample *sample)
{
	struct sums *sums = &watched->sums;
	mono_t before = looked_before(log, watched);
	double part = 1;
	uint64_t cpu_ns, memory = metric_peak(&watched->last, sample);

	if (at.ns <= before.ns) {
		before = at;
	} else if (at.ns - before.ns > APART_NS && before.ns < log->from.ns) {
		part = at.ns > log->from.ns ? (double)(at.ns - log->from.ns) / (double)(at.ns - before.ns) : 0;
		before = log->from.ns < at.ns ? log->from : at;
	}
	cpu_ns = (uint64_t)(part * (double)counted(&watched->last, sample, SAMPLE_CPU));
	second_add(&watched->second, sums, before, at, cpu_ns);
	sums->cpu_ns += cpu_ns;
	sums->throttled_ns += (uint64_t)(part * (double)counted(&watched->last, sample, SAMPLE_THROTTLED));
	sums->periods += counted(&watched->last, sample, SAMPLE_PERIODS);
	sums->throttled_periods += counted(&watched->last, sample, SAMPLE_THROTTLED_PERIODS);
	if (memory > sums->memory_bytes)
		sums->memory_bytes = memory;
}

static void on_sample(struct minute_log *log, const struct ring_event *event)
{
	struct watched *watched = find_watched(log, event->id);

	if (!watched)
		return;
	watched->writer = event->writer % WRITERS_MAX;
	if (watched->seen) {
		add_sample(log, watched, event->time, event->sample);
	} else {
		watched->seen = true;
		watched->sums.from = event->time.ns > log->from.ns ? event->time : log->from;
		watched->sums.memory_bytes = metric_peak(event->sample, event->sample);
	}
	watched->at = event->time;
	watched->last = *event->sample;
}

static char *join_names(const struct target *target)
{
	const char *comm = target->kind == TARGET_PROCESS ? target->comm : "";
	size_t a = strlen(target->name) + 1, b = strlen(target->entry) + 1, c = strlen(comm) + 1;
	char *text = malloc(a + b + c);

	if (text) {
		memcpy(text, target->name, a);
		memcpy(text + a, target->entry, b);
		memcpy(text + a + b, comm, c);
	}
	return text;
}

static void on_target(struct minute_log *log, const struct ring_event *event)
{
	struct watched *watched = find_watched(log, event->id);
	char *name = join_names(&event->target);

	if (!name)
		return;
	if (!watched) {
		watched = map_reserve(&log->watched, log->watched.count + 1) == 0 ? calloc(1, sizeof(*watched)) : NULL;
		if (!watched) {
			free(name);
			return;
		}
		watched->id = event->id;
		map_insert(&log->watched, &watched->node, event->id);
	}
	free(watched->name);
	watched->name = name;
	watched->kind = event->target.kind;
}

/* Of what was seen of it up to `until`. */
static struct entry entry_of(struct watched *watched, mono_t until)
{
	struct sums *sums = &watched->sums;
	struct entry entry = { .id = watched->id };
	const char *configured = watched->name + strlen(watched->name) + 1;

	second_advance(&watched->second, sums, until.ns / TENTH_NS);
	if (watched->second.sum_us > sums->peak_us)
		sums->peak_us = watched->second.sum_us;
	entry.row = (struct minute_row){
		.kind = watched->kind,
		.name = watched->name,
		.entry = configured,
		.comm = configured + strlen(configured) + 1,
		.has_cpu = sample_has(&watched->last, SAMPLE_CPU),
		.has_memory = sample_has(&watched->last, SAMPLE_MEMORY),
		.cpu_ns = sums->cpu_ns,
		.cpu_peak_milli = (uint32_t)(sums->peak_us * NS_PER_US * 1000 / PEAK_NS),
		.memory_bytes = sums->memory_bytes,
		.throttled_ns = sums->throttled_ns,
		.throttled_permille = sums->periods ? (uint32_t)(sums->throttled_periods * 1000 / sums->periods) : 0,
		.seen_ns = until.ns > sums->from.ns ? until.ns - sums->from.ns : 0,
		.targets = 1,
	};
	return entry;
}

static void add_to_others(struct minute_row *others, const struct minute_row *row)
{
	others->has_cpu |= row->has_cpu;
	others->has_memory |= row->has_memory;
	others->cpu_ns += row->cpu_ns;
	others->memory_bytes += row->memory_bytes;
	others->throttled_ns += row->throttled_ns;
	if (row->cpu_peak_milli > others->cpu_peak_milli)
		others->cpu_peak_milli = row->cpu_peak_milli;
	if (row->throttled_permille > others->throttled_permille)
		others->throttled_permille = row->throttled_permille;
	others->targets += row->targets;
}

static bool has_incident(const struct minute_log *log, uint32_t target)
{
	for (size_t i = 0; i < log->incident_count; i++)
		if (log->incidents[i].target == target)
			return true;
	return false;
}

static int compare_cpu(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->incident != y->incident)
		return x->incident ? -1 : 1;
	return x->row.cpu_ns > y->row.cpu_ns ? -1 : x->row.cpu_ns < y->row.cpu_ns;
}

static int compare_memory(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->row.memory_bytes > y->row.memory_bytes ? -1 : x->row.memory_bytes < y->row.memory_bytes;
}

/*
 * Brings those to the front that are to have a row: what had an incident, three quarters by CPU time,
 * the rest by memory. The others are summed, and their names freed.
 */
static size_t choose(const struct minute_log *log, struct entry *entries, size_t count, struct minute_row *others)
{
	size_t max = log->max_targets, by_cpu = max - max / 4;

	if (count <= max)
		return count;
	for (size_t i = 0; i < count; i++)
		entries[i].incident = has_incident(log, entries[i].id);
	qsort(entries, count, sizeof(*entries), compare_cpu);
	qsort(entries + by_cpu, count - by_cpu, sizeof(*entries), compare_memory);
	for (size_t i = max; i < count; i++) {
		add_to_others(others, &entries[i].row);
		free(entries[i].name);
	}
	return max;
}

static void on_gone(struct minute_log *log, const struct ring_event *event)
{
	struct watched *watched = find_watched(log, event->id);

	if (!watched)
		return;
	/* Room for four times as many rows as a minute has, then the smallest give way. */
	if (log->ended_count >= 4 * (size_t)log->max_targets)
		log->ended_count = choose(log, log->ended, log->ended_count, &log->others);
	if (watched->seen && log->begun &&
	    vector_reserve(&log->ended, &log->ended_cap, log->ended_count + 1, sizeof(*log->ended)) == 0) {
		struct entry *entry = &log->ended[log->ended_count++];

		*entry = entry_of(watched, event->time);
		entry->name = TAKE(watched->name);
	}
	free_watched(log, watched);
}

/* ---- a minute ends ---- */

static void drop_minute(struct minute_log *log)
{
	for (size_t i = 0; i < log->ended_count; i++)
		free(log->ended[i].name);
	log->ended_count = 0;
	log->incident_count = 0;
	log->others = (struct minute_row){ 0 };
	log->unsampled_ns = 0;
	log->begun = false;
}

/* The rows of all targets, those that have ended too. */
static struct entry *gather(struct minute_log *log, mono_t end, size_t *ret)
{
	struct entry *entries = calloc(log->watched.count + log->ended_count + 1, sizeof(*entries));
	size_t count = 0;

	MAP_FOR_EACH(node, &log->watched) {
		struct watched *watched = MAP_ENTRY(node, struct watched, node);

		if (entries && watched->seen)
			entries[count++] = entry_of(watched, end);
	}
	if (!entries)
		return NULL;
	if (log->ended_count > 0)
		memcpy(entries + count, log->ended, log->ended_count * sizeof(*entries));
	*ret = count + log->ended_count;
	log->ended_count = 0; /* their names are in the list now */
	return entries;
}

static uint32_t row_of(const struct entry *entries, size_t count, uint32_t id)
{
	for (size_t i = 0; id != 0 && i < count; i++)
		if (entries[i].id == id)
			return (uint32_t)i;
	return MINUTE_NO_ROW;
}

static int write_minute(struct minute_log *log, const struct entry *entries, size_t count, mono_t end)
{
	AUTO_FREE struct minute_row *rows = calloc(count + 1, sizeof(*rows));
	AUTO_FREE struct minute_incident *incidents = calloc(log->incident_count + 1, sizeof(*incidents));
	uint64_t span_ns = end.ns > log->from.ns ? end.ns - log->from.ns : 0;
	struct minute minute = {
		.begin = log->begin,
		.period_ns = log->period_ns,
		.peak_ns = PEAK_NS,
		.span_ns = span_ns,
		.unsampled_ns = log->unsampled_ns < span_ns ? log->unsampled_ns : span_ns,
		.number = log->number,
		.rows = rows,
		.row_count = count,
		.incidents = incidents,
		.incident_count = log->incident_count,
	};

	if (!rows || !incidents)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		rows[i] = entries[i].row;
	if (log->others.targets > 0) {
		rows[minute.row_count] = log->others;
		rows[minute.row_count].kind = MINUTE_OTHERS;
		rows[minute.row_count].name = rows[minute.row_count].entry = rows[minute.row_count].comm = "";
		rows[minute.row_count++].seen_ns = span_ns;
	}
	for (size_t i = 0; i < log->incident_count; i++) {
		incidents[i].id = log->incidents[i].id;
		incidents[i].row = row_of(entries, count, log->incidents[i].target);
	}
	return minute_block_write(&minute, 1, false, &log->pending);
}

static void end_minute(struct minute_log *log)
{
	size_t count = 0;
	AUTO_FREE struct entry *entries = gather(log, log->tick, &count);
	int r = -ENOMEM;

	if (entries) {
		count = choose(log, entries, count, &log->others);
		r = log->pending.len < BACKLOG_BYTES ? write_minute(log, entries, count, log->tick) : -ENOBUFS;
	}
	if (r == 0)
		log->pending_minutes++;
	else
		log->dropped++;
	for (size_t i = 0; entries && i < count; i++)
		free(entries[i].name);
	log->number++;
	drop_minute(log);
}

static void note_result(struct minute_log *log, int result)
{
	if (result < 0 && log->error == 0)
		log_line(LOG_WARNING, "cannot write the history to %s: %s. Minutes are kept for another try.",
			 log->directory, strerror(-result));
	else if (result == 0 && log->error < 0)
		log_line(LOG_NOTICE, "the history is written again");
	log->error = result;
}

static void hand_over(struct minute_log *log, mono_t now)
{
	int r;

	if (log->pending.len == 0 || mono_diff(now, log->handed_over) < (int64_t)HAND_OVER_NS)
		return;
	log->handed_over = now;
	r = file_writer_result(log->writer);
	if (r == FILE_WRITER_BUSY)
		return;
	note_result(log, r);
	file_writer_put(log->writer, &log->pending);
	log->pending_minutes = 0;
}

/* ---- time ---- */

static void begin_minute(struct minute_log *log, wall_t wall, mono_t now)
{
	bool follows = log->ticked && mono_diff(now, log->tick) <= (int64_t)APART_NS;

	log->begun = true;
	log->begin.ns = wall.ns - wall.ns % log->period_ns;
	log->from = follows ? log->tick : now;
	MAP_FOR_EACH(node, &log->watched) {
		struct watched *watched = MAP_ENTRY(node, struct watched, node);
		bool known = sample_has(&watched->last, SAMPLE_MEMORY);

		watched->sums = (struct sums){ .from = log->from,
					       .memory_bytes = known ? watched->last.value[SAMPLE_MEMORY] : 0 };
	}
}

static void on_tick(struct minute_log *log, const struct ring_event *event)
{
	struct writer_clock *clock = &log->clocks[event->writer % WRITERS_MAX];

	if (log->begun && event->wall.ns - event->wall.ns % log->period_ns != log->begin.ns)
		end_minute(log);
	if (!log->begun && log->enabled)
		begin_minute(log, event->wall, event->time);
	if (log->gap && log->ticked && event->time.ns > log->tick.ns)
		log->unsampled_ns += event->time.ns - (log->tick.ns > log->from.ns ? log->tick.ns : log->from.ns);
	log->gap = false;
	clock->before = clock->tick;
	clock->tick = event->time;
	if (event->writer >= log->writers)
		log->writers = event->writer + 1;
	log->idle_ns = event->idle_ns;
	if (!log->ticked || event->time.ns > log->tick.ns)
		log->tick = event->time;
	log->ticked = true;
	hand_over(log, event->time);
}

/* Each of several writers samples its part of the targets. */
static void on_hole(struct minute_log *log, const struct sampling_hole *hole)
{
	mono_t from = hole->from.ns > log->from.ns ? hole->from : log->from;

	if (hole->to.ns > from.ns && hole->missed_slots > 0)
		log->unsampled_ns += (uint64_t)((double)(hole->to.ns - from.ns) * (double)hole->missed_slots /
						(double)(hole->missed_slots + 1)) /
				     (log->writers ? log->writers : 1);
}

void minute_log_event(struct minute_log *log, const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_SAMPLE:
		on_sample(log, event);
		break;
	case RING_EVENT_TICK:
		on_tick(log, event);
		break;
	case RING_EVENT_HOLE:
		on_hole(log, &event->hole);
		break;
	case RING_EVENT_TARGET:
		on_target(log, event);
		break;
	case RING_EVENT_GONE:
		on_gone(log, event);
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		log->gap = true;
		break;
	case RING_EVENT_TICK_END:
		break;
	}
}

void minute_log_incident(struct minute_log *log, uint32_t target, const char *id)
{
	struct noted_incident *noted;

	if (!log->begun ||
	    vector_reserve(&log->incidents, &log->incident_cap, log->incident_count + 1, sizeof(*log->incidents)) < 0)
		return;
	noted = &log->incidents[log->incident_count++];
	noted->target = target;
	snprintf(noted->id, sizeof(noted->id), "%s", id);
}

/* ---- the whole ---- */

void minute_log_reload(struct minute_log *log, const struct config *config)
{
	atomic_store(&log->segments->max_bytes, config->history.max_bytes);
	atomic_store(&log->segments->max_age_ns, config->history.max_age_ns);
	log->max_targets = config->history.max_targets;
	if (log->begun && !config->history.enabled)
		end_minute(log);
	log->enabled = config->history.enabled;
}

void minute_log_state(const struct minute_log *log, struct minute_log_state *ret)
{
	const struct segments *segments = log->segments;
	int r = file_writer_result(log->writer);

	*ret = (struct minute_log_state){
		.enabled = log->enabled,
		.error = r == FILE_WRITER_BUSY ? log->error : r,
		.bytes = atomic_load(&segments->bytes),
		.files = atomic_load(&segments->files),
		.written = atomic_load(&segments->written),
		.lost = atomic_load(&segments->lost) + log->dropped,
		.waiting = atomic_load(&segments->waiting) + log->pending_minutes,
		.torn_bytes = atomic_load(&segments->torn_bytes),
		.removed = atomic_load(&segments->removed),
	};
}

int minute_log_open(const char *directory, const struct config *config, struct minute_log **ret)
{
	struct minute_log *log = calloc(1, sizeof(*log));
	struct segments *segments = calloc(1, sizeof(*segments));
	struct file_writer_options options = {
		.patience_ns = PATIENCE_NS, .write = write_segments, .release = segments_free, .ctx = segments
	};
	int r = -ENOMEM;

	if (segments)
		segments->dirfd = segments->lockfd = -1;
	if (log && segments) {
		segments->directory = strdup(directory);
		log->directory = strdup(directory);
		log->segments = segments;
		log->period_ns = config->minute_ns ? config->minute_ns : 60 * NS_PER_S;
		segments->period_ns = log->period_ns;
		minute_log_reload(log, config);
		if (segments->directory && log->directory)
			r = file_writer_new(directory, &options, &log->writer);
	}
	if (r < 0) {
		if (segments)
			segments_free(segments);
		if (log)
			free(log->directory);
		free(log);
		return r;
	}
	*ret = log;
	return 0;
}

void minute_log_close(struct minute_log *log, mono_t until)
{
	int r;

	if (!log)
		return;

	if (log->begun)
		end_minute(log);
	file_writer_wait(log->writer, until);
	log->handed_over = (mono_t){ 0 };
	hand_over(log, mono_add(log->tick, HAND_OVER_NS));
	r = file_writer_wait(log->writer, until);
	if (r != 0 || log->pending.len > 0)
		log_line(LOG_WARNING, "the last minutes of the history could not be written to %s: %s", log->directory,
			 strerror(r == FILE_WRITER_BUSY || r == 0 ? ETIMEDOUT : -r));
	file_writer_free(log->writer);
	while (log->watched.count > 0)
		free_watched(log, MAP_ENTRY(map_visit(&log->watched, NULL), struct watched, node));
	map_release(&log->watched);
	for (size_t i = 0; i < log->ended_count; i++)
		free(log->ended[i].name);
	free(log->ended);
	free(log->incidents);
	buffer_release(&log->pending);
	free(log->directory);
	free(log);
}
