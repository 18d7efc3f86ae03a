//! What is larger than a thread's stack.

use std::sync::mpsc::channel;

use evener_scheduler::{Scheduler, StartError};

use crate::support::{in_a_program_of_its_own, recv};

const LARGE: usize = 3 << 20;

/// A program whose stack overflows ends: so it is one of its own.
#[test]
fn a_closure_larger_than_a_stack_runs() {
    in_a_program_of_its_own("stack::runs_a_large_closure");
}

#[test]
#[ignore = "run by a_closure_larger_than_a_stack_runs"]
fn runs_a_large_closure() {
    // The thread that makes it needs room for it, several times over.
    let maker = std::thread::Builder::new().stack_size(32 * LARGE).spawn(|| {
        // Nobody stands in for the worker that is held.
        let s = Scheduler::builder().workers(1).spares(0).start().unwrap();
        let (tell, told) = channel();
        for panics in [false, true] {
            let large = [1_u8; LARGE];
            let tell = tell.clone();
            s.spawn_once(move |_| {
                tell.send(large.iter().map(|byte| usize::from(*byte)).sum::<usize>()).unwrap();
                assert!(!panics, "on purpose");
            })
            .unwrap();
            assert_eq!(recv(&told), LARGE);
        }
        // One that never runs is dropped where it lies.
        let (large, tell) = ([2_u8; LARGE], tell);
        let (hold, held) = channel::<()>();
        s.spawn_once(move |_| {
            let _ = held.recv_timeout(crate::support::LIMIT);
        })
        .unwrap();
        let pid = s.spawn_once(move |_| tell.send(usize::from(large[7])).unwrap()).unwrap();
        s.kill(pid, "test").unwrap();
        drop(hold);
        assert!(told.recv().is_err(), "killed before its only turn");
    });
    maker.expect("there is room for the stack").join().expect("it went well");
}

/// A message is moved by value where it is sent and where it is taken: it must fit, and with a larger stack it does.
#[test]
fn a_host_may_have_larger_stacks() {
    let maker = std::thread::Builder::new().stack_size(32 * LARGE).spawn(|| {
        let s = Scheduler::builder().workers(1).stack_size(32 * LARGE).start().unwrap();
        let (tell, told) = channel();
        let actor = s
            .spawn_fn(0_usize, move |sum, large: [u8; LARGE], _| {
                *sum += large.iter().map(|byte| usize::from(*byte)).sum::<usize>();
                tell.send(*sum).unwrap();
            })
            .unwrap();
        for times in 1..=3 {
            actor.tell([1; LARGE]).unwrap();
            assert_eq!(recv(&told), times * LARGE);
        }
    });
    maker.expect("there is room for the stack").join().expect("it went well");
}

#[test]
fn an_absurd_stack_is_refused() {
    for bytes in [0, 1000, usize::MAX] {
        let started = Scheduler::builder().stack_size(bytes).start();
        assert!(matches!(started, Err(StartError::Setting { setting: "stack_size", .. })), "{started:?}");
    }
}
