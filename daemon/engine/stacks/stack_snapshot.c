/*
 * stack_snapshot.c: what the rings hold of a span of time.
 *
 * 	each kind, each CPU: pause, copy, resume │ keep what is of the span │ look up who was hit │ the
 *  book's records of them │ their files
 *
 * Only the copy happens while a ring is held still, into memory that was touched before. Samples
 * take three quarters of what is allowed at most, so that there is room to say whose they are. Call
 * chains go first, they are small; of what is left, each ring may fill an equal part. Of stacks
 * only what the kernel could read is kept: it leaves room for as much as was asked for. And where
 * samples do not say their period, what they stand for is put in: of page faults, what
 * stack_recorder_faults.h says until the moment of the looking.
 */
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/stacks/stack_source.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/proc/mapping_history.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"
#include "lib/profile/stack_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- stack recorder_files.c ---- */

struct stack_recorder_tally;

/*
 * stack recorder_cgroups.c: which cgroup the processes of a snapshot are in. Asked while they run;
 * of one that has exited nobody knows any more.
 *
 * On a machine with both hierarchies ("hybrid") the cpu controller may be in either: where it is
 * not in that of v2, everything is in the root of that.
 */

#define TEXT_MAX 16384 /* a dozen hierarchies, of paths of up to PATH_MAX in one or two of them */
#define PATH_MAX_BYTES 4097

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

bool stack_recorder_cgroup_of(const char *text, size_t len, char *path, size_t cap)
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

/*
 * The cgroups of snapshot->pids that run, into snapshot->cgroups and their texts into
 * snapshot->paths; what the texts' addresses are is said by stack_recorder_settle_cgroups, when
 * paths does not grow any more. 0 or -ENOMEM.
 */
static int stack_recorder_look_up_cgroups(const struct stack_recorder *recorder,
					  struct stack_recorder_snapshot *snapshot)
{
	char text[TEXT_MAX], path[PATH_MAX_BYTES];
	int r = 0;

	snapshot->cgroups = calloc(snapshot->pid_count + 1, sizeof(*snapshot->cgroups));
	if (snapshot->cgroups == NULL)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i];
		ssize_t len = proc_read_file(recorder->proc_fd, (int32_t)pid, "cgroup", text, sizeof(text));

		if (len <= 0 || !stack_recorder_cgroup_of(text, (size_t)len, path, sizeof(path)))
			continue;
		r = buffer_append(&snapshot->paths, path, strlen(path) + 1);
		if (r == 0)
			snapshot->cgroups[snapshot->cgroup_count++] = (struct stack_file_cgroup){ .pid = pid };
	}
	return r;
}

/* They are the first texts, in this order. */
static void stack_recorder_settle_cgroups(struct stack_recorder_snapshot *snapshot)
{
	const char *at = snapshot->paths.data;

	for (size_t i = 0; i < snapshot->cgroup_count; i++) {
		snapshot->cgroups[i].path = at;
		at += strlen(at) + 1;
	}
}

/*
 * stack recorder_files.c: which files the frames were in, and which whoever unwinds stacks may
 * meet.
 *
 * Not all of them will be opened. What no chain went through counts by the stacks that may lead
 * into it: what is watched has many, and strangers that touched some memory have one or two, but
 * there are hundreds of them where a package is built, each with modules of its own.
 *
 * Stacks repeat: an address is looked up once per page and life of a process, by a cache that
 * forgets what collides. The book is locked for one sample at a time, so that the thread of the
 * side rings is never held up for long.
 */

#define CACHE_ENTRIES 4096
#define NO_FILE UINT32_MAX

struct cached {
	uint64_t page, began_ns;
	uint32_t pid, file; /* index, NO_FILE: none; pid 0: empty */
};

struct stack_recorder_tally {
	struct stack_recorder *recorder;
	struct stack_recorder_snapshot *snapshot;
	struct cached cache[CACHE_ENTRIES];
	size_t *offsets; /* of the paths: their buffer moves while it grows */
	bool *running;
	size_t cap;
};

static bool is_file(const char *path)
{
	return path[0] == '/' && strncmp(path, "//", 2) != 0 && strcmp(path, "/anon_hugepage") != 0;
}

