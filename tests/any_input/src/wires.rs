//! Any bytes as what kernels and eBPF programs write, and as text of `/proc`.

/// They are records, or none.
pub fn wires(bytes: &[u8]) {
    bpf::read_as_records(bytes);
    recorder::read_as_records(bytes);
}
