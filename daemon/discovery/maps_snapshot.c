/*
 * maps_snapshot.c: /proc/<pid>/smaps, read in pieces and summed line by line.
 *
 * smaps of a large process has megabytes, so it is never kept: one piece of text, one line at a time, and one record
 * per name. A record is looked for from the last one that was found: mappings of one file lie side by side.
 */
#include "maps_snapshot.h"
#include "piddir.h"
#include "procfs.h"
#include "scope.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define PIECE_BYTES 65536
#define OTHER "[other]"
#define ANONYMOUS "[anon]"
#define MAPPINGS_MAX 262144 /* four times the kernel's default limit, vm.max_map_count */

struct building {
	struct maps_snapshot *snapshot; /* with room for MAPS_SNAPSHOT_MAX records */
	size_t current;                 /* record of the mapping whose lines are being read */
	uint32_t mappings;
};

const struct maps_record *maps_snapshot_find(const struct maps_snapshot *snapshot, const struct maps_record *like)
{
	for (size_t i = 0; i < snapshot->count; i++)
		if (strcmp(snapshot->records[i].name, like->name) == 0 &&
		    strcmp(snapshot->records[i].permissions, like->permissions) == 0)
			return &snapshot->records[i];
	return NULL;
}

/* The end of a long path says more than its beginning. */
static void set_name(struct maps_record *record, const char *name, size_t len)
{
	size_t cap = sizeof(record->name) - 1;

	if (len > cap) {
		name += len - cap;
		len = cap;
	}
	memcpy(record->name, name, len);
	record->name[len] = '\0';
}

/* The record of this name, new if need be; the last one takes all for which there is no room. */
static size_t find_or_add(struct maps_snapshot *snapshot, size_t current, const struct maps_record *like)
{
	const struct maps_record *found = NULL;

	if (current < snapshot->count && strcmp(snapshot->records[current].name, like->name) == 0 &&
	    strcmp(snapshot->records[current].permissions, like->permissions) == 0)
		return current;
	found = maps_snapshot_find(snapshot, like);
	if (found)
		return (size_t)(found - snapshot->records);
	if (snapshot->count == MAPS_SNAPSHOT_MAX)
		return MAPS_SNAPSHOT_MAX - 1;
	snapshot->records[snapshot->count] = *like;
	if (snapshot->count == MAPS_SNAPSHOT_MAX - 1) {
		set_name(&snapshot->records[snapshot->count], OTHER, sizeof(OTHER) - 1);
		snapshot->records[snapshot->count].permissions[0] = '\0';
	}
	return snapshot->count++;
}

/* Skips a field and the blanks behind it. */
static const char *skip_field(const char *at, const char *end)
{
	while (at < end && *at != ' ')
		at++;
	while (at < end && *at == ' ')
		at++;
	return at;
}

/*
 * "7f10c8a00000-7f10c8a22000 r--p 00000000 08:01 1835 <blanks> /usr/lib/libc.so.6"; the name is missing for anonymous
 * memory.
 */
static void take_header(struct building *building, const char *line, size_t len)
{
	const char *end = line + len, *at = line, *permissions;
	struct maps_record like = { 0 };

	while (at < end && isxdigit((unsigned char)*at))
		at++;
	if (at == line || at == end || *at != '-')
		return;
	permissions = skip_field(at, end);
	if (end - permissions < 4)
		return;
	memcpy(like.permissions, permissions, 4);
	at = permissions;
	for (int field = 0; field < 4; field++)
		at = skip_field(at, end);
	if (at < end)
		set_name(&like, at, (size_t)(end - at));
	else
		set_name(&like, ANONYMOUS, sizeof(ANONYMOUS) - 1);

	building->current = find_or_add(building->snapshot, building->current, &like);
	building->snapshot->records[building->current].mappings++;
	building->mappings++;
}

/* "Rss:                 132 kB", with its newline. */
static void take_amount(struct building *building, const char *line, size_t len)
{
	struct maps_record *record = &building->snapshot->records[building->current];
	uint64_t bytes;

	if (building->mappings == 0)
		return;
	if (procfs_kb_parse(line, len, "Rss", &bytes) == 0)
		record->rss_bytes += bytes;
	else if (procfs_kb_parse(line, len, "Pss", &bytes) == 0)
		record->pss_bytes += bytes;
	else if (procfs_kb_parse(line, len, "Private_Dirty", &bytes) == 0)
		record->private_dirty_bytes += bytes;
	else if (procfs_kb_parse(line, len, "Swap", &bytes) == 0)
		record->swap_bytes += bytes;
}

/* Takes the whole lines of text; returns how many bytes they are. */
static size_t take_lines(struct building *building, const char *text, size_t len)
{
	size_t used = 0;

	for (;;) {
		const char *line = text + used, *newline = memchr(line, '\n', len - used);
		size_t line_len;

		if (!newline)
			return used;
		line_len = (size_t)(newline - line);
		/* Names of amounts begin with a capital, addresses with a digit or a small letter. */
		if (line_len > 0 && isupper((unsigned char)*line))
			take_amount(building, line, line_len + 1);
		else
			take_header(building, line, line_len);
		used += line_len + 1;
	}
}

static int read_smaps(int fd, struct building *building)
{
	AUTO_FREE char *text = malloc(PIECE_BYTES);
	size_t kept = 0;

	if (!text)
		return -ENOMEM;
	while (building->mappings < MAPPINGS_MAX) {
		ssize_t n = read(fd, text + kept, PIECE_BYTES - kept);
		size_t used;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		kept += (size_t)n;
		used = take_lines(building, text, kept);
		if (used == 0 && kept == PIECE_BYTES)
			used = kept; /* no line of smaps is so long */
		memmove(text, text + used, kept - used);
		kept -= used;
	}
	return 0;
}

int maps_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct maps_snapshot **ret)
{
	AUTO_CLOSE int piddir = -1;
	AUTO_CLOSE int fd = -1;
	AUTO_FREE struct maps_snapshot *snapshot = NULL;
	struct building building = { 0 };
	struct maps_snapshot *fitting;
	int r;

	r = piddir_open(procfd, pid, start_ticks, &piddir);
	if (r < 0)
		return r;
	fd = piddir_file(piddir, "smaps");
	if (fd < 0)
		return fd;
	snapshot = malloc(sizeof(*snapshot) + MAPS_SNAPSHOT_MAX * sizeof(snapshot->records[0]));
	if (!snapshot)
		return -ENOMEM;

	*snapshot = (struct maps_snapshot){ .taken = now };
	building.snapshot = snapshot;
	r = read_smaps(fd, &building);
	if (r < 0)
		return r;
	fitting = realloc(snapshot, sizeof(*snapshot) + snapshot->count * sizeof(snapshot->records[0]));
	if (fitting)
		snapshot = fitting;
	*ret = TAKE(snapshot);
	return 0;
}
