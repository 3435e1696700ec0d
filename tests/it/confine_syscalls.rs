//! The system call policy, call by call: what is not listed kills, what libraries can do without is refused, and what is
//! listed is allowed only with the arguments that a worker uses.

use nix::libc;
use toolbridge::{
    protocol::{Attempt, Exit, ProbeArgument},
    sandbox::{Attempted, Pool, PoolOptions, probe_pool},
};

use crate::process::options;

fn pool() -> Pool {
    probe_pool(PoolOptions { waiting: 2, ..options() }, Vec::new()).unwrap()
}

fn raw(number: libc::c_long, words: &[i64]) -> Attempt {
    Attempt::Syscall { number, arguments: words.iter().map(|word| ProbeArgument::Word(word.cast_unsigned())).collect() }
}

async fn attempt(pool: &Pool, attempt: &Attempt) -> Attempted {
    pool.checkout().await.unwrap().attempt(attempt).await
}

const KILLED: Attempted = Attempted::Ended(Exit::Signal(libc::SIGSYS));

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// Calls that must end the process. With zeros as arguments each of them would be harmless if it were let through.
const KILL: &[(&str, libc::c_long)] = calls! {
    SYS_execve SYS_execveat SYS_clone SYS_clone3 SYS_unshare SYS_setns
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_kcmp
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pidfd_getfd SYS_kill SYS_tkill SYS_rt_sigqueueinfo
    SYS_socket SYS_socketpair SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_shutdown
    SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_getsockopt SYS_setsockopt
    SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_io_setup
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_memfd_create SYS_memfd_secret SYS_keyctl SYS_add_key SYS_request_key
    SYS_futex SYS_getrandom SYS_rt_sigreturn SYS_sigaltstack SYS_sched_yield SYS_membarrier SYS_sysinfo SYS_prlimit64
    SYS_sched_getaffinity SYS_newfstatat SYS_readlinkat SYS_seccomp SYS_prctl SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_capset SYS_personality
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_fsopen SYS_open_tree SYS_move_mount SYS_open_by_handle_at
    SYS_openat2 SYS_close SYS_close_range SYS_dup SYS_fcntl SYS_ioctl SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev
    SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_lseek SYS_ftruncate SYS_getdents64
    SYS_mkdirat SYS_unlinkat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_fchmodat SYS_fchownat SYS_statx SYS_faccessat
    SYS_chdir SYS_getcwd SYS_inotify_init1 SYS_fanotify_init SYS_eventfd2 SYS_epoll_create1 SYS_signalfd4
    SYS_timerfd_create SYS_timer_create SYS_setitimer SYS_nanosleep SYS_clock_nanosleep SYS_clock_settime
    SYS_setuid SYS_setgid SYS_setresuid SYS_setgroups SYS_setsid SYS_setrlimit SYS_sched_setaffinity SYS_setpriority
    SYS_shmget SYS_shmat SYS_semget SYS_msgget SYS_mq_open SYS_mlock SYS_pkey_alloc SYS_pkey_mprotect
    SYS_remap_file_pages SYS_mbind SYS_migrate_pages SYS_move_pages
    SYS_init_module SYS_finit_module SYS_kexec_load SYS_reboot SYS_swapon SYS_sethostname SYS_syslog SYS_acct
    SYS_wait4 SYS_waitid SYS_getppid SYS_uname SYS_times SYS_getrusage SYS_set_robust_list SYS_rseq SYS_exit
};

