//! What was mapped where and when: code bytes, functions, lines.
