//! What a program that broke out of the engine would try, and which layers stop each attempt by themselves.
//!
//! Data for `doctor` and for the tests: an attack is a few system calls that a probe worker makes after it was confined.
//! Nothing here can do harm when it succeeds, as it must when all layers are left out: it opens, connects and asks for
//! permission, and changes nothing but a folder of its own.

use std::{
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use nix::libc;

use super::{Attempted, Pool, SandboxError, WorkerProcess, cgroup::MAX_PROCESSES};
use crate::protocol::{Attempt, Exit, Layer, ProbeArgument, ProbeReply};

/// What an attack is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Goal {
    /// Files of the machine.
    Files,
    /// Anything on the network, and local services.
    Network,
    /// Other processes, or new ones.
    Processes,
    /// Memory: too much of it, or code of its own.
    Memory,
    /// Rights.
    Privileges,
    /// What was left lying about when the process was made.
    Leftovers,
}

/// One attack.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Stable name.
    pub name: &'static str,
    /// What it is after.
    pub goal: Goal,
    /// What is tried, in words.
    pub what: &'static str,
    /// Every one of these stops it alone.
    pub stopped_by: &'static [Layer],
    /// Without any layer it succeeds only when the host is root.
    pub needs_root: bool,
    steps: Steps,
    /// What an answer has to be like for the attack to have succeeded; by default, no error.
    success: fn(&ProbeReply) -> bool,
}

fn no_error(reply: &ProbeReply) -> bool {
    reply.answer >= 0
}

#[derive(Debug, Clone, Copy)]
enum Steps {
    /// Against the machine.
    Machine(fn(&Targets) -> Vec<Attempt>),
    /// Against another worker of the same zygote, by its number there.
    Sibling(fn(i32) -> Vec<Attempt>),
}

/// Things to attack, made for the purpose and gone with this value.
#[derive(Debug)]
pub struct Targets {
    tcp: TcpListener,
    _abstract: UnixListener,
    abstract_name: Vec<u8>,
    folder: String,
    host_pid: u32,
    too_much_bytes: u64,
}

