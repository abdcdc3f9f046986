//! What to do where a function has no name because its object was stripped.

use std::env;
use std::fs;
use std::path::Path;

use image::{Image, basename, build_id_of};
use model::ObjectId;

use crate::render::units::counted;

/// Where Debian keeps the files of each package, by its name.
const DPKG: &str = "/var/lib/dpkg/info";
/// Where the servers of debuginfod are named, beside `DEBUGINFOD_URLS`.
const DEBUGINFOD: &str = "/etc/debuginfod";

/// The stripped objects, of those that may have the function: the program first, or the one that was named.
/// Empty: none is.
pub(crate) fn remark(image: &Image, named: Option<&str>) -> String {
    let is_named = |id: &ObjectId| {
        named
            .is_none_or(|name| image.object_name(*id) == name || image.object_basename(*id) == basename(name))
    };
    let stripped: Vec<ObjectId> =
        image.objects().filter(is_named).filter(|id| image.is_stripped(*id)).collect();
    let Some((first, others)) = stripped.split_first() else { return String::new() };
    let name = image.object_basename(*first);
    let others = match others.len() as u64 {
        0 => String::new(),
        count => format!(", as are {} (choose one with -b)", counted(count, "other object")),
    };
    let symbols = image.object_path(*first).map_or_else(String::new, symbols_of);
    format!(
        ".  {name} is stripped{others}: of its functions only those that other objects use have names; {symbols}a place in its code \
         can be named as -f {name}+0xADDRESS"
    )
}

/// How its symbols can be had.
fn symbols_of(file: &Path) -> String {
    let Some(id) = build_id_of(file) else { return String::new() };
    let package = package_of(Path::new(DPKG), file);
    let package = package.map(|package| format!("Debian's {package}-dbgsym has them; "));
    let server = server(env::var("DEBUGINFOD_URLS").ok(), Path::new(DEBUGINFOD));
    let server = server.map(|url| {
        let url = url.trim_end_matches('/');
        format!("debuginfod may have them ({url}/buildid/{id}/debuginfo): debuginfod-find debuginfo {id}; ")
    });
    let neither = (package.is_none() && server.is_none())
        .then(|| format!("its debug file belongs to /usr/lib/debug/.build-id (build id {id}); "));
    [package, server, neither].into_iter().flatten().collect()
}

/// The package that has a file, by the lists of `dpkg`; where `/usr` was merged they may have the shorter
/// path.
fn package_of(lists: &Path, file: &Path) -> Option<String> {
    let file = file.to_str()?;
    let paths = [file, file.strip_prefix("/usr").unwrap_or(file)];
    let mut lists: Vec<_> = fs::read_dir(lists).ok()?.flatten().map(|entry| entry.path()).collect();
    lists.sort_unstable();
    let has = |list: &Path| {
        fs::read_to_string(list).is_ok_and(|text| text.lines().any(|line| paths.contains(&line)))
    };
    let list = lists.iter().filter(|list| list.extension().is_some_and(|end| end == "list"));
    let name = list.into_iter().find(|list| has(list))?.file_stem()?.to_str()?;
    Some(name.split(':').next().unwrap_or(name).to_owned())
}

/// The first server of debuginfod that is configured.
fn server(variable: Option<String>, directory: &Path) -> Option<String> {
    let mut files: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort_unstable();
    let urls = files.iter().filter(|file| file.extension().is_some_and(|end| end == "urls"));
    let of_files = urls.filter_map(|file| fs::read_to_string(file).ok());
    let all: Vec<String> = variable.into_iter().chain(of_files).collect();
    all.iter().flat_map(|text| text.split_whitespace()).find(|url| url.starts_with("http")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_of_a_file_is_that_whose_list_has_it() {
        let lists = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(lists.path().join(name), text).unwrap();
        put("a-server:amd64.list", "/.\n/usr\n/usr/sbin/server\n");
        put("libold.list", "/lib/libold.so.1\n");
        put("other.md5sums", "/usr/sbin/none\n");
        let package = |file: &str| package_of(lists.path(), Path::new(file));
        assert_eq!(package("/usr/sbin/server").as_deref(), Some("a-server"));
        assert_eq!(package("/usr/lib/libold.so.1").as_deref(), Some("libold"));
        assert_eq!(package("/usr/sbin/none"), None);
        assert_eq!(package_of(Path::new("/no/such/directory"), Path::new("/bin/x")), None);
    }

    #[test]
    fn a_server_of_debuginfod_is_named_by_the_variable_or_a_file() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(server(None, directory.path()), None);
        fs::write(directory.path().join("debian.urls"), "https://file.example/\n").unwrap();
        assert_eq!(server(None, directory.path()).as_deref(), Some("https://file.example/"));
        let variable = Some("https://one.example https://two.example".to_owned());
        assert_eq!(server(variable, directory.path()).as_deref(), Some("https://one.example"));
    }
}
