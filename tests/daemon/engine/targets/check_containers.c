/*
 * check_containers.c: names of containers out of a runtime's files, which here are made of files as
 * cgroups and processes are; and what becomes a target.
 */
#include "daemon/engine/targets/containers.c"
#include "daemon/engine/targets/discovery.h"
#include "container_labels.h"
#include "discovery_rig.h"
#include "fuse_mount.h"
#include "lib/base/base.h"
#include "torture.h"
#include "daemon/engine/sampling/sampler.h"
#include "ring_targets.h"
#include "samplers_tick.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/cgroup/cgroup.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"
#include "lib/ring/ring.h"

#include <malloc.h>

Suite *containers_suite(void);

static struct discovery_rig rig;

static void setup(void)
{
	discovery_rig_setup(&rig);
}

static void teardown(void)
{
	discovery_rig_teardown(&rig);
}

void container_labels_put(struct label_cache *cache, const char *path, const struct labels *labels)
{
	ck_assert_ptr_nonnull(label_cache_put(cache, path, labels));
}

#define ID "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"
#define POD_ID "bf3f9300cd34752cea9addfd89efda6c395817b01ae8bfe822ae55d8480ee87f"
#define IDLE_ID "cf3f9300cd34752cea9addfd89efda6c395817b01ae8bfe822ae55d8480ee87f"
#define UID "8f2a6a0e-3d52-4c58-b1a5-7b8a9d6f0c11"
#define POD "/kubepods/burstable/pod" UID
#define TASK_DIRECTORY "run/containerd/io.containerd.runtime.v2.task"

/* ---- files ---- */

/* Makes a file below the test's directory, and all directories above it. */
__attribute__((format(printf, 2, 3))) static void put(const char *path, const char *format, ...)
{
	char whole[1024], text[4096];
	va_list arguments;

	snprintf(whole, sizeof(whole), "%s/%s", rig.root, path);
	for (char *at = whole + strlen(rig.root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		ck_assert(mkdir(whole, 0755) == 0 || errno == EEXIST);
		*at = '/';
	}
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	scene_write(whole, "%s", text);
}

static void put_docker(const char *id, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "host/var/lib/docker/containers/%s/config.v2.json", id);
	put(path, "{\"ID\":\"%s\",\"Name\":\"/%s\",\"Config\":{\"Image\":\"nginx:1.27\"}}", id, name);
}

static void put_cri(const char *id, const char *type, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "host/" TASK_DIRECTORY "/k8s.io/%s/config.json", id);
	put(path,
	    "{\"annotations\":{\"io.kubernetes.cri.container-type\":\"%s\",\"io.kubernetes.cri.container-name\":\"%s\","
	    "\"io.kubernetes.cri.sandbox-name\":\"web-7d9f\",\"io.kubernetes.cri.sandbox-namespace\":\"shop\"}}",
	    type, name);
}

static void put_cgroup(const char *cgroup, const char *cpu_max)
{
	static const char *const files[][2] = {
		{ "cpu.stat", "usage_usec 100\nuser_usec 50\nsystem_usec 50\n" },
		{ "memory.current", "4096\n" },
		{ "memory.max", "max\n" },
		{ "cgroup.controllers", "cpu memory\n" },
	};
	char path[512];

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "cgroup%s/%s", cgroup, files[i][0]);
		put(path, "%s", files[i][1]);
	}
	snprintf(path, sizeof(path), "cgroup%s/cpu.max", cgroup);
	put(path, "%s\n", cpu_max);
}

static void know_containers(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/host", rig.root);
	ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
	ck_assert_int_eq(containers_new(path, &rig.containers), 0);
}

static mono_t at(uint64_t ms)
{
	return (mono_t){ NS_PER_S + ms * NS_PER_MS };
}

static const char *title_of(const char *cgroup, uint64_t ms, enum containers_answer expected)
{
	static char title[CONTAINER_TITLE_MAX];
	const struct container *container;
	bool own;

	ck_assert_int_eq(containers_find(rig.containers, cgroup, at(ms), &container, &own), expected);
	ck_assert(!own == (strstr(cgroup, "/below") != NULL));
	container_title(container, title, sizeof(title));

	return title;
}

static bool is_none(const char *cgroup)
{
	const struct container *container;
	bool own;

	return containers_find(rig.containers, cgroup, at(0), &container, &own) == CONTAINERS_NONE;
}

/* ---- names ---- */

START_TEST(names_come_from_the_files_of_the_runtime)
{
	put_docker(ID, "shop-web");
	put_cri(POD_ID, "container", "app");
	put("host/" TASK_DIRECTORY "/default/web/config.json", "{}");
	put("host/var/lib/containers/storage/vfs-containers/containers.json",
	    "[{\"id\":\"" IDLE_ID "\",\"names\":[\"db\"],\"metadata\":\"{}\"}]");
	know_containers();

	ck_assert_str_eq(title_of("/docker/" ID, 0, CONTAINERS_KNOWN), "docker/shop-web");
	ck_assert_str_eq(title_of("/docker/" ID "/below", 0, CONTAINERS_KNOWN), "docker/shop-web");
	ck_assert_str_eq(title_of("/system.slice/docker-" ID ".scope", 0, CONTAINERS_KNOWN), "docker/shop-web");
	ck_assert_str_eq(title_of("/shop/" ID, 0, CONTAINERS_KNOWN), "docker/shop-web");
	ck_assert_str_eq(title_of(POD "/" POD_ID, 0, CONTAINERS_KNOWN), "pod/shop/web-7d9f/app");
	ck_assert_str_eq(title_of("/default/web", 0, CONTAINERS_KNOWN), "containerd/web");
	ck_assert_str_eq(title_of("/libpod_parent/libpod-" IDLE_ID, 0, CONTAINERS_KNOWN), "podman/db");
	ck_assert_str_eq(title_of("/lxc.payload.web/below", 0, CONTAINERS_KNOWN), "lxc/web");
	ck_assert_str_eq(title_of("/machine.slice/systemd-nspawn@deb.service", 0, CONTAINERS_KNOWN), "nspawn/deb");
}
END_TEST

