//! Branches to calls, histograms, children, callers.
