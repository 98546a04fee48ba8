//! Facts about processes.

use capgate_common::escapes;

use super::{Scene, Session, UNSEEN_PTRACE};
use crate::{
    event::{Exec, Membership, Top},
    loss,
    process::{ImageId, Program},
    seen::{Moment, Op, Seen},
    told::What,
};

impl Session {
    /// A program started. The answer is the image that runs now.
    pub(super) fn exec(&mut self, scene: Scene<'_>, exec: &Exec) -> ImageId {
        let program = self.program(scene, exec);
        let by = self
            .processes
            .executed(scene.task, program.clone(), &exec.argv);
        let moment = Moment { by, ..scene.moment };
        self.ran(program, Op::Exec, &moment);
        let scripts = self.attempts.executed(exec.was);
        let told = !scripts.is_empty();
        for script in scripts {
            self.ran(script, Op::Script, &moment);
        }
        if exec.script
            && !told
            && let Some(script) = self.resolve(scene, &exec.name, true)
        {
            self.ran(Program::File(script), Op::Script, &moment);
        }
        by
    }

    /// A script whose interpreter the kernel looks for.
    pub(super) fn script(&mut self, scene: Scene<'_>, exec: &Exec) {
        let program = self.program(scene, exec);
        self.attempts.script(scene.task, program, exec.first);
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
