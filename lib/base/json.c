/*
 * json.c: yajl, made safe to feed and precise in its messages.
 *
 * In. yajl calls back for each token; the callbacks build the tree. yajl does not say where a token
 * begins, only how much it has consumed, so a token begins at the first byte after the last one
 * that is no blank, comment, comma or colon. What yajl accepts wrongly is checked here: overlong
 * and surrogate UTF-8, and a comment or string after the last value that does not end. Halves of
 * surrogate pairs it never sees: where Debian's patches are missing, its decoder reads past the end
 * of such a string (CVE-2017-16516). So the text before the first is all it gets.
 *
 * Messages. yajl's are dropped: it says "unallowed token at this point in JSON text" and counts its
 * position past the token, sometimes past the next line. The parser only keeps where the text was
 * last in order and what the grammar allows there; json_text_explain finds the rest in the text. It
 * does not decide whether a text is JSON: it explains a refusal, and must be right about any text.
 *
 * Memory. yajl writes through whatever its allocator returns, NULL included. So its allocator is an
 * arena of ours that jumps out of the parse when memory is short; the arena is all that yajl has,
 * so nothing leaks.
 *
 * Out. yajl_gen hands over single brackets and blanks; they are gathered in the writer, so that a
 * sink sees few writes, and nothing is allocated (yajl's own buffer grows without limit). In
 * between, a small state machine keeps an empty container on one line, where generators print
 * "{\n\n  }":
 *
 *             bracket          line break        line break         other
 *   OTHER ─────────────▶ BRACKET ──────▶ BREAK ──────▶ EMPTY ──────────────▶ OTHER
 *                        held back: the break          dropped: both breaks, then the indent
 */
#include "lib/base/json.h"

#include "lib/base/map.h"
#include "lib/base/text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>
#include <yajl/yajl_parse.h>

/* What the grammar allows after the last token that was accepted. */
enum json_text_wants {
	JSON_TEXT_VALUE,        /* nothing was read yet */
	JSON_TEXT_FIRST_KEY,    /* after { */
	JSON_TEXT_COLON,        /* after a key */
	JSON_TEXT_NEXT_MEMBER,  /* after a value in an object */
	JSON_TEXT_FIRST_ITEM,   /* after [ */
	JSON_TEXT_NEXT_ITEM,    /* after a value in an array */
	JSON_TEXT_END,          /* after the outermost value */
	JSON_TEXT_MEMBER_VALUE, /* after : */
	JSON_TEXT_KEY,          /* after , in an object */
	JSON_TEXT_ITEM,         /* after , in an array */
};

static const char *const expected_next[] = {
	[JSON_TEXT_VALUE] = "a value",
	[JSON_TEXT_FIRST_KEY] = "a key in double quotes or \"}\"",
	[JSON_TEXT_COLON] = "\":\" after the key",
	[JSON_TEXT_NEXT_MEMBER] = "\",\" or \"}\"",
	[JSON_TEXT_FIRST_ITEM] = "a value or \"]\"",
	[JSON_TEXT_NEXT_ITEM] = "\",\" or \"]\"",
	[JSON_TEXT_END] = "nothing after the end of the first value",
	[JSON_TEXT_MEMBER_VALUE] = "a value",
	[JSON_TEXT_KEY] = "a key in double quotes after \",\"",
	[JSON_TEXT_ITEM] = "a value after \",\"",
};

/* Where a parser stopped. */
struct json_text_stop {
	const char *text;
	size_t len;
	size_t at; /* end of the last token that was accepted */
	enum json_text_wants wants;
	bool after_number;    /* that token was a number */
	const char *inside;   /* "an object", "an array"; NULL outside of both */
	unsigned opened_line; /* where that one began */
};

#define SHOWN_TOKEN 40 /* room for a token in a message */

struct message {
	char *text;
	size_t cap;
};

#define say(message, ...) snprintf((message)->text, (message)->cap, __VA_ARGS__)

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '.' || c == '%' ||
	       c == '+' || c == '-';
}

/* The offset of the first byte that is no part of a valid UTF-8 character, len if there is none. */
static size_t json_text_utf8(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len && (uint8_t)text[at] < 0x80)
		at++;
	while (at < len) {
		size_t length = text_decode(text + at, len - at, NULL);

		if (length == 0)
			return at;
		at += length;
	}
	return len;
}