START_TEST(a_list_is_read_again_when_it_is_another_one)
{
	static const char file[] = "host/var/lib/containers/storage/overlay-containers/containers.json";
	char path[256], aside[260];

	put(file, "[{\"id\":\"" IDLE_ID "\",\"names\":[\"db\"]}]");
	know_containers();
	title_of("/libpod_parent/libpod-" ID, 0, CONTAINERS_PENDING);
	ck_assert_str_eq(title_of("/a/libpod-" IDLE_ID, 0, CONTAINERS_KNOWN), "podman/db");

	/* As Podman does it. */
	snprintf(path, sizeof(path), "%s/%s", rig.root, file);
	snprintf(aside, sizeof(aside), "%s.new", path);
	scene_write(aside, "%s", "[{\"id\":\"" ID "\",\"names\":[\"ab\"]}]");
	ck_assert_int_eq(rename(aside, path), 0);
	ck_assert_str_eq(title_of("/libpod_parent/libpod-" ID, 20, CONTAINERS_KNOWN), "podman/ab");
	unlink(path);
	ck_assert_str_eq(title_of("/b/libpod-" ID, 20, CONTAINERS_KNOWN), "podman/a329033bf642");
}
END_TEST

START_TEST(a_path_that_only_looks_like_a_container_is_none)
{
	know_containers();
	ck_assert(is_none("/foo/bar"));
	ck_assert(is_none("/foo/bar"));
	ck_assert(is_none("/system.slice/nginx.service"));
	ck_assert_uint_eq(rig.containers->entries.count, 1);
}
END_TEST

START_TEST(a_virtual_machine_is_none)
{
	put("host/run/systemd/machines/win", "# This is private data. Do not parse.\nNAME=win\nCLASS=vm\nSERVICE=x\n");
	put("host/run/systemd/machines/deb",
	    "# This is private data. Do not parse.\nNAME=deb\nCLASS=container\nSERVICE=x\n");
	know_containers();
	ck_assert(is_none("/machine.slice/machine-win.scope"));
	ck_assert_str_eq(title_of("/machine.slice/machine-deb.scope", 0, CONTAINERS_KNOWN), "nspawn/deb");
}
END_TEST

START_TEST(the_kubelet_tells_names_that_the_runtime_does_not)
{
	put("host/var/log/containers/web-7d9f_shop_app-" POD_ID ".log", "%s", "");
	put("host/var/log/containers/web-7d9f_shop_other-" ID ".log", "%s", "");
	put("host/var/log/pods/shop_old_11111111-3d52-4c58-b1a5-7b8a9d6f0c11/app/0.log", "%s", "");
	put("host/var/log/pods/shop_web-7d9f_" UID "/app/0.log", "%s", "");
	know_containers();
	ck_assert_str_eq(title_of(POD "/" POD_ID, 0, CONTAINERS_KNOWN), "pod/shop/web-7d9f/app");
	/* No file tells which of a pod's containers it is. */
	title_of(POD "/" IDLE_ID, 0, CONTAINERS_PENDING);
	ck_assert_str_eq(title_of(POD "/" IDLE_ID, 1000, CONTAINERS_KNOWN), "pod/shop/web-7d9f/cf3f9300cd34");
}
END_TEST

START_TEST(without_files_there_is_no_waiting_and_the_id_stands_for_the_name)
{
	know_containers();
	ck_assert_str_eq(title_of("/docker/" ID, 0, CONTAINERS_KNOWN), "docker/a329033bf642");
	ck_assert_str_eq(title_of(POD "/" POD_ID, 0, CONTAINERS_KNOWN), "container/bf3f9300cd34");
	containers_free(rig.containers);
	ck_assert_int_eq(containers_new("/nowhere/at/all", &rig.containers), ENOENT);
	ck_assert_str_eq(title_of("/docker/" ID, 0, CONTAINERS_KNOWN), "docker/a329033bf642");
	ck_assert(is_none("/default/web"));
}
END_TEST

START_TEST(whoever_takes_the_id_of_another_does_not_get_its_name)
{
	put_docker(ID, "web");
	put("host/" TASK_DIRECTORY "/default/web/config.json", "{}");
	know_containers();
	ck_assert_str_eq(title_of("/user.slice/user@1000.service/docker-" ID ".scope", 0, CONTAINERS_KNOWN),
			 "docker/a329033bf642");
	ck_assert_str_eq(title_of("/docker/" POD_ID "/docker/" ID, 0, CONTAINERS_KNOWN), "docker/a329033bf642");
	ck_assert_str_eq(title_of("/docker/" ID, 0, CONTAINERS_KNOWN), "docker/web");
	ck_assert(is_none("/user.slice/user@1000.service/system.slice/default-web.scope"));
}
END_TEST

START_TEST(an_id_cannot_hold_what_separates_fields)
{
	char packed[CONTAINER_PACKED_MAX];
	const struct container *container;
	struct container unpacked;
	bool own;

	know_containers();
	ck_assert_int_eq(containers_find(rig.containers, "/lxc.payload.a\tb\tc\td\n", at(0), &container, &own),
			 CONTAINERS_KNOWN);
	container_pack(container, packed, sizeof(packed));
	ck_assert(container_unpack(packed, &unpacked));
	ck_assert_str_eq(unpacked.id, "a_b_c_d_");
	ck_assert_str_eq(unpacked.name, "a_b_c_d_");
	ck_assert_str_eq(unpacked.pod, "");
}
END_TEST

static void count_any(void *ctx, const char *cgroup)
{
	(void)cgroup;
	++*(int *)ctx;
}

START_TEST(of_many_that_are_waited_for_each_time_a_few_are_looked_for)
{
	char path[128];
	int settled = 0, before = 0, calls = 0;

	put_docker(ID, "other");
	know_containers();
	for (unsigned i = 0; i < 100; i++) {
		snprintf(path, sizeof(path), "/docker/%064x", i);
		title_of(path, 0, CONTAINERS_PENDING);
	}
	do {
		before = settled;
		containers_retry(rig.containers, at(600), count_any, &settled);
		ck_assert_int_le(settled - before, 20);
		calls++;
	} while (settled > before);
	ck_assert_int_eq(settled, 100);
	ck_assert_int_gt(calls, 5);
}
END_TEST

