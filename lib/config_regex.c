/*
 * config_regex.c: glibc's regcomp(3) trusts its pattern: "a++++++++++++++++++++++++" takes gigabytes, because what
 * is repeated is copied, and copies of copies multiply; a chain of "a?*?" takes years, because its ways past
 * optional loops within loops are all walked. Both are estimated here, in one pass and rather too high than too
 * low.
 *
 *	size   nodes: a character 1, "+" doubles, "{n}" takes n times, what it is applied to
 *	depth  repetitions within repetitions: "((a+)*b)?" has 3
 *	deep   how many such of three levels or more there are, copies counted: each may double the time
 *
 * Measured with glibc 2.36: size 2,000 is 0.2 s and 10 MB at worst; 20 of "a?*?" take 0.4 s, 24 take 6 s.
 */
#include "config_regex.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MOST 2000UL
#define DEEP_MOST 10UL
#define GROUPS_MOST 30
#define DEEP 3

struct cost {
	unsigned long size, deep;
	unsigned depth;
};

static struct cost join(struct cost a, struct cost b)
{
	return (struct cost){ a.size + b.size, a.deep + b.deep, a.depth > b.depth ? a.depth : b.depth };
}

static struct cost repeat(struct cost atom, unsigned long copies)
{
	unsigned depth = atom.depth + 1;

	return (struct cost){ atom.size * copies + 1, (atom.deep + (depth >= DEEP)) * copies, depth };
}

static bool is_cheap(struct cost cost)
{
	return cost.size <= SIZE_MOST && cost.deep <= DEEP_MOST;
}

/* The copies that the operator at *at makes, *at is then its last character. 0: it is none. */
static unsigned long copies(const char **at)
{
	unsigned long least, most;
	char *end;

	if (**at == '*' || **at == '?')
		return 1;
	if (**at == '+')
		return 2;
	if (**at != '{')
		return 0;
	/* "{3}", "{2,}", "{,5}", "{2,5}" */
	least = strtoul(*at + 1, &end, 10);
	most = least;
	if (*end == ',')
		most = end[1] == '}' ? (end++, least < SIZE_MOST ? least + 1 : least) : strtoul(end + 1, &end, 10);
	if (*end != '}')
		return 0;
	*at = end;
	most = most > least ? most : least;
	return most == 0 ? 1 : most <= SIZE_MOST ? most : SIZE_MOST + 1;
}

/* "\\1": what an earlier group has matched, which POSIX does not have here. Looking for it takes time that is cubic in the text. */
static bool is_back_reference(const char *at)
{
	return at[0] == '\\' && at[1] >= '1' && at[1] <= '9';
}

/* Where the character or set at `at` ends at the earliest: its last byte. */
static const char *atom_end(const char *at)
{
	const char *end = NULL;

	if (*at == '\\' && at[1] != '\0')
		return at + 1;
	if (*at == '[' && at[1] != '\0')
		end = strchr(at + (at[1] == '^' && at[2] != '\0' ? 3 : 2), ']');
	return end != NULL ? end : at;
}

bool config_regex_is_cheap(const char *regex)
{
	struct cost before[GROUPS_MOST + 1] = { 0 }; /* in each open group, what precedes the atom */
	struct cost atom = { 0 };
	size_t group = 0;

	for (const char *at = regex; *at != '\0'; at++) {
		unsigned long times = copies(&at);

		if (times > 0) {
			atom = repeat(atom, times);
		} else if (*at == '(') {
			if (group == GROUPS_MOST)
				return false;
			before[group] = join(before[group], atom);
			before[++group] = atom = (struct cost){ 0 };
		} else if (*at == ')' && group > 0) {
			atom = join(join(before[group--], atom), (struct cost){ 3, 0, 0 });
		} else {
			before[group] = join(before[group], atom);
			atom = (struct cost){ 1, 0, 0 };
			if (is_back_reference(at))
				return false;
			at = atom_end(at);
		}
		if (!is_cheap(join(before[group], atom)))
			return false;
	}
	return true;
}
