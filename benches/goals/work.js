// Computes for some seconds in code that the JIT compiler has compiled, and prints how long a round took.
'use strict';
function round(data) {
  let sum = 0;
  for (let i = 0; i < 4000000; i++) {
    const at = (Math.imul(i, 2654435761) >>> 8) % data.length;
    data[at] = (data[at] + i) | 0;
    sum += data[at] & 0xff;
    if ((sum & 7) === 3) sum ^= data[(at + 1) % data.length];
  }
  return sum;
}
const data = new Int32Array(5000);
let sum = 0;
let best = Infinity;
for (let i = 0; i < Number(process.argv[2]); i++) {
  const begun = process.hrtime.bigint();
  sum += round(data);
  best = Math.min(best, Number(process.hrtime.bigint() - begun));
}
console.log(best / 1e9, sum);