#[tokio::test]
async fn a_call_that_is_not_listed_kills_the_worker() {
    let pool = pool();
    for (name, number) in KILL {
        assert_eq!(attempt(&pool, &raw(*number, &[])).await, KILLED, "{name}");
    }
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn calls_that_only_this_architecture_has_kill_too() {
    let pool = pool();
    let only: &[(&str, libc::c_long)] = calls! {
        SYS_fork SYS_vfork SYS_arch_prctl SYS_modify_ldt SYS_iopl SYS_ioperm SYS_mkdir SYS_rmdir SYS_unlink SYS_rename
        SYS_open SYS_stat SYS_lstat SYS_readlink SYS_access SYS_creat SYS_chmod SYS_pipe SYS_dup2 SYS_poll SYS_select SYS_epoll_wait SYS_alarm SYS_pause SYS_uselib
    };
    for (name, number) in only {
        assert_eq!(attempt(&pool, &raw(*number, &[])).await, KILLED, "{name}");
    }
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn the_other_gates_into_the_kernel_are_closed() {
    const X32: libc::c_long = 0x4000_0000;
    let pool = pool();
    // 20 is getpid for 32-bit programs: harmless, and allowed by its own number on this architecture.
    assert_eq!(attempt(&pool, &Attempt::Legacy32 { number: 20 }).await, KILLED, "int 0x80");
    for number in [libc::SYS_getpid, libc::SYS_read, libc::SYS_exit_group] {
        assert_eq!(attempt(&pool, &raw(X32 | number, &[])).await, KILLED, "x32 form of {number}");
    }
    for number in [100_000, -1, i64::MAX, i64::from(i32::MIN)] {
        assert_eq!(attempt(&pool, &raw(number, &[])).await, KILLED, "number {number}");
    }
}

#[tokio::test]
async fn a_listed_call_with_other_arguments_kills() {
    let (read, write, exec) = (i64::from(libc::PROT_READ), i64::from(libc::PROT_WRITE), i64::from(libc::PROT_EXEC));
    let (private, anonymous) = (i64::from(libc::MAP_PRIVATE), i64::from(libc::MAP_ANONYMOUS));
    let shared = i64::from(libc::MAP_SHARED);
    let cases = [
        ("read from another descriptor", raw(libc::SYS_read, &[0, 0, 0])),
        ("read from descriptor 3 + 2^32", raw(libc::SYS_read, &[3 + (1 << 32), 0, 0])),
        ("write to another descriptor", raw(libc::SYS_write, &[5, 0, 0])),
        ("write to standard output", raw(libc::SYS_write, &[1, 0, 0])),
        ("map executable", raw(libc::SYS_mmap, &[0, 4096, read | exec, private | anonymous, -1, 0])),
        ("map write and execute", raw(libc::SYS_mmap, &[0, 4096, read | write | exec, private | anonymous, -1, 0])),
        ("map shared", raw(libc::SYS_mmap, &[0, 4096, read | write, shared | anonymous, -1, 0])),
        ("map shared, validated", raw(libc::SYS_mmap, &[0, 4096, read, 3 | anonymous, -1, 0])),
        ("map a file", raw(libc::SYS_mmap, &[0, 4096, read, private, 3, 0])),
        ("make executable", raw(libc::SYS_mprotect, &[0, 4096, read | exec])),
        ("protect with other bits", raw(libc::SYS_mprotect, &[0, 4096, 1 << 33])),
        ("move a mapping to a place of its choice", raw(libc::SYS_mremap, &[0, 4096, 4096, 3, 0])),
        ("merge pages with other processes", raw(libc::SYS_madvise, &[0, 4096, i64::from(libc::MADV_MERGEABLE)])),
        ("poison a page", raw(libc::SYS_madvise, &[0, 4096, 100])),
    ];
    let pool = pool();
    for (name, case) in cases {
        assert_eq!(attempt(&pool, &case).await, KILLED, "{name}");
    }
}

#[tokio::test]
async fn what_libraries_ask_for_and_can_do_without_is_refused_and_never_done() {
    let policy: serde_json::Value = serde_json::from_str(include_str!("../../src/worker/seccomp.json")).unwrap();
    let pool = pool();
    for rule in policy["refuse"]["filter"].as_array().unwrap() {
        let name = rule["syscall"].as_str().unwrap();
        assert_eq!(rule["args"], serde_json::Value::Null, "{name} is refused whatever its arguments");
        let number = number_of(name);
        match attempt(&pool, &raw(number, &[])).await {
            Attempted::Answered(reply) => assert_eq!(reply.answer, -i64::from(libc::EPERM), "{name}"),
            ended @ Attempted::Ended(_) => panic!("{name}: {ended:?}"),
        }
    }
}

#[test]
fn every_entry_of_the_policy_gives_its_reason() {
    let policy: serde_json::Value = serde_json::from_str(include_str!("../../src/worker/seccomp.json")).unwrap();
    for filter in policy.as_object().unwrap().values() {
        for rule in filter["filter"].as_array().unwrap() {
            let reason = rule["comment"].as_str().unwrap_or_default();
            assert!(reason.len() > 5, "{rule}");
        }
    }
}

/// Numbers of the calls that the policy refuses.
fn number_of(name: &str) -> libc::c_long {
    let known: &[(&str, libc::c_long)] = calls! {
        SYS_openat SYS_rt_sigprocmask SYS_rt_sigaction SYS_tgkill
    };
    let long = format!("SYS_{name}");
    let found = known.iter().find(|(known, _)| *known == long);
    found.unwrap_or_else(|| panic!("{name} is not in this test's table")).1
}
