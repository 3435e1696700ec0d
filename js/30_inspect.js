// What `console` prints for a value, and the text of a thrown value that is not an Error.
//
// Runs no code of the program: properties are read through their descriptors, getters are named and not called, proxies
// are named and not entered. Every dimension is bounded (depth, entries, characters), so a hostile value costs no more
// than an honest one.
"use strict";
((globalThis) => {
  const layers = globalThis.__toolbridge;
  const {
    ArrayIsArray,
    ArrayPrototypeJoin,
    ArrayPrototypePush,
    BigIntPrototypeToString,
    DatePrototypeGetTime,
    DatePrototypeToISOString,
    JSONStringify,
    MapPrototypeGetSize,
    NumberIsNaN,
    ObjectHasOwn,
    ReflectGetOwnPropertyDescriptor,
    ReflectOwnKeys,
    RegExpPrototypeExec,
    SafeMapIterator,
    SafeSetIterator,
    SetPrototypeGetSize,
    String,
    StringPrototypeSlice,
    SymbolPrototypeToString,
  } = layers.primordials;

  const MAX_DEPTH = 5;
  const MAX_ENTRIES = 100;
  const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

  layers.makeInspect = (kindOf, describeError) => {
    const inspect = (value, state, depth) => {
      switch (typeof value) {
        case "string": {
          const cut = value.length > state.left ? StringPrototypeSlice(value, 0, state.left) : value;
          const text = JSONStringify(cut);
          state.left -= text.length;
          return text;
        }
        case "number":
          state.left -= 8;
          return value === 0 && 1 / value < 0 ? "-0" : String(value);
        case "bigint":
          return bigint(value, state);
        case "symbol":
          state.left -= 8;
          return SymbolPrototypeToString(value);
        case "function":
          state.left -= 10;
          return "[Function]";
        case "object":
          break;
        default:
          state.left -= 8;
          return String(value);
      }
      if (value === null) return "null";
      if (state.left <= 0) return "\u2026";
      const kind = kindOf(value);
      if (kind === "proxy") return "[Proxy]";
      if (kind === "error") {
        const text = describeError(value);
        state.left -= text.length;
        return `[${text}]`;
      }
      for (let index = 0; index < state.open.length; index++) {
        if (state.open[index] === value) return "[Circular]";
      }
      if (depth >= MAX_DEPTH) return ArrayIsArray(value) ? "[Array]" : "[Object]";
      ArrayPrototypePush(state.open, value);
      const text = compound(value, kind, state, depth);
      state.open.length--;
      return text;
    };

    const bigint = (value, state) => {
      // The decimal text of a huge one costs more than anybody reads.
      const bound = 10n ** 300n;
      if (value > bound || value < -bound) return "[BigInt]";
      const text = `${BigIntPrototypeToString(value)}n`;
      state.left -= text.length;
      return text;
    };

    const compound = (value, kind, state, depth) => {
      if (kind === "date") {
        const time = DatePrototypeGetTime(value);
        state.left -= 24;
        return NumberIsNaN(time) ? "Invalid Date" : DatePrototypeToISOString(value);
      }
      const parts = [];
      if (kind === "map") {
        let count = 0;
        for (const { 0: key, 1: item } of new SafeMapIterator(value)) {
          if (count++ >= MAX_ENTRIES || state.left <= 0) break;
          ArrayPrototypePush(parts, `${inspect(key, state, depth + 1)} => ${inspect(item, state, depth + 1)}`);
        }
        more(parts, MapPrototypeGetSize(value));
        return `Map {${ArrayPrototypeJoin(parts, ", ")}}`;
      }
      if (kind === "set") {
        let count = 0;
        for (const item of new SafeSetIterator(value)) {
          if (count++ >= MAX_ENTRIES || state.left <= 0) break;
          ArrayPrototypePush(parts, inspect(item, state, depth + 1));
        }
        more(parts, SetPrototypeGetSize(value));
        return `Set {${ArrayPrototypeJoin(parts, ", ")}}`;
      }
      if (ArrayIsArray(value)) {
        const length = ReflectGetOwnPropertyDescriptor(value, "length").value;
        for (let index = 0; index < length && index < MAX_ENTRIES && state.left > 0; index++) {
          ArrayPrototypePush(parts, property(value, index, state, depth));
        }
        more(parts, length);
        return `[${ArrayPrototypeJoin(parts, ", ")}]`;
      }
      const name = kind === "object" ? "" : `${layers.kindName(value)} `;
      if (kind === "other" || kind === "leaf") {
        state.left -= name.length;
        if (kind === "leaf") return `[${layers.kindName(value)}]`;
      }
      const keys = ReflectOwnKeys(value);
      for (let index = 0; index < keys.length && index < MAX_ENTRIES && state.left > 0; index++) {
        const key = keys[index];
        const descriptor = ReflectGetOwnPropertyDescriptor(value, key);
        if (descriptor === undefined || !descriptor.enumerable) continue;
        const label = typeof key === "symbol"
          ? `[${SymbolPrototypeToString(key)}]`
          : key.length < 64 && RegExpPrototypeExec(IDENTIFIER, key) !== null
          ? key
          : inspect(key, state, depth);
        state.left -= label.length + 2;
        ArrayPrototypePush(parts, `${label}: ${property(value, key, state, depth)}`);
      }
      more(parts, keys.length > MAX_ENTRIES ? keys.length : parts.length);
      return `${name}{${ArrayPrototypeJoin(parts, ", ")}}`;
    };

    const more = (parts, total) => {
      if (parts.length < total) ArrayPrototypePush(parts, `\u2026 ${total - parts.length} more`);
    };

    const property = (value, key, state, depth) => {
      const descriptor = ReflectGetOwnPropertyDescriptor(value, key);
      if (descriptor === undefined) return "<empty>";
      if (ObjectHasOwn(descriptor, "value")) return inspect(descriptor.value, state, depth + 1);
      state.left -= 8;
      return "[Getter]";
    };

    // Text of one value, about `limit` characters at most.
    return (value, limit) => inspect(value, { __proto__: null, left: limit, open: [] }, 0);
  };
})(globalThis);
