/* uring OPERATION [polled]: does one thing by io_uring, with raw system calls; polled: submitted by the kernel's own thread.
   refused-connect and refused-sendmsg go to 127.77.0.2:5432, which an enforced job may not reach. */
#include "common.h"
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static struct io_uring_params params;
static char *submissions, *completions;
static struct io_uring_sqe *entries;
static int ring;

static void set_up(bool polled)
{
	if (polled) {
		params.flags = IORING_SETUP_SQPOLL;
		params.sq_thread_idle = 1000;
	}
	ring = syscall(SYS_io_uring_setup, 4, &params);
	if (ring < 0)
		fail("io_uring_setup");
	submissions = mmap(NULL, params.sq_off.array + params.sq_entries * sizeof(unsigned int), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	completions = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe),
			   PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
	entries = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	if (submissions == MAP_FAILED || completions == MAP_FAILED || entries == MAP_FAILED)
		fail("mmap");
}

/* Submits one entry, and comes back with its result. */
static int perform(const struct io_uring_sqe *entry)
{
	unsigned int *tail = (unsigned int *)(submissions + params.sq_off.tail);
	unsigned int *head = (unsigned int *)(completions + params.cq_off.head);
	unsigned int *flags = (unsigned int *)(submissions + params.sq_off.flags);
	unsigned int slot = *tail & (params.sq_entries - 1), enter = IORING_ENTER_GETEVENTS;
	struct io_uring_cqe *done;

	entries[slot] = *entry;
	((unsigned int *)(submissions + params.sq_off.array))[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(flags, __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP)
		enter |= IORING_ENTER_SQ_WAKEUP;
	if (syscall(SYS_io_uring_enter, ring, 1, 1, enter, NULL, 0) < 0)
		fail("io_uring_enter");
	done = (struct io_uring_cqe *)(completions + params.cq_off.cqes) + (*head & (params.cq_entries - 1));
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return done->res;
}

int main(int argc, char **argv)
{
	const char *operation = argc > 1 ? argv[1] : "";
	struct io_uring_sqe entry = { .fd = AT_FDCWD };
	struct open_how how = { .flags = O_WRONLY | O_CREAT, .mode = 0644 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct sockaddr_un local = { .sun_family = AF_UNIX, .sun_path = "s.sock" };
	struct iovec data = { .iov_base = "x", .iov_len = 1 };
	struct msghdr message = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &data, .msg_iovlen = 1 };
	int result, expected = 0;
	bool refused = strncmp(operation, "refused-", 8) == 0;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (refused) {
		operation += 8;
		inet_pton(AF_INET, "127.77.0.2", &to.sin_addr);
		to.sin_port = htons(5432);
	}
	set_up(argc > 2);
	if (strcmp(operation, "open") == 0) {
		entry.opcode = IORING_OP_OPENAT2;
		entry.addr = (unsigned long)"opened";
		entry.off = (unsigned long)&how;
		entry.len = sizeof how;
		result = perform(&entry);
		if (result >= 0) {
			entry = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE, .fd = result };
			entry.addr = (unsigned long)"x";
			entry.len = 1;
			result = perform(&entry);
			expected = 1;
		}
	} else if (strcmp(operation, "rename") == 0) {
		entry.opcode = IORING_OP_RENAMEAT;
		entry.addr = (unsigned long)"from";
		entry.len = AT_FDCWD;
		entry.addr2 = (unsigned long)"to";
		result = perform(&entry);
	} else if (strcmp(operation, "unlink") == 0) {
		entry.opcode = IORING_OP_UNLINKAT;
		entry.addr = (unsigned long)"from";
		result = perform(&entry);
	} else if (strcmp(operation, "mkdir") == 0) {
		entry.opcode = IORING_OP_MKDIRAT;
		entry.addr = (unsigned long)"made";
		entry.len = 0755;
		result = perform(&entry);
		/* Something in it, by an ordinary call. */
		create("made/f");
	} else if (strcmp(operation, "connect") == 0) {
		entry.opcode = IORING_OP_CONNECT;
		entry.fd = socket(AF_INET, SOCK_STREAM, 0);
		entry.addr = (unsigned long)&to;
		entry.off = sizeof to;
		result = perform(&entry);
		expected = -ECONNREFUSED;
	} else if (strcmp(operation, "unix") == 0) {
		entry.opcode = IORING_OP_CONNECT;
		entry.fd = socket(AF_UNIX, SOCK_STREAM, 0);
		entry.addr = (unsigned long)&local;
		entry.off = sizeof local;
		result = perform(&entry);
	} else if (strcmp(operation, "sendmsg") == 0) {
		entry.opcode = IORING_OP_SENDMSG;
		entry.fd = socket(AF_INET, SOCK_DGRAM, 0);
		entry.addr = (unsigned long)&message;
		entry.len = 1;
		result = perform(&entry);
		expected = 1;
	} else if (strcmp(operation, "nop") == 0) {
		entry.opcode = IORING_OP_NOP;
		result = perform(&entry);
	} else {
		return 2;
	}
	if (refused)
		expected = -EPERM;
	if (result != expected) {
		errno = result < 0 ? -result : EIO;
		fail(operation);
	}
	return 0;
}
