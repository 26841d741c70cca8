/*
 * stack_snapshot.c: what the rings hold of a span of time.
 *
 * 	each kind, each CPU: pause, copy, resume │ keep what is of the span │ look up what was hit │
 * 	side-band records of those processes │ their files
 *
 * A ring is paused only while it is copied, into memory that was touched before. Samples take three
 * quarters of what is allowed at most, so that there is room for the side-band records. Call chains
 * go first, they are small; of what is left, each ring may fill an equal part. Of stacks only what
 * the kernel could read is kept, not the room behind it. Where samples do not say their period, it
 * is put in: of page faults, what one stands for by now.
 *
 * Files are sorted, as not all of them will be opened. One that no chain went through counts by the
 * stacks that may lead into it. An address is looked up once per page and lifetime of a process, in
 * a cache that forgets what collides. The history is locked for one sample at a time, so that the
 * thread of the side-band rings never waits long.
 *
 * Cgroups are read while the processes run; one that has ended was most likely in that of its
 * parent, which is where fork(2) puts it. With both hierarchies mounted ("hybrid") the cpu
 * controller may be in either: where it is not in v2, all processes are in the root of that.
 */
#include "daemon/engine/stacks/stack_recorder.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/stacks/stack_source.h"
#include "lib/base/map.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES ((size_t)64 << 20)
#define SIDEBAND_RECORD_MAX 16384 /* a path of 4,096 and what is around it */
#define CGROUP_TEXT_MAX 16384     /* a dozen hierarchies, of paths of up to PATH_MAX in one or two of them */
#define CGROUP_PATH_MAX 4097

/* What a followed thread's stack counts when files are sorted: there may be hundreds of others. */
#define FOLLOWED_STACK 16u

/* The order in which kinds get what room there is. */
static const enum stack_file_stream_kind order[] = { STACK_FILE_CPU, STACK_FILE_CPU_FOLLOWED, STACK_FILE_FAULTS,
						     STACK_FILE_FAULTS_FOLLOWED };

/* ---- cgroups ---- */

/* Whether a list like "cpu,cpuacct" has this name. */
static bool has_controller(const struct procfs_cgroup *line, const char *name)
{
	size_t name_len = strlen(name), at = 0;

	while (at < line->controllers_len) {
		const char *item = line->controllers + at;
		const char *comma = memchr(item, ',', line->controllers_len - at);
		size_t len = comma != NULL ? (size_t)(comma - item) : line->controllers_len - at;

		if (len == name_len && memcmp(item, name, len) == 0)
			return true;
		at += len + 1;
	}
	return false;
}

/*
 * The cgroup that stands for a process, in the text of /proc/<pid>/cgroup: that of the v2
 * hierarchy, unless there is none or it is the root; else the cpu controller's, else "/".
 * Terminated. False: no cgroups, or longer than cap.
 */
static bool parse_cgroup(const char *text, size_t len, char *path, size_t cap)
{
	struct procfs_cgroup line, best = { .path_len = 0 };
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line) > 0) {
		bool unified = line.controllers_len == 0;

		if (unified && line.path_len > 1) {
			best = line;
			break;
		}
		/* That of the cpu controller goes before the root of v2, whichever comes first. */
		if (has_controller(&line, "cpu") || (unified && best.path_len == 0))
			best = line;
	}
	if (best.path_len == 0 || best.path_len >= cap)
		return false;
	memcpy(path, best.path, best.path_len);
	path[best.path_len] = '\0';
	return true;
}

/* How far the process that one was forked from is looked for, among those that have ended. */
#define ANCESTORS_MAX 32u

/* Whether the cgroups of a process are the roots of all hierarchies. */
static bool is_in_roots(const char *text, size_t len)
{
	struct procfs_cgroup line;
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line) > 0)
		if (line.path_len > 1)
			return false;
	return true;
}

static bool is_exiting(const struct stack_source *source, uint32_t pid)
{
	char text[1024];
	ssize_t len = proc_read_file(source->proc_fd, (int32_t)pid, "stat", text, sizeof(text));
	struct procfs_stat stat;

	return len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.exiting;
}

/*
 * The text of /proc/<pid>/cgroup; of a process that has ended, of the nearest process before it
 * that runs. Its length; 0: not known.
 */