/* The end of the comment at text[at], `at` itself if there is none or if it is not closed. */
static size_t skip_comment(const char *text, size_t len, size_t at)
{
	const char *end;

	if (len - at < 2 || text[at] != '/')
		return at;
	if (text[at + 1] == '/') {
		end = memchr(text + at, '\n', len - at);
		return end != NULL ? (size_t)(end - text) : len;
	}
	if (text[at + 1] != '*')
		return at;
	end = memmem(text + at + 2, len - at - 2, "*/", 2);
	return end != NULL ? (size_t)(end - text) + 2 : at;
}

#define BLANKS " \t\n\v\f\r"

/*
 * The offset of the first byte at or after `at` that is none of blanks and in no comment. A comment
 * that is not closed is not skipped.
 */
static size_t json_text_skip(const char *text, size_t len, size_t at, const char *blanks)
{
	while (at < len) {
		bool blank = text[at] != '\0' && strchr(blanks, text[at]) != NULL;
		size_t next = blank ? at + 1 : skip_comment(text, len, at);

		if (next == at)
			return at;
		at = next;
	}
	return len;
}

/* The value of the escape \uXXXX at raw; 0, which is no surrogate, if that is not one. */
static unsigned escape_value(const char *raw, size_t len)
{
	unsigned value = 0;

	if (len < 6 || raw[0] != '\\' || raw[1] != 'u')
		return 0;
	for (size_t i = 2; i < 6; i++) {
		unsigned letter = (unsigned)(unsigned char)raw[i];

		if (!isxdigit((unsigned char)raw[i]))
			return 0;
		value = value * 16 + (letter <= '9' ? letter - '0' : (letter | 0x20) - 'a' + 10);
	}
	return value;
}

/*
 * True if raw (a string as written, without quotes) has an escaped half of a surrogate pair without
 * the other: no character.
 */
static bool has_lone_surrogate(const char *raw, size_t len)
{
	for (size_t at = 0; at < len; at++) {
		unsigned value;

		if (raw[at] != '\\')
			continue;
		value = escape_value(raw + at, len - at);
		if ((value & 0xfc00) == 0xdc00)
			return true;
		if ((value & 0xfc00) == 0xd800) {
			if ((escape_value(raw + at + 6, len - at - 6) & 0xfc00) != 0xdc00)
				return true;
			at += 6;
		}
		at++;
	}
	return false;
}

/*
 * The offset of the first string with half of a surrogate pair, len if there is none. It ends
 * strings and comments where yajl ends them: a string at the first quote that no backslash
 * precedes. After a string or comment that does not end, or a broken escape, yajl decodes nothing.
 */
static size_t find_lone_surrogate(const char *text, size_t len)
{
	for (size_t at = 0; at < len; at++) {
		size_t start = at;

		if (text[at] == '/') {
			at = skip_comment(text, len, start);
			if (at == start)
				return len;
			at--;
			continue;
		}
		if (text[at] != '"')
			continue;
		for (at++; at < len && text[at] != '"'; at++)
			at += text[at] == '\\';
		if (at >= len)
			return len;
		if (has_lone_surrogate(text + start + 1, at - start - 1))
			return start;
	}
	return len;
}

static const char *show(char out[SHOWN_TOKEN], const char *text, size_t len)
{
	text_escape(out, SHOWN_TOKEN, text, len);
	return out;
}

static bool wants_value(enum json_text_wants wants)
{
	return wants == JSON_TEXT_VALUE || wants == JSON_TEXT_MEMBER_VALUE || wants == JSON_TEXT_FIRST_ITEM ||
	       wants == JSON_TEXT_ITEM;
}

/* The text ends where something is missing. */
static void explain_end(const struct json_text_stop *stop, enum json_text_wants wants, const struct message *message)
{
	if (stop->inside == NULL)
		say(message, "there is no value: expected an object or another JSON value");
	else
		say(message, "the file ends inside %s opened at line %u: expected %s", stop->inside, stop->opened_line,
		    expected_next[wants]);
}

