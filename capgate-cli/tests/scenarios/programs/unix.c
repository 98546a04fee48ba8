/* unix HOW NAME: reaches a unix socket, or serves itself. A name that begins with @ is abstract. */
#include "common.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address;
static socklen_t length;

static int made(int type)
{
	int fd = socket(AF_UNIX, type, 0);

	if (fd < 0)
		fail("socket");
	return fd;
}

static void reach(void)
{
	if (connect(made(SOCK_STREAM), (struct sockaddr *)&address, length) < 0)
		fail("connect");
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";

	address.sun_family = AF_UNIX;
	strncpy(address.sun_path, name, sizeof address.sun_path - 1);
	length = sizeof(sa_family_t) + strlen(name) + (name[0] != '@');
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	if (strcmp(how, "stream") == 0) {
		reach();
	} else if (strcmp(how, "datagram") == 0) {
		if (sendto(made(SOCK_DGRAM), "x", 1, 0, (struct sockaddr *)&address, length) != 1)
			fail("sendto");
	} else if (strcmp(how, "message") == 0) {
		struct iovec data = { .iov_base = "x", .iov_len = 1 };
		struct msghdr message = { .msg_name = &address, .msg_namelen = length, .msg_iov = &data, .msg_iovlen = 1 };

		if (sendmsg(made(SOCK_DGRAM), &message, 0) != 1)
			fail("sendmsg");
	} else if (strcmp(how, "pair") == 0) {
		int ends[2];

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 || write(ends[0], "x", 1) != 1)
			fail("socketpair");
	} else if (strcmp(how, "absent") == 0) {
		if (connect(made(SOCK_STREAM), (struct sockaddr *)&address, length) == 0 || errno != ENOENT)
			fail("connect");
	} else if (strcmp(how, "own") == 0) {
		int listener = made(SOCK_STREAM);

		if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 1) < 0)
			fail("listen");
		reach();
	} else {
		return 2;
	}
	return 0;
}
