/* crowd.c: another walk over the samples, when peaks.h has told who is worth looking at. */
#include "crowd.h"

#include "samplewalk.h"
#include "scope.h"

#include <errno.h>

static int on_row(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row)
{
	struct crowd *crowd = ctx;
	struct series_point point = { .at_ns = row->at_ns, .sample = row->sample, .after_gap = row->gap };
	uint32_t id = walk->targets[row->target].id;

	for (size_t i = 0; i < crowd->count; i++)
		if (crowd->member[i].target->id == id) {
			int rc = series_add(&crowd->member[i].series, &point);

			return rc < 0 ? rc : 0;
		}
	return 0;
}

int crowd_load(int incidentfd, wall_t fired, const struct peaks *peaks, struct crowd *ret)
{
	AUTO(samplewalk_release) struct samplewalk walk = { .count = 0 };
	const struct samplewalk_visit visit = { .row = on_row, .ctx = ret };
	int rc;

	*ret = (struct crowd){ .count = peaks->count < CROWD_MAX ? peaks->count : CROWD_MAX };
	for (size_t i = 0; i < ret->count; i++)
		ret->member[i].target = &peaks->target[i];
	rc = samplewalk_run(incidentfd, fired, &visit, &walk);
	if (rc != -ENOMEM)
		return 0;
	crowd_release(ret);
	return rc;
}

void crowd_release(struct crowd *crowd)
{
	for (size_t i = 0; i < crowd->count; i++)
		series_release(&crowd->member[i].series);
	*crowd = (struct crowd){ .count = 0 };
}
