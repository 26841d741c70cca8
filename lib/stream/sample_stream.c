/* sample_stream.c: member by member; what is none of ours reads as an empty target. */
#include "lib/stream/sample_stream.h"

#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <stdint.h>
#include <string.h>

/*
 * columns.c: made from the field table, so that a new field of a sample is a new column without a
 * word here. The JSON writer is sticky, so only its last call is asked.
 */

_Static_assert(SAMPLE_FIELDS <= STREAM_COLUMNS_MAX, "every field has a column");

void columns_of_samples(struct stream_column ret[static SAMPLE_FIELDS])
{
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		const struct sample_field_info *info = sample_field_info(f);

		ret[f] = (struct stream_column){ info->name, info->unit, sample_kind_name(info->kind), info->source };
	}
}

static void put_text(struct json_writer *writer, const char *key, const char *text)
{
	json_key(writer, key);
	printable_json(writer, text);
}

static void put_target(struct json_writer *writer, const struct target *target, uint32_t looker)
{
	json_begin_object(writer);
	put_text(writer, "kind", target_kind_name(target->kind));
	put_text(writer, "name", target->name);
	put_text(writer, "entry", target->entry);
	put_text(writer, "key", target->key);
	if (target->kind == TARGET_PROCESS) {
		json_key(writer, "pid");
		json_i64(writer, target->pid);
		json_key(writer, "start_ticks");
		json_u64(writer, target->start_ticks);
		put_text(writer, "comm", target->comm);
		put_text(writer, "cmdline", target->cmdline);
	}
	put_text(writer, "cgroup", target->cgroup);
	if (target->container && *target->container)
		put_text(writer, "container", target->container);
	if (looker > 0) {
		json_key(writer, "writer");
		json_u64(writer, looker);
	}
	json_end_object(writer);
}

int columns_target_json(const struct target *target, uint32_t looker, struct buffer *buffer)
{
	struct json_writer *writer;
	size_t before = buffer->len;
	int r;

	r = json_writer_new(sink_buffer(buffer), false, &writer);
	if (r < 0)
		return r;

	put_target(writer, target, looker);
	r = json_writer_close(writer); /* the first error of all of the above */
	if (r < 0) {
		buffer->len = before;
		return r;
	}
	buffer->len--; /* the newline that ends a document */
	return 0;
}

/* Start times above it are no whole numbers in a double, and no clock has ticked so often. */
#define TICKS_MAX 9e15

static const char *text_of(const struct json_node *object, const char *key)
{
	const struct json_node *node = json_member(object, key);

	return node && node->type == JSON_STRING ? node->text : "";
}

double target_json_number(const struct json_node *object, const char *key, double max)
{
	const struct json_node *node = json_member(object, key);

	return node && node->type == JSON_NUMBER && node->number >= 0 && node->number <= max ? node->number : 0;
}

struct target target_json_read(const struct json_node *object, uint32_t id)
{
	struct target target = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)target_json_number(object, "pid", INT32_MAX),
		.start_ticks = (uint64_t)target_json_number(object, "start_ticks", TICKS_MAX),
		.entry = text_of(object, "entry"),
		.name = text_of(object, "name"),
		.key = text_of(object, "key"),
		.comm = text_of(object, "comm"),
		.cmdline = text_of(object, "cmdline"),
		.cgroup = text_of(object, "cgroup"),
		.container = text_of(object, "container"),
	};

	for (unsigned kind = TARGET_PROCESS; kind <= TARGET_GROUP; kind++)
		if (strcmp(text_of(object, "kind"), target_kind_name((enum target_kind)kind)) == 0)
			target.kind = (enum target_kind)kind;
	return target;
}
