// Returns to an address that no program can have.
static void smash(long *at) {
    at[0] = 0x4141414141414141;
}

static void smashed(void) {
    smash((long *)__builtin_frame_address(0) + 1);
}

int main(void) {
    smashed();
    return 0;
}
