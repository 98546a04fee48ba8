/* refused HOW: goes to 127.77.0.2:5432, where somebody outside the job listens, and must be refused with EPERM; `not`: and must
   reach it. */
#include "common.h"
#include <arpa/inet.h>
#include <netinet/in.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int make(int family, int type, int protocol)
{
	int fd = socket(family, type, protocol);

	if (fd < 0)
		fail("socket");
	return fd;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(5432) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(5432) };
	struct sockaddr *to = (struct sockaddr *)&v4, *mapped = (struct sockaddr *)&v6;
	struct iovec data = { .iov_base = "x", .iov_len = 1 };
	struct mmsghdr message = { .msg_hdr = { .msg_name = to, .msg_namelen = sizeof v4, .msg_iov = &data, .msg_iovlen = 1 } };
	int result;

	inet_pton(AF_INET, "127.77.0.2", &v4.sin_addr);
	inet_pton(AF_INET6, "::ffff:127.77.0.2", &v6.sin6_addr);
	if (strcmp(how, "not") == 0)
		return connect(make(AF_INET, SOCK_STREAM, 0), to, sizeof v4) == 0 ? 0 : 1;
	if (strcmp(how, "connect") == 0) {
		result = connect(make(AF_INET, SOCK_STREAM, 0), to, sizeof v4);
	} else if (strcmp(how, "mapped") == 0) {
		result = connect(make(AF_INET6, SOCK_STREAM, 0), mapped, sizeof v6);
	} else if (strcmp(how, "multipath") == 0) {
		result = connect(make(AF_INET, SOCK_STREAM, IPPROTO_MPTCP), to, sizeof v4);
	} else if (strcmp(how, "fastopen") == 0) {
		result = sendto(make(AF_INET, SOCK_STREAM, 0), "x", 1, MSG_FASTOPEN, to, sizeof v4);
	} else if (strcmp(how, "elsewhere") == 0) {
		/* An address that is nobody's (RFC 5737), on the port that is free for the loopback. */
		inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr);
		v4.sin_port = htons(9);
		result = connect(make(AF_INET, SOCK_STREAM, 0), to, sizeof v4);
	} else if (strcmp(how, "connected") == 0) {
		result = connect(make(AF_INET, SOCK_DGRAM, 0), to, sizeof v4);
	} else if (strcmp(how, "sendto") == 0) {
		result = sendto(make(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, to, sizeof v4);
	} else if (strcmp(how, "lite") == 0) {
		result = sendto(make(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE), "x", 1, 0, to, sizeof v4);
	} else if (strcmp(how, "sendto-mapped") == 0) {
		result = sendto(make(AF_INET6, SOCK_DGRAM, 0), "x", 1, 0, mapped, sizeof v6);
	} else if (strcmp(how, "sendmsg") == 0) {
		result = sendmsg(make(AF_INET, SOCK_DGRAM, 0), &message.msg_hdr, 0);
	} else if (strcmp(how, "sendmmsg") == 0) {
		result = sendmmsg(make(AF_INET, SOCK_DGRAM, 0), &message, 1, 0);
	} else if (strcmp(how, "raw") == 0) {
		v4.sin_port = 0;
		result = sendto(make(AF_INET, SOCK_RAW, 253), "x", 1, 0, to, sizeof v4);
	} else {
		return 2;
	}
	if (result >= 0) {
		fprintf(stderr, "%s was not refused\n", how);
		return 1;
	}
	if (errno != EPERM)
		fail(how);
	return 0;
}
