/* tree DIR: changes files in a copy of a directory's mount that is mounted nowhere. */
#include "common.h"
#include <sys/syscall.h>

/* include/uapi/linux/mount.h */
#define OPEN_TREE_CLONE 1

int main(int argc, char **argv)
{
	int tree = argc == 2 ? syscall(SYS_open_tree, AT_FDCWD, argv[1], OPEN_TREE_CLONE | O_CLOEXEC) : -1;

	if (tree < 0)
		fail("open_tree");
	if (openat(tree, "f", O_WRONLY | O_CREAT, 0644) < 0 || unlinkat(tree, "a", 0) < 0)
		fail("names");
	return 0;
}
