/*
 * check_symbolize.c: spikewatch-symbolize as it is started, on programs that are compiled here.
 * Where each address belongs is known from the program itself, which says it.
 */
#include "symbolize_rig.h"

#define FRAME "__attribute__((noinline, noclone)) "
#define SAY(what) "printf(\"%lx\\n\", (unsigned long)(" what "));"

/* The labels in it are addresses within functions that cannot be had otherwise. */
static const char workload[] =
	"#include <stdio.h>\n#include <unistd.h>\n"
	"extern char inside_inlined[], after_leaf[], bare[], after_bare[];\n"
	"volatile int sink;\n"
	"static inline __attribute__((always_inline)) void deepest(void) {\n"
	"  __asm__ volatile(\".globl inside_inlined\\ninside_inlined: nop\"); sink++; }\n"
	"static inline __attribute__((always_inline)) void middle(void) { sink++; deepest(); sink++; }\n" FRAME
	"void with_inlined(void) { sink++; middle(); sink++; }\n"
	"static " FRAME "void hidden(void) { sink += 2; }\n" FRAME
	"void caller(void) { hidden(); with_inlined(); sink++; }\n"
	"__asm__(\".text\\n.globl bare\\nbare: nop\\nnop\\nnop\\nnop\\n.globl after_bare\\n.type after_bare, "
	"@function\\n\"\n"
	"        \"after_bare: nop\\n.size after_bare, 1\\n.skip 64, 0x90\\n\");\n"
	"int main(void) {\n" SAY("main") SAY("caller") SAY("hidden") SAY("inside_inlined") SAY("bare + 2")
		SAY("after_bare + 8") "fflush(stdout); caller(); for (;;) pause(); }\n";

struct places {
	uint64_t main, caller, hidden, inlined, bare, padding;
};

static struct rig rig;
static bool there;

static void setup(void)
{
	there = rig_init(&rig);
}

static void teardown(void)
{
	if (there)
		rig_release(&rig);
}

/* Compiles and starts the workload, and takes a sample of each place. */
static struct rig_process sampled(const char *flags, const uint8_t *build_id)
{
	struct places places;

	rig_write(&rig, "workload.c", workload);
	ck_assert_int_eq(rig_shell(&rig, "gcc %s -o workload workload.c", flags), 0);
	struct rig_process process = rig_start(&rig, "workload");
	places.main = rig_address(&process);
	places.caller = rig_address(&process);
	places.hidden = rig_address(&process);
	places.inlined = rig_address(&process);
	places.bare = rig_address(&process);
	places.padding = rig_address(&process);

	rig_maps(&rig, process.pid, "burner", build_id);
	rig_sample(&rig, process.pid, places.hidden, places.caller + 1, places.main + 1, (uint64_t)0);
	rig_sample(&rig, process.pid, places.inlined, places.caller + 1, places.main + 1, (uint64_t)0);
	rig_sample(&rig, process.pid, places.bare, places.main + 1, (uint64_t)0);
	rig_sample(&rig, process.pid, places.padding, places.main + 1, (uint64_t)0);

	return process;
}

static void each_kind_is_named(const char *flags)
{
	struct rig_process process = sampled(flags, NULL);

	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "burner;main;caller;hidden", 1);
	rig_expect(&rig, "burner;main;caller;with_inlined", 1);
	rig_expect(&rig, "burner;main;bare", 1);
	rig_expect(&rig, "burner;main;[workload]", 1); /* between functions there is no name */
	rig_end(&process);
	rig_clear(&rig);
}

START_TEST(functions_have_their_names_however_the_program_is_linked)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	each_kind_is_named("-O1");
	each_kind_is_named("-O1 -no-pie");
	each_kind_is_named("-O1 -static");
	each_kind_is_named("-O1 -static-pie");
	each_kind_is_named("-O1 -Wl,-z,noseparate-code");
	each_kind_is_named("-O1 -Wl,-Ttext-segment=0x10000000"); /* as prelinked: not from 0 */
}
END_TEST

START_TEST(inlined_functions_are_frames_of_their_own_with_debug_information)
{
	static const char *const flags[] = { "-O2 -g", "-O2 -g -gdwarf-4", "-O1 -g -gz", "-O2 -g1" };

	for (size_t i = 0; there && i < ARRAY_LEN(flags); i++) {
		struct rig_process process = sampled(flags[i], NULL);

		ck_assert_int_eq(rig_run(&rig, NULL), 0);
		rig_expect(&rig, "burner;main;caller;with_inlined;middle;deepest", 1);
		rig_expect(&rig, "burner;main;caller;hidden", 1);
		ck_assert_uint_eq(rig_count(&rig, "binaries_unreadable"), 0);
		rig_end(&process);
		rig_clear(&rig);
	}
}
END_TEST

