/*
 * json.c: yajl made safe to feed and precise to blame.
 *
 * In. yajl calls back for each token; the callbacks build the tree. yajl does not say where a token begins, only
 * how much it has consumed, so a token begins at the first byte after the last one that is no blank, comment, comma
 * or colon. Its messages are thrown away: jsontext_explain makes better ones from the state kept here. What yajl
 * lets pass is checked here: overlong and surrogate UTF-8, halves of surrogate pairs (it makes them question
 * marks), and a comment or string after the last value that does not end.
 *
 * Memory. yajl writes through whatever its allocator returns, NULL included. So its allocator is an arena of ours that
 * jumps out of the parse when memory is short; nothing is lost, because the arena is all that yajl has.
 *
 * Out. yajl_gen hands over a few bytes at a time; they are gathered here, so that a sink sees few writes. It lives in
 * memory inside of the writer and allocates nothing. Rejected: yajl's own buffer, which grows without asking.
 */
#include "json.h"

#include "jsonprint.h"
#include "jsontext.h"
#include "scope.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_parse.h>

/* A configuration takes a few kilobytes; what is larger by two orders is no configuration. */
#define SIZE_DEFAULT ((size_t)1024 * 1024)
#define DEPTH_DEFAULT 16
#define NODES_DEFAULT 65536

struct json_document {
	struct jsontree tree;
};

struct parser {
	const char *text;
	size_t len;
	struct jsontree *tree;
	int error; /* why a callback stopped yajl */

	yajl_handle yajl;
	struct arena scratch; /* all of yajl's memory */
	jmp_buf out_of_memory;
	bool ended; /* yajl has seen all of the text */

	size_t end; /* of the last token */
	bool after_number;
	enum jsontext_wants wants;
	struct json_place place; /* of offset: places are asked for in ascending order, so the text is walked once */
	size_t offset;
};

static struct json_place place_of(struct parser *parser, size_t at)
{
	jsontree_walk(&parser->place, parser->text + parser->offset, at - parser->offset);
	parser->offset = at;
	return parser->place;
}

/* ---- the memory of yajl: blocks with their size in front, so that they can be moved ---- */

union block {
	size_t size;
	max_align_t align;
};

static void *scratch_alloc(void *ctx, size_t size)
{
	struct parser *parser = ctx;
	union block *block = arena_alloc(&parser->scratch, sizeof(*block) + size);

	if (block == NULL)
		longjmp(parser->out_of_memory, 1);
	block->size = size;
	return block + 1;
}

static void *scratch_realloc(void *ctx, void *old, size_t size)
{
	void *moved = scratch_alloc(ctx, size);

	if (old != NULL && ((union block *)old - 1)->size < size)
		size = ((union block *)old - 1)->size;
	return old != NULL ? memcpy(moved, old, size) : moved;
}

static void free_nothing(void *ctx, void *block)
{
	(void)ctx, (void)block;
}

/* ---- tokens ---- */

/* Steps over the token that yajl has just read: its beginning is now the place of the parser. */
static void next_token(struct parser *parser)
{
	place_of(parser, jsontext_token(parser->text, parser->len, parser->end));
	/* A number at the very end is only known to be whole once the text has ended. */
	parser->end = parser->ended ? parser->len : yajl_get_bytes_consumed(parser->yajl);
	parser->after_number = false;
}

/* Ends a callback: notes what may follow, or why not. yajl goes on while it gets what is not 0. */
static int done(struct parser *parser, int r)
{
	const struct json_node *top = jsontree_top(parser->tree);

	parser->error = r;
	parser->wants = top == NULL                ? JSONTEXT_END
			: top->type == JSON_OBJECT ? JSONTEXT_NEXT_MEMBER
						   : JSONTEXT_NEXT_ITEM;
	return r == 0;
}

static int literal(struct parser *parser, enum json_type type, bool value)
{
	next_token(parser);
	return done(parser, jsontree_literal(parser->tree, type, parser->place, value));
}

static int on_null(void *ctx)
{
	return literal(ctx, JSON_NULL, false);
}

static int on_boolean(void *ctx, int value)
{
	return literal(ctx, JSON_BOOL, value != 0);
}

static int on_number(void *ctx, const char *text, size_t len)
{
	struct parser *parser = ctx;

	next_token(parser);
	parser->after_number = true;
	return done(parser, jsontree_text(parser->tree, JSON_NUMBER, parser->place, text, len));
}

/* The token is a string or key, quotes included. */
static int check_string(const struct parser *parser)
{
	if (!jsontext_lone_surrogate(parser->text + parser->offset, parser->end - parser->offset))
		return 0;
	return jsontree_refuse(parser->tree, -EBADMSG, parser->place,
			       "half of a surrogate pair in a string: expected two escapes, or the character itself");
}

static int on_string(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *parser = ctx;
	int r;

	next_token(parser);
	r = check_string(parser);
	if (r == 0)
		r = jsontree_text(parser->tree, JSON_STRING, parser->place, (const char *)text, len);
	return done(parser, r);
}

