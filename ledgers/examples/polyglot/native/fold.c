/* fold: prints a checksum of each file (FNV-1a, 32 bits). Linked statically: a preloaded library does not see what it does. */

#include <stdint.h>
#include <stdio.h>

static int fold(const char *name, uint32_t *sum)
{
    FILE *file = fopen(name, "rb");

    if (file == NULL)
        return -1;
    *sum = 2166136261u;
    for (int byte; (byte = getc(file)) != EOF;)
        *sum = (*sum ^ (uint32_t)byte) * 16777619u;
    int failed = ferror(file);
    return fclose(file) == 0 && !failed ? 0 : -1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        uint32_t sum;

        if (fold(argv[i], &sum) != 0) {
            perror(argv[i]);
            return 1;
        }
        printf("%08x  %s\n", (unsigned)sum, argv[i]);
    }
    return 0;
}
