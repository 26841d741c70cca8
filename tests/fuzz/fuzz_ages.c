/*
 * fuzz_ages.c: any bytes as the file of the spool that says how long incidents have been there:
 * nothing of it is used, or its names are sorted, and what is written of them is read as the same.
 */
#include "daemon/engine/incident/spool.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* As ages_save() writes it, without the file. */
static void write_ages(const struct ages *ages, struct buffer *text)
{
	require(put_age(text, AGES_HEADER, ages->looked_after_ns) == 0);
	for (size_t i = 0; i < ages->count; i++)
		require(put_age(text, ages->seen[i].name, ages->seen[i].at_ns) == 0);
	require(buffer_append(text, "", 1) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buffer_release) struct buffer text = { 0 }, first = { 0 }, second = { 0 };
	struct ages ages = { 0 }, again = { 0 };

	require(buffer_append(&text, (const char *)data, size) == 0 && buffer_append(&text, "", 1) == 0);
	require(ages_parse(&ages, text.data) == 0);
	for (size_t i = 0; i < ages.count; i++)
		require(strlen(ages.seen[i].name) < sizeof(ages.seen[i].name) &&
			(i == 0 || strcmp(ages.seen[i - 1].name, ages.seen[i].name) <= 0));
	if (ages.count > 0) {
		write_ages(&ages, &first);
		require(buffer_append(&second, first.data, first.len) == 0 && ages_parse(&again, second.data) == 0);
		require(again.count == ages.count && again.looked_after_ns == ages.looked_after_ns);
		for (size_t i = 0; i < ages.count; i++)
			require(strlen(again.seen[i].name) > 0);
	}
	free(ages.seen);
	free(again.seen);
	return 0;
}