/* What nm(1) says of a function of a program that was not stripped, as "[workload+0x1139]". */
static void by_start(const char *program, const char *function, const char *file, char *ret, size_t cap)
{
	char command[512], start[32] = "";

	snprintf(command, sizeof(command), "nm %s/%s | awk '$3 == \"%s\" { print $1 }'", rig.dir, program, function);
	FILE *pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	ck_assert_ptr_nonnull(fgets(start, sizeof(start), pipe));
	pclose(pipe);
	snprintf(ret, cap, "[%s+0x%lx]", file, strtoul(start, NULL, 16));
}

/* Functions are told apart by where they begin. What was written in assembly is not described. */
START_TEST(functions_of_a_stripped_program_are_where_they_begin)
{
	char names[4][64], stack[300];

	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O1 -s", NULL);

	ck_assert_int_eq(rig_shell(&rig, "gcc -O1 -o named workload.c"), 0);
	by_start("named", "main", "workload", names[0], sizeof(names[0]));
	by_start("named", "caller", "workload", names[1], sizeof(names[1]));
	by_start("named", "hidden", "workload", names[2], sizeof(names[2]));
	by_start("named", "with_inlined", "workload", names[3], sizeof(names[3]));
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	snprintf(stack, sizeof(stack), "burner;%s;%s;%s", names[0], names[1], names[2]);
	rig_expect(&rig, stack, 1);
	snprintf(stack, sizeof(stack), "burner;%s;%s;%s", names[0], names[1], names[3]);
	rig_expect(&rig, stack, 1);
	snprintf(stack, sizeof(stack), "burner;%s;[workload]", names[0]);
	rig_expect(&rig, stack, 2);
	ck_assert_uint_eq(rig_count(&rig, "frames_named"), 0);
	ck_assert_uint_eq(rig_count(&rig, "frames"), 10);
	rig_end(&process);
}
END_TEST

START_TEST(a_program_without_symbols_and_tables_has_no_wrong_names)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process =
		sampled("-O1 -s -fno-asynchronous-unwind-tables -fno-unwind-tables -Wl,--no-eh-frame-hdr", NULL);

	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "burner;[workload];[workload];[workload]", 2);
	rig_expect(&rig, "burner;[workload];[workload]", 2);
	ck_assert_uint_eq(rig_count(&rig, "frames_named"), 0);
	rig_end(&process);
}
END_TEST

START_TEST(a_stripped_program_has_the_names_of_its_dynamic_symbols)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O1 -s -rdynamic", NULL);
	char name[64], stack[100];

	ck_assert_int_eq(rig_shell(&rig, "gcc -O1 -rdynamic -o named workload.c"), 0);
	by_start("named", "hidden", "workload", name, sizeof(name));
	snprintf(stack, sizeof(stack), "burner;main;caller;%s", name);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, stack, 1); /* hidden() is static */
	rig_expect(&rig, "burner;main;caller;with_inlined", 1);
	rig_expect(&rig, "burner;main;[workload]", 2); /* bare has no size, and what is behind it may be hidden */
	rig_end(&process);
}
END_TEST

START_TEST(another_build_id_gives_no_names)
{
	static const uint8_t other[20] = { 1, 2, 3 };

	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O1 -g -Wl,--build-id=sha1", other);

	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "burner;[workload (file replaced)];[workload (file replaced)];[workload (file replaced)]", 2);
	ck_assert_uint_eq(rig_count(&rig, "binaries_replaced"), 1);
	ck_assert_uint_eq(rig_count(&rig, "frames_replaced"), 10);
	ck_assert_uint_eq(rig_count(&rig, "frames_named"), 0);
	rig_end(&process);
}
END_TEST

START_TEST(the_same_build_id_gives_names)
{
	static const uint8_t same[20] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 };

	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O1 -Wl,--build-id=0x0102030405060708090a0b0c0d0e0f1011121314", same);

	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "burner;main;caller;hidden", 1);
	ck_assert_uint_eq(rig_count(&rig, "binaries_replaced"), 0);
	rig_end(&process);
}
END_TEST