/* A backslash at text[at], inside a string, that begins no escape. True if it was that. */
static bool explain_escape(const char *text, size_t len, size_t at, const struct message *message)
{
	char shown[SHOWN_TOKEN];

	if (at + 1 >= len)
		return false;
	if (text[at + 1] == 'u') {
		for (size_t i = at + 2; i < at + 6 && i < len; i++) {
			if (strchr("0123456789abcdefABCDEF", text[i]) != NULL && text[i] != '\0')
				continue;
			say(message, "bad escape in a string: expected four hexadecimal digits after \\u");
			return true;
		}
		return false;
	}
	if (text[at + 1] != '\0' && strchr("\"\\/bfnrt", text[at + 1]) != NULL)
		return false;
	say(message, "unknown escape \"\\%s\" in a string: expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\uXXXX",
	    show(shown, text + at + 1, text_decode(text + at + 1, len - at - 1, NULL)));
	return true;
}

/*
 * The string that begins at text[*at]: broken, and *at then says where, or standing where none can.
 */
static void explain_string(const char *text, size_t len, size_t *at, enum json_text_wants wants,
			   const struct message *message)
{
	char shown[SHOWN_TOKEN];

	for (size_t i = *at + 1; i < len; i++) {
		uint8_t byte = (uint8_t)text[i];

		if (byte == '"') {
			say(message, "expected %s, found the string %s", expected_next[wants],
			    show(shown, text + *at, i + 1 - *at));
			return;
		}
		if (byte == '\\' && explain_escape(text, len, i, message)) {
			*at = i;
			return;
		}
		if (byte == '\\' && i + 1 < len)
			i++;
		if (byte >= 0x20)
			continue;
		if (byte == '\n' || byte == '\r')
			say(message, "a line ends inside a string: expected the closing \", or \\n for a line break");
		else
			say(message, "control character 0x%02x inside a string: expected \\u%04x", byte, byte);
		*at = i;
		return;
	}
	say(message, "the file ends inside this string: expected the closing \"");
}

/* Something follows a number without a blank: a unit, or a number that JSON writes otherwise. */
static void explain_glued(const struct json_text_stop *stop, size_t *at, const struct message *message)
{
	char shown[SHOWN_TOKEN];
	size_t begin = stop->at;
	size_t end = stop->at;

	while (begin > 0 && is_word(stop->text[begin - 1]))
		begin--;
	while (end < stop->len && is_word(stop->text[end]))
		end++;
	*at = begin;
	show(shown, stop->text + begin, end - begin);
	if (is_digit(stop->text[stop->at]) || stop->text[stop->at] == '.')
		say(message, "malformed number %s: expected a number such as 10 or 0.5", shown);
	else
		say(message, "%s is no number: expected double quotes around it: \"%s\"", shown, shown);
}

/* A word or number where none can stand, or one that is none. */
static void explain_word(const struct json_text_stop *stop, size_t at, enum json_text_wants wants,
			 const struct message *message)
{
	char shown[SHOWN_TOKEN];
	size_t end = at;

	while (end < stop->len && is_word(stop->text[end]))
		end++;
	show(shown, stop->text + at, end - at);
	if (!wants_value(wants))
		say(message, "expected %s, found %s", expected_next[wants], shown);
	else if (is_digit(shown[0]) || shown[0] == '-' || shown[0] == '+' || shown[0] == '.')
		say(message, "malformed number %s: expected a number such as 10 or 0.5", shown);
	else
		say(message, "expected %s, found the word %s: text takes double quotes", expected_next[wants], shown);
}

