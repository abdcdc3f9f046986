//! Packets and a little code in, transfers and gaps out, as text.

mod case;
mod code;
mod events;
mod owners;
mod properties;
mod trace;
mod workers;

/// A test for each file of `tests/cases`.
macro_rules! cases {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                case::check(stringify!($name));
            }
        )*

        #[test]
        fn every_case_is_listed() {
            let files = std::fs::read_dir(case::directory()).unwrap();
            let mut found: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            found.sort();
            assert_eq!(found, [$(concat!(stringify!($name), ".case")),*]);
        }
    };
}

cases! {
    block_of_items
    block_of_items_ended_by_an_overflow
    block_of_items_followed_by_another
    bytes_before_the_first_psb
    call_that_leaves_the_trace_is_not_pushed
    call_to_the_next_instruction_is_not_pushed
    calls_returns_and_jumps
    code_of_32_bits
    code_that_is_exchanged
    contradiction_lasts_until_an_address
    cpu_that_is_switched_on
    damage_is_skipped_to_the_next_psb
    deferred_tip_left_over_bits
    deferred_tip_with_compressed_returns
    deferred_tip_without_compression
    endless_loop
    endless_loop_of_calls
    erratum_apl11
    erratum_apl12
    erratum_apl12_then_psb
    erratum_bdm64
    erratum_bdm70
    erratum_skd007
    erratum_skd010
    erratum_skd010_behind_time
    erratum_skd022
    erratum_skl014_call
    erratum_skl014_jump
    erratum_skl168
    event_trace_bound_fup
    event_trace_interrupt
    event_trace_kernel
    event_trace_page_fault
    event_trace_where_tracing_is_off
    far_transfer_with_fup_behind_it
    filter_left_by_a_compressed_return
    filter_left_by_a_conditional_jump_not_taken
    filter_left_by_a_conditional_jump_taken
    filter_left_by_a_conditional_jump_whose_range_is_known
    filter_left_by_a_conditional_jump_without_address
    filter_left_by_a_direct_call
    filter_left_by_an_indirect_jump
    filter_left_by_running_on
    fup_bound_to_block_end
    fup_bound_to_exstop
    fup_bound_to_mode_tsx
    fup_bound_to_mwait
    fup_bound_to_ptwrite
    hole_in_the_stream
    hypercall_is_no_branch
    instructions_at_which_regions_begin
    instructions_of_apx
    interrupt
    interrupt_behind_a_tnt
    interrupt_flag_changes
    jumps_inside_a_function_on_request
    kernel_text_that_is_not_what_ran
    kernel_with_text_is_followed
    kernel_without_text_after_calls_were_unwound
    kernel_without_text_and_a_handlers_return
    kernel_without_text_and_a_thread_that_was_elsewhere
    kernel_without_text_and_calls_that_were_unwound
    kernel_without_text_and_other_threads_calls
    kernel_without_text_in_the_filter
    kernel_without_text_is_skipped
    kernel_without_text_keeps_each_threads_calls
    loss_on_one_cpu_after_the_other
    loss_until_the_end
    loss_until_the_thread_dies
    missing_code_and_bits_after_a_deferred_tip
    missing_code_and_bits_of_before
    missing_code_and_bits_of_either
    missing_code_at_a_psb
    missing_code_called_what_returns
    missing_code_lasts_until_code_is_reached
    missing_code_then_a_return_past_a_call
    missing_code_then_overflow
    missing_object_and_bits_of_either
    missing_object_is_left_by_what_the_trace_shows
    missing_object_then_overflow
    mode_tsx_has_no_fup_where_tracing_is_off
    overflow_in_a_later_psb_plus
    overflow_in_another_thread
    overflow_in_psb_plus
    overflow_then_an_address_of_four_bytes
    overflow_then_an_address_of_four_bytes_that_is_code_twice
    overflow_then_another
    overflow_then_another_in_psb_plus
    overflow_then_compressed_fup
    overflow_then_fup
    overflow_then_missing_code
    overflow_then_pge
    overflow_then_psb
    overflow_then_psb_then_fup
    overflow_then_psb_then_its_fup
    overflow_then_psb_where_tracing_is_off
    overflow_where_tracing_is_off
    overflow_where_tracing_is_off_then_truncated
    overflows_inside_of_other_gaps
    padding_alone
    padding_before_the_first_psb
    return_stack_cleared_at_ovf
    return_stack_cleared_at_psb
    return_stack_cleared_at_resync
    return_stack_cleared_where_tracing_ends_in_missing_code
    return_stack_is_64_deep
    return_stack_survives_pgd
    segment_after_a_switch_out_record
    sleep
    sleep_behind_the_end_of_a_segment
    switch_at_an_untraced_stretch
    switch_records_were_lost
    system_call_behind_a_tnt
    thread_on_an_untraced_cpu
    time_before_a_psb_and_an_mtc_right_after_it
    time_before_a_psb_and_no_anchor_behind_it
    time_behind_a_tnt_whose_rest_is_new
    time_between_two_anchors
    time_by_mtc
    time_first_cyc_behind_psb
    time_never_runs_backwards
    time_off_the_cpu_before_a_psb
    time_that_contradicts_itself
    time_while_tracing_is_off
    time_with_one_anchor
    time_without_cyc
    tracing_ends_before_the_first_instruction
    tracing_ends_without_address_at_a_near_branch
    transaction_aborts
    transaction_aborts_by_an_interrupt
    transaction_aborts_in_the_same_function
    transaction_commits
    trigger
    truncated_behind_the_end_of_a_segment
    truncated_in_the_turn_of_a_thread_without_trace
    truncated_in_the_turn_of_nobody
    truncated_inside_a_packet
    truncated_inside_an_opcode
    truncated_some_time_before_the_thread_left
    truncated_twice_where_tracing_is_off
    truncated_where_tracing_is_off
    two_threads_on_one_cpu
    uprobes_after_missing_code
    uprobes_of_entries_and_returns
    uprobes_of_unknown_callers
    virtual_machine
    virtual_machine_at_a_psb
    vmcs_and_mnt
    vsyscall
    what_ran_before_a_psb_is_seen_once
}