static int grow(struct stack_recorder_tally *tally)
{
	size_t cap = tally->cap == 0 ? 64 : 2 * tally->cap;
	struct stack_recorder_file *files = reallocarray(tally->snapshot->files, cap, sizeof(*files));
	size_t *offsets;
	bool *running;

	if (files == NULL)
		return -ENOMEM;
	tally->snapshot->files = files;
	offsets = reallocarray(tally->offsets, cap, sizeof(*offsets));
	if (offsets == NULL)
		return -ENOMEM;
	tally->offsets = offsets;
	running = reallocarray(tally->running, cap, sizeof(*running));
	if (running == NULL)
		return -ENOMEM;
	tally->running = running;
	tally->cap = cap;
	return 0;
}

/* The file's index, found or added; -ENOMEM. */
static int index_of(struct stack_recorder_tally *tally, uint32_t pid, const struct mapping_history_place *place,
		    uint32_t *ret)
{
	struct stack_recorder_snapshot *snapshot = tally->snapshot;
	size_t i = 0;
	int r = 0;

	while (i < snapshot->file_count && (!perf_record_file_same(&snapshot->files[i].file, &place->file) ||
					    strcmp(snapshot->paths.data + tally->offsets[i], place->path) != 0))
		i++;
	if (i == tally->cap)
		r = grow(tally);
	if (r == 0 && i == snapshot->file_count) {
		tally->offsets[i] = snapshot->paths.len;
		r = buffer_append(&snapshot->paths, place->path, strlen(place->path) + 1);
		snapshot->files[i] = (struct stack_recorder_file){ .file = place->file };
		tally->running[i] = false;
	}
	if (r < 0)
		return r;
	if (i == snapshot->file_count || (place->running && !tally->running[i])) {
		snapshot->files[i].pid = pid;
		snapshot->files[i].start = place->start;
		snapshot->files[i].end = place->end;
		tally->running[i] = place->running;
	}
	snapshot->file_count += i == snapshot->file_count;
	*ret = (uint32_t)i;
	return 0;
}

static int count_frame(struct stack_recorder_tally *tally, const struct perf_record *sample, uint64_t began_ns,
		       uint64_t address)
{
	uint64_t page = address >> 12;
	struct cached *cached = &tally->cache[(page ^ sample->pid * 2654435761u) % CACHE_ENTRIES];

	if (cached->pid != sample->pid || cached->page != page || cached->began_ns != began_ns) {
		struct mapping_history_place place;
		uint32_t file = NO_FILE;
		int r = 0;

		if (mapping_history_find(tally->recorder->book, sample->pid, sample->time_ns, address, &place) &&
		    is_file(place.path))
			r = index_of(tally, sample->pid, &place, &file);
		if (r < 0)
			return r;
		*cached = (struct cached){ page, began_ns, sample->pid, file };
	}
	if (cached->file != NO_FILE)
		tally->snapshot->files[cached->file].frames++;
	return 0;
}

static int count_sample(struct stack_recorder_tally *tally, const struct perf_record *sample)
{
	bool user = false;
	uint64_t began_ns;
	int r = 0;

	pthread_mutex_lock(&tally->recorder->lock);
	began_ns = mapping_history_began(tally->recorder->book, sample->pid, sample->time_ns);
	for (size_t i = 0; r == 0 && i < sample->sample.chain_len; i++) {
		uint64_t address = sample->sample.chain[i];

		if (address >= PERF_CONTEXT_MAX)
			user = address == PERF_CONTEXT_USER;
		else if (user)
			r = count_frame(tally, sample, began_ns, address);
	}
	pthread_mutex_unlock(&tally->recorder->lock);
	return r;
}

static int compare(const void *left, const void *right)
{
	const struct stack_recorder_file *a = left, *b = right;

	uint64_t first = a->frames + a->stacks, second = b->frames + b->stacks;

	return first > second ? -1 : first < second;
}

