//! Slow calls against typical ones: which these are, what makes the difference, and where it arises.

use std::fmt::Write as _;

use super::script::{analyse, analyse_trees, callee_text, schedule};
use crate::ledger::{
    ChoiceError, Difference, Groups, Ledger, LedgerOfCalls, LeftOut, Row, Side, Slow, Spent, Typical,
    ledger_of_rows,
};
use crate::modes::ModesOfCalls;
use crate::tree::NESTED_MAX;
use crate::{CallRow, ChildKey, CountersAsked, FunctionReport, LatencyRange, Request, RowReasons};

pub(super) fn rows(script: &str) -> Vec<CallRow> {
    analyse(script, Request { rows: true, ..Request::default() }).functions.remove(0).rows
}

fn name(ledger: &Ledger<ChildKey>, path: usize) -> String {
    let key = ledger.paths()[path].key;
    callee_text(key.kind, key.function, key.site)
}

/// Explains the calls of at least `slow_ns`: rows as `what difference = more often + each longer`, then the
/// way down.
#[track_caller]
fn check(script: &str, slow_ns: u64, expect: &str) {
    let slow = Slow::Latency(LatencyRange { min_ns: slow_ns, max_ns: u64::MAX });
    let groups = Groups::choose(&rows(script), slow).unwrap();
    let schedule = schedule(script);
    let mut ledger = LedgerOfCalls::new(&groups, &schedule);
    let counters = Some(CountersAsked { kernel: false, bus_khz: None });
    let _ = analyse_trees(script, Request { counters, ..Request::default() }, &mut ledger);
    let (ledger, _) = ledger.finish();
    let comparison = ledger.compare().unwrap();
    let whose = if groups.whose == Typical::SameCallers { "" } else { " of all callers" };
    let (slow, typical) = comparison.calls;
    let mut lines = vec![format!("{slow} against {typical}{whose}: {}", comparison.difference.ns)];
    for row in &comparison.rows {
        let mut line = match (row.path, row.spent) {
            (0, Spent::Running) => "self".to_owned(),
            (0, spent) => spent.name().to_owned(),
            (path, _) => name(&ledger, path),
        };
        write!(line, " {}", row.difference.ns).unwrap();
        if let Some((more_often, each_longer)) = row.more_often.zip(row.each_longer)
            && more_often.ns != 0
        {
            write!(line, " = {} + {}", more_often.ns, each_longer.ns).unwrap();
            assert_eq!(more_often.ns + each_longer.ns, row.difference.ns);
        }
        if let Some(split) = row.split {
            let parts = [split.more_instructions_ns, split.slower_instructions_ns];
            let sum = parts.iter().sum::<i64>() + split.lower_frequency_ns.unwrap();
            assert_eq!(sum, row.difference.ns, "the parts are the row");
        }
        let has_base = row.spent == Spent::Running && row.sums_ns.1 > 0;
        assert_eq!(row.split.is_some(), has_base, "{line}");
        lines.push(line);
    }
    let sum: i64 = comparison.rows.iter().map(|row| row.difference.ns).sum();
    assert_eq!(sum, comparison.difference.ns, "the rows are the difference");
    let shares: f64 = comparison.rows.iter().filter_map(|row| row.variance_share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "the rows are the variance: {shares}");
    let descent = ledger.descend(comparison.leading().unwrap());
    let way: Vec<String> = descent.levels.iter().map(|level| name(&ledger, level.path)).collect();
    lines.push(format!("{}: {:?}", way.join(" > "), descent.end));
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, expect);
}

/// Calls of `f` by `main`, with what each of them does.
pub(super) fn calls(bodies: &[&str]) -> String {
    let mut script = String::from("0 start main+4\n");
    for (i, body) in bodies.iter().enumerate() {
        let base = 1000 + 200 * i as u64;
        writeln!(script, "{base} call main+20 f").unwrap();
        for line in body.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (at, rest) = line.split_once(' ').unwrap();
            writeln!(script, "{} {rest}", base + at.parse::<u64>().unwrap()).unwrap();
        }
    }
    script
}

#[test]
fn a_callee_that_takes_longer_three_levels_down() {
    let call = |ns: u64| {
        let (in_h, in_g, in_f) = (20 + ns, 22 + ns, 30 + ns);
        format!(
            "10 call f+10 g\n 12 call g+10 h\n 20 call h+10 k\n {in_h} ret k+10 h+15\n {in_h} ret h+20 g+15
             {in_g} ret g+20 f+15\n {in_f} ret f+40 main+25"
        )
    };
    let bodies = [call(10), call(11), call(10), call(90)];
    let script = calls(&bodies.each_ref().map(String::as_str));
    // 120 - 40: the mean of 40, 40 of three calls, of which the half nearest to the median is two.
    check(
        &script,
        100,
        "
        1 against 2: 80
        call g at f+10 80
        self 0
        call f at main+20 > call g at f+10 > call h at g+10 > call k at h+10: Own
    ",
    );
}

