/* provider: what nobody should reach. */
#include "common.h"

int main(void)
{
	say("served");
	return 0;
}
