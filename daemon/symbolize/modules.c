/*
 * modules.c: a row of slots, one for each binary of the stackfile and one for the vDSO. Texts (perf maps, kallsyms) are read whole: they are
 * not of a size that is known before, and a perf map still grows.
 */
#include "modules.h"

#include "kallsyms.h"
#include "perfmap.h"
#include "scope.h"
#include "sink.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* The largest perf maps, of a Java with all its methods, have some 20 MB; /proc/kallsyms 15 MB. */
#define TEXT_MAX ((size_t)64 << 20)

struct module {
	int fd; /* until it is opened */
	bool opened;
	enum module_state state;
	struct elfnames *names;
	struct elfframes *frames;
	uint8_t build_id[ELFNAMES_BUILD_ID_MAX];
	size_t build_id_len;
	struct buffer text; /* of a perf map or kallsyms */
	struct symtable symbols;
};

struct modules {
	const struct stackfile *file;
	const struct symbolize_options *options;
	struct symbolize_counts *counts;
	/* All processes of this machine and architecture have the same vDSO; those of another have one of another size. */
	uint64_t vdso_bytes;
	size_t count; /* the last one is the vDSO */
	struct module all[];
};

int modules_new(const struct stackfile *file, const struct symbolize_options *options, struct symbolize_counts *counts,
		struct modules **ret)
{
	size_t binaries = file->head->binaries;
	struct stat st;
	struct modules *modules = calloc(1, sizeof(*modules) + (binaries + 1) * sizeof(modules->all[0]));

	if (modules == NULL)
		return -ENOMEM;
	modules->file = file;
	modules->options = options;
	modules->counts = counts;
	modules->count = binaries + 1;
	for (size_t i = 0; i < binaries; i++)
		modules->all[i].fd = file->binaries[i].fd > STDERR_FILENO ? file->binaries[i].fd : -1;
	modules->all[binaries].fd = options->vdso;
	if (options->vdso >= 0 && fstat(options->vdso, &st) == 0)
		modules->vdso_bytes = (uint64_t)st.st_size;
	*ret = modules;

	return 0;
}

void modules_free(struct modules *modules)
{
	if (modules == NULL)
		return;
	for (size_t i = 0; i < modules->count; i++) {
		struct module *module = &modules->all[i];

		elfframes_free(module->frames);
		elfnames_free(module->names);
		symtable_release(&module->symbols);
		buffer_release(&module->text);
		scope_close(&module->fd);
	}
	free(modules);
}

/* True the first time, if there is anything to be opened. */
static bool may_open(struct module *module)
{
	bool first = !module->opened;

	module->opened = true;

	return first && module->fd >= 0;
}

static int read_all(int fd, struct buffer *text)
{
	char piece[16384];
	ssize_t n;

	text->max = TEXT_MAX;
	while ((n = read(fd, piece, sizeof(piece))) > 0)
		if (buffer_append(text, piece, (size_t)n) < 0)
			return -EFBIG;

	return n < 0 ? -errno : 0;
}

/* A text that is too long counts as far as it was read: its last line may then be cut, and is left out. */
static bool open_text(struct module *module)
{
	if (!may_open(module))
		return false;
	(void)lseek(module->fd, 0, SEEK_SET);
	if (read_all(module->fd, &module->text) < 0)
		while (module->text.len > 0 && module->text.data[module->text.len - 1] != '\n')
			module->text.len--;

	return module->text.len > 0;
}

static bool names_file(const struct modules *modules, size_t i, const struct addressspace_mapping *mapping)
{
	const struct stackfile_binary *binary = &modules->file->binaries[i];

	return binary->kind == STACKFILE_ELF && perfrecord_file_same(&binary->file, &mapping->file) &&
	       strcmp(modules->file->strings + binary->path_offset, mapping->path) == 0;
}

/* Nothing to tell one file from another by: then it is none. */
static bool is_known_file(const struct perfrecord_file *file)
{
	return file->inode != 0 || file->build_id_len > 0;
}

static struct module *module_of(struct modules *modules, const struct addressspace_mapping *mapping)
{
	struct module *vdso = &modules->all[modules->count - 1];

	if (strcmp(mapping->path, "[vdso]") == 0)
		return mapping->end - mapping->start == modules->vdso_bytes ? vdso : NULL;
	if (!is_known_file(&mapping->file))
		return NULL;
	for (size_t i = 0; i + 1 < modules->count; i++)
		if (names_file(modules, i, mapping))
			return &modules->all[i];

