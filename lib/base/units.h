/*
 * units.h: where to listen, as people write it: "127.0.0.1:7745", "[::1]:7745", or "7745" for
 * loopback. Numeric addresses only: a name would have to be looked up, by somebody who may be early
 * in the boot. Pure.
 */
#ifndef SPIKEWATCH_LIB_BASE_UNITS_H
#define SPIKEWATCH_LIB_BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/*
 * units.h: quantities as people write and read them: "10ms", "512MiB", "70%". Never depends on the
 * locale.
 *
 * In: a decimal number without sign or exponent, perhaps one space, a unit. A number without its
 * unit is an error, because "10" has been guessed wrong too often; only 0 needs none. Texts are
 * given with their length and need no NUL. Each returns 0; -EINVAL: not such a quantity; -ERANGE:
 * too large. *ret is untouched on failure.
 */

/*
 * "500ns", "100us", "10ms", "1.5s", "2m" or "2min", "1h", "30d". Rounded to the nearest nanosecond.
 */
int units_duration(const char *text, size_t len, uint64_t *ret_ns);

/*
 * "100B", "64KiB", "512MiB", "1GiB", "2TiB" (powers of 1024), "1kB" or "1KB", "10MB", "1GB", "1TB"
 * (powers of 1000).
 */
int units_bytes(const char *text, size_t len, uint64_t *ret_bytes);

/* "70%", "12.5 %", "70": 100 is all of it, and more than 100 is possible. */
int units_percent(const char *text, size_t len, double *ret);

/* "200": a whole number without unit. */
int units_count(const char *text, size_t len, uint64_t *ret);

/* "1.25": a number without unit (cores, events per second). */
int units_number(const char *text, size_t len, double *ret);

/* Enough for each text below, its NUL included. */
#define UNITS_TEXT_MAX 32

/*
 * For people: three to four significant digits, trailing zeros dropped, rounded to the nearest,
 * into buf (NUL-terminated whenever cap > 0, cut if cap is too small). Each returns buf. The
 * functions above read what these write, except the signs, the "k", "M" and "G" of counts, and "-",
 * which stands for what is no number.
 *
 * 	duration    0 s   312 ms   1.5 s   2 min   4.25 h   30 d
 * 	bytes       100 B   64 KiB   1.25 GiB
 * 	count       9999   12.3 k   4.56 M
 * 	percent     70%   12.5%   -3%
 * 	number      1.25   12.3   1234
 */
const char *units_format_duration(char *buf, size_t cap, uint64_t ns);
const char *units_format_bytes(char *buf, size_t cap, uint64_t bytes);
const char *units_format_count(char *buf, size_t cap, uint64_t count);
const char *units_format_percent(char *buf, size_t cap, double value);
const char *units_format_number(char *buf, size_t cap, double value);

#define LISTEN_ADDRESS_HOST_MAX 48
#define LISTEN_ADDRESS_TEXT_MAX (LISTEN_ADDRESS_HOST_MAX + 8)

struct listen_address {
	char host[LISTEN_ADDRESS_HOST_MAX]; /* as inet_ntop(3) writes it, without brackets; a colon in it: IPv6 */
	uint16_t port;                      /* 1 to 65535 */
};

/* text needs no NUL. A port alone is on 127.0.0.1. 0 or -EINVAL; *ret is untouched on failure. */
int listen_address_parse(const char *text, size_t len, struct listen_address *ret);

/*
 * "HOST:PORT" or "[HOST]:PORT" into buf, as listen_address_parse reads it; always terminated.
 * Returns buf.
 */
const char *listen_address_format(const struct listen_address *address, char buf[LISTEN_ADDRESS_TEXT_MAX]);

#endif