static size_t read_cgroups(const struct stack_source *source, uint32_t pid, uint64_t time_ns, char *text, size_t cap)
{
	for (unsigned i = 0; pid != 0 && i < ANCESTORS_MAX; i++) {
		ssize_t len = proc_read_file(source->proc_fd, (int32_t)pid, "cgroup", text, cap);

		/* Of a process that is exiting, v1 hierarchies say "/". */
		if (len > 0 && (!is_in_roots(text, (size_t)len) || !is_exiting(source, pid)))
			return (size_t)len;
		pthread_mutex_lock(source->lock);
		pid = mapping_history_parent(source->history, pid, time_ns);
		pthread_mutex_unlock(source->lock);
	}
	return 0;
}

/* Whether a line of /proc/<pid>/cgroup has this cgroup, or one below it. */
static bool has_cgroup(const char *text, size_t len, const char *cgroup)
{
	struct procfs_cgroup line;
	size_t offset = 0, cgroup_len = strlen(cgroup);

	while (procfs_cgroup_next(text, len, &offset, &line) > 0)
		if (line.path_len >= cgroup_len && memcmp(line.path, cgroup, cgroup_len) == 0 &&
		    (line.path_len == cgroup_len || line.path[cgroup_len] == '/' || cgroup_len == 1))
			return true;
	return false;
}

int stack_recorder_find_inside(struct stack_recorder *recorder, const char *cgroup,
			       struct stack_recorder_snapshot *snapshot)
{
	const struct stack_source source = stack_source_of(recorder);
	AUTO_FREE char *text = malloc(CGROUP_TEXT_MAX);

	snapshot->inside = calloc(snapshot->pid_count + 1, sizeof(*snapshot->inside));
	if (text == NULL || snapshot->inside == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < snapshot->pid_count; i++) {
		size_t len = read_cgroups(&source, snapshot->pids[i], snapshot->to_ns, text, CGROUP_TEXT_MAX);

		snapshot->inside[i] = has_cgroup(text, len, cgroup);
	}
	return 0;
}

/*
 * The cgroups of snapshot->pids; their paths are appended to snapshot->paths and
 * are resolved by settle_cgroups, when that does not grow any more. 0 or -ENOMEM.
 */
static int look_up_cgroups(const struct stack_source *source, struct stack_recorder_snapshot *snapshot)
{
	char text[CGROUP_TEXT_MAX], path[CGROUP_PATH_MAX];
	int r = 0;

	snapshot->cgroups = calloc(snapshot->pid_count + 1, sizeof(*snapshot->cgroups));
	if (snapshot->cgroups == NULL)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i];
		size_t len = read_cgroups(source, pid, snapshot->to_ns, text, sizeof(text));

		if (len == 0 || !parse_cgroup(text, len, path, sizeof(path)))
			continue;
		r = buffer_append(&snapshot->paths, path, strlen(path) + 1);
		if (r == 0)
			snapshot->cgroups[snapshot->cgroup_count++] = (struct stack_file_cgroup){ .pid = pid };
	}
	return r;
}

/* Their paths are the first texts, in this order. */
static void settle_cgroups(struct stack_recorder_snapshot *snapshot)
{
	const char *at = snapshot->paths.data;

	for (size_t i = 0; i < snapshot->cgroup_count; i++) {
		snapshot->cgroups[i].path = at;
		at += strlen(at) + 1;
	}
}

/* ---- files ---- */

#define CACHE_ENTRIES 4096

/* A file, as long as files are counted. */
struct tallied_file {
	struct map_node node;
	struct stack_recorder_file file;
	size_t path; /* offset in snapshot->paths, which moves while it grows */
	bool running;
};

/* What an address came to. */
struct cached {
	uint64_t page, began_ns;
	uint32_t pid; /* 0: empty */
	struct tallied_file *file;
};

struct file_tally {
	const struct stack_source *source;
	struct stack_recorder_snapshot *snapshot;
	struct cached cache[CACHE_ENTRIES];
	struct map map;
	struct arena arena;
	struct tallied_file **files; /* in the order in which they came */
	size_t count, cap;
};

static bool is_file(const char *path)
{
	return path[0] == '/' && strncmp(path, "//", 2) != 0 && strcmp(path, "/anon_hugepage") != 0;
}