#[test]
fn a_callee_that_is_called_more_often_and_takes_longer() {
    let one = "10 call f+10 g\n 20 ret g+10 f+15\n 40 ret f+40 main+25";
    let three = "10 call f+10 g\n 24 ret g+10 f+15\n 30 call f+10 g\n 44 ret g+10 f+15
        50 call f+10 g\n 64 ret g+10 f+15\n 94 ret f+40 main+25";
    // 3 x 14 - 1 x 10 = 2 more x 10 + 3 x 4 longer
    check(
        &calls(&[one, three, one, one]),
        90,
        "
        1 against 2: 54
        call g at f+10 32 = 20 + 12
        self 22
        call f at main+20 > call g at f+10: MoreOften
    ",
    );
}

#[test]
fn rows_of_means_that_are_no_integers_add_up() {
    // Means of 121 and 100/3: 87 2/3. g has 10 1/3 of that, h 10 1/3, f 67: the first of equal rests is
    // rounded up.
    let body = |g: u64, h: u64, end: u64| {
        format!(
            "0 call f+10 g\n {g} ret g+10 f+15\n {g} call f+20 h\n {} ret h+10 f+25\n {end} ret f+40 main+25",
            g + h
        )
    };
    let bodies = [
        body(10, 10, 33),
        body(10, 10, 33),
        body(9, 9, 34),
        body(9, 9, 34),
        body(9, 9, 34),
        body(20, 20, 121),
    ];
    let script = calls(&bodies.each_ref().map(String::as_str));
    check(
        &script,
        100,
        "
        1 against 3: 87
        self 65
        call g at f+10 11
        call h at f+20 11
        call f at main+20: Own
    ",
    );
}

#[test]
fn time_off_the_cpu_is_a_row_of_its_own_wherever_it_was() {
    let quick = "10 call f+10 g\n 20 ret g+10 f+15\n 40 ret f+40 main+25";
    let blocked =
        "10 call f+10 g\n 12 syscall g+4\n 100 start g+6\n 110 ret g+10 f+15\n 130 ret f+40 main+25";
    let script = format!("off 1015 1095\n{}", calls(&[blocked, quick, quick, quick]));
    check(
        &script,
        100,
        "
        1 against 2: 90
        blocked 80
        kernel 8 = 8 + 0
        call g at f+10 2
        self 0
        call f at main+20 > call g at f+10 > syscall at g+4: MoreOften
    ",
    );
}

#[test]
fn recursion_is_one_callee_however_deep() {
    let shallow =
        "10 call f+10 g\n 12 call g+10 g\n 18 ret g+20 g+15\n 20 ret g+20 f+15\n 40 ret f+40 main+25";
    let deep = "10 call f+10 g\n 12 call g+10 g\n 16 call g+10 g\n 22 call g+10 g\n 80 ret g+20 g+15\n 81 ret g+20 g+15
        82 ret g+20 g+15\n 84 ret g+20 f+15\n 104 ret f+40 main+25";
    check(
        &calls(&[shallow, shallow, shallow, deep]),
        100,
        "
        1 against 2: 64
        call g at f+10 64
        self 0
        call f at main+20 > call g at f+10 > recursion g at g+10: Own
    ",
    );
}

#[test]
fn interrupts_are_a_row() {
    let quick = "40 ret f+40 main+25";
    let interrupted = "10 async f+8\n 30 start f+8\n 60 ret f+40 main+25";
    check(
        &calls(&[quick, interrupted, quick, quick]),
        60,
        "
        1 against 2: 20
        interrupts and faults 20 = 20 + 0
        self 0
        call f at main+20 > interrupt: MoreOften
    ",
    );
}

const TWO_CALLERS: &str = "
    0 start main+4
    100 call main+20 f\n 110 ret f+40 main+25
    200 call main+20 f\n 210 ret f+40 main+25
    300 call main+20 f\n 390 ret f+40 main+25
    400 call main+30 f\n 430 ret f+40 main+35
    500 call main+30 f\n 530 ret f+40 main+35";

