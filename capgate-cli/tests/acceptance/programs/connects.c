/* connects FIRST COUNT: connects to port 8080 of COUNT addresses from FIRST on, and sends each a datagram there. Each of both
 * must succeed or be refused with EPERM. Says how many succeeded. */
#include "common.h"
#include <arpa/inet.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(8080) };
	int reached = 0, sent = 0;
	unsigned int first;

	if (argc < 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
		return 2;
	first = ntohl(to.sin_addr.s_addr);
	for (int i = 0; i < atoi(argv[2]); i++) {
		int stream = socket(AF_INET, SOCK_STREAM, 0), datagram = socket(AF_INET, SOCK_DGRAM, 0);

		to.sin_addr.s_addr = htonl(first + i);
		if (connect(stream, (struct sockaddr *)&to, sizeof to) == 0)
			reached++;
		else if (errno != EPERM)
			fail("connect");
		if (sendto(datagram, "x", 1, 0, (struct sockaddr *)&to, sizeof to) == 1)
			sent++;
		else if (errno != EPERM)
			fail("sendto");
		close(stream);
		close(datagram);
	}
	printf("%d %d\n", reached, sent);
	return 0;
}
