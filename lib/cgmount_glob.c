/* cgmount_glob.c: patterns of paths. */
#include "cgmount.h"

#include <string.h>

/* Matches one byte against the set at *glob, "[a-z]" or "[!a-z]", and moves *glob behind it. A '[' left open is a byte. */
static bool match_set(const char **glob, char byte)
{
	const char *at = *glob + 1;
	bool negated = *at == '!' || *at == '^';
	bool found = false;

	at += negated;
	for (const char *first = at; *at != ']' || at == first; at++) {
		if (*at == '\0') {
			*glob += 1;
			return byte == '[';
		}

		char low = *at;
		bool range = at[1] == '-' && at[2] != ']' && at[2] != '\0';
		at += range ? 2 : 0;
		found |= byte >= low && byte <= *at;
	}

	*glob = at + 1;
	return found != negated;
}

/* Matches one byte of the path against what is at *glob, no star, and moves *glob behind it. */
static bool match_byte(const char **glob, char byte)
{
	if (**glob == '[' && byte != '/')
		return match_set(glob, byte);

	bool same = **glob == byte || (**glob == '?' && byte != '/');
	*glob += same;
	return same;
}

/* Where matching goes on when it fails behind a star: the star takes one byte (or component) more. */
struct retry {
	const char *glob;
	const char *path;
};

/* Lets a ** take more: a byte, or for a whole component up to the next one. */
static bool next_start(struct retry *stars)
{
	bool component = stars->glob[-1] == '/';
	const char *slash = component ? strchr(stars->path, '/') : stars->path;

	if (!slash || *slash == '\0')
		return false;

	stars->path = slash + 1;
	return true;
}

/*
 * Two places to go back to are enough, the last * and the last **: what an earlier one could take instead, a later one of
 * the same kind can take as well. So the time is bounded by the product of the three lengths, and nothing recurses.
 * A "**" that is a whole component also matches none at all.
 */
bool cgroup_glob(const char *glob, const char *path)
{
	struct retry star = { 0 };
	struct retry stars = { 0 };
	const char *start = glob;

	while (*path != '\0' || *glob != '\0') {
		bool component = glob == start || glob[-1] == '/';

		if (glob[0] == '*' && glob[1] == '*') {
			glob += component && glob[2] == '/' ? 3 : 2;
			stars = (struct retry){ glob, path };
			star.glob = NULL;
		} else if (glob[0] == '*') {
			star = (struct retry){ ++glob, path };
		} else if (*path != '\0' && match_byte(&glob, *path)) {
			path++;
		} else if (star.glob && *star.path != '\0' && *star.path != '/') {
			path = ++star.path;
			glob = star.glob;
		} else if (stars.glob && next_start(&stars)) {
			path = stars.path;
			glob = stars.glob;
			star.glob = NULL;
		} else {
			return false;
		}
	}

	return true;
}
