// What a program finds beside standard ECMAScript (no timers, no fetch, no import, no eval, no WebAssembly,
// SharedArrayBuffer, Atomics or Temporal). Time zone UTC, locale en-US.
//
// A program is the body of an async function (or an expression, a function, `export default`, any of them in a Markdown
// fence, with or without type annotations). Its value is what it returns, else the value of its last expression statement.

declare const openclaw: {
  readonly tools: {
    /** Tools that fit a query, the best first. Empty: see `hint`. */
    search(query: string, options?: { limit?: number }): Promise<Hits>;
    search(request: { query: string; limit?: number }): Promise<Hits>;
    /** One list for each of at most 16 queries. */
    search(queries: string[], options?: { limit?: number }): Promise<Hits[]>;
    /** Everything that is known of a tool, with the schema of its arguments. */
    describe(id: string): Promise<ToolDescription>;
    /** At most 10 ids; an id without a tool is answered with its error. */
    describe(ids: string[]): Promise<(ToolDescription | { id: string; error: ToolErrorFields })[]>;
    /** Starts at once; rejects with a ToolError. Await it. */
    call(id: string, args?: object): Promise<ToolResult>;
  };
};

/** A plain array. `hint` is not enumerable. */
type Hits = ToolHit[] & { readonly hint?: string };

interface ToolHit {
  id: string;
  name: string;
  source: string;
  owner: string;
  title?: string;
  description: string;
  /** The arguments in one line, required ones first. */
  signature: string;
  score: number;
}

interface ToolDescription extends Omit<ToolHit, "score"> {
  inputSchema: object;
  outputSchema?: object;
  annotations?: object;
  danger?: boolean;
  examples?: unknown[];
}

interface ToolResult {
  tool: { id: string; name: string; source: string };
  result: {
    /** Content blocks as MCP has them. */
    content: object[];
    /** `structuredContent`, else the parsed value of the only text block if it is JSON, else the joined text. */
    details: any;
    isError: false;
  };
}

interface ToolErrorFields {
  code:
    | "unknown_tool" | "ambiguous_tool" | "not_in_scope" | "invalid_arguments" | "denied" | "approval_denied"
    | "approval_timeout" | "hook_blocked" | "tool_error" | "tool_timeout" | "tool_unavailable" | "result_invalid"
    | "result_too_large" | "call_limit" | "loop_detected" | "aborted";
  message: string;
  suggestion?: string;
  elapsedMs: number;
  retryable: boolean;
  tool?: string;
  details?: unknown;
  content?: object[];
}

/** What a failed call rejects with: an Error whose `name` is "ToolError". Not a global. */
interface ToolError extends Error, ToolErrorFields {
  name: "ToolError";
  message: string;
}

/** Lines go to the run's log, which has a budget of its own. `%s %d %i %f %j %o %O %c %%` are understood. */
declare const console: {
  debug(...values: unknown[]): void;
  error(...values: unknown[]): void;
  info(...values: unknown[]): void;
  log(...values: unknown[]): void;
  warn(...values: unknown[]): void;
};

// How a program's value becomes JSON:
//
//   undefined                 null at the top and in arrays; no property in objects
//   Date                      ISO 8601 text, null when invalid
//   NaN, Infinity, -Infinity  { $type: "Number", value: "NaN" }
//   BigInt                    { $type: "BigInt", value: "12" }   (hexadecimal, "0x…", beyond 8 KiB of digits)
//   Map, Set                  { $type: "Map", entries: [[k, v]] }, { $type: "Set", values: [v] }
//   typed arrays              { $type: "Uint8Array", values: [1] }   (BigInt elements as strings)
//   ArrayBuffer, DataView     { $type: "ArrayBuffer", base64: "…" }
//   RegExp                    { $type: "RegExp", source: "a", flags: "g" }
//   Error                     { $type: "Error", name, message, cause?, … own properties }
//   function, symbol          { $type: "Function" }, { $type: "Symbol", description? }, with a warning that names the path
//   Promise, WeakMap, …       { $type: "Promise" }, with a warning
//   a reference to an enclosing object    { $type: "Circular", path: "$.a" }, with a warning
//   more than 100 levels      { $type: "TooDeep" }, with a warning
//
// toJSON is not called. A lone surrogate becomes U+FFFD. A value over maxOutputBytes becomes
// { truncated: true, prefix, omittedBytes, guidance, content? }: `prefix` is the beginning of the text itself if the value
// is a string, else of its JSON; image, audio and resource blocks do not count, stand in the prefix as {"$block": n}, and are
// whole in `content`.