impl Targets {
    /// Opens a TCP port on the loopback interface and an abstract Unix socket. `max_memory_bytes` is the workers' cap.
    pub fn new(max_memory_bytes: u64) -> std::io::Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let host_pid = std::process::id();
        let unique = format!("toolbridge-{host_pid}-{}", tcp.local_addr()?.port());
        let address = SocketAddr::from_abstract_name(&unique)?;
        Ok(Self {
            tcp,
            _abstract: UnixListener::bind_addr(&address)?,
            folder: format!("/tmp/{unique}"),
            abstract_name: unique.into_bytes(),
            host_pid,
            too_much_bytes: max_memory_bytes + 64 * 1024 * 1024,
        })
    }

    fn inet(&self) -> Vec<u8> {
        let port = self.tcp.local_addr().map_or(0, |address| address.port());
        let family = u16::try_from(libc::AF_INET).unwrap_or(0).to_ne_bytes();
        [&family[..], &port.to_be_bytes(), &Ipv4Addr::LOCALHOST.octets(), &[0; 8]].concat()
    }

    fn abstract_unix(&self) -> Vec<u8> {
        let family = u16::try_from(libc::AF_UNIX).unwrap_or(0).to_ne_bytes();
        [&family[..], &[0], &self.abstract_name].concat()
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn word(value: impl Into<i64>) -> ProbeArgument {
    ProbeArgument::Word(value.into().cast_unsigned())
}

fn text(value: &str) -> ProbeArgument {
    ProbeArgument::Bytes([value.as_bytes(), &[0]].concat())
}

fn call<const N: usize>(number: libc::c_long, arguments: [ProbeArgument; N]) -> Attempt {
    Attempt::Syscall { number, arguments: arguments.into() }
}

fn open(path: &str, flags: i32) -> Vec<Attempt> {
    vec![call(libc::SYS_openat, [word(libc::AT_FDCWD), text(path), word(flags), word(0)])]
}

fn connect(domain: i32, kind: i32, address: Vec<u8>) -> Vec<Attempt> {
    let length = word(i64::try_from(address.len()).unwrap_or(0));
    vec![
        call(libc::SYS_socket, [word(domain), word(kind), word(0)]),
        call(libc::SYS_connect, [ProbeArgument::Previous, ProbeArgument::Bytes(address), length]),
    ]
}

fn name_namespace(link: &str) -> Vec<Attempt> {
    let room = ProbeArgument::Bytes(vec![0; 64]);
    vec![call(libc::SYS_readlinkat, [word(libc::AT_FDCWD), text(link), room, word(63)])]
}

/// Whether a worker named the namespace that this process is in.
fn is_own_namespace(reply: &ProbeReply, link: &str) -> bool {
    let named = reply.buffers.last().map(|buffer| buffer.split(|byte| *byte == 0).next().unwrap_or_default());
    let own = std::fs::read_link(link).ok();
    reply.answer > 0 && own.is_some_and(|own| Some(own.as_os_str().as_encoded_bytes()) == named)
}

/// Every attack.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "read_file",
        goal: Goal::Files,
        what: "open /etc/passwd",
        stopped_by: &[Layer::EmptyRoot, Layer::LandlockFiles, Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| open("/etc/passwd", libc::O_RDONLY)),
        success: no_error,
    },
    Attack {
        name: "make_folder",
        goal: Goal::Files,
        what: "make a folder in /tmp",
        stopped_by: &[Layer::EmptyRoot, Layer::LandlockFiles, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|targets| {
            vec![call(libc::SYS_mkdirat, [word(libc::AT_FDCWD), text(&targets.folder), word(0o700)])]
        }),
        success: no_error,
    },
    Attack {
        name: "read_host_environment",
        goal: Goal::Files,
        what: "open the environment of the host process below /proc",
        stopped_by: &[Layer::EmptyRoot, Layer::LandlockFiles, Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|targets| open(&format!("/proc/{}/environ", targets.host_pid), libc::O_RDONLY)),
        success: no_error,
    },
    Attack {
        name: "tcp_connect",
        goal: Goal::Network,
        what: "connect to a TCP port of this machine",
        stopped_by: &[Layer::NetworkNamespace, Layer::LandlockNetwork, Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|targets| connect(libc::AF_INET, libc::SOCK_STREAM, targets.inet())),
        success: no_error,
    },
    Attack {
        name: "udp_connect",
        goal: Goal::Network,
        what: "address a UDP port of this machine",
        stopped_by: &[Layer::NetworkNamespace, Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|targets| connect(libc::AF_INET, libc::SOCK_DGRAM, targets.inet())),
        success: no_error,
    },
    Attack {
        name: "abstract_socket",
        goal: Goal::Network,
        what: "connect to an abstract Unix socket of this machine",
        stopped_by: &[Layer::NetworkNamespace, Layer::LandlockScopes, Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|targets| connect(libc::AF_UNIX, libc::SOCK_STREAM, targets.abstract_unix())),
        success: no_error,
    },
    Attack {
        name: "fork",
        goal: Goal::Processes,
        what: "make another process",
        stopped_by: &[Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| vec![Attempt::Fork]),
        success: no_error,
    },
    Attack {
        name: "many_processes",
        goal: Goal::Processes,
        what: "make more processes than one pool may have",
        stopped_by: &[Layer::ControlGroup, Layer::ResourceLimits, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| vec![Attempt::ForkMany { count: MAX_PROCESSES + 64 }]),
        success: no_error,
    },
    Attack {
        name: "execute",
        goal: Goal::Processes,
        what: "execute /bin/true",
        stopped_by: &[Layer::EmptyRoot, Layer::LandlockFiles, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| vec![call(libc::SYS_execve, [text("/bin/true"), word(0), word(0)])]),
        success: no_error,
    },
    Attack {
        name: "signal_host",
        goal: Goal::Processes,
        what: "be allowed to signal the host process",
        stopped_by: &[Layer::PidNamespace, Layer::LandlockScopes, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|targets| vec![call(libc::SYS_kill, [word(targets.host_pid), word(0)])]),
        success: no_error,
    },
    Attack {
        name: "signal_sibling",
        goal: Goal::Processes,
        what: "be allowed to signal another worker",
        stopped_by: &[Layer::LandlockScopes, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Sibling(|pid| vec![call(libc::SYS_kill, [word(pid), word(0)])]),
        success: no_error,
    },
    Attack {
        name: "trace_sibling",
        goal: Goal::Processes,
        what: "attach to another worker as a debugger",
        stopped_by: &[Layer::Undumpable, Layer::LandlockFiles, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Sibling(|pid| {
            vec![call(libc::SYS_ptrace, [word(i64::from(libc::PTRACE_SEIZE)), word(pid), word(0), word(0)])]
        }),
        success: no_error,
    },
    Attack {
        name: "read_sibling_memory",
        goal: Goal::Processes,
        what: "read the memory of another worker",
        stopped_by: &[Layer::Undumpable, Layer::LandlockFiles, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Sibling(|pid| vec![Attempt::ReadMemory { pid }]),
        success: no_error,
    },
    Attack {
        name: "executable_memory",
        goal: Goal::Memory,
        what: "map memory that can be executed",
        stopped_by: &[Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| {
            let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            vec![call(libc::SYS_mmap, [word(0), word(4096), word(protection), word(flags), word(-1), word(0)])]
        }),
        success: no_error,
    },
    Attack {
        name: "too_much_memory",
        goal: Goal::Memory,
        what: "use more memory than maxMemoryBytes",
        stopped_by: &[Layer::ResourceLimits],
        needs_root: false,
        steps: Steps::Machine(|targets| vec![Attempt::Allocate { bytes: targets.too_much_bytes }]),
        success: no_error,
    },
    Attack {
        name: "become_root",
        goal: Goal::Privileges,
        what: "take user number 0",
        stopped_by: &[Layer::Capabilities, Layer::Seccomp],
        needs_root: true,
        steps: Steps::Machine(|_| vec![call(libc::SYS_setresuid, [word(0), word(0), word(0)])]),
        success: no_error,
    },
    Attack {
        name: "change_root",
        goal: Goal::Privileges,
        what: "change the root folder (to itself)",
        stopped_by: &[Layer::Capabilities, Layer::Seccomp],
        needs_root: true,
        steps: Steps::Machine(|_| vec![call(libc::SYS_chroot, [text("/")])]),
        success: no_error,
    },
    Attack {
        name: "kernel_log",
        goal: Goal::Privileges,
        what: "read the kernel's log",
        stopped_by: &[Layer::UserNamespace, Layer::Capabilities, Layer::Seccomp],
        needs_root: true,
        // SYSLOG_ACTION_SIZE_UNREAD: needs the right to read, and reads nothing.
        steps: Steps::Machine(|_| vec![call(libc::SYS_syslog, [word(9), word(0), word(0)])]),
        success: no_error,
    },
    Attack {
        name: "environment",
        goal: Goal::Leftovers,
        what: "read the environment",
        stopped_by: &[Layer::Environment],
        needs_root: false,
        steps: Steps::Machine(|_| vec![Attempt::Environment]),
        success: no_error,
    },
    Attack {
        name: "open_descriptors",
        goal: Goal::Leftovers,
        what: "use a descriptor that was left open",
        stopped_by: &[Layer::Descriptors, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| vec![Attempt::Descriptors]),
        success: no_error,
    },
    Attack {
        name: "gain_by_execute",
        goal: Goal::Privileges,
        what: "be allowed to gain rights by executing a privileged program",
        stopped_by: &[Layer::NoNewPrivs, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| vec![call(libc::SYS_prctl, [word(libc::PR_GET_NO_NEW_PRIVS)])]),
        success: |reply| reply.answer == 0,
    },
    Attack {
        name: "shared_queues",
        goal: Goal::Leftovers,
        what: "share queues and semaphores with the host",
        stopped_by: &[Layer::IpcNamespace, Layer::EmptyRoot, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| name_namespace("/proc/self/ns/ipc")),
        success: |reply| is_own_namespace(reply, "/proc/self/ns/ipc"),
    },
    Attack {
        name: "shared_host_name",
        goal: Goal::Leftovers,
        what: "share the host name with the host",
        stopped_by: &[Layer::UtsNamespace, Layer::EmptyRoot, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| name_namespace("/proc/self/ns/uts")),
        success: |reply| is_own_namespace(reply, "/proc/self/ns/uts"),
    },
    Attack {
        name: "shared_control_groups",
        goal: Goal::Leftovers,
        what: "share the view of control groups with the host",
        stopped_by: &[Layer::CgroupNamespace, Layer::EmptyRoot, Layer::Seccomp],
        needs_root: false,
        steps: Steps::Machine(|_| name_namespace("/proc/self/ns/cgroup")),
        success: |reply| is_own_namespace(reply, "/proc/self/ns/cgroup"),
    },
];

/// What became of an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it was meant to do.
    Succeeded,
    /// It did not; by what, in words.
    Stopped(String),
}

impl Attack {
    /// Whether it is aimed at another worker of the same zygote.
    pub fn needs_sibling(&self) -> bool {
        matches!(self.steps, Steps::Sibling(_))
    }

    /// Tries it from a fresh worker of a pool of probes.
    pub async fn run(&self, pool: &Pool, targets: &Targets) -> Result<Verdict, SandboxError> {
        let mut worker = pool.checkout().await?;
        // Kept until the end: the sibling has to be there when it is attacked.
        let mut sibling = None;
        let steps = match self.steps {
            Steps::Machine(steps) => steps(targets),
            Steps::Sibling(steps) => {
                let mut other = pool.checkout().await?;
                let pid = number_of(&mut other).await;
                sibling = Some(other);
                match pid {
                    Ok(pid) => steps(pid),
                    Err(end) => return Ok(Verdict::Stopped(end)),
                }
            }
        };
        let mut verdict = Verdict::Succeeded;
        for step in steps {
            match worker.attempt(&step).await {
                Attempted::Answered(reply) if (self.success)(&reply) => {}
                // What was executed took the place of the probe and ended well.
                Attempted::Ended(Exit::Code(0)) if self.name == "execute" => {}
                other => {
                    verdict = Verdict::Stopped(in_words(&other));
                    break;
                }
            }
        }
        drop(sibling);
        Ok(verdict)
    }
}

/// The number of a worker in its process namespace, as it says itself.
async fn number_of(worker: &mut WorkerProcess) -> Result<i32, String> {
    match worker.attempt(&call(libc::SYS_getpid, [])).await {
        Attempted::Answered(reply) => i32::try_from(reply.answer).map_err(|error| error.to_string()),
        ended @ Attempted::Ended(_) => Err(in_words(&ended)),
    }
}

fn in_words(attempted: &Attempted) -> String {
    match attempted {
        Attempted::Answered(reply) => {
            if reply.answer >= 0 {
                return "answered, and with nothing of use".into();
            }
            let errno = i32::try_from(-reply.answer).unwrap_or(0);
            let errno = nix::errno::Errno::from_raw(errno);
            format!("{errno:?}: {}", errno.desc())
        }
        Attempted::Ended(Exit::Signal(libc::SIGSYS)) => "killed at the system call".into(),
        Attempted::Ended(Exit::Signal(signal)) => format!("ended by signal {signal}"),
        Attempted::Ended(Exit::Code(code)) => format!("ended with status {code}"),
    }
}

/// Layers without which another one can not be put up, or does not bind: what has to stay when it is tried alone.
pub fn support_of(layer: Layer, host_is_root: bool) -> Vec<Layer> {
    match layer {
        // The kernel exempts root from the limit of processes, and lets it debug whatever it likes.
        Layer::ResourceLimits | Layer::Undumpable => vec![Layer::Capabilities],
        Layer::LandlockFiles | Layer::LandlockNetwork | Layer::LandlockScopes | Layer::Seccomp => {
            vec![Layer::NoNewPrivs]
        }
        Layer::NetworkNamespace
        | Layer::IpcNamespace
        | Layer::UtsNamespace
        | Layer::CgroupNamespace
        | Layer::PidNamespace
        | Layer::EmptyRoot
            if !host_is_root =>
        {
            vec![Layer::UserNamespace]
        }
        _ => Vec::new(),
    }
}

/// All layers but one and what that one needs.
pub fn all_but(layer: Layer, host_is_root: bool) -> Vec<Layer> {
    let support = support_of(layer, host_is_root);
    Layer::ALL.into_iter().filter(|other| *other != layer && !support.contains(other)).collect()
}
