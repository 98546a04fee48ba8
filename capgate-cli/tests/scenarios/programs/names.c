/* names HOW ...: makes and changes names by calls that no shell makes. */
#include "common.h"
#include <sys/stat.h>
#include <sys/mman.h>
#include <sys/xattr.h>

static int opened(const char *name, int flags)
{
	int fd = open(name, flags, 0644);

	if (fd < 0)
		fail(name);
	return fd;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "", *other = argc > 3 ? argv[3] : "";
	union {
		struct file_handle handle;
		char bytes[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} place = { .handle.handle_bytes = MAX_HANDLE_SZ };
	char path[64];
	int result, id;

	if (strcmp(how, "truncate") == 0) {
		result = truncate(name, 1);
	} else if (strcmp(how, "ftruncate") == 0) {
		result = ftruncate(opened(name, O_RDWR), 1);
	} else if (strcmp(how, "fallocate") == 0) {
		result = fallocate(opened(name, O_WRONLY), 0, 0, 100);
	} else if (strcmp(how, "fifo") == 0) {
		result = mkfifo(name, 0644);
	} else if (strcmp(how, "socket") == 0) {
		result = mknod(name, S_IFSOCK | 0644, 0);
	} else if (strcmp(how, "regular") == 0) {
		result = mknod(name, S_IFREG | 0644, 0);
	} else if (strcmp(how, "link") == 0) {
		result = link(name, other);
	} else if (strcmp(how, "attribute") == 0) {
		result = setxattr(name, "trusted.x", "x", 1, 0);
	} else if (strcmp(how, "nameless") == 0) {
		/* A file without a name, which never gets one. */
		result = opened(".", O_TMPFILE | O_WRONLY);
	} else if (strcmp(how, "named") == 0) {
		/* A file that gets its name later. */
		result = linkat(opened(".", O_TMPFILE | O_WRONLY), "", AT_FDCWD, name, AT_EMPTY_PATH);
	} else if (strcmp(how, "named-by-proc") == 0) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", opened(".", O_TMPFILE | O_WRONLY));
		result = linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
	} else if (strcmp(how, "again") == 0) {
		/* A file that was opened for reading is opened for writing through /proc. */
		snprintf(path, sizeof path, "/proc/self/fd/%d", opened(name, O_RDONLY));
		result = opened(path, O_WRONLY);
	} else if (strcmp(how, "handle") == 0) {
		if (name_to_handle_at(AT_FDCWD, name, &place.handle, &id, 0) < 0)
			fail("name_to_handle_at");
		result = open_by_handle_at(opened(".", O_RDONLY | O_DIRECTORY), &place.handle, O_WRONLY);
	} else if (strcmp(how, "exchange") == 0) {
		result = renameat2(AT_FDCWD, name, AT_FDCWD, other, RENAME_EXCHANGE);
	} else if (strcmp(how, "noreplace") == 0) {
		result = renameat2(AT_FDCWD, name, AT_FDCWD, other, RENAME_NOREPLACE);
	} else if (strcmp(how, "whiteout") == 0) {
		result = renameat2(AT_FDCWD, name, AT_FDCWD, other, RENAME_WHITEOUT);
	} else if (strcmp(how, "memory") == 0) {
		result = write(memfd_create("m", 0), "x", 1);
	} else if (strcmp(how, "loop") == 0) {
		/* 64 short lives under one name, a last one that stays. */
		for (int i = 0; i < 64; i++) {
			create(name);
			unlink(name);
		}
		result = opened(name, O_WRONLY | O_CREAT);
	} else {
		return 2;
	}
	if (result < 0)
		fail(how);
	return 0;
}
