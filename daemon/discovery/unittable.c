/*
 * unittable.c: two hash tables over the same units: by what the bus calls them, and by their cgroup.
 *
 * Asked with every cgroup and process that a scan meets, so that the answer without units of uncommon names, which is most machines', is one
 * comparison.
 */
#include "unittable.h"

#include "match.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096u

struct unittable {
	struct unit *objects[BUCKETS], *cgroups[BUCKETS];
	size_t count, unlike;
};

static unsigned bucket(const char *text, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;

	return (hash ^ hash >> 15) % BUCKETS;
}

int unittable_new(struct unittable **ret)
{
	struct unittable *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	*ret = table;

	return 0;
}

void unittable_free(struct unittable *table)
{
	if (!table)
		return;

	for (size_t i = 0; i < BUCKETS; i++)
		while (table->objects[i])
			unittable_remove(table, table->objects[i]);
	free(table);
}

size_t unittable_count(const struct unittable *table)
{
	return table->count;
}

struct unit *unittable_find(const struct unittable *table, const char *object)
{
	struct unit *unit = table->objects[bucket(object, strlen(object))];

	while (unit && strcmp(unit->object, object) != 0)
		unit = unit->next_object;

	return unit;
}

int unittable_enter(struct unittable *table, const char *object, struct unit **ret)
{
	struct unit *unit, **at = &table->objects[bucket(object, strlen(object))];

	if (table->count == UNITTABLE_MAX)
		return -ENOSPC;
	unit = calloc(1, sizeof(*unit));
	if (!unit)
		return -ENOMEM;
	unit->object = strdup(object);
	if (!unit->object) {
		free(unit);
		return -ENOMEM;
	}

	unit->next_object = *at;
	*at = unit;
	table->count++;
	*ret = unit;

	return 0;
}

/* ---- where it is ---- */

static void leave_place(struct unittable *table, struct unit *unit)
{
	struct unit **at;

	if (!unit->cgroup)
		return;
	at = &table->cgroups[bucket(unit->cgroup, strlen(unit->cgroup))];
	while (*at != unit)
		at = &(*at)->next_cgroup;
	*at = unit->next_cgroup;
}

static void take_place(struct unittable *table, struct unit *unit)
{
	struct unit **at;

	if (!unit->cgroup)
		return;
	at = &table->cgroups[bucket(unit->cgroup, strlen(unit->cgroup))];
	unit->next_cgroup = *at;
	*at = unit;
}

static void compare_names(struct unittable *table, struct unit *unit)
{
	bool unlike = false;

	for (const char *name = unit->cgroup ? unit->names : NULL; name && *name; name += strlen(name) + 1)
		unlike |= strcmp(strrchr(unit->cgroup, '/') + 1, name) != 0;
	table->unlike += unlike;
	table->unlike -= unit->unlike;
	unit->unlike = unlike;
}

void unittable_remove(struct unittable *table, struct unit *unit)
{
	struct unit **at = &table->objects[bucket(unit->object, strlen(unit->object))];

	while (*at != unit)
		at = &(*at)->next_object;
	*at = unit->next_object;
	leave_place(table, unit);
	table->count--;
	table->unlike -= unit->unlike;
	free(unit->object);
	free(unit->names);
	free(unit->cgroup);
	free(unit);
}

int unittable_rename(struct unittable *table, struct unit *unit, const char *names)
{
	size_t len = 1;
	char *copy;

	for (const char *name = names; *name; name += strlen(name) + 1)
		len += strlen(name) + 1;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;

	memcpy(copy, names, len);
	free(unit->names);
	unit->names = copy;
	compare_names(table, unit);

	return 0;
}

/* A path below the root without components that lead elsewhere. */
static bool is_place(const char *cgroup)
{
	if (*cgroup != '/' || cgroup[1] == '\0' || strlen(cgroup) >= PATH_MAX)
		return false;

	while (*cgroup) {
		size_t len = strcspn(++cgroup, "/");

		if (len == 0 || len > NAME_MAX || (len <= 2 && strspn(cgroup, ".") >= len))
			return false;
		cgroup += len;
	}

	return true;
}

int unittable_place(struct unittable *table, struct unit *unit, const char *cgroup)
{
	char *copy;

	if (!is_place(cgroup) || (unit->cgroup && strcmp(unit->cgroup, cgroup) == 0))
		return 0;
	copy = strdup(cgroup);
	if (!copy)
		return -ENOMEM;

	leave_place(table, unit);
	free(unit->cgroup);
	unit->cgroup = copy;
	take_place(table, unit);
	compare_names(table, unit);

	return 0;
}

/* ---- questions ---- */

bool unit_is_called(const struct unit *unit, const char *glob)
{
	for (const char *name = unit->names; name && *name; name += strlen(name) + 1)
		if (match_unit_name(glob, name))
			return true;

	return false;
}

/* The first, behind `after` (or NULL), whose cgroup is these bytes. */
static const struct unit *at_place(const struct unittable *table, const char *cgroup, size_t len,
				   const struct unit *after)
{
	const struct unit *unit = after ? after->next_cgroup : table->cgroups[bucket(cgroup, len)];

	while (unit && (strncmp(unit->cgroup, cgroup, len) != 0 || unit->cgroup[len] != '\0'))
		unit = unit->next_cgroup;

	return unit;
}

/* The length of the path of the cgroup above; 0 of the root. */
static size_t above(const char *cgroup, size_t len)
{
	while (len > 0 && cgroup[--len] != '/')
		;

	return len;
}

const struct unit *unittable_of(const struct unittable *table, const char *cgroup)
{
	for (size_t len = strlen(cgroup); len > 0; len = above(cgroup, len)) {
		const struct unit *unit = at_place(table, cgroup, len, NULL);

		if (unit)
			return unit;
	}

	return NULL;
}

bool unittable_matches(const struct unittable *table, const char *glob, const char *cgroup, bool below)
{
	if (table->unlike == 0)
		return false;

	for (size_t len = strlen(cgroup); len > 0; len = below ? above(cgroup, len) : 0)
		for (const struct unit *unit = at_place(table, cgroup, len, NULL); unit;
		     unit = at_place(table, cgroup, len, unit))
			if (unit->unlike && unit_is_called(unit, glob))
				return true;

	return false;
}

void unittable_visit(const struct unittable *table, void (*visit)(void *ctx, struct unit *unit), void *ctx)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		for (struct unit *unit = table->objects[i], *next; unit; unit = next) {
			next = unit->next_object;
			visit(ctx, unit);
		}
	}
}
