//! By speedscope, in a browser: the page that npm has, opened with the export in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::cases;

/// What Debian's packages call the browser.
const BROWSERS: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// speedscope's page, and the browser that opens it; `None`: one is not here.
fn tools() -> Option<(PathBuf, PathBuf)> {
    let page = std::env::var_os("FUNC_LATENCY_SPEEDSCOPE").map(PathBuf::from);
    let directories: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let mut places = BROWSERS.iter().flat_map(|name| directories.iter().map(move |place| place.join(name)));
    let tools = page.zip(places.find(|place| place.exists()));
    if tools.is_none() {
        println!("skipped: speedscope or chromium is not here (cargo xtask test installs them where npm is)");
    }
    tools
}

/// The text of the page's elements, once speedscope has imported a file and lists `symbol`.
fn texts((page, browser): &(PathBuf, PathBuf), file: &Path, name: &str, symbol: &str) -> Vec<String> {
    // Pages cannot read files beside them: its own command hands a profile over as a script.
    let script = file.with_extension("js");
    let content = BASE64_STANDARD.encode(std::fs::read(file).unwrap());
    // The browser's virtual time does not wait for the import: its budget would be used up before. So the
    // script takes real time until the row is there.
    let call = format!(
        "speedscope.loadFileFromBase64({name:?}, \"{content}\");
         const waits = setInterval(() => {{
             if (document.body.textContent.includes({symbol:?})) return clearInterval(waits);
             for (let i = 0; i < 2e7; i++);
         }}, 100);"
    );
    std::fs::write(&script, call).unwrap();
    let page = format!("file://{}#view=sandwich&localProfilePath={}", page.display(), script.display());
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        // Rows that there is no room for are not there.
        .args(["--window-size=1200,20000", "--virtual-time-budget=60000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", file.with_extension("browser").display()))
        .arg(page)
        .output()
        .unwrap();
    let html = String::from_utf8(output.stdout).unwrap();
    let body = html.split_once("<body").map_or("", |(_, body)| body);
    let texts = body.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim());
    texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

#[test]
fn speedscope_opens_folded_stacks_and_pprof() {
    let Some(tools) = tools() else { return };
    for case in cases() {
        for format in ["folded", "pprof"] {
            let file = case.export(format, &[]);
            let texts = texts(&tools, &file, &format!("export.{format}"), case.symbol);
            let total = texts.windows(3).find(|row| row[2] == case.symbol).map(|row| row[0].clone());
            let total = total.unwrap_or_else(|| panic!("{}: {format}: no row of the function", case.name));
            // Of stacks that have no unit it prints every digit.
            let number = total.strip_suffix(" (100%)").unwrap_or_default();
            let ns: String = number.chars().filter(char::is_ascii_digit).collect();
            if format == "folded" {
                assert_eq!(ns, case.report.outermost.total.sum_ns.to_string(), "{}: {total}", case.name);
            } else {
                assert!(!ns.is_empty(), "{}: {total}", case.name);
            }
        }
    }
}