static void count(void *ctx, const char *cgroup)
{
	ck_assert_str_eq(cgroup, "/docker/" ID);
	++*(int *)ctx;
}

START_TEST(a_name_that_is_written_later_is_waited_for)
{
	mono_t next = { 0 };
	int settled = 0;

	put_docker(POD_ID, "other");
	know_containers();
	title_of("/docker/" ID, 0, CONTAINERS_PENDING);
	ck_assert(containers_next(rig.containers, &next));
	ck_assert_uint_eq(next.ns, at(20).ns);
	put_docker(ID, "late");
	containers_retry(rig.containers, at(19), count, &settled);
	ck_assert_int_eq(settled, 0);
	containers_retry(rig.containers, at(20), count, &settled);
	ck_assert_int_eq(settled, 1);
	ck_assert(!containers_next(rig.containers, &next));
	ck_assert_str_eq(title_of("/docker/" ID, 20, CONTAINERS_KNOWN), "docker/late");
}
END_TEST

START_TEST(a_name_that_never_comes_is_given_up)
{
	mono_t next = { 0 };
	int settled = 0;

	put_docker(POD_ID, "other");
	know_containers();
	title_of("/docker/" ID, 0, CONTAINERS_PENDING);
	containers_retry(rig.containers, at(20), count, &settled);
	ck_assert(containers_next(rig.containers, &next));
	ck_assert_uint_eq(next.ns, at(100).ns);
	containers_retry(rig.containers, at(100), count, &settled);
	ck_assert(containers_next(rig.containers, &next));
	ck_assert_uint_eq(next.ns, at(0).ns + CONTAINERS_WAIT_NS);
	ck_assert_int_eq(settled, 0);
	containers_retry(rig.containers, next, count, &settled);
	ck_assert_int_eq(settled, 1);
	ck_assert_str_eq(title_of("/docker/" ID, 700, CONTAINERS_KNOWN), "docker/a329033bf642");
}
END_TEST

START_TEST(what_is_half_written_is_waited_for_too)
{
	put("host/var/lib/docker/containers/" ID "/config.v2.json", "{\"Name\":\"/we");
	know_containers();
	title_of("/docker/" ID, 0, CONTAINERS_PENDING);
	put_docker(ID, "web");
	ck_assert_str_eq(title_of("/docker/" ID, 20, CONTAINERS_KNOWN), "docker/web");
}
END_TEST

START_TEST(who_is_not_asked_for_is_forgotten)
{
	know_containers();
	title_of("/docker/" ID, 0, CONTAINERS_KNOWN);
	title_of("/docker/" POD_ID, 50000, CONTAINERS_KNOWN);
	containers_forget(rig.containers, at(60000), NS_PER_S);
	ck_assert_uint_eq(rig.containers->entries.count, 2);
	containers_forget(rig.containers, at(61000), 30 * NS_PER_S);
	ck_assert_uint_eq(rig.containers->entries.count, 2);
	containers_forget(rig.containers, at(61000), NS_PER_S);
	ck_assert_uint_eq(rig.containers->entries.count, 1);
	put_docker(ID, "again");
	ck_assert_str_eq(title_of("/docker/" ID, 61000, CONTAINERS_KNOWN), "docker/again");
}
END_TEST

START_TEST(no_more_are_remembered_than_there_is_room_for)
{
	char path[128];

	know_containers();
	for (unsigned i = 0; i < CONTAINERS_MAX + 10; i++) {
		snprintf(path, sizeof(path), "/lxc.payload.n%u", i);
		title_of(path, i, CONTAINERS_KNOWN);
	}
	ck_assert_uint_eq(rig.containers->entries.count, CONTAINERS_MAX);
	ck_assert_str_eq(title_of("/lxc.payload.n0", 10000, CONTAINERS_KNOWN), "lxc/n0");
}
END_TEST

START_TEST(of_what_is_no_container_little_is_kept)
{
	struct mallinfo2 before, after;
	char path[128];

	know_containers();
	before = mallinfo2();
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "/build/job%u", i);
		ck_assert(is_none(path));
	}
	after = mallinfo2();
	ck_assert_uint_eq(rig.containers->entries.count, 1000);
	ck_assert_uint_le(after.uordblks - before.uordblks, 1000 * 160); /* 0 under a sanitizer's allocator */
}
END_TEST

START_TEST(links_do_not_lead_out_of_the_root)
{
	char link[256];

	put_docker(ID, "inside");
	put("host/data/outer/" POD_ID "/config.v2.json", "{\"Name\":\"/moved\"}");
	put("outside/" IDLE_ID "/config.v2.json", "{\"Name\":\"/outside\"}");
	snprintf(link, sizeof(link), "%s/host/var/lib/docker/containers/" POD_ID, rig.root);
	ck_assert_int_eq(symlink("/data/outer/" POD_ID, link), 0);
	snprintf(link, sizeof(link), "%s/host/var/lib/docker/containers/" IDLE_ID, rig.root);
	ck_assert_int_eq(symlink("../../../../../outside/" IDLE_ID, link), 0);
	know_containers();
	ck_assert_str_eq(title_of("/docker/" POD_ID, 0, CONTAINERS_KNOWN), "docker/moved");
	title_of("/docker/" IDLE_ID, 0, CONTAINERS_PENDING);
	ck_assert_str_eq(title_of("/docker/" IDLE_ID, 1000, CONTAINERS_KNOWN), "docker/cf3f9300cd34");
}
END_TEST

START_TEST(a_container_that_is_met_without_memory_is_none)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct containers *made = NULL;

		torture_arm(n);
		int r = containers_new("/", &made);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		containers_free(made);
	}
	know_containers();
	torture_arm(1);
	bool none = is_none("/lxc.payload.web");
	ck_assert(torture_disarm());
	ck_assert(none);
	ck_assert(!is_none("/lxc.payload.web"));
}
END_TEST