static void explain_character(const struct json_text_stop *stop, size_t at, enum json_text_wants wants,
			      const struct message *message)
{
	const char *text = stop->text + at;
	size_t length = text_decode(text, stop->len - at, NULL);
	const char *hint = "";
	char shown[SHOWN_TOKEN];

	if ((wants == JSON_TEXT_KEY && *text == '}') || (wants == JSON_TEXT_ITEM && *text == ']'))
		hint = ": remove the \",\" before it";
	if (*text == '\'')
		hint = ": text takes double quotes";
	if (*text == '#')
		hint = ": comments begin with //";
	if (length == 1 && (uint8_t)*text >= 0x20 && *text != 0x7f)
		say(message, "expected %s, found \"%c\"%s", expected_next[wants], *text, hint);
	else if (length == 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		say(message, "expected %s, found a byte order mark: remove it", expected_next[wants]);
	else if (length > 1)
		say(message, "expected %s, found \"%s\"", expected_next[wants], show(shown, text, length));
	else
		say(message, "expected %s, found byte 0x%02x", expected_next[wants], (unsigned)(uint8_t)*text);
}

/* The comma or colon that was right before something that was not. */
static enum json_text_wants pass_separator(const struct json_text_stop *stop, size_t *at)
{
	char c = *at < stop->len ? stop->text[*at] : '\0';
	enum json_text_wants wants = stop->wants;

	if (wants == JSON_TEXT_COLON && c == ':')
		wants = JSON_TEXT_MEMBER_VALUE;
	else if (wants == JSON_TEXT_NEXT_MEMBER && c == ',')
		wants = JSON_TEXT_KEY;
	else if (wants == JSON_TEXT_NEXT_ITEM && c == ',')
		wants = JSON_TEXT_ITEM;
	else
		return wants;
	*at = json_text_skip(stop->text, stop->len, *at + 1, BLANKS);
	return wants;
}

/* Says in message what is wrong after the stop and what was expected, and in *ret_at where. */
static void json_text_explain(const struct json_text_stop *stop, size_t *ret_at, char *text, size_t cap)
{
	const struct message message = { text, cap };
	size_t at = json_text_skip(stop->text, stop->len, stop->at, BLANKS);
	enum json_text_wants wants = pass_separator(stop, &at);

	*ret_at = at;
	if (at >= stop->len) {
		explain_end(stop, wants, &message);
	} else if (at == stop->at && stop->after_number && is_word(stop->text[at])) {
		explain_glued(stop, ret_at, &message);
	} else if (stop->len - at >= 2 && memcmp(stop->text + at, "/*", 2) == 0) {
		say(&message, "this comment is not closed: expected */");
	} else if (stop->text[at] == '"') {
		explain_string(stop->text, stop->len, ret_at, wants, &message);
	} else if (is_word(stop->text[at])) {
		explain_word(stop, at, wants, &message);
	} else {
		explain_character(stop, at, wants, &message);
	}
}

/* A node and what building needs. */
struct json_item {
	struct json_node node;
	struct json_item *parent;
	struct json_item *last; /* child */
	struct map_node member; /* in tree->members */
};

struct json_document {
	struct arena arena;
	struct json_error *err;
	struct json_item *root;
	struct json_item *top; /* innermost open container */
	unsigned depth, depth_max;
	unsigned nodes, nodes_max;
	const char *key; /* of the value to come */
	size_t key_len;
	struct json_place key_place;
	struct map members; /* of all objects */
};

/*
 * Nodes are appended to the innermost open container, so the tree is built and freed without a
 * walk. Members are also entered in one map for the whole document, by object and name: a document
 * of nothing but members of one object is still checked for duplicates in linear time. Its buckets
 * follow from the length of the text. Rejected: a map per object, most of which have five members.
 */

#define SHOWN_KEY 64

/* Moves a place over len bytes of text. */
static void tree_walk(struct json_place *place, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool line_break = text[i] == '\n';

		place->line += line_break;
		place->column = line_break ? 1 : place->column + 1;
	}
}

/* Notes an error in tree->err and returns it. */
__attribute__((format(printf, 4, 5))) static int tree_refuse(const struct json_document *tree, int error,
							     struct json_place place, const char *format, ...)
{
	va_list args;

	tree->err->place = place;
	va_start(args, format);
	vsnprintf(tree->err->message, sizeof(tree->err->message), format, args);
	va_end(args);
	return error;
}

static int out_of_memory(const struct json_document *tree, struct json_place place)
{
	return tree_refuse(tree, -ENOMEM, place, "out of memory");
}

static uint64_t member_hash(const struct json_document *tree, const char *key, size_t len)
{
	return map_hash(key, len) ^ (uint64_t)(uintptr_t)tree->top * 0x9e3779b97f4a7c15u >> 20;
}

static void append_item(struct json_document *tree, struct json_item *item)
{
	struct json_item *top = tree->top;

	item->parent = top;
	if (top == NULL) {
		tree->root = item;
		return;
	}
	if (top->last == NULL)
		top->node.first = &item->node;
	else
		top->last->node.next = &item->node;
	top->last = item;
	top->node.count++;
	if (top->node.type != JSON_OBJECT)
		return;
	item->node.key = tree->key;
	item->node.key_len = tree->key_len;
	item->node.key_place = tree->key_place;
	map_insert(&tree->members, &item->member, member_hash(tree, tree->key, tree->key_len));
}

