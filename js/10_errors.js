// ToolError: what the promise of a failed call rejects with.
//
// A real Error (so `instanceof Error`, `message` and `stack` work) whose machine-readable fields are its own properties.
// The constructor is reachable through an instance and makes look-alikes only: what the host takes for a genuine one is
// decided by a private mark that is set outside this heap.
"use strict";
((globalThis) => {
  const layers = globalThis.__toolbridge;
  const { Error, ObjectDefineProperty, ObjectFreeze, ObjectHasOwn } = layers.primordials;

  class ToolError extends Error {}

  const define = (object, key, value, enumerable) =>
    ObjectDefineProperty(object, key, {
      __proto__: null,
      value,
      configurable: true,
      enumerable,
      writable: true,
    });

  define(ToolError.prototype, "name", "ToolError", false);
  ObjectFreeze(ToolError.prototype);
  ObjectFreeze(ToolError);

  const { captureStackTrace } = Error;
  const FIELDS = ObjectFreeze(["code", "suggestion", "elapsedMs", "retryable", "tool", "details", "content"]);

  // `fields` comes straight from the JSON parser: own data properties, or absent.
  layers.makeToolError = (fields) => {
    const error = new ToolError(ObjectHasOwn(fields, "message") ? fields.message : "");
    define(error, "name", "ToolError", false);
    captureStackTrace(error, layers.makeToolError); // the program's frames only, none of ours
    for (let index = 0; index < FIELDS.length; index++) {
      const key = FIELDS[index];
      if (ObjectHasOwn(fields, key)) define(error, key, fields[key], true);
    }
    return error;
  };
})(globalThis);
