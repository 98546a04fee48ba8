/* resolve HOW NAME: asks 127.0.0.1 port 53 for an address of a name, over udp or tcp, and connects to port 9 there, where nobody
 * listens; or only asks. */
#include "common.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>

static unsigned char message[65535];

static int question(const char *name)
{
	static const unsigned char head[12] = { 0x12, 0x34, 1, 0, 0, 1 };
	int at = sizeof head;

	memcpy(message, head, sizeof head);
	while (*name) {
		int length = strcspn(name, ".");

		message[at++] = length;
		memcpy(message + at, name, length);
		at += length;
		name += length + (name[length] == '.');
	}
	message[at++] = 0;
	memcpy(message + at, "\0\1\0\1", 4);
	return at + 4;
}

static void fill(int fd, unsigned char *to, int length)
{
	for (int got = 0, now; got < length; got += now) {
		now = read(fd, to + got, length - got);
		if (now <= 0)
			fail("read");
	}
}

/* In as many segments as it has bytes; the answer in whatever it comes. */
static int over_tcp(int fd, int length)
{
	unsigned char size[2] = { length >> 8, length };
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0)
		fail("setsockopt");
	for (int i = 0; i < 2 + length; i++)
		if (write(fd, i < 2 ? &size[i] : &message[i - 2], 1) != 1)
			fail("write");
	fill(fd, size, 2);
	length = size[0] << 8 | size[1];
	fill(fd, message, length);
	return length;
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "";
	int is_tcp = strcmp(how, "tcp") == 0;
	int fd = socket(AF_INET, is_tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(53) };
	int length = question(argc > 2 ? argv[2] : "");

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		fail("connect");
	if (is_tcp) {
		length = over_tcp(fd, length);
	} else {
		if (write(fd, message, length) != length)
			fail("write");
		length = read(fd, message, sizeof message);
	}
	if (length < 16)
		fail(how);
	if (strcmp(how, "ask") == 0)
		return 0;
	/* The last record is the address. */
	memcpy(&to.sin_addr, message + length - 4, 4);
	to.sin_port = htons(9);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno != ECONNREFUSED)
		fail("connect");
	return 0;
}
