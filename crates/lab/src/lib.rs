//! Pseudo long fat networks out of network namespaces, run in real time by the link machines.
