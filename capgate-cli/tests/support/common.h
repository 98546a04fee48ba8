/* What the test programs share. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Says a word that the test waits for. */
__attribute__((unused)) static void say(const char *word)
{
	if (write(1, word, strlen(word)) < 0 || write(1, "\n", 1) < 0)
		fail("stdout");
}

/* Waits for a line, or for the end of stdin. */
__attribute__((unused)) static void wait_for_word(void)
{
	char byte;

	while (read(0, &byte, 1) == 1 && byte != '\n')
		;
}

/* Makes a file; whether it was there does not matter. */
__attribute__((unused)) static void create(const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		fail(name);
	close(fd);
}
