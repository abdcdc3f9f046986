//! `vm_tests guest DIR NUMBER` runs the cases in the virtual machine of this number, `vm_tests check DIR
//! MACHINES NAME..` checks outside what so many machines have run, with DIR `target/vm`; `vm_tests list
//! [quick]` names the cases, or those that do not take minutes.

use std::path::Path;
use std::process::ExitCode;

use vm_tests::cases::CASES;
use vm_tests::guest::{TRIALS, Trial};
use vm_tests::paths::Vm;
use vm_tests::{check, guest};

/// What is in the file `end` of a run in which the machine did what it should.
const GOOD_END: &str = "the machine has run all cases";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["guest", directory, number] => run_all(&Vm::new(Path::new(directory)), number),
        ["check", directory, machines, ref names @ ..] => {
            check_all(&Vm::new(Path::new(directory)), machines, names)
        }
        ["list"] => list(|_| true),
        ["list", "quick"] => list(|trial| !trial.is_long),
        _ => {
            eprintln!("vm_tests guest DIR NUMBER | check DIR MACHINES NAME.. | list [quick]");
            return ExitCode::from(2);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Names the cases, and the trials that are chosen.
fn list(is_chosen: impl Fn(&Trial) -> bool) -> bool {
    let trials = TRIALS.iter().filter(|trial| is_chosen(trial)).map(|trial| trial.name);
    CASES.iter().map(|case| case.name).chain(trials).for_each(|name| println!("{name}"));
    true
}

/// Says how it ended on the console and in a file; true if all is well with the machine.
fn run_all(vm: &Vm, number: &str) -> bool {
    let end = guest::run(vm, number).map_or_else(|error| format!("{error:#}"), |()| GOOD_END.to_owned());
    println!("vm: {end}");
    std::fs::write(vm.of_machine(number, "end"), &end).is_ok() && end == GOOD_END
}

/// A line for each case, and one for all, as the test runner prints them; why one fails is on the error
/// output. True if all pass.
fn check_all(vm: &Vm, machines: &str, names: &[&str]) -> bool {
    let (mut passed, mut failed) = (0, 0);
    let mut tell = |name: &str, result: anyhow::Result<String>| match result {
        Ok(seen) => {
            println!("vm {name} ... {seen}");
            passed += 1;
        }
        Err(error) => {
            println!("vm {name} ... FAILED");
            eprintln!("vm {name}: {error:#}");
            failed += 1;
        }
    };
    for case in CASES.iter().filter(|case| names.contains(&case.name)) {
        tell(case.name, check::check(vm, case).map(|checked| checked.to_string()));
    }
    for trial in TRIALS.iter().filter(|trial| names.contains(&trial.name)) {
        tell(trial.name, check::trial(vm, trial.name));
    }
    println!("vm: {passed} passed; {failed} failed");
    let machines: u8 = machines.parse().unwrap_or(0);
    let have_ended = (0..machines).all(|number| has_ended(vm, &number.to_string()));
    failed == 0 && passed > 0 && machines > 0 && have_ended
}

/// A machine did what it should; if not, what it said is on the error output.
fn has_ended(vm: &Vm, number: &str) -> bool {
    let end = std::fs::read_to_string(vm.of_machine(number, "end"));
    let end = end.unwrap_or_else(|error| format!("no end: {error}"));
    if end != GOOD_END {
        eprintln!("vm: machine {number}: {end}");
    }
    end == GOOD_END
}
