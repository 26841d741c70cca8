/* The configuration: what is taken, what is refused, and in which words. */
#include "lib/config/config_keys.c"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "skip.h"
#include "torture.h"
#include "lib/base/json.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <check.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

Suite *config_suite(void);

#define SHIPPED "conf/spikewatch.json"
#define TARGET "\"targets\":[{\"name\":\"db\",\"comm\":\"postgres\"},{\"name\":\"web\",\"unit\":\"web.service\"}]"
/* One rule, which begins at column 2 of line 2. */
#define RULE(members) "{" TARGET ",\"rules\":[\n {" members "}]}"
#define NAMED(members) "{\"targets\":[\n {\"name\":\"a\"," members "}]}"

static int parse(const char *text, size_t len, struct config **ret, char *line, size_t cap)
{
	const struct config_source source = { "t.json", text, len };
	struct config_error err = { .message = "" };
	int r = config_parse(&source, 1, ret, &err);

	config_error_format(&err, line, cap);
	return r;
}

static struct config *parsed(const char *text)
{
	struct config *config = NULL;
	char line[1024];
	int r = parse(text, strlen(text), &config, line, sizeof(line));

	ck_assert_msg(r == 0, "%s: %s", text, line);
	return config;
}

/* Of the last load_config. */
static char load_message[CONFIG_FILE_MESSAGE_MAX];

static int load_config(const char *path, const char *dropins, struct config **ret)
{
	return config_file_load(&(struct config_file){ .path = path, .dropins = dropins }, ret, load_message);
}

/* ---- what is refused ---- */

struct bad {
	const char *text;
	const char *line;
};

