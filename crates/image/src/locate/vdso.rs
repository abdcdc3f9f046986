//! The vDSO: code of the kernel that every process has mapped, and that is no file.
//!
//! perf keeps a copy in its build-id cache, by its name or by its build id. The kernel that runs here has
//! one, too, which is that of the recording if it has the recording's build id.

use std::path::PathBuf;

use files::Place;
use model::BuildId;

use crate::contents::Contents;
use crate::elf::Elf;
use crate::error::{Assumption, ObjectError};
use crate::locate::build_id_dirs::{self, Part};
use crate::locate::located::{Located, open, open_first, same_build_id};
use crate::locate::object_key::{ObjectKey, VDSO};
use crate::options::{HostVdso, ImageOptions};

pub(crate) fn locate(key: &ObjectKey, options: &ImageOptions) -> Result<Located, ObjectError> {
    let by_id =
        key.build_id.as_ref().and_then(|id| open_first(places(id, options).into_iter().map(Place::here), id));
    // A directory that the user gives may have it without a build id.
    let named = options.symfs.as_ref().filter(|_| key.build_id.is_none()).and_then(|root| {
        let place = Place::here(root.join(VDSO).join("vdso"));
        let contents = open(&place, None).ok().flatten()?;
        Some(Located { place, contents, assumption: None })
    });
    let host = || options.host_vdso.as_ref().and_then(|host| of_host(host, key.build_id.as_ref()));
    by_id.or(named).or_else(host).ok_or_else(|| ObjectError::NoVdso { recording: key.build_id.clone() })
}

/// `DIR/[vdso]/BUILDID/vdso`, then by build id as any object.
fn places(id: &BuildId, options: &ImageOptions) -> Vec<PathBuf> {
    let roots = options.symfs.iter().chain(&options.build_id_cache);
    let by_name = roots.map(|root| root.join(VDSO).join(id.to_string()).join("vdso"));
    by_name.chain(build_id_dirs::places(id, Part::Code, options)).collect()
}

fn of_host(host: &HostVdso, recording: Option<&BuildId>) -> Option<Located> {
    let own = Elf::parse(&host.bytes).ok()?.build_id();
    let assumption = match recording {
        Some(id) if own.as_ref().is_some_and(|own| same_build_id(own, id)) => None,
        Some(_) => return None,
        None if host.same_kernel_release => Some(
            "the recording has no build id of [vdso]: it is taken to be that of the kernel running here, which is of \
             the same release"
                .to_owned(),
        ),
        None => return None,
    };
    Some(Located {
        place: Place::here(VDSO),
        contents: Contents::Owned(host.bytes.clone().into()),
        assumption: assumption.map(Assumption::uncertain),
    })
}