/* ---- files that do not answer ---- */

static const uint64_t unanswered[] = { FUSE_HANGS(FUSE_GETATTR), FUSE_HANGS(FUSE_OPEN), FUSE_HANGS(FUSE_READ) };

static unsigned renamed;

static void count_renamed(void *ctx, const char *cgroup)
{
	(void)ctx;
	(void)cgroup;
	renamed++;
}

/* A review of all. True: it had something new. */
static bool review_at(uint64_t *ms)
{
	*ms += 31000;
	for (int i = 0; i < 3; i++)
		containers_update(rig.containers, at(*ms), count_renamed, count_renamed, NULL);

	return renamed > 0;
}

START_TEST(files_that_do_not_answer_leave_a_container_without_a_name_until_then)
{
	static struct fuse_mount fuse;
	char path[256];
	uint64_t ms = 0;

	put_docker(ID, "web");
	put("host/" TASK_DIRECTORY "/default/web/config.json", "{}");
	snprintf(path, sizeof(path), "%s/host/var/lib/docker/containers/" ID "/config.v2.json", rig.root);
	if (!fuse_mount_begin(&fuse, path))
		SKIP_TEST("%s", skip_why());
	ck_assert_int_eq(mount(fuse.file, path, NULL, MS_BIND, NULL), 0);
	know_containers();
	fuse_mount_hang(&fuse, unanswered[_i]);
	ck_assert_str_eq(title_of("/docker/" ID, 0, CONTAINERS_KNOWN), "docker/a329033bf642");
	ck_assert_uint_gt(fuse.shared->ignored, 0);
	ck_assert_uint_eq(foreign_counts().hung, 1);

	/* Others are not tried for a while, and not waited for. */
	ck_assert_str_eq(title_of(POD "/" POD_ID, 0, CONTAINERS_KNOWN), "container/bf3f9300cd34");
	ck_assert(is_none("/default/web"));
	ck_assert_uint_eq(foreign_counts().hung, 1);
	ck_assert_uint_ge(foreign_counts().refused, 2);

	umount2(path, MNT_DETACH);
	fuse_mount_end(&fuse);
	renamed = 0;
	scene_wait_for(review_at(&ms));
	ck_assert_str_eq(title_of("/docker/" ID, ms, CONTAINERS_KNOWN), "docker/web");
	ck_assert_str_eq(title_of("/default/web", ms, CONTAINERS_KNOWN), "containerd/web");
}
END_TEST

/* ---- labels ---- */

#define SANDBOX_ID "df3f9300cd34752cea9addfd89efda6c395817b01ae8bfe822ae55d8480ee87f"
#define META_DB "var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"

static void put_labelled(const char *id, const char *name, const char *labels)
{
	char path[256];

	snprintf(path, sizeof(path), "host/var/lib/docker/containers/%s/config.v2.json", id);
	put(path, "{\"ID\":\"%s\",\"Name\":\"/%s\",\"Config\":{\"Image\":\"nginx:1.27\",\"Labels\":%s}}", id, name,
	    labels);
}

/* A database that containerd or Podman has written. */
static void put_database(const char *path, const char *database)
{
	char from[128], to[256];
	static char data[256 * 1024];

	put(path, "%s", "");
	snprintf(from, sizeof(from), "tests/fuzz/corpus/bolt_file/%s", database);
	snprintf(to, sizeof(to), "%s/%s", rig.root, path);

	FILE *in = fopen(from, "re"), *out = fopen(to, "we");

	ck_assert(in && out);
	size_t len = fread(data, 1, sizeof(data), in);
	ck_assert_uint_eq(fwrite(data, 1, len, out), len);
	fclose(in);
	fclose(out);
}

/* "a=1 b=2 ", as the container has them and as the book says them to others; "?": not known. */
static const char *labels_of(const char *cgroup, uint64_t ms)
{
	static char text[2 * LABELS_BYTES_MAX];
	const struct container *container;
	struct labels copy = { .count = 0 };
	size_t len = 0;
	bool own, any;

	ck_assert_int_eq(containers_find(rig.containers, cgroup, at(ms), &container, &own), CONTAINERS_KNOWN);
	any = label_cache_get(containers_labels(rig.containers), cgroup, &copy);
	ck_assert_int_eq(any, container->labels && container->labels->count > 0);
	if (!container->labels)
		return "?";
	text[0] = '\0';
	for (const char *key = labels_next(container->labels, NULL); key; key = labels_next(container->labels, key)) {
		ck_assert_str_eq(labels_value(key), labels_get(&copy, key));
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s=%s ", key, labels_value(key));
	}

	return text;
}

START_TEST(labels_come_from_the_files_of_the_runtime)
{
	put_labelled(ID, "web", "{\"app\":\"shop\",\"team\":\"core\"}");
	put_labelled(IDLE_ID, "none", "{}");
	know_containers();
	ck_assert_str_eq(labels_of("/docker/" ID, 0), "app=shop team=core ");
	ck_assert_str_eq(labels_of("/docker/" ID "/below", 0), "app=shop team=core ");
	ck_assert_str_eq(labels_of("/docker/" IDLE_ID, 0), "");
	ck_assert_str_eq(labels_of("/lxc.payload.web", 0), "");
	/* Not those of this machine's container of that id. */
	ck_assert_str_eq(labels_of("/user.slice/user@1000.service/docker-" ID ".scope", 0), "?");
}
END_TEST

