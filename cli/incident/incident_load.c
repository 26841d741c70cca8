/*
 * incident_load.c: from the words of a command line to an open incident, and a first look at it.
 *
 * Files may have been tampered with: they are opened below directory descriptors, without following
 * links and without blocking, and read by the parsers of lib/, which are fuzzed.
 *
 * Names of incidents begin with their time in UTC, which may have been set back or forward: they are
 * sorted by when they came, of which the daemon keeps a file (SPOOL_AGES_FILE), and by name where that
 * says nothing. So a list that is limited to the newest is taken from the end without opening any.
 *
 * An incident that is still being written has another name and is locked by its writer (flock(2)).
 * The lock is tried only if incident.json exists: the writer takes its lock before it writes that,
 * so it never meets ours.
 *
 * Rejected for dates: strptime(3), which depends on the locale and accepts trailing text and days
 * that do not exist. The fields are compared with what mktime(3) makes of them, so that 30 February
 * is refused.
 */
#include "cli/incident/incident_load.h"

#include "cli/base/output.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/incident/spool.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/incident/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- moments ---- */

struct moment_text {
	const char *at;
	struct tm tm;
	uint64_t fraction_ns;
	bool has_zone;
	int zone_s; /* east of Greenwich */
};

static bool take_digits(struct moment_text *text, int digits, int *ret)
{
	int value = 0;

	for (int i = 0; i < digits; i++, text->at++) {
		if (*text->at < '0' || *text->at > '9')
			return false;
		value = 10 * value + (*text->at - '0');
	}
	*ret = value;
	return true;
}

static bool skip_byte(struct moment_text *text, char byte)
{
	if (*text->at != byte)
		return false;
	text->at++;
	return true;
}

static bool read_date(struct moment_text *text)
{
	bool dashes;

	if (!take_digits(text, 4, &text->tm.tm_year))
		return false;
	dashes = skip_byte(text, '-');
	if (!take_digits(text, 2, &text->tm.tm_mon) || (dashes && !skip_byte(text, '-')) ||
	    !take_digits(text, 2, &text->tm.tm_mday))
		return false;
	text->tm.tm_year -= 1900;
	text->tm.tm_mon -= 1;
	return true;
}

/* After the point; digits beyond nine are below a nanosecond. */
static bool read_fraction(struct moment_text *text)
{
	uint64_t worth = NS_PER_S / 10;
	const char *begin = text->at;

	for (; *text->at >= '0' && *text->at <= '9'; text->at++, worth /= 10)
		text->fraction_ns += worth * (uint64_t)(*text->at - '0');
	return text->at > begin;
}

static bool read_zone(struct moment_text *text)
{
	int hours, minutes = 0, sign = *text->at == '-' ? -1 : 1;

	if (*text->at == '\0')
		return true;
	text->has_zone = true;
	if (skip_byte(text, 'Z'))
		return *text->at == '\0';
	if (!skip_byte(text, '+') && !skip_byte(text, '-'))
		return false;
	if (!take_digits(text, 2, &hours))
		return false;
	skip_byte(text, ':');
	if (*text->at && !take_digits(text, 2, &minutes))
		return false;
	text->zone_s = sign * (hours * 60 + minutes) * 60;
	return *text->at == '\0' && hours < 24 && minutes < 60;
}

static bool read_time(struct moment_text *text)
{
	bool colons;

	if (!take_digits(text, 2, &text->tm.tm_hour))
		return false;
	colons = skip_byte(text, ':');
	if (!take_digits(text, 2, &text->tm.tm_min))
		return false;
	if (colons ? skip_byte(text, ':') : (*text->at >= '0' && *text->at <= '9')) {
		if (!take_digits(text, 2, &text->tm.tm_sec))
			return false;
		if (skip_byte(text, '.') && !read_fraction(text))
			return false;
	}
	return read_zone(text);
}

static bool same_day(const struct tm *a, const struct tm *b)
{
	return a->tm_year == b->tm_year && a->tm_mon == b->tm_mon && a->tm_mday == b->tm_mday;
}