/* Distributions compress them. What is damaged, here .debug_info, leaves the names of symbols. */
START_TEST(a_separate_debug_file_is_found_by_build_id)
{
	static const char *const forms[] = {
		"true", "objcopy --compress-debug-sections=zlib debug/ab/cd*",
		"objcopy --compress-debug-sections=zlib-gnu debug/ab/cd*",
		"objcopy --compress-debug-sections=zlib debug/ab/cd* && at=$((0x$(readelf -SW "
		"debug/ab/cd* | sed -n 's/.* .debug_info *PROGBITS *[0-9a-f]* \\([0-9a-f]*\\) .*/\\1/p'))) "
		"&& printf 'xxxxxxxxxxxxxxxx' | dd of=$(echo debug/ab/cd*) bs=1 seek=$((at + 40)) "
		"conv=notrunc 2>/dev/null"
	};
	bool damaged = _i == 3;
	char option[128];

	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O2 -g -Wl,--build-id=0xabcd030405060708090a0b0c0d0e0f1011121314", NULL);
	ck_assert_int_eq(
		rig_shell(&rig,
			  "mkdir -p debug/ab && objcopy --only-keep-debug workload "
			  "debug/ab/cd030405060708090a0b0c0d0e0f1011121314.debug && strip workload -o stripped && "
			  "rm workload && mv stripped workload"),
		0);
	ck_assert_int_eq(rig_shell(&rig, "%s", forms[_i]), 0);
	/*
	 * The process still has the file mapped that is gone; what is handed over is the one
	 * without symbols.
	 */
	char path[128];
	snprintf(path, sizeof(path), "%s/workload", rig.dir);
	for (size_t i = 0; i < rig.entry_count; i++)
		if (strcmp(rig.paths[i], path) == 0)
			ck_assert_int_ge(dup2(open(path, O_RDONLY | O_CLOEXEC), rig.entries[i].binary.fd), 0);

	ck_assert_int_eq(rig_run(&rig, "--debug-files="), 0);
	ck_assert_uint_eq(rig_count(&rig, "debug_files"), 0);
	ck_assert_uint_eq(rig_count(&rig, "frames_named"), 0);
	snprintf(option, sizeof(option), "--debug-files=%s/debug", rig.dir);
	ck_assert_int_eq(rig_run(&rig, option), 0);
	ck_assert_uint_eq(rig_count(&rig, "debug_files"), 1);
	rig_expect(&rig, damaged ? "burner;main;caller;with_inlined" : "burner;main;caller;with_inlined;middle;deepest",
		   1);
	rig_expect(&rig, "burner;main;caller;hidden", 1);
	rig_end(&process);
}
END_TEST

/*
 * What lies where the debug file of a build id is looked for: of any size and kind. Only what is one is
 * used, and costs no more than its own debug information does.
 */
START_TEST(whatever_lies_in_place_of_a_debug_file_is_survived)
{
	static const struct {
		const char *command; /* with the file as $f */
		bool named;
	} hostile[] = {
		{ "truncate -s 4G $f", true },                        /* a good one with a hole behind it */
		{ "rm $f && truncate -s 4G $f", false },              /* nothing but a hole */
		{ "truncate -s 700 $f && truncate -s 4G $f", false }, /* cut off, and then a hole */
		{ "rm $f && ln -s /dev/zero $f", false },
		{ "rm $f && mkfifo $f", false },
		{ "rm $f && mkdir $f", false },
	};
	char option[128], path[128];

	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O2 -g -Wl,--build-id=0xabcd030405060708090a0b0c0d0e0f1011121314", NULL);

	ck_assert_int_eq(rig_shell(&rig,
				   "f=debug/ab/cd030405060708090a0b0c0d0e0f1011121314.debug; mkdir -p debug/ab && "
				   "objcopy --only-keep-debug workload $f && strip workload -o stripped && "
				   "rm workload && mv stripped workload && %s",
				   hostile[_i].command),
			 0);
	snprintf(path, sizeof(path), "%s/workload", rig.dir);
	for (size_t i = 0; i < rig.entry_count; i++)
		if (strcmp(rig.paths[i], path) == 0)
			ck_assert_int_ge(dup2(open(path, O_RDONLY | O_CLOEXEC), rig.entries[i].binary.fd), 0);
	snprintf(option, sizeof(option), "--debug-files=%s/debug", rig.dir);
	ck_assert_int_eq(rig_run(&rig, option), 0);
	if (hostile[_i].named)
		rig_expect(&rig, "burner;main;caller;hidden", 1);
	else
		ck_assert_uint_eq(rig_count(&rig, "frames_named"), 0);
	rig_end(&process);
}
END_TEST

