/*
 * fuzz_elf.c: an address and any bytes as an ELF file with its symbols, .eh_frame and debug
 * information: whatever is found of the address has a name that ends, and begins at or before it.
 */
#include "daemon/symbolize/symbols.c"
#include "lib/base/io.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void look_at(struct elf_file *file, uint64_t address)
{
	struct elf_file_name names[ELF_FILE_NAMES_MAX];
	Dwarf_Frame *rule;
	uint64_t start, mapped;
	size_t count;

	if (elf_file_address(file, address, &mapped))
		address = mapped;
	count = elf_file_names(file, address, names);
	require(count <= ELF_FILE_NAMES_MAX);
	for (size_t i = 0; i < count; i++)
		require(strlen(names[i].function) > 0 && (names[i].file == NULL || strlen(names[i].file) < 1 << 20));
	if (elf_file_function(file, address, &start))
		require(start <= address);
	if (find_caller_rule(file, address, &rule))
		free(rule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_file *file;
	uint64_t address;
	int fd;

	if (size < sizeof(address))
		return 0;
	memcpy(&address, data, sizeof(address));
	fd = memfd_create("file", MFD_CLOEXEC);
	require(fd >= 0 && sink_write_all(fd, data + sizeof(address), size - sizeof(address)) == 0);
	if (elf_file_open(fd, &file) < 0)
		return 0;
	look_at(file, address);
	look_at(file, address + 1);
	elf_file_free(file);
	return 0;
}