// clang-format off
static const struct bad bad_texts[] = {
	/* the text as a whole */
	{ "", "t.json: the file is empty: expected an object, { ... }" },
	{ "\n\n", "t.json:3:1: there is no value: expected an object or another JSON value" },
	{ "[]", "t.json:1:1: expected an object, found an array" },
	{ "{\n",
	  "t.json:2:1: the file ends inside an object opened at line 1: expected a key in double quotes or \"}\"" },
	{ "{}", "t.json: targets: nothing to watch: expected at least one target" },
	{ "{\"targets\":[]}", "t.json: targets: nothing to watch: expected at least one target" },
	{ "{\"rules\":[{\"name\":\"x\",\"metric\":\"cpuu\"}]}",
	  "t.json:1:32: rules[0].metric: unknown metric \"cpuu\"; did you mean \"cpu\"?" },
	{ "{\"rules\":[{\"name\":\"x\",\"metric\":\"cpu\",\"percent\":\"80%\",\"targets\":[\"q\"]}]}",
	  "t.json:1:65: rules[0].targets[0]: no target has the name \"q\"; there are none" },
	{ "{\"targets\":{}}", "t.json:1:12: targets: expected an array of objects, [ { ... } ], found an object" },
	{ "{\"sampling\":[]," TARGET "}", "t.json:1:13: sampling: expected an object, found an array" },
	/* keys */
	{ "{\n  \"sampling\": {\n    \"intervall\": \"1s\" } }",
	  "t.json:3:5: sampling.intervall: unknown key; did you mean \"interval\"?" },
	{ "{\"Rules\":[]}", "t.json:1:2: Rules: unknown key; did you mean \"rules\"?" },
	{ "{\"nonsense\":1}",
	  "t.json:1:2: nonsense: unknown key; expected one of sampling, ring, incidents, metrics, stacks, history, "
	  "state_file, proc_root, cgroup_root, runtime_root, targets, notify, rules" },
	{ "{" TARGET ",\"notify\":[{\"name\":\"a\"}]}",
	  "t.json:1:92: notify[0]: expected exactly one of \"command\" and \"socket\"" },
	{ "{" TARGET ",\"notify\":[{\"name\":\"a\",\"command\":[\"/x\"],\"socket\":\"/y\"}]}",
	  "t.json:1:92: notify[0]: expected exactly one of \"command\" and \"socket\"" },
	{ "{" TARGET ",\"notify\":[{\"name\":\"a\",\"socket\":\"\"}]}",
	  "t.json:1:113: notify[0].socket: empty: expected a path that begins with /" },
	{ "{" TARGET ",\"notify\":[{\"name\":\"a\",\"socket\":\"/y\",\"privileged\":true}]}",
	  "t.json:1:131: notify[0].privileged: a helper has rights of its own: expected it only with \"command\"" },
	{ "{" TARGET ",\"notify\":[{\"name\":\"a\",\"command\":[\"/x\"],\"input\":\"{jason}\"}]}",
	  "t.json:1:129: notify[0]: unknown placeholder at \"{jason}\": expected one of {pid}, {incident}, {rule}, {target}, "
	  "{name}, {host}, {value}, {threshold}, {time}, {headline}, {json}, or {{ for a {" },
	{ "{" TARGET ",\"notify\":[{\"name\":\"mail\",\"command\":[\"/x\"]}],\"rules\":[{\"name\":\"r\",\"metric\":\"cpu\","
	  "\"percent\":1,\"notify\":[\"mall\"]}]}",
	  "t.json:1:184: rules[0].notify[0]: \"notify\" has no entry \"mall\"; did you mean \"mail\"?" },
	{ "{" TARGET ",\"rules\":[{\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"notify\":[\"mail\"]}]}",
	  "t.json:1:140: rules[0].notify[0]: \"notify\" has no entry \"mail\"; there is none" },
	{ "{\"ring\":{\"si\\u0000ze\":1}}",
	  "t.json:1:10: ring.si\\x00ze: unknown key; expected one of path, size, page_size, lock" },
	{ "{\"ring\":{\"a\\nb\":1}}",
	  "t.json:1:10: ring.a\\x0ab: unknown key; expected one of path, size, page_size, lock" },
	{ "{\"ring\":{\"size\":\"1MiB\",\"size\":\"2MiB\"}}",
	  "t.json:1:24: duplicate key \"size\": already given at line 1, column 10" },
	/* types, units, ranges */
	{ "{\"sampling\":{\"interval\":10}}",
	  "t.json:1:25: sampling.interval: missing unit: expected a duration such as \"10ms\", found 10" },
	{ "{\"sampling\":{\"interval\":\"10\"}}",
	  "t.json:1:25: sampling.interval: missing unit: expected a duration such as \"10ms\", found \"10\"" },
	{ "{\"sampling\":{\"interval\":\"10MB\"}}",
	  "t.json:1:25: sampling.interval: expected a duration such as \"10ms\", found \"10MB\"" },
	{ "{\"sampling\":{\"interval\":true}}",
	  "t.json:1:25: sampling.interval: expected a duration such as \"10ms\", found true" },
	{ "{\"sampling\":{\"interval\":\"5us\"}}",
	  "t.json:1:25: sampling.interval: out of range: expected 100 us to 10 s, found \"5us\"" },
	{ "{\"sampling\":{\"interval\":\"11s\"}}",
	  "t.json:1:25: sampling.interval: out of range: expected 100 us to 10 s, found \"11s\"" },
	{ "{\"sampling\":{\"interval\":\"99999999999d\"}}",
	  "t.json:1:25: sampling.interval: too large: expected a duration such as \"10ms\", found \"99999999999d\"" },
	{ "{\"sampling\":{\"fds_interval\":\"1ms\"}}",
	  "t.json:1:29: sampling.fds_interval: out of range: expected 100 ms to 1 h, or 0, found \"1ms\"" },
	{ "{\"sampling\":{\"wait\":\"slep\"}}",
	  "t.json:1:21: sampling.wait: expected one of sleep, yield, spin; found \"slep\"" },
	{ "{\"sampling\":{\"reset_peaks\":\"yes\"}}",
	  "t.json:1:28: sampling.reset_peaks: expected true or false, found \"yes\"" },
	{ "{\"sampling\":{\"cpu_budget\":\"2000%\"}}",
	  "t.json:1:27: sampling.cpu_budget: out of range: expected 1% to 1600%, found \"2000%\"" },
	{ "{\"sampling\":{\"cpu_budget\":\"ten\"}}",
	  "t.json:1:27: sampling.cpu_budget: expected a percentage such as \"70%\", found \"ten\"" },
	{ "{\"sampling\":{\"max_targets\":\"5\"}}",
	  "t.json:1:28: sampling.max_targets: expected a whole number without quotes, found \"5\"" },
	{ "{\"sampling\":{\"max_targets\":1.5}}",
	  "t.json:1:28: sampling.max_targets: expected a whole number without quotes, found 1.5" },
	{ "{\"sampling\":{\"max_targets\":0}}",
	  "t.json:1:28: sampling.max_targets: out of range: expected 1 to 100000, found 0" },
	{ "{\"sampling\":{\"max_targets\":4294967297}}",
	  "t.json:1:28: sampling.max_targets: out of range: expected 1 to 100000, found 4294967297" },
	{ "{\"ring\":{\"size\":\"16\"}}",
	  "t.json:1:17: ring.size: missing unit: expected a size such as \"512MiB\", found \"16\"" },
	{ "{\"ring\":{\"page_size\":\"5KiB\"}," TARGET "}",
	  "t.json:1:22: ring.page_size: expected a power of two such as \"64KiB\", found 5 KiB" },
	{ "{\"ring\":{\"size\":\"128KiB\"}," TARGET "}",
	  "t.json:1:17: ring.size: the ring needs four pages: expected ring.size of at least 256 KiB" },
	{ "{\"ring\":{\"path\":\"ring\"}}",
	  "t.json:1:17: ring.path: expected a path that begins with /, found \"ring\"" },
	{ "{\"metrics\":{\"listen\":\"localhost:7745\"}}",
	  "t.json:1:22: metrics.listen: expected a numeric address and a port of 1 to 65535, such as "
	  "\"127.0.0.1:7745\", \"[::1]:7745\" or \"7745\", or \"\"; found \"localhost:7745\"" },
	{ "{\"metrics\":{\"listen\":7745}}",
	  "t.json:1:22: metrics.listen: expected a numeric address and a port of 1 to 65535, such as "
	  "\"127.0.0.1:7745\", \"[::1]:7745\" or \"7745\", or \"\"; found 7745" },
	{ "{\"metrics\":{\"listen\":\"[::1]:65536\"}}",
	  "t.json:1:22: metrics.listen: expected a numeric address and a port of 1 to 65535, such as "
	  "\"127.0.0.1:7745\", \"[::1]:7745\" or \"7745\", or \"\"; found \"[::1]:65536\"" },
	{ "{\"metrics\":{\"listen\":\"7745\\u0000\"}}",
	  "t.json:1:22: metrics.listen: expected a numeric address and a port of 1 to 65535, such as "
	  "\"127.0.0.1:7745\", \"[::1]:7745\" or \"7745\", or \"\"; found \"7745\\x00\"" },
	{ "{\"metrics\":{\"textfile\":\"a.prom\"}}",
	  "t.json:1:24: metrics.textfile: expected a path that begins with /, found \"a.prom\"" },
	{ "{\"metrics\":{\"textfile\":\"/a.prom.tmp\"}}",
	  "t.json:1:24: metrics.textfile: expected a path that ends in .prom, found \"/a.prom.tmp\"" },
	{ "{\"metrics\":{\"textfile\":\"/om\"}}",
	  "t.json:1:24: metrics.textfile: expected a path that ends in .prom, found \"/om\"" },
	{ "{\"metrics\":{\"textfile_interval\":\"999ms\"}}",
	  "t.json:1:33: metrics.textfile_interval: out of range: expected 1 s to 1 h, found \"999ms\"" },
	{ "{\"stacks\":{\"mode\":\"dwraf\"}}",
	  "t.json:1:19: stacks.mode: expected one of off, frame-pointers, dwarf; found \"dwraf\"" },
	{ "{\"stacks\":\"on\"}", "t.json:1:11: stacks.mode: expected one of off, frame-pointers, dwarf; found \"on\"" },
	{ "{\"stacks\":true}", "t.json:1:11: stacks: expected an object, found true" },
	{ "{\"stacks\":{\"clock\":\"tsc\"}}", "t.json:1:20: stacks.clock: expected one of cpu, cycles; found \"tsc\"" },
	{ "{\"stacks\":{\"stack_size\":\"64KiB\"}}",
	  "t.json:1:25: stacks.stack_size: out of range: expected 1 KiB to 32 KiB, found \"64KiB\"" },
	{ "{\"stacks\":{\"frequency\":1001}}",
	  "t.json:1:24: stacks.frequency: out of range: expected 1 to 1000, found 1001" },
	{ "{\"stacks\":{\"ring_size\":\"4KiB\"}}",
	  "t.json:1:24: stacks.ring_size: out of range: expected 64 KiB to 64 MiB, or 0, found \"4KiB\"" },
	{ "{\"metrics\":{\"max_targets\":10001}}",
	  "t.json:1:27: metrics.max_targets: out of range: expected 1 to 10000, found 10001" },
	{ "{\"metrics\":{\"container_labels\":\"app\"}}",
	  "t.json:1:32: metrics.container_labels: expected an array of labels such as [\"app\"], found \"app\"" },
	{ "{\"metrics\":{\"container_labels\":[7]}}",
	  "t.json:1:33: metrics.container_labels[0]: expected a label such as \"app\", found 7" },
	{ "{\"metrics\":{\"container_labels\":[\"app\",\"\"]}}",
	  "t.json:1:39: metrics.container_labels[1]: no label is called so: expected 1 to 317 visible ASCII "
	  "characters such as \"app\", found \"\"" },
	{ "{\"metrics\":{\"container_labels\":[\"a\",\"b\",\"a\"]}}",
	  "t.json:1:41: metrics.container_labels[2]: named twice: expected each label once" },
	{ "{\"metrics\":{\"container_labels\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\","
	  "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}}",
	  "t.json:1:32: metrics.container_labels: too many: expected at most 16, found 17" },
	{ "{\"proc_root\":\"\"}", "t.json:1:14: proc_root: empty: expected at least one character" },
	{ "{\"proc_root\":\"/a\\u0000b\"}",
	  "t.json:1:14: proc_root: NUL byte in a string: expected text without \\u0000" },
	{ "{\"state_file\":\"/x/..\"}", "t.json:1:15: state_file: expected the path of a file, found \"/x/..\"" },
	{ "{\"state_file\":\"/\"}", "t.json:1:15: state_file: expected the path of a file, found \"/\"" },
	{ "{\"ring\":{\"path\":\"/run/x/\"}}",
	  "t.json:1:17: ring.path: expected the path of a file, found \"/run/x/\"" },
	{ "{\"state_file\":null}", "t.json:1:15: state_file: expected a string, found null" },
	{ "{\"incidents\":{\"captures\":[\"samples\",\"thread\"]}}",
	  "t.json:1:37: incidents.captures[1]: expected one of samples, threads, status, smaps, limits, cgroup, "
	  "system; found \"thread\"" },
	{ "{\"incidents\":{\"captures\":\"all\"}}",
	  "t.json:1:26: incidents.captures: expected an array of names such as [\"samples\"], found \"all\"" },
	{ "{\"incidents\":{\"before\":\"0s\",\n\"after\":\"0s\"}," TARGET "}",
	  "t.json:1:24: incidents.before: incidents would hold nothing: expected \"before\" or \"after\" above 0" },
	{ "{\"incidents\":{\"max_size\":\"8MiB\",\"max_incident_size\":\"16MiB\"}," TARGET "}",
	  "t.json:1:53: incidents.max_incident_size: more than all incidents may take: expected at most "
	  "incidents.max_size, 8 MiB" },
	{ "{\"sampling\":{\"interval\":\"1s\",\"heartbeat\":\"500ms\"}," TARGET "}",
	  "t.json:1:42: sampling.heartbeat: shorter than sampling.interval: expected at least 1 s, found 500 ms" },
	/* targets */
	{ "{\"targets\":[1]}", "t.json:1:13: targets[0]: expected an object, found 1" },
	{ "{\"targets\":[{\"comm\":\"x\"}]}", "t.json:1:13: targets[0]: has no name: expected a member \"name\"" },
	{ "{\"targets\":[{\"name\":\"a/b\",\"comm\":\"x\"}]}",
	  "t.json:1:21: targets[0].name: becomes part of file names: expected only A-Z a-z 0-9 _ . -, found "
	  "\"a/b\"" },
	{ "{\"targets\":[{\"name\":\"\",\"comm\":\"x\"}]}",
	  "t.json:1:21: targets[0].name: empty: expected at least one character" },
	{ "{\"targets\":[{\"name\":\"a\"}]}",
	  "t.json:1:13: targets[0]: selects nothing: expected exactly one of pid, pidfile, comm, exe, cmdline, "
	  "cgroup, unit, containers" },
	{ "{\"targets\":[{\"name\":\"a\",\"comm\":\"x\",\"pid\":1}]}",
	  "t.json:1:32: targets[0].comm: a second selector beside \"pid\": expected exactly one of pid, pidfile, "
	  "comm, exe, cmdline, cgroup, unit, containers" },
	{ "{\"targets\":[{\"name\":\"a\",\"comm\":\"x\"},\n{\"name\":\"a\",\"comm\":\"y\"}]}",
	  "t.json:2:9: targets[1].name: duplicate name \"a\": already given at t.json:1:21" },
	{ NAMED("\"pid\":\"1\""),
	  "t.json:2:20: targets[0].pid: expected a process id, 1 to 4194304 without quotes, found \"1\"" },
	{ NAMED("\"pid\":0"),
	  "t.json:2:20: targets[0].pid: expected a process id, 1 to 4194304 without quotes, found 0" },
	{ NAMED("\"pidfile\":\"x.pid\""),
	  "t.json:2:24: targets[0].pidfile: expected a path that begins with /, found \"x.pid\"" },
	{ NAMED("\"comm\":\"a-very-long-process-name\""),
	  "t.json:2:21: targets[0].comm: no process has this name: the kernel cuts names to 15 bytes: expected "
	  "\"a-very-long-pro\"" },
	{ NAMED("\"containers\":\"[ab\""),
	  "t.json:2:27: targets[0].containers: [ without ] in a glob: expected a closing ]" },
	{ NAMED("\"containers\":\"\""), "t.json:2:27: targets[0].containers: empty: expected at least one character" },
	{ NAMED("\"containers\":\"*\",\"labels\":[]"),
	  "t.json:2:40: targets[0].labels: expected labels such as { \"app\": \"web-*\" }, found an array" },
	{ NAMED("\"containers\":\"*\",\"labels\":{}"),
	  "t.json:2:40: targets[0].labels: expected labels such as { \"app\": \"web-*\" }, found none" },
	{ NAMED("\"containers\":\"*\",\"labels\":{\"a b\":\"\"}"),
	  "t.json:2:41: targets[0].labels: no label is called so: expected 1 to 317 visible ASCII characters such "
	  "as \"app\", found \"a b\"" },
	{ NAMED("\"containers\":\"*\",\"labels\":{\"app\":7}"),
	  "t.json:2:47: targets[0].labels.app: expected a glob such as \"web-*\", found 7" },
	{ NAMED("\"containers\":\"*\",\"labels\":{\"app\":\"[x\"}"),
	  "t.json:2:47: targets[0].labels.app: [ without ] in a glob: expected a closing ]" },
	{ NAMED("\"comm\":\"x\",\"labels\":{\"app\":\"\"}"),
	  "t.json:2:34: targets[0].labels: only containers have labels: expected it beside \"containers\"" },
	{ NAMED("\"exe\":\"/bin/[ab\""), "t.json:2:20: targets[0].exe: [ without ] in a glob: expected a closing ]" },
	{ NAMED("\"exe\":\"/bin/a\\\\\""),
	  "t.json:2:20: targets[0].exe: a glob ends in \\: expected a character after it" },
	{ NAMED("\"cmdline\":\"a(b\""),
	  "t.json:2:24: targets[0].cmdline: expected a POSIX extended regular expression: Unmatched ( or \\(" },
	{ NAMED("\"cmdline\":\"((a{99}){99}){99}\""),
	  "t.json:2:24: targets[0].cmdline: would take too long to compile, or to match: expected fewer repetitions "
	  "within repetitions, and no \\1" },
	{ NAMED("\"cmdline\":\"a+++++++++++++++\""),
	  "t.json:2:24: targets[0].cmdline: would take too long to compile, or to match: expected fewer repetitions "
	  "within repetitions, and no \\1" },
	{ NAMED("\"cmdline\":\"(((a+)+b{9}){,9}){9,}[]+]\""),
	  "t.json:2:24: targets[0].cmdline: would take too long to compile, or to match: expected fewer repetitions "
	  "within repetitions, and no \\1" },
	{ NAMED("\"unit\":\"nginx\""),
	  "t.json:2:21: targets[0].unit: expected a unit name with its suffix, such as \"nginx.service\", found "
	  "\"nginx\"" },
	{ NAMED("\"cgroup\":\"system.slice\""),
	  "t.json:2:23: targets[0].cgroup: expected a path that begins with /, found \"system.slice\"" },
	{ NAMED("\"comm\":\"x\",\"per\":\"thread\""),
	  "t.json:2:31: targets[0].per: expected one of process, group, cgroup; found \"thread\"" },
	{ NAMED("\"comm\":\"x\",\"pre\":\"group\""),
	  "t.json:2:25: targets[0].pre: unknown key; expected one of name, per, pid, pidfile, comm, exe, cmdline, "
	  "cgroup, unit, containers, labels, run, again, tree, outside" },
	{ NAMED("\"cgroup\":\"/**\",\"outside\":1"),
	  "t.json:2:39: targets[0].outside: expected true or false, found 1" },
	{ NAMED("\"comm\":\"x\",\"tree\":1"), "t.json:2:32: targets[0].tree: expected true or false, found 1" },
	{ NAMED("\"comm\":\"x\",\"per\":\"cgroup\",\"tree\":true"),
	  "t.json:2:47: targets[0].tree: a tree is of processes, not of cgroups: expected \"per\": \"process\" or "
	  "\"group\" with it" },
	{ NAMED("\"unit\":\"x.service\",\"per\":\"group\",\"tree\":true"),
	  "t.json:2:54: targets[0].tree: a cgroup has its processes' descendants in it: expected true only with pid,"
	  " pidfile, comm, exe or cmdline" },
	/* run */
	{ NAMED("\"comm\":\"x\",\"again\":\"1ms\""),
	  "t.json:2:33: targets[0].again: out of range: expected 100 ms to 10 min, or 0, found \"1ms\"" },
	{ NAMED("\"comm\":\"x\",\"run\":{}"),
	  "t.json:2:31: targets[0].run: expected an array of objects, [ { ... } ], found an object" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\"}]"),
	  "t.json:2:32: targets[0].run[0]: has no command: expected members \"name\" and \"command\"" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":\"/bin/x\"}]"),
	  "t.json:2:54: targets[0].run[0].command: expected an array of texts such as [\"/usr/bin/gcore\", "
	  "\"{pid}\"], found \"/bin/x\"" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[]}]"),
	  "t.json:2:54: targets[0].run[0].command: expected an array of texts such as [\"/usr/bin/gcore\", "
	  "\"{pid}\"], found none" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"x\"]}]"),
	  "t.json:2:55: targets[0].run[0].command[0]: no program is searched for, no shell is asked: expected a "
	  "path that begins with / and has no placeholder, found \"x\"" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/bin/{pid}\"]}]"),
	  "t.json:2:55: targets[0].run[0].command[0]: no program is searched for, no shell is asked: expected a "
	  "path that begins with / and has no placeholder, found \"/bin/{pid}\"" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/bin/x\",\"a{pdi}\"]}]"),
	  "t.json:2:64: targets[0].run[0].command[1]: unknown placeholder at \"{pdi}\": expected one of {pid}, "
	  "{incident}, {rule}, {target}, {name}, or {{ for a {" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/bin/x\",7]}]"),
	  "t.json:2:64: targets[0].run[0].command[1]: expected a string, found 7" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"comand\":[\"/bin/x\"]}]"),
	  "t.json:2:44: targets[0].run[0].comand: unknown key; did you mean \"command\"?" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/bin/x\"],\"timeout\":\"1h\"}]"),
	  "t.json:2:75: targets[0].run[0].timeout: out of range: expected 100 ms to 10 min, found \"1h\"" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a-name-that-is-much-too-long\",\"command\":[\"/bin/x\"]}]"),
	  "t.json:2:40: targets[0].run[0].name: becomes part of a file name: expected at most 27 characters" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"]},\n{\"name\":\"a\","
	  "\"command\":[\"/x\"]}]"),
	  "t.json:3:9: targets[0].run[1].name: duplicate name \"a\": expected each command of a target to have its "
	  "own" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"],\"rules\":[\"maual\"]}]"),
	  "t.json:2:70: targets[0].run[0].rules[0]: no rule has such a name; did you mean \"manual\"?" },
	{ NAMED("\"comm\":\"x\",\"run\":[{\"name\":\"a\",\"command\":[\"/x\"],\"rules\":[]}]"),
	  "t.json:2:69: targets[0].run[0].rules: expected an array of texts such as [\"memory-*\"], found none" },
	/* rules */
	{ RULE("\"metric\":\"cpu\""), "t.json:2:2: rules[0]: has no name: expected a member \"name\"" },
	{ RULE("\"name\":\"r\""), "t.json:2:2: rules[0]: has no metric: expected a member \"metric\"" },
	{ RULE("\"name\":\"r\",\"cool_down\":\"1s\""),
	  "t.json:2:14: rules[0].cool_down: unknown key; did you mean \"cooldown\"?" },
	{ RULE("\"name\":\"r\",\"metric\":\"memry\""),
	  "t.json:2:23: rules[0].metric: unknown metric \"memry\"; did you mean \"memory\"?" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\""),
	  "t.json:2:2: rules[0]: has no threshold and would never fire: expected \"percent\" or \"delta\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"threads\",\"minimum\":1"),
	  "t.json:2:2: rules[0]: has no threshold and would never fire: expected \"above\" or \"delta\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"above\":1"),
	  "t.json:2:37: rules[0].above: \"cpu\" is a percentage: expected \"percent\": \"80%\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"memory_bytes\",\"percent\":1"),
	  "t.json:2:48: rules[0].percent: \"memory_bytes\" is no percentage: expected \"above\": \"512MiB\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"memory_bytes\",\"above\":1"),
	  "t.json:2:46: rules[0].above: missing unit: expected a size such as \"512MiB\", found 1" },
	{ RULE("\"name\":\"r\",\"metric\":\"threads\",\"above\":\"9\""),
	  "t.json:2:41: rules[0].above: expected a number of at least 0, without unit and quotes, found \"9\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":-1"),
	  "t.json:2:39: rules[0].percent: expected a percentage such as \"70%\", found -1" },
	/* no value is ever so high */
	{ RULE("\"name\":\"r\",\"metric\":\"memory_bytes\",\"above\":\"18446744073709551615B\""),
	  "t.json:2:46: rules[0].above: out of range: expected at most 1048576 TiB" },
	{ RULE("\"name\":\"r\",\"metric\":\"threads\",\"above\":1e308"),
	  "t.json:2:41: rules[0].above: out of range: expected at most 4194303" },
	{ RULE("\"name\":\"r\",\"metric\":\"threads\",\"delta\":50,\"minimum\":4194304"),
	  "t.json:2:54: rules[0].minimum: out of range: expected at most 4194303" },
	{ RULE("\"name\":\"r\",\"metric\":\"fds\",\"above\":1e16"),
	  "t.json:2:37: rules[0].above: out of range: expected at most 4503599627370496" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu_cores\",\"above\":65537"),
	  "t.json:2:43: rules[0].above: out of range: expected at most 65536" },
	{ RULE("\"name\":\"r\",\"metric\":\"faults\",\"above\":1e14"),
	  "t.json:2:40: rules[0].above: out of range: expected at most 65536000000000" },
	{ RULE("\"name\":\"r\",\"metric\":\"throttled\",\"percent\":100"),
	  "t.json:2:45: rules[0].percent: the rule could never fire: expected less than 100%" },
	{ RULE("\"name\":\"r\",\"metric\":\"throttled\",\"delta\":50,\"minimum\":100.5"),
	  "t.json:2:56: rules[0].minimum: the rule could never fire: expected at most 100%" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1e9"),
	  "t.json:2:39: rules[0].percent: out of range: expected at most 100000%" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"delta\":0"),
	  "t.json:2:37: rules[0].delta: every window would fire: expected more than 0%" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":90,\"maximum\":80"),
	  "t.json:2:52: rules[0].maximum: \"percent\" could never fire: expected more than \"percent\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"delta\":9,\"minimum\":5,\"maximum\":5"),
	  "t.json:2:61: rules[0].maximum: the rule could never fire: expected more than \"minimum\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"window\":\"999us\""),
	  "t.json:2:50: rules[0].window: out of range: expected 1 ms to 1 h, found \"999us\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"db\"],\"window\":\"15ms\""),
	  "t.json:2:67: rules[0].window: too short for \"cpu\": expected at least 20 ms, twice sampling.interval "
	  "(10 ms)" },
	{ RULE("\"name\":\"r\",\"metric\":\"faults\",\"above\":1,\"window\":\"150ms\""),
	  "t.json:2:51: rules[0].window: too short for \"faults\": expected at least 200 ms, twice "
	  "sampling.cgroup_interval (100 ms)" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"window\":\"15ms\""),
	  "t.json:2:50: rules[0].window: too short for \"cpu\": expected at least 20 ms, twice sampling.interval "
	  "(10 ms)" },
	{ "{\"sampling\":{\"source\":\"files\"},\"targets\":[{\"name\":\"db\",\"unit\":\"x.service\"}],\n"
	  "\"rules\":[{\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"window\":\"150ms\"}]}",
	  "t.json:2:58: rules[0].window: too short for \"cpu\": expected at least 200 ms, twice "
	  "sampling.cgroup_interval (100 ms)" },
	{ RULE("\"name\":\"r\",\"metric\":\"fds\",\"above\":1,\"window\":\"500ms\""),
	  "t.json:2:48: rules[0].window: too short for \"fds\": expected at least 1 s, one sampling.fds_interval (1 "
	  "s)" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"warmup\":5,\"history\":4"),
	  "t.json:2:50: rules[0].warmup: the rule would never warm up: expected at most \"history\", 4" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"delta\":1,\"warmup\":0"),
	  "t.json:2:48: rules[0].warmup: \"delta\" needs an average: expected at least 1" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"history\":1001"),
	  "t.json:2:51: rules[0].history: out of range: expected 1 to 1000, found 1001" },
	{ RULE("\"name\":\"r\",\"metric\":\"threads\",\"above\":1,\"of\":\"core\""),
	  "t.json:2:48: rules[0].of: means nothing for \"threads\": expected it only with \"cpu\" and \"memory\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"memory\",\"percent\":1,\"of\":\"core\""),
	  "t.json:2:49: rules[0].of: memory has no cores: expected \"limit\" or \"machine\"" },
	{ "{\"sampling\":{\"source\":\"files\"},\"targets\":[{\"name\":\"db\",\"comm\":\"x\"}],\n"
	  "\"rules\":[{\"name\":\"r\",\"metric\":\"cpu_wait\",\"percent\":1}]}",
	  "t.json:2:31: rules[0].metric: \"cpu_wait\" comes from the scheduler's switches, which \"source\": \"files\" "
	  "of sampling leaves out: expected \"auto\" or \"kernel\" there" },
	{ RULE("\"name\":\"r\",\"metric\":\"throttled\",\"percent\":1,\"targets\":[\"db\"]"),
	  "t.json:2:23: rules[0].metric: \"throttled\" is a metric of cgroups, but all targets are processes: "
	  "expected one with \"per\": \"cgroup\" among db" },
	{ "{\"targets\":[{\"name\":\"db\",\"comm\":\"x\"}],\n"
	  "\"rules\":[{\"name\":\"r\",\"metric\":\"throttled\",\"percent\":1}]}",
	  "t.json:2:31: rules[0].metric: \"throttled\" is a metric of cgroups, but all targets are processes: "
	  "expected one with \"per\": \"cgroup\" among db" },
	{ RULE("\"name\":\"r\",\"metric\":\"threads\",\"above\":1,\"targets\":[\"web\"]"),
	  "t.json:2:23: rules[0].metric: \"threads\" is a metric of processes, but all targets are cgroups (they "
	  "have \"pids\"): expected one with \"per\": \"process\" or \"group\" among web" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"db\",\"wev\"]"),
	  "t.json:2:57: rules[0].targets[1]: no target has the name \"wev\"; did you mean \"web\"?" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"nothing\"]"),
	  "t.json:2:52: rules[0].targets[0]: no target has the name \"nothing\"; there are db, web" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"db\",\"db\"]"),
	  "t.json:2:57: rules[0].targets[1]: \"db\" twice: expected each target once" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[]"),
	  "t.json:2:51: rules[0].targets: empty: expected \"*\" for all, or at least one name" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":\"db\""),
	  "t.json:2:51: rules[0].targets: expected \"*\" or an array of names such as [\"db\"], found \"db\"" },
	{ RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1},\n{\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1"),
	  "t.json:3:9: rules[1].name: duplicate name \"r\": already given at t.json:2:10" },
	{ "{" TARGET ",\"sampling\":{\"fds_interval\":\"0s\"},\"rules\":[{\"name\":\"r\",\"metric\":\"fds\","
	  "\"above\":1}]}",
	  "t.json:1:145: rules[0].metric: descriptors are never counted: expected sampling.fds_interval above 0" },
};
// clang-format on

