/*
 * symbols.h: the files that addresses are looked up in, each opened when it is first needed: those
 * of a stack file, the vDSO, perf maps and the kernel's symbols.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_SYMBOLS_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_SYMBOLS_H

#include "daemon/symbolize/unwind.h"
#include "daemon/symbolize/address_space.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbolize_options;
struct symbolize_counts;

/*
 * demangle.h: what names of C++ and Rust say, as their sources have it:
 * store::Table<int>::insert(int), alloc::vec::Vec<T>::push. Of Rust names without the hash that
 * tells copies apart.
 */

/* Names that say more, terminator included, are left as they are. */
#define DEMANGLE_MAX 4096

/*
 * The length of what is in ret, terminated; 0: it is no such name, or one that is too long. Bounded
 * in memory, and nearly so in time.
 */
size_t demangle(const char *name, size_t len, char ret[DEMANGLE_MAX]);

/*
 * elf_names.h: names for the addresses of one ELF file: functions, inlined ones included, with file
 * and line where there is debug information. Only a program that may be killed by a file links
 * this: the file is a stranger's, and the libraries that read it are large.
 *
 * Symbols come from the symbol table of the debug file or the file itself, else from its dynamic
 * symbols and .gnu_debugdata. An address is in a symbol if it is within the symbol's size. Symbols
 * without a size (written in assembly) count only where there is a full symbol table, and reach to
 * the next symbol or the end of their section. Otherwise there is no name: never that of a
 * neighbour. Names are demangled (demangle.h).
 *
 * Nothing is opened but the descriptors that are given: no debug files of other places, no split
 * debug information.
 */

/*
 * Functions at one address: the function itself and those inlined into it. Of more, the innermost
 * are kept, and the outermost.
 */
#define ELF_NAMES_FRAMES_MAX 32

struct elf_names;

/* Texts belong to the elf names and live as long. */
struct elf_names_frame {
	const char *function;
	const char *file; /* NULL: not known */
	uint32_t line;    /* 0: not known */
};

/*
 * Takes over the descriptor, also when it fails. 0; -ENOMEM; -ENOEXEC: not an ELF program or
 * library, or a damaged one.
 */
int elf_names_open(int fd, struct elf_names **ret);

/* NULL is fine. */
void elf_names_free(struct elf_names *names);

/*
 * How to get the debug information that several files share (dwz, .gnu_debugaltlink), by its build
 * id: a descriptor, or -1. Asked once, if at all, at the first elf_names_find or elf_names_dwarf.
 */
typedef int elf_names_ask(void *ctx, const uint8_t *build_id, size_t len);

/* libelf's handle of the file. Belongs to names. */
struct Elf *elf_names_elf(const struct elf_names *names);

/*
 * libdw's handle of the debug information, which is read now if it was not; NULL: there is none.
 * *ret_bias: what its addresses are more than the file's.
 */
struct Dwarf *elf_names_dwarf(struct elf_names *names, uint64_t *ret_bias);

/*
 * What address, in the file's own counting, an offset in the file is loaded to. False: it is not
 * loaded as code.
 */
bool elf_names_address(const struct elf_names *names, uint64_t offset_bytes, uint64_t *ret);

/*
 * The functions at an address in the file's own counting, innermost first. How many, 0: no name is
 * known. The first call reads symbols and where the debug information is, which may take seconds of
 * a file of gigabytes; the later ones take microseconds. Nothing is remembered of the answers.
 */
size_t elf_names_find(struct elf_names *names, uint64_t address, struct elf_names_frame ret[ELF_NAMES_FRAMES_MAX]);

/*
 * elf_lines.h: functions, inlined functions, files and lines of an address, out of DWARF: the half
 * of elf_names.h that needs debug information, and its only user.
 */

struct Dwarf; /* libdw's */

struct modules;

enum module_state {
	MODULE_ABSENT,     /* was not handed over */
	MODULE_GOOD,       /* can be asked */
	MODULE_REPLACED,   /* is another file than was mapped */
	MODULE_UNREADABLE, /* cannot be understood */
};

/*
 * All but counts must outlive it; counts too. Descriptors of the file and the vDSO are taken over.
 * 0 or -ENOMEM.
 */
int modules_new(const struct stack_file *file, const struct symbolize_options *options, struct symbolize_counts *counts,
		struct modules **ret);

/* NULL is fine. */
void modules_free(struct modules *modules);

/*
 * The file of a mapping, opened and compared if it was not yet; *ret_state says what came of it.
 * NULL unless MODULE_GOOD.
 */
struct elf_names *modules_elf(struct modules *modules, const struct address_space_mapping *mapping,
			      enum module_state *ret_state);

/*
 * The unwinding tables of the same file: NULL unless MODULE_GOOD, and where it has none that can be
 * read.
 */
struct elf_frames *modules_frames(struct modules *modules, const struct address_space_mapping *mapping,
				  enum module_state *ret_state);

/*
 * The function of process pid's just-in-time compiler at address: length of its name, 0: not known.
 */
size_t modules_compiled(struct modules *modules, uint32_t pid, uint64_t address, const char **ret);

/* The function of the kernel at address: the same. */
size_t modules_kernel(struct modules *modules, uint64_t address, const char **ret);

#endif
