/* udp HOW: sends datagrams to 127.0.0.1:9, where nobody listens. */
#include "common.h"
#include <arpa/inet.h>

static struct sockaddr_in to(unsigned int host)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };

	address.sin_addr.s_addr = htonl(host);
	return address;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct sockaddr_in first = to(INADDR_LOOPBACK), second = to(INADDR_LOOPBACK + 1);
	struct iovec data = { .iov_base = "x", .iov_len = 1 };
	struct mmsghdr messages[2] = {
		{ .msg_hdr = { .msg_name = &first, .msg_namelen = sizeof first, .msg_iov = &data, .msg_iovlen = 1 } },
		{ .msg_hdr = { .msg_name = &second, .msg_namelen = sizeof second, .msg_iov = &data, .msg_iovlen = 1 } },
	};
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	int is_v6 = strcmp(how, "mapped") == 0;
	int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM, strcmp(how, "lite") == 0 ? IPPROTO_UDPLITE : 0);

	if (fd < 0)
		fail("socket");
	if (strcmp(how, "sendto") == 0 || strcmp(how, "lite") == 0) {
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&first, sizeof first) != 1)
			fail(how);
	} else if (is_v6) {
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&mapped, sizeof mapped) != 1)
			fail(how);
	} else if (strcmp(how, "broadcast") == 0) {
		/* To everybody, without having asked for it: refused, or there is no route. */
		first.sin_addr.s_addr = htonl(INADDR_BROADCAST);
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&first, sizeof first) == 1)
			return 1;
	} else if (strcmp(how, "own") == 0) {
		/* To a socket of the same process, which has a port that the kernel chose. */
		socklen_t length = sizeof second;
		int server = socket(AF_INET, SOCK_DGRAM, 0);

		second.sin_port = 0;
		if (bind(server, (struct sockaddr *)&second, sizeof second) < 0 ||
		    getsockname(server, (struct sockaddr *)&second, &length) < 0)
			fail("bind");
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&second, sizeof second) != 1)
			fail(how);
	} else if (strcmp(how, "sendmsg") == 0) {
		if (sendmsg(fd, &messages[0].msg_hdr, 0) != 1)
			fail(how);
	} else if (strcmp(how, "sendmmsg") == 0) {
		if (sendmmsg(fd, messages, 2, 0) != 2)
			fail(how);
	} else if (strcmp(how, "connected") == 0 || strcmp(how, "silent") == 0) {
		if (connect(fd, (struct sockaddr *)&first, sizeof first) < 0)
			fail("connect");
		if (how[0] == 'c' && send(fd, "x", 1, 0) != 1)
			fail("send");
	} else if (strcmp(how, "portless") == 0) {
		/* As getaddrinfo does to learn which source address it would have. */
		first.sin_port = 0;
		if (connect(fd, (struct sockaddr *)&first, sizeof first) < 0)
			fail("connect");
	} else {
		return 2;
	}
	return 0;
}