#[test]
fn typical_calls_are_those_of_the_same_caller() {
    check(
        TWO_CALLERS,
        50,
        "
        1 against 1: 80
        self 80
        call f at main+20: Own
    ",
    );
}

#[test]
fn where_a_caller_has_slow_calls_only_those_of_all_callers_are_typical() {
    check(
        TWO_CALLERS,
        30,
        "
        3 against 1 of all callers: 40
        self 40
        call f at main+20: Own
    ",
    );
}

#[test]
fn only_calls_that_were_seen_from_entry_to_end_are_compared() {
    let script = "
        0 start main+4
        100 call main+20 f\n 110 ret f+40 main+25
        200 call main+20 f\n 290 ret f+40 main+25
        300 call main+20 f\n 400 gap 410\n 410 resume main+4
        500 call main+20 f";
    let groups = Groups::choose(&rows(script), Slow::Percentile(990)).unwrap();
    let starts = |rows: &[CallRow]| rows.iter().map(|row| row.start_ns.0).collect::<Vec<_>>();
    assert_eq!((starts(&groups.slow), starts(&groups.typical)), (vec![200], vec![100]));
    assert_eq!((groups.left_out.cut, groups.left_out.open_end), (1, 1));
    let id = |at: usize| rows(script)[at].id;
    let error = |slow| Groups::choose(&rows(script), slow).unwrap_err();
    assert_eq!(error(Slow::Call(id(2))), ChoiceError::NotWhole(id(2), crate::Status::Cut));
    let unknown = crate::CallId { number: 9, ..id(0) };
    assert_eq!(error(Slow::Call(unknown)), ChoiceError::NoSuchCall(unknown));
    let range = |min_ns| Slow::Latency(LatencyRange { min_ns, max_ns: u64::MAX });
    assert_eq!(error(range(0)), ChoiceError::NoOthers);
    assert_eq!(error(range(91)), ChoiceError::NoSlowCalls);
    assert_eq!(Groups::choose(&[], Slow::Percentile(990)).unwrap_err(), ChoiceError::NoCalls);
}

#[test]
fn calls_inside_of_too_many_others_are_left_out() {
    let mut script = String::from("0 start main+4\n10 call main+20 f\n");
    let depth = u64::from(NESTED_MAX) + 3;
    (1..depth).for_each(|i| writeln!(script, "{} call f+10 f", 10 + i).unwrap());
    (1..depth).for_each(|i| writeln!(script, "{} ret f+20 f+15", 400 + i).unwrap());
    script += "900 ret f+20 main+25";
    let groups = Groups::choose(&rows(&script), Slow::Percentile(990)).unwrap();
    assert_eq!(groups.left_out, LeftOut { nested: 3, ..LeftOut::default() });
    let mut modes = ModesOfCalls::default();
    let _ = analyse_trees(&script, Request::default(), &mut modes);
    let modes = modes.finish();
    assert_eq!((modes.calls() as u64, modes.left_out), (depth - 3, groups.left_out));
}

/// Whether the slowest percent of calls with these latencies are outliers.
fn outlying(latencies: impl IntoIterator<Item = u64>) -> bool {
    let bodies: Vec<String> = latencies.into_iter().map(|ns| format!("{ns} ret f+40 main+25")).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let rows: Vec<CallRow> = bodies.chunks(4).flat_map(|bodies| rows(&calls(bodies))).collect();
    let renumbered = rows.into_iter().enumerate();
    let rows: Vec<CallRow> = renumbered
        .map(|(number, row)| CallRow { id: crate::CallId { number: number as u64, ..row.id }, ..row })
        .collect();
    Groups::choose(&rows, Slow::Percentile(990)).unwrap().outlying.is_so()
}

#[test]
fn the_tail_of_what_is_spread_alike_is_no_outlier() {
    // Sums of twelve dice are nearly normal: mean 60, deviation 10.
    let mut random = 1_u64;
    let mut die = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % 11
    };
    let latencies: Vec<u64> = (0..800).map(|_| (0..12).map(|_| die()).sum()).collect();
    assert!(!outlying(latencies.clone()));
    let planted = latencies.iter().enumerate().map(|(i, ns)| if i % 80 == 7 { ns + 60 } else { *ns });
    assert!(outlying(planted));
}

