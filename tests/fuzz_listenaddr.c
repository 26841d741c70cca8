/* What is taken as an address to listen on can be written, and is read again as the same. */
#include "lib/base/units.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct listenaddr address = { .port = 0 }, back = { .port = 0 };
	char buf[LISTENADDR_TEXT_MAX];

	if (listenaddr_parse((const char *)data, size, &address) != 0)
		return 0;
	if (listenaddr_parse(buf, strlen(listenaddr_format(&address, buf)), &back) != 0 || back.port != address.port ||
	    strcmp(back.host, address.host) != 0)
		abort();

	return 0;
}
