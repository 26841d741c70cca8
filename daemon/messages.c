/* messages.c: the ids, from the one table. */
#include "messages.h"

const char *message_id(enum message message)
{
	static const char *const ids[MESSAGE_KINDS] = { [MESSAGE_NONE] = "",
#define X(name, id) [MESSAGE_##name] = (id),
							MESSAGES(X)
#undef X
	};

	return ids[message];
}