START_TEST(debug_information_that_files_share_is_found_by_build_id)
{
	char option[128], command[512];

	if (!there)
		SKIP_TEST("%s", skip_reason);
	if (rig_shell(&rig, "dwz --version >/dev/null 2>&1") != 0) {
		SKIP_TEST("there is no dwz");
	}
	rig_write(&rig, "workload.c", workload);
	ck_assert_int_eq(rig_shell(&rig, "gcc -O2 -g -gdwarf-4 -o workload workload.c && cp workload other && "
					 "dwz -m shared -M /nowhere/shared workload other && cp workload small"),
			 0);
	struct rig_process process = sampled("-O2 -g -gdwarf-4", NULL);
	snprintf(command, sizeof(command), "%s",
		 "id=$(readelf -n shared | sed -n 's/.*Build ID: //p'); rest=${id#??}; "
		 "mkdir -p debug/${id%$rest} && cp shared debug/${id%$rest}/$rest.debug");
	ck_assert_int_eq(rig_shell(&rig, "%s", command), 0);
	snprintf(command, sizeof(command), "%s/workload", rig.dir);
	for (size_t i = 0; i < rig.entry_count; i++)
		if (strcmp(rig.paths[i], command) == 0) {
			snprintf(option, sizeof(option), "%s/small", rig.dir);
			ck_assert_int_ge(dup2(open(option, O_RDONLY | O_CLOEXEC), rig.entries[i].binary.fd), 0);
		}
	ck_assert_int_eq(rig_run(&rig, "--debug-files="), 0);
	ck_assert_uint_eq(rig_stacks_in(rig.folded, "burner;main;caller;with_inlined;middle;deepest"), 0);
	snprintf(option, sizeof(option), "--debug-files=%s/debug", rig.dir);
	ck_assert_int_eq(rig_run(&rig, option), 0);
	rig_expect(&rig, "burner;main;caller;with_inlined;middle;deepest", 1);
	rig_expect(&rig, "burner;main;caller;hidden", 1);
	rig_end(&process);
}
END_TEST

START_TEST(compressed_symbols_of_a_stripped_program_are_read)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	if (rig_shell(&rig, "xz --version >/dev/null 2>&1") != 0) {
		SKIP_TEST("there is no xz");
	}
	struct rig_process process = sampled("-O1", NULL);
	char path[128];

	ck_assert_int_eq(
		rig_shell(&rig, "objcopy -S --keep-symbol=hidden --keep-symbol=caller --keep-symbol=main workload mini "
				"&& xz mini && strip workload -o stripped && "
				"objcopy --add-section .gnu_debugdata=mini.xz stripped"),
		0);
	snprintf(path, sizeof(path), "%s/workload", rig.dir);
	for (size_t i = 0; i < rig.entry_count; i++)
		if (strcmp(rig.paths[i], path) == 0) {
			snprintf(path, sizeof(path), "%s/stripped", rig.dir);
			ck_assert_int_ge(dup2(open(path, O_RDONLY | O_CLOEXEC), rig.entries[i].binary.fd), 0);
			break;
		}
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "burner;main;caller;hidden", 1);
	rig_end(&process);
}
END_TEST

START_TEST(names_of_cpp_are_demangled)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_write(&rig, "plus.cc",
		  "#include <cstdio>\n#include <unistd.h>\nvolatile int sink;\nextern \"C\" { extern char inside[]; }\n"
		  "namespace store { template <class T> struct Table {\n"
		  "static inline __attribute__((always_inline)) void probe(T) {\n"
		  "  __asm__ volatile(\".globl inside\\ninside: nop\"); sink = sink + 1; }\n"
		  "__attribute__((noipa)) static void insert(T t, const char *) { sink = sink + 1; probe(t); sink = "
		  "sink + 1; }\n"
		  "}; }\nint main() { printf(\"%lx\\n\", (unsigned long)inside); fflush(stdout);\n"
		  "store::Table<int>::insert(1, \"\"); for (;;) pause(); }\n");
	for (int debug = 0; debug < 2; debug++) {
		ck_assert_int_eq(rig_shell(&rig, "g++ -O2 %s -o plus plus.cc", debug ? "-g" : ""), 0);
		struct rig_process process = rig_start(&rig, "plus");
		uint64_t inside = rig_address(&process);

		rig_maps(&rig, process.pid, "db", NULL);
		rig_sample(&rig, process.pid, inside, (uint64_t)0);
		ck_assert_int_eq(rig_run(&rig, NULL), 0);
		rig_expect(&rig,
			   debug ? "db;store::Table<int>::insert(int, char const*);store::Table<int>::probe(int)"
				 : "db;store::Table<int>::insert(int, char const*)",
			   1);
		rig_end(&process);
		rig_clear(&rig);
	}
}
END_TEST

