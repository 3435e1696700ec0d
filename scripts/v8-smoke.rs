//! Proves a freshly built V8 library by doing what toolbridge asks of it: make a startup snapshot, start an isolate from it
//! without JIT, run a program that needs a regular expression and ICU, fork, and run again in the child.
//!
//! Built and run by scripts/v8-build with the crates `v8` and `libc`; not part of the workspace.

fn main() {
    v8::V8::set_flags_from_string("--single-threaded --jitless");
    let platform = v8::new_single_threaded_default_platform(false).make_shared();
    v8::V8::initialize_platform(platform);
    v8::V8::initialize();

    let mut creator = v8::Isolate::snapshot_creator(None, None);
    {
        v8::scope!(let scope, &mut creator);
        let context = v8::Context::new(scope, v8::ContextOptions::default());
        let scope = &mut v8::ContextScope::new(scope, context);
        let source = v8::String::new(scope, "globalThis.fromSnapshot = [1, 2, 3].map((n) => n * n)").unwrap();
        v8::Script::compile(scope, source, None).unwrap().run(scope).unwrap();
        scope.set_default_context(context);
    }
    let blob = creator.create_blob(v8::FunctionCodeHandling::Clear).expect("a snapshot can be made");

    let isolate = &mut v8::Isolate::new(v8::CreateParams::default().snapshot_blob(blob));
    expect(isolate, "fromSnapshot.join('+')", "1+4+9");
    expect(isolate, "/(\\d+)-(?<last>\\p{L}+)/u.exec('x 12-é').groups.last", "é");
    expect(isolate, "new Intl.NumberFormat('de').format(1234567.5)", "1.234.567,5");

    allow_inheritance();
    // SAFETY: V8 was set up single-threaded, so this process has one thread; the child only runs JavaScript and `_exit`s.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        expect(isolate, "Array.from({length: 1e5}, (_, i) => ({i})).filter(({i}) => i % 3 == 0).length", "33334");
        // SAFETY: ends the child at once; nothing of its state is needed.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `child` is this process's own child, `status` outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(waited == child && status == 0, "the forked child ended with status {status:#x}");
    println!("V8 {}: snapshot, run and fork work", v8::VERSION_STRING);
}

fn expect(isolate: &mut v8::Isolate, program: &str, want: &str) {
    v8::scope!(let scope, isolate);
    let context = v8::Context::new(scope, v8::ContextOptions::default());
    let scope = &mut v8::ContextScope::new(scope, context);
    let source = v8::String::new(scope, program).unwrap();
    let script = v8::Script::compile(scope, source, None).unwrap_or_else(|| panic!("does not compile: {program}"));
    let value = script.run(scope).unwrap_or_else(|| panic!("throws: {program}"));
    let got = value.to_rust_string_lossy(scope);
    assert_eq!(got, want, "{program}");
}

/// V8 marks its heap MADV_DONTFORK; undo that, or the child faults on first touch.
fn allow_inheritance() {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("/proc/self/smaps is readable");
    let mut range = (0, 0);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-')
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            range = (from, to);
        }
        if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split(' ').any(|flag| flag == "dc")) {
            // SAFETY: the range is a mapping of this process; MADV_DOFORK changes no byte of it.
            let done = unsafe { libc::madvise(range.0 as *mut libc::c_void, range.1 - range.0, libc::MADV_DOFORK) };
            assert_eq!(done, 0, "MADV_DOFORK: {}", std::io::Error::last_os_error());
        }
    }
}
