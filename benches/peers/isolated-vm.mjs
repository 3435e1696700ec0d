// A fresh isolate per run, in the host's own process. `node isolated-vm.mjs RUNS NODE_MODULES`
import { createRequire } from "node:module";
import { report } from "./report.mjs";

const [runs, modules] = process.argv.slice(2);
const ivm = createRequire(modules + "/")("isolated-vm");

await report(Number(runs), async () => {
  const isolate = new ivm.Isolate({ memoryLimit: 64 });
  try {
    const context = await isolate.createContext();
    await context.global.set("host", new ivm.Reference(async (tool, args) => JSON.stringify(JSON.parse(args))));
    const code = `(async () => { const call = async (tool, args) => JSON.parse(await host.apply(undefined, [tool, JSON.stringify(args)], { result: { promise: true } }));
      const answer = await call('echo', { n: 41 }); return answer.n + 1; })()`;
    const script = await isolate.compileScript(code);
    return await script.run(context, { promise: true, timeout: 10000 });
  } finally {
    isolate.dispose();
  }
});
