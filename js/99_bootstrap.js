// The one entry that a worker calls, once, in the process that will run programs or before it forks them.
//
// Takes the native functions, builds the world, closes it, and gives back the few internal functions that the worker
// calls later. Nothing of it stays reachable from the global.
"use strict";
((globalThis) => {
  const layers = globalThis.__toolbridge;

  layers.start = (natives) => {
    layers.kindName = natives.kindName;
    layers.installBridge(natives);
    layers.lockDown();
    return {
      __proto__: null,
      makeToolError: layers.makeToolError,
      plain: layers.makePlain(natives.kindOf, natives.replaced),
      inspect: layers.makeInspect(natives.kindOf, natives.describeError),
    };
  };
})(globalThis);
