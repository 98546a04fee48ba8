/* spaces HOW: where it listens itself, and what is not there: other namespaces, other addresses, other families, other times. */
#include "common.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

static struct sockaddr_in at(const char *host, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		fail(host);
	return address;
}

/* 0, or why not. */
static int reach(int type, const char *host, int port)
{
	struct sockaddr_in to = at(host, port);
	int fd = socket(AF_INET, type, 0), result;

	if (fd < 0)
		fail("socket");
	result = connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ? errno : 0;
	close(fd);
	return result;
}

static int listening(const char *host, int port)
{
	struct sockaddr_in own = at(host, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
	    bind(fd, (struct sockaddr *)&own, sizeof own) < 0 || listen(fd, 9) < 0)
		fail("listen");
	return fd;
}

static void new_namespace(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };

	if (unshare(CLONE_NEWNET) < 0 || ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &lo) < 0)
		fail("unshare");
}

static void expect(int is, int want)
{
	if (is != want) {
		fprintf(stderr, "%s instead of %s\n", strerror(is), strerror(want));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";

	if (strcmp(how, "wildcard") == 0) {
		/* Where there is no route but to the loopback. */
		new_namespace();
		listening("0.0.0.0", 47001);
		expect(reach(SOCK_STREAM, "127.0.0.1", 47001), 0);
		expect(reach(SOCK_STREAM, "127.99.0.1", 47001), 0);
		expect(reach(SOCK_STREAM, "240.0.0.1", 47001), ENETUNREACH);
	} else if (strcmp(how, "gone") == 0) {
		expect(reach(SOCK_STREAM, "127.0.0.1", 47002), ECONNREFUSED);
		close(listening("127.0.0.1", 47002));
		expect(reach(SOCK_STREAM, "127.0.0.1", 47002), ECONNREFUSED);
	} else if (strcmp(how, "child") == 0) {
		/* Another process of the job listens. */
		int ready[2];
		char word;

		if (pipe(ready) < 0)
			fail("pipe");
		if (fork() == 0) {
			int fd = listening("127.0.0.1", 47003);

			if (write(ready[1], "x", 1) != 1)
				fail("write");
			if (accept(fd, NULL, NULL) < 0)
				fail("accept");
			_exit(0);
		}
		if (read(ready[0], &word, 1) != 1)
			fail("read");
		expect(reach(SOCK_STREAM, "127.0.0.1", 47003), 0);
		wait(NULL);
	} else if (strcmp(how, "transport") == 0) {
		/* A datagram socket at the port is no listener. */
		struct sockaddr_in own = at("127.0.0.1", 47004);

		if (bind(socket(AF_INET, SOCK_DGRAM, 0), (struct sockaddr *)&own, sizeof own) < 0)
			fail("bind");
		expect(reach(SOCK_STREAM, "127.0.0.1", 47004), ECONNREFUSED);
	} else if (strcmp(how, "namespace") == 0) {
		listening("127.0.0.1", 47005);
		expect(reach(SOCK_STREAM, "127.0.0.1", 47005), 0);
		new_namespace();
		expect(reach(SOCK_STREAM, "127.0.0.1", 47005), ECONNREFUSED);
	} else if (strcmp(how, "resolver") == 0) {
		new_namespace();
		expect(reach(SOCK_STREAM, "127.0.0.1", 53), ECONNREFUSED);
	} else {
		return 2;
	}
	return 0;
}
