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
	int fd = socket(AF_INET, SOCK_DGRAM, strcmp(how, "lite") == 0 ? IPPROTO_UDPLITE : 0);

	if (fd < 0)
		fail("socket");
	if (strcmp(how, "sendto") == 0 || strcmp(how, "lite") == 0) {
		if (sendto(fd, "x", 1, 0, (struct sockaddr *)&first, sizeof first) != 1)
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
