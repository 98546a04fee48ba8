/* work WRITES EXECS PROGRAM: creates f0, f1, ... and runs a program again and again. */
#include "common.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
	long writes, execs;

	if (argc != 4)
		return 2;
	writes = atol(argv[1]);
	execs = atol(argv[2]);
	say("ready");
	wait_for_word();
	for (long i = 0, run = 0; i < writes; i++) {
		char name[32];

		snprintf(name, sizeof name, "f%ld", i);
		create(name);
		while (run * writes < (i + 1) * execs) {
			char *args[] = { argv[3], NULL };
			int status;
			pid_t pid;

			if ((errno = posix_spawn(&pid, argv[3], NULL, NULL, args, environ)))
				fail(argv[3]);
			if (waitpid(pid, &status, 0) != pid || status != 0)
				fail("a child failed");
			run++;
		}
	}
	return 0;
}
