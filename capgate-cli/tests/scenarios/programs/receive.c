/* receive SOCKET: connects to a unix socket, receives a descriptor there and writes to it. */
#include "common.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *head;
	int peer = socket(AF_UNIX, SOCK_STREAM, 0), fd;

	if (argc != 2)
		return 2;
	strncpy(to.sun_path, argv[1], sizeof to.sun_path - 1);
	if (connect(peer, (struct sockaddr *)&to, sizeof to) < 0)
		fail(argv[1]);
	if (recvmsg(peer, &message, 0) != 1)
		fail("recvmsg");
	head = CMSG_FIRSTHDR(&message);
	if (head == NULL || head->cmsg_type != SCM_RIGHTS)
		return 1;
	memcpy(&fd, CMSG_DATA(head), sizeof fd);
	if (write(fd, "x", 1) != 1)
		fail("write");
	return 0;
}