static struct tallied_file *tally_find(const struct file_tally *tally, const struct mapping_history_place *place,
				       uint64_t hash)
{
	for (struct map_node *node = map_first(&tally->map, hash); node != NULL; node = map_next(node)) {
		struct tallied_file *file = MAP_ENTRY(node, struct tallied_file, node);

		if (perf_record_file_same(&file->file.file, &place->file) &&
		    strcmp(tally->snapshot->paths.data + file->path, place->path) == 0)
			return file;
	}
	return NULL;
}

/* 0 or -ENOMEM. */
static int tally_add(struct file_tally *tally, const struct mapping_history_place *place, uint64_t hash,
		     struct tallied_file **ret)
{
	struct buffer *paths = &tally->snapshot->paths;
	struct tallied_file *file = arena_alloc(&tally->arena, sizeof(*file));
	size_t path = paths->len;
	int r = file != NULL ? map_reserve(&tally->map, tally->count + 1) : -ENOMEM;

	if (r == 0)
		r = vector_reserve(&tally->files, &tally->cap, tally->count + 1, sizeof(struct tallied_file *));
	if (r == 0)
		r = buffer_append(paths, place->path, strlen(place->path) + 1);
	if (r < 0)
		return r;
	file->file.file = place->file;
	file->path = path;
	map_insert(&tally->map, &file->node, hash);
	tally->files[tally->count++] = file;
	*ret = file;
	return 0;
}

/* The file of a mapping of pid, found or added. 0 or -ENOMEM. */
static int tally_file(struct file_tally *tally, uint32_t pid, const struct mapping_history_place *place,
		      struct tallied_file **ret)
{
	uint64_t hash = map_hash(place->path, strlen(place->path));
	struct tallied_file *file = tally_find(tally, place, hash);
	int r = file == NULL ? tally_add(tally, place, hash, &file) : 0;

	if (r < 0)
		return r;
	if (file->file.pid == 0 || (place->running && !file->running)) {
		file->file.pid = pid;
		file->file.start = place->start;
		file->file.end = place->end;
		file->running = place->running;
	}
	*ret = file;
	return 0;
}

static int count_frame(struct file_tally *tally, const struct perf_record *sample, uint64_t began_ns, uint64_t address)
{
	uint64_t page = address >> 12;
	struct cached *cached = &tally->cache[(page ^ sample->pid * 2654435761u) % CACHE_ENTRIES];

	if (cached->pid != sample->pid || cached->page != page || cached->began_ns != began_ns) {
		struct mapping_history_place place;
		struct tallied_file *file = NULL;
		int r = 0;

		if (mapping_history_find(tally->source->history, sample->pid, sample->time_ns, address, &place) &&
		    is_file(place.path))
			r = tally_file(tally, sample->pid, &place, &file);
		if (r < 0)
			return r;
		*cached = (struct cached){ page, began_ns, sample->pid, file };
	}
	if (cached->file != NULL)
		cached->file->file.frames++;
	return 0;
}

static int count_sample(struct file_tally *tally, const struct perf_record *sample)
{
	bool user = false;
	uint64_t began_ns;
	int r = 0;

	pthread_mutex_lock(tally->source->lock);
	began_ns = mapping_history_began(tally->source->history, sample->pid, sample->time_ns);
	for (size_t i = 0; r == 0 && i < sample->sample.chain_len; i++) {
		uint64_t address = sample->sample.chain[i];

		if (address >= PERF_CONTEXT_MAX)
			user = address == PERF_CONTEXT_USER;
		else if (user)
			r = count_frame(tally, sample, began_ns, address);
	}
	pthread_mutex_unlock(tally->source->lock);
	return r;
}

/* Counts what files the user frames of samples were in. 0 or -ENOMEM. */
static int tally_samples(struct file_tally *tally, const struct perf_record_format *format,
			 const struct perf_merge *merge)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < merge->count; i++) {
		struct perf_record record;
		size_t size;
		const void *bytes = perf_merge_record(merge, i, &size);

		if (perf_record_decode(format, bytes, size, &record) == 0 && record.type == PERF_RECORD_SAMPLE &&
		    record.pid != 0)
			r = count_sample(tally, &record);
	}
	return r;
}