START_TEST(bad_text_is_refused_with_place_key_and_expectation)
{
	const struct bad *bad = &bad_texts[_i];
	struct config *config = NULL;
	char line[1024];

	ck_assert_int_eq(parse(bad->text, strlen(bad->text), &config, line, sizeof(line)), -EINVAL);
	ck_assert_str_eq(line, bad->line);
	ck_assert_ptr_null(config);
}
END_TEST

/* One entry a line; the last says more. */
static size_t write_trees(int count, char *text, size_t cap)
{
	size_t len = (size_t)snprintf(text, cap, "{\"targets\":[");

	for (int i = 0; i < count; i++)
		len += (size_t)snprintf(text + len, cap - len, "%s\n{\"name\":\"t%d\",\"pid\":%d,\"tree\":true}",
					i ? "," : "", i, i + 1);

	return len + (size_t)snprintf(text + len, cap - len, "]}");
}

/* What is valid and cannot match, and what may. */
START_TEST(entries_that_cannot_match_are_doubted)
{
	static const struct {
		const char *entry, *why;
	} cases[] = {
		{ "\"comm\": \"python3*\"", "compared as it is" },
		{ "\"comm\": \"/bin/sh\"", "without a directory" },
		{ "\"unit\": \"ngnix.servce\"", "no unit of this type" },
		{ "\"unit\": \"backup.timer\"", "no unit of this type" },
		{ "\"cgroup\": \"/web/\"", "empty part" },
		{ "\"cgroup\": \"/sys/fs/cgroup/web\"", "below the root of the hierarchy" },
		{ "\"comm\": \"kworker/0:1\"", NULL },
		{ "\"unit\": \"nginx.service\"", NULL },
		{ "\"unit\": \"user-*\"", NULL },
		{ "\"unit\": \"*.slice\"", NULL },
		{ "\"cgroup\": \"/\"", NULL },
		{ "\"cgroup\": \"/**\"", NULL },
		{ "\"exe\": \"/usr/bin/python3*\"", NULL },
		{ "\"cmdline\": \"^/usr/sbin/.*\"", NULL },
		{ "\"pid\": 1", NULL },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[256], why[256] = "";
		struct config *config;

		snprintf(text, sizeof(text), "{\"targets\": [{\"name\": \"a\", %s}]}", cases[i].entry);
		config = parsed(text);
		ck_assert_msg(config_target_doubt(&config->targets[0], why, sizeof(why)) == (cases[i].why != NULL),
			      "%s: %s", cases[i].entry, why);
		ck_assert_msg(!cases[i].why || strstr(why, cases[i].why), "%s: %s", cases[i].entry, why);
		config_free(config);
	}
}
END_TEST