static int add(struct json_document *tree, enum json_type type, struct json_place place, struct json_item **ret)
{
	struct json_item *item;

	if (tree->nodes == tree->nodes_max)
		return tree_refuse(tree, -EFBIG, place, "too many values: expected at most %u", tree->nodes_max);
	item = arena_alloc(&tree->arena, sizeof(*item));
	if (item == NULL)
		return out_of_memory(tree, place);
	tree->nodes++;
	item->node.type = type;
	item->node.place = place;
	append_item(tree, item);
	*ret = item;
	return 0;
}

/*
 * The tokens of a document that is known to be in good order. 0; -ENOMEM; -ELOOP, -EFBIG: beyond
 * the limits; -EBADMSG: a duplicate key, a number too large.
 */
static int tree_open(struct json_document *tree, enum json_type type, struct json_place place)
{
	struct json_item *item;
	int r;

	if (tree->depth == tree->depth_max)
		return tree_refuse(tree, -ELOOP, place, "nested too deep: expected at most %u levels", tree->depth_max);
	r = add(tree, type, place, &item);
	if (r < 0)
		return r;
	tree->top = item;
	tree->depth++;
	return 0;
}

static int tree_key(struct json_document *tree, struct json_place place, const char *text, size_t len)
{
	char shown[SHOWN_KEY];

	for (struct map_node *node = map_first(&tree->members, member_hash(tree, text, len)); node;
	     node = map_next(node)) {
		const struct json_item *item = MAP_ENTRY(node, struct json_item, member);
		struct json_place first = item->node.key_place;

		if (item->parent != tree->top || item->node.key_len != len || memcmp(item->node.key, text, len) != 0)
			continue;
		text_escape(shown, sizeof(shown), text, len);
		return tree_refuse(tree, -EBADMSG, place, "duplicate key \"%s\": already given at line %u, column %u",
				   shown, first.line, first.column);
	}
	tree->key = arena_copy(&tree->arena, text, len);
	tree->key_len = len;
	tree->key_place = place;
	return tree->key != NULL ? 0 : out_of_memory(tree, place);
}

static int tree_literal(struct json_document *tree, enum json_type type, struct json_place place, bool value)
{
	struct json_item *item;
	int r = add(tree, type, place, &item);

	if (r == 0)
		item->node.boolean = value;
	return r;
}

static int tree_text(struct json_document *tree, enum json_type type, struct json_place place, const char *text,
		     size_t len, struct json_item **ret)
{
	int r = add(tree, type, place, ret);

	if (r < 0)
		return r;
	(*ret)->node.text = arena_copy(&tree->arena, text, len);
	(*ret)->node.text_len = len;
	return (*ret)->node.text != NULL ? 0 : out_of_memory(tree, place);
}

static int tree_string(struct json_document *tree, struct json_place place, const char *text, size_t len)
{
	struct json_item *item;

	return tree_text(tree, JSON_STRING, place, text, len, &item);
}

static int tree_number(struct json_document *tree, struct json_place place, const char *text, size_t len)
{
	struct json_item *item;
	int r = tree_text(tree, JSON_NUMBER, place, text, len, &item);

	if (r < 0)
		return r;
	/* In the C locale, which programs that never call setlocale(3) are in. */
	item->node.number = strtod(item->node.text, NULL);
	if (isinf(item->node.number))
		return tree_refuse(tree, -EBADMSG, place, "number too large: expected at most 1.7e308");
	return 0;
}

/* A configuration takes a few kilobytes; what is larger by two orders is no configuration. */
#define SIZE_DEFAULT ((size_t)1024 * 1024)
#define DEPTH_DEFAULT 16
#define NODES_DEFAULT 65536

struct parser {
	const char *text;
	size_t len;
	struct json_document *tree;
	int error; /* why a callback stopped yajl */

	yajl_handle yajl;
	struct arena scratch; /* all of yajl's memory */
	jmp_buf out_of_memory;
	bool ended; /* yajl has seen all of the text */

	size_t end; /* of the last token */
	bool after_number;
	enum json_text_wants wants;
	struct json_place place; /* of offset: places are asked for in ascending order, so the text is walked once */
	size_t offset;
};

