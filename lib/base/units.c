/*
 * units.c: a text is split once into number and unit (struct quantity), then multiplied out in
 * integers. The whole part is exact with checked multiplication. The fraction is below 1 and the
 * largest unit below 2^53, so a double holds their product to less than half a unit of the result.
 * strtod(3) would read the locale's decimal point and is not used for this.
 *
 * Out: the unit is chosen, the value rounded to the digits that will be shown, and only then it is
 * seen whether rounding has carried it into the next unit (1023.7 KiB is "1 MiB", not "1024 KiB").
 * The styles with a fixed number of decimals, and the exact one, are printf(3)'s: LC_NUMERIC, which
 * no program of ours sets, must be that of the C locale.
 *
 * Addresses: the port is what follows the last colon; an IPv6 address has colons of its own and
 * therefore brackets. The address is written back by inet_ntop, so that equal ones are equal texts.
 * Refused: "*:7745" and ":7745" (to listen on all addresses, "0.0.0.0:7745" or "[::]:7745" has to
 * be written), and zones ("fe80::1%eth0"), whose numbers only the running machine knows.
 */
#include "lib/base/units.h"

#include "lib/base/base.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits of a fraction that count: 10^15 is still exact in a double. */
#define FRACTION_DIGITS_MAX 15

struct quantity {
	uint64_t whole;
	double fraction; /* 0 <= fraction < 1 */
	bool has_point;
	const char *unit;
	size_t unit_len;
};

struct scale {
	const char *name;
	uint64_t factor;
};

static const struct scale durations[] = {
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000 * 1000 },
	{ "s", 1000ULL * 1000 * 1000 },
	{ "min", 60 * 1000ULL * 1000 * 1000 },
	{ "m", 60 * 1000ULL * 1000 * 1000 },
	{ "h", 3600 * 1000ULL * 1000 * 1000 },
	{ "d", 86400 * 1000ULL * 1000 * 1000 },
};

static const struct scale sizes[] = {
	{ "B", 1 },
	{ "KiB", 1ULL << 10 },
	{ "MiB", 1ULL << 20 },
	{ "GiB", 1ULL << 30 },
	{ "TiB", 1ULL << 40 },
	{ "k", 1ULL << 10 },
	{ "K", 1ULL << 10 },
	{ "M", 1ULL << 20 },
	{ "G", 1ULL << 30 },
	{ "T", 1ULL << 40 },
	{ "kB", 1000 },
	{ "KB", 1000 },
	{ "MB", 1000 * 1000 },
	{ "GB", 1000ULL * 1000 * 1000 },
	{ "TB", 1000ULL * 1000 * 1000 * 1000 },
};

#define BINARY_SIZES 5 /* of them, powers of 1024 */

/* ---- in ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t take_whole(const char *text, size_t len, bool *ret_overflow, uint64_t *ret)
{
	size_t at = 0;

	*ret = 0;
	*ret_overflow = false;
	for (; at < len && is_digit(text[at]); at++)
		if (__builtin_mul_overflow(*ret, 10u, ret) ||
		    __builtin_add_overflow(*ret, (uint64_t)(text[at] - '0'), ret))
			*ret_overflow = true;
	return at;
}

static size_t take_fraction(const char *text, size_t len, double *ret)
{
	uint64_t digits = 0, scale = 1;
	size_t at = 0;

	for (; at < len && is_digit(text[at]); at++) {
		if (at >= FRACTION_DIGITS_MAX)
			continue;
		digits = digits * 10 + (uint64_t)(text[at] - '0');
		scale *= 10;
	}
	*ret = (double)digits / (double)scale;
	return at;
}

static int split(const char *text, size_t len, struct quantity *ret)
{
	struct quantity quantity = { 0 };
	bool overflow;
	size_t at = take_whole(text, len, &overflow, &quantity.whole);

	if (at == 0)
		return -EINVAL;
	if (at < len && text[at] == '.') {
		size_t digits = take_fraction(text + at + 1, len - at - 1, &quantity.fraction);

		if (digits == 0)
			return -EINVAL;
		at += 1 + digits;
		quantity.has_point = true;
	}
	if (len - at > 1 && text[at] == ' ')
		at++;
	quantity.unit = text + at;
	quantity.unit_len = len - at;
	*ret = quantity;
	return overflow ? -ERANGE : 0;
}

static const struct scale *find_unit(const struct quantity *quantity, const struct scale *units, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(units[i].name) == quantity->unit_len &&
		    memcmp(units[i].name, quantity->unit, quantity->unit_len) == 0)
			return &units[i];
	return NULL;
}

static int parse_scaled(const char *text, size_t len, const struct scale *units, size_t count, uint64_t *ret)
{
	struct quantity quantity;
	int r = split(text, len, &quantity);
	uint64_t value;

	if (r == -EINVAL)
		return r;

	const struct scale *unit = find_unit(&quantity, units, count);
	bool is_zero = r == 0 && quantity.whole == 0 && quantity.fraction <= 0;

	if (unit == NULL && quantity.unit_len == 0 && is_zero) {
		*ret = 0;
		return 0;
	}
	if (unit == NULL || (unit->factor == 1 && quantity.has_point)) /* there is no half a byte */
		return -EINVAL;
	if (r < 0)
		return r;
	if (__builtin_mul_overflow(quantity.whole, unit->factor, &value) ||
	    __builtin_add_overflow(value, (uint64_t)(quantity.fraction * (double)unit->factor + 0.5), &value))
		return -ERANGE;

	*ret = value;
	return 0;
}