START_TEST(labels_of_a_pod_are_with_its_sandbox)
{
	put("host/run/containers/storage/overlay-containers/" POD_ID "/userdata/config.json",
	    "{\"annotations\":{\"io.kubernetes.container.name\":\"app\",\"io.kubernetes.pod.name\":\"web-7d9f\","
	    "\"io.kubernetes.pod.namespace\":\"shop\",\"io.kubernetes.cri-o.SandboxID\":\"" SANDBOX_ID "\","
	    "\"io.kubernetes.cri-o.Labels\":\"{\\\"io.kubernetes.pod.name\\\":\\\"web-7d9f\\\",\\\"app\\\":\\\"own\\\"}"
	    "\"}}");
	know_containers();
	ck_assert_str_eq(title_of(POD "/crio-" POD_ID, 0, CONTAINERS_KNOWN), "pod/shop/web-7d9f/app");
	ck_assert_str_eq(labels_of(POD "/crio-" POD_ID, 0), "?");

	put("host/run/containers/storage/overlay-containers/" SANDBOX_ID "/userdata/config.json",
	    "{\"annotations\":{\"io.kubernetes.cri-o.Labels\":\"{\\\"app\\\":\\\"pod\\\",\\\"tier\\\":\\\"1\\\"}\"}}");
	containers_free(rig.containers);
	know_containers();
	ck_assert_str_eq(labels_of(POD "/crio-" POD_ID, 0), "app=pod tier=1 ");
}
END_TEST

START_TEST(labels_of_a_pod_of_docker_are_with_its_sandbox)
{
	put_labelled(POD_ID, "k8s_app",
		     "{\"io.kubernetes.docker.type\":\"container\",\"io.kubernetes.container.name\":\"app\","
		     "\"io.kubernetes.pod.name\":\"web-7d9f\",\"io.kubernetes.pod.namespace\":\"shop\",\"maintainer\":"
		     "\"me\","
		     "\"io.kubernetes.sandbox.id\":\"" SANDBOX_ID "\"}");
	put_labelled(SANDBOX_ID, "k8s_POD", "{\"io.kubernetes.docker.type\":\"podsandbox\",\"app\":\"pod\"}");
	know_containers();
	ck_assert_str_eq(labels_of(POD "/" POD_ID, 0), "app=pod maintainer=me ");
}
END_TEST

START_TEST(an_id_of_a_sandbox_leads_nowhere_else)
{
	put_labelled(ID, "web", "{\"io.kubernetes.sandbox.id\":\"../../../../../secret\",\"app\":\"own\"}");
	put("host/secret/config.v2.json", "{\"Config\":{\"Labels\":{\"app\":\"stolen\"}}}");
	know_containers();
	ck_assert_str_eq(labels_of("/docker/" ID, 0), "app=own ");
}
END_TEST

START_TEST(labels_of_containerd_are_in_its_database)
{
	static const char app[] = "a000000000000000000000000000000000000000000000000000000000000001";
	static const char pod[] = "b000000000000000000000000000000000000000000000000000000000000001";
	char path[256];

	snprintf(path, sizeof(path), "host/" TASK_DIRECTORY "/k8s.io/%s/config.json", app);
	put(path,
	    "{\"annotations\":{\"io.kubernetes.cri.container-name\":\"app\",\"io.kubernetes.cri.sandbox-name\":\"web\","
	    "\"io.kubernetes.cri.sandbox-namespace\":\"shop\",\"io.kubernetes.cri.sandbox-id\":\"%s\"}}",
	    pod);
	put("host/" TASK_DIRECTORY "/default/web/config.json", "{}");
	put("host/" TASK_DIRECTORY "/default/plain/config.json", "{}");
	put("host/" TASK_DIRECTORY "/default/newer/config.json", "{}");
	put_database("host/" META_DB, "containerd");
	know_containers();
	snprintf(path, sizeof(path), POD "/cri-containerd-%s.scope", app);
	ck_assert_str_eq(labels_of(path, 0), "app=web app.kubernetes.io/name=shop maintainer=somebody team=core ");
	ck_assert_str_eq(labels_of("/default/web", 0), "app=db ");
	ck_assert_str_eq(labels_of("/default/plain", 0), "");
	ck_assert_str_eq(labels_of("/default/newer", 0), "?");
}
END_TEST

START_TEST(labels_of_podman_are_in_its_database)
{
	static const char id[] = "cd5e35b5ffe4d48905cc61b257a03f0c2b158e2ea2b739fd399ae449be539ebe";
	char cgroup[128];
	int error;

	put("host/var/lib/containers/storage/overlay-containers/containers.json",
	    "[{\"id\":\"%s\",\"names\":[\"web\"]}]", id);
	know_containers();
	snprintf(cgroup, sizeof(cgroup), "/libpod_parent/libpod-%s", id);
	ck_assert_str_eq(labels_of(cgroup, 0), "?");
	ck_assert_uint_eq(containers_unlabelled(rig.containers, &error), 1);
	ck_assert_int_eq(error, -ENOENT);
	containers_free(rig.containers);
	put_database("host/var/lib/containers/storage/libpod/bolt_state.db", "podman");
	know_containers();
	ck_assert_str_eq(labels_of(cgroup, 0), "app=web team=core ");
	ck_assert_uint_eq(containers_unlabelled(rig.containers, &error), 0);
	ck_assert_int_eq(error, 0);
}
END_TEST

/* Reviews until then, one look a second. */
static int review(uint64_t from_ms, uint64_t to_ms)
{
	int visits = 0;

	for (uint64_t ms = from_ms; ms <= to_ms; ms += 1000)
		containers_review(rig.containers, at(ms), count_any, &visits);

	return visits;
}

START_TEST(a_container_that_is_renamed_is_called_so)
{
	put_labelled(ID, "web", "{\"app\":\"shop\"}");
	put_labelled(POD_ID, "other", "{}");
	know_containers();
	review(0, 0);
	ck_assert_str_eq(title_of("/docker/" ID, 0, CONTAINERS_KNOWN), "docker/web");
	title_of("/docker/" POD_ID, 0, CONTAINERS_KNOWN);
	ck_assert_int_eq(review(1000, 60000), 0);
	put_labelled(ID, "shop", "{\"app\":\"shop\"}");
	ck_assert_str_eq(title_of("/docker/" ID, 60000, CONTAINERS_KNOWN), "docker/web");
	ck_assert_int_eq(review(61000, 92000), 1);
	ck_assert_str_eq(title_of("/docker/" ID, 92000, CONTAINERS_KNOWN), "docker/shop");
	ck_assert_str_eq(labels_of("/docker/" ID, 92000), "app=shop ");
	/* Written again, and the same. */
	put_labelled(ID, "shop", "{\"app\":\"shop\"}");
	ck_assert_int_eq(review(93000, 160000), 0);
}
END_TEST

