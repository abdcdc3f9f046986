//! Intel PT packets: decode, encode, PSB search.