int units_duration(const char *text, size_t len, uint64_t *ret_ns)
{
	return parse_scaled(text, len, durations, ARRAY_LEN(durations), ret_ns);
}

int units_bytes(const char *text, size_t len, uint64_t *ret_bytes)
{
	return parse_scaled(text, len, sizes, ARRAY_LEN(sizes), ret_bytes);
}

int units_number(const char *text, size_t len, double *ret)
{
	struct quantity quantity;
	int r = split(text, len, &quantity);

	if (r == -EINVAL || quantity.unit_len > 0)
		return -EINVAL;
	if (r < 0)
		return r;

	*ret = (double)quantity.whole + quantity.fraction;
	return 0;
}

int units_percent(const char *text, size_t len, double *ret)
{
	if (len > 0 && text[len - 1] == '%') {
		len--;
		if (len > 0 && text[len - 1] == ' ')
			len--;
	}
	return units_number(text, len, ret);
}

int units_count(const char *text, size_t len, uint64_t *ret)
{
	struct quantity quantity;
	int r = split(text, len, &quantity);

	if (r == -EINVAL || quantity.unit_len > 0 || quantity.has_point)
		return -EINVAL;
	if (r < 0)
		return r;

	*ret = quantity.whole;
	return 0;
}

/* ---- out ---- */

/* A value as it will be shown: scaled / 10^decimals. */
struct digits {
	uint64_t scaled;
	unsigned decimals;
};

static const unsigned powers[] = { 1, 10, 100 };

/* Rounds so that about three digits remain. value is not negative. */
static struct digits round_digits(double value)
{
	unsigned decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
	double scaled = value * powers[decimals] + 0.5;
	struct digits digits = { scaled < 1e18 ? (uint64_t)scaled : (uint64_t)1e18, decimals };

	while (digits.decimals > 0 && digits.scaled % 10 == 0) {
		digits.scaled /= 10;
		digits.decimals--;
	}
	return digits;
}

static void print_digits(char *buf, size_t cap, bool negative, struct digits digits, const char *unit)
{
	const char *sign = negative && digits.scaled > 0 ? "-" : "";
	unsigned long long whole = digits.scaled / powers[digits.decimals];
	unsigned long long fraction = digits.scaled % powers[digits.decimals];

	if (digits.decimals == 0)
		snprintf(buf, cap, "%s%llu%s", sign, whole, unit);
	else
		snprintf(buf, cap, "%s%llu.%0*llu%s", sign, whole, (int)digits.decimals, fraction, unit);
}

/* steps: units in rising order, their names with the space before. value is not negative. */
static void format_scaled(char *buf, size_t cap, double value, const struct scale *steps, size_t count)
{
	size_t i = count - 1;

	while (i > 0 && value < (double)steps[i].factor)
		i--;

	struct digits digits = round_digits(value / (double)steps[i].factor);

	if (i + 1 < count && digits.scaled / powers[digits.decimals] >= steps[i + 1].factor / steps[i].factor) {
		i++;
		digits = (struct digits){ 1, 0 };
	}
	print_digits(buf, cap, false, digits, steps[i].name);
}