/* Counts what files the user frames of samples were in. Takes the lock. 0 or -ENOMEM. */
static int stack_recorder_tally_samples(struct stack_recorder_tally *tally, const struct perf_record_format *format,
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

/*
 * Adds the file of an MMAP2 record of the book's, of a process with so many stacks. 0 or -ENOMEM.
 */
static int stack_recorder_tally_mapping(struct stack_recorder_tally *tally, const struct perf_record *record,
					uint64_t stacks)
{
	struct mapping_history_place place;
	uint32_t file = NO_FILE;
	int r = 0;

	pthread_mutex_lock(&tally->recorder->lock);
	if (is_file(record->mmap.path) &&
	    mapping_history_find(tally->recorder->book, record->pid, record->time_ns, record->mmap.start, &place) &&
	    is_file(place.path))
		r = index_of(tally, record->pid, &place, &file);
	pthread_mutex_unlock(&tally->recorder->lock);
	if (r == 0 && file != NO_FILE)
		tally->snapshot->files[file].stacks += stacks;
	return r;
}

/* Sorts them, and says their paths: snapshot->paths must not grow any more. */
static void stack_recorder_tally_finish(struct stack_recorder_tally *tally)
{
	struct stack_recorder_snapshot *snapshot = tally->snapshot;

	for (size_t i = 0; i < snapshot->file_count; i++)
		snapshot->files[i].path = snapshot->paths.data + tally->offsets[i];
	if (snapshot->file_count > 0)
		qsort(snapshot->files, snapshot->file_count, sizeof(*snapshot->files), compare);
}

/* For snapshot->files. *ret is the caller's: stack_recorder_tally_free. 0 or -ENOMEM. */
static int stack_recorder_tally_new(struct stack_recorder *recorder, struct stack_recorder_snapshot *snapshot,
				    struct stack_recorder_tally **ret)
{
	struct stack_recorder_tally *tally = calloc(1, sizeof(*tally));

	if (tally == NULL)
		return -ENOMEM;
	tally->recorder = recorder;
	tally->snapshot = snapshot;
	*ret = tally;
	return 0;
}

static void stack_recorder_tally_free(struct stack_recorder_tally *tally)
{
	if (tally == NULL)
		return;
	free(tally->offsets);
	free(tally->running);
	free(tally);
}

#define DEFAULT_BYTES ((size_t)64 << 20)
#define BOOK_RECORD_MAX 16384 /* a path of 4,096 and what is around it */

/*
 * Of a followed thread a stack counts as so many when files are put in order: there may be hundreds
 * of strangers' for each of its own.
 */
#define FOLLOWED_STACK 16u

/* In this order they get what room there is. */
static const enum stack_file_stream_kind order[] = { STACK_FILE_CPU, STACK_FILE_CPU_FOLLOWED, STACK_FILE_FAULTS,
						     STACK_FILE_FAULTS_FOLLOWED };

struct picture {
	struct stack_recorder *recorder;
	struct stack_recorder_snapshot *snapshot;
	struct perf_merge merges[STACK_FILE_STREAM_KINDS];
	struct stack_recorder_stream streams[STACK_FILE_STREAM_KINDS];
	struct stack_recorder_hit *hits;
	size_t hit_count, hit_cap;
	void *copy;    /* of one ring */
	unsigned ring; /* its number */
	void *scratch; /* of one record */
};

/* ---- samples ---- */

static int add_hit(struct picture *picture, const struct perf_record *sample, uint32_t stacks)
{
	if (picture->hit_count == picture->hit_cap) {
		size_t cap = picture->hit_cap == 0 ? 1024 : 2 * picture->hit_cap;
		struct stack_recorder_hit *hits = reallocarray(picture->hits, cap, sizeof(*hits));

		if (hits == NULL)
			return -ENOMEM;
		picture->hits = hits;
		picture->hit_cap = cap;
	}
	picture->hits[picture->hit_count++] =
		(struct stack_recorder_hit){ sample->pid, sample->tid, sample->time_ns, stacks };
	return 0;
}

/*
 * The record as it is kept, of *ret_size bytes: in the scratch, or where it is. NULL: it grew
 * beyond what a record can be.
 */
static const void *rewrite(struct picture *picture, enum stack_file_stream_kind kind, const void *bytes,
			   const struct perf_record *record, size_t *ret_size)
{
	const struct stack_recorder_kind *entry = &picture->recorder->kinds[kind];
	uint64_t period = perf_events_period(&entry->wanted);
	struct perf_record copy = *record;

	*ret_size = record->size;
	if (record->type != PERF_RECORD_SAMPLE || (period == 0 && entry->wanted.stack_bytes == 0))
		return bytes;
	if (period != 0)
		copy.sample.period =
			stack_recorder_faults_weigh(picture->recorder->faults, picture->ring, record->time_ns);
	if (perf_record_encode(&entry->written, &copy, picture->scratch, PERF_RECORD_SIZE_MAX, ret_size) < 0)
		return NULL;
	return picture->scratch;
}

static uint32_t stacks_of_one(const struct picture *picture, enum stack_file_stream_kind kind)
{
	if (picture->recorder->kinds[kind].wanted.stack_bytes == 0)
		return 0;
	return kind == STACK_FILE_CPU_FOLLOWED || kind == STACK_FILE_FAULTS_FOLLOWED ? FOLLOWED_STACK : 1;
}

/* 0 or -ENOMEM. */
static int keep(struct picture *picture, enum stack_file_stream_kind kind, const void *bytes,
		const struct perf_record *record)
{
	struct stack_recorder_snapshot *snapshot = picture->snapshot;
	struct stack_recorder_stream *stream = &picture->streams[kind];
	size_t size;
	int r;

	if (record->time_ns < snapshot->from_ns || record->time_ns > snapshot->to_ns)
		return 0;
	if (record->type != PERF_RECORD_SAMPLE && record->type != PERF_RECORD_LOST)
		return 0;
	bytes = rewrite(picture, kind, bytes, record, &size);
	r = bytes != NULL ? perf_merge_add(&picture->merges[kind], bytes, size, record->time_ns) : -EFBIG;
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
	return add_hit(picture, record, stacks_of_one(picture, kind));
}

/* Newest first. *ret_oldest_ns: the last time that was seen. */
static int walk(struct picture *picture, enum stack_file_stream_kind kind, size_t len, uint64_t *ret_oldest_ns)
{
	const struct perf_record_format *format = &picture->recorder->kinds[kind].format;
	const uint8_t *bytes = picture->copy;
	int r = 0;

	for (size_t at = 0; r == 0 && at < len;) {
		struct perf_event_header header;
		struct perf_record record;

		memcpy(&header, bytes + at, sizeof(header));
		if (perf_record_decode(format, bytes + at, len - at, &record) < 0) {
			picture->streams[kind].left_out += header.size;
		} else {
			*ret_oldest_ns = record.time_ns;
			r = keep(picture, kind, bytes + at, &record);
		}
		at += header.size;
	}
	return r;
}

static int read_ring(struct picture *picture, enum stack_file_stream_kind kind, const struct perf_events *events)
{
	struct stack_recorder_stream *stream = &picture->streams[kind];
	struct clock clock = real_clock();
	uint64_t oldest_ns = picture->snapshot->to_ns, covered_ns, before_ns = clock_mono(&clock).ns, paused_ns;
	bool paused = perf_events_pause(events, true) == 0, torn, came_round;
	size_t len;
	int r;

	perf_ring_snapshot(&events->ring, picture->copy, &len, &torn);
	came_round = perf_ring_came_round(&events->ring);
	if (paused)
		perf_events_pause(events, false);
	paused_ns = clock_mono(&clock).ns - before_ns;
	if (paused && paused_ns > stream->paused_ns)
		stream->paused_ns = paused_ns;
	stream->rings++;
	stream->torn += torn;
	r = walk(picture, kind, len, &oldest_ns);
	covered_ns = came_round || torn ? oldest_ns : picture->recorder->opened_ns;
	if (covered_ns > stream->head.covered_ns)
		stream->head.covered_ns = covered_ns;
	return r;
}

/* *left: bytes that records may still take. */
static int read_kind(struct picture *picture, enum stack_file_stream_kind kind, size_t *left)
{
	const struct stack_recorder_kind *entry = &picture->recorder->kinds[kind];
	struct perf_merge *merge = &picture->merges[kind];
	unsigned cpus = picture->recorder->status.cpus;
	int r = 0;

	if (!entry->on)
		return 0;
	picture->streams[kind].head = (struct stack_file_stream){ .kind = kind,
								  .stack_bytes = entry->wanted.stack_bytes,
								  .sample_type = entry->written.sample_type,
								  .regs_user = entry->written.regs_user,
								  .covered_ns = picture->snapshot->from_ns };
	for (unsigned i = 0; r == 0 && i < cpus; i++) {
		size_t before = merge->bytes.len;

		merge->bytes.max = before + *left / (cpus - i);
		/* 0 would be no limit. */
		merge->bytes.max += merge->bytes.max == 0;
		picture->ring = i;
		r = read_ring(picture, kind, &entry->rings[i]);
		*left -= merge->bytes.len - before;
	}
	perf_merge_sort(merge);
	picture->streams[kind].head.units_per_second = stack_recorder_units(picture->recorder, kind);
	return r;
}

static int read_kinds(struct picture *picture, size_t max_bytes, size_t *left)
{
	size_t largest = 0, of_samples = max_bytes / 4 * 3;
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		if (picture->recorder->kinds[order[i]].on && picture->recorder->kinds[order[i]].ring_bytes > largest)
			largest = picture->recorder->kinds[order[i]].ring_bytes;
	picture->copy = malloc(largest);
	picture->scratch = malloc(PERF_RECORD_SIZE_MAX);
	if (picture->copy == NULL || picture->scratch == NULL)
		return -ENOMEM;
	memset(picture->copy, 0xff, largest);
	*left = max_bytes - of_samples;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(order); i++)
		r = read_kind(picture, order[i], &of_samples);
	*left += of_samples;
	free(TAKE(picture->copy));
	return r;
}