/* Adds the file of an MMAP2 record, of a process with so many stacks. 0 or -ENOMEM. */
static int tally_mapping(struct file_tally *tally, const struct perf_record *record, uint64_t stacks)
{
	struct mapping_history_place place;
	struct tallied_file *file = NULL;
	int r = 0;

	pthread_mutex_lock(tally->source->lock);
	if (is_file(record->mmap.path) &&
	    mapping_history_find(tally->source->history, record->pid, record->time_ns, record->mmap.start, &place) &&
	    is_file(place.path))
		r = tally_file(tally, record->pid, &place, &file);
	pthread_mutex_unlock(tally->source->lock);
	if (file != NULL)
		file->file.stacks += stacks;
	return r;
}

static int by_use(const void *left, const void *right)
{
	const struct stack_recorder_file *a = left, *b = right;
	uint64_t first = a->frames + a->stacks, second = b->frames + b->stacks;

	return first > second ? -1 : first < second;
}

/* Fills in snapshot->files, sorted: snapshot->paths must not grow any more. 0 or -ENOMEM. */
static int tally_finish(struct file_tally *tally)
{
	struct stack_recorder_snapshot *snapshot = tally->snapshot;

	snapshot->files = calloc(tally->count + 1, sizeof(*snapshot->files));
	if (snapshot->files == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < tally->count; i++) {
		snapshot->files[i] = tally->files[i]->file;
		snapshot->files[i].path = snapshot->paths.data + tally->files[i]->path;
	}
	snapshot->file_count = tally->count;
	qsort(snapshot->files, snapshot->file_count, sizeof(*snapshot->files), by_use);
	return 0;
}

static void tally_free(struct file_tally **tally)
{
	if (*tally == NULL)
		return;
	map_release(&(*tally)->map);
	arena_release(&(*tally)->arena);
	free((*tally)->files);
	free(*tally);
}

struct ring_capture {
	const struct stack_source *source;
	struct stack_recorder_snapshot *snapshot;
	struct perf_merge merges[STACK_FILE_STREAM_KINDS];
	struct stack_recorder_stream streams[STACK_FILE_STREAM_KINDS];
	struct stack_source_hit *hits;
	size_t hit_count, hit_cap;
	void *copy;    /* of one ring */
	unsigned ring; /* its number */
	void *scratch; /* of one record */
};

/* ---- samples ---- */

static int add_hit(struct ring_capture *capture, const struct perf_record *sample, uint32_t stacks)
{
	if (vector_reserve(&capture->hits, &capture->hit_cap, capture->hit_count + 1, sizeof(*capture->hits)) < 0)
		return -ENOMEM;
	capture->hits[capture->hit_count++] =
		(struct stack_source_hit){ sample->pid, sample->tid, sample->time_ns, stacks };
	return 0;
}

/*
 * The record as it is kept, of *ret_size bytes: in the scratch, or where it is. NULL: it grew
 * beyond what a record can be.
 */
static const void *rewrite_sample(struct ring_capture *capture, enum stack_file_stream_kind kind, const void *bytes,
				  const struct perf_record *record, size_t *ret_size)
{
	const struct stack_source_kind *entry = &capture->source->kinds[kind];
	uint64_t period = perf_events_period(&entry->wanted);
	struct perf_record copy = *record;

	*ret_size = record->size;
	if (record->type != PERF_RECORD_SAMPLE || (period == 0 && entry->wanted.stack_bytes == 0))
		return bytes;
	if (record->sample.raw_bytes >= sizeof(copy.sample.period)) {
		memcpy(&copy.sample.period, record->sample.raw, sizeof(copy.sample.period));
		copy.sample.period |= STACK_FILE_LARGE_PAGES;
	} else if (period != 0) {
		copy.sample.period = stack_source_fault_weight(capture->source, capture->ring, record->time_ns);
	}
	if (perf_record_encode(&entry->written, &copy, capture->scratch, PERF_RECORD_SIZE_MAX, ret_size) < 0)
		return NULL;
	return capture->scratch;
}

static uint32_t stacks_of_sample(const struct ring_capture *capture, enum stack_file_stream_kind kind)
{
	if (capture->source->kinds[kind].wanted.stack_bytes == 0)
		return 0;
	return kind == STACK_FILE_CPU_FOLLOWED || kind == STACK_FILE_FAULTS_FOLLOWED ? FOLLOWED_STACK : 1;
}

/*
 * Large pages that the kernel makes of small ones (khugepaged) are no new memory. Its threads have
 * no part of a call chain in user mode.
 */
