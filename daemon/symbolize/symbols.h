/*
 * symbols.h: names for addresses, stacks unwound, and the files that both come from: the binaries of
 * a stack file, the vDSO, perf maps of just-in-time compilers and the kernel's symbols, each opened
 * when it is first needed.
 *
 * The files are not trusted and the libraries that read them are large: only for a process in a
 * sandbox, which may be killed by a file. Nothing is opened but the descriptors that are given: no
 * debug files of other places, no split debug information.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_SYMBOLS_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_SYMBOLS_H

#include "daemon/symbolize/address_space.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbolize_options;
struct symbolize_counts;

/*
 * Functions at one address: the function itself and those inlined into it. Of more, the innermost
 * are kept, and the outermost.
 */
#define ELF_FILE_NAMES_MAX 32

/*
 * One ELF file: the names of its functions, inlined ones included, with file and line where there
 * is debug information, and its unwinding tables.
 *
 * Symbols come from the symbol table of the debug file or the file itself, else from its dynamic
 * symbols and .gnu_debugdata. An address is in a symbol if it is within the symbol's size. Symbols
 * without a size (written in assembly) count only where there is a full symbol table, and reach to
 * the next symbol or the end of their section. Otherwise there is no name: never that of a
 * neighbour. Names of C++ and Rust are demangled.
 */
struct elf_file;

/* Texts live as long as the file. */
struct elf_file_name {
	const char *function;
	const char *file; /* NULL: not known */
	uint32_t line;    /* 0: not known */
};

/*
 * The virtual address, as in the file, of an offset in the file. False: it is not loaded as code.
 */
bool elf_file_address(const struct elf_file *names, uint64_t offset_bytes, uint64_t *ret);

/*
 * The functions at a virtual address of the file, innermost first. How many, 0: no name is known.
 * The first call reads symbols and the index of the debug information, which may take seconds for a
 * file of gigabytes; the later ones take microseconds. Answers are not cached.
 */
size_t elf_file_names(struct elf_file *names, uint64_t address, struct elf_file_name ret[ELF_FILE_NAMES_MAX]);

/*
 * Where the function at a virtual address of the file begins, by .eh_frame, which a stripped file has
 * too. False: it does not say.
 */
bool elf_file_function(struct elf_file *names, uint64_t address, uint64_t *ret_start);

struct modules;

enum module_state {
	MODULE_ABSENT,     /* was not handed over */
	MODULE_GOOD,       /* can be read */
	MODULE_REPLACED,   /* is another file than was mapped */
	MODULE_UNREADABLE, /* not an ELF program or library, or damaged */
};

/*
 * All arguments must outlive it. Descriptors of the file and the vDSO are taken over. *ret: NULL, or the
 * modules of a file of which this one has all binaries, in that order, and maybe more behind them: they
 * are of this one from now on, and what was read of them is not read again. *ret is the caller's also
 * when it fails: 0; -ENOMEM; -EINVAL: it has fewer binaries.
 */
int modules_new(const struct stack_file *file, const struct symbolize_options *options, struct symbolize_counts *counts,
		struct modules **ret);

/* Adds to the counts which binaries were used since the last modules_new. NULL is fine. */
void modules_free(struct modules *modules);

/* The file of a mapping, opened and compared if it was not yet. NULL unless MODULE_GOOD. */
struct elf_file *modules_elf(struct modules *modules, const struct address_space_mapping *mapping,
			     enum module_state *ret_state);

/*
 * The function that process pid's just-in-time compiler put at address: length of its name, 0:
 * none.
 */
size_t modules_compiled(struct modules *modules, uint32_t pid, uint64_t address, const char **ret);

/* The function of the kernel at address: the same. */
size_t modules_kernel(struct modules *modules, uint64_t address, const char **ret);

/*
 * The user part of a sample's stack, from its registers and the copy of its stack by the
 * unwinding tables of the mapped files, together with the chain that the kernel followed by frame
 * pointers. x86-64; elsewhere the kernel's chain is all there is.
 *
 * The tables find a caller whether the function keeps a frame pointer or not, if its file was
 * handed over, is the one that was mapped, and has tables. In code without any (that of
 * just-in-time compilers) the frame pointer is followed. Where that or the copy of the stack ends,
 * the frames of the kernel's chain beyond the last common function are appended; if there is none
 * in common, the one with more frames is taken.
 */

#define UNWIND_FRAMES_MAX 512

struct unwind {
	uint64_t addresses[UNWIND_FRAMES_MAX]; /* innermost first */
	bool exact[UNWIND_FRAMES_MAX];         /* executed there; else a return address */
	size_t count;
	size_t by_tables; /* of them: whose caller was found by tables */
	bool cut;         /* the stack is deeper than its copy, and the last frame is not its first function */
};

/* The process to look in. */
struct unwind_place {
	const struct address_spaces *spaces;
	struct modules *modules;
	uint32_t pid;
};

/*
 * chain: the user part of the kernel's, without marks, innermost first; its first address is exact.
 * All of *ret is set. A function takes some microseconds, and the first one of a file the time to
 * read its tables.
 */
void unwind_sample(const struct unwind_place *place, const struct perf_record_format *format,
		   const struct perf_record_sample *sample, const uint64_t *chain, size_t chain_len,
		   struct unwind *ret);

#endif
