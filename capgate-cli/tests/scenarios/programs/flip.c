/* flip OPERATION: while a thread keeps changing a name between `real` and `fake`, of which only the first exists, does something with
 * what is named, again and again. The name that the kernel uses is `real` whenever it succeeds. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 2000

static volatile char name[] = "real";
static atomic_bool over;

static void *flip(void *unused)
{
	(void)unused;
	while (!over) {
		memcpy((char *)name, "fake", 4);
		memcpy((char *)name, "real", 4);
	}
	return NULL;
}

/* Puts `real` back where the operation took it away. */
static void again(const char *operation)
{
	if (strcmp(operation, "rename") == 0 && rename("moved", "real") < 0)
		fail("moved");
	if (strcmp(operation, "unlink") == 0)
		create("real");
}

int main(int argc, char **argv)
{
	const char *operation = argc > 1 ? argv[1] : "";
	pthread_t thread;
	int done = 0;

	if ((errno = pthread_create(&thread, NULL, flip, NULL)))
		fail("pthread_create");
	for (int i = 0; i < ROUNDS; i++) {
		int result;

		if (strcmp(operation, "open") == 0) {
			result = open((char *)name, O_WRONLY);
			if (result >= 0)
				close(result);
		} else if (strcmp(operation, "unlink") == 0) {
			result = unlink((char *)name);
		} else if (strcmp(operation, "rename") == 0) {
			result = rename((char *)name, "moved");
		} else {
			return 2;
		}
		if (result >= 0) {
			done++;
			again(operation);
		} else if (errno != ENOENT) {
			fail(operation);
		}
	}
	over = 1;
	pthread_join(thread, NULL);
	return done > 0 ? 0 : 1;
}
