/* configfile.c: what the command line says wins over what is written. */
#include "configfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int configfile_load(const struct configfile *file, struct config **ret, char *message)
{
	struct config_error error;
	struct config *config;
	int r = config_load(file->path, file->dropins, &config, &error);

	if (r == -EINVAL)
		config_error_format(&error, message, CONFIGFILE_MESSAGE_MAX);
	else if (r < 0)
		snprintf(message, CONFIGFILE_MESSAGE_MAX, "%s: %s", file->path, strerror(-r));
	if (r < 0)
		return r;

	if (file->proc_root)
		config->proc_root = file->proc_root;
	if (file->cgroup_root)
		config->cgroup_root = file->cgroup_root;
	*ret = config;

	return 0;
}