	return NULL;
}

static void find_debug_file(struct modules *modules, struct module *module)
{
	const struct symbolize_options *options = modules->options;
	int fd = -1;

	if (options->debug_file != NULL && module->build_id_len > 0)
		fd = options->debug_file(options->ctx, module->build_id, module->build_id_len);
	if (fd >= 0 && elfnames_debug_file(module->names, fd))
		modules->counts->debug_files++;
}

static bool is_same_build(const struct module *module, const struct perfrecord_file *file)
{
	return file->build_id_len == 0 || (file->build_id_len == module->build_id_len &&
					   memcmp(file->build_id, module->build_id, module->build_id_len) == 0);
}

static void open_elf(struct modules *modules, struct module *module, const struct perfrecord_file *file)
{
	if (modules->options->raw || !may_open(module))
		return;
	if (elfnames_open(TAKE_FD(module->fd), &module->names) < 0) {
		module->state = MODULE_UNREADABLE;
		modules->counts->binaries_unreadable++;
		return;
	}
	module->build_id_len = elfnames_build_id(module->names, module->build_id);
	if (!is_same_build(module, file)) {
		module->state = MODULE_REPLACED;
		modules->counts->binaries_replaced++;
		return;
	}
	module->state = MODULE_GOOD;
	modules->counts->binaries_read++;
	find_debug_file(modules, module);
	if (modules->options->debug_file != NULL)
		elfnames_shared(module->names, modules->options->debug_file, modules->options->ctx);
	if (elfframes_new(module->names, &module->frames) < 0)
		module->frames = NULL;
}

/* NULL unless MODULE_GOOD. */
static struct module *good_module(struct modules *modules, const struct addressspace_mapping *mapping,
				  enum module_state *ret_state)
{
	struct module *module = module_of(modules, mapping);

	*ret_state = MODULE_ABSENT;
	if (module == NULL)
		return NULL;
	open_elf(modules, module, &mapping->file);
	*ret_state = module->state;

	return module->state == MODULE_GOOD ? module : NULL;
}

struct elfnames *modules_elf(struct modules *modules, const struct addressspace_mapping *mapping,
			     enum module_state *ret_state)
{
	struct module *module = good_module(modules, mapping, ret_state);

	return module != NULL ? module->names : NULL;
}

struct elfframes *modules_frames(struct modules *modules, const struct addressspace_mapping *mapping,
				 enum module_state *ret_state)
{
	struct module *module = good_module(modules, mapping, ret_state);

	return module != NULL ? module->frames : NULL;
}

static size_t name_at(const struct symtable *symbols, uint64_t address, const char **ret)
{
	const struct symtable_symbol *symbol = symtable_find(symbols, address);

	if (symbol == NULL)
		return 0;
	*ret = symbol->name;

	return symbol->len;
}

static struct module *module_of_kind(struct modules *modules, enum stackfile_kind kind, uint32_t pid)
{
	for (size_t i = 0; i + 1 < modules->count; i++)
		if (modules->file->binaries[i].kind == (uint32_t)kind && modules->file->binaries[i].pid == pid)
			return &modules->all[i];

	return NULL;
}

size_t modules_compiled(struct modules *modules, uint32_t pid, uint64_t address, const char **ret)
{
	struct module *module = module_of_kind(modules, STACKFILE_PERF_MAP, pid);
	struct perfmap_counts counts = { 0 };

	if (module == NULL)
		return 0;
	if (open_text(module)) {
		if (perfmap_parse(module->text.data, module->text.len, &module->symbols, &counts) < 0)
			symtable_release(&module->symbols);
		modules->counts->perf_map_lines_broken += counts.broken;
	}

	return name_at(&module->symbols, address, ret);
}

size_t modules_kernel(struct modules *modules, uint64_t address, const char **ret)
{
	struct module *module = NULL;

	for (size_t i = 0; i + 1 < modules->count && module == NULL; i++)
		if (modules->file->binaries[i].kind == STACKFILE_KALLSYMS)
			module = &modules->all[i];
	if (module == NULL)
		return 0;
	if (open_text(module) && kallsyms_parse(module->text.data, module->text.len, &module->symbols) < 0)
		symtable_release(&module->symbols);

	return name_at(&module->symbols, address, ret);
}