static bool is_of_kernel_thread(const struct perf_record_sample *sample)
{
	for (size_t i = 0; i < sample->chain_len; i++)
		if (sample->chain[i] == (uint64_t)PERF_CONTEXT_USER)
			return false;
	return sample->raw_bytes > 0;
}

/* 0 or -ENOMEM. */
static int keep_record(struct ring_capture *capture, enum stack_file_stream_kind kind, const void *bytes,
		       const struct perf_record *record)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	struct stack_recorder_stream *stream = &capture->streams[kind];
	size_t size;
	int r;

	if (record->time_ns < snapshot->from_ns || record->time_ns > snapshot->to_ns)
		return 0;
	if (record->type != PERF_RECORD_SAMPLE && record->type != PERF_RECORD_LOST)
		return 0;
	if (record->type == PERF_RECORD_SAMPLE && is_of_kernel_thread(&record->sample))
		return 0;
	bytes = rewrite_sample(capture, kind, bytes, record, &size);
	r = bytes != NULL ? perf_merge_add(&capture->merges[kind], bytes, size, record->time_ns) : -EFBIG;
	if (r == -EFBIG) {
		stream->left_out += size;
		return 0;
	}
	if (r < 0)
		return r;
	if (record->type == PERF_RECORD_LOST) {
		stream->head.lost += record->lost.count;
		return 0;
	}
	stream->samples++;
	return add_hit(capture, record, stacks_of_sample(capture, kind));
}

/* Newest first. *ret_oldest_ns: the last time that was seen. */
static int keep_ring(struct ring_capture *capture, enum stack_file_stream_kind kind, size_t len,
		     uint64_t *ret_oldest_ns)
{
	const struct perf_record_format *format = &capture->source->kinds[kind].format;
	const uint8_t *bytes = capture->copy;
	int r = 0;

	for (size_t at = 0; r == 0 && at < len;) {
		struct perf_event_header header;
		struct perf_record record;

		memcpy(&header, bytes + at, sizeof(header));
		if (perf_record_decode(format, bytes + at, len - at, &record) < 0) {
			capture->streams[kind].left_out += header.size;
		} else {
			*ret_oldest_ns = record.time_ns;
			r = keep_record(capture, kind, bytes + at, &record);
		}
		at += header.size;
	}
	return r;
}

static int read_ring(struct ring_capture *capture, enum stack_file_stream_kind kind, const struct perf_events *events)
{
	struct stack_recorder_stream *stream = &capture->streams[kind];
	struct clock clock = real_clock();
	uint64_t oldest_ns = capture->snapshot->to_ns, covered_ns, before_ns = clock_mono(&clock).ns, paused_ns;
	bool paused = perf_events_pause(events, true) == 0, torn, came_round;
	size_t len;
	int r;

	perf_ring_snapshot(&events->ring, capture->copy, &len, &torn);
	came_round = perf_ring_came_round(&events->ring);
	if (paused)
		perf_events_pause(events, false);
	paused_ns = clock_mono(&clock).ns - before_ns;
	if (paused && paused_ns > stream->paused_ns)
		stream->paused_ns = paused_ns;
	stream->rings++;
	stream->torn += torn;
	r = keep_ring(capture, kind, len, &oldest_ns);
	covered_ns = came_round || torn ? oldest_ns : capture->source->opened_ns;
	if (covered_ns > stream->head.covered_ns)
		stream->head.covered_ns = covered_ns;
	return r;
}

/* *left: bytes that records may still take. */
static int read_kind(struct ring_capture *capture, enum stack_file_stream_kind kind, size_t *left)
{
	const struct stack_source_kind *entry = &capture->source->kinds[kind];
	struct perf_merge *merge = &capture->merges[kind];
	unsigned cpus = capture->source->cpus;
	int r = 0;

	if (!entry->on)
		return 0;
	capture->streams[kind].head = (struct stack_file_stream){ .kind = kind,
								  .stack_bytes = entry->wanted.stack_bytes,
								  .sample_type = entry->written.sample_type,
								  .regs_user = entry->written.regs_user,
								  .covered_ns = capture->snapshot->from_ns };
	for (unsigned i = 0; r == 0 && i < cpus; i++) {
		size_t before = merge->bytes.len;

		merge->bytes.max = before + *left / (cpus - i);
		/* 0 would be no limit. */
		merge->bytes.max += merge->bytes.max == 0;
		capture->ring = i;
		r = read_ring(capture, kind, &entry->rings[i]);
		*left -= merge->bytes.len - before;
	}
	perf_merge_sort(merge);
	capture->streams[kind].head.units_per_second = stack_source_units(capture->source, kind);
	return r;
}

