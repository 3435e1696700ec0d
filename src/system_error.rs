//! What the operating system said, in words for people.
//!
//! Invariant: neither the names that the standard library gives to kinds of errors nor numbers of errors get into a message.

use std::io;

/// Why a file, a socket or a program could not be used.
pub(crate) fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a folder, not a file".to_owned(),
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a folder".to_owned(),
        kind => error.raw_os_error().map_or_else(
            || error.get_ref().map_or_else(|| kind.to_string(), ToString::to_string),
            |code| lowered(nix::errno::Errno::from_raw(code).desc()),
        ),
    }
}

/// Why an address could not be listened on.
pub(crate) fn words_of_listening(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput => "write address and port, such as 127.0.0.1:8787".to_owned(),
        io::ErrorKind::AddrInUse => "something else listens there already".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => words(error),
    }
}

/// Why a program could not be started.
pub(crate) fn words_of_start(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such program".to_owned(),
        io::ErrorKind::PermissionDenied => "it may not be executed".to_owned(),
        _ => words(error),
    }
}

/// How a program ended that should have ended with 0.
pub(crate) fn words_of_end(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => {
            let name = nix::sys::signal::Signal::try_from(signal);
            format!("was killed by {}", name.map_or_else(|_| format!("signal {signal}"), |name| name.to_string()))
        }
        (None, None) => "ended".to_owned(),
    }
}

fn lowered(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_quoted_without_numbers_and_without_the_names_of_kinds() {
        let of = |code| words(&io::Error::from_raw_os_error(code));
        assert_eq!(
            [nix::libc::ENOENT, nix::libc::EACCES, nix::libc::EISDIR, nix::libc::ENOSPC, nix::libc::EROFS].map(of),
            [
                "no such file",
                "permission denied",
                "is a folder, not a file",
                "no space left on device",
                "read-only file system"
            ]
        );
        assert_eq!(words_of_start(&io::ErrorKind::NotFound.into()), "there is no such program");
    }
}
