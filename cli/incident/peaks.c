/*
 * peaks.c: one entry per target, found by a table of open addressing. A window begins with a sample and ends with the first one that is
 * late enough; the next begins there. So a burst may be cut in two by a window's end, and its peak be seen up to half too low when it is
 * shorter than the window; who wants it exactly records the target by itself.
 */
#include "peaks.h"

#include "incident.h"
#include "json.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS (2 * PEAKS_TARGETS_MAX)

_Static_assert((SLOTS & (SLOTS - 1)) == 0, "a mask finds the slot");

static void release_document(struct json_document **document)
{
	json_document_free(*document);
}

static int grow(struct peaks *peaks)
{
	size_t cap = peaks->cap ? 2 * peaks->cap : 64;
	struct peaks_target *target;

	if (!peaks->slot)
		peaks->slot = calloc(SLOTS, sizeof(*peaks->slot));
	if (!peaks->slot)
		return -ENOMEM;
	if (peaks->count < peaks->cap)
		return 0;
	target = realloc(peaks->target, cap * sizeof(*target));
	if (!target)
		return -ENOMEM;
	peaks->target = target;
	peaks->cap = cap;
	return 0;
}

/* *ret NULL: it is one too many. 0 or -ENOMEM. */
static int find(struct peaks *peaks, uint32_t id, struct peaks_target **ret)
{
	uint32_t at = id * 2654435761u & (SLOTS - 1);
	int r = grow(peaks);

	if (r < 0)
		return r;
	for (; peaks->slot[at]; at = (at + 1) & (SLOTS - 1)) {
		*ret = &peaks->target[peaks->slot[at] - 1];
		if ((*ret)->id == id)
			return 0;
	}
	*ret = NULL;
	peaks->cut |= peaks->count == PEAKS_TARGETS_MAX;
	if (peaks->count == PEAKS_TARGETS_MAX)
		return 0;
	*ret = &peaks->target[peaks->count++];
	**ret = (struct peaks_target){ .id = id };
	peaks->slot[at] = (uint32_t)peaks->count;
	return 0;
}

int peaks_declare(struct peaks *peaks, uint32_t id, const char *json, size_t len)
{
	AUTO(release_document) struct json_document *document = NULL;
	const struct json_node *name;
	struct peaks_target *target;
	int r = find(peaks, id, &target);

	if (r < 0 || !target || target->name[0])
		return r;
	r = json_parse(json, len, NULL, &document, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	name = json_member(json_root(document), "name");
	if (name && name->type == JSON_STRING)
		incident_text(target->name, sizeof(target->name), name->text);
	return 0;
}

static void add_cpu(struct peaks_target *target, int64_t at_ns, uint64_t cpu)
{
	int64_t passed = at_ns - target->begun_ns;
	double cores;

	/* A counter that steps back began anew. */
	if (target->begun && cpu >= target->begun_cpu && passed >= 0) {
		if (passed < PEAKS_WINDOW_NS)
			return;
		cores = (double)(cpu - target->begun_cpu) / (double)passed;
		if (!target->has_cpu || cores > target->cpu_cores)
			target->cpu_cores = cores;
		target->has_cpu = true;
	}
	target->begun = true;
	target->begun_ns = at_ns;
	target->begun_cpu = cpu;
}

int peaks_add(struct peaks *peaks, uint32_t id, int64_t at_ns, const struct sample *sample)
{
	struct peaks_target *target;
	int r = find(peaks, id, &target);

	if (r < 0 || !target)
		return r;
	if (sample_has(sample, SAMPLE_CPU))
		add_cpu(target, at_ns, sample->value[SAMPLE_CPU]);
	if (sample_has(sample, SAMPLE_MEMORY)) {
		if (!target->has_memory || sample->value[SAMPLE_MEMORY] > target->memory_bytes)
			target->memory_bytes = sample->value[SAMPLE_MEMORY];
		target->has_memory = true;
	}
	return 0;
}

void peaks_gap(struct peaks *peaks)
{
	for (size_t i = 0; i < peaks->count; i++)
		peaks->target[i].begun = false;
}

static int compare(const void *a, const void *b)
{
	const struct peaks_target *x = a, *y = b;
	double x_cores = x->has_cpu ? x->cpu_cores : -1, y_cores = y->has_cpu ? y->cpu_cores : -1;

	if (x_cores != y_cores)
		return x_cores > y_cores ? -1 : 1;
	if (x->memory_bytes != y->memory_bytes)
		return x->memory_bytes > y->memory_bytes ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

void peaks_sort(struct peaks *peaks)
{
	if (peaks->count > 1)
		qsort(peaks->target, peaks->count, sizeof(*peaks->target), compare);
}

void peaks_release(struct peaks *peaks)
{
	free(peaks->target);
	free(peaks->slot);
	*peaks = (struct peaks){ 0 };
}
