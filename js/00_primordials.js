// The intrinsics that the later layers use, taken before any program exists.
//
// Invariant: no layer reads an intrinsic through a name, a prototype or a property that a program could have changed.
// What a layer needs is destructured from here when the snapshot is made and is a constant ever after.
"use strict";
((globalThis) => {
  const { primordials } = globalThis.__bootstrap;
  const layers = { __proto__: null, primordials };
  primordials.ObjectDefineProperty(globalThis, "__toolbridge", {
    __proto__: null,
    value: layers,
    configurable: true,
    enumerable: false,
    writable: true,
  });
})(globalThis);