static int read_kinds(struct ring_capture *capture, size_t max_bytes, size_t *left)
{
	size_t largest = 0, of_samples = max_bytes / 4 * 3;
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		if (capture->source->kinds[order[i]].on && capture->source->kinds[order[i]].ring_bytes > largest)
			largest = capture->source->kinds[order[i]].ring_bytes;
	capture->copy = malloc(largest);
	capture->scratch = malloc(PERF_RECORD_SIZE_MAX);
	if (capture->copy == NULL || capture->scratch == NULL)
		return -ENOMEM;
	memset(capture->copy, 0xff, largest);
	*left = max_bytes - of_samples;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(order); i++)
		r = read_kind(capture, order[i], &of_samples);
	*left += of_samples;
	free(TAKE(capture->copy));
	return r;
}

/* ---- threads that were hit ---- */

static int compare_hits(const void *left, const void *right)
{
	const struct stack_source_hit *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* Merges the hits of each thread, sorts them by pid, and lists the pids. */
static int sum_up_hits(struct ring_capture *capture)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	struct stack_source_hit *hits = capture->hits;
	size_t count = 0;

	if (capture->hit_count == 0)
		return 0;
	qsort(hits, capture->hit_count, sizeof(*hits), compare_hits);
	for (size_t i = 0; i < capture->hit_count; i++) {
		if (count == 0 || hits[count - 1].pid != hits[i].pid || hits[count - 1].tid != hits[i].tid)
			hits[count++] = hits[i];
		else
			hits[count - 1].stacks += hits[i].stacks;
	}
	capture->hit_count = count;
	snapshot->pids = calloc(count, sizeof(*snapshot->pids));
	if (snapshot->pids == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (hits[i].pid != 0 && (i == 0 || hits[i - 1].pid != hits[i].pid))
			snapshot->pids[snapshot->pid_count++] = hits[i].pid;
	return 0;
}

/* ---- side-band records ---- */

/* For mapping_history_write. */
static int take_sideband(void *ctx, const void *data, size_t len)
{
	struct ring_capture *capture = ctx;
	_Alignas(PERF_RECORD_ALIGN) uint8_t aligned[SIDEBAND_RECORD_MAX];
	struct perf_record record;
	int r;

	if (len > sizeof(aligned))
		return -EMSGSIZE;
	memcpy(aligned, data, len);
	if (perf_record_decode(&PERF_RECORD_PLAIN, aligned, len, &record) < 0)
		return -EBADMSG;
	r = perf_merge_add(&capture->merges[STACK_FILE_SIDEBAND], aligned, len, record.time_ns);
	if (r == -EFBIG)
		capture->streams[STACK_FILE_SIDEBAND].left_out += len;
	return r == -EFBIG ? 0 : r;
}

/* What the history has of each process; locked for one at a time. */
static int read_sideband(struct ring_capture *capture, size_t left)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	const struct stack_source *source = capture->source;
	const struct sink sink = { take_sideband, capture };
	size_t hit = 0;
	int r = 0;

	capture->merges[STACK_FILE_SIDEBAND].bytes.max = left + (left == 0);
	capture->streams[STACK_FILE_SIDEBAND].head = (struct stack_file_stream){
		.kind = STACK_FILE_SIDEBAND, .sample_type = PERF_RECORD_FRAME_POINTERS, .covered_ns = snapshot->from_ns
	};
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i], parent;

		while (capture->hits[hit].pid != pid)
			hit++;
		pthread_mutex_lock(source->lock);
		snapshot->unmapped += !mapping_history_knows(source->history, pid, capture->hits[hit].time_ns, &parent);
		r = mapping_history_write(source->history, pid, snapshot->from_ns, snapshot->to_ns, &sink);
		pthread_mutex_unlock(source->lock);
	}
	perf_merge_sort(&capture->merges[STACK_FILE_SIDEBAND]);
	return r;
}

/* ---- files ---- */

