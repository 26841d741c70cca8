/* scanned.c: each fact is tried once per process; only running out of descriptors or memory is an error. */
#include "scanned.h"

#include "procread.h"

#include <errno.h>
#include <string.h>

bool scanned_starved(ssize_t error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ECANCELED;
}

int scanned_meet(struct scanned *scanned, int32_t pid)
{
	ssize_t len;

	outside_leave(&scanned->outside, pid);
	len = procread_file(scanned->procfd, pid, "stat", scanned->text, sizeof scanned->text);
	if (outside_enter(&scanned->outside) < 0)
		return -ECANCELED;
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(scanned->text, (size_t)len, &scanned->stat) < 0)
		return -ESRCH;

	size_t comm_len = scanned->stat.comm_len;

	if (comm_len >= sizeof scanned->comm)
		comm_len = sizeof scanned->comm - 1;
	memcpy(scanned->comm, scanned->stat.comm, comm_len);
	scanned->comm[comm_len] = '\0';
	scanned->arguments_at = procfs_stat_arguments(scanned->text, (size_t)len);
	scanned->facts = (struct match_facts){ .pid = pid, .comm = scanned->comm };
	scanned->asked = MATCH_COMM;

	return 0;
}

static void ask_container(struct scanned *scanned)
{
	const struct container *container;
	bool own;

	if (!scanned->facts.cgroup || containers_find(scanned->containers, scanned->facts.cgroup, scanned->now,
						      &container, &own) == CONTAINERS_NONE)
		return;
	scanned->container = *container;
	scanned->facts.container = &scanned->container;
}

/* 0, or an error of scanned_starved. */
static ssize_t read_files(struct scanned *scanned, unsigned missing)
{
	int32_t pid = scanned->facts.pid;
	ssize_t r = 0;

	if (missing & MATCH_EXE) {
		r = procread_link(scanned->procfd, pid, "exe", scanned->exe, sizeof scanned->exe);
		scanned->facts.exe = r > 0 ? scanned->exe : NULL;
	}
	if (!scanned_starved(r) && (missing & MATCH_CMDLINE)) {
		r = procread_cmdline(scanned->procfd, pid, scanned->cmdline, sizeof scanned->cmdline);
		scanned->facts.cmdline = r >= 0 ? scanned->cmdline : NULL;
	}
	if (!scanned_starved(r) && (missing & MATCH_CGROUP)) {
		r = cgroup_path_of(scanned->mounts, scanned->procfd, pid, scanned->cgroup, sizeof scanned->cgroup);
		scanned->facts.cgroup = r == 0 ? scanned->cgroup : NULL;
	}

	return scanned_starved(r) ? r : 0;
}

int scanned_ask(struct scanned *scanned, unsigned needs)
{
	if (needs & MATCH_CONTAINER)
		needs |= MATCH_CGROUP;

	unsigned missing = needs & ~scanned->asked;
	ssize_t r = 0;

	scanned->asked |= needs;
	if (missing & (MATCH_EXE | MATCH_CMDLINE | MATCH_CGROUP)) {
		outside_leave(&scanned->outside, scanned->facts.pid);
		r = read_files(scanned, missing);
		if (outside_enter(&scanned->outside) < 0)
			return -ECANCELED;
	}
	if (r == 0 && (missing & MATCH_CONTAINER))
		ask_container(scanned);

	return (int)r;
}
