/* threads NUMBER: that many short threads, a few at a time. Each creates t0, t1, ... and connects to 127.0.0.1:9. */
#include "common.h"
#include <arpa/inet.h>
#include <pthread.h>

#define AT_ONCE 20

static void *work(void *number)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	char name[32];
	int fd;

	snprintf(name, sizeof name, "t%ld", (long)number);
	create(name);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fail("socket");
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
		fprintf(stderr, "somebody listens on port 9\n");
		exit(1);
	}
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	long number = argc > 1 ? atol(argv[1]) : 1;
	pthread_t threads[AT_ONCE];

	for (long begin = 0; begin < number; begin += AT_ONCE) {
		long end = begin + AT_ONCE < number ? begin + AT_ONCE : number;

		for (long i = begin; i < end; i++)
			if ((errno = pthread_create(&threads[i - begin], NULL, work, (void *)i)))
				fail("pthread_create");
		for (long i = begin; i < end; i++)
			pthread_join(threads[i - begin], NULL);
	}
	return 0;
}
