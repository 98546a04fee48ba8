/* tcp HOW: tries to connect to 127.0.0.1:9, where nobody listens, or connects to 127.77.0.1:5432, where somebody does. */
#include "common.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static const struct sockaddr_in to = { .sin_family = AF_INET };

static int stream(int family, int type, int protocol)
{
	int fd = socket(family, SOCK_STREAM | type, protocol);

	if (fd < 0)
		fail("socket");
	return fd;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct sockaddr_in v4 = to;
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	int result;

	v4.sin_port = htons(9);
	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (strcmp(how, "refused") == 0) {
		result = connect(stream(AF_INET, 0, 0), (struct sockaddr *)&v4, sizeof v4);
	} else if (strcmp(how, "later") == 0) {
		result = connect(stream(AF_INET, SOCK_NONBLOCK, 0), (struct sockaddr *)&v4, sizeof v4);
	} else if (strcmp(how, "mapped") == 0) {
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6.sin6_addr);
		result = connect(stream(AF_INET6, 0, 0), (struct sockaddr *)&v6, sizeof v6);
	} else if (strcmp(how, "v6") == 0) {
		v6.sin6_addr = in6addr_loopback;
		result = connect(stream(AF_INET6, 0, 0), (struct sockaddr *)&v6, sizeof v6);
	} else if (strcmp(how, "unreachable") == 0) {
		/* No route leads to a class E address. */
		v4.sin_addr.s_addr = htonl(0xf0000001);
		result = connect(stream(AF_INET, SOCK_NONBLOCK, 0), (struct sockaddr *)&v4, sizeof v4);
	} else if (strcmp(how, "multipath") == 0) {
		result = connect(stream(AF_INET, 0, IPPROTO_MPTCP), (struct sockaddr *)&v4, sizeof v4);
	} else if (strcmp(how, "fastopen") == 0) {
		result = sendto(stream(AF_INET, 0, 0), "x", 1, MSG_FASTOPEN, (struct sockaddr *)&v4, sizeof v4);
	} else if (strcmp(how, "served") == 0) {
		inet_pton(AF_INET, "127.77.0.1", &v4.sin_addr);
		v4.sin_port = htons(5432);
		return connect(stream(AF_INET, 0, 0), (struct sockaddr *)&v4, sizeof v4) == 0 ? 0 : 1;
	} else {
		return 2;
	}
	if (result >= 0) {
		fprintf(stderr, "somebody is there\n");
		return 1;
	}
	if (errno != ECONNREFUSED && errno != EINPROGRESS && errno != ENETUNREACH)
		fail(how);
	return 0;
}
