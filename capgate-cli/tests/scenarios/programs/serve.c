/* serve: listens on a port that the kernel chooses, and connects to it. Before that it tries once and is refused. */
#include "common.h"
#include <arpa/inet.h>

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t length = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) < 0)
		fail("bind");
	if (getsockname(listener, (struct sockaddr *)&at, &length) < 0)
		fail("getsockname");
	if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, length) == 0)
		return 1;
	if (listen(listener, 1) < 0)
		fail("listen");
	if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, length) < 0)
		fail("connect");
	return 0;
}