static void format_duration(char *buf, size_t cap, double ns)
{
	static const struct scale steps[] = {
		{ " ns", 1 },
		{ " us", 1000 },
		{ " ms", 1000 * 1000 },
		{ " s", 1000ULL * 1000 * 1000 },
		{ " min", 60 * 1000ULL * 1000 * 1000 },
		{ " h", 3600 * 1000ULL * 1000 * 1000 },
		{ " d", 86400 * 1000ULL * 1000 * 1000 },
	};

	if (ns < 1)
		print_digits(buf, cap, false, (struct digits){ 0, 0 }, " s");
	else
		format_scaled(buf, cap, ns, steps, ARRAY_LEN(steps));
}

static void format_bytes(char *buf, size_t cap, double bytes)
{
	static const struct scale steps[] = {
		{ " B", 1 },
		{ " KiB", 1ULL << 10 },
		{ " MiB", 1ULL << 20 },
		{ " GiB", 1ULL << 30 },
		{ " TiB", 1ULL << 40 },
	};

	format_scaled(buf, cap, bytes, steps, ARRAY_LEN(steps));
}

static void format_count(char *buf, size_t cap, double count)
{
	static const struct scale steps[] = {
		{ "", 1 },
		{ " k", 1000 },
		{ " M", 1000 * 1000 },
		{ " G", 1000ULL * 1000 * 1000 },
	};

	if (count < 10000)
		print_digits(buf, cap, false, (struct digits){ (uint64_t)count, 0 }, "");
	else
		format_scaled(buf, cap, count, steps, ARRAY_LEN(steps));
}

static void format_reading(char *buf, size_t cap, enum unit_kind unit, double value)
{
	const char *suffix = unit == UNIT_PERCENT      ? "%"
			     : unit == UNIT_CORES      ? " cores"
			     : unit == UNIT_PER_SECOND ? " /s"
						       : "";
	double whole = value > 0 ? trunc(value) : 0;

	if (unit == UNIT_DURATION)
		format_duration(buf, cap, whole);
	else if (unit == UNIT_BYTES)
		format_bytes(buf, cap, whole);
	else if (unit == UNIT_COUNT)
		format_count(buf, cap, whole);
	else if (isfinite(value))
		print_digits(buf, cap, value < 0, round_digits(fabs(value)), suffix);
	else
		snprintf(buf, cap, "-%s", unit == UNIT_PERCENT ? "" : suffix);
}

/* In the largest unit of which it is a multiple, and a power of 1024. */
static void format_exact_whole(char *buf, size_t cap, uint64_t value, const struct scale *scales, size_t count)
{
	size_t best = 0;

	for (size_t i = 1; i < count; i++)
		if (value > 0 && value % scales[i].factor == 0)
			best = i;
	snprintf(buf, cap, "%ju%s", (uintmax_t)(value / scales[best].factor), scales[best].name);
}

static void format_exact(char *buf, size_t cap, enum unit_kind unit, double value)
{
	uint64_t whole = value > 0 && value < 1e18 ? (uint64_t)value : 0;

	if (unit == UNIT_BYTES) {
		format_exact_whole(buf, cap, whole, sizes, BINARY_SIZES);
		return;
	}
	if (unit == UNIT_DURATION) {
		format_exact_whole(buf, cap, whole, durations, ARRAY_LEN(durations));
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(buf, cap, "%.*g", digits, value);
		if (strtod(buf, NULL) == value && !strchr(buf, 'e'))
			return;
	}
	snprintf(buf, cap, "%.9f", value);
}

