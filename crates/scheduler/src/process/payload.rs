//! What a message carries: any `T: Send + 'static` behind one static table.
//!
//! Up to 24 bytes lie inline, larger values are boxed once. Moving a payload moves 32 bytes and runs
//! no user code; taking out another type than was put in gives the payload back.

use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

/// Words that lie inline.
pub(crate) const INLINE_WORDS: usize = 3;

/// What is known of a payload's type: one static per type, so a payload needs one pointer for it.
pub(crate) struct PayloadTable {
    pub(crate) type_id: TypeId,
    pub(crate) type_name: fn() -> &'static str,
    /// Drops the value in place, or the box whose pointer lies in place. `None`: nothing to drop.
    pub(crate) drop: Option<unsafe fn(*mut u64)>,
    pub(crate) size: usize,
}

pub(crate) struct TableOf<T>(std::marker::PhantomData<T>);

impl<T: Send + 'static> TableOf<T> {
    pub(crate) const INLINE: bool =
        size_of::<T>() <= INLINE_WORDS * 8 && align_of::<T>() <= align_of::<u64>();
    /// Also fits the short message cell.
    pub(crate) const SHORT: bool = size_of::<T>() <= 16 && align_of::<T>() <= align_of::<u64>();

    pub(crate) const TABLE: &'static PayloadTable = &PayloadTable {
        type_id: TypeId::of::<T>(),
        type_name: std::any::type_name::<T>,
        drop: if !Self::INLINE {
            Some(Self::drop_boxed)
        } else if std::mem::needs_drop::<T>() {
            Some(Self::drop_inline)
        } else {
            None
        },
        size: size_of::<T>(),
    };

    unsafe fn drop_inline(data: *mut u64) {
        // SAFETY: the caller owns a `T` that lies inline at `data` and does not use it again.
        unsafe { data.cast::<T>().drop_in_place() }
    }

    unsafe fn drop_boxed(data: *mut u64) {
        // SAFETY: the caller owns the box whose pointer `write` stored at `data`.
        drop(unsafe { Box::from_raw(data.cast::<*mut T>().read()) });
    }

    /// Puts `value` at `data`, which has room for it: 24 bytes, or 16 when `SHORT`.
    ///
    /// # Safety
    /// `data` is valid for writes of that many bytes and aligned for `u64`.
    #[inline(always)]
    pub(crate) unsafe fn write(data: *mut u64, value: T) {
        // SAFETY: as the caller promises; the constant says which of the two forms fits.
        unsafe {
            if Self::INLINE {
                data.cast::<T>().write(value);
            } else {
                data.cast::<*mut T>().write(Box::into_raw(Box::new(value)));
            }
        }
    }

    /// Takes the value that [`Self::write`] put at `data`.
    ///
    /// # Safety
    /// `write` put a `T` there and nobody took it since.
    #[inline(always)]
    pub(crate) unsafe fn read(data: *const u64) -> T {
        // SAFETY: as the caller promises.
        unsafe {
            if Self::INLINE { data.cast::<T>().read() } else { *Box::from_raw(data.cast::<*mut T>().read()) }
        }
    }
}

impl PayloadTable {
    #[inline]
    pub(crate) fn is<T: Send + 'static>(&'static self) -> bool {
        // The same table is the common case; the compiler may emit a table twice, so ask the id too.
        std::ptr::eq(self, TableOf::<T>::TABLE) || self.type_id == TypeId::of::<T>()
    }
}

/// One value of any type that may be sent: 32 bytes, the first 24 of content inline.
pub struct Payload {
    pub(crate) table: &'static PayloadTable,
    pub(crate) data: [MaybeUninit<u64>; INLINE_WORDS],
    /// Not `Sync`: a `T` that may be sent need not be one that may be shared, and `get` lends it.
    not_sync: PhantomData<Cell<()>>,
}

/// Fails to compile if `Payload` becomes `Sync`.
const _: fn() = || {
    trait Ambiguous<Marker> {
        fn touch() {}
    }
    struct OnlySync;
    impl<T: ?Sized> Ambiguous<()> for T {}
    impl<T: ?Sized + Sync> Ambiguous<OnlySync> for T {}
    <Payload as Ambiguous<_>>::touch();
};

// SAFETY: `Payload::new` takes only `T: Send`, and the payload owns the value.
unsafe impl Send for Payload {}

/// Bytes that are shared, never copied, when the payload is cloned or sent on.
pub type SharedBytes = Arc<[u8]>;

