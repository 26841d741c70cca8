/*
 * incidentload.c: reads what may have been tampered with. Everything goes through descriptors of directories, opened without
 * following links and without blocking, and through the parsers of lib/, which are fuzzed.
 *
 * Names of incidents begin with their time in UTC, so sorting by name is sorting by time, and no file needs to be opened
 * for it.
 */
#include "incidentload.h"

#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SYSTEM_DIRECTORY "/var/lib/spikewatch/incidents"
#define READ_BYTES 65536

/* Rows further from the firing than that are nonsense, and would overflow arithmetic later. */
#define TIME_MAX_NS (INT64_C(86400) * 1000000000)

int incidentload_own_directory(char *buf, size_t cap)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int len;

	if (state && *state == '/') /* a relative one is to be ignored, says the XDG specification */
		len = snprintf(buf, cap, "%s/spikewatch/incidents", state);
	else if (home && *home)
		len = snprintf(buf, cap, "%s/.local/state/spikewatch/incidents", home);
	else
		return -ENOENT;
	return len >= 0 && (size_t)len < cap ? 0 : -ENAMETOOLONG;
}

int incidentload_directory(const char *option, char *buf, size_t cap)
{
	const char *environment = getenv("SPIKEWATCH_DIR");
	int len;

	if (option)
		len = snprintf(buf, cap, "%s", option);
	else if (environment && *environment)
		len = snprintf(buf, cap, "%s", environment);
	else if (access(SYSTEM_DIRECTORY, R_OK) == 0)
		len = snprintf(buf, cap, "%s", SYSTEM_DIRECTORY);
	else
		return incidentload_own_directory(buf, cap);
	return len >= 0 && (size_t)len < cap ? 0 : -ENAMETOOLONG;
}

/* ---- names ---- */

static void close_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int add_name(struct incidentload_names *names, const char *name)
{
	if (names->count == names->cap) {
		size_t cap = names->cap ? names->cap * 2 : 64;
		void *grown = realloc(names->name, cap * sizeof(*names->name));

		if (!grown)
			return -ENOMEM;
		names->name = grown;
		names->cap = cap;
	}
	incident_text(names->name[names->count++], sizeof(*names->name), name);
	return 0;
}

static bool is_directory(int dirfd, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type == DT_DIR;
	return fstatat(dirfd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int read_names(int fd, DIR *dir, struct incidentload_names *names)
{
	const struct dirent *entry;

	while (errno = 0, (entry = readdir(dir)) != NULL) {
		int rc;

		if (!incident_name_ok(entry->d_name) || !is_directory(fd, entry))
			continue;
		if (names->count == INCIDENTLOAD_NAMES_MAX) {
			names->cut = true;
			return 0;
		}
		rc = add_name(names, entry->d_name);
		if (rc < 0)
			return rc;
	}
	return -errno;
}

int incidentload_list(int dirfd, struct incidentload_names *ret)
{
	AUTO_CLOSE int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(incidentload_names_release) struct incidentload_names names = { 0 };
	AUTO(close_dir) DIR *dir = NULL;
	int rc;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	TAKE_FD(fd); /* the stream's from now on */

	rc = read_names(dirfd, dir, &names);
	if (rc < 0)
		return rc;
	if (names.count > 0)
		qsort(names.name, names.count, sizeof(*names.name), compare_names);
	*ret = names;
	names = (struct incidentload_names){ 0 };
	return 0;
}

void incidentload_names_release(struct incidentload_names *names)
{
	free(names->name);
	*names = (struct incidentload_names){ 0 };
}

static bool matches(const char *name, const char *query, int how)
{
	if (how == 0)
		return strcmp(name, query) == 0;
	if (how == 1)
		return strncmp(name, query, strlen(query)) == 0;
	return strstr(name, query) != NULL;
}

int incidentload_find(const struct incidentload_names *names, const char *query, const char **ret)
{
	if (names->count == 0 || *query == '\0')
		return INCIDENTLOAD_NONE;
	if (strcmp(query, "last") == 0) {
		*ret = names->name[names->count - 1];
		return 0;
	}
	for (int how = 0; how < 3; how++) {
		const char *found = NULL;
		size_t count = 0;

		for (size_t i = 0; i < names->count; i++) {
			if (!matches(names->name[i], query, how))
				continue;
			found = names->name[i];
			count++;
		}
		if (count == 0)
			continue;
		*ret = found;
		return count == 1 ? 0 : INCIDENTLOAD_MANY;
	}
	return INCIDENTLOAD_NONE;
}

/* ---- one incident ---- */

int incidentload_open(int dirfd, const char *name)
{
	/* A path that somebody typed may go through links; a name found in a listing may not. */
	int flags = strchr(name, '/') ? 0 : O_NOFOLLOW;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);

	return fd >= 0 ? fd : -errno;
}

int incidentload_open_file(int incidentfd, const char *name)
{
	/* Not blocking: a FIFO in place of a file would else hold us for ever. */
	AUTO_CLOSE int fd = openat(incidentfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? -EBADMSG : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	return TAKE_FD(fd);
}

/* Calls take with piece after piece until the end, its first non-zero return, or max bytes. */
static int read_pieces(int fd, uint64_t max, int (*take)(void *ctx, const char *data, size_t len), void *ctx)
{
	AUTO_FREE char *piece = malloc(READ_BYTES);

	if (!piece)
		return -ENOMEM;
	while (max > 0) {
		ssize_t len = read(fd, piece, max < READ_BYTES ? max : READ_BYTES);
		int rc;

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return len < 0 ? -errno : 0;
		rc = take(ctx, piece, (size_t)len);
		if (rc != 0)
			return rc;
		max -= (uint64_t)len;
	}
	return 0;
}

static int take_text(void *ctx, const char *data, size_t len)
{
	return buffer_append(ctx, data, len);
}

static int read_text(int incidentfd, const char *name, uint64_t max, struct buffer *buffer)
{
	AUTO_CLOSE int fd = incidentload_open_file(incidentfd, name);

	return fd < 0 ? fd : read_pieces(fd, max, take_text, buffer);
}

int incidentload_whole(int incidentfd, const char *name, struct buffer *buffer)
{
	return read_text(incidentfd, name, UINT64_MAX, buffer);
}

int incidentload_capture(int incidentfd, const char *name, struct buffer *buffer)
{
	return read_text(incidentfd, name, INCIDENTLOAD_CAPTURE_MAX, buffer);
}

/* ---- samples ---- */

/* While samples are read. */
struct loading {
	struct incidentload_samples *samples;
	wall_t fired;
	wall_t start;
	bool has_start;
	uint32_t target; /* whose series it is; 0: none seen yet. An incident of one target holds one. */
	bool gap;        /* something is missing before the next row */
	/* which field of a sample a column is; SAMPLE_FIELDS: none we know */
	unsigned field[STREAM_COLUMNS_MAX];
};

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	struct loading *loading = ctx;

	(void)json;
	if (index >= STREAM_COLUMNS_MAX)
		return 0;
	loading->field[index] = SAMPLE_FIELDS;
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		if (strcmp(name, sample_field_info(f)->name) == 0)
			loading->field[index] = f;
	}
	return 0;
}

