/*
 * stackrecorder_cgroups.c: which cgroup the processes of a snapshot are in. Asked while they run; of one that has exited nobody knows any more.
 *
 * On a machine with both hierarchies ("hybrid") the cpu controller may be in either: where it is not in that of v2, everything is in the root of that.
 */
#include "procfs.h"
#include "procread.h"
#include "stackrecorder_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 16384 /* a dozen hierarchies, of paths of up to PATH_MAX in one or two of them */
#define PATH_MAX_BYTES 4097

/* Whether a list like "cpu,cpuacct" has this name. */
static bool has_controller(const struct procfs_cgroup *line, const char *name)
{
	size_t name_len = strlen(name), at = 0;

	while (at < line->controllers_len) {
		const char *item = line->controllers + at;
		const char *comma = memchr(item, ',', line->controllers_len - at);
		size_t len = comma != NULL ? (size_t)(comma - item) : line->controllers_len - at;

		if (len == name_len && memcmp(item, name, len) == 0)
			return true;
		at += len + 1;
	}
	return false;
}

bool stackrecorder_cgroup_of(const char *text, size_t len, char *path, size_t cap)
{
	struct procfs_cgroup line, best = { .path_len = 0 };
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line) > 0) {
		bool unified = line.controllers_len == 0;

		if (unified && line.path_len > 1) {
			best = line;
			break;
		}
		/* That of the cpu controller goes before the root of v2, whichever comes first. */
		if (has_controller(&line, "cpu") || (unified && best.path_len == 0))
			best = line;
	}
	if (best.path_len == 0 || best.path_len >= cap)
		return false;
	memcpy(path, best.path, best.path_len);
	path[best.path_len] = '\0';
	return true;
}

int stackrecorder_look_up_cgroups(const struct stackrecorder *recorder, struct stackrecorder_snapshot *snapshot)
{
	char text[TEXT_MAX], path[PATH_MAX_BYTES];
	int r = 0;

	snapshot->cgroups = calloc(snapshot->pid_count + 1, sizeof(*snapshot->cgroups));
	if (snapshot->cgroups == NULL)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i];
		ssize_t len = procread_file(recorder->proc_fd, (int32_t)pid, "cgroup", text, sizeof(text));

		if (len <= 0 || !stackrecorder_cgroup_of(text, (size_t)len, path, sizeof(path)))
			continue;
		r = buffer_append(&snapshot->paths, path, strlen(path) + 1);
		if (r == 0)
			snapshot->cgroups[snapshot->cgroup_count++] = (struct stackfile_cgroup){ .pid = pid };
	}
	return r;
}

/* They are the first texts, in this order. */
void stackrecorder_settle_cgroups(struct stackrecorder_snapshot *snapshot)
{
	const char *at = snapshot->paths.data;

	for (size_t i = 0; i < snapshot->cgroup_count; i++) {
		snapshot->cgroups[i].path = at;
		at += strlen(at) + 1;
	}
}
