/*
 * elfnames.c: libdwfl opens the file and finds its symbol tables, compressed ones too; the rules about which symbol an address is in are
 * those of symtable.h, not libdwfl's, which names the nearest.
 *
 * The file is reported to libdwfl as loaded where its program headers want it, so that addresses are the file's own counting. Where a
 * process has really loaded it does not matter: offsets in the file are what both sides know (elfnames_address).
 *
 * Which name of a function: that of the linker in the debug information, demangled, else that of the symbol, which says foo.part.0 where it
 * is only part of foo, else that of the source. Of inlined functions there is no symbol.
 */
#include "elfnames.h"

#include "arena.h"
#include "demangle.h"
#include "elflines.h"
#include "scope.h"
#include "symtable.h"

#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SEGMENTS_MAX 64

struct segment {
	uint64_t offset, size, address;
};

struct elfnames {
	Dwfl_Callbacks callbacks;
	Dwfl *dwfl;
	Dwfl_Module *module;
	Elf *elf;
	uint64_t bias; /* of libdwfl's addresses to the file's: 0 as far as known */
	int debug_fd;
	struct segment segments[SEGMENTS_MAX];
	size_t segment_count;
	struct symtable symbols;
	Dwarf *dwarf;           /* libdwfl's; NULL: no debug information */
	struct elflines *lines; /* the same */
	Dwarf *shared;          /* what the debug information shares with that of other files */
	Elf *shared_elf;
	int shared_fd;
	elfnames_ask *ask;
	void *ctx;
	uint64_t lines_bias;
	struct arena texts;
	bool read;
};

/* Called by libdwfl when it wants debug information that is not in the file. */
static int hand_over_debug_file(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
				const char *file, const char *link, GElf_Word crc, char **ret_path)
{
	struct elfnames *names = *userdata;

	(void)module, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)ret_path;

	return names != NULL ? TAKE_FD(names->debug_fd) : -1;
}

/* Called if libdwfl wants to look for the file itself, which it has. */
static int find_no_elf(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, char **ret_path,
		       Elf **ret_elf)
{
	(void)module, (void)userdata, (void)name, (void)base, (void)ret_path, (void)ret_elf;

	return -1;
}

static int read_segments(struct elfnames *names)
{
	GElf_Ehdr header;
	size_t count;

	if (gelf_getehdr(names->elf, &header) == NULL || (header.e_type != ET_EXEC && header.e_type != ET_DYN) ||
	    elf_getphdrnum(names->elf, &count) != 0)
		return -ENOEXEC;
	for (size_t i = 0; i < count && i <= INT32_MAX && names->segment_count < SEGMENTS_MAX; i++) {
		GElf_Phdr program;

		if (gelf_getphdr(names->elf, (int)i, &program) == NULL)
			return -ENOEXEC;
		if (program.p_type == PT_LOAD && (program.p_flags & PF_X))
			names->segments[names->segment_count++] =
				(struct segment){ program.p_offset, program.p_filesz, program.p_vaddr };
	}

	return 0;
}

/* What libdwfl would relocate, or any other kind of file, does not get so far. */
static bool is_program(int fd)
{
	unsigned char head[EI_NIDENT + 2];
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || pread(fd, head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head, ELFMAG, SELFMAG) != 0)
		return false;

	unsigned type = head[EI_DATA] == ELFDATA2MSB ? head[EI_NIDENT + 1] : head[EI_NIDENT];

	return type == ET_EXEC || type == ET_DYN;
}

static int open_module(struct elfnames *names, int *fd)
{
	void **userdata;

	if (!is_program(*fd))
		return -ENOEXEC;
	names->callbacks = (Dwfl_Callbacks){ .find_elf = find_no_elf, .find_debuginfo = hand_over_debug_file };
	names->dwfl = dwfl_begin(&names->callbacks);
	if (names->dwfl == NULL)
		return -ENOMEM;
	dwfl_report_begin(names->dwfl);
	names->module = dwfl_report_elf(names->dwfl, "file", "file", *fd, 0, true);
	if (names->module == NULL)
		return -ENOEXEC;
	*fd = -1; /* libdwfl's */
	dwfl_report_end(names->dwfl, NULL, NULL);
	dwfl_module_info(names->module, &userdata, NULL, NULL, NULL, NULL, NULL, NULL);
	*userdata = names;
	names->elf = dwfl_module_getelf(names->module, &names->bias);

	return names->elf != NULL ? read_segments(names) : -ENOEXEC;
}

int elfnames_open(int fd, struct elfnames **ret)
{
	AUTO_CLOSE int owned = fd;
	struct elfnames *names = calloc(1, sizeof(*names));
	int r;

	if (names == NULL)
		return -ENOMEM;
	names->debug_fd = names->shared_fd = -1;
	elf_version(EV_CURRENT);
	r = open_module(names, &owned);
	if (r < 0) {
		elfnames_free(names);
		return r;
	}
	*ret = names;

	return 0;
}