START_TEST(functions_of_shared_libraries_are_named)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_write(&rig, "shared.c",
		  "volatile int sink;\nstatic __attribute__((noinline)) void unseen(void) { sink++; }\n"
		  "void *unseen_address(void) { return unseen; }\nvoid seen(void) { unseen(); sink++; }\n");
	rig_write(&rig, "user.c",
		  "#include <stdio.h>\n#include <unistd.h>\nvoid seen(void); void *unseen_address(void);\n"
		  "int main(void) { printf(\"%lx\\n%lx\\n\", (unsigned long)seen, (unsigned long)unseen_address());\n"
		  "fflush(stdout); seen(); for (;;) pause(); }\n");
	for (int stripped = 0; stripped < 2; stripped++) {
		ck_assert_int_eq(rig_shell(&rig,
					   "gcc -O1 -fPIC -shared -o named.so shared.c && "
					   "gcc -O1 -fPIC -shared %s -o libshared.so shared.c && "
					   "gcc -O1 -fPIC -o user user.c -L. -lshared -Wl,-rpath,'%s'",
					   stripped ? "-s" : "", rig.dir),
				 0);
		struct rig_process process = rig_start(&rig, "user");
		uint64_t seen = rig_address(&process), unseen = rig_address(&process);

		rig_maps(&rig, process.pid, "user", NULL);
		rig_sample(&rig, process.pid, unseen, seen + 1, (uint64_t)0);
		ck_assert_int_eq(rig_run(&rig, NULL), 0);
		char name[64], stack[100];
		by_start("named.so", "unseen", "libshared.so", name, sizeof(name));
		snprintf(stack, sizeof(stack), "user;seen;%s", stripped ? name : "unseen");
		rig_expect(&rig, stack, 1);
		rig_end(&process);
		rig_clear(&rig);
	}
}
END_TEST

/* As a C library is built: what people call is an alias of what the debug information names, and has a version. */
START_TEST(functions_of_a_c_library_have_the_names_that_are_called)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_write(&rig, "shared.c",
		  "volatile int sink;\n"
		  "__attribute__((visibility(\"hidden\"))) void lib_send_in(void) __asm__(\"__GI___lib_send\");\n"
		  "void lib_send_in(void) { sink = sink + 1; }\n"
		  "__attribute__((alias(\"__GI___lib_send\"))) void __send(void);\n"
		  "__attribute__((weak, alias(\"__GI___lib_send\"))) void lib_send(void);\n"
		  "__asm__(\".symver take_1, lib_take@@V_1\");\nvoid take_1(void) { sink = sink + 2; }\n");
	rig_write(&rig, "versions", "V_1 { global: __send; lib_send; lib_take; local: *; };\n");
	rig_write(&rig, "user.c",
		  "#include <stdio.h>\n#include <unistd.h>\nvoid lib_send(void); void lib_take(void);\n"
		  "int main(void) { printf(\"%lx\\n%lx\\n\", (unsigned long)lib_send, (unsigned long)lib_take);\n"
		  "fflush(stdout); for (;;) pause(); }\n");
	ck_assert_int_eq(rig_shell(&rig,
				   "gcc -g -O1 -fPIC -shared -Wl,--version-script=versions -o libshared.so shared.c && "
				   "gcc -O1 -fPIC -o user user.c -L. -lshared -Wl,-rpath,'%s'",
				   rig.dir),
			 0);
	struct rig_process process = rig_start(&rig, "user");
	uint64_t send = rig_address(&process), take = rig_address(&process);

	rig_maps(&rig, process.pid, "user", NULL);
	rig_sample(&rig, process.pid, take, send + 1, (uint64_t)0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "user;lib_send;lib_take", 1);
	rig_end(&process);
}
END_TEST

START_TEST(a_call_at_the_end_of_a_function_belongs_to_it)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_write(&rig, "end.c",
		  "#include <stdio.h>\n#include <unistd.h>\nextern char end_of_first[];\n"
		  "__asm__(\".text\\n.globl first\\n.type first, @function\\nfirst: nop\\nnop\\nend_of_first:\\n"
		  ".globl end_of_first\\n.size first, .-first\\n.globl second\\n.type second, @function\\n"
		  "second: nop\\n.size second, .-second\\n\");\n"
		  "int main(void) { printf(\"%lx\\n\", (unsigned long)end_of_first); fflush(stdout); for (;;) pause(); "
		  "}\n");
	ck_assert_int_eq(rig_shell(&rig, "gcc -O1 -o end end.c"), 0);
	struct rig_process process = rig_start(&rig, "end");
	uint64_t end = rig_address(&process);

	rig_maps(&rig, process.pid, "end", NULL);
	rig_sample(&rig, process.pid, end, end, end, (uint64_t)0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "end;first;first;second", 1);
	rig_end(&process);
}
END_TEST

START_TEST(recursion_keeps_every_level)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O1", NULL);

	rig_clear(&rig);
	rig_maps(&rig, process.pid, "deep", NULL);
	rewind(process.out);
	char path[256], command[600];
	snprintf(path, sizeof(path), "/proc/%d/maps", process.pid);
	snprintf(command, sizeof(command),
		 "awk -v nm=$(nm %s/workload | awk '$3 == \"caller\" { print $1 }') '/workload/ { split($1, a, \"-\"); "
		 "print a[1], nm; exit }' %s",
		 rig.dir, path);
	FILE *pipe = popen(command, "re");
	unsigned long base, offset;
	ck_assert_int_eq(fscanf(pipe, "%lx %lx", &base, &offset), 2);
	pclose(pipe);
	uint64_t caller = base + offset;

	rig_sample(&rig, process.pid, caller, caller + 1, caller + 2, caller + 1, (uint64_t)0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "deep;caller;caller;caller;caller", 1);
	rig_end(&process);
}
END_TEST

