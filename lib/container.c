/* container.c: names. One table has the fields of the packed form in their order: what can be missed most is last, where it may be cut off. */
#include "container.h"
#include "scope.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#define SHORT_ID 12 /* what docker ps shows */

const char *container_runtime_name(enum container_runtime runtime)
{
	static const char *const names[CONTAINER_RUNTIMES] = {
		[CONTAINER_UNKNOWN] = "container", [CONTAINER_DOCKER] = "docker", [CONTAINER_CONTAINERD] = "containerd",
		[CONTAINER_CRIO] = "crio",         [CONTAINER_PODMAN] = "podman", [CONTAINER_NSPAWN] = "nspawn",
		[CONTAINER_LXC] = "lxc",
	};

	return runtime < CONTAINER_RUNTIMES ? names[runtime] : names[CONTAINER_UNKNOWN];
}

void container_text(char *ret, size_t cap, const char *text, size_t len)
{
	len = strnlen(text, len);
	if (len >= cap) {
		len = cap - 1;
		while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
			len--;
	}
	for (size_t i = 0; i < len; i++)
		ret[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '_' : text[i];
	ret[len] = '\0';
}

/* ---- names ---- */

static bool is_hex(const char *text)
{
	return text[strspn(text, "0123456789abcdef")] == '\0';
}

void container_short(const struct container *container, char *ret, size_t cap)
{
	if (container->name[0] != '\0')
		snprintf(ret, cap, "%s", container->name);
	else
		snprintf(ret, cap, "%.*s", is_hex(container->id) ? SHORT_ID : CONTAINER_TEXT_MAX, container->id);
}

void container_title(const struct container *container, char *ret, size_t cap)
{
	char name[CONTAINER_TEXT_MAX + 1];

	container_short(container, name, sizeof name);
	if (container->pod[0] != '\0')
		snprintf(ret, cap, "pod/%s/%s/%s", container->space, container->pod, name);
	else
		snprintf(ret, cap, "%s/%s", container_runtime_name(container->runtime), name);
}

bool container_matches(const struct container *container, const char *pattern)
{
	static const char image[] = "image:";
	char title[CONTAINER_TITLE_MAX];
	size_t len = strlen(pattern);

	if (container->sandbox)
		return false;
	if (strncmp(pattern, image, sizeof image - 1) == 0)
		return container->image[0] != '\0' && fnmatch(pattern + sizeof image - 1, container->image, 0) == 0;

	container_title(container, title, sizeof title);

	return fnmatch(pattern, title, 0) == 0 || fnmatch(pattern, strchr(title, '/') + 1, 0) == 0 ||
	       (container->name[0] != '\0' && fnmatch(pattern, container->name, 0) == 0) ||
	       fnmatch(pattern, container->id, 0) == 0 ||
	       (len >= SHORT_ID && is_hex(pattern) && strncmp(pattern, container->id, len) == 0);
}

/* ---- packed ---- */

/* clang-format off */
#define FIELD(m) { offsetof(struct container, m), sizeof(((struct container *)NULL)->m) }
static const struct { size_t offset, room; } fields[] = {
	FIELD(id), FIELD(name), FIELD(space), FIELD(pod), FIELD(image),
};
/* clang-format on */

void container_pack(const struct container *container, char *ret, size_t cap)
{
	int len = snprintf(ret, cap, "%s", container_runtime_name(container->runtime));

	for (size_t i = 0; i < ARRAY_LEN(fields) && (size_t)len < cap; i++)
		len += snprintf(ret + len, cap - (size_t)len, "\t%s", (const char *)container + fields[i].offset);
}

bool container_unpack(const char *text, struct container *ret)
{
	struct container container = { .runtime = CONTAINER_UNKNOWN };
	size_t len = text ? strcspn(text, "\t") : 0;

	if (len == 0 || text[len] == '\0')
		return false;

	for (enum container_runtime i = CONTAINER_UNKNOWN; i < CONTAINER_RUNTIMES; i++)
		if (strncmp(container_runtime_name(i), text, len) == 0 && container_runtime_name(i)[len] == '\0')
			container.runtime = i;
	for (size_t i = 0; i < ARRAY_LEN(fields) && text[len] == '\t'; i++) {
		text += len + 1;
		len = strcspn(text, "\t");
		container_text((char *)&container + fields[i].offset, fields[i].room, text, len);
	}
	if (container.id[0] == '\0')
		return false;
	*ret = container;

	return true;
}