/* ---- who was hit ---- */

static int compare_hits(const void *left, const void *right)
{
	const struct stack_recorder_hit *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* One hit per thread, its first, by pid; and the pids. */
static int sum_up_hits(struct picture *picture)
{
	struct stack_recorder_snapshot *snapshot = picture->snapshot;
	struct stack_recorder_hit *hits = picture->hits;
	size_t count = 0;

	if (picture->hit_count == 0)
		return 0;
	qsort(hits, picture->hit_count, sizeof(*hits), compare_hits);
	for (size_t i = 0; i < picture->hit_count; i++) {
		if (count == 0 || hits[count - 1].pid != hits[i].pid || hits[count - 1].tid != hits[i].tid)
			hits[count++] = hits[i];
		else
			hits[count - 1].stacks += hits[i].stacks;
	}
	picture->hit_count = count;
	snapshot->pids = calloc(count, sizeof(*snapshot->pids));
	if (snapshot->pids == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (hits[i].pid != 0 && (i == 0 || hits[i - 1].pid != hits[i].pid))
			snapshot->pids[snapshot->pid_count++] = hits[i].pid;
	return 0;
}

/* ---- whose they are ---- */

/* One record of the book's. */
static int take_book(void *ctx, const void *data, size_t len)
{
	struct picture *picture = ctx;
	struct perf_record_format format = STACK_RECORDER_FORMAT;
	_Alignas(PERF_RECORD_ALIGN) uint8_t aligned[BOOK_RECORD_MAX];
	struct perf_record record;
	int r;

	if (len > sizeof(aligned))
		return -EMSGSIZE;
	memcpy(aligned, data, len);
	if (perf_record_decode(&format, aligned, len, &record) < 0)
		return -EBADMSG;
	r = perf_merge_add(&picture->merges[STACK_FILE_BOOK], aligned, len, record.time_ns);
	if (r == -EFBIG)
		picture->streams[STACK_FILE_BOOK].left_out += len;
	return r == -EFBIG ? 0 : r;
}

/* What the book has of each process; locked for one at a time. */
static int read_book(struct picture *picture, size_t left)
{
	struct stack_recorder_snapshot *snapshot = picture->snapshot;
	struct stack_recorder *recorder = picture->recorder;
	const struct sink sink = { take_book, picture };
	size_t hit = 0;
	int r = 0;

	picture->merges[STACK_FILE_BOOK].bytes.max = left + (left == 0);
	picture->streams[STACK_FILE_BOOK].head =
		(struct stack_file_stream){ .kind = STACK_FILE_BOOK,
					    .sample_type = STACK_RECORDER_FORMAT.sample_type,
					    .covered_ns = snapshot->from_ns };
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i], parent;

		while (picture->hits[hit].pid != pid)
			hit++;
		pthread_mutex_lock(&recorder->lock);
		snapshot->unmapped += !mapping_history_knows(recorder->book, pid, picture->hits[hit].time_ns, &parent);
		r = mapping_history_write(recorder->book, &pid, 1, snapshot->from_ns, snapshot->to_ns, &sink);
		pthread_mutex_unlock(&recorder->lock);
	}
	perf_merge_sort(&picture->merges[STACK_FILE_BOOK]);
	return r;
}