static struct json_place place_of(struct parser *parser, size_t at)
{
	tree_walk(&parser->place, parser->text + parser->offset, at - parser->offset);
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
	place_of(parser, json_text_skip(parser->text, parser->len, parser->end, BLANKS ",:"));
	/* A number at the very end is only known to be whole once the text has ended. */
	parser->end = parser->ended ? parser->len : yajl_get_bytes_consumed(parser->yajl);
	parser->after_number = false;
}

/* Ends a callback: notes what may follow, or why not. yajl goes on while it gets what is not 0. */
static int done(struct parser *parser, int r)
{
	const struct json_item *top = parser->tree->top;

	parser->error = r;
	parser->wants = top == NULL                     ? JSON_TEXT_END
			: top->node.type == JSON_OBJECT ? JSON_TEXT_NEXT_MEMBER
							: JSON_TEXT_NEXT_ITEM;
	return r == 0;
}

static int literal(struct parser *parser, enum json_type type, bool value)
{
	next_token(parser);
	return done(parser, tree_literal(parser->tree, type, parser->place, value));
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
	return done(parser, tree_number(parser->tree, parser->place, text, len));
}

static int on_string(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *parser = ctx;

	next_token(parser);
	return done(parser, tree_string(parser->tree, parser->place, (const char *)text, len));
}

static int on_key(void *ctx, const unsigned char *text, size_t len)
{
	struct parser *parser = ctx;
	int more;

	next_token(parser);
	more = done(parser, tree_key(parser->tree, parser->place, (const char *)text, len));
	parser->wants = JSON_TEXT_COLON;
	return more;
}

static int opened(struct parser *parser, enum json_type type, enum json_text_wants wants)
{
	int r;

	next_token(parser);
	r = done(parser, tree_open(parser->tree, type, parser->place));
	parser->wants = wants;
	return r;
}

static int on_object(void *ctx)
{
	return opened(ctx, JSON_OBJECT, JSON_TEXT_FIRST_KEY);
}

static int on_array(void *ctx)
{
	return opened(ctx, JSON_ARRAY, JSON_TEXT_FIRST_ITEM);
}

static int on_close(void *ctx)
{
	struct parser *parser = ctx;

	next_token(parser);
	parser->tree->top = parser->tree->top->parent;
	parser->tree->depth--;
	return done(parser, 0);
}

/* ---- the parse ---- */

static int explain(struct parser *parser)
{
	const struct json_item *top = parser->tree->top;
	const struct json_text_stop where = {
		.text = parser->text,
		.len = parser->len,
		.at = parser->end,
		.wants = parser->wants,
		.after_number = parser->after_number,
		.inside = top != NULL ? json_type_name(top->node.type) : NULL,
		.opened_line = top != NULL ? top->node.place.line : 0,
	};
	struct json_error *err = parser->tree->err;
	size_t at;

	json_text_explain(&where, &at, err->message, sizeof(err->message));
	/* From the beginning: the explanation may point back into the last token. */
	err->place = (struct json_place){ 1, 1 };
	tree_walk(&err->place, parser->text, at);
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
	size_t safe = find_lone_surrogate(parser->text, parser->len);
	yajl_status status;

	if (setjmp(parser->out_of_memory) != 0)
		return out_of_memory(parser->tree, parser->place);
	parser->yajl = yajl_alloc(&callbacks, &memory, parser);
	yajl_config(parser->yajl, yajl_allow_comments, 1);
	status = yajl_parse(parser->yajl, (const unsigned char *)parser->text, safe);
	if (status == yajl_status_ok && safe < parser->len)
		return tree_refuse(
			parser->tree, -EBADMSG, place_of(parser, safe),
			"half of a surrogate pair in a string: expected two escapes, or the character itself");
	parser->ended = true;
	if (status == yajl_status_ok)
		status = yajl_complete_parse(parser->yajl);
	if (parser->error < 0)
		return parser->error;
	/*
	 * yajl takes what does not end after the value for merely unfinished: hence the second
	 * look.
	 */
	if (status != yajl_status_ok || json_text_skip(parser->text, parser->len, parser->end, BLANKS) != parser->len)
		return explain(parser);
	return 0;
}

