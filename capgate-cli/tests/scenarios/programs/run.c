/* run HOW ...: executes in ways that a shell does not. */
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

extern char **environ;

static int opened(const char *name)
{
	int fd = open(name, O_RDONLY);

	if (fd < 0)
		fail(name);
	return fd;
}

/* A copy of a program in anonymous memory. */
static int copied(const char *name)
{
	int from = opened(name), to = memfd_create("x", 0);
	char bytes[65536];
	ssize_t length;

	if (to < 0)
		fail("memfd_create");
	while ((length = read(from, bytes, sizeof bytes)) > 0)
		if (write(to, bytes, length) != length)
			fail("write");
	return to;
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "";

	if (strcmp(how, "fd") == 0) {
		/* The program, or script, by its descriptor. */
		fexecve(opened(argv[2]), argv + 2, environ);
	} else if (strcmp(how, "memory") == 0) {
		fexecve(copied(argv[2]), argv + 2, environ);
	} else if (strcmp(how, "refused") == 0) {
		execv(argv[2], argv + 2);
		/* That was to be expected. */
		return errno == ENOENT ? 0 : 1;
	} else {
		return 2;
	}
	fail(how);
}