START_TEST(trees_are_numbered_and_so_limited)
{
	static char text[8192];
	struct config *config = NULL;
	char line[1024];

	ck_assert_int_eq(parse(text, write_trees(CONFIG_TREES_MAX, text, sizeof(text)), &config, line, sizeof(line)),
			 0);
	ck_assert(config->targets[CONFIG_TREES_MAX - 1].tree);
	config_free(config);
	config = NULL;
	ck_assert_int_eq(
		parse(text, write_trees(CONFIG_TREES_MAX + 1, text, sizeof(text)), &config, line, sizeof(line)),
		-EINVAL);
	ck_assert_str_eq(line, "t.json:66:31: targets[64].tree: more than 64 entries with a tree");
}
END_TEST

START_TEST(usual_expressions_are_cheap_and_explosive_ones_are_not)
{
	static const char *const cheap[] = {
		"^/usr/bin/java .*org\\.apache\\.kafka\\.Kafka( .*)?$",
		"(python|ruby)[0-9.]* (-[a-zA-Z]+( [^ ]*)?)*celery .*worker",
		"a{1000}",
		"[]+]{3}",
		"\\++",
		"[\\1]\\0\\\\1",
		"",
		"(",
		"a{",
		"a{x}",
		"[",
		"\\",
	};
	static const char *const explosive[] = {
		"(.*)-\\1x",
		"a++++++++++++",
		"((a{99}){99}){99}",
		"a{3000}",
		"a{,3000}",
		"a{9999999999999999999999}",
		"(a*?*?){250}",
		"(((((((((((((((((((((((((((((((a)))))))))))))))))))))))))))))))",
		"a?*?a?*?a?*?a?*?a?*?a?*?a?*?a?*?a?*?a?*?a?*?",
	};

	for (size_t i = 0; i < ARRAY_LEN(cheap); i++)
		ck_assert_msg(config_regex_is_cheap(cheap[i]), "%s", cheap[i]);
	for (size_t i = 0; i < ARRAY_LEN(explosive); i++)
		ck_assert_msg(!config_regex_is_cheap(explosive[i]), "%s", explosive[i]);
}
END_TEST

