//! Facts about processes.

use capgate_common::escapes;

use super::{Scene, Session, UNSEEN_PTRACE};
use crate::{
    event::{Exec, Membership},
    loss,
    process::{ImageId, Program},
    seen::{Moment, Op, Seen},
    told::What,
};

impl Session {
    /// A program started. The answer is the image that runs now.
    pub(super) fn exec(&mut self, scene: Scene<'_>, exec: &Exec) -> ImageId {
        let program = match exec.exe.bytes.strip_prefix(b"/") {
            Some(name) if exec.exe.internal && name.starts_with(b"memfd:") => {
                Program::Memfd(name.into())
            }
            _ if exec.exe.internal => {
                self.lose(loss::UNRESOLVED);
                Program::Unknown
            }
            _ => self
                .kernel_path(scene, &exec.exe)
                .map_or(Program::Unknown, Program::File),
        };
        let by = self
            .processes
            .executed(scene.task, program.clone(), &exec.argv);
        let moment = Moment { by, ..scene.moment };
        self.ran(program, Op::Exec, &moment);
        if exec.script
            && !scene.elsewhere
            && let Some(script) = self.resolve(scene, &exec.name, true)
        {
            self.ran(Program::File(script), Op::Script, &moment);
        }
        by
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
