//! Every call that the analyzer finds is one of the oracle's, and the other way round: status, caller,
//! off-CPU time and depth are the same, and the latency is as far off as the row says or less.

use analyzer::Report;
use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::calls::Oracle;
use tracegen::truth::verify::KernelText;
use truth_tests::child_rows::child_differences;
use truth_tests::rows::{Compare, differences};
use truth_tests::{Fixture, Kernel, Opened, check_all, is_full_run, pipeline};

pub(crate) const DEMO: &[&str] = &[
    "round_fn", "leaf", "fib", "tail3", "ind_tail", "catcher", "thrower", "on_sig", "on_usr2", "worker",
    "main", "outer_fn", "mid", "deep", "tail1", "tail2", "sw", "cmp",
];

/// The functions of `fixtures/programs/calls.cpp`.
pub(crate) const CALLS: &[&str] = &[
    "main",
    "simple_fn",
    "leaf_fn",
    "fact_rec",
    "is_even",
    "is_odd",
    "ping",
    "pong",
    "tail_a",
    "tail_b",
    "tail_c",
    "tail_ptr",
    "split_fn",
    "cold_helper",
    "throw_rec",
    "guard_fn",
    "catch_outer",
    "rec_catch",
    "throw_other",
    "split_catch",
    "jmp_rec",
    "jmp_catch",
    "jmp_levels",
    "sig_target",
    "on_alarm",
    "on_usr1",
    "sig_jump",
    "on_usr2",
    "cmp_fn",
    "sort_fn",
    "area_square",
    "area_circle",
    "area_rounded",
    "virtual_sum",
    "job_fn",
    "pool_wait",
    "sleep_fn",
    "round_cc",
    "sleeper",
    "last_call",
];

const SQLITE: &[&str] = &[
    "main",
    "sqlite3_step",
    "sqlite3VdbeExec",
    "sqlite3BtreeInsert",
    "sqlite3BtreeTableMoveto",
    "balance",
    "vdbeRecordCompareString",
    "sqlite3RunParser",
    "unixWrite",
    "sqlite3_free",
    "sqlite3_exec",
    "sqlite3VdbeHalt",
    "balance_nonroot",
    "sqlite3VdbeSorterWrite",
    "getPageNormal",
    "sqlite3Malloc",
    "sqlite3GetToken",
    "sqlite3_str_vappendf",
];

/// What an interpreter lives on: objects, exceptions, imports; a lock goes from thread to thread.
const PYTHON: &[&str] = &[
    "PyObject_Vectorcall",
    "PyObject_GetAttr",
    "PyDict_SetItem",
    "PyList_Append",
    "PyObject_RichCompare",
    "PyEval_RestoreThread",
    "PyImport_ImportModuleLevelObject",
    "libc.so.6:malloc",
    "_Py_Dealloc",
    "PyObject_GetIter",
    "PyErr_NormalizeException",
];

/// A stripped program has no names but those of its libraries.
const XZ: &[&str] = &[
    "lzma_code",
    "lzma_vli_size",
    "lzma_block_header_size",
    "lzma_properties_encode",
    "lzma_stream_encoder_mt",
    "libc.so.6:malloc",
    "libc.so.6:free",
    "libc.so.6:pthread_create",
    "libc.so.6:pthread_mutex_lock",
];

const CC1: &[&str] = &[
    "_Z16execute_one_passP8opt_pass",
    "_Z18reg_class_subset_pii",
    "_Z5recogP7rtx_defP8rtx_insnPi",
    "_Z8rtx_costP7rtx_def12machine_mode8rtx_codeib",
    "_Z18estimate_num_insnsP6gimpleP11eni_weights",
    "_ZN6toplev4mainEiPPc",
    "htab_hash_string",
    "xmalloc",
    "libc.so.6:free",
    "libc.so.6:qsort",
    "_Z13integer_zeropPK9tree_node",
];

/// From a statement down to the storage engine, and the pool of threads beside it.
const MARIADB: &[&str] = &[
    "_Z11mysql_parseP3THDPcjP12Parser_state",
    "_Z21mysql_execute_commandP3THDb",
    "_ZN7handler12ha_write_rowEPKh",
    "_ZN7handler11ha_rnd_nextEPh",
    "_ZN21Regexp_processor_pcre4execEPKcmm",
    "_ZN5tpool19thread_pool_generic11worker_mainEPNS_11worker_dataE",
    "_ZN5tpool19thread_pool_generic8get_taskEPNS_11worker_dataEPPNS_4taskE",
    "_ZN5tpool4task7executeEv",
    "my_malloc",
    "libc.so.6:pthread_mutex_lock",
    "alloc_root",
    "my_crc32c",
    "_ZN7handler13ha_index_nextEPh",
    "_Z8MYSQLlexP7YYSTYPEP3THD",
];

/// How many functions of large recordings are checked, unless it is a full run.
const FEW: usize = 10;

/// The functions that are checked in a recording. `calls` has many recordings and many functions: each
/// recording has every second one, from the first or the second on.
fn chosen<'a>(fixture: &Fixture, names: &[&'a str]) -> Vec<&'a str> {
    let names = names.iter().copied();
    match &*fixture.log {
        _ if is_full_run() => names.collect(),
        "calls" => names.skip(fixture.name.len() % 2).step_by(2).collect(),
        "sq1" => names.collect(),
        _ => names.take(FEW).collect(),
    }
}

