/*
 * addressbook_life.h: the inside of an addressbook: lives, by pid and by age.
 */
#ifndef SPIKEWATCH_ADDRESSBOOK_LIFE_H
#define SPIKEWATCH_ADDRESSBOOK_LIFE_H

#include "addressbook_limits.h"
#include "addressbook_space.h"

#define ADDRESSBOOK_COMM_MAX 16 /* TASK_COMM_LEN */
#define ADDRESSBOOK_BUCKETS 4096

enum addressbook_begun {
	ADDRESSBOOK_FOUND, /* it was there */
	ADDRESSBOOK_FORKED,
	ADDRESSBOOK_EXECED,
};

struct addressbook_name {
	uint64_t since_ns;
	uint32_t tid;
	char comm[ADDRESSBOOK_COMM_MAX];
};

struct addressbook_life {
	struct addressbook_life *next;            /* in the bucket; of one pid, the newest first */
	struct addressbook_life *earlier, *later; /* among those that have ended */
	uint32_t pid, parent;                     /* parent 0: unknown */
	enum addressbook_begun begun;
	bool ended, exited;
	uint64_t from_ns, to_ns; /* to_ns UINT64_MAX until it ended */
	uint64_t shown_ns;       /* the space is the parent's, as it was then; UINT64_MAX: it is its own */
	struct addressbook_space *space;
	struct addressbook_name *names; /* ascending since_ns */
	size_t name_count, name_cap;
};

struct addressbook {
	struct addressbook_limits limits;
	struct addressbook_stats stats;
	struct addressbook_files files;
	struct addressbook_life *buckets[ADDRESSBOOK_BUCKETS];
	struct addressbook_life *oldest_ended, *newest_ended;
};

/* The life that pid was in at time_ns, or the newest for UINT64_MAX; NULL: none began before. */
struct addressbook_life *addressbook_life_at(const struct addressbook *book, uint32_t pid, uint64_t time_ns);

/*
 * A new life of pid from from_ns on; one that was not over ends. space is taken over (NULL: a new one, empty), and shown as of shown_ns. NULL: no
 * room, or there is one that began later; space is given back.
 */
struct addressbook_life *addressbook_life_begin(struct addressbook *book, uint32_t pid, uint64_t from_ns,
						struct addressbook_space *space, uint64_t shown_ns);

/* Ends it, at to_ns, unless it has. */
void addressbook_life_end(struct addressbook *book, struct addressbook_life *life, uint64_t to_ns, bool exited);

/* Forgets and frees it. */
void addressbook_life_forget(struct addressbook *book, struct addressbook_life *life);

/* Frees ended lives, oldest first, until bytes more and one life more can be had, or none is left. */
void addressbook_life_make_room(struct addressbook *book, size_t bytes);

/* Makes the space its own, before something is mapped in it. False: no room. */
bool addressbook_life_own(struct addressbook *book, struct addressbook_life *life);

/* A thread of it is called so from since_ns on. len bytes, cut where the kernel would. */
void addressbook_life_name(struct addressbook *book, struct addressbook_life *life,
			   const struct addressbook_name *name);

/* The name with len bytes of text, cut and terminated. */
struct addressbook_name addressbook_life_name_of(uint32_t tid, uint64_t since_ns, const char *text, size_t len);

/* The last name of tid at time_ns; NULL: none is known. */
const struct addressbook_name *addressbook_life_name_at(const struct addressbook_life *life, uint32_t tid,
							uint64_t time_ns);

#endif
