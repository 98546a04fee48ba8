/* flip OPERATION: while a thread keeps changing a name between `real` and `fake`, of which only the first exists, does something with
 * what is named, until it often succeeded and often failed. The name that the kernel uses is `real` whenever it succeeds. */
#include "common.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

/* So often the kernel has to meet each of the names. */
#define MEETINGS 500

static struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "real" };
/* The address is a name, too. */
static char *const name = address.sun_path;
static atomic_bool over;

/* A function of its own: an emulator runs what lies between two jumps in one go, and nobody would ever see the first of two names. */
__attribute__((noinline)) static void put(const char *text)
{
	memcpy(name, text, 4);
	atomic_signal_fence(memory_order_seq_cst);
}

static void *flip(void *unused)
{
	(void)unused;
	while (!over) {
		put("fake");
		put("real");
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
	int done = 0, refused = 0;

	if ((errno = pthread_create(&thread, NULL, flip, NULL)))
		fail("pthread_create");
	while (done < MEETINGS || refused < MEETINGS) {
		int result;

		if (strcmp(operation, "open") == 0) {
			result = open(name, O_WRONLY);
			if (result >= 0)
				close(result);
		} else if (strcmp(operation, "unlink") == 0) {
			result = unlink(name);
		} else if (strcmp(operation, "rename") == 0) {
			result = rename(name, "moved");
		} else if (strcmp(operation, "connect") == 0) {
			int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

			result = connect(fd, (struct sockaddr *)&address, sizeof address);
			close(fd);
		} else {
			return 2;
		}
		if (result >= 0) {
			done++;
			again(operation);
		} else if (errno == EAGAIN) {
			/* The listener, which accepts nobody, has no room for more. */
			done++;
		} else if (errno == ENOENT) {
			refused++;
		} else {
			fail(operation);
		}
	}
	over = 1;
	pthread_join(thread, NULL);
	return 0;
}
