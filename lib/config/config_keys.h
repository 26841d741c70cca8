/*
 * config_keys.h: the keys of a configuration as rows of tables: name, type, where the value goes,
 * default, range, and what a change of it takes. Defaults, reading, checking and most messages come
 * from the row; a new key is a row and a member of its struct in config.h. For the modules of
 * lib/config, and for programs that document the keys.
 */
#ifndef SPIKEWATCH_LIB_CONFIG_CONFIG_KEYS_H
#define SPIKEWATCH_LIB_CONFIG_CONFIG_KEYS_H

#include "lib/config/config.h"
#include "lib/base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_kind {
	CONFIG_KIND_OTHER,    /* known by name, read elsewhere */
	CONFIG_KIND_DURATION, /* "10ms" -> uint64_t nanoseconds */
	CONFIG_KIND_BYTES,    /* "16MiB" -> uint64_t or uint32_t */
	CONFIG_KIND_COUNT,    /* 200 -> uint32_t */
	CONFIG_KIND_PERCENT,  /* "10%" or 10 -> double */
	CONFIG_KIND_BOOL,
	CONFIG_KIND_PATH,   /* absolute -> const char *; "" too if that is the default */
	CONFIG_KIND_LISTEN, /* "", or what listen_address_parse reads -> const char * */
	CONFIG_KIND_CHOICE, /* one of choices -> its number as an enum */
};

/* What puts a new value in force. Every key outside of arrays must say. */
enum config_change {
	CONFIG_CHANGE_UNSAID, /* keys within entries of arrays: the entry is compared as a whole */
	CONFIG_CHANGE_LIVE,   /* a reload */
	CONFIG_CHANGE_RESTART,
};

struct config_field {
	const char *section; /* key of the object that holds it, "" outside of sections */
	const char *key;
	enum config_kind kind;
	enum config_change change;
	size_t offset, size; /* of the value */
	uint64_t initial;    /* default, in the unit of the value (PERCENT: whole percents) */
	uint64_t min, max;
	bool zero;                  /* 0 is allowed below min */
	const char *text;           /* default of a PATH or LISTEN */
	const char *suffix;         /* what a PATH ends in; NULL: anything */
	bool is_file;               /* a PATH that does not end in / */
	const char *const *choices; /* ends with NULL */
};

/* Where a reader is: errors take file and the beginning of the dotted key from here. */
struct config_scope {
	const char *file;
	struct config_error *err;
	char path[64]; /* "sampling", "rules[2]", "" */
};

/*
 * Fills err and returns -EINVAL. key may be NULL: then it is the path itself. place line 0: the
 * file as a whole.
 */
int config_refuse(const struct config_scope *scope, struct json_place place, const char *key, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Room for a value in a message. */
#define CONFIG_SHOWN 72
/* "text", safe to print, cut if it is long. Returns buf. */
const char *config_quote(const char *text, size_t len, char buf[CONFIG_SHOWN]);

/* ---- the word that a misspelt one may have been ---- */

/* Start with {.word = ...}, offer the candidates; best is then the likely one or NULL. */
struct config_guess {
	const char *word;
	const char *best;
	size_t distance;
	char list[200]; /* all candidates, as far as there is room: "a, b, c" */
	size_t len;
	bool full;
};

/* A known word. It must outlive the guess. */
void config_guess_offer(struct config_guess *guess, const char *candidate);

/* `did you mean "best"?` or `expected one of a, b, c`. Returns buf. */
const char *config_guess_say(const struct config_guess *guess, char *buf, size_t cap);

/* All keys of the sections and of the outermost object. */
extern const struct config_field config_section_fields[];
extern const size_t config_section_field_count;

/* The keys of a target. */
extern const struct config_field config_target_fields[];
extern const size_t config_target_field_count;

/* The keys of one command. */
extern const struct config_field config_run_fields[];
extern const size_t config_run_field_count;

/* The keys of a rule whose type is told by a row; the rest are listed as CONFIG_KIND_OTHER. */
extern const struct config_field config_rule_fields[];
extern const size_t config_rule_field_count;

/* The same for a member of the object that the scope stands for. */
#define config_refuse_value(scope, node, ...) config_refuse(scope, (node)->place, (node)->key, __VA_ARGS__)

#endif