void elfnames_free(struct elfnames *names)
{
	if (names == NULL)
		return;
	elflines_free(names->lines);
	symtable_release(&names->symbols);
	arena_release(&names->texts);
	if (names->dwfl != NULL)
		dwfl_end(names->dwfl);
	if (names->shared != NULL)
		dwarf_end(names->shared);
	elf_end(names->shared_elf);
	scope_close(&names->shared_fd);
	scope_close(&names->debug_fd);
	free(names);
}

static size_t build_id_of(Elf *elf, uint8_t ret[ELFNAMES_BUILD_ID_MAX])
{
	const void *id;
	ssize_t len = dwelf_elf_gnu_build_id(elf, &id);

	if (len <= 0)
		return 0;
	if (len > ELFNAMES_BUILD_ID_MAX)
		len = ELFNAMES_BUILD_ID_MAX;
	memcpy(ret, id, (size_t)len);

	return (size_t)len;
}

size_t elfnames_build_id(const struct elfnames *names, uint8_t ret[ELFNAMES_BUILD_ID_MAX])
{
	return build_id_of(names->elf, ret);
}

bool elfnames_debug_file(struct elfnames *names, int fd)
{
	AUTO_CLOSE int owned = fd;
	uint8_t ours[ELFNAMES_BUILD_ID_MAX], its[ELFNAMES_BUILD_ID_MAX];
	size_t len = elfnames_build_id(names, ours);
	Elf *elf = len > 0 && is_program(fd) ? elf_begin(fd, ELF_C_READ_MMAP, NULL) : NULL;
	bool same = elf != NULL && build_id_of(elf, its) == len && memcmp(ours, its, len) == 0;

	elf_end(elf);
	if (same && names->debug_fd < 0)
		names->debug_fd = TAKE_FD(owned);

	return same;
}

void elfnames_shared(struct elfnames *names, elfnames_ask *ask, void *ctx)
{
	names->ask = ask;
	names->ctx = ctx;
}

struct Elf *elfnames_elf(const struct elfnames *names)
{
	return names->elf;
}

bool elfnames_address(const struct elfnames *names, uint64_t offset_bytes, uint64_t *ret)
{
	for (size_t i = 0; i < names->segment_count; i++) {
		const struct segment *segment = &names->segments[i];

		if (offset_bytes < segment->offset || offset_bytes - segment->offset >= segment->size)
			continue;
		*ret = segment->address + (offset_bytes - segment->offset);
		return true;
	}

	return false;
}

static bool has_full_table(Elf *elf)
{
	for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section)) != NULL;) {
		GElf_Shdr header;

		if (gelf_getshdr(section, &header) != NULL && header.sh_type == SHT_SYMTAB)
			return true;
	}

	return false;
}

/* Does it start a function, and may its name be given? Others in code only say that whatever is before them ends there. */
static bool is_function(const GElf_Sym *symbol)
{
	int type = GELF_ST_TYPE(symbol->st_info);

	return type == STT_FUNC || type == STT_GNU_IFUNC ||
	       (type == STT_NOTYPE && GELF_ST_BIND(symbol->st_info) == STB_GLOBAL);
}

static uint32_t rank_of(const GElf_Sym *symbol, const char *name)
{
	int bind = GELF_ST_BIND(symbol->st_info);
	uint32_t rank = bind == STB_GLOBAL ? 6 : bind == STB_WEAK ? 4 : 2;

	return rank + (name[0] != '_');
}

/* The symbol in section `index` of elf; false: it is not in code. */
static bool symbol_from(Elf *elf, GElf_Word index, const GElf_Sym *symbol, const char *name, bool full,
			struct symtable_symbol *ret)
{
	int type = GELF_ST_TYPE(symbol->st_info);
	Elf_Scn *section = elf != NULL ? elf_getscn(elf, index) : NULL;
	GElf_Shdr header;

	/* $x and $d tell disassemblers of ARM what follows. */
	if (index == SHN_UNDEF || type == STT_SECTION || type == STT_FILE || type == STT_TLS || name[0] == '$')
		return false;
	if (section == NULL || gelf_getshdr(section, &header) == NULL || !(header.sh_flags & SHF_EXECINSTR))
		return false;
	bool named = is_function(symbol) && (symbol->st_size > 0 || full);
	uint64_t offset = symbol->st_value - header.sh_addr;

