/*
 * workload_sizes.c: a process called "sizes" of which something is larger than anything that is
 * sane. It makes it, prints how much of it there is, and stops itself; with SIGCONT it takes 96 MiB,
 * uses CPU for 1.5 s in a function of its own, or of the file, and sleeps until it is killed.
 *
 * usage: workload_sizes symbols COUNT FILE     runs code of an ELF file with so many functions
 *                       symtab BYTES FILE      the same, with a symbol table of so many bytes, a hole
 *                       debug BYTES FILE       the same, with .debug_info of so many bytes, a hole
 *                       separate BYTES FILE DEBUG   the same, in DEBUG, which the build id of FILE names
 *                       mappings COUNT
 *                       threads COUNT
 */
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define CODE_AT 0x800u
#define CODE_BYTES 0x800u
#define TABLES_AT 0x10000u
#define SPIKE_BYTES ((size_t)96 << 20)
#define SPIKE_NS 1500000000u

/* void spin(uint64_t rdi): dec %rdi; jne -5; ret */
static const uint8_t code[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };

static void (*spin)(uint64_t rounds);

static void spin_here(uint64_t rounds)
{
	for (volatile uint64_t i = 0; i < rounds; i++)
		continue;
}

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static void put(int fd, const void *data, size_t len, uint64_t at)
{
	if (pwrite(fd, data, len, (off_t)at) != (ssize_t)len)
		die("pwrite");
}

/* ---- ELF files ---- */

static const char names[] = "\0.text\0.symtab\0.strtab\0.debug_info\0.debug_abbrev\0.note.gnu.build-id\0.shstrtab\0f";
enum { TEXT = 1, SYMTAB = 7, STRTAB = 15, INFO = 23, ABBREV = 35, NOTE = 49, SHSTRTAB = 68, FUNCTION = 78 };

static const struct {
	Elf64_Nhdr head;
	char name[4];
	uint8_t id[20];
} note = { { 4, 20, NT_GNU_BUILD_ID },
	   "GNU",
	   { 0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 } };

static void put_symbols(int fd, uint64_t count)
{
	static Elf64_Sym symbols[65536];

	for (uint64_t done = 0; done < count;) {
		size_t some = count - done < 65536 ? (size_t)(count - done) : 65536;

		for (size_t i = 0; i < some; i++)
			symbols[i] = (Elf64_Sym){ .st_name = FUNCTION,
						  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
						  .st_shndx = 1,
						  .st_value = CODE_AT + (done + i) % CODE_BYTES,
						  .st_size = 1 + (done + i) % 16 };
		put(fd, symbols, some * sizeof(symbols[0]), TABLES_AT + done * sizeof(symbols[0]));
		done += some;
	}
}

