/*
 * match.c: one compiled expression per entry, decided by one switch.
 *
 * A unit is found by its name in the cgroup tree, where systemd puts it: the unit matches a path whose last component is the
 * unit's name. For a process any component counts, because services may make cgroups below their own.
 */
#include "match.h"

#include "cgmount.h"
#include "textregex.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct match {
	const struct config_target *entry;
	struct textregex *regex; /* CONFIG_CMDLINE; else NULL */
};

int match_new(const struct config_target *entry, struct match **ret)
{
	struct match *match = calloc(1, sizeof *match);

	if (!match)
		return -ENOMEM;

	match->entry = entry;
	int r = entry->selector == CONFIG_CMDLINE ? textregex_new(entry->pattern, &match->regex) : 0;
	if (r < 0) {
		free(match);
		return r;
	}
	*ret = match;

	return 0;
}

void match_free(struct match *match)
{
	if (!match)
		return;

	textregex_free(match->regex);
	free(match);
}

bool match_is_by_path(const struct match *match)
{
	const struct config_target *entry = match->entry;

	return entry->selector >= CONFIG_CGROUP && entry->per == CONFIG_PER_CGROUP;
}

unsigned match_needs(const struct match *match)
{
	static const unsigned needs[] = {
		[CONFIG_PID] = 0,
		[CONFIG_PIDFILE] = 0,
		[CONFIG_COMM] = MATCH_COMM,
		[CONFIG_EXE] = MATCH_EXE,
		[CONFIG_CMDLINE] = MATCH_CMDLINE,
		[CONFIG_CGROUP] = MATCH_CGROUP,
		[CONFIG_UNIT] = MATCH_CGROUP,
		[CONFIG_CONTAINERS] = MATCH_CGROUP | MATCH_CONTAINER,
	};

	return match_is_by_path(match) ? 0 : needs[match->entry->selector];
}

/* Backslashes are part of names: systemd writes "-" as "\\x2d" in some. */
bool match_unit_name(const char *glob, const char *name)
{
	return fnmatch(glob, name, FNM_NOESCAPE) == 0;
}

/* Whether one component of path, or only the last, matches the glob. */
static bool component_matches(const char *glob, const char *path, bool only_last)
{
	char component[256];

	while (*path) {
		size_t len = strcspn(path, "/");
		bool last = path[len] == '\0';

		if (len && len < sizeof component && (last || !only_last)) {
			memcpy(component, path, len);
			component[len] = '\0';
			if (match_unit_name(glob, component))
				return true;
		}
		path += len + (last ? 0 : 1);
	}

	return false;
}

/* All that the entry asks for. Labels that are not known are none that match. */
static bool labels_match(const struct config_target *entry, const struct labels *labels)
{
	for (size_t i = 0; i < entry->label_count; i++) {
		const char *value = labels ? labels_get(labels, entry->labels[i].key) : NULL;

		if (!value || fnmatch(entry->labels[i].pattern, value, 0) != 0)
			return false;
	}

	return true;
}

static bool is_selected(const struct config_target *entry, const struct container *container)
{
	return container && container_matches(container, entry->pattern) && labels_match(entry, container->labels);
}

bool match_process(const struct match *match, const struct match_facts *facts, int32_t pidfile_pid)
{
	const struct config_target *entry = match->entry;

	if (match_is_by_path(match))
		return false;

	switch (entry->selector) {
	case CONFIG_PID:
		return facts->pid == entry->pid;
	case CONFIG_PIDFILE:
		return pidfile_pid > 0 && facts->pid == pidfile_pid;
	case CONFIG_COMM:
		return facts->comm && strcmp(facts->comm, entry->pattern) == 0;
	case CONFIG_EXE:
		return facts->exe && fnmatch(entry->pattern, facts->exe, FNM_PATHNAME) == 0;
	case CONFIG_CMDLINE:
		return facts->cmdline && textregex_matches(match->regex, facts->cmdline);
	case CONFIG_CGROUP:
		return facts->cgroup && cgroup_glob(entry->pattern, facts->cgroup);
	case CONFIG_UNIT:
		return facts->cgroup && component_matches(entry->pattern, facts->cgroup, false);
	case CONFIG_CONTAINERS:
		return is_selected(entry, facts->container);
	}

	return false;
}

bool match_cgroup(const struct match *match, const char *path, const struct container *container)
{
	if (match->entry->selector == CONFIG_CGROUP)
		return cgroup_glob(match->entry->pattern, path);
	if (match->entry->selector == CONFIG_UNIT)
		return component_matches(match->entry->pattern, path, true);
	if (match->entry->selector == CONFIG_CONTAINERS)
		return is_selected(match->entry, container);

	return false;
}
