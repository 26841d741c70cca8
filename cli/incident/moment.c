/*
 * moment.c: a date is read by hand, digit by digit: strptime(3) depends on the locale, takes less than a whole text and days that do not
 * exist. What mktime(3) makes of the fields is compared with them, so 30 February is refused, not moved into March.
 */
#include "moment.h"

#include "units.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

/* What is left of a text that is being read. */
struct reading {
	const char *at;
	struct tm tm;
	uint64_t fraction_ns;
	bool has_zone;
	int zone_s; /* east of Greenwich */
};

/* So many digits. */
static bool number(struct reading *reading, int digits, int *ret)
{
	int value = 0;

	for (int i = 0; i < digits; i++, reading->at++) {
		if (*reading->at < '0' || *reading->at > '9')
			return false;
		value = 10 * value + (*reading->at - '0');
	}
	*ret = value;
	return true;
}

static bool skip(struct reading *reading, char byte)
{
	if (*reading->at != byte)
		return false;
	reading->at++;
	return true;
}

static bool read_date(struct reading *reading)
{
	bool dashes;

	if (!number(reading, 4, &reading->tm.tm_year))
		return false;
	dashes = skip(reading, '-');
	if (!number(reading, 2, &reading->tm.tm_mon) || (dashes && !skip(reading, '-')) ||
	    !number(reading, 2, &reading->tm.tm_mday))
		return false;
	reading->tm.tm_year -= 1900;
	reading->tm.tm_mon -= 1;
	return true;
}

/* Behind a point; more than nine digits are below a nanosecond. */
static bool read_fraction(struct reading *reading)
{
	uint64_t worth = NS_PER_S / 10;
	const char *begin = reading->at;

	for (; *reading->at >= '0' && *reading->at <= '9'; reading->at++, worth /= 10)
		reading->fraction_ns += worth * (uint64_t)(*reading->at - '0');
	return reading->at > begin;
}

static bool read_zone(struct reading *reading)
{
	int hours, minutes = 0, sign = *reading->at == '-' ? -1 : 1;

	if (*reading->at == '\0')
		return true;
	reading->has_zone = true;
	if (skip(reading, 'Z'))
		return *reading->at == '\0';
	if (!skip(reading, '+') && !skip(reading, '-'))
		return false;
	if (!number(reading, 2, &hours))
		return false;
	skip(reading, ':');
	if (*reading->at && !number(reading, 2, &minutes))
		return false;
	reading->zone_s = sign * (hours * 60 + minutes) * 60;
	return *reading->at == '\0' && hours < 24 && minutes < 60;
}

static bool read_time(struct reading *reading)
{
	bool colons;

	if (!number(reading, 2, &reading->tm.tm_hour))
		return false;
	colons = skip(reading, ':');
	if (!number(reading, 2, &reading->tm.tm_min))
		return false;
	if (colons ? skip(reading, ':') : (*reading->at >= '0' && *reading->at <= '9')) {
		if (!number(reading, 2, &reading->tm.tm_sec))
			return false;
		if (skip(reading, '.') && !read_fraction(reading))
			return false;
	}
	return read_zone(reading);
}

static bool same_day(const struct tm *a, const struct tm *b)
{
	return a->tm_year == b->tm_year && a->tm_mon == b->tm_mon && a->tm_mday == b->tm_mday;
}

static int finish(const struct reading *reading, wall_t *ret)
{
	struct tm tm = reading->tm;
	time_t seconds;

	if (tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
		return -EINVAL;
	tm.tm_isdst = -1;
	seconds = reading->has_zone ? timegm(&tm) - reading->zone_s : mktime(&tm);
	if (tm.tm_hour == reading->tm.tm_hour && !same_day(&tm, &reading->tm))
		return -EINVAL;
	if (seconds < 0)
		return -ERANGE;
	*ret = (wall_t){ (uint64_t)seconds * NS_PER_S + reading->fraction_ns };
	return 0;
}

/* Local midnight, so many days before today. A day may have 23 hours: mktime counts in days, not in seconds. */
static int midnight(wall_t now, int days_ago, wall_t *ret)
{
	time_t seconds = (time_t)(now.ns / NS_PER_S);
	struct tm tm;

	if (!localtime_r(&seconds, &tm))
		return -ERANGE;
	tm.tm_mday -= days_ago;
	tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
	tm.tm_isdst = -1;
	seconds = mktime(&tm);
	if (seconds < 0)
		return -ERANGE;
	*ret = (wall_t){ (uint64_t)seconds * NS_PER_S };
	return 0;
}

int moment_parse(const char *text, wall_t now, wall_t *ret)
{
	struct reading reading = { .at = text };
	uint64_t ago_ns;
	int rc;

	if (strcmp(text, "now") == 0) {
		*ret = now;
		return 0;
	}
	if (strcmp(text, "today") == 0 || strcmp(text, "yesterday") == 0)
		return midnight(now, *text == 'y', ret);
	rc = units_duration(text, strlen(text), &ago_ns);
	if (rc == 0) {
		*ret = (wall_t){ now.ns > ago_ns ? now.ns - ago_ns : 0 };
		return 0;
	}
	if (rc == -ERANGE)
		return rc;
	if (!read_date(&reading))
		return -EINVAL;
	if (*reading.at == '\0')
		return finish(&reading, ret);
	if ((!skip(&reading, 'T') && !skip(&reading, ' ')) || !read_time(&reading))
		return -EINVAL;
	return finish(&reading, ret);
}