/* Holes cost nothing: sizes may be larger than the disk. */
static void make_elf(const char *path, uint64_t symtab_bytes, uint64_t debug_bytes, uint64_t symbols)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	uint64_t debug_at = TABLES_AT + symtab_bytes, sections_at = debug_at + debug_bytes + 64;
	Elf64_Phdr load[] = {
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 0x1000, .p_memsz = 0x1000, .p_align = 0x1000 },
		{ .p_type = PT_NOTE,
		  .p_flags = PF_R,
		  .p_offset = 0x400,
		  .p_vaddr = 0x400,
		  .p_filesz = sizeof(note),
		  .p_memsz = sizeof(note),
		  .p_align = 4 }
	};
	const Elf64_Shdr sections[] = {
		{ 0 },
		{ .sh_name = TEXT,
		  .sh_type = SHT_PROGBITS,
		  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
		  .sh_addr = CODE_AT,
		  .sh_offset = CODE_AT,
		  .sh_size = CODE_BYTES,
		  .sh_addralign = 16 },
		{ .sh_name = SYMTAB,
		  .sh_type = symtab_bytes ? SHT_SYMTAB : SHT_NULL,
		  .sh_offset = TABLES_AT,
		  .sh_size = symtab_bytes,
		  .sh_link = 3,
		  .sh_addralign = 8,
		  .sh_entsize = sizeof(Elf64_Sym) },
		{ .sh_name = STRTAB,
		  .sh_type = SHT_STRTAB,
		  .sh_offset = 0x200,
		  .sh_size = sizeof(names),
		  .sh_addralign = 1 },
		{ .sh_name = INFO,
		  .sh_type = debug_bytes ? SHT_PROGBITS : SHT_NULL,
		  .sh_offset = debug_at,
		  .sh_size = debug_bytes,
		  .sh_addralign = 1 },
		{ .sh_name = ABBREV,
		  .sh_type = debug_bytes ? SHT_PROGBITS : SHT_NULL,
		  .sh_offset = debug_at,
		  .sh_size = 16,
		  .sh_addralign = 1 },
		{ .sh_name = NOTE,
		  .sh_type = SHT_NOTE,
		  .sh_flags = SHF_ALLOC,
		  .sh_addr = 0x400,
		  .sh_offset = 0x400,
		  .sh_size = sizeof(note),
		  .sh_addralign = 4 },
	};
	Elf64_Ehdr head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			    .e_type = ET_DYN,
			    .e_machine = EM_X86_64,
			    .e_version = EV_CURRENT,
			    .e_phoff = sizeof(head),
			    .e_shoff = sections_at,
			    .e_ehsize = sizeof(head),
			    .e_phentsize = sizeof(load[0]),
			    .e_phnum = 2,
			    .e_shentsize = sizeof(sections[0]),
			    .e_shnum = sizeof(sections) / sizeof(sections[0]),
			    .e_shstrndx = 3 };

	if (fd < 0)
		die(path);
	put(fd, &head, sizeof(head), 0);
	put(fd, load, sizeof(load), sizeof(head));
	put(fd, names, sizeof(names), 0x200);
	put(fd, &note, sizeof(note), 0x400);
	put(fd, code, sizeof(code), CODE_AT);
	put_symbols(fd, symbols);
	put(fd, sections, sizeof(sections), sections_at);
	close(fd);
}

static void map_code(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *mapped = mmap(NULL, 0x1000, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	if (fd < 0 || mapped == MAP_FAILED)
		die(path);
	close(fd);
	mapped += CODE_AT;
	memcpy(&spin, &mapped, sizeof(spin));
}

/* ---- mappings, threads ---- */

static uint64_t make_mappings(uint64_t count)
{
	uint64_t made = 0;

	while (made < count &&
	       mmap(NULL, 4096, made % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
		made++;
	return made;
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static uint64_t make_threads(uint64_t count)
{
	pthread_attr_t small;
	pthread_t thread;
	uint64_t made = 0;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	pthread_attr_setguardsize(&small, 0);
	while (made < count && pthread_create(&thread, &small, wait_for_ever, NULL) == 0)
		made++;
	return made;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	uint64_t size = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, made = size, until;
	char *memory = mmap(NULL, SPIKE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	spin = spin_here;
	if (strcmp(what, "symbols") == 0 && argc == 4)
		make_elf(argv[3], size * sizeof(Elf64_Sym), 0, size);
	else if (strcmp(what, "symtab") == 0 && argc == 4)
		make_elf(argv[3], size / sizeof(Elf64_Sym) * sizeof(Elf64_Sym), 0, 0);
	else if (strcmp(what, "debug") == 0 && argc == 4)
		make_elf(argv[3], 0, size, 0);
	else if (strcmp(what, "separate") == 0 && argc == 5)
		make_elf(argv[3], 0, 0, 0), make_elf(argv[4], 0, size, 0);
	else if (strcmp(what, "mappings") == 0)
		made = make_mappings(size);
	else if (strcmp(what, "threads") == 0)
		made = make_threads(size);
	else
		return 2;
	if (argc > 3)
		map_code(argv[3]);
	prctl(PR_SET_NAME, "sizes");
	printf("%ju\n", (uintmax_t)made);
	fflush(stdout);
	raise(SIGSTOP);
	memset(memory, 1, SPIKE_BYTES);
	for (until = now_ns() + SPIKE_NS; now_ns() < until;)
		spin(100000);
	for (;;)
		pause();
}
