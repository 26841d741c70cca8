/*
 * units.h: quantities as people write and read them ("10ms", "512MiB", "70%"), and addresses to
 * listen on. Pure.
 */
#ifndef SPIKEWATCH_LIB_BASE_UNITS_H
#define SPIKEWATCH_LIB_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/*
 * In: a decimal number without sign or exponent, perhaps one space, a unit. A number without its
 * unit is an error, because "10" is guessed wrong too often; only 0 needs none. Texts are given
 * with their length and need no NUL; the locale does not matter. Each returns 0; -EINVAL: not such
 * a quantity; -ERANGE: too large. *ret is untouched on failure.
 */

/*
 * "500ns", "100us", "10ms", "1.5s", "2m" or "2min", "1h", "30d". Rounded to the nearest nanosecond.
 */
int units_duration(const char *text, size_t len, uint64_t *ret_ns);

/*
 * "100B", "64KiB", "512MiB", "1GiB", "2TiB", and as dd(1) reads them "64K" or "64k", "512M", "1G",
 * "2T" (powers of 1024), "1kB" or "1KB", "10MB", "1GB", "1TB" (powers of 1000).
 */
int units_bytes(const char *text, size_t len, uint64_t *ret_bytes);

/* "70%", "12.5 %", "70": 100 is all of it, and more than 100 is possible. */
int units_percent(const char *text, size_t len, double *ret);

/* "200": a whole number without unit. */
int units_count(const char *text, size_t len, uint64_t *ret);

/* "1.25": a number without unit (cores, events per second). */
int units_number(const char *text, size_t len, double *ret);

/* What a value is measured in: first the units of metrics, by their names in files. */
enum unit_kind {
	UNIT_PERCENT,    /* "percent": 100 is all of it */
	UNIT_CORES,      /* "cores": CPU seconds per second */
	UNIT_BYTES,      /* "bytes" */
	UNIT_COUNT,      /* "count": a whole number of things */
	UNIT_PER_SECOND, /* "per_second" */
	UNIT_DURATION,   /* nanoseconds */
	UNIT_NUMBER      /* none */
};

#define UNITS_NAMED 5 /* those that have a name */

enum units_style {
	/*
	 * In a sentence: three to four significant digits, trailing zeros dropped. Negative bytes and
	 * counts are 0; "-" stands for what is no number.
	 *
	 * 	duration  0 s   312 ms   1.5 s   2 min   4.25 h   30 d
	 * 	bytes     100 B   64 KiB   1.25 GiB      count   9999   12.3 k   4.56 M
	 * 	percent   70%   12.5%   -3%              number  1.25   12.3   1234
	 * 	cores     1.25 cores                     per second   12 /s
	 */
	UNITS_READING,
	/*
	 * As a configuration has it, so that the same value is read back: 512MiB, 1500ms, 80.5. Bytes
	 * and durations are whole and below 10^18.
	 */
	UNITS_EXACT,
	/*
	 * Of values that are compared: 182.4 %, 1.50 cores, 300 MiB, 1.0 MiB, 12 /s; "?" if not
	 * finite.
	 */
	UNITS_COLUMN,
	/* In a narrow cell: 182.4%, 10000%, 512, 1.5K, 120.5M. */
	UNITS_NARROW
};

/* Enough for each text below, its NUL included. */
#define UNITS_TEXT_MAX 32

/*
 * Writes the value into buf (terminated whenever cap > 0, cut if cap is too small), rounded to the
 * nearest; returns buf. A unit that a style does not list is as in UNITS_READING.
 */
const char *units_format(char *buf, size_t cap, enum unit_kind unit, double value, enum units_style style);

/* "percent", "cores", "bytes", "count", "per_second"; NULL: no such unit. Static text. */
const char *units_name(enum unit_kind unit);

/* The unit of a name; UNIT_NUMBER: there is none of that name. */
enum unit_kind units_by_name(const char *name);

/* The most frequent ones, in UNITS_READING. */
static inline const char *units_format_duration(char *buf, size_t cap, uint64_t ns)
{
	return units_format(buf, cap, UNIT_DURATION, (double)ns, UNITS_READING);
}

static inline const char *units_format_bytes(char *buf, size_t cap, uint64_t bytes)
{
	return units_format(buf, cap, UNIT_BYTES, (double)bytes, UNITS_READING);
}

static inline const char *units_format_percent(char *buf, size_t cap, double value)
{
	return units_format(buf, cap, UNIT_PERCENT, value, UNITS_READING);
}

#define LISTEN_ADDRESS_HOST_MAX 48

struct listen_address {
	char host[LISTEN_ADDRESS_HOST_MAX]; /* as inet_ntop(3) writes it, without brackets; a colon in it: IPv6 */
	uint16_t port;                      /* 1 to 65535 */
};

/* text needs no NUL. A port alone is on 127.0.0.1. 0 or -EINVAL; *ret is untouched on failure. */
int listen_address_parse(const char *text, size_t len, struct listen_address *ret);

#endif
