//! Work that is shared out over the CPUs: what one `perf_event_open` waits for, another CPU can do meanwhile.

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::thread;

/// How many threads share a piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workers(usize);

impl Workers {
    /// One for each CPU that this process may use.  To be asked once: the answer is read from a dozen files.
    pub(crate) fn here() -> Self {
        Self(thread::available_parallelism().map_or(1, usize::from))
    }

    /// The number of workers, but no more than `most`, and one at least.
    pub(crate) fn at_most(self, most: usize) -> usize {
        self.0.min(most).max(1)
    }

    /// Does what cannot fail for all items.
    pub(crate) fn all<T: Send>(self, items: &mut [T], work: impl Fn(&mut T) + Sync) {
        let Ok(()) = self.each(items, |item| {
            work(item);
            Ok::<(), Infallible>(())
        });
    }

    /// Does it for all items.  A share of them is the caller's own, so that one worker needs no thread.
    ///
    /// # Errors
    /// One of those that there were; after an error the rest of a share is left out.
    pub(crate) fn each<T: Send, E: Send>(
        self,
        items: &mut [T],
        work: impl Fn(&mut T) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let share = items.len().div_ceil(self.0.max(1)).max(1);
        let (own, others) = items.split_at_mut(share.min(items.len()));
        let part = |items: &mut [T]| items.iter_mut().try_for_each(&work);
        thread::scope(|scope| {
            let running: Vec<_> = others.chunks_mut(share).map(|items| scope.spawn(|| part(items))).collect();
            let done = part(own);
            let joined = running.into_iter().map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e)));
            joined.fold(done, Result::and)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_has_its_turn_once() {
        for workers in [1, 2, 3, 8] {
            for count in 0..9 {
                let mut items: Vec<u32> = (0..count).collect();
                let done = Workers(workers).each(&mut items, |item| {
                    *item += 100;
                    Ok::<(), ()>(())
                });
                assert_eq!(done, Ok(()));
                assert_eq!(items, (100..100 + count).collect::<Vec<_>>(), "{workers} workers");
            }
        }
    }

    #[test]
    fn an_error_of_any_share_is_told() {
        for wrong in 0..5 {
            let mut items = [0, 1, 2, 3, 4];
            let done = Workers(3).each(&mut items, |item| if *item == wrong { Err(*item) } else { Ok(()) });
            assert_eq!(done, Err(wrong));
        }
    }

    #[test]
    fn there_is_always_one() {
        assert_eq!((Workers(8).at_most(4), Workers(2).at_most(4), Workers(2).at_most(0)), (4, 2, 1));
    }
}
