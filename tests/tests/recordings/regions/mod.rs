//! Regions of code: what their reports say, against the functions around them and what the program counted.

mod marks;
mod of_functions;

use analyzer::{CallRow, FunctionReport, Report, Status};
use decoder::DecodeOptions;
use image::Query;
use model::{FunctionId, Tid};
use truth_tests::{Fixture, Opened, check_all, pipeline};

const SOURCE: &str = include_str!("../../../../fixtures/programs/regions.c");

/// The line of the source that has this comment.
fn line(comment: &str) -> String {
    format!("regions.c:{}", 1 + SOURCE.lines().position(|line| line.contains(comment)).unwrap())
}

/// Opens a recording with regions of these names and places.
fn open<'a>(file: &'a perfdata::File, regions: &[(&str, &str, &str)]) -> Opened<'a> {
    let mut opened = Opened::new(file).unwrap();
    let marks = |opened: &Opened<'_>, text: &str| {
        let query = Query { text: text.to_owned(), ..Query::default() };
        opened.image.find_marks(&query).unwrap().at
    };
    for (name, start, end) in regions {
        let (starts, ends) = (marks(&opened, start), marks(&opened, end));
        opened.image.add_region(name, starts, ends);
    }
    opened
}

/// The report on functions and all regions, which no number of workers changes.
fn report(opened: &Opened<'_>, functions: &[&str]) -> Report {
    let functions = functions.iter().map(|name| opened.function(name).unwrap());
    let all: Vec<FunctionId> = functions.chain(opened.image.regions()).collect();
    // Small segments, so that there are many. Not compared with large ones: a segment begins without the
    // core's frequency that the one before it had measured, which may make a bound wider by a nanosecond.
    let [one, three] = [1, 3].map(|workers| {
        opened.analyse(&all, &DecodeOptions { workers, segment_bytes: 1 << 12, ..DecodeOptions::default() })
    });
    assert_eq!(one.functions, three.functions, "one worker, and three");
    one
}

/// How often each thread did what the program counts, those with the most first.
fn counted(fixture: &Fixture, what: &str) -> Vec<u64> {
    let output = std::fs::read_to_string(&fixture.output).unwrap();
    let number = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != what);
        words.nth(1)?.parse().ok()
    };
    output.lines().map(|line| number(line).unwrap()).collect()
}

