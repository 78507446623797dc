/** Computes for some seconds in code that the JIT compiler has compiled, and says how long a round took. */
public class Work {
    static long round(int[] data) {
        long sum = 0;
        for (int i = 0; i < 4_000_000; i++) {
            int at = (int) ((i * 2654435761L >>> 8) % data.length);
            data[at] += i;
            sum += data[at] & 0xff;
            if ((sum & 7) == 3)
                sum ^= data[(at + 1) % data.length];
        }
        return sum;
    }

    public static void main(String[] arguments) {
        int[] data = new int[5000];
        long sum = 0, best = Long.MAX_VALUE;
        int rounds = Integer.parseInt(arguments[0]);
        for (int i = 0; i < rounds; i++) {
            long begun = System.nanoTime();
            sum += round(data);
            best = Math.min(best, System.nanoTime() - begun);
        }
        System.out.println(best / 1e9 + " " + sum);
    }
}