/* ---- files ---- */

/* Of all its threads. */
static uint64_t stacks_of(const struct picture *picture, uint32_t pid)
{
	size_t low = 0, high = picture->hit_count;
	uint64_t stacks = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (picture->hits[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < picture->hit_count && picture->hits[low].pid == pid; low++)
		stacks += picture->hits[low].stacks;
	return stacks;
}

/* Whoever unwinds a stack meets modules that no chain went through. */
static int tally_modules(struct picture *picture, struct stack_recorder_tally *tally)
{
	struct perf_record_format format = STACK_RECORDER_FORMAT;
	const struct perf_merge *book = &picture->merges[STACK_FILE_BOOK];
	int r = 0;

	for (size_t i = 0; r == 0 && i < book->count; i++) {
		struct perf_record record;
		size_t size;
		const void *bytes = perf_merge_record(book, i, &size);

		if (perf_record_decode(&format, bytes, size, &record) < 0 || record.type != PERF_RECORD_MMAP2)
			continue;

		uint64_t stacks = stacks_of(picture, record.pid);

		if (stacks > 0)
			r = stack_recorder_tally_mapping(tally, &record, stacks);
	}
	return r;
}

static int tally_files(struct picture *picture)
{
	struct stack_recorder_tally *tally;
	int r = stack_recorder_tally_new(picture->recorder, picture->snapshot, &tally);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(order); i++)
		r = stack_recorder_tally_samples(tally, &picture->recorder->kinds[order[i]].written,
						 &picture->merges[order[i]]);
	if (r == 0)
		r = tally_modules(picture, tally);
	if (r == 0)
		stack_recorder_tally_finish(tally);
	stack_recorder_tally_free(tally);
	return r;
}

