/* One function takes a lock, another fails to take it by a compare and exchange. */

static int the_lock;

__attribute__((noinline)) static void take(void)
{
	__sync_bool_compare_and_swap(&the_lock, 0, 1);
}

__attribute__((noinline)) static void fail_to_take(void)
{
	__sync_bool_compare_and_swap(&the_lock, 0, 2);
}

int main(void)
{
	take();
	fail_to_take();
	return 0;
}
