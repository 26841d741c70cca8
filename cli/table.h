/*
 * table.h: the head of a tab-separated file with a header line, as columns on a terminal. Nothing in the file is trusted.
 *
 * A column is shown by the end of its name: "_ns" as a duration, "_bytes" as a size, "_percent" as a percentage; other numbers as they
 * are, to the right; text to the left. Lines that begin with # are remarks of whoever wrote the file and are shown below.
 */
#ifndef SPIKEWATCH_TABLE_H
#define SPIKEWATCH_TABLE_H

#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 16
#define TABLE_ROWS_MAX 40

/*
 * Prints the header and the first rows of text, at most TABLE_ROWS_MAX, in lines of at most width characters. columns: names of the
 * file's columns in the order wanted, separated by spaces; those that the file has not are passed over; NULL, or none that it has: all
 * of them. What does not fit: text is cut (a path at its front), then columns are left out from the right. Says how many rows are not
 * shown. Returns the rows shown.
 */
size_t table_print(const char *text, size_t len, const char *columns, size_t rows, size_t width, FILE *file);

#endif
