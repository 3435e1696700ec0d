//! What must not get out, or in: secrets, paths, memory of others.

use serde_json::json;
use toolbridge::outcome::RunErrorCode::{Exception, Syntax};

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::code("L95", "throw new Error(new Error('x').stack)", Exception),
        Case::code("L95", "null.x", Exception),
        Case::code("L95", "let let = 1", Syntax),
        Case::code("L95", "[].reduce(() => {})", Exception),
        Case::code("L95", "await openclaw.tools.call('fail', {})", Exception),
        Case::code("L95", "await openclaw.tools.call()", Exception),
        Case::value(
            "L95",
            "const stacks = []; for (const attempt of [() => null.x, () => openclaw.tools.call(), () => JSON.parse('{'), () => new Intl.Locale('!')]) \
             try { await attempt() } catch (error) { stacks.push(error.stack) }\nreturn stacks.some(stack => /\\/|\\.rs|ext:/.test(stack.replaceAll('openclaw:code', '')))",
            json!(false),
        ),
        Case::value(
            "L99",
            "return [new Uint8Array(1e7), new Float64Array(1e5), new Uint8Array(new ArrayBuffer(0, { maxByteLength: 1e6 }))].every(a => a.every(x => x === 0))",
            json!(true),
        ),
        Case::value(
            "L99",
            "const b = new ArrayBuffer(16, { maxByteLength: 1e6 }); b.resize(1e6); return new Uint8Array(b).every(x => x === 0)",
            json!(true),
        ),
        Case::value(
            "L102",
            "return [typeof process, typeof Deno, new Date().getTimezoneOffset(), Intl.DateTimeFormat().resolvedOptions().timeZone, Intl.DateTimeFormat().resolvedOptions().locale]",
            json!(["undefined", "undefined", 0, "UTC", "en-US"]),
        ),
    ]
}
