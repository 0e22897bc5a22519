//! A run folder whose page is drawn by [`crate::render`].

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

pub use run::folder::*;
use sys::folder::Folder;

use crate::html::render;
use crate::model::{FindingRecord, Run};

/// A [`run::RunFolder`] with the report as its page.
#[derive(Debug)]
pub struct RunFolder(run::RunFolder);

impl RunFolder {
    /// As [`run::RunFolder::create`].
    pub fn create(parent: &Path, verb: &str, name: &str, run: Run) -> Result<Self, FolderError> {
        run::RunFolder::create(parent, verb, name, run).map(Self)
    }

    /// Writes everything, the report included: see [`run::RunFolder::finish`].
    pub fn finish(&mut self, run: &Run, findings: &[FindingRecord]) -> Result<(), FolderError> {
        self.0.finish(run, findings, &render)
    }

    /// Writes everything while the run goes on and returns the report's file: see
    /// [`run::RunFolder::draw`].
    pub fn draw(&mut self, run: &Run, findings: &[FindingRecord]) -> Result<PathBuf, FolderError> {
        self.0.draw(run, findings, &render)
    }

    /// As [`run::RunFolder::discard`].
    pub fn discard(self) {
        self.0.discard();
    }

    /// As [`run::RunFolder::load`].
    pub fn load(path: &Path) -> Result<LoadedRun, FolderError> {
        run::RunFolder::load(path)
    }

    /// As [`run::RunFolder::load_with_folder`].
    pub fn load_with_folder(path: &Path) -> Result<(Folder, LoadedRun), FolderError> {
        run::RunFolder::load_with_folder(path)
    }
}

impl Deref for RunFolder {
    type Target = run::RunFolder;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for RunFolder {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
