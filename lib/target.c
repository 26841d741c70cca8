/*
 * target.c: a target as bytes. In the byte order of the machine, because they never leave it: they live in a ring that is mapped
 * by processes of the same boot.
 *
 *	 0  u32 id
 *	 4  u32 kind
 *	 8  i32 pid
 *	12  u32 length of all of it
 *	16  u64 start_ticks
 *	24  six strings, each a u16 length, the bytes, a NUL: entry, name, key, comm, cmdline, cgroup
 *	    of what is in a container a seventh, which is not empty: container
 *	    zeros up to a multiple of 8
 *
 * The NULs let a decoded target point into the bytes; decoding checks them, and that no string holds another.
 *
 * A target that is too long loses bytes in the order of what is missed least: cmdline first, then the container's image and the cgroup's
 * path, the key, which is its identity, last.
 */
#include "target.h"
#include "scope.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { ENTRY, NAME, KEY, COMM, CMDLINE, CGROUP, CONTAINER, STRINGS };

struct head {
	uint32_t id;
	uint32_t kind;
	int32_t pid;
	uint32_t length;
	uint64_t start_ticks;
};

_Static_assert(sizeof(struct head) == 24, "the head of an encoded target has a fixed layout");
_Static_assert(TARGET_ENCODED_MAX % 8 == 0, "padding never exceeds the maximum");

/* A string costs this beyond its bytes: length and NUL. */
#define STRING_EXTRA (sizeof(uint16_t) + 1)

/* The largest length <= len that does not end within a UTF-8 character; len itself where the text is no UTF-8. */
static size_t whole_characters(const char *text, size_t len)
{
	size_t start = len;

	while (start > 0 && len - start < 3 && ((unsigned char)text[start] & 0xc0) == 0x80)
		start--;

	return ((unsigned char)text[start] & 0xc0) == 0xc0 ? start : len;
}

/* Shortens strings, in the order of cuts, until they fit together. */
static void fit(const char *const strings[STRINGS], size_t lens[STRINGS])
{
	const size_t extra = (lens[CONTAINER] > 0 ? STRINGS : STRINGS - 1) * STRING_EXTRA;
	const size_t room = TARGET_ENCODED_MAX - sizeof(struct head) - extra;
	static const int cuts[] = { CMDLINE, CONTAINER, CGROUP, NAME, COMM, ENTRY, KEY };
	size_t total = 0;

	for (int i = 0; i < STRINGS; i++)
		total += lens[i];

	for (size_t i = 0; i < ARRAY_LEN(cuts) && total > room; i++) {
		size_t *len = &lens[cuts[i]];
		size_t excess = total - room;
		size_t cut = *len > excess ? whole_characters(strings[cuts[i]], *len - excess) : 0;

		total -= *len - cut;
		*len = cut;
	}
}

static char *put_string(char *at, const char *text, size_t len)
{
	uint16_t stored = (uint16_t)len;

	memcpy(at, &stored, sizeof(stored));
	memcpy(at + sizeof(stored), text, len);
	at[sizeof(stored) + len] = '\0';

	return at + STRING_EXTRA + len;
}

size_t target_encode(const struct target *target, void *buf, size_t cap)
{
	const char *const strings[STRINGS] = {
		[ENTRY] = target->entry,
		[NAME] = target->name,
		[KEY] = target->key,
		[COMM] = target->comm,
		[CMDLINE] = target->cmdline,
		[CGROUP] = target->cgroup,
		[CONTAINER] = target->container ? target->container : "",
	};
	size_t lens[STRINGS];
	char *at = (char *)buf + sizeof(struct head);

	assert(cap >= TARGET_ENCODED_MAX);

	for (int i = 0; i < STRINGS; i++)
		lens[i] = strnlen(strings[i], UINT16_MAX);
	fit(strings, lens);
	for (int i = 0; i < STRINGS; i++)
		if (i != CONTAINER || lens[i] > 0)
			at = put_string(at, strings[i], lens[i]);
	while ((size_t)(at - (char *)buf) % 8 != 0)
		*at++ = '\0';

	size_t length = (size_t)(at - (char *)buf);
	struct head head = {
		.id = target->id,
		.kind = (uint32_t)target->kind,
		.pid = target->pid,
		.length = (uint32_t)length,
		.start_ticks = target->start_ticks,
	};

	memcpy(buf, &head, sizeof(head));
	return length;
}

/* Takes one string off *at, NULL if what is there is none. */
static const char *get_string(const char **at, const char *end)
{
	uint16_t len;

	if ((size_t)(end - *at) < STRING_EXTRA)
		return NULL;
	memcpy(&len, *at, sizeof(len));
	if ((size_t)(end - *at) - STRING_EXTRA < len)
		return NULL;

	const char *text = *at + sizeof(len);

	if (text[len] != '\0' || memchr(text, '\0', len) != NULL)
		return NULL;

	*at = text + len + 1;
	return text;
}

static bool only_padding(const char *at, const char *end)
{
	if (end - at >= 8)
		return false;
	while (at < end)
		if (*at++ != '\0')
			return false;

	return true;
}

int target_decode(const void *buf, size_t len, struct target *ret)
{
	struct head head;

	if (len < sizeof(head) || len > TARGET_ENCODED_MAX || len % 8 != 0)
		return -EBADMSG;
	memcpy(&head, buf, sizeof(head));
	if (head.length != len || head.kind < TARGET_PROCESS || head.kind > TARGET_GROUP)
		return -EBADMSG;

	const char *at = (const char *)buf + sizeof(head), *end = (const char *)buf + len;
	const char *strings[STRINGS];

	for (int i = 0; i < CONTAINER; i++) {
		strings[i] = get_string(&at, end);
		if (strings[i] == NULL)
			return -EBADMSG;
	}
	strings[CONTAINER] = "";
	if (!only_padding(at, end)) {
		strings[CONTAINER] = get_string(&at, end);
		if (strings[CONTAINER] == NULL || *strings[CONTAINER] == '\0' || !only_padding(at, end))
			return -EBADMSG;
	}

	*ret = (struct target){
		.id = head.id,
		.kind = (enum target_kind)head.kind,
		.pid = head.pid,
		.start_ticks = head.start_ticks,
		.entry = strings[ENTRY],
		.name = strings[NAME],
		.key = strings[KEY],
		.comm = strings[COMM],
		.cmdline = strings[CMDLINE],
		.cgroup = strings[CGROUP],
		.container = strings[CONTAINER],
	};
	return 0;
}

const char *target_kind_name(enum target_kind kind)
{
	switch (kind) {
	case TARGET_PROCESS:
		return "process";
	case TARGET_CGROUP:
		return "cgroup";
	case TARGET_GROUP:
		return "group";
	}

	return "?";
}