START_TEST(compiled_code_has_the_names_of_the_perf_map)
{
	const struct perf_record_mmap code = { .start = 0x10000, .len = 0x10000, .path = "//anon" };

	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_name(&rig, 7, "node");
	rig_map(&rig, 7, &code);
	rig_name(&rig, 8, "other");
	rig_map(&rig, 8, &code);
	rig_text(&rig, STACK_FILE_PERF_MAP, "10000 100 LazyCompile:~serve app.js:1\n10100 80 old\n10100 80 new;er\n")
		->pid = 7;
	rig_sample(&rig, 7, (uint64_t)0x10140, (uint64_t)0x10081, (uint64_t)0);
	rig_sample(&rig, 7, (uint64_t)0x10180, (uint64_t)0);
	rig_sample(&rig, 8, (uint64_t)0x10140, (uint64_t)0);
	int map = rig.entries[0].binary.fd;
	ck_assert_int_eq(lseek(map, 5, SEEK_SET), 5);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_ptr_nonnull(strstr(rig.folded, "node;LazyCompile:~serve app.js:1;new"));
	rig_expect(&rig, "node;[anon]", 1);
	rig_expect(&rig, "other;[anon]", 1); /* another process's map is not believed */
	/* Where a descriptor of it is read, which may be another symboliser's too, is neither asked nor changed. */
	ck_assert_int_eq(lseek(map, 0, SEEK_CUR), 5);
}
END_TEST

/* Samples of a part of the stack file have been looked up in it by then. */
START_TEST(a_perf_map_that_grows_before_the_rest_comes_is_read_again)
{
	static const char more[] = "10100 80 later\n";
	struct rig_rest rest = { .entry = -1 };

	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_name(&rig, 7, "node");
	rig_map(&rig, 7, &(struct perf_record_mmap){ .start = 0x10000, .len = 0x10000, .path = "//anon" });
	for (int i = 0; i < 8; i++)
		rig_sample(&rig, 7, (uint64_t)(i < 6 ? 0x10010 : 0x10110), (uint64_t)0);
	rig_text(&rig, STACK_FILE_PERF_MAP, "10000 80 soon\n")->pid = 7;
	rig_text(&rig, STACK_FILE_ELF, ""); /* not in the first part */

	rest.input = rig_stack_file(&rig, true);
	rest.grows = rig.entries[0].binary.fd;
	rest.by = more;
	int first = rig_stack_file(&rig, false);

	ck_assert_int_eq(rig_give_parts(&rig, first, NULL, &rest), 0);
	rig_expect(&rig, "node;soon", 6);
	rig_expect(&rig, "node;later", 2);
	close(first);
	close(rest.input);
}
END_TEST

/* Nothing that waits for what never comes stays behind, and it says that it has done nothing. */
START_TEST(without_the_rest_it_ends)
{
	struct rig_rest none = { .input = -1, .entry = -1 };

	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_name(&rig, 7, "node");
	rig_sample(&rig, 7, (uint64_t)0x10010, (uint64_t)0);
	int first = rig_stack_file(&rig, false);

	ck_assert_int_eq(rig_give_parts(&rig, first, NULL, &none), 4);
	ck_assert_str_eq(rig.folded, "");
	close(first);
}
END_TEST

/* Another one is started then, for which all is there still. */
START_TEST(a_first_part_that_cannot_be_read_is_no_failure_of_the_whole)
{
	struct rig_rest rest = { .entry = -1 };
	int first;

	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_name(&rig, 7, "node");
	rig_sample(&rig, 7, (uint64_t)0x10010, (uint64_t)0);
	rest.input = rig_stack_file(&rig, true);
	first = rig_open(&rig, "empty");
	ck_assert_int_eq(rig_give_parts(&rig, first, NULL, &rest), 4);
	ck_assert_str_eq(rig.folded, "");
	close(first);
	close(rest.input);
}
END_TEST

