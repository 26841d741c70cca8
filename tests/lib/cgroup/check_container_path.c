/*
 * check_container_path.c: whose cgroup it is, by its path: the forms that runtimes are known to
 * make, and what only looks like one.
 */
#include "lib/cgroup/container.h"
#include "lib/base/base.h"
#include "lib/model/target.h"

#include <check.h>

#include <stdio.h>
#include <string.h>

Suite *container_path_suite(void);

#define ID "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"
#define OTHER "bf3f9300cd34752cea9addfd89efda6c395817b01ae8bfe822ae55d8480ee87f"
#define UID "8f2a6a0e-3d52-4c58-b1a5-7b8a9d6f0c11"
#define UID_ "8f2a6a0e_3d52_4c58_b1a5_7b8a9d6f0c11"
#define STATIC "0123456789abcdef0123456789abcdef"

static const struct {
	const char *own, *below; /* the container's path, and the rest */
	enum container_runtime runtime;
	const char *id, *space, *pod_uid;
	bool unsure;
} containers[] = {
	/* Docker */
	{ "/docker/" ID, "", CONTAINER_DOCKER, ID, "", "", false },
	{ "/docker/" ID, "/init.scope", CONTAINER_DOCKER, ID, "", "", false },
	{ "/system.slice/docker-" ID ".scope", "", CONTAINER_DOCKER, ID, "", "", false },
	{ "/shop.slice/docker-" ID ".scope", "/system.slice/cron.service", CONTAINER_DOCKER, ID, "", "", false },
	{ "/shop/" ID, "", CONTAINER_UNKNOWN, ID, "", "", false },
	{ "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID ".scope", "", CONTAINER_DOCKER, ID, "",
	  "", false },
	/* Kubernetes */
	{ "/kubepods/besteffort/pod" UID "/" ID, "", CONTAINER_UNKNOWN, ID, "", UID, false },
	{ "/kubepods/pod" UID "/" ID, "/x", CONTAINER_UNKNOWN, ID, "", UID, false },
	{ "/kubepods/burstable/pod" STATIC "/" ID, "", CONTAINER_UNKNOWN, ID, "", STATIC, false },
	{ "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_ ".slice/cri-containerd-" ID ".scope",
	  "", CONTAINER_CONTAINERD, ID, "", UID, false },
	{ "/kubepods.slice/kubepods-pod" UID_ ".slice/docker-" ID ".scope", "", CONTAINER_DOCKER, ID, "", UID, false },
	{ "/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope", "/container", CONTAINER_CRIO, ID, "", UID,
	  false },
	{ "/kubepods/burstable/pod" UID "/crio-" ID, "", CONTAINER_CRIO, ID, "", UID, false },
	{ "/system.slice/containerd.service/kubepods-besteffort-pod" UID_ ".slice:cri-containerd:" ID, "",
	  CONTAINER_CONTAINERD, ID, "", UID, false },
	/* one in another: kind, Docker in Docker, Docker in LXC */
	{ "/system.slice/docker-" OTHER ".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
	  "kubelet-kubepods-besteffort-pod" UID_ ".slice/cri-containerd-" ID ".scope",
	  "", CONTAINER_CONTAINERD, ID, "", UID, false },
	{ "/docker/" OTHER "/docker/" ID, "", CONTAINER_DOCKER, ID, "", "", false },
	{ "/lxc.payload.web/docker/" ID, "", CONTAINER_DOCKER, ID, "", "", false },
	{ "/docker/" ID, "/kubelet.slice/kubelet-kubepods.slice", CONTAINER_DOCKER, ID, "", "", false },
	{ "/kubepods/pod" UID "/" OTHER "/docker/" ID, "", CONTAINER_DOCKER, ID, "", "", false },
	/* Podman */
	{ "/machine.slice/libpod-" ID ".scope", "/container", CONTAINER_PODMAN, ID, "", "", false },
	{ "/machine.slice/machine-libpod_pod_" OTHER ".slice/libpod-" ID ".scope", "", CONTAINER_PODMAN, ID, "", "",
	  false },
	{ "/libpod_parent/libpod-" ID, "", CONTAINER_PODMAN, ID, "", "", false },
	{ "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope", "/container/a",
	  CONTAINER_PODMAN, ID, "", "", false },
	{ "/system.slice/web.service/libpod-payload-" ID, "", CONTAINER_PODMAN, ID, "", "", false },
	/* containerd's own clients */
	{ "/system.slice/nerdctl-" ID ".scope", "", CONTAINER_CONTAINERD, ID, "", "", false },
	{ "/default/" ID, "", CONTAINER_UNKNOWN, ID, "", "", false },
	{ "/default/web", "", CONTAINER_CONTAINERD, "web", "default", "", true },
	{ "/system.slice/default-web-1.scope", "", CONTAINER_CONTAINERD, "web-1", "default", "", true },
	/* machines */
	{ "/machine.slice/systemd-nspawn@web.service", "/payload/system.slice", CONTAINER_NSPAWN, "web", "", "",
	  false },
	{ "/machine.slice/systemd-nspawn@my\\x2dweb.service", "/supervisor", CONTAINER_NSPAWN, "my-web", "", "",
	  false },
	{ "/machine.slice/machine-my\\x2dweb.scope", "", CONTAINER_NSPAWN, "my-web", "", "", false },
	{ "/machine.slice/machine-lxc\\x2d12\\x2dweb.scope", "", CONTAINER_LXC, "12-web", "", "", false },
	{ "/lxc.payload.web", "/system.slice", CONTAINER_LXC, "web", "", "", false },
	{ "/lxc.payload.shop_web", "", CONTAINER_LXC, "shop_web", "", "", false },
	{ "/lxc.payload/web", "", CONTAINER_LXC, "web", "", "", false },
	{ "/lxc/web", "", CONTAINER_LXC, "web", "", "", false },
	{ "/lxc/web", "/lxc.monitor.inner", CONTAINER_LXC, "web", "", "", false },
};

