/*
 * config_keys.h: the keys of a configuration as rows of tables: name, type, where the value goes,
 * default, range, and what a change of it takes. Defaults, reading, checking and most messages come
 * from the row; a new key is a row and a member of its struct in config.h. And what goes by these
 * tables: configurations compared, and variants of one.
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

/* All keys of the sections and of the outermost object. */
extern const struct config_field config_section_fields[];
extern const size_t config_section_field_count;

/* The keys of a target. */
extern const struct config_field config_target_fields[];
extern const size_t config_target_field_count;

/* The keys of one command. */
extern const struct config_field config_run_fields[];
extern const size_t config_run_field_count;

/* The keys of one entry of "notify". */
extern const struct config_field config_notify_fields[];
extern const size_t config_notify_field_count;

/* The keys of a rule whose type is told by a row; the rest are listed as CONFIG_KIND_OTHER. */
extern const struct config_field config_rule_fields[];
extern const size_t config_rule_field_count;

/*
 * Whether a running daemon can change from one configuration to another, and what differs; and the
 * configurations that "hot.percent=60,70,80%" makes of one, with other values for keys of rules. The
 * parser checks a changed rule, so it is refused with the parser's words. Pure.
 */

#define WHAT_IF_VARIANTS_MAX 64
#define WHAT_IF_VALUE_MAX 63 /* bytes of a value */

#define WHAT_IF_MESSAGE_MAX 512

/* The configuration with one key of one rule changed. */
struct what_if_variant {
	size_t rule;                       /* place in config->rules */
	char key[32];                      /* "percent" */
	char value[WHAT_IF_VALUE_MAX + 1]; /* as written: "60%" */
	struct config config;              /* borrows everything from the base but its array of rules, and owned */
	struct config *owned;              /* what was parsed for it */
};

/* {0} is empty and legal. */
struct what_if {
	struct what_if_variant *variants; /* in the order in which they were asked for */
	size_t count;
};

/*
 * Reads text: RULE.KEY=VALUE[,VALUE...][;RULE.KEY=VALUE...], one variant per value. KEY is any key
 * of a rule but its name, targets and metric. Adds to *what if, which is to be released, before
 * base. 0; -ENOMEM; -EINVAL: message (WHAT_IF_MESSAGE_MAX bytes, terminated) says what is wrong and
 * what was expected.
 */
int what_if_parse(struct what_if *what_if, const struct config *base, const char *text, char *message);

/* Adds one variant. As what_if_parse. */
int what_if_add(struct what_if *what_if, const struct config *base, size_t rule, const char *key, const char *value,
		char *message);

/* Frees all variants; empty and usable again. */
void what_if_release(struct what_if *what_if);

/*
 * 0: next can replace old without a restart. -EINVAL: a key that is read at start only differs.
 * *err (may be NULL) names the first such key, where it is written (a key that was removed: the
 * first file), the value in force and the one wanted. Values are compared as written: "" differs
 * from the path that it stands for.
 */
int config_change_reloadable(const struct config *old, const struct config *next, struct config_error *err);

/*
 * Entries are identified by name. A rule has changed if the set of names in its list of targets
 * differs, not if only their order does.
 */
struct config_change_counts {
	size_t targets_added, targets_removed, targets_changed;
	size_t rules_added, rules_removed, rules_changed;
};

/* Costs entries x entries comparisons of names. */
void config_change_count(const struct config *old, const struct config *next, struct config_change_counts *ret);

/* Whether any key outside of targets and rules differs. */
bool config_change_sections(const struct config *old, const struct config *next);

#endif
