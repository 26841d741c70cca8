/*
 * incident_json.c: the two walks over the table of keys (incident_fields.h).
 *
 * The idea: one table says for every key where it is in struct incident and how it is written, and both directions
 * walk it, so they cannot drift apart. Only the two lists (firings merged, captures) and what is there for people
 * alone (a sentence, times in words) are code.
 *
 * Reading trusts nothing: a file may come from another machine or another version. Strings are cut to their room,
 * numbers must fit their type exactly, null means unknown, keys and words of a later version are passed over.
 *
 * Rejected: keeping what was not understood in order to write it again; nobody rewrites an incident.
 */
#include "incident_json.h"
#include "fdread.h"
#include "incident_fields.h"
#include "json.h"
#include "jsonmember.h"
#include "metrictext.h"
#include "printable.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- writing ---- */

static void put_field(struct json_writer *writer, const struct incident_field *field, const void *base)
{
	const char *at = (const char *)base + field->offset;
	const char *name;
	unsigned word;

	bool has = field->has == INCIDENT_ALWAYS || *((const bool *)base + field->has);

	if (field->sparse && (!has || (field->type == INCIDENT_TEXT && *at == '\0')))
		return;
	json_key(writer, field->key);
	if (!has) {
		json_null(writer);
		return;
	}
	switch (field->type) {
	case INCIDENT_TEXT:
		printable_json(writer, at);
		break;
	case INCIDENT_FLAG:
		json_bool(writer, *(const bool *)at);
		break;
	case INCIDENT_U32:
		json_u64(writer, *(const uint32_t *)at);
		break;
	case INCIDENT_LIMIT:
		if (*(const uint64_t *)at == UINT64_MAX) {
			json_null(writer);
			break;
		}
		/* fall through */
	case INCIDENT_U64:
		json_u64(writer, *(const uint64_t *)at);
		break;
	case INCIDENT_I32:
		json_i64(writer, *(const int32_t *)at);
		break;
	case INCIDENT_I64:
		json_i64(writer, *(const int64_t *)at);
		break;
	case INCIDENT_REAL:
		json_double(writer, *(const double *)at);
		break;
	case INCIDENT_NAME:
		memcpy(&word, at, sizeof(word));
		name = field->name(word);
		if (name)
			json_string(writer, name);
		else
			json_null(writer);
		break;
	}
}

static void put_fields(struct json_writer *writer, const struct incident_fields *part, const void *base)
{
	for (size_t i = 0; i < part->count; i++)
		put_field(writer, &part->fields[i], base);
}

/* What is written as a number and a unit for people; beyond that nobody measures. */
#define VALUE_MAX 1e18

/* "76.8%", "181 MiB"; what is of a unit that we do not know, or no sensible number, as it is. */
static const char *value_text(const struct incident_rule *rule, double value, char *buf, size_t cap)
{
	for (unsigned unit = METRIC_PERCENT; unit <= METRIC_PER_SECOND; unit++)
		if (value >= 0 && value < VALUE_MAX && strcmp(rule->unit, incident_unit_name(unit)) == 0)
			return metrictext_value(unit, value, buf, cap);
	snprintf(buf, cap, "%.6g %s", value, rule->unit);
	return buf;
}

/* One sentence for people; nothing reads it back. */
static void put_summary(struct json_writer *writer, const struct incident *incident)
{
	const struct incident_rule *rule = &incident->rule;
	char text[512], value[64];
	int len;

	if (incident->kind == INCIDENT_MANUAL)
		len = snprintf(text, sizeof(text), "asked for by hand: %s", incident->target.name);
	else if (incident->kind != INCIDENT_RULE)
		len = snprintf(text, sizeof(text), "%s incident of %s", incident_kind_name(incident->kind),
			       incident->target.name);
	else
		len = snprintf(text, sizeof(text), "rule %s fired on %s: %s was %s (%s)", rule->name,
			       incident->target.name, rule->metric, value_text(rule, rule->value, value, sizeof(value)),
			       rule->reason);
	if (incident->kind == INCIDENT_RULE && len > 0 && rule->thresholds.has_percent && (size_t)len < sizeof(text))
		snprintf(text + len, sizeof(text) - (size_t)len, ", threshold %s",
			 value_text(rule, rule->thresholds.percent, value, sizeof(value)));
	json_key(writer, "summary");
	printable_json(writer, text);
}

/* "2026-11-20T03:15:02.123456789Z" */
static void put_utc(struct json_writer *writer, wall_t wall)
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);
	char when[32] = "", text[48];
	struct tm utc = { 0 };

	gmtime_r(&seconds, &utc);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(text, sizeof(text), "%s.%09juZ", when, (uintmax_t)(wall.ns % NS_PER_S));
	json_key(writer, "utc");
	json_string(writer, text);
}

/* Of the target, beside what the table says of it. */
static void put_labels(struct json_writer *writer, const struct labels *labels)
{
	if (labels->count == 0 && labels->left_out == 0)
		return;
	jsonmember_labels(writer, "labels", labels);
	if (labels->left_out > 0)
		jsonmember_u64(writer, "labels_left_out", labels->left_out);
}

