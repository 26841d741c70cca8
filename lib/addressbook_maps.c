/*
 * addressbook_maps.c: proc_pid_maps(5).
 *
 *	7f2c9a5b1000-7f2c9a709000 r-xp 00028000 fd:01 1835432                    /usr/lib/x86_64-linux-gnu/libc.so.6
 *
 * The kernel writes a newline in a path as \012, and nothing else differently. What is mapped from no file has no path; perf's records call it
 * "//anon".
 */
#include "addressbook_maps.h"

#include <string.h>
#include <sys/mman.h>

struct line {
	const char *at, *end;
};

/* A number and the one character after it. */
static bool take_number(struct line *line, unsigned base, char after, uint64_t *ret)
{
	const char *from = line->at;
	uint64_t value = 0;

	for (; line->at < line->end; line->at++) {
		unsigned char c = (unsigned char)*line->at;
		unsigned digit = c >= '0' && c <= '9' ? c - (unsigned)'0' : c >= 'a' && c <= 'f' ? c - 'a' + 10u : 16;

		if (digit >= base)
			break;
		if (value > (UINT64_MAX - digit) / base)
			return false;
		value = value * base + digit;
	}
	*ret = value;
	return line->at > from && line->at < line->end && *line->at++ == after;
}

static bool take_permissions(struct line *line, struct perfrecord_mmap *ret)
{
	if (line->end - line->at < 5 || line->at[4] != ' ')
		return false;
	ret->prot = (line->at[0] == 'r' ? PROT_READ : 0u) | (line->at[1] == 'w' ? PROT_WRITE : 0u) |
		    (line->at[2] == 'x' ? PROT_EXEC : 0u);
	ret->flags = line->at[3] == 's' ? MAP_SHARED : MAP_PRIVATE;
	line->at += 5;
	return true;
}

static bool take_path(struct line *line, char path[ADDRESSBOOK_MAPS_PATH_MAX], size_t *ret_len)
{
	size_t len = 0;

	while (line->at < line->end && *line->at == ' ')
		line->at++;
	while (line->at < line->end && len < ADDRESSBOOK_MAPS_PATH_MAX) {
		if (line->end - line->at >= 4 && memcmp(line->at, "\\012", 4) == 0) {
			path[len++] = '\n';
			line->at += 4;
		} else {
			path[len++] = *line->at++;
		}
	}
	if (len == ADDRESSBOOK_MAPS_PATH_MAX || memchr(path, '\0', len) != NULL)
		return false;
	path[len] = '\0';
	*ret_len = len;
	return true;
}

static bool read_line(struct line *line, char path[ADDRESSBOOK_MAPS_PATH_MAX], struct perfrecord_mmap *ret)
{
	uint64_t end, major, minor;

	memset(ret, 0, sizeof(*ret));
	if (!take_number(line, 16, '-', &ret->start) || !take_number(line, 16, ' ', &end) || end <= ret->start ||
	    !take_permissions(line, ret) || !take_number(line, 16, ' ', &ret->offset) ||
	    !take_number(line, 16, ':', &major) || !take_number(line, 16, ' ', &minor) ||
	    !take_number(line, 10, ' ', &ret->file.inode) || !take_path(line, path, &ret->path_len))
		return false;
	ret->len = end - ret->start;
	ret->file.major = (uint32_t)major;
	ret->file.minor = (uint32_t)minor;
	if (ret->path_len == 0) {
		memcpy(path, "//anon", sizeof("//anon"));
		ret->path_len = strlen(path);
	}
	ret->path = path;
	return true;
}

bool addressbook_maps_next(struct addressbook_maps *maps, struct perfrecord_mmap *ret)
{
	while (maps->at < maps->len) {
		const char *from = maps->text + maps->at;
		const char *newline = memchr(from, '\n', maps->len - maps->at);
		struct line line = { from, newline != NULL ? newline : maps->text + maps->len };
		struct perfrecord_mmap mmap;

		maps->at = (size_t)(line.end - maps->text) + (newline != NULL);
		if (read_line(&line, maps->path, &mmap) && (mmap.prot & PROT_EXEC)) {
			*ret = mmap;
			return true;
		}
	}
	return false;
}
