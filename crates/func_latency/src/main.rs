//! The command.

fn main() -> std::process::ExitCode {
    func_latency::run()
}
