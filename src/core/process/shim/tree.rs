//! Finds the members of a process tree on systems that do not track it, for `macos.rs`.
//!
//! A process whose parent is gone belongs to nobody. So children must be seen while their parent lives, or be
//! found by their group, which an orphan keeps.

use std::collections::BTreeSet;
use std::ffi::c_int;

/// What the system knows about processes.
pub(super) trait Table {
    /// The children of a process.
    fn children(&self, pid: c_int) -> Vec<c_int>;
    /// The members of a group.
    fn members(&self, group: c_int) -> Vec<c_int>;
    /// The group of a process.
    fn group(&self, pid: c_int) -> Option<c_int>;
    /// Subscribes to a process's forks and end. Returns whether it still exists.
    fn follow(&self, pid: c_int) -> bool;
}

/// The known members, and their groups.
#[derive(Default)]
pub(super) struct Tree {
    members: BTreeSet<c_int>,
    groups: BTreeSet<c_int>,
}

impl Tree {
    pub(super) fn add(&mut self, pid: c_int, table: &impl Table) {
        // The process is followed before its children are listed, so that every child is either listed or
        // reported.
        if pid > 1 && !self.members.contains(&pid) && table.follow(pid) {
            self.members.insert(pid);
        }
    }

    pub(super) fn remove(&mut self, pid: c_int) {
        self.members.remove(&pid);
    }

    /// Looks for new members until there are none. `own_group` is the shim's group, which is not part of the
    /// tree.
    pub(super) fn grow(&mut self, own_group: c_int, table: &impl Table) {
        loop {
            let before = self.members.len();
            self.groups.extend(self.members.iter().filter_map(|pid| table.group(*pid)));
            self.groups.remove(&own_group);
            // A group without members is forgotten, because its number may be reused.
            self.groups.retain(|group| !table.members(*group).is_empty());
            let children = self.members.iter().flat_map(|pid| table.children(*pid));
            let grouped = self.groups.iter().flat_map(|group| table.members(*group));
            let found: Vec<_> = children.chain(grouped).collect();
            found.into_iter().for_each(|pid| self.add(pid, table));
            if self.members.len() == before {
                return;
            }
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = c_int> {
        self.members.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes as `(id, parent, group)`.
    struct Fixed(&'static [(c_int, c_int, c_int)]);

    impl Table for Fixed {
        fn children(&self, pid: c_int) -> Vec<c_int> {
            self.0.iter().filter(|(_, parent, _)| *parent == pid).map(|(pid, ..)| *pid).collect()
        }
        fn members(&self, group: c_int) -> Vec<c_int> {
            self.0.iter().filter(|(.., of)| *of == group).map(|(pid, ..)| *pid).collect()
        }
        fn group(&self, pid: c_int) -> Option<c_int> {
            self.0.iter().find(|(other, ..)| *other == pid).map(|(.., group)| *group)
        }
        fn follow(&self, pid: c_int) -> bool {
            self.group(pid).is_some()
        }
    }

    #[test]
    fn descendants_orphans_of_a_group_and_nobody_else_belong_to_the_tree() {
        const SHIM: c_int = 10;
        // A child, a grandchild in its own group, and strangers.
        const BEFORE: &[(c_int, c_int, c_int)] =
            &[(10, 1, 10), (20, 10, 20), (21, 20, 20), (22, 21, 22), (30, 1, 30), (31, 10, 10)];
        // The program and the grandchild's parent are gone, and each left a process behind.
        const AFTER: &[(c_int, c_int, c_int)] =
            &[(10, 1, 10), (22, 1, 22), (23, 22, 22), (24, 1, 20), (30, 1, 30), (31, 10, 10)];
        let members = |tree: &Tree| tree.members().collect::<Vec<_>>();

        let mut tree = Tree::default();
        tree.add(20, &Fixed(BEFORE));
        tree.add(99, &Fixed(BEFORE));
        tree.grow(SHIM, &Fixed(BEFORE));
        assert_eq!(members(&tree), [20, 21, 22]);

        tree.remove(20);
        tree.remove(21);
        tree.grow(SHIM, &Fixed(AFTER));
        assert_eq!(members(&tree), [22, 23, 24]);

        // When all members have ended, their groups mean nothing any more.
        for pid in [22, 23, 24] {
            tree.remove(pid);
        }
        tree.grow(SHIM, &Fixed(&[]));
        tree.grow(SHIM, &Fixed(AFTER));
        assert!(members(&tree).is_empty());
    }
}