static void put_part(struct json_writer *writer, const struct incident_fields *part, const struct incident *base)
{
	if (part->has != INCIDENT_ALWAYS && !*((const bool *)base + part->has))
		return;
	json_key(writer, part->key);
	json_begin_object(writer);
	put_fields(writer, part, base);
	if (part == incident_fields(INCIDENT_PART_TARGET))
		put_labels(writer, &base->labels);
	json_end_object(writer);
}

static void put_lists(struct json_writer *writer, const struct incident *incident)
{
	json_key(writer, "merged_total");
	json_u64(writer, incident->merged_total);
	json_key(writer, "merged");
	json_begin_array(writer);
	for (size_t i = 0; i < incident->merged_count; i++) {
		json_begin_object(writer);
		put_utc(writer, incident->merged[i].wall);
		put_fields(writer, incident_fields(INCIDENT_PART_FIRING), &incident->merged[i]);
		json_end_object(writer);
	}
	json_end_array(writer);

	json_key(writer, "captures");
	json_begin_array(writer);
	for (size_t i = 0; i < incident->capture_count; i++) {
		json_begin_object(writer);
		put_fields(writer, incident_fields(INCIDENT_PART_CAPTURE), &incident->captures[i]);
		json_end_object(writer);
	}
	json_end_array(writer);
}

int incident_json_write(const struct incident *incident, struct sink sink)
{
	struct json_writer *writer;
	int r;

	r = json_writer_new(sink, true, &writer);
	if (r < 0)
		return r;

	json_begin_object(writer);
	put_fields(writer, incident_fields(INCIDENT_PART_TOP), incident);
	put_summary(writer, incident);
	json_key(writer, incident_fields(INCIDENT_PART_TIME)->key);
	json_begin_object(writer);
	put_utc(writer, incident->wall);
	put_fields(writer, incident_fields(INCIDENT_PART_TIME), incident);
	json_end_object(writer);
	for (unsigned i = INCIDENT_PART_RULE; i <= INCIDENT_PART_MACHINE; i++)
		put_part(writer, incident_fields(i), incident);
	put_lists(writer, incident);
	json_end_object(writer);
	return json_writer_close(writer); /* the first error of all of the above */
}

/* ---- reading ---- */

static void release_document(struct json_document **document)
{
	json_document_free(*document);
}

/* A whole number as written, exactly: no fraction, no exponent. */
static bool whole(const struct json_node *node, bool *ret_negative, uint64_t *ret)
{
	const char *at = node->text, *end = at + node->text_len;

	*ret_negative = at < end && *at == '-';
	return text_parse_u64(at + *ret_negative, end, ret) == end;
}

static int take_whole(const struct json_node *node, enum incident_field_type type, void *at)
{
	bool negative;
	uint64_t value;

	if (node->type != JSON_NUMBER || !whole(node, &negative, &value))
		return -EBADMSG;
	if (type == INCIDENT_U64 || type == INCIDENT_LIMIT || type == INCIDENT_U32) {
		if (negative || (type == INCIDENT_U32 && value > UINT32_MAX))
			return -EBADMSG;
		if (type == INCIDENT_U32)
			*(uint32_t *)at = (uint32_t)value;
		else
			*(uint64_t *)at = value;
		return 0;
	}
	if (value > (uint64_t)(type == INCIDENT_I32 ? INT32_MAX : INT64_MAX))
		return -EBADMSG;
	if (type == INCIDENT_I32)
		*(int32_t *)at = negative ? -(int32_t)value : (int32_t)value;
	else
		*(int64_t *)at = negative ? -(int64_t)value : (int64_t)value;
	return 0;
}

/* A word that is not known is one of a later version: the value stays as it was. */
static int take_name(const struct json_node *node, const struct incident_field *field, void *at)
{
	if (node->type != JSON_STRING)
		return -EBADMSG;
	for (unsigned value = 0; value < INCIDENT_NAMES_MAX; value++) {
		const char *name = field->name(value);

		if (name && strcmp(name, node->text) == 0)
			memcpy(at, &value, sizeof(value));
	}
	return 0;
}

static int take_value(const struct json_node *node, const struct incident_field *field, void *at)
{
	switch (field->type) {
	case INCIDENT_TEXT:
		if (node->type != JSON_STRING)
			return -EBADMSG;
		incident_text(at, field->room, node->text);
		return 0;
	case INCIDENT_FLAG:
		if (node->type != JSON_BOOL)
			return -EBADMSG;
		*(bool *)at = node->boolean;
		return 0;
	case INCIDENT_REAL:
		if (node->type != JSON_NUMBER || !isfinite(node->number))
			return -EBADMSG;
		*(double *)at = node->number;
		return 0;
	case INCIDENT_NAME:
		return take_name(node, field, at);
	default:
		return take_whole(node, field->type, at);
	}
}

