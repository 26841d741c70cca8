/*
 * stackrecorder_seed.c: processes that run since before the recorder, looked up in /proc when a sample has hit them.
 *
 * What is read is of now. First the text is read, then the side rings are emptied, then the book is told: an execve(2) before the reading is in the
 * book by then and makes it refuse the text for what was before.
 */
#include "stackrecorder_inside.h"

#include "realclock.h"
#include "wholefile.h"

#include <stdio.h>
#include <string.h>

#define MAPS_BYTES_MAX ((size_t)8 << 20) /* 65,530 mappings, the kernel's limit, of paths of average length */

static void read_comm(int proc_fd, const char *name, char comm[32])
{
	struct buffer text = { .max = 31 };

	comm[0] = '\0';
	if (wholefile_read(proc_fd, name, &text) == 0 && text.len > 0) {
		memcpy(comm, text.data, text.len);
		comm[text.len] = '\0';
		comm[strcspn(comm, "\n")] = '\0';
	}
	buffer_release(&text);
}

static bool knows(struct stackrecorder *recorder, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent)
{
	bool known;

	pthread_mutex_lock(&recorder->lock);
	known = addressbook_knows(recorder->book, pid, time_ns, ret_parent);
	pthread_mutex_unlock(&recorder->lock);
	return known;
}

static void seed(struct stackrecorder *recorder, uint32_t pid)
{
	struct buffer maps = { .max = MAPS_BYTES_MAX };
	struct clock clock = realclock();
	uint64_t now_ns = clock_mono(&clock).ns;
	char name[48], comm[32];

	snprintf(name, sizeof(name), "%u/maps", pid);
	if (wholefile_read(recorder->proc_fd, name, &maps) == 0) {
		snprintf(name, sizeof(name), "%u/comm", pid);
		read_comm(recorder->proc_fd, name, comm);
		stackrecorder_drain(recorder);
		pthread_mutex_lock(&recorder->lock);
		addressbook_seed(recorder->book, pid, comm[0] != '\0' ? comm : NULL, maps.data, maps.len, now_ns);
		pthread_mutex_unlock(&recorder->lock);
	}
	buffer_release(&maps);
}

static void look_up_thread(struct stackrecorder *recorder, const struct stackrecorder_hit *hit)
{
	char name[64], comm[32];
	bool known;

	pthread_mutex_lock(&recorder->lock);
	known = addressbook_knows_thread(recorder->book, hit->pid, hit->tid, hit->time_ns);
	pthread_mutex_unlock(&recorder->lock);
	if (known)
		return;
	snprintf(name, sizeof(name), "%u/task/%u/comm", hit->pid, hit->tid);
	read_comm(recorder->proc_fd, name, comm);
	if (comm[0] == '\0')
		return;
	pthread_mutex_lock(&recorder->lock);
	addressbook_seed_thread(recorder->book, hit->pid, hit->tid, comm);
	pthread_mutex_unlock(&recorder->lock);
}

void stackrecorder_look_up(struct stackrecorder *recorder, const struct stackrecorder_hit *hits, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t parent;

		if (hits[i].pid == 0)
			continue;
		if ((i == 0 || hits[i - 1].pid != hits[i].pid) &&
		    !knows(recorder, hits[i].pid, hits[i].time_ns, &parent)) {
			seed(recorder, hits[i].pid);
			if (!knows(recorder, hits[i].pid, hits[i].time_ns, &parent) && parent != 0)
				seed(recorder, parent);
		}
		look_up_thread(recorder, &hits[i]);
	}
}
