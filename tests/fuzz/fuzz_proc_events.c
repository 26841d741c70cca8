/*
 * fuzz_proc_events.c: any bytes as a message of the connector, as an exit record and as the answer
 * about a family: what is decoded makes sense, and nothing is read beyond the end.
 */
#include "lib/proc/procfs.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* That of the corpus. */
#define FAMILY 23

static void require(int condition)
{
	if (!condition)
		abort();
}

static void judge(int r, const struct procevent *event, int error)
{
	require(r == PROC_EVENTS_EVENT || r == PROC_EVENTS_OTHER || r == PROC_EVENTS_ANSWER || r < 0);
	if (r == PROC_EVENTS_ANSWER)
		require(error <= 0);
	if (r != PROC_EVENTS_EVENT)
		return;
	require(event->pid > 0 && event->kind <= PROCEVENT_TOTALS);
	require(memchr(event->totals.comm, '\0', sizeof(event->totals.comm)) != NULL);
	require(event->totals.user_ns <= event->totals.cpu_ns &&
		event->totals.user_ns + event->totals.system_ns == event->totals.cpu_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size > 0 ? size : 1); /* so that a sanitizer knows where it ends */
	struct procevent event = { 0 };
	uint16_t family;
	int error = 0, r;

	if (exact == NULL)
		exit(1);
	if (size > 0)
		memcpy(exact, data, size);
	r = proc_events_connector(exact, size, &event, &error);
	judge(r, &event, error);
	error = 0;
	r = proc_events_taskstats(exact, size, FAMILY, &event, &error);
	judge(r, &event, error);
	require(proc_events_family(exact, size, &family) <= 0);
	free(exact);
	return 0;
}
