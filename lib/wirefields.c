/* wirefields.c: lengths are compared with what is left before anything moves. Groups, which nobody writes any more, are refused. */
#include "wirefields.h"

#include <errno.h>

bool wirefields_varint(struct wirefields *fields, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && fields->at < fields->end; shift += 7) {
		unsigned char byte = *fields->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

static bool skip(struct wirefields *fields, uint64_t len)
{
	if (len > (uint64_t)(fields->end - fields->at))
		return false;
	fields->at += len;
	return true;
}

static bool take_bytes(struct wirefields *fields, struct wirefields *ret)
{
	uint64_t len;

	if (!wirefields_varint(fields, &len))
		return false;
	ret->at = fields->at;
	if (!skip(fields, len))
		return false;
	ret->end = fields->at;
	return true;
}

int wirefields_next(struct wirefields *fields, struct wirefields_field *ret)
{
	uint64_t key;

	if (fields->at == fields->end)
		return 0;
	if (!wirefields_varint(fields, &key))
		return -EBADMSG;
	*ret = (struct wirefields_field){ .number = key >> 3, .type = key & 7 };
	switch (ret->type) {
	case WIREFIELDS_VARINT:
		return wirefields_varint(fields, &ret->value) ? 1 : -EBADMSG;
	case WIREFIELDS_FIXED64:
		return skip(fields, 8) ? 1 : -EBADMSG;
	case WIREFIELDS_FIXED32:
		return skip(fields, 4) ? 1 : -EBADMSG;
	case WIREFIELDS_BYTES:
		return take_bytes(fields, &ret->bytes) ? 1 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}
