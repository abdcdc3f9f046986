//! Which branches are a call's.

use super::script::{branch_paths, branch_paths_of};

/// The path ended with the handler's return, which was taken for the call's.
#[test]
fn a_signal_handler_inside_a_call_does_not_end_its_branches() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+8 f+20
        120 async f+24
        125 start handler
        130 call handler+4 g
        135 ret g+8 handler+9
        140 ret handler+20 restorer
        142 syscall restorer+7
        150 start f+24
        160 jmp f+28 f+40
        170 ret f+48 main+15
        180 jmp main+18 main+30";
    let path = [
        "f+8 -> f+20",
        "f+24 -> [handler] handler",
        "handler+4 -> g",
        "g+8 -> handler+9",
        "handler+20 -> restorer",
        "restorer+7 -> [kernel]",
        "f+28 -> f+40",
        "f+48 -> main+15",
    ];
    assert_eq!(branch_paths(script), [path.map(str::to_owned)]);
}

/// A handler that the kernel enters instead of returning from a system call: the trace does not tell the two
/// apart.
#[test]
fn a_signal_handler_after_a_system_call_does_not_end_the_branches() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 syscall f+8
        125 start handler
        140 ret handler+20 restorer
        142 syscall restorer+7
        150 start f+a
        170 ret f+48 main+15
        180 jmp main+18 main+30";
    let path = ["f+8 -> [kernel]", "handler+20 -> restorer", "restorer+7 -> [kernel]", "f+48 -> main+15"];
    assert_eq!(branch_paths(script), [path.map(str::to_owned)]);
}

#[test]
fn a_call_inside_a_call_has_branches_of_its_own() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+8 f
        120 ret f+48 f+d
        130 ret f+48 main+15
        140 jmp main+18 main+30";
    let outer = ["f+8 -> f", "f+48 -> f+d", "f+48 -> main+15"].map(str::to_owned).to_vec();
    let inner = vec!["f+48 -> f+d".to_owned()];
    assert_eq!(branch_paths(script), [outer, inner]);
}

/// Running on into a region is no branch; the branch that ends it is one of its own, later ones are not.
#[test]
fn the_branches_of_a_region_are_those_from_its_begin_to_its_end() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        105 jmp f+8 f+c
        110 on f+e f+10
        120 call f+20 g
        130 ret g+20 f+25
        140 jcc f+30 f+40
        145 jmp f+44 f+8
        150 jmp f+8 f+10
        160 jmp f+14 f+3c
        165 on f+3e f+40
        166 jmp f+44 f+50
        170 ret f+50 main+15";
    let paths = branch_paths_of("region", script);
    assert_eq!(paths[0], ["f+20 -> g", "g+20 -> f+25", "f+30 -> f+40"]);
    assert_eq!(paths[1], ["f+14 -> f+3c"]);
}
