//! The engine in one process: initialised, its world built and locked down, warmed, and then one program.
//!
//! Everything up to [`Engine::serve`] may happen in a zygote, before forking; `serve` belongs to one run and never returns.
//! Invariant: the process stays single-threaded, and no program is read before the world is locked down and `confine` done.

use std::{os::fd::OwnedFd, rc::Rc};

use deno_core::{
    Extension, JsRuntime, OpDecl, RuntimeOptions,
    v8::{self},
};

use super::{
    channel::{Channel, EXIT_PROTOCOL, exit},
    memory, modules, ops, program,
    random::Random,
    rejections, stack,
    state::{Internals, State},
    thrown,
};
use crate::protocol::{Execute, FromWorker, PROTOCOL_VERSION, ToWorker};

/// How the engine is set up; the same for every run of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineOptions {
    /// Compile hot code to machine code.
    pub(crate) jit: bool,
    /// Cap of the heap in bytes.
    pub(crate) max_heap_bytes: u64,
    /// Cap of the process's private memory in bytes; what the heap leaves of it bounds the contents of buffers.
    pub(crate) max_memory_bytes: u64,
}

/// The engine with its world.
pub(crate) struct Engine {
    runtime: JsRuntime,
    state: Rc<State>,
}

/// Built-in operations of `deno_core` that its own start-up calls; all others are disabled, and none is reachable.
const KEPT_OPS: &[&str] =
    &["op_get_extras_binding_object", "op_set_captured_bootstrap", "op_get_ext_import_meta_proto"];

fn keep_few_ops(op: OpDecl) -> OpDecl {
    if KEPT_OPS.contains(&op.name) { op } else { op.disable() }
}

impl Engine {
    /// Initialises the engine (once per process) and builds the world.
    pub(crate) fn new(options: &EngineOptions) -> Self {
        initialise(options.jit);
        let mut runtime = JsRuntime::new(RuntimeOptions {
            startup_snapshot: Some(toolbridge_runtime_snapshot::WORLD),
            extensions: vec![Extension {
                name: "toolbridge",
                middleware_fn: Some(Box::new(keep_few_ops)),
                ..Extension::default()
            }],
            create_params: Some(memory::create_params(options.max_heap_bytes, options.max_memory_bytes)),
            ..RuntimeOptions::default()
        });
        let state = Rc::new(State::new(Channel::rehearsal()));
        let isolate = runtime.v8_isolate();
        isolate.set_slot(state.clone());
        isolate.set_capture_stack_trace_for_uncaught_exceptions(true, thrown::STACK_FRAMES);
        isolate.set_promise_reject_callback(rejections::track);
        isolate.set_prepare_stack_trace_callback(stack::text);
        modules::refuse(isolate);
        memory::guard(isolate);
        let mut engine = Self { runtime, state };
        engine.build_world();
        engine
    }

    fn build_world(&mut self) {
        deno_core::scope!(scope, &mut self.runtime);
        let internals = start_layers(scope);
        assert!(self.state.internals.set(internals).is_ok(), "a world is built once");
    }

    /// Pays what is paid once per process: time zone and locale data, first compilations of what every run needs.
    pub(crate) fn warm(&mut self) {
        self.rehearse(WARM_UP);
        self.rehearse(REHEARSAL);
        let isolate = self.runtime.v8_isolate();
        isolate.low_memory_notification();
        // Counting what is in the heap ends the sweeping that a collection leaves for later: else every child would sweep,
        // and pay for a copy of each page that it sweeps.
        let _ = isolate.get_heap_code_and_metadata_statistics();
    }

    /// Runs one program that comes over `channel`. `confine` is called before anything of it is read.
    pub(crate) fn serve(mut self, channel: OwnedFd, confine: impl FnOnce()) -> ! {
        let mut channel = Channel::new(channel);
        // Neither frame can be over a cap.
        let _ = channel.send(&FromWorker::Hello { version: PROTOCOL_VERSION });
        confine();
        let _ = channel.send(&FromWorker::Ready);
        let mut first = Some(channel.receive());
        if first == Some(ToWorker::Rehearse) {
            first = channel.received();
            if first.is_none() {
                self.rehearse(REHEARSAL);
            }
        }
        // All that can be done without the program is done before it is waited for.
        if let Some(fd) = channel.raw_fd() {
            memory::report_to(fd);
        }
        self.state.reset(channel);
        let first = first.unwrap_or_else(|| self.state.channel.borrow_mut().receive());
        let ToWorker::Execute(execute) = first else { exit(EXIT_PROTOCOL) };
        self.execute(&execute);
        exit(0)
    }

    /// A trusted program over the same path as a real one, answered from here: its pages are this process's own
    /// afterwards, and what it used is compiled.
    fn rehearse(&mut self, code: &str) {
        self.state.reset(Channel::rehearsal());
        self.execute(&Execute {
            code: code.to_owned(),
            max_output_bytes: 64 * 1024,
            max_log_bytes: 16 * 1024,
            max_calls: 100,
            max_frame_bytes: 1024 * 1024,
            seed: [1; 16],
        });
    }

