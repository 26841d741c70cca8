/*
 * target.c: a target as bytes, in the byte order of the machine: they live in a ring that is mapped
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
 * The NULs let a decoded target point into the bytes; decoding checks them, and that no string
 * holds another NUL. A target that is too long loses the least important bytes first: cmdline, then
 * the container's image and the cgroup's path, the key, which is its identity, last.
 *
 * Containers: one table has the fields of the packed form in their order, the least important last,
 * where they may be cut off.
 *
 * Labels: keys and values one after the other, sorted by key, each with its NUL; adding moves what
 * follows. When room is short the longest is dropped: labels used for selection are short. What an
 * image brings takes no room from a pod's labels: else the maker of an image would choose the names
 * of the pods that use it.
 */
#include "lib/model/target.h"

#include "lib/base/base.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define SHORT_ID 12 /* what docker ps shows */

const char *container_runtime_name(enum container_runtime runtime)
{
	static const char *const names[CONTAINER_RUNTIMES] = {
		[CONTAINER_UNKNOWN] = "container", [CONTAINER_DOCKER] = "docker", [CONTAINER_CONTAINERD] = "containerd",
		[CONTAINER_CRIO] = "crio",         [CONTAINER_PODMAN] = "podman", [CONTAINER_NSPAWN] = "nspawn",
		[CONTAINER_LXC] = "lxc",
	};
	return runtime < CONTAINER_RUNTIMES ? names[runtime] : names[CONTAINER_UNKNOWN];
}

