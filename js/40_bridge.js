// `openclaw` and `console`: the only objects of a program's world that are not ECMAScript.
//
// The functions are native and come from the worker; here they are only put in their places. The `openclaw` tree is
// frozen and its names can not be taken over; `console` is an ordinary object, replacing its methods affects nobody else.
"use strict";
((globalThis) => {
  const layers = globalThis.__toolbridge;
  const { ObjectDefineProperty, ObjectFreeze } = layers.primordials;

  const place = (object, key, value, open) =>
    ObjectDefineProperty(object, key, {
      __proto__: null,
      value,
      configurable: open,
      enumerable: open,
      writable: open,
    });

  layers.installBridge = (natives) => {
    const tools = {};
    for (const name of ["search", "describe", "call"]) {
      ObjectFreeze(natives[name]);
      ObjectDefineProperty(tools, name, { __proto__: null, value: natives[name], enumerable: true });
    }
    const openclaw = {};
    ObjectDefineProperty(openclaw, "tools", { __proto__: null, value: ObjectFreeze(tools), enumerable: true });
    place(globalThis, "openclaw", ObjectFreeze(openclaw), false);

    const console = {};
    for (const name of ["debug", "error", "info", "log", "warn"]) place(console, name, natives[name], true);
    ObjectDefineProperty(globalThis, "console", {
      __proto__: null,
      value: console,
      configurable: true,
      enumerable: false,
      writable: true,
    });
    ObjectDefineProperty(Math, "random", {
      __proto__: null,
      value: natives.random,
      configurable: true,
      enumerable: false,
      writable: true,
    });
  };
})(globalThis);