static int on_key(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *parser = ctx;
	int r;

	next_token(parser);
	r = check_string(parser);
	if (r == 0)
		r = jsontree_key(parser->tree, parser->place, (const char *)text, len);
	r = done(parser, r);
	parser->wants = JSONTEXT_COLON;
	return r;
}

static int opened(struct parser *parser, enum json_type type, enum jsontext_wants wants)
{
	int r;

	next_token(parser);
	r = done(parser, jsontree_open(parser->tree, type, parser->place));
	parser->wants = wants;
	return r;
}

static int on_object(void *ctx)
{
	return opened(ctx, JSON_OBJECT, JSONTEXT_FIRST_KEY);
}

static int on_array(void *ctx)
{
	return opened(ctx, JSON_ARRAY, JSONTEXT_FIRST_ITEM);
}

static int on_close(void *ctx)
{
	struct parser *parser = ctx;

	next_token(parser);
	return done(parser, jsontree_close(parser->tree));
}

/* ---- the parse ---- */

static int explain(struct parser *parser)
{
	const struct json_node *top = jsontree_top(parser->tree);
	const struct jsontext_stop where = {
		.text = parser->text,
		.len = parser->len,
		.at = parser->end,
		.wants = parser->wants,
		.after_number = parser->after_number,
		.inside = top != NULL ? json_type_name(top->type) : NULL,
		.opened_line = top != NULL ? top->place.line : 0,
	};
	struct json_error *err = parser->tree->err;
	size_t at;

	jsontext_explain(&where, &at, err->message, sizeof(err->message));
	/* From the beginning: the explanation may point back into the last token. */
	err->place = (struct json_place){ 1, 1 };
	jsontree_walk(&err->place, parser->text, at);
	return -EBADMSG;
}

static int run(struct parser *parser)
{
	static const yajl_callbacks callbacks = {
		.yajl_null = on_null,
		.yajl_boolean = on_boolean,
		.yajl_number = on_number,
		.yajl_string = on_string,
		.yajl_start_map = on_object,
		.yajl_map_key = on_key,
		.yajl_end_map = on_close,
		.yajl_start_array = on_array,
		.yajl_end_array = on_close,
	};
	yajl_alloc_funcs memory = { scratch_alloc, scratch_realloc, free_nothing, parser };
	yajl_status status;

	if (setjmp(parser->out_of_memory) != 0)
		return jsontree_refuse(parser->tree, -ENOMEM, parser->place, "out of memory");
	parser->yajl = yajl_alloc(&callbacks, &memory, parser);
	yajl_config(parser->yajl, yajl_allow_comments, 1);
	status = yajl_parse(parser->yajl, (const unsigned char *)parser->text, parser->len);
	parser->ended = true;
	if (status == yajl_status_ok)
		status = yajl_complete_parse(parser->yajl);
	if (parser->error < 0)
		return parser->error;
	/* yajl takes what does not end after the value for merely unfinished: hence the second look. */
	if (status != yajl_status_ok || jsontext_skip(parser->text, parser->len, parser->end) != parser->len)
		return explain(parser);
	return 0;
}

/* Fills a tree that was just made. */
static int parse(const char *text, size_t len, struct jsontree *tree)
{
	struct parser parser = { .text = text, .len = len, .tree = tree, .place = { 1, 1 } };
	size_t bad = jsontext_utf8(text, len);
	int r;

	if (bad < len)
		return jsontree_refuse(tree, -EBADMSG, place_of(&parser, bad),
				       "byte 0x%02x is no UTF-8: expected UTF-8 text",
				       (unsigned)(unsigned char)text[bad]);
	r = run(&parser);
	arena_release(&parser.scratch);
	return r;
}

static void document_release(struct json_document **document)
{
	json_document_free(*document);
}

int json_parse(const char *text, size_t len, const struct json_limits *limits, struct json_document **ret,
	       struct json_error *err)
{
	AUTO(document_release) struct json_document *document = calloc(1, sizeof(*document));
	struct json_limits use = limits != NULL ? *limits : (struct json_limits){ 0 };
	struct json_error ignored;
	int r;

	if (document == NULL)
		return -ENOMEM;
	use.size_bytes = use.size_bytes > 0 ? use.size_bytes : SIZE_DEFAULT;
	use.depth = use.depth > 0 ? use.depth : DEPTH_DEFAULT;
	use.nodes = use.nodes > 0 ? use.nodes : NODES_DEFAULT;
	document->tree.err = err != NULL ? err : &ignored;
	if (len > use.size_bytes)
		return jsontree_refuse(&document->tree, -EFBIG, (struct json_place){ 1, 1 },
				       "too large: %zu bytes, expected at most %zu", len, use.size_bytes);

	r = jsontree_init(&document->tree, &use, len, document->tree.err);
	if (r == 0)
		r = parse(len > 0 ? text : "", len, &document->tree);
	if (r < 0)
		return r;

	jsontree_finish(&document->tree);
	*ret = TAKE(document);
	return 0;
}

void json_document_free(struct json_document *document)
{
	if (document == NULL)
		return;
	jsontree_release(&document->tree);
	free(document);
}

const struct json_node *json_root(const struct json_document *document)
{
	return jsontree_root(&document->tree);
}

