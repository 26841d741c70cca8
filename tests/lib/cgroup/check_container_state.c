/*
 * check_container_state.c: names in what runtimes write down; documents are shortened ones of
 * Docker 20.10, containerd 1.6, CRI-O and Podman 4.3.
 */
#include "lib/cgroup/container.h"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/model/target.h"

#include <check.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *container_state_suite(void);

#define ID "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"
#define OTHER "bf3f9300cd34752cea9addfd89efda6c395817b01ae8bfe822ae55d8480ee87f"
#define UID "8f2a6a0e-3d52-4c58-b1a5-7b8a9d6f0c11"

static const char docker[] =
	"{\"StreamConfig\":{},\"State\":{\"Running\":true,\"Pid\":812},\"ID\":\"" ID
	"\",\"Path\":\"/bin/sleep\",\"Args\":[\"3600\"],"
	"\"Config\":{\"Hostname\":\"a329033bf642\",\"Image\":\"nginx:1.27\",\"Labels\":"
	"{\"com.docker.compose.service\":\"web\"}},\"Image\":\"sha256:d8dc\",\"Name\":\"/shop-web\"}";

static const char docker_pod[] =
	"{\"ID\":\"" ID "\",\"Config\":{\"Image\":\"sha256:11\",\"Labels\":{\"io.kubernetes.container.name\":\"app\","
	"\"io.kubernetes.docker.type\":\"container\",\"io.kubernetes.pod.name\":\"web-7d9f\","
	"\"io.kubernetes.pod.namespace\":\"shop\"}},\"Name\":\"/k8s_app_web-7d9f_shop_" UID "_0\"}";

static const char docker_pause[] =
	"{\"Config\":{\"Labels\":{\"io.kubernetes.container.name\":\"POD\",\"io.kubernetes.docker.type\":"
	"\"podsandbox\","
	"\"io.kubernetes.pod.name\":\"web-7d9f\",\"io.kubernetes.pod.namespace\":\"shop\"}},\"Name\":\"/k8s_POD\"}";

static const char containerd[] =
	"{\"ociVersion\":\"1.0.2-dev\",\"process\":{\"args\":[\"/"
	"app\"],\"rlimits\":[{\"type\":\"RLIMIT_NOFILE\",\"hard\":18446744073709551615}]},"
	"\"annotations\":{\"io.kubernetes.cri.container-name\":\"app\",\"io.kubernetes.cri.container-type\":"
	"\"container\","
	"\"io.kubernetes.cri.image-name\":\"docker.io/library/nginx:1.27\",\"io.kubernetes.cri.sandbox-id\":\"" OTHER
	"\","
	"\"io.kubernetes.cri.sandbox-name\":\"web-7d9f\",\"io.kubernetes.cri.sandbox-namespace\":\"shop\","
	"\"io.kubernetes.cri.sandbox-uid\":\"" UID "\"},\"linux\":{\"cgroupsPath\":\"/kubepods/x\"}}";

static const char containerd_pause[] =
	"{\"annotations\":{\"io.kubernetes.cri.container-type\":\"sandbox\","
	"\"io.kubernetes.cri.sandbox-name\":\"web-7d9f\",\"io.kubernetes.cri.sandbox-namespace\":\"shop\"}}";

static const char crio[] =
	"{\"annotations\":{\"io.container.manager\":\"cri-o\",\"io.kubernetes.container.name\":\"app\","
	"\"io.kubernetes.cri-o.ContainerType\":\"container\",\"io.kubernetes.cri-o.ImageName\":\"quay.io/nginx:1.27\","
	"\"io.kubernetes.cri-o.Name\":\"k8s_app_web-7d9f_shop_" UID "_0\",\"io.kubernetes.pod.name\":\"web-7d9f\","
	"\"io.kubernetes.pod.namespace\":\"shop\",\"io.kubernetes.pod.uid\":\"" UID "\"}}";

static const char nerdctl[] = "{\"annotations\":{\"nerdctl/name\":\"web\",\"nerdctl/namespace\":\"default\"}}";

