//! Every chore of this repository.
fn main() {}
