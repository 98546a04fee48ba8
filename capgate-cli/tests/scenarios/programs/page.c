/* page WHERE: creates `name` and removes `old` by strings in places that are hard to read. */
#include "common.h"
#include <sys/mman.h>

int main(int argc, char **argv)
{
	const char *where = argc > 1 ? argv[1] : "";
	long size = sysconf(_SC_PAGESIZE);
	const char *name, *old;
	char *pages;

	if (strcmp(where, "untouched") == 0) {
		/* In a file that nobody has read: the kernel is the first to touch the page. */
		int fd = open("string", O_RDONLY);

		pages = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (pages == MAP_FAILED)
			fail("mmap");
		name = pages;
		old = pages + sizeof "name";
	} else if (strcmp(where, "border") == 0) {
		/* Behind the closing NUL there is nothing. */
		pages = mmap(NULL, 4 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pages == MAP_FAILED || munmap(pages + size, size) < 0 || munmap(pages + 3 * size, size) < 0)
			fail("mmap");
		name = memcpy(pages + size - sizeof "name", "name", sizeof "name");
		old = memcpy(pages + 3 * size - sizeof "old", "old", sizeof "old");
	} else {
		return 2;
	}
	if (open(name, O_WRONLY | O_CREAT, 0644) < 0)
		fail("open");
	if (unlink(old) < 0)
		fail("unlink");
	return 0;
}
