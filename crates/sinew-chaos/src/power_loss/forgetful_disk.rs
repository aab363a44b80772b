//! The file tree of a disk that loses power.
//!
//! Name changes are ordered, as in a journaling file system: a sync of any file stores all earlier name
//! changes, and a power cut keeps a prefix of the later ones.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::disk_file::DiskFile;

/// Number of a file or folder.
pub(super) type Inode = u64;
/// The root folder.
pub(super) const ROOT: Inode = 1;

/// Refusal of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiskError {
    Missing,
    Exists,
    NotEmpty,
    NotFolder,
}

type Folders = HashMap<Inode, BTreeMap<OsString, Inode>>;

/// A name change.
#[derive(Clone, Debug)]
enum NameChange {
    Folder { parent: Inode, name: OsString, folder: Inode },
    Link { parent: Inode, name: OsString, node: Inode },
    Unlink { parent: Inode, name: OsString },
}

/// The disk.
#[derive(Debug)]
pub(super) struct ForgetfulDisk {
    files: HashMap<Inode, DiskFile>,
    seen: Folders,
    held: Folders,
    pending: Vec<NameChange>,
    next: Inode,
    forgotten: u64,
}

impl ForgetfulDisk {
    pub(super) fn new() -> Self {
        let root = Folders::from([(ROOT, BTreeMap::new())]);
        Self {
            files: HashMap::new(),
            seen: root.clone(),
            held: root,
            pending: Vec::new(),
            next: ROOT + 1,
            forgotten: 0,
        }
    }

    /// Returns the number of changes that power cuts lost, in whole or in part.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    pub(super) fn file(&self, node: Inode) -> Result<&DiskFile, DiskError> {
        self.files.get(&node).ok_or(DiskError::Missing)
    }

    pub(super) fn file_mut(&mut self, node: Inode) -> Result<&mut DiskFile, DiskError> {
        self.files.get_mut(&node).ok_or(DiskError::Missing)
    }

    pub(super) fn is_folder(&self, node: Inode) -> bool {
        self.seen.contains_key(&node)
    }

    pub(super) fn lookup(&self, parent: Inode, name: &OsStr) -> Result<Inode, DiskError> {
        self.names(parent)?.get(name).copied().ok_or(DiskError::Missing)
    }

    /// Returns the names in a folder.
    pub(super) fn names(&self, folder: Inode) -> Result<&BTreeMap<OsString, Inode>, DiskError> {
        self.seen.get(&folder).ok_or(DiskError::NotFolder)
    }

    pub(super) fn create_file(&mut self, parent: Inode, name: &OsStr) -> Result<Inode, DiskError> {
        self.check_free(parent, name)?;
        let node = self.take_number();
        self.files.insert(node, DiskFile::default());
        self.change(NameChange::Link { parent, name: name.to_owned(), node });
        Ok(node)
    }

    pub(super) fn create_folder(&mut self, parent: Inode, name: &OsStr) -> Result<Inode, DiskError> {
        self.check_free(parent, name)?;
        let folder = self.take_number();
        self.change(NameChange::Folder { parent, name: name.to_owned(), folder });
        Ok(folder)
    }

    /// Removes a name of a file, or of an empty folder.
    pub(super) fn unlink(&mut self, parent: Inode, name: &OsStr) -> Result<(), DiskError> {
        let node = self.lookup(parent, name)?;
        if self.seen.get(&node).is_some_and(|names| !names.is_empty()) {
            return Err(DiskError::NotEmpty);
        }
        self.change(NameChange::Unlink { parent, name: name.to_owned() });
        Ok(())
    }

    /// Renames a file or folder; replaces an existing one.
    pub(super) fn rename(&mut self, from: (Inode, &OsStr), to: (Inode, &OsStr)) -> Result<(), DiskError> {
        let node = self.lookup(from.0, from.1)?;
        if let Ok(there) = self.lookup(to.0, to.1)
            && self.seen.get(&there).is_some_and(|names| !names.is_empty())
        {
            return Err(DiskError::NotEmpty);
        }
        self.names(to.0)?;
        // A cut between both leaves two names, which is harmless: the old one is still valid.
        self.change(NameChange::Link { parent: to.0, name: to.1.to_owned(), node });
        self.change(NameChange::Unlink { parent: from.0, name: from.1.to_owned() });
        Ok(())
    }

    /// Stores a file, and all name changes.
    pub(super) fn sync(&mut self, node: Inode) {
        if let Some(file) = self.files.get_mut(&node) {
            file.sync();
        }
        for change in self.pending.drain(..) {
            apply(&mut self.held, &change);
        }
    }

    /// Stores all changes.
    pub(super) fn sync_all(&mut self) {
        self.files.values_mut().for_each(DiskFile::sync);
        for change in self.pending.drain(..) {
            apply(&mut self.held, &change);
        }
    }

    /// Loses power, and returns to the stored state.
    pub(super) fn cut(&mut self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let kept = random.random_range(0..=self.pending.len());
        self.forgotten += (self.pending.len() - kept) as u64;
        for change in self.pending.drain(..).take(kept) {
            apply(&mut self.held, &change);
        }
        self.seen.clone_from(&self.held);
        // In inode order, so that the cut depends only on the seed.
        let mut nodes: Vec<Inode> = self.files.keys().copied().collect();
        nodes.sort_unstable();
        let named: Vec<Inode> = self.seen.values().flat_map(BTreeMap::values).copied().collect();
        for node in nodes {
            if !named.contains(&node) {
                self.files.remove(&node);
            } else if let Some(file) = self.files.get_mut(&node) {
                self.forgotten += file.cut(&mut random);
            }
        }
    }

    fn check_free(&self, parent: Inode, name: &OsStr) -> Result<(), DiskError> {
        if self.names(parent)?.contains_key(name) { Err(DiskError::Exists) } else { Ok(()) }
    }

    fn take_number(&mut self) -> Inode {
        self.next += 1;
        self.next - 1
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.seen, &change);
        self.pending.push(change);
    }
}

