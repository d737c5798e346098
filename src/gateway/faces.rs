//! The faces at work: the whole of the file, and the parts of it that some clients see instead.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::core::workspace::Workspace;
use crate::face::{Face, Part};

/// The faces at work. The first is for those who may see everything, the others are made when somebody comes who may see
/// a part, or asks for one toolbox alone. Their places never change: workspaces know their face by it.
pub(super) struct Faces(RwLock<Vec<(Part, Arc<dyn Face>)>>);

impl Faces {
    pub(super) fn new(whole: Arc<dyn Face>) -> Self {
        Self(RwLock::new(vec![(Part::default(), whole)]))
    }

    /// The face of the whole file.
    pub(super) fn whole(&self) -> Arc<dyn Face> {
        self.at(0)
    }

    /// The face at this place.
    pub(super) fn at(&self, place: usize) -> Arc<dyn Face> {
        self.0.read()[place].1.clone()
    }

    /// The face that is seen in a workspace.
    pub(super) fn of(&self, workspace: &Workspace) -> Arc<dyn Face> {
        self.at(workspace.face())
    }

    /// The part of the file that is seen in a workspace.
    pub(super) fn part_of(&self, workspace: &Workspace) -> Part {
        self.0.read()[workspace.face()].0.clone()
    }

    /// The place of the face of a part; `None` if the file has no such part.
    pub(super) fn place_of(&self, part: &Part) -> Option<usize> {
        let mut faces = self.0.write();
        let is_there =
            |toolbox: &String| part.admits(toolbox) && faces[0].1.groups().contains(&toolbox.as_str());
        if !part.toolbox.as_ref().is_none_or(is_there) {
            return None;
        }
        if let Some(found) = faces.iter().position(|(other, _)| other == part) {
            return Some(found);
        }
        let face = faces[0].1.part(part)?;
        faces.push((part.clone(), face));
        Some(faces.len() - 1)
    }

    /// Puts the face of a new file, and its parts, in the place of the old ones.
    pub(super) fn replace(&self, whole: &Arc<dyn Face>) {
        let mut faces = self.0.write();
        for (part, at_work) in faces.iter_mut().skip(1) {
            if let Some(now) = whole.part(part).or_else(|| at_work.emptied()) {
                *at_work = now;
            }
        }
        faces[0].1 = whole.clone();
    }
}
