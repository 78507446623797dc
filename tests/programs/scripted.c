/* Brings a script for gdb, which writes a file where it is executed. Ends by a signal. */

#include <stdlib.h>

__asm__(".pushsection \".debug_gdb_scripts\", \"MS\",@progbits,1\n"
        ".byte 4\n"
        ".ascii \"gdb.inlined-script\\n\"\n"
        ".ascii \"open('executed', 'w').close()\\n\"\n"
        ".byte 0\n"
        ".popsection\n");

int main(void)
{
    abort();
}
