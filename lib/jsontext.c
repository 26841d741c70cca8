/*
 * jsontext.c: the messages of a JSON parser, made from the text.
 *
 * yajl says "unallowed token at this point in JSON text" and counts its position past the token, sometimes past the
 * next line. So the parser only tells where it last was in good order and what the grammar allows there; the rest is
 * read off the text here: the blanks, perhaps the comma or colon that was right, and then the thing that was not.
 * Nothing here decides whether a text is JSON: it explains a refusal, and must have something true to say about any.
 */
#include "jsontext.h"
#include "text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Room for a token in a message. */
#define SHOWN 40

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

size_t jsontext_character(const char *text, size_t len)
{
	const uint8_t *byte = (const uint8_t *)text;
	/* The second byte is where overlong forms, surrogates and what lies beyond U+10FFFF are told from characters
	 * (Unicode 15, table 3-7); the others are plain continuations. */
	uint8_t low = 0x80, high = 0xbf;
	size_t length;

	if (len == 0 || byte[0] < 0x80)
		return len == 0 ? 0 : 1;
	length = byte[0] < 0xc2 ? 0 : byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : byte[0] < 0xf5 ? 4 : 0;
	if (length == 0 || length > len)
		return 0;
	if (byte[0] == 0xe0 || byte[0] == 0xf0)
		low = byte[0] == 0xe0 ? 0xa0 : 0x90;
	if (byte[0] == 0xed || byte[0] == 0xf4)
		high = byte[0] == 0xed ? 0x9f : 0x8f;
	if (byte[1] < low || byte[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

size_t jsontext_utf8(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len && (uint8_t)text[at] < 0x80)
		at++;
	while (at < len) {
		size_t length = jsontext_character(text + at, len - at);

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

static size_t skip(const char *text, size_t len, size_t at, const char *blanks)
{
	while (at < len) {
		size_t next = at;

		if (text[at] != '\0' && strchr(blanks, text[at]) != NULL)
			next = at + 1;
		else
			next = skip_comment(text, len, at);
		if (next == at)
			return at;
		at = next;
	}
	return len;
}

size_t jsontext_skip(const char *text, size_t len, size_t at)
{
	return skip(text, len, at, " \t\n\v\f\r");
}

size_t jsontext_token(const char *text, size_t len, size_t at)
{
	return skip(text, len, at, " \t\n\v\f\r,:");
}

/* The value of the escape \uXXXX at raw; 0, which is no surrogate, if there is none. */
static unsigned escape_value(const char *raw, size_t len)
{
	unsigned value = 0;

	if (len < 6 || raw[0] != '\\' || raw[1] != 'u')
		return 0;
	for (size_t i = 2; i < 6; i++) {
		unsigned letter = (unsigned)(unsigned char)raw[i];

		value = value * 16 + (letter <= '9' ? letter - '0' : (letter | 0x20) - 'a' + 10);
	}
	return value;
}

bool jsontext_lone_surrogate(const char *raw, size_t len)
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

/* Copies a token to out, which has room for SHOWN bytes. Returns out. */
static const char *show(char *out, const char *text, size_t len)
{
	text_escape(out, SHOWN, text, len);
	return out;
}

static const char *expected(enum jsontext_wants wants)
{
	switch (wants) {
	case JSONTEXT_VALUE:
	case JSONTEXT_MEMBER_VALUE:
		return "a value";
	case JSONTEXT_FIRST_KEY:
		return "a key in double quotes or \"}\"";
	case JSONTEXT_COLON:
		return "\":\" after the key";
	case JSONTEXT_NEXT_MEMBER:
		return "\",\" or \"}\"";
	case JSONTEXT_FIRST_ITEM:
		return "a value or \"]\"";
	case JSONTEXT_NEXT_ITEM:
		return "\",\" or \"]\"";
	case JSONTEXT_END:
		return "nothing after the end of the first value";
	case JSONTEXT_KEY:
		return "a key in double quotes after \",\"";
	case JSONTEXT_ITEM:
		return "a value after \",\"";
	}
	return "something else";
}

static bool wants_value(enum jsontext_wants wants)
{
	return wants == JSONTEXT_VALUE || wants == JSONTEXT_MEMBER_VALUE || wants == JSONTEXT_FIRST_ITEM ||
	       wants == JSONTEXT_ITEM;
}

/* The text ends where something is missing. */
static void explain_end(const struct jsontext_stop *stop, enum jsontext_wants wants, const struct message *message)
{
	if (stop->inside == NULL)
		say(message, "there is no value: expected an object or another JSON value");
	else
		say(message, "the file ends inside %s opened at line %u: expected %s", stop->inside, stop->opened_line,
		    expected(wants));
}

/* A backslash at text[at], inside a string, that begins no escape. True if it was that. */
static bool explain_escape(const char *text, size_t len, size_t at, const struct message *message)
{
	char shown[SHOWN];

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
	    show(shown, text + at + 1, jsontext_character(text + at + 1, len - at - 1)));
	return true;
}

/* The string that begins at text[*at]: broken, and *at then says where, or standing where none can. */
static void explain_string(const char *text, size_t len, size_t *at, enum jsontext_wants wants,
			   const struct message *message)
{
	char shown[SHOWN];

	for (size_t i = *at + 1; i < len; i++) {
		uint8_t byte = (uint8_t)text[i];

		if (byte == '"') {
			say(message, "expected %s, found the string %s", expected(wants),
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
static void explain_glued(const struct jsontext_stop *stop, size_t *at, const struct message *message)
{
	char shown[SHOWN];
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
static void explain_word(const struct jsontext_stop *stop, size_t at, enum jsontext_wants wants,
			 const struct message *message)
{
	char shown[SHOWN];
	size_t end = at;

	while (end < stop->len && is_word(stop->text[end]))
		end++;
	show(shown, stop->text + at, end - at);
	if (!wants_value(wants))
		say(message, "expected %s, found %s", expected(wants), shown);
	else if (is_digit(shown[0]) || shown[0] == '-' || shown[0] == '+' || shown[0] == '.')
		say(message, "malformed number %s: expected a number such as 10 or 0.5", shown);
	else
		say(message, "expected %s, found the word %s: text takes double quotes", expected(wants), shown);
}

static void explain_character(const struct jsontext_stop *stop, size_t at, enum jsontext_wants wants,
			      const struct message *message)
{
	const char *text = stop->text + at;
	size_t length = jsontext_character(text, stop->len - at);
	const char *hint = "";
	char shown[SHOWN];

	if ((wants == JSONTEXT_KEY && *text == '}') || (wants == JSONTEXT_ITEM && *text == ']'))
		hint = ": remove the \",\" before it";
	if (*text == '\'')
		hint = ": text takes double quotes";
	if (*text == '#')
		hint = ": comments begin with //";
	if (length == 1 && (uint8_t)*text >= 0x20 && *text != 0x7f)
		say(message, "expected %s, found \"%c\"%s", expected(wants), *text, hint);
	else if (length == 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		say(message, "expected %s, found a byte order mark: remove it", expected(wants));
	else if (length > 1)
		say(message, "expected %s, found \"%s\"", expected(wants), show(shown, text, length));
	else
		say(message, "expected %s, found byte 0x%02x", expected(wants), (unsigned)(uint8_t)*text);
}

/* The comma or colon that was right before something that was not. */
static enum jsontext_wants pass_separator(const struct jsontext_stop *stop, size_t *at)
{
	char c = *at < stop->len ? stop->text[*at] : '\0';
	enum jsontext_wants wants = stop->wants;

	if (wants == JSONTEXT_COLON && c == ':')
		wants = JSONTEXT_MEMBER_VALUE;
	else if (wants == JSONTEXT_NEXT_MEMBER && c == ',')
		wants = JSONTEXT_KEY;
	else if (wants == JSONTEXT_NEXT_ITEM && c == ',')
		wants = JSONTEXT_ITEM;
	else
		return wants;
	*at = jsontext_skip(stop->text, stop->len, *at + 1);
	return wants;
}

void jsontext_explain(const struct jsontext_stop *stop, size_t *ret_at, char *text, size_t cap)
{
	const struct message message = { text, cap };
	size_t at = jsontext_skip(stop->text, stop->len, stop->at);
	enum jsontext_wants wants = pass_separator(stop, &at);

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