fn check(fixture: &Fixture, names: &[&str]) -> bool {
    let names = &chosen(fixture, names);
    let truth = File::load(&fixture.truth).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    fixture.kernels_without_holes().iter().fold(true, |good, kernel| {
        let opened = Opened::with_kernel(&file, kernel).unwrap();
        check_opened(fixture, names, &truth, &opened) && good
    })
}

/// The made-up kernel's functions (`crates/tracegen/src/kernel/text.rs`).
const KERNEL: &[&str] = &[
    "entry_SYSCALL_64",
    "do_syscall_64",
    "__x64_sys_work",
    "__x64_sys_wait",
    "syscall_exit_to_user_mode",
    "ret_from_fork_asm",
    "asm_sysvec_apic_timer_interrupt",
    "asm_exc_nmi",
    "error_return",
    "handle_interrupt",
    "irqentry_exit",
    "perf_event_nmi_handler",
    "schedule",
    "__schedule",
    "finish_task_switch",
    "__perf_event_task_sched_out",
    "__perf_event_task_sched_in",
    "pt_event_stop",
    "pt_event_start",
    "work_0",
    "work_5",
    "work_12",
    "work_13",
    "work_20",
    "work_22",
    "work_23",
];

/// Calls of kernel functions, in recordings that have all of its code as it ran.
fn check_kernel(fixture: &Fixture) -> bool {
    let truth = File::load(&fixture.truth).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    let Some(dir) = fixture.kernel_dir().filter(|_| !fixture.options.contains("--kernel-filter")) else {
        return true;
    };
    let is_there = |kernel: &Kernel| kernel.text == KernelText::There;
    // `kcore` and every second function, unless it is a full run.
    let (kernels, step) = if is_full_run() { (usize::MAX, 1) } else { (1, 2) };
    let names: Vec<&str> = KERNEL.iter().copied().step_by(step).collect();
    fixture.kernels().iter().filter(|kernel| is_there(kernel)).take(kernels).fold(true, |good, kernel| {
        let opened = Opened::with_kernel(&file, kernel).unwrap();
        let start = opened.kernel_start().unwrap();
        let oracle = Oracle::new(&truth, &fixture.data).unwrap();
        let oracle = oracle.with_kernel(&dir.join("vmlinux"), start).unwrap();
        check_against(fixture, &names, &opened, oracle) && good
    })
}

fn check_opened(fixture: &Fixture, names: &[&str], truth: &File, opened: &Opened<'_>) -> bool {
    let oracle = Oracle::new(truth, &fixture.data).unwrap().with_scheduler(opened.scheduler());
    check_against(fixture, names, opened, oracle)
}

/// Widens all errors of latencies by as much as the generated core's frequency may differ from what a late
/// CBR packet says.
fn doubt_frequency(report: &mut Report) {
    let may_differ_ns = |ns: u64| ns / 4;
    for function in &mut report.functions {
        for row in &mut function.rows {
            row.error_ns += may_differ_ns(row.latency_ns);
        }
        for child in &mut function.figures.children {
            child.error_ns = child.error_ns.saturating_add(may_differ_ns(child.total.sum_ns));
        }
    }
}

fn check_against(fixture: &Fixture, names: &[&str], opened: &Opened<'_>, mut oracle: Oracle<'_>) -> bool {
    let ids: Vec<_> = names.iter().map(|name| opened.function(name).unwrap()).collect();
    let mut report = opened.analyse(&ids, &DecodeOptions { workers: 2, ..DecodeOptions::default() });
    if fixture.has_late_cbr() {
        doubt_frequency(&mut report);
    }
    let compare = if fixture.is_lossy() { Compare::Entered } else { Compare::All };
    let mut good = true;
    let (mut rows, mut undecided) = (0, 0);
    for (function, calls) in report.functions.iter().zip(&oracle.calls_of_each(names).unwrap()) {
        let mut text = differences(opened, function, calls, compare);
        if compare == Compare::All {
            text += &child_differences(opened, function, calls, compare);
        }
        if !text.is_empty() {
            println!("{}: {text}", fixture.name);
            good = false;
        }
        rows += calls.rows.len();
        undecided += function.rows.iter().filter(|row| row.end.undecided).count();
    }
    println!(
        "{}: {rows} rows of {} functions, {undecided} undecided by the report",
        fixture.name,
        names.len()
    );
    good
}

#[test]
fn kernel_functions() {
    check_all("demo", check_kernel);
    check_all("calls", check_kernel);
}

#[test]
fn demo() {
    check_all("demo", |f| check(f, DEMO));
}

#[test]
fn calls() {
    check_all("calls", |f| check(f, CALLS));
}

#[test]
fn sqlite_small() {
    check_all("sq1", |f| check(f, SQLITE));
}

#[test]
fn sqlite() {
    check_all("sq50", |f| check(f, SQLITE));
}

#[test]
fn python() {
    check_all("python", |f| check(f, PYTHON));
}

#[test]
fn xz() {
    check_all("xz", |f| check(f, XZ));
}

#[test]
fn cc1() {
    check_all("cc1", |f| check(f, CC1));
}

#[test]
fn mariadb() {
    check_all("mariadb", |f| check(f, MARIADB));
}
