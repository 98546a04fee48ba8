/* open HOW NAME: opens a file in one way, and does nothing with it. */
#include "common.h"
#include <sys/stat.h>

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";
	int flags;

	if (strcmp(how, "rdwr") == 0) {
		flags = O_RDWR;
	} else if (strcmp(how, "creat") == 0) {
		flags = O_RDONLY | O_CREAT;
	} else if (strcmp(how, "trunc") == 0) {
		flags = O_RDONLY | O_TRUNC;
	} else if (strcmp(how, "path") == 0) {
		flags = O_PATH;
	} else if (strcmp(how, "exclusive") == 0) {
		if (open(name, O_WRONLY | O_CREAT | O_EXCL, 0644) >= 0 || errno != EEXIST)
			fail("not refused");
		return 0;
	} else if (strcmp(how, "refused") == 0) {
		/* Nobody may write, and we are nobody who may override that. */
		if (chmod(name, 0444) < 0 || setgid(64121) < 0 || setuid(64121) < 0)
			fail("become nobody");
		if (open(name, O_WRONLY) >= 0 || errno != EACCES)
			fail("not refused");
		return 0;
	} else {
		return 2;
	}
	if (open(name, flags, 0644) < 0)
		fail(name);
	return 0;
}
