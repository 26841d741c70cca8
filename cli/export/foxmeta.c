/*
 * foxmeta.c: what a viewer must find before it looks at anything else. Everything is symbolised already, and nothing is from a browser:
 * several members only say so.
 */
#include "foxmeta.h"

#include "jsonmember.h"
#include "scope.h"

static void put_category(struct json_writer *json, const char *name, const char *color)
{
	json_begin_object(json);
	jsonmember_text(json, "name", name);
	jsonmember_text(json, "color", color);
	json_key(json, "subcategories");
	json_begin_array(json);
	json_string(json, "Other");
	json_end_array(json);
	json_end_object(json);
}

static void put_categories(struct json_writer *json)
{
	/* In the order of enum foxstacks_category. */
	json_key(json, "categories");
	json_begin_array(json);
	put_category(json, "Other", "grey");
	put_category(json, "User", "yellow");
	put_category(json, "Kernel", "orange");
	json_end_array(json);
}

static void put_schema(struct json_writer *json)
{
	static const struct {
		const char *key, *label, *format;
	} fields[] = {
		{ "what", "What", "string" },
		{ "rule", "Rule", "string" },
		{ "value", "Value", "decimal" },
		{ "unit", "Unit", "string" },
	};

	json_key(json, "markerSchema");
	json_begin_array(json);
	json_begin_object(json);
	jsonmember_text(json, "name", FOXMETA_MARKER);
	jsonmember_text(json, "tableLabel", "{marker.data.what}: {marker.data.rule}");
	jsonmember_text(json, "chartLabel", "{marker.data.what}");
	json_key(json, "display");
	json_begin_array(json);
	json_string(json, "marker-chart");
	json_string(json, "marker-table");
	json_string(json, "timeline-overview");
	json_end_array(json);
	json_key(json, "fields");
	json_begin_array(json);
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		json_begin_object(json);
		jsonmember_text(json, "key", fields[i].key);
		jsonmember_text(json, "label", fields[i].label);
		jsonmember_text(json, "format", fields[i].format);
		json_end_object(json);
	}
	json_end_array(json);
	json_end_object(json);
	json_end_array(json);
}

static void put_entry(struct json_writer *json, const char *label, const char *value)
{
	json_begin_object(json);
	jsonmember_text(json, "label", label);
	jsonmember_text(json, "format", "string");
	jsonmember_text(json, "value", value);
	json_end_object(json);
}

static void put_extra(struct json_writer *json, const struct incident *incident)
{
	json_key(json, "extra");
	json_begin_array(json);
	json_begin_object(json);
	jsonmember_text(json, "label", "Incident");
	json_key(json, "entries");
	json_begin_array(json);
	put_entry(json, "Id", incident->id);
	put_entry(json, "Host", incident->hostname);
	put_entry(json, "Target", incident->target.name);
	put_entry(json, "Rule", incident->rule.name);
	put_entry(json, "Times of stacks",
		  "Known is whether before the spike or during it; within that they are spread evenly.");
	json_end_array(json);
	json_end_object(json);
	json_end_array(json);
}

static void put_origin(struct json_writer *json, const struct incident *incident)
{
	jsonmember_text(json, "product", "Spikewatch");
	jsonmember_text(json, "importedFrom", "Spikewatch");
	jsonmember_text(json, "platform", "X11");
	jsonmember_text(json, "oscpu", incident->kernel);
	jsonmember_bool(json, "symbolicated", true);
	jsonmember_bool(json, "symbolicationNotSupported", true);
	jsonmember_bool(json, "usesOnlyOneStackType", true);
	jsonmember_bool(json, "sourceCodeIsNotOnSearchfox", true);
}

void foxmeta_put(const struct foxmeta *meta, struct json_writer *json)
{
	const struct incident *incident = meta->incident;

	json_key(json, "meta");
	json_begin_object(json);
	jsonmember_double(json, "interval", meta->interval_ns ? (double)meta->interval_ns / 1e6 : 1);
	jsonmember_double(json, "startTime", (double)incident->wall.ns / 1e6 + (double)meta->zero_ns / 1e6);
	jsonmember_i64(json, "profilingStartTime", 0);
	jsonmember_double(json, "profilingEndTime", (double)(meta->end_ns - meta->zero_ns) / 1e6);
	jsonmember_i64(json, "processType", 0);
	jsonmember_i64(json, "stackwalk", meta->has_stacks);
	jsonmember_i64(json, "version", 36); /* of the unprocessed format, which this is not */
	jsonmember_i64(json, "preprocessedProfileVersion", FOXMETA_VERSION);
	put_origin(json, incident);
	put_categories(json);
	put_schema(json);
	put_extra(json, incident);
	json_end_object(json);
}