static int on_start_time(void *ctx, wall_t start)
{
	struct loading *loading = ctx;

	loading->start = start;
	loading->has_start = true;
	return 0;
}

/* When a row was taken, since the firing. False: at an absurd time. */
static bool row_time(const struct loading *loading, uint64_t time_ns, int64_t *ret)
{
	uint64_t at = loading->start.ns + time_ns;
	int64_t since = (int64_t)(at - loading->fired.ns);

	if (!loading->has_start || at < time_ns || since > TIME_MAX_NS || since < -TIME_MAX_NS)
		return false;
	*ret = since;
	return true;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct loading *loading = ctx;
	struct series_point point = { .after_gap = loading->gap };
	int rc;

	(void)seq;
	if (loading->target == 0)
		loading->target = target;
	if (!row_time(loading, time_ns, &point.at_ns)) {
		loading->samples->outside++;
		return 0;
	}
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++) {
		if ((mask >> c & 1u) && loading->field[c] < SAMPLE_FIELDS)
			sample_set(&point.sample, (enum sample_field)loading->field[c], values[c]);
	}

	rc = peaks_add(&loading->samples->peaks, target, point.at_ns, &point.sample);
	if (rc < 0 || target != loading->target)
		return rc;
	rc = series_add(&loading->samples->series, &point);
	loading->samples->cut |= rc == SERIES_FULL;
	loading->gap = false;
	return rc < 0 ? rc : 0;
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	struct loading *loading = ctx;

	return peaks_declare(&loading->samples->peaks, id, json, len);
}

static void miss(struct loading *loading)
{
	loading->gap = true;
	peaks_gap(&loading->samples->peaks);
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	struct loading *loading = ctx;

	(void)json;
	(void)len;
	if (strcmp(kind, "GAP") == 0)
		miss(loading);
	loading->samples->gone |= strcmp(kind, "GONE") == 0;
	return 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	struct loading *loading = ctx;

	(void)line;
	(void)why;
	if (rows_lost > 0)
		miss(loading);
	return 0;
}

static void free_salvage(struct salvage **salvage)
{
	salvage_free(*salvage);
}

static int take_stream(void *ctx, const char *data, size_t len)
{
	return salvage_feed(ctx, data, len);
}

static int load(int fd, struct loading *loading)
{
	struct salvage_events events = {
		.column = on_column,
		.start_time = on_start_time,
		.target = on_target,
		.row = on_row,
		.note = on_note,
		.damage = on_damage,
		.ctx = loading,
	};
	AUTO(free_salvage) struct salvage *salvage = NULL;
	int rc;

	rc = salvage_new(&events, &salvage);
	if (rc < 0)
		return rc;
	rc = read_pieces(fd, INCIDENTLOAD_SAMPLES_MAX, take_stream, salvage);
	if (rc == -ENOMEM)
		return rc;
	/* What could be read before an I/O error is still worth showing. */
	loading->samples->error = loading->samples->series.count ? 0 : rc;
	return salvage_finish(salvage, &loading->samples->report);
}

int incidentload_samples(int incidentfd, wall_t fired, struct incidentload_samples *ret)
{
	AUTO_CLOSE int fd = incidentload_open_file(incidentfd, INCIDENT_SAMPLES_FILE);
	struct incidentload_samples samples = { .error = fd < 0 ? fd : 0 };
	struct loading loading = { .samples = &samples, .fired = fired };
	int rc;

	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		loading.field[c] = SAMPLE_FIELDS;
	if (fd >= 0) {
		rc = load(fd, &loading);
		if (rc < 0) {
			incidentload_samples_release(&samples);
			return rc;
		}
	}
	peaks_sort(&samples.peaks);
	*ret = samples;
	return 0;
}

void incidentload_samples_release(struct incidentload_samples *samples)
{
	series_release(&samples->series);
	peaks_release(&samples->peaks);
}
