//! The bytes of a file, as programs see them and as stored on the disk.

use rand::Rng;

/// Bytes of an atomic write of a disk.
const SECTOR: usize = 512;

/// An unsynced change.
#[derive(Clone, Debug)]
enum DiskChange {
    Write { offset: usize, data: Vec<u8> },
    Resize(usize),
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskFile {
    seen: Vec<u8>,
    held: Vec<u8>,
    pending: Vec<DiskChange>,
}

impl DiskFile {
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Returns at most `size` bytes from an offset.
    pub(super) fn read(&self, offset: usize, size: usize) -> &[u8] {
        let from = offset.min(self.seen.len());
        &self.seen[from..from.saturating_add(size).min(self.seen.len())]
    }

    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        write_at(&mut self.seen, offset, data);
        self.pending.push(DiskChange::Write { offset, data: data.to_vec() });
    }

    pub(super) fn resize(&mut self, size: usize) {
        self.seen.resize(size, 0);
        self.pending.push(DiskChange::Resize(size));
    }

    /// Stores all changes on the disk.
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                DiskChange::Write { offset, data } => write_at(&mut self.held, offset, &data),
                DiskChange::Resize(size) => self.held.resize(size, 0),
            }
        }
    }

    /// Loses power. Any unsynced sectors, in any order, and any change of size may be stored. Returns
    /// the number of changes that are lost in whole or in part.
    pub(super) fn cut(&mut self, random: &mut impl Rng) -> u64 {
        // From a cache that stored nothing to one that stored everything.
        let kept = f64::from(random.random_range(0..=4_u8)) / 4.0;
        let mut forgotten = 0;
        for change in std::mem::take(&mut self.pending) {
            let mut is_whole = true;
            match change {
                DiskChange::Write { offset, data } => {
                    let mut from = 0;
                    while from < data.len() {
                        let end = (from + SECTOR - (offset + from) % SECTOR).min(data.len());
                        if random.random_bool(kept) {
                            write_at(&mut self.held, offset + from, &data[from..end]);
                        } else {
                            is_whole = false;
                        }
                        from = end;
                    }
                }
                DiskChange::Resize(size) => {
                    if random.random_bool(kept) {
                        self.held.resize(size, 0);
                    } else {
                        is_whole = false;
                    }
                }
            }
            forgotten += u64::from(!is_whole);
        }
        self.seen.clone_from(&self.held);
        forgotten
    }
}

fn write_at(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn synced_bytes_stay_and_others_may_go() {
        let mut forgotten = 0;
        for seed in 0..50 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut file = DiskFile::default();
            file.write(0, &[1; 2_000]);
            file.sync();
            file.write(2_000, &[2; 2_000]);
            forgotten += file.cut(&mut random);
            assert_eq!(file.read(0, 2_000), [1; 2_000], "seed {seed}");
            let rest = file.read(2_000, 2_000);
            assert!(rest.iter().all(|byte| [0, 2].contains(byte)), "seed {seed}");
            assert_eq!(file.cut(&mut random), 0, "a second cut finds nothing to forget");
        }
        assert!((20..50).contains(&forgotten), "{forgotten} of 50 were forgotten");
    }

    #[test]
    fn a_write_over_synced_bytes_can_be_torn_at_sectors_only() {
        for seed in 0..50 {
            let mut file = DiskFile::default();
            file.write(0, &[1; 4 * SECTOR]);
            file.sync();
            file.write(100, &[2; 3 * SECTOR]);
            file.cut(&mut StdRng::seed_from_u64(seed));
            let seen = file.read(0, 4 * SECTOR);
            for sector in seen[SECTOR..3 * SECTOR].chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_short_is_short() {
        let mut file = DiskFile::default();
        file.write(0, b"hello world");
        file.resize(5);
        assert_eq!(file.read(0, 100), b"hello");
        file.sync();
        file.cut(&mut StdRng::seed_from_u64(1));
        assert_eq!((file.len(), file.read(3, 100)), (5, b"lo".as_slice()));
        assert_eq!(file.read(9, 1), b"");
    }
}
