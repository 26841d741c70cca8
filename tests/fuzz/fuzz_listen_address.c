/* What is taken as an address to listen on can be written, and is read again as the same. */
#include "lib/base/units.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct listen_address address = { .port = 0 }, back = { .port = 0 };
	char buf[LISTEN_ADDRESS_TEXT_MAX];

	if (listen_address_parse((const char *)data, size, &address) != 0)
		return 0;
	if (listen_address_parse(buf, strlen(listen_address_format(&address, buf)), &back) != 0 ||
	    back.port != address.port || strcmp(back.host, address.host) != 0)
		abort();

	return 0;
}
