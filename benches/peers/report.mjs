// Runs a job some times and prints its durations in milliseconds as one line of JSON.
export async function report(runs, job) {
  const took = [];
  for (let run = -3; run < runs; run++) { // the first few pay for what is paid once
    const start = process.hrtime.bigint();
    const value = await job();
    const ms = Number(process.hrtime.bigint() - start) / 1e6;
    if (value !== 42) throw new Error(`answered ${JSON.stringify(value)} instead of 42`);
    if (run >= 0) took.push(ms);
  }
  console.log(JSON.stringify(took));
}
