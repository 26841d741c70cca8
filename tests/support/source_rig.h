/* source_rig.h: a source whose clock a test sets, and processes of our own in it. */
#ifndef SPIKEWATCH_TESTS_SOURCE_RIG_H
#define SPIKEWATCH_TESTS_SOURCE_RIG_H

#include "lib/cgroup/cgroup_mounts.h"
#include "children.h"
#include "lib/base/base.h"
#include "lib/source/source.h"
#include "lib/model/sample.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>

#define S NS_PER_S

static inline wall_t no_wall(void *ctx)
{
	(void)ctx;
	return (wall_t){ 0 };
}

/* One source below a proc root. */
struct bench {
	struct source *source;
	int procfd;
	mono_t at;
	uint64_t step_ns;     /* at first 1 */
	void (*looked)(void); /* NULL; called at each look at the clock */
};

/* A clock that a test sets; every look at it moves it by a step, so that reads can be told apart. */
static inline mono_t stepping_mono(void *ctx)
{
	struct bench *bench = ctx;

	if (bench->looked)
		bench->looked();
	bench->at.ns += bench->step_ns;
	return (mono_t){ bench->at.ns - bench->step_ns };
}

static inline void bench_open(struct bench *bench, const char *proc_root, struct source_options options)
{
	const struct clock clock = { stepping_mono, no_wall, NULL, bench };

	bench->at.ns = 1;
	bench->step_ns = 1;
	bench->looked = NULL;
	bench->procfd = open(proc_root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(bench->procfd, 0);
	options.capacity = options.capacity ? options.capacity : 8;
	if (options.heartbeat_ns == 0)
		options.heartbeat_ns = 10 * S;
	ck_assert_int_eq(source_new(&options, &clock, &bench->source), 0);
}

static inline void bench_close(struct bench *bench)
{
	source_free(bench->source);
	close(bench->procfd);
}

static inline struct source_entry *add_process(struct bench *bench, pid_t pid, bool with_cpu_clock,
					       struct source_entry *group)
{
	struct source_entry *entry = NULL;

	ck_assert_int_eq(source_entry_process(bench->procfd, pid, 0, with_cpu_clock, NULL, &entry), 0);
	ck_assert_int_eq(source_add(bench->source, entry, group), 0);
	return entry;
}

/* Without descriptors. */
static inline struct source_entry *add_closed_process(struct bench *bench, pid_t pid, bool with_cpu_clock,
						      struct source_entry *group)
{
	struct source_entry *entry = NULL;

	ck_assert_int_eq(source_entry_process_closed(bench->procfd, pid, 0, with_cpu_clock, NULL, &entry), 0);
	ck_assert_int_eq(source_add(bench->source, entry, group), 0);
	return entry;
}

static inline struct source_entry *add_group(struct bench *bench)
{
	struct source_entry *entry = NULL;

	ck_assert_int_eq(source_entry_group(NULL, &entry), 0);
	ck_assert_int_eq(source_add(bench->source, entry, NULL), 0);
	return entry;
}

static inline void drop(struct bench *bench, struct source_entry *entry)
{
	source_remove(bench->source, entry);
	source_entry_free(entry);
}

static inline enum source_status fill(struct bench *bench, uint64_t now_ns, const struct source_entry *entry)
{
	source_fill(bench->source, (mono_t){ now_ns });
	return source_entry_status(entry);
}

static inline uint64_t value(const struct source_entry *entry, enum sample_field field)
{
	ck_assert_msg(sample_has(source_entry_sample(entry), field), "%s", sample_field_info(field)->name);
	return source_entry_sample(entry)->value[field];
}

static inline bool has(const struct source_entry *entry, enum sample_field field)
{
	return sample_has(source_entry_sample(entry), field);
}

static inline uint64_t skipped(const struct bench *bench)
{
	struct source_counters counters;

	source_counters(bench->source, &counters);
	return counters.skipped_reads;
}

static const struct source_options never_peaks = { .peak_interval_ns = UINT64_MAX };

static inline struct cgroup_mounts *fixture_mounts(void)
{
	struct cgroup_mounts *mounts = NULL;

	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", "tests/data/cgroup/v2", &mounts), 0);
	return mounts;
}

#endif
