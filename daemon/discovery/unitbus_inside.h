/*
 * unitbus_inside.h: what unitbus's files share: the connection (unitbus.c), what is told over it (unitbus_signals.c), lists
 * (unitbus_list.c), and questions about single units (unitbus_ask.c).
 */
#ifndef SPIKEWATCH_UNITBUS_INSIDE_H
#define SPIKEWATCH_UNITBUS_INSIDE_H

#include "unitbus.h"

#include <systemd/sd-bus.h>

#define SYSTEMD_NAME "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"
#define SYSTEMD_UNITS "/org/freedesktop/systemd1/unit"
#define SYSTEMD_MANAGER "org.freedesktop.systemd1.Manager"
#define SYSTEMD_UNIT "org.freedesktop.systemd1.Unit"

/* Units that are asked about at a time: what they wait for is in the bus's queues. */
#define UNITBUS_FETCHES 8

/* Of units that have processes. */
#define UNITBUS_KINDS 6

TAILQ_HEAD(unit_queue, unit);

/* A name or glob that an entry has. */
struct unitbus_wish {
	char *name;
	bool glob;
	enum unitbus_answer answer;
	char why[UNITBUS_WHY_MAX];
};

struct unitbus_fetch;

struct unitbus {
	struct unitbus_options options;
	sd_bus *connection; /* NULL: there is none */
	bool peer;
	struct unittable *table;
	struct unitbus_wish *wishes;
	size_t wish_count;
	struct unit_queue due, later; /* to be asked about: now; when their time has come, in its order */
	struct unitbus_fetch *fetches[UNITBUS_FETCHES];
	sd_bus_slot *list; /* the list that is waited for; NULL: none */
	size_t listed;     /* wishes that were */
	bool relist;       /* from the beginning */
	bool overfull;     /* there was no room for one: when there is, lists tell of it */
	uint64_t round;    /* of lists: units that were not in it are gone */
	struct unitbus_state state;
	mono_t now;       /* of this unitbus_hear */
	mono_t retry;     /* without a connection: when it is tried again */
	mono_t connected; /* since when there is this one */
	mono_t window;    /* of the budget, and what was taken of it */
	uint64_t spent_ns;
	unsigned failures; /* in a row */
	bool broken;       /* the connection is of no use; why says why */
};

/* ---- unitbus.c ---- */

/* The connection is to be given up as soon as that may be. why NULL: error in words. */
void unitbus_fail(struct unitbus *bus, int error, const char *why);

/* In words, what a reply says that is an error. */
void unitbus_reply_error(sd_bus_message *reply, char *ret, size_t cap);

/* A call to systemd; types and what follows as sd_bus_message_append. 0 or -errno. */
int unitbus_call(struct unitbus *bus, sd_bus_slot **ret, const char *path, const char *interface, const char *member,
		 sd_bus_message_handler_t reply, void *userdata, const char *types, ...);

/* ---- unitbus_signals.c ---- */

/* Asks for signals: of the bus, or the socket; of systemd. 0 or -errno. */
int unitbus_listen(struct unitbus *bus);
int unitbus_subscribe(struct unitbus *bus);

/* ---- unitbus_list.c ---- */

/* Asks for lists, one after the other, if one is due. */
void unitbus_list(struct unitbus *bus);
void unitbus_list_cancel(struct unitbus *bus);

/* The name in an object's path, if it may be one of a unit with processes that is wanted: room for UNIT_NAME_MAX. */
bool unitbus_object_name(const struct unitbus *bus, const char *object, char *ret);

/* May it be the name of a unit? */
bool unitbus_is_name(const char *name);

/* Is a unit of one of these names wanted? */
bool unitbus_is_wanted(const struct unitbus *bus, const struct unit *unit);

/* Another answer to a wish, which is passed on. */
void unitbus_answer(struct unitbus *bus, struct unitbus_wish *wish, enum unitbus_answer answer, const char *why);

/* The interface of a unit's kind, by the name's suffix; NULL: units of that kind have no processes. */
const char *unitbus_interface(const char *name);

/* ---- unitbus_ask.c ---- */

/* Something may be different. */
void unitbus_due(struct unitbus *bus, struct unit *unit);

/* Enters a unit and asks about it. doubtful: it may be gone again. */
void unitbus_meet(struct unitbus *bus, const char *object, bool doubtful);

/* Forgets it. */
void unitbus_drop(struct unitbus *bus, struct unit *unit);

/* Asks about those whose turn it is. */
void unitbus_ask(struct unitbus *bus);
void unitbus_ask_cancel(struct unitbus *bus);
void unitbus_ask_free(struct unitbus *bus);
int unitbus_ask_new(struct unitbus *bus);

#endif