static const char podman[] = "[{\"id\":\"" OTHER "\",\"names\":[\"other\"],\"layer\":\"x\"},"
			     "{\"id\":\"" ID "\",\"names\":[\"web\"],\"image\":\"42\",\"metadata\":"
			     "\"{\\\"image-name\\\":\\\"localhost/"
			     "busy:1\\\",\\\"name\\\":\\\"web\\\",\\\"created-at\\\":1795313220}\",\"flags\":{}}]";

typedef int parser(const char *text, size_t len, struct container *ret, struct container_state_more *more);

static int list(const char *text, size_t len, struct container *ret, struct container_state_more *more)
{
	struct container_state_list *list = NULL;
	int r = container_state_list_new(text, len, &list);

	(void)more;
	if (r == 0)
		r = container_state_list_find(list, ret);
	container_state_list_free(list);

	return r;
}

static const struct {
	parser *parse;
	const char *text;
	enum container_runtime settled;
	const char *name, *space, *pod, *image;
	bool sandbox;
} documents[] = {
	{ container_state_docker, docker, CONTAINER_UNKNOWN, "shop-web", "", "", "nginx:1.27", false },
	{ container_state_docker, docker_pod, CONTAINER_UNKNOWN, "app", "shop", "web-7d9f", "sha256:11", false },
	{ container_state_docker, docker_pause, CONTAINER_UNKNOWN, "POD", "shop", "web-7d9f", "", true },
	{ container_state_oci, containerd, CONTAINER_UNKNOWN, "app", "shop", "web-7d9f", "docker.io/library/nginx:1.27",
	  false },
	{ container_state_oci, containerd_pause, CONTAINER_UNKNOWN, "", "shop", "web-7d9f", "", true },
	{ container_state_oci, crio, CONTAINER_CRIO, "app", "shop", "web-7d9f", "quay.io/nginx:1.27", false },
	{ container_state_oci, nerdctl, CONTAINER_UNKNOWN, "web", "", "", "", false },
	{ list, podman, CONTAINER_UNKNOWN, "web", "", "", "localhost/busy:1", false },
};

START_TEST(names_are_found)
{
	struct container container = { .id = ID };

	ck_assert_int_eq(documents[_i].parse(documents[_i].text, strlen(documents[_i].text), &container, NULL), 0);
	ck_assert_int_eq(container.runtime, documents[_i].settled);
	ck_assert_str_eq(container.id, ID);
	ck_assert_str_eq(container.name, documents[_i].name);
	ck_assert_str_eq(container.space, documents[_i].space);
	ck_assert_str_eq(container.pod, documents[_i].pod);
	ck_assert_str_eq(container.image, documents[_i].image);
	ck_assert_int_eq(container.sandbox, documents[_i].sandbox);
}
END_TEST

START_TEST(what_is_known_stays)
{
	struct container container = { .runtime = CONTAINER_DOCKER, .id = ID, .name = "mine" };

	ck_assert_int_eq(container_state_docker(docker, strlen(docker), &container, NULL), 0);
	ck_assert_str_eq(container.name, "mine");
	ck_assert_int_eq(container_state_oci(crio, strlen(crio), &container, NULL), 0);
	ck_assert_int_eq(container.runtime, CONTAINER_DOCKER);
	ck_assert_str_eq(container.image, "nginx:1.27");
}
END_TEST

static const struct {
	parser *parse;
	const char *text;
	int r;
} useless[] = {
	{ container_state_docker, "{}", 1 },
	{ container_state_docker, "[]", 1 },
	{ container_state_docker, "1", 1 },
	{ container_state_docker, "{\"Name\":\"/\",\"Config\":null}", 1 },
	{ container_state_docker, "{\"Name\":7,\"Config\":{\"Image\":[],\"Labels\":\"x\"}}", 1 },
	{ container_state_docker, "{\"Name\":\"/web\"", -EBADMSG },
	{ container_state_docker, "", -EBADMSG },
	{ container_state_docker, "{\"Name\":\"\xff\"}", -EBADMSG },
	{ container_state_oci, "{\"annotations\":[\"nerdctl/name\"]}", 1 },
	{ container_state_oci, "{\"annotations\":{\"nerdctl/name\":\"\"}}", 1 },
	{ container_state_oci, "{", -EBADMSG },
	{ list, "[]", 1 },
	{ list, "{\"id\":\"" ID "\"}", -EBADMSG },
	{ list, "[{\"id\":\"" ID "\"}", -EBADMSG },
	{ list, "[1,null,{\"id\":7},{\"id\":\"" ID "\"}]", 1 },
	{ list, "[{\"id\":\"" ID "\",\"names\":\"web\",\"metadata\":\"[\"}]", 1 },
};

