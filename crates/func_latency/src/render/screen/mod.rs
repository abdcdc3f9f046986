//! The full-screen view of `watch`: what is shown, and how it is drawn. It knows no terminal and no watch.
//!
//! ```text
//! figures   what one interval has, with names
//! state     the intervals so far, the keys -> what is shown now, and what the watch is to do
//! draw      state -> cells of the screen      heat   latencies over time, and the histogram beside them
//! ```

mod draw;
pub mod figures;
mod heat;
pub mod state;

pub use draw::draw;
