/* names NAME…: looks up each name as the C library does it, and connects to port 8080 of the first addresses that it is given. What is
 * not found is no failure. A name that is an address is connected to. */
#include "common.h"
#include <netdb.h>
#include <sys/socket.h>

/* Of an answer with many addresses these are enough. */
#define MOST 4

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found, *one;

	for (int i = 1; i < argc; i++) {
		int result = getaddrinfo(argv[i], "8080", &hints, &found), left = MOST;

		if (result == EAI_NONAME || result == EAI_AGAIN)
			continue;
		if (result != 0) {
			fprintf(stderr, "%s: %s\n", argv[i], gai_strerror(result));
			return 1;
		}
		for (one = found; one && left-- > 0; one = one->ai_next) {
			int fd = socket(one->ai_family, SOCK_STREAM, 0);

			if (connect(fd, one->ai_addr, one->ai_addrlen) < 0)
				fail(argv[i]);
			close(fd);
		}
		freeaddrinfo(found);
	}
	return 0;
}
