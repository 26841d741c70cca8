/*
 * demangle.c: libiberty's demanglers, by the functions of theirs that hand the text over in pieces and allocate nothing that grows with it.
 *
 * A name can refer to parts of itself, which lets it grow to twice its size with every few letters. Who wrote it may be a stranger: at the
 * first piece too many it is left by a jump, as there is no other way to make them stop. At most a few bytes that they allocated are lost
 * by that. Recursion they bound by themselves, unless told not to (DMGL_NO_RECURSE_LIMIT).
 */
#include "demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

/* Longer ones are not looked at. */
#define MANGLED_MAX 2048

/* As c++filt writes: arguments, and const and the like. */
#define OPTIONS (DMGL_PARAMS | DMGL_ANSI)

struct output {
	char *text;
	size_t len;
	jmp_buf enough;
};

static void take_piece(const char *piece, size_t len, void *opaque)
{
	struct output *output = opaque;

	if (len >= DEMANGLE_MAX - output->len)
		longjmp(output->enough, 1);
	memcpy(output->text + output->len, piece, len);
	output->len += len;
}

/* Rust's older names are C++ names that end in a hash: they come first. */
static bool write_name(const char *mangled, struct output *output)
{
	if (setjmp(output->enough) != 0)
		return false;
	if (rust_demangle_callback(mangled, OPTIONS, take_piece, output))
		return true;
	output->len = 0;

	return mangled[1] == 'Z' && cplus_demangle_v3_callback(mangled, OPTIONS, take_piece, output);
}

size_t demangle(const char *name, size_t len, char ret[DEMANGLE_MAX])
{
	char mangled[MANGLED_MAX + 1];
	struct output output = { .text = ret };

	if (len < 3 || len > MANGLED_MAX || name[0] != '_' || (name[1] != 'Z' && name[1] != 'R'))
		return 0;
	memcpy(mangled, name, len);
	mangled[len] = '\0';
	if (!write_name(mangled, &output))
		return 0;
	ret[output.len] = '\0';

	return output.len;
}
