/*
 * textregex.h: a POSIX extended regular expression that is looked for in texts of strangers, in time that is linear in their length, and in memory that
 * does not grow with what they are. Bytes, in whatever locale. regcomp(3) and regexec(3) are asked nowhere else for such texts.
 *
 * Which expressions may take too long to compile, or to match, is config_regex.h's to say.
 */
#ifndef SPIKEWATCH_TEXTREGEX_H
#define SPIKEWATCH_TEXTREGEX_H

#include <stdbool.h>

struct textregex;

/* Whether every ) outside of sets ends what a ( began, or is escaped. */
bool textregex_is_balanced(const char *pattern);

/* Copies pattern. 0; -EINVAL: it is no expression, or has a ) without a ( that is not escaped; -ENOMEM. */
int textregex_new(const char *pattern, struct textregex **ret);
/* NULL is fine. */
void textregex_free(struct textregex *regex);

/* Whether it matches somewhere in text. One thread at a time. 8 KiB take some 0.1 ms, and 20 ms for expressions that are made for it. */
bool textregex_matches(struct textregex *regex, const char *text);

#endif