START_TEST(what_says_nothing_and_what_is_damaged_are_told)
{
	struct container container = { .id = ID };

	ck_assert_int_eq(useless[_i].parse(useless[_i].text, strlen(useless[_i].text), &container, NULL),
			 useless[_i].r);
	ck_assert_str_eq(container.name, "");
}
END_TEST

/* ---- labels ---- */

static const char labelled[] = "{\"Name\":\"/web\",\"Config\":{\"Labels\":{\"com.docker.compose.service\":\"web\","
			       "\"app\":\"shop\",\"io.kubernetes.pod.uid\":\"" UID "\",\"nerdctl/name\":\"x\","
			       "\"annotation.mine\":\"1\",\"none\":7,\"nul\":\"a\\u0000b\",\"n\\u0000l\":\"a\"}}}";

static const char docker_sandbox[] = "{\"Config\":{\"Labels\":{\"app\":\"shop\",\"annotation.kubectl\":\"{}\","
				     "\"io.kubernetes.docker.type\":\"podsandbox\"}}}";

static const char docker_member[] = "{\"Config\":{\"Labels\":{\"io.kubernetes.docker.type\":\"container\","
				    "\"io.kubernetes.sandbox.id\":\"" OTHER "\"}}}";

static const char crio_labels[] = "{\"annotations\":{\"io.kubernetes.cri-o.SandboxID\":\"" OTHER "\","
				  "\"io.kubernetes.cri-o.Labels\":\"{\\\"app\\\":\\\"shop\\\","
				  "\\\"io.kubernetes.pod.name\\\":\\\"web\\\"}\"}}";

static int podman_config(const char *text, size_t len, struct container *ret, struct container_state_more *more)
{
	(void)ret;
	return container_state_podman_labels(text, len, more);
}

static const struct {
	parser *parse;
	const char *text, *labels, *pod_id;
	bool labelled;
	unsigned left_out;
} with_labels[] = {
	{ container_state_docker, labelled, "annotation.mine=1 app=shop com.docker.compose.service=web ", "", true, 2 },
	{ container_state_docker, docker_sandbox, "app=shop ", "", true, 0 },
	{ container_state_docker, docker_member, "", OTHER, true, 0 },
	{ container_state_docker, "{\"Name\":\"/web\",\"Config\":{\"Labels\":null}}", "", "", true, 0 },
	{ container_state_docker, "{\"Name\":\"/web\",\"Config\":{\"Labels\":[\"a\"]}}", "", "", true, 0 },
	{ container_state_docker, "{\"Name\":\"/web\"}", "", "", false, 0 },
	{ container_state_docker, "{\"Config\":{\"Labels\":{\"app\":\"a\",\"app\":\"b\"}}}", "", "", false, 0 },
	{ container_state_docker, "{\"Config\":{\"Labels\":{\"app\":\"\xff\"}}}", "", "", false, 0 },
	{ container_state_oci, crio_labels, "app=shop ", OTHER, true, 0 },
	{ container_state_oci, containerd, "", OTHER, false, 0 },
	{ container_state_oci, "{\"annotations\":{\"io.kubernetes.cri-o.Labels\":\"{\"}}", "", "", false, 0 },
	{ container_state_oci, "{\"annotations\":{\"io.kubernetes.cri-o.Labels\":\"[]\"}}", "", "", false, 0 },
	{ podman_config, "{\"labels\":{\"app\":\"shop\"},\"name\":\"web\"}", "app=shop ", "", true, 0 },
	{ podman_config, "{\"name\":\"web\"}", "", "", false, 0 },
	{ podman_config, "[]", "", "", false, 0 },
};

static const char *all_labels(const struct labels *labels)
{
	static char text[2 * LABELS_BYTES_MAX];
	size_t len = 0;

	text[0] = '\0';
	for (const char *key = labels_next(labels, NULL); key; key = labels_next(labels, key))
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s=%s ", key, labels_value(key));

	return text;
}

