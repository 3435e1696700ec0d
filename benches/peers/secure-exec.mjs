// A fresh runtime per run. `node secure-exec.mjs RUNS NODE_MODULES`
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { report } from "./report.mjs";

const [runs, modules] = process.argv.slice(2);
const entry = createRequire(modules + "/").resolve("secure-exec");
const { NodeRuntime, createNodeDriver, NodeExecutionDriver } = await import(pathToFileURL(entry));

await report(Number(runs), async () => {
  const runtime = new NodeRuntime({
    systemDriver: createNodeDriver({}),
    runtimeDriverFactory: { createRuntimeDriver: (options) => new NodeExecutionDriver({ ...options, bindings: { echo: async (args) => args } }) },
    memoryLimit: 64,
  });
  try {
    const result = await runtime.run("const answer = await SecureExec.bindings.echo({ n: 41 }); export const value = answer.n + 1;", "/entry.mjs");
    if (result.code !== 0) throw new Error(result.errorMessage ?? `status ${result.code}`);
    return result.exports?.value;
  } finally {
    runtime.dispose();
  }
});
