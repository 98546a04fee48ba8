/* reach HOW PID: reaches into another process that runs this program; PID 0: into a child of its own. reach wait 0: is such a process. */
#include "common.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char byte;

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[1] : "";
	pid_t pid = argc > 2 ? atoi(argv[2]) : 0, child = 0;
	struct iovec from = { .iov_base = "x", .iov_len = 1 }, to = { .iov_base = &byte, .iov_len = 1 };

	if (pid == 0 && strcmp(how, "wait") != 0) {
		pid = child = fork();
		if (child == 0)
			for (;;)
				pause();
	}
	if (strcmp(how, "trace") == 0) {
		if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
			fail("ptrace");
	} else if (strcmp(how, "memory") == 0) {
		/* The program is static: its variables are at the same place in every process. */
		if (process_vm_writev(pid, &from, 1, &to, 1, 0) != 1)
			fail("process_vm_writev");
	} else if (strcmp(how, "descriptor") == 0) {
		/* The other process has a file open for writing as its stdin. */
		int fd = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, pid, 0), 0, 0);

		if (fd < 0 || write(fd, "x", 1) != 1)
			fail("pidfd_getfd");
	} else if (strcmp(how, "wait") == 0) {
		say("ready");
		pause();
	} else {
		return 2;
	}
	if (child > 0)
		kill(child, SIGKILL);
	return 0;
}
