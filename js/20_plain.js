// A copy of a value that JSON and its documented `$type` forms can express.
//
// Only values that the native serialiser refuses come here: those that hold functions, symbols, proxies, errors or
// objects with hidden state. What cannot be expressed is replaced and named by its path; nothing of it fails the run.
// Getters and traps of the value do run, in the program's own time; what they throw is the caller's to report.
"use strict";
((globalThis) => {
  const layers = globalThis.__toolbridge;
  const {
    ArrayIsArray,
    MapPrototypeForEach,
    ObjectDefineProperty,
    ObjectKeys,
    SafeMap,
    SetPrototypeForEach,
    SymbolPrototypeGetDescription,
    MapPrototypeGet,
    MapPrototypeSet,
  } = layers.primordials;

  const MAX_DEPTH = 100;

  const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;
  const { RegExpPrototypeExec, JSONStringify } = layers.primordials;
  const MAX_PATH = 200;
  const step = (path, key) =>
    path.length > MAX_PATH ? path :
    RegExpPrototypeExec(IDENTIFIER, key) !== null ? `${path}.${key}` : `${path}[${JSONStringify(key)}]`;

  // Own data properties only, whatever setters a program put on Object.prototype.
  const put = (target, key, value) =>
    ObjectDefineProperty(target, key, {
      __proto__: null,
      value,
      configurable: true,
      enumerable: true,
      writable: true,
    });

  const typed = (type) => {
    const form = { __proto__: null };
    put(form, "$type", type);
    return form;
  };

  // `kindOf` (native) tells what a value is without running anything of it; `replaced(path, what)` records a warning.
  layers.makePlain = (kindOf, replaced) => {
    const copy = (value, path, depth, seen) => {
      switch (typeof value) {
        case "function":
          replaced(path, "function");
          return typed("Function");
        case "symbol": {
          replaced(path, "symbol");
          const form = typed("Symbol");
          const description = SymbolPrototypeGetDescription(value);
          if (description !== undefined) put(form, "description", description);
          return form;
        }
        case "object":
          break;
        default:
          return value;
      }
      if (value === null) return null;
      const known = MapPrototypeGet(seen, value);
      if (known !== undefined) return known;
      if (depth >= MAX_DEPTH) {
        replaced(path, "nested too deeply");
        return typed("TooDeep");
      }
      const kind = kindOf(value);
      if (kind === "leaf" || kind === "date") return value;
      if (kind === "map") {
        const form = typed("Map");
        const entries = [];
        MapPrototypeSet(seen, value, form);
        put(form, "entries", entries);
        MapPrototypeForEach(value, (item, key) => {
          const index = entries.length;
          const at = `${path}.entries[${index}]`;
          const pair = [];
          put(entries, index, pair);
          put(pair, 0, copy(key, `${at}[0]`, depth + 3, seen));
          put(pair, 1, copy(item, `${at}[1]`, depth + 3, seen));
        });
        return form;
      }
      if (kind === "set") {
        const form = typed("Set");
        const values = [];
        MapPrototypeSet(seen, value, form);
        put(form, "values", values);
        SetPrototypeForEach(value, (item) => {
          const index = values.length;
          put(values, index, copy(item, `${path}.values[${index}]`, depth + 2, seen));
        });
        return form;
      }
      if (kind === "other" && !ArrayIsArray(value)) {
        // Promise, WeakMap, generator: state that nothing can read.
        const name = layers.kindName(value);
        replaced(path, name);
        return typed(name);
      }
      if (kind !== "error" && ArrayIsArray(value)) {
        const form = [];
        MapPrototypeSet(seen, value, form);
        const length = value.length;
        for (let index = 0; index < length; index++) {
          put(form, index, copy(value[index], `${path}[${index}]`, depth + 1, seen));
        }
        return form;
      }
      const form = kind === "error" ? typed("Error") : { __proto__: null };
      MapPrototypeSet(seen, value, form);
      if (kind === "error") {
        put(form, "name", `${value.name}`);
        put(form, "message", `${value.message}`);
        const cause = value.cause;
        if (cause !== undefined) put(form, "cause", copy(cause, `${path}.cause`, depth + 1, seen));
        const errors = value.errors;
        if (errors !== undefined) put(form, "errors", copy(errors, `${path}.errors`, depth + 1, seen));
      }
      const keys = ObjectKeys(value);
      for (let index = 0; index < keys.length; index++) {
        const key = keys[index];
        if (kind === "error" && (key === "name" || key === "message" || key === "cause" || key === "stack")) continue;
        put(form, key, copy(value[key], step(path, key), depth + 1, seen));
      }
      return form;
    };
    return (value) => copy(value, "$", 0, new SafeMap());
  };
})(globalThis);
