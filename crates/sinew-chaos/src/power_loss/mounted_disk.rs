//! Mounts a forgetful disk with FUSE.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::WriteRefusal;
use super::forgetful_disk::{DiskError, ForgetfulDisk, Inode, ROOT};
use crate::Fallible;

/// Cache time of the kernel: none, so that it does not return lost data after a cut.
const KEPT: Duration = Duration::ZERO;
/// `O_SYNC` and `O_DSYNC` on Linux, whose writes are stored when they return.
const SYNCED_WRITES: i32 = 0o4_010_000;
/// Reported blocks of 4 KiB: 64 GiB.
const BLOCKS: u64 = 16 << 20;

/// A mounted disk, unmounted on drop.
#[derive(Debug)]
pub(crate) struct MountedDisk {
    disk: Arc<Mutex<ForgetfulDisk>>,
    refusal: Arc<Refusal>,
    _session: BackgroundSession,
}

impl MountedDisk {
    /// Mounts an empty disk at a folder.
    pub(crate) fn mount(folder: &Path) -> Fallible<Self> {
        std::fs::create_dir_all(folder)?;
        let disk = Arc::new(Mutex::new(ForgetfulDisk::new()));
        let mut config = Config::default();
        config.mount_options.push(MountOption::FSName("sinew-chaos".to_owned()));
        let refusal = Arc::<Refusal>::default();
        let server =
            DiskServer { disk: Arc::clone(&disk), modes: Mutex::default(), refusal: Arc::clone(&refusal) };
        let session = fuser::spawn_mount(server, folder, &config)
            .map_err(|error| format!("power cuts need /dev/fuse and the right to mount: {error}"))?;
        Ok(Self { disk, refusal, _session: session })
    }

    /// Loses unsynced writes. No process may have an open file.
    pub(crate) fn cut_power(&self, seed: u64) {
        lock(&self.disk).cut(seed);
    }

    /// Syncs all writes.
    pub(crate) fn keep_all(&self) {
        lock(&self.disk).sync_all();
    }

    /// Refuses all changes for this reason, or accepts them again if it is `None`.
    pub(crate) fn refuse_writes(&self, reason: Option<WriteRefusal>) {
        *lock(&self.refusal.reason) = reason;
    }

    /// Returns the number of refused changes so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refusal.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of changes that cuts lost so far, in whole or in part.
    pub(crate) fn forgotten(&self) -> u64 {
        lock(&self.disk).forgotten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<DiskError> for Errno {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Missing => Self::ENOENT,
            DiskError::Exists => Self::EEXIST,
            DiskError::NotEmpty => Self::ENOTEMPTY,
            DiskError::NotFolder => Self::ENOTDIR,
        }
    }
}

/// Current refusal of changes, and the number of refused ones.
#[derive(Debug, Default)]
struct Refusal {
    reason: Mutex<Option<WriteRefusal>>,
    refused: AtomicU64,
}

impl Refusal {
    /// Returns the error for a change, if it is refused. A full disk accepts changes that free space.
    fn error(&self, makes_room: bool) -> Option<Errno> {
        let error = match *lock(&self.reason) {
            Some(WriteRefusal::Full) if !makes_room => Errno::ENOSPC,
            Some(WriteRefusal::ReadOnly) => Errno::EROFS,
            _ => return None,
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(error)
    }
}

/// Serves requests of the kernel from the disk.
#[derive(Debug)]
struct DiskServer {
    disk: Arc<Mutex<ForgetfulDisk>>,
    /// Permissions of files, which survive a cut.
    modes: Mutex<HashMap<Inode, u16>>,
    refusal: Arc<Refusal>,
}

impl DiskServer {
    fn attributes(&self, disk: &ForgetfulDisk, node: Inode) -> Result<FileAttr, DiskError> {
        let is_folder = disk.is_folder(node);
        let size = if is_folder { 0 } else { disk.file(node)?.len() as u64 };
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino: INodeNo(node),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
            perm: lock(&self.modes).get(&node).copied().unwrap_or(if is_folder { 0o755 } else { 0o644 }),
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4_096,
            flags: 0,
        })
    }

    /// Replies with the attributes of the result of a name change.
    fn entry(&self, reply: ReplyEntry, change: impl FnOnce(&mut ForgetfulDisk) -> Result<Inode, DiskError>) {
        let mut disk = lock(&self.disk);
        match change(&mut disk).and_then(|node| self.attributes(&disk, node)) {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn done(&self, reply: ReplyEmpty, change: impl FnOnce(&mut ForgetfulDisk) -> Result<(), DiskError>) {
        match change(&mut lock(&self.disk)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }
}

/// Converts an offset or size of the kernel.
fn place(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0o644)
}

impl Filesystem for DiskServer {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, |disk| disk.lookup(parent.0, name));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(&lock(&self.disk), node.0) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(error) = size.and_then(|_| self.refusal.error(size == Some(0))) {
            return reply.error(error);
        }
        if let Some(mode) = mode {
            lock(&self.modes).insert(node.0, permissions(mode));
        }
        let mut disk = lock(&self.disk);
        let resized = size.map_or(Ok(()), |size| disk.file_mut(node.0).map(|file| file.resize(place(size))));
        match resized.and_then(|()| self.attributes(&disk, node.0)) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        if let Some(error) = self.refusal.error(false) {
            return reply.error(error);
        }
        self.entry(reply, |disk| disk.create_folder(parent.0, name));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if let Some(error) = self.refusal.error(true) {
            return reply.error(error);
        }
        self.done(reply, |disk| disk.unlink(parent.0, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if let Some(error) = self.refusal.error(true) {
            return reply.error(error);
        }
        self.done(reply, |disk| disk.unlink(parent.0, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if let Some(error) = self.refusal.error(false) {
            return reply.error(error);
        }
        self.done(reply, |disk| disk.rename((parent.0, name), (new_parent.0, new_name)));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        if let Some(error) = self.refusal.error(false) {
            return reply.error(error);
        }
        let mut disk = lock(&self.disk);
        let created = disk.create_file(parent.0, name).inspect(|node| {
            lock(&self.modes).insert(*node, permissions(mode));
        });
        match created.and_then(|node| self.attributes(&disk, node)) {
            Ok(attributes) => {
                let flags = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&KEPT, &attributes, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match lock(&self.disk).file(node.0) {
            Ok(file) => reply.data(file.read(place(offset), size as usize)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some(error) = self.refusal.error(false) {
            return reply.error(error);
        }
        let mut disk = lock(&self.disk);
        match disk.file_mut(node.0) {
            Ok(file) => file.write(place(offset), data),
            Err(error) => return reply.error(error.into()),
        }
        if flags.0 & SYNCED_WRITES != 0 {
            disk.sync(node.0);
        }
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        lock(&self.disk).sync(node.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        lock(&self.disk).sync(node.0);
        reply.ok();
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let disk = lock(&self.disk);
        let names = match disk.names(node.0) {
            Ok(names) => names,
            Err(error) => return reply.error(error.into()),
        };
        let own = [(OsStr::new("."), node.0), (OsStr::new(".."), ROOT)];
        let entries = own.into_iter().chain(names.iter().map(|(name, node)| (name.as_os_str(), *node)));
        for (nth, (name, node)) in entries.enumerate().skip(place(offset)) {
            let kind = if disk.is_folder(node) { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(node), nth as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS, 4_096, 255, 4_096);
    }
}
