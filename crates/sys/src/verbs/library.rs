//! libibverbs, loaded when it is first wanted: no program of ours depends on it.
//!
//! It stays loaded until the process ends, as its drivers start threads of their own.
//!
//! Sources: dlopen(3), dlsym(3), ibv_get_device_list(3) and the pages that it leads to.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::abi::{AhAttr, Context, Cq, Mr, PortAttr, Qp, QpAttr, QpInitAttr};

type Device = c_void;
type Pd = c_void;
type Ah = c_void;

macro_rules! functions {
    ($($name:ident: $kind:ty,)*) => {
        /// Its functions, by their names without `ibv_`.
        #[derive(Debug)]
        pub(super) struct Library {
            $(pub(super) $name: $kind,)*
        }

        impl Library {
            fn link(handle: *mut c_void) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let name = concat!("ibv_", stringify!($name), "\0");
                        let found = symbol(handle, name)?;
                        // SAFETY: the symbol's version IBVERBS_1.1, which is its default one, has had
                        // this signature since it exists; a pointer to a function is one to an object
                        // on every system with dlsym.
                        unsafe { std::mem::transmute::<*mut c_void, $kind>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut Device,
    free_device_list: unsafe extern "C" fn(*mut *mut Device),
    get_device_name: unsafe extern "C" fn(*mut Device) -> *const c_char,
    open_device: unsafe extern "C" fn(*mut Device) -> *mut Context,
    close_device: unsafe extern "C" fn(*mut Context) -> c_int,
    query_port: unsafe extern "C" fn(*mut Context, u8, *mut PortAttr) -> c_int,
    alloc_pd: unsafe extern "C" fn(*mut Context) -> *mut Pd,
    dealloc_pd: unsafe extern "C" fn(*mut Pd) -> c_int,
    reg_mr: unsafe extern "C" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr,
    dereg_mr: unsafe extern "C" fn(*mut Mr) -> c_int,
    create_cq: unsafe extern "C" fn(*mut Context, c_int, *mut c_void, *mut c_void, c_int) -> *mut Cq,
    destroy_cq: unsafe extern "C" fn(*mut Cq) -> c_int,
    create_qp: unsafe extern "C" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp,
    modify_qp: unsafe extern "C" fn(*mut Qp, *mut QpAttr, c_int) -> c_int,
    destroy_qp: unsafe extern "C" fn(*mut Qp) -> c_int,
    create_ah: unsafe extern "C" fn(*mut Pd, *mut AhAttr) -> *mut Ah,
    destroy_ah: unsafe extern "C" fn(*mut Ah) -> c_int,
    wc_status_str: unsafe extern "C" fn(c_uint) -> *const c_char,
}

/// The library, or why it cannot be had.
pub(super) fn library() -> Result<&'static Library, &'static str> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| Library::link(open(NAME)?));
    loaded.as_ref().map_err(String::as_str)
}

fn open(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name ends with a zero byte. The library's constructors are as trusted as those of
    // any library that the loader would have taken from the same place.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    match handle.is_null() {
        true => Err(trouble()),
        false => Ok(handle),
    }
}

fn symbol(handle: *mut c_void, name: &str) -> Result<*mut c_void, String> {
    // SAFETY: the handle is dlopen's and never closed; the name ends with a zero byte.
    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
    match found.is_null() {
        true => Err(trouble()),
        false => Ok(found),
    }
}

/// What the loader complains of.
fn trouble() -> String {
    // SAFETY: dlerror returns null or a text that is this thread's until its next call.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the loader does not say why".to_owned())
}

const NAME: &CStr = c"libibverbs.so.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_by_the_loader() {
        let error = open(c"libgoodput-has-no-such-library.so.1").unwrap_err();
        assert!(error.contains("libgoodput-has-no-such-library"), "{error}");
        // The C library is there and has no verbs.
        let error = Library::link(open(c"libc.so.6").unwrap()).unwrap_err();
        assert!(error.contains("ibv_get_device_list"), "{error}");
    }
}
