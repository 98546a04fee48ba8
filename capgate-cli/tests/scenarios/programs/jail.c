/* jail DIR: changes its root to a directory and changes files there. */
#include "common.h"

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	if (chroot(argv[1]) < 0 || chdir("/") < 0)
		fail(argv[1]);
	create("/f");
	create("../../g");
	/* Through a link that is absolute: it starts at this root. */
	create("/link/made");
	if (unlink("/link/gone") < 0)
		fail("unlink");
	return 0;
}
