/* mapped NAME: writes to a file through a shared mapping, and never by write(2). */
#include "common.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
	int fd = open(argc > 1 ? argv[1] : "", O_RDWR);
	char *bytes;

	if (fd < 0)
		fail("open");
	bytes = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		fail("mmap");
	bytes[0] = 'x';
	return 0;
}
