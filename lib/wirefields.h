/*
 * wirefields.h: a message in the wire format of protocol buffers, field by field. Pure; nothing in it is trusted.
 * https://protobuf.dev/programming-guides/encoding/
 */
#ifndef SPIKEWATCH_WIREFIELDS_H
#define SPIKEWATCH_WIREFIELDS_H

#include <stdbool.h>
#include <stdint.h>

/* What is left of a message. */
struct wirefields {
	const unsigned char *at, *end;
};

/* Others are passed over, or none. */
enum wirefields_type { WIREFIELDS_VARINT = 0, WIREFIELDS_FIXED64 = 1, WIREFIELDS_BYTES = 2, WIREFIELDS_FIXED32 = 5 };

struct wirefields_field {
	uint64_t number;
	unsigned type;
	uint64_t value;          /* VARINT */
	struct wirefields bytes; /* BYTES: text, a message, or packed numbers */
};

/* A number at the front. False: it is cut off, or longer than 64 bits. */
bool wirefields_varint(struct wirefields *fields, uint64_t *ret);

/* 1 and *ret; 0: the end; -EBADMSG: cut off, or a group. */
int wirefields_next(struct wirefields *fields, struct wirefields_field *ret);

#endif