fn by_thread(of: &FunctionReport, is_it: impl Fn(&CallRow) -> bool) -> Vec<u64> {
    let mut tids: Vec<Tid> = of.rows.iter().map(|row| row.id.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    let count = |tid: &Tid| of.rows.iter().filter(|row| row.id.tid == *tid && is_it(row)).count() as u64;
    let mut counts: Vec<u64> = tids.iter().map(count).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

fn end(row: &CallRow) -> u64 {
    row.start_ns.0 + row.latency_ns
}

/// The query whose region begins where `parse` returns to, in the middle of its function.
#[test]
fn between_two_usdt_probes() {
    check_all("regions", |fixture| {
        let file = pipeline::open(&fixture.data).unwrap();
        let region = ("answer", "usdt:db:query__start", "usdt:db:query__done");
        let opened = open(&file, &[region]);
        let is_filtered = fixture.name.contains("filter");
        let around: &[&str] = if is_filtered { &["query"] } else { &["query", "parse", "send_result"] };
        let report = report(&opened, around);
        let (query, answer) = (&report.functions[0], report.functions.last().unwrap());

        let unfinished = counted(fixture, "unfinished");
        let queries = counted(fixture, "queries");
        assert_eq!(by_thread(answer, |row| row.end.status == Status::Unwound), unfinished);
        assert_eq!(by_thread(answer, |_| true), queries);
        assert_eq!(answer.calls.complete + answer.calls.unwound, queries.iter().sum::<u64>());
        let steps: u64 = answer
            .figures
            .children
            .iter()
            .filter(|child| child.kind == analyzer::ChildKind::Call)
            .map(|child| child.total.count)
            .sum();
        assert_eq!(steps, counted(fixture, "steps").iter().sum::<u64>());

        // Each lies in its query; one that was left first ends with it.
        for (answer, query) in answer.rows.iter().zip(&query.rows) {
            assert_eq!(answer.id.tid, query.id.tid);
            assert!(query.start_ns <= answer.start_ns && end(answer) <= end(query), "{answer:?} {query:?}");
            if answer.end.status == Status::Unwound {
                assert_eq!(end(answer), end(query), "{answer:?}");
            }
        }
        if !is_filtered {
            // `parse` returns to the first probe, and `send_result` is entered soon after the second one.
            let starts: Vec<u64> = answer.rows.iter().map(|row| row.start_ns.0).collect();
            assert_eq!(starts, report.functions[1].rows.iter().map(end).collect::<Vec<_>>());
            let complete = answer.rows.iter().filter(|row| row.end.status == Status::Complete);
            for (answer, sent) in complete.zip(&report.functions[2].rows) {
                assert!(
                    answer.id.tid == sent.id.tid && end(answer) <= sent.start_ns.0,
                    "{answer:?} {sent:?}"
                );
            }
        }
        true
    });
}

#[test]
fn from_line_to_line() {
    check_all("regions", |fixture| {
        if fixture.name.contains("filter") {
            return true; // the lines are not in it
        }
        let file = pipeline::open(&fixture.data).unwrap();
        let region = ("lines", &*line("LINE: start"), &*line("LINE: end"));
        let report = report(&open(&file, &[region]), &["between_lines*"]);
        let [function, lines] = &report.functions[..] else { panic!("{:?}", report.functions) };
        assert_eq!(by_thread(lines, |row| row.end.status == Status::Complete), counted(fixture, "rounds"));
        for (lines, function) in lines.rows.iter().zip(&function.rows) {
            assert_eq!(lines.id.tid, function.id.tid);
            assert!(function.start_ns <= lines.start_ns && end(lines) <= end(function), "{lines:?}");
        }
        true
    });
}

/// Where begin and end are one probe, one period ends where the next begins.
#[test]
fn from_a_probe_to_itself() {
    check_all("regions", |fixture| {
        if fixture.name.contains("filter") {
            return true;
        }
        let file = pipeline::open(&fixture.data).unwrap();
        let report = report(&open(&file, &[("round", "usdt:db:round", "usdt:db:round")]), &[]);
        let round = &report.functions[0];
        let rounds = counted(fixture, "rounds");
        let complete: Vec<u64> = rounds.iter().map(|rounds| rounds - 1).collect();
        assert_eq!(by_thread(round, |row| row.end.status == Status::Complete), complete);
        assert_eq!(by_thread(round, |row| row.end.status == Status::Unwound), [1, 1]);
        let mut rows: Vec<&CallRow> = round.rows.iter().collect();
        rows.sort_by_key(|row| row.id);
        for (row, next) in rows.iter().zip(&rows[1..]).filter(|(row, next)| row.id.tid == next.id.tid) {
            assert_eq!(end(row), next.start_ns.0, "{row:?}");
        }
        true
    });
}

/// Each kind of place that is not there is an error that says what there is.
#[test]
fn places_that_are_not_there() {
    let Some(fixture) = truth_tests::fixture("regions") else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let error = |text: &str| {
        let query = Query { text: text.to_owned(), ..Query::default() };
        opened.image.find_marks(&query).unwrap_err().to_string()
    };
    assert_eq!(
        error("usdt:db:none"),
        "no object has a USDT probe db:none: there are db:query__done, db:query__start, db:round"
    );
    let said = error("none.c:3");
    assert!(said.starts_with("no statement begins on line 3 of none.c: no object has line"), "{said}");
    let said = error("regions.c:2");
    assert!(said.starts_with("no statement begins on line 2 of regions.c: the nearest"), "{said}");
    assert!(error("query+0x1000").starts_with("query has "), "{}", error("query+0x1000"));
    assert_eq!(error("0x12345678901"), "there is no code at 0x12345678901");
    assert_eq!(error("no_such_function"), "no function is called 'no_such_function'");
}