START_TEST(a_container_whose_files_go_first_keeps_its_name)
{
	char path[256];

	put_labelled(ID, "web", "{\"app\":\"shop\"}");
	know_containers();
	review(0, 0);
	title_of("/docker/" ID, 0, CONTAINERS_KNOWN);
	snprintf(path, sizeof(path), "%s/host/var/lib/docker/containers/" ID "/config.v2.json", rig.root);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(review(1000, 60000), 0);
	ck_assert_str_eq(title_of("/docker/" ID, 60000, CONTAINERS_KNOWN), "docker/web");
	ck_assert_str_eq(labels_of("/docker/" ID, 60000), "app=shop ");
}
END_TEST

START_TEST(labels_that_become_readable_are_read)
{
	put("host/" TASK_DIRECTORY "/default/web/config.json", "{}");
	know_containers();
	review(0, 0);
	ck_assert_str_eq(labels_of("/default/web", 0), "?");
	put_database("host/" META_DB, "containerd");
	ck_assert_int_eq(review(1000, 31000), 1);
	ck_assert_str_eq(labels_of("/default/web", 31000), "app=db ");
	ck_assert_int_eq(review(32000, 120000), 0);
}
END_TEST

START_TEST(a_review_looks_at_a_few_at_a_time)
{
	char path[128];
	int visits = 0;
	unsigned calls = 0;

	know_containers();
	containers_review(rig.containers, at(0), count_any, &visits);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "%064x", i);
		put_labelled(path, "n", "{}");
		snprintf(path, sizeof(path), "/docker/%064x", i);
		title_of(path, 0, CONTAINERS_KNOWN);
		snprintf(path, sizeof(path), "%064x", i);
		put_labelled(path, "other", "{}");
	}
	for (; visits < 200 && calls < 100; calls++) {
		int before = visits;

		containers_review(rig.containers, at(31000), count_any, &visits);
		ck_assert_int_le(visits - before, 16);
	}
	ck_assert_int_eq(visits, 200);
}
END_TEST

START_TEST(labels_that_are_replaced_stay_readable_until_the_scan_is_over)
{
	const struct container *container;
	const struct labels *before;
	bool own;

	put_labelled(ID, "web", "{\"app\":\"shop\"}");
	know_containers();
	review(0, 0);
	containers_find(rig.containers, "/docker/" ID, at(0), &container, &own);
	before = container->labels;
	put_labelled(ID, "web", "{\"app\":\"other\"}");
	ck_assert_int_eq(review(31000, 31000), 1);
	ck_assert_str_eq(labels_get(before, "app"), "shop");
	ck_assert_str_eq(labels_of("/docker/" ID, 31000), "app=other ");
	containers_forget(rig.containers, at(31000), NS_PER_S);
	ck_assert_str_eq(labels_of("/docker/" ID, 31000), "app=other ");
}
END_TEST

/* ---- targets ---- */

static struct ring_targets described;

/* The last description of the one whose name begins so, as of the last ring_targets_read. */
static bool find_target(const char *name, struct target *ret)
{
	for (uint32_t id = 1; id < RING_TARGETS_MAX; id++)
		if (ring_targets_find(&described, id, ret) && strncmp(ret->name, name, strlen(name)) == 0)
			return true;

	return false;
}

static bool host_labelled; /* the one of Docker is there already */

static void make_host(const char *entries)
{
	char path[128];

	put_cgroup("", "max 100000");
	put_cgroup("/docker", "50000 100000");
	put_cgroup("/docker/" ID, "max 100000");
	put_cgroup("/docker/" ID "/below", "max 100000");
	put_cgroup(POD, "max 100000");
	put_cgroup(POD "/" POD_ID, "max 100000");
	put_cgroup(POD "/" IDLE_ID, "max 100000");
	put_cgroup("/system.slice/nginx.service", "max 100000");
	if (!host_labelled)
		put_docker(ID, "web");
	put_cri(POD_ID, "container", "app");
	put_cri(IDLE_ID, "sandbox", "");
	appear(&rig, 10, "web", "web", 500, "/docker/" ID "/below");
	appear(&rig, 11, "web", "web", 501, "/system.slice/nginx.service");
	know_containers();
	snprintf(path, sizeof(path), "%s/cgroup", rig.root);
	make(&rig, rig.root, path, scene_config("{\"targets\": [%s]}", entries));
}

START_TEST(containers_are_targets_by_their_names_against_their_own_limits)
{
	struct cgroup_limits limits;
	struct container container;
	struct target target;

	make_host("{\"name\": \"pods\", \"containers\": \"*\"}");
	ck_assert_uint_eq(targets(&rig), 2);

	ring_targets_read(rig.ring, &described);
	ck_assert(find_target("docker/web", &target));
	ck_assert_int_eq(target.kind, TARGET_CGROUP);
	ck_assert_str_eq(target.cgroup, "/docker/" ID);
	ck_assert_str_eq(target.key, "pods:/docker/" ID);
	ck_assert(container_unpack(target.container, &container));
	ck_assert_int_eq(container.runtime, CONTAINER_DOCKER);
	ck_assert_str_eq(container.image, "nginx:1.27");
	ck_assert(discovery_limits(rig.discovery, target.id, &limits));
	ck_assert_uint_eq(limits.cpu, 500000000);
	ck_assert_str_eq(limits.cpu_from, "/docker");
	ck_assert(find_target("pod/shop/web-7d9f/app", &target));
}
END_TEST

static const struct {
	const char *entry;
	size_t targets;
} selections[] = {
	{ "\"containers\": \"web\"", 1 },
	{ "\"containers\": \"shop/*\"", 1 },
	{ "\"containers\": \"image:nginx*\"", 1 },
	{ "\"containers\": \"a329033bf642\"", 1 },
	{ "\"containers\": \"cf3f9300cd34\"", 0 }, /* only keeps a pod together */
	{ "\"containers\": \"none\"", 0 },
	{ "\"containers\": \"*\", \"per\": \"process\"", 1 },
	{ "\"containers\": \"shop/*\", \"per\": \"process\"", 0 },
};

