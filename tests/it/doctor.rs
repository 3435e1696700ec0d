//! `toolbridge doctor`: what it finds on this machine, and that its JSON keeps its form.

use std::process::Command;

use toolbridge::sandbox::doctor::{DoctorReport, LayerStatus};

fn doctor(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_toolbridge")).arg("doctor").args(arguments).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn strict_holds_here_and_every_layer_that_is_there_is_proven() {
    let (status, json) = doctor(&["--json"]);
    let report: DoctorReport = serde_json::from_str(&json).unwrap();
    assert!(report.strict_holds, "{:?}", report.problems);
    assert_eq!(status, Some(0));
    for layer in &report.layers {
        assert_ne!(layer.status, LayerStatus::Broken, "{layer:?}");
        if layer.status == LayerStatus::Proven {
            assert!(layer.proofs.iter().all(|proof| proof.stopped.is_some()), "{layer:?}");
        }
    }
    let proven = report.layers.iter().filter(|layer| layer.status == LayerStatus::Proven).count();
    assert!(proven >= 8, "{proven} layers are proven: {json}");
    assert!(report.attacks.iter().all(|attack| attack.forked.is_some()));
}

#[test]
fn the_json_has_the_committed_form() {
    let schema = serde_json::to_value(schemars::schema_for!(DoctorReport)).unwrap();
    let committed: serde_json::Value = serde_json::from_str(include_str!("../../docs/schema/doctor.json")).unwrap();
    let fresh = serde_json::to_string_pretty(&schema).unwrap();
    assert_eq!(schema, committed, "docs/schema/doctor.json has to become:\n{fresh}");
    let (_, json) = doctor(&["--json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let validator = jsonschema::validator_for(&committed).unwrap();
    let errors: Vec<String> = validator.iter_errors(&report).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn the_table_names_every_layer_and_the_verdict() {
    let (status, table) = doctor(&[]);
    assert_eq!(status, Some(0));
    for layer in toolbridge::protocol::Layer::ALL {
        assert!(table.lines().any(|line| line.starts_with(layer.name())), "{layer} in {table}");
    }
    assert!(table.ends_with("strict holds\n"), "{table}");
}

#[test]
fn without_user_namespaces_landlock_is_the_layer_and_strict_still_holds() {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
    command.args(["doctor", "--json"]);
    // SAFETY: only system calls and small allocations between fork and exec, in a child of its own.
    unsafe {
        command.pre_exec(|| {
            let user = nix::unistd::geteuid();
            // Where no user namespace can be made at all, this is already the machine that the test asks for.
            if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).is_ok() {
                std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
                std::fs::write("/proc/sys/user/max_user_namespaces", "0")?;
                // Gives up the rights over the new namespace that would make the other ones.
                nix::unistd::setgroups(&[]).ok();
                nix::sys::prctl::set_keepcaps(false).ok();
                for capability in 0..64_u64 {
                    nix::libc::prctl(nix::libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
                }
                nix::libc::prctl(nix::libc::PR_SET_SECUREBITS, 0b11_u64, 0, 0, 0);
                let none = [0_u32; 6];
                let header = [0x2008_0522_u32, 0];
                nix::libc::syscall(nix::libc::SYS_capset, header.as_ptr(), none.as_ptr());
            }
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let report: DoctorReport = serde_json::from_slice(&output.stdout).unwrap();
    let status = |name: &str| report.layers.iter().find(|layer| layer.name == name).unwrap().status;
    assert_eq!(status("user_namespace"), LayerStatus::Missing, "{report:?}");
    assert_eq!(status("empty_root"), LayerStatus::Missing, "{report:?}");
    assert_eq!(status("landlock_files"), LayerStatus::Proven, "{report:?}");
    assert_eq!(status("landlock_network"), LayerStatus::Proven, "{report:?}");
    assert_eq!((report.strict_holds, output.status.code()), (true, Some(0)), "{:?}", report.problems);
}