START_TEST(nesting_ten_thousand_deep_is_refused)
{
	static char text[20000] = "{\"targets\":";
	struct config *config = NULL;
	char line[1024];

	memset(text + strlen(text), '[', 10000);
	ck_assert_int_eq(parse(text, strlen(text), &config, line, sizeof(line)), -EINVAL);
	ck_assert_str_eq(line, "t.json:1:27: nested too deep: expected at most 16 levels");
}
END_TEST

/* ---- what is taken ---- */

START_TEST(labels_are_taken)
{
	struct config *config =
		parsed("{\"metrics\":{\"container_labels\":[\"app\",\"team\"]},\"targets\":["
		       "{\"name\":\"a\",\"containers\":\"*\",\"labels\":{\"app\":\"web-*\",\"tier\":\"\"}},"
		       "{\"name\":\"b\",\"containers\":\"*\"}]}");

	ck_assert_uint_eq(config->metrics.container_label_count, 2);
	ck_assert_str_eq(config->metrics.container_labels[1], "team");
	ck_assert_uint_eq(config->targets[0].label_count, 2);
	ck_assert_str_eq(config->targets[0].labels[0].key, "app");
	ck_assert_str_eq(config->targets[0].labels[0].pattern, "web-*");
	ck_assert_str_eq(config->targets[0].labels[1].pattern, "*");
	ck_assert_uint_eq(config->targets[1].label_count, 0);
	config_free(config);
}
END_TEST