START_TEST(kernel_functions_are_named_if_the_kernel_says_them)
{
	static const uint64_t chain[] = { PERF_CONTEXT_KERNEL, 0xffffffff81000010, 0xffffffff81000101,
					  PERF_CONTEXT_USER, 0x10000 };
	struct perf_record sample = { .type = PERF_RECORD_SAMPLE, .pid = 7, .tid = 7 };

	sample.misc = PERF_RECORD_MISC_KERNEL;
	sample.sample = (struct perf_record_sample){ .period = 1, .chain = chain, .chain_len = ARRAY_LEN(chain) };
	for (int known = 0; there && known < 2; known++) {
		rig_name(&rig, 7, "reader");
		if (known)
			rig_text(&rig, STACK_FILE_KALLSYMS,
				 "ffffffff81000000 T copy_page\nffffffff81000100 t do_read\t[ext4]\nffffffff81000200 D "
				 "data\n");
		rig_record(&rig, &sample);
		ck_assert_int_eq(rig_run(&rig, NULL), 0);
		rig_expect(&rig,
			   known ? "reader;[unknown];do_read [ext4];copy_page" : "reader;[unknown];[kernel];[kernel]",
			   1);
		ck_assert_uint_eq(rig_count(&rig, "frames_kernel"), 2);
		ck_assert_uint_eq(rig_count(&rig, "frames_unmapped"), 1);
		rig_clear(&rig);
	}
}
END_TEST

START_TEST(what_a_program_was_is_told_apart_from_what_it_is_by_time)
{
	struct perf_record exec = { .type = PERF_RECORD_COMM, .pid = 7, .tid = 7 };
	const struct perf_record_mmap before = {
		.start = 0x10000, .len = 0x1000, .path = "/bin/first", .file = { .inode = 1 }
	};
	const struct perf_record_mmap after = {
		.start = 0x10000, .len = 0x1000, .path = "/bin/second", .file = { .inode = 2 }
	};

	if (!there)
		SKIP_TEST("%s", skip_reason);
	exec.comm.name = "second";
	exec.comm.name_len = 6;
	exec.comm.exec = true;
	exec.misc = PERF_RECORD_MISC_COMM_EXEC;
	rig_name(&rig, 7, "first");
	rig_map(&rig, 7, &before);
	rig_sample(&rig, 7, (uint64_t)0x10010, (uint64_t)0);
	rig_record(&rig, &exec);
	rig_sample(&rig, 7, (uint64_t)0x10010, (uint64_t)0);
	rig_map(&rig, 7, &after);
	rig_sample(&rig, 7, (uint64_t)0x10010, (uint64_t)0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "first;[first]", 1);
	rig_expect(&rig, "second;[unknown]", 1);
	rig_expect(&rig, "second;[second]", 1);
}
END_TEST

START_TEST(raw_reads_no_binaries)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O1 -g", NULL);

	ck_assert_int_eq(rig_run(&rig, "--raw"), 0);
	rig_expect(&rig, "burner;[workload];[workload];[workload]", 2);
	ck_assert_uint_eq(rig_count(&rig, "binaries_read"), 0);
	rig_end(&process);
}
END_TEST

/*
 * Within its limits it ends: by itself, or killed by what it read. It never hangs, and never says
 * more than it knows.
 */
static void survives(const char *what, size_t at)
{
	int code = rig_run(&rig, "--debug-files=");

	ck_assert_msg(code == 0 || (code > 128 && code != 128 + SIGALRM), "%s at %zu: %d", what, at, code);
	if (code == 0)
		ck_assert_uint_eq(rig_count(&rig, "samples"), 4);
}

START_TEST(a_damaged_binary_harms_nobody)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	struct rig_process process = sampled("-O2 -g", NULL);
	size_t which = 0, size;

	while (strstr(rig.paths[which], "/workload") == NULL)
		which++;
	int original = open(rig.paths[which], O_RDONLY | O_CLOEXEC), damaged = rig.entries[which].binary.fd;
	struct stat st;
	ck_assert_int_eq(fstat(original, &st), 0);
	size = (size_t)st.st_size;
	char *bytes = malloc(size);
	ck_assert_int_eq(read(original, bytes, size), (ssize_t)size);
	for (size_t at = 0; at < size; at += 1000) {
		int file = rig_open(&rig, "damaged");

		ck_assert_int_eq(sink_write_all(file, bytes, at), 0);
		dup2(file, damaged);
		survives("cut", at);
		ck_assert_int_eq(sink_write_all(file, bytes + at, size - at), 0);
		for (size_t i = 0; i < 16 && at + i < size; i++) {
			char wrong = (char)(bytes[at + i] ^ (0x11 << (i % 4)));

			ck_assert_int_eq(pwrite(file, &wrong, 1, (off_t)(at + i)), 1);
		}
		survives("flipped", at);
		close(file);
	}
	free(bytes);
	close(original);
	rig_end(&process);
}
END_TEST