impl Payload {
    /// Wraps a value. Up to 24 bytes (aligned to at most 8) lie inline; a larger one costs one box.
    #[inline]
    pub fn new<T: Send + 'static>(value: T) -> Self {
        let mut data = [MaybeUninit::<u64>::uninit(); INLINE_WORDS];
        // SAFETY: `data` has 24 bytes, aligned for u64.
        unsafe { TableOf::<T>::write(data.as_mut_ptr().cast(), value) };
        Self::from_parts(TableOf::<T>::TABLE, data)
    }

    /// A payload of what lies in a cell. The caller owns that value and forgets its own copy.
    #[inline(always)]
    pub(crate) fn from_parts(table: &'static PayloadTable, data: [MaybeUninit<u64>; INLINE_WORDS]) -> Self {
        Self { table, data, not_sync: PhantomData }
    }

    /// The payload that says nothing: `()`.
    #[must_use]
    #[inline]
    pub fn empty() -> Self {
        Self::new(())
    }

    /// Bytes; sending them on shares them.
    #[must_use]
    pub fn bytes(bytes: impl Into<SharedBytes>) -> Self {
        Self::new::<SharedBytes>(bytes.into())
    }

    /// Several payloads as one.
    #[must_use]
    pub fn list(items: Vec<Payload>) -> Self {
        Self::new(items)
    }

    /// Is it a `T`?
    #[must_use]
    #[inline]
    pub fn is<T: Send + 'static>(&self) -> bool {
        self.table.is::<T>()
    }

    /// Takes the value out.
    ///
    /// # Errors
    /// The payload itself, unchanged, when it holds another type.
    #[inline]
    pub fn take<T: Send + 'static>(self) -> Result<T, Payload> {
        if !self.is::<T>() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the table says that `new` put a `T` there; `this` is not dropped.
        Ok(unsafe { TableOf::<T>::read(this.data.as_ptr().cast()) })
    }

    /// Looks at the value, if it is a `T`.
    #[must_use]
    pub fn get<T: Send + 'static>(&self) -> Option<&T> {
        if !self.is::<T>() {
            return None;
        }
        let data = self.data.as_ptr().cast::<u64>();
        // SAFETY: the table says that a `T` lies inline at `data`, or a pointer to a boxed one.
        Some(unsafe { if TableOf::<T>::INLINE { &*data.cast::<T>() } else { &**data.cast::<*const T>() } })
    }

    /// The name of the type within, for messages to people.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        (self.table.type_name)()
    }

    /// Size of the value's own bytes, boxed or not; what it points to is not counted.
    #[must_use]
    pub fn size(&self) -> usize {
        self.table.size
    }

    /// What it counts for in a budget of bytes: the length of bytes and texts, the sum of a list, else
    /// [`Self::size`].
    #[must_use]
    pub fn weight(&self) -> usize {
        if let Some(bytes) = self.get::<SharedBytes>() {
            bytes.len()
        } else if let Some(bytes) = self.get::<Vec<u8>>() {
            bytes.len()
        } else if let Some(text) = self.get::<String>() {
            text.len()
        } else if let Some(list) = self.get::<Vec<Payload>>() {
            list.iter().map(Self::weight).sum()
        } else {
            self.size()
        }
    }
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        if let Some(drop) = self.table.drop {
            // SAFETY: the payload owns the value and this is its end.
            unsafe { drop(self.data.as_mut_ptr().cast()) }
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.type_name())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_value_comes_out_as_it_went_in() {
        assert_eq!(Payload::new(7_u32).take::<u32>().unwrap(), 7);
        assert_eq!(Payload::new([1_u64; 3]).take::<[u64; 3]>().unwrap(), [1; 3]);
        assert_eq!(Payload::new([2_u64; 9]).take::<[u64; 9]>().unwrap(), [2; 9]);
        let text = Payload::new(String::from("long enough for the heap, and then some"));
        assert_eq!(text.get::<String>().map(String::len), Some(39));
        assert_eq!(text.take::<String>().unwrap().len(), 39);
        #[repr(align(32))]
        #[derive(Debug, PartialEq)]
        struct Wide(u8);
        assert_eq!(Payload::new(Wide(3)).take::<Wide>().unwrap(), Wide(3));
    }

    #[test]
    fn the_wrong_type_gives_the_payload_back() {
        let back = Payload::new(7_u32).take::<u64>().unwrap_err();
        assert_eq!(back.type_name(), "u32");
        assert_eq!(back.take::<u32>().unwrap(), 7);
    }

    #[test]
    fn every_value_is_dropped_once() {
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        struct Counted([u64; 1]);
        struct CountedBig([u64; 8]);
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPS.fetch_add(self.0.len(), Ordering::Relaxed);
            }
        }
        impl Drop for CountedBig {
            fn drop(&mut self) {
                DROPS.fetch_add(self.0.len(), Ordering::Relaxed);
            }
        }
        drop(Payload::new(Counted([0])));
        drop(Payload::new(CountedBig([0; 8])));
        drop(Payload::new(Counted([0])).take::<Counted>());
        drop(Payload::new(CountedBig([0; 8])).take::<CountedBig>());
        drop(Payload::list(vec![Payload::new(Counted([0])), Payload::new(CountedBig([0; 8]))]));
        assert_eq!(DROPS.load(Ordering::Relaxed), 27);
    }

    #[test]
    fn sizes_are_what_the_cells_are_cut_for() {
        assert_eq!(size_of::<Payload>(), 32);
        const { assert!(TableOf::<[u64; 2]>::SHORT && !TableOf::<[u64; 3]>::SHORT) };
        const { assert!(TableOf::<[u64; 3]>::INLINE && !TableOf::<[u64; 4]>::INLINE) };
    }
}