START_TEST(a_container_is_told_from_its_path)
{
	struct container_path found;
	char path[1024];

	snprintf(path, sizeof(path), "%s%s", containers[_i].own, containers[_i].below);
	ck_assert_msg(container_path_parse(path, &found), "%s", path);
	ck_assert_int_eq(found.runtime, containers[_i].runtime);
	ck_assert_str_eq(found.id, containers[_i].id);
	ck_assert_str_eq(found.space, containers[_i].space);
	ck_assert_str_eq(found.pod_uid, containers[_i].pod_uid);
	ck_assert_uint_eq(found.len, strlen(containers[_i].own));
	ck_assert_int_eq(found.unsure, containers[_i].unsure);
}
END_TEST

static const char *const others[] = {
	"",
	"/",
	"//",
	"/system.slice/nginx.service",
	"/system.slice/nginx.service/worker",
	"/user.slice/user-1000.slice/session-1.scope",
	"/kubepods/besteffort/pod" UID,
	"/kubepods.slice/kubepods-pod" UID_ ".slice",
	"/docker",
	"/docker/a329033bf642/x",
	"/a/docker/a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977",   /* 63 digits */
	"/a/docker/a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f0", /* 65 */
	"/a/b/A329033BF6421FCA0D2170D9C2244B783C2A10DCCCB5B2F8104A6F9E71AF977F",
	"/machine.slice/libpod-conmon-" ID ".scope",
	"/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope",
	"/lxc.monitor.web",
	"/lxc.monitor.d/a/b",
	"/machine.slice/machine-qemu\\x2d1\\x2dweb.scope",
	"/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt/vcpu0",
	"/machine.slice/machine-a\\x2fb.scope",
	"/machine.slice/machine-a\\x00b.scope",
	"/machine.slice/machine-a\\x2.scope",
	"/machine.slice/machine-.scope",
	"/machine.slice/systemd-nspawn@.service",
	"/lxc.payload.",
	"/system.slice/docker.service",
	"/system.slice/docker-" ID ".service",
	"/a/b/default/web",
	"/web",
	"/default/we b",
	"/system.slice/-.scope",
	"/x:y:z",
};

