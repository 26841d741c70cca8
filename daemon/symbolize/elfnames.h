/*
 * elfnames.h: names for the addresses of one ELF file: functions, inlined ones included, with file and line where there is debug
 * information. Only a program that may be killed by a file links this: the file is a stranger's, and the libraries that read it are large.
 *
 * Symbols come from the symbol table of the debug file or the file itself, else from its dynamic symbols and .gnu_debugdata. An address is
 * in a symbol if it is within the symbol's size. Symbols without a size (written in assembly) count only where there is a full symbol
 * table, and reach to the next symbol or the end of their section. Otherwise there is no name: never that of a neighbour. Names are demangled
 * (demangle.h).
 *
 * Nothing is opened but the descriptors that are given: no debug files of other places, no split debug information.
 */
#ifndef SPIKEWATCH_ELFNAMES_H
#define SPIKEWATCH_ELFNAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELFNAMES_BUILD_ID_MAX 20

/* Functions at one address: the function itself and those inlined into it. Of more, the innermost are kept, and the outermost. */
#define ELFNAMES_FRAMES_MAX 32

struct elfnames;

/* Texts belong to the elfnames and live as long. */
struct elfnames_frame {
	const char *function;
	const char *file; /* NULL: not known */
	uint32_t line;    /* 0: not known */
};

/* Takes over the descriptor, also when it fails. 0; -ENOMEM; -ENOEXEC: not an ELF program or library, or a damaged one. */
int elfnames_open(int fd, struct elfnames **ret);

/* NULL is fine. */
void elfnames_free(struct elfnames *names);

/* The build id of the file: its length, 0 if it has none. Longer ones are cut, as the kernel does. */
size_t elfnames_build_id(const struct elfnames *names, uint8_t ret[ELFNAMES_BUILD_ID_MAX]);

/*
 * Takes over the descriptor of a separate debug file; to be called before the first elfnames_find, if at all. False: it is not of this file
 * by its build id, and not used.
 */
bool elfnames_debug_file(struct elfnames *names, int fd);

/*
 * How to get the debug information that several files share (dwz, .gnu_debugaltlink), by its build id: a descriptor, or -1. Asked once, if at
 * all, at the first elfnames_find or elfnames_dwarf.
 */
typedef int elfnames_ask(void *ctx, const uint8_t *build_id, size_t len);

/* To be called before them; ctx must live until then. */
void elfnames_shared(struct elfnames *names, elfnames_ask *ask, void *ctx);

/* libelf's handle of the file. Belongs to names. */
struct Elf *elfnames_elf(const struct elfnames *names);

/* libdw's handle of the debug information, which is read now if it was not; NULL: there is none. *ret_bias: what its addresses are more than the file's. */
struct Dwarf *elfnames_dwarf(struct elfnames *names, uint64_t *ret_bias);

/* What address, in the file's own counting, an offset in the file is loaded to. False: it is not loaded as code. */
bool elfnames_address(const struct elfnames *names, uint64_t offset_bytes, uint64_t *ret);

/*
 * The functions at an address in the file's own counting, innermost first. How many, 0: no name is known. The first call reads symbols and
 * where the debug information is, which may take seconds of a file of gigabytes; the later ones take microseconds. Nothing is
 * remembered of the answers.
 */
size_t elfnames_find(struct elfnames *names, uint64_t address, struct elfnames_frame ret[ELFNAMES_FRAMES_MAX]);

#endif