int json_parse(const char *text, size_t len, const struct json_limits *limits, struct json_document **ret,
	       struct json_error *err)
{
	AUTO(json_document_freep) struct json_document *document = calloc(1, sizeof(*document));
	struct parser parser = { .text = len > 0 ? text : "", .len = len, .tree = document, .place = { 1, 1 } };
	struct json_limits use = limits != NULL ? *limits : (struct json_limits){ 0 };
	struct json_error ignored;
	size_t size_max = use.size_bytes > 0 ? use.size_bytes : SIZE_DEFAULT, bad;
	int r;

	if (document == NULL)
		return -ENOMEM;
	document->depth_max = use.depth > 0 ? use.depth : DEPTH_DEFAULT;
	document->nodes_max = use.nodes > 0 ? use.nodes : NODES_DEFAULT;
	document->err = err != NULL ? err : &ignored;
	if (len > size_max)
		return tree_refuse(document, -EFBIG, parser.place, "too large: %zu bytes, expected at most %zu", len,
				   size_max);
	/* A member takes at least five bytes, in practice twenty. */
	if (map_reserve(&document->members, len / 16) < 0)
		return out_of_memory(document, parser.place);
	bad = json_text_utf8(parser.text, len);
	if (bad < len)
		return tree_refuse(document, -EBADMSG, place_of(&parser, bad),
				   "byte 0x%02x is no UTF-8: expected UTF-8 text", (unsigned)(unsigned char)text[bad]);

	r = run(&parser);
	arena_release(&parser.scratch);
	if (r < 0)
		return r;

	map_release(&document->members);
	document->err = NULL;
	*ret = TAKE(document);
	return 0;
}

void json_document_free(struct json_document *document)
{
	if (document == NULL)
		return;
	map_release(&document->members);
	arena_release(&document->arena);
	free(document);
}

