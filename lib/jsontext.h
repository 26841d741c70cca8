/*
 * jsontext.h: JSON as text: where tokens begin, whether bytes are characters, and what a person must change when a
 * parser cannot go on. It knows no parser. Offsets count bytes from the beginning of the text.
 */
#ifndef SPIKEWATCH_JSONTEXT_H
#define SPIKEWATCH_JSONTEXT_H

#include <stdbool.h>
#include <stddef.h>

/* What the grammar allows after the last token that was accepted. */
enum jsontext_wants {
	JSONTEXT_VALUE,        /* nothing was read yet */
	JSONTEXT_FIRST_KEY,    /* after { */
	JSONTEXT_COLON,        /* after a key */
	JSONTEXT_NEXT_MEMBER,  /* after a value in an object */
	JSONTEXT_FIRST_ITEM,   /* after [ */
	JSONTEXT_NEXT_ITEM,    /* after a value in an array */
	JSONTEXT_END,          /* after the outermost value */
	JSONTEXT_MEMBER_VALUE, /* after : */
	JSONTEXT_KEY,          /* after , in an object */
	JSONTEXT_ITEM,         /* after , in an array */
};

/* Where a parser stopped. */
struct jsontext_stop {
	const char *text;
	size_t len;
	size_t at; /* end of the last token that was accepted */
	enum jsontext_wants wants;
	bool after_number;    /* that token was a number */
	const char *inside;   /* "an object", "an array"; NULL outside of both */
	unsigned opened_line; /* where that one began */
};

/* Length of the valid UTF-8 character at text, 0 if there is none. */
size_t jsontext_character(const char *text, size_t len);

/* The offset of the first byte that is no part of a valid UTF-8 character, len if there is none. */
size_t jsontext_utf8(const char *text, size_t len);

/*
 * The offset of the first byte at or after `at` that is neither blank nor in a comment. A comment that is not closed
 * stops it at the beginning of that comment.
 */
size_t jsontext_skip(const char *text, size_t len, size_t at);

/* The same, passing commas and colons too: where the token after `at` begins, in a text known to be JSON so far. */
size_t jsontext_token(const char *text, size_t len, size_t at);

/*
 * True if raw (a string as written, without quotes, escapes known to be well-formed) has an escaped half of a
 * surrogate pair without the other: no character.
 */
bool jsontext_lone_surrogate(const char *raw, size_t len);

/* Says in message what is wrong after the stop and what was expected, and in *ret_at where. */
void jsontext_explain(const struct jsontext_stop *stop, size_t *ret_at, char *message, size_t cap);

#endif
