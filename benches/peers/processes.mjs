// One process per run: what people do without a sandbox of their own. `node processes.mjs node|deno RUNS [DENO]`
import { spawn } from "node:child_process";
import { writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { report } from "./report.mjs";

const [kind, runs, deno] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), "bench-"));
const program = "const answer = await call('echo', { n: 41 }); return answer.n + 1;";

const nodeChild = `
const call = (tool, args) => new Promise((resolve) => { process.once("message", resolve); process.send({ tool, args }); });
const AsyncFunction = (async () => {}).constructor;
process.once("message", async ({ code }) => {
  const value = await new AsyncFunction("call", code)(call);
  process.send({ value }, () => process.disconnect());
});`;
const denoChild = `
const lines = Deno.stdin.readable.pipeThrough(new TextDecoderStream());
let rest = ""; const reader = lines.getReader();
const read = async () => { while (!rest.includes("\\n")) rest += (await reader.read()).value; const at = rest.indexOf("\\n"); const line = rest.slice(0, at); rest = rest.slice(at + 1); return JSON.parse(line); };
const write = (message) => Deno.stdout.writeSync(new TextEncoder().encode(JSON.stringify(message) + "\\n"));
const call = async (tool, args) => { write({ tool, args }); return await read(); };
const AsyncFunction = (async () => {}).constructor;
const { code } = await read();
write({ value: await new AsyncFunction("call", code)(call) });
Deno.exit(0);`;

function withNode() {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ["--experimental-permission", `--allow-fs-read=${folder}`, join(folder, "child.cjs")], {
      stdio: ["ignore", "ignore", "ignore", "ipc"], env: {},
    });
    child.on("error", reject);
    child.on("exit", () => reject(new Error("the child ended without an answer")));
    child.on("message", (message) => "value" in message ? resolve(message.value) : child.send(message.args));
    child.send({ code: program });
  });
}

function withDeno() {
  return new Promise((resolve, reject) => {
    const child = spawn(deno, ["run", "--no-prompt", "--no-remote", "--no-config", join(folder, "child.ts")], {
      stdio: ["pipe", "pipe", "ignore"], env: { DENO_DIR: folder, NO_COLOR: "1" },
    });
    child.on("error", reject);
    child.on("exit", () => reject(new Error("the child ended without an answer")));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      if ("value" in message) resolve(message.value);
      else child.stdin.write(JSON.stringify(message.args) + "\n");
    });
    child.stdin.write(JSON.stringify({ code: program }) + "\n");
  });
}

writeFileSync(join(folder, "child.cjs"), nodeChild);
writeFileSync(join(folder, "child.ts"), denoChild);
try {
  await report(Number(runs), kind === "deno" ? withDeno : withNode);
} finally {
  rmSync(folder, { recursive: true });
}