static const struct {
	const char *entry;
	size_t targets;
} label_selections[] = {
	{ "\"containers\": \"*\", \"labels\": {\"app\": \"shop\"}", 1 },
	{ "\"containers\": \"*\", \"labels\": {\"app\": \"s*\", \"team\": \"core\"}", 1 },
	{ "\"containers\": \"*\", \"labels\": {\"app\": \"*\", \"team\": \"other\"}", 0 },
	{ "\"containers\": \"*\", \"labels\": {\"app\": \"\"}", 1 },
	{ "\"containers\": \"*\", \"labels\": {\"empty\": \"\"}", 1 },
	{ "\"containers\": \"*\", \"labels\": {\"none\": \"\"}", 0 },
	{ "\"containers\": \"other\", \"labels\": {\"app\": \"shop\"}", 0 },
	{ "\"containers\": \"*\", \"labels\": {\"app\": \"shop\"}, \"per\": \"process\"", 1 },
	{ "\"containers\": \"*\", \"labels\": {\"app\": \"other\"}, \"per\": \"process\"", 0 },
};

static void label_host(const char *entry)
{
	char whole[256];

	put_labelled(ID, "web", "{\"app\":\"shop\",\"team\":\"core\",\"empty\":\"\"}");
	snprintf(whole, sizeof(whole), "{\"name\": \"e\", %s}", entry);
	host_labelled = true;
	make_host(whole);
	host_labelled = false;
}

START_TEST(labels_select)
{
	label_host(label_selections[_i].entry);
	ck_assert_uint_eq(targets(&rig), label_selections[_i].targets);
}
END_TEST

/* The pod's are in a database that is not there. */
START_TEST(containers_whose_labels_cannot_be_read_are_counted_while_somebody_asks_for_labels)
{
	label_host("\"containers\": \"*\", \"labels\": {\"app\": \"*\"}");
	struct discovery_state state = scan(&rig);

	ck_assert_uint_eq(state.unlabelled, 1);
	ck_assert_str_eq(state.unlabelled_why, "no file that would have them is there");
}
END_TEST

START_TEST(nobody_asks_for_labels_and_none_are_missed)
{
	label_host("\"containers\": \"*\"");
	ck_assert_uint_eq(scan(&rig).unlabelled, 0);
}
END_TEST

/*
 * Whether the ring has such a target in that container: it comes with the next sample, and what is
 * idle has one a second.
 */
static bool is_called(const char *name)
{
	struct target target;

	samplers_tick(rig.samplers);
	ring_targets_read(rig.ring, &described);

	bool called = find_target(name, &target) && strstr(target.container, "\tother\t");

	return called;
}

START_TEST(a_target_is_renamed_with_its_container)
{
	struct target target;

	label_host("\"containers\": \"*\"}, {\"name\": \"p\", \"containers\": \"*\", \"per\": \"process\"");
	ck_assert_uint_eq(targets(&rig), 3);
	put_labelled(ID, "other", "{}");
	rig.containers->review_began = (mono_t){ 1 }; /* the next review is due */
	scan(&rig);
	scene_wait_for(is_called("docker/other") && is_called("p/10"));
	ring_targets_read(rig.ring, &described);
	ck_assert(find_target("docker/other", &target));
	ck_assert_str_eq(target.key, "e:/docker/" ID);
	ck_assert(!find_target("docker/web", &target));
	ck_assert(find_target("p/10", &target));
	ck_assert_str_eq(target.container, "docker\t" ID "\tother\t\t\tnginx:1.27");
	ck_assert_uint_eq(targets(&rig), 3);
}
END_TEST

START_TEST(patterns_select)
{
	char entry[256];

	snprintf(entry, sizeof(entry), "{\"name\": \"e\", %s}", selections[_i].entry);
	make_host(entry);
	ck_assert_uint_eq(targets(&rig), selections[_i].targets);
}
END_TEST

START_TEST(processes_of_containers_are_summed)
{
	struct discovery_state state;

	make_host("{\"name\": \"all\", \"containers\": \"*\", \"per\": \"group\"}");
	targets(&rig);
	state = scan(&rig);
	ck_assert_uint_eq(state.target_table.members, 1);
}
END_TEST

START_TEST(targets_of_other_selectors_know_their_container)
{
	struct target target;

	make_host("{\"name\": \"web\", \"comm\": \"web\"}, {\"name\": \"c\", \"cgroup\": \"/docker/*\"}");
	ck_assert_uint_eq(targets(&rig), 3);

	ring_targets_read(rig.ring, &described);
	ck_assert(find_target("web/10", &target));
	ck_assert_str_eq(target.container, "docker\t" ID "\tweb\t\t\tnginx:1.27");
	ck_assert(find_target("web/11", &target));
	ck_assert_str_eq(target.container, "");
	ck_assert(find_target("/docker/" ID, &target));
	ck_assert_str_eq(target.container, "docker\t" ID "\tweb\t\t\tnginx:1.27");
}
END_TEST

START_TEST(a_container_that_is_gone_is_let_go)
{
	char path[256];

	make_host("{\"name\": \"pods\", \"containers\": \"web\"}");
	ck_assert_uint_eq(targets(&rig), 1);
	snprintf(path, sizeof(path), "%s/cgroup/docker/" ID, rig.root);
	scene_remove(path);
	ck_assert_uint_eq(targets(&rig), 0);
}
END_TEST

static size_t watched(void)
{
	struct discovery_state state;

	samplers_tick(rig.samplers);
	discovery_state(rig.discovery, &state);

	return state.target_table.targets;
}

