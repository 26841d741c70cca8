/*
 * addressbook_write.c: lives as records. A life's mappings and names are each in the order of time: they are merged on the way out. What a life
 * began with carries the time of its beginning.
 */
#include "addressbook.h"

#include "addressbook_life.h"

#include <errno.h>
#include <string.h>

#define RECORD_MAX 8192 /* a path of 4,096 and what is around it */

static int write_record(const struct perfrecord *record, const struct sink *sink)
{
	_Alignas(PERFRECORD_ALIGN) char buf[RECORD_MAX];
	size_t len;
	int r = perfrecord_encode(record, buf, sizeof(buf), &len);

	return r < 0 ? r : sink_write(sink, buf, len);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int write_name(const struct addressbook_life *life, const struct addressbook_name *name, bool exec,
		      const struct sink *sink)
{
	struct perfrecord record = { .type = PERF_RECORD_COMM,
				     .pid = life->pid,
				     .tid = name->tid,
				     .time_ns = later(name->since_ns, life->from_ns) };

	record.comm.name = name->comm;
	record.comm.name_len = strlen(name->comm);
	record.comm.exec = exec;
	return write_record(&record, sink);
}

static int write_mapping(const struct addressbook_life *life, const struct addressbook_mapping *mapping,
			 const struct sink *sink)
{
	struct perfrecord record = { .type = PERF_RECORD_MMAP2,
				     .misc = PERF_RECORD_MISC_USER,
				     .pid = life->pid,
				     .tid = life->pid,
				     .time_ns = later(mapping->since_ns, life->from_ns) };

	record.mmap = (struct perfrecord_mmap){ .start = mapping->start,
						.len = mapping->end - mapping->start,
						.offset = mapping->offset,
						.file = mapping->file->file,
						.prot = mapping->prot,
						.flags = mapping->flags,
						.path = mapping->file->path,
						.path_len = mapping->file->path_len };
	return write_record(&record, sink);
}

static int write_task(const struct addressbook_life *life, uint32_t type, uint64_t time_ns, const struct sink *sink)
{
	struct perfrecord record = { .type = type, .pid = life->pid, .tid = life->pid, .time_ns = time_ns };

	record.fork.ppid = life->parent;
	record.fork.ptid = life->parent;
	return write_record(&record, sink);
}

/* The first record: it says that what was before is gone. */
static int write_beginning(const struct addressbook_life *life, size_t *name, const struct sink *sink)
{
	struct addressbook_name nameless = { .tid = life->pid };

	if (life->begun == ADDRESSBOOK_FORKED)
		return write_task(life, PERF_RECORD_FORK, life->from_ns, sink);
	if (life->begun != ADDRESSBOOK_EXECED)
		return 0;
	if (life->name_count > 0 && life->names[0].tid == life->pid && life->names[0].since_ns == life->from_ns)
		return write_name(life, &life->names[(*name)++], true, sink);
	return write_name(life, &nameless, true, sink);
}

static bool shown(const struct addressbook_life *life, const struct addressbook_mapping *mapping, uint64_t from_ns,
		  uint64_t to_ns)
{
	if (mapping->since_ns > to_ns || mapping->since_ns > life->shown_ns)
		return false;
	return life->shown_ns == UINT64_MAX ? mapping->until_ns > from_ns : mapping->until_ns > life->shown_ns;
}

/* Names before mappings of the same time. */
static bool name_is_next(const struct addressbook_life *life, size_t name, size_t mapping)
{
	if (name == life->name_count || mapping == life->space->count)
		return name < life->name_count;
	return later(life->names[name].since_ns, life->from_ns) <=
	       later(life->space->mappings[mapping].since_ns, life->from_ns);
}

static int write_life(const struct addressbook_life *life, uint64_t from_ns, uint64_t to_ns, const struct sink *sink)
{
	const struct addressbook_space *space = life->space;
	size_t name = 0, mapping = 0;
	int r = write_beginning(life, &name, sink);

	while (r == 0 && (name < life->name_count || mapping < space->count)) {
		if (name_is_next(life, name, mapping)) {
			r = life->names[name].since_ns <= to_ns ? write_name(life, &life->names[name], false, sink) : 0;
			name++;
			continue;
		}
		if (shown(life, &space->mappings[mapping], from_ns, to_ns))
			r = write_mapping(life, &space->mappings[mapping], sink);
		mapping++;
	}
	if (r == 0 && life->exited && life->to_ns <= to_ns)
		r = write_task(life, PERF_RECORD_EXIT, life->to_ns, sink);
	return r;
}

/* From the oldest that reaches into the span to the newest: each is found from the one after it. */
static int write_process(const struct addressbook *book, uint32_t pid, uint64_t from_ns, uint64_t to_ns,
			 const struct sink *sink)
{
	uint64_t before = to_ns, done = 0;
	const struct addressbook_life *life = addressbook_life_at(book, pid, from_ns);
	bool more = true; /* nothing begins after the last moment that there is */
	int r = 0;

	if (life != NULL) {
		r = write_life(life, from_ns, to_ns, sink);
		more = life->from_ns < UINT64_MAX;
		done = life->from_ns + 1;
	}
	while (r == 0 && more) {
		const struct addressbook_life *next = NULL;

		for (life = addressbook_life_at(book, pid, before); life != NULL && life->from_ns >= done;
		     life = life->from_ns > 0 ? addressbook_life_at(book, pid, life->from_ns - 1) : NULL)
			next = life;
		if (next == NULL)
			break;
		r = write_life(next, from_ns, to_ns, sink);
		more = next->from_ns < UINT64_MAX;
		done = next->from_ns + 1;
	}
	return r;
}

int addressbook_write(const struct addressbook *book, const uint32_t *pids, size_t count, uint64_t from_ns,
		      uint64_t to_ns, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = write_process(book, pids[i], from_ns, to_ns, sink);
	return r;
}
