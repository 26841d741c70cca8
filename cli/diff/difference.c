/*
 * difference.c: a table of sources says which file each side of a contrast comes from. A file that is not there makes a note and no table; a
 * damaged one makes a note, no table, and the whole difference damaged: what else there is can still be compared.
 */
#include "difference.h"

#include "contrastload.h"
#include "scope.h"
#include "story.h"
#include "text.h"
#include "units.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* Files of the first look and of the second. */
static const char *const thread_files[] = { "threads.tsv", "threads.again.tsv" };
static const char *const mapping_files[] = { "smaps.tsv", "smaps.again.tsv" };

static const struct {
	bool shares;
	unsigned ranked;
	bool stacks, memory;
} tables[DIFFERENCE_TABLES] = {
	[DIFFERENCE_FUNCTIONS] = { true, 2, true, false },       [DIFFERENCE_STACK_THREADS] = { true, 1, true, false },
	[DIFFERENCE_MEMORY_FUNCTIONS] = { true, 2, true, true }, [DIFFERENCE_MEMORY_THREADS] = { true, 1, true, true },
	[DIFFERENCE_THREADS] = { false, 1, false, false },       [DIFFERENCE_MAPPINGS] = { false, 2, false, false },
};

const char *difference_phase_name(enum difference_phase phase)
{
	static const char *const names[DIFFERENCE_PHASES] = { "during", "before", "all" };

	return names[phase];
}

unsigned difference_phases(const struct difference *difference, enum contrast_side side)
{
	static const unsigned bits[DIFFERENCE_PHASES] = { CONTRASTLOAD_DURING, CONTRASTLOAD_BEFORE,
							  CONTRASTLOAD_BEFORE | CONTRASTLOAD_DURING };

	if (difference->one)
		return side == CONTRAST_A ? CONTRASTLOAD_BEFORE : CONTRASTLOAD_DURING;
	return bits[difference->phase];
}

const char *difference_label(const struct difference *difference, enum difference_table table, enum contrast_side side)
{
	if (!difference->one)
		return side == CONTRAST_A ? "A" : "B";
	if (tables[table].stacks)
		return side == CONTRAST_A ? "before" : "during";
	return side == CONTRAST_A ? "first" : "second";
}

bool difference_of_memory(enum difference_table table)
{
	return tables[table].memory;
}

bool difference_any(const struct difference *difference)
{
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		if (contrast_ready(&difference->table[i]))
			return true;
	return false;
}

/* ---- notes ---- */

void difference_note(struct difference *difference, bool damaged, const char *text)
{
	char *note;

	difference->damaged |= damaged;
	if (difference->notes == DIFFERENCE_NOTES_MAX)
		return;
	note = difference->note[difference->notes++];
	text_escape(note, sizeof(difference->note[0]), text, strlen(text));
}

__attribute__((format(printf, 3, 4))) static void note(struct difference *difference, bool damaged, const char *format,
						       ...)
{
	char text[sizeof(difference->note[0])];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	difference_note(difference, damaged, text);
}

/* "A", "B", or "it". */
static const char *subject(const struct difference *difference, enum contrast_side side)
{
	return difference->one ? "the incident" : side == CONTRAST_A ? "A" : "B";
}

/* What the daemon said of a file that it has not written. */
static const char *why_absent(const struct incident *incident, const char *file)
{
	static const char *const names[][2] = {
		{ "functions.tsv", "functions" },
		{ "memory-functions.tsv", "memory-functions" },
		{ "threads.tsv", "threads" },
		{ "smaps.tsv", "smaps" },
		{ "threads.again.tsv", "threads-again" },
		{ "smaps.again.tsv", "smaps-again" },
	};

	for (size_t n = 0; n < ARRAY_LEN(names); n++)
		for (size_t i = 0; i < incident->capture_count; i++)
			if (strcmp(names[n][0], file) == 0 && strcmp(incident->captures[i].name, names[n][1]) == 0)
				return incident->captures[i].why;
	return "";
}

