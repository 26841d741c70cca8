# Spikewatch. `make help` lists the targets.
#
# One build directory per configuration: make check B=build-asan SANITIZE=address,undefined

VERSION := 0.1.0

B ?= build
SANITIZE ?=
FUZZ_SECONDS ?= 60
# How long `make soak` runs, and beside how many forks a second.
SECONDS ?= 600
FORKS ?= 2000
# Suites that make check runs side by side; many of them wait most of the time.
CHECK_JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n < 8 ? n + 1 : 8)))
FUZZ_CC ?= clang
BPF_CC ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool) bpftool)

# As many jobs as there are CPUs, unless it is told how many, or to do several things, one after the other.
ifeq ($(MAKELEVEL)$(filter -j%,$(MFLAGS))$(word 2,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

prefix ?= /usr
bindir ?= $(prefix)/bin
libexecdir ?= $(prefix)/libexec
sysconfdir ?= /etc
unitdir ?= $(prefix)/lib/systemd/system
libdir_systemd ?= $(prefix)/lib
mandir ?= $(prefix)/share/man
docdir ?= $(prefix)/share/doc/spikewatch
completiondir ?= $(prefix)/share/bash-completion/completions

# ---- sources; each list may be narrowed on the command line: make check SUITES="ring pacer" ----

MAINS := $(wildcard daemon/service/main.c daemon/symbolize/main.c cli/main.c)
LIB_C := $(wildcard lib/*/*.c)
# Programs for the kernel are compiled by another compiler, into a header.
DAEMON_C := $(filter-out %.bpf.c,$(wildcard daemon/*/*.c daemon/*/*/*.c))
CLI_C := $(wildcard cli/*.c cli/*/*.c)
SUITE_C := $(filter-out tests/support/%,$(sort $(foreach d,tests/*/ tests/*/*/ tests/*/*/*/,$(wildcard $(d)check_*.c))))
SUITES := $(patsubst check_%.c,%,$(notdir $(SUITE_C)))
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,%,$(filter-out tests/fuzz/fuzz_main.c,$(wildcard tests/fuzz/fuzz_*.c)))
# Preloaded into a program; sanitizers have to be the first.
PRELOADS := $(if $(SANITIZE),,$(B)/clock_ahead.so)
BENCH_PRELOADS := $(if $(SANITIZE),,$(B)/slow_disk.so)
TOOL_C := $(filter-out tests/programs/clock_ahead.c,$(wildcard tests/programs/*.c tests/bench/bench*.c))

objects = $(patsubst %.c,$(B)/%.o,$(1))
LIB_O := $(call objects,$(LIB_C))
DAEMON_O := $(call objects,$(filter-out $(MAINS),$(DAEMON_C)))
CLI_O := $(call objects,$(filter-out $(MAINS),$(CLI_C)))
SUITE_O := $(call objects,$(foreach s,$(SUITES),$(filter %/check_$(s).c,$(SUITE_C))))
CHECK_O := $(SUITE_O) $(addprefix $(B)/tests/support/,check_main.o crew.o marks.o supervise.o torture.o)
ASAN_O := $(if $(findstring address,$(SANITIZE)),$(B)/tests/support/asan_options.o)
TSAN_O := $(if $(findstring thread,$(SANITIZE)),$(B)/tests/support/tsan_calls.o)
TOOL_O := $(call objects,$(TOOL_C))
FUZZ_O := $(call objects,$(FUZZ:%=tests/fuzz/fuzz_%.c) tests/fuzz/fuzz_main.c)
ALL_O := $(LIB_O) $(DAEMON_O) $(CLI_O) $(CHECK_O) $(TOOL_O) $(FUZZ_O) $(ASAN_O) $(TSAN_O) \
	$(call objects,$(MAINS))

PROGRAMS := $(patsubst daemon/service/main.c,$(B)/spikewatchd,$(wildcard daemon/service/main.c)) \
	$(patsubst cli/main.c,$(B)/spikewatch,$(wildcard cli/main.c))
# Programs that only spikewatchd starts.
HELPERS := $(patsubst daemon/symbolize/main.c,$(B)/spikewatch-symbolize,$(wildcard daemon/symbolize/main.c))
TOOL_BINS := $(addprefix $(B)/,$(basename $(notdir $(TOOL_C))))
BENCH_BINS := $(filter $(B)/bench%,$(TOOL_BINS))
FUZZ_BINS := $(FUZZ:%=$(B)/fuzz-%)

# ---- flags ----

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Werror
CPPFLAGS += -D_GNU_SOURCE -DSPIKEWATCH_VERSION='"$(VERSION)"'

ifeq ($(SANITIZE),)
CFLAGS ?= -O2 -g
HARDEN := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
LDHARDEN := -Wl,-z,relro,-z,now
else
CFLAGS ?= -O1 -g
HARDEN := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDHARDEN := -fsanitize=$(SANITIZE)
# With it gcc warns of each fence, in which it sees no order: what it then reports has to be judged.
HARDEN += $(if $(findstring thread,$(SANITIZE)),-Wno-error)
endif

# Includes name the room: "lib/ring/ring.h". tests/rooms has the order of the rooms, and `make lint` checks it.
INCLUDES = -iquote .
TEST_INCLUDES = -iquote . -iquote tests/support -iquote tests/bench -iquote $(B)
$(B)/tests/%.o: INCLUDES = $(TEST_INCLUDES)

# Asked once and not before a recipe needs them: `make check` installs pkg-config on a bare machine first.
ask = $(shell pkg-config $(1) 2>/dev/null || echo $(2))
LIBS = $(eval LIBS := $(call ask,--libs libcgroup libsystemd yajl libdeflate ncursesw,-lcgroup -lsystemd -lyajl -ldeflate -lncursesw -ltinfo -ldl) $(call ask,--libs libbpf) -lm)$(LIBS)
# Of what names functions; --as-needed leaves them out of everything else.
SYMBOL_LIBS = $(eval SYMBOL_LIBS := $(call ask,--libs libdw libelf,-ldw -lelf) -liberty)$(SYMBOL_LIBS)
CHECK_LIBS = $(eval CHECK_LIBS := $(call ask,--libs check,-lcheck -lsubunit -lrt -lm -pthread))$(CHECK_LIBS)

# V=1 shows whole commands.
Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1)  $@')

COMPILE = $(CC) -std=gnu17 $(CPPFLAGS) $(WARNINGS) $(CFLAGS) $(HARDEN) -pthread
LINK = $(CC) $(CFLAGS) $(HARDEN) -pthread $(LDHARDEN) -Wl,--as-needed $(LDFLAGS)
, := ,
TORTURE := $(patsubst %,-Wl$(,)--wrap=%,malloc calloc realloc reallocarray strdup strndup aligned_alloc posix_memalign \
	openat mkdirat write rename renameat unlink unlinkat fsync ftruncate flock open_beneath)
NOTED := $(patsubst %,-Wl$(,)--wrap=%,mkdtemp mkstemp mkdir _mark_point)

.PHONY: all demo check docs bench soak lint fuzz install uninstall clean help deps deps-build deps-fuzz deps-deb FORCE
.PHONY: deb check-deb check-units check-vm check-prometheus check-pprof check-alarms check-report report deps-page deps-report image
.DELETE_ON_ERROR:

# What had to be left out of this build, and the command that brings it: a line each, the last.
say_missing = @cat $(B)/cli/report/missing $(B)/switches.missing 2>/dev/null || true

all: $(B)/libspikewatch.a $(PROGRAMS) $(HELPERS)
	$(say_missing)

# ---- compile and link ----

# What these goals need is installed before the first object is compiled.
ifneq ($(filter check demo deps deps-build bench soak,$(MAKECMDGOALS)),)
$(B)/flags $(B)/cli/report/tools $(B)/switches.tools: | deps-build
endif
ifneq ($(filter deb image check-vm,$(MAKECMDGOALS)),)
$(B)/flags $(B)/cli/report/tools $(B)/switches.tools: | deps-deb
endif
ifneq ($(filter fuzz,$(MAKECMDGOALS)),)
$(B)/flags: | deps-fuzz
endif

$(B)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(COMPILE) $(LINK))' | cmp -s - $@ || echo '$(subst ','\'',$(COMPILE) $(LINK))' > $@

$(B)/suites.h: FORCE
	@mkdir -p $(@D)
	@printf 'SUITE(%s)\n' $(SUITES) | cmp -s - $@ || printf 'SUITE(%s)\n' $(SUITES) > $@

$(B)/tests/support/check_main.o: $(B)/suites.h

$(ALL_O): $(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$(Q)$(COMPILE) $(INCLUDES) -MMD -MP -c $< -o $@

$(B)/libspikewatch.a: $(LIB_O)
$(B)/daemon.a: $(DAEMON_O)
$(B)/cli.a: $(CLI_O)
$(B)/%.a: $(B)/flags
	@rm -f $@
	$(call say,AR  )
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

# The page of `spikewatch report`, as arrays of C: empty ones if there is no npm. Tried again when npm or a source changes, and by what must not go without.
REPORT_SOURCES := $(filter-out %.c %.h,$(wildcard cli/report/*)) $(wildcard cli/report/src/* cli/report/built/*)

WANT_PAGE := $(filter check demo deb image check-vm report,$(MAKECMDGOALS))

$(B)/cli/report/tools: FORCE
	@mkdir -p $(@D)
	@$(if $(WANT_PAGE),test ! -s $(@D)/missing || rm -f $@,:)
	@{ command -v node; command -v npm; true; } | cmp -s - $@ || { command -v node; command -v npm; true; } > $@

$(B)/cli/report/page.h: $(B)/cli/report/tools $(REPORT_SOURCES)
	$(call say,PAGE)
	$(Q)sh cli/report/build.sh $(@D)

$(B)/cli/report/report.o $(B)/libfuzzer/cli/report/report.o $(B)/tests/cli/report/check_report.o: $(B)/cli/report/page.h
$(B)/cli/report/report.o: INCLUDES += -iquote $(B)

# The program in the kernel (daemon/engine/kernel/kernel_accounts.h), and the functions that load it. Without its compiler all else is built.
SWITCHES := daemon/engine/kernel/switches.bpf.c
BPF_FLAGS := -g -O2 -target bpf -mcpu=v2 -ffreestanding -D__TARGET_ARCH_x86 -Wall -Wextra -Werror -Wno-unused-parameter

$(B)/switches.tools: FORCE
	@mkdir -p $(@D)
	@{ command -v $(BPF_CC); command -v $(BPFTOOL); pkg-config --modversion libbpf; true; } 2>/dev/null | cmp -s - $@ || \
		{ command -v $(BPF_CC); command -v $(BPFTOOL); pkg-config --modversion libbpf; true; } >$@ 2>/dev/null

$(B)/switches.skel.h: $(SWITCHES) daemon/engine/kernel/kernel_event.h lib/source/cpu_accounts_layout.h $(B)/switches.tools
	$(call say,BPF )
	@rm -f $(B)/switches.missing
	$(Q)if test $$(wc -l <$(B)/switches.tools) -lt 3; then \
		echo '#define SPIKEWATCH_WITHOUT_SWITCHES "clang, bpftool or libbpf was missing"' >$@; \
		echo 'Missing in this build: CPU time from the scheduler, for which clang, bpftool and libbpf are needed. To get them: make deps' \
			>$(B)/switches.missing; \
	else \
		$(BPF_CC) $(BPF_FLAGS) -iquote . -idirafter /usr/include/$$($(CC) -print-multiarch) -c $< -o $(B)/switches.bpf.o && \
		{ echo '#pragma GCC system_header' && $(BPFTOOL) gen skeleton $(B)/switches.bpf.o name switches; } >$@; \
	fi

$(B)/tests/daemon/engine/kernel/check_kernel_accounts.o $(B)/daemon/engine/kernel/kernel_accounts.o $(B)/libfuzzer/daemon/engine/kernel/kernel_accounts.o: $(B)/switches.skel.h
$(B)/daemon/engine/kernel/kernel_accounts.o: INCLUDES += -iquote $(B)

# The shipped configuration is built into spikewatchd.
$(B)/shipped.h: conf/spikewatch.json
	@mkdir -p $(@D)
	@{ echo 'static const unsigned char shipped_config[] = {'; \
		od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } > $@

$(B)/lib/config/config.o $(B)/libfuzzer/lib/config/config.o: $(B)/shipped.h
$(B)/lib/config/config.o: INCLUDES += -iquote $(B)

# The beginning of the page of `spikewatch history`, with all that it runs.
$(B)/history_page.h: cli/history/page.html
	@mkdir -p $(@D)
	@{ echo 'static const unsigned char page_head[] = {'; \
		od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } > $@

$(B)/cli/history/history.o $(B)/libfuzzer/cli/history/history.o: $(B)/history_page.h
$(B)/cli/history/history.o: INCLUDES += -iquote $(B)

report: deps-page
	@rm -f $(B)/cli/report/page.h
	@$(MAKE) --no-print-directory all

ARCHIVES := $(B)/daemon.a $(B)/libspikewatch.a

$(B)/spikewatchd: $(B)/daemon/service/main.o $(ARCHIVES)
	$(call say,LINK)
	$(Q)$(LINK) $^ $(LIBS) -o $@

$(B)/spikewatch: $(B)/cli/main.o $(B)/cli.a $(ARCHIVES)
	$(call say,LINK)
	$(Q)$(LINK) $^ $(LIBS) -o $@

$(B)/spikewatch-symbolize: $(B)/daemon/symbolize/main.o $(ASAN_O) $(ARCHIVES)
	$(call say,LINK)
	$(Q)$(LINK) $^ $(LIBS) $(SYMBOL_LIBS) -o $@

$(B)/check-spikewatch: $(CHECK_O) $(TSAN_O) $(B)/cli.a $(ARCHIVES)
	$(call say,LINK)
	$(Q)$(LINK) $(TORTURE) $(NOTED) $^ $(CHECK_LIBS) $(LIBS) $(SYMBOL_LIBS) -o $@

$(FUZZ_BINS): $(B)/fuzz-%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/fuzz_main.o $(B)/cli.a $(ARCHIVES)
	$(call say,LINK)
	$(Q)$(LINK) $^ $(LIBS) $(SYMBOL_LIBS) -o $@

# The makers of incidents are a part of the tests.
$(B)/make_incident: $(B)/tests/system/check_incidentmade.o
$(B)/make_incident: TOOL_LIBS = $(CHECK_LIBS)

$(filter $(B)/bench%,$(TOOL_BINS)): $(B)/%: $(B)/tests/bench/%.o
$(filter-out $(B)/bench%,$(TOOL_BINS)): $(B)/%: $(B)/tests/programs/%.o
$(TOOL_BINS): $(ARCHIVES)
	$(call say,LINK)
	$(Q)$(LINK) $(filter %.o,$^) $(filter %.a,$^) $(TOOL_LIBS) $(LIBS) -lm -o $@

$(B)/%.so: tests/programs/%.c $(B)/flags
	$(call say,LINK)
	$(Q)$(CC) $(WARNINGS) -O2 -fPIC -shared -D_GNU_SOURCE $< -o $@

$(B)/slow_disk.so: tests/data/slow_disk/slow_disk.c tests/data/slow_disk/slow_disk.h $(B)/flags
	$(call say,LINK)
	$(Q)$(CC) -O1 -fPIC -shared -D_GNU_SOURCE $< -o $@ -ldl

# ---- what people type ----

help:
	@echo 'make              build $(B)/spikewatchd, $(B)/spikewatch, $(B)/spikewatch-symbolize and $(B)/libspikewatch.a'
	@echo 'make demo         show what it does, on this machine, within a few minutes'
	@echo 'make check        run all tests and the fuzz corpora (SUITES="ring pacer": only these suites; CHECK_JOBS=1)'
	@echo 'make bench        measure what it costs'
	@echo 'make soak         run it for long beside hostile neighbours (SECONDS=$(SECONDS) FORKS=$(FORKS)), or kill it (KILLS=1000)'
	@echo 'make lint         check the style: layers, length, banned calls, contracts, format'
	@echo 'make docs         write the reference of the configuration from the tables of the parser'
	@echo 'make fuzz         fuzz with libFuzzer (FUZZ=NAME, FUZZ_SECONDS=$(FUZZ_SECONDS) each)'
	@echo 'make install      DESTDIR, prefix=$(prefix), sysconfdir=$(sysconfdir), unitdir=$(unitdir)'
	@echo 'make uninstall    remove what install put there, except the configuration'
	@echo 'make deb          a Debian package of it: $(B)/spikewatch_$(VERSION)-1_ARCH.deb'
	@echo 'make image        an OCI image of the package: $(B)/spikewatch-$(VERSION).oci.tar'
	@echo 'make check-deb    install, upgrade, remove and purge that package in a fresh system'
	@echo 'make check-units  what systemd says of the units'
	@echo 'make check-prometheus  let a real Prometheus scrape it, and ask that what it has stored'
	@echo 'make check-pprof  let Go'\''s pprof read a profile, and compare it with what was put in'
	@echo 'make check-alarms how often the shipped rules fire in a day made of recordings of real loads'
	@echo 'make check-report  open the page of a report in a headless Chromium, and use it'
	@echo 'make check-vm     install it in machines that boot, with cgroup v2 and v1, and check it there'
	@echo 'make report       build again, with HTML reports, for which npm is installed if it is missing'
	@echo 'make deps         install the packages all of this needs (Debian, Ubuntu), if any is missing'
	@echo 'make clean        remove $(B)'
	@echo
	@echo 'B=DIR             another build directory    SANITIZE=address,undefined   CC=clang   V=1'

deps:
	@sh tests/deps.sh build page kernel lint package

# Without the page, or the program in the kernel, where it cannot be had; what is missing is said at the end.
deps-build:
	@sh tests/deps.sh build page kernel || { sh tests/deps.sh build page; sh tests/deps.sh build kernel; } || sh tests/deps.sh build

deps-deb:
	@sh tests/deps.sh build page kernel package || sh tests/deps.sh build kernel package

deps-page:
	@sh tests/deps.sh build page

deps-report:
	@sh tests/deps.sh build report

deps-fuzz:
	@sh tests/deps.sh build fuzz

check: deps-build $(PROGRAMS) $(HELPERS) $(B)/check-spikewatch $(FUZZ_BINS) $(TOOL_BINS) $(PRELOADS)
	CHECK_JOBS=$(CHECK_JOBS) SPIKEWATCH_BUILD=$(B) $(B)/check-spikewatch
	@$(foreach f,$(FUZZ),$(B)/fuzz-$(f) tests/fuzz/corpus/$(f) &&) true
	@B=$(B) sh tests/install.sh
	@B=$(B) sh tests/units.sh
	@sh tests/packages.sh
	@B=$(B) sh tests/shipped.sh
	@B=$(B) sh tests/readme.sh
	@B=$(B) sh tests/interrupted.sh
	@B=$(B) RECORDINGS=tests/data/alarms ALARM_DAY=14400 ALARM_BUDGET=1 sh tests/alarms.sh
	$(say_missing)

# The references of the configuration, from the tables of the parser and docs/config_help.h.
CONFIG_REFERENCES := docs/configuration.md docs/spikewatch.json.5

docs: $(B)/make_config_reference
	$(B)/make_config_reference $(CONFIG_REFERENCES)

demo: deps-build $(PROGRAMS) $(HELPERS) $(B)/workload_demo
	B=$(B) bash tests/demo.sh
	$(say_missing)

bench: deps-build $(PROGRAMS) $(HELPERS) $(TOOL_BINS) $(BENCH_PRELOADS)
	@B=$(B) sh tests/deps.sh peers
	@sh tests/bench/bench.sh $(BENCH_BINS)

# KILLS=ROUNDS: kill it so many times instead.
# How often the shipped rules fire in a day made of recordings of real loads.
check-alarms: deps-build $(PROGRAMS) $(B)/stretch_stream
	@B=$(B) sh tests/alarms.sh

soak: deps-build $(PROGRAMS) $(HELPERS) $(B)/workload_soak
	@B=$(B) bash tests/soak/soak.sh $(if $(KILLS),kill $(KILLS),run $(SECONDS) $(FORKS))

lint:
	@sh tests/deps.sh build lint
	@sh tests/lint.sh
	@sh tests/packages.sh

clean:
	rm -rf $(B)

# ---- libFuzzer: the same sources, compiled by clang with its instrumentation ----

FUZZER_FLAGS := -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-gnu-variable-sized-type-not-at-end
fuzzer_objects = $(patsubst %.c,$(B)/libfuzzer/%.o,$(1))
FUZZER_LIB_O := $(call fuzzer_objects,$(LIB_C) $(filter-out $(MAINS),$(DAEMON_C) $(CLI_C)))
FUZZER_O := $(call fuzzer_objects,$(FUZZ:%=tests/fuzz/fuzz_%.c))
FUZZER_BINS := $(FUZZ:%=$(B)/libfuzzer/%)

$(FUZZER_LIB_O) $(FUZZER_O): $(B)/libfuzzer/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC  )
	$(Q)$(FUZZ_CC) -std=gnu17 $(CPPFLAGS) $(WARNINGS) $(FUZZER_FLAGS) -fsanitize=fuzzer-no-link,address,undefined \
		$(TEST_INCLUDES) -MMD -MP -c $< -o $@

$(B)/libfuzzer/all.a: $(FUZZER_LIB_O)

$(FUZZER_BINS): $(B)/libfuzzer/%: $(B)/libfuzzer/tests/fuzz/fuzz_%.o $(B)/libfuzzer/all.a
	$(call say,LINK)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -pthread -Wl,--as-needed $^ $(LIBS) $(SYMBOL_LIBS) -o $@

fuzz: $(FUZZER_BINS)
	@set -e; for f in $(FUZZ); do \
		mkdir -p $(B)/libfuzzer/corpus/$$f; echo "== $$f"; \
		$(B)/libfuzzer/$$f -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -timeout=10 -print_final_stats=1 \
			-verbosity=0 -artifact_prefix=$(B)/libfuzzer/crash-$$f- $(B)/libfuzzer/corpus/$$f tests/fuzz/corpus/$$f; \
	done

# ---- install ----

MAN_PAGES := $(wildcard docs/*.1 docs/*.5 docs/*.8)
UNITS := $(wildcard systemd/*.service systemd/*.socket systemd/*.timer)
SYSUSERS := $(wildcard systemd/*sysusers*)
TMPFILES := $(wildcard systemd/*tmpfiles*)
CATALOG := $(wildcard systemd/*.catalog)
DOCS := $(wildcard README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE docs/*.md docs/*.png)
HOOKS := $(wildcard conf/hooks/*)
NOTIFY := $(wildcard conf/notify/*)
PROMETHEUS := $(wildcard conf/prometheus/*)
KUBERNETES := $(wildcard conf/kubernetes/*)
D = $(DESTDIR)
man_place = $(foreach m,$(1),$(D)$(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m)))

# An edited configuration is left alone: the shipped one then goes beside it.
install: all
	install -d $(D)$(bindir) $(D)$(sysconfdir)/spikewatch/spikewatch.d
	$(if $(PROGRAMS),install -m 755 $(PROGRAMS) $(D)$(bindir)/)
	$(if $(HELPERS),install -d $(D)$(libexecdir)/spikewatch && install -m 755 $(HELPERS) $(D)$(libexecdir)/spikewatch/)
	@conf=$(D)$(sysconfdir)/spikewatch/spikewatch.json; \
	if test -e $$conf && ! cmp -s conf/spikewatch.json $$conf; then \
		echo "$$conf differs: the shipped one is $$conf.dist"; conf=$$conf.dist; fi; \
	if test -e conf/spikewatch.json; then install -m 644 conf/spikewatch.json $$conf; fi
	$(if $(UNITS),install -m 644 -D -t $(D)$(unitdir) $(UNITS))
	$(if $(UNITS),sed -i 's|/usr/bin/spikewatch|$(bindir)/spikewatch|' $(addprefix $(D)$(unitdir)/,$(notdir $(UNITS))))
	$(if $(SYSUSERS),install -m 644 -D $(SYSUSERS) $(D)$(libdir_systemd)/sysusers.d/spikewatch.conf)
	$(if $(TMPFILES),install -m 644 -D $(TMPFILES) $(D)$(libdir_systemd)/tmpfiles.d/spikewatch.conf)
	$(if $(CATALOG),install -m 644 -D $(CATALOG) $(D)$(libdir_systemd)/systemd/catalog/spikewatch.catalog)
	@$(foreach m,$(MAN_PAGES),install -m 644 -D $(m) $(call man_place,$(m)) &&) true
	sed -i 's|/usr/share/doc/spikewatch|$(docdir)|' $(call man_place,$(MAN_PAGES))
	install -m 644 -D conf/completion/spikewatch.bash $(D)$(completiondir)/spikewatch
	ln -sf spikewatch $(D)$(completiondir)/spikewatchd
	$(if $(DOCS),install -d $(D)$(docdir) && install -m 644 $(DOCS) $(D)$(docdir)/)
	$(if $(HOOKS),install -m 644 -D -t $(D)$(docdir)/hooks $(HOOKS))
	$(if $(PROMETHEUS),install -m 644 -D -t $(D)$(docdir)/prometheus $(PROMETHEUS))
	$(if $(NOTIFY),install -m 644 -D -t $(D)$(docdir)/notify $(NOTIFY))
	$(if $(KUBERNETES),install -m 644 -D -t $(D)$(docdir)/kubernetes $(KUBERNETES))
	$(if $(DESTDIR),,@echo 'then: systemd-sysusers; systemd-tmpfiles --create spikewatch.conf; journalctl --update-catalog; \
		systemctl daemon-reload')

uninstall:
	rm -f $(D)$(bindir)/spikewatchd $(D)$(bindir)/spikewatch $(addprefix $(D)$(unitdir)/,$(notdir $(UNITS)))
	rm -f $(D)$(libdir_systemd)/sysusers.d/spikewatch.conf $(D)$(libdir_systemd)/tmpfiles.d/spikewatch.conf
	rm -f $(D)$(libdir_systemd)/systemd/catalog/spikewatch.catalog
	rm -f $(call man_place,$(MAN_PAGES)) $(D)$(sysconfdir)/spikewatch/spikewatch.json.dist
	rm -f $(D)$(completiondir)/spikewatch $(D)$(completiondir)/spikewatchd
	rm -rf $(D)$(docdir) $(D)$(libexecdir)/spikewatch
	@echo 'kept: $(D)$(sysconfdir)/spikewatch'

# ---- a Debian package, from a copy of the tree: nothing of this build, or of what make was told, gets into it, but for the page of reports, ----
# ---- because the package is built without a network ----

PACKAGED := Makefile README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE cli conf daemon docs lib systemd tests
DEB_TREE := $(B)/deb/spikewatch-$(VERSION)
# The package's build runs no tests unless it is asked to: make deb DEB_BUILD_OPTIONS=
DEB_BUILD_OPTIONS ?= nocheck

deb: deps-deb $(B)/cli/report/page.h
	rm -rf $(B)/deb
	mkdir -p $(DEB_TREE)
	cp -R $(PACKAGED) $(DEB_TREE)/
	install -D -m 644 $(B)/cli/report/page.h $(DEB_TREE)/cli/report/built/page.h
	cp -R conf/debian $(DEB_TREE)/debian
	sh conf/debian/changelog.sh $(VERSION) CHANGELOG.md > $(DEB_TREE)/debian/changelog
	cd $(DEB_TREE) && env -i PATH="$$PATH" HOME=/nonexistent LC_ALL=C.UTF-8 DEB_BUILD_OPTIONS='$(DEB_BUILD_OPTIONS)' \
		DEB_BUILD_PROFILES='$(filter nocheck,$(DEB_BUILD_OPTIONS))' dpkg-buildpackage -b -us -uc -j$$(nproc)
	rm -f $(B)/*.deb
	mv $(B)/deb/*.*deb $(B)/
	$(say_missing)

# An OCI image of the package: tens of megabytes of the release's packages are fetched.
image: deb
	@sh tests/deps.sh build deb
	@B=$(B) VERSION=$(VERSION) sh conf/container/image.sh

check-deb:
	@sh tests/deps.sh build deb
	@mkdir -p $(B)
	B=$(B) VERSION=$(VERSION) PACKAGED='$(PACKAGED)' sh tests/deb.sh

check-units: all
	@sh tests/deps.sh build units
	B=$(B) STRICT=yes sh tests/units.sh

# Two emulated machines: minutes. KEEP=1 takes their root file system from the last run.
check-vm: deb
	@sh tests/deps.sh vm
	B=$(B) bash tests/vm/check.sh

# Half a minute.
check-prometheus: all
	@sh tests/deps.sh build prometheus
	B=$(B) bash tests/prometheus.sh

check-pprof: $(B)/make_profile $(PROGRAMS) $(HELPERS) $(B)/workload_stacks
	@sh tests/deps.sh build pprof
	B=$(B) sh tests/pprof.sh

# The node_modules of the page are those of cli/report/package-lock.json.
check-report: deps-report
	@$(MAKE) --no-print-directory $(B)/spikewatch $(B)/make_incident $(B)/workload_demo $(B)/spikewatchd
	B=$(B) sh tests/report.sh

-include $(ALL_O:.o=.d) $(FUZZER_LIB_O:.o=.d) $(FUZZER_O:.o=.d)
