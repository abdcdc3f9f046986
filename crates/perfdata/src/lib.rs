//! Reads and writes perf.data files with Intel PT.
