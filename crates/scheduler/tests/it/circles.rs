//! Circles of askers: only who is still waited for closes one.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use evener_scheduler::{
    Actor, AskError, Context, Event, Events, Handle, LocalPid, Payload, Pid, Reply, Scheduler, SpawnOptions,
    StepOutput, Tag, YieldError,
};

use crate::support::{LIMIT, process, recv, scheduler};

/// What the asked one does with a request before it asks the asker back.
#[derive(Clone, Copy)]
enum First {
    Answers,
    Drops,
    /// Keeps the request, and answers another one meanwhile.
    Keeps,
}

/// `B` is asked by `A`, does that, asks `A` back, and tells how that went.
fn asks_back(scheduler: &Scheduler, first: First) -> Receiver<Result<&'static str, YieldError>> {
    let (tell, told) = channel();
    let mut kept = Vec::new();
    let b = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        for event in events {
            match event {
                Event::Message(mut message) => {
                    let Some(a) = message.payload().get::<Pid>().copied() else {
                        // The other request, answered when the one from A comes.
                        kept.push(message);
                        continue;
                    };
                    match first {
                        First::Answers => assert!(message.reply(Payload::new("answer"))),
                        First::Drops => drop(message),
                        First::Keeps => {
                            assert!(kept.pop().expect("it came first").reply(Payload::new("other")));
                            kept.push(message);
                        }
                    }
                    out.ask(Tag(5), a, "back", Some(LIMIT));
                }
                Event::YieldComplete { result, .. } => {
                    let result = result.map(|payload| payload.take::<&'static str>().expect("a text"));
                    tell.send(result).unwrap();
                }
                _ => {}
            }
        }
        Ok(())
    });
    let b = scheduler.spawn(b, SpawnOptions::new()).unwrap();
    let mut begins = true;
    let a = process(move |events: &mut Events<'_>, out: &mut StepOutput<'_>| {
        if std::mem::take(&mut begins) {
            out.ask(Tag(1), b, "the other request", None);
            let me = out.self_pid();
            out.ask(Tag(2), b, me, None);
        }
        for event in events {
            if let Event::Message(mut message) = event {
                message.reply(Payload::new("pong"));
            }
        }
        Ok(())
    });
    scheduler.spawn(a, SpawnOptions::new()).unwrap();
    told
}

#[test]
fn who_has_been_answered_may_be_asked_back() {
    for first in [First::Answers, First::Drops] {
        let scheduler = scheduler(1);
        assert_eq!(recv(&asks_back(&scheduler, first)).unwrap(), "pong");
    }
}

#[test]
fn who_still_waits_may_not_be_asked_though_somebody_else_was_answered() {
    let scheduler = scheduler(1);
    let error = recv(&asks_back(&scheduler, First::Keeps)).unwrap_err();
    assert!(matches!(&error, YieldError::Cycle(chain) if chain.len() == 3), "{error}");
}

enum Ask {
    /// From outside: ask the other one.
    Begin(Handle<Ask>),
    /// Answer, before or after asking the one who asks.
    Ping(Handle<Ask>, Reply<&'static str>, bool),
    Plain(Reply<&'static str>),
}

struct Typed {
    tell: std::sync::mpsc::Sender<Result<&'static str, AskError>>,
    answers_first: bool,
}

impl Actor for Typed {
    type Message = Ask;
    fn handle(&mut self, message: Ask, cx: &mut Context<'_, Ask>) {
        match message {
            Ask::Begin(other) => {
                let (me, answers_first) = (cx.me(), self.answers_first);
                cx.ask(Tag(1), other, move |reply| Ask::Ping(me, reply, answers_first), None);
            }
            Ask::Ping(asker, reply, true) => {
                reply.send("ping");
                cx.ask(Tag(2), asker, Ask::Plain, Some(LIMIT));
            }
            Ask::Ping(asker, reply, false) => {
                cx.ask(Tag(2), asker, Ask::Plain, Some(LIMIT));
                reply.send("ping");
            }
            Ask::Plain(reply) => reply.send("pong"),
        }
    }
    fn event(&mut self, event: Event, _: &mut Context<'_, Ask>) {
        if let Event::YieldComplete { tag: Tag(2), result } = event {
            self.tell.send(AskError::read(result)).unwrap();
        }
    }
}

#[test]
fn a_typed_answer_ends_the_wait_as_well() {
    for answers_first in [true, false] {
        let scheduler = scheduler(1);
        let (tell, told) = channel();
        let other = scheduler.spawn_actor(Typed { tell: tell.clone(), answers_first }).unwrap();
        let one = scheduler.spawn_actor(Typed { tell, answers_first }).unwrap();
        one.tell(Ask::Begin(other)).unwrap();
        match recv(&told) {
            Ok(text) => assert!(answers_first && text == "pong"),
            Err(AskError::Yield(YieldError::Cycle(chain))) => {
                let chain: Vec<LocalPid> = chain;
                assert!(!answers_first && chain.first() == chain.last(), "{chain:?}");
            }
            Err(other) => panic!("{other}"),
        }
        scheduler.shutdown(Duration::ZERO);
    }
}