START_TEST(whole_configuration_is_taken)
{
	struct config *config = parsed(
		"{\"sampling\":{\"interval\":\"1ms\",\"fds_interval\":0,\"wait\":\"spin\",\"cpu_budget\":12.5},"
		"\"ring\":{\"page_size\":\"4KiB\"},\"incidents\":{\"captures\":[\"samples\",\"system\"]},"
		"\"metrics\":{\"listen\":\"[::]:7745\",\"textfile\":\"/t/a.prom\",\"textfile_interval\":\"1m\","
		"\"max_targets\":7},\"stacks\":{\"mode\":\"frame-pointers\",\"frequency\":7,\"ring_size\":\"2MiB\","
		"\"max_memory\":\"32MiB\"},"
		"\"proc_root\":\"/host/proc\",\"targets\":["
		"{\"name\":\"a\",\"pid\":7},{\"name\":\"b\",\"unit\":\"x.service\"},"
		"{\"name\":\"c\",\"unit\":\"y*\",\"per\":\"group\"}],"
		"\"rules\":[{\"name\":\"r\",\"targets\":[\"b\",\"a\"],\"metric\":\"cpu\",\"of\":\"machine\","
		"\"percent\":"
		"\"80%\",\"delta\":50,\"minimum\":5,\"maximum\":\"1000%\",\"for\":\"1s\",\"cooldown\":\"0\",\"count\":"
		"3,"
		"\"count_period\":\"0s\",\"rearm\":\"high-water\"},"
		"{\"name\":\"s\",\"metric\":\"memory_bytes\",\"above\":\"1GiB\",\"targets\":\"*\"}]}");
	const struct config_rule *rule = &config->rules[0];

	ck_assert_uint_eq(config->sampling.interval_ns, NS_PER_MS);
	ck_assert_uint_eq(config->sampling.fds_interval_ns, 0);
	ck_assert_int_eq(config->sampling.wait, CONFIG_WAIT_SPIN);
	ck_assert_double_eq(config->sampling.cpu_budget_percent, 12.5);
	ck_assert_uint_eq(config->ring.page_bytes, 4096);
	ck_assert_uint_eq(config->incidents.captures, CONFIG_CAPTURE_SAMPLES | CONFIG_CAPTURE_SYSTEM);
	ck_assert_str_eq(config->metrics.listen, "[::]:7745");
	ck_assert_str_eq(config->metrics.metrics_file, "/t/a.prom");
	ck_assert_uint_eq(config->metrics.metrics_file_interval_ns, 60 * NS_PER_S);
	ck_assert_uint_eq(config->metrics.max_targets, 7);
	ck_assert_int_eq(config->stacks.mode, CONFIG_STACKS_FRAME_POINTERS);
	ck_assert_uint_eq(config->stacks.frequency, 7);
	ck_assert_uint_eq(config->stacks.ring_bytes, 2 << 20);
	ck_assert_uint_eq(config->stacks.max_memory_bytes, 32 << 20);
	ck_assert_str_eq(config->proc_root, "/host/proc");
	ck_assert_uint_eq(config->target_count, 3);
	ck_assert_int_eq(config->targets[0].selector, CONFIG_PID);
	ck_assert_int_eq(config->targets[0].pid, 7);
	ck_assert_int_eq(config->targets[0].per, CONFIG_PER_PROCESS);
	ck_assert_int_eq(config->targets[1].per, CONFIG_PER_CGROUP);
	ck_assert_str_eq(config->targets[1].pattern, "x.service");
	ck_assert_int_eq(config->targets[2].per, CONFIG_PER_GROUP);
	ck_assert_uint_eq(config->rule_count, 2);
	ck_assert_str_eq(rule->name, "r");
	ck_assert_uint_eq(rule->target_count, 2);
	ck_assert_str_eq(rule->targets[0], "b");
	ck_assert_int_eq(rule->metric, METRIC_CPU);
	ck_assert_int_eq(rule->of, METRIC_OF_MACHINE);
	ck_assert(rule->trigger.has_percent && rule->trigger.has_delta && rule->trigger.has_minimum);
	ck_assert_double_eq(rule->trigger.percent, 80);
	ck_assert_double_eq(rule->trigger.delta, 50);
	ck_assert_double_eq(rule->trigger.minimum, 5);
	ck_assert_double_eq(rule->trigger.maximum, 1000);
	ck_assert_uint_eq(rule->trigger.for_ns, NS_PER_S);
	ck_assert_uint_eq(rule->trigger.cooldown_ns, 0);
	ck_assert_uint_eq(rule->trigger.count, 3);
	ck_assert_uint_eq(rule->trigger.count_period_ns, 0);
	ck_assert_int_eq(rule->trigger.rearm, TRIGGER_REARM_HIGH_WATER);
	ck_assert_uint_eq(config->rules[1].target_count, 0);
	ck_assert(!config->rules[1].trigger.has_delta && !config->rules[1].trigger.has_minimum);
	ck_assert_double_eq(config->rules[1].trigger.percent, 1073741824);
	config_free(config);
	config_free(NULL);
}
END_TEST

START_TEST(defaults_give_way_to_what_was_written)
{
	struct config *config =
		parsed("{\"sampling\":{\"interval\":\"5s\"},\"incidents\":{\"max_size\":\"8MiB\"}," TARGET
		       ",\"rules\":[{\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"history\":3,"
		       "\"window\":\"10s\"},{\"name\":\"s\",\"metric\":\"cpu\",\"percent\":1,"
		       "\"warmup\":30,\"window\":\"10s\"}]}");

	ck_assert_uint_eq(config->sampling.heartbeat_ns, 5 * NS_PER_S);
	ck_assert_uint_eq(config->sampling.cgroup_interval_ns, 5 * NS_PER_S);
	ck_assert_uint_eq(config->sampling.limits_interval_ns, 5 * NS_PER_S);
	ck_assert_uint_eq(config->incidents.max_incident_bytes, 8 << 20);
	ck_assert_uint_eq(config->rules[0].trigger.warmup, 3);
	ck_assert_uint_eq(config->rules[1].trigger.history, 30);
	config_free(config);
}
END_TEST

static void idle_is(const char *text, uint64_t idle_ns, uint64_t of_a_ns, uint64_t grid_ns)
{
	struct config *config = parsed(text);

	ck_assert_uint_eq(config_idle_ns(config), idle_ns);
	ck_assert_uint_eq(config_idle_of(config, config->targets[0].name), of_a_ns);
	ck_assert_uint_eq(config_idle_grid_ns(config), grid_ns);
	config_free(config);
}

#define WINDOW(name, length, targets) \
	"{\"name\":\"" name "\",\"metric\":\"cpu\",\"percent\":1,\"window\":\"" length "\",\"targets\":" targets "}"

START_TEST(idle_pauses_are_a_part_of_every_window)
{
	const uint64_t ms = NS_PER_MS;

	idle_is("{" TARGET "}", 100 * ms, 100 * ms, 100 * ms);
	idle_is("{\"sampling\":{\"idle_interval\":\"0s\"}," TARGET "}", 0, 0, 0);
	idle_is("{\"sampling\":{\"idle_interval\":\"10ms\"}," TARGET "}", 0, 0, 0);
	idle_is("{\"sampling\":{\"interval\":\"1s\"}," TARGET "}", 0, 0, 0);
	idle_is("{\"sampling\":{\"heartbeat\":\"50ms\"}," TARGET "}", 50 * ms, 50 * ms, 50 * ms);
	idle_is("{" TARGET ",\"rules\":[" WINDOW("r", "200ms", "\"*\"") "]}", 100 * ms, 50 * ms, 100 * ms);
	idle_is("{" TARGET ",\"rules\":[" WINDOW("r", "200ms", "[\"web\"]") "]}", 100 * ms, 100 * ms, 100 * ms);
	idle_is("{" TARGET ",\"rules\":[" WINDOW("r", "1s", "\"*\"") "," WINDOW("s", "700ms", "[\"db\"]") "]}",
		100 * ms, 100 * ms, 100 * ms);
	idle_is("{\"sampling\":{\"idle_interval\":\"70ms\"}," TARGET ",\"rules\":[" WINDOW("r", "1s", "\"*\"") "]}",
		70 * ms, 70 * ms, 62500000);
	/* Windows that have no long part in common. */
	idle_is("{" TARGET ",\"rules\":[" WINDOW("r", "1s", "\"*\"") "," WINDOW("s", "1001ms", "\"*\"") "]}", 100 * ms,
		100 * ms, 0);
}
END_TEST

static void read_is(const char *text, uint64_t read_ns)
{
	struct config *config = parsed(text);

	ck_assert_uint_eq(config_read_ns(config), read_ns);
	config_free(config);
}

