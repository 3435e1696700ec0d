//! There are no modules: `import()` in every form rejects with one fixed text, whatever it names.

use deno_core::v8;

const TEXT: &str = "Modules can not be imported here; use openclaw.tools";

/// Takes over every way in which the engine asks for a module.
pub(super) fn refuse(isolate: &mut v8::Isolate) {
    isolate.set_host_import_module_dynamically_callback(refuse_import);
    isolate.set_host_import_module_with_phase_dynamically_callback(refuse_import_with_phase);
}

fn refuse_import<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    _options: v8::Local<'s, v8::Data>,
    _referrer: v8::Local<'s, v8::Value>,
    _specifier: v8::Local<'s, v8::String>,
    _attributes: v8::Local<'s, v8::FixedArray>,
) -> Option<v8::Local<'s, v8::Promise>> {
    rejected(scope)
}

fn refuse_import_with_phase<'s>(
    scope: &mut v8::PinScope<'s, '_>,
    _options: v8::Local<'s, v8::Data>,
    _referrer: v8::Local<'s, v8::Value>,
    _specifier: v8::Local<'s, v8::String>,
    _phase: v8::ModuleImportPhase,
    _attributes: v8::Local<'s, v8::FixedArray>,
) -> Option<v8::Local<'s, v8::Promise>> {
    rejected(scope)
}

fn rejected<'s>(scope: &mut v8::PinScope<'s, '_>) -> Option<v8::Local<'s, v8::Promise>> {
    let resolver = v8::PromiseResolver::new(scope)?;
    let text = v8::String::new(scope, TEXT)?;
    let error = v8::Exception::type_error(scope, text);
    resolver.reject(scope, error);
    Some(resolver.get_promise(scope))
}