static void format_column(char *buf, size_t cap, enum unit_kind unit, double value)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t i = 0;

	if (!isfinite(value)) {
		snprintf(buf, cap, "?");
		return;
	}
	switch (unit) {
	case UNIT_BYTES:
		for (; value >= 1023.95 && i + 1 < ARRAY_LEN(names); i++)
			value /= 1024;
		snprintf(buf, cap, i == 0 || value >= 99.95 ? "%.0f %s" : "%.1f %s", value, names[i]);
		break;
	case UNIT_PERCENT:
		snprintf(buf, cap, "%.1f %%", value);
		break;
	case UNIT_CORES:
		snprintf(buf, cap, "%.2f cores", value);
		break;
	case UNIT_COUNT:
		snprintf(buf, cap, "%.0f", value);
		break;
	case UNIT_PER_SECOND:
		snprintf(buf, cap, "%.0f /s", value);
		break;
	case UNIT_NUMBER:
		snprintf(buf, cap, "%.1f", value);
		break;
	case UNIT_DURATION:
		format_reading(buf, cap, unit, value);
	}
}

static void format_narrow(char *buf, size_t cap, enum unit_kind unit, double value)
{
	static const char letters[] = "KMGTPE";
	size_t i = 0;

	if (unit == UNIT_PERCENT && !isnan(value)) {
		snprintf(buf, cap, value < 9999.95 ? "%.1f%%" : "%.0f%%", value);
	} else if (unit == UNIT_BYTES && value < 1000) {
		snprintf(buf, cap, "%.0f", value);
	} else if (unit == UNIT_BYTES) {
		for (value /= 1024; value >= 999.95 && i + 2 < sizeof(letters); i++)
			value /= 1024;
		snprintf(buf, cap, "%.1f%c", value, letters[i]);
	} else {
		format_reading(buf, cap, unit, value);
	}
}

const char *units_format(char *buf, size_t cap, enum unit_kind unit, double value, enum units_style style)
{
	static void (*const formats[])(char *, size_t, enum unit_kind, double) = {
		[UNITS_READING] = format_reading,
		[UNITS_EXACT] = format_exact,
		[UNITS_COLUMN] = format_column,
		[UNITS_NARROW] = format_narrow,
	};

	formats[style](buf, cap, unit, value);
	return buf;
}

static const char *const unit_names[UNITS_NAMED] = {
	[UNIT_PERCENT] = "percent", [UNIT_CORES] = "cores",           [UNIT_BYTES] = "bytes",
	[UNIT_COUNT] = "count",     [UNIT_PER_SECOND] = "per_second",
};

const char *units_name(enum unit_kind unit)
{
	return unit < ARRAY_LEN(unit_names) ? unit_names[unit] : NULL;
}

enum unit_kind units_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(unit_names); i++)
		if (strcmp(unit_names[i], name) == 0)
			return (enum unit_kind)i;
	return UNIT_NUMBER;
}

_Static_assert(LISTEN_ADDRESS_HOST_MAX >= INET6_ADDRSTRLEN, "room for every address");

static int parse_port(const char *text, size_t len, uint16_t *ret)
{
	unsigned port = 0;

	if (len < 1 || len > 5)
		return -EINVAL;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		port = port * 10 + (unsigned)(text[i] - '0');
	}
	if (port < 1 || port > UINT16_MAX)
		return -EINVAL;

	*ret = (uint16_t)port;
	return 0;
}

static int parse_host(const char *text, size_t len, char ret[LISTEN_ADDRESS_HOST_MAX])
{
	int family = AF_INET;
	char host[LISTEN_ADDRESS_HOST_MAX];
	struct in6_addr address; /* the larger of the two */

	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		family = AF_INET6;
		text++;
		len -= 2;
	}
	if (len >= sizeof(host) || memchr(text, '\0', len))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	if (inet_pton(family, host, &address) != 1)
		return -EINVAL;

	inet_ntop(family, &address, ret, LISTEN_ADDRESS_HOST_MAX);
	return 0;
}

int listen_address_parse(const char *text, size_t len, struct listen_address *ret)
{
	struct listen_address address = { .host = "127.0.0.1" };
	const char *colon = memrchr(text, ':', len);
	size_t host_len = colon ? (size_t)(colon - text) : 0;
	size_t port_at = colon ? host_len + 1 : 0;
	int r = parse_port(text + port_at, len - port_at, &address.port);

	if (r == 0 && colon)
		r = parse_host(text, host_len, address.host);
	if (r < 0)
		return r;

	*ret = address;
	return 0;
}
