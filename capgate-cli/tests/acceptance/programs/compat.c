/* compat: opens a file for writing and connects to 127.0.0.1:9 by the 32-bit system calls, whatever it was compiled for. */
#include "common.h"
#include <arpa/inet.h>
#include <sys/mman.h>

/* System call numbers of 32-bit x86 (arch/x86/entry/syscalls/syscall_32.tbl). */
#define OPEN32 5
#define SOCKETCALL32 102
/* Functions of socketcall (include/uapi/linux/net.h). */
#define SOCKET 1
#define CONNECT 3

static long int80(long number, long first, long second, long third)
{
	long result;

	asm volatile("int $0x80"
		     : "=a"(result)
		     : "a"(number), "b"(first), "c"(second), "d"(third)
		     : "memory"
#ifdef __x86_64__
		     , "r8", "r9", "r10", "r11"
#endif
	);
	return (int)result;
}

int main(void)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	struct { unsigned int args[3]; struct sockaddr_in to; char name[16]; } *low;
	int fd;

#ifdef __x86_64__
	/* What is passed must lie where 32 bits reach. */
	flags |= MAP_32BIT;
#endif
	low = mmap(NULL, sizeof *low, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (low == MAP_FAILED)
		fail("mmap");
	strcpy(low->name, "compat");
	if (int80(OPEN32, (long)low->name, O_WRONLY | O_CREAT, 0644) < 0)
		return 1;
	low->args[0] = AF_INET;
	low->args[1] = SOCK_STREAM;
	fd = int80(SOCKETCALL32, SOCKET, (long)low->args, 0);
	if (fd < 0)
		return 1;
	low->to.sin_family = AF_INET;
	low->to.sin_port = htons(9);
	low->to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	low->args[0] = fd;
	low->args[1] = (unsigned int)(long)&low->to;
	low->args[2] = sizeof low->to;
	return int80(SOCKETCALL32, CONNECT, (long)low->args, 0) == -ECONNREFUSED ? 0 : 1;
}
