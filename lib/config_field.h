/*
 * config_field.h: keys of the configuration as rows of a table: name, type, where the value goes, default, range.
 * Defaults, reading, checking and most messages come from the row. For the config_* modules only.
 */
#ifndef SPIKEWATCH_CONFIG_FIELD_H
#define SPIKEWATCH_CONFIG_FIELD_H

#include "config.h"
#include "json.h"

enum config_kind {
	CONFIG_KIND_OTHER,    /* known by name, read elsewhere */
	CONFIG_KIND_DURATION, /* "10ms" -> uint64_t nanoseconds */
	CONFIG_KIND_BYTES,    /* "16MiB" -> uint64_t or uint32_t */
	CONFIG_KIND_COUNT,    /* 200 -> uint32_t */
	CONFIG_KIND_PERCENT,  /* "10%" or 10 -> double */
	CONFIG_KIND_BOOL,
	CONFIG_KIND_PATH,   /* absolute -> const char *; "" too if that is the default */
	CONFIG_KIND_LISTEN, /* "", or what listenaddr_parse reads -> const char * */
	CONFIG_KIND_CHOICE, /* one of choices -> its number as an enum */
};

/* What it takes that a new value is in force. Every key that a running daemon has must say. */
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
	const char *const *choices; /* ends with NULL */
};

/* Rows: of a key that is read elsewhere, of any kind, of what has a range. */
// clang-format off
#define CONFIG_OTHER(s, k) { .section = s, .key = k }
#define CONFIG_ROW(s, k, type, strukt, member, ...)                                                                    \
	{ .section = s, .key = k, .kind = CONFIG_KIND_##type, .offset = offsetof(strukt, member),                      \
	  .size = sizeof(((strukt *)0)->member), __VA_ARGS__ }
#define CONFIG_RANGE(s, k, type, strukt, member, initially, least, ...)                                                \
	CONFIG_ROW(s, k, type, strukt, member, .initial = initially, .min = least, .max = __VA_ARGS__)
// clang-format on

/* Where a value came from; line 0: it is the default. */
struct config_origin {
	const char *file;
	struct json_place place;
};

/* Where a reader is: errors take file and the beginning of the dotted key from here. */
struct config_scope {
	const char *file;
	struct config_error *err;
	char path[64]; /* "sampling", "rules[2]", "" */
};

/* Fills err and returns -EINVAL. key may be NULL: then it is the path itself. place line 0: the file as a whole. */
int config_refuse(const struct config_scope *scope, struct json_place place, const char *key, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The same for a member of the object that the scope stands for. */
#define config_refuse_value(scope, node, ...) config_refuse(scope, (node)->place, (node)->key, __VA_ARGS__)

/* Sets every field to its default. */
void config_field_defaults(const struct config_field *table, size_t count, void *base);

/*
 * Reads the members of object that belong to section into base; unknown keys are refused. origins: one for each row
 * of the table, NULL if nobody asks. 0 or -EINVAL.
 */
int config_field_apply(const struct config_scope *scope, const struct config_field *table, size_t count,
		       const char *section, const struct json_node *object, void *base, struct config_origin *origins);

/* ---- single values; 0 or -EINVAL ---- */

/* A quantity with its unit. */
int config_read_duration(const struct config_scope *scope, const struct json_node *node, uint64_t *ret_ns);
int config_read_bytes(const struct config_scope *scope, const struct json_node *node, uint64_t *ret_bytes);
/* "70%" or 70. */
int config_read_percent(const struct config_scope *scope, const struct json_node *node, double *ret);
/* A number that is not negative, without unit. */
int config_read_number(const struct config_scope *scope, const struct json_node *node, double *ret);
/* A text without NUL, of 1 to max bytes. */
int config_read_text(const struct config_scope *scope, const struct json_node *node, size_t max, const char **ret);
/* A name of 1 to 64 of A-Z a-z 0-9 _ . -, because it becomes part of file names. */
int config_read_name(const struct config_scope *scope, const struct json_node *node, const char **ret);
/* A text that is a glob: whether it can be one. */
int config_check_glob(const struct config_scope *scope, const struct json_node *node);
/* One of choices: its number. */
int config_read_choice(const struct config_scope *scope, const struct json_node *node, const char *const *choices,
		       unsigned *ret);

/* Room for a value in a message. */
#define CONFIG_SHOWN 72
/* "text", safe to print, cut if it is long. Returns buf. */
const char *config_quote(const char *text, size_t len, char buf[CONFIG_SHOWN]);
/* What was found: "text" in quotes, a number, or what kind of value it is. Returns buf. */
const char *config_found(const struct json_node *node, char buf[CONFIG_SHOWN]);

/* ---- words that were meant, and words that exist ---- */

/* Start with {.word = ...}, offer the candidates; best is then the likely one or NULL. */
struct config_guess {
	const char *word;
	const char *best;
	size_t distance;
	char list[200]; /* all candidates, as far as there is room: "a, b, c" */
	size_t len;
	bool full;
};

/* One word that exists. It must outlive the guess. */
void config_guess_offer(struct config_guess *guess, const char *candidate);

/* `did you mean "best"?` or `expected one of a, b, c`. Returns buf. */
const char *config_guess_say(const struct config_guess *guess, char *buf, size_t cap);

#endif
