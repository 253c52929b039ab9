// Jobs a second through Bottleneck, without a rate: what its own bookkeeping allows.
const Bottleneck = require("bottleneck");

const JOBS = 2_000;
const AT_ONCE = 64;

async function main() {
  const limiter = new Bottleneck({ maxConcurrent: AT_ONCE });
  const job = () => new Promise((resolve) => setImmediate(resolve));
  const start = process.hrtime.bigint();
  // As many offered ahead as the other side's queue holds.
  let offered = 0;
  const producer = async () => {
    while (offered < JOBS) {
      offered += 1;
      await limiter.schedule(job);
    }
  };
  await Promise.all(Array.from({ length: 1024 }, producer));
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  console.log(Math.round(JOBS / seconds));
}

main();
