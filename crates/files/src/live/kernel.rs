//! What the kernel is told: what it has in its caches is not right any more.

use super::OpenFiles;
use crate::catalogue::NodeId;

impl OpenFiles {
    /// Tells the kernel to read a node's attributes again.
    pub(crate) fn tell_kernel(&self, node: NodeId) {
        if let Some(n) = self.notifier.get() {
            // If the kernel does not know the node, nothing is to be done.
            let _ = n.inval_inode(fuser::INodeNo(node + 1), -1, 0);
        }
    }
    /// Tells the kernel to drop the cached contents of a file. This call waits for reads and writes of the file that the kernel has begun,
    /// and they may be waiting for an answer of this thread. So another thread makes the call.
    pub(crate) fn tell_kernel_of_data(&self, node: NodeId) {
        if let Some(n) = self.notifier.get().cloned() {
            let tell = move || {
                let _ = n.inval_inode(fuser::INodeNo(node + 1), 0, 0);
            };
            // If no thread can be started, the kernel drops them at the next open.
            let _ = std::thread::Builder::new().spawn(tell);
        }
    }
    /// Tells the kernel about a new name that it may have cached as absent. The kernel locks the directory while it waits for an answer of
    /// this thread, so another thread makes the call.
    pub(crate) fn tell_kernel_of_name(&self, dir: NodeId, name: &[u8]) {
        use std::os::unix::ffi::OsStringExt;
        if let Some(n) = self.notifier.get().cloned() {
            let name = std::ffi::OsString::from_vec(name.to_vec());
            let tell = move || {
                let _ = n.inval_entry(fuser::INodeNo(dir + 1), &name);
            };
            // If no thread can be started, the kernel notices when its cache expires after an hour.
            let _ = std::thread::Builder::new().spawn(tell);
        }
    }
}
