/* What is taken as an address to listen on has a port and a terminated host. */
#include "lib/base/units.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct listen_address address = { .port = 0 };

	if (listen_address_parse((const char *)data, size, &address) == 0 &&
	    (address.port == 0 || !memchr(address.host, '\0', sizeof(address.host))))
		abort();
	return 0;
}