START_TEST(labels_that_somebody_gave_are_found)
{
	struct container container = { .id = ID };
	struct container_state_more more = { .labelled = false };

	with_labels[_i].parse(with_labels[_i].text, strlen(with_labels[_i].text), &container, &more);
	ck_assert_str_eq(all_labels(&more.labels), with_labels[_i].labels);
	ck_assert_str_eq(more.pod_id, with_labels[_i].pod_id);
	ck_assert_int_eq(more.labelled, with_labels[_i].labelled);
	ck_assert_uint_eq(more.labels.left_out, with_labels[_i].left_out);
}
END_TEST

START_TEST(of_a_flood_of_labels_some_are_kept_and_the_rest_is_counted)
{
	struct container container = { .id = ID };
	struct container_state_more more = { .labelled = false };
	char *text = malloc(CONTAINER_STATE_BYTES_MAX);
	size_t len, count = 0;

	ck_assert_ptr_nonnull(text);
	len = (size_t)snprintf(text, CONTAINER_STATE_BYTES_MAX, "{\"Config\":{\"Labels\":{\"app\":\"web\"");
	while (len < CONTAINER_STATE_BYTES_MAX - 128)
		len += (size_t)snprintf(text + len, CONTAINER_STATE_BYTES_MAX - len, ",\"key-%06zu\":\"%048d\"",
					count++, 1);
	len += (size_t)snprintf(text + len, CONTAINER_STATE_BYTES_MAX - len, "}}}");
	ck_assert_int_eq(container_state_docker(text, len, &container, &more), 1);
	ck_assert(more.labelled);
	ck_assert_str_eq(labels_get(&more.labels, "app"), "web");
	ck_assert_uint_le(more.labels.len, LABELS_BYTES_MAX);
	ck_assert_uint_eq(more.labels.count + more.labels.left_out, count + 1);
	free(text);
}
END_TEST

START_TEST(without_memory_labels_are_not_known)
{
	for (size_t i = 0; i < ARRAY_LEN(with_labels); i++) {
		bool injected = true;

		for (long n = 1; injected; n++) {
			struct container container = { .id = ID };
			struct container_state_more more = { .labelled = false };

			torture_arm(n);
			int r = with_labels[i].parse(with_labels[i].text, strlen(with_labels[i].text), &container,
						     &more);
			injected = torture_disarm();
			if (injected)
				ck_assert_int_eq(r, -ENOMEM);
			ck_assert_int_eq(more.labelled, !injected && with_labels[i].labelled);
		}
	}
}
END_TEST

START_TEST(deep_and_large_documents_are_refused)
{
	size_t size = CONTAINER_STATE_BYTES_MAX + 16;
	char *text = malloc(size);
	struct container container = { .id = ID };

	ck_assert_ptr_nonnull(text);
	memset(text, '[', size);
	ck_assert_int_eq(container_state_oci(text, 1000, &container, NULL), -EBADMSG);
	memset(text, ' ', size);
	memcpy(text, "{}", 2);
	ck_assert_int_eq(container_state_oci(text, size, &container, NULL), -EBADMSG);
	ck_assert_int_eq(container_state_oci(text, CONTAINER_STATE_BYTES_MAX, &container, NULL), 1);
	free(text);
}
END_TEST

static int put_item(char *at, size_t room, unsigned i)
{
	return snprintf(at, room, "%c{\"id\":\"%064x\",\"names\":[\"n%u\"]}", i ? ',' : '[', i * 2654435761u, i);
}

