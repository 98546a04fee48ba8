/* container ROOT REPO: moves into a container as a runtime makes one, with the repository at /work, and changes files there. */
#include "common.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("unshare");
	if (mount("none", argv[1], "tmpfs", 0, NULL) < 0 || chdir(argv[1]) < 0)
		fail(argv[1]);
	if (mkdir("work", 0755) < 0 || mount(argv[2], "work", NULL, MS_BIND, NULL) < 0)
		fail(argv[2]);
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/work/sub") < 0)
		fail("pivot_root");
	create("/work/f");
	create("g");
	if (rename("/work/a", "b") < 0 || unlink("../gone") < 0)
		fail("names");
	return 0;
}
