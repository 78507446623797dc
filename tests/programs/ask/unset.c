/* A branch whose line names a variable that has no value before it, if optimized. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int number = atoi(argv[1]), said;
	if (number > 50) said = puts("large"); else said = puts("small");
	return said == argc;
}