	if (symbol->st_value < header.sh_addr || offset >= header.sh_size)
		return false;
	ret->open = !named || symbol->st_size == 0;
	ret->end = ret->start +
		   (ret->open || symbol->st_size > header.sh_size - offset ? header.sh_size - offset : symbol->st_size);
	ret->name = name;
	ret->len = named ? (uint32_t)strnlen(name, UINT16_MAX) : 0;
	ret->rank = named ? rank_of(symbol, name) : 0;

	return true;
}

static int read_symbols(struct elfnames *names)
{
	int count = dwfl_module_getsymtab(names->module);
	Elf *last = NULL;
	bool full = false;

	for (int i = 0; i < count; i++) {
		struct symtable_symbol found = { 0 };
		GElf_Sym symbol;
		GElf_Addr address;
		GElf_Word section = SHN_UNDEF;
		Elf *elf = NULL;
		Dwarf_Addr bias;
		const char *name = dwfl_module_getsym_info(names->module, i, &symbol, &address, &section, &elf, &bias);

		if (name == NULL || elf == NULL)
			continue;
		if (elf != last) {
			full = has_full_table(elf);
			last = elf;
		}
		found.start = address - names->bias;
		if (symbol_from(elf, section, &symbol, name, full, &found) && symtable_add(&names->symbols, &found) < 0)
			return -ENOMEM;
	}

	return symtable_seal(&names->symbols, SYMTABLE_INNERMOST);
}

/* If the debug information wants a shared one, and there is that one: without it, names that are there are missing. */
static void read_shared(struct elfnames *names)
{
	const char *name;
	const void *wanted;
	uint8_t found[ELFNAMES_BUILD_ID_MAX];
	ssize_t len = dwelf_dwarf_gnu_debugaltlink(names->dwarf, &name, &wanted);

	if (len <= 0 || len > ELFNAMES_BUILD_ID_MAX || names->ask == NULL)
		return;
	names->shared_fd = names->ask(names->ctx, wanted, (size_t)len);
	if (names->shared_fd < 0)
		return;
	names->shared_elf = elf_begin(names->shared_fd, ELF_C_READ_MMAP, NULL);
	if (names->shared_elf != NULL && build_id_of(names->shared_elf, found) == (size_t)len &&
	    memcmp(found, wanted, (size_t)len) == 0)
		names->shared = dwarf_begin_elf(names->shared_elf, DWARF_C_READ, NULL);
	if (names->shared != NULL)
		dwarf_setalt(names->dwarf, names->shared);
}

static void read_all(struct elfnames *names)
{
	names->read = true;
	names->dwarf = dwfl_module_getdwarf(names->module, &names->lines_bias);
	if (names->dwarf != NULL)
		read_shared(names);
	if (names->dwarf != NULL && elflines_new(names->dwarf, &names->lines) < 0)
		names->lines = NULL;
	if (read_symbols(names) < 0)
		symtable_release(&names->symbols);
}

struct Dwarf *elfnames_dwarf(struct elfnames *names, uint64_t *ret_bias)
{
	if (!names->read)
		read_all(names);
	*ret_bias = names->lines_bias - names->bias;

	return names->dwarf;
}

static const char *keep(struct elfnames *names, const char *name, size_t len)
{
	char plain[DEMANGLE_MAX];
	size_t plain_len = demangle(name, len, plain);

	return plain_len > 0 ? arena_copy(&names->texts, plain, plain_len) : arena_copy(&names->texts, name, len);
}

static const char *name_of(struct elfnames *names, const struct elflines_frame *frame,
			   const struct symtable_symbol *symbol)
{
	if (frame->linkage_name != NULL)
		return keep(names, frame->linkage_name, strlen(frame->linkage_name));
	if (symbol != NULL)
		return keep(names, symbol->name, symbol->len);

	return frame->name != NULL ? keep(names, frame->name, strlen(frame->name)) : NULL;
}

size_t elfnames_find(struct elfnames *names, uint64_t address, struct elfnames_frame ret[ELFNAMES_FRAMES_MAX])
{
	struct elflines_frame frames[ELFNAMES_FRAMES_MAX] = { 0 };
	const struct symtable_symbol *symbol;
	size_t count = 0, kept = 0;

	if (!names->read)
		read_all(names);
	if (names->lines != NULL)
		count = elflines_find(names->lines, address + names->bias - names->lines_bias, frames,
				      ELFNAMES_FRAMES_MAX);
	symbol = symtable_find(&names->symbols, address);
	if (count == 0 && symbol != NULL)
		count = 1;
	for (size_t i = 0; i < count; i++) {
		const char *name = name_of(names, &frames[i], i + 1 == count ? symbol : NULL);

		if (name == NULL)
			continue;
		ret[kept].function = name;
		ret[kept].file = frames[i].file;
		ret[kept++].line = frames[i].line;
	}

	return kept;
}
