/*
 * differencehtml.c: the words in the page are the two lines of the head and the notes; everything else is the JSON of --json, and the stacks.
 * The block of data has the name that a report's has, so that the program of the page finds it.
 */
#include "differencehtml.h"

#include "htmltext.h"
#include "reportdata.h"
#include "reportpage.h"
#include "scope.h"

#include <errno.h>
#include <string.h>

static int put_text(const struct sink *sink, const char *text)
{
	return sink_write(sink, text, strlen(text));
}

static int put_words(const struct difference *difference, const struct sink *sink)
{
	AUTO(buffer_release) struct buffer words = { 0 };
	struct sink to = sink_buffer(&words);
	int rc = 0;

	for (unsigned side = 0; side < CONTRAST_SIDES && rc == 0; side++) {
		AUTO_FREE char *line = NULL;
		const char *label = difference->one ? "" : side == CONTRAST_A ? "A: " : "B: ";

		rc = difference_headline(difference, side, &line);
		if (rc == 0)
			rc = put_text(&to, label);
		if (rc == 0)
			rc = put_text(&to, line);
		if (rc == 0)
			rc = put_text(&to, ". ");
	}
	for (size_t i = 0; i < difference->notes && rc == 0; i++) {
		rc = put_text(&to, difference->note[i]);
		if (rc == 0)
			rc = put_text(&to, ". ");
	}
	return rc == 0 ? htmltext_write(sink, words.data, words.len) : rc;
}

static void put_stacks(struct json_writer *json, const char *key, const struct buffer *stacks)
{
	json_key(json, key);
	if (stacks)
		json_string_len(json, stacks->data ? stacks->data : "", stacks->len);
	else
		json_null(json);
}

static void close_json(struct json_writer **json)
{
	json_writer_close(*json);
}

static int put_data(const struct difference *difference, const struct differencehtml_stacks *stacks,
		    const struct sink *sink)
{
	AUTO(close_json) struct json_writer *json = NULL;
	int rc = json_writer_new(htmltext_json(sink), false, &json);

	if (rc < 0)
		return rc;
	json_begin_object(json);
	json_key(json, "format");
	json_u64(json, REPORTDATA_FORMAT);
	json_key(json, "diff");
	json_begin_object(json);
	difference_json(difference, DIFFERENCE_ROWS_ALL, json);
	put_stacks(json, "cpu_stacks", stacks->cpu);
	put_stacks(json, "memory_stacks", stacks->memory);
	json_end_object(json);
	json_end_object(json);
	return json_writer_close(TAKE(json));
}

int differencehtml_write(const struct difference *difference, const struct differencehtml_stacks *stacks,
			 const struct sink *sink)
{
	static const char title[] = "Difference";
	int rc = reportpage_write(REPORTPAGE_TITLE, sink);

	if (rc == 0)
		rc = htmltext_write(sink, title, strlen(title));
	if (rc == 0)
		rc = reportpage_write(REPORTPAGE_STORY, sink);
	if (rc == 0)
		rc = put_words(difference, sink);
	if (rc == 0)
		rc = reportpage_write(REPORTPAGE_DATA, sink);
	if (rc == 0)
		rc = put_text(sink, "<script type=\"application/json\" id=\"report-data\">\n");
	if (rc == 0)
		rc = put_data(difference, stacks, sink);
	if (rc == 0)
		rc = put_text(sink, "</script>\n");
	return rc == 0 ? reportpage_write(REPORTPAGE_END, sink) : rc;
}