START_TEST(what_is_no_stack_file_is_refused)
{
	int input;

	if (!there)
		SKIP_TEST("%s", skip_reason);
	input = memfd_create("nothing", MFD_CLOEXEC);
	ck_assert_int_eq(rig_give(&rig, input, NULL), 1);
	ck_assert_int_eq(sink_write_all(input, "SPKSTACK and more that is not one", 33), 0);
	ck_assert_int_eq(rig_give(&rig, input, NULL), 1);
	close(input);
	input = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(rig_give(&rig, input, NULL), 1);
	ck_assert_int_eq(rig_give(&rig, input, "--folded=999"), 64);
	ck_assert_int_eq(rig_give(&rig, input, "--no-such-option"), 64);
	close(input);
}
END_TEST

START_TEST(records_that_make_no_sense_end_the_reading_not_the_profile)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_name(&rig, 7, "some");
	rig_sample(&rig, 7, (uint64_t)0x10010, (uint64_t)0);
	ck_assert_int_eq(buffer_append(&rig.records[STACK_FILE_CPU], "\377\377\377\377\377\377\1\0", 8), 0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	rig_expect(&rig, "some;[unknown]", 1);
	ck_assert_uint_eq(rig_count(&rig, "records_broken"), 1);
}
END_TEST

START_TEST(functions_of_the_vdso_are_named)
{
	if (!there)
		SKIP_TEST("%s", skip_reason);
	rig_write(&rig, "vdso.c",
		  "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\n"
		  "int main(void) { void *v = dlopen(\"linux-vdso.so.1\", RTLD_NOW | RTLD_NOLOAD);\n"
		  "printf(\"%lx\\n\", (unsigned long)(v ? dlsym(v, \"__vdso_clock_gettime\") : 0));\n"
		  "fflush(stdout); for (;;) pause(); }\n");
	ck_assert_int_eq(rig_shell(&rig, "gcc -O1 -o vdso vdso.c -ldl"), 0);
	struct rig_process process = rig_start(&rig, "vdso");
	uint64_t address = rig_address(&process);

	if (address == 0) {
		rig_end(&process);
		SKIP_TEST("there is no vDSO that can be asked");
	}
	rig_maps(&rig, process.pid, "clock", NULL);
	rig_sample(&rig, process.pid, address, (uint64_t)0);
	ck_assert_int_eq(rig_run(&rig, NULL), 0);
	ck_assert_ptr_nonnull(strstr(rig.folded, "clock_gettime"));
	rig_end(&process);
}
END_TEST

Suite *symbolize_suite(void);
Suite *symbolize_suite(void)
{
	Suite *suite = suite_create("symbolize");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, setup, teardown);
	tcase_set_timeout(core, 600);
	tcase_add_test(core, functions_have_their_names_however_the_program_is_linked);
	tcase_add_test(core, inlined_functions_are_frames_of_their_own_with_debug_information);
	tcase_add_test(core, functions_of_a_stripped_program_are_where_they_begin);
	tcase_add_test(core, a_program_without_symbols_and_tables_has_no_wrong_names);
	tcase_add_test(core, a_stripped_program_has_the_names_of_its_dynamic_symbols);
	tcase_add_test(core, another_build_id_gives_no_names);
	tcase_add_test(core, the_same_build_id_gives_names);
	tcase_add_loop_test(core, a_separate_debug_file_is_found_by_build_id, 0, 4);
	tcase_add_loop_test(core, whatever_lies_in_place_of_a_debug_file_is_survived, 0, 6);
	tcase_add_test(core, debug_information_that_files_share_is_found_by_build_id);
	tcase_add_test(core, compressed_symbols_of_a_stripped_program_are_read);
	tcase_add_test(core, names_of_cpp_are_demangled);
	tcase_add_test(core, functions_of_shared_libraries_are_named);
	tcase_add_test(core, functions_of_a_c_library_have_the_names_that_are_called);
	tcase_add_test(core, a_call_at_the_end_of_a_function_belongs_to_it);
	tcase_add_test(core, recursion_keeps_every_level);
	tcase_add_test(core, compiled_code_has_the_names_of_the_perf_map);
	tcase_add_test(core, a_perf_map_that_grows_before_the_rest_comes_is_read_again);
	tcase_add_test(core, without_the_rest_it_ends);
	tcase_add_test(core, a_first_part_that_cannot_be_read_is_no_failure_of_the_whole);
	tcase_add_test(core, kernel_functions_are_named_if_the_kernel_says_them);
	tcase_add_test(core, what_a_program_was_is_told_apart_from_what_it_is_by_time);
	tcase_add_test(core, raw_reads_no_binaries);
	tcase_add_test(core, a_damaged_binary_harms_nobody);
	tcase_add_test(core, what_is_no_stack_file_is_refused);
	tcase_add_test(core, records_that_make_no_sense_end_the_reading_not_the_profile);
	tcase_add_test(core, functions_of_the_vdso_are_named);
	suite_add_tcase(suite, core);

	return suite;
}
