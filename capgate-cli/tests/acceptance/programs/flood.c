/* flood: opens one file far down a tree for writing as fast as four threads can, until its stdin ends. A record of such a path takes
 * some kilobytes, so that a small ring holds a few of them. Says so once it is at it. */
#include "common.h"
#include <pthread.h>
#include <sys/stat.h>

#define THREADS 4
#define DEPTH 15

static int ended;

static void *work(void *unused)
{
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED))
		create("flood");
	return unused;
}

int main(void)
{
	char step[201] = { 0 };
	pthread_t threads[THREADS];

	memset(step, 'd', sizeof step - 1);
	for (int i = 0; i < DEPTH; i++)
		if (mkdir(step, 0755) < 0 || chdir(step) < 0)
			fail("mkdir");
	for (int i = 0; i < 20000; i++)
		create("flood");
	for (int i = 0; i < THREADS; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, NULL)))
			fail("pthread_create");
	say("flooding");
	wait_for_word();
	__atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
