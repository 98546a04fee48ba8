// Burns CPU time in a way that is hard to end, given by the first argument.

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void burn(void) {
    for (volatile unsigned long i = 0;; i++) {
    }
}

// Two children for each process, until there are as many as are allowed; every one burns.
static void bomb(int most) {
    atomic_int *count =
        mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (count == MAP_FAILED)
        exit(2);
    for (int i = 0; i < 2; i++) {
        if (atomic_fetch_add(count, 1) >= most)
            break;
        if (fork() == 0)
            i = -1;
    }
    burn();
}

// A process that has left its parent, its group and its session.
static void leave(void) {
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            signal(SIGHUP, SIG_IGN);
            burn();
        }
        _exit(0);
    }
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "bomb")) {
        bomb(64);
    } else if (!strcmp(way, "daemon-and-wait")) {
        leave();
        for (;;)
            pause();
    } else if (!strcmp(way, "daemon-and-end")) {
        leave();
        // More than the budget: what happens next does not depend on how much the other gets.
        while (clock() < 2 * CLOCKS_PER_SEC + CLOCKS_PER_SEC / 2) {
        }
        return 0;
    } else if (!strcmp(way, "stubborn")) {
        signal(SIGXCPU, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        burn();
    } else if (!strcmp(way, "fails-when-told")) {
        // Ends like a test that failed.
        signal(SIGXCPU, _exit);
        burn();
    }
    return 2;
}
