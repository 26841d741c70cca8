/*
 * elfnames.h: names for the addresses of one ELF file: functions, inlined ones included, with file and line where there is debug
 * information. Only programs that may be killed by a file link this: the file is a stranger's, and the libraries that read it are large.
 *
 * Symbols come from the symbol table of the debug file or the file itself, else from its dynamic symbols and .gnu_debugdata. An address
 * is in a symbol if it is within the symbol's size. Symbols without a size (written in assembly) count only where there is a full symbol
 * table, and reach to the next symbol or the end of their section. Otherwise there is no name. C++ and old Rust names are demangled.
 */
#ifndef SPIKEWATCH_ELFNAMES_H
#define SPIKEWATCH_ELFNAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELFNAMES_BUILD_ID_MAX 20

/* Functions at one address: the function itself and those inlined into it. Deeper ones are left out. */
#define ELFNAMES_FRAMES_MAX 32

struct elfnames;

/* Texts belong to the elfnames and live as long. */
struct elfnames_frame {
	const char *function;
	const char *system_name; /* as in the file, not demangled */
	const char *file;        /* NULL: not known */
	uint32_t line;           /* 0: not known */
	uint32_t start_line;     /* of the function. 0: not known */
};

/*
 * Takes over both descriptors, also when it fails. debug_fd: the separate debug file of the same build id, or -1. It is used only if its
 * build id is that of the file. 0; -ENOMEM; -ENOEXEC: not an ELF program or library.
 */
int elfnames_open(int fd, int debug_fd, struct elfnames **ret);
void elfnames_free(struct elfnames *names);

/* The build id of the file: its length, 0 if it has none. Longer ones are cut, as the kernel does. */
size_t elfnames_build_id(const struct elfnames *names, uint8_t ret[ELFNAMES_BUILD_ID_MAX]);

/* What address, in the file's own counting, an offset in the file is loaded to. False: it is not loaded as code. */
bool elfnames_address(const struct elfnames *names, uint64_t offset_bytes, uint64_t *ret);

/*
 * The functions at an address in the file's own counting, innermost first. How many, 0: no name is known. Seconds for the first
 * address of a file with gigabytes of debug information, then microseconds; what was asked before is not remembered.
 */
size_t elfnames_find(struct elfnames *names, uint64_t address, struct elfnames_frame ret[ELFNAMES_FRAMES_MAX]);

/* Is there debug information? */
bool elfnames_has_lines(struct elfnames *names);

#endif