START_TEST(one_without_a_name_becomes_a_target_without_another_scan)
{
	struct target target;

	put_cgroup("", "max 100000");
	put_cgroup("/docker/" ID, "max 100000");
	put_docker(POD_ID, "other");
	know_containers();

	char path[128];

	snprintf(path, sizeof(path), "%s/cgroup", rig.root);
	make(&rig, rig.root, path,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"pods\", "
			  "\"containers\": \"*\"}]}"));
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(watched() == 1);
	samplers_tick(rig.samplers);

	ring_targets_read(rig.ring, &described);
	ck_assert(find_target("docker/a329033bf642", &target));
}
END_TEST

START_TEST(processes_of_one_that_was_named_late_are_found_without_waiting_for_the_next_scan)
{
	char path[128];

	put_cgroup("", "max 100000");
	put_cgroup("/docker/" ID, "max 100000");
	put_docker(POD_ID, "other");
	appear(&rig, 10, "web", "web", 500, "/docker/" ID);
	know_containers();
	snprintf(path, sizeof(path), "%s/cgroup", rig.root);
	make(&rig, rig.root, path,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"pods\", "
			  "\"containers\": \"web\", \"per\": \"process\"}]}"));
	ck_assert_uint_eq(targets(&rig), 0);
	put_docker(ID, "web");
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(watched() == 1);
}
END_TEST

START_TEST(who_executes_in_another_container_is_told_of_that_one)
{
	struct target target;
	char path[128];

	make_host("{\"name\": \"web\", \"pid\": 11}");
	ck_assert_uint_eq(targets(&rig), 1);
	appear(&rig, 11, "app", "app", 501, "/docker/" ID);
	snprintf(path, sizeof(path), "%s/11/stat", rig.root); /* what is idle says nothing of itself */
	scene_write(path, "11 (app) S 1 1 1 0 -1 0 10 0 0 0 90 5 0 0 20 0 3 0 501 1000000 100 0\n");
	ck_assert_uint_eq(targets(&rig), 1);
	samplers_tick(rig.samplers);

	ring_targets_read(rig.ring, &described);
	ck_assert(find_target("web", &target));
	ck_assert_str_eq(target.cgroup, "/docker/" ID);
	ck_assert_str_eq(target.container, "docker\t" ID "\tweb\t\t\tnginx:1.27");
}
END_TEST

static TCase *names(void)
{
	TCase *tcase = tcase_create("names");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, names_come_from_the_files_of_the_runtime);
	tcase_add_test(tcase, a_list_is_read_again_when_it_is_another_one);
	tcase_add_test(tcase, a_path_that_only_looks_like_a_container_is_none);
	tcase_add_test(tcase, a_virtual_machine_is_none);
	tcase_add_test(tcase, the_kubelet_tells_names_that_the_runtime_does_not);
	tcase_add_test(tcase, without_files_there_is_no_waiting_and_the_id_stands_for_the_name);
	tcase_add_test(tcase, whoever_takes_the_id_of_another_does_not_get_its_name);
	tcase_add_test(tcase, an_id_cannot_hold_what_separates_fields);
	tcase_add_test(tcase, of_many_that_are_waited_for_each_time_a_few_are_looked_for);
	tcase_add_test(tcase, a_name_that_is_written_later_is_waited_for);
	tcase_add_test(tcase, a_name_that_never_comes_is_given_up);
	tcase_add_test(tcase, what_is_half_written_is_waited_for_too);
	tcase_add_test(tcase, who_is_not_asked_for_is_forgotten);
	tcase_add_test(tcase, no_more_are_remembered_than_there_is_room_for);
	tcase_add_test(tcase, of_what_is_no_container_little_is_kept);
	tcase_add_test(tcase, links_do_not_lead_out_of_the_root);
	tcase_add_test(tcase, a_container_that_is_met_without_memory_is_none);
	tcase_add_loop_test(tcase, files_that_do_not_answer_leave_a_container_without_a_name_until_then, 0,
			    ARRAY_LEN(unanswered));
	tcase_add_test(tcase, labels_come_from_the_files_of_the_runtime);
	tcase_add_test(tcase, labels_of_a_pod_are_with_its_sandbox);
	tcase_add_test(tcase, labels_of_a_pod_of_docker_are_with_its_sandbox);
	tcase_add_test(tcase, an_id_of_a_sandbox_leads_nowhere_else);
	tcase_add_test(tcase, labels_of_containerd_are_in_its_database);
	tcase_add_test(tcase, labels_of_podman_are_in_its_database);
	tcase_add_test(tcase, a_container_that_is_renamed_is_called_so);
	tcase_add_test(tcase, a_container_whose_files_go_first_keeps_its_name);
	tcase_add_test(tcase, labels_that_become_readable_are_read);
	tcase_add_test(tcase, a_review_looks_at_a_few_at_a_time);
	tcase_add_test(tcase, labels_that_are_replaced_stay_readable_until_the_scan_is_over);

	return tcase;
}

static TCase *targets_of_containers(void)
{
	TCase *tcase = tcase_create("targets");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, containers_are_targets_by_their_names_against_their_own_limits);
	tcase_add_loop_test(tcase, labels_select, 0, ARRAY_LEN(label_selections));
	tcase_add_test(tcase, containers_whose_labels_cannot_be_read_are_counted_while_somebody_asks_for_labels);
	tcase_add_test(tcase, nobody_asks_for_labels_and_none_are_missed);
	tcase_add_test(tcase, a_target_is_renamed_with_its_container);
	tcase_add_loop_test(tcase, patterns_select, 0, ARRAY_LEN(selections));
	tcase_add_test(tcase, processes_of_containers_are_summed);
	tcase_add_test(tcase, targets_of_other_selectors_know_their_container);
	tcase_add_test(tcase, a_container_that_is_gone_is_let_go);
	tcase_add_test(tcase, one_without_a_name_becomes_a_target_without_another_scan);
	tcase_add_test(tcase, processes_of_one_that_was_named_late_are_found_without_waiting_for_the_next_scan);
	tcase_add_test(tcase, who_executes_in_another_container_is_told_of_that_one);

	return tcase;
}

Suite *containers_suite(void)
{
	Suite *suite = suite_create("containers");

	suite_add_tcase(suite, names());
	suite_add_tcase(suite, targets_of_containers());

	return suite;
}