static int take_fields(const struct json_node *object, const struct incident_fields *part, void *base)
{
	if (object->type != JSON_OBJECT)
		return -EBADMSG;
	for (size_t i = 0; i < part->count; i++) {
		const struct incident_field *field = &part->fields[i];
		const struct json_node *node = json_member(object, field->key);
		int r;

		if (!node || node->type == JSON_NULL)
			continue;
		r = take_value(node, field, (char *)base + field->offset);
		if (r < 0)
			return r;
		if (field->has != INCIDENT_ALWAYS)
			*((bool *)base + field->has) = true;
	}
	return 0;
}

/* Of a list at most max items go into items, each of size bytes; *ret_count says how many. */
static int take_list(const struct json_node *list, const struct incident_fields *part, void *items, size_t size,
		     size_t max, size_t *ret_count)
{
	size_t count = 0;

	if (!list)
		return 0;
	if (list->type != JSON_ARRAY)
		return -EBADMSG;
	for (const struct json_node *node = list->first; node && count < max; node = node->next) {
		int r = take_fields(node, part, (char *)items + count * size);

		if (r < 0)
			return r;
		count++;
	}
	*ret_count = count;
	return 0;
}

/* Those that are none are passed over. */
static void take_labels(const struct json_node *target, struct labels *ret)
{
	const struct json_node *object = json_member(target, "labels");
	const struct json_node *left_out = json_member(target, "labels_left_out");
	uint64_t more = 0;

	for (const struct json_node *node = object ? object->first : NULL; node; node = node->next)
		if (node->type == JSON_STRING && node->key)
			labels_add(ret, node->key, node->key_len, node->text, node->text_len);
	if (left_out && take_whole(left_out, INCIDENT_U64, &more) == 0 && more <= UINT32_MAX - ret->left_out)
		ret->left_out += (uint32_t)more;
}

static int take_part(const struct json_node *root, const struct incident_fields *part, struct incident *incident)
{
	const struct json_node *node = json_member(root, part->key);

	if (!node || node->type == JSON_NULL)
		return 0;
	if (part == incident_fields(INCIDENT_PART_TARGET))
		take_labels(node, &incident->labels);
	if (part->has != INCIDENT_ALWAYS)
		*((bool *)incident + part->has) = true;
	return take_fields(node, part, incident);
}

static int take_incident(const struct json_node *root, struct incident *incident)
{
	const struct json_node *total = json_member(root, "merged_total");
	int r;

	r = take_fields(root, incident_fields(INCIDENT_PART_TOP), incident);
	if (r == 0)
		r = take_part(root, incident_fields(INCIDENT_PART_TIME), incident);
	for (unsigned i = INCIDENT_PART_RULE; r == 0 && i <= INCIDENT_PART_MACHINE; i++)
		r = take_part(root, incident_fields(i), incident);
	if (r == 0 && total)
		r = take_whole(total, INCIDENT_U64, &incident->merged_total);
	if (r == 0)
		r = take_list(json_member(root, "merged"), incident_fields(INCIDENT_PART_FIRING), incident->merged,
			      sizeof(incident->merged[0]), INCIDENT_MERGED_MAX, &incident->merged_count);
	if (r == 0)
		r = take_list(json_member(root, "captures"), incident_fields(INCIDENT_PART_CAPTURE), incident->captures,
			      sizeof(incident->captures[0]), INCIDENT_CAPTURES_MAX, &incident->capture_count);
	return r;
}

int incident_json_parse(const char *text, size_t len, struct incident *ret)
{
	const struct json_limits limits = { .size_bytes = INCIDENT_BYTES_MAX };
	AUTO(release_document) struct json_document *document = NULL;
	AUTO_FREE struct incident *incident = calloc(1, sizeof(*incident));
	const struct json_node *marker;
	uint32_t format = 0;
	int r;

	if (!incident)
		return -ENOMEM;
	r = json_parse(text, len, &limits, &document, NULL);
	if (r < 0)
		return r == -ELOOP ? -EBADMSG : r;
	marker = json_member(json_root(document), incident_fields(INCIDENT_PART_TOP)->fields[0].key);
	if (!marker || take_whole(marker, INCIDENT_U32, &format) < 0 || format == 0)
		return -EBADMSG;
	if (format > INCIDENT_FORMAT)
		return -EPROTONOSUPPORT;

	incident_init(incident, "");
	r = take_incident(json_root(document), incident);
	if (r < 0)
		return r;
	*ret = *incident;
	return 0;
}

int incident_json_read(int dirfd, struct incident *ret)
{
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	AUTO_FREE char *text = NULL;
	struct stat st;
	ssize_t len;

	if (fd < 0)
		return errno == ELOOP ? -EBADMSG : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	if (st.st_size > INCIDENT_BYTES_MAX)
		return -EFBIG;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;

	len = fdread_all(fd, text, (size_t)st.st_size);
	if (len < 0)
		return (int)len;
	return incident_json_parse(text, (size_t)len, ret);
}
