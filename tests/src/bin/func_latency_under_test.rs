//! The command, built together with the tests that run it.

fn main() -> std::process::ExitCode {
    func_latency::run()
}
