// What a program finds on `globalThis`: this list and nothing else.
//
// V8 and the embedder add names after a snapshot is loaded, so this runs in the worker, as the last step before a program
// can exist. A name that is not listed is deleted, whatever it is; one that can not be deleted stops the worker.
"use strict";
((globalThis) => {
  const layers = globalThis.__toolbridge;
  const { Date, Error, ObjectFreeze, ObjectGetPrototypeOf, ReflectDeleteProperty, ReflectOwnKeys, SafeSet, SetPrototypeHas, TypeError } =
    layers.primordials;

  const GLOBALS = new SafeSet([
    "AggregateError", "Array", "ArrayBuffer", "AsyncDisposableStack", "BigInt", "BigInt64Array", "BigUint64Array",
    "Boolean", "DataView", "Date", "DisposableStack", "Error", "EvalError", "FinalizationRegistry", "Float16Array",
    "Float32Array", "Float64Array", "Function", "Infinity", "Int16Array", "Int32Array", "Int8Array", "Intl", "Iterator",
    "JSON", "Map", "Math", "NaN", "Number", "Object", "Promise", "Proxy", "RangeError", "ReferenceError", "Reflect",
    "RegExp", "Set", "String", "SuppressedError", "Symbol", "SyntaxError", "TypeError", "URIError", "Uint16Array",
    "Uint32Array", "Uint8Array", "Uint8ClampedArray", "WeakMap", "WeakRef", "WeakSet", "console", "decodeURI",
    "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "eval", "globalThis", "isFinite", "isNaN",
    "openclaw", "parseFloat", "parseInt", "undefined", "unescape",
  ]);

  layers.lockDown = () => {
    // Twice: deleting the embedder's `queueMicrotask` uncovers the engine's own.
    for (let pass = 0; pass < 2; pass++) {
      const keys = ReflectOwnKeys(globalThis);
      for (let index = 0; index < keys.length; index++) {
        const key = keys[index];
        if (SetPrototypeHas(GLOBALS, key)) continue;
        if (!ReflectDeleteProperty(globalThis, key)) throw new TypeError("a global can not be removed");
      }
    }
    // Not in every build of the engine: the world is the same in all.
    ReflectDeleteProperty(Date.prototype, "toTemporalInstant");
    ReflectDeleteProperty(Error, "prepareStackTrace");
    // The engine's constructor of global objects.
    ReflectDeleteProperty(ObjectGetPrototypeOf(globalThis), "constructor");
    ObjectFreeze(layers);
  };
})(globalThis);
