/*
 * fuzz_incident.c: whatever bytes incident.json and MANIFEST hold. What can be read can be written,
 * and what was written is read as the same.
 */
#include "lib/incident/incident.c"

#include "lib/incident/manifest.h"
#include "lib/base/io.h"
#include "lib/model/target.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct incident incident, again;

static bool is_plain(const char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~' || *text == '\\')
			return false;
	return true;
}

/* What a terminal could take for a command is escaped when it is written, and a name is cut to its room then. */
static void fuzz_incident(const char *text, size_t len)
{
	struct buffer first = { 0 }, second = { 0 };

	if (incident_json_parse(text, len, &incident) < 0)
		return;
	assert(incident.merged_count <= INCIDENT_MERGED_MAX && incident.capture_count <= INCIDENT_CAPTURES_MAX);
	assert(incident_json_write(&incident, sink_buffer(&first)) == 0);
	assert(incident_json_parse(first.data, first.len, &again) == 0);
	assert(incident_json_write(&again, sink_buffer(&second)) == 0);
	assert(strcmp(again.target.name, incident.target.name) == 0 || !is_plain(incident.target.name));
	assert(again.rule.fired == incident.rule.fired && again.wall.ns == incident.wall.ns);
	buffer_release(&first);
	buffer_release(&second);
}

static void fuzz_manifest(const char *text, size_t len)
{
	struct manifest manifest;

	if (manifest_parse(text, len, &manifest) < 0)
		return;
	assert(manifest.count <= MANIFEST_ENTRIES_MAX);
	for (size_t i = 0; i < manifest.count; i++)
		assert(manifest_name_ok(manifest.entries[i].name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_incident((const char *)data, size);
	fuzz_manifest((const char *)data, size);
	return 0;
}