static int make_moment(const struct moment_text *text, wall_t *ret)
{
	struct tm tm = text->tm;
	time_t seconds;

	if (tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
		return -EINVAL;
	tm.tm_isdst = -1;
	seconds = text->has_zone ? timegm(&tm) - text->zone_s : mktime(&tm);
	if (tm.tm_hour == text->tm.tm_hour && !same_day(&tm, &text->tm))
		return -EINVAL;
	if (seconds < 0)
		return -ERANGE;
	*ret = (wall_t){ (uint64_t)seconds * NS_PER_S + text->fraction_ns };
	return 0;
}

/* mktime(3) counts the days: one may have 23 hours. */
static int local_midnight(wall_t now, int days_ago, wall_t *ret)
{
	time_t seconds = (time_t)(now.ns / NS_PER_S);
	struct tm tm;

	if (!localtime_r(&seconds, &tm))
		return -ERANGE;
	tm.tm_mday -= days_ago;
	tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
	tm.tm_isdst = -1;
	seconds = mktime(&tm);
	if (seconds < 0)
		return -ERANGE;
	*ret = (wall_t){ (uint64_t)seconds * NS_PER_S };
	return 0;
}

int moment_parse(const char *text, wall_t now, wall_t *ret)
{
	struct moment_text parsed = { .at = text };
	uint64_t ago_ns;
	int rc;

	if (strcmp(text, "now") == 0) {
		*ret = now;
		return 0;
	}
	if (strcmp(text, "today") == 0 || strcmp(text, "yesterday") == 0)
		return local_midnight(now, *text == 'y', ret);
	rc = units_duration(text, strlen(text), &ago_ns);
	if (rc == 0) {
		*ret = (wall_t){ now.ns > ago_ns ? now.ns - ago_ns : 0 };
		return 0;
	}
	if (rc == -ERANGE)
		return rc;
	if (!read_date(&parsed))
		return -EINVAL;
	if (*parsed.at == '\0')
		return make_moment(&parsed, ret);
	if ((!skip_byte(&parsed, 'T') && !skip_byte(&parsed, ' ')) || !read_time(&parsed))
		return -EINVAL;
	return make_moment(&parsed, ret);
}

/* ---- incidents that are being written ---- */

#define TEMPORARY_MAX (INCIDENT_NAME_MAX + sizeof(SPOOL_DIRECTORY_SUFFIX))

struct walk {
	int dirfd;
	int (*visit)(void *ctx, const char *name);
	void *ctx;
};

static bool has_file(int incidentfd, const char *name)
{
	if (faccessat(incidentfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return true;
	output_incomplete(name, -errno);
	return false;
}

bool unsealed_is_written(int incidentfd)
{
	if (!has_file(incidentfd, INCIDENT_FILE) || has_file(incidentfd, MANIFEST_NAME))
		return false;
	if (flock(incidentfd, LOCK_SH | LOCK_NB) < 0)
		return errno == EWOULDBLOCK;

	flock(incidentfd, LOCK_UN);
	return false;
}

int unsealed_open(int dirfd, const char *name)
{
	char temporary[TEMPORARY_MAX];
	int len = snprintf(temporary, sizeof(temporary), "%s%s", name, SPOOL_DIRECTORY_SUFFIX);
	int fd;

	if (len < 0 || (size_t)len >= sizeof(temporary))
		return -ENAMETOOLONG;
	fd = openat(dirfd, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 ? fd : -errno;
}

static int visit_entry(void *ctx, const char *entry)
{
	const struct walk *walk = ctx;
	size_t len = strlen(entry), suffix = strlen(SPOOL_DIRECTORY_SUFFIX);
	char name[INCIDENT_NAME_MAX + 1];
	AUTO_CLOSE int fd = -1;

	if (len <= suffix || len - suffix >= sizeof(name) || strcmp(entry + len - suffix, SPOOL_DIRECTORY_SUFFIX) != 0)
		return 0;
	memcpy(name, entry, len - suffix);
	name[len - suffix] = '\0';
	if (!incident_name_ok(name))
		return 0;
	fd = unsealed_open(walk->dirfd, name);

	return output_incomplete(name, fd) >= 0 && unsealed_is_written(fd) ? walk->visit(walk->ctx, name) : 0;
}

int unsealed_each(int dirfd, int (*visit)(void *ctx, const char *name), void *ctx)
{
	struct walk walk = { .dirfd = dirfd, .visit = visit, .ctx = ctx };

	return directory_list_each(dirfd, visit_entry, &walk);
}

/* ---- a first look ---- */

/* Only the first reason is kept: others are often its consequence. */
static void note_damage(struct incident_load_glance *glance, const char *what, const char *name)
{
	char shown[100];

	if (glance->damaged)
		return;
	text_escape(shown, sizeof(shown), name, strlen(name));
	glance->damaged = true;
	snprintf(glance->why, sizeof(glance->why), "%s %s", shown, what);
}

static int read_manifest(int incidentfd, struct manifest *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	int rc = incident_load_capture(incidentfd, MANIFEST_NAME, &text);

	if (rc < 0)
		return rc;
	return manifest_parse(text.data ? text.data : "", text.len, ret);
}

static void glance_files(int incidentfd, struct incident_load_glance *glance)
{
	struct manifest manifest;
	int rc = read_manifest(incidentfd, &manifest);

	if (output_incomplete(MANIFEST_NAME, rc) < 0) {
		note_damage(glance,
			    rc == -ENOENT    ? "is missing"
			    : rc == -EBADMSG ? "is damaged"
					     : strerror(-rc),
			    MANIFEST_NAME);
		return;
	}
	for (size_t i = 0; i < manifest.count; i++) {
		const struct manifest_entry *entry = &manifest.entries[i];
		struct stat st;

		if (fstatat(incidentfd, entry->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			note_damage(glance,
				    output_incomplete(entry->name, -errno) == -ENOENT ? "is missing" : "cannot be read",
				    entry->name);
		else if (!S_ISREG(st.st_mode))
			note_damage(glance, "is no plain file", entry->name);
		else if ((uint64_t)st.st_size != entry->size_bytes)
			note_damage(glance, "has another size than when it was written", entry->name);
		glance->bytes += entry->size_bytes;
	}
}

/* The incident that has what is missing, at the end of why; NULL: it names none. */
static const char *find_rest(const char *why)
{
	static const char words[] = " in incident ";
	const char *at = strstr(why, words);

	at = at ? at + strlen(words) : NULL;
	return at && *at && *at != '.' && !strchr(at, '/') ? at : NULL;
}

enum incident_load_rest incident_load_rest(int incidentfd, const struct incident_capture *capture)
{
	const char *rest = capture->status == INCIDENT_CAPTURE_FAILED ? find_rest(capture->why) : NULL;
	char path[sizeof(capture->why) + 8];
	struct stat st;

	if (!rest)
		return INCIDENT_REST_NOWHERE;
	snprintf(path, sizeof(path), "../%s", rest);
	if (fstatat(incidentfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return INCIDENT_REST_THERE;
	return output_incomplete(rest, -errno) == -ENOENT ? INCIDENT_REST_GONE : INCIDENT_REST_THERE;
}

static void glance_rest(int incidentfd, struct incident *incident, struct incident_load_glance *glance)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		struct incident_capture *capture = &incident->captures[i];
		size_t len = strlen(capture->why);

		if (incident_load_rest(incidentfd, capture) != INCIDENT_REST_GONE)
			continue;
		glance->gone |= strcmp(capture->name, "samples") == 0;
		incident_text(capture->why + len, sizeof(capture->why) - len, INCIDENT_LOAD_GONE);
	}
}

static void glance_open(struct incident *incident, struct incident_load_glance *glance)
{
	size_t kept = 0;

	for (size_t i = 0; i < incident->capture_count; i++) {
		if (strcmp(incident->captures[i].name, "samples") == 0)
			continue;
		incident->captures[kept] = incident->captures[i];
		glance->bytes += incident->captures[kept++].bytes;
	}
	incident->capture_count = kept;
}

void incident_load_glance(int incidentfd, struct incident *ret_incident, struct incident_load_glance *ret)
{
	int rc;

	*ret = (struct incident_load_glance){ 0 };
	rc = output_incomplete(INCIDENT_FILE, incident_json_read(incidentfd, ret_incident));
	ret->readable = rc == 0;
	if (rc < 0) {
		incident_init(ret_incident, "");
		note_damage(ret,
			    rc == -ENOENT    ? "is missing"
			    : rc == -EBADMSG ? "is damaged"
					     : strerror(-rc),
			    INCIDENT_FILE);
	}
	ret->open = ret->readable && unsealed_is_written(incidentfd);
	if (ret->open)
		glance_open(ret_incident, ret);
	else {
		glance_files(incidentfd, ret);
		glance_rest(incidentfd, ret_incident, ret);
	}
}

/* ---- directories ---- */

#define READ_BYTES 65536

int incident_load_own_directory(char *buf, size_t cap)
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

int incident_load_directory(const char *option, char *buf, size_t cap)
{
	const char *environment = getenv("SPIKEWATCH_DIR");
	int len;

	if (option)
		len = snprintf(buf, cap, "%s", option);
	else if (environment && *environment)
		len = snprintf(buf, cap, "%s", environment);
	else if (access(PATHS_SYSTEM_INCIDENTS, R_OK) == 0)
		len = snprintf(buf, cap, "%s", PATHS_SYSTEM_INCIDENTS);
	else
		return incident_load_own_directory(buf, cap);
	return len >= 0 && (size_t)len < cap ? 0 : -ENAMETOOLONG;
}

int incident_load_places(const char *option, struct incident_load_places *ret)
{
	const char *environment = getenv("SPIKEWATCH_DIR");
	int rc = incident_load_directory(option, ret->path[0], sizeof(ret->path[0]));
	struct stat first, second;

	ret->count = rc < 0 ? 0 : 1;
	ret->hidden = !option && !(environment && *environment) && access(PATHS_SYSTEM_INCIDENTS, R_OK) < 0 &&
		      errno == EACCES;
	if (rc < 0 || option || (environment && *environment) ||
	    incident_load_own_directory(ret->path[1], sizeof(ret->path[1])) < 0)
		return rc;
	/* Both are one if the first was not there, or if they are links. */
	if (stat(ret->path[0], &first) == 0 && stat(ret->path[1], &second) == 0 && S_ISDIR(second.st_mode) &&
	    (first.st_dev != second.st_dev || first.st_ino != second.st_ino))
		ret->count = 2;
	return 0;
}

/* ---- names ---- */

struct listing {
	int dirfd;
	struct incident_load_names names;
};

static void release_listing(struct listing *listing)
{
	incident_load_names_release(&listing->names);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* A name and when it came; UINT64_MAX: the daemon has not noted that yet. */
struct arrival {
	uint64_t at_ns;
	char name[INCIDENT_NAME_MAX + 1];
};

static int compare_arrivals(const void *a, const void *b)
{
	const struct arrival *left = a, *right = b;

	if (left->at_ns != right->at_ns)
		return left->at_ns < right->at_ns ? -1 : 1;
	return strcmp(left->name, right->name);
}

static int compare_with_name(const void *name, const void *arrival)
{
	return strcmp(name, ((const struct arrival *)arrival)->name);
}

/* A line of the file, for one of these, which are sorted by name. */
static void note_arrival(char *line, struct arrival *arrivals, size_t count)
{
	char *tab = strchr(line, '\t');
	struct arrival *found;

	if (!tab)
		return;
	*tab = '\0';
	found = bsearch(line, arrivals, count, sizeof(*arrivals), compare_with_name);
	if (found)
		found->at_ns = strtoull(tab + 1, NULL, 10);
}

/* By arrival; those that came together by name. 0; -ENOMEM. */
static int sort_names(int dirfd, struct incident_load_names *names)
{
	AUTO(buffer_release) struct buffer text = { .max = SPOOL_AGES_BYTES_MAX };
	AUTO_FREE struct arrival *arrivals = calloc(names->count + 1, sizeof(*arrivals));
	int r = output_incomplete("the order of incidents", whole_file_read(dirfd, SPOOL_AGES_FILE, &text));
	char *rest;

	if (!arrivals || r == -ENOMEM || buffer_append(&text, "", 1) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < names->count; i++) {
		arrivals[i].at_ns = UINT64_MAX;
		memcpy(arrivals[i].name, names->name[i], sizeof(arrivals[i].name));
	}
	rest = text.data;
	for (char *line; (line = strsep(&rest, "\n"));)
		note_arrival(line, arrivals, names->count);
	qsort(arrivals, names->count, sizeof(*arrivals), compare_arrivals);
	for (size_t i = 0; i < names->count; i++)
		memcpy(names->name[i], arrivals[i].name, sizeof(names->name[i]));
	return 0;
}

/* Returns 1 when there are too many. */
static int add_name(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	struct incident_load_names *names = &listing->names;
	struct stat st;

	if (!incident_name_ok(name))
		return 0;
	if (fstatat(listing->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		output_incomplete(name, -errno);
		return 0;
	}
	if (!S_ISDIR(st.st_mode))
		return 0;
	names->cut = names->count == INCIDENT_LOAD_NAMES_MAX;
	if (names->cut)
		return 1;
	if (vector_reserve(&names->name, &names->cap, names->count + 1, sizeof(*names->name)) < 0)
		return -ENOMEM;
	incident_text(names->name[names->count++], sizeof(*names->name), name);
	return 0;
}

int incident_load_list(int dirfd, struct incident_load_names *ret)
{
	AUTO(release_listing) struct listing listing = { .dirfd = dirfd };
	int rc = directory_list_each(dirfd, add_name, &listing);

	if (rc < 0)
		return rc;
	if (listing.names.count > 0) {
		qsort(listing.names.name, listing.names.count, sizeof(*listing.names.name), compare_names);
		rc = sort_names(dirfd, &listing.names);
	}
	if (rc < 0)
		return rc;
	*ret = listing.names;
	listing.names = (struct incident_load_names){ 0 };
	return 0;
}

/* how: 0 the whole name, 1 its beginning, 2 any part. */
static bool name_matches(const char *name, const char *query, int how)
{
	if (how == 0)
		return strcmp(name, query) == 0;
	if (how == 1)
		return strncmp(name, query, strlen(query)) == 0;
	return strstr(name, query) != NULL;
}

int incident_load_find(const struct incident_load_names *names, const char *query, const char **ret)
{
	if (names->count == 0 || *query == '\0')
		return INCIDENT_LOAD_NONE;
	if (strcmp(query, "last") == 0) {
		*ret = names->name[names->count - 1];
		return 0;
	}
	for (int how = 0; how < 3; how++) {
		const char *found = NULL;
		size_t count = 0;

		for (size_t i = 0; i < names->count; i++) {
			if (!name_matches(names->name[i], query, how))
				continue;
			found = names->name[i];
			count++;
		}
		if (count == 0)
			continue;
		*ret = found;
		return count == 1 ? 0 : INCIDENT_LOAD_MANY;
	}
	return INCIDENT_LOAD_NONE;
}

/* ---- one incident ---- */

int incident_load_open(int dirfd, const char *name)
{
	/* A path from a command line may go through links; a name found in a listing may not. */
	int flags = strchr(name, '/') ? 0 : O_NOFOLLOW;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);

	return fd >= 0 ? fd : -errno;
}

int incident_load_open_file(int incidentfd, const char *name)
{
	/* Non-blocking, in case a FIFO took the place of the file. */
	AUTO_CLOSE int fd = openat(incidentfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return output_incomplete(name, errno == ELOOP || errno == ENXIO ? -EBADMSG : -errno);
	if (fstat(fd, &st) < 0)
		return output_incomplete(name, -errno);
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	return TAKE_FD(fd);
}

static int append_fd(int fd, uint64_t max, struct buffer *buffer)
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
		rc = buffer_append(buffer, piece, (size_t)len);
		if (rc != 0)
			return rc;
		max -= (uint64_t)len;
	}
	return 0;
}

static int read_text(int incidentfd, const char *name, uint64_t max, struct buffer *buffer)
{
	AUTO_CLOSE int fd = incident_load_open_file(incidentfd, name);

	return fd < 0 ? fd : output_incomplete(name, append_fd(fd, max, buffer));
}

int incident_load_whole(int incidentfd, const char *name, struct buffer *buffer)
{
	return read_text(incidentfd, name, UINT64_MAX, buffer);
}

int incident_load_capture(int incidentfd, const char *name, struct buffer *buffer)
{
	return read_text(incidentfd, name, INCIDENT_LOAD_CAPTURE_MAX, buffer);
}

/* ---- what a command line names, explained on stderr if there is none ---- */

#define NOT_A_DIRECTORY "a file, not the directory of an incident; spikewatch export restores a page of a report"

/* Returns error. */
static int pick_refuse(const char *command, const char *what, const char *why, int error)
{
	output_complain(command, what, why);
	return error;
}

int incident_pick_directory(const char *command, const char *option, char *buf, size_t cap)
{
	int rc = incident_load_directory(option, buf, cap);

	if (rc == -ENOENT)
		return pick_refuse(command, "the directory of incidents is not known",
				   "neither HOME nor XDG_STATE_HOME is set; use -d DIR", rc);
	return rc < 0 ? pick_refuse(command, "the directory of incidents is not known", strerror(-rc), rc) : 0;
}

/* The newest incident in path that query stands for. False: none. */
static bool find_newest(const char *path, const char *query, char ret[static INCIDENT_NAME_MAX + 1])
{
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	AUTO_CLOSE int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *name;

	if (dirfd < 0 || incident_load_list(dirfd, &names) < 0 ||
	    incident_load_find(&names, query, &name) == INCIDENT_LOAD_NONE)
		return false;
	incident_text(ret, INCIDENT_NAME_MAX + 1, name);
	return true;
}

int incident_pick_place(const char *command, const char *option, const char *query, char *buf, size_t cap)
{
	struct incident_load_places places;
	char name[INCIDENT_LOAD_PLACES_MAX][INCIDENT_NAME_MAX + 1] = { "" };
	size_t place = 0;

	if (incident_load_places(option, &places) < 0)
		return incident_pick_directory(command, option, buf, cap);
	for (size_t i = 0; i < places.count; i++) {
		if (find_newest(places.path[i], query, name[i]) && strcmp(name[i], name[place]) > 0)
			place = i;
	}
	if (places.hidden && (!*name[place] || strcmp(query, "last") == 0))
		fprintf(stderr, "%s: " INCIDENT_LOAD_HIDDEN, command);
	if (*name[place] && places.count > 1) {
		fprintf(stderr, "%s: from ", command);
		output_escaped(stderr, places.path[place]);
		fputc('\n', stderr);
	}
	return (size_t)snprintf(buf, cap, "%s", places.path[place]) < cap ? 0 : -ENAMETOOLONG;
}

size_t incident_pick_hidden(const char *command, int dirfd, const struct incident_load_names *names)
{
	size_t hidden = 0;

	for (size_t i = 0; i < names->count; i++) {
		AUTO_CLOSE int fd = incident_load_open(dirfd, names->name[i]);

		if (fd == -EACCES || fd == -EPERM)
			hidden++;
		else
			output_incomplete(names->name[i], fd);
	}
	if (hidden)
		fprintf(stderr,
			"%s: no permission to read %zu of %zu incidents: run it as root or as a member of the group "
			"spikewatch\n",
			command, hidden, names->count);
	return hidden;
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* With a hint at what might have been meant. Returns -ENOENT. */
static int refuse_none(const char *command, const char *directory, const char *query, size_t count)
{
	if (is_file(query))
		return pick_refuse(command, query, NOT_A_DIRECTORY, -ENOENT);
	if (access(query, F_OK) == 0)
		return pick_refuse(command, query, "no incident has this name; a path has a slash, as in ./NAME",
				   -ENOENT);
	if (count == 0)
		return pick_refuse(command, directory, "there are no incidents here; use -d DIR for another directory",
				   -ENOENT);
	return pick_refuse(command, query, "no incident has this name; see spikewatch list", -ENOENT);
}

struct unsealed_query {
	const char *query;
	char name[INCIDENT_NAME_MAX + 1];
	size_t count;
};

static int match_unsealed(void *ctx, const char *name)
{
	struct unsealed_query *wanted = ctx;

	if (strstr(name, wanted->query) && wanted->count++ == 0)
		incident_text(wanted->name, sizeof(wanted->name), name);
	return 0;
}

/* An incident that is still being written. fd; -ENOENT: none or several match. */
static int open_unsealed(int dirfd, const char *query)
{
	struct unsealed_query wanted = { .query = query };
	int rc = *query ? unsealed_each(dirfd, match_unsealed, &wanted) : 0;

	return rc == 0 && wanted.count == 1 ? unsealed_open(dirfd, wanted.name) : -ENOENT;
}

static int open_by_id(const char *command, const char *directory, const char *query)
{
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *name;
	int fd, rc = dirfd >= 0 ? incident_load_list(dirfd, &names) : -errno;

	if (rc == -ENOENT)
		return pick_refuse(command, directory, "there is no such directory; use -d DIR for another one", rc);
	if (rc < 0)
		return pick_refuse(command, directory, strerror(-rc), rc);
	rc = incident_load_find(&names, query, &name);
	if (rc == INCIDENT_LOAD_NONE) {
		fd = open_unsealed(dirfd, query);
		return fd >= 0 ? fd : refuse_none(command, directory, query, names.count);
	}
	if (rc == INCIDENT_LOAD_MANY) {
		pick_refuse(command, query, "more than one incident matches; the newest of them is", -EEXIST);
		fprintf(stderr, "  %s\n", name);
		return -EEXIST;
	}
	fd = incident_load_open(dirfd, name);
	return fd >= 0 ? fd : pick_refuse(command, query, strerror(-fd), fd);
}

static int open_any(const char *command, const char *option, const char *query)
{
	char directory[INCIDENT_LOAD_PATH_MAX];
	int rc;

	if (strchr(query, '/') || strcmp(query, ".") == 0) {
		rc = incident_load_open(AT_FDCWD, strcmp(query, ".") == 0 ? "./" : query);
		return rc >= 0 ? rc : pick_refuse(command, query, is_file(query) ? NOT_A_DIRECTORY : strerror(-rc), rc);
	}
	rc = incident_pick_place(command, option, query, directory, sizeof(directory));
	if (rc < 0)
		return rc;
	return open_by_id(command, directory, query);
}

int incident_pick_any(const char *command, const char *directory, const char *query, int *ret)
{
	AUTO_CLOSE int fd = open_any(command, directory, query);

	if (fd < 0)
		return fd;
	if (faccessat(fd, INCIDENT_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return pick_refuse(command, query, "not an incident: there is no " INCIDENT_FILE " in it",
				   INCIDENT_PICK_FOREIGN);
	*ret = TAKE_FD(fd);
	return 0;
}

int incident_pick(const char *command, const char *directory, const char *query, int *ret)
{
	AUTO_CLOSE int fd = -1;
	int rc = incident_pick_any(command, directory, query, &fd);

	if (rc != 0)
		return rc;
	if (unsealed_is_written(fd))
		return pick_refuse(command, query, "still being written; spikewatch show shows what there is so far",
				   -EBUSY);
	*ret = TAKE_FD(fd);
	return 0;
}
