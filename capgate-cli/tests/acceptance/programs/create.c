/* create NAMES ROUNDS: waits for a word, then creates each of n0, n1, ... in every round and removes them between rounds. */
#include "common.h"

int main(int argc, char **argv)
{
	long names = argc > 1 ? atol(argv[1]) : 1, rounds = argc > 2 ? atol(argv[2]) : 1;
	char name[32];

	say("ready");
	wait_for_word();
	for (long round = 1; round <= rounds; round++) {
		for (long i = 0; i < names; i++) {
			snprintf(name, sizeof name, "n%ld", i);
			create(name);
			if (round < rounds && unlink(name) < 0)
				fail(name);
		}
	}
	say("done");
	return 0;
}