fn apply(folders: &mut Folders, change: &NameChange) {
    match change {
        NameChange::Folder { parent, name, folder } => {
            folders.entry(*folder).or_default();
            folders.entry(*parent).or_default().insert(name.clone(), *folder);
        }
        NameChange::Link { parent, name, node } => {
            folders.entry(*parent).or_default().insert(name.clone(), *node);
        }
        NameChange::Unlink { parent, name } => {
            if let Some(names) = folders.get_mut(parent) {
                names.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn synced_names_stay_and_others_go_from_the_end() {
        let mut kept = [0; 4];
        for seed in 0..100 {
            let mut disk = ForgetfulDisk::new();
            let folder = disk.create_folder(ROOT, name("a")).unwrap();
            let first = disk.create_file(folder, name("1")).unwrap();
            disk.sync(first);
            disk.create_file(folder, name("2")).unwrap();
            disk.rename((folder, name("1")), (folder, name("3"))).unwrap();
            disk.cut(seed);
            let there: Vec<bool> = ["1", "2", "3"].map(|one| disk.lookup(folder, name(one)).is_ok()).to_vec();
            match there.as_slice() {
                [true, false, false] => kept[0] += 1,
                [true, true, false] => kept[1] += 1,
                [true, true, true] => kept[2] += 1,
                [false, true, true] => kept[3] += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(kept.iter().all(|count| *count > 5), "each happens: {kept:?}");
    }

    #[test]
    fn a_replaced_file_is_the_old_one_or_the_new_one() {
        for seed in 0..50 {
            let mut disk = ForgetfulDisk::new();
            for (file, byte) in [("state", 1), ("state.tmp", 2)] {
                let node = disk.create_file(ROOT, name(file)).unwrap();
                disk.file_mut(node).unwrap().write(0, &[byte; 10]);
                disk.sync(node);
            }
            disk.rename((ROOT, name("state.tmp")), (ROOT, name("state"))).unwrap();
            disk.cut(seed);
            let node = disk.lookup(ROOT, name("state")).unwrap();
            let bytes = disk.file(node).unwrap().read(0, 100);
            assert!(bytes == [1; 10] || bytes == [2; 10], "seed {seed}: {bytes:?}");
        }
    }

    #[test]
    fn wrong_changes_are_refused() {
        let mut disk = ForgetfulDisk::new();
        let folder = disk.create_folder(ROOT, name("a")).unwrap();
        let file = disk.create_file(folder, name("f")).unwrap();
        assert_eq!(disk.create_file(folder, name("f")), Err(DiskError::Exists));
        assert_eq!(disk.unlink(ROOT, name("a")), Err(DiskError::NotEmpty));
        assert_eq!(disk.unlink(ROOT, name("b")), Err(DiskError::Missing));
        assert_eq!(disk.lookup(file, name("x")), Err(DiskError::NotFolder));
        assert_eq!(disk.rename((folder, name("f")), (file, name("g"))), Err(DiskError::NotFolder));
        disk.unlink(folder, name("f")).unwrap();
        disk.unlink(ROOT, name("a")).unwrap();
        assert!(disk.names(ROOT).unwrap().is_empty());
    }
}
