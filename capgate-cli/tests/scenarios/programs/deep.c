/* deep COMPONENTS LENGTH: makes that many directories in each other, each name that long, and a file f in the last, step by step. */
#include "common.h"
#include <sys/stat.h>

int main(int argc, char **argv)
{
	long components = argc > 1 ? atol(argv[1]) : 1, length = argc > 2 ? atol(argv[2]) : 1;
	char name[256] = "";

	if (length >= (long)sizeof name)
		return 2;
	memset(name, 'd', length);
	for (long i = 0; i < components; i++)
		if (mkdir(name, 0755) < 0 || chdir(name) < 0)
			fail(name);
	create("f");
	return 0;
}