START_TEST(a_list_is_asked_for_many)
{
	struct container_state_list *many = NULL;
	struct container container;
	char *text = malloc(CONTAINER_STATE_LIST_BYTES_MAX);
	size_t len = 0;

	ck_assert_ptr_nonnull(text);
	for (unsigned i = 0; i < CONTAINER_STATE_LIST_MAX + 3; i++)
		len += (size_t)put_item(text + len, CONTAINER_STATE_LIST_BYTES_MAX - len, i);
	text[len++] = ']';
	ck_assert_int_eq(container_state_list_new(text, len, &many), 0);
	for (unsigned i = 0; i < CONTAINER_STATE_LIST_MAX + 3; i += 7) {
		char name[16];

		container = (struct container){ .runtime = CONTAINER_PODMAN };
		snprintf(container.id, sizeof(container.id), "%064x", i * 2654435761u);
		snprintf(name, sizeof(name), i < CONTAINER_STATE_LIST_MAX ? "n%u" : "", i);
		ck_assert_int_eq(container_state_list_find(many, &container), *name == '\0');
		ck_assert_str_eq(container.name, name);
	}
	container_state_list_free(many);
	free(text);
}
END_TEST

START_TEST(links_of_the_kubelet_name_pod_and_container)
{
	struct container container = { .id = ID };

	ck_assert(container_state_log_link("web-7d9f-x2x_shop_app-1-" ID ".log", &container));
	ck_assert_str_eq(container.pod, "web-7d9f-x2x");
	ck_assert_str_eq(container.space, "shop");
	ck_assert_str_eq(container.name, "app-1");
}
END_TEST

static const char *const links[] = {
	"",
	".log",
	"_",
	"__",
	ID ".log",
	"-" ID ".log",
	"_-" ID ".log",
	"__-" ID ".log",
	"a_b_c-" OTHER ".log",
	"a_b_c-" ID,
	"a_b_c" ID ".log",
	"a_b_c-" ID ".log.1",
	"a-b-c-" ID ".log",
	"a_b-" ID ".log",
};

START_TEST(other_links_are_left_alone)
{
	struct container container = { .id = ID };

	ck_assert(!container_state_log_link(links[_i], &container));
	ck_assert_str_eq(container.pod, "");
}
END_TEST

START_TEST(directories_of_logs_name_the_pod)
{
	struct container container = { .id = ID };

	ck_assert(!container_state_log_directory("shop_web-7d9f_other", UID, &container));
	ck_assert(!container_state_log_directory("_" UID, UID, &container));
	ck_assert(!container_state_log_directory("__" UID, UID, &container));
	ck_assert(!container_state_log_directory(UID, UID, &container));
	ck_assert(!container_state_log_directory("", UID, &container));
	ck_assert(container_state_log_directory("shop_web-7d9f_" UID, UID, &container));
	ck_assert_str_eq(container.pod, "web-7d9f");
	ck_assert_str_eq(container.space, "shop");
	ck_assert_str_eq(container.name, "");
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
		bool injected = true;

		for (long n = 1; injected; n++) {
			struct container container = { .id = ID };

			torture_arm(n);
			int r = documents[i].parse(documents[i].text, strlen(documents[i].text), &container, NULL);
			injected = torture_disarm();
			/* A list's item may have its name without the document within it. */
			if (injected && r == 0)
				ck_assert_str_eq(container.name, documents[i].name);
			else
				ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		}
	}
}
END_TEST

Suite *container_state_suite(void)
{
	Suite *suite = suite_create("container_state");
	TCase *tcase = tcase_create("containerstate");

	tcase_add_loop_test(tcase, names_are_found, 0, ARRAY_LEN(documents));
	tcase_add_test(tcase, what_is_known_stays);
	tcase_add_loop_test(tcase, what_says_nothing_and_what_is_damaged_are_told, 0, ARRAY_LEN(useless));
	tcase_add_loop_test(tcase, labels_that_somebody_gave_are_found, 0, ARRAY_LEN(with_labels));
	tcase_add_test(tcase, of_a_flood_of_labels_some_are_kept_and_the_rest_is_counted);
	tcase_add_test(tcase, without_memory_labels_are_not_known);
	tcase_add_test(tcase, deep_and_large_documents_are_refused);
	tcase_add_test(tcase, a_list_is_asked_for_many);
	tcase_add_test(tcase, links_of_the_kubelet_name_pod_and_container);
	tcase_add_loop_test(tcase, other_links_are_left_alone, 0, ARRAY_LEN(links));
	tcase_add_test(tcase, directories_of_logs_name_the_pod);
	tcase_add_test(tcase, without_memory_it_says_so);
	suite_add_tcase(suite, tcase);

	return suite;
}