void container_text(char *ret, size_t cap, const char *text, size_t len)
{
	len = strnlen(text, len);
	if (len >= cap) {
		len = cap - 1;
		while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
			len--;
	}
	for (size_t i = 0; i < len; i++)
		ret[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '_' : text[i];
	ret[len] = '\0';
}

/* ---- names ---- */

static bool is_hex(const char *text)
{
	return text[strspn(text, "0123456789abcdef")] == '\0';
}

void container_short(const struct container *container, char *ret, size_t cap)
{
	if (container->name[0] != '\0')
		snprintf(ret, cap, "%s", container->name);
	else
		snprintf(ret, cap, "%.*s", is_hex(container->id) ? SHORT_ID : CONTAINER_TEXT_MAX, container->id);
}

void container_title(const struct container *container, char *ret, size_t cap)
{
	char name[CONTAINER_TEXT_MAX + 1];

	container_short(container, name, sizeof name);
	if (container->pod[0] != '\0')
		snprintf(ret, cap, "pod/%s/%s/%s", container->space, container->pod, name);
	else
		snprintf(ret, cap, "%s/%s", container_runtime_name(container->runtime), name);
}

bool container_matches(const struct container *container, const char *pattern)
{
	static const char image[] = "image:";
	char title[CONTAINER_TITLE_MAX];
	size_t len = strlen(pattern);

	if (container->sandbox)
		return false;
	if (strncmp(pattern, image, sizeof image - 1) == 0)
		return container->image[0] != '\0' && fnmatch(pattern + sizeof image - 1, container->image, 0) == 0;

	container_title(container, title, sizeof title);
	return fnmatch(pattern, title, 0) == 0 || fnmatch(pattern, strchr(title, '/') + 1, 0) == 0 ||
	       (container->name[0] != '\0' && fnmatch(pattern, container->name, 0) == 0) ||
	       fnmatch(pattern, container->id, 0) == 0 ||
	       (len >= SHORT_ID && is_hex(pattern) && strncmp(pattern, container->id, len) == 0);
}

/* ---- packed ---- */

/* clang-format off */
#define FIELD(m) { offsetof(struct container, m), sizeof(((struct container *)NULL)->m) }
static const struct { size_t offset, room; } fields[] = {
	FIELD(id), FIELD(name), FIELD(space), FIELD(pod), FIELD(image),
};
/* clang-format on */

void container_pack(const struct container *container, char *ret, size_t cap)
{
	int len = snprintf(ret, cap, "%s", container_runtime_name(container->runtime));

	for (size_t i = 0; i < ARRAY_LEN(fields) && (size_t)len < cap; i++)
		len += snprintf(ret + len, cap - (size_t)len, "\t%s", (const char *)container + fields[i].offset);
}

bool container_unpack(const char *text, struct container *ret)
{
	struct container container = { .runtime = CONTAINER_UNKNOWN };
	size_t len = text ? strcspn(text, "\t") : 0;

	if (len == 0 || text[len] == '\0')
		return false;

	for (enum container_runtime i = CONTAINER_UNKNOWN; i < CONTAINER_RUNTIMES; i++)
		if (strncmp(container_runtime_name(i), text, len) == 0 && container_runtime_name(i)[len] == '\0')
			container.runtime = i;
	for (size_t i = 0; i < ARRAY_LEN(fields) && text[len] == '\t'; i++) {
		text += len + 1;
		len = strcspn(text, "\t");
		container_text((char *)&container + fields[i].offset, fields[i].room, text, len);
	}
	if (container.id[0] == '\0')
		return false;
	*ret = container;
	return true;
}

static size_t size_of(const char *key)
{
	size_t len = strlen(key) + 1;

	return len + strlen(key + len) + 1;
}

const char *labels_next(const struct labels *labels, const char *key)
{
	const char *next = key ? key + size_of(key) : labels->text;

	return next < labels->text + labels->len ? next : NULL;
}

const char *labels_get(const struct labels *labels, const char *key)
{
	for (const char *at = labels_next(labels, NULL); at; at = labels_next(labels, at))
		if (strcmp(at, key) == 0)
			return labels_value(at);
	return NULL;
}

static bool is_key(const char *key, size_t len)
{
	if (len == 0 || len > LABELS_KEY_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (key[i] <= ' ' || key[i] >= 0x7f)
			return false;
	return true;
}

static void drop(struct labels *labels, const char *key)
{
	char *at = labels->text + (key - labels->text);
	size_t size = size_of(key);

	memmove(at, at + size, (size_t)(labels->text + labels->len - (at + size)));
	labels->len = (uint16_t)(labels->len - size);
	labels->count--;
	labels->left_out++;
}

/* The longest that may go; NULL: there is none. */
static const char *longest_but(const struct labels *labels, const struct labels *kept)
{
	const char *longest = NULL;

	for (const char *at = labels_next(labels, NULL); at; at = labels_next(labels, at))
		if ((!longest || size_of(at) > size_of(longest)) && !(kept && labels_get(kept, at)))
			longest = at;
	return longest;
}

/* Drops longer ones until size more bytes fit. False: there is none that is longer. */
static bool make_room(struct labels *labels, size_t size, const struct labels *kept)
{
	while (labels->count == LABELS_MAX || labels->len + size > LABELS_BYTES_MAX) {
		const char *longest = longest_but(labels, kept);

		if (!longest || size_of(longest) <= size)
			return false;
		drop(labels, longest);
	}
	return true;
}

/* Where the key belongs. True: it is there already. */
static bool find(const struct labels *labels, const char *key, size_t len, size_t *ret)
{
	const char *at = labels_next(labels, NULL);
	int order = -1;

	for (; at; at = labels_next(labels, at)) {
		order = strncmp(at, key, len);
		if (order == 0)
			order = at[len] != '\0';
		if (order >= 0)
			break;
	}
	*ret = at ? (size_t)(at - labels->text) : labels->len;
	return at && order == 0;
}

struct pair {
	const char *key, *value;
	size_t key_len, value_len;
};

/* kept: those that do not give way; NULL: all do. */
static void add(struct labels *labels, const struct pair *pair, const struct labels *kept)
{
	const char *key = pair->key, *value = pair->value;
	size_t key_len = pair->key_len, value_len = pair->value_len;
	size_t size = key_len + value_len + 2, at;

	if (!is_key(key, key_len) || value_len >= LABELS_BYTES_MAX || memchr(value, '\0', value_len)) {
		labels->left_out++;
		return;
	}
	if (find(labels, key, key_len, &at))
		return;
	if (!make_room(labels, size, kept)) {
		labels->left_out++;
		return;
	}

	find(labels, key, key_len, &at);
	memmove(labels->text + at + size, labels->text + at, labels->len - at);
	memcpy(labels->text + at, key, key_len);
	at += key_len;
	labels->text[at++] = '\0';
	for (size_t i = 0; i < value_len; i++)
		labels->text[at++] = (unsigned char)value[i] < ' ' || value[i] == 0x7f ? '_' : value[i];
	labels->text[at] = '\0';
	labels->len = (uint16_t)(labels->len + size);
	labels->count++;
}

void labels_add(struct labels *labels, const char *key, size_t key_len, const char *value, size_t value_len)
{
	add(labels, &(struct pair){ key, value, key_len, value_len }, NULL);
}

void labels_merge(struct labels *labels, const struct labels *other)
{
	struct labels kept;

	labels_copy(&kept, labels);
	for (const char *key = labels_next(other, NULL); key; key = labels_next(other, key)) {
		const char *value = labels_value(key);

		add(labels, &(struct pair){ key, value, strlen(key), strlen(value) }, &kept);
	}
	labels->left_out += other->left_out;
}

void labels_json(struct json_writer *json, const char *key, const struct labels *labels)
{
	json_member_object(json, key);
	for (const char *at = labels_next(labels, NULL); at; at = labels_next(labels, at))
		json_member_text(json, at, labels_value(at));
	json_end_object(json);
}

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

/*
 * The largest length <= len that does not end within a UTF-8 character; len itself where the text
 * is no UTF-8.
 */
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