START_TEST(ticks_wait_for_a_tenth_of_the_shortest_window_at_most)
{
	const uint64_t ms = NS_PER_MS;

	read_is("{" TARGET "}", 100 * ms);
	read_is("{\"sampling\":{\"read_interval\":\"0s\"}," TARGET "}", 0);
	read_is("{" TARGET ",\"rules\":[" WINDOW("r", "1s", "\"*\"") "]}", 100 * ms);
	read_is("{\"sampling\":{\"read_interval\":\"50ms\"}," TARGET ",\"rules\":[" WINDOW("r", "1s", "\"*\"") "]}",
		50 * ms);
	read_is("{" TARGET ",\"rules\":[" WINDOW("r", "1s", "\"*\"") "," WINDOW("s", "200ms", "[\"db\"]") "]}",
		20 * ms);
}
END_TEST

static int parse_two(const char *a, const char *b, struct config **ret, char *line, size_t cap)
{
	const struct config_source sources[] = { { "a.json", a, strlen(a) }, { "b.json", b, strlen(b) } };
	struct config_error err = { .message = "" };
	int r = config_parse(sources, 2, ret, &err);

	config_error_format(&err, line, cap);
	return r;
}

START_TEST(later_source_wins_key_by_key_and_adds_entries)
{
	struct config *config = NULL;
	char line[1024];

	ck_assert_int_eq(
		parse_two("{\"sampling\":{\"interval\":\"1ms\",\"heartbeat\":\"2s\"},"
			  "\"targets\":[{\"name\":\"a\",\"pid\":1}]}",
			  "{\"sampling\":{\"interval\":\"2ms\"},\"targets\":[{\"name\":\"b\",\"pid\":2}],\"rules\":[{"
			  "\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"a\",\"b\"]}]}",
			  &config, line, sizeof(line)),
		0);
	ck_assert_uint_eq(config->sampling.interval_ns, 2 * NS_PER_MS);
	ck_assert_uint_eq(config->sampling.heartbeat_ns, 2 * NS_PER_S);
	ck_assert_uint_eq(config->target_count, 2);
	ck_assert_str_eq(config->targets[1].name, "b");
	ck_assert_uint_eq(config->rules[0].target_count, 2);
	config_free(config);
}
END_TEST

START_TEST(conflict_between_sources_names_both)
{
	struct config *config = NULL;
	char line[1024];

	ck_assert_int_eq(
		parse_two("{" TARGET "}", "{\n\"targets\":[{\"name\":\"db\",\"pid\":1}]}", &config, line, sizeof(line)),
		-EINVAL);
	ck_assert_str_eq(line, "b.json:2:20: targets[0].name: duplicate name \"db\": already given at a.json:1:21");
	ck_assert_int_eq(parse_two("{\"sampling\":{\"heartbeat\":\"10ms\"}," TARGET "}",
				   "{\"sampling\":{\"interval\":\"1s\"}}", &config, line, sizeof(line)),
			 -EINVAL);
	ck_assert_str_eq(line,
			 "a.json:1:26: sampling.heartbeat: shorter than sampling.interval: expected at least 1 s, "
			 "found 10 ms");
	ck_assert_int_eq(parse_two("{" TARGET "}", "{\"oops\":1}", &config, line, sizeof(line)), -EINVAL);
	ck_assert_msg(strncmp(line, "b.json:1:2: oops: unknown key", 29) == 0, "%s", line);
}
END_TEST

START_TEST(names_are_those_of_the_configuration)
{
	ck_assert_str_eq(config_selector_name(CONFIG_CMDLINE), "cmdline");
	ck_assert_str_eq(config_capture_name(CONFIG_CAPTURE_SYSTEM), "system");
	ck_assert_ptr_null(config_capture_name(CONFIG_CAPTURE_ALL));
}
END_TEST

/* ---- the shipped file, and the documentation ---- */

static void read_file(const char *name, struct buffer *ret)
{
	AUTO_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC);
	char block[4096];
	ssize_t n;

	ck_assert_msg(fd >= 0, "%s", name);
	while ((n = read(fd, block, sizeof(block))) > 0)
		ck_assert_int_eq(buffer_append(ret, block, (size_t)n), 0);
}

static void assert_default(const struct config_field *field, const struct json_node *object, const void *value,
			   const void *initial)
{
	const char *at = (const char *)value + field->offset;
	const char *expected = (const char *)initial + field->offset;

	ck_assert_msg(json_member(object, field->key) != NULL, "%s.%s is not shown", field->section, field->key);
	if (field->kind == CONFIG_KIND_PATH || field->kind == CONFIG_KIND_LISTEN)
		ck_assert_str_eq(*(char *const *)(const void *)at, *(char *const *)(const void *)expected);
	else
		ck_assert_msg(memcmp(at, expected, field->size) == 0, "%s.%s is no default", field->section,
			      field->key);
}

/*
 * The rule that the comments of the shipped file show, with a target that it can have: from "//
 * {" to "//     }".
 */
static char *commented_rule(const char *text)
{
	const char *at = strstr(text, "//     {\n"), *end = strstr(text, "//     }\n");
	char *rule = calloc(1, strlen(text) + 128);
	size_t len;

	ck_assert(rule && at && end && at < end);
	len = (size_t)snprintf(rule, 128, "%s", "{" TARGET ", \"rules\": [");
	while (at <= end) {
		const char *line = at + strlen("//"), *next = strchr(line, '\n') + 1;

		memcpy(rule + len, line, (size_t)(next - line));
		len += (size_t)(next - line);
		at = strstr(next, "//");
	}
	memcpy(rule + len, "]}", 3);

	return rule;
}

START_TEST(shipped_file_shows_every_option_at_its_default)
{
	struct buffer text = { 0 };
	struct json_document *document, *rule_document;
	struct config *config = NULL, *rule_config;
	struct config initial = { 0 };
	struct config_rule initial_rule = { 0 };
	const struct json_node *root, *rule;

	read_file(SHIPPED, &text);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	text.len--;

	char *rule_text = commented_rule(text.data);

	rule_config = parsed(rule_text);
	ck_assert_int_eq(json_parse(rule_text, strlen(rule_text), NULL, &rule_document, NULL), 0);
	rule = json_member(json_root(rule_document), "rules")->first;
	ck_assert_int_eq(load_config(SHIPPED, NULL, &config), 0);
	ck_assert_int_eq(json_parse(text.data, text.len, NULL, &document, NULL), 0);
	root = json_root(document);
	config_section_defaults(&initial);
	config_field_defaults(config_rule_fields, config_rule_field_count, &initial_rule);
	for (size_t i = 0; i < config_section_field_count; i++) {
		const char *section = config_section_fields[i].section;

		assert_default(&config_section_fields[i], section[0] != '\0' ? json_member(root, section) : root,
			       config, &initial);
	}
	ck_assert_uint_eq(config->incidents.captures, initial.incidents.captures);
	for (size_t i = 0; i < config_rule_field_count; i++)
		if (config_rule_fields[i].kind != CONFIG_KIND_OTHER)
			assert_default(&config_rule_fields[i], rule, &rule_config->rules[0], &initial_rule);
	ck_assert_uint_ge(config->target_count, 1);
	ck_assert_uint_ge(config->rule_count, 3);
	json_document_free(rule_document);
	config_free(rule_config);
	free(rule_text);
	json_document_free(document);
	config_free(config);
	buffer_release(&text);
}
END_TEST

START_TEST(each_prefix_of_the_shipped_file_is_refused)
{
	struct buffer text = { 0 };
	size_t whole;

	read_file(SHIPPED, &text);
	whole = text.len;
	while (text.data[whole - 1] != '}')
		whole--;
	for (size_t len = 0; len < whole; len++) {
		struct config *config = NULL;
		char line[1024];

		ck_assert_int_eq(parse(text.data, len, &config, line, sizeof(line)), -EINVAL);
		ck_assert_msg(len == 0 || strncmp(line, "t.json:", 7) == 0, "%zu: %s", len, line);
	}
	buffer_release(&text);
}
END_TEST