    fn execute(&mut self, execute: &Execute) {
        self.state.channel.borrow_mut().set_max_frame_bytes(execute.max_frame_bytes as usize);
        self.state.calls.borrow_mut().max_calls = execute.max_calls;
        self.state.calls.borrow_mut().closed = true;
        *self.state.random.borrow_mut() = Random::new(&execute.seed);
        deno_core::scope!(scope, &mut self.runtime);
        program::run(scope, &self.state, execute);
    }
}

/// Touches what costs once per process.
const WARM_UP: &str = r#"
const now = new Date(0);
return [now.toString(), now.toLocaleString(), now.toLocaleDateString(undefined, { month: "long" }),
  (1234.5).toLocaleString(), new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" }).format(1),
  new Intl.DateTimeFormat().formatToParts(now).length, ["b", "a"].sort(new Intl.Collator().compare),
  "ä".normalize("NFD").localeCompare("a"), /(\p{L}+)\s(?<n>\d)/u.exec("a 1")?.groups.n, "x".toLocaleUpperCase(),
  Math.random(), JSON.stringify(JSON.parse('{"a":[1,"b",null,true]}')), [..."abc"].map((c) => c.codePointAt(0)),
  new Intl.RelativeTimeFormat("en").format(1, "day"), new Intl.PluralRules().select(1), new Intl.ListFormat().format(["a"])];
"#;

/// What an ordinary program does. It ends with an expression: one that ends with a `return` is not parsed for its outline.
const REHEARSAL: &str = r#"
const hits = await openclaw.tools.search("rehearsal", { limit: 3 });
const [first] = await openclaw.tools.search(["rehearsal"]);
const full = await openclaw.tools.describe("rehearsal");
const answers = await Promise.all([1, 2].map((n) => openclaw.tools.call("rehearsal", { n, text: "é", list: [n, null] })));
try {
  await openclaw.tools.call("rehearsal:fail", {});
} catch (error) {
  console.error(`failed: ${error.message}`, error.code, { error });
}
for (const hit of hits) console.log("%s", hit.id, hit);
const total = answers.map((answer) => answer.result.details).filter(Boolean).reduce((sum, each) => sum + each.n, 0);
({ total, when: new Date(0), names: new Map([["a", 1]]), text: JSON.stringify(answers), ...full })
"#;

/// Flags, platform, locale and time zone: once per process, before anything else of the engine.
fn initialise(jit: bool) {
    // One by one: of a string, the engine drops everything after a flag that it does not know, and goes on.
    let mut flags = vec![
        "toolbridge".to_owned(),
        "--single-threaded".to_owned(),
        // The first call of every run asks for its place, and after a stack overflow there is no room to find one.
        "--no-enable-lazy-source-positions".to_owned(),
        // Buffers are no reason to give up on a heap that has room.
        "--no-detect-ineffective-gcs-near-heap-limit".to_owned(),
    ];
    if !jit {
        flags.push("--jitless".to_owned());
    }
    let unknown = v8::V8::set_flags_from_command_line(flags);
    assert_eq!(unknown.len(), 1, "the engine knows every flag");
    in_utc();
    JsRuntime::init_platform(Some(v8::new_single_threaded_default_platform(false).make_shared()));
    v8::icu::set_default_locale("en-US");
}

/// The engine asks for the time zone once, when a date is first used: it shall be told UTC, whatever the machine says.
fn in_utc() {
    // SAFETY: this process has one thread, and both are C strings.
    unsafe { libc::setenv(c"TZ".as_ptr(), c"UTC".as_ptr(), 1) };
}

fn start_layers(scope: &mut v8::PinScope<'_, '_>) -> Internals {
    let natives = ops::natives(scope);
    let context = scope.get_current_context();
    context.set_allow_generation_from_strings(false);
    let global = context.global(scope);
    let layers = get_object(scope, global, "__toolbridge");
    let start = get_function(scope, layers, "start");
    let internals = start
        .call(scope, layers.into(), &[natives.into()])
        .and_then(|internals| v8::Local::<v8::Object>::try_from(internals).ok())
        .expect("the layers of js/ start in a fresh world");
    let make_tool_error = get_function(scope, internals, "makeToolError");
    let plain = get_function(scope, internals, "plain");
    let inspect = get_function(scope, internals, "inspect");
    let mark = v8::Private::new(scope, None);
    Internals {
        make_tool_error: v8::Global::new(scope, make_tool_error),
        plain: v8::Global::new(scope, plain),
        inspect: v8::Global::new(scope, inspect),
        mark: v8::Global::new(scope, mark),
    }
}

fn get_object<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    object: v8::Local<'s, v8::Object>,
    name: &str,
) -> v8::Local<'s, v8::Object> {
    let key = v8::String::new(scope, name).expect("a short name");
    object
        .get(scope, key.into())
        .and_then(|value| v8::Local::<v8::Object>::try_from(value).ok())
        .expect("the snapshot holds the layers of js/")
}

fn get_function<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    object: v8::Local<'s, v8::Object>,
    name: &str,
) -> v8::Local<'s, v8::Function> {
    v8::Local::<v8::Function>::try_from(v8::Local::<v8::Value>::from(get_object(scope, object, name)))
        .expect("the snapshot holds the functions of js/")
}
