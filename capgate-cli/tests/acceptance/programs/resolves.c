/* resolves COUNT: looks up n1.example.org to nCOUNT.example.org, as the C library does it, and connects to port 8080 of every
 * address that it is given. */
#include "common.h"
#include <netdb.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found, *one;
	char name[64];

	for (int i = 1; i <= (argc > 1 ? atoi(argv[1]) : 0); i++) {
		int result;

		snprintf(name, sizeof name, "n%d.example.org", i);
		result = getaddrinfo(name, "8080", &hints, &found);
		if (result != 0) {
			fprintf(stderr, "%s: %s\n", name, gai_strerror(result));
			return 1;
		}
		for (one = found; one; one = one->ai_next) {
			int fd = socket(one->ai_family, SOCK_STREAM, 0);

			if (connect(fd, one->ai_addr, one->ai_addrlen) < 0)
				fail(name);
			close(fd);
		}
		freeaddrinfo(found);
	}
	return 0;
}
