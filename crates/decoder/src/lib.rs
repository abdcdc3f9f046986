//! Intel PT packets and code bytes to branches, in parallel.
