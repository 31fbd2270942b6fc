//! Tests of `Context`: it works with runners of the first version of the interface.

use std::ffi::c_void;
use std::mem::size_of;
use std::ptr::null;

use super::*;

/// A host from before tokens, followed by unrelated memory.
#[repr(C)]
struct Before {
    size: usize,
    context: *const c_void,
    log: usize,
    stopping: usize,
    retain: usize,
    release: usize,
    rubbish: usize,
}

fn setup(host: *const TidegateHost) -> TidegateSetup {
    let text = TidegateBytes::of(b"it");
    TidegateSetup {
        size: size_of::<TidegateSetup>(),
        host,
        pipeline: text,
        step: text,
        config: text,
        bindings: null(),
        binding_count: 0,
        timeout_ms: 0,
    }
}

const JOB: Job<'_> = Job { index: 1, payload: b"{}", attempt: 1, now_ms: 0, hash: (7 << 64) | 9, piece: 0 };

#[test]
fn a_runner_from_before_there_were_tokens_has_none() {
    let before = Before {
        size: size_of::<Before>() - size_of::<usize>(),
        context: null(),
        log: 0,
        stopping: 0,
        retain: 0,
        release: 0,
        rubbish: usize::MAX,
    };
    assert_eq!(before.size, offset_of!(TidegateHost, token));
    let setup = setup((&raw const before).cast());
    // SAFETY: the host outlives the context, and no more of it is read than its size includes.
    let context = unsafe { Context::new(&raw const setup) };
    assert_eq!(context.token(&JOB), None);
    assert!(!context.clone().stopping());
    context.info("no listener");
    assert_eq!(before.rubbish, usize::MAX);
}

unsafe extern "C" fn give(_: *const c_void, high: u64, low: u64, token: *mut u8) -> i32 {
    let made = format!("{high:016x}{low:016x}");
    // SAFETY: `token` has space for a token.
    unsafe { token.copy_from(made.as_ptr(), TIDEGATE_TOKEN_LEN) };
    TIDEGATE_OK
}

unsafe extern "C" fn refuse(_: *const c_void, _: u64, _: u64, _: *mut u8) -> i32 {
    TIDEGATE_OK + 1
}

#[test]
fn a_runner_tells_the_token_of_the_job_or_that_there_is_none() {
    let tokens = [Some(give as unsafe extern "C" fn(_, _, _, _) -> _), Some(refuse), None].map(|token| {
        let host = TidegateHost {
            size: size_of::<TidegateHost>() + 8,
            context: null(),
            log: None,
            stopping: None,
            retain: None,
            release: None,
            token,
        };
        let setup = setup(&raw const host);
        // SAFETY: the host outlives the context.
        unsafe { Context::new(&raw const setup) }.token(&JOB)
    });
    assert_eq!(tokens, [Some("00000000000000070000000000000009".to_owned()), None, None]);
}
