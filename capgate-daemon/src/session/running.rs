//! Facts about processes.

use capgate_common::escapes;

use super::{Scene, Session, UNSEEN_PTRACE};
use crate::{
    event::{Exec, Membership, Top},
    loss,
    process::{ImageId, Program, Ran},
    seen::{Moment, Op, Seen},
    told::What,
};

/// Device, inode and size of a record's file.
fn file_of(exec: &Exec) -> ((u32, u64), u64) {
    ((exec.id.dev, exec.id.ino), exec.size)
}

impl Session {
    /// A program started. The answer is the image that runs now.
    pub(super) fn exec(&mut self, scene: Scene<'_>, exec: &Exec) -> ImageId {
        let program = self.program(scene, exec);
        let by = self
            .processes
            .executed(scene.task, program.clone(), &exec.argv);
        let moment = Moment { by, ..scene.moment };
        let mut ran = vec![Ran {
            program,
            is_script: false,
            file: Some(file_of(exec)),
        }];
        ran.extend(self.attempts.executed(exec.was));
        if exec.script
            && ran.len() == 1
            && let Some(script) = self.resolve(scene, &exec.name, true)
        {
            ran.push(Ran {
                program: Program::File(script),
                is_script: true,
                file: None,
            });
        }
        let is_shim = self.reach_exec(Scene { moment, ..scene }, exec, &ran);
        for ran in ran.into_iter().filter(|_| !is_shim) {
            let op = if ran.is_script { Op::Script } else { Op::Exec };
            self.ran(ran.program, op, &moment);
        }
        by
    }

    /// A script whose interpreter the kernel looks for.
    pub(super) fn script(&mut self, scene: Scene<'_>, exec: &Exec) {
        let script = Ran {
            program: self.program(scene, exec),
            is_script: true,
            file: Some(file_of(exec)),
        };
        self.attempts.script(scene.task, script, exec.first);
    }

    fn program(&mut self, scene: Scene<'_>, exec: &Exec) -> Program {
        match exec.exe.bytes.strip_prefix(b"/") {
            Some(name) if exec.exe.top == Top::Internal && name.starts_with(b"memfd:") => {
                Program::Memfd(name.into())
            }
            _ if exec.exe.top == Top::Internal => {
                self.lose(loss::UNRESOLVED);
                Program::Unknown
            }
            _ => self
                .kernel_path(scene, &exec.exe)
                .map_or(Program::Unknown, Program::File),
        }
    }

    fn ran(&mut self, program: Program, op: Op, moment: &Moment) {
        if program == Program::Unknown {
            return;
        }
        let seen = Seen::first(op, moment);
        self.execs
            .entry(program)
            .and_modify(|known| known.merge(&seen))
            .or_insert(seen);
    }

    /// A process reached into another.
    pub(super) fn ptrace(
        &mut self,
        scene: Scene<'_>,
        target: u32,
        target_is: Membership,
    ) -> (Op, What) {
        let outside = match target_is {
            Membership::Inside => Some(false),
            Membership::Outside => Some(true),
            Membership::Unknown => self.look.is_outside(scene.task.tgid, target),
        };
        match outside {
            Some(true) => self.escape(escapes::PTRACE_OUTSIDE, Op::Ptrace, &scene.moment),
            Some(false) => {}
            None => self.unsee(UNSEEN_PTRACE, &scene.moment),
        }
        (Op::Ptrace, What::Process(target))
    }
}
