//! TCP memory-to-memory measurement between a client and a serve process, with tcp_info from both ends.