const struct json_node *json_root(const struct json_document *document)
{
	return &document->root->node;
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

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/*
 * A page less malloc's head and the rest of a writer: an incident's page goes out in one or two
 * writes.
 */
#define JSON_PRINT_GATHER 3000

enum json_print_last { JSON_PRINT_OTHER, JSON_PRINT_BRACKET, JSON_PRINT_BREAK, JSON_PRINT_EMPTY };

/* {.sink = ...} is ready for use. */
struct json_print {
	struct sink sink;
	int error; /* the first, for ever: nothing is written any more */
	enum json_print_last last;
	size_t gathered;
	char gather[JSON_PRINT_GATHER];
};

/* Room for any number, its NUL included. */
#define JSON_PRINT_NUMBER 40

/*
 * Beyond this, a double has no decimals left; below this, six decimals would leave fewer than four
 * digits.
 */
#define PLAIN_MAX 1e15
#define PLAIN_MIN 1e-3

/* Hands on what was gathered. Returns the first error. */
static int json_print_flush(struct json_print *print)
{
	if (print->error == 0 && print->gathered > 0)
		print->error = sink_write(&print->sink, print->gather, print->gathered);
	print->gathered = 0;
	return print->error;
}

static void gather(struct json_print *print, const char *text, size_t len)
{
	while (len > 0) {
		size_t room = JSON_PRINT_GATHER - print->gathered;
		size_t part = len < room ? len : room;

		memcpy(print->gather + print->gathered, text, part);
		print->gathered += part;
		text += part;
		len -= part;
		if (print->gathered == JSON_PRINT_GATHER)
			json_print_flush(print);
	}
}

/*
 * Takes what a generator prints, in its pieces: brackets, line breaks and indents come one by one.
 */
static void json_print_put(struct json_print *print, const char *text, size_t len)
{
	enum json_print_last last = print->last;
	bool line_break = len == 1 && *text == '\n';

	if (line_break && (last == JSON_PRINT_BRACKET || last == JSON_PRINT_BREAK)) {
		print->last = last == JSON_PRINT_BRACKET ? JSON_PRINT_BREAK : JSON_PRINT_EMPTY;
		return;
	}
	if (last == JSON_PRINT_EMPTY && len > 0 && *text == ' ')
		return;
	if (last == JSON_PRINT_BREAK)
		gather(print, "\n", 1);
	print->last = len == 1 && (*text == '{' || *text == '[') ? JSON_PRINT_BRACKET : JSON_PRINT_OTHER;
	gather(print, text, len);
}

/* Returns the length. Most figures are whole, and printf(3) takes ten times as long. */
static size_t print_whole(char buf[JSON_PRINT_NUMBER], bool negative, uint64_t value)
{
	char digits[20];
	size_t count = 0, len = 0;

	do {
		digits[count++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	if (negative)
		buf[len++] = '-';
	while (count > 0)
		buf[len++] = digits[--count];
	return len;
}

/*
 * A finite number as JSON: at most six decimals, fewer where zeros would follow; very large and
 * very small ones with an exponent. Returns the length.
 */
static size_t print_number(char buf[JSON_PRINT_NUMBER], double value)
{
	double size = fabs(value);
	size_t len;

	if (size < PLAIN_MAX && size == trunc(size))
		return print_whole(buf, value < 0, (uint64_t)size);
	if (size >= PLAIN_MAX || size < PLAIN_MIN)
		return (size_t)snprintf(buf, JSON_PRINT_NUMBER, size >= PLAIN_MAX ? "%.17g" : "%.6g", value);
	len = (size_t)snprintf(buf, JSON_PRINT_NUMBER, "%.6f", value);
	while (buf[len - 1] == '0')
		len--;
	if (buf[len - 1] == '.')
		len--;
	return len;
}

/*
 * Text with U+FFFD for every byte that is no part of a UTF-8 character, for free(3). NULL when
 * memory is short.
 */
static char *replace_invalid(const char *text, size_t len, size_t *ret_len)
{
	char *clean = malloc(len * strlen(REPLACEMENT) + 1);
	size_t out = 0;
	size_t step;

	for (size_t at = 0; clean != NULL && at < len; at += step) {
		size_t length = text_decode(text + at, len - at, NULL);

		step = length > 0 ? length : 1;
		length = length > 0 ? length : strlen(REPLACEMENT);
		memcpy(clean + out, step == 1 && length > 1 ? REPLACEMENT : text + at, length);
		out += length;
	}
	*ret_len = out;
	return clean;
}

/* yajl_gen takes about 660 bytes, most of them for the state of each of its 128 levels. */
#define GENERATOR 1024

struct json_writer {
	struct json_print print;
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
	json_print_put(ctx, text, len);
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

/*
 * After an error yajl_gen is not called any more: what it has to say is then about our callers
 * only.
 */
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

int json_string(struct json_writer *writer, const char *text)
{
	return json_string_len(writer, text, strlen(text));
}

int json_string_len(struct json_writer *writer, const char *text, size_t len)
{
	AUTO_FREE char *clean = NULL;

	if (json_text_utf8(text, len) < len) {
		clean = replace_invalid(text, len, &len);
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
	char buf[JSON_PRINT_NUMBER];

	return put_number(writer, buf, print_whole(buf, false, value));
}

int json_i64(struct json_writer *writer, int64_t value)
{
	char buf[JSON_PRINT_NUMBER];

	return put_number(writer, buf, print_whole(buf, value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value));
}

int json_double(struct json_writer *writer, double value)
{
	char buf[JSON_PRINT_NUMBER];

	return isfinite(value) ? put_number(writer, buf, print_number(buf, value)) : json_null(writer);
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
		json_print_put(&writer->print, "\n", 1);
	r = json_print_flush(&writer->print);
	free(writer);
	return r;
}

/*
 * Hidden characters hardly ever occur: an ordinary string is passed on as it is and only the other
 * is copied, to the stack, so only the writer can fail. The writer replaces what is not UTF-8.
 */

/* Length of the harmful character at text (NUL-terminated), 0 if it is harmless. */
static size_t harmful(const char *text)
{
	uint32_t code = 0;
	size_t len;

	if ((unsigned char)text[0] < 0x7f)
		return 0;
	len = text_decode(text, strnlen(text, 4), &code);
	return len && text_is_hidden(code) ? len : 0;
}

int printable_json(struct json_writer *writer, const char *text)
{
	char copy[PRINTABLE_MAX];
	size_t len = 0;
	const char *at = text;

	while (*at && harmful(at) == 0)
		at++;
	if (!*at)
		return json_string(writer, text);

	for (at = text; *at && len + sizeof(REPLACEMENT) <= sizeof(copy);) {
		size_t skip = harmful(at);

		if (skip > 0) {
			memcpy(copy + len, REPLACEMENT, sizeof(REPLACEMENT) - 1);
			len += sizeof(REPLACEMENT) - 1;
			at += skip;
		} else {
			copy[len++] = *at++;
		}
	}
	return json_string_len(writer, copy, len);
}
