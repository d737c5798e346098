//! The faces in use: that of the whole file, and those of the parts that some clients see instead.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::catalog::Kind;
use crate::core::reply::Reply;
use crate::core::view::View;
use crate::core::workspace::Workspace;
use crate::face::{Face, Part, Viewer};

/// The faces in use. The first is for clients that may see everything; another is made when a client arrives
/// that may see only a part, or that asks for a single toolbox. The place of a face never changes, because
/// workspaces refer to their face by it.
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

    /// The face of a workspace.
    pub(super) fn of(&self, workspace: &Workspace) -> Arc<dyn Face> {
        self.at(workspace.face())
    }

    /// The group that must be opened before the clients of this workspace can ask for anything.
    pub(super) fn opens_first(&self, workspace: &Workspace) -> Option<String> {
        let face = self.of(workspace);
        let group = face.opens_first()?;
        workspace.read(|view| !view.is_open(group)).then(|| group.to_owned())
    }

    /// Answers with an error of our own, in the shape of the client's face, where the request was not a tool call.
    pub(super) fn refuse(&self, reply: Reply, code: i64, message: &str) {
        let refusal = self.of(&reply.session().workspace).refusal(code, message);
        reply.refuse(refusal);
    }

    /// Appends all items of a kind that a client is shown, separated by commas.
    pub(super) fn write_list(
        &self,
        workspace: &Workspace,
        view: &View,
        viewer: &Viewer<'_>,
        kind: Kind,
        out: &mut Vec<u8>,
    ) {
        let face = self.of(workspace);
        let [first, last] = match kind {
            Kind::Tool => face.own_tools(view, viewer),
            _ => Default::default(),
        };
        out.extend_from_slice(first.as_bytes());
        let exposure = workspace.exposure();
        let listed = match viewer.modern {
            true => exposure.lists_to_modern(),
            false => exposure.lists(viewer.client, kind),
        };
        if listed {
            view.write_list(&*exposure, kind, viewer.look(), first.is_empty(), out);
        }
        if !last.is_empty() {
            out.push(b',');
            out.extend_from_slice(last.as_bytes());
        }
    }

    /// The part of the file that a workspace sees.
    pub(super) fn part_of(&self, workspace: &Workspace) -> Part {
        self.0.read()[workspace.face()].0.clone()
    }

    /// The place of a part's face; `None` if the file has no such part.
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