const struct json_node *json_member(const struct json_node *node, const char *key)
{
	size_t len = strlen(key);

	if (node->type != JSON_OBJECT)
		return NULL;
	for (const struct json_node *child = node->first; child != NULL; child = child->next)
		if (child->key_len == len && memcmp(child->key, key, len) == 0)
			return child;
	return NULL;
}

const char *json_type_name(enum json_type type)
{
	static const char *const names[] = { "null", "true or false", "a number", "a string", "an array", "an object" };

	return names[type];
}

/* ---- out ---- */

/* yajl_gen takes about 660 bytes, most of them for the state of each of its 128 levels. */
#define GENERATOR 1024

struct json_writer {
	struct jsonprint print;
	bool indent;
	bool written;
	yajl_gen generator;
	size_t reserved; /* of memory */
	_Alignas(max_align_t) char memory[GENERATOR];
};

static void *reserve(void *ctx, size_t size)
{
	struct json_writer *writer = ctx;
	void *memory = writer->memory + writer->reserved;

	writer->reserved += (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	assert(writer->reserved <= GENERATOR);
	return memory;
}

/* Never asked for: what is printed goes through a callback, so nothing grows. */
static void *reserve_more(void *ctx, void *old, size_t size)
{
	assert(old == NULL);
	return reserve(ctx, size);
}

static void print(void *ctx, const char *text, size_t len)
{
	jsonprint_put(ctx, text, len);
}

int json_writer_new(struct sink sink, bool indent, struct json_writer **ret)
{
	struct json_writer *writer = calloc(1, sizeof(*writer));
	yajl_alloc_funcs memory = { reserve, reserve_more, free_nothing, writer };

	if (writer == NULL)
		return -ENOMEM;
	writer->print.sink = sink;
	writer->indent = indent;
	writer->generator = yajl_gen_alloc(&memory);
	yajl_gen_config(writer->generator, yajl_gen_beautify, (int)indent);
	yajl_gen_config(writer->generator, yajl_gen_indent_string, "  ");
	yajl_gen_config(writer->generator, yajl_gen_print_callback, print, &writer->print);
	*ret = writer;
	return 0;
}

/* After an error yajl_gen is not called any more: what it has to say is then about our callers only. */
#define GENERATE(writer, call) ((writer)->print.error != 0 ? (writer)->print.error : generated(writer, call))

static int generated(struct json_writer *writer, yajl_gen_status status)
{
	assert(status == yajl_gen_status_ok);
	writer->written = true;
	return writer->print.error;
}

int json_begin_object(struct json_writer *writer)
{
	return GENERATE(writer, yajl_gen_map_open(writer->generator));
}

int json_end_object(struct json_writer *writer)
{
	return GENERATE(writer, yajl_gen_map_close(writer->generator));
}

int json_begin_array(struct json_writer *writer)
{
	return GENERATE(writer, yajl_gen_array_open(writer->generator));
}

int json_end_array(struct json_writer *writer)
{
	return GENERATE(writer, yajl_gen_array_close(writer->generator));
}

int json_key(struct json_writer *writer, const char *key)
{
	return json_string(writer, key);
}

int json_string(struct json_writer *writer, const char *text)
{
	return json_string_len(writer, text, strlen(text));
}

int json_string_len(struct json_writer *writer, const char *text, size_t len)
{
	AUTO_FREE char *clean = NULL;

	if (jsontext_utf8(text, len) < len) {
		clean = jsonprint_clean(text, len, &len);
		if (clean == NULL && writer->print.error == 0)
			writer->print.error = -ENOMEM;
		text = clean;
	}
	return GENERATE(writer, yajl_gen_string(writer->generator, (const unsigned char *)text, len));
}

static int put_number(struct json_writer *writer, const char *text, size_t len)
{
	return GENERATE(writer, yajl_gen_number(writer->generator, text, len));
}

int json_u64(struct json_writer *writer, uint64_t value)
{
	char buf[JSONPRINT_NUMBER];

	return put_number(writer, buf, jsonprint_whole(buf, false, value));
}

int json_i64(struct json_writer *writer, int64_t value)
{
	char buf[JSONPRINT_NUMBER];

	return put_number(writer, buf, jsonprint_whole(buf, value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value));
}

int json_double(struct json_writer *writer, double value)
{
	char buf[JSONPRINT_NUMBER];

	return isfinite(value) ? put_number(writer, buf, jsonprint_number(buf, value)) : json_null(writer);
}

int json_bool(struct json_writer *writer, bool value)
{
	return GENERATE(writer, yajl_gen_bool(writer->generator, value));
}

int json_null(struct json_writer *writer)
{
	return GENERATE(writer, yajl_gen_null(writer->generator));
}

int json_writer_close(struct json_writer *writer)
{
	int r;

	if (writer == NULL)
		return 0;
	/* Pretty-printed, yajl_gen has ended the last line. */
	if (writer->written && !writer->indent)
		jsonprint_put(&writer->print, "\n", 1);
	r = jsonprint_flush(&writer->print);
	free(writer);
	return r;
}
