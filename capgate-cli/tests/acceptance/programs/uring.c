/* uring OPERATION: opens or renames a file by io_uring, with raw system calls. */
#include "common.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct io_uring_params params;
static char *submissions, *completions;
static struct io_uring_sqe *entries;
static int ring;

static void set_up(void)
{
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
	unsigned int slot = *tail & (params.sq_entries - 1);
	struct io_uring_cqe *done;

	entries[slot] = *entry;
	((unsigned int *)(submissions + params.sq_off.array))[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		fail("io_uring_enter");
	done = (struct io_uring_cqe *)(completions + params.cq_off.cqes) + (*head & (params.cq_entries - 1));
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return done->res;
}

int main(int argc, char **argv)
{
	struct io_uring_sqe entry = { .fd = AT_FDCWD };
	const char *operation = argc > 1 ? argv[1] : "";
	int result;

	set_up();
	if (strcmp(operation, "open") == 0) {
		entry.opcode = IORING_OP_OPENAT;
		entry.addr = (unsigned long)"opened";
		entry.open_flags = O_WRONLY | O_CREAT;
		entry.len = 0644;
	} else if (strcmp(operation, "rename") == 0) {
		entry.opcode = IORING_OP_RENAMEAT;
		entry.addr = (unsigned long)"from";
		entry.len = AT_FDCWD;
		entry.addr2 = (unsigned long)"to";
	} else if (strcmp(operation, "nop") == 0) {
		entry.opcode = IORING_OP_NOP;
	} else {
		return 2;
	}
	result = perform(&entry);
	if (result < 0) {
		errno = -result;
		fail(operation);
	}
	return 0;
}