/* Of all its threads. */
static uint64_t stacks_of_process(const struct ring_capture *capture, uint32_t pid)
{
	size_t low = 0, high = capture->hit_count;
	uint64_t stacks = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (capture->hits[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < capture->hit_count && capture->hits[low].pid == pid; low++)
		stacks += capture->hits[low].stacks;
	return stacks;
}

/* Unwinding a stack meets modules that no chain went through. */
static int tally_mappings(struct ring_capture *capture, struct file_tally *tally)
{
	const struct perf_merge *sideband = &capture->merges[STACK_FILE_SIDEBAND];
	int r = 0;

	for (size_t i = 0; r == 0 && i < sideband->count; i++) {
		struct perf_record record;
		size_t size;
		const void *bytes = perf_merge_record(sideband, i, &size);

		if (perf_record_decode(&PERF_RECORD_PLAIN, bytes, size, &record) < 0 ||
		    record.type != PERF_RECORD_MMAP2)
			continue;

		uint64_t stacks = stacks_of_process(capture, record.pid);

		if (stacks > 0)
			r = tally_mapping(tally, &record, stacks);
	}
	return r;
}

static int tally_files(struct ring_capture *capture)
{
	AUTO(tally_free) struct file_tally *tally = calloc(1, sizeof(*tally));
	int r = 0;

	if (tally == NULL)
		return -ENOMEM;
	tally->source = capture->source;
	tally->snapshot = capture->snapshot;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(order); i++)
		r = tally_samples(tally, &capture->source->kinds[order[i]].written, &capture->merges[order[i]]);
	if (r == 0)
		r = tally_mappings(capture, tally);
	return r == 0 ? tally_finish(tally) : r;
}

/* ---- all of it ---- */

/* The records of a kind go into the snapshot, and are freed here. */
static int hand_over_kind(struct ring_capture *capture, enum stack_file_stream_kind kind)
{
	struct stack_recorder_stream *stream = &capture->snapshot->streams[capture->snapshot->stream_count++];
	const struct sink sink = sink_buffer(&stream->records);
	int r;

	*stream = capture->streams[kind];
	r = perf_merge_write(&capture->merges[kind], &sink);
	stream->head.record_bytes = stream->records.len;
	perf_merge_release(&capture->merges[kind]);
	return r;
}

static int capture_all(struct ring_capture *capture, size_t max_bytes)
{
	const struct stack_source *source = capture->source;
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	size_t left;
	int r;

	stack_source_faults(source, snapshot->from_ns, snapshot->to_ns, &snapshot->faults);
	r = read_kinds(capture, max_bytes, &left);
	if (r == 0)
		r = sum_up_hits(capture);
	if (r < 0)
		return r;
	stack_source_look_up(source, capture->hits, capture->hit_count);
	r = look_up_cgroups(source, snapshot);
	if (r == 0)
		r = read_sideband(capture, left);
	if (r == 0)
		r = tally_files(capture);
	if (r < 0)
		return r;
	settle_cgroups(snapshot);
	for (int kind = 0; r == 0 && kind < STACK_FILE_STREAM_KINDS; kind++)
		if (source->kinds[kind].on)
			r = hand_over_kind(capture, (enum stack_file_stream_kind)kind);
	return r;
}

int stack_recorder_snapshot(struct stack_recorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			    struct stack_recorder_snapshot *ret)
{
	struct clock clock = real_clock();
	uint64_t now_ns = clock_mono(&clock).ns;
	struct stack_recorder_snapshot snapshot = { .from_ns = from_ns, .to_ns = to_ns < now_ns ? to_ns : now_ns };
	const struct stack_source source = stack_source_of(recorder);
	struct ring_capture capture = { .source = &source, .snapshot = &snapshot };
	int r;

	r = capture_all(&capture, max_bytes != 0 ? max_bytes : DEFAULT_BYTES);
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		perf_merge_release(&capture.merges[kind]);
	free(capture.hits);
	free(capture.copy);
	free(capture.scratch);
	if (r < 0) {
		stack_recorder_snapshot_release(&snapshot);
		return r;
	}
	*ret = snapshot;
	return 0;
}

void stack_recorder_snapshot_release(struct stack_recorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->stream_count; i++)
		buffer_release(&snapshot->streams[i].records);
	buffer_release(&snapshot->paths);
	free(snapshot->files);
	free(snapshot->pids);
	free(snapshot->inside);
	free(snapshot->cgroups);
	*snapshot = (struct stack_recorder_snapshot){ 0 };
}
