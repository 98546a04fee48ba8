/* compat: opens a file for writing and connects to 127.0.0.1:9, as a 32-bit program whose C library may not know int 0x80's successor. */
#include "common.h"
#include <arpa/inet.h>

/* System call numbers of 32-bit x86 (arch/x86/entry/syscalls/syscall_32.tbl). */
#define OPEN 5
#define SOCKETCALL 102
/* Functions of socketcall (include/uapi/linux/net.h). */
#define SOCKET 1
#define CONNECT 3

static long int80(long number, long first, long second, long third)
{
	long result;

	asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
	return result;
}

int main(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	long made[3] = { AF_INET, SOCK_STREAM, 0 }, reached[3] = { 0, (long)&to, sizeof to };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (int80(OPEN, (long)"compat", O_WRONLY | O_CREAT, 0644) < 0)
		return 1;
	reached[0] = int80(SOCKETCALL, SOCKET, (long)made, 0);
	return int80(SOCKETCALL, CONNECT, (long)reached, 0) == -ECONNREFUSED ? 0 : 1;
}