START_TEST(documentation_describes_every_key)
{
	struct buffer text = { 0 };
	char term[64];

	read_file("docs/configuration.md", &text);
	ck_assert_int_eq(buffer_append(&text, "", 1), 0);
	for (size_t i = 0; i < config_section_field_count; i++) {
		snprintf(term, sizeof(term), "`%s`", config_section_fields[i].key);
		ck_assert_msg(strstr(text.data, term) != NULL, "%s", term);
		snprintf(term, sizeof(term), "`%s` †", config_section_fields[i].key);
		ck_assert_msg((strstr(text.data, term) != NULL) ==
				      (config_section_fields[i].change == CONFIG_CHANGE_RESTART),
			      "%s", term);
	}
	for (size_t i = 0; i < config_rule_field_count; i++) {
		snprintf(term, sizeof(term), "`%s`", config_rule_fields[i].key);
		ck_assert_msg(strstr(text.data, term) != NULL, "%s", term);
	}
	for (unsigned i = 0; i < METRICS; i++) {
		snprintf(term, sizeof(term), "`%s`", metric_name((enum metric)i));
		ck_assert_msg(strstr(text.data, term) != NULL, "%s", term);
	}
	buffer_release(&text);
}
END_TEST

/* ---- files ---- */

static char directory[64];

static void make_directory(void)
{
	snprintf(directory, sizeof(directory), "/tmp/check_config.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

static const char *path(const char *name)
{
	static char paths[4][128];
	static int next;
	char *buf = paths[next++ % 4];

	snprintf(buf, sizeof(paths[0]), "%s/%s", directory, name);
	return buf;
}

static void write_file(const char *name, const char *text)
{
	AUTO_CLOSE int fd = open(path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sink_write_all(fd, text, strlen(text)), 0);
}

static void assert_refused(const char *file, const char *dropins, const char *name, const char *message)
{
	struct config *config = NULL;

	ck_assert_int_eq(load_config(file, dropins, &config), -EINVAL);
	ck_assert_int_eq(strncmp(load_message, name, strlen(name)), 0);
	ck_assert_int_eq(load_message[strlen(name)], ':');
	ck_assert_str_eq(load_message + strlen(load_message) - strlen(message), message);
	ck_assert_ptr_null(config);
}

START_TEST(file_that_cannot_be_read_is_refused)
{
	write_file("empty", "");
	ck_assert_int_eq(mkfifo(path("fifo"), 0600), 0);
	assert_refused(path("none"), NULL, path("none"), "cannot be opened: No such file or directory");
	assert_refused(directory, NULL, directory, "is a directory: expected a file");
	assert_refused(path("fifo"), NULL, path("fifo"), "is no regular file: expected a file");
	assert_refused(path("empty"), NULL, path("empty"), "the file is empty: expected an object, { ... }");
	assert_refused("/dev/zero", NULL, "/dev/zero", "is no regular file: expected a file");
}
END_TEST

START_TEST(file_without_permission_is_refused)
{
	if (geteuid() == 0)
		SKIP_TEST("root may read every file");
	write_file("secret", "{}");
	ck_assert_int_eq(chmod(path("secret"), 0), 0);
	assert_refused(path("secret"), NULL, path("secret"), "cannot be opened: Permission denied");
}
END_TEST

START_TEST(file_of_a_hundred_megabytes_is_refused_unread)
{
	write_file("huge", "");
	ck_assert_int_eq(truncate(path("huge"), 100000000), 0);
	assert_refused(path("huge"), NULL, path("huge"), "too large: 100000000 bytes, expected at most 1048576");
	/* Of these the size says nothing. */
	assert_refused("/proc/kallsyms", NULL, "/proc/kallsyms", "too large: expected at most 1048576 bytes");
}
END_TEST

START_TEST(dropins_are_read_by_name)
{
	struct config *config = NULL;

	write_file("main", "{" TARGET ",\"sampling\":{\"interval\":\"1ms\"}}");
	ck_assert_int_eq(load_config(path("main"), path("none.d"), &config), 0);
	config_free(config);
	ck_assert_int_eq(mkdir(path("d"), 0755), 0);
	write_file("d/20.json", "{\"sampling\":{\"interval\":\"3ms\"}}");
	write_file("d/10.json", "{\"sampling\":{\"interval\":\"2ms\"}}");
	write_file("d/30.json.bak", "not read");
	write_file("d/.40.json", "not read");
	ck_assert_int_eq(load_config(path("main"), path("d"), &config), 0);
	ck_assert_uint_eq(config->sampling.interval_ns, 3 * NS_PER_MS);
	config_free(config);
	config = NULL;
	write_file("d/15.json", "{\"sampling\":{\"interval\":1}}");
	assert_refused(path("main"), path("d"), path("d/15.json"),
		       "missing unit: expected a duration such as \"10ms\", found 1");
	assert_refused(path("main"), path("main"), path("main"), "cannot be listed: Not a directory");
}
END_TEST

START_TEST(each_allocation_may_fail)
{
	static const char text[] = RULE("\"name\":\"r\",\"metric\":\"cpu\",\"percent\":1,\"targets\":[\"db\"]");
	bool injected = true;

	write_file("main", text);
	for (long n = 1; injected; n++) {
		struct config *config = NULL;
		int r;

		torture_arm(n);
		r = load_config(path("main"), NULL, &config);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert(injected == (config == NULL));
		config_free(config);
	}
}
END_TEST

START_TEST(message_that_is_too_long_is_cut)
{
	static char text[5000];
	struct config *config = NULL;
	struct config_error err;
	char line[16];

	memset(text, 'x', sizeof(text) - 1);
	memcpy(text, "{\"", 2);
	memcpy(text + 4000, "\":1}", 5);
	ck_assert_int_eq(config_parse(&(struct config_source){ text, text, strlen(text) }, 1, &config, &err), -EINVAL);
	ck_assert_uint_eq(strlen(err.file), sizeof(err.file) - 1);
	config_error_format(&err, line, sizeof(line));
	ck_assert_uint_eq(strlen(line), sizeof(line) - 1);
	ck_assert_int_eq(config_parse(&(struct config_source){ "t", "{}", 2 }, 1, &config, NULL), -EINVAL);
}
END_TEST

Suite *config_suite(void)
{
	Suite *suite = suite_create("config");
	TCase *texts = tcase_create("texts");
	TCase *files = tcase_create("files");

	tcase_add_loop_test(texts, bad_text_is_refused_with_place_key_and_expectation, 0, (int)ARRAY_LEN(bad_texts));
	tcase_add_test(texts, trees_are_numbered_and_so_limited);
	tcase_add_test(texts, entries_that_cannot_match_are_doubted);
	tcase_add_test(texts, usual_expressions_are_cheap_and_explosive_ones_are_not);
	tcase_add_test(texts, nesting_ten_thousand_deep_is_refused);
	tcase_add_test(texts, labels_are_taken);
	tcase_add_test(texts, whole_configuration_is_taken);
	tcase_add_test(texts, defaults_give_way_to_what_was_written);
	tcase_add_test(texts, idle_pauses_are_a_part_of_every_window);
	tcase_add_test(texts, ticks_wait_for_a_tenth_of_the_shortest_window_at_most);
	tcase_add_test(texts, later_source_wins_key_by_key_and_adds_entries);
	tcase_add_test(texts, conflict_between_sources_names_both);
	tcase_add_test(texts, names_are_those_of_the_configuration);
	tcase_add_test(texts, message_that_is_too_long_is_cut);
	tcase_add_test(texts, shipped_file_shows_every_option_at_its_default);
	tcase_add_test(texts, each_prefix_of_the_shipped_file_is_refused);
	tcase_add_test(texts, documentation_describes_every_key);
	suite_add_tcase(suite, texts);
	tcase_add_checked_fixture(files, make_directory, remove_directory);
	tcase_add_test(files, file_that_cannot_be_read_is_refused);
	tcase_add_test(files, file_without_permission_is_refused);
	tcase_add_test(files, file_of_a_hundred_megabytes_is_refused_unread);
	tcase_add_test(files, dropins_are_read_by_name);
	tcase_add_test(files, each_allocation_may_fail);
	suite_add_tcase(suite, files);
	return suite;
}
