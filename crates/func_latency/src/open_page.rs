//! `--open`: the page in the user's browser, or what to do where there is none to open it in.

use std::env::{self, VarError};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::messages;
use crate::shell::quoted;

/// What opens a file with the program of the user's choice, on every desktop.
const OPENER: &str = "xdg-open";

/// Opens a page, or says how to see it.
pub(crate) fn open(page: &Path) {
    let page = std::path::absolute(page).unwrap_or_else(|_| page.to_owned());
    match opening(&Session::here(), &page) {
        Opening::Say(how) => messages::note(how),
        Opening::Run(program) => {
            let mut command = Command::new(&program);
            command.arg(url(&page)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if let Err(error) = command.spawn() {
                messages::warn(format!("--open: {}: {error}; the page: {}", program.display(), url(&page)));
            }
        }
    }
}

/// What is known of the user's session.
#[derive(Clone, Debug, Default)]
struct Session {
    /// The address that the user's machine knows this one by, if the user came by ssh.
    ssh_server: Option<String>,
    user: Option<String>,
    has_display: bool,
    /// Run by sudo: a browser would be root's.
    is_sudo: bool,
    opener: Option<PathBuf>,
}

impl Session {
    fn here() -> Self {
        let set = |name: &str| match env::var(name) {
            Ok(value) => Some(value).filter(|value| !value.is_empty()),
            Err(VarError::NotPresent | VarError::NotUnicode(_)) => None,
        };
        // Addresses and ports of the client and of this machine.
        let ssh = set("SSH_CONNECTION").map(|ends| ends.split(' ').nth(2).unwrap_or("HOST").to_owned());
        let path = env::var_os("PATH").unwrap_or_default();
        Self {
            ssh_server: ssh,
            user: set("SUDO_USER").or_else(|| set("USER")),
            has_display: set("DISPLAY").or_else(|| set("WAYLAND_DISPLAY")).is_some(),
            is_sudo: set("SUDO_USER").is_some(),
            opener: env::split_paths(&path)
                .map(|directory| directory.join(OPENER))
                .find(|file| file.is_file()),
        }
    }
}

/// How a page is opened.
#[derive(Debug, PartialEq, Eq)]
enum Opening {
    /// By this program.
    Run(PathBuf),
    /// By the user.
    Say(String),
}

fn opening(session: &Session, page: &Path) -> Opening {
    if let (Some(server), false) = (&session.ssh_server, session.has_display) {
        let user = session.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let host = if server.contains(':') { format!("[{server}]") } else { server.clone() };
        let file = quoted(&format!("{user}{host}:{}", page.display()));
        return Opening::Say(format!(
            "--open: there is no browser over ssh; on your machine: scp {file} . and open it there, it is one file"
        ));
    }
    let by_hand = |why: &str| Opening::Say(format!("--open: {why}; open {} yourself", url(page)));
    match &session.opener {
        _ if !session.has_display => by_hand("there is no display here"),
        _ if session.is_sudo => by_hand("a browser that sudo starts would run as root"),
        None => by_hand("there is no xdg-open here"),
        Some(opener) => Opening::Run(opener.clone()),
    }
}

/// The address of a file: RFC 8089, with every byte that is not plain in hexadecimal.
fn url(page: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let byte = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    page.as_os_str().as_bytes().iter().map(byte).fold("file://".to_owned(), |url, part| url + &part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(session: &Session, expect: &str) {
        let opening = match opening(session, Path::new("/tmp/my calls.html")) {
            Opening::Run(program) => format!("run {}", program.display()),
            Opening::Say(how) => how,
        };
        assert_eq!(opening, expect);
    }

    #[test]
    fn a_page_is_opened_where_there_is_a_browser() {
        let desktop =
            Session { has_display: true, opener: Some("/usr/bin/xdg-open".into()), ..Session::default() };
        check(&desktop, "run /usr/bin/xdg-open");
        let by_sudo = Session { is_sudo: true, ..desktop.clone() };
        check(
            &by_sudo,
            "--open: a browser that sudo starts would run as root; open file:///tmp/my%20calls.html yourself",
        );
        check(
            &Session { opener: None, ..desktop.clone() },
            "--open: there is no xdg-open here; open file:///tmp/my%20calls.html yourself",
        );
        check(
            &Session { has_display: false, ..desktop.clone() },
            "--open: there is no display here; open file:///tmp/my%20calls.html yourself",
        );
        // Its display is the user's: `ssh -X`.
        let forwarded = Session { ssh_server: Some("10.0.0.5".into()), ..desktop };
        check(&forwarded, "run /usr/bin/xdg-open");
    }

    #[test]
    fn over_ssh_it_says_how_to_get_the_page() {
        let over = |server: &str, user: Option<&str>| Session {
            ssh_server: Some(server.to_owned()),
            user: user.map(str::to_owned),
            ..Session::default()
        };
        check(
            &over("10.0.0.5", Some("ann")),
            "--open: there is no browser over ssh; on your machine: scp 'ann@10.0.0.5:/tmp/my calls.html' . and open \
             it there, it is one file",
        );
        check(
            &over("fe80::1", None),
            "--open: there is no browser over ssh; on your machine: scp '[fe80::1]:/tmp/my calls.html' . and open it \
             there, it is one file",
        );
    }

    #[test]
    fn an_address_has_plain_bytes_only() {
        assert_eq!(url(Path::new("/a-b_c.d/e~f")), "file:///a-b_c.d/e~f");
        assert_eq!(url(Path::new("/ä#?%")), "file:///%C3%A4%23%3F%25");
    }
}