/* 0, or -ENOMEM; other errors become notes. absent: how it is said that there is none; NULL: it is not said. */
static int judge(struct difference *difference, enum contrast_side side, const char *file, const char *absent, int rc)
{
	enum contrast_side whose = difference->one ? CONTRAST_A : side;
	const char *why = why_absent(&difference->incident[whose], file);

	if (rc == -ENOMEM || rc == 0)
		return rc;
	if (rc != -ENOENT)
		note(difference, true, "%s: %s is %s", subject(difference, side), file,
		     rc == -EBADMSG ? "damaged" : strerror(-rc));
	else if (absent)
		note(difference, false, "%s has no %s: %s%s%s", subject(difference, side), file, absent,
		     why[0] ? ", " : "", why);
	return 0;
}

/* ---- loading ---- */

static int load_stacks(struct difference *difference, enum contrast_side side, int fd, enum hotlist_unit unit)
{
	bool memory = unit == HOTLIST_IN_BYTES;
	enum difference_table functions = memory ? DIFFERENCE_MEMORY_FUNCTIONS : DIFFERENCE_FUNCTIONS;
	enum difference_table threads = memory ? DIFFERENCE_MEMORY_THREADS : DIFFERENCE_STACK_THREADS;
	int rc = contrastload_functions(fd, unit, side, difference_phases(difference, side),
					&difference->table[functions], &difference->table[threads]);

	/* Both sides of one are of the same file. */
	if (difference->one && side == CONTRAST_B && rc != -ENOMEM)
		return 0;
	return judge(difference, side, memory ? "memory-functions.tsv" : "functions.tsv",
		     memory ? NULL : "its stacks cannot be compared", rc);
}

static bool has_stacks(const struct difference *difference)
{
	return contrast_ready(&difference->table[DIFFERENCE_FUNCTIONS]) ||
	       contrast_ready(&difference->table[DIFFERENCE_MEMORY_FUNCTIONS]);
}

static int load_side(struct difference *difference, enum contrast_side side, int fd)
{
	bool again = difference->one && side == CONTRAST_B, stacks;
	int rc = load_stacks(difference, side, fd, HOTLIST_IN_SAMPLES);

	if (rc == 0)
		rc = load_stacks(difference, side, fd, HOTLIST_IN_BYTES);
	stacks = has_stacks(difference);
	if (rc == 0)
		rc = judge(difference, side, thread_files[again], again ? NULL : "its threads cannot be compared",
			   contrastload_threads(fd, thread_files[again], side, &difference->table[DIFFERENCE_THREADS]));
	if (rc == 0)
		rc = judge(
			difference, side, mapping_files[again],
			!again   ? "its mappings cannot be compared"
			: stacks ? "there was no second look, so only its stacks before and during can be compared"
				 : "there was no second look",
			contrastload_mappings(fd, mapping_files[again], side, &difference->table[DIFFERENCE_MAPPINGS]));
	return rc;
}

static void glance(struct difference *difference, enum contrast_side side, int fd)
{
	struct incidentload_glance seen;

	incidentload_glance(fd, &difference->incident[side], &seen);
	if (seen.damaged)
		note(difference, true, "%s is damaged: %s", subject(difference, side), seen.why);
}

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void note_left_out(struct difference *difference, enum difference_table table, enum contrast_side side)
{
	bool functions = table == DIFFERENCE_FUNCTIONS || table == DIFFERENCE_MEMORY_FUNCTIONS;
	const char *label = difference_label(difference, table, side);
	unsigned long long out = difference->table[table].left_out[side];

	if (out == 0)
		return;
	if (tables[table].stacks)
		note(difference, false, "%s leaves out %llu more %s%s%s", subject(difference, side), out,
		     functions ? "function" : "thread", plural(out), tables[table].memory ? " of memory" : "");
	else if (table == DIFFERENCE_THREADS)
		note(difference, false, "%s: the CPU of %llu thread%s is not known, and counts as 0", label, out,
		     plural(out));
	else
		note(difference, true, "%s: %llu line%s of %s %s damaged", label, out, plural(out),
		     mapping_files[difference->one && side == CONTRAST_B], out == 1 ? "is" : "are");
}

