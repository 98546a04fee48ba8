/* families HOW: uses a socket of a family that is neither unix nor a stream or datagram of inet. */
#include "common.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/vm_sockets.h>
#include <net/ethernet.h>
#include <net/if.h>

/* For experiments (include/uapi/linux/in.h has no name for it). */
#define PROTOCOL 253

static int made(int family, int type, int protocol)
{
	int fd = socket(family, type, protocol);

	if (fd < 0)
		fail("socket");
	return fd;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct sockaddr_in in = { .sin_family = AF_INET };

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (strcmp(how, "raw") == 0) {
		if (sendto(made(AF_INET, SOCK_RAW, PROTOCOL), "x", 1, 0, (struct sockaddr *)&in, sizeof in) != 1)
			fail("sendto");
	} else if (strcmp(how, "raw-idle") == 0) {
		made(AF_INET, SOCK_RAW, PROTOCOL);
	} else if (strcmp(how, "packet") == 0) {
		struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP) };

		at.sll_ifindex = if_nametoindex("lo");
		if (bind(made(AF_PACKET, SOCK_RAW, 0), (struct sockaddr *)&at, sizeof at) < 0)
			fail("bind");
	} else if (strcmp(how, "vsock") == 0) {
		struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = 1024 };

		if (connect(made(AF_VSOCK, SOCK_STREAM, 0), (struct sockaddr *)&vm, sizeof vm) == 0)
			return 1;
	} else {
		return 2;
	}
	return 0;
}