/* ---- all of it ---- */

/* The records of a kind go into the snapshot, and are freed here. */
static int hand_over(struct picture *picture, enum stack_file_stream_kind kind)
{
	struct stack_recorder_stream *stream = &picture->snapshot->streams[picture->snapshot->stream_count++];
	const struct sink sink = sink_buffer(&stream->records);
	int r;

	*stream = picture->streams[kind];
	r = perf_merge_write(&picture->merges[kind], &sink);
	stream->head.record_bytes = stream->records.len;
	perf_merge_release(&picture->merges[kind]);
	return r;
}

static int take_picture(struct picture *picture, size_t max_bytes)
{
	struct stack_recorder *recorder = picture->recorder;
	size_t left;
	int r;

	if (recorder->faults != NULL) {
		stack_recorder_faults_settle(recorder->faults);
		stack_recorder_faults_sum_up(recorder->faults, picture->snapshot->from_ns, picture->snapshot->to_ns,
					     &picture->snapshot->faults);
	}
	r = read_kinds(picture, max_bytes, &left);
	if (r == 0)
		r = sum_up_hits(picture);
	if (r < 0)
		return r;
	stack_recorder_drain(recorder);
	stack_recorder_look_up(recorder, picture->hits, picture->hit_count);
	r = stack_recorder_look_up_cgroups(recorder, picture->snapshot);
	if (r == 0)
		r = read_book(picture, left);
	if (r == 0)
		r = tally_files(picture);
	if (r < 0)
		return r;
	stack_recorder_settle_cgroups(picture->snapshot);
	for (int kind = 0; r == 0 && kind < STACK_FILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].on)
			r = hand_over(picture, (enum stack_file_stream_kind)kind);
	return r;
}

int stack_recorder_snapshot(struct stack_recorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			    struct stack_recorder_snapshot *ret)
{
	struct clock clock = real_clock();
	uint64_t now_ns = clock_mono(&clock).ns;
	struct stack_recorder_snapshot snapshot = { .from_ns = from_ns, .to_ns = to_ns < now_ns ? to_ns : now_ns };
	struct picture picture = { .recorder = recorder, .snapshot = &snapshot };
	int r;

	r = take_picture(&picture, max_bytes != 0 ? max_bytes : DEFAULT_BYTES);
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		perf_merge_release(&picture.merges[kind]);
	free(picture.hits);
	free(picture.copy);
	free(picture.scratch);
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
	free(snapshot->cgroups);
	*snapshot = (struct stack_recorder_snapshot){ 0 };
}