/* Shares of nothing say nothing; what was left out could be on both sides. */
static void note_gaps(struct difference *difference, enum difference_table table)
{
	const struct contrast *contrast = &difference->table[table];
	bool functions = table == DIFFERENCE_FUNCTIONS || table == DIFFERENCE_MEMORY_FUNCTIONS;

	if (table == DIFFERENCE_MEMORY_FUNCTIONS && contrast->known[CONTRAST_A] != contrast->known[CONTRAST_B])
		note(difference, false, "only %s has stacks of memory: they cannot be compared",
		     contrast->known[CONTRAST_A] ? "A" : "B");
	for (unsigned side = 0; side < CONTRAST_SIDES && contrast_ready(contrast); side++) {
		/* The stacks of one incident are of one file. */
		if (!difference->one || side == CONTRAST_A || !tables[table].stacks)
			note_left_out(difference, table, side);
		if (functions && contrast->sum[side] == 0)
			note(difference, false, "%s: nothing of that time was sampled%s, so all of it counts as 0",
			     difference_label(difference, table, side), tables[table].memory ? " of memory" : "");
	}
}

int difference_load(int first, int second, struct difference *ret)
{
	int rc;

	ret->one = second < 0;
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++) {
		ret->table[i].shares = tables[i].shares;
		ret->table[i].ranked = tables[i].ranked;
	}
	glance(ret, CONTRAST_A, first);
	if (!ret->one)
		glance(ret, CONTRAST_B, second);
	rc = load_side(ret, CONTRAST_A, first);
	if (rc == 0)
		rc = load_side(ret, CONTRAST_B, ret->one ? first : second);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		contrast_sort(&ret->table[i]);
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		note_gaps(ret, (enum difference_table)i);
	return 0;
}

void difference_release(struct difference *difference)
{
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		contrast_release(&difference->table[i]);
}

/* ---- the head ---- */

/* When the second look at the memory was, after the first. */
static bool apart(const struct incident *incident, char *buf, size_t cap)
{
	const struct incident_capture *look[2] = { NULL, NULL };

	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (strcmp(capture->name, "smaps") == 0)
			look[0] = capture;
		else if (strcmp(capture->name, "smaps-again") == 0)
			look[1] = capture;
	}
	if (!look[0] || !look[1] || !look[0]->has_at || !look[1]->has_at || look[1]->at_ns <= look[0]->at_ns)
		return false;
	units_format_duration(buf, cap, (uint64_t)look[1]->at_ns - (uint64_t)look[0]->at_ns);
	return true;
}

static void tell_incident(const struct incident *incident, FILE *file)
{
	char text[512], comparison[128];

	text_escape(text, sizeof(text), incident->id, strlen(incident->id));
	fprintf(file, "%s: ", text[0] ? text : "an incident without a name");
	text_escape(text, sizeof(text), incident->rule.metric, strlen(incident->rule.metric));
	if (incident->kind == INCIDENT_RULE)
		fprintf(file, "%s %s", text, story_comparison(&incident->rule, comparison, sizeof(comparison)));
	else
		fputs(incident->kind == INCIDENT_MANUAL ? "somebody asked for it" : "saved from a ring", file);
	text_escape(text, sizeof(text), incident->hostname, strlen(incident->hostname));
	if (text[0])
		fprintf(file, ", on %s", text);
}

static void tell_looks(const struct difference *difference, FILE *file)
{
	bool stacks = has_stacks(difference);
	bool looks = contrast_ready(&difference->table[DIFFERENCE_THREADS]) ||
		     contrast_ready(&difference->table[DIFFERENCE_MAPPINGS]);
	char between[64];

	fputs(stacks ? "its stacks before the spike and during it" : "", file);
	fputs(stacks && looks ? "; " : "", file);
	if (looks)
		fputs("its two looks at threads and memory", file);
	if (looks && apart(&difference->incident[CONTRAST_A], between, sizeof(between)))
		fprintf(file, ", %s apart", between);
	fputs(!stacks && !looks ? "nothing of it can be compared" : "", file);
}

int difference_headline(const struct difference *difference, enum contrast_side side, char **ret)
{
	char *text = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&text, &len);

	if (!file)
		return -ENOMEM;
	if (difference->one && side == CONTRAST_B)
		tell_looks(difference, file);
	else
		tell_incident(&difference->incident[side], file);
	if (fclose(file) != 0) {
		free(text);
		return -ENOMEM;
	}
	*ret = text;
	return 0;
}
