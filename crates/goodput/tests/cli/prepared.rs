//! Folders that another user prepared: links, pipes and files in the place of what goodput reads and writes there.

use crate::support::{Scratch, with_own_mounts};

#[test]
fn random_bytes_come_from_the_kernel_and_not_from_a_file() {
    let Some(mounts) = with_own_mounts() else {
        return;
    };
    let scratch = Scratch::new();
    scratch.write("from/x", "x");
    scratch.write("rsh", "#!/bin/sh\nshift\nsh -c \"$*\"\n");
    let script = r#"
        set -e
        mount --bind /dev/null /dev/urandom
        $GOODPUT copy -e "sh $DIR/rsh" --far-goodput "$GOODPUT" from/ "host:$DIR/to"
        diff -r from to
    "#;
    scratch.run(scratch.script(mounts, script)).succeeds();
}