/// Calls with nothing known beyond their rows.
#[test]
fn what_rows_waited_for_is_told_apart() {
    let quick = "10 ret f+40 main+25";
    let waits = "10 syscall f+10\n 52 start f+12\n 90 ret f+40 main+25";
    let script = format!("slept 1220 202 1240 9 1250\n{}", calls(&[quick, waits, quick, quick]));
    let request = Request { rows: true, row_children: true, ..Request::default() };
    let mut function = analyse(&script, request).functions.remove(0);
    let slow = Slow::Latency(LatencyRange { min_ns: 80, max_ns: u64::MAX });
    let groups = Groups::choose(&function.rows, slow).unwrap();
    let rows = |function: &FunctionReport| {
        let comparison = ledger_of_rows(&groups, function).0.compare().unwrap();
        comparison.rows.iter().map(|row| (row.path, row.spent, row.difference.ns)).collect::<Vec<_>>()
    };
    let (own, in_kernel) = ((0, Spent::Running, 38), (0, Spent::Kernel, 12));
    assert_eq!(rows(&function), [own, (0, Spent::Blocked, 20), in_kernel, (0, Spent::Runnable, 10)]);
    function.row_details.reasons = RowReasons::default(); // the reasons were not asked for
    assert_eq!(rows(&function), [own, (0, Spent::OffCpu, 30), in_kernel]);
}

/// The ledger of the calls of at least 150 ns.
fn ledger_of(script: &str) -> Ledger<ChildKey> {
    let slow = Slow::Latency(LatencyRange { min_ns: 150, max_ns: u64::MAX });
    let groups = Groups::choose(&rows(script), slow).unwrap();
    let schedule = schedule(script);
    let mut ledger = LedgerOfCalls::new(&groups, &schedule);
    let _ = analyse_trees(script, Request::default(), &mut ledger);
    ledger.finish().0
}

/// `f` is off by 12, `g` in it by 45, the system call in that by 22; of the typical call only `f`, by 5.
const BOUNDED: &str = "
    0 start main+4
    998/1000/1001 call main+20 f
    1008/1010/1015 call f+10 g
    1012/1020/1022 syscall g+4
    1030/1050/1053 start g+6
    1060/1100/1104 ret g+20 f+15
    1190/1200/1210 ret f+40 main+25
    1995/2000/2000 call main+20 f
    2010 call f+10 g
    2060 ret g+20 f+15
    2100 ret f+40 main+25
    3000 call main+20 f
    3100 ret f+40 main+25";

#[test]
fn a_row_is_off_by_its_calls_and_by_what_is_taken_out_of_them() {
    let ledger = ledger_of(BOUNDED);
    let found = ledger.compare().unwrap();
    assert_eq!((found.sums_ns, found.errors_ns), ((200, 100), (12, 5)));
    assert_eq!(found.difference, Difference { ns: 100, error_ns: 17 });
    let text = |row: &Row| {
        let parts = [Some(row.difference), row.more_often, row.each_longer];
        let parts = parts.map(|part| part.map_or((0, 0), |part| (part.ns, part.error_ns)));
        (row.path, row.spent, row.sums_ns, row.errors_ns, parts)
    };
    let rows: Vec<_> = found.rows.iter().map(text).collect();
    let expect = [
        (0, Spent::Running, (110, 50), (57, 5), [(60, 62), (0, 0), (60, 62)]),
        (0, Spent::Kernel, (30, 0), (22, 0), [(30, 22), (30, 22), (0, 0)]),
        (1, Spent::Running, (60, 50), (67, 0), [(10, 67), (0, 0), (10, 67)]),
    ];
    assert_eq!(rows, expect);
    let levels = ledger.descend(&found.rows[1]).levels;
    let way: Vec<_> = levels.iter().map(|level| (level.path, level.sums_ns, level.errors_ns)).collect();
    assert_eq!(way, [(0, (30, 0), (22, 0)), (1, (30, 0), (22, 0)), (2, (30, 0), (22, 0))]);
}

/// The time of an inner call of `h` is in that of the outer one of its path.
#[test]
fn recursion_is_off_by_the_outermost_call() {
    let script = "
        0 start main+4
        1000 call main+20 f
        1008/1010/1010 call f+10 h
        1015/1020/1020 call h+10 h
        1030/1040/1040 call h+10 h
        1060 ret h+40 h+15
        1100/1100/1107 ret h+40 h+15
        1150/1150/1153 ret h+40 f+15
        1200 ret f+40 main+25
        2000 call main+20 f
        2100 ret f+40 main+25";
    let ledger = ledger_of(script);
    let sums = ledger.paths().iter().map(|path| path.sums(Side::These));
    let sums: Vec<_> = sums.map(|sums| (sums.count, sums.own.total(), sums.error_ns)).collect();
    assert_eq!(sums, [(1, 60, 0), (1, 60, 5), (2, 80, 12)]);
}
