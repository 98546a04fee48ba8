/* dirfds: makes sub/f and renames sub/old to other/new by descriptors of the directories, while the working directory is another. */
#include "common.h"
#include <stdio.h>

static int directory(const char *name)
{
	int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail(name);
	return fd;
}

int main(void)
{
	int sub = directory("sub"), other = directory("other");

	if (chdir("away") < 0)
		fail("away");
	if (openat(sub, "f", O_WRONLY | O_CREAT, 0644) < 0)
		fail("openat");
	if (renameat2(sub, "old", other, "new", 0) < 0)
		fail("renameat2");
	return 0;
}