START_TEST(what_is_none_is_none)
{
	struct container_path found;

	ck_assert_msg(!container_path_parse(others[_i], &found) || found.unsure, "%s", others[_i]);
}
END_TEST

static const struct {
	const char *path;
	bool foreign;
} makers[] = {
	{ "/docker/" ID, false },
	{ "/docker/" ID "/" OTHER, true },
	{ "/docker/" OTHER "/docker/" ID, true },
	{ "/lxc.payload.web/machine.slice/machine-db.scope", true },
	{ "/lxc.payload.web/docker/" ID "/docker/" ID, true },
	{ "/machine.slice/libpod-" ID ".scope/libpod-payload-" ID, false },
	{ "/kubepods/pod" UID "/" ID, false },
	{ "/kubepods/burstable/pod" UID "/" ID, false },
	{ "/kubepods/burstable/pod" UID "/" OTHER "/docker/" ID, true },
	{ "/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" ID ".scope", true },
	{ "/user.slice/user-1000.slice/user@1000.service/system.slice/default-web.scope", true },
	{ "/user.slice/user-0.slice/user@0.service/user.slice/docker-" ID ".scope", false },
	{ "/user.slice/user-1000.slice/session-3.scope/docker-" ID ".scope", false },
};

START_TEST(who_could_not_be_a_runtime_of_this_machine_is_told)
{
	struct container_path found;

	ck_assert(container_path_parse(makers[_i].path, &found));
	ck_assert_msg(found.foreign == makers[_i].foreign, "%s", makers[_i].path);
}
END_TEST

START_TEST(what_is_almost_a_pod_leaves_nothing_behind)
{
	struct container_path found;

	ck_assert(container_path_parse("/pod8f2a6a0e-3d52-4c58-b1a5-7b8a9d6f0c1x/" ID, &found));
	ck_assert_str_eq(found.pod_uid, "");
}
END_TEST

START_TEST(what_looks_like_one_is_marked)
{
	struct container_path found;

	ck_assert(container_path_parse("/foo/bar/baz", &found));
	ck_assert(found.unsure);
	ck_assert_uint_eq(found.len, strlen("/foo/bar"));
	ck_assert(!container_path_parse("/foo.slice/bar", &found));
	ck_assert(!container_path_parse("/foo/bar.scope", &found));
}
END_TEST

START_TEST(endless_names_are_none)
{
	char path[600];
	struct container_path found;

	memset(path, 'a', sizeof(path));
	memcpy(path, "/lxc.payload.", 13);
	for (size_t len = 250; len < sizeof(path); len++) {
		path[len] = '\0';
		ck_assert_int_eq(container_path_parse(path, &found), len - 1 <= 255);
		path[len] = 'a';
	}
}
END_TEST

Suite *container_path_suite(void)
{
	Suite *suite = suite_create("container_path");
	TCase *tcase = tcase_create("containerpath");

	tcase_add_loop_test(tcase, a_container_is_told_from_its_path, 0, ARRAY_LEN(containers));
	tcase_add_loop_test(tcase, what_is_none_is_none, 0, ARRAY_LEN(others));
	tcase_add_loop_test(tcase, who_could_not_be_a_runtime_of_this_machine_is_told, 0, ARRAY_LEN(makers));
	tcase_add_test(tcase, what_is_almost_a_pod_leaves_nothing_behind);
	tcase_add_test(tcase, what_looks_like_one_is_marked);
	tcase_add_test(tcase, endless_names_are_none);
	suite_add_tcase(suite, tcase);

	return suite;
}
