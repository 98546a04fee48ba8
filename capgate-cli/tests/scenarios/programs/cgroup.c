/* cgroup HOW DIR: starts a child in another cgroup below DIR, the mount of the hierarchy, and lets it make a file. */
#include "common.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The directory of this process's own cgroup. */
static void own(char *path, size_t size, const char *mount)
{
	char line[4096];
	FILE *file = fopen("/proc/self/cgroup", "r");

	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, "0::", 3) == 0) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(path, size, "%s%s", mount, line + 3);
			return;
		}
	fail("/proc/self/cgroup");
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "", *mount = argc > 2 ? argv[2] : "";
	struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
	char path[8192];
	int status;
	pid_t child;

	if (strcmp(how, "below") == 0) {
		own(path, sizeof path - sizeof "/below", mount);
		strcat(path, "/below");
		if (mkdir(path, 0755) < 0)
			fail(path);
	} else if (strcmp(how, "out") == 0) {
		strcpy(path, mount);
	} else {
		return 2;
	}
	args.cgroup = open(path, O_RDONLY | O_DIRECTORY);
	child = syscall(SYS_clone3, &args, sizeof args);
	if (child < 0)
		fail("clone3");
	if (child == 0) {
		if (how[0] == 'b')
			create("late");
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	if (how[0] == 'b' && rmdir(path) < 0)
		fail("rmdir");
	return 0;
}
