//! What processors get wrong, and which: Intel's specification updates, by the names that libipt gives the
//! errata.
//!
//! Each line of the table is what those models have; a model that is not listed is taken to follow the SDM.
//! What can be told from the packets themselves needs no switch (files need not say which CPU they are of):
//! SKD010 (FUP may be missing after OVF: the next address will do), APL11 (OVF may be followed by TIP.PGD:
//! tracing is off), SKL014 (TIP.PGD of a direct branch out of the IP filter may have no address: the filter's
//! ranges tell which branch it was), BDM70 (SKD024, SKL021, KBL021: PSB+ may have a FUP though tracing is
//! off: TIP.PGE follows) and APL12 (OVF may be followed by a FUP though tracing is off: TIP.PGE, TraceStop or
//! a PSB+ without FUP follows). SKZ84 (TMA in a virtual machine with an offset TSC) does not concern user
//! code of the host.

use model::CpuModel;

/// The errata of one processor that change how its trace is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errata {
    /// BDM64: an abort right after a branch may come with a wrong target of that branch.
    pub(crate) bdm64: bool,
    /// SKD007 (SKL049, KBL041): OVF may replace all bytes of a CYC but the first.
    pub(crate) skd007: bool,
    /// SKD022 (SKL024, KBL023): a VM entry that ends tracing may have a FUP, as if it were asynchronous.
    pub(crate) skd022: bool,
    /// SKL168: a CYC and an MTC right before a PSB may be missing.
    pub(crate) skl168: bool,
}

const NONE: Errata = Errata { bdm64: false, skd007: false, skd022: false, skl168: false };
const BROADWELL: Errata = Errata { bdm64: true, ..NONE };
const SKYLAKE: Errata = Errata { skd007: true, skd022: true, skl168: true, ..NONE };
const LATER: Errata = Errata { skd022: true, ..NONE };

/// Family, models, what they have.
const TABLE: [(u32, &[u32], Errata); 5] = [
    (6, &[0x3d, 0x47, 0x4f, 0x56], BROADWELL),
    // Skylake, Kaby Lake, Coffee Lake, Comet Lake.
    (6, &[0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6], SKYLAKE),
    // Servers from Skylake-SP on.
    (6, &[0x55, 0x6a, 0x6c, 0x8f, 0xad, 0xae, 0xcf], LATER),
    // Cannon Lake to Lunar Lake.
    (
        6,
        &[
            0x66, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, 0xa8, 0x97, 0x9a, 0xbf, 0xb7, 0xb5, 0xaa, 0xac, 0xba, 0xcc,
            0xbd, 0xc5, 0xc6,
        ],
        LATER,
    ),
    // Diamond Rapids.
    (0x13, &[0x01], LATER),
];

impl Errata {
    /// The errata of `cpu`; none if it is not known.
    pub(crate) fn of(cpu: Option<CpuModel>) -> Self {
        let has = |cpu: CpuModel| {
            let line = |(family, models, _): &&(u32, &[u32], Self)| {
                *family == cpu.family && models.contains(&cpu.model)
            };
            TABLE.iter().find(line).map(|(.., errata)| *errata)
        };
        cpu.and_then(has).unwrap_or_default()
    }
}
